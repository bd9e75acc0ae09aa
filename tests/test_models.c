/* test_models.c: transformers. Gradients, decoding, counts, config.json, weights of others, sampling, learning. */

#include "sealed.h"

#include "golden_models.h"
#include "model.h"
#include "../tools/tn/teacher.h"

/* ---- gradients ----------------------------------------------------------------------------------------------- */

static double loss_of(world *w, const tn_transformer *m, int64_t tokens, bool record)
{
    tn_ctx_reset(w->ctx);
    tn_tensor *ids = ids_of(w->ctx, &m->desc, 2, tokens, 3);
    tn_tensor *targets = ids_of(w->ctx, &m->desc, 2, tokens, 4);
    if (record) tn_record(w->ctx);
    tn_tensor *loss = tn_transformer_loss(w->ctx, m, ids, targets);
    double value = tn_item(loss);
    if (record) CHECK_STATUS(tn_backward(w->ctx, loss), TN_OK);
    return value;
}

/* The loss where element i of a parameter is moved. */
static double loss_beside(world *w, const tn_transformer *m, tn_param *p, double *v, int64_t i, double by, int64_t tokens)
{
    const double at = v[i];
    v[i] = at + by;
    tn_write(p->value, TN_F64, v, tn_tensor_count(p->value));
    double loss = loss_of(w, m, tokens, false);
    v[i] = at;
    tn_write(p->value, TN_F64, v, tn_tensor_count(p->value));
    return loss;
}

/* Some elements of one parameter against differences of fourth order: norms of so few numbers bend strongly. The worst,
   relative to max(1, |g|). */
static double gradient_error(world *w, const tn_transformer *m, tn_param *p, int64_t tokens)
{
    const double h = 1e-5;
    int64_t n = tn_tensor_count(p->value), step = n > 8 ? n / 8 : 1, tried = 0;
    double *v = doubles(n), *g = doubles(n), worst = 0, size = 1;
    bool    ok = CHECK(p->value->grad != NULL) && CHECK_STATUS(tn_read(p->value, TN_F64, v, n), TN_OK)
              && CHECK_STATUS(tn_read(p->value->grad, TN_F64, g, n), TN_OK);
    for (int64_t i = 0; ok && i < n; i++) if (fabs(g[i]) > size) size = fabs(g[i]);
    for (int64_t i = 0; ok && i < n; i += step) {
        double near_by = loss_beside(w, m, p, v, i, h, tokens) - loss_beside(w, m, p, v, i, -h, tokens);
        double farther = loss_beside(w, m, p, v, i, 2 * h, tokens) - loss_beside(w, m, p, v, i, -2 * h, tokens);
        test_raise(&worst, fabs((8 * near_by - farther) / (12 * h) - g[i]) / size);
        tried++;
    }
    test_left_out("gradients by differences: elements beyond a sample of each parameter", n - tried, n);
    return ok ? worst : HUGE_VAL;
}

TEST(gradients)
{
    double worst = 0;
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        world               w;
        double              here = 0;
        int64_t             tokens = d.context < 5 ? d.context : 5;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 100 + (uint64_t)k));
        loss_of(&w, &m, tokens, true);
        for (int64_t i = 0; i < tn_params_count(w.params); i++)
            test_raise(&here, gradient_error(&w, &m, tn_params_at(w.params, i), tokens));
        if (!CHECK(here <= 1e-7)) printf("     %s: %.3g\n", what, here);
        test_raise(&worst, here);
        close_world(&w);
    }
    WORST("gradient of a transformer", worst, 1e-8);
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
    for (int t = 0; t < T; t++) for (int i = 0; i < D; i++) {
        x0[t][i] = E[id[t]][i] + P[t][i];
        x[t][i] = L[0] * x0[t][i] + L[1] * x0[t][i];
    }
#define NORM(y, g) do { double r = 0; for (int i = 0; i < D; i++) r += (y)[i] * (y)[i]; r = 1 / sqrt(r / (double)D + 0.1); \
                        for (int i = 0; i < D; i++) n[i] = (y)[i] * r * (g)[i]; } while (0)
    {
        double q[T][D], k[T][D], v[T][D], n[D];
        memset(q, 0, sizeof q); memset(k, 0, sizeof k); memset(v, 0, sizeof v);
        for (int t = 0; t < T; t++) {
            NORM(x[t], G[0]);
            for (int i = 0; i < D; i++) for (int j = 0; j < D; j++) {
                q[t][i] += QK[0][i][j] * n[j];
                k[t][i] += QK[1][i][j] * n[j];
                v[t][i] += VV[i][j] * n[j];
            }
        }
        for (int t = 0; t < T; t++) {
            double sum = 0, o[D] = {0, 0, 0};
            for (int s = 0; s <= t; s++) {
                double score = 0;
                for (int i = 0; i < D; i++) score += q[t][i] * k[s][i];
                score = exp(score / sqrt((double)D));
                sum += score;
                for (int i = 0; i < D; i++) o[i] += score * v[s][i];
            }
            for (int i = 0; i < D; i++) for (int j = 0; j < D; j++) x[t][i] += 0.6 * O[i][j] * o[j] / sum;
            NORM(x[t], G[1]);
            for (int h = 0; h < H; h++) {
                double z[2] = {0, 0};
                for (int i = 0; i < D; i++) { z[0] += W[0][h][i] * n[i]; z[1] += W[1][h][i] * n[i]; }
                for (int i = 0; i < D; i++) x[t][i] += B[i][h] * z[0] * z[1];
            }
            NORM(x[t], G[2]);
            for (int i = 0; i < V; i++) {
                double logit = 0;
                for (int j = 0; j < D; j++) logit += U[i][j] * n[j];
                want[t][i] = 1.5 * tanh(logit / 1.5);
            }
        }
    }
#undef NORM
    tn_tensor *ids = tn_tensor_2d(w.ctx, TN_I32, 1, T);
    tn_write(ids, TN_I32, id, T);
    CHECK_STATUS(tn_read(tn_transformer_forward(w.ctx, &m, ids), TN_F64, got, T * V), TN_OK);
    WORST("transformer by hand", test_frobenius(&got[0][0], &want[0][0], T * V), 3e-15);
    close_world(&w);
}

/* Texts of 6, read at once, and by a prompt of 3, a token, a pair of tokens. */
static double decode_error(world *w, const tn_transformer *m, int64_t tokens)
{
    static const int64_t  end[] = {0, 3, 4, 6};
    tn_transformer_cache *cache = tn_transformer_cache_create(w->ctx, m, 2, tokens);
    tn_tensor            *ids = ids_of(w->ctx, &m->desc, 2, tokens, 9);
    double               *all = host(tn_transformer_forward(w->ctx, m, ids)), worst = 0;
    int64_t               V = m->desc.vocab;
    if (!CHECK(cache != NULL)) return HUGE_VAL;
    for (int64_t round = 0; round < 2; round++) {
        for (int64_t k = 0; k < 3; k++) {
            int64_t from = end[k] < tokens ? end[k] : tokens, to = end[k + 1] < tokens ? end[k + 1] : tokens, n = to - from;
            if (n == 0) continue;
            tn_tensor *y = tn_transformer_decode(w->ctx, m, tn_copy(w->ctx, tn_slice(ids, 1, from, to)), cache);
            if (!CHECK(y != NULL)) break;
            double *part = host(y);
            for (int64_t b = 0; b < 2; b++)
                test_raise(&worst, test_max_error(part + b * n * V, all + (b * tokens + from) * V, n * V));
            CHECK_INT(tn_transformer_cache_past(cache), to);
        }
        tn_transformer_cache_reset(cache);
        CHECK_INT(tn_transformer_cache_past(cache), 0);
    }
    CHECK(tn_transformer_cache_bytes(cache) > 0);
    tn_transformer_cache_destroy(cache);
    return worst;
}

/* After six tokens all but `kept` are forgotten, and others follow: the error of their logits. -1: a block keeps a state. */
static double rewound_error(world *w, const tn_transformer *m, int64_t kept)
{
    const int64_t         V = m->desc.vocab, T = m->desc.context < 6 ? m->desc.context : 6;
    tn_transformer_cache *c = tn_transformer_cache_create(w->ctx, m, 2, T);
    tn_tensor            *first = ids_of(w->ctx, &m->desc, 2, T, 9), *then = ids_of(w->ctx, &m->desc, 2, T, 10);
    tn_tensor            *list[2] = {tn_slice(first, 1, 0, kept), tn_slice(then, 1, kept, T)}, *ids;
    double                worst = 0;
    if (!CHECK(c && tn_transformer_decode(w->ctx, m, first, c))) return HUGE_VAL;
    CHECK_STATUS(tn_transformer_cache_rewind(c, T), TN_OK);
    CHECK_STATUS(tn_transformer_cache_rewind(c, T + 1), TN_ERR_ARG);
    CHECK_ERROR(w->ctx, TN_ERR_ARG, "transformer cache: tokens is");
    CHECK_STATUS(tn_transformer_cache_rewind(c, -1), TN_ERR_ARG);
    CHECK_ERROR(w->ctx, TN_ERR_ARG, "transformer cache: tokens is -1");
    if (tn_transformer_cache_rewind(c, kept) != TN_OK) {
        CHECK_ERROR(w->ctx, TN_ERR_ARG, "transformer cache: block ");
        CHECK_INT(tn_transformer_cache_past(c), T);
        tn_transformer_cache_destroy(c);
        return -1;
    }
    CHECK_INT(tn_transformer_cache_past(c), kept);
    ids = kept ? tn_concat(w->ctx, 2, list, 1) : then;
    tn_tensor *y = tn_transformer_decode(w->ctx, m, tn_copy(w->ctx, list[1]), c);
    if (CHECK(y != NULL && T == ids->shape[1])) {
        double *part = host(y), *all = host(tn_transformer_forward(w->ctx, m, ids));
        for (int64_t b = 0; b < 2; b++)
            test_raise(&worst, test_max_error(part + b * (T - kept) * V, all + (b * T + kept) * V, (T - kept) * V));
    }
    tn_transformer_cache_destroy(c);
    return worst;
}

TEST(rewound_caches)
{
    int states = 0, others = 0;
    CHECK_STATUS(tn_transformer_cache_rewind(NULL, 0), TN_ERR_ARG);
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        world               w;
        if (d.bidirectional) continue;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 300 + (uint64_t)k));
        for (int64_t kept = 0; kept < 3 && kept < d.context; kept++) {
            double error = rewound_error(&w, &m, kept);
            if (!CHECK(error <= 1e-12 && (error >= 0 || kept > 0))) printf("     %s, %d kept: %.3g\n", what, (int)kept, error);
            *(error < 0 ? &states : &others) += 1;
        }
        close_world(&w);
    }
    CHECK(states > 0 && others > 20);
}

TEST(decoding)
{
    double worst[2] = {0, 0};
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        if (test_leave_out(d.bidirectional, "transformers that cannot decode: they are not causal")) continue;
        for (int f = 0; f < 2; f++) {
            tn_transformer m;
            world          w;
            REQUIRE(model_on(&w, f ? TN_F64 : TN_F32, &d, &m, 200 + (uint64_t)k));
            double error = decode_error(&w, &m, d.context < 6 ? d.context : 6);
            if (!CHECK(error <= (f ? 1e-12 : 2e-5))) printf("     %s: %.3g\n", what, error);
            test_raise(&worst[f], error);
            close_world(&w);
        }
    }
    WORST("decoding against forward, F32", worst[0], 3e-6);
    WORST("decoding against forward, F64", worst[1], 1e-14);
}

/* Forward is hidden and then head, with the same bits, and the head of one position is that row of the logits. */
TEST(hidden_and_head)
{
    double worst = 0;
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        const int64_t       T = d.context < 5 ? d.context : 5;
        tn_transformer      m;
        world               w;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 250 + (uint64_t)k));
        tn_tensor *ids = ids_of(w.ctx, &d, 2, T, 5);
        tn_tensor *hidden = tn_transformer_hidden(w.ctx, &m, ids);
        REQUIRE(CHECK(hidden && hidden->rank == 3 && hidden->shape[0] == 2 && hidden->shape[1] == T));
        CHECK_INT(hidden->shape[2], d.dim);
        double *whole = host(tn_transformer_forward(w.ctx, &m, ids));
        double *parts = host(tn_transformer_unembed(w.ctx, &m, hidden));
        double *last = host(tn_transformer_unembed(w.ctx, &m, tn_slice(hidden, 1, T - 1, T)));
        if (!CHECK(test_max_error(parts, whole, 2 * T * d.vocab) == 0)) printf("     %s\n", what);
        for (int64_t b = 0; b < 2; b++)
            test_raise(&worst, test_max_error(last + b * d.vocab, whole + ((b + 1) * T - 1) * d.vocab, d.vocab));
        close_world(&w);
    }
    WORST("head of the last position against forward", worst, 1e-13);
}

/* The attention of block l reads what the model of the first l blocks returns, with the block's norm as its last one. With
   x0_residual that is so for block 0, which reads 3/4 x + 1/4 x here. */
TEST(patterns)
{
    const double parts[2] = {0.75, 0.25};
    double       worst = 0;
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        const int64_t       T = d.context < 5 ? d.context : 5, n = 2 * T * d.heads * T;
        tn_transformer      m;
        world               w;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 270 + (uint64_t)k));
        tn_tensor *ids = ids_of(w.ctx, &d, 2, T, 5);
        if (d.x0_residual) CHECK_STATUS(tn_write(m.blocks[0].lambdas, TN_F64, parts, 2), TN_OK);
        for (int64_t l = 0; l < (d.x0_residual ? 1 : d.layers); l++) {
            tn_transformer first = m;
            tn_tensor     *whole = tn_transformer_pattern(w.ctx, &m, ids, l);
            double        *got = host(whole);
            first.desc.layers = l;
            first.norm = m.blocks[l].norm1;
            double *want = host(tn_attention_pattern(w.ctx, &m.blocks[l].attn, tn_transformer_hidden(w.ctx, &first, ids)));
            CHECK_INT(tn_tensor_count(whole), n);
            double error = test_max_error(got, want, n);
            if (!CHECK(error <= 1e-15)) printf("     %s, block %d\n", what, (int)l);
            test_raise(&worst, error);
        }
        REFUSED(w.ctx, tn_transformer_pattern(w.ctx, &m, ids, d.layers), TN_ERR_SHAPE, "transformer_pattern: block is ");
        tn_ctx_clear_error(w.ctx);
        REFUSED(w.ctx, tn_transformer_pattern(w.ctx, &m, NULL, 0), TN_ERR_ARG, "transformer_pattern: ids is NULL");
        close_world(&w);
    }
    WORST("pattern of a block against that of its attention", worst, 1e-15);
}

/* The future changes nothing that is past. */
TEST(causality)
{
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        world               w;
        int32_t             id[6] = {1, 4, 0, 2, 3, 3};
        if (test_leave_out(d.context < 6, "transformers whose context is too short for a test of causality")) continue;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 300 + (uint64_t)k));
        tn_tensor *ids = tn_tensor_2d(w.ctx, TN_I32, 1, 6);
        tn_write(ids, TN_I32, id, 6);
        double *before = host(tn_transformer_forward(w.ctx, &m, ids));
        id[4] = 0;
        tn_write(ids, TN_I32, id, 6);
        double *after = host(tn_transformer_forward(w.ctx, &m, ids));
        double moved = test_max_error(after, before, 4 * d.vocab);
        if (!CHECK(d.bidirectional ? moved > 1e-6 : moved == 0)) printf("     %s\n", what);
        CHECK(test_max_error(after + 4 * d.vocab, before + 4 * d.vocab, d.vocab) > 1e-6);
        close_world(&w);
    }
}

TEST(decoding_refuses)
{
    tn_transformer_desc d = tiny();
    tn_transformer      m, other;
    world               w;
    int32_t             bad = 7;
    d.positions = TN_POSITIONS_LEARNED;
    REQUIRE(model_on(&w, TN_F32, &d, &m, 1));
    CHECK(tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 1, 8, 1)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "transformer: there are 8 tokens, expected at most 7, the learned positions");
    CHECK(tn_transformer_cache_create(w.ctx, &m, 1, 8) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "transformer cache: length is 8, expected at most 7, the learned positions");
    REFUSED(w.ctx, tn_transformer_cache_create(w.ctx, &m, 0, 3), TN_ERR_SHAPE, "transformer cache: batch is 0, expected 1 or more");
    REFUSED(w.ctx, tn_transformer_cache_create(w.ctx, NULL, 1, 3), TN_ERR_ARG, "the model is NULL");
    tn_transformer_cache *c = tn_transformer_cache_create(w.ctx, &m, 2, 3);
    REQUIRE(c != NULL);
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 1, 1, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "ids are [1,1], expected 2 texts as in the cache");
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 4, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "ids have 4 tokens after 0 in the cache, expected at most 3 in all");
    REFUSED(w.ctx, tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 0, 1), c), TN_ERR_SHAPE, "ids are [2,0]");
    REFUSED(w.ctx, tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 1, 1), NULL), TN_ERR_ARG, "the cache is NULL");
    tn_record(w.ctx);
    REFUSED(w.ctx, tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 1, 1), c), TN_ERR_ARG, "recording");
    tn_ctx_reset(w.ctx);
    d.layers = 3;
    CHECK_STATUS(tn_transformer_init(w.params, "other", &d, &other), TN_OK);
    REFUSED(w.ctx, tn_transformer_decode(w.ctx, &other, ids_of(w.ctx, &d, 2, 1, 1), c), TN_ERR_ARG, "of another model");
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 3, 1), c) != NULL);
    CHECK(tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 1, 1), c) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "ids have 1 tokens after 3 in the cache, expected at most 3 in all");
    CHECK_INT(tn_transformer_cache_past(c), 3);
    CHECK(tn_transformer_cache_create(w.ctx, &m, 1, 2) != NULL);            /* left to the context */
    tn_transformer_cache_destroy(NULL);
    CHECK(tn_transformer_forward(w.ctx, &m, tn_tensor_1d(w.ctx, TN_I32, 3)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "transformer: ids is [3], expected [texts,tokens]");
    REFUSED(w.ctx, tn_transformer_forward(w.ctx, &m, tn_tensor_2d(w.ctx, TN_F32, 1, 3)), TN_ERR_DTYPE, "ids is F32");
    CHECK(tn_transformer_loss(w.ctx, &m, ids_of(w.ctx, &d, 2, 3, 1), ids_of(w.ctx, &d, 2, 2, 1)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "transformer: targets are [2,2], expected [2,3] as ids");
    REFUSED(w.ctx, tn_transformer_forward(w.ctx, NULL, ids_of(w.ctx, &d, 2, 3, 1)), TN_ERR_ARG, "the model is NULL");
    tn_tensor *id = tn_tensor_2d(w.ctx, TN_I32, 1, 1);
    tn_write(id, TN_I32, &bad, 1);
    CHECK(tn_transformer_forward(w.ctx, &m, id) != NULL);
    CHECK_STATUS(tn_ctx_sync(w.ctx), TN_ERR_DATA);
    tn_ctx_clear_error(w.ctx);
    close_world(&w);
}

/* A text of no token, and of one; a cache that the context ends. */
TEST(short_texts)
{
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        world               w;
        REQUIRE(model_on(&w, TN_F32, &d, &m, 7));
        tn_tensor *y = tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 3, 0, 1));
        if (CHECK(y != NULL)) CHECK(y->rank == 3 && y->shape[0] == 3 && y->shape[1] == 0 && y->shape[2] == d.vocab);
        y = tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 3, 1, 1));
        if (CHECK(y != NULL)) {
            const double sum = tn_item(tn_sum(w.ctx, y));
            CHECK(y->shape[1] == 1 && sum - sum == 0);       /* neither NaN nor infinite */
        }
        close_world(&w);
    }
}

/* ---- sums with their norms ------------------------------------------------------------------------------------------ */

/* How often a forward pass adds and normalises in one kernel: inside of every block, and between two of them and at the end, if
   the next block neither mixes nor recomputes. */
static int64_t fused_norms(const tn_transformer_desc *d)
{
    const bool again = d->recompute && !(d->value_residual && d->layers == 1);
    if (d->no_norm || d->norm_place == TN_PLACE_POST || d->norm != TN_NORM_RMS) return 0;
    return d->layers + (d->x0_residual || d->recompute ? 0 : d->layers - 1) + !again;
}

static tn_tensor *as_it_is(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)ctx; (void)user; (void)name;
    return x;
}

/* Logits and gradients, and how often that kernel ran until the loss. tapped: with a tap, which makes it two kernels. */
static double *all_of_model(world *w, const tn_transformer *m, bool tapped, uint64_t *fused)
{
    const tn_tap tap = {"embed", as_it_is, NULL};
    int64_t      B = 2, T = m->desc.context, n = B * T * m->desc.vocab, at = n;
    double      *v = doubles(n + tn_params_elements(w->params));
    tn_ctx_reset(w->ctx);
    tn_params_zero_grad(w->params);
    tn_tensor *ids = ids_of(w->ctx, &m->desc, B, T, 3);
    tn_tensor *targets = ids_of(w->ctx, &m->desc, B, T, 4);
    tn_record(w->ctx);
    *fused = tn_ctx_kernel_calls(w->ctx, TN_KERNEL_RESIDUAL_RMSNORM);
    tn_tensor *logits = tapped ? tn_transformer_run(w->ctx, m, ids, &tap, 1) : tn_transformer_forward(w->ctx, m, ids);
    *fused = tn_ctx_kernel_calls(w->ctx, TN_KERNEL_RESIDUAL_RMSNORM) - *fused;
    CHECK_STATUS(tn_backward(w->ctx, tn_cross_entropy(w->ctx, logits, targets)), TN_OK);
    CHECK_STATUS(tn_read(logits, TN_F64, v, n), TN_OK);
    for (int64_t i = 0; i < tn_params_count(w->params); i++) {
        const tn_tensor *p = tn_params_at(w->params, i)->value;
        CHECK_STATUS(tn_read(p->grad, TN_F64, v + at, tn_tensor_count(p)), TN_OK);
        at += tn_tensor_count(p);
    }
    CHECK_CTX(w->ctx);
    return v;
}

TEST(sums_with_their_norms)
{
    for (int k = 0; k < VARIANTS; k++)
        for (int recompute = 0; recompute < 2; recompute++) {
            const char         *what;
            tn_transformer_desc d = variant(k, &what);
            tn_transformer      m;
            world               w;
            uint64_t            fused, none;
            d.recompute = recompute == 1;
            REQUIRE(model_on(&w, TN_F32, &d, &m, 1));
            double *one = all_of_model(&w, &m, false, &fused);
            double *two = all_of_model(&w, &m, true, &none);
            bool    good = CHECK(memcmp(one, two, sizeof *one * (size_t)(2 * d.context * d.vocab
                                                                         + tn_params_elements(w.params))) == 0);
            good = CHECK_INT(none, recompute && fused_norms(&d) > 0 ? d.layers - d.value_residual : 0) && good;
            good = CHECK_INT(fused, fused_norms(&d)) && good;
            if (!good) printf("     %s, recompute %d\n", what, recompute);
            close_world(&w);
        }
}

/* ---- what a desc costs, and how it begins ---------------------------------------------------------------------- */

TEST(counts)
{
    tn_transformer_desc d = tiny();
    for (int k = 0; k < VARIANTS; k++) {
        const char    *what;
        tn_transformer m;
        world          w;
        d = variant(k, &what);
        REQUIRE(model_on(&w, TN_F32, &d, &m, 1));
        if (!CHECK_INT(tn_transformer_cost_of(&d, 0).params, tn_params_elements(w.params))) printf("     %s\n", what);
        close_world(&w);
    }
    /* GPT-2 small, Radford et al. 2019: 124,439,808 parameters */
    memset(&d, 0, sizeof d);
    d.vocab = 50257; d.layers = 12; d.dim = 768; d.heads = 12; d.context = 1024;
    d.mlp = TN_MLP_GELU_TANH; d.norm = TN_NORM_LAYER; d.norm_bias = true; d.positions = TN_POSITIONS_LEARNED; d.tied = true;
    d.attn_bias = d.attn_out_bias = d.mlp_bias = d.mlp_out_bias = true;
    CHECK_INT(tn_transformer_cost_of(&d, 0).params, 124439808);
    /* by hand: a token of 3 sees 2 keys in the mean. Per head and key 2 d_qk + 2 d_v flops, per matrix 2 flops a number. */
    d = tiny();
    tn_transformer_cost c = tn_transformer_cost_of(&d, 3);
    CHECK_INT(c.params, 5 * 4 + 2 * (4 * 16 + 3 * 12 + 2 * 4) + 4 + 20);
    CHECK_INT(c.table, 20);
    CHECK_NEAR(c.weights, 2 * (2 * (4 * 16 + 3 * 12) + 20), 0);
    CHECK_NEAR(c.scores, 2 * 2 * 2 * (2 * 2 + 2 * 2), 0);
    CHECK_NEAR(c.forward, c.weights + c.scores, 0);
    CHECK_NEAR(c.training, 3 * c.forward, 0);
    d.window = 2;                                            /* 1, 2, 2 keys */
    CHECK_NEAR(tn_transformer_cost_of(&d, 3).scores, 2 * 2 * (5 / 3.0) * 8, 1e-12);
    d.bidirectional = true;                                     /* 2, 3, 2 keys */
    CHECK_NEAR(tn_transformer_cost_of(&d, 3).scores, 2 * 2 * (7 / 3.0) * 8, 1e-12);
    d.window = 0;
    CHECK_NEAR(tn_transformer_cost_of(&d, 3).scores, 2 * 2 * 3 * 8, 1e-12);
    d.attention = TN_ATTENTION_BILINEAR;
    CHECK_NEAR(tn_transformer_cost_of(&d, 3).scores, 2 * 2 * 3 * (2 * 2 * 2 + 2 * 2), 1e-12);
    d.attention = TN_ATTENTION_DIFFERENTIAL;                 /* heads of d_qk 1; two patterns, each with the values */
    CHECK_NEAR(tn_transformer_cost_of(&d, 3).scores, 2 * 2 * 3 * (2 * 2 * 1 + 2 * 2 * 2), 1e-12);
    d.attention = TN_ATTENTION_BILINEAR;
    d.form = TN_ATTEND_FORM_LINEAR;                          /* states of 2 x 2 x 2, read and added to */
    CHECK_NEAR(tn_transformer_cost_of(&d, 3).scores, 2 * 2 * 4 * 8, 1e-12);
    d.attention = TN_ATTENTION_SQUARED;                      /* of 3 x 2 */
    CHECK_NEAR(tn_transformer_cost_of(&d, 3).scores, 2 * 2 * 4 * 6, 1e-12);
    d.heads = 3;
    CHECK_INT(tn_transformer_cost_of(&d, 0).params, 0);
    CHECK_NEAR(tn_transformer_cost_of(&d, 3).forward, 0, 0);
    CHECK_INT(tn_transformer_cost_of(NULL, 0).params, 0);
}

/* With the same parameters whatever the kind of MLP, to the rounding. */
TEST(hidden_widths)
{
    tn_transformer_desc d = tiny(), full;
    d.hidden = 0; d.dim = 128;
    CHECK_STATUS(tn_transformer_check(NULL, &d, &full), TN_OK);
    CHECK_INT(full.hidden, 344);
    d.mlp = TN_MLP_RELU;
    CHECK_STATUS(tn_transformer_check(NULL, &d, &full), TN_OK);
    CHECK_INT(full.hidden, 512);
    d.mlp = TN_MLP_BILINEAR; d.mlp_order = 3;
    CHECK_STATUS(tn_transformer_check(NULL, &d, &full), TN_OK);
    CHECK_INT(full.hidden, 256);
    d.mlp_order = 0; d.dim = 768;
    CHECK_STATUS(tn_transformer_check(NULL, &d, &full), TN_OK);
    CHECK_INT(full.hidden, 2048);
    CHECK_INT(full.d_qk, 384);
    CHECK_INT(full.row_length, 7);
    d.mlp_order = 2;                                             /* the bilinear layer itself */
    CHECK_STATUS(tn_transformer_check(NULL, &d, &full), TN_OK);
    CHECK_INT(full.mlp_order, 0);
    CHECK_STATUS(tn_transformer_check(NULL, &full, &full), TN_OK);
}

/* ---- blocks that differ ------------------------------------------------------------------------------------------ */

static bool copy_block(tn_params *to, const char *to_block, tn_params *from, const char *from_block)
{
    const size_t n = strlen(from_block);
    bool         ok = true;
    for (int64_t i = 0; i < tn_params_count(from); i++) {
        const tn_param *p = tn_params_at(from, i);
        char            name[128];
        double         *v = host(p->value);
        const bool      inside = strncmp(p->name, "blocks.", 7) == 0;
        snprintf(name, sizeof name, "%s%s", inside ? to_block : "", inside ? p->name + n : p->name);
        const tn_param *q = inside && strncmp(p->name, from_block, n) != 0 ? NULL : tn_params_find(to, name);
        if (q) ok = ok && tn_write(q->value, TN_F64, v, tn_tensor_count(q->value)) == TN_OK;
    }
    return ok;
}

/* Makes the block add nothing to the residual stream. */
static bool silence(const tn_transformer_block *b)
{
    tn_tensor *const out[2] = {b->attn.o, b->mlp.p};
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        const int64_t n = tn_tensor_count(out[i]);
        double       *zeros = doubles(n);
        ok = ok && tn_write(out[i], TN_F64, zeros, n) == TN_OK;
    }
    return ok;
}

/* Where the other block adds nothing, a model of two different blocks is the model of one block of that kind. */
TEST(cycles)
{
    static const tn_attention_kind attention[2] = {TN_ATTENTION_SQUARED, TN_ATTENTION_SOFTMAX};
    static const tn_mlp_kind       mlp[2] = {TN_MLP_GELU, TN_MLP_BILINEAR};
    static const int64_t           window[2] = {0, 2}, hidden[2] = {16, 8};
    double worst = 0;
    for (int l = 0; l < 2; l++) {
        tn_transformer_desc d = tiny(), one = tiny(), full;
        tn_transformer      m, single;
        world               w, v;
        d.hidden = one.hidden = 0;
        d.attention_count = d.mlp_count = d.window_count = 2;
        memcpy(d.attention_cycle, attention, sizeof attention);
        memcpy(d.mlp_cycle, mlp, sizeof mlp);
        memcpy(d.window_cycle, window, sizeof window);
        one.layers = 1; one.attention = attention[l]; one.mlp = mlp[l]; one.window = window[l];
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        REQUIRE(model_on(&v, TN_F64, &one, &single, 4));
        CHECK_INT(m.blocks[l].mlp.desc.hidden, hidden[l]);
        REQUIRE(CHECK(copy_block(v.params, "blocks.0", w.params, l ? "blocks.1" : "blocks.0")));
        CHECK(silence(&m.blocks[1 - l]));
        double *got = host(tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 2, 6, 9)));
        double *want = host(tn_transformer_forward(v.ctx, &single, ids_of(v.ctx, &d, 2, 6, 9)));
        test_raise(&worst, test_max_error(got, want, 2 * 6 * d.vocab));
        CHECK_STATUS(tn_transformer_check(NULL, &m.desc, &full), TN_OK);
        CHECK(memcmp(&full, &m.desc, sizeof full) == 0);
        close_world(&v);
        close_world(&w);
    }
    WORST("a block of a cycle against a model of that block", worst, 1e-14);
    {                                                       /* cycles of three and four: twelve kinds, of which nine are here */
        tn_transformer_desc d = tiny();
        tn_transformer      m;
        world               w;
        d.layers = 9;
        d.attention_count = 3; d.attention_cycle[2] = TN_ATTENTION_BILINEAR;
        d.mlp_count = 4; d.mlp_cycle[3] = TN_MLP_GELU;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        CHECK_INT(tn_transformer_cost_of(&d, 0).params, tn_params_elements(w.params));
        close_world(&w);
    }
}

/* Noise and dropout act in training only, once each where the desc says it, and come back in a recomputed block. */
TEST(noise_and_dropout)
{
    enum { T = 5, SEEDS = 400 };
    tn_transformer_desc d = tiny(), full;
    tn_transformer      m, plain;
    world               w, v;
    double              first[2], mean, var, size;
    int                 k;
    REQUIRE(model_on(&v, TN_F64, &d, &plain, 11));
    d.embed_noise = 0.3; d.dropout = 0.25;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 11));
    double *want = host(tn_transformer_forward(v.ctx, &plain, ids_of(v.ctx, &d, 2, T, 1)));
    double *got = host(tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 2, T, 1)));
    CHECK(test_max_error(got, want, 2 * T * d.vocab) == 0);
    for (int i = 0; i < 2; i++) {                                /* bit-identical, the random numbers included */
        m.desc.recompute = i > 0;
        CHECK_STATUS(tn_params_zero_grad(w.params), TN_OK);
        tn_ctx_seed(w.ctx, 5);
        first[i] = loss_of(&w, &m, T, true);
        got = host(m.embed.w->grad);
        if (i == 0) want = got;
    }
    CHECK(first[0] == first[1] && test_max_error(got, want, tn_tensor_count(m.embed.w)) == 0);
    CHECK(first[0] != loss_of(&w, &m, T, false));
    /* Blocks that add nothing, no norm: what hidden gives is the first block's input, (e + 0.3 n) times 0 or 4/3. */
    m.desc.no_norm = true;
    m.desc.recompute = false;
    CHECK(silence(&m.blocks[0]) && silence(&m.blocks[1]));
    for (k = 0, mean = var = size = 0; k < SEEDS; k++) {
        int zeros = 0;
        tn_ctx_reset(w.ctx);
        tn_tensor *ids = ids_of(w.ctx, &d, 1, T, 1);
        want = host(tn_embedding_forward(w.ctx, &m.embed, ids));
        tn_record(w.ctx);
        got = host(tn_transformer_hidden(w.ctx, &m, ids));
        for (int i = 0; i < T * d.dim; i++) {
            const double e = got[i] * 0.75 - want[i];
            if (got[i] == 0) zeros++;
            else mean += e, var += e * e, size += 1;
        }
        CHECK(zeros < T * d.dim);
    }
    CHECK_NEAR(size / (double)(SEEDS * T * d.dim), 0.75, 0.025);     /* 5 standard errors */
    CHECK_NEAR(mean / size, 0, 0.02);
    CHECK_NEAR(var / size, 0.09, 0.009);
    close_world(&w);
    close_world(&v);
    d.dropout = 1;
    CHECK_STATUS(tn_transformer_check(NULL, &d, &full), TN_ERR_ARG);
    d.dropout = 0; d.embed_noise = -1;
    CHECK_STATUS(tn_transformer_check(NULL, &d, &full), TN_ERR_ARG);
}

/* A layer without norms is its tensors: bilinear attention of order 6, the MLP of order 3, contracted with the inputs. */
TEST(logits_by_tensor)
{
    enum { V = 5, D = 4, HEADS = 2, K = 2, H = 3, T = 5 };
    static double       attention[D][D][D][D][D][D], mlp[D][D][D];
    tn_transformer_desc d = tiny();
    tn_transformer      m;
    world               w;
    double              E[V][D], P[T][D], QK[4][HEADS][K][D], VV[HEADS][K][D], O[D][HEADS][K], U[V][D], x[T][D], y[T][D];
    double              want[T][V], got[T][V];
    int32_t             id[T] = {4, 0, 2, 4, 1};
    d.layers = 1; d.context = T;
    d.no_norm = true;
    d.positions = TN_POSITIONS_LEARNED;
    d.attention = TN_ATTENTION_BILINEAR;
    d.row_scale = TN_ROW_SCALE_NONE;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 21));
    tn_read(m.embed.w, TN_F64, E, V * D);
    tn_read(m.position, TN_F64, P, T * D);
    tn_read(m.blocks[0].attn.qk, TN_F64, QK, 4 * HEADS * K * D);
    tn_read(m.blocks[0].attn.v, TN_F64, VV, HEADS * K * D);
    tn_read(m.blocks[0].attn.o, TN_F64, O, D * HEADS * K);
    tn_read(m.head.w, TN_F64, U, V * D);
    tn_tensor *dense = tn_cp_dense(tn_cp_from_mlp(w.ctx, &m.blocks[0].mlp));
    REQUIRE(CHECK_STATUS(tn_read(dense, TN_F64, mlp, D * D * D), TN_OK));
    memset(attention, 0, sizeof attention);
    for (int h = 0; h < HEADS; h++) {
        double A[2][D][D], M[D][D];                          /* x_t^T A x_s; what head h writes from x_s */
        memset(A, 0, sizeof A);
        memset(M, 0, sizeof M);
        for (int i = 0; i < D; i++) for (int j = 0; j < D; j++) for (int c = 0; c < K; c++) {
            for (int n = 0; n < 2; n++) A[n][i][j] += QK[n][h][c][i] * QK[2 + n][h][c][j] / K;
            M[i][j] += O[i][h][c] * VV[h][c][j];
        }
        for (int o = 0; o < D; o++) for (int i = 0; i < D; i++) for (int j = 0; j < D; j++)
            for (int k = 0; k < D; k++) for (int l = 0; l < D; l++) for (int n = 0; n < D; n++)
                attention[o][i][j][k][l][n] += A[0][i][j] * A[1][k][l] * M[o][n];
    }
    for (int t = 0; t < T; t++) for (int i = 0; i < D; i++) y[t][i] = x[t][i] = E[id[t]][i] + P[t][i];
    for (int t = 0; t < T; t++) {
        for (int s = 0; s <= t; s++) for (int o = 0; o < D; o++) for (int i = 0; i < D; i++) for (int j = 0; j < D; j++)
            for (int k = 0; k < D; k++) for (int l = 0; l < D; l++) for (int n = 0; n < D; n++)
                y[t][o] += attention[o][i][j][k][l][n] * x[t][i] * x[s][j] * x[t][k] * x[s][l] * x[s][n];
        for (int c = 0; c < V; c++) {
            want[t][c] = 0;
            for (int o = 0; o < D; o++) {
                double z = y[t][o];
                for (int i = 0; i < D; i++) for (int j = 0; j < D; j++) z += mlp[o][i][j] * y[t][i] * y[t][j];
                want[t][c] += U[c][o] * z;
            }
        }
    }
    tn_tensor *ids = tn_tensor_2d(w.ctx, TN_I32, 1, T);
    tn_write(ids, TN_I32, id, T);
    CHECK_STATUS(tn_read(tn_transformer_forward(w.ctx, &m, ids), TN_F64, got, T * V), TN_OK);
    WORST("logits of a layer without norms against its tensors", test_frobenius(&got[0][0], &want[0][0], T * V), 1e-14);
    close_world(&w);
}

TEST(cycles_refuse)
{
    tn_transformer_desc d = tiny(), full;
    tn_ctx             *ctx;
    REQUIRE(CHECK_STATUS(tn_ctx_create(NULL, &ctx, NULL), TN_OK));
    d.attention_count = -1;
    FAILS(ctx, tn_transformer_check(ctx, &d, &full), TN_ERR_ARG, "transformer: attention_count is -1, expected 0 to 64");
    d.attention_count = 0; d.mlp_count = TN_MAX_CYCLE + 1;
    FAILS(ctx, tn_transformer_check(ctx, &d, &full), TN_ERR_ARG, "transformer: mlp_count is 65, expected 0 to 64");
    d.mlp_count = 2; d.mlp_cycle[1] = (tn_mlp_kind)99;
    FAILS(ctx, tn_transformer_check(ctx, &d, &full), TN_ERR_ARG, "transformer: mlp is 99, expected 0 to");
    d = tiny(); d.window_count = 2; d.window_cycle[1] = -5;
    FAILS(ctx, tn_transformer_check(ctx, &d, &full), TN_ERR_ARG, "transformer: window is -5, expected 0 or more");
    d = tiny(); d.row_scale = TN_ROW_SCALE_SUM; d.attention_count = 2; d.attention_cycle[1] = TN_ATTENTION_DIFFERENTIAL;
    FAILS(ctx, tn_transformer_check(ctx, &d, &full), TN_ERR_ARG, "row_scale is TN_ROW_SCALE_SUM, expected squared attention");
    d = tiny(); d.mlp_order = 3; d.mlp_count = 2; d.mlp_cycle[0] = TN_MLP_GLU; d.mlp_cycle[1] = TN_MLP_RELU;
    FAILS(ctx, tn_transformer_check(ctx, &d, &full), TN_ERR_ARG, "transformer: mlp_order is given, expected 0: not bilinear");
    d = tiny(); d.attention_count = 6; d.attention_cycle[1] = d.attention_cycle[3] = d.attention_cycle[5] = TN_ATTENTION_SQUARED;
    d.layers = 7;                                            /* a cycle of two; one of two equal kinds is none */
    d.mlp_count = 2; d.mlp_cycle[0] = d.mlp_cycle[1] = TN_MLP_GELU;
    CHECK_STATUS(tn_transformer_check(ctx, &d, &full), TN_OK);
    CHECK(full.attention_count == 2 && full.mlp_count == 0 && full.mlp == TN_MLP_GELU);
    d.layers = 1;                                            /* of which one block sees the first alone */
    CHECK_STATUS(tn_transformer_check(ctx, &d, &full), TN_OK);
    CHECK(full.attention_count == 0 && full.attention == TN_ATTENTION_SOFTMAX);
    tn_ctx_destroy(ctx);
}

static double spread(const tn_tensor *t)
{
    int64_t n = tn_tensor_count(t);
    double *v = host(t), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i] * v[i];
    return sqrt(sum / (double)n);
}

TEST(starts)
{
    tn_transformer_desc d = tiny();
    tn_transformer      m;
    world               w;
    double              l[2];
    d.dim = 64; d.vocab = 90; d.context = 80; d.hidden = 100; d.layers = 8;
    d.positions = TN_POSITIONS_LEARNED;
    d.x0_residual = true;
    REQUIRE(open_on(&w, TN_F32, 3, 1, NULL));
    REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "a", &d, &m), TN_OK));
    CHECK_NEAR(spread(m.embed.w), 0.02, 0.001);
    CHECK_NEAR(spread(m.position), 0.02, 0.001);
    CHECK_NEAR(spread(m.head.w), 0.02, 0.001);
    CHECK_NEAR(spread(m.blocks[7].attn.qk), 0.02, 0.001);
    CHECK_NEAR(spread(m.blocks[0].mlp.w), 0.02, 0.001);
    CHECK_NEAR(spread(m.blocks[7].attn.o), 0.005, 0.0003);
    CHECK_NEAR(spread(m.blocks[3].mlp.p), 0.005, 0.0003);
    tn_read(m.blocks[3].lambdas, TN_F64, l, 2);
    CHECK(l[0] == 1 && l[1] == 0);
    CHECK(tn_params_find(w.params, "a.blocks.7.attn.qk") && tn_params_find(w.params, "a.norm.gain"));
    CHECK_NEAR(tn_params_find(w.params, "a.blocks.0.lambdas")->decay_scale, 0, 0);
    d.init = TN_INIT_NORMAL; d.zero_out = d.zero_head = true;
    REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "b", &d, &m), TN_OK));
    CHECK_NEAR(spread(m.embed.w), 1, 0.05);
    CHECK_NEAR(spread(m.blocks[7].attn.v), 0.125, 0.006);
    CHECK(spread(m.blocks[7].attn.o) == 0 && spread(m.blocks[0].mlp.p) == 0 && spread(m.head.w) == 0);
    d.init_std = 0.5; d.embed_std = 0.3; d.zero_out = false;
    REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "c", &d, &m), TN_OK));
    CHECK_NEAR(spread(m.embed.w), 0.3, 0.01);
    CHECK_NEAR(spread(m.blocks[1].attn.o), 0.5, 0.02);
    close_world(&w);
}

/* The loss of random tokens before any training: near ln(vocab), also where the embedding is the unembedding. */
TEST(first_loss)
{
    enum { TEXTS = 4, TOKENS = 16 };
    static const int64_t dims[] = {64, 512}, vocabs[] = {60, 3000};
    for (int k = 0; k < 64; k++) {
        tn_transformer_desc d = tiny();
        tn_transformer      m;
        int32_t             id[2][TEXTS * TOKENS];
        const int64_t       two[2] = {TEXTS, TOKENS};
        world               w;
        d.dim = dims[k & 1]; d.vocab = vocabs[k >> 1 & 1]; d.context = TOKENS; d.hidden = 32; d.layers = k & 4 ? 3 : 1;
        d.embed_norm = k >> 3 == 1;
        d.no_norm = k >> 3 == 2;
        d.norm_place = k >> 3 == 3 ? TN_PLACE_POST : k >> 3 == 4 ? TN_PLACE_SANDWICH : TN_PLACE_PRE;
        d.positions = k >> 3 == 5 ? TN_POSITIONS_LEARNED : TN_POSITIONS_ROPE;
        d.norm = k >> 3 == 6 ? TN_NORM_LAYER : TN_NORM_RMS;
        d.zero_out = k >> 3 != 7;
        d.init = TN_INIT_NORMAL;
        d.tied = true;
        REQUIRE(open_on(&w, TN_F32, (uint64_t)k, 1, NULL));
        for (int i = 0; i < TEXTS * TOKENS; i++)
            id[0][i] = (int32_t)((i * 37 + k) % d.vocab), id[1][i] = (int32_t)((i * 53 + 11 * k + 5) % d.vocab);
        tn_tensor *ids = tn_tensor_create(w.ctx, TN_I32, 2, two);
        tn_tensor *next = tn_tensor_create(w.ctx, TN_I32, 2, two);
        tn_write(ids, TN_I32, id[0], TEXTS * TOKENS);
        tn_write(next, TN_I32, id[1], TEXTS * TOKENS);
        REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK));
        double loss = tn_item(tn_transformer_loss(w.ctx, &m, ids, next));
        double expected = log((double)d.vocab);
        if (!CHECK_NEAR(loss, expected, 0.35))
            printf("     dim %d, vocab %d, case %d\n", (int)d.dim, (int)d.vocab, k >> 3);
        close_world(&w);
    }
}

/* What makes no model says why, and leaves neither parameters nor names behind. */
static void refused(world *w, tn_transformer_desc d, tn_status s, const char *part)
{
    const int64_t  count = tn_params_count(w->params);
    tn_transformer m, zeros;
    tn_sink        nowhere = tn_sink_memory(NULL, 0, NULL);
    memset(&zeros, 0, sizeof zeros);
    memset(&m, 1, sizeof m);
    CHECK_STATUS(tn_transformer_init(w->params, "m", &d, &m), s);
    CHECK(memcmp(&m, &zeros, sizeof m) == 0);
    CHECK_ERROR(w->ctx, s, part);
    CHECK_INT(tn_params_count(w->params), count);
    if (strstr(part, "already")) return;
    CHECK_STATUS(tn_transformer_config_write(w->ctx, &d, nowhere), s);
    CHECK_ERROR(w->ctx, s, part);
    CHECK_INT(tn_transformer_cost_of(&d, 0).params, 0);
}

#define REFUSES(change, status, part) do { tn_transformer_desc d = tiny(); change; refused(&w, d, status, part); } while (0)
TEST(bad_descs)
{
    tn_transformer m;
    tn_transformer_desc none = tiny();
    char    name[200] = "";
    int64_t one = 1;
    const unsigned nine = 9;
    tn_init zero = ZERO;
    world   w;
    REQUIRE(open_on(&w, TN_F32, 3, 1, NULL));
    REFUSES(d.vocab = 0, TN_ERR_SHAPE, "transformer: vocab is 0, expected 1 to 2^31 - 2");
    REFUSES(d.layers = -2, TN_ERR_SHAPE, "layers is -2");
    REFUSES(d.dim = 0, TN_ERR_SHAPE, "dim is 0");
    REFUSES(d.heads = 0, TN_ERR_SHAPE, "heads is 0");
    REFUSES(d.context = INT32_MAX, TN_ERR_SHAPE, "context is 2147483647");
    REFUSES(d.heads = 3, TN_ERR_SHAPE, "dim is 4, expected a multiple of 3 for 3 heads, or d_qk to be given");
    REFUSES(d.heads = 4; d.attention = TN_ATTENTION_DIFFERENTIAL, TN_ERR_SHAPE, "dim is 4, expected a multiple of 8 for 4 heads");
    REFUSES(d.heads = 3; d.d_qk = 1, TN_ERR_SHAPE, "dim is 4, expected a multiple of 3 for 3 heads, or d_v to be given");
    REFUSES(d.hidden = -1, TN_ERR_SHAPE, "hidden is -1");
    REFUSES(d.d_qk = -1, TN_ERR_SHAPE, "d_qk is -1");
    REFUSES(d.d_v = INT64_MAX, TN_ERR_SHAPE, "d_v is 9223372036854775807");
    REFUSES(d.row_length = -1, TN_ERR_SHAPE, "row_length is -1");
    REFUSES(d.window = -1, TN_ERR_ARG, "transformer: window is -1, expected 0 or more");
    REFUSES(d.mlp_order = 65, TN_ERR_ARG, "transformer: mlp_order is 65, expected 0 to 64");
    REFUSES(d.mlp_order = 3; d.mlp = TN_MLP_RELU, TN_ERR_ARG, "transformer: mlp_order is given, expected 0: not bilinear");
    REFUSES(d.no_projection = true, TN_ERR_SHAPE, "transformer: hidden is 3, expected dim = 4 with no_projection");
    REFUSES(d.hidden = 4; d.no_projection = d.mlp_out_bias = true, TN_ERR_ARG, "mlp_out_bias is true, expected false with no_projection");
    REFUSES(d.no_norm = d.embed_norm = true, TN_ERR_ARG, "embed_norm is true, expected false with no_norm");
    REFUSES(d.norm_bias = true, TN_ERR_ARG, "norm_bias is true, expected false: only TN_NORM_LAYER");
    REFUSES(d.no_norm = true; d.norm_place = TN_PLACE_POST, TN_ERR_ARG, "norm_place is given, expected 0 with no_norm");
    REFUSES(d.tied = d.zero_head = true, TN_ERR_ARG, "zero_head is true, expected false with tied");
    REFUSES(d.row_scale = TN_ROW_SCALE_SUM, TN_ERR_ARG, "row_scale is TN_ROW_SCALE_SUM, expected squared attention");
    REFUSES(d.form = TN_ATTEND_FORM_LINEAR, TN_ERR_ARG, "softmax has no linear form");
    REFUSES(d.form = TN_ATTEND_FORM_LINEAR; d.window = 1; d.attention = TN_ATTENTION_SQUARED, TN_ERR_ARG,
            "a window has no linear");
    REFUSES(d.hidden = 2147483646; d.dim = 2147483646; d.heads = 1, TN_ERR_SHAPE, "parameters");
    REFUSES(d.heads = d.d_qk = 60000; d.d_v = 1, TN_ERR_SHAPE, "d_qk is 60000, expected at least 1, and below 2^31 - 1");
    REFUSES(d.heads = d.d_v = 60000; d.d_qk = 1, TN_ERR_SHAPE, "d_v is 60000");
    REFUSES(d.heads = 1; d.d_qk = 100000000; d.attention = TN_ATTENTION_BILINEAR; d.form = TN_ATTEND_FORM_LINEAR,
            TN_ERR_SHAPE,
            "attend: the state would have 100000000 * 100000000 * 4 numbers, expected at most 1e15");
    REFUSES(d.softcap = -1, TN_ERR_ARG, "softcap is -1");
    REFUSES(d.norm_eps = (double)NAN, TN_ERR_ARG, "norm_eps is nan");
    REFUSES(d.qk_norm_eps = -1, TN_ERR_ARG, "qk_norm_eps is -1");
    REFUSES(d.attn_scale = -2, TN_ERR_ARG, "attn_scale is -2");
    REFUSES(d.init_std = HUGE_VAL, TN_ERR_ARG, "init_std is inf");
    REFUSES(d.mlp = (tn_mlp_kind)15, TN_ERR_ARG, "transformer: mlp is 15, expected 0 to ");
    REFUSES(d.attention = (tn_attention_kind)7, TN_ERR_ARG, "transformer: attention is 7, expected 0 to ");
    REFUSES(d.form = (tn_attend_form)3, TN_ERR_ARG, "form is 3, expected 0 to 2");
    REFUSES(d.row_scale = (tn_row_scale)7, TN_ERR_ARG, "row_scale is 7, expected 0 to 4");
    REFUSES(d.positions = (tn_positions)3, TN_ERR_ARG, "transformer: positions is 3, expected 0 to 2");
    REFUSES(memcpy(&d.norm, &nine, sizeof d.norm), TN_ERR_ARG, "transformer: norm is 9, expected 0 to 1");     /* which no cast may be */
    REFUSES(d.norm_place = (tn_place)3, TN_ERR_ARG, "transformer: place is 3, expected 0 to 2");
    REFUSES(d.init = (tn_init_rule)7, TN_ERR_ARG, "transformer: init is 7, expected 0 to ");
    CHECK(tn_params_add(w.params, "m.blocks.1.mlp.p", 1, &one, zero) != NULL);
    REFUSES(d.tied = true, TN_ERR_ARG, "the parameter m.blocks.1.mlp.p exists already");
    CHECK(tn_params_add(w.params, "m.head.w", 1, &one, zero) != NULL);
    CHECK_STATUS(tn_transformer_init(w.params, NULL, &none, &m), TN_OK);
    FAILS(w.ctx, tn_transformer_init(w.params, "", &none, &m), TN_ERR_ARG, "the parameter embed.w exists already");
    CHECK(m.blocks == NULL);
    CHECK(tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &none, 1, 1, 1)) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "transformer: the model is not initialised");
    memset(name, 'n', 199);
    memset(&m, 1, sizeof m);
    FAILS(w.ctx, tn_transformer_init(w.params, name, &none, &m), TN_ERR_ARG, "is too long");
    CHECK(m.blocks == NULL && m.desc.dim == 0);
    m.desc = none;                                           /* a desc may be that of the model */
    CHECK_STATUS(tn_transformer_init(w.params, "own", &m.desc, &m), TN_OK);
    CHECK_INT(m.desc.dim, none.dim);
    memset(&m, 1, sizeof m);
    CHECK_STATUS(tn_transformer_init(NULL, "", &none, &m), TN_ERR_ARG);
    CHECK(m.blocks == NULL && m.desc.dim == 0);
    FAILS(w.ctx, tn_transformer_init(w.params, "", &none, NULL), TN_ERR_ARG, "model or desc is NULL");
    FAILS(w.ctx, tn_transformer_check(w.ctx, NULL, NULL), TN_ERR_ARG, "desc is NULL");
    close_world(&w);
}

/* A desc that the check takes can be made, and one that it refuses cannot. */
TEST(check_is_init)
{
    world   w;
    int64_t k, taken = 0;
    REQUIRE(open_on(&w, TN_F32, 3, 1, NULL));
    for (k = 0; k < 5 * 3 * 5 * 2 * 2 * 2; k++) {
        tn_transformer_desc d = tiny();
        tn_transformer      m;
        char                name[16];
        d.attention = (tn_attention_kind)(k % 5);
        d.form = (tn_attend_form)(k / 5 % 3);
        d.row_scale = (tn_row_scale)(k / 15 % 5);
        d.window = k / 75 % 2;
        d.bidirectional = k / 150 % 2 == 1;
        d.value_residual = k / 300 == 1;
        snprintf(name, sizeof name, "m%d", (int)k);
        bool ok = tn_transformer_check(w.ctx, &d, NULL) == TN_OK;
        CHECK(ok == (tn_ctx_status(w.ctx) == TN_OK));
        tn_ctx_clear_error(w.ctx);
        CHECK(ok == (tn_transformer_init(w.params, name, &d, &m) == TN_OK));
        tn_ctx_clear_error(w.ctx);
        taken += ok;
    }
    CHECK(taken > 100 && taken < k - 100);
    close_world(&w);
}

/* ---- clones ------------------------------------------------------------------------------------------------------ */

TEST(clones)
{
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        tn_ctx             *single;
        world               w;
        int64_t             V = d.vocab;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 400 + (uint64_t)k));
        REQUIRE(CHECK_STATUS(tn_ctx_create(NULL, &single, NULL), TN_OK));
        tn_tensor     *ids = ids_of(w.ctx, &d, 1, 1, 2);
        double *before = host(tn_transformer_forward(w.ctx, &m, ids));
        tn_params     *other = tn_params_clone(single, w.params);
        tn_transformer copy = m;
        int64_t        n = tn_params_rebind(other, w.params, &copy, sizeof copy);
        if (!CHECK_INT(n, tn_params_count(w.params) + d.tied)) printf("     %s\n", what);
        CHECK(copy.blocks != m.blocks);
        CHECK(stir(w.params, 1, 1));                         /* the copy knows nothing of this */
        tn_params_destroy(w.params);
        w.params = NULL;
        double *after = host(tn_transformer_forward(single, &copy, ids_of(single, &d, 1, 1, 2)));
        CHECK(test_max_error(after, before, V) < 1e-5);
        CHECK_STATUS(tn_ctx_status(single), TN_OK);
        tn_ctx_destroy(single);
        close_world(&w);
    }
}

/* A set of parameters that lacks one: nothing is changed, nothing left behind. */
TEST(clones_refuse)
{
    tn_transformer_desc d = tiny();
    tn_transformer      m, small;
    world               w;
    REQUIRE(model_on(&w, TN_F32, &d, &m, 1));
    tn_params *other = tn_params_create(w.ctx);
    d.layers = 1;
    REQUIRE(CHECK_STATUS(tn_transformer_init(other, "", &d, &small), TN_OK));
    tn_transformer copy = m;
    size_t         live = w.heap.live;
    CHECK_INT(tn_params_rebind(other, w.params, &copy, sizeof copy), -1);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "blocks.1.");
    CHECK(memcmp(&copy, &m, sizeof m) == 0);
    CHECK_INT(w.heap.live, live);
    w.heap.fail_at = w.heap.count + 1;                       /* no room for the blocks */
    CHECK_INT(tn_params_rebind(other, other, &small, sizeof small), -1);
    CHECK_ERROR(w.ctx, TN_ERR_MEMORY, "layers");
    w.heap.fail_at = 0;
    CHECK_INT(tn_params_rebind(other, other, &small, sizeof small), tn_params_count(other));
    CHECK(tn_transformer_forward(w.ctx, &small, ids_of(w.ctx, &d, 1, 2, 1)) != NULL);
    close_world(&w);
}

/* ---- config.json -------------------------------------------------------------------------------------------------- */

static tn_status read_text(tn_ctx *ctx, const char *text, tn_transformer_desc *d)
{
    tn_source s = tn_source_memory(text, strlen(text));
    s.name = "config.json";
    return tn_transformer_config_read(ctx, s, d);
}

static size_t config_text(tn_ctx *ctx, const tn_transformer_desc *d, char *text, size_t room)
{
    size_t used = 0;
    CHECK_STATUS(tn_transformer_config_write(ctx, d, tn_sink_memory(text, room - 1, &used)), TN_OK);
    text[used < room ? used : room - 1] = 0;
    return used;
}

TEST(configs)
{
    tn_ctx *ctx;
    char    text[4096], again[4096];
    REQUIRE(CHECK_STATUS(tn_ctx_create(NULL, &ctx, NULL), TN_OK));
    for (int k = 0; k < VARIANTS + TN_MLP_GEGLU_TANH + 1; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what), full, back;
        if (k >= VARIANTS) {
            d.mlp = (tn_mlp_kind)(k - VARIANTS);
            d.init = (tn_init_rule)((k - VARIANTS) % (TN_INIT_HE + 1));
            d.zero_out = d.zero_head = true;
            d.init_std = 0.1 + k;
            d.embed_std = 1.0 / 3;
            d.norm_eps = 1e-30;
            d.qk_norm_eps = 1e-3;
        }
        memset(&full, 0, sizeof full);
        memset(&back, 0, sizeof back);
        CHECK_STATUS(tn_transformer_check(ctx, &d, &full), TN_OK);
        size_t n = config_text(ctx, &d, text, sizeof text);
        CHECK_INT(n, strlen(text));
        if (!CHECK_STATUS(read_text(ctx, text, &back), TN_OK)) printf("     %s\n%s\n", tn_ctx_error(ctx), text);
        CHECK(memcmp(&full, &back, sizeof back) == 0);       /* padding and all: both were zeros before */
        config_text(ctx, &back, again, sizeof again);
        CHECK_STR(again, text);
        if (k >= VARIANTS) {
            snprintf(again, sizeof again, "\"mlp\": \"%s\"", tn_mlp_kind_name(full.mlp));
            CHECK(strstr(text, again) != NULL);
        } else {
            snprintf(again, sizeof again, "\"attention\": %s\"%s\"", full.attention_count ? "[" : "",
                     tn_attention_kind_name(full.attention));
            CHECK(strstr(text, again) != NULL);
        }
    }
    CHECK(strstr(text, "\"embed_std\": 0.3333333333333333,") && strstr(text, "\"rope_base\": 10000,") && strstr(text, "\"norm_eps\": 1e-30,") &&
          strstr(text, "\"qk_norm_eps\": 0.001,"));
    tn_ctx_destroy(ctx);
}

#define OURS "\"n_vocab\":5,\"n_layer\":1,\"n_head\":1,\"n_ctx\":4,\"d_model\":4"

#define SIXTEEN "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,"

static void misread(tn_ctx *ctx, const char *text, tn_status s, const char *part)
{
    tn_transformer_desc d, was;
    memset(&was, 0x5A, sizeof was);
    memcpy(&d, &was, sizeof d);
    if (!CHECK_STATUS(read_text(ctx, text, &d), s)) printf("     %s\n", text);
    CHECK_ERROR(ctx, s, part);
    CHECK(memcmp(&d, &was, sizeof d) == 0);
}

TEST(configs_refuse)
{
    tn_transformer_desc d;
    tn_ctx *ctx;
    REQUIRE(CHECK_STATUS(tn_ctx_create(NULL, &ctx, NULL), TN_OK));
    CHECK_STATUS(read_text(ctx, "{" OURS "}", &d), TN_OK);
    CHECK(d.hidden == 8 && d.rope_base == 10000 && d.mlp == TN_MLP_BILINEAR);
    CHECK_STATUS(read_text(ctx, " {" OURS ", \"tied\" :\n true , \"softcap\": 1.5e1 } ", &d), TN_OK);
    CHECK(d.tied && d.softcap == 15);
    misread(ctx, "", TN_ERR_FORMAT, "config.json: byte 0: unexpected end of file, expected a value");
    misread(ctx, "{}", TN_ERR_FORMAT, "missing key n_vocab");
    misread(ctx, "[{" OURS "}]", TN_ERR_FORMAT, "unexpected value, expected an object");
    misread(ctx, "{" OURS, TN_ERR_FORMAT, "unexpected end of file, expected '}'");
    misread(ctx, "{" OURS "} x", TN_ERR_FORMAT, "unexpected character, expected the end of the file");
    misread(ctx, "{" OURS ",}", TN_ERR_FORMAT, "unexpected character, expected a string");
    misread(ctx, "{" OURS ",\"dropout\":0.1}", TN_ERR_FORMAT, "unknown key \"dropout\" of a transformer");
    misread(ctx, "{" OURS ",\"n_ctx\":5}", TN_ERR_FORMAT, "duplicate key \"n_ctx\"");
    misread(ctx, "{\"n_vocab\":5,\"n_layer\":1,\"n_head\":1,\"d_model\":4}", TN_ERR_FORMAT, "missing key n_ctx");
    misread(ctx, "{\"n_layer\":0}", TN_ERR_FORMAT, "byte 11: n_layer is 0, expected an integer from 1 to 2147483646");
    misread(ctx, "{\"n_layer\":1.5}", TN_ERR_FORMAT, "n_layer is 1.5");
    misread(ctx, "{\"n_layer\":1e99}", TN_ERR_FORMAT, "n_layer is 1e+99");
    misread(ctx, "{\"n_layer\":1e999}", TN_ERR_FORMAT, "n_layer is inf");
    misread(ctx, "{\"n_layer\":nan}", TN_ERR_FORMAT, ", expected a value");
    misread(ctx, "{\"n_layer\":+1}", TN_ERR_FORMAT, ", expected a value");
    misread(ctx, "{\"n_layer\":}", TN_ERR_FORMAT, ", expected a value");
    misread(ctx, "{\"n_layer\":", TN_ERR_FORMAT, ", expected a value");
    misread(ctx, "{\"n_layer\":\"2\"}", TN_ERR_FORMAT, "n_layer is \"2\", expected an integer from 1 to 2147483646");
    misread(ctx, "{\"n_layer\":null}", TN_ERR_FORMAT, "n_layer is null");
    misread(ctx, "{\"n_layer\":[1]}", TN_ERR_FORMAT, "n_layer is a list");
    misread(ctx, "{\"n_layer\":[1", TN_ERR_FORMAT, ", expected ']'");
    misread(ctx, "{\"mlp\":[]}", TN_ERR_FORMAT, "byte 7: mlp is an empty array, expected 1 to 64 values");
    misread(ctx, "{\"mlp\":[\"relu\",\"maxout\"]}", TN_ERR_FORMAT, "byte 15: mlp is \"maxout\", expected bilinear, relu,");
    misread(ctx, "{\"window\":[4,[4]]}", TN_ERR_FORMAT, "window is a list, expected an integer from 0 to 2147483646");
    misread(ctx, "{\"window\":[" SIXTEEN SIXTEEN SIXTEEN SIXTEEN "1]}", TN_ERR_FORMAT, "window is an array of more than 64 values");
    misread(ctx, "{\"tied\":1}", TN_ERR_FORMAT, "tied is 1, expected true or false");
    misread(ctx, "{\"softcap\":-1}", TN_ERR_FORMAT, "softcap is -1, expected a number from 0 to 1e30");
    misread(ctx, "{\"mlp\":\"maxout\"}", TN_ERR_FORMAT, "mlp is \"maxout\", expected bilinear, relu, relu2, gelu, swish,");
    misread(ctx, "{\"norm\":\"batch\"}", TN_ERR_FORMAT, "norm is \"batch\", expected rms or layer");
    misread(ctx, "{" OURS ",\"row_scale\":\"sum\"}", TN_ERR_ARG, "row_scale is TN_ROW_SCALE_SUM, expected squared attention");
    misread(ctx, "{" OURS ",\"d_hidden\":4,\"mlp\":\"relu\",\"mlp_order\":3}", TN_ERR_ARG, "transformer: mlp_order is given, expected 0: not");
    misread(ctx, "{\"n_head\":3,\"n_vocab\":5,\"n_layer\":1,\"n_ctx\":4,\"d_model\":4}", TN_ERR_SHAPE, "dim is 4, expected a multiple of 3 for 3 heads");
    misread(ctx, "{\"model_type\":\"bert\"}", TN_ERR_FORMAT, "model_type is \"bert\", expected tensornet, gpt2, llama, mistral");
    misread(ctx, "{\"model_type\":7}", TN_ERR_FORMAT, "model_type is not a string");
    FAILS(ctx, read_text(ctx, "{}", NULL), TN_ERR_ARG, "desc is NULL");
    FAILS(ctx, tn_transformer_config_read(ctx, tn_source_path("/nowhere/config.json"), &d), TN_ERR_FILE, "could not be opened");
    tn_ctx_destroy(ctx);
}

/* Configs with bytes changed, cut out and put in twice: an error, or a desc that is written and read again as it is. */
TEST(configs_mutated)
{
    tn_ctx  *ctx;
    char     text[4096], changed[4096], again[4096];
    uint64_t seed = 6;
    int      taken = 0;
    REQUIRE(CHECK_STATUS(tn_ctx_create(NULL, &ctx, NULL), TN_OK));
    for (int round = 0; round < 6000; round++) {
        const char         *what;
        tn_transformer_desc d = variant((int)test_random_int(&seed, 0, VARIANTS - 1), &what), back = ZERO;
        int64_t             n = (int64_t)config_text(ctx, &d, text, sizeof text);
        for (int64_t k = test_random_int(&seed, 1, 3); k > 0; k--) {
            int64_t at = test_random_int(&seed, 0, n - 1);
            int64_t length = test_random_int(&seed, 0, n - at < 40 ? n - at : 40);
            switch (test_random_int(&seed, 0, 3)) {
            case 0:  text[at] = (char)test_random_int(&seed, 0, 255); break;
            case 1:  text[at] = "0123456789-.e\"{}[],:tfn"[test_random_int(&seed, 0, 22)]; break;
            case 2:  memmove(text + at, text + at + length, (size_t)(n - at - length)); n -= length; break;
            default: memmove(text + at + length, text + at, (size_t)(n - at)); n += length;
            }
            if (n == 0) break;
        }
        memcpy(changed, text, (size_t)n);
        tn_source source = tn_source_memory(text, (size_t)n);
        if (tn_transformer_config_read(ctx, source, &back) == TN_OK) {
            taken++;
            config_text(ctx, &back, again, sizeof again);
            CHECK_STATUS(read_text(ctx, again, &d), TN_OK);
            CHECK_INT(tn_transformer_cost_of(&back, 0).params, tn_transformer_cost_of(&d, 0).params);
        } else CHECK(tn_ctx_status(ctx) != TN_OK);
        CHECK(memcmp(text, changed, (size_t)n) == 0);        /* the source is only read */
        tn_ctx_clear_error(ctx);
    }
    if (!CHECK(taken > 50 && taken < 5000)) printf("     %d taken\n", taken);
    tn_ctx_destroy(ctx);
}

#define GPT2  "{\"architectures\":[\"GPT2LMHeadModel\",{\"a\":\"]}\"}],\"n_layer\":2,\"n_head\":2,\"n_embd\":6,\"n_ctx\":5," \
              "\"n_positions\":5,\"vocab_size\":7,\"n_inner\":null,\"task_specific_params\":{\"x\":{\"y\":[1,2]}}"
#define LLAMA "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"hidden_size\":16," \
              "\"intermediate_size\":6,\"vocab_size\":7,\"max_position_embeddings\":64,\"rope_scaling\":"

#define LLAMA5 "{\"model_type\":\"llama\"," LLAMA "null,\"rope_parameters\":"

static const char gpt2_config[] = GPT2 ",\"activation_function\":\"gelu_new\",\"model_type\":\"gpt2\"}";
static const char llama_config[] = "{\"model_type\":\"llama\"," LLAMA "null,\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-06}";

TEST(configs_of_others)
{
    tn_transformer_desc d;
    tn_ctx *ctx;
    REQUIRE(CHECK_STATUS(tn_ctx_create(NULL, &ctx, NULL), TN_OK));
    CHECK_STATUS(read_text(ctx, gpt2_config, &d), TN_OK);
    CHECK_CTX(ctx);
    CHECK(d.layers == 2 && d.heads == 2 && d.dim == 6 && d.context == 5 && d.vocab == 7 && d.hidden == 24 && d.tied);
    CHECK(d.mlp == TN_MLP_GELU_TANH && d.norm == TN_NORM_LAYER && d.positions == TN_POSITIONS_LEARNED &&
          d.norm_eps == (double)1e-5);
    FAILS(ctx, read_text(ctx, GPT2 ",\"model_type\":\"gpt2\",\"n_inner\":null}", &d), TN_ERR_FORMAT, "duplicate key \"n_inner\"");
    CHECK_STATUS(read_text(ctx, GPT2 ",\"model_type\":\"gpt2\",\"tie_word_embeddings\":false}", &d), TN_OK);
    CHECK(!d.tied);
    misread(ctx, GPT2 ",\"model_type\":\"gpt2\",\"activation_function\":\"mish\"}", TN_ERR_FORMAT, "activation_function is \"mish\"");
    misread(ctx, GPT2 ",\"model_type\":\"gpt2\",\"scale_attn_weights\":false}", TN_ERR_FORMAT,
            "scale_attn_weights is false, expected true: no other value is supported");
    misread(ctx, GPT2 ",\"model_type\":\"gpt2\",\"add_cross_attention\":true}", TN_ERR_FORMAT, "add_cross_attention is true, expected false:");
    misread(ctx, "{\"model_type\":\"gpt2\"}", TN_ERR_FORMAT, "missing key vocab_size");
    CHECK_STATUS(read_text(ctx, llama_config, &d), TN_OK);
    CHECK_CTX(ctx);
    CHECK(d.layers == 2 && d.heads == 4 && d.dim == 16 && d.hidden == 6 && d.norm_eps == (double)1e-6 &&
          d.rope_base == 10000);
    CHECK(d.mlp == TN_MLP_SWIGLU && d.norm == TN_NORM_RMS && !d.tied && !d.attn_bias && d.d_qk == 4 && d.d_v == 4);
    CHECK_STATUS(read_text(ctx, "{\"model_type\":\"llama\",\"head_dim\":8,\"attention_bias\":true," LLAMA "null}", &d), TN_OK);
    CHECK(d.d_qk == 8 && d.d_v == 8 && d.attn_bias && d.attn_out_bias && !d.mlp_bias);
    misread(ctx, "{\"model_type\":\"llama\"," LLAMA "{\"type\":\"yarn\",\"factor\":8}}", TN_ERR_FORMAT,
            "rope_scaling: rope_type is \"yarn\", expected default, linear or llama3");
    CHECK_STATUS(read_text(ctx, LLAMA5 "{\"rope_theta\":500000.0,\"rope_type\":\"default\"}}", &d), TN_OK);
    CHECK(d.rope_base == 500000 && d.positions == TN_POSITIONS_ROPE);
    CHECK_STATUS(read_text(ctx, LLAMA5 "{\"partial_rotary_factor\":1.0,\"rope_theta\":20},\"rope_theta\":30}", &d), TN_OK);
    CHECK(d.rope_base == 20);                                /* as transformers does, where both are there */
    CHECK_STATUS(read_text(ctx, LLAMA5 "{}}", &d), TN_OK);
    CHECK(d.rope_base == 10000);
    CHECK_STATUS(read_text(ctx, LLAMA5 "null,\"rope_theta\":30,\"partial_rotary_factor\":1}", &d), TN_OK);
    CHECK(d.rope_base == 30);
    misread(ctx, LLAMA5 "{\"rope_theta\":500000,\"rope_type\":\"llama3\",\"factor\":8}}", TN_ERR_FORMAT,
            "rope_parameters: llama3 needs original_max_position_embeddings");
    misread(ctx, LLAMA5 "{\"rope_theta\":\"x\"}}", TN_ERR_FORMAT, "rope_theta is \"x\", expected a number from 0 to 1e30");
    misread(ctx, LLAMA5 "{\"rope_theta\":2,\"rope_theta\":3}}", TN_ERR_FORMAT, "duplicate key \"rope_theta\"");
    misread(ctx, LLAMA5 "[500000]}", TN_ERR_FORMAT, "rope_parameters is not an object or null");
    misread(ctx, LLAMA5 "{\"partial_rotary_factor\":0.25}}", TN_ERR_FORMAT, "partial_rotary_factor is 0.25, expected 1:");
    misread(ctx, LLAMA5 "null,\"partial_rotary_factor\":0.5}", TN_ERR_FORMAT, "partial_rotary_factor is 0.5, expected 1: no");
    tn_ctx_destroy(ctx);
}

/* ---- weights of others ---------------------------------------------------------------------------------------------- */

enum { MOST_TENSORS = 48, FILE_ROOM = 40000 };

/* A safetensors file of a golden model; `drop` is left out, `extra` put in, `shape` of the first tensor turned round. */
static size_t golden_file(tn_ctx *ctx, const golden_tensor *t, size_t count, const int16_t *weights, const char *drop,
                          const char *extra, bool turned, size_t skip, char *file)
{
    tn_named_tensor named[MOST_TENSORS];
    size_t   n = 0, used = 0;
    for (size_t k = 0; k < count; k++) {
        int64_t shape[2] = {t[k].shape[0], t[k].shape[1]}, all = t[k].rank == 2 ? shape[0] * shape[1] : shape[0];
        float   v[256];
        if (drop && strcmp(t[k].name, drop) == 0) continue;
        if (turned && n == 0) { shape[0] = t[k].shape[1]; shape[1] = t[k].shape[0]; }
        for (int64_t i = 0; i < all; i++) v[i] = (float)weights[t[k].at + i] / 256;
        tn_tensor *x = tn_tensor_nd(ctx, TN_F32, t[k].rank, shape);
        CHECK_STATUS(tn_write(x, TN_F32, v, all), TN_OK);
        named[n].name = t[k].name + skip;
        named[n++].tensor = x;
    }
    if (extra) {
        named[n].name = extra;
        named[n].tensor = named[0].tensor;
        n++;
    }
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_memory(file, FILE_ROOM, &used), named, (int64_t)n, NULL, 0), TN_OK);
    return used;
}

#define GOLDEN(name) golden_##name##_tensors, sizeof golden_##name##_tensors / sizeof *golden_##name##_tensors, golden_##name##_weights

static tn_source file_of(const char *file, size_t bytes)
{
    tn_source s = tn_source_memory(file, bytes);
    s.name = "model.safetensors";
    return s;
}

static double golden_error(tn_ctx *ctx, const tn_transformer *m, const int32_t *id, const double *want)
{
    enum { LOGITS = GOLDEN_TEXTS * GOLDEN_TOKENS * GOLDEN_VOCAB };
    double     got[LOGITS];
    tn_tensor *ids = tn_tensor_2d(ctx, TN_I32, GOLDEN_TEXTS, GOLDEN_TOKENS);
    tn_write(ids, TN_I32, id, GOLDEN_TEXTS * GOLDEN_TOKENS);
    CHECK_STATUS(tn_read(tn_transformer_forward(ctx, m, ids), TN_F64, got, LOGITS), TN_OK);
    return test_max_error(got, want, LOGITS);
}

TEST(golden_models)
{
    static char file[FILE_ROOM];
    double      worst[2] = {0, 0};
    for (int f = 0; f < 2; f++) for (int which = 0; which < 2; which++) for (int plain = 0; plain < 2; plain++) {
        tn_transformer_desc d;
        tn_transformer      m;
        world               w;
        int64_t             lines;
        const tn_name_map  *map = which ? tn_name_map_llama(&lines) : tn_name_map_gpt2(&lines);
        REQUIRE(open_on(&w, f ? TN_F64 : TN_F32, 1, 1, NULL));
        CHECK_STATUS(read_text(w.ctx, which ? llama_config : gpt2_config, &d), TN_OK);
        REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, plain ? "" : "theirs", &d, &m), TN_OK));
        /* with and without the "transformer." that files may have; the head of Llama's has no prefix to lose */
        size_t bytes = which ? golden_file(w.ctx, GOLDEN(llama), NULL, "model.rotary.inv_freq", false, 0, file)
                      : golden_file(w.ctx, GOLDEN(gpt2), NULL, "h.0.attn.bias", false, plain ? 12 : 0, file);
        CHECK_STATUS(tn_transformer_read_mapped(w.params, &m, file_of(file, bytes), map, lines), TN_OK);
        CHECK_CTX(w.ctx);
        test_raise(&worst[f], golden_error(w.ctx, &m, which ? golden_llama_ids : golden_gpt2_ids,
                                           which ? golden_llama_logits : golden_gpt2_logits));
        close_world(&w);
    }
    WORST("logits of GPT-2 and Llama, F32", worst[0], 3e-6);
    WORST("logits of GPT-2 and Llama, F64", worst[1], 1e-14);
}

static void unread(world *w, const tn_transformer *m, const char *file, size_t bytes, tn_status s, const char *part)
{
    int64_t            lines;
    const tn_name_map *map = tn_name_map_gpt2(&lines);
    double             before = spread(m->position), embed = spread(m->embed.w);
    CHECK_STATUS(tn_transformer_read_mapped(w->params, m, file_of(file, bytes), map, lines), s);
    CHECK_ERROR(w->ctx, s, part);
    CHECK(spread(m->position) == before && spread(m->embed.w) == embed);
}

static void say_last(void *user, tn_log_level level, const char *message)
{
    if (level == TN_LOG_WARN) snprintf((char *)user, 256, "%s", message);
}

TEST(weights_refuse)
{
    static char         file[FILE_ROOM];
    tn_transformer_desc d;
    tn_transformer      m, other;
    world               w;
    int64_t             lines;
    const tn_name_map  *map = tn_name_map_gpt2(&lines);
    tn_name_map         own[3];
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    CHECK_STATUS(read_text(w.ctx, gpt2_config, &d), TN_OK);
    REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK));
    size_t bytes = golden_file(w.ctx, GOLDEN(gpt2), "transformer.h.1.ln_2.bias", NULL, false, 0, file);
    unread(&w, &m, file, bytes, TN_ERR_ARG, "model.safetensors: there is no tensor \"transformer.h.1.ln_2.bias\" for parameter "
           "blocks.1.norm2.bias [6]");
    bytes = golden_file(w.ctx, GOLDEN(gpt2), NULL, NULL, true, 0, file);
    unread(&w, &m, file, bytes, TN_ERR_SHAPE, "model.safetensors: tensor \"transformer.wte.weight\" is [6,7], expected");
    unread(&w, &m, file, bytes - 1, TN_ERR_FORMAT, "the file");
    bytes = golden_file(w.ctx, GOLDEN(gpt2), NULL, NULL, false, 0, file);
    /* a model without biases: those of the file would be lost */
    d.attn_bias = false;
    CHECK_STATUS(tn_transformer_init(w.params, "other", &d, &other), TN_OK);
    unread(&w, &other, file, bytes, TN_ERR_ARG,
           "model.safetensors: tensor \"transformer.h.0.attn.c_attn.bias\" [18] belongs to parameter");
    d.attn_bias = true; d.tied = false;                      /* an unembedding that the file has not */
    CHECK_STATUS(tn_transformer_init(w.params, "untied", &d, &other), TN_OK);
    unread(&w, &other, file, bytes, TN_ERR_ARG, "no tensor \"lm_head.weight\" for parameter untied.head.w [7,6]");
    d.tied = true; d.d_qk = 2;
    CHECK_STATUS(tn_transformer_init(w.params, "narrow", &d, &other), TN_OK);
    unread(&w, &other, file, bytes, TN_ERR_SHAPE,
           "model.safetensors: part 0 of 3 of tensor \"transformer.h.0.attn.c_attn.weight\" is [6,18] transposed,");
    /* maps */
    CHECK_STATUS(tn_transformer_read_mapped(w.params, &m, file_of(file, bytes), map, lines - 2), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "name map: its lines give 0 numbers of parameter norm.bias, expected all 6");
    memset(own, 0, sizeof own);
    own[0].file = "transformer.wte.weight";
    CHECK_STATUS(tn_transformer_read_mapped(w.params, &m, file_of(file, bytes), own, 1), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "name map: param is NULL in line 0");
    own[0].param = "embed.w"; own[0].file_part = 7; own[0].file_parts = 7;
    FAILS(w.ctx, tn_transformer_read_mapped(w.params, &m, file_of(file, bytes), own, 1), TN_ERR_SHAPE, "part 7 of 7 of");
    CHECK_STATUS(tn_transformer_read_mapped(w.params, &m, file_of(file, bytes), NULL, 1), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "transformer_read_mapped: 1 lines of a map at NULL, expected a list");
    FAILS(w.ctx, tn_transformer_read_mapped(w.params, NULL, file_of(file, bytes), map, lines), TN_ERR_ARG, "the model is NULL");
    tn_params *elsewhere = tn_params_create(w.ctx);
    CHECK_STATUS(tn_transformer_read_mapped(elsewhere, &m, file_of(file, bytes), map, lines), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "name map: the model's embedding is not one of these parameters");
    CHECK_STATUS(tn_transformer_read_mapped(NULL, &m, file_of(file, bytes), map, lines), TN_ERR_ARG);
    close_world(&w);
}

/* A map of one's own: rows of heads in other orders, and fewer heads of keys. */
TEST(head_rows)
{
    enum { H = 2, D = 5, N = 3 };
    static const int swapped[D] = {2, 3, 0, 1, 4}, pairs[D] = {0, 2, 1, 3, 4};
    static char file[FILE_ROOM];
    char        said[256] = "";
    tn_desc     desc = ZERO;
    tn_ctx     *ctx;
    tn_transformer_desc d = tiny();
    tn_transformer m;
    tn_named_tensor    named[3];
    tn_name_map map[8];
    float       q[H * D * N], k[D * N];
    double      got[2 * H * D * N];
    size_t      used;
    int64_t     two_by_three[2] = {2, 3}, shape[2] = {H * D, N};
    tn_init     ones = ZERO;
    ones.rule = TN_INIT_ONE;
    desc.log = say_last;
    desc.log_user = said;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
    tn_params *ps = tn_params_create(ctx);
    d.layers = 1; d.heads = H; d.dim = N; d.d_qk = d.d_v = d.hidden = D; d.no_norm_gain = d.tied = true; d.mlp = TN_MLP_RELU;
    REQUIRE(CHECK_STATUS(tn_transformer_init(ps, "", &d, &m), TN_OK));
    tn_param *other = tn_params_add(ps, "other", 2, two_by_three, ones);     /* it is not the model's, and stays */
    REQUIRE(other != NULL);
    for (int64_t i = 0; i < H * D * N; i++) q[i] = (float)i;
    for (int64_t i = 0; i < D * N; i++) k[i] = (float)(100 + i);
    named[0].name = "q"; named[0].tensor = tn_tensor_nd(ctx, TN_F32, 2, shape);
    named[1].name = "k"; named[1].tensor = tn_tensor_2d(ctx, TN_F32, D, N);
    named[2].name = "none of it"; named[2].tensor = named[1].tensor;
    tn_write((tn_tensor *)named[0].tensor, TN_F32, q, H * D * N);
    tn_write((tn_tensor *)named[1].tensor, TN_F32, k, D * N);
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_memory(file, FILE_ROOM, &used), named, 3, NULL, 0), TN_OK);
    memset(map, 0, sizeof map);
    map[0].file = "q"; map[0].param = "blocks.{l}.attn.qk"; map[0].parts = 2; map[0].rows = TN_HEAD_ROWS_SWAPPED;
    map[1] = map[0];
    map[1].file = "no|such|k"; map[1].part = 1; map[1].kv = true; map[1].rows = TN_HEAD_ROWS_PAIRS;
    map[2].file = "k"; map[2].param = "embed.w";
    map[3].file = "q"; map[3].param = "blocks.0.attn.v";
    map[4].file = "k"; map[4].param = "blocks.{l}.mlp.w";
    map[5].file = "k"; map[5].param = "blocks.{l}.mlp.p"; map[5].transpose = true;
    map[6].file = "k"; map[6].param = "blocks.{l}.attn.o"; map[6].transpose = true;
    CHECK_STATUS(tn_transformer_read_mapped(ps, &m, file_of(file, used), map, 6), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "name map: its lines give 0 numbers of parameter blocks.0.attn.o, expected all 30");
    CHECK_STATUS(tn_transformer_read_mapped(ps, &m, file_of(file, used), map, 7), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "model.safetensors: tensor \"k\" is [5,3] transposed, expected the shape of parameter");
    CHECK_STR(said, "");
    map[6].file = "q";
    map[7] = map[6];                                         /* twice the same is too much */
    CHECK_STATUS(tn_transformer_read_mapped(ps, &m, file_of(file, used), map, 8), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "name map: its lines give numbers 0 to 29 of parameter blocks.0.attn.o twice");
    map[1].part = 0;                                         /* q twice and k never are as many numbers as both */
    CHECK_STATUS(tn_transformer_read_mapped(ps, &m, file_of(file, used), map, 7), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "name map: its lines give numbers 0 to 29 of parameter blocks.0.attn.qk twice");
    map[1].part = 1;
    memset(&map[7], 0, sizeof map[7]);                       /* nor is another parameter begun and not ended */
    map[7].file = "k"; map[7].param = "other"; map[7].file_parts = 5; map[7].parts = 2;
    CHECK_STATUS(tn_transformer_read_mapped(ps, &m, file_of(file, used), map, 8), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "name map: its lines give 3 numbers of parameter other, expected all 6");
    CHECK_STATUS(tn_transformer_read_mapped(ps, &m, file_of(file, used), map, 7), TN_OK);
    CHECK_CTX(ctx);
    CHECK_STR(said, "model.safetensors: 1 tensors are in no line of the name map, the first is \"none of it\"");
    tn_read(m.blocks[0].attn.qk, TN_F64, got, 2 * H * D * N);
    for (int64_t i = 0; i < H * D * N; i++) {
        int64_t c = i % N, r = i / N % D, h = i / N / D;
        CHECK(got[i] == (double)((h * D + swapped[r]) * N + c));
        CHECK(got[H * D * N + i] == (double)(100 + pairs[r] * N + c));      /* both heads share the file's one */
    }
    tn_read(other->value, TN_F64, got, 6);
    for (int64_t i = 0; i < 6; i++) CHECK(got[i] == 1);
    tn_read(m.blocks[0].attn.o, TN_F64, got, N * H * D);
    for (int64_t i = 0; i < N * H * D; i++) CHECK(got[i] == (double)(i % (H * D) * N + i / (H * D)));
    tn_ctx_destroy(ctx);
}

/* ---- sampling --------------------------------------------------------------------------------------------------------- */

/* How often each id comes, of `draws` evenly spaced u: what the distribution says, to one draw. */
static void sampled(const float *logits, int64_t n, double temperature, int64_t k, double p, const double *want)
{
    enum { DRAWS = 4000, MOST = 64 };
    int64_t count[MOST];
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < DRAWS; i++) {
        int64_t id = tn_sample(logits, n, temperature, k, p, ((double)i + 0.5) / (double)DRAWS);
        if (!CHECK(id >= 0 && id < n)) return;
        CHECK_INT(tn_sample(logits, n, temperature, k, p, ((double)i + 0.5) / (double)DRAWS), id);
        count[id]++;
    }
    for (int64_t i = 0; i < n; i++) CHECK_NEAR((double)count[i] / (double)DRAWS, want[i], 1.01 / (double)DRAWS);
}

/* The distribution in plain words: sort, cut, softmax. */
static void sample_want(const float *logits, int n, double temperature, int k, double p, double *want)
{
    int    order[64], i;
    double sum = 0, mass = 0;
    for (i = 0; i < n; i++) order[i] = i;
    for (i = 1; i < n; i++)
        for (int j = i; j > 0 && logits[order[j]] > logits[order[j - 1]];
             j--) { int o = order[j]; order[j] = order[j - 1]; order[j - 1] = o; }
    int kept = k > 0 && k < n ? k : n;
    for (i = 0; i < n; i++) want[i] = 0;
    for (i = 0; i < kept; i++) sum += want[order[i]] = exp((logits[order[i]] - logits[order[0]]) / temperature);
    for (i = 0; i < kept; i++) {
        if (p > 0 && p < 1 && mass >= p * sum) want[order[i]] = 0;
        mass += want[order[i]];
    }
    for (i = 0, sum = 0; i < n; i++) sum += want[i];
    for (i = 0; i < n; i++) want[i] /= sum;
}

TEST(sampling)
{
    static const float four[] = {0, 1, 1, -2}, flat[] = {3, 3, 3, 3, 3}, odd[] = {-HUGE_VALF, 2, -HUGE_VALF, 2};
    float    v[50], nan_in[3] = {0, NAN, 1}, inf_in[2] = {0, HUGE_VALF}, none[2] = {-HUGE_VALF, -HUGE_VALF};
    double   want[64];
    uint64_t seed = 8;
    for (int round = 0; round < 40; round++) {
        double temperature = 0.3 + 2 * fabs(test_random_real(&seed)), p = round % 3 ? fabs(test_random_real(&seed)) : 0;
        int    k = round % 2 ? (int)test_random_int(&seed, 1, 50) : 0;
        int n = (int)test_random_int(&seed, 1, 50);
        for (int i = 0; i < n; i++)                              /* every other round has equals */
            v[i] = round % 4 < 2 ? (float)test_random_int(&seed, -3, 3) : 4 * (float)test_random_real(&seed);
        sample_want(v, n, temperature, k, p, want);
        sampled(v, n, temperature, k, p, want);
    }
    sample_want(four, 4, 1, 0, 1, want);
    sampled(four, 4, 1, 0, 1, want);
    for (int i = 0; i < 5; i++) want[i] = i < 3 ? 1 / 3.0 : 0;
    sampled(flat, 5, 1, 3, 0, want);                         /* of equals the first */
    sampled(flat, 5, 1, 0, 0.6, want);
    want[0] = want[2] = 0; want[1] = want[3] = 0.5;
    sampled(odd, 4, 1, 3, 0.99, want);
    CHECK_INT(tn_sample(four, 4, 0, 0, 0, 0.99), 1);
    CHECK_INT(tn_sample(four, 4, 1, 1, 0, 0.99), 1);
    CHECK_INT(tn_sample(four, 4, 1e-300, 0, 0, 0.7), 2);
    CHECK_INT(tn_sample(four, 4, 1, 0, 1e-9, 0.99), 1);
    CHECK_INT(tn_sample(four, 1, 5, 9, 0.5, 0.99), 0);
    float signs[3] = {-0.0f, 0.0f, -1};
    CHECK_INT(tn_sample(signs, 3, 1, 1, 0, 0.5), 0);
    CHECK_INT(tn_sample(signs, 3, 1, 2, 0, 0.25), 0);        /* -0 and 0 are equals */
    CHECK_INT(tn_sample(nan_in, 3, 1, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(nan_in, 3, 0, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(inf_in, 2, 1, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(none, 2, 1, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(NULL, 2, 1, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(four, 0, 1, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(four, -1, 1, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(four, 4, -1, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(four, 4, (double)NAN, 0, 0, 0.5), -1);
    CHECK_INT(tn_sample(four, 4, 1, -1, 0, 0.5), -1);
    CHECK_INT(tn_sample(four, 4, 1, 0, 1.1, 0.5), -1);
    CHECK_INT(tn_sample(four, 4, 1, 0, 0, 1), -1);
    CHECK_INT(tn_sample(four, 4, 1, 0, 0, (double)NAN), -1);
}

/* u = 0 draws the first id that has any mass, the largest u below 1 the last one, whichever is the most likely. */
TEST(sampling_at_the_ends)
{
    static const float four[] = {0, 1, 1, -2}, rising[] = {0, 5, 7}, odd[] = {-HUGE_VALF, 1, 3, 2, -HUGE_VALF};
    const double most = 1 - 0x1p-53;
    float    v[50];
    double   want[64];
    uint64_t seed = 9;
    CHECK_INT(tn_sample(four, 4, 1, 0, 0, 0), 0);
    CHECK_INT(tn_sample(four, 4, 1, 0, 0, most), 3);
    CHECK_INT(tn_sample(rising, 3, 1, 2, 0, 0), 1);
    CHECK_INT(tn_sample(rising, 3, 1, 0, 0.95, 0), 1);
    CHECK_INT(tn_sample(rising, 3, 0.01, 0, 0, most), 2);
    CHECK_INT(tn_sample(odd, 5, 1, 0, 0, 0), 1);
    CHECK_INT(tn_sample(odd, 5, 1, 0, 0, most), 3);
    for (int round = 0; round < 200; round++) {
        double temperature = 0.3 + 2 * fabs(test_random_real(&seed)), p = round % 3 ? fabs(test_random_real(&seed)) : 0;
        int    n = (int)test_random_int(&seed, 1, 50), k = round % 2 ? (int)test_random_int(&seed, 1, 50) : 0;
        int    first = 0, last = n - 1;
        for (int i = 0; i < n; i++) v[i] = 4 * (float)test_random_real(&seed);
        sample_want(v, n, temperature, k, p, want);
        while (want[first] == 0) first++;
        while (want[last] == 0) last--;
        CHECK_INT(tn_sample(v, n, temperature, k, p, 0), first);
        CHECK_INT(tn_sample(v, n, temperature, k, p, most), last);
    }
}

/* ---- training --------------------------------------------------------------------------------------------------------- */

static double step(tn_ctx *ctx, const tn_transformer *m, tn_optim *o, const int32_t *text, int64_t texts, int64_t tokens)
{
    tn_ctx_reset(ctx);
    tn_tensor *all = tn_tensor_2d(ctx, TN_I32, texts, tokens + 1);
    tn_write(all, TN_I32, text, texts * (tokens + 1));
    tn_record(ctx);
    tn_tensor *loss = tn_transformer_loss(ctx, m, tn_copy(ctx, tn_slice(all, 1, 0, tokens)),
                                          tn_copy(ctx, tn_slice(all, 1, 1, tokens + 1)));
    double     value = tn_item(loss);
    CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    return value;
}

/* Two texts that no bigram table can tell apart: the loss must fall to near zero, with every attention. */
TEST(learns)
{
    enum { TOKENS = 15, STEPS = 150 };
    static const int32_t text[2 * (TOKENS + 1)] = {1, 2, 1, 3, 1, 4, 1, 2, 2, 3, 3, 4, 1, 1, 2, 0, 0, 1, 2, 3, 1, 2, 4, 1, 2, 0, 3, 3, 2,
                                                   2, 1, 4};
    double worst = 0;
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_optim_desc       od = ZERO;
        tn_transformer      m;
        world               w;
        double              loss = 0, first = 0;
        uint64_t            before = 0;
        if (test_leave_out(d.bidirectional || d.dim == 1 || d.no_projection || d.positions == TN_POSITIONS_NONE,
                           "transformers that are too small, or blind, to learn a text by heart")) continue;
        od.lr = 1e-2;
        od.beta2 = 0.99;
        d.dim = 16; d.hidden = 0; d.context = 16; d.d_qk = d.d_v = 0; d.softcap = d.softcap > 0 ? 10 : 0; d.init = TN_INIT_NORMAL;
        d.row_length = 0; d.window = d.window ? 8 : 0;
        REQUIRE(open_on(&w, TN_F32, 5, 1, NULL));
        REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK));
        tn_optim *o = tn_optim_create(w.params, &od);
        for (int i = 0; i < STEPS; i++) {
            loss = step(w.ctx, &m, o, text, 2, TOKENS);
            if (i == 0) first = loss;
            if (i == 2) before = w.heap.count;
        }
        CHECK_INT(w.heap.count, before);                     /* a warmed-up step asks for no memory */
        if (!CHECK(loss < 0.15 && first > 1)) printf("     %s: %.3f at first, %.3f at last\n", what, first, loss);
        test_raise(&worst, loss);
        close_world(&w);
    }
    WORST("loss of a text learned by heart", worst, 0.15);
}

/* A token's turn asks for no memory once one has been decoded, and the constant state has no more bytes for longer texts. */
TEST(decoding_memory)
{
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        world               w;
        if (test_leave_out(d.bidirectional || d.context < 6, "transformers without decoding of six tokens, for its memory"))
            continue;
        REQUIRE(model_on(&w, TN_F32, &d, &m, 3));
        tn_transformer_cache *c = tn_transformer_cache_create(w.ctx, &m, 1, 6);
        uint64_t              before = 0;
        for (int i = 0; i < 6; i++) {
            tn_ctx_reset(w.ctx);
            tn_tensor *id = ids_of(w.ctx, &d, 1, 1, (uint64_t)i);
            CHECK(tn_transformer_decode(w.ctx, &m, id, c) != NULL);
            if (i == 1) before = w.heap.count;
        }
        if (!CHECK_INT(w.heap.count, before)) printf("     %s\n", what);
        close_world(&w);
    }
}

/* Logits, decoded logits and the weights after a step on a backend: their bits must not depend on where the memory is. */
static bool run_on(const tn_backend *backend, int threads, int k, double *out, int64_t *n)
{
    const char         *what;
    tn_transformer_desc d = variant(k, &what);
    const int64_t       tokens = d.context < 5 ? d.context : 5;
    tn_transformer      m;
    world               w;
    int32_t             text[12] = {0, 3, 1, 1, 4, 2, 2, 0, 1, 4, 4, 3};
    *n = 0;
    if (!open_on(&w, TN_F32, 9, threads, backend)) return false;
    if (!CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK) || !stir(w.params, 9, 0.5)) return false;
    tn_optim *o = tn_optim_create(w.params, NULL);
    out[(*n)++] = step(w.ctx, &m, o, text, 2, tokens);
    tn_tensor *y = tn_transformer_forward(w.ctx, &m, ids_of(w.ctx, &d, 2, tokens, 1));
    CHECK_STATUS(tn_read(y, TN_F64, out + *n, tn_tensor_count(y)), TN_OK);
    *n += tn_tensor_count(y);
    tn_transformer_cache *c = d.bidirectional ? NULL : tn_transformer_cache_create(w.ctx, &m, 2, tokens);
    y = c ? tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, tokens, 1), c) : NULL;
    if (y) CHECK_STATUS(tn_read(y, TN_F64, out + *n, tn_tensor_count(y)), TN_OK);
    *n += y ? tn_tensor_count(y) : 0;
    for (int64_t i = 0; i < tn_params_count(w.params); i++) {
        tn_tensor *t = tn_params_at(w.params, i)->value;
        CHECK_STATUS(tn_read(t, TN_F64, out + *n, tn_tensor_count(t)), TN_OK);
        *n += tn_tensor_count(t);
    }
    close_world(&w);
    return true;
}

TEST(backends)
{
    static double plain[4000], other[4000];
    int64_t n, also;
    for (int k = 0; k < VARIANTS; k++) {
        REQUIRE(run_on(tn_cpu_backend(), 1, k, plain, &n) && n < 4000);
        CHECK(run_on(tn_cpu_backend(), 3, k, other, &also) && also == n && memcmp(plain, other, sizeof *plain * (size_t)n) == 0);
        if (test_leave_out(!SEALED, NO_SEALED)) continue;
        CHECK(run_on(sealed_cpu(), 2, k, other, &also) && also == n && memcmp(plain, other, sizeof *plain * (size_t)n) == 0);
    }
    CHECK_INT(sealed_damaged(), 0);
}

/* ---- without memory ------------------------------------------------------------------------------------------------------ */

/* All that asks for memory, with the n-th request refused: an error, nothing lost. */
static bool starve(uint64_t n, const char *file, size_t bytes)
{
    tn_transformer_desc   d;
    tn_transformer        m = ZERO, copy;
    tn_transformer_cache *c = NULL;
    tn_params            *other = NULL;
    world                 w;
    int64_t               lines;
    const tn_name_map    *map = tn_name_map_llama(&lines);
    if (!open_on(&w, TN_F32, 1, 1, NULL)) return true;
    w.heap.fail_at = n ? w.heap.count + n : 0;
    bool ok = read_text(w.ctx, llama_config, &d) == TN_OK && tn_transformer_init(w.params, "", &d, &m) == TN_OK;
    if (!ok) CHECK_INT(tn_params_count(w.params), 0);
    ok = ok && tn_transformer_read_mapped(w.params, &m, file_of(file, bytes), map, lines) == TN_OK;
    ok = ok && (c = tn_transformer_cache_create(w.ctx, &m, 2, 4)) != NULL;
    ok = ok && tn_transformer_decode(w.ctx, &m, ids_of(w.ctx, &d, 2, 3, 1), c) != NULL;
    ok = ok && (other = tn_params_clone(w.ctx, w.params)) != NULL;
    if (ok) copy = m;
    ok = ok && tn_params_rebind(other, w.params, &copy, sizeof copy) > 0;
    CHECK_STATUS(tn_ctx_status(w.ctx), ok ? TN_OK : TN_ERR_MEMORY);
    tn_ctx_clear_error(w.ctx);
    w.heap.fail_at = 0;
    close_world(&w);
    return ok;
}

TEST(starving)
{
    static char file[FILE_ROOM];
    world       w;
    uint64_t    n;
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    size_t bytes = golden_file(w.ctx, GOLDEN(llama), NULL, NULL, false, 0, file);
    close_world(&w);
    CHECK(starve(0, file, bytes));
    for (n = 1; !starve(n, file, bytes); n++) if (!CHECK(n < 2000)) return;
    CHECK(n > 100);
}

/* The depth's own scale of a branch: 1/sqrt(2 layers). */
TEST(scales_of_branches)
{
    tn_transformer_desc d = tiny(), out;
    world               w;
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    d.layers = 8;
    d.attn_scale = d.mlp_scale = TN_SCALE_DEPTH;
    CHECK_STATUS(tn_transformer_check(w.ctx, &d, &out), TN_OK);
    CHECK(out.attn_scale == 0.25 && out.mlp_scale == 0.25);
    d.attn_scale = d.mlp_scale = 0;
    CHECK_STATUS(tn_transformer_check(w.ctx, &d, &out), TN_OK);
    CHECK(out.attn_scale == 1 && out.mlp_scale == 1);
    d.attn_scale = 0.5;
    d.mlp_scale = 0.75;
    CHECK_STATUS(tn_transformer_check(w.ctx, &d, &out), TN_OK);
    CHECK(out.attn_scale == 0.5 && out.mlp_scale == 0.75);
    close_world(&w);
}

/* A model of three encoders whose init runs out of memory says so, at each allocation. */
static bool starve_init(uint64_t n)
{
    const char         *what;
    tn_transformer_desc d = variant(13, &what);
    tn_transformer      m;
    world               w;
    if (!open_on(&w, TN_F32, 1, 1, NULL)) return true;
    w.heap.fail_at = w.heap.count + n;
    bool ok = tn_transformer_init(w.params, "", &d, &m) == TN_OK;
    if (!ok) CHECK_INT(tn_params_count(w.params), 0);
    CHECK_STATUS(tn_ctx_status(w.ctx), ok ? TN_OK : TN_ERR_MEMORY);
    tn_ctx_clear_error(w.ctx);
    close_world(&w);
    return ok;
}

TEST(three_encoders_without_memory)
{
    uint64_t n;
    for (n = 1; !starve_init(n); n++) if (!CHECK(n < 500)) return;
    CHECK(n > 20);
}

/* A call with a cache that fails halfway leaves it either as it was or refusing until it is reset or rewound. */
TEST(a_cache_after_a_failed_call)
{
    tn_transformer_desc d = tiny();
    int                 refused = 0;
    double              want[2 * 5], got[2 * 5];
    bool                done = false;
    for (uint64_t n = 0; !done; n++) {
        tn_transformer m;
        world          w;
        REQUIRE(model_on(&w, TN_F32, &d, &m, 1));
        tn_tensor *first = tn_tensor_keep(ids_of(w.ctx, &d, 2, 3, 1));
        tn_tensor *next = tn_tensor_keep(ids_of(w.ctx, &d, 2, 1, 2));
        tn_transformer_cache *c = tn_transformer_cache_create(w.ctx, &m, 2, 6);
        REQUIRE(first && next && c);
        w.heap.fail_at = n ? w.heap.count + n : 0;
        tn_tensor *y = tn_transformer_decode(w.ctx, &m, first, c);
        w.heap.fail_at = 0;
        done = n > 0 && y != NULL;
        if (!y) {
            CHECK_ERROR(w.ctx, TN_ERR_MEMORY, "");
            y = tn_transformer_decode(w.ctx, &m, first, c);
            if (!y) {
                refused++;
                CHECK_ERROR(w.ctx, TN_ERR_ARG, "transformer: an earlier call failed while it updated the cache, so reset");
                tn_transformer_cache_reset(c);
                CHECK(tn_transformer_decode(w.ctx, &m, first, c) != NULL);
            }
        }
        CHECK_INT(tn_transformer_cache_past(c), 3);
        if (n == 1) {                                       /* the arena is full after some calls */
            w.heap.fail_at = w.heap.count + 1;
            while (tn_transformer_decode(w.ctx, &m, next, c)) CHECK_STATUS(tn_transformer_cache_rewind(c, 3), TN_OK);
            w.heap.fail_at = 0;
            CHECK_ERROR(w.ctx, TN_ERR_MEMORY, "");
            CHECK(!tn_transformer_decode(w.ctx, &m, next, c));
            CHECK_ERROR(w.ctx, TN_ERR_ARG, "transformer: an earlier call failed while it updated the cache, so reset");
            CHECK_STATUS(tn_transformer_cache_rewind(c, 3), TN_OK);
        }
        y = tn_transformer_decode(w.ctx, &m, next, c);
        if (CHECK(y != NULL && tn_tensor_count(y) == 10)) tn_read(y, TN_F64, n ? got : want, 10);
        if (n) CHECK(memcmp(got, want, sizeof want) == 0);
        close_world(&w);
    }
    CHECK(refused > 0);
}

/* A line that fails ends the reading, even if all that follows would have fitted: nothing is changed. */
TEST(a_map_that_begins_with_a_mistake)
{
    static char         file[FILE_ROOM];
    tn_transformer_desc d;
    tn_transformer      m;
    world               w;
    int64_t             lines;
    const tn_name_map  *map = tn_name_map_gpt2(&lines);
    tn_name_map         own[64];
    double              before[6], after[6];
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    CHECK_STATUS(read_text(w.ctx, gpt2_config, &d), TN_OK);
    REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK));
    size_t bytes = golden_file(w.ctx, GOLDEN(gpt2), NULL, NULL, false, 0, file);
    REQUIRE(CHECK(lines < 64));
    memset(own, 0, sizeof own);
    own[0].file = "no.such.tensor";
    own[0].param = "embed.w";
    for (int64_t i = 0; i < lines; i++) own[i + 1] = map[i];
    tn_read(m.norm.gain, TN_F64, before, 6);
    FAILS(w.ctx, tn_transformer_read_mapped(w.params, &m, file_of(file, bytes), own, lines + 1), TN_ERR_ARG, "no.such.tensor");
    tn_read(m.norm.gain, TN_F64, after, 6);
    CHECK(memcmp(before, after, sizeof before) == 0);
    CHECK_STATUS(tn_transformer_read_mapped(w.params, &m, file_of(file, bytes), own + 1, lines), TN_OK);
    close_world(&w);
}

/* no_norm_bias of config.json is the opposite of norm_bias, false where it is absent, and says nothing of RMSNorm. */
TEST(config_norm_bias)
{
    static const struct { const char *keys; bool bias; const char *written; } list[] = {
        {"", false, "\"no_norm_bias\": false"},
        {",\"no_norm_bias\":true", false, "\"no_norm_bias\": false"},
        {",\"norm\":\"layer\"", true, "\"no_norm_bias\": false"},
        {",\"norm\":\"layer\",\"no_norm_bias\":false", true, "\"no_norm_bias\": false"},
        {",\"no_norm_bias\":true,\"norm\":\"layer\"", false, "\"no_norm_bias\": true"}
    };
    tn_ctx *ctx;
    REQUIRE(CHECK_STATUS(tn_ctx_create(NULL, &ctx, NULL), TN_OK));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        tn_transformer_desc d;
        char                text[4096];
        snprintf(text, sizeof text, "{" OURS "%s}", list[i].keys);
        if (!CHECK_STATUS(read_text(ctx, text, &d), TN_OK)) continue;
        CHECK(d.norm_bias == list[i].bias);
        config_text(ctx, &d, text, sizeof text);
        if (!CHECK(strstr(text, list[i].written) != NULL)) printf("     %s\n", text);
    }
    CLOSE_CTX(ctx);
}

/* ---- the loss of tn train --teacher -------------------------------------------------------------------------------------- */

/* Value and gradient by plain loops, T/R (softmax(z / T) - p), and none where the model says what the teacher says. */
TEST(distillation)
{
    enum { R = 3, C = 5, N = R * C };
    static const double temperature[] = {1, 2.5, 0.25};
    for (int k = 0; k < 4; k++) {
        const double T = temperature[k % 3];
        world        w;
        double       v[2][N], p[N], q[N], want[N], loss = 0;
        REQUIRE(open_world(&w, TN_F64, 9));
        for (int i = 0; i < 2 * N; i++) v[i / N][i % N] = test_random_real(&w.seed);
        if (k == 3) memcpy(v[1], v[0], sizeof v[0]);
        for (int r = 0; r < R; r++) {
            double sum[2] = {0, 0};
            for (int c = 0; c < C; c++) for (int i = 0; i < 2; i++) sum[i] += exp(v[i][r * C + c] / T);
            for (int c = 0; c < C; c++) {
                q[r * C + c] = exp(v[0][r * C + c] / T) / sum[0];
                p[r * C + c] = exp(v[1][r * C + c] / T) / sum[1];
                loss -= T * T / R * p[r * C + c] * log(q[r * C + c]);
                want[r * C + c] = T / R * (q[r * C + c] - p[r * C + c]);
            }
        }
        tn_tensor *z = tn_tensor_2d(w.ctx, TN_REAL, R, C), *y = tn_tensor_2d(w.ctx, TN_REAL, R, C);
        CHECK(tn_write(z, TN_F64, v[0], N) == TN_OK && tn_write(y, TN_F64, v[1], N) == TN_OK && tn_watch(z) == TN_OK);
        tn_tensor *said = teacher_probabilities(w.ctx, y, T);
        tn_record(w.ctx);
        tn_tensor *l = distillation_loss(w.ctx, z, said, T);
        CHECK_STATUS(tn_backward(w.ctx, l), TN_OK);
        CHECK_NEAR(tn_item(l), loss, 1e-12);
        CHECK_STATUS(tn_read(z->grad, TN_F64, q, N), TN_OK);
        for (int i = 0; i < N; i++) CHECK_NEAR(q[i], k == 3 ? 0 : want[i], 1e-14);
        close_world(&w);
    }
}

TEST_MAIN(distillation, sums_with_their_norms, config_norm_bias, gradients, forward_by_hand, decoding, rewound_caches, hidden_and_head, patterns, causality, decoding_refuses, short_texts, counts,
          hidden_widths, cycles, cycles_refuse, noise_and_dropout, logits_by_tensor, starts, first_loss, bad_descs, check_is_init, clones, clones_refuse, configs, configs_refuse, configs_mutated, configs_of_others,
          golden_models, weights_refuse, head_rows, sampling, sampling_at_the_ends,
          learns, decoding_memory, backends, starving, scales_of_branches, three_encoders_without_memory,
          a_cache_after_a_failed_call, a_map_that_begins_with_a_mistake)
