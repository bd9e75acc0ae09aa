/* common.h - what the examples on images share: the data, the training loop, the test set

   Included as program.h is. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include "program.h"

enum { CLASSES = 10, SIDE = 28, PIXELS = SIDE * SIDE, TEST_BATCH = 1000, MAX_EPOCHS = 1000 };

static const char *const class_name[2][CLASSES] = {
    {"T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"},
    {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
};

static inline double *doubles(int64_t n) { return zeros(n, sizeof(double)); }

/* One of "fashion" and "mnist": the names of its classes. */
static inline const char *const *names_of(const char *data) { return class_name[!strcmp(data, "mnist")]; }

/* ---- data ------------------------------------------------------------------ */

typedef struct image_set {
    tn_tensor *images;              /* [count,784] in [0,1] */
    int32_t   *labels;              /* [count]              */
    int64_t    count;
} image_set;

static inline tn_tensor *load_idx(tn_ctx *ctx, const char *data, const char *file, double scale)
{
    char path[512];
    snprintf(path, sizeof path, "data/%s/%s", data, file);
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, PROGRAM ": %s is missing; this gets it: sh examples/get_data.sh %s\n", path, data);
        exit(1);
    }
    fclose(f);
    tn_tensor *t = tn_idx_load(ctx, path, scale);
    check(ctx);
    return t;
}

/* prefix: train or t10k */
static inline image_set load_set(tn_ctx *ctx, const char *data, const char *prefix)
{
    char      file[64];
    image_set s;
    snprintf(file, sizeof file, "%s-images-idx3-ubyte", prefix);
    tn_tensor *images = load_idx(ctx, data, file, 1 / 255.0);
    snprintf(file, sizeof file, "%s-labels-idx1-ubyte", prefix);
    tn_tensor *labels = load_idx(ctx, data, file, 0);
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
    for (int64_t i = 0; i < s.count; i++)
        if (s.labels[i] < 0 || s.labels[i] >= CLASSES) stop("a label is not one of 0 to 9");
    return s;
}

/* The images go with their context. */
static inline void free_set(image_set *s) { free(s->labels); }

/* ---- the test set, through a network or through an operator ------------------- */

typedef tn_tensor *(*logits_fn)(tn_ctx *ctx, const void *model, tn_tensor *x);          /* [n,784] -> [n,10] */

static inline tn_tensor *logits_of_operator(tn_ctx *ctx, const void *model, tn_tensor *x) { return tn_cp_apply(ctx, (const tn_cp *)model, x); }

/* logits [count,10] of all images; returns the accuracy */
static inline double run(tn_ctx *ctx, logits_fn fn, const void *model, const image_set *set, double *logits)
{
    int64_t right = 0;
    for (int64_t first = 0; first < set->count; first += TEST_BATCH) {
        int64_t n = first + TEST_BATCH < set->count ? TEST_BATCH : set->count - first;
        tn_ctx_reset(ctx);
        tn_read(fn(ctx, model, tn_slice(set->images, 0, first, first + n)), TN_F64, logits + first * CLASSES, n * CLASSES);
        check(ctx);
    }
    for (int64_t i = 0; i < set->count; i++) {
        int64_t best = 0;
        for (int64_t c = 1; c < CLASSES; c++) if (logits[i * CLASSES + c] > logits[i * CLASSES + best]) best = c;
        right += best == set->labels[i];
    }
    return (double)right / (double)set->count;
}

static inline double accuracy_of(tn_ctx *ctx, logits_fn fn, const void *model, const image_set *set)
{
    double *logits = doubles(set->count * CLASSES), accuracy = run(ctx, fn, model, set, logits);
    free(logits);
    return accuracy;
}

/* Between two models of the same function: the largest of max|difference| / max|logit| per image. */
static inline double largest_difference(tn_ctx *ctx, logits_fn fn, const void *model, logits_fn other_fn, const void *other, const image_set *set)
{
    double *a = doubles(set->count * CLASSES), *b = doubles(set->count * CLASSES), worst = 0;
    run(ctx, fn, model, set, a);
    run(ctx, other_fn, other, set, b);
    for (int64_t i = 0; i < set->count; i++) {
        double difference = 0, size = 0;
        for (int64_t c = 0; c < CLASSES; c++) {
            keep_largest(&difference, fabs(a[i * CLASSES + c] - b[i * CLASSES + c]));
            keep_largest(&size, fabs(a[i * CLASSES + c]));
        }
        if (difference > 0) keep_largest(&worst, difference / size);
    }
    free(a);
    free(b);
    return worst;
}

/* Of a picture of SIDE x SIDE: Moran's I at lag 1, the mean of (v_p - m)(v_q - m) over all pairs p,q of pixels side by side or
   one above the other, by the variance. 1 for a slow wave, -1/783 expected of white noise; 0 for a constant picture. */
static inline double autocorrelation(const double *v)
{
    double mean = 0, square = 0, product = 0;
    for (int i = 0; i < PIXELS; i++) mean += v[i] / PIXELS;
    for (int i = 0; i < PIXELS; i++) square += (v[i] - mean) * (v[i] - mean) / PIXELS;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j + 1 < SIDE; j++)
            product += (v[i * SIDE + j] - mean) * (v[i * SIDE + j + 1] - mean)
                     + (v[j * SIDE + i] - mean) * (v[(j + 1) * SIDE + i] - mean);
    return square > 0 ? product / (2 * SIDE * (SIDE - 1)) / square : 0;
}

/* ---- training ----------------------------------------------------------------- */

/* The flags of most programs on images, for the table of read_flags. The struct at s has a field for each. */
#define TRAINING_FLAGS(s) \
    {"--data", FLAG_CHOICE, &(s)->data, 0, 0, "fashion|mnist"}, \
    {"--epochs", FLAG_COUNT, &(s)->epochs, 1, MAX_EPOCHS, NULL}, \
    {"--batch", FLAG_COUNT, &(s)->batch, 1, 1e6, NULL}, \
    {"--lr", FLAG_REAL, &(s)->lr, 0, 10, NULL}, \
    {"--weight-decay", FLAG_REAL, &(s)->weight_decay, 0, 10, NULL}, \
    THREADS_FLAG(s)
#define NOISE_FLAG(s) {"--noise", FLAG_REAL, &(s)->noise, 0, 1000, NULL}
#define WIDTH_FLAG(s) {"--width", FLAG_COUNT, &(s)->width, 1, 1e5, NULL}

typedef struct history {            /* for the curves */
    double  loss[MAX_EPOCHS], accuracy[MAX_EPOCHS], epoch[MAX_EPOCHS];
    double  train[MAX_EPOCHS];      /* accuracy of the training images, while training */
    int64_t count;
} history;

typedef struct training {
    tn_params  *params;
    logits_fn   logits;
    void       *model;
    const image_set *set, *test;
    int64_t     epochs, batch;
    uint64_t    seed;               /* of the order of the images                          */
    double      lr, weight_decay;
    void      (*before_step)(void *model, double done);  /* share of all steps, in [0,1]; or NULL */
    const char *label;              /* before each line, or NULL                           */
    const char *rescue;             /* a folder for the parameters if a step fails, or NULL */
    bool        brief;              /* test and print after the last epoch only            */
    history    *history;            /* or NULL                                             */
} training;

static inline void progress(int64_t step, int64_t steps, double loss, double accuracy, double rate, double left)
{
    int done = (int)(24 * step / steps);
    printf("\r[");
    for (int i = 0; i < 24; i++) putchar(i < done ? '#' : '.');
    printf("] loss %.3f  acc %.3f  %5.0fk img/s  %3.0f s left ", loss, accuracy, rate / 1000, left);
    fflush(stdout);
}

/* The parameters are still those of the step before. */
static inline void rescue(tn_ctx *ctx, const training *t)
{
    char path[512];
    fprintf(stderr, "\n" PROGRAM ": %s\n", tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
    if (t->rescue) {
        snprintf(path, sizeof path, "%s/model.safetensors", t->rescue);
        if (tn_params_save(t->params, path) == TN_OK) fprintf(stderr, PROGRAM ": the last good state is in %s\n", path);
    }
    exit(1);
}

/* AdamW, a short warm-up, then half a cosine. A bar on a terminal, a line per epoch everywhere; returns the last test accuracy. */
static inline double train(tn_ctx *ctx, const training *t)
{
    const image_set *set = t->set;
    int64_t   per_epoch = (set->count + t->batch - 1) / t->batch, steps = per_epoch * t->epochs, step = 0;
    int32_t  *order = malloc(sizeof *order * (size_t)set->count), *labels = malloc(sizeof *labels * (size_t)t->batch);
    uint64_t  state = t->seed;
    bool      bar = isatty(1) != 0;
    double    start = now(), shown = 0, accuracy = 0;
    tn_optim *optim = tn_optim_create(t->params, &(tn_optim_desc){
        .lr = t->lr, .weight_decay = t->weight_decay,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .warmup = per_epoch / 4, .total = steps } });
    check(ctx);
    if (!order || !labels) stop("no memory for the order of the images");
    for (int64_t i = 0; i < set->count; i++) order[i] = (int32_t)i;
    for (int64_t epoch = 0; epoch < t->epochs; epoch++) {
        double  loss_sum = 0, right = 0;
        int64_t seen = 0;
        shuffle(order, set->count, &state);
        for (int64_t first = 0; first < set->count; first += t->batch, step++) {
            int64_t n = first + t->batch < set->count ? t->batch : set->count - first;
            tn_ctx_reset(ctx);
            for (int64_t i = 0; i < n; i++) labels[i] = set->labels[order[first + i]];
            tn_tensor *ids = tn_tensor_1d(ctx, TN_I32, n);
            tn_tensor *y = tn_tensor_1d(ctx, TN_I32, n);
            tn_write(ids, TN_I32, order + first, n);
            tn_write(y, TN_I32, labels, n);
            if (t->before_step) t->before_step(t->model, steps > 1 ? (double)step / (double)(steps - 1) : 1);
            tn_record(ctx);
            tn_tensor *logits = t->logits(ctx, t->model, tn_embed(ctx, set->images, ids));
            tn_tensor *loss = tn_cross_entropy(ctx, logits, y);
            if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) rescue(ctx, t);
            loss_sum += tn_item(loss) * (double)n;
            right += tn_item(tn_accuracy(ctx, logits, y)) * (double)n;
            seen += n;
            if (bar && now() - shown > 0.1) {
                double rate = (double)(step * t->batch) / (now() - start);
                shown = now();
                progress(step, steps, loss_sum / (double)seen, right / (double)seen, rate, (double)((steps - step) * t->batch) / (rate + 1));
            }
        }
        if (t->brief && epoch + 1 < t->epochs) continue;
        accuracy = accuracy_of(ctx, t->logits, t->model, t->test);
        if (t->history) {
            t->history->epoch[epoch] = (double)(epoch + 1);
            t->history->loss[epoch] = loss_sum / (double)set->count;
            t->history->train[epoch] = right / (double)set->count;
            t->history->accuracy[epoch] = accuracy;
            t->history->count = epoch + 1;
        }
        printf("%s%sepoch %2lld  loss %.4f  train %.4f  test %.4f  %6.1f s%s\n", bar ? "\r" : "", t->label ? t->label : "", (long long)epoch + 1,
               loss_sum / (double)set->count, right / (double)set->count, accuracy, now() - start, bar ? "                    " : "");
        fflush(stdout);
    }
    tn_optim_destroy(optim);
    free(order);
    free(labels);
    return accuracy;
}

/* ---- the network of most of them: embed, bilinear, unembed -------------------------- */

typedef struct network {            /* logits = U ((W E x) * (V E x)) */
    tn_params *params;
    tn_linear  embed, unembed;
    tn_mlp     bilinear;
    double     noise;               /* on the images, while training    */
} network;

static inline void network_init(tn_ctx *ctx, network *net, int64_t width, double noise)
{
    net->params = tn_params_create(ctx);
    net->noise = noise;
    tn_linear_init(net->params, "embed", &(tn_linear_desc){ .in = PIXELS, .out = width }, &net->embed);
    tn_mlp_init(net->params, "bilinear", &(tn_mlp_desc){ .in = width, .hidden = width, .no_projection = true },
                &net->bilinear);
    tn_linear_init(net->params, "unembed", &(tn_linear_desc){ .in = width, .out = CLASSES }, &net->unembed);
    check(ctx);
}

static inline tn_tensor *logits_of_network(tn_ctx *ctx, const void *model, tn_tensor *x)
{
    const network *net = (const network *)model;
    x = tn_noise(ctx, x, net->noise);
    x = tn_linear_forward(ctx, &net->embed, x);
    x = tn_mlp_forward(ctx, &net->bilinear, x);
    return tn_linear_forward(ctx, &net->unembed, x);
}

/* Reads a published network: embed.weight E [d,784], blocks.0.weight [2d,d] = [L; R] and head.weight H [10,d] make
   H (x + (L x) * (R x)), x = E v. */
static inline void network_read(tn_ctx *ctx, network *net, const char *path)
{
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_path(path));
    check(ctx);
    tn_tensor *e = tn_safetensors_read(f, "embed.weight"), *w = tn_safetensors_read(f, "blocks.0.weight");
    tn_tensor *h = tn_safetensors_read(f, "head.weight");
    check(ctx);
    const int64_t d = e->shape[0];
    if (e->rank != 2 || e->shape[1] != PIXELS || w->rank != 2 || w->shape[0] != 2 * d || w->shape[1] != d || h->rank != 2
        || h->shape[0] != CLASSES || h->shape[1] != d)
        stop("the shapes are not those of embed.weight [d,784], blocks.0.weight [2d,d], head.weight [10,d]");
    net->params = tn_params_create(ctx);
    net->noise = 0;
    tn_linear_init(net->params, "embed", &(tn_linear_desc){ .in = PIXELS, .out = d }, &net->embed);
    tn_mlp_init(net->params, "bilinear", &(tn_mlp_desc){ .in = d, .hidden = d, .no_projection = true, .residual = true },
                &net->bilinear);
    tn_linear_init(net->params, "unembed", &(tn_linear_desc){ .in = d, .out = CLASSES }, &net->unembed);
    check(ctx);
    tn_assign(net->embed.w, e);
    tn_assign(net->bilinear.w, tn_reshape(w, 3, (int64_t[]){2, d, d}));
    tn_assign(net->unembed.w, h);
    tn_safetensors_close(f);
    check(ctx);
}

#endif
