/* anneal.c - turn a gated layer into a bilinear one while it trains on, then fold it into one tensor

   SwiGLU and ReGLU, y = P (act(W x + b) * (V x + c)) + p, have no finite tensor: the activation is in the way. Take it
   out little by little. With the gate
       gate_t(z) = (1 - t) act(z) + t z
   the layer is the gated one at t = 0 and bilinear at t = 1, and in between training makes good what each small change
   breaks. At t = 1 it folds exactly. It is compared with a bilinear layer trained from scratch for as many steps, and what
   the gated layer is worth if the activation is simply left away.

   sh examples/get_data.sh fashion
   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/anneal.c -o anneal -lm && ./anneal
   --data fashion|mnist   --kind swiglu|reglu|both   --epochs N (gated)   --anneal-epochs N   --batch N   --lr X
   --weight-decay X   --width N   --seed N   --threads N */
#define _POSIX_C_SOURCE 200809L
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "anneal"
#include "common.h"

/* t reaches 1 after this share of the steps; the rest trains the bilinear layer. */
#define ANNEALED 0.75

typedef struct options {
    const char *data, *kind;
    int64_t     epochs, anneal_epochs, batch, width, seed, threads;
    double      lr, weight_decay;
} options;

typedef struct gated {
    tn_params *params;
    tn_mlp     layer;
    tn_act     act;
    double     t;
} gated;

static options read_options(int argc, char **argv)
{
    options    o = {"fashion", "both", 3, 3, 128, 128, 1, 0, 2e-3, 0.05};
    const flag flags[] = {
        TRAINING_FLAGS(&o),
        {"--kind", FLAG_CHOICE, &o.kind, 0, 0, "swiglu|reglu|both"},
        {"--anneal-epochs", FLAG_COUNT, &o.anneal_epochs, 1, MAX_EPOCHS, NULL},
        WIDTH_FLAG(&o),
        SEED_FLAG(&o),
        {0}
    };
    read_flags(argc, argv, flags);
    if (o.epochs + o.anneal_epochs > MAX_EPOCHS) stop("--epochs and --anneal-epochs are at most 1000 together");
    return o;
}

/* P ((1 - t) act(z) + t z) * (V x + c)) + p, z = W x + b: both gates from one pass of the encoders */
static tn_tensor *logits_of_gated(tn_ctx *ctx, const void *model, tn_tensor *x)
{
    const gated  *g = (const gated *)model;
    const tn_mlp *m = &g->layer;
    int64_t       h = m->desc.hidden;
    tn_tensor    *z = tn_affine(ctx, x, tn_reshape_2d(m->w, 2 * h, m->desc.in), tn_reshape(m->b, 1, &(int64_t){2 * h})), *y;
    if (g->t >= 1) y = tn_glu(ctx, z, TN_ACT_NONE);
    else if (g->t <= 0) y = tn_glu(ctx, z, g->act);
    else y = tn_add(ctx, tn_scale(ctx, tn_glu(ctx, z, g->act), 1 - g->t), tn_scale(ctx, tn_glu(ctx, z, TN_ACT_NONE), g->t));
    return tn_affine(ctx, y, m->p, m->pb);
}

static void anneal(void *model, double done)
{
    gated *g = (gated *)model;
    g->t = done < ANNEALED ? done / ANNEALED : 1;
}

static void gated_init(tn_ctx *ctx, gated *g, const options *o, tn_mlp_kind kind)
{
    tn_ctx_seed(ctx, (uint64_t)o->seed);
    g->params = tn_params_create(ctx);
    g->act = kind == TN_MLP_SWIGLU ? TN_ACT_SWISH : kind == TN_MLP_REGLU ? TN_ACT_RELU : TN_ACT_NONE;
    g->t = 0;
    tn_mlp_init(g->params, "mlp", &(tn_mlp_desc){ .in = PIXELS, .hidden = o->width, .out = CLASSES, .kind = kind,
                                                  .bias = true, .out_bias = true }, &g->layer);
    check(ctx);
}

static double train_gated(tn_ctx *ctx, gated *g, const options *o, const image_set *set, const image_set *test, int64_t epochs, const char *label, bool annealing)
{
    return train(ctx, &(training){ .params = g->params, .logits = logits_of_gated, .model = g, .set = set, .test = test, .epochs = epochs, .batch = o->batch,
        .seed = (uint64_t)o->seed, .lr = o->lr, .weight_decay = o->weight_decay, .before_step = annealing ? anneal : NULL, .label = label });
}

/* Train gated, anneal, fold; prints the results. */
static void convert(tn_ctx *ctx, const options *o, tn_mlp_kind kind, const image_set *set, const image_set *test)
{
    const char *name = tn_mlp_kind_name(kind);
    char        label[32];
    gated       g;
    gated_init(ctx, &g, o, kind);
    snprintf(label, sizeof label, "%-10s", name);
    double before = train_gated(ctx, &g, o, set, test, o->epochs, label, false);
    g.t = 1;
    double dropped = accuracy_of(ctx, logits_of_gated, &g, test);
    snprintf(label, sizeof label, "  -> t = 1  ");
    double after = train_gated(ctx, &g, o, set, test, o->anneal_epochs, label, true);
    tn_mlp bilinear = g.layer;                       /* the same parameters, read as what they have become */
    bilinear.desc.kind = TN_MLP_BILINEAR;
    tn_cp *cp = tn_cp_from_mlp(ctx, &bilinear);
    check(ctx);
    printf("accuracy_%s: %.4f\n", name, before);
    printf("accuracy_%s_without_activation: %.4f\n", name, dropped);
    printf("accuracy_%s_annealed: %.4f\n", name, after);
    printf("accuracy_%s_folded: %.4f\n", name, accuracy_of(ctx, logits_of_operator, cp, test));
    printf("fold_error_%s: %.2e\n", name, largest_difference(ctx, logits_of_gated, &g, logits_of_operator, cp, test));
    tn_cp_destroy(cp);
    tn_params_destroy(g.params);
}

int main(int argc, char **argv)
{
    options o = read_options(argc, argv);
    tn_desc desc = { .threads = (int)o.threads };
    char    why[TN_WHY];
    double  start = now();
    tn_ctx *ctx;
    gated   g;

    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    image_set set = load_set(ctx, o.data, "train");
    image_set test = load_set(ctx, o.data, "t10k");
    gated_init(ctx, &g, &o, TN_MLP_BILINEAR);
    double scratch = train_gated(ctx, &g, &o, &set, &test, o.epochs + o.anneal_epochs, "bilinear  ", false);
    tn_params_destroy(g.params);
    if (strcmp(o.kind, "reglu")) convert(ctx, &o, TN_MLP_SWIGLU, &set, &test);
    if (strcmp(o.kind, "swiglu")) convert(ctx, &o, TN_MLP_REGLU, &set, &test);
    printf("accuracy_bilinear_from_scratch: %.4f\n", scratch);
    printf("seconds: %.1f\n", now() - start);
    tn_ctx_destroy(ctx);
    free_set(&set);
    free_set(&test);
    return 0;
}
