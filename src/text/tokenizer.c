#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- the tokenizer ------------------------------------------------------ >>text-tokenizer */

static void tni_tokenizer_destroy(tni_owned *owned)
{
    tn_tokenizer *t = (tn_tokenizer *)(void *)owned;
    tn_ctx       *ctx = owned->ctx;
    tni_list_free(ctx, &t->names);
    tni_list_free(ctx, &t->strings);
    tni_list_free(ctx, &t->added);
    tni_trie_free(ctx, &t->pieces);
    tni_trie_free(ctx, &t->specials);
    tni_map_free(ctx, &t->bpe.ranks);
    tni_list_free(ctx, &t->bpe.merges);
    tni_list_free(ctx, &t->bpe.alone);
    tni_list_free(ctx, &t->bpe.layout);
    tni_map_free(ctx, &t->bpe.nfc);
    tni_object_free(owned, sizeof *t);
}

void tn_tokenizer_destroy(tn_tokenizer *t) { if (t) tni_tokenizer_destroy(&t->owned); }

TNI_FN tn_tokenizer *tni_tokenizer_new(tn_ctx *ctx)
{
    tn_tokenizer *t = (tn_tokenizer *)tni_object(ctx, sizeof *t, "tokenizer", tni_tokenizer_destroy);
    if (!t) return NULL;
    t->names.each = sizeof(size_t);
    t->strings.each = 1;
    t->added.each = sizeof(tni_added);
    t->bos = t->eos = t->unk = -1;
    t->longest = 100;
    t->bpe.merges.each = sizeof(tni_bpe_merge);
    t->bpe.alone.each = sizeof(bool);
    t->bpe.layout.each = 1;
    tni_letters_unpack(&t->letters);
    tni_categories_unpack(&t->categories);
    if (tni_trie_begin(ctx, &t->pieces) && tni_trie_begin(ctx, &t->specials)) return t;
    return tn_tokenizer_destroy(t), (tn_tokenizer *)NULL;
}

/* Appends n bytes and a zero. Returns where they begin, + 1; 0: out of memory. */
static size_t tni_strings_add(tn_ctx *ctx, tni_list *l, const char *s, size_t n)
{
    size_t begin = l->count;
    for (size_t i = 0; i <= n; i++) {
        char *c = (char *)tni_list_add(ctx, l, "tokenizer");
        if (!c) return 0;
        *c = i < n ? s[i] : (char)0;
    }
    return begin + 1;
}

/* Adds an id without a name. */
TNI_FN bool tni_names_grow(tn_tokenizer *t) { return tni_list_add(t->owned.ctx, &t->names, "tokenizer") != NULL; }

TNI_FN bool tni_token_name(tn_tokenizer *t, int64_t id, const char *s, size_t n)
{
    size_t at = tni_strings_add(t->owned.ctx, &t->strings, s, n);
    *(size_t *)tni_list_at(&t->names, (size_t)id) = at;
    return at != 0;
}

/* Gives token id, which has a place in names but no name yet, the name s. */
TNI_FN bool tni_token_set(tn_tokenizer *t, int64_t id, const char *s, size_t n)
{
    uint32_t *value = tni_trie_add(t->owned.ctx, &t->pieces, s, n);
    if (!value) return false;
    *value = (uint32_t)id + 1;
    return tni_token_name(t, id, s, n);
}

TNI_FN bool tni_added_set(tn_tokenizer *t, const char *s, int64_t id, bool special, bool late)
{
    tn_ctx    *ctx = t->owned.ctx;
    uint32_t  *value = tni_trie_add(ctx, &t->specials, s, strlen(s));
    tni_added *a = value ? (tni_added *)tni_list_add(ctx, &t->added, "tokenizer") : NULL;
    if (!a) return false;
    *value = ((uint32_t)id + 1) | (late ? TNI_ADDED_LATE : 0);
    a->id = id;
    a->special = special;
    t->bpe.late |= late;
    t->begins_special[(unsigned char)*s] = true;
    return true;
}

/* Called when all tokens have been added. */
TNI_FN void tni_tokenizer_finish(tn_tokenizer *t)
{
    t->inner = tni_trie_find(&t->pieces, "##", 2);
    t->eos = tn_tokenizer_id(t, "[EOS]");
}

/* <0x00> ... <0xFF>; returns the length. */
TNI_FN size_t tni_byte_name(int byte, char name[8])
{
    static const char hex[] = "0123456789ABCDEF";
    memcpy(name, "<0x00>", 7);
    name[3] = hex[byte >> 4 & 15];
    name[4] = hex[byte & 15];
    return 6;
}

/* The bytes below `bytes`, 256 or 128, then [BOS], [EOS] and, if there are other bytes, [UNK]. */
static tn_tokenizer *tni_tokenizer_of_bytes(tn_ctx *ctx, int bytes)
{
    static const char special[3][6] = {"[BOS]", "[EOS]", "[UNK]"};
    tn_tokenizer *t = ctx ? tni_tokenizer_new(ctx) : NULL;
    bool          ok = t != NULL;
    for (int id = 0; ok && id < bytes + 2 + (bytes < 256); id++) {
        char name[8];
        tni_byte_name(id, name);
        if (id >= bytes) memcpy(name, special[id - bytes], 6);
        else if (bytes < 256 && id > ' ' && id < 127) { name[0] = (char)id; name[1] = 0; }
        ok = tni_names_grow(t) && tni_token_set(t, id, name, strlen(name));
    }
    if (!ok) return tn_tokenizer_destroy(t), (tn_tokenizer *)NULL;
    t->bytes = bytes;
    t->bos = bytes;
    t->eos = bytes + 1;
    if (bytes < 256) t->unk = bytes + 2;
    return t;
}

tn_tokenizer *tn_tokenizer_create_bytes(tn_ctx *ctx) { return tni_tokenizer_of_bytes(ctx, 256); }
tn_tokenizer *tn_tokenizer_create_ascii(tn_ctx *ctx) { return tni_tokenizer_of_bytes(ctx, 128); }

int64_t tn_tokenizer_count(const tn_tokenizer *t)    { return t ? (int64_t)t->names.count : 0; }
int64_t tn_tokenizer_bos(const tn_tokenizer *t)      { return t ? t->bos : -1; }
int64_t tn_tokenizer_eos(const tn_tokenizer *t)      { return t ? t->eos : -1; }
int64_t tn_tokenizer_unk(const tn_tokenizer *t)      { return t ? t->unk : -1; }
bool    tn_tokenizer_is_bytes(const tn_tokenizer *t) { return t && t->bytes == 256; }

const char *tn_tokenizer_token(const tn_tokenizer *t, int64_t id)
{
    if (id < 0 || id >= tn_tokenizer_count(t)) return NULL;
    return (const char *)t->strings.items + *(const size_t *)tni_list_at(&t->names, (size_t)id) - 1;
}

/* Looks among the tokens of the vocabulary, then among those that a file added to it. */
int64_t tn_tokenizer_id(const tn_tokenizer *t, const char *token)
{
    if (!t || !token) return -1;
    uint32_t value = *tni_trie_value(&t->pieces, tni_trie_find(&t->pieces, token, strlen(token)));
    if (value == 0) value = *tni_trie_value(&t->specials, tni_trie_find(&t->specials, token, strlen(token)));
    return (int64_t)(value & ~TNI_ADDED_LATE) - 1;
}

/* ---- text to ids -------------------------------------------------------- >>text-encode */

TNI_FN void tni_encode_put(tni_encoding *e, int64_t id, size_t begin, size_t end)
{
    if (e->n < e->max) e->ids[e->n] = (int32_t)id;
    if (e->n < e->max && e->spans) {
        e->spans[e->n].begin = begin;
        e->spans[e->n].end = end;
    }
    e->n++;
}

/* Where the next added token from `at` on begins, the longest if several do there; `end`: none. late: 0 or
   TNI_ADDED_LATE. */
TNI_FN size_t tni_special_next(const tn_tokenizer *t, const char *text, size_t at, size_t end, uint32_t late, int64_t *id,
                               size_t *bytes)
{
    for (; at < end; at++) {
        uint32_t node = TNI_ROOT, value;
        size_t   i;
        if (!t->begins_special[(unsigned char)text[at]]) continue;
        for (*id = -1, i = at; i < end && (node = tni_trie_step(&t->specials, node, text[i])) != 0; i++)
            if ((value = *tni_trie_value(&t->specials, node)) != 0 && (value & TNI_ADDED_LATE) == late) {
                *id = (int64_t)(value & ~TNI_ADDED_LATE) - 1;
                *bytes = i + 1 - at;
            }
        if (*id >= 0) break;
    }
    return at;
}

#endif /* TN_NO_TEXT */
