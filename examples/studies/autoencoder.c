/* autoencoder.c - sparse autoencoders with a linear and with a bilinear encoder, and bilinear autoencoders, side by side

   Activations x are written as a mean plus a few of m directions, the rows d_i of a dictionary:

       z = W (x - c) + b                 or, bilinear,   z = (W (x - c) + b) * (V (x - c) + a)
       y = c + sum of max(z_i, 0) d_i over the k largest z_i              (Gao et al. 2024, arXiv 2406.04093)

   trained for the least |x - y|^2. The bilinear encoder is a quadratic form in x for each latent, which can be read as any
   interaction matrix; it begins as the linear one, with V = 0 and a = 1. Both see the same data in the same order. Printed
   beside them: the unexplained variance of the k largest principal components, which may not choose k of m, and of the
   dictionary before training. The rows d_i, of length 1, are a basis for tn_cp_feature_interactions and
   tn_feature_modification.

   A bilinear autoencoder (Dooms & Gauderis 2025, arXiv 2510.16820) reconstructs x (x) x for x of length 1, and has no
   decoder of its own:

       z = (L x) * (R x),  x (x) x is about X = sum_i z_i l_i (x) r_i,   |x (x) x - X|^2 = 1 - 2 z.z + z^T K z

   with K = (L L^T) * (R R^T), so that no number of d^2 is formed. All latents are active, or the k largest |z_i|; with
   --density its penalty on the density of the latents in a batch is added. X gives x up to its sign: the root of its largest
   eigenvalue times the eigenvector. All kinds have as many parameters as the linear one, to one latent. For a dictionary
   y (x) y is compared with x (x) x.

   Three kinds of activations:
     --run FOLDER --block L     what the MLP of a block of a language model reads, on the first --tokens of the run's text (or
                                of --text). The strongest features are then shown: their top contexts among the held-out
                                rows, the tokens whose logits they raise, their strongest interactions in the MLP for the
                                first of these tokens, and the output feature that they modify most.
     --activations FILE.npy     [..,d], for example written by `tn cache`.
     neither                    made of a known dictionary of 96 directions in 48 dimensions, 4 of them at a time; `found` is
                                the mean over the true directions of the largest |cosine| with a learned one.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/autoencoder.c -o autoencoder -lm && ./autoencoder
   build/tn train TEXT --attention bilinear --vocab 1024 --out RUN && ./autoencoder --run RUN --latents 512 --active 16
   --run FOLDER   --block L   --text FILE   --tokens N   --show N   --activations FILE
   --latents N   --active N   --steps N   --batch N   --lr X   --density X   --seed N   --threads N   --out FOLDER
                                                               (in the folder of tensornet.h) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "autoencoder"
#include "text.h"

enum { TRUE_FEATURES = 96, TRUE_DIM = 48, TRUE_ACTIVE = 4, TRUE_COUNT = 40000, EVALUATED = 2000, RARE = 10 };
enum { LINEAR, BILINEAR, SQUARE, SQUARE_TOPK, KINDS };      /* the first two have a dictionary, the others are of x (x) x */
static const char *const kind_name[KINDS] = {"linear", "bilinear", "square", "square_topk"};
#define LAST_PART 0.1                   /* of the rows, the last */

typedef struct options {
    const char *file, *out, *run, *text;
    int64_t     latents, active, steps, batch, seed, threads, block, tokens, show;
    double      lr, density;
} options;

typedef struct language {               /* a run of tn train and its text; empty without --run */
    tn_transformer model;
    tn_tokenizer  *tokenizer;
    tokens         text;                /* whose activations are read     */
    tn_tensor     *rare;                /* [vocab] far below 0 for tokens that occur less than RARE times there; owned */
} language;

typedef struct activations {            /* divided by their root mean square distance from the mean */
    tn_tensor *x;                       /* [count,d]                      */
    tn_tensor *mean;                    /* [d] of the trained rows        */
    tn_tensor *truth;                   /* [TRUE_FEATURES,d] or NULL      */
    double     size;                    /* that distance                  */
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

/* The text that config.txt names. */
static char *text_of_run(const char *run)
{
    static char line[4096];
    char        path[600];
    FILE       *f;
    snprintf(path, sizeof path, "%s/config.txt", run);
    if (!(f = fopen(path, "rb"))) stop("--run has no config.txt, expected the folder of a run of tn train");
    do if (!fgets(line, sizeof line, f)) stop("config.txt of --run names no data: --text FILE does");
    while (strncmp(line, "data = ", 7));
    fclose(f);
    line[strcspn(line, "\r\n")] = 0;
    return line + 7;
}

static tn_tensor *rare_tokens(tn_ctx *ctx, const tokens *text, int64_t vocab)
{
    double *v = zeros(vocab, sizeof *v);
    for (int64_t i = 0; i < text->count; i++) v[text->id[i]]++;
    for (int64_t i = 0; i < vocab; i++) v[i] = v[i] < RARE ? -1e30 : 0;
    tn_tensor *t = tn_tensor_keep(tn_tensor_from(ctx, 1, &vocab, TN_F64, v));
    check(ctx);
    free(v);
    return t;
}

static language load_language(tn_ctx *ctx, const options *o)
{
    language l = {0};
    corpus   c = {0};
    int64_t  bytes, next;
    l.model = model_of_run(ctx, o->run, true);
    l.tokenizer = tokenizer_of_run(ctx, o->run, &l.model);
    if (o->block >= l.model.desc.layers) stop("--block is not a block of the model: the first is 0");
    char *text = read_text(o->text ? o->text : text_of_run(o->run), &bytes);
    c.tokenizer = l.tokenizer;
    c.marks = document_end(text, bytes, &next) < bytes;
    l.text = encode_documents(ctx, &c, text, bytes);
    if (l.text.count > o->tokens) l.text.count = o->tokens;
    l.text.count -= l.text.count % l.model.desc.context;
    if (l.text.count < 1) stop("the text has fewer tokens than one context");
    free(text);
    l.rare = rare_tokens(ctx, &l.text, l.model.desc.vocab);
    return l;
}

/* What the MLP of the block reads, without the norm's gain, which tn_circuit_mlp contains: owned, [tokens,dim] */
static tn_tensor *read_activations(tn_ctx *ctx, const options *o, const language *l)
{
    const int64_t T = l->model.desc.context, dim = l->model.desc.dim, shape[2] = {1, T};
    tn_tensor    *all = tn_tensor_keep(tn_tensor_2d(ctx, TN_F32, l->text.count, dim)), *x, *scale = NULL;
    char          middle[48], norm[48];
    tn_tap        taps[2] = {{middle, tn_tap_read, &x}, {norm, tn_tap_read, &scale}};
    snprintf(middle, sizeof middle, "blocks.%lld.middle", (long long)o->block);
    snprintf(norm, sizeof norm, "blocks.%lld.norm2.scale", (long long)o->block);
    for (int64_t at = 0; at < l->text.count; at += T) {
        tn_ctx_reset(ctx);
        tn_transformer_run(ctx, &l->model, tn_tensor_from(ctx, 2, shape, TN_I32, l->text.id + at), taps,
                           l->model.desc.no_norm ? 1 : 2);
        check(ctx);
        if (scale) x = tn_mul(ctx, x, scale);
        if (tn_assign(tn_slice(all, 0, at, at + T), tn_reshape_2d(x, T, dim)) != TN_OK) check(ctx);
    }
    tn_ctx_reset(ctx);
    return all;
}

static activations load(tn_ctx *ctx, const options *o, const language *l)
{
    activations a = {0};
    tn_tensor  *x = l->tokenizer ? read_activations(ctx, o, l) : o->file ? tn_npy_load(ctx, o->file) : made_up(ctx, &a.truth);
    check(ctx);
    if (x->rank < 2 || x->shape[x->rank - 1] < 1) stop("the activations must have a shape [..,d]");
    a.d = x->shape[x->rank - 1];
    a.count = tn_tensor_count(x) / a.d;
    a.train = (int64_t)((1 - LAST_PART) * (double)a.count);
    if (a.train < o->batch || a.count - a.train < 2) {
        fprintf(stderr, PROGRAM ": there are %lld activations, expected at least %lld: a batch of %lld, and as many as "
                "make a tenth held out\n",
                (long long)a.count, (long long)(o->batch * 10 / 9 + 20), (long long)o->batch);
        exit(2);
    }
    tn_tensor *flat = tn_reshape_2d(x, a.count, a.d);
    a.mean = tn_scale(ctx, tn_einsum(ctx, "nd->d", 1, (tn_tensor *[]){tn_slice(flat, 0, 0, a.train)}), 1 / (double)a.train);
    tn_tensor *centred = tn_sub(ctx, flat, a.mean);
    double     size = sqrt(tn_item(tn_mean(ctx, tn_mul(ctx, centred, centred))) * (double)a.d);
    check(ctx);
    if (!(size > 0)) stop("all activations are equal");
    a.size = size;
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
    tn_mlp     bilinear;                /* that of the others      */
    tn_tensor *centre, *dictionary;     /* c [d]; d_i times any length, which has no effect [m,d] */
    int        kind;
    int64_t    latents, active;
} model;

/* The number of latents with which a kind has as many parameters as the linear one. */
static int64_t latents_of(int kind, const options *o, int64_t d)
{
    const int64_t all = o->latents * (2 * d + 1) + d;
    return kind == LINEAR ? o->latents : kind == BILINEAR ? (all - d) / (3 * d + 2) : all / (2 * d);
}

/* A bilinear autoencoder begins with random directions of length 1. */
static void make_square(tn_ctx *ctx, model *m, const activations *a, const options *o)
{
    const int64_t rows = 2 * m->latents, shape[2] = {rows, a->d};
    tn_mlp_init(m->params, "encoder", &(tn_mlp_desc){ .in = a->d, .hidden = m->latents, .out = m->latents,
                                                      .no_projection = true }, &m->bilinear);
    check(ctx);
    tn_ctx_seed(ctx, (uint64_t)o->seed + 1);
    tn_assign(tn_reshape_2d(m->bilinear.w, rows, a->d), unit_rows(ctx, tn_normal(ctx, 2, shape, 0, 1)));
    check(ctx);
}

static model make_model(tn_ctx *ctx, int kind, const activations *a, const options *o)
{
    const int64_t latents = latents_of(kind, o, a->d), shape[2] = {latents, a->d};
    model         m = { .kind = kind, .latents = latents, .active = kind == SQUARE || o->active > latents ? latents : o->active };
    m.params = tn_params_create(ctx);
    if (kind >= SQUARE) {
        make_square(ctx, &m, a, o);
        return m;
    }
    double *ones = zeros(latents, sizeof *ones);
    for (int64_t i = 0; i < latents; i++) ones[i] = 1;
    if (kind == LINEAR)
        tn_linear_init(m.params, "encoder", &(tn_linear_desc){ .in = a->d, .out = latents, .bias = true }, &m.linear);
    else tn_mlp_init(m.params, "encoder", &(tn_mlp_desc){ .in = a->d, .hidden = latents, .out = latents, .bias = true,
                                                          .no_projection = true }, &m.bilinear);
    tn_params_add(m.params, "centre", 1, &a->d, (tn_init){ .rule = TN_INIT_ZERO });
    tn_params_add(m.params, "dictionary", 2, shape, (tn_init){ .rule = TN_INIT_ZERO });
    check(ctx);
    m.centre = tn_params_find(m.params, "centre")->value;
    m.dictionary = tn_params_find(m.params, "dictionary")->value;
    tn_ctx_seed(ctx, (uint64_t)o->seed + 1);               /* both begin with the same directions, which encode and decode */
    tn_tensor *start = unit_rows(ctx, tn_normal(ctx, 2, shape, 0, 1));
    tn_tensor *w = kind == LINEAR ? m.linear.w : tn_reshape_2d(tn_slice(m.bilinear.w, 0, 0, 1), latents, a->d);
    tn_assign(m.dictionary, start);
    tn_assign(m.centre, a->mean);
    tn_assign(w, start);
    tn_tensor *b = kind == LINEAR ? m.linear.b : m.bilinear.b;
    tn_assign(b, tn_scale(ctx, b, 0));
    if (kind == BILINEAR) {
        w = tn_slice(m.bilinear.w, 0, 1, 2);
        tn_assign(w, tn_scale(ctx, w, 0));
        tn_write(tn_slice(b, 0, 1, 2), TN_F64, ones, latents);
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

/* z [n,m] of x [n,d] of length 1 */
static tn_tensor *squares(tn_ctx *ctx, const model *m, tn_tensor *x) { return tn_mlp_forward(ctx, &m->bilinear, x); }

/* L (0) or R (1) */
static tn_tensor *side(const model *m, int which)
{
    return tn_reshape_2d(tn_slice(m->bilinear.w, 0, which, which + 1), m->latents, -1);
}

/* The mean over rows of |x (x) x - X|^2 = 1 - 2 z.z + z^T K z over the latents that are chosen. x [n,d] of length 1 */
static tn_tensor *square_loss(tn_ctx *ctx, const model *m, tn_tensor *x, double density)
{
    const double n = (double)x->shape[0];
    tn_tensor   *z = squares(ctx, m, x), *l = side(m, 0), *r = side(m, 1), *ids, *loss, *k;
    if (m->kind == SQUARE_TOPK) {
        z = tn_topk(ctx, z, 1, m->active, TN_ORDER_MAGNITUDE, &ids);
        l = tn_embed(ctx, l, ids);
        r = tn_embed(ctx, r, ids);
        k = tn_mul(ctx, tn_matmul(ctx, l, tn_transpose(l, 1, 2)), tn_matmul(ctx, r, tn_transpose(r, 1, 2)));
        loss = tn_einsum(ctx, "ni,nij,nj->", 3, (tn_tensor *[]){z, k, z});
    } else {
        k = tn_mul(ctx, tn_matmul(ctx, l, tn_transpose(l, 0, 1)), tn_matmul(ctx, r, tn_transpose(r, 0, 1)));
        loss = tn_sum(ctx, tn_mul(ctx, z, tn_matmul(ctx, z, k)));
    }
    loss = tn_scale(ctx, tn_sub(ctx, loss, tn_scale(ctx, tn_sum(ctx, tn_mul(ctx, z, z)), 2)), 1 / n);
    if (density > 0) {                                  /* mean over latents of (|z|_1/|z|_2 - 1)/(sqrt(n) - 1) in the batch */
        tn_tensor *one = tn_sum_axis(ctx, tn_activation(ctx, z, TN_ACT_ABS), 0);
        tn_tensor *two = tn_sqrt(ctx, tn_add(ctx, tn_sum_axis(ctx, tn_mul(ctx, z, z), 0), tn_full(ctx, 0, NULL, 1e-12)));
        tn_tensor *share = tn_scale(ctx, tn_mean(ctx, tn_div(ctx, one, two)), 1 / (sqrt(n) - 1));
        loss = tn_add(ctx, loss, tn_scale(ctx, share, density));
    }
    return loss;
}

/* The loss that a kind is trained for; for x (x) x without its constant. */
static tn_tensor *loss_of(tn_ctx *ctx, const model *m, tn_tensor *x, double density)
{
    tn_tensor *ids, *z;
    if (m->kind >= SQUARE) return square_loss(ctx, m, unit_rows(ctx, x), m->kind == SQUARE ? density : 0);
    return tn_scale(ctx, tn_mse(ctx, reconstruct(ctx, m, x, &ids, &z), x), (double)x->shape[1]);
}

static void train(tn_ctx *ctx, const model *m, const activations *a, const options *o)
{
    uint64_t  state = (uint64_t)o->seed;
    tn_optim *optim = tn_optim_create(m->params, &(tn_optim_desc){ .lr = o->lr,
        .schedule = { .kind = TN_SCHEDULE_TRAPEZOID, .warmup = o->steps / 20, .total = o->steps } });
    int32_t  *rows = zeros(o->batch, sizeof *rows);
    for (int64_t step = 0; step < o->steps; step++) {
        tn_ctx_reset(ctx);
        for (int64_t i = 0; i < o->batch; i++) rows[i] = (int32_t)random_below(&state, a->train);
        tn_tensor *pick = tn_tensor_1d(ctx, TN_I32, o->batch);
        tn_write(pick, TN_I32, rows, o->batch);
        tn_record(ctx);
        tn_tensor *loss = loss_of(ctx, m, tn_embed(ctx, a->x, pick), o->density);
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
    double  unexplained;                /* share of the variance of x                     */
    double  pairs;                      /* |x (x) x - its reconstruction|^2 / |x|^4       */
    double  active;                     /* latents that are not 0, mean over rows         */
    double  effective;                  /* (sum a^2)^2 / sum a^4 of |z_i| |l_i| |r_i|, or of z_i; mean over rows */
    int64_t unused;                     /* latents that are 0 on all rows                 */
    double  found;                      /* of the true directions; NaN if there are none  */
} figures;

static double found(tn_ctx *ctx, tn_tensor *dictionary, tn_tensor *truth)
{
    tn_tensor *c = tn_matmul(ctx, truth, tn_transpose(unit_rows(ctx, dictionary), 0, 1));
    c = tn_topk(ctx, c, 1, 1, TN_ORDER_MAGNITUDE, NULL);
    return tn_item(tn_mean(ctx, tn_activation(ctx, tn_mul(ctx, c, c), TN_ACT_SQRT)));
}

/* Sums over the rows of a [n,m] -> [n,1] */
static tn_tensor *row_sums(tn_ctx *ctx, tn_tensor *a) { return tn_reshape_2d(tn_sum_axis(ctx, a, 1), -1, 1); }

/* What X = sum_i z_i l_i (x) r_i says of x [n,d]: its eigenvector of the largest magnitude by power iteration from a random
   vector, times the root of the eigenvalue and the length of x, with the sign that is nearer to x. z [n,m] */
static tn_tensor *from_squares(tn_ctx *ctx, const model *m, tn_tensor *x, tn_tensor *z)
{
    enum { ROUNDS = 60 };
    tn_tensor *l = side(m, 0), *r = side(m, 1), *v = unit_rows(ctx, tn_normal(ctx, 2, x->shape, 0, 1)), *to = v;
    tn_tensor *length = tn_sqrt(ctx, row_sums(ctx, tn_mul(ctx, x, x)));
    for (int i = 0; i < ROUNDS; i++) {
        v = unit_rows(ctx, to);
        to = tn_add(ctx, tn_matmul(ctx, tn_mul(ctx, z, tn_affine(ctx, v, r, NULL)), l),
                    tn_matmul(ctx, tn_mul(ctx, z, tn_affine(ctx, v, l, NULL)), r));
    }
    tn_tensor *value = tn_activation(ctx, tn_scale(ctx, row_sums(ctx, tn_mul(ctx, v, to)), 0.5), TN_ACT_RELU);
    tn_tensor *dot = row_sums(ctx, tn_mul(ctx, v, x));
    tn_tensor *sign = tn_div(ctx, dot, tn_activation(ctx, dot, TN_ACT_ABS));
    return tn_mul(ctx, v, tn_mul(ctx, tn_mul(ctx, sign, length), tn_sqrt(ctx, value)));
}

/* The latents of x as a full matrix [n,m], 0 where they are not chosen, and what is reconstructed from them: *y of x, and
   *pairs, the mean error of x (x) x. */
static tn_tensor *all_latents(tn_ctx *ctx, const model *m, tn_tensor *x, tn_tensor **y, double *pairs)
{
    const int64_t n = x->shape[0], k = m->active, shape[2] = {n, m->latents};
    tn_tensor    *value, *chosen, *xx = row_sums(ctx, tn_mul(ctx, x, x)), *z;
    if (m->kind < SQUARE) *y = reconstruct(ctx, m, x, &chosen, &value);
    else value = tn_topk(ctx, squares(ctx, m, unit_rows(ctx, x)), 1, k, TN_ORDER_MAGNITUDE, &chosen);
    double  *all = zeros(n * m->latents, sizeof *all), *some = zeros(n * k, sizeof *some);
    int32_t *ids = zeros(n * k, sizeof *ids);
    if (tn_read(value, TN_F64, some, n * k) != TN_OK || tn_read(chosen, TN_I32, ids, n * k) != TN_OK) check(ctx);
    for (int64_t i = 0; i < n * k; i++) all[i / k * m->latents + ids[i]] = some[i];
    z = tn_tensor_from(ctx, 2, shape, TN_F64, all);
    free(all);
    free(some);
    free(ids);
    z = tn_cast(ctx, z, TN_F32);
    if (m->kind < SQUARE) {
        tn_tensor *xy = row_sums(ctx, tn_mul(ctx, x, *y)), *yy = row_sums(ctx, tn_mul(ctx, *y, *y));
        tn_tensor *e = tn_sub(ctx, tn_add(ctx, tn_mul(ctx, xx, xx), tn_mul(ctx, yy, yy)), tn_scale(ctx, tn_mul(ctx, xy, xy), 2));
        *pairs = tn_item(tn_mean(ctx, tn_div(ctx, e, tn_mul(ctx, xx, xx))));
    } else {
        tn_tensor *l = side(m, 0), *r = side(m, 1);
        tn_tensor *kernel = tn_mul(ctx, tn_matmul(ctx, l, tn_transpose(l, 0, 1)), tn_matmul(ctx, r, tn_transpose(r, 0, 1)));
        tn_tensor *e = tn_sub(ctx, tn_matmul(ctx, z, kernel), tn_scale(ctx, z, 2));
        *pairs = 1 + tn_item(tn_sum(ctx, tn_mul(ctx, z, e))) / (double)n;
        *y = from_squares(ctx, m, x, z);
    }
    return z;
}

static figures measure(tn_ctx *ctx, const model *m, const activations *a, const options *o)
{
    figures r = {0, 0, 0, 0, 0, NAN};
    double  variance = 0, pairs, *z = zeros(EVALUATED * m->latents, sizeof *z), *size = zeros(m->latents, sizeof *size);
    bool   *used = zeros(m->latents, sizeof *used);
    const double rows = (double)(a->count - a->train);
    tn_ctx_seed(ctx, (uint64_t)o->seed + 2);
    for (int64_t i = 0; i < m->latents; i++) size[i] = 1;
    if (m->kind >= SQUARE) {
        tn_tensor *l = side(m, 0), *s = side(m, 1);
        tn_tensor *both = tn_mul(ctx, row_sums(ctx, tn_mul(ctx, l, l)), row_sums(ctx, tn_mul(ctx, s, s)));
        if (tn_read(tn_sqrt(ctx, both), TN_F64, size, m->latents) != TN_OK) check(ctx);
    }
    for (int64_t first = a->train; first < a->count; first += EVALUATED) {
        const int64_t last = first + EVALUATED < a->count ? first + EVALUATED : a->count, n = last - first;
        tn_tensor    *y = NULL;
        tn_ctx_reset(ctx);
        tn_tensor *x = tn_slice(a->x, 0, first, last);
        if (tn_read(all_latents(ctx, m, x, &y, &pairs), TN_F64, z, n * m->latents) != TN_OK) check(ctx);
        r.unexplained += tn_item(tn_mse(ctx, y, x)) * (double)n;
        r.pairs += pairs * (double)n / rows;
        tn_tensor *d = tn_sub(ctx, x, a->mean);
        variance += tn_item(tn_mean(ctx, tn_mul(ctx, d, d))) * (double)n;
        check(ctx);
        for (int64_t row = 0; row < n; row++) {
            double square = 0, fourth = 0;
            for (int64_t i = 0; i < m->latents; i++) {
                const double of = z[row * m->latents + i], power = of * of * size[i] * size[i];
                square += power;
                fourth += power * power;
                r.active += (of != 0) / rows;
                used[i] |= of != 0;
            }
            r.effective += fourth > 0 ? square * square / fourth / rows : 0;
        }
    }
    r.unexplained /= variance;
    for (int64_t i = 0; i < m->latents; i++) r.unused += !used[i];
    if (a->truth && m->kind < SQUARE) r.found = found(ctx, m->dictionary, a->truth);
    tn_ctx_reset(ctx);
    check(ctx);
    free(z);
    free(size);
    free(used);
    return r;
}

/* |the error of x (x) x by K - that of the matrices themselves|, the mean over some rows */
static double square_remainder(tn_ctx *ctx, const model *m, const activations *a)
{
    enum { SOME = 20 };
    const int64_t n = a->count - a->train < SOME ? a->count - a->train : SOME;
    tn_tensor    *x = unit_rows(ctx, tn_slice(a->x, 0, a->train, a->train + n)), *y;
    double        pairs;
    tn_tensor    *z = all_latents(ctx, m, x, &y, &pairs), *e = tn_sub(ctx, tn_einsum(ctx, "na,nb->nab", 2, (tn_tensor *[]){x, x}),
        tn_einsum(ctx, "ni,ia,ib->nab", 3, (tn_tensor *[]){z, side(m, 0), side(m, 1)}));
    pairs -= tn_item(tn_sum(ctx, tn_mul(ctx, e, e))) / (double)n;
    check(ctx);
    tn_ctx_reset(ctx);
    return fabs(pairs);
}

/* The unexplained variance of the k largest principal components of the trained rows, on the held-out ones. */
static double unexplained_by_components(tn_ctx *ctx, const activations *a, int64_t k)
{
    tn_tensor     *x = tn_sub(ctx, tn_slice(a->x, 0, 0, a->train), a->mean);
    tn_eigh_result e;
    if (k > a->d) k = a->d;
    if (tn_eigh(ctx, tn_matmul(ctx, tn_transpose(x, 0, 1), x),
                &(tn_eigh_desc){ .order = TN_EIGH_MAGNITUDE, .symmetrise = true }, &e) != TN_OK) check(ctx);
    tn_tensor *v = tn_slice(e.vectors, 0, 0, k);
    x = tn_sub(ctx, tn_slice(a->x, 0, a->train, a->count), a->mean);
    tn_tensor *y = tn_matmul(ctx, tn_matmul(ctx, x, tn_transpose(v, 0, 1)), v);
    double     left = tn_item(tn_mse(ctx, x, y)) / tn_item(tn_mean(ctx, tn_mul(ctx, x, x)));
    tn_eigh_destroy(&e);
    tn_ctx_reset(ctx);
    check(ctx);
    return left;
}

static void save(tn_ctx *ctx, const model *m, const char *folder)
{
    char path[600];
    if (m->kind < SQUARE) tn_assign(m->dictionary, unit_rows(ctx, m->dictionary));
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, kind_name[m->kind]);
    if (tn_params_save(m->params, path) != TN_OK) check(ctx);
    printf("  %s\n", path);
}

/* ---- features of a language model ------------------------------------------------------------------------------------ */

/* The latents of the held-out rows, and c with the value 1 as one more feature, in the units of what the MLP reads: the
   values [rows,m+1] and the dictionary [m+1,d], so that values times dictionary is the reconstruction. */
typedef struct features {
    tn_tensor *values, *dictionary;     /* owned */
    int64_t    rows, count;             /* m + 1 */
} features;

static features features_of(tn_ctx *ctx, const model *m, const activations *a)
{
    const int64_t latents = m->dictionary->shape[0], n = a->count - a->train, k = m->active;
    features      f = {0};
    double       *z = grown(NULL, EVALUATED * k, sizeof *z), *row = grown(NULL, latents + 1, sizeof *row);
    int32_t      *ids = grown(NULL, EVALUATED * k, sizeof *ids);
    f.rows = n;
    f.count = latents + 1;
    f.values = tn_tensor_keep(tn_tensor_2d(ctx, TN_F32, n, f.count));
    f.dictionary = tn_tensor_keep(tn_concat(ctx, 2, (tn_tensor *[]){unit_rows(ctx, m->dictionary),
        tn_reshape_2d(tn_scale(ctx, m->centre, a->size), 1, a->d)}, 0));
    check(ctx);
    for (int64_t first = 0; first < n; first += EVALUATED) {
        const int64_t end = first + EVALUATED < n ? first + EVALUATED : n;
        tn_tensor    *chosen, *value;
        tn_ctx_reset(ctx);
        reconstruct(ctx, m, tn_slice(a->x, 0, a->train + first, a->train + end), &chosen, &value);
        tn_read(value, TN_F64, z, (end - first) * k);
        tn_read(chosen, TN_I32, ids, (end - first) * k);
        check(ctx);
        for (int64_t i = 0; i < end - first; i++) {
            memset(row, 0, (size_t)latents * sizeof *row);
            for (int64_t j = 0; j < k; j++) row[ids[i * k + j]] = z[i * k + j] * a->size;
            row[latents] = 1;
            tn_write(tn_slice(f.values, 0, first + i, first + i + 1), TN_F64, row, f.count);
        }
    }
    tn_ctx_reset(ctx);
    check(ctx);
    free(z);
    free(row);
    free(ids);
    return f;
}

/* The last tokens up to a row of the held-out activations, and after a bar the one that follows. */
static void print_context(const language *l, const activations *a, int64_t row, double value)
{
    const int64_t at = a->train + row, T = l->model.desc.context, from = at - at % T > at - 7 ? at - at % T : at - 7;
    char          before[256] = "", after[64] = "";
    tn_tokenizer_decode(l->tokenizer, l->text.id + from, at - from + 1, before, sizeof before);
    if ((at + 1) % T) tn_tokenizer_decode(l->tokenizer, l->text.id + at + 1, 1, after, sizeof after);
    for (char *c = before; *c; c++) if (*c == '\n') *c = ' ';
    printf("      %8.3f  ..%s | %s\n", value, before, after);
}

/* The tokens that are not rare whose logits a direction of the stream raises most; returns the first of them. The logits of
   tokens that never come are raised, or lowered, by everything. */
static int32_t print_tokens(tn_ctx *ctx, const language *l, tn_tensor *direction)
{
    int32_t    id[5];
    tn_tensor *ids, *logits = tn_affine(ctx, tn_reshape_2d(direction, 1, -1), tn_circuit_unembedding(ctx, &l->model), NULL);
    tn_topk(ctx, tn_add(ctx, logits, l->rare), 1, 5, TN_ORDER_LARGEST, &ids);
    if (tn_read(ids, TN_I32, id, 5) != TN_OK) check(ctx);
    for (int i = 0; i < 5; i++) printf(" %s", tn_tokenizer_token(l->tokenizer, id[i]));
    return id[0];
}

typedef struct reading_of_block {
    tn_cp         *mlp;                 /* what the block's MLP computes from what it reads   */
    tn_tensor     *output;              /* [h,h] of V x on the data: columns are the default output features */
    tn_tensor     *moment;              /* [features,features]                                */
    tn_tensor     *modified, *together; /* [latents,h] how much a latent changes them, and their correlation */
} reading_of_block;

/* How features interact for the logit of a token: sum_ij d_i^T Q d_j E[a_i a_j] is the mean of what the MLP adds to it. */
static void print_interactions(tn_ctx *ctx, const language *l, const reading_of_block *b, const features *f, int64_t own,
                               int32_t token)
{
    const int64_t n = f->count + b->mlp->constant;
    int32_t       at[4];
    double        value[4];
    tn_tensor    *ids, *u = tn_slice(tn_circuit_unembedding(ctx, &l->model), 0, token, token + 1);
    tn_tensor    *c = tn_cp_feature_interactions(b->mlp, tn_reshape(u, 1, &l->model.desc.dim), f->dictionary, b->moment);
    check(ctx);
    tn_tensor *top = tn_topk(ctx, tn_slice(c, 0, own, own + 1), 1, n < 4 ? n : 4, TN_ORDER_MAGNITUDE, &ids);
    if (tn_read(top, TN_F64, value, 4) != TN_OK || tn_read(ids, TN_I32, at, 4) != TN_OK) check(ctx);
    printf("    interacts, for \"%s\", with", tn_tokenizer_token(l->tokenizer, token));
    for (int i = 0; i < 4; i++) {
        if (at[i] == f->count - 1) printf("  the mean");
        else if (at[i] == f->count) printf("  the constant");
        else printf("  %d%s", (int)at[i], at[i] == own ? " (itself)" : "");
        printf(" %+.4f", (at[i] == own ? 1 : 2) * value[i]);
    }
    printf("\n");
    tn_tensor_destroy(c);
}

/* Largest |sum of interactions - mean of the MLP on reconstructions| over the logits of some tokens, over the largest mean;
   and the share of the variance of the MLP's output on true activations that reconstructions miss. */
static void print_remainder(tn_ctx *ctx, const language *l, const activations *a, const reading_of_block *b,
                            const features *f, const char *name)
{
    tn_tensor *y = tn_matmul(ctx, f->values, f->dictionary);
    tn_tensor *x = tn_scale(ctx, tn_slice(a->x, 0, a->train, a->count), a->size);
    tn_tensor *of_x = tn_cp_apply(ctx, b->mlp, x), *of_y = tn_cp_apply(ctx, b->mlp, y);
    double     worst = 0, size = 0;
    tn_tensor *mean = tn_scale(ctx, tn_sum_axis(ctx, of_x, 0), 1 / (double)f->rows);
    tn_tensor *d = tn_sub(ctx, of_x, mean);
    double     missed = tn_item(tn_mse(ctx, of_x, of_y)) / tn_item(tn_mean(ctx, tn_mul(ctx, d, d)));
    mean = tn_scale(ctx, tn_sum_axis(ctx, of_y, 0), 1 / (double)f->rows);
    mean = tn_affine(ctx, mean, tn_circuit_unembedding(ctx, &l->model), NULL);
    for (int64_t t = 0; t < l->model.desc.vocab; t += l->model.desc.vocab / 8 + 1) {
        tn_tensor *u = tn_slice(tn_circuit_unembedding(ctx, &l->model), 0, t, t + 1);
        tn_tensor *c = tn_cp_feature_interactions(b->mlp, tn_reshape(u, 1, &l->model.desc.dim), f->dictionary, b->moment);
        check(ctx);
        double sum = tn_item(tn_sum(ctx, c));
        double whole = tn_item(tn_slice(mean, 0, t, t + 1));
        tn_tensor_destroy(c);
        keep_largest(&worst, fabs(sum - whole));
        keep_largest(&size, fabs(whole));
    }
    check(ctx);
    printf("%s_mlp_output_unexplained: %.4f\n%s_remainder: %.1e\n", name, missed, name, worst / size);
}

static reading_of_block read_block(tn_ctx *ctx, const options *o, const language *l, const activations *a, const features *f)
{
    reading_of_block b = {0};
    tn_tensor       *values = f->values;
    if (!(b.mlp = tn_circuit_mlp(ctx, &l->model, o->block))) check(ctx);
    if (b.mlp->order != 2) stop("the MLP of --block is not of order 2");
    if (b.mlp->constant) values = tn_append_one(ctx, values);
    b.moment = tn_tensor_keep(tn_scale(ctx, tn_matmul(ctx, tn_transpose(values, 0, 1), values), 1 / (double)f->rows));
    tn_tensor *w = tn_slice(b.mlp->f[0], 1, 0, l->model.desc.dim);
    tn_tensor *v = tn_copy(ctx, tn_slice(b.mlp->f[1], 1, 0, l->model.desc.dim));
    tn_tensor *x = tn_scale(ctx, tn_slice(a->x, 0, a->train, a->count), a->size);
    tn_tensor *rows = tn_slice(f->dictionary, 0, 0, f->count - 1), *latents = tn_slice(f->values, 1, 0, f->count - 1);
    if (!(b.output = tn_feature_basis(ctx, v, x, 0, false))) check(ctx);
    b.modified = tn_tensor_keep(tn_feature_modification(ctx, tn_copy(ctx, w), rows, b.output));
    b.together = tn_feature_correlations(ctx, latents, tn_matmul(ctx, tn_affine(ctx, x, v, NULL), b.output));
    check(ctx);
    return b;
}

static void show_features(tn_ctx *ctx, const options *o, const language *l, const activations *a, const model *m)
{
    const int64_t              show = o->show < m->latents ? o->show : m->latents;
    features                   f = features_of(ctx, m, a);
    reading_of_block           b = read_block(ctx, o, l, a, &f);
    int32_t                   *strong = grown(NULL, show, sizeof *strong), row[3];
    double                     top[3], kurtosis;
    tn_tensor                 *ids;
    tn_circuit_evidence       *evidence = tn_circuit_evidence_create(ctx, &(tn_circuit_evidence_desc){
        .features = show, .top = 3, .seed = 1 });
    tn_circuit_evidence_result e;
    tn_tensor                 *power = tn_sum_axis(ctx, tn_mul(ctx, f.values, f.values), 0);
    tn_topk(ctx, tn_slice(power, 0, 0, f.count - 1), 0, show, TN_ORDER_LARGEST, &ids);
    if (tn_read(ids, TN_I32, strong, show) != TN_OK) check(ctx);
    if (tn_circuit_evidence_add(evidence, tn_gather(ctx, f.values, 1, ids)) != TN_OK) check(ctx);
    if (tn_circuit_evidence_read(evidence, &e) != TN_OK) check(ctx);
    printf("\n%s: the %lld strongest features of %lld held-out tokens\n", kind_name[m->kind], (long long)show,
           (long long)f.rows);
    for (int64_t i = 0; i < show; i++) {
        int32_t    which;
        tn_tensor *at;
        tn_read(tn_slice(e.values, 0, i, i + 1), TN_F64, top, 3);
        tn_read(tn_slice(e.index, 0, i, i + 1), TN_I32, row, 3);
        tn_read(tn_slice(e.kurtosis, 0, i, i + 1), TN_F64, &kurtosis, 1);
        printf("  feature %d, kurtosis %.0f, raises", (int)strong[i], kurtosis);
        int32_t token = print_tokens(ctx, l, tn_slice(f.dictionary, 0, strong[i], strong[i] + 1));
        printf("\n");
        for (int k = 0; k < 3; k++) print_context(l, a, row[k], top[k]);
        print_interactions(ctx, l, &b, &f, strong[i], token);
        tn_tensor *change = tn_slice(b.modified, 0, strong[i], strong[i] + 1);
        tn_tensor *with = tn_slice(b.together, 0, strong[i], strong[i] + 1);
        tn_topk(ctx, tn_mul(ctx, change, with), 1, 1, TN_ORDER_MAGNITUDE, &at);
        tn_read(at, TN_I32, &which, 1);
        printf("    modifies most of what it occurs with, by %.2f and with a correlation of %.2f, output feature %d:",
               tn_item(tn_slice(change, 1, which, which + 1)), tn_item(tn_slice(with, 1, which, which + 1)), (int)which);
        print_tokens(ctx, l, tn_affine(ctx, tn_copy(ctx, tn_transpose(tn_slice(b.output, 1, which, which + 1), 0, 1)),
                                       b.mlp->p, NULL));
        printf("\n");
        check(ctx);
    }
    print_remainder(ctx, l, a, &b, &f, kind_name[m->kind]);
    tn_circuit_evidence_result_destroy(&e);
    tn_circuit_evidence_destroy(evidence);
    tn_tensor_destroy(b.moment);
    tn_tensor_destroy(b.modified);
    tn_tensor_destroy(b.output);
    tn_tensor_destroy(b.together);
    tn_cp_destroy(b.mlp);
    tn_tensor_destroy(f.values);
    tn_tensor_destroy(f.dictionary);
    free(strong);
    tn_ctx_reset(ctx);
}

int main(int argc, char **argv)
{
    options    o = { .file = "none", .out = "out/autoencoder", .run = "none", .text = "none", .latents = 192, .active = 4,
                     .steps = 2000, .batch = 256, .seed = 1, .tokens = 65536, .show = 4, .lr = 2e-3 };
    const flag flags[] = {
        {"--run", FLAG_TEXT, &o.run, 0, 0, "the folder of a run of tn train, or none"},
        {"--block", FLAG_COUNT, &o.block, 0, 1e6, NULL},
        {"--text", FLAG_TEXT, &o.text, 0, 0, "a text for --run; none: that of the run"},
        {"--tokens", FLAG_COUNT, &o.tokens, 1, 1e9, NULL},
        {"--show", FLAG_COUNT, &o.show, 1, 1e6, NULL},
        {"--activations", FLAG_TEXT, &o.file, 0, 0, "an .npy file, or none"},
        {"--latents", FLAG_COUNT, &o.latents, 1, 1e6, NULL},
        {"--active", FLAG_COUNT, &o.active, 1, 1e5, NULL},
        {"--steps", FLAG_COUNT, &o.steps, 1, 1e7, NULL},
        {"--batch", FLAG_COUNT, &o.batch, 1, 1e6, NULL},
        {"--lr", FLAG_REAL, &o.lr, 0, 10, NULL},
        {"--density", FLAG_REAL, &o.density, 0, 10, NULL},
        SEED_FLAG(&o), THREADS_FLAG(&o), OUT_FLAG(&o), {0}
    };
    char       why[TN_WHY];
    tn_ctx    *ctx;
    language   l = {0};
    model      m[KINDS];
    figures    before = {0}, after[KINDS];
    double     seconds[KINDS];
    read_flags(argc, argv, flags);
    if (!strcmp(o.file, "none")) o.file = NULL;
    if (!strcmp(o.run, "none")) o.run = NULL;
    if (!strcmp(o.text, "none")) o.text = NULL;
    if (o.run && o.file) stop("--run and --activations are given, expected one of them");
    if (o.active > o.latents) {
        fprintf(stderr, PROGRAM ": --active is %lld, expected at most --latents, %lld\n", (long long)o.active,
                (long long)o.latents);
        return 2;
    }
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)o.seed, .threads = (int)o.threads }, &ctx, why) != TN_OK) stop(why);
    make_folder(o.out);
    if (o.run) l = load_language(ctx, &o);
    activations a = load(ctx, &o, &l);
    printf("%lld activations of %lld numbers, the last %lld held out; %lld latents, %lld active; %lld steps of %lld\n\n",
           (long long)a.count, (long long)a.d, (long long)(a.count - a.train), (long long)o.latents, (long long)o.active,
           (long long)o.steps, (long long)o.batch);
    for (int kind = 0; kind < KINDS; kind++) {
        double start = now();
        m[kind] = make_model(ctx, kind, &a, &o);
        if (kind == LINEAR) before = measure(ctx, &m[kind], &a, &o);
        train(ctx, &m[kind], &a, &o);
        seconds[kind] = now() - start;
        after[kind] = measure(ctx, &m[kind], &a, &o);
    }
    double components = unexplained_by_components(ctx, &a, o.active);
    printf("on held-out rows          before    linear  bilinear    square  of them %lld   %lld principal components\n",
           (long long)o.active, (long long)o.active);
    printf("unexplained variance    %8.4f", before.unexplained);
    for (int kind = 0; kind < KINDS; kind++) printf("  %8.4f", after[kind].unexplained);
    printf("   %8.4f\nerror of x (x) x        %8.4f", components, before.pairs);
    for (int kind = 0; kind < KINDS; kind++) printf("  %8.4f", after[kind].pairs);
    printf("\nactive latents per row  %8.2f", before.active);
    for (int kind = 0; kind < KINDS; kind++) printf("  %8.2f", after[kind].active);
    printf("\neffective latents       %8.2f", before.effective);
    for (int kind = 0; kind < KINDS; kind++) printf("  %8.2f", after[kind].effective);
    printf("\nlatents never active    %8lld", (long long)before.unused);
    for (int kind = 0; kind < KINDS; kind++) printf("  %8lld", (long long)after[kind].unused);
    if (a.truth) printf("\ntrue directions found   %8.4f  %8.4f  %8.4f", before.found, after[0].found, after[1].found);
    printf("\nlatents                 %8s", "");
    for (int kind = 0; kind < KINDS; kind++) printf("  %8lld", (long long)m[kind].latents);
    printf("\nparameters              %8s", "");
    for (int kind = 0; kind < KINDS; kind++) printf("  %8lld", (long long)tn_params_elements(m[kind].params));
    printf("\nseconds                 %8s", "");
    for (int kind = 0; kind < KINDS; kind++) printf("  %8.1f", seconds[kind]);
    printf("\n\nfiles:\n");
    for (int kind = 0; kind < KINDS; kind++) save(ctx, &m[kind], o.out);
    for (int kind = 0; kind < SQUARE && o.run; kind++) show_features(ctx, &o, &l, &a, &m[kind]);
    printf("\nunexplained_before: %.4f\n", before.unexplained);
    for (int kind = 0; kind < KINDS; kind++) printf("unexplained_%s: %.4f\n", kind_name[kind], after[kind].unexplained);
    printf("unexplained_components: %.4f\n", components);
    for (int kind = 0; kind < KINDS; kind++) printf("pairs_%s: %.4f\n", kind_name[kind], after[kind].pairs);
    for (int kind = SQUARE; kind < KINDS; kind++)
        printf("remainder_%s: %.1e\n", kind_name[kind], square_remainder(ctx, &m[kind], &a));
    for (int kind = 0; kind < KINDS; kind++) printf("unused_%s: %lld\n", kind_name[kind], (long long)after[kind].unused);
    for (int kind = 0; kind < SQUARE && a.truth; kind++) printf("found_%s: %.4f\n", kind_name[kind], after[kind].found);
    tn_ctx_destroy(ctx);
    return 0;
}
