#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- byte-level BPE ----------------------------------------------------- >>text-bpe
   A regular expression divides the text into words, of any bytes; a word is the tokens of its bytes, of which the two
   neighbours whose merge has the lowest rank become one, the first such pair of several, until no pair has a merge. In the
   file each byte is a letter: itself where it is visible in Latin-1, else one from U+0100 on. Sennrich, Haddow & Birch 2016;
   Radford et al. 2019. The regular expressions are those of published tokenizers; each is a function here. */

/* The byte that a letter of a token's name stands for, or -1. */
static int tni_bpe_byte(uint32_t c)
{
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 255 && c != 173)) return (int)c;
    if (c < 256 || c > 323) return -1;
    c -= 256;
    return (int)(c < 33 ? c : c < 67 ? c - 33 + 127 : 173);
}

TNI_FN size_t tni_bpe_letter(unsigned byte, char utf8[4])
{
    return tni_utf8_put(utf8, byte < 33 ? 256 + byte : byte >= 127 && byte <= 160 ? 289 + byte - 127
                              : byte == 173 ? 323 : byte);
}

/* The end of the run of characters of these categories, at most `most` of them. */
static size_t tni_bpe_run(const tn_tokenizer *t, const char *text, size_t at, size_t end, int categories, int64_t most)
{
    size_t n;
    while (at < end && most-- > 0 && (tni_category_at(&t->categories, text, at, end, &n) & categories)) at += n;
    return at;
}

/* The end of 's, 't, 're, 've, 'm, 'll or 'd, or 0. any_case: also of 'S; U+017F is another small letter of S. */
static size_t tni_bpe_contraction(const char *text, size_t at, size_t end, bool any_case)
{
    char c[2];
    if (text[at] != '\'') return 0;
    for (int k = 0; k < 2; k++) {
        c[k] = end - at > (size_t)k + 1 ? text[at + (size_t)k + 1] : (char)0;
        if (any_case && c[k] >= 'A' && c[k] <= 'Z') c[k] = (char)(c[k] + ('a' - 'A'));
    }
    if (c[0] == 's' || c[0] == 't' || c[0] == 'm' || c[0] == 'd') return at + 2;
    if ((c[1] == 'e' && (c[0] == 'r' || c[0] == 'v')) || (c[0] == 'l' && c[1] == 'l')) return at + 3;
    return any_case && c[0] == '\xC5' && c[1] == '\xBF' ? at + 3 : 0;
}

/* \s+(?!\S)|\s+ : white space but for its last character, unless that is all or ends the text. `before` spaces are counted,
   too. */
static size_t tni_bpe_space(const tn_tokenizer *t, const char *text, size_t at, size_t end, int before)
{
    size_t stop = tni_bpe_run(t, text, at, end, TNI_IS_SPACE, INT64_MAX), last = stop, n = 0;
    if (stop == end || stop == at) return stop;
    do last--; while (((unsigned char)text[last] & 0xC0) == 0x80);
    n = last > at;
    return n + (size_t)before > 0 ? last : stop;
}

/* The end of the word at `at`. space: a space is before it that the text does not have. */
static size_t tni_bpe_word_gpt2(const tn_tokenizer *t, const char *text, size_t at, size_t end, bool space)
{
    size_t n, stop = space || at == end ? 0 : tni_bpe_contraction(text, at, end, false);
    int    category;
    if (stop != 0) return stop;
    size_t from = at < end && !space && text[at] == ' ' ? at + 1 : at;
    if (from < end && (category = tni_category_at(&t->categories, text, from, end, &n)) != TNI_IS_SPACE)
        return tni_bpe_run(t, text, from, end, category, INT64_MAX);
    return tni_bpe_space(t, text, at, end, space);
}

/* The same by the rule of Llama 3 and Qwen2. */
static size_t tni_bpe_word_llama(const tn_tokenizer *t, const char *text, size_t at, size_t end)
{
    size_t n, m, stop = tni_bpe_contraction(text, at, end, true), last;
    if (stop != 0) return stop;
    int category = tni_category_at(&t->categories, text, at, end, &n);
    if (category == TNI_IS_LETTER) return tni_bpe_run(t, text, at, end, TNI_IS_LETTER, INT64_MAX);
    if (category == TNI_IS_NUMBER) return tni_bpe_run(t, text, at, end, TNI_IS_NUMBER, tni_bpe_rules[t->bpe.rule].digits);
    if (text[at] != '\r' && text[at] != '\n' && at + n < end
        && tni_category_at(&t->categories, text, at + n, end, &m) == TNI_IS_LETTER)
        return tni_bpe_run(t, text, at + n, end, TNI_IS_LETTER, INT64_MAX);
    size_t from = at + (text[at] == ' ');
    stop = tni_bpe_run(t, text, from, end, TNI_IS_OTHER, INT64_MAX);
    if (stop > from) {
        while (stop < end && (text[stop] == '\r' || text[stop] == '\n')) stop++;
        return stop;
    }
    last = stop = tni_bpe_run(t, text, at, end, TNI_IS_SPACE, INT64_MAX);
    while (last > at && text[last - 1] != '\r' && text[last - 1] != '\n') last--;
    return last > at ? last : tni_bpe_space(t, text, at, end, 0);
}

/* The token of a word or of a token's bytes, as the vocabulary has it, or -1. */
TNI_FN int64_t tni_bpe_find(const tn_tokenizer *t, const char *bytes, size_t n, bool space)
{
    uint32_t node = t->bpe.marks ? tni_trie_find(&t->pieces, bytes, n) : (uint32_t)TNI_ROOT;
    char     utf8[4];
    for (size_t i = 0; !t->bpe.marks && i < n + space && node != 0; i++) {
        size_t m = tni_bpe_letter(space && i == 0 ? ' ' : (unsigned char)bytes[i - space], utf8);
        for (size_t k = 0; k < m && node != 0; k++) node = tni_trie_step(&t->pieces, node, utf8[k]);
    }
    return (int64_t)*tni_trie_value(&t->pieces, node) - 1;
}

#define TNI_BPE_NO UINT32_MAX           /* no rank, no token */

static uint32_t tni_bpe_rank(const tn_tokenizer *t, int32_t left, int32_t right)
{
    return tni_map_get(&t->bpe.ranks, (uint64_t)(uint32_t)left << 32 | (uint32_t)right) - 1;
}

static int32_t tni_bpe_merged(const tn_tokenizer *t, uint32_t rank)
{
    return ((const tni_bpe_merge *)tni_list_at(&t->bpe.merges, rank))->id;
}

/* Merges the n tokens of a short word, by looking for the lowest rank each time. Returns their new number. */
TNI_FN size_t tni_bpe_merge_short(const tn_tokenizer *t, tni_bpe_token *w, size_t n)
{
    for (size_t i = 0; i < n; i++) w[i].rank = i + 1 < n ? tni_bpe_rank(t, w[i].id, w[i + 1].id) : TNI_BPE_NO;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++) if (w[i].rank < w[best].rank) best = i;
        if (w[best].rank == TNI_BPE_NO) return n;
        w[best].id = tni_bpe_merged(t, w[best].rank);
        n--;
        memmove(w + best + 1, w + best + 2, (n - best - 1) * sizeof *w);
        w[best].rank = best + 1 < n ? tni_bpe_rank(t, w[best].id, w[best + 1].id) : TNI_BPE_NO;
        if (best > 0) w[best - 1].rank = tni_bpe_rank(t, w[best - 1].id, w[best].id);
    }
}

static bool tni_bpe_before(const void *none, const void *a, const void *b)
{
    (void)none;
    return *(const uint64_t *)a < *(const uint64_t *)b;
}

/* Into a queue of ranks << 32 | places, the lowest first, which has the memory for them. */
static void tni_bpe_push(tni_list *queue, uint32_t rank, size_t place)
{
    if (rank == TNI_BPE_NO) return;
    ((uint64_t *)queue->items)[queue->count++] = (uint64_t)rank << 32 | place;
    tni_queue_up(queue, tni_bpe_before, NULL);
}

/* The same for a word of any length: n log n steps, in a list of tokens. What a merge changes is entered again; an entry
   whose rank is no longer that of its place is passed over. The list begins at w[0]. */
static void tni_bpe_merge_long(const tn_tokenizer *t, tni_bpe_token *w, size_t n, tni_list *h)
{
    for (size_t i = 0; i < n; i++) {
        w[i].before = i > 0 ? (uint32_t)i - 1 : TNI_BPE_NO;
        w[i].next = i + 1 < n ? (uint32_t)i + 1 : TNI_BPE_NO;
        w[i].rank = i + 1 < n ? tni_bpe_rank(t, w[i].id, w[i + 1].id) : TNI_BPE_NO;
        tni_bpe_push(h, w[i].rank, i);
    }
    while (h->count > 0) {
        uint64_t top;
        tni_queue_pop(h, &top, tni_bpe_before, NULL);
        tni_bpe_token *a = &w[(uint32_t)top];
        if (a->rank != (uint32_t)(top >> 32)) continue;
        w[a->next].rank = TNI_BPE_NO;                        /* it is part of a now */
        a->id = tni_bpe_merged(t, a->rank);
        a->next = w[a->next].next;
        a->rank = a->next != TNI_BPE_NO ? tni_bpe_rank(t, a->id, w[a->next].id) : TNI_BPE_NO;
        if (a->next != TNI_BPE_NO) w[a->next].before = (uint32_t)(a - w);
        tni_bpe_push(h, a->rank, (uint32_t)(a - w));
        if (a->before == TNI_BPE_NO) continue;
        w[a->before].rank = tni_bpe_rank(t, w[a->before].id, a->id);
        tni_bpe_push(h, w[a->before].rank, a->before);
    }
}

/* The tokens of a word before merging; returns their number. */
TNI_FN size_t tni_bpe_bytes(const tn_tokenizer *t, const char *bytes, size_t n, bool space, tni_bpe_token *w)
{
    if (t->bpe.marks) return tni_marks_letters(t, bytes, n, w);
    for (size_t i = 0; i < n + space; i++) {
        w[i].id = t->bpe.byte[space && i == 0 ? (unsigned char)' ' : (unsigned char)bytes[i - space]];
        w[i].begin = (uint32_t)(i > 0 ? i - space : 0);
    }
    return n + space;
}

static void tni_bpe_put(tni_encoding *e, const tni_bpe_token *w, size_t i, size_t next, size_t begin, size_t end)
{
    tni_encode_put(e, w[i].id, begin + w[i].begin, next != TNI_BPE_NO ? begin + w[next].begin : end);
}

/* A word of more than TNI_BPE_SHORT bytes. */
static bool tni_bpe_encode_long(const tn_tokenizer *t, const char *text, size_t begin, size_t end, bool space,
                                tni_encoding *e)
{
    const size_t n = end - begin + space, each = sizeof(tni_bpe_token) + 3 * sizeof(uint64_t);
    tn_ctx      *ctx = t->owned.ctx;
    tni_list     h = {NULL, 0, 0, sizeof(uint64_t)};
    size_t       bytes;
    if (n >= TNI_BPE_NO || !tni_mul_size(n, each, &bytes))
        return tni_fail(ctx, TN_ERR_DATA, "encode: a word has %zu bytes, expected less than 2^32 - 1", n), false;
    h.items = ctx->desc.allocator.alloc(bytes, ctx->desc.allocator.user);       /* ctx may be shared: no counts */
    if (!h.items) return tni_fail(ctx, TN_ERR_MEMORY, "encode: no memory for %zu bytes", bytes), false;
    tni_bpe_token *w = (tni_bpe_token *)(void *)((uint64_t *)h.items + 3 * n);  /* n - 1 pairs, at most 2 more for each merge */
    tni_bpe_merge_long(t, w, tni_bpe_bytes(t, text + begin, end - begin, space, w), &h);
    for (size_t i = 0; i != TNI_BPE_NO; i = w[i].next) tni_bpe_put(e, w, i, w[i].next, begin, end);
    ctx->desc.allocator.release(h.items, bytes, ctx->desc.allocator.user);
    return true;
}

static bool tni_bpe_encode_word(const tn_tokenizer *t, const char *text, size_t begin, size_t end, bool space,
                                tni_encoding *e)
{
    tni_bpe_token w[TNI_BPE_SHORT];
    const size_t  n = end - begin + space;
    const int64_t id = tni_bpe_find(t, text + begin, end - begin, space);
    if (id >= 0 && (t->bpe.whole_first || *(const bool *)tni_list_at(&t->bpe.alone, (size_t)id))) {
        tni_encode_put(e, id, begin, end);
        return true;
    }
    if (n > TNI_BPE_SHORT) return tni_bpe_encode_long(t, text, begin, end, space, e);
    size_t count = tni_bpe_merge_short(t, w, tni_bpe_bytes(t, text + begin, end - begin, space, w));
    for (size_t i = 0; i < count; i++) tni_bpe_put(e, w, i, i + 1 < count ? i + 1 : TNI_BPE_NO, begin, end);
    return true;
}

/* Text without added tokens. */
static bool tni_bpe_encode_plain(const tn_tokenizer *t, const char *text, size_t at, size_t end, tni_encoding *e)
{
    const bool gpt2 = t->bpe.rule == TNI_BPE_GPT2;
    bool       space = t->bpe.prefix_space && text[at] != ' ';
    size_t     part = t->bpe.digits ? at : end;
    while (at < end) {
        if (at == part) {                                    /* numbers are words, and so is what is between them */
            part = tni_bpe_run(t, text, at, end, TNI_IS_NUMBER, t->bpe.digits == 1 ? 1 : INT64_MAX);
            if (part == at) part = tni_bpe_run(t, text, at, end, TNI_IS_OTHER | TNI_IS_LETTER | TNI_IS_SPACE, INT64_MAX);
        }
        size_t stop = part;
        if (t->bpe.apart) stop = tni_marks_word(text, at, part);
        else if (t->bpe.rule != TNI_BPE_NONE)
            stop = gpt2 ? tni_bpe_word_gpt2(t, text, at, part, space) : tni_bpe_word_llama(t, text, at, part);
        if (!tni_bpe_encode_word(t, text, at, stop, space, e)) return false;
        space = false;
        at = stop;
    }
    return true;
}

TNI_FN bool tni_bpe_encode(const tn_tokenizer *t, const char *text, size_t at, size_t end, uint32_t late, tni_encoding *e);

/* Text between the added tokens that are looked for first. */
static bool tni_bpe_encode_rest(const tn_tokenizer *t, const char *text, size_t at, size_t end, tni_encoding *e)
{
    return t->bpe.late ? tni_bpe_encode(t, text, at, end, TNI_ADDED_LATE, e) : tni_bpe_encode_plain(t, text, at, end, e);
}

/* The same, which becomes NFC, or gets marks, first if the tokenizer has that. */
static bool tni_bpe_encode_normal(const tn_tokenizer *t, const char *text, size_t at, size_t end, tni_encoding *e)
{
    const int64_t first = e->n;
    tni_nfc       f;
    bool          needed = false;
    if (t->bpe.is_nfc && !tni_nfc_look(t, text, at, end, &needed)) return false;
    if (!needed && !t->bpe.marks) return tni_bpe_encode_rest(t, text, at, end, e);
    if (!(t->bpe.marks ? tni_marks_begin : tni_nfc_begin)(t, text, at, end, &f)) return false;
    const bool whole = tni_bpe_encode_rest(t, f.text, 0, f.bytes, e);
    for (int64_t k = first; e->spans && k < e->n && k < e->max; k++) {
        e->spans[k].begin = f.from[e->spans[k].begin];
        e->spans[k].end = f.from[e->spans[k].end];
    }
    tni_nfc_end(t, &f);
    return whole;
}

/* First the added tokens of the text as it is, then, in what is left, those of the normalised text. */
TNI_FN bool tni_bpe_encode(const tn_tokenizer *t, const char *text, size_t at, size_t end, uint32_t late, tni_encoding *e)
{
    while (at < end) {
        int64_t id = -1;
        size_t  bytes = 0, stop = tni_special_next(t, text, at, end, late, &id, &bytes);
        bool    whole = stop == at || (late == 0 ? tni_bpe_encode_normal : tni_bpe_encode_plain)(t, text, at, stop, e);
        if (!whole) return false;
        if (stop < end) tni_encode_put(e, id, stop, stop + bytes);
        at = stop + bytes;
    }
    return true;
}

/* Appends the bytes that the letters of a name stand for to *out, which may be NULL. false: a letter stands for none. */
TNI_FN bool tni_bpe_name_bytes(const char *name, tni_text *out)
{
    size_t n, left = strlen(name);
    for (; left > 0; name += n, left -= n) {
        const int byte = tni_bpe_byte(tni_utf8_get(name, left, &n));
        const char c = (char)byte;
        if (byte < 0) return false;
        if (out) tni_text_add(out, &c, 1);
    }
    return true;
}

/* The bytes of a token; a name that is not made of such letters, as an added token may be, is its own text. */
TNI_FN void tni_bpe_print(tni_text *out, const char *name)
{
    if (tni_bpe_name_bytes(name, NULL)) tni_bpe_name_bytes(name, out);
    else tni_text_add(out, name, strlen(name));
}

#endif /* TN_NO_TEXT */
