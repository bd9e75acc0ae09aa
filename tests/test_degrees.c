/* test_degrees.c: logits by degree in the embeddings, against models with scaled embeddings and an independent program. */
#include "model.h"

enum { KINDS = 12 };

/* Polynomial models of all kinds: attention, positions, orders, residuals, biases. */
static tn_transformer_desc polynomial(int k)
{
    tn_transformer_desc d = tiny();
    d.no_norm = true;
    d.attention = k % 2 ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SQUARED;
    d.positions = k % 3 == 0 ? TN_POSITIONS_ROPE : k % 3 == 1 ? TN_POSITIONS_NONE : TN_POSITIONS_LEARNED;
    d.layers = k < 9 ? 1 + k % 2 : 1;
    if (k == 2 || k == 9) d.attn_bias = d.attn_out_bias = d.mlp_bias = d.mlp_out_bias = true;
    if (k == 3) d.x0_residual = true;
    if (k == 4) d.row_scale = TN_ROW_SCALE_MEAN, d.tied = true;
    if (k == 6) d.window = 2, d.bidirectional = true, d.d_qk = 3, d.d_v = 1;
    if (k == 7) d.hidden = 0, d.no_projection = true, d.attn_scale = 0.3, d.mlp_scale = TN_SCALE_DEPTH;
    if (k == 8) d.mlp_order = 3;
    if (k == 10) d.mlp_order = 1;
    if (k == 11) d.dim = d.heads = 1, d.vocab = 2;
    return d;
}

static bool freeze(world *w, const tn_transformer_desc *d, int64_t tokens, uint64_t seed, tn_transformer *m, tn_circuit_frozen *f)
{
    return model_on(w, TN_F64, d, m, seed)
        && CHECK_STATUS(tn_circuit_freeze(w->ctx, m, ids_of(w->ctx, d, 1, tokens, seed + 1), f), TN_OK);
}

static void scale_tensor(tn_tensor *t, double by)
{
    double *v = host(t);
    for (int64_t i = 0; i < tn_tensor_count(t); i++) v[i] *= by;
    CHECK_STATUS(tn_write(t, TN_F64, v, tn_tensor_count(t)), TN_OK);
}

/* The largest |a - b| over the largest |b|; in size a has the scale of `unit`, the largest if it is larger. */
static double apart(const double *a, const double *b, int64_t n, double unit)
{
    double worst = 0, size = unit;
    for (int64_t i = 0; i < n; i++) { test_raise(&worst, fabs(a[i] - b[i])); if (fabs(b[i]) > size) size = fabs(b[i]); }
    return size > 0 ? worst / size : worst;
}

/* sum_d s^d part[d] */
static double *series(const double *part, int64_t count, int64_t n, double s)
{
    double *sum = doubles(n);
    for (int64_t d = count - 1; d >= 0; d--) for (int64_t i = 0; i < n; i++) sum[i] = sum[i] * s + part[d * n + i];
    return sum;
}

/* A polynomial is known by its values at more points than its degree: here at Chebyshev's, of a model whose embeddings are
   multiplied by each of them. */
TEST(parts_are_those_of_scaled_embeddings)
{
    double worst = 0, whole = 0;
    for (int k = 0; k < KINDS; k++) {
        tn_transformer_desc d = polynomial(k);
        tn_transformer      m;
        tn_circuit_frozen   f;
        tn_circuit_degrees  r;
        world               w;
        const int64_t       T = k % 4 == 1 ? 1 : 2 + k % 3, n = T * d.vocab;
        if (!freeze(&w, &d, T, 5 + (uint64_t)k, &m, &f)) return;
        if (CHECK_STATUS(tn_circuit_degrees_of(&f, NULL, &r), TN_OK)) {
            const double most = d.mlp_order ? (double)d.mlp_order : 2;
            double      *part = host(r.logits), last = 1;
            CHECK_NEAR(r.highest, pow(5 * most, (double)d.layers), 0);
            CHECK_INT(r.count, (int64_t)r.highest + 1);
            CHECK(r.held == NULL);
            test_raise(&whole, r.rest);
            for (int64_t i = 0; i < r.count; i++) {
                const double s = 1.05 * cos(3.14159265358979323846 * ((double)i + 0.5) / (double)r.count);
                tn_tensor   *ids = ids_of(w.ctx, &d, 1, T, 6 + (uint64_t)k);
                double       size = 0, *other = host(f.logits);
                for (int64_t e = 0; e < n; e++) if (fabs(other[e]) > size) size = fabs(other[e]);
                if (d.tied) continue;
                scale_tensor(m.embed.w, s / last);
                if (m.position) scale_tensor(m.position, s / last);
                last = s;
                test_raise(&worst, apart(series(part, r.count, n, s), host(tn_transformer_forward(w.ctx, &m, ids)), n, size));
            }
            tn_circuit_degrees_destroy(&r);
        }
        tn_circuit_frozen_destroy(&f);
        close_world(&w);
        tidy();
    }
    WORST("sum of the parts against the model", whole, 1e-12);
    WORST("series at scaled embeddings against the model", worst, 1e-11);
}

/* tools/golden_degrees.py: by a discrete Fourier transform over complex embeddings. Sums of (i + 1) times each logit. */
TEST(parts_of_an_independent_program)
{
    static const double golden[] = {
        4.506845941547665e-17, 1.742187500000001e+00, -1.061476945877075e+00,
        -8.950268384069197e-03, -3.383904275735519e-03, 1.505087275130455e-02,
        -8.675426832363645e-03, 1.516844232560327e-03, -3.809131787455237e-04,
        1.935049518169174e-04, -1.589327064564709e-04, 5.898036031740408e-05,
        -1.380376694187669e-05, 4.361899377091534e-06, -2.733331554115933e-06,
        1.084857449810755e-06, -2.909437059133443e-07, 8.287843071291658e-08,
        -3.400166420531858e-08, 1.405300320391195e-08, -4.788041962910938e-09
    };
    const int32_t       ids[3] = {1, 4, 2};
    const int64_t       shape[2] = {1, 3};
    tn_transformer_desc d = tiny();
    tn_transformer      m;
    tn_circuit_frozen   f;
    tn_circuit_degrees  r;
    double              worst = 0;
    world               w;
    REQUIRE(open_world(&w, TN_F64, 1));
    d.attention = TN_ATTENTION_BILINEAR;
    d.no_norm = true;
    REQUIRE(tn_transformer_init(w.params, "", &d, &m) == TN_OK);
    for (int64_t i = 0, n = 0; i < tn_params_count(w.params); i++) {
        tn_tensor *t = tn_params_at(w.params, i)->value;
        double    *v = doubles(tn_tensor_count(t));
        for (int64_t e = 0; e < tn_tensor_count(t); e++, n++) v[e] = (double)(37 * n % 19 - 9) / 16;
        CHECK_STATUS(tn_write(t, TN_F64, v, tn_tensor_count(t)), TN_OK);
    }
    REQUIRE(tn_circuit_freeze(w.ctx, &m, tn_tensor_from(w.ctx, 2, shape, TN_I32, ids), &f) == TN_OK);
    REQUIRE(tn_circuit_degrees_of(&f, NULL, &r) == TN_OK);
    CHECK_INT(r.count, 101);
    const double *part = host(r.logits);
    for (int k = 0; k < 21; k++) {
        double sum = 0;
        for (int i = 0; i < 15; i++) sum += (i + 1) * part[k * 15 + i];
        test_raise(&worst, fabs(sum - golden[k]));
    }
    WORST("parts of an independent program", worst, 1e-13);
    tn_circuit_degrees_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    close_world(&w);
}

/* With fewer degrees the first parts are the same, and the rest is what is missing. */
TEST(low_degrees_alone)
{
    double worst = 0;
    for (int k = 1; k < 6; k += 2) {
        tn_transformer_desc     d = polynomial(k);
        tn_transformer          m;
        tn_circuit_frozen       f;
        tn_circuit_degrees      all, low;
        tn_circuit_degrees_desc how = ZERO;
        world                   w;
        const int64_t           n = 3 * d.vocab;
        REQUIRE(freeze(&w, &d, 3, 20 + (uint64_t)k, &m, &f) && tn_circuit_degrees_of(&f, NULL, &all) == TN_OK);
        double *part = host(all.logits), *want = host(f.logits);
        for (int64_t most = 1; most <= all.count; most += k == 1 ? 1 : 7) {
            how.max_degree = most;
            if (!CHECK_STATUS(tn_circuit_degrees_of(&f, &how, &low), TN_OK)) continue;
            CHECK_INT(low.count, most < all.count ? most + 1 : all.count);
            CHECK_NEAR(low.highest, all.highest, 0);
            test_raise(&worst, apart(host(low.logits), part, low.count * n, 0));
            CHECK_NEAR(low.rest, apart(series(part, low.count, n, 1), want, n, 0), 1e-12);
            tn_circuit_degrees_destroy(&low);
        }
        tn_circuit_degrees_destroy(&all);
        tn_circuit_frozen_destroy(&f);
        close_world(&w);
        tidy();
    }
    WORST("parts of a low degree against those of all", worst, 1e-14);
}

/* Parts that are held are named, and the sum is the model all the same; each part is that of tn_circuit_parts_of. */
TEST(what_is_held_is_named)
{
    static const char *const names[] = {NULL, "norms", "norms", "patterns", "a soft cap", "swiglu", "norms"};
    double whole = 0, worst = 0;
    for (int k = 0; k < 7; k++) {
        tn_transformer_desc     d = polynomial(1);
        tn_transformer          m;
        tn_circuit_frozen       f;
        tn_circuit_degrees      r;
        tn_circuit_parts        p;
        tn_circuit_degrees_desc how = ZERO;
        tn_circuit_parts_desc   pd = ZERO;
        tn_circuit_target       target = {TN_CIRCUIT_AIM_LOGIT, 2, 1, 0};
        world                   w;
        if (k == 1 || k == 6) d.no_norm = false;
        if (k == 2) d.no_norm = false, d.embed_norm = true;
        if (k == 3) d.attention = TN_ATTENTION_SOFTMAX, how.hold_patterns = true;
        if (k == 4) d.softcap = 2;
        if (k == 5) d.mlp = TN_MLP_SWIGLU, d.mlp_order = 0;
        if (k == 6) d.norm_place = TN_PLACE_SANDWICH;
        REQUIRE(freeze(&w, &d, 4, 31 + (uint64_t)k, &m, &f));
        if (CHECK_STATUS(tn_circuit_degrees_of(&f, &how, &r), TN_OK)) {
            pd.by = TN_CIRCUIT_BY_DEGREE;
            pd.patterns = !how.hold_patterns;
            if (!names[k]) CHECK(r.held == NULL);
            else CHECK_STR(r.held, names[k]);
            CHECK_NEAR(r.highest, k == 3 ? 4 : k == 5 ? 25 : 100, 0);
            test_raise(&whole, r.rest);
            if (k != 4 && CHECK_STATUS(tn_circuit_parts_of(&f, &target, &pd, &p), TN_OK)) {
                double *one = host(p.values), *all = host(r.logits);
                CHECK_INT(p.count, r.count);
                for (int64_t i = 0; i < r.count; i++) test_raise(&worst, fabs(one[i] - all[(i * 4 + 2) * d.vocab + 1]));
                tn_circuit_parts_destroy(&p);
            }
            tn_circuit_degrees_destroy(&r);
        }
        tn_circuit_frozen_destroy(&f);
        close_world(&w);
        tidy();
    }
    WORST("sum of the parts against the model", whole, 1e-12);
    WORST("against the parts of one logit", worst, 1e-12);
}

/* Zeros in the frozen network remove attention, MLPs, and all tokens but a position's own. */
TEST(parts_without_components)
{
    double worst[3] = {0, 0, 0};
    for (int k = 0; k < 3; k++) {
        tn_transformer_desc d = polynomial(3);
        tn_transformer      m;
        tn_circuit_frozen   f;
        tn_circuit_degrees  r;
        world               w;
        const int64_t       T = 4;
        REQUIRE(freeze(&w, &d, T, 41, &m, &f));
        for (int64_t l = 0; l < d.layers; l++) {
            if (k == 0) scale_tensor(f.block[l].o, 0), scale_tensor(m.blocks[l].attn.o, 0);
            if (k == 1) scale_tensor(f.block[l].p, 0), scale_tensor(m.blocks[l].mlp.p, 0);
            if (k == 2) {
                double *mask = host(f.block[l].mask);
                for (int64_t i = 0; i < T * T; i++) mask[i] *= i / T == i % T;
                CHECK_STATUS(tn_write(f.block[l].mask, TN_F64, mask, T * T), TN_OK);
                m.blocks[l].attn.desc.window = 1;
            }
        }
        if (CHECK_STATUS(tn_circuit_degrees_of(&f, NULL, &r), TN_OK)) {
            double *want = host(tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 1, T, 42)));
            worst[k] = apart(series(host(r.logits), r.count, T * d.vocab, 1), want, T * d.vocab, 0);
            CHECK(r.rest > 1e-6);
            tn_circuit_degrees_destroy(&r);
        }
        tn_circuit_frozen_destroy(&f);
        close_world(&w);
        tidy();
    }
    WORST("without attention", worst[0], 1e-12);
    WORST("without MLPs", worst[1], 1e-12);
    WORST("of a position's own token", worst[2], 1e-12);
}

TEST(degrees_refuse)
{
    static const char *const whys[] = {
        "circuit_degrees: hold_patterns is false, but block 0 has softmax patterns",
        "circuit_degrees: hold_patterns is false, but block 0 has bilinear patterns with a norm, expected",
        "circuit_degrees: hold_patterns is false, but block 0 has squared patterns with a norm, expected"};
    tn_transformer_desc     d = polynomial(3);
    tn_transformer          m;
    tn_circuit_frozen       f, empty = ZERO;
    tn_circuit_degrees      r;
    tn_circuit_degrees_desc how = ZERO;
    world                   w;
    REQUIRE(freeze(&w, &d, 3, 51, &m, &f));
    CHECK_STATUS(tn_circuit_degrees_of(NULL, NULL, &r), TN_ERR_ARG);
    CHECK_STATUS(tn_circuit_degrees_of(&empty, NULL, &r), TN_ERR_ARG);
    FAILS(w.ctx, tn_circuit_degrees_of(&f, NULL, NULL), TN_ERR_ARG, "circuit_degrees: out is NULL");
    how.max_degree = -1;
    FAILS(w.ctx, tn_circuit_degrees_of(&f, &how, &r), TN_ERR_ARG, "circuit_degrees: max_degree is -1, expected 0 to 10000");
    how.max_degree = 10001;
    FAILS(w.ctx, tn_circuit_degrees_of(&f, &how, &r), TN_ERR_ARG, "circuit_degrees: max_degree is 10001, expected 0 to 10000");
    CHECK(!r.logits && r.count == 0);
    scale_tensor(f.block[1].qk, 1e150);
    FAILS(w.ctx, tn_circuit_degrees_of(&f, NULL, &r), TN_ERR_NONFINITE, "circuit_degrees: a part of a logit is not finite");
    CHECK(!r.logits);
    tn_circuit_degrees_destroy(NULL);
    tn_circuit_degrees_destroy(&r);
    tn_circuit_frozen_destroy(&f);
    close_world(&w);
    for (int k = 0; k < 3; k++) {
        d = polynomial(1);
        if (k == 0) d.attention = TN_ATTENTION_SOFTMAX;
        if (k == 1) d.no_norm = false, d.qk_norm = true;
        if (k == 2) d.attention = TN_ATTENTION_SQUARED, d.row_scale = TN_ROW_SCALE_SUM;
        REQUIRE(freeze(&w, &d, 3, 61, &m, &f));
        FAILS(w.ctx, tn_circuit_degrees_of(&f, NULL, &r), TN_ERR_ARG, whys[k]);
        how.max_degree = 0;
        how.hold_patterns = true;
        CHECK_STATUS(tn_circuit_degrees_of(&f, &how, &r), TN_OK);
        CHECK(r.rest < 1e-12);
        CHECK_STR(r.held, k == 1 ? "norms" : "patterns");
        tn_circuit_degrees_destroy(&r);
        tn_circuit_frozen_destroy(&f);
        close_world(&w);
    }
}

TEST(degrees_without_memory)
{
    tn_transformer_desc     d = polynomial(0);
    tn_transformer          m;
    tn_circuit_frozen       f;
    tn_circuit_degrees_desc how = {4, false};
    world                   w;
    REQUIRE(freeze(&w, &d, 2, 71, &m, &f));
    for (uint64_t fail = 1; fail < 400; fail++) {
        const tn_memory    before = tn_ctx_memory(w.ctx);
        tn_circuit_degrees r;
        w.heap.fail_at = w.heap.count + fail;
        const tn_status s = tn_circuit_degrees_of(&f, &how, &r);
        w.heap.fail_at = 0;
        if (s == TN_OK) {
            CHECK(fail > 1);
            tn_circuit_degrees_destroy(&r);
            break;
        }
        CHECK_STATUS(s, TN_ERR_MEMORY);
        CHECK(!r.logits);
        CHECK_INT(tn_ctx_memory(w.ctx).live - tn_ctx_memory(w.ctx).arena, before.live - before.arena);
        tn_ctx_clear_error(w.ctx);
    }
    tn_circuit_frozen_destroy(&f);
    close_world(&w);
}

TEST_MAIN(parts_are_those_of_scaled_embeddings, parts_of_an_independent_program, low_degrees_alone, what_is_held_is_named,
          parts_without_components, degrees_refuse, degrees_without_memory)
