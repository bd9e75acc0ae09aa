#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- NFC ---------------------------------------------------------------- >>text-nfc
   Canonical composition, as the normalizer of some tokenizers: each character becomes its parts, marks are sorted by class, and
   pairs become one character again where nothing of the same or a higher class is between them. Unicode Standard Annex 15.
   Text in which nothing can change, as nearly all is, is not copied. The table is made by tools/unicode_tables.py. */
enum { TNI_NFC_CLASS = 1, TNI_NFC_OF, TNI_NFC_SECOND, TNI_NFC_MARKS = 1024 };

typedef struct tni_nfc_parts { uint32_t a, b; } tni_nfc_parts;                  /* b 0: one character */
typedef struct tni_nfc_char { size_t begin; uint32_t c, class_of; } tni_nfc_char;    /* c from 0x110000 on: a single byte */

/* The table of pairs, of numbers of parts and of classes is one: pairs are below 2^56. */
static uint32_t tni_nfc_get(const tn_tokenizer *t, int what, uint32_t c)
{
    return tni_map_get(&t->bpe.nfc, (uint64_t)(unsigned)what << 56 | c);
}

static bool tni_nfc_put(tn_tokenizer *t, int what, uint32_t c, uint32_t value)
{
    return tni_map_put(t->owned.ctx, &t->bpe.nfc, (uint64_t)(unsigned)what << 56 | c, value);
}

static uint32_t tni_nfc_pair(const tn_tokenizer *t, uint32_t a, uint32_t b)
{
    if (a - 0x1100 < 19 && b - 0x1161 < 21) return 0xAC00 + ((a - 0x1100) * 21 + b - 0x1161) * 28;      /* Hangul */
    if (a - 0xAC00 < 11172 && (a - 0xAC00) % 28 == 0 && b - 0x11A8 < 27) return a + b - 0x11A7;
    return tni_map_get(&t->bpe.nfc, (uint64_t)a << 32 | b);
}

TNI_COLD_FN bool tni_nfc_unpack(tn_tokenizer *t)
{
    size_t   rows, k = 0;
    uint32_t c = 0;
    int32_t  a = 0, b = 0;
    bool     ok = true;
    const char *const *row = tni_nfc_rows(&rows);
    t->bpe.nfc_parts.each = sizeof(tni_nfc_parts);
    for (size_t i = 0; i < rows; i++)
        for (const char *at = row[i]; *at && ok; k++) {
            uint32_t n = tni_letter_number(&at);
            if (k == TNI_NFC_PARTS) c = 0;
            if (k >= TNI_NFC_PARTS) {
                uint32_t last = (c += n) + tni_letter_number(&at), kind = tni_letter_number(&at);
                for (; c <= last && ok; c++) ok = tni_nfc_put(t, TNI_NFC_CLASS, c, kind);
                continue;
            }
            tni_nfc_parts *p = (tni_nfc_parts *)tni_list_add(t->owned.ctx, &t->bpe.nfc_parts, "tokenizer");
            c += n / 3;
            a += tni_letter_signed(&at);
            if (n % 3 < 2) b += tni_letter_signed(&at);
            if (p) p->a = (uint32_t)a, p->b = n % 3 < 2 ? (uint32_t)b : 0;
            ok = p && tni_nfc_put(t, TNI_NFC_OF, c, (uint32_t)t->bpe.nfc_parts.count);
            if (ok && n % 3 == 0)
                ok = tni_map_put(t->owned.ctx, &t->bpe.nfc, (uint64_t)p->a << 32 | p->b, c)
                  && tni_nfc_put(t, TNI_NFC_SECOND, p->b, 1);
        }
    return ok;
}

static const tni_nfc_parts *tni_nfc_parts_of(const tn_tokenizer *t, uint32_t c)
{
    const uint32_t k = tni_nfc_get(t, TNI_NFC_OF, c);
    return k ? (const tni_nfc_parts *)tni_list_at(&t->bpe.nfc_parts, k - 1) : NULL;
}

/* Whether a character may change, or be joined or sorted with those before it. -1: one whose parts are not known here. */
static int tni_nfc_doubtful(const tn_tokenizer *t, uint32_t c)
{
    const tni_nfc_parts *p = tni_nfc_parts_of(t, c);
    static const unsigned char whole[] = {0x0E, 0x0F, 0x11, 0x13, 0x14, 0x1F, 0x21, 0x23, 0x24, 0x27, 0x28, 0x29};
    if (p && (p->b == 0 || tni_nfc_pair(t, p->a, p->b) != c)) return 1;
    if (c - 0x2F800 < 0x21E || (c - 0xF900 < 0x1DA && c - 0xFA6E > 1))         /* CJK compatibility ideographs */
        return c - 0xFA00 < 0x2A && memchr(whole, (int)(c & 0xFF), sizeof whole) ? 0 : -1;
    return tni_nfc_get(t, TNI_NFC_CLASS, c) || tni_nfc_get(t, TNI_NFC_SECOND, c) || c - 0x1161 < 21 || c - 0x11A8 < 27;
}

/* Sets *needed if NFC may change the text; false: an error. */
TNI_FN bool tni_nfc_look(const tn_tokenizer *t, const char *text, size_t at, size_t end, bool *needed)
{
    size_t n;
    for (*needed = false; at < end; at += n) {
        n = 1;
        if ((unsigned char)text[at] < 0xCC) continue;                   /* below U+0300, where nothing changes */
        const uint32_t c = tni_utf8_get(text + at, end - at, &n);
        const int      doubt = tni_nfc_doubtful(t, c);
        if (doubt < 0)
            return tni_fail(t->owned.ctx, TN_ERR_DATA, "encode: byte %zu: a CJK compatibility ideograph, which the tokenizer's NFC "
                            "changes, expected none: unicodedata.normalize(\"NFC\", text) of Python replaces it", at), false;
        *needed |= doubt > 0;
    }
    return true;
}

/* Adds a character, by parts; marks are sorted by class. `run`: the number of marks at the end so far. */
static bool tni_nfc_add(const tn_tokenizer *t, tni_nfc_char *out, size_t *count, size_t *run, uint32_t c, size_t begin)
{
    const tni_nfc_parts *p;
    uint32_t tail[8];
    int      left = 0;
    while (left < 8 && (p = tni_nfc_parts_of(t, c)) != NULL) {
        if (p->b) tail[left++] = p->b;
        c = p->a;
    }
    for (;; c = tail[--left]) {
        const uint32_t kind = tni_nfc_get(t, TNI_NFC_CLASS, c);
        size_t         i = (*count)++;
        *run = kind ? *run + 1 : 0;
        if (*run > TNI_NFC_MARKS) return false;
        for (; kind && i > 0 && out[i - 1].class_of > kind; i--) out[i].c = out[i - 1].c, out[i].class_of = out[i - 1].class_of;
        out[i].c = c;
        out[i].class_of = kind;
        out[*count - 1].begin = begin;
        if (left == 0) return true;
    }
}

/* Joins pairs in place; returns the new number. */
static size_t tni_nfc_compose(const tn_tokenizer *t, tni_nfc_char *w, size_t n)
{
    size_t   out = 0, starter = SIZE_MAX;
    uint32_t last = 0;                  /* class of what is between, + 1; 0: nothing is */
    for (size_t i = 0; i < n; i++) {
        const uint32_t both = starter != SIZE_MAX && last <= w[i].class_of ? tni_nfc_pair(t, w[starter].c, w[i].c) : 0;
        if (both) { w[starter].c = both; continue; }
        if (w[i].class_of == 0) starter = out;
        last = w[i].class_of ? w[i].class_of + 1 : 0;
        w[out++] = w[i];
    }
    return out;
}

TNI_FN void tni_nfc_end(const tn_tokenizer *t, tni_nfc *f)
{
    tn_ctx *ctx = t->owned.ctx;
    if (f->all) ctx->desc.allocator.release(f->all, f->size, ctx->desc.allocator.user);
}

/* The text in NFC, and where each of its bytes comes from. Its memory is one block: characters, places, text. */
TNI_FN bool tni_nfc_begin(const tn_tokenizer *t, const char *text, size_t at, size_t end, tni_nfc *f)
{
    const size_t each = 2 * sizeof(tni_nfc_char) + 8 * (sizeof(size_t) + 1);    /* 2 parts of at most 4 bytes for a byte */
    tn_ctx      *ctx = t->owned.ctx;
    size_t       n, count = 0, run = 0;
    memset(f, 0, sizeof *f);
    if (!tni_mul_size(end - at + 1, each, &f->size) || !(f->all = ctx->desc.allocator.alloc(f->size, ctx->desc.allocator.user)))
        return tni_fail(ctx, TN_ERR_MEMORY, "encode: no memory for %zu bytes in NFC", end - at), false;
    tni_nfc_char *w = (tni_nfc_char *)f->all;
    f->from = (size_t *)(void *)(w + 2 * (end - at + 1));
    f->text = (char *)(f->from + 8 * (end - at + 1));
    for (size_t i = at; i < end; i += n) {
        uint32_t   c = tni_utf8_get(text + i, end - i, &n);
        const bool bad = c == 0xFFFD && !(n == 3 && memcmp(text + i, "\xEF\xBF\xBD", 3) == 0);
        if (bad) n = 1, c = 0x110000 | (unsigned char)text[i];
        if (tni_nfc_add(t, w, &count, &run, c, i)) continue;
        tni_fail(ctx, TN_ERR_DATA, "encode: byte %zu: more than %d marks follow each other, expected fewer for NFC", i,
                 (int)TNI_NFC_MARKS);
        tni_nfc_end(t, f);
        return false;
    }
    count = tni_nfc_compose(t, w, count);
    for (size_t i = 0; i < count; i++) {
        char utf8[4] = {0, 0, 0, 0};
        n = 1;
        if (w[i].c < 0x110000) n = tni_utf8_put(utf8, w[i].c);
        else utf8[0] = (char)(w[i].c & 255);
        for (size_t k = 0; k < n; k++, f->bytes++) f->text[f->bytes] = utf8[k], f->from[f->bytes] = w[i].begin;
    }
    f->from[f->bytes] = end;
    return true;
}

#endif /* TN_NO_TEXT */
