/* data.c - tokens of texts and of shards: a part to train on, and a held-out part */
#include "tn.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tokens -------------------------------------------------------------------------------- */

tn_ctx *new_context(void)
{
    tn_desc desc;
    tn_ctx *ctx;
    char    why[256];
    memset(&desc, 0, sizeof desc);
    desc.log = show_log;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) fail("%s", why);
    return ctx;
}

tn_tokenizer *open_tokenizer(tn_ctx *ctx, const char *path)
{
    tn_tokenizer *t = path ? tn_tokenizer_load(ctx, path) : tn_tokenizer_create_bytes(ctx);
    check_ctx(ctx, "tokenizer");           /* the library names the file */
    return t;
}

static tn_status put_tokenizer(void *t, tn_sink sink) { return tn_tokenizer_write((const tn_tokenizer *)t, sink); }

void save_tokenizer(const char *path, path_kind kind, tn_tokenizer *t, tn_ctx *ctx)
{
    char *why = write_file_with(path, kind, put_tokenizer, t, ctx);
    if (why) fail("%s", why);
}

static void list_reserve(token_list *l, int64_t more, bool spans)
{
    if (spans && l->span_capacity < more) {
        l->span_capacity = more;
        l->spans = (tn_span *)resize(l->spans, (size_t)more, sizeof *l->spans);
    }
    if (l->capacity - l->count >= more) return;
    l->capacity = l->capacity * 2 + more;
    l->ids = (int32_t *)resize(l->ids, (size_t)l->capacity, sizeof *l->ids);
}

/* A tokenizer of a file may make more tokens than the text has bytes, so what it says that it made decides. */
int64_t add_tokens(token_list *l, tn_ctx *ctx, const tn_tokenizer *t, const char *text, size_t bytes, tn_bos bos, bool spans)
{
    int64_t max, n = (int64_t)bytes + 2;               /* [BOS], and a space that BPE may put before a text */
    do {
        max = n;
        list_reserve(l, max, spans);
        n = tn_tokenizer_encode(t, text, bytes, bos, l->ids + l->count, max, spans ? l->spans : NULL);
    } while (n > max);
    check_ctx(ctx, "encode");
    l->count += n;
    return n;
}

/* The length of the next piece: encoding one piece at a time bounds the memory for the spans. A space after a visible letter
   begins a new word in every kind of tokenizer, so cutting before it does not change the tokens. */
static size_t piece_length(const char *text, size_t bytes)
{
    size_t n = 1 << 20;
    if (bytes <= n) return bytes;
    while (n < bytes && !(text[n] == ' ' && text[n - 1] > ' ' && text[n - 1] < 127)) n++;
    return n;
}

static double encode_story(tn_ctx *ctx, const tn_tokenizer *t, const char *text, size_t bytes, token_list *l)
{
    const int32_t unknown = (int32_t)tn_tokenizer_unk(t);
    double        hidden = 0;
    bool          first = tn_tokenizer_bos(t) >= 0;
    do {
        const size_t  n = piece_length(text, bytes);
        const int64_t before = l->count, count = add_tokens(l, ctx, t, text, n, first ? TN_BOS_FIRST : TN_BOS_NONE, true);
        end_if_stopped();
        for (int64_t i = 0; i < count && unknown >= 0; i++)
            if (l->ids[before + i] == unknown) hidden += (double)(l->spans[i].end - l->spans[i].begin);
        text += n;
        bytes -= n;
        first = false;
    } while (bytes > 0);
    return hidden;
}

int64_t encode_text(tn_ctx *ctx, const tn_tokenizer *t, const char *text, size_t bytes, split_kind split, int32_t **ids,
                    double *text_bytes, double *unknown_bytes)
{
    token_list l = {0};
    size_t     at = 0, start = 0, length = 0;
    *unknown_bytes = *text_bytes = 0;
    if (split == SPLIT_AUTO && resolve_split(SPLIT_AUTO, text, bytes) == SPLIT_MARKS) split = SPLIT_MARKS;
    if (split != SPLIT_AUTO) {
        while (next_story(text, bytes, split, &at, &start, &length)) {
            *unknown_bytes += encode_story(ctx, t, text + start, length, &l);
            *text_bytes += (double)length;
        }
    } else if (bytes) {
        *unknown_bytes = encode_story(ctx, t, text, bytes, &l);
        *text_bytes = (double)bytes;
    }
    free(l.spans);
    *ids = l.ids;
    return l.count;
}

static void hash_tokens(corpus *c)
{
    const uint64_t prime = UINT64_C(1099511628211);
    int32_t        some[4096];
    int64_t        n;
    uint64_t       h = UINT64_C(1469598103934665603); /* FNV-1a, by tokens and lengths */
    h = (h ^ (uint64_t)c->train_count) * prime;
    for (int64_t i = 0; i < c->train_count; i += n) {
        n = c->train_count - i < 4096 ? c->train_count - i : 4096;
        end_if_stopped();
        copy_tokens(&c->train, i, n, some);
        for (int64_t k = 0; k < n; k++) h = (h ^ (uint64_t)some[k]) * prime;
    }
    h = (h ^ (uint64_t)c->held_count) * prime;
    for (int64_t i = 0; i < c->held_count; i++) h = (h ^ (uint64_t)c->held[i]) * prime;
    c->hash = h;
}

static void load_text(corpus *c, tn_ctx *ctx, const tn_tokenizer *t, const char *text, size_t bytes, split_kind split,
                      double share)
{
    size_t cut = held_out_start(text, bytes, share);
    double unused;
    memset(c, 0, sizeof *c);
    c->train_count = c->train.count = encode_text(ctx, t, text, cut, split, &c->train.ids, &c->train_bytes, &unused);
    c->held_count = encode_text(ctx, t, text + cut, bytes - cut, split, &c->held, &c->held_bytes, &c->held_unknown);
    hash_tokens(c);
}

typedef struct shard_of { tn_ctx *ctx; const int32_t *ids; int64_t count, vocab; } shard_of;

static tn_status put_shard(void *user, tn_sink sink)
{
    const shard_of *all = (const shard_of *)user;
    return tn_shard_write(all->ctx, sink, all->ids, all->count, all->vocab);
}

void write_shard(const char *path, tn_ctx *ctx, const int32_t *ids, int64_t count, int64_t vocab)
{
    shard_of all = {ctx, ids, count, vocab};
    char    *why = write_file_with(path, BY_USER, put_shard, &all, ctx);
    if (why) fail("%s", why);
}

bool is_shard(const char *path)
{
    unsigned char b[4];
    if (access(path, F_OK) != 0) fail("%s: %s", path, strerror(errno));
    if (!is_file(path))
        fail("%s is not a regular file, expected a text or a token shard that can be read more than once", path);
    FILE *f = open_input(path, BY_NAME);
    bool  read = fread(b, sizeof b, 1, f) == 1;
    fclose(f);
    if (!read) return false;
    int32_t magic = (int32_t)(b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
    return magic == 20240520 || magic == 20240801;
}

/* Every id is below vocab, or this fails with the library's message. */
static void check_ids(const token_store *t, int64_t vocab, const tn_shard *shard, int64_t before)
{
    int32_t some[4096];
    int64_t n;
    bool    good = true;
    for (int64_t i = before; i < t->count && good; i += n) {
        n = t->count - i < 4096 ? t->count - i : 4096;
        end_if_stopped();
        copy_tokens(t, i, n, some);
        for (int64_t k = 0; k < n; k++) good = good && (uint32_t)some[k] < (uint64_t)vocab && some[k] >= 0;
        if (!good) tn_shard_read(shard, i - before, n, some);
    }
}

/* The bytes of text that the tokens encode are unknown: tokens of words decode to another text than they were made from. */
void load_shards(corpus *c, tn_ctx *ctx, int64_t vocab, const file_list *files, double share)
{
    memset(c, 0, sizeof *c);
    for (int64_t i = 0; i < files->count; i++) {
        tn_shard     *shard = tn_shard_open(ctx, tn_source_path(files->path[i]), vocab);
        const int64_t before = c->train.count;
        check_ctx(ctx, "token shard");
        add_shard(&c->train, files->path[i], tn_shard_count(shard));
        check_ids(&c->train, vocab, shard, before);
        check_ctx(ctx, "token shard");
        tn_shard_close(shard);
    }
    int64_t held = (int64_t)((double)c->train.count * share);
    c->train_count = c->train.count - held;
    c->held = (int32_t *)allocate((size_t)held, sizeof *c->held);
    c->held_count = held;
    copy_tokens(&c->train, c->train_count, held, c->held);
    hash_tokens(c);
}

bool are_shards(const file_list *files, const char *name)
{
    int64_t shards = 0;
    for (int64_t i = 0; i < files->count; i++) shards += is_shard(files->path[i]);
    if (shards && shards < files->count) fail("%s: texts and token shards are given, expected files of one kind", name);
    return shards > 0;
}

void load_files(corpus *c, tn_ctx *ctx, const tn_tokenizer *t, int64_t vocab, const file_list *files, const char *name,
                split_kind split, double share)
{
    size_t bytes;
    if (are_shards(files, name)) {
        load_shards(c, ctx, vocab, files, share);
        return;
    }
    if (!t) fail("%s is text, and the model has no tokenizer: give its --tokenizer, or token shards", files->path[0]);
    char *text = read_texts(files, &bytes);
    load_text(c, ctx, t, text, bytes, split, share);
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
    free_tokens(&c->train);
    free(c->held);
    memset(c, 0, sizeof *c);
}
