/* test_eig.c: what to keep of a spectrum, clusters, batches, non-symmetric eigenpairs, pivoted QR, least squares, some
   singular values. Bounds are multiples of eps times the norm and the extent, as in LAPACK's own tests. */

#include "pool.h"
#include "test.h"

#define EPS 0x1p-52

static double *doubles(int64_t n) { return (double *)calloc((size_t)n + 1, sizeof(double)); }

static tn_ctx *context(tn_dtype dtype, int threads)
{
    tn_desc desc;
    tn_ctx *ctx = NULL;
    memset(&desc, 0, sizeof desc);
    desc.dtype = dtype;
    desc.threads = threads;
    desc.parallel_for = threads > 1 ? pool_backwards : NULL;
    CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK);
    return ctx;
}

static tn_tensor *tensor_of(tn_ctx *ctx, int rank, int64_t a, int64_t b, int64_t c, const double *p)
{
    const int64_t shape[3] = {a, b, c};
    tn_tensor    *t = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    CHECK_STATUS(tn_write(t, TN_F64, p, tn_tensor_count(t)), TN_OK);
    return t;
}

static tn_tensor *matrix_of(tn_ctx *ctx, int64_t m, int64_t n, const double *p) { return tensor_of(ctx, 2, m, n, 1, p); }

static double *read_all(const tn_tensor *t)
{
    double *p = doubles(tn_tensor_count(t));
    CHECK_STATUS(tn_read(t, TN_F64, p, tn_tensor_count(t)), TN_OK);
    return p;
}

static double *random_matrix(int64_t m, int64_t n, uint64_t seed)
{
    double *a = doubles(m * n);
    for (int64_t i = 0; i < m * n; i++) a[i] = test_random_real(&seed);
    return a;
}

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
    double *q = random_matrix(n, n, seed);
    for (int64_t i = 0; i < n; i++)
        for (int pass = 0; pass < 2; pass++) {
            double length;
            for (int64_t j = 0; j < i; j++) {
                double dot = 0;
                for (int64_t l = 0; l < n; l++) dot += q[i * n + l] * q[j * n + l];
                for (int64_t l = 0; l < n; l++) q[i * n + l] -= dot * q[j * n + l];
            }
            length = norm(q + i * n, n);
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
    free(q);
    return a;
}

/* ---- which values to keep ---------------------------------------------------------------------------------- */

static int64_t kept(int64_t rank, double absolute, double relative, double weight, int64_t n, const double *values,
                    double *dropped)
{
    tn_truncation t;
    memset(&t, 0, sizeof t);
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
    tn_ctx        *ctx = context(TN_F64, 1);
    double        *a = with_eigenvalues(5, values, 3), *v;
    tn_tensor     *t = matrix_of(ctx, 5, 5, a);
    tn_eigh_desc   ed;
    tn_svd_desc    sd;
    tn_eigh_result e;
    tn_svd_result  s;
    memset(&ed, 0, sizeof ed);
    memset(&sd, 0, sizeof sd);
    ed.truncation.absolute = 0.5;
    ed.measure = true;
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &ed, &e), TN_OK));
    CHECK_INT(e.values->shape[0], 3); CHECK_INT(e.vectors->shape[0], 3);
    v = read_all(e.values);
    CHECK_NEAR(v[0], -3, 1e-14); CHECK_NEAR(v[1], -1, 1e-14); CHECK_NEAR(v[2], 2, 1e-14);     /* ascending, as asked */
    CHECK_NEAR(e.error, sqrt((1e-6 + 1e-12) / (14 + 1e-6 + 1e-12)), 1e-12);
    free(v);
    tn_eigh_destroy(&e);
    ed.top = 2;                                                              /* of those kept, the two smallest */
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &ed, &e), TN_OK));
    v = read_all(e.values);
    CHECK_INT(e.values->shape[0], 2); CHECK_NEAR(v[0], -3, 1e-14); CHECK_NEAR(v[1], -1, 1e-14);
    free(v);
    tn_eigh_destroy(&e);
    sd.truncation.weight = 1e-3 * 1e-3 / 13;
    REQUIRE(CHECK_STATUS(tn_svd(ctx, t, &sd, &s), TN_OK));
    CHECK_INT(s.s->shape[0], 3); CHECK_INT(s.u->shape[1], 3); CHECK_INT(s.vt->shape[0], 3);
    tn_svd_destroy(&s);
    sd.truncation.weight = -1;
    CHECK_STATUS(tn_svd(ctx, t, &sd, &s), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "svd: truncation.weight is -1, expected 0 or more");
    ed.truncation.rank = -2;
    CHECK_STATUS(tn_eigh(ctx, t, &ed, &e), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "eigh: truncation.rank is -2, expected 0 or more");
    free(a);
    tn_ctx_destroy(ctx);
}

/* ---- symmetric: the check, clusters, batches ---------------------------------------------------------------- */

TEST(eigh_refuses_what_is_not_symmetric)
{
    static const tn_dtype dtypes[3] = {TN_F64, TN_F32, TN_BF16};
    static const double   small[3] = {1e-13, 5e-5, 0.06}, large[3] = {1e-12, 5e-4, 0.12};  /* on either side */
    tn_ctx *ctx = context(TN_F64, 1);
    for (int k = 0; k < 3; k++)
        for (int big = 0; big < 2; big++) {
            double         a[9] = {2, 1, 0.5, 1, 1, 1, 0.5, 1, 1};
            const int64_t  shape[2] = {3, 3};
            tn_tensor     *t = tn_tensor_nd(ctx, dtypes[k], 2, shape);
            tn_eigh_result e;
            tn_eigh_desc   desc;
            memset(&desc, 0, sizeof desc);
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
    tn_ctx        *ctx = context(TN_F64, 1);
    double        *a = with_eigenvalues(7, values, 11), *c, *angle;
    tn_tensor     *t = matrix_of(ctx, 7, 7, a);
    tn_eigh_desc   desc;
    tn_eigh_result e;
    tn_svd_desc    sd;
    tn_svd_result  s;
    memset(&desc, 0, sizeof desc);
    memset(&sd, 0, sizeof sd);
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, NULL, &e), TN_OK));
    CHECK_INT(e.cluster->dtype, TN_I32);
    c = read_all(e.cluster);
    angle = read_all(e.angle);
    for (int i = 0; i < 7; i++) {
        CHECK(c[i] == expected[i]);
        CHECK_NEAR(angle[i], 2 * EPS * norm(a, 49) / gap[i], 1e-2 * EPS * norm(a, 49) / gap[i]);
    }
    free(c); free(angle);
    tn_eigh_destroy(&e);
    desc.order = TN_EIGH_MAGNITUDE;                                          /* 7, 3, 3, 2, 1, 1 | 1 */
    desc.top = 6;
    desc.noise = 0.01;                                                       /* 2 |E| is 0.17: all closer than 17 are one */
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK));
    c = read_all(e.cluster);
    angle = read_all(e.angle);
    for (int i = 0; i < 6; i++) CHECK(c[i] == 0 && angle[i] == 1);           /* a member is not kept */
    free(c); free(angle);
    tn_eigh_destroy(&e);
    desc.noise = 0;
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_OK));
    c = read_all(e.cluster);
    angle = read_all(e.angle);
    CHECK(c[0] == 0 && c[1] == 1 && c[2] == 1 && c[3] == 3 && c[4] == 4 && c[5] == 4);
    CHECK(angle[3] < 1e-14 && angle[4] == 1 && angle[5] == 1);
    free(c); free(angle);
    tn_eigh_destroy(&e);
    desc.noise = 2;
    CHECK_STATUS(tn_eigh(ctx, t, &desc, &e), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "eigh: noise is 2, expected 0 to 1");
    REQUIRE(CHECK_STATUS(tn_svd(ctx, t, &sd, &s), TN_OK));
    c = read_all(s.cluster);
    CHECK(c[0] == 0 && c[1] == 1 && c[2] == 1 && c[3] == 3 && c[4] == 4 && c[5] == 4 && c[6] == 4);
    free(c); free(a);
    tn_svd_destroy(&s);
    CHECK_CTX(ctx);
    tn_ctx_destroy(ctx);
}

/* The bound holds: a random perturbation of the stated size turns each cluster's subspace by at most its angle. */
TEST(clusters_bound_the_angle)
{
    enum { N = 12 };
    static const double values[N] = {-5, -5, -2, 0, 0, 1e-9, 1, 1.5, 4, 4, 4, 9};
    tn_ctx        *ctx = context(TN_F64, 1);
    double        *a = with_eigenvalues(N, values, 5), *e = random_matrix(N, N, 6), *c, *angle, *before, *after, worst = 0;
    const double   noise = 1e-4;
    tn_eigh_desc   desc;
    tn_eigh_result r;
    memset(&desc, 0, sizeof desc);
    desc.noise = noise;
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, matrix_of(ctx, N, N, a), &desc, &r), TN_OK));
    c = read_all(r.cluster); angle = read_all(r.angle); before = read_all(r.vectors);
    tn_eigh_destroy(&r);
    for (int i = 0; i < N; i++) for (int j = 0; j < i; j++) e[i * N + j] = e[j * N + i];
    for (int i = 0; i < N * N; i++) a[i] += e[i] / norm(e, N * N) * noise * norm(values, N);
    REQUIRE(CHECK_STATUS(tn_eigh(ctx, matrix_of(ctx, N, N, a), &desc, &r), TN_OK));
    after = read_all(r.vectors);
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
    free(a); free(e); free(c); free(angle); free(before); free(after);
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
                tn_ctx        *ctx = context(z % 2 ? TN_F32 : TN_F64, threads);
                double        *a = random_matrix(b * n, n, 17), *values, *vectors, worst = 0;
                tn_eigh_desc   desc;
                tn_eigh_result all, one;
                memset(&desc, 0, sizeof desc);
                desc.order = measure ? TN_EIGH_MAGNITUDE : TN_EIGH_ASCENDING;
                desc.measure = measure != 0;
                desc.symmetrise = true;
                if (n > 2) desc.top = 3;
                REQUIRE(CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, b, n, n, a), &desc, &all), TN_OK));
                CHECK_INT(all.values->rank, 2); CHECK_INT(all.vectors->rank, 3); CHECK_INT(all.angle->shape[0], b);
                CHECK_INT(all.vectors->shape[2], n);
                values = read_all(all.values);
                vectors = read_all(all.vectors);
                for (int64_t i = 0; i < b; i++) {
                    REQUIRE(CHECK_STATUS(tn_eigh(ctx, matrix_of(ctx, n, n, a + i * n * n), &desc, &one), TN_OK));
                    double *v = read_all(one.values), *x = read_all(one.vectors);
                    const int64_t k = one.values->shape[0];
                    CHECK(memcmp(v, values + i * k, (size_t)k * sizeof *v) == 0);
                    CHECK(memcmp(x, vectors + i * k * n, (size_t)(k * n) * sizeof *x) == 0);
                    if (measure) test_raise(&worst, one.error);
                    free(v); free(x);
                    tn_eigh_destroy(&one);
                }
                if (measure) CHECK(all.error == worst);
                free(a); free(values); free(vectors);
                tn_eigh_destroy(&all);
                CHECK_CTX(ctx);
                tn_ctx_destroy(ctx);
            }
    {
        tn_ctx        *ctx = context(TN_F64, 1);
        double         a[8] = {1, 2, 2, 1, 0, 1, 1, (double)NAN};
        tn_eigh_result e;
        CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, 2, 2, 2, a), NULL, &e), TN_ERR_NONFINITE);
        tn_ctx_clear_error(ctx);
        a[7] = 0; a[6] = 3;
        CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, 2, 2, 2, a), NULL, &e), TN_ERR_ARG);
        CHECK_ERROR(ctx, TN_ERR_ARG, "eigh: a is not symmetric: |a[1,0] - a[0,1]|");
        CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, 1, 2, 4, a), NULL, &e), TN_ERR_SHAPE);
        CHECK_ERROR(ctx, TN_ERR_SHAPE, "eigh: a is [1,2,4], expected [b,n,n]");
        CHECK_STATUS(tn_eigh(ctx, tensor_of(ctx, 3, 0, 4, 4, a), NULL, &e), TN_OK);
        CHECK_INT(e.vectors->shape[0], 0); CHECK_INT(e.vectors->shape[1], 4);
        tn_eigh_destroy(&e);
        tn_ctx_destroy(ctx);
    }
}

TEST_MAIN(truncation_rules, truncation_of_results, eigh_refuses_what_is_not_symmetric, clusters_of_eigenvalues,
          clusters_bound_the_angle, batches_of_eigen)
