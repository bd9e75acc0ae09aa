/* A language model: its training step and its generation, against PyTorch. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 2048, DIM = 256, HEADS = 4, TIME = 256, BATCH = 16, HIDDEN = 768 };

/* kind 0: softmax attention, 1: bilinear; both with RoPE, RMSNorm and a bilinear MLP. 2: as GPT-2. torch_peer.py has the same three. */
static tn_transformer_desc model_of(int kind, int layers)
{
    tn_transformer_desc d = { .vocab = VOCAB, .layers = layers, .dim = DIM, .heads = HEADS, .context = TIME, .hidden = HIDDEN };
    d.attention = kind == 1 ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SOFTMAX;
    if (kind < 2) return d;
    d.mlp = TN_MLP_GELU;
    d.hidden = 4 * DIM;
    d.mlp_bias = d.mlp_out_bias = d.attn_bias = d.attn_out_bias = true;
    d.positions = TN_POSITIONS_LEARNED;
    d.norm = TN_NORM_LAYER;
    d.norm_bias = true;
    d.tied = true;
    return d;
}

typedef struct lm { tn_ctx *ctx; tn_params *params; tn_transformer model; tn_optim *optim; tn_tensor *ids, *next; } lm;

static lm lm_make(tn_ctx *ctx, const tn_transformer_desc *d)
{
    lm       m = { .ctx = ctx };
    int64_t  shape[2] = {BATCH, TIME};
    int32_t *text = malloc(sizeof *text * BATCH * TIME);
    if (!text) exit(1);
    m.params = tn_params_create(m.ctx);
    tn_transformer_init(m.params, "", d, &m.model);
    m.optim = tn_optim_create(m.params, &(tn_optim_desc){ .weight_decay = 0.1 });
    m.ids = tn_tensor_create(m.ctx, TN_I32, 2, shape);
    m.next = tn_tensor_create(m.ctx, TN_I32, 2, shape);
    bench_check(m.ctx);
    for (int i = 0; i < BATCH * TIME; i++) text[i] = (int32_t)((unsigned)i * 2654435761u >> 8) % VOCAB;
    for (int i = 0; i < BATCH * TIME; i++) if (text[i] < 0) text[i] += VOCAB;
    tn_write(m.ids, TN_I32, text, BATCH * TIME);
    tn_write(m.next, TN_I32, text, BATCH * TIME);
    free(text);
    return m;
}

static void lm_drop(lm *m)
{
    tn_optim_destroy(m->optim);
    tn_tensor_destroy(m->ids);
    tn_tensor_destroy(m->next);
    tn_ctx_reset(m->ctx);
    tn_params_destroy(m->params);
}

static void run_step(void *arg, long runs)
{
    lm *m = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(m->ctx);
        tn_record(m->ctx);
        tn_backward(m->ctx, tn_transformer_loss(m->ctx, &m->model, m->ids, m->next));
        if (tn_optim_step(m->optim) != TN_OK) bench_check(m->ctx);
    }
}

bench_side bench_lm_work(tn_ctx *ctx, int kind, int layers)
{
    static lm           m;
    tn_transformer_desc d = model_of(kind, layers);
    m = lm_make(ctx, &d);
    return (bench_side){ run_step, &m, NULL };
}

static const char *const kind_name[3] = {"softmax", "bilinear", "gpt2"};

/* How a step computes: the settings of the context, whether PyTorch runs it under autocast(bfloat16), the goal. */
typedef struct mode { const char *name; tn_gemm_precision precision; tn_dtype activations; int autocast; double goal; } mode;
static const mode modes[] = {
    {"",     TN_GEMM_F32,    TN_REAL, 0, 1.2}, {"bf16", TN_GEMM_BF16,   TN_BF16, 1, 1.2},
    {"x3",   TN_GEMM_BF16X3, TN_REAL, 0, 1.5}, {"x6",   TN_GEMM_BF16X6, TN_REAL, 0, 0}};

static void step(int threads, int kind, int layers, const mode *how)
{
    tn_transformer_desc d = model_of(kind, layers);
    bench_row row = { "", "", threads, .goal = how->goal, .peer_name = "PyTorch" };
    char      work[96];
    snprintf(row.name, sizeof row.name, "LM step, %s%s%s", kind_name[kind], *how->name ? ", " : "", how->name);
    snprintf(row.shape, sizeof row.shape, "%d layer%s", layers, layers > 1 ? "s" : "");
    tn_ctx *ctx = bench_ctx_by(how->precision, how->activations, threads);
    if (!bench_wanted(&row)) return;
    if (!ctx) {
        printf("SKIP %s, %s, %d threads: this processor has no unit that gains by it\n", row.name, row.shape, threads);
        return;
    }
    lm m = lm_make(ctx, &d);
    snprintf(work, sizeof work, "lm_step %d %d %d", kind, layers, how->autocast);
    row.flops = tn_transformer_cost_of(&m.model.desc, TIME).training * BATCH * TIME;
    row.bytes = 4 * 8 * (double)tn_params_elements(m.params);
    if (how->precision != TN_GEMM_F32) row.flops = row.bytes = 0;       /* the peak is that of floats */
    bench_turns(&row, (bench_side){ run_step, &m, NULL }, bench_torch(work, threads));
    snprintf(work, sizeof work, "lm_step%s%s_vs_torch_%s_%dl_%dt", *how->name ? "_" : "", how->name, kind_name[kind], layers,
             threads);
    bench_value(work, row.ratio);
    lm_drop(&m);
}

void bench_lm(void)
{
    for (int threads = 1; threads <= 2; threads++)
        for (int layers = 1; layers <= 4; layers += 3)
            for (int kind = 0; kind < (layers > 1 ? 3 : 2); kind++) step(threads, kind, layers, &modes[0]);
    for (int how = 1; how < (int)(sizeof modes / sizeof *modes); how++)
        for (int threads = 1; threads <= 2; threads++)
            for (int kind = 0; kind < 2; kind++) step(threads, kind, 4, &modes[how]);
}

/* ---- generation: TIME tokens of each text, each the most likely one after those before it -------------------- */

typedef struct generation { lm m; tn_transformer_cache *cache; int32_t *ids; int64_t texts; } generation;

static void run_generation(void *arg, long runs)
{
    generation *g = arg;
    tn_ctx     *ctx = g->m.ctx;
    for (long i = 0; i < runs; i++) {
        for (int64_t b = 0; b < g->texts; b++) g->ids[b] = 1;
        tn_transformer_cache_reset(g->cache);
        for (int t = 0; t < TIME; t++) {
            int64_t one[2] = {g->texts, 1};
            tn_ctx_reset(ctx);
            tn_tensor *ids = tn_tensor_nd(ctx, TN_I32, 2, one);
            tn_write(ids, TN_I32, g->ids, g->texts);
            if (tn_read(tn_argmax(ctx, tn_transformer_decode(ctx, &g->m.model, ids, g->cache)), TN_I32, g->ids, g->texts) != TN_OK)
                bench_check(ctx);
        }
    }
}

/* form AUTO and QUADRATIC: a cache of keys and values; LINEAR: the running state. weights: bytes of them that a token reads,
   all but the table, of which it reads a few rows */
static generation generation_make(tn_ctx *ctx, int kind, int layers, tn_attend_form form, int texts,
                                  tn_transformer_cost *cost, double *weights)
{
    static int32_t      ids[64];
    tn_transformer_desc d = model_of(kind, layers);
    d.form = form;
    generation g = { .m = lm_make(ctx, &d), .ids = ids, .texts = texts };
    g.cache = tn_transformer_cache_create(ctx, &g.m.model, texts, TIME);
    bench_check(ctx);
    *cost = tn_transformer_cost_of(&g.m.model.desc, TIME);
    *weights = 4.0 * (double)(cost->params - cost->table);
    return g;
}

bench_side bench_decode_work(tn_ctx *ctx, int kind, int texts, int *tokens, double *weights)
{
    static generation   g;
    tn_transformer_cost cost;
    g = generation_make(ctx, kind, 4, TN_ATTEND_FORM_AUTO, texts, &cost, weights);
    *tokens = TIME;
    return (bench_side){ run_generation, &g, NULL };
}

/* PyTorch is not asked for the running state, nor to compile 32 layers: their weights are larger than the last cache. Its
   int8 is dynamic quantisation, which rounds activations, too. */
static void decode(int threads, int kind, int layers, tn_attend_form form, tn_weight_kind weights, int texts)
{
    const bool   state = form == TN_ATTEND_FORM_LINEAR, alone = state || layers > 4;
    const double sets = kind == 1 ? 2 : 1;
    bench_row    row = { "", "", threads, .goal = alone ? 0 : texts > 1 ? 2.5 : 3, .peer_name = "PyTorch", .passes = TIME };
    const char  *how = weights ? tn_weight_kind_name(weights) : "";
    char         work[96], which[64];
    tn_transformer_cost cost;
    tn_compact_error    error;
    snprintf(row.name, sizeof row.name, "decode, %s%s%s%s", kind_name[kind], state ? ", state" : "", weights ? ", " : "", how);
    snprintf(row.shape, sizeof row.shape, "%d text%s%s", texts, texts > 1 ? "s" : "", layers > 4 ? " 32 layers" : "");
    if (!bench_wanted(&row)) return;
    generation g = generation_make(bench_ctx(TN_F32, threads), kind, layers, form, texts, &cost, &row.reads);
    if (weights) {
        tn_transformer_compact(&g.m.model, weights, &error);
        bench_check(g.m.ctx);
        row.reads += (double)error.bytes - 4.0 * (double)error.count;
    }
    row.flops = cost.forward * TIME * texts;
    /* and half of the cache, or the state, once written and once read */
    row.reads += texts * 4.0 * layers * (state ? 2.0 * HEADS * 64 * 64 * 64 : DIM * (sets + 1) * TIME / 2);
    snprintf(work, sizeof work, "lm_generate%s%s %d 4 %d", weights ? "_" : "", how, kind, texts);
    bench_turns(&row, (bench_side){ run_generation, &g, NULL }, alone ? bench_peer(NULL, NULL) : bench_torch(work, threads));
    snprintf(which, sizeof which, "%s%s%s%s%s_b%d_%dt", kind_name[kind], state ? "_state" : "", layers > 4 ? "_32l" : "",
             weights ? "_" : "", how, texts, threads);
    snprintf(work, sizeof work, "tokens_per_second_%s", which);
    bench_value(work, row.ratio > 0 || alone ? TIME * texts / row.ours : 0);
    snprintf(work, sizeof work, "decode_%s", which);
    bench_value(work, row.ratio);
    tn_transformer_cache_destroy(g.cache);
    lm_drop(&g.m);
}

void bench_decode(void)
{
    for (int threads = 1; threads <= 2; threads++)
        for (int texts = 1; texts <= 32; texts += 31) {
            decode(threads, 0, 4, TN_ATTEND_FORM_AUTO, TN_WEIGHT_F32, texts);
            decode(threads, 1, 4, TN_ATTEND_FORM_QUADRATIC, TN_WEIGHT_F32, texts);
            decode(threads, 0, 4, TN_ATTEND_FORM_AUTO, TN_WEIGHT_BF16, texts);
            decode(threads, 0, 4, TN_ATTEND_FORM_AUTO, TN_WEIGHT_INT8, texts);
        }
    decode(1, 1, 4, TN_ATTEND_FORM_LINEAR, TN_WEIGHT_F32, 1);
    for (int threads = 1; threads <= 2; threads++)
        for (int weights = TN_WEIGHT_F32; weights <= TN_WEIGHT_INT8; weights++)
            decode(threads, 0, 32, TN_ATTEND_FORM_AUTO, (tn_weight_kind)weights, 1);
}
