/* test_activations.c: values and slopes of the activations in double, against closed forms in long double.

   The backends share one function for each of these in double, so comparing them with each other would show nothing. Here
   each number has a formula of its own, without cancellation: slopes of the sigmoid from e^-|x|, of tanh from cosh, of GELU
   from erfc and e^(-x^2/2). test_cpu.c compares the kernels in float with those in double. */

#include "test.h"

#define SMALLEST 4.9406564584124654e-324

enum { ACTS = TN_ACT_LOG + 1, POINTS = 12000 };

static const char *const act_name[ACTS] = {
    "none", "relu", "relu2", "gelu", "swish", "sigmoid", "abs", "round", "exp", "tanh", "sqrt", "log"
};

/* The value of a formula, and the size of the terms that it adds up, which errors are relative to */
typedef struct exact { long double value, size; } exact;

static exact plain(long double value)
{
    exact e;
    e.value = value;
    e.size = fabsl(value);
    return e;
}

static exact sized(long double value, long double size)
{
    exact e = plain(value);
    if (size > e.size) e.size = size;
    return e;
}

static long double sigmoid(long double x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

static long double sigmoid_slope(long double x)
{
    long double e = expl(-fabsl(x));
    return e / ((1 + e) * (1 + e));
}

static long double normal_cdf(long double x) { return erfcl(-x / sqrtl(2)) / 2; }
static long double normal_density(long double x) { return expl(-x * x / 2) / sqrtl(2 * acosl(-1)); }

static long double nearest_even(long double x)
{
    long double down = floorl(x), part = x - down;
    return part > 0.5L || (part == 0.5L && fmodl(down, 2) != 0) ? down + 1 : down;
}

static exact value_of(int kind, long double x)
{
    switch (kind) {
    case TN_ACT_RELU:    return plain(x > 0 ? x : 0);
    case TN_ACT_RELU2:   return plain(x > 0 ? x * x : 0);
    case TN_ACT_GELU:    return plain(x * normal_cdf(x));
    case TN_ACT_SWISH:   return plain(x * sigmoid(x));
    case TN_ACT_SIGMOID: return plain(sigmoid(x));
    case TN_ACT_ABS:     return plain(x < 0 ? -x : x);
    case TN_ACT_ROUND:   return plain(nearest_even(x));
    case TN_ACT_EXP:     return plain(expl(x));
    case TN_ACT_TANH:    return plain(tanhl(x));
    case TN_ACT_SQRT:    return plain(sqrtl(x));
    case TN_ACT_LOG:     return plain(logl(x));
    default:             return plain(x);
    }
}

static exact slope_of(int kind, long double x)
{
    switch (kind) {
    case TN_ACT_RELU:    return plain(x > 0 ? 1 : 0);
    case TN_ACT_RELU2:   return plain(x > 0 ? 2 * x : 0);
    case TN_ACT_GELU:    return sized(normal_cdf(x) + x * normal_density(x), normal_cdf(x) + fabsl(x) * normal_density(x));
    case TN_ACT_SWISH:   return sized(sigmoid(x) + x * sigmoid_slope(x), (1 + fabsl(x)) * sigmoid(x));
    case TN_ACT_SIGMOID: return sized(sigmoid_slope(x), sigmoid(x));
    case TN_ACT_ABS:     return plain(x > 0 ? 1 : x < 0 ? -1 : 0);
    case TN_ACT_EXP:     return plain(expl(x));
    case TN_ACT_TANH:    return sized(1 / coshl(x) / coshl(x), 1);
    case TN_ACT_SQRT:    return plain(0.5L / sqrtl(x));
    case TN_ACT_LOG:     return plain(1 / x);
    default:             return plain(1);
    }
}

/* In units of 2^-53 of the size. The arguments of GELU's erfc and exp are rounded themselves, which costs x^2 units where x
   is negative; where x is positive, Phi(x) is at least 1/2 and hardly changes. Subnormal terms have an absolute error
   instead. Below -709.78, where e^-x overflows, swish and sigmoid may be zero instead of 1e-308 and less. */
static double error_of(double got, exact want, int kind, double x)
{
    const long double factor = kind == TN_ACT_GELU && x < 0 ? 1 + (long double)x * x : 1;
    const long double unit = want.size * 0x1p-53L * factor + SMALLEST * (1 + fabsl(x));
    if (x < -709.78 && got == 0 && (kind == TN_ACT_SWISH || kind == TN_ACT_SIGMOID)) return 0;
    if (want.value != want.value) return got != got ? 0 : HUGE_VAL;
    if (want.value < -1.7976931348623157e308L) return got < -1.7976931348623157e308 ? 0 : HUGE_VAL;
    if (want.value > 1.7976931348623157e308L) return got > 1.7976931348623157e308 ? 0 : HUGE_VAL;
    return (double)(fabsl((long double)got - want.value) / unit);
}

typedef struct bench { tn_ctx *ctx; tn_params *params; tn_tensor *x; double value[POINTS], slope[POINTS]; } bench;

static bool run_at(bench *b, const tn_backend *backend, int kind, const double *x, int64_t n)
{
    tn_desc d = ZERO;
    tn_init zero = ZERO;
    zero.rule = TN_INIT_ZERO;
    d.backend = backend;
    d.dtype = TN_F64;
    if (!CHECK_STATUS(tn_ctx_create(&d, &b->ctx, NULL), TN_OK)) return false;
    b->params = tn_params_create(b->ctx);
    tn_param *p = tn_params_add(b->params, "x", 1, &n, zero);
    bool ok = CHECK(p != NULL) && CHECK_STATUS(tn_write(p->value, TN_F64, x, n), TN_OK);
    if (ok) {
        tn_record(b->ctx);
        tn_tensor *y = tn_activation(b->ctx, p->value, (tn_act)kind);
        ok = CHECK(y != NULL) && CHECK_STATUS(tn_read(y, TN_F64, b->value, n), TN_OK)
             && CHECK_STATUS(tn_backward(b->ctx, tn_sum(b->ctx, y)), TN_OK)
             && CHECK_STATUS(tn_read(p->value->grad, TN_F64, b->slope, n), TN_OK);
    }
    tn_ctx_destroy(b->ctx);
    return ok;
}

/* Evenly from -750 to 750, where e^x underflows and overflows; densely from -40 to 40; and powers of ten down to
   subnormals. */
static void points(double *x)
{
    int n = 0;
    for (int i = 0; i < 3000; i++) x[n++] = -750 + 1500 * (double)i / 2999;
    for (int i = 0; i < 7000; i++) x[n++] = -40 + 80 * ((double)i + 0.25) / 7000;
    for (int i = 0; i < 650; i++) { x[n++] = pow(10, -323.0 + 0.5 * i); x[n] = -x[n - 1]; n++; }
    for (int i = 0; i < 160; i++) x[n++] = -20 + 0.25 * i;                    /* ties, integers and zero */
    for (; n < POINTS; n++)                                               /* where GELU's slope is zero */
        x[n] = (n % 2 ? 1 : -1) * (0.7 + 0.1 * (double)(n - 11460) / 540);
}

static const tn_backend *backend_of(int which) { return which ? tn_reference_backend() : tn_cpu_backend(); }

TEST(values_and_slopes)
{
    static double x[POINTS];
    static bench  b;
    points(x);
    for (int which = 0; which < 2; which++)
        for (int kind = 0; kind < ACTS; kind++) {
            double worst[2] = {0, 0}, at[2] = {0, 0};
            char   what[96];
            if (!run_at(&b, backend_of(which), kind, x, POINTS)) return;
            for (int i = 0; i < POINTS; i++) {
                if (test_raise(&worst[0], error_of(b.value[i], value_of(kind, x[i]), kind, x[i]))) at[0] = x[i];
                if (test_raise(&worst[1], error_of(b.slope[i], slope_of(kind, x[i]), kind, x[i]))) at[1] = x[i];
            }
            snprintf(what, sizeof what, "%s of %s, in 2^-53, at %.6g", "value", act_name[kind], at[0]);
            WORST(what, worst[0], 8);
            snprintf(what, sizeof what, "%s of %s, in 2^-53, at %.6g", "slope", act_name[kind], at[1]);
            WORST(what, worst[1], 8);
        }
}

/* At -infinity, infinity, NaN and both zeros. Not every limit is reached: x Phi(x) at -infinity is -infinity times 0, a
   NaN; so are the slopes of GELU and swish at both ends. */
TEST(infinities_and_zeros)
{
    static const double at[5] = {-HUGE_VAL, HUGE_VAL, (double)NAN, -0.0, 0.0};
#define N ((double)NAN)
#define I HUGE_VAL
    static const double value[ACTS][5] = {
        {-I, I, N, 0, 0}, {0, I, N, 0, 0}, {0, I, N, 0, 0}, {N, I, N, 0, 0}, {N, I, N, 0, 0},
        {0, 1, N, 0.5, 0.5}, {I, I, N, 0, 0}, {-I, I, N, 0, 0}, {0, I, N, 1, 1}, {-1, 1, N, 0, 0},
        {N, I, N, 0, 0}, {N, I, N, -I, -I}
    };
    static const double slope[ACTS][5] = {
        {1, 1, 1, 1, 1}, {0, 1, N, 0, 0}, {0, I, N, 0, 0}, {N, N, N, 0.5, 0.5}, {N, N, N, 0.5, 0.5},
        {0, 0, N, 0.25, 0.25}, {-1, 1, N, 0, 0}, {1, 1, 1, 1, 1}, {0, I, N, 1, 1}, {0, 0, N, 1, 1},
        {N, 0, N, -I, I}, {0, 0, N, -I, I}
    };
#undef N
#undef I
    static bench b;
    for (int which = 0; which < 2; which++)
        for (int kind = 0; kind < ACTS; kind++) {
            if (!run_at(&b, backend_of(which), kind, at, 5)) return;
            for (int i = 0; i < 5; i++) {
                double v = value[kind][i], s = slope[kind][i];
                if (!CHECK(v != v ? b.value[i] != b.value[i] : b.value[i] == v))
                    printf("     the value of %s at %g is %g, not %g\n", act_name[kind], at[i], b.value[i], v);
                if (!CHECK(s != s ? b.slope[i] != b.slope[i] : b.slope[i] == s))
                    printf("     the slope of %s at %g is %g, not %g\n", act_name[kind], at[i], b.slope[i], s);
            }
        }
}

TEST_MAIN(values_and_slopes, infinities_and_zeros)
