/* fuzz_idx.c: labels or pixels from a file that may be anything. The library writes no idx, so the way back is here. See fuzz.h. */

#include "fuzz.h"

static uint8_t fuzz_file[FUZZ_FILE];

static void fuzz_put(size_t *at, uint64_t v, unsigned bytes)
{
    for (; bytes-- > 0; (*at)++) if (*at < FUZZ_FILE) fuzz_file[*at] = (uint8_t)(v >> 8 * bytes);
}

static size_t fuzz_write(const tn_tensor *t)
{
    int64_t  n = tn_tensor_count(t);
    unsigned width = t->dtype == TN_F64 ? 8 : 4;
    uint8_t *v = (uint8_t *)malloc((size_t)n * width + 1);
    size_t   at = 0;
    DEMAND(v && tn_read(t, t->dtype, v, n) == TN_OK);
    fuzz_put(&at, (t->dtype == TN_I32 ? 0x0Cu : t->dtype == TN_F32 ? 0x0Du : 0x0Eu) << 8 | (unsigned)t->rank, 4);
    for (int i = 0; i < t->rank; i++) fuzz_put(&at, (uint64_t)t->shape[i], 4);
    for (int64_t i = 0; i < n; i++) {
        uint64_t wide = 0;
        uint32_t narrow = 0;
        if (width == 8) memcpy(&wide, v + 8 * i, 8);
        else memcpy(&narrow, v + 4 * i, 4);
        fuzz_put(&at, wide | narrow, width);
    }
    free(v);
    return at;
}

static void fuzz_scaled(tn_ctx *ctx, const void *data, size_t n, double scale)
{
    tn_tensor *t = tn_idx_read(ctx, fuzz_source(data, n), scale);
    if (!t) { fuzz_failed(ctx); return; }
    DEMAND(scale == 0 || t->dtype == tn_ctx_dtype(ctx));
    size_t used = fuzz_write(t);
    if (used <= FUZZ_FILE) {
        tn_tensor *again = tn_idx_read(ctx, fuzz_source(fuzz_file, used), 0);
        DEMAND(again);
        fuzz_same(t, again);
        tn_tensor_destroy(again);
    }
    tn_tensor_destroy(t);
}

static void fuzz_read(tn_ctx *ctx, const void *data, size_t n)
{
    fuzz_scaled(ctx, data, n, 0);
    fuzz_scaled(ctx, data, n, 1 / 255.0);
}
