/* ablate.c - tn circuits ablate: how the loss changes without a head or an MLP */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A head, or the MLP of a block (head -1). */
typedef struct part { int64_t block, head; char point[48], name[HEAD_NAME]; double change, error; } part;

/* The sums of a point over all tokens, for its mean. */
typedef struct mean { char point[48]; double *sum; int64_t numbers, tokens; } mean;

static tn_tensor *add_up(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    mean         *m = (mean *)user;
    const int64_t tokens = x->shape[0] * x->shape[1], n = tn_tensor_count(x) / tokens;
    double       *v = numbers_in(x);
    (void)ctx;
    (void)name;
    if (!m->sum) m->sum = (double *)allocate((size_t)n, sizeof *m->sum);
    m->numbers = n;
    for (int64_t i = 0; i < tokens * n; i++) m->sum[i % n] += v[i];
    m->tokens += tokens;
    free(v);
    return x;
}

static part *list_parts(const subject *s, int64_t *count)
{
    const int64_t H = s->m.desc.heads;
    part         *p = (part *)allocate((size_t)(s->m.desc.layers * (H + 1)), sizeof *p), *at = p;
    for (int64_t l = 0; l < s->m.desc.layers; l++)
        for (int64_t h = 0; h <= H; h++, at++) {
            const bool mlp = h == H;
            at->block = l;
            at->head = mlp ? -1 : h;
            snprintf(at->point, sizeof at->point, mlp ? "blocks.%lld.mlp" : "blocks.%lld.attn.z", (long long)l);
            if (mlp) snprintf(at->name, sizeof at->name, "%lld.mlp", (long long)l);
            else head_name(l, h, at->name);
        }
    *count = at - p;
    return p;
}

/* The losses of all windows; with --mean also the sums of the points of the parts, [2 layers] in their order. */
static double *losses(const subject *s, const samples *x, mean *means)
{
    double *v = (double *)allocate((size_t)x->count, sizeof *v);
    tn_tap *taps = (tn_tap *)allocate((size_t)(2 * s->m.desc.layers), sizeof *taps);
    int64_t n = means ? 2 * s->m.desc.layers : 0;
    for (int64_t i = 0; i < n; i++) {
        snprintf(means[i].point, sizeof means[i].point, i % 2 ? "blocks.%lld.mlp" : "blocks.%lld.attn.z", (long long)i / 2);
        taps[i].points = means[i].point;
        taps[i].fn = add_up;
        taps[i].user = &means[i];
    }
    for (int64_t k = 0; k < x->count; k++) v[k] = sample_loss(&s->m, x, k, taps, n);
    free(taps);
    return v;
}

/* What replaces a part: its mean over all tokens, an owned tensor; NULL: 0. */
static tn_tensor *replacement(const subject *s, const part *p, const mean *means)
{
    const mean *m = means ? &means[2 * p->block + (p->head < 0)] : NULL;
    const bool  mlp = p->head < 0;
    int64_t     shape[4] = {1, 1, 1, 1};
    if (!m) return NULL;
    int64_t n = mlp ? m->numbers : m->numbers / s->m.desc.heads;
    double *v = (double *)allocate((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = m->sum[(mlp ? 0 : p->head * n) + i] / (double)m->tokens;
    shape[mlp ? 2 : 3] = n;
    tn_tensor *t = tn_tensor_create(s->m.ctx, TN_REAL, mlp ? 3 : 4, shape);
    tn_write(t, TN_F64, v, n);
    check_ctx(s->m.ctx, "a mean");
    free(v);
    return t;
}

/* The mean change of the loss, and its standard error over the windows. */
static void measure_part(const subject *s, const samples *x, const double *before, const mean *means, part *p)
{
    tn_edit edit;
    tn_tap  tap;
    double  sum = 0, squares = 0, n = (double)x->count;
    memset(&edit, 0, sizeof edit);
    edit.head = p->head < 0 ? 0 : p->head;
    edit.heads = p->head < 0 ? 0 : 1;
    edit.value = replacement(s, p, means);
    tap.points = p->point;
    tap.fn = tn_tap_edit;
    tap.user = &edit;
    for (int64_t k = 0; k < x->count; k++) {
        const double change = sample_loss(&s->m, x, k, &tap, 1) - before[k];
        sum += change;
        squares += change * change;
    }
    p->change = sum / n;
    squares -= n * p->change * p->change;
    p->error = n > 1 ? sqrt((squares < 0 ? 0 : squares) / n / (n - 1)) : NAN;
    tn_tensor_destroy(edit.value);
}

static int by_change(const void *a, const void *b)
{
    const part *x = (const part *)a, *y = (const part *)b;
    if (x->change != y->change) return x->change < y->change ? 1 : -1;
    return x->block != y->block ? (x->block > y->block) - (x->block < y->block) : (x->head > y->head) - (x->head < y->head);
}

void ablate_report(subject *s, const char *text)
{
    static const column columns[] = {
        {"part", NULL, 16, "%s"}, {"loss", NULL, 10, "%.4f"}, {"change", NULL, 10, "%+.4f"},
        {"error", "std error", 10, "%.4f"}, {"ratio", "perplexity x", 13, "%.3f"}, {NULL, NULL, 0, NULL}
    };
    samples x = text_samples(s, text, s->m.desc.context, circuit_settings.tokens);
    mean   *means = circuit_settings.mean ? (mean *)allocate((size_t)(2 * s->m.desc.layers), sizeof *means) : NULL;
    double *before = losses(s, &x, means), whole = 0;
    int64_t count;
    part   *p = list_parts(s, &count);
    for (int64_t i = 0; i < x.count; i++) whole += before[i] / (double)x.count;
    if (!isfinite(whole)) fail("the loss of the text is %g, expected a finite number", whole);
    for (int64_t i = 0; i < count; i++) measure_part(s, &x, before, means, &p[i]);
    qsort(p, (size_t)count, sizeof *p, by_change);
    report_table("per_part", NULL, columns);
    for (int64_t i = 0; i < count && (!circuit_settings.top || i < circuit_settings.top); i++)
        report_row(columns, p[i].name, whole + p[i].change, p[i].change, p[i].error, exp(p[i].change));
    report_note("Each part alone is replaced by %s; the others compute on. Losses are nats per token%s.",
                means ? "its mean over all tokens" : "zero",
                x.count > 1 ? "; the standard error is that of the change, over windows of text" : "");
    report_value("loss", "%.6f", whole);
    report_value("tokens", "%.0f", (double)(x.count * x.length));
    report_value("windows", "%.0f", (double)x.count);
    report_text("text", x.held ? "the end of the run's text, which was held out" : "as given");
    if (means) for (int64_t i = 0; i < 2 * s->m.desc.layers; i++) free(means[i].sum);
    free(means);
    free(before);
    free(p);
    free_samples(&x);
}
