#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- BPE with space marks ----------------------------------------------- >>text-marks
   As SentencePiece makes it for Llama 2, Mistral and Gemma: each space becomes the mark U+2581, one more is put before the text
   where the file says so, and the text is one word of characters, here divided before marks if no merge could join the two sides.
   A character that is not a piece becomes the pieces of its bytes, <0x00> ... <0xFF>; where the vocabulary has none, the unknown
   token. Kudo & Richardson 2018. */
static const char tni_space_mark[] = "\xE2\x96\x81";

/* A name with marks in place of its spaces, one before it if `first`. to: [3 bytes for each of name, and 4]. */
TNI_FN void tni_marks_name(const char *name, bool first, char *to)
{
    if (first) { memcpy(to, tni_space_mark, 3); to += 3; }
    for (; *name; name++) {
        if (*name != ' ') { *to++ = *name; continue; }
        memcpy(to, tni_space_mark, 3);
        to += 3;
    }
    *to = 0;
}

/* The text with marks, and where each of its bytes comes from, for tni_nfc_end. The context may be shared: no counts. */
TNI_FN bool tni_marks_begin(const tn_tokenizer *t, const char *text, size_t at, size_t end, tni_nfc *f)
{
    const int  how = t->bpe.marks;
    const bool has = text[at] == ' ' || (end - at >= 3 && memcmp(text + at, tni_space_mark, 3) == 0);
    const bool more = how == TNI_MARKS_PREPEND || (!has && (how == TNI_MARKS_ALWAYS || (how == TNI_MARKS_FIRST && at == 0)));
    tn_ctx    *ctx = t->owned.ctx;
    size_t     spaces = more;
    memset(f, 0, sizeof *f);
    for (size_t i = at; i < end; i++) spaces += text[i] == ' ';
    if (!tni_mul_size(end - at + 2 * spaces + 2, sizeof(size_t) + 1, &f->size)
        || !(f->all = ctx->desc.allocator.alloc(f->size, ctx->desc.allocator.user)))
        return tni_fail(ctx, TN_ERR_MEMORY, "encode: no memory for %zu bytes with marks", end - at), false;
    f->from = (size_t *)f->all;
    f->text = (char *)(f->from + (end - at) + 2 * spaces + 2);
    for (size_t i = at, k = more ? 0 : 1; i < end; k = 1) {
        const bool mark = k == 0 || text[i] == ' ';
        for (int b = 0; b < (mark ? 3 : 1); b++) {
            f->from[f->bytes] = i;
            f->text[f->bytes++] = mark ? tni_space_mark[b] : text[i];
        }
        i += k;
    }
    f->from[f->bytes] = end;
    return true;
}

/* The end of the word at `at`: marks, then what is before the next one. */
TNI_FN size_t tni_marks_word(const char *text, size_t at, size_t end)
{
    for (bool letter = false; at < end;) {
        const bool mark = end - at >= 3 && memcmp(text + at, tni_space_mark, 3) == 0;
        if (mark && letter) break;
        letter = !mark;
        at += mark ? 3 : 1;
    }
    return at;
}

/* The tokens of the characters of a text with marks, at most one for each byte. Returns their number. */
TNI_FN size_t tni_marks_letters(const tn_tokenizer *t, const char *text, size_t bytes, tni_bpe_token *w)
{
    size_t n, count = 0;
    bool   unknown = false;
    for (size_t i = 0; i < bytes; i += n) {
        tni_utf8_get(text + i, bytes - i, &n);
        const uint32_t value = *tni_trie_value(&t->pieces, tni_trie_find(&t->pieces, text + i, n));
        const bool     whole = value != 0 || t->unk >= 0, joins = whole && value == 0 && unknown && t->bpe.fuse_unk;
        for (size_t k = 0; k < (joins ? 0 : whole ? 1 : n); k++, count++) {
            w[count].id = value ? (int32_t)value - 1 : whole ? (int32_t)t->unk : t->bpe.byte[(unsigned char)text[i + k]];
            w[count].begin = (uint32_t)(i + k);
        }
        unknown = whole && value == 0;
    }
    return count;
}

/* The text of a token: a byte, or its name with spaces. *strip: the first character of all is left out if it is a space. */
TNI_FN void tni_marks_print(tni_text *out, const char *name, bool *strip)
{
    static const char hex[] = "0123456789ABCDEF";
    const char       *high = NULL, *low = NULL;
    if (strlen(name) == 6 && memcmp(name, "<0x", 3) == 0 && name[5] == '>') {
        high = strchr(hex, name[3]);
        low = strchr(hex, name[4]);
    }
    for (size_t n; *name; name += n) {
        const bool mark = strncmp(name, tni_space_mark, 3) == 0, byte = high && low;
        const char c = (char)(byte ? (high - hex) << 4 | (low - hex) : mark ? ' ' : *name);
        n = byte ? 6 : mark ? 3 : 1;
        if (!*strip || c != ' ') tni_text_add(out, &c, 1);
        *strip = false;
    }
}

/* ---- the parts of such a file ------------------------------------------- >>text-marks-read */

/* JSON of all values below `root`, without spaces; the values `vocab` and `merges` as bytes 1 and 2. */
TNI_FN void tni_tokens_layout(const tni_json *j, const tni_value *root, const tni_value *vocab, const tni_value *merges,
                              tni_text *out)
{
    const tni_value *v = root;
    for (;;) {
        if (v != root && tni_json_at(j, v->up)->kind == TNI_JSON_OBJECT) {
            tni_text_json(out, tni_json_key(j, v));
            tni_text_add(out, ":", 1);
        }
        const char *number = j->scan.text + v->at;
        if (v == vocab || v == merges) tni_text_add(out, v == vocab ? "\1" : "\2", 1);
        else if (v->kind == TNI_JSON_STRING) tni_text_json(out, j->scan.text + v->string);
        else if (v->kind == TNI_JSON_NUMBER) tni_text_add(out, number, strspn(number, "-+.0123456789eE"));
        else if (v->kind < TNI_JSON_NUMBER)
            tni_text_string(out, v->kind == TNI_JSON_NULL ? "null" : v->kind == TNI_JSON_TRUE ? "true" : "false");
        else {
            tni_text_add(out, v->kind == TNI_JSON_ARRAY ? "[" : "{", 1);
            if (v->child != 0) { v = tni_json_child(j, v); continue; }
            tni_text_add(out, v->kind == TNI_JSON_ARRAY ? "]" : "}", 1);
        }
        while (v != root && v->next == 0) {
            const tni_value *up = tni_json_at(j, v->up);
            tni_text_add(out, up->kind == TNI_JSON_ARRAY ? "]" : "}", 1);
            v = up;
        }
        if (v == root) return;
        tni_text_add(out, ",", 1);
        v = tni_json_next(j, v);
    }
}

#define TNI_MARKS_REPLACE(from, to) "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define TNI_MARKS_META(scheme) "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"" scheme \
                               "\",\"split\":false}"
#define TNI_MARKS_DECODER(last) "{\"type\":\"Sequence\",\"decoders\":[" TNI_MARKS_REPLACE("\xE2\x96\x81", " ") \
                                ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" last "]}"

/* The forms of each part that are known, without spaces, and what they say of marks. */
static const struct { const char *part, *json; int says; } tni_marks_parts[] = {
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},"
     TNI_MARKS_REPLACE(" ", "\xE2\x96\x81") "]}", TNI_MARKS_PREPEND},
    {"normalizer", TNI_MARKS_REPLACE(" ", "\xE2\x96\x81"), TNI_MARKS_NEVER},
    {"normalizer", "null", 0},
    {"pre_tokenizer", "null", 0},
    {"pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}",
     TNI_MARKS_SPLIT},
    {"pre_tokenizer", TNI_MARKS_META("first"), TNI_MARKS_FIRST},
    {"pre_tokenizer", TNI_MARKS_META("always"), TNI_MARKS_ALWAYS},
    {"pre_tokenizer", TNI_MARKS_META("never"), TNI_MARKS_NEVER},
    {"decoder", TNI_MARKS_DECODER(""), 0},
    {"decoder", TNI_MARKS_DECODER(",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"), 1}
};

/* Reads the normalizer, the pre-tokenizer and the decoder; Split finds no spaces after the normalizer. */
TNI_FN bool tni_marks_read(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    static const char *const part[3] = {"normalizer", "pre_tokenizer", "decoder"};
    int says[3];
    for (int k = 0; k < 3; k++) {
        const tni_value *v = tni_json_get(j, root, part[k]);
        char             is[512] = "null";
        tni_text         out = {is, sizeof is, 0};
        if (v) tni_tokens_layout(j, v, NULL, NULL, &out);
        says[k] = -1;
        for (size_t i = 0; i < sizeof tni_marks_parts / sizeof *tni_marks_parts; i++)
            if (strcmp(tni_marks_parts[i].part, part[k]) == 0 && strcmp(tni_marks_parts[i].json, is) == 0)
                says[k] = tni_marks_parts[i].says;
        if (says[k] < 0)
            return tni_reader_fail(&j->file, TN_ERR_FORMAT, v ? v->at : 0, "%s is %s, expected that of Llama 2, Mistral or Gemma "
                                   "with byte_fallback", part[k], is), false;
    }
    if (says[1] == TNI_MARKS_SPLIT && says[0] != 0) says[1] = 0;
    if (says[1] == TNI_MARKS_SPLIT || (says[0] == 0) == (says[1] == 0))
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, root->at, "normalizer and pre_tokenizer replace spaces %s, expected once",
                               says[1] && says[0] ? "twice" : "nowhere"), false;
    t->bpe.marks = says[0] | says[1];
    t->bpe.meta = says[0] == 0;
    t->bpe.strip = says[2] != 0;
    return true;
}

#endif /* TN_NO_TEXT */
