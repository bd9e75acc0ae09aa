/* mps_patches.c - two layers of tensor-network attention before a matrix product state, beside the state alone

   An image is a sequence of 49 patches of 4 x 4 pixels, in the order of reading. A linear map makes a vector of length 1 of
   each patch. Two networks are trained on the same batches, for the same number of steps:
   1. a matrix product state alone reads these vectors; its label core stands in the middle;
   2. tn_deep: in two layers of tensor-network attention, with a residual, the vector of each patch is multiplied by a matrix
      that depends on all other patches, before the same kind of state reads the result.
   Both begin where training works: the layers near the identity (a residual of 8), the state with logits of magnitude 1. By
   default the state multiplies the sums of 49 vectors, which may be e^30 or e^-30.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/mps_patches.c -o mps_patches -lm && ./mps_patches
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --layers N   --bond N (of the layers)
   --head-bond N (of the state)   --dim N (of a vector)   --alone (only the first)   --seed N   --threads N */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "mps_patches"
#include "common.h"

enum { PATCH = 4, ACROSS = SIDE / PATCH, PATCHES = ACROSS * ACROSS, RESIDUAL = 8 };

typedef struct options {
    const char *data;
    int64_t     epochs, batch, layers, bond, head_bond, dim, seed, threads;
    double      lr, weight_decay;
    bool        alone;
} options;

typedef struct reader {
    tn_tensor *order;               /* I32 [784]: the pixels, patch by patch */
    tn_linear  embed;
    tn_deep    deep;                /* with layers                           */
    tn_mps     mps;                 /* without them; else that of deep       */
    int64_t    layers;
} reader;

/* The vectors of all patches: x [n,784] -> [n,49,dim] */
static tn_tensor *vectors_of(tn_ctx *ctx, const reader *r, tn_tensor *x)
{
    const int64_t shape[3] = {x->shape[0], PATCHES, PATCH * PATCH};
    tn_tensor    *y = tn_linear_forward(ctx, &r->embed, tn_reshape(tn_gather(ctx, x, 1, r->order), 3, shape));
    return tn_scale(ctx, tn_rmsnorm(ctx, y, NULL, 1e-12), 1 / sqrt((double)r->mps.desc.dim));
}

static tn_tensor *logits_of_reader(tn_ctx *ctx, const void *model, tn_tensor *x)
{
    const reader *r = (const reader *)model;
    x = vectors_of(ctx, r, x);
    return r->layers > 0 ? tn_deep_forward(ctx, &r->deep, x) : tn_mps_forward(ctx, &r->mps, x, NULL);
}

/* Divides the cores of the state by a number, so that the mean ln of the magnitude of its logits is 0 for some images. */
static void scale_state(tn_ctx *ctx, const reader *r, const image_set *set)
{
    tn_tensor *x = vectors_of(ctx, r, tn_slice(set->images, 0, 0, set->count < TEST_BATCH ? set->count : TEST_BATCH)), *logs;
    for (int64_t l = 0; l < r->layers; l++) x = tn_tn_attention_forward(ctx, &r->deep.layer[l], x);
    tn_mps_forward(ctx, &r->mps, x, &logs);
    tn_assign(r->mps.cores, tn_scale(ctx, r->mps.cores, exp(-tn_item(tn_mean(ctx, logs)) / PATCHES)));
    check(ctx);
}

static void reader_init(tn_ctx *ctx, tn_params *params, const options *o, int64_t layers, const image_set *set, reader *r)
{
    int32_t pixel[PIXELS];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            pixel[((i / PATCH * ACROSS + j / PATCH) * PATCH + i % PATCH) * PATCH + j % PATCH] = i * SIDE + j;
    memset(r, 0, sizeof *r);
    r->layers = layers;
    r->order = tn_tensor_create(ctx, TN_I32, 1, &(int64_t){PIXELS});
    tn_write(r->order, TN_I32, pixel, PIXELS);
    tn_linear_init(params, "embed", &(tn_linear_desc){ .in = PATCH * PATCH, .out = o->dim, .bias = true }, &r->embed);
    tn_assign(r->embed.b, tn_full(ctx, 1, &o->dim, 1));     /* an empty patch is a vector of ones, too */
    if (layers > 0) {
        tn_deep_init(params, "deep", &(tn_deep_desc){ .out = CLASSES, .layers = layers, .bond = o->bond, .dim = o->dim,
            .map = TN_LOCAL_GIVEN, .boundary = TN_BOUNDARY_VECTORS, .sites = PATCHES, .head_bond = o->head_bond }, &r->deep);
        check(ctx);
        for (int i = 0; i < layers; i++) tn_write(r->deep.layer[i].r, TN_F64, &(double){RESIDUAL}, 1);
        r->mps = r->deep.mps;
    } else
        tn_mps_init(params, "mps", &(tn_mps_desc){ .sites = PATCHES, .bond = o->head_bond, .out = CLASSES,
            .map = TN_LOCAL_GIVEN, .dim = o->dim }, &r->mps);
    check(ctx);
    scale_state(ctx, r, set);
}

/* Returns the accuracy on the test set; *seconds are those of the training. */
static double learn(const options *o, int64_t layers, double *seconds)
{
    char    why[TN_WHY];
    tn_ctx *ctx;
    reader  model;
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)o->seed, .threads = (int)o->threads }, &ctx, why) != TN_OK) stop(why);
    image_set  set = load_set(ctx, o->data, "train");
    image_set  test = load_set(ctx, o->data, "t10k");
    tn_params *params = tn_params_create(ctx);
    reader_init(ctx, params, o, layers, &set, &model);
    printf("%lld layers and the state: %lld parameters\n", (long long)layers, (long long)tn_params_elements(params));
    double begin = now();
    double accuracy = train(ctx, &(training){ .params = params, .logits = logits_of_reader, .model = &model, .set = &set,
                                       .test = &test, .epochs = o->epochs, .batch = o->batch, .seed = (uint64_t)o->seed,
                                       .lr = o->lr, .weight_decay = o->weight_decay });
    *seconds = now() - begin;
    free_set(&set);
    free_set(&test);
    tn_ctx_destroy(ctx);
    return accuracy;
}

int main(int argc, char **argv)
{
    options    o = {"fashion", 6, 100, 2, 3, 10, 6, 1, 0, 3e-3, 0, false};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        {"--layers", FLAG_COUNT, &o.layers, 1, 20, NULL},
        {"--bond", FLAG_COUNT, &o.bond, 1, 200, NULL},
        {"--head-bond", FLAG_COUNT, &o.head_bond, 1, 200, NULL},
        {"--dim", FLAG_COUNT, &o.dim, 1, 200, NULL},
        {"--alone", FLAG_SWITCH, &o.alone, 0, 0, "without the network that has layers"},
        SEED_FLAG(&o),
        {0}
    };
    double     accuracy = 0, seconds = 0, seconds_alone;
    read_flags(argc, argv, flags);
    double alone = learn(&o, 0, &seconds_alone);
    if (!o.alone) accuracy = learn(&o, o.layers, &seconds);
    printf("test_accuracy_alone: %.4f\n", alone);
    printf("seconds_alone: %.1f\n", seconds_alone);
    if (o.alone) return 0;
    printf("test_accuracy: %.4f\n", accuracy);
    printf("seconds: %.1f\n", seconds);
    return 0;
}
