/* 05_fold.c - fold a network of three layers into one tensor, and check that it is the same function

   cc -O2 -I. examples/05_fold.c -o 05_fold -lm && ./05_fold                  (in the folder of tensornet.h)

   The network is x -> E x -> (W E x) * (V E x) -> U (...): an embedding, a bilinear layer, an unembedding. There is no
   activation function between them, so the three are one bilinear layer on pixels, with the factors W E, V E and U. These
   are the factors of a third-order tensor, 10 x 64 x 64; all computations use the factors, so it is never written out. */
#include <math.h>
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { TRAIN = 1500, ALL = 1797, BATCH = 50, STEPS = 600, WIDTH = 32 };

typedef struct network { tn_linear embed, unembed; tn_mlp bilinear; } network;

static tn_tensor *forward(tn_ctx *ctx, const network *net, tn_tensor *x)
{
    x = tn_mlp_forward(ctx, &net->bilinear, tn_linear_forward(ctx, &net->embed, x));
    return tn_linear_forward(ctx, &net->unembed, x);
}

/* The root of the mean squared difference of two tensors, relative to the first. */
static double apart(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    return sqrt(tn_item(tn_mse(ctx, a, b)) / tn_item(tn_mean(ctx, tn_mul(ctx, a, a))));
}

int main(void)
{
    char    why[TN_WHY];
    tn_ctx *ctx;
    network net;
    tn_mlp  again;
    double  cosine = 0;
    if (tn_ctx_create(&(tn_desc){ .seed = 1 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_tensor *images = tn_idx_load(ctx, "examples/data/digits-images-idx3-ubyte", 1 / 16.0);
    tn_tensor *labels = tn_idx_load(ctx, "examples/data/digits-labels-idx1-ubyte", 0);
    images = tn_tensor_keep(tn_reshape_2d(images, ALL, 64));
    if (tn_ctx_status(ctx) != TN_OK) {                      /* a missing file, say: the first error is kept */
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    tn_params *params = tn_params_create(ctx);
    tn_linear_init(params, "embed", &(tn_linear_desc){ .in = 64, .out = WIDTH }, &net.embed);
    tn_mlp_init(params, "bilinear", &(tn_mlp_desc){ .in = WIDTH, .hidden = WIDTH, .no_projection = true }, &net.bilinear);
    tn_linear_init(params, "unembed", &(tn_linear_desc){ .in = WIDTH, .out = 10 }, &net.unembed);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 3e-3 });
    for (int64_t step = 0; step < STEPS; step++) {
        int64_t first = step % (TRAIN / BATCH) * BATCH;
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *logits = forward(ctx, &net, tn_slice(images, 0, first, first + BATCH));
        tn_backward(ctx, tn_cross_entropy(ctx, logits, tn_slice(labels, 0, first, first + BATCH)));
        tn_optim_step(optim);
    }

    /* One call, or layer by layer: the same tensor, whose cosine with itself is 1. */
    tn_cp *cp = tn_cp_from_stack(ctx, &net.embed, &net.bilinear, &net.unembed);
    uint64_t mark = tn_cp_mark(ctx);                /* tn_cp_release destroys what the steps leave behind */
    tn_cp *by_steps = tn_cp_from_mlp(ctx, &net.bilinear);
    by_steps = tn_cp_fold_out(tn_cp_fold_in(by_steps, net.embed.w, NULL), net.unembed.w, NULL);
    tn_cp_release(ctx, mark, by_steps);
    tn_cp_cosine(cp, by_steps, &cosine);

    /* It takes images of 64 pixels, but all that it sees is in 32 directions, the width of the layer: beyond them the
       singular values of its mode are 0, and a tensor 10 x 32 x 32 in these directions is the same function. */
    tn_cp_hosvd_result modes;
    float              mode[64] = {0};
    int                directions = 0;
    if (tn_cp_hosvd(cp, &(tn_cp_hosvd_desc){ .rank_in = WIDTH, .core = true }, &modes) == TN_OK)
        tn_read(modes.in_values[0], TN_F32, mode, 64);
    for (int i = 0; i < 64; i++) directions += mode[i] > 1e-3f * mode[0];
    double left_out = modes.error;
    tn_cp_hosvd_destroy(&modes);

    /* The folded network is a layer as well: one that could be trained further. */
    tn_mlp_from_cp(params, "again", cp, &again);

    tn_tensor *x = tn_slice(images, 0, TRAIN, ALL), *y = tn_slice(labels, 0, TRAIN, ALL);       /* 297 test images */
    tn_tensor *by_network = forward(ctx, &net, x), *by_tensor = tn_cp_apply(ctx, cp, x);
    tn_tensor *by_layer = tn_mlp_forward(ctx, &again, x);
    double     tensor_apart = apart(ctx, by_network, by_tensor), layer_apart = apart(ctx, by_network, by_layer);
    double     same = tn_item(tn_accuracy(ctx, by_tensor, tn_argmax(ctx, by_network)));
    double     accuracy = tn_item(tn_accuracy(ctx, by_tensor, y));
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("folded: %d outputs, %d inputs, %d terms\n\n", (int)cp->out, (int)cp->in[0], (int)cp->terms);
    printf("directions_of_the_pixels: %d\nleft_out: %s\n", directions, left_out < 1e-3 ? "nothing" : "something");
    printf("cosine_of_both_folds: %.6f\n", cosine);
    printf("tensor_equals_network: %s\n", tensor_apart < 1e-5 ? "yes" : "no");
    printf("layer_equals_network: %s\n", layer_apart < 1e-5 ? "yes" : "no");
    printf("same_answers: %d of %d\n", (int)(same * (ALL - TRAIN) + 0.5), ALL - TRAIN);
    printf("test_accuracy: %.3f\n", accuracy);
    tn_ctx_destroy(ctx);
    return 0;
}
