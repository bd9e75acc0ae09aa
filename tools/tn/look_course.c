/* look_course.c - tn look: a language model at several steps of its training, and beside another model */
#include "look.h"
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- over the training ------------------------------------------------------------------------------------------------ */

/* Numbers of several steps, [count], as one series of a plot. */
static void one_series(page *p, const char *plot, const char *name, const double *v, int64_t count)
{
    page_open(p, NULL, '{');
    page_text(p, "plot", plot);
    page_text(p, "name", name);
    page_vector(p, "y", ARRAY_F64, count, v);
    page_close(p, '}');
}

/* The eigenvalues of one token's matrix in a block, by magnitude, at most n; NaN where there are none. */
static void spectrum_of(const subject *s, int64_t block, int64_t token, double *to, int64_t n)
{
    uint64_t    mark = tn_cp_mark(s->m.ctx);
    tn_cp      *cp = block_operator(s, block);
    tn_spectrum spectrum;
    for (int64_t i = 0; i < n; i++) to[i] = NAN;
    if (cp && tn_cp_spectrum(some_outputs(cp, &token, 1), 0, &spectrum) == TN_OK) {
        double *v = numbers_in(spectrum.values);
        for (int64_t i = 0; i < n && i < spectrum.count; i++) to[i] = v[i];
        free(v);
        tn_spectrum_destroy(&spectrum);
    }
    free(taken_error(s->m.ctx));
    tn_cp_release(s->m.ctx, mark, NULL);
}

enum { MOMENTS = 8, LEVELS = 32, LOSS_TOKENS = 1024 };

/* Numbers at the steps whose weights a run has kept: MOMENTS of them at most, of which `kept` have finite weights. */
typedef struct course {
    int64_t kept;
    double  steps[MOMENTS], loss[MOMENTS];
    double *copying, *spectra;          /* [heads,MOMENTS] and [layers,MOMENTS,LEVELS] */
} course;

static void measure_moment(course *c, subject *s, const moment *m, const samples *x)
{
    const int64_t at = c->kept, L = s->m.desc.layers;
    int64_t       D;
    bool          bad = false;
    show_stage("Over the training: step %lld", (long long)m->step);
    tn_params_read(s->m.params, tn_source_path(m->path), TN_MATCH_IGNORE_EXTRA);
    check_ctx(s->m.ctx, m->path);
    for (int64_t k = 0; k < tn_params_count(s->m.params); k++)
        bad = bad || count_nonfinite(tn_params_at(s->m.params, k)->value) > 0;
    if (bad) {
        report_note("Step %lld is left out: its weights have NaN or infinity.", (long long)m->step);
        return;
    }
    head_numbers *heads = measure_heads(s, &D);
    c->steps[at] = (double)m->step;
    for (int64_t k = 0; k < x->count; k++) c->loss[at] += sample_loss(&s->m, x, k, NULL, 0) / (double)x->count;
    for (int64_t k = 0; k < L * s->m.desc.heads; k++) c->copying[k * MOMENTS + at] = heads[k].copying;
    for (int64_t k = 0; k < L; k++) spectrum_of(s, k, s->common[0], c->spectra + (k * MOMENTS + at) * LEVELS, LEVELS);
    free_heads(s, heads);
    c->kept++;
}

static void course_section(page *p, const subject *s, const course *c, const samples *x)
{
    const int64_t H = s->m.desc.heads, L = s->m.desc.layers, shape[2] = {c->kept, LEVELS};
    char         *count = grouped(x->count * x->length), *name = format_text("%s held-out tokens", count);
    page_section(p, "time", "time", "Over the training", "The same numbers at the steps whose weights the run has kept.");
    page_open(p, "steps", '[');
    for (int64_t i = 0; i < c->kept; i++) page_number(p, NULL, c->steps[i]);
    page_close(p, ']');
    page_open(p, "series", '[');
    if (x->count) one_series(p, "loss, nats per token", name, c->loss, c->kept);
    for (int64_t k = 0; k < L * H && k < 32; k++) {
        char head[HEAD_NAME];
        one_series(p, "copying score", head_name(k / H, k % H, head), c->copying + k * MOMENTS, c->kept);
    }
    page_close(p, ']');
    page_open(p, "spectra", '[');
    for (int64_t k = 0; k < L; k++) {
        char *of = format_text("block %lld, logit of %s", (long long)k, s->names[s->common[0]]);
        if (!isnan(c->spectra[k * MOMENTS * LEVELS])) {
            page_open(p, NULL, '{');
            page_text(p, "name", of);
            page_numbers(p, "values", ARRAY_F64, 2, shape, c->spectra + k * MOMENTS * LEVELS);
            page_close(p, '}');
        }
        free(of);
    }
    page_close(p, ']');
    page_close(p, '}');
    free(count);
    free(name);
}

void time_section(page *p, subject *s)
{
    const int64_t L = s->m.desc.layers;
    char         *folder = folder_of(s->file);
    int64_t       all;
    moment       *list = list_moments(folder, &all);
    samples       x;
    course        c;
    memset(&x, 0, sizeof x);
    memset(&c, 0, sizeof c);
    int64_t count = all < MOMENTS ? all : MOMENTS;
    c.copying = (double *)allocate((size_t)(L * s->m.desc.heads * MOMENTS), sizeof *c.copying);
    c.spectra = (double *)allocate((size_t)(L * MOMENTS * LEVELS), sizeof *c.spectra);
    if (count > 1 && s->has_run && s->run.held_count > 1) x = text_samples(s, NULL, s->m.desc.context, LOSS_TOKENS);
    for (int64_t i = 0; count > 1 && i < count; i++) measure_moment(&c, s, &list[i * (all - 1) / (count - 1)], &x);
    if (count > 1) {
        tn_params_read(s->m.params, tn_source_path(s->file), TN_MATCH_IGNORE_EXTRA);
        check_ctx(s->m.ctx, s->file);
    }
    if (c.kept > 1) course_section(p, s, &c, &x);
    for (int64_t i = 0; i < all; i++) free(list[i].path);
    if (x.start) free_samples(&x);
    free(c.copying);
    free(c.spectra);
    free(list);
    free(folder);
}

/* ---- two models ---------------------------------------------------------------------------------------------------------- */

static void compare_rows(page *p, const subject *s, const model *b, int64_t blocks)
{
    const int64_t H = s->m.desc.heads;
    for (int64_t l = 0; l < blocks; l++) {
        const mlp_numbers x = compare_mlps(s, b, l);
        char             *name = format_text("%lld.mlp", (long long)l);
        page_open(p, NULL, '{');
        page_text(p, "name", name);
        page_number(p, "similarity", x.tokens);
        page_number(p, "stream", x.stream);
        page_number(p, "units", x.units);
        page_close(p, '}');
        free(name);
        for (int64_t h = 0; h < H; h++) {
            int64_t best = 0;
            double  most = NAN;
            for (int64_t g = 0; g < b->desc.heads; g++) {
                const double v = head_cosine(s, b, true, true, l, h, g);
                if (v > most || isnan(most)) most = v, best = g;
            }
            char here[HEAD_NAME], there[HEAD_NAME];
            name = format_text("%s, there %s", head_name(l, h, here), head_name(l, best, there));
            page_open(p, NULL, '{');
            page_text(p, "name", name);
            page_number(p, "similarity", most);
            page_number(p, "qk", head_cosine(s, b, false, true, l, h, best));
            page_close(p, '}');
            free(name);
        }
    }
}

/* The eigenvalues of both models in a block, for the tokens that the page shows of it. */
static void compare_spectra(page *p, const subject *s, const subject *other, int64_t block)
{
    enum { VALUES = 64 };
    const uint64_t mark = tn_cp_mark(s->m.ctx);
    tn_cp         *cp = block_operator(s, block);
    const telling *shown = cp ? shown_tokens(s, block, cp) : NULL;
    tn_cp_release(s->m.ctx, mark, NULL);
    for (int64_t k = 0; shown && k < shown->count; k++) {
        double v[2][VALUES];
        spectrum_of(s, block, shown->at[k], v[0], VALUES);
        spectrum_of(other, block, shown->at[k], v[1], VALUES);
        if (isnan(v[0][0]) || isnan(v[1][0])) continue;
        page_open(p, NULL, '{');
        page_text(p, "name", s->names[shown->at[k]]);
        page_number(p, "block", (double)block);
        page_vector(p, "a", ARRAY_F64, VALUES, v[0]);
        page_vector(p, "b", ARRAY_F64, VALUES, v[1]);
        page_close(p, '}');
    }
}

void compare_models(page *p, const subject *s, const model *b, const char *path)
{
    static const char *const columns[][3] = {
        {"similarity", "between tokens", "cosine through embedding and unembedding: of an MLP's operator, of a head's OV"},
        {"qk", "QK", "cosine of the scores of heads between tokens"},
        {"stream", "in the stream", "cosine between directions of the residual stream, which models share that have one origin"},
        {"units", "hidden units", "their mean cosine after alignment"}
    };
    const int64_t blocks = b->desc.layers < s->m.desc.layers ? b->desc.layers : s->m.desc.layers;
    subject       other = *s;
    other.m = *b;
    page_section(p, "compare", "compare", "How similar they are", "How similar the parts of the two models are: 1 for equal ones, "
                 "0 for unrelated ones. A head is beside the one of the other model whose OV circuit is most similar.");
    page_two(p, s->path, path, columns, sizeof columns / sizeof *columns);
    page_open(p, "rows", '[');
    compare_rows(p, s, b, blocks);
    page_close(p, ']');
    page_open(p, "spectra", '[');
    for (int64_t l = 0; l < blocks; l++) compare_spectra(p, s, &other, l);
    page_close(p, ']');
    page_open(p, "units", '[');           /* what makes eigenvalues of the live part nats */
    page_number(p, NULL, typical_unit(s));
    page_number(p, NULL, typical_unit(&other));
    page_close(p, ']');
    page_close(p, '}');
}
