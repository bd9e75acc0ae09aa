/* fashion.c - train bilinear networks on images, fold each into one tensor, look at what they learnt

   embed 784 -> 256, bilinear 256 -> 256, unembed 256 -> 10: logits = U ((W E x) * (V E x)). Folded it is one
   third-order tensor in pixel space: a class's logit is x^T Q x, and the eigenvectors of Q are pictures.
   A network that may fit every pixel has noise in them. A second one, by default trained with more noise on its images and
   more weight decay, is a few percent less accurate, and its eigenvectors show clothes. How smooth they are is measured by
       autocorrelation   I = [mean of (v_p - m)(v_q - m) over all pairs p,q of pixels side by side or one above the other]
                             / [mean of (v_p - m)^2 over all pixels p],                                  m the mean of v
                         (Moran's I at lag 1): 1 for a slow wave, -1/783 expected of white noise; the mean over classes and
                         their SHOWN most positive and SHOWN most negative eigenvectors in pixel space

   make demo      or   sh examples/get_data.sh fashion
                       cc -O2 -DTN_USE_THREADS -pthread -I. examples/fashion.c -o fashion -lm && ./fashion
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --noise X   --regularised-weight-decay X
   --regularised-noise X   --width N   --seed N   --threads N   --out FOLDER */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "fashion"
#include "studies/common.h"

enum { SHOWN = 3, ROWS = 2 * SHOWN, TILES = ROWS * CLASSES, ENDS = 15, RADII = 200 };

typedef struct options {
    const char *data, *out;
    int64_t     epochs, batch, width, seed, threads;
    double      lr, weight_decay, noise, regularised_weight_decay, regularised_noise;
} options;

/* A network that was trained, and what it became. */
typedef struct trained {
    network  net;
    history  h;
    double   accuracy;
    tn_cp   *cp;
    tn_eigenpairs e;
} trained;

/* ---- options -------------------------------------------------------------- */

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", "out", 15, 128, 256, 1, 0, 2e-3, 0.05, 0.1, 0.3, 0.42};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        NOISE_FLAG(&o),
        {"--regularised-weight-decay", FLAG_REAL, &o.regularised_weight_decay, 0, 10, NULL},
        {"--regularised-noise", FLAG_REAL, &o.regularised_noise, 0, 1000, NULL},
        WIDTH_FLAG(&o),
        SEED_FLAG(&o),
        OUT_FLAG(&o),
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

/* ---- the top eigenvectors --------------------------------------------------------- */

/* Pictures [ROWS,CLASSES,PIXELS]: of each class its SHOWN most positive, then its SHOWN most negative eigenvectors. A class
   that has fewer leaves zeros. */
static double *top_eigenvectors(tn_ctx *ctx, const tn_eigenpairs *e)
{
    double *values = doubles(CLASSES * e->count), *vectors = doubles(CLASSES * e->count * PIXELS);
    double *top = doubles(TILES * PIXELS);
    tn_read(e->values, TN_F64, values, CLASSES * e->count);
    tn_read(e->vectors, TN_F64, vectors, CLASSES * e->count * PIXELS);
    check(ctx);
    for (int64_t c = 0; c < CLASSES; c++) {
        int64_t got[2] = {0, 0};
        for (int64_t i = 0; i < e->count; i++) {
            int64_t negative = values[c * e->count + i] < 0;
            if (got[negative] == SHOWN) continue;
            int64_t row = negative * SHOWN + got[negative]++;
            memcpy(top + (row * CLASSES + c) * PIXELS, vectors + (c * e->count + i) * PIXELS, sizeof *top * PIXELS);
        }
    }
    free(values);
    free(vectors);
    return top;
}

static double mean_autocorrelation(const double *top)
{
    double sum = 0;
    for (int i = 0; i < TILES; i++) sum += autocorrelation(top + i * PIXELS) / TILES;
    return sum;
}

/* ---- pictures ------------------------------------------------------------------- */

static void draw_eigenvectors(tn_ctx *ctx, const trained *t, const double *top, const options *o, const char *const *names,
                              const char *file)
{
    static const char *const heads[ROWS] = {"+1", "+2", "+3", "-1", "-2", "-3"};
    char title[96];
    snprintf(title, sizeof title, "Eigenvectors for (+) and against (\xE2\x88\x92) each class: %.1f %% correct", 100 * t->accuracy);
    save_image(ctx, tn_image_tiles(ctx, top, TILES, SIDE, SIDE, &(tn_image_tiles_desc){ .rows = ROWS, .columns = CLASSES,
        .row_names = heads, .column_names = names, .own_scales = true, .clip = 99.5, .cell = 2, .scale = 2, .title = title }),
        o->out, file);
}

/* Rows of a class's interaction matrix as pictures: what a pixel, marked by its place, is multiplied with. */
static void draw_interaction(tn_ctx *ctx, const tn_cp *cp, int64_t c, const options *o, const char *const *names)
{
    enum { GRID = 5 };
    static const int at[GRID] = {5, 9, 14, 18, 22};
    static char caption[GRID * GRID][16];
    const char *captions[GRID * GRID];
    char        title[96];
    tn_tensor  *q = tn_cp_interaction_of(cp, c);
    double     *v = doubles(PIXELS * PIXELS), *rows = doubles(GRID * GRID * PIXELS);
    check(ctx);
    tn_read(q, TN_F64, v, PIXELS * PIXELS);
    for (int i = 0; i < GRID * GRID; i++) {
        int y = at[i / GRID], x = at[i % GRID];
        memcpy(rows + i * PIXELS, v + (y * SIDE + x) * PIXELS, sizeof *rows * PIXELS);
        snprintf(caption[i], sizeof caption[i], "(%d,%d)", y, x);
        captions[i] = caption[i];
    }
    snprintf(title, sizeof title, "What a pixel interacts with, in the logit of \"%s\"", names[c]);
    save_image(ctx, tn_image_tiles(ctx, rows, GRID * GRID, SIDE, SIDE, &(tn_image_tiles_desc){ .columns = GRID,
        .captions = captions, .clip = 99.5, .cell = 3, .scale = 2, .title = title,
        .caption = "25 rows of Q as images, each of the pixel (row,column) below it.\n"
                   "Red: both pixels lit raise the logit; blue: they lower it.\n"
                   "Colours end at the 99.5th percentile." }), o->out, "interaction");
    snprintf(title, sizeof title, "Interaction matrix Q of class \"%s\"", names[c]);
    save_image(ctx, tn_image_matrix(ctx, v, PIXELS, PIXELS, &(tn_image_matrix_desc){ .title = title, .x_title = "pixel",
        .y_title = "pixel", .caption = "colours end at the 99.5th percentile", .size = 560, .clip = 99.5, .scale = 2 }),
        o->out, "interaction_matrix");
    free(v);
    free(rows);
    tn_tensor_destroy(q);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Of four classes the ENDS most positive eigenvalues above the axis, and the ENDS most negative ones below it. */
static void draw_spectra(tn_ctx *ctx, const tn_eigenpairs *e, const options *o, const char *const *names)
{
    static const int classes[4] = {0, 1, 5, 7};
    static double    x[2 * ENDS], y[4][2 * ENDS];
    double          *v = doubles(CLASSES * e->count);
    tn_image_series  series[4];
    int64_t          ends = e->count < 2 * ENDS ? e->count / 2 : ENDS;
    tn_read(e->values, TN_F64, v, CLASSES * e->count);
    check(ctx);
    for (int64_t k = 0; k < 4; k++) {
        double *own = v + classes[k] * e->count;
        qsort(own, (size_t)e->count, sizeof *own, descending);
        for (int64_t i = 0; i < ends; i++) {
            x[2 * i] = x[2 * i + 1] = (double)i + 1;
            y[k][2 * i] = own[i];
            y[k][2 * i + 1] = own[e->count - 1 - i];
        }
        series[k] = (tn_image_series){ .name = names[classes[k]], .x = x, .y = y[k], .count = 2 * ends,
                                       .kind = TN_IMAGE_SERIES_STEMS };
    }
    save_image(ctx, tn_image_plot(ctx, series, 4, &(tn_image_plot_desc){
        .title = "Both ends of the spectra of four classes", .x_title = "place, from the largest and from the smallest",
        .y_title = "eigenvalue", .x_low = 0.4, .x_high = ENDS + 0.6, .scale = 2 }), o->out, "spectra");
    free(v);
}

static void draw_curves(tn_ctx *ctx, const trained *t, const options *o)
{
    static const char *const names[4] = {"training", "test", "training, regularised", "test, regularised"};
    tn_image_series s[4];
    for (int k = 0; k < 4; k++) {
        const history *h = &t[k / 2].h;
        s[k] = (tn_image_series){ .name = names[k], .x = h->epoch, .y = k % 2 ? h->accuracy : h->train, .count = h->count,
                            .dashed = k % 2 == 0, .colour = k / 2 + 1, .show_last = true };
    }
    save_image(ctx, tn_image_plot(ctx, s, 4, &(tn_image_plot_desc){
        .title = "Accuracy of both networks, images with noise while training", .x_title = "epoch",
        .y_title = "share of right answers", .scale = 2 }), o->out, "training");
}

/* ---- how far an image is from another answer ---------------------------------------- */

/* The median over the first RADII test images of the distance to the nearest image that is called something else. */
static double median_radius(tn_ctx *ctx, const tn_cp *cp, const image_set *test)
{
    static double  all[RADII * CLASSES], least[RADII];
    static int32_t rival[RADII];
    int64_t       count = test->count < RADII ? test->count : RADII;
    tn_radius     r;
    tn_ctx_reset(ctx);
    if (tn_cp_radius(1, &cp, tn_slice(test->images, 0, 0, count), &r) != TN_OK) check(ctx);
    tn_read(r.radius, TN_F64, all, count * CLASSES);
    tn_read(r.rival, TN_I32, rival, count);
    check(ctx);
    tn_radius_destroy(&r);
    for (int64_t i = 0; i < count; i++) least[i] = all[i * CLASSES + rival[i]];
    qsort(least, (size_t)count, sizeof *least, descending);
    return least[count / 2];
}

/* ---- all together ------------------------------------------------------------------ */

/* The file says what its outputs are called, for tn look. */
static void save_network(tn_ctx *ctx, const tn_params *params, const options *o, const char *name)
{
    const char *const *names = names_of(o->data);
    char    path[512], outputs[256] = "";
    size_t  used = 0;
    tn_metadata note = {"tn.outputs", outputs};
    for (int c = 0; c < CLASSES; c++)
        used += (size_t)snprintf(outputs + used, sizeof outputs - used, c ? ",%s" : "%s", names[c]);
    snprintf(path, sizeof path, "%s/%s.safetensors", o->out, name);
    tn_params_write(params, tn_sink_path(path), &note, 1);
    check(ctx);
}

static void train_one(tn_ctx *ctx, trained *t, const image_set *set, const image_set *test, const options *o,
                      bool regularised)
{
    network_init(ctx, &t->net, o->width, regularised ? o->regularised_noise : o->noise);
    if (!regularised)
        printf("%s: %lld images, %lld parameters, %s (%s), %d thread%s\n", o->data, (long long)set->count,
               (long long)tn_params_elements(t->net.params), tn_ctx_backend_name(ctx), tn_ctx_simd_name(ctx),
               tn_ctx_threads(ctx), tn_ctx_threads(ctx) == 1 ? "" : "s");
    t->accuracy = train(ctx, &(training){ .params = t->net.params, .logits = logits_of_network, .model = &t->net, .set = set,
        .test = test, .epochs = o->epochs, .batch = o->batch, .seed = (uint64_t)o->seed, .lr = o->lr,
        .weight_decay = regularised ? o->regularised_weight_decay : o->weight_decay, .rescue = o->out, .history = &t->h,
        .label = regularised ? "regularised  " : NULL });
    save_network(ctx, t->net.params, o, regularised ? "regularised" : "model");
}

/* Of the first network's answers: what its eigenvectors keep. */
static void print_truncations(tn_ctx *ctx, const tn_eigenpairs *e, const image_set *test)
{
    static const int64_t ks[] = {1, 2, 3, 5, 10, 20};
    for (size_t i = 0; i <= sizeof ks / sizeof *ks; i++) {
        bool all = i == sizeof ks / sizeof *ks;
        if (!all && ks[i] > e->count) continue;
        tn_cp *cut = tn_cp_from_eigen(ctx, e, all ? e->count : ks[i]);
        check(ctx);
        if (all) printf("accuracy_all: %.4f\n", accuracy_of(ctx, logits_of_operator, cut, test));
        else printf("accuracy_k%lld: %.4f\n", (long long)ks[i], accuracy_of(ctx, logits_of_operator, cut, test));
        tn_cp_destroy(cut);
    }
}

static double mean_effective_rank(tn_ctx *ctx, const tn_eigenpairs *e)
{
    double *v = doubles(CLASSES * e->count), rank = 0;
    tn_read(e->values, TN_F64, v, CLASSES * e->count);
    check(ctx);
    for (int c = 0; c < CLASSES; c++) rank += tn_effective_rank(v + c * e->count, e->count) / CLASSES;
    free(v);
    return rank;
}

int main(int argc, char **argv)
{
    static trained t[2];                      /* without and with regularisation */
    options o = read_options(argc, argv);
    tn_desc desc = { .seed = (uint64_t)o.seed, .threads = (int)o.threads };
    const char *const *names = names_of(o.data);
    char    why[TN_WHY];
    double  start = now(), *top[2];
    tn_ctx *ctx;

    make_folder(o.out);
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    image_set set = load_set(ctx, o.data, "train");
    image_set test = load_set(ctx, o.data, "t10k");
    for (int k = 0; k < 2; k++) train_one(ctx, &t[k], &set, &test, &o, k == 1);
    double after_training = now();

    for (int k = 0; k < 2; k++)               /* three layers, one tensor */
        t[k].cp = tn_cp_from_stack(ctx, &t[k].net.embed, &t[k].net.bilinear, &t[k].net.unembed);
    check(ctx);
    printf("test_accuracy: %.4f\n", t[0].accuracy);
    printf("test_accuracy_regularised: %.4f\n", t[1].accuracy);
    printf("fold_error: %.2e\n", largest_difference(ctx, logits_of_network, &t[0].net, logits_of_operator, t[0].cp, &test));
    double folded = now();

    for (int k = 0; k < 2; k++) {
        if (tn_cp_eigen_all(t[k].cp, 0, &t[k].e) != TN_OK) check(ctx);
        top[k] = top_eigenvectors(ctx, &t[k].e);
    }
    double eigen = now();
    print_truncations(ctx, &t[0].e, &test);
    double cut = now();
    printf("effective_rank_pixels: %.1f\n", mean_effective_rank(ctx, &t[0].e));
    printf("autocorrelation: %.3f\n", mean_autocorrelation(top[0]));
    printf("autocorrelation_regularised: %.3f\n", mean_autocorrelation(top[1]));
    printf("radius_median: %.3f\n", median_radius(ctx, t[0].cp, &test));
    printf("radius_median_regularised: %.3f\n", median_radius(ctx, t[1].cp, &test));
    double radii = now();
    printf("pictures:\n");
    draw_eigenvectors(ctx, &t[1], top[1], &o, names, "eigenvectors");
    draw_eigenvectors(ctx, &t[0], top[0], &o, names, "eigenvectors_noisy");
    draw_interaction(ctx, t[1].cp, 7, &o, names);
    draw_spectra(ctx, &t[1].e, &o, names);
    draw_curves(ctx, t, &o);
    printf("  %s/model.safetensors\n  %s/regularised.safetensors\n", o.out, o.out);
    printf("A page of it (make tn): build/tn look %s/regularised.safetensors --data data/%s/t10k-images-idx3-ubyte "
           "--labels data/%s/t10k-labels-idx1-ubyte\n", o.out, o.data, o.data);
    printf("seconds_training: %.1f\n", after_training - start);
    printf("seconds_folding: %.1f\n", folded - after_training);
    printf("seconds_eigen: %.1f\n", eigen - folded);
    printf("seconds_radii: %.1f\n", radii - cut);
    printf("seconds: %.1f\n", now() - start);
    for (int k = 0; k < 2; k++) {
        tn_eigenpairs_destroy(&t[k].e);
        free(top[k]);
    }
    tn_ctx_destroy(ctx);
    free_set(&set);
    free_set(&test);
    return 0;
}
