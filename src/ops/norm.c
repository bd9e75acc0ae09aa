#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- rmsnorm ---------------------------------------------- >>op-rmsnorm
   y[n,c]   = x[n,c] r[n] w[c]      r[n] = 1/sqrt(mean_c x^2 + eps)
   dw[c]   += sum_n dy x r
   dx[n,c] += r (w dy - x r^2 mean_c(w dy x))         saves r[n]
   Zhang & Sennrich 2019 */
TNI_FN void TNI_T(rmsnorm)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *w = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data, *r = (TNI_REAL *)c->out[1].data;
    int64_t         R = c->out[0].shape[0], C = c->out[0].shape[1];
    for (int64_t n = 0; n < R; n++, x += C, y += C) {
        double squares = 0;
        for (int64_t j = 0; j < C; j++) squares += (double)x[j] * (double)x[j];
        double scale = 1 / sqrt(squares / (double)C + c->f[0]);
        r[n] = (TNI_REAL)scale;
        for (int64_t j = 0; j < C; j++) y[j] = (TNI_REAL)((double)x[j] * scale * (w ? (double)w[j] : 1));
    }
}

/* Sums over rows are kept in double; this is the number of columns summed at once. */
#ifdef TNI_FIRST                        /* needed by both precisions: read with the first */
enum { TNI_NORM_COLUMNS = 1024 };
#endif

/* dx of row n */
TNI_FN void TNI_T(rmsnorm_dx)(const tn_call *c, int64_t n)
{
    const int64_t   C = c->in[0].shape[1];
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data + n * C, *w = (const TNI_REAL *)c->in[1].data;
    const TNI_REAL *dy = (const TNI_REAL *)c->in[3].data + n * C;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data + n * C;
    double          scale = (double)((const TNI_REAL *)c->in[2].data)[n], dot = 0;
    for (int64_t j = 0; j < C; j++) dot += (w ? (double)w[j] : 1) * (double)dy[j] * (double)x[j];
    for (int64_t j = 0; j < C; j++) {
        double v = scale * ((w ? (double)w[j] : 1) * (double)dy[j] - (double)x[j] * scale * scale * dot / (double)C);
        dx[j] = (TNI_REAL)(c->accumulate ? (double)dx[j] + v : v);
    }
}

TNI_FN void TNI_T(rmsnorm_backward)(const tn_call *c)
{
    const TNI_REAL *r = (const TNI_REAL *)c->in[2].data;
    TNI_REAL       *dw = c->n_out > 1 ? (TNI_REAL *)c->out[1].data : NULL;
    double          sum[TNI_NORM_COLUMNS];
    int64_t         last, R = c->in[0].shape[0], C = c->in[0].shape[1];
    for (int64_t n = 0; c->out[0].data && n < R; n++) TNI_T(rmsnorm_dx)(c, n);
    for (int64_t first = 0; dw && first < C; first = last) {
        last = tni_min(first + TNI_NORM_COLUMNS, C);
        for (int64_t j = first; j < last; j++) sum[j - first] = (double)dw[j];
        for (int64_t n = 0; n < R; n++) {
            const TNI_REAL *x = (const TNI_REAL *)c->in[0].data + n * C, *dy = (const TNI_REAL *)c->in[3].data + n * C;
            for (int64_t j = first; j < last; j++) sum[j - first] += (double)dy[j] * (double)x[j] * (double)r[n];
        }
        for (int64_t j = first; j < last; j++) dw[j] = (TNI_REAL)sum[j - first];
    }
}

#ifdef TNI_ONCE
static void tni_rmsnorm_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *dx = tni_grad(n->in[0], &add), *dw = n->in[1] ? tni_grad_to_add(n->in[1]) : NULL;
    tn_call    c = tni_call(TN_KERNEL_RMSNORM_BACKWARD, "rttr", n->in[0], n->in[1], n->saved[0], n->out->grad);
    if (dx) c.out[0] = tni_rows_view(dx);
    c.n_out = 2;
    c.accumulate = add;
    if (dx && dw && tni_root(dx) == tni_root(dw)) {    /* gain and x share memory: a kernel must not write it twice */
        tni_run(ctx, &c);
        c.out[0].data = NULL;
    }
    if (dw) c.out[1] = tni_view(dw);
    tni_run(ctx, &c);
}

/* A desc may be checked before there is a context, and so a dtype. */
TNI_FN bool tni_is_eps(tn_ctx *ctx, double eps, const char *op)
{
    const tn_dtype dtype = ctx ? ctx->desc.dtype : TN_F64;
    if (eps == 0 || (eps >= tni_dtype_least(dtype) && eps <= tni_dtype_most(dtype))) return true;
    return tni_fail(ctx, TN_ERR_ARG, "%s: eps is %g, expected 0, or from %g to %g in %s", op, eps, tni_dtype_least(dtype),
                    tni_dtype_most(dtype), tn_dtype_name(dtype)), false;
}

tn_tensor *tn_rmsnorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *gain, double eps)
{
    if (!(x = tni_contiguous(ctx, x, "rmsnorm", "x")) || !tni_is_eps(ctx, eps, "rmsnorm")) return NULL;
    if (gain && !(gain = tni_contiguous(ctx, gain, "rmsnorm", "gain"))) return NULL;
    if (!tni_has_columns(ctx, x, "rmsnorm") || !tni_fits_columns(ctx, x, gain, "rmsnorm", "gain")) return NULL;
    tn_tensor *y = tni_made(ctx, x->rank, x->shape);
    tn_tensor *r = y ? tn_tensor_1d(ctx, TN_REAL, tni_rows_view(x).shape[0]) : NULL;
    if (!r) return NULL;
    tn_call c = tni_call(TN_KERNEL_RMSNORM, "rt:rt", x, gain, y, r);
    c.f[0] = eps;
    return tni_recorded(ctx, &c, tni_rmsnorm_backward, y, x, gain, NULL, r);
}
#endif

/* ---- residual_rmsnorm ----------------------------- >>op-residual_rmsnorm
   s = x + branch, rounded to its dtype, and y = rmsnorm(s) as above, in one pass over memory. The tape has an addition and
   a norm, so the backward pass needs no kernel of its own: RMSNORM_BACKWARD adds to the gradient of s, whose bytes the
   addition then passes on to x and branch. */
TNI_FN void TNI_T(residual_rmsnorm)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *branch = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *s = (TNI_REAL *)c->out[0].data;
    int64_t         n = c->out[0].shape[0] * c->out[0].shape[1];
    tn_call         norm = *c;
    for (int64_t i = 0; i < n; i++) s[i] = (TNI_REAL)((double)x[i] + (double)branch[i]);
    norm.in[0] = c->out[0];
    norm.in[1] = c->in[2];
    norm.out[0] = c->out[1];
    norm.out[1] = c->out[2];
    TNI_T(rmsnorm)(&norm);
}

#ifdef TNI_ONCE
tn_tensor *tn_residual_rmsnorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *branch, tn_tensor *gain, double eps, tn_tensor **sum)
{
    if (sum) *sum = NULL;
    if (!(x = tni_contiguous(ctx, x, "residual_rmsnorm", "x"))
        || !(branch = tni_contiguous(ctx, branch, "residual_rmsnorm", "branch")) || !tni_is_eps(ctx, eps, "residual_rmsnorm")
        || (gain && !(gain = tni_contiguous(ctx, gain, "residual_rmsnorm", "gain")))) return NULL;
    if (!tni_same_shape(x, branch))
        return tni_fail(ctx, TN_ERR_SHAPE, "residual_rmsnorm: branch is %s, expected %s as x", TNI_SHAPE(branch), TNI_SHAPE(x)),
               (tn_tensor *)NULL;
    if (!tni_has_columns(ctx, x, "residual_rmsnorm") || !tni_fits_columns(ctx, x, gain, "residual_rmsnorm", "gain"))
        return NULL;
    tn_tensor *s = tni_made(ctx, x->rank, x->shape);
    tn_tensor *y = s ? tni_made(ctx, x->rank, x->shape) : NULL;
    tn_tensor *r = y ? tn_tensor_1d(ctx, TN_REAL, tni_rows_view(x).shape[0]) : NULL;
    if (!r) return NULL;
    tn_call c = tni_call(TN_KERNEL_RESIDUAL_RMSNORM, "rrt:rrt", x, branch, gain, s, y, r);
    c.f[0] = eps;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    tni_node *n = tni_note(ctx, tni_add_backward, s, x, branch, NULL);
    if (n) n->f[0] = n->f[1] = 1;
    n = tni_note(ctx, tni_rmsnorm_backward, y, s, gain, NULL);
    if (n) n->saved[0] = r;
    if (sum) *sum = s;
    return y;
}
#endif

/* ---- layernorm --------------------------------------------- >>op-layernorm
   z[n,c]   = (x[n,c] - mean_c x) r[n]     r[n] = 1/sqrt(mean_c (x - mean_c x)^2 + eps)     y = z w[c] + b[c]
   dw[c]   += sum_n dy z        db[c] += sum_n dy
   dx[n,c] += r (w dy - mean_c(w dy) - z mean_c(w dy z))         saves r[n]
   The variance is computed from differences, not as mean x^2 - mean^2, and the mean of the differences, a rounding error,
   is subtracted: so rows with a large mean and a small deviation keep their digits (Chan, Golub & LeVeque 1983).
   Ba, Kiros & Hinton 2016 */
static double TNI_T(row_mean)(const TNI_REAL *x, int64_t C, double *rest)
{
    double sum = 0, left = 0;
    for (int64_t j = 0; j < C; j++) sum += (double)x[j];
    sum /= (double)C;
    for (int64_t j = 0; j < C; j++) left += (double)x[j] - sum;
    *rest = left / (double)C;
    return sum;
}

TNI_FN void TNI_T(layernorm)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *w = (const TNI_REAL *)c->in[1].data,
                   *b = (const TNI_REAL *)c->in[2].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data, *r = (TNI_REAL *)c->out[1].data;
    int64_t         R = c->out[0].shape[0], C = c->out[0].shape[1];
    for (int64_t n = 0; n < R; n++, x += C, y += C) {
        double rest, mean = TNI_T(row_mean)(x, C, &rest), squares = 0;
        for (int64_t j = 0; j < C; j++) squares += ((double)x[j] - mean - rest) * ((double)x[j] - mean - rest);
        double scale = 1 / sqrt(squares / (double)C + c->f[0]);
        r[n] = (TNI_REAL)scale;
        for (int64_t j = 0; j < C; j++)
            y[j] = (TNI_REAL)(((double)x[j] - mean - rest) * scale * (w ? (double)w[j] : 1) + (b ? (double)b[j] : 0));
    }
}

/* dx of row n, whose mean is known */
static void TNI_T(layernorm_dx)(const tn_call *c, int64_t n, double mean, double rest)
{
    const int64_t   C = c->in[0].shape[1];
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data + n * C, *w = (const TNI_REAL *)c->in[1].data;
    const TNI_REAL *dy = (const TNI_REAL *)c->in[3].data + n * C;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data + n * C;
    double          scale = (double)((const TNI_REAL *)c->in[2].data)[n], sum = 0, dot = 0;
    for (int64_t j = 0; j < C; j++) {
        double d = (double)dy[j], z = ((double)x[j] - mean - rest) * scale;
        if (w) d *= (double)w[j];
        sum += d;
        dot += d * z;
    }
    for (int64_t j = 0; j < C; j++) {
        double z = ((double)x[j] - mean - rest) * scale;
        double v = scale * ((w ? (double)w[j] : 1) * (double)dy[j] - sum / (double)C - z * dot / (double)C);
        dx[j] = (TNI_REAL)(c->accumulate ? (double)dx[j] + v : v);
    }
}

TNI_FN void TNI_T(layernorm_backward)(const tn_call *c)
{
    const TNI_REAL *r = (const TNI_REAL *)c->in[2].data;
    TNI_REAL       *dw = (TNI_REAL *)c->out[1].data, *db = (TNI_REAL *)c->out[2].data;
    double          w_sum[TNI_NORM_COLUMNS], b_sum[TNI_NORM_COLUMNS];
    int64_t         last, R = c->in[0].shape[0], C = c->in[0].shape[1];
    for (int64_t first = 0; first < C && (first == 0 || dw || db); first = last) {
        last = tni_min(first + TNI_NORM_COLUMNS, C);
        for (int64_t j = first; j < last; j++) {
            w_sum[j - first] = dw ? (double)dw[j] : 0;
            b_sum[j - first] = db ? (double)db[j] : 0;
        }
        for (int64_t n = 0; n < R; n++) {
            const TNI_REAL *x = (const TNI_REAL *)c->in[0].data + n * C, *dy = (const TNI_REAL *)c->in[3].data + n * C;
            double          rest, mean = TNI_T(row_mean)(x, C, &rest);
            if (first == 0 && c->out[0].data) TNI_T(layernorm_dx)(c, n, mean, rest);
            for (int64_t j = first; j < last && (dw || db); j++) {
                w_sum[j - first] += (double)dy[j] * (((double)x[j] - mean - rest) * (double)r[n]);
                b_sum[j - first] += (double)dy[j];
            }
        }
        for (int64_t j = first; dw && j < last; j++) dw[j] = (TNI_REAL)w_sum[j - first];
        for (int64_t j = first; db && j < last; j++) db[j] = (TNI_REAL)b_sum[j - first];
    }
}

#ifdef TNI_ONCE
static void tni_layernorm_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *g[3];
    tn_view    all[3] = TNI_ZERO;
    tn_call    c = tni_call(TN_KERNEL_LAYERNORM_BACKWARD, "rttr", n->in[0], n->in[1], n->saved[0], n->out->grad);
    bool       apart = false;
    for (int k = 0; k < 3; k++) {
        g[k] = k == 0 ? tni_grad(n->in[0], &add) : n->in[k] ? tni_grad_to_add(n->in[k]) : NULL;
        all[k].dtype = n->out->dtype;
        if (!g[k]) continue;
        all[k] = k == 0 ? tni_rows_view(g[k]) : tni_view(g[k]);
        for (int j = 0; j < k; j++) apart = apart || (g[j] && tni_root(g[j]) == tni_root(g[k]));
    }
    c.n_out = 3;
    c.accumulate = add;
    memcpy(c.out, all, sizeof all);
    if (!apart) tni_run(ctx, &c);
    for (int k = 0; apart && k < 3; k++) { /* two gradients share memory: a kernel must not write it twice */
        if (!g[k]) continue;
        for (int j = 0; j < 3; j++) c.out[j].data = j == k ? all[k].data : NULL;
        tni_run(ctx, &c);
    }
}

tn_tensor *tn_layernorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *gain, tn_tensor *bias, double eps)
{
    if (!(x = tni_contiguous(ctx, x, "layernorm", "x")) || !tni_is_eps(ctx, eps, "layernorm")) return NULL;
    if (gain && !(gain = tni_contiguous(ctx, gain, "layernorm", "gain"))) return NULL;
    if (bias && !(bias = tni_contiguous(ctx, bias, "layernorm", "bias"))) return NULL;
    if (!tni_has_columns(ctx, x, "layernorm") || !tni_fits_columns(ctx, x, gain, "layernorm", "gain")
        || !tni_fits_columns(ctx, x, bias, "layernorm", "bias")) return NULL;
    tn_tensor *y = tni_made(ctx, x->rank, x->shape);
    tn_tensor *r = y ? tn_tensor_1d(ctx, TN_REAL, tni_rows_view(x).shape[0]) : NULL;
    if (!r) return NULL;
    tn_call c = tni_call(TN_KERNEL_LAYERNORM, "rtt:rt", x, gain, bias, y, r);
    c.f[0] = eps;
    return tni_recorded(ctx, &c, tni_layernorm_backward, y, x, gain, bias, r);
}
#endif

#define TNI_AGAIN "ops/norm.c"
#include "ops/again.h"
