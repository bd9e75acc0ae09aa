/* fashion.c - train a bilinear network on images, fold it into one tensor, look at what it learnt

   embed 784 -> 256, bilinear 256 -> 256, unembed 256 -> 10: logits = U ((W E x) (x) (V E x)). Folded it is one
   third-order tensor in pixel space: a class's logit is x^T Q x, and the eigenvectors of Q are pictures.

   make demo      or   sh examples/get_data.sh fashion
                       cc -O2 -fopenmp -I. examples/fashion.c -o fashion -lm && ./fashion
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --noise X   --width N   --seed N
   --threads N   --out FOLDER */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "fashion"
#include "studies/common.h"

enum { SHOWN = 3 };

typedef struct options {
    const char *data, *out;
    int64_t     epochs, batch, width, seed, threads;
    double      lr, weight_decay, noise;
} options;

/* ---- options -------------------------------------------------------------- */

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", "out", 15, 128, 256, 1, 0, 2e-3, 0.05, 0.1};
    const flag flags[] = {
        {"--data", FLAG_CHOICE, &o.data, 0, 0, "fashion|mnist"},
        {"--epochs", FLAG_COUNT, &o.epochs, 1, MAX_EPOCHS, NULL},
        {"--batch", FLAG_COUNT, &o.batch, 1, 1e6, NULL},
        {"--lr", FLAG_REAL, &o.lr, 0, 10, NULL},
        {"--weight-decay", FLAG_REAL, &o.weight_decay, 0, 10, NULL},
        {"--noise", FLAG_REAL, &o.noise, 0, 1000, NULL},
        {"--width", FLAG_COUNT, &o.width, 1, 1e5, NULL},
        {"--seed", FLAG_COUNT, &o.seed, 0, 1e15, NULL},
        {"--threads", FLAG_COUNT, &o.threads, 0, 1024, NULL},
        {"--out", FLAG_TEXT, &o.out, 0, 0, "a folder"},
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

/* ---- pictures ------------------------------------------------------------------- */

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
    save_image(ctx, tn_image_tiles(ctx, tiles, CLASSES * 2 * SHOWN, SIDE, SIDE, &(tn_tiles_desc){
        .rows = CLASSES, .columns = 2 * SHOWN, .captions = captions, .row_names = names, .column_names = heads, .own_scales = true,
        .title = "Eigenvectors of each class in pixel space", .scale = 2 }), o->out, "eigenvectors");
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
    save_image(ctx, tn_image_matrix(ctx, v, PIXELS, PIXELS, &(tn_matrix_desc){ .title = title, .x_title = "pixel", .y_title = "pixel",
        .caption = "colours end at the 99.5th percentile", .size = 560, .high = sorted[n / 200], .low = -sorted[n / 200], .scale = 2 }), o->out, "interaction");
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
    save_image(ctx, tn_image_plot(ctx, series, 4, &(tn_plot_desc){ .title = "Spectra in pixel space: the largest |eigenvalues| of four classes",
        .x_title = "rank", .y_title = "eigenvalue", .width = 680, .scale = 2 }), o->out, "spectra");
    free(v);
}

static void draw_curves(tn_ctx *ctx, const history *h, const options *o)
{
    tn_series loss = { .name = "training loss", .x = h->epoch, .y = h->loss, .count = h->count };
    tn_series accuracy = { .name = "test accuracy", .x = h->epoch, .y = h->accuracy, .count = h->count };
    save_image(ctx, tn_image_plot(ctx, &loss, 1, &(tn_plot_desc){ .title = "Training loss", .x_title = "epoch", .y_title = "cross-entropy", .scale = 2 }), o->out, "loss");
    save_image(ctx, tn_image_plot(ctx, &accuracy, 1, &(tn_plot_desc){ .title = "Test accuracy", .x_title = "epoch", .y_title = "share right", .scale = 2 }), o->out, "accuracy");
}

/* ---- all together ------------------------------------------------------------------ */

int main(int argc, char **argv)
{
    static history h;
    static const int64_t ks[] = {1, 2, 3, 5, 10, 20};
    options   o = read_options(argc, argv);
    tn_desc   desc = { .seed = (uint64_t)o.seed, .threads = (int)o.threads };
    const char *const *names = names_of(o.data);
    char      why[256], path[512];
    double    start = now(), trained, folded, eigen, accuracy;
    tn_ctx   *ctx;
    network   net;
    image_set set, test;
    tn_cp    *cp;
    tn_eigen  e;
    size_t    i;

    make_folder(o.out);
    if (tn_ctx_create(&ctx, &desc, why) != TN_OK) stop(why);
    set = load_set(ctx, o.data, "train");
    test = load_set(ctx, o.data, "t10k");
    network_init(ctx, &net, o.width, o.noise);
    printf("%s: %lld images, %lld parameters, %s (%s), %d thread%s\n", o.data, (long long)set.count, (long long)tn_params_elements(net.params),
           tn_ctx_backend_name(ctx), tn_ctx_simd_name(ctx), tn_ctx_threads(ctx), tn_ctx_threads(ctx) == 1 ? "" : "s");
    accuracy = train(ctx, &(training){ .params = net.params, .logits = logits_of_network, .model = &net, .set = &set, .test = &test,
        .epochs = o.epochs, .batch = o.batch, .seed = (uint64_t)o.seed, .lr = o.lr, .weight_decay = o.weight_decay, .rescue = o.out, .history = &h });
    trained = now();
    snprintf(path, sizeof path, "%s/model.safetensors", o.out);
    tn_params_save(net.params, path);
    check(ctx);

    cp = tn_cp_from_stack(ctx, &net.embed, &net.bilinear, &net.unembed);       /* three layers, one tensor */
    check(ctx);
    printf("test_accuracy: %.4f\n", accuracy);
    printf("fold_error: %.2e\n", largest_difference(ctx, logits_of_network, &net, logits_of_operator, cp, &test));
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
    free_set(&set);
    free_set(&test);
    return 0;
}
