#include "core/inner.h"
#include "cpu/inner.h"
#include "kernels/inner.h"
#include "context/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ======================================================================
   >>decomp-impl   QR, symmetric eigenproblem, SVD, Lanczos, on the host
   Pure functions on plain arrays of doubles: they take their workspace from the caller and use no context, so
   that several may run at once. Each tni_X has a tni_X_work, the number of doubles that it needs.
   The source is Golub & Van Loan 2013 [GVL]; names in brackets are the corresponding routines of LAPACK.
   ====================================================================== */

/* ---- host algebra ------------------------------------------ >>host-algebra
   The inner loops are those of a tni_host, at the SIMD level of the context. */

TNI_FN int64_t tni_host_work(int64_t extent) { return 2 * tni_host_block(extent) + TNI_ALIGN / 8; }

TNI_FN tni_host tni_host_of(tn_simd level, const tni_pool *pool, int64_t extent, double *work)
{
    tni_host h;
    h.by = tni_algebra_of(level);
    h.pool = pool;
    h.blocks = (char *)tni_aligned(work);
    h.bytes = tni_host_block(extent) * 8;
    return h;
}

TNI_FN void tni_swap(int64_t n, double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) { double t = x[i]; x[i] = y[i]; y[i] = t; }
}

TNI_FN void tni_unit_matrix(int64_t n, double *x)
{
    memset(x, 0, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i * (n + 1)] = 1;
}

/* The first r columns of x [m,k] become y [m,r], which may be x. */
TNI_FN void tni_keep_columns(int64_t m, int64_t k, int64_t r, const double *x, double *y)
{
    for (int64_t i = 0; i < m; i++) memmove(y + i * r, x + i * k, (size_t)r * sizeof *y);
}

/* The largest magnitude; infinity if an element is NaN. */
TNI_FN double tni_largest(int64_t m, int64_t n, tni_mat a)
{
    double largest = 0;
    for (int64_t i = 0; i < m && n > 0; i++)
        for (int64_t j = 0; j < n; j++) {
            double x = fabs(a.p[i * a.row + j * a.col]);
            if (!(x <= largest)) largest = x <= HUGE_VAL ? x : HUGE_VAL;
        }
    return largest;
}

TNI_FN double tni_largest_of(int64_t n, const double *x)
{
    return tni_largest(1, n, tni_rows((double *)x, n));
}

/* A power of two that scales a matrix with this largest element to about one, so that squares neither underflow nor
   overflow; its inverse is exact, too. */
TNI_FN double tni_unit_scale(double largest)
{
    int exponent = 0;
    frexp(largest, &exponent);
    return ldexp(1.0, (int)tni_max(-1000, tni_min(1000, -exponent)));
}

TNI_FN int tni_exponent(double power)                        /* of a power of two */
{
    int exponent;
    frexp(power, &exponent);
    return exponent - 1;
}

TNI_FN double tni_frobenius(int64_t n, const double *x)
{
    double scale = tni_unit_scale(tni_largest_of(n, x)), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] * scale) * (x[i] * scale);
    return sqrt(sum) / scale;
}

/* Uniform numbers in (-1,1), a function of seed, call and clock. */
TNI_FN void tni_random_signed(uint64_t seed, int64_t call, uint32_t clock, int64_t n, double *x)
{
    uint32_t word[4] = {0, 0, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0) tni_random_words(seed, call, clock, (uint64_t)i / 4, word);
        x[i] = 2 * (double)tni_unit(word[i % 4]) - 1;
    }
}

TNI_FN void tni_sort_rows(int64_t n, double *values, bool (*before)(double, double), int64_t cols, double *rows,
                          double *more_rows)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t first = i;
        for (int64_t j = i + 1; j < n; j++)
            if (before(values[j], values[first])) first = j;
        if (first == i) continue;
        tni_swap(1, values + i, values + first);
        if (rows) tni_swap(cols, rows + i * cols, rows + first * cols);
        if (more_rows) tni_swap(cols, more_rows + i * cols, more_rows + first * cols);
    }
}

/* The sign rule: is the component of largest magnitude (the first of equal ones) negative? */
TNI_FN bool tni_points_down(int64_t n, const double *x, int64_t stride)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs(x[i * stride]) > fabs(largest)) largest = x[i * stride];
    return largest < 0;
}

TNI_FN void tni_up(const tni_host *h, int64_t n, double *x)
{
    if (tni_points_down(n, x, 1)) h->by->scale(n, -1, x);
}

/* ---- reflections -------------------------------------------- >>reflections
   H = I - tau v v^T, v[0] = 1, tau = 2/|v|^2.   [GVL 5.1] [dlarfg]
   A product of them is one block, H_0 H_1 .. H_(w-1) = I - V T V^T with T upper triangular:
       T[i][i] = tau_i      T[:i,i] = -tau_i T[:i,:i] (V^T v_i)[:i]
   Schreiber & Van Loan 1989. [dlarft, dlarfb] */

/* Replaces x by the v whose H takes x to (beta,0,..,0), and returns beta. tau == 0 means H = I. If squares could
   underflow, x is scaled first. */
TNI_FN double tni_reflector(const tni_host *h, int64_t n, double *x, double *tau)
{
    double alpha = x[0], squares = h->by->dot(n - 1, x + 1, x + 1), scale = 1;
    x[0] = 1;
    *tau = 0;
    if (squares < 1e-250) {
        double size = tni_largest_of(n - 1, x + 1);
        if (size == 0) return alpha;
        scale = tni_unit_scale(fmax(size, fabs(alpha)));
        h->by->scale(n - 1, scale, x + 1);
        squares = h->by->dot(n - 1, x + 1, x + 1);
        alpha *= scale;
    }
    double beta = -copysign(sqrt(alpha * alpha + squares), alpha);
    h->by->scale(n - 1, 1 / (alpha - beta), x + 1);
    *tau = (beta - alpha) / beta;
    return beta / scale;
}

TNI_FN void tni_block_factor(const tni_host *h, int64_t m, int64_t w, tni_mat v, const double *tau, double *gram, double *t)
{
    h->by->gemm(h, w, w, m, 1, tni_transposed(v), v, 0, tni_rows(gram, w));
    memset(t, 0, (size_t)(w * w) * sizeof *t);
    for (int64_t i = 0; i < w; i++) {
        t[i * w + i] = tau[i];
        for (int64_t j = 0; j < i; j++) t[j * w + i] = -tau[i] * h->by->dot(i - j, t + j * w + j, gram + i * w + j);
    }
}

TNI_FN int64_t tni_reflect_work(int64_t m, int64_t n, int64_t most) { return most * (2 * most + m + n); }

/* C[m,n] = (I - V T V^T) C, or its transposed times C; V is [m,w]. V^T C is stored in the same order as C. */
TNI_FN void tni_reflect(const tni_host *h, int64_t m, int64_t n, int64_t w, tni_mat v, const double *tau, bool transposed,
                        tni_mat c, double *work)
{
    double *gram = work, *t = gram + w * w, *vt = t + w * w, *product = vt + w * m;
    tni_mat vtc = c.col == 1 ? tni_rows(product, n) : tni_mat_of(product, 1, w);
    if (n == 0) return;
    tni_block_factor(h, m, w, v, tau, gram, t);
    h->by->gemm(h, w, m, w, -1, transposed ? tni_rows(t, w) : tni_transposed(tni_rows(t, w)), tni_transposed(v), 0,
                tni_rows(vt, m));
    h->by->gemm(h, w, n, m, 1, tni_transposed(v), c, 0, vtc);
    h->by->gemm(h, m, n, w, 1, tni_transposed(tni_rows(vt, m)), vtc, 1, c);
}

#endif /* TN_NO_OPERATOR */
