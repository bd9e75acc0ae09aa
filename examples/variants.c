/* variants.c - is a tensor transformer as good as an ordinary one? One text, equal parameters, every layer of the family

   The MLP axis: act(W x) with ReLU, ReLU squared and GELU; act(W x) (x) V x with sigmoid (GLU), GELU, Swish and nothing (bilinear); and the
   product of three encoders, each under softmax attention. The attention axis: softmax, squared, bilinear, differential, each with
   the bilinear MLP. Every width is chosen so that all have as many parameters. Pearce et al. 2024 found bilinear layers about as
   good as SwiGLU's and ahead of ReLU's; here it can be seen, with paired seeds. Last, the length test: attentions and row
   scales trained at one length and read at four times as many tokens.

   sh examples/get_data.sh kjv        (or --data FILE: any text)
   cc -O2 -I. examples/variants.c -o variants -lm && ./variants --quick
   runs.h tells what a study is; the whole one takes hours, and may be stopped and started again.
   --part mlp|attention|length|all   and the flags of every study: --help */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "variants"
#include "runs.h"

enum { MLPS = 8, ATTENTIONS = 4, LENGTHS = 11 };

typedef struct axes {
    entry mlp[MLPS], attention[ATTENTIONS];
    struct { int v, way; const char *attention, *row; } length[LENGTHS];        /* way 1: without the row scale */
    int   lengths;
} axes;

static int add_mlp(study *s, const char *name, tn_mlp_kind kind, int64_t order)
{
    tn_transformer_desc d = study_desc(s);
    d.mlp = kind;
    d.order = order;
    return study_add(s, name, d, true);
}

static int add_attention(study *s, const char *name, tn_attention_kind kind, tn_row_scale row, bool head_norm)
{
    tn_transformer_desc d = study_desc(s);
    int v;
    d.attention = kind;
    d.row = row;
    d.head_norm = head_norm;
    v = study_add(s, name, d, true);
    s->variant[v].far = true;
    return v;
}

static void add_length(axes *a, int v, int way, const char *attention, const char *row)
{
    a->length[a->lengths].v = v;
    a->length[a->lengths].way = way;
    a->length[a->lengths].attention = attention;
    a->length[a->lengths++].row = row;
}

static void add_variants(study *s, axes *a, bool mlp, bool attention, bool length)
{
    static const struct { const char *name; tn_mlp_kind kind; int64_t order; } others[MLPS - 1] = {
        {"swiglu", TN_MLP_SWIGLU, 0}, {"geglu", TN_MLP_GEGLU, 0}, {"glu", TN_MLP_GLU, 0}, {"gelu", TN_MLP_GELU, 0}, {"relu2", TN_MLP_RELU2, 0},
        {"relu", TN_MLP_RELU, 0}, {"product3", TN_MLP_BILINEAR, 3}
    };
    int i, squared, bilinear, softmax = add_attention(s, "bilinear", TN_ATTENTION_SOFTMAX, TN_ROW_DEFAULT, false);
    a->mlp[0] = (entry){softmax, "bilinear"};
    for (i = 0; mlp && i < MLPS - 1; i++) a->mlp[i + 1] = (entry){add_mlp(s, others[i].name, others[i].kind, others[i].order), others[i].name};
    if (!attention && !length) return;
    squared = add_attention(s, "attention_squared", TN_ATTENTION_SQUARED, TN_ROW_DEFAULT, false);
    bilinear = add_attention(s, "attention_bilinear", TN_ATTENTION_BILINEAR, TN_ROW_DEFAULT, false);
    a->attention[0] = (entry){softmax, "softmax"};
    a->attention[1] = (entry){squared, "squared"};
    a->attention[2] = (entry){bilinear, "bilinear"};
    a->attention[3] = (entry){add_attention(s, "attention_differential", TN_ATTENTION_DIFFERENTIAL, TN_ROW_DEFAULT, false), "differential"};
    if (!length) return;
    add_length(a, softmax, 0, "softmax", "none");
    add_length(a, a->attention[3].v, 0, "differential", "head_norm");
    add_length(a, squared, 1, "squared", "none");
    add_length(a, squared, 0, "squared", "length");
    add_length(a, add_attention(s, "attention_squared_mean", TN_ATTENTION_SQUARED, TN_ROW_MEAN, false), 0, "squared", "mean");
    add_length(a, add_attention(s, "attention_squared_sum", TN_ATTENTION_SQUARED, TN_ROW_SUM, false), 0, "squared", "sum");
    add_length(a, add_attention(s, "attention_squared_head_norm", TN_ATTENTION_SQUARED, TN_ROW_NONE, true), 0, "squared", "head_norm");
    add_length(a, bilinear, 1, "bilinear", "none");
    add_length(a, bilinear, 0, "bilinear", "length");
    add_length(a, add_attention(s, "attention_bilinear_mean", TN_ATTENTION_BILINEAR, TN_ROW_MEAN, false), 0, "bilinear", "mean");
    add_length(a, add_attention(s, "attention_bilinear_head_norm", TN_ATTENTION_BILINEAR, TN_ROW_NONE, true), 0, "bilinear", "head_norm");
}

static void print_widths(const study *s)
{
    int     v;
    double  worst = 0;
    printf("\n%-30s %8s %10s %14s\n", "equal parameters", "hidden", "params", "flops a token");
    for (v = 0; v < s->variants; v++) {
        printf("%-30s %8lld %10lld %14.0f\n", s->variant[v].name, (long long)s->variant[v].desc.hidden, (long long)s->variant[v].params, s->variant[v].flops);
        worst = fmax(worst, fabs((double)s->variant[v].params / (double)s->variant[0].params - 1));
    }
    printf("they differ by at most %.2f %%\n\n", 100 * worst);
}

static void print_lengths(const study *s, const axes *a)
{
    double  value[MAX_SEEDS];
    int     i, q;
    int64_t k;
    printf("\nLength: trained at %lld tokens, read at %lld; nats a token in each quarter of them. Row scales:\n"
           "length: (T0 / max(n, T0))^1/2, T0 = %lld; mean: 1/n; sum: over the row's sum; head_norm: each head's output by its RMS\n",
           (long long)s->context, (long long)(FAR * s->context), (long long)s->context);
    printf("%-14s %-10s %9s %18s %18s %18s %18s\n", "attention", "row", "short", "first", "second", "third", "last");
    for (i = 0; i < a->lengths; i++) {
        estimate quarter, near;
        for (k = 0; k < s->seeds; k++) value[k] = s->run[a->length[i].v][k].token[POINTS - 1];
        near = estimate_of(value, s->seeds);
        printf("%-14s %-10s %9.4f", a->length[i].attention, a->length[i].row, near.mean);
        for (q = 0; q < QUARTERS; q++) {
            for (k = 0; k < s->seeds; k++) value[k] = s->run[a->length[i].v][k].far[a->length[i].way][q];
            quarter = estimate_of(value, s->seeds);
            printf(" %9.4f +-%.4f", quarter.mean, quarter.error);
        }
        printf("\n");
    }
    for (i = 0; i < a->lengths; i++) {
        for (k = 0; k < s->seeds; k++) value[k] = s->run[a->length[i].v][k].far[a->length[i].way][QUARTERS - 1];
        printf("length_%s_%s_last_quarter: %.4f\n", a->length[i].attention, a->length[i].row, estimate_of(value, s->seeds).mean);
    }
}

static void compare_with(const study *s, const axes *a, int other, const char *claim)
{
    double  d[MAX_SEEDS];
    estimate found;
    int64_t k;
    for (k = 0; k < s->seeds; k++) d[k] = s->run[a->mlp[other].v][k].token[POINTS - 1] - s->run[a->mlp[0].v][k].token[POINTS - 1];
    found = estimate_of(d, s->seeds);
    printf("%s: %s minus bilinear %+.4f +- %.4f\n", claim, a->mlp[other].label, found.mean, found.error);
}

int main(int argc, char **argv)
{
    study      *s = study_create("out/variants");
    const char *part = "all";
    axes        a;
    const flag  flags[] = {{"--part", FLAG_CHOICE, &part, 0, 0, "all|mlp|attention|length"}, STUDY_FLAGS(s), {0}};
    bool        all, mlp, attention, length;

    memset(&a, 0, sizeof a);
    read_flags(argc, argv, flags);
    all = !strcmp(part, "all");
    mlp = all || !strcmp(part, "mlp");
    attention = all || !strcmp(part, "attention");
    length = all || !strcmp(part, "length");
    study_open(s);
    add_variants(s, &a, mlp, attention, length);
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
