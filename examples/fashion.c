/* fashion.c - train a bilinear network on images, fold it into one tensor, look at what it learnt

   embed 784 -> 256, bilinear 256 -> 256, unembed 256 -> 10: logits = U ((W E x) (x) (V E x)). Folded it is one
   third-order tensor in pixel space: a class's logit is x^T Q x, and the eigenvectors of Q are pictures.

   make demo      or   sh examples/get_data.sh fashion
                       cc -O2 -fopenmp -I. examples/fashion.c -o fashion -lm && ./fashion
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --noise X   --width N   --seed N
   --threads N   --out FOLDER */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#ifdef _WIN32
#include <direct.h>
#include <io.h>
#define mkdir(path, mode) _mkdir(path)
#define isatty(file) _isatty(file)
#else
#include <unistd.h>
#endif
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { CLASSES = 10, SIDE = 28, PIXELS = SIDE * SIDE, SHOWN = 3, TEST_BATCH = 1000, MAX_EPOCHS = 1000 };

static const char *const class_name[2][CLASSES] = {
    {"T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"},
    {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
};

typedef struct options {
    const char *data, *out;
    int64_t     epochs, batch, width, seed, threads;
    double      lr, weight_decay, noise;
} options;

typedef struct image_set {
    tn_tensor *images;              /* [count,784] in [0,1] */
    int32_t   *labels;              /* [count]              */
    int64_t    count;
} image_set;

typedef struct network {
    tn_params *params;
    tn_linear  embed, unembed;
    tn_mlp     bilinear;
    double     noise;
} network;

typedef struct history {            /* for the curves */
    double  loss[MAX_EPOCHS], accuracy[MAX_EPOCHS], epoch[MAX_EPOCHS];
    int64_t count;
} history;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop(const char *what)
{
    fprintf(stderr, "fashion: %s\n", what);
    exit(1);
}

/* The context keeps the first error; a program may look whenever it suits. */
static void check(tn_ctx *ctx)
{
    if (tn_ctx_status(ctx) != TN_OK) stop(tn_ctx_error(ctx));
}

/* ---- options -------------------------------------------------------------- */

static double number(const char *flag, const char *text)
{
    char  *end;
    double v = strtod(text, &end);
    if (end == text || *end != 0 || !(v >= 0 && v < 1e15)) {
        fprintf(stderr, "fashion: %s wants a number, not \"%s\"\n", flag, text);
        exit(2);
    }
    return v;
}

static options read_options(int argc, char **argv)
{
    options o = {"fashion", "out", 15, 128, 256, 1, 0, 2e-3, 0.05, 0.1};
    int     i;
    for (i = 1; i < argc; i += 2) {
        const char *flag = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(flag, "--data")) o.data = v;
        else if (!strcmp(flag, "--out")) o.out = v;
        else if (!strcmp(flag, "--epochs")) o.epochs = (int64_t)number(flag, v);
        else if (!strcmp(flag, "--batch")) o.batch = (int64_t)number(flag, v);
        else if (!strcmp(flag, "--width")) o.width = (int64_t)number(flag, v);
        else if (!strcmp(flag, "--seed")) o.seed = (int64_t)number(flag, v);
        else if (!strcmp(flag, "--threads")) o.threads = (int64_t)number(flag, v);
        else if (!strcmp(flag, "--lr")) o.lr = number(flag, v);
        else if (!strcmp(flag, "--weight-decay")) o.weight_decay = number(flag, v);
        else if (!strcmp(flag, "--noise")) o.noise = number(flag, v);
        else {
            fprintf(stderr, "usage: fashion [--data fashion|mnist] [--epochs N] [--batch N] [--lr X] [--weight-decay X]\n"
                            "               [--noise X] [--width N] [--seed N] [--threads N] [--out FOLDER]\n");
            exit(strcmp(flag, "--help") ? 2 : 0);
        }
    }
    if (strcmp(o.data, "fashion") && strcmp(o.data, "mnist")) stop("--data is fashion or mnist");
    if (o.threads > 1024) stop("--threads must be at most 1024");
    if (o.batch < 1 || o.width < 1 || o.epochs < 1 || o.epochs > MAX_EPOCHS) stop("--batch, --width and --epochs must be at least 1, --epochs at most 1000");
    return o;
}

/* ---- data ------------------------------------------------------------------ */

static tn_tensor *load(tn_ctx *ctx, const options *o, const char *file, double scale)
{
    char       path[512];
    FILE      *f;
    tn_tensor *t;
    snprintf(path, sizeof path, "data/%s/%s", o->data, file);
    f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "fashion: %s is missing; this gets it: sh examples/get_data.sh %s\n", path, o->data);
        exit(1);
    }
    fclose(f);
    t = tn_idx_load(ctx, path, scale);
    check(ctx);
    return t;
}

static image_set load_set(tn_ctx *ctx, const options *o, const char *prefix)
{
    char       file[64];
    image_set  s;
    tn_tensor *images, *labels;
    int64_t    i;
    snprintf(file, sizeof file, "%s-images-idx3-ubyte", prefix);
    images = load(ctx, o, file, 1 / 255.0);
    snprintf(file, sizeof file, "%s-labels-idx1-ubyte", prefix);
    labels = load(ctx, o, file, 0);
    s.count = images->shape[0];
    if (images->rank != 3 || images->shape[1] != SIDE || images->shape[2] != SIDE || labels->rank != 1 || labels->shape[0] != s.count || s.count < 1)
        stop("the data files do not fit each other: images must be [n,28,28], labels [n]");
    s.images = tn_tensor_keep(tn_reshape_2d(images, s.count, PIXELS));
    s.labels = malloc(sizeof *s.labels * (size_t)s.count);
    if (!s.labels) stop("no memory for the labels");
    tn_read(labels, TN_I32, s.labels, s.count);
    tn_tensor_destroy(images);
    tn_tensor_destroy(labels);
    check(ctx);
    for (i = 0; i < s.count; i++)
        if (s.labels[i] < 0 || s.labels[i] >= CLASSES) stop("a label is not one of 0 to 9");
    return s;
}

/* ---- the network -------------------------------------------------------------- */

static void network_init(tn_ctx *ctx, network *net, const options *o)
{
    net->params = tn_params_create(ctx);
    net->noise = o->noise;
    tn_linear_init(net->params, "embed", &net->embed, &(tn_linear_desc){ .in = PIXELS, .out = o->width, .no_bias = true });
    tn_mlp_init(net->params, "bilinear", &net->bilinear, &(tn_mlp_desc){ .in = o->width, .hidden = o->width, .no_projection = true });
    tn_linear_init(net->params, "unembed", &net->unembed, &(tn_linear_desc){ .in = o->width, .out = CLASSES, .no_bias = true });
    check(ctx);
}

static tn_tensor *network_forward(tn_ctx *ctx, const network *net, tn_tensor *x)        /* [n,784] -> [n,10] */
{
    x = tn_noise(ctx, x, net->noise);
    x = tn_linear_forward(ctx, &net->embed, x);
    x = tn_mlp_forward(ctx, &net->bilinear, x);
    return tn_linear_forward(ctx, &net->unembed, x);
}

/* ---- training ----------------------------------------------------------------- */

/* Fisher-Yates with a generator of its own, so that the order does not depend on the library's random calls. */
static void shuffle(int32_t *order, int64_t n, uint64_t *state)
{
    int64_t i;
    for (i = n - 1; i > 0; i--) {
        int64_t j;
        int32_t swap = order[i];
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        j = (int64_t)((*state >> 33) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = swap;
    }
}

static void progress(bool bar, int64_t step, int64_t steps, double loss, double accuracy, double rate, double left)
{
    int i, done = (int)(24 * step / steps);
    if (!bar) return;
    printf("\r[");
    for (i = 0; i < 24; i++) putchar(i < done ? '#' : '.');
    printf("] loss %.3f  acc %.3f  %5.0fk img/s  %3.0f s left ", loss, accuracy, rate / 1000, left);
    fflush(stdout);
}

static double test_accuracy(tn_ctx *ctx, const network *net, const image_set *test);

static void train(tn_ctx *ctx, network *net, const image_set *set, const image_set *test, const options *o, history *h)
{
    int64_t   per_epoch = (set->count + o->batch - 1) / o->batch, steps = per_epoch * o->epochs, step = 0, epoch, i;
    int32_t  *order = malloc(sizeof *order * (size_t)set->count), *labels = malloc(sizeof *labels * (size_t)o->batch);
    uint64_t  state = (uint64_t)o->seed;
    bool      bar = isatty(1) != 0;
    double    start = now(), shown = 0;
    tn_optim *optim = tn_optim_create(net->params, &(tn_optim_desc){
        .lr = o->lr, .weight_decay = o->weight_decay,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .warmup = per_epoch / 4, .total = steps } });
    check(ctx);
    if (!order || !labels) stop("no memory for the order of the images");
    for (i = 0; i < set->count; i++) order[i] = (int32_t)i;
    for (epoch = 0; epoch < o->epochs; epoch++) {
        double  loss_sum = 0, right = 0;
        int64_t first, seen = 0;
        shuffle(order, set->count, &state);
        for (first = 0; first < set->count; first += o->batch, step++) {
            int64_t    n = first + o->batch < set->count ? o->batch : set->count - first;
            tn_tensor *ids, *y, *logits, *loss;
            tn_ctx_reset(ctx);
            for (i = 0; i < n; i++) labels[i] = set->labels[order[first + i]];
            ids = tn_tensor_1d(ctx, TN_I32, n);
            y = tn_tensor_1d(ctx, TN_I32, n);
            tn_write(ids, TN_I32, order + first, n);
            tn_write(y, TN_I32, labels, n);
            tn_record(ctx);
            logits = network_forward(ctx, net, tn_embed(ctx, set->images, ids));
            loss = tn_cross_entropy(ctx, logits, y);
            if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) {
                char path[512];                       /* the parameters are still those of the step before */
                fprintf(stderr, "\nfashion: %s\n", tn_ctx_error(ctx));
                tn_ctx_clear_error(ctx);
                snprintf(path, sizeof path, "%s/model.safetensors", o->out);
                if (tn_params_save(net->params, path) == TN_OK) fprintf(stderr, "fashion: the last good state is in %s\n", path);
                exit(1);
            }
            loss_sum += tn_item(loss) * (double)n;
            right += tn_item(tn_accuracy(ctx, logits, y)) * (double)n;
            seen += n;
            if (now() - shown > 0.1) {
                double rate = (double)(step * o->batch) / (now() - start);
                shown = now();
                progress(bar, step, steps, loss_sum / (double)seen, right / (double)seen, rate, (double)((steps - step) * o->batch) / (rate + 1));
            }
        }
        h->epoch[epoch] = (double)(epoch + 1);
        h->loss[epoch] = loss_sum / (double)set->count;
        h->accuracy[epoch] = test_accuracy(ctx, net, test);
        h->count = epoch + 1;
        printf("%sepoch %2lld  loss %.4f  train %.4f  test %.4f  %6.1f s%s\n", bar ? "\r" : "", (long long)epoch + 1, h->loss[epoch],
               right / (double)set->count, h->accuracy[epoch], now() - start, bar ? "                    " : "");
    }
    tn_optim_destroy(optim);
    free(order);
    free(labels);
}

/* ---- the test set, through the network or through an operator ------------------- */

typedef tn_tensor *(*logits_fn)(tn_ctx *ctx, const void *model, tn_tensor *x);

static tn_tensor *logits_of_network(tn_ctx *ctx, const void *model, tn_tensor *x) { return network_forward(ctx, (const network *)model, x); }
static tn_tensor *logits_of_operator(tn_ctx *ctx, const void *model, tn_tensor *x) { return tn_cp_apply(ctx, (const tn_cp *)model, x); }

/* logits [count,10] of all images; returns the accuracy */
static double run(tn_ctx *ctx, logits_fn fn, const void *model, const image_set *set, double *logits)
{
    int64_t first, right = 0, i, c;
    for (first = 0; first < set->count; first += TEST_BATCH) {
        int64_t n = first + TEST_BATCH < set->count ? TEST_BATCH : set->count - first;
        tn_ctx_reset(ctx);
        tn_read(fn(ctx, model, tn_slice(set->images, 0, first, first + n)), TN_F64, logits + first * CLASSES, n * CLASSES);
        check(ctx);
    }
    for (i = 0; i < set->count; i++) {
        int64_t best = 0;
        for (c = 1; c < CLASSES; c++) if (logits[i * CLASSES + c] > logits[i * CLASSES + best]) best = c;
        right += best == set->labels[i];
    }
    return (double)right / (double)set->count;
}

static double *logits_room(const image_set *set)
{
    double *logits = malloc(sizeof *logits * (size_t)(set->count * CLASSES));
    if (!logits) stop("no memory for the logits");
    return logits;
}

static double accuracy_of(tn_ctx *ctx, logits_fn fn, const void *model, const image_set *set)
{
    double *logits = logits_room(set), accuracy = run(ctx, fn, model, set, logits);
    free(logits);
    return accuracy;
}

static double test_accuracy(tn_ctx *ctx, const network *net, const image_set *test) { return accuracy_of(ctx, logits_of_network, net, test); }

/* The largest of max|difference| / max|logit| per image. */
static double fold_error(tn_ctx *ctx, const network *net, const tn_cp *cp, const image_set *test)
{
    double *a = logits_room(test), *b = logits_room(test), worst = 0;
    int64_t i, c;
    run(ctx, logits_of_network, net, test, a);
    run(ctx, logits_of_operator, cp, test, b);
    for (i = 0; i < test->count; i++) {
        double difference = 0, size = 0;
        for (c = 0; c < CLASSES; c++) {
            double d = fabs(a[i * CLASSES + c] - b[i * CLASSES + c]), l = fabs(a[i * CLASSES + c]);
            if (!(d <= difference)) difference = d;       /* NaN stays, and shows */
            if (!(l <= size)) size = l;
        }
        if (!(difference <= worst * size)) worst = difference / size;
    }
    free(a);
    free(b);
    return worst;
}

/* ---- pictures ------------------------------------------------------------------- */

static void save(tn_ctx *ctx, tn_image *image, const options *o, const char *file)
{
    char path[512];
    check(ctx);
    snprintf(path, sizeof path, "%s/%s.png", o->out, file);
    if (tn_image_save_png(image, path) != TN_OK) {       /* built without stb_image_write, or the disk is full */
        fprintf(stderr, "fashion: %s\n", tn_ctx_error(ctx));
        tn_ctx_clear_error(ctx);
    } else printf("  %s\n", path);
    tn_image_destroy(image);
}

/* A row per class: its SHOWN largest positive eigenvectors, then its SHOWN largest negative ones. */
static void draw_eigenvectors(tn_ctx *ctx, const tn_eigen *e, const options *o, const char *const *names)
{
    static const char *const heads[2 * SHOWN] = {"+1", "+2", "+3", "-1", "-2", "-3"};
    static char caption[CLASSES * 2 * SHOWN][16];
    const char *captions[CLASSES * 2 * SHOWN];
    double *values = malloc(sizeof *values * (size_t)(CLASSES * e->count)), *vectors = malloc(sizeof *vectors * (size_t)(CLASSES * e->count * PIXELS));
    double *tiles = calloc((size_t)(CLASSES * 2 * SHOWN * PIXELS), sizeof *tiles);
    int64_t c, i;
    if (!values || !vectors || !tiles) stop("no memory for the eigenvectors");
    tn_read(e->values, TN_F64, values, CLASSES * e->count);
    tn_read(e->vectors, TN_F64, vectors, CLASSES * e->count * PIXELS);
    for (c = 0; c < CLASSES; c++) {
        int64_t got[2] = {0, 0};
        for (i = 0; i < e->count; i++) {
            double  v = values[c * e->count + i];
            int64_t negative = v < 0, tile;
            if (got[negative] == SHOWN) continue;
            tile = c * 2 * SHOWN + negative * SHOWN + got[negative]++;
            memcpy(tiles + tile * PIXELS, vectors + (c * e->count + i) * PIXELS, sizeof *tiles * PIXELS);
            snprintf(caption[tile], sizeof caption[tile], "%+.2f", v);
        }
    }
    for (i = 0; i < CLASSES * 2 * SHOWN; i++) captions[i] = caption[i];
    save(ctx, tn_image_tiles(ctx, tiles, CLASSES * 2 * SHOWN, SIDE, SIDE, &(tn_tiles_desc){
        .rows = CLASSES, .columns = 2 * SHOWN, .captions = captions, .row_names = names, .column_names = heads, .own_scales = true,
        .title = "Eigenvectors of each class in pixel space", .scale = 2 }), o, "eigenvectors");
    free(values);
    free(vectors);
    free(tiles);
}

static int descending(const void *a, const void *b) { return (*(const double *)a < *(const double *)b) - (*(const double *)a > *(const double *)b); }

/* A few border pixels that are hardly ever lit have huge entries: the colours end at the 99.5th percentile. */
static void draw_interaction(tn_ctx *ctx, const tn_cp *cp, int64_t c, const options *o, const char *const *names)
{
    char       title[64];
    tn_tensor *q = tn_cp_interaction_of(cp, c);
    int64_t    i, n = PIXELS * PIXELS;
    double    *v = malloc(sizeof *v * (size_t)n), *sorted = malloc(sizeof *sorted * (size_t)n);
    if (!v || !sorted) stop("no memory for the interaction matrix");
    check(ctx);
    tn_read(q, TN_F64, v, n);
    for (i = 0; i < n; i++) sorted[i] = fabs(v[i]);
    qsort(sorted, (size_t)n, sizeof *sorted, descending);
    snprintf(title, sizeof title, "Interaction matrix of class \"%s\"", names[c]);
    save(ctx, tn_image_matrix(ctx, v, PIXELS, PIXELS, &(tn_matrix_desc){ .title = title, .x_title = "pixel", .y_title = "pixel",
        .caption = "colours end at the 99.5th percentile", .size = 560, .high = sorted[n / 200], .low = -sorted[n / 200], .scale = 2 }), o, "interaction");
    free(v);
    free(sorted);
    tn_tensor_destroy(q);
}

static void draw_spectra(tn_ctx *ctx, const tn_eigen *e, const options *o, const char *const *names)
{
    double   *v = malloc(sizeof *v * (size_t)(CLASSES * e->count));
    tn_series series[4];
    int64_t   i, shown = e->count < 40 ? e->count : 40;
    static const int classes[4] = {0, 1, 5, 7};
    if (!v) stop("no memory for the spectra");
    tn_read(e->values, TN_F64, v, CLASSES * e->count);
    for (i = 0; i < 4; i++) {                             /* the `shown` of largest magnitude, in falling order */
        double *own = v + classes[i] * e->count;
        qsort(own, (size_t)shown, sizeof *own, descending);
        series[i] = (tn_series){ .name = names[classes[i]], .y = own, .count = shown };
    }
    save(ctx, tn_image_plot(ctx, series, 4, &(tn_plot_desc){ .title = "Spectra in pixel space: the largest |eigenvalues| of four classes",
        .x_title = "rank", .y_title = "eigenvalue", .width = 680, .scale = 2 }), o, "spectra");
    free(v);
}

static void draw_curves(tn_ctx *ctx, const history *h, const options *o)
{
    tn_series loss = { .name = "training loss", .x = h->epoch, .y = h->loss, .count = h->count };
    tn_series accuracy = { .name = "test accuracy", .x = h->epoch, .y = h->accuracy, .count = h->count };
    save(ctx, tn_image_plot(ctx, &loss, 1, &(tn_plot_desc){ .title = "Training loss", .x_title = "epoch", .y_title = "cross-entropy", .scale = 2 }), o, "loss");
    save(ctx, tn_image_plot(ctx, &accuracy, 1, &(tn_plot_desc){ .title = "Test accuracy", .x_title = "epoch", .y_title = "share right", .scale = 2 }), o, "accuracy");
}

/* ---- all together ------------------------------------------------------------------ */

int main(int argc, char **argv)
{
    static history h;
    static const int64_t ks[] = {1, 2, 3, 5, 10, 20};
    options   o = read_options(argc, argv);
    tn_desc   desc = { .seed = (uint64_t)o.seed, .threads = (int)o.threads };
    const char *const *names = class_name[!strcmp(o.data, "mnist")];
    char      why[256], path[512];
    double    start = now(), trained, folded, eigen, accuracy;
    tn_ctx   *ctx;
    network   net;
    image_set training, test;
    tn_cp    *cp;
    tn_eigen  e;
    size_t    i;

    if (mkdir(o.out, 0777) != 0 && errno != EEXIST) stop("cannot make the output folder");
    if (tn_ctx_create(&ctx, &desc, why) != TN_OK) stop(why);
    training = load_set(ctx, &o, "train");
    test = load_set(ctx, &o, "t10k");
    network_init(ctx, &net, &o);
    printf("%s: %lld images, %lld parameters, %s (%s), %d thread%s\n", o.data, (long long)training.count, (long long)tn_params_elements(net.params),
           tn_ctx_backend_name(ctx), tn_ctx_simd_name(ctx), tn_ctx_threads(ctx), tn_ctx_threads(ctx) == 1 ? "" : "s");
    train(ctx, &net, &training, &test, &o, &h);
    accuracy = h.accuracy[h.count - 1];
    trained = now();
    snprintf(path, sizeof path, "%s/model.safetensors", o.out);
    tn_params_save(net.params, path);
    check(ctx);

    cp = tn_cp_from_stack(ctx, &net.embed, &net.bilinear, &net.unembed);       /* three layers, one tensor */
    check(ctx);
    printf("test_accuracy: %.4f\n", accuracy);
    printf("fold_error: %.2e\n", fold_error(ctx, &net, cp, &test));
    folded = now();

    if (tn_cp_eigen_all(cp, 0, &e) != TN_OK) check(ctx);
    eigen = now();
    for (i = 0; i < sizeof ks / sizeof *ks && ks[i] <= e.count; i++) {
        tn_cp *cut = tn_cp_from_eigen(ctx, &e, ks[i], false);
        check(ctx);
        printf("accuracy_k%lld: %.4f\n", (long long)ks[i], accuracy_of(ctx, logits_of_operator, cut, &test));
        tn_cp_destroy(cut);
    }
    {
        tn_cp *all = tn_cp_from_eigen(ctx, &e, e.count, false);
        check(ctx);
        printf("accuracy_all: %.4f\n", accuracy_of(ctx, logits_of_operator, all, &test));
        tn_cp_destroy(all);
    }
    {
        double  *v = malloc(sizeof *v * (size_t)(CLASSES * e.count)), rank = 0;
        int64_t  c;
        if (!v) stop("no memory for the eigenvalues");
        tn_read(e.values, TN_F64, v, CLASSES * e.count);
        for (c = 0; c < CLASSES; c++) rank += tn_effective_rank(v + c * e.count, e.count) / CLASSES;
        printf("effective_rank_pixels: %.1f\n", rank);
        free(v);
    }
    printf("pictures:\n");
    draw_eigenvectors(ctx, &e, &o, names);
    draw_interaction(ctx, cp, 7, &o, names);
    draw_spectra(ctx, &e, &o, names);
    draw_curves(ctx, &h, &o);
    printf("  %s\n", path);
    printf("seconds_training: %.1f\n", trained - start);
    printf("seconds_folding: %.1f\n", folded - trained);
    printf("seconds_eigen: %.1f\n", eigen - folded);
    printf("seconds: %.1f\n", now() - start);
    tn_eigen_destroy(&e);
    tn_ctx_destroy(ctx);
    free(training.labels);
    free(test.labels);
    return 0;
}
