/* test_models.c: transformers. Gradients, decoding, counts, names, config.json, weights of others, sampling, learning. */

#include "golden_models.h"
#include "world.h"

/* ---- descs: one of everything ------------------------------------------------------------------------------ */

static tn_transformer_desc tiny(void)
{
    tn_transformer_desc d;
    memset(&d, 0, sizeof d);
    d.vocab = 5;
    d.layers = 2;
    d.dim = 4;
    d.heads = 2;
    d.context = 7;
    d.hidden = 3;
    return d;
}

enum { VARIANTS = 22 };

/* Every attention, every norm and place, every option at least once. */
static tn_transformer_desc variant(int k, const char **what)
{
    tn_transformer_desc d = tiny();
    *what = "as it comes";
    switch (k) {
    case 1:  *what = "squared"; d.attention = TN_ATTENTION_SQUARED; d.mlp = TN_MLP_SWIGLU; break;
    case 2:  *what = "squared, linear form"; d.attention = TN_ATTENTION_SQUARED; d.form = TN_ATTEND_LINEAR; break;
    case 3:  *what = "squared, row sum"; d.attention = TN_ATTENTION_SQUARED; d.row = TN_ROW_SUM; d.attn_bias = true; break;
    case 4:  *what = "bilinear"; d.attention = TN_ATTENTION_BILINEAR; d.row = TN_ROW_MEAN; break;
    case 5:  *what = "bilinear, linear form, short rows";
             d.attention = TN_ATTENTION_BILINEAR; d.form = TN_ATTEND_LINEAR; d.row_length = 2; d.qk_norm = true; break;
    case 6:  *what = "differential"; d.attention = TN_ATTENTION_DIFFERENTIAL; d.d_qk = 3; d.d_v = 1; break;
    case 7:  *what = "plain differential"; d.attention = TN_ATTENTION_DIFFERENTIAL_PLAIN; d.lambda_init = 0.3; break;
    case 8:  *what = "LayerNorm, all biases, learned positions, tied, GELU of GPT-2";
             d.norm = TN_NORM_LAYER; d.attn_bias = d.attn_out_bias = d.mlp_bias = d.mlp_out_bias = d.tied = true;
             d.positions = TN_POSITIONS_LEARNED; d.mlp = TN_MLP_GELU_TANH; break;
    case 9:  *what = "modded-nanoGPT's residuals, soft-cap";
             d.x0_residual = d.value_residual = d.embed_norm = d.no_gain = d.qk_norm = true; d.softcap = 3; d.layers = 3; break;
    case 10: *what = "post norm"; d.place = TN_NORM_POST; d.norm = TN_NORM_LAYER; d.no_norm_bias = true; d.mlp = TN_MLP_SWISH; break;
    case 11: *what = "sandwich"; d.place = TN_NORM_SANDWICH; d.embed_norm = true; d.norm_eps = 0.01; break;
    case 12: *what = "no norm, no positions, scaled branches";
             d.no_norm = true; d.positions = TN_POSITIONS_NONE; d.attn_scale = TN_SCALE_DEPTH; d.mlp_scale = 0.7; break;
    case 13: *what = "three encoders"; d.order = 3; d.mlp_bias = d.mlp_out_bias = true; break;
    case 14: *what = "no projection"; d.hidden = 0; d.no_projection = true; break;
    case 15: *what = "window, tied, soft-cap"; d.window = 2; d.tied = true; d.softcap = 2; d.rope_base = 100; break;
    case 16: *what = "not causal"; d.not_causal = true; d.head_norm = true; d.score_scale = 0.4; d.mlp = TN_MLP_GELU; break;
    case 17: *what = "one layer, one head, dim 1"; d.layers = d.heads = d.dim = d.context = 1; d.attn_out_bias = true; break;
    case 18: *what = "heads wider than the model"; d.d_qk = 5; d.d_v = 6; d.mlp = TN_MLP_GEGLU; break;
    case 19: *what = "value residual, bilinear attention, post norm, tied";
             d.attention = TN_ATTENTION_BILINEAR; d.value_residual = d.tied = true; d.place = TN_NORM_POST; break;
    case 20: *what = "linear MLP"; d.order = 1; d.hidden = 0; break;
    case 21: *what = "GLU, sandwich of LayerNorms without gain";
             d.mlp = TN_MLP_GLU; d.place = TN_NORM_SANDWICH; d.norm = TN_NORM_LAYER; d.no_gain = true; break;
    default: break;
    }
    return d;
}

/* Numbers that make every part matter: what begins as 0 or 1 hides its gradient. */
static bool stir(tn_params *ps, uint64_t seed, double size)
{
    int64_t i, k;
    for (i = 0; i < tn_params_count(ps); i++) {
        tn_tensor *t = tn_params_at(ps, i)->value;
        int64_t    n = tn_tensor_count(t);
        double    *v = (double *)malloc(sizeof *v * (size_t)n);
        bool       ok = CHECK(v != NULL) && CHECK_STATUS(tn_read(t, TN_F64, v, n), TN_OK);
        for (k = 0; ok && k < n; k++) v[k] += size * test_random_real(&seed);
        ok = ok && CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
        free(v);
        if (!ok) return false;
    }
    return true;
}

static tn_tensor *ids_of(tn_ctx *ctx, const tn_transformer_desc *d, int64_t texts, int64_t tokens, uint64_t seed)
{
    tn_tensor *t = tn_tensor_2d(ctx, TN_I32, texts, tokens);
    int32_t   *v = (int32_t *)malloc(sizeof *v * (size_t)(texts * tokens + 1));
    int64_t    i;
    for (i = 0; i < texts * tokens; i++) v[i] = (int32_t)test_random_int(&seed, 0, d->vocab - 1);
    CHECK_STATUS(tn_write(t, TN_I32, v, texts * tokens), TN_OK);
    free(v);
    return t;
}

static bool model_on(world *w, tn_dtype dtype, const tn_transformer_desc *d, tn_transformer *m, uint64_t seed)
{
    if (!open_on(w, dtype, seed, 1, NULL)) return false;
    return CHECK_STATUS(tn_transformer_init(w->params, "", m, d), TN_OK) && stir(w->params, seed, 0.5);
}

/* ---- gradients ----------------------------------------------------------------------------------------------- */

static double loss_of(world *w, const tn_transformer *m, int64_t tokens, bool record)
{
    tn_tensor *ids, *targets, *loss;
    double     value;
    tn_ctx_reset(w->ctx);
    ids = ids_of(w->ctx, &m->desc, 2, tokens, 3);
    targets = ids_of(w->ctx, &m->desc, 2, tokens, 4);
    if (record) tn_record(w->ctx);
    loss = tn_transformer_loss(w->ctx, m, ids, targets);
    value = tn_item(loss);
    if (record) CHECK_STATUS(tn_backward(w->ctx, loss), TN_OK);
    return value;
}

/* The loss where element i of a parameter is moved. */
static double loss_beside(world *w, const tn_transformer *m, tn_param *p, double *v, int64_t i, double by, int64_t tokens)
{
    const double at = v[i];
    double       loss;
    v[i] = at + by;
    tn_write(p->value, TN_F64, v, tn_tensor_count(p->value));
    loss = loss_of(w, m, tokens, false);
    v[i] = at;
    tn_write(p->value, TN_F64, v, tn_tensor_count(p->value));
    return loss;
}

/* Some elements of one parameter against differences of fourth order: norms of so few numbers bend strongly. The worst,
   relative to max(1, |g|). */
static double gradient_error(world *w, const tn_transformer *m, tn_param *p, int64_t tokens)
{
    const double h = 1e-5;
    int64_t n = tn_tensor_count(p->value), step = n > 8 ? n / 8 : 1, i;
    double *v = (double *)malloc(sizeof *v * (size_t)n), *g = (double *)malloc(sizeof *g * (size_t)n), worst = 0, size = 1;
    bool    ok = CHECK(p->value->grad != NULL) && CHECK_STATUS(tn_read(p->value, TN_F64, v, n), TN_OK)
              && CHECK_STATUS(tn_read(p->value->grad, TN_F64, g, n), TN_OK);
    for (i = 0; ok && i < n; i++) size = fmax(size, fabs(g[i]));
    for (i = 0; ok && i < n; i += step) {
        double near_by = loss_beside(w, m, p, v, i, h, tokens) - loss_beside(w, m, p, v, i, -h, tokens);
        double farther = loss_beside(w, m, p, v, i, 2 * h, tokens) - loss_beside(w, m, p, v, i, -2 * h, tokens);
        worst = fmax(worst, fabs((8 * near_by - farther) / (12 * h) - g[i]) / size);
    }
    free(v);
    free(g);
    return ok ? worst : HUGE_VAL;
}

TEST(gradients)
{
    double worst = 0;
    int    k;
    for (k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        world               w;
        double              here = 0;
        int64_t             i, tokens = d.context < 5 ? d.context : 5;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 100 + (uint64_t)k));
        loss_of(&w, &m, tokens, true);
        for (i = 0; i < tn_params_count(w.params); i++)
            here = fmax(here, gradient_error(&w, &m, tn_params_at(w.params, i), tokens));
        if (!CHECK(here <= 1e-7)) printf("     %s: %.3g\n", what, here);
        worst = fmax(worst, here);
        close_world(&w);
    }
    WORST("gradient of a transformer", worst, 1e-7);
}

/* ---- forward: by hand, causality, decoding --------------------------------------------------------------------- */

/* One layer of everything, in plain loops: post norms, x0 residual, soft-cap, one head of softmax without RoPE, bilinear. */
TEST(forward_by_hand)
{
    enum { V = 5, D = 3, H = 4, T = 4 };
    tn_transformer_desc d = tiny();
    tn_transformer      m;
    world               w;
    double              E[V][D], P[T][D], QK[2][D][D], VV[D][D], O[D][D], W[2][H][D], B[D][H], L[2], U[V][D], G[3][D];
    double              x[T][D], x0[T][D], want[T][V], got[T][V];
    int32_t             id[T] = {4, 0, 2, 4};
    tn_tensor          *ids;
    int                 t, s, i, j, h;
    d.layers = 1; d.dim = D; d.heads = 1; d.hidden = H; d.context = T;
    d.positions = TN_POSITIONS_LEARNED;
    d.x0_residual = true;
    d.softcap = 1.5;
    d.attn_scale = 0.6;
    d.norm_eps = 0.1;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 5));
    tn_read(m.embed.w, TN_F64, E, V * D);
    tn_read(m.position, TN_F64, P, T * D);
    tn_read(m.blocks[0].attn.qk, TN_F64, QK, 2 * D * D);
    tn_read(m.blocks[0].attn.v, TN_F64, VV, D * D);
    tn_read(m.blocks[0].attn.o, TN_F64, O, D * D);
    tn_read(m.blocks[0].mlp.w, TN_F64, W, 2 * H * D);
    tn_read(m.blocks[0].mlp.p, TN_F64, B, D * H);
    tn_read(m.blocks[0].lambdas, TN_F64, L, 2);
    tn_read(m.head.w, TN_F64, U, V * D);
    tn_read(m.blocks[0].norm1.gain, TN_F64, G[0], D);
    tn_read(m.blocks[0].norm2.gain, TN_F64, G[1], D);
    tn_read(m.norm.gain, TN_F64, G[2], D);
    for (t = 0; t < T; t++) for (i = 0; i < D; i++) {
        x0[t][i] = E[id[t]][i] + P[t][i];
        x[t][i] = L[0] * x0[t][i] + L[1] * x0[t][i];
    }
#define NORM(y, g) do { double r = 0; for (i = 0; i < D; i++) r += (y)[i] * (y)[i]; r = 1 / sqrt(r / D + 0.1); \
                        for (i = 0; i < D; i++) n[i] = (y)[i] * r * (g)[i]; } while (0)
    {
        double q[T][D], k[T][D], v[T][D], n[D];
        memset(q, 0, sizeof q); memset(k, 0, sizeof k); memset(v, 0, sizeof v);
        for (t = 0; t < T; t++) {
            NORM(x[t], G[0]);
            for (i = 0; i < D; i++) for (j = 0; j < D; j++) {
                q[t][i] += QK[0][i][j] * n[j];
                k[t][i] += QK[1][i][j] * n[j];
                v[t][i] += VV[i][j] * n[j];
            }
        }
        for (t = 0; t < T; t++) {
            double sum = 0, o[D] = {0, 0, 0}, z[2];
            for (s = 0; s <= t; s++) {
                double score = 0;
                for (i = 0; i < D; i++) score += q[t][i] * k[s][i];
                score = exp(score / sqrt((double)D));
                sum += score;
                for (i = 0; i < D; i++) o[i] += score * v[s][i];
            }
            for (i = 0; i < D; i++) for (j = 0; j < D; j++) x[t][i] += 0.6 * O[i][j] * o[j] / sum;
            NORM(x[t], G[1]);
            for (h = 0; h < H; h++) {
                z[0] = z[1] = 0;
                for (i = 0; i < D; i++) { z[0] += W[0][h][i] * n[i]; z[1] += W[1][h][i] * n[i]; }
                for (i = 0; i < D; i++) x[t][i] += B[i][h] * z[0] * z[1];
            }
            NORM(x[t], G[2]);
            for (i = 0; i < V; i++) {
                double logit = 0;
                for (j = 0; j < D; j++) logit += U[i][j] * n[j];
                want[t][i] = 1.5 * tanh(logit / 1.5);
            }
        }
    }
#undef NORM
    ids = tn_tensor_2d(w.ctx, TN_I32, 1, T);
    tn_write(ids, TN_I32, id, T);
    CHECK_STATUS(tn_read(tn_transformer_forward(w.ctx, &m, ids), TN_F64, got, T * V), TN_OK);
    WORST("transformer by hand", test_frobenius(&got[0][0], &want[0][0], T * V), 1e-12);
    close_world(&w);
}

static double *numbers(const tn_tensor *t)
{
    double *v = (double *)malloc(sizeof *v * (size_t)(tn_tensor_count(t) + 1));
    CHECK_STATUS(tn_read(t, TN_F64, v, tn_tensor_count(t)), TN_OK);
    return v;
}

/* Texts of 6, read at once, and by a prompt of 3, a token, a pair of tokens. */
static double decode_error(world *w, const tn_transformer *m, int64_t tokens)
{
    static const int64_t  end[] = {0, 3, 4, 6};
    tn_transformer_cache *cache = tn_transformer_cache_create(w->ctx, m, 2, tokens);
    tn_tensor            *ids = ids_of(w->ctx, &m->desc, 2, tokens, 9), *y;
    double               *all = numbers(tn_transformer_forward(w->ctx, m, ids)), *part, worst = 0;
    int64_t               k, b, V = m->desc.vocab, round;
    if (!CHECK(cache != NULL)) { free(all); return HUGE_VAL; }
    for (round = 0; round < 2; round++) {
        for (k = 0; k < 3; k++) {
            int64_t from = end[k] < tokens ? end[k] : tokens, to = end[k + 1] < tokens ? end[k + 1] : tokens, n = to - from;
            if (n == 0) continue;
            y = tn_transformer_decode(w->ctx, m, tn_copy(w->ctx, tn_slice(ids, 1, from, to)), cache);
            if (!CHECK(y != NULL)) break;
            part = numbers(y);
            for (b = 0; b < 2; b++)
                worst = fmax(worst, test_max_error(part + b * n * V, all + (b * tokens + from) * V, n * V));
            free(part);
            CHECK_INT(tn_transformer_cache_past(cache), to);
        }
        tn_transformer_cache_reset(cache);
        CHECK_INT(tn_transformer_cache_past(cache), 0);
    }
    CHECK(tn_transformer_cache_bytes(cache) > 0);
    tn_transformer_cache_destroy(cache);
    free(all);
    return worst;
}

TEST(decoding)
{
    double worst[2] = {0, 0};
    int    k, f;
    for (k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        if (d.not_causal) continue;
        for (f = 0; f < 2; f++) {
            tn_transformer m;
            world          w;
            double         error;
            REQUIRE(model_on(&w, f ? TN_F64 : TN_F32, &d, &m, 200 + (uint64_t)k));
            error = decode_error(&w, &m, d.context < 6 ? d.context : 6);
            if (!CHECK(error <= (f ? 1e-12 : 2e-5))) printf("     %s: %.3g\n", what, error);
            worst[f] = fmax(worst[f], error);
            close_world(&w);
        }
    }
    WORST("decoding against forward, F32", worst[0], 2e-5);
    WORST("decoding against forward, F64", worst[1], 1e-12);
}

/* The future changes nothing that is past. */
TEST(causality)
{
    int k;
    for (k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        tn_tensor          *ids;
        world               w;
        int32_t             id[6] = {1, 4, 0, 2, 3, 3};
        double             *before, *after, moved;
        if (d.context < 6) continue;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 300 + (uint64_t)k));
        ids = tn_tensor_2d(w.ctx, TN_I32, 1, 6);
        tn_write(ids, TN_I32, id, 6);
        before = numbers(tn_transformer_forward(w.ctx, &m, ids));
        id[4] = 0;
        tn_write(ids, TN_I32, id, 6);
        after = numbers(tn_transformer_forward(w.ctx, &m, ids));
        moved = test_max_error(after, before, 4 * d.vocab);
        if (!CHECK(d.not_causal ? moved > 1e-6 : moved == 0)) printf("     %s\n", what);
        CHECK(test_max_error(after + 4 * d.vocab, before + 4 * d.vocab, d.vocab) > 1e-6);
        free(before);
        free(after);
        close_world(&w);
    }
}

TEST(decoding_refuses)
{
    tn_transformer_desc   d = tiny();
    tn_transformer        m, other;
    tn_transformer_cache *c;
    world                 w;
    int32_t               bad = 7;
    tn_tensor            *id;
    d.positions = TN_POSITIONS_LEARNED;
    REQUIRE(model_on(&w, TN_F32, &d, &m, 1));
    CHECK(tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 1, 8, 1)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "8 tokens, but there are learned positions for 7");
    CHECK(tn_transformer_cache_create(w.ctx, &m, 1, 8) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "learned positions for 7");
    CHECK(tn_transformer_cache_create(w.ctx, &m, 0, 3) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "0 texts of 3 tokens");
    CHECK(tn_transformer_cache_create(w.ctx, NULL, 1, 3) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "the model is NULL");
    c = tn_transformer_cache_create(w.ctx, &m, 2, 3);
    REQUIRE(c != NULL);
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 1, 1, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "of 2 texts");
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 4, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "has 0 of 3 tokens");
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 0, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "ids are [2,0]");
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 1, 1), NULL) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "the cache is NULL");
    tn_record(w.ctx);
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 1, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "recording");
    tn_ctx_reset(w.ctx);
    d.layers = 3;
    CHECK_STATUS(tn_transformer_init(w.params, "other", &other, &d), TN_OK);
    CHECK(tn_transformer_decode(w.ctx, &other, ids_of(w.ctx, &d, 2, 1, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "of another model");
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 3, 1), c) != NULL);
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 1, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "has 3 of 3 tokens");
    CHECK_INT(tn_transformer_cache_past(c), 3);
    CHECK(tn_transformer_cache_create(w.ctx, &m, 1, 2) != NULL);            /* left to the context */
    tn_transformer_cache_destroy(NULL);
    CHECK(tn_transformer_forward(w.ctx, &m, tn_tensor_1d(w.ctx, TN_I32, 3)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "ids is [3], but must be [texts,tokens]");
    CHECK(tn_transformer_forward(w.ctx, &m, tn_tensor_2d(w.ctx, TN_F32, 1, 3)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_DTYPE, "ids is F32");
    CHECK(tn_transformer_loss(w.ctx, &m, ids_of(w.ctx, &d, 2, 3, 1), ids_of(w.ctx, &d, 2, 2, 1)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "ids are [2,3] but targets [2,2]");
    CHECK(tn_transformer_forward(w.ctx, NULL, ids_of(w.ctx, &d, 2, 3, 1)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "the model is NULL");
    id = tn_tensor_2d(w.ctx, TN_I32, 1, 1);
    tn_write(id, TN_I32, &bad, 1);
    CHECK(tn_transformer_forward(w.ctx, &m, id) != NULL);
    CHECK_STATUS(tn_ctx_sync(w.ctx), TN_ERR_DATA);
    tn_ctx_clear_error(w.ctx);
    close_world(&w);
}

/* A text of no token, and of one; a cache that the context ends. */
TEST(short_texts)
{
    int k;
    for (k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        tn_tensor          *y;
        world               w;
        REQUIRE(model_on(&w, TN_F32, &d, &m, 7));
        y = tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 3, 0, 1));
        if (CHECK(y != NULL)) CHECK(y->rank == 3 && y->shape[0] == 3 && y->shape[1] == 0 && y->shape[2] == d.vocab);
        y = tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 3, 1, 1));
        if (CHECK(y != NULL)) CHECK(y->shape[1] == 1 && isfinite(tn_item(tn_sum(w.ctx, y))));
        close_world(&w);
    }
}

TEST_MAIN(gradients, forward_by_hand, decoding, causality, decoding_refuses, short_texts)
