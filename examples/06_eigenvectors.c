/* 06_eigenvectors.c - what a trained network looks for: the eigenvectors of its interaction matrices are pictures

   cc -O2 -I. examples/06_eigenvectors.c -o 06_eigenvectors -lm && ./06_eigenvectors      (in the folder of tensornet.h)

   The number that the network gives to digit 0 is x^T Q x, with a matrix Q on pixels. With the eigenvalues l and
   eigenvectors v of Q it is the sum of l (v.x)^2: each v is a picture, (v.x)^2 measures how much of it the image contains,
   and l is its weight. No image is needed to find them. All ten digits are drawn in eigenvectors.svg, which any browser
   shows. In the text below one can see what counts for a zero, a ring, and against it, the stroke of a one. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { ALL = 1797, TRAIN = 1500, BATCH = 50, STEPS = 900, PAIRS = 4 };

/* 8 x 8 numbers as signs: . is near zero, + * # are above it, - = % below it. */
static void draw(const float *v)
{
    for (int row = 0; row < 8; row++, putchar('\n'))
        for (int column = 0; column < 8; column++) {
            float p = v[row * 8 + column], size = p < 0 ? -p : p;
            putchar(size < .06f ? '.' : size < .15f ? "+-"[p < 0] : size < .25f ? "*="[p < 0] : "#%"[p < 0]);
            putchar(' ');
        }
}

int main(void)
{
    char     why[TN_WHY];
    float    v[64], value[PAIRS];
    tn_ctx  *ctx;
    tn_mlp   layer;
    tn_eigenpairs eigen;
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
    tn_mlp_init(params, "digits", &(tn_mlp_desc){ .in = 64, .hidden = 64, .out = 10 }, &layer);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 3e-3, .weight_decay = 0.3 });
    for (int64_t step = 0; step < STEPS; step++) {
        int64_t first = step % (TRAIN / BATCH) * BATCH;
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *x = tn_noise(ctx, tn_slice(images, 0, first, first + BATCH), 0.4);      /* much noise: smooth pictures */
        tn_backward(ctx, tn_cross_entropy(ctx, tn_mlp_forward(ctx, &layer, x), tn_slice(labels, 0, first, first + BATCH)));
        tn_optim_step(optim);
    }

    tn_cp *cp = tn_cp_from_mlp(ctx, &layer);
    tn_cp_eigen_all(cp, PAIRS, &eigen);                     /* of each digit the four pairs with the largest |value| */
    tn_read(tn_slice(eigen.values, 0, 0, 1), TN_F32, value, PAIRS);
    for (int i = 0; i < 2; i++) {
        tn_read(tn_slice(tn_slice(eigen.vectors, 0, 0, 1), 1, i, i + 1), TN_F32, v, 64);
        printf("digit 0, eigenvalue %+.2f\n", (double)value[i]);
        draw(v);
    }
    tn_tensor *pictures = tn_reshape(eigen.vectors, 3, (int64_t[]){ 10 * PAIRS, 8, 8 });
    tn_image  *image = tn_image_tiles_of(ctx, pictures, &(tn_image_tiles_desc){ .rows = 10, .columns = PAIRS, .own_scales = true,
        .title = "eigenvectors of the digits 0 to 9" });
    tn_image_save_svg(image, "eigenvectors.svg");
    tn_params_save(params, "digits.safetensors");           /* tn look digits.safetensors --w digits.w --p digits.p makes a page, */
    tn_npy_save(images, "digits.npy");                      /* and --data digits.npy shows which eigenvectors spoke for an image */

    /* How well do these four of the 64 pairs of each digit classify alone? An operator that is truncated to them: */
    tn_tensor *x = tn_slice(images, 0, TRAIN, ALL), *y = tn_slice(labels, 0, TRAIN, ALL);
    double     whole = tn_item(tn_accuracy(ctx, tn_cp_apply(ctx, cp, x), y));
    double     few = tn_item(tn_accuracy(ctx, tn_cp_apply(ctx, tn_cp_from_eigen(ctx, &eigen, PAIRS), x), y));

    /* Or as many of each digit as it needs for an error of a tenth, in the metric S = mean x x^T of the training images. The
       certificate says what is lost: over these images the mean |y - y_k| of each output is at most this. */
    tn_tensor     *seen = tn_slice(images, 0, 0, TRAIN);
    tn_tensor     *moment = tn_scale(ctx, tn_matmul(ctx, tn_transpose(seen, 0, 1), seen), 1.0 / TRAIN);
    tn_certificate certificate;
    int32_t        kept[10] = {0};
    float          lost[10] = {0};
    double         enough = 0;
    if (tn_cp_certify(cp, 0.1, 1, moment, &certificate) == TN_OK) {
        tn_read(certificate.rank, TN_I32, kept, 10);
        tn_read(certificate.mean, TN_F32, lost, 10);
        enough = tn_item(tn_accuracy(ctx, tn_cp_apply(ctx, certificate.cp, x), y));
        tn_certificate_destroy(&certificate);
    }

    /* Of how many of the 64 pixels are the pictures made? Vectors in random directions are made of 22. */
    tn_circuit_sparsity sparsity;
    tn_circuit_sparsity_of(ctx, tn_reshape_2d(eigen.vectors, -1, 64), &sparsity);
    double pixels = tn_item(tn_mean(ctx, sparsity.participation)), random = 64 / sparsity.expected;
    tn_circuit_sparsity_destroy(&sparsity);
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("\npicture: eigenvectors.svg\nmodel: digits.safetensors\nimages: digits.npy\ntest_accuracy: %.3f\ntest_accuracy_of_4_pairs: %.3f\n", whole, few);
    printf("pairs_of_0: %d, certified: %.2f, test_accuracy: %.3f\n", (int)kept[0], (double)lost[0], enough);
    printf("pixels_of_a_picture: %.0f, of a random one: %.0f\n", pixels, random);
    tn_ctx_destroy(ctx);
    return 0;
}
