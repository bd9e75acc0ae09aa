#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "ops/inner.h"
#include "decomp/inner.h"
#include "layers/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- features ----------------------------------------------------------- >>analysis-features-impl */

tn_tensor *tn_cp_feature_interactions(const tn_cp *cp, const tn_tensor *u, const tn_tensor *d, const tn_tensor *moment)
{
    if (!tni_cp_is_bilinear(cp, "feature_interactions")) return NULL;
    tn_ctx *ctx = cp->ctx;
    if (!tni_is_matrix(ctx, d, "feature_interactions", "d")
        || !tni_is_vector(ctx, u, cp->out, "feature_interactions", "u")) return NULL;
    int64_t m = d->shape[0] + cp->constant;
    if (d->shape[1] != cp->in[0] - cp->constant)
        return tni_fail(ctx, TN_ERR_SHAPE, "feature_interactions: d is %s, expected %lld columns, the operator's inputs",
                        TNI_SHAPE(d), (long long)cp->in[0] - cp->constant), (tn_tensor *)NULL;
    if (moment && !tni_is_matrix(ctx, moment, "feature_interactions", "moment")) return NULL;
    if (moment && (moment->shape[0] != m || moment->shape[1] != m))
        return tni_fail(ctx, TN_ERR_SHAPE, "feature_interactions: moment is %s, expected [%lld,%lld]", TNI_SHAPE(moment),
                        (long long)m, (long long)m), (tn_tensor *)NULL;
    tni_scope  scope = tni_scope_begin(ctx);
    tn_tensor *t = tn_transpose(tni_view_of((tn_tensor *)d), 0, 1);
    tn_cp     *folded = t ? tn_cp_fold_in(cp, t, NULL) : NULL;
    tn_tensor *q = folded ? tn_cp_interaction(folded, u) : NULL;
    tn_cp_destroy(folded);
    if (q && moment) q = tni_tensor_done(q, tni_put_product(ctx, tni_view(q), tni_view(q), tni_view(moment), false));
    tni_scope_end(ctx, scope);
    return q;
}

/* |u_l - g * u_l|^2 = sum_h (1 - g_h)^2 u_hl^2,  g = W d */
tn_tensor *tn_feature_modification(tn_ctx *ctx, tn_tensor *w, tn_tensor *d, tn_tensor *u)
{
    if (!tni_is_real(ctx, w, "feature_modification", "w") || !tni_is_real(ctx, d, "feature_modification", "d")
        || !tni_is_real(ctx, u, "feature_modification", "u")) return NULL;
    if (w->rank != 2 || d->rank != 2 || u->rank != 2 || d->shape[1] != w->shape[1] || u->shape[0] != w->shape[0])
        return tni_fail(ctx, TN_ERR_SHAPE, "feature_modification: w is %s, d is %s, u is %s, expected [h,n], [m,n] and [h,l]",
                        TNI_SHAPE(w), TNI_SHAPE(d), TNI_SHAPE(u)), (tn_tensor *)NULL;
    tn_tensor *rest = tn_sub(ctx, tn_full(ctx, 0, NULL, 1), tn_affine(ctx, d, w, NULL));
    rest = rest ? tn_matmul(ctx, tn_mul(ctx, rest, rest), tn_mul(ctx, u, u)) : NULL;
    return rest ? tn_sqrt(ctx, rest) : NULL;
}

tn_tensor *tn_feature_basis(tn_ctx *ctx, const tn_tensor *w, const tn_tensor *x, int64_t count, bool independent)
{
    tn_svd_desc   sd = TNI_ZERO;
    tn_ica_desc   id = TNI_ZERO;
    tn_svd_result svd = TNI_ZERO;
    tn_ica_result ica = TNI_ZERO;
    tn_tensor    *u = NULL;
    if (!tni_is_matrix(ctx, w, "feature_basis", "w") || !tni_is_matrix(ctx, x, "feature_basis", "x")) return NULL;
    if (w->shape[1] != x->shape[1])
        return tni_fail(ctx, TN_ERR_SHAPE, "feature_basis: w is %s and x is %s, expected [h,n] and [rows,n]", TNI_SHAPE(w),
                        TNI_SHAPE(x)), (tn_tensor *)NULL;
    if (!tni_within(ctx, "feature_basis", "count", count, 0, INT64_MAX)) return NULL;
    tni_scope  scope = tni_scope_begin(ctx);
    tn_tensor *z = tn_affine(ctx, tni_view_of((tn_tensor *)x), tni_view_of((tn_tensor *)w), NULL);
    id.components = sd.top = count;
    if (z && !independent && tn_svd(ctx, tn_transpose(z, 0, 1), &sd, &svd) == TN_OK) u = svd.u;
    else if (z && independent && tn_ica(ctx, z, &id, &ica) == TN_OK)
        u = tn_div(ctx, ica.mixing, tn_sqrt(ctx, tn_sum_axis(ctx, tn_mul(ctx, ica.mixing, ica.mixing), 0)));
    u = u ? tn_tensor_keep(tn_copy(ctx, u)) : NULL;
    tni_scope_end(ctx, scope);
    tn_svd_destroy(&svd);
    tn_ica_destroy(&ica);
    return u;
}

/* Subtracts the mean of each column of v [rows,n] and scales it to length 1; one that is constant up to rounding becomes 0. */
static void tni_standardise(int64_t rows, int64_t n, double *v)
{
    for (int64_t j = 0; j < n; j++) {
        double mean = 0, size = 0, square = 0;
        for (int64_t i = 0; i < rows; i++) {
            mean += v[i * n + j] / (double)rows;
            size = tni_max_f64(size, fabs(v[i * n + j]));
        }
        const double unit = size > 0 ? 1 / size : 0;
        for (int64_t i = 0; i < rows; i++) {
            v[i * n + j] = (v[i * n + j] - mean) * unit;
            square += v[i * n + j] * v[i * n + j];
        }
        square = sqrt(square) > 1e-13 * sqrt((double)rows) ? 1 / sqrt(square) : 0;
        for (int64_t i = 0; i < rows; i++) v[i * n + j] *= square;
    }
}

tn_tensor *tn_feature_correlations(tn_ctx *ctx, const tn_tensor *a, const tn_tensor *b)
{
    if (!tni_is_matrix(ctx, a, "feature_correlations", "a") || !tni_is_matrix(ctx, b, "feature_correlations", "b")) return NULL;
    const int64_t rows = a->shape[0], m = a->shape[1], n = b->shape[1], shape[2] = {m, n};
    if (b->shape[0] != rows)
        return tni_fail(ctx, TN_ERR_SHAPE, "feature_correlations: a is %s and b is %s, expected as many rows in both",
                        TNI_SHAPE(a), TNI_SHAPE(b)), (tn_tensor *)NULL;
    tni_scratch w = tni_scratch_begin(ctx, "feature_correlations");
    tni_host    host = tni_take_host(&w, tni_max(rows, tni_max(m, n)));
    double     *x = tni_take_numbers(&w, a), *y = tni_take_numbers(&w, b), *c = tni_take_zeros(&w, m, n);
    tn_tensor  *t = NULL;
    if (!w.failed) {
        tni_standardise(rows, m, x);
        tni_standardise(rows, n, y);
        host.by->gemm(&host, m, n, rows, 1, tni_transposed(tni_rows(x, m)), tni_rows(y, n), 0, tni_rows(c, n));
        t = tni_owned_from(ctx, 2, shape, c);
    }
    tni_scratch_release(&w, NULL);
    return t;
}

/* act(z)/z, and the slope of act where z = 0 */
TNI_COLD_FN tn_tensor *tni_quotient_of_act(tn_ctx *ctx, const tn_tensor *a, const tn_tensor *z, double slope)
{
    const int64_t n = tn_tensor_count(z);
    tni_scratch   w = tni_scratch_begin(ctx, "mlp_modifier");
    tn_tensor    *m = tni_like(ctx, z);
    double       *act = m ? tni_take_numbers(&w, a) : NULL, *v = act ? tni_take_numbers(&w, z) : NULL;
    for (int64_t i = 0; v && i < n; i++) v[i] = v[i] != 0 ? act[i] / v[i] : slope;
    return tni_scratch_end(&w, v ? tn_write(m, TN_F64, v, n) : TN_ERR_MEMORY) == TN_OK ? m : NULL;
}

tn_tensor *tn_mlp_modifier(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x, tn_tensor **features)
{
    tn_tensor *m, *last;
    if (features) *features = NULL;
    if (!tni_layer_given(ctx, layer, "mlp_modifier") || !tni_usable(ctx, layer->w, "mlp_modifier", "w")) return NULL;
    const tn_mlp_desc *d = &layer->desc;
    int64_t e = layer->w->shape[0], h = layer->w->shape[1];
    tn_tensor *w = tn_reshape_2d(layer->w, e * h, layer->w->shape[2]);
    tn_tensor *b = tn_reshape(layer->b, 1, TNI_DIMS(-1));
    tn_tensor *z = w && (b || !layer->b) ? tn_affine(ctx, x, w, b) : NULL;
    if (!z) return NULL;
    if (e == 1) {
        const bool odd = d->kind == TN_MLP_RELU || d->kind == TN_MLP_RELU2;
        m = tni_mlp_hidden(ctx, d->kind, 1, z);
        m = m ? tni_quotient_of_act(ctx, m, z, odd ? 0 : d->kind == TN_MLP_BILINEAR ? 1 : 0.5) : NULL;
        last = z;
    } else {
        m = tn_slice(z, -1, 0, (e - 1) * h);
        if (m) m = d->kind == TN_MLP_BILINEAR ? tn_prod_parts(ctx, m, e - 1) : tni_mlp_act(ctx, d->kind, m);
        last = m ? tn_slice(z, -1, (e - 1) * h, e * h) : NULL;
        last = last ? tn_copy(ctx, last) : NULL;
    }
    if (m && last && features) *features = last;
    return last ? m : NULL;
}

/* ---- degree of nonlinearity --------------------------------------------- >>analysis-degree-impl */

tn_tensor *tn_mixed_difference(tn_ctx *ctx, tn_map_fn fn, const void *user, tn_tensor *x, int n,
                               tn_tensor *const *directions)
{
    tn_tensor *sum = NULL;
    if (!tni_is_real(ctx, x, "mixed_difference", "x")) return NULL;
    if (!tni_within(ctx, "mixed_difference", "n", n, 1, 8)) return NULL;
    if (!fn || !directions)
        return tni_fail(ctx, TN_ERR_ARG, "mixed_difference: %s is NULL", fn ? "directions" : "fn"), (tn_tensor *)NULL;
    for (int subset = 0; subset < 1 << n; subset++) {
        tn_tensor *at = x;
        int        size = 0;
        for (int i = 0; i < n && at; i++)
            if (subset >> i & 1) {
                at = tn_add(ctx, at, directions[i]);
                size++;
            }
        tn_tensor *y = at ? fn(ctx, user, at) : NULL;
        if (!y) return NULL;
        if (!sum) sum = n % 2 ? tn_scale(ctx, y, -1) : y;
        else sum = (n - size) % 2 ? tn_sub(ctx, sum, y) : tn_add(ctx, sum, y);
        if (!sum) return NULL;
    }
    return sum;
}

#endif /* TN_NO_ANALYSIS */
