/* test_regressions.c: what once went wrong without an error, each as its reader would meet it. */

#include "kit.h"

static tn_param *vector_param(tn_params *ps, const char *name, int64_t n, tn_init_rule rule)
{
    tn_init init = ZERO;
    init.rule = rule;
    return tn_params_add(ps, name, 1, &n, init);
}

/* One training step in which the gradient of p is `slope` everywhere. */
static tn_status step_with_slope(tn_ctx *ctx, tn_optim *o, tn_param *p, double slope)
{
    tn_ctx_reset(ctx);
    tn_record(ctx);
    tn_status s = tn_backward(ctx, tn_sum(ctx, tn_scale(ctx, p->value, slope)));
    return s == TN_OK ? tn_optim_step(o) : s;
}

static double first_of(const tn_param *p)
{
    double v = 0;
    CHECK_STATUS(tn_read(tn_slice(p->value, 0, 0, 1), TN_F64, &v, 1), TN_OK);
    return v;
}

/* Rows that do not join in memory, all summed into one number: small, and large enough to be split. */
TEST(sum_of_a_slice)
{
    static const int64_t rows[] = {3, 1, 700, 40000};
    for (int level = TN_SIMD_PLAIN; level <= TN_SIMD_NEON; level++)
        for (int threads = 1; threads <= 2; threads++)
            for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
                tn_ctx *ctx = ctx_on(NULL, TN_F32, (tn_simd)level, threads);
                int64_t n = rows[k];
                double  want = 0;
                float  *v = (float *)malloc(sizeof *v * (size_t)(n * 4 + 4));
                int64_t shape[3] = {n / 2 + n % 2, n > 1 ? 2 : 1, 4};
                for (int64_t i = 0; i < shape[0] * shape[1] * 4; i++) {
                    v[i] = (float)(i % 7) - 2;
                    if (i % 4 < 3) want += (double)v[i];
                }
                tn_tensor *x = tn_tensor_nd(ctx, TN_REAL, 3, shape);
                tn_write(x, TN_F32, v, shape[0] * shape[1] * 4);
                CHECK_NEAR(tn_item(tn_sum(ctx, tn_slice(x, 2, 0, 3))), want, 1e-3);
                CHECK_NEAR(tn_item(tn_mean(ctx, tn_slice(x, 2, 0, 3))), want / (double)(shape[0] * shape[1] * 3), 1e-6);
                CHECK_CTX(ctx);
                free(v);
                tn_ctx_destroy(ctx);
            }
}

/* Squares of these overflow a float, the gradients do not: clipping is there for them. */
TEST(clips_a_huge_gradient)
{
    tn_ctx       *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 1);
    tn_params    *ps = tn_params_create(ctx);
    tn_param     *p = vector_param(ps, "p", 4, TN_INIT_ZERO);
    tn_optim_desc d = ZERO;
    d.kind = TN_OPTIM_SGD;
    d.lr = 1;
    d.clip_norm = 1;
    tn_optim *o = tn_optim_create(ps, &d);
    CHECK_STATUS(step_with_slope(ctx, o, p, 1e20), TN_OK);
    CHECK_NEAR(tn_optim_grad_norm(o) / 2e20, 1, 1e-6);
    CHECK_NEAR(first_of(p), -0.5, 1e-6);
    tn_ctx_destroy(ctx);
}

/* A label outside the table is an error of the step, so the step must not happen. */
TEST(bad_label_updates_nothing)
{
    tn_ctx    *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 1);
    tn_params *ps = tn_params_create(ctx);
    tn_linear  l;
    tn_linear_desc ld = ZERO;
    tn_optim  *o = tn_optim_create(ps, NULL);
    int32_t    label[2] = {1, 9};
    int64_t    shape[2] = {2, 3};
    double     before[9], after[9];
    ld.in = ld.out = 3;
    tn_linear_init(ps, "l", &ld, &l);
    tn_read(l.w, TN_F64, before, 9);
    tn_tensor *x = tn_full(ctx, 2, shape, 1);
    tn_tensor *y = tn_tensor_1d(ctx, TN_I32, 2);
    tn_write(y, TN_I32, label, 2);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_cross_entropy(ctx, tn_linear_forward(ctx, &l, x), y)), TN_OK);
    CHECK(tn_optim_step(o) == TN_ERR_DATA);
    CHECK_ERROR(ctx, TN_ERR_DATA, "cross_entropy: element 1 of the labels is 9");
    tn_read(l.w, TN_F64, after, 9);
    CHECK(memcmp(before, after, sizeof before) == 0);
    tn_ctx_destroy(ctx);
}

/* A parameter that thaws late starts with a step of lr, as one of the first step does. */
TEST(late_parameter_starts_gently)
{
    tn_ctx    *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 1);
    tn_params *ps = tn_params_create(ctx);
    tn_param  *early = vector_param(ps, "early", 2, TN_INIT_ZERO), *late = vector_param(ps, "late", 2, TN_INIT_ZERO);
    tn_optim  *o = tn_optim_create(ps, NULL);
    tn_params_freeze(ps, "late");
    for (int i = 0; i < 100; i++) CHECK_STATUS(step_with_slope(ctx, o, early, 1), TN_OK);
    tn_params_thaw(ps, "late");
    CHECK_STATUS(step_with_slope(ctx, o, late, 1), TN_OK);
    CHECK_NEAR(first_of(late), -1e-3, 1e-8);
    tn_ctx_destroy(ctx);
}

/* What an earlier recording computed is a constant for the next one, and says so. */
TEST(stale_intermediate_is_no_leaf)
{
    tn_ctx    *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 1);
    tn_params *ps = tn_params_create(ctx);
    tn_param  *p = vector_param(ps, "p", 2, TN_INIT_ONE);
    tn_record(ctx);
    tn_tensor *h = tn_scale(ctx, p->value, 2);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, h)), TN_OK);
    tn_record(ctx);
    CHECK(tn_backward(ctx, tn_sum(ctx, h)) == TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "loss leads to no parameter");
    tn_ctx_destroy(ctx);
}

/* The tape reads its inputs on the way back: they may not change before. What it does not read may. */
TEST(taped_input_is_not_overwritten)
{
    tn_ctx     *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 1);
    tn_params  *ps = tn_params_create(ctx);
    tn_param   *p = vector_param(ps, "p", 2, TN_INIT_ONE);
    const float one[2] = {1, 1}, more[2] = {100, 100};
    tn_record(ctx);
    tn_tensor *x = tn_tensor_1d(ctx, TN_REAL, 2);
    tn_tensor *fresh = tn_tensor_1d(ctx, TN_REAL, 2);
    tn_watch(fresh);
    CHECK_STATUS(tn_write(x, TN_F32, one, 2), TN_OK);
    CHECK_STATUS(tn_write(fresh, TN_F32, one, 2), TN_OK);
    tn_tensor *y = tn_mul(ctx, p->value, x);
    FAILS(ctx, tn_write(x, TN_F32, more, 2), TN_ERR_ARG, "needed by the backward pass");
    FAILS(ctx, tn_write(p->value, TN_F32, more, 2), TN_ERR_ARG, "needed by the backward pass");
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, y)), TN_OK);
    CHECK_NEAR(tn_item(tn_slice(p->value->grad, 0, 0, 1)), 1, 0);
    CHECK_STATUS(tn_write(x, TN_F32, more, 2), TN_OK);
    tn_ctx_destroy(ctx);
}

/* (x1 + x2)^2 on two inputs and (x1 + 1)^2 on one and the constant are not the same function. */
TEST(constant_is_not_an_input)
{
    tn_ctx    *ctx = ctx_on(NULL, TN_F64, TN_SIMD_AUTO, 1);
    int64_t    one[2] = {1, 1}, two[2] = {1, 2};
    tn_tensor *f[2], *p = tn_full(ctx, 2, one, 1);
    double     v;
    f[0] = f[1] = tn_full(ctx, 2, two, 1);
    tn_cp *plain = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    tn_cp *biased = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_CONSTANT);
    CHECK_STATUS(tn_cp_cosine(plain, biased, &v), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "cosine: one operator has a constant input, the other has none, expected the same");
    CHECK(v != v);
    tn_ctx_destroy(ctx);
}

/* 1 + 2^-8 + 1e-12 lies just above the middle between two BF16 numbers, but a float of it is the middle. */
TEST(bf16_is_rounded_once)
{
    tn_ctx      *ctx = ctx_on(NULL, TN_F64, TN_SIMD_AUTO, 1);
    tn_tensor   *t = tn_tensor_1d(ctx, TN_BF16, 2);
    const double in[2] = {1 + 1.0 / 256 + 1e-12, 1 + 3.0 / 256 - 1e-12};
    double       out[2];
    CHECK_STATUS(tn_write(t, TN_F64, in, 2), TN_OK);
    CHECK_STATUS(tn_read(t, TN_F64, out, 2), TN_OK);
    CHECK_NEAR(out[0], 1 + 1.0 / 128, 0);
    CHECK_NEAR(out[1], 1 + 1.0 / 128, 0);
    tn_ctx_destroy(ctx);
}

/* One huge tensor must not double into the next block. */
TEST(arena_grows_with_measure)
{
    tn_ctx *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 1);
    CHECK(tn_tensor_1d(ctx, TN_F32, (int64_t)1 << 28) != NULL);
    size_t before = tn_ctx_memory(ctx).arena;
    CHECK(tn_tensor_1d(ctx, TN_F32, 4) != NULL);
    CHECK(tn_ctx_memory(ctx).arena - before <= (size_t)512 << 20);
    tn_ctx_destroy(ctx);
}

/* A diagonal matrix as its products. */
static tn_status times_diagonal(void *user, int64_t count, const double *x, double *y)
{
    const double *d = (const double *)user;
    int64_t       n = (int64_t)d[0];
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < n; j++) y[i * n + j] = d[1 + j] * x[i * n + j];
    return TN_OK;
}

/* Where the space ends with a short block and the pairs stand at once, the new random block is longer than the last one was: what H
   held of that one was taken for an asymmetry. */
TEST(lanczos_begins_anew_after_a_short_block)
{
    static const int64_t size[][2] = {{85, 2}, {125, 3}, {165, 4}, {166, 4}, {30, 4}, {31, 8}};
    for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
        tn_ctx          *ctx = ctx_on(NULL, TN_F64, TN_SIMD_AUTO, 1);
        tn_lanczos_desc  desc = ZERO;
        tn_lanczos_result r;
        double           d[200], value[2];
        int64_t          n = size[k][0];
        d[0] = (double)n;
        for (int64_t i = 0; i < n; i++) d[1 + i] = pow(0.6, (double)i);
        desc.top = 2;
        desc.block = size[k][1];
        if (n < 80) desc.basis = n - 1;
        CHECK_STATUS(tn_lanczos(ctx, n, times_diagonal, d, &desc, &r), TN_OK);
        CHECK_CTX(ctx);
        if (r.values && CHECK_STATUS(tn_read(r.values, TN_F64, value, 2), TN_OK))
            for (int64_t i = 0; i < 2; i++) CHECK_NEAR(value[i], d[1 + i], 1e-12);
        tn_lanczos_destroy(&r);
        desc.which = (tn_lanczos_which)3;
        FAILS(ctx, tn_lanczos(ctx, n, times_diagonal, d, &desc, &r), TN_ERR_ARG, "lanczos: which is 3, expected 0 to ");
        tn_ctx_destroy(ctx);
    }
}

/* Many threads have more scratch memory, which once decided which kernel ran. */
TEST(wide_norms_have_the_same_bits)
{
    static const int64_t dim[] = {60000, 100000};
    static const int     threads[] = {1, 12, 16, 40};
    int j;
    for (int k = 0; k < 2; k++) {
        float *first = NULL;
        for (int t = 0; t < 4; t++) {
            tn_ctx    *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, threads[t]);
            tn_params *ps = tn_params_create(ctx);
            tn_param  *gain = vector_param(ps, "gain", dim[k], TN_INIT_ONE);
            float     *v = (float *)malloc(sizeof *v * (size_t)dim[k]);
            int64_t shape[2] = {5, dim[k]};
            tn_tensor *x = tn_normal(ctx, 2, shape, 0, 1);
            tn_record(ctx);
            tn_tensor *y = k == 0 ? tn_layernorm(ctx, x, gain->value, NULL, 1e-5) : tn_rmsnorm(ctx, x, gain->value, 1e-5);
            CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, x))), TN_OK);
            CHECK_STATUS(tn_read(gain->value->grad, TN_F32, v, dim[k]), TN_OK);
            for (int i = j = 0; first && i < (int)dim[k]; i++) j += v[i] != first[i];
            CHECK_INT(j, 0);
            if (first) free(v);
            else first = v;
            tn_ctx_destroy(ctx);
        }
        free(first);
    }
}

/* Products of few rows kept one sum over all of a long depth: a thousand times the error of four rows. */
TEST(long_sums_of_few_rows)
{
    enum { K = 400000 };
    static const int64_t rows[] = {1, 2, 3, 4, 9};
    for (int level = TN_SIMD_PLAIN; level <= TN_SIMD_NEON; level++)
        for (int turned = 0; turned < 2; turned++)
            for (int k = 0; k < 5; k++) {
                tn_ctx    *ctx = ctx_on(NULL, TN_F32, (tn_simd)level, 1), *exact = ctx_on(NULL, TN_F64, TN_SIMD_AUTO, 1);
                int64_t    n = rows[k] * 20;
                double     want[180], got[180], worst = 0, largest = 0;
                float     *v = (float *)malloc(sizeof *v * 20 * K);
                int64_t    a_shape[2] = {rows[k], K};
                int64_t    b_shape[2] = {turned ? 20 : K, turned ? K : 20};
                tn_tensor *a = tn_uniform(ctx, 2, a_shape, 0, 1);
                tn_tensor *b = tn_uniform(ctx, 2, b_shape, 0, 1);
                tn_tensor *a64 = tn_tensor_nd(exact, TN_REAL, 2, a_shape);
                tn_tensor *b64 = tn_tensor_nd(exact, TN_REAL, 2, b_shape);
                tn_read(a, TN_F32, v, rows[k] * K);
                tn_write(a64, TN_F32, v, rows[k] * K);
                tn_read(b, TN_F32, v, 20 * K);
                tn_write(b64, TN_F32, v, 20 * K);
                if (turned) { b = tn_transpose(b, 0, 1); b64 = tn_transpose(b64, 0, 1); }
                CHECK_STATUS(tn_read(tn_matmul(ctx, a, b), TN_F64, got, n), TN_OK);
                CHECK_STATUS(tn_read(tn_matmul(exact, a64, b64), TN_F64, want, n), TN_OK);
                for (int64_t i = 0; i < n; i++) {
                    test_raise(&worst, fabs(got[i] - want[i]));
                    if (fabs(want[i]) > largest) largest = fabs(want[i]);
                }
                CHECK_NEAR(worst / largest, 0, 2e-6);
                free(v);
                tn_ctx_destroy(ctx);
                tn_ctx_destroy(exact);
            }
}

/* A loss that is itself a parameter: two passes add up. */
TEST(parameter_as_loss)
{
    tn_ctx    *ctx = ctx_on(NULL, TN_F64, TN_SIMD_AUTO, 1);
    tn_params *ps = tn_params_create(ctx);
    tn_param  *p = vector_param(ps, "p", 1, TN_INIT_ONE);
    for (int pass = 0; pass < 2; pass++) {
        tn_record(ctx);
        CHECK(tn_scale(ctx, p->value, 2) != NULL);              /* something must be on the tape */
        CHECK_STATUS(tn_backward(ctx, p->value), TN_OK);
    }
    CHECK(tn_item(p->value->grad) == 2);
    tn_ctx_destroy(ctx);
}

TEST(senseless_descs)
{
    tn_ctx        *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 1);
    tn_params     *ps = tn_params_create(ctx);
    tn_mlp_desc product = ZERO;
    tn_mlp     p;
    tn_quadratic_desc quadratic = ZERO;
    tn_quadratic   q;
    tn_modifier_desc modifier = ZERO;
    tn_modifier    m;
    tn_norm_desc   norm = ZERO;
    tn_norm        r;
    product.in = INT64_MAX; product.hidden = product.out = 2; product.augmented = true;
    FAILS(ctx, tn_mlp_init(ps, "p", &product, &p), TN_ERR_SHAPE, "mlp p: in is 9223372036854775807, expected 1 to 2^31 - 2");
    quadratic.in = (int64_t)1 << 32; quadratic.out = 1;
    FAILS(ctx, tn_quadratic_init(ps, "q", &quadratic, &q), TN_ERR_SHAPE, "quadratic q: in is 4294967296, expected 1 to 2^31 - 2");
    modifier.in = modifier.hidden = modifier.out = 2; modifier.step = 1e-40;
    FAILS(ctx, tn_modifier_init(ps, "m", &modifier, &m), TN_ERR_ARG, "modifier m: step is 1e-40, expected 0, or 1e-30 to 1e30");
    norm.dim = 3; norm.eps = -10;
    FAILS(ctx, tn_norm_init(ps, "n", &norm, &r), TN_ERR_ARG, "norm: eps is -10, expected 0, or from 1.17549e-38");
    REFUSED(ctx, tn_layernorm(ctx, tn_full(ctx, 1, &norm.dim, 1), NULL, NULL, (double)NAN), TN_ERR_ARG, "layernorm: eps is nan");
    CHECK_INT(tn_params_count(ps), 0);
    tn_ctx_destroy(ctx);
}

/* A result that a failed call has not written would be freed as whatever the memory held. */
static void failed_results_are_empty(void)
{
    tn_eigenpairs    e;
    tn_spectrum spectrum;
    memset(&e, 0x5a, sizeof e);
    CHECK_STATUS(tn_cp_eigen(NULL, NULL, 1, &e), TN_ERR_ARG);
    CHECK(e.values == NULL && e.vectors == NULL);
    memset(&e, 0x5a, sizeof e);
    CHECK_STATUS(tn_cp_eigen_all(NULL, 1, &e), TN_ERR_ARG);
    CHECK(e.values == NULL && e.vectors == NULL);
    memset(&spectrum, 0x5a, sizeof spectrum);
    CHECK_STATUS(tn_cp_spectrum(NULL, 1, &spectrum), TN_ERR_ARG);
    CHECK(spectrum.values == NULL && spectrum.norm == NULL && spectrum.rank_low == NULL && spectrum.rank_high == NULL);
}

TEST_MAIN(sum_of_a_slice, clips_a_huge_gradient, bad_label_updates_nothing, late_parameter_starts_gently, stale_intermediate_is_no_leaf,
          taped_input_is_not_overwritten, constant_is_not_an_input, bf16_is_rounded_once, arena_grows_with_measure,
          lanczos_begins_anew_after_a_short_block, wide_norms_have_the_same_bits, long_sums_of_few_rows, parameter_as_loss, senseless_descs,
          failed_results_are_empty)
