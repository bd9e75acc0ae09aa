#include "core/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- eigenpairs of any square matrix ------------------------------------ >>eig
   B = D^-1 A D, with D of powers of two that make rows and columns about equally long (balancing); B = Q H Q^T, H zero
   below its first subdiagonal, by reflections in blocks; H = Z T Z^T by implicit QR steps with two shifts, T with blocks of
   one or two rows on its diagonal, the eigenvalues; then vectors of T by substitution, and from them those of A.
   [GVL 7.4, 7.5, 7.6] Osborne 1960, Francis 1961, Quintana-Orti & van de Geijn 2006. [dgeev] */

static tni_complex tni_minus(tni_complex a, tni_complex b) { return tni_complex_of(a.re - b.re, a.im - b.im); }
static double      tni_size(tni_complex a)                 { return fabs(a.re) + fabs(a.im); }
static tni_complex tni_over(tni_complex a, tni_complex b)
{
    if (b.im == 0) return tni_complex_of(a.re / b.re, a.im / b.re);
    if (fabs(b.re) >= fabs(b.im)) {
        double r = b.im / b.re, d = b.re + b.im * r;
        return tni_complex_of((a.re + a.im * r) / d, (a.im - a.re * r) / d);
    } else {
        double r = b.re / b.im, d = b.re * r + b.im;
        return tni_complex_of((a.re * r + a.im) / d, (a.im * r - a.re) / d);
    }
}

/* Scales rows and columns, without their diagonal elements, to about equal lengths: A becomes D^-1 A D. */
enum { TNI_BALANCE_SWEEPS = 20, TNI_BALANCE_MOST = 400 };     /* and the largest exponent of D */

static void tni_balance(const tni_host *h, int64_t n, double *a, double *d)
{
    int64_t i;
    bool    again = true;
    for (i = 0; i < n; i++) d[i] = 1;
    for (int sweep = 0; sweep < TNI_BALANCE_SWEEPS && again; sweep++)
        for (again = false, i = 0; i < n; i++) {
            double row = 0, column = 0;
            int    exponent, total;
            for (int64_t j = 0; j < n; j++)
                if (j != i) { row += fabs(a[i * n + j]); column += fabs(a[j * n + i]); }
            if (!(row > 0 && column > 0)) continue;
            if (frexp(sqrt(row) / sqrt(column), &exponent) < 0.7) exponent--;
            double f = ldexp(1, exponent);
            frexp(d[i] * f, &total);
            if (exponent == 0 || total > TNI_BALANCE_MOST || total < -TNI_BALANCE_MOST) continue;
            if (column * f + row / f >= 0.95 * (column + row)) continue;
            again = true;
            d[i] *= f;
            h->by->scale(n, 1 / f, a + i * n);
            for (int64_t j = 0; j < n; j++) a[j * n + i] *= f;
        }
}

/* ---- to Hessenberg form ----------------------------------------------------- >>eig-hessenberg
   Row k of vs is the reflector that clears column k below the subdiagonal; it has zeros up to k. In a panel of w columns
   from `first` the matrix is A (I - V T V^T), of which only the current column is computed; Y = A V T. The rows of ys and
   vs are columns of Y and V. */
static int64_t tni_hessenberg_work(int64_t n)
{
    return TNI_BLOCK * (n + TNI_BLOCK) + n + tni_max(TNI_BLOCK * n, tni_reflect_work(n, n, TNI_BLOCK));
}

/* y -= M^T x, of M [count,n], from row `from` on */
static void tni_hessenberg_clear(const tni_host *h, int64_t count, int64_t n, int64_t from, const double *m, const double *x,
                                 double *y)
{
    for (int64_t i = 0; i < count; i++) h->by->axpy(n - from, -x[i], m + i * n + from, y + from);
}

static void tni_hessenberg_panel(const tni_host *h, int64_t n, int64_t first, int64_t w, double *a, double *vs, double *tau,
                                 double *ys, double *t, double *column)
{
    const int64_t top = first + 1;
    int64_t       l;
    for (int64_t c = first, j = 0; j < w; c++, j++) {
        double *v = vs + c * n, *y = ys + j * n, product[TNI_BLOCK], times_t[TNI_BLOCK];
        for (int64_t i = top; i < n; i++) column[i] = a[i * n + c];
        for (int64_t i = 0; i < j; i++) product[i] = vs[(first + i) * n + c]; /* the row c of V */
        tni_hessenberg_clear(h, j, n, top, ys, product, column);
        for (int64_t i = 0; i < j; i++) product[i] = h->by->dot(n - top, vs + (first + i) * n + top, column + top);
        for (int64_t i = 0; i < j; i++)                                      /* T^T V^T column */
            for (times_t[i] = 0, l = 0; l <= i; l++) times_t[i] += t[l * TNI_BLOCK + i] * product[l];
        tni_hessenberg_clear(h, j, n, top, vs + first * n, times_t, column);
        memset(v, 0, (size_t)n * sizeof *v);
        memcpy(v + c + 1, column + c + 1, (size_t)(n - c - 1) * sizeof *v);
        double beta = tni_reflector(h, n - c - 1, v + c + 1, tau + c);
        for (int64_t i = top; i <= c; i++) a[i * n + c] = column[i];
        a[(c + 1) * n + c] = beta;
        for (int64_t i = c + 2; i < n; i++) a[i * n + c] = 0;
        for (int64_t i = 0; i < j; i++) product[i] = h->by->dot(n - c - 1, vs + (first + i) * n + c + 1, v + c + 1);
        h->by->gemm(h, n - top, 1, n - c - 1, 1, tni_rows(a + top * n + c + 1, n), tni_rows(v + c + 1, 1), 0,
                    tni_rows(y + top, 1));
        tni_hessenberg_clear(h, j, n, top, ys, product, y);
        h->by->scale(n - top, tau[c], y + top);
        for (int64_t i = 0; i < j; i++)
            for (times_t[i] = 0, l = i; l < j; l++) times_t[i] += t[i * TNI_BLOCK + l] * product[l];
        for (int64_t i = 0; i < j; i++) t[i * TNI_BLOCK + j] = -tau[c] * times_t[i];
        t[j * TNI_BLOCK + j] = tau[c];
    }
}

static void tni_hessenberg(const tni_host *h, int64_t n, double *a, double *vs, double *tau, double *work)
{
    double *ys = work, *t = ys + TNI_BLOCK * n, *column = t + TNI_BLOCK * TNI_BLOCK, *rest = column + n, *vt = rest;
    int64_t next, j;
    for (int64_t first = 0; first < n - 2; first = next) {
        int64_t w = tni_min(TNI_BLOCK, n - 2 - first);
        next = first + w;
        tni_hessenberg_panel(h, n, first, w, a, vs, tau, ys, t, column);
        for (int64_t i = 0; i < w; i++)                      /* V T, for the rows of Y above the panel */
            for (memset(vt + i * n, 0, (size_t)n * sizeof *vt), j = 0; j <= i; j++)
                h->by->axpy(n, t[j * TNI_BLOCK + i], vs + (first + j) * n, vt + i * n);
        h->by->gemm(h, w, first + 1, n - first - 1, 1, tni_rows(vt + first + 1, n),
                    tni_transposed(tni_rows(a + first + 1, n)), 0, tni_rows(ys, n));
        h->by->gemm(h, n, n - next, w, -1, tni_transposed(tni_rows(ys, n)), tni_rows(vs + first * n + next, n), 1,
                    tni_rows(a + next, n));
        if (w > 1)
            h->by->gemm(h, first + 1, w - 1, w, -1, tni_transposed(tni_rows(ys, n)), tni_rows(vs + first * n + first + 1, n), 1,
                        tni_rows(a + first + 1, n));
        tni_reflect(h, n - first - 1, n - next, w, tni_mat_of(vs + first * n + first + 1, 1, n), tau + first, true,
                    tni_rows(a + (first + 1) * n + next, n), rest);
    }
}

/* ---- QR steps ---------------------------------------------------------------- >>eig-schur */
typedef struct tni_schur {
    const tni_host *host;
    int64_t n;
    double *t, *z;                               /* [n,n] each; the rows of z are Schur vectors, or NULL: values only */
    double *re, *im;                             /* [n]                                                               */
} tni_schur;

/* Rows and columns k.. of T, and rows of Z, by a reflection of three (or, if v2 is 0, two) of them; columns from `left`,
   rows up to `below`. */
static void tni_schur_reflect(const tni_schur *s, int64_t k, bool three, double tau, double v1, double v2, int64_t left,
                              int64_t lo, int64_t hi, int64_t below)
{
    const int64_t n = s->n, first = s->z ? 0 : lo, end = s->z ? n : hi + 1;
    double *row = s->t + k * n, spare = 0, *x;
    if (three) s->host->by->reflect3(end - left, tau, v1, v2, row + left, row + n + left, row + 2 * n + left);
    else
        for (int64_t i = left; i < end; i++) {
            double sum = tau * (row[i] + v1 * row[n + i]);
            row[i] -= sum;
            row[n + i] -= sum * v1;
        }
    for (int64_t i = first; i <= below; i++) {
        x = s->t + i * n + k;
        double *third = three ? x + 2 : &spare;
        double  sum = tau * (x[0] + v1 * x[1] + v2 * *third);
        x[0] -= sum;
        x[1] -= sum * v1;
        *third -= sum * v2;
    }
    if (!s->z) return;
    x = s->z + k * n;
    if (three) s->host->by->reflect3(n, tau, v1, v2, x, x + n, x + 2 * n);
    else
        for (int64_t i = 0; i < n; i++) {
            double sum = tau * (x[i] + v1 * x[n + i]);
            x[i] -= sum;
            x[n + i] -= sum * v1;
        }
}

/* The reflection of rows and columns k.. (three, or two at the end) that takes v, or if v is NULL what column k - 1 has
   below its diagonal, to one element. Returns tau. */
static double tni_schur_move(const tni_schur *s, int64_t k, int64_t lo, int64_t hi, double *v)
{
    const int64_t n = s->n;
    const bool    three = k < hi - 1;
    double       *column = s->t + k * n + k - 1, own[3] = {0, 0, 0}, tau;
    if (!v) {
        own[0] = column[0]; own[1] = column[n]; own[2] = three ? column[2 * n] : 0;
        double beta = tni_reflector(s->host, three ? 3 : 2, own, &tau);
        column[0] = beta; column[n] = 0;
        if (three) column[2 * n] = 0;
        v = own;
    } else tni_reflector(s->host, 3, v, &tau);
    if (tau != 0) tni_schur_reflect(s, k, three, tau, v[1], three ? v[2] : 0, k, lo, hi, tni_min(k + 3, hi));
    return tau;
}

/* v, up to a factor: the first column of (T - s1)(T - s2) of rows m.., with the shifts middle +- sqrt(root), a root that may
   be negative. */
static void tni_schur_start(const tni_schur *s, int64_t m, double middle, double root, double *v)
{
    const double *d = s->t + m * s->n + m, x = d[0] - middle, y = d[s->n + 1] - middle;
    v[0] = (x * x - root) + d[s->n] * d[1];
    v[1] = d[s->n] * (x + y);
    v[2] = d[s->n] * d[2 * s->n + 1];
    double size = fabs(v[0]) + fabs(v[1]) + fabs(v[2]);
    for (int i = 0; i < 3 && size > 0; i++) v[i] /= size;
}

/* One implicit step with two shifts on rows lo..hi, at least three of them. It may begin at a row m > lo, where two small
   subdiagonals make it possible. */
static void tni_schur_step(const tni_schur *s, int64_t lo, int64_t hi, double middle, double root)
{
    const int64_t n = s->n;
    double  v[3];
    int64_t m;
    for (m = hi - 2;; m--) {
        const double *d = s->t + m * n + m;
        tni_schur_start(s, m, middle, root, v);
        if (m == lo) break;
        if (fabs(d[-1]) * (fabs(v[1]) + fabs(v[2]))
            <= TNI_EPS * fabs(v[0]) * (fabs(d[-n - 1]) + fabs(d[0]) + fabs(d[n + 1]))) break;
    }
    double tau = tni_schur_move(s, m, lo, hi, v);
    if (m > lo) s->t[m * n + m - 1] *= 1 - tau;
    for (int64_t k = m + 1; k < hi; k++) tni_schur_move(s, k, lo, hi, NULL);
}

/* The block of rows k, k+1 by a rotation to standard form: upper triangular, or two equal diagonal elements and
   off-diagonals of opposite signs; and its eigenvalues. */
static void tni_schur_pair(const tni_schur *s, int64_t k)
{
    const int64_t n = s->n;
    double *x = s->t + k * n + k, *y = x + n;
    for (int pass = 0; pass < 2 && y[0] != 0; pass++) {
        double a = x[0], b = x[1], c = y[0], d = y[1], cosine, sine;
        double p = 0.5 * (a - d);
        double scale = fmax(fabs(p), fmax(fabs(b), fabs(c)));
        double z = (p / scale) * p + (b / scale) * c;        /* the discriminant, over scale */
        bool   real = z >= 0;
        if (real) {                                          /* (z,c) is the eigenvector of d + z */
            z = p + copysign(sqrt(scale) * sqrt(z), p);
            double length = hypot(z, c);
            cosine = z / length;
            sine = c / length;
        } else {
            double both = b + c;
            if (p == 0) break;
            double length = hypot(both, 2 * p);
            cosine = sqrt(0.5 * (1 + fabs(both) / length));
            sine = -p / (length * cosine) * (both < 0 ? -1 : 1);
        }
        for (int64_t i = s->z ? 0 : k; i < k + 2; i++) {     /* columns */
            double *e = s->t + i * n + k, t = e[0];
            e[0] = cosine * t + sine * e[1];
            e[1] = cosine * e[1] - sine * t;
        }
        s->host->by->rotate((s->z ? n : k + 2) - k, cosine, -sine, x, y);
        if (s->z) s->host->by->rotate(n, cosine, -sine, s->z + k * n, s->z + (k + 1) * n);
        if (real) { y[0] = 0; break; }
        x[0] = y[1] = 0.5 * (x[0] + y[1]);
        if ((x[1] > 0) != (y[0] > 0)) break;                 /* else rounding errors made the values real */
    }
    s->re[k] = x[0];
    s->re[k + 1] = y[1];
    s->im[k] = y[0] == 0 ? 0 : sqrt(fabs(x[1])) * sqrt(fabs(y[0]));
    s->im[k + 1] = -s->im[k];
}

/* The first row of the last unreduced block that ends at hi; negligible subdiagonals become zero. Besides the test that is
   relative to the neighbours, that of Ahues & Tisseur 1997. */
static int64_t tni_schur_split(const tni_schur *s, int64_t hi, double norm)
{
    const int64_t n = s->n;
    int64_t l;
    for (l = hi; l > 0; l--) {
        double *d = s->t + l * n + l, e = fabs(d[-1]), above = d[-n - 1], here = d[0], sum = fabs(above) + fabs(here);
        if (sum == 0) sum = norm;
        if (e <= TNI_EPS * TNI_EPS * norm) { d[-1] = 0; break; }
        if (e <= TNI_EPS * sum) {
            double other = fabs(d[-n]), larger = fmax(e, other), smaller = fmin(e, other), gap = fabs(above - here);
            double most = fmax(fabs(here), gap), least = fmin(fabs(here), gap), all = most + larger;
            double limit = fmax(TNI_EPS * TNI_EPS * norm, TNI_EPS * (least * (most / all)));
            if (smaller * (larger / all) <= limit) { d[-1] = 0; break; }
        }
    }
    return l;
}

enum { TNI_SCHUR_STEPS = 60 };                   /* per eigenvalue; two are usual */

/* By steps with two shifts. */
static tn_status tni_schur_small(const tni_schur *s)
{
    const int64_t n = s->n;
    const double  norm = tni_frobenius(n * n, s->t);
    int     step = 0;
    for (int64_t hi = n - 1; hi >= 0;) {
        double *d = s->t + hi * n + hi;
        int64_t lo = tni_schur_split(s, hi, norm);
        if (lo >= hi - 1) {
            s->re[hi] = d[0];
            s->im[hi] = 0;
            if (lo == hi - 1) tni_schur_pair(s, lo);
            hi = lo - 1;
            step = 0;
            continue;
        }
        if (step++ == TNI_SCHUR_STEPS) return TN_ERR_CONVERGENCE;
        double middle = 0.5 * (d[-n - 1] + d[0]), half = 0.5 * (d[-n - 1] - d[0]);
        double root = half * half + d[-n] * d[-1];
        if (root >= 0) {                                     /* the real shift that is nearer to the corner, twice */
            middle += copysign(sqrt(root), -half);
            root = 0;
        }
        if (step % 10 == 0) {                                /* a cycle: any other shifts */
            double e = fabs(d[-1]) + fabs(d[-n - 2]);
            middle = d[0] + 0.75 * e;
            root = -0.4375 * e * e;
        }
        tni_schur_step(s, lo, hi, middle, root);
    }
    return TN_OK;
}

/* ---- many shifts at a time ------------------------------------------------------ >>eig-shifts
   m steps follow each other three rows apart, with 2 m eigenvalues of the last 2 m rows as shifts. Together they are moved
   by TNI_SCHUR_SLIDE rows inside of a window, a copy of a diagonal block, whose reflections, multiplied, then reach the rest
   of T and Z by matrix products. A block that is left with few rows is a window of its own. Braman, Byers & Mathias 2002,
   without their early deflation. [dlaqr5] */
enum {
    TNI_SCHUR_PAIRS = 12, TNI_SCHUR_SLIDE = 3 * TNI_SCHUR_PAIRS,
    TNI_SCHUR_WINDOW = TNI_SCHUR_SLIDE + 3 * TNI_SCHUR_PAIRS + 5     /* the largest window */
};

static int64_t tni_schur_work(int64_t n) { return 2 * TNI_SCHUR_WINDOW * TNI_SCHUR_WINDOW + TNI_SCHUR_WINDOW * (n + 2); }

/* A copy of rows and columns from .. from+w-1, and a unit matrix as its z. */
static tni_schur tni_schur_open(const tni_schur *s, int64_t from, int64_t w, double *work)
{
    tni_schur in;
    in.host = s->host; in.n = w; in.t = work; in.z = in.t + w * w;
    in.re = in.z + w * w; in.im = in.re + w;
    tni_unit_matrix(w, in.z);
    for (int64_t i = 0; i < w; i++) memcpy(in.t + i * w, s->t + (from + i) * s->n + from, (size_t)w * sizeof *in.t);
    return in;
}

/* Puts the window back and applies its z to the rest; lo..hi is the block that is left if only values are wanted. */
static void tni_schur_close(const tni_schur *s, const tni_schur *in, int64_t from, int64_t lo, int64_t hi)
{
    const tni_host *h = s->host;
    const int64_t   n = s->n, w = in->n, first = s->z ? 0 : lo, next = from + w, end = s->z ? n : hi + 1;
    double *scratch = in->im + w;
    tni_mat z = tni_rows(in->z, w);
    for (int64_t i = 0; i < w; i++) memcpy(s->t + (from + i) * n + from, in->t + i * w, (size_t)w * sizeof *in->t);
    if (end > next) {
        h->by->gemm(h, w, end - next, w, 1, z, tni_rows(s->t + from * n + next, n), 0, tni_rows(scratch, n));
        for (int64_t i = 0; i < w; i++)
            memcpy(s->t + (from + i) * n + next, scratch + i * n, (size_t)(end - next) * sizeof *scratch);
    }
    if (from > first) {
        h->by->gemm(h, from - first, w, w, 1, tni_rows(s->t + first * n + from, n), tni_transposed(z), 0, tni_rows(scratch, w));
        for (int64_t i = first; i < from; i++)
            memcpy(s->t + i * n + from, scratch + (i - first) * w, (size_t)w * sizeof *scratch);
    }
    if (!s->z) return;
    h->by->gemm(h, w, n, w, 1, z, tni_rows(s->z + from * n, n), 0, tni_rows(scratch, n));
    memcpy(s->z + from * n, scratch, (size_t)(w * n) * sizeof *scratch);
}

/* The shifts, as middle and root of TNI_SCHUR_PAIRS pairs: conjugate ones, and real ones by two. */
static tn_status tni_schur_shifts(const tni_schur *s, int64_t hi, double *middle, double *root, double *work)
{
    const int64_t rows = 2 * TNI_SCHUR_PAIRS;
    tni_schur in = tni_schur_open(s, hi + 1 - rows, rows, work);
    double    real = 0;
    bool      held = false;
    int64_t   count = 0;
    tn_status status;
    in.z = NULL;
    if ((status = tni_schur_small(&in)) != TN_OK) return status;
    for (int64_t i = rows; i-- > 0;) {
        if (in.im[i] < 0) { middle[count] = in.re[i]; root[count++] = -in.im[i] * in.im[i]; }
        if (in.im[i] != 0) continue;
        if (held) {
            middle[count] = 0.5 * (in.re[i] + real);
            root[count++] = 0.25 * (in.re[i] - real) * (in.re[i] - real);
        }
        real = in.re[i];
        held = !held;
    }
    return TN_OK;
}

static void tni_schur_sweep(const tni_schur *s, int64_t lo, int64_t hi, const double *middle, const double *root,
                            double *work)
{
    const int64_t last = 3 * (TNI_SCHUR_PAIRS - 1);          /* step i is at row lo + time - 3 i */
    for (int64_t time = 0; time <= hi - 1 - lo + last; time += TNI_SCHUR_SLIDE) {
        const int64_t from = tni_max(lo, lo + time - last - 1), end = tni_min(hi + 1, lo + time + TNI_SCHUR_SLIDE + 3);
        tni_schur in = tni_schur_open(s, from, end - from, work);
        for (int64_t t = time; t < time + TNI_SCHUR_SLIDE; t++)
            for (int64_t i = 0; i < TNI_SCHUR_PAIRS; i++) {
                const int64_t k = lo + t - 3 * i;
                double v[3];
                if (k < lo || k >= hi) continue;
                if (k == lo) tni_schur_start(&in, 0, middle[i], root[i], v);
                tni_schur_move(&in, k - from, 0, hi - from, k == lo ? v : NULL);
            }
        tni_schur_close(s, &in, from, lo, hi);
    }
}

static tn_status tni_schur_run(const tni_schur *s, double *work)
{
    double    middle[TNI_SCHUR_PAIRS], root[TNI_SCHUR_PAIRS];
    int       sweep = 0;
    tn_status status;
    if (s->n <= TNI_SCHUR_WINDOW) return tni_schur_small(s);
    double norm = tni_frobenius(s->n * s->n, s->t);
    for (int64_t hi = s->n - 1; hi >= 0;) {
        int64_t lo = tni_schur_split(s, hi, norm);
        if (hi - lo < TNI_SCHUR_WINDOW) {
            tni_schur in = tni_schur_open(s, lo, hi + 1 - lo, work);
            if ((status = tni_schur_small(&in)) != TN_OK) return status;
            memcpy(s->re + lo, in.re, (size_t)in.n * sizeof *in.re);
            memcpy(s->im + lo, in.im, (size_t)in.n * sizeof *in.im);
            tni_schur_close(s, &in, lo, lo, hi);
            hi = lo - 1;
            sweep = 0;
            continue;
        }
        if (sweep++ == TNI_SCHUR_STEPS) return TN_ERR_CONVERGENCE;
        if ((status = tni_schur_shifts(s, hi, middle, root, work)) != TN_OK) return status;
        if (sweep % 10 == 0)                                 /* a cycle: any other shifts */
            for (int64_t i = 0; i < TNI_SCHUR_PAIRS; i++) middle[i] += 0.75 * fabs(s->t[(hi - i) * s->n + hi - i - 1]);
        tni_schur_sweep(s, lo, hi, middle, root, work);
    }
    return TN_OK;
}

/* ---- vectors of T --------------------------------------------------------------- >>eig-substitute */
/* The solution x of [a b; c d] x = r, by elimination from the larger of a and c; pivots below `least` become `least`. */
static void tni_solve_two(tni_complex a, double b, double c, tni_complex d, tni_complex *r, double least)
{
    tni_complex bc = tni_complex_of(b, 0), cc = tni_complex_of(c, 0);
    if (tni_size(cc) > tni_size(a)) {
        tni_complex t = a; a = cc; cc = t;
        t = bc; bc = d; d = t;
        t = r[0]; r[0] = r[1]; r[1] = t;
    }
    if (tni_size(a) < least) a = tni_complex_of(least, 0);
    tni_complex f = tni_over(cc, a);
    tni_complex last = tni_minus(d, tni_times(f, bc));
    if (tni_size(last) < least) last = tni_complex_of(least, 0);
    r[1] = tni_over(tni_minus(r[1], tni_times(f, r[0])), last);
    r[0] = tni_over(tni_minus(r[0], tni_times(bc, r[1])), a);
}

/* The eigenvector x [n] (imaginary parts y) of the quasi-triangular T of the value at rows j (and j+1, if im > 0), up to a
   factor. If its components grow beyond 1e100, all are scaled down. */
static void tni_substitute(const tni_host *h, int64_t n, const double *t, int64_t j, double re, double im, double least,
                           double *x, double *y)
{
    const int64_t end = j + (im > 0 ? 2 : 1);
    memset(x, 0, (size_t)n * sizeof *x);
    memset(y, 0, (size_t)n * sizeof *y);
    x[j] = 1;
    if (im > 0) {
        const double b = t[j * n + j + 1], c = t[(j + 1) * n + j];
        if (fabs(b) >= fabs(c)) y[j + 1] = im / b;
        else { x[j] = 0; y[j] = im / c; x[j + 1] = 1; }
    }
    for (int64_t i = j - 1; i >= 0; i--) {
        const int64_t rows = i > 0 && t[i * n + i - 1] != 0 ? 2 : 1, from = i + 1;
        tni_complex   r[2];
        i -= rows - 1;
        for (int64_t q = 0; q < rows; q++) {
            const double *row = t + (i + q) * n + from;
            r[q].re = -h->by->dot(end - from, row, x + from);
            r[q].im = im > 0 ? -h->by->dot(end - from, row, y + from) : 0;
        }
        tni_complex d = tni_complex_of(t[i * n + i] - re, -im);
        if (rows == 2)
            tni_solve_two(d, t[i * n + i + 1], t[(i + 1) * n + i], tni_complex_of(t[(i + 1) * n + i + 1] - re, -im), r,
                          least);
        else r[0] = tni_over(r[0], tni_size(d) < least ? tni_complex_of(least, 0) : d);
        double size = 0;
        for (int64_t q = 0; q < rows; q++) {
            x[i + q] = r[q].re;
            y[i + q] = r[q].im;
            size = fmax(size, tni_size(r[q]));
        }
        if (size > 1e100) {
            h->by->scale(end - i, 1 / size, x + i);
            if (im > 0) h->by->scale(end - i, 1 / size, y + i);
        }
    }
}

/* The vectors of all values, as rows of x [n,n]: of a pair the real part, then the imaginary part. y [n] */
static void tni_substitute_all(const tni_host *h, int64_t n, const double *t, const double *re, const double *im, bool back,
                               double *x, double *y)
{
    const double least = TNI_EPS * tni_max_f64(tni_largest(n, n, tni_rows((double *)t, n)), 1e-300);
    for (int64_t j = 0; j < n; j++) {
        const int64_t at = back ? n - 1 - j : j;             /* of a T that is reflected: the place of its value */
        const double  w = back ? fabs(im[at]) : im[j];
        tni_substitute(h, n, t, j, re[at], w, least, x + j * n, y);
        if (w > 0) memcpy(x + ++j * n, y, (size_t)n * sizeof *y);
    }
}

/* ---- 3. all together -------------------------------------------------------------- >>eig-solve */
TNI_FN int64_t tni_eig_work(int64_t n)
{
    return 3 * n * n + 3 * n + tni_max(tni_hessenberg_work(n), tni_schur_work(n));
}

/* J T^T J, with the order of rows and columns reversed: its right vectors, reversed, are the left ones of T. */
static void tni_eig_mirror(int64_t n, const double *t, double *to)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) to[i * n + j] = t[(n - 1 - j) * n + n - 1 - i];
}

/* Values, and vectors as rows in pairs as in tni_substitute_all, [n,n], not normalised, or NULL, of a[n,n], which is
   overwritten. left is NULL or as right. */
TNI_FN tn_status tni_eig(const tni_host *h, int64_t n, double *a, double *re, double *im, double *right, double *left,
                         double *work)
{
    double   *vs = work, *z = vs + n * n, *x = z + n * n, *tau = x + n * n, *d = tau + n, *y = d + n, *rest = y + n;
    double    largest = tni_largest(n, n, tni_rows(a, n));
    tni_schur s;
    tn_status status;
    if (n == 0) return TN_OK;
    if (!(largest < HUGE_VAL)) return TN_ERR_NONFINITE;
    double scale = tni_unit_scale(largest);
    h->by->scale(n * n, scale, a);
    tni_balance(h, n, a, d);
    tni_hessenberg(h, n, a, vs, tau, rest);
    s.host = h; s.n = n; s.t = a; s.z = right ? z : NULL; s.re = re; s.im = im;
    if (right) {                                             /* Q^T */
        tni_unit_matrix(n, z);
        for (int64_t first = n > 2 ? (n - 3) / TNI_BLOCK * TNI_BLOCK : -1; first >= 0; first -= TNI_BLOCK)
            tni_reflect(h, n - first - 1, n - first - 1, tni_min(TNI_BLOCK, n - 2 - first),
                        tni_mat_of(vs + first * n + first + 1, 1, n), tau + first, false,
                        tni_mat_of(z + (first + 1) * (n + 1), 1, n), rest);
    }
    if ((status = tni_schur_run(&s, rest)) != TN_OK) return status;
    if (right) {
        tni_substitute_all(h, n, a, re, im, false, x, y);
        h->by->gemm(h, n, n, n, 1, tni_rows(x, n), tni_rows(z, n), 0, tni_rows(right, n));
        for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++) right[i * n + j] *= d[j];
    }
    if (left) {
        tni_eig_mirror(n, a, vs);
        tni_substitute_all(h, n, vs, re, im, true, x, y);
        for (int64_t i = 0; i < n; i++)                      /* back to the order of T; a pair is real, imaginary again */
            for (int64_t j = 0; j < n; j++) {
                const int64_t at = im[i] > 0 ? n - 2 - i : im[i] < 0 ? n - i : n - 1 - i;
                vs[i * n + j] = (im[i] < 0 ? -1 : 1) * x[at * n + n - 1 - j];
            }
        h->by->gemm(h, n, n, n, 1, tni_rows(vs, n), tni_rows(z, n), 0, tni_rows(left, n));
        for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++) left[i * n + j] /= d[j];
    }
    h->by->scale(n, 1 / scale, re);
    h->by->scale(n, 1 / scale, im);
    return TN_OK;
}

#endif /* TN_NO_ANALYSIS */
