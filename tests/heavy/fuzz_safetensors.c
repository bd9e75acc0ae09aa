/* fuzz_safetensors.c: every tensor of a file that may be anything, as numbers and as bytes. See fuzz.h. */

#include "fuzz.h"

static char fuzz_file[FUZZ_FILE];

/* All that was read, under its own names, written and read again. */
static void fuzz_again(tn_ctx *ctx, const tn_named_tensor *named, int64_t count)
{
    static const tn_metadata note[] = {{"made by", "fuzz \"\\\x01\xC3\xA4"}};
    size_t          used = 0;
    tn_status       s = tn_safetensors_write(ctx, tn_sink_memory(fuzz_file, FUZZ_FILE, &used), named, count, note, 1);
    if (s == TN_ERR_MEMORY || (s == TN_ERR_FILE && used > FUZZ_FILE)) { tn_ctx_clear_error(ctx); return; }
    DEMAND(s == TN_OK);
    tn_safetensors *file = tn_safetensors_open(ctx, fuzz_source(fuzz_file, used));
    DEMAND(file && tn_safetensors_count(file) == count);
    DEMAND(strcmp(tn_safetensors_metadata(file, "made by"), note[0].value) == 0);
    for (int64_t i = 0; i < count; i++) {
        tn_tensor *t = tn_safetensors_read(file, named[i].name);
        if (!t) { fuzz_failed(ctx); continue; }          /* max_bytes: both are held at once */
        fuzz_same(named[i].tensor, t);
        tn_tensor_destroy(t);
    }
    tn_safetensors_close(file);
}

static void fuzz_entry(tn_safetensors *file, const tn_safetensors_entry *e, tn_ctx *ctx)
{
    DEMAND(tn_safetensors_find(file, e->name) == e && e->rank >= 0 && e->rank <= TN_MAX_RANK);
    void *raw = malloc((size_t)e->bytes + 1);
    DEMAND(raw && tn_safetensors_read_bytes(file, e->name, raw, (size_t)e->bytes) == TN_OK);
    DEMAND(tn_safetensors_read_bytes(file, e->name, raw, (size_t)e->bytes + 1) != TN_OK);
    tn_ctx_clear_error(ctx);
    free(raw);
}

static void fuzz_read(tn_ctx *ctx, const void *data, size_t n)
{
    tn_safetensors *file = tn_safetensors_open(ctx, fuzz_source(data, n));
    int64_t         count = tn_safetensors_count(file), good = 0;
    if (!file) { fuzz_failed(ctx); return; }
    tn_named_tensor *named = (tn_named_tensor *)malloc(((size_t)count + 1) * sizeof *named);
    DEMAND(named);
    for (int64_t i = 0; i < count; i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(file, i);
        fuzz_entry(file, e, ctx);
        named[good].name = e->name;
        named[good].tensor = tn_safetensors_read(file, e->name);
        if (named[good].tensor) good++;
        else fuzz_failed(ctx);
    }
    tn_safetensors_metadata(file, "format");
    DEMAND(!tn_safetensors_find(file, "\x01 no such") && !tn_safetensors_at(file, count));
    fuzz_again(ctx, named, good);
    while (good > 0) tn_tensor_destroy((tn_tensor *)named[--good].tensor);
    free(named);
    tn_safetensors_close(file);
}
