#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- NFC ---------------------------------------------------------------- >>text-nfc
   Canonical composition, the normalizer of some tokenizers: characters become their parts, marks are sorted by class, and pairs
   become one character where nothing of the same or a higher class is between them. Unicode Standard Annex 15. Text in which
   nothing can change, as nearly all is, is not copied. */
enum { TNI_NFC_CLASS = 1, TNI_NFC_FIRST, TNI_NFC_LAST, TNI_NFC_JOINS, TNI_NFC_MARKS = 1024 };

/* c from 0x110000 on: a byte that is no character */
typedef struct tni_nfc_char { size_t begin; uint32_t c, class_of; } tni_nfc_char;

/* One table has the class and the first and last part of characters, which joins its left neighbour, and pairs (below 2^56). */
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
    uint32_t c = 0, a = 0, b = 0;
    bool     ok = true;
    const char *const *row = tni_nfc_rows(&rows);
    for (size_t i = 0; i < rows; i++)
        for (const char *at = row[i]; *at && ok; k++) {
            const uint32_t n = tni_letter_number(&at);
            if (k == TNI_NFC_PARTS) c = 0;
            if (k >= TNI_NFC_PARTS) {
                const uint32_t last = (c += n) + tni_letter_number(&at), kind = tni_letter_number(&at);
                for (; c <= last && ok; c++) ok = tni_nfc_put(t, TNI_NFC_CLASS, c, kind);
                continue;
            }
            c += n / 3;
            a += (uint32_t)tni_letter_signed(&at);
            ok = tni_nfc_put(t, TNI_NFC_FIRST, c, a);
            if (n % 3 == 2) continue;                       /* one character */
            b += (uint32_t)tni_letter_signed(&at);
            ok = ok && tni_nfc_put(t, TNI_NFC_LAST, c, b);
            if (n % 3 == 0)
                ok = ok && tni_map_put(t->owned.ctx, &t->bpe.nfc, (uint64_t)a << 32 | b, c)
                  && tni_nfc_put(t, TNI_NFC_JOINS, b, 1);
        }
    return ok;
}

/* Sets *needed if NFC may change the text; false: an error. CJK compatibility ideographs have no place in the table; twelve of
   their block are whole. */
TNI_FN bool tni_nfc_look(const tn_tokenizer *t, const char *text, size_t at, size_t end, bool *needed)
{
    static const char whole[] = "\x0E\x0F\x11\x13\x14\x1F!#$'()";
    size_t            n;
    for (*needed = false; at < end; at += n) {
        n = 1;
        if ((unsigned char)text[at] < 0xCC) continue;       /* below U+0300, where nothing changes */
        const uint32_t c = tni_utf8_get(text + at, end - at, &n), a = tni_nfc_get(t, TNI_NFC_FIRST, c);
        *needed = *needed || (a && tni_nfc_pair(t, a, tni_nfc_get(t, TNI_NFC_LAST, c)) != c) || tni_nfc_get(t, TNI_NFC_CLASS, c)
               || tni_nfc_get(t, TNI_NFC_JOINS, c) || c - 0x1161 < 21 || c - 0x11A8 < 27;
        if ((c - 0x2F800 < 0x21E || c - 0xF900 < 0x16E || c - 0xFA70 < 0x6A)
            && (c >> 8 != 0xFA || !memchr(whole, (int)(c & 255), 12)))
            return tni_fail(t->owned.ctx, TN_ERR_DATA, "encode: byte %zu: a CJK compatibility ideograph, which the tokenizer's "
                            "NFC changes, expected none: unicodedata.normalize(\"NFC\", text) of Python replaces it", at), false;
    }
    return true;
}

/* Adds the parts of a character; marks are sorted. *run: the number of marks at the end so far, of which too many are false. */
static bool tni_nfc_add(const tn_tokenizer *t, tni_nfc_char *out, size_t *count, size_t *run, uint32_t c, size_t begin)
{
    uint32_t tail[8], a;
    int      left = 0;
    for (; left < 7 && (a = tni_nfc_get(t, TNI_NFC_FIRST, c)) != 0; c = a)
        if ((tail[left] = tni_nfc_get(t, TNI_NFC_LAST, c)) != 0) left++;
    for (;; c = tail[--left]) {
        const uint32_t kind = tni_nfc_get(t, TNI_NFC_CLASS, c);
        size_t         i = (*count)++;
        *run = kind ? *run + 1 : 0;
        out[i].begin = begin;
        for (; kind && i > 0 && out[i - 1].class_of > kind; i--) out[i].c = out[i - 1].c, out[i].class_of = out[i - 1].class_of;
        out[i].c = c;
        out[i].class_of = kind;
        if (left == 0 || *run > TNI_NFC_MARKS) return *run <= TNI_NFC_MARKS;
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
    t->owned.ctx->desc.allocator.release(f->all, f->size, t->owned.ctx->desc.allocator.user);
}

/* The text in NFC, and where each of its bytes comes from: those of a character that stays from its own, others from the first of
   a character. Its memory is one block: characters, places, text; a byte has at most 1.5 parts, and 3 bytes of the text in NFC.
   The context may be shared: no counts. */
TNI_FN bool tni_nfc_begin(const tn_tokenizer *t, const char *text, size_t at, size_t end, tni_nfc *f)
{
    const size_t room = end - at + 1;
    tn_ctx      *ctx = t->owned.ctx;
    size_t       n, m, i, count = 0, run = 0;
    memset(f, 0, sizeof *f);
    if (!tni_mul_size(room / 2 + 1, 3 * sizeof(tni_nfc_char) + 6 * (sizeof(size_t) + 1), &f->size)
        || !(f->all = ctx->desc.allocator.alloc(f->size, ctx->desc.allocator.user)))
        return tni_fail(ctx, TN_ERR_MEMORY, "encode: no memory for %zu bytes in NFC", end - at), false;
    tni_nfc_char *w = (tni_nfc_char *)f->all;
    f->from = (size_t *)(void *)(w + 3 * (room / 2 + 1));
    f->text = (char *)(f->from + 6 * (room / 2 + 1));
    for (i = at; i < end; i += n) {
        uint32_t c = tni_utf8_get(text + i, end - i, &n);
        if (c == 0xFFFD && !(n == 3 && memcmp(text + i, "\xEF\xBF\xBD", 3) == 0)) n = 1, c = 0x110000 | (unsigned char)text[i];
        if (tni_nfc_add(t, w, &count, &run, c, i)) continue;
        tni_nfc_end(t, f);
        return tni_fail(ctx, TN_ERR_DATA, "encode: byte %zu: more than %d marks follow each other, expected fewer for NFC", i,
                        (int)TNI_NFC_MARKS), false;
    }
    count = tni_nfc_compose(t, w, count);
    for (i = 0; i < count; i++) {
        char *utf8 = f->text + f->bytes;
        n = 1;
        if (w[i].c < 0x110000) n = tni_utf8_put(utf8, w[i].c);
        else *utf8 = (char)(w[i].c & 255);
        const size_t from = w[i].begin;
        const bool   stays = tni_utf8_get(text + from, end - from, &m) == w[i].c && m == n
                          && (i + 1 == count || w[i + 1].begin != from);       /* no mark of it is elsewhere */
        for (size_t k = 0; k < n; k++) f->from[f->bytes++] = from + (stays ? k : 0);
    }
    f->from[f->bytes] = end;
    return true;
}

#endif /* TN_NO_TEXT */
