#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"

#ifndef TN_NO_ANALYSIS
/* ======================================================================
   >>analysis-impl  null models, certificates, features, alignment
   ====================================================================== */

TNI_COLD_FN tn_status tni_analysis_status(const tn_ctx *ctx)                  /* of a call that returned NULL */
{
    tn_status s = tn_ctx_status(ctx);
    return s == TN_OK ? TN_ERR_MEMORY : s;
}

TNI_COLD_FN tn_tensor *tni_owned_counts(tn_ctx *ctx, int64_t n, const int32_t *counts)
{
    tn_tensor *t = tn_tensor_create(ctx, TN_I32, 1, &n);
    return t ? tni_tensor_done(t, tn_write(t, TN_I32, counts, n)) : NULL;
}

/* ---- how many eigenpairs are signal ------------------------------------- >>analysis-signal-impl */

/* Permutes n groups of `width` numbers (Fisher & Yates). */
static void tni_shuffle(tni_rng *d, int64_t n, int64_t width, double *v)
{
    for (int64_t i = n - 1; i > 0; i--) tni_swap(width, v + i * width, v + tni_rng_below(d, i + 1) * width);
}

static tn_cp *tni_signal_null(const tn_cp *cp, const tn_signal_desc *desc, int64_t draw)
{
    tn_cp    *to = tni_cp_make(cp->ctx, 2, cp->out, cp->terms, cp->in, cp->constant);
    tn_status s = to ? tni_copy(to->p, cp->p) : TN_ERR_MEMORY;
    for (int k = 0; k < 2 && s == TN_OK; k++) {
        tni_scratch w = tni_scratch_begin(cp->ctx, "signal");
        double     *v = tni_take_numbers(&w, cp->f[k]);
        tni_rng     rng = TNI_ZERO;
        rng.key = desc->seed;
        rng.call = 2 * draw + k;
        if (v && desc->null == TN_NULL_MODEL_PAIRS && k > 0) tni_shuffle(&rng, cp->terms, cp->in[k], v);
        for (int64_t h = 0; v && desc->null == TN_NULL_MODEL_ENTRIES && h < cp->terms; h++)
            tni_shuffle(&rng, cp->in[k] - cp->constant, 1, v + h * cp->in[k]);
        s = tni_scratch_end(&w, v ? tn_write(to->f[k], TN_F64, v, cp->terms * cp->in[k]) : tni_analysis_status(cp->ctx));
    }
    return to ? tni_cp_done(to, s) : NULL;
}

static bool tni_null_is_known(const tn_cp *cp, const tn_signal_desc *d, const char *name)
{
    if ((unsigned)d->null <= TN_NULL_MODEL_PAIRS) return true;
    return tni_fail(cp->ctx, TN_ERR_ARG, "%s: null is %d, not a valid tn_null_model", name, (int)d->null), false;
}

tn_cp *tn_cp_null(const tn_cp *cp, const tn_signal_desc *desc, int64_t draw)
{
    const tn_signal_desc all = TNI_ZERO;
    if (!desc) desc = &all;
    if (!tni_cp_is_bilinear(cp, "cp_null") || !tni_null_is_known(cp, desc, "cp_null")
        || !tni_within(cp->ctx, "cp_null", "draw", draw, 0, INT32_MAX)) return NULL;
    return tni_signal_null(cp, desc, draw);
}

/* Adds the magnitudes of one draw to `sum`, and raises the edges. */
static tn_status tni_signal_add(const tn_signal *mine, const tn_spectrum *null, const double *norm, bool scaled,
                                double *sum, double *edge)
{
    tni_scratch w = tni_scratch_begin(null->values->ctx, "signal");
    double     *v = tni_take_numbers(&w, null->values), *size = tni_take_numbers(&w, null->norm);
    for (int64_t o = 0; o < mine->outputs && !w.failed; o++)
        for (int64_t i = 0; i < null->count; i++) {
            double l = fabs(v[o * null->count + i]) * (!scaled ? 1 : size[o] > 0 ? norm[o] / size[o] : 0);
            if (i < mine->count) sum[o * mine->count + i] += l;
            if (l > edge[o]) edge[o] = l;
        }
    return tni_scratch_end(&w, w.failed ? tni_analysis_status(w.ctx) : TN_OK);
}

static bool tni_signal_fits(const tn_cp *cp, const tn_signal_desc *d, int64_t draws)
{
    if (draws < 1)
        return tni_fail(cp->ctx, TN_ERR_ARG, "signal: draws is %lld, expected 0 or more", (long long)draws), false;
    if (!tni_null_is_known(cp, d, "signal")) return false;
    for (int64_t i = 0; d->nulls && i < draws; i++) {
        const tn_cp *null = d->nulls[i];
        if (null && null->ctx == cp->ctx && tni_cp_is_bilinear(null, "signal") && null->out == cp->out
            && null->in[0] == cp->in[0]) continue;
        return tni_fail(cp->ctx, TN_ERR_SHAPE, "signal: operator %lld of nulls differs, expected %lld outputs, %lld inputs and "
                        "the same context", (long long)i, (long long)cp->out, (long long)cp->in[0]), false;
    }
    return true;
}

tn_status tn_cp_signal(const tn_cp *cp, const tn_signal_desc *desc, tn_signal *out)
{
    tn_spectrum mine, null;
    tn_status   s;
    if (out) memset(out, 0, sizeof *out);
    else return cp ? tni_fail(cp->ctx, TN_ERR_ARG, "signal: out is NULL, expected a place for the result") : TN_ERR_ARG;
    if (!tni_cp_is_bilinear(cp, "signal")) return cp ? tn_ctx_status(cp->ctx) : TN_ERR_ARG;
    tn_signal_desc all = TNI_ZERO;
    if (!desc) desc = &all;
    int64_t draws = desc->draws ? desc->draws : 19;
    if (!tni_signal_fits(cp, desc, draws)) return tn_ctx_status(cp->ctx);
    if ((s = tni_cp_spectrum(cp, desc->count, &mine, "signal")) != TN_OK) return s;
    out->outputs = mine.outputs;
    out->count = mine.count;
    tni_scratch w = tni_scratch_begin(cp->ctx, "signal");
    double     *sum = tni_take_zeros(&w, out->outputs, out->count), *edge = tni_take_zeros(&w, out->outputs, 1);
    int32_t    *beyond = (int32_t *)tni_take_zeroed(&w, out->outputs, sizeof *beyond);
    double     *values = tni_take_numbers(&w, mine.values), *norm = tni_take_numbers(&w, mine.norm);
    if (w.failed) s = tni_analysis_status(cp->ctx);
    for (int64_t draw = 0; draw < draws && s == TN_OK; draw++) {
        tn_cp *made = desc->nulls ? NULL : tni_signal_null(cp, desc, draw);
        if (!desc->nulls && !made) s = tni_analysis_status(cp->ctx);
        else s = tni_cp_spectrum(made ? made : desc->nulls[draw], desc->count, &null, "signal");
        tn_cp_destroy(made);
        if (s != TN_OK) break;
        s = tni_signal_add(out, &null, norm, desc->scaled, sum, edge);
        tn_spectrum_destroy(&null);
    }
    for (int64_t o = 0; o < out->outputs && s == TN_OK; o++)
        for (int64_t i = 0; i < out->count; i++) {
            beyond[o] += fabs(values[o * out->count + i]) > edge[o];
            sum[o * out->count + i] /= (double)draws;
        }
    if (s == TN_OK) {
        out->values = mine.values;
        mine.values = NULL;
        out->null_values = tni_owned_from(cp->ctx, 2, TNI_DIMS(out->outputs, out->count), sum);
        out->edge = tni_owned_from(cp->ctx, 1, &out->outputs, edge);
        out->signal = tni_owned_counts(cp->ctx, out->outputs, beyond);
        if (!out->null_values || !out->edge || !out->signal) s = tni_analysis_status(cp->ctx);
    }
    tn_spectrum_destroy(&mine);
    if (s != TN_OK) tn_signal_destroy(out);
    return tni_scratch_end(&w, s);
}

void tn_signal_destroy(tn_signal *s) { tni_result_end(s, sizeof *s, offsetof(tn_signal, values), 4); }

/* ---- truncation with a certificate -------------------------------------- >>analysis-certificate-impl
   D = Q - Q_k has the eigenvalues l_i, i > k.   |x^T D x| <= |l_(k+1)| |x|^2      |D|_F^2 = sum l_i^2
   In the data metric x = S^1/2 z with E[z z^T] a projection: E|z^T D z| <= sum |l_i| E (v_i . z)^2 <= sum |l_i| */

/* S^-1/2 on the span of the data: V^T diag(l^-1/2) V without values that are only rounding. [n,n], arena */
static tn_tensor *tni_inverse_root(tn_ctx *ctx, const tn_tensor *moment)
{
    const int64_t  n = moment->shape[0];
    tn_eigh_result e;
    tn_tensor     *root = NULL, *half;
    if (tn_eigh(ctx, moment, NULL, &e) != TN_OK) return NULL;
    tni_scratch w = tni_scratch_begin(ctx, "certify");
    double     *l = tni_take_numbers(&w, e.values);
    double      least = l && n > 0 ? (ctx->desc.dtype == TN_F32 ? 1e-6 : 1e-13) * (double)n * fabs(l[n - 1]) : 0;
    for (int64_t i = 0; l && i < n; i++) l[i] = l[i] > least ? 1 / sqrt(sqrt(l[i])) : 0;
    if (l && tn_write(e.values, TN_F64, l, n) == TN_OK && (half = tn_tensor_2d(ctx, TN_REAL, n, n)) != NULL
        && (root = tn_tensor_2d(ctx, TN_REAL, n, n)) != NULL
        && (tni_put_product(ctx, tni_view(half), tni_view(e.vectors), tni_column_view(e.values), false) != TN_OK
            || tni_put_matmul(ctx, tni_view(root), tni_transposed_view(tni_view(half)), tni_view(half), 1, 0) != TN_OK))
        root = NULL;
    tni_scratch_release(&w, NULL);
    tn_eigh_destroy(&e);
    return root;
}

/* The numbers of output o, from its eigenvalues by decreasing magnitude. numbers: error, bound, mean, each [outputs] */
static int32_t tni_certify_output(const double *l, int64_t count, double error, double square, double margin, bool data,
                                  int64_t o, int64_t outputs, double *numbers)
{
    const double most = count > 0 ? fabs(l[0]) : 0;                      /* squares relative to it cannot underflow */
    double  norm = 0, tail = 0, sum = 0;
    int64_t      k;
    for (int64_t i = count; most > 0 && i-- > 0; ) norm += l[i] / most * (l[i] / most);
    for (k = count; k > 0; k--) {
        double part = most > 0 ? l[k - 1] / most * (l[k - 1] / most) : 0;
        if (tail + part > error * error * norm) break;
        tail += part;
        sum += fabs(l[k - 1]);
    }
    margin *= most;
    numbers[o] = norm > 0 ? sqrt(tail / norm) : 0;
    numbers[outputs + o] = square * ((k < count ? fabs(l[k]) : 0) + margin);
    numbers[2 * outputs + o] = data ? sum + (double)count * margin : (double)NAN;
    return (int32_t)k;
}

/* The operator of the first rank[o] pairs of each output, whose vectors are multiplied by root unless it is NULL. */
static tn_cp *tni_certify_operator(const tn_cp *cp, const tn_eigenpairs *e, const int32_t *rank, tn_tensor *root)
{
    int64_t   terms = 0, at = 0;
    tn_status s = TN_OK;
    for (int64_t o = 0; o < cp->out; o++) terms += rank[o];
    int64_t in[2] = {cp->in[0], cp->in[0]};
    tn_cp  *to = tni_cp_make(cp->ctx, 2, cp->out, terms, in, cp->constant);
    for (int64_t o = 0; to && o < cp->out && s == TN_OK; at += rank[o++]) {
        tn_view v = tni_slice_view(e->vectors, o), rows = tni_block_of(to->f[0], at, rank[o], 0, in[0]);
        if (rank[o] == 0) continue;
        v.shape[0] = rank[o];
        s = tni_put_copy(cp->ctx, tni_block_of(to->p, o, 1, at, rank[o]), tni_block_of(e->values, o, 1, 0, rank[o]));
        if (s == TN_OK)
            s = root ? tni_put_matmul(cp->ctx, rows, v, tni_view(root), 1, 0) : tni_put_copy(cp->ctx, rows, v);
    }
    if (to && s == TN_OK) s = tni_copy(to->f[1], to->f[0]);
    return to ? tni_cp_done(to, s) : NULL;
}

static tn_status tni_certify(const tn_cp *cp, double error, double radius, const tn_tensor *moment, tn_certificate *out)
{
    tn_ctx      *ctx = cp->ctx;
    tn_cp       *metric = moment ? tn_cp_data_metric(cp, moment) : NULL;
    tn_tensor   *root = metric ? tni_inverse_root(ctx, moment) : NULL;
    const double square = radius * radius + (cp->constant && !moment), margin = ctx->desc.dtype == TN_F32 ? 1e-5 : 1e-12;
    tn_eigenpairs     e;
    if (moment && !root) {
        tn_cp_destroy(metric);
        return tni_analysis_status(ctx);
    }
    tn_status s = tni_eigen_all(metric ? metric : cp, 0, true, &e, "certify");
    tn_cp_destroy(metric);
    if (s != TN_OK) return s;
    tni_scratch w = tni_scratch_begin(ctx, "certify");
    double     *l = tni_take_numbers(&w, e.values), *numbers = tni_take_f64(&w, cp->out, 3);
    int32_t    *rank = (int32_t *)tni_take(&w, cp->out, sizeof *rank);
    if (w.failed) s = tni_analysis_status(ctx);
    else {
        for (int64_t o = 0; o < cp->out; o++)
            rank[o] = tni_certify_output(l + o * e.count, e.count, error, square, margin, moment != NULL, o, cp->out,
                                         numbers);
        out->cp = tni_certify_operator(cp, &e, rank, root);
        out->rank = tni_owned_counts(ctx, cp->out, rank);
        out->error = tni_owned_from(ctx, 1, &cp->out, numbers);
        out->bound = tni_owned_from(ctx, 1, &cp->out, numbers + cp->out);
        out->mean = tni_owned_from(ctx, 1, &cp->out, numbers + 2 * cp->out);
        if (!out->cp || !out->rank || !out->error || !out->bound || !out->mean) s = tni_analysis_status(ctx);
    }
    tn_eigenpairs_destroy(&e);
    return tni_scratch_end(&w, s);
}

tn_status tn_cp_certify(const tn_cp *cp, double error, double radius, const tn_tensor *moment, tn_certificate *out)
{
    if (out) memset(out, 0, sizeof *out);
    else return cp ? tni_fail(cp->ctx, TN_ERR_ARG, "certify: out is NULL, expected a place for the result") : TN_ERR_ARG;
    if (!tni_cp_is_bilinear(cp, "certify")) return cp ? tn_ctx_status(cp->ctx) : TN_ERR_ARG;
    if (!(error >= 0 && error < 1))
        return tni_fail(cp->ctx, TN_ERR_ARG, "certify: error is %g, expected 0 <= error < 1", error);
    if (!(radius >= 0 && radius < HUGE_VAL))
        return tni_fail(cp->ctx, TN_ERR_ARG, "certify: radius is %g, expected a finite number >= 0", radius);
    tni_scope scope = tni_scope_begin(cp->ctx);
    tn_status s = tni_certify(cp, error, radius, moment, out);
    tni_scope_end(cp->ctx, scope);
    if (s != TN_OK) tn_certificate_destroy(out);
    return s;
}

void tn_certificate_destroy(tn_certificate *c)
{
    if (c) tn_cp_destroy(c->cp);
    tni_result_end(c, sizeof *c, offsetof(tn_certificate, rank), 4);
}

#endif /* TN_NO_ANALYSIS */
