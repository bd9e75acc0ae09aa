#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- reading tokenizer.json --------------------------------------------- >>text-json-read
   https://github.com/huggingface/tokenizers, as its version 0.22 writes it. */

/* The string under a key; NULL: there is none. */
static const char *tni_json_string(tni_json *j, const tni_value *object, const char *key)
{
    const tni_value *v = tni_json_get(j, object, key);
    return tni_json_is(v, TNI_JSON_STRING) ? j->scan.text + v->string : NULL;
}

TNI_PRINTF(3, 4) static bool tni_tokens_fail(const tni_json *j, const tni_value *v, const char *fmt, ...)
{
    char     reason[256];
    tni_text t = {reason, sizeof reason, 0};
    va_list  args;
    va_start(args, fmt);
    tni_text_v(&t, fmt, args);
    va_end(args);
    tni_reader_fail(&j->file, TN_ERR_FORMAT, v ? v->at : 0, "%s", reason);
    return false;
}

/* Names the kind of a value for messages; a NULL value is missing. */
static const char *tni_json_kind_name(const tni_value *v)
{
    static const char *const kinds[] = {"null", "false", "true", "a number", "a string", "an array", "an object"};
    return v ? kinds[v->kind] : "missing";
}

/* Checks the "type" of an object. */
static bool tni_tokens_type(tni_json *j, const tni_value *v, const char *what, const char *type)
{
    const char *is = tni_json_string(j, v, "type");
    if (!is) return tni_tokens_fail(j, v, "%s has no type, expected %s", what, type);
    if (strcmp(is, type) == 0) return true;
    return tni_tokens_fail(j, v, "%s: type is %s, expected %s", what, tni_quote(is).s, type);
}

/* The three steps of a sequence, of these types. */
static bool tni_tokens_sequence(tni_json *j, const tni_value *root, const char *what, const char *list,
                                const char *const type[3], const tni_value *step[3])
{
    const tni_value *v = tni_json_get(j, root, what);
    if (!tni_tokens_type(j, v, what, "Sequence")) return false;
    const tni_value *s = tni_json_child(j, tni_json_get(j, v, list));
    for (int k = 0; k < 3; k++) {
        if (!s) return tni_tokens_fail(j, v, "%s has %d steps, expected %s as the next one", what, k, type[k]);
        if (!tni_tokens_type(j, s, what, type[k])) return false;
        step[k] = s;
        s = tni_json_next(j, s);
    }
    return !s || tni_tokens_fail(j, s, "%s has more than three steps, expected three", what);
}

static bool tni_tokens_unused(tni_json *j, const tni_value *root)
{
    static const char *const unused[2] = {"truncation", "padding"};
    if (!tni_json_is(root, TNI_JSON_OBJECT)) return tni_tokens_fail(j, root, "unexpected value, expected an object");
    for (int k = 0; k < 2; k++) {
        const tni_value *v = tni_json_get(j, root, unused[k]);
        if (v && v->kind != TNI_JSON_NULL) return tni_tokens_fail(j, v, "%s is given, expected null", unused[k]);
    }
    return true;
}

/* Reads everything of WordPiece except the vocabulary, the added tokens and the template. */
static bool tni_tokens_kind(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    static const char *const normalizers[3] = {"NFD", "StripAccents", "Lowercase"};
    static const char *const splitters[3] = {"Punctuation", "Whitespace", "Digits"};
    const tni_value *step[3], *model = tni_json_get(j, root, "model");
    if (!tni_tokens_unused(j, root)) return false;
    const char *s = tni_json_string(j, model, "type");
    if (!s) return tni_tokens_fail(j, model, "model has no type, expected WordPiece or BPE");
    if (strcmp(s, "WordPiece")) return tni_tokens_fail(j, model, "model: type is %s, expected WordPiece or BPE", tni_quote(s).s);
    if (!tni_tokens_sequence(j, root, "normalizer", "normalizers", normalizers, step)
        || !tni_tokens_sequence(j, root, "pre_tokenizer", "pretokenizers", splitters, step)) return false;
    s = tni_json_string(j, step[0], "behavior");
    if (s && strcmp(s, "Isolated") != 0)
        return tni_tokens_fail(j, step[0], "Punctuation: behavior is %s, expected Isolated", tni_quote(s).s);
    if (!tni_json_is(tni_json_get(j, step[2], "individual_digits"), TNI_JSON_TRUE))
        return tni_tokens_fail(j, step[2], "Digits: individual_digits is not true, expected true");
    const tni_value *v = tni_json_get(j, root, "decoder");
    if (v && v->kind != TNI_JSON_NULL) {
        if (!tni_tokens_type(j, v, "decoder", "WordPiece")) return false;
        if ((s = tni_json_string(j, v, "prefix")) != NULL && strcmp(s, "##") != 0)
            return tni_tokens_fail(j, v, "decoder: prefix is %s, expected \"##\"", tni_quote(s).s);
        t->decoder = tni_json_is(tni_json_get(j, v, "cleanup"), TNI_JSON_TRUE) ? 2 : 1;
    }
    s = tni_json_string(j, model, "continuing_subword_prefix");
    if (!s || strcmp(s, "##") != 0)
        return tni_tokens_fail(j, model, "continuing_subword_prefix is %s, expected \"##\"", s ? tni_quote(s).s : "missing");
    v = tni_json_get(j, model, "max_input_chars_per_word");
    if (!tni_json_is(v, TNI_JSON_NUMBER) || v->number > INT32_MAX)
        return tni_tokens_fail(j, v, "max_input_chars_per_word is not an integer from 0 to 2^31 - 1");
    t->longest = (int64_t)v->number;
    return true;
}

static size_t tni_json_count(const tni_json *j, const tni_value *v)
{
    size_t n = 0;
    for (v = tni_json_child(j, v); v; v = tni_json_next(j, v)) n++;
    return n;
}

/* Checks that v is an id that no other token has. */
static bool tni_tokens_id(const tni_json *j, const tn_tokenizer *t, const tni_value *v, const char *name)
{
    if (!tni_json_is(v, TNI_JSON_NUMBER) || v->number == UINT64_MAX)
        return tni_tokens_fail(j, v, "token %s: its id is not a non-negative integer", tni_quote(name).s);
    if (v->number >= t->names.count)
        return tni_tokens_fail(j, v, "token %s: its id is %llu, expected less than %zu, the number of tokens",
                               tni_quote(name).s, (unsigned long long)v->number, t->names.count);
    if (*(const size_t *)tni_list_at(&t->names, (size_t)v->number) == 0) return true;
    return tni_tokens_fail(j, v, "tokens %s and %s have the same id, %llu",
                           tni_quote(tn_tokenizer_token(t, (int64_t)v->number)).s, tni_quote(name).s,
                           (unsigned long long)v->number);
}

/* At each letter the longest token that begins there is looked for, which takes as long as that is. */
static bool tni_tokens_short(const tni_json *j, const tni_value *v, const char *name)
{
    return strlen(name) <= TNI_TOKEN_MOST || tni_tokens_fail(j, v, "token %s has %zu bytes, expected at most %d",
                                                             tni_quote(name).s, strlen(name), (int)TNI_TOKEN_MOST);
}

static bool tni_tokens_piece(tni_json *j, const tni_value *v, tn_tokenizer *t)
{
    const char *name = tni_json_key(j, v);
    if (!tni_tokens_id(j, t, v, name) || (!t->bpe.is && !tni_tokens_short(j, v, name))) return false;
    if (tn_tokenizer_id(t, name) >= 0) return tni_tokens_fail(j, v, "duplicate token %s", tni_quote(name).s);
    return tni_token_set(t, (int64_t)v->number, name, strlen(name));
}

static bool tni_tokens_added(tni_json *j, const tni_value *v, tn_tokenizer *t)
{
    static const char *const flag[4] = {"single_word", "lstrip", "rstrip", "normalized"};
    const tni_value *id = tni_json_get(j, v, "id");
    const char      *name = tni_json_string(j, v, "content");
    if (!name || !*name) return tni_tokens_fail(j, v, "an added token has no content, expected a string");
    if (!tni_tokens_short(j, v, name)) return false;
    const bool  late = tni_json_is(tni_json_get(j, v, "normalized"), TNI_JSON_TRUE), marked = late && t->bpe.marks;
    char        changed[3 * TNI_TOKEN_MOST + 4];
    const char *found = marked ? changed : name;            /* what is looked for in a text */
    if (marked) tni_marks_name(name, t->bpe.marks == TNI_MARKS_PREPEND, changed);
    for (int k = 0; k < 4; k++)
        if (tni_json_is(tni_json_get(j, v, flag[k]), TNI_JSON_TRUE) && !(t->bpe.is && k == 3 && !(marked && t->bpe.meta)))
            return tni_tokens_fail(j, v, "added token %s: %s is true, expected false", tni_quote(name).s, flag[k]);
    if (*tni_trie_value(&t->specials, tni_trie_find(&t->specials, found, strlen(found))) != 0)
        return tni_tokens_fail(j, v, "duplicate added token %s", tni_quote(name).s);
    int64_t known = tn_tokenizer_id(t, name);
    if (known < 0) {
        if (marked)
            return tni_tokens_fail(j, v, "added token %s: normalized is true, expected false or a token of vocab",
                                   tni_quote(name).s);
        if (!tni_tokens_id(j, t, id, name) || !tni_token_name(t, (int64_t)id->number, name, strlen(name))) return false;
        known = (int64_t)id->number;
    } else if (!tni_json_is(id, TNI_JSON_NUMBER) || id->number != (uint64_t)known)
        return tni_tokens_fail(j, v, "added token %s: its id differs from the vocabulary's, %lld", tni_quote(name).s,
                               (long long)known);
    return tni_added_set(t, found, known, tni_json_is(tni_json_get(j, v, "special"), TNI_JSON_TRUE), late);
}

/* Reads the tokens of the vocabulary and the added ones, which have the ids 0 ... n-1. */
static bool tni_tokens_all(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    const tni_value *vocab = tni_json_get(j, tni_json_get(j, root, "model"), "vocab");
    const tni_value *added = tni_json_get(j, root, "added_tokens");
    size_t           n = tni_json_count(j, vocab) + tni_json_count(j, added);
    if (!tni_json_is(vocab, TNI_JSON_OBJECT)) return tni_tokens_fail(j, vocab, "vocab is not an object");
    if (added && added->kind != TNI_JSON_ARRAY) return tni_tokens_fail(j, added, "added_tokens is not an array");
    for (size_t i = 0; i < n; i++) if (!tni_names_grow(t)) return false;
    for (const tni_value *v = tni_json_child(j, vocab); v; v = tni_json_next(j, v)) if (!tni_tokens_piece(j, v, t)) return false;
    for (const tni_value *v = tni_json_child(j, added); v; v = tni_json_next(j, v)) {
        size_t before = t->strings.count;
        if (!tni_tokens_added(j, v, t)) return false;
        if (t->strings.count == before) n--;                /* it is in the vocabulary, too */
    }
    for (size_t i = 0; i < n; i++)
        if (*(const size_t *)tni_list_at(&t->names, i) == 0)
            return tni_tokens_fail(j, vocab, "no token has id %zu, expected ids 0 to %zu", i, n - 1);
    t->names.count = n;
    return true;
}

/* Reads "single" of the template v, if there is one: the text, or one special token and the text. */
static bool tni_tokens_template(tni_json *j, const tni_value *v, tn_tokenizer *t)
{
    if (!v || v->kind == TNI_JSON_NULL) return true;
    if (!tni_tokens_type(j, v, "post_processor", "TemplateProcessing")) return false;
    const tni_value *single = tni_json_get(j, v, "single");
    const tni_value *first = tni_json_child(j, single);
    const char      *name = tni_json_string(j, tni_json_get(j, first, "SpecialToken"), "id");
    if (name) {
        const tni_value *ids = tni_json_get(j, tni_json_get(j, tni_json_get(j, v, "special_tokens"), name), "ids");
        const tni_value *id = tni_json_child(j, ids);
        t->bos = tn_tokenizer_id(t, name);
        t->bos_first = true;
        if (t->bos < 0 || !tni_json_is(id, TNI_JSON_NUMBER) || id->next != 0 || id->number != (uint64_t)t->bos)
            return tni_tokens_fail(j, single, "post_processor: the ids of %s are not its id alone", tni_quote(name).s);
        first = tni_json_next(j, first);
    }
    if (first && tni_json_get(j, first, "Sequence") && first->next == 0) return true;
    return tni_tokens_fail(j, v, "post_processor: single is not one special token and the text after it");
}

/* ---- reading a file of byte-level BPE ----------------------------------- >>text-bpe-read */

/* Whether a step of the file is of this type. */
static bool tni_tokens_is(tni_json *j, const tni_value *v, const char *type)
{
    const char *is = tni_json_string(j, v, "type");
    return is && strcmp(is, type) == 0;
}

static bool tni_tokens_flag(tni_json *j, const tni_value *v, const char *key, bool otherwise)
{
    const tni_value *flag = tni_json_get(j, v, key);
    return otherwise ? !tni_json_is(flag, TNI_JSON_FALSE) : tni_json_is(flag, TNI_JSON_TRUE);
}

/* The regular expression of a Split. */
static bool tni_tokens_split(tni_json *j, const tni_value *v, tn_tokenizer *t)
{
    const char *regex = tni_json_string(j, tni_json_get(j, v, "pattern"), "Regex"), *how = tni_json_string(j, v, "behavior");
    for (int k = TNI_BPE_GPT2; k < TNI_BPE_RULES; k++) if (regex && strcmp(regex, tni_bpe_rules[k].regex) == 0) t->bpe.rule = k;
    if (t->bpe.rule == TNI_BPE_NONE)
        return tni_tokens_fail(j, v, "pre_tokenizer: the pattern of Split is %s, expected the Regex of GPT-2, Llama 3 or "
                               "Qwen2", regex ? tni_quote(regex).s : "not a Regex");
    if (!how || strcmp(how, "Isolated") != 0)
        return tni_tokens_fail(j, v, "Split: behavior is %s, expected Isolated", how ? tni_quote(how).s : "missing");
    if (!tni_tokens_flag(j, v, "invert", false)) return true;
    return tni_tokens_fail(j, v, "Split: invert is true, expected false");
}

/* ByteLevel, alone or after one Split or Digits. */
static bool tni_tokens_bpe_words(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    const tni_value *v = tni_json_get(j, root, "pre_tokenizer"), *last = v, *first = NULL;
    if (tni_tokens_is(j, v, "Sequence")) {
        last = tni_json_child(j, tni_json_get(j, v, "pretokenizers"));
        if (last && last->next != 0) { first = last; last = tni_json_next(j, first); }
        if (last && last->next != 0)
            return tni_tokens_fail(j, v, "pre_tokenizer has more than two steps, expected Split or Digits, and ByteLevel");
    }
    const char *type = tni_json_string(j, last, "type");
    if (!type || strcmp(type, "ByteLevel") != 0)
        return tni_tokens_fail(j, last, "pre_tokenizer: type is %s, expected ByteLevel",
                               type ? tni_quote(type).s : "missing");
    t->bpe.prefix_space = tni_tokens_flag(j, last, "add_prefix_space", true);
    if (first && t->bpe.prefix_space)
        return tni_tokens_fail(j, last, "ByteLevel: add_prefix_space is true, expected false after another step");
    if (tni_tokens_is(j, first, "Split") && !tni_tokens_split(j, first, t)) return false;
    if (tni_tokens_is(j, first, "Digits")) t->bpe.digits = tni_tokens_flag(j, first, "individual_digits", false) ? 1 : 2;
    if (first && t->bpe.rule == TNI_BPE_NONE && t->bpe.digits == 0) {
        type = tni_json_string(j, first, "type");
        return tni_tokens_fail(j, first, "pre_tokenizer: type is %s, expected Split or Digits before ByteLevel",
                               type ? tni_quote(type).s : "missing");
    }
    if (!tni_tokens_flag(j, last, "use_regex", true)) return true;
    if (t->bpe.rule != TNI_BPE_NONE)
        return tni_tokens_fail(j, last, "ByteLevel: use_regex is true, expected false after Split");
    t->bpe.rule = TNI_BPE_GPT2;
    return true;
}

/* Everything except the words, the vocabulary, the added tokens, the template and the merges. */
static bool tni_tokens_bpe_kind(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    static const char *const affix[2] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const tni_value *model = tni_json_get(j, root, "model"), *v = tni_json_get(j, root, "normalizer");
    const char      *s;
    double           dropout = 0;
    if (!tni_tokens_unused(j, root)) return false;
    if (tni_tokens_flag(j, model, "byte_fallback", false)) {
        if (!tni_marks_read(j, root, t)) return false;
        t->bpe.fuse_unk = tni_tokens_flag(j, model, "fuse_unk", false);
    } else if (v && v->kind != TNI_JSON_NULL) {
        s = tni_json_string(j, v, "type");
        if (!s || strcmp(s, "NFC"))
            return tni_tokens_fail(j, v, "normalizer: type is %s, expected NFC or null for BPE", s ? tni_quote(s).s : "missing");
        t->bpe.is_nfc = true;
        if (!tni_nfc_unpack(t)) return false;
    }
    if (!t->bpe.marks && (!tni_tokens_bpe_words(j, root, t)
                          || !tni_tokens_type(j, tni_json_get(j, root, "decoder"), "decoder", "ByteLevel"))) return false;
    for (int k = 0; k < 2; k++)
        if ((s = tni_json_string(j, model, affix[k])) != NULL && *s)
            return tni_tokens_fail(j, model, "%s is %s, expected null", affix[k], tni_quote(s).s);
    v = tni_json_get(j, model, "dropout");
    if (tni_json_is(v, TNI_JSON_NUMBER)) tni_parse_double(j->scan.text + v->at, j->scan.bytes - v->at, &dropout);
    if (dropout != 0) return tni_tokens_fail(j, v, "dropout is %g, expected null or 0", dropout);
    if (v && v->kind != TNI_JSON_NULL && v->kind != TNI_JSON_NUMBER)
        return tni_tokens_fail(j, v, "dropout is %s, expected null or 0", tni_json_kind_name(v));
    t->bpe.whole_first = tni_tokens_flag(j, model, "ignore_merges", false);
    t->bpe.apart = t->bpe.marks && !t->bpe.whole_first;
    return true;
}

/* Post-processors that say what is put before a text; ByteLevel only says what its spaces belong to. */
static bool tni_tokens_bpe_post(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    const tni_value *v = tni_json_get(j, root, "post_processor");
    if (!tni_tokens_is(j, v, "Sequence")) return tni_tokens_is(j, v, "ByteLevel") || tni_tokens_template(j, v, t);
    for (v = tni_json_child(j, tni_json_get(j, v, "processors")); v; v = tni_json_next(j, v))
        if (!tni_tokens_is(j, v, "ByteLevel") && !tni_tokens_template(j, v, t)) return false;
    return true;
}

/* The token that is named by n bytes; -1 and an error: there is none. */
static int64_t tni_tokens_merge_part(tni_json *j, const tni_value *v, const tn_tokenizer *t, const char *s, size_t n)
{
    char         name[100];
    const size_t some = n < sizeof name ? n : sizeof name - 1;
    int64_t      id = (int64_t)*tni_trie_value(&t->pieces, tni_trie_find(&t->pieces, s, n)) - 1;
    if (id >= 0) return id;
    memcpy(name, s, some);
    name[some] = 0;
    tni_tokens_fail(j, v, "merge %zu: there is no token %s", t->bpe.merges.count, tni_quote(name).s);
    return -1;
}

/* One merge: "a b" or ["a","b"]. The two names are neighbours in neither form, so the joined one is looked up by steps. */
static bool tni_tokens_merge(tni_json *j, const tni_value *v, tn_tokenizer *t)
{
    const tni_value *one = tni_json_child(j, v), *two = one ? tni_json_next(j, one) : NULL;
    const char      *text[2];
    size_t           n[2];
    int64_t          id[2];
    tni_bpe_merge   *m;
    if (v->kind == TNI_JSON_STRING) {
        text[0] = j->scan.text + v->string;
        const char *space = strchr(text[0], ' ');
        text[1] = space ? space + 1 : "";
        n[0] = space ? (size_t)(space - text[0]) : 0;
        t->bpe.merges_as_text = true;
    } else if (tni_json_is(one, TNI_JSON_STRING) && tni_json_is(two, TNI_JSON_STRING) && two->next == 0) {
        text[0] = j->scan.text + one->string;
        text[1] = j->scan.text + two->string;
        n[0] = strlen(text[0]);
    } else
        return tni_tokens_fail(j, v, "merge %zu is %s, expected \"A B\" or [\"A\",\"B\"]", t->bpe.merges.count,
                               v->kind == TNI_JSON_ARRAY ? "another array" : tni_json_kind_name(v));
    n[1] = strlen(text[1]);
    if (n[0] == 0 || n[1] == 0 || (v->kind == TNI_JSON_STRING && strchr(text[1], ' ')))
        return tni_tokens_fail(j, v, "merge %zu is %s, expected two names, as in \"A B\"", t->bpe.merges.count,
                               v->kind == TNI_JSON_STRING ? tni_quote(text[0]).s : "a list with an empty name");
    for (int k = 0; k < 2; k++) if ((id[k] = tni_tokens_merge_part(j, v, t, text[k], n[k])) < 0) return false;
    uint32_t node = tni_trie_find(&t->pieces, text[0], n[0]);
    for (size_t i = 0; i < n[1] && node != 0; i++) node = tni_trie_step(&t->pieces, node, text[1][i]);
    if (*tni_trie_value(&t->pieces, node) == 0)
        return tni_tokens_fail(j, v, "merge %zu: there is no token for %s and %s together", t->bpe.merges.count,
                               tni_quote(tn_tokenizer_token(t, id[0])).s, tni_quote(text[1]).s);
    uint64_t key = (uint64_t)id[0] << 32 | (uint64_t)id[1];
    if (tni_map_get(&t->bpe.ranks, key) != 0)
        return tni_tokens_fail(j, v, "merges %d and %zu are the same", (int)(tni_map_get(&t->bpe.ranks, key) - 1),
                               t->bpe.merges.count);
    if (!(m = (tni_bpe_merge *)tni_list_add(t->owned.ctx, &t->bpe.merges, "tokenizer"))) return false;
    m->left = (int32_t)id[0];
    m->right = (int32_t)id[1];
    m->id = (int32_t)*tni_trie_value(&t->pieces, node) - 1;
    const char *name = tn_tokenizer_token(t, m->id);
    t->bpe.apart = t->bpe.apart && tni_marks_word(name, 0, strlen(name)) == strlen(name);
    return tni_map_put(t->owned.ctx, &t->bpe.ranks, key, (uint32_t)t->bpe.merges.count);
}

/* The ids of the 256 bytes, which only marks may lack, then the merges. */
static bool tni_tokens_merges(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    const tni_value *model = tni_json_get(j, root, "model"), *v = tni_json_get(j, model, "merges");
    char             name[8];
    const bool       marks = t->bpe.marks != 0;
    int              missing = 0;
    for (unsigned k = 0; k < 256; k++) {
        const size_t   n = marks ? tni_byte_name((int)k, name) : tni_bpe_letter(k, name);
        const uint32_t value = *tni_trie_value(&t->pieces, tni_trie_find(&t->pieces, name, n));
        if (value == 0 && !marks)
            return tni_tokens_fail(j, model, "vocab has no token for the byte %d, expected all 256", (int)k);
        t->bpe.byte[k] = (int32_t)value - 1;
        missing += value == 0;
    }
    if (missing % 256)
        return tni_tokens_fail(j, model, "vocab has no token for %d of the 256 bytes, expected all or none of <0x00> ... <0xFF>",
                               missing);
    if (missing && (t->unk = tn_tokenizer_id(t, tni_json_string(j, model, "unk_token"))) < 0)
        return tni_tokens_fail(j, model, "vocab has no tokens <0x00> ... <0xFF> and no unk_token, expected one of the two");
    if (marks && tni_bpe_find(t, "\xE2\x96\x81", 3, false) < 0)
        return tni_tokens_fail(j, model, "vocab has no token U+2581, which spaces become");
    if (!tni_json_is(v, TNI_JSON_ARRAY))
        return tni_tokens_fail(j, v ? v : model, "merges is %s, expected an array", tni_json_kind_name(v));
    for (v = tni_json_child(j, v); v; v = tni_json_next(j, v)) if (!tni_tokens_merge(j, v, t)) return false;
    return true;
}

/* Finds out which tokens the merges make of their own bytes: words that are such a token need no merging. */
static bool tni_tokens_alone(tn_tokenizer *t)
{
    char bytes[TNI_BPE_SHORT];
    for (int64_t i = 0; i < tn_tokenizer_count(t); i++) {
        const char   *name = tn_tokenizer_token(t, i);
        tni_bpe_token w[TNI_BPE_SHORT];
        tni_text      out = {bytes, sizeof bytes, 0};
        bool         *alone = (bool *)tni_list_add(t->owned.ctx, &t->bpe.alone, "tokenizer");
        if (!alone) return false;
        if (t->bpe.marks) tni_text_string(&out, name);
        else if (!tni_bpe_name_bytes(name, &out)) continue;
        if (out.length == 0 || out.length >= sizeof bytes) continue;
        if (tni_bpe_find(t, bytes, out.length, false) != i) continue;      /* only an added token */
        tni_bpe_bytes(t, bytes, out.length, false, w);
        *alone = tni_bpe_merge_short(t, w, out.length) == 1 && w[0].id == i;
    }
    return true;
}

static bool tni_tokens_keep(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    const tni_value *model = tni_json_get(j, root, "model");
    const tni_value *vocab = tni_json_get(j, model, "vocab"), *merges = tni_json_get(j, model, "merges");
    tni_list        *l = &t->bpe.layout;
    tni_text         out = {NULL, 0, 0};
    tni_tokens_layout(j, root, vocab, merges, &out);
    l->max = out.length + 1;
    if (!(l->items = tni_alloc(t->owned.ctx, l->max, "tokenizer"))) { l->max = 0; return false; }
    out.dst = (char *)l->items; out.bytes = l->max; out.length = 0;
    tni_tokens_layout(j, root, vocab, merges, &out);
    l->count = out.length;
    return true;
}

/* The first of the names that a token has, or -1. */
static int64_t tni_tokens_first(const tn_tokenizer *t, const char *const name[5])
{
    int64_t id = -1;
    for (int k = 0; k < 5 && id < 0; k++) id = tn_tokenizer_id(t, name[k]);
    return id;
}

static bool tni_tokens_bpe(tni_json *j, const tni_value *root, tn_tokenizer *t)
{
    static const char *const bos[5] = {"[BOS]", "<s>", "<|begin_of_text|>", "<|endoftext|>", "<bos>"};
    static const char *const eos[5] = {"[EOS]", "</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>"};
    t->bpe.is = true;
    if (!tni_tokens_bpe_kind(j, root, t) || !tni_tokens_all(j, root, t)) return false;
    t->bos = tni_tokens_first(t, bos);
    t->eos = tni_tokens_first(t, eos);
    return tni_tokens_bpe_post(j, root, t) && tni_tokens_merges(j, root, t) && tni_tokens_alone(t)
        && tni_tokens_keep(j, root, t) && !j->twice;
}

/* ---- reading any of them ------------------------------------------------ >>text-json-any */

TNI_COLD static bool tni_tokens_read(tni_json *j, tn_tokenizer *t)
{
    const tni_value *root = tni_json_at(j, 1), *model = tni_json_get(j, root, "model");
    const char      *type = tni_json_string(j, model, "type");
    if (type && strcmp(type, "BPE") == 0) return tni_tokens_bpe(j, root, t);
    if (!tni_tokens_kind(j, root, t) || !tni_tokens_all(j, root, t)) return false;
    t->bos = tn_tokenizer_id(t, "[BOS]");
    if (!tni_tokens_template(j, tni_json_get(j, root, "post_processor"), t)) return false;
    const char *unk = tni_json_string(j, model, "unk_token");
    t->unk = tn_tokenizer_id(t, unk);
    if (t->unk < 0) return tni_tokens_fail(j, model, "unk_token is %s, expected a token", unk ? tni_quote(unk).s : "missing");
    tni_tokenizer_finish(t);
    return !j->twice;
}

tn_tokenizer *tn_tokenizer_read(tn_ctx *ctx, tn_source source)
{
    tn_tokenizer *t = ctx ? tni_tokenizer_new(ctx) : NULL;
    tni_json      j;
    if (!t) return NULL;
    bool ok = tni_json_open(&j, ctx, &source) && tni_tokens_read(&j, t);
    tni_json_close(&j);
    if (ok) return t;
    return tn_tokenizer_destroy(t), (tn_tokenizer *)NULL;
}

/* ---- writing tokenizer.json --------------------------------------------- >>text-json-write
   The source has no spaces and ' for quotation marks; the output is laid out like Hugging Face's, one item per line. */

typedef struct tni_pretty { tni_text t; size_t depth; bool fresh; } tni_pretty;      /* fresh: nothing since the bracket */

static void tni_pretty_line(tni_pretty *p)
{
    tni_text_add(&p->t, "\n", 1);
    for (size_t i = 0; i < p->depth; i++) tni_text_add(&p->t, "  ", 2);
    p->fresh = false;
}

static void tni_pretty_put(tni_pretty *p, const char *s)
{
    for (; *s; s++) {
        bool opens = *s == '{' || *s == '[', closes = *s == '}' || *s == ']';
        if (closes) p->depth--;
        if (closes != p->fresh) tni_pretty_line(p);          /* {} without a line break */
        p->fresh = opens;
        tni_text_add(&p->t, *s == '\'' ? "\"" : s, 1);
        if (opens) p->depth++;
        else if (*s == ',') tni_pretty_line(p);
        else if (*s == ':') tni_text_add(&p->t, " ", 1);
    }
}

static void tni_pretty_name(tni_pretty *p, const tn_tokenizer *z, int64_t id)
{
    if (p->fresh) tni_pretty_line(p);
    tni_text_json(&p->t, tn_tokenizer_token(z, id));
}

static void tni_pretty_number(tni_pretty *p, int64_t v)
{
    if (p->fresh) tni_pretty_line(p);
    tni_text_signed(&p->t, v);
}

static void tni_pretty_added(tni_pretty *p, const tn_tokenizer *z)
{
    for (size_t i = 0; i < z->added.count; i++) {
        const tni_added *a = (const tni_added *)tni_list_at(&z->added, i);
        tni_pretty_put(p, i > 0 ? ",{'id':" : "{'id':");
        tni_pretty_number(p, a->id);
        tni_pretty_put(p, ",'content':");
        tni_pretty_name(p, z, a->id);
        tni_pretty_put(p, ",'single_word':false,'lstrip':false,'rstrip':false,'normalized':false,'special':");
        tni_pretty_put(p, a->special ? "true}" : "false}");
    }
}

/* The template: one special token, then the text. */
static void tni_pretty_template(tni_pretty *p, const tn_tokenizer *z)
{
    tni_pretty_put(p, "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':");
    tni_pretty_name(p, z, z->bos);
    tni_pretty_put(p, ",'type_id':0}},{'Sequence':{'id':'A','type_id':0}}],"
                      "'pair':[{'Sequence':{'id':'A','type_id':0}},{'Sequence':{'id':'B','type_id':1}}],'special_tokens':{");
    tni_pretty_name(p, z, z->bos);
    tni_pretty_put(p, ":{'id':");
    tni_pretty_name(p, z, z->bos);
    tni_pretty_put(p, ",'ids':[");
    tni_pretty_number(p, z->bos);
    tni_pretty_put(p, "],'tokens':[");
    tni_pretty_name(p, z, z->bos);
    tni_pretty_put(p, "]}}}");
}

static void tni_pretty_vocabulary(tni_pretty *p, const tn_tokenizer *z)
{
    int64_t written = 0;
    for (int64_t i = 0; i < tn_tokenizer_count(z); i++) {
        const char *name = tn_tokenizer_token(z, i);
        if (*tni_trie_value(&z->pieces, tni_trie_find(&z->pieces, name, strlen(name))) == 0) continue;     /* only added */
        if (written++ > 0) tni_pretty_put(p, ",");
        tni_pretty_name(p, z, i);
        tni_pretty_put(p, ":");
        tni_pretty_number(p, i);
    }
}

static void tni_pretty_tokenizer(tni_pretty *p, const tn_tokenizer *z)
{
    static const char *const decoder[3] = {
        "null", "{'type':'WordPiece','prefix':'##','cleanup':false}", "{'type':'WordPiece','prefix':'##','cleanup':true}"
    };
    tni_pretty_put(p, "{'version':'1.0','truncation':null,'padding':null,'added_tokens':[");
    tni_pretty_added(p, z);
    tni_pretty_put(p, "],'normalizer':{'type':'Sequence','normalizers':["
                      "{'type':'NFD'},{'type':'StripAccents'},{'type':'Lowercase'}]},"
                      "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Punctuation','behavior':'Isolated'},"
                      "{'type':'Whitespace'},{'type':'Digits','individual_digits':true}]},'post_processor':");
    if (z->bos_first) tni_pretty_template(p, z);
    else tni_pretty_put(p, "null");
    tni_pretty_put(p, ",'decoder':");
    tni_pretty_put(p, decoder[z->decoder]);
    tni_pretty_put(p, ",'model':{'type':'WordPiece','unk_token':");
    tni_pretty_name(p, z, z->unk);
    tni_pretty_put(p, ",'continuing_subword_prefix':'##','max_input_chars_per_word':");
    tni_pretty_number(p, z->longest);
    tni_pretty_put(p, ",'vocab':{");
    tni_pretty_vocabulary(p, z);
    tni_pretty_put(p, "}}}");
}

static void tni_pretty_merges(tni_pretty *p, const tn_tokenizer *z)
{
    tni_pretty_put(p, "[");
    for (size_t i = 0; i < z->bpe.merges.count; i++) {
        const tni_bpe_merge *m = (const tni_bpe_merge *)tni_list_at(&z->bpe.merges, i);
        const bool           text = z->bpe.merges_as_text;
        tni_pretty_put(p, i > 0 ? text ? "," : ",[" : text ? "" : "[");
        if (p->fresh) tni_pretty_line(p);
        tni_text_add(&p->t, "\"", 1);
        tni_text_escaped(&p->t, tn_tokenizer_token(z, m->left));
        if (text) tni_text_add(&p->t, " ", 1);
        else {
            tni_text_add(&p->t, "\"", 1);
            tni_pretty_put(p, ",");
            tni_text_add(&p->t, "\"", 1);
        }
        tni_text_escaped(&p->t, tn_tokenizer_token(z, m->right));
        tni_text_add(&p->t, "\"", 1);
        if (!text) tni_pretty_put(p, "]");
    }
    tni_pretty_put(p, "]");
}

/* A file of byte-level BPE as it was read: its strings have no marks of tni_pretty_put. */
static void tni_pretty_layout(tni_pretty *p, const tn_tokenizer *z)
{
    const char *s = (const char *)z->bpe.layout.items, *end = s + z->bpe.layout.count;
    for (; s < end; s++) {
        char one[2] = {0, 0};
        one[0] = *s;
        if (*s == '"') {
            const char *first = s++;
            while (*s != '"') s += 1 + (*s == '\\');
            if (p->fresh) tni_pretty_line(p);
            tni_text_add(&p->t, first, (size_t)(s + 1 - first));
        } else if (*s == 1) {
            tni_pretty_put(p, "{");
            tni_pretty_vocabulary(p, z);
            tni_pretty_put(p, "}");
        } else if (*s == 2) tni_pretty_merges(p, z);
        else tni_pretty_put(p, one);
    }
}

static void tni_pretty_any(tni_pretty *p, const tn_tokenizer *z)
{
    (z->bpe.is ? tni_pretty_layout : tni_pretty_tokenizer)(p, z);
}

tn_status tn_tokenizer_write(const tn_tokenizer *t, tn_sink sink)
{
    tni_writer w;
    if (!t) return TN_ERR_ARG;
    tn_ctx *ctx = t->owned.ctx;
    if (t->bytes) return tni_fail(ctx, TN_ERR_ARG, "tokenizer: it is the one of %s, expected a vocabulary to write",
                                  t->bytes == 256 ? "bytes" : "ASCII");
    tni_pretty p = TNI_ZERO;
    tni_pretty_any(&p, t);                                   /* once to measure it */
    size_t      bytes = p.t.length + 1;
    tni_scratch work = tni_scratch_begin(ctx, "tokenizer");
    memset(&p, 0, sizeof p);
    p.t.bytes = bytes;
    if (!(p.t.dst = (char *)tni_take(&work, 1, bytes))) return TN_ERR_MEMORY;
    tni_pretty_any(&p, t);
    tni_writer_open(&w, ctx, &sink);
    tni_put(&w, p.t.dst, p.t.length);
    return tni_scratch_end(&work, tni_writer_close(&w));
}

#ifndef TN_NO_STDIO
tn_tokenizer *tn_tokenizer_load(tn_ctx *ctx, const char *path) { return tn_tokenizer_read(ctx, tn_source_path(path)); }

tn_status tn_tokenizer_save(const tn_tokenizer *t, const char *path) { return tn_tokenizer_write(t, tn_sink_path(path)); }
#endif
#endif /* TN_NO_TEXT */
