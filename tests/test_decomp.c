/* test_decomp.c: QR, symmetric eigen and SVD, inside and through tensors. */

#include "pool.h"
#include "kit.h"
#include "core/inner.h"
#include "cpu/inner.h"
#include "context/inner.h"
#include "decomp/inner.h"
#include "context/context.c"

#define EPS 0x1p-52

static double *same(const double *a, int64_t n)
{
    double *copy = doubles(n);
    memcpy(copy, a, (size_t)n * sizeof *a);
    return copy;
}

/* element (i,j) of the symmetric matrix is f(i,j), i <= j */
static double *symmetric(int64_t n, double (*f)(int64_t i, int64_t j, int64_t n))
{
    double *a = doubles(n * n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) a[i * n + j] = a[j * n + i] = f(i, j, n);
    return a;
}

/* Who computes: the level that TN_SIMD names, or the best. scratch: [HOST_SCRATCH], for one thread at a time */
enum { EXTENT = 1024, HOST_SCRATCH = 2 * TNI_HOST_MOST + 8 };

static tni_host host_in(double *scratch)
{
    char    why[TN_WHY];
    tn_simd simd = TN_SIMD_AUTO;
    if (tni_simd_from_environment(&simd, why) != TN_OK) test_fail(__FILE__, __LINE__, "TN_SIMD", why, "a level");
    return tni_host_of(tni_cpu_simd(simd), &tni_alone, EXTENT, scratch);
}

static const tni_host *host_memory(void)
{
    static double   scratch[HOST_SCRATCH];
    static tni_host h;
    h = host_in(scratch);
    return &h;
}

/* ---- measures of results, which use no code of the library */

/* A power of two that brings `size` near 1, as far as a double goes. */
static double near_one(double size)
{
    int exponent = 0;
    if (size > 0) frexp(size, &exponent);
    return ldexp(1, exponent < -1000 ? 1000 : -exponent);
}

/* |a|_F, also where squares would leave the range */
static double norm(const double *a, int64_t n)
{
    double most = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) if (fabs(a[i]) > most) most = fabs(a[i]);
    double scale = near_one(most);
    for (int64_t i = 0; i < n; i++) sum += a[i] * scale * (a[i] * scale);
    return sqrt(sum) / scale;
}

/* Of the components of largest magnitude the first is positive; or all are zero. */
static bool points_up(int64_t n, const double *x, int64_t stride)
{
    double high = 0, low = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i * stride] > high) high = x[i * stride];
        if (x[i * stride] < low) low = x[i * stride];
    }
    for (int64_t i = 0; high == -low && i < n; i++) {
        if (x[i * stride] == high) return true;
        if (x[i * stride] == low) return false;
    }
    return high >= -low;
}

/* |X X^T - I|_F / sqrt(k) of the rows of x[k,n] */
static double rows_off_orthonormal(int64_t k, int64_t n, const double *x)
{
    double worst = 0;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++) {
            double product = -(double)(i == j);
            for (int64_t l = 0; l < n; l++) product += x[i * n + l] * x[j * n + l];
            worst += product * product;
        }
    return k ? sqrt(worst / (double)k) : 0;
}

static double columns_off_orthonormal(int64_t m, int64_t k, const double *x)
{
    double *turned = doubles(m * k);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++) turned[j * m + i] = x[i * k + j];
    double worst = rows_off_orthonormal(k, m, turned);
    return worst;
}

/* |A - L diag(d) R|_F / |A|_F by the plainest loops; scale keeps the squares of huge and tiny A in range. */
static double off_product(int64_t m, int64_t n, int64_t k, const double *a, const double *left, const double *d, const double *right, double scale)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double x = a[i * n + j] * scale;
            size += x * x;
            for (int64_t l = 0; l < k; l++) x -= left[i * k + l] * (d ? d[l] * scale * right[l * n + j] : right[l * n + j] * scale);
            difference += x * x;
        }
    return sqrt(size > 0 ? difference / size : difference);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* An independent oracle: cyclic two-sided Jacobi. Values ascending. Golub & Van Loan 2013, 8.5 */
static void jacobi_oracle(int64_t n, double *a, double *values)
{
    for (int sweep = 0; sweep < 30; sweep++)
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                if (a[p * n + q] == 0) continue;
                double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
                double t = (theta < 0 ? -1 : 1) / (fabs(theta) + hypot(1, theta));
                double c = 1 / sqrt(1 + t * t);
                double s = c * t;
                for (int64_t k = 0; k < n; k++) {
                    double x = a[p * n + k], y = a[q * n + k];
                    a[p * n + k] = c * x - s * y;
                    a[q * n + k] = s * x + c * y;
                }
                for (int64_t k = 0; k < n; k++) {
                    double x = a[k * n + p], y = a[k * n + q];
                    a[k * n + p] = c * x - s * y;
                    a[k * n + q] = s * x + c * y;
                }
            }
    for (int64_t i = 0; i < n; i++) values[i] = a[i * n + i];
    qsort(values, (size_t)n, sizeof *values, ascending);
}

/* ---- the inner eigensolver */

typedef struct eigen { double *values, *vectors; tn_status status; } eigen;

static eigen eigen_of(const double *a, int64_t n)
{
    double  *copy = same(a, n * n), *work = doubles(tni_eigh_work(n)), *scratch = doubles(HOST_SCRATCH);
    tni_host h = host_in(scratch);
    eigen    e;
    e.values = doubles(n);
    e.vectors = doubles(n * n);
    e.status = tni_eigh(&h, n, copy, e.values, e.vectors, work);
    return e;
}

typedef struct eigen_errors { double residual, orthogonal, trace, size, oracle; } eigen_errors;

/* Everything that must hold for any symmetric matrix, relative to its norm. */
static void check_eigen(int64_t n, const double *a, eigen_errors *worst)
{
    eigen   e = eigen_of(a, n);
    double *only = doubles(n), *copy = same(a, n * n), *work = doubles(tni_eigh_work(n));
    double  size = norm(a, n * n), scale = near_one(size), trace = 0, sum = 0, residual = 0;
    size = size > 0 ? size * scale : 1;
    CHECK_STATUS(e.status, TN_OK);
    for (int64_t i = 0; i < n; i++) {
        trace += a[i * n + i] * scale;
        sum += e.values[i] * scale;
        CHECK(i == 0 || e.values[i - 1] <= e.values[i]);
        CHECK(points_up(n, e.vectors + i * n, 1));
        for (int64_t j = 0; j < n; j++) {
            double x = -e.values[i] * scale * e.vectors[i * n + j];
            for (int64_t k = 0; k < n; k++) x += a[j * n + k] * scale * e.vectors[i * n + k];
            residual += x * x;
        }
    }
    test_raise(&worst->residual, sqrt(residual) / size);
    test_raise(&worst->orthogonal, rows_off_orthonormal(n, n, e.vectors));
    test_raise(&worst->trace, fabs(trace - sum) / size);
    test_raise(&worst->size, fabs(norm(e.values, n) * scale - norm(a, n * n) * scale) / size);
    CHECK_STATUS(tni_eigh(host_memory(), n, copy, only, NULL, work), TN_OK);
    for (int64_t i = 0; i < n; i++) test_raise(&worst->oracle, fabs(only[i] - e.values[i]) * scale / size);
    if (n <= 100) {
        memcpy(copy, a, (size_t)(n * n) * sizeof *a);
        tni_algebra_of(TN_SIMD_PLAIN)->scale(n * n, scale, copy);
        jacobi_oracle(n, copy, only);
        for (int64_t i = 0; i < n; i++) test_raise(&worst->oracle, fabs(only[i] - e.values[i] * scale) / size);
    }
}

static void report_eigen(const eigen_errors *worst)
{
    WORST("|A V - V L| / |A|", worst->residual, 1e-14);
    WORST("|V V^T - I| / sqrt n", worst->orthogonal, 1e-14);
    WORST("trace", worst->trace, 1e-13);
    WORST("Frobenius norm", worst->size, 1e-13);
    WORST("values against Jacobi", worst->oracle, 1e-14);
}

static double uniform_entry(int64_t i, int64_t j, int64_t n) { (void)n; return noise_at(i, j); }

TEST(eigh_random)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 17, 32, 33, 34, 64, 65, 100, 257, 513};
    eigen_errors worst = {0, 0, 0, 0, 0};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        double *a = symmetric(sizes[k], uniform_entry);
        check_eigen(sizes[k], a, &worst);
    }
    report_eigen(&worst);
}

/* Matrices that have broken eigensolvers. */
static double zeros(int64_t i, int64_t j, int64_t n)          { (void)i; (void)j; (void)n; return 0; }
static double ones(int64_t i, int64_t j, int64_t n)           { (void)i; (void)j; (void)n; return 1; }
static double identity(int64_t i, int64_t j, int64_t n)       { (void)n; return i == j; }
static double wilkinson(int64_t i, int64_t j, int64_t n)      { return i == j ? fabs((double)i - (double)(n - 1) / 2) : j - i == 1; }
static double second_difference(int64_t i, int64_t j, int64_t n)     { (void)n; return i == j ? 2 : j - i == 1 ? -1 : 0; }
static double hilbert(int64_t i, int64_t j, int64_t n)        { (void)n; return 1 / (double)(i + j + 1); }
static double clustered(int64_t i, int64_t j, int64_t n)      { (void)n; return (double)(i == j) + 1e-9 * noise_at(i, j); }
static double graded_down(int64_t i, int64_t j, int64_t n)    { return noise_at(i, j) * pow(10, -6.0 * (double)(i + j) / (double)n); }
static double graded_up(int64_t i, int64_t j, int64_t n)      { return graded_down(n - 1 - j, n - 1 - i, n); }
static double graded_steeply(int64_t i, int64_t j, int64_t n) { return noise_at(i, j) * pow(10, -150.0 * (double)(i + j) / (double)n); }
static double no_diagonal(int64_t i, int64_t j, int64_t n)    { (void)n; return i == j ? 0 : noise_at(i, j); }
static double saddle(int64_t i, int64_t j, int64_t n)         { return i + j == n - 1; }
static double one_corner(int64_t i, int64_t j, int64_t n)     { return i == 0 && j == n - 1 ? 3 : 0; }
static double low_rank(int64_t i, int64_t j, int64_t n)
{
    double sum = 0;
    (void)n;
    for (int64_t k = 0; k < 5; k++) sum += noise_at(i, k) * noise_at(j, k) * (k % 2 ? -1 : 1);
    return sum;
}
static double two_blocks(int64_t i, int64_t j, int64_t n)     { return (i < n / 2) == (j < n / 2) ? noise_at(i % (n / 2 + 1), j % (n / 2 + 1)) : 0; }

TEST(eigh_hard)
{
    static double (*const entry[])(int64_t, int64_t, int64_t) = {zeros, ones, identity, wilkinson, second_difference, hilbert, clustered, graded_down,
        graded_up, graded_steeply, no_diagonal, saddle, one_corner, low_rank, two_blocks};
    static const int64_t sizes[] = {2, 3, 21, 64, 130};
    static const double  scales[] = {1, 1e300, 1e-300, 1e-320};
    eigen_errors worst = {0, 0, 0, 0, 0}, subnormal = {0, 0, 0, 0, 0};
    for (size_t k = 0; k < sizeof entry / sizeof *entry; k++)
        for (size_t s = 0; s < 5; s++)
            for (size_t c = 0; c < 4; c++) {
                double *a = symmetric(sizes[s], entry[k]);
                if (c > 0 && sizes[s] > 64) continue;
                for (int64_t i = 0; i < sizes[s] * sizes[s]; i++) a[i] *= scales[c];
                check_eigen(sizes[s], a, c == 3 ? &subnormal : &worst);
            }
    report_eigen(&worst);
    WORST("|V V^T - I| / sqrt n of subnormal matrices", subnormal.orthogonal, 1e-14);
    WORST("|A V - V L| / |A| of subnormal matrices", subnormal.residual, 1e-3);     /* the values have 11 bits themselves */
}

/* Orthogonal Q from noise, then Q diag(values) Q^T with every value many times over. */
TEST(eigh_repeated)
{
    int64_t n = 90;
    double *noise_in = random_doubles(n * n, 5), *q = doubles(n * n), *r = doubles(n * n), *a = doubles(n * n), *work = doubles(tni_qr_work(n, n));
    eigen_errors worst = {0, 0, 0, 0, 0};
    CHECK_STATUS(tni_qr(host_memory(), n, n, tni_rows(noise_in, n), tni_rows(q, n), tni_rows(r, n), work), TN_OK);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += q[i * n + k] * (double)(k % 3 - 1) * q[j * n + k];
            a[i * n + j] = a[j * n + i] = sum;
        }
    check_eigen(n, a, &worst);
    report_eigen(&worst);
    {
        eigen e = eigen_of(a, n);
        for (int64_t i = 0; i < n; i++) CHECK_NEAR(e.values[i], (double)(i / 30 - 1), 1e-14);
    }
}

/* tools/golden_decomp.py */
static const double golden_eigenvalues[] = {
    -3.9320253565533996, -2.6269780271291432, -1.1973344138117425, -0.89853334498190773,
    -0.44397759054404828, -0.32532154353768794, 2.3483221831644467e-16, 1.2782203292773004,
    1.7809288871702058, 2.7421452925677698, 3.7735367116156375, 3.9743390559270155
};
static const double golden_singular_values[] = {
    2.3906923061962773, 1.6109060685778274, 1.5519097158763433, 1.4520070297192964,
    1.1901996810409579, 0.87996285422482412, 0.53627840042662978, 0.47494139259256668
};
static double golden_symmetric(int64_t i, int64_t j, int64_t n)
{
    (void)n;
    return (double)((7 * i + 7 * j + 3 * i * j + i * i * j * j) % 19 - 9) / 8;
}

TEST(eigh_known)
{
    static const double s0[] = {5, 8, 8, 12}, s1[] = {21, 26, 26, 32}, output[] = {297, 905, 905, 2817}, input[] = {1206, 1514, 1514, 1908};
    static const double *const matrix[] = {s0, s1, output, input};
    static const double value[][2] = {{-0.232125, 17.232125}, {-0.075365, 53.075365},
                                      {2.381161 * 2.381161, 55.752400 * 55.752400}, {1.686786 * 1.686786, 55.777726 * 55.777726}};
    static const double tolerance[] = {5e-7, 5e-7, 1.2e-4, 1.2e-4};
    double *a = symmetric(12, golden_symmetric), worst = 0;
    eigen   e = eigen_of(a, 12);
    for (int64_t i = 0; i < 12; i++) test_raise(&worst, fabs(e.values[i] - golden_eigenvalues[i]));
    WORST("against LAPACK", worst, 1e-14);
    for (size_t k = 0; k < 4; k++) {
        e = eigen_of(matrix[k], 2);
        CHECK_NEAR(e.values[0], value[k][0], tolerance[k]);
        CHECK_NEAR(e.values[1], value[k][1], tolerance[k]);
    }
    worst = 0;
    a = symmetric(200, second_difference);
    e = eigen_of(a, 200);
    for (int k = 1; k <= 200; k++)
        test_raise(&worst, fabs(e.values[k - 1] - (2 - 2 * cos(k * 3.14159265358979323846 / 201))));
    WORST("second differences", worst, 2e-14);
}

TEST(eigh_refuses)
{
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    double list[64], d[5] = {1, 2, 3, 4, 5}, e[5] = {1, 1, 1, 1, 0}, z[5 * TNI_STRIP] = {0};
    tni_rotations r = ZERO;
    for (int k = 0; k < 3; k++) {
        double *a = symmetric(7, uniform_entry);
        a[2 * 7 + 5] = bad[k];
        eigen f = eigen_of(a, 7);
        CHECK_STATUS(f.status, TN_ERR_NONFINITE);
    }
    r.list = list; r.max = 64; r.z = z;
    CHECK_STATUS(tni_ql(5, d, e, 0, 0, &r), TN_ERR_CONVERGENCE);
}

/* ---- inner QR */

typedef struct qr { double *q, *r; tn_status status; } qr;

static qr qr_of(double *a, int64_t m, int64_t n)
{
    int64_t k = tni_min(m, n);
    double *work = doubles(tni_qr_work(m, n));
    qr      f;
    f.q = doubles(m * k);
    f.r = doubles(k * n);
    f.status = tni_qr(host_memory(), m, n, tni_rows(a, n), tni_rows(f.q, k), tni_rows(f.r, n), work);
    return f;
}

static void check_qr(int64_t m, int64_t n, double *a, double *residual, double *orthogonal)
{
    int64_t k = tni_min(m, n);
    qr      f = qr_of(a, m, n);
    CHECK_STATUS(f.status, TN_OK);
    for (int64_t i = 0; i < k; i++) {
        CHECK(f.r[i * n + i] >= 0);
        for (int64_t j = 0; j < i; j++) CHECK(f.r[i * n + j] == 0);
    }
    test_raise(residual, off_product(m, n, k, a, f.q, NULL, f.r, near_one(norm(a, m * n))));
    test_raise(orthogonal, columns_off_orthonormal(m, k, f.q));
}

TEST(qr_random)
{
    static const int64_t shapes[][2] = {{0, 0}, {0, 3}, {3, 0}, {1, 1}, {1, 5}, {5, 1}, {2, 2}, {31, 33}, {33, 31}, {32, 32}, {64, 65}, {100, 40},
                                        {40, 100}, {257, 129}, {300, 300}};
    double residual = 0, orthogonal = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        double *a = random_doubles(shapes[k][0] * shapes[k][1], k);
        check_qr(shapes[k][0], shapes[k][1], a, &residual, &orthogonal);
    }
    WORST("|A - Q R| / |A|", residual, 1e-14);
    WORST("|Q^T Q - I| / sqrt k", orthogonal, 1e-14);
}

/* Zeros, equal columns, zero columns, columns of very different size, all of it huge or tiny. */
TEST(qr_hard)
{
    static const double scales[] = {1, 1e300, 1e-300};
    double residual = 0, orthogonal = 0;
    for (int c = 0; c < 3; c++)
        for (int kind = 0; kind < 5; kind++)
            for (int wide = 0; wide < 2; wide++) {
                int64_t m = wide ? 37 : 70, n = wide ? 70 : 37;
                double *a = random_doubles(m * n, 9);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++) {
                        double *x = a + i * n + j;
                        if (kind == 0) *x = 0;
                        if (kind == 1) *x = a[i * n];
                        if (kind == 2 && j % 3 == 0) *x = 0;
                        if (kind == 3) *x *= pow(10, -(double)j * 4);
                        if (kind == 4 && j > 3) *x = a[i * n + j % 3];
                    }
                tni_algebra_of(TN_SIMD_PLAIN)->scale(m * n, scales[c], a);
                check_qr(m, n, a, &residual, &orthogonal);
            }
    WORST("|A - Q R| / |A|", residual, 1e-14);
    WORST("|Q^T Q - I| / sqrt k", orthogonal, 1e-14);
    {
        double a[6] = {1, 2, 3, (double)NAN, 5, 6};
        qr     f = qr_of(a, 2, 3);
        CHECK_STATUS(f.status, TN_ERR_NONFINITE);
    }
}

/* [3 1; 4 2]: q0 = (3,4)/5, r = [5 11/5; 0 2/5] */
TEST(qr_known)
{
    double a[4] = {3, 1, 4, 2};
    qr     f = qr_of(a, 2, 2);
    CHECK_NEAR(f.q[0], 0.6, 4 * EPS); CHECK_NEAR(f.q[2], 0.8, 4 * EPS);
    CHECK_NEAR(f.r[0], 5, 4 * EPS);   CHECK_NEAR(f.r[1], 2.2, 4 * EPS); CHECK_NEAR(f.r[3], 0.4, 4 * EPS);
}

/* ---- inner SVD */

typedef struct svd { double *u, *s, *vt; tn_status status; } svd;

static svd svd_of(double *a, int64_t m, int64_t n)
{
    int64_t k = tni_min(m, n);
    double *work = doubles(tni_svd_work(m, n));
    svd     f;
    f.u = doubles(m * k);
    f.s = doubles(k);
    f.vt = doubles(k * n);
    f.status = tni_svd(host_memory(), m, n, tni_rows(a, n), tni_rows(f.u, k), f.s, tni_rows(f.vt, n), work);
    return f;
}

typedef struct svd_errors { double residual, left, right; } svd_errors;

static void check_svd(int64_t m, int64_t n, double *a, svd_errors *worst)
{
    int64_t k = tni_min(m, n);
    svd     f = svd_of(a, m, n);
    CHECK_STATUS(f.status, TN_OK);
    for (int64_t i = 0; i < k; i++) {
        CHECK(f.s[i] >= 0 && (i == 0 || f.s[i - 1] >= f.s[i]));
        CHECK(points_up(m, f.u + i, k));
    }
    test_raise(&worst->residual, off_product(m, n, k, a, f.u, f.s, f.vt, near_one(norm(a, m * n))));
    test_raise(&worst->left, columns_off_orthonormal(m, k, f.u));
    test_raise(&worst->right, rows_off_orthonormal(k, n, f.vt));
}

static void report_svd(const svd_errors *worst)
{
    WORST("|A - U S Vt| / |A|", worst->residual, 2e-14);
    WORST("|U^T U - I| / sqrt k", worst->left, 2e-14);
    WORST("|Vt V - I| / sqrt k", worst->right, 2e-14);
}

TEST(svd_random)
{
    static const int64_t shapes[][2] = {{0, 0}, {0, 3}, {3, 0}, {1, 1}, {1, 5}, {5, 1}, {2, 2}, {17, 17}, {33, 31}, {64, 65}, {100, 40}, {40, 100},
                                        {257, 129}, {200, 200}};
    svd_errors worst = {0, 0, 0};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        double *a = random_doubles(shapes[k][0] * shapes[k][1], 77 + k);
        check_svd(shapes[k][0], shapes[k][1], a, &worst);
    }
    report_svd(&worst);
}

/* A = Q1 diag(s) Q2 for given singular values; s lies in [m >= n] order */
static double *with_singular_values(int64_t m, int64_t n, const double *s)
{
    double *x = random_doubles(m * n, 31), *y = random_doubles(n * n, 32), *a = doubles(m * n);
    qr      left = qr_of(x, m, n), right = qr_of(y, n, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n; k++) a[i * n + j] += left.q[i * n + k] * s[k] * right.q[k * n + j];
    return a;
}

/* Singular values from 1 down to 1e-14: the root of the Gram's eigenvalues would know none below 1e-8. */
TEST(svd_small_values)
{
    int64_t m = 80, n = 57;
    double *s = doubles(n), *gram = doubles(n * n), worst = 0, gram_worst = 0;
    svd_errors errors = {0, 0, 0};
    for (int64_t k = 0; k < n; k++) s[k] = pow(10, -14.0 * (double)k / (double)(n - 1));
    double *a = with_singular_values(m, n, s);
    svd     f = svd_of(a, m, n);
    for (int64_t k = 0; k < n; k++) test_raise(&worst, fabs(f.s[k] - s[k]));
    check_svd(m, n, a, &errors);
    report_svd(&errors);
    WORST("singular values 1 .. 1e-14, absolute", worst, 2e-15);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < m; k++) gram[i * n + j] += a[k * n + i] * a[k * n + j];
    eigen e = eigen_of(gram, n);
    for (int64_t k = 0; k < n; k++) {
        const double value = e.values[n - 1 - k];
        test_raise(&gram_worst, fabs(sqrt(value < 0 ? 0 : value) - s[k]));
    }
    CHECK(gram_worst > 1e-10 && gram_worst < 1e-6);
}

/* One value far above all others takes the most sweeps, and each rotation costs U a little accuracy: without the final step
   of Newton's iteration |U^T U - I| would be 2e-14 here. */
TEST(svd_with_one_large_value)
{
    int64_t n = 120;
    double *s = doubles(n);
    svd_errors errors = {0, 0, 0};
    for (int64_t k = 0; k < n; k++) s[k] = k == 0 ? 1e12 : 1.5 - (double)k / (double)n;
    double *a = with_singular_values(n, n, s);
    check_svd(n, n, a, &errors);
    WORST("one large value: |A - U S Vt| / |A|", errors.residual, 1e-14);
    WORST("one large value: |U^T U - I| / sqrt k", errors.left, 5e-15);
    WORST("one large value: |Vt V - I| / sqrt k", errors.right, 2e-14);
}

/* A Laeuchli matrix: ones above eps I. Its Gram is exactly singular in double, its smallest value is eps. */
TEST(svd_where_gram_is_singular)
{
    double a[4 * 3] = {1, 1, 1, 1e-9, 0, 0, 0, 1e-9, 0, 0, 0, 1e-9};
    svd    f = svd_of(a, 4, 3);
    CHECK_NEAR(f.s[0], sqrt(3), 1e-15);
    CHECK_NEAR(f.s[1], 1e-9, 1e-16);
    CHECK_NEAR(f.s[2], 1e-9, 1e-16);
}

TEST(svd_hard)
{
    static const double scales[] = {1, 1e300, 1e-300};
    svd_errors worst = {0, 0, 0};
    for (int c = 0; c < 3; c++)
        for (int kind = 0; kind < 8; kind++)
            for (int wide = 0; wide < 2; wide++) {
                int64_t m = wide ? 37 : 70, n = wide ? 70 : 37;
                double *a = random_doubles(m * n, 9);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++) {
                        double *x = a + i * n + j;
                        if (kind == 0) *x = 0;
                        if (kind == 1) *x = a[i * n];                                /* rank one */
                        if (kind == 2 && j % 3 == 0) *x = 0;
                        if (kind == 3) *x *= pow(10, -(double)j * 4);
                        if (kind == 4 && j > 3) *x = a[i * n + j % 3];
                        if (kind == 5) *x = i == j;                                  /* all values equal */
                        if (kind == 6) *x = i == j ? pow(10, -(double)i) : 0;
                        if (kind == 7) *x = i == 3 && j == 5 ? -2 : 0;
                    }
                tni_algebra_of(TN_SIMD_PLAIN)->scale(m * n, scales[c], a);
                check_svd(m, n, a, &worst);
            }
    report_svd(&worst);
    {
        double a[6] = {1, 2, 3, -(double)INFINITY, 5, 6};
        svd    f = svd_of(a, 3, 2);
        CHECK_STATUS(f.status, TN_ERR_NONFINITE);
    }
}

/* Rank 60 of 150: what is left of the zeros neither slows it down nor makes it fail. */
TEST(svd_rank_deficient)
{
    int64_t n = 150;
    double *s = doubles(n);
    svd_errors errors = {0, 0, 0};
    for (int64_t k = 0; k < 60; k++) s[k] = 1;
    double *a = with_singular_values(n, n, s);
    svd     f = svd_of(a, n, n);
    for (int64_t k = 0; k < n; k++) CHECK_NEAR(f.s[k], s[k], 1e-14);
    CHECK(f.s[n - 1] <= EPS);
    check_svd(n, n, a, &errors);
    report_svd(&errors);
}

TEST(svd_known)
{
    double worst = 0, a[88], pair[4] = {3, 0, 4, 5};
    for (int i = 0; i < 11; i++)
        for (int j = 0; j < 8; j++) a[i * 8 + j] = (double)((5 * i + 11 * j + 2 * i * j) % 23 - 11) / 16;
    svd f = svd_of(a, 11, 8);
    for (int k = 0; k < 8; k++) test_raise(&worst, fabs(f.s[k] - golden_singular_values[k]));
    WORST("against LAPACK", worst, 1e-14);
    f = svd_of(pair, 2, 2);                                  /* singular values sqrt 45, sqrt 5; u0 = (1,3)/sqrt 10 */
    CHECK_NEAR(f.s[0], sqrt(45), 1e-14);
    CHECK_NEAR(f.s[1], sqrt(5), 1e-14);
    CHECK_NEAR(f.u[0], sqrt(0.1), 1e-15);
    CHECK_NEAR(f.u[2], 3 * sqrt(0.1), 1e-15);
}

/* ---- the matrix product underneath */

TEST(gemm_of_hosts)
{
    static const int64_t shapes[][3] = {{0, 0, 0}, {3, 4, 0}, {1, 1, 1}, {4, 4, 4}, {5, 3, 7}, {33, 65, 130}, {130, 33, 5}, {7, 130, 260}};
    static const double  betas[] = {0, 1, -0.5};
    double worst = 0;
    for (size_t s = 0; s < 8; s++)
        for (int way = 0; way < 24; way++) {
            int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            double *a = random_doubles(m * k, 1), *b = random_doubles(k * n, 2), *c = random_doubles(m * n, 3), *expected = same(c, m * n);
            double  beta = betas[way / 8];
            tni_mat am = way & 1 ? tni_mat_of(a, 1, m) : tni_rows(a, k), bm = way & 2 ? tni_mat_of(b, 1, k) : tni_rows(b, n);
            tni_mat cm = way & 4 ? tni_mat_of(c, 1, m) : tni_rows(c, n);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    double *to = expected + i * cm.row + j * cm.col, sum = 0;
                    for (int64_t l = 0; l < k; l++) sum += am.p[i * am.row + l * am.col] * bm.p[l * bm.row + j * bm.col];
                    *to = 1.5 * sum + beta * *to;
                }
            for (int64_t i = 0; i < m * n && beta == 0; i++) c[i] = (double)NAN;       /* must not be read */
            host_memory()->by->gemm(host_memory(), m, n, k, 1.5, am, bm, beta, cm);
            test_raise(&worst, test_max_error(c, expected, m * n));
        }
    WORST("host product", worst, 1e-14);
}

/* ---- the pass of the reduction to tridiagonal form, against plain loops */

enum { PASS_MOST = 41, PASS_GAP = 8 };

typedef struct pass { int64_t from, end, n, stride; double a[PASS_MOST * (PASS_MOST + PASS_GAP)]; double v[4][PASS_MOST + PASS_GAP]; } pass;

/* May the pass read a[i,j]? Rows begin at the multiple of four before `from`; whole blocks have both triangles. */
static bool pass_reads(const pass *p, int64_t i, int64_t j)
{
    return i >= p->from / 4 * 4 && i < p->end && j < p->n && (j >= i || (j / 4 == i / 4 && i / 4 * 4 + 4 <= p->n));
}

/* v, w, x and y of the pass; what it must not read is NaN, and what it leaves out of x is zero. */
static void pass_fill(pass *p)
{
    for (int64_t i = 0; i < p->n; i++)
        for (int64_t j = 0; j < p->stride; j++)
            p->a[i * p->stride + j] = pass_reads(p, i, j) ? noise_at(i < j ? i : j, i < j ? j : i) : (double)NAN;
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < PASS_MOST + PASS_GAP; i++)
            p->v[k][i] = i >= p->n || (k == 3 && i >= p->from) ? (double)NAN : k == 2 && i < p->from ? 0 : noise_at(i, 50 + k);
}

static void pass_by_loops(pass *p)
{
    for (int64_t i = p->from; i < p->n; i++) p->v[3][i] = 0;
    for (int64_t i = p->from; i < p->end; i++)
        for (int64_t j = i; j < p->n; j++) {
            double *a = p->a + i * p->stride + j;
            *a -= p->v[0][i] * p->v[1][j] + p->v[1][i] * p->v[0][j];
            if (pass_reads(p, j, i)) p->a[j * p->stride + i] = *a;
            p->v[3][i] += *a * p->v[2][j];
            if (j > i) p->v[3][j] += *a * p->v[2][i];
        }
}

/* Below the diagonal, what is left of `from` is never used. All else that is not part of the result stays as it was, bit for bit. */
static void check_pass(const pass *p, const pass *expected, double *worst)
{
    for (int64_t i = 0; i < p->n; i++)
        for (int64_t j = 0; j < p->stride; j++) {
            const int64_t at = i * p->stride + j;
            const bool    inside = pass_reads(p, i, j) && i >= p->from;
            if (inside && j >= p->from) test_raise(worst, fabs(p->a[at] - expected->a[at]));
            else if (!inside) CHECK(memcmp(p->a + at, expected->a + at, sizeof *p->a) == 0);
        }
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < PASS_MOST + PASS_GAP; i++)
            if (k == 3 && i >= p->from && i < p->n) test_raise(worst, fabs(p->v[k][i] - expected->v[k][i]));
            else CHECK(memcmp(&p->v[k][i], &expected->v[k][i], sizeof p->v[k][i]) == 0);
}

TEST(rows_of_the_reduction)
{
    static const int64_t gaps[] = {0, 3, PASS_GAP};
    static pass p, expected;
    double worst = 0;
    for (int64_t n = 1; n <= PASS_MOST; n++)
        for (int64_t from = 0; from <= n; from++)
            for (int64_t end = (from + 3) / 4 * 4; end < n + 4; end += 4)        /* the last one is n */
                for (int way = 0; way < 3; way++) {
                    p.from = from; p.end = end < n ? end : n; p.n = n; p.stride = n + gaps[way];
                    pass_fill(&p);
                    expected = p;
                    pass_by_loops(&expected);
                    host_memory()->by->upper_times(from, p.end, n, p.a, p.stride, p.v[0], p.v[1], p.v[2], p.v[3]);
                    check_pass(&p, &expected, &worst);
                }
    WORST("A - v w^T - w v^T, and times x", worst, 1e-14);
}

/* ---- the same bits on every run, and by any worker */

typedef struct job { const double *a; int64_t n; double *out[12]; } job;

static void run_job(void *arg, int64_t task, int worker)
{
    job  *j = (job *)arg;
    eigen e = eigen_of(j->a, j->n);
    (void)worker;
    memcpy(j->out[task], e.vectors, (size_t)(j->n * j->n) * sizeof(double));
}

TEST(same_bits_by_any_worker)
{
    int64_t  n = 150;
    double  *a = symmetric(n, uniform_entry);
    tni_pool pool = {4, NULL, NULL};
    job      j;
    j.a = a;
    j.n = n;
    for (int k = 0; k < 12; k++) j.out[k] = doubles(n * n);
    run_job(&j, 0, 0);
    tni_parallel_for(&pool, 12, run_job, &j);
    for (int k = 1; k < 12; k++) CHECK(memcmp(j.out[0], j.out[k], (size_t)(n * n) * sizeof(double)) == 0);
    memset(j.out[5], 0, (size_t)(n * n) * sizeof(double));
    pool.fn = pool_backwards;
    tni_parallel_for(&pool, 12, run_job, &j);
    CHECK(memcmp(j.out[0], j.out[5], (size_t)(n * n) * sizeof(double)) == 0);
}

/* ---- tensors */

static tn_tensor *matrix_of(tn_ctx *ctx, int64_t m, int64_t n, const double *a)
{
    tn_tensor *t = tn_tensor_2d(ctx, TN_REAL, m, n);
    CHECK_STATUS(tn_write(t, TN_F64, a, m * n), TN_OK);
    return t;
}

static void all_of(const tn_tensor *t, double *to) { CHECK_STATUS(tn_read(t, TN_F64, to, tn_tensor_count(t)), TN_OK); }

static tn_eigh_desc eigh_desc(int64_t top, bool measure)
{
    tn_eigh_desc d = ZERO;
    d.top = top;
    d.measure = measure;
    return d;
}

static tn_svd_desc svd_desc(int64_t top, bool measure)
{
    tn_svd_desc d = ZERO;
    d.top = top;
    d.measure = measure;
    return d;
}

TEST(eigh_of_tensors)
{
    static const double a[9] = {1, 4, 0, 0, 1, 0, 0, 0, -3};              /* symmetric part [1 2; 2 1], -3: values -3, -1, 3 */
    for (int type = 0; type < 2; type++) {
        double         tol = type ? 1e-15 : 1e-6, v[9];
        tn_ctx        *ctx = ctx_of(type ? TN_F64 : TN_F32);
        tn_tensor     *t = matrix_of(ctx, 3, 3, a);
        tn_eigh_desc   desc = eigh_desc(0, false);
        tn_eigh_result e;
        CHECK_STATUS(tn_eigh(ctx, t, NULL, &e), TN_ERR_ARG);
        CHECK_ERROR(ctx, TN_ERR_ARG, "eigh: a is not symmetric: |a[1,0] - a[0,1]| is 1 of the largest element, expected at most ");
        desc.symmetrise = true;
        CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK);
        CHECK(e.error != e.error);
        tn_eigh_destroy(&e);
        desc.measure = true;
        REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK));
        CHECK(e.error <= 2 * tol);
        CHECK_INT(e.values->shape[0], 3);
        CHECK_INT(e.vectors->dtype, tn_ctx_dtype(ctx));
        all_of(e.values, v);
        CHECK_NEAR(v[0], -3, 6 * tol); CHECK_NEAR(v[1], -1, 6 * tol); CHECK_NEAR(v[2], 3, 6 * tol);
        all_of(e.vectors, v);
        CHECK_NEAR(v[2], 1, tol);
        CHECK_NEAR(fabs(v[3]), sqrt(0.5), tol); CHECK_NEAR(v[3] + v[4], 0, 2 * tol);
        CHECK_NEAR(v[6], sqrt(0.5), tol);       CHECK_NEAR(v[7], sqrt(0.5), tol);
        tn_eigh_destroy(&e);
        CHECK(!e.values && !e.vectors);
        desc.order = TN_EIGH_MAGNITUDE;                                   /* 3 before -3 */
        desc.top = 2;
        CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK);
        CHECK_INT(e.values->shape[0], 2); CHECK_INT(e.vectors->shape[0], 2); CHECK_INT(e.vectors->shape[1], 3);
        all_of(e.values, v);
        CHECK_NEAR(fabs(v[0]), 3, 6 * tol); CHECK_NEAR(fabs(v[1]), 3, 6 * tol);
        CHECK_NEAR(e.error, sqrt(1.0 / 19), 1e-6);                         /* the -1 is missing */
        tn_eigh_destroy(&e);
        desc.no_vectors = true;
        CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK);
        CHECK(e.values && !e.vectors);
        tn_eigh_destroy(&e);
        CLOSE_CTX(ctx);
    }
}

TEST(views_give_the_same)
{
    tn_ctx    *ctx = ctx_of(TN_F64);
    double    *a = random_doubles(12 * 20, 3), direct[5 * 5], viewed[5 * 5];
    tn_tensor *t = matrix_of(ctx, 12, 20, a), *view = tn_transpose(tn_slice_step(tn_slice(t, 0, 3, 8), 1, 19, 9, -2), 0, 1), *copy = tn_copy(ctx, view);
    tn_svd_result f, g;
    REQUIRE(CHECK_STATUS(tn_svd(ctx, copy, NULL, &f), TN_OK));
    REQUIRE(CHECK_STATUS(tn_svd(ctx, view, NULL, &g), TN_OK));
    CHECK_INT(f.vt->shape[1], 5);
    all_of(f.vt, direct);
    all_of(g.vt, viewed);
    CHECK(memcmp(direct, viewed, sizeof direct) == 0);
    tn_svd_destroy(&f);
    tn_svd_destroy(&g);
    CLOSE_CTX(ctx);
}

TEST(qr_and_svd_of_tensors)
{
    tn_ctx       *ctx = ctx_of(TN_F32);
    double       *a = random_doubles(30 * 20, 8), s[20], tail = 0, size = 0;
    tn_tensor    *t = matrix_of(ctx, 30, 20, a);
    tn_qr_desc    measure = {true, false, 0};
    tn_svd_desc   desc = svd_desc(0, true);
    tn_qr_result  f;
    tn_svd_result g;
    CHECK_STATUS(tn_qr(ctx, t, &measure, &f), TN_OK);
    CHECK_INT(f.q->shape[1], 20); CHECK_INT(f.r->shape[0], 20);
    CHECK(f.error < 1e-6);
    tn_qr_destroy(&f);
    CHECK_STATUS(tn_qr(ctx, t, NULL, &f), TN_OK);
    CHECK(isnan(f.error));                                                 /* not measured */
    tn_qr_destroy(&f);
    CHECK_STATUS(tn_svd(ctx, t, &desc, &g), TN_OK);
    CHECK(g.error < 1e-6);
    all_of(g.s, s);
    tn_svd_destroy(&g);
    desc.top = 6;
    CHECK_STATUS(tn_svd(ctx, t, &desc, &g), TN_OK);
    CHECK_INT(g.u->shape[1], 6); CHECK_INT(g.s->shape[0], 6); CHECK_INT(g.vt->shape[0], 6);
    for (int k = 0; k < 20; k++) { size += s[k] * s[k]; tail += k < 6 ? 0 : s[k] * s[k]; }
    CHECK_NEAR(g.error, sqrt(tail / size), 1e-6);                          /* Eckart & Young */
    tn_svd_destroy(&g);
    CLOSE_CTX(ctx);
}

TEST(empty_tensors)
{
    tn_ctx        *ctx = ctx_of(TN_F32);
    tn_eigh_desc   desc = eigh_desc(0, true);
    tn_eigh_result e;
    tn_qr_result   f;
    tn_svd_result  g;
    CHECK_STATUS(tn_eigh(ctx, tn_tensor_2d(ctx, TN_REAL, 0, 0), &desc, &e), TN_OK);
    CHECK(e.error == 0);
    CHECK_STATUS(tn_qr(ctx, tn_tensor_2d(ctx, TN_REAL, 4, 0), NULL, &f), TN_OK);
    CHECK_STATUS(tn_svd(ctx, tn_tensor_2d(ctx, TN_REAL, 0, 4), NULL, &g), TN_OK);
    CHECK_INT(g.vt->shape[1], 4);
    CLOSE_CTX(ctx);                                                   /* frees the results too */
}

TEST(mistakes_are_named)
{
    static const double bad[4] = {1, (double)NAN, 2, 3};
    tn_ctx        *ctx = ctx_of(TN_F64);
    tn_eigh_desc   desc = eigh_desc(9, false);
    tn_svd_desc    cut = svd_desc(-1, false);
    tn_eigh_result e;
    tn_qr_result   f;
    tn_svd_result  g;
    CHECK_STATUS(tn_eigh(ctx, tn_tensor_2d(ctx, TN_REAL, 3, 4), NULL, &e), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "eigh: a is [3,4], expected a square matrix");
    CHECK(!e.values && !e.vectors);
    FAILS(ctx, tn_qr(ctx, tn_tensor_1d(ctx, TN_REAL, 3), NULL, &f), TN_ERR_SHAPE, "qr: a is [3], expected rank 2");
    FAILS(ctx, tn_svd(ctx, NULL, NULL, &g), TN_ERR_ARG, "svd: a is NULL");
    FAILS(ctx, tn_eigh(ctx, matrix_of(ctx, 2, 2, bad), NULL, &e), TN_ERR_NONFINITE, "eigh: a, [2,2], has NaN or infinity");
    FAILS(ctx, tn_svd(ctx, matrix_of(ctx, 1, 4, bad), NULL, &g), TN_ERR_NONFINITE, "svd: a, [1,4], has NaN or infinity");
    FAILS(ctx, tn_eigh(ctx, tn_tensor_2d(ctx, TN_REAL, 3, 3), &desc, &e), TN_ERR_ARG, "eigh: top is 9, expected 0 to 3");
    FAILS(ctx, tn_svd(ctx, tn_tensor_2d(ctx, TN_REAL, 3, 2), &cut, &g), TN_ERR_ARG, "svd: top is -1, expected 0 to 2");
    CHECK_STATUS(tn_qr(ctx, tn_tensor_2d(ctx, TN_REAL, 3, 2), NULL, NULL), TN_ERR_ARG);
    tn_eigh_destroy(NULL);
    tn_ctx_clear_error(ctx);
    tn_ctx_destroy(ctx);
}

/* Each allocation fails once: a clean status, no result left, and it works again after. */
TEST(memory_runs_out)
{
    test_heap heap = ZERO;
    tn_desc   desc = ZERO;
    tn_ctx   *ctx = NULL;
    double   *a = symmetric(6, uniform_entry);
    desc.allocator = test_heap_allocator(&heap);
    CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK);
    tn_tensor *t = matrix_of(ctx, 6, 6, a);
    for (int op = 0; op < 3; op++)
        for (uint64_t fail = 1;; fail++) {
            tn_memory before = tn_ctx_memory(ctx);
            tn_eigh_result e;
            tn_qr_result   f;
            tn_svd_result  g;
            heap.fail_at = heap.count + fail;
            tn_status s = op == 0 ? tn_eigh(ctx, t, NULL, &e) : op == 1 ? tn_qr(ctx, t, NULL, &f) : tn_svd(ctx, t, NULL, &g);
            if (s == TN_OK) {
                heap.fail_at = 0;
                CHECK(fail > 2);
                if (op == 0) tn_eigh_destroy(&e);
                if (op == 1) tn_qr_destroy(&f);
                if (op == 2) tn_svd_destroy(&g);
                break;
            }
            CHECK_STATUS(s, TN_ERR_MEMORY);
            if (op == 0) CHECK(!e.values && !e.vectors);
            if (op == 1) CHECK(!f.q && !f.r);
            if (op == 2) CHECK(!g.u && !g.s && !g.vt);
            CHECK_INT(tn_ctx_memory(ctx).live - tn_ctx_memory(ctx).arena, before.live - before.arena);
            tn_ctx_clear_error(ctx);
        }
    tn_ctx_destroy(ctx);
    CHECK_INT(heap.live, 0);
}

TEST(effective_rank)
{
    static const double equal[4] = {2, -2, 2, -2}, one[3] = {0, -7, 0}, huge[2] = {1e300, 1e300}, two[2] = {3, 1}, zero[3] = {0, 0, 0};
    static const double bad[2] = {1, (double)NAN};
    CHECK_NEAR(tn_effective_rank(equal, 4), 4, 1e-15);
    CHECK_NEAR(tn_effective_rank(one, 3), 1, 1e-15);
    CHECK_NEAR(tn_effective_rank(huge, 2), 2, 1e-15);
    CHECK_NEAR(tn_effective_rank(two, 2), 1.6, 1e-15);
    CHECK(tn_effective_rank(zero, 3) == 0 && tn_effective_rank(zero, 0) == 0);
    CHECK(tn_effective_rank(bad, 2) != tn_effective_rank(bad, 2));
}

/* Wide tensors, too: more columns than rows, with Q [m,m] and R [m,n]. */
TEST(qr_of_wide_tensors)
{
    static const int64_t extent[][2] = {{1, 4}, {3, 7}, {20, 33}, {40, 90}};
    for (size_t e = 0; e < sizeof extent / sizeof *extent; e++) {
        const int64_t m = extent[e][0], n = extent[e][1];
        tn_ctx       *ctx = ctx_of(TN_F64);
        double       *a = random_doubles(m * n, 3 + e), *q = doubles(m * m), *r = doubles(m * n), *product = doubles(m * n);
        tn_qr_result  f;
        if (CHECK_STATUS(tn_qr(ctx, matrix_of(ctx, m, n, a), NULL, &f), TN_OK)) {
            all_of(f.q, q);
            all_of(f.r, r);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    double sum = 0;
                    for (int64_t k = 0; k < m; k++) sum += q[i * m + k] * r[k * n + j];
                    product[i * n + j] = sum;
                    if (j < i) CHECK(r[i * n + j] == 0);
                }
            CHECK(test_frobenius(product, a, m * n) <= 1e-14);
            tn_qr_destroy(&f);
        }
        CLOSE_CTX(ctx);
    }
}

/* ---- polynomials fitted to samples ---------------------------------------- */

/* sum_k c[k] x^k in powers of x itself, of a polynomial that is given in powers of z */
static void plain_powers(const tn_polynomial *p, double *c)
{
    memset(c, 0, (TN_POLYNOMIAL_MAX + 1) * sizeof *c);
    for (int k = p->degree; k >= 0; k--) {                  /* c = c (x - centre)/width + c_k */
        for (int i = p->degree; i >= 0; i--) c[i] = ((i ? c[i - 1] : 0) - p->centre * c[i]) / p->width;
        c[0] += p->c[k];
    }
}

/* The coefficients of a polynomial that is given by its values are found, at every degree up to 8 and by any higher one. */
TEST(polynomials_are_recovered)
{
    uint64_t rng = 5;
    tn_ctx  *ctx = ctx_of(TN_F64);
    double   worst = 0;
    for (int degree = 1; degree <= 8; degree++)
        for (int more = 0; more < 3; more++) {
            const int64_t     n = degree + 1 + more + (more == 2 ? 500 : 0);
            const double      shift = test_random_real(&rng), size = 1 + test_random_real(&rng) / 2;
            double            c[9], got[TN_POLYNOMIAL_MAX + 1], *x = doubles(n), *y = doubles(n);
            tn_polynomial_fit fit;
            tn_polynomial     p;
            for (int k = 0; k <= degree; k++) c[k] = test_random_real(&rng);
            for (int64_t i = 0; i < n; i++) {
                x[i] = shift + size * (more == 2 ? test_random_real(&rng) : cos(3.14159 * (double)(2 * i + 1) / (double)(2 * n)));
                for (int k = degree; k >= 0; k--) y[i] = y[i] * x[i] + c[k];
            }
            CHECK_STATUS(tn_polynomial_fit_init(ctx, n > 16 ? 8 : degree, shift - size, shift + size, &fit), TN_OK);
            CHECK_STATUS(tn_polynomial_fit_add(&fit, n, x, y, NULL), TN_OK);
            for (int d = degree; d <= fit.degree; d++) {
                CHECK_STATUS(tn_polynomial_fit_read(&fit, d, &p), TN_OK);
                plain_powers(&p, got);
                for (int k = 0; k <= d; k++) test_raise(&worst, fabs(got[k] - (k <= degree ? c[k] : 0)));
                CHECK(p.degree == d && p.rms < 1e-12 && p.share > 1 - 1e-12);
            }
        }
    printf("coefficients: %.1e\n", worst);
    CHECK(worst <= 1e-10);
    CLOSE_CTX(ctx);
}

/* What is fitted to is no polynomial: the error is orthogonal to all lower powers under the weights, and rms and share are those
   of plain loops. In parts or at once, the same bits. A weight of 2 is two samples, one of 0 none. */
TEST(polynomials_are_the_best)
{
    enum { N = 300 };
    uint64_t          rng = 8;
    tn_ctx           *ctx = ctx_of(TN_F32);
    double            x[N], y[N], w[N];
    tn_polynomial_fit fit, parts, twice;
    tn_polynomial     p, q;
    for (int i = 0; i < N; i++) {
        x[i] = 4 * test_random_real(&rng) + test_random_real(&rng);
        y[i] = exp(x[i] / 3);
        w[i] = i % 3;
    }
    CHECK_STATUS(tn_polynomial_fit_init(ctx, 8, -5, 5, &fit), TN_OK);
    parts = twice = fit;
    CHECK_STATUS(tn_polynomial_fit_add(&fit, N, x, y, w), TN_OK);
    for (int i = 0; i < N; i += 7) CHECK_STATUS(tn_polynomial_fit_add(&parts, i + 7 < N ? 7 : N - i, x + i, y + i, w + i), TN_OK);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i % 3; k++) CHECK_STATUS(tn_polynomial_fit_add(&twice, 1, x + i, y + i, NULL), TN_OK);
    CHECK(memcmp(&fit, &parts, sizeof fit) == 0 && fit.samples == 200 && twice.samples == 300);
    for (int d = 1; d <= 8; d++) {
        double rest = 0, mean = 0, weight = 0, variance = 0, size[9] = {0}, product[9] = {0};
        CHECK_STATUS(tn_polynomial_fit_read(&fit, d, &p), TN_OK);
        CHECK_STATUS(tn_polynomial_fit_read(&twice, d, &q), TN_OK);
        for (int k = 0; k <= d; k++) CHECK_NEAR(p.c[k], q.c[k], 1e-9);
        for (int i = 0; i < N; i++) {
            const double error = tn_polynomial_value(&p, x[i]) - y[i];
            rest += w[i] * error * error;
            weight += w[i];
            mean += w[i] * y[i];
            for (int k = 0; k <= d; k++) {
                product[k] += w[i] * error * pow(x[i] / 5, k);
                size[k] += w[i] * fabs(error) * fabs(pow(x[i] / 5, k));
            }
        }
        for (int i = 0; i < N; i++) variance += w[i] * (y[i] - mean / weight) * (y[i] - mean / weight);
        for (int k = 0; k <= d; k++) CHECK(fabs(product[k]) <= 1e-8 * size[k]);
        CHECK_NEAR(p.rms, sqrt(rest / weight), 1e-12);
        CHECK_NEAR(p.share, 1 - rest / variance, 1e-12);
    }
    CLOSE_CTX(ctx);
}

TEST(polynomials_refuse)
{
    static const double x[3] = {1, 2, 1}, y[3] = {3, (double)NAN, 5}, less[3] = {1, -1, 1};
    tn_ctx             *ctx = ctx_of(TN_F64);
    tn_polynomial_fit   fit;
    tn_polynomial       p;
    FAILS(ctx, tn_polynomial_fit_init(ctx, 0, 0, 1, &fit), TN_ERR_ARG, "degree is 0, expected 1 to 16");
    FAILS(ctx, tn_polynomial_fit_init(ctx, 17, 0, 1, &fit), TN_ERR_ARG, "degree is 17, expected 1 to 16");
    FAILS(ctx, tn_polynomial_fit_init(ctx, 2, 1, 1, &fit), TN_ERR_ARG, "the range is 1 to 1, expected two finite numbers");
    FAILS(ctx, tn_polynomial_fit_init(ctx, 2, 0, HUGE_VAL, &fit), TN_ERR_ARG, "expected two finite numbers");
    FAILS(ctx, tn_polynomial_fit_init(ctx, 2, 0, 1, NULL), TN_ERR_ARG, "fit is NULL");
    CHECK_STATUS(tn_polynomial_fit_init(ctx, 3, 0, 1, &fit), TN_OK);
    FAILS(ctx, tn_polynomial_fit_add(&fit, 3, x, y, NULL), TN_ERR_NONFINITE, "sample 1 has x 2, y nan and weight 1");
    FAILS(ctx, tn_polynomial_fit_add(&fit, 3, x, x, less), TN_ERR_NONFINITE, "weight -1, expected finite numbers and a weight of");
    FAILS(ctx, tn_polynomial_fit_add(&fit, 1, x, NULL, NULL), TN_ERR_ARG, "y is NULL");
    CHECK(fit.samples == 0);
    FAILS(ctx, tn_polynomial_fit_read(&fit, 1, &p), TN_ERR_ARG, "no sample has a weight, expected at least 2 for degree 1");
    CHECK_STATUS(tn_polynomial_fit_add(&fit, 0, NULL, NULL, NULL), TN_OK);
    for (int i = 0; i < 50; i++) CHECK_STATUS(tn_polynomial_fit_add(&fit, 3, x, x, NULL), TN_OK);
    FAILS(ctx, tn_polynomial_fit_read(&fit, 2, &p), TN_ERR_ARG, "150 samples with a weight determine only a polynomial of degree 1, "
          "expected 2: too few different x, or too close together");
    FAILS(ctx, tn_polynomial_fit_read(&fit, 0, &p), TN_ERR_ARG, "degree is 0, expected 1 to 3");
    FAILS(ctx, tn_polynomial_fit_read(&fit, 4, &p), TN_ERR_ARG, "degree is 4, expected 1 to 3");
    FAILS(ctx, tn_polynomial_fit_read(&fit, 1, NULL), TN_ERR_ARG, "out is NULL");
    CHECK_STATUS(tn_polynomial_fit_read(&fit, 1, &p), TN_OK);
    CHECK_NEAR(tn_polynomial_value(&p, 7), 7, 1e-12);
    CHECK(isnan(tn_polynomial_value(NULL, 0)));
    CHECK_STATUS(tn_polynomial_fit_add(NULL, 0, NULL, NULL, NULL), TN_ERR_ARG);
    CLOSE_CTX(ctx);
}

TEST_MAIN(eigh_random, eigh_hard, eigh_repeated, eigh_known, eigh_refuses, qr_random, qr_hard, qr_known, svd_random, svd_small_values,
          svd_with_one_large_value, svd_where_gram_is_singular, svd_hard, svd_rank_deficient, svd_known,
          gemm_of_hosts, rows_of_the_reduction, same_bits_by_any_worker, eigh_of_tensors, views_give_the_same, qr_and_svd_of_tensors,
          empty_tensors, mistakes_are_named, memory_runs_out, effective_rank, qr_of_wide_tensors,
          polynomials_are_recovered, polynomials_are_the_best, polynomials_refuse)
