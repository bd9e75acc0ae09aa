#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_ANALYSIS
/* ---- eigenpairs as tensors ------------------------------------------------ >>eig-tensors */
typedef struct tni_eig_job {
    int64_t n;
    double *a, *re, *im, *right, *left;          /* of tni_eig */
    double *values, *vectors, *lefts, *condition;    /* [n,2], [n,2,n] twice, [n] */
    int64_t *order;                              /* [n]: first rows of values and pairs, in the order of the results */
} tni_eig_job;

/* Does the value at row i come before that at j? */
static bool tni_eig_before(const tni_eig_job *e, int64_t i, int64_t j)
{
    const double x = hypot(e->re[i], e->im[i]), y = hypot(e->re[j], e->im[j]);
    return x > y || (x == y && e->re[i] > e->re[j]);
}

/* from: a row, and the next one if it is a pair, to a unit vector at to [2,n]. */
static void tni_eig_unit(const tni_host *h, int64_t n, const double *from, bool pair, double *to)
{
    memcpy(to, from, (size_t)((pair ? 2 : 1) * n) * sizeof *to);
    if (!pair) memset(to + n, 0, (size_t)n * sizeof *to);
    double scale = tni_unit_scale(tni_largest_of(2 * n, to));
    h->by->scale(2 * n, scale, to);
    double length = sqrt(h->by->dot(2 * n, to, to));
    if (length > 0) h->by->scale(2 * n, 1 / length, to);
}

/* Multiplies the vector at x [2,n] by the unit number w. */
static void tni_eig_phase(int64_t n, tni_complex w, double *x)
{
    for (int64_t i = 0; i < n; i++) {
        const tni_complex c = tni_times(tni_complex_of(x[i], x[n + i]), w);
        x[i] = c.re;
        x[n + i] = c.im;
    }
}

static void tni_eig_normalise(const tni_host *h, const tni_eig_job *e, int64_t row, bool pair, double *x, double *y)
{
    const int64_t n = e->n;
    tni_complex w = tni_complex_of(1, 0);
    double  largest = 0, size;
    int64_t       at = 0;
    tni_eig_unit(h, n, e->right + row * n, pair, x);
    for (int64_t i = 0; i < n; i++)
        if ((size = hypot(x[i], x[n + i])) > largest * (1 + 4 * TNI_EPS)) { largest = size; at = i; }
    size = hypot(x[at], x[n + at]);
    if (size > 0) w = tni_complex_of(x[at] / size, -x[n + at] / size);
    tni_eig_phase(n, w, x);
    x[n + at] = 0;
    if (!y) return;
    tni_eig_unit(h, n, e->left + row * n, pair, y);
    w = tni_complex_of(h->by->dot(2 * n, y, x), h->by->dot(n, y, x + n) - h->by->dot(n, y + n, x));      /* y^H x */
    size = hypot(w.re, w.im);
    if (size > 0) tni_eig_phase(n, tni_complex_of(w.re / size, w.im / size), y);
    e->condition[row] = size < 1 ? 1 / size : 1;
}

/* Sorts and normalises; condition is by rows of T until the end. */
static void tni_eig_finish(const tni_host *h, const tni_eig_job *e, double *spare)
{
    const int64_t n = e->n;
    int64_t count = 0, to = 0;
    for (int64_t i = 0; i < n; i++) if (e->im[i] >= 0) e->order[count++] = i;
    for (int64_t i = 0; i < count; i++) {
        int64_t first = i;
        for (int64_t j = i + 1; j < count; j++) if (tni_eig_before(e, e->order[j], e->order[first])) first = j;
        int64_t row = e->order[first];
        e->order[first] = e->order[i];
        e->order[i] = row;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = e->order[i], rows = e->im[row] > 0 ? 2 : 1;
        double *x = e->vectors + to * 2 * n, *y = e->left ? e->lefts + to * 2 * n : NULL;
        if (e->right) tni_eig_normalise(h, e, row, rows == 2, x, y);
        for (int64_t k = 0; k < rows; k++, to++) {
            e->values[2 * to] = e->re[row];
            e->values[2 * to + 1] = k == 0 ? e->im[row] : -e->im[row];
            if (e->left) spare[to] = e->condition[row];
        }
        if (rows == 1 || !e->right) continue;
        memcpy(x + 2 * n, x, (size_t)(2 * n) * sizeof *x);
        h->by->scale(n, -1, x + 3 * n);
        if (!y) continue;
        memcpy(y + 2 * n, y, (size_t)(2 * n) * sizeof *y);
        h->by->scale(n, -1, y + 3 * n);
    }
    if (e->left) memcpy(e->condition, spare, (size_t)n * sizeof *spare);
}

/* The largest |A x - l x| / |A|_F. products [2n,n] */
static double tni_eig_residual(const tni_host *h, const tni_eig_job *e, double *a, double *products)
{
    const int64_t n = e->n;
    const double  norm = tni_frobenius(n * n, a);
    double  worst = 0;
    h->by->gemm(h, 2 * n, n, n, 1, tni_rows(e->vectors, n), tni_transposed(tni_rows(a, n)), 0, tni_rows(products, n));
    for (int64_t i = 0; i < n; i++) {
        const double re = e->values[2 * i], im = e->values[2 * i + 1], *x = e->vectors + 2 * i * n, *y = x + n;
        double *p = products + 2 * i * n;
        for (int64_t j = 0; j < n; j++) {
            p[j] -= re * x[j] - im * y[j];
            p[n + j] -= re * y[j] + im * x[j];
        }
        worst = tni_max_f64(worst, tni_frobenius(2 * n, p));
    }
    return norm > 0 ? worst / norm : worst;
}

static tn_status tni_eig_tensor(tni_scratch *w, tn_eig_result *out, const tn_tensor *a, const tn_eig_desc *desc)
{
    const int64_t n = a->shape[0];
    const bool    vectors = !desc->no_vectors, left = vectors && desc->left, measure = vectors && desc->measure;
    tn_ctx       *ctx = w->ctx;
    double        scale;
    tni_eig_job   e = TNI_ZERO;
    e.n = n;
    e.a = tni_take_f64(w, n, n);
    e.re = tni_take_f64(w, n, 1);
    e.im = tni_take_f64(w, n, 1);
    e.values = tni_take_f64(w, n, 2);
    e.condition = tni_take_f64(w, n, 1);
    e.order = (int64_t *)tni_take(w, n, sizeof *e.order);
    e.right = vectors ? tni_take_f64(w, n, n) : NULL;
    e.vectors = vectors ? tni_take_f64(w, tni_area(2, n), n) : NULL;
    e.left = left ? tni_take_f64(w, n, n) : NULL;
    e.lefts = left ? tni_take_f64(w, tni_area(2, n), n) : NULL;
    double   *again = measure ? tni_take_f64(w, n, n) : NULL, *work = tni_take_f64(w, tni_eig_work(n), 1);
    tni_host  h = tni_take_host(w, 2 * n);
    tn_status s = w->failed ? TN_ERR_MEMORY : tni_read_scaled(ctx, "eig", "a", a, e.a, &scale);
    if (s != TN_OK) return s;
    if (measure) memcpy(again, e.a, (size_t)(n * n) * sizeof *again);
    if ((s = tni_eig(&h, n, e.a, e.re, e.im, e.right, e.left, work)) != TN_OK)
        return tni_fail(ctx, s, "eig: the iteration did not converge for a, %s", TNI_SHAPE(a));
    tni_eig_finish(&h, &e, work);
    s = tni_decomp_unscaled(ctx, "eig", &out->values, 2, n, 2, e.values, scale);
    if (s != TN_OK || !vectors) return s;
    if ((s = tni_decomp_put(ctx, "eig", &out->right, TN_REAL, n, 2, 2, n, e.vectors)) != TN_OK) return s;
    if (left && (s = tni_decomp_put(ctx, "eig", &out->left, TN_REAL, n, 2, 2, n, e.lefts)) != TN_OK) return s;
    if (left && (s = tni_decomp_write(ctx, NULL, &out->condition, 1, n, 0, e.condition)) != TN_OK) return s;
    if (!measure) return TN_OK;
    tni_decomp_round(ctx, 2 * n * n, e.vectors);
    out->residual = tni_eig_residual(&h, &e, again, work);
    return TN_OK;
}

tn_status tn_eig(tn_ctx *ctx, const tn_tensor *a, const tn_eig_desc *desc, tn_eig_result *out)
{
    static const tn_eig_desc defaults = {false, false, false};
    tn_status s;
    if (!tni_decomp_out(ctx, "eig", out, sizeof *out)) return TN_ERR_ARG;
    out->residual = (double)NAN;
    if ((s = tni_decomp_takes(ctx, "eig", a)) != TN_OK) return s;
    if (a->shape[0] != a->shape[1])
        return tni_fail(ctx, TN_ERR_SHAPE, "eig: a is %s, expected a square matrix", TNI_SHAPE(a));
    tni_scratch w = tni_scratch_begin(ctx, "eig");
    s = tni_scratch_end(&w, tni_eig_tensor(&w, out, a, desc ? desc : &defaults));
    if (s != TN_OK) tn_eig_destroy(out);
    return s;
}
#endif /* TN_NO_ANALYSIS */

tn_status tn_qr(tn_ctx *ctx, const tn_tensor *a, const tn_qr_desc *desc, tn_qr_result *out)
{
    static const tn_qr_desc defaults = {false, false, 0};
    tn_status s;
    if (!tni_decomp_out(ctx, "qr", out, sizeof *out)) return TN_ERR_ARG;
    out->error = (double)NAN;
    if ((s = tni_decomp_takes(ctx, "qr", a)) != TN_OK) return s;
    tni_scratch w = tni_scratch_begin(ctx, "qr");
    s = tni_scratch_end(&w, tni_qr_tensor(&w, out, a, desc ? desc : &defaults));
    if (s != TN_OK) tn_qr_destroy(out);
    return s;
}

tn_status tn_lstsq(tn_ctx *ctx, const tn_tensor *a, const tn_tensor *b, const tn_lstsq_desc *desc, tn_lstsq_result *out)
{
    static const tn_lstsq_desc defaults = {0, 0};
    tn_status s;
    if (!tni_decomp_out(ctx, "lstsq", out, sizeof *out)) return TN_ERR_ARG;
    if (!desc) desc = &defaults;
    if ((s = tni_decomp_takes(ctx, "lstsq", a)) != TN_OK) return s;
    if (!tni_usable(ctx, b, "lstsq", "b")) return TN_ERR_ARG;
    int64_t m = a->shape[0], n = a->shape[1];
    if ((b->rank != 1 && b->rank != 2) || b->shape[0] != m)
        return tni_fail(ctx, TN_ERR_SHAPE, "lstsq: b is %s, expected [%lld] or [%lld,r], as a is %s", TNI_SHAPE(b),
                        (long long)m, (long long)m, TNI_SHAPE(a));
    int64_t count = b->rank == 2 ? b->shape[1] : 1;
    if (!(desc->ridge >= 0) || !(desc->ridge < HUGE_VAL))
        return tni_fail(ctx, TN_ERR_ARG, "lstsq: ridge is %g, expected 0 or more", desc->ridge);
    int64_t rows = m + (desc->ridge > 0 ? n : 0);
    if (!tni_decomp_fits(ctx, "lstsq", rows, n) || !tni_decomp_fits(ctx, "lstsq", rows + n, count)) return TN_ERR_SHAPE;
    tni_scratch w = tni_scratch_begin(ctx, "lstsq");
    s = tni_scratch_end(&w, tni_lstsq_tensor(&w, out, a, b, desc));
    if (s != TN_OK) tn_lstsq_destroy(out);
    return s;
}

tn_status tn_svd(tn_ctx *ctx, const tn_tensor *a, const tn_svd_desc *desc, tn_svd_result *out)
{
    tn_svd_desc defaults = TNI_ZERO;
    tn_status   s = TN_ERR_CONVERGENCE;
    tni_few     few;
    if (!tni_decomp_out(ctx, "svd", out, sizeof *out)) return TN_ERR_ARG;
    out->error = out->residual = (double)NAN;
    if (!desc) desc = &defaults;
    if ((s = tni_decomp_takes(ctx, "svd", a)) != TN_OK) return s;
    if (tni_decomp_top(ctx, "svd", desc->top, tni_min(a->shape[0], a->shape[1])) < 0) return TN_ERR_ARG;
    if ((s = tni_truncation_check(ctx, "svd", &desc->truncation)) != TN_OK) return s;
    if (!tni_within(ctx, "svd", "method", (int)desc->method, 0, TN_SVD_RANDOMISED)
        || !tni_within(ctx, "svd", "oversample", desc->oversample, 0, INT64_MAX)
        || !tni_within(ctx, "svd", "power", desc->power, 0, INT64_MAX)) return TN_ERR_ARG;
    if (desc->method > TN_SVD_EXACT && desc->truncation.weight > 0)
        return tni_fail(ctx, TN_ERR_ARG, "svd: truncation.weight is %g and method computes some values, expected "
                        "TN_SVD_EXACT or TN_SVD_AUTO", desc->truncation.weight);
    tni_scratch w = tni_scratch_begin(ctx, "svd");
    if (tni_few_plan(ctx, &few, a, desc)) {
        s = tni_scratch_end(&w, tni_few_tensor(&w, out, a, desc, &few));
        if (s != TN_OK) tn_svd_destroy(out);
        if (s == TN_ERR_CONVERGENCE && desc->method != TN_SVD_AUTO)
            return tni_fail(ctx, s, "svd: the iteration did not converge for a, %s, and top %lld (TN_SVD_AUTO falls back on "
                            "all values)", TNI_SHAPE(a), (long long)desc->top);
        if (s != TN_ERR_CONVERGENCE) return s;
    }
    if ((s = tni_scratch_end(&w, tni_svd_tensor(&w, out, a, desc))) != TN_OK) tn_svd_destroy(out);
    return s;
}

/* Checks a desc and fills in its defaults. */
TNI_COLD_FN tn_status tni_lanczos_plan(tn_ctx *ctx, tni_lanczos_job *l, int64_t n, const tn_lanczos_desc *d)
{
    memset(l, 0, sizeof *l);
    l->pool = tni_ctx_pool(ctx);
    l->simd = ctx->desc.simd;
    if (n < 0 || n > INT32_MAX)
        return tni_fail(ctx, TN_ERR_ARG, "lanczos: n is %lld, expected 0 to 2^31 - 1", (long long)n);
    if (!tni_within(ctx, "lanczos", "which", (int)d->which, 0, TN_LANCZOS_SMALLEST)) return TN_ERR_ARG;
    if ((l->top = tni_decomp_top(ctx, "lanczos", d->top, n)) < 0) return TN_ERR_ARG;
    if (tni_count_check(ctx, "lanczos", "block", d->block) != TN_OK) return TN_ERR_ARG;
    if (tni_count_check(ctx, "lanczos", "basis", d->basis) != TN_OK) return TN_ERR_ARG;
    if (tni_count_check(ctx, "lanczos", "products", d->products) != TN_OK) return TN_ERR_ARG;
    if (!(d->tol >= 0) || !(d->tol < 1))
        return tni_fail(ctx, TN_ERR_ARG, "lanczos: tol is %g, expected 0 <= tol < 1", d->tol);
    l->n = n;
    l->end = d->which;
    l->seed = d->seed;
    l->tol = d->tol > 0 ? d->tol : ctx->desc.dtype == TN_F32 ? 1e-8 : 1e-12;
    l->block = tni_min(tni_max(d->block, 1), tni_max(n, 1));
    l->basis = tni_min(n, d->basis > 0 ? d->basis : 2 * l->top + 40 * l->block);
    l->limit = d->products > 0 ? d->products : 300 * l->basis;
    if (n > 0 && l->basis + 2 * l->block > (INT64_MAX >> 8) / n)
        return tni_fail(ctx, TN_ERR_MEMORY, "lanczos: a basis of %lld vectors of %lld does not fit the address space",
                        (long long)l->basis, (long long)n);
    if (l->basis == n || l->basis >= l->top + 2 * l->block) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "lanczos: basis is %lld, expected at least top + 2 block = %lld", (long long)l->basis,
                    (long long)(l->top + 2 * l->block));
}

/* |A v - l v| / |A| of the results as they are stored: y is A v. */
static tn_status tni_lanczos_measure(tn_ctx *ctx, tni_lanczos_job *l, double *residual)
{
    double worst = 0;
    tni_decomp_round(ctx, l->top, l->theta);
    tni_decomp_round(ctx, l->top * l->n, l->v);
    for (int64_t i = 0; i < l->top; i++) {
        tn_status s;
        if ((s = l->fn(l->user, 1, l->v + i * l->n, l->y)) != TN_OK) return s;
        l->host.by->axpy(l->n, -l->theta[i], l->v + i * l->n, l->y);
        worst = tni_max_f64(worst, tni_frobenius(l->n, l->y));
    }
    *residual = l->norm > 0 ? worst * l->scale / l->norm : worst;
    return TN_OK;
}

static tn_status tni_lanczos_tensor(tn_ctx *ctx, tn_lanczos_result *out, tni_lanczos_job *l, const tn_lanczos_desc *desc)
{
    tn_status s = tni_lanczos(l);
    out->residual = l->residual;
    out->products = l->products;
    if (s == TN_ERR_CONVERGENCE)
        return tni_fail(ctx, s, "lanczos: after %lld products the residual is %g, expected %g", (long long)l->products,
                        l->residual, l->tol);
    if (s == TN_ERR_ARG && l->skew > 1e-3 * l->norm)
        return tni_fail(ctx, s, "lanczos: the matrix is not symmetric: x.A y and y.A x differ by %g |A|",
                        l->skew / l->norm);
    if (s == TN_ERR_NONFINITE) return tni_fail(ctx, s, "lanczos: a product has NaN or infinity, expected finite numbers");
    if (s != TN_OK) return tni_fail(ctx, s, "lanczos: fn failed: %s", tn_status_name(s));
    if ((s = tni_decomp_write(ctx, "lanczos", &out->values, 1, l->top, 0, l->theta)) != TN_OK) return s;
    if ((s = tni_decomp_write(ctx, "lanczos", &out->vectors, 2, l->top, l->n, l->v)) != TN_OK || !desc->measure) return s;
    return tni_lanczos_measure(ctx, l, &out->residual);
}

tn_status tn_lanczos(tn_ctx *ctx, int64_t n, tn_matvec_fn fn, void *user, const tn_lanczos_desc *desc,
                     tn_lanczos_result *out)
{
    static const tn_lanczos_desc usual = {TN_LANCZOS_MAGNITUDE, 0, 0, 0, 0, 0, 0, false};
    tni_lanczos_job job;
    tn_status s;
    if (!tni_decomp_out(ctx, "lanczos", out, sizeof *out)) return TN_ERR_ARG;
    out->residual = (double)NAN;
    if (!desc) desc = &usual;
    if (!ctx) return TN_ERR_ARG;
    if (!fn) return tni_fail(ctx, TN_ERR_ARG, "lanczos: fn is NULL, expected a matrix-vector product");
    if ((s = tni_lanczos_plan(ctx, &job, n, desc)) != TN_OK) return s;
    job.fn = fn;
    job.user = user;
    tni_scratch w = tni_scratch_begin(ctx, "lanczos");
    double     *work = tni_take_zeros(&w, tni_lanczos_work(&job), 1);
    if (work) tni_lanczos_lay(&job, work);
    s = tni_scratch_end(&w, work ? tni_lanczos_tensor(ctx, out, &job, desc) : TN_ERR_MEMORY);
    if (s != TN_OK) tn_lanczos_destroy(out);
    return s;
}

void tn_qr_destroy(tn_qr_result *r)       { if (r) { tni_drop(&r->q); tni_drop(&r->r); tni_drop(&r->order); } }
void tn_lstsq_destroy(tn_lstsq_result *r) { if (r) { tni_drop(&r->x); tni_drop(&r->residual); } }
void tn_svd_destroy(tn_svd_result *r)
{
    if (r) { tni_drop(&r->u); tni_drop(&r->s); tni_drop(&r->vt); tni_drop_clusters(&r->cluster, &r->angle); }
}
#ifndef TN_NO_ANALYSIS
void tn_eig_destroy(tn_eig_result *r)
{
    if (r) { tni_drop(&r->values); tni_drop(&r->right); tni_drop(&r->left); tni_drop(&r->condition); }
}
#endif /* TN_NO_ANALYSIS */
void tn_lanczos_destroy(tn_lanczos_result *r) { if (r) { tni_drop(&r->values); tni_drop(&r->vectors); } }

double tn_effective_rank(const double *values, int64_t n)
{
    double largest = 0, sum = 0, squares = 0;
    if (!values) n = 0;
    for (int64_t i = 0; i < n; i++) if (!(fabs(values[i]) <= largest)) largest = fabs(values[i]);
    if (largest == 0) return 0;
    for (int64_t i = 0; i < n; i++) {
        double x = fabs(values[i]) / largest;
        sum += x;
        squares += x * x;
    }
    return sum * sum / squares;
}

TNI_COLD_FN tn_status tni_eps_check(tn_ctx *ctx, const char *op, const char *what, double eps)
{
    if (eps >= 0 && eps < HUGE_VAL) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s: %s is %g, expected 0 or more", op, what, eps);
}

/* The least number of values, descending, whose dropped tail has at most the norm delta. */
TNI_COLD_FN int64_t tni_tail_rank(int64_t n, const double *s, double delta)
{
    double sum = 0;
    while (n > 0 && (sum += s[n - 1] * s[n - 1]) <= delta * delta) n--;
    return n;
}

TNI_COLD_FN double tni_tail_squares(int64_t n, const double *s, int64_t rank)
{
    double sum = 0;
    while (n > rank) { n--; sum += s[n] * s[n]; }
    return sum;
}

TNI_COLD_FN double tni_gap(int64_t n, const double *s, int64_t rank)
{
    return rank > 0 && rank < n && s[rank - 1] > 0 ? (s[rank - 1] - s[rank]) / s[rank - 1] : 1;
}

#endif /* TN_NO_OPERATOR */
