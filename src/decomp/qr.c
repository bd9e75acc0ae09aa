#include "core/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- QR -------------------------------------------------------------- >>qr
   A = Q R by Householder reflections in blocks [GVL 5.2] [dgeqrf, dorgqr]. A is stored transposed, so that
   a column, and with it a reflector, is contiguous. The columns of Q are orthonormal for any rank of A; the
   diagonal of R is not negative. */

TNI_FN int64_t tni_qr_work(int64_t m, int64_t n) { return m * n + n + tni_reflect_work(m, tni_max(m, n), TNI_BLOCK); }

/* Reflectors first .. first+w-1. The finished columns of R are moved to r and replaced by zeros, so that the
   rows of `at` hold the reflectors only. */
TNI_FN void tni_qr_panel(const tni_host *h, int64_t m, int64_t first, int64_t w, double *at, double *tau, tni_mat r)
{
    for (int64_t j = first; j < first + w; j++) {
        double *v = at + j * m;
        r.p[j * r.row + j * r.col] = tni_reflector(h, m - j, v + j, tau + j);
        for (int64_t i = 0; i < j; i++) { r.p[i * r.row + j * r.col] = v[i]; v[i] = 0; }
        for (int64_t l = j + 1; l < first + w; l++)
            h->by->axpy(m - j, -tau[j] * h->by->dot(m - j, v + j, at + l * m + j), v + j, at + l * m + j);
    }
}

static void tni_qr_form(const tni_host *h, int64_t m, int64_t k, double *at, const double *tau, tni_mat q, double *work)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++) q.p[i * q.row + j * q.col] = i == j;
    for (int64_t first = (k - 1) / TNI_BLOCK * TNI_BLOCK; first >= 0; first -= TNI_BLOCK)
        tni_reflect(h, m - first, k - first, tni_min(TNI_BLOCK, k - first), tni_mat_of(at + first * m + first, 1, m),
                    tau + first, false, tni_from(q, first, first), work);
}

/* Makes the diagonal of R positive by changing the signs of its rows and of the columns of Q, and undoes the scaling. */
static void tni_qr_finish(int64_t m, int64_t n, int64_t k, double scale, tni_mat q, tni_mat r)
{
    for (int64_t i = 0; i < k; i++) {
        double sign = r.p[i * r.row + i * r.col] < 0 ? -1 : 1;
        for (int64_t j = i; j < n; j++) r.p[i * r.row + j * r.col] *= sign / scale;
        if (sign < 0) for (int64_t j = 0; j < m; j++) q.p[j * q.row + i * q.col] = -q.p[j * q.row + i * q.col];
    }
}

/* The columns of a, scaled by the power of two that is returned; 0 if a is not finite. */
static double tni_qr_read(int64_t m, int64_t n, tni_mat a, double *at)
{
    const double largest = tni_largest(m, n, a), scale = tni_unit_scale(largest);
    if (!(largest < HUGE_VAL)) return 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) at[j * m + i] = a.p[i * a.row + j * a.col] * scale;
    return scale;
}

/* a[m,n] = q[m,k] r[k,n], k = min(m,n). a is unchanged. TN_ERR_NONFINITE if a is not finite. */
TNI_FN tn_status tni_qr(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat q, tni_mat r, double *work)
{
    double *at = work, *tau = at + m * n, *rest = tau + n, scale = tni_qr_read(m, n, a, at);
    int64_t k = tni_min(m, n);
    if (scale == 0) return TN_ERR_NONFINITE;
    if (k == 0) return TN_OK;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) r.p[i * r.row + j * r.col] = 0;
    for (int64_t first = 0; first < k; first += TNI_BLOCK) {
        int64_t w = tni_min(TNI_BLOCK, k - first), next = first + w;
        tni_qr_panel(h, m, first, w, at, tau, r);
        tni_reflect(h, m - first, n - next, w, tni_mat_of(at + first * m + first, 1, m), tau + first, true,
                    tni_mat_of(at + next * m + first, 1, m), rest);
    }
    for (int64_t i = 0; i < k; i++)                          /* a wide A: columns without a reflector */
        for (int64_t j = k; j < n; j++) r.p[i * r.row + j * r.col] = at[j * m + i];
    tni_qr_form(h, m, k, at, tau, q, rest);
    tni_qr_finish(m, n, k, scale, q, r);
    return TN_OK;
}

/* ---- QR with pivots -------------------------------------------------- >>qr-pivot
   The next column is always the longest of what is left of the columns; the first of equals. Their lengths are updated, and
   computed anew where the update has lost half of its digits. Businger & Golub 1965, Drmac & Bujanovic 2008. [dgeqp3] */

/* |x| of numbers that are at most about one, also where the squares would underflow */
static double tni_length(const tni_host *h, int64_t n, const double *x)
{
    const double squares = h->by->dot(n, x, x);
    return squares > 1e-250 ? sqrt(squares) : tni_frobenius(n, x);
}

/* at: the columns of A [m,n], as rows of m. It gets reflectors, and R in r; order [n], tau [n], lengths [2n]. */
static void tni_pivoted_factor(const tni_host *h, int64_t m, int64_t n, double *at, double *tau, tni_mat r, int64_t *order,
                               double *lengths)
{
    const int64_t k = tni_min(m, n);
    double *exact = lengths + n;                             /* when they were computed */
    for (int64_t j = 0; j < n; j++) {
        order[j] = j;
        lengths[j] = exact[j] = tni_length(h, m, at + j * m);
    }
    for (int64_t j = 0; j < k; j++) {
        int64_t first = j;
        double *v = at + j * m;
        for (int64_t l = j + 1; l < n; l++) if (lengths[l] > lengths[first]) first = l;
        if (first != j) {
            int64_t i = order[j]; order[j] = order[first]; order[first] = i;
            tni_swap(m, v, at + first * m);
            lengths[first] = lengths[j];
            exact[first] = exact[j];
        }
        r.p[j * r.row + j * r.col] = tni_reflector(h, m - j, v + j, tau + j);
        for (int64_t i = 0; i < j; i++) { r.p[i * r.row + j * r.col] = v[i]; v[i] = 0; }
        for (int64_t l = j + 1; l < n; l++) {
            double *c = at + l * m;
            h->by->axpy(m - j, -tau[j] * h->by->dot(m - j, v + j, c + j), v + j, c + j);
            if (lengths[l] == 0) continue;
            double share = fabs(c[j]) / lengths[l], left = fmax(0, (1 - share) * (1 + share));
            lengths[l] *= sqrt(left);
            if (left * (lengths[l] / exact[l]) * (lengths[l] / exact[l]) > 1e-8) continue;
            lengths[l] = exact[l] = tni_length(h, m - j - 1, c + j + 1);
        }
    }
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = k; j < n; j++) r.p[i * r.row + j * r.col] = at[j * m + i];
}

TNI_FN int64_t tni_pivoted_work(int64_t m, int64_t n)
{
    return m * n + 3 * n + tni_reflect_work(m, tni_max(m, n), TNI_BLOCK);
}

/* a[m,n] with its columns in `order` [n] = q[m,k] r[k,n]; r [k,n] is by rows. a is unchanged. */
TNI_FN tn_status tni_pivoted_qr(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat q, double *r, int64_t *order,
                                double *work)
{
    double *at = work, *tau = at + m * n, *lengths = tau + n, *rest = lengths + 2 * n;
    const int64_t k = tni_min(m, n);
    const double  scale = tni_qr_read(m, n, a, at);
    if (scale == 0) return TN_ERR_NONFINITE;
    for (int64_t j = 0; j < n; j++) order[j] = j;
    if (k == 0) return TN_OK;
    memset(r, 0, (size_t)(k * n) * sizeof *r);
    tni_pivoted_factor(h, m, n, at, tau, tni_rows(r, n), order, lengths);
    tni_qr_form(h, m, k, at, tau, q, rest);
    tni_qr_finish(m, n, k, scale, q, tni_rows(r, n));
    return TN_OK;
}

/* The number of diagonal elements of r [k,n] above tol times the first. */
TNI_FN int64_t tni_pivoted_rank(int64_t k, int64_t n, const double *r, double tol)
{
    int64_t rank = 0;
    while (rank < k && fabs(r[rank * (n + 1)]) > tol * fabs(r[0])) rank++;
    return rank;
}

/* ---- least squares ---------------------------------------------------- >>lstsq */
TNI_FN int64_t tni_lstsq_work(int64_t m, int64_t n)
{
    return tni_pivoted_work(m, n) + 4 * n * n + 2 * n + tni_qr_work(n, n);
}

/* The shortest x of |A x - b| = least, for `count` of them: b [count,m] is overwritten, x [count,n]; rows of both are
   vectors. A P = Q R; with rank < n the first rows of R are T^T Z^T, and x = P Z T^-T (Q^T b).   Golub & Pereyra 1976 */
TNI_FN tn_status tni_lstsq(const tni_host *h, int64_t m, int64_t n, int64_t count, tni_mat a, double *b, double *x,
                           double tol, int64_t *rank, double *work)
{
    double *at = work, *tau = at + m * n, *lengths = tau + n, *r = lengths + 2 * n, *z = r + n * n, *t = z + n * n;
    double *y = t + n * n, *rest = y + n;
    int64_t *order = (int64_t *)(void *)rest, k = tni_min(m, n), j;
    const double scale = tni_qr_read(m, n, a, at);
    tn_status s;
    if (scale == 0) return TN_ERR_NONFINITE;
    *rank = 0;
    memset(x, 0, (size_t)(count * n) * sizeof *x);
    if (k == 0) return TN_OK;
    memset(r, 0, (size_t)(n * n) * sizeof *r);
    tni_pivoted_factor(h, m, n, at, tau, tni_rows(r, n), order, lengths);
    rest += n;
    *rank = k = tni_pivoted_rank(k, n, r, tol);
    if (k < n && k > 0 && (s = tni_qr(h, n, k, tni_transposed(tni_rows(r, n)), tni_rows(z, k), tni_rows(t, k), rest)) != TN_OK)
        return s;
    for (int64_t l = 0; l < count; l++) {
        double *c = b + l * m;
        for (j = 0; j < k; j++) {
            const double *v = at + j * m + j;
            h->by->axpy(m - j, -tau[j] * h->by->dot(m - j, v, c + j), v, c + j);
        }
        if (k == n)
            for (int64_t i = n; i-- > 0;) c[i] = (c[i] - h->by->dot(n - i - 1, r + i * n + i + 1, c + i + 1)) / r[i * n + i];
        else
            for (int64_t i = 0; i < k; i++)
                for (c[i] /= t[i * k + i], j = i + 1; j < k; j++) c[j] -= t[i * k + j] * c[i];
        for (int64_t i = 0; i < n; i++) y[i] = k == n ? c[i] : h->by->dot(k, z + i * k, c);
        for (int64_t i = 0; i < n; i++) x[l * n + order[i]] = y[i] * scale;
    }
    return TN_OK;
}

#endif /* TN_NO_OPERATOR */
