/* test_cp_layers.c: the layers that are tensors (product, quadratic, modifier) against their tensors, against each other, and how they
   begin. What they compute on random shapes, and their gradients, are in cases.h. */

#include "kit.h"

static void fill_random(tn_tensor *t, double scale, uint64_t *rng)
{
    int64_t n = tn_tensor_count(t);
    double *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = scale * test_random_real(rng);
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
}

static void fill_params(tn_params *ps, uint64_t *rng)
{
    for (int64_t i = 0; i < tn_params_count(ps); i++) fill_random(tn_params_at(ps, i)->value, 1, rng);
}

static tn_tensor *random_rows(tn_ctx *ctx, int64_t rows, int64_t n, uint64_t *rng)
{
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, rows, n);
    fill_random(x, 1, rng);
    return x;
}

/* |a - b|_F against |b|_F. */
static double apart(const tn_tensor *a, const tn_tensor *b)
{
    if (!CHECK(a && b) || !CHECK_INT(tn_tensor_count(a), tn_tensor_count(b))) return HUGE_VAL;
    int64_t n = tn_tensor_count(a);
    double *va = host(a);
    double *vb = host(b);
    double e = test_frobenius(va, vb, n);
    return e;
}

/* y_o = sum T[o,i,j,..] x_i x_j ..: the full tensor, one axis after the other. It shrinks to [out]. */
static void contract(double *t, int64_t out, int64_t n, int order, const double *x)
{
    int64_t rest = out;
    for (int k = 1; k < order; k++) rest *= n;
    for (int k = 0; k < order; k++, rest /= n)
        for (int64_t i = 0; i < rest; i++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += t[i * n + j] * x[j];
            t[i] = sum;
        }
}

/* ---- bilinear layers of any order ------------------------------------------------------------------------------ */

/* One random layer: forward against the operator, and against the whole tensor in plain loops. */
static double product_identity(tn_ctx *ctx, int order, uint64_t *rng, double *dense_error)
{
    tn_params  *ps = tn_params_create(ctx);
    tn_mlp_desc d = ZERO;
    tn_mlp      layer;
    int64_t     most = order > 4 ? 3 : 6, rows = test_random_int(rng, 1, 4);
    int         kind = (int)test_random_int(rng, 0, 5);
    d.in = test_random_int(rng, 1, most);
    d.hidden = test_random_int(rng, 1, 7);
    d.residual = kind >= 4;
    d.out = kind == 2 ? 0 : d.residual ? d.in : test_random_int(rng, 1, 5);
    d.order = order;
    d.bias = kind == 1 || kind == 2 || kind == 5;
    d.out_bias = kind == 1;
    d.no_projection = kind == 2;
    d.augmented = kind == 3;
    CHECK_STATUS(tn_mlp_init(ps, "p", &d, &layer), TN_OK);
    d = layer.desc;
    fill_params(ps, rng);
    tn_cp *cp = tn_cp_from_mlp(ctx, &layer);
    if (!CHECK(cp != NULL)) return HUGE_VAL;
    CHECK(cp->order == order && cp->constant == (d.bias || d.augmented || d.out_bias || d.residual));
    tn_tensor *x = random_rows(ctx, rows, d.in, rng);
    tn_tensor *y = tn_mlp_forward(ctx, &layer, d.augmented ? tn_append_one(ctx, x) : x);
    if (y && d.augmented) y = tn_copy(ctx, tn_slice(y, 1, 0, d.out));
    double error = apart(tn_cp_apply(ctx, cp, x), y);
    tn_tensor *full = tn_cp_dense(cp);
    if (CHECK(full && y)) {
        int64_t n = cp->in[0];
        double *vx = host(x);
        double *vy = host(y);
        double *want = doubles(rows * d.out);
        double *one = doubles(n);
        one[n - 1] = 1;
        for (int64_t r = 0; r < rows; r++) {
            double *t = host(full);
            memcpy(one, vx + r * d.in, sizeof *one * (size_t)d.in);
            contract(t, d.out, n, order, one);
            for (int64_t i = 0; i < d.out; i++) want[r * d.out + i] = t[i];
        }
        test_raise(dense_error, test_frobenius(vy, want, rows * d.out));
    }
    tn_tensor_destroy(full);
    tn_cp_destroy(cp);
    tn_params_destroy(ps);
    return error;
}

static void product_identities(tn_dtype dtype, double *apply, double *dense)
{
    tn_ctx  *ctx = ctx_of(dtype);
    uint64_t rng = 77;
    *apply = *dense = 0;
    for (int t = 0; t < 20; t++)
        for (int order = 1; order <= TN_CP_MAX_ORDER; order++) {
            tn_ctx_reset(ctx);
            test_raise(apply, product_identity(ctx, order, &rng, dense));
        }
    CLOSE_CTX(ctx);
}

TEST(product_is_its_tensor)
{
    double apply, dense;
    product_identities(TN_F64, &apply, &dense);
    WORST("P2 product layer, orders 1 to 6, against its operator, F64", apply, 1e-14);
    WORST("P2 product layer, orders 1 to 6, against its full tensor, F64", dense, 2e-14);
    product_identities(TN_F32, &apply, &dense);
    WORST("P2 product layer, orders 1 to 6, against its operator, F32", apply, 3e-6);
    WORST("P2 product layer, orders 1 to 6, against its full tensor, F32", dense, 3e-6);
}

/* An order of 0 is 2, bit by bit from the first weights on. Order 2 starts uniform within 1/sqrt(fan-in), biases too; other
   orders start normal, with larger weights than that among them and biases of zero. */
TEST(order_zero_is_two)
{
    enum { IN = 9, HIDDEN = 13, OUT = 4 };
    double *began[3][4];
    for (int which = 0; which < 3; which++) {
        tn_ctx     *ctx = ctx_of(TN_F32);
        tn_params  *ps = tn_params_create(ctx);
        tn_mlp_desc d = ZERO;
        tn_mlp      layer;
        d.in = IN;
        d.hidden = HIDDEN;
        d.out = OUT;
        d.order = which == 0 ? 0 : which + 1;
        d.bias = d.out_bias = true;
        CHECK_STATUS(tn_mlp_init(ps, "m", &d, &layer), TN_OK);
        CHECK_INT(layer.desc.order, which < 2 ? 2 : 3);
        CHECK_INT(layer.w->shape[0], layer.desc.order);
        for (int i = 0; i < 4; i++) began[which][i] = host(i == 0 ? layer.w : i == 1 ? layer.b : i == 2 ? layer.p : layer.pb);
        CLOSE_CTX(ctx);
    }
    for (int i = 0; i < 4; i++) {
        static const int64_t count[] = {2 * HIDDEN * IN, 2 * HIDDEN, OUT * HIDDEN, OUT};
        const double         bound = i < 2 ? 1 / sqrt((double)IN) : 1 / sqrt((double)HIDDEN);
        int64_t              above = 0, zero = 0;
        CHECK(memcmp(began[0][i], began[1][i], sizeof(double) * (size_t)count[i]) == 0);
        for (int64_t k = 0; k < count[i]; k++) {
            CHECK(fabs(began[1][i][k]) <= bound * 1.000001);
            above += fabs(began[2][i][k]) > bound * 1.000001;
            zero += began[2][i][k] == 0;
        }
        CHECK(i % 2 == 0 ? above > 0 : zero == count[i]);
    }
}

/* dy/dx_e = the product of all other factors, where some are zero, tiny or huge: what division by x_e would spoil. */
TEST(product_backward_needs_no_division)
{
    enum { K = 8, H = 5 };
    static const double column[H][K] = {
        {1, 2, 3, 4, 5, 6, 7, 8}, {0, 2, 3, 4, 5, 6, 7, 8}, {2, 0, 3, 4, 0, 6, 7, 8}, {1e-20, 1e20, 1e-20, 1e20, 2, 2, 2, 2},
        {0, 0, 0, 0, 0, 0, 0, 0}
    };
    for (tn_dtype dtype = TN_F32; dtype <= TN_F64; dtype = (tn_dtype)(dtype + 1)) {
        tn_ctx *ctx = ctx_of(dtype);
        double  x[K * H], want[K * H];
        int     f;
        tn_tensor *t = tn_tensor_1d(ctx, TN_REAL, K * H);
        for (int j = 0; j < H; j++)
            for (int e = 0; e < K; e++) {
                x[e * H + j] = column[j][e];
                for (want[e * H + j] = 1, f = 0; f < K; f++) if (f != e) want[e * H + j] *= column[j][f];
            }
        tn_write(t, TN_F64, x, K * H);
        tn_watch(t);
        tn_record(ctx);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_prod_parts(ctx, t, K))), TN_OK);
        double *got = host(t->grad);
        for (int e = 0; e < K * H; e++) CHECK_NEAR(got[e], want[e], fabs(want[e]) * (dtype == TN_F64 ? 1e-14 : 2e-6));
        CLOSE_CTX(ctx);
    }
}

TEST(product_refuses)
{
    tn_ctx     *ctx = ctx_of(TN_F32);
    tn_params  *ps = tn_params_create(ctx);
    tn_mlp_desc d = ZERO;
    tn_mlp      layer;
    FAILS(ctx, tn_mlp_init(ps, "p", &d, &layer), TN_ERR_SHAPE, "mlp p: in is 0, expected 1 to 2^31 - 2");
    d.in = 4;
    d.hidden = 6;
    d.order = -1;
    FAILS(ctx, tn_mlp_init(ps, "p", &d, &layer), TN_ERR_ARG, "mlp p: order is -1, expected 1 or more, or 0 for 2");
    d.kind = TN_MLP_RELU;
    d.order = 3;
    FAILS(ctx, tn_mlp_init(ps, "p", &d, &layer), TN_ERR_ARG, "mlp p: order is 3, expected 0 for the kind relu");
    d.kind = TN_MLP_BILINEAR;
    d.order = 8;
    d.out = -1;
    FAILS(ctx, tn_mlp_init(ps, "p", &d, &layer), TN_ERR_SHAPE, "mlp p: out is -1, expected 1 to 2^31 - 2");
    d.out = 5;
    d.no_projection = true;
    FAILS(ctx, tn_mlp_init(ps, "p", &d, &layer), TN_ERR_SHAPE, "mlp p: out is 5, expected hidden = 6, as there is no projection");
    d.out = 0;
    d.out_bias = true;
    FAILS(ctx, tn_mlp_init(ps, "p", &d, &layer), TN_ERR_ARG, "out_bias is true, expected false with no_projection");
    d.no_projection = d.out_bias = false;
    d.augmented = d.bias = true;
    FAILS(ctx, tn_mlp_init(ps, "p", &d, &layer), TN_ERR_ARG, "a bias is true, expected false with augmented");
    CHECK_INT(tn_params_count(ps), 0);
    d.augmented = false;
    CHECK_STATUS(tn_mlp_init(ps, "p", &d, &layer), TN_OK);
    CHECK_INT(layer.desc.out, 4);
    REFUSED(ctx, tn_cp_from_mlp(ctx, &layer), TN_ERR_ARG, "the layer has 8 encoders, expected at most 6 (TN_CP_MAX_ORDER)");
    REFUSED(ctx, tn_cp_from_mlp(ctx, NULL), TN_ERR_ARG, "cp_from_mlp: mlp is NULL");
    REFUSED(ctx, tn_mlp_forward(ctx, NULL, NULL), TN_ERR_ARG, "mlp: the layer is NULL");
    tn_ctx_destroy(ctx);
}

/* E y^2 = 1 for inputs of variance 1, whatever k. Inputs are +-1, so |x|^2 = in exactly and each factor is normal with variance 1. The
   mean is over inputs and hidden units of several layers, each a sample of a product of k squared normals: its own variance is 3^k - 1. */
TEST(product_begins_with_variance_one)
{
    enum { IN = 128, HIDDEN = 256, OUT = 16, ROWS = 128 };
    static const int orders[] = {1, 2, 3, 5, 8};
    static const bool kinds[] = {false, true};
    for (int which = 0; which < 5; which++)
        for (int kind = 0; kind < 2; kind++) {
            int      k = orders[which], layers = k == 8 ? 40 : 6;
            tn_ctx  *ctx = ctx_of(TN_F32);
            uint64_t rng = 50 + (uint64_t)k;
            double   sum = 0, samples = (double)(layers * HIDDEN * ROWS);
            char     what[80];
            for (int l = 0; l < layers; l++) {
                tn_params  *ps = tn_params_create(ctx);
                tn_mlp_desc d = ZERO;
                tn_mlp      layer;
                tn_tensor  *x = tn_tensor_2d(ctx, TN_REAL, ROWS, IN);
                double      v[ROWS * IN];
                d.in = IN;
                d.hidden = HIDDEN;
                d.out = OUT;
                d.order = k;
                d.augmented = kinds[kind];
                if (k == 2) {                                       /* whose default is uniform, with a smaller variance */
                    d.init.rule = d.init_out.rule = TN_INIT_NORMAL;
                    d.init.fan_in = IN + d.augmented;
                    d.init_out.fan_in = HIDDEN + d.augmented;
                }
                CHECK_STATUS(tn_mlp_init(ps, "p", &d, &layer), TN_OK);
                for (int i = 0; i < ROWS * IN; i++) v[i] = test_random_int(&rng, 0, 1) ? 1 : -1;
                CHECK_STATUS(tn_write(x, TN_F64, v, ROWS * IN), TN_OK);
                tn_tensor *y = tn_mlp_forward(ctx, &layer, d.augmented ? tn_append_one(ctx, x) : x);
                if (y && d.augmented) y = tn_slice(y, 1, 0, OUT);
                sum += tn_item(tn_mean(ctx, tn_mul(ctx, y, y))) / layers;
                tn_params_destroy(ps);
                tn_ctx_reset(ctx);
            }
            CHECK_CTX(ctx);
            snprintf(what, sizeof what, "variance of a layer of order %d%s at its start: |it - 1|", k, kind ? ", augmented" : "");
            WORST(what, fabs(sum - 1), 4 * sqrt((pow(3, k) - 1) / samples + 2.0 / (layers * OUT * HIDDEN)));
            tn_ctx_destroy(ctx);
        }
}

/* ---- the full tensor and its factors -------------------------------------------------------------------------------- */

typedef struct pair {
    tn_params   *ps;
    tn_cp       *cp;
    tn_mlp       factors;
    tn_quadratic whole;
} pair;

/* A random operator, as factors and as the tensor, both layers that train. */
static pair pair_of(tn_ctx *ctx, bool constant, uint64_t *rng)
{
    int64_t    out = test_random_int(rng, 1, 5), h = test_random_int(rng, 1, 9), n = test_random_int(rng, 1, 8) + constant;
    tn_tensor *f[2], *p = random_rows(ctx, out, h, rng);
    pair       a;
    f[0] = random_rows(ctx, h, n, rng);
    f[1] = random_rows(ctx, h, n, rng);
    a.cp = tn_cp_create(ctx, 2, p, f, constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
    a.ps = tn_params_create(ctx);
    CHECK_STATUS(tn_mlp_from_cp(a.ps, "factors", a.cp, &a.factors), TN_OK);
    CHECK_STATUS(tn_quadratic_from_cp(a.ps, "whole", a.cp, &a.whole), TN_OK);
    return a;
}

static void pair_destroy(pair *a)
{
    tn_cp_destroy(a->cp);
    tn_params_destroy(a->ps);
}

static tn_tensor *with_loss(tn_ctx *ctx, tn_tensor *y, tn_tensor *weights) { return tn_sum(ctx, tn_mul(ctx, tn_mul(ctx, y, y), weights)); }

/* What the gradient G of the tensor says of the factors: dP[o,h] = sum G W V, dW[h,i] = sum_o,j G[o,i,j] P[o,h] V[h,j], dV likewise. */
static double chain_rule(const pair *a)
{
    int64_t out = a->cp->out, h = a->cp->terms, n = a->cp->in[0], in = n - a->cp->constant;
    double *g = host(a->whole.t->grad), *p = host(a->cp->p), *w = host(a->cp->f[0]), *v = host(a->cp->f[1]);
    double *dp = doubles(out * h), *df = doubles(2 * h * n), *want_w = doubles(2 * h * in), *want_b = doubles(2 * h), error = 0;
    for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < h; k++)
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++) {
                    double t = g[(o * n + i) * n + j];
                    dp[o * h + k] += t * w[k * n + i] * v[k * n + j];
                    df[k * n + i] += t * p[o * h + k] * v[k * n + j];
                    df[(h + k) * n + j] += t * p[o * h + k] * w[k * n + i];
                }
    for (int64_t k = 0; k < 2 * h; k++) {
        for (int64_t i = 0; i < in; i++) want_w[k * in + i] = df[k * n + i];
        want_b[k] = df[k * n + n - 1];
    }
    double *got = host(a->factors.p->grad);
    test_raise(&error, test_frobenius(got, dp, out * h));
    got = host(a->factors.w->grad);
    test_raise(&error, test_frobenius(got, want_w, 2 * h * in));
    if (a->factors.b) {
        got = host(a->factors.b->grad);
        test_raise(&error, test_frobenius(got, want_b, 2 * h));
    }
    return error;
}

static void whole_and_factors(tn_dtype dtype, double *value, double *gradient, double *factors)
{
    tn_ctx  *ctx = ctx_of(dtype);
    uint64_t rng = 19;
    *value = *gradient = *factors = 0;
    for (int t = 0; t < 40; t++) {
        tn_tensor *y[2], *dx[2];
        tn_ctx_reset(ctx);
        pair       a = pair_of(ctx, t % 2 == 1, &rng);
        tn_tensor *x = random_rows(ctx, test_random_int(&rng, 1, 7), a.whole.desc.in, &rng);
        tn_tensor *weights = random_rows(ctx, x->shape[0], a.cp->out, &rng);
        for (int which = 0; which < 2; which++) {
            tn_tensor *mine = tn_copy(ctx, x);
            tn_watch(mine);
            tn_record(ctx);
            y[which] = which == 0 ? tn_quadratic_forward(ctx, &a.whole, mine) : tn_mlp_forward(ctx, &a.factors, mine);
            CHECK_STATUS(tn_backward(ctx, with_loss(ctx, y[which], weights)), TN_OK);
            dx[which] = mine->grad;
        }
        test_raise(value, apart(y[0], y[1]));
        test_raise(value, apart(tn_cp_apply(ctx, a.cp, x), y[1]));
        test_raise(gradient, apart(dx[0], dx[1]));
        test_raise(factors, chain_rule(&a));
        CHECK_CTX(ctx);
        pair_destroy(&a);
    }
    tn_ctx_destroy(ctx);
}

TEST(whole_tensor_is_its_factors)
{
    double value, gradient, factors;
    whole_and_factors(TN_F64, &value, &gradient, &factors);
    WORST("P2 full tensor layer against its CP layer, F64", value, 5e-15);
    WORST("their gradients of x, F64", gradient, 1e-14);
    WORST("gradients of P, W, V and biases against the tensor's by the chain rule, F64", factors, 2e-14);
    whole_and_factors(TN_F32, &value, &gradient, &factors);
    WORST("P2 full tensor layer against its CP layer, F32", value, 3e-6);
    WORST("their gradients of x, F32", gradient, 5e-6);
    WORST("gradients of P, W, V and biases against the tensor's by the chain rule, F32", factors, 5e-6);
}

/* Full tensor -> out n terms -> full tensor is the identity; and those terms as a layer compute the same. */
TEST(from_a_full_tensor)
{
    tn_ctx  *ctx = ctx_of(TN_F64);
    uint64_t rng = 23;
    double   worst = 0;
    for (int t = 0; t < 30; t++) {
        int64_t           out = test_random_int(&rng, 1, 5), n = test_random_int(&rng, 1, 6), m = t % 3 == 0 ? test_random_int(&rng, 1, 6) : n;
        tn_tensor        *full = tn_tensor_3d(ctx, TN_REAL, out, n, m);
        tn_params        *ps = tn_params_create(ctx);
        tn_quadratic_desc d = ZERO;
        tn_quadratic      whole;
        tn_mlp            factors;
        fill_random(full, 1, &rng);
        tn_cp *cp = tn_cp_from_tensor(ctx, full, TN_CP_INPUT_PLAIN);
        REQUIRE(cp != NULL);
        CHECK_INT(cp->terms, out * n);
        tn_tensor *back = tn_cp_dense(cp);
        CHECK(apart(back, full) == 0);
        tn_tensor_destroy(back);
        tn_cp_destroy(cp);
        d.in = n;
        d.out = out;
        d.bias = t % 2 == 1;
        CHECK_STATUS(tn_quadratic_init(ps, "whole", &d, &whole), TN_OK);
        fill_params(ps, &rng);
        cp = tn_cp_from_quadratic(ctx, &whole);
        REQUIRE(cp != NULL);
        CHECK(cp->constant == d.bias && cp->terms == out * (n + d.bias));
        CHECK_STATUS(tn_mlp_from_cp(ps, "factors", cp, &factors), TN_OK);
        tn_tensor *x = random_rows(ctx, 4, n, &rng);
        tn_tensor *y = tn_quadratic_forward(ctx, &whole, x);
        test_raise(&worst, apart(tn_cp_apply(ctx, cp, x), y));
        test_raise(&worst, apart(tn_mlp_forward(ctx, &factors, x), y));
        CHECK_CTX(ctx);
        tn_cp_destroy(cp);
        tn_params_destroy(ps);
        tn_ctx_reset(ctx);
    }
    WORST("P2 full tensor layer against its out n terms, as operator and as layer, F64", worst, 3e-15);
    tn_ctx_destroy(ctx);
}

TEST(conversions_refuse)
{
    tn_desc      d = ZERO;
    tn_ctx      *ctx, *other = ctx_of(TN_F32);
    tn_params   *foreign = tn_params_create(other);
    tn_quadratic whole;
    tn_mlp       factors;
    tn_tensor   *f[3];
    uint64_t     rng = 2;
    d.max_bytes = 20 << 20;
    REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
    tn_params *ps = tn_params_create(ctx);
    CHECK(tn_cp_from_tensor(ctx, tn_tensor_3d(ctx, TN_REAL, 50, 60, 61), TN_CP_INPUT_PLAIN) != NULL);
    CHECK(tn_cp_from_tensor(ctx, tn_tensor_3d(ctx, TN_REAL, 10, 200, 201), TN_CP_INPUT_PLAIN) != NULL);
    /* 12 MB of factors from 4 MB */
    CHECK(tn_cp_from_tensor(ctx, tn_tensor_3d(ctx, TN_REAL, 100, 100, 100), TN_CP_INPUT_PLAIN) == NULL);
    CHECK_STATUS(tn_ctx_status(ctx), TN_ERR_MEMORY);
    tn_ctx_clear_error(ctx);
    tn_ctx_reset(ctx);
    CHECK(tn_cp_from_tensor(ctx, tn_tensor_3d(ctx, TN_REAL, 400, 50, 50), TN_CP_INPUT_PLAIN) == NULL);
    CHECK_ERROR(ctx, TN_ERR_MEMORY, "cp_from_tensor: t is [400,50,50], which makes 400 x 50 terms of 500 numbers, more than max_bytes = 20971520");
    CHECK(tn_cp_from_tensor(ctx, tn_tensor_2d(ctx, TN_REAL, 3, 4), TN_CP_INPUT_PLAIN) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "cp_from_tensor: t is [3,4], expected [out,n,m]");
    CHECK(tn_cp_from_tensor(ctx, tn_tensor_3d(ctx, TN_REAL, 3, 4, 0), TN_CP_INPUT_CONSTANT) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "last row and column");
    f[0] = random_rows(ctx, 2, 3, &rng);
    f[1] = random_rows(ctx, 2, 4, &rng);
    f[2] = random_rows(ctx, 2, 3, &rng);
    int64_t before = tn_params_count(ps);
    tn_cp *cp = tn_cp_create(ctx, 2, random_rows(ctx, 1, 2, &rng), f, TN_CP_INPUT_PLAIN);
    FAILS(ctx, tn_mlp_from_cp(ps, "p", cp, &factors), TN_ERR_SHAPE, "mlp_from_cp: input 1 has 4 elements, expected 3 as input 0");
    CHECK_STATUS(tn_mlp_from_cp(foreign, "p", cp, &factors), TN_ERR_ARG);
    CHECK_ERROR(other, TN_ERR_ARG, "mlp_from_cp: the operator is of another context than the parameters");
    FAILS(ctx, tn_mlp_from_cp(ps, "p", NULL, &factors), TN_ERR_ARG, "mlp_from_cp: the operator is NULL");
    f[1] = random_rows(ctx, 2, 3, &rng);
    cp = tn_cp_create(ctx, 3, random_rows(ctx, 1, 2, &rng), f, TN_CP_INPUT_PLAIN);
    FAILS(ctx, tn_quadratic_from_cp(ps, "q", cp, &whole), TN_ERR_SHAPE, "quadratic_from_cp: the operator has order 3, expected 2");
    CHECK(whole.t == NULL && tn_params_count(ps) == before);
    CHECK_STATUS(tn_mlp_from_cp(ps, "p", cp, &factors), TN_OK);
    FAILS(ctx, tn_mlp_from_cp(ps, "p", cp, &factors), TN_ERR_ARG, "the parameter p.w exists already");
    REFUSED(ctx, tn_quadratic_forward(ctx, NULL, NULL), TN_ERR_ARG, "quadratic: the layer is NULL");
    tn_ctx_destroy(ctx);
    tn_ctx_destroy(other);
}

/* Both forms learn a random quadratic function from examples, and then hold its tensor, the full one exactly, since its problem is
   convex: the symmetric part is the function's, the antisymmetric one of the full form is still what it began with. */
TEST(both_forms_learn_a_tensor)
{
    enum { N = 5, OUT = 3, ROWS = 64 };
    tn_ctx           *ctx = ctx_of(TN_F64);
    tn_params        *goal_params = tn_params_create(ctx), *ps = tn_params_create(ctx);
    tn_quadratic_desc d = ZERO;
    tn_mlp_desc       e = ZERO;
    tn_quadratic      goal, whole;
    tn_mlp            factors;
    tn_optim_desc     o = ZERO;
    uint64_t          rng = 31;
    double            twist = 0;
    d.in = e.in = N;
    d.out = e.out = OUT;
    e.hidden = N * OUT;
    e.init.rule = e.init_out.rule = TN_INIT_NORMAL;
    CHECK_STATUS(tn_quadratic_init(goal_params, "goal", &d, &goal), TN_OK);
    CHECK_STATUS(tn_quadratic_init(ps, "whole", &d, &whole), TN_OK);
    CHECK_STATUS(tn_mlp_init(ps, "factors", &e, &factors), TN_OK);
    double *began = host(whole.t);
    o.kind = TN_OPTIM_SGD;
    o.lr = 0.3;
    o.momentum = 0.9;
    tn_optim *optim = tn_optim_create(ps, &o);
    tn_params_set_scales(ps, "factors", 0.1, 1);
    for (int step = 0; step < 1500; step++) {
        tn_ctx_reset(ctx);
        tn_tensor *x = random_rows(ctx, ROWS, N, &rng);
        tn_tensor *y = tn_quadratic_forward(ctx, &goal, x);
        tn_record(ctx);
        CHECK_STATUS(tn_backward(ctx, tn_add(ctx, tn_mse(ctx, tn_quadratic_forward(ctx, &whole, x), y),
                                             tn_mse(ctx, tn_mlp_forward(ctx, &factors, x), y))), TN_OK);
        CHECK_STATUS(tn_optim_step(optim), TN_OK);
    }
    tn_cp *cp = tn_cp_from_quadratic(ctx, &goal);
    tn_tensor *want = tn_cp_dense_symmetric(cp);
    tn_cp_destroy(cp);
    for (int which = 0; which < 2; which++) {
        cp = which == 0 ? tn_cp_from_quadratic(ctx, &whole) : tn_cp_from_mlp(ctx, &factors);
        tn_tensor *got = tn_cp_dense_symmetric(cp);
        WORST(which == 0 ? "the tensor a full layer has learnt" : "the tensor a CP layer has learnt", apart(got, want), which == 0 ? 1e-15 : 5e-3);
        tn_tensor_destroy(got);
        tn_cp_destroy(cp);
    }
    double *ended = host(whole.t);
    for (int k = 0; k < OUT; k++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                const double *a = began + k * N * N, *b = ended + k * N * N;
                test_raise(&twist, fabs((a[i * N + j] - a[j * N + i]) - (b[i * N + j] - b[j * N + i])));
            }
    WORST("what training did to T_o - T_o^T", twist, 1e-14);
    CHECK_CTX(ctx);
    tn_ctx_destroy(ctx);
}

TEST(quadratic_begins_with_variance_one)
{
    enum { IN = 48, OUT = 64, ROWS = 64, LAYERS = 6 };
    tn_ctx  *ctx = ctx_of(TN_F32);
    uint64_t rng = 3;
    double   sum = 0;
    for (int l = 0; l < LAYERS; l++) {
        tn_params        *ps = tn_params_create(ctx);
        tn_quadratic_desc d = ZERO;
        tn_quadratic      layer;
        tn_tensor        *x = tn_tensor_2d(ctx, TN_REAL, ROWS, IN);
        double            v[ROWS * IN];
        d.in = IN;
        d.out = OUT;
        CHECK_STATUS(tn_quadratic_init(ps, "q", &d, &layer), TN_OK);
        for (int i = 0; i < ROWS * IN; i++) v[i] = test_random_int(&rng, 0, 1) ? 1 : -1;
        CHECK_STATUS(tn_write(x, TN_F64, v, ROWS * IN), TN_OK);
        tn_tensor *y = tn_quadratic_forward(ctx, &layer, x);
        sum += tn_item(tn_mean(ctx, tn_mul(ctx, y, y))) / (int)LAYERS;
        tn_params_destroy(ps);
        tn_ctx_reset(ctx);
    }
    WORST("variance of a full tensor layer at its start: |it - 1|", fabs(sum - 1), 4 * sqrt(2.0 / (LAYERS * OUT * ROWS)) + 4 * sqrt(2.0 / (LAYERS * OUT * IN)));
    tn_ctx_destroy(ctx);
}

/* ---- modifier layers --------------------------------------------------------------------------------------------------- */

static double modifier_identity(tn_ctx *ctx, int kind, uint64_t *rng)
{
    tn_params       *ps = tn_params_create(ctx);
    tn_modifier_desc d = ZERO;
    tn_modifier      layer;
    d.in = test_random_int(rng, 1, 9);
    d.hidden = test_random_int(rng, 1, 9);
    d.rank = kind & 1 ? test_random_int(rng, 1, 4) : 0;
    d.bias = (kind & 2) != 0;
    d.no_projection = (kind & 4) != 0;
    d.out = d.no_projection ? 0 : test_random_int(rng, 1, 9);
    d.out_bias = d.bias && !d.no_projection;
    CHECK_STATUS(tn_modifier_init(ps, "m", &d, &layer), TN_OK);
    fill_params(ps, rng);
    tn_cp *cp = tn_cp_from_modifier(ctx, &layer);
    tn_tensor *x = random_rows(ctx, test_random_int(rng, 1, 5), d.in, rng);
    double error = apart(tn_cp_apply(ctx, cp, x), tn_modifier_forward(ctx, &layer, x, NULL));
    CHECK_CTX(ctx);
    tn_cp_destroy(cp);
    tn_params_destroy(ps);
    return error;
}

TEST(modifier_is_its_tensor)
{
    for (tn_dtype dtype = TN_F32; dtype <= TN_F64; dtype = (tn_dtype)(dtype + 1)) {
        tn_ctx  *ctx = ctx_of(dtype);
        uint64_t rng = 61;
        double   worst = 0;
        for (int t = 0; t < 80; t++) {
            test_raise(&worst, modifier_identity(ctx, t % 8, &rng));
            tn_ctx_reset(ctx);
        }
        WORST(dtype == TN_F64 ? "P2 modifier layer against its operator, F64" : "P2 modifier layer against its operator, F32", worst, dtype == TN_F64 ? 5e-15 : 3e-6);
        tn_ctx_destroy(ctx);
    }
}

/* It begins without modifications: y = P V x, and the penalty is 0; but W has a gradient, so that it can begin. */
TEST(modifier_begins_unmodified)
{
    tn_ctx  *ctx = ctx_of(TN_F64);
    uint64_t rng = 6;
    for (int rank = 0; rank < 3; rank += 2) {
        tn_params       *ps = tn_params_create(ctx);
        tn_modifier_desc d = ZERO;
        tn_modifier      m;
        tn_tensor       *penalty;
        double           most = 0;
        d.in = 7;
        d.hidden = 6;
        d.out = 3;
        d.rank = rank;
        CHECK_STATUS(tn_modifier_init(ps, "m", &d, &m), TN_OK);
        tn_tensor *x = random_rows(ctx, 5, 7, &rng);
        tn_record(ctx);
        tn_tensor *y = tn_modifier_forward(ctx, &m, x, &penalty);
        CHECK(apart(y, tn_affine(ctx, tn_affine(ctx, x, m.v, NULL), m.p, NULL)) == 0);
        CHECK(tn_item(penalty) == 0);
        CHECK_STATUS(tn_backward(ctx, tn_add(ctx, tn_sum(ctx, y), penalty)), TN_OK);
        double *g = host((rank ? m.wa : m.w)->grad);
        for (int64_t i = 0; i < tn_tensor_count(rank ? m.wa : m.w); i++) if (fabs(g[i]) > most) most = fabs(g[i]);
        CHECK(most > 0.1);
        CHECK_CTX(ctx);
        tn_params_destroy(ps);
        tn_ctx_reset(ctx);
    }
    tn_ctx_destroy(ctx);
}

/* With rounding: every W x that acts is a multiple of the step, and gradients are those of the formula with the rounded m and d(W x) = 1:
   dV = (P^T dy (x) m)^T x,  dW = (P^T dy (x) V x)^T x. The penalty is that of W x before. */
TEST(modifier_rounds)
{
    enum { N = 4, H = 6, ROWS = 5 };
    const double     step = 0.375;
    tn_ctx          *ctx = ctx_of(TN_F64);
    tn_params       *ps = tn_params_create(ctx);
    tn_modifier_desc d = ZERO;
    tn_modifier      m;
    tn_tensor       *penalty;
    uint64_t         rng = 12;
    double           want_y[ROWS * H], dv[H * N], dw[H * N], sum = 0;
    bool             bent = false;
    d.in = N;
    d.hidden = H;
    d.no_projection = true;
    d.step = step;
    CHECK_STATUS(tn_modifier_init(ps, "m", &d, &m), TN_OK);
    fill_params(ps, &rng);
    tn_tensor *x = random_rows(ctx, ROWS, N, &rng);
    tn_record(ctx);
    tn_tensor *y = tn_modifier_forward(ctx, &m, x, &penalty);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, y)), TN_OK);
    double *vx = host(x), *w = host(m.w), *v = host(m.v);
    memset(dv, 0, sizeof dv);
    memset(dw, 0, sizeof dw);
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < H; h++) {
            double z = 0, u = 0;
            for (int i = 0; i < N; i++) { z += w[h * N + i] * vx[r * N + i]; u += v[h * N + i] * vx[r * N + i]; }
            double q = floor(z / step + 0.5) * step;
            bent = bent || fabs(q - z) > 0.1;
            sum += fabs(z) / (ROWS * H);
            want_y[r * H + h] = (1 + q) * u;
            for (int i = 0; i < N; i++) { dv[h * N + i] += (1 + q) * vx[r * N + i]; dw[h * N + i] += u * vx[r * N + i]; }
        }
    CHECK(bent);
    CHECK_NEAR(tn_item(penalty), sum, 1e-14);
    double *vy = host(y);
    WORST("rounded modifier layer, F64", test_frobenius(vy, want_y, ROWS * H), 2e-15);
    double *g = host(m.v->grad);
    WORST("its gradient of V", test_frobenius(g, dv, H * N), 2e-15);
    g = host(m.w->grad);
    WORST("its straight-through gradient of W", test_frobenius(g, dw, H * N), 2e-15);
    REFUSED(ctx, tn_cp_from_modifier(ctx, &m), TN_ERR_ARG, "the layer's step is 0.375, expected 0");
    tn_ctx_destroy(ctx);
}

TEST(modifier_refuses)
{
    tn_ctx          *ctx = ctx_of(TN_F32);
    tn_params       *ps = tn_params_create(ctx);
    tn_modifier_desc d = ZERO;
    tn_modifier      m;
    tn_tensor       *penalty = NULL;
    int64_t          none[2] = {0, 4};
    const int        absurd = 2;                     /* no enumerator: C++ would not let it be cast */
    FAILS(ctx, tn_modifier_init(ps, "m", &d, &m), TN_ERR_SHAPE, "modifier m: in is 0, expected 1 to 2^31 - 2");
    d.in = 4;
    d.hidden = 3;
    d.rank = -1;
    FAILS(ctx, tn_modifier_init(ps, "m", &d, &m), TN_ERR_ARG, "modifier m: rank is -1, expected 0 to 2^31 - 2");
    d.rank = 0;
    d.step = (double)NAN;
    FAILS(ctx, tn_modifier_init(ps, "m", &d, &m), TN_ERR_ARG, "modifier m: step is nan, expected 0, or 1e-30 to 1e30");
    d.step = 0;
    memcpy(&d.penalty, &absurd, sizeof d.penalty);
    FAILS(ctx, tn_modifier_init(ps, "m", &d, &m), TN_ERR_ARG, "modifier m: penalty is 2, not a valid tn_penalty");
    d.penalty = TN_PENALTY_L2;
    d.no_projection = true;
    d.out = 4;
    FAILS(ctx, tn_modifier_init(ps, "m", &d, &m), TN_ERR_SHAPE, "modifier m: out is 4, expected hidden = 3");
    CHECK_INT(tn_params_count(ps), 0);
    d.no_projection = false;
    CHECK_STATUS(tn_modifier_init(ps, "m", &d, &m), TN_OK);
    CHECK(tn_modifier_forward(ctx, NULL, NULL, &penalty) == NULL && penalty == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "modifier: the layer is NULL");
    tn_tensor *x = tn_tensor_nd(ctx, TN_REAL, 2, none);
    REFUSED(ctx, tn_modifier_forward(ctx, &m, x, &penalty), TN_ERR_SHAPE, "expected at least one");
    CHECK(tn_modifier_forward(ctx, &m, x, NULL) != NULL);
    CLOSE_CTX(ctx);
}

/* ---- activations as polynomials --------------------------------------------------------------------------------- */

/* y = P (p(W x + b) * (V x + c)) + p, of a layer whose activation is a polynomial, in plain loops. */
static double *plain_gated(const tn_mlp *m, const tn_polynomial *act, int64_t count, const double *x, int64_t rows)
{
    const tn_mlp_desc *d = &m->desc;
    const int64_t      h = d->hidden, e = m->w->shape[0], n = m->w->shape[2];
    double *w = host(m->w), *b = m->b ? host(m->b) : doubles(e * h), *y = doubles(rows * d->out), *one = doubles(n + 1);
    double *p = m->p ? host(m->p) : NULL, *pb = m->pb ? host(m->pb) : doubles(d->out);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(one, x + r * d->in, (size_t)d->in * sizeof *one);
        one[d->in] = 1;
        for (int64_t o = 0; o < d->out; o++)
            y[r * d->out + o] = pb[o] + (d->augmented ? p[o * (h + 1) + h] : 0) + (d->residual ? one[o] : 0);
        for (int64_t i = 0; i < h; i++) {
            const tn_polynomial *q = &act[count > 1 ? i : 0];
            double g = b[i], v = e > 1 ? b[h + i] : 1, sum = 0;
            for (int64_t j = 0; j < n; j++) g += w[i * n + j] * one[j];
            for (int64_t j = 0; e > 1 && j < n; j++) v += w[(h + i) * n + j] * one[j];
            for (int k = 0; k <= q->degree; k++) sum += q->c[k] * pow((g - q->centre) / q->width, k);
            for (int64_t o = 0; o < d->out; o++) y[r * d->out + o] += (p ? p[o * m->p->shape[1] + i] : o == i) * sum * v;
        }
    }
    return y;
}

/* One random layer with random polynomials of degrees up to `degree`. */
static double polynomial_identity(tn_ctx *ctx, int degree, bool gated, uint64_t *rng)
{
    tn_params    *ps = tn_params_create(ctx);
    tn_mlp_desc   d = ZERO;
    tn_mlp        layer;
    tn_polynomial act[7];
    const int     kind = (int)test_random_int(rng, 0, 5);
    const int64_t rows = test_random_int(rng, 0, 4);
    d.kind = gated ? TN_MLP_SWIGLU : TN_MLP_GELU;
    d.in = test_random_int(rng, 1, 5);
    d.hidden = test_random_int(rng, 1, 7);
    d.residual = kind >= 4;
    d.out = kind == 2 ? 0 : d.residual ? d.in : test_random_int(rng, 1, 5);
    d.bias = kind == 1 || kind == 2 || kind == 5;
    d.out_bias = kind == 1;
    d.no_projection = kind == 2;
    d.augmented = kind == 3;
    CHECK_STATUS(tn_mlp_init(ps, "p", &d, &layer), TN_OK);
    fill_params(ps, rng);
    const int64_t count = test_random_int(rng, 0, 1) ? layer.desc.hidden : 1;
    memset(act, 0, sizeof act);
    for (int64_t i = 0; i < count; i++) {
        act[i].degree = i ? (int)test_random_int(rng, 0, degree) : degree;
        act[i].centre = test_random_real(rng);
        act[i].width = 1.5 + test_random_real(rng);
        for (int k = 0; k <= act[i].degree; k++) act[i].c[k] = test_random_real(rng);
    }
    tn_cp *cp = tn_cp_from_mlp_polynomial(ctx, &layer, act, count);
    if (!CHECK(cp != NULL)) return HUGE_VAL;
    CHECK(cp->order == degree + gated && cp->constant && cp->terms >= (degree + 1) * layer.desc.hidden);
    double    *x = doubles(rows * d.in);
    for (int64_t i = 0; i < rows * d.in; i++) x[i] = test_random_real(rng);
    int64_t    shape[2] = {rows, d.in};
    tn_tensor *y = tn_cp_apply(ctx, cp, tn_tensor_from(ctx, 2, shape, TN_F64, x));
    double    *want = plain_gated(&layer, act, count, x, rows);
    double     error = rows && CHECK(y != NULL) ? test_frobenius(host(y), want, rows * layer.desc.out) : 0;
    tn_mlp     back;                                                    /* and as a trainable layer of that order */
    if (rows && CHECK_STATUS(tn_mlp_from_cp(ps, "back", cp, &back), TN_OK)) {
        y = tn_mlp_forward(ctx, &back, tn_tensor_from(ctx, 2, shape, TN_F64, x));
        test_raise(&error, y ? test_frobenius(host(y), want, rows * layer.desc.out) : HUGE_VAL);
    }
    tn_cp_destroy(cp);
    tn_params_destroy(ps);
    return error;
}

TEST(polynomial_activations_are_tensors)
{
    uint64_t rng = 21;
    double   worst[2] = {0, 0};
    for (int f32 = 0; f32 < 2; f32++) {
        tn_ctx *ctx = ctx_of(f32 ? TN_F32 : TN_F64);
        for (int round = 0; round < 20; round++)
            for (int degree = 1; degree <= TN_CP_MAX_ORDER; degree++)
                for (int gated = 0; gated < (degree < TN_CP_MAX_ORDER ? 2 : 1); gated++) {
                    tn_ctx_reset(ctx);
                    test_raise(&worst[f32], polynomial_identity(ctx, degree, gated, &rng));
                }
        CLOSE_CTX(ctx);
    }
    printf("operators of polynomial activations: F64 %.1e, F32 %.1e\n", worst[0], worst[1]);
    CHECK(worst[0] <= 1e-12 && worst[1] <= 1e-4);
}

TEST(polynomial_activations_refuse)
{
    tn_ctx       *ctx = ctx_of(TN_F64);
    tn_params    *ps = tn_params_create(ctx);
    tn_mlp_desc   d = ZERO;
    tn_mlp        gated, plain, bilinear;
    tn_polynomial p[4];
    memset(p, 0, sizeof p);
    for (int i = 0; i < 4; i++) p[i].degree = 2, p[i].width = 1, p[i].c[2] = 1;
    d.in = 3;
    d.hidden = 4;
    CHECK_STATUS(tn_mlp_init(ps, "b", &d, &bilinear), TN_OK);
    d.kind = TN_MLP_SWIGLU;
    CHECK_STATUS(tn_mlp_init(ps, "g", &d, &gated), TN_OK);
    d.kind = TN_MLP_GELU;
    CHECK_STATUS(tn_mlp_init(ps, "p", &d, &plain), TN_OK);
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, NULL, p, 1), TN_ERR_ARG, "cp_from_mlp_polynomial: mlp");
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, &bilinear, p, 1), TN_ERR_ARG, "kind is bilinear, expected one with an activation");
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, &gated, NULL, 1), TN_ERR_ARG, "act is NULL and count 1, expected 1 or 4");
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, &gated, p, 3), TN_ERR_ARG, "act is given and count 3, expected 1 or 4");
    p[1].degree = 6;
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, &gated, p, 4), TN_ERR_ARG, "polynomial 1 has degree 6, expected 0 to 5");
    p[1].degree = 7;
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, &plain, p, 4), TN_ERR_ARG, "polynomial 1 has degree 7, expected 0 to 6");
    p[1].degree = -1;
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, &plain, p, 4), TN_ERR_ARG, "has degree -1, expected 0 to 6");
    p[1].degree = 2;
    p[1].width = 0;
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, &plain, p, 4), TN_ERR_NONFINITE, "width 0, expected finite numbers, and a width other");
    p[1].width = 1;
    p[1].c[1] = (double)NAN;
    REFUSED(ctx, tn_cp_from_mlp_polynomial(ctx, &plain, p, 4), TN_ERR_NONFINITE, "polynomial 1 has coefficient nan");
    CLOSE_CTX(ctx);
}

/* ---- memory --------------------------------------------------------------------------------------------------------------- */

/* All layers, their operators, and the way back; true if everything was made. */
static bool make_everything(tn_ctx *ctx, tn_params *ps)
{
    tn_mlp_desc       pd = ZERO;
    tn_quadratic_desc qd = ZERO;
    tn_modifier_desc  md = ZERO;
    tn_mlp            product, back;
    tn_quadratic      whole, whole_back;
    tn_modifier       modifier;
    tn_cp            *cp[4] = {NULL, NULL, NULL, NULL};
    tn_polynomial     square = {2, 0, 1, {1, 0, 1}, 0, 0};
    tn_mlp            gated;
    pd.in = qd.in = md.in = 3;
    pd.hidden = md.hidden = 4;
    pd.out = qd.out = md.out = 2;
    pd.bias = pd.out_bias = qd.bias = md.bias = md.out_bias = true;
    md.rank = 2;
    bool made = tn_mlp_init(ps, "p", &pd, &product) == TN_OK;
    CHECK(made || (!product.w && !product.b && tn_params_count(ps) == 0));
    made = made && tn_quadratic_init(ps, "q", &qd, &whole) == TN_OK && tn_modifier_init(ps, "m", &md, &modifier) == TN_OK;
    made = made && (cp[0] = tn_cp_from_mlp(ctx, &product)) && (cp[1] = tn_cp_from_quadratic(ctx, &whole))
        && (cp[2] = tn_cp_from_modifier(ctx, &modifier));
    made = made && tn_mlp_from_cp(ps, "pp", cp[0], &back) == TN_OK
        && tn_quadratic_from_cp(ps, "qq", cp[2], &whole_back) == TN_OK;
    made = made && tn_params_tie(ps, "tied", "q.t") == TN_OK;
    pd.kind = TN_MLP_SWIGLU;
    made = made && tn_mlp_init(ps, "g", &pd, &gated) == TN_OK && (cp[3] = tn_cp_from_mlp_polynomial(ctx, &gated, &square, 1));
    for (int i = 0; i < 4; i++) tn_cp_destroy(cp[i]);
    return made;
}

TEST(failing_allocations_leave_nothing)
{
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc   d = ZERO;
    tn_ctx   *ctx;
    uint64_t  fail;
    bool      made = false;
    d.allocator = test_heap_allocator(&heap);
    REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
    CHECK(tn_tensor_1d(ctx, TN_REAL, 1) != NULL);                /* the arenas' first blocks */
    uint64_t blocks = heap.blocks;
    for (fail = 1; fail < 2000 && !made; fail++) {
        tn_params *ps = tn_params_create(ctx);
        heap.count = 0;
        heap.fail_at = fail;
        made = make_everything(ctx, ps);
        heap.fail_at = 0;
        if (!made) CHECK_ERROR(ctx, TN_ERR_MEMORY, "");
        tn_params_destroy(ps);
        CHECK_INT(heap.blocks, blocks);
    }
    printf("%d allocations of layers and operators failed\n", (int)fail - 2);
    CHECK(made && fail > 40);
    tn_ctx_destroy(ctx);
    CHECK_INT(heap.blocks, 0);
}

TEST_MAIN(product_is_its_tensor, order_zero_is_two, product_backward_needs_no_division, product_refuses, product_begins_with_variance_one,
          whole_tensor_is_its_factors, from_a_full_tensor, conversions_refuse, both_forms_learn_a_tensor, quadratic_begins_with_variance_one,
          modifier_is_its_tensor, modifier_begins_unmodified, modifier_rounds, modifier_refuses,
          polynomial_activations_are_tensors, polynomial_activations_refuse, failing_allocations_leave_nothing)
