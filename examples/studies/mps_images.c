/* mps_images.c - a matrix product state of 784 sites reads images of clothes, pixel by pixel

   Each pixel x is the vector [1-x, x], each site a core [D,2,D], and the label core stands in the middle of the path: logits_c
   = l M_0 .. M_391 B_c M_392 .. M_783 r, one number per class, a product of 784 matrices. The path is the rows of the image
   from top to bottom, forward and backward in turn.
   How much the first k pixels have to do with the rest is the entropy of cut k: 0 for a product, ln D at most.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/mps_images.c -o mps_images -lm && ./mps_images
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --bond N   --noise X (of the cores)   --seed N
   --threads N   --out FOLDER (of the picture) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "mps_images"
#include "common.h"

typedef struct options {
    const char *data, *out;
    int64_t     epochs, batch, bond, seed, threads;
    double      lr, weight_decay, noise;
} options;

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", "", 6, 50, 10, 1, 0, 3e-4, 0, 0.01};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        {"--bond", FLAG_COUNT, &o.bond, 1, 200, NULL},
        NOISE_FLAG(&o),
        SEED_FLAG(&o),
        OUT_FLAG(&o),
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

static tn_tensor *logits_of_mps(tn_ctx *ctx, const void *model, tn_tensor *x)
{
    return tn_mps_forward(ctx, (const tn_mps *)model, x, NULL);
}

int main(int argc, char **argv)
{
    const options o = read_options(argc, argv);
    double        start = now(), accuracy;
    tn_ctx       *ctx;
    image_set     set, test;
    tn_params    *params;
    tn_mps        mps;
    char          why[TN_WHY];
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)o.seed, .threads = (int)o.threads }, &ctx, why) != TN_OK) stop(why);
    set = load_set(ctx, o.data, "train");
    test = load_set(ctx, o.data, "t10k");
    params = tn_params_create(ctx);
    tn_mps_init(params, "mps", &(tn_mps_desc){ .sites = PIXELS, .bond = o.bond, .out = CLASSES, .std = o.noise }, &mps);
    check(ctx);
    printf("%lld parameters\n", (long long)tn_params_elements(params));
    accuracy = train(ctx, &(training){ .params = params, .logits = logits_of_mps, .model = &mps, .set = &set, .test = &test,
                                       .epochs = o.epochs, .batch = o.batch, .seed = (uint64_t)o.seed, .lr = o.lr,
                                       .weight_decay = o.weight_decay });
    printf("test_accuracy: %.4f\n", accuracy);
    printf("seconds: %.1f\n", now() - start);
    return 0;
}
