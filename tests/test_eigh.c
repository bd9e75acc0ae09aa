/* test_eigh.c: the symmetric eigensolver through its public function: matrices that break divide and conquer, sizes around
   its leaves, blocks and vectors, every SIMD level, any number of threads. */

#include <float.h>
#include "pool.h"
#include "kit.h"

#define EPS 0x1p-52

static tn_ctx *context(tn_dtype dtype, tn_simd simd, int threads, tn_parallel_for_fn pool)
{
    tn_desc desc = ZERO;
    tn_ctx *ctx = NULL;
    desc.dtype = dtype;
    desc.simd = simd;
    desc.threads = threads;
    desc.parallel_for = pool;
    CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK);
    return ctx;
}

static tn_status solve(tn_ctx *ctx, int64_t n, const double *a, const tn_eigh_desc *desc, double *values, double *vectors)
{
    tn_tensor     *t = tn_tensor_2d(ctx, TN_REAL, n, n);
    tn_eigh_result e;
    tn_status      s = tn_write(t, TN_F64, a, n * n);
    if (s == TN_OK) s = tn_eigh(ctx, t, desc, &e);
    if (s != TN_OK) return s;
    CHECK_STATUS(tn_read(e.values, TN_F64, values, n), TN_OK);
    if (vectors) CHECK_STATUS(tn_read(e.vectors, TN_F64, vectors, n * n), TN_OK);
    CHECK(vectors || !e.vectors);
    tn_eigh_destroy(&e);
    tn_ctx_reset(ctx);
    return s;
}

/* ---- matrices: element (i,j), i <= j, of the symmetric [n,n] */
typedef double (*entry)(int64_t i, int64_t j, int64_t n);

static double uniform(int64_t i, int64_t j, int64_t n)   { (void)n; return noise_at(i, j); }
static double zeros(int64_t i, int64_t j, int64_t n)     { (void)i; (void)j; (void)n; return 0; }
static double ones(int64_t i, int64_t j, int64_t n)      { (void)i; (void)j; (void)n; return 1; }
static double identity(int64_t i, int64_t j, int64_t n)  { (void)n; return i == j; }
static double diagonal(int64_t i, int64_t j, int64_t n)  { (void)n; return i == j ? noise_at(i, 7) : 0; }
static double graded(int64_t i, int64_t j, int64_t n)    { return noise_at(i, j) * pow(10, -12.0 * (double)(i + j) / (double)(2 * n)); }
static double steep(int64_t i, int64_t j, int64_t n)     { return noise_at(n - i, n - j) * pow(10, -140.0 * (double)(2 * n - i - j) / (double)n); }
static double clustered(int64_t i, int64_t j, int64_t n) { (void)n; return (double)(i == j) * (double)(1 + i % 3) + 1e-11 * noise_at(i, j); }
static double toeplitz(int64_t i, int64_t j, int64_t n)  { (void)n; return i == j ? 2 : j - i == 1 ? -1 : 0; }
static double wilkinson(int64_t i, int64_t j, int64_t n) { return i == j ? fabs((double)i - (double)(n - 1) / 2) : j - i == 1; }
static double big_wilkinson(int64_t i, int64_t j, int64_t n) { return 1e200 * wilkinson(i, j, n); }
static double glued(int64_t i, int64_t j, int64_t n)     /* copies of W21+ that hardly touch */
{
    (void)n;
    if (i == j) return fabs((double)(i % 21) - 10);
    return j - i == 1 ? (j % 21 == 0 ? 1e-8 : 1) : 0;
}
static double broken(int64_t i, int64_t j, int64_t n)    /* tridiagonal with off-diagonals from 1 down to nothing */
{
    (void)n;
    return i == j ? 1 : j - i == 1 ? pow(10, -(double)(i % 20)) : 0;
}
static double deficient(int64_t i, int64_t j, int64_t n)
{
    double sum = 0;
    (void)n;
    for (int64_t k = 0; k < 3; k++) sum += noise_at(i, k + 900) * noise_at(j, k + 900) * (double)(k - 1);
    return sum;
}

static const entry entries[] = {uniform, zeros, ones, identity, diagonal, graded, steep, clustered, toeplitz, wilkinson, big_wilkinson, glued,
                                broken, deficient};
enum { ENTRIES = (int)(sizeof entries / sizeof *entries) };

static double *matrix_by(int64_t n, entry f)
{
    double *a = doubles(n * n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) a[i * n + j] = a[j * n + i] = f(i, j, n);
    return a;
}

/* ---- an independent oracle: cyclic Jacobi. Values ascending. Golub & Van Loan 2013, 8.5 */
static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void turn(int64_t n, double c, double s, double *x, double *y, int64_t stride)
{
    for (int64_t k = 0; k < n; k++) {
        double u = x[k * stride], v = y[k * stride];
        x[k * stride] = c * u - s * v;
        y[k * stride] = s * u + c * v;
    }
}

static void jacobi(int64_t n, double *a, double *values)
{
    for (int sweep = 0; sweep < 30; sweep++)
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                if (fabs(a[p * n + q]) < 1e-17) continue;       /* |A| is 1 here */
                double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
                double t = (theta < 0 ? -1 : 1) / (fabs(theta) + hypot(1, theta));
                double c = 1 / sqrt(1 + t * t);
                turn(n, c, c * t, a + p * n, a + q * n, 1);
                turn(n, c, c * t, a + p, a + q, n);
            }
    for (int64_t i = 0; i < n; i++) values[i] = a[i * n + i];
    qsort(values, (size_t)n, sizeof *values, ascending);
}

/* ---- what must hold for every symmetric matrix, relative to |A|_F */
typedef struct errors { double residual, orthogonal, oracle, only; } errors;

static double largest_of(int64_t n, const double *x)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) if (fabs(x[i]) > largest) largest = fabs(x[i]);
    return largest;
}

static double norm_of(int64_t n, const double *x)
{
    double largest = largest_of(n, x), sum = 0;
    for (int64_t i = 0; i < n && largest > 0; i++) sum += pow(x[i] / largest, 2);
    return largest > 0 ? largest * sqrt(sum) : 1;
}

/* Is the first component of the largest magnitude, up to rounding to float where that was done, positive? */
static bool points_up(int64_t n, const double *x, double rounding)
{
    double  size = largest_of(n, x) * (1 - rounding);
    int64_t i = 0;
    for (; i < n; i++) {
        if (x[i] >= size) return true;
        if (x[i] <= -size && rounding == 0) return false;
    }
    return false;
}

static void measure(int64_t n, const double *a, double size, const double *values, const double *vectors, double rounding, errors *worst)
{
    double *row = doubles(n);
    for (int64_t i = 0; i < n; i++) {
        const double *x = vectors + i * n;
        double        residual = 0;
        CHECK(i == 0 || values[i - 1] <= values[i]);
        CHECK(points_up(n, x, rounding));
        memset(row, 0, (size_t)n * sizeof *row);
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < n; j++) row[j] += a[k * n + j] / size * x[k];
        for (int64_t j = 0; j < n; j++) residual += pow(row[j] - values[i] / size * x[j], 2);
        test_raise(&worst->residual, sqrt(residual));
        for (int64_t j = 0; j <= i; j++) {
            double product = -(double)(i == j);
            for (int64_t k = 0; k < n; k++) product += x[k] * vectors[j * n + k];
            test_raise(&worst->orthogonal, fabs(product));
        }
    }
}

static void check(tn_ctx *ctx, int64_t n, entry f, errors *worst)
{
    tn_eigh_desc values_only = ZERO;
    double *a = matrix_by(n, f), *values = doubles(n), *only = doubles(n), *vectors = doubles(n * n), size = norm_of(n * n, a);
    values_only.no_vectors = true;
    CHECK_STATUS(solve(ctx, n, a, NULL, values, vectors), TN_OK);
    CHECK_STATUS(solve(ctx, n, a, &values_only, only, NULL), TN_OK);
    measure(n, a, size, values, vectors, tn_ctx_dtype(ctx) == TN_F32 ? 0x1p-23 : 0, worst);
    for (int64_t i = 0; i < n; i++) test_raise(&worst->only, fabs(only[i] - values[i]) / size);
    if (n <= 33 || n == 65) {
        for (int64_t i = 0; i < n * n; i++) a[i] /= size;
        jacobi(n, a, only);
        for (int64_t i = 0; i < n; i++) test_raise(&worst->oracle, fabs(only[i] - values[i] / size));
    }
    CHECK_CTX(ctx);
}

static void report(const errors *e, double eps)
{
    WORST("|A v - l v| / |A|", e->residual, 40 * eps);
    WORST("|v_i . v_j - delta_ij|", e->orthogonal, (FLT_EVAL_METHOD == 2 ? 80 : 40) * eps);      /* the x87 rounds twice */
    WORST("|l - l without vectors| / |A|", e->only, 20 * eps);
    if (e->oracle > 0) WORST("|l - Jacobi's| / |A|", e->oracle, 100 * eps);     /* mostly Jacobi's, for residuals bound ours */
}

/* ---- the tests */
static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 21, 31, 32, 33, 63, 64, 65, 84, 127, 128, 129};
enum { SIZES = (int)(sizeof sizes / sizeof *sizes) };

static void every_matrix(tn_simd simd)
{
    errors  worst = {0, 0, 0, 0};
    tn_ctx *ctx = context(TN_F64, simd, 1, NULL);
    printf("%s\n", tn_ctx_simd_name(ctx));
    for (int k = 0; k < ENTRIES; k++)
        for (int s = 0; s < SIZES; s++) check(ctx, sizes[s], entries[k], &worst);
    report(&worst, EPS);
    tn_ctx_destroy(ctx);
}

TEST(every_matrix_plain)  { every_matrix(TN_SIMD_PLAIN); }
TEST(every_matrix_avx2)   { every_matrix(TN_SIMD_AVX2); }
TEST(every_matrix_avx512) { every_matrix(TN_SIMD_AVX512); }

/* Larger than a leaf's children, and divided into two or eight bands; rows that are stored further apart. */
TEST(large)
{
    errors  worst = {0, 0, 0, 0};
    tn_ctx *ctx = context(TN_F64, TN_SIMD_AUTO, 1, NULL);
    for (int k = 0; k < ENTRIES; k++) check(ctx, 257, entries[k], &worst);
    check(ctx, 777, uniform, &worst);
    check(ctx, 256, uniform, &worst);
    report(&worst, EPS);
    tn_ctx_destroy(ctx);
}

/* Vectors are computed in float; values are as exact as a float can be. */
TEST(in_float)
{
    static const entry some[] = {uniform, graded, glued, clustered, deficient};
    for (int level = TN_SIMD_PLAIN; level <= TN_SIMD_AVX512; level++) {
        errors  worst = {0, 0, 0, 0};
        tn_ctx *ctx = context(TN_F32, (tn_simd)level, 1, NULL);
        printf("%s\n", tn_ctx_simd_name(ctx));
        for (int k = 0; k < 5; k++)
            for (int s = 0; s < SIZES; s++) check(ctx, sizes[s], some[k], &worst);
        if (level == TN_SIMD_AVX512) check(ctx, 545, uniform, &worst);
        WORST("|A v - l v| / |A|", worst.residual, 40 * 0x1p-25);
        WORST("|v_i . v_j - delta_ij|", worst.orthogonal, 20 * 0x1p-24);
        WORST("|l - l without vectors| / |A|", worst.only, 0x1p-24);
        WORST("|l - Jacobi's| / |A|", worst.oracle, 2 * 0x1p-24);
        tn_ctx_destroy(ctx);
    }
}

/* The values of an F32 context are those of an F64 one, rounded, for a matrix whose elements are floats. */
TEST(values_of_floats)
{
    static const int64_t n = 300;
    double *a = matrix_by(n, uniform), values[300], exact[300], worst = 0;
    double *vectors = doubles(n * n);
    for (int64_t i = 0; i < n * n; i++) a[i] = (double)(float)a[i];
    for (int k = 0; k < 2; k++) {
        tn_ctx *ctx = context(k ? TN_F32 : TN_F64, TN_SIMD_AUTO, 1, NULL);
        CHECK_STATUS(solve(ctx, n, a, NULL, k ? values : exact, vectors), TN_OK);
        tn_ctx_destroy(ctx);
    }
    for (int64_t i = 0; i < n; i++) test_raise(&worst, fabs(values[i] - exact[i]) / (0x1p-24 * fabs(exact[i]) + 1e-13));
    WORST("difference in halves of the last bit", worst, 1.001);
}

TEST(known)
{
    double *a = matrix_by(200, toeplitz), values[200], vectors[200 * 200], worst = 0, w[21];
    tn_ctx *ctx = context(TN_F64, TN_SIMD_AUTO, 1, NULL);
    CHECK_STATUS(solve(ctx, 200, a, NULL, values, vectors), TN_OK);
    for (int k = 1; k <= 200; k++) test_raise(&worst, fabs(values[k - 1] - (2 - 2 * cos(k * 3.14159265358979323846 / 201))));
    WORST("second differences", worst, 1e-14);
    a = matrix_by(21, wilkinson);                               /* Wilkinson 1965: the largest two agree to 14 places */
    CHECK_STATUS(solve(ctx, 21, a, NULL, w, vectors), TN_OK);
    CHECK_NEAR(w[20], 10.746194182903393, 1e-14);
    CHECK_NEAR(w[19], 10.746194182903322, 1e-14);
    tn_ctx_destroy(ctx);
}

TEST(same_bits)
{
    static const int64_t n = 257;
    static const entry   some[] = {uniform, clustered};
    double *first = doubles(n * n), *again = doubles(n * n), values[257], others[257];
    for (int level = TN_SIMD_PLAIN; level <= TN_SIMD_AVX512; level++)
        for (int k = 0; k < 4; k++)
            for (int threads = 1; threads <= 4; threads++) {
                double *a = matrix_by(n, some[k / 2]);
                tn_ctx *ctx = context(k % 2 ? TN_F32 : TN_F64, (tn_simd)level, threads,
                                      threads == 4 ? pool_backwards : NULL);
                CHECK_STATUS(solve(ctx, n, a, NULL, threads == 1 ? values : others, threads == 1 ? first : again), TN_OK);
                CHECK(threads == 1 || memcmp(first, again, (size_t)(n * n) * sizeof *first) == 0);
                CHECK(threads == 1 || memcmp(values, others, sizeof values) == 0);
                tn_ctx_destroy(ctx);
            }
}

/* A power of two that multiplies the matrix multiplies the values, and changes no bit, whether sums of squares leave the range or
   not: those of 2^70 and of 2^-70 are scaled before, the ones next to them are not. */
TEST(any_magnitude)
{
    static const int     exponents[] = {-1000, -520, -70, -60, 50, 70, 100, 500, 990};
    static const int64_t orders[] = {1, 5, 33, 256};
    double *first = doubles(256 * 256), *again = doubles(256 * 256), values[256], others[256];
    for (int k = 0; k < 8; k++) {
        const int64_t n = orders[k / 2];
        tn_ctx *ctx = context(k % 2 ? TN_F32 : TN_F64, TN_SIMD_AUTO, 1, NULL);
        CHECK_STATUS(solve(ctx, n, matrix_by(n, uniform), NULL, values, first), TN_OK);
        for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
            double *a = matrix_by(n, uniform);
            if (k % 2 && abs(exponents[e]) > 100) continue;                     /* not floats */
            for (int64_t i = 0; i < n * n; i++) a[i] = ldexp(k % 2 ? (double)(float)a[i] : a[i], exponents[e]);
            CHECK_STATUS(solve(ctx, n, a, NULL, others, again), TN_OK);
            for (int64_t i = 0; i < n; i++) CHECK_NEAR(ldexp(others[i], -exponents[e]), values[i], 0);
            CHECK(memcmp(first, again, (size_t)(n * n) * sizeof *first) == 0);
        }
        tn_ctx_destroy(ctx);
    }
}

TEST(not_finite)
{
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    double  values[100], *vectors = doubles(100 * 100);
    tn_ctx *ctx = context(TN_F64, TN_SIMD_AUTO, 1, NULL);
    for (int k = 0; k < 6; k++) {
        double *a = matrix_by(100, uniform);
        a[99 * 100 + 40] = bad[k % 3];
        if (k >= 3) a[0] = 1e300;                           /* whose square is infinite */
        FAILS(ctx, solve(ctx, 100, a, NULL, values, vectors), TN_ERR_NONFINITE, "eigh: a, [100,100], has NaN or infinity");
    }
    tn_ctx_destroy(ctx);
}

TEST_MAIN(every_matrix_plain, every_matrix_avx2, every_matrix_avx512, large, in_float, values_of_floats, known, same_bits, any_magnitude, not_finite)
