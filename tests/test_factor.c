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

/* ---- HOSVD and HOOI ------------------------------------------------------------------------------------------- */

/* sum over the core's indices, term by term: out [n_0,..] of core [r_0,..] and factors [n_k,r_k] */
static double *tucker(int rank, const int64_t *n, const int64_t *r, const double *core, double *const *f)
{
    const int64_t all = product(rank, n), cores = product(rank, r);
    double       *out = doubles(all);
    for (int64_t e = 0; e < all; e++)
        for (int64_t c = 0; c < cores; c++) {
            double  x = core[c];
            int64_t i = e, j = c;
            for (int k = rank; k-- > 0; i /= n[k], j /= r[k]) x *= f[k][i % n[k] * r[k] + j % r[k]];
            out[e] += x;
        }
    return out;
}

/* Error and orthonormality of a result, by its tensors. */
static double hosvd_error(const tn_hosvd_result *h, const int64_t *n, const double *a, double *off)
{
    int64_t r[TN_MAX_RANK];
    double *f[TN_MAX_RANK], *core = read_all(h->core), *back, error;
    for (int k = 0; k < h->rank; k++) {
        f[k] = read_all(h->factor[k]);
        r[k] = h->core->shape[k];
        CHECK(h->factor[k]->shape[0] == n[k] && h->factor[k]->shape[1] == r[k]);
        test_raise(off, off_orthonormal(n[k], r[k], f[k]));
    }
    back = tucker(h->rank, n, r, core, f);
    error = test_frobenius(back, a, product(h->rank, n));
    for (int k = 0; k < h->rank; k++) free(f[k]);
    free(core);
    free(back);
    return error;
}

static const struct { int rank; int64_t n[5], r[5]; } shapes[] = {
    {1, {9}, {1}}, {2, {8, 13}, {3, 3}}, {3, {7, 9, 5}, {3, 2, 4}}, {3, {60, 3, 2}, {4, 3, 2}}, {4, {5, 1, 7, 6}, {2, 1, 4, 3}},
    {5, {3, 4, 3, 5, 2}, {2, 2, 3, 2, 1}}};
enum { SHAPES = (int)(sizeof shapes / sizeof *shapes) };

/* A tensor of known multilinear ranks: eps finds them, and the result is the tensor. */
TEST(hosvd_exact)
{
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = context(f64 ? TN_F64 : TN_F32, 1);
        uint64_t seed = 3;
        double   worst = 0, off = 0, claim = 0;
        for (int c = 0; c < SHAPES; c++) {
            const int rank = shapes[c].rank;
            double   *f[5], *core = noise(product(rank, shapes[c].r), &seed), *a;
            tn_tensor *t;
            tn_hosvd_desc   d;
            tn_hosvd_result h;
            memset(&d, 0, sizeof d);
            d.eps = f64 ? 1e-12 : 1e-5;
            d.sweeps = c % 2 * 3;
            for (int k = 0; k < rank; k++) f[k] = noise(shapes[c].n[k] * shapes[c].r[k], &seed);
            a = tucker(rank, shapes[c].n, shapes[c].r, core, f);
            t = tensor(ctx, rank, shapes[c].n, a);
            CHECK_STATUS(tn_hosvd(ctx, t, &d, &h), TN_OK);
            REQUIRE(h.core != NULL);
            for (int k = 0; k < rank; k++) CHECK_INT(h.core->shape[k], shapes[c].r[k]);
            {
                const double error = hosvd_error(&h, shapes[c].n, a, &off);
                test_raise(&worst, error);
                test_raise(&claim, fabs(error - h.error));
            }
            CHECK(h.bound <= d.eps);
            tn_hosvd_destroy(&h);
            CHECK(!h.core && !h.factor[0] && !h.values[0]);
            tn_tensor_destroy(t);
            for (int k = 0; k < rank; k++) free(f[k]);
            free(core);
            free(a);
        }
        CHECK_CTX(ctx);
        WORST("HOSVD of tensors with known ranks", worst, f64 ? 1e-13 : 1e-6);
        WORST("orthonormal factors", off, f64 ? 1e-13 : 1e-6);
        WORST("claimed against measured error", claim, f64 ? 1e-13 : 1e-6);
        tn_ctx_destroy(ctx);
    }
}

/* Truncations of random tensors: the error is below the bound, and the bound below eps; the core's norm is what is kept;
   singular values are those of tn_svd; HOOI never makes it worse, and more sweeps never either. */
TEST(hosvd_bounds)
{
    tn_ctx  *ctx = context(TN_F64, 1);
    uint64_t seed = 15;
    double   over = 0, off = 0, claim = 0, grows = 0, values = 0, pythagoras = 0, gained = 0;
    for (int c = 1; c < SHAPES; c++) {
        const int     rank = shapes[c].rank;
        const int64_t all = product(rank, shapes[c].n);
        double    *a = noise(all, &seed), before = 2;
        tn_tensor *t = tensor(ctx, rank, shapes[c].n, a), *flat;
        tn_hosvd_desc   d;
        tn_hosvd_result h;
        tn_svd_result   v;
        for (int e = 1; e < 10; e++) {                  /* eps */
            memset(&d, 0, sizeof d);
            d.eps = 0.1 * e;
            CHECK_STATUS(tn_hosvd(ctx, t, &d, &h), TN_OK);
            REQUIRE(h.core != NULL);
            test_raise(&over, h.bound / d.eps);
            test_raise(&over, h.error / (h.bound + 1e-14));
            tn_hosvd_destroy(&h);
        }
        memset(&d, 0, sizeof d);
        for (int k = 0; k < rank; k++) d.axis[k].rank = shapes[c].r[k];
        for (int sweep = 0; sweep < 8; sweep++) {       /* ranks, and sweeps of HOOI */
            double *core, error;
            d.sweeps = sweep;
            d.tol = 1e-15;
            CHECK_STATUS(tn_hosvd(ctx, t, &d, &h), TN_OK);
            REQUIRE(h.core != NULL);
            error = hosvd_error(&h, shapes[c].n, a, &off);
            test_raise(&claim, fabs(error - h.error));
            test_raise(&grows, h.error - before);
            if (sweep > 0) test_raise(&gained, before - h.error);
            before = h.error;
            core = read_all(h.core);
            error = 1 - pow(length(product(rank, h.core->shape), core) / length(all, a), 2);
            test_raise(&pythagoras, fabs(sqrt(error > 0 ? error : 0) - h.error));
            free(core);
            if (sweep == 0) CHECK(h.error <= h.bound + 1e-14);
            if (sweep < 7) { tn_hosvd_destroy(&h); continue; }
            flat = tensor(ctx, 2, shapes[c].n, a);      /* the first unfolding needs no permutation */
            tn_tensor_destroy(flat);
            {
                int64_t two[2];
                double *x, *y;
                two[0] = shapes[c].n[0]; two[1] = all / two[0];
                flat = tensor(ctx, 2, two, a);
                CHECK_STATUS(tn_svd(ctx, flat, NULL, &v), TN_OK);
                x = read_all(v.s);
                y = read_all(h.values[0]);
                CHECK_INT(v.s->shape[0], h.values[0]->shape[0]);
                test_raise(&values, test_frobenius(y, x, v.s->shape[0]));
                free(x);
                free(y);
                tn_svd_destroy(&v);
                tn_tensor_destroy(flat);
            }
            tn_hosvd_destroy(&h);
        }
        free(a);
        tn_tensor_destroy(t);
    }
    CHECK_CTX(ctx);
    WORST("error / bound, bound / eps", over, 1);
    WORST("orthonormal factors", off, 1e-13);
    WORST("claimed against measured error", claim, 1e-13);
    WORST("HOOI's error grows by", grows, 1e-15);
    WORST("|A|^2 - |core|^2", pythagoras, 2e-8);
    WORST("singular values", values, 1e-13);
    CHECK(gained > 1e-3);                               /* and HOOI improves what can be improved */
    tn_ctx_destroy(ctx);
}

/* Rules: gaps, ranks that exceed the others' product, absolute values in the tensor's own scale. */
TEST(hosvd_rules)
{
    static const int64_t n[3] = {4, 4, 4}, scalar_shape[1] = {1}, empty_shape[3] = {2, 0, 3};
    double     a[64] = {0}, nan[1] = {(double)NAN};
    tn_ctx    *ctx = context(TN_F64, 1);
    tn_tensor *t, *scalar, *empty;
    tn_hosvd_desc   d;
    tn_hosvd_result h;
    for (int i = 0; i < 4; i++) a[i * 21] = i < 2 ? 3e200 : 1e200;       /* superdiagonal: 3, 3, 1, 1 */
    t = tensor(ctx, 3, n, a);
    memset(&d, 0, sizeof d);
    d.axis[0].absolute = 2e200;
    d.axis[1].rank = 1;
    CHECK_STATUS(tn_hosvd(ctx, t, &d, &h), TN_OK);
    REQUIRE(h.core != NULL);
    CHECK_INT(h.core->shape[0], 2);
    CHECK_NEAR(h.gap[0], 2.0 / 3, 1e-14);
    CHECK_NEAR(h.gap[1], 0, 1e-14);                     /* divides the cluster of two threes */
    CHECK_NEAR(h.gap[2], 1, 0);
    CHECK_NEAR(h.error, sqrt(11.0 / 20), 1e-14);        /* one three of the squares 9 + 9 + 1 + 1 is left */
    tn_hosvd_destroy(&h);
    memset(&d, 0, sizeof d);
    d.axis[0].rank = 3; d.axis[1].rank = d.axis[2].rank = 1;
    d.sweeps = 5;
    CHECK_STATUS(tn_hosvd(ctx, t, &d, &h), TN_OK);      /* the others leave one direction of three */
    REQUIRE(h.core != NULL);
    CHECK_INT(h.core->shape[0], 3);
    {
        double *f = read_all(h.factor[0]);
        CHECK(off_orthonormal(4, 3, f) < 1e-13);
        free(f);
    }
    CHECK_NEAR(h.error, sqrt(11.0 / 20), 1e-14);
    tn_hosvd_destroy(&h);
    empty = tensor(ctx, 3, empty_shape, a);
    CHECK_STATUS(tn_hosvd(ctx, empty, &d, &h), TN_OK);
    CHECK(h.core && h.core->shape[1] == 0 && h.factor[0]->shape[1] == 1 && h.error == 0);
    tn_hosvd_destroy(&h);
    CHECK_CTX(ctx);
    d.axis[1].weight = -1;
    CHECK_STATUS(tn_hosvd(ctx, t, &d, &h), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "hosvd: truncation.weight is -1");
    scalar = tensor(ctx, 1, scalar_shape, nan);
    CHECK_STATUS(tn_hosvd(ctx, scalar, NULL, &h), TN_ERR_NONFINITE);
    CHECK(!h.core && !h.factor[0] && !h.values[0]);
    CHECK_ERROR(ctx, TN_ERR_NONFINITE, "hosvd: a, [1], has NaN");
    tn_ctx_destroy(ctx);
}

/* ---- CP by alternating least squares ---------------------------------------------------------------------------- */

static double *terms_of(int rank, const int64_t *n, int64_t terms, const double *weights, double *const *f)
{
    const int64_t all = product(rank, n);
    double       *out = doubles(all);
    for (int64_t e = 0; e < all; e++)
        for (int64_t c = 0; c < terms; c++) {
            double  x = weights ? weights[c] : 1;
            int64_t i = e;
            for (int k = rank; k-- > 0; i /= n[k]) x *= f[k][i % n[k] * terms + c];
            out[e] += x;
        }
    return out;
}

/* Error of a result by its tensors, with its rules: unit columns that point up, weights in order. */
static double als_error(const tn_cp_als_result *c, const int64_t *n, const double *a, double tol)
{
    double *f[TN_MAX_RANK], *w = read_all(c->weights), *back, error;
    const int64_t terms = c->weights->shape[0];
    for (int k = 0; k < c->rank; k++) f[k] = read_all(c->factor[k]);
    for (int64_t t = 0; t < terms; t++) {
        CHECK(t == 0 || fabs(w[t]) <= fabs(w[t - 1]));
        for (int k = 0; k < c->rank && w[t] != 0; k++) {
            double sum = 0, most = 0;
            for (int64_t i = 0; i < n[k]; i++) {
                const double x = f[k][i * terms + t];
                sum += x * x;
                if (fabs(x) > fabs(most)) most = x;
            }
            CHECK_NEAR(sum, 1, tol);
            CHECK(most > 0);
        }
    }
    back = terms_of(c->rank, n, terms, w, f);
    error = test_frobenius(back, a, product(c->rank, n));
    for (int k = 0; k < c->rank; k++) free(f[k]);
    free(w);
    free(back);
    return error;
}

/* Random tensors of known rank are recovered, of orders 2 to 5, and as an operator. */
TEST(als_recovers)
{
    static const struct { int rank; int64_t n[5], terms; } list[] = {
        {3, {7, 6, 5}, 3}, {3, {4, 9, 9}, 5}, {4, {5, 4, 1, 6}, 3}, {5, {3, 4, 3, 5, 2}, 4}, {2, {6, 8}, 3}};
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = context(f64 ? TN_F64 : TN_F32, 1);
        uint64_t seed = 33;
        double   worst = 0, claim = 0, operators = 0;
        for (size_t c = 0; c < sizeof list / sizeof *list; c++) {
            const int rank = list[c].rank;
            double   *f[5], *a;
            tn_tensor *t;
            tn_cp_als_desc   d;
            tn_cp_als_result r;
            memset(&d, 0, sizeof d);
            d.terms = list[c].terms;
            d.tol = 1e-12;
            d.sweeps = 2000;
            d.seed = 7;
            for (int k = 0; k < rank; k++) f[k] = noise(list[c].n[k] * d.terms, &seed);
            a = terms_of(rank, list[c].n, d.terms, NULL, f);
            t = tensor(ctx, rank, list[c].n, a);
            CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_OK);
            REQUIRE(r.weights != NULL);
            {
                const double error = als_error(&r, list[c].n, a, f64 ? 1e-13 : 1e-6);
                test_raise(&worst, error);
                test_raise(&claim, fabs(error - r.error));
            }
            CHECK(r.converged && !r.degenerate && r.cancellation < 10);
            if (rank == 3) {
                tn_cp     *cp = tn_cp_from_als(ctx, &r, TN_CP_INPUT_PLAIN);
                tn_tensor *dense = cp ? tn_cp_dense(cp) : NULL;
                REQUIRE(dense != NULL);
                double *x = read_all(dense);
                test_raise(&operators, test_frobenius(x, a, product(3, list[c].n)));
                free(x);
                tn_tensor_destroy(dense);
                tn_cp_destroy(cp);
            }
            tn_cp_als_destroy(&r);
            CHECK(!r.weights && !r.factor[0]);
            tn_tensor_destroy(t);
            for (int k = 0; k < rank; k++) free(f[k]);
            free(a);
        }
        CHECK_CTX(ctx);
        WORST("recovered terms", worst, f64 ? 1e-9 : 1e-6);
        WORST("claimed against measured error", claim, f64 ? 1e-14 : 2e-7);
        WORST("as operators", operators, f64 ? 1e-9 : 1e-6);
        tn_ctx_destroy(ctx);
    }
}

/* The objective never increases, with and without a ridge, at too few, enough and too many terms. */
TEST(als_monotone)
{
    static const int64_t n[3] = {5, 4, 6};
    tn_ctx    *ctx = context(TN_F64, 1);
    uint64_t   seed = 2;
    double    *a = noise(120, &seed), grows = 0;
    tn_tensor *t = tensor(ctx, 3, n, a);
    int64_t    checked = 0;
    for (int terms = 1; terms < 40; terms = terms * 2 + 1)
        for (int ridge = 0; ridge < 3; ridge++) {
            double before = HUGE_VAL;
            for (int sweeps = 1; sweeps < 40; sweeps += sweeps < 10 ? 1 : 7) {
                tn_cp_als_desc   d;
                tn_cp_als_result r;
                memset(&d, 0, sizeof d);
                d.terms = terms;
                d.ridge = ridge * ridge * 0.01;
                d.sweeps = sweeps;
                d.starts = 1;
                d.random = ridge == 1;
                d.tol = 1e-15;
                CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_OK);
                if (before < HUGE_VAL) test_raise(&grows, r.objective - before);
                CHECK(ridge > 0 || fabs(sqrt(r.objective) - r.error) < 1e-12);
                before = r.objective;
                checked++;
                tn_cp_als_destroy(&r);
            }
        }
    CHECK(checked > 150);
    WORST("the objective grows by", grows, 0);
    free(a);
    CHECK_CTX(ctx);
    tn_ctx_destroy(ctx);
}

/* The tensor a a b + a b a + b a a has rank 3 and border rank 2: two terms come as near as one likes, and cancel. */
TEST(als_degenerate)
{
    static const int64_t n[3] = {2, 2, 2};
    static const double  a[8] = {0, 1, 1, 0, 1, 0, 0, 0};
    tn_ctx    *ctx = context(TN_F64, 1);
    tn_tensor *t = tensor(ctx, 3, n, a);
    tn_cp_als_desc   d;
    tn_cp_als_result r;
    memset(&d, 0, sizeof d);
    d.terms = 2;
    d.tol = 1e-9;
    CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_OK);
    printf("two terms: error %.3g, congruence %.4f, cancellation %.2f\n", r.error, r.congruence, r.cancellation);
    CHECK(r.degenerate && r.congruence < -0.85 && r.cancellation > 2 && r.error < 0.1);
    tn_cp_als_destroy(&r);
    d.ridge = 0.1;                                      /* the ridge keeps them apart */
    CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_OK);
    printf("with a ridge: error %.3g, congruence %.4f, cancellation %.2f\n", r.error, r.congruence, r.cancellation);
    CHECK(!r.degenerate && r.cancellation < 2);
    tn_cp_als_destroy(&r);
    d.ridge = 0;
    d.terms = 3;
    CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_OK);
    CHECK(r.error < 1e-3);
    tn_cp_als_destroy(&r);
    CHECK_CTX(ctx);
    tn_ctx_destroy(ctx);
}

TEST(als_edges)
{
    static const int64_t n[3] = {3, 2, 4}, none[3] = {3, 0, 4}, flat[1] = {24};
    const double zeros[24] = {0};
    double       bad[24] = {0};
    tn_ctx    *ctx = context(TN_F32, 1);
    tn_tensor *t = tensor(ctx, 3, n, zeros), *empty = tensor(ctx, 3, none, zeros), *one = tensor(ctx, 1, flat, zeros);
    tn_cp_als_desc   d;
    tn_cp_als_result r;
    memset(&d, 0, sizeof d);
    d.terms = 2;
    CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_OK);
    CHECK(r.error == 0 && r.weights && !r.degenerate);
    tn_cp_als_destroy(&r);
    CHECK_STATUS(tn_cp_als(ctx, empty, &d, &r), TN_OK);
    CHECK(r.error == 0 && r.factor[1] && r.factor[1]->shape[0] == 0);
    CHECK(tn_cp_from_als(ctx, &r, TN_CP_INPUT_CONSTANT) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "cp_from_als: axis 1 has no elements");
    tn_cp_als_destroy(&r);
    CHECK(tn_cp_from_als(ctx, NULL, TN_CP_INPUT_PLAIN) == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "cp_from_als: the decomposition is NULL");
    CHECK_STATUS(tn_cp_als(ctx, one, &d, &r), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "cp_als: a has rank 1");
    CHECK_STATUS(tn_cp_als(ctx, t, NULL, &r), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "cp_als: terms is 0");
    bad[5] = (double)NAN;
    CHECK_STATUS(tn_write(t, TN_F64, bad, 24), TN_OK);
    CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_ERR_NONFINITE);
    CHECK(!r.weights && !r.factor[0]);
    CHECK_ERROR(ctx, TN_ERR_NONFINITE, "cp_als: a, [3,2,4], has NaN");
    tn_ctx_destroy(ctx);
}

TEST_MAIN(tt_exact, tt_eps, tt_algebra, tt_rounding, tt_scales, tt_zero_extents_and_mistakes, hosvd_exact, hosvd_bounds,
          hosvd_rules, als_recovers, als_monotone, als_degenerate, als_edges)
