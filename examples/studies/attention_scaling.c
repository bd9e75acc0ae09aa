/* attention_scaling.c - what attention costs: softmax, differential, squared and bilinear, from 256 tokens on

   Squared and bilinear attention have two forms with the same result: one looks at every pair of tokens, T^2 / 2 of them,
   the other carries a state of d^2 (squared: d (d + 1) / 2) features from token to token, so that its time grows with T
   (docs/math.md). This measures time and memory of all of them, causal, finds where the second form becomes the faster one,
   and says where the counts of operations have it. It takes the numerical rank of the pattern, which the features bound; a
   causal mask lifts it. Differential attention is two of softmax, whose queries and keys have half of the numbers each, and
   the norm of what is left. And it reads a million tokens piece by piece with nothing but the state between the pieces.

   cc -O2 -DTN_USE_THREADS -pthread -I. examples/studies/attention_scaling.c -o attention_scaling -lm && ./attention_scaling
   --dim N (a head's)   --heads N   --most T   --seconds X (a curve ends where one run takes longer)
   --tokens N (read in pieces)   --threads N   --out FOLDER   --quick */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "attention_scaling"
#include "program.h"

enum { SOFTMAX, DIFFERENTIAL, SQUARED, SQUARED_LINEAR, BILINEAR, BILINEAR_LINEAR, CURVES, SIZES = 24, FIRST = 256,
       CHUNK = 128, REPEATS = 20, RANK_TOKENS = 256, RANK_DIM = 8, LONG_DIM = 32, PIECE = 8192 };

typedef struct options { int64_t dim, heads, most, tokens, threads; double seconds; const char *out; bool quick; } options;

typedef struct curve {
    const char    *name;
    tn_attend_kind kind;
    tn_attend_form form;
    int            sets;            /* of queries and keys, each of dim numbers; differential: of half of them */
} curve;

static const curve curves[CURVES] = {
    {"softmax", TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_QUADRATIC, 1},
    {"differential", TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_QUADRATIC, 2},
    {"squared", TN_ATTEND_SQUARED, TN_ATTEND_FORM_QUADRATIC, 1},
    {"squared, linear", TN_ATTEND_SQUARED, TN_ATTEND_FORM_LINEAR, 1},
    {"bilinear", TN_ATTEND_BILINEAR, TN_ATTEND_FORM_QUADRATIC, 2},
    {"bilinear, linear", TN_ATTEND_BILINEAR, TN_ATTEND_FORM_LINEAR, 2}
};

typedef struct measured {           /* [backward too][curve][T = 256 2^i]; NaN where the curve has ended */
    double seconds[2][CURVES][SIZES], bytes[2][CURVES][SIZES], length[SIZES];
    int    count;
} measured;

static options read_options(int argc, char **argv)
{
    options    o = {64, 1, 65536, 1000000, 0, 4, "out/attention", false};
    const flag flags[] = {
        {"--dim", FLAG_COUNT, &o.dim, 1, 512, NULL},
        {"--heads", FLAG_COUNT, &o.heads, 1, 256, NULL},
        {"--most", FLAG_COUNT, &o.most, FIRST, 1 << 30, NULL},
        {"--seconds", FLAG_REAL, &o.seconds, 0.001, 1e6, NULL},
        {"--tokens", FLAG_COUNT, &o.tokens, 0, 1e12, NULL},
        THREADS_FLAG(&o),
        OUT_FLAG(&o),
        {"--quick", FLAG_SWITCH, &o.quick, 0, 0, "a curve ends at 0.1 seconds, 50,000 tokens in pieces"},
        {0}
    };
    read_flags(argc, argv, flags);
    if (o.quick) o.seconds = 0.1, o.tokens = 50000;
    return o;
}

static tn_ctx *context(const options *o, tn_dtype dtype)
{
    tn_ctx *ctx;
    tn_desc desc = { .dtype = dtype, .threads = (int)o->threads, .arena_bytes = 1 << 16 };
    char    why[TN_WHY];
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) stop(why);
    return ctx;
}

static tn_tensor *normal(tn_ctx *ctx, int64_t length, int64_t heads, int64_t dim)
{
    int64_t shape[4] = {1, 0, 0, 0};
    shape[1] = length;
    shape[2] = heads;
    shape[3] = dim;
    return tn_normal(ctx, 4, shape, 0, 1);
}

static bool is_differential(const curve *c) { return c->kind == TN_ATTEND_SOFTMAX && c->sets == 2; }

/* Queries or keys of a curve */
static tn_tensor *sets_of(tn_ctx *ctx, const curve *c, int64_t length, int64_t heads, int64_t dim)
{
    return normal(ctx, length, c->sets * heads, is_differential(c) && dim > 1 ? dim / 2 : dim);
}

/* (softmax1 - lambda softmax2) v, Ye et al. 2024, with lambda as it starts in a first layer */
static tn_tensor *attend(tn_ctx *ctx, const curve *c, tn_tensor *q, tn_tensor *k, tn_tensor *v, const tn_attend_desc *desc)
{
    const int64_t H = v->shape[2];
    if (!is_differential(c)) return tn_attend(ctx, q, k, v, desc);
    tn_tensor *first = tn_attend(ctx, tn_slice(q, 2, 0, H), tn_slice(k, 2, 0, H), v, desc);
    tn_tensor *second = tn_attend(ctx, tn_slice(q, 2, H, 2 * H), tn_slice(k, 2, H, 2 * H), v, desc);
    return tn_sub(ctx, first, tn_scale(ctx, second, 0.2));
}

/* ---- time and memory --------------------------------------------------------------- */

/* The least time of several. A context of its own for each: its peak is this attention's operands, result, gradients and
   what it needs on the way, in blocks that double. */
static double measure(const options *o, const curve *c, int64_t length, bool backward, double *bytes)
{
    tn_ctx *ctx = context(o, TN_F32);
    double  best = HUGE_VAL, spent = 0;
    for (int i = 0; i < REPEATS && spent < o->seconds / 4; i++) {
        tn_ctx_reset(ctx);
        tn_tensor *q = sets_of(ctx, c, length, o->heads, o->dim);
        tn_tensor *k = sets_of(ctx, c, length, o->heads, o->dim);
        tn_tensor *v = normal(ctx, length, o->heads, o->dim);
        check(ctx);
        if (backward) {
            tn_record(ctx);
            tn_watch(q);
            tn_watch(k);
            tn_watch(v);
        }
        double     start = now();
        tn_tensor *y = attend(ctx, c, q, k, v, &(tn_attend_desc){ .kind = c->kind, .form = c->form });
        if (is_differential(c)) y = tn_scale(ctx, tn_rmsnorm(ctx, y, NULL, 1e-5), 0.8);
        if (backward) tn_backward(ctx, tn_sum(ctx, y));
        check(ctx);
        spent += now() - start;
        if (now() - start < best) best = now() - start;
    }
    *bytes = (double)tn_ctx_memory(ctx).peak;
    tn_ctx_destroy(ctx);
    return best;
}

static void print_table(const measured *m, const char *title, double (*values)[SIZES], double scale)
{
    printf("\n%s\n%12s", title, "T");
    for (int c = 0; c < CURVES; c++) printf("%18s", curves[c].name);
    for (int i = 0; i < m->count; i++) {
        printf("\n%12.0f", m->length[i]);
        for (int c = 0; c < CURVES; c++) is_number(values[c][i]) ? printf("%18.2f", values[c][i] * scale) : printf("%18s", "-");
    }
    printf("\n");
}

static void measure_all(const options *o, measured *m)
{
    bool    going[2][CURVES];
    int     left = 2 * CURVES;
    int64_t length;
    for (int b = 0; b < 2; b++) for (int c = 0; c < CURVES; c++) going[b][c] = true;
    for (length = FIRST, m->count = 0; length <= o->most && m->count < SIZES && left > 0; length *= 2, m->count++) {
        m->length[m->count] = (double)length;
        if (isatty(2)) fprintf(stderr, "\rT = %lld ", (long long)length);
        for (int b = 0; b < 2; b++)
            for (int c = 0; c < CURVES; c++) {
                m->seconds[b][c][m->count] = m->bytes[b][c][m->count] = NAN;
                if (!going[b][c]) continue;
                m->seconds[b][c][m->count] = measure(o, &curves[c], length, b == 1, &m->bytes[b][c][m->count]);
                if (m->seconds[b][c][m->count] > o->seconds) going[b][c] = false, left--;
            }
    }
    if (isatty(2)) fprintf(stderr, "\r            \r");
}

static void plot(const options *o, tn_ctx *ctx, const measured *m, double (*values)[CURVES][SIZES], double scale,
                 const char *title, const char *y_title, const char *file)
{
    tn_image_series s[2 * CURVES] = {{0}};
    double    y[2][CURVES][SIZES];
    for (int b = 0; b < 2; b++)
        for (int c = 0; c < CURVES; c++) {
            tn_image_series *to = &s[b * CURVES + c];
            for (int i = 0; i < m->count; i++) y[b][c][i] = scale * values[b][c][i];
            to->name = b ? curves[c].name : NULL;
            to->x = m->length;
            to->y = y[b][c];
            to->count = m->count;
            to->dashed = b == 0;
            to->colour = c + 1;
        }
    save_image(ctx, tn_image_plot(ctx, s, 2 * CURVES, &(tn_image_plot_desc){ .title = title, .x_title = "tokens",
        .y_title = y_title, .caption = "dashed: forward    full: forward and backward", .log_x = true, .log_y = true, .width = 720,
        .height = 480, .scale = 2 }), o->out, file);
}

/* ---- where the linear form overtakes ------------------------------------------------------- */

static double features(tn_attend_kind kind, double d) { return kind == TN_ATTEND_BILINEAR ? d * d : d * (d + 1) / 2; }

/* Operations: a pair of tokens takes 2 d for each score and 2 d for its value, and 6 d and 4 d on the way back; a token's
   features F meet the state twice, 4 F d, and on the way back 9 F d + 8 F. Both forms look at pairs, the linear one inside
   chunks only: (T - C) / 2 pair = state. */
static double counted_crossover(const curve *c, double d, bool backward)
{
    double sets = c->sets, f = features(c->kind, d);
    double pair = 2 * d * sets + 2 * d + (backward ? 6 * d * sets + 4 * d : 0);
    double state = 4 * f * d + (backward ? 9 * f * d + 8 * f : 0);
    return CHUNK + 2 * state / pair;
}

/* Where the lines between the measured points cross on logarithmic axes, last; NaN where they do not, up to *most. */
static double seen_crossover(const measured *m, const double *quadratic, const double *linear, double *most)
{
    double at = NAN;
    for (int i = 0; i < m->count && is_number(quadratic[i]) && is_number(linear[i]); i++) {
        double here = log(linear[i] / quadratic[i]), before = i > 0 ? log(linear[i - 1] / quadratic[i - 1]) : 0;
        *most = m->length[i];
        if (here >= 0) at = NAN;
        else if (i == 0) at = m->length[0];
        else if (before >= 0) at = m->length[i - 1] * pow(2, before / (before - here));
    }
    return at;
}

static void print_crossover(const options *o, const measured *m, const char *name, int quadratic)
{
    for (int b = 0; b < 2; b++) {
        const char *way = b ? "forward_backward" : "forward";
        double      most = 0, seen = seen_crossover(m, m->seconds[b][quadratic], m->seconds[b][quadratic + 1], &most);
        double      counted = counted_crossover(&curves[quadratic], (double)o->dim, b == 1);
        printf("crossover_%s_%s_counted: %.0f\n", name, way, counted);
        printf("crossover_%s_%s_seen: ", name, way);
        is_number(seen) ? printf("%.0f\n", seen) : printf("none up to %.0f\n", most);
    }
}

/* ---- the rank of the pattern ---------------------------------------------------------------- */

/* With the unit matrix for values the result is the pattern itself. */
static int64_t pattern_rank(tn_ctx *ctx, const curve *c, bool causal)
{
    const int64_t n = RANK_TOKENS, shape[4] = {1, RANK_TOKENS, 1, RANK_TOKENS};
    double       *unit = calloc((size_t)(n * n), sizeof *unit), sigma[RANK_TOKENS];
    tn_svd_result svd;
    int64_t       i;
    if (!unit) stop("no memory");
    for (i = 0; i < n; i++) unit[i * n + i] = 1;
    tn_ctx_reset(ctx);
    tn_tensor *q = sets_of(ctx, c, n, 1, RANK_DIM);
    tn_tensor *k = sets_of(ctx, c, n, 1, RANK_DIM);
    tn_tensor *v = tn_tensor_nd(ctx, TN_REAL, 4, shape);
    tn_write(v, TN_F64, unit, n * n);
    free(unit);
    tn_tensor *pattern = attend(ctx, c, q, k, v, &(tn_attend_desc){ .kind = c->kind, .row_scale = TN_ROW_SCALE_NONE,
                                                         .bidirectional = !causal });
    tn_svd(ctx, tn_reshape_2d(pattern, n, n), NULL, &svd);
    check(ctx);
    tn_read(svd.s, TN_F64, sigma, n);
    tn_svd_destroy(&svd);
    for (i = 0; i < n && sigma[i] > 1e-12 * sigma[0]; i++) { }
    return i;
}

static void print_ranks(const options *o)
{
    tn_ctx *ctx = context(o, TN_F64);
    printf("\nThe rank of the pattern of %d tokens, d = %d (singular values above 1e-12 of the largest)\n", RANK_TOKENS,
           RANK_DIM);
    for (int c = 0; c < CURVES; c++) {
        const curve *of = &curves[c];
        if (of->form == TN_ATTEND_FORM_LINEAR) continue;
        printf("rank_%s: %lld\n", of->name, (long long)pattern_rank(ctx, of, false));
        if (of->kind != TN_ATTEND_SOFTMAX) printf("rank_%s_at_most: %.0f\n", of->name, features(of->kind, RANK_DIM));
        printf("rank_%s_masked: %lld\n", of->name, (long long)pattern_rank(ctx, of, true));
    }
    tn_ctx_destroy(ctx);
}

/* ---- a long text, piece by piece ------------------------------------------------------------- */

static tn_tensor *new_state(tn_ctx *ctx)
{
    const int64_t shape[4] = {1, 1, LONG_DIM * LONG_DIM, LONG_DIM};
    return tn_tensor_create(ctx, TN_REAL, 4, shape);
}

static tn_tensor *attend_on(tn_ctx *ctx, tn_tensor *q, tn_tensor *k, tn_tensor *v, tn_tensor *state, int64_t past)
{
    return tn_attend(ctx, q, k, v, &(tn_attend_desc){ .kind = TN_ATTEND_BILINEAR, .form = TN_ATTEND_FORM_LINEAR,
        .state = state, .past = past });
}

/* The same tokens in uneven pieces and, pair by pair, at once: the largest difference, of the largest number. */
static double pieces_difference(tn_ctx *ctx)
{
    const int64_t n = 3000;
    tn_tensor    *q = normal(ctx, n, 2, LONG_DIM), *k = normal(ctx, n, 2, LONG_DIM), *v = normal(ctx, n, 1, LONG_DIM);
    tn_tensor    *state = new_state(ctx);
    double       *a = calloc((size_t)(2 * n * LONG_DIM), sizeof *a), *b = a + n * LONG_DIM, worst = 0, most = 0;
    int64_t       to;
    if (!a) stop("no memory");
    tn_tensor *whole = tn_attend(ctx, q, k, v, &(tn_attend_desc){ .kind = TN_ATTEND_BILINEAR,
        .form = TN_ATTEND_FORM_QUADRATIC });
    tn_read(whole, TN_F64, a, n * LONG_DIM);
    for (int64_t from = 0; from < n; from = to) {
        to = from + 777 < n ? from + 777 : n;
        tn_read(attend_on(ctx, tn_slice(q, 1, from, to), tn_slice(k, 1, from, to), tn_slice(v, 1, from, to), state, from),
                TN_F64, b + from * LONG_DIM, (to - from) * LONG_DIM);
    }
    check(ctx);
    for (int64_t i = 0; i < n * LONG_DIM; i++) {
        keep_largest(&worst, fabs(a[i] - b[i]));
        if (fabs(a[i]) > most) most = fabs(a[i]);
    }
    tn_tensor_destroy(state);
    free(a);
    return worst / most;
}

static void read_long(const options *o)
{
    tn_ctx *ctx = context(o, TN_F32);
    int64_t n;
    double  seconds = 0, squares = 0, difference = pieces_difference(ctx);
    tn_ctx_destroy(ctx);
    ctx = context(o, TN_F32);
    tn_tensor *state = new_state(ctx);
    for (int64_t past = 0; past < o->tokens; past += n) {
        n = o->tokens - past < PIECE ? o->tokens - past : PIECE;
        tn_ctx_reset(ctx);
        tn_tensor *q = normal(ctx, n, 2, LONG_DIM);
        tn_tensor *k = normal(ctx, n, 2, LONG_DIM);
        tn_tensor *v = normal(ctx, n, 1, LONG_DIM);
        double     start = now();
        tn_tensor *y = attend_on(ctx, q, k, v, state, past);
        check(ctx);
        seconds += now() - start;
        squares += tn_item(tn_mean(ctx, tn_mul(ctx, y, y))) * (double)n;
    }
    printf("\n%lld tokens of bilinear attention, d = %d, in pieces of %d: one head, forward\n", (long long)o->tokens,
           LONG_DIM, PIECE);
    printf("long_seconds: %.3f\n", seconds);
    printf("long_tokens_per_second: %.0f\n", (double)o->tokens / seconds);
    printf("long_megabytes: %.1f\n", (double)tn_ctx_memory(ctx).peak / 1e6);
    printf("long_output_rms: %.4f\n", sqrt(squares / (double)o->tokens));
    printf("long_pieces_difference: %.2e\n", difference);
    tn_ctx_destroy(ctx);
}

int main(int argc, char **argv)
{
    options  o = read_options(argc, argv);
    measured m;
    tn_ctx  *ctx = context(&o, TN_F32);
    double   start = now();

    make_folder(o.out);
    printf("causal attention, %lld head%s of %lld, %d threads, %s\n", (long long)o.heads, o.heads > 1 ? "s" : "",
           (long long)o.dim, tn_ctx_threads(ctx), tn_ctx_simd_name(ctx));
    measure_all(&o, &m);
    print_table(&m, "milliseconds, forward", m.seconds[0], 1000);
    print_table(&m, "milliseconds, forward and backward", m.seconds[1], 1000);
    print_table(&m, "megabytes, forward and backward", m.bytes[1], 1e-6);
    plot(&o, ctx, &m, m.seconds, 1000, "Attention: time", "milliseconds", "attention_time");
    plot(&o, ctx, &m, m.bytes, 1e-6, "Attention: memory", "megabytes", "attention_memory");
    printf("\nWhere the linear form overtakes, by the counts of operations and by the clock\n");
    print_crossover(&o, &m, "squared", SQUARED);
    print_crossover(&o, &m, "bilinear", BILINEAR);
    print_ranks(&o);
    if (o.tokens > 0) read_long(&o);
    printf("\nseconds: %.1f\n", now() - start);
    tn_ctx_destroy(ctx);
    return 0;
}
