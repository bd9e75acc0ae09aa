#include "core/inner.h"
#include "io/inner.h"

/* ---- the scanner of text headers ---------------------------------------- >>io-scanner
   The headers of safetensors and npy are flat, at most an object of objects, so that nothing recurses. Strings
   are decoded in place, since no character is longer than its escape, and end with a zero at their closing quote. */

TNI_FN bool tni_scan_fail(tni_scan *s, const char *reason)
{
    s->status = tni_reader_fail(s->file, TN_ERR_FORMAT, s->start + s->at, "%s", reason);
    return false;
}

TNI_FN void tni_scan_space(tni_scan *s)
{
    for (; s->at < s->bytes; s->at++) {
        char c = s->text[s->at];
        if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return;
    }
}

TNI_FN bool tni_scan_take(tni_scan *s, char c)
{
    tni_scan_space(s);
    if (s->at == s->bytes || s->text[s->at] != c) return false;
    s->at++;
    return true;
}

TNI_FN bool tni_scan_unexpected(tni_scan *s, const char *expected)
{
    s->status = tni_reader_fail(s->file, TN_ERR_FORMAT, s->start + s->at, "unexpected %s, expected %s",
                                s->at < s->bytes ? "character" : s->start + s->bytes < s->file->bytes ? "end of header"
                                                                                              : "end of file", expected);
    return false;
}

TNI_FN bool tni_scan_expect(tni_scan *s, char c)
{
    char quoted[] = "' '";
    quoted[1] = c;
    return tni_scan_take(s, c) || tni_scan_unexpected(s, quoted);
}

/* 0 or a number without leading zeros, sign, point or exponent. */
TNI_FN bool tni_scan_natural(tni_scan *s, uint64_t *out)
{
    tni_scan_space(s);
    size_t first = s->at;
    for (*out = 0; s->at < s->bytes && s->text[s->at] >= '0' && s->text[s->at] <= '9'; s->at++) {
        unsigned digit = (unsigned)(s->text[s->at] - '0');
        if (*out > (UINT64_MAX - digit) / 10) return tni_scan_fail(s, "a number is out of range: more than 64 bits");
        *out = *out * 10 + digit;
    }
    if (s->at == first) return tni_scan_unexpected(s, "a non-negative integer");
    if (s->text[first] == '0' && s->at - first > 1) return tni_scan_fail(s, "a number has a leading zero");
    return true;
}

/* JSON's [], [3], [3,4]; or Python's (), (3,), (3, 4), where Python 2 wrote (3L, 4L). The shape of more axes than a tensor can
   have is that of their numbers in a row, at most PTRDIFF_MAX, which no memory holds. */
TNI_FN bool tni_scan_shape(tni_scan *s, bool tuple, int64_t *axes, int *rank, int64_t *shape)
{
    bool     comma = false;
    size_t   all = 1;
    uint64_t extent;
    *axes = *rank = 0;
    if (!tni_scan_expect(s, tuple ? '(' : '[')) return false;
    while (!tni_scan_take(s, tuple ? ')' : ']')) {
        if (*axes > 0 && !comma) return tni_scan_unexpected(s, "','");
        if (!tni_scan_natural(s, &extent)) return false;
        if (extent > INT64_MAX) return tni_scan_fail(s, "an extent is out of range: more than 63 bits");
        if (*rank < TN_MAX_RANK) shape[(*rank)++] = (int64_t)extent;
        if (extent > PTRDIFF_MAX || !tni_mul_size(all, (size_t)extent, &all) || all > PTRDIFF_MAX) all = PTRDIFF_MAX;
        ++*axes;
        if (tuple) tni_scan_take(s, 'L');
        comma = tni_scan_take(s, ',');
    }
    if (tuple ? *axes == 1 && !comma : comma)
        return tni_scan_fail(s, tuple ? "expected ',' in a tuple of one" : "trailing comma before ']'");
    if (*axes == *rank) return true;
    *rank = 1;
    shape[0] = (int64_t)all;
    return true;
}

TNI_FN size_t tni_utf8_put(char *dst, uint32_t c)
{
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) dst[i] = (char)(0x80 | (c & 0x3F));
    dst[0] = (char)(first[n] | c);
    return n;
}

static bool tni_scan_hex4(tni_scan *s, uint32_t *out)
{
    int i;
    for (*out = 0, i = 0; i < 4; i++, s->at++) {
        char c = s->at < s->bytes ? s->text[s->at] : 'x';
        bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        if (!letter && (c < '0' || c > '9')) return tni_scan_fail(s, "expected four hexadecimal digits after \\u");
        *out = *out * 16 + (uint32_t)(letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    return true;
}

/* The escape after a backslash. Characters outside the first plane are written as a pair of surrogates. */
static bool tni_scan_escape(tni_scan *s, uint32_t *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char        c = s->at < s->bytes ? s->text[s->at] : 0;
    const char *known = c ? strchr(from, c) : NULL;
    uint32_t    low;
    if (c != 'u' && !known) return tni_scan_fail(s, "invalid escape sequence");
    s->at++;
    if (known) {
        *out = (uint32_t)to[known - from];
        return true;
    }
    if (!tni_scan_hex4(s, out)) return false;
    if (*out == 0) return tni_scan_fail(s, "zero character in a string");
    if (*out < 0xD800 || *out > 0xDFFF) return true;
    if (*out > 0xDBFF || s->bytes - s->at < 6 || memcmp(s->text + s->at, "\\u", 2) != 0)
        return tni_scan_fail(s, "unpaired surrogate");
    s->at += 2;
    if (!tni_scan_hex4(s, &low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return tni_scan_fail(s, "unpaired surrogate");
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

TNI_FN bool tni_scan_string(tni_scan *s, const char **out)
{
    char *to;
    if (!tni_scan_take(s, '"')) return tni_scan_unexpected(s, "a string");
    *out = to = s->text + s->at;
    while (s->at < s->bytes && s->text[s->at] != '"') {
        size_t n = tni_utf8_length(s->text + s->at, s->bytes - s->at);
        if (n == 0) return tni_scan_fail(s, "invalid UTF-8");
        if ((unsigned char)s->text[s->at] < 32) return tni_scan_fail(s, "control character in a string");
        if (s->text[s->at] == '\\') {
            uint32_t code;
            s->at++;
            if (!tni_scan_escape(s, &code)) return false;
            to += tni_utf8_put(to, code);
        } else {
            memmove(to, s->text + s->at, n);
            to += n;
            s->at += n;
        }
    }
    if (s->at == s->bytes) return tni_scan_fail(s, "unterminated string");
    s->at++;
    *to = 0;
    return true;
}

/* ---- lists and names ---------------------------------------------------- >>io-lists
   All structs with a name have it as their first member, so that one sort and one search work for all. */

TNI_FN void *tni_list_add(tn_ctx *ctx, tni_list *l, const char *what)
{
    if (l->count == l->room) {
        size_t room = l->room * 2 + 8, bytes;
        void  *items = tni_mul_size(room, l->each, &bytes) ? tni_alloc(ctx, bytes, what) : NULL;
        if (!items) return NULL;
        if (l->count > 0) memcpy(items, l->items, l->count * l->each);
        tni_free(ctx, l->items, l->room * l->each);
        l->items = items;
        l->room = room;
    }
    return memset(tni_list_at(l, l->count++), 0, l->each);
}

/* A list as a queue, whose first item is the one that `before` puts first; an item has at most 16 bytes. After one was added,
   this puts it in its place. */
TNI_UNUSED TNI_FN void tni_queue_up(tni_list *l, tni_queue_fn before, const void *user)
{
    uint64_t moving[2];
    size_t   i = l->count - 1;
    memcpy(moving, tni_list_at(l, i), l->each);
    for (; i > 0 && before(user, moving, tni_list_at(l, (i - 1) / 2)); i = (i - 1) / 2)
        memcpy(tni_list_at(l, i), tni_list_at(l, (i - 1) / 2), l->each);
    memcpy(tni_list_at(l, i), moving, l->each);
}

TNI_UNUSED TNI_FN void tni_queue_pop(tni_list *l, void *top, tni_queue_fn before, const void *user)
{
    uint64_t moving[2];
    size_t   i = 0, child;
    memcpy(top, l->items, l->each);
    memcpy(moving, tni_list_at(l, --l->count), l->each);
    for (; (child = 2 * i + 1) < l->count; i = child) {
        if (child + 1 < l->count && before(user, tni_list_at(l, child + 1), tni_list_at(l, child))) child++;
        if (!before(user, tni_list_at(l, child), moving)) break;
        memcpy(tni_list_at(l, i), tni_list_at(l, child), l->each);
    }
    memcpy(tni_list_at(l, i), moving, l->each);
}

static void tni_sift(const void **p, size_t i, size_t n, tni_before_fn before)
{
    const void *moving = p[i];
    size_t      child;
    for (; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(p[child], p[child + 1])) child++;
        if (!before(moving, p[child])) break;
        p[i] = p[child];
    }
    p[i] = moving;
}

/* Heapsort: n log n steps for any input and no memory, neither of which C's qsort guarantees. */
TNI_FN void tni_sort(const void **p, size_t n, tni_before_fn before)
{
    for (size_t i = n / 2; i-- > 0;) tni_sift(p, i, n, before);
    for (size_t i = n; i-- > 1;) {
        const void *last = p[0];
        p[0] = p[i];
        p[i] = last;
        tni_sift(p, 0, i, before);
    }
}

static const char *tni_name_of(const void *item)
{
    const char *name;
    memcpy(&name, item, sizeof name);
    return name;
}

TNI_FN bool tni_by_name(const void *a, const void *b) { return strcmp(tni_name_of(a), tni_name_of(b)) < 0; }

/* Sorted pointers to the n items. */
TNI_FN const void **tni_sorted(tni_scratch *w, const void *items, size_t n, size_t each, tni_before_fn before)
{
    const void **p = (const void **)tni_take(w, (int64_t)n, sizeof *p);
    if (!p) return NULL;
    for (size_t i = 0; i < n; i++) p[i] = (const char *)items + i * each;
    tni_sort(p, n, before);
    return p;
}

TNI_FN const void *tni_find_name(const void *const *p, size_t n, const char *name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int    order = strcmp(tni_name_of(p[middle]), name);
        if (order == 0) return p[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* A name that two of the sorted items have, or NULL. */
TNI_FN const char *tni_twice(const void *const *p, size_t n)
{
    for (size_t i = 1; i < n; i++) if (strcmp(tni_name_of(p[i - 1]), tni_name_of(p[i])) == 0) return tni_name_of(p[i]);
    return NULL;
}

TNI_UNUSED TNI_FN void tni_list_free(tn_ctx *ctx, tni_list *l) { tni_free(ctx, l->items, l->room * l->each); }
