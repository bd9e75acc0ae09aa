/* hello.c - the first program of the README: learn XOR, fold the layer, print its matrix
   cc -O2 -I. examples/hello.c -o hello -lm && ./hello */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

int main(void)
{
    const float input[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, output[4] = {0, 1, 1, 0};
    char        why[TN_WHY], text[256];
    tn_ctx     *ctx;
    tn_mlp      layer;
    int         step;
    if (tn_ctx_create(NULL, &ctx, why) != TN_OK) return puts(why), 1;

    tn_params *params = tn_params_create(ctx);          /* y = P ((W x + b) * (V x + c)) + p */
    tn_mlp_init(params, "xor",
                &(tn_mlp_desc){ .in = 2, .hidden = 3, .out = 1, .bias = true, .out_bias = true }, &layer);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 0.05 });
    for (step = 0; step < 500; step++) {
        tn_ctx_reset(ctx);
        tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 4, 2), *y = tn_tensor_2d(ctx, TN_REAL, 4, 1);
        tn_write(x, TN_F32, input, 8);
        tn_write(y, TN_F32, output, 4);
        tn_record(ctx);
        tn_tensor *loss = tn_mse(ctx, tn_mlp_forward(ctx, &layer, x), y);
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK)
            return puts(tn_ctx_error(ctx)), 1;
        if (step % 100 == 99) printf("step %d  loss %.2e\n", step + 1, tn_item(loss));
    }

    tn_cp *cp = tn_cp_from_mlp(ctx, &layer);            /* the layer as one tensor on [x;1] */
    if (tn_tensor_format(tn_cp_interaction_of(cp, 0), text, sizeof text) < 0)
        return puts(tn_ctx_error(ctx)), 1;
    printf("the layer is [a b 1] Q [a b 1]^T with Q =\n%s\n", text);
    tn_ctx_destroy(ctx);
    return 0;
}
