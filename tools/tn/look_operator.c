/* look_operator.c - tn look: what an operator of order 2 shows: spectra, and its interaction matrices as factors */
#include "look.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DENSE_NUMBERS = 1 << 16 };               /* interaction matrices of fewer numbers are written out           */
enum { DRAWS = 19, MOST_COMPARED = 1024 };       /* of the null, for 5 %; and to choose among many outputs           */
static const double edge_operations = 6e11,     /* a null model that takes more is left out: a minute of one core    */
                    choice_operations = 4e9;    /* and to choose outputs by it about a second                        */

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
static int64_t outputs_within(const tn_cp *cp, double operations)
{
    const double n = (double)(cp->in[0] < 2 * cp->terms ? cp->in[0] : 2 * cp->terms);
    const double most = operations / ((DRAWS + 1) * 2 * n * n * n);
    return most < (double)cp->out ? (int64_t)most : cp->out;
}

typedef struct ranked { double norm, edge; int64_t at, beyond; } ranked;

/* With the most eigenvalues beyond the null first, then with the largest norm. */
static int most_telling(const void *a, const void *b)
{
    const ranked *x = (const ranked *)a, *y = (const ranked *)b;
    if (x->beyond != y->beyond) return x->beyond < y->beyond ? 1 : -1;
    if (x->norm != y->norm) return x->norm < y->norm ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of each output an edge that holds for all of them together: were the operator one more draw of the null, any output would
   have a value beyond its own with a probability of at most 1/(DRAWS + 1). So outputs may be chosen by what is beyond it. The
   unit of an output is the median of the largest values of the operator and all draws, in which their order does not matter;
   the edge is the largest value in any output of any draw, in such units.   Westfall & Young 1993 */
static double *common_edges(const tn_cp *cp, tn_spectrum *own)
{
    enum { COPIES = DRAWS + 1 };
    double *largest = (double *)allocate((size_t)(cp->out * COPIES), sizeof *largest), most = 0, sorted[COPIES];
    double *edge = (double *)allocate((size_t)cp->out, sizeof *edge);
    for (int64_t k = 0; k < COPIES; k++) {
        tn_spectrum s;
        tn_cp      *null = k ? tn_cp_null(cp, NULL, k - 1) : NULL;
        if (!k || null) tn_cp_spectrum(k ? null : cp, 0, &s);
        check_ctx(cp->ctx, "the null of spectra");
        double *v = numbers_in(s.values);
        for (int64_t o = 0; o < cp->out; o++) largest[o * COPIES + k] = fabs(v[o * s.count]);
        free(v);
        if (k) tn_spectrum_destroy(&s);
        else *own = s;
        tn_cp_destroy(null);
    }
    for (int64_t o = 0; o < cp->out; o++) {
        memcpy(sorted, largest + o * COPIES, sizeof sorted);
        qsort(sorted, COPIES, sizeof *sorted, by_size);
        edge[o] = (sorted[COPIES / 2 - 1] + sorted[COPIES / 2]) / 2;
        for (int64_t k = 1; k < COPIES && edge[o] > 0; k++) most = fmax(most, largest[o * COPIES + k] / edge[o]);
    }
    for (int64_t o = 0; o < cp->out; o++) edge[o] *= most;
    free(largest);
    return edge;
}

double *null_edges(const tn_cp *cp)
{
    tn_spectrum own;
    if (outputs_within(cp, edge_operations) < cp->out) return NULL;
    double *edge = common_edges(cp, &own);
    tn_spectrum_destroy(&own);
    return edge;
}

double largest_null_cosine(const tn_cp *a, const tn_cp *b)
{
    double largest = 0;
    if (8.0 * DRAWS * (double)a->terms * (double)b->terms * (double)a->in[0] > edge_operations) return NAN;
    for (int64_t k = 0; k < DRAWS; k++) {
        double cosine = 0;
        tn_cp *null = tn_cp_null(b, NULL, k);
        if (null) tn_cp_cosine(a, null, &cosine);
        check_ctx(b->ctx, "the null of a cosine");
        largest = fmax(largest, fabs(cosine));
        tn_cp_destroy(null);
    }
    return largest;
}

/* Counts the eigenvalues beyond the null of the first n outputs of a list. */
static void count_beyond(const tn_cp *cp, ranked *list, int64_t n)
{
    const uint64_t mark = tn_cp_mark(cp->ctx);
    int64_t       *at = (int64_t *)allocate((size_t)n, sizeof *at);
    tn_spectrum    own;
    for (int64_t i = 0; i < n; i++) at[i] = list[i].at;
    double *edge = common_edges(some_outputs(cp, at, n), &own), *v = numbers_in(own.values);
    for (int64_t i = 0; i < n; i++) {
        list[i].edge = edge[i];
        list[i].beyond = 0;
        for (int64_t k = 0; k < own.count; k++) list[i].beyond += fabs(v[i * own.count + k]) > edge[i];
    }
    tn_spectrum_destroy(&own);
    tn_cp_release(cp->ctx, mark, NULL);
    free(edge);
    free(at);
    free(v);
}

telling telling_outputs(const tn_cp *cp, const int32_t *among, int64_t n, int64_t most)
{
    show_stage("Which outputs have something to show");
    const int64_t quick = outputs_within(cp, choice_operations), able = outputs_within(cp, edge_operations);
    int64_t       compared = quick < 2 * most ? 2 * most : quick < MOST_COMPARED ? quick : MOST_COMPARED;
    double       *norm = output_norms(cp);
    ranked       *list = (ranked *)allocate((size_t)n + 1, sizeof *list);
    telling       t = {NULL, NULL, most < n ? most : n, n, 0};
    for (int64_t i = 0; i < n; i++) {
        list[i].at = among ? among[i] : i;
        list[i].norm = norm[list[i].at];
    }
    if (t.count < n) qsort(list, (size_t)n, sizeof *list, most_telling);
    if (compared > n) compared = n;
    if (compared > able) compared = able;
    if (t.count < compared) {
        count_beyond(cp, list, t.compared = compared);
        qsort(list, (size_t)compared, sizeof *list, most_telling);
        t.edge = (double *)allocate((size_t)t.count + 1, sizeof *t.edge);
    }
    t.at = (int64_t *)allocate((size_t)t.count + 1, sizeof *t.at);
    for (int64_t i = 0; i < t.count; i++) {
        t.at[i] = list[i].at;
        if (t.edge) t.edge[i] = list[i].edge;
    }
    free(list);
    free(norm);
    return t;
}

char *telling_rule(const telling *t)
{
    if (!t->compared) return copy_text("the largest matrices");
    if (t->compared == t->among) return copy_text("the most eigenvalues beyond chance");
    return format_text("the most eigenvalues beyond chance, of the %lld with the largest matrices,", (long long)t->compared);
}

/* ---- spectra ----------------------------------------------------------------------------------------------------------- */

void spectra_section(page *p, const char *id, const char *title, const tn_cp *cp, const char *const *names, const double *edge,
                     int64_t block)
{
    tn_spectrum spectrum;
    show_stage("%s", title);
    memset(&spectrum, 0, sizeof spectrum);
    tn_cp_spectrum(cp, 0, &spectrum);
    check_ctx(cp->ctx, "spectra");
    if (!edge)
        page_note("%s are not compared with shuffled weights, because %lld outputs of this size would take minutes.", title,
                  (long long)cp->out);
    double *v = numbers_in(spectrum.values);
    int64_t n = spectrum.count;
    page_section(p, "spectra", id, title, edge
        ? "Each output is a quadratic form x\xE1\xB5\x80 Q x. These are the eigenvalues of its matrix Q, by magnitude: few large "
          "ones mean that few eigenvectors decide the output. The edge is the largest eigenvalue of 19 copies of the layer whose "
          "weights were shuffled, in any output that was compared, relative to what is usual for each. Values below it are within "
          "the null: chance alone gives such values, and their eigenvectors say nothing. Of twenty layers without any structure "
          "one has an output with a value beyond it."
        : "Each output is a quadratic form x\xE1\xB5\x80 Q x. These are the eigenvalues of its matrix Q, by magnitude: few large "
          "ones mean that few eigenvectors decide the output.");
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
