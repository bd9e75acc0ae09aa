/* degrees.c - tn circuits degrees: the loss of a model by degree in the embeddings: how much of it is linear? */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_LENGTH = 64, BY_DEGREE = 5, SCALES = 16, SCALE_1 = 8 };    /* scales of logits: 2^(i/4 - 2) */
/* What is removed from the frozen network, in the place of a head's number. */
enum { ONE_MLP = -1, OTHER_TOKENS = -2, ALL_HEADS = -3, ALL_MLPS = -4, BOTH = -5, NOTHING = -6 };

typedef struct removal {
    int64_t block, head;
    char    name[HEAD_NAME];
    double  loss[SCALES], *share;       /* of what is left: nats per token; [degrees], as in `measured` */
} removal;

typedef struct measured {
    const subject *s;
    tn_circuit_degrees_desc how;
    int64_t  degrees, removals, tokens;
    removal *removed;                   /* [removals]; the first removes nothing                        */
    double  *cut;                       /* [degrees,SCALES] losses of the degrees up to d, their sum times each scale */
    double  *without, *size;            /* [degrees] losses of all others; sums of squares of part d    */
    double   loss, whole, rest, highest; /* loss of the model; sum of squares of its logits             */
    const char *held;
} measured;

/* ---- one text ----------------------------------------------------------------------------------------------------------- */

static void set_zero(tn_tensor *t, int64_t rows, int64_t from, int64_t to)
{
    if (!t) return;
    double       *v = numbers_in(t);
    const int64_t n = tn_tensor_count(t);
    for (int64_t i = 0; i < n; i++) if (i % rows >= from && i % rows < to) v[i] = 0;
    tn_write(t, TN_F64, v, n);
    free(v);
}

/* Keeps the diagonal of each matrix [T,T]. */
static void keep_diagonal(tn_tensor *t, int64_t T)
{
    if (!t) return;
    double       *v = numbers_in(t);
    const int64_t n = tn_tensor_count(t);
    for (int64_t i = 0; i < n; i++) if (i / T % T != i % T) v[i] = 0;
    tn_write(t, TN_F64, v, n);
    free(v);
}

static void remove_part(tn_circuit_frozen *f, const removal *r)
{
    for (int64_t l = 0; l < f->layers; l++) {
        tn_circuit_frozen_block *b = &f->block[l];
        const int64_t            d = b->o->shape[2], row = b->o->shape[1] * d;
        if (r->head == OTHER_TOKENS) keep_diagonal(b->mask, f->tokens), keep_diagonal(b->pattern, f->tokens);
        if (r->head == ALL_HEADS || r->head == BOTH) set_zero(b->o, row, 0, row), set_zero(b->ob, 1, 0, 1);
        if (r->head == ALL_MLPS || r->head == BOTH || (r->head == ONE_MLP && r->block == l))
            set_zero(b->p, 1, 0, 1), set_zero(b->pb, 1, 0, 1);
        if (r->head >= 0 && r->block == l) set_zero(b->o, row, r->head * d, (r->head + 1) * d);
    }
    check_ctx(f->ctx, "removing a part");
}

/* Says how patterns are treated, and refuses what is no polynomial without --hold. */
static void look_at(measured *m, const tn_circuit_frozen *f)
{
    for (int64_t l = 0; l < f->layers && !m->how.hold_patterns; l++) {
        if (f->block[l].qk) continue;
        m->how.hold_patterns = true;
        if (!circuit_settings.hold)
            fail("%s: block %lld has %s patterns that are no polynomial, expected --hold, which holds them constant, as each "
                 "text has them", m->s->path, (long long)l, tn_attention_kind_name(f->model->blocks[l].attn.desc.kind));
    }
}

/* The parts of the logits of a text without a part, [degrees,tokens,vocab], a new list; of the model *logits, a new list. */
static double *parts_of(measured *m, const int32_t *ids, int64_t length, const removal *r, double **logits)
{
    tn_circuit_frozen  f;
    tn_circuit_degrees d;
    tn_ctx            *ctx = m->s->m.ctx;
    tn_ctx_reset(ctx);
    tn_circuit_freeze(ctx, &m->s->m.net, ids_tensor(ctx, ids, length), &f);
    check_ctx(ctx, "freezing a text");
    look_at(m, &f);
    if (logits) *logits = numbers_in(f.logits);
    remove_part(&f, r);
    tn_circuit_degrees_of(&f, &m->how, &d);
    check_ctx(ctx, "the degrees of a text");
    if (d.held && !circuit_settings.hold)
        fail("%s has %s, which are no polynomial, expected --hold, which holds them constant, as each text has them", m->s->path,
             d.held);
    double *v = numbers_in(d.logits);
    m->degrees = d.count;
    m->highest = d.highest;
    m->held = d.held;
    if (logits && d.rest > m->rest) m->rest = d.rest;
    tn_circuit_degrees_destroy(&d);
    tn_circuit_frozen_destroy(&f);
    return v;
}

/* Adds the losses of the tokens that follow, in nats, for the logits times each scale; for scales with whole powers of two
   between them exponentials are squared. */
static void add_losses(const double *logits, const int32_t *next, int64_t length, int64_t vocab, double *loss)
{
    for (int64_t t = 0; t < length; t++) {
        const double *x = logits + t * vocab;
        double        most = -INFINITY, all[SCALES] = {0};
        for (int64_t i = 0; i < vocab; i++) if (x[i] > most) most = x[i];
        for (int64_t i = 0; i < vocab; i++)
            for (int k = 0; k < 4; k++) {
                double e = exp(exp2(k / 4.0 - 2) * (x[i] - most));
                for (int j = k; j < SCALES; j += 4, e *= e) all[j] += e;
            }
        for (int j = 0; j < SCALES; j++) loss[j] += log(all[j]) + exp2(j / 4.0 - 2) * (most - x[next[t]]);
    }
}

/* The lowest loss: of the parabola through the lowest one and its neighbours. */
static double lowest(const double *loss)
{
    int at = 1;
    for (int j = 2; j < SCALES - 1; j++) if (loss[j] < loss[at]) at = j;
    const double left = loss[at - 1] - loss[at], right = loss[at + 1] - loss[at], slope = right - left;
    if (left < 0 || right < 0) return left < right ? loss[at - 1] : loss[at + 1];
    return left + right > 0 ? loss[at] - slope * slope / (8 * (left + right)) : loss[at];
}

static double product(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Less their mean over the vocabulary, which changes no probability. */
static void centre(double *v, int64_t rows, int64_t vocab)
{
    for (int64_t t = 0; t < rows; t++) {
        double mean = 0;
        for (int64_t i = 0; i < vocab; i++) mean += v[t * vocab + i] / (double)vocab;
        for (int64_t i = 0; i < vocab; i++) v[t * vocab + i] -= mean;
    }
}

static void measure_text(measured *m, const int32_t *ids, int64_t length)
{
    const int64_t V = m->s->m.desc.vocab, n = length * V;
    double       *whole = NULL, *rest = (double *)allocate((size_t)n, sizeof *rest), own[SCALES];
    for (int64_t k = 0; k < m->removals; k++) {
        removal *r = &m->removed[k];
        double  *part = parts_of(m, ids, length, r, k ? NULL : &whole), *sum = (double *)allocate((size_t)n, sizeof *sum);
        if (!k) centre(whole, length, V);
        if (!m->cut) {
            m->cut = (double *)allocate((size_t)m->degrees * SCALES, sizeof *m->cut);
            m->without = (double *)allocate((size_t)m->degrees, sizeof *m->without);
            m->size = (double *)allocate((size_t)m->degrees, sizeof *m->size);
        }
        if (!r->share) r->share = (double *)allocate((size_t)m->degrees, sizeof *r->share);
        centre(part, m->degrees * length, V);
        for (int64_t d = 0; d < m->degrees; d++) {
            const double *p = part + d * n, square = product(p, p, n);
            for (int64_t i = 0; square > 0 && i < n; i++) sum[i] += p[i];
            r->share[d] += product(p, whole, n);
            if (k) continue;
            m->size[d] += square;
            add_losses(sum, ids + 1, length, V, m->cut + d * SCALES);
            memset(own, 0, sizeof own);
            for (int64_t i = 0; i < n; i++) rest[i] = whole[i] - p[i];
            add_losses(rest, ids + 1, length, V, own);
            m->without[d] += own[SCALE_1];
        }
        add_losses(sum, ids + 1, length, V, r->loss);
        free(sum);
        free(part);
    }
    m->whole += product(whole, whole, n);
    memset(own, 0, sizeof own);
    add_losses(whole, ids + 1, length, V, own);
    m->loss += own[SCALE_1];
    m->tokens += length;
    free(rest);
    free(whole);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------- */

static void add_removal(measured *m, int64_t block, int64_t head, const char *name)
{
    removal *r = &m->removed[m->removals++];
    memset(r, 0, sizeof *r);
    r->block = block;
    r->head = head;
    snprintf(r->name, sizeof r->name, "%s", name);
}

static void list_removals(measured *m)
{
    const tn_transformer_desc *d = &m->s->m.desc;
    char                       name[HEAD_NAME];
    m->removed = (removal *)allocate((size_t)(5 + d->layers * (d->heads + 1)), sizeof *m->removed);
    add_removal(m, 0, NOTHING, "nothing");
    add_removal(m, 0, OTHER_TOKENS, "other tokens");
    add_removal(m, 0, ALL_HEADS, "heads");
    add_removal(m, 0, ALL_MLPS, "MLPs");
    add_removal(m, 0, BOTH, "heads, MLPs");
    for (int64_t l = 0; l < d->layers; l++) {
        for (int64_t h = 0; h < d->heads; h++) add_removal(m, l, h, head_name(l, h, name));
        snprintf(name, sizeof name, "%lld.mlp", (long long)l);
        add_removal(m, l, ONE_MLP, name);
    }
}

/* Sums become means, and shares of the variance. */
static void finish(measured *m)
{
    const double tokens = (double)m->tokens;
    m->loss /= tokens;
    for (int64_t d = 0; d < m->degrees; d++) {
        for (int j = 0; j < SCALES; j++) m->cut[d * SCALES + j] /= tokens;
        m->without[d] /= tokens;
        m->size[d] = m->whole > 0 ? sqrt(m->size[d] / m->whole) : NAN;
    }
    for (int64_t k = 0; k < m->removals; k++) {
        for (int j = 0; j < SCALES; j++) m->removed[k].loss[j] /= tokens;
        for (int64_t d = 0; d < m->degrees; d++) m->removed[k].share[d] /= m->whole;
    }
}

/* The number of degrees from 0 that make a difference of 0.0001: what follows changes no loss of the table. */
static int64_t shown_degrees(const measured *m)
{
    int64_t n = m->degrees;
    while (n > 2 && fabs(m->cut[(n - 2) * SCALES + SCALE_1] - m->loss) < 5e-5 && fabs(m->without[n - 1] - m->loss) < 5e-5) n--;
    return n;
}

static void report_table_of_degrees(const measured *m, int64_t shown)
{
    static const column columns[] = {
        {"degree", NULL, 6, "%.0f"}, {"loss_to", "loss to", 8, "%.4f"}, {"loss_to_scaled", "scaled", 8, "%.4f"},
        {"loss_without", "without", 8, "%.4f"}, {"share", NULL, 7, "%.4f"}, {"size", NULL, 6, "%.4f"},
        {"heads", NULL, 7, "%.4f"}, {"mlps", "MLPs", 7, "%.4f"}, {"both", NULL, 7, "%.4f"}, {NULL, NULL, 0, NULL}
    };
    const double *all = m->removed[0].share, *mlps = m->removed[2].share, *heads = m->removed[3].share;
    const double *none = m->removed[4].share;
    report_table("per_degree", NULL, columns);
    for (int64_t d = 0; d < shown; d++)
        if (m->size[d] > 0)
            report_row(columns, (double)d, m->cut[d * SCALES + SCALE_1], lowest(m->cut + d * SCALES), m->without[d], all[d],
                       m->size[d], heads[d] - none[d], mlps[d] - none[d], all[d] - heads[d] - mlps[d] + none[d]);
    if ((double)m->degrees <= m->highest)
        report_note("Degrees above %lld were not computed: the parts, their shares, and the losses of the model without a part "
                    "lack them. The remainder below is the largest difference from a logit, in that of the largest.",
                    (long long)m->degrees - 1);
    report_note("Part d of a logit has degree d in the embeddings; the parts are exact, and all of them add up to the logits. "
                "Losses are nats per token: of the parts up to a degree, of the same times the best factor, and of all parts but "
                "this one. "
                "share: of the variance of the logits over the vocabulary, the covariance with the part; those of all degrees "
                "add up to 1. size: the part's own standard deviation, in that of the logits. A share passes heads alone, MLPs "
                "alone, or both; the rest is the embedding itself.");
    if (shown < m->degrees) report_note("Higher degrees change these losses by less than 0.0001.");
}

static void report_removals(const measured *m)
{
    char    titles[BY_DEGREE][32], keys[BY_DEGREE][32];
    column  columns[BY_DEGREE + 5];
    int64_t at[BY_DEGREE], count = 0;
    memset(columns, 0, sizeof columns);
    columns[0] = (column){"removed", NULL, 12, "%s"};
    columns[1] = (column){"loss", NULL, 6, "%.4f"};
    columns[2] = (column){"loss_scaled", "scaled", 6, "%.4f"};
    columns[3] = (column){"share", "through", 7, "%.4f"};
    for (; count < BY_DEGREE; count++) {                    /* the degrees with the largest shares */
        int64_t best = -1;
        for (int64_t d = 0; d < m->degrees; d++) {
            bool had = m->size[d] <= 0;
            for (int64_t k = 0; k < count; k++) had = had || at[k] == d;
            if (!had && (best < 0 || fabs(m->removed[0].share[d]) > fabs(m->removed[0].share[best]))) best = d;
        }
        if (best < 0) break;
        at[count] = best;
    }
    for (int64_t i = 0; i < count; i++) for (int64_t k = i + 1; k < count; k++)
        if (at[k] < at[i]) { const int64_t d = at[i]; at[i] = at[k]; at[k] = d; }
    for (int64_t i = 0; i < count; i++) {
        snprintf(titles[i], sizeof titles[i], "of %lld", (long long)at[i]);
        snprintf(keys[i], sizeof keys[i], "share_of_%lld", (long long)at[i]);
        columns[4 + i] = (column){keys[i], titles[i], 6, "%.4f"};
    }
    report_table("per_part", "The model without a part, and the share of what passes it, of all degrees and of some:", columns);
    for (int64_t k = 1; k < m->removals; k++) {
        const removal *r = &m->removed[k];
        double         through = 0, v[BY_DEGREE] = {0};
        for (int64_t d = 0; d < m->degrees; d++) through += m->removed[0].share[d] - r->share[d];
        for (int64_t i = 0; i < count; i++) v[i] = m->removed[0].share[at[i]] - r->share[at[i]];
        report_row(columns, r->name, r->loss[SCALE_1], lowest(r->loss), through, v[0], v[1], v[2], v[3], v[4]);
    }
}

static void draw_degrees(const measured *m, int64_t shown, const double *grams, const char *out)
{
    static const char *const lines[] = {"the model", "own token alone", "bigrams"};
    tn_image_series    s[5];
    tn_image_plot_desc p;
    double            *x = (double *)allocate((size_t)shown, sizeof *x), *y[2], level[3][2], ends[2];
    int64_t            n = 0, count = 2;
    memset(s, 0, sizeof s);
    memset(&p, 0, sizeof p);
    y[0] = (double *)allocate((size_t)shown, sizeof *y[0]);
    y[1] = (double *)allocate((size_t)shown, sizeof *y[1]);
    p.y_low = m->loss;
    p.y_high = log((double)m->s->m.desc.vocab) + 0.1;
    for (int64_t d = 0; d < shown; d++) {
        if (m->size[d] <= 0) continue;
        x[n] = (double)d;
        y[0][n] = m->cut[d * SCALES + SCALE_1];
        y[1][n++] = m->without[d];
    }
    ends[0] = x[0], ends[1] = x[n - 1];
    for (int i = 0; i < 3; i++) {
        level[i][0] = level[i][1] = i == 0 ? m->loss : i == 1 ? m->removed[1].loss[SCALE_1] : grams ? grams[2] : NAN;
        if (!isfinite(level[i][0]) || ends[1] <= ends[0]) continue;
        s[count].name = lines[i];
        s[count].x = ends;
        s[count].y = level[i];
        s[count].count = 2;
        s[count++].dashed = true;
        if (level[i][0] < p.y_low) p.y_low = level[i][0];
    }
    for (int i = 0; i < 2; i++) {
        s[i].name = i ? "without degree d" : "degrees up to d";
        s[i].x = x;
        s[i].y = y[i];
        s[i].count = n;
        for (int64_t d = 0; d < n; d++) if (y[i][d] < p.y_low) p.y_low = y[i][d];
        for (int64_t d = 0; d < n; d++) if (y[i][d] > p.y_high) y[i][d] = p.y_high;
    }
    p.y_low -= 0.1;
    p.title = "Loss by degree in the embeddings";
    p.x_title = "degree d";
    p.y_title = "nats per token";
    p.scale = 2;
    p.log_x = n > 10 && x[0] > 0;
    tn_image *image = tn_image_plot(m->s->m.ctx, s, count, &p);
    check_ctx(m->s->m.ctx, "the picture");
    char *failed = write_file_with(out, BY_USER, picture_writer(out), image, m->s->m.ctx);
    if (failed) fail("%s", failed);
    tn_image_destroy(image);
    free(x);
    free(y[0]);
    free(y[1]);
}

/* The losses of n-grams of the training text on the same windows. */
static bool count_ngrams(const subject *s, const samples *x, double *grams)
{
    int32_t *ids = (int32_t *)allocate((size_t)(x->count * (x->length + 1)), sizeof *ids);
    for (int64_t k = 0; k < x->count; k++)
        memcpy(ids + k * (x->length + 1), x->ids + x->start[k], (size_t)(x->length + 1) * sizeof *ids);
    const bool done = baseline_losses(&s->run, ids, x->count * (x->length + 1), x->length + 1, s->m.desc.vocab, grams);
    free(ids);
    return done;
}

void degrees_report(subject *s, const char *text)
{
    const double start = now();
    const char  *out = circuit_settings.out ? circuit_settings.out : "degrees" PICTURE_ENDING;
    const int64_t length = circuit_settings.length >= 1 ? circuit_settings.length : text ? s->m.desc.context : USUAL_LENGTH;
    double       grams[NGRAM_MAX + 1];
    measured     m;
    memset(&m, 0, sizeof m);
    m.s = s;
    m.how.max_degree = circuit_settings.max_degree;
    picture_writer(out);
    check_not_model("out", circuit_settings.out, "the model", s->path);
    samples x = text_samples(s, text, length < s->m.desc.context ? length : s->m.desc.context, circuit_settings.tokens);
    list_removals(&m);
    for (int64_t k = 0; k < x.count; k++) measure_text(&m, x.ids + x.start[k], x.length);
    if (m.whole <= 0) fail("%s gives all tokens equal logits, expected some that differ: it was not trained", s->path);
    finish(&m);
    const int64_t shown = shown_degrees(&m);
    const bool    counted = s->has_run && count_ngrams(s, &x, grams);
    report_table_of_degrees(&m, shown);
    report_removals(&m);
    draw_degrees(&m, shown, counted ? grams : NULL, out);
    if (m.held)
        report_note("Held constant, as each text has them, since they are no polynomial: %s%s. The parts are exact for each "
                    "text, and not polynomials for all of them.", m.held,
                    m.how.hold_patterns && strcmp(m.held, "patterns") ? ", patterns" : "");
    report_value("loss", "%.6f", m.loss);
    if (counted) for (int k = 1; k <= 3; k++)
        report_value(k == 1 ? "unigrams" : k == 2 ? "bigrams" : "trigrams", "%.6f", grams[k]);
    report_value("uniform", "%.6f", log((double)s->m.desc.vocab));
    report_value("highest_degree", "%.0f", m.highest);
    report_value("remainder", "%.3g", m.rest);
    report_value("tokens", "%.0f", (double)m.tokens);
    report_value("seconds", "%.2f", now() - start);
    report_text("text", x.held ? "the end of the run's text, which was held out" : "as given");
    report_text("picture", out);
    for (int64_t k = 0; k < m.removals; k++) free(m.removed[k].share);
    free(m.removed);
    free(m.cut);
    free(m.without);
    free(m.size);
    free_samples(&x);
}
