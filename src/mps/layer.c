#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"
#include "mps/inner.h"

#ifndef TN_NO_MPS
/* ---- the layer ----------------------------------------------------------- >>mps-layer-impl */

static tn_status tni_mps_check(tn_params *ps, const char *name, tn_mps_desc *d)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_status s = tni_layer_extents(ps, "mps", name, "sites", d->uniform && d->sites == 0 ? 1 : d->sites, "bond", d->bond);
    if (s != TN_OK) return s;
    if (d->dim == 0) d->dim = 2;
    if ((s = tni_local_check(ctx, "mps", name, d->map, d->dim)) != TN_OK) return s;
    if (d->out < 0 || d->out >= INT32_MAX)
        return tni_fail(ctx, TN_ERR_ARG, "mps%s%s: out is %lld, expected 0 to 2^31 - 2", TNI_NAMED(name), (long long)d->out);
    if (!(d->std >= 0 && d->std < HUGE_VAL))
        return tni_fail(ctx, TN_ERR_ARG, "mps%s%s: std is %g, expected 0 or more", TNI_NAMED(name), d->std);
    if (d->label < TN_MPS_FIRST || (d->sites > 0 && d->label > d->sites))
        return tni_fail(ctx, TN_ERR_ARG, "mps%s%s: label is %lld, expected 1 to %lld sites before it, 0 for the default, or "
                        "TN_MPS_FIRST", TNI_NAMED(name), (long long)d->label, (long long)d->sites);
    return TN_OK;
}

/* Adds the identity to cores [n,D,s,D]: for each feature, or for the first alone. */
static tn_status tni_mps_identity(tn_ctx *ctx, const tn_mps_desc *d, tn_tensor *cores)
{
    const int64_t size = tn_tensor_count(cores), rows = size / (d->dim * d->bond);
    tni_scratch   w = tni_scratch_begin(ctx, "mps");
    double       *p = tni_take_numbers(&w, cores);
    for (int64_t i = 0; p && i < rows; i++)
        for (int64_t k = 0; k < (d->map == TN_LOCAL_POWERS ? 1 : d->dim); k++) p[(i * d->dim + k) * d->bond + i % d->bond] += 1;
    return tni_scratch_end(&w, p ? tn_write(cores, TN_F64, p, size) : TN_ERR_MEMORY);
}

TNI_COLD tn_status tn_mps_init(tn_params *ps, const char *name, const tn_mps_desc *desc, tn_mps *layer)
{
    const int64_t before = tn_params_count(ps);
    tn_status     s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "mps: layer or desc is NULL");
    tn_mps_desc d = *desc;                                  /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if ((s = tni_mps_check(ps, name, &d)) != TN_OK) return s;
    layer->desc = d;
    tn_init init = TNI_ZERO;
    init.rule = TN_INIT_NORMAL;
    init.std = d.std > 0 ? d.std : d.random ? 1 / sqrt((double)d.bond) : 0.01;
    int64_t shape[4] = {d.uniform ? 1 : d.sites, d.bond, d.dim, d.bond};
    layer->cores = tni_layer_param(ps, name, "cores", 4, shape, init, false);
    bool whole = layer->cores && (d.random || tni_mps_identity(ps->owned.ctx, &d, layer->cores) == TN_OK);
    init.std = 1 / sqrt((double)d.bond);
    shape[1] = d.out;
    shape[0] = shape[2] = d.bond;
    if (whole && d.out > 0) whole = (layer->label = tni_layer_param(ps, name, "label", 3, shape, init, false)) != NULL;
    if (whole && d.uniform && !d.periodic) {
        layer->left = tni_layer_vector(ps, name, "left", d.bond, init);
        layer->right = layer->left ? tni_layer_vector(ps, name, "right", d.bond, init) : NULL;
        whole = layer->right != NULL;
    }
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

/* Sites before the label core (without one: before the place where both halves meet), of a chain of n. */
TNI_FN int64_t tni_mps_place(const tn_mps_desc *d, int64_t n)
{
    return d->label == TN_MPS_FIRST ? 0 : d->label > 0 ? d->label : d->uniform ? n : n / 2;
}

/* The vector at an end, [D] */
static tn_tensor *tni_mps_end(tn_ctx *ctx, const tn_mps *m, tn_tensor *given)
{
    const int64_t bond = m->desc.bond;
    tn_tensor    *unit = given ? NULL : tn_slice(tn_eye(ctx, bond), 0, 0, 1);
    return given ? given : unit ? tn_reshape(unit, 1, &bond) : NULL;
}

/* M_j of the sites first .. stop-1: [b,n,D,D] */
static tn_tensor *tni_mps_matrices(tn_ctx *ctx, const tn_mps *m, tn_tensor *phi, int64_t first, int64_t stop)
{
    const int64_t bond = m->desc.bond, dim = m->desc.dim;
    tn_tensor    *c = m->desc.uniform ? m->cores : tn_slice(m->cores, 0, first, stop);
    phi = tn_slice(phi, 1, first, stop);
    c = c ? tn_copy(ctx, tn_transpose(c, 1, 2)) : NULL;      /* [n,s,D,D] */
    if (!c || !phi) return NULL;
    if (m->desc.uniform) c = tn_matmul(ctx, phi, tn_reshape_2d(c, dim, bond * bond));
    else if ((c = tn_matmul(ctx, tn_transpose(phi, 0, 1), tn_reshape(c, 3, TNI_DIMS(c->shape[0], dim, bond * bond)))) != NULL)
        c = tn_copy(ctx, tn_transpose(c, 0, 1));             /* from [n,b,D D] */
    return tn_reshape(c, 4, TNI_DIMS(phi->shape[0], stop - first, bond, bond));
}

/* The vector v times the sites first .. stop-1, or these times v: [b,D] of unit length, and the logarithm of its scale */
static tn_tensor *tni_mps_state(tn_ctx *ctx, const tn_mps *m, tn_tensor *v, tn_tensor *phi, int64_t first, int64_t stop,
                                bool reverse, tn_tensor **logs)
{
    tn_tensor *cores = m->desc.uniform ? m->cores : tn_slice(m->cores, 0, first, stop);
    return tni_scan_last(ctx, v, cores, tn_slice(phi, 1, first, stop), reverse, logs);
}

/* [b,out], or [b] without a label, from the states on both sides of the label core. */
static tn_tensor *tni_mps_open(tn_ctx *ctx, const tn_mps *m, tn_tensor *phi, int64_t place, tn_tensor *logs[2])
{
    const int64_t bond = m->desc.bond, b = phi->shape[0], n = phi->shape[1];
    tn_tensor    *l = tni_mps_state(ctx, m, tni_mps_end(ctx, m, m->left), phi, 0, place, false, &logs[0]);
    tn_tensor    *r = tni_mps_state(ctx, m, tni_mps_end(ctx, m, m->right), phi, place, n, true, &logs[1]);
    if (!l || !r) return NULL;
    if (!m->label) return tn_sum_axis(ctx, tn_mul(ctx, l, r), 1);
    tn_tensor *t = tn_matmul(ctx, l, tn_reshape_2d(m->label, bond, m->desc.out * bond));
    t = tn_reshape(t, 3, TNI_DIMS(b, m->desc.out, bond));
    return tn_reshape_2d(t ? tn_matmul(ctx, t, tn_reshape(r, 3, TNI_DIMS(b, bond, 1))) : NULL, b, m->desc.out);
}

/* Tr(L B_c R) = sum over a, b of B_c[a,b] (R L)[b,a] */
static tn_tensor *tni_mps_closed(tn_ctx *ctx, const tn_mps *m, tn_tensor *phi, int64_t place, tn_tensor *logs[2])
{
    const int64_t bond = m->desc.bond, b = phi->shape[0], n = phi->shape[1];
    tn_tensor    *l = NULL, *r = NULL, *y;
    if (place > 0 && !(l = tn_chain(ctx, tni_mps_matrices(ctx, m, phi, 0, place), &logs[0]))) return NULL;
    if (place < n && !(r = tn_chain(ctx, tni_mps_matrices(ctx, m, phi, place, n), &logs[1]))) return NULL;
    tn_tensor *k = tn_reshape_2d(l && r ? tn_matmul(ctx, r, l) : l ? l : r, b, bond * bond);
    if (!k) return NULL;
    if (!m->label) {
        return tn_reshape(tn_matmul(ctx, k, tn_reshape_2d(tn_eye(ctx, bond), bond * bond, 1)), 1, &b);
    }
    y = tn_transpose(m->label, 0, 2);                        /* [b,c,a] */
    y = y ? tn_copy(ctx, tn_transpose(y, 1, 2)) : NULL;      /* [b,a,c] */
    return y ? tn_matmul(ctx, k, tn_reshape_2d(y, bond * bond, m->desc.out)) : NULL;
}

/* y e^log, with the log limited; -inf gives 0. y [b,out] or [b] */
static tn_tensor *tni_mps_scaled(tn_ctx *ctx, tn_tensor *y, tn_tensor *log)
{
    tn_tensor    *most = tn_full(ctx, 1, TNI_DIMS(1), ctx->desc.dtype == TN_F32 ? 80 : 700);
    log = tn_sub(ctx, most, tn_activation(ctx, tn_sub(ctx, most, log), TN_ACT_RELU));
    if ((log = tn_exp(ctx, log)) != NULL && y->rank == 2) log = tn_reshape_2d(log, log->shape[0], 1);
    return tn_mul(ctx, y, log);
}

static bool tni_mps_takes(tn_ctx *ctx, const tn_mps *m, const tn_tensor *x)
{
    const tn_mps_desc *d = &m->desc;
    const int          rank = d->map == TN_LOCAL_GIVEN ? 3 : 2;
    if (!tni_usable(ctx, m->cores, "mps", "cores") || !tni_usable(ctx, x, "mps", "x")) return false;
    int64_t n = x->rank == rank ? x->shape[1] : -1;
    if (n >= 1 && (d->sites == 0 ? n >= d->label : n == d->sites) && (rank == 2 || x->shape[2] == d->dim)) return true;
    if (d->sites == 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "mps: x is %s, expected [b,n%s] with n >= %lld", TNI_SHAPE(x),
                        rank == 3 ? ",dim" : "", (long long)tni_max(1, d->label)), false;
    if (rank == 2)
        return tni_fail(ctx, TN_ERR_SHAPE, "mps: x is %s, expected [b,%lld]", TNI_SHAPE(x), (long long)d->sites), false;
    return tni_fail(ctx, TN_ERR_SHAPE, "mps: x is %s, expected [b,%lld,%lld]", TNI_SHAPE(x), (long long)d->sites,
                    (long long)d->dim), false;
}

tn_tensor *tn_mps_forward(tn_ctx *ctx, const tn_mps *m, tn_tensor *x, tn_tensor **logs)
{
    tn_tensor *part[2] = {NULL, NULL};
    if (logs) *logs = NULL;
    if (!tni_layer_given(ctx, m, "mps") || !tni_mps_takes(ctx, m, x)) return NULL;
    tn_dtype made = ctx->made;
    ctx->made = ctx->desc.dtype;                             /* BF16 would round logarithms */
    tn_tensor *phi = tn_local_features(ctx, x, m->desc.map, m->desc.dim);
    int64_t    place = phi ? tni_mps_place(&m->desc, phi->shape[1]) : 0;
    tn_tensor *y = !phi ? NULL : m->desc.periodic ? tni_mps_closed(ctx, m, phi, place, part)
                   : tni_mps_open(ctx, m, phi, place, part);
    tn_tensor *log = part[0] && part[1] ? tn_add(ctx, part[0], part[1]) : part[0] ? part[0] : part[1];
    if (y && logs) *logs = log;
    else if (y) y = tni_mps_scaled(ctx, y, log);
    ctx->made = made;
    return !logs || log ? y : NULL;
}

/* x [b,rows rows] divided by its norms, whose logarithms are added to *log [b]. Zeros stay zeros, with the logarithm -inf
   and the gradient zero. */
static tn_tensor *tni_mps_unit(tn_ctx *ctx, tn_tensor *x, int64_t b, int64_t rows, tn_tensor **log)
{
    tn_tensor *more;
    x = x ? tn_chain(ctx, tn_reshape(x, 4, TNI_DIMS(b, 1, rows, rows)), &more) : NULL;
    if (x) *log = tn_add(ctx, *log, more);
    return x && *log ? x : NULL;
}

/* One more core A [D,s,D] in E [k,D,D]: sum over s of A_s^T E A_s, divided by its norm, whose logarithm is added to *log. */
static tn_tensor *tni_mps_transfer(tn_ctx *ctx, tn_tensor *e, tn_tensor *core, tn_tensor **log)
{
    const int64_t k = e->shape[0], bond = e->shape[1], s = core ? core->shape[core->rank - 2] : 0;
    tn_tensor    *right = tn_reshape_2d(core, bond, s * bond);
    tn_tensor    *left = tn_reshape_2d(core, bond * s, bond);
    e = tn_matmul(ctx, tn_reshape_2d(e, k * bond, bond), right);
    e = e && left ? tn_matmul(ctx, tn_transpose(left, 0, 1), tn_reshape(e, 3, TNI_DIMS(k, bond * s, bond))) : NULL;
    e = tni_mps_unit(ctx, e, 1, k > 1 ? k : bond, log);          /* k is 1 or bond^2 */
    return tn_reshape(e, 3, TNI_DIMS(k, bond, bond));
}

tn_tensor *tn_mps_log_partition(tn_ctx *ctx, const tn_mps *m)
{
    if (!tni_layer_given(ctx, m, "mps_log_partition") || !tni_usable(ctx, m->cores, "mps_log_partition", "cores")) return NULL;
    if (m->desc.sites == 0)
        return tni_fail(ctx, TN_ERR_ARG, "mps_log_partition: sites is 0, expected a number of sites in the layer's "
                        "desc"), (tn_tensor *)NULL;
    tn_dtype made = ctx->made;
    ctx->made = ctx->desc.dtype;
    int64_t    bond = m->desc.bond, place = tni_mps_place(&m->desc, m->desc.sites);
    tn_tensor *log = tn_full(ctx, 1, TNI_DIMS(1), 0);
    tn_tensor *l = m->desc.periodic ? tn_eye(ctx, bond * bond) : tni_mps_end(ctx, m, m->left);
    tn_tensor *r = m->desc.periodic ? l : tni_mps_end(ctx, m, m->right);
    if (!m->desc.periodic && l && r) {
        l = tn_reshape_2d(l, bond, 1);
        r = tn_reshape_2d(r, bond, 1);
    }
    tn_tensor *e = m->desc.periodic || !l || !r ? l : tn_matmul(ctx, l, tn_transpose(l, 0, 1));
    if (!r) e = NULL;
    e = tn_reshape(e, 3, TNI_DIMS(m->desc.periodic ? bond * bond : 1, bond, bond));
    for (int64_t j = 0; e && j <= m->desc.sites; j++) {
        if (j == place && m->label) e = tni_mps_transfer(ctx, e, m->label, &log);
        if (e && j < m->desc.sites)
            e = tni_mps_transfer(ctx, e, m->desc.uniform ? m->cores : tn_slice(m->cores, 0, j, j + 1), &log);
    }
    if (e && m->desc.periodic) e = tn_mul(ctx, tn_reshape_2d(e, bond * bond, bond * bond), l);
    else if (e) e = tn_mul(ctx, e, tn_matmul(ctx, r, tn_transpose(r, 0, 1)));
    e = e ? tni_mps_unit(ctx, tn_sum(ctx, e), 1, 1, &log) : NULL;
    ctx->made = made;
    return e ? tn_reshape(log, 0, NULL) : NULL;
}

tn_tensor *tn_mps_log_probability(tn_ctx *ctx, const tn_mps *m, tn_tensor *x)
{
    tn_tensor *logs;
    if (!tni_layer_given(ctx, m, "mps_log_probability")) return NULL;
    if (m->desc.out > 0)
        return tni_fail(ctx, TN_ERR_ARG, "mps_log_probability: out is %lld, expected 0: a layer without a label",
                        (long long)m->desc.out), (tn_tensor *)NULL;
    tn_tensor *y = tn_mps_forward(ctx, m, x, &logs);
    tn_tensor *norm = tn_mps_log_partition(ctx, m);
    tn_dtype   made = ctx->made;
    ctx->made = ctx->desc.dtype;
    y = y ? tni_mps_unit(ctx, y, y->shape[0], 1, &logs) : NULL;
    y = y ? tn_sub(ctx, tn_scale(ctx, logs, 2), norm) : NULL;
    ctx->made = made;
    return y;
}

#endif /* TN_NO_MPS */
