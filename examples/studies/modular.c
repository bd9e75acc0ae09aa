/* modular.c - one bilinear layer learns addition modulo 113, and its weights are read back as a formula

   The layer y = P ((W x) * (V x)) takes x = [one-hot a; one-hot b] and is trained to give the class (a + b) mod 113, on half
   of the 12,769 pairs. Within seconds it is right on the other half. Why can be read from its tensor. In the Fourier basis
   over each of a, b and the class c, more than half of the squared norm of all coefficients of a b is in the tensors

       g_k cos(2 pi k (a + b - c) / 113)                     one for each of some frequencies k

   up to what is added to all classes, which softmax does not see. Only c = a + b makes all of these cosines 1. The rule with
   these g_k alone is right for every pair if s(d) = sum_k g_k cos(2 pi k d / 113) is largest at d = 0, which is checked for
   the 112 other d. An untrained layer is read in the same way as a control. The task and the first such formula, of another
   network: Nanda et al. 2023 (arXiv 2301.05217); quadratic networks by hand: Gromov 2023 (arXiv 2301.02679).

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/modular.c -o modular -lm && ./modular
   --steps N   --hidden N   --share X   --lr X   --weight-decay X   --seed N   --threads N   --out FOLDER
                                                               (in the folder of tensornet.h) */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "modular"
#include "program.h"

enum { P = 113, PAIRS = P * P, FREQUENCIES = (P - 1) / 2, SHOWN = 8, DRAWN = 2 };
static const double two_pi = 6.283185307179586;

typedef struct options {
    const char *out;
    int64_t     steps, hidden, seed, threads;
    double      share, lr, weight_decay;
} options;

/* ---- training --------------------------------------------------------------------------------------------------- */

typedef struct task {               /* all pairs in random order, the first `train` of them to learn from */
    tn_tensor *a, *b, *sum;         /* I32 [PAIRS]: rows of the table of both inputs; the class */
    int64_t    train;
} task;

static tn_tensor *kept(tn_ctx *ctx, const int32_t *ids)
{
    tn_tensor *t = tn_tensor_1d(ctx, TN_I32, PAIRS);
    tn_write(t, TN_I32, ids, PAIRS);
    t = tn_tensor_keep(t);
    check(ctx);
    return t;
}

static task make_task(tn_ctx *ctx, const options *o)
{
    static int32_t order[PAIRS], a[PAIRS], b[PAIRS], sum[PAIRS];
    uint64_t       state = (uint64_t)o->seed;
    task           t;
    for (int i = 0; i < PAIRS; i++) order[i] = i;
    shuffle(order, PAIRS, &state);
    for (int i = 0; i < PAIRS; i++) {
        a[i] = order[i] / P;
        b[i] = P + order[i] % P;
        sum[i] = (order[i] / P + order[i] % P) % P;
    }
    t.a = kept(ctx, a);
    t.b = kept(ctx, b);
    t.sum = kept(ctx, sum);
    t.train = (int64_t)(o->share * PAIRS);
    return t;
}

/* The layer on pairs first .. last-1. W x and V x are sums of two of their columns, so no one-hot vector is needed. */
static tn_tensor *logits(tn_ctx *ctx, const tn_mlp *layer, const task *t, int64_t first, int64_t last)
{
    const int64_t h = layer->w->shape[1];
    tn_tensor    *columns = tn_copy(ctx, tn_transpose(tn_reshape_2d(layer->w, 2 * h, 2 * P), 0, 1));
    tn_tensor    *both = tn_add(ctx, tn_embed(ctx, columns, tn_slice(t->a, 0, first, last)),
                                tn_embed(ctx, columns, tn_slice(t->b, 0, first, last)));
    tn_tensor    *product = tn_mul(ctx, tn_slice(both, 1, 0, h), tn_slice(both, 1, h, 2 * h));
    return tn_matmul(ctx, product, tn_transpose(layer->p, 0, 1));
}

static double accuracy(tn_ctx *ctx, const tn_mlp *layer, const task *t, int64_t first, int64_t last)
{
    tn_ctx_reset(ctx);
    double right = tn_item(tn_accuracy(ctx, logits(ctx, layer, t, first, last), tn_slice(t->sum, 0, first, last)));
    tn_ctx_reset(ctx);
    check(ctx);
    return right;
}

static void train(tn_ctx *ctx, tn_params *params, const tn_mlp *layer, const task *t, const options *o)
{
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = o->lr, .beta2 = 0.98, .weight_decay = o->weight_decay,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .warmup = o->steps / 40, .total = o->steps, .floor = 0.1 } });
    printf("   step   loss   right on trained pairs   on held-out pairs\n");
    for (int64_t step = 0; step <= o->steps; step++) {
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *loss = tn_cross_entropy(ctx, logits(ctx, layer, t, 0, t->train), tn_slice(t->sum, 0, 0, t->train));
        if (step % 50 == 0 || step == o->steps) printf("%7lld %6.3f", (long long)step, tn_item(loss));
        if (step < o->steps && (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK)) check(ctx);
        if (step % 50 == 0 || step == o->steps) {
            printf(" %24.4f", accuracy(ctx, layer, t, 0, t->train));
            printf(" %19.4f\n", accuracy(ctx, layer, t, t->train, PAIRS));
            fflush(stdout);
        }
    }
    tn_optim_destroy(optim);
}

/* ---- the tensor in the Fourier basis ------------------------------------------------------------------------------ */

/* The orthonormal basis: row 0 is constant, rows 2k-1 and 2k are the cosine and the sine of frequency k. */
static double fourier(int row, int a)
{
    const double angle = two_pi * ((row + 1) / 2 * a % P) / P;
    return row == 0 ? sqrt(1.0 / P) : sqrt(2.0 / P) * (row % 2 ? cos(angle) : sin(angle));
}
static int frequency_of(int row) { return (row + 1) / 2; }

/* The operator with a, b and c in that basis. */
static tn_cp *in_fourier_basis(tn_ctx *ctx, const tn_cp *cp)
{
    static double basis[P * P], both[4 * P * P];
    tn_tensor    *f = tn_tensor_2d(ctx, TN_REAL, P, P), *e = tn_tensor_2d(ctx, TN_REAL, 2 * P, 2 * P);
    for (int i = 0; i < P; i++)
        for (int j = 0; j < P; j++) {
            basis[i * P + j] = fourier(i, j);
            both[j * 2 * P + i] = both[(P + j) * 2 * P + P + i] = fourier(i, j);
        }
    tn_write(f, TN_F64, basis, P * P);
    tn_write(e, TN_F64, both, 4 * P * P);
    return tn_cp_fold_in(tn_cp_fold_out(cp, f, NULL), e, NULL);
}

typedef struct reading {            /* of one layer, from its weights alone */
    double ab;                      /* share of the tensor's squared norm in products of a with b                  */
    double equal;                   /* of that share: where a, b and c have one frequency                          */
    double rule;                    /* of that share: the formula                                                  */
    double power[FREQUENCIES + 1];  /* the same by frequency                                                       */
    double g[FREQUENCIES + 1];      /* the formula's g_k                                                           */
    double margin;                  /* s(0) minus the largest other s(d), as a share of s(0)                       */
} reading;

/* cos(A + B - C) = cos C (cos A cos B - sin A sin B) + sin C (sin A cos B + cos A sin B): four of the eight products of one
   frequency, each of which has the norm (P/2)^(3/2) as a tensor over c, a and b. */
static const struct { int c, a, b; double sign; } products[4] = {{0, 0, 0, 1}, {0, 1, 1, -1}, {1, 1, 0, 1}, {1, 0, 1, 1}};

static reading read_layer(tn_ctx *ctx, const tn_cp *cp)
{
    const int64_t n = (int64_t)4 * P * P * P;
    double       *t = zeros(n, sizeof *t), all = 0, ab = 0;
    reading       r = {0};
    tn_read(tn_cp_dense_symmetric(in_fourier_basis(ctx, cp)), TN_F64, t, n);
    check(ctx);
#define AT(c, i, j) t[((c) * 2 * P + (i)) * 2 * P + (j)]
    for (int i = 4 * P * P; i < n; i++) all += t[i] * t[i]; /* c from 1: row 0 is what all classes share */
    for (int c = 1; c < P; c++)
        for (int a = 0; a < P; a++)
            for (int b = 0; b < P; b++) {
                const double x = 2 * AT(c, a, P + b);       /* the coefficient of a b; two equal entries of the tensor */
                ab += x * x;
                if (frequency_of(c) == frequency_of(a) && frequency_of(a) == frequency_of(b)) r.equal += x * x;
            }
    for (int k = 1; k <= FREQUENCIES; k++) {
        double sum = 0;
        for (int i = 0; i < 4; i++) {
            const int first = 2 * k - 1;                        /* row of the cosine */
            sum += products[i].sign * 2 * AT(first + products[i].c, first + products[i].a, P + first + products[i].b);
        }
        r.power[k] = sum * sum / 4 / ab;
        r.rule += r.power[k];
        r.g[k] = sum / 4 / pow(P / 2.0, 1.5);
    }
#undef AT
    r.ab = ab / 2 / all;
    r.equal /= ab;
    for (int d = 1; d < P; d++) {
        double at0 = 0, s = 0;
        for (int k = 1; k <= FREQUENCIES; k++) {
            at0 += r.g[k];
            s += r.g[k] * cos(two_pi * (k * d % P) / P);
        }
        if (d == 1 || (at0 - s) / fabs(at0) < r.margin) r.margin = (at0 - s) / fabs(at0);
    }
    free(t);
    return r;
}

/* How many of the frequencies, largest first, hold 99 % of the formula's share. *largest: the first of them */
static int key_frequencies(const reading *r, int *largest)
{
    double sum = 0;
    int    n = 0;
    bool   taken[FREQUENCIES + 1] = {false};
    while (sum < 0.99 * r->rule) {
        int best = 0;
        for (int k = 1; k <= FREQUENCIES; k++) if (!taken[k] && (!best || r->power[k] > r->power[best])) best = k;
        taken[best] = true;
        sum += r->power[best];
        if (n++ == 0) *largest = best;
    }
    return n;
}

/* ---- eigenvectors -------------------------------------------------------------------------------------------------- */

/* Of half an eigenvector [P]: its frequency of most power, and that power's share. */
static double strongest(const double *v, int *frequency)
{
    double power[FREQUENCIES + 1] = {0}, all = 0;
    for (int i = 0; i < P; i++) {
        double x = 0;
        for (int j = 0; j < P; j++) x += fourier(i, j) * v[j];
        power[frequency_of(i)] += x * x;
        all += x * x;
    }
    *frequency = 0;
    for (int i = 1; i <= FREQUENCIES; i++) if (power[i] > power[*frequency]) *frequency = i;
    return power[*frequency] / all;
}

/* Prints the first eigenpairs of class 0, against the mean of all classes, and returns the mean share of the strongest
   frequency over both halves. Eigenvalues of different frequencies may nearly agree; their eigenvectors are then mixed. */
static double eigenvectors(tn_ctx *ctx, const tn_cp *cp, const char *folder)
{
    static double x[P], y[DRAWN][P], class_0[P];
    static char   name[DRAWN][64];
    double        value[SHOWN], v[SHOWN][2 * P], mean = 0;
    tn_image_series     series[DRAWN] = {{0}};
    tn_eigenpairs      e;
    tn_tensor    *u = tn_tensor_1d(ctx, TN_REAL, P);
    for (int j = 0; j < P; j++) class_0[j] = (j == 0) - 1.0 / P; /* without what all classes share */
    tn_write(u, TN_F64, class_0, P);
    if (tn_cp_eigen(cp, u, SHOWN, &e) != TN_OK) check(ctx);
    tn_read(e.values, TN_F64, value, SHOWN);
    tn_read(e.vectors, TN_F64, v[0], SHOWN * 2 * P);
    printf("\nEigenpairs of class 0\n\n   eigenvalue    over a: frequency, share    over b: frequency, share\n");
    for (int i = 0; i < SHOWN; i++) {
        int    fa, fb;
        double sa = strongest(v[i], &fa), sb = strongest(v[i] + P, &fb);
        printf("   %+10.3f %20d   %.3f %20d   %.3f\n", value[i], fa, sa, fb, sb);
        mean += (sa + sb) / 2 / SHOWN;
        if (i >= DRAWN) continue;
        for (int j = 0; j < P; j++) {                       /* in the order of k a mod P it is one period of a wave */
            x[j] = j;
            y[i][fa * j % P] = v[i][j];
        }
        snprintf(name[i], sizeof name[i], "%+.2f, frequency %d", value[i], fa);
        series[i] = (tn_image_series){ .name = name[i], .x = x, .y = y[i], .count = P, .kind = TN_IMAGE_SERIES_POINTS };
    }
    save_image(ctx, tn_image_plot(ctx, series, DRAWN, &(tn_image_plot_desc){ .title = "Two eigenvectors of class 0, over a",
        .x_title = "k a mod 113, k the eigenvector's frequency", .y_title = "component", .scale = 2 }), folder,
        "eigenvectors");
    tn_eigenpairs_destroy(&e);
    return mean;
}

/* ---- the formula alone, and pictures -------------------------------------------------------------------------------- */

static double formula(const reading *r, int a, int b, int c)
{
    double sum = 0;
    for (int k = 1; k <= FREQUENCIES; k++) sum += r->g[k] * cos(two_pi * (k * (a + b - c + P) % P) / P);
    return sum;
}

static void draw(tn_ctx *ctx, const tn_cp *cp, const reading *trained, const reading *untrained, const char *folder)
{
    static const char *const captions[3] = {"the layer", "the formula", "what is left"};
    static double            q[4 * P * P], tile[3][P * P], x[FREQUENCIES];
    for (int k = 0; k < FREQUENCIES; k++) x[k] = k + 1;
    save_image(ctx, tn_image_plot(ctx, (tn_image_series[]){
        { .name = "trained", .x = x, .y = trained->power + 1, .count = FREQUENCIES, .kind = TN_IMAGE_SERIES_BARS },
        { .name = "untrained", .x = x, .y = untrained->power + 1, .count = FREQUENCIES, .kind = TN_IMAGE_SERIES_LINE,
          .colour = 7 } }, 2, &(tn_image_plot_desc){ .title = "The formula's share of the tensor", .x_title = "frequency k",
        .y_title = "share of squared norm", .scale = 2 }), folder, "frequencies");
    tn_read(tn_cp_interaction_of(cp, 0), TN_F64, q, 4 * P * P);
    for (int a = 0; a < P; a++)
        for (int b = 0; b < P; b++) {
            tile[0][a * P + b] = 2 * q[a * 2 * P + P + b];
            tile[1][a * P + b] = formula(trained, a, b, 0);
            tile[2][a * P + b] = tile[0][a * P + b] - tile[1][a * P + b];
        }
    save_image(ctx, tn_image_tiles(ctx, tile[0], 3, P, P, &(tn_image_tiles_desc){ .rows = 1, .columns = 3, .captions = captions,
        .title = "Class 0: coefficients of a (rows) and b (columns)", .size = 2 * P, .clip = 99.5, .scale = 2 }), folder,
        "class_0");
}

static double accuracy_of_formula(const reading *r)
{
    int64_t right = 0;
    for (int a = 0; a < P; a++)
        for (int b = 0; b < P; b++) {
            int    best = 0;
            double most = formula(r, a, b, 0);
            for (int c = 1; c < P; c++) {
                const double z = formula(r, a, b, c);
                if (z > most) {
                    most = z;
                    best = c;
                }
            }
            right += best == (a + b) % P;
        }
    return (double)right / PAIRS;
}

int main(int argc, char **argv)
{
    options    o = {"out/modular", 400, 128, 1, 0, 0.5, 0.02, 1};
    const flag flags[] = {
        {"--steps", FLAG_COUNT, &o.steps, 1, 1e6, NULL},
        {"--hidden", FLAG_COUNT, &o.hidden, 1, 1e4, NULL},
        {"--share", FLAG_REAL, &o.share, 0.01, 0.99, NULL},
        {"--lr", FLAG_REAL, &o.lr, 0, 10, NULL},
        {"--weight-decay", FLAG_REAL, &o.weight_decay, 0, 10, NULL},
        SEED_FLAG(&o), THREADS_FLAG(&o), OUT_FLAG(&o), {0}
    };
    char       why[TN_WHY];
    tn_ctx    *ctx;
    tn_mlp     layer;
    double     start = now();
    int        first = 0;
    read_flags(argc, argv, flags);
    if (tn_ctx_create(&(tn_desc){ .seed = (uint64_t)o.seed, .threads = (int)o.threads }, &ctx, why) != TN_OK) stop(why);
    make_folder(o.out);
    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "layer", &(tn_mlp_desc){ .in = 2 * P, .hidden = o.hidden, .out = P }, &layer);
    task    t = make_task(ctx, &o);
    reading before = read_layer(ctx, tn_cp_from_mlp(ctx, &layer));
    train(ctx, params, &layer, &t, &o);
    double seconds = now() - start;
    double trained_right = accuracy(ctx, &layer, &t, 0, t.train);
    double right = accuracy(ctx, &layer, &t, t.train, PAIRS);

    tn_cp  *cp = tn_cp_from_mlp(ctx, &layer);
    reading after = read_layer(ctx, cp);
    int     keys = key_frequencies(&after, &first);
    double  right_by_formula = accuracy_of_formula(&after);
    printf("\nShares of the tensor's squared norm             untrained   trained\n\n"
           "  products of a with b, of everything            %9.3f %9.3f\n"
           "  a, b and c of one frequency, of these products %9.3f %9.3f\n"
           "  the formula, of these products                 %9.3f %9.3f\n",
           before.ab, after.ab, before.equal, after.equal, before.rule, after.rule);
    double pure = eigenvectors(ctx, cp, o.out);
    draw(ctx, cp, &after, &before, o.out);

    printf("\ntrained_accuracy: %.4f\n", trained_right);
    printf("held_out_accuracy: %.4f\n", right);
    printf("share_of_formula: %.4f\n", after.rule);
    printf("share_of_formula_untrained: %.4f\n", before.rule);
    printf("key_frequencies: %d, of which %d is the largest\n", keys, first);
    printf("formula_margin: %.4f\n", after.margin);
    printf("formula_accuracy: %.4f\n", right_by_formula);
    printf("eigenvectors_of_one_frequency: %.4f\n", pure);
    printf("seconds_of_training: %.1f\n", seconds);
    tn_ctx_destroy(ctx);
    return 0;
}
