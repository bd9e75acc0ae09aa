/* Trains a small transformer on a text, saves a checkpoint, resumes from it, and generates text from the file in another
   context. What a desc leaves at zero is compared with what the documents say that a zero means. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensornet.h"

static int failures;

static void check(const char *what, double value, double expected, double within)
{
    const bool right = fabs(value - expected) <= within;
    printf("%-48s %.6g%s\n", what, value, right ? "" : "   FAIL");
    failures += !right;
}

enum { TOKENS = 12 };
static const char text[] = "one two three four one two three four one two three four one two three four";

typedef struct machine {
    tn_ctx        *ctx;
    tn_params     *params;
    tn_transformer model;
    tn_optim      *optim;
    tn_tokenizer  *tokenizer;
    int32_t        id[256];
    int64_t        count;
} machine;

static const tn_transformer_desc small = {.layers = 2, .dim = 16, .heads = 2, .context = TOKENS, .vocab = 258};

static bool open_machine(machine *m, const tn_transformer_desc *desc)
{
    memset(m, 0, sizeof *m);
    if (tn_ctx_create(&(tn_desc){.seed = 3, .threads = 1}, &m->ctx, NULL) != TN_OK) return false;
    m->params = tn_params_create(m->ctx);
    m->tokenizer = tn_tokenizer_create_bytes(m->ctx);
    m->count = tn_tokenizer_encode(m->tokenizer, text, sizeof text - 1, TN_BOS_FIRST, m->id, 256, NULL);
    if (tn_transformer_init(m->params, NULL, desc, &m->model) != TN_OK) return false;
    m->optim = tn_optim_create(m->params, &(tn_optim_desc){.lr = 0.01, .clip_norm = 1});
    return m->optim != NULL;
}

static double step(machine *m, int number)
{
    const int64_t shape[2] = {4, TOKENS};
    int32_t       in[4][TOKENS], out[4][TOKENS];
    for (int b = 0; b < 4; b++) {
        const int64_t at = (number * 7 + b * 13) % (m->count - TOKENS);
        memcpy(in[b], m->id + at, sizeof in[b]);
        memcpy(out[b], m->id + at + 1, sizeof out[b]);
    }
    tn_ctx_reset(m->ctx);
    tn_record(m->ctx);
    tn_tensor *loss = tn_transformer_loss(m->ctx, &m->model, tn_tensor_from(m->ctx, 2, shape, TN_I32, in),
                                          tn_tensor_from(m->ctx, 2, shape, TN_I32, out));
    tn_backward(m->ctx, loss);
    if (tn_optim_step(m->optim) != TN_OK) { puts(tn_ctx_error(m->ctx)); failures++; return 0; }
    return tn_item(loss);
}

/* Six letters after `prompt`, each the most likely one. */
static void generate(machine *m, const char *prompt, char *out)
{
    int32_t ids[64];
    float   logits[258];
    int64_t n = tn_tokenizer_encode(m->tokenizer, prompt, strlen(prompt), TN_BOS_NONE, ids, 64, NULL), at = 0;
    tn_transformer_cache *cache = tn_transformer_cache_create(m->ctx, &m->model, 1, 64);
    const int64_t         first = n;
    while (n < first + 6) {
        tn_ctx_reset(m->ctx);
        const int64_t shape[2] = {1, n - at};
        tn_tensor    *y = tn_transformer_decode(m->ctx, &m->model, tn_tensor_from(m->ctx, 2, shape, TN_I32, ids + at), cache);
        if (tn_read(y ? tn_slice(y, 1, n - at - 1, n - at) : NULL, TN_F32, logits, 258) != TN_OK) {
            puts(tn_ctx_error(m->ctx));
            failures++;
            break;
        }
        at = n;
        ids[n++] = (int32_t)tn_sample(logits, 258, 0, 0, 0, 0.5);
    }
    check("tokens in the cache", (double)tn_transformer_cache_past(cache), (double)at, 0);
    out[0] = 0;
    tn_tokenizer_decode(m->tokenizer, ids + first, n - first, out, 64);
    tn_transformer_cache_destroy(cache);
}

static double largest_difference(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    tn_tensor *d = a && b ? tn_sub(ctx, a, b) : NULL;
    const int64_t n = d ? tn_tensor_count(d) : 0;
    tn_tensor *most = d ? tn_topk(ctx, tn_reshape(d, 1, &n), 0, 1, TN_ORDER_MAGNITUDE, NULL) : NULL;
    return most ? fabs(tn_item(most)) : HUGE_VAL;
}

/* What zeros of a desc mean. */
static void defaults(void)
{
    tn_transformer_desc d;
    machine             m;
    if (!open_machine(&m, &small)) { failures++; return; }
    check("desc is valid", tn_transformer_check(m.ctx, &small, &d) == TN_OK, 1, 0);
    check("hidden of a bilinear MLP: 8 dim / 3", (double)d.hidden, 40, 0);
    check("d_qk: dim / heads", (double)d.d_qk, 8, 0);
    check("kind: softmax", d.attention == TN_ATTENTION_SOFTMAX, 1, 0);
    check("MLP: bilinear, of two encoders", d.mlp == TN_MLP_BILINEAR && m.model.blocks[0].mlp.desc.order == 2, 1, 0);
    check("norms before blocks, RMS", d.norm == TN_NORM_RMS && d.norm_place == TN_PLACE_PRE, 1, 0);
    check("parameters of the cost and of the model", (double)tn_transformer_cost_of(&small, TOKENS).params,
          (double)tn_params_elements(m.params), 0);
    const int64_t shape[2] = {1, TOKENS};
    tn_tensor    *pattern = tn_transformer_pattern(m.ctx, &m.model, tn_tensor_from(m.ctx, 2, shape, TN_I32, m.id), 0);
    float         p[2][TOKENS][TOKENS], future = 0, row = 0;
    if (tn_read(pattern, TN_F32, p, 2 * TOKENS * TOKENS) != TN_OK) failures++;
    for (int j = 0; j < TOKENS; j++) {
        row += p[1][5][j];
        if (j > 5) future += p[1][5][j];
    }
    check("a query sees no later key", future, 0, 0);
    check("its weights add up to", row, 1, 1e-5);
    tn_ctx_destroy(m.ctx);
}

int main(void)
{
    machine m, resumed;
    char    generated[64];
    defaults();
    if (!open_machine(&m, &small)) return 1;
    for (int i = 0; i < 200; i++) step(&m, i);
    const tn_metadata note = {"batches.read", "200"};
    if (tn_checkpoint_write(m.optim, tn_sink_path("language.checkpoint"), &note, 1) != TN_OK
        || tn_transformer_config_write(m.ctx, &m.model.desc, tn_sink_path("config.json")) != TN_OK)
        return puts(tn_ctx_error(m.ctx)), 1;
    double loss = 0;
    for (int i = 200; i < 220; i++) loss = step(&m, i);
    check("loss, nats per token", loss, 0, 0.2);

    /* The same twenty steps from the checkpoint. */
    tn_ctx *ctx;
    if (tn_ctx_create(NULL, &ctx, NULL) != TN_OK) return 1;
    tn_transformer_desc read;
    if (tn_transformer_config_read(ctx, tn_source_path("config.json"), &read) != TN_OK) return puts(tn_ctx_error(ctx)), 1;
    tn_ctx_destroy(ctx);
    if (!open_machine(&resumed, &read)) return 1;
    if (tn_checkpoint_read(resumed.optim, tn_source_path("language.checkpoint")) != TN_OK)
        return puts(tn_ctx_error(resumed.ctx)), 1;
    check("steps in the checkpoint", (double)tn_optim_step_count(resumed.optim), 200, 0);
    double again = 0;
    for (int i = 200; i < 220; i++) again = step(&resumed, i);
    check("loss after resuming - loss", again - loss, 0, 0);
    tn_safetensors *file = tn_safetensors_open(m.ctx, tn_source_path("language.checkpoint"));
    const char     *value = tn_safetensors_metadata(file, "batches.read");
    check("the note", value && strcmp(value, "200") == 0, 1, 0);
    tn_safetensors_close(file);

    tn_ctx_reset(m.ctx);
    generate(&m, "two th", generated);
    printf("two th|%s\n", generated);
    check("it goes on as the text does", strcmp(generated, "ree fo") == 0, 1, 0);

    /* A run: points are read, an edit replaces one, parts of a logit add up to it. */
    const int64_t shape[2] = {1, TOKENS};
    tn_tensor *ids = tn_tensor_from(m.ctx, 2, shape, TN_I32, m.id), *targets = tn_tensor_from(m.ctx, 2, shape, TN_I32, m.id + 1);
    tn_tensor *z = NULL, *logits = tn_transformer_forward(m.ctx, &m.model, ids);
    tn_tap     tap = {"blocks.1.attn.z", tn_tap_read, &z};
    check("a run's logits - forward's", largest_difference(m.ctx, tn_transformer_run(m.ctx, &m.model, ids, &tap, 1), logits), 0, 0);
    check("extents of the heads' results", z ? (double)(z->shape[1] * 1000 + z->shape[2] * 100 + z->shape[3]) : 0, 12208, 0);
    tn_edit    off = {.head = 1, .heads = 1};
    tn_tap     ablate = {"blocks.1.attn.z", tn_tap_edit, &off};
    tn_tensor *without = tn_transformer_run(m.ctx, &m.model, ids, &ablate, 1);
    check("without a head logits change", largest_difference(m.ctx, without, logits) > 1e-4, 1, 0);
    tn_tensor *parts = tn_transformer_attribution(m.ctx, &m.model, ids, targets, NULL);
    tn_point   name[16];
    check("parts", (double)tn_transformer_parts(&m.model, name, 16), parts ? (double)parts->shape[2] : 0, 0);
    float      sum[TOKENS], logit[TOKENS * 258];
    tn_read(parts ? tn_sum_axis(m.ctx, parts, 2) : NULL, TN_F32, sum, TOKENS);
    tn_read(logits, TN_F32, logit, TOKENS * 258);
    check("their sum - the logit", sum[4] - logit[4 * 258 + m.id[5]], 0, 1e-4);
    tn_tensor *stream = tn_transformer_hidden(m.ctx, &m.model, ids);
    check("unembedding of hidden - logits", largest_difference(m.ctx, tn_transformer_unembed(m.ctx, &m.model, stream), logits), 0, 0);
    check("accuracy on the text", tn_item(tn_accuracy(m.ctx, logits, targets)), 1, 0.25);

    tn_compact_error e;
    if (tn_transformer_compact(&m.model, TN_WEIGHT_INT8, &e) != TN_OK) return puts(tn_ctx_error(m.ctx)), 1;
    check("rounded to 8 bits: relative error", e.rms, 0.005, 0.004);
    check("logits then change little", largest_difference(m.ctx, tn_transformer_forward(m.ctx, &m.model, ids), logits), 0, 0.5);
    check("no error is left", tn_ctx_status(m.ctx), TN_OK, 0);
    tn_ctx_destroy(resumed.ctx);
    tn_ctx_destroy(m.ctx);
    return failures != 0;
}
