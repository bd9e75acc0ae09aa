/* test_scan.c: scans of long chains, what could make them overflow, vanish or stop being numbers, chains of no site and of one, and
   any number of threads. What scans of ordinary matrices give, and their gradients, is in cases.h. */

#include "kit.h"
#include "pool.h"

static tn_ctx *ctx_as(tn_dtype dtype, tn_dtype activations, int threads, const tn_backend *backend)
{
    tn_desc d = ZERO;
    tn_ctx *ctx;
    d.dtype = dtype;
    d.activations = activations;
    d.seed = 5;
    d.threads = threads;
    d.backend = backend;
    if (threads > 1) d.parallel_for = pool_backwards;
    return CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK) ? ctx : NULL;
}

static tn_tensor *normal(tn_ctx *ctx, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t shape[4] = {a, b, c, d};
    tn_tensor *t = tn_normal(ctx, rank, shape, 0, 1);
    tn_watch(t);
    return t;
}

static tn_tensor *given(tn_ctx *ctx, int rank, int64_t a, int64_t b, int64_t c, int64_t d, const double *v)
{
    int64_t shape[4] = {a, b, c, d};
    tn_tensor *t = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    CHECK_STATUS(tn_write(t, TN_F64, v, tn_tensor_count(t)), TN_OK);
    tn_watch(t);
    return t;
}

/* The values that tests ask for last: the sum of the last logarithm of each chain (the first one with reverse). */
static tn_tensor *whole(tn_ctx *ctx, tn_tensor *logs, bool reverse)
{
    const int64_t n = logs ? logs->shape[1] : 1;
    return tn_sum(ctx, tn_slice(logs, 1, reverse ? 0 : n - 1, reverse ? 1 : n));
}

/* ---- 100,000 sites ------------------------------------------------------------------------------------------------ */

/* Scans of both directions meet: left_j . right_j is the same number at every cut of an open chain, which neither float nor
   double could hold. Its logarithm is homogeneous of degree 1 in each feature vector and in each core, so <dphi_j, phi_j> is 1. */
static void long_open_chain(tn_dtype dtype, int64_t sites, int64_t d, int64_t s, bool uniform, double bound)
{
    tn_ctx    *ctx = ctx_as(dtype, TN_REAL, 0, NULL);
    tn_tensor *log_left, *log_right;
    double     whole_log = 0, cut = 0, degree = 0, dot;
    int64_t    i, j, core = d * s * d;
    REQUIRE(ctx != NULL);
    tn_tensor *v = normal(ctx, 1, d, 0, 0, 0);
    tn_tensor *cores = normal(ctx, 4, uniform ? 1 : sites, d, s, d);
    tn_tensor *phi = normal(ctx, 3, 1, sites, s, 0);
    tn_record(ctx);
    tn_tensor *left = tn_scan_states(ctx, v, cores, phi, false, &log_left);
    tn_tensor *right = tn_scan_states(ctx, v, cores, phi, true, &log_right);
    tn_tensor *loss = whole(ctx, log_left, false);
    CHECK_CTX(ctx);
    REQUIRE(left != NULL && right != NULL && loss != NULL);
    double *l = host(left), *r = host(right), *ll = host(log_left), *lr = host(log_right);
    for (j = 0; j <= sites; j++) {
        for (dot = 0, i = 0; i < d; i++) dot += l[j * d + i] * r[j * d + i];
        double total = ll[j] + lr[j] + log(fabs(dot));
        if (j == 0) whole_log = total;
        test_raise(&cut, fabs(total - whole_log) / fabs(whole_log));
    }
    CHECK(fabs(whole_log) > (double)sites / 10);                /* e^that is more than a double holds */
    CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
    double *p = host(phi), *dp = host(phi->grad), *c = host(cores), *dc = host(cores->grad);
    for (j = 0; j < sites; j++) {
        for (dot = 0, i = 0; i < s; i++) dot += p[j * s + i] * dp[j * s + i];
        test_raise(&degree, fabs(dot - 1));
    }
    for (dot = 0, j = 0; j < (uniform ? 1 : sites); j++) {
        for (i = 0; i < core; i++) dot += c[j * core + i] * dc[j * core + i];
    }
    test_raise(&degree, fabs(dot - (double)sites) / (double)sites);
    WORST(dtype == TN_F64 ? "left . right at every cut, F64" : "left . right at every cut, F32", cut, bound);
    WORST(dtype == TN_F64 ? "<dphi, phi> and <dcores, cores>, F64" : "<dphi, phi> and <dcores, cores>, F32", degree, bound * 1000);
    tn_ctx_destroy(ctx);
}

TEST(long_open_chains)
{
    const int64_t sites = test_small() ? 2000 : 100000;
    long_open_chain(TN_F32, sites, 4, 2, true, 1e-6);
    long_open_chain(TN_F64, sites / 10, 3, 2, false, 1e-13);
}

/* All products of a long chain of matrices, the last of which tn_chain gives as well. */
TEST(long_chains)
{
    const int64_t sites = test_small() ? 2000 : 100000, d = 3, dd = d * d;
    for (int k = 0; k < 2; k++) {
        tn_ctx    *ctx = ctx_as(k ? TN_F64 : TN_F32, TN_REAL, 0, NULL);
        tn_tensor *logs, *log_norm;
        double     worst = 0, bound = k ? 1e-11 : 2e-4;
        int64_t    e;
        REQUIRE(ctx != NULL);
        tn_tensor *m = normal(ctx, 4, 1, sites, d, d);
        tn_record(ctx);
        tn_tensor *y = tn_scan(ctx, m, false, &logs);
        tn_tensor *one = tn_chain(ctx, m, &log_norm);
        CHECK_CTX(ctx);
        REQUIRE(y != NULL && one != NULL);
        double *got = host(y), *of = host(logs), *v = host(m), *last = host(one);
        for (int64_t i = 0; i < dd; i++) test_raise(&worst, fabs(got[(sites - 1) * dd + i] - last[i]));
        test_raise(&worst, fabs(of[sites - 1] - tn_item(log_norm)) / fabs(of[sites - 1]));
        for (int64_t j = 1; j < sites; j++) {                           /* each from the one before it */
            double x[9], squares = 0;
            for (int64_t i = 0; i < dd; i++) {
                for (x[i] = 0, e = 0; e < d; e++) x[i] += got[(j - 1) * dd + i / d * d + e] * v[j * dd + e * d + i % d];
                squares += x[i] * x[i];
            }
            for (int64_t i = 0; i < dd; i++) test_raise(&worst, fabs(x[i] / sqrt(squares) - got[j * dd + i]));
        }
        CHECK_STATUS(tn_backward(ctx, whole(ctx, logs, false)), TN_OK);
        got = host(m->grad);
        for (int64_t j = 0; j < sites; j++) {
            double dot = 0;
            for (int64_t i = 0; i < dd; i++) dot += v[j * dd + i] * got[j * dd + i];
            test_raise(&worst, fabs(dot - 1) / 100);
        }
        WORST(k ? "long scan, F64" : "long scan, F32", worst, bound);
        tn_ctx_destroy(ctx);
    }
}

/* ---- numbers at the edge ------------------------------------------------------------------------------------------- */

/* Numbers whose squares float cannot hold, large and small. */
TEST(scales)
{
    static const double size[] = {1e30, 1e-30, 1e37, 1e-37};
    tn_ctx *ctx = ctx_as(TN_F32, TN_REAL, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int i = 0; i < 4; i++)
        for (int back = 0; back < 2; back++) {
            tn_tensor *logs;
            double     v[12], sum = 0;
            for (int k = 0; k < 12; k++) v[k] = k % 4 == 0 || k % 4 == 3 ? (double)(float)size[k / 4 == 1 ? (i ^ 1) : i] : 0;
            tn_tensor *y = tn_scan(ctx, given(ctx, 4, 1, 3, 2, 2, v), back, &logs);
            CHECK_CTX(ctx);
            double *got = host(y), *of = host(logs);
            for (int k = 0; k < 3; k++) {
                const int at = back ? 2 - k : k;
                sum += log(v[at * 4]);
                CHECK_NEAR(got[at * 4], sqrt(0.5), 1e-6);
                CHECK_NEAR(got[at * 4 + 3], sqrt(0.5), 1e-6);
                CHECK(got[at * 4 + 1] == 0 && got[at * 4 + 2] == 0);
                CHECK_NEAR(of[at], sum + log(2.0) / 2, 1e-4);
            }
        }
    tn_ctx_destroy(ctx);
}

/* M_1 makes the product zero. Before it all is as without it; from there on there are zeros, and no gradient. */
static void zeros_on(const tn_backend *backend)
{
    static const double v[24] = {1, 2, 3, 5,  0, 0, 0, 0,  5, 6, 7, 8,   1, 2, 3, 4,  1, 1, 1, 1,  5, 6, 7, 8};
    static const double start[2] = {3, 4}, none[2] = {0, 0};
    tn_ctx    *ctx = ctx_as(TN_F32, TN_REAL, 1, backend);
    tn_tensor          *logs, *b;
    REQUIRE(ctx != NULL);
    tn_tensor *m = given(ctx, 4, 2, 3, 2, 2, v);
    tn_record(ctx);
    tn_tensor *y = tn_scan(ctx, m, false, &logs);
    double    *got = host(y), *of = host(logs);
    for (int i = 0; i < 4; i++) CHECK_NEAR(got[i], v[i] / sqrt(39.), 1e-6);
    for (int i = 4; i < 12; i++) CHECK(got[i] == 0);
    for (int i = 12; i < 24; i++) CHECK(got[i] != 0);
    CHECK_NEAR(of[0], log(39.) / 2, 1e-6);
    CHECK(of[1] == -INFINITY && of[2] == -INFINITY && of[5] > 0);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_add(ctx, tn_mul(ctx, y, tn_add(ctx, y, y)), tn_slice(y, 0, 0, 1)))), TN_OK);
    double *gradient = host(m->grad);
    for (int i = 0; i < 24; i++) CHECK(gradient[i] == gradient[i]);
    for (int i = 0; i < 4; i++) CHECK(fabs(gradient[i]) > 1e-3);
    for (int i = 4; i < 12; i++) CHECK(gradient[i] == 0);
    for (int k = 0; k < 2; k++) {                                   /* a vector of zeros, a matrix of zeros */
        b = given(ctx, 1, 2, 0, 0, 0, k ? start : none);
        m = given(ctx, 4, 2, 3, 2, 2, v);
        tn_record(ctx);
        y = tn_scan_vector(ctx, b, m, true, &logs);
        got = host(y); of = host(logs);
        for (int i = 0; i < 16; i++) {
            const bool zero = k == 0 || i / 2 == 0 || i / 2 == 1;
            CHECK(zero ? got[i] == 0 && of[i / 2] == -INFINITY : got[i] > 0 && of[i / 2] > 0);
        }
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, tn_slice(y, 2, 0, 1)))), TN_OK);
        got = host(b->grad); of = host(m->grad);
        CHECK(k == 0 ? got[0] == 0 && got[1] == 0 : got[0] != 0 && got[1] != 0);
        for (int i = 0; i < 8; i++) CHECK(of[i] == 0);              /* M_0 multiplies zeros, M_1 is the zero */
        for (int i = 8; i < 24; i++) CHECK(k == 0 ? of[i] == 0 : of[i] == of[i]);
    }
    b = given(ctx, 1, 2, 0, 0, 0, start);                       /* features of zeros: matrices of zeros */
    m = given(ctx, 4, 1, 2, 3, 2, v);
    tn_tensor *phi = tn_sub(ctx, given(ctx, 3, 1, 2, 3, 0, v), given(ctx, 3, 1, 2, 3, 0, v));
    tn_record(ctx);
    y = tn_scan_states(ctx, b, m, phi, false, &logs);
    got = host(y); of = host(logs);
    CHECK_NEAR(got[0], 0.6, 1e-6);
    CHECK_NEAR(of[0], log(5.), 1e-6);
    for (int i = 2; i < 6; i++) CHECK(got[i] == 0 && of[i / 2] == -INFINITY);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, y)), TN_OK);
    got = host(m->grad); of = host(b->grad);
    for (int i = 0; i < 12; i++) CHECK(got[i] == 0);
    CHECK_NEAR(of[0], 0.032, 1e-6);                             /* (1 - 1.4 * 0.6) / 5 */
    tn_ctx_destroy(ctx);
}

/* A state that the kernels may not have normalised yet, times a site whose elements are near the end of the range. */
TEST(scales_that_change)
{
    static const double size[][3] = {{5e4, 1e33, 1}, {1e14, 1e25, 1}, {1e17, 1e-17, 1e33}, {2e-5, 1e-30, 1e33},
                                     {1e-14, 1e-20, 1}};
    tn_ctx *ctx = ctx_as(TN_F32, TN_REAL, 1, NULL);
    REQUIRE(ctx != NULL);
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (int kind = 0; kind < 3; kind++) {
            static const double m[4] = {0.7, 0.1, 0, 0.3}, one[3] = {1, 1, 1};
            tn_tensor *logs;
            double     v[12], sum = 0;
            double     x[4] = {1, kind == 0 ? 0.0 : 1.0, 0, 1};    /* the identity, or the vector (1,1) */
            for (int k = 0; k < 12; k++) v[k] = m[k % 4] * size[i][k / 4];
            tn_tensor *start = given(ctx, 1, 2, 0, 0, 0, one);
            tn_tensor *sites = given(ctx, 4, kind < 2 ? 1 : 3, kind < 2 ? 3 : 2, kind < 2 ? 2 : 1, 2, v);
            tn_tensor *y = kind == 0 ? tn_scan(ctx, sites, false, &logs) : kind == 1
                           ? tn_scan_vector(ctx, start, sites, false, &logs)
              : tn_scan_states(ctx, start, sites, given(ctx, 3, 1, 3, 1, 0, one), false, &logs);
            CHECK_CTX(ctx);
            double *got = host(y), *of = host(logs);
            for (int k = 0; k < 3; k++) {
                const int at = kind == 0 ? 4 * k : 2 * k + 2;
                double    next[4] = {0, 0, 0, 0}, squares = 0;
                for (int e = 0; e < 4; e++) next[e] = x[e / 2 * 2] * m[e % 2] + x[e / 2 * 2 + 1] * m[2 + e % 2];
                for (int e = 0; e < (kind == 0 ? 4 : 2); e++) squares += next[e] * next[e];
                sum += log(size[i][k]) + log(squares) / 2;
                for (int e = 0; e < (kind == 0 ? 4 : 2); e++) CHECK_NEAR(got[at + e], x[e] = next[e] / sqrt(squares), 1e-5);
                CHECK_NEAR(of[kind == 0 ? k : k + 1], sum, 1e-4);
            }
        }
    tn_ctx_destroy(ctx);
}

TEST(zeros)
{
    zeros_on(tn_cpu_backend());
    zeros_on(tn_reference_backend());
}

/* From a site with a NaN or an infinity on nothing is a number, and before it all is. */
TEST(not_numbers)
{
    static const double bad[] = {NAN, INFINITY};
    for (int k = 0; k < 2; k++)
        for (int kind = 0; kind < 3; kind++) {
            tn_ctx    *ctx = ctx_as(TN_F32, TN_REAL, 1, NULL);
            tn_tensor *logs;
            double     v[24];
            REQUIRE(ctx != NULL);
            for (int i = 0; i < 24; i++) v[i] = 1 + i % 5;
            v[kind == 2 ? 3 : 9] = bad[k];
            tn_tensor *m = given(ctx, 4, 1, 3, 2, 2, v);
            tn_tensor *b = given(ctx, 1, 2, 0, 0, 0, v);
            tn_tensor *phi = given(ctx, 3, 1, 6, 1, 0, v);
            if (kind == 2) { v[3] = 1; m = given(ctx, 4, 1, 2, 1, 2, v); }
            tn_tensor *y = kind == 0 ? tn_scan(ctx, m, false, &logs) : kind == 1 ? tn_scan_vector(ctx, b, m, false, &logs)
              : tn_scan_states(ctx, b, m, phi, false, &logs);
            CHECK_CTX(ctx);
            REQUIRE(y != NULL);
            double *got = host(y), *of = host(logs);
            for (int i = 0; i < tn_tensor_count(y); i++) {
                const int64_t state = i / (kind == 0 ? 4 : 2), first = kind == 0 ? 2 : kind == 1 ? 3 : 4;
                CHECK((got[i] != got[i]) == (state >= first));
                CHECK(state >= first ? !(of[state] < 1e300) : of[state] > 0);
            }
            tn_ctx_destroy(ctx);
        }
}

/* ---- shapes -------------------------------------------------------------------------------------------------------- */

TEST(shapes)
{
    tn_ctx    *ctx = ctx_as(TN_F32, TN_REAL, 1, NULL);
    tn_tensor *logs;
    int64_t    shape[4] = {2, 3, 4, 5};
    REQUIRE(ctx != NULL);
    CHECK(tn_scan(ctx, tn_full(ctx, 4, shape, 1), false, &logs) == NULL && logs == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "scan: m is [2,3,4,5], expected [b,n,d,d]");
    REFUSED(ctx, tn_scan(ctx, tn_full(ctx, 3, shape, 1), true, NULL), TN_ERR_SHAPE, "scan: m is [2,3,4]");
    tn_tensor *m = normal(ctx, 4, 2, 3, 4, 4);
    CHECK(tn_scan_vector(ctx, normal(ctx, 1, 5, 0, 0, 0), m, false, &logs) == NULL && logs == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "scan_vector: v is [5], expected [4] or [2,4]");
    CHECK(tn_scan_vector(ctx, normal(ctx, 2, 3, 4, 0, 0), m, false, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "scan_vector: v is [3,4], expected [4] or [2,4]");
    CHECK(tn_scan_vector(ctx, normal(ctx, 1, 4, 0, 0, 0), tn_full(ctx, 4, shape, 1), false, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "scan_vector: m is [2,3,4,5], expected [b,n,d,d]");
    tn_tensor *v = normal(ctx, 1, 4, 0, 0, 0);
    CHECK(tn_scan_states(ctx, v, m, normal(ctx, 2, 2, 3, 0, 0), false, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "scan_states: phi is [2,3], expected [b,n,s]");
    logs = v;
    CHECK(tn_scan_states(ctx, v, m, NULL, false, &logs) == NULL && logs == NULL);
    tn_ctx_clear_error(ctx);
    CHECK(tn_scan_states(ctx, v, m, normal(ctx, 3, 2, 3, 5, 0), false, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "scan_states: cores is [2,3,4,4], expected [3,d,5,d] or [1,d,5,d], for phi is [2,3,5]");
    CHECK(tn_scan_states(ctx, v, normal(ctx, 4, 2, 4, 5, 4), normal(ctx, 3, 2, 3, 5, 0), false, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "scan_states: cores is [2,4,5,4]");
    CHECK(tn_scan(ctx, NULL, false, &logs) == NULL && logs == NULL);
    tn_ctx_clear_error(ctx);
    tn_tensor *y = tn_scan(ctx, normal(ctx, 4, 0, 2, 3, 3), false, &logs);
    REQUIRE(y != NULL && logs != NULL);
    CHECK(y->rank == 4 && y->shape[0] == 0 && y->shape[3] == 3 && logs->rank == 2 && logs->shape[1] == 2);
    y = tn_scan(ctx, normal(ctx, 4, 2, 2, 0, 0), true, &logs);
    REQUIRE(y != NULL && logs != NULL);
    CHECK(y->shape[2] == 0 && tn_item(tn_slice(tn_slice(logs, 0, 1, 2), 1, 0, 1)) == -INFINITY);
    y = tn_scan_states(ctx, v, normal(ctx, 4, 1, 4, 0, 4), normal(ctx, 3, 2, 3, 0, 0), false, &logs);
    REQUIRE(y != NULL && logs != NULL);                         /* no feature: matrices of zeros */
    CHECK(tn_tensor_is_contiguous(y) && tn_tensor_is_contiguous(logs) && y->shape[1] == 4);
    tn_ctx_destroy(ctx);
}

/* No site: no product, or the vector alone, with its gradient. */
TEST(no_site)
{
    static const double start[3] = {2, 3, 6};
    for (int k = 0; k < 4; k++) {
        tn_ctx    *ctx = ctx_as(TN_F64, TN_REAL, 1, NULL);
        tn_tensor *logs;
        REQUIRE(ctx != NULL);
        tn_tensor *v = given(ctx, 1, 3, 0, 0, 0, start);
        tn_tensor *m = normal(ctx, 4, k < 2 ? 2 : 0, k < 2 ? 0 : 3, k < 2 ? 3 : 2, 3);
        tn_tensor *phi = normal(ctx, 3, 2, 0, 2, 0);
        tn_record(ctx);
        tn_tensor *y = tn_scan(ctx, normal(ctx, 4, 2, 0, 3, 3), k % 2, &logs);
        REQUIRE(y != NULL && logs != NULL);
        CHECK(y->rank == 4 && y->shape[1] == 0 && y->shape[2] == 3 && logs->shape[0] == 2 && logs->shape[1] == 0);
        y = k < 2 ? tn_scan_vector(ctx, v, m, k, &logs) : tn_scan_states(ctx, v, m, phi, k == 3, &logs);
        REQUIRE(y != NULL && logs != NULL);
        CHECK(y->shape[0] == 2 && y->shape[1] == 1 && y->shape[2] == 3);
        double *got = host(y);
        CHECK_NEAR(got[0], 2. / 7, 1e-15);
        CHECK_NEAR(got[5], 6. / 7, 1e-15);
        CHECK_NEAR(tn_item(tn_slice(tn_slice(logs, 0, 1, 2), 1, 0, 1)), log(7.), 1e-15);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, logs)), TN_OK);
        double *gradient = host(v->grad);
        CHECK_NEAR(gradient[1], 2 * 3. / 49, 1e-15);
        tn_ctx_destroy(ctx);
    }
}

/* Bonds of 1, 2, 3, 1 in cores of 3 x 3: the same as rectangular matrices, and no gradient for the padding. */
TEST(padded_bonds)
{
    static const int64_t bond[4] = {1, 2, 3, 1};
    tn_ctx    *ctx = ctx_as(TN_F64, TN_REAL, 1, NULL);
    tn_tensor *logs;
    double     c[3 * 18], p[6] = {0.25, 0.75, -0.5, 1.5, 0.125, 2}, start[3] = {-2, 0, 0}, x[3] = {-2, 0, 0}, squares = 0;
    REQUIRE(ctx != NULL);
    for (int64_t j = 0; j < 54; j++) {
        const bool inside = j / 6 % 3 < bond[j / 18] && j % 3 < bond[j / 18 + 1];
        c[j] = inside ? (double)(j * 7 % 11 - 5) / 4 + 0.1 : 0;
    }
    for (int64_t j = 0; j < 3; j++) {
        double next[3] = {0, 0, 0};
        for (int64_t e = 0; e < bond[j]; e++)
            for (int64_t i = 0; i < 2; i++)
                for (int64_t f = 0; f < bond[j + 1]; f++) next[f] += x[e] * p[j * 2 + i] * c[j * 18 + e * 6 + i * 3 + f];
        memcpy(x, next, sizeof x);
    }
    for (int64_t f = 0; f < 3; f++) squares += x[f] * x[f];
    tn_tensor *v = given(ctx, 1, 3, 0, 0, 0, start);
    tn_tensor *cores = given(ctx, 4, 3, 3, 2, 3, c);
    tn_tensor *phi = given(ctx, 3, 1, 3, 2, 0, p);
    tn_record(ctx);
    tn_tensor *y = tn_scan_states(ctx, v, cores, phi, false, &logs);
    REQUIRE(y != NULL);
    double *got = host(y);
    for (int64_t f = 0; f < 3; f++) CHECK_NEAR(got[9 + f], x[f] / sqrt(squares), 1e-14);
    CHECK_NEAR(tn_item(tn_slice(logs, 1, 3, 4)), log(squares) / 2, 1e-14);
    CHECK_STATUS(tn_backward(ctx, whole(ctx, logs, false)), TN_OK);
    got = host(cores->grad);
    for (int64_t j = 0; j < 54; j++) {
        const bool inside = j / 6 % 3 < bond[j / 18] && j % 3 < bond[j / 18 + 1];
        CHECK(inside ? fabs(got[j]) > 1e-9 : got[j] == 0);
    }
    tn_ctx_destroy(ctx);
}

/* Where only the features have a gradient, or both scans of the same cores have one, which then add up. */
TEST(who_has_a_gradient)
{
    double *got[3], worst = 0;
    for (int k = 0; k < 3; k++) {                                   /* the gradients of both sums, and of either */
        tn_ctx    *ctx = ctx_as(TN_F64, TN_REAL, 1, NULL);
        tn_tensor *y[2];
        int64_t    shape[3] = {2, 5, 2}, twos[4] = {2, 5, 2, 5};
        REQUIRE(ctx != NULL);
        tn_tensor *v = tn_normal(ctx, 1, shape + 1, 0, 1);
        tn_tensor *cores = normal(ctx, 4, 5, 5, 2, 5);
        tn_tensor *phi = tn_normal(ctx, 3, shape, 0, 1);
        tn_record(ctx);
        for (int i = 0; i < 2; i++) y[i] = tn_scan_states(ctx, v, cores, phi, i, NULL);
        for (int i = 0; i < 2; i++) y[i] = tn_sum(ctx, tn_mul(ctx, y[i], tn_mul(ctx, y[i], y[i])));
        CHECK_STATUS(tn_backward(ctx, k == 0 ? tn_add(ctx, y[0], y[1]) : y[k - 1]), TN_OK);
        got[k] = host(cores->grad);
        if (k == 0) {
            tn_ctx_reset(ctx);
            v = tn_full(ctx, 1, shape + 1, 1);
            phi = normal(ctx, 3, 1, 2, 2, 0);
            cores = tn_full(ctx, 4, twos, 1);
            tn_record(ctx);
            tn_scan_states(ctx, v, cores, phi, false, &y[0]);
            CHECK_STATUS(tn_backward(ctx, whole(ctx, y[0], false)), TN_OK);
            CHECK(phi->grad != NULL);
            CHECK_NEAR(tn_item(tn_sum(ctx, tn_mul(ctx, phi->grad, phi))), 2, 1e-13);
        }
        tn_ctx_destroy(ctx);
    }
    for (int i = 0; i < 250; i++) test_raise(&worst, fabs(got[0][i] - got[1][i] - got[2][i]));
    WORST("gradients of two scans", worst, 1e-14);
}

/* BF16 activations round the matrices, and nothing of the scan; what the context makes afterwards is BF16 again. */
TEST(bf16_in_blocks)
{
    double *got[2], worst = 0;
    for (int k = 0; k < 2; k++) {
        tn_ctx    *ctx = ctx_as(TN_F32, TN_BF16, 1, NULL);
        tn_tensor *logs;
        REQUIRE(ctx != NULL);
        tn_tensor *m = tn_cast(ctx, normal(ctx, 4, 1, 40, 3, 3), TN_BF16);
        CHECK(m->dtype == TN_BF16);
        CHECK(k ? tn_scan(ctx, m, false, &logs) != NULL : tn_scan_blocks(ctx, m, 6, false, &logs) != NULL);
        REQUIRE(logs != NULL);
        CHECK(tn_mul(ctx, m, m)->dtype == TN_BF16);
        got[k] = host(logs);
        tn_ctx_destroy(ctx);
    }
    for (int64_t i = 0; i < 40; i++) test_raise(&worst, fabs(got[0][i] - got[1][i]));
    WORST("logarithms of BF16 matrices", worst, 2e-5);
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------- */

/* Blocks of sites, of any length and with sites left over, give what the sequential scan gives, and the same gradients. M_k of chain
   0 may be zero. */
TEST(blocks)
{
    static const int64_t list[][5] = {{1, 12, 3, 4, -1}, {1, 13, 3, 4, -1}, {2, 11, 2, 3, -1}, {3, 7, 1, 2, -1}, {2, 5, 4, 1, -1}, {1, 9, 3, 5, -1},
                                      {2, 23, 3, 5, 7}, {1, 1100, 2, 33, -1}, {2, 0, 3, 2, -1}, {0, 6, 2, 2, -1}};
    for (size_t k = 0; k < sizeof list / sizeof *list; k++)
        for (int reverse = 0; reverse < 2; reverse++) {
            const int64_t b = list[k][0], n = list[k][1], d = list[k][2], all = b * n * d * d;
            double       *got[2][3], worst = 0;
            for (int t = 0; t < 2; t++) {
                tn_ctx    *ctx = ctx_as(TN_F64, TN_REAL, 1, NULL);
                tn_tensor *logs;
                REQUIRE(ctx != NULL);
                tn_tensor *m = normal(ctx, 4, b, n, d, d);
                double    *v = host(m);
                for (int64_t i = 0; list[k][4] >= 0 && i < d * d; i++) v[list[k][4] * d * d + i] = 0;
                m = given(ctx, 4, b, n, d, d, v);
                tn_record(ctx);
                tn_tensor *y = t ? tn_scan_blocks(ctx, m, list[k][3], reverse, &logs) : tn_scan(ctx, m, reverse, &logs);
                CHECK_CTX(ctx);
                REQUIRE(y != NULL && logs != NULL);
                CHECK(y->rank == 4 && y->shape[0] == b && y->shape[1] == n && y->shape[3] == d && logs->rank == 2 && logs->shape[1] == n);
                got[t][0] = host(y);
                got[t][1] = host(logs);
                y = tn_sum(ctx, tn_mul(ctx, y, tn_mul(ctx, y, y)));
                if (list[k][4] < 0) y = tn_add(ctx, y, tn_sum(ctx, logs));
                CHECK_STATUS(tn_backward(ctx, y), TN_OK);
                got[t][2] = host(m->grad);
                tn_ctx_destroy(ctx);
            }
            for (int64_t i = 0; i < b * n; i++) if (got[0][1][i] != got[1][1][i])
                test_raise(&worst, fabs(got[0][1][i] - got[1][1][i]) / (1 + fabs(got[0][1][i])));
            for (int64_t i = 0; i < all; i++) {
                test_raise(&worst, fabs(got[0][0][i] - got[1][0][i]));
                test_raise(&worst, fabs(got[0][2][i] - got[1][2][i]) / (10 + fabs(got[0][2][i])));
            }
            if (!CHECK(worst <= 1e-11)) printf("     %d sites, blocks of %d, reverse %d: %g\n", (int)n, (int)list[k][3], reverse, worst);
        }
    {
        tn_ctx *ctx = ctx_as(TN_F32, TN_REAL, 1, NULL);
        CHECK(tn_scan_blocks(ctx, normal(ctx, 4, 1, 4, 2, 2), 0, false, NULL) == NULL);
        CHECK_ERROR(ctx, TN_ERR_ARG, "scan_blocks: length is 0, expected at least 1");
        CHECK(tn_scan_blocks(ctx, normal(ctx, 3, 1, 4, 2, 2), 2, false, NULL) == NULL);
        CHECK_ERROR(ctx, TN_ERR_SHAPE, "scan_blocks: m is [1,4,2], expected [b,n,d,d]");
        tn_ctx_destroy(ctx);
    }
}

/* ---- many chains ----------------------------------------------------------------------------------------------------- */

/* Many chains share the lanes of a vector, one chain alone does not. Among ordinary ones are chains with features of zeros,
   and so small or large that squares of states underflow or overflow. At the end the last chain gets a NaN, and the others
   keep their bits. */
static void many_chains(tn_dtype dtype, int64_t d, int64_t s, bool uniform, bool reverse, const tn_backend *backend, double bound)
{
    enum { CHAINS = 67, SITES = 70 };
    const int64_t size_of_cores = (uniform ? 1 : SITES) * d * s * d;
    tn_ctx    *ctx = ctx_as(dtype, TN_REAL, 1, backend);
    tn_tensor *logs, *one_logs;
    double    *got, worst = 0, worst_gradient = 0, size = 1;
    int64_t    i;
    REQUIRE(ctx != NULL);
    tn_tensor *v = normal(ctx, 2, CHAINS, d, 0, 0);
    tn_tensor *cores = normal(ctx, 4, uniform ? 1 : SITES, d, s, d);
    tn_tensor *phi = normal(ctx, 3, CHAINS, SITES, s, 0);
    double    *p = host(phi);
    for (i = 0; i < s; i++) {
        p[(3 * SITES + 5) * s + i] = 0;
        p[(18 * SITES + 6) * s + i] *= dtype == TN_F64 ? 1e-160 : 1e-25;
        p[(18 * SITES + 40) * s + i] *= dtype == TN_F64 ? 1e160 : 1e25;
    }
    CHECK_STATUS(tn_write(phi, TN_F64, p, CHAINS * SITES * s), TN_OK);
    tn_record(ctx);
    tn_tensor *y = tn_scan_states(ctx, v, cores, phi, reverse, &logs);
    REQUIRE(y != NULL);
    double *all = host(y), *of = host(logs);
    CHECK_STATUS(tn_backward(ctx, tn_add(ctx, tn_sum(ctx, logs), tn_sum(ctx, tn_mul(ctx, y, tn_mul(ctx, y, y))))), TN_OK);
    double *dphi = host(phi->grad), *dcores = host(cores->grad);
    double *sum = doubles(2 * size_of_cores), *none = sum + size_of_cores;
    for (int64_t b = 0; b < CHAINS; b++) {
        const int64_t states = SITES + 1;
        tn_tensor *part = tn_copy(ctx, tn_slice(phi, 0, b, b + 1)), *begin = tn_copy(ctx, tn_slice(v, 0, b, b + 1));
        tn_watch(part);
        if (cores->grad) CHECK_STATUS(tn_write(cores->grad, TN_F64, none, size_of_cores), TN_OK);
        tn_record(ctx);
        tn_tensor *one = tn_scan_states(ctx, begin, cores, part, reverse, &one_logs);
        REQUIRE(one != NULL);
        got = host(one);
        for (i = 0; i < states * d; i++) test_raise(&worst, fabs(got[i] - all[b * states * d + i]));
        got = host(one_logs);
        for (i = 0; i < states; i++) {
            CHECK(b == 3 || fabs(got[i]) < 1e300);
            if (fabs(got[i]) > 1e300) CHECK(got[i] == of[b * states + i]);
            else test_raise(&worst, fabs(got[i] - of[b * states + i]) / (1 + fabs(got[i])));
        }
        tn_tensor *loss = tn_add(ctx, tn_sum(ctx, one_logs), tn_sum(ctx, tn_mul(ctx, one, tn_mul(ctx, one, one))));
        CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
        got = host(part->grad);
        for (size = 1, i = 0; i < SITES * s; i++) size = fabs(got[i]) > size ? fabs(got[i]) : size;
        for (i = 0; i < SITES * s; i++) test_raise(&worst_gradient, fabs(got[i] - dphi[b * SITES * s + i]) / size);
        got = host(cores->grad);
        for (i = 0; i < size_of_cores; i++) sum[i] += got[i];
    }
    for (size = 1, i = 0; i < size_of_cores; i++) size = fabs(sum[i]) > size ? fabs(sum[i]) : size;
    for (i = 0; i < size_of_cores; i++) test_raise(&worst_gradient, fabs(sum[i] - dcores[i]) / size);
    for (i = 0; i < s; i++) p[((CHAINS - 1) * SITES + 9) * s + i] = NAN;
    CHECK_STATUS(tn_write(phi, TN_F64, p, CHAINS * SITES * s), TN_OK);
    y = tn_scan_states(ctx, v, cores, phi, reverse, &logs);
    got = host(y);
    CHECK(memcmp(got, all, sizeof *got * (size_t)((CHAINS - 1) * (SITES + 1) * d)) == 0);
    for (i = 0; i <= SITES; i++) {
        const double number = got[((CHAINS - 1) * (SITES + 1) + i) * d];
        CHECK((number != number) == (reverse ? i <= 9 : i > 9));
    }
    WORST(dtype == TN_F64 ? "many chains, F64" : "many chains, F32", worst, bound);
    WORST(dtype == TN_F64 ? "their gradients, F64" : "their gradients, F32", worst_gradient, 10 * bound);
    tn_ctx_destroy(ctx);
}

TEST(many_chains_as_one)
{
    tn_backend composed = *tn_cpu_backend();            /* of products, where a backend lacks the kernel */
    composed.fn[TN_KERNEL_SCAN_CORES] = NULL;
    many_chains(TN_F32, 5, 2, false, false, NULL, 1e-4);
    many_chains(TN_F32, 10, 3, true, true, NULL, 1e-4);
    many_chains(TN_F64, 3, 1, false, true, NULL, 1e-13);
    many_chains(TN_F64, 7, 2, false, false, NULL, 1e-13);
    many_chains(TN_F64, 5, 2, true, false, NULL, 1e-13);
    many_chains(TN_F64, 3, 2, true, true, &composed, 1e-13);
    many_chains(TN_F64, 3, 2, false, false, &composed, 1e-13);
}

/* ---- threads -------------------------------------------------------------------------------------------------------- */

/* Results and gradients are bit-identical for any number of threads, of one chain and of many. */
TEST(threads)
{
    static const int64_t extent[][5] = {{1, 40, 33, 1, 0}, {3, 9, 70, 1, 0}, {1, 50, 10, 2, 1}, {37, 7, 10, 2, 0}, {70, 5, 17, 3, 1}};
    for (size_t k = 0; k < sizeof extent / sizeof *extent; k++)
        for (int reverse = 0; reverse < 2; reverse++)
            for (int t = 0; t < 3; t++) {
                double       *now[3][6];
                int64_t       count[6];
                const int64_t b = extent[k][0], n = extent[k][1], d = extent[k][2], s = extent[k][3];
                if (t == 1 && s > 1) continue;                  /* 0: matrices, or states; 1: a vector; 2: F64 */
                for (int threads = 0; threads < 3; threads++) {
                    tn_ctx    *ctx = ctx_as(t == 2 ? TN_F64 : TN_F32, TN_REAL, threads == 0 ? 1 : threads == 1 ? 2 : 7, NULL);
                    tn_tensor *logs, *in[3] = {NULL, NULL, NULL};
                    REQUIRE(ctx != NULL);
                    in[0] = s > 1 ? normal(ctx, 4, extent[k][4] ? 1 : n, d, s, d) : normal(ctx, 4, b, n, d, d);
                    if (s > 1 || t == 1) in[1] = normal(ctx, 2, b, d, 0, 0);
                    if (s > 1) in[2] = normal(ctx, 3, b, n, s, 0);
                    tn_record(ctx);
                    tn_tensor *y = s > 1 ? tn_scan_states(ctx, in[1], in[0], in[2], reverse, &logs)
                      : t == 1 ? tn_scan_vector(ctx, in[1], in[0], reverse, &logs) : tn_scan(ctx, in[0], reverse, &logs);
                    CHECK_STATUS(tn_backward(ctx, tn_add(ctx, tn_sum(ctx, tn_mul(ctx, y, tn_mul(ctx, y, y))), tn_sum(ctx, tn_mul(ctx, logs, logs)))), TN_OK);
                    for (int i = 0; i < 5; i++) {
                        tn_tensor *of = i == 0 ? y : i == 1 ? logs : in[i - 2] ? in[i - 2]->grad : NULL;
                        now[threads][i] = of ? host(of) : NULL;
                        count[i] = of ? tn_tensor_count(of) : 0;
                    }
                    tn_ctx_destroy(ctx);
                }
                for (int threads = 2; threads >= 0; threads--)
                    for (int i = 0; i < 5; i++) {
                        if (!now[threads][i]) continue;
                        CHECK(memcmp(now[threads][i], now[0][i], sizeof(double) * (size_t)count[i]) == 0);
                    }
            }
}

TEST_MAIN(long_open_chains, long_chains, scales, scales_that_change, zeros, not_numbers, shapes, no_site, padded_bonds,
          who_has_a_gradient, blocks, many_chains_as_one, bf16_in_blocks, threads)
