#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- CP by alternating least squares ------------------------------------ >>cp-als-impl
   The best F_k for the others solves F_k (G + ridge I) = M with
       G = product over j != k of F_j^T F_j, elementwise      M = unfolding_k times the Khatri-Rao product of the others
   solved by the eigenvectors of G, scaled to a diagonal of ones, without those of its rounding errors. The objective is
   measured by the residual itself, not by |A|^2 - 2 <A, CP> + |CP|^2, which loses half of the digits. A sweep that does not
   lower it is undone and ends the start, so that the objective is monotone in spite of rounding. */

enum { TNI_ALS_MOST = 1 << 28 };                             /* terms: small multiples of their square do not overflow */

typedef struct tni_als_job {
    tni_host host;
    int      rank;
    int64_t  n[TN_MAX_RANK], terms, all;
    double   ridge;
    double  *a, *e, *f[TN_MAX_RANK], *old[TN_MAX_RANK], *best[TN_MAX_RANK];
    double  *before, *after, *m, *t;                         /* Khatri-Rao products; M; and a part of it */
    double  *gram, *vectors, *values, *half, *work;
} tni_als_job;

static void tni_als_take(tni_scratch *w, tni_als_job *j)
{
    const int64_t r = j->terms;
    int64_t before = 1, after = 1, n = 1, work = tni_eigh_work(r), extent = tni_max(r, 1), start = 1;
    for (int k = 0; k < j->rank; k++) {
        const int64_t others = tni_product_of(j->rank, j->n, k);
        j->f[k] = tni_take_f64(w, j->n[k], r);
        j->old[k] = tni_take_f64(w, j->n[k], r);
        j->best[k] = tni_take_f64(w, j->n[k], r);
        before = tni_max(before, tni_product_of(k, j->n, -1));
        after = tni_max(after, tni_product_of(j->rank - k - 1, j->n + k + 1, -1));
        n = tni_max(n, j->n[k]);
        start = tni_max(start, j->n[k] * tni_max(tni_min(j->n[k], others), 1));
        work = tni_max(work, n + tni_axis_work(j->n[k], others));
        extent = tni_max(extent, tni_max(j->n[k] + tni_axis_chunk(j->n[k]), others));
    }
    j->a = tni_take_f64(w, j->all, 1);
    j->e = tni_take_f64(w, j->all, 1);
    j->before = tni_take_f64(w, before, r);
    j->after = tni_take_f64(w, after, r);
    j->m = tni_take_f64(w, tni_max(tni_area(n, r), start), 1);
    j->t = tni_take_f64(w, n, r);
    j->gram = tni_take_f64(w, r, r);
    j->vectors = tni_take_f64(w, r, r);
    j->values = tni_take_f64(w, r, 1);
    j->half = tni_take_f64(w, r, 1);
    j->work = tni_take_f64(w, work, 1);
    j->host = tni_take_host(w, extent);
}

/* out [product of n,r]: row (i_0,i_1,..) is the elementwise product of rows i_k of the factors. In place, from the last
   row. */
static void tni_khatri_rao(int count, const int64_t *n, double *const *f, int64_t terms, double *out)
{
    int64_t rows = 1;
    for (int64_t r = 0; r < terms; r++) out[r] = 1;
    for (int k = 0; k < count; k++) {
        for (int64_t i = rows; i-- > 0; )
            for (int64_t l = n[k]; l-- > 0; )
                for (int64_t r = 0; r < terms; r++)
                    out[(i * n[k] + l) * terms + r] = out[i * terms + r] * f[k][l * terms + r];
        rows *= n[k];
    }
}

static void tni_als_products(tni_als_job *j, int k)          /* M of axis k */
{
    const int64_t l = tni_product_of(k, j->n, -1), q = tni_product_of(j->rank - k - 1, j->n + k + 1, -1);
    const int64_t n = j->n[k], r = j->terms;
    tni_khatri_rao(k, j->n, j->f, r, j->before);
    tni_khatri_rao(j->rank - k - 1, j->n + k + 1, j->f + k + 1, r, j->after);
    if (q == 1) {
        j->host.by->gemm(&j->host, n, r, l, 1, tni_transposed(tni_rows(j->a, n)), tni_rows(j->before, r), 0, tni_rows(j->m, r));
        return;
    }
    memset(j->m, 0, (size_t)(n * r) * sizeof *j->m);
    for (int64_t i = 0; i < l; i++) {
        const double *factor = j->before + i * r;
        j->host.by->gemm(&j->host, n, r, q, 1, tni_rows(j->a + i * n * q, q), tni_rows(j->after, r), 0, tni_rows(j->t, r));
        for (int64_t c = 0; c < n * r; c++) j->m[c] += j->t[c] * factor[c % r];
    }
}

static void tni_als_gram(tni_als_job *j, int skip)           /* vectors are its scratch */
{
    const int64_t r = j->terms;
    for (int64_t i = 0; i < r * r; i++) j->gram[i] = 1;
    for (int k = 0; k < j->rank; k++) {
        if (k == skip) continue;
        j->host.by->gemm(&j->host, r, r, j->n[k], 1, tni_transposed(tni_rows(j->f[k], r)), tni_rows(j->f[k], r), 0,
                         tni_rows(j->vectors, r));
        for (int64_t i = 0; i < r * r; i++) j->gram[i] *= j->vectors[i];
    }
}

/* F_k = M (G + ridge I)^-1, by G = D C D with a diagonal of ones in C. */
static tn_status tni_als_axis(tni_als_job *j, int k)
{
    const tni_host *h = &j->host;
    const int64_t   n = j->n[k], r = j->terms;
    tn_status s;
    tni_als_products(j, k);
    tni_als_gram(j, k);
    for (int64_t i = 0; i < r; i++) {
        const double d = j->gram[i * r + i] + j->ridge;
        j->gram[i * r + i] = d;
        j->half[i] = d > 0 ? 1 / sqrt(d) : 0;
    }
    for (int64_t i = 0; i < r; i++) for (int64_t c = 0; c < r; c++) j->gram[i * r + c] *= j->half[i] * j->half[c];
    if ((s = tni_eigh(h, r, j->gram, j->values, j->vectors, j->work)) != TN_OK) return s;
    for (int64_t i = 0; i < n; i++) for (int64_t c = 0; c < r; c++) j->m[i * r + c] *= j->half[c];
    h->by->gemm(h, n, r, r, 1, tni_rows(j->m, r), tni_transposed(tni_rows(j->vectors, r)), 0, tni_rows(j->t, r));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < r; c++)
            j->t[i * r + c] = j->values[c] > 4 * TNI_EPS * (double)r ? j->t[i * r + c] / j->values[c] : 0;
    h->by->gemm(h, n, r, r, 1, tni_rows(j->t, r), tni_rows(j->vectors, r), 0, tni_rows(j->f[k], r));
    for (int64_t i = 0; i < n; i++) for (int64_t c = 0; c < r; c++) j->f[k][i * r + c] *= j->half[c];
    return TN_OK;
}

/* The lengths of column r of all factors; their product. */
static double tni_als_lengths(const tni_als_job *j, int64_t column, double *length)
{
    double product = 1;
    for (int k = 0; k < j->rank; k++) {
        length[k] = 0;
        for (int64_t i = 0; i < j->n[k]; i++) length[k] = hypot(length[k], j->f[k][i * j->terms + column]);
        product *= length[k];
    }
    return product;
}

/* Makes the factors of each term equally long, which keeps the term and lowers the ridge; or of unit length, with the terms'
   lengths in weights. */
static void tni_als_balance(tni_als_job *j, double *weights)
{
    double length[TN_MAX_RANK];
    for (int64_t r = 0; r < j->terms; r++) {
        double product = tni_als_lengths(j, r, length);
        double to = weights ? 1 : pow(product, 1.0 / j->rank);
        if (weights) weights[r] = product;
        for (int k = 0; k < j->rank; k++)
            for (int64_t i = 0; i < j->n[k]; i++) j->f[k][i * j->terms + r] *= product > 0 ? to / length[k] : 0;
    }
}

/* |A - sum_r weights[r] ..|_F, weights NULL: ones; the residual is in e */
static double tni_als_residual(tni_als_job *j, const double *weights)
{
    const int64_t r = j->terms, rows = j->n[0], others = tni_product_of(j->rank, j->n, 0);
    tni_khatri_rao(j->rank - 1, j->n + 1, j->f + 1, r, j->after);
    for (int64_t i = 0; i < rows; i++) for (int64_t c = 0; c < r; c++)
        j->t[i * r + c] = j->f[0][i * r + c] * (weights ? weights[c] : 1);
    memcpy(j->e, j->a, (size_t)j->all * sizeof *j->e);
    j->host.by->gemm(&j->host, rows, others, r, -1, tni_rows(j->t, r), tni_transposed(tni_rows(j->after, r)), 1,
                     tni_rows(j->e, others));
    return tni_frobenius(j->all, j->e);
}

static double tni_als_objective(tni_als_job *j, double *error)
{
    double sum = 0;
    *error = tni_als_residual(j, NULL);
    for (int k = 0; k < j->rank; k++) {
        double length = tni_frobenius(j->n[k] * j->terms, j->f[k]);
        sum += length * length;
    }
    return *error * *error + j->ridge * sum;
}

static void tni_als_copy(const tni_als_job *j, double *const *from, double *const *to)
{
    for (int k = 0; k < j->rank; k++) memcpy(to[k], from[k], (size_t)(j->n[k] * j->terms) * sizeof **to);
}

static tn_status tni_als_begin(tni_als_job *j, int64_t start, const tn_cp_als_desc *d)
{
    tn_status s = TN_OK;
    for (int k = 0; k < j->rank && s == TN_OK; k++) {
        const int64_t n = j->n[k], others = tni_product_of(j->rank, j->n, k), least = tni_min(n, others);
        tni_random_signed(d->seed, start, (uint32_t)k, n * j->terms, j->f[k]);
        if (start > 0 || d->random) continue;
        s = tni_axis_svd(&j->host, tni_product_of(k, j->n, -1), n, tni_product_of(j->rank - k - 1, j->n + k + 1, -1), j->a,
                         j->m, j->work, j->work + tni_max(least, 1));
        int64_t kept = tni_min(least, j->terms);
        for (int64_t i = 0; s == TN_OK && i < n; i++)
            for (int64_t c = 0; c < kept; c++) j->f[k][i * j->terms + c] = j->m[i * least + c];
    }
    return s;
}

/* One start: sweeps until the objective stops falling. */
static tn_status tni_als_start(tni_als_job *j, int64_t start, const tn_cp_als_desc *d, tn_cp_als_result *now)
{
    const double  tol = d->tol > 0 ? d->tol : 1e-7;
    const int64_t sweeps = d->sweeps > 0 ? d->sweeps : 500;
    double        error;
    tn_status s = tni_als_begin(j, start, d);
    now->start = start;
    now->sweeps = 0;
    now->converged = false;
    now->objective = HUGE_VAL;
    while (s == TN_OK && now->sweeps < sweeps && !now->converged) {
        tni_als_copy(j, j->f, j->old);
        for (int k = 0; k < j->rank && s == TN_OK; k++) s = tni_als_axis(j, k);
        if (s != TN_OK) break;
        tni_als_balance(j, NULL);
        double next = tni_als_objective(j, &error);
        now->sweeps++;
        now->converged = !(now->objective - next > tol * next) || error < 1e-15;
        if (!(next < now->objective)) tni_als_copy(j, j->old, j->f);
        else { now->objective = next; now->error = error; }
    }
    return s;
}

/* The signs of the columns move into the weights, and the terms are sorted. */
static void tni_als_normalise(tni_als_job *j, double *weights)
{
    const int64_t r = j->terms;
    tni_als_balance(j, weights);
    for (int k = 0; k < j->rank; k++)
        for (int64_t c = 0; c < r; c++) {
            if (!tni_points_down(j->n[k], j->f[k] + c, r)) continue;
            weights[c] = -weights[c];
            for (int64_t i = 0; i < j->n[k]; i++) j->f[k][i * r + c] = -j->f[k][i * r + c];
        }
    for (int64_t c = 0; c < r; c++) {
        int64_t first = c;
        for (int64_t b = c + 1; b < r; b++) if (tni_before_magnitude(weights[b], weights[first])) first = b;
        if (first == c) continue;
        tni_swap(1, weights + c, weights + first);
        for (int k = 0; k < j->rank; k++)
            for (int64_t i = 0; i < j->n[k]; i++) tni_swap(1, j->f[k] + i * r + c, j->f[k] + i * r + first);
    }
}

static void tni_als_degeneracy(tni_als_job *j, const double *weights, tn_cp_als_result *out)
{
    const int64_t r = j->terms;
    double  squares = 0, size = 0;
    tni_als_gram(j, -1);
    out->congruence = 1;
    for (int64_t i = 0; i < r; i++)
        for (int64_t c = 0; c < r; c++) {
            double product = j->gram[i * r + c];
            size += weights[i] * weights[c] * product;
            if (i == c) squares += weights[i] * weights[i];
            if (weights[i] * weights[c] < 0) product = -product;
            if (i != c && weights[i] * weights[c] != 0) out->congruence = fmin(out->congruence, product);
        }
    out->cancellation = squares > 0 ? sqrt(squares / tni_max_f64(size, TNI_EPS * squares)) : 1;
    out->degenerate = out->congruence < -0.85;
}

static tn_status tni_als_write(tn_ctx *ctx, tni_als_job *j, double size, tn_cp_als_result *out)
{
    double   *weights = j->values;
    tn_status s = TN_OK;
    tni_als_copy(j, j->best, j->f);
    tni_als_normalise(j, weights);
    tni_als_degeneracy(j, weights, out);
    for (int k = 0; k < j->rank && s == TN_OK; k++) {
        s = tni_write_new(ctx, "cp_als", &out->factor[k], 2, TNI_DIMS(j->n[k], j->terms), j->f[k]);
        tni_decomp_round(ctx, j->n[k] * j->terms, j->f[k]);
    }
    if (s != TN_OK) return s;
    for (int64_t i = 0; i < j->terms; i++) j->half[i] = weights[i] * size;
    if ((s = tni_write_new(ctx, "cp_als", &out->weights, 1, &j->terms, j->half)) != TN_OK) return s;
    tni_decomp_round(ctx, j->terms, j->half);
    for (int64_t i = 0; i < j->terms; i++) weights[i] = size > 0 ? j->half[i] / size : 0;
    out->error = tni_als_residual(j, weights);
    return TN_OK;
}

static tn_status tni_als_run(tn_ctx *ctx, tni_als_job *j, const tn_tensor *a, const tn_cp_als_desc *d, tn_cp_als_result *out)
{
    const int64_t    starts = d->starts > 0 ? d->starts : 4;
    tn_cp_als_result now = *out;
    double    scale;
    tn_status s = tni_read_scaled(ctx, "cp_als", "a", a, j->a, &scale);
    if (s != TN_OK) return s;
    double size = tni_frobenius(j->all, j->a);
    for (int64_t i = 0; size > 0 && i < j->all; i++) j->a[i] /= size;
    out->objective = HUGE_VAL;
    for (int64_t start = 0; start < starts && (start == 0 || now.error > 1e-13); start++) {
        if ((s = tni_als_start(j, start, d, &now)) != TN_OK)
            return tni_fail(ctx, s, "cp_als: the eigenvectors of a Gram matrix did not converge");
        if (start > 0 && !(now.objective < out->objective)) continue;
        *out = now;
        tni_als_copy(j, j->f, j->best);
    }
    return tni_als_write(ctx, j, size / scale, out);
}

tn_status tn_cp_als(tn_ctx *ctx, const tn_tensor *a, const tn_cp_als_desc *desc, tn_cp_als_result *out)
{
    tni_als_job j = TNI_ZERO;
    tn_status   s;
    if (!tni_decomp_out(ctx, "cp_als", out, sizeof *out)) return TN_ERR_ARG;
    out->error = (double)NAN;
    if (!tni_usable(ctx, a, "cp_als", "a")) return TN_ERR_ARG;
    if (a->rank < 2) return tni_fail(ctx, TN_ERR_SHAPE, "cp_als: a has rank %d, expected 2 to %d", a->rank, TN_MAX_RANK);
    if (!tni_within(ctx, "cp_als", "terms", desc ? desc->terms : 0, 1, TNI_ALS_MOST)) return TN_ERR_ARG;
    if ((s = tni_count_check(ctx, "cp_als", "sweeps", desc->sweeps)) != TN_OK) return s;
    if ((s = tni_count_check(ctx, "cp_als", "starts", desc->starts)) != TN_OK) return s;
    if ((s = tni_eps_check(ctx, "cp_als", "ridge", desc->ridge)) != TN_OK) return s;
    if ((s = tni_eps_check(ctx, "cp_als", "tol", desc->tol)) != TN_OK) return s;
    out->rank = j.rank = a->rank;
    j.terms = desc->terms;
    j.ridge = desc->ridge;
    j.all = tn_tensor_count(a);
    for (int k = 0; k < a->rank; k++) j.n[k] = a->shape[k];
    tni_scratch w = tni_scratch_begin(ctx, "cp_als");
    tni_als_take(&w, &j);
    s = tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : tni_als_run(ctx, &j, a, desc, out));
    if (s != TN_OK) tn_cp_als_destroy(out);
    return s;
}

void tn_cp_als_destroy(tn_cp_als_result *r)
{
    if (!r) return;
    tni_drop(&r->weights);
    for (int k = 0; k < TN_MAX_RANK; k++) tni_drop(&r->factor[k]);
}

#endif /* TN_NO_ANALYSIS */
