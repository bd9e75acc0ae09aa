#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "context/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- tensors ------------------------------------------------ >>decomp-tensors
   The tensor is read as doubles and decomposed, and the wanted results are written. */

/* Workspaces are small multiples of m n, of min(m,n)^2 and of m + n: within these bounds their sizes do not overflow. */
TNI_FN bool tni_decomp_fits(tn_ctx *ctx, const char *op, int64_t m, int64_t n)
{
    if (m <= INT32_MAX && n <= INT32_MAX && m * n <= INT64_MAX / 64) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: the matrix has %lld x %lld elements, expected extents below 2^31", op, (long long)m,
                    (long long)n), false;
}

TNI_FN tn_status tni_decomp_takes(tn_ctx *ctx, const char *op, const tn_tensor *a)
{
    if (!tni_usable(ctx, a, op, "a")) return TN_ERR_ARG;
    if (a->rank != 2) return tni_fail(ctx, TN_ERR_SHAPE, "%s: a is %s, expected rank 2", op, TNI_SHAPE(a));
    return tni_decomp_fits(ctx, op, a->shape[0], a->shape[1]) ? TN_OK : TN_ERR_SHAPE;
}

/* The number of results to keep, where 0 means all; -1 with an error if there are not that many. */
TNI_FN int64_t tni_decomp_top(tn_ctx *ctx, const char *op, int64_t top, int64_t all)
{
    return !tni_within(ctx, op, "top", top, 0, all) ? -1 : top ? top : all;
}

/* Clears a result; false, with an error, if there is none. */
TNI_FN bool tni_decomp_out(tn_ctx *ctx, const char *op, void *out, size_t bytes)
{
    if (out) memset(out, 0, bytes);
    else tni_fail(ctx, TN_ERR_ARG, "%s: out is NULL, expected a place for the result", op);
    return out != NULL;
}

/* A finite sum of squares says that all numbers are finite, in a fraction of the time of the largest one. */
static double tni_squares(tn_ctx *ctx, int64_t n, const double *p) { return tni_algebra_of(ctx->desc.simd)->dot(n, p, p); }

/* The numbers of a tensor, which messages call `what`. Unless scale is NULL, they are scaled to about one by *scale, a power
   of two, so that nothing leaves the range of a double before it is scaled back. */
TNI_FN tn_status tni_read_scaled(tn_ctx *ctx, const char *op, const char *what, const tn_tensor *a, double *p, double *scale)
{
    int64_t   n = tn_tensor_count(a);
    tn_status s = tn_read(a, TN_F64, p, n);
    if (s != TN_OK) return s;
    if (!scale && tni_squares(ctx, n, p) < HUGE_VAL) return TN_OK;
    double largest = tni_largest_of(n, p);
    if (!(largest < HUGE_VAL))
        return tni_fail(ctx, TN_ERR_NONFINITE, "%s: %s, %s, has NaN or infinity, expected finite numbers", op, what,
                        TNI_SHAPE(a));
    if (!scale) return TN_OK;
    *scale = tni_unit_scale(largest);
    for (int64_t i = 0; i < n; i++) p[i] *= *scale;
    return TN_OK;
}

TNI_FN tni_host tni_decomp_host(tn_ctx *ctx, int64_t extent, double *work)
{
    return tni_host_of(ctx->desc.simd, tni_ctx_pool(ctx), extent, work);
}

TNI_FN tni_host tni_take_host(tni_scratch *w, int64_t extent)
{
    tni_host h = TNI_ZERO;
    double  *work = tni_take_f64(w, tni_host_work(extent), 1);
    return work ? tni_decomp_host(w->ctx, extent, work) : h;
}

/* An owned tensor. TN_ERR_NONFINITE if its dtype does not reach to a number, unless op is NULL: infinity may be stored. */
static tn_status tni_write_as(tn_ctx *ctx, const char *op, tn_dtype dtype, tn_tensor **out, int rank, const int64_t *shape,
                              const double *p)
{
    *out = tn_tensor_create(ctx, dtype, rank, shape);
    if (!*out) return TN_ERR_MEMORY;
    int64_t n = tn_tensor_count(*out);
    double  largest = op && !(tni_squares(ctx, n, p) < 1e76) ? tni_largest_of(n, p) : 0;
    if (largest < ((*out)->dtype == TN_F32 ? 3.4028235677973366e38 : HUGE_VAL)) return tn_write(*out, TN_F64, p, n);
    return tni_fail(ctx, TN_ERR_NONFINITE, "%s: a result is %g, beyond the range of %s", op, largest,
                    tn_dtype_name((*out)->dtype));
}

/* The same of the context's dtype. */
TNI_FN tn_status tni_write_new(tn_ctx *ctx, const char *op, tn_tensor **out, int rank, const int64_t *shape, const double *p)
{
    return tni_write_as(ctx, op, TN_REAL, out, rank, shape, p);
}

/* The same of [n] or [n,m], after the axis `batch` (-1: none). */
TNI_FN tn_status tni_decomp_put(tn_ctx *ctx, const char *op, tn_tensor **out, tn_dtype dtype, int64_t batch, int rank,
                                int64_t n, int64_t m, const double *p)
{
    int64_t shape[3];
    int     axes = 0;
    if (batch >= 0) shape[axes++] = batch;
    shape[axes++] = n;
    if (rank == 2) shape[axes++] = m;
    return tni_write_as(ctx, op, dtype, out, axes, shape, p);
}

TNI_FN tn_status tni_decomp_write(tn_ctx *ctx, const char *op, tn_tensor **out, int rank, int64_t n, int64_t m,
                                  const double *p)
{
    return tni_decomp_put(ctx, op, out, TN_REAL, -1, rank, n, m, p);
}

/* ---- which values to keep, and which vectors they determine --------------- >>decomp-truncation */
TNI_FN tn_status tni_count_check(tn_ctx *ctx, const char *op, const char *what, int64_t count)
{
    return tni_within(ctx, op, what, count, 0, INT64_MAX) ? TN_OK : TN_ERR_ARG;
}

TNI_FN tn_status tni_truncation_check(tn_ctx *ctx, const char *op, const tn_truncation *t)
{
    const double bad = !(t->absolute >= 0) ? t->absolute : !(t->relative >= 0) ? t->relative : t->weight;
    if (bad >= 0) return tni_count_check(ctx, op, "truncation.rank", t->rank);
    return tni_fail(ctx, TN_ERR_ARG, "%s: truncation.%s is %g, expected 0 or more", op,
                    !(t->absolute >= 0) ? "absolute" : !(t->relative >= 0) ? "relative" : "weight", bad);
}

/* The sums are of squares relative to the largest value, from the smallest on. */
int64_t tn_truncation_count(const tn_truncation *rule, int64_t n, const double *values, double *dropped)
{
    double  all = 0, tail = 0, x;
    int64_t i;
    if (!values || n < 0) n = 0;
    double  scale = n > 0 ? tni_unit_scale(fabs(values[0])) : 1;
    int64_t keep = n;
    if (rule && rule->rank > 0) keep = tni_min(keep, rule->rank);
    if (rule)
        while (keep > 0 && ((rule->absolute > 0 && fabs(values[keep - 1]) <= rule->absolute)
                            || (rule->relative > 0 && fabs(values[keep - 1]) <= rule->relative * fabs(values[0])))) keep--;
    for (i = n; i-- > 0; all += x * x) x = values[i] * scale;
    for (i = n; i-- > 0; tail += x * x) {
        x = values[i] * scale;
        if (i < keep && !(rule && rule->weight > 0 && tail + x * x <= rule->weight * all)) break;
    }
    if (dropped) *dropped = all > 0 ? tail / all : 0;
    return tni_min(keep, i + 1);
}

/* A bound of |E|_F / |A|_F of rounding to a dtype. */
TNI_FN double tni_dtype_eps(tn_dtype d) { return d == TN_F64 ? TNI_EPS : d == TN_BF16 ? 0x1p-7 : d == TN_F32 ? 0x1p-23 : 0; }

static tn_status tni_decomp_noise(tn_ctx *ctx, const char *op, const tn_tensor *a, double given, double *noise)
{
    *noise = given > 0 ? given : tni_max_f64(TNI_EPS, tni_dtype_eps(a->dtype));
    if (given >= 0 && given <= 1) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s: noise is %g, expected 0 to 1", op, given);
}

/* cluster and angle of values[n] in any order, of which the first `kept` are results; error: 2 |E|_F. `floor`: zero is a
   value, too, as of the longer side of a matrix that is not square. order [n], spare [n] */
#define TNI_CLUSTER_PER_ANGLE 100.0              /* a vector of an angle above 1/100 is in a cluster */

static void tni_clusters(int64_t n, int64_t kept, const double *values, double error, bool floor, double *cluster,
                         double *angle, int64_t *order, int64_t *spare)
{
    int64_t end;
    tni_sort_index(n, values, order, spare);
    for (int64_t begin = 0; begin < n; begin = end) {
        bool    cut = false;
        double  gap = begin > 0 ? values[order[begin]] - values[order[begin - 1]] : floor ? values[order[0]] : HUGE_VAL;
        int64_t first = n;
        for (end = begin; end < n; end++) {
            double step = end > begin ? values[order[end]] - values[order[end - 1]] : 0;
            if (step > TNI_CLUSTER_PER_ANGLE * error) break;
            first = tni_min(first, order[end]);
            if (order[end] >= kept) cut = true;
        }
        if (end < n && values[order[end]] - values[order[end - 1]] < gap) gap = values[order[end]] - values[order[end - 1]];
        for (int64_t i = begin; i < end; i++) {
            if (order[i] >= kept) continue;
            cluster[order[i]] = (double)first;
            angle[order[i]] = cut || gap <= error ? 1 : error / gap;
        }
    }
}

/* Rounds numbers to the context's dtype. */
TNI_FN void tni_decomp_round(tn_ctx *ctx, int64_t n, double *p)
{
    for (int64_t i = 0; ctx->desc.dtype == TN_F32 && i < n; i++) p[i] = (double)(float)p[i];
}

/* Writes numbers [n] or [n,m] without the scale of tni_read_scaled, and leaves them as they are stored, scaled. */
TNI_FN tn_status tni_decomp_unscaled(tn_ctx *ctx, const char *op, tn_tensor **out, int rank, int64_t n, int64_t m, double *p,
                                     double scale)
{
    const int64_t count = rank == 2 ? n * m : n;
    tn_status s;
    for (int64_t i = 0; i < count; i++) p[i] /= scale;
    if ((s = tni_decomp_write(ctx, op, out, rank, n, m, p)) != TN_OK) return s;
    tni_decomp_round(ctx, count, p);
    for (int64_t i = 0; i < count; i++) p[i] *= scale;
    return TN_OK;
}

/* |A - L diag(d) R|_F / |A|_F with L [m,k], R [k,n]; d NULL: all ones. a is overwritten; scratch: [k,n]. */
static double tni_decomp_error(const tni_host *h, int64_t m, int64_t n, int64_t k, double *a, tni_mat left, const double *d,
                               const double *right, double *scratch)
{
    const double scale = tni_unit_scale(tni_largest(m, n, tni_rows(a, n)));
    h->by->scale(m * n, scale, a);
    double size = tni_frobenius(m * n, a);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) scratch[i * n + j] = (d ? d[i] * scale : scale) * right[i * n + j];
    h->by->gemm(h, m, n, k, -1, left, tni_rows(scratch, n), 1, tni_rows(a, n));
    double rest = tni_frobenius(m * n, a);
    return size > 0 ? rest / size : rest;
}

/* (A + A^T)/2, by square blocks that stay in the cache together with their transposed blocks */
TNI_FN void tni_symmetrise(int64_t n, double *a)
{
    const int64_t side = 8;                                  /* ways of the first cache: rows may share a set */
    for (int64_t bi = 0; bi < n; bi += side)
        for (int64_t bj = bi; bj < n; bj += side)
            for (int64_t i = bi; i < tni_min(bi + side, n); i++)
                for (int64_t j = tni_max(bj, i + 1); j < tni_min(bj + side, n); j++)
                    a[i * n + j] = a[j * n + i] = 0.5 * a[i * n + j] + 0.5 * a[j * n + i];
}

/* Makes the matrices of a, which messages call `what` and which are at p, symmetric; TN_ERR_ARG if one is not so up to
   rounding errors, followed by `advice`. */
TNI_FN tn_status tni_symmetric_parts(tn_ctx *ctx, const char *op, const char *what, const char *advice, const tn_tensor *a,
                                     double *p)
{
    const double  eps = tni_max_f64(TNI_EPS, tni_dtype_eps(a->dtype)), limit = fmin(1024 * eps, sqrt(eps));
    const int64_t n = a->shape[a->rank - 1], count = n > 0 ? tn_tensor_count(a) / (n * n) : 0;
    for (int64_t b = 0; b < count; b++) {
        double *matrix = p + b * n * n, largest = tni_largest(n, n, tni_rows(matrix, n)), worst = 0;
        int64_t row = 0, col = 0;
        char    at[24] = "";
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i; j++) {
                double x = matrix[i * n + j] / largest - matrix[j * n + i] / largest;
                if (fabs(x) > worst) { worst = fabs(x); row = i; col = j; }
            }
        if (worst > limit) {
            if (a->rank == 3) tni_print(at, sizeof at, "%lld,", (long long)b);
            return tni_fail(ctx, TN_ERR_ARG, "%s: %s is not symmetric: |%s[%s%lld,%lld] - %s[%s%lld,%lld]| is %g of the "
                            "largest element%s, expected at most %g%s", op, what, what, at, (long long)row, (long long)col,
                            what, at, (long long)col, (long long)row, worst, *at ? " of its matrix" : "", limit, advice);
        }
        tni_symmetrise(n, matrix);
    }
    return TN_OK;
}

typedef struct tni_eigh_job {
    tn_ctx             *ctx;
    const tn_eigh_desc *desc;
    const tni_pool     *pool;                    /* of one matrix */
    const tni_vector_ops *ops;
    int64_t             n, ld, count, each;      /* ld: from row to row; each: of a worker */
    double             *matrix, *values, *vectors, *work;
    tn_status          *status;
} tni_eigh_job;

static int64_t tni_eigh_scratch(int64_t n, int64_t size)
{
    return tni_eigh_work_of(n, size) + tni_host_work(n) + 2 * TNI_ALIGN / 8;
}

static void tni_eigh_task(void *arg, int64_t task, int worker)
{
    const tni_eigh_job *j = (const tni_eigh_job *)arg;
    const int64_t n = j->n;
    double  *work = tni_aligned(j->work + worker * j->each), *values = j->values + task * n;
    double  *vectors = j->vectors ? j->vectors + task * n * n : NULL;
    tni_host h = tni_host_of(j->ctx->desc.simd, j->pool, n, work + tni_eigh_work_of(n, j->ops->size));
    j->status[task] = tni_eigh_in(&h, j->ops, n, j->desc->order == TN_EIGH_MAGNITUDE ? n : 0, j->matrix + task * n * j->ld, j->ld,
                                  values, vectors, work);
}

/* Moves the pairs to keep to the front, in their order, and returns their number. */
static int64_t tni_eigh_keep(const tn_eigh_desc *desc, int64_t n, double *values, double *vectors, int64_t keep)
{
    if (desc->order == TN_EIGH_ASCENDING && keep < n) {
        tni_sort_rows(n, values, tni_before_magnitude, n, vectors, NULL);
        tni_sort_rows(keep, values, tni_before_ascending, n, vectors, NULL);
    }
    return desc->top ? tni_min(desc->top, keep) : keep;
}

static tn_status tni_eigh_out(tni_scratch *w, tn_eigh_result *out, const tn_tensor *a, const tni_eigh_job *j)
{
    tn_ctx *ctx = w->ctx;
    const int64_t n = j->n, count = j->count, batch = a->rank == 3 ? count : -1;
    const tn_eigh_desc *desc = j->desc;
    const int64_t rank = desc->truncation.rank;
    int64_t  *order = (int64_t *)tni_take(w, tni_area(2, n), sizeof *order), keep = 0, k = 0;
    double   *cluster = tni_take_f64(w, count, n), *angle = tni_take_f64(w, count, n), *sorted = tni_take_f64(w, n, 1), noise;
    tn_status s = w->failed ? TN_ERR_MEMORY : tni_decomp_noise(ctx, "eigh", a, desc->noise, &noise);
    if (s != TN_OK) return s;
    if (count == 0) {
        keep = rank > 0 ? tni_min(rank, n) : n;
        k = desc->top ? tni_min(desc->top, keep) : keep;
    }
    for (int64_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < n; i++) angle[i] = -fabs(j->values[b * n + i]);          /* scratch as yet */
        tni_sort_index(n, angle, order, order + n);
        for (int64_t i = 0; i < n; i++) sorted[i] = j->values[b * n + order[i]];
        keep = tni_max(keep, tn_truncation_count(&desc->truncation, n, sorted, NULL));
    }
    for (int64_t b = 0; b < count; b++) {
        double *vectors = j->vectors ? j->vectors + b * n * n : NULL;
        k = tni_eigh_keep(desc, n, j->values + b * n, vectors, keep);
        tni_clusters(n, k, j->values + b * n, 2 * noise * tni_frobenius(n, j->values + b * n), false, cluster + b * k,
                     angle + b * k, order, order + n);
        memmove(j->values + b * k, j->values + b * n, (size_t)k * sizeof *sorted);
        for (int64_t i = 0; vectors && b * (n - k) > 0 && i < k; i++)        /* else they are in their places */
            memmove(j->vectors + (b * k + i) * n, vectors + i * n, (size_t)n * sizeof *sorted);
    }
    s = tni_decomp_put(ctx, "eigh", &out->values, TN_REAL, batch, 1, k, 0, j->values);
    if (s != TN_OK || !j->vectors) return s;
    if ((s = tni_decomp_put(ctx, "eigh", &out->vectors, TN_REAL, batch, 2, k, n, j->vectors)) != TN_OK) return s;
    if ((s = tni_decomp_put(ctx, "eigh", &out->cluster, TN_I32, batch, 1, k, 0, cluster)) != TN_OK) return s;
    return tni_decomp_put(ctx, "eigh", &out->angle, TN_REAL, batch, 1, k, 0, angle);
}

/* Each of the next functions reads, decomposes, writes, and measures the residual if requested. */
static tn_status tni_eigh_tensor(tni_scratch *w, tn_eigh_result *out, const tn_tensor *a, tni_eigh_job *j, int workers)
{
    tn_ctx       *ctx = w->ctx;
    const int64_t n = j->n, all = j->count * n * n;
    double       *vectors = tni_take_f64(w, tni_plus(all, TNI_ALIGN / 8), 1);
    double       *again = j->desc->measure ? tni_take_f64(w, all, 1) : NULL;
    tni_pool      many = *tni_ctx_pool(ctx);
    int64_t       b;
    j->ld = n;
#ifndef TN_USE_BLAS
    if (j->count == 1 && n % 256 == 0) j->ld = n + 8;        /* else rows share sets of lines of the caches */
#endif
    j->matrix = tni_take_f64(w, tni_area(n, j->ld), j->count);
    j->values = tni_take_f64(w, j->count, n);
    j->status = (tn_status *)tni_take(w, j->count, sizeof *j->status);
    j->work = tni_take_f64(w, workers, j->each);
    tn_status s = w->failed ? TN_ERR_MEMORY : tni_read_scaled(ctx, "eigh", "a", a, j->matrix, NULL);
    if (s == TN_OK) j->vectors = vectors = tni_aligned(vectors);
    for (b = 0; b < j->count && s == TN_OK && j->desc->symmetrise; b++) tni_symmetrise(n, j->matrix + b * n * n);
    if (s == TN_OK && !j->desc->symmetrise)
        s = tni_symmetric_parts(ctx, "eigh", "a", " (desc.symmetrise takes the symmetric part)", a, j->matrix);
    if (s != TN_OK) return s;
    if (j->desc->measure) memcpy(again, j->matrix, (size_t)all * sizeof *again);
    if (j->desc->no_vectors) j->vectors = NULL;
    for (b = n; j->ld > n && b-- > 0;) {
        memmove(j->matrix + b * j->ld, j->matrix + b * n, (size_t)n * sizeof *vectors);
        memset(j->matrix + b * j->ld + n, 0, (size_t)(j->ld - n) * sizeof *vectors);
    }
    many.threads = workers;
    tni_parallel_for(&many, j->count, tni_eigh_task, j);
    for (b = 0; b < j->count; b++)
        if (j->status[b] != TN_OK)
            return tni_fail(ctx, j->status[b], "eigh: the iteration did not converge for a, %s", TNI_SHAPE(a));
    if ((s = tni_eigh_out(w, out, a, j)) != TN_OK || !j->vectors || !j->desc->measure) return s;
    int64_t k = j->count ? tn_tensor_count(out->values) / j->count : 0;
    tni_decomp_round(ctx, k * j->count, j->values);
    tni_decomp_round(ctx, k * j->count * n, vectors);
    tni_host h = tni_decomp_host(ctx, n, j->work);
    for (out->error = 0, b = 0; b < j->count; b++, vectors += k * n)
        out->error = tni_max_f64(out->error, tni_decomp_error(&h, n, n, k, again + b * n * n,
                                 tni_transposed(tni_rows(vectors, n)), j->values + b * k, vectors, j->matrix));
    return TN_OK;
}

static tn_status tni_rank_tol(tn_ctx *ctx, const char *op, const tn_tensor *a, double given, double *tol)
{
    const int64_t most = tni_max(a->shape[0], a->shape[1]);
    *tol = given > 0 ? given : (double)most * tni_max_f64(TNI_EPS, tni_dtype_eps(a->dtype));
    return given >= 0 && given < 1 ? TN_OK : tni_fail(ctx, TN_ERR_ARG, "%s: tol is %g, expected 0 <= tol < 1", op, given);
}

TNI_FN tn_status tni_qr_tensor(tni_scratch *w, tn_qr_result *out, const tn_tensor *a, const tn_qr_desc *desc)
{
    tn_ctx   *ctx = w->ctx;
    int64_t   m = a->shape[0], n = a->shape[1], k = tni_min(m, n), *order = (int64_t *)tni_take(w, n, sizeof *order);
    double   *matrix = tni_take_f64(w, m, n), *q = tni_take_zeros(w, m, k), *r = tni_take_zeros(w, k, n), tol, scale;
    double   *list = tni_take_f64(w, n, 1), *work = tni_take_f64(w, tni_pivoted_work(m, n), 1);
    tni_host  h = tni_take_host(w, tni_max(m, n));
    tn_status s = w->failed ? TN_ERR_MEMORY : tni_rank_tol(ctx, "qr", a, desc->tol, &tol);
    if (s != TN_OK || (s = tni_read_scaled(ctx, "qr", "a", a, matrix, &scale)) != TN_OK) return s;
    s = desc->pivot ? tni_pivoted_qr(&h, m, n, tni_rows(matrix, n), tni_rows(q, k), r, order, work)
                    : tni_qr(&h, m, n, tni_rows(matrix, n), tni_rows(q, k), tni_rows(r, n), work);
    if (s == TN_OK && desc->pivot) out->rank = tni_pivoted_rank(k, n, r, tol);
    if (s != TN_OK || (s = tni_decomp_write(ctx, "qr", &out->q, 2, m, k, q)) != TN_OK) return s;
    if ((s = tni_decomp_unscaled(ctx, "qr", &out->r, 2, k, n, r, scale)) != TN_OK) return s;
    if (desc->pivot) {
        for (int64_t j = 0; j < n; j++) list[j] = (double)order[j];
        if ((s = tni_decomp_put(ctx, "qr", &out->order, TN_I32, -1, 1, n, 0, list)) != TN_OK) return s;
    }
    if (!desc->measure) return TN_OK;
    tni_decomp_round(ctx, m * k, q);
    for (int64_t i = 0; i < k && desc->pivot; i++) {         /* columns back to where they were */
        for (int64_t j = 0; j < n; j++) list[order[j]] = r[i * n + j];
        memcpy(r + i * n, list, (size_t)n * sizeof *list);
    }
    out->error = tni_decomp_error(&h, m, n, k, matrix, tni_rows(q, k), NULL, r, work);
    return TN_OK;
}

TNI_FN tn_status tni_lstsq_tensor(tni_scratch *w, tn_lstsq_result *out, const tn_tensor *a, const tn_tensor *b,
                                  const tn_lstsq_desc *desc)
{
    tn_ctx       *ctx = w->ctx;
    const int64_t m = a->shape[0], n = a->shape[1], count = b->rank == 2 ? b->shape[1] : 1;
    const int64_t rows = m + (desc->ridge > 0 ? n : 0);
    double   *matrix = tni_take_f64(w, rows, n), *right = tni_take_f64(w, m, count), *c = tni_take_zeros(w, count, rows);
    double   *x = tni_take_zeros(w, count, tni_max(n, 1)), *transposed = tni_take_f64(w, n, count);
    double   *work = tni_take_f64(w, tni_lstsq_work(rows, n), 1), tol, scale, right_scale;
    tni_host  h = tni_take_host(w, tni_max(rows, tni_max(n, count)));
    tn_status s = w->failed ? TN_ERR_MEMORY : tni_rank_tol(ctx, "lstsq", a, desc->tol, &tol);
    if (s != TN_OK || (s = tni_read_scaled(ctx, "lstsq", "a", a, matrix, &scale)) != TN_OK) return s;
    if ((s = tni_read_scaled(ctx, "lstsq", "b", b, right, &right_scale)) != TN_OK) return s;
    memset(matrix + m * n, 0, (size_t)((rows - m) * n) * sizeof *matrix);
    for (int64_t i = 0; i < rows - m; i++) matrix[(m + i) * n + i] = sqrt(desc->ridge) * scale;
    for (int64_t i = 0; i < m; i++) for (int64_t j = 0; j < count; j++) c[j * rows + i] = right[i * count + j];
    s = tni_lstsq(&h, rows, n, count, tni_rows(matrix, n), c, x, tol, &out->rank, work);
    if (s != TN_OK) return tni_fail(ctx, s, "lstsq: a is %s", TNI_SHAPE(a));
    int64_t exponent = tni_exponent(scale) - tni_exponent(right_scale);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) transposed[i * count + j] = tni_ldexp(x[j * n + i], exponent);
    if ((s = tni_decomp_write(ctx, "lstsq", &out->x, b->rank, n, count, transposed)) != TN_OK) return s;
    h.by->gemm(&h, count, m, n, -1, tni_rows(x, n), tni_transposed(tni_rows(matrix, n)), 0, tni_rows(c, m));
    for (int64_t j = 0; j < count; j++) {
        for (int64_t i = 0; i < m; i++) c[j * m + i] += right[i * count + j];
        x[j] = tni_frobenius(m, c + j * m);
    }
    return tni_decomp_unscaled(ctx, "lstsq", &out->residual, 1, count, 0, x, right_scale);
}

/* Truncates and writes u [m,k], values [k], vt [k,n], of a and the |E|_F `noise`, all but u and vt multiplied by scale. */
static tn_status tni_svd_out(tni_scratch *w, const tni_host *h, tn_svd_result *out, const tn_tensor *a, const tn_svd_desc *desc,
                             int64_t k, double scale, double *matrix, double *u, double *values, double *vt, double noise)
{
    const int64_t m = a->shape[0], n = a->shape[1];
    tn_ctx       *ctx = w->ctx;
    tn_truncation rule = desc->truncation;
    int64_t      *order = (int64_t *)tni_take(w, tni_area(2, k), sizeof *order);
    double       *cluster = tni_take_f64(w, k, 1), *angle = tni_take_f64(w, k, 1);
    double       *spare = desc->measure ? tni_take_f64(w, k, n) : NULL;
    tn_status     s;
    if (w->failed) return TN_ERR_MEMORY;
    rule.absolute *= scale;
    int64_t top = tn_truncation_count(&rule, k, values, NULL);
    if (desc->top > 0) top = tni_min(top, desc->top);
    tni_clusters(k, top, values, 2 * noise, m != n, cluster, angle, order, order + k);
    tni_keep_columns(m, k, top, u, u);
    if ((s = tni_decomp_write(ctx, "svd", &out->u, 2, m, top, u)) != TN_OK) return s;
    if ((s = tni_decomp_unscaled(ctx, "svd", &out->s, 1, top, 0, values, scale)) != TN_OK) return s;
    if ((s = tni_decomp_put(ctx, "svd", &out->cluster, TN_I32, -1, 1, top, 0, cluster)) != TN_OK) return s;
    if ((s = tni_decomp_write(ctx, "svd", &out->angle, 1, top, 0, angle)) != TN_OK) return s;
    if ((s = tni_decomp_write(ctx, "svd", &out->vt, 2, top, n, vt)) != TN_OK || !desc->measure) return s;
    tni_decomp_round(ctx, m * top, u);
    tni_decomp_round(ctx, top * n, vt);
    out->error = tni_decomp_error(h, m, n, top, matrix, tni_rows(u, top), values, vt, spare);
    return TN_OK;
}

/* What the method and the shapes say about a few values; false: all are computed. */
TNI_FN bool tni_few_plan(tn_ctx *ctx, tni_few *f, const tn_tensor *a, const tn_svd_desc *desc)
{
    const int64_t least = tni_min(a->shape[0], a->shape[1]), top = desc->top;
    const tn_truncation *t = &desc->truncation;
    tni_lanczos_job     *l = &f->lanczos;
    memset(f, 0, sizeof *f);
    f->m = tni_max(a->shape[0], a->shape[1]);
    f->n = least;
    f->seed = desc->seed;
    if (top == 0 || desc->method == TN_SVD_EXACT) return false;
    if (desc->method == TN_SVD_RANDOMISED) {
        f->width = top + tni_min(least - top, desc->oversample ? desc->oversample : 10);
        f->power = desc->power ? desc->power : 2;
        f->k = f->power < least / f->width ? (f->power + 1) * f->width : least;
        return f->k < least;
    }
    f->k = top + 1;                                          /* the next value tells the gap */
    if (desc->method == TN_SVD_AUTO
        && (least < 256 || 16 * top > least || t->absolute > 0 || t->relative > 0 || t->weight > 0)) return false;
    l->pool = tni_ctx_pool(ctx);
    l->simd = ctx->desc.simd;
    l->n = least;
    l->top = f->k;
    l->block = f->width = 4;
    l->basis = tni_min(least, 2 * f->k + 40 * l->block);
    l->limit = tni_max(2 * l->basis, least);
    l->tol = 4 * TNI_EPS;
    l->seed = desc->seed;
    l->end = TN_LANCZOS_LARGEST;
    l->fn = tni_few_times;
    l->user = f;
    return least > f->k + 2 * l->block;
}

/* Some values. TN_ERR_CONVERGENCE without a message, if others are to be tried. */
TNI_FN tn_status tni_few_tensor(tni_scratch *w, tn_svd_result *out, const tn_tensor *a, const tn_svd_desc *desc, tni_few *f)
{
    const int64_t m = a->shape[0], n = a->shape[1], k = f->k;
    const bool    wide = m < n;
    tn_ctx   *ctx = w->ctx;
    double   *matrix = tni_take_f64(w, m, n), *u = tni_take_f64(w, m, k), *vt = tni_take_f64(w, k, n);
    double   *values = tni_take_f64(w, k, 1), *rest = tni_take_f64(w, k, f->m), noise, largest, scale;
    tni_mat   um = tni_rows(u, k), vm = tni_rows(vt, n);
    tni_mat   left = wide ? tni_transposed(vm) : um, right = wide ? tni_transposed(um) : vm;
    tni_host  h = tni_take_host(w, f->m);
    tn_status s = w->failed ? TN_ERR_MEMORY : tni_decomp_noise(ctx, "svd", a, desc->noise, &noise);
    if (s != TN_OK || (s = tni_read_scaled(ctx, "svd", "a", a, matrix, &scale)) != TN_OK) return s;
    double size = tni_frobenius(m * n, matrix);
    f->host = &h;
    f->a = wide ? tni_transposed(tni_rows(matrix, n)) : tni_rows(matrix, n);
    s = f->lanczos.n > 0 ? tni_few_krylov(w, f, left, values, right) : tni_few_random(w, f, left, values, right);
    if (s != TN_OK) return s;
    double residual = f->lanczos.n > 0                       /* the side that is not exact */
        ? tni_few_residual(&h, f->m, f->n, desc->top, f->a, left, values, right, rest, &largest)
        : tni_few_residual(&h, f->n, f->m, desc->top, tni_transposed(f->a), tni_transposed(right), values, tni_transposed(left),
                           rest, &largest);
    if (f->lanczos.n > 0 && !(largest <= 1e-13 * values[0])) return TN_ERR_CONVERGENCE;
    tni_svd_signs(m, n, k, um, vm);
    out->residual = size > 0 ? residual / size : residual;
    return tni_svd_out(w, &h, out, a, desc, k, scale, matrix, u, values, vt,
                       noise * size + (f->lanczos.n > 0 ? 0 : sqrt(2.0) * residual));
}

TNI_FN tn_status tni_svd_tensor(tni_scratch *w, tn_svd_result *out, const tn_tensor *a, const tn_svd_desc *desc)
{
    tn_ctx   *ctx = w->ctx;
    int64_t   m = a->shape[0], n = a->shape[1], k = tni_min(m, n);
    double   *matrix = tni_take_f64(w, m, n), *u = tni_take_f64(w, m, k), *vt = tni_take_f64(w, k, n);
    double   *values = tni_take_f64(w, k, 1), *work = tni_take_f64(w, tni_svd_work(m, n), 1), noise, scale;
    tni_host  h = tni_take_host(w, tni_max(m, n));
    tn_status s = w->failed ? TN_ERR_MEMORY : tni_decomp_noise(ctx, "svd", a, desc->noise, &noise);
    if (s != TN_OK || (s = tni_read_scaled(ctx, "svd", "a", a, matrix, &scale)) != TN_OK) return s;
    if ((s = tni_svd(&h, m, n, tni_rows(matrix, n), tni_rows(u, k), values, tni_rows(vt, n), work)) != TN_OK)
        return tni_fail(ctx, s, "svd: the iteration did not converge for a, %s", TNI_SHAPE(a));
    return tni_svd_out(w, &h, out, a, desc, k, scale, matrix, u, values, vt, noise * tni_frobenius(k, values));
}

/* Matrices of fewer rows are solved by one thread each if there are several of them. */
enum { TNI_EIGH_ALONE = 256 };

TNI_FN void tni_drop(tn_tensor **t)
{
    if (*t) tn_tensor_destroy(*t);
    *t = NULL;
}

TNI_FN void tni_drop_clusters(tn_tensor **cluster, tn_tensor **angle) { tni_drop(cluster); tni_drop(angle); }

void tn_eigh_destroy(tn_eigh_result *r)
{
    if (r) { tni_drop(&r->values); tni_drop(&r->vectors); tni_drop_clusters(&r->cluster, &r->angle); }
}

tn_status tn_eigh(tn_ctx *ctx, const tn_tensor *a, const tn_eigh_desc *desc, tn_eigh_result *out)
{
    tn_eigh_desc defaults = TNI_ZERO;
    tni_eigh_job j = TNI_ZERO;
    tn_status    s;
    if (!tni_decomp_out(ctx, "eigh", out, sizeof *out)) return TN_ERR_ARG;
    out->error = (double)NAN;
    j.desc = desc ? desc : &defaults;
    if (!tni_usable(ctx, a, "eigh", "a")) return TN_ERR_ARG;
    if (a->rank != 2 && a->rank != 3)
        return tni_fail(ctx, TN_ERR_SHAPE, "eigh: a is %s, expected rank 2 or 3", TNI_SHAPE(a));
    j.n = a->shape[a->rank - 1];
    j.count = a->rank == 3 ? a->shape[0] : 1;
    if (j.n != a->shape[a->rank - 2])
        return tni_fail(ctx, TN_ERR_SHAPE, "eigh: a is %s, expected %s", TNI_SHAPE(a),
                        a->rank == 2 ? "a square matrix" : "[b,n,n]");
    if (!tni_decomp_fits(ctx, "eigh", j.count * j.n, j.n)) return TN_ERR_SHAPE;
    if (!tni_within(ctx, "eigh", "order", (int)j.desc->order, 0, TN_EIGH_MAGNITUDE)) return TN_ERR_ARG;
    if (tni_decomp_top(ctx, "eigh", j.desc->top, j.n) < 0) return TN_ERR_ARG;
    if ((s = tni_truncation_check(ctx, "eigh", &j.desc->truncation)) != TN_OK) return s;
    int workers = j.count > 1 && j.n < TNI_EIGH_ALONE ? (int)tni_min(tni_ctx_pool(ctx)->threads, j.count) : 1;
    j.ctx = ctx;
    j.pool = workers > 1 ? &tni_alone : tni_ctx_pool(ctx);
    j.ops = tni_vector_ops_of(ctx->desc.simd, ctx->desc.dtype);
    j.each = tni_eigh_scratch(j.n, j.ops->size);
    tni_scratch w = tni_scratch_begin(ctx, "eigh");
    s = tni_scratch_end(&w, tni_eigh_tensor(&w, out, a, &j, workers));
    if (s != TN_OK) tn_eigh_destroy(out);
    return s;
}

#endif /* TN_NO_OPERATOR */
