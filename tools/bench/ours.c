/* What the benchmark needs of the library's contexts. */
#define _GNU_SOURCE
#include "bench.h"
#include "core/inner.h"
#include "layers/inner.h"

#include <stdio.h>
#include <stdlib.h>

void bench_check(tn_ctx *ctx)
{
    if (tn_ctx_status(ctx) == TN_OK) return;
    fprintf(stderr, "bench: %s\n", tn_ctx_error(ctx));
    exit(1);
}

tn_ctx *bench_ctx(tn_dtype dtype, int threads)
{
    static tn_ctx *made[2][65];
    tn_ctx **ctx = &made[dtype == TN_F64][threads];
    char     why[256];
    tn_desc  desc = { .dtype = dtype, .threads = threads, .seed = 1 };
    if (!*ctx && tn_ctx_create(&desc, ctx, why) != TN_OK) {
        fprintf(stderr, "bench: %s\n", why);
        exit(1);
    }
    return *ctx;
}

static void no_gain(void *user, tn_log_level level, const char *message)
{
    (void)level; (void)message;
    *(bool *)user = true;
}

/* The library says in its log, once and when the context opens, where the processor gains nothing by a precision. */
tn_ctx *bench_ctx_by(tn_gemm_precision precision, tn_dtype activations, int threads)
{
    static struct { tn_ctx *ctx; bool none; } made[TN_GEMM_TF32 + 1][2][3];
    tn_ctx **ctx = &made[precision][activations == TN_BF16][threads].ctx;
    bool    *none = &made[precision][activations == TN_BF16][threads].none;
    char     why[TN_WHY];
    tn_desc  desc = { .threads = threads, .seed = 1, .gemm_precision = precision, .activations = activations,
                      .log = no_gain, .log_user = none };
    if (!*ctx && tn_ctx_create(&desc, ctx, why) != TN_OK) {
        fprintf(stderr, "bench: %s\n", why);
        exit(1);
    }
    return *none ? NULL : *ctx;
}

void bench_fresh(tn_params *params)
{
    for (int64_t i = 0; i < params->count; i++) params->item[i]->value->grad->flags &= ~(uint32_t)TNI_ZEROED;
}

void *bench_state(tn_ctx *ctx) { return ctx->state; }
void  bench_region(tn_ctx *ctx, int64_t tasks, tn_task_fn fn, void *arg) { tni_parallel_for(&ctx->pool, tasks, fn, arg); }

tn_tensor *bench_normal(tn_ctx *ctx, int rank, const int64_t *shape, double std)
{
    tn_tensor *t = tn_tensor_keep(tn_normal(ctx, rank, shape, 0, std));
    bench_check(ctx);
    tn_ctx_reset(ctx);
    return t;
}
