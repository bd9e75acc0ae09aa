#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"

/* ---- the reference backend's one entry ----------------------- >>reference */
TNI_FN tn_status tni_reference_run(void *state, const tn_call *c)
{
#ifdef TN_NO_F64
#define TNI_X(ENUM, name) {tni_f32_##name, NULL},
#define TNI_UNCALLED(ENUM, name) {0 ? tni_f32_##name : NULL, NULL},
#else
#define TNI_X(ENUM, name) {tni_f32_##name, tni_f64_##name},
#define TNI_UNCALLED(ENUM, name) {0 ? tni_f32_##name : NULL, 0 ? tni_f64_##name : NULL},
#endif
#define TNI_NONE(ENUM, name) {NULL, NULL},
    static void (*const row[][2])(const tn_call *) = { TNI_KERNELS(TNI_X, TNI_UNCALLED, TNI_NONE) };
#undef TNI_X
#undef TNI_UNCALLED
#undef TNI_NONE
    int i, wide = 0;
    (void)state;
#ifndef TN_NO_F64
    for (i = 0; i < c->n_in; i++) wide |= c->in[i].dtype == TN_F64;
    for (i = 0; i < c->n_out; i++) wide |= c->out[i].dtype == TN_F64;
#else
    (void)i;
#endif
    if (!row[c->kernel][wide]) return TN_ERR_BACKEND;
    row[c->kernel][wide](c);
    return TN_OK;
}

/* ---- composed kernels ----------------------------------------- >>compose
   Kernels that a backend may leave out, made from simpler ones. Fused kernels are also tested against them. */
static tn_view tni_half_view(tn_view x, int which)               /* columns [0,h) or [h,2h) of [R,2h] */
{
    x.shape[1] /= 2;
    x.data = (char *)x.data + which * x.shape[1] * (int64_t)tni_dtype_size(x.dtype);
    return x;
}

TNI_FN tn_status tni_run_views(tn_ctx *ctx, tn_kernel kernel, const tn_view *a, const tn_view *b, const tn_view *out,
                               int64_t i0, bool add)
{
    tn_call c = tni_call(kernel, "");
    c.in[c.n_in++] = *a;
    if (b) c.in[c.n_in++] = *b;
    c.out[c.n_out++] = *out;
    c.f[0] = 1;
    c.i[0] = i0;
    c.accumulate = add;
    return tni_run(ctx, &c);
}

/* act of the left half: copied to a contiguous tensor, then computed in place */
static tn_status tni_compose_gate(tn_ctx *ctx, const tn_view *x, int64_t kind, tn_tensor **copy, tn_tensor **gate)
{
    tn_view left = tni_half_view(*x, 0);
    *copy = tn_tensor_2d(ctx, x->dtype, left.shape[0], left.shape[1]);
    *gate = tn_tensor_2d(ctx, x->dtype, left.shape[0], left.shape[1]);
    if (!*copy || !*gate) return TN_ERR_MEMORY;
    tn_view v = tni_view(*copy);
    if (tni_run_views(ctx, TN_KERNEL_COPY, &left, NULL, &v, 0, false) != TN_OK) return TN_ERR_BACKEND;
    {
        tn_view from = tni_flat_view(*copy), to = tni_flat_view(*gate);
        return tni_run_views(ctx, TN_KERNEL_ACT, &from, NULL, &to, kind, false);
    }
}

static tn_status tni_compose_glu(tn_ctx *ctx, const tn_call *call)
{
    tn_tensor *copy, *gate;
    tn_view    right = tni_half_view(call->in[0], 1);
    tn_status  s = tni_compose_gate(ctx, &call->in[0], call->i[0], &copy, &gate);
    if (s != TN_OK) return s;
    tn_view v = tni_view(gate);
    return tni_run_views(ctx, TN_KERNEL_MUL, &v, &right, &call->out[0], 0, false);
}

#ifndef TN_NO_TRAINING
static tn_status tni_compose_glu_backward(tn_ctx *ctx, const tn_call *call)
{
    const tn_view *dy = &call->in[1];
    tn_tensor     *copy, *gate;
    tn_view        right = tni_half_view(call->in[0], 1), da = tni_half_view(call->out[0], 0),
                   db = tni_half_view(call->out[0], 1);
    tn_status      s = tni_compose_gate(ctx, &call->in[0], call->i[0], &copy, &gate);
    if (s != TN_OK) return s;
    tn_tensor *product = tni_like(ctx, copy);
    if (!product) return TN_ERR_MEMORY;
    tn_view v = tni_view(gate);
    s = tni_run_views(ctx, TN_KERNEL_MUL, dy, &v, &db, 0, call->accumulate);
    v = tni_view(product);
    if (s == TN_OK) s = tni_run_views(ctx, TN_KERNEL_MUL, dy, &right, &v, 0, false);
    tn_view flat_x = tni_flat_view(copy), flat_dy = tni_flat_view(product);
    tn_view flat_out = tni_flat_view(gate);      /* no longer needed: act' * dy is stored there */
    if (s == TN_OK) s = tni_run_views(ctx, TN_KERNEL_ACT_BACKWARD, &flat_x, &flat_dy, &flat_out, call->i[0], false);
    v = tni_view(gate);
    if (s == TN_OK) s = tni_run_views(ctx, TN_KERNEL_ADD, &v, NULL, &da, 0, call->accumulate);
    return s;
}
#endif

#if !defined(TN_NO_TRAINING) && !defined(TN_NO_SEQUENCES)
/* For each s a product of matrices: of what is left of a core times phi[s], and of what is right of it */
static tn_status tni_compose_scan_cores(tn_ctx *ctx, const tn_call *call)
{
    const tn_view *phi = &call->in[1];
    const int64_t  b = phi->shape[0], n = phi->shape[1], S = phi->shape[2], d = call->in[0].shape[2];
    const int64_t  size = (int64_t)tni_dtype_size(call->out[0].dtype);
    tn_view        left = call->in[call->i[0] ? 2 : 0], right = call->in[call->i[0] ? 0 : 2];
    tn_view        out = call->out[0], by = *phi;
    tn_tensor     *product;
    tn_status      s;
    int64_t        shape[4] = {b, n, S, d};
    if (!(product = tn_tensor_nd(ctx, left.dtype, 4, shape))) return TN_ERR_MEMORY;
    right.data = (char *)right.data + d * size;
    left.shape[1] = right.shape[1] = n;
    left.rank = by.rank = 4;                                 /* [b,n,1,d] * [b,n,s,1] */
    left.shape[2] = S; left.shape[3] = by.shape[3] = d;
    left.strides[2] = by.strides[3] = 0; left.strides[3] = 1;
    tn_view from = tni_view(product);
    if ((s = tni_run_views(ctx, TN_KERNEL_MUL, &left, &by, &from, 0, false)) != TN_OK) return s;
    from.rank = out.rank = 3;                                /* for each s: [n,d,b], or [1,d,b n], and out [n,d,d] */
    from.shape[1] = out.shape[2] = d;
    from.strides[1] = out.strides[2] = 1;
    if (out.shape[0] == 1) {
        tn_tensor *flat;
        shape[2] = d;
        if (!(flat = tn_tensor_nd(ctx, right.dtype, 3, shape))) return TN_ERR_MEMORY;
        left = tni_view(flat);
        if ((s = tni_run_views(ctx, TN_KERNEL_COPY, &right, NULL, &left, 0, false)) != TN_OK) return s;
        right = left;
        right.shape[0] = from.shape[0] = 1;
        right.shape[1] = from.shape[2] = b * n;
        from.strides[2] = S * d;
    } else {
        int64_t i = right.strides[1];
        right.strides[1] = right.strides[0]; right.strides[0] = i;
        right.shape[0] = from.shape[0] = n;
        right.shape[1] = from.shape[2] = b;
        from.strides[0] = S * d;
        from.strides[2] = n * S * d;
    }
    for (int64_t i = 0; i < S && s == TN_OK; i++) {
        s = tni_gemm(ctx, from, right, NULL, out, 1, call->accumulate ? 1 : 0);
        from.data = (char *)from.data + d * size;
        out.data = (char *)out.data + d * size;
    }
    return s;
}
#endif

/* s = x + branch, then its norm */
static tn_status tni_compose_residual_rmsnorm(tn_ctx *ctx, const tn_call *call)
{
    tn_call   norm = *call;
    tn_status s;
    norm.kernel = TN_KERNEL_ADD;
    norm.n_in = 2;
    norm.n_out = 1;
    norm.f[0] = norm.f[1] = 1;
    if ((s = tni_run(ctx, &norm)) != TN_OK) return s;
    norm.kernel = TN_KERNEL_RMSNORM;
    norm.n_out = 2;
    norm.in[0] = call->out[0];
    norm.in[1] = call->in[2];
    norm.out[0] = call->out[1];
    norm.out[1] = call->out[2];
    norm.f[0] = call->f[0];
    norm.f[1] = 0;
    return tni_run(ctx, &norm);
}

TNI_FN bool tni_compose(tn_ctx *ctx, const tn_call *call, tn_status *s)
{
    switch (call->kernel) {
    case TN_KERNEL_RESIDUAL_RMSNORM: *s = tni_compose_residual_rmsnorm(ctx, call); return true;
    case TN_KERNEL_GLU:          *s = tni_compose_glu(ctx, call); return true;
#ifndef TN_NO_TRAINING
    case TN_KERNEL_GLU_BACKWARD: *s = tni_compose_glu_backward(ctx, call); return true;
#ifndef TN_NO_SEQUENCES
    case TN_KERNEL_SCAN_CORES:   *s = tni_compose_scan_cores(ctx, call); return true;
#endif
#endif
    default: return false;
    }
}
