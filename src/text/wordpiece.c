#include "core/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- WordPiece ---------------------------------------------------------- >>text-wordpiece */

/* The longest piece that begins at *p, found below `node`; *p moves to its end. -1: there is none. */
static int64_t tni_piece(const tn_tokenizer *t, const char *text, size_t end, uint32_t node, tni_place *p)
{
    tni_place q = *p;
    int64_t   best = -1;
    while (q.at < end && node != 0) {
        char     utf8[4];
        size_t   n = tni_letter_take(&t->letters, text, end, &q, utf8);
        uint32_t value;
        for (size_t i = 0; i < n && node != 0; i++) node = tni_trie_step(&t->pieces, node, utf8[i]);
        if ((value = *tni_trie_value(&t->pieces, node)) == 0) continue;
        best = (int64_t)value - 1;
        *p = q;
    }
    return best;
}

static void tni_encode_word(const tn_tokenizer *t, const char *text, const tni_word *w, tni_encoding *e)
{
    int64_t   first = e->n, id = w->letters <= t->longest ? 0 : -1;
    tni_place p;
    p.at = w->begin;
    p.part = 0;
    while (p.at < w->end && id >= 0) {
        size_t begin = p.at;
        id = tni_piece(t, text, w->end, e->n == first ? (uint32_t)TNI_ROOT : t->inner, &p);
        if (id >= 0) tni_encode_put(e, id, begin, p.part > 0 ? p.at + 3 : p.at);      /* a syllable of Hangul has 3 bytes */
    }
    if (id >= 0) return;
    e->n = first;
    tni_encode_put(e, t->unk, w->begin, w->end);
}

static void tni_encode_text(const tn_tokenizer *t, const char *text, size_t end, tni_encoding *e)
{
    size_t at = 0;
    while (at < end) {
        int64_t  id = -1;
        size_t   bytes = 0, stop = tni_special_next(t, text, at, end, 0, &id, &bytes);
        tni_word w;
        for (w.end = at; tni_word_next(&t->letters, text, stop, &w);) tni_encode_word(t, text, &w, e);
        if (stop < end) tni_encode_put(e, id, stop, stop + bytes);
        at = stop + bytes;
    }
}

int64_t tn_tokenizer_encode(const tn_tokenizer *t, const char *text, size_t bytes, tn_bos bos, int32_t *ids, int64_t max,
                            tn_span *spans)
{
    tni_encoding e;
    if (!t) return -1;
    if (!tni_within(t->owned.ctx, "encode", "max", max, 0, INT64_MAX)) return -1;
    if (!ids && max > 0)
        return tni_fail(t->owned.ctx, TN_ERR_ARG, "encode: ids is NULL, expected memory for %lld ids", (long long)max), -1;
    if (!text && bytes > 0) return tni_fail(t->owned.ctx, TN_ERR_ARG, "encode: text is NULL, expected %zu bytes", bytes), -1;
    if (bos == TN_BOS_FIRST && t->bos < 0)
        return tni_fail(t->owned.ctx, TN_ERR_ARG, "encode: bos is TN_BOS_FIRST, but the tokenizer has no [BOS]"), -1;
    e.ids = ids; e.spans = spans; e.max = max; e.n = 0;
    if (bos == TN_BOS_FIRST) tni_encode_put(&e, t->bos, 0, 0);
    if (t->bpe.is) { if (!tni_bpe_encode(t, text, 0, bytes, 0, &e)) return -1; }
    else if (!t->bytes) tni_encode_text(t, text, bytes, &e);
    else for (size_t i = 0; i < bytes; i++) {
        const int byte = (unsigned char)text[i];
        tni_encode_put(&e, byte < t->bytes ? byte : t->unk, i, i + 1);
    }
    return e.n;
}

/* ---- ids to text -------------------------------------------------------- >>text-decode */

/* The kind of a token for spacing: 'a' a word, '0' a digit, else the sign that it is, or one that is treated alike. */
static char tni_token_shape(const char *s)
{
    static const char *const like[] = {"(\xE2\x80\x9C", "(\xE2\x80\x98", "(\xC2\xAB", ")\xE2\x80\x9D", "'\xE2\x80\x99",
                                       ")\xC2\xBB", ")\xE2\x80\xA6", "-\xE2\x80\x90"};   /* quotation marks ... */
    if (s[0] == 0 || s[1] != 0) {
        for (size_t i = 0; i < sizeof like / sizeof *like; i++) if (strcmp(like[i] + 1, s) == 0) return like[i][0];
        return 'a';
    }
    return s[0] >= '0' && s[0] <= '9' ? '0' : s[0] >= 'a' && s[0] <= 'z' ? 'a' : s[0];
}

typedef enum tni_join { TNI_APART = 0, TNI_JOINED, TNI_JOIN_ENDING, TNI_JOIN_DIGIT } tni_join;
typedef struct tni_speech { tni_text out; bool fresh, quoted[2]; tni_join join; char before; } tni_speech;

static bool tni_is_ending(const char *s)                      /* of "don't", "we're" */
{
    static const char *const ending[] = {"s", "t", "m", "d", "ll", "re", "ve", "l", "r", "v"};    /* or begun */
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) if (strcmp(s, ending[i]) == 0) return true;
    return false;
}

/* Whether a sign of this shape follows without a space. *next is its effect on the next token. */
static bool tni_sign_joins(tni_speech *v, char shape, tni_join *next)
{
    bool word = v->before == 'a' || v->before == '0';
    *next = TNI_APART;
    if (shape == '"' || (shape == '\'' && !word)) {
        bool *quoted = &v->quoted[shape == '"'];
        *quoted = !*quoted;
        *next = *quoted ? TNI_JOINED : TNI_APART;
        return !*quoted;
    }
    if (shape == '\'') { *next = TNI_JOIN_ENDING; return true; }
    if (strchr("([{$#", shape)) { *next = TNI_JOINED; return false; }
    if (strchr("-_/", shape)) { *next = word || v->before == shape ? TNI_JOINED : TNI_APART; return *next == TNI_JOINED; }
    if (v->before == '0' && strchr(".,:", shape)) *next = TNI_JOIN_DIGIT;
    return strchr(")]}.,!?;:%", shape) != NULL;
}

static void tni_speak(tni_speech *v, const char *token)
{
    bool     inner = strncmp(token, "##", 2) == 0 && token[2] != 0, close;
    char     shape = inner ? 'a' : tni_token_shape(token);
    tni_join next = TNI_APART;
    if (inner) { token += 2; close = true; }
    else if (shape == 'a') close = v->join == TNI_JOIN_ENDING && tni_is_ending(token);
    else if (shape == '0') close = v->before == '0' || v->join == TNI_JOIN_DIGIT;
    else close = tni_sign_joins(v, shape, &next);
    if (v->join == TNI_JOIN_ENDING && !(close && shape == 'a')) v->quoted[0] = false;     /* it was a closing mark */
    if (v->fresh) { if (v->out.length > 0) tni_text_add(&v->out, "\n", 1); }
    else if (!close && v->join != TNI_JOINED) tni_text_add(&v->out, " ", 1);
    tni_text_add(&v->out, token, strlen(token));
    v->fresh = false;
    v->join = next;
    v->before = shape;
}

static void tni_speech_begin(tni_speech *v)
{
    v->fresh = true;
    v->quoted[0] = v->quoted[1] = false;
    v->join = TNI_APART;
    v->before = '\n';
}

TNI_COLD int64_t tn_tokenizer_decode(const tn_tokenizer *t, const int32_t *ids, int64_t n, char *dst, size_t bytes)
{
    tni_speech v;
    if (!t) return -1;
    bool strip = t->bpe.strip;
    if (!tni_within(t->owned.ctx, "decode", "n", n, 0, INT64_MAX)) return -1;
    if (!dst && bytes > 0)
        return tni_fail(t->owned.ctx, TN_ERR_ARG, "decode: dst is NULL, expected %zu bytes", bytes), -1;
    if (!ids && n > 0) return tni_fail(t->owned.ctx, TN_ERR_ARG, "decode: ids is NULL, expected %lld", (long long)n), -1;
    v.out.dst = dst; v.out.bytes = bytes; v.out.length = 0;
    tni_text_add(&v.out, "", 0);
    tni_speech_begin(&v);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= tn_tokenizer_count(t))
            return tni_fail(t->owned.ctx, TN_ERR_DATA, "decode: id %lld is %d, expected 0 to %lld", (long long)i, ids[i],
                            (long long)tn_tokenizer_count(t) - 1), -1;
        if (ids[i] == t->bos || ids[i] == t->eos) tni_speech_begin(&v);
        else if (t->bytes && ids[i] == t->unk) tni_text_add(&v.out, "?", 1);
        else if (t->bytes) { char byte = (char)ids[i]; tni_text_add(&v.out, &byte, 1); }
        else if (t->bpe.marks) tni_marks_print(&v.out, tn_tokenizer_token(t, ids[i]), &strip);
        else if (t->bpe.is) tni_bpe_print(&v.out, tn_tokenizer_token(t, ids[i]));
        else tni_speak(&v, tn_tokenizer_token(t, ids[i]));
    }
    return (int64_t)v.out.length;
}

#endif /* TN_NO_TEXT */
