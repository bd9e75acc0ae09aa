/* Reads and writes files: safetensors, npy, idx, shards, tokenizers and a format of its own, on paths, in memory and by functions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tensornet.h"

static int failures;

static void check(const char *what, double value, double expected, double within)
{
    const bool right = fabs(value - expected) <= within;
    printf("%-48s %.6g%s\n", what, value, right ? "" : "   FAIL");
    failures += !right;
}

/* A file in memory that is read and written by functions. */
typedef struct disk { unsigned char byte[4096]; size_t used; int calls; } disk;

static bool fetch(void *user, uint64_t offset, void *dst, size_t bytes)
{
    const disk *d = (const disk *)user;
    if (offset + bytes > d->used) return false;
    memcpy(dst, d->byte + offset, bytes);
    return true;
}

static bool store(void *user, const void *src, size_t bytes)
{
    disk *d = (disk *)user;
    if (d->used + bytes > sizeof d->byte) return false;
    memcpy(d->byte + d->used, src, bytes);
    d->used += bytes;
    d->calls++;
    return true;
}

static double number(const tn_tensor *t, int64_t i)
{
    double v[64] = {0};
    if (!t || tn_tensor_count(t) > 64 || tn_read(t, TN_F64, v, tn_tensor_count(t)) != TN_OK) return -1e9;
    return v[i];
}

static void safetensors(tn_ctx *ctx)
{
    const float    w[6] = {1, 2, 3, 4, 5, 6.5f};
    const int32_t  label[3] = {7, 8, -9};
    const int64_t  two[2] = {2, 3}, one[1] = {3};
    tn_tensor     *matrix = tn_tensor_from(ctx, 2, two, TN_F32, w), *labels = tn_tensor_from(ctx, 1, one, TN_I32, label);
    const tn_named_tensor list[2] = {{"layer.w", matrix}, {"labels", labels}};
    const tn_metadata     notes[1] = {{"author", "a kept program"}};
    static disk    d;
    size_t         bytes = 0;
    check("write by a function", tn_safetensors_write(ctx, tn_sink_calls(store, &d), list, 2, notes, 1), TN_OK, 0);
    check("write to count bytes", tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &bytes), list, 2, notes, 1), TN_OK, 0);
    check("bytes", (double)bytes, (double)d.used, 0);
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_calls(fetch, &d, d.used));
    check("tensors", (double)tn_safetensors_count(f), 2, 0);
    const tn_safetensors_entry *e = tn_safetensors_find(f, "layer.w");
    check("dtype, rank, shape", e && strcmp(e->dtype, "F32") == 0 && e->rank == 2 && e->shape[0] == 2 && e->shape[1] == 3, 1, 0);
    check("first entry is one of them", strcmp(tn_safetensors_at(f, 0)->name, "labels") == 0 || strcmp(tn_safetensors_at(f, 0)->name, "layer.w") == 0, 1, 0);
    check("w[1,2]", number(tn_safetensors_read(f, "layer.w"), 5), 6.5, 0);
    check("labels[2]", number(tn_safetensors_read(f, "labels"), 2), -9, 0);
    check("flat", (double)tn_safetensors_read_flat(f, "layer.w")->rank, 1, 0);
    float raw[6];
    check("bytes of w", tn_safetensors_read_bytes(f, "layer.w", raw, sizeof raw), TN_OK, 0);
    check("raw w[0]", raw[0], 1, 0);
    check("author", strcmp(tn_safetensors_metadata(f, "author"), "a kept program") == 0, 1, 0);
    check("a tensor equals itself", tn_safetensors_equal(f, "layer.w", "layer.w"), 1, 0);
    tn_safetensors_close(f);

    /* A damaged file is an error with a message; nothing else happens. */
    d.byte[20] = '}';
    check("a damaged file", tn_safetensors_open(ctx, tn_source_calls(fetch, &d, d.used)) == NULL, 1, 0);
    check("its status", tn_ctx_status(ctx), TN_ERR_FORMAT, 0);
    check("its message", strlen(tn_ctx_error(ctx)) > 10, 1, 0);
    tn_ctx_clear_error(ctx);
}

static void parameters(tn_ctx *ctx)
{
    tn_params *params = tn_params_create(ctx), *others = tn_params_create(ctx);
    tn_linear  a, b;
    tn_norm    norm;
    unsigned char memory[4096];
    size_t     used = 0;
    tn_linear_init(params, "a", &(tn_linear_desc){.in = 3, .out = 2, .bias = true}, &a);
    tn_linear_init(others, "a", &(tn_linear_desc){.in = 3, .out = 2, .bias = true}, &b);
    tn_sink sink = tn_sink_memory(memory, sizeof memory, &used);
    check("parameters to memory", tn_params_write(params, sink, NULL, 0), TN_OK, 0);
    check("and back", tn_params_read(others, tn_source_memory(memory, used), TN_MATCH_ALL), TN_OK, 0);
    check("a.w[1,2]", number(b.w, 5), number(a.w, 5), 0);
    tn_norm_init(others, "norm", &(tn_norm_desc){.dim = 2}, &norm);
    check("a file without norm.gain", tn_params_read(others, tn_source_memory(memory, used), TN_MATCH_ALL) != TN_OK, 1, 0);
    tn_ctx_clear_error(ctx);
    check("the name of a parameter", strcmp(tn_params_find(others, "norm.gain")->name, "norm.gain"), 0, 0);
    check("a name that is not there", tn_params_find(others, "norm.w") == NULL, 1, 0);
    tn_params_destroy(others);
}

static void arrays(tn_ctx *ctx)
{
    const double  v[4] = {0.5, -1, 2, 1e-3};
    const int64_t shape[2] = {2, 2};
    const unsigned char idx[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 51, 102, 255};
    check("npy saved", tn_npy_save(tn_tensor_from(ctx, 2, shape, TN_F64, v), "array.npy"), TN_OK, 0);
    tn_tensor *t = tn_npy_load(ctx, "array.npy");
    check("npy [1,0]", number(t, 2), 2, 0);
    check("npy rank", t ? t->rank : 0, 2, 0);
    size_t used = 0;
    unsigned char memory[1024];
    check("npy to memory", tn_npy_write(t, tn_sink_memory(memory, sizeof memory, &used)), TN_OK, 0);
    check("npy from memory", number(tn_npy_read(ctx, tn_source_memory(memory, used)), 1), -1, 0);
    check("npy flat", (double)tn_npy_read_flat(ctx, tn_source_memory(memory, used))->shape[0], 4, 0);
    check("idx in [0,1]", number(tn_idx_read(ctx, tn_source_memory(idx, sizeof idx), 1 / 255.0), 1), 0.2, 1e-6);
    tn_tensor *labels = tn_idx_read(ctx, tn_source_memory(idx, sizeof idx), 0);
    check("idx as labels", labels && labels->dtype == TN_I32 ? number(labels, 3) : 0, 255, 0);
}

static void words(tn_ctx *ctx)
{
    static const char text[] = "the cat sat on the mat. the dog sat on the log. a cat and a dog and the cat. "
                               "the cat sat on the mat. the dog sat on the log. a cat and a dog and the cat.";
    tn_tokenizer *t = tn_tokenizer_train(ctx, text, sizeof text - 1, 60, NULL);
    int32_t       ids[256], back[64];
    tn_span       span[256];
    char          out[256];
    check("a vocabulary", t && tn_tokenizer_count(t) <= 60 && tn_tokenizer_count(t) > 20, 1, 0);
    check("[UNK]", (double)tn_tokenizer_unk(t), (double)tn_tokenizer_id(t, "[UNK]"), 0);
    check("not of bytes", tn_tokenizer_is_bytes(t), 0, 0);
    const int64_t n = tn_tokenizer_encode(t, "the cat sat", 11, TN_BOS_FIRST, ids, 256, span);
    check("begins with [BOS]", ids[0], (double)tn_tokenizer_bos(t), 0);
    check("whose span is empty", (double)(span[0].end - span[0].begin), 0, 0);
    check("the last span ends with the text", (double)span[n - 1].end, 11, 0);
    check("decoded", tn_tokenizer_decode(t, ids, n, out, sizeof out) == 11 && strcmp(out, "the cat sat") == 0, 1, 0);
    check("counted alone", (double)tn_tokenizer_encode(t, "the cat sat", 11, TN_BOS_FIRST, NULL, 0, NULL), (double)n, 0);
    check("saved", tn_tokenizer_save(t, "tokenizer.json"), TN_OK, 0);
    tn_tokenizer *again = tn_tokenizer_load(ctx, "tokenizer.json");
    check("loaded", again ? (double)tn_tokenizer_count(again) : 0, (double)tn_tokenizer_count(t), 0);
    check("a token", strcmp(tn_tokenizer_token(again, ids[1]), tn_tokenizer_token(t, ids[1])), 0, 0);
    size_t used = 0;
    char  *json = (char *)malloc(65536);
    check("written", tn_tokenizer_write(again, tn_sink_memory(json, 65536, &used)), TN_OK, 0);
    check("read", tn_tokenizer_read(ctx, tn_source_memory(json, used)) != NULL, 1, 0);
    free(json);
    check("no [EOS] in the text", tn_tokenizer_eos(t) >= 0 && ids[n - 1] != tn_tokenizer_eos(t), 1, 0);
    tn_tokenizer_destroy(again);

    unsigned char shard[2048];
    check("shard written", tn_shard_write(ctx, tn_sink_memory(shard, sizeof shard, &used), ids, n, tn_tokenizer_count(t)), TN_OK, 0);
    check("16 bits per id", (double)used, 1024 + 2.0 * (double)n, 0);
    tn_shard *s = tn_shard_open(ctx, tn_source_memory(shard, used), tn_tokenizer_count(t));
    check("ids", (double)tn_shard_count(s), (double)n, 0);
    check("shard read", tn_shard_read(s, 1, n - 1, back), TN_OK, 0);
    check("an id of it", back[0], ids[1], 0);
    tn_shard_close(s);
}

static void own_format(tn_ctx *ctx)
{
    char       line[32] = "";
    tn_writer *w = tn_writer_open(ctx, "own.txt");
    check("piece by piece", tn_writer_write(w, "a line\n", 7), TN_OK, 0);
    FILE      *early = fopen("own.txt", "r");
    check("not there before it is whole", early == NULL, 1, 0);
    check("kept", tn_writer_close(w, true), TN_OK, 0);
    FILE *f = fopen("own.txt", "r");
    check("there", f && fgets(line, sizeof line, f) && strcmp(line, "a line\n") == 0, 1, 0);
    if (f) fclose(f);
    w = tn_writer_open(ctx, "own.txt");
    tn_writer_write(w, "other", 5);
    tn_writer_close(w, false);
    f = fopen("own.txt", "r");
    check("not replaced", f && fgets(line, sizeof line, f) && strcmp(line, "a line\n") == 0, 1, 0);
    if (f) fclose(f);
    remove("own.txt");
    char dirty[] = "a\033b";
    check("printable", (double)tn_printable(dirty, 3, false), 3, 0);
    check("an escape became", dirty[1], '?', 0);
}

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(NULL, &ctx, NULL) != TN_OK) return 1;
    safetensors(ctx);
    parameters(ctx);
    arrays(ctx);
    words(ctx);
    own_format(ctx);
    check("no error is left", tn_ctx_status(ctx), TN_OK, 0);
    tn_ctx_destroy(ctx);
    return failures != 0;
}
