/* predict.c - a model compiled in as bytes, in C: no file is opened, nothing is learnt or recorded

   make && build/examples/embed/predict     or   cc -O2 -I. examples/embed/predict.c -o predict -lm && ./predict
   See train.c for where weights.h comes from, and predict.cpp for the same in C++. */
#include <stdio.h>
#include <string.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "digits.h"
#include "weights.h"

/* The most likely digit of each display; false: see tn_ctx_error. */
static bool predict(tn_ctx *ctx, const tn_mlp *layer, const float *displays, int64_t count, int32_t *digits)
{
    tn_mark    mark = tn_arena_mark(ctx);
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, count, SEGMENTS);
    tn_write(x, TN_F32, displays, count * SEGMENTS);
    tn_read(tn_argmax(ctx, tn_mlp_forward(ctx, layer, x)), TN_I32, digits, count);
    tn_arena_release(ctx, mark);                        /* a program that runs for years holds no more than one call needs */
    return tn_ctx_status(ctx) == TN_OK;
}

int main(void)
{
    static float broken[DIGITS * SEGMENTS][SEGMENTS];   /* every digit with each of its segments wrong */
    int32_t      answer[DIGITS * SEGMENTS];
    int          right = 0, right_broken = 0;
    char         why[TN_WHY];
    tn_ctx      *ctx;
    tn_mlp       layer;
    if (tn_ctx_create(&(tn_desc){ .threads = 1 }, &ctx, why) != TN_OK) return puts(why), 1;
    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "digits", &(tn_mlp_desc){ .in = SEGMENTS, .hidden = HIDDEN, .out = DIGITS, .bias = true,
                                                  .out_bias = true }, &layer);
    if (tn_params_read(params, tn_source_memory(weights, sizeof weights), TN_MATCH_ALL) != TN_OK)
        return puts(tn_ctx_error(ctx)), 1;

    if (!predict(ctx, &layer, segments_of[0], DIGITS, answer)) return puts(tn_ctx_error(ctx)), 1;
    for (int i = 0; i < DIGITS; i++) {
        printf("display %d: %d\n", i, (int)answer[i]);
        right += answer[i] == i;
    }
    for (int i = 0; i < DIGITS * SEGMENTS; i++) {
        memcpy(broken[i], segments_of[i / SEGMENTS], sizeof *broken);
        broken[i][i % SEGMENTS] = 1 - broken[i][i % SEGMENTS];
    }
    if (!predict(ctx, &layer, broken[0], DIGITS * SEGMENTS, answer)) return puts(tn_ctx_error(ctx)), 1;
    for (int i = 0; i < DIGITS * SEGMENTS; i++) right_broken += answer[i] == i / SEGMENTS;
    tn_ctx_destroy(ctx);

    printf("\nmodel_bytes: %d\n", (int)sizeof weights);
    printf("digits_right: %d\n", right);
    printf("right_of_70_with_a_wrong_segment: %d\n", right_broken);     /* some are another digit then, and none can tell */
    return right == DIGITS ? 0 : 1;
}
