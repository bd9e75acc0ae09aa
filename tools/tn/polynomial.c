/* polynomial.c - tn circuits polynomial: softmax and the activations of MLPs as polynomials, norms as linear maps */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is replaced, and what it is fitted to ------------------------------------------------------------------------- */

/* A function of one number, its range in the text, and its polynomials, from degree 1 on. */
typedef struct approx { double low, high, centre; tn_polynomial_fit fit; tn_polynomial p[POLYNOMIAL_MOST + 1]; } approx;

enum { BY_SUM, BY_COUNT, DENOMINATORS };        /* of a softmax: the sum of its row; the number of keys, times a constant */

/* [hidden], [1], [heads]; NULL: absent */
typedef struct block_functions { approx *unit, *all, *head[DENOMINATORS]; } block_functions;

struct fitted {
    const subject *s;
    block_functions  *block;                       /* [layers] */
    bool           gates, softmax;
};

typedef enum pass { FIND_RANGES, FIT, REPLACE } pass;

/* What the taps of a run need: what it is for, and what the block that is running has shown so far. */
typedef struct passing {
    fitted *f;
    pass    task;
    int     degree, softmax;                    /* REPLACE: softmax: which denominator, or -1: as it is */
    bool    gates;
    double *seen[2];                            /* encoders; or q and k */
} passing;

static double activation(tn_mlp_kind kind, double x)
{
    switch (kind) {
    case TN_MLP_RELU: case TN_MLP_REGLU: return x > 0 ? x : 0;
    case TN_MLP_RELU2: return x > 0 ? x * x : 0;
    case TN_MLP_GELU: case TN_MLP_GEGLU: return x / 2 * erfc(-x / sqrt(2));
    case TN_MLP_GELU_TANH: case TN_MLP_GEGLU_TANH: return x / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
    case TN_MLP_GLU: return 1 / (1 + exp(-x));
    case TN_MLP_SWISH: case TN_MLP_SWIGLU: return x / (1 + exp(-x));
    default: fail("%s is no MLP with an activation that polynomials can replace", tn_mlp_kind_name(kind)); return 0;
    }
}

static void widen(approx *c, double x)
{
    if (!(x >= c->low)) c->low = x;
    if (!(x <= c->high)) c->high = x;
}

static approx *new_approxes(int64_t n) { return (approx *)allocate((size_t)n, sizeof(approx)); }

/* An argument is not finite: no polynomial can be fitted. */
static void refuse_point(const char *name, double x)
{
    fail("%s has the number %g in this text, expected finite numbers", name, x);
}

/* The block of a point. The numbers of a point are kept until the next one of its kind. */
static int64_t keep_point(passing *p, int slot, const char *name, const tn_tensor *x)
{
    free(p->seen[slot]);
    p->seen[slot] = numbers_in(x);
    for (int64_t i = 0; i < tn_tensor_count(x); i++) if (!isfinite(p->seen[slot][i])) refuse_point(name, p->seen[slot][i]);
    return strtol(name + strlen("blocks."), NULL, 10);
}

static tn_tensor *see_keys(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)ctx;
    keep_point((passing *)user, ends_with(name, ".k1"), name, x);
    return x;
}

static tn_tensor *see_encoders(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    passing      *p = (passing *)user;
    const int64_t l = keep_point(p, 0, name, x), h = x->shape[3], e = x->shape[2], rows = x->shape[0] * x->shape[1];
    block_functions *b = &p->f->block[l];
    double       *y = (double *)allocate((size_t)(rows * h), sizeof *y), *z = (double *)allocate((size_t)(rows * h), sizeof *z);
    (void)ctx;
    for (int64_t r = 0; b->unit && r < rows; r++)
        for (int64_t i = 0; i < h; i++) {
            const double g = p->seen[0][r * e * h + i];
            z[i * rows + r] = g;
            if (p->task == FIT) y[i * rows + r] = activation(p->f->s->m.net.blocks[l].mlp.desc.kind, g);
            if (p->task == FIND_RANGES) widen(&b->unit[i], g), widen(b->all, g);
        }
    for (int64_t i = 0; p->task == FIT && b->unit && i < h; i++) {
        if (b->unit[i].high > b->unit[i].low)
            tn_polynomial_fit_add(&b->unit[i].fit, rows, z + i * rows, y + i * rows, NULL);
        tn_polynomial_fit_add(&b->all->fit, rows, z + i * rows, y + i * rows, NULL);
    }
    free(y);
    free(z);
    return x;
}

/* p(W x) * V x, or p(W x), in the place of a block's hidden units */
static tn_tensor *see_hidden(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    passing            *p = (passing *)user;
    const int64_t       l = strtol(name + strlen("blocks."), NULL, 10), h = x->shape[2], rows = x->shape[0] * x->shape[1];
    const block_functions *b = &p->f->block[l];
    const int64_t       e = tn_mlp_encoders(p->f->s->m.net.blocks[l].mlp.desc.kind);
    if (p->task != REPLACE || !p->gates || !b->unit) return x;
    double *y = (double *)allocate((size_t)(rows * h), sizeof *y);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < h; i++) {
            const double *at = p->seen[0] + r * e * h + i;
            y[r * h + i] = tn_polynomial_value(&(circuit_settings.shared ? b->all : &b->unit[i])->p[p->degree], at[0])
                         * (e > 1 ? at[h] : 1);
        }
    tn_tensor *t = tn_tensor_from(ctx, x->rank, x->shape, TN_F64, y);
    free(y);
    return t;
}

/* Scores of one head and query that it sees, [first, *end): keys -> numbers */
static int64_t row_of_scores(const passing *p, const tn_tensor *x, const tn_attention_desc *a, int64_t text, int64_t head,
                             int64_t query, int64_t *end, double *score)
{
    const int64_t H = a->heads, T = x->shape[3], d = a->d_qk, before = a->window > 0 && a->window < T ? a->window : T;
    const int64_t first = query - before + 1 > 0 ? query - before + 1 : 0, last = a->bidirectional ? query + before - 1 : query;
    const double  scale = a->scale != 0 ? a->scale : 1 / sqrt((double)d);
    const double *q = p->seen[0] + ((text * T + query) * H + head) * d;
    *end = last < T ? last + 1 : T;
    for (int64_t u = first; u < *end; u++) {
        const double *k = p->seen[1] + ((text * T + u) * H + head) * d;
        double        sum = 0;
        for (int64_t i = 0; i < d; i++) sum += q[i] * k[i];
        score[u] = scale * sum;
    }
    return first;
}

/* Fits p(s)/Z to softmax(s) = exp(s - c)/Z, each row with its own Z, and p(s)/n, n keys. */
static void fit_row(block_functions *b, int64_t head, int64_t n, const double *s, const double *pattern, const char *name)
{
    const double c = b->head[BY_SUM][head].centre;
    double       sum = 0;
    double      *y = (double *)allocate((size_t)n, sizeof *y), *w = (double *)allocate((size_t)n, sizeof *w);
    for (int64_t i = 0; i < n; i++) sum += exp(s[i] - c);
    for (int64_t i = 0; i < n; i++) {
        if (sum > 0 && fabs(exp(s[i] - c) / sum - pattern[i]) > 1e-3)
            fail("%s is not the softmax of its scores, expected attention without a row scale", name);
        y[i] = exp(s[i] - c);
        w[i] = 1 / (sum * sum);
    }
    if (isfinite(1 / (sum * sum))) tn_polynomial_fit_add(&b->head[BY_SUM][head].fit, n, s, y, w);
    for (int64_t i = 0; i < n; i++) y[i] = pattern[i] * (double)n, w[i] = 1 / ((double)n * (double)n);
    tn_polynomial_fit_add(&b->head[BY_COUNT][head].fit, n, s, y, w);
    free(y);
    free(w);
}

static void replace_row(const passing *p, const block_functions *b, int64_t head, int64_t n, const double *s, double *pattern)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        pattern[i] = tn_polynomial_value(&b->head[p->softmax][head].p[p->degree], s[i]);
        sum += pattern[i];
    }
    for (int64_t i = 0; i < n; i++) pattern[i] /= p->softmax == BY_SUM ? sum : (double)n;
}

static tn_tensor *see_pattern(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    passing      *p = (passing *)user;
    const int64_t l = strtol(name + strlen("blocks."), NULL, 10), H = x->shape[1], T = x->shape[2];
    block_functions *b = &p->f->block[l];
    if (!b->head[0] || (p->task == REPLACE && p->softmax < 0)) return x;
    double *pattern = numbers_in(x), *score = (double *)allocate((size_t)T, sizeof *score);
    for (int64_t i = 0; i < x->shape[0] * H * T; i++) {
        const int64_t head = i / T % H;
        int64_t       end, first = row_of_scores(p, x, &p->f->s->m.net.blocks[l].attn.desc, i / T / H, head, i % T, &end, score);
        if (p->task == FIT) fit_row(b, head, end - first, score + first, pattern + i * T + first, name);
        if (p->task == REPLACE) replace_row(p, b, head, end - first, score + first, pattern + i * T + first);
        for (int64_t u = first; p->task == FIND_RANGES && u < end; u++) widen(&b->head[BY_SUM][head], score[u]);
    }
    tn_tensor *t = p->task == REPLACE ? tn_tensor_from(ctx, x->rank, x->shape, TN_F64, pattern) : x;
    free(pattern);
    free(score);
    return t;
}

/* The loss in nats per token over all windows of a text, in a pass, while `more` taps act before these. */
static double run_pass(passing *p, const samples *x, const tn_tap *more, int64_t more_count)
{
    static const struct { const char *points; tn_tap_fn fn; bool softmax; } own[] = {
        {"*.attn.q1", see_keys, true}, {"*.attn.k1", see_keys, true}, {"*.attn.pattern", see_pattern, true},
        {"*.mlp.encoders", see_encoders, false}, {"*.mlp.hidden", see_hidden, false}
    };
    tn_tap *taps = (tn_tap *)allocate((size_t)more_count + 5, sizeof *taps);
    int64_t n = 0;
    double  sum = 0;
    for (; n < more_count; n++) taps[n] = more[n];
    for (int i = 0; i < 5; i++) {
        if (!(own[i].softmax ? p->f->softmax && (p->task != REPLACE || p->softmax >= 0)
                             : p->f->gates && (p->task != REPLACE || p->gates))) continue;
        taps[n].points = own[i].points;
        taps[n].fn = own[i].fn;
        taps[n++].user = p;
    }
    for (int64_t k = 0; k < x->count; k++) sum += sample_loss(&p->f->s->m, x, k, taps, n);
    free(p->seen[0]);
    free(p->seen[1]);
    p->seen[0] = p->seen[1] = NULL;
    free(taps);
    return sum / (double)x->count;
}

double loss_with(fitted *f, const samples *x, int degree, bool gates, int softmax, const tn_tap *more, int64_t count)
{
    passing p = {f, REPLACE, degree, softmax, gates, {NULL, NULL}};
    return run_pass(&p, x, more, count);
}

/* ---- fits ---------------------------------------------------------------------------------------------------------------- */

/* The polynomial of degree 0 where a function has one argument only. */
static tn_polynomial constant_of(double x, double y)
{
    tn_polynomial p;
    memset(&p, 0, sizeof p);
    p.centre = x;
    p.width = 1;
    p.c[0] = y;
    p.share = NAN;
    return p;
}

/* about_0: the range is widened to -M to M: powers are then those of the argument itself, and paths read no further constant. */
static void begin_approx(tn_ctx *ctx, approx *c, bool about_0, const char *name)
{
    const double most = fabs(c->low) > fabs(c->high) ? fabs(c->low) : fabs(c->high);
    c->centre = c->high;
    if (c->low < c->high)
        tn_polynomial_fit_init(ctx, POLYNOMIAL_MOST, about_0 ? -most : c->low, about_0 ? most : c->high, &c->fit);
    check_ctx(ctx, name);
}

static void end_approx(tn_ctx *ctx, approx *c, double (*of)(tn_mlp_kind, double), tn_mlp_kind kind, const char *name)
{
    for (int d = 1; d <= POLYNOMIAL_MOST; d++) {
        if (c->low < c->high) tn_polynomial_fit_read(&c->fit, d, &c->p[d]);
        else c->p[d] = constant_of(c->low, of ? of(kind, c->low) : 1);
        check_ctx(ctx, name);
    }
}

/* Calls begin_approx or end_approx for all functions. */
static void visit_functions(fitted *f, bool end)
{
    tn_ctx *ctx = f->s->m.ctx;
    for (int64_t l = 0; l < f->s->m.desc.layers; l++) {
        block_functions     *b = &f->block[l];
        const tn_mlp_kind kind = f->s->m.net.blocks[l].mlp.desc.kind;
        for (int64_t i = 0; b->unit && i <= f->s->m.net.blocks[l].mlp.desc.hidden; i++) {
            approx *c = i ? &b->unit[i - 1] : b->all;
            if (end) end_approx(ctx, c, activation, kind, "the fit of an activation");
            else begin_approx(ctx, c, true, "the fit of an activation");
        }
        for (int64_t h = 0; b->head[0] && h < f->s->m.desc.heads; h++)
            for (int k = 0; k < DENOMINATORS; k++) {
                approx *c = &b->head[k][h];
                c->low = b->head[BY_SUM][h].low;
                c->high = b->head[BY_SUM][h].high;
                if (end) end_approx(ctx, c, NULL, kind, "the fit of a softmax");
                else begin_approx(ctx, c, false, "the fit of a softmax");
            }
    }
}

static void reset(approx *c, int64_t n)
{
    memset(c, 0, (size_t)n * sizeof *c);
    for (int64_t i = 0; i < n; i++) c[i].low = INFINITY, c[i].high = -INFINITY;
}

void fit_functions(fitted *f, const samples *x, const tn_tap *more, int64_t count)
{
    passing p = {f, FIND_RANGES, 0, -1, false, {NULL, NULL}};
    for (int64_t l = 0; l < f->s->m.desc.layers; l++) {
        block_functions *b = &f->block[l];
        if (b->unit) reset(b->unit, f->s->m.net.blocks[l].mlp.desc.hidden), reset(b->all, 1);
        for (int k = 0; b->head[0] && k < DENOMINATORS; k++) reset(b->head[k], f->s->m.desc.heads);
    }
    run_pass(&p, x, more, count);
    visit_functions(f, false);
    p.task = FIT;
    run_pass(&p, x, more, count);
    visit_functions(f, true);
}

fitted *list_functions(const subject *s)
{
    fitted *f = (fitted *)allocate(1, sizeof *f);
    f->s = s;
    f->block = (block_functions *)allocate((size_t)s->m.desc.layers, sizeof *f->block);
    for (int64_t l = 0; l < s->m.desc.layers; l++) {
        const tn_transformer_block *b = &s->m.net.blocks[l];
        block_functions               *to = &f->block[l];
        if (b->mlp.desc.kind != TN_MLP_BILINEAR) {
            to->unit = new_approxes(b->mlp.desc.hidden);
            to->all = new_approxes(1);
            f->gates = true;
        }
        if (b->attn.desc.kind != TN_ATTENTION_SOFTMAX) continue;
        for (int k = 0; k < DENOMINATORS; k++) to->head[k] = new_approxes(s->m.desc.heads);
        f->softmax = true;
    }
    return f;
}

void free_fitted(fitted *f)
{
    for (int64_t l = 0; l < f->s->m.desc.layers; l++) {
        free(f->block[l].unit);
        free(f->block[l].all);
        for (int k = 0; k < DENOMINATORS; k++) free(f->block[l].head[k]);
    }
    free(f->block);
    free(f);
}

bool fitted_gates(const fitted *f)   { return f->gates; }
bool fitted_softmax(const fitted *f) { return f->softmax; }

tn_polynomial *gate_polynomials(const fitted *f, int64_t block, int degree, int64_t *count)
{
    const block_functions *b = &f->block[block];
    *count = circuit_settings.shared ? 1 : f->s->m.net.blocks[block].mlp.desc.hidden;
    if (!b->unit) return NULL;
    tn_polynomial *p = (tn_polynomial *)allocate((size_t)*count, sizeof *p);
    for (int64_t i = 0; i < *count; i++) p[i] = (circuit_settings.shared ? b->all : &b->unit[i])->p[degree];
    return p;
}

/* ---- tables -------------------------------------------------------------------------------------------------------------- */

/* Over all units of a block: what the polynomials leave of the variance of the activation, about one mean for all. */
static double share_of_units(const block_functions *b, int64_t hidden, int degree)
{
    double rest = 0;
    for (int64_t i = 0; i < hidden; i++) rest += b->unit[i].p[degree].rms * b->unit[i].p[degree].rms / (double)hidden;
    const double whole = b->all->p[1].rms * b->all->p[1].rms / (1 - b->all->p[1].share);
    return 1 - rest / whole;
}

static void report_fits(const fitted *f)
{
    static const column columns[] = {
        {"part", NULL, 12, "%s"}, {"low", NULL, 8, "%.2f"}, {"high", NULL, 8, "%.2f"}, {"degree_2", "degree 2", 8, "%.4f"},
        {"degree_4", "4", 8, "%.4f"}, {"degree_6", "6", 8, "%.4f"}, {"degree_8", "8", 8, "%.4f"}, {NULL, NULL, 0, NULL}
    };
    const subject *s = f->s;
    char           name[HEAD_NAME];
    report_table("per_function", "Share of the variance that a polynomial explains, and the range of its argument:", columns);
    for (int64_t l = 0; l < s->m.desc.layers; l++) {
        const block_functions *b = &f->block[l];
        const int64_t       hidden = s->m.net.blocks[l].mlp.desc.hidden;
        double              v[4];
        for (int64_t h = 0; b->head[0] && h < s->m.desc.heads; h++) {
            const approx *c = &b->head[BY_SUM][h];
            report_row(columns, head_name(l, h, name), c->low, c->high, c->p[2].share, c->p[4].share, c->p[6].share,
                       c->p[8].share);
        }
        if (!b->unit) continue;
        for (int i = 0; i < 4; i++)
            v[i] = circuit_settings.shared ? b->all->p[2 * i + 2].share : share_of_units(b, hidden, 2 * i + 2);
        snprintf(name, sizeof name, "%lld.mlp", (long long)l);
        report_row(columns, name, b->all->low, b->all->high, v[0], v[1], v[2], v[3]);
    }
}

static void report_degrees(fitted *f, const samples *x, double whole)
{
    static const column columns[] = {
        {"degree", NULL, 8, "%.0f"}, {"activation", NULL, 10, "%.4f"}, {"softmax", NULL, 10, "%.4f"},
        {"softmax_count", "softmax/n", 10, "%.4f"}, {"both", NULL, 10, "%.4f"}, {NULL, NULL, 0, NULL}
    };
    report_table("per_degree", "Loss with polynomials of a degree:", columns);
    for (int d = 2; d <= POLYNOMIAL_MOST; d++) {
        double v[4] = {NAN, NAN, NAN, NAN};
        if (f->gates) v[0] = loss_with(f, x, d, true, -1, NULL, 0);
        for (int k = 0; f->softmax && k < DENOMINATORS; k++) v[1 + k] = loss_with(f, x, d, false, k, NULL, 0);
        if (f->gates && f->softmax) v[3] = loss_with(f, x, d, true, BY_SUM, NULL, 0);
        report_row(columns, (double)d, v[0], v[1], v[2], v[3]);
    }
    report_row(columns, NAN, f->gates ? whole : NAN, f->softmax ? whole : NAN, f->softmax ? whole : NAN,
               f->gates && f->softmax ? whole : NAN);
    if (f->softmax)
        report_note("softmax: exp(s) is p(s), divided by the sum over the row's keys; softmax/n: softmax(s) is p(s) divided by "
                    "the number of keys. Each head has a polynomial of its own.");
    if (f->gates)
        report_note(circuit_settings.shared ? "activation: the units of an MLP share a polynomial." :
                    "activation: each hidden unit of an MLP has a polynomial of its own.");
    report_note("The last row is the model as it is. Losses are nats per token.");
}

void report_polynomials(fitted *f, const samples *x, double whole)
{
    if (!f->gates && !f->softmax) return;
    report_fits(f);
    report_degrees(f, x, whole);
}
