/* test_layers.c: parameters by name, how layers begin, and what they refuse. What they compute is in cases.h. */

#include "sealed.h"
#include "kit.h"

static tn_init rule(tn_init_rule r, double std)
{
    tn_init i = ZERO;
    i.rule = r;
    i.std = std;
    return i;
}

TEST(parameters)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *ps = tn_params_create(ctx);
    int64_t shape[2] = {3, 4}, absurd[2] = {-1, 4};
    char name[300], made_up[16];
    snprintf(made_up, sizeof made_up, "a.w");
    tn_param *a = tn_params_add(ps, made_up, 2, shape, rule(TN_INIT_ONE, 0));
    made_up[0] = 'x';                                            /* the name is copied */
    tn_param *b = tn_params_add(ps, "a.b", 1, shape, rule(TN_INIT_DEFAULT, 0));
    REQUIRE(a && b);
    CHECK_STR(a->name, "a.w");
    CHECK_INT(tn_params_count(ps), 2);
    CHECK_INT(tn_params_elements(ps), 15);
    CHECK(tn_params_find(ps, "a.w") == a && tn_params_at(ps, 1) == b && tn_params_find(ps, "a") == NULL);
    CHECK(tn_params_at(ps, 2) == NULL && tn_params_at(ps, -1) == NULL);
    CHECK(tn_params_ctx(ps) == ctx && tn_params_ctx(NULL) == NULL);
    CHECK(a->value->grad == NULL && !a->frozen && a->lr_scale == 1 && a->decay_scale == 1);
    CHECK_INT(a->value->dtype, TN_F32);
    CHECK(tn_item(tn_sum(ctx, a->value)) == 12 && tn_item(tn_sum(ctx, b->value)) == 0);
    REFUSED(ctx, tn_params_add(ps, "a.w", 2, shape, rule(TN_INIT_ONE, 0)), TN_ERR_ARG, "a.w");
    REFUSED(ctx, tn_params_add(ps, "", 2, shape, rule(TN_INIT_ONE, 0)), TN_ERR_ARG, "the name of a parameter is empty");
    REFUSED(ctx, tn_params_add(ps, NULL, 2, shape, rule(TN_INIT_ONE, 0)), TN_ERR_ARG, "the name of a parameter is NULL");
    REFUSED(ctx, tn_params_add(ps, "c", 2, absurd, rule(TN_INIT_ONE, 0)), TN_ERR_SHAPE, "extent 0 of [-1,4] is negative");
    CHECK(tn_params_add(ps, "c", 2, shape, rule((tn_init_rule)7, 0)) == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "init: rule is 7, not a valid tn_init_rule");
    CHECK(tn_params_add(NULL, "c", 2, shape, rule(TN_INIT_ONE, 0)) == NULL);
    CHECK_INT(tn_params_count(ps), 2);
    for (int i = 0; i < 100; i++) {                                  /* many: what was handed out stays where it is */
        snprintf(name, sizeof name, "more.%d", i);
        CHECK(tn_params_add(ps, name, 1, shape, rule(TN_INIT_ZERO, 0)) != NULL);
    }
    CHECK_INT(tn_params_count(ps), 102);
    CHECK_STR(tn_params_at(ps, 101)->name, "more.99");
    CHECK_STR(a->name, "a.w");
    CHECK_INT(tn_params_set_scales(ps, "more.9", 0.5, 0), 11);
    CHECK(tn_params_find(ps, "more.97")->lr_scale == 0.5f && tn_params_find(ps, "more.8")->lr_scale == 1);
    CHECK_INT(tn_params_freeze(ps, "a."), 2);
    CHECK(a->frozen && b->frozen);
    CHECK_INT(tn_params_freeze(ps, "nobody"), 0);
    CHECK_INT(tn_params_thaw(ps, ""), 102);
    CHECK(!a->frozen);
    CHECK_CTX(ctx);
    tn_params_destroy(NULL);
    tn_params_destroy(ps);
    CHECK_INT(tn_params_count(NULL), 0);
    tn_ctx_destroy(ctx);
}

/* Mean, deviation and largest of what a rule makes. */
static void check_rule(tn_ctx *ctx, tn_init init, double deviation, double largest)
{
    enum { N = 200, M = 300 };
    tn_params *ps = tn_params_create(ctx);
    int64_t shape[2] = {N, M};
    tn_param *p = tn_params_add(ps, "p", 2, shape, init);
    double *v = (double *)malloc(sizeof(double) * N * M), sum = 0, squares = 0, most = 0;
    if (CHECK(p != NULL) && CHECK_STATUS(tn_read(p->value, TN_F64, v, N * M), TN_OK)) {
        for (int64_t i = 0; i < N * M; i++) {
            sum += v[i];
            squares += v[i] * v[i];
            if (fabs(v[i]) > most) most = fabs(v[i]);
        }
        CHECK_NEAR(sum / (N * M), 0, 5 * deviation / sqrt(N * M));
        CHECK_NEAR(sqrt(squares / (N * M)), deviation, 0.02 * deviation);
        CHECK(most <= largest && most > 0.99 * (largest < 1e9 ? largest : 0));
    }
    free(v);
    tn_params_destroy(ps);
}

TEST(init_rules)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_init fans = rule(TN_INIT_GLOROT, 0);
    double n = 300, m = 200, root3 = sqrt(3.0);
    check_rule(ctx, rule(TN_INIT_NORMAL, 0), 1 / sqrt(n), HUGE_VAL);
    check_rule(ctx, rule(TN_INIT_UNIFORM, 0), 1 / sqrt(n) / root3, 1 / sqrt(n) * (1 + 1e-6));
    check_rule(ctx, rule(TN_INIT_GLOROT, 0), sqrt(2 / (n + m)), sqrt(6 / (n + m)) * (1 + 1e-6));
    check_rule(ctx, rule(TN_INIT_HE, 0), sqrt(2 / n), HUGE_VAL);
    check_rule(ctx, rule(TN_INIT_NORMAL, 0.02), 0.02, HUGE_VAL);
    check_rule(ctx, rule(TN_INIT_UNIFORM, 0.3), 0.3 / root3, 0.3 * (1 + 1e-6));
    fans.fan_in = 10;
    fans.fan_out = 14;
    check_rule(ctx, fans, 0.5 / root3, 0.5 * (1 + 1e-6));
    CLOSE_CTX(ctx);
}

/* Names, shapes and decay of what the layers make. */
TEST(layers_make_parameters)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    tn_params *ps = tn_params_create(ctx);
    tn_linear_desc l = ZERO;
    tn_linear linear;
    tn_mlp_desc d = ZERO;
    tn_mlp mlp;
    tn_norm_desc n = ZERO;
    tn_norm norm;
    tn_embedding_desc e = ZERO;
    tn_embedding embedding;
    l.bias = true;
    l.in = 784;
    l.out = 10;
    CHECK_STATUS(tn_linear_init(ps, "head", &l, &linear), TN_OK);
    CHECK_INT(tn_params_elements(ps), 7850);
    CHECK(tn_params_find(ps, "head.w")->value == linear.w && tn_params_find(ps, "head.b")->value == linear.b);
    CHECK(tn_params_find(ps, "head.w")->decay_scale == 1 && tn_params_find(ps, "head.b")->decay_scale == 0);
    CHECK(linear.w->shape[0] == 10 && linear.w->shape[1] == 784 && linear.b->shape[0] == 10);
    l.augmented = true;
    l.bias = false;
    CHECK_STATUS(tn_linear_init(ps, "augmented", &l, &linear), TN_OK);
    CHECK(linear.b == NULL && linear.w->shape[1] == 785);
    d.in = 5;
    d.hidden = 7;
    CHECK_STATUS(tn_mlp_init(ps, "blocks.0.mlp", &d, &mlp), TN_OK);
    CHECK(mlp.w->rank == 3 && mlp.w->shape[0] == 2 && mlp.w->shape[1] == 7 && mlp.w->shape[2] == 5);
    CHECK(mlp.p->shape[0] == 5 && mlp.p->shape[1] == 7 && !mlp.b && !mlp.pb && mlp.desc.out == 5);
    CHECK(tn_params_find(ps, "blocks.0.mlp.w")->value == mlp.w);
    d.kind = TN_MLP_GELU;
    d.out = 3;
    d.bias = d.out_bias = true;
    CHECK_STATUS(tn_mlp_init(ps, "blocks.1.mlp", &d, &mlp), TN_OK);
    CHECK(mlp.w->shape[0] == 1 && mlp.b->rank == 2 && mlp.b->shape[1] == 7 && mlp.pb->shape[0] == 3);
    n.dim = 6;
    CHECK_STATUS(tn_norm_init(ps, "norm", &n, &norm), TN_OK);
    CHECK(tn_item(tn_sum(ctx, norm.gain)) == 6 && norm.desc.eps == (double)1e-5 && tn_params_find(ps, "norm.gain")->decay_scale == 0);
    e.count = 11;
    e.dim = 4;
    CHECK_STATUS(tn_embedding_init(ps, "", &e, &embedding), TN_OK);         /* at the top: no dot */
    CHECK(tn_params_find(ps, "w")->value == embedding.w);
    CLOSE_CTX(ctx);
}

TEST(kinds)
{
    for (int k = TN_MLP_BILINEAR; k <= TN_MLP_SWIGLU; k++)
        CHECK_INT(tn_mlp_encoders((tn_mlp_kind)k), k == TN_MLP_BILINEAR || k >= TN_MLP_GLU ? 2 : 1);
    CHECK_STR(tn_mlp_kind_name(TN_MLP_BILINEAR), "bilinear");
    CHECK_STR(tn_mlp_kind_name(TN_MLP_SWIGLU), "swiglu");
    CHECK_STR(tn_mlp_kind_name((tn_mlp_kind)15), "?");
    CHECK_INT(tn_mlp_encoders((tn_mlp_kind)15), 0);
}

#define REFUSES_MLP(status, part) do { CHECK_STATUS(tn_mlp_init(ps, "m", &d, &mlp), status); \
                                       CHECK_ERROR(ctx, status, part); } while (0)

TEST(layers_refuse)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *ps = tn_params_create(ctx);
    tn_linear_desc l = ZERO;
    tn_linear linear;
    tn_mlp_desc d = ZERO;
    tn_mlp mlp;
    tn_norm_desc n = ZERO;
    tn_norm norm;
    tn_embedding_desc e = ZERO;
    tn_embedding embedding;
    char name[400];
    FAILS(ctx, tn_linear_init(ps, "fc", &l, &linear), TN_ERR_SHAPE, "linear fc: in is 0, expected 1 to 2^31 - 2");
    FAILS(ctx, tn_linear_init(ps, "fc", &l, NULL), TN_ERR_ARG, "linear");
    FAILS(ctx, tn_linear_init(ps, "fc", NULL, &linear), TN_ERR_ARG, "linear");
    CHECK_STATUS(tn_linear_init(NULL, "fc", &l, &linear), TN_ERR_ARG);
    FAILS(ctx, tn_norm_init(ps, "n", &n, &norm), TN_ERR_SHAPE, "norm n:");
    FAILS(ctx, tn_embedding_init(ps, "e", &e, &embedding), TN_ERR_SHAPE, "embedding e:");
    REFUSES_MLP(TN_ERR_SHAPE, "mlp m: in is 0, expected 1 to 2^31 - 2");
    d.in = 4;
    d.hidden = 6;
    d.kind = (tn_mlp_kind)12;
    REFUSES_MLP(TN_ERR_ARG, "mlp m: kind is 12, not a valid tn_mlp_kind");
    d.kind = TN_MLP_BILINEAR;
    d.out = -2;
    REFUSES_MLP(TN_ERR_SHAPE, "out is -2");
    d.out = INT32_MAX;
    REFUSES_MLP(TN_ERR_SHAPE, "out is 2147483647");
    d.out = 5;
    d.residual = true;
    REFUSES_MLP(TN_ERR_SHAPE, "out is 5, expected in = 4 with residual");
    d.residual = false;
    d.no_projection = true;
    REFUSES_MLP(TN_ERR_SHAPE, "out is 5, expected hidden = 6");
    d.no_projection = false;
    d.augmented = d.bias = true;
    REFUSES_MLP(TN_ERR_ARG, "a bias is true, expected false with augmented");
    l.in = l.out = 2;
    l.augmented = l.bias = true;
    FAILS(ctx, tn_linear_init(ps, "fc", &l, &linear), TN_ERR_ARG, "a bias is true, expected false with augmented");
    CHECK_INT(tn_params_count(ps), 0);                                     /* nothing was made on the way */
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    l.augmented = false;
    FAILS(ctx, tn_linear_init(ps, name, &l, &linear), TN_ERR_ARG, "is too long");
    CHECK_STATUS(tn_linear_init(ps, "fc", &l, &linear), TN_OK);
    CHECK_STATUS(tn_linear_init(ps, "fc", &l, &linear), TN_ERR_ARG);       /* the name is taken */
    CHECK_ERROR(ctx, TN_ERR_ARG, "fc.w");
    CHECK(linear.w == NULL);
    REFUSED(ctx, tn_linear_forward(ctx, &linear, tn_full(ctx, 0, NULL, 1)), TN_ERR_ARG, "affine: w is NULL");
    CHECK(tn_linear_forward(NULL, &linear, NULL) == NULL);
    REFUSED(ctx, tn_mlp_forward(ctx, NULL, NULL), TN_ERR_ARG, "mlp: the layer is NULL");
    CLOSE_CTX(ctx);
}

/* A layer's init says how it itself went, whatever error the context still holds. */
TEST(init_after_an_error)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *ps = tn_params_create(ctx);
    tn_linear_desc l = ZERO;
    tn_linear linear;
    l.bias = true;
    l.in = l.out = 2;
    CHECK(tn_add(ctx, NULL, NULL) == NULL);
    CHECK_STATUS(tn_linear_init(ps, "fc", &l, &linear), TN_OK);
    CHECK(linear.w != NULL && linear.b != NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "add: a is NULL");
    tn_ctx_destroy(ctx);
}

/* A gradient that only the third operand of an op wants: x and w are data. */
TEST(a_bias_alone_has_a_gradient)
{
    static const double x[6] = {1, -2, 3, 0.5, 4, -1}, weights[4] = {1, 2, -3, 5};
    tn_ctx        *ctx = ctx_of(TN_F64);
    const int64_t  two = 2, three = 3, full[2] = {2, 3}, out[2] = {2, 2};
    double         g[3];
    tn_tensor *data = tn_tensor_nd(ctx, TN_REAL, 2, full);
    tn_write(data, TN_F64, x, 6);
    tn_tensor *w = tn_tensor_nd(ctx, TN_REAL, 2, full);
    tn_write(w, TN_F64, x, 6);
    tn_tensor *b = tn_full(ctx, 1, &two, 0);
    tn_tensor *to = tn_tensor_nd(ctx, TN_REAL, 2, out);
    tn_write(to, TN_F64, weights, 4);
    tn_watch(b);
    tn_record(ctx);
    tn_tensor *y = tn_affine(ctx, data, w, b);
    REQUIRE(CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, to))), TN_OK));
    REQUIRE(CHECK(b->grad != NULL));
    tn_read(b->grad, TN_F64, g, 2);
    CHECK(g[0] == -2 && g[1] == 7);
    CHECK(data->grad == NULL && w->grad == NULL);
    tn_ctx_reset(ctx);
    data = tn_tensor_nd(ctx, TN_REAL, 2, full);
    tn_write(data, TN_F64, x, 6);
    b = tn_full(ctx, 1, &three, 0);
    tn_watch(b);
    tn_record(ctx);
    y = tn_layernorm(ctx, data, tn_full(ctx, 1, &three, 2), b, 1e-5);
    REQUIRE(CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, data))), TN_OK));
    REQUIRE(CHECK(b->grad != NULL));
    tn_read(b->grad, TN_F64, g, 3);
    CHECK(g[0] == 1.5 && g[1] == 2 && g[2] == 2);
    CLOSE_CTX(ctx);
}

/* No name is an empty name, in messages, too. */
TEST(a_layer_without_a_name)
{
    tn_ctx     *ctx = ctx_of(TN_F32);
    tn_params  *ps = tn_params_create(ctx);
    tn_mlp_desc d = ZERO;
    tn_mlp      mlp;
    d.in = 4;
    d.hidden = 6;
    d.kind = (tn_mlp_kind)12;
    FAILS(ctx, tn_mlp_init(ps, NULL, &d, &mlp), TN_ERR_ARG, "mlp: kind is 12, not a valid tn_mlp_kind");
    d.kind = TN_MLP_BILINEAR;
    CHECK_STATUS(tn_mlp_init(ps, NULL, &d, &mlp), TN_OK);
    CLOSE_CTX(ctx);
}

TEST_MAIN(parameters, init_rules, layers_make_parameters, kinds, layers_refuse, init_after_an_error,
          a_bias_alone_has_a_gradient, a_layer_without_a_name)
