/* merging.c - can two bilinear networks be merged as functions?

   A bilinear layer of 10 outputs is ten quadratics, so the mean of two layers is exactly one with all hidden units of both, and
   it can be brought back to fewer by a refit with a known error (tn_cp_mean, tn_cp_refit): of the tensor, in the metric of the
   images' second moment, or of the logits for images. Beside it: the average of the weights, the same after the hidden units
   of the second were aligned with those of the first, and the ensemble.

       disjoint     one layer has learnt the classes 0 to 4, the other 5 to 9, each with a softmax over its own five outputs; the
                    rows of P of the others are 0, so that the mean has the logits of each from the layer that knows it
       all outputs  the same with a softmax over all ten, so that each pushes down what it never sees
       two seeds    both have learnt all classes: the control

   The best of ten outputs does not depend on their scale: mean and sum of the layers say the same.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/merging.c -o merging -lm && ./merging
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --noise X   --width N   --seed N   --seeds N
   --threads N   --images N (to refit to)   --sweeps N */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "merging"
#include "common.h"

enum { SETTINGS = 3, DISJOINT = 0, ALL_OUTPUTS, TWO_SEEDS, METRICS = 3, RANKS = 4, ROWS = 200 };

static const char *const setting_name[SETTINGS] = {"disjoint", "all_outputs", "two_seeds"};
static const char *const metric_name[METRICS] = {"tensor", "moment", "images"};

typedef struct options {
    const char *data;
    int64_t     epochs, batch, width, seed, seeds, threads, images, sweeps;
    double      lr, weight_decay, noise;
} options;

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", 5, 128, 64, 1, 3, 0, 10000, 20, 2e-3, 0.05, 0.1};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        NOISE_FLAG(&o),
        WIDTH_FLAG(&o),
        SEED_FLAG(&o),
        {"--seeds", FLAG_COUNT, &o.seeds, 1, 100, NULL},
        {"--images", FLAG_COUNT, &o.images, 1, 60000, NULL},
        {"--sweeps", FLAG_COUNT, &o.sweeps, 1, 1e6, NULL},
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

/* ---- layers ----------------------------------------------------------------------- */

typedef struct layer {                  /* logits = P ((W x) * (V x)) of the classes that it is asked for */
    tn_params *params;
    tn_mlp     mlp;
    tn_tensor *others;                  /* [10] 0, and for outputs of which its softmax has none a large negative number */
    double     noise;
} layer;

static tn_tensor *logits_of_layer(tn_ctx *ctx, const void *model, tn_tensor *x)
{
    const layer *l = (const layer *)model;
    return tn_add(ctx, tn_mlp_forward(ctx, &l->mlp, tn_noise(ctx, x, l->noise)), l->others);
}

/* The images of some classes. */
static image_set images_of(tn_ctx *ctx, const image_set *all, int first, int last)
{
    image_set s = { .labels = zeros(all->count, sizeof *s.labels) };
    int32_t  *ids = zeros(all->count, sizeof *ids);
    tn_ctx_reset(ctx);
    for (int64_t i = 0; i < all->count; i++)
        if (all->labels[i] >= first && all->labels[i] < last) {
            s.labels[s.count] = all->labels[i];
            ids[s.count++] = (int32_t)i;
        }
    tn_tensor *rows = tn_tensor_1d(ctx, TN_I32, s.count);
    tn_write(rows, TN_I32, ids, s.count);
    s.images = tn_tensor_keep(tn_embed(ctx, all->images, rows));
    free(ids);
    check(ctx);
    return s;
}

/* A layer that has learnt the classes first .. last - 1, and its operator; `own`: without the other outputs. */
static tn_cp *train_layer(tn_ctx *ctx, const options *o, const image_set *set, const image_set *test, int first, int last,
                          bool own, uint64_t seed)
{
    layer     l = { .params = tn_params_create(ctx), .noise = o->noise };
    image_set some = images_of(ctx, set, first, last), tested = images_of(ctx, test, first, last);
    double    others[CLASSES] = {0}, kept[CLASSES * CLASSES] = {0};
    for (int c = 0; c < CLASSES; c++) {
        if (own && (c < first || c >= last)) others[c] = -1e9;
        else kept[c * CLASSES + c] = 1;
    }
    tn_ctx_seed(ctx, seed);
    l.others = tn_tensor_keep(tn_tensor_1d(ctx, TN_REAL, CLASSES));
    tn_write(l.others, TN_F64, others, CLASSES);
    tn_mlp_init(l.params, "layer", &(tn_mlp_desc){ .in = PIXELS, .hidden = o->width, .out = CLASSES }, &l.mlp);
    check(ctx);
    const double accuracy = train(ctx, &(training){ .params = l.params, .logits = logits_of_layer, .model = &l, .set = &some,
        .test = &tested, .epochs = o->epochs, .batch = o->batch, .seed = seed, .lr = o->lr, .weight_decay = o->weight_decay,
        .brief = true });
    printf("own_classes: %.4f\n", accuracy);
    tn_ctx_reset(ctx);
    tn_tensor *keep = tn_tensor_2d(ctx, TN_REAL, CLASSES, CLASSES);
    tn_write(keep, TN_F64, kept, CLASSES * CLASSES);
    tn_cp *whole = tn_cp_from_mlp(ctx, &l.mlp), *cp = tn_cp_fold_out(whole, keep, NULL);
    check(ctx);
    tn_cp_destroy(whole);
    tn_tensor_destroy(l.others);
    tn_tensor_destroy(some.images);
    tn_tensor_destroy(tested.images);
    free_set(&some);
    free_set(&tested);
    tn_params_destroy(l.params);
    return cp;
}

/* ---- merging ---------------------------------------------------------------------- */

/* The average of the weights. */
static tn_cp *average(tn_ctx *ctx, const tn_cp *a, const tn_cp *b)
{
    tn_tensor *f[2];
    tn_ctx_reset(ctx);
    for (int k = 0; k < 2; k++) f[k] = tn_scale(ctx, tn_add(ctx, a->f[k], b->f[k]), 0.5);
    tn_cp *to = tn_cp_create(ctx, 2, tn_scale(ctx, tn_add(ctx, a->p, b->p), 0.5), f, TN_CP_INPUT_PLAIN);
    check(ctx);
    return to;
}

/* The cosine of row i of x with row j of y. */
static double row_cosine(const double *x, int64_t i, const double *y, int64_t j, int64_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (int64_t k = 0; k < n; k++) {
        xy += x[i * n + k] * y[j * n + k];
        xx += x[i * n + k] * x[i * n + k];
        yy += y[j * n + k] * y[j * n + k];
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

/* b with its hidden units in the order of a, by their encoders alone: terms of different outputs have nothing in common, and
   layers of disjoint outputs no other. The operators of one output, the sum of all units, are aligned; which unit of b is where
   is read from the encoders. */
static tn_cp *aligned_by_encoders(tn_ctx *ctx, const tn_cp *a, const tn_cp *b)
{
    const int64_t h = a->terms, n = a->in[0];
    tn_ctx_reset(ctx);
    tn_tensor *ones = tn_full(ctx, 2, (int64_t[]){1, h}, 1);
    tn_cp     *x = tn_cp_create(ctx, 2, ones, a->f, TN_CP_INPUT_PLAIN), *y = tn_cp_create(ctx, 2, ones, b->f, TN_CP_INPUT_PLAIN);
    tn_cp     *z;
    if (tn_cp_align(x, y, &z, NULL) != TN_OK) check(ctx);
    double *from[2] = {doubles(h * n), doubles(h * n)}, *to = doubles(h * n), *scale = doubles(h);
    double *p = doubles(CLASSES * h), *q = doubles(CLASSES * h);
    for (int k = 0; k < 2; k++) tn_read(b->f[k], TN_F64, from[k], h * n);
    tn_read(z->f[0], TN_F64, to, h * n);
    tn_read(z->p, TN_F64, scale, h);
    tn_read(b->p, TN_F64, p, CLASSES * h);
    for (int64_t i = 0; i < h; i++) {
        int64_t best = 0;
        double  most = 0;
        for (int64_t j = 0; j < h; j++)
            for (int k = 0; k < 2; k++) {
                const double c = fabs(row_cosine(to, i, from[k], j, n));
                if (c > most) { most = c; best = j; }
            }
        for (int c = 0; c < CLASSES; c++) q[c * h + i] = p[c * h + best] * scale[i];
    }
    tn_tensor *outputs = tn_tensor_2d(ctx, TN_REAL, CLASSES, h);
    tn_write(outputs, TN_F64, q, CLASSES * h);
    tn_cp *done = tn_cp_create(ctx, 2, outputs, z->f, TN_CP_INPUT_PLAIN);
    check(ctx);
    tn_cp_destroy(x);
    tn_cp_destroy(y);
    tn_cp_destroy(z);
    for (int k = 0; k < 2; k++) free(from[k]);
    free(to);
    free(p);
    free(q);
    free(scale);
    return done;
}

/* The ensemble: half the sum of the logits of two operators. */
static tn_tensor *logits_of_pair(tn_ctx *ctx, const void *model, tn_tensor *x)
{
    const tn_cp *const *pair = (const tn_cp *const *)model;
    return tn_scale(ctx, tn_add(ctx, tn_cp_apply(ctx, pair[0], x), tn_cp_apply(ctx, pair[1], x)), 0.5);
}

/* |y - y'| / |y| of the logits of a set. */
static double error_on(tn_ctx *ctx, const tn_cp *a, const tn_cp *b, const image_set *set)
{
    double *x = doubles(set->count * CLASSES), *y = doubles(set->count * CLASSES), difference = 0, size = 0;
    run(ctx, logits_of_operator, a, set, x);
    run(ctx, logits_of_operator, b, set, y);
    for (int64_t i = 0; i < set->count * CLASSES; i++) {
        difference += (x[i] - y[i]) * (x[i] - y[i]);
        size += x[i] * x[i];
    }
    free(x);
    free(y);
    return sqrt(difference / size);
}

/* ---- results ---------------------------------------------------------------------- */

/* The numbers of all seeds, by name. */
typedef struct table { char name[ROWS][64]; double value[ROWS][100]; int64_t count[ROWS]; int rows; } table;

static void put(table *t, const char *setting, const char *name, double value)
{
    char key[64];
    int  r = 0;
    snprintf(key, sizeof key, "%s_%s", setting, name);
    printf("%s: %.4f\n", key, value);
    fflush(stdout);
    while (r < t->rows && strcmp(t->name[r], key)) r++;
    if (r == ROWS) stop("too many rows");
    if (r == t->rows) memcpy(t->name[t->rows++], key, sizeof key);
    t->value[r][t->count[r]++] = value;
}

static void print_table(const table *t)
{
    printf("\nmean, least and largest of the seeds\n");
    for (int r = 0; r < t->rows; r++) {
        double sum = 0, low = t->value[r][0], high = low;
        for (int64_t i = 0; i < t->count[r]; i++) {
            sum += t->value[r][i];
            low = fmin(low, t->value[r][i]);
            high = fmax(high, t->value[r][i]);
        }
        printf("%-40s %.4f  %.4f  %.4f\n", t->name[r], sum / (double)t->count[r], low, high);
    }
}

/* The images to refit to, and the second moment of all. */
typedef struct data { tn_tensor *some, *moment; } data;

static void refit(tn_ctx *ctx, const options *o, const char *name, const tn_cp *mean, const data *d, const image_set *test,
                  table *t)
{
    for (int i = 0; i < RANKS; i++)
        for (int m = 0; m < METRICS; m++) {
            const int64_t    terms = (o->width << i) / 4;
            tn_cp_refit_desc desc = { .terms = terms, .tol = 1e-5, .sweeps = m == 2 ? o->sweeps : 0 };
            double           error;
            char             key[64];
            desc.moment = m == 1 ? d->moment : NULL;
            desc.inputs = m == 2 ? d->some : NULL;
            const double start = now();
            tn_cp       *cp = tn_cp_refit(mean, &desc, &error);
            check(ctx);
            printf("seconds: %.1f\n", now() - start);
            snprintf(key, sizeof key, "%s_%lld_error", metric_name[m], (long long)terms);
            put(t, name, key, error);
            snprintf(key, sizeof key, "%s_%lld_test_error", metric_name[m], (long long)terms);
            put(t, name, key, error_on(ctx, mean, cp, test));
            snprintf(key, sizeof key, "%s_%lld_accuracy", metric_name[m], (long long)terms);
            put(t, name, key, accuracy_of(ctx, logits_of_operator, cp, test));
            tn_cp_destroy(cp);
        }
}

static void merge(tn_ctx *ctx, const options *o, int setting, uint64_t seed, const image_set *set, const image_set *test,
                  const data *d, table *t)
{
    const int    half = CLASSES / 2;
    const char  *name = setting_name[setting];
    const bool   own = setting == DISJOINT, all = setting == TWO_SEEDS;
    const tn_cp *pair[2];
    tn_cp       *aligned;
    pair[0] = train_layer(ctx, o, set, test, 0, all ? CLASSES : half, own, 2 * seed);
    pair[1] = train_layer(ctx, o, set, test, all ? 0 : half, CLASSES, own, 2 * seed + 1);
    tn_cp *mean = tn_cp_mean(2, pair, NULL), *plain = average(ctx, pair[0], pair[1]);
    check(ctx);
    if (own) aligned = aligned_by_encoders(ctx, pair[0], pair[1]);
    else if (tn_cp_align(pair[0], pair[1], &aligned, NULL) != TN_OK) check(ctx);
    tn_cp *after = average(ctx, pair[0], aligned);
    put(t, name, "first", accuracy_of(ctx, logits_of_operator, pair[0], test));
    put(t, name, "second", accuracy_of(ctx, logits_of_operator, pair[1], test));
    put(t, name, "ensemble", accuracy_of(ctx, logits_of_pair, pair, test));
    put(t, name, "mean", accuracy_of(ctx, logits_of_operator, mean, test));
    printf("%s_mean_minus_ensemble: %.1e\n", name, largest_difference(ctx, logits_of_operator, mean, logits_of_pair, pair, test));
    printf("%s_aligned_minus_second: %.1e\n", name,
           largest_difference(ctx, logits_of_operator, pair[1], logits_of_operator, aligned, test));
    put(t, name, "average", accuracy_of(ctx, logits_of_operator, plain, test));
    put(t, name, "aligned_average", accuracy_of(ctx, logits_of_operator, after, test));
    refit(ctx, o, name, mean, d, test, t);
    tn_cp_release(ctx, 0, NULL);
}

int main(int argc, char **argv)
{
    options o = read_options(argc, argv);
    tn_desc desc = { .seed = (uint64_t)o.seed, .threads = (int)o.threads };
    char    why[TN_WHY];
    tn_ctx *ctx;
    data    d;
    table  *t = zeros(1, sizeof *t);

    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    image_set set = load_set(ctx, o.data, "train"), test = load_set(ctx, o.data, "t10k");
    if (o.images > set.count) stop("--images is more than there are");
    tn_ctx_reset(ctx);
    d.some = tn_tensor_keep(tn_slice(set.images, 0, 0, o.images));
    d.moment = tn_tensor_keep(tn_scale(ctx, tn_matmul(ctx, tn_transpose(set.images, 0, 1), set.images), 1 / (double)set.count));
    check(ctx);
    for (int64_t s = 0; s < o.seeds; s++)
        for (int setting = 0; setting < SETTINGS; setting++)
            merge(ctx, &o, setting, (uint64_t)(o.seed + s), &set, &test, &d, t);
    print_table(t);
    free(t);
    free_set(&set);
    free_set(&test);
    tn_ctx_destroy(ctx);
    return 0;
}
