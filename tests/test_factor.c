/* test_factor.c: decompositions of tensors, against tensors that are made from known factors and against bounds. */

#include "kit.h"

static double *noise_by(int64_t n, uint64_t *seed)
{
    double *p = doubles(n);
    for (int64_t i = 0; i < n; i++) p[i] = test_random_real(seed);
    return p;
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
    for (int64_t k = 0; k < count; k++) {
        int64_t shape[3] = {k ? bonds[k - 1] : 1, n[k], k + 1 < count ? bonds[k] : 1};
        double *p = noise_by(shape_count(3, shape), seed);
        core[k] = tensor_from(ctx, 3, shape, p);
    }
    tn_tt *tt = tn_tt_create(ctx, count, core);
    CHECK_CTX(ctx);
    for (int64_t k = 0; k < count; k++) tn_tensor_destroy(core[k]);
    free(core);
    return tt;
}

/* The elements of a train by the definition, one after the other. */
static double *expanded(const tn_tt *tt)
{
    int64_t  all = 1, *index = (int64_t *)calloc((size_t)tt->count, sizeof *index);
    double **core = (double **)calloc((size_t)tt->count, sizeof *core);
    for (int64_t k = 0; k < tt->count; k++) {
        all *= tt->core[k]->shape[1];
        core[k] = host(tt->core[k]);
    }
    double *out = doubles(all);
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
    free(core); free(index);
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
        double *p = host(tt->core[k]);
        test_raise(&worst, off_orthonormal(tt->core[k]->shape[0] * tt->core[k]->shape[1], tt->core[k]->shape[2], p));
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
        tn_ctx  *ctx = ctx_threads(f64 ? TN_F64 : TN_F32, 1, NULL);
        uint64_t seed = 5;
        double   worst = 0, off = 0, claimed = 0;
        for (size_t c = 0; c < sizeof list / sizeof *list; c++) {
            const int64_t all = shape_count((int)list[c].count, list[c].n);
            tn_tt     *made = train(ctx, list[c].count, list[c].n, list[c].bonds, &seed);
            double    *a = expanded(made);
            tn_tensor *flat = tensor_from(ctx, 1, &all, a);
            tn_tt     *tt = tn_tt_svd(ctx, flat, list[c].count, list[c].n, NULL);
            REQUIRE(tt != NULL);
            for (int64_t k = 0; k + 1 < tt->count; k++) CHECK_INT(tt->core[k]->shape[2], list[c].bonds[k]);
            tn_tensor *dense = tn_tt_dense(tt);
            REQUIRE(dense != NULL);
            CHECK_INT(dense->rank, list[c].count > TN_MAX_RANK ? 1 : list[c].count);
            double *b = host(dense);
            test_raise(&worst, test_frobenius(b, a, all));
            b = expanded(tt);
            test_raise(&worst, test_frobenius(b, a, all));
            test_raise(&off, train_orthonormal(tt));
            test_raise(&claimed, tt->error);
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
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t seed = 8;
    double   claim = 0, over = 0;
    for (int c = 0; c < 3; c++) {
        const int64_t all = shape_count(5, shapes[c]);
        double    *a = noise_by(all, &seed);
        tn_tensor *t = tensor_from(ctx, 5, shapes[c], a);
        int64_t    before = 0, numbers = 0;
        for (int e = 0; e < 5; e++) {
            tn_tt_desc d = ZERO;
            tn_tt     *tt;
            int64_t    now = 0;
            d.eps = eps[e];
            REQUIRE((tt = tn_tt_svd(ctx, t, 0, NULL, &d)) != NULL);
            double *b = expanded(tt);
            double  error = test_frobenius(b, a, all);
            test_raise(&claim, fabs(error - tt->error));
            test_raise(&over, error / eps[e]);
            for (int64_t k = 0; k < 5; k++) now += tn_tensor_count(tt->core[k]);
            CHECK(now >= before);
            CHECK(tt->gap >= 0 && tt->gap <= 1);
            before = now;
            numbers += now;
            tn_tt_destroy(tt);
            d.max_bond = 2;                             /* the limit wins over eps */
            d.eps = 1e-9;
            REQUIRE((tt = tn_tt_svd(ctx, t, 0, NULL, &d)) != NULL);
            CHECK(largest_bond(tt) <= 2);
            b = expanded(tt);
            test_raise(&claim, fabs(test_frobenius(b, a, all) - tt->error));
            tn_tt_destroy(tt);
        }
        CHECK(numbers > 0);
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
        tn_ctx  *ctx = ctx_threads(f64 ? TN_F64 : TN_F32, 1, NULL);
        uint64_t seed = 21;
        double   worst = 0, rounded = 0, product_error = 0;
        for (int c = 0; c < 2; c++) {
            const int64_t all = shape_count(4, n[c]);
            tn_tt  *a = train(ctx, 4, n[c], bonds[c], &seed), *b = train(ctx, 4, n[c], bonds[1 - c], &seed);
            double *x = expanded(a), *y = expanded(b), inner = 0, expected = 0, norm = 0, *values = doubles(all);
            int64_t *index = (int64_t *)calloc((size_t)all * 4, sizeof *index);
            tn_tt *sum = tn_tt_add(a, b);
            tn_tt *half = tn_tt_scale(sum, -0.5);
            REQUIRE(sum && half);
            double *z = expanded(half);
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
            test_raise(&product_error, fabs(inner - expected) / (frobenius(x, all) * frobenius(y, all)));
            CHECK_STATUS(tn_tt_norm(half, &norm), TN_OK);
            test_raise(&product_error, fabs(norm - frobenius(values, all)) / frobenius(values, all));
            tn_tt *less = tn_tt_add(sum, sum);             /* twice the same: rounding finds the ranks of one */
            REQUIRE(less != NULL);
            tn_tt_destroy(half);
            REQUIRE((half = tn_tt_round(less, NULL)) != NULL);
            for (int k = 0; k < 4; k++) CHECK(half->core[k]->shape[2] <= sum->core[k]->shape[2]);
            z = expanded(half);
            for (int64_t i = 0; i < all; i++) values[i] = 2 * (x[i] + y[i]);
            test_raise(&worst, test_frobenius(z, values, all));
            test_raise(&rounded, train_orthonormal(half));
            tn_tt_destroy(half);
            tn_tt_destroy(less);
            tn_tt_destroy(sum);
            tn_tt_destroy(a);
            tn_tt_destroy(b);
            free(index);
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
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t seed = 4;
    double   over = 0, claim = 0, size = 0;
    for (int k = 0; k < 14; k++) { n[k] = 2 + k % 2; if (k < 13) bonds[k] = 1 + (k * 5 + 3) % 7; }
    tn_tt *tt = train(ctx, 14, n, bonds, &seed);
    CHECK_STATUS(tn_tt_norm(tt, &size), TN_OK);
    for (int e = 0; e < 5; e++) {
        tn_tt_desc d = ZERO;
        double     error = 0;
        d.eps = eps[e];
        tn_tt *less = tn_tt_round(tt, &d);
        tn_tt *back = tn_tt_scale(less, -1);
        tn_tt *rest = tn_tt_add(tt, back);
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
    WORST("claimed against measured error of rounding", claim, 1e-14);
    tn_ctx_destroy(ctx);
}

/* The norm of a - b is as exact as those of a and b, although b has other cores and differs from a by a small share only;
   the inner product of the difference with itself is not. */
TEST(tt_differences)
{
    static const int64_t n[5] = {3, 4, 2, 5, 3}, bonds[4] = {3, 5, 6, 3}, ones[4] = {1, 1, 1, 1};
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t seed = 31;
    tn_tt   *a = train(ctx, 5, n, bonds, &seed), *e = train(ctx, 5, n, ones, &seed);
    double   size = 0, change = 0, worst = 0, plain = 0;
    tn_tt_desc d = ZERO;
    d.eps = 1e-15;
    CHECK_STATUS(tn_tt_norm(a, &size), TN_OK);
    CHECK_STATUS(tn_tt_norm(e, &change), TN_OK);
    for (int level = 2; level < 15; level++) {
        const double share = pow(10, -level) * size / change;
        tn_tt *part = tn_tt_scale(e, share), *sum = tn_tt_add(a, part), *b = tn_tt_round(sum, &d);      /* other cores */
        tn_tt *minus = tn_tt_scale(b, -1), *rest = tn_tt_add(a, minus);
        double norm = 0, inner = 0;
        REQUIRE(rest != NULL);
        CHECK_STATUS(tn_tt_norm(rest, &norm), TN_OK);
        CHECK_STATUS(tn_tt_inner(rest, rest, &inner), TN_OK);
        test_raise(&worst, fabs(norm - share * change) / size);
        test_raise(&plain, fabs(sqrt(inner > 0 ? inner : 0) - share * change) / size);
        tn_tt_destroy(part); tn_tt_destroy(sum); tn_tt_destroy(b); tn_tt_destroy(minus); tn_tt_destroy(rest);
    }
    WORST("|a - b| / |a|", worst, 1e-14);
    printf("by the inner product %.2g\n", plain);
    CHECK(plain > 1e-10);                               /* so that this test would notice */
    tn_tt_destroy(a);
    tn_tt_destroy(e);
    CLOSE_CTX(ctx);
}

/* A long train of which the norm, but no intermediate number, fits a double; scales that float does not have. */
TEST(tt_scales)
{
    enum { LONG = 400 };
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx *ctx = ctx_threads(f64 ? TN_F64 : TN_F32, 1, NULL);
        tn_tensor *core[LONG];
        int64_t index[LONG];
        double  norm = 0, value = 0, inner = 0;
        tn_tt  *less;
        for (int k = 0; k < LONG; k++) {          /* the first half multiplies by 1000 or by 1e6, the second divides */
            const double up = f64 ? 1e6 : 1e3, p[2] = {k % 2 ? 3.0 : 1.0, 4};
            double q[2];
            int64_t shape[3] = {1, 2, 1};
            for (int i = 0; i < 2; i++) q[i] = p[i] / (k % 2 ? 5.0 : 4.0) * (k < LONG / 2 ? up : 1 / up);
            core[k] = tensor_from(ctx, 3, shape, q);
            index[k] = 1;
        }
        tn_tt *tt = tn_tt_create(ctx, LONG, core);
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
        FAILS(ctx, tn_tt_norm(tt, &norm), TN_ERR_NONFINITE, "tt_norm: the result is above");
        REFUSED(ctx, tn_tt_dense(tt), TN_ERR_MEMORY, "tt_dense: the dense tensor of 400 axes");
        less = tn_tt_round(tt, NULL);               /* too large for one core: its scale is spread over all */
        if (CHECK(less != NULL)) tn_tt_destroy(less);
        tn_tt_destroy(tt);
        for (int k = 0; k < LONG; k++) tn_tensor_destroy(core[k]);
        CLOSE_CTX(ctx);
    }
}

TEST(tt_zero_extents_and_mistakes)
{
    static const int64_t shape[3] = {2, 0, 3}, plain[3] = {2, 2, 3}, wrong[2] = {5, 2}, negative[2] = {-4, -3};
    const double numbers[12] = {0}, bad[12] = {1, 2, (double)NAN};
    tn_ctx    *ctx = ctx_threads(TN_F64, 1, NULL);
    tn_tensor *empty = tensor_from(ctx, 3, shape, numbers), *zeros = tensor_from(ctx, 3, plain, numbers);
    tn_tensor *nan = tensor_from(ctx, 3, plain, bad), *dense;
    tn_tt     *tt = tn_tt_svd(ctx, empty, 0, NULL, NULL), *other, *sum;
    tn_tt_desc d = ZERO;
    double     value = 1;
    int64_t    index[3] = {0, 2, 0};
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
    REFUSED(ctx, tn_tt_add(tt, other), TN_ERR_SHAPE, "tt_add: axis 1 of b has 2 elements, expected 0");
    FAILS(ctx, tn_tt_elements(other, 1, index, &value), TN_ERR_DATA, "tt_elements: index 1 of element 0 is 2, expected 0 to 1");
    CHECK(tn_tt_svd(ctx, zeros, 2, wrong, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tt_svd: the product of the 2 extents differs from the 12 elements");
    REFUSED(ctx, tn_tt_svd(ctx, zeros, 2, negative, NULL), TN_ERR_SHAPE, "tt_svd: the product");
    REFUSED(ctx, tn_tt_svd(ctx, nan, 0, NULL, NULL), TN_ERR_NONFINITE, "tt_svd: a, [2,2,3], has NaN");
    d.eps = -1;
    REFUSED(ctx, tn_tt_round(other, &d), TN_ERR_ARG, "tt_round: eps is -1");
    tn_tensor *one[2] = {zeros, zeros};
    REFUSED(ctx, tn_tt_create(ctx, 2, one), TN_ERR_SHAPE, "tt_create: core 0 is [2,2,3], expected [1,n,r]");
    REFUSED(ctx, tn_tt_scale(other, (double)INFINITY), TN_ERR_ARG, "tt_scale: factor is inf");
    REFUSED(ctx, tn_tt_svd(ctx, NULL, 0, NULL, NULL), TN_ERR_ARG, "tt_svd: a is NULL");
    tn_tt_destroy(tt);
    tn_tt_destroy(other);
    tn_ctx_destroy(ctx);                            /* and the tensors */
}

/* ---- HOSVD and HOOI ------------------------------------------------------------------------------------------- */

/* sum over the core's indices, term by term: out [n_0,..] of core [r_0,..] and factors [n_k,r_k] */
static double *tucker(int rank, const int64_t *n, const int64_t *r, const double *core, double *const *f)
{
    const int64_t all = shape_count(rank, n), cores = shape_count(rank, r);
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
    double *f[TN_MAX_RANK], *core = host(h->core);
    for (int k = 0; k < h->rank; k++) {
        f[k] = host(h->factor[k]);
        r[k] = h->core->shape[k];
        CHECK(h->factor[k]->shape[0] == n[k] && h->factor[k]->shape[1] == r[k]);
        test_raise(off, off_orthonormal(n[k], r[k], f[k]));
    }
    double *back = tucker(h->rank, n, r, core, f);
    double  error = test_frobenius(back, a, shape_count(h->rank, n));
    return error;
}

static const struct { int rank; int64_t n[5], r[5]; } shapes[] = {
    {1, {9}, {1}}, {2, {8, 13}, {3, 3}}, {3, {7, 9, 5}, {3, 2, 4}}, {3, {60, 3, 2}, {4, 3, 2}},
    {3, {4, 7, 50}, {2, 3, 3}}, {4, {5, 1, 7, 6}, {2, 1, 4, 3}}, {5, {3, 4, 3, 5, 2}, {2, 2, 3, 2, 1}}};
enum { SHAPES = (int)(sizeof shapes / sizeof *shapes) };

/* A tensor of known multilinear ranks: eps finds them, and the result is the tensor. */
TEST(hosvd_exact)
{
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = ctx_threads(f64 ? TN_F64 : TN_F32, 1, NULL);
        uint64_t seed = 3;
        double   worst = 0, off = 0, claim = 0;
        for (int c = 0; c < SHAPES; c++) {
            const int rank = shapes[c].rank;
            double   *f[5], *core = noise_by(shape_count(rank, shapes[c].r), &seed);
            tn_hosvd_desc   d = ZERO;
            tn_hosvd_result h;
            d.eps = f64 ? 1e-12 : 1e-5;
            d.sweeps = c % 2 * 3;
            for (int k = 0; k < rank; k++) f[k] = noise_by(shapes[c].n[k] * shapes[c].r[k], &seed);
            double    *a = tucker(rank, shapes[c].n, shapes[c].r, core, f);
            tn_tensor *t = tensor_from(ctx, rank, shapes[c].n, a);
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
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t seed = 15;
    double   over = 0, off = 0, claim = 0, grows = 0, values = 0, pythagoras = 0, gained = 0;
    int64_t  sweeps = 0;
    for (int c = 1; c < SHAPES; c++) {
        const int     rank = shapes[c].rank;
        const int64_t all = shape_count(rank, shapes[c].n);
        double    *a = noise_by(all, &seed), before = 2;
        tn_tensor *t = tensor_from(ctx, rank, shapes[c].n, a);
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
            d.sweeps = sweep;
            d.tol = 1e-15;
            CHECK_STATUS(tn_hosvd(ctx, t, &d, &h), TN_OK);
            REQUIRE(h.core != NULL);
            double error = hosvd_error(&h, shapes[c].n, a, &off);
            test_raise(&claim, fabs(error - h.error));
            test_raise(&grows, h.error - before);
            if (sweep > 0) test_raise(&gained, before - h.error);
            before = h.error;
            sweeps += h.sweeps;
            double *core = host(h.core);
            error = 1 - pow(frobenius(core, shape_count(rank, h.core->shape)) / frobenius(a, all), 2);
            test_raise(&pythagoras, fabs(error - h.error * h.error));
            if (sweep == 0) CHECK(h.error <= h.bound + 1e-14);
            if (sweep < 7) { tn_hosvd_destroy(&h); continue; }
            tn_tensor *flat = tensor_from(ctx, 2, shapes[c].n, a); /* the first unfolding needs no permutation */
            tn_tensor_destroy(flat);
            {
                int64_t two[2];
                two[0] = shapes[c].n[0]; two[1] = all / two[0];
                flat = tensor_from(ctx, 2, two, a);
                CHECK_STATUS(tn_svd(ctx, flat, NULL, &v), TN_OK);
                double *x = host(v.s);
                double *y = host(h.values[0]);
                CHECK_INT(v.s->shape[0], h.values[0]->shape[0]);
                test_raise(&values, test_frobenius(y, x, v.s->shape[0]));
                tn_svd_destroy(&v);
                tn_tensor_destroy(flat);
            }
            tn_hosvd_destroy(&h);
        }
        tn_tensor_destroy(t);
    }
    CHECK_CTX(ctx);
    WORST("error / bound, bound / eps", over, 1);
    WORST("orthonormal factors", off, 1e-13);
    WORST("claimed against measured error", claim, 1e-13);
    WORST("HOOI's error grows by", grows, 1e-15);
    WORST("|A|^2 - |core|^2, over |A|^2", pythagoras, 1e-14);
    WORST("singular values", values, 1e-13);
    CHECK(gained > 1e-3 && sweeps > 100);                 /* and HOOI improves what can be improved */
    tn_ctx_destroy(ctx);
}

/* Rules: gaps, ranks that exceed the others' product, absolute values in the tensor's own scale. */
TEST(hosvd_rules)
{
    static const int64_t n[3] = {4, 4, 4}, scalar_shape[1] = {1}, empty_shape[3] = {2, 0, 3};
    double     a[64] = {0}, nan[1] = {(double)NAN};
    tn_ctx    *ctx = ctx_threads(TN_F64, 1, NULL);
    tn_hosvd_desc   d = ZERO;
    tn_hosvd_result h;
    for (int i = 0; i < 4; i++) a[i * 21] = i < 2 ? 3e200 : 1e200;       /* superdiagonal: 3, 3, 1, 1 */
    tn_tensor *t = tensor_from(ctx, 3, n, a);
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
    CHECK_STATUS(tn_hosvd(ctx, t, &d, &h), TN_OK);      /* the others leave one direction of three */ REQUIRE(h.core != NULL);
    CHECK_INT(h.core->shape[0], 3);
    {
        double *f = host(h.factor[0]);
        CHECK(off_orthonormal(4, 3, f) < 1e-13);
    }
    CHECK_NEAR(h.error, sqrt(11.0 / 20), 1e-14);
    tn_hosvd_destroy(&h);
    {                                                   /* the old columns fill the factor: the first lies in the new span */
        uint64_t   seed = 4;
        double     inside = 0;
        tn_tensor *any = tensor_from(ctx, 3, n, noise_by(64, &seed));
        d.sweeps = 0;
        CHECK_STATUS(tn_hosvd(ctx, any, &d, &h), TN_OK);
        double *old = host(h.factor[0]);
        tn_hosvd_destroy(&h);
        d.sweeps = 1;
        CHECK_STATUS(tn_hosvd(ctx, any, &d, &h), TN_OK);
        double *now = host(h.factor[0]);
        for (int c = 0; c < 3; c++) {
            double along = 0;
            for (int i = 0; i < 4; i++) along += now[3 * i + c] * old[3 * i];
            inside += along * along;
        }
        CHECK_NEAR(inside, 1, 1e-13);
        tn_hosvd_destroy(&h);
        d.sweeps = 5;
    }
    tn_tensor *empty = tensor_from(ctx, 3, empty_shape, a);
    CHECK_STATUS(tn_hosvd(ctx, empty, &d, &h), TN_OK);
    CHECK(h.core && h.core->shape[1] == 0 && h.factor[0]->shape[1] == 1 && h.error == 0);
    tn_hosvd_destroy(&h);
    CHECK_CTX(ctx);
    d.axis[1].weight = -1;
    FAILS(ctx, tn_hosvd(ctx, t, &d, &h), TN_ERR_ARG, "hosvd: truncation.weight is -1");
    tn_tensor *scalar = tensor_from(ctx, 1, scalar_shape, nan);
    CHECK_STATUS(tn_hosvd(ctx, scalar, NULL, &h), TN_ERR_NONFINITE);
    CHECK(!h.core && !h.factor[0] && !h.values[0]);
    CHECK_ERROR(ctx, TN_ERR_NONFINITE, "hosvd: a, [1], has NaN");
    tn_ctx_destroy(ctx);
}

/* ---- CP by alternating least squares ---------------------------------------------------------------------------- */

static double *terms_of(int rank, const int64_t *n, int64_t terms, const double *weights, double *const *f)
{
    const int64_t all = shape_count(rank, n);
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
    double *f[TN_MAX_RANK], *w = host(c->weights);
    const int64_t terms = c->weights->shape[0];
    for (int k = 0; k < c->rank; k++) f[k] = host(c->factor[k]);
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
    double *back = terms_of(c->rank, n, terms, w, f);
    double  error = test_frobenius(back, a, shape_count(c->rank, n));
    return error;
}

/* Random tensors of known rank are recovered, of orders 2 to 5, and as an operator. */
TEST(als_recovers)
{
    static const struct { int rank; int64_t n[5], terms; } list[] = {
        {3, {7, 6, 5}, 3}, {3, {4, 9, 9}, 5}, {4, {5, 4, 1, 6}, 3}, {5, {3, 4, 3, 5, 2}, 4}, {2, {6, 8}, 3}};
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = ctx_threads(f64 ? TN_F64 : TN_F32, 1, NULL);
        uint64_t seed = 33;
        double   worst = 0, claim = 0, operators = 0;
        for (size_t c = 0; c < sizeof list / sizeof *list; c++) {
            const int rank = list[c].rank;
            double   *f[5];
            tn_cp_als_desc   d = ZERO;
            tn_cp_als_result r;
            d.terms = list[c].terms;
            d.tol = 1e-12;
            d.sweeps = 2000;
            d.seed = 7;
            for (int k = 0; k < rank; k++) f[k] = noise_by(list[c].n[k] * d.terms, &seed);
            double    *a = terms_of(rank, list[c].n, d.terms, NULL, f);
            tn_tensor *t = tensor_from(ctx, rank, list[c].n, a);
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
                double *x = host(dense);
                test_raise(&operators, test_frobenius(x, a, shape_count(3, list[c].n)));
                tn_tensor_destroy(dense);
                tn_cp_destroy(cp);
            }
            tn_cp_als_destroy(&r);
            CHECK(!r.weights && !r.factor[0]);
            tn_tensor_destroy(t);
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
    tn_ctx    *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t   seed = 2;
    double    *a = noise_by(120, &seed), grows = 0;
    tn_tensor *t = tensor_from(ctx, 3, n, a);
    int64_t    checked = 0;
    for (int terms = 1; terms < 40; terms = terms * 2 + 1)
        for (int ridge = 0; ridge < 3; ridge++) {
            double before = HUGE_VAL;
            for (int sweeps = 1; sweeps < 40; sweeps += sweeps < 10 ? 1 : 7) {
                tn_cp_als_desc   d = ZERO;
                tn_cp_als_result r;
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
    CLOSE_CTX(ctx);
}

/* The tensor a a b + a b a + b a a has rank 3 and border rank 2: two terms come as near as one likes, and cancel. */
TEST(als_degenerate)
{
    static const int64_t n[3] = {2, 2, 2};
    static const double  a[8] = {0, 1, 1, 0, 1, 0, 0, 0};
    tn_ctx    *ctx = ctx_threads(TN_F64, 1, NULL);
    tn_tensor *t = tensor_from(ctx, 3, n, a);
    tn_cp_als_desc   d = ZERO;
    tn_cp_als_result r;
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
    CLOSE_CTX(ctx);
}

TEST(als_edges)
{
    static const int64_t n[3] = {3, 2, 4}, none[3] = {3, 0, 4}, flat[1] = {24};
    const double zeros[24] = {0};
    double       bad[24] = {0};
    tn_ctx    *ctx = ctx_threads(TN_F32, 1, NULL);
    tn_tensor *t = tensor_from(ctx, 3, n, zeros), *empty = tensor_from(ctx, 3, none, zeros), *one = tensor_from(ctx, 1, flat, zeros);
    tn_cp_als_desc   d = ZERO;
    tn_cp_als_result r;
    d.terms = 2;
    CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_OK);
    CHECK(r.error == 0 && r.weights && !r.degenerate);
    tn_cp_als_destroy(&r);
    CHECK_STATUS(tn_cp_als(ctx, empty, &d, &r), TN_OK);
    CHECK(r.error == 0 && r.factor[1] && r.factor[1]->shape[0] == 0);
    REFUSED(ctx, tn_cp_from_als(ctx, &r, TN_CP_INPUT_CONSTANT), TN_ERR_SHAPE, "cp_from_als: axis 1 has no elements");
    tn_cp_als_destroy(&r);
    REFUSED(ctx, tn_cp_from_als(ctx, NULL, TN_CP_INPUT_PLAIN), TN_ERR_ARG, "cp_from_als: the decomposition is NULL");
    FAILS(ctx, tn_cp_als(ctx, one, &d, &r), TN_ERR_SHAPE, "cp_als: a has rank 1");
    FAILS(ctx, tn_cp_als(ctx, t, NULL, &r), TN_ERR_ARG, "cp_als: terms is 0");
    d.terms = INT64_MAX;
    FAILS(ctx, tn_cp_als(ctx, t, &d, &r), TN_ERR_ARG, "cp_als: terms is 9223372036854775807, expected 1 to 268435456");
    d.terms = 2;
    bad[5] = (double)NAN;
    CHECK_STATUS(tn_write(t, TN_F64, bad, 24), TN_OK);
    CHECK_STATUS(tn_cp_als(ctx, t, &d, &r), TN_ERR_NONFINITE);
    CHECK(!r.weights && !r.factor[0]);
    CHECK_ERROR(ctx, TN_ERR_NONFINITE, "cp_als: a, [3,2,4], has NaN");
    tn_ctx_destroy(ctx);
}

/* ---- joint diagonalisation ---------------------------------------------------------------------------------------- */

/* Orthonormal rows [n,n], by Gram and Schmidt. */
static double *rotation(int64_t n, uint64_t *seed)
{
    double *v = noise_by(n * n, seed);
    for (int64_t i = 0; i < n; i++)
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t j = 0; j < i; j++) {
                double sum = 0;
                for (int64_t l = 0; l < n; l++) sum += v[i * n + l] * v[j * n + l];
                for (int64_t l = 0; l < n; l++) v[i * n + l] -= sum * v[j * n + l];
            }
            double size = frobenius(v + i * n, n);
            for (int64_t l = 0; l < n; l++) v[i * n + l] /= size;
        }
    return v;
}

/* a [b,n,n] += V^T diag(values[b]) V */
static void add_shared(int64_t b, int64_t n, const double *v, const double *values, double *a)
{
    for (int64_t c = 0; c < b; c++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t l = 0; l < n; l++) a[(c * n + i) * n + j] += values[c * n + l] * v[l * n + i] * v[l * n + j];
}

/* |off-diagonal parts of V A_b V^T|_F / |A|_F, by the plainest loops */
static double off_diagonal(int64_t b, int64_t n, const double *v, const double *a)
{
    double off = 0, all = 0;
    for (int64_t c = 0; c < b; c++)
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = 0; q < n; q++) {
                double sum = 0;
                for (int64_t i = 0; i < n; i++)
                    for (int64_t j = 0; j < n; j++) sum += v[p * n + i] * a[(c * n + i) * n + j] * v[q * n + j];
                all += sum * sum;
                if (p != q) off += sum * sum;
            }
    return all > 0 ? sqrt(off / all) : 0;
}

/* How far the vectors are from those that made the matrices, up to order and sign: 1 - |cosine|, the worst. */
static double vectors_off(int64_t n, const double *v, const double *w)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double best = 0;
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < n; l++) sum += v[i * n + l] * w[j * n + l];
            if (fabs(sum) > best) best = fabs(sum);
        }
        test_raise(&worst, 1 - best);
    }
    return worst;
}

/* Matrices that commute are diagonalised exactly, in the basis that made them, also where each alone has multiple values. */
TEST(joint_exact)
{
    static const struct { int64_t b, n; } list[] = {{1, 6}, {3, 5}, {7, 9}, {4, 1}, {2, 2}};
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = ctx_threads(f64 ? TN_F64 : TN_F32, 1, NULL);
        uint64_t seed = 12;
        double   off = 0, basis = 0, orthonormal = 0;
        for (size_t c = 0; c < sizeof list / sizeof *list; c++) {
            const int64_t b = list[c].b, n = list[c].n;
            double *w = rotation(n, &seed), *values = noise_by(b * n, &seed), *a = doubles(b * n * n);
            tn_joint_eigh_result r;
            int64_t              shape[3] = {b, n, n};
            for (int64_t i = 0; i < b * n && b > 2; i++) values[i] = (double)(i * i % 5) - 1;   /* many coincide */
            for (int64_t i = 0; i < n && b > 2; i++) values[i] = 1 + (double)i;
            add_shared(b, n, w, values, a);
            tn_tensor *t = tensor_from(ctx, 3, shape, a);
            CHECK_STATUS(tn_joint_eigh(ctx, t, NULL, &r), TN_OK);
            REQUIRE(r.vectors != NULL && r.separate == NULL);
            CHECK(r.converged);
            double *v = host(r.vectors), *x = host(r.values);
            test_raise(&off, r.error);
            test_raise(&off, off_diagonal(b, n, v, a));
            test_raise(&basis, vectors_off(n, v, w));
            test_raise(&orthonormal, off_orthonormal(n, n, v));
            for (int64_t i = 1; i < n; i++) {           /* the order */
                double before = 0, now = 0;
                for (int64_t m = 0; m < b; m++) {
                    before += x[m * n + i - 1] * x[m * n + i - 1];
                    now += x[m * n + i] * x[m * n + i];
                }
                CHECK(now <= before * 1.00001);
            }
            tn_joint_eigh_destroy(&r);
            CHECK(!r.vectors && !r.values);
            tn_tensor_destroy(t);
        }
        CHECK_CTX(ctx);
        WORST("off-diagonal part", off, f64 ? 1e-13 : 3e-6);
        WORST("the basis", basis, f64 ? 1e-13 : 1e-6);
        WORST("orthonormal vectors", orthonormal, f64 ? 1e-13 : 1e-6);
        tn_ctx_destroy(ctx);
    }
}

/* With noise: no rotation of two vectors lowers the off-diagonal part any more, the errors are those of the vectors, and the
   shared basis needs fewer vectors than separate eigenpairs where matrices share their directions. */
TEST(joint_noisy)
{
    enum { B = 6, N = 7 };
    static const int64_t shape[3] = {B, N, N};
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t seed = 77;
    double   better = 0, claim = 0;
    for (int level = 0; level < 3; level++) {
        const double scale = level == 0 ? 0.01 : level == 1 ? 0.1 : 10;
        double *w = rotation(N, &seed), *values = noise_by(B * N, &seed), *a = doubles(B * N * N);
        tn_joint_eigh_desc   d = ZERO;
        tn_joint_eigh_result r;
        add_shared(B, N, w, values, a);
        for (int c = 0; c < B; c++)
            for (int i = 0; i < N; i++)
                for (int j = 0; j <= i; j++) {
                    const double x = scale * test_random_real(&seed);
                    a[(c * N + i) * N + j] += x;
                    if (j < i) a[(c * N + j) * N + i] += x;
                }
        d.compare = true;
        d.tol = 1e-13;
        tn_tensor *t = tensor_from(ctx, 3, shape, a);
        CHECK_STATUS(tn_joint_eigh(ctx, t, &d, &r), TN_OK);
        REQUIRE(r.vectors && r.separate);
        printf("noise %g: %d sweeps\n", scale, (int)r.sweeps);
        CHECK(r.converged && (level > 0 || r.sweeps < 12));     /* fast, where there is a basis to find */
        double *v = host(r.vectors), *shared = host(r.shared), *separate = host(r.separate);
        double  error = off_diagonal(B, N, v, a);
        test_raise(&claim, fabs(error - r.error));
        test_raise(&claim, fabs(error - shared[N]));
        test_raise(&claim, fabs(shared[0] - 1) + fabs(separate[0] - 1));
        double all = frobenius(a, B * N * N);
        for (int k = 1; k <= N; k++) {                  /* |A - the first k vectors' diagonals|, by the definition */
            double *rest = doubles(B * N * N), *x = host(r.values);
            for (int i = 0; i < B * N; i++) if (i % N >= k) x[i] = 0;
            for (int i = 0; i < B * N; i++) x[i] = -x[i];
            memcpy(rest, a, sizeof *a * B * N * N);
            add_shared(B, N, v, x, rest);
            test_raise(&claim, fabs(frobenius(rest, B * N * N) / all - shared[k]));
            CHECK(separate[k] <= separate[k - 1] && (level > 1 || shared[k] < separate[k]));
        }
        for (int p = 0; p < N; p++)
            for (int q = p + 1; q < N; q++)
                for (int sign = -1; sign < 2; sign += 2) {
                    double *turned = doubles(N * N);
                    memcpy(turned, v, sizeof *v * N * N);
                    for (int l = 0; l < N; l++) {
                        turned[p * N + l] = cos(1e-3) * v[p * N + l] + sign * sin(1e-3) * v[q * N + l];
                        turned[q * N + l] = cos(1e-3) * v[q * N + l] - sign * sin(1e-3) * v[p * N + l];
                    }
                    test_raise(&better, error - off_diagonal(B, N, turned, a));
                }
        if (level == 0) CHECK(vectors_off(N, v, w) < 1e-2);
        tn_joint_eigh_destroy(&r);
        tn_tensor_destroy(t);
    }
    CHECK_CTX(ctx);
    WORST("another rotation is better by", better, 0);
    WORST("claimed against measured errors", claim, 1e-13);
    tn_ctx_destroy(ctx);
}

TEST(joint_edges)
{
    static const int64_t none[3] = {0, 3, 3}, point[3] = {2, 0, 0}, square[3] = {1, 2, 2}, oblong[3] = {1, 2, 3};
    const double skew[6] = {1, 2, 2.001, 1};
    tn_ctx    *ctx = ctx_threads(TN_F64, 1, NULL);
    tn_joint_eigh_desc   d = ZERO;
    tn_joint_eigh_result r;
    d.compare = true;
    CHECK_STATUS(tn_joint_eigh(ctx, tensor_from(ctx, 3, none, skew), &d, &r), TN_OK);
    CHECK(r.vectors && r.vectors->shape[0] == 3 && r.error == 0);
    tn_joint_eigh_destroy(&r);
    CHECK_STATUS(tn_joint_eigh(ctx, tensor_from(ctx, 3, point, skew), &d, &r), TN_OK);
    CHECK(r.vectors && r.shared->shape[0] == 1);
    tn_joint_eigh_destroy(&r);
    CHECK_CTX(ctx);
    CHECK_STATUS(tn_joint_eigh(ctx, tensor_from(ctx, 3, square, skew), &d, &r), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "joint_eigh: a is not symmetric: |a[0,1,0] - a[0,0,1]| is 0.00049975 of "
                "the largest element of its matrix, expected at most 2.27374e-13");
    CHECK_STATUS(tn_joint_eigh(ctx, tensor_from(ctx, 3, oblong, skew), &d, &r), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "joint_eigh: a is [1,2,3], expected [b,n,n]");
    CHECK(!r.vectors);
    tn_ctx_destroy(ctx);
}

/* ---- FastICA -------------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 200, FEATURES = 5 };

/* The data of tools/golden_ica.py, by the same formulas. */
static double *mixed(void)
{
    double *x = doubles(SAMPLES * FEATURES);
    for (int i = 0; i < SAMPLES; i++) {
        double s[3];
        s[0] = (7 * i % 23 - 11) / 8.0;
        s[1] = i * i % 5 > 2 ? 1 : -1;
        s[2] = pow((i * i * 3 + 5 * i) % 101 / 50.0 - 1, 3);
        for (int f = 0; f < FEATURES; f++) {
            x[i * FEATURES + f] = f;
            for (int k = 0; k < 3; k++) x[i * FEATURES + f] += s[k] * ((3 * f + 5 * k + f * k) % 7 - 3) / 2.0;
        }
    }
    return x;
}

/* The largest difference of two lists of rows (of columns: transposed), each up to its sign. */
static double off_signed(int64_t rows, int64_t n, bool transposed, const double *a, const double *b)
{
    double worst = 0;
    for (int64_t r = 0; r < rows; r++) {
        double plus = 0, minus = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = transposed ? i * rows + r : r * n + i;
            test_raise(&plus, fabs(a[at] - b[at]));
            test_raise(&minus, fabs(a[at] + b[at]));
        }
        test_raise(&worst, plus < minus ? plus : minus);
    }
    return worst;
}

/* scikit-learn 1.9.1, by tools/golden_ica.py; its signs are arbitrary. */
TEST(ica_golden)
{
    static const double components_3[] = {
        0.23296101507893935, -0.29534197480780933, -0.35675394288773954, 0.41425995577038904,
        -0.11404303411635981, -0.33358855894188322, -1.7112759258589445, -0.033790268587059989,
        1.7225393487212972, 0.34485198180423449, 0.26354115315207355, 0.49802309242353021,
        0.3080000763590332, -0.60068978454320776, -0.36620784527175065};
    static const double mixing_3[] = {
        1.2419569962935078, 0.049548950768661448, 0.95697160586355778, 0.025054004691310257,
        -0.45905645876091433, -0.5083554781229549, -1.2845458493717248, 0.75070343670455497,
        1.5165570076922266, 0.40312794509926431, 0.20882197985939621, 0.0028364755588798992,
        -0.81377504650293231, -0.29978342967018029, -1.4624906084276335};
    static const double whitening_3[] = {
        0.011651322017279217, -0.0070164668407258083, 0.017459102628233653, 0.0011967659646479247,
        -0.017471022893357106, 0.020210032648485837, 0.0022343897230331774, -0.024917653953890773,
        0.0060714949282637447, -0.011904147997188906, 0.025116364757625343, 0.1275318492813183,
        0.013808920382219567, -0.13213482274205812, -0.029719338218365046};
    static const double mean_3[] = {
        -0.19718749999999999, 1.0854797200000001, 1.7189679200000001, 3.0081976400000001,
        4.290864860000001};
    static const double components_2[] = {
        -0.14310524411283748, 0.10129957368313749, -0.27238433873523793, -0.010504794104724869,
        0.23390002369125021, -0.29725516646148464, -0.024146578306145274, 0.33308965856293982,
        -0.086883307881501309, 0.18622528027383795};
    static const double mixing_2[] = {
        -0.94409283059378668, -1.2517518838156942, 0.63087051319249865, -0.083666173799503724,
        -1.6535647040082382, 1.3336127730333469, -0.079682278523086014, -0.36087141721161181,
        1.4952810652631996, 0.80721429280457835};
    static const double whitening_2[] = {
        0.011651322017279217, -0.0070164668407258083, 0.017459102628233653, 0.0011967659646479247,
        -0.017471022893357106, 0.020210032648485837, 0.0022343897230331774, -0.024917653953890773,
        0.0060714949282637447, -0.011904147997188906};
    static const int64_t shape[2] = {SAMPLES, FEATURES};
    tn_ctx    *ctx = ctx_threads(TN_F64, 1, NULL);
    double    *data = mixed(), worst = 0;
    tn_tensor *x = tensor_from(ctx, 2, shape, data);
    for (int k = 2; k <= 3; k++) {
        double     w[9];
        tn_ica_desc   d = ZERO;
        tn_ica_result r;
        int64_t       square[2] = {k, k};
        for (int a = 0; a < k; a++) for (int b = 0; b < k; b++) w[a * k + b] = (2 * a + 3 * b) % 5 - 1.5;
        d.components = k;
        d.start = tensor_from(ctx, 2, square, w);
        d.sweeps = 1000;
        d.tol = k == 3 ? 1e-10 : 0;
        CHECK_STATUS(tn_ica(ctx, x, &d, &r), TN_OK);
        REQUIRE(r.components != NULL);
        CHECK(r.converged);
        CHECK_INT(r.sweeps, k == 3 ? 8 : 3);
        double *components = host(r.components), *mixing = host(r.mixing);
        double *whitening = host(r.whitening), *mean = host(r.mean);
        test_raise(&worst, off_signed(k, FEATURES, false, components, k == 3 ? components_3 : components_2));
        test_raise(&worst, off_signed(k, FEATURES, true, mixing, k == 3 ? mixing_3 : mixing_2));
        test_raise(&worst, test_max_error(whitening, k == 3 ? whitening_3 : whitening_2, k * FEATURES));
        test_raise(&worst, test_max_error(mean, mean_3, FEATURES));
        tn_ica_destroy(&r);
        CHECK(!r.components && !r.mean);
    }
    CHECK_CTX(ctx);
    WORST("against scikit-learn", worst, 1e-12);
    tn_ctx_destroy(ctx);
}

/* Sources come out of their mixtures, of variance one, uncorrelated; those of Gaussian noise are reported. */
TEST(ica_recovers)
{
    enum { N = 2000, K = 3 };
    static const int64_t shape[2] = {N, K}, few[2] = {4, 3}, start[2] = {K, K};
    for (int f64 = 0; f64 < 2; f64++) {
        tn_ctx  *ctx = ctx_threads(f64 ? TN_F64 : TN_F32, 1, NULL);
        uint64_t seed = 6;
        double  *s = noise_by(N * K, &seed), *mix = noise_by(K * K, &seed), *x = doubles(N * K);
        double   least = 1, inverse = 0;
        tn_ica_desc   d = ZERO;
        tn_ica_result r;
        for (int i = 0; i < N; i++) {                   /* uniform, two points, a sum of cubes */
            s[i * K + 1] = s[i * K + 1] > 0.3 ? 1 : -1;
            s[i * K + 2] = s[i * K + 2] * s[i * K + 2] * s[i * K + 2];
            for (int k = 0; k < K; k++)
                for (int l = 0; l < K; l++) x[i * K + k] += 1e-3 * (mix[k * K + l] * s[i * K + l] + 1);
        }
        tn_tensor *t = tensor_from(ctx, 2, shape, x);
        CHECK_STATUS(tn_ica(ctx, t, NULL, &r), TN_OK);
        REQUIRE(r.components != NULL && r.components->shape[0] == K);
        CHECK(r.converged && r.gaussian == 0);
        double *c = host(r.components), *m = host(r.mixing), *mean = host(r.mean);
        for (int a = 0; a < K; a++) {
            double best = 0;
            for (int b = 0; b < K; b++) {               /* the correlation with the source that is nearest */
                double sum = 0, squares = 0, mean_s = 0, mean_y = 0, square = 0;
                for (int i = 0; i < N; i++) {
                    double y = 0;
                    for (int l = 0; l < K; l++) y += c[a * K + l] * (x[i * K + l] - mean[l]);
                    mean_s += s[i * K + b] / N;
                    mean_y += y / N;
                    sum += y * s[i * K + b]; squares += s[i * K + b] * s[i * K + b]; square += y * y;
                }
                sum = fabs(sum / N - mean_s * mean_y) / sqrt(squares / N - mean_s * mean_s);
                if (sum > best) best = sum;
                CHECK_NEAR(square / N, 1, f64 ? 1e-10 : 1e-3);
            }
            if (best < least) least = best;
            for (int b = 0; b < K; b++) {
                double sum = -(double)(a == b);
                for (int l = 0; l < K; l++) sum += c[a * K + l] * m[l * K + b];
                test_raise(&inverse, fabs(sum));
            }
        }
        CHECK(least > 0.99);
        WORST("components times mixing", inverse, f64 ? 1e-12 : 1e-5);
        tn_ica_destroy(&r);
        for (int i = 0; i < N * K; i++) {               /* twelve uniform numbers: nearly Gaussian */
            x[i] = 0;
            for (int l = 0; l < 12; l++) x[i] += test_random_real(&seed);
        }
        CHECK_STATUS(tn_write(t, TN_F64, x, N * K), TN_OK);
        d.sweeps = 5;
        CHECK_STATUS(tn_ica(ctx, t, &d, &r), TN_OK);
        CHECK(r.gaussian >= 1 && r.sweeps <= 5);
        tn_ica_destroy(&r);
        d.components = 4;
        FAILS(ctx, tn_ica(ctx, t, &d, &r), TN_ERR_ARG, "ica: components is 4, expected at most 3, the rank of the centred data");
        d.components = 0;
        d.start = t;
        FAILS(ctx, tn_ica(ctx, t, &d, &r), TN_ERR_SHAPE, "ica: start is [2000,3], expected [3,3]");
        for (int i = 0; i < K * K; i++) mix[i] = i % K; /* equal rows */
        d.start = tensor_from(ctx, 2, start, mix);
        FAILS(ctx, tn_ica(ctx, t, &d, &r), TN_ERR_ARG, "ica: start, [3,3], has rank 1, expected 3");
        for (int i = 0; i < K * K; i++) mix[i] = i % (K + 1) ? 0 : f64 ? 1e300 : 1e38;       /* the squares overflow */
        d.start = tensor_from(ctx, 2, start, mix);
        CHECK_STATUS(tn_ica(ctx, t, &d, &r), TN_OK);
        tn_ica_destroy(&r);
        d.start = NULL;
        for (int i = 0; i < 12; i++) x[i] = i / 3;      /* the rank of the centred data is one */
        CHECK_STATUS(tn_ica(ctx, tensor_from(ctx, 2, few, x), &d, &r), TN_OK);
        CHECK_INT(r.components ? r.components->shape[0] : -1, 1);
        tn_ica_destroy(&r);
        x[0] = (double)NAN;
        FAILS(ctx, tn_ica(ctx, tensor_from(ctx, 2, few, x), &d, &r), TN_ERR_NONFINITE, "ica: x, [4,3], has NaN or infinity");
        CHECK_CTX(ctx);
        tn_ctx_destroy(ctx);
    }
}

/* ---- the same bits for any number of threads -------------------------------------------------------------------------- */

static uint64_t hashed(uint64_t h, const tn_tensor *t)
{
    double *p = host(t);
    for (int64_t i = 0; i < tn_tensor_count(t); i++) {
        uint64_t bits;
        memcpy(&bits, p + i, sizeof bits);
        h = (h ^ bits) * 0x100000001B3u;
    }
    return h;
}

TEST(same_bits)
{
    static const int64_t n[3] = {40, 30, 20}, data[2] = {600, 40}, squares[3] = {3, 40, 40};
    uint64_t first = 0;
    for (int threads = 1; threads < 4; threads++) {
        tn_ctx  *ctx = ctx_threads(TN_F64, threads, NULL);
        uint64_t seed = 9, h = 1469598103934665603u;
        double  *a = noise_by(24000, &seed), *m = doubles(4800);
        tn_tensor *t = tensor_from(ctx, 3, n, a), *x = tensor_from(ctx, 2, data, a);
        tn_tt   *tt = tn_tt_svd(ctx, t, 0, NULL, NULL);
        tn_hosvd_desc    hd = ZERO;
        tn_hosvd_result  hr;
        tn_cp_als_desc   ad = ZERO;
        tn_cp_als_result ar;
        tn_joint_eigh_result  jr;
        tn_ica_desc      id = ZERO;
        tn_ica_result    ir;
        for (int i = 0; i < 4800; i++) m[i] = a[i] + a[i / 1600 * 1600 + i % 40 * 40 + i / 40 % 40];
        tn_tensor *s = tensor_from(ctx, 3, squares, m);
        hd.eps = 0.5; hd.sweeps = 2;
        ad.terms = 5; ad.sweeps = 4; ad.starts = 2;
        id.components = 4; id.sweeps = 10;
        REQUIRE(tt != NULL);
        for (int k = 0; k < 3; k++) h = hashed(h, tt->core[k]);
        CHECK_STATUS(tn_hosvd(ctx, t, &hd, &hr), TN_OK);
        CHECK_STATUS(tn_cp_als(ctx, t, &ad, &ar), TN_OK);
        CHECK_STATUS(tn_joint_eigh(ctx, s, NULL, &jr), TN_OK);
        CHECK_STATUS(tn_ica(ctx, x, &id, &ir), TN_OK);
        REQUIRE(hr.core && ar.weights && jr.vectors && ir.components);
        h = hashed(hashed(hashed(hashed(h, hr.core), ar.factor[1]), jr.values), ir.mixing);
        if (threads == 1) first = h;
        CHECK(h == first);
        tn_hosvd_destroy(&hr);
        tn_cp_als_destroy(&ar);
        tn_joint_eigh_destroy(&jr);
        tn_ica_destroy(&ir);
        tn_tt_destroy(tt);
        CLOSE_CTX(ctx);
    }
}

TEST_MAIN(tt_exact, tt_eps, tt_algebra, tt_rounding, tt_differences, tt_scales, tt_zero_extents_and_mistakes, hosvd_exact,
          hosvd_bounds, hosvd_rules, als_recovers, als_monotone, als_degenerate, als_edges, joint_exact, joint_noisy,
          joint_edges, ica_golden, ica_recovers, same_bits)
