/* test_eig.c: what to keep of a spectrum, clusters, batches, non-symmetric eigenpairs, pivoted QR, least squares, some
   singular values. Bounds are multiples of eps times the norm and the extent, as in LAPACK's own tests. */

#include "pool.h"
#include "kit.h"

#define EPS 0x1p-52

static tn_tensor *tensor_of(tn_ctx *ctx, int rank, int64_t a, int64_t b, int64_t c, const double *p)
{
    const int64_t shape[3] = {a, b, c};
    tn_tensor    *t = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    CHECK_STATUS(tn_write(t, TN_F64, p, tn_tensor_count(t)), TN_OK);
    return t;
}

static tn_tensor *matrix_of(tn_ctx *ctx, int64_t m, int64_t n, const double *p) { return tensor_of(ctx, 2, m, n, 1, p); }

static double norm(const double *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * a[i];
    return sqrt(sum);
}

/* c[m,n] = a[m,k] b[k,n] */
static double *product(int64_t m, int64_t n, int64_t k, const double *a, const double *b)
{
    double *c = doubles(m * n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++) c[i * n + j] += a[i * k + l] * b[l * n + j];
    return c;
}

/* Q of a random [n,n], by Gram and Schmidt, twice: rows are orthonormal. */
static double *orthogonal(int64_t n, uint64_t seed)
{
    double *q = random_doubles(n * n, seed);
    for (int64_t i = 0; i < n; i++)
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t j = 0; j < i; j++) {
                double dot = 0;
                for (int64_t l = 0; l < n; l++) dot += q[i * n + l] * q[j * n + l];
                for (int64_t l = 0; l < n; l++) q[i * n + l] -= dot * q[j * n + l];
            }
            double length = norm(q + i * n, n);
            for (int64_t l = 0; l < n; l++) q[i * n + l] /= length;
        }
    return q;
}

/* Q^T diag(values) Q, exactly symmetric */
static double *with_eigenvalues(int64_t n, const double *values, uint64_t seed)
{
    double *q = orthogonal(n, seed), *a = doubles(n * n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < n; l++) sum += q[l * n + i] * values[l] * q[l * n + j];
            a[i * n + j] = a[j * n + i] = sum;
        }
    return a;
}

/* ---- which values to keep ---------------------------------------------------------------------------------- */

static int64_t kept(int64_t rank, double absolute, double relative, double weight, int64_t n, const double *values,
                    double *dropped)
{
    tn_truncation t = ZERO;
    t.rank = rank; t.absolute = absolute; t.relative = relative; t.weight = weight;
    return tn_truncation_count(&t, n, values, dropped);
}

TEST(truncation_rules)
{
    static const double v[6] = {-4, 3, 2, -1, 0.5, 0}, zeros[3] = {0, 0, 0}, huge[3] = {2e200, 1e200, 1e200};
    const double all = 16 + 9 + 4 + 1 + 0.25;
    double dropped;
    CHECK_INT(kept(0, 0, 0, 0, 6, v, &dropped), 6); CHECK(dropped == 0);
    CHECK_INT(tn_truncation_count(NULL, 6, v, NULL), 6);
    CHECK_INT(kept(2, 0, 0, 0, 6, v, &dropped), 2); CHECK_NEAR(dropped, 5.25 / all, EPS);
    CHECK_INT(kept(9, 0, 0, 0, 6, v, NULL), 6);
    CHECK_INT(kept(0, 1, 0, 0, 6, v, &dropped), 3); CHECK_NEAR(dropped, 1.25 / all, EPS);
    CHECK_INT(kept(0, 9, 0, 0, 6, v, &dropped), 0); CHECK(dropped == 1);
    CHECK_INT(kept(0, 0, 0.25, 0, 6, v, NULL), 3);
    CHECK_INT(kept(0, 0, 0.2499, 0, 6, v, NULL), 4);
    CHECK_INT(kept(0, 0, 0, 1.25 / all * (1 + 1e-12), 6, v, &dropped), 3); CHECK_NEAR(dropped, 1.25 / all, EPS);
    CHECK_INT(kept(0, 0, 0, 1.25 / all * (1 - 1e-12), 6, v, NULL), 4);
    CHECK_INT(kept(0, 0, 0, 1e-30, 6, v, NULL), 5);                      /* the zero costs nothing */
    CHECK_INT(kept(0, 0, 0, 2, 6, v, NULL), 0);
    CHECK_INT(kept(4, 0.6, 0.6, 1e-3, 6, v, NULL), 2);                   /* the strictest rule decides */
    CHECK_INT(kept(0, 0, 0, 0, 3, zeros, &dropped), 3); CHECK(dropped == 0);
    CHECK_INT(kept(0, 0, 0, 0.1, 3, zeros, NULL), 0);
    CHECK_INT(kept(1, 1, 1, 1, 0, NULL, &dropped), 0); CHECK(dropped == 0);
    CHECK_INT(kept(0, 0, 0, 0.34, 3, huge, &dropped), 1); CHECK_NEAR(dropped, 1.0 / 3, EPS);
}

TEST(truncation_of_results)
{
    static const double values[5] = {-3, 1e-3, 2, -1, 1e-6};
    tn_ctx        *ctx = ctx_of(TN_F64);
    double        *a = with_eigenvalues(5, values, 3);
    tn_tensor     *t = matrix_of(ctx, 5, 5, a);
    tn_eigh_desc   ed = ZERO;
    tn_svd_desc    sd = ZERO;
    tn_eigh_result e;
    tn_svd_result  s;
    ed.truncation.absolute = 0.5;
    ed.measure = true;
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &ed, &e), TN_OK));
    CHECK_INT(e.values->shape[0], 3); CHECK_INT(e.vectors->shape[0], 3);
    double *v = host(e.values);
    CHECK_NEAR(v[0], -3, 1e-14); CHECK_NEAR(v[1], -1, 1e-14); CHECK_NEAR(v[2], 2, 1e-14);     /* ascending, as asked */
    CHECK_NEAR(e.error, sqrt((1e-6 + 1e-12) / (14 + 1e-6 + 1e-12)), 1e-12);
    tn_eigh_destroy(&e);
    ed.top = 2;                                                              /* of those kept, the two smallest */
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &ed, &e), TN_OK));
    v = host(e.values);
    CHECK_INT(e.values->shape[0], 2); CHECK_NEAR(v[0], -3, 1e-14); CHECK_NEAR(v[1], -1, 1e-14);
    tn_eigh_destroy(&e);
    sd.truncation.weight = 1e-3 * 1e-3 / 13;
    REQUIRE(CHECK_STATUS(tn_svd(ctx, t, &sd, &s), TN_OK));
    CHECK_INT(s.s->shape[0], 3); CHECK_INT(s.u->shape[1], 3); CHECK_INT(s.vt->shape[0], 3);
    tn_svd_destroy(&s);
    sd.truncation.weight = -1;
    FAILS(ctx, tn_svd(ctx, t, &sd, &s), TN_ERR_ARG, "svd: truncation.weight is -1, expected 0 or more");
    ed.truncation.rank = -2;
    FAILS(ctx, tn_eigh(ctx, t, &ed, &e), TN_ERR_ARG, "eigh: truncation.rank is -2, expected 0 or more");
    tn_ctx_destroy(ctx);
}

/* ---- symmetric: the check, clusters, batches ---------------------------------------------------------------- */

TEST(eigh_refuses_what_is_not_symmetric)
{
    static const tn_dtype dtypes[3] = {TN_F64, TN_F32, TN_BF16};
    static const double   small[3] = {1e-13, 5e-5, 0.06}, large[3] = {1e-12, 5e-4, 0.12};  /* on either side */
    tn_ctx *ctx = ctx_of(TN_F64);
    for (int k = 0; k < 3; k++)
        for (int big = 0; big < 2; big++) {
            double         a[9] = {2, 1, 0.5, 1, 1, 1, 0.5, 1, 1};
            const int64_t  shape[2] = {3, 3};
            tn_tensor     *t = tn_tensor_nd(ctx, dtypes[k], 2, shape);
            tn_eigh_result e;
            tn_eigh_desc   desc = ZERO;
            a[7] += 2 * (big ? large[k] : small[k]);                         /* a[2,1], relative to the 2 */
            CHECK_STATUS(tn_write(t, TN_F64, a, 9), TN_OK);
            CHECK_STATUS(tn_eigh(ctx, t, NULL, &e), big ? TN_ERR_ARG : TN_OK);
            if (big) CHECK_ERROR(ctx, TN_ERR_ARG, "eigh: a is not symmetric: |a[2,1] - a[1,2]| is ");
            tn_eigh_destroy(&e);
            desc.symmetrise = true;
            CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK);
            tn_eigh_destroy(&e);
        }
    tn_ctx_destroy(ctx);
}

/* Values 1, 1, 1, 2, 3, 3 + 1e-13, 7: the ones are a cluster, and the threes. */
TEST(clusters_of_eigenvalues)
{
    static const double values[7] = {1, 1, 1, 2, 3, 3 + 1e-13, 7};
    static const double expected[7] = {0, 0, 0, 3, 4, 4, 6}, gap[7] = {1, 1, 1, 1, 1, 1, 4};
    tn_ctx        *ctx = ctx_of(TN_F64);
    double        *a = with_eigenvalues(7, values, 11);
    tn_tensor     *t = matrix_of(ctx, 7, 7, a);
    tn_eigh_desc   desc = ZERO;
    tn_eigh_result e;
    tn_svd_desc    sd = ZERO;
    tn_svd_result  s;
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, NULL, &e), TN_OK));
    CHECK_INT(e.cluster->dtype, TN_I32);
    double *c = host(e.cluster), *angle = host(e.angle);
    for (int i = 0; i < 7; i++) {
        CHECK(c[i] == expected[i]);
        CHECK_NEAR(angle[i], 2 * EPS * norm(a, 49) / gap[i], 1e-2 * EPS * norm(a, 49) / gap[i]);
    }
    tn_eigh_destroy(&e);
    desc.order = TN_EIGH_MAGNITUDE;                                          /* 7, 3, 3, 2, 1, 1 | 1 */
    desc.top = 6;
    desc.noise = 0.01;                                                       /* 2 |E| is 0.17: all closer than 17 are one */
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK));
    c = host(e.cluster);
    angle = host(e.angle);
    for (int i = 0; i < 6; i++) CHECK(c[i] == 0 && angle[i] == 1);           /* a member is not kept */
    tn_eigh_destroy(&e);
    desc.noise = 0;
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK));
    c = host(e.cluster);
    angle = host(e.angle);
    CHECK(c[0] == 0 && c[1] == 1 && c[2] == 1 && c[3] == 3 && c[4] == 4 && c[5] == 4);
    CHECK(angle[3] < 1e-14 && angle[4] == 1 && angle[5] == 1);
    tn_eigh_destroy(&e);
    desc.noise = 2;
    FAILS(ctx, tn_eigh(ctx, t, &desc, &e), TN_ERR_ARG, "eigh: noise is 2, expected 0 to 1");
    REQUIRE(CHECK_STATUS(tn_svd(ctx, t, &sd, &s), TN_OK));
    c = host(s.cluster);
    CHECK(c[0] == 0 && c[1] == 1 && c[2] == 1 && c[3] == 3 && c[4] == 4 && c[5] == 4 && c[6] == 4);
    tn_svd_destroy(&s);
    for (int m = 3; m <= 4; m++) {                       /* 2, 1, 0; the fourth row has a zero, too */
        double null[12] = {2, 0, 0, 0, 1};
        REQUIRE(CHECK_STATUS(tn_svd(ctx, matrix_of(ctx, m, 3, null), NULL, &s), TN_OK));
        angle = host(s.angle);
        CHECK_NEAR(angle[2], m == 3 ? 2 * EPS * sqrt(5) : 1, EPS);
        tn_svd_destroy(&s);
    }
    CLOSE_CTX(ctx);
}

/* The bound holds: a random perturbation of the stated size turns each cluster's subspace by at most its angle. */
TEST(clusters_bound_the_angle)
{
    enum { N = 12 };
    static const double values[N] = {-5, -5, -2, 0, 0, 1e-9, 1, 1.5, 4, 4, 4, 9};
    tn_ctx        *ctx = ctx_of(TN_F64);
    double        *a = with_eigenvalues(N, values, 5), *e = random_doubles(N * N, 6), worst = 0;
    const double   noise = 1e-4;
    tn_eigh_desc   desc = ZERO;
    tn_eigh_result r;
    desc.noise = noise;
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, matrix_of(ctx, N, N, a), &desc, &r), TN_OK));
    double *c = host(r.cluster), *angle = host(r.angle), *before = host(r.vectors);
    tn_eigh_destroy(&r);
    for (int i = 0; i < N; i++) for (int j = 0; j < i; j++) e[i * N + j] = e[j * N + i];
    for (int i = 0; i < N * N; i++) a[i] += e[i] / norm(e, N * N) * noise * norm(values, N);
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, matrix_of(ctx, N, N, a), &desc, &r), TN_OK));
    double *after = host(r.vectors);
    tn_eigh_destroy(&r);
    for (int i = 0; i < N; i++) {                                            /* the part outside of its old cluster */
        double inside = 0;
        for (int j = 0; j < N; j++) {
            double dot = 0;
            if (c[j] != c[i]) continue;
            for (int l = 0; l < N; l++) dot += after[i * N + l] * before[j * N + l];
            inside += dot * dot;
        }
        CHECK(angle[i] > 0 && angle[i] < 0.02);
        test_raise(&worst, (inside < 1 ? sqrt(1 - inside) : inside - 1) / angle[i]);
    }
    WORST("sine of the angle / its bound", worst, 1);
    CHECK(worst > 1e-3);
    tn_ctx_destroy(ctx);
}

/* Each matrix of a batch as when it is alone, bit for bit, whatever the number of threads. */
TEST(batches_of_eigen)
{
    static const int64_t sizes[] = {1, 2, 7, 33, 0};
    for (int threads = 1; threads < 4; threads++)
        for (size_t z = 0; z < 5; z++)
            for (int measure = 0; measure < 2; measure++) {
                const int64_t  n = sizes[z], b = z == 2 ? 1 : 5;
                tn_ctx        *ctx = ctx_threads(z % 2 ? TN_F32 : TN_F64, threads, pool_backwards);
                double        *a = random_doubles((b * n) * (n), 17), worst = 0;
                tn_eigh_desc   desc = ZERO;
                tn_eigh_result all, one;
                desc.order = measure ? TN_EIGH_MAGNITUDE : TN_EIGH_ASCENDING;
                desc.measure = measure != 0;
                desc.symmetrise = true;
                if (n > 2) desc.top = 3;
                REQUIRE(CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, b, n, n, a), &desc, &all), TN_OK));
                CHECK_INT(all.values->rank, 2); CHECK_INT(all.vectors->rank, 3); CHECK_INT(all.angle->shape[0], b);
                CHECK_INT(all.vectors->shape[2], n);
                double *values = host(all.values), *vectors = host(all.vectors);
                for (int64_t i = 0; i < b; i++) {
                    REQUIRE(CHECK_STATUS(tn_eigh(ctx, matrix_of(ctx, n, n, a + i * n * n), &desc, &one), TN_OK));
                    double *v = host(one.values), *x = host(one.vectors);
                    const int64_t k = one.values->shape[0];
                    CHECK(memcmp(v, values + i * k, (size_t)k * sizeof *v) == 0);
                    CHECK(memcmp(x, vectors + i * k * n, (size_t)(k * n) * sizeof *x) == 0);
                    if (measure) test_raise(&worst, one.error);
                    tn_eigh_destroy(&one);
                }
                if (measure) CHECK(all.error == worst);
                tn_eigh_destroy(&all);
                CLOSE_CTX(ctx);
            }
    {
        tn_ctx        *ctx = ctx_of(TN_F64);
        double         a[8] = {1, 2, 2, 1, 0, 1, 1, (double)NAN};
        tn_eigh_result e;
        CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, 2, 2, 2, a), NULL, &e), TN_ERR_NONFINITE);
        tn_ctx_clear_error(ctx);
        a[7] = 0; a[6] = 3;
        CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, 2, 2, 2, a), NULL, &e), TN_ERR_ARG);
        CHECK_ERROR(ctx, TN_ERR_ARG, "eigh: a is not symmetric: |a[1,1,0] - a[1,0,1]|");
        FAILS(ctx, tn_eigh(ctx, tensor_of(ctx, 3, 1, 2, 4, a), NULL, &e), TN_ERR_SHAPE, "eigh: a is [1,2,4], expected [b,n,n]");
        CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, 0, 4, 4, a), NULL, &e), TN_OK);
        CHECK_INT(e.vectors->shape[0], 0); CHECK_INT(e.vectors->shape[1], 4);
        tn_eigh_destroy(&e);
        tn_ctx_destroy(ctx);
    }
}

/* ---- eigenpairs of any square matrix -------------------------------------------------------------------------- */

typedef struct eig_errors { double right, left, pairing, condition; } eig_errors;

/* Residuals over eps n |A|_F, norms, order, pairs, signs; of the left vectors, too. */
static void check_eig(tn_ctx *ctx, int64_t n, const double *a, eig_errors *worst)
{
    const double  size = norm(a, n * n), unit = EPS * (double)(n > 0 ? n : 1);
    tn_eig_desc   desc = ZERO;
    tn_eig_result e;
    desc.left = desc.measure = true;
    if (!CHECK_STATUS(tn_eig(ctx, matrix_of(ctx, n, n, a), &desc, &e), TN_OK)) { tn_ctx_clear_error(ctx); return; }
    double *l = host(e.values), *x = host(e.right), *y = host(e.left), *c = host(e.condition);
    CHECK(e.residual >= 0 && (n == 0 || e.residual <= 30 * unit));
    for (int64_t i = 0; i < n; i++) {
        const double *xr = x + 2 * i * n, *xi = xr + n, *yr = y + 2 * i * n, *yi = yr + n, re = l[2 * i], im = l[2 * i + 1];
        double right = 0, left = 0, dot_re = 0, dot_im = 0;
        CHECK(i == 0 || hypot(re, im) <= hypot(l[2 * i - 2], l[2 * i - 1]) * (1 + EPS));
        if (im > 0) {
            CHECK(i + 1 < n && l[2 * i + 2] == re && l[2 * i + 3] == -im);
            for (int64_t j = 0; j < n; j++)
                CHECK(xr[2 * n + j] == xr[j] && xi[2 * n + j] == -xi[j] && yi[2 * n + j] == -yi[j]);
        }
        if (im == 0) for (int64_t j = 0; j < n; j++) CHECK(xi[j] == 0 && yi[j] == 0);
        test_raise(&worst->pairing, fabs(norm(xr, 2 * n) - 1) / EPS);
        test_raise(&worst->pairing, fabs(norm(yr, 2 * n) - 1) / EPS);
        for (int64_t j = 0; j < n; j++) {
            double p = -re * xr[j] + im * xi[j], q = -re * xi[j] - im * xr[j];               /* A x - l x */
            double r = -re * yr[j] - im * yi[j], t = -re * yi[j] + im * yr[j];               /* A^T y - conj(l) y */
            for (int64_t k = 0; k < n; k++) {
                p += a[j * n + k] * xr[k]; q += a[j * n + k] * xi[k];
                r += a[k * n + j] * yr[k]; t += a[k * n + j] * yi[k];
            }
            right += p * p + q * q;
            left += r * r + t * t;
            dot_re += yr[j] * xr[j] + yi[j] * xi[j];
            dot_im += yr[j] * xi[j] - yi[j] * xr[j];
        }
        test_raise(&worst->right, sqrt(right) / (size > 0 ? size * unit : 1));
        test_raise(&worst->left, sqrt(left) / (size > 0 ? size * unit : 1));
        test_raise(&worst->condition, fabs(dot_im) / EPS);
        CHECK(dot_re >= -8 * EPS && c[i] >= 1);
        if (dot_re > 1e-8) test_raise(&worst->condition, fabs(c[i] * dot_re - 1) * dot_re / EPS);
    }
    tn_eig_destroy(&e);
    tn_ctx_reset(ctx);
}

static void report_eig(const eig_errors *worst)
{
    WORST("|A x - l x| / (n eps |A|)", worst->right, 30);
    WORST("|y^H A - l y^H| / (n eps |A|)", worst->left, 30);
    WORST("lengths of vectors, in eps", worst->pairing, 30);
    WORST("y^H x, in eps", worst->condition, 60);
}

TEST(eig_random)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 8, 17, 33, 34, 35, 36, 67, 100};
    eig_errors worst = {0, 0, 0, 0};
    tn_ctx    *ctx = ctx_of(TN_F64);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        double *a = random_doubles(sizes[k] * sizes[k], 40 + k);
        check_eig(ctx, sizes[k], a, &worst);
    }
    report_eig(&worst);
    CLOSE_CTX(ctx);
}

static double hard_entry(int kind, int64_t i, int64_t j, int64_t n, const double *noise)
{
    const double x = noise[i * n + j];
    switch (kind) {
    case 0: return 0;
    case 1: return i == j;
    case 2: return (i + 1) % n == j;                                         /* a cycle: all values on the unit circle */
    case 3: return i == j ? 3 : i + 1 == j;                                  /* one Jordan block */
    case 4: return i <= j ? x : 0;
    case 5: return i >= j ? x : 0;
    case 6: return x * pow(10, -8.0 * (double)(i + j) / (double)n);          /* graded */
    case 7: return x * pow(10, 8.0 * (double)(i - j) / (double)n);           /* badly balanced */
    case 8: return noise[i] * noise[j];                                      /* rank 1 */
    case 9: return i < j ? x : i > j ? -noise[j * n + i] : 0;                /* skew */
    case 10: return i == 0 ? -(double)(j + 1) : i == j + 1;                  /* companion */
    case 11: return (double)(i == j) + 1e-9 * x;                             /* one cluster */
    case 12: return j == n - 1 ? x : i == j + 1;                             /* companion, the other way */
    case 13: return x * pow(10, 100.0 * (double)(i - j) / (double)n);        /* 10^200 from corner to corner */
    case 14: return i == j || i + 1 == j ? 2 + (double)(i % 3) : i == j + 1 ? 1e-30 : 0;
    case 15: return i == 0 || j == 0 || i == j ? 1 : 0;                      /* an arrow */
    default: return (i / 2 == j / 2) ? (i == j ? (double)(i / 2) : (double)(j - i)) : 0;      /* pairs */
    }
}

TEST(eig_hard)
{
    static const int64_t sizes[] = {2, 3, 6, 31, 50};
    static const double  scales[] = {1, 1e150, 1e-150};
    eig_errors worst = {0, 0, 0, 0};
    tn_ctx    *ctx = ctx_of(TN_F64);
    for (int kind = 0; kind <= 16; kind++)
        for (size_t z = 0; z < 5; z++)
            for (size_t c = 0; c < (z == 2 ? 3 : 1); c++) {
                const int64_t n = sizes[z];
                double *noise = random_doubles(n * n, 7), *a = doubles(n * n);
                for (int64_t i = 0; i < n * n; i++) a[i] = scales[c] * hard_entry(kind, i / n, i % n, n, noise);
                check_eig(ctx, n, a, &worst);
            }
    report_eig(&worst);
    CLOSE_CTX(ctx);
}

/* tools/golden_decomp.py */
static const double golden_general[] = {
    1.6287995673424411, 0, 1.0528664603327742, 0,
    -1.0194266087978765, 0.20749568586785552, -1.0194266087978765, -0.20749568586785552,
    0.25850953109878172, 0.98617190417788092, 0.25850953109878172, -0.98617190417788092,
    0.93515180584798641, 0.2889356807681665, 0.93515180584798641, -0.2889356807681665,
    -0.29631774198649824, 0.77840533313981841, -0.29631774198649824, -0.77840533313981841
};

TEST(eig_known)
{
    tn_ctx       *ctx = ctx_of(TN_F64);
    double        a[100], worst = 0;
    tn_eig_desc   values_only = ZERO;
    tn_eig_result e;
    values_only.no_vectors = true;
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 10; j++) a[i * 10 + j] = ((5 * i + 11 * j + 2 * i * j + i * i) % 23 - 11) / 16.0;
    for (int only = 0; only < 2; only++) {
        REQUIRE(CHECK_STATUS(tn_eig(ctx, matrix_of(ctx, 10, 10, a), only ? &values_only : NULL, &e), TN_OK));
        CHECK(!e.left && !e.condition && e.residual != e.residual && (only ? !e.right : e.right->shape[2] == 10));
        double *l = host(e.values);
        for (int i = 0; i < 20; i++) test_raise(&worst, fabs(l[i] - golden_general[i]));
        tn_eig_destroy(&e);
    }
    WORST("against LAPACK", worst, 2e-14);
    {   /* (x - 1)(x - 2)..(x - 6), and x^4 + 1 by its companion */
        static const double six[6] = {21, -175, 735, -1624, 1764, -720};
        double c[36] = {0}, one[16] = {0, 0, 0, -1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
        for (int j = 0; j < 6; j++) c[j] = six[j];
        for (int j = 0; j < 5; j++) c[(j + 1) * 6 + j] = 1;
        CHECK_STATUS(tn_eig(ctx, matrix_of(ctx, 6, 6, c), NULL, &e), TN_OK);
        double *l = host(e.values);
        for (int j = 0; j < 6; j++) { CHECK_NEAR(l[2 * j], 6 - j, 1e-11); CHECK(l[2 * j + 1] == 0); }
        tn_eig_destroy(&e);
        CHECK_STATUS(tn_eig(ctx, matrix_of(ctx, 4, 4, one), NULL, &e), TN_OK);
        l = host(e.values);
        for (int j = 0; j < 4; j++) {
            CHECK_NEAR(fabs(l[2 * j]), sqrt(0.5), 4 * EPS);
            CHECK_NEAR(fabs(l[2 * j + 1]), sqrt(0.5), 4 * EPS);
        }
        tn_eig_destroy(&e);
    }
    {   /* [1 1; 0 1+h]: y^H x = h / sqrt(1 + h^2), so the condition is about 1/h */
        double b[4] = {1, 1, 0, 1 + 1e-6};
        tn_eig_desc desc = ZERO;
        desc.left = true;
        CHECK_STATUS(tn_eig(ctx, matrix_of(ctx, 2, 2, b), &desc, &e), TN_OK);
        double *c = host(e.condition);
        CHECK_NEAR(c[0], 1e6, 1); CHECK_NEAR(c[1], 1e6, 1);
        tn_eig_destroy(&e);
    }
    CLOSE_CTX(ctx);
}

/* Equal bits for any number of threads; in floats; 180 rows take windows of many shifts and small blocks. */
TEST(eig_large)
{
    const int64_t n = 180;
    double       *a = random_doubles(n * n, 3), *first = NULL;
    eig_errors    worst = {0, 0, 0, 0};
    for (int threads = 1; threads < 4; threads += 2) {
        tn_ctx       *ctx = ctx_threads(TN_F64, threads, pool_backwards);
        tn_eig_result e;
        if (threads == 1) check_eig(ctx, n, a, &worst);
        REQUIRE(CHECK_STATUS(tn_eig(ctx, matrix_of(ctx, n, n, a), NULL, &e), TN_OK));
        double *x = host(e.right);
        if (first) CHECK(memcmp(x, first, sizeof *x * (size_t)(2 * n * n)) == 0);
        else first = x;
        tn_eig_destroy(&e);
        tn_ctx_destroy(ctx);
    }
    report_eig(&worst);
    {
        tn_ctx       *ctx = ctx_of(TN_F32);
        tn_eig_desc   desc = ZERO;
        tn_eig_result e;
        desc.measure = true;
        REQUIRE(CHECK_STATUS(tn_eig(ctx, matrix_of(ctx, n, n, a), &desc, &e), TN_OK));
        CHECK_INT(e.right->dtype, TN_F32);
        WORST("residual in floats", e.residual, 1e-7);
        tn_eig_destroy(&e);
        tn_ctx_destroy(ctx);
    }
}

TEST(eig_refuses)
{
    static const double bad[4] = {1, (double)INFINITY, 2, 3};
    tn_ctx       *ctx = ctx_of(TN_F64);
    tn_eig_result e;
    FAILS(ctx, tn_eig(ctx, matrix_of(ctx, 2, 2, bad), NULL, &e), TN_ERR_NONFINITE, "eig: a, [2,2], has NaN or infinity");
    FAILS(ctx, tn_eig(ctx, tn_tensor_2d(ctx, TN_REAL, 2, 3), NULL, &e), TN_ERR_SHAPE, "eig: a is [2,3], expected a square matrix");
    FAILS(ctx, tn_eig(ctx, tn_tensor_1d(ctx, TN_REAL, 2), NULL, &e), TN_ERR_SHAPE, "eig: a is [2], expected rank 2");
    CHECK_STATUS(tn_eig(ctx, tn_tensor_2d(ctx, TN_REAL, 2, 2), NULL, NULL), TN_ERR_ARG);
    CHECK(!e.values && !e.right);
    tn_eig_destroy(NULL);
    tn_ctx_clear_error(ctx);
    tn_ctx_destroy(ctx);
}

/* ---- pivoted QR and least squares ------------------------------------------------------------------------------- */

/* [m,n] of this rank; the singular values fall to 10^-grade. */
static double *of_rank(int64_t m, int64_t n, int64_t rank, double grade, uint64_t seed)
{
    double *left = random_doubles(m * rank, seed), *right = random_doubles(rank * n, seed + 1);
    for (int64_t i = 0; i < m * rank; i++) left[i] *= pow(10, -grade * (double)(i % rank) / (double)rank);
    double *a = product(m, n, rank, left, right);
    return a;
}

TEST(qr_with_pivots)
{
    static const int64_t shapes[][3] = {{5, 5, 5}, {40, 17, 17}, {17, 40, 17}, {33, 33, 6}, {50, 20, 1}, {1, 4, 1},
                                        {4, 1, 1},
                                        {6, 6, 0}, {0, 3, 0}, {3, 0, 0}, {70, 65, 30}};
    static const double scales[3] = {1, 1e150, 1e-150};
    tn_ctx *ctx = ctx_of(TN_F64);
    double  worst = 0;
    for (size_t z = 0; z < sizeof shapes / sizeof *shapes; z++)
        for (int c = 0; c < 3; c++) {
            const int64_t m = shapes[z][0], n = shapes[z][1], k = m < n ? m : n;
            double       *a = of_rank(m, n, shapes[z][2], 6, z);
            bool         *seen = (bool *)calloc((size_t)n + 1, sizeof *seen);
            tn_qr_desc    desc = ZERO;
            tn_qr_result  f;
            for (int64_t i = 0; i < m * n; i++) a[i] *= scales[c];
            desc.pivot = desc.measure = true;
            REQUIRE(CHECK_STATUS(tn_qr(ctx, matrix_of(ctx, m, n, a), &desc, &f), TN_OK));
            CHECK_INT(f.rank, shapes[z][2]);
            test_raise(&worst, f.error / (EPS * (double)(m + n)));
            double *r = host(f.r), *order = host(f.order);
            for (int64_t j = 0; j < n; j++) { CHECK(!seen[(int64_t)order[j]]); seen[(int64_t)order[j]] = true; }
            for (int64_t i = 0; i < k; i++) {
                double tail = 0;                                             /* each diagonal element bounds what follows */
                CHECK(r[i * n + i] >= 0 && (i == 0 || r[i * n + i] <= r[(i - 1) * n + i - 1]));
                for (int64_t j = i; j < n; j++) {
                    tail = 0;
                    for (int64_t l = i; l <= j && l < k; l++) tail += r[l * n + j] / scales[c] * (r[l * n + j] / scales[c]);
                    CHECK(sqrt(tail) <= r[i * n + i] / scales[c] * (1 + 1e-7) + 1e-15);
                }
            }
            free(seen);
            tn_qr_destroy(&f);
        }
    WORST("|A P - Q R| / (|A| eps (m + n))", worst, 2);
    {
        double a[6] = {1, 2, 3, 2, 4, (double)NAN};
        tn_qr_desc   desc = ZERO;
        tn_qr_result f;
        desc.pivot = true;
        CHECK_STATUS(tn_qr(ctx, matrix_of(ctx, 2, 3, a), &desc, &f), TN_ERR_NONFINITE);
        tn_ctx_clear_error(ctx);
        desc.tol = 1;
        FAILS(ctx, tn_qr(ctx, matrix_of(ctx, 2, 2, a), &desc, &f), TN_ERR_ARG, "qr: tol is 1, expected 0 <= tol < 1");
        desc.tol = 0;
        CHECK_STATUS(tn_qr(ctx, matrix_of(ctx, 2, 2, a), NULL, &f), TN_OK);
        CHECK(!f.order && f.rank == 0);
        tn_qr_destroy(&f);
    }
    CLOSE_CTX(ctx);
}

/* x is a solution if A^T (A x - b) + ridge x = 0, and the shortest if it is in the row space of A: x = A^T z, where the
   pivoted QR of A^T tells. Here by the pseudo-inverse of the SVD. */
TEST(lstsq_of_all_shapes)
{
    static const int64_t shapes[][3] = {{9, 9, 9}, {30, 11, 11}, {11, 30, 11}, {20, 20, 7}, {25, 10, 4}, {10, 25, 4}, {1, 6, 1},
                                        {6, 1, 1},
                                        {5, 5, 0}, {0, 4, 0}, {4, 0, 0}};
    static const double  scales[3] = {1, 1e150, 1e-150};
    tn_ctx *ctx = ctx_of(TN_F64);
    double  normal = 0, length = 0, residual = 0;
    for (size_t z = 0; z < sizeof shapes / sizeof *shapes; z++)
        for (int c = 0; c < 3; c++)
            for (int ridge = 0; ridge < (c ? 1 : 2); ridge++) {
                const int64_t   m = shapes[z][0], n = shapes[z][1], count = 3, k = m < n ? m : n;
                double         *a = of_rank(m, n, shapes[z][2], 3, 60 + z), *b = random_doubles(m * count, 5);
                const double    unit = norm(a, m * n);
                tn_lstsq_desc   desc = ZERO;
                tn_lstsq_result f;
                tn_svd_result   d;
                desc.ridge = ridge ? 0.01 : 0;
                REQUIRE(CHECK_STATUS(tn_svd(ctx, matrix_of(ctx, m, n, a), NULL, &d), TN_OK));
                double *u = host(d.u), *s = host(d.s), *vt = host(d.vt);
                tn_svd_destroy(&d);
                for (int64_t i = 0; i < m * n; i++) a[i] *= scales[c];
                REQUIRE(CHECK_STATUS(tn_lstsq(ctx, matrix_of(ctx, m, n, a), matrix_of(ctx, m, count, b), &desc, &f), TN_OK));
                CHECK_INT(f.rank, ridge ? n : shapes[z][2]);
                CHECK_INT(f.x->shape[0], n); CHECK_INT(f.x->shape[1], count);
                double *x = host(f.x), *rest = host(f.residual);
                for (int64_t j = 0; j < count; j++) {
                    double *expected = doubles(n), size = 0, off = 0, least = 0, gradient = 0;
                    for (int64_t l = 0; l < k; l++) {
                        double dot = 0;
                        for (int64_t i = 0; i < m; i++) dot += u[i * k + l] * b[i * count + j];
                        if (l >= shapes[z][2]) continue;
                        for (int64_t i = 0; i < n; i++)
                            expected[i] += vt[l * n + i] * dot * s[l] / (s[l] * s[l] + desc.ridge);
                    }
                    for (int64_t i = 0; i < m; i++) {
                        double sum = b[i * count + j];
                        for (int64_t l = 0; l < n; l++) sum -= a[i * n + l] * x[l * count + j];
                        least += sum * sum;
                    }
                    for (int64_t l = 0; l < n; l++) {
                        double sum = -desc.ridge * x[l * count + j];
                        for (int64_t i = 0; i < m; i++) {
                            double row = b[i * count + j];
                            for (int64_t q = 0; q < n; q++) row -= a[i * n + q] * x[q * count + j];
                            sum += a[i * n + l] / scales[c] * row;
                        }
                        gradient += sum * sum;
                    }
                    for (int64_t i = 0; i < n; i++) {
                        const double e = expected[i], got = x[i * count + j] * scales[c];
                        off += (got - e) * (got - e);
                        size += e * e;
                    }
                    test_raise(&normal, sqrt(gradient) / (unit * unit * sqrt(size) + unit * norm(b, m * count) + 1e-300));
                    test_raise(&length, sqrt(off) / (size > 0 ? sqrt(size) : 1));
                    test_raise(&residual, fabs(rest[j] - sqrt(least)) / (unit * sqrt(size) + norm(b, m * count) + 1e-300));
                }
                tn_lstsq_destroy(&f);
            }
    WORST("|A^T (b - A x) - ridge x| / (|A|^2 |x| + |A| |b|)", normal, 1e-14);
    WORST("against the pseudo-inverse", length, 2e-11);
    WORST("residual as reported / (|A| |x| + |b|)", residual, 1e-14);
    CLOSE_CTX(ctx);
}

TEST(lstsq_known)
{
    static const double a[6] = {1, 0, 1, 1, 1, 2}, b[3] = {1, 3, 2}, bad[3] = {1, (double)NAN, 2};
    /* the line 1.5 + 0.5 t */
    tn_ctx         *ctx = ctx_of(TN_F32);
    tn_tensor      *line = matrix_of(ctx, 3, 2, a);
    tn_lstsq_desc   desc = ZERO;
    tn_lstsq_result f;
    REQUIRE(CHECK_STATUS(tn_lstsq(ctx, line, tensor_of(ctx, 1, 3, 1, 1, b), NULL, &f), TN_OK));
    double *x = host(f.x), *rest = host(f.residual);
    CHECK_INT(f.x->rank, 1); CHECK_INT(f.rank, 2);
    CHECK_NEAR(x[0], 1.5, 1e-6); CHECK_NEAR(x[1], 0.5, 1e-6); CHECK_NEAR(rest[0], sqrt(1.5), 1e-6);
    tn_lstsq_destroy(&f);
    CHECK(!f.x && !f.residual);
    CHECK_STATUS(tn_lstsq(ctx, line, tensor_of(ctx, 1, 2, 1, 1, b), NULL, &f), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "lstsq: b is [2], expected [3] or [3,r], as a is [3,2]");
    CHECK_STATUS(tn_lstsq(ctx, line, tensor_of(ctx, 1, 3, 1, 1, bad), NULL, &f), TN_ERR_NONFINITE);
    CHECK_ERROR(ctx, TN_ERR_NONFINITE, "lstsq: b, [3], has NaN or infinity");
    desc.ridge = -1;
    FAILS(ctx, tn_lstsq(ctx, line, tensor_of(ctx, 1, 3, 1, 1, b), &desc, &f), TN_ERR_ARG, "lstsq: ridge is -1, expected 0 or more");
    tn_ctx_destroy(ctx);
}

/* ---- some singular values ------------------------------------------------------------------------------------- */

/* The ways to ten values of [m,n] against all of them. */
TEST(svd_of_few_values)
{
    static const int64_t shapes[][2] = {{300, 280}, {260, 400}, {700, 256}};
    for (size_t z = 0; z < 3; z++)
        for (int kind = 0; kind < 3; kind++) {                               /* flat, falling, ten equal values and noise */
            const int64_t m = shapes[z][0], n = shapes[z][1], top = 10, k = m < n ? m : n;
            tn_ctx       *ctx = ctx_of(TN_F64);
            double       *a = kind ? of_rank(m, n, k, 8, 3) : random_doubles(m * n, 3), worst[3] = {0, 0, 0};
            tn_svd_desc   desc = ZERO;
            tn_svd_result all, r;
            if (kind == 2) for (int64_t i = 0; i < m * n; i++) a[i] = (i / n == i % n && i / n < 10 ? 5 : 0) + 1e-3 * a[i];
            tn_tensor *t = matrix_of(ctx, m, n, a);
            double     size = norm(a, m * n);
            desc.method = TN_SVD_EXACT;
            desc.measure = true;
            REQUIRE(CHECK_STATUS(tn_svd(ctx, t, &desc, &all), TN_OK));
            WORST("|A - U S Vt| / |A|", all.error, 2e-14);
            CHECK(all.residual != all.residual);
            double *s = host(all.s);
            desc.top = top;
            for (int method = 0; method < 3; method++) {
                desc.method = method == 0 ? TN_SVD_AUTO : method == 1 ? TN_SVD_KRYLOV : TN_SVD_RANDOMISED;
                REQUIRE(CHECK_STATUS(tn_svd(ctx, t, &desc, &r), TN_OK));
                double *few = host(r.s);
                CHECK_INT(r.s->shape[0], top); CHECK_INT(r.u->shape[1], top); CHECK_INT(r.vt->shape[0], top);
                if (method < 2) CHECK(r.residual <= 1e-13 * s[0] / size * 4);
                for (int64_t i = 0; i < top; i++) {
                    double *u = host(r.u), *vt = host(r.vt), left = 0, right = 0, high = 0, low = 0;
                    for (int64_t j = 0; j < m; j++) {
                        double av = -few[i] * u[j * top + i];
                        for (int64_t l = 0; l < n; l++) av += a[j * n + l] * vt[i * n + l];
                        left += av * av;
                        if (u[j * top + i] > high) high = u[j * top + i];
                        if (u[j * top + i] < low) low = u[j * top + i];
                    }
                    for (int64_t l = 0; l < n; l++) {
                        double atu = -few[i] * vt[i * n + l];
                        for (int64_t j = 0; j < m; j++) atu += a[j * n + l] * u[j * top + i];
                        right += atu * atu;
                    }
                    CHECK(high >= -low);
                    CHECK(few[i] <= s[i] + 1e-14 * s[0]);
                    test_raise(&worst[0], method < 2 ? fabs(few[i] - s[i]) / s[0] : 0);
                    test_raise(&worst[1], method < 2 ? sqrt(left + right) / s[0] : 0);
                    if (method == 2) {
                        CHECK(sqrt(left + right) <= r.residual * size * 1.0001 + 1e-14 * size);
                        test_raise(&worst[2], fabs(few[i] - s[i]) / (r.residual * size + 1e-14 * s[0]));
                    }
                }
                tn_svd_destroy(&r);
            }
            WORST("values, over the largest", worst[0], 1e-14);
            WORST("|A v - s u| and |A^T u - s v|, over the largest", worst[1], 1e-13);
            WORST("randomised: error of values / residual", worst[2], 1);
            tn_svd_destroy(&all);
            CLOSE_CTX(ctx);
        }
}

/* What a randomised SVD says about itself: `residual` and `error` are exact, `angle` is an estimate that is not exceeded,
   for values that fall slowly, by powers, geometrically, after a step, and to a flat floor. */
TEST(svd_randomised_estimates)
{
    enum { M = 40, N = 34 };
    tn_ctx *ctx = ctx_of(TN_F64);
    double *left = orthogonal(M, 21), *right = orthogonal(N, 22), worst = 0, least = 1, claim = 0;
    int     below = 0;
    for (int trial = 0; trial < 60; trial++) {
        const int     kind = trial % 5, top = 2 + trial % 4;
        double       *a = doubles(M * N), *c, sum = 0, rest = 0;
        tn_svd_desc   desc = ZERO;
        tn_svd_result r;
        for (int l = 0; l < N; l++) {
            const double x = kind == 0 ? 1 - 0.5 * l / N : kind == 1 ? 1.0 / (l + 1) : kind == 2 ? pow(0.7, l)
                           : kind == 3 ? (l < top ? 2 : 1) * pow(0.95, l) : pow(10, -0.5 * l) + 1e-4 * (N - l) / N;
            for (int i = 0; i < M; i++) for (int j = 0; j < N; j++) a[i * N + j] += left[l * M + i] * x * right[l * N + j];
        }
        double size = norm(a, M * N);
        desc.method = TN_SVD_RANDOMISED;
        desc.measure = true;
        desc.top = top;
        desc.oversample = 1 + trial % 3;
        desc.power = 1 + trial / 5 % 3;
        desc.seed = (uint64_t)trial;
        REQUIRE(CHECK_STATUS(tn_svd(ctx, matrix_of(ctx, M, N, a), &desc, &r), TN_OK));
        double *u = host(r.u), *s = host(r.s), *vt = host(r.vt), *angle = host(r.angle);
        c = host(r.cluster);
        tn_svd_destroy(&r);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double x = a[i * N + j];
                for (int l = 0; l < top; l++) x -= u[i * top + l] * s[l] * vt[l * N + j];
                rest += x * x;
            }
        for (int l = 0; l < top; l++) {
            double x[M], y[N], off[2] = {0, 0};
            for (int i = 0; i < M; i++) {                                    /* A v - s u, and A^T u - s v */
                double e = -s[l] * u[i * top + l];
                for (int j = 0; j < N; j++) e += a[i * N + j] * vt[l * N + j];
                sum += e * e;
                x[i] = u[i * top + l];
            }
            for (int j = 0; j < N; j++) {
                double e = -s[l] * vt[l * N + j];
                for (int i = 0; i < M; i++) e += a[i * N + j] * u[i * top + l];
                sum += e * e;
                y[j] = vt[l * N + j];
            }
            if (angle[l] >= 1) continue;
            for (int q = 0; q < top; q++) {                                  /* what is outside of the true subspace */
                double dx = 0, dy = 0;
                if (c[q] != c[l]) continue;
                for (int i = 0; i < M; i++) dx += x[i] * left[q * M + i];
                for (int j = 0; j < N; j++) dy += y[j] * right[q * N + j];
                for (int i = 0; i < M; i++) x[i] -= dx * left[q * M + i];
                for (int j = 0; j < N; j++) y[j] -= dy * right[q * N + j];
            }
            off[0] = norm(x, M) / angle[l];
            off[1] = norm(y, N) / angle[l];
            test_raise(&worst, off[0]);
            test_raise(&worst, off[1]);
            below++;
        }
        test_raise(&claim, fabs(r.residual - sqrt(sum) / size));
        test_raise(&claim, fabs(r.error - sqrt(rest) / size));
        if (r.residual < least) least = r.residual;
        tn_ctx_reset(ctx);
    }
    WORST("randomised: true angle / estimate", worst, 0.3);
    WORST("randomised: residual and error against loops", claim, 1e-14);
    printf("%d angles below 1, residuals from %.2g\n", below, least);
    CHECK(below > 60 && worst > 1e-2 && least < 1e-3);
    CLOSE_CTX(ctx);
}

TEST(svd_methods_are_checked)
{
    tn_ctx       *ctx = ctx_of(TN_F64);
    double       *a = of_rank(64, 64, 3, 1, 8), *zero = doubles(64 * 64);
    tn_svd_desc   desc = ZERO;
    tn_svd_result r;
    desc.top = 5;
    desc.method = TN_SVD_KRYLOV;                                             /* rank 3: the last values are below 1e-13 */
    CHECK_STATUS(tn_svd(ctx, matrix_of(ctx, 64, 64, a), &desc, &r), TN_OK);
    tn_svd_destroy(&r);
    CHECK_STATUS(tn_svd(ctx, matrix_of(ctx, 64, 64, zero), &desc, &r), TN_OK);
    tn_svd_destroy(&r);
    desc.truncation.weight = 0.1;
    CHECK_STATUS(tn_svd(ctx, matrix_of(ctx, 64, 64, a), &desc, &r), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "svd: truncation.weight is 0.1 and method computes some values");
    desc.truncation.weight = 0;
    desc.oversample = -1;
    FAILS(ctx, tn_svd(ctx, matrix_of(ctx, 64, 64, a), &desc, &r), TN_ERR_ARG, "svd: oversample is -1, expected 0 or more");
    desc.method = TN_SVD_RANDOMISED;                                         /* more vectors than the matrix has */
    desc.oversample = INT64_MAX;
    CHECK_STATUS(tn_svd(ctx, matrix_of(ctx, 64, 64, a), &desc, &r), TN_OK);
    tn_svd_destroy(&r);
    desc.oversample = 0;
    desc.power = INT64_MAX;
    CHECK_STATUS(tn_svd(ctx, matrix_of(ctx, 64, 64, a), &desc, &r), TN_OK);
    tn_svd_destroy(&r);
    desc.method = (tn_svd_method)7;
    FAILS(ctx, tn_svd(ctx, matrix_of(ctx, 64, 64, a), &desc, &r), TN_ERR_ARG, "svd: method is 7, expected 0 to 3");
    tn_ctx_destroy(ctx);
}

TEST_MAIN(svd_of_few_values, svd_randomised_estimates, svd_methods_are_checked, qr_with_pivots, lstsq_of_all_shapes,
          lstsq_known,
          eig_known, eig_large, eig_refuses, eig_random, eig_hard, truncation_rules, truncation_of_results,
          eigh_refuses_what_is_not_symmetric, clusters_of_eigenvalues, clusters_bound_the_angle, batches_of_eigen)
