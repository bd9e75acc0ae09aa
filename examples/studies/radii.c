/* radii.c - how far must an image move before a bilinear network gives another answer? Exactly, and trained to be farther

   Folded, the network is one quadratic for each class, so the nearest image with another answer is found exactly
   (tn_cp_radius): no image within the radius has another answer, and the nearest one has it. Projected gradient descent checks both
   sides. Then training goes on with the exact gradient of the radius r, which at the nearest image x* is

       dr/dw = (dg/dw)(x*) / |grad_x g (x*)|         g: the logit of the answer minus that of its rival, 0 at x*

   and adds  strength * mean max(0, aim - r)  over right answers to the loss.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/radii.c -o radii -lm && ./radii
   --data fashion|mnist   --epochs N   --batch N   --lr X   --weight-decay X   --noise X   --width N   --seed N   --threads N
   --images N (of the test set)   --steps N, --aim X, --strength X, --further-lr X (of the further training)   --out FOLDER
   --weights FILE   a published network (common.h) instead of a trained one; of the data only the test set is read */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "radii"
#include "common.h"

enum { PGD_STEPS = 200, ATTACKED = 12, ROWS = 3 };

typedef struct options {
    const char *data, *out, *weights;
    int64_t     epochs, batch, width, seed, threads, images, steps;
    double      lr, weight_decay, noise, aim, strength, further_lr;
} options;

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", "out", NULL, 5, 128, 128, 1, 0, 200, 200, 2e-3, 0.05, 0.1, 2, 1, 1e-4};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        NOISE_FLAG(&o),
        WIDTH_FLAG(&o),
        SEED_FLAG(&o),
        {"--images", FLAG_COUNT, &o.images, 10, 1e4, NULL},
        {"--steps", FLAG_COUNT, &o.steps, 0, 1e6, NULL},
        {"--aim", FLAG_REAL, &o.aim, 0, 100, NULL},
        {"--further-lr", FLAG_REAL, &o.further_lr, 0, 10, NULL},
        {"--strength", FLAG_REAL, &o.strength, 0, 1000, NULL},
        OUT_FLAG(&o),
        {"--weights", FLAG_TEXT, &o.weights, 0, 0, NULL},
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

/* Of some images: the least radius of each, the answers, and the nearest images with another answer. */
typedef struct nearest {
    int64_t    count;
    double    *radius;                  /* [count] */
    int32_t   *answer, *rival;          /* [count] */
    tn_tensor *images;                  /* [count,784], owned */
} nearest;

static nearest nearest_of(tn_ctx *ctx, const network *net, tn_tensor *images)
{
    tn_cp    *cp = tn_cp_from_stack(ctx, &net->embed, &net->bilinear, &net->unembed);
    tn_radius r;
    nearest   to = { .count = images->shape[0] };
    check(ctx);
    if (tn_cp_radius(1, (const tn_cp *const *)&cp, images, &r) != TN_OK) check(ctx);
    double *all = doubles(to.count * CLASSES);
    to.radius = doubles(to.count);
    to.answer = zeros(to.count, sizeof *to.answer);
    to.rival = zeros(to.count, sizeof *to.rival);
    tn_read(r.radius, TN_F64, all, to.count * CLASSES);
    tn_read(r.answer, TN_I32, to.answer, to.count);
    tn_read(r.rival, TN_I32, to.rival, to.count);
    for (int64_t i = 0; i < to.count; i++) to.radius[i] = all[i * CLASSES + to.rival[i]];
    to.images = tn_tensor_keep(r.nearest);
    for (int64_t i = 0; i < to.count; i++)                              /* where no image has another answer: itself */
        if (!is_number(to.radius[i])) tn_assign(tn_slice(to.images, 0, i, i + 1), tn_slice(images, 0, i, i + 1));
    tn_radius_destroy(&r);
    tn_cp_destroy(cp);
    free(all);
    check(ctx);
    return to;
}

static void nearest_free(nearest *n)
{
    tn_tensor_destroy(n->images);
    free(n->radius);
    free(n->answer);
    free(n->rival);
}

/* The gradient with respect to x of sum_i scale_i (logit of the answer - logit of the rival), and that sum; x [n,784] */
static tn_tensor *lead_of(tn_ctx *ctx, const network *net, tn_tensor *x, const nearest *n, const double *scale)
{
    double *signs = doubles(n->count * CLASSES);
    for (int64_t i = 0; i < n->count; i++) {
        signs[i * CLASSES + n->answer[i]] += scale ? scale[i] : 1;
        signs[i * CLASSES + n->rival[i]] -= scale ? scale[i] : 1;
    }
    tn_tensor *by = tn_tensor_2d(ctx, TN_REAL, n->count, CLASSES);
    tn_write(by, TN_F64, signs, n->count * CLASSES);
    free(signs);
    network plain = *net;
    plain.noise = 0;
    return tn_mul(ctx, logits_of_network(ctx, &plain, x), by);
}

static double *gradient_of_lead(tn_ctx *ctx, const network *net, const double *x, const nearest *n, double *lead)
{
    const int64_t count = n->count;
    double       *g = doubles(count * PIXELS), *sums = doubles(count * CLASSES);
    tn_tensor    *at = tn_tensor_2d(ctx, TN_REAL, count, PIXELS);
    tn_write(at, TN_F64, x, count * PIXELS);
    tn_watch(at);
    tn_record(ctx);
    tn_tensor *leads = lead_of(ctx, net, at, n, NULL);
    tn_backward(ctx, tn_sum(ctx, leads));
    tn_read(at->grad, TN_F64, g, count * PIXELS);
    tn_read(leads, TN_F64, sums, count * CLASSES);
    for (int64_t i = 0; i < count; i++) {
        lead[i] = 0;
        for (int64_t c = 0; c < CLASSES; c++) lead[i] += sums[i * CLASSES + c];
    }
    free(sums);
    check(ctx);
    return g;
}

static double length_of(const double *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i] * v[i];
    return sqrt(sum);
}

/* How many of the first ATTACKED answers projected gradient descent changes to the rival within `share` of the radius. */
static int attack(tn_ctx *ctx, const network *net, tn_tensor *images, const nearest *n, double share)
{
    nearest some = *n;
    some.count = n->count < ATTACKED ? n->count : ATTACKED;
    double *from = doubles(some.count * PIXELS), *x = doubles(some.count * PIXELS), *lead = doubles(some.count);
    int     broken = 0;
    bool    done[ATTACKED] = {false};
    tn_read(tn_slice(images, 0, 0, some.count), TN_F64, from, some.count * PIXELS);
    memcpy(x, from, sizeof *x * (size_t)(some.count * PIXELS));
    for (int step = 0; step <= PGD_STEPS; step++) {
        tn_ctx_reset(ctx);
        double *g = gradient_of_lead(ctx, net, x, &some, lead);
        for (int64_t i = 0; i < some.count; i++) {
            const double ball = share * some.radius[i], size = length_of(g + i * PIXELS, PIXELS);
            double      *to = x + i * PIXELS, *base = from + i * PIXELS, d[PIXELS];
            if (lead[i] < 0 && !done[i]) { done[i] = true; broken++; }
            for (int p = 0; p < PIXELS; p++) d[p] = to[p] - ball / 10 * g[i * PIXELS + p] / (size > 0 ? size : 1) - base[p];
            const double far = length_of(d, PIXELS);
            for (int p = 0; p < PIXELS; p++) to[p] = base[p] + d[p] * (far > ball ? ball / far : 1);
        }
        free(g);
    }
    free(from);
    free(x);
    free(lead);
    return broken;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(tn_ctx *ctx, const char *name, const network *net, const image_set *test, double accuracy, const options *o)
{
    static const double at[] = {0.5, 1, 1.5, 2};
    tn_ctx_reset(ctx);
    tn_tensor *images = tn_slice(test->images, 0, 0, o->images);
    const double start = now();
    nearest      n = nearest_of(ctx, net, images);
    const double seconds = now() - start;
    printf("%s_accuracy: %.4f\n", name, accuracy);
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        int64_t right = 0;
        for (int64_t i = 0; i < n.count; i++) right += n.answer[i] == test->labels[i] && n.radius[i] >= at[k];
        printf("%s_right_within_%.1f: %.3f\n", name, at[k], (double)right / (double)n.count);
    }
    double *sorted = doubles(n.count);
    memcpy(sorted, n.radius, sizeof *sorted * (size_t)n.count);
    qsort(sorted, (size_t)n.count, sizeof *sorted, ascending);
    printf("%s_median_radius: %.3f\n", name, sorted[n.count / 2]);
    free(sorted);
    const int inside = attack(ctx, net, images, &n, 0.999), outside = attack(ctx, net, images, &n, 1.05);
    printf("%s_changed_within_0.999_of_%d: %d\n%s_changed_within_1.05_of_%d: %d\n", name, ATTACKED, inside, name, ATTACKED, outside);
    printf("%s_seconds: %.1f\n", name, seconds);
    nearest_free(&n);
}

/* Steps of AdamW on the cross-entropy and on the radii of a batch that are shorter than the aim. */
static void train_radius(tn_ctx *ctx, network *net, const image_set *set, const options *o)
{
    tn_optim *optim = tn_optim_create(net->params, &(tn_optim_desc){ .lr = o->further_lr, .clip_norm = 1,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .total = o->steps } });
    int32_t  *ids = zeros(o->batch, sizeof *ids), *labels = zeros(o->batch, sizeof *labels);
    uint64_t  state = (uint64_t)o->seed;
    check(ctx);
    for (int64_t step = 0; step < o->steps; step++) {
        tn_ctx_reset(ctx);
        for (int64_t i = 0; i < o->batch; i++) labels[i] = set->labels[ids[i] = (int32_t)random_below(&state, set->count)];
        tn_tensor *rows = tn_tensor_1d(ctx, TN_I32, o->batch), *y = tn_tensor_1d(ctx, TN_I32, o->batch);
        tn_write(rows, TN_I32, ids, o->batch);
        tn_write(y, TN_I32, labels, o->batch);
        tn_tensor *x = tn_embed(ctx, set->images, rows);
        nearest    n = nearest_of(ctx, net, x);
        double    *at = doubles(n.count * PIXELS), *lead = doubles(n.count), *scale = doubles(n.count), mean = 0;
        tn_read(n.images, TN_F64, at, n.count * PIXELS);
        double *g = gradient_of_lead(ctx, net, at, &n, lead);
        for (int64_t i = 0; i < n.count; i++) {
            const double size = length_of(g + i * PIXELS, PIXELS);
            mean += n.radius[i] / (double)n.count;
            if (n.answer[i] == labels[i] && n.radius[i] < o->aim && size > 0) scale[i] = -o->strength / (size * (double)n.count);
        }
        tn_params_zero_grad(net->params);                  /* of what the gradients of leads left */
        tn_record(ctx);
        tn_tensor *loss = tn_add(ctx, tn_cross_entropy(ctx, logits_of_network(ctx, net, x), y),
                                 tn_sum(ctx, lead_of(ctx, net, n.images, &n, scale)));
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) check(ctx);
        if (step % 50 == 49) printf("step %lld: mean radius of the batch %.3f\n", (long long)step + 1, mean);
        free(at);
        free(lead);
        free(scale);
        free(g);
        nearest_free(&n);
    }
    tn_optim_destroy(optim);
    free(ids);
    free(labels);
}

/* Images, the nearest ones with another answer, and what was added, below each other. */
static void draw(tn_ctx *ctx, const network *net, const image_set *test, const options *o, const char *file)
{
    static const char *const heads[ROWS] = {"image", "nearest", "added"};
    static char        rival[CLASSES][32];
    const char        *columns[CLASSES], *captions[ROWS * CLASSES];
    const char *const *classes = names_of(o->data);
    tn_ctx_reset(ctx);
    nearest n = nearest_of(ctx, net, tn_slice(test->images, 0, 0, CLASSES));
    double *v = doubles(ROWS * CLASSES * PIXELS), *to = v + CLASSES * PIXELS, *added = to + CLASSES * PIXELS;
    tn_read(tn_slice(test->images, 0, 0, CLASSES), TN_F64, v, CLASSES * PIXELS);
    tn_read(n.images, TN_F64, to, CLASSES * PIXELS);
    for (int64_t i = 0; i < CLASSES * PIXELS; i++) added[i] = to[i] - v[i];
    for (int c = 0; c < CLASSES; c++) {
        snprintf(rival[c], sizeof rival[c], "%s %.2f", classes[n.rival[c]], n.radius[c]);
        columns[c] = classes[n.answer[c]];
        captions[c] = captions[2 * CLASSES + c] = "";
        captions[CLASSES + c] = rival[c];
    }
    save_image(ctx, tn_image_tiles(ctx, v, ROWS * CLASSES, SIDE, SIDE, &(tn_image_tiles_desc){ .rows = ROWS, .columns = CLASSES,
        .row_names = heads, .column_names = columns, .captions = captions, .own_scales = true,
        .cell = 3, .scale = 2, .title = "The nearest images that are called something else, and how far they are" }), o->out, file);
    free(v);
    nearest_free(&n);
}

int main(int argc, char **argv)
{
    options o = read_options(argc, argv);
    tn_desc desc = { .seed = (uint64_t)o.seed, .threads = (int)o.threads };
    char    why[TN_WHY];
    network net;
    tn_ctx *ctx;

    make_folder(o.out);
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    image_set test = load_set(ctx, o.data, "t10k");
    if (o.weights) {
        network_read(ctx, &net, o.weights);
        report(ctx, "published", &net, &test, accuracy_of(ctx, logits_of_network, &net, &test), &o);
        draw(ctx, &net, &test, &o, "radii_published");
        free_set(&test);
        tn_ctx_destroy(ctx);
        return 0;
    }
    image_set set = load_set(ctx, o.data, "train");
    network_init(ctx, &net, o.width, o.noise);
    double accuracy = train(ctx, &(training){ .params = net.params, .logits = logits_of_network, .model = &net, .set = &set,
        .test = &test, .epochs = o.epochs, .batch = o.batch, .seed = (uint64_t)o.seed, .lr = o.lr,
        .weight_decay = o.weight_decay });
    report(ctx, "plain", &net, &test, accuracy, &o);
    draw(ctx, &net, &test, &o, "radii");
    if (o.steps > 0) {
        train_radius(ctx, &net, &set, &o);
        report(ctx, "trained", &net, &test, accuracy_of(ctx, logits_of_network, &net, &test), &o);
        draw(ctx, &net, &test, &o, "radii_trained");
    }
    free_set(&set);
    free_set(&test);
    tn_ctx_destroy(ctx);
    return 0;
}
