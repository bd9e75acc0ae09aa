#include "core/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- Lanczos --------------------------------------------------------- >>lanczos
   The rows of V are an orthonormal basis, H = V A V^T, and the part of A V^T outside of it is in the next block:
       A V^T = V^T H + Q^T [0 R]         R belongs to the last block of V, Q is the block that follows it
   so H s = theta s gives the pair (theta, s V), whose residual |R s_last| needs no further product with A. When V is
   full it is replaced by its best such vectors, and Q continues from there [Wu & Simon 2000]. Every block is made
   orthogonal to all of V, twice, which avoids the duplicate values of the plain Lanczos method.

   One start does not reach the whole space: of a multiple eigenvalue it finds at most as many vectors as a block has
   rows. Therefore the pairs found so far are kept, a random block replaces Q, and the search ends when the next pair,
   even with its residual added, cannot be better than the last wanted one. */
enum { TNI_LANCZOS_STRIP = 32 };

TNI_FN int64_t tni_lanczos_work(const tni_lanczos_job *l)
{
    int64_t all = l->basis + l->block;
    return (all + l->block) * l->n + (all + 2 * l->basis) * l->basis + l->basis + 2 * all * l->block
         + l->block * (l->block + 1) + l->basis * TNI_LANCZOS_STRIP + tni_eigh_work(l->basis)
         + tni_host_work(tni_max(l->n, all));
}

TNI_FN void tni_lanczos_lay(tni_lanczos_job *l, double *work)
{
    int64_t all = l->basis + l->block;
    l->v = work;                           l->y = l->v + all * l->n;
    l->h = l->y + l->block * l->n;         l->copy = l->h + all * l->basis;
    l->s = l->copy + l->basis * l->basis;    l->theta = l->s + l->basis * l->basis;
    l->c = l->theta + l->basis;             l->sum = l->c + all * l->block;
    l->r = l->sum + all * l->block;        l->length = l->r + l->block * l->block;
    l->strip = l->length + l->block;       l->rest = l->strip + l->basis * TNI_LANCZOS_STRIP;
    l->host = tni_host_of(l->simd, l->pool, tni_max(l->n, all), l->rest + tni_eigh_work(l->basis));
}

static double tni_lanczos_dot(const tni_lanczos_job *l, const double *x, const double *y)
{
    return l->host.by->dot(l->n, x, y);
}
static double tni_lanczos_length(const tni_lanczos_job *l, const double *x) { return sqrt(tni_lanczos_dot(l, x, x)); }

/* Makes x orthogonal to rows from .. to - 1 of V. */
static void tni_lanczos_clean(const tni_lanczos_job *l, int64_t from, int64_t to, double *x)
{
    for (; from < to; from++) l->host.by->axpy(l->n, -tni_lanczos_dot(l, l->v + from * l->n, x), l->v + from * l->n, x);
}

/* Makes row m of V a random unit vector, orthogonal to the rows before it. */
static void tni_lanczos_draw(tni_lanczos_job *l, int64_t m)
{
    double *x = l->v + m * l->n;
    tni_random_signed(l->seed, l->draws++, 0, l->n, x);
    for (int pass = 0; pass < 3; pass++) {                   /* when V is nearly the whole space, one pass is inaccurate */
        tni_lanczos_clean(l, 0, m, x);
        l->host.by->scale(l->n, 1 / tni_lanczos_length(l, x), x);
    }
}

static void tni_lanczos_draw_block(tni_lanczos_job *l)
{
    l->next = tni_min(l->block, l->n - l->used);
    for (int64_t i = 0; i < l->next; i++) tni_lanczos_draw(l, l->used + i);
}

/* Y, which is A Q, is scaled, and the lengths of its rows are noted. */
static tn_status tni_lanczos_measure_rows(tni_lanczos_job *l)
{
    double largest = tni_largest(l->next, l->n, tni_rows(l->y, l->n));
    l->products += l->next;
    if (!(largest < HUGE_VAL)) return TN_ERR_NONFINITE;
    if (l->scale == 0 && largest > 0) l->scale = tni_unit_scale(largest);
    l->host.by->scale(l->next * l->n, l->scale, l->y);
    for (int64_t i = 0; i < l->next; i++) {
        l->length[i] = tni_lanczos_length(l, l->y + i * l->n);
        if (l->length[i] > l->norm) l->norm = l->length[i];
    }
    return TN_OK;
}

/* The columns of H that belong to Q. By symmetry they must equal its rows, which R has filled in. */
static void tni_lanczos_project(tni_lanczos_job *l)
{
    int64_t n = l->n, w = l->next, m = l->used + w;
    memset(l->sum, 0, sizeof *l->sum * (size_t)(m * w));
    for (int pass = 0; pass < 2; pass++) {
        l->host.by->gemm(&l->host, m, w, n, 1, tni_rows(l->v, n), tni_transposed(tni_rows(l->y, n)), 0, tni_rows(l->c, w));
        l->host.by->gemm(&l->host, w, n, m, -1, tni_transposed(tni_rows(l->c, w)), tni_rows(l->v, n), 1, tni_rows(l->y, n));
        l->host.by->axpy(m * w, 1, l->c, l->sum);
    }
    for (int64_t j = 0; j < w; j++)
        for (int64_t i = 0; i < l->used + j + 1; i++) {
            double *column = l->h + i * l->basis + l->used + j, *row = l->h + (l->used + j) * l->basis + i;
            double  value = l->sum[i * w + j];
            double  mirror = i < l->used ? *row : l->sum[(l->used + j) * w + i - l->used];
            l->skew = tni_max_f64(l->skew, fabs(value - mirror));
            *column = *row = i < l->used ? value : 0.5 * (value + mirror);
        }
}

/* Makes the rest of Y the next block, R Q = Y. A row that depends on the others is replaced by a random one, with zeros
   in R. */
static void tni_lanczos_succeed(tni_lanczos_job *l)
{
    int64_t n = l->n, w = l->next, m = l->used + w, next = tni_min(l->block, n - m), found = 0;
    memset(l->r, 0, sizeof *l->r * (size_t)(l->block * l->block));
    for (int64_t i = 0; i < w; i++) {
        double *x = l->y + i * n;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < found; j++) {
                double d = tni_lanczos_dot(l, l->v + (m + j) * n, x);
                l->host.by->axpy(n, -d, l->v + (m + j) * n, x);
                l->r[j * l->block + i] += d;
            }
        double length = tni_lanczos_length(l, x);
        if (found == next || length <= TNI_EPS * l->norm) continue;
        l->r[found * l->block + i] = length;
        l->host.by->scale(n, 1 / length, x);
        if (length < 1e-3 * l->length[i]) {                  /* mostly rounding errors, not quite orthogonal */
            tni_lanczos_clean(l, 0, m + found, x);
            l->host.by->scale(n, 1 / tni_lanczos_length(l, x), x);
        }
        memcpy(l->v + (m + found++) * n, x, sizeof *x * (size_t)n);
    }
    for (; found < next; found++) tni_lanczos_draw(l, m + found);
    for (int64_t j = 0; j < next; j++) {
        memset(l->h + (m + j) * l->basis, 0, sizeof *l->h * (size_t)l->used);
        for (int64_t i = 0; i < w; i++) l->h[(m + j) * l->basis + l->used + i] = l->r[j * l->block + i];
    }
    l->last = w;
    l->used = m;
    l->next = next;
}

static double tni_lanczos_key(const tni_lanczos_job *l, int64_t i)
{
    double x = l->theta[i];
    return l->end == TN_LANCZOS_MAGNITUDE ? fabs(x) : l->end == TN_LANCZOS_LARGEST ? x : -x;
}

/* theta and s of H, in the wanted order */
static tn_status tni_lanczos_ritz(tni_lanczos_job *l)
{
    int64_t   m = l->used;
    tn_status s;
    for (int64_t i = 0; i < m; i++) memcpy(l->copy + i * m, l->h + i * l->basis, sizeof *l->h * (size_t)m);
    if ((s = tni_eigh(&l->host, m, l->copy, l->theta, l->s, l->rest)) != TN_OK) return s;
    if (l->end != TN_LANCZOS_SMALLEST)
        tni_sort_rows(m, l->theta, l->end == TN_LANCZOS_LARGEST ? tni_before_descending : tni_before_magnitude, m, l->s,
                      NULL);
    for (int64_t i = 0; i < m; i++) l->norm = tni_max_f64(l->norm, fabs(l->theta[i]));
    return TN_OK;
}

/* (R s_last)[j] of Ritz pair i */
static double tni_lanczos_coupling(const tni_lanczos_job *l, int64_t i, int64_t j)
{
    return l->host.by->dot(l->last, l->r + j * l->block, l->s + i * l->used + l->used - l->last);
}

static double tni_lanczos_residual(const tni_lanczos_job *l, int64_t i)
{
    double sum = 0;
    for (int64_t j = 0; j < l->next; j++) {
        double x = tni_lanczos_coupling(l, i, j);
        sum += x * x;
    }
    return sqrt(sum);
}

/* Replaces the first `keep` rows of V by the first Ritz vectors, in place, a strip of columns at a time. */
static void tni_lanczos_rotate(tni_lanczos_job *l, int64_t keep)
{
    int64_t n = l->n;
    for (int64_t at = 0; at < n; at += TNI_LANCZOS_STRIP) {
        int64_t w = tni_min(TNI_LANCZOS_STRIP, n - at);
        l->host.by->gemm(&l->host, keep, w, l->used, 1, tni_rows(l->s, l->used), tni_rows(l->v + at, n), 0,
                         tni_rows(l->strip, w));
        for (int64_t i = 0; i < keep; i++) memcpy(l->v + i * n + at, l->strip + i * w, sizeof *l->v * (size_t)w);
    }
}

/* Restarts from the best Ritz vectors; `anew`: with a random block instead of Q. */
static void tni_lanczos_restart(tni_lanczos_job *l, int64_t keep, bool anew)
{
    int64_t m = l->used, next = anew ? tni_min(l->block, l->n - keep) : l->next;
    tni_lanczos_rotate(l, keep);
    for (int64_t i = 0; i < keep; i++) {
        memset(l->h + i * l->basis, 0, sizeof *l->h * (size_t)keep);
        l->h[i * l->basis + i] = l->theta[i];
    }
    for (int64_t j = 0; j < next; j++)
        for (int64_t i = 0; i < keep; i++) l->h[(keep + j) * l->basis + i] = anew ? 0 : tni_lanczos_coupling(l, i, j);
    if (!anew) memmove(l->v + keep * l->n, l->v + m * l->n, sizeof *l->v * (size_t)(next * l->n));
    l->used = keep;
    if (anew) tni_lanczos_draw_block(l);
}

/* Are the wanted pairs found, and can no better one be missing? Restarts if not. */
static bool tni_lanczos_finished(tni_lanczos_job *l)
{
    double  slack = l->tol * l->norm;
    int64_t k = l->top;
    double  worst = 0;
    for (int64_t i = 0; i < k; i++) worst = tni_max_f64(worst, tni_lanczos_residual(l, i));
    l->residual = l->norm > 0 ? worst / l->norm : 0;
    if (l->next == 0 || k == 0) return true;                 /* V is the whole space */
    if (worst <= slack && (!l->anew || tni_lanczos_key(l, k - 1) > l->before + 10 * slack)) {
        l->anew = true;
        l->before = tni_lanczos_key(l, k - 1);
        tni_lanczos_restart(l, k, true);
        return false;
    }
    double next = tni_lanczos_residual(l, k);
    if (worst <= slack && (next <= slack || tni_lanczos_key(l, k) + next <= tni_lanczos_key(l, k - 1) + slack)) return true;
    tni_lanczos_restart(l, tni_min(k + (l->used - k) / 2, l->basis - l->next), false);
    return false;
}

/* If V is full, its best vectors are found: it is done, or restarts. */
static tn_status tni_lanczos_settle(tni_lanczos_job *l)
{
    while (!l->done && !(l->next > 0 && l->used + l->next <= l->basis)) {
        tn_status s;
        if (l->skew > 1e-3 * l->norm) return TN_ERR_ARG;
        if ((s = tni_lanczos_ritz(l)) != TN_OK) return s;
        l->done = tni_lanczos_finished(l);
        if (!l->done && l->products >= l->limit) return TN_ERR_CONVERGENCE;
    }
    return TN_OK;
}

/* The method in steps, so that several searches may have their products together: it begins; until l->done, the caller
   writes A Q to Y, and the next step takes it; it ends with theta [top] and the first `top` rows of V. */
TNI_FN tn_status tni_lanczos_begin(tni_lanczos_job *l)
{
    l->anew = l->done = false;
    tni_lanczos_draw_block(l);
    return tni_lanczos_settle(l);
}

TNI_FN tn_status tni_lanczos_take(tni_lanczos_job *l)
{
    tn_status s = tni_lanczos_measure_rows(l);
    if (s != TN_OK) return s;
    tni_lanczos_project(l);
    tni_lanczos_succeed(l);
    return tni_lanczos_settle(l);
}

TNI_FN void tni_lanczos_end(tni_lanczos_job *l)
{
    tni_lanczos_rotate(l, l->top);
    for (l->last = 0; l->last < l->top; l->last++) {
        double *x = l->v + l->last * l->n;
        if (l->scale > 0) l->theta[l->last] /= l->scale;
        if (tni_points_down(l->n, x, 1)) l->host.by->scale(l->n, -1, x);
    }
}

/* theta [top] and the first `top` rows of V. TN_ERR_ARG: A is not symmetric. */
TNI_FN tn_status tni_lanczos(tni_lanczos_job *l)
{
    tn_status s = tni_lanczos_begin(l);
    while (s == TN_OK && !l->done)
        if ((s = l->fn(l->user, l->next, l->v + l->used * l->n, l->y)) == TN_OK) s = tni_lanczos_take(l);
    if (s == TN_OK) tni_lanczos_end(l);
    return s;
}

#endif /* TN_NO_OPERATOR */
