/* test_chain.c: long chains of matrices, and what could make them overflow, vanish or stop being numbers. What a chain of ordinary
   matrices and length gives, and its gradient, is in cases.h. */

#include "kit.h"

static tn_tensor *chains(tn_ctx *ctx, int64_t b, int64_t n, int64_t d)
{
    int64_t shape[4] = {b, n, d, d};
    return tn_tensor_nd(ctx, TN_REAL, 4, shape);
}

/* Gaussian matrices of every size: their product leaves the range of float after a few dozen sites, its logarithm does not. The same
   in double, scaled by hand at each site. */
static void long_chain(tn_dtype dtype, int64_t n, int64_t d, double bound)
{
    tn_ctx    *ctx = ctx_threads(dtype, 0, NULL);
    tn_tensor *log_norm;
    int64_t    dd = d * d;
    double    *v = doubles(n * dd), *p = doubles(3 * dd), *next = p + dd, *got = p + 2 * dd;
    double     log_want = 0, worst = 0, size = 0;
    REQUIRE(ctx != NULL && v && p);
    int64_t    shape[4] = {1, n, d, d};
    tn_tensor *m = tn_normal(ctx, 4, shape, 0, 1);
    tn_tensor *y = tn_chain(ctx, m, &log_norm);
    CHECK_CTX(ctx);
    CHECK_STATUS(tn_read(m, TN_F64, v, n * dd), TN_OK);
    for (int64_t i = 0; i < d; i++) p[i * d + i] = 1;
    for (int64_t site = 0; site < n; site++) {
        double most = 0;
        for (int64_t i = 0; i < dd; i++) next[i] = 0;
        for (int64_t i = 0; i < d; i++)
            for (int64_t k = 0; k < d; k++)
                for (int64_t j = 0; j < d; j++) next[i * d + j] += p[i * d + k] * v[site * dd + k * d + j];
        for (int64_t i = 0; i < dd; i++) if (fabs(next[i]) > most) most = fabs(next[i]);
        for (int64_t i = 0; i < dd; i++) p[i] = next[i] / most;
        log_want += log(most);
    }
    for (int64_t i = 0; i < dd; i++) size += p[i] * p[i];
    log_want += log(size) / 2;
    CHECK(log_want > 90);                                   /* e^90 is more than a float holds */
    CHECK_STATUS(tn_read(y, TN_F64, got, dd), TN_OK);
    for (int64_t i = 0; i < dd; i++) test_raise(&worst, fabs(got[i] - p[i] / sqrt(size)));
    test_raise(&worst, fabs(tn_item(log_norm) - log_want) / fabs(log_want));
    WORST(dtype == TN_F64 ? "long chain, F64" : "long chain, F32", worst, bound);
    tn_ctx_destroy(ctx);
}

TEST(long_chains)
{
    long_chain(TN_F64, 500, 17, 5e-14);
    long_chain(TN_F32, 500, 17, 3e-5);
    long_chain(TN_F32, 90, 64, 1e-5);
}

/* Numbers whose squares float cannot hold, large and small. */
TEST(scales)
{
    static const double size[] = {1e30, 1e-30, 1e37, 1e-37};
    tn_ctx *ctx = ctx_threads(TN_F32, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int i = 0; i < 4; i++) {
        tn_tensor *m = chains(ctx, 1, 3, 2), *log_norm;
        float      v[12], got[4];
        for (int k = 0; k < 12; k++) v[k] = (float)(k % 4 == 0 || k % 4 == 3 ? size[k / 4 == 1 ? (i ^ 1) : i] : 0);
        tn_write(m, TN_F32, v, 12);
        tn_tensor *y = tn_chain(ctx, m, &log_norm);
        CHECK_CTX(ctx);
        tn_read(y, TN_F32, got, 4);
        CHECK_NEAR(got[0], sqrt(0.5), 1e-6);
        CHECK_NEAR(got[3], sqrt(0.5), 1e-6);
        CHECK(got[1] == 0 && got[2] == 0);
        CHECK_NEAR(tn_item(log_norm), log((double)v[0]) + log((double)v[4]) + log((double)v[8]) + log(2.0) / 2, 1e-4);
    }
    tn_ctx_destroy(ctx);
}

/* A product that is zero, with a neighbour in the batch that is not: no NaN, a gradient of zero. */
TEST(zero_product)
{
    static const float v[16] = {1, 0, 0, 0,  0, 0, 0, 1,    1, 2, 3, 4,  5, 6, 7, 8};
    tn_ctx    *ctx = ctx_threads(TN_F32, 1, NULL);
    tn_tensor *log_norm;
    float      got[8], gradient[16];
    REQUIRE(ctx != NULL);
    tn_tensor *m = chains(ctx, 2, 2, 2);
    tn_write(m, TN_F32, v, 16);
    tn_watch(m);
    tn_record(ctx);
    tn_tensor *y = tn_chain(ctx, m, &log_norm);
    CHECK_STATUS(tn_read(y, TN_F32, got, 8), TN_OK);
    for (int i = 0; i < 4; i++) CHECK(got[i] == 0);
    CHECK_NEAR(got[4], 19 / sqrt(19. * 19 + 22 * 22 + 43 * 43 + 50 * 50), 1e-6);
    CHECK(tn_item(tn_slice(log_norm, 0, 0, 1)) == -INFINITY);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, y))), TN_OK);
    REQUIRE(m->grad != NULL);
    CHECK_STATUS(tn_read(m->grad, TN_F32, gradient, 16), TN_OK);
    for (int i = 0; i < 8; i++) CHECK(gradient[i] == 0);
    for (int i = 8; i < 16; i++) CHECK_NEAR(gradient[i], 0, 1e-6);       /* the norm of y is one whatever m is */
    tn_ctx_destroy(ctx);
}

TEST(not_numbers)
{
    static const float bad[] = {NAN, INFINITY};
    for (int k = 0; k < 2; k++) {
        tn_ctx    *ctx = ctx_threads(TN_F32, 1, NULL);
        tn_tensor *log_norm;
        float      v[8] = {1, 2, 3, 4, 5, 6, 7, 8}, got[4];
        REQUIRE(ctx != NULL);
        v[1] = bad[k];
        tn_tensor *m = chains(ctx, 1, 2, 2);
        tn_write(m, TN_F32, v, 8);
        CHECK_STATUS(tn_read(tn_chain(ctx, m, &log_norm), TN_F32, got, 4), TN_OK);
        for (int i = 0; i < 4; i++) CHECK(got[i] != got[i]);
        CHECK(!(tn_item(log_norm) < 1e300));
        tn_ctx_destroy(ctx);
    }
}

TEST(shapes)
{
    tn_ctx    *ctx = ctx_threads(TN_F32, 1, NULL);
    tn_tensor *log_norm;
    int64_t    shape[4] = {2, 3, 4, 5};
    REQUIRE(ctx != NULL);
    CHECK(tn_chain(ctx, tn_full(ctx, 4, shape, 1), &log_norm) == NULL && log_norm == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "chain: m is [2,3,4,5], expected [b,n,d,d] with n >= 1");
    REFUSED(ctx, tn_chain(ctx, chains(ctx, 2, 0, 3), NULL), TN_ERR_SHAPE, "chain: m is [2,0,3,3]");
    REFUSED(ctx, tn_chain(ctx, tn_full(ctx, 3, shape, 1), NULL), TN_ERR_SHAPE, "chain: m is [2,3,4]");
    tn_tensor *y = tn_chain(ctx, chains(ctx, 0, 2, 3), &log_norm);
    REQUIRE(y != NULL && log_norm != NULL);
    CHECK(y->rank == 3 && y->shape[0] == 0 && y->shape[2] == 3 && log_norm->rank == 1 && log_norm->shape[0] == 0);
    y = tn_chain(ctx, chains(ctx, 2, 2, 0), &log_norm);
    REQUIRE(y != NULL && log_norm != NULL);
    CHECK(y->shape[0] == 2 && y->shape[1] == 0 && tn_item(tn_slice(log_norm, 0, 1, 2)) == -INFINITY);
    tn_ctx_destroy(ctx);
}

/* Results that any op takes: contiguous, and with gradients. */
TEST(contiguous)
{
    tn_ctx    *ctx = ctx_threads(TN_F64, 1, NULL);
    tn_tensor *log_norm;
    double     g[2][24], v[24];
    int64_t    shape[4] = {2, 3, 2, 2};
    REQUIRE(ctx != NULL);
    for (int i = 0; i < 24; i++) v[i] = (i * 7 % 11 - 5) / 4.0;
    for (int k = 0; k < 2; k++) {
        tn_ctx_reset(ctx);
        tn_tensor *m = tn_tensor_nd(ctx, TN_REAL, 4, shape);
        CHECK_STATUS(tn_write(m, TN_F64, v, 24), TN_OK);
        tn_watch(m);
        tn_record(ctx);
        tn_tensor *y = tn_chain(ctx, m, &log_norm);
        REQUIRE(y != NULL && log_norm != NULL);
        CHECK(tn_tensor_is_contiguous(y) && tn_tensor_is_contiguous(log_norm));
        tn_tensor *flat = k ? tn_reshape_2d(y, 4, 2) : y;
        tn_tensor *again = k ? tn_reshape_2d(log_norm, 2, 1) : log_norm;
        flat = tn_sum(ctx, tn_mul(ctx, flat, tn_mul(ctx, flat, flat)));
        CHECK_STATUS(tn_backward(ctx, tn_add(ctx, flat, tn_sum(ctx, again))), TN_OK);
        CHECK_STATUS(tn_read(m->grad, TN_F64, g[k], 24), TN_OK);
    }
    for (int i = 0; i < 24; i++) CHECK(g[0][i] == g[1][i] && g[0][i] != 0);
    tn_ctx_destroy(ctx);
}

/* Chains of 8 x 8 and 16 x 16 have a kernel of their own unless they are recorded: its results are bit-identical, but for the
   signs of zeros. Some products of these leave the range at each site, some at a few, some never; one vanishes, the
   norms of some are 2, one is not a number. */
TEST(recorded_or_not)
{
    static const double by[] = {0.1, 0.3, 1, 30, 1e9, 1e-9, 1e30};
    static const int    length[] = {1, 2, 3, 60};
    tn_ctx *ctx = ctx_threads(TN_F32, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int64_t d = 7; d <= 17; d += d == 8 ? 7 : 1)
        for (int64_t n = 0; n < 4; n++)
            for (int64_t k = 0; k < 10; k++) {
                float      y[2][3 * 289], log_norm[2][3];
                tn_tensor *sum;
                tn_ctx_reset(ctx);
                int64_t dd = d * d, count = 3 * length[n] * dd;
                int64_t shape[4] = {3, length[n], d, d};
                float  *v = (float *)malloc(sizeof *v * (size_t)count);
                REQUIRE(v != NULL);
                tn_tensor *m = tn_normal(ctx, 4, shape, 0, by[k % 7]);
                CHECK_STATUS(tn_read(m, TN_F32, v, count), TN_OK);
                for (int64_t i = 0; k == 7 && i < dd; i++) v[count - dd + i] = 0;
                for (int64_t i = 0; k == 8 && i < count; i++) v[i] = i % dd == 0 ? 2 : 0;     /* each norm is 2 */
                if (k == 9) v[count / 2] = NAN;
                CHECK_STATUS(tn_write(m, TN_F32, v, count), TN_OK);
                tn_watch(m);
                for (int recorded = 0; recorded < 2; recorded++) {
                    if (recorded) tn_record(ctx);
                    tn_tensor *p = tn_chain(ctx, m, &sum);
                    CHECK_STATUS(tn_read(p, TN_F32, y[recorded], 3 * dd), TN_OK);
                    CHECK_STATUS(tn_read(sum, TN_F32, log_norm[recorded], 3), TN_OK);
                }
                for (int64_t i = 0; i < 3 * dd; i++)
                    CHECK(memcmp(&y[0][i], &y[1][i], sizeof y[0][i]) == 0 || (y[0][i] != y[0][i] && y[1][i] != y[1][i]));
                for (int64_t i = 0; i < 3; i++)
                    CHECK(log_norm[0][i] == log_norm[1][i] || (log_norm[0][i] != log_norm[0][i] && log_norm[1][i] != log_norm[1][i]));
                free(v);
            }
    tn_ctx_destroy(ctx);
}

/* Whether a product is divided must not depend on the kernel where its norm is near the limit, whether its squares are spread over all
   rows or in one. A division that is left out, or one too many, shows in the last bits. */
TEST(recorded_or_not_at_the_limits)
{
    static const double part[] = {0.1, 0.3, 0.6, 0.9, 0.99, 1.01, 1.1, 1.5, 3, 7};      /* of the square of the limit */
    tn_ctx *ctx = ctx_threads(TN_F32, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int64_t d = 8; d <= 16; d += 8)
        for (int rows = 1; rows <= d; rows += (int)d - 1)
            for (int low = 0; low < 2; low++)
                for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
                    float      y[2][256], log_norm[2], v[3 * 256];
                    double     norm = 0;
                    tn_tensor *sum;
                    tn_ctx_reset(ctx);
                    int64_t    shape[4] = {1, 3, d, d};
                    tn_tensor *m = tn_normal(ctx, 4, shape, 0, 1);
                    CHECK_STATUS(tn_read(m, TN_F32, v, 3 * d * d), TN_OK);
                    for (int64_t i = rows * d; i < d * d; i++) v[i] = 0;
                    for (int64_t i = 0; i < d * d; i++) norm += (double)v[i] * (double)v[i];
                    double by = sqrt(part[k] * (low ? 1 / 4294967296.0 : 4294967296.0) / norm);
                    for (int64_t i = 0; i < d * d; i++) v[d * d + i] = i % (d + 1) == 0 ? (float)by : 0;
                    CHECK_STATUS(tn_write(m, TN_F32, v, 3 * d * d), TN_OK);
                    tn_watch(m);
                    for (int recorded = 0; recorded < 2; recorded++) {
                        if (recorded) tn_record(ctx);
                        CHECK_STATUS(tn_read(tn_chain(ctx, m, &sum), TN_F32, y[recorded], d * d), TN_OK);
                        log_norm[recorded] = (float)tn_item(sum);
                    }
                    for (int64_t i = 0; i < d * d; i++) CHECK(y[0][i] == y[1][i]);      /* zeros may differ in their signs */
                    CHECK(memcmp(&log_norm[0], &log_norm[1], sizeof log_norm[0]) == 0);
                }
    tn_ctx_destroy(ctx);
}

TEST(long_chains_in_registers)
{
    long_chain(TN_F32, 500, 8, 3e-5);
    long_chain(TN_F32, 500, 16, 3e-5);
}

TEST_MAIN(long_chains, long_chains_in_registers, recorded_or_not, recorded_or_not_at_the_limits, scales, zero_product, not_numbers, shapes, contiguous)
