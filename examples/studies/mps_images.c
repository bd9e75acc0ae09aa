/* mps_images.c - a matrix product state of 784 sites reads images of clothes, pixel by pixel

   A pixel x is the vector [1-x, x], its site a core [D,2,D], and the label core stands in the middle of the path:
   logits_c = l M_0 .. M_391 B_c M_392 .. M_783 r, one number per class from a product of 784 matrices. The path goes through
   the rows from top to bottom, by default in turn from the left and from the right, so that neighbours on it are neighbours
   in the image.
   What the first k pixels of the path and the others have to do with each other is limited by the entropy of cut k, at most
   ln D. The entropies are those of the trained tensor, whose sites are then taken as vectors of two independent numbers.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/mps_images.c -o mps_images -lm && ./mps_images
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --bond N   --noise X (of the first cores)
   --path snake|rows   --seed N   --threads N   --out FOLDER (of the pictures) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "mps_images"
#include "common.h"

typedef struct options {
    const char *data, *out, *path;
    int64_t     epochs, batch, bond, seed, threads;
    double      lr, weight_decay, noise;
} options;

typedef struct reader {
    tn_mps     mps;
    tn_tensor *path;                /* I32 [784]: the pixel of each site */
} reader;

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", "out/mps_images", "snake", 12, 100, 10, 1, 0, 3e-4, 0, 0.003};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        {"--bond", FLAG_COUNT, &o.bond, 1, 200, NULL},
        NOISE_FLAG(&o),
        {"--path", FLAG_CHOICE, &o.path, 0, 0, "snake|rows"},
        SEED_FLAG(&o),
        OUT_FLAG(&o),
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

static tn_tensor *logits_of_reader(tn_ctx *ctx, const void *model, tn_tensor *x)
{
    const reader *r = (const reader *)model;
    return tn_mps_forward(ctx, &r->mps, tn_gather(ctx, x, 1, r->path), NULL);
}

static void reader_init(tn_ctx *ctx, tn_params *params, const options *o, reader *r)
{
    int32_t pixel[PIXELS];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            pixel[i * SIDE + j] = i * SIDE + (i % 2 == 1 && !strcmp(o->path, "snake") ? SIDE - 1 - j : j);
    r->path = tn_tensor_create(ctx, TN_I32, 1, &(int64_t){PIXELS});
    tn_write(r->path, TN_I32, pixel, PIXELS);
    tn_mps_init(params, "mps", &(tn_mps_desc){ .sites = PIXELS, .bond = o->bond, .out = CLASSES, .std = o->noise }, &r->mps);
    check(ctx);
}

/* The entropies of all cuts, as a curve and as a picture of the path; returns the largest. */
static double entropies_of(tn_ctx *ctx, const options *o, const reader *r)
{
    tn_tt     *tt = tn_tt_from_mps(ctx, &r->mps);
    tn_tensor *e = tn_tt_entropies(tt);
    double     entropy[PIXELS], cut[PIXELS], picture[PIXELS] = {0}, largest = 0;
    int32_t    pixel[PIXELS];
    check(ctx);
    tn_read(e, TN_F64, entropy, PIXELS);                     /* 785 axes: 784 cuts, two of them beside the label */
    tn_read(r->path, TN_I32, pixel, PIXELS);
    for (int k = 0; k < PIXELS; k++) {
        cut[k] = k + 1;
        picture[pixel[k]] = entropy[k];
        keep_largest(&largest, entropy[k]);
    }
    make_folder(o->out);
    save_image(ctx, tn_image_plot(ctx, (tn_image_series[]){
        { .name = "before the label", .x = cut, .y = entropy, .count = PIXELS / 2 },
        { .name = "after the label", .x = cut + PIXELS / 2, .y = entropy + PIXELS / 2, .count = PIXELS / 2 } }, 2,
        &(tn_image_plot_desc){ .title = "Entropy of each cut of the path", .x_title = "cut", .y_title = "nats", .scale = 2 }),
        o->out, "entropies");
    save_image(ctx, tn_image_matrix(ctx, picture, SIDE, SIDE, &(tn_image_matrix_desc){
        .title = "Entropy of the cut beside each pixel, in nats",
        .caption = "on the side of the label, which is between rows 13 and 14", .scale = 2,
        .low = 0, .high = largest > 0 ? largest : 1, .colours = TN_IMAGE_COLOURS_SEQUENTIAL }), o->out, "path");
    tn_tensor_destroy(e);
    tn_tt_destroy(tt);
    return largest;
}

int main(int argc, char **argv)
{
    const options o = read_options(argc, argv);
    double        start = now(), accuracy;
    tn_ctx       *ctx;
    reader        model;
    char          why[TN_WHY];
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)o.seed, .threads = (int)o.threads }, &ctx, why) != TN_OK) stop(why);
    image_set  set = load_set(ctx, o.data, "train");
    image_set  test = load_set(ctx, o.data, "t10k");
    tn_params *params = tn_params_create(ctx);
    reader_init(ctx, params, &o, &model);
    printf("%lld parameters\n", (long long)tn_params_elements(params));
    accuracy = train(ctx, &(training){ .params = params, .logits = logits_of_reader, .model = &model, .set = &set, .test = &test,
                                       .epochs = o.epochs, .batch = o.batch, .seed = (uint64_t)o.seed, .lr = o.lr,
                                       .weight_decay = o.weight_decay });
    double seconds = now() - start;
    double entropy = entropies_of(ctx, &o, &model);
    printf("largest_entropy: %.4f\n", entropy);
    printf("largest_possible: %.4f\n", log((double)o.bond));
    printf("test_accuracy: %.4f\n", accuracy);
    printf("seconds: %.1f\n", seconds);
    free_set(&set);
    free_set(&test);
    tn_ctx_destroy(ctx);
    return 0;
}
