/* data.c - tokens of texts and of shards: a part to train on, and a held-out part */
#include "tn.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tokens -------------------------------------------------------------------------------- */

tn_tokenizer *open_tokenizer(tn_ctx *ctx, const char *path)
{
    tn_tokenizer *t = path ? tn_tokenizer_load(ctx, path) : tn_tokenizer_create_bytes(ctx);
    check_ctx(ctx, "tokenizer");           /* the library names the file */
    return t;
}

static tn_status put_tokenizer(void *t, tn_sink sink) { return tn_tokenizer_write((const tn_tokenizer *)t, sink); }

void save_tokenizer(const char *path, tn_tokenizer *t, tn_ctx *ctx)
{
    char *why = write_file_with(path, put_tokenizer, t, ctx);
    if (why) fail("%s", why);
}

typedef struct token_list { int32_t *ids; int64_t count, capacity; } token_list;

static void list_reserve(token_list *l, int64_t more)
{
    if (l->capacity - l->count >= more) return;
    l->capacity = l->capacity * 2 + more;
    l->ids = (int32_t *)resize(l->ids, (size_t)l->capacity, sizeof *l->ids);
}

/* The length of the next piece: encoding one piece at a time bounds the memory for the spans. A word never continues after a
   line end, so cutting there does not change the tokens. */
static size_t piece_length(const char *text, size_t bytes)
{
    size_t n = 1 << 20;
    if (bytes <= n) return bytes;
    while (n < bytes && text[n - 1] != '\n') n++;
    return n;
}

static double encode_story(const tn_tokenizer *t, const char *text, size_t bytes, token_list *l, tn_span **spans,
                           size_t *span_capacity)
{
    const int32_t unknown = (int32_t)tn_tokenizer_unk(t);
    double        hidden = 0;
    bool          first = true;
    do {
        size_t  n = piece_length(text, bytes);
        int64_t count, i;
        if (n + 1 > *span_capacity) {
            *span_capacity = n + 1;
            *spans = (tn_span *)resize(*spans, n + 1, sizeof **spans);
        }
        list_reserve(l, (int64_t)n + 1);
        count = tn_tokenizer_encode(t, text, n, first ? TN_BOS_FIRST : TN_BOS_NONE, l->ids + l->count, (int64_t)n + 1,
                                    *spans);
        if (count < 0 || count > (int64_t)n + 1) fail("the tokenizer failed on a text of %zu bytes", n);
        for (i = 0; i < count; i++)
            if (l->ids[l->count + i] == unknown) hidden += (double)((*spans)[i].end - (*spans)[i].begin);
        l->count += count;
        text += n;
        bytes -= n;
        first = false;
    } while (bytes > 0);
    return hidden;
}

int64_t encode_text(const tn_tokenizer *t, const char *text, size_t bytes, split_kind split, int32_t **ids,
                    double *text_bytes, double *unknown_bytes)
{
    token_list l = {0};
    tn_span   *spans = NULL;
    size_t     span_capacity = 0, at = 0, start = 0, length = 0;
    *unknown_bytes = *text_bytes = 0;
    if (split == SPLIT_AUTO && resolve_split(SPLIT_AUTO, text, bytes) == SPLIT_MARKS) split = SPLIT_MARKS;
    if (split != SPLIT_AUTO) {
        while (next_story(text, bytes, split, &at, &start, &length)) {
            *unknown_bytes += encode_story(t, text + start, length, &l, &spans, &span_capacity);
            *text_bytes += (double)length;
        }
    } else if (bytes) {
        *unknown_bytes = encode_story(t, text, bytes, &l, &spans, &span_capacity);
        *text_bytes = (double)bytes;
    }
    free(spans);
    *ids = l.ids;
    return l.count;
}

static void hash_tokens(corpus *c)
{
    const int32_t *part[2];
    int64_t        count[2], i;
    int            p;
    part[0] = c->train, part[1] = c->held, count[0] = c->train_count, count[1] = c->held_count;
    c->hash = UINT64_C(1469598103934665603);          /* FNV-1a, by tokens and lengths */
    for (p = 0; p < 2; p++)
        for (i = -1; i < count[p]; i++)
            c->hash = (c->hash ^ (uint64_t)(i < 0 ? count[p] : part[p][i])) * UINT64_C(1099511628211);
}

void load_text(corpus *c, const tn_tokenizer *t, const char *text, size_t bytes, split_kind split, double share)
{
    size_t cut = held_out_start(text, bytes, share);
    double unused;
    memset(c, 0, sizeof *c);
    c->train_count = encode_text(t, text, cut, split, &c->train, &c->train_bytes, &unused);
    c->held_count = encode_text(t, text + cut, bytes - cut, split, &c->held, &c->held_bytes, &c->held_unknown);
    hash_tokens(c);
}

typedef struct tokens { tn_ctx *ctx; const int32_t *ids; int64_t count, vocab; } tokens;

static tn_status put_shard(void *user, tn_sink sink)
{
    const tokens *all = (const tokens *)user;
    return tn_shard_write(all->ctx, sink, all->ids, all->count, all->vocab);
}

void write_shard(const char *path, tn_ctx *ctx, const int32_t *ids, int64_t count, int64_t vocab)
{
    tokens all = {ctx, ids, count, vocab};
    char  *why = write_file_with(path, put_shard, &all, ctx);
    if (why) fail("%s", why);
}

bool is_shard(const char *path)
{
    unsigned char b[4];
    int32_t       magic;
    FILE         *f;
    bool          read;
    if (access(path, F_OK) != 0) fail("%s: %s", path, strerror(errno));
    if (!is_file(path)) fail("%s is not a regular file, which data must be: --resume, for example, reads it again", path);
    f = fopen(path, "rb");
    if (!f) fail("%s: %s", path, strerror(errno));
    read = fread(b, sizeof b, 1, f) == 1;
    fclose(f);
    if (!read) return false;
    magic = (int32_t)(b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
    return magic == 20240520 || magic == 20240801;
}

/* The bytes of text that the tokens encode are unknown: tokens of words decode to another text than they were made from. */
void load_shards(corpus *c, tn_ctx *ctx, int64_t vocab, const file_list *files, double share)
{
    token_list l = {0};
    int64_t    i, held;
    memset(c, 0, sizeof *c);
    for (i = 0; i < files->count; i++) {
        tn_shard *shard = tn_shard_open(ctx, tn_source_path(files->path[i]), vocab);
        int64_t   n = tn_shard_count(shard);
        check_ctx(ctx, "token shard");
        list_reserve(&l, n);
        tn_shard_read(shard, 0, n, l.ids + l.count);
        check_ctx(ctx, "token shard");
        tn_shard_close(shard);
        l.count += n;
    }
    held = (int64_t)((double)l.count * share);
    c->train_count = l.count - held;
    c->train = l.ids;
    c->held = (int32_t *)allocate((size_t)held, sizeof *c->held);
    c->held_count = held;
    if (held) memcpy(c->held, l.ids + c->train_count, sizeof *c->held * (size_t)held);
    hash_tokens(c);
}

bool are_shards(const file_list *files, const char *name)
{
    int64_t i, shards = 0;
    for (i = 0; i < files->count; i++) shards += is_shard(files->path[i]);
    if (shards && shards < files->count) fail("%s: texts and token shards are given, expected files of one kind", name);
    return shards > 0;
}

void load_files(corpus *c, tn_ctx *ctx, const tn_tokenizer *t, int64_t vocab, const file_list *files, split_kind split,
                double share)
{
    char  *text;
    size_t bytes;
    if (are_shards(files, "--data")) {
        load_shards(c, ctx, vocab, files, share);
        return;
    }
    text = read_texts(files, &bytes);
    load_text(c, t, text, bytes, split, share);
    free(text);
}

void replace_held_out(corpus *c, corpus *held)
{
    free(c->held);
    c->held = held->held;
    c->held_count = held->held_count;
    c->held_bytes = held->held_bytes;
    c->held_unknown = held->held_unknown;
    c->hash = (c->hash ^ held->hash) * UINT64_C(1099511628211);
    held->held = NULL;
    free_corpus(held);
}

void free_corpus(corpus *c)
{
    free(c->train);
    free(c->held);
    memset(c, 0, sizeof *c);
}
