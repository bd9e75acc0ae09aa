/* autoencoder.c - sparse autoencoders with a linear and with a bilinear encoder, side by side

   Activations x are written as a mean plus a few of m directions, the rows d_i of a dictionary:

       z = W (x - c) + b                 or, bilinear,   z = (W (x - c) + b) * (V (x - c) + a)
       y = c + sum of max(z_i, 0) d_i over the k largest z_i              (Gao et al. 2024, arXiv 2406.04093)

   trained for the least |x - y|^2. The bilinear encoder is a quadratic form in x for each latent, which can be read as any
   interaction matrix; it begins as the linear one, with V = 0 and a = 1. Both see the same data in the same order. Printed
   beside them: the unexplained variance of the k largest principal components, which may not choose k of m, and of the
   dictionary before training. The rows d_i, of length 1, are a basis for tn_cp_dictionary and tn_modified_features.

   --activations FILE.npy has the activations, [..,d]; they are for example written by `tn cache`. Without it the data are
   made of a known dictionary of 96 directions in 48 dimensions, 4 of them at a time, and `found` is the mean over the true
   directions of the largest |cosine| with a learned one.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/autoencoder.c -o autoencoder -lm && ./autoencoder
   --activations FILE   --latents N   --active N   --steps N   --batch N   --lr X   --seed N   --threads N   --out FOLDER
                                                               (in the folder of tensornet.h) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "autoencoder"
#include "program.h"

enum { TRUE_FEATURES = 96, TRUE_DIM = 48, TRUE_ACTIVE = 4, TRUE_COUNT = 40000, EVALUATED = 2000 };
enum { LINEAR, BILINEAR, KINDS };
static const char *const kind_name[KINDS] = {"linear", "bilinear"};
#define HELD_OUT 0.1                    /* of the rows, the last */

typedef struct options {
    const char *file, *out;
    int64_t     latents, active, steps, batch, seed, threads;
    double      lr;
} options;

typedef struct activations {            /* divided by their root mean square distance from the mean */
    tn_tensor *x;                       /* [count,d]                      */
    tn_tensor *mean;                    /* [d] of the trained rows        */
    tn_tensor *truth;                   /* [TRUE_FEATURES,d] or NULL      */
    int64_t    count, train, d;
} activations;

/* ---- data ---------------------------------------------------------------------------------------------------------- */

/* Rows of length 1. */
static tn_tensor *unit_rows(tn_ctx *ctx, tn_tensor *t)
{
    tn_tensor *length = tn_sqrt(ctx, tn_einsum(ctx, "ij,ij->i", 2, (tn_tensor *[]){t, t}));
    return tn_div(ctx, t, tn_reshape_2d(length, t->shape[0], 1));
}

static tn_tensor *made_up(tn_ctx *ctx, tn_tensor **truth)
{
    int64_t    shape[2] = {TRUE_FEATURES, TRUE_DIM}, chosen[2] = {TRUE_COUNT, TRUE_FEATURES};
    int64_t    some[2] = {TRUE_COUNT, TRUE_ACTIVE};
    tn_tensor *ids, *x;
    *truth = tn_tensor_keep(unit_rows(ctx, tn_normal(ctx, 2, shape, 0, 1)));
    tn_topk(ctx, tn_uniform(ctx, 2, chosen, 0, 1), 1, TRUE_ACTIVE, TN_ORDER_LARGEST, &ids);
    x = tn_einsum(ctx, "bk,bkd->bd", 2, (tn_tensor *[]){tn_uniform(ctx, 2, some, 0.5, 1.5), tn_embed(ctx, *truth, ids)});
    return tn_tensor_keep(x);
}

static activations load(tn_ctx *ctx, const options *o)
{
    activations a = {0};
    tn_tensor  *x = o->file ? tn_npy_load(ctx, o->file) : made_up(ctx, &a.truth), *flat, *centred;
    double      size;
    check(ctx);
    if (x->rank < 2 || x->shape[x->rank - 1] < 1) stop("the activations must have a shape [..,d]");
    a.d = x->shape[x->rank - 1];
    a.count = tn_tensor_count(x) / a.d;
    a.train = (int64_t)((1 - HELD_OUT) * (double)a.count);
    if (a.train < o->batch || a.count - a.train < 2) {
        fprintf(stderr, PROGRAM ": there are %lld activations, expected at least %lld: a batch of %lld, and as many as "
                "make a tenth held out\n",
                (long long)a.count, (long long)(o->batch * 10 / 9 + 20), (long long)o->batch);
        exit(2);
    }
    flat = tn_reshape_2d(x, a.count, a.d);
    a.mean = tn_scale(ctx, tn_einsum(ctx, "nd->d", 1, (tn_tensor *[]){tn_slice(flat, 0, 0, a.train)}), 1 / (double)a.train);
    centred = tn_sub(ctx, flat, a.mean);
    size = sqrt(tn_item(tn_mean(ctx, tn_mul(ctx, centred, centred))) * (double)a.d);
    check(ctx);
    if (!(size > 0)) stop("all activations are equal");
    a.mean = tn_tensor_keep(tn_scale(ctx, a.mean, 1 / size));
    a.x = tn_tensor_keep(tn_scale(ctx, flat, 1 / size));
    tn_ctx_reset(ctx);
    tn_tensor_destroy(x);
    check(ctx);
    return a;
}

/* ---- the model -------------------------------------------------------------------------------------------------------- */

typedef struct model {
    tn_params *params;
    tn_linear  linear;                  /* the encoder of LINEAR   */
    tn_mlp     bilinear;                /* that of BILINEAR        */
    tn_tensor *centre, *dictionary;     /* c [d]; d_i times any length, which has no effect [m,d] */
    int        kind;
    int64_t    active;
} model;

static model make_model(tn_ctx *ctx, int kind, const activations *a, const options *o)
{
    int64_t    shape[2] = {o->latents, a->d};
    model      m = {0};
    tn_tensor *start, *w, *b;
    double    *ones = calloc((size_t)o->latents, sizeof *ones);
    int64_t    i;
    if (!ones) stop("no memory");
    for (i = 0; i < o->latents; i++) ones[i] = 1;
    m.kind = kind;
    m.active = o->active;
    m.params = tn_params_create(ctx);
    if (kind == LINEAR)
        tn_linear_init(m.params, "encoder", &(tn_linear_desc){ .in = a->d, .out = o->latents, .bias = true }, &m.linear);
    else tn_mlp_init(m.params, "encoder", &(tn_mlp_desc){ .in = a->d, .hidden = o->latents, .out = o->latents, .bias = true,
                                                          .no_projection = true }, &m.bilinear);
    tn_params_add(m.params, "centre", 1, &a->d, (tn_init){ .rule = TN_INIT_ZERO });
    tn_params_add(m.params, "dictionary", 2, shape, (tn_init){ .rule = TN_INIT_ZERO });
    check(ctx);
    m.centre = tn_params_find(m.params, "centre")->value;
    m.dictionary = tn_params_find(m.params, "dictionary")->value;
    tn_ctx_seed(ctx, (uint64_t)o->seed + 1);               /* both begin with the same directions, which encode and decode */
    start = unit_rows(ctx, tn_normal(ctx, 2, shape, 0, 1));
    w = kind == LINEAR ? m.linear.w : tn_reshape_2d(tn_slice(m.bilinear.w, 0, 0, 1), o->latents, a->d);
    tn_assign(m.dictionary, start);
    tn_assign(m.centre, a->mean);
    tn_assign(w, start);
    b = kind == LINEAR ? m.linear.b : m.bilinear.b;
    tn_assign(b, tn_scale(ctx, b, 0));
    if (kind == BILINEAR) {
        w = tn_slice(m.bilinear.w, 0, 1, 2);
        tn_assign(w, tn_scale(ctx, w, 0));
        tn_write(tn_slice(b, 0, 1, 2), TN_F64, ones, o->latents);
    }
    free(ones);
    check(ctx);
    return m;
}

/* x [n,d] -> y [n,d]. *ids: the latents that are chosen, I32 [n,k]; *z: their values, 0 if negative [n,k] */
static tn_tensor *reconstruct(tn_ctx *ctx, const model *m, tn_tensor *x, tn_tensor **ids, tn_tensor **z)
{
    tn_tensor *from = tn_sub(ctx, x, m->centre);
    tn_tensor *all = m->kind == LINEAR ? tn_linear_forward(ctx, &m->linear, from) : tn_mlp_forward(ctx, &m->bilinear, from);
    *z = tn_activation(ctx, tn_topk(ctx, all, 1, m->active, TN_ORDER_LARGEST, ids), TN_ACT_RELU);
    return tn_add(ctx, m->centre, tn_einsum(ctx, "bk,bkd->bd", 2, (tn_tensor *[]){
        *z, tn_embed(ctx, unit_rows(ctx, m->dictionary), *ids)}));
}

static void train(tn_ctx *ctx, const model *m, const activations *a, const options *o)
{
    int64_t   step;
    uint64_t  state = (uint64_t)o->seed;
    tn_optim *optim = tn_optim_create(m->params, &(tn_optim_desc){ .lr = o->lr,
        .schedule = { .kind = TN_SCHEDULE_TRAPEZOID, .warmup = o->steps / 20, .total = o->steps } });
    int32_t  *rows = malloc((size_t)o->batch * sizeof *rows);
    if (!rows) stop("no memory");
    for (step = 0; step < o->steps; step++) {
        tn_tensor *pick, *x, *ids, *z, *loss;
        int64_t    i;
        tn_ctx_reset(ctx);
        for (i = 0; i < o->batch; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            rows[i] = (int32_t)((state >> 33) % (uint64_t)a->train);
        }
        pick = tn_tensor_1d(ctx, TN_I32, o->batch);
        tn_write(pick, TN_I32, rows, o->batch);
        tn_record(ctx);
        x = tn_embed(ctx, a->x, pick);
        loss = tn_scale(ctx, tn_mse(ctx, reconstruct(ctx, m, x, &ids, &z), x), (double)a->d);
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) check(ctx);
        if (isatty(1) && step % 20 == 0)
            printf("\r%s: step %lld of %lld, loss %.4f ", kind_name[m->kind], (long long)step, (long long)o->steps,
                   tn_item(loss));
        fflush(stdout);
    }
    if (isatty(1)) printf("\r%60s\r", "");
    free(rows);
    tn_optim_destroy(optim);
    tn_ctx_reset(ctx);
    check(ctx);
}

/* ---- what is measured, on the held-out rows ------------------------------------------------------------------------ */

typedef struct figures {
    double  unexplained;                /* share of the variance                          */
    double  active;                     /* latents above 0, mean over rows                */
    int64_t unused;                     /* latents that are 0 on all rows                 */
    double  found;                      /* of the true directions; NaN if there are none  */
} figures;

static double found(tn_ctx *ctx, tn_tensor *dictionary, tn_tensor *truth)
{
    tn_tensor *c = tn_matmul(ctx, truth, tn_transpose(unit_rows(ctx, dictionary), 0, 1));
    c = tn_topk(ctx, c, 1, 1, TN_ORDER_MAGNITUDE, NULL);
    return tn_item(tn_mean(ctx, tn_activation(ctx, tn_mul(ctx, c, c), TN_ACT_SQRT)));
}

static figures measure(tn_ctx *ctx, const model *m, const activations *a, const options *o)
{
    figures r = {0, 0, 0, NAN};
    double  variance = 0, *z = calloc((size_t)(EVALUATED * m->active), sizeof *z);
    bool   *used = calloc((size_t)o->latents, sizeof *used);
    int32_t *ids = calloc((size_t)(EVALUATED * m->active), sizeof *ids);
    int64_t first, i;
    if (!z || !used || !ids) stop("no memory");
    for (first = a->train; first < a->count; first += EVALUATED) {
        const int64_t last = first + EVALUATED < a->count ? first + EVALUATED : a->count, n = last - first;
        tn_tensor    *x, *y, *chosen, *value, *d;
        tn_ctx_reset(ctx);
        x = tn_slice(a->x, 0, first, last);
        y = reconstruct(ctx, m, x, &chosen, &value);
        r.unexplained += tn_item(tn_mse(ctx, y, x)) * (double)n;
        d = tn_sub(ctx, x, a->mean);
        variance += tn_item(tn_mean(ctx, tn_mul(ctx, d, d))) * (double)n;
        tn_read(value, TN_F64, z, n * m->active);
        tn_read(chosen, TN_I32, ids, n * m->active);
        check(ctx);
        for (i = 0; i < n * m->active; i++)
            if (z[i] > 0) {
                r.active += 1 / (double)(a->count - a->train);
                used[ids[i]] = true;
            }
    }
    r.unexplained /= variance;
    for (i = 0; i < o->latents; i++) r.unused += !used[i];
    if (a->truth) r.found = found(ctx, m->dictionary, a->truth);
    tn_ctx_reset(ctx);
    check(ctx);
    free(z);
    free(used);
    free(ids);
    return r;
}

/* The unexplained variance of the k largest principal components of the trained rows, on the held-out ones. */
static double unexplained_by_components(tn_ctx *ctx, const activations *a, int64_t k)
{
    tn_tensor     *x = tn_sub(ctx, tn_slice(a->x, 0, 0, a->train), a->mean), *y, *v;
    tn_eigh_result e;
    double         left;
    if (k > a->d) k = a->d;
    if (tn_eigh(ctx, tn_matmul(ctx, tn_transpose(x, 0, 1), x),
                &(tn_eigh_desc){ .order = TN_EIGH_MAGNITUDE, .symmetrise = true }, &e) != TN_OK) check(ctx);
    v = tn_slice(e.vectors, 0, 0, k);
    x = tn_sub(ctx, tn_slice(a->x, 0, a->train, a->count), a->mean);
    y = tn_matmul(ctx, tn_matmul(ctx, x, tn_transpose(v, 0, 1)), v);
    left = tn_item(tn_mse(ctx, x, y)) / tn_item(tn_mean(ctx, tn_mul(ctx, x, x)));
    tn_eigh_destroy(&e);
    tn_ctx_reset(ctx);
    check(ctx);
    return left;
}

static void save(tn_ctx *ctx, const model *m, const char *folder)
{
    char path[600];
    tn_assign(m->dictionary, unit_rows(ctx, m->dictionary));
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, kind_name[m->kind]);
    if (tn_params_save(m->params, path) != TN_OK) check(ctx);
    printf("  %s\n", path);
}

int main(int argc, char **argv)
{
    options     o = {"none", "out/autoencoder", 192, 4, 2000, 256, 1, 0, 2e-3};
    const flag  flags[] = {
        {"--activations", FLAG_TEXT, &o.file, 0, 0, "an .npy file, or none"},
        {"--latents", FLAG_COUNT, &o.latents, 1, 1e6, NULL},
        {"--active", FLAG_COUNT, &o.active, 1, 1e5, NULL},
        {"--steps", FLAG_COUNT, &o.steps, 1, 1e7, NULL},
        {"--batch", FLAG_COUNT, &o.batch, 1, 1e6, NULL},
        {"--lr", FLAG_REAL, &o.lr, 0, 10, NULL},
        SEED_FLAG(&o), THREADS_FLAG(&o), OUT_FLAG(&o), {0}
    };
    char        why[TN_WHY];
    tn_ctx     *ctx;
    activations a;
    model       m[KINDS];
    figures     before = {0}, after[KINDS];
    double      components, seconds[KINDS];
    int         kind;
    read_flags(argc, argv, flags);
    if (!strcmp(o.file, "none")) o.file = NULL;
    if (o.active > o.latents) {
        fprintf(stderr, PROGRAM ": --active is %lld, expected at most --latents, %lld\n", (long long)o.active,
                (long long)o.latents);
        return 2;
    }
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)o.seed, .threads = (int)o.threads }, &ctx, why) != TN_OK) stop(why);
    make_folder(o.out);
    a = load(ctx, &o);
    printf("%lld activations of %lld numbers, the last %lld held out; %lld latents, %lld active; %lld steps of %lld\n\n",
           (long long)a.count, (long long)a.d, (long long)(a.count - a.train), (long long)o.latents, (long long)o.active,
           (long long)o.steps, (long long)o.batch);
    for (kind = 0; kind < KINDS; kind++) {
        double start = now();
        m[kind] = make_model(ctx, kind, &a, &o);
        if (kind == LINEAR) before = measure(ctx, &m[kind], &a, &o);
        train(ctx, &m[kind], &a, &o);
        seconds[kind] = now() - start;
        after[kind] = measure(ctx, &m[kind], &a, &o);
    }
    components = unexplained_by_components(ctx, &a, o.active);
    printf("on held-out rows          before    linear  bilinear   %lld principal components\n", (long long)o.active);
    printf("unexplained variance    %8.4f  %8.4f  %8.4f   %8.4f\n", before.unexplained, after[0].unexplained,
           after[1].unexplained, components);
    printf("active latents per row  %8.2f  %8.2f  %8.2f\n", before.active, after[0].active, after[1].active);
    printf("latents never active    %8lld  %8lld  %8lld\n", (long long)before.unused, (long long)after[0].unused,
           (long long)after[1].unused);
    if (a.truth) printf("true directions found   %8.4f  %8.4f  %8.4f\n", before.found, after[0].found, after[1].found);
    printf("parameters              %8s  %8lld  %8lld\n", "", (long long)tn_params_elements(m[0].params),
           (long long)tn_params_elements(m[1].params));
    printf("seconds                 %8s  %8.1f  %8.1f\n\nfiles:\n", "", seconds[0], seconds[1]);
    for (kind = 0; kind < KINDS; kind++) save(ctx, &m[kind], o.out);
    printf("\nunexplained_before: %.4f\n", before.unexplained);
    for (kind = 0; kind < KINDS; kind++) printf("unexplained_%s: %.4f\n", kind_name[kind], after[kind].unexplained);
    printf("unexplained_components: %.4f\n", components);
    for (kind = 0; kind < KINDS && a.truth; kind++) printf("found_%s: %.4f\n", kind_name[kind], after[kind].found);
    tn_ctx_destroy(ctx);
    return 0;
}
