/* modifier.c - what does a layer lose when it may modify its features only a little?

   y = P (m(x) * V x) + p with m(x) = 1 + W x: V x are the default features, W x says by how much each is modified. A penalty on W x, a
   low rank of W and rounded modifications each make them simpler (Sharkey 2023, footnote 5); this trains every combination on images and
   prints loss and accuracy on images it has not seen. Without W the layer is linear: that is what the loss rises to.

   sh examples/get_data.sh fashion        (without it: a synthetic task, whose labels need products of inputs)
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/modifier.c -o modifier -lm && ./modifier
   --images N   --epochs N   --hidden N   --seed N   --threads N   --out FOLDER */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "modifier"
#include "program.h"

enum { CLASSES = 10, BATCH = 100, TESTED = 2000, STRENGTHS = 4, RANKS = 3, STEPS = 3, CURVE = 7 };

static const double  strengths[STRENGTHS] = {0, 0.1, 1, 10}, steps[STEPS] = {0, 0.5, 2}, curve[CURVE] = {0.01, 0.03, 0.1, 0.3, 1, 3, 10};
static const int64_t ranks[RANKS] = {0, 8, 1};

typedef struct options { int64_t images, epochs, hidden, seed, threads; const char *out; } options;

typedef struct task {
    const char *name;
    tn_tensor  *x[2];               /* [count,n] to train with, to test with */
    int32_t    *labels[2];
    int64_t     count[2], n;
} task;

typedef struct result { double loss, accuracy, size, fold_error; } result;       /* size: mean |W x| on the test set */

static options read_options(int argc, char **argv)
{
    options    o = {10000, 3, 64, 1, 0, "out"};
    const flag flags[] = {
        {"--images", FLAG_COUNT, &o.images, BATCH, 1e7, NULL},
        {"--epochs", FLAG_COUNT, &o.epochs, 1, 1000, NULL},
        {"--hidden", FLAG_COUNT, &o.hidden, 1, 4096, NULL},
        SEED_FLAG(&o),
        THREADS_FLAG(&o),
        OUT_FLAG(&o),
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

/* ---- the task ---------------------------------------------------------------- */

static bool there(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f) fclose(f);
    return f != NULL;
}

static int32_t *labels_room(int64_t n)
{
    int32_t *v = malloc(sizeof *v * (size_t)n);
    if (!v) stop("no memory for the labels");
    return v;
}

static void load_half(tn_ctx *ctx, task *t, int which, const char *images_path, const char *labels_path)
{
    tn_tensor *images = tn_idx_load(ctx, images_path, 1 / 255.0), *labels = tn_idx_load(ctx, labels_path, 0);
    check(ctx);
    if (images->rank != 3 || labels->rank != 1 || labels->shape[0] != images->shape[0]) stop("images and labels do not fit each other");
    if (t->count[which] > images->shape[0]) t->count[which] = images->shape[0];
    t->n = images->shape[1] * images->shape[2];
    t->x[which] = tn_tensor_keep(tn_slice(tn_reshape_2d(images, images->shape[0], t->n), 0, 0, t->count[which]));
    t->labels[which] = labels_room(t->count[which]);
    tn_read(tn_slice(labels, 0, 0, t->count[which]), TN_I32, t->labels[which], t->count[which]);
    check(ctx);
    for (int64_t i = 0; i < t->count[which]; i++) if (t->labels[which][i] < 0 || t->labels[which][i] >= CLASSES)
        stop("a label is not one of 0 to 9");
    tn_tensor_destroy(images);
    tn_tensor_destroy(labels);
}

/* Normal inputs; the label is the largest of ten random quadratic forms of rank 2. */
static void make_half(tn_ctx *ctx, task *t, int which, const tn_cp *teacher)
{
    int64_t shape[2];
    shape[0] = t->count[which];
    shape[1] = t->n;
    t->x[which] = tn_tensor_keep(tn_normal(ctx, 2, shape, 0, 1));
    t->labels[which] = labels_room(t->count[which]);
    tn_read(tn_argmax(ctx, tn_cp_apply(ctx, teacher, t->x[which])), TN_I32, t->labels[which], t->count[which]);
    check(ctx);
}

static task task_make(tn_ctx *ctx, const options *o)
{
    task t;
    memset(&t, 0, sizeof t);
    t.count[0] = o->images;
    t.count[1] = TESTED;
    if (there("data/fashion/train-images-idx3-ubyte") && there("data/fashion/t10k-images-idx3-ubyte")) {
        t.name = "Fashion-MNIST";
        load_half(ctx, &t, 0, "data/fashion/train-images-idx3-ubyte", "data/fashion/train-labels-idx1-ubyte");
        load_half(ctx, &t, 1, "data/fashion/t10k-images-idx3-ubyte", "data/fashion/t10k-labels-idx1-ubyte");
    } else {
        tn_params *params = tn_params_create(ctx);
        tn_mlp     teacher;
        t.name = "synthetic (no data/fashion: sh examples/get_data.sh fashion)";
        t.n = 32;
        tn_mlp_init(params, "teacher", &(tn_mlp_desc){ .in = t.n, .hidden = 2 * CLASSES, .out = CLASSES,
                    .init.rule = TN_INIT_NORMAL, .init_out.rule = TN_INIT_NORMAL }, &teacher);
        tn_cp *cp = tn_cp_from_mlp(ctx, &teacher);
        check(ctx);
        make_half(ctx, &t, 0, cp);
        make_half(ctx, &t, 1, cp);
        tn_cp_destroy(cp);
        tn_params_destroy(params);
    }
    tn_ctx_reset(ctx);
    return t;
}

static tn_tensor *labels_of(tn_ctx *ctx, const int32_t *labels, int64_t n)
{
    tn_tensor *y = tn_tensor_1d(ctx, TN_I32, n);
    tn_write(y, TN_I32, labels, n);
    return y;
}

/* ---- training, testing ---------------------------------------------------------- */

static result test(tn_ctx *ctx, const tn_modifier *layer, const task *t)
{
    result r;
    tn_ctx_reset(ctx);
    tn_tensor *x = t->x[1];
    tn_tensor *labels = labels_of(ctx, t->labels[1], t->count[1]);
    tn_tensor *y = tn_modifier_forward(ctx, layer, x, NULL);
    tn_tensor *z = layer->w ? tn_affine(ctx, x, layer->w, NULL)
                   : tn_affine(ctx, tn_affine(ctx, x, layer->wb, NULL), layer->wa, NULL);
    r.loss = tn_item(tn_cross_entropy(ctx, y, labels));
    r.accuracy = tn_item(tn_accuracy(ctx, y, labels));
    r.size = tn_item(tn_mean(ctx, tn_activation(ctx, z, TN_ACT_ABS)));
    r.fold_error = 0;
    if (layer->desc.step == 0) {                          /* the same layer as one operator on [x;1] */
        tn_cp     *cp = tn_cp_from_modifier(ctx, layer);
        tn_tensor *d = tn_sub(ctx, tn_cp_apply(ctx, cp, x), y);
        r.fold_error = sqrt(tn_item(tn_mean(ctx, tn_mul(ctx, d, d))) / tn_item(tn_mean(ctx, tn_mul(ctx, y, y))));
        tn_cp_destroy(cp);
    }
    check(ctx);
    return r;
}

static result train(tn_ctx *ctx, const task *t, const options *o, tn_modifier_desc desc, double strength)
{
    int64_t     per_epoch = t->count[0] / BATCH;
    tn_modifier layer;
    tn_ctx_seed(ctx, (uint64_t)o->seed);                  /* all runs begin with the same V and P */
    tn_params *params = tn_params_create(ctx);
    desc.in = t->n;
    desc.hidden = o->hidden;
    desc.out = CLASSES;
    desc.out_bias = true;
    tn_modifier_init(params, "modifier", &desc, &layer);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){
        .lr = 3e-3, .schedule = { .kind = TN_SCHEDULE_COSINE, .warmup = per_epoch / 4, .total = per_epoch * o->epochs } });
    check(ctx);
    for (int64_t epoch = 0; epoch < o->epochs; epoch++)
        for (int64_t first = 0; first + BATCH <= t->count[0]; first += BATCH) {
            tn_tensor *penalty;
            tn_ctx_reset(ctx);
            tn_tensor *labels = labels_of(ctx, t->labels[0] + first, BATCH);
            tn_record(ctx);
            tn_tensor *y = tn_modifier_forward(ctx, &layer, tn_slice(t->x[0], 0, first, first + BATCH), &penalty);
            tn_tensor *loss = tn_add(ctx, tn_cross_entropy(ctx, y, labels), tn_scale(ctx, penalty, strength));
            if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) stop(tn_ctx_error(ctx));
        }
    result r = test(ctx, &layer, t);
    tn_optim_destroy(optim);
    tn_params_destroy(params);
    return r;
}

/* ---- what comes out ---------------------------------------------------------------- */

static double worst_fold;

static result one(tn_ctx *ctx, const task *t, const options *o, tn_penalty penalty, double strength, int64_t rank, double step)
{
    result r = train(ctx, t, o, (tn_modifier_desc){ .rank = rank, .step = step, .penalty = penalty }, strength);
    keep_largest(&worst_fold, r.fold_error);
    return r;
}

static void draw(tn_ctx *ctx, const task *t, const options *o, const double *l1, const double *l2, const double *slim, double linear)
{
    char   caption[160];
    double level[CURVE];
    for (int i = 0; i < CURVE; i++) level[i] = linear;
    snprintf(caption, sizeof caption, "%s, %lld images, %lld features", t->name, (long long)t->count[0], (long long)o->hidden);
    make_folder(o->out);
    printf("\npicture:\n");
    save_image(ctx, tn_image_plot(ctx, (const tn_image_series[]){
        { .name = "L1", .x = curve, .y = l1, .count = CURVE }, { .name = "L2", .x = curve, .y = l2, .count = CURVE },
        { .name = "L1, rank 1", .x = curve, .y = slim, .count = CURVE },
        { .name = "linear: no W", .x = curve, .y = level, .count = CURVE, .dashed = true } }, 4,
        &(tn_image_plot_desc){ .title = "A penalty on the modifier: loss of the test set", .caption = caption,
        .x_title = "strength of the penalty on W x", .y_title = "test loss", .log_x = true, .scale = 2 }),
        o->out, "modifier");
    printf("\n");
}

int main(int argc, char **argv)
{
    options o = read_options(argc, argv);
    double  start = now(), l1[CURVE], l2[CURVE], slim[CURVE];
    tn_ctx *ctx;
    tn_desc desc;
    result  grid[STEPS][RANKS][STRENGTHS];
    char    why[TN_WHY];
    memset(&desc, 0, sizeof desc);
    desc.seed = (uint64_t)o.seed;
    desc.threads = (int)o.threads;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    task t = task_make(ctx, &o);
    printf("%s: %lld inputs, %lld examples, %lld to test with; %lld features, %lld epochs\n", t.name, (long long)t.n, (long long)t.count[0],
           (long long)t.count[1], (long long)o.hidden, (long long)o.epochs);
    printf("\ntest loss, accuracy and mean |W x| by the strength of an L1 penalty, the rank of W, and the step W x is rounded to\n");
    printf("%-6s %-6s", "step", "rank");
    for (int p = 0; p < STRENGTHS; p++) printf("  %-21s", p == 0 ? "no penalty" : p == 1 ? "0.1" : p == 2 ? "1" : "10");
    printf("\n");
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < RANKS; r++) {
            char rank[24];
            snprintf(rank, sizeof rank, "%lld", (long long)ranks[r]);
            printf("%-6g %-6s", steps[s], ranks[r] ? rank : "full");
            for (int p = 0; p < STRENGTHS; p++) {
                result *g = &grid[s][r][p];
                *g = one(ctx, &t, &o, TN_PENALTY_L1, strengths[p], ranks[r], steps[s]);
                printf("  %.4f  %.3f  %-6.3f", g->loss, g->accuracy, g->size);
                fflush(stdout);
            }
            printf("\n");
        }
    result linear = one(ctx, &t, &o, TN_PENALTY_L1, 0, 0, 1e9); /* every modification rounds to 0 */
    printf("linear        %8.4f  %.3f\n", linear.loss, linear.accuracy);
    printf("\n%-9s %-24s %-24s %s\n", "strength", "L1: loss, acc, |W x|", "L2: loss, acc, |W x|", "L1, rank 1: loss, acc, |W x|");
    for (int p = 0; p < CURVE; p++) {
        result a = one(ctx, &t, &o, TN_PENALTY_L1, curve[p], 0, 0), b = one(ctx, &t, &o, TN_PENALTY_L2, curve[p], 0, 0), c = one(ctx, &t, &o, TN_PENALTY_L1, curve[p], 1, 0);
        l1[p] = a.loss;
        l2[p] = b.loss;
        slim[p] = c.loss;
        printf("%-9g %.4f  %.3f  %-8.4f %.4f  %.3f  %-8.4f %.4f  %.3f  %.4f\n", curve[p], a.loss, a.accuracy, a.size, b.loss, b.accuracy, b.size, c.loss, c.accuracy, c.size);
        fflush(stdout);
    }
    draw(ctx, &t, &o, l1, l2, slim, linear.loss);
    printf("loss_free: %.4f\nloss_l1_1: %.4f\nloss_l1_10: %.4f\nloss_rank_1: %.4f\nloss_step_2: %.4f\nloss_linear: %.4f\n", grid[0][0][0].loss,
           grid[0][0][2].loss, grid[0][0][3].loss, grid[0][2][0].loss, grid[2][0][0].loss, linear.loss);
    printf("accuracy_free: %.4f\naccuracy_linear: %.4f\nmodification_free: %.4f\nmodification_l1_1: %.4f\nfold_error: %.2g\nseconds: %.1f\n", grid[0][0][0].accuracy,
           linear.accuracy, grid[0][0][0].size, grid[0][0][2].size, worst_fold, now() - start);
    tn_ctx_destroy(ctx);
    free(t.labels[0]);
    free(t.labels[1]);
    return 0;
}
