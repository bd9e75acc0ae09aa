/* look_operator.c - tn look: what an operator of order 2 shows: spectra, and its interaction matrices as factors */
#include "look.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DENSE_NUMBERS = 1 << 16 };               /* interaction matrices of fewer numbers are written out           */
enum { DRAWS = 19,                              /* of the null: one output in twenty has a value beyond it by chance */
       FEW_DRAWS = 4, MOST_COMPARED = 1024 };   /* to choose among many outputs                                      */
static const double edge_operations = 6e11,     /* a null model that takes more is left out: a minute of one core    */
                    choice_operations = 4e9;    /* and to choose outputs by it a second or two                       */

/* ---- the outputs that are shown ---------------------------------------------------------------------------------------- */

/* |Q_o|_F of all outputs: with G = (W W^T * V V^T + W V^T * V W^T) / 2 of the terms, the root of p_o G p_o. */
double *output_norms(const tn_cp *cp)
{
    tn_ctx       *ctx = cp->ctx;
    const int64_t step = 4096;
    double       *norm = (double *)allocate((size_t)cp->out, sizeof *norm);
    tn_mark       mark = tn_arena_mark(ctx);
    tn_tensor    *w = cp->f[0], *v = cp->f[1], *wt = tn_transpose(w, 0, 1), *vt = tn_transpose(v, 0, 1);
    tn_tensor    *g = tn_scale(ctx, tn_add(ctx, tn_mul(ctx, tn_matmul(ctx, w, wt), tn_matmul(ctx, v, vt)),
                                           tn_mul(ctx, tn_matmul(ctx, w, vt), tn_matmul(ctx, v, wt))), 0.5);
    for (int64_t first = 0; first < cp->out; first += step) {
        const int64_t n = first + step < cp->out ? step : cp->out - first;
        tn_mark       part = tn_arena_mark(ctx);
        tn_tensor    *p = tn_slice(cp->p, 0, first, first + n), *square = tn_mul(ctx, tn_matmul(ctx, p, g), p);
        check_ctx(ctx, "norms of interaction matrices");
        double *s = numbers_in(square);
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int64_t h = 0; h < cp->terms; h++) sum += s[i * cp->terms + h];
            norm[first + i] = sum > 0 ? sqrt(sum) : sum < 0 ? 0 : sum;          /* a NaN remains */
        }
        free(s);
        tn_arena_release(ctx, part);
    }
    tn_arena_release(ctx, mark);
    return norm;
}

tn_cp *some_outputs(const tn_cp *cp, const int64_t *at, int64_t count)
{
    int32_t *ids = (int32_t *)allocate((size_t)count, sizeof *ids);
    tn_mark  mark = tn_arena_mark(cp->ctx);
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)at[i];
    tn_tensor *rows = tn_embed(cp->ctx, cp->p, tn_tensor_from(cp->ctx, 1, &count, TN_I32, ids));
    tn_cp     *some = tn_cp_create(cp->ctx, 2, rows, cp->f, cp->constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
    check_ctx(cp->ctx, "some outputs of an operator");
    tn_arena_release(cp->ctx, mark);
    free(ids);
    return some;
}

/* Of how many outputs the null can be computed: a full eigenproblem takes about 2 n^3 operations for its values. */
static int64_t outputs_within(const tn_cp *cp, double operations, int draws)
{
    const double n = (double)(cp->in[0] < 2 * cp->terms ? cp->in[0] : 2 * cp->terms);
    const double most = operations / ((draws + 1) * 2 * n * n * n);
    return most < (double)cp->out ? (int64_t)most : cp->out;
}

typedef struct ranked { double norm; int64_t at, beyond; } ranked;

/* With the most eigenvalues beyond the null first, then with the largest norm. */
static int most_telling(const void *a, const void *b)
{
    const ranked *x = (const ranked *)a, *y = (const ranked *)b;
    if (x->beyond != y->beyond) return x->beyond < y->beyond ? 1 : -1;
    if (x->norm != y->norm) return x->norm < y->norm ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static tn_signal compared_with_null(const tn_cp *cp, int draws)
{
    tn_signal_desc desc;
    tn_signal      signal;
    memset(&desc, 0, sizeof desc);
    desc.draws = draws;
    tn_cp_signal(cp, &desc, &signal);
    check_ctx(cp->ctx, "the null of spectra");
    return signal;
}

double *null_edges(const tn_cp *cp)
{
    if (outputs_within(cp, edge_operations, DRAWS) < cp->out) return NULL;
    tn_signal signal = compared_with_null(cp, DRAWS);
    double   *edge = numbers_in(signal.edge);
    tn_signal_destroy(&signal);
    return edge;
}

/* Counts the eigenvalues beyond the null of the first n outputs of a list. */
static void count_beyond(const tn_cp *cp, ranked *list, int64_t n, int draws)
{
    const uint64_t mark = tn_cp_mark(cp->ctx);
    int64_t       *at = (int64_t *)allocate((size_t)n, sizeof *at);
    for (int64_t i = 0; i < n; i++) at[i] = list[i].at;
    tn_signal signal = compared_with_null(some_outputs(cp, at, n), draws);
    double *beyond = numbers_in(signal.signal);
    for (int64_t i = 0; i < n; i++) list[i].beyond = (int64_t)beyond[i];
    tn_signal_destroy(&signal);
    tn_cp_release(cp->ctx, mark, NULL);
    free(beyond);
    free(at);
}

int64_t *telling_outputs(const tn_cp *cp, const int32_t *among, int64_t n, int64_t most, int64_t *count)
{
    show_stage("Which outputs have something to show");
    const int     draws = outputs_within(cp, choice_operations, DRAWS) < n ? FEW_DRAWS : DRAWS;
    const int64_t quick = outputs_within(cp, choice_operations, draws), able = outputs_within(cp, edge_operations, draws);
    int64_t       compared = quick < 2 * most ? 2 * most : quick < MOST_COMPARED ? quick : MOST_COMPARED;
    double       *norm = output_norms(cp);
    ranked       *list = (ranked *)allocate((size_t)n + 1, sizeof *list);
    *count = most < n ? most : n;
    for (int64_t i = 0; i < n; i++) {
        list[i].at = among ? among[i] : i;
        list[i].norm = norm[list[i].at];
    }
    if (*count < n) qsort(list, (size_t)n, sizeof *list, most_telling);
    if (compared > n) compared = n;
    if (*count < n && compared <= able) {
        count_beyond(cp, list, compared, draws);
        qsort(list, (size_t)compared, sizeof *list, most_telling);
    }
    int64_t *at = (int64_t *)allocate((size_t)*count + 1, sizeof *at);
    for (int64_t i = 0; i < *count; i++) at[i] = list[i].at;
    free(list);
    free(norm);
    return at;
}

/* ---- spectra ----------------------------------------------------------------------------------------------------------- */

double *spectra_section(page *p, const char *id, const char *title, const tn_cp *cp, const char *const *names, int64_t block)
{
    const bool     compare = outputs_within(cp, edge_operations, DRAWS) == cp->out;
    tn_spectrum    spectrum;
    tn_signal      signal;
    double        *edge = NULL;
    show_stage("%s", title);
    memset(&spectrum, 0, sizeof spectrum);
    memset(&signal, 0, sizeof signal);
    if (compare) signal = compared_with_null(cp, DRAWS);
    else tn_cp_spectrum(cp, 0, &spectrum);
    check_ctx(cp->ctx, "spectra");
    if (!compare)
        page_note("%s are not compared with shuffled weights, because %lld outputs of this size would take minutes.", title,
                  (long long)cp->out);
    double *v = numbers_in(compare ? signal.values : spectrum.values);
    if (compare) edge = numbers_in(signal.edge);
    int64_t n = compare ? signal.count : spectrum.count;
    page_section(p, "spectra", id, title, compare
        ? "Each output is a quadratic form x\xE1\xB5\x80 Q x. These are the eigenvalues of its matrix Q, by magnitude: few large "
          "ones mean that the output looks for few patterns. The edge is the largest eigenvalue of 19 copies of the layer whose "
          "weights were shuffled. Values below it are within the null: chance alone gives such values, and their eigenvectors "
          "say nothing. Of layers without any structure one output in twenty has a value beyond it."
        : "Each output is a quadratic form x\xE1\xB5\x80 Q x. These are the eigenvalues of its matrix Q, by magnitude: few large "
          "ones mean that the output looks for few patterns.");
    if (block >= 0) page_number(p, "block", (double)block);
    page_open(p, "groups", '[');
    for (int64_t o = 0; o < cp->out; o++) {
        double  norm = 0;
        int64_t count = n;                      /* without values that are zero but for rounding */
        for (int64_t i = 0; i < n; i++) norm = hypot(norm, v[o * n + i]);
        while (count > 1 && fabs(v[o * n + count - 1]) < 1e-12 * fabs(v[o * n])) count--;
        page_open(p, NULL, '{');
        page_text(p, "name", names[o]);
        page_vector(p, "values", ARRAY_F64, count, v + o * n);
        page_number(p, "effective_rank", tn_effective_rank(v + o * n, n));
        page_number(p, "null_edge", edge ? edge[o] : NAN);
        page_number(p, "norm", norm);
        page_close(p, '}');
    }
    page_close(p, ']');
    page_close(p, '}');
    free(v);
    tn_spectrum_destroy(&spectrum);
    tn_signal_destroy(&signal);
    return edge;
}

/* ---- interaction matrices ---------------------------------------------------------------------------------------------- */

/* What whole numbers of 8 bits make of a matrix, an arena tensor. */
static tn_tensor *rounded(tn_ctx *ctx, tn_tensor *t)
{
    tn_tensor *to = tn_tensor_2d(ctx, TN_REAL, t->shape[0], t->shape[1]);
    double    *v = numbers_in(t);
    round_to_q8(t->shape[0], t->shape[1], v);
    tn_write(to, TN_F64, v, tn_tensor_count(t));
    free(v);
    return to;
}

/* |Q - Q8| / |Q| of all outputs together; with x between its first rows. */
static double error_of_q8(const tn_cp *cp, tn_tensor *x)
{
    enum { MOST = 256 };
    tn_ctx    *ctx = cp->ctx;
    tn_mark    mark = tn_arena_mark(ctx);
    uint64_t   operators = tn_cp_mark(ctx);
    double     aa = 0, ab = 0, bb = 0;
    tn_tensor *f[2];
    tn_cp     *a = tn_cp_create(ctx, 2, cp->p, cp->f, TN_CP_INPUT_PLAIN);
    f[0] = rounded(ctx, cp->f[0]);
    f[1] = rounded(ctx, cp->f[1]);
    tn_cp *b = tn_cp_create(ctx, 2, rounded(ctx, cp->p), f, TN_CP_INPUT_PLAIN);
    if (x) {
        x = tn_slice(x, 0, 0, x->shape[0] < MOST ? x->shape[0] : MOST);
        a = tn_cp_fold_in(a, tn_transpose(x, 0, 1), NULL);
        b = tn_cp_fold_in(b, tn_transpose(rounded(ctx, x), 0, 1), NULL);
    }
    if (tn_cp_inner(a, a, &aa) == TN_OK && tn_cp_inner(a, b, &ab) == TN_OK) tn_cp_inner(b, b, &bb);
    check_ctx(ctx, "the error of 8 bits");
    tn_cp_release(ctx, operators, NULL);
    tn_arena_release(ctx, mark);
    return aa > 0 ? sqrt(fmax(0, aa - 2 * ab + bb) / aa) : 0;
}

void put_factors(page *p, const tn_cp *cp, tn_tensor *x)
{
    static const char *const keys[] = {"p", "w", "v"};
    const tn_tensor *from[3];
    from[0] = cp->p, from[1] = cp->f[0], from[2] = cp->f[1];
    page_text(p, "of", "factors");
    for (int k = 0; k < 3; k++) {
        double *v = numbers_in(from[k]);
        page_numbers(p, keys[k], ARRAY_Q8, 2, from[k]->shape, v);
        free(v);
    }
    page_number(p, "error", error_of_q8(cp, x));
}

void put_interactions(page *p, const tn_cp *cp, bool dense)
{
    if (!dense || (double)cp->out * (double)cp->in[0] * (double)cp->in[0] > DENSE_NUMBERS) {
        put_factors(p, cp, NULL);
        return;
    }
    tn_tensor *t = tn_cp_dense_symmetric(cp);
    check_ctx(cp->ctx, "interaction matrices");
    double *v = numbers_in(t);
    page_text(p, "of", "dense");
    page_numbers(p, "values", ARRAY_F64, 3, t->shape, v);
    free(v);
    tn_tensor_destroy(t);
}
