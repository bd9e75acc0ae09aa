/* 04_digits.c - learn to read handwritten digits: train on 1,500 images, test on 297 others

   cc -O2 -I. examples/04_digits.c -o 04_digits -lm && ./04_digits            (in the folder of tensornet.h)

   The images have 8 x 8 pixels; examples/data/README.md says where they come from. The network is one bilinear layer from 64
   pixels to 10 numbers, and the largest of the ten is its answer. The cross-entropy loss asks for a large number at the
   right digit. An epoch is one pass over the training images, in batches of 50. The layer is trained twice. Without noise it
   learns nearly all training images by heart, but not how to read the others: this is overfitting. Noise on the images, which
   acts during training only, makes that harder. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { TRAIN = 1500, ALL = 1797, BATCH = 50, EPOCHS = 40 };

static bool train(tn_ctx *ctx, tn_tensor *images, tn_tensor *labels, double noise, tn_mlp *layer)
{
    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "digits", &(tn_mlp_desc){ .in = 64, .hidden = 64, .out = 10, .bias = true, .out_bias = true }, layer);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 3e-3, .weight_decay = 0.1,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .total = EPOCHS * TRAIN / BATCH } });
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        double loss_sum = 0, right = 0;
        for (int64_t first = 0; first < TRAIN; first += BATCH) {
            tn_ctx_reset(ctx);
            tn_tensor *x = tn_slice(images, 0, first, first + BATCH), *y = tn_slice(labels, 0, first, first + BATCH);
            tn_record(ctx);
            tn_tensor *logits = tn_mlp_forward(ctx, layer, tn_noise(ctx, x, noise));
            tn_tensor *loss = tn_cross_entropy(ctx, logits, y);
            if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) return false;
            loss_sum += tn_item(loss) * BATCH;
            right += tn_item(tn_accuracy(ctx, logits, y)) * BATCH;
        }
        if (epoch % 8 == 0) printf("epoch %2d  loss %.4f  accuracy %.3f\n", epoch, loss_sum / TRAIN, right / TRAIN);
    }
    return true;
}

static double accuracy(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x, tn_tensor *y)
{
    return tn_item(tn_accuracy(ctx, tn_mlp_forward(ctx, layer, x), y));     /* not recording: no noise, nothing kept */
}

int main(void)
{
    char    why[TN_WHY];
    tn_ctx *ctx;
    tn_mlp  layer;
    int32_t answers[10], truth[10];
    if (tn_ctx_create(&(tn_desc){ .seed = 1 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_tensor *images = tn_idx_load(ctx, "examples/data/digits-images-idx3-ubyte", 1 / 16.0);     /* [1797,8,8] in [0,1] */
    tn_tensor *labels = tn_idx_load(ctx, "examples/data/digits-labels-idx1-ubyte", 0);            /* [1797] integers     */
    images = tn_tensor_keep(tn_reshape_2d(images, ALL, 64));

    for (int with_noise = 0; with_noise < 2; with_noise++) {
        printf("%s noise\n", with_noise ? "with" : "without");
        if (!train(ctx, images, labels, with_noise ? 0.2 : 0, &layer)) {
            fprintf(stderr, "%s\n", tn_ctx_error(ctx));             /* a missing file, say: the first error is kept */
            return 1;
        }
        printf("accuracy of training images: %.3f, of test images: %.3f\n\n",
               accuracy(ctx, &layer, tn_slice(images, 0, 0, TRAIN), tn_slice(labels, 0, 0, TRAIN)),
               accuracy(ctx, &layer, tn_slice(images, 0, TRAIN, ALL), tn_slice(labels, 0, TRAIN, ALL)));
    }
    tn_tensor *logits = tn_mlp_forward(ctx, &layer, tn_slice(images, 0, TRAIN, TRAIN + 10));
    tn_read(tn_argmax(ctx, logits), TN_I32, answers, 10);
    tn_read(tn_slice(labels, 0, TRAIN, TRAIN + 10), TN_I32, truth, 10);
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("the first ten test images, and what they are taken for:\n");
    for (int i = 0; i < 10; i++) printf("%d -> %d%s", (int)truth[i], (int)answers[i], i < 9 ? ", " : "\n");
    tn_ctx_destroy(ctx);
    return 0;
}
