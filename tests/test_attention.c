/* test_attention.c: rope, attention in both forms, the attention layer and its decoding: their algebra, and what they say to bad input.
   Values and gradients on random shapes and strides are in cases.h. */

#include "kit.h"
#include "attention.h"

static double *numbers(int64_t n, uint64_t *rng)
{
    double *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = (double)(float)test_random_real(rng);
    return v;
}

static tn_tensor *tensor_of(tn_ctx *ctx, int64_t a, int64_t b, int64_t c, int64_t d, const double *v)
{
    int64_t shape[4] = {a, b, c, d};
    tn_tensor *t = tn_tensor_nd(ctx, TN_REAL, 4, shape);
    CHECK_STATUS(tn_write(t, TN_F64, v, a * b * c * d), TN_OK);
    return t;
}

/* ---- the op: what it is given, what comes out of it ------------------------------------------------------------------- */

typedef struct operands { double *q, *k, *v, *weights; int64_t nq, nk, nv, no; } operands;
typedef struct outcome { double *o, *dq, *dk, *dv; } outcome;

static plain_attention draw_attention(uint64_t *rng, tn_attend_kind kind, int64_t most_T)
{
    plain_attention a = ZERO;
    a.kind = kind;
    a.causal = test_random_int(rng, 0, 2) > 0;
    a.B = test_random_int(rng, 1, 2);
    a.H = test_random_int(rng, 1, 2);
    a.Tq = a.Tk = test_random_int(rng, 1, most_T);
    if (test_random_int(rng, 0, 3) == 0) a.Tk = test_random_int(rng, 1, most_T);
    a.d = test_random_int(rng, 1, 9);
    a.dv = test_random_int(rng, 1, 12);
    a.row = (tn_row_scale)test_random_int(rng, TN_ROW_SCALE_NONE,
                                          kind == TN_ATTEND_SQUARED ? TN_ROW_SCALE_SUM : TN_ROW_SCALE_MEAN);
    a.length = test_random_int(rng, 1, 2 * most_T);
    a.scale = 1.25;
    a.eps = 0.5;
    return a;
}

static operands draw_operands(uint64_t *rng, const plain_attention *a)
{
    operands x;
    x.nq = a->B * a->Tq * plain_sets(a) * a->H * a->d;
    x.nk = a->B * a->Tk * plain_sets(a) * a->H * a->d;
    x.nv = a->B * a->Tk * a->H * a->dv;
    x.no = a->B * a->Tq * a->H * a->dv;
    x.q = numbers(x.nq, rng);
    x.k = numbers(x.nk, rng);
    x.v = numbers(x.nv, rng);
    x.weights = numbers(x.no, rng);
    return x;
}

static tn_tensor *attend(tn_ctx *ctx, const plain_attention *a, tn_attend_form form, const operands *x, tn_tensor *in[3])
{
    const tn_attend_desc d = plain_attend_desc(a, form);
    const int64_t n = plain_sets(a) * a->H;
    in[0] = tensor_of(ctx, a->B, a->Tq, n, a->d, x->q);
    in[1] = tensor_of(ctx, a->B, a->Tk, n, a->d, x->k);
    in[2] = tensor_of(ctx, a->B, a->Tk, a->H, a->dv, x->v);
    if (ctx && in[0]) { tn_watch(in[0]); tn_watch(in[1]); tn_watch(in[2]); }
    tn_record(ctx);
    return tn_attend(ctx, in[0], in[1], in[2], &d);
}

/* The output alone. */
static double *forward(tn_ctx *ctx, const plain_attention *a, tn_attend_form form, const operands *x)
{
    tn_tensor *in[3];
    tn_ctx_reset(ctx);
    return host(attend(ctx, a, form, x, in));
}

/* The output, and the gradients of loss = sum of o (x) weights. */
static outcome both_ways(tn_ctx *ctx, const plain_attention *a, tn_attend_form form, const operands *x)
{
    outcome    y;
    tn_tensor *in[3];
    tn_ctx_reset(ctx);
    tn_tensor *o = attend(ctx, a, form, x, in);
    y.o = host(o);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, o, tensor_of(ctx, a->B, a->Tq, a->H, a->dv, x->weights)))), TN_OK);
    y.dq = host(in[0]->grad);
    y.dk = host(in[1]->grad);
    y.dv = host(in[2]->grad);
    CHECK_CTX(ctx);
    return y;
}

static double outcome_error(const outcome *a, const outcome *b, const operands *x)
{
    double e = test_frobenius(a->o, b->o, x->no);
    test_raise(&e, test_frobenius(a->dq, b->dq, x->nq));
    test_raise(&e, test_frobenius(a->dk, b->dk, x->nk));
    test_raise(&e, test_frobenius(a->dv, b->dv, x->nv));
    return e;
}

/* The linear form is the quadratic one, output and all gradients; and both are what the definition says. */
TEST(chunked_is_quadratic)
{
    static const int64_t most[] = {1, 5, 17, 40, 150, 333};
    tn_ctx  *wide = ctx_of(TN_F64), *narrow = ctx_of(TN_F32);
    double   worst = 0, single = 0, oracle = 0;
    uint64_t rng = 41;
    for (int kind = TN_ATTEND_SQUARED; kind <= TN_ATTEND_BILINEAR; kind++)
        for (int t = 0; t < 6; t++)
            for (int round = 0; round < (t == 5 ? 3 : 8); round++) {
                plain_attention a = draw_attention(&rng, (tn_attend_kind)kind, most[t]);
                if (t == 5) { a.B = a.H = 1; a.Tq = a.Tk = 257 + 2 * test_random_int(&rng, 0, 40); }
                operands x = draw_operands(&rng, &a);
                double *want = doubles(x.no);
                plain_attend(&a, x.q, x.k, x.v, want);
                outcome quadratic = both_ways(wide, &a, TN_ATTEND_FORM_QUADRATIC, &x);
                outcome linear = both_ways(wide, &a, TN_ATTEND_FORM_LINEAR, &x);
                outcome quadratic32 = both_ways(narrow, &a, TN_ATTEND_FORM_QUADRATIC, &x);
                outcome linear32 = both_ways(narrow, &a, TN_ATTEND_FORM_LINEAR, &x);
                test_raise(&worst, outcome_error(&linear, &quadratic, &x));
                test_raise(&single, outcome_error(&linear32, &quadratic32, &x));
                test_raise(&single, outcome_error(&linear32, &linear, &x));
                test_raise(&oracle, test_frobenius(quadratic.o, want, x.no));
                test_raise(&oracle, test_frobenius(linear.o, want, x.no));
            }
    WORST("linear against quadratic, outputs and gradients, F64, Frobenius", worst, 2e-14);
    WORST("linear against quadratic, outputs and gradients, F32, Frobenius", single, 1e-5);
    WORST("both against their definition, F64, Frobenius", oracle, 1e-14);
    tn_ctx_destroy(wide);
    tn_ctx_destroy(narrow);
}

/* Softmax's rows and windows beyond the cases' extents. */
TEST(long_rows)
{
    tn_ctx  *wide = ctx_of(TN_F64), *narrow = ctx_of(TN_F32);
    double   worst = 0, single = 0;
    uint64_t rng = 42;
    for (int kind = TN_ATTEND_SOFTMAX; kind <= TN_ATTEND_BILINEAR; kind++)
        for (int round = 0; round < 6; round++) {
            plain_attention a = draw_attention(&rng, (tn_attend_kind)kind, 301);
            if (round % 2) a.window = test_random_int(&rng, 1, 300);
            operands x = draw_operands(&rng, &a);
            double *want = doubles(x.no);
            plain_attend(&a, x.q, x.k, x.v, want);
            double *o = forward(wide, &a, TN_ATTEND_FORM_QUADRATIC, &x);
            double *o32 = forward(narrow, &a, TN_ATTEND_FORM_QUADRATIC, &x);
            test_raise(&worst, test_frobenius(o, want, x.no));
            test_raise(&single, test_frobenius(o32, want, x.no));
        }
    WORST("attention against its definition, F64, Frobenius", worst, 1e-14);
    WORST("attention against its definition, F32, Frobenius", single, 3e-6);
    tn_ctx_destroy(wide);
    tn_ctx_destroy(narrow);
}

/* Rows [from,to) of all batches in a [B,T,n] array: changed, or compared. */
static void change_rows(double *v, int64_t B, int64_t T, int64_t n, int64_t from, int64_t to, uint64_t *rng)
{
    for (int64_t b = 0; b < B; b++) for (int64_t i = from * n; i < to * n; i++)
        v[b * T * n + i] = (double)(float)(3 * test_random_real(rng));
}

static bool same_rows(const double *a, const double *b, int64_t B, int64_t T, int64_t n, int64_t from, int64_t to)
{
    bool same = true;
    for (int64_t i = 0; i < B && to > from && n > 0; i++)
        same = same && memcmp(a + (i * T + from) * n, b + (i * T + from) * n, sizeof *a * (size_t)((to - from) * n)) == 0;
    return same;
}

/* What comes after a position, or lies out of its window, changes no bit there; what it sees does. */
static void causality(tn_dtype dtype)
{
    tn_ctx  *ctx = ctx_of(dtype);
    uint64_t rng = 43;
    for (int round = 0; round < 60; round++) {
        plain_attention a = draw_attention(&rng, (tn_attend_kind)(round % 3), round < 40 ? 40 : 170);
        const tn_attend_form form = round % 3 > 0 && round % 2 ? TN_ATTEND_FORM_LINEAR : TN_ATTEND_FORM_QUADRATIC;
        const int64_t nk = plain_sets(&a) * a.H * a.d, nv = a.H * a.dv;
        a.causal = true;
        if (a.Tk < a.Tq) a.Tk = a.Tq;
        if (form == TN_ATTEND_FORM_QUADRATIC && round % 4 == 0) a.window = test_random_int(&rng, 1, 9);
        operands x = draw_operands(&rng, &a);
        int64_t t = test_random_int(&rng, a.Tk - a.Tq, a.Tk - 1);                  /* the last key that is left as it is */
        double *before = forward(ctx, &a, form, &x);
        change_rows(x.k, a.B, a.Tk, nk, t + 1, a.Tk, &rng);
        change_rows(x.v, a.B, a.Tk, nv, t + 1, a.Tk, &rng);
        change_rows(x.q, a.B, a.Tq, nk, t + 1 - (a.Tk - a.Tq), a.Tq, &rng);
        double *after = forward(ctx, &a, form, &x);
        if (!CHECK(same_rows(before, after, a.B, a.Tq, nv, 0, t + 1 - (a.Tk - a.Tq)))) printf("     round %d, F%d\n", round, dtype == TN_F32 ? 32 : 64);
        if (t + 1 < a.Tk) CHECK(!same_rows(before, after, a.B, a.Tq, nv, t + 1 - (a.Tk - a.Tq), a.Tq));
        int64_t first = a.window > 0 ? t - a.window + 1 : 0;                      /* what query t no longer sees */
        change_rows(x.k, a.B, a.Tk, nk, 0, first, &rng);
        change_rows(x.v, a.B, a.Tk, nv, 0, first, &rng);
        before = forward(ctx, &a, form, &x);
        CHECK(same_rows(before, after, a.B, a.Tq, nv, t - (a.Tk - a.Tq), a.Tq));
    }
    CLOSE_CTX(ctx);
}

TEST(the_future_is_unseen)
{
    causality(TN_F64);
    causality(TN_F32);
}

/* Bilinear attention without a scale that depends on data is linear in each of q1, k1, q2, k2 and v; squared is of degree 2 in q and k. */
TEST(multilinear)
{
    tn_ctx  *ctx = ctx_of(TN_F64);
    double   worst = 0;
    uint64_t rng = 44;
    for (int round = 0; round < 24; round++) {
        plain_attention a = draw_attention(&rng, round % 2 ? TN_ATTEND_BILINEAR : TN_ATTEND_SQUARED, 40);
        const tn_attend_form form = round % 4 < 2 ? TN_ATTEND_FORM_LINEAR : TN_ATTEND_FORM_QUADRATIC;
        if (a.row == TN_ROW_SCALE_SUM) a.row = TN_ROW_SCALE_NONE;
        if (a.kind == TN_ATTEND_SQUARED) {
            operands x = draw_operands(&rng, &a);
            double  *o = forward(ctx, &a, form, &x);
            for (int64_t i = 0; i < x.nq; i++) x.q[i] *= -3;
            for (int64_t i = 0; i < x.nk; i++) x.k[i] *= 0.5;
            for (int64_t i = 0; i < x.nv; i++) x.v[i] *= 7;
            for (int64_t i = 0; i < x.no; i++) o[i] *= 9 * 0.25 * 7;
            double *scaled = forward(ctx, &a, form, &x);
            test_raise(&worst, test_frobenius(scaled, o, x.no));
            continue;
        }
        for (int part = 0; part < 5; part++) {                  /* q1, q2, k1, k2, v: f(x) + f(y) = f(x + y), all else as it is */
            operands x = draw_operands(&rng, &a);
            double  *at = part < 2 ? x.q : part < 4 ? x.k : x.v;
            int64_t  n = part < 2 ? x.nq : part < 4 ? x.nk : x.nv, half = a.H * a.d;
            double  *of_x = forward(ctx, &a, form, &x);
            double  *other = numbers(n, &rng);
            for (int64_t i = 0; i < n; i++) {
                bool in = part == 4 || i / half % 2 == part % 2;
                double was = at[i];
                if (in) at[i] = other[i];
                other[i] = in ? was + at[i] : was;
            }
            double *of_y = forward(ctx, &a, form, &x);
            memcpy(at, other, sizeof *at * (size_t)n);
            double *of_sum = forward(ctx, &a, form, &x);
            for (int64_t i = 0; i < x.no; i++) of_x[i] += of_y[i];
            test_raise(&worst, test_frobenius(of_sum, of_x, x.no));
            CHECK(test_frobenius(of_sum, of_y, x.no) > 1e-3);              /* the part was not nothing */
        }
    }
    WORST("additivity and degrees, F64, Frobenius", worst, 1e-14);
    CLOSE_CTX(ctx);
}

/* No form looks at more than rows: memory grows with T, not with T^2. */
TEST(no_square_in_memory)
{
    static const tn_attend_form form[] = {TN_ATTEND_FORM_QUADRATIC, TN_ATTEND_FORM_QUADRATIC, TN_ATTEND_FORM_LINEAR};
    uint64_t rng = 45;
    for (int kind = TN_ATTEND_SOFTMAX; kind <= TN_ATTEND_BILINEAR; kind++) {
        tn_ctx  *ctx = ctx_of(TN_F32);
        plain_attention a = draw_attention(&rng, (tn_attend_kind)kind, 2);
        a.B = a.H = 1; a.d = 2; a.dv = 2; a.causal = true;
        a.Tq = a.Tk = test_small() ? 2400 : 3000;
        operands x = draw_operands(&rng, &a);
        both_ways(ctx, &a, form[kind], &x);
        CHECK(tn_ctx_memory(ctx).peak < (size_t)(a.Tq * a.Tk) * sizeof(float) / 3);
        tn_ctx_destroy(ctx);
    }
}

/* A fixed rule: pairs where there are few of them, or a window; the state where it is small beside them. */
TEST(the_form_of_auto)
{
    tn_ctx  *ctx = ctx_of(TN_F32);
    uint64_t rng = 51;
    for (int round = 0; round < 4; round++) {
        plain_attention a = draw_attention(&rng, round % 2 ? TN_ATTEND_BILINEAR : TN_ATTEND_SQUARED, 1);
        uint64_t before = tn_ctx_kernel_calls(ctx, TN_KERNEL_ATTENTION_LINEAR);
        a.B = a.H = a.dv = 1;
        a.causal = true;
        a.Tq = a.Tk = round < 2 ? 1500 : 4;
        a.d = round < 2 ? 1 : 16;
        operands x = draw_operands(&rng, &a);
        forward(ctx, &a, TN_ATTEND_FORM_AUTO, &x);
        CHECK_INT(tn_ctx_kernel_calls(ctx, TN_KERNEL_ATTENTION_LINEAR) - before, round < 2);
        a.window = 1;
        forward(ctx, &a, TN_ATTEND_FORM_AUTO, &x);
        CHECK_INT(tn_ctx_kernel_calls(ctx, TN_KERNEL_ATTENTION_LINEAR) - before, round < 2);
    }
    for (int round = 0; round < 2; round++) {                                  /* who sees the future has twice the pairs */
        plain_attention a = draw_attention(&rng, TN_ATTEND_BILINEAR, 1);
        uint64_t before = tn_ctx_kernel_calls(ctx, TN_KERNEL_ATTENTION_LINEAR);
        a.B = a.H = 1;
        a.d = a.dv = 8;
        a.causal = round == 0;
        a.Tq = a.Tk = 400;
        operands x = draw_operands(&rng, &a);
        forward(ctx, &a, TN_ATTEND_FORM_AUTO, &x);
        CHECK_INT(tn_ctx_kernel_calls(ctx, TN_KERNEL_ATTENTION_LINEAR) - before, round);
    }
    CLOSE_CTX(ctx);
}

/* ---- numbers at the edge ------------------------------------------------------------------------------------------- */

static tn_tensor *attend_numbers(tn_ctx *ctx, tn_attend_kind kind, tn_attend_form form, bool causal, int64_t T, const double *q, const double *k, const double *v)
{
    tn_attend_desc d = ZERO;
    d.kind = kind;
    d.form = form;
    d.bidirectional = !causal;
    d.scale = 1;
    return tn_attend(ctx, tensor_of(ctx, 1, T, 1, 1, q), tensor_of(ctx, 1, T, 1, 1, k), tensor_of(ctx, 1, T, 1, 1, v), &d);
}

static void edges(tn_dtype dtype)
{
    static const double one[] = {1, 1, 1}, v[] = {2, 3, 5}, large[] = {1e9, -1e9, 0}, level[] = {1e9, 1e9, 1e9}, gone[] = {-HUGE_VAL, 0, 0},
                        none[] = {-HUGE_VAL, -HUGE_VAL, -HUGE_VAL}, above[] = {0, HUGE_VAL, 0};
    const double nan_q[] = {1, (double)NAN, 1};
    tn_ctx *ctx = ctx_of(dtype);
    double *o = host(attend_numbers(ctx, TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_AUTO, false, 3, one, large, v));
    CHECK(o[0] == 2 && o[1] == 2 && o[2] == 2);                            /* one score far above the others */
    o = host(attend_numbers(ctx, TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_AUTO, true, 3, large, large, v));
    CHECK(o[0] == 2 && o[1] == 3);                                         /* scores -1e18 and 1e18; the third row: all 0 */
    CHECK_NEAR(o[2], 10.0 / 3, 1e-6);
    o = host(attend_numbers(ctx, TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_AUTO, false, 3, one, level, v));
    CHECK_NEAR(o[0], 10.0 / 3, 1e-6);
    o = host(attend_numbers(ctx, TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_AUTO, false, 3, one, gone, v));
    CHECK_NEAR(o[0], 4, 1e-6);                                             /* -inf weighs nothing */
    o = host(attend_numbers(ctx, TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_AUTO, true, 3, one, gone, v));
    CHECK(o[0] == 0);                                                      /* and a row of nothing else is empty */
    CHECK_NEAR(o[1], 3, 1e-6);
    o = host(attend_numbers(ctx, TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_AUTO, false, 3, one, none, v));
    CHECK(o[0] == 0 && o[1] == 0 && o[2] == 0);
    o = host(attend_numbers(ctx, TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_AUTO, true, 3, one, above, v));
    CHECK(o[0] == 2 && o[1] != o[1] && o[2] != o[2]);
    for (int kind = TN_ATTEND_SOFTMAX; kind <= TN_ATTEND_SQUARED; kind++)      /* NaN comes out where it goes in */
        for (int form = TN_ATTEND_FORM_QUADRATIC; form <= (kind ? TN_ATTEND_FORM_LINEAR : TN_ATTEND_FORM_QUADRATIC); form++) {
            o = host(attend_numbers(ctx, (tn_attend_kind)kind, (tn_attend_form)form, true, 3, nan_q, one, v));
            CHECK(o[0] == o[0] && o[1] != o[1] && o[2] == o[2]);
            o = host(attend_numbers(ctx, (tn_attend_kind)kind, (tn_attend_form)form, true, 3, one, nan_q, v));
            CHECK(o[1] != o[1] && o[2] != o[2]);
            o = host(attend_numbers(ctx, (tn_attend_kind)kind, (tn_attend_form)form, true, 3, one, one, nan_q));
            CHECK(o[1] != o[1] && o[2] != o[2]);
        }
    {                                                                      /* such a row has no gradient, but for 0 times infinity in dk */
        tn_tensor *q = tensor_of(ctx, 1, 3, 1, 1, gone), *tv = tensor_of(ctx, 1, 3, 1, 1, v);
        tn_attend_desc both_ways = ZERO;
        both_ways.bidirectional = true;
        tn_watch(q);
        tn_watch(tv);
        tn_record(ctx);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_attend(ctx, q, tensor_of(ctx, 1, 3, 1, 1, one), tv, &both_ways))), TN_OK);
        o = host(q->grad);
        CHECK(o[0] == 0);
        CHECK_NEAR(o[1], 0, 1e-6);
        o = host(tv->grad);
        for (int kind = 0; kind < 3; kind++) CHECK_NEAR(o[kind], 2.0 / 3, 1e-6);
    }
    CLOSE_CTX(ctx);
}

TEST(large_infinite_and_nan)
{
    edges(TN_F64);
    edges(TN_F32);
}

/* Queries before the first key, no queries, no keys, no heads, nothing at all: what sees nothing, or is not seen, may be
   infinite. */
static void see_nothing(tn_ctx *ctx)
{
    uint64_t rng = 46;
    for (int round = 0; round < 48; round++) {
        plain_attention a = draw_attention(&rng, (tn_attend_kind)(round % 3), 6);
        const tn_attend_form form = round % 3 > 0 && round / 3 % 2 ? TN_ATTEND_FORM_LINEAR : TN_ATTEND_FORM_QUADRATIC;
        a.causal = true;
        if (round / 6 % 4 == 0) { a.Tq = 40; a.Tk = test_random_int(&rng, 0, 6); }
        if (round / 6 % 4 == 1) a.Tq = 0;
        if (round / 6 % 4 == 2) a.Tk = 0;
        if (round / 6 % 4 == 3) { if (round % 2) a.H = 0; else a.B = 0; }
        operands x = draw_operands(&rng, &a);
        if (x.nq > 0 && a.Tk < a.Tq) x.q[0] = HUGE_VAL;
        if (x.no > 0 && a.Tk < a.Tq) x.weights[0] = HUGE_VAL;
        if (x.nk > 0 && a.Tq == 0) x.k[0] = HUGE_VAL;
        if (x.nv > 0 && a.Tq == 0) x.v[0] = HUGE_VAL;
        outcome y = both_ways(ctx, &a, form, &x);
        for (int64_t i = 0; i < x.no && i / (a.H * a.dv) % a.Tq < a.Tq - a.Tk; i++) CHECK(y.o[i] == 0);
        for (int64_t i = 0; i < x.nq; i++) CHECK(y.dq[i] == y.dq[i]);
        for (int64_t i = 0; i < x.nk && a.Tq == 0; i++) CHECK(y.dk[i] == 0);
        for (int64_t i = 0; i < x.nv && a.Tq == 0; i++) CHECK(y.dv[i] == 0);
    }
    tn_ctx_destroy(ctx);
}

TEST(nothing_to_see)
{
    see_nothing(ctx_of(TN_F64));
    see_nothing(ctx_on(tn_reference_backend(), TN_F64, TN_SIMD_AUTO, 0));
}

/* The gradient of a tensor [2,9,6,4] whose parts are q, k and v, or copies of these parts. */
static double *gradient_of_whole(tn_ctx *ctx, const double *v, int round, bool copied)
{
    tn_attend_desc d = ZERO;
    tn_tensor     *in[3];
    int        bilinear = round % 2;
    tn_ctx_reset(ctx);
    d.kind = bilinear ? TN_ATTEND_BILINEAR : TN_ATTEND_SOFTMAX;
    d.bidirectional = round % 3 <= 0;
    d.form = round % 4 == 3 ? TN_ATTEND_FORM_LINEAR : TN_ATTEND_FORM_AUTO;
    tn_tensor *x = tensor_of(ctx, 2, 9, 6, 4, v);
    tn_watch(x);
    tn_record(ctx);
    if (round < 8) {                      /* overlapping heads */
        in[0] = tn_slice(x, 2, 0, 4);
        in[1] = tn_slice(x, 2, 2, 6);
        in[2] = tn_slice(x, 2, 1, bilinear ? 3 : 5);
    } else if (round < 16) {              /* overlapping positions */
        in[0] = tn_slice(x, 1, 5, 9);
        in[1] = tn_slice(x, 1, 0, 8);
        in[2] = tn_slice(tn_slice(x, 1, 1, 9), 2, 0, bilinear ? 3 : 6);
    } else if (round >= 24) {             /* the same heads, together as many numbers as x has */
        in[0] = in[1] = in[2] = tn_slice(x, 2, 0, 2);
        if (bilinear) in[2] = tn_slice(x, 2, 0, 1);
    } else {                              /* neighbours */
        in[0] = tn_slice(x, 2, 0, 2);
        in[1] = tn_slice(x, 2, 2, 4);
        in[2] = tn_slice(x, 2, 4, bilinear ? 5 : 6);
    }
    for (int i = 0; i < 3 && copied; i++) in[i] = tn_copy(ctx, in[i]);
    tn_tensor *o = tn_attend(ctx, in[0], in[1], in[2], &d);
    o = tn_sum(ctx, tn_mul(ctx, o, o));
    uint64_t adds = tn_ctx_kernel_calls(ctx, TN_KERNEL_ADD) + 1;                    /* the sum's own */
    CHECK_STATUS(tn_backward(ctx, o), TN_OK);
    adds = tn_ctx_kernel_calls(ctx, TN_KERNEL_ADD) - adds;
    if (!copied) CHECK(round < 16 || round >= 24 ? adds > 0 : adds == 0);                 /* no kernel writes one place twice; neighbours need no more */
    return host(x->grad);
}

/* q, k and v may overlap in one tensor in any way: the gradient is that of copies. */
TEST(overlapping_operands)
{
    tn_ctx  *ctx = ctx_of(TN_F64);
    uint64_t rng = 47;
    double   worst = 0;
    for (int round = 0; round < 28; round++) {
        double *v = numbers(2 * 9 * 6 * 4, &rng), *views = gradient_of_whole(ctx, v, round, false), *copies = gradient_of_whole(ctx, v, round, true);
        test_raise(&worst, test_frobenius(views, copies, 2 * 9 * 6 * 4));
    }
    WORST("gradients of overlapping operands against copies, F64", worst, 1e-15);
    CLOSE_CTX(ctx);
}

enum { APART, QK, JOINT, SPARE, TRANSPOSED, REVERSED, TWICE, PLACES };

/* The gradients of q, k and v together, and how often the backward pass fills a tensor with zeros, beside the loss's own 1.
   The same numbers, whatever tensor they are parts of: three, one of q and k, one of all with or without more heads, three with
   axes in another order, one of all from the last head to the first. TWICE: v also gets a gradient elsewhere, before. */
static double *gradient_of_parts(int place, int kind, bool copied, int64_t *fills)
{
    const int64_t heads = kind == TN_ATTEND_BILINEAR ? 2 : 1, n[3] = {heads, heads, 1}, B = 2, T = 7, d = 4;
    tn_ctx    *ctx = ctx_of(TN_F64);
    tn_tensor *whole[3] = {NULL, NULL, NULL}, *in[3];
    uint64_t   rng = 71;
    double    *v[3], *all = doubles(B * T * (2 * heads + 1) * d);
    int64_t    j, at = 0;
    tn_attend_desc a = ZERO;
    a.kind = (tn_attend_kind)kind;
    for (int64_t i = 0; i < 3; i++) v[i] = numbers(B * T * n[i] * d, &rng);
    for (int64_t i = 0; i < 3; i++) {
        const bool    apart = place == APART || place == TRANSPOSED || place == TWICE || (place == QK && i == 2);
        const int64_t more = place == SPARE ? 2 : 0, joint = place == QK ? 2 * heads : 2 * heads + 1 + more;
        const int64_t H = apart ? n[i] : joint, first = apart ? 0 : i * heads;
        const int64_t shape[4] = {B, place == TRANSPOSED ? H : T, place == TRANSPOSED ? T : H, d};
        if (apart || i == 0) tn_watch(whole[i] = tn_full(ctx, 4, shape, 0));
        for (j = i; !whole[j]; j--) {}
        in[i] = whole[j];
        if (place == TRANSPOSED) in[i] = tn_transpose(in[i], 1, 2);
        if (place == REVERSED) in[i] = tn_slice_step(in[i], 2, joint - 1, -1, -1);
        if (!apart) in[i] = tn_slice(in[i], 2, first, first + n[i]);
        CHECK_STATUS(tn_write(in[i], TN_F64, v[i], B * T * n[i] * d), TN_OK);
    }
    tn_record(ctx);
    for (int64_t i = 0; i < 3 && copied; i++) in[i] = tn_copy(ctx, in[i]);
    tn_tensor *o = tn_attend(ctx, in[0], in[1], in[2], &a);
    tn_tensor *loss = tn_sum(ctx, tn_mul(ctx, o, o));
    if (place == TWICE) loss = tn_add(ctx, loss, tn_sum(ctx, tn_mul(ctx, in[2], in[2])));
    *fills = -(int64_t)tn_ctx_kernel_calls(ctx, TN_KERNEL_FILL) - 1;
    CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
    *fills += (int64_t)tn_ctx_kernel_calls(ctx, TN_KERNEL_FILL);
    for (int64_t i = 0; i < 3; at += B * T * n[i] * d, i++) {
        const int64_t first = i == 0 || (place == QK && i == 2) ? 0 : i * heads;
        for (j = i; !whole[j]; j--) {}
        tn_tensor *g = whole[j]->grad;
        if (place == TRANSPOSED) g = tn_transpose(g, 1, 2);
        if (place == REVERSED) g = tn_slice_step(g, 2, 2 * heads, -1, -1);
        if (place == QK || place == JOINT || place == SPARE || place == REVERSED) g = tn_slice(g, 2, first, first + n[i]);
        CHECK_STATUS(tn_read(g, TN_F64, all + at, B * T * n[i] * d), TN_OK);
    }
    if (place == SPARE) {                                   /* heads that no operand has */
        tn_tensor *g = tn_slice(whole[0]->grad, 2, 2 * heads + 1, 2 * heads + 3);
        double    *rest = host(g);
        for (int64_t i = 0; i < tn_tensor_count(g); i++) CHECK(rest[i] == 0);
    }
    CLOSE_CTX(ctx);
    return all;
}

/* A gradient is not filled with zeros if attention writes all of it, as one tensor or as several views of one. */
TEST(gradients_without_zeros_first)
{
    for (int kind = 0; kind < 3; kind++)
        for (int place = 0; place < PLACES; place++) {
            const int64_t heads = kind == TN_ATTEND_BILINEAR ? 2 : 1, n = 2 * 7 * (2 * heads + 1) * 4;
            int64_t fills, other;
            double *views = gradient_of_parts(place, kind, false, &fills), *copies = gradient_of_parts(place, kind, true, &other);
            CHECK(test_frobenius(views, copies, n) <= 1e-15);
            CHECK_INT(fills, place == SPARE ? 1 : place == TWICE ? 2 : place == REVERSED ? 3 : 0);
        }
}

/* ---- rope -------------------------------------------------------------------------------------------------------------- */

static double *rope_row(tn_ctx *ctx, const double *x, int64_t d, int64_t position, bool norm)
{
    tn_rope_desc desc = ZERO;
    desc.first = position;
    desc.norm = norm;
    tn_ctx_reset(ctx);
    return host(tn_rope(ctx, tensor_of(ctx, 1, 1, 1, d, x), &desc));
}

/* A score depends on the difference of two positions alone, and a length on none; an odd last number stays. */
TEST(rope_is_relative)
{
    tn_ctx  *ctx = ctx_of(TN_F64);
    uint64_t rng = 48;
    double   worst = 0, length = 0, moved = 0;
    for (int round = 0; round < 60; round++) {
        int64_t d = test_random_int(&rng, 1, 19), i = test_random_int(&rng, 0, 500), j = test_random_int(&rng, 0, 500), shift = test_random_int(&rng, -900, 900);
        double *q = numbers(d, &rng), *k = numbers(d, &rng), *qi = rope_row(ctx, q, d, i, false), *kj = rope_row(ctx, k, d, j, false);
        double *qs = rope_row(ctx, q, d, i + shift, false), *ks = rope_row(ctx, k, d, j + shift, false), *normed = rope_row(ctx, q, d, i, true);
        test_raise(&worst, fabs(dot(qi, kj, d) - dot(qs, ks, d)) / (double)d);
        test_raise(&length, fabs(sqrt(dot(qi, qi, d)) - sqrt(dot(q, q, d))));
        test_raise(&length, fabs(dot(normed, normed, d) / (double)d - dot(q, q, d) / (dot(q, q, d) + 1e-6 * (double)d)));
        if (d > 1 && fabs(dot(qi, kj, d) - dot(qs, kj, d)) > moved) moved = fabs(dot(qi, kj, d) - dot(qs, kj, d));
        if (d % 2) CHECK(qi[d - 1] == q[d - 1]);
    }
    WORST("scores of two positions, both moved", worst, 2e-14);
    WORST("lengths", length, 5e-15);
    CHECK(moved > 0.1);
    CLOSE_CTX(ctx);
}

/* ---- the layer ---------------------------------------------------------------------------------------------------------- */

static tn_attention_desc layer_desc(tn_attention_kind kind, int64_t dim, int64_t heads)
{
    tn_attention_desc d = ZERO;
    d.kind = kind;
    d.dim = dim;
    d.heads = heads;
    return d;
}

static tn_tensor *rows_of(tn_ctx *ctx, int64_t B, int64_t T, int64_t n, const double *v)
{
    tn_tensor *t = tn_tensor_3d(ctx, TN_REAL, B, T, n);
    if (t) CHECK_STATUS(tn_write(t, TN_F64, v, B * T * n), TN_OK);
    return t;
}

/* Squared and bilinear layers are tensors: y_o(t) = sum_s c T[o,a,b,c,e,f] x_t[a] x_s[b] x_t[c] x_s[e] x_s[f],
   T = sum_h (Q1_h^T K1_h)[a,b] (Q2_h^T K2_h)[c,e] (O_h V_h)[o,f]: degree 2 in the reader, 3 in what is read, 5 in all. */
static void pattern_as_tensor(tn_ctx *ctx, tn_attention_kind kind, tn_attend_form form, uint64_t *rng, double *worst)
{
    enum { N = 3, T = 7 };
    tn_params *params = tn_params_create(ctx);
    tn_attention_desc d = layer_desc(kind, N, 2);
    tn_attention layer;
    double *x = numbers(T * N, rng), want[T * N];
    int64_t r, sets = kind == TN_ATTENTION_BILINEAR ? 2 : 1, dq;
    double *A[2], OV[2][N][N];
    d.d_qk = dq = 2;
    d.d_v = 4;
    d.no_rope = true;
    d.row_scale = TN_ROW_SCALE_NONE;
    d.form = form;
    CHECK_STATUS(tn_attention_init(params, "a", &d, &layer), TN_OK);
    double *qk = host(layer.qk), *v = host(layer.v), *o = host(layer.o);
    int64_t second = sets - 1;
    for (int64_t i = 0; i < 2; i++) {     /* A[set][h][a][b] = sum_r Q[set][h r][a] K[set][h r][b] / d_qk */
        A[i] = doubles(2 * N * N);
        for (int64_t h = 0; h < 2; h++)
            for (int64_t a = 0; a < N; a++)
                for (int64_t b = 0; b < N; b++)
                    for (r = 0; r < dq; r++)
                        A[i][(h * N + a) * N + b] += qk[((i * second) * 2 * dq + h * dq + r) * N + a] * qk[((sets + i * second) * 2 * dq + h * dq + r) * N + b] / (double)dq;
    }
    for (int64_t h = 0; h < 2; h++)
        for (int64_t a = 0; a < N; a++)
            for (int64_t b = 0; b < N; b++)
                for (OV[h][a][b] = 0, r = 0; r < d.d_v; r++) OV[h][a][b] += o[a * 2 * d.d_v + h * d.d_v + r] * v[(h * d.d_v + r) * N + b];
    memset(want, 0, sizeof want);
    for (int64_t i = 0; i < T; i++)
        for (int64_t s = 0; s <= i; s++)
            for (r = 0; r < N; r++)
                for (int64_t a = 0; a < N; a++) for (int64_t b = 0; b < N; b++) for (int64_t c = 0; c < N; c++)
                    for (int64_t e = 0; e < N; e++)
                    for (int64_t f = 0; f < N; f++) {
                    double t = 0;
                    for (int64_t h = 0; h < 2; h++) t += A[0][(h * N + a) * N + b] * A[1][(h * N + c) * N + e] * OV[h][r][f];
                    want[i * N + r] += t * x[i * N + a] * x[s * N + b] * x[i * N + c] * x[s * N + e] * x[s * N + f];
                }
    double *y = host(tn_attention_forward(ctx, &layer, rows_of(ctx, 1, T, N, x), NULL));
    test_raise(worst, test_frobenius(y, want, T * N));
    for (int64_t i = 0; i < T * N; i++) { x[i] *= -1.5; y[i] *= -7.59375; } /* (-3/2)^5 */
    double *y3 = host(tn_attention_forward(ctx, &layer, rows_of(ctx, 1, T, N, x), NULL));
    test_raise(worst, test_frobenius(y3, y, T * N));
    tn_params_destroy(params);
    tn_ctx_reset(ctx);
}

TEST(layers_are_tensors)
{
    tn_ctx  *ctx = ctx_of(TN_F64);
    uint64_t rng = 49;
    double   worst = 0;
    for (int round = 0; round < 12; round++)
        pattern_as_tensor(ctx, round % 2 ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SQUARED,
                          round % 4 < 2 ? TN_ATTEND_FORM_LINEAR : TN_ATTEND_FORM_QUADRATIC, &rng, &worst);
    WORST("P2 squared and bilinear layers against their tensors of order 6, F64, Frobenius", worst, 3e-14);
    CLOSE_CTX(ctx);
}

/* A layer of any kind, with random choices: what decoding must get right. */
static tn_attention_desc draw_layer(uint64_t *rng, int kind)
{
    tn_attention_desc d = layer_desc((tn_attention_kind)kind, 2 * test_random_int(rng, 1, 4), 0);
    d.heads = test_random_int(rng, 0, 1) ? d.dim / 2 : 1;
    if (test_random_int(rng, 0, 1)) { d.d_qk = test_random_int(rng, 1, 5); d.d_v = test_random_int(rng, 1, 5); }
    d.out = test_random_int(rng, 0, 4);
    if (kind == TN_ATTENTION_SQUARED && test_random_int(rng, 0, 2) == 0) d.row_scale = TN_ROW_SCALE_SUM;
    else d.row_scale = (tn_row_scale)test_random_int(rng, TN_ROW_SCALE_DEFAULT, TN_ROW_SCALE_MEAN);
    d.row_length = test_random_int(rng, 1, 20);
    d.no_rope = test_random_int(rng, 0, 3) == 0;
    d.qk_norm = test_random_int(rng, 0, 1) != 0;
    d.head_norm = test_random_int(rng, 0, 1) != 0;
    d.bias = test_random_int(rng, 0, 1) != 0;
    d.out_bias = test_random_int(rng, 0, 1) != 0;
    d.mix_values = test_random_int(rng, 0, 1) != 0;
    d.depth = test_random_int(rng, 0, 5);
    if (test_random_int(rng, 0, 2) == 0) d.window = test_random_int(rng, 1, 12);
    else if (kind == TN_ATTENTION_SQUARED || kind == TN_ATTENTION_BILINEAR)
        d.form = (tn_attend_form)test_random_int(rng, TN_ATTEND_FORM_AUTO, TN_ATTEND_FORM_LINEAR);
    return d;
}

/* Positions come one by one, or in pieces, or all at once: together they are what forward gives. */
static double decoding(tn_dtype dtype, int rounds)
{
    tn_ctx  *ctx = ctx_of(dtype);
    uint64_t rng = 50;
    double   worst = 0;
    for (int round = 0; round < rounds; round++) {
        tn_attention_desc d = draw_layer(&rng, round % 5);
        tn_params    *params = tn_params_create(ctx);
        tn_attention  layer;
        tn_tensor    *values = NULL;
        int64_t       B = test_random_int(&rng, 1, 3), T = test_random_int(&rng, 1, 45);
        if (!CHECK_STATUS(tn_attention_init(params, "", &d, &layer), TN_OK)) return HUGE_VAL;
        d = layer.desc;
        double *x = numbers(B * T * d.dim, &rng);
        double *earlier = numbers(B * T * d.heads * d.d_v, &rng);
        double *got = doubles(B * T * d.out);
        if (d.mix_values) values = tensor_of(ctx, B, T, d.heads, d.d_v, earlier);
        double *want = host(tn_attention_forward(ctx, &layer, rows_of(ctx, B, T, d.dim, x), &values));
        tn_attention_cache *cache = tn_attention_cache_create(ctx, &layer, B, T);
        if (!CHECK(cache != NULL)) return HUGE_VAL;
        for (int again = 0; again < 3; again++) {
            for (int64_t at = 0; at < T; ) {
                int64_t    n = again == 0 ? 1 : again == 2 ? T : test_random_int(&rng, 0, T - at < 20 ? T - at : 20);
                tn_mark    mark = tn_arena_mark(ctx);
                tn_tensor *whole = rows_of(ctx, B, T, d.dim, x);
                values = d.mix_values ? tn_slice(tensor_of(ctx, B, T, d.heads, d.d_v, earlier), 1, at, at + n) : NULL;
                tn_tensor *y = tn_attention_decode(ctx, &layer, tn_slice(whole, 1, at, at + n), cache, &values);
                double    *rows = host(y);
                CHECK(values != NULL && values->shape[1] == n);
                for (int64_t b = 0; b < B && n > 0; b++)
                    memcpy(got + (b * T + at) * d.out, rows + b * n * d.out, sizeof *got * (size_t)(n * d.out));
                at += n;
                CHECK_INT(tn_attention_cache_past(cache), at);
                tn_arena_release(ctx, mark);
            }
            if (!CHECK(test_frobenius(got, want, B * T * d.out) < (dtype == TN_F64 ? 1e-12 : 1e-5)))
                printf("     round %d, %s, form %d, window %d, row scale %d\n", round, tn_attention_kind_name(d.kind), (int)d.form, (int)d.window, (int)d.row_scale);
            test_raise(&worst, test_frobenius(got, want, B * T * d.out));
            memset(got, 0, sizeof *got * (size_t)(B * T * d.out));
            tn_attention_cache_reset(cache);
            CHECK_INT(tn_attention_cache_past(cache), 0);
        }
        if (round % 2) tn_attention_cache_destroy(cache);                  /* else with the context */
        tn_params_destroy(params);
        tn_ctx_reset(ctx);
        CHECK_CTX(ctx);
    }
    tn_ctx_destroy(ctx);
    return worst;
}

TEST(decoding_is_forward)
{
    WORST("decoded against forward, F64, Frobenius", decoding(TN_F64, 120), 1e-13);
    WORST("decoded against forward, F32, Frobenius", decoding(TN_F32, 60), 5e-6);
}

/* A state's size does not depend on the length, AUTO takes the smaller memory, and a state has no end. */
TEST(memory_of_decoding)
{
    static const double zero[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    tn_ctx    *ctx = ctx_of(TN_F32);
    tn_params *params = tn_params_create(ctx);
    tn_attention_desc d = layer_desc(TN_ATTENTION_BILINEAR, 8, 2);         /* d = 4: a state of 2 x 16 x 4 numbers, k and v of 24 a position */
    tn_attention layer, softmax;
    tn_attention_cache *c;
    CHECK_STATUS(tn_attention_init(params, "a", &d, &layer), TN_OK);
    CHECK_INT(tn_attention_cache_bytes(tn_attention_cache_create(ctx, &layer, 3, 5)), 3 * 5 * 24 * 4);
    CHECK_INT(tn_attention_cache_bytes(tn_attention_cache_create(ctx, &layer, 3, 6)), 3 * 128 * 4);
    CHECK_INT(tn_attention_cache_bytes(tn_attention_cache_create(ctx, &layer, 3, 6000)), 3 * 128 * 4);
    d.kind = TN_ATTENTION_SQUARED;
    CHECK_STATUS(tn_attention_init(params, "b", &d, &layer), TN_OK);       /* 2 x 10 x 4, and 16 a position */
    CHECK_INT(tn_attention_cache_bytes(tn_attention_cache_create(ctx, &layer, 1, 5)), 80 * 4);
    CHECK_INT(tn_attention_cache_bytes(c = tn_attention_cache_create(ctx, &layer, 1, 6)), 80 * 4);
    for (int i = 0; i < 20; i++) {
        CHECK(tn_attention_decode(ctx, &layer, rows_of(ctx, 1, 1, 8, zero), c, NULL) != NULL);
        tn_ctx_reset(ctx);
    }
    CHECK_INT(tn_attention_cache_past(c), 20);
    d.row_scale = TN_ROW_SCALE_SUM;
    CHECK_STATUS(tn_attention_init(params, "c", &d, &layer), TN_OK);
    CHECK_INT(tn_attention_cache_bytes(tn_attention_cache_create(ctx, &layer, 1, 7)), 100 * 4);
    d = layer_desc(TN_ATTENTION_DIFFERENTIAL, 8, 2);                       /* d_qk 2, d_v 4: 2 2 2 + 2 4 a position */
    CHECK_STATUS(tn_attention_init(params, "d", &d, &softmax), TN_OK);
    CHECK_INT(tn_attention_cache_bytes(tn_attention_cache_create(ctx, &softmax, 1, 100)), 100 * 16 * 4);
    CLOSE_CTX(ctx);
}

/* As published at the start: lambda_init by depth; values pass from the first layer to the second. */
TEST(layer_starts)
{
    tn_ctx    *ctx = ctx_of(TN_F64);
    tn_params *params = tn_params_create(ctx);
    tn_attention_desc d = layer_desc(TN_ATTENTION_DIFFERENTIAL, 12, 3);
    tn_attention layer;
    d.mix_values = d.bias = true;
    CHECK_STATUS(tn_attention_init(params, "first", &d, &layer), TN_OK);
    CHECK_NEAR(layer.desc.lambda_init, 0.2, 1e-15);
    CHECK_INT(layer.desc.d_qk, 2);
    CHECK_INT(layer.desc.d_v, 4);
    CHECK_INT(layer.desc.out, 12);
    CHECK_INT(layer.qk->shape[0], 4);
    CHECK_INT(layer.lambda->shape[0], 4);
    double *v = host(layer.mix);
    CHECK(v[0] == 0.5 && v[1] == 0.5);
    CHECK_STR(tn_params_at(params, 3)->name, "first.qk_b");
    CHECK_STR(tn_params_at(params, 4)->name, "first.v_b");
    CHECK_STR(tn_params_at(params, 5)->name, "first.lambda");
    CHECK_STR(tn_params_at(params, 6)->name, "first.mix");
    CHECK(tn_params_at(params, 0)->decay_scale == 1 && tn_params_at(params, 5)->decay_scale == 0 && tn_params_at(params, 3)->decay_scale == 0);
    d = layer_desc(TN_ATTENTION_DIFFERENTIAL_PLAIN, 12, 3);
    d.depth = 3;
    CHECK_STATUS(tn_attention_init(params, "second", &d, &layer), TN_OK);
    CHECK_NEAR(tn_item(layer.lambda), 0.8 - 0.6 * exp(-0.9), 1e-15);
    CHECK_STR(tn_attention_kind_name(TN_ATTENTION_DIFFERENTIAL_PLAIN), "differential_plain");
    CHECK_STR(tn_attention_kind_name((tn_attention_kind)5), "?");
    CLOSE_CTX(ctx);
}

/* ---- bad input: a message that names it, and nothing lost ------------------------------------------------------------------ */

TEST(bad_operands)
{
    static const double zero[64] = {0};
    tn_ctx *ctx = ctx_of(TN_F32), *other = ctx_of(TN_F32);
    tn_tensor *q = tensor_of(ctx, 1, 2, 2, 3, zero), *k = tensor_of(ctx, 1, 4, 2, 3, zero), *v = tensor_of(ctx, 1, 4, 2, 5, zero), *one = tensor_of(ctx, 1, 4, 1, 5, zero);
    tn_tensor *state = tensor_of(ctx, 1, 1, 9, 5, zero), *flat = tn_tensor_2d(ctx, TN_REAL, 2, 3), *none = tensor_of(ctx, 1, 2, 2, 0, zero);
    tn_rope_desc rope = ZERO;
    tn_attend_desc d = ZERO;
    d.bidirectional = true;
    REFUSED(ctx, tn_rope(ctx, NULL, NULL), TN_ERR_ARG, "rope: x is NULL");
    REFUSED(ctx, tn_rope(ctx, flat, NULL), TN_ERR_SHAPE, "rope: x is [2,3], expected four axes");
    rope.base = -2;
    REFUSED(ctx, tn_rope(ctx, q, &rope), TN_ERR_ARG, "rope: base is -2, expected a finite number >= 1e-30");
    rope.base = 0; rope.eps = -1;
    REFUSED(ctx, tn_rope(ctx, q, &rope), TN_ERR_ARG, "rope: eps is -1");
    rope.eps = 0; rope.first = INT64_MAX - 1;
    REFUSED(ctx, tn_rope(ctx, q, &rope), TN_ERR_ARG, "rope: first is 9223372036854775806, expected at most 2^63 - 1 less the 2 positions");
    REFUSED(ctx, tn_attend(ctx, NULL, k, v, &d), TN_ERR_ARG, "attend: q is NULL");
    REFUSED(ctx, tn_attend(ctx, q, flat, v, &d), TN_ERR_SHAPE, "attend: k is [2,3], expected four axes");
    REFUSED(ctx, tn_attend(ctx, q, k, tensor_of(other, 1, 4, 2, 5, zero), &d), TN_ERR_ARG, "attend: v belongs to another context");
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_SHAPE, "attend: q is [1,2,2,3], k is [1,4,2,3] and v is [1,4,1,5]");
    REFUSED(ctx, tn_attend(ctx, q, v, v, &d), TN_ERR_SHAPE, "attend: q is [1,2,2,3], k is [1,4,2,5]");
    REFUSED(ctx, tn_attend(ctx, none, none, none, &d), TN_ERR_SHAPE, "d >= 1");
    d.kind = TN_ATTEND_BILINEAR;
    REFUSED(ctx, tn_attend(ctx, q, k, v, &d), TN_ERR_SHAPE, "[B,Tq,2 H,d]");
    d.state = state;
    REFUSED(ctx, tn_attend(ctx, tensor_of(ctx, 1, 5, 2, 3, zero), k, one, &d), TN_ERR_SHAPE, "attend: there are 5 queries, expected at most the 4 keys with a state");
    d.state = v;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_SHAPE, "attend: the state is [1,4,2,5], expected [1,1,9,5]");
    d.state = state;
    d.past = INT64_MAX - 3;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG,
            "attend: past is 9223372036854775804, expected at most 2^63 - 1 less the 4 keys of k");
    d.past = 0;
    tn_record(ctx);
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG, "while recording");
    CHECK(tn_backward(ctx, q) != TN_OK);
    tn_ctx_clear_error(ctx);
    d.form = TN_ATTEND_FORM_QUADRATIC;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG,
            "attend: state is given, expected the linear form: the quadratic form has no state");
    d.state = NULL; d.form = TN_ATTEND_FORM_LINEAR; d.past = 3;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG, "attend: past is 3 without a state, expected 0");
    d.past = 0; d.window = 2;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG,
            "attend: form is linear, expected the quadratic form: a window has no linear form");
    d.window = -1;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG, "attend: window is -1, expected 0 or more");
    d.window = 0; d.row_scale = TN_ROW_SCALE_SUM;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG, "row_scale is TN_ROW_SCALE_SUM, expected squared attention");
    d.row_scale = (tn_row_scale)7;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG, "attend: row_scale is 7, expected 0 to 4");
    d.row_scale = TN_ROW_SCALE_NONE; d.scale = (double)NAN;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG, "attend: scale is nan, expected a finite number");
    d.scale = 0; d.eps = -1;
    REFUSED(ctx, tn_attend(ctx, q, k, one, &d), TN_ERR_ARG, "attend: eps is -1");
    d.eps = 0; d.kind = TN_ATTEND_SOFTMAX;
    REFUSED(ctx, tn_attend(ctx, q, k, v, &d), TN_ERR_ARG,
            "attend: form is linear, expected the quadratic form: softmax has no linear form");
    tn_ctx_destroy(ctx);
    tn_ctx_destroy(other);
}

TEST(bad_layers)
{
    static const double zero[64] = {0};
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *params = tn_params_create(ctx);
    tn_attention_desc d = layer_desc(TN_ATTENTION_SOFTMAX, 8, 3);
    tn_attention layer;
    FAILS(ctx, tn_attention_init(params, "a", NULL, &layer), TN_ERR_ARG, "attention: layer or desc is NULL");
    CHECK_STATUS(tn_attention_init(params, "a", &d, &layer), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "attention a: dim is 8, expected a multiple of 3 for 3 heads, or d_qk to be given");
    d.heads = 0;
    FAILS(ctx, tn_attention_init(params, "a", &d, &layer), TN_ERR_SHAPE, "attention a: heads is 0, expected 1 to 2^31 - 2");
    d.heads = 8; d.kind = TN_ATTENTION_DIFFERENTIAL;
    FAILS(ctx, tn_attention_init(params, "a", &d, &layer), TN_ERR_SHAPE, "a multiple of 16");
    d.heads = 2; d.form = TN_ATTEND_FORM_LINEAR;
    FAILS(ctx, tn_attention_init(params, "a", &d, &layer), TN_ERR_ARG, "softmax has no linear form");
    d.kind = TN_ATTENTION_BILINEAR; d.window = 4;
    FAILS(ctx, tn_attention_init(params, "a", &d, &layer), TN_ERR_ARG, "a window has no linear form");
    d.window = 0; d.row_scale = TN_ROW_SCALE_SUM;
    FAILS(ctx, tn_attention_init(params, "a", &d, &layer), TN_ERR_ARG, "row_scale is TN_ROW_SCALE_SUM, expected squared attention");
    d.row_scale = TN_ROW_SCALE_DEFAULT; d.kind = (tn_attention_kind)5;
    FAILS(ctx, tn_attention_init(params, "a", &d, &layer), TN_ERR_ARG, "attention a: kind is 5, not a valid tn_attention_kind");
    d.kind = TN_ATTENTION_BILINEAR; d.depth = -1;
    FAILS(ctx, tn_attention_init(params, "a", &d, &layer), TN_ERR_ARG, "attention a: depth is -1, expected 0 or more");
    d.depth = 0; d.out = -3;
    FAILS(ctx, tn_attention_init(params, "a", &d, &layer), TN_ERR_SHAPE, "attention a: out is -3");
    d.out = 0; d.d_qk = 100000000;
    CHECK_STATUS(tn_attention_init(params, "a", &d, &layer), TN_ERR_SHAPE);
    d.d_qk = 0; d.row_scale = TN_ROW_SCALE_SUM;                            /* its own status, though the context keeps the first */
    CHECK_STATUS(tn_attention_init(params, "a", &d, &layer), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "attend: the state would have 100000000 * 100000000 * 4 numbers, expected at most 1e15");
    d.row_scale = TN_ROW_SCALE_DEFAULT; d.heads = 1 << 16; d.d_qk = 1; d.d_v = 1 << 15;
    CHECK_STATUS(tn_attention_init(params, "a", &d, &layer), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "attention a: d_v is 32768, expected at least 1, and below 2^31 - 1 for all 65536 heads");
    CHECK_INT(tn_params_count(params), 0);
    CHECK(layer.qk == NULL);
    d.heads = 2; d.d_qk = d.d_v = 0; d.mix_values = true;
    CHECK_STATUS(tn_attention_init(params, "a", &d, &layer), TN_OK);
    tn_tensor *x = rows_of(ctx, 1, 2, 8, zero);
    REFUSED(ctx, tn_attention_forward(ctx, NULL, x, NULL), TN_ERR_ARG, "attention: the layer is NULL");
    REFUSED(ctx, tn_attention_forward(ctx, &layer, NULL, NULL), TN_ERR_ARG, "attention: x is NULL");
    REFUSED(ctx, tn_attention_pattern(ctx, &layer, NULL), TN_ERR_ARG, "attention_pattern: x is NULL");
    REFUSED(ctx, tn_attention_pattern(ctx, NULL, x), TN_ERR_ARG, "attention_pattern: the layer is NULL");
    REFUSED(ctx, tn_attention_forward(ctx, &layer, rows_of(ctx, 1, 2, 7, zero), NULL), TN_ERR_SHAPE, "attention: x is [1,2,7], expected [B,T,8]");
    tn_tensor *values = tensor_of(ctx, 1, 3, 2, 4, zero);
    REFUSED(ctx, tn_attention_forward(ctx, &layer, x, &values), TN_ERR_SHAPE, "attention: values are [1,3,2,4], expected [1,2,2,4]");
    values = NULL;                                                         /* nor does a failed call hand any out */
    tn_attention second = layer;
    second.desc.row_scale = TN_ROW_SCALE_SUM;
    REFUSED(ctx, tn_attention_forward(ctx, &second, x, &values), TN_ERR_ARG,
            "row_scale is TN_ROW_SCALE_SUM, expected squared attention");
    CHECK(values == NULL);
    tn_attention_cache *c = tn_attention_cache_create(ctx, &second, 1, 2);
    REFUSED(ctx, tn_attention_decode(ctx, &second, x, c, &values), TN_ERR_ARG,
            "row_scale is TN_ROW_SCALE_SUM, expected squared attention");
    CHECK(values == NULL);
    REFUSED(ctx, tn_attention_cache_create(ctx, &layer, 0, 4), TN_ERR_ARG, "attention cache: batch is 0, expected 1 or more");
    REFUSED(ctx, tn_attention_cache_create(ctx, NULL, 1, 4), TN_ERR_ARG, "attention cache: the layer is NULL");
    d.bidirectional = true;
    CHECK_STATUS(tn_attention_init(params, "b", &d, &second), TN_OK);
    REFUSED(ctx, tn_attention_cache_create(ctx, &second, 1, 4), TN_ERR_ARG, "attention cache: the layer is bidirectional");
    d.bidirectional = false; d.form = TN_ATTEND_FORM_QUADRATIC; d.heads = 4;
    CHECK_STATUS(tn_attention_init(params, "c", &d, &second), TN_OK);
    c = tn_attention_cache_create(ctx, &second, 1, 3);
    REQUIRE(c != NULL);
    REFUSED(ctx, tn_attention_decode(ctx, &second, x, NULL, NULL), TN_ERR_ARG, "attention: the cache is NULL");
    REFUSED(ctx, tn_attention_decode(ctx, &layer, x, c, NULL), TN_ERR_ARG, "attention: the cache was made for another layer: kind bilinear, "
            "4 heads, d_qk 2, d_v 2, window ");
    REFUSED(ctx, tn_attention_decode(ctx, &second, rows_of(ctx, 2, 1, 8, zero), c, NULL), TN_ERR_SHAPE, "attention: x is [2,1,8], expected batch 1 as in the cache");
    CHECK(tn_attention_decode(ctx, &second, x, c, NULL) != NULL);
    REFUSED(ctx, tn_attention_decode(ctx, &second, x, c, NULL), TN_ERR_SHAPE, "attention: x has 2 positions after 2 in the cache, expected at most 3 in all");
    tn_record(ctx);
    REFUSED(ctx, tn_attention_decode(ctx, &second, x, c, NULL), TN_ERR_ARG, "attention: the context is recording, expected decoding without it");
    CHECK_INT(tn_attention_cache_past(c), 2);
    CHECK_INT(tn_attention_cache_past(NULL), 0);
    CHECK_INT(tn_attention_cache_bytes(NULL), 0);
    tn_attention_cache_reset(NULL);
    tn_attention_cache_destroy(NULL);
    tn_ctx_destroy(ctx);
}

/* A layer is made, decodes two positions, is trained on six: true where nothing failed. */
static bool whole_life(tn_ctx *ctx, tn_attention_kind kind, tn_attention *layer, tn_attention_cache **cache)
{
    static const double zero[48] = {0};
    tn_attention_desc d = layer_desc(kind, 8, 2);
    tn_params *params = tn_params_create(ctx);
    tn_tensor *y;
    d.bias = d.mix_values = true;
    d.out = 4096;                                                          /* asks for a block when the state has taken in its keys */
    if (kind == TN_ATTENTION_BILINEAR) d.form = TN_ATTEND_FORM_LINEAR;
    if (!params || tn_attention_init(params, "a", &d, layer) != TN_OK) return false;
    if (!(*cache = tn_attention_cache_create(ctx, layer, 1, 6))) return false;
    if (!(y = tn_attention_decode(ctx, layer, rows_of(ctx, 1, 2, 8, zero), *cache, NULL))) return false;
    tn_record(ctx);
    y = tn_attention_forward(ctx, layer, rows_of(ctx, 1, 6, 8, zero), NULL);
    return y && tn_backward(ctx, tn_sum(ctx, y)) == TN_OK;
}

/* Each allocation fails once: a message, no leak, and a cache that can go on, or says that it cannot until it is reset. */
TEST(no_memory)
{
    int failures = 0, resets = 0;
    for (int kind = TN_ATTENTION_SOFTMAX; kind <= TN_ATTENTION_DIFFERENTIAL_PLAIN; kind++) {
        bool done = false;
        for (uint64_t fail_at = 1; !done && fail_at < 500; fail_at++) {
            static const double zero[8] = {0};
            test_heap heap = {0, 0, 0, 0, false};
            tn_attention layer;
            tn_attention_cache *cache = NULL;
            tn_desc   desc = ZERO;
            tn_ctx   *ctx;
            desc.allocator = test_heap_allocator(&heap);
            desc.threads = 1;
            desc.arena_bytes = 64;                                         /* so that nearly each tensor asks */
            if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK)) return;
            heap.count = 0;
            heap.fail_at = fail_at;
            done = whole_life(ctx, (tn_attention_kind)kind, &layer, &cache);
            if (done) CHECK_CTX(ctx);
            else CHECK_STATUS(tn_ctx_status(ctx), TN_ERR_MEMORY);
            failures += !done;
            tn_ctx_clear_error(ctx);
            tn_ctx_reset(ctx);
            if (cache && !tn_attention_decode(ctx, &layer, rows_of(ctx, 1, 1, 8, zero), cache, NULL)) {
                CHECK_ERROR(ctx, TN_ERR_ARG, "which must be reset first");
                tn_attention_cache_reset(cache);
                CHECK(tn_attention_decode(ctx, &layer, rows_of(ctx, 1, 1, 8, zero), cache, NULL) != NULL);
                CHECK_INT(tn_attention_cache_past(cache), 1);
                resets++;
            }
            tn_ctx_destroy(ctx);
            CHECK_INT(heap.live, 0);
            CHECK_INT(heap.blocks, 0);
        }
        CHECK(done);
    }
    CHECK(resets > 0);
    printf("%d failing allocations were survived, %d caches wanted a reset\n", failures, resets);
}

/* A gradient has the same bits whether the other operands want theirs or not. */
TEST(a_gradient_alone_has_the_same_bits)
{
    for (int kind = 0; kind < 3; kind++) {
        const tn_attend_kind k = (tn_attend_kind)kind;
        const int64_t        heads = k == TN_ATTEND_BILINEAR ? 4 : 2;
        uint64_t             rng = 17;
        tn_attend_desc       d = ZERO;
        double              *x[3], *g[2][3];
        const int64_t        n[3] = {70 * heads * 5, 70 * heads * 5, 70 * 2 * 6};
        d.kind = k;
        for (int i = 0; i < 3; i++) x[i] = numbers(n[i], &rng);
        for (int alone = 0; alone < 2; alone++)
            for (int i = 0; i < 3; i++) {
                tn_ctx    *ctx = ctx_of(TN_F32);
                tn_tensor *in[3];
                in[0] = tensor_of(ctx, 1, 70, heads, 5, x[0]);
                in[1] = tensor_of(ctx, 1, 70, heads, 5, x[1]);
                in[2] = tensor_of(ctx, 1, 70, 2, 6, x[2]);
                for (int j = 0; j < 3; j++) if (!alone || j == i) tn_watch(in[j]);
                tn_record(ctx);
                tn_tensor *y = tn_attend(ctx, in[0], in[1], in[2], &d);
                CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, y))), TN_OK);
                g[alone][i] = host(in[i]->grad);
                tn_ctx_destroy(ctx);
            }
        for (int i = 0; i < 3; i++) {
            CHECK(memcmp(g[0][i], g[1][i], sizeof(double) * (size_t)n[i]) == 0);
        }
    }
}

/* A state of another context is refused like any operand. */
TEST(a_state_of_another_context)
{
    static const double zero[1 * 1 * 9 * 6] = {0};
    tn_ctx        *ctx = ctx_of(TN_F32), *other = ctx_of(TN_F32);
    tn_tensor     *q = tensor_of(ctx, 1, 2, 1, 3, zero), *v = tensor_of(ctx, 1, 2, 1, 5, zero);
    tn_attend_desc d = ZERO;
    d.kind = TN_ATTEND_SQUARED;
    d.state = tensor_of(other, 1, 1, 6, 5, zero);
    REFUSED(ctx, tn_attend(ctx, q, q, v, &d), TN_ERR_ARG, "attend: state belongs to another context");
    d.state = tensor_of(ctx, 1, 1, 6, 5, zero);
    CHECK(tn_attend(ctx, q, q, v, &d) != NULL);
    CHECK_CTX(ctx);
    tn_ctx_destroy(other);
    tn_ctx_destroy(ctx);
}

TEST_MAIN(chunked_is_quadratic, long_rows, the_future_is_unseen, multilinear, no_square_in_memory, the_form_of_auto, large_infinite_and_nan,
          nothing_to_see, overlapping_operands, gradients_without_zeros_first, rope_is_relative, layers_are_tensors, decoding_is_forward, memory_of_decoding, layer_starts,
          bad_operands, bad_layers, no_memory, a_gradient_alone_has_the_same_bits, a_state_of_another_context)
