#include "core/inner.h"
#include "cpu/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- SVD ------------------------------------------------------------ >>svd
   A = Q R (a square A: R = A; a wide A: its transposed), then R = L^T diag(s) V with rows of Y = L R that are orthogonal:
   they are s_i v_i. The initial L are the eigenvectors of R R^T. Rows of Y whose values are far above sqrt(eps) times the
   largest are then nearly orthogonal, and one or two corrections by matrix products (>>svd-correct) complete them. Smaller
   ones are made orthogonal by one-sided Jacobi rotations from the left. Hestenes 1958 [GVL 8.6.3] [dgesvj]. The error of
   every value is about eps times the largest value, as in the method of Golub and Kahan. */
enum { TNI_JACOBI_SWEEPS = 60 };

#ifdef TN_USE_BLAS
/* The least workspace of dgesdd in all its versions, and more for its blocks. */
static int64_t tni_lapack_svd_work(int64_t m, int64_t n) { return 3 * n + tni_max(m, 5 * n * n + 7 * n) + 32 * (m + n); }
#endif

TNI_FN int64_t tni_svd_work(int64_t m, int64_t n)
{
    int64_t k = tni_min(m, n), l = tni_max(m, n);
    int64_t work = l * k + 3 * k * k + tni_max(tni_qr_work(l, k), tni_max(tni_eigh_work(k), 2 * k * k));
#ifdef TN_USE_BLAS
    work = tni_max(work, 2 * l * k + k * k + tni_lapack_svd_work(l, k) + 4 * k);
#endif
    return work;
}

#ifdef TN_USE_BLAS
/* u[m,n], s[n], vt[n,n] of a[m,n], m >= n */
static tn_status tni_lapack_svd(int64_t m, int64_t n, tni_mat a, tni_mat u, double *s, tni_mat vt, double *work)
{
    double   *ac = work, *uc = ac + m * n, *vc = uc + m * n, *rest = vc + n * n;
    const int im = (int)m, in = (int)n, lwork = (int)tni_lapack_svd_work(m, n);
    int       info = 0;
    if (!(tni_largest(m, n, a) < HUGE_VAL)) return TN_ERR_NONFINITE;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) ac[j * m + i] = a.p[i * a.row + j * a.col];
    dgesdd_("S", &im, &in, ac, &im, s, uc, &im, vc, &in, rest, &lwork, (int *)(void *)(rest + lwork), &info, 1);
    if (info != 0) return TN_ERR_CONVERGENCE;
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++) u.p[i * u.row + j * u.col] = uc[j * m + i];
        for (int64_t i = 0; i < n; i++) vt.p[i * vt.row + j * vt.col] = vc[j * n + i];
    }
    return TN_OK;
}
#endif

/* Makes rows i and j of y orthogonal, if they are not; squares holds |y_i|^2. */
static bool tni_jacobi_pair(const tni_host *h, int64_t n, double *y, double *left, double *squares, int64_t i, int64_t j)
{
    double *yi = y + i * n, *yj = y + j * n, product = h->by->dot(n, yi, yj);
    if (fabs(product) <= TNI_EPS * sqrt((double)n) * sqrt(squares[i]) * sqrt(squares[j])) return false;
    double zeta = (squares[j] - squares[i]) / (2 * product);
    double t = copysign(1, zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    double c = 1 / sqrt(1 + t * t);
    h->by->rotate(n, c, c * t, yi, yj);
    h->by->rotate(n, c, c * t, left + i * n, left + j * n);
    squares[i] = h->by->dot(n, yi, yi);
    squares[j] = h->by->dot(n, yj, yj);
    return true;
}

/* Rows shorter than eps times the longest are rounding errors: they are not rotated, and become zeros. */
static double tni_jacobi_noise(int64_t n, const double *squares)
{
    return TNI_EPS * TNI_EPS * tni_largest_of(n, squares);
}

/* Rows from `first` on. */
static tn_status tni_jacobi(const tni_host *h, int64_t first, int64_t n, double *y, double *left, double *squares)
{
    int64_t i, rotations = 1;
    for (int sweep = 0; sweep < TNI_JACOBI_SWEEPS && rotations > 0; sweep++) {
        for (i = 0; i < n; i++) squares[i] = h->by->dot(n, y + i * n, y + i * n);
        double noise = tni_jacobi_noise(n, squares);
        for (rotations = 0, i = first; i < n; i++)
            for (int64_t j = i + 1; j < n && squares[i] > noise; j++)
                if (squares[j] > noise) rotations += tni_jacobi_pair(h, n, y, left, squares, i, j);
    }
    return rotations > 0 ? TN_ERR_CONVERGENCE : TN_OK;
}

/* ---- corrections of nearly orthogonal rows --------------------------------- >>svd-correct
   With G = Y Y^T the rotation exp(K), K_ij = g_ij/(g_ii - g_jj) = -K_ji, makes the rows of Y orthogonal up to squares of K.
   Pairs of a K_ij that is not small, those of nearly equal or small values, are left to Jacobi rotations. The idea is that
   of Ogita & Aishima 2018. */
enum { TNI_CORRECTIONS = 5 };

/* C = A B^T, [n,n], its upper triangle by blocks of rows, with zeros below them. */
static void tni_upper_product(const tni_host *h, int64_t n, int64_t m, tni_mat a, tni_mat b, double *c)
{
    const int64_t height = 4 * TNI_BLOCK;
    memset(c, 0, (size_t)(n * n) * sizeof *c);
    for (int64_t i = 0; i < n; i += height)
        h->by->gemm(h, tni_min(height, n - i), n - i, m, 1, tni_from(a, i, 0), tni_transposed(tni_from(b, i, 0)), 0,
                    tni_rows(c + i * n + i, n));
}

/* K instead of the upper triangle of G, and the sum of its squares. *first: the first row of a pair that is left, or n. */
static double tni_correction(int64_t n, double *g, double *squares, int64_t *first)
{
    double  sum = 0;
    int64_t i;
    for (i = 0; i < n; i++) squares[i] = g[i * n + i];
    double noise = tni_jacobi_noise(n, squares);
    for (*first = n, i = 0; i < n; i++) {
        g[i * n + i] = 0;
        for (int64_t j = i + 1; j < n; j++) {
            double x = g[i * n + j], k = 0;
            if (squares[i] > noise && squares[j] > noise
                && fabs(x) > TNI_EPS * sqrt((double)n) * sqrt(squares[i]) * sqrt(squares[j])) {
                const double gap = squares[i] - squares[j];
                if (fabs(x) <= 1e-7 * fabs(gap)) k = x / gap;
                else *first = tni_min(*first, i);
            }
            g[i * n + j] = k;
            g[j * n + i] = -k;
            sum += 2 * k * k;
        }
    }
    return sum;
}

/* X <- X + K X, or with the next term K^2 X / 2; scratch [2 n,n] */
static void tni_correct(const tni_host *h, int64_t n, double *k, bool twice, double *x, double *scratch)
{
    double *first = scratch, *second = first + n * n;
    h->by->gemm(h, n, n, n, 1, tni_rows(k, n), tni_rows(x, n), 0, tni_rows(first, n));
    if (twice) h->by->gemm(h, n, n, n, 0.5, tni_rows(k, n), tni_rows(first, n), 0, tni_rows(second, n));
    h->by->axpy(n * n, 1, first, x);
    if (twice) h->by->axpy(n * n, 1, second, x);
}

/* Makes the rows of y orthogonal. g [n,n], scratch [2 n,n]. *rotated: rotations were needed, which leave L less exact. */
static tn_status tni_svd_orthogonal(const tni_host *h, int64_t n, double *y, double *left, double *squares, double *g,
                                    double *scratch, bool *rotated)
{
    int64_t first;
    for (int pass = 0; pass < TNI_CORRECTIONS; pass++) {
        tni_upper_product(h, n, n, tni_rows(y, n), tni_rows(y, n), g);
        double sum = tni_correction(n, g, squares, &first);
        if (sum == 0 && first == n) return TN_OK;
        if (sum > 1e-11) break;                              /* the terms that are left out would count */
        if (sum > 0) {
            tni_correct(h, n, g, sum > 1e-17, y, scratch);
            tni_correct(h, n, g, sum > 1e-17, left, scratch);
            if (sum <= 1e-17 && first == n) return TN_OK;    /* what is left is below eps */
        } else {
            tn_status s = tni_jacobi(h, first, n, y, left, squares);
            *rotated = true;
            if (s != TN_OK) return s;
        }
    }
    *rotated = true;
    return tni_jacobi(h, 0, n, y, left, squares);
}

/* Scales the rows of y to unit length, with their lengths in s, in descending order; returns the number of nonzero rows. */
static int64_t tni_svd_lengths(const tni_host *h, int64_t n, double *y, double *left, double *s)
{
    int64_t rank = 0;
    for (int64_t i = 0; i < n; i++) s[i] = sqrt(h->by->dot(n, y + i * n, y + i * n));
    tni_sort_rows(n, s, tni_before_descending, n, y, left);
    for (rank = 0; rank < n && s[rank] > TNI_EPS * s[0]; rank++) h->by->scale(n, 1 / s[rank], y + rank * n);
    for (int64_t i = rank; i < n; i++) s[i] = 0;
    memset(y + rank * n, 0, (size_t)((n - rank) * n) * sizeof *y);
    return rank;
}

/* polished = (3 I - L L^T) L / 2: one step of Newton's iteration squares the distance from an orthogonal matrix. Higham
   2008, chapter 8. If one value is far above all others, about ten sweeps of rotations leave |L L^T - I| / sqrt n at 7e-14
   for n = 300; the step reduces it to 2e-15, in a fiftieth of the time. */
static void tni_svd_polish(const tni_host *h, int64_t n, double *left, double *product, double *polished)
{
    tni_mat l = tni_rows(left, n), p = tni_rows(product, n);
    h->by->gemm(h, n, n, n, 1, l, tni_transposed(l), 0, p);
    memcpy(polished, left, (size_t)(n * n) * sizeof *left);
    h->by->gemm(h, n, n, n, -0.5, p, l, 1.5, tni_rows(polished, n));
}

/* u[m,n], s[n], vt[n,n] of a[m,n], m >= n */
static tn_status tni_svd_tall(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat u, double *s, tni_mat vt,
                              double *work)
{
    double   *q = work, *r = q + m * n, *left = r + n * n, *y = left + n * n, *rest = y + n * n;
    tni_mat   rm = tni_rows(r, n), lm = tni_rows(left, n), ym = tni_rows(y, n);
    bool      rotated = false;
    tn_status status;
#ifdef TN_USE_BLAS
    if (n > 0 && m <= TNI_LAPACK_MOST && n <= TNI_LAPACK_MOST) return tni_lapack_svd(m, n, a, u, s, vt, work);
#endif
    if (n == 0) return TN_OK;
    if (m == n) {                                            /* Q = I */
        if (!(tni_largest(n, n, a) < HUGE_VAL)) return TN_ERR_NONFINITE;
        for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++) r[i * n + j] = a.p[i * a.row + j * a.col];
    } else if ((status = tni_qr(h, m, n, a, tni_rows(q, n), rm, rest)) != TN_OK) return status;
    double scale = tni_unit_scale(tni_largest(n, n, rm));
    h->by->scale(n * n, scale, r);
    tni_upper_product(h, n, n, rm, rm, y);
    if ((status = tni_eigh(h, n, y, s, left, rest)) != TN_OK) return status;
    for (int64_t i = 0; i < n / 2; i++) tni_swap(n, left + i * n, left + (n - 1 - i) * n); /* the largest first */
    h->by->gemm(h, n, n, n, 1, lm, rm, 0, ym);
    if ((status = tni_svd_orthogonal(h, n, y, left, s, r, rest, &rotated)) != TN_OK) return status;
    int64_t rank = tni_svd_lengths(h, n, y, left, s);
    h->by->scale(n, 1 / scale, s);
    if (rotated) tni_svd_polish(h, n, left, r, rest);
    else memcpy(rest, left, (size_t)(n * n) * sizeof *left);
    if (m == n) for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++) u.p[i * u.row + j * u.col] = rest[j * n + i];
    else h->by->gemm(h, m, n, n, 1, tni_rows(q, n), tni_transposed(tni_rows(rest, n)), 0, u);
    if (rank < n) {                                          /* the missing right vectors: any that complete the basis */
        if ((status = tni_qr(h, n, n, tni_transposed(ym), tni_transposed(lm), rm, rest)) != TN_OK) return status;
        memcpy(y + rank * n, left + rank * n, (size_t)((n - rank) * n) * sizeof *y);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) vt.p[i * vt.row + j * vt.col] = y[i * n + j];
    return TN_OK;
}

/* The sign rule: the largest component of each column of u becomes positive. */
TNI_FN void tni_svd_signs(int64_t m, int64_t n, int64_t k, tni_mat u, tni_mat vt)
{
    for (int64_t i = 0; i < k; i++) {
        if (!tni_points_down(m, u.p + i * u.col, u.row)) continue;
        for (int64_t j = 0; j < m; j++) u.p[j * u.row + i * u.col] = -u.p[j * u.row + i * u.col];
        for (int64_t j = 0; j < n; j++) vt.p[i * vt.row + j * vt.col] = -vt.p[i * vt.row + j * vt.col];
    }
}

/* a[m,n] = u[m,k] diag(s) vt[k,n], k = min(m,n), s descending; the largest component of each column of u is
   positive. a is unchanged. TN_ERR_NONFINITE, TN_ERR_CONVERGENCE. */
TNI_FN tn_status tni_svd(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat u, double *s, tni_mat vt, double *work)
{
    tn_status status = m >= n ? tni_svd_tall(h, m, n, a, u, s, vt, work)
                              : tni_svd_tall(h, n, m, tni_transposed(a), tni_transposed(vt), s, tni_transposed(u), work);
    if (status == TN_OK) tni_svd_signs(m, n, tni_min(m, n), u, vt);
    return status;
}

/* ---- some singular values ---------------------------------------------- >>svd-some
   A is [m,n] with m >= n, else its transposed is taken. Two ways to a space that holds the vectors wanted:
   - the eigenvectors V of A^T A of the largest values, by Lanczos; then A V = U diag(s) W is the SVD of a narrow matrix,
     and A = U diag(s) (W V^T) on that space. So s does not suffer from the squares in A^T A.
   - Q, a basis of [A X, (A A^T) A X, (A A^T)^2 A X, ..] with random X; then the SVD of Q^T A. Musco & Musco 2015 */

TNI_FN tn_status tni_few_times(void *user, int64_t count, const double *x, double *y)
{
    const tni_few  *f = (const tni_few *)user;
    const tni_host *h = f->host;
    h->by->gemm(h, count, f->m, f->n, 1, tni_rows((double *)x, f->n), tni_transposed(f->a), 0, tni_rows(f->product, f->m));
    h->by->gemm(h, count, f->n, f->m, 1, tni_rows(f->product, f->m), f->a, 0, tni_rows(y, f->n));
    return TN_OK;
}

/* u [m,k], s [k], vt [k,n] */
TNI_FN tn_status tni_few_krylov(tni_scratch *w, tni_few *f, tni_mat u, double *s, tni_mat vt)
{
    const tni_host *h = f->host;
    const int64_t   m = f->m, n = f->n, k = f->k;
    double         *work = tni_take_f64(w, tni_lanczos_work(&f->lanczos), 1), *rest = tni_take_f64(w, tni_svd_work(m, k), 1);
    double         *lefts = tni_take_f64(w, m, k), *turn = tni_take_f64(w, k, k);
    tn_status       status;
    f->product = tni_take_f64(w, f->width, m);
    if (w->failed) return TN_ERR_MEMORY;
    tni_lanczos_lay(&f->lanczos, work);
    if ((status = tni_lanczos(&f->lanczos)) != TN_OK) return status;
    h->by->gemm(h, m, k, n, 1, f->a, tni_transposed(tni_rows(f->lanczos.v, n)), 0, tni_rows(lefts, k));
    if ((status = tni_svd(h, m, k, tni_rows(lefts, k), u, s, tni_rows(turn, k), rest)) != TN_OK) return status;
    h->by->gemm(h, k, n, k, 1, tni_rows(turn, k), tni_rows(f->lanczos.v, n), 0, vt);
    return TN_OK;
}

TNI_FN tn_status tni_few_random(tni_scratch *scratch, tni_few *f, tni_mat u, double *s, tni_mat vt)
{
    const tni_host *h = f->host;
    const int64_t   m = f->m, n = f->n, k = f->k, width = f->width;
    double   *basis = tni_take_f64(scratch, k, m), *q = tni_take_f64(scratch, k, m), *b = tni_take_f64(scratch, k, n);
    double   *r = tni_take_f64(scratch, k, k), *ub = tni_take_f64(scratch, k, k), *x = tni_take_f64(scratch, width, n);
    double   *rest = tni_take_f64(scratch, tni_max(tni_qr_work(m, k), tni_svd_work(k, n)), 1);
    int64_t   w;
    tn_status status;
    f->product = tni_take_f64(scratch, width, m);
    if (scratch->failed) return TN_ERR_MEMORY;
    tni_random_signed(f->seed, 0, 0, width * n, x);
    for (int64_t have = 0; have < k; have += w) {            /* blocks as rows; each is made orthonormal for the next one */
        w = tni_min(width, k - have);
        h->by->gemm(h, w, m, n, 1, tni_rows(x, n), tni_transposed(f->a), 0, tni_rows(basis + have * m, m));
        status = tni_qr(h, m, w, tni_transposed(tni_rows(basis + have * m, m)), tni_transposed(tni_rows(basis + have * m, m)),
                        tni_rows(r, w), rest);
        if (status != TN_OK) return status;
        h->by->gemm(h, w, n, m, 1, tni_rows(basis + have * m, m), f->a, 0, tni_rows(x, n));
    }
    status = tni_qr(h, m, k, tni_transposed(tni_rows(basis, m)), tni_rows(q, k), tni_rows(r, k), rest);
    if (status != TN_OK) return status;
    h->by->gemm(h, k, n, m, 1, tni_transposed(tni_rows(q, k)), f->a, 0, tni_rows(b, n));
    if ((status = tni_svd(h, k, n, tni_rows(b, n), tni_rows(ub, k), s, vt, rest)) != TN_OK) return status;
    h->by->gemm(h, m, k, k, 1, tni_rows(q, k), tni_rows(ub, k), 0, u);
    return TN_OK;
}

/* |A^T u_i - s_i v_i| of the first `top`: the root of the sum of squares, and the largest. a [m,n], rest [top,n] */
TNI_FN double tni_few_residual(const tni_host *h, int64_t m, int64_t n, int64_t top, tni_mat a, tni_mat u, const double *s,
                               tni_mat vt, double *rest, double *largest)
{
    int64_t i;
    h->by->gemm(h, top, n, m, 1, tni_transposed(u), a, 0, tni_rows(rest, n));
    for (*largest = 0, i = 0; i < top; i++) {
        for (int64_t j = 0; j < n; j++) rest[i * n + j] -= s[i] * vt.p[i * vt.row + j * vt.col];
        *largest = tni_max_f64(*largest, tni_frobenius(n, rest + i * n));
    }
    return tni_frobenius(top * n, rest);
}

#endif /* TN_NO_OPERATOR */
