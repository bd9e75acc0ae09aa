#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "algebra/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"
#include "network/network.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- maximising inputs -------------------------------------------------- >>circuits-maximum
   On spheres |x_a| = r: x_a <- r (g_a + s x_a) / |g_a + s x_a|, g_a the gradient. For a shift s that is large enough the
   value rises; a step after which it does not is repeated with a larger one. */
typedef struct tni_ascent {
    const tn_net *net;
    const tn_tensor *u;
    int64_t inputs, n, free;            /* free: n without the one */
    double  sign, radius;
} tni_ascent;

/* f(x) and its gradient g [inputs,n]: leg by leg, with the unit vectors as its rows and the same rows for the others, so that
   all calls have the same shapes and one plan */
static tn_status tni_ascent_at(const tni_ascent *t, const double *x, double *f, double *g)
{
    tn_ctx       *ctx = t->net->ctx;
    const tni_scope scope = tni_scope_begin(ctx);
    tn_tensor    *leg[TN_MAX_RANK * 8], *in[TN_MAX_RANK * 8];
    const int64_t n = t->n, outs = tn_tensor_count(t->u);
    tni_scratch   memory = tni_scratch_begin(ctx, "circuit_maximise");
    double        sum = 0, *part = tni_take_f64(&memory, n, 1);
    tn_status     s = part ? TN_OK : TN_ERR_MEMORY;
    for (int64_t i = 0; i < t->inputs * n; i++) g[i] = 0;
    for (int k = 0; k < t->net->legs; k++)
        leg[k] = tn_add(ctx, tn_full(ctx, 2, TNI_DIMS(n, n), 0),
                        tn_tensor_from(ctx, 1, &n, TN_F64, x + t->net->in[k].input * n));
    tn_tensor *w = tn_reshape_2d(tn_copy(ctx, (tn_tensor *)t->u), outs, 1);
    for (int k = 0; k < t->net->legs && s == TN_OK; k++) {
        memcpy(in, leg, (size_t)t->net->legs * sizeof *in);
        in[k] = tn_eye(ctx, n);
        tn_tensor *y = tn_net_apply_each(ctx, t->net, in);
        y = y ? tn_matmul(ctx, tn_reshape_2d(y, n, outs), w) : NULL;
        s = y ? tn_read(y, TN_F64, part, n) : tn_ctx_status(ctx);
        for (int64_t i = 0; i < n && s == TN_OK; i++) g[t->net->in[k].input * n + i] += t->sign * part[i];
    }
    for (int64_t i = 0; i < n && s == TN_OK; i++) sum += part[i] * x[t->net->in[t->net->legs - 1].input * n + i];
    *f = t->sign * sum;
    tni_scope_end(ctx, scope);
    return tni_scratch_end(&memory, s);
}

/* Puts the vectors x + g/s, or g alone for s = 0, onto their spheres. */
static void tni_ascent_step(const tni_ascent *t, const double *x, const double *g, double shift, double *to)
{
    for (int64_t a = 0; a < t->inputs; a++) {
        double norm = 0;
        for (int64_t i = a * t->n; i < a * t->n + t->free; i++) {
            to[i] = g[i] + shift * x[i];
            norm += to[i] * to[i];
        }
        norm = norm > 0 ? t->radius / sqrt(norm) : 0;
        for (int64_t i = a * t->n; i < a * t->n + t->free; i++) to[i] = norm > 0 ? norm * to[i] : x[i];
        if (t->free < t->n) to[a * t->n + t->free] = 1;
    }
}

/* x becomes a local maximum, with its value *f. scratch [3,inputs n] */
static tn_status tni_ascent_from(const tni_ascent *t, double *x, double *f, double *scratch, int64_t steps, double tol,
                                 bool *done)
{
    const int64_t m = t->inputs * t->n;
    double       *g = scratch, *y = scratch + m, *h = scratch + 2 * m, value, shift = 0, scale = 0;
    int64_t       i;
    tn_status     s = tni_ascent_at(t, x, f, g);
    *done = false;
    for (int64_t step = 0; step < steps && s == TN_OK && !*done; step++) {
        tni_ascent_step(t, x, g, shift, y);
        s = tni_ascent_at(t, y, &value, h);
        if (s != TN_OK) break;
        if (!(value - value == 0)) return tni_fail(t->net->ctx, TN_ERR_NONFINITE, "circuit_maximise: a value is not finite");
        for (scale = 0, i = 0; i < m; i++) scale += g[i] * g[i];
        scale = sqrt(scale) / t->radius;
        if (value >= *f) {
            *done = value - *f <= tol * fabs(value);
            *f = value;
            memcpy(x, y, (size_t)m * sizeof *x);
            memcpy(g, h, (size_t)m * sizeof *g);
            shift = shift > 1e-3 * scale ? shift / 2 : 0;
        } else if (shift > 1e8 * scale) *done = true;               /* no step of this size gains anything */
        else shift = shift > 0 ? 4 * shift : scale / 4 + 1e-300;
    }
    return s;
}

static bool tni_ascent_check(const tn_net *net, const tn_tensor *u, const tn_circuit_maximum_desc *d)
{
    const char *op = "circuit_maximise";
    int64_t outs = 1;
    int     k;
    for (k = 0; k < net->outs; k++) outs *= net->out[k].extent;
    for (k = 1; k < net->legs && net->in[k].extent == net->in[0].extent; k++) {}
    if (net->legs < 1 || net->legs > TN_MAX_RANK * 8 || k < net->legs)
        tni_fail(net->ctx, TN_ERR_SHAPE, "%s: the net has %d input legs%s, expected 1 to %d of one length", op, net->legs,
                 k < net->legs ? " of different lengths" : "", TN_MAX_RANK * 8);
    else if (!tni_is_real(net->ctx, u, op, "u")) return false;
    else if (tn_tensor_count(u) != outs)
        tni_fail(net->ctx, TN_ERR_SHAPE, "%s: u is %s, expected the %lld outputs of the net", op, TNI_SHAPE(u),
                 (long long)outs);
    else if (d->starts < 0 || d->starts > INT32_MAX || d->steps < 0 || !(d->radius >= 0 && d->radius < HUGE_VAL)
             || !(d->tol >= 0 && d->tol < 1))
        tni_fail(net->ctx, TN_ERR_ARG, "%s: starts is %lld, steps %lld, radius %g and tol %g, expected at least 0, starts "
                 "below 2^31 and tol below 1", op, (long long)d->starts, (long long)d->steps, d->radius, d->tol);
    else return true;
    return false;
}

tn_status tn_circuit_maximise(const tn_net *net, const tn_tensor *u, const tn_circuit_maximum_desc *desc,
                              tn_circuit_maximum *out)
{
    bool done;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if (!net) return TN_ERR_ARG;
    tn_circuit_maximum_desc d = TNI_ZERO;
    if (desc) d = *desc;
    if (!tni_ascent_check(net, u, &d)) return tn_ctx_status(net->ctx);
    if (d.starts == 0) d.starts = 8;
    if (d.steps == 0) d.steps = 1000;
    if (d.tol == 0) d.tol = 1e-12;
    tni_ascent t = TNI_ZERO;
    t.net = net; t.u = u;
    t.sign = d.minimum ? -1 : 1;
    t.radius = d.radius > 0 ? d.radius : 1;
    t.n = net->in[0].extent;
    t.free = t.n - net->constant;
    for (int k = 0; k < net->legs; k++) t.inputs = tni_max(t.inputs, net->in[k].input + 1);
    int64_t     m = t.inputs * t.n;
    tni_scratch w = tni_scratch_begin(net->ctx, "circuit_maximise");
    double     *scratch = tni_take_f64(&w, 3, m), *x = tni_take_f64(&w, m, 1), *best = tni_take_f64(&w, m, 1);
    double     *ends = tni_take_f64(&w, d.starts, 1);
    tn_status   s = w.failed ? TN_ERR_MEMORY : TN_OK;
    tni_rng     rng = TNI_ZERO;
    rng.key = d.seed;
    for (int64_t start = 0; start < d.starts && s == TN_OK; start++) {
        for (int64_t i = 0; i < m; i++) {                                            /* normal numbers, Box & Muller */
            const double radius = sqrt(-2 * log(tni_rng_unit(&rng)));
            scratch[i] = radius * cos(6.283185307179586 * tni_rng_unit(&rng));
        }
        tni_ascent_step(&t, scratch, scratch, 0, x);
        s = tni_ascent_from(&t, x, &ends[start], scratch, d.steps, d.tol, &done);
        if (s == TN_OK && (start == 0 || ends[start] > out->value)) {
            out->value = ends[start];
            out->converged = done;
            memcpy(best, x, (size_t)m * sizeof *best);
        }
    }
    for (int64_t start = 0; start < d.starts && s == TN_OK; start++)
        out->agree += ends[start] >= out->value - 1e-6 * fabs(out->value);
    out->value *= t.sign;
    if (s == TN_OK && !(out->x = tni_owned_from(net->ctx, 2, TNI_DIMS(t.inputs, t.n), best))) s = tn_ctx_status(net->ctx);
    if (s != TN_OK) tn_circuit_maximum_destroy(out);
    return tni_scratch_end(&w, s);
}

void tn_circuit_maximum_destroy(tn_circuit_maximum *o) { tni_result_end(o, sizeof *o, offsetof(tn_circuit_maximum, x), 1); }

/* ---- evidence ----------------------------------------------------------- >>circuits-evidence
   Moments are sums of powers of v - v_0, v_0 the first number of the feature, so that a mean far from 0 costs no digits.
   Random rows: a reservoir (Vitter 1985), one for all features. */

static void tni_evidence_free(tni_owned *owned)
{
    tn_circuit_evidence *e = (tn_circuit_evidence *)(void *)owned;
    tni_scratch_release(&e->w, NULL);
    tni_object_free(owned, sizeof *e);
}

void tn_circuit_evidence_destroy(tn_circuit_evidence *e) { if (e) tni_evidence_free(&e->owned); }

tn_circuit_evidence *tn_circuit_evidence_create(tn_ctx *ctx, const tn_circuit_evidence_desc *desc)
{
    tn_circuit_evidence *e;
    const char *op = "circuit_evidence";
    if (!ctx) return NULL;
    tn_circuit_evidence_desc d = TNI_ZERO;
    if (desc) d = *desc;
    if (d.top == 0) d.top = 10;
    if (d.features < 1 || d.top < 1 || d.bins < 0 || d.features > INT32_MAX || d.top > INT32_MAX / 8
        || d.bins > INT32_MAX / 8 || (unsigned)d.order > TN_ORDER_MAGNITUDE
        || (d.bins > 0 && !(d.low < d.high && d.high - d.low < HUGE_VAL)))
        return tni_fail(ctx, TN_ERR_ARG, "circuit_evidence: features is %lld, top %lld, order %d, bins %lld, low %g and high "
                        "%g, expected features and top at least 1 and low < high", (long long)d.features, (long long)d.top,
                        (int)d.order, (long long)d.bins, d.low, d.high), (tn_circuit_evidence *)NULL;
    if (!(e = (tn_circuit_evidence *)tni_object(ctx, sizeof *e, op, tni_evidence_free))) return NULL;
    e->desc = d;
    e->rng.key = d.seed;
    e->rng.call = 1;
    int64_t n = d.features;
    e->w = tni_scratch_begin(ctx, op);
    e->best = (tni_heap *)tni_take_zeroed(&e->w, n, sizeof *e->best);
    e->origin = tni_take_zeros(&e->w, n, 1);
    e->power = tni_take_zeros(&e->w, n, 4);
    e->drawn = tni_take_zeros(&e->w, n, d.top);
    e->drawn_at = (int32_t *)tni_take_zeroed(&e->w, d.top, sizeof *e->drawn_at);
    e->bins = tni_take_zeros(&e->w, n, d.bins);
    for (int64_t f = 0; f < n && !e->w.failed; f++) e->best[f] = tni_take_heap(&e->w, d.order, d.top);
    if (e->w.failed) return tn_circuit_evidence_destroy(e), (tn_circuit_evidence *)NULL;
    return e;
}

static void tni_evidence_row(tn_circuit_evidence *e, const double *v)
{
    const tn_circuit_evidence_desc *d = &e->desc;
    int64_t slot = e->rows < d->top ? e->rows : tni_rng_below(&e->rng, e->rows + 1);
    if (slot < d->top) e->drawn_at[slot] = (int32_t)e->rows;
    for (int64_t f = 0; f < d->features; f++) {
        double *p = &e->power[4 * f];
        if (e->rows == 0) e->origin[f] = v[f];
        double x = v[f] - e->origin[f];
        p[0] += x; p[1] += x * x; p[2] += x * x * x; p[3] += x * x * x * x;
        if (slot < d->top) e->drawn[f * d->top + slot] = v[f];
        tni_heap_offer(&e->best[f], v[f], e->rows);
        if (d->bins > 0) {
            const double at = (v[f] - d->low) / (d->high - d->low) * (double)d->bins;
            e->bins[f * d->bins + (at < 1 ? 0 : at >= (double)d->bins ? d->bins - 1 : (int64_t)at)]++;
        }
    }
    e->rows++;
}

tn_status tn_circuit_evidence_add(tn_circuit_evidence *e, const tn_tensor *values)
{
    double sum = 0;
    if (!e) return TN_ERR_ARG;
    tn_ctx *ctx = e->owned.ctx;
    int64_t n = e->desc.features;
    if (!tni_is_matrix(ctx, values, "circuit_evidence", "values")) return tn_ctx_status(ctx);
    if (values->shape[1] != n || values->shape[0] > INT32_MAX - e->rows)
        return tni_fail(ctx, TN_ERR_SHAPE, "circuit_evidence: values are %s after %lld rows, expected [rows,%lld], together "
                        "below 2^31 rows", TNI_SHAPE(values), (long long)e->rows, (long long)n);
    int64_t     count = values->shape[0];
    tni_scratch w = tni_scratch_begin(ctx, "circuit_evidence");
    double     *v = tni_take_f64(&w, count, n);
    tn_status   s = v ? tn_read(values, TN_F64, v, count * n) : TN_ERR_MEMORY;
    for (int64_t i = 0; i < count * n && s == TN_OK; i++) sum += v[i] - v[i];
    if (sum != 0) s = tni_fail(ctx, TN_ERR_NONFINITE, "circuit_evidence: a value is not finite");
    for (int64_t i = 0; i < count && s == TN_OK; i++) tni_evidence_row(e, v + i * n);
    return tni_scratch_end(&w, s);
}

void tn_circuit_evidence_result_destroy(tn_circuit_evidence_result *r)
{
    tni_result_end(r, sizeof *r, offsetof(tn_circuit_evidence_result, values), 8);
}

/* mean, std and kurtosis of a feature from its sums of powers */
static void tni_evidence_moments(const tn_circuit_evidence *e, int64_t f, double *out)
{
    const double *p = &e->power[4 * f], n = (double)e->rows;
    const double  m = p[0] / n, m2 = p[1] / n - m * m;
    const double  m4 = p[3] / n - 4 * m * p[2] / n + 6 * m * m * p[1] / n - 3 * m * m * m * m;
    out[0] = e->origin[f] + m;
    out[1] = sqrt(m2 > 0 ? m2 : 0);
    out[2] = m4 / (m2 * m2);
}

static bool tni_evidence_keep(tn_ctx *ctx, tn_tensor **to, tn_dtype dtype, int rank, int64_t n, int64_t m, const void *from)
{
    *to = tn_tensor_create(ctx, dtype == TN_I32 ? TN_I32 : TN_REAL, rank, TNI_DIMS(n, m));
    return *to && tn_write(*to, dtype, from, tn_tensor_count(*to)) == TN_OK;
}

tn_status tn_circuit_evidence_read(const tn_circuit_evidence *e, tn_circuit_evidence_result *out)
{
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if (!e) return TN_ERR_ARG;
    tn_ctx *ctx = e->owned.ctx;
    if (e->rows == 0) return tni_fail(ctx, TN_ERR_ARG, "circuit_evidence: no rows were added, expected at least 1");
    int64_t F = e->desc.features, k = tni_min(e->desc.top, e->rows);
    out->rows = e->rows;
    out->top = out->random = k;
    tni_scratch w = tni_scratch_begin(ctx, "circuit_evidence");
    double     *v = tni_take_f64(&w, F, tni_max(k, 3));
    int32_t    *at = (int32_t *)tni_take(&w, tni_area(F, k), sizeof *at);
    bool        whole = !w.failed;
    for (int64_t f = 0; f < F && whole; f++) {
        tni_found *found = e->best[f].found;
        tni_heap_sort(&e->best[f]);
        for (int64_t i = 0; i < k; i++) { v[f * k + i] = found[i].value; at[f * k + i] = (int32_t)found[i].at; }
        for (int64_t i = 0; i < k / 2; i++) {                                        /* reversed it is a heap again */
            tni_found first = found[i];
            found[i] = found[k - 1 - i];
            found[k - 1 - i] = first;
        }
    }
    whole = whole && tni_evidence_keep(ctx, &out->values, TN_F64, 2, F, k, v)
            && tni_evidence_keep(ctx, &out->index, TN_I32, 2, F, k, at)
            && tni_evidence_keep(ctx, &out->random_index, TN_I32, 1, k, 0, e->drawn_at);
    for (int64_t f = 0; f < F && whole; f++) memcpy(v + f * k, e->drawn + f * e->desc.top, (size_t)k * sizeof *v);
    whole = whole && tni_evidence_keep(ctx, &out->random_values, TN_F64, 2, F, k, v)
            && (e->desc.bins == 0 || tni_evidence_keep(ctx, &out->histogram, TN_F64, 2, F, e->desc.bins, e->bins));
    for (int64_t f = 0; f < F && whole; f++) {
        double moments[3];
        tni_evidence_moments(e, f, moments);
        for (int64_t i = 0; i < 3; i++) v[i * F + f] = moments[i];
    }
    whole = whole && tni_evidence_keep(ctx, &out->mean, TN_F64, 1, F, 0, v)
            && tni_evidence_keep(ctx, &out->std, TN_F64, 1, F, 0, v + F)
            && tni_evidence_keep(ctx, &out->kurtosis, TN_F64, 1, F, 0, v + 2 * F);
    tni_scratch_release(&w, NULL);
    if (whole) return TN_OK;
    tn_circuit_evidence_result_destroy(out);
    return tn_ctx_status(ctx);
}

/* ---- sparsity ----------------------------------------------------------- >>circuits-sparsity
   On the unit sphere E x^4 = 3/(n(n+2)), E x^8 = 105/p, E x_i^4 x_j^4 = 9/p with p = n(n+2)(n+4)(n+6), so that S = sum x^4
   has the mean 3/(n+2) and E S^2 = (9n + 96)/((n+2)(n+4)(n+6)). */

tn_status tn_circuit_sparsity_of(tn_ctx *ctx, const tn_tensor *x, tn_circuit_sparsity *out)
{
    double *of[3];
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if (!ctx || !tni_is_matrix(ctx, x, "circuit_sparsity", "x")) return ctx ? tn_ctx_status(ctx) : TN_ERR_ARG;
    int64_t rows = x->shape[0], n = x->shape[1];
    tni_scratch w = tni_scratch_begin(ctx, "circuit_sparsity");
    double     *v = tni_take_f64(&w, rows, n);
    for (int64_t i = 0; i < 3; i++) of[i] = tni_take_f64(&w, rows, 1);
    bool whole = !w.failed && tn_read(x, TN_F64, v, rows * n) == TN_OK;
    out->expected = 3 * (double)n / (double)(n + 2);
    double square = (9 * (double)n + 96) / ((double)(n + 2) * (double)(n + 4) * (double)(n + 6));
    square = square * (double)n * (double)n - out->expected * out->expected;
    out->std = sqrt(square > 0 ? square : 0);
    for (int64_t r = 0; r < rows && whole; r++) {
        double two = 0, four = 0, largest = 0;
        for (int64_t i = 0; i < n; i++) if (!(fabs(v[r * n + i]) <= largest)) largest = fabs(v[r * n + i]);
        for (int64_t i = 0; i < n; i++) {
            const double at = v[r * n + i] / largest;
            two += at * at;
            four += at * at * at * at;
        }
        of[0][r] = (double)n * four / (two * two);
        of[1][r] = two * two / four;
        of[2][r] = (of[0][r] - out->expected) / out->std;
    }
    tn_tensor **to[3] = {&out->kurtosis, &out->participation, &out->deviations};
    for (int64_t i = 0; i < 3 && whole; i++) whole = tni_evidence_keep(ctx, to[i], TN_F64, 1, rows, 0, of[i]);
    tni_scratch_release(&w, NULL);
    if (whole) return TN_OK;
    tn_circuit_sparsity_destroy(out);
    return tn_ctx_status(ctx);
}

void tn_circuit_sparsity_destroy(tn_circuit_sparsity *o)
{
    tni_result_end(o, sizeof *o, offsetof(tn_circuit_sparsity, kurtosis), 3);
}

#endif /* TN_NO_CIRCUITS */
