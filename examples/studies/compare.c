/* compare.c - do two networks that were trained from different seeds compute the same? Read from the weights alone

   Two bilinear networks, equal but for the seed of their weights and of the order of images. Their weights have nothing
   in common; folded into one tensor each they can be compared, class by class, by the cosine of interaction matrices:
       cos(Q_c, Q'_c') = <Q_c, Q'_c'> / (|Q_c| |Q'_c'|)              from the factors, no matrix is formed
   once in pixel space, where pixels that are never lit count as much as others although nothing was learnt about them,
   and once in the data metric, S^1/2 Q S^1/2 with S = E[x x^T], where each direction counts as much as the data use it.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/compare.c -o compare -lm && ./compare
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --noise X   --width N   --seed N
   --other-seed N   --threads N   --out FOLDER */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "compare"
#include "common.h"

typedef struct options {
    const char *data, *out;
    int64_t     epochs, batch, width, seed, other_seed, threads;
    double      lr, weight_decay, noise;
} options;

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", "out", 3, 128, 64, 1, 2, 0, 2e-3, 0.05, 0.1};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        NOISE_FLAG(&o),
        WIDTH_FLAG(&o),
        SEED_FLAG(&o),
        {"--other-seed", FLAG_COUNT, &o.other_seed, 0, 1e15, NULL},
        OUT_FLAG(&o),
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

/* Trained from `seed`, as one operator on pixels. `before`: the same before its first step. */
static tn_cp *trained(tn_ctx *ctx, const options *o, int64_t seed, const char *label, const image_set *set, const image_set *test, tn_cp **before, double *accuracy)
{
    network net;
    tn_ctx_seed(ctx, (uint64_t)seed);
    network_init(ctx, &net, o->width, o->noise);
    *before = tn_cp_from_stack(ctx, &net.embed, &net.bilinear, &net.unembed);
    *accuracy = train(ctx, &(training){ .params = net.params, .logits = logits_of_network, .model = &net, .set = set, .test = test,
        .epochs = o->epochs, .batch = o->batch, .seed = (uint64_t)seed, .lr = o->lr, .weight_decay = o->weight_decay, .label = label });
    tn_cp *cp = tn_cp_from_stack(ctx, &net.embed, &net.bilinear, &net.unembed);
    tn_params_destroy(net.params);
    check(ctx);
    return cp;
}

/* S = E[x x^T] over all images, [784,784] */
static tn_tensor *second_moment(tn_ctx *ctx, const image_set *set)
{
    int64_t    shape[2] = {PIXELS, PIXELS};
    tn_tensor *s = tn_full(ctx, 2, shape, 0);
    for (int64_t first = 0; first < set->count; first += TEST_BATCH) {
        int64_t    n = first + TEST_BATCH < set->count ? TEST_BATCH : set->count - first;
        tn_tensor *x = tn_slice(set->images, 0, first, first + n);
        tn_tensor *kept = tn_tensor_keep(tn_add(ctx, s,
                                                tn_scale(ctx, tn_matmul(ctx, tn_transpose(x, 0, 1), x), 1 / (double)set->count)));
        check(ctx);
        tn_ctx_reset(ctx);
        s = tn_copy(ctx, kept);
        tn_tensor_destroy(kept);
    }
    return s;
}

typedef struct likeness { double whole, own, others; int best; } likeness;

/* The matrix of cosines, drawn; its diagonal, the rest, and how many classes are most like themselves. */
static likeness compare(tn_ctx *ctx, const tn_cp *a, const tn_cp *b, const options *o, const char *const *names, const char *space, const char *file)
{
    tn_tensor *cosines = tn_cp_cosines(a, b);
    likeness   l = {0, 0, 0, 0};
    double     v[CLASSES * CLASSES];
    char       title[128], x_title[64], y_title[64];
    check(ctx);
    tn_read(cosines, TN_F64, v, CLASSES * CLASSES);
    tn_cp_cosine(a, b, &l.whole);
    check(ctx);
    for (int i = 0; i < CLASSES; i++) {
        int best = 0;
        for (int j = 0; j < CLASSES; j++) {
            if (v[i * CLASSES + j] > v[i * CLASSES + best]) best = j;
            if (i == j) l.own += v[i * CLASSES + j] / CLASSES;
            else l.others += v[i * CLASSES + j] / (CLASSES * (CLASSES - 1));
        }
        l.best += best == i;
    }
    if (file) {
        printf("\ncosines in %s\n%12s", space, "");
        for (int j = 0; j < CLASSES; j++) printf(" %6.6s", names[j]);
        for (int i = 0; i < CLASSES; i++) {
            printf("\n%12s", names[i]);
            for (int j = 0; j < CLASSES; j++) printf(" %6.2f", v[i * CLASSES + j]);
        }
        printf("\n");
        for (int i = 0; i < CLASSES * CLASSES; i++) v[i] = floor(v[i] * 100 + 0.5) / 100;    /* two digits fit a cell */
        snprintf(title, sizeof title, "Cosines of interaction matrices in %s", space);
        snprintf(x_title, sizeof x_title, "network of seed %lld", (long long)o->other_seed);
        snprintf(y_title, sizeof y_title, "network of seed %lld", (long long)o->seed);
        save_image(ctx, tn_image_matrix(ctx, v, CLASSES, CLASSES, &(tn_image_matrix_desc){ .title = title, .x_title = x_title, .y_title = y_title,
            .x_names = names, .y_names = names, .low = -1, .high = 1, .cell = 40, .numbers = true, .scale = 2 }), o->out, file);
    }
    tn_tensor_destroy(cosines);
    return l;
}

int main(int argc, char **argv)
{
    options o = read_options(argc, argv);
    const char *const *names = names_of(o.data);
    tn_desc desc = { .threads = (int)o.threads };
    char    why[TN_WHY];
    double  start = now(), accuracy[2];
    tn_ctx *ctx;
    tn_cp  *before[2], *cp[2], *metric[2];

    make_folder(o.out);
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    image_set set = load_set(ctx, o.data, "train");
    image_set test = load_set(ctx, o.data, "t10k");
    cp[0] = trained(ctx, &o, o.seed, "first   ", &set, &test, &before[0], &accuracy[0]);
    cp[1] = trained(ctx, &o, o.other_seed, "second  ", &set, &test, &before[1], &accuracy[1]);
    tn_ctx_reset(ctx);
    tn_tensor *moment = second_moment(ctx, &set);
    for (int i = 0; i < 2; i++) metric[i] = tn_cp_data_metric(cp[i], moment);
    check(ctx);

    likeness at_start = compare(ctx, before[0], before[1], &o, names, "pixel space, before training", NULL);
    likeness pixels = compare(ctx, cp[0], cp[1], &o, names, "pixel space", "cosines_pixels");
    likeness data = compare(ctx, metric[0], metric[1], &o, names, "the data metric", "cosines_data");
    printf("\ntest_accuracy: %.4f\n", accuracy[0]);
    printf("test_accuracy_other: %.4f\n", accuracy[1]);
    printf("cosine_before_training: %.4f\n", at_start.whole);
    printf("cosine_pixels: %.4f\n", pixels.whole);
    printf("cosine_pixels_same_class: %.4f\n", pixels.own);
    printf("cosine_pixels_other_classes: %.4f\n", pixels.others);
    printf("classes_recognised_pixels: %d\n", pixels.best);
    printf("cosine_data: %.4f\n", data.whole);
    printf("cosine_data_same_class: %.4f\n", data.own);
    printf("cosine_data_other_classes: %.4f\n", data.others);
    printf("classes_recognised_data: %d\n", data.best);
    printf("seconds: %.1f\n", now() - start);
    tn_ctx_destroy(ctx);
    free_set(&set);
    free_set(&test);
    return 0;
}
