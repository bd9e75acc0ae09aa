/* hello.c - the first program of the README: learn XOR, fold the layer, print its matrix
   cc -O2 -I. examples/hello.c -o hello -lm && ./hello */
#include <stdio.h>
#define TN_SMALL                                            /* without text, attention and analyses */
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

int main(void)
{
    const float   bits[] = {0,0, 0,1, 1,0, 1,1}, answers[] = {0, 1, 1, 0};
    const int64_t in[] = {4, 2}, out[] = {4, 1};
    char          text[256];
    tn_ctx       *ctx;                                      /* holds the memory and the first error */
    tn_mlp        layer;                                    /* y = P ((W x + b) * (V x + c)) + p */
    if (tn_ctx_create(NULL, &ctx, NULL) != TN_OK) return 1;
    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "xor", &(tn_mlp_desc){ .in = 2, .hidden = 3, .out = 1, .bias = true, .out_bias = true }, &layer);
    tn_optim  *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 0.05 });
    for (int step = 1; step <= 500; step++) {
        tn_ctx_reset(ctx);                                  /* frees the tensors of the last step */
        tn_record(ctx);
        tn_tensor *y = tn_mlp_forward(ctx, &layer, tn_tensor_from(ctx, 2, in, TN_F32, bits));
        tn_tensor *loss = tn_mse(ctx, y, tn_tensor_from(ctx, 2, out, TN_F32, answers));
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) return puts(tn_ctx_error(ctx)), 1;
        if (step % 250 == 0) printf("step %d  loss %.0e\n", step, tn_item(loss));
    }
    tn_cp *cp = tn_cp_from_mlp(ctx, &layer);                /* the layer as one tensor */
    if (tn_tensor_format(tn_cp_interaction_of(cp, 0), text, sizeof text) < 0) return puts(tn_ctx_error(ctx)), 1;
    printf("the layer is [a b 1] Q [a b 1]^T with Q =\n%s\n", text);
    tn_ctx_destroy(ctx);
    return 0;
}
