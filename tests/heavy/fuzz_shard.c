/* fuzz_shard.c: token shards that may be anything. See fuzz.h. */

#include "fuzz.h"

static uint8_t fuzz_file[FUZZ_FILE];

static void fuzz_ids(tn_ctx *ctx, const void *data, size_t n, int64_t vocab)
{
    tn_shard *s = tn_shard_open(ctx, fuzz_source(data, n), vocab);
    int64_t   count = tn_shard_count(s);
    size_t    used = 0;
    if (!s) { fuzz_failed(ctx); return; }
    int32_t *id = (int32_t *)malloc(((size_t)count + 1) * sizeof *id);
    DEMAND(id);
    if (tn_shard_read(s, 0, count, id) != TN_OK) fuzz_failed(ctx);
    else {
        for (int64_t i = 0; i < count; i++) DEMAND(id[i] >= 0 && id[i] < vocab);
        DEMAND(tn_shard_write(ctx, tn_sink_memory(fuzz_file, FUZZ_FILE, &used), id, count, vocab) == TN_OK);
        if (((const uint8_t *)data)[0] == fuzz_file[0]) {                 /* words of the same width: the bytes come back */
            DEMAND(used == n && memcmp(fuzz_file, data, 12) == 0);
            DEMAND(memcmp(fuzz_file + 1024, (const uint8_t *)data + 1024, n - 1024) == 0);
        }
    }
    free(id);
    tn_shard_close(s);
}

static void fuzz_read(tn_ctx *ctx, const void *data, size_t n)
{
    fuzz_ids(ctx, data, n, 2048);
    fuzz_ids(ctx, data, n, 128256);
}
