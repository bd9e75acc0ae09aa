#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- HOSVD and HOOI ----------------------------------------------------- >>hosvd-impl
   Axis k of a tensor in place is [l,n,q]: l elements before it, q after. The left singular vectors of its unfolding [n, l q]
   are those of R^T, where the unfolding transposed is Q R: R is built from a few rows at a time, which needs no copy of the
   tensor, and keeps the small singular values that a Gram matrix loses. Demmel, Grigori, Hoemmen & Langou 2012 */

/* y [l,r,q] = U^T x along an axis: x [l,n,q], u [n,r] */
static void tni_axis_times(const tni_host *h, int64_t l, int64_t n, int64_t q, int64_t r, const double *x, tni_mat u,
                           double *y)
{
    if (n == 0 || q == 0) memset(y, 0, (size_t)(l * r * q) * sizeof *y);
    else if (q == 1) h->by->gemm(h, l, r, n, 1, tni_rows((double *)x, n), u, 0, tni_rows(y, r));
    else for (int64_t i = 0; i < l; i++)
        h->by->gemm(h, r, q, n, 1, tni_transposed(u), tni_rows((double *)x + i * n * q, q), 0, tni_rows(y + i * r * q, q));
}

TNI_FN int64_t tni_axis_chunk(int64_t n) { return tni_max(2 * n, 64); }

TNI_FN int64_t tni_axis_work(int64_t n, int64_t others)
{
    int64_t m = n + tni_axis_chunk(n);
    if (n > others) return 2 * n * others + others * others + tni_svd_work(n, others);
    return 2 * n * n + tni_max(m * n + n + tni_reflect_work(m, m, TNI_BLOCK), n * n + tni_svd_work(n, n));
}

/* r [n,n] of the QR decomposition of the unfolding, transposed. */
static void tni_axis_r(const tni_host *h, int64_t l, int64_t n, int64_t q, const double *x, double *r, double *work)
{
    const int64_t chunk = tni_axis_chunk(n), rows = l * q;
    double *at = work, *tau = at + n * (n + chunk), *rest = tau + n;
    memset(r, 0, (size_t)(n * n) * sizeof *r);
    for (int64_t t = 0; t < rows; t += chunk) {
        const int64_t w = tni_min(chunk, rows - t), m = n + w;
        for (int64_t i = 0; i < n; i++) {
            double *column = at + i * m;
            for (int64_t j = 0; j < n; j++) column[j] = r[j * n + i];
            for (int64_t j = 0; j < w; ) {                   /* runs of one block [n,q] of the tensor */
                const int64_t block = (t + j) / q, from = (t + j) % q, run = tni_min(w - j, q - from);
                memcpy(column + n + j, x + (block * n + i) * q + from, (size_t)run * sizeof *x);
                j += run;
            }
        }
        for (int64_t first = 0; first < n; first += TNI_BLOCK) {
            int64_t b = tni_min(TNI_BLOCK, n - first), next = first + b;
            tni_qr_panel(h, m, first, b, at, tau, tni_rows(r, n));
            tni_reflect(h, m - first, n - next, b, tni_mat_of(at + first * m + first, 1, m), tau + first, true,
                        tni_mat_of(at + next * m + first, 1, m), rest);
        }
    }
}

/* Left singular vectors u [n,k] and values s [k] of the unfolding, k = min(n, l q). */
TNI_FN tn_status tni_axis_svd(const tni_host *h, int64_t l, int64_t n, int64_t q, const double *x, double *u, double *s,
                              double *work)
{
    const int64_t others = l * q;
    double *copy = work, *vt = copy + (n > others ? n * others : n * n), *rest = vt + (n > others ? others * others : n * n);
    if (n <= others) {
        tni_axis_r(h, l, n, q, x, copy, vt);
        return tni_svd(h, n, n, tni_transposed(tni_rows(copy, n)), tni_rows(u, n), s, tni_rows(vt, n), rest);
    }
    for (int64_t j = 0; j < l; j++)
        for (int64_t i = 0; i < n; i++) memcpy(copy + i * others + j * q, x + (j * n + i) * q, (size_t)q * sizeof *x);
    return tni_svd(h, n, others, tni_rows(copy, others), tni_rows(u, others), s, tni_rows(vt, others), rest);
}

typedef struct tni_hosvd_job {
    tni_host host;
    int      rank;
    int64_t  n[TN_MAX_RANK], r[TN_MAX_RANK];
    double   scale, size;                                    /* |A| of the scaled tensor */
    double  *a, *x, *y;                                      /* A, and two for products */
    double  *u[TN_MAX_RANK], *old[TN_MAX_RANK], *s[TN_MAX_RANK], *full, *work;
} tni_hosvd_job;

static void tni_hosvd_take(tni_scratch *w, tni_hosvd_job *j, bool sweeps)
{
    int64_t all = 1, work = 1, full = 1, extent = 1;
    for (int k = 0; k < j->rank; k++) all *= j->n[k];
    for (int k = 0; k < j->rank; k++) {
        const int64_t n = j->n[k], others = n > 0 ? all / n : 0, least = tni_min(n, others);
        j->u[k] = tni_take_f64(w, n, tni_max(least, 1));
        j->old[k] = sweeps ? tni_take_f64(w, n, tni_max(least, 1)) : NULL;
        j->s[k] = tni_take_f64(w, tni_max(least, 1), 1);
        full = tni_max(full, 2 * n * tni_max(least, 1));
        work = tni_max(work, n + tni_max(tni_axis_work(n, others), 4 * n * least + tni_qr_work(n, 2 * least)));
        extent = tni_max(extent, tni_max(n + tni_axis_chunk(n), others));
    }
    j->full = tni_take_f64(w, full, 1);
    j->a = tni_take_f64(w, all, 1);
    j->x = tni_take_f64(w, all, 1);
    j->y = tni_take_f64(w, all, 1);
    j->work = tni_take_f64(w, work, 1);
    j->host = tni_take_host(w, extent);
}

/* x = A with all axes but `skip` (-1: none) multiplied by their factors; shape gets its extents. */
static void tni_hosvd_compress(tni_hosvd_job *j, int skip, int64_t *shape)
{
    const double *from = j->a;
    for (int k = 0; k < j->rank; k++) shape[k] = j->n[k];
    for (int k = 0; k < j->rank; k++) {
        int64_t l = 1, q = 1;
        if (k == skip) continue;
        for (int i = 0; i < k; i++) l *= shape[i];
        for (int i = k + 1; i < j->rank; i++) q *= shape[i];
        tni_axis_times(&j->host, l, j->n[k], q, j->r[k], from, tni_rows(j->u[k], j->r[k]), j->y);
        shape[k] = j->r[k];
        tni_swap_pointers(&j->x, &j->y);
        from = j->x;
    }
    if (from == j->a) memcpy(j->x, j->a, (size_t)j->n[0] * sizeof *j->x);        /* one axis, which is skipped */
}

TNI_FN int64_t tni_product_of(int count, const int64_t *n, int skip)
{
    int64_t all = 1;
    for (int k = 0; k < count; k++) if (k != skip) all *= n[k];
    return all;
}

/* HOSVD: every factor by the unfolding of A itself. */
static tn_status tni_hosvd_start(tn_ctx *ctx, tni_hosvd_job *j, const tn_hosvd_desc *d, tn_hosvd_result *out)
{
    double dropped = 0;
    for (int k = 0; k < j->rank; k++) {
        const int64_t n = j->n[k], l = tni_product_of(k, j->n, -1), q = tni_product_of(j->rank - k - 1, j->n + k + 1, -1);
        const int64_t least = tni_min(n, l * q);
        tn_truncation rule = d->axis[k];
        tn_status     s;
        if ((s = tni_axis_svd(&j->host, l, n, q, j->a, j->full, j->s[k], j->work)) != TN_OK)
            return tni_fail(ctx, s, "hosvd: the SVD of axis %d did not converge", k);
        rule.absolute *= j->scale;
        j->r[k] = tn_truncation_count(&rule, least, j->s[k], NULL);
        if (d->eps > 0) j->r[k] = tni_min(j->r[k], tni_tail_rank(least, j->s[k], d->eps * j->size / sqrt((double)j->rank)));
        j->r[k] = tni_max(j->r[k], n > 0);
        dropped += tni_tail_squares(least, j->s[k], j->r[k]);
        out->gap[k] = tni_gap(least, j->s[k], j->r[k]);
        if (least > 0) tni_keep_columns(n, least, j->r[k], j->full, j->u[k]);
        else memset(j->u[k], 0, (size_t)(n * j->r[k]) * sizeof *j->u[k]);
        if (least == 0 && n > 0) j->u[k][0] = 1;             /* a tensor without elements: any unit vector */
    }
    out->bound = j->size > 0 ? sqrt(dropped) / j->size : 0;
    return TN_OK;
}

/* The best factor of axis k for the others as they are. If they leave fewer than r_k directions, the old columns fill it. */
static tn_status tni_hooi_axis(tni_hosvd_job *j, int k)
{
    int64_t   shape[TN_MAX_RANK], n = j->n[k], r = j->r[k];
    tn_status s;
    tni_hosvd_compress(j, k, shape);
    int64_t l = tni_product_of(k, shape, -1);
    int64_t q = tni_product_of(j->rank - k - 1, shape + k + 1, -1);
    int64_t least = tni_min(n, l * q);
    if ((s = tni_axis_svd(&j->host, l, n, q, j->x, j->full, j->work, j->work + tni_max(least, 1))) != TN_OK) return s;
    if (least < r) {
        double *both = j->work, *basis = both + n * (least + r), *rest = basis + n * (least + r);
        const int64_t wide = tni_min(n, least + r);
        for (int64_t i = 0; i < n; i++) {
            memcpy(both + i * (least + r), j->full + i * least, (size_t)least * sizeof *both);
            memcpy(both + i * (least + r) + least, j->u[k] + i * r, (size_t)r * sizeof *both);
        }
        s = tni_qr(&j->host, n, least + r, tni_rows(both, least + r), tni_rows(j->full, wide), tni_rows(basis, least + r),
                   rest);
        least = wide;
    }
    tni_keep_columns(n, least, r, j->full, j->u[k]);
    return s;
}

static double tni_hosvd_core(tni_hosvd_job *j)               /* x becomes the core; its norm */
{
    int64_t shape[TN_MAX_RANK];
    tni_hosvd_compress(j, -1, shape);
    return tni_frobenius(tni_product_of(j->rank, j->r, -1), j->x);
}

/* Sweeps until the fit |core| stops growing. What would lower it, by rounding, is undone. */
static tn_status tni_hooi(tn_ctx *ctx, tni_hosvd_job *j, const tn_hosvd_desc *d, tn_hosvd_result *out)
{
    const double tol = d->tol > 0 ? d->tol : 1e-12;
    double       fit = tni_hosvd_core(j);
    tn_status    s;
    while (out->sweeps < d->sweeps && !out->converged && j->size > 0) {
        for (int k = 0; k < j->rank; k++) memcpy(j->old[k], j->u[k], (size_t)(j->n[k] * j->r[k]) * sizeof *j->u[k]);
        for (int k = 0; k < j->rank; k++)
            if ((s = tni_hooi_axis(j, k)) != TN_OK) return tni_fail(ctx, s, "hosvd: the SVD of axis %d did not converge", k);
        double next = tni_hosvd_core(j);
        out->sweeps++;
        out->converged = (next - fit) * (next + fit) < tol * j->size * j->size;
        if (next < fit) for (int k = 0; k < j->rank; k++) tni_swap_pointers(&j->u[k], &j->old[k]);
        fit = next;
    }
    return TN_OK;
}

/* The sign rule, for the columns of u [n,r]. */
static void tni_columns_up(int64_t n, int64_t r, double *u)
{
    for (int64_t c = 0; c < r; c++)
        if (tni_points_down(n, u + c, r)) for (int64_t i = 0; i < n; i++) u[i * r + c] = -u[i * r + c];
}

/* |A - core and factors|_F / |A|_F, as stored. */
static double tni_hosvd_error(tni_hosvd_job *j, tn_ctx *ctx, int64_t core)
{
    int64_t shape[TN_MAX_RANK], all = tni_product_of(j->rank, j->n, -1);
    tni_decomp_round(ctx, core, j->x);
    for (int k = 0; k < j->rank; k++) shape[k] = j->r[k];
    for (int k = 0; k < j->rank; k++) {
        tni_axis_times(&j->host, tni_product_of(k, shape, -1), j->r[k], tni_product_of(j->rank - k - 1, shape + k + 1, -1),
                       j->n[k], j->x, tni_transposed(tni_rows(j->u[k], j->r[k])), j->y);
        shape[k] = j->n[k];
        tni_swap_pointers(&j->x, &j->y);
    }
    for (int64_t i = 0; i < all; i++) j->x[i] = j->a[i] - j->x[i] * j->scale;
    double rest = tni_frobenius(all, j->x);
    return j->size > 0 ? rest / j->size : rest;
}

static tn_status tni_hosvd_write(tn_ctx *ctx, tni_hosvd_job *j, tn_hosvd_result *out)
{
    int64_t   core = tni_product_of(j->rank, j->r, -1);
    tn_status s = TN_OK;
    for (int k = 0; k < j->rank && s == TN_OK; k++) {
        int64_t least = tni_min(j->n[k], tni_product_of(j->rank, j->n, k));
        tni_columns_up(j->n[k], j->r[k], j->u[k]);
        for (int64_t i = 0; i < least; i++) j->s[k][i] /= j->scale;
        s = tni_write_new(ctx, "hosvd", &out->values[k], 1, &least, j->s[k]);
        if (s == TN_OK) s = tni_write_new(ctx, "hosvd", &out->factor[k], 2, TNI_DIMS(j->n[k], j->r[k]), j->u[k]);
        tni_decomp_round(ctx, j->n[k] * j->r[k], j->u[k]);
    }
    if (s != TN_OK) return s;
    tni_hosvd_core(j);
    for (int64_t i = 0; i < core; i++) j->x[i] /= j->scale;
    if ((s = tni_write_new(ctx, "hosvd", &out->core, j->rank, j->r, j->x)) != TN_OK) return s;
    out->error = tni_hosvd_error(j, ctx, core);
    return TN_OK;
}

static tn_status tni_hosvd_run(tn_ctx *ctx, tni_hosvd_job *j, const tn_tensor *a, const tn_hosvd_desc *d,
                               tn_hosvd_result *out)
{
    tn_status s = tni_read_scaled(ctx, "hosvd", "a", a, j->a, &j->scale);
    if (s != TN_OK) return s;
    j->size = tni_frobenius(tn_tensor_count(a), j->a);
    if ((s = tni_hosvd_start(ctx, j, d, out)) != TN_OK) return s;
    if (d->sweeps > 0 && (s = tni_hooi(ctx, j, d, out)) != TN_OK) return s;
    return tni_hosvd_write(ctx, j, out);
}

tn_status tn_hosvd(tn_ctx *ctx, const tn_tensor *a, const tn_hosvd_desc *desc, tn_hosvd_result *out)
{
    static const tn_hosvd_desc usual = {0, {{0, 0, 0, 0}}, 0, 0};
    tni_hosvd_job j = TNI_ZERO;
    tn_status     s;
    if (!tni_decomp_out(ctx, "hosvd", out, sizeof *out)) return TN_ERR_ARG;
    out->error = (double)NAN;
    if (!desc) desc = &usual;
    if (!tni_usable(ctx, a, "hosvd", "a")) return TN_ERR_ARG;
    if (a->rank < 1) return tni_fail(ctx, TN_ERR_SHAPE, "hosvd: a has rank 0, expected 1 to %d", TN_MAX_RANK);
    if ((s = tni_eps_check(ctx, "hosvd", "eps", desc->eps)) != TN_OK) return s;
    if ((s = tni_eps_check(ctx, "hosvd", "tol", desc->tol)) != TN_OK) return s;
    if ((s = tni_count_check(ctx, "hosvd", "sweeps", desc->sweeps)) != TN_OK) return s;
    for (int k = 0; k < a->rank; k++) {
        if ((s = tni_truncation_check(ctx, "hosvd", &desc->axis[k])) != TN_OK) return s;
        j.n[k] = a->shape[k];
    }
    out->rank = j.rank = a->rank;
    tni_scratch w = tni_scratch_begin(ctx, "hosvd");
    tni_hosvd_take(&w, &j, desc->sweeps > 0);
    s = tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : tni_hosvd_run(ctx, &j, a, desc, out));
    if (s != TN_OK) tn_hosvd_destroy(out);
    return s;
}

void tn_hosvd_destroy(tn_hosvd_result *r)
{
    if (!r) return;
    tni_drop(&r->core);
    for (int k = 0; k < TN_MAX_RANK; k++) {
        tni_drop(&r->factor[k]);
        tni_drop(&r->values[k]);
    }
}

#endif /* TN_NO_ANALYSIS */
