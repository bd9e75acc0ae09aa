#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/layers.h"
#include "optim/inner.h"

#ifndef TN_NO_TRAINING
/* ---- Muon --------------------------------------------------------------- >>optim-muon
   Let x = U S V^T be the momentum over its Frobenius norm. The odd polynomial a x + b x x^T x + c (x x^T)^2 x keeps U and
   V and maps each singular value s to a s + b s^3 + c s^5. After five such steps, with coefficients that are steep at zero,
   all singular values that were above about 1/500 are between 0.68 and 1.21. The update is then about U V^T, the nearest
   matrix with orthonormal rows or columns. A matrix with more rows than columns is transposed. The iteration: Bernstein &
   Newhouse 2024; the coefficients, Nesterov's momentum as an average, its warm-up and the scale by shape: Jordan et al.
   2024, github.com/KellerJordan/Muon and /modded-nanogpt; the other scale: Liu et al. 2025, arXiv 2502.16982. */

/* How many elements of each part of the workspace a parameter needs. */
static void tni_muon_extents(const tn_tensor *t, int64_t want[4])
{
    int64_t least = tni_min(t->shape[t->rank - 1], t->shape[t->rank - 2]);
    want[0] = want[1] = tn_tensor_count(t);
    want[2] = want[3] = want[0] > 0 ? want[0] / tni_max(t->shape[t->rank - 1], t->shape[t->rank - 2]) * least : 0;
}

TNI_FN tn_status tni_muon_alloc(tn_optim *o)
{
    int64_t most[4] = {0, 0, 0, 0}, want[4];
    for (int64_t i = 0; i < o->of.params->count; i++) {
        const tn_param *p = o->of.params->item[i];
        if (!tni_optim_updates(p) || tni_optim_rule(o, p) != TN_OPTIM_MUON) continue;
        tni_muon_extents(p->value, want);
        for (int k = 0; k < 4; k++) most[k] = tni_max(most[k], want[k]);
    }
    for (int k = 0; k < 4; k++) {
        if (most[k] == 0 || (o->work[k] && tn_tensor_count(o->work[k]) >= most[k])) continue;
        tn_tensor_destroy(o->work[k]);
        o->work[k] = tn_tensor_create(o->owned.ctx, TN_REAL, 1, &most[k]);
        if (!o->work[k]) return TN_ERR_MEMORY;
    }
    return TN_OK;
}

/* Both are contiguous, with the same order of axes. */
static tn_status tni_muon_copy(tn_ctx *ctx, tn_view to, const tn_view *from)
{
    tn_call c = tni_call(TN_KERNEL_COPY, "");
    to.rank = 1;
    to.shape[0] *= to.shape[1] * to.shape[2];
    to.strides[0] = 1;
    c.in[c.n_in++] = c.out[c.n_out++] = to;
    c.in[0].data = from->data;
    return tni_run(ctx, &c);
}

/* x <- a x + (b G + c G G) x with G = x x^T; the result is in y. */
static tn_status tni_muon_polynomial(tn_ctx *ctx, const tn_view *x, const tn_view *y, const tn_view *gram,
                                     const tn_view *poly)
{
    const double a = 3.4445, b = -4.7750, c = 2.0315;
    tn_status s = tni_gemm(ctx, *x, tni_transposed_view(*x), NULL, *gram, 1, 0);
    if (s == TN_OK) s = tni_muon_copy(ctx, *poly, gram);
    if (s == TN_OK) s = tni_gemm(ctx, *gram, *gram, NULL, *poly, c, b);
    if (s == TN_OK) s = tni_muon_copy(ctx, *y, x);
    return s == TN_OK ? tni_gemm(ctx, *poly, *x, NULL, *y, 1, a) : s;
}

/* A view with the same shape and strides in another tensor. */
static tn_view tni_muon_view(tn_view like, const tn_tensor *in)
{
    like.data = in->data;
    return like;
}

static tn_view tni_muon_square(const tn_view *x, const tn_tensor *in)
{
    tn_view v = tni_muon_view(*x, in);
    tni_view_shape(&v, 3, TNI_DIMS(x->shape[0], x->shape[1], x->shape[1]));
    return v;
}

static double tni_muon_scale(tn_muon_scale kind, double rows, double columns)
{
    double wide = rows > columns ? rows : columns;
    return kind == TN_MUON_SCALE_RMS ? 0.2 * sqrt(wide) : rows > columns ? sqrt(rows / columns) : 1;
}

TNI_FN tn_status tni_muon_update(tn_optim *o, int64_t i)
{
    const tn_param *p = o->of.params->item[i];
    tn_ctx         *ctx = o->owned.ctx;
    tn_view         x = tni_batch_view(p->value), whole = x;
    tn_call         c = tni_call(TN_KERNEL_MUON_BEGIN, "t", o->scalars);
    int             k;
    if (tn_tensor_count(p->value) == 0) return TN_OK;
    tni_view_shape(&whole, 2, TNI_DIMS(x.shape[0], x.shape[1] * x.shape[2]));
    c.out[c.n_out++] = tni_muon_view(whole, o->work[0]);
    c.out[c.n_out++] = tni_muon_view(whole, p->value->grad);
    c.out[c.n_out++] = tni_muon_view(whole, o->state[i].m[0]);
    c.f[0] = o->desc.momentum_warmup > 0 ? -1 : o->desc.momentum;         /* -1: it changes from step to step */
    c.f[1] = 1;
    tn_status s = tni_run(ctx, &c);
    c = tni_call(TN_KERNEL_MUON_END, "t", o->scalars);
    c.f[0] = tni_muon_scale(o->desc.muon_scale, (double)x.shape[1], (double)x.shape[2]);
    if (x.shape[1] > x.shape[2]) x = tni_transposed_view(x);
    x = tni_muon_view(x, o->work[0]);
    tn_view y = tni_muon_view(x, o->work[1]), gram = tni_muon_square(&x, o->work[2]);
    tn_view poly = tni_muon_square(&x, o->work[3]);
    for (k = 0; k < o->desc.newton_schulz && s == TN_OK; k++)
        s = k % 2 == 0 ? tni_muon_polynomial(ctx, &x, &y, &gram, &poly) : tni_muon_polynomial(ctx, &y, &x, &gram, &poly);
    tni_in_flat(&c, p->value);
    c.in[1].data = k % 2 == 0 ? x.data : y.data;
    tni_out_flat(&c, p->value);
    if (tni_shadow_holds(p->value)) c.out[c.n_out++] = tni_shadow_view(p->value);
    c.f[3] = tni_optim_decay(o, p);
    c.f[4] = tni_optim_rate(o, p);
    return s == TN_OK ? tni_run(ctx, &c) : s;
}

#endif /* TN_NO_TRAINING */
