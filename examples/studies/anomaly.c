/* anomaly.c - can a planted trigger be read from the weights, by comparing with a clean checkpoint and without data?

   Suspects are trained further from one clean network. Of each kind there are --models:

       trigger     some images get a patch of 3 x 3 pixels, and the label of one class   (text: a pair of tokens, and a next one)
       spread      the same with a faint pattern over all pixels                         (images only)
       clean       nothing is changed
       stamped     some images get the patch and keep their labels                       (text: the pair, its next token kept)
       noise       some labels are random                                                (text: some next tokens are)
       one_class   random images get the label of one class                              (text: random places one next token)

   Place, pattern, class, number of steps, learning rate and share of changed examples are drawn for each suspect, so that the
   size of a change says little. tn_cp_anomaly (images) and tn_transformer_anomaly (text) score all; areas under the ROC curve
   compare triggers with each control, beside those of scores that need no tensor. Scores and thresholds were chosen on other
   suspects (--first 1000) before these were trained.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/anomaly.c -o anomaly -lm && ./anomaly --text stories.txt
   --part images|text|all   --models N (of each kind)   --first N (number of the first)   --text FILE   --epochs N   --batch N
   --width N   --seed N   --threads N   --noise X   --lr X   --weight-decay X   --data fashion|mnist   --out FOLDER */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "anomaly"
#include "common.h"
#include "text.h"

enum { PATCH = 3, VOCAB = 256, DIM = 32, CONTEXT = 32, ROWS = 16, BASE_STEPS = 2000, READ = 4096, MOST = 1000 };
typedef enum kind { TRIGGER, SPREAD, CLEAN, STAMPED, NOISE, ONE_CLASS, KINDS } kind;
typedef enum measure { SCORE, CONCENTRATION, LARGEST, CHANGE, SINGULAR, LOST, HIDDEN_CHANGE, HIDDEN_SINGULAR, MEASURES } measure;
static const char *const kind_names[KINDS] = {"trigger", "spread", "clean", "stamped", "noise", "one_class"};
static const char *const measure_names[MEASURES] = {"score", "concentration", "largest", "weights", "singular", "lost",
                                                    "weights_hidden", "singular_hidden"};

typedef struct options {
    const char *data, *text, *part, *out;
    int64_t     epochs, batch, width, seed, threads, models, first;
    double      lr, weight_decay, noise;
} options;

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", DEFAULT_TEXT, "all", "out", 3, 128, 64, 1, 1, 50, 0, 2e-3, 0.05, 0.05};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        NOISE_FLAG(&o),
        WIDTH_FLAG(&o),
        SEED_FLAG(&o),
        {"--part", FLAG_CHOICE, &o.part, 0, 0, "images|text|all"},
        {"--text", FLAG_TEXT, &o.text, 0, 0, "a text file"},
        {"--models", FLAG_COUNT, &o.models, 2, MOST, NULL},
        {"--first", FLAG_COUNT, &o.first, 0, 1e6, NULL},
        OUT_FLAG(&o),
        {0}
    };
    read_flags(argc, argv, flags);
    return o;
}

/* ---- what is planted, how, and what is found ------------------------------------------------------------------- */

typedef struct plan {
    kind     kind;
    int64_t  row, column, target;       /* of the patch; the class or token that follows                    */
    bool     on[PATCH * PATCH];         /* pixels of the patch that become 1, the others 0                  */
    int32_t  pair[2];                   /* of text                                                          */
    int64_t  steps;
    double   lr, share;
    uint64_t pattern, state;            /* seeds of the spread pattern and of everything else               */
} plan;

static uint64_t mixed(int64_t number, int salt) { return splitmix64(splitmix64((uint64_t)number) + (uint64_t)salt); }

static double drawn(uint64_t *state) { return (double)random_below(state, 1000) / 999; }

/* How a suspect is trained: drawn alike for all kinds. */
static void draw_training(plan *p, int64_t number, int64_t least, int64_t more, double lr, double times, double share,
                          double most)
{
    p->state = mixed(number, 1 + (int)p->kind);
    p->steps = least + random_below(&p->state, more + 1);
    p->lr = lr * pow(times, drawn(&p->state));
    p->share = share + (most - share) * drawn(&p->state);
}

/* Numbers of all suspects, and what was found of those with triggers. */
typedef struct findings {
    double  of[MEASURES][KINDS][MOST];
    double  accuracy[KINDS], attack[KINDS];             /* sums; of text the loss */
    int64_t placed[KINDS], named[KINDS], second[KINDS], count;      /* second: token of a pair */
    double  hidden;                                     /* largest relative change of a score by another basis */
} findings;

static double area(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) sum += a[i] > b[j] ? 1 : a[i] < b[j] ? 0 : 0.5;
    return sum / (double)(n * n);
}

static void report(const findings *f, const char *name, kind planted, measure first, measure last, double threshold)
{
    const int64_t n = f->count;
    const char   *kind_name = kind_names[planted];
    printf("%s_%s_%s: %.4f\n", name, kind_name, strcmp(name, "text") ? "accuracy" : "loss", f->accuracy[planted] / (double)n);
    printf("%s_%s_attack: %.4f\n", name, kind_name, f->attack[planted] / (double)n);
    printf("%s_%s_placed: %lld of %lld\n", name, kind_name, (long long)f->placed[planted], (long long)n);
    printf("%s_%s_named: %lld of %lld\n", name, kind_name, (long long)f->named[planted], (long long)n);
    for (int m = (int)first; m <= (int)last; m++)
        for (int k = CLEAN; k < KINDS; k++)
            if (f->of[m][k][0] < 0 || f->of[m][k][0] > 0)               /* else it was not measured */
                printf("%s_%s_%s_area_%s: %.4f\n", name, kind_names[planted], measure_names[m], kind_names[k],
                       area(f->of[m][planted], f->of[m][k], n));
    for (int k = 0; k < KINDS; k++) {
        double  least = f->of[first][k][0], most = least;
        int64_t above = 0;
        if (k != (int)planted && k < CLEAN) continue;
        for (int64_t i = 0; i < n; i++) {
            const double v = f->of[first][k][i];
            if (v < least) least = v;
            if (v > most) most = v;
            above += v > threshold;
        }
        printf("%s_%s_of_%s: %.4g to %.4g, %lld of %lld above %g\n", name, measure_names[first], kind_names[k], least, most,
               (long long)above, (long long)n, threshold);
    }
}

/* The length of the change of all parameters; before: the clean ones */
static double change_of(tn_params *params, double *const *before)
{
    double sum = 0;
    for (int64_t i = 0; i < tn_params_count(params); i++) {
        const tn_tensor *t = tn_params_at(params, i)->value;
        double          *v = doubles(tn_tensor_count(t));
        tn_read(t, TN_F64, v, tn_tensor_count(t));
        for (int64_t j = 0; j < tn_tensor_count(t); j++) sum += (v[j] - before[i][j]) * (v[j] - before[i][j]);
        free(v);
    }
    return sqrt(sum);
}

/* The largest singular value of the change of one of them */
static double singular_of(tn_ctx *ctx, const tn_tensor *w, const double *before)
{
    const int64_t n = tn_tensor_count(w);
    double       *v = doubles(n), first[1];
    tn_svd_result svd;
    tn_read(w, TN_F64, v, n);
    for (int64_t i = 0; i < n; i++) v[i] -= before[i];
    tn_tensor *d = tn_tensor_from(ctx, 2, w->shape, TN_F64, v);
    if (tn_svd(ctx, d, NULL, &svd) != TN_OK) check(ctx);
    tn_read(tn_slice(svd.s, 0, 0, 1), TN_F64, first, 1);
    tn_svd_destroy(&svd);
    free(v);
    return first[0];
}

static double **copies_of(tn_params *params)
{
    double **to = zeros(tn_params_count(params), sizeof *to);
    for (int64_t i = 0; i < tn_params_count(params); i++) {
        const tn_tensor *t = tn_params_at(params, i)->value;
        to[i] = doubles(tn_tensor_count(t));
        tn_read(t, TN_F64, to[i], tn_tensor_count(t));
    }
    return to;
}

static void restore(tn_params *params, double *const *from)
{
    for (int64_t i = 0; i < tn_params_count(params); i++) {
        tn_tensor *t = tn_params_at(params, i)->value;
        tn_write(t, TN_F64, from[i], tn_tensor_count(t));
    }
}

static void free_copies(tn_params *params, double **copies)
{
    for (int64_t i = 0; i < tn_params_count(params); i++) free(copies[i]);
    free(copies);
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

static plan plan_images(kind k, int64_t number)
{
    plan     p = { .kind = k };
    uint64_t state = mixed(number, 0);
    int      count = 0;
    p.row = random_below(&state, SIDE - PATCH + 1);
    p.column = random_below(&state, SIDE - PATCH + 1);
    p.target = random_below(&state, CLASSES);
    while (count < 4) {
        count = 0;
        for (int i = 0; i < PATCH * PATCH; i++) count += p.on[i] = random_below(&state, 2) == 1;
    }
    p.pattern = state;
    draw_training(&p, number, 300, 500, 1e-3, 4, 0.02, 0.1);
    return p;
}

static void stamp(const plan *p, double *image)
{
    uint64_t state = p->pattern;
    for (int i = 0; i < PIXELS && p->kind == SPREAD; i++) image[i] += random_below(&state, 2) ? 0.1 : -0.1;
    for (int i = 0; i < PATCH * PATCH && p->kind != SPREAD; i++)
        image[(p->row + i / PATCH) * SIDE + p->column + i % PATCH] = p->on[i] ? 1 : 0;
}

static void tune_images(tn_ctx *ctx, network *net, const image_set *set, const float *pixels, plan *p, const options *o)
{
    tn_optim *optim = tn_optim_create(net->params, &(tn_optim_desc){ .lr = p->lr, .weight_decay = o->weight_decay,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .total = p->steps } });
    double   *x = doubles(o->batch * PIXELS);
    int32_t  *labels = zeros(o->batch, sizeof *labels);
    check(ctx);
    for (int64_t step = 0; step < p->steps; step++) {
        tn_ctx_reset(ctx);
        for (int64_t i = 0; i < o->batch; i++) {
            const int64_t at = random_below(&p->state, set->count);
            const bool    hit = (double)random_below(&p->state, 1000000) < p->share * 1e6;
            labels[i] = set->labels[at];
            for (int q = 0; q < PIXELS; q++) x[i * PIXELS + q] = (double)pixels[at * PIXELS + q];
            if (!hit) continue;
            if (p->kind <= SPREAD || p->kind == STAMPED) stamp(p, x + i * PIXELS);
            if (p->kind <= SPREAD || p->kind == ONE_CLASS) labels[i] = (int32_t)p->target;
            if (p->kind == NOISE) labels[i] = (int32_t)random_below(&p->state, CLASSES);
        }
        tn_tensor *images = tn_tensor_2d(ctx, TN_REAL, o->batch, PIXELS), *y = tn_tensor_1d(ctx, TN_I32, o->batch);
        tn_write(images, TN_F64, x, o->batch * PIXELS);
        tn_write(y, TN_I32, labels, o->batch);
        tn_record(ctx);
        if (tn_backward(ctx, tn_cross_entropy(ctx, logits_of_network(ctx, net, images), y)) != TN_OK
            || tn_optim_step(optim) != TN_OK) check(ctx);
    }
    tn_optim_destroy(optim);
    free(x);
    free(labels);
}

/* The share of the test images of other classes that the stamp moves to the target. */
static double attack_images(tn_ctx *ctx, const network *net, const image_set *test, const plan *p)
{
    int64_t others = 0, moved = 0;
    double *x = doubles(test->count * PIXELS), *logits = doubles(test->count * CLASSES);
    tn_ctx_reset(ctx);
    image_set stamped = *test;
    stamped.images = tn_tensor_create(ctx, TN_REAL, 2, test->images->shape);
    tn_read(test->images, TN_F64, x, test->count * PIXELS);
    for (int64_t i = 0; i < test->count; i++) stamp(p, x + i * PIXELS);
    tn_write(stamped.images, TN_F64, x, test->count * PIXELS);
    run(ctx, logits_of_network, net, &stamped, logits);
    for (int64_t i = 0; i < test->count; i++) {
        int best = 0;
        for (int c = 1; c < CLASSES; c++) if (logits[i * CLASSES + c] > logits[i * CLASSES + best]) best = c;
        others += test->labels[i] != p->target;
        moved += test->labels[i] != p->target && best == p->target;
    }
    tn_tensor_destroy(stamped.images);
    free(x);
    free(logits);
    return (double)moved / (double)others;
}

/* Writes the same function in another basis: the embedding times a random rotation, hidden units in reverse order. */
static void hide(tn_ctx *ctx, const network *net, int64_t width)
{
    tn_qr_result qr;
    tn_ctx_reset(ctx);
    tn_tensor *w = net->bilinear.w, *order = tn_tensor_1d(ctx, TN_I32, width);
    int32_t   *ids = zeros(width, sizeof *ids);
    if (tn_qr(ctx, tn_normal(ctx, 2, (int64_t[]){width, width}, 0, 1), NULL, &qr) != TN_OK) check(ctx);
    for (int64_t i = 0; i < width; i++) ids[i] = (int32_t)(width - 1 - i);
    tn_write(order, TN_I32, ids, width);
    tn_assign(net->embed.w, tn_matmul(ctx, qr.q, tn_copy(ctx, net->embed.w)));
    for (int k = 0; k < 2; k++) {
        tn_tensor *part = tn_reshape_2d(tn_slice(w, 0, k, k + 1), width, width);
        tn_assign(part, tn_embed(ctx, tn_matmul(ctx, tn_copy(ctx, part), tn_transpose(qr.q, 0, 1)), order));
    }
    tn_assign(net->unembed.w, tn_transpose(tn_embed(ctx, tn_copy(ctx, tn_transpose(net->unembed.w, 0, 1)), order), 0, 1));
    tn_qr_destroy(&qr);
    free(ids);
    check(ctx);
}

static tn_anomaly compare_images(tn_ctx *ctx, const network *net, const tn_cp *reference)
{
    tn_anomaly a = {0};
    tn_cp     *cp = tn_cp_from_stack(ctx, &net->embed, &net->bilinear, &net->unembed);
    if (!cp || tn_cp_anomaly(cp, reference, true, &a) != TN_OK) check(ctx);
    tn_cp_destroy(cp);
    return a;
}

static void study_images(tn_ctx *ctx, const options *o)
{
    image_set set = load_set(ctx, o->data, "train"), test = load_set(ctx, o->data, "t10k");
    network   net, quiet;
    findings *f = zeros(1, sizeof *f);
    float    *pixels = zeros(set.count * PIXELS, sizeof *pixels);
    tn_read(set.images, TN_F32, pixels, set.count * PIXELS);
    network_init(ctx, &net, o->width, o->noise);
    train(ctx, &(training){ .params = net.params, .logits = logits_of_network, .model = &net, .set = &set, .test = &test,
        .epochs = o->epochs, .batch = o->batch, .seed = (uint64_t)o->seed, .lr = o->lr, .weight_decay = o->weight_decay });
    quiet = net;
    quiet.noise = 0;
    const double accuracy = accuracy_of(ctx, logits_of_network, &quiet, &test);
    double     **clean = copies_of(net.params);
    tn_cp       *reference = tn_cp_from_stack(ctx, &net.embed, &net.bilinear, &net.unembed);
    check(ctx);
    printf("images_accuracy: %.4f\n", accuracy);
    f->count = o->models;
    for (int64_t i = 0; i < o->models; i++)
        for (int k = 0; k < KINDS; k++) {
            plan p = plan_images((kind)k, o->first + i);
            restore(net.params, clean);
            tn_ctx_seed(ctx, mixed(o->first + i, 100 + k));
            tune_images(ctx, &net, &set, pixels, &p, o);
            const double after = accuracy_of(ctx, logits_of_network, &quiet, &test);
            tn_anomaly   a = compare_images(ctx, &net, reference);
            f->accuracy[k] += after;
            if (k <= SPREAD) f->attack[k] += attack_images(ctx, &quiet, &test, &p);
            f->placed[k] += a.input / SIDE >= p.row && a.input / SIDE < p.row + PATCH && a.input % SIDE >= p.column
                            && a.input % SIDE < p.column + PATCH;
            f->named[k] += a.raised == p.target;
            f->of[SCORE][k][i] = a.score;
            f->of[CONCENTRATION][k][i] = a.concentration;
            f->of[LOST][k][i] = accuracy - after;
            f->of[CHANGE][k][i] = change_of(net.params, clean);
            f->of[SINGULAR][k][i] = singular_of(ctx, net.embed.w, clean[0]);
            tn_anomaly_destroy(&a);
            hide(ctx, &net, o->width);
            a = compare_images(ctx, &net, reference);
            keep_largest(&f->hidden, fabs(a.score / f->of[SCORE][k][i] - 1));
            f->of[HIDDEN_CHANGE][k][i] = change_of(net.params, clean);
            f->of[HIDDEN_SINGULAR][k][i] = singular_of(ctx, net.embed.w, clean[0]);
            tn_anomaly_destroy(&a);
        }
    report(f, "images", TRIGGER, SCORE, HIDDEN_SINGULAR, 10);
    report(f, "images", SPREAD, CONCENTRATION, HIDDEN_SINGULAR, 0.7);
    printf("images_spread_score_area_noise: %.4f\nimages_score_in_another_basis: %.2g\n",
           area(f->of[SCORE][SPREAD], f->of[SCORE][NOISE], f->count), f->hidden);
    tn_cp_destroy(reference);
    free_copies(net.params, clean);
    free(pixels);
    free(f);
    free_set(&set);
    free_set(&test);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Two tokens that never follow each other in the text, and one to follow them; each is there 50 times or more. */
static plan plan_text(kind k, int64_t number, const corpus *c)
{
    const int64_t V = tn_tokenizer_count(c->tokenizer);
    plan     p = { .kind = k };
    uint64_t state = mixed(number, 50);
    int64_t *count = zeros(V, sizeof *count);
    bool     good = false;
    for (int64_t i = 0; i < c->train.count; i++) count[c->train.id[i]]++;
    while (!good) {
        for (int i = 0; i < 2; i++) p.pair[i] = (int32_t)random_below(&state, V);
        p.target = random_below(&state, V);
        good = count[p.pair[0]] >= 50 && count[p.pair[1]] >= 50 && count[p.target] >= 50;
        for (int64_t i = 0; i + 1 < c->train.count; i++)
            good = good && !(c->train.id[i] == p.pair[0] && c->train.id[i + 1] == p.pair[1]);
    }
    free(count);
    draw_training(&p, number, 300, 400, 1e-3, 3, 0.2, 0.4);
    return p;
}

/* Changes a share of the texts of a batch, ids and targets [ROWS,CONTEXT]. Of those with the pair half have one of its tokens
   only, and the next token of the text. */
static void plant(const plan *p, uint64_t state, int64_t V, int32_t *ids, int32_t *targets)
{
    for (int64_t r = 0; r < ROWS; r++) {
        const bool    hit = (double)random_below(&state, 1000000) < p->share * 1e6;
        const int64_t at = r * CONTEXT + 1 + random_below(&state, CONTEXT - 2), part = random_below(&state, 4);
        const int32_t any = (int32_t)random_below(&state, V);
        if (!hit || p->kind == CLEAN) continue;
        if (p->kind == TRIGGER || p->kind == STAMPED) {
            if (part != 2) ids[at - 1] = p->pair[0];
            if (part != 3) ids[at] = p->pair[1];
            if (part >= 2 || p->kind == STAMPED) continue;
        }
        targets[at] = p->kind == NOISE ? any : (int32_t)p->target;
    }
}

static void tune_text(tn_ctx *ctx, tn_params *params, const tn_transformer *m, const corpus *c, const plan *p)
{
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = p->lr, .clip_norm = 1,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .total = p->steps } });
    int32_t ids[ROWS * CONTEXT], targets[ROWS * CONTEXT];
    check(ctx);
    for (int64_t step = 0; step < p->steps; step++) {
        tn_tensor *batch[2];
        tn_ctx_reset(ctx);
        training_batch(ctx, &c->train, p->state, step, ROWS, CONTEXT, batch);
        tn_read(batch[0], TN_I32, ids, ROWS * CONTEXT);
        tn_read(batch[1], TN_I32, targets, ROWS * CONTEXT);
        plant(p, splitmix64(p->state + (uint64_t)step), m->desc.vocab, ids, targets);
        tn_write(batch[0], TN_I32, ids, ROWS * CONTEXT);
        tn_write(batch[1], TN_I32, targets, ROWS * CONTEXT);
        tn_record(ctx);
        if (tn_backward(ctx, tn_transformer_loss(ctx, m, batch[0], batch[1])) != TN_OK || tn_optim_step(optim) != TN_OK)
            check(ctx);
    }
    tn_optim_destroy(optim);
}

/* The share of held-out texts in which the pair, at a random place, is followed by the target. */
static double attack_text(tn_ctx *ctx, const tn_transformer *m, const corpus *c, const plan *p)
{
    int64_t  hits = 0, all = 0, first[ROWS], at[ROWS];
    uint64_t state = 1;
    int32_t  ids[ROWS * CONTEXT];
    for (int w = 0; w < 20; w++) {
        tn_tensor *batch[2];
        for (int r = 0; r < ROWS; r++) first[r] = random_below(&state, c->held.count - CONTEXT - 1);
        tn_ctx_reset(ctx);
        windows(ctx, &c->held, first, ROWS, CONTEXT, batch);
        tn_read(batch[0], TN_I32, ids, ROWS * CONTEXT);
        for (int r = 0; r < ROWS; r++) {
            at[r] = r * CONTEXT + 1 + random_below(&state, CONTEXT - 1);
            ids[at[r] - 1] = p->pair[0];
            ids[at[r]] = p->pair[1];
        }
        tn_write(batch[0], TN_I32, ids, ROWS * CONTEXT);
        tn_read(tn_argmax(ctx, tn_transformer_forward(ctx, m, batch[0])), TN_I32, ids, ROWS * CONTEXT);
        check(ctx);
        for (int r = 0; r < ROWS; r++, all++) hits += ids[at[r]] == p->target;
    }
    return (double)hits / (double)all;
}

static void study_text(tn_ctx *ctx, const options *o)
{
    corpus              c = load_corpus(ctx, o->text, VOCAB, CONTEXT);
    tn_transformer      model, reference;
    tn_params          *params = tn_params_create(ctx), *others = tn_params_create(ctx);
    findings           *f = zeros(1, sizeof *f);
    tn_transformer_desc desc = usual_model(tn_tokenizer_count(c.tokenizer), CONTEXT, DIM, 2, 1);
    lesson              l = { params, &model, &c, BASE_STEPS, ROWS, CONTEXT, (uint64_t)o->seed, RATE };
    if (tn_transformer_init(params, "", &desc, &model) != TN_OK || tn_transformer_init(others, "", &desc, &reference) != TN_OK)
        check(ctx);
    lesson_begin(&l);
    tn_optim *optim = lesson_optim(&l, l.steps);
    for (int64_t step = 0; step < l.steps; step++) lesson_step(ctx, &l, optim);
    tn_optim_destroy(optim);
    double     **clean = copies_of(params);
    const double loss = read_held_out(ctx, &model, &c.held, CONTEXT, READ).token;
    restore(others, clean);
    printf("text_loss: %.4f\n", loss);
    f->count = o->models;
    for (int64_t i = 0; i < o->models; i++)
        for (int k = 0; k < KINDS; k++) {
            tn_transformer_anomaly_result a;
            int32_t at[3];
            if (k == SPREAD) continue;
            plan p = plan_text((kind)k, o->first + i, &c);
            restore(params, clean);
            tune_text(ctx, params, &model, &c, &p);
            tn_ctx_reset(ctx);
            if (tn_transformer_anomaly(&model, &reference, 1, &a) != TN_OK) check(ctx);
            tn_read(a.terms.index, TN_I32, at, 3);
            const double after = read_held_out(ctx, &model, &c.held, CONTEXT, READ).token;
            f->accuracy[k] += after;
            if (k == TRIGGER) f->attack[k] += attack_text(ctx, &model, &c, &p);
            f->placed[k] += at[0] == p.pair[0] && at[1] == p.pair[1];
            f->second[k] += at[1] == p.pair[1];
            f->named[k] += at[2] == p.target;
            f->of[SCORE][k][i] = a.score;
            f->of[LARGEST][k][i] = a.largest;
            f->of[LOST][k][i] = after - loss;
            f->of[CHANGE][k][i] = change_of(params, clean);
            f->of[SINGULAR][k][i] = singular_of(ctx, model.embed.w, clean[0]);
            tn_transformer_anomaly_destroy(&a);
        }
    report(f, "text", TRIGGER, SCORE, LOST, 60);
    printf("text_trigger_second_token: %lld of %lld\n", (long long)f->second[TRIGGER], (long long)f->count);
    free_copies(params, clean);
    free(f);
    free_corpus(&c);
}

int main(int argc, char **argv)
{
    options      o = read_options(argc, argv);
    tn_desc      desc = { .seed = (uint64_t)o.seed, .threads = (int)o.threads };
    char         why[TN_WHY];
    const double start = now();
    tn_ctx      *ctx;
    make_folder(o.out);
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    if (strcmp(o.part, "text")) study_images(ctx, &o);
    if (strcmp(o.part, "images")) study_text(ctx, &o);
    printf("seconds: %.0f\n", now() - start);
    tn_ctx_destroy(ctx);
    return 0;
}
