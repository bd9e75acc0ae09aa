#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- joint diagonalisation ---------------------------------------------- >>joint-impl
   A rotation of p and q by the angle t changes the squares of the off-diagonal part by a quadratic form in (cos 4t, sin 4t),
   whose minimum is known: with x = a_pp - a_qq and y = 2 a_pq of each matrix,
       tan 4t = 2 x.y / (x.x - y.y)
   The matrices are stored [n,n,b], so that element (p,q) of all of them is contiguous, and a row of all, too. It begins with
   the eigenvectors of a random combination, which are the answer if the matrices commute and no values coincide. */

typedef struct tni_joint_job {
    tni_host host;
    int64_t  b, n;
    double  *a, *v, *x, *m, *t, *values, *squares, *errors, *work;   /* [b,n,n] [n,n] [n,n,b] [n,n] [n,n] [b,n] */
} tni_joint_job;

static void tni_joint_take(tni_scratch *w, tni_joint_job *j)
{
    const int64_t n = j->n, b = j->b;
    j->a = tni_take_f64(w, b, tni_area(n, n));
    j->x = tni_take_f64(w, b, tni_area(n, n));
    j->v = tni_take_f64(w, n, n);
    j->m = tni_take_f64(w, n, n);
    j->t = tni_take_f64(w, n, n);
    j->values = tni_take_f64(w, tni_max(b, 1), n);
    j->squares = tni_take_f64(w, tni_max(n, b), 1);
    j->errors = tni_take_f64(w, n + 1, 1);
    j->work = tni_take_f64(w, tni_eigh_work(n), 1);
    j->host = tni_take_host(w, tni_max(n, b));
}

/* x = V A_b V^T, [n,n,b] */
static void tni_joint_transform(tni_joint_job *j)
{
    const tni_host *h = &j->host;
    const int64_t   n = j->n;
    for (int64_t c = 0; c < j->b; c++) {
        h->by->gemm(h, n, n, n, 1, tni_rows(j->v, n), tni_rows(j->a + c * n * n, n), 0, tni_rows(j->m, n));
        h->by->gemm(h, n, n, n, 1, tni_rows(j->m, n), tni_transposed(tni_rows(j->v, n)), 0, tni_rows(j->t, n));
        for (int64_t i = 0; i < n * n; i++) j->x[i * j->b + c] = j->t[i];
    }
}

static tn_status tni_joint_begin(tni_joint_job *j)
{
    const int64_t all = j->n * j->n;
    memset(j->m, 0, (size_t)all * sizeof *j->m);
    tni_random_signed(0, 0, 0, j->b, j->squares);
    for (int64_t c = 0; c < j->b; c++) j->host.by->axpy(all, j->squares[c], j->a + c * all, j->m);
    tn_status s = tni_eigh(&j->host, j->n, j->m, j->values, j->v, j->work);
    if (s == TN_OK) tni_joint_transform(j);
    return s;
}

/* The best rotation of p and q. */
static void tni_joint_rotate(tni_joint_job *j, int64_t p, int64_t q)
{
    const tni_host *h = &j->host;
    const int64_t   n = j->n, b = j->b;
    const double   *pp = j->x + (p * n + p) * b, *qq = j->x + (q * n + q) * b, *pq = j->x + (p * n + q) * b;
    double  on = 0, off = 0;
    for (int64_t i = 0; i < b; i++) {
        const double x = pp[i] - qq[i], y = 2 * pq[i];
        on += (x - y) * (x + y);
        off += 2 * x * y;
    }
    double angle = 0.25 * atan2(off, on), c = cos(angle), s = sin(angle);
    if (fabs(s) < TNI_EPS) return;
    h->by->rotate(n * b, c, -s, j->x + p * n * b, j->x + q * n * b);
    for (int64_t i = 0; i < n; i++) h->by->rotate(b, c, -s, j->x + (i * n + p) * b, j->x + (i * n + q) * b);
    h->by->rotate(n, c, -s, j->v + p * n, j->v + q * n);
}

/* The squares off the diagonals. *all: and those on them. */
static double tni_joint_off(const tni_joint_job *j, double *all)
{
    double off = 0;
    *all = 0;
    for (int64_t i = 0; i < j->n * j->n; i++) {
        const double *x = j->x + i * j->b, sum = j->host.by->dot(j->b, x, x);
        *all += sum;
        if (i / j->n != i % j->n) off += sum;
    }
    return off;
}

static void tni_joint_sweeps(tni_joint_job *j, int64_t sweeps, double tol, tn_joint_eigh_result *out)
{
    double all, off = tni_joint_off(j, &all);
    while (out->sweeps < sweeps && !out->converged) {
        for (int64_t p = 0; p < j->n; p++) for (int64_t q = p + 1; q < j->n; q++) tni_joint_rotate(j, p, q);
        double before = off;
        off = tni_joint_off(j, &all);
        out->sweeps++;
        out->converged = before - off <= tol * off || off <= TNI_EPS * TNI_EPS * all;
    }
}

/* Sorts the vectors, by the squares of their values, and points them up; the values are computed anew from A. */
static void tni_joint_finish(tni_joint_job *j)
{
    const int64_t n = j->n, b = j->b;
    for (int64_t i = 0; i < n; i++) {
        const double *d = j->x + (i * n + i) * b;
        j->squares[i] = j->host.by->dot(b, d, d);
        if (tni_points_down(n, j->v + i * n, 1)) j->host.by->scale(n, -1, j->v + i * n);
    }
    tni_sort_rows(n, j->squares, tni_before_descending, n, j->v, NULL);
    tni_joint_transform(j);
    for (int64_t c = 0; c < b; c++) for (int64_t i = 0; i < n; i++) j->values[c * n + i] = j->x[(i * n + i) * b + c];
}

/* errors [n+1] of the first 0 to n of `count` values, the most important first; rest: squares that none of them has */
static void tni_joint_errors(int64_t n, int64_t count, const double *squares, double rest, double all, double *errors)
{
    for (int64_t k = count; k > n; k--) rest += squares[k - 1];
    for (int64_t k = n; k >= 0; k--) {
        if (k < n && k < count) rest += squares[k];
        errors[k] = all > 0 ? sqrt(rest / all) : 0;
    }
}

static tn_status tni_joint_separate(tni_joint_job *j, double all, double *errors)
{
    const int64_t n = j->n, count = j->b * n;
    tn_status s = TN_OK;
    for (int64_t c = 0; c < j->b && s == TN_OK; c++) {       /* A is used up */
        s = tni_eigh(&j->host, n, j->a + c * n * n, j->x + c * n, NULL, j->work);
        for (int64_t i = 0; i < n; i++) j->x[c * n + i] *= j->x[c * n + i];
    }
    if (s != TN_OK) return s;
    for (int64_t i = 0; i < tni_min(n, count); i++)          /* the n largest come first */
        for (int64_t c = i + 1; c < count; c++) if (j->x[c] > j->x[i]) tni_swap(1, j->x + c, j->x + i);
    tni_joint_errors(n, count, j->x, 0, all, errors);
    return TN_OK;
}

static tn_status tni_joint_write(tn_ctx *ctx, tni_joint_job *j, const tn_joint_eigh_desc *d, double scale,
                                 tn_joint_eigh_result *out)
{
    const int64_t n = j->n, b = j->b;
    int64_t   more = n + 1, c;
    double    all = 0, rest = 0, *errors = j->errors;
    tn_status s;
    for (c = 0; c < b; c++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < n * n; i++) {
            const double x = j->x[i * b + c];
            size += x * x;
            if (i / n != i % n) sum += x * x;
        }
        all += size;
        rest += sum;
        j->squares[c] = size > 0 ? sqrt(sum / size) : 0;
    }
    if ((s = tni_write_new(ctx, "joint_eigh", &out->off, 1, &b, j->squares)) != TN_OK) return s;
    for (int64_t i = 0; i < n; i++) {
        double least = HUGE_VAL;
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (c = 0; c < b && k != i; c++) {
                const double x = j->values[c * n + i] - j->values[c * n + k];
                sum += x * x;
            }
            if (k != i) least = fmin(least, sum);
        }
        j->squares[i] = n > 1 && all > 0 ? sqrt(least / all) : 0;
    }
    if (n == 1) j->squares[0] = 1;
    if ((s = tni_write_new(ctx, "joint_eigh", &out->gap, 1, &n, j->squares)) != TN_OK) return s;
    for (int64_t i = 0; i < n; i++)
        for (j->squares[i] = 0, c = 0; c < b; c++) j->squares[i] += j->values[c * n + i] * j->values[c * n + i];
    tni_joint_errors(n, n, j->squares, rest, all, errors);
    out->error = errors[n];
    if ((s = tni_write_new(ctx, "joint_eigh", &out->shared, 1, &more, errors)) != TN_OK) return s;
    for (int64_t i = 0; i < b * n; i++) j->values[i] /= scale;
    if ((s = tni_write_new(ctx, "joint_eigh", &out->values, 2, TNI_DIMS(b, n), j->values)) != TN_OK) return s;
    if ((s = tni_write_new(ctx, "joint_eigh", &out->vectors, 2, TNI_DIMS(n, n), j->v)) != TN_OK || !d->compare) return s;
    if ((s = tni_joint_separate(j, all, errors)) != TN_OK)
        return tni_fail(ctx, s, "joint_eigh: the eigenvalues of single matrices did not converge");
    return tni_write_new(ctx, "joint_eigh", &out->separate, 1, &more, errors);
}

static tn_status tni_joint_run(tn_ctx *ctx, tni_joint_job *j, const tn_tensor *a, const tn_joint_eigh_desc *d,
                               tn_joint_eigh_result *out)
{
    const double  tol = d->tol > 0 ? d->tol : 1e-6;
    const int64_t sweeps = d->sweeps > 0 ? d->sweeps : 200;
    double    scale;
    tn_status s = tni_read_scaled(ctx, "joint_eigh", "a", a, j->a, &scale);
    if (s != TN_OK || (s = tni_symmetric_parts(ctx, "joint_eigh", "a", "", a, j->a)) != TN_OK) return s;
    if ((s = tni_joint_begin(j)) != TN_OK) return tni_fail(ctx, s, "joint_eigh: the first eigenvectors did not converge");
    tni_joint_sweeps(j, sweeps, tol, out);
    tni_joint_finish(j);
    return tni_joint_write(ctx, j, d, scale, out);
}

tn_status tn_joint_eigh(tn_ctx *ctx, const tn_tensor *a, const tn_joint_eigh_desc *desc, tn_joint_eigh_result *out)
{
    static const tn_joint_eigh_desc usual = {0, 0, false};
    tni_joint_job j;
    tn_status     s;
    if (!tni_decomp_out(ctx, "joint_eigh", out, sizeof *out)) return TN_ERR_ARG;
    out->error = (double)NAN;
    if (!desc) desc = &usual;
    if (!tni_usable(ctx, a, "joint_eigh", "a")) return TN_ERR_ARG;
    if (a->rank != 3 || a->shape[1] != a->shape[2])
        return tni_fail(ctx, TN_ERR_SHAPE, "joint_eigh: a is %s, expected [b,n,n]", TNI_SHAPE(a));
    if ((s = tni_eps_check(ctx, "joint_eigh", "tol", desc->tol)) != TN_OK) return s;
    if ((s = tni_count_check(ctx, "joint_eigh", "sweeps", desc->sweeps)) != TN_OK) return s;
    if (!tni_decomp_fits(ctx, "joint_eigh", a->shape[1], a->shape[2])) return TN_ERR_SHAPE;
    j.b = a->shape[0];
    j.n = a->shape[1];
    tni_scratch w = tni_scratch_begin(ctx, "joint_eigh");
    tni_joint_take(&w, &j);
    s = tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : tni_joint_run(ctx, &j, a, desc, out));
    if (s != TN_OK) tn_joint_eigh_destroy(out);
    return s;
}

void tn_joint_eigh_destroy(tn_joint_eigh_result *r)
{
    if (!r) return;
    tni_drop(&r->vectors);
    tni_drop(&r->values);
    tni_drop(&r->off);
    tni_drop(&r->gap);
    tni_drop(&r->shared);
    tni_drop(&r->separate);
}

/* ---- FastICA ------------------------------------------------------------ >>ica-impl
   X centred = U D V^T [samples,features]; K = D^-1 V^T, each row of V^T with a first number that is not negative;
   Z = sqrt(samples) K X^T is white, and with g = tanh each iteration is
       W' = orthogonal(mean_n g(W z) z^T - diag(mean g'(W z)) W)       orthogonal(W) = (W W^T)^-1/2 W
   components = sqrt(samples) W K. */

typedef struct tni_ica_job {
    tni_host host;
    int64_t  n, f, k, all;               /* samples, features, components, min(n,f) */
    double  *x, *z, *g, *mean, *u, *d, *kw, *w, *next, *s, *vectors, *values, *contrast, *out, *work;
} tni_ica_job;

static void tni_ica_take(tni_scratch *w, tni_ica_job *j)
{
    const int64_t n = j->n, f = j->f, all = j->all;
    j->x = tni_take_f64(w, n, f);
    j->z = tni_take_f64(w, all, n);
    j->g = tni_take_f64(w, all, n);
    j->mean = tni_take_f64(w, f, 1);
    j->u = tni_take_f64(w, f, tni_max(all, 1));
    j->d = tni_take_f64(w, tni_max(all, 1), 1);
    j->kw = tni_take_f64(w, all, f);
    j->out = tni_take_f64(w, all, f);
    j->w = tni_take_f64(w, all, all);
    j->next = tni_take_f64(w, all, all);
    j->s = tni_take_f64(w, all, all);
    j->vectors = tni_take_f64(w, all, all);
    j->values = tni_take_f64(w, all, 1);
    j->contrast = tni_take_f64(w, all, 1);
    j->work = tni_take_f64(w, tni_max(tni_axis_work(f, n), tni_eigh_work(all)), 1);
    j->host = tni_take_host(w, tni_max(n, f + tni_axis_chunk(f)));
}

/* Centres x, and makes K [k,f] and Z [k,n]. */
static tn_status tni_ica_whiten(tn_ctx *ctx, tni_ica_job *j, const tn_tensor *x, int64_t components)
{
    const double eps = tni_max_f64(TNI_EPS, tni_dtype_eps(x->dtype)) * (double)tni_max(j->n, j->f);
    const double largest = tni_largest(j->n, j->f, tni_rows(j->x, j->f));
    int64_t      rank = 0;
    tn_status s;
    for (int64_t c = 0; c < j->f; c++) {
        double sum = 0;
        for (int64_t i = 0; i < j->n; i++) sum += j->x[i * j->f + c];
        j->mean[c] = j->n > 0 ? sum / (double)j->n : 0;
        for (int64_t i = 0; i < j->n; i++) j->x[i * j->f + c] -= j->mean[c];
    }
    if ((s = tni_axis_svd(&j->host, j->n, j->f, 1, j->x, j->u, j->d, j->work)) != TN_OK)
        return tni_fail(ctx, s, "ica: the SVD of x, %s, did not converge", TNI_SHAPE(x));
    while (rank < j->all && j->d[rank] > eps * tni_max_f64(j->d[0], largest)) rank++;
    j->k = components > 0 ? components : rank;
    if (j->k > rank)
        return tni_fail(ctx, TN_ERR_ARG, "ica: components is %lld, expected at most %lld, the rank of the centred data",
                        (long long)components, (long long)rank);
    for (int64_t i = 0; i < j->k; i++) {
        const double divisor = (j->u[i] < 0 ? -1 : 1) * j->d[i];
        for (int64_t c = 0; c < j->f; c++) j->kw[i * j->f + c] = j->u[c * j->all + i] / divisor;
    }
    j->host.by->gemm(&j->host, j->k, j->n, j->f, sqrt((double)j->n), tni_rows(j->kw, j->f), tni_transposed(tni_rows(j->x, j->f)),
                     0, tni_rows(j->z, j->n));
    return TN_OK;
}

/* w = (next next^T)^-1/2 next */
static tn_status tni_ica_orthogonal(tni_ica_job *j, double *w)
{
    const tni_host *h = &j->host;
    const int64_t   k = j->k;
    tn_status s;
    h->by->gemm(h, k, k, k, 1, tni_rows(j->next, k), tni_transposed(tni_rows(j->next, k)), 0, tni_rows(j->s, k));
    if ((s = tni_eigh(h, k, j->s, j->values, j->vectors, j->work)) != TN_OK) return s;
    h->by->gemm(h, k, k, k, 1, tni_rows(j->vectors, k), tni_rows(j->next, k), 0, tni_rows(j->s, k));
    for (int64_t i = 0; i < k; i++)
        for (int64_t c = 0; c < k; c++) j->s[i * k + c] /= sqrt(tni_max_f64(j->values[i], 1e-300));
    h->by->gemm(h, k, k, k, 1, tni_transposed(tni_rows(j->vectors, k)), tni_rows(j->s, k), 0, tni_rows(w, k));
    return TN_OK;
}

static tn_status tni_ica_begin(tn_ctx *ctx, tni_ica_job *j, const tn_ica_desc *d)
{
    int64_t   rank = 0;
    double    scale;
    tn_status s;
    tni_random_signed(d->seed, 0, 0, j->k * j->k, j->next);
    if (!d->start) return tni_ica_orthogonal(j, j->w);
    if (!tni_usable(ctx, d->start, "ica", "start")) return TN_ERR_ARG;
    if (d->start->rank != 2 || d->start->shape[0] != j->k || d->start->shape[1] != j->k)
        return tni_fail(ctx, TN_ERR_SHAPE, "ica: start is %s, expected [%lld,%lld]", TNI_SHAPE(d->start), (long long)j->k,
                        (long long)j->k);
    if ((s = tni_read_scaled(ctx, "ica", "start", d->start, j->next, &scale)) != TN_OK) return s;
    if ((s = tni_ica_orthogonal(j, j->w)) != TN_OK)
        return tni_fail(ctx, s, "ica: the eigenvectors of W W^T did not converge");
    for (int64_t i = 0; i < j->k; i++) rank += j->values[i] > (double)j->k * TNI_EPS * j->values[j->k - 1];
    if (rank == j->k) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "ica: start, %s, has rank %lld, expected %lld", TNI_SHAPE(d->start), (long long)rank,
                    (long long)j->k);
}

/* Row i of g = tanh(W z), in place; the means of the slope, and of slope - s tanh s, with the variance of the latter. */
static double tni_ica_row(tni_ica_job *j, int64_t i, double *contrast, double *variance)
{
    double *g = j->g + i * j->n, slope = 0, sum = 0, squares = 0;
    for (int64_t c = 0; c < j->n; c++) {
        const double s = g[c], t = tanh(s), d = 1 - t * t - s * t;
        g[c] = t;
        slope += 1 - t * t;
        sum += d;
        squares += d * d;
    }
    *contrast = sum / (double)j->n;
    *variance = squares / (double)j->n - *contrast * *contrast;
    return slope / (double)j->n;
}

static void tni_ica_sources(tni_ica_job *j)
{
    j->host.by->gemm(&j->host, j->k, j->n, j->k, 1, tni_rows(j->w, j->k), tni_rows(j->z, j->n), 0, tni_rows(j->g, j->n));
}

static tn_status tni_ica_iterate(tni_ica_job *j, double *change)
{
    const tni_host *h = &j->host;
    const int64_t   k = j->k;
    double    contrast, variance;
    int64_t   i;
    tn_status s;
    tni_ica_sources(j);
    for (i = 0; i < k; i++) {
        double slope = tni_ica_row(j, i, &contrast, &variance);
        memcpy(j->next + i * k, j->w + i * k, (size_t)k * sizeof *j->w);
        h->by->scale(k, -slope, j->next + i * k);
    }
    h->by->gemm(h, k, k, j->n, 1 / (double)j->n, tni_rows(j->g, j->n), tni_transposed(tni_rows(j->z, j->n)), 1,
                tni_rows(j->next, k));
    if ((s = tni_ica_orthogonal(j, j->next)) != TN_OK) return s;
    for (*change = 0, i = 0; i < k; i++)
        *change = tni_max_f64(*change, fabs(fabs(h->by->dot(k, j->next + i * k, j->w + i * k)) - 1));
    tni_swap_pointers(&j->next, &j->w);
    return TN_OK;
}

static tn_status tni_ica_write(tn_ctx *ctx, tni_ica_job *j, double scale, tn_ica_result *out)
{
    const tni_host *h = &j->host;
    const int64_t   k = j->k, f = j->f;
    const double    root = sqrt((double)j->n);
    double    variance;
    tn_status s;
    tni_ica_sources(j);
    for (int64_t i = 0; i < k; i++) {
        tni_ica_row(j, i, j->contrast + i, &variance);
        out->gaussian += fabs(j->contrast[i]) <= 3 * sqrt(tni_max_f64(variance, 0)) / root;
    }
    for (int64_t i = 0; i < k; i++) h->by->scale(f, j->d[i], j->kw + i * f); /* the rows of V^T */
    for (int64_t i = 0; i < k * k; i++) j->s[i] = j->w[i] * root * scale / j->d[i % k];
    h->by->gemm(h, k, f, k, 1, tni_rows(j->s, k), tni_rows(j->kw, f), 0, tni_rows(j->out, f));
    for (int64_t i = 0; i < k; i++) {
        if (!tni_points_down(f, j->out + i * f, 1)) continue;
        h->by->scale(f, -1, j->out + i * f);
        h->by->scale(k, -1, j->w + i * k);
    }
    if ((s = tni_write_new(ctx, "ica", &out->components, 2, TNI_DIMS(k, f), j->out)) != TN_OK) return s;
    if ((s = tni_write_new(ctx, "ica", &out->contrast, 1, &k, j->contrast)) != TN_OK) return s;
    for (int64_t i = 0; i < k * k; i++) j->s[i] = j->w[i] * j->d[i % k] / (root * scale);
    h->by->gemm(h, f, k, k, 1, tni_transposed(tni_rows(j->kw, f)), tni_transposed(tni_rows(j->s, k)), 0, tni_rows(j->out, k));
    if ((s = tni_write_new(ctx, "ica", &out->mixing, 2, TNI_DIMS(f, k), j->out)) != TN_OK) return s;
    for (int64_t i = 0; i < k; i++) h->by->scale(f, scale / j->d[i], j->kw + i * f);
    if ((s = tni_write_new(ctx, "ica", &out->whitening, 2, TNI_DIMS(k, f), j->kw)) != TN_OK) return s;
    for (int64_t i = 0; i < f; i++) j->mean[i] /= scale;
    return tni_write_new(ctx, "ica", &out->mean, 1, &f, j->mean);
}

static tn_status tni_ica_run(tn_ctx *ctx, tni_ica_job *j, const tn_tensor *x, const tn_ica_desc *d, tn_ica_result *out)
{
    const double  tol = d->tol > 0 ? d->tol : 1e-4;
    const int64_t sweeps = d->sweeps > 0 ? d->sweeps : 200;
    double    scale;
    tn_status s = tni_read_scaled(ctx, "ica", "x", x, j->x, &scale);
    if (s != TN_OK || (s = tni_ica_whiten(ctx, j, x, d->components)) != TN_OK) return s;
    if ((s = tni_ica_begin(ctx, j, d)) != TN_OK) return s;
    while (out->sweeps < sweeps && !out->converged) {
        if ((s = tni_ica_iterate(j, &out->change)) != TN_OK)
            return tni_fail(ctx, s, "ica: the eigenvectors of W W^T did not converge");
        out->sweeps++;
        out->converged = out->change < tol;
    }
    return tni_ica_write(ctx, j, scale, out);
}

tn_status tn_ica(tn_ctx *ctx, const tn_tensor *x, const tn_ica_desc *desc, tn_ica_result *out)
{
    static const tn_ica_desc usual = {0, 0, 0, 0, NULL};
    tni_ica_job j = TNI_ZERO;
    tn_status   s;
    if (!tni_decomp_out(ctx, "ica", out, sizeof *out)) return TN_ERR_ARG;
    out->change = (double)NAN;
    if (!desc) desc = &usual;
    if (!tni_usable(ctx, x, "ica", "x")) return TN_ERR_ARG;
    if (x->rank != 2) return tni_fail(ctx, TN_ERR_SHAPE, "ica: x is %s, expected [samples,features]", TNI_SHAPE(x));
    if (!tni_decomp_fits(ctx, "ica", x->shape[0], x->shape[1])) return TN_ERR_SHAPE;
    if ((s = tni_eps_check(ctx, "ica", "tol", desc->tol)) != TN_OK) return s;
    if ((s = tni_count_check(ctx, "ica", "sweeps", desc->sweeps)) != TN_OK) return s;
    if ((s = tni_count_check(ctx, "ica", "components", desc->components)) != TN_OK) return s;
    j.n = x->shape[0];
    j.f = x->shape[1];
    j.all = tni_min(j.n, j.f);
    tni_scratch w = tni_scratch_begin(ctx, "ica");
    tni_ica_take(&w, &j);
    s = tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : tni_ica_run(ctx, &j, x, desc, out));
    if (s != TN_OK) tn_ica_destroy(out);
    return s;
}

void tn_ica_destroy(tn_ica_result *r)
{
    if (!r) return;
    tni_drop(&r->components);
    tni_drop(&r->mixing);
    tni_drop(&r->whitening);
    tni_drop(&r->mean);
    tni_drop(&r->contrast);
}

#undef TNI_EPS
#endif /* TN_NO_ANALYSIS */
