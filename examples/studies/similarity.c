/* similarity.c - which models are the same function? Read from the weights alone, and drawn

   Eight models of the bundled digits: three seeds, the first of them with its hidden units permuted, swapped and rescaled, a
   narrower one, one that was trained on mirrored images, the first one with four eigenpairs per class, and an untrained one.
   Every pair is compared by the cosine of their tensors, in pixel space and in the data metric: it is 1 for the same
   function, whatever the weights look like. tn_cp_align then compares hidden units one by one.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/similarity.c -o similarity -lm && ./similarity
   --epochs N   --out FOLDER                                   (in the folder of tensornet.h) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "similarity"
#include "program.h"

enum { TRAIN = 1500, ALL = 1797, BATCH = 50, SIDE = 8, PIXELS = SIDE * SIDE, MODELS = 8, WIDTH = 32 };

static const char *const name[MODELS] = {
    "seed 1", "seed 2", "seed 3", "disguised", "width 16", "mirrored", "4 pairs", "untrained"
};

/* A layer from 64 pixels to 10 classes, trained in batches, as one operator on [x;1]. */
static tn_cp *trained(tn_ctx *ctx, uint64_t seed, int64_t width, int64_t epochs, tn_tensor *images, tn_tensor *labels)
{
    tn_params *params = tn_params_create(ctx);
    tn_mlp     layer;
    tn_ctx_seed(ctx, seed);
    tn_mlp_init(params, "layer", &(tn_mlp_desc){ .in = PIXELS, .hidden = width, .out = 10, .bias = true, .out_bias = true },
                &layer);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 3e-3, .weight_decay = 0.1 });
    for (int64_t step = 0; step < epochs * TRAIN / BATCH; step++) {
        int64_t first = step * BATCH % TRAIN;
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *x = tn_noise(ctx, tn_slice(images, 0, first, first + BATCH), 0.2);
        tn_tensor *loss = tn_cross_entropy(ctx, tn_mlp_forward(ctx, &layer, x), tn_slice(labels, 0, first, first + BATCH));
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) check(ctx);
    }
    tn_ctx_reset(ctx);
    tn_cp *cp = tn_cp_from_mlp(ctx, &layer);
    tn_optim_destroy(optim);
    tn_params_destroy(params);
    check(ctx);
    return cp;
}

/* The cosines of all pairs, printed and drawn. Returns how many pairs are the same function, to `tolerance`. */
static int compare(tn_ctx *ctx, tn_cp *const *model, double tolerance, const char *space, const char *out, const char *file)
{
    double  c[MODELS * MODELS];
    int64_t shape[2] = {MODELS, MODELS};
    char    text[4096], title[128];
    int     same = 0;
    for (int i = 0; i < MODELS; i++)
        for (int j = 0; j < MODELS; j++) {
            if (tn_cp_cosine(model[i], model[j], &c[i * MODELS + j]) != TN_OK) check(ctx);
            same += i < j && c[i * MODELS + j] > 1 - tolerance;
        }
    tn_tensor_table(tn_tensor_from(ctx, 2, shape, TN_F64, c), &(tn_tensor_table_desc){ .row_names = name, .column_names = name,
                    .digits = 3 }, text, sizeof text);
    check(ctx);
    printf("\ncosines in %s\n%s\n", space, text);
    for (int i = 0; i < MODELS * MODELS; i++) c[i] = floor(c[i] * 100 + 0.5) / 100;          /* two digits fit a cell */
    snprintf(title, sizeof title, "Cosines of eight models in %s", space);
    save_image(ctx, tn_image_matrix(ctx, c, MODELS, MODELS, &(tn_image_matrix_desc){ .title = title, .x_names = name,
        .y_names = name, .low = -1, .high = 1, .cell = 44, .numbers = true, .scale = 2 }), out, file);
    return same;
}

/* How alike the hidden units of two models are: the mean cosine of the best pairs. */
static double units(tn_ctx *ctx, const tn_cp *a, const tn_cp *b)
{
    tn_cp     *aligned;
    tn_tensor *cosines;
    if (tn_cp_align(a, b, &aligned, &cosines) != TN_OK) check(ctx);
    double mean = tn_item(tn_mean(ctx, cosines));
    tn_cp_destroy(aligned);
    tn_tensor_destroy(cosines);
    return mean;
}

int main(int argc, char **argv)
{
    struct { const char *out; int64_t epochs; } o = {"out", 30};
    const flag flags[] = { {"--epochs", FLAG_COUNT, &o.epochs, 1, 1000, NULL}, OUT_FLAG(&o), {0} };
    char       why[TN_WHY];
    tn_ctx    *ctx;
    tn_cp     *model[MODELS], *data[MODELS];
    read_flags(argc, argv, flags);
    make_folder(o.out);
    if (tn_ctx_create(&(tn_desc){ .seed = 1 }, &ctx, why) != TN_OK) stop(why);
    tn_tensor *images = tn_idx_load(ctx, "examples/data/digits-images-idx3-ubyte", 1 / 16.0);
    tn_tensor *labels = tn_idx_load(ctx, "examples/data/digits-labels-idx1-ubyte", 0);
    check(ctx);
    tn_tensor *mirrored = tn_copy(ctx, tn_slice_step(images, 2, SIDE - 1, -1, -1));
    mirrored = tn_tensor_keep(tn_reshape_2d(mirrored, ALL, PIXELS));
    images = tn_tensor_keep(tn_reshape_2d(images, ALL, PIXELS));
    check(ctx);
    for (int i = 0; i < 3; i++) model[i] = trained(ctx, (uint64_t)i + 1, WIDTH, o.epochs, images, labels);
    model[3] = tn_cp_canonical(model[0]);
    model[4] = trained(ctx, 1, WIDTH / 2, o.epochs, images, labels);
    model[5] = trained(ctx, 1, WIDTH, o.epochs, mirrored, labels);
    model[6] = tn_cp_truncate(model[0], 4);
    model[7] = trained(ctx, 1, WIDTH, 0, images, labels);
    check(ctx);
    tn_tensor *x = tn_slice(images, 0, TRAIN, ALL);
    for (int i = 0; i < MODELS; i++)
        printf("%-10s %.3f of the test images right\n", name[i],
               tn_item(tn_accuracy(ctx, tn_cp_apply(ctx, model[i], x), tn_slice(labels, 0, TRAIN, ALL))));
    tn_tensor *x1 = tn_append_one(ctx, images);
    tn_tensor *moment = tn_scale(ctx, tn_matmul(ctx, tn_transpose(x1, 0, 1), x1), 1.0 / ALL);
    for (int i = 0; i < MODELS; i++) data[i] = tn_cp_data_metric(model[i], moment);
    check(ctx);
    int same_pixels = compare(ctx, model, 1e-5, "pixel space", o.out, "similarity_pixels");
    int same_data = compare(ctx, data, 1e-5, "the data metric", o.out, "similarity_data");
    printf("\npairs_of_the_same_function: %d in pixel space, %d in the data metric\n", same_pixels, same_data);
    printf("units_alike_disguised: %.3f\n", units(ctx, model[0], model[3]));
    printf("units_alike_other_seed: %.3f\n", units(ctx, model[0], model[1]));
    check(ctx);
    tn_ctx_destroy(ctx);
    return 0;
}
