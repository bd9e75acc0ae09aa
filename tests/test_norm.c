/* test_norm.c: LayerNorm's algebra, and its digits far from zero. Values and gradients on random shapes are in cases.h. */

#include "kit.h"

static tn_tensor *matrix_of(tn_ctx *ctx, int64_t n, int64_t m, const double *v)
{
    tn_tensor *t = tn_tensor_2d(ctx, TN_REAL, n, m);
    CHECK_STATUS(tn_write(t, TN_F64, v, n * m), TN_OK);
    return t;
}

static void random_numbers(double *v, int64_t n, uint64_t *rng)
{
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(rng);
}

/* The result and the gradient of x, of loss = sum of y (x) weights. */
static void run(tn_ctx *ctx, const double *x, const double *weights, int64_t rows, int64_t n, double eps, double *y, double *dx)
{
    tn_ctx_reset(ctx);
    tn_tensor *tx = matrix_of(ctx, rows, n, x);
    tn_watch(tx);
    tn_record(ctx);
    tn_tensor *ty = tn_layernorm(ctx, tx, NULL, NULL, eps);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, ty, matrix_of(ctx, rows, n, weights)))), TN_OK);
    CHECK_STATUS(tn_read(ty, TN_F64, y, rows * n), TN_OK);
    CHECK_STATUS(tn_read(tx->grad, TN_F64, dx, rows * n), TN_OK);
    CHECK_CTX(ctx);
}

TEST(known_values)
{
    static const double x[8] = {1, 2, 3, 4, -3, 5, 5, -7}, zero[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    double y[8], dx[8];
    tn_ctx *ctx = ctx_on(NULL, TN_F64, TN_SIMD_AUTO, 0);
    run(ctx, x, zero, 2, 4, 0, y, dx);
    for (int i = 0; i < 4; i++) CHECK_NEAR(y[i], (x[i] - 2.5) / sqrt(1.25), 1e-15);
    for (int i = 4; i < 8; i++) CHECK_NEAR(y[i], x[i] / sqrt(27.0), 1e-15);
    for (int i = 0; i < 8; i++) CHECK(dx[i] == 0);
    tn_ctx_destroy(ctx);
}

/* The mean is large, the deviation 1: a row that is shifted by exactly representable numbers gives the same result. The textbook's
   mean x^2 - mean^2 is wrong in the first digit here: 1e12 against 1 in float, 1e16 in double. */
static double shifted(tn_ctx *ctx, double shift, double grain)
{
    enum { ROWS = 3, N = 157 };
    double  x[ROWS * N], far_x[ROWS * N], weights[ROWS * N], y[ROWS * N], dx[ROWS * N], far_y[ROWS * N], far_dx[ROWS * N], worst = 0;
    uint64_t rng = 11;
    random_numbers(weights, ROWS * N, &rng);
    for (int i = 0; i < ROWS * N; i++) {
        x[i] = floor(2 * test_random_real(&rng) / grain) * grain;
        far_x[i] = x[i] + shift * (1 + i / N);
    }
    run(ctx, x, weights, ROWS, N, 1e-5, y, dx);
    run(ctx, far_x, weights, ROWS, N, 1e-5, far_y, far_dx);
    test_raise(&worst, test_max_error(far_y, y, ROWS * N));
    test_raise(&worst, test_max_error(far_dx, dx, ROWS * N));
    return worst;
}

TEST(far_from_zero)
{
    tn_ctx *wide = ctx_on(NULL, TN_F64, TN_SIMD_AUTO, 0);
    double  worst = 0;
    for (int level = TN_SIMD_PLAIN; level <= TN_SIMD_AVX512; level++) {
        tn_ctx *ctx = ctx_on(NULL, TN_F32, (tn_simd)level, 0);
        test_raise(&worst, shifted(ctx, 1 << 20, 0.25));
        test_raise(&worst, shifted(ctx, -1000, 1.0 / 1024));
        tn_ctx_destroy(ctx);
    }
    WORST("layernorm at mean 1e6 and deviation 1 against mean 0, F32", worst, 1e-6);
    WORST("layernorm at mean 1e8 and deviation 1 against mean 0, F64", shifted(wide, 1e8, 1.0 / 1024), 3e-15);
    tn_ctx_destroy(wide);
}

/* Rows of y have mean 0 and variance var/(var + eps); x -> a x + c changes nothing (eps = 0); so the gradient is orthogonal to the ones,
   by c, and to x, by a. */
TEST(invariances)
{
    double   worst = 0;
    uint64_t rng = 3;
    tn_ctx  *ctx = ctx_on(NULL, TN_F64, TN_SIMD_AUTO, 0);
    for (int t = 0; t < 40; t++) {
        int64_t n = test_random_int(&rng, 2, 90);
        double  x[90], moved[90], weights[90], y[90], dx[90], again[90], mean = 0, var = 0, my = 0, vy = 0, ones = 0, along = 0, size = 0;
        double  a = 0.3 + fabs(3 * test_random_real(&rng)), c = 5 * test_random_real(&rng), eps = t % 2 ? 0 : 0.01;
        random_numbers(x, n, &rng);
        random_numbers(weights, n, &rng);
        for (int64_t j = 0; j < n; j++) { moved[j] = a * x[j] + c; mean += x[j] / (double)n; }
        for (int64_t j = 0; j < n; j++) var += (x[j] - mean) * (x[j] - mean) / (double)n;
        run(ctx, moved, weights, 1, n, 0, again, dx);
        run(ctx, x, weights, 1, n, eps, y, dx);
        for (int64_t j = 0; j < n; j++) {
            my += y[j] / (double)n;
            vy += y[j] * y[j] / (double)n;
            ones += dx[j];
            along += dx[j] * x[j];
            size += fabs(dx[j]) * (1 + fabs(x[j]));
        }
        test_raise(&worst, fabs(my));
        test_raise(&worst, fabs(vy - var / (var + eps)));
        if (n > 2) test_raise(&worst, fabs(ones) / fmax(1, size));
        if (eps > 0) continue;
        if (test_leave_out(n == 2, "layernorm of two numbers, +-1 whatever they are: dx is 0, from cancelled ones"))
            continue;
        test_raise(&worst, fabs(along) / fmax(1, size));
        test_raise(&worst, test_max_error(again, y, n));
    }
    WORST("layernorm: mean, variance, shift and scale, F64", worst, 1e-14);
    tn_ctx_destroy(ctx);
}

/* LayerNorm is RMSNorm of (I - 11^T/n) x: with gain and bias, in value and in all gradients. */
static double against_rmsnorm(tn_dtype dtype, int rounds)
{
    uint64_t rng = 29;
    double   worst = 0;
    tn_ctx  *ctx = ctx_on(NULL, dtype, TN_SIMD_AUTO, 0);
    for (int t = 0; t < rounds; t++) {
        int64_t    rows = test_random_int(&rng, 1, 9), n = test_random_int(&rng, t == 0 ? 1 : 2, 70);
        double    *v = doubles(n * n + 2 * rows * n), *got[2], g[70], *centre = v + 2 * rows * n;
        tn_tensor *x[2], *gain[2], *bias[2], *y[2];
        for (int64_t which = 0; which < 2; which++) got[which] = doubles(2 * rows * n + 2 * n);
        random_numbers(v, 2 * rows * n, &rng);
        random_numbers(g, n, &rng);
        for (int64_t i = 0; i < n * n; i++) centre[i] = (i / n == i % n) - 1 / (double)n;
        for (int64_t which = 0; which < 2; which++) {
            double *to = got[which];
            tn_ctx_reset(ctx);
            x[which] = matrix_of(ctx, rows, n, v);
            gain[which] = tn_tensor_1d(ctx, TN_REAL, n);
            bias[which] = tn_tensor_1d(ctx, TN_REAL, n);
            tn_write(gain[which], TN_F64, g, n);
            tn_write(bias[which], TN_F64, v, n);
            tn_watch(x[which]);
            tn_watch(gain[which]);
            tn_watch(bias[which]);
            tn_record(ctx);
            if (which == 0) y[0] = tn_layernorm(ctx, x[0], gain[0], bias[0], 1e-2);
            else y[1] = tn_add(ctx, tn_rmsnorm(ctx, tn_affine(ctx, x[1], matrix_of(ctx, n, n, centre), NULL), gain[1], 1e-2), bias[1]);
            CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y[which], matrix_of(ctx, rows, n, v + rows * n)))), TN_OK);
            tn_read(y[which], TN_F64, to, rows * n);
            tn_read(x[which]->grad, TN_F64, to + rows * n, rows * n);
            tn_read(gain[which]->grad, TN_F64, to + 2 * rows * n, n);
            tn_read(bias[which]->grad, TN_F64, to + 2 * rows * n + n, n);
        }
        for (int64_t k = 0; k < 2; k++)
            test_raise(&worst, test_max_error(got[0] + k * rows * n, got[1] + k * rows * n, rows * n + (k == 0 ? 0 : 2 * n)));
        CHECK_CTX(ctx);
    }
    tn_ctx_destroy(ctx);
    return worst;
}

TEST(is_rmsnorm_of_the_centred)
{
    WORST("layernorm against rmsnorm of the centred, values and gradients, F64", against_rmsnorm(TN_F64, 60), 5e-15);
    WORST("layernorm against rmsnorm of the centred, values and gradients, F32", against_rmsnorm(TN_F32, 60), 3e-6);
}

/* Rows far from 1, eps = 0: the gradients of x and of the gain have numbers of ordinary size after the scale is taken out, and must come
   out as a plain double loop has them, wherever a float can hold them: to 3e-6 of the largest, or to two units in the last place of
   subnormal numbers. sx, sdy: the sizes of x and dy. */
static double far_from_one(tn_ctx *ctx, bool centred, double sx, double sdy)
{
    enum { ROWS = 3, N = 37 };
    double   x[ROWS * N], dy[ROWS * N], g[N], dx[ROWS * N], dg[N], want[ROWS * N], want_g[N] = {0}, worst = 0, largest = 0;
    uint64_t rng = 17;
    int      j;
    random_numbers(x, ROWS * N, &rng);
    random_numbers(dy, ROWS * N, &rng);
    random_numbers(g, N, &rng);
    for (j = 0; j < ROWS * N; j++) { x[j] = (double)(float)(sx * x[j]); dy[j] = (double)(float)(sdy * dy[j]); g[j % N] = (double)(float)g[j % N]; }
    for (int r = 0; r < ROWS; r++) {
        double z[N], mean = 0, squares = 0, sum = 0, dot = 0;
        for (j = 0; centred && j < N; j++) mean += x[r * N + j] / N;
        for (j = 0; j < N; j++) { z[j] = x[r * N + j] - mean; squares += z[j] * z[j] / N; }
        double scale = 1 / sqrt(squares);
        for (j = 0; j < N; j++) {
            const double d = dy[r * N + j];
            z[j] *= scale;
            sum += centred ? d * g[j] / N : 0;
            dot += d * g[j] * z[j] / N;
            want_g[j] += d * z[j];
        }
        for (j = 0; j < N; j++) want[r * N + j] = scale * (dy[r * N + j] * g[j] - sum - z[j] * dot);
    }
    tn_ctx_reset(ctx);
    tn_tensor *tx = matrix_of(ctx, ROWS, N, x);
    tn_tensor *tg = tn_tensor_1d(ctx, TN_REAL, N);
    tn_write(tg, TN_F64, g, N);
    tn_watch(tx);
    tn_watch(tg);
    tn_record(ctx);
    tn_tensor *ty = centred ? tn_layernorm(ctx, tx, tg, NULL, 0) : tn_rmsnorm(ctx, tx, tg, 0);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, ty, matrix_of(ctx, ROWS, N, dy)))), TN_OK);
    tn_read(tx->grad, TN_F64, dx, ROWS * N);
    tn_read(tg->grad, TN_F64, dg, N);
    for (j = 0; j < ROWS * N; j++) if (fabs(want[j]) > largest) largest = fabs(want[j]);
    for (j = 0; j < ROWS * N; j++) test_raise(&worst, fabs(dx[j] - want[j]) / (largest + 1e-39));
    for (largest = 0, j = 0; j < N; j++) if (fabs(want_g[j]) > largest) largest = fabs(want_g[j]);
    for (j = 0; j < N; j++) test_raise(&worst, fabs(dg[j] - want_g[j]) / (largest + 1e-39));
    CHECK_CTX(ctx);
    return worst;
}

TEST(rows_far_from_one)
{
    static const double size[][2] = {
        {1, 1}, {1e-20, 1}, {1e-20, 1e-20}, {1e-20, 1e15}, {1e20, 1}, {1e20, 1e20}, {1e20, 1e-10}, {1e-8, 1e-30}, {1e-3, 1e33}, {1e4, 1e-30},
        {1e-4, 1e33}, {1e-30, 1e5}, {1e30, 1}, {1e5, 1e34}, {1e-5, 1e-37}, {1e-5, 1e-38}
    };
    double worst[2] = {0, 0};
    for (int level = 0; level <= TN_SIMD_AVX512; level++) {         /* 0: the reference */
        tn_desc d = ZERO;
        tn_ctx *ctx;
        d.backend = level == 0 ? tn_reference_backend() : NULL;
        d.simd = (tn_simd)level;
        REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
        for (int centred = 0; centred < 2; centred++)
            for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
                double e = far_from_one(ctx, centred != 0, size[k][0], size[k][1]);
                if (!CHECK(e <= 3e-6)) printf("     %s, level %d, x %g, dy %g: %g\n", centred ? "layernorm" : "rmsnorm", level, size[k][0], size[k][1], e);
                test_raise(&worst[centred], e);
            }
        tn_ctx_destroy(ctx);
    }
    WORST("rmsnorm's gradients of rows of 1e-30 to 1e30, F32, relative to the largest", worst[0], 3e-6);
    WORST("layernorm's gradients of rows of 1e-30 to 1e30, F32, relative to the largest", worst[1], 3e-6);
}

TEST(the_layer)
{
    tn_ctx *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 0);
    tn_params *ps = tn_params_create(ctx);
    tn_norm_desc d = ZERO;
    tn_norm norm;
    const int absurd = 2;                                        /* no enumerator: C++ would not let it be cast */
    d.dim = 6;
    CHECK_STATUS(tn_norm_init(ps, "rms", &d, &norm), TN_OK);
    CHECK(norm.gain && !norm.bias);
    d.kind = TN_NORM_LAYER;
    d.bias = true;
    CHECK_STATUS(tn_norm_init(ps, "ln", &d, &norm), TN_OK);
    REQUIRE(norm.gain && norm.bias);
    CHECK(tn_params_find(ps, "ln.gain")->value == norm.gain && tn_params_find(ps, "ln.bias")->value == norm.bias);
    CHECK(tn_item(tn_sum(ctx, norm.gain)) == 6 && tn_item(tn_sum(ctx, norm.bias)) == 0 && norm.desc.eps == (double)1e-5);
    CHECK(tn_params_find(ps, "ln.gain")->decay_scale == 0 && tn_params_find(ps, "ln.bias")->decay_scale == 0);
    d.bias = false;
    CHECK_STATUS(tn_norm_init(ps, "no bias", &d, &norm), TN_OK);
    CHECK(norm.gain && !norm.bias);
    d.no_gain = true;
    CHECK_STATUS(tn_norm_init(ps, "bare", &d, &norm), TN_OK);
    CHECK(!norm.gain && !norm.bias);
    CHECK_INT(tn_params_count(ps), 4);
    REFUSED(ctx, tn_norm_forward(ctx, NULL, NULL), TN_ERR_ARG, "norm: the layer is NULL");
    memcpy(&d.kind, &absurd, sizeof d.kind);
    FAILS(ctx, tn_norm_init(ps, "n", &d, &norm), TN_ERR_ARG, "norm n: kind is 2, not a valid tn_norm_kind");
    tn_ctx_destroy(ctx);
}

/* A flag that asks for what the kind does not have is an error, not silence. */
TEST(only_layer_norm_has_a_bias)
{
    tn_ctx      *ctx = ctx_on(NULL, TN_F32, TN_SIMD_AUTO, 0);
    tn_params   *ps = tn_params_create(ctx);
    tn_norm_desc d = ZERO;
    tn_norm      norm;
    d.dim = 6;
    d.bias = true;
    FAILS(ctx, tn_norm_init(ps, "n", &d, &norm), TN_ERR_ARG, "norm n: bias is true, expected false: only TN_NORM_LAYER has one");
    CHECK_INT(tn_params_count(ps), 0);
    tn_ctx_destroy(ctx);
}

/* ---- the sum of a residual stream with its norm --------------------------------------------------------------------- */

/* y, the sum, and the gradients of x, branch and gain; by one op, or by an addition and a norm. upstream 1: through y alone, 2:
   through the sum alone, 3: through both. */
static int64_t residual(const tn_backend *backend, tn_dtype dtype, tn_dtype activations, tn_simd simd, int64_t rows, int64_t n,
                        bool fused, int upstream, double *to, uint64_t calls[3])
{
    static const tn_kernel kernel[3] = {TN_KERNEL_RESIDUAL_RMSNORM, TN_KERNEL_RMSNORM, TN_KERNEL_ADD};
    tn_tensor *x[3], *y, *sum = NULL, *loss = NULL;
    double    *v = doubles(5 * rows * n);
    int64_t    used = 0, i;
    uint64_t   rng = 77;
    tn_desc    d = ZERO;
    tn_ctx    *ctx;
    d.backend = backend;
    d.dtype = dtype;
    d.activations = activations;
    d.simd = simd;
    if (!CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK)) return 0;
    random_numbers(v, 5 * rows * n, &rng);
    for (i = 0; i < 3; i++) {
        x[i] = i < 2 ? matrix_of(ctx, rows, n, v + i * rows * n) : tn_tensor_1d(ctx, TN_REAL, n);
        if (i == 2) CHECK_STATUS(tn_write(x[i], TN_F64, v + 2 * rows * n, n), TN_OK);
        tn_watch(x[i]);
    }
    tn_record(ctx);
    for (i = 0; i < 3; i++) calls[i] = tn_ctx_kernel_calls(ctx, kernel[i]);
    if (fused) y = tn_residual_rmsnorm(ctx, tn_cast(ctx, x[0], activations), tn_cast(ctx, x[1], activations), x[2], 1e-3, &sum);
    else {
        sum = tn_add(ctx, tn_cast(ctx, x[0], activations), tn_cast(ctx, x[1], activations));
        y = tn_rmsnorm(ctx, sum, x[2], 1e-3);
    }
    for (i = 0; i < 3; i++) calls[i] = tn_ctx_kernel_calls(ctx, kernel[i]) - calls[i];
    if (upstream & 1) loss = tn_sum(ctx, tn_mul(ctx, y, matrix_of(ctx, rows, n, v + 3 * rows * n)));
    if (upstream & 2) {
        tn_tensor *more = tn_sum(ctx, tn_mul(ctx, sum, matrix_of(ctx, rows, n, v + 4 * rows * n)));
        loss = loss ? tn_add(ctx, loss, more) : more;
    }
    CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
    CHECK_STATUS(tn_read(y, TN_F64, to, rows * n), TN_OK);
    CHECK_STATUS(tn_read(sum, TN_F64, to + rows * n, rows * n), TN_OK);
    for (i = 0, used = 2 * rows * n; i < 3; i++) {
        const int64_t count = i < 2 ? rows * n : n;
        if (i == 2 && upstream == 2) continue;
        CHECK_STATUS(tn_read(x[i]->grad, TN_F64, to + used, count), TN_OK);
        used += count;
    }
    CLOSE_CTX(ctx);
    return used;
}

/* The bits are those of tn_add and tn_rmsnorm, on each backend and SIMD level, with each dtype; without the kernel, too. */
TEST(residual_is_a_sum_and_a_norm)
{
    static const struct { tn_dtype dtype, activations; } of[] = {{TN_F32, TN_F32}, {TN_F64, TN_F64}, {TN_F32, TN_BF16}};
    static const int64_t shape[][2] = {{1, 1}, {3, 5}, {2, 16}, {7, 33}, {300, 70}, {40, 1031}};
    static const tn_simd level[] = {TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_AVX512, TN_SIMD_NEON};
    tn_backend sparse = *tn_cpu_backend();
    sparse.fn[TN_KERNEL_RESIDUAL_RMSNORM] = NULL;
    for (size_t t = 0; t < sizeof of / sizeof *of; t++)
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
            for (size_t b = 0; b < 6; b++) {
                const tn_backend *backend = b == 0 ? tn_reference_backend() : b == 1 ? &sparse : tn_cpu_backend();
                const tn_simd     simd = b < 2 ? TN_SIMD_AUTO : level[b - 2];         /* one that is not here is another one twice */
                const int64_t     most = 5 * shape[s][0] * shape[s][1];
                for (int upstream = 1; upstream < 4; upstream++) {
                    double  *one = doubles(most), *two = doubles(most);
                    uint64_t calls[3], parts[3];
                    int64_t  n = residual(backend, of[t].dtype, of[t].activations, simd, shape[s][0], shape[s][1], true, upstream, one, calls);
                    CHECK_INT(residual(backend, of[t].dtype, of[t].activations, simd, shape[s][0], shape[s][1], false, upstream, two, parts), n);
                    CHECK(n > 0 && memcmp(one, two, sizeof *one * (size_t)n) == 0);
                    CHECK(calls[0] == 1 && parts[0] == 0 && parts[1] == 1 && parts[2] == 1);
                    /* composed where there is no kernel, and for BF16 where it has none: the backend reference */
                    CHECK_INT(calls[1], b == 1 || (b == 0 && of[t].activations == TN_BF16));
                    CHECK_INT(calls[2], calls[1]);
                }
            }
}

TEST_MAIN(residual_is_a_sum_and_a_norm, known_values, far_from_zero, invariances, is_rmsnorm_of_the_centred, rows_far_from_one, the_layer,
          only_layer_norm_has_a_bias)
