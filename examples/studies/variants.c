/* variants.c - is a tensor transformer as good as an ordinary one? One text, equal parameters, every layer of the family

   The MLP axis: act(W x) with ReLU, ReLU squared and GELU; act(W x) * V x with sigmoid (GLU), GELU, Swish and nothing
   (bilinear); and the product of three encoders, each under softmax attention. The attention axis: softmax, squared,
   bilinear, differential, each with the bilinear MLP. Every width is chosen so that all have as many parameters. Pearce et
   al. 2024 found bilinear layers about as good as SwiGLU's and ahead of ReLU's; here it can be seen, with paired seeds.
   Last, the length test: attentions and row scales trained at one length and read at four times as many tokens; row scales
   take the rate of their attention.

   sh examples/get_data.sh kjv        (or --data FILE: any text)
   cc -O2 -I. examples/studies/variants.c -o variants -lm && ./variants --quick
   runs.h tells what a study is; the whole one takes hours, says first how many, and may be stopped and started again.
   --part mlp|attention|length|all   and the flags of every study: --help */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "variants"
#include "runs.h"

enum { MLPS = 8, ATTENTIONS = 4, FORMS = 11 };

typedef struct mlp_form { const char *name; tn_mlp_kind kind; int64_t order; } mlp_form;
typedef struct attention_form {
    const char       *variant, *attention, *row;
    tn_attention_kind kind;
    tn_row_scale      scale;
    bool              head_norm;
    int               way;          /* 1: trained as another form is, and read without its row scale */
} attention_form;

static const mlp_form mlps[MLPS] = {
    {"bilinear", TN_MLP_BILINEAR, 0}, {"swiglu", TN_MLP_SWIGLU, 0}, {"geglu", TN_MLP_GEGLU, 0}, {"glu", TN_MLP_GLU, 0},
    {"gelu", TN_MLP_GELU, 0}, {"relu2", TN_MLP_RELU2, 0}, {"relu", TN_MLP_RELU, 0}, {"product3", TN_MLP_BILINEAR, 3}
};

/* The first four are the attention axis. */
static const attention_form attentions[FORMS] = {
    {"bilinear", "softmax", "none", TN_ATTENTION_SOFTMAX, TN_ROW_SCALE_DEFAULT, false, 0},
    {"attention_squared", "squared", "length", TN_ATTENTION_SQUARED, TN_ROW_SCALE_DEFAULT, false, 0},
    {"attention_bilinear", "bilinear", "length", TN_ATTENTION_BILINEAR, TN_ROW_SCALE_DEFAULT, false, 0},
    {"attention_differential", "differential", "head_norm", TN_ATTENTION_DIFFERENTIAL, TN_ROW_SCALE_DEFAULT, false, 0},
    {"attention_squared", "squared", "none", TN_ATTENTION_SQUARED, TN_ROW_SCALE_DEFAULT, false, 1},
    {"attention_squared_mean", "squared", "mean", TN_ATTENTION_SQUARED, TN_ROW_SCALE_MEAN, false, 0},
    {"attention_squared_sum", "squared", "sum", TN_ATTENTION_SQUARED, TN_ROW_SCALE_SUM, false, 0},
    {"attention_squared_head_norm", "squared", "head_norm", TN_ATTENTION_SQUARED, TN_ROW_SCALE_NONE, true, 0},
    {"attention_bilinear", "bilinear", "none", TN_ATTENTION_BILINEAR, TN_ROW_SCALE_DEFAULT, false, 1},
    {"attention_bilinear_mean", "bilinear", "mean", TN_ATTENTION_BILINEAR, TN_ROW_SCALE_MEAN, false, 0},
    {"attention_bilinear_head_norm", "bilinear", "head_norm", TN_ATTENTION_BILINEAR, TN_ROW_SCALE_NONE, true, 0}
};

typedef struct axes { entry mlp[MLPS], attention[FORMS]; } axes;

/* The variant of that name, which is made if there is none yet. */
static int variant_of(study *s, const char *name, tn_transformer_desc desc)
{
    int v = 0;
    while (v < s->variants && strcmp(s->variant[v].name, name)) v++;
    return v < s->variants ? v : study_add(s, name, desc, true);
}

static void add_variants(study *s, axes *a, int mlp_forms, int attention_forms)
{
    int base;
    for (int i = 0; i < mlp_forms; i++) {
        tn_transformer_desc d = study_desc(s);
        d.mlp = mlps[i].kind;
        d.mlp_order = mlps[i].order;
        a->mlp[i].label = mlps[i].name;
        a->mlp[i].v = variant_of(s, mlps[i].name, d);
    }
    for (int i = 0; i < attention_forms; i++) {
        tn_transformer_desc d = study_desc(s);
        d.attention = attentions[i].kind;
        d.row_scale = attentions[i].scale;
        d.head_norm = attentions[i].head_norm;
        a->attention[i].label = attentions[i].attention;
        a->attention[i].v = variant_of(s, attentions[i].variant, d);
        s->variant[a->attention[i].v].far = true;
        if (i < ATTENTIONS) continue;
        for (base = 0; strcmp(attentions[base].attention, attentions[i].attention); base++) { }
        s->variant[a->attention[i].v].rate_of = a->attention[base].v;
        s->variant[a->attention[i].v].brief = a->attention[i].v != a->attention[base].v;
    }
}

static void print_widths(const study *s)
{
    double worst = 0;
    printf("\n%-30s %8s %10s %14s\n", "equal parameters", "hidden", "params", "flops a token");
    for (int v = 0; v < s->variants; v++) {
        printf("%-30s %8lld %10lld %14.0f\n", s->variant[v].name, (long long)s->variant[v].desc.hidden,
               (long long)s->variant[v].params, s->variant[v].flops);
        keep_largest(&worst, fabs((double)s->variant[v].params / (double)s->variant[0].params - 1));
    }
    printf("they differ by at most %.2f %%\n\n", 100 * worst);
}

static estimate quarter_of(const study *s, const axes *a, int form, int quarter)
{
    double value[MAX_SEEDS];
    for (int64_t k = 0; k < s->seeds; k++) value[k] = s->run[a->attention[form].v][k].far[attentions[form].way][quarter];
    return estimate_of(value, s->seeds);
}

static void print_lengths(const study *s, const axes *a)
{
    printf("\nLength: trained at %lld tokens, read at %lld; nats a token in each quarter of them. Row scales:\n"
           "length: (T0 / max(n, T0))^1/2, T0 = %lld; mean: 1/n; sum: over the row's sum; head_norm: heads by their RMS\n"
           "%-14s %-10s %18s %18s %18s %18s\n", (long long)s->context, (long long)(FAR * s->context), (long long)s->context,
           "attention", "row", "first", "second", "third", "last");
    for (int i = 0; i < FORMS; i++) {
        printf("%-14s %-10s", attentions[i].attention, attentions[i].row);
        for (int q = 0; q < QUARTERS; q++) print_estimate(quarter_of(s, a, i, q));
        printf("\n");
    }
    for (int i = 0; i < FORMS; i++) {
        estimate last = quarter_of(s, a, i, QUARTERS - 1);
        printf("length_%s_%s_last_quarter: %.4f\n", attentions[i].attention, attentions[i].row, last.mean);
        printf("length_%s_%s_last_quarter_error: %.4f\n", attentions[i].attention, attentions[i].row, last.error);
    }
}

static void compare_with(const study *s, const axes *a, int other, const char *claim)
{
    const training *r = s->run[a->mlp[other].v], *bilinear = s->run[a->mlp[0].v];
    double          d[MAX_SEEDS];
    for (int64_t k = 0; k < s->seeds; k++) d[k] = r[k].token[POINTS - 1] - bilinear[k].token[POINTS - 1];
    estimate e = estimate_of(d, s->seeds);
    printf("%-40s %8s minus bilinear", claim, mlps[other].name);
    print_estimate(e);
    printf("  |difference| %.4f, 2 standard errors %.4f: %s\n", fabs(e.mean), 2 * e.error, verdict(e));
}

int main(int argc, char **argv)
{
    study      *s = study_create("out/variants");
    const char *part = "all";
    axes        a;
    const flag  flags[] = {{"--part", FLAG_CHOICE, &part, 0, 0, "all|mlp|attention|length"}, STUDY_FLAGS(s), {0}};

    memset(&a, 0, sizeof a);
    read_flags(argc, argv, flags);
    bool all = !strcmp(part, "all"), mlp = all || !strcmp(part, "mlp");
    bool attention = all || !strcmp(part, "attention"), length = all || !strcmp(part, "length");
    study_open(s);
    add_variants(s, &a, mlp ? MLPS : 1, length ? FORMS : attention ? ATTENTIONS : 1);
    print_widths(s);
    study_run(s);
    if (mlp) study_table(s, "mlp", a.mlp, MLPS);
    if (attention) study_table(s, "attention", a.attention, ATTENTIONS);
    if (length) print_lengths(s, &a);
    if (mlp) {
        printf("\nPearce et al. 2024, beside what is seen here, nats a token\n");
        compare_with(s, &a, 1, "bilinear is about as good as SwiGLU");
        compare_with(s, &a, 6, "bilinear is ahead of ReLU");
        study_plot(s, "mlp", "The MLP, under softmax attention", a.mlp, MLPS);
    }
    if (attention) study_plot(s, "attention", "Attention, with the bilinear MLP", a.attention, ATTENTIONS);
    printf("seconds: %.1f\n", now() - s->started);
    study_destroy(s);
    return 0;
}
