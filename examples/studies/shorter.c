/* shorter.c - how many hidden units does a bilinear network need, for every image and for those of the test set?

   Folded, a network is one operator B with ten outputs. With fewer units it is B', and the logits of an image x differ by at most
   q |x|^2, where q bounds |B(u,u) - B'(u,u)| over |u| = 1 (tn_cp_ball_bound). An image whose largest logit leads by more than
   sqrt(2) q |x|^2 certainly keeps its answer. Three ways to leave out units: tn_cp_compress, which refits the others; pruning,
   which keeps the units with the longest weights as they are; and the largest eigenpairs of each class, each of which is a unit.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/shorter.c -o shorter -lm && ./shorter
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --noise X   --width N   --seed N   --threads N
   --weights FILE   a published network instead (published.c), on first3_test_images.npy beside it: without its linear path */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "shorter"
#include "common.h"

typedef struct options {
    const char *data, *weights;
    int64_t     epochs, batch, width, seed, threads;
    double      lr, weight_decay, noise;
} options;

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", NULL, 5, 128, 128, 1, 0, 2e-3, 0.05, 0.1};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        NOISE_FLAG(&o),
        WIDTH_FLAG(&o),
        SEED_FLAG(&o),
        {"--weights", FLAG_TEXT, &o.weights, 0, 0, NULL},
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

/* The published network's quadratic part, and its images. */
static tn_cp *published(tn_ctx *ctx, const char *path, image_set *set)
{
    char        images[1024];
    const char *slash = strrchr(path, '/');
    network     net;
    network_read(ctx, &net, path);
    tn_tensor *e = net.embed.w, *rows[2];
    for (int k = 0; k < 2; k++) rows[k] = tn_matmul(ctx, tn_mlp_encoder(&net.bilinear, k), e);
    tn_cp     *cp = tn_cp_create(ctx, 2, net.unembed.w, rows, TN_CP_INPUT_PLAIN);
    snprintf(images, sizeof images, "%.*sfirst3_test_images.npy", slash ? (int)(slash + 1 - path) : 0, path);
    tn_tensor *bytes = tn_npy_load(ctx, images);
    check(ctx);
    set->count = bytes->shape[0];
    set->images = tn_tensor_keep(tn_scale(ctx, tn_cast(ctx, tn_reshape_2d(bytes, set->count, PIXELS), TN_REAL), 1 / 255.0));
    set->labels = zeros(set->count, sizeof *set->labels);
    check(ctx);
    return cp;
}

/* B' - B, as one operator. */
static tn_cp *difference(tn_ctx *ctx, const tn_cp *a, const tn_cp *b)
{
    tn_cp *cp = tn_cp_mean(2, (const tn_cp *const[]){b, a}, (const double[]){1, -1});
    check(ctx);
    return cp;
}

static double lead_of(const double *logits, int64_t *best)
{
    double most = -HUGE_VAL, next = -HUGE_VAL;
    for (int64_t c = 0; c < CLASSES; c++) {
        if (logits[c] > most) {
            next = most;
            most = logits[c];
            *best = c;
        } else if (logits[c] > next) next = logits[c];
    }
    return most - next;
}

/* A row of the table: what the operator with fewer units does to the images, beside its bound. */
static void report(tn_ctx *ctx, const char *way, const tn_cp *whole, const tn_cp *cp, double bound, double reached,
                   const image_set *set)
{
    double *a = doubles(set->count * CLASSES), *b = doubles(set->count * CLASSES), *x = doubles(set->count * PIXELS);
    double  most = 0, mean = 0, allowed = 0;
    int64_t same = 0, certain = 0;
    run(ctx, logits_of_operator, whole, set, a);
    const double accuracy = run(ctx, logits_of_operator, cp, set, b);
    tn_read(set->images, TN_F64, x, set->count * PIXELS);
    for (int64_t i = 0; i < set->count; i++) {
        double  square = 0, change = 0;
        int64_t was = 0, is = 0;
        for (int64_t k = 0; k < PIXELS; k++) square += x[i * PIXELS + k] * x[i * PIXELS + k];
        for (int64_t c = 0; c < CLASSES; c++) change += pow(a[i * CLASSES + c] - b[i * CLASSES + c], 2);
        lead_of(a + i * CLASSES, &was);
        const double lead = lead_of(b + i * CLASSES, &is);
        same += was == is;
        certain += lead > sqrt(2) * bound * square;
        if (lead > sqrt(2) * bound * square && was != is) stop("an answer changed that certainly does not");
        if (sqrt(change) > bound * square * (1 + 1e-5)) stop("an image changed more than its bound");
        mean += sqrt(change) / (double)set->count;
        allowed += bound * square / (double)set->count;
        if (sqrt(change) / square > most) most = sqrt(change) / square;
    }
    printf("%-9s %6lld %11.4e %11.4e %11.4e %10.4g %10.4g %8.4f %8.4f %8.4f\n", way, (long long)cp->terms, bound, reached, most,
           mean, allowed, (double)same / (double)set->count, (double)certain / (double)set->count, accuracy);
    free(a);
    free(b);
    free(x);
    fflush(stdout);
}

static void report_compressed(tn_ctx *ctx, const tn_cp *cp, int64_t units, bool plain, const image_set *set)
{
    tn_compression   c;
    tn_compress_desc d = { .radius = 1, .terms = units, .plain = plain };
    if (tn_cp_compress(cp, &d, &c) != TN_OK) check(ctx);
    report(ctx, plain ? "pruned" : "refitted", cp, c.cp, c.change.bound, c.change.reached, set);
    tn_compression_destroy(&c);
}

static void report_eigenpairs(tn_ctx *ctx, const tn_cp *cp, int64_t pairs, const image_set *set)
{
    tn_ball_bound b;
    tn_cp        *few = tn_cp_truncate(cp, pairs), *apart = few ? difference(ctx, cp, few) : NULL;
    check(ctx);
    if (tn_cp_ball_bound(apart, 1, &b) != TN_OK) check(ctx);
    report(ctx, "eigenpairs", cp, few, b.bound, b.reached, set);
    tn_ball_bound_destroy(&b);
    tn_cp_destroy(apart);
    tn_cp_destroy(few);
}

int main(int argc, char **argv)
{
    static const int64_t shares[] = {31, 30, 28, 24, 16, 8};        /* of the units, times 32 */
    options   o = read_options(argc, argv);
    tn_desc   desc = { .seed = (uint64_t)o.seed, .threads = (int)o.threads };
    char      why[TN_WHY];
    network   net;
    image_set test;
    tn_ctx   *ctx;
    tn_cp    *cp;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    if (o.weights) cp = published(ctx, o.weights, &test);
    else {
        image_set set = load_set(ctx, o.data, "train");
        test = load_set(ctx, o.data, "t10k");
        network_init(ctx, &net, o.width, o.noise);
        train(ctx, &(training){ .params = net.params, .logits = logits_of_network, .model = &net, .set = &set, .test = &test,
            .epochs = o.epochs, .batch = o.batch, .seed = (uint64_t)o.seed, .lr = o.lr, .weight_decay = o.weight_decay,
            .brief = true });
        cp = tn_cp_from_stack(ctx, &net.embed, &net.bilinear, &net.unembed);
        free_set(&set);
    }
    check(ctx);
    printf("%-9s %6s %11s %11s %11s %10s %10s %8s %8s %8s\n", "way", "units", "q", "found", "in images", "mean", "mean bound",
           "same", "certain", "accuracy");
    report_compressed(ctx, cp, cp->terms, false, &test);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        const int64_t units = cp->terms * shares[i] / 32;
        if (units < 1) continue;
        report_compressed(ctx, cp, units, false, &test);
        report_compressed(ctx, cp, units, true, &test);
        if (units >= CLASSES) report_eigenpairs(ctx, cp, units / CLASSES, &test);
    }
    free_set(&test);
    tn_ctx_destroy(ctx);
    return 0;
}
