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

static lm lm_make(int threads, const tn_transformer_desc *d)
{
    lm       m = { .ctx = bench_ctx(TN_F32, threads) };
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

static const char *const kind_name[3] = {"softmax", "bilinear", "gpt2"};

static void step(int threads, int kind, int layers)
{
    tn_transformer_desc d = model_of(kind, layers);
    lm        m = lm_make(threads, &d);
    bench_row row = { "", "", threads, .goal = kind < 2 ? 1.4 : 0, .peer_name = "PyTorch" };
    char      work[64];
    snprintf(row.name, sizeof row.name, "LM step, %s", kind_name[kind]);
    snprintf(row.shape, sizeof row.shape, "%d layer%s", layers, layers > 1 ? "s" : "");
    snprintf(work, sizeof work, "lm_step %d %d", kind, layers);
    row.flops = tn_transformer_cost_of(&m.model.desc, TIME).training * BATCH * TIME;
    row.bytes = 4 * 8 * (double)tn_params_elements(m.params);
    bench_turns(&row, (bench_side){ run_step, &m }, bench_torch(work, threads));
    snprintf(work, sizeof work, "lm_step_vs_torch_%s_%dl_%dt", kind_name[kind], layers, threads);
    bench_value(work, row.ratio);
    lm_drop(&m);
}

/* ---- generation: TIME tokens of one text, each the most likely one after those before it -------------------- */

typedef struct generation { lm m; tn_transformer_cache *cache; } generation;

static void run_generation(void *arg, long runs)
{
    generation *g = arg;
    tn_ctx     *ctx = g->m.ctx;
    for (long i = 0; i < runs; i++) {
        int32_t id = 1;
        tn_transformer_cache_reset(g->cache);
        for (int t = 0; t < TIME; t++) {
            int64_t    one[2] = {1, 1};
            tn_tensor *ids;
            tn_ctx_reset(ctx);
            ids = tn_tensor_nd(ctx, TN_I32, 2, one);
            tn_write(ids, TN_I32, &id, 1);
            if (tn_read(tn_argmax(ctx, tn_transformer_decode(ctx, &g->m.model, ids, g->cache)), TN_I32, &id, 1) != TN_OK) bench_check(ctx);
        }
    }
}

/* form AUTO: a cache of keys and values; LINEAR: the running state, which PyTorch is not asked for. */
static void generate(int threads, int kind, tn_attend_form form)
{
    tn_transformer_desc d = model_of(kind, 4);
    generation g;
    bench_row  row = { "", "", threads, .peer_name = "PyTorch" };
    bench_side none = { NULL, NULL };
    char       work[64];
    d.form = form;
    g.m = lm_make(threads, &d);
    g.cache = tn_transformer_cache_create(g.m.ctx, &g.m.model, 1, TIME);
    bench_check(g.m.ctx);
    snprintf(row.name, sizeof row.name, "%d tokens, %s", TIME, kind_name[kind]);
    snprintf(row.shape, sizeof row.shape, "%s, %.1f MiB", form == TN_ATTEND_FORM_LINEAR ? "state" : "cache",
             (double)tn_transformer_cache_bytes(g.cache) / 1048576);
    snprintf(work, sizeof work, "lm_generate %d 4", kind);
    row.flops = tn_transformer_cost_of(&g.m.model.desc, TIME).forward * TIME;
    bench_turns(&row, (bench_side){ run_generation, &g }, form == TN_ATTEND_FORM_LINEAR ? none : bench_torch(work, threads));
    snprintf(work, sizeof work, "tokens_per_second_%s_%s_%dt", kind_name[kind],
             form == TN_ATTEND_FORM_LINEAR ? "state" : "cache", threads);
    bench_value(work, TIME / row.ours);
    tn_transformer_cache_destroy(g.cache);
    lm_drop(&g.m);
}

void bench_lm(void)
{
    for (int threads = 1; threads <= 2; threads++)
        for (int layers = 1; layers <= 4; layers += 3)
            for (int kind = 0; kind < (layers > 1 ? 3 : 2); kind++) step(threads, kind, layers);
    generate(1, 0, TN_ATTEND_FORM_AUTO);
    generate(1, 1, TN_ATTEND_FORM_QUADRATIC);
    generate(1, 1, TN_ATTEND_FORM_LINEAR);
}
