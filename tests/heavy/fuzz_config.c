/* fuzz_config.c: a config.json that may be anything. What is refused leaves the desc as it was; what is taken is valid, is
   written, read again and written as the same bytes; a small model is made, counted and run. See fuzz.h. */

#include "fuzz.h"

static char fuzz_text[2][FUZZ_FILE];

static size_t fuzz_write(tn_ctx *ctx, const tn_transformer_desc *d, char *to)
{
    size_t used = 0;
    DEMAND(tn_transformer_config_write(ctx, d, tn_sink_memory(to, FUZZ_FILE, &used)) == TN_OK);
    return used;
}

/* Desc and model count the same numbers, and a text of two tokens has logits. The context is the model's own, because
   workspaces grow and stay. */
static void fuzz_model(const tn_transformer_desc *d)
{
    static const int32_t id[2] = {0, 0};
    tn_ctx        *ctx = fuzz_context(TN_F32);
    tn_params     *params = tn_params_create(ctx);
    tn_transformer model;
    if (tn_transformer_init(params, "m", d, &model) == TN_OK) {
        DEMAND(tn_params_elements(params) == tn_transformer_cost_of(d, 1).params);
        tn_tensor *ids = tn_tensor_2d(ctx, TN_I32, 1, d->context < 2 ? 1 : 2);
        if (ids) tn_write(ids, TN_I32, id, tn_tensor_count(ids));
        tn_tensor *logits = tn_transformer_forward(ctx, &model, ids);
        DEMAND(logits ? logits->shape[2] == d->vocab : tn_ctx_status(ctx) == TN_ERR_MEMORY);
    } else DEMAND(tn_ctx_status(ctx) == TN_ERR_MEMORY);
    tn_ctx_destroy(ctx);
}

/* Values that are each in range and do not go together: the message says which, and no byte. */
static bool fuzz_contradicts(tn_ctx *ctx)
{
    static const char *const begin[] = {"transformer: ", "attention of the transformer: ", "attend: "};
    tn_status s = tn_ctx_status(ctx);
    size_t    k = 0;
    while (k < 3 && strncmp(tn_ctx_error(ctx), begin[k], strlen(begin[k])) != 0) k++;
    return (s == TN_ERR_ARG || s == TN_ERR_SHAPE) && k < 3;
}

static void fuzz_read(tn_ctx *ctx, const void *data, size_t n)
{
    tn_transformer_desc again, before;
    memset(&before, 0x5A, sizeof before);
    tn_transformer_desc d = before;
    if (tn_transformer_config_read(ctx, fuzz_source(data, n), &d) != TN_OK) {
        DEMAND(memcmp(&d, &before, sizeof d) == 0);
        if (fuzz_contradicts(ctx)) tn_ctx_clear_error(ctx);
        else fuzz_failed(ctx);
        return;
    }
    DEMAND(tn_transformer_check(ctx, &d, NULL) == TN_OK);
    size_t bytes = fuzz_write(ctx, &d, fuzz_text[0]);
    DEMAND(tn_transformer_config_read(ctx, tn_source_memory(fuzz_text[0], bytes), &again) == TN_OK);
    DEMAND(fuzz_write(ctx, &again, fuzz_text[1]) == bytes && memcmp(fuzz_text[0], fuzz_text[1], bytes) == 0);
    if (d.layers <= 3 && d.vocab <= 64 && d.context <= 64 && d.dim <= 64 && d.hidden <= 256 && d.mlp_order <= 4
        && d.heads * d.d_qk <= 256 && d.heads * d.d_v <= 256) fuzz_model(&d);
}
