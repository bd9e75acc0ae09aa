/* test_anomaly.c: what a training added, against dense tensors, plain runs of a model, and tools/golden_anomaly.py. */
#include "model.h"

/* ---- operators ----------------------------------------------------------------------------------------------- */

/* D = suspect - reference as interaction matrices [out,n,n], by plain loops. */
static double *plain_difference(const tn_cp *a, const tn_cp *b, bool logits)
{
    const int64_t n = a->in[0], o = a->out;
    double       *x = plain_dense(a), *y = plain_dense(b), *d = doubles(o * n * n);
    for (int64_t k = 0; k < o; k++)
        for (int64_t i = 0; i < n * n; i++) {
            const int64_t to = k * n * n + i, other = k * n * n + i % n * n + i / n;
            d[to] = (x[to] + x[other] - y[to] - y[other]) / 2;
        }
    for (int64_t i = 0; i < n * n && logits; i++) {
        double mean = 0;
        for (int64_t k = 0; k < o; k++) mean += d[k * n * n + i] / (double)o;
        for (int64_t k = 0; k < o; k++) d[k * n * n + i] -= mean;
    }
    return d;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *v, int64_t n)
{
    double *sorted = doubles(n);
    memcpy(sorted, v, sizeof *v * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return (sorted[n / 2] + sorted[(n - 1) / 2]) / 2;
}

/* x^T d y */
static double form(const double *d, int64_t n, const double *x, const double *y)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * dot(d + i * n, y, n);
    return sum;
}

/* The largest eigenvalue of d d by powers: the square of the largest magnitude. */
static double largest_square(const double *d, int64_t n)
{
    double *x = random_doubles(n, 5), *y = doubles(n), length = 0;
    for (int step = 0; step < 4000; step++) {
        for (int64_t i = 0; i < n; i++) y[i] = dot(d + i * n, x, n);
        length = frobenius(y, n);
        for (int64_t i = 0; i < n; i++) x[i] = length > 0 ? y[i] / length : 0;
    }
    return length * length;
}

static void check_output(const tn_anomaly *a, const double *d, int64_t n, int64_t m, int64_t o, double *worst)
{
    double  *rows = host(a->rows) + o * n, *share = host(a->share), *value = host(a->values), *vector = host(a->vectors) + o * n;
    double  *length = doubles(n);
    uint64_t seed = 3;
    for (int64_t i = 0; i < n; i++) length[i] = frobenius(d + i * n, n);
    const double median = median_of(length, m), size = frobenius(d, n * n);
    for (int64_t i = 0; i < n; i++) test_raise(worst, fabs(rows[i] * median - length[i]) / size);
    CHECK_NEAR(share[o], largest_square(d, n) / (size * size), 1e-5);
    test_raise(worst, fabs(form(d, n, vector, vector) - value[o]) / size);
    if (value[o] > 0) test_raise(worst, fabs(frobenius(vector, n) - 1));
    for (int tries = 0; tries < 100; tries++) {
        double *x = random_doubles(n, seed++);
        CHECK(form(d, n, x, x) <= (value[o] + 1e-4 * size) * dot(x, x, n));
    }
}

TEST(differences_of_operators)
{
    for (int precision = 0; precision < 2; precision++) {
        world  w;
        double worst = 0;
        REQUIRE(open_world(&w, f64_f32[precision], 1));
        for (int round = 0; round < 16; round++) {
            const bool    constant = round % 2, logits = round / 2 % 2;
            const int64_t n = round == 15 ? 2 : 2 + round, out = 1 + round % 4, h = 1 + round / 3, m = n - constant;
            tn_cp        *a = any_cp(&w, 2, out, h + 2, n, constant), *b = any_cp(&w, 2, out, h, n, constant);
            tn_anomaly    r;
            if (!CHECK_STATUS(tn_cp_anomaly(a, b, logits && out > 1, &r), TN_OK)) break;
            double *d = plain_difference(a, b, logits && out > 1), *rows = host(r.rows), best = 0;
            for (int64_t o = 0; o < out; o++) check_output(&r, d + o * n * n, n, m, o, &worst);
            for (int64_t i = 0; i < out * n; i++) if (i % n < m && rows[i] > best) best = rows[i];
            CHECK_NEAR(r.score, best, 1e-4 * best);
            CHECK_NEAR(rows[r.output * n + r.input], best, 1e-4 * best);
            CHECK(r.input < m && host(r.values)[r.raised] >= host(r.values)[0]);
            tn_anomaly_destroy(&r);
            tn_cp_destroy(a);
            tn_cp_destroy(b);
            fresh(&w);
        }
        report_as("differences of operators", f64_f32[precision], worst, 1e-11, 2e-4);
        close_world(&w);
    }
}

/* The matrices of tools/golden_anomaly.py. */
static tn_tensor *quarters(world *w, int64_t rows, int64_t columns, int a, int b, int c, int m)
{
    double *v = doubles(rows * columns);
    for (int64_t i = 0; i < rows * columns; i++) v[i] = (double)((a * (i / columns) + b * (i % columns) + c) % m - m / 2) / 4;
    return matrix(w, rows, columns, v);
}

static tn_cp *golden_operator(world *w, int64_t terms, int c, bool constant)
{
    tn_tensor *f[2] = {quarters(w, terms, 7, 2, 3, c, 11), quarters(w, terms, 7, 5, 4, c, 9)};
    return tn_cp_create(w->ctx, 2, quarters(w, 3, terms, 3, 5, c, 7), f, constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
}

TEST(numbers_of_numpy)
{
    static const double score[4] = {2.34998019457476, 1.36319694212504, 2.16844179084552, 1.49969377589467};
    static const int    output[4] = {1, 2, 1, 1}, input[4] = {6, 5, 6, 5};
    static const double share[2] = {0.630489214746751, 0.610204045400665};
    static const double value[2][3] = {{1.71069237098653, 2.45629051638487, 1.41798189222699},
                                       {0.807104979610346, 2.69918694984867, 0.766534832834065}};
    world w;
    REQUIRE(open_world(&w, TN_F64, 1));
    for (int k = 0; k < 4; k++) {
        tn_cp     *a = golden_operator(&w, 4, 1, k % 2), *b = golden_operator(&w, 2, 3, k % 2);
        tn_anomaly r;
        if (!CHECK_STATUS(tn_cp_anomaly(a, b, k / 2, &r), TN_OK)) break;
        CHECK_NEAR(r.score, score[k], 1e-12);
        CHECK_NEAR(r.concentration, share[k / 2], 1e-12);
        CHECK_INT(r.output, output[k]);
        CHECK_INT(r.input, input[k]);
        CHECK_INT(r.raised, 1);
        for (int o = 0; o < 3; o++) CHECK_NEAR(host(r.values)[o], value[k / 2][o], 1e-12);
        tn_anomaly_destroy(&r);
        tn_cp_destroy(a);
        tn_cp_destroy(b);
    }
    close_world(&w);
}

/* Another order and other scales of hidden units change nothing; equal functions have a score of about 1 at most; a pattern of
   three inputs that raises output 2 is found. */
TEST(planted_patterns)
{
    enum { OUT = 4, N = 40, H = 12 };
    world w;
    REQUIRE(open_world(&w, TN_F32, 4));
    tn_cp     *a = any_cp(&w, 2, OUT, H, N, false), *shuffled = tn_cp_canonical(a), *zero = tn_cp_truncate(a, 0);
    double    *p = doubles(OUT * (H + 1)), *f[2], *from = host(a->p);
    tn_tensor *factors[2];
    tn_anomaly r, s;
    for (int64_t o = 0; o < OUT; o++)
        for (int64_t t = 0; t <= H; t++) p[o * (H + 1) + t] = t < H ? from[o * H + t] : o == 2;
    for (int k = 0; k < 2; k++) {
        f[k] = doubles((H + 1) * N);
        memcpy(f[k], host(a->f[k]), sizeof(double) * H * N);
        for (int64_t i = 0; i < (H + 1) * N; i++) f[k][i] *= 1 + 1e-3 * test_random_real(&w.seed);
        for (int64_t i = 0; i < N; i++) f[k][H * N + i] = k == 1 ? 0.1 : i >= 7 && i < 10 ? 1 : 0;
        factors[k] = matrix(&w, H + 1, N, f[k]);
    }
    tn_cp *planted = tn_cp_create(w.ctx, 2, matrix(&w, OUT, H + 1, p), factors, TN_CP_INPUT_PLAIN);
    CHECK_STATUS(tn_cp_anomaly(shuffled, a, true, &r), TN_OK);
    CHECK(r.score < 2);
    tn_anomaly_destroy(&r);
    CHECK_STATUS(tn_cp_anomaly(zero, zero, true, &r), TN_OK);
    CHECK(r.score == 0 && r.concentration == 0 && host(r.values)[0] == 0);
    tn_anomaly_destroy(&r);
    CHECK_STATUS(tn_cp_anomaly(planted, a, true, &r), TN_OK);
    CHECK_STATUS(tn_cp_anomaly(planted, shuffled, true, &s), TN_OK);
    CHECK(r.score > 3 && r.input >= 7 && r.input < 10 && r.raised == 2);
    CHECK_NEAR(r.score, s.score, 1e-3 * r.score);
    CHECK_NEAR(r.concentration, s.concentration, 1e-3);
    tn_anomaly_destroy(&r);
    tn_anomaly_destroy(&s);
    tn_cp_destroy(a);
    tn_cp_destroy(shuffled);
    tn_cp_destroy(zero);
    tn_cp_destroy(planted);
    close_world(&w);
}

/* One hidden unit that reads two inputs of 10: rounding is no direction, a median of zero no infinite score, and what overflows
   an error. */
TEST(degenerate_operators)
{
    for (int precision = 0; precision < 2; precision++) {
        const double p[3] = {0, 0, 1}, f[2][10] = {{1, 1}, {1}}, huge = precision ? 1e30 : 1e200;
        double       big[10];
        world        w;
        tn_anomaly   r;
        REQUIRE(open_world(&w, f64_f32[precision], 1));
        for (int i = 0; i < 10; i++) big[i] = huge;
        tn_tensor *out = matrix(&w, 3, 1, p), *in[2] = {matrix(&w, 1, 10, f[0]), matrix(&w, 1, 10, f[1])};
        tn_tensor *large[2] = {matrix(&w, 1, 10, big), matrix(&w, 1, 10, big)};
        tn_cp     *a = tn_cp_create(w.ctx, 2, out, in, TN_CP_INPUT_PLAIN), *zero = tn_cp_truncate(a, 0);
        tn_cp     *over = tn_cp_create(w.ctx, 2, out, large, TN_CP_INPUT_PLAIN);
        for (int k = 0; k < 2; k++) {
            CHECK_STATUS(tn_cp_anomaly(k ? zero : a, k ? a : zero, false, &r), TN_OK);
            CHECK(r.output == 2 && r.input == 0 && r.score > 1e4 && r.score < 1e14);
            CHECK(k || r.raised == 2);
            tn_anomaly_destroy(&r);
        }
        CHECK_STATUS(tn_cp_anomaly(a, a, false, &r), TN_OK);
        CHECK(r.score <= 1 && r.concentration == 0 && r.raised == 0 && host(r.values)[2] == 0);
        tn_anomaly_destroy(&r);
        CHECK_STATUS(tn_cp_anomaly(over, a, false, &r), TN_ERR_NONFINITE);
        tn_ctx_clear_error(w.ctx);
        tn_cp_destroy(a);
        tn_cp_destroy(zero);
        tn_cp_destroy(over);
        close_world(&w);
    }
}

TEST(anomaly_refuses)
{
    world w;
    REQUIRE(open_world(&w, TN_F64, 1));
    tn_cp       *a = any_cp(&w, 2, 3, 2, 4, false), *wide = any_cp(&w, 2, 3, 2, 5, false), *few = any_cp(&w, 2, 2, 2, 4, false);
    tn_cp       *third = any_cp(&w, 3, 3, 2, 4, false), *bad = any_cp(&w, 2, 3, 2, 4, false);
    tn_cp       *none = any_cp(&w, 2, 0, 2, 4, false);
    const double nan = (double)NAN;
    tn_anomaly   r;
    CHECK_STATUS(tn_write(tn_slice(tn_slice(bad->f[1], 0, 1, 2), 1, 2, 3), TN_F64, &nan, 1), TN_OK);
    CHECK_STATUS(tn_cp_anomaly(NULL, a, false, &r), TN_ERR_ARG);
    CHECK_STATUS(tn_cp_anomaly(a, a, false, NULL), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "anomaly: out is NULL");
    CHECK(tn_cp_anomaly(a, NULL, false, &r) != TN_OK);
    tn_ctx_clear_error(w.ctx);
    CHECK_STATUS(tn_cp_anomaly(third, third, false, &r), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "anomaly: the operator has order 3, expected 2");
    CHECK_STATUS(tn_cp_anomaly(a, wide, false, &r), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "anomaly: ");
    CHECK_STATUS(tn_cp_anomaly(a, few, false, &r), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "anomaly: the suspect has 3 outputs and the reference 2");
    CHECK_STATUS(tn_cp_anomaly(none, none, false, &r), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "expected equal numbers of at least 1");
    CHECK_STATUS(tn_cp_anomaly(a, bad, false, &r), TN_ERR_NONFINITE);
    CHECK(!r.rows && !r.share && !r.values && !r.vectors);
    tn_ctx_clear_error(w.ctx);
    CHECK_STATUS(tn_cp_anomaly(bad, a, true, &r), TN_ERR_NONFINITE);
    tn_ctx_clear_error(w.ctx);
    tn_anomaly_destroy(NULL);
    tn_cp_destroy(a);
    tn_cp_destroy(wide);
    tn_cp_destroy(few);
    tn_cp_destroy(third);
    tn_cp_destroy(bad);
    tn_cp_destroy(none);
    close_world(&w);
}

/* ---- models --------------------------------------------------------------------------------------------------- */

/* log p [vocab] after a text of two tokens, from its logits alone */
static double *next_tokens(world *w, const tn_transformer *m, int32_t a, int32_t b)
{
    const int64_t shape[2] = {1, 2}, V = m->desc.vocab;
    const int32_t ids[2] = {a, b};
    tn_tensor    *x = tn_tensor_from(w->ctx, 2, shape, TN_I32, ids);
    double       *y = host(tn_transformer_forward(w->ctx, m, x)) + V, sum = 0, most = y[0];
    for (int64_t t = 0; t < V; t++) if (y[t] > most) most = y[t];
    for (int64_t t = 0; t < V; t++) sum += exp(y[t] - most);
    for (int64_t t = 0; t < V; t++) y[t] -= most + log(sum);
    return y;
}

TEST(all_texts_of_two_tokens)
{
    double worst = 0;
    world  w;
    REQUIRE(open_world(&w, TN_F64, 2));
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_params          *ps[2] = {tn_params_create(w.ctx), tn_params_create(w.ctx)};
        tn_transformer      m[2];
        tn_transformer_anomaly_result r;
        if (d.bidirectional || d.context < 2) d = variant(0, &what);
        const int64_t V = d.vocab;
        for (int i = 0; i < 2; i++) {
            CHECK_STATUS(tn_transformer_init(ps[i], "", &d, &m[i]), TN_OK);
            CHECK(stir(ps[i], (uint64_t)(k + 50 * i), 0.5));
        }
        if (!CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[1], 4, &r), TN_OK)) break;
        double *terms = doubles(V * V * V), mean = 0, *values = host(r.terms.values);
        int32_t at[12];
        for (int32_t a = 0; a < V; a++)
            for (int32_t b = 0; b < V; b++) {
                const double *p = next_tokens(&w, &m[0], a, b), *q = next_tokens(&w, &m[1], a, b);
                for (int64_t t = 0; t < V; t++) terms[(a * V + b) * V + t] = exp(p[t]) * (p[t] - q[t]);
                for (int64_t t = 0; t < V; t++) mean += terms[(a * V + b) * V + t] / (double)(V * V);
            }
        CHECK_STATUS(tn_read(r.terms.index, TN_I32, at, 12), TN_OK);
        for (int i = 0; i < 4; i++) {
            const double term = terms[(at[3 * i] * V + at[3 * i + 1]) * V + at[3 * i + 2]];
            test_raise(&worst, fabs(values[i] - term) / (1 + fabs(values[i])));
        }
        qsort(terms, (size_t)(V * V * V), sizeof *terms, ascending);
        for (int i = 0; i < 4; i++) test_raise(&worst, fabs(values[i] - terms[V * V * V - 1 - i]) / (1 + fabs(values[i])));
        test_raise(&worst, fabs(r.mean - mean) / (1 + mean));
        CHECK_NEAR(r.largest, values[0], 0);
        CHECK_NEAR(r.score, r.largest / r.mean, 1e-12 * r.score);
        tn_transformer_anomaly_destroy(&r);
        CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[0], 1, &r), TN_OK);
        CHECK(r.score == 0 && r.largest == 0 && r.mean == 0);
        tn_transformer_anomaly_destroy(&r);
        for (int64_t i = 0; i < tn_params_count(ps[0]); i++)
            tn_assign(tn_params_at(ps[1], i)->value, tn_params_at(ps[0], i)->value);
        tn_assign(m[1].blocks[0].attn.v, tn_scale(w.ctx, m[1].blocks[0].attn.v, 3));            /* the same but for rounding */
        tn_assign(m[1].blocks[0].attn.o, tn_scale(w.ctx, m[1].blocks[0].attn.o, 1.0 / 3));
        CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[1], 1, &r), TN_OK);
        CHECK(r.score < 1 || d.value_residual || d.head_norm || d.attn_bias || d.attention >= TN_ATTENTION_DIFFERENTIAL);
        tn_transformer_anomaly_destroy(&r);
        for (int i = 0; i < 2; i++) tn_params_destroy(ps[i]);
        fresh(&w);
    }
    WORST("divergences of models, 24 variants", worst, 1e-12);
    close_world(&w);
}

/* The weights of tools/golden_anomaly.py: of all parameters, or of the last one alone. */
static bool fill(tn_params *ps, int64_t a, bool head)
{
    for (int64_t i = 0, n = 0; i < tn_params_count(ps); i++) {
        tn_tensor *t = tn_params_at(ps, i)->value;
        double    *v = doubles(tn_tensor_count(t));
        for (int64_t e = 0; e < tn_tensor_count(t); e++, n++) v[e] = (double)(a * n % 19 - 9) / 16;
        if (head && i + 1 < tn_params_count(ps)) continue;
        if (!CHECK_STATUS(tn_write(t, TN_F64, v, tn_tensor_count(t)), TN_OK)) return false;
    }
    return true;
}

TEST(model_of_numpy)
{
    static const double  want[3] = {0.210525615937324, 0.207811194152234, 0.207499923015206};
    static const int32_t where[9] = {4, 4, 0, 3, 4, 0, 2, 4, 0};
    tn_transformer_desc  d = tiny();
    tn_transformer       m[2];
    tn_transformer_anomaly_result r;
    world                w;
    int32_t              at[9];
    REQUIRE(open_world(&w, TN_F64, 1));
    d.layers = 1;
    d.attention = TN_ATTENTION_BILINEAR;
    d.positions = TN_POSITIONS_NONE;
    d.no_norm = true;
    tn_params *ps[2] = {tn_params_create(w.ctx), tn_params_create(w.ctx)};
    for (int i = 0; i < 2; i++) CHECK(tn_transformer_init(ps[i], "", &d, &m[i]) == TN_OK && fill(ps[i], 37, false));
    CHECK(fill(ps[0], 29, true));
    CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[1], 3, &r), TN_OK);
    CHECK_NEAR(r.score, 1.84017214536913, 1e-12);
    CHECK_NEAR(r.mean, 0.114405392162424, 1e-12);
    for (int i = 0; i < 3; i++) CHECK_NEAR(host(r.terms.values)[i], want[i], 1e-12);
    CHECK_STATUS(tn_read(r.terms.index, TN_I32, at, 9), TN_OK);
    for (int i = 0; i < 9; i++) CHECK_INT(at[i], where[i]);
    tn_transformer_anomaly_destroy(&r);
    for (int i = 0; i < 2; i++) tn_params_destroy(ps[i]);
    close_world(&w);
}

TEST(transformer_anomaly_refuses)
{
    tn_transformer_desc d[4] = {tiny(), tiny(), tiny(), tiny()};
    tn_params          *ps[4];
    tn_transformer      m[4];
    tn_transformer_anomaly_result r;
    world               w;
    REQUIRE(open_world(&w, TN_F32, 1));
    d[1].vocab = 6;
    d[2].bidirectional = true;
    d[3].context = 1;
    for (int i = 0; i < 4; i++) {
        ps[i] = tn_params_create(w.ctx);
        CHECK_STATUS(tn_transformer_init(ps[i], "", &d[i], &m[i]), TN_OK);
    }
    CHECK_STATUS(tn_transformer_anomaly(NULL, &m[0], 1, &r), TN_ERR_ARG);
    CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[0], 1, NULL), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "transformer_anomaly: out is NULL");
    CHECK_STATUS(tn_transformer_anomaly(&m[0], NULL, 1, &r), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "transformer_anomaly: the reference is NULL");
    CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[0], 0, &r), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "transformer_anomaly: top is 0");
    CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[1], 1, &r), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "the reference has 6 tokens, expected 5");
    CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[2], 1, &r), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "the reference is bidirectional");
    CHECK_STATUS(tn_transformer_anomaly(&m[3], &m[0], 1, &r), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "the suspect has a context of 1");
    const double nan = (double)NAN;
    CHECK_STATUS(tn_write(tn_slice(tn_slice(m[0].head.w, 0, 1, 2), 1, 2, 3), TN_F64, &nan, 1), TN_OK);
    CHECK_STATUS(tn_transformer_anomaly(&m[0], &m[0], 1, &r), TN_ERR_NONFINITE);
    CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "transformer_anomaly: the logits after tokens 0 and 0 are not finite");
    CHECK(!r.terms.values && !r.terms.index);
    tn_transformer_anomaly_destroy(NULL);
    for (int i = 0; i < 4; i++) tn_params_destroy(ps[i]);
    close_world(&w);
}

TEST(anomalies_without_memory)
{
    tn_transformer_desc d = tiny();
    tn_transformer      m;
    world               w;
    REQUIRE(open_world(&w, TN_F64, 4));
    tn_params *ps = tn_params_create(w.ctx);
    tn_cp     *a = any_cp(&w, 2, 2, 2, 5, true), *b = any_cp(&w, 2, 2, 3, 5, true);
    CHECK_STATUS(tn_transformer_init(ps, "", &d, &m), TN_OK);
    for (int k = 0; k < 2; k++)
        for (uint64_t fail = 1; fail < 300; fail++) {
            const size_t held = w.heap.live;
            tn_anomaly   r;
            tn_transformer_anomaly_result t;
            w.heap.fail_at = w.heap.count + fail;
            const tn_status s = k ? tn_transformer_anomaly(&m, &m, 2, &t) : tn_cp_anomaly(a, b, true, &r);
            w.heap.fail_at = 0;
            if (s == TN_OK) {
                CHECK(fail > 3);
                if (k) tn_transformer_anomaly_destroy(&t);
                else tn_anomaly_destroy(&r);
                break;
            }
            CHECK_STATUS(s, TN_ERR_MEMORY);
            CHECK(k ? !t.terms.values && !t.terms.index : !r.rows && !r.share && !r.values && !r.vectors);
            if (!k) CHECK_INT(w.heap.live, held);
            tn_ctx_clear_error(w.ctx);
        }
    tn_params_destroy(ps);
    tn_cp_destroy(a);
    tn_cp_destroy(b);
    close_world(&w);
}

TEST_MAIN(differences_of_operators, numbers_of_numpy, planted_patterns, degenerate_operators, anomaly_refuses,
          all_texts_of_two_tokens, model_of_numpy, transformer_anomaly_refuses, anomalies_without_memory)
