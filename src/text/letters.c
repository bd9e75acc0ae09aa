#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ======================================================================
   >>text-impl letters, words, pieces; byte-level BPE; tokenizer.json; training; token shards
   WordPiece: Hugging Face's steps, one after the other over the whole text, are combined to one: NFD, StripAccents and
   Lowercase map a character to one letter or none (except for Hangul), and a letter's class determines where words end. So
   nothing is copied: a word is a range of the text's bytes, read through the table of letters as often as needed, and the
   bytes of every id are known. The longest piece at a place is found in a trie.
   ====================================================================== */

/* ---- letters ------------------------------------------------------------ >>text-letters
   Runs of code points with one class and one rule, made by tools/unicode_tables.py, which explains how they are written. */
enum { TNI_LETTER_SIGN = 0, TNI_LETTER_WORD, TNI_LETTER_SPACE, TNI_LETTER_ALONE, TNI_LETTER_GONE };

TNI_COLD_FN uint32_t tni_letter_number(const char **at)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    uint32_t n = 0, digit, shift = 0;
    do {
        digit = (uint32_t)(strchr(digits, *(*at)++) - digits);
        n |= (digit & 31) << shift;
        shift += 5;
    } while (digit >= 32);
    return n;
}

TNI_COLD_FN int32_t tni_letter_signed(const char **at)
{
    uint32_t n = tni_letter_number(at);
    return n & 1 ? -(int32_t)(n >> 1) - 1 : (int32_t)(n >> 1);
}

/* The letter of a character. kind TNI_LETTER_GONE: a mark, which is removed. */
static uint32_t tni_letter_of(const tni_letters *l, uint32_t c, int *kind)
{
    size_t low = 0, high = TNI_LETTER_RUNS;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (l->run[middle].first <= c) low = middle;
        else high = middle;
    }
    const tni_letter_run *r = &l->run[low];
    *kind = r->kind;
    if (r->rule == 3) return (uint32_t)r->value;
    return r->rule == 0 || (r->rule == 2 && (c - r->first) % 2 == 1) ? c : (uint32_t)((int32_t)c + r->value);
}

TNI_COLD_FN void tni_letters_unpack(tni_letters *l)
{
    uint32_t first = 0;
    int32_t  last[2] = {0, 0};
    size_t   k = 0, rows;
    const char *const *row = tni_letter_rows(&rows);
    for (size_t i = 0; i < rows; i++)
        for (const char *at = row[i]; *at; k++) {
            uint32_t        n = tni_letter_number(&at);
            tni_letter_run *r = &l->run[k];
            r->first = first;
            r->rule = (uint8_t)(n >> 2 & 3);
            r->kind = (uint8_t)(n & 3);
            r->value = r->rule == 0 ? 0 : (last[r->rule == 3] += tni_letter_signed(&at));
            if (r->rule == 3 && r->value == 0) r->kind = TNI_LETTER_GONE;
            first += n / 16 + 1;
        }
    for (uint32_t c = 0; c < 128; c++) {
        int kind;
        l->ascii[c] = (uint8_t)tni_letter_of(l, c, &kind);
        l->ascii_kind[c] = (uint8_t)kind;
    }
}

/* The character at text, of *n bytes. Invalid UTF-8 is read as U+FFFD, one for each longest beginning of a character, as
   the Unicode standard recommends (15.0, section 3.9) and Rust and Python do. */
TNI_COLD_FN uint32_t tni_utf8_get(const char *text, size_t left, size_t *n)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t   whole = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    uint32_t c = whole < 2 ? p[0] : p[0] & (0x7Fu >> whole);
    unsigned low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80, high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    for (*n = 1; *n < whole && *n < left && p[*n] >= low && p[*n] <= high; ++*n, low = 0x80, high = 0xBF)
        c = c << 6 | (p[*n] & 0x3Fu);
    return *n == whole ? c : 0xFFFD;
}

/* ---- categories --------------------------------------------------------- >>text-categories
   Of characters as they are, for the regular expressions of byte-level BPE: \p{L}, \p{N}, \s, and all others. Each is a
   bit, so that several can be meant. The runs are made by tools/unicode_tables.py. */

static int tni_category_of(const tni_categories *l, uint32_t c)
{
    size_t low = 0, high = TNI_CATEGORY_RUNS;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (l->run[middle] >> 2 <= c) low = middle;
        else high = middle;
    }
    return 1 << (l->run[low] & 3);
}

TNI_COLD_FN void tni_categories_unpack(tni_categories *l)
{
    uint32_t first = 0;
    size_t            k = 0, rows;
    const char *const*row = tni_category_rows(&rows);
    for (size_t i = 0; i < rows; i++)
        for (const char *at = row[i]; *at; k++) {
            uint32_t n = tni_letter_number(&at);
            l->run[k] = first << 2 | (n & 3);
            first += n / 4 + 1;
        }
    for (uint32_t c = 0; c < 128; c++) l->ascii[c] = (uint8_t)tni_category_of(l, c);
}

/* The category of the character of *n bytes at `at`. Invalid UTF-8 is U+FFFD, of the others. */
TNI_COLD_FN int tni_category_at(const tni_categories *l, const char *text, size_t at, size_t end, size_t *n)
{
    if ((unsigned char)text[at] < 128) { *n = 1; return l->ascii[(unsigned char)text[at]]; }
    return tni_category_of(l, tni_utf8_get(text + at, end - at, n));
}

/* ---- words of WordPiece ------------------------------------------------- >>text-words */

/* A syllable of Hangul is two or three letters: a consonant, a vowel and optionally a consonant. Unicode 15.0, 3.12 */
static bool     tni_is_hangul(uint32_t c)           { return c >= 0xAC00 && c <= 0xD7A3; }
static int      tni_hangul_letters(uint32_t c)      { return (c - 0xAC00) % 28 == 0 ? 2 : 3; }
static uint32_t tni_hangul_letter(uint32_t c, int part)
{
    c -= 0xAC00;
    return part == 0 ? 0x1100 + c / 588 : part == 1 ? 0x1161 + c % 588 / 28 : 0x11A7 + c % 28;
}

/* Finds the next word from w->end on; false: there is none. */
TNI_COLD_FN bool tni_word_next(const tni_letters *l, const char *text, size_t end, tni_word *w)
{
    size_t at = w->end, n;
    int    kind = 0, k;
    w->letters = 0;
    for (; at < end; at += n) {
        uint32_t c = (unsigned char)text[at];
        n = 1;
        if (c < 128) k = l->ascii_kind[c];
        else tni_letter_of(l, c = tni_utf8_get(text + at, end - at, &n), &k);
        if (w->letters > 0 && k != kind && k != TNI_LETTER_GONE) break;
        if (k == TNI_LETTER_GONE || (w->letters == 0 && k == TNI_LETTER_SPACE)) continue;
        if (w->letters > 0 && k == TNI_LETTER_ALONE) break;
        if (w->letters == 0) w->begin = at;
        kind = k;
        w->letters += tni_is_hangul(c) ? tni_hangul_letters(c) : 1;
    }
    w->end = at;
    return w->letters > 0;
}

/* The letter at *p as UTF-8, nothing for a mark. Returns the number of bytes and moves *p to the next letter. */
TNI_COLD_FN size_t tni_letter_take(const tni_letters *l, const char *text, size_t end, tni_place *p, char utf8[4])
{
    uint32_t c = (unsigned char)text[p->at];
    size_t   n;
    int      kind;
    if (c < 128) {
        utf8[0] = (char)l->ascii[c];
        p->at++;
        return 1;
    }
    c = tni_utf8_get(text + p->at, end - p->at, &n);
    if (tni_is_hangul(c)) {
        size_t bytes = tni_utf8_put(utf8, tni_hangul_letter(c, p->part));
        if (++p->part == tni_hangul_letters(c)) { p->part = 0; p->at += n; }
        return bytes;
    }
    p->at += n;
    c = tni_letter_of(l, c, &kind);
    return kind == TNI_LETTER_GONE ? 0 : tni_utf8_put(utf8, c);
}

/* ---- maps and tries ----------------------------------------------------- >>text-tries
   A map has a number (not 0) for each of its keys. A trie's edges are one: a node and a byte lead to a node. */

static size_t tni_map_bytes(const tni_map *m) { return m->slot ? sizeof(tni_slot) << m->bits : 0; }

TNI_COLD_FN void tni_map_free(tn_ctx *ctx, tni_map *m) { tni_free(ctx, m->slot, tni_map_bytes(m)); }

/* Fibonacci hashing, Knuth, The Art of Computer Programming 3, section 6.4 */
static tni_slot *tni_map_slot(const tni_map *m, uint64_t key)
{
    size_t i = (size_t)(key * 0x9E3779B97F4A7C15u >> (64 - m->bits)), mask = ((size_t)1 << m->bits) - 1;
    while (m->slot[i].value != 0 && m->slot[i].key != key) i = (i + 1) & mask;
    return &m->slot[i];
}

TNI_COLD_FN uint32_t tni_map_get(const tni_map *m, uint64_t key) { return m->slot ? tni_map_slot(m, key)->value : 0; }

/* A key that the map does not have yet. */
TNI_COLD_FN bool tni_map_put(tn_ctx *ctx, tni_map *m, uint64_t key, uint32_t value)
{
    if (!m->slot || m->used >= (size_t)1 << (m->bits - 1)) {
        tni_map bigger;
        bigger.bits = m->slot ? m->bits + 1 : 6;
        bigger.used = m->used;
        if (bigger.bits > 8 * sizeof(size_t) - 6)
            return tni_fail(ctx, TN_ERR_MEMORY, "map: 2^%d slots are larger than the address space", (int)bigger.bits), false;
        bigger.slot = (tni_slot *)tni_array(ctx, (int64_t)1 << bigger.bits, sizeof(tni_slot), "map");
        if (!bigger.slot) return false;
        memset(bigger.slot, 0, tni_map_bytes(&bigger));
        for (size_t i = 0; m->slot && i >> m->bits == 0; i++)
            if (m->slot[i].value != 0) *tni_map_slot(&bigger, m->slot[i].key) = m->slot[i];
        tni_map_free(ctx, m);
        *m = bigger;
    }
    tni_slot *slot = tni_map_slot(m, key);
    slot->key = key;
    slot->value = value;
    m->used++;
    return true;
}

TNI_COLD_FN uint32_t tni_trie_step(const tni_trie *t, uint32_t node, char byte)           /* 0: no such node */
{
    return tni_map_get(&t->edges, (uint64_t)node << 8 | (unsigned char)byte);
}

TNI_COLD_FN uint32_t tni_trie_find(const tni_trie *t, const char *s, size_t n)
{
    uint32_t node = TNI_ROOT;
    for (size_t i = 0; i < n && node != 0; i++) node = tni_trie_step(t, node, s[i]);
    return node;
}

/* Node 0 has no value. */
TNI_COLD_FN uint32_t *tni_trie_value(const tni_trie *t, uint32_t node) { return (uint32_t *)t->nodes.items + node; }

TNI_COLD_FN void tni_trie_free(tn_ctx *ctx, tni_trie *t)
{
    tni_map_free(ctx, &t->edges);
    tni_free(ctx, t->nodes.items, t->nodes.max * t->nodes.each);
}

/* Nodes 0 (none) and TNI_ROOT. */
TNI_COLD_FN bool tni_trie_begin(tn_ctx *ctx, tni_trie *t)
{
    memset(t, 0, sizeof *t);
    t->nodes.each = sizeof(uint32_t);
    return tni_list_add(ctx, &t->nodes, "trie") && tni_list_add(ctx, &t->nodes, "trie");
}

/* The value of a string, to be set; valid until the next call. NULL: out of memory. */
TNI_COLD_FN uint32_t *tni_trie_add(tn_ctx *ctx, tni_trie *t, const char *s, size_t n)
{
    uint32_t node = TNI_ROOT;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = tni_trie_step(t, node, s[i]);
        if (next == 0) {
            next = (uint32_t)t->nodes.count;
            if (t->nodes.count == UINT32_MAX)
                return tni_fail(ctx, TN_ERR_MEMORY, "trie: there are more than 2^32 - 1 nodes"), (uint32_t *)NULL;
            if (!tni_list_add(ctx, &t->nodes, "trie")
                || !tni_map_put(ctx, &t->edges, (uint64_t)node << 8 | (unsigned char)s[i], next)) return NULL;
        }
        node = next;
    }
    return tni_trie_value(t, node);
}

#endif /* TN_NO_TEXT */
