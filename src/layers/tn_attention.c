#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "decomp/decomp.h"
#include "layers/inner.h"

#ifndef TN_NO_MPS
/* ---- TN attention ------------------------------------------------------- >>tn-attention-impl */

/* A tensor with another shape of up to four axes; one with gaps is copied. */
static tn_tensor *tni_shaped(tn_ctx *ctx, tn_tensor *t, int rank, int64_t s0, int64_t s1, int64_t s2, int64_t s3)
{
    int64_t shape[4] = {s0, s1, s2, s3};
    if (t && !tn_tensor_is_contiguous(t)) t = tn_copy(ctx, t);
    return tn_reshape(t, rank, shape);
}

static tn_status tni_tna_check(tn_params *ps, const char *name, tn_tn_attention_desc *d)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_status s = tni_layer_extents(ps, "tn_attention", name, "in", d->in, "bond", d->bond);
    if (s != TN_OK) return s;
    if (d->out == 0) d->out = d->in;
    if (!tni_is_extent(d->out) || d->sites < 0 || d->sites >= INT32_MAX)
        return tni_fail(ctx, TN_ERR_SHAPE, "tn_attention%s%s: %s is %lld, expected 0 to 2^31 - 2", TNI_NAMED(name),
                        tni_is_extent(d->out) ? "sites" : "out", (long long)(tni_is_extent(d->out) ? d->sites : d->out));
    if ((unsigned)d->boundary > TN_BOUNDARY_FIRST)
        return tni_fail(ctx, TN_ERR_ARG, "tn_attention%s%s: boundary is %d, not a valid tn_boundary", TNI_NAMED(name),
                        (int)d->boundary);
#ifdef TN_NO_OPERATOR
    if (d->boundary == TN_BOUNDARY_DOMINANT)
        return tni_fail(ctx, TN_ERR_ARG, "tn_attention%s%s: boundary is TN_BOUNDARY_DOMINANT, expected another one: with "
                        "TN_NO_OPERATOR there are no eigenvectors", TNI_NAMED(name));
#endif
    if (d->causal && d->boundary == TN_BOUNDARY_CLOSED)
        return tni_fail(ctx, TN_ERR_ARG, "tn_attention%s%s: causal is true, expected false with a closed boundary, a ring",
                        TNI_NAMED(name));
    if ((unsigned)d->act > TN_ACT_LOG || (unsigned)d->norm > TN_ROW_NORM_L2)
        return tni_fail(ctx, TN_ERR_ARG, "tn_attention%s%s: %s is %d, not a valid %s", TNI_NAMED(name),
                        (unsigned)d->act > TN_ACT_LOG ? "act" : "norm",
                        (unsigned)d->act > TN_ACT_LOG ? (int)d->act : (int)d->norm,
                        (unsigned)d->act > TN_ACT_LOG ? "tn_act" : "tn_row_norm");
    if (!(d->leak == 0 || (d->act == TN_ACT_RELU && fabs(d->leak) < HUGE_VAL)))
        return tni_fail(ctx, TN_ERR_ARG, "tn_attention%s%s: leak is %g, expected a finite number, and 0 unless act is "
                        "TN_ACT_RELU", TNI_NAMED(name), d->leak);
    if (!(d->scale == 0 || (d->unit_weights && d->scale > 0 && d->scale < HUGE_VAL)))
        return tni_fail(ctx, TN_ERR_ARG, "tn_attention%s%s: scale is %g, expected a positive number, and 0 without "
                        "unit_weights", TNI_NAMED(name), d->scale);
    if (d->residual && d->out != d->in)
        return tni_fail(ctx, TN_ERR_SHAPE, "tn_attention%s%s: out is %lld, expected in = %lld with a residual",
                        TNI_NAMED(name), (long long)d->out, (long long)d->in);
    if (!tni_is_eps(ctx, d->eps, "tn_attention")) return TN_ERR_ARG;
    if (d->eps == 0) d->eps = 1e-20;
    if (d->scale == 0) d->scale = sqrt((double)d->in);
    return TN_OK;
}

/* A[:,:,0] of each site becomes its symmetric part: a matrix whose eigenvalues are real. */
static bool tni_tna_symmetric(tn_tn_attention *layer)
{
    const int64_t D = layer->desc.bond, count = tn_tensor_count(layer->a);
    const int64_t inner = layer->desc.in * (layer->desc.square ? layer->desc.in : 1);
    tni_scratch   w = tni_scratch_begin(layer->a->ctx, "tn_attention");
    double       *v = tni_take_numbers(&w, layer->a);
    for (int64_t site = 0; v && site < count / (D * D * inner); site++)
        for (int64_t i = 0; i < D; i++)
            for (int64_t j = 0; j < i; j++) {
                double *upper = v + ((site * D + j) * D + i) * inner, *lower = v + ((site * D + i) * D + j) * inner;
                *upper = *lower = (*upper + *lower) / 2;
            }
    return tni_scratch_end(&w, v ? tn_write(layer->a, TN_F64, v, count) : TN_ERR_MEMORY) == TN_OK;
}

TNI_COLD tn_status tn_tn_attention_init(tn_params *ps, const char *name, const tn_tn_attention_desc *desc, tn_tn_attention *layer)
{
    int64_t       shape[5], before = tn_params_count(ps);
    int           rank = 0;
    tn_status     s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "tn_attention: layer or desc is NULL");
    tn_tn_attention_desc d = *desc;                         /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if ((s = tni_tna_check(ps, name, &d)) != TN_OK) return s;
    layer->desc = d;
    tn_init a = tni_init_or(d.init_a, TN_INIT_NORMAL, d.bond);
    tn_init b = tni_init_or(d.init_b, TN_INIT_NORMAL, d.bond);
    if (d.sites > 0) shape[rank++] = d.sites;
    shape[rank] = shape[rank + 1] = d.bond;
    shape[rank + 2] = shape[rank + 3] = d.in;
    bool whole = (layer->a = tni_layer_param(ps, name, "a", rank + 3 + d.square, shape, a, true)) != NULL;
    shape[rank + 2] = d.out;
    if (whole) whole = (layer->b = tni_layer_param(ps, name, "b", rank + 4, shape, b, true)) != NULL;
    if (whole && d.boundary == TN_BOUNDARY_VECTORS)
        whole = (layer->left = tni_layer_vector(ps, name, "left", d.bond, a)) != NULL
                && (layer->right = tni_layer_vector(ps, name, "right", d.bond, a)) != NULL;
    if (whole && d.residual) whole = (layer->r = tni_attention_constant(ps, name, "r", 1, 1)) != NULL;
    if (whole && d.bias) whole = (layer->bias = tni_attention_constant(ps, name, "bias", d.out, 0)) != NULL;
    if (whole && d.boundary == TN_BOUNDARY_DOMINANT && d.init_a.rule == TN_INIT_DEFAULT) whole = tni_tna_symmetric(layer);
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

static bool tni_tna_given(tn_ctx *ctx, const tn_tn_attention *layer, const tn_tensor *x)
{
    if (!tni_layer_given(ctx, layer, "tn_attention") || !tni_usable(ctx, layer->a, "tn_attention", "a")
        || !tni_is_real(ctx, x, "tn_attention", "x")) return false;
    const tn_tn_attention_desc *d = &layer->desc;
    if (x->rank == 3 && x->shape[2] == d->in && (d->sites == 0 || x->shape[1] == d->sites)) return true;
    if (d->sites == 0)
        tni_fail(ctx, TN_ERR_SHAPE, "tn_attention: x is %s, expected [batch,sites,%lld]", TNI_SHAPE(x), (long long)d->in);
    else
        tni_fail(ctx, TN_ERR_SHAPE, "tn_attention: x is %s, expected [batch,%lld,%lld]", TNI_SHAPE(x), (long long)d->sites,
                 (long long)d->in);
    return false;
}

/* x / |x| over the last axis */
static tn_tensor *tni_tna_unit(tn_ctx *ctx, tn_tensor *x, double eps)
{
    x = x ? tn_rmsnorm(ctx, x, NULL, eps) : NULL;
    return x ? tn_scale(ctx, x, 1 / sqrt((double)x->shape[x->rank - 1])) : NULL;
}

/* What the matrices are linear in: x, or x (x) x.   [B,n,d] -> [B,n,s] */
static tn_tensor *tni_tna_features(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x)
{
    const tn_tn_attention_desc *d = &layer->desc;
    if (d->unit_inputs) x = tni_tna_unit(ctx, x, d->eps);
    if (!x || !d->square) return x;
    x = tn_mul(ctx, tni_shaped(ctx, x, 4, x->shape[0], x->shape[1], d->in, 1),
               tni_shaped(ctx, x, 4, x->shape[0], x->shape[1], 1, d->in));
    return x ? tni_shaped(ctx, x, 3, x->shape[0], x->shape[1], d->in * d->in, 1) : NULL;
}

/* Rows of x times w, one w for all sites or one each.   x [B,n,m], w [1 or n,m,k] -> [B,n,k] */
static tn_tensor *tni_tna_times(tn_ctx *ctx, tn_tensor *x, tn_tensor *w)
{
    if (!x || !w) return NULL;
    int64_t b = x->shape[0], n = x->shape[1], k = w->shape[2];
    if (w->shape[0] == n && n != 1) return tn_transpose(tn_matmul(ctx, tn_transpose(x, 0, 1), w), 0, 1);
    x = tni_shaped(ctx, x, 2, b * n, x->shape[2], 1, 1);
    return tni_shaped(ctx, tn_matmul(ctx, x, tni_shaped(ctx, w, 2, w->shape[1], k, 1, 1)), 3, b, n, k, 1);
}

/* B as matrices that take an environment E[a,b], flattened, to W: [1 or n,D D,out d]; transposed: one of E[b,a]. */
static tn_tensor *tni_tna_b(tn_ctx *ctx, const tn_tn_attention *layer, bool transposed)
{
    const tn_tn_attention_desc *d = &layer->desc;
    const int64_t sites = d->sites > 0 ? d->sites : 1;
    tn_tensor    *b = tni_shaped(ctx, layer->b, 4, sites, d->bond, d->bond, d->out * d->in);
    return tni_shaped(ctx, transposed ? tn_transpose(b, 1, 2) : b, 3, sites, d->bond * d->bond, d->out * d->in, 1);
}

#ifndef TN_NO_OPERATOR
/* The eigenvector of M for its largest eigenvalue l, from the left (v M = l v) or the right (M w = l w), of length 1 and
   with v.w > 0. The numbers come from the host. The step v + (v M - l v) (l - M)^#, which changes rounding errors only, gives
   them the exact gradient dv = v dM (l - M)^#. Here (l - M)^# is the inverse without l's own directions, of l - M + P minus
   the projector P = w v / (v.w). */
static tn_tensor *tni_tna_eigenvector(tn_ctx *ctx, tn_tensor *m, const tn_eig_result *e, bool right)
{
    const int64_t   n = m->shape[0], count = n * n, shape[2] = {n, n};
    tni_scratch     host = tni_scratch_begin(ctx, "tn_attention");
    double          value = 0, vw = 0, *a = tni_take_f64(&host, n, n), *p = tni_take_f64(&host, n, n);
    double         *v = tni_take_f64(&host, n, 1), *w = tni_take_f64(&host, n, 1);
    tn_tensor      *k = NULL;
    tn_lstsq_result inverse;
    if (host.failed) return tni_scratch_end(&host, TN_ERR_MEMORY), (tn_tensor *)NULL;
    if (right) m = tn_transpose(m, 0, 1);
    tn_tensor *first = tn_slice(tn_slice(right ? e->right : e->left, 0, 0, 1), 1, 0, 1);
    if (tn_read(m, TN_F64, a, count) == TN_OK && tn_read(first, TN_F64, v, n) == TN_OK
        && tn_read(tn_slice(tn_slice(right ? e->left : e->right, 0, 0, 1), 1, 0, 1), TN_F64, w, n) == TN_OK
        && tn_read(tn_slice(tn_slice(e->values, 0, 0, 1), 1, 0, 1), TN_F64, &value, 1) == TN_OK) {
        for (int64_t i = 0; i < n; i++) vw += v[i] * w[i];
        for (int64_t i = 0; i < count; i++) {
            p[i] = w[i / n] * v[i % n] / vw;
            a[i] = p[i] - a[i] + (i / n == i % n ? value : 0);
        }
        k = tn_tensor_from(ctx, 2, shape, TN_F64, a);
    }
    if (k && tn_lstsq(ctx, k, tn_eye(ctx, n), NULL, &inverse) == TN_OK) {
        k = tn_sub(ctx, inverse.x, tn_tensor_from(ctx, 2, shape, TN_F64, p));
        tn_lstsq_destroy(&inverse);
    } else k = NULL;
    tni_scratch_end(&host, TN_OK);
    first = k ? tni_shaped(ctx, tn_copy(ctx, first), 2, 1, n, 1, 1) : NULL;     /* e is destroyed before the backward pass */
    tn_tensor *move = first ? tn_sub(ctx, tn_matmul(ctx, first, m), tn_scale(ctx, first, value)) : NULL;
    return move ? tni_tna_unit(ctx, tn_add(ctx, first, tn_matmul(ctx, move, k)), 0) : NULL;
}

static bool tni_tna_is_simple(tn_ctx *ctx, const tn_eig_result *e)
{
    double  v[4] = {0, 0, 0, 0};
    int64_t count = 2 * tni_min(e->values->shape[0], 2);
    if (tn_read(tn_slice(e->values, 0, 0, count / 2), TN_F64, v, count) != TN_OK) return false;
    if (v[1] != 0)
        return tni_fail(ctx, TN_ERR_ARG, "tn_attention: the dominant eigenvalues of A[:,:,0] are %g +- %gi, expected a real "
                        "one: TN_BOUNDARY_FIRST and TN_BOUNDARY_VECTORS need none", v[0], fabs(v[1])), false;
    if (fabs(v[0]) - hypot(v[2], v[3]) > 1e-9 * fabs(v[0])) return true;
    return tni_fail(ctx, TN_ERR_ARG, "tn_attention: the eigenvalues of A[:,:,0] have the magnitudes %g and %g, expected one "
                    "above all others: TN_BOUNDARY_FIRST and TN_BOUNDARY_VECTORS need none", fabs(v[0]),
                    hypot(v[2], v[3])), false;
}

/* The boundary vector of A[:,:,0] of the first site (or the last, from the right). */
static tn_tensor *tni_tna_dominant(tn_ctx *ctx, const tn_tn_attention *layer, bool right)
{
    const tn_tn_attention_desc *d = &layer->desc;
    const int64_t sites = d->sites > 0 ? d->sites : 1, site = right ? sites - 1 : 0, s = d->in * (d->square ? d->in : 1);
    tn_tensor    *m = tni_shaped(ctx, layer->a, 4, sites, d->bond, d->bond, s), *v = NULL;
    tn_eig_result e;
    tn_eig_desc all = TNI_ZERO;
    all.left = true;
    m = tn_slice(tn_slice(m, 0, site, site + 1), 3, 0, 1);
    m = tni_shaped(ctx, m, 2, d->bond, d->bond, 1, 1);
    if (!m || tn_eig(ctx, m, &all, &e) != TN_OK) return NULL;
    if (tni_tna_is_simple(ctx, &e)) v = tni_tna_eigenvector(ctx, m, &e, right);
    tn_eig_destroy(&e);
    return v;
}
#endif

/* vL or vR as a row [1,D] */
TNI_FN tn_tensor *tni_tna_boundary(tn_ctx *ctx, const tn_tn_attention *layer, bool right)
{
    const int64_t D = layer->desc.bond;
    tn_tensor    *v = right ? layer->right : layer->left;
#ifndef TN_NO_OPERATOR
    if (layer->desc.boundary == TN_BOUNDARY_DOMINANT) return tni_tna_dominant(ctx, layer, right);
#endif
    return v ? tn_reshape_2d(v, 1, D) : tn_slice(tn_eye(ctx, D), 0, 0, 1);
}

/* An array [B,n,..] that begins or ends with `extra` [B,1,..] in place of its last or first site. */
static tn_tensor *tni_tna_shifted(tn_ctx *ctx, tn_tensor *t, tn_tensor *extra, bool begins)
{
    const int64_t n = t ? t->shape[1] : 0;
    tn_tensor    *pair[2];
    if (!t || !extra) return NULL;
    pair[!begins] = extra;
    pair[begins] = begins ? tn_slice(t, 1, 0, n - 1) : tn_slice(t, 1, 1, n);
    return tn_concat(ctx, 2, pair, 1);
}

/* W(j) [B,n,out d] at a closed boundary: the trace of L B R is the sum of (R L)[b,a] B[a,b]. *logs [B,n]: of its scale. */
static tn_tensor *tni_tna_closed(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *u, tn_tensor **logs)
{
    const tn_tn_attention_desc *d = &layer->desc;
    const int64_t b = u->shape[0], n = u->shape[1], D = d->bond, sites = d->sites > 0 ? d->sites : 1, s = u->shape[2];
    const int64_t unit[4] = {b, 1, D, D};
    tn_tensor    *l_logs, *r_logs;
    tn_tensor    *m = tn_transpose(tni_shaped(ctx, layer->a, 3, sites, D * D, s, 1), 1, 2);
    m = tni_shaped(ctx, tni_tna_times(ctx, u, m), 4, b, n, D, D);
    tn_tensor *l = tn_scan(ctx, m, false, &l_logs);
    tn_tensor *r = l ? tn_scan(ctx, m, true, &r_logs) : NULL;
    if (!r) return NULL;
    tn_tensor *none = tn_full(ctx, 2, unit, 0);
    tn_tensor *eye = tn_add(ctx, tn_full(ctx, 4, unit, 0), tn_eye(ctx, D));
    *logs = tn_add(ctx, tni_tna_shifted(ctx, l_logs, none, true), tni_tna_shifted(ctx, r_logs, none, false));
    tn_tensor *environment = tn_matmul(ctx, tni_tna_shifted(ctx, r, eye, false), tni_tna_shifted(ctx, l, eye, true));
    return tni_tna_times(ctx, tni_shaped(ctx, environment, 3, b, n, D * D, 1), tni_tna_b(ctx, layer, true));
}

/* The open chain of cores [1 or n,D,s,D] from a row v [1,D] or rows [B,D]: [B,n+1,D] */
static tn_tensor *tni_tna_chain(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *u, tn_tensor *v, bool reverse,
                                tn_tensor **logs)
{
    const tn_tn_attention_desc *d = &layer->desc;
    tn_tensor *cores = tni_shaped(ctx, layer->a, 4, d->sites > 0 ? d->sites : 1, d->bond, d->bond, u->shape[2]);
    if (v && v->shape[0] == 1) v = tni_shaped(ctx, v, 1, d->bond, 1, 1, 1);
    return tn_scan_states(ctx, v, tn_copy(ctx, tn_transpose(cores, 2, 3)), u, reverse, logs);
}

/* W(j) [B,n,out d] at an open boundary: L(j) gives a row l, R(j) a column r, and W is the sum of l[a] r[b] B[a,b]. */
static tn_tensor *tni_tna_open(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *u, tn_tensor **logs)
{
    const int64_t b = u->shape[0], n = u->shape[1], D = layer->desc.bond;
    tn_tensor    *l_logs, *r_logs;
    tn_tensor    *l = tni_tna_chain(ctx, layer, u, tni_tna_boundary(ctx, layer, false), false, &l_logs);
    tn_tensor    *r = l ? tni_tna_chain(ctx, layer, u, tni_tna_boundary(ctx, layer, true), true, &r_logs) : NULL;
    if (!r) return NULL;
    *logs = tn_add(ctx, tn_slice(l_logs, 1, 0, n), tn_slice(r_logs, 1, 1, n + 1));
    tn_tensor *environment = tn_mul(ctx, tni_shaped(ctx, tn_slice(l, 1, 0, n), 4, b, n, D, 1),
                                    tni_shaped(ctx, tn_slice(r, 1, 1, n + 1), 4, b, n, 1, D));
    return tni_tna_times(ctx, tni_shaped(ctx, environment, 3, b, n, D * D, 1), tni_tna_b(ctx, layer, false));
}

/* The same where R(j) = 1, from rows v [1 or B,D]; *l [B,n+1,D] and *logs [B,n+1] are all left contexts. */
static tn_tensor *tni_tna_causal(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *u, tn_tensor *v, tn_tensor **l,
                                 tn_tensor **logs)
{
    const tn_tn_attention_desc *d = &layer->desc;
    const int64_t n = u ? u->shape[1] : 0, sites = d->sites > 0 ? d->sites : 1;
    tn_tensor    *right = u ? tni_tna_boundary(ctx, layer, true) : NULL;
    *l = NULL;
    if (!right) return NULL;
    tn_tensor *w = tn_mul(ctx, tni_shaped(ctx, layer->b, 4, sites, d->bond, d->bond, d->out * d->in),
                          tni_shaped(ctx, right, 2, d->bond, 1, 1, 1));
    w = w ? tn_sum_axis(ctx, w, 2) : NULL;
    *l = w ? tni_tna_chain(ctx, layer, u, v, false, logs) : NULL;
    return *l ? tni_tna_times(ctx, tn_slice(*l, 1, 0, n), w) : NULL;
}

/* W(j) with its scale and activation: [B,n,out,d]. logs [B,n] */
static tn_tensor *tni_tna_scaled(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *w, tn_tensor *logs)
{
    const tn_tn_attention_desc *d = &layer->desc;
    const int64_t b = w->shape[0], n = w->shape[1];
    if (d->unit_weights) w = tn_scale(ctx, tni_tna_unit(ctx, w, d->eps), d->scale);
    else w = tn_mul(ctx, w, tni_shaped(ctx, tn_exp(ctx, logs), 3, b, n, 1, 1));
    if (d->act == TN_ACT_RELU && d->leak != 0)          /* leak w + (1 - leak) relu(w) */
        w = tn_add(ctx, tn_scale(ctx, w, d->leak), tn_scale(ctx, tn_activation(ctx, w, TN_ACT_RELU), 1 - d->leak));
    else if (d->act != TN_ACT_NONE) w = tn_activation(ctx, w, d->act);
    return tni_shaped(ctx, w, 4, b, n, d->out, d->in);
}

static tn_tensor *tni_tna_weights(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x)
{
    const tn_tn_attention_desc *d = &layer->desc;
    const int64_t n = x->shape[1];
    tn_tensor    *u, *w, *logs = NULL;
    if (n == 0) return tn_full(ctx, 4, TNI_DIMS(x->shape[0], 0, d->out, d->in), 0);
    if (!(u = tni_tna_features(ctx, layer, x))) return NULL;
    if (d->causal) {
        tn_tensor *l;
        w = tni_tna_causal(ctx, layer, u, tni_tna_boundary(ctx, layer, false), &l, &logs);
        if (w) logs = tn_slice(logs, 1, 0, n);
    } else if (d->boundary == TN_BOUNDARY_CLOSED) w = tni_tna_closed(ctx, layer, u, &logs);
    else w = tni_tna_open(ctx, layer, u, &logs);
    return w && logs ? tni_tna_scaled(ctx, layer, w, logs) : NULL;
}

/* What follows W: y = W x + bias, residual, norm. */
static tn_tensor *tni_tna_output(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *w, tn_tensor *x)
{
    const tn_tn_attention_desc *d = &layer->desc;
    const int64_t b = x->shape[0], n = x->shape[1], one = 1;
    if (!w) return NULL;
    tn_tensor *y = tn_sum_axis(ctx, tn_mul(ctx, w, tni_shaped(ctx, x, 4, b, n, 1, d->in)), 3);
    if (layer->bias) y = tn_add(ctx, y, layer->bias);
    if (layer->r) y = tn_scale(ctx, tn_add(ctx, y, tn_mul(ctx, x, layer->r)), 0.5);
    if (!y || d->norm == TN_ROW_NORM_NONE) return y;
    if (d->norm == TN_ROW_NORM_L2) return tni_tna_unit(ctx, y, d->eps);
    tn_tensor *size = tni_shaped(ctx, tn_sum_axis(ctx, tn_activation(ctx, y, TN_ACT_ABS), 2), 3, b, n, 1, 1);
    return tn_div(ctx, y, tn_add(ctx, size, tn_full(ctx, 1, &one, d->eps)));
}

/* Contexts are computed in the context's dtype; results get that of activations. */
static tn_tensor *tni_tna_run(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x, bool weights)
{
    const tn_dtype made = ctx ? ctx->made : TN_REAL;
    if (!tni_tna_given(ctx, layer, x)) return NULL;
    ctx->made = ctx->desc.dtype;
    tn_tensor *y = tni_tna_weights(ctx, layer, x);
    if (!weights) y = tni_tna_output(ctx, layer, y, x);
    ctx->made = made;
    return y && made != y->dtype ? tn_cast(ctx, y, made) : y;
}

tn_tensor *tn_tn_attention_forward(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x)
{
    return tni_tna_run(ctx, layer, x, false);
}

tn_tensor *tn_tn_attention_weights(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x)
{
    return tni_tna_run(ctx, layer, x, true);
}

/* ---- its state ---------------------------------------------------------- >>tn-attention-state */
static bool tni_tna_decodes(tn_ctx *ctx, const tn_tn_attention *layer)
{
    if (!tni_layer_given(ctx, layer, "tn_attention")) return false;
    if (!layer->desc.causal || layer->desc.sites > 0)
        tni_fail(ctx, TN_ERR_ARG, "tn_attention: the layer is %s, expected a causal uniform one for a state",
                 layer->desc.causal ? "not uniform" : "not causal");
    else if (tni_recording(ctx))
        tni_fail(ctx, TN_ERR_ARG, "tn_attention: the context is recording, expected decoding without it");
    else return true;
    return false;
}

tn_tensor *tn_tn_attention_state(tn_ctx *ctx, const tn_tn_attention *layer, int64_t batch)
{
    if (!tni_tna_decodes(ctx, layer)) return NULL;
    int64_t    shape[2] = {batch, layer->desc.bond + 1};
    tn_tensor *v = tni_tna_boundary(ctx, layer, false);
    tn_tensor *state = v ? tn_tensor_create(ctx, TN_REAL, 2, shape) : NULL;
    shape[1] = layer->desc.bond;
    v = tn_add(ctx, tn_full(ctx, 2, shape, 0), v);
    return state ? tni_tensor_done(state, tn_assign(tn_slice(state, 1, 0, shape[1]), v)) : NULL;
}

tn_tensor *tn_tn_attention_decode(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x, tn_tensor *state)
{
    const tn_dtype made = ctx ? ctx->made : TN_REAL;
    tn_tensor     *y = NULL, *l, *logs, *next[2];
    if (!tni_tna_decodes(ctx, layer) || !tni_tna_given(ctx, layer, x) || !tni_is_real(ctx, state, "tn_attention", "state"))
        return NULL;
    int64_t n = x->shape[1], D = layer->desc.bond;
    if (state->rank != 2 || state->shape[0] != x->shape[0] || state->shape[1] != D + 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "tn_attention: state is %s, expected [%lld,%lld], as x is %s", TNI_SHAPE(state),
                        (long long)x->shape[0], (long long)(D + 1), TNI_SHAPE(x)), (tn_tensor *)NULL;
    ctx->made = ctx->desc.dtype;
    tn_tensor *w = tni_tna_causal(ctx, layer, tni_tna_features(ctx, layer, x), tn_copy(ctx, tn_slice(state, 1, 0, D)), &l, &logs);
    logs = w ? tn_add(ctx, logs, tn_slice(state, 1, D, D + 1)) : NULL;
    if (logs) y = tni_tna_output(ctx, layer, tni_tna_scaled(ctx, layer, w, tn_slice(logs, 1, 0, n)), x);
    ctx->made = made;
    y = y && made != y->dtype ? tn_cast(ctx, y, made) : y;
    if (!y) return NULL;
    next[0] = tni_shaped(ctx, tn_slice(l, 1, n, n + 1), 2, x->shape[0], D, 1, 1);
    next[1] = tn_slice(logs, 1, n, n + 1);
    return tn_assign(state, tn_concat(ctx, 2, next, 1)) == TN_OK ? y : NULL;
}

#endif /* TN_NO_MPS */
