/* test_factor.c: decompositions of tensors, against tensors that are made from known factors and against bounds. */

#include "test.h"

static tn_ctx *context(tn_dtype dtype, int threads)
{
    tn_desc d;
    tn_ctx *ctx = NULL;
    char    why[TN_WHY] = "";
    memset(&d, 0, sizeof d);
    d.dtype = dtype;
    d.threads = threads;
    if (tn_ctx_create(&d, &ctx, why) != TN_OK) test_fail(__FILE__, __LINE__, "a context", why, "none");
    return ctx;
}

static double *doubles(int64_t n) { return (double *)calloc((size_t)n + 1, sizeof(double)); }

static double *noise(int64_t n, uint64_t *seed)
{
    double *p = doubles(n);
    for (int64_t i = 0; i < n; i++) p[i] = test_random_real(seed);
    return p;
}

static int64_t product(int count, const int64_t *n)
{
    int64_t all = 1;
    for (int k = 0; k < count; k++) all *= n[k];
    return all;
}

static tn_tensor *tensor(tn_ctx *ctx, int rank, const int64_t *shape, const double *p)
{
    tn_tensor *t = tn_tensor_create(ctx, TN_REAL, rank, shape);
    CHECK_STATUS(tn_write(t, TN_F64, p, tn_tensor_count(t)), TN_OK);
    return t;
}

static double *read_all(const tn_tensor *t)
{
    double *p = doubles(tn_tensor_count(t));
    CHECK_STATUS(tn_read(t, TN_F64, p, tn_tensor_count(t)), TN_OK);
    return p;
}

static double length(int64_t n, const double *x)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* |X^T X - I|_F of the columns of x [m,k] */
static double off_orthonormal(int64_t m, int64_t k, const double *x)
{
    double worst = 0;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++) {
            double sum = -(double)(i == j);
            for (int64_t l = 0; l < m; l++) sum += x[l * k + i] * x[l * k + j];
            worst += sum * sum;
        }
    return sqrt(worst);
}

/* ---- tensor trains -------------------------------------------------------------------------------------------- */

/* A train of random cores; extents and bonds from lists. */
static tn_tt *train(tn_ctx *ctx, int64_t count, const int64_t *n, const int64_t *bonds, uint64_t *seed)
{
    tn_tensor **core = (tn_tensor **)calloc((size_t)count, sizeof *core);
    tn_tt      *tt;
    for (int64_t k = 0; k < count; k++) {
        int64_t shape[3];
        double *p;
        shape[0] = k ? bonds[k - 1] : 1; shape[1] = n[k]; shape[2] = k + 1 < count ? bonds[k] : 1;
        p = noise(product(3, shape), seed);
        core[k] = tensor(ctx, 3, shape, p);
        free(p);
    }
    tt = tn_tt_create(ctx, count, core);
    CHECK_CTX(ctx);
    for (int64_t k = 0; k < count; k++) tn_tensor_destroy(core[k]);
    free(core);
    return tt;
}

/* The elements of a train by the definition, one after the other. */
static double *expanded(const tn_tt *tt)
{
    int64_t all = 1, *index = (int64_t *)calloc((size_t)tt->count, sizeof *index);
    double *out, **core = (double **)calloc((size_t)tt->count, sizeof *core);
    for (int64_t k = 0; k < tt->count; k++) {
        all *= tt->core[k]->shape[1];
        core[k] = read_all(tt->core[k]);
    }
    out = doubles(all);
    for (int64_t e = 0; e < all; e++) {
        double v[64] = {1}, next[64];
        int64_t rest = e;
        for (int64_t k = tt->count; k-- > 0; rest /= tt->core[k]->shape[1]) index[k] = rest % tt->core[k]->shape[1];
        for (int64_t k = 0; k < tt->count; k++) {
            const int64_t *n = tt->core[k]->shape;
            for (int64_t j = 0; j < n[2]; j++) {
                next[j] = 0;
                for (int64_t i = 0; i < n[0]; i++) next[j] += v[i] * core[k][(i * n[1] + index[k]) * n[2] + j];
            }
            memcpy(v, next, sizeof v);
        }
        out[e] = v[0];
    }
    for (int64_t k = 0; k < tt->count; k++) free(core[k]);
    free(core);
    free(index);
    return out;
}

static int64_t largest_bond(const tn_tt *tt)
{
    int64_t most = 0;
    for (int64_t k = 0; k < tt->count; k++) if (tt->core[k]->shape[2] > most) most = tt->core[k]->shape[2];
    return most;
}

/* The error of the cores' orthonormal columns, but the last's. */
static double train_orthonormal(const tn_tt *tt)
{
    double worst = 0;
    for (int64_t k = 0; k + 1 < tt->count; k++) {
        double *p = read_all(tt->core[k]);
        test_raise(&worst, off_orthonormal(tt->core[k]->shape[0] * tt->core[k]->shape[1], tt->core[k]->shape[2], p));
        free(p);
    }
    return worst;
}

/* A dense tensor of a train with known bonds is decomposed into these bonds again, exactly. */
TEST(tt_exact)
{
    static const struct { int64_t count, n[9], bonds[8]; } list[] = {
        {1, {7}, {0}}, {2, {5, 9}, {3}}, {3, {4, 1, 6}, {2, 2}}, {4, {3, 5, 4, 2}, {2, 4, 2}},
        {5, {1, 3, 4, 3, 1}, {1, 3, 2, 1}}, {9, {2, 2, 3, 2, 2, 2, 2, 2, 3}, {2, 3, 2, 2, 3, 2, 2, 2}}};
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = context(f64 ? TN_F64 : TN_F32, 1);
        uint64_t seed = 5;
        double   worst = 0, off = 0, claimed = 0;
        for (size_t c = 0; c < sizeof list / sizeof *list; c++) {
            const int64_t all = product((int)list[c].count, list[c].n);
            tn_tt     *made = train(ctx, list[c].count, list[c].n, list[c].bonds, &seed), *tt;
            double    *a = expanded(made), *b;
            tn_tensor *flat = tensor(ctx, 1, &all, a), *dense;
            tt = tn_tt_svd(ctx, flat, list[c].count, list[c].n, NULL);
            REQUIRE(tt != NULL);
            for (int64_t k = 0; k + 1 < tt->count; k++) CHECK_INT(tt->core[k]->shape[2], list[c].bonds[k]);
            dense = tn_tt_dense(tt);
            REQUIRE(dense != NULL);
            CHECK_INT(dense->rank, list[c].count > TN_MAX_RANK ? 1 : list[c].count);
            b = read_all(dense);
            test_raise(&worst, test_frobenius(b, a, all));
            free(b);
            b = expanded(tt);
            test_raise(&worst, test_frobenius(b, a, all));
            free(b);
            test_raise(&off, train_orthonormal(tt));
            test_raise(&claimed, tt->error);
            free(a);
            tn_tensor_destroy(dense);
            tn_tensor_destroy(flat);
            tn_tt_destroy(tt);
            tn_tt_destroy(made);
        }
        CHECK_CTX(ctx);
        WORST("recovery of a train", worst, f64 ? 2e-14 : 1e-6);
        WORST("columns of the cores", off, f64 ? 1e-13 : 1e-6);
        WORST("the error that it claims", claimed, f64 ? 1e-12 : 1e-6);
        tn_ctx_destroy(ctx);
    }
}

/* Random tensors at several eps: the achieved error is the claimed one and at most eps; a smaller eps has larger bonds. */
TEST(tt_eps)
{
    static const int64_t shapes[][5] = {{6, 5, 7, 4, 3}, {30, 31, 1, 1, 1}, {2, 40, 2, 3, 2}};
    static const double  eps[] = {0.9, 0.5, 0.2, 0.05, 1e-3};
    tn_ctx  *ctx = context(TN_F64, 1);
    uint64_t seed = 8;
    double   claim = 0, over = 0;
    for (int c = 0; c < 3; c++) {
        const int64_t all = product(5, shapes[c]);
        double    *a = noise(all, &seed), *b;
        tn_tensor *t = tensor(ctx, 5, shapes[c], a);
        int64_t    before = 0, numbers = 0;
        for (int e = 0; e < 5; e++) {
            tn_tt_desc d;
            tn_tt     *tt;
            int64_t    now = 0;
            double     error;
            memset(&d, 0, sizeof d);
            d.eps = eps[e];
            REQUIRE((tt = tn_tt_svd(ctx, t, 0, NULL, &d)) != NULL);
            b = expanded(tt);
            error = test_frobenius(b, a, all);
            free(b);
            test_raise(&claim, fabs(error - tt->error));
            test_raise(&over, error / eps[e]);
            for (int64_t k = 0; k < 5; k++) now += tn_tensor_count(tt->core[k]);
            CHECK(now >= before);
            CHECK(tt->gap >= 0 && tt->gap <= 1);
            before = now;
            numbers += now;
            tn_tt_destroy(tt);
            d.rank = 2;                             /* the limit wins over eps */
            d.eps = 1e-9;
            REQUIRE((tt = tn_tt_svd(ctx, t, 0, NULL, &d)) != NULL);
            CHECK(largest_bond(tt) <= 2);
            b = expanded(tt);
            test_raise(&claim, fabs(test_frobenius(b, a, all) - tt->error));
            free(b);
            tn_tt_destroy(tt);
        }
        CHECK(numbers > 0);
        free(a);
        tn_tensor_destroy(t);
    }
    CHECK_CTX(ctx);
    WORST("claimed against measured error", claim, 1e-13);
    WORST("error / eps", over, 1);
    tn_ctx_destroy(ctx);
}

/* Sums, factors, inner products, norms, elements: against dense tensors. */
TEST(tt_algebra)
{
    static const int64_t n[2][4] = {{3, 4, 2, 5}, {1, 6, 1, 3}}, bonds[2][3] = {{2, 3, 4}, {3, 1, 2}};
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = context(f64 ? TN_F64 : TN_F32, 1);
        uint64_t seed = 21;
        double   worst = 0, rounded = 0, product_error = 0;
        for (int c = 0; c < 2; c++) {
            const int64_t all = product(4, n[c]);
            tn_tt  *a = train(ctx, 4, n[c], bonds[c], &seed), *b = train(ctx, 4, n[c], bonds[1 - c], &seed);
            tn_tt  *sum, *half, *less;
            double *x = expanded(a), *y = expanded(b), *z, inner = 0, expected = 0, norm = 0, *values = doubles(all);
            int64_t *index = (int64_t *)calloc((size_t)all * 4, sizeof *index);
            tn_tt_desc d;
            memset(&d, 0, sizeof d);
            sum = tn_tt_add(a, b);
            half = tn_tt_scale(sum, -0.5);
            REQUIRE(sum && half);
            z = expanded(half);
            for (int64_t i = 0; i < all; i++) {
                int64_t rest = i;
                for (int k = 4; k-- > 0; rest /= n[c][k]) index[i * 4 + k] = rest % n[c][k];
                expected += x[i] * y[i];
            }
            CHECK_STATUS(tn_tt_elements(half, all, index, values), TN_OK);
            test_raise(&worst, test_frobenius(values, z, all));
            for (int64_t i = 0; i < all; i++) values[i] = -0.5 * (x[i] + y[i]);
            test_raise(&worst, test_frobenius(z, values, all));
            CHECK_STATUS(tn_tt_inner(a, b, &inner), TN_OK);
            test_raise(&product_error, fabs(inner - expected) / (length(all, x) * length(all, y)));
            CHECK_STATUS(tn_tt_norm(half, &norm), TN_OK);
            test_raise(&product_error, fabs(norm - length(all, values)) / length(all, values));
            less = tn_tt_add(sum, sum);             /* twice the same: rounding finds the ranks of one */
            REQUIRE(less != NULL);
            tn_tt_destroy(half);
            REQUIRE((half = tn_tt_round(less, NULL)) != NULL);
            for (int k = 0; k < 4; k++) CHECK(half->core[k]->shape[2] <= sum->core[k]->shape[2]);
            free(z);
            z = expanded(half);
            for (int64_t i = 0; i < all; i++) values[i] = 2 * (x[i] + y[i]);
            test_raise(&worst, test_frobenius(z, values, all));
            test_raise(&rounded, train_orthonormal(half));
            tn_tt_destroy(half);
            tn_tt_destroy(less);
            tn_tt_destroy(sum);
            tn_tt_destroy(a);
            tn_tt_destroy(b);
            free(x); free(y); free(z); free(values); free(index);
        }
        CHECK_CTX(ctx);
        WORST("sums, factors, elements", worst, f64 ? 1e-13 : 1e-6);
        WORST("inner products, norms", product_error, f64 ? 1e-14 : 1e-6);
        WORST("cores after rounding", rounded, f64 ? 1e-13 : 1e-6);
        tn_ctx_destroy(ctx);
    }
}

/* Rounding: error <= eps and equal to the claimed one, at 14 axes, which no tensor has. */
TEST(tt_rounding)
{
    static const double  eps[] = {0.7, 0.3, 0.1, 1e-2, 1e-5};
    int64_t  n[14], bonds[13];
    tn_ctx  *ctx = context(TN_F64, 1);
    uint64_t seed = 4;
    double   over = 0, claim = 0, size = 0;
    tn_tt   *tt, *back, *rest, *less;
    for (int k = 0; k < 14; k++) { n[k] = 2 + k % 2; if (k < 13) bonds[k] = 1 + (k * 5 + 3) % 7; }
    tt = train(ctx, 14, n, bonds, &seed);
    CHECK_STATUS(tn_tt_norm(tt, &size), TN_OK);
    for (int e = 0; e < 5; e++) {
        tn_tt_desc d;
        double     error = 0;
        memset(&d, 0, sizeof d);
        d.eps = eps[e];
        less = tn_tt_round(tt, &d);
        back = tn_tt_scale(less, -1);
        rest = tn_tt_add(tt, back);
        REQUIRE(less && back && rest);
        CHECK_STATUS(tn_tt_norm(rest, &error), TN_OK);
        test_raise(&over, error / size / eps[e]);
        test_raise(&claim, fabs(error / size - less->error));
        tn_tt_destroy(less);
        tn_tt_destroy(back);
        tn_tt_destroy(rest);
    }
    tn_tt_destroy(tt);
    CHECK_CTX(ctx);
    WORST("error / eps of rounding", over, 1);
    WORST("claimed against measured error of rounding", claim, 1e-7);    /* of a difference of norms: sqrt(eps) */
    tn_ctx_destroy(ctx);
}

/* A long train of which the norm, but no intermediate number, fits a double; scales that float does not have. */
TEST(tt_scales)
{
    enum { LONG = 400 };
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = context(f64 ? TN_F64 : TN_F32, 1);
        tn_tensor *core[LONG];
        int64_t  index[LONG];
        double   norm = 0, value = 0, inner = 0;
        tn_tt   *tt, *less;
        for (int k = 0; k < LONG; k++) {          /* the first half multiplies by 1000 or by 1e6, the second divides */
            const double up = f64 ? 1e6 : 1e3, p[2] = {k % 2 ? 3.0 : 1.0, 4};
            double q[2];
            int64_t shape[3] = {1, 2, 1};
            for (int i = 0; i < 2; i++) q[i] = p[i] / (k % 2 ? 5.0 : 4.0) * (k < LONG / 2 ? up : 1 / up);
            core[k] = tensor(ctx, 3, shape, q);
            index[k] = 1;
        }
        tt = tn_tt_create(ctx, LONG, core);
        REQUIRE(tt != NULL);
        CHECK_STATUS(tn_tt_norm(tt, &norm), TN_OK);
        CHECK_NEAR(norm / pow(sqrt(17.0) / 4, LONG / 2), 1, f64 ? 1e-10 : 1e-3);
        CHECK_STATUS(tn_tt_inner(tt, tt, &inner), TN_OK);
        CHECK_NEAR(inner / (norm * norm), 1, 1e-12);
        CHECK_STATUS(tn_tt_elements(tt, 1, index, &value), TN_OK);
        CHECK_NEAR(value / pow(0.8, LONG / 2), 1, f64 ? 1e-10 : 1e-3);
        REQUIRE((less = tn_tt_round(tt, NULL)) != NULL);
        CHECK_STATUS(tn_tt_norm(less, &value), TN_OK);
        CHECK_NEAR(value / norm, 1, f64 ? 1e-12 : 1e-3);
        tn_tt_destroy(less);
        for (int k = LONG / 2; k < LONG; k++) CHECK_STATUS(tn_assign(tt->core[k], tt->core[k % 2]), TN_OK);
        CHECK_CTX(ctx);
        CHECK_STATUS(tn_tt_norm(tt, &norm), TN_ERR_NONFINITE);
        CHECK_ERROR(ctx, TN_ERR_NONFINITE, "tt_norm: the result is above");
        CHECK(tn_tt_dense(tt) == NULL);
        CHECK_ERROR(ctx, TN_ERR_MEMORY, "tt_dense: the dense tensor of 400 axes");
        less = tn_tt_round(tt, NULL);               /* too large for one core: its scale is spread over all */
        if (CHECK(less != NULL)) tn_tt_destroy(less);
        tn_tt_destroy(tt);
        for (int k = 0; k < LONG; k++) tn_tensor_destroy(core[k]);
        CHECK_CTX(ctx);
        tn_ctx_destroy(ctx);
    }
}

TEST(tt_zero_extents_and_mistakes)
{
    static const int64_t shape[3] = {2, 0, 3}, plain[3] = {2, 2, 3}, wrong[2] = {5, 2}, negative[2] = {-4, -3};
    const double numbers[12] = {0}, bad[12] = {1, 2, (double)NAN};
    tn_ctx    *ctx = context(TN_F64, 1);
    tn_tensor *empty = tensor(ctx, 3, shape, numbers), *zeros = tensor(ctx, 3, plain, numbers);
    tn_tensor *nan = tensor(ctx, 3, plain, bad), *dense, *one[2];
    tn_tt     *tt = tn_tt_svd(ctx, empty, 0, NULL, NULL), *other, *sum;
    tn_tt_desc d;
    double     value = 1;
    int64_t    index[3] = {0, 2, 0};
    memset(&d, 0, sizeof d);
    REQUIRE(tt != NULL);
    CHECK_STATUS(tn_tt_norm(tt, &value), TN_OK);
    CHECK(value == 0);
    REQUIRE((dense = tn_tt_dense(tt)) != NULL);
    CHECK_INT(dense->shape[1], 0);
    REQUIRE((sum = tn_tt_round(tt, NULL)) != NULL);
    CHECK_INT(sum->core[1]->shape[1], 0);
    tn_tt_destroy(sum);
    REQUIRE((other = tn_tt_svd(ctx, zeros, 0, NULL, NULL)) != NULL);
    CHECK(other->error == 0 && largest_bond(other) == 1);
    CHECK_CTX(ctx);
    CHECK(tn_tt_add(tt, other) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tt_add: axis 1 of b has 2 elements, expected 0");
    CHECK_STATUS(tn_tt_elements(other, 1, index, &value), TN_ERR_DATA);
    CHECK_ERROR(ctx, TN_ERR_DATA, "tt_elements: index 1 of element 0 is 2, expected 0 to 1");
    CHECK(tn_tt_svd(ctx, zeros, 2, wrong, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tt_svd: the product of the 2 extents differs from the 12 elements");
    CHECK(tn_tt_svd(ctx, zeros, 2, negative, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tt_svd: the product");
    CHECK(tn_tt_svd(ctx, nan, 0, NULL, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_NONFINITE, "tt_svd: a, [2,2,3], has NaN");
    d.eps = -1;
    CHECK(tn_tt_round(other, &d) == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tt_round: eps is -1");
    one[0] = one[1] = zeros;
    CHECK(tn_tt_create(ctx, 2, one) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tt: core 0 is [2,2,3], expected [1,n,r]");
    CHECK(tn_tt_scale(other, (double)INFINITY) == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tt_scale: factor is inf");
    CHECK(tn_tt_svd(ctx, NULL, 0, NULL, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tt_svd: a is NULL");
    tn_tt_destroy(tt);
    tn_tt_destroy(other);
    tn_ctx_destroy(ctx);                            /* and the tensors */
}

TEST_MAIN(tt_exact, tt_eps, tt_algebra, tt_rounding, tt_scales, tt_zero_extents_and_mistakes)
