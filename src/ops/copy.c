#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- copy, fill ------------------------------------------ >>op-copy
   y = x, from any dtype to any dtype, with any strides            dx += dy */
TNI_FN void TNI_T(copy)(const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    tni_walk w;
    for (bool more = tni_walk_begin(&w, x, y, NULL); more; more = tni_walk_next(&w))
        for (int64_t i = 0; i < w.inner; i++)
            tni_store(y->data, y->dtype, w.offset[1] + i * w.step[1],
                      tni_load(x->data, x->dtype, w.offset[0] + i * w.step[0]));
}

TNI_FN void TNI_T(fill)(const tn_call *c)
{
    const tn_view *y = &c->out[0];
    tni_walk w;
    for (bool more = tni_walk_begin(&w, y, NULL, NULL); more; more = tni_walk_next(&w))
        for (int64_t i = 0; i < w.inner; i++) tni_store(y->data, y->dtype, w.offset[0] + i * w.step[0], c->f[0]);
}

TNI_FN void TNI_T(tick)(const tn_call *c)
{
    *(int32_t *)c->out[0].data = (int32_t)((uint32_t)*(int32_t *)c->out[0].data + (uint32_t)c->i[0]);
}

#ifdef TNI_ONCE
static void tni_copy_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call c = tni_call(TN_KERNEL_ADD, "t", n->out->grad);
    c.f[0] = 1;
    tni_run_grad(ctx, &c, n->in[0], 't');
}

tn_tensor *tn_copy(tn_ctx *ctx, tn_tensor *a)
{
    if (!tni_usable(ctx, a, "copy", "a")) return NULL;
    tn_tensor *y = tni_like(ctx, a);
    if (!y || tni_copy(y, a) != TN_OK) return NULL;
    tni_note(ctx, tni_copy_backward, y, a, NULL, NULL);
    return y;
}

/* A real operand; a strided view is replaced by a recorded contiguous copy. */
TNI_NOINLINE TNI_FN tn_tensor *tni_contiguous(tn_ctx *ctx, tn_tensor *t, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return NULL;
    return tn_tensor_is_contiguous(t) ? t : tn_copy(ctx, t);
}

tn_tensor *tn_cast(tn_ctx *ctx, tn_tensor *a, tn_dtype dtype)
{
    if (!tni_usable(ctx, a, "cast", "a") || !tni_dtype_known(ctx, "cast", "dtype", &dtype)) return NULL;
    if (dtype == a->dtype) return tn_copy(ctx, a);
    tn_tensor *y = tn_tensor_nd(ctx, dtype, a->rank, a->shape);
    if (!y || tni_copy(y, a) != TN_OK) return NULL;
    if (tni_computes(ctx, a->dtype) && tni_computes(ctx, dtype)) tni_note(ctx, tni_copy_backward, y, a, NULL, NULL);
    return y;
}

tn_tensor *tn_full(tn_ctx *ctx, int rank, const int64_t *shape, double value)
{
    if (ctx && !tni_holds(ctx, ctx->desc.dtype, "full", "value", value)) return NULL;
    tn_tensor *y = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    return y && tni_fill(y, value) == TN_OK ? y : NULL;
}

tn_tensor *tn_eye(tn_ctx *ctx, int64_t n)
{
    if (ctx && n < 0) return tni_fail(ctx, TN_ERR_SHAPE, "eye: n is %lld, expected 0 or more", (long long)n), (tn_tensor *)NULL;
    tn_tensor *y = tn_full(ctx, 2, TNI_DIMS(n, n), 0);
    if (!y || n == 0) return y;
    tn_tensor *diagonal = tni_view_of(y);
    if (!diagonal) return NULL;
    diagonal->rank = 1;
    diagonal->strides[0] = n + 1;
    return tni_fill(diagonal, 1) == TN_OK ? y : NULL;
}
#endif

/* ---- uniform, normal ------------------------------------- >>op-random
   u = (w + 1/2) 2^-23 of a Philox word; normals from pairs (u,v): sqrt(-2 ln u) (cos, sin)(2 pi v)
   Box & Muller 1958 */
TNI_FN void TNI_T(uniform)(const tn_call *c)
{
    TNI_REAL *y = (TNI_REAL *)c->out[0].data;
    uint32_t  clock = (uint32_t)*(const int32_t *)c->in[0].data, word[4] = {0, 0, 0, 0};
    int64_t   n = c->out[0].shape[0];
    for (int64_t e = 0; e < n; e++) {
        if (e % 4 == 0) tni_random_words((uint64_t)c->i[0], c->i[1], clock, (uint64_t)(c->i[2] + e / 4), word);
        y[e] = (TNI_REAL)(c->f[0] + (c->f[1] - c->f[0]) * (double)tni_unit(word[e % 4]));
    }
}

TNI_FN void TNI_T(normal)(const tn_call *c)
{
    TNI_REAL *y = (TNI_REAL *)c->out[0].data;
    uint32_t  clock = (uint32_t)*(const int32_t *)c->in[0].data, word[4] = {0, 0, 0, 0};
    int64_t   n = c->out[0].shape[0];
    for (int64_t e = 0; e < n; e++) {
        if (e % 4 == 0) tni_random_words((uint64_t)c->i[0], c->i[1], clock, (uint64_t)(c->i[2] + e / 4), word);
        double u = sqrt(-2 * log((double)tni_unit(word[e % 4 & 2])));
        double v = 6.283185307179586 * (double)tni_unit(word[(e % 4) | 1]);
        y[e] = (TNI_REAL)(c->f[0] + c->f[1] * u * (e % 2 == 0 ? cos(v) : sin(v)));
    }
}

#ifdef TNI_ONCE
TNI_FN tn_tensor *tni_random(tn_ctx *ctx, tn_kernel kernel, int rank, const int64_t *shape, double f0, double f1,
                             bool of_batch)
{
    tn_tensor *y = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    if (!y) return NULL;
    tn_call c = tni_call(kernel, ":t", y);
    c.out[0] = tni_flat_view(y);
    c.f[0] = f0;
    c.f[1] = f1;
    tni_random_call(ctx, &c, 0);
    return (of_batch ? tni_run_at_position(ctx, &c) : tni_run(ctx, &c)) == TN_OK ? y : NULL;
}

tn_tensor *tn_uniform(tn_ctx *ctx, int rank, const int64_t *shape, double low, double high)
{
    if (ctx && (!tni_holds(ctx, ctx->desc.dtype, "uniform", "low", low)
                || !tni_holds(ctx, ctx->desc.dtype, "uniform", "high", high))) return NULL;
    return tni_random(ctx, TN_KERNEL_UNIFORM, rank, shape, low, high, false);
}

tn_tensor *tn_normal(tn_ctx *ctx, int rank, const int64_t *shape, double mean, double std)
{
    if (ctx && (!tni_holds(ctx, ctx->desc.dtype, "normal", "mean", mean)
                || !tni_holds(ctx, ctx->desc.dtype, "normal", "std", std))) return NULL;
    return tni_random(ctx, TN_KERNEL_NORMAL, rank, shape, mean, std, false);
}
#endif

#define TNI_AGAIN "ops/copy.c"
#include "ops/again.h"
