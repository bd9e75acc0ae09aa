#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- what a training added ---------------------------------------------- >>analysis-anomaly-impl
   The difference of two operators is an operator, of which each column of P may be taken less its mean. */
static tn_cp *tni_anomaly_difference(const tn_cp *a, const tn_cp *b, bool logits)
{
    static const double signs[2] = {1, -1};
    const tn_cp  *both[2] = {a, b};
    tn_cp        *to = tn_cp_mean(2, both, signs);
    const int64_t terms = to ? to->terms : 0, out = a->out;
    if (!to || !logits) return to;
    tni_scratch w = tni_scratch_begin(a->ctx, "anomaly");
    double     *p = tni_take_numbers(&w, to->p);
    for (int64_t t = 0; p && t < terms; t++) {
        double mean = 0;
        for (int64_t o = 0; o < out; o++) mean += p[o * terms + t] / (double)out;
        for (int64_t o = 0; o < out; o++) p[o * terms + t] -= mean;
    }
    return tni_cp_done(to, tni_scratch_end(&w, p ? tn_write(to->p, TN_F64, p, out * terms) : tni_analysis_status(a->ctx)));
}

typedef struct tni_anomaly {
    int64_t  n, inputs;                     /* with the constant one, and without it   */
    double  *rows, *share, *value, *vector; /* [out,n] [out] [out] [out,n]             */
    double   floor;                         /* what rounding leaves of |D_o|           */
    int64_t *order, *spare;                 /* [n]                                     */
} tni_anomaly;

/* The lengths of the rows of D_o over their median, which is at least what rounding leaves of the rows of both operators. */
static tn_status tni_anomaly_rows(tni_anomaly *x, const tn_cp *d, const tn_cp *reference, int64_t o)
{
    const int64_t n = x->n, m = x->inputs;
    tn_tensor    *q[2] = {tn_cp_interaction_of(d, o), tn_cp_interaction_of(reference, o)};
    tni_scratch   w = tni_scratch_begin(d->ctx, "anomaly");
    double       *v = q[0] ? tni_take_numbers(&w, q[0]) : NULL, *u = q[1] ? tni_take_numbers(&w, q[1]) : NULL;
    if (u && v && m > 0) {
        double *row = x->rows + o * n;
        x->floor = (d->ctx->desc.dtype == TN_F32 ? 1e-5 : 1e-13) * (tni_frobenius(n * n, u) + tni_frobenius(n * n, v));
        for (int64_t i = 0; i < n; i++) row[i] = tni_frobenius(n, v + i * n);
        tni_sort_index(m, row, x->order, x->spare);
        const double median = tni_max_f64((row[x->order[m / 2]] + row[x->order[(m - 1) / 2]]) / 2, x->floor / sqrt((double)n));
        for (int64_t i = 0; i < n; i++) row[i] = row[i] > 0 ? row[i] / median : 0;
    }
    tn_tensor_destroy(q[0]);
    tn_tensor_destroy(q[1]);
    if (u && v && !isfinite(x->floor))
        tni_fail(d->ctx, TN_ERR_NONFINITE, "anomaly: the interaction matrix of output %lld is not finite", (long long)o);
    return tni_scratch_end(&w, u && v && isfinite(x->floor) ? TN_OK : tni_analysis_status(d->ctx));
}

/* The greatest eigenvalue of D_o with its vector, and the share of the largest one in the sum of all squares; all are 0 if D_o is
   no more than rounding. */
static tn_status tni_anomaly_eigen(tni_anomaly *x, const tn_cp *d, tn_tensor *u, int64_t o)
{
    tn_eigenpairs e;
    tni_scratch   w = tni_scratch_begin(d->ctx, "anomaly");
    double       *one = tni_take_zeros(&w, d->out, 1);
    if (one) one[o] = 1;
    tn_status s = one ? tn_write(u, TN_F64, one, d->out) : TN_ERR_MEMORY;
    if (s != TN_OK || (s = tn_cp_eigen(d, u, 0, &e)) != TN_OK) return tni_scratch_end(&w, s);
    double *l = tni_take_numbers(&w, e.values), *v = tni_take_numbers(&w, e.vectors), best = 0;
    const double norm = l ? tni_frobenius(e.count, l) : 0;
    for (int64_t i = 0; l && v && norm > x->floor && i < e.count; i++) {
        if (!(l[i] > best)) continue;
        best = x->value[o] = l[i];
        memcpy(x->vector + o * x->n, v + i * x->n, (size_t)x->n * sizeof *v);
    }
    if (norm > x->floor) x->share[o] = l[0] / norm * (l[0] / norm);
    tn_eigenpairs_destroy(&e);
    return tni_scratch_end(&w, l && v ? TN_OK : tni_analysis_status(d->ctx));
}

static tn_status tni_anomaly_run(tni_scratch *w, const tn_cp *d, const tn_cp *reference, tn_anomaly *out)
{
    tn_ctx       *ctx = d->ctx;
    const int64_t n = d->in[0], o = d->out;
    tni_anomaly   x = TNI_ZERO;
    tn_tensor    *u = tn_tensor_create(ctx, TN_REAL, 1, &o);
    tn_status     s = u ? TN_OK : tni_analysis_status(ctx);
    x.n = n;
    x.inputs = n - d->constant;
    x.rows = tni_take_zeros(w, o, n);
    x.vector = tni_take_zeros(w, o, n);
    x.share = tni_take_zeros(w, o, 1);
    x.value = tni_take_zeros(w, o, 1);
    x.order = (int64_t *)tni_take(w, n, sizeof *x.order);
    x.spare = (int64_t *)tni_take(w, n, sizeof *x.spare);
    if (w->failed) s = TN_ERR_MEMORY;
    for (int64_t i = 0; i < o && s == TN_OK; i++) {
        s = tni_anomaly_rows(&x, d, reference, i);
        if (s == TN_OK) s = tni_anomaly_eigen(&x, d, u, i);
        for (int64_t j = 0; j < x.inputs && s == TN_OK; j++)
            if (x.rows[i * n + j] > out->score) {
                out->score = x.rows[i * n + j];
                out->output = i;
                out->input = j;
            }
        if (s == TN_OK) out->concentration = tni_max_f64(out->concentration, x.share[i]);
        if (s == TN_OK && x.value[i] > x.value[out->raised]) out->raised = i;
    }
    tn_tensor_destroy(u);
    if (s != TN_OK) return s;
    out->rows = tni_owned_from(ctx, 2, TNI_DIMS(o, n), x.rows);
    out->share = tni_owned_from(ctx, 1, &o, x.share);
    out->values = tni_owned_from(ctx, 1, &o, x.value);
    out->vectors = tni_owned_from(ctx, 2, TNI_DIMS(o, n), x.vector);
    return out->rows && out->share && out->values && out->vectors ? TN_OK : tni_analysis_status(ctx);
}

TNI_COLD tn_status tn_cp_anomaly(const tn_cp *suspect, const tn_cp *reference, bool logits, tn_anomaly *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!tni_cp_is_bilinear(suspect, "anomaly")) return suspect ? tn_ctx_status(suspect->ctx) : TN_ERR_ARG;
    tn_ctx *ctx = suspect->ctx;
    if (!out) return tni_fail(ctx, TN_ERR_ARG, "anomaly: out is NULL, expected a place for the result");
    if (!tni_cp_comparable(suspect, reference, "anomaly")) return tn_ctx_status(ctx);
    if (suspect->out != reference->out || suspect->out < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "anomaly: the suspect has %lld outputs and the reference %lld, expected equal "
                        "numbers of at least 1", (long long)suspect->out, (long long)reference->out);
    tn_cp *d = tni_anomaly_difference(suspect, reference, logits);
    if (!d) return tni_analysis_status(ctx);
    tni_scratch w = tni_scratch_begin(ctx, "anomaly");
    tn_status   s = tni_scratch_end(&w, tni_anomaly_run(&w, d, reference, out));
    tn_cp_destroy(d);
    if (s != TN_OK) tn_anomaly_destroy(out);
    return s;
}

void tn_anomaly_destroy(tn_anomaly *a) { tni_result_end(a, sizeof *a, offsetof(tn_anomaly, rows), 4); }

#endif /* TN_NO_ANALYSIS */
