/* speed.c - tn train: how fast this machine multiplies matrices, which "of peak" in the progress line refers to */
#include "train.h"
#include <math.h>

/* The fastest of several turns of `runs` products n x n x n, in seconds a product. The numbers are drawn: a GPU that
   multiplies equal ones needs less power, and is faster than it ever is with a model's. */
static double time_products(tn_ctx *ctx, int64_t n, int runs)
{
    double best = INFINITY, start = now();
    int    turns, k;
    for (turns = 0; turns < 3 || now() - start < 0.05; turns++) {
        const int64_t shape[2] = {n, n};
        tn_tensor    *a, *b;
        double        from;
        tn_ctx_reset(ctx);
        a = tn_cast(ctx, tn_uniform(ctx, 2, shape, -1, 1), tn_ctx_activations(ctx));
        b = tn_cast(ctx, tn_uniform(ctx, 2, shape, -1, 1), tn_ctx_activations(ctx));
        tn_ctx_sync(ctx);
        from = now();
        for (k = 0; k < runs; k++) {
            tn_mark mark = tn_arena_mark(ctx);
            tn_matmul(ctx, a, b);
            tn_arena_release(ctx, mark);
        }
        tn_ctx_sync(ctx);
        if ((now() - from) / runs < best) best = (now() - from) / runs;
    }
    return best;
}

/* The best rate of a large product, with the run's threads and numbers. How large a device wants it, one sees by trying.
   One that fails is not fast: NaN if there is no other. */
double measure_peak(const tn_desc *desc)
{
    const bool host = desc->backend->host;
    int64_t    n;
    tn_ctx    *ctx;
    double     rate = NAN, seconds = 0;
    char       why[256];
    tn_status  status = tn_ctx_create(&ctx, desc, why);
    const char *what = host ? "processor" : "device";
    if (status != TN_OK) {                            /* for want of the device: the run's own context will say so */
        if (status == TN_ERR_MEMORY) warn("the speed of the %s could not be measured: %s", what, why);
        return NAN;
    }
    for (n = host ? 512 : 64; n <= (host ? 512 : 8192) && seconds < 2e-3; n *= 2) {
        seconds = time_products(ctx, n, host ? 1 : 8);
        if (tn_ctx_status(ctx) != TN_OK) break;
        rate = 2.0 * (double)n * (double)n * (double)n / seconds;
    }
    if (isnan(rate)) warn("the speed of the %s could not be measured: %s", what, tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return rate;
}
