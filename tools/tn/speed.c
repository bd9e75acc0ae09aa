/* speed.c - tn train: the speed of matrix products on this machine, and of a training relative to it */
#include "train.h"
#include <math.h>

/* Seconds per product of two n x n matrices: the fastest of three or more measurements of `runs` products, which take
   `least` seconds or more. The matrices are random: a GPU needs less power for constant ones, and is then faster than it
   can be with those of a model. */
static double time_products(tn_ctx *ctx, int64_t n, int runs, double least)
{
    double best = INFINITY, start = now();
    for (int turns = 0; turns < 3 || now() - start < least; turns++) {
        const int64_t shape[2] = {n, n};
        tn_ctx_reset(ctx);
        tn_tensor *a = tn_cast(ctx, tn_uniform(ctx, 2, shape, -1, 1), tn_ctx_activations(ctx));
        tn_tensor *b = tn_cast(ctx, tn_uniform(ctx, 2, shape, -1, 1), tn_ctx_activations(ctx));
        tn_ctx_sync(ctx);
        double from = now();
        for (int k = 0; k < runs; k++) {
            tn_mark mark = tn_arena_mark(ctx);
            tn_matmul(ctx, a, b);
            tn_arena_release(ctx, mark);
        }
        tn_ctx_sync(ctx);
        if ((now() - from) / runs < best) best = (now() - from) / runs;
    }
    return best;
}

/* The highest rate of a large product, with the run's threads and types. How large a device needs the matrices is found by
   trying each size three times; only the last one is measured for 50 ms. A size that fails is not counted; NaN if none
   works. */
double measure_peak(const tn_desc *desc)
{
    const bool host = desc->backend->host;
    tn_ctx    *ctx;
    double     rate = NAN, seconds = 0;
    char       why[256];
    tn_desc    silent = *desc;                        /* the run's own context says what there is to say */
    const char *what = host ? "processor" : "device";
    silent.log = NULL;
    tn_status status = tn_ctx_create(&silent, &ctx, why);
    if (status != TN_OK) {                            /* a missing device: creating the run's own context reports it */
        if (status == TN_ERR_MEMORY) warn("the speed of the %s could not be measured: %s", what, why);
        return NAN;
    }
    for (int64_t n = host ? 512 : 64; n <= (host ? 512 : 8192) && seconds < 2e-3; n *= 2) {
        const double until = now() + 0.05;
        seconds = time_products(ctx, n, host ? 1 : 8, 0);
        if ((seconds >= 2e-3 || n == 8192 || host) && now() < until)
            seconds = fmin(seconds, time_products(ctx, n, host ? 1 : 8, until - now()));
        if (tn_ctx_status(ctx) != TN_OK) break;
        rate = 2.0 * (double)n * (double)n * (double)n / seconds;
    }
    if (isnan(rate)) warn("the speed of the %s could not be measured: %s", what, tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return rate;
}

/* A measurement of a busy moment would be too low for good. */
double share_of_peak(run *r)
{
    const double speed = r->rate * r->flops;
    if (!(speed <= r->peak)) r->peak = speed;         /* also if no peak could be measured */
    return speed / r->peak;
}
