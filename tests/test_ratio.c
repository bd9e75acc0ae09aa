/* test_ratio.c: a model with its norms as a ratio, at any variables, against the model that is run with these embeddings, against
   plain loops, and against formulas for the numbers of terms. */

#include "kit.h"

enum { VOCAB = 7, DIM = 4 };

typedef struct setup {
    int64_t tokens;
    tn_transformer_desc d;
    int     moves;              /* directions besides the amplitudes; -1: amplitudes       */
    bool    base;               /* and a base of its own                                   */
} setup;

static bool make(world *w, tn_transformer_desc d, tn_transformer *m)
{
    if (!d.vocab) d.vocab = VOCAB;
    if (!d.dim) d.dim = DIM;
    if (!d.hidden) d.hidden = 3;
    d.context = 6;
    d.init = TN_INIT_NORMAL;
    d.init_std = 0.4;
    if (!CHECK_STATUS(tn_transformer_init(w->params, "", &d, m), TN_OK)) return false;
    for (int64_t i = 0; i < tn_params_count(w->params); i++) {          /* gains and biases matter, too */
        tn_tensor *t = tn_params_at(w->params, i)->value;
        double    *v = host(t);
        for (int64_t k = 0; k < tn_tensor_count(t); k++) v[k] += 0.3 * test_random_real(&w->seed);
        if (!CHECK_STATUS(tn_write(t, TN_F64, v, tn_tensor_count(t)), TN_OK)) return false;
    }
    return true;
}

static tn_tensor *ids_of(world *w, int64_t tokens)
{
    static const int32_t text[6] = {1, 4, 6, 2, 4, 0};
    const int64_t shape[2] = {1, tokens};
    return tn_tensor_from(w->ctx, 2, shape, TN_I32, text);
}

/* The logits of the model when point "embed" is x [T,dim] */
static double *run_with(world *w, const tn_transformer *m, int64_t tokens, const double *x)
{
    const int64_t shape[3] = {1, tokens, m->desc.dim};
    tn_edit       edit = ZERO;
    tn_tap        tap = {"embed", tn_tap_edit, &edit};
    edit.value = tensor_from(w->ctx, 3, shape, x);
    return host(tn_transformer_run(w->ctx, m, ids_of(w, tokens), &tap, 1));
}

static tn_transformer_desc squared(int64_t layers, int64_t heads)
{
    tn_transformer_desc d = ZERO;
    d.layers = layers;
    d.heads = heads;
    d.attention = TN_ATTENTION_SQUARED;
    return d;
}

enum { SETUPS = 17 };

static setup setup_at(int k)
{
    setup s = {2, squared(1, 2), -1, false};
    if (k == 0) s.tokens = 5;
    if (k == 1) { s.d.attention = TN_ATTENTION_BILINEAR; s.tokens = 4; }
    if (k == 2) { s.d.layers = 2; }
    if (k == 3) { s.d.layers = 2; s.d.attention = TN_ATTENTION_BILINEAR; s.d.heads = 1; s.moves = 1; }
    if (k == 4) { s.d.mlp_order = 3; s.d.attn_scale = 0.5; s.d.mlp_scale = TN_SCALE_DEPTH; s.tokens = 3; }
    if (k == 5) { s.d.mlp_order = 1; s.d.layers = 2; s.d.row_scale = TN_ROW_SCALE_MEAN; }
    if (k == 6) { s.d.attn_bias = s.d.attn_out_bias = s.d.mlp_bias = s.d.mlp_out_bias = true; s.tokens = 3; }
    if (k == 7) { s.d.bidirectional = s.d.no_projection = s.d.tied = s.base = true; s.d.hidden = DIM; s.moves = 1; }
    if (k == 8) { s.d.window = 2; s.d.positions = TN_POSITIONS_LEARNED; s.tokens = 5; s.d.embed_norm = true; }
    if (k == 9) { s.d.no_norm = true; s.d.layers = 2; s.d.mlp_out_bias = true; }
    if (k == 10) { s.d.no_norm = true; s.tokens = 3; s.d.attention = TN_ATTENTION_BILINEAR; s.moves = 2; }
    if (k == 11) { s.moves = 2; s.tokens = 3; s.d.no_norm_gain = true; s.d.positions = TN_POSITIONS_NONE; }
    if (k == 12) { s.moves = 0; s.base = true; }
    if (k == 13) { s.d.layers = 2; s.tokens = 1; s.d.d_qk = 4; s.d.d_v = 1; s.d.norm_eps = 0.1; }
    if (k == 14) { s.d.dim = 2; s.d.hidden = 1; s.d.heads = 1; s.d.row_length = 1; s.d.score_scale = 0.7; }
    if (k == 15) {
        s.d.attn_out_bias = s.d.mlp_bias = s.d.mlp_out_bias = true;
        s.d.layers = 2;
        s.d.mlp_order = 1;
        s.moves = 1;
    }
    if (k == 16) {
        s.d.layers = 2;
        s.d.attention_count = 2;
        s.d.attention_cycle[0] = TN_ATTENTION_BILINEAR;
        s.d.attention_cycle[1] = TN_ATTENTION_SQUARED;
        s.d.window_count = 2;
        s.d.window_cycle[1] = 1;
        s.tokens = 3;
    }
    return s;
}

/* The terms of a setup: directions and base in `by` and `from`, where given. */
static bool make_ratio(world *w, const setup *s, const tn_transformer *m, tn_circuit_frozen *f, double **by, double **from,
                       tn_circuit_ratio *r)
{
    const int64_t T = s->tokens, n = m->desc.dim, shape[3] = {s->moves, T, n};
    tn_circuit_ratio_desc d = ZERO;
    if (!CHECK_STATUS(tn_circuit_freeze(w->ctx, m, ids_of(w, T), f), TN_OK)) return false;
    *from = host(f->block[0].run1);
    *by = s->moves > 0 ? noise(w, s->moves * T * n) : doubles(1);
    if (s->moves > 1) memset(*by, 0, (size_t)n * sizeof **by);         /* z_0 does not reach the first position */
    if (s->base) for (int64_t i = 0; i < T * n; i++) (*from)[i] = test_random_real(&w->seed);
    if (s->moves >= 0) d.directions = tensor_from(w->ctx, 3, shape, *by);
    if (s->base) d.base = matrix(w, T, n, *from);
    if (CHECK_STATUS(tn_circuit_ratio_of(f, &d, r), TN_OK)) return true;
    tn_circuit_frozen_destroy(f);
    return false;
}

/* The sum of the terms of p from their powers, for the symbols at z; of coefficient `which` */
static double summed(const tn_circuit_polynomial *p, const double *symbol, int64_t which)
{
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++) {
        double c = p->value[i * p->width + which];
        for (int64_t v = 0; v < p->symbols; v++) for (int k = 0; k < p->power[i * p->symbols + v]; k++) c *= symbol[v];
        sum += c;
    }
    return sum;
}

static void check_terms(const tn_circuit_ratio *r, const tn_tensor *z, const double *logits, const double *symbol, double *worst)
{
    const int64_t T = r->frozen->tokens, V = r->frozen->u->shape[0];
    const double  size = frobenius(logits, T * V);
    for (int64_t t = 0; t < T; t++) {
        tn_circuit_target target = {TN_CIRCUIT_AIM_DIFFERENCE, t, 3, 5};
        tn_circuit_terms  terms;
        if (!CHECK_STATUS(tn_circuit_ratio_terms(r, &target, 0, z, &terms), TN_OK)) return;
        const double want = logits[t * V + 3] - logits[t * V + 5];
        test_raise(worst, fabs(terms.whole - want) / size);
        test_raise(worst, fabs(summed(&terms.list, symbol, 0) - want) / size);
        for (int64_t i = 1; i < terms.list.count; i++)
            CHECK(fabs(terms.list.value[2 * i + 1]) <= fabs(terms.list.value[2 * i - 1]));
        tn_circuit_terms_destroy(&terms);
    }
    for (int64_t v = r->variables; v < r->symbols && !r->frozen->model->desc.no_norm; v++) {
        tn_circuit_terms terms;
        const tn_status  s = tn_circuit_ratio_terms(r, NULL, v, z, &terms);
        if (test_leave_out(s == TN_ERR_MEMORY, "squares of more terms than fit")) tn_ctx_clear_error(r->frozen->ctx);
        if (s == TN_ERR_MEMORY) continue;
        if (!CHECK_STATUS(s, TN_OK)) return;
        test_raise(worst, fabs(terms.whole * symbol[v] * symbol[v] - 1));
        tn_circuit_terms_destroy(&terms);
    }
}

static void compare(tn_dtype dtype)
{
    double worst[2] = {0, 0};
    world  w;
    REQUIRE(open_world(&w, dtype, 31));
    for (int k = 0; k < SETUPS; k++) {
        const setup       s = setup_at(k);
        const int64_t     T = s.tokens;
        tn_transformer    m;
        tn_circuit_frozen f;
        tn_circuit_ratio  r;
        double           *by, *from;
        REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &from, &r));
        const int64_t n = m.desc.dim, vocab = m.desc.vocab;
        CHECK_INT(r.variables, s.moves < 0 ? T : s.moves);
        for (int at = 0; at < 6; at++) {
            double    *z = noise(&w, r.variables + 1), *x = doubles(T * n);
            tn_tensor *zt = at ? vector(&w, r.variables, z) : NULL, *symbols;
            for (int64_t i = 0; i < r.variables; i++) {
                if (at == 0) z[i] = s.moves < 0;
                if (at == 1) z[i] = s.moves < 0 && i == 0 && T > 1 ? 0 : 1;
                if (at == 2) z[i] *= 3;
            }
            if (at) CHECK_STATUS(tn_write(zt, TN_F64, z, r.variables), TN_OK);
            for (int64_t i = 0; i < T * n; i++) {
                x[i] = s.moves < 0 ? z[i / n] * from[i] : from[i];
                for (int j = 0; j < s.moves; j++) x[i] += z[j] * by[j * T * n + i];
            }
            double    *want = run_with(&w, &m, T, x);
            tn_tensor *y = tn_circuit_ratio_logits(&r, zt, false, &symbols);
            test_raise(&worst[0], error_from(y, want, T * vocab));
            if (k != 2 && k != 3 && k != 16 && k != 15) check_terms(&r, zt, want, host(symbols), &worst[1]);
            else if (at == 2 && k == 2) {
                tn_circuit_target target = {TN_CIRCUIT_AIM_LOGIT, 0, 3, 0};
                tn_circuit_terms  terms;
                REQUIRE(tn_circuit_ratio_terms(&r, &target, 0, zt, &terms) == TN_OK);
                test_raise(&worst[1], fabs(terms.whole - want[3]) / frobenius(want, T * vocab));
                tn_circuit_terms_destroy(&terms);
            }
        }
        tn_circuit_ratio_destroy(&r);
        tn_circuit_frozen_destroy(&f);
        fresh(&w);
    }
    report_as("logits of the ratio against the model that is run", dtype, worst[0], 1e-12, 1e-4);
    if (dtype == TN_F64) WORST("sums of terms, and of the squares of scales", worst[1], 1e-11);
    close_world(&w);
}

TEST(ratio_is_the_model) { for (int k = 0; k < 2; k++) compare(f64_f32[k]); }

/* ---- how many terms ----------------------------------------------------------------------------------------- */

static double choose(double n, int k) { return k == 0 ? 1 : choose(n - 1, k - 1) * n / k; }

static int64_t degree_of(const tn_circuit_polynomial *p, int64_t variables)
{
    int64_t most = 0;
    for (int64_t i = 0; i < p->count; i++) {
        int64_t d = 0;
        for (int64_t v = 0; v < variables; v++) d += p->power[i * p->symbols + v];
        if (d > most) most = d;
    }
    return most;
}

/* Amplitudes, blocks of MLPs of order k. In the first block the formula is exact, in the second one a bound. */
TEST(terms_are_as_many_as_the_formula_says)
{
    world w;
    REQUIRE(open_world(&w, TN_F64, 32));
    for (int k = 0; k < 6; k++) {
        const int         order = 1 + k % 3, T = k < 3 ? 5 : 2, L = k < 3 ? 1 : 2;
        tn_circuit_target target = {TN_CIRCUIT_AIM_LOGIT, T - 1, 1, 0};
        setup             s = {T, squared(L, 2), -1, false};
        tn_transformer    m;
        tn_circuit_frozen f;
        tn_circuit_ratio  r, size;
        tn_circuit_terms  terms;
        tn_circuit_ratio_desc only = ZERO;
        double           *by, *from, e[6] = {1, 1, 1, 1, 1, 1}, sum = 0;
        s.d.mlp_order = order;
        REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &from, &r));
        only.size_only = true;
        REQUIRE(tn_circuit_ratio_of(&f, &only, &size) == TN_OK);
        for (int l = 0; l < L; l++) {
            double now[6];
            for (int t = 0; t < T; t++) {
                now[t] = e[t] + choose(e[t] + 4, 5);
                for (int q = 0; q < t; q++) now[t] += choose(e[t] + 1, 2) * choose(e[q] + 2, 3);
                if (l == 0) CHECK_INT(now[t], t + 2);
                if (l == 0) CHECK_INT(r.count[T + t], now[t]);
                else CHECK((double)r.count[3 * T + t] <= now[t]);
                if (l == 1 && t == 1 && order == 2) CHECK_INT(r.count[3 * T + t], 942);
                if (l == 1) CHECK((double)r.count[2 * T + t] <= e[t]);
                CHECK_INT(r.count[2 * l * T + t], l ? e[t] : 1);
            }
            for (int t = 0; t < T && l < L - 1; t++) e[t] = now[t] + choose(now[t] + order - 1, order);
            for (int t = 0; t < T && l == L - 1; t++) sum += now[t];
        }
        CHECK_NEAR(size.terms_bound, sum, 0);
        REFUSED(w.ctx, tn_circuit_ratio_logits(&size, NULL, false, NULL), TN_ERR_ARG, "there are sizes alone, expected terms");
        FAILS(w.ctx, tn_circuit_ratio_terms(&size, &target, 0, NULL, &terms), TN_ERR_ARG, "there are sizes alone");
        CHECK_NEAR(r.terms_bound, sum, 0);
        CHECK_NEAR(r.bytes_bound, 2 * sum * (8.0 * DIM + 2.0 * (double)r.symbols + 16) + T * (sizeof r.x[0] + 16.0 * L), 1e-9);
        const double most_bytes = r.bytes_bound;
        CHECK(size.x[0].count == 1 && size.symbols == r.symbols && size.degree == r.degree);
        CHECK_NEAR(r.degree, L == 1 ? 5 : 25 * order, 0);
        CHECK_INT(degree_of(&r.x[T - 1], r.variables), r.degree);
        const bool all = L == 1 || order < 3;                       /* else more than fit by default */
        CHECK_STATUS(tn_circuit_ratio_terms(&r, &target, 0, NULL, &terms), all ? TN_OK : TN_ERR_MEMORY);
        if (all) CHECK_INT(degree_of(&terms.list, r.variables), order * r.degree);
        const double M = (double)r.count[T + T - 1];
        if (L == 1) CHECK_NEAR(terms.list.count, M + choose(M + order - 1, order), 0);
        if (L == 2 && order == 2) CHECK_INT(terms.list.count, 27813);
        tn_ctx_clear_error(w.ctx);
        tn_circuit_terms_destroy(&terms);
        tn_circuit_ratio_destroy(&size);
        const double rest = (double)tn_ctx_memory(w.ctx).live;
        tn_circuit_ratio_destroy(&r);
        CHECK(rest - (double)tn_ctx_memory(w.ctx).live <= most_bytes);
        tn_circuit_frozen_destroy(&f);
        fresh(&w);
    }
    close_world(&w);
}

/* In one block with an MLP of order 2: the scale of norm2 and the variable of the query have even powers, or odd ones together
   with those of the keys; each key of another position leaves powers of 3, and so a square root. */
TEST(keys_leave_a_square_root)
{
    enum { T = 3 };
    tn_circuit_target target = {TN_CIRCUIT_AIM_LOGIT, T - 1, 1, 0};
    setup             s = {T, squared(1, 2), -1, false};
    tn_transformer    m;
    tn_circuit_frozen f;
    tn_circuit_ratio  r;
    tn_circuit_terms  terms;
    double           *by, *from;
    int               odd = 0;
    world             w;
    REQUIRE(open_world(&w, TN_F64, 33));
    REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &from, &r));
    REQUIRE(tn_circuit_ratio_terms(&r, &target, 0, NULL, &terms) == TN_OK);
    for (int64_t i = 0; i < terms.list.count; i++) {
        const uint16_t *p = terms.list.power + i * r.symbols, *scale = p + T;
        CHECK(scale[3 * T - 1] == 1 && scale[2 * T] == 0 && scale[T] == 0 && scale[T + 1] == 0);   /* norm, norm2 of others */
        CHECK(scale[T + 2] == 0 || scale[T + 2] == 2);
        for (int t = 0; t < T - 1; t++) {
            CHECK(scale[t] % 3 == 0 && scale[t] == p[t]);
            odd += scale[t] % 2;
        }
        CHECK(scale[2] % 5 + (scale[2] % 5 ? 3 : 0) <= 7);
    }
    CHECK(odd > 0);
    tn_circuit_terms_destroy(&terms);
    tn_circuit_ratio_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    close_world(&w);
}

/* ---- plain loops -------------------------------------------------------------------------------------------- */

/* y [rows] = w [rows,n] x */
static void times(const double *w, const double *x, int64_t rows, int64_t n, double *y)
{
    for (int64_t i = 0; i < rows; i++) y[i] = dot(w + i * n, x, n);
}

/* The terms of one block with two tokens, one head, no positions and an MLP of order 2, by hand: the residual stream of the
   last position has the terms e1 z1,  a z1^2 z0^3,  b z1^5 with their scales, and the MLP all products of two of them. */
TEST(coefficients_are_those_of_plain_loops)
{
    enum { N = 3, H = 2, D = 3 };
    tn_circuit_target target = {TN_CIRCUIT_AIM_LOGIT, 1, 2, 0};
    setup             s = {2, squared(1, 1), -1, false};
    tn_transformer    m;
    tn_circuit_frozen f;
    tn_circuit_ratio  r;
    tn_circuit_terms  terms;
    double           *by, *e, term[3][N], u[N], worst = 0;
    world             w;
    REQUIRE(open_world(&w, TN_F64, 34));
    s.d.dim = N;
    s.d.hidden = H;
    s.d.no_norm_gain = true;
    s.d.positions = TN_POSITIONS_NONE;
    REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &e, &r));
    const tn_transformer_block *b = m.blocks;
    double *qk = host(b->attn.qk), *v = host(b->attn.v), *o = host(b->attn.o), *W = host(b->mlp.w), *P = host(b->mlp.p);
    memcpy(u, host(m.head.w) + 2 * N, sizeof u);
    memcpy(term[0], e + N, sizeof term[0]);
    for (int key = 0; key < 2; key++) {
        double q[D], k[D], value[D];
        times(qk, e + N, D, N, q);
        times(qk + D * N, e + key * N, D, N, k);
        times(v, e + key * N, D, N, value);
        times(o, value, N, D, term[1 + key]);
        const double score = dot(q, k, D) / D;                  /* both tokens are seen, fewer than the row scale's length */
        for (int i = 0; i < N; i++) term[1 + key][i] *= score * score;
    }
    REQUIRE(tn_circuit_ratio_terms(&r, &target, 0, NULL, &terms) == TN_OK);
    CHECK_INT(terms.list.count, 9);
    for (int i = 0; i < 3; i++) for (int j = i; j < 4; j++) {         /* j = 3: term i passes the MLP by */
        static const int z0[4] = {0, 3, 0, 0}, z1[4] = {1, 2, 5, 0}, r1[4] = {0, 2, 5, 0};
        double want = j == 3 ? dot(u, term[i], N) : 0;
        for (int h = 0; h < H && j < 3; h++) {
            double a = dot(W + h * N, term[i], N) * dot(W + (H + h) * N, term[j], N), p = 0;
            if (i != j) a += dot(W + h * N, term[j], N) * dot(W + (H + h) * N, term[i], N);
            for (int k = 0; k < N; k++) p += u[k] * P[k * H + h];
            want += a * p;
        }
        const uint16_t power[8] = {(uint16_t)(z0[i] + z0[j]), (uint16_t)(z1[i] + z1[j]), (uint16_t)(z0[i] + z0[j]),
                                   (uint16_t)(r1[i] + r1[j]), 0, (uint16_t)(j < 3 ? 2 : 0), 0, 1};
        int found = 0;
        for (int64_t at = 0; at < terms.list.count; at++) {
            if (memcmp(terms.list.power + at * 8, power, sizeof power) != 0) continue;
            test_raise(&worst, fabs(terms.list.value[2 * at] - want) / frobenius(u, N));
            found++;
        }
        CHECK_INT(found, 1);
    }
    tn_circuit_terms_destroy(&terms);
    tn_circuit_ratio_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    WORST("coefficients against plain loops", worst, 1e-13);
    close_world(&w);
}

/* With the scales held, amplitudes of z each give the polynomial of tn_circuit_parts_of by degree. */
TEST(held_scales_are_the_frozen_network)
{
    tn_circuit_target     target = {TN_CIRCUIT_AIM_LOGIT, 1, 4, 0};
    tn_circuit_parts_desc pd = ZERO;
    setup             s = {2, squared(2, 2), -1, false};
    tn_transformer    m;
    tn_circuit_frozen f;
    tn_circuit_ratio  r;
    tn_circuit_parts  p;
    double           *by, *from, worst = 0;
    world             w;
    REQUIRE(open_world(&w, TN_F64, 35));
    REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &from, &r));
    pd.by = TN_CIRCUIT_BY_DEGREE;
    pd.patterns = true;
    REQUIRE(tn_circuit_parts_of(&f, &target, &pd, &p) == TN_OK);
    double *part = host(p.values);
    for (int i = -2; i <= 3; i++) {
        const double z[2] = {0.4 * i, 0.4 * i};
        double       want = 0;
        for (int64_t d = p.count - 1; d >= 0; d--) want = want * z[0] + part[d];
        const double got = host(tn_circuit_ratio_logits(&r, vector(&w, 2, z), true, NULL))[VOCAB + 4];
        test_raise(&worst, fabs(got - want) / (fabs(want) > 1 ? fabs(want) : 1));
    }
    test_raise(&worst, error_from(tn_circuit_ratio_logits(&r, NULL, true, NULL), host(f.logits), 2 * VOCAB));
    tn_circuit_parts_destroy(&p);
    tn_circuit_ratio_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    WORST("scales of the run, against parts by degree", worst, 1e-12);
    close_world(&w);
}

TEST(amplitudes_far_from_one_stay_finite)
{
    setup             s = {2, squared(2, 1), -1, false};
    tn_transformer    m;
    tn_circuit_frozen f;
    tn_circuit_ratio  r;
    double           *by, *from, worst = 0;
    world             w;
    REQUIRE(open_world(&w, TN_F64, 36));
    s.d.norm_eps = 1e-30;
    REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &from, &r));
    double *want = host(tn_circuit_ratio_logits(&r, NULL, false, NULL));
    for (int i = 0; i < 2; i++) {
        const double z[2] = {i ? 1e-6 : 1e6, i ? 1e-6 : 1e6}, x = z[0];
        double *moved = doubles(2 * DIM);
        for (int k = 0; k < 2 * DIM; k++) moved[k] = x * from[k];
        want = run_with(&w, &m, 2, moved);
        test_raise(&worst, error_from(tn_circuit_ratio_logits(&r, vector(&w, 2, z), false, NULL), want, 2 * VOCAB));
    }
    tn_circuit_ratio_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    WORST("amplitudes of 1e6 and 1e-6 in two blocks", worst, 1e-12);
    close_world(&w);
}

/* ---- what is refused ---------------------------------------------------------------------------------------- */

TEST(parts_that_are_no_ratio_are_named)
{
    static const char *const message[] = {
        "circuit_ratio: the model has norm_place TN_PLACE_SANDWICH, expected", "the model has norm TN_NORM_LAYER",
        "the model has x0_residual", "the model has softcap", "block 0 has qk_norm, expected", "block 0 has head_norm",
        "block 0 has softmax", "block 0 has differential", "block 0 has row_scale TN_ROW_SCALE_SUM", "block 1 has swiglu"
    };
    world w;
    REQUIRE(open_world(&w, TN_F64, 37));
    for (int k = 0; k < 10; k++) {
        tn_transformer_desc d = squared(2, 1);
        tn_transformer      m;
        tn_circuit_frozen   f;
        tn_circuit_ratio    r;
        if (k == 0) d.norm_place = TN_PLACE_SANDWICH;
        if (k == 1) d.norm = TN_NORM_LAYER;
        if (k == 2) d.x0_residual = true;
        if (k == 3) d.softcap = 3;
        if (k == 4) d.qk_norm = true;
        if (k == 5) d.head_norm = true;
        if (k == 6) d.attention = TN_ATTENTION_SOFTMAX;
        if (k == 7) d.attention = TN_ATTENTION_DIFFERENTIAL;
        if (k == 8) d.row_scale = TN_ROW_SCALE_SUM;
        if (k == 9) { d.mlp_count = 2; d.mlp_cycle[0] = TN_MLP_BILINEAR; d.mlp_cycle[1] = TN_MLP_SWIGLU; }
        REQUIRE(make(&w, d, &m));
        REQUIRE(tn_circuit_freeze(w.ctx, &m, ids_of(&w, 2), &f) == TN_OK);
        FAILS(w.ctx, tn_circuit_ratio_of(&f, NULL, &r), TN_ERR_ARG, message[k]);
        CHECK(!r.frozen && !r.x && !r.count);
        tn_circuit_frozen_destroy(&f);
        fresh(&w);
    }
    close_world(&w);
}

TEST(bad_input_is_named)
{
    const int64_t         three[3] = {2, 1, DIM};
    tn_circuit_target     target = {TN_CIRCUIT_AIM_LOGIT, 3, 1, 0};
    tn_circuit_ratio_desc d = ZERO;
    setup             s = {3, squared(2, 2), -1, false};
    tn_transformer    m;
    tn_circuit_frozen f;
    tn_circuit_ratio  r;
    tn_circuit_terms  terms;
    double           *by, *from;
    char              name[64];
    world             w;
    REQUIRE(open_world(&w, TN_F64, 38));
    REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &from, &r));
    FAILS(w.ctx, tn_circuit_ratio_terms(&r, &target, 0, NULL, &terms), TN_ERR_ARG, "the target is aim 0, position 3");
    FAILS(w.ctx, tn_circuit_ratio_terms(&r, NULL, 2, NULL, &terms), TN_ERR_ARG, "symbol is 2, expected 3 to 17");
    FAILS(w.ctx, tn_circuit_ratio_terms(&r, NULL, 18, NULL, &terms), TN_ERR_ARG, "symbol is 18");
    FAILS(w.ctx, tn_circuit_ratio_terms(&r, NULL, 3, any_vector(&w, 2), &terms), TN_ERR_SHAPE, "z is [2], expected [3]");
    REFUSED(w.ctx, tn_circuit_ratio_logits(&r, any_vector(&w, 4), false, NULL), TN_ERR_SHAPE, "z is [4], expected [3]");
    FAILS(w.ctx, tn_circuit_ratio_terms(&r, NULL, 3, NULL, NULL), TN_ERR_ARG, "out is NULL");
    FAILS(w.ctx, tn_circuit_ratio_of(&f, NULL, NULL), TN_ERR_ARG, "out is NULL");
    target.position = 2;                                            /* 5,417 terms, and their products of two */
    FAILS(w.ctx, tn_circuit_ratio_terms(&r, &target, 0, NULL, &terms), TN_ERR_MEMORY,
          "circuit_ratio: the terms have up to 1.46801e+07 coefficients in 1.46801e+07 terms, together");
    CHECK(!terms.ratio && tn_circuit_term_name(&terms, 0, name, sizeof name) == -1);
    d.base = any_matrix(&w, 3, DIM);
    tn_circuit_ratio none;
    FAILS(w.ctx, tn_circuit_ratio_of(&f, &d, &none), TN_ERR_SHAPE, "base is [3,4], expected [3,4] and directions");
    d.directions = any_matrix(&w, 3, DIM);
    FAILS(w.ctx, tn_circuit_ratio_of(&f, &d, &none), TN_ERR_SHAPE, "directions are [3,4], expected [m,3,4]");
    d.directions = tensor_from(w.ctx, 3, three, from);
    FAILS(w.ctx, tn_circuit_ratio_of(&f, &d, &none), TN_ERR_SHAPE, "directions are [2,1,4], expected [m,3,4]");
    d.directions = NULL;
    d.base = NULL;
    d.max_bytes = 10000;
    const uint64_t before = tn_ctx_memory(w.ctx).allocations, peak = tn_ctx_memory(w.ctx).live;
    FAILS(w.ctx, tn_circuit_ratio_of(&f, &d, &none), TN_ERR_MEMORY, "circuit_ratio: the numerators have up to 130336 "
          "coefficients in 32584 terms, together 5.47");
    CHECK(tn_ctx_memory(w.ctx).allocations - before < 30 && tn_ctx_memory(w.ctx).live == peak && !none.frozen);
    REQUIRE(tn_circuit_ratio_terms(&r, NULL, 3, NULL, &terms) == TN_OK);      /* z0^2 mean e0^2 + eps */
    CHECK_INT(terms.list.count, 2);
    CHECK_INT(tn_circuit_term_name(&terms, 0, name, sizeof name), 4);
    CHECK_STR(name, "z0^2");
    CHECK_INT(tn_circuit_term_name(&terms, 1, name, 1), 1);
    CHECK_STR(name, "");
    CHECK_INT(tn_circuit_term_name(&terms, 2, name, sizeof name), -1);
    CHECK_NEAR(terms.list.value[0], dot(from, from, DIM) / DIM, 1e-14);
    tn_circuit_terms_destroy(&terms);
    tn_circuit_ratio_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    fresh(&w);
    s.d.no_norm = true;
    REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &from, &r));
    FAILS(w.ctx, tn_circuit_ratio_terms(&r, NULL, 3, NULL, &terms), TN_ERR_ARG, "target is NULL and there are no norms");
    tn_circuit_ratio_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    close_world(&w);
}

/* Each allocation fails once. What is left would be seen when the world closes. */
TEST(no_memory_leaves_nothing)
{
    tn_circuit_target target = {TN_CIRCUIT_AIM_LOGIT, 1, 1, 0};
    setup             s = {2, squared(2, 1), -1, false};
    tn_transformer    m;
    tn_circuit_frozen f;
    tn_circuit_ratio  r;
    tn_circuit_terms  terms;
    double           *by, *from;
    uint64_t          failed = 0;
    world             w;
    REQUIRE(open_world(&w, TN_F64, 39));
    s.d.mlp_order = 1;
    s.d.mlp_bias = s.d.attn_out_bias = true;
    REQUIRE(make(&w, s.d, &m) && make_ratio(&w, &s, &m, &f, &by, &from, &r));
    for (uint64_t k = 1, done = 0; !done; k += 1 + k / 64) {
        tn_circuit_ratio made;
        w.heap.fail_at = w.heap.count + k;
        const bool all = tn_circuit_ratio_of(&f, NULL, &made) == TN_OK
                      && tn_circuit_ratio_terms(&made, &target, 0, NULL, &terms) == TN_OK;
        done = w.heap.count < w.heap.fail_at;
        failed += !done;
        CHECK(all == (done != 0));
        w.heap.fail_at = 0;
        tn_circuit_terms_destroy(all ? &terms : NULL);
        tn_circuit_ratio_destroy(&made);
        tn_ctx_clear_error(w.ctx);
        if (!CHECK(k < 100000)) break;
    }
    CHECK(failed > 50);
    tn_circuit_ratio_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    close_world(&w);
}

TEST_MAIN(ratio_is_the_model, terms_are_as_many_as_the_formula_says, keys_leave_a_square_root,
          coefficients_are_those_of_plain_loops, held_scales_are_the_frozen_network, amplitudes_far_from_one_stay_finite,
          parts_that_are_no_ratio_are_named, bad_input_is_named, no_memory_leaves_nothing)
