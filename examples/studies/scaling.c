/* scaling.c - how does the loss of tensor transformers fall with parameters, tokens and time?

   Softmax, squared and bilinear attention with bilinear and SwiGLU MLPs: six models of each of several sizes; the MLP's width
   makes those of one size equal in parameters. Printed are, with errors:

   - L = E + A N^-a + B D^-b for each of the six, fitted as law.h says: N parameters, D tokens, L nats per token of the
     held-out part. Over a narrow range E and the exponents trade against each other; the slopes -dlnL/dlnN and -dlnL/dlnD in
     the middle of the table are known better;
   - L = E + C t^-c, t seconds of training, of those models that no other size of the same kind beats in less time; and the
     losses after equal times;
   - at each size, how many times the tokens one kind takes to the loss that another has after a quarter and after half of
     them ("-": not within the table), and s of a factor that goes like N^s: below 0 it shrinks as models grow.

   Errors are the bootstrap's standard deviations over seeds. For each size one seed fewer is drawn than there are, with
   replacement, which makes the variance of a mean unbiased (Rao and Wu 1988); the same ones for all six, because runs of a seed
   read one text in one order. They say nothing of how well a law describes the losses, nor of sizes that were not trained.

   sh examples/get_data.sh kjv        (or --data FILE: any text)
   cc -O2 -I. examples/studies/scaling.c -o scaling -lm && ./scaling --quick
   runs.h tells what a study is; --sizes replaces --dim, --heads and --layers. The whole one takes a night of two cores: it
   times some steps of each model, says first how many hours it will take, and may be stopped and started again; --report prints
   what finished runs say. --check recovers planted laws. Both train nothing. In the size of GPT-2, on a GPU:

   make build/examples/studies/scaling-cuda
   build/examples/studies/scaling-cuda --backend cuda --precision bf16 --jobs 1 --data openwebtext.txt --vocab 32768
       --context 1024 --batch 64 --tokens 2500000000 --sizes 256:4:4,512:8:8,768:12:12 --out out/gpt2

   Of several GPUs each takes some of the sizes, by CUDA_VISIBLE_DEVICES and --sizes and with the same --out; the same command
   with all sizes then finds the runs of all of them. */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "scaling"
#include "runs.h"
#include "law.h"

enum { ATTENTIONS = 3, MLPS = 2, FORMS = ATTENTIONS * MLPS, MAX_SIZES = 8, BUDGETS = 4, LEVELS = 2, DRAWS = 200,
       MAX_SAMPLES = MAX_SIZES * MAX_SEEDS * POINTS };

static const struct { const char *name; tn_attention_kind kind; } attentions[ATTENTIONS] = {
    {"softmax", TN_ATTENTION_SOFTMAX}, {"squared", TN_ATTENTION_SQUARED}, {"bilinear", TN_ATTENTION_BILINEAR}
};
static const struct { const char *name; tn_mlp_kind kind; } mlps[MLPS] = {
    {"bilinear", TN_MLP_BILINEAR}, {"swiglu", TN_MLP_SWIGLU}
};

/* ---- what the runs say ----------------------------------------------------------------------- */

/* Forms are numbered MLP by MLP. The last pair is what a whole tensor transformer needs beside the usual one. */
enum { SOFTMAX_BILINEAR, SQUARED_BILINEAR, BILINEAR_BILINEAR, SOFTMAX_SWIGLU, SQUARED_SWIGLU, BILINEAR_SWIGLU };
static const int pairs[][2] = {
    {SQUARED_BILINEAR, SOFTMAX_BILINEAR}, {BILINEAR_BILINEAR, SOFTMAX_BILINEAR}, {SQUARED_SWIGLU, SOFTMAX_SWIGLU},
    {BILINEAR_SWIGLU, SOFTMAX_SWIGLU}, {SOFTMAX_BILINEAR, SOFTMAX_SWIGLU}, {BILINEAR_BILINEAR, SOFTMAX_SWIGLU}
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

enum { LAW_E, LAW_A, LAW_ALPHA, LAW_B, LAW_BETA, SLOPE_N, SLOPE_D, LAW_NUMBERS, TIME_NUMBERS = BUDGETS + 3 };

typedef struct numbers {            /* doubles alone: it is an array of them, too */
    double loss[FORMS][MAX_SIZES], law[FORMS][LAW_NUMBERS];
    double time[FORMS][TIME_NUMBERS];                         /* losses after each budget; E, C, c */
    double factor[LEVELS][PAIRS][MAX_SIZES + 1];              /* of each size; after the last one s */
} numbers;
enum { COUNT = sizeof(numbers) / sizeof(double) };

typedef struct scaling {
    study  *s;
    int     sizes;
    int64_t shape[MAX_SIZES][3];    /* width, heads, blocks */
    char    name[MAX_SIZES][FORMS][64], label[FORMS][64];
    double  budget[BUDGETS];
    int     seeds[MAX_SIZES];                                 /* that all six of a size have */
    int     picks[MAX_SIZES], pick[MAX_SIZES][MAX_SEEDS];     /* those that count, one perhaps twice */
    law     law[FORMS], time[FORMS];
    bool    near;                                             /* those are there, and fits begin with them */
    numbers value, error;
} scaling;

static int variant_of(int size, int form) { return size * FORMS + form; }

static double params_of(const scaling *c, int size, int form) { return (double)c->s->variant[variant_of(size, form)].params; }

/* Of the seeds that count and have not diverged. */
static double mean_at(const scaling *c, int size, int form, int point)
{
    double sum = 0;
    int    count = 0;
    for (int k = 0; k < c->picks[size]; k++) {
        const double loss = c->s->run[variant_of(size, form)][c->pick[size][k]].token[point];
        if (is_number(loss)) sum += loss, count++;
    }
    return count ? sum / count : NAN;
}

static double seconds_at(const scaling *c, int size, int form, int point)
{
    return seconds_a_token(c->s, variant_of(size, form)) * tokens_at(c->s, point);
}

static void law_numbers(scaling *c, int form, double *to)
{
    sample s[MAX_SAMPLES];
    int    count = 0, sizes = 0;
    double slope[MAX_NUMBERS], middle[MAX_TERMS] = {0};
    for (int size = 0; size < c->sizes; sizes += c->picks[size++] > 0)
        for (int k = 0; k < c->picks[size]; k++)
            for (int point = 0; point < POINTS; point++) {
                const double loss = c->s->run[variant_of(size, form)][c->pick[size][k]].token[point];
                if (!is_number(loss)) continue;
                s[count++] = (sample){{log(params_of(c, size, form)), log(tokens_at(c->s, point))}, log(loss)};
            }
    law l = fit(2, s, sizes < 3 ? 0 : count, c->near ? &c->law[form] : NULL);
    law_at(2, l.p, middle, slope);
    for (int k = 0; k < 2; k++) {
        to[LAW_A + 2 * k] = exp(l.p[1 + 2 * k] + l.p[2 + 2 * k] * l.centre[k]);
        to[LAW_ALPHA + 2 * k] = l.p[2 + 2 * k];
        to[SLOPE_N + k] = l.p[2 + 2 * k] * slope[1 + 2 * k];
    }
    to[LAW_E] = exp(l.p[0]);
    if (!c->near) c->law[form] = l;
}

/* The models of a form that no other size of it beats in less time, by time. */
static int frontier(const scaling *c, int form, sample *s)
{
    int count = 0;
    for (int i = 0; i < c->sizes * POINTS; i++) {
        const double t = seconds_at(c, i / POINTS, form, i % POINTS), loss = mean_at(c, i / POINTS, form, i % POINTS);
        bool         beaten = !is_number(loss);
        for (int j = 0; j < c->sizes * POINTS && !beaten; j++)
            beaten = j != i && seconds_at(c, j / POINTS, form, j % POINTS) <= t
                  && mean_at(c, j / POINTS, form, j % POINTS) <= loss;
        if (beaten) continue;
        int at = count++;
        for (; at > 0 && s[at - 1].x[0] > log(t); at--) s[at] = s[at - 1];
        s[at] = (sample){{log(t), 0}, log(loss)};
    }
    return count;
}

static void time_numbers(scaling *c, int form, double *to)
{
    sample s[MAX_SAMPLES];
    int    count = frontier(c, form, s);
    for (int b = 0; b < BUDGETS; b++) {
        to[b] = NAN;
        for (int i = 1; i < count; i++) {
            const double share = (log(c->budget[b]) - s[i - 1].x[0]) / (s[i].x[0] - s[i - 1].x[0]);
            if (share >= -1e-9 && share <= 1 + 1e-9) to[b] = exp(s[i - 1].y + share * (s[i].y - s[i - 1].y));
        }
    }
    law l = fit(1, s, count, c->near ? &c->time[form] : NULL);
    to[BUDGETS] = exp(l.p[0]);
    to[BUDGETS + 1] = exp(l.p[1] + l.p[2] * l.centre[0]);
    to[BUDGETS + 2] = l.p[2];
    if (!c->near) c->time[form] = l;
}

/* Of a form over another. Beyond the table's tokens, or within fewer than its first: NaN. */
static void factor_numbers(const scaling *c, const int pair[2], int level, double *factor)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, at[POINTS];
    for (int size = 0; size < c->sizes; size++) {
        factor[size] = NAN;
        for (int point = 0; point < POINTS; point++) at[point] = mean_at(c, size, pair[0], point);
        reach r = tokens_to(c->s, at, mean_at(c, size, pair[1], level));
        if (r.sign != '=') continue;
        factor[size] = r.tokens / tokens_at(c->s, level);
        const double u = log(params_of(c, size, pair[0])), v = log(factor[size]);
        n++, x += u, y += v, xx += u * u, xy += u * v;
    }
    factor[c->sizes] = n > 1 ? (n * xy - x * y) / (n * xx - x * x) : NAN;
}

static numbers measure(scaling *c)
{
    numbers m;
    memset(&m, 0, sizeof m);
    for (int form = 0; form < FORMS; form++) {
        law_numbers(c, form, m.law[form]);
        time_numbers(c, form, m.time[form]);
        for (int size = 0; size < c->sizes; size++) m.loss[form][size] = mean_at(c, size, form, POINTS - 1);
    }
    for (int level = 0; level < LEVELS; level++)
        for (int pair = 0; pair < PAIRS; pair++) factor_numbers(c, pairs[pair], level, m.factor[level][pair]);
    return m;
}

/* Times that every form's frontier contains: budgets between the longest first and the shortest last. */
static void choose_budgets(scaling *c)
{
    double low = 0, high = HUGE_VAL;
    sample s[MAX_SAMPLES];
    for (int form = 0; form < FORMS; form++) {
        const int count = frontier(c, form, s);
        if (count) low = fmax(low, exp(s[0].x[0])), high = fmin(high, exp(s[count - 1].x[0]));
    }
    for (int b = 0; b < BUDGETS; b++) c->budget[b] = low * pow(high / low, b / (double)(BUDGETS - 1));
}

/* The first seeds whose runs are there. Whether some size has several. */
static bool count_seeds(scaling *c)
{
    bool several = false;
    for (int size = 0; size < c->sizes; size++) {
        int64_t k = 0;
        for (bool all = true; k < c->s->seeds; k++) {
            for (int form = 0; form < FORMS; form++) all = all && c->s->run[variant_of(size, form)][k].there;
            if (!all) break;
            c->pick[size][k] = (int)k;
        }
        c->seeds[size] = c->picks[size] = (int)k;
        several = several || k > 1;
    }
    return several;
}

/* Fills value and error. Where no draw differs, as of one seed, the error is unknown. */
static void analyse(scaling *c, int draws)
{
    double   sum[COUNT] = {0}, squares[COUNT] = {0}, found[COUNT] = {0};
    uint64_t random = 1;
    if (!count_seeds(c)) draws = 0;
    c->near = false;
    choose_budgets(c);
    c->value = measure(c);
    c->near = true;
    for (int draw = 0; draw < draws; draw++) {
        for (int size = 0; size < c->sizes; size++) {
            if (c->seeds[size] > 1) c->picks[size] = c->seeds[size] - 1;
            for (int k = 0; k < c->picks[size]; k++) c->pick[size][k] = (int)random_below(&random, c->seeds[size]);
        }
        const numbers m = measure(c);
        for (int i = 0; i < COUNT; i++) {
            const double d = ((const double *)&m)[i] - ((const double *)&c->value)[i];
            if (is_number(d)) sum[i] += d, squares[i] += d * d, found[i]++;
        }
    }
    for (int i = 0; i < COUNT; i++)
        ((double *)&c->error)[i] = squares[i] > 0 && found[i] > draws / 2
            ? sqrt(squares[i] / found[i] - sum[i] * sum[i] / found[i] / found[i]) : NAN;
}

/* ---- tables ------------------------------------------------------------------------------------ */

/* Rows of numbers with their errors: `stride` of them lie in a row of `value`, of which `columns` are shown. */
static void print_rows(const scaling *c, const double *value, int stride, int columns)
{
    const double *error = (const double *)&c->error + (value - (const double *)&c->value);
    const bool    paired = stride == MAX_SIZES + 1;
    for (int row = 0; row < (paired ? (int)PAIRS : (int)FORMS); row++) {
        printf("%-20s", c->label[paired ? pairs[row][0] : row]);
        if (paired) printf("%-20s", c->label[pairs[row][1]]);
        for (int i = 0; i < columns; i++) print_estimate((estimate){value[row * stride + i], error[row * stride + i]});
        printf("\n");
    }
}

static void print_head(const double *column, int count, const char *more)
{
    for (int i = 0; i < count; i++) printf(" %18.6g", column[i]);
    printf("%s\n", more);
}

static void print_tables(scaling *c)
{
    static const char *const level_name[LEVELS] = {"quarter", "half"};
    double params[MAX_SIZES];
    for (int size = 0; size < c->sizes; size++) params[size] = params_of(c, size, 0);
    /* A varies with a, and B with b, by orders of magnitude. */
    for (int form = 0; form < FORMS; form++) c->error.law[form][LAW_A] = c->error.law[form][LAW_B] = NAN;
    printf("\nseeds:");
    for (int size = 0; size < c->sizes; size++) printf(" %d", c->seeds[size]);
    printf("\n\nloss: after %.0f tokens, nats per token, by parameters\n%-20s", tokens_at(c->s, POINTS - 1), "");
    print_head(params, c->sizes, "");
    print_rows(c, c->value.loss[0], MAX_SIZES, c->sizes);
    printf("\nlaw: L = E + A N^-a + B D^-b; slopes -dlnL/dlnN and -dlnL/dlnD in the middle\n%-20s %18s %18s %18s %18s %18s %18s "
           "%18s\n", "", "E", "A", "a", "B", "b", "slope N", "slope D");
    print_rows(c, c->value.law[0], LAW_NUMBERS, LAW_NUMBERS);
    printf("\ntime: loss after so many seconds of training, of the best size; L = E + C t^-c\n%-20s", "");
    print_head(c->budget, BUDGETS, "                  E                  C                  c");
    print_rows(c, c->value.time[0], TIME_NUMBERS, TIME_NUMBERS);
    for (int level = 0; level < LEVELS; level++) {
        printf("\n%s: times the tokens to the loss of the other after a %s of them, by parameters; s\n%-40s",
               level_name[level], level_name[level], "");
        print_head(params, c->sizes, "                  s");
        print_rows(c, c->value.factor[level][0], MAX_SIZES + 1, c->sizes + 1);
    }
    printf("\nElsewhere: 1.9 for bilinear over softmax attention with the bilinear MLP, 0.46 million parameters, after half of\n"
           "6 million tokens (docs/results.md); 1.04 for bilinear attention and MLP over softmax and SwiGLU, 500 million (Riggs)\n");
}

static void plot(const scaling *c)
{
    tn_image_series series[2 * FORMS];
    double          x[FORMS][MAX_SIZES];
    int             drawn = 0;
    memset(series, 0, sizeof series);
    for (int form = 0; form < FORMS; form++) {
        for (int size = 0; size < c->sizes; size++) x[form][size] = params_of(c, size, form);
        tn_image_series line = { .name = c->label[form], .x = x[form], .y = c->value.loss[form], .count = c->sizes,
                                 .colour = form % ATTENTIONS + 1, .dashed = form >= ATTENTIONS };
        series[drawn++] = line;
        line.name = NULL;
        line.kind = TN_IMAGE_SERIES_POINTS;
        series[drawn++] = line;
    }
    save_image(c->s->ctx, tn_image_plot(c->s->ctx, series, drawn, &(tn_image_plot_desc){ .title = "Attention and MLP, by size",
        .x_title = "parameters", .y_title = "held-out loss, nats per token", .log_x = true, .width = 720, .height = 480,
        .scale = 2 }), c->s->out, "scaling");
}

/* ---- planted laws -------------------------------------------------------------------------------- */

static double normal(uint64_t *random)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += ldexp((double)(next_random(random) >> 11), -53);
    return sum;
}

/* Form f needs times[f] (N / 10^6)^trend[f] as many tokens as form 0. */
static const double planted_times[FORMS] = {1, 1.3, 1.9, 0.8, 1.1, 1.5}, planted_trend[FORMS] = {0, 0, -0.1, 0, 0, -0.05};
static const double planted_law[LAW_NUMBERS] = {1.5, 40, 0.3, 400, 0.4, 0, 0};

static void plant(scaling *c, double noise)
{
    uint64_t random = 7;
    c->sizes = 6;
    c->s->variants = c->sizes * FORMS;
    for (int v = 0; v < c->s->variants; v++) {
        const int    form = v % FORMS;
        const double n = 1e5 * pow(2.2, v / FORMS), times = planted_times[form] * pow(n / 1e6, planted_trend[form]);
        c->s->variant[v].params = (int64_t)n;
        for (int k = 0; k < c->s->seeds; k++) {
            const double seed = noise * normal(&random);
            c->s->run[v][k].seconds = 1e-10 * n;
            c->s->run[v][k].there = true;
            for (int i = 0; i < POINTS; i++)
                c->s->run[v][k].token[i] = exp(seed + noise / 2 * normal(&random)) * (1.5 + 40 * pow((double)(int64_t)n, -0.3)
                    + 400 * pow(tokens_at(c->s, i) / times, -0.4));
        }
    }
}

/* Prints the largest deviation of what is recovered, in units of its limit; whether that is below 1. */
static bool recovers(scaling *c, const char *what, double relative, double errors)
{
    double worst = 0;
    analyse(c, errors > 0 ? DRAWS : 0);
    for (int form = 0; form < FORMS; form++)
        for (int i = 0; i < SLOPE_N; i++) {
            const double right = i == LAW_B ? 400 * pow(planted_times[form], 0.4) : planted_law[i];
            const double limit = relative * right + (errors > 0 ? errors * c->error.law[form][i] : 0);
            if (planted_trend[form] == 0) keep_largest(&worst, fabs(c->value.law[form][i] - right) / limit);
        }
    /* Between points the loss is taken as a line over ln D. */
    for (int pair = 0; pair < PAIRS - 2; pair++) {
        const double right = planted_trend[pairs[pair][0]], error = errors > 0 ? errors * c->error.factor[0][pair][c->sizes] : 0;
        keep_largest(&worst, fabs(c->value.factor[0][pair][c->sizes] - right) / (0.02 + error));
    }
    printf("check_%s: %.3g\n", what, worst);
    return worst < 1;
}

static bool check_fits(scaling *c)
{
    bool good;
    c->s->tokens = 8000000;
    plant(c, 0);
    good = recovers(c, "exact", 1e-5, 0);
    c->s->run[variant_of(3, 0)][1].token[2] *= 1.05;          /* outliers hardly count, and what diverged does not */
    c->s->run[variant_of(1, 4)][2].token[0] = HUGE_VAL;
    good = recovers(c, "outlier", 0.05, 0) && good;
    plant(c, 0.002);
    return recovers(c, "noise", 0.01, 3) && good;
}

/* ---- the study ------------------------------------------------------------------------------------- */

/* "WIDTH:HEADS:BLOCKS,..." */
static void read_sizes(scaling *c, const char *text)
{
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        long long v[3];
        int       end = 0;
        if (c->sizes == MAX_SIZES || sscanf(at, "%lld:%lld:%lld%n", &v[0], &v[1], &v[2], &end) < 3 || (at[end] && at[end] != ',')
            || v[0] < 4 || v[1] < 1 || v[2] < 1 || v[0] > 65536 || v[1] > v[0] || v[2] > 999) {
            fprintf(stderr, PROGRAM ": --sizes is \"%s\", expected 1 to %d times WIDTH:HEADS:BLOCKS, with commas between them\n",
                    text, MAX_SIZES);
            exit(2);
        }
        for (int i = 0; i < 3; i++) c->shape[c->sizes][i] = v[i];
        c->sizes++;
    }
}

static void add_variants(scaling *c)
{
    study *s = c->s;
    for (int v = 0; v < c->sizes * FORMS; v++) {
        const int           size = v / FORMS, form = v % FORMS;
        const int64_t      *shape = c->shape[size];
        tn_transformer_desc d = usual_model(s->vocab, s->context, shape[0], shape[1], shape[2]);
        d.attention = attentions[form % ATTENTIONS].kind;
        d.mlp = mlps[form / ATTENTIONS].kind;
        if (form > 0) d.hidden = fit_hidden(&d, s->variant[variant_of(size, 0)].params);
        snprintf(c->name[size][form], sizeof c->name[size][form], "%s_%s_%lld_%lld_%lld", attentions[form % ATTENTIONS].name,
                 mlps[form / ATTENTIONS].name, (long long)shape[0], (long long)shape[1], (long long)shape[2]);
        study_add(s, c->name[size][form], d, false);
    }
}

int main(int argc, char **argv)
{
    static scaling c;
    const char    *usual = "40:2:1,64:2:1,128:2:1,160:4:2,192:4:4,256:4:6", *sizes = usual;
    bool           check_only = false;
    c.s = study_create("out/scaling");
    const flag     flags[] = {
        {"--sizes", FLAG_TEXT, &sizes, 0, 0, "WIDTH:HEADS:BLOCKS,..."},
        {"--report", FLAG_SWITCH, &c.s->report, 0, 0, "prints what finished runs say, and trains nothing"},
        {"--check", FLAG_SWITCH, &check_only, 0, 0, "recovers planted laws, and trains nothing"}, STUDY_FLAGS(c.s), {0}
    };
    c.s->tokens = 2000000;
    c.s->rate[1] = 0.03;
    read_flags(argc, argv, flags);
    if (c.s->quick && sizes == usual) sizes = "12:2:1,16:2:1,24:2:1";
    for (int form = 0; form < FORMS; form++)
        snprintf(c.label[form], sizeof c.label[form], "%s_%s", attentions[form % ATTENTIONS].name, mlps[form / ATTENTIONS].name);
    if (check_only) return check_fits(&c) ? 0 : 1;
    read_sizes(&c, sizes);
    study_open(c.s);
    add_variants(&c);
    study_run(c.s);
    analyse(&c, DRAWS);
    print_tables(&c);
    plot(&c);
    printf("seconds: %.1f\n", now() - c.s->started);
    study_destroy(c.s);
    return 0;
}
