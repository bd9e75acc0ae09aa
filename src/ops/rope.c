#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

#ifndef TN_NO_SEQUENCES
/* ---- rope --------------------------------------------------- >>op-rope
   y = R_t x / |x|,  |x| = sqrt(mean_k x_k^2 + eps), or 1 without the norm
   R_t rotates (x_k, x_(k+h)), k < h = d/2, by the angle (first + t) r_k,  r_k = base^(-2k/d) (s + (1-s)/factor),
   s = (r context/(2 pi) - low)/(high - low), not below 0 or above 1; s = 1 without scaling
   dx += (g - x mean_k(g x) / |x|^2) / |x|,  g = R_t^T dy
   Su et al. 2021 */

#ifdef TNI_FIRST                        /* needed by both precisions: read with the first */

/* r_k, the angle per position of pair k. */
TNI_FN double tni_rope_rate(const tn_call *c, int64_t k, int64_t d)
{
    const double rate = pow(c->f[0], -2 * (double)k / (double)d), turns = rate * c->f[5] / 6.283185307179586477;
    double       s = c->f[5] > 0 ? (turns - c->f[3]) / (c->f[4] - c->f[3]) : 0;
    if (c->f[2] == 0) return rate;
    s = s < 0 ? 0 : s > 1 ? 1 : s;
    return rate * (s + (1 - s) / c->f[2]);
}

/* Cosine and sine of the angle of pair k in row t; 1 and 0 for pairs that are not rotated. */
static void tni_rope_angle(const tn_call *c, int64_t t, int64_t k, double *cosine, double *sine)
{
    const int64_t d = c->in[0].shape[3];
    double angle = c->i[1] || k >= d / 2 ? 0 : (double)(c->i[0] + t) * tni_rope_rate(c, k, d);
    *cosine = cos(angle);
    *sine = sin(angle);
}
#endif

/* 1/|x| */
static double TNI_T(rope_norm)(const tn_call *c, const TNI_REAL *x, int64_t d)
{
    double squares = 0;
    if (c->f[1] < 0) return 1;
    for (int64_t k = 0; k < d; k++) squares += (double)x[k] * (double)x[k];
    return 1 / sqrt(squares / (double)d + c->f[1]);
}

TNI_FN void TNI_T(rope)(const tn_call *c)
{
    const tn_view *X = &c->in[0];
    int64_t        d = X->shape[3], h = d / 2;
    for (int64_t b = 0; b < X->shape[0]; b++)
        for (int64_t t = 0; t < X->shape[1]; t++)
            for (int64_t n = 0; n < X->shape[2]; n++) {
                const TNI_REAL *x = TNI_ROW(X, b, t, n);
                TNI_REAL       *y = TNI_ROW(&c->out[0], b, t, n);
                double norm = TNI_T(rope_norm)(c, x, d), cosine, sine;
                for (int64_t k = 0; k < h; k++) {
                    tni_rope_angle(c, t, k, &cosine, &sine);
                    y[k] = (TNI_REAL)(norm * ((double)x[k] * cosine - (double)x[k + h] * sine));
                    y[k + h] = (TNI_REAL)(norm * ((double)x[k + h] * cosine + (double)x[k] * sine));
                }
                if (d % 2) y[d - 1] = (TNI_REAL)(norm * (double)x[d - 1]);
            }
}

/* Element k of R_t^T dy. */
static double TNI_T(rope_back)(const tn_call *c, const TNI_REAL *dy, int64_t t, int64_t k)
{
    const int64_t d = c->in[0].shape[3], h = d / 2;
    double cosine, sine;
    tni_rope_angle(c, t, k < 2 * h ? k % h : k, &cosine, &sine);
    if (k >= 2 * h) return (double)dy[k];
    return (double)dy[k] * cosine + (k < h ? (double)dy[k + h] : -(double)dy[k - h]) * sine;
}

TNI_FN void TNI_T(rope_backward)(const tn_call *c)
{
    const tn_view *X = &c->in[0];
    int64_t        d = X->shape[3];
    for (int64_t b = 0; b < X->shape[0]; b++)
        for (int64_t t = 0; t < X->shape[1]; t++)
            for (int64_t n = 0; n < X->shape[2]; n++) {
                const TNI_REAL *x = TNI_ROW(X, b, t, n), *dy = TNI_ROW(&c->in[1], b, t, n);
                TNI_REAL       *dx = TNI_ROW(&c->out[0], b, t, n);
                double norm = TNI_T(rope_norm)(c, x, d), dot = 0;
                for (int64_t k = 0; k < d && c->f[1] >= 0; k++) dot += TNI_T(rope_back)(c, dy, t, k) * (double)x[k];
                for (int64_t k = 0; k < d; k++) {
                    double v = TNI_T(rope_back)(c, dy, t, k);
                    if (c->f[1] >= 0) v = norm * (v - (double)x[k] * norm * norm * dot / (double)d);
                    dx[k] = (TNI_REAL)(c->accumulate ? (double)dx[k] + v : v);
                }
            }
}

#ifdef TNI_ONCE
/* A real operand [B,T,n,d] whose last axis has stride 1; otherwise a recorded copy of it. */
TNI_FN tn_tensor *tni_heads(tn_ctx *ctx, tn_tensor *t, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return NULL;
    if (t->rank != 4)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, expected four axes: batch, position, head, dimension", op, what,
                        TNI_SHAPE(t)), (tn_tensor *)NULL;
    return t->strides[3] == 1 || t->shape[3] <= 1 ? t : tn_copy(ctx, t);
}

static void tni_rope_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call c = tni_call(TN_KERNEL_ROPE_BACKWARD, "tt", n->in[0], n->out->grad);
    tni_node_give(n, &c);
    tni_run_grad(ctx, &c, n->in[0], 't');
}

/* The base, or the factor of the scaling. The angles are at most 2^63 / (base factor), which stays finite. */
TNI_FN bool tni_rope_number(tn_ctx *ctx, const char *op, const char *what, double x)
{
    if (x >= 1e-30 && x < HUGE_VAL) return true;
    return tni_fail(ctx, TN_ERR_ARG, "%s: %s is %g, expected a finite number >= 1e-30", op, what, x), false;
}

TNI_FN bool tni_rope_scaling_fits(tn_ctx *ctx, const char *op, const tn_rope_scaling *s)
{
    if (s->factor == 0 && s->low == 0 && s->high == 0 && s->context == 0) return true;
    if (!tni_rope_number(ctx, op, "factor of the scaling", s->factor)) return false;
    if (!(s->context >= 0 && s->context < HUGE_VAL))
        tni_fail(ctx, TN_ERR_ARG, "%s: context of the scaling is %g, expected 0 or more", op, s->context);
    else if (s->context > 0 && !(s->low >= 0 && s->high > s->low && s->high < HUGE_VAL))
        tni_fail(ctx, TN_ERR_ARG, "%s: low and high of the scaling are %g and %g, expected 0 <= low < high", op, s->low,
                 s->high);
    else return true;
    return false;
}

tn_tensor *tn_rope(tn_ctx *ctx, tn_tensor *x, const tn_rope_desc *desc)
{
    tn_rope_desc d = TNI_ZERO;
    tn_tensor   *y;
    if (desc) d = *desc;
    if (!(x = tni_heads(ctx, x, "rope", "x")) || !tni_is_eps(ctx, d.eps, "rope")) return NULL;
    if (d.base == 0) d.base = 10000;
    if (d.eps == 0) d.eps = 1e-6;
    if (!tni_rope_number(ctx, "rope", "base", d.base)) return NULL;
    if (d.first > INT64_MAX - x->shape[1])
        return tni_fail(ctx, TN_ERR_ARG, "rope: first is %lld, expected at most 2^63 - 1 less the %lld positions of x",
                        (long long)d.first, (long long)x->shape[1]), (tn_tensor *)NULL;
    if (!tni_rope_scaling_fits(ctx, "rope", &d.scaling)) return NULL;
    if (d.no_rotation && !d.norm) return x;
    if (!(y = tni_made(ctx, 4, x->shape))) return NULL;
    tn_call c = tni_call(TN_KERNEL_ROPE, "t:t", x, y);
    c.f[0] = d.base;
    c.f[1] = d.norm ? d.eps : -1;
    c.f[2] = d.scaling.factor;
    c.f[3] = d.scaling.low;
    c.f[4] = d.scaling.high;
    c.f[5] = d.scaling.context;
    c.i[0] = d.first;
    c.i[1] = d.no_rotation;
    return tni_recorded(ctx, &c, tni_rope_backward, y, x, NULL, NULL, NULL);
}
#endif
#endif /* TN_NO_SEQUENCES */

#define TNI_AGAIN "ops/rope.c"
#include "ops/again.h"
