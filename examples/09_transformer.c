/* 09_transformer.c - train a small transformer on a poem, then let it continue a text

   cc -O2 -I. examples/09_transformer.c -o 09_transformer -lm && ./09_transformer

   A tokenizer splits the poem into tokens, words and parts of words, and gives each a number, its id. The model reads the
   tokens so far and returns a number, a logit, for every token that may come next. The loss is the cross-entropy of the
   token that does come next. This model is large enough to learn the poem by heart. Decoding appends the most likely token
   again and again; a cache keeps the keys and values of earlier tokens, so that none is computed twice. */
#include <stdio.h>
#include <string.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { CONTEXT = 48, BATCH = 8, STEPS = 150, MORE = 32, MOST = 200 };

static const char poem[] =                                  /* Jane Taylor, The Star, 1806 */
    "twinkle, twinkle, little star, how i wonder what you are! up above the world so high, like a diamond in the sky. "
    "when the blazing sun is gone, when he nothing shines upon, then you show your little light, twinkle, twinkle, all "
    "the night.";

int main(void)
{
    char           why[TN_WHY], words[1024];
    int32_t        ids[MOST], x[BATCH * CONTEXT], y[BATCH * CONTEXT], text[CONTEXT];
    uint32_t       random = 1;
    double         loss_now = 0;
    tn_ctx        *ctx;
    tn_transformer model;
    if (tn_ctx_create(&(tn_desc){ .seed = 1 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_tokenizer *tokenizer = tn_tokenizer_train(ctx, poem, strlen(poem), 100, NULL);
    tn_tokenizer_save(tokenizer, "tokenizer.json");         /* Hugging Face's tokenizers reads it as well */
    int64_t       count = tn_tokenizer_encode(tokenizer, poem, strlen(poem), TN_BOS_NONE, ids, MOST, NULL);
    int64_t       start = tn_tokenizer_encode(tokenizer, "when the blazing", 16, TN_BOS_NONE, text, CONTEXT, NULL);
    if (tn_ctx_status(ctx) != TN_OK || count <= CONTEXT) {
        fprintf(stderr, "%s\n", tn_ctx_status(ctx) != TN_OK ? tn_ctx_error(ctx) : "the poem is too short");
        return 1;
    }
    printf("the poem is %d tokens; \"twinkle\" is token %d of the vocabulary\n\n", (int)count,
           (int)tn_tokenizer_id(tokenizer, "twinkle"));
    tn_params *params = tn_params_create(ctx);
    tn_transformer_init(params, "", &(tn_transformer_desc){ .vocab = tn_tokenizer_count(tokenizer), .layers = 2,
        .dim = 32, .heads = 2, .context = CONTEXT }, &model);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 1e-2 });
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < BATCH; i++) {                   /* windows of the poem; the targets are one token further */
            random = random * 1664525u + 1013904223u;
            const int32_t *from = ids + (random >> 16) % (uint32_t)(count - CONTEXT);
            memcpy(x + i * CONTEXT, from, sizeof *x * CONTEXT);
            memcpy(y + i * CONTEXT, from + 1, sizeof *y * CONTEXT);
        }
        tn_ctx_reset(ctx);
        tn_tensor *in = tn_tensor_2d(ctx, TN_I32, BATCH, CONTEXT), *next = tn_tensor_2d(ctx, TN_I32, BATCH, CONTEXT);
        tn_write(in, TN_I32, x, BATCH * CONTEXT);
        tn_write(next, TN_I32, y, BATCH * CONTEXT);
        tn_record(ctx);
        tn_tensor *loss = tn_transformer_loss(ctx, &model, in, next);
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) break;
        loss_now = tn_item(loss);
        if (step % 50 == 0) printf("step %3d  loss %.3f\n", step, loss_now);
    }

    /* First the whole prompt is read into the cache, then one token at a time; each time the most likely one comes next. */
    tn_transformer_cache *cache = tn_transformer_cache_create(ctx, &model, 1, CONTEXT);
    for (int64_t seen = 0, n = start; n < start + MORE; n++) {
        tn_ctx_reset(ctx);
        tn_tensor *in = tn_tensor_2d(ctx, TN_I32, 1, n - seen);
        tn_write(in, TN_I32, text + seen, n - seen);
        tn_tensor *logits = tn_transformer_decode(ctx, &model, in, cache);
        tn_read(tn_argmax(ctx, tn_slice(logits, 1, n - seen - 1, n - seen)), TN_I32, text + n, 1);
        seen = n;
    }
    tn_tokenizer_decode(tokenizer, text, start + MORE, words, sizeof words);
    printf("\n%s\n\n", words);

    /* The same without a cache, in one pass over the whole text. */
    int32_t    again[CONTEXT];
    int64_t    last = start + MORE - 1, same = 0, rounded = 0;
    tn_tensor *in = tn_tensor_2d(ctx, TN_I32, 1, last);
    tn_write(in, TN_I32, text, last);
    tn_tensor *logits = tn_transformer_forward(ctx, &model, in);
    tn_read(tn_argmax(ctx, tn_slice(logits, 1, start - 1, last)), TN_I32, again, MORE);
    for (int i = 0; i < MORE; i++) same += again[i] == text[start + i];

    /* And with the unembedding rounded to eight bits: a quarter of the bytes that are read for each token. */
    tn_compact_error rounding = {0};
    tn_compact(model.head.w, TN_WEIGHT_INT8, &rounding);
    tn_read(tn_argmax(ctx, tn_slice(tn_transformer_forward(ctx, &model, in), 1, start - 1, last)), TN_I32, again, MORE);
    for (int i = 0; i < MORE; i++) rounded += again[i] == text[start + i];
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("tokens_of_the_vocabulary: %d\nparameters: %d\n", (int)model.desc.vocab, (int)tn_params_elements(params));
    printf("loss: %.3f\nby_heart: %s\n", loss_now, strstr(poem, words) ? "yes" : "no");
    printf("same_without_a_cache: %d of %d\n", (int)same, MORE);
    printf("same_with_%s: %d of %d\n", tn_weight_kind_name(tn_compact_kind(model.head.w)), (int)rounded, MORE);
    tn_ctx_destroy(ctx);
    return 0;
}
