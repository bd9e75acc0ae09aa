/* train.c - a network small enough to live inside a program: it reads the digits of a seven-segment display

   This folder shows a model compiled in as bytes:

       train.c       learns, and saves a .safetensors file
       bytes.c       turns any file into a C array
       weights.h     the array: `make weights` makes it anew by the two programs above
       predict.c     a C program that has the array inside and only predicts: no file, no training
       predict.cpp   the same in C++17

   make weights   or   cc -O2 -I. examples/embed/train.c -o train -lm && ./train digits.safetensors
                       cc examples/embed/bytes.c -o bytes && ./bytes digits.safetensors weights > examples/embed/weights.h */
#include <stdio.h>
#include <string.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "digits.h"

enum { COPIES = 20, ROWS = COPIES * DIGITS, STEPS = 1500 };

int main(int argc, char **argv)
{
    static float   display[ROWS][SEGMENTS];
    static int32_t digit[ROWS];
    const char    *path = argc > 1 ? argv[1] : "digits.safetensors";
    char           why[TN_WHY];
    double         loss_now = 0;
    tn_ctx        *ctx;
    tn_mlp         layer;
    if (tn_ctx_create(&(tn_desc){ .seed = 1 }, &ctx, why) != TN_OK) return puts(why), 1;
    for (int row = 0; row < ROWS; row++) {
        memcpy(display[row], segments_of[row % DIGITS], sizeof *display);
        digit[row] = row % DIGITS;
    }
    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "digits", &(tn_mlp_desc){ .in = SEGMENTS, .hidden = HIDDEN, .out = DIGITS, .bias = true,
                                                  .out_bias = true }, &layer);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 5e-3, .weight_decay = 1e-2,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .total = STEPS } });
    for (int step = 0; step < STEPS; step++) {
        tn_ctx_reset(ctx);
        tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, ROWS, SEGMENTS), *y = tn_tensor_1d(ctx, TN_I32, ROWS);
        tn_write(x, TN_F32, display, ROWS * SEGMENTS);
        tn_write(y, TN_I32, digit, ROWS);
        tn_record(ctx);
        tn_tensor *logits = tn_mlp_forward(ctx, &layer, tn_noise(ctx, x, 0.3));      /* lamps are old, and light falls in */
        tn_tensor *loss = tn_cross_entropy(ctx, logits, y);
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) return puts(tn_ctx_error(ctx)), 1;
        loss_now = tn_item(loss);
    }
    if (tn_params_save(params, path) != TN_OK) return puts(tn_ctx_error(ctx)), 1;
    printf("%s: %d parameters\nloss: %.4f\n", path, (int)tn_params_elements(params), loss_now);
    tn_ctx_destroy(ctx);
    return 0;
}
