/* Graphs: a training step that is noted once and replayed gives the bits of one that is taken as it is; what cannot be part of a graph is
   an error that names it and leaves the context as it was; a graph that no longer fits says why. */

#include "capture.h"
#include "kit.h"

enum { B = 3, T = 5, VOCAB = 11, PARTS = 2, STEPS = 50 };

typedef struct study {
    world        w;
    tn_embedding embed;
    tn_norm      norm;
    tn_mlp       mlp;
    tn_linear    head;
    tn_optim    *optim;
    tn_tensor   *ids[PARTS], *labels[PARTS], *loss;   /* owned */
} study;

typedef struct trace { double loss, norm, lr, sum, skipped; char error[256]; } trace;

static bool study_open(study *s, const tn_backend *backend, tn_dtype dtype, tn_optim_kind kind)
{
    tn_embedding_desc ed = ZERO;
    tn_norm_desc      nd = ZERO;
    tn_mlp_desc       md = ZERO;
    tn_linear_desc    ld = ZERO;
    tn_optim_desc     od = ZERO;
    int64_t           shape[2] = {B, T}, parts = PARTS;
    memset(s, 0, sizeof *s);
    if (!open_on(&s->w, dtype, 7, 1, backend)) return false;
    ld.bias = true;
    ed.count = ld.out = VOCAB;
    ed.dim = nd.dim = md.in = ld.in = 6;
    md.hidden = 7;
    md.bias = md.out_bias = md.residual = true;
    od.kind = kind;
    od.lr = 0.05;
    od.clip_norm = 0.2;
    od.weight_decay = 0.1;
    od.schedule.kind = TN_SCHEDULE_COSINE;
    od.schedule.warmup = 4;
    od.schedule.total = STEPS;
    od.momentum = kind == TN_OPTIM_ADAMW ? 0 : 0.9;
    od.momentum_warmup = kind == TN_OPTIM_MUON ? 30 : 0;
    if (!CHECK(tn_embedding_init(s->w.params, "embed", &ed, &s->embed) == TN_OK)
        || !CHECK(tn_norm_init(s->w.params, "norm", &nd, &s->norm) == TN_OK)
        || !CHECK(tn_mlp_init(s->w.params, "mlp", &md, &s->mlp) == TN_OK)
        || !CHECK(tn_linear_init(s->w.params, "head", &ld, &s->head) == TN_OK)) return false;
    s->optim = tn_optim_create(s->w.params, &od);
    for (int k = 0; k < PARTS; k++) {
        s->ids[k] = tn_tensor_create(s->w.ctx, TN_I32, 2, shape);
        s->labels[k] = tn_tensor_create(s->w.ctx, TN_I32, 2, shape);
    }
    s->loss = tn_tensor_create(s->w.ctx, TN_REAL, 1, &parts);
    return CHECK(s->optim && s->loss);
}

/* All of a step: parts with noise and dropout, their losses kept, one update. */
static void study_step(study *s)
{
    const int64_t one = 1;
    tn_ctx       *ctx = s->w.ctx;
    for (int k = 0; k < PARTS; k++) {
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *x = tn_dropout(ctx, tn_noise(ctx, tn_embedding_forward(ctx, &s->embed, s->ids[k]), 0.1), 0.2);
        x = tn_mlp_forward(ctx, &s->mlp, tn_norm_forward(ctx, &s->norm, x));
        x = tn_cross_entropy(ctx, tn_linear_forward(ctx, &s->head, x), s->labels[k]);
        if (!x) return;
        tn_backward(ctx, tn_scale(ctx, x, 1.0 / (int)PARTS));
        tn_assign(tn_slice(s->loss, 0, k, k + 1), tn_reshape(x, 1, &one));
    }
    tn_optim_step(s->optim);
}

static void study_batch(study *s, int64_t step, bool bad)
{
    int32_t ids[B * T], labels[B * T];
    for (int k = 0; k < PARTS; k++) {
        for (int i = 0; i < B * T; i++) {
            ids[i] = (int32_t)((i * 7 + step * 5 + k * 3) % VOCAB);
            labels[i] = (int32_t)((ids[i] * 3 + 1) % VOCAB);
        }
        if (bad && k == 1) ids[2] = VOCAB + 4;
        tn_write(s->ids[k], TN_I32, ids, B * T);
        tn_write(s->labels[k], TN_I32, labels, B * T);
    }
}

/* What is not part of the training: it uses the arena, the clock and the device. */
static void look_aside(study *s)
{
    const int64_t shape[2] = {40, 50};
    tn_ctx_reset(s->w.ctx);
    tn_tensor *x = tn_uniform(s->w.ctx, 2, shape, 0, 1);
    CHECK(tn_item(tn_sum(s->w.ctx, x)) > 0);
}

static double params_sum(study *s)                    /* all bits take part: each number has a factor of its own */
{
    double sum = 0, v[VOCAB * 8 * 4];
    for (int64_t i = 0; i < tn_params_count(s->w.params); i++) {
        tn_param *p = tn_params_at(s->w.params, i);
        int64_t   n = tn_tensor_count(p->value);
        if (!CHECK(n <= (int64_t)(sizeof v / sizeof *v)) || tn_read(p->value, TN_F64, v, n) != TN_OK) return NAN;
        for (int64_t k = 0; k < n; k++) sum += v[k] * (1 + 0.37 * (double)k + (double)i);
    }
    return sum;
}

static void study_train(study *s, bool with_graph, trace *t)
{
    tn_ctx   *ctx = s->w.ctx;
    tn_graph *graph = NULL;
    double    loss[PARTS];
    for (int64_t step = 0; step < STEPS; step++, t++) {
        memset(t, 0, sizeof *t);
        t->lr = tn_optim_lr(s->optim);
        study_batch(s, step, step == 33);
        if (with_graph && step == 2) {
            const int64_t taken = tn_optim_step_count(s->optim);
            const double  before = params_sum(s);
            CHECK_STATUS(tn_graph_begin(ctx), TN_OK);
            study_step(s);
            CHECK_STATUS(tn_graph_end(ctx, &graph), TN_OK);
            CHECK_INT(tn_optim_step_count(s->optim), taken);       /* a capture takes no step */
            CHECK(params_sum(s) == before);
        }
        if (graph) tn_graph_run(graph);
        else study_step(s);
        CHECK_INT(tn_optim_step_count(s->optim), step + 1);
        tn_ctx_sync(ctx);
        snprintf(t->error, sizeof t->error, "%s", tn_ctx_error(ctx));
        tn_ctx_clear_error(ctx);
        tn_read(s->loss, TN_F64, loss, PARTS);
        for (int64_t k = 0; k < PARTS; k++) t->loss += loss[k];
        t->norm = tn_optim_grad_norm(s->optim);
        tn_read(tn_optim_skipped_view(s->optim), TN_F64, &t->skipped, 1);
        t->sum = params_sum(s);
        if (step % 10 == 9) look_aside(s);
    }
    if (with_graph) CHECK_INT(capture_last->replays, STEPS - 2);
    tn_graph_destroy(graph);
}

/* Schedule, momentum's warm-up, bias corrections, clipping, noise, dropout, parts, a step that is skipped: the same bits. */
TEST(replay_is_the_step)
{
    static const tn_optim_kind kind[] = {TN_OPTIM_ADAMW, TN_OPTIM_MUON, TN_OPTIM_SGD};
    static trace plain[STEPS], replayed[STEPS];
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 3; k++) {
            study s;
            REQUIRE(study_open(&s, capture_backend(), d ? TN_F64 : TN_F32, kind[k]));
            study_train(&s, false, plain);
            close_world(&s.w);
            REQUIRE(study_open(&s, capture_backend(), d ? TN_F64 : TN_F32, kind[k]));
            study_train(&s, true, replayed);
            CHECK_INT(capture_last->touched, 0);
            CHECK_INT(capture_last->graphs, 0);
            close_world(&s.w);
            for (int i = 0; i < STEPS; i++) {
                CHECK(plain[i].loss == replayed[i].loss && plain[i].norm == replayed[i].norm);
                CHECK(plain[i].lr == replayed[i].lr && plain[i].sum == replayed[i].sum);
                CHECK_STR(plain[i].error, replayed[i].error);
                CHECK((plain[i].skipped != 0) == (i == 33) && plain[i].skipped == replayed[i].skipped);
                CHECK(i == 0 || plain[i].sum != plain[i - 1].sum || i == 33);
            }
            CHECK(strstr(plain[33].error, "embed: element 2 of the ids is 15") != NULL);
            CHECK(plain[33].sum == plain[32].sum && plain[STEPS - 1].loss < plain[0].loss);
        }
}

/* A gradient that is not finite is told with the number of the replayed step, not of the captured one. */
TEST(replay_names_its_step)
{
    study     s;
    tn_graph *g;
    double    wide[6] = {1e30, -1e30, 1e30, 1e30, -1e30, 1e30};
    REQUIRE(study_open(&s, capture_backend(), TN_F32, TN_OPTIM_ADAMW));
    for (int64_t step = 0; step < 5; step++) {
        study_batch(&s, step, false);
        if (step == 1) {
            tn_graph_begin(s.w.ctx);
            study_step(&s);
            REQUIRE(CHECK_STATUS(tn_graph_end(s.w.ctx, &g), TN_OK));
        }
        if (step == 4) tn_write(s.norm.gain, TN_F64, wide, 6);
        if (step > 0) CHECK_STATUS(tn_graph_run(g), TN_OK);
        else study_step(&s);
    }
    FAILS(s.w.ctx, tn_ctx_sync(s.w.ctx), TN_ERR_NONFINITE, "step 5: the gradient of ");
    close_world(&s.w);
}

static study *bad;
static void by_read(void)   { double v[2]; tn_read(bad->loss, TN_F64, v, 2); }
static void by_item(void)   { tn_item(tn_slice(bad->loss, 0, 0, 1)); }
static void by_write(void)  { study_batch(bad, 1, false); }
static void by_sync(void)   { tn_ctx_sync(bad->w.ctx); }
static void by_seed(void)   { tn_ctx_seed(bad->w.ctx, 3); }
static void by_norm(void)   { tn_optim_grad_norm(bad->optim); }
static void by_second(void) { tn_optim_step(bad->optim); }
static void by_make(void)   { const int64_t n = 9; tn_tensor_create(bad->w.ctx, TN_REAL, 1, &n); }
static void by_grow(void)   { tn_tensor_1d(bad->w.ctx, TN_REAL, (int64_t)1 << 24); }
static void by_free(void)   { tn_tensor_destroy(bad->ids[0]); bad->ids[0] = NULL; }
static void by_nest(void)   { tn_graph_begin(bad->w.ctx); }
static void by_optim(void)  { tn_optim_destroy(bad->optim); bad->optim = NULL; }
static void by_cleared(void) { by_item(); tn_ctx_clear_error(bad->w.ctx); }
static void by_rule(void)                             /* one that Muon moved becomes AdamW's, whose moments are not there */
{
    tn_param *p;
    int64_t   i = 0;
    while ((p = tn_params_at(bad->w.params, i))->value != bad->head.w) i++;
    p->adamw = !p->adamw;
    tn_optim_step(bad->optim);
    p->adamw = !p->adamw;
}
static void by_file(void)
{
    char   bytes[4096];
    size_t used;
    tn_params_write(bad->w.params, tn_sink_memory(bytes, sizeof bytes, &used), NULL, 0);
}

TEST(what_no_graph_can_hold)
{
    static const struct { void (*act)(void); const char *message; } no[] = {
        {by_read, "graph: read of [2]"}, {by_item, "graph: read of [1]"}, {by_write, "graph: write of [3,5]"},
        {by_sync, "graph: the device is synchronised during a capture, expected kernels only"},
        {by_seed, "graph: the random seed is set during a capture"}, {by_norm, "graph: read of [8]"},
        {by_second, "graph: an optimiser steps twice"}, {by_make, "graph: tensor: 36 bytes are allocated during a capture"},
        {by_grow, "graph: arena: 67108864 bytes are allocated during a capture"},
        {by_free, "graph: 60 bytes are released during a capture, expected none"},
        {by_nest, "graph: a capture is running"}, {by_optim, "graph: "}, {by_file, "graph: "},
        {by_cleared, "graph: read of [1]"}, {by_rule, "graph: moments of another kind"},
    };
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        study     s;
        tn_graph *g = NULL;
        REQUIRE(study_open(&s, capture_backend(), TN_F32, TN_OPTIM_MUON));
        bad = &s;
        study_batch(&s, 0, false);
        study_step(&s);
        double sum = params_sum(&s);
        CHECK_STATUS(tn_graph_begin(s.w.ctx), TN_OK);
        study_step(&s);
        no[i].act();
        CHECK(tn_graph_end(s.w.ctx, &g) != TN_OK && !g);
        CHECK_ERROR(s.w.ctx, TN_ERR_ARG, no[i].message);
        CHECK_INT(capture_last->graphs, 0);
        CHECK(params_sum(&s) == sum);
        if (s.optim && s.ids[0]) {                        /* the context goes on as if nothing had been tried */
            CHECK_INT(tn_optim_step_count(s.optim), 1);
            CHECK_STATUS(tn_graph_begin(s.w.ctx), TN_OK);
            study_step(&s);
            CHECK_STATUS(tn_graph_end(s.w.ctx, &g), TN_OK);
            CHECK_STATUS(tn_graph_run(g), TN_OK);
            CHECK(params_sum(&s) != sum);
        }
        close_world(&s.w);
    }
}

/* The first step of all makes gradients and moments: it cannot be captured, and says so. */
TEST(first_step_is_no_graph)
{
    study     s;
    tn_graph *g;
    REQUIRE(study_open(&s, capture_backend(), TN_F32, TN_OPTIM_ADAMW));
    study_batch(&s, 0, false);
    CHECK_STATUS(tn_graph_begin(s.w.ctx), TN_OK);
    study_step(&s);
    CHECK(tn_graph_end(s.w.ctx, &g) != TN_OK);
    CHECK_ERROR(s.w.ctx, TN_ERR_ARG, "are allocated during a capture, expected none");
    study_step(&s);
    CHECK_CTX(s.w.ctx);
    CHECK_INT(tn_optim_step_count(s.optim), 1);
    close_world(&s.w);
}

static tn_graph *ready(study *s, tn_optim_kind kind)
{
    tn_graph *g = NULL;
    if (!study_open(s, capture_backend(), TN_F32, kind)) return NULL;
    study_batch(s, 0, false);
    study_step(s);
    tn_graph_begin(s->w.ctx);
    study_step(s);
    CHECK_STATUS(tn_graph_end(s->w.ctx, &g), TN_OK);
    CHECK_STATUS(tn_graph_run(g), TN_OK);
    return g;
}

TEST(graphs_that_no_longer_fit)
{
    static char checkpoint[1 << 15];
    study       s;
    tn_graph   *g;
    size_t      used = 0;
    REQUIRE((g = ready(&s, TN_OPTIM_ADAMW)) != NULL);
    tn_tensor_destroy(s.labels[1]);
    CHECK_STATUS(tn_graph_run(g), TN_ERR_ARG);
    CHECK_ERROR(s.w.ctx, TN_ERR_ARG, "graph: a tensor [3,5] that the graph uses was destroyed, so it must be captured again");
    close_world(&s.w);

    REQUIRE((g = ready(&s, TN_OPTIM_ADAMW)) != NULL);
    tn_params_destroy(s.w.params);
    FAILS(s.w.ctx, tn_graph_run(g), TN_ERR_ARG, "that the graph uses was destroyed");
    close_world(&s.w);

    REQUIRE((g = ready(&s, TN_OPTIM_MUON)) != NULL);
    tn_optim_destroy(s.optim);
    FAILS(s.w.ctx, tn_graph_run(g), TN_ERR_ARG, "that the graph uses was destroyed");
    close_world(&s.w);

    REQUIRE((g = ready(&s, TN_OPTIM_ADAMW)) != NULL);
    tn_ctx_seed(s.w.ctx, 12345);
    FAILS(s.w.ctx, tn_graph_run(g), TN_ERR_ARG, "graph: the context's seed has changed");
    close_world(&s.w);

    REQUIRE((g = ready(&s, TN_OPTIM_ADAMW)) != NULL);
    CHECK_STATUS(tn_checkpoint_write(s.optim, tn_sink_memory(checkpoint, sizeof checkpoint, &used), NULL, 0), TN_OK);
    CHECK(used <= sizeof checkpoint);
    CHECK_STATUS(tn_graph_run(g), TN_OK);                     /* writing one changes nothing */
    CHECK_STATUS(tn_checkpoint_read(s.optim, tn_source_memory(checkpoint, used)), TN_OK);
    FAILS(s.w.ctx, tn_graph_run(g), TN_ERR_ARG, "a checkpoint was read");
    close_world(&s.w);

    REQUIRE((g = ready(&s, TN_OPTIM_ADAMW)) != NULL);         /* a pass of backward that no step has used up */
    tn_ctx_reset(s.w.ctx);
    tn_record(s.w.ctx);
    tn_backward(s.w.ctx, tn_sum(s.w.ctx, s.head.w));
    FAILS(s.w.ctx, tn_graph_run(g), TN_ERR_ARG, "is not zero, expected zero as at the capture");
    tn_params_zero_grad(s.w.params);
    CHECK_STATUS(tn_graph_run(g), TN_OK);
    close_world(&s.w);
}

/* What the host remembers of a text is no part of a graph: a capture would move it, and a replay would not. */
TEST(caches_are_no_part_of_a_graph)
{
    world               w;
    tn_transformer_desc d = ZERO;
    tn_transformer      m;
    tn_graph           *g;
    const int64_t       shape[2] = {1, 2}, wide[3] = {1, 2, 8};
    d.vocab = 7;
    d.layers = 2;
    d.dim = 8;
    d.heads = 2;
    d.context = 8;
    REQUIRE(open_on(&w, TN_F32, 3, 1, capture_backend()) && CHECK(tn_transformer_init(w.params, "", &d, &m) == TN_OK));
    tn_transformer_cache *cache = tn_transformer_cache_create(w.ctx, &m, 1, 8);
    tn_attention_cache *layer = tn_attention_cache_create(w.ctx, &m.blocks[0].attn, 1, 8);
    tn_tensor *ids = tn_tensor_create(w.ctx, TN_I32, 2, shape);
    tn_tensor *x = tn_tensor_create(w.ctx, TN_REAL, 3, wide);
    REQUIRE(cache && layer && ids && x);
    CHECK(tn_transformer_decode(w.ctx, &m, ids, cache) && tn_attention_decode(w.ctx, &m.blocks[0].attn, x, layer, NULL));
    for (int k = 0; k < 5; k++) {
        CHECK_STATUS(tn_graph_begin(w.ctx), TN_OK);
        if (k == 0) CHECK(!tn_transformer_decode(w.ctx, &m, ids, cache));
        if (k == 1) CHECK(!tn_attention_decode(w.ctx, &m.blocks[0].attn, x, layer, NULL));
        if (k == 2) tn_transformer_cache_reset(cache);
        if (k == 3) tn_attention_cache_reset(layer);
        if (k == 4) CHECK_STATUS(tn_transformer_cache_rewind(cache, 1), TN_ERR_ARG);
        CHECK_STATUS(tn_graph_end(w.ctx, &g), TN_ERR_ARG);
        CHECK_ERROR(w.ctx, TN_ERR_ARG, k == 0 ? "graph: a transformer's cache is updated during a capture"
                    : k == 1 ? "graph: an attention cache is updated during a capture"
                    : k == 2 ? "graph: a transformer's cache is reset during a capture"
                    : k == 3 ? "graph: an attention cache is reset during a capture"
                             : "graph: a transformer's cache is rewound during a capture");
        CHECK_INT(tn_transformer_cache_past(cache), 2);
        CHECK_INT(tn_attention_cache_past(layer), 2);
    }
    CHECK(tn_transformer_decode(w.ctx, &m, ids, cache) && tn_attention_decode(w.ctx, &m.blocks[0].attn, x, layer, NULL));
    CHECK_INT(tn_transformer_cache_past(cache), 4);
    CHECK_INT(tn_attention_cache_past(layer), 4);
    close_world(&w);
}

/* A model that keeps all or recomputes, step by step or as a graph, in F32, F64 and with BF16 activations: four times the same bits. */
static double train_model(tn_dtype dtype, tn_dtype activations, int attention, bool recompute, bool with_graph)
{
    world               w;
    tn_transformer_desc d = ZERO;
    tn_transformer      m;
    tn_optim_desc       od = ZERO;
    tn_graph           *g = NULL;
    const int64_t       shape[2] = {2, 6};
    int32_t             id[12];
    double              sum = 0;
    d.vocab = 11;
    d.layers = 3;
    d.dim = 8;
    d.heads = 2;
    d.context = 6;
    d.attention = attention ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SOFTMAX;
    d.x0_residual = attention != 0;
    d.recompute = recompute;
    od.kind = attention ? TN_OPTIM_MUON : TN_OPTIM_ADAMW;
    od.clip_norm = 0.3;
    if (!open_as(&w, dtype, activations, 5, 1, capture_backend())
        || !CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK)) return NAN;
    tn_optim *o = tn_optim_create(w.params, &od);
    tn_tensor *ids = tn_tensor_create(w.ctx, TN_I32, 2, shape);
    tn_tensor *kept = tn_tensor_create(w.ctx, TN_REAL, 0, NULL);
    for (int step = 0; step < 8; step++) {
        bool noted = false;
        for (int i = 0; i < 12; i++) id[i] = (int32_t)((i * 5 + step * 3) % 11);
        tn_write(ids, TN_I32, id, 12);
        while (!g && !noted) {
            noted = !with_graph || step != 2;
            if (!noted) CHECK_STATUS(tn_graph_begin(w.ctx), TN_OK);
            tn_ctx_reset(w.ctx);
            tn_record(w.ctx);
            tn_tensor *loss = tn_transformer_loss(w.ctx, &m, ids, ids);
            tn_backward(w.ctx, loss);
            tn_assign(kept, loss);
            tn_optim_step(o);
            if (!noted && !CHECK_STATUS(tn_graph_end(w.ctx, &g), TN_OK)) noted = true;
        }
        if (g) CHECK_STATUS(tn_graph_run(g), TN_OK);
        sum += tn_item(kept) * (1 + 0.37 * step);
    }
    if (with_graph) CHECK_INT(capture_last->replays, 6);
    CHECK_CTX(w.ctx);
    for (int i = 0; i < tn_params_count(w.params); i++) {
        double        v[512];
        tn_param     *p = tn_params_at(w.params, i);
        const int64_t n = tn_tensor_count(p->value);
        if (CHECK(n <= 512 && tn_read(p->value, TN_F64, v, n) == TN_OK))
            for (int64_t k = 0; k < n; k++) sum += v[k] * (1 + 0.41 * (double)k + i);
    }
    close_world(&w);
    return sum;
}

TEST(models_recomputed_in_graphs)
{
    for (int kind = 0; kind < 3; kind++)
        for (int attention = 0; attention < 2; attention++) {
            const tn_dtype dtype = kind == 1 ? TN_F64 : TN_F32, activations = kind == 2 ? TN_BF16 : TN_REAL;
            const double   plain = train_model(dtype, activations, attention, false, false);
            CHECK(plain == plain);
            for (int how = 1; how < 4; how++) CHECK(train_model(dtype, activations, attention, how & 1, how > 1) == plain);
        }
}

/* All four functions or none, and none of a host: told when the context opens. */
TEST(backends_with_half_of_it)
{
    static tn_backend half;
    tn_desc desc = ZERO;
    tn_ctx *ctx = NULL;
    char    why[256];
    desc.backend = &half;
    desc.backend_required = true;
    for (int k = 0; k < 5; k++) {
        half = *capture_backend();
        if (k == 0) half.capture_begin = NULL;
        if (k == 1) half.capture_end = NULL;
        if (k == 2) half.replay = NULL;
        if (k == 3) half.graph_release = NULL;
        if (k == 4) half.host = true;
        CHECK_STATUS(tn_ctx_create(&desc, &ctx, why), TN_ERR_BACKEND);
        CHECK(strstr(why, k == 4 ? "it has some of the four graph functions, expected none for a host backend"
                                 : "it has some of the four graph functions, expected all or none") != NULL);
    }
}

TEST(backends_that_fail)
{
    study     s;
    tn_graph *g;
    REQUIRE((g = ready(&s, TN_OPTIM_ADAMW)) != NULL);
    capture_last->refuse_replay = true;
    FAILS(s.w.ctx, tn_graph_run(g), TN_ERR_BACKEND, "graph: backend capture: the list is burnt");
    capture_last->refuse_replay = false;
    capture_last->refuse_end = true;
    CHECK_STATUS(tn_graph_begin(s.w.ctx), TN_OK);
    study_step(&s);
    FAILS(s.w.ctx, tn_graph_end(s.w.ctx, &g), TN_ERR_BACKEND, "the capture was broken off");
    capture_last->refuse_begin = true;
    FAILS(s.w.ctx, tn_graph_begin(s.w.ctx), TN_ERR_BACKEND, "no capture today");
    FAILS(s.w.ctx, tn_graph_end(s.w.ctx, &g), TN_ERR_ARG, "graph: no capture is running");
    capture_last->refuse_begin = capture_last->refuse_end = false;
    CHECK_STATUS(tn_graph_begin(s.w.ctx), TN_OK);             /* nowhere to put it: the capture is over all the same */
    study_step(&s);
    FAILS(s.w.ctx, tn_graph_end(s.w.ctx, NULL), TN_ERR_ARG, "graph: out is NULL, so the capture was discarded");
    CHECK_STR(tn_ctx_device_name(s.w.ctx), "lists of calls");
    CHECK_STATUS(tn_graph_begin(s.w.ctx), TN_OK);             /* and the context ends in the middle of one */ study_step(&s);
    close_world(&s.w);

    REQUIRE(study_open(&s, NULL, TN_F32, TN_OPTIM_ADAMW));
    CHECK(!tn_graph_supported(s.w.ctx) && !tn_graph_supported(NULL));
    CHECK_STR(tn_ctx_device_name(s.w.ctx), "");
    FAILS(s.w.ctx, tn_graph_begin(s.w.ctx), TN_ERR_BACKEND, "graph: backend cpu cannot capture");
    close_world(&s.w);
    CHECK_STATUS(tn_graph_run(NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_graph_begin(NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_graph_end(NULL, &g), TN_ERR_ARG);
    tn_graph_destroy(NULL);
}

/* What a row has to say is told at the row, in a capture as well, and once; an older error comes with its own status. */
TEST(rows_that_fail)
{
    static const tn_status answer[] = {TN_ERR_MEMORY, TN_ERR_SHAPE, TN_ERR_DTYPE};
    const int64_t          n = 6;
    world                  w;
    tn_graph              *g;
    REQUIRE(open_on(&w, TN_F32, 1, 1, capture_backend()));
    tn_tensor *x = tn_tensor_create(w.ctx, TN_F32, 1, &n);
    CHECK(tn_sum(w.ctx, x) != NULL);
    for (int i = 0; i < 3; i++)
        for (int inside = 0; inside < 2; inside++) {
            const char *says = answer[i] == TN_ERR_DTYPE ? "sum: backend " : "sum: backend capture: 7 rows are too many";
            if (inside) CHECK_STATUS(tn_graph_begin(w.ctx), TN_OK);
            capture_last->refuse_row = answer[i];
            CHECK(tn_sum(w.ctx, x) == NULL);
            CHECK_ERROR(w.ctx, answer[i], says);
            if (inside) {
                CHECK_STATUS(tn_graph_end(w.ctx, &g), answer[i]);
                CHECK_ERROR(w.ctx, answer[i], says);
            }
            CHECK_STATUS(tn_ctx_sync(w.ctx), TN_OK);
            capture_last->refuse_replay = true;
            capture_last->refuse_row = answer[i];
            REFUSED(w.ctx, tn_sum(w.ctx, x), TN_ERR_BACKEND, "sum: backend capture: the list is burnt");
            capture_last->refuse_replay = false;
        }
    close_world(&w);
}

TEST(assign)
{
    world         w;
    const int64_t shape[2] = {2, 3};
    double        v[6] = {1, 2, 3, 4, 5, 6}, got[6];
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    tn_tensor *a = tn_tensor_create(w.ctx, TN_F64, 2, shape);
    tn_tensor *b = tn_tensor_2d(w.ctx, TN_F32, 3, 2);
    tn_write(a, TN_F64, v, 6);
    CHECK_STATUS(tn_assign(b, tn_transpose(a, 0, 1)), TN_OK);
    tn_read(b, TN_F64, got, 6);
    for (int i = 0; i < 6; i++) CHECK(got[i] == v[i % 2 * 3 + i / 2]);
    FAILS(w.ctx, tn_assign(b, a), TN_ERR_SHAPE, "assign: from is [2,3], expected [3,2]");
    CHECK_STATUS(tn_assign(b, NULL), TN_ERR_ARG);
    tn_ctx_clear_error(w.ctx);
    CHECK_STATUS(tn_assign(NULL, b), TN_ERR_ARG);
    tn_watch(b);
    tn_record(w.ctx);
    tn_tensor *c = tn_sum(w.ctx, tn_mul(w.ctx, b, b));
    FAILS(w.ctx, tn_assign(b, tn_transpose(a, 0, 1)), TN_ERR_ARG, "assign: [3,2] is needed by the backward pass");
    CHECK_STATUS(tn_backward(w.ctx, c), TN_OK);
    CHECK_STATUS(tn_assign(b, b->grad), TN_OK);
    CHECK_NEAR(tn_item(tn_slice(tn_slice(b, 0, 2, 3), 1, 1, 2)), 12, 0);
    tn_tensor_destroy(a);
    close_world(&w);
}

static tn_tensor *runs_a_graph(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    tn_graph *g;
    memcpy(&g, with, sizeof g);
    return tn_graph_run(g) == TN_OK ? in[0] : tn_mul(ctx, in[0], in[0]);
}

/* The kernel calls of a capture have not been made; each replay makes them. No graph is run inside of a capture, nor of a
   function that is recomputed. */
TEST(calls_of_a_graph_are_counted)
{
    study          s;
    tn_graph      *g = NULL;
    const uint64_t plain = 1, none = 0;
    uint64_t       before[TN_KERNEL_COUNT], step[TN_KERNEL_COUNT];
    int            called = 0;
    REQUIRE(study_open(&s, capture_backend(), TN_F32, TN_OPTIM_ADAMW));
    study_batch(&s, 0, false);
    study_step(&s);
    for (int k = 0; k < (int)TN_KERNEL_COUNT; k++) before[k] = tn_ctx_kernel_calls(s.w.ctx, (tn_kernel)k);
    study_step(&s);
    for (int k = 0; k < (int)TN_KERNEL_COUNT; k++) {
        step[k] = tn_ctx_kernel_calls(s.w.ctx, (tn_kernel)k) - before[k];
        before[k] += step[k];
        called += step[k] > 0;
    }
    CHECK(called > 5);
    tn_graph_begin(s.w.ctx);
    study_step(&s);
    REQUIRE(CHECK_STATUS(tn_graph_end(s.w.ctx, &g), TN_OK));
    for (int k = 0; k < (int)TN_KERNEL_COUNT; k++) {                /* but for the clock's tick, which the capture's end makes */
        const uint64_t tick = k == TN_KERNEL_TICK ? plain : none;
        CHECK(tn_ctx_kernel_calls(s.w.ctx, (tn_kernel)k) - before[k] <= tick);
        before[k] = tn_ctx_kernel_calls(s.w.ctx, (tn_kernel)k);
    }
    CHECK_STATUS(tn_graph_run(g), TN_OK);
    for (int k = 0; k < (int)TN_KERNEL_COUNT; k++)
        if (k != TN_KERNEL_TICK) CHECK_INT(tn_ctx_kernel_calls(s.w.ctx, (tn_kernel)k) - before[k], step[k]);
    tn_graph_begin(s.w.ctx);
    CHECK_STATUS(tn_graph_run(g), TN_ERR_ARG);
    {
        tn_graph *other = NULL;
        CHECK(tn_graph_end(s.w.ctx, &other) != TN_OK && !other);
    }
    CHECK_ERROR(s.w.ctx, TN_ERR_ARG, "graph: another one is run during a capture");
    CHECK_STATUS(tn_graph_run(g), TN_OK);
    tn_tensor *x = tn_full(s.w.ctx, 0, NULL, 1);
    tn_watch(x);
    tn_record(s.w.ctx);
    before[TN_KERNEL_ADAMW] = tn_ctx_kernel_calls(s.w.ctx, TN_KERNEL_ADAMW);
    tn_recompute(s.w.ctx, runs_a_graph, &g, sizeof g, 1, &x);
    CHECK_ERROR(s.w.ctx, TN_ERR_ARG, "graph: called inside a function that tn_recompute runs");
    CHECK_INT(tn_ctx_kernel_calls(s.w.ctx, TN_KERNEL_ADAMW), before[TN_KERNEL_ADAMW]);
    close_world(&s.w);
}

TEST_MAIN(replay_is_the_step, replay_names_its_step, what_no_graph_can_hold, first_step_is_no_graph, graphs_that_no_longer_fit,
          caches_are_no_part_of_a_graph, models_recomputed_in_graphs, backends_with_half_of_it, backends_that_fail,
          rows_that_fail, assign, calls_of_a_graph_are_counted)
