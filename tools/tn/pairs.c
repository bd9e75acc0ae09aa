/* pairs.c - tn circuits pairs, bigrams: tables of tokens, read from the weights */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEN = 10,                /* successors that count as frequent */
       MANY = 20000,            /* tokens whose pairs take long      */
       DRAWS = 19 };            /* of the null                       */
static const double null_operations = 1e11;     /* a null that takes more is not computed: ten seconds of one core */

/* ---- tn circuits pairs ------------------------------------------------------------------------------------------------ */

tn_circuit *pairs_among(const subject *s, int64_t block, int64_t common, int64_t out, int64_t *n)
{
    const int64_t V = s->m.desc.vocab;
    tn_ctx_reset(s->m.ctx);
    tn_circuit *all = tn_circuit_pairs(s->m.ctx, &s->m.net, block, out);
    if (!all) return NULL;
    int64_t extra = all->rows - V;
    *n = common && common < V ? common : V;
    if (*n == V) return all;
    int32_t *ids = (int32_t *)allocate((size_t)*n + 1, sizeof *ids);
    memcpy(ids, s->common, (size_t)*n * sizeof *ids);
    if (extra) ids[*n] = (int32_t)V;
    extra += *n;
    tn_tensor  *t = tn_tensor_from(s->m.ctx, 1, &extra, TN_I32, ids);
    tn_circuit *some = tn_circuit_select(all, t, t);
    tn_circuit_destroy(all);
    free(ids);
    return some;
}

double typical_unit(const subject *s)
{
    static double           unit;
    static const tn_params *of;
    if (of != s->m.params) unit = typical_unit_of(s->m.ctx, &s->m.net);
    of = s->m.params;
    return unit;
}

double null_of_pairs(const subject *s, const tn_circuit *pairs, int64_t block, int64_t out, double operations)
{
    tn_ctx             *ctx = s->m.ctx;
    const uint64_t      mark = tn_cp_mark(ctx);
    tn_tensor          *x = pairs->right[0];
    const double        rows = (double)pairs->rows, n = (double)x->shape[1], terms = (double)s->m.desc.hidden;
    double              edge = 0;
    tn_circuit_top_desc d;
    memset(&d, 0, sizeof d);
    d.top = 1;
    d.order = TN_ORDER_MAGNITUDE;
    d.pairs = true;
    if (DRAWS * 2 * n * (rows * rows + n * terms) > operations) return NAN;
    tn_ctx_reset(ctx);
    tn_cp     *cp = tn_circuit_mlp(ctx, &s->m.net, block);
    tn_tensor *u = tn_tensor_keep(tn_reshape(tn_slice(tn_circuit_unembedding(ctx, &s->m.net), 0, out, out + 1), 1,
                                             &s->m.desc.dim));
    for (int64_t draw = 0; draw < DRAWS; draw++) {
        tn_circuit_entries e;
        memset(&e, 0, sizeof e);
        tn_ctx_reset(ctx);
        tn_cp      *null = tn_cp_null(cp, NULL, draw);
        tn_circuit *c = null ? tn_circuit_interactions(ctx, null, u, x, x) : NULL;
        if (c) tn_circuit_top_many(c, 1, &d, &e);
        check_ctx(ctx, "the null of pairs");
        edge = fmax(edge, fabs(tn_item(e.values)));
        tn_circuit_entries_destroy(&e);
        tn_circuit_destroy(c);
        tn_cp_destroy(null);
    }
    tn_tensor_destroy(u);
    tn_cp_release(ctx, mark, NULL);
    return edge;
}

/* The pairs of one order that are beyond the null, or all of them, whose tensors are freed. Returns the sum of their shares. */
static double report_pairs(const subject *s, tn_circuit_entries *e, int64_t n, tn_order order, double edge)
{
    const double unit = typical_unit(s);
    static const column columns[] = {
        {"left", NULL, 20, "%s"}, {"right", NULL, 20, "%s"}, {"value", NULL, 12, "%.5g"}, {"share", "share, %", 9, "%.3g"},
        {NULL, NULL, 0, NULL}
    };
    const bool whole = n == s->m.desc.vocab, against = order == TN_ORDER_SMALLEST;
    double    *value = numbers_in(e->values), *share = numbers_in(e->share), *at = numbers_in(e->index), sum = 0;
    report_table(against ? "against" : "for", against ? "Pairs that lower the logit:" : "Pairs that raise the logit:",
                 columns);
    for (int64_t k = 0; k < e->count; k++) {
        const int64_t i = (int64_t)at[2 * k], j = (int64_t)at[2 * k + 1];
        const char   *left = i == n ? "1" : s->names[whole ? i : s->common[i]];
        if (against ? value[k] >= 0 : value[k] <= 0) break;
        if (fabs(value[k]) <= edge && !circuit_settings.within_null) break;
        report_row(columns, left, j == n ? "1" : s->names[whole ? j : s->common[j]], unit * value[k], 100 * share[k]);
        sum += share[k];
    }
    tn_circuit_entries_destroy(e);
    free(value);
    free(share);
    free(at);
    return sum;
}

void pairs_report(subject *s, const char *token)
{
    const int64_t out = token_id(s, token), layers = s->m.desc.layers;
    int64_t       n;
    tn_circuit_top_desc d[2];
    tn_circuit_entries  e[2];
    if (circuit_settings.block >= layers)
        usage_error("--block is %lld, expected less than %lld, the model's blocks", (long long)circuit_settings.block,
                    (long long)layers);
    const double unit = typical_unit(s);
    tn_circuit  *c = pairs_among(s, circuit_settings.block, circuit_settings.common, out, &n);
    check_ctx(s->m.ctx, "pairs");
    if (c->rows > MANY)
        warn("%lld tokens have %.2g pairs, which are computed row by row: this takes minutes. --common N takes the N "
             "commonest alone", (long long)n, (double)c->rows * (double)c->rows / 2);
    memset(d, 0, sizeof d);
    d[0].top = circuit_settings.top ? circuit_settings.top : 10;
    d[0].pairs = true;
    d[1] = d[0];
    d[1].order = TN_ORDER_SMALLEST;
    tn_ctx_reset(s->m.ctx);
    tn_circuit_top_many(c, 2, d, e);
    check_ctx(s->m.ctx, "pairs");
    const double edge = null_of_pairs(s, c, circuit_settings.block, out, null_operations);
    double norm = e[0].norm;
    double shown = report_pairs(s, &e[0], n, TN_ORDER_LARGEST, edge);
    shown += report_pairs(s, &e[1], n, TN_ORDER_SMALLEST, edge);
    report_note("Two tokens that reach the MLP of block %lld together, each from its embedding with its own norm; "
                "the value is what the pair adds to the logit in both orders, in nats for a typical denominator of the last "
                "norm. 1 is the constant, through the biases. The share is that of the square of all pairs' norm.",
                (long long)circuit_settings.block);
    if (n < s->m.desc.vocab)
        report_note("Only pairs of the %lld %s tokens (--common).", (long long)n, s->frequency ? "commonest" : "first");
    if (isnan(edge))
        report_note("The pairs are not compared with chance, which would take long for so many tokens: --common N takes fewer.");
    else
        report_note("null_edge is the largest value of a pair in %d copies of the MLP whose weights were shuffled. Pairs below it "
                    "are what chance alone gives, and %s (--within-null). With random weights one table in twenty has a pair "
                    "beyond it.", DRAWS, circuit_settings.within_null ? "listed all the same" : "not listed");
    report_text("token", s->names[out]);
    report_value("null_edge", "%.5g", unit * edge);
    report_value("pairs", "%.0f", (double)c->rows * ((double)c->rows + 1) / 2);
    report_value("norm", "%.6g", norm * unit);
    report_value("share_shown", "%.4g", shown);
    tn_circuit_destroy(c);
}

/* ---- tn circuits bigrams ---------------------------------------------------------------------------------------------- */

/* What follows the first n common tokens in the run's training text: counts [n,vocab], or NULL. */
static int32_t *successors(const subject *s, const int32_t *ids, int64_t n)
{
    const int64_t V = s->m.desc.vocab;
    if (!s->has_run) return NULL;
    int32_t *count = (int32_t *)allocate((size_t)(n * V), sizeof *count);
    int32_t *place = (int32_t *)allocate((size_t)V, sizeof *place); /* 1 + its row */
    for (int64_t i = 0; i < n; i++) place[ids[i]] = (int32_t)i + 1;
    for (int64_t i = 0; i + 1 < s->run.train_count; i++) {
        const int32_t row = place[token_at(&s->run.train, i)];
        if (row) count[(row - 1) * V + token_at(&s->run.train, i + 1)]++;
    }
    free(place);
    return count;
}

/* How many successors are more frequent than this one. */
static int64_t rank_of(const int32_t *count, int64_t V, int64_t id)
{
    int64_t rank = 0;
    for (int64_t u = 0; u < V; u++) rank += count[u] > count[id];
    return rank;
}

static double total(const int32_t *count, int64_t V)
{
    double sum = 0;
    for (int64_t u = 0; u < V; u++) sum += count[u];
    return sum;
}

/* The first `top` of each row of D(.) for these tokens: ids and values [n,top], new lists. */
static double *top_successors(const subject *s, const int32_t *ids, int64_t n, int64_t top, double **values)
{
    tn_tensor *v, *at;
    tn_ctx_reset(s->m.ctx);
    tn_tensor  *which = tn_tensor_from(s->m.ctx, 1, &n, TN_I32, ids);
    tn_circuit *all = tn_circuit_bigrams(s->m.ctx, &s->m.net, s->m.desc.layers, 0);
    check_ctx(s->m.ctx, "bigrams");
    tn_circuit *some = tn_circuit_select(all, which, NULL);
    tn_circuit_top_rows(some, top, TN_ORDER_LARGEST, &v, &at);
    check_ctx(s->m.ctx, "bigrams");
    *values = numbers_in(v);
    double *found = numbers_in(at);
    tn_tensor_destroy(v);
    tn_tensor_destroy(at);
    tn_circuit_destroy(some);
    tn_circuit_destroy(all);
    return found;
}

static void report_token(const subject *s, int64_t id)
{
    static const column columns[] = {
        {"successor", NULL, 24, "%s"}, {"logit", NULL, 10, "%.4f"}, {"count", "in the text", 11, "%.0f"},
        {"share", "share, %", 9, "%.2f"}, {"rank", NULL, 6, "%.0f"}, {NULL, NULL, 0, NULL}
    };
    const int64_t V = s->m.desc.vocab, wanted = circuit_settings.top ? circuit_settings.top : 20;
    const int64_t top = wanted < V ? wanted : V;
    const int32_t one = (int32_t)id;
    int32_t      *count = successors(s, &one, 1);
    double       *values, *at = top_successors(s, &one, 1, top, &values), all = count ? total(count, V) : NAN, sum = 0;
    report_table("per_successor", NULL, columns);
    for (int64_t k = 0; k < top; k++) {
        const int64_t u = (int64_t)at[k];
        const double  n = count ? (double)count[u] : NAN;
        report_row(columns, s->names[u], values[k], n, 100 * n / all,
                   count && count[u] ? (double)rank_of(count, V, u) + 1 : NAN);
        sum += n;
    }
    report_text("token", s->names[id]);
    report_value("in_the_text", "%.0f", all);
    report_value("share_of_these", "%.4f", sum / all);
    free(count);
    free(values);
    free(at);
}

/* Names of tokens in one cell, a new string. */
static char *five(const subject *s, const double *at, int64_t n)
{
    buffer b = {0};
    buffer_add(&b, "", 0);
    for (int64_t k = 0; k < n; k++) buffer_print(&b, k ? "  %s" : "%s", s->names[(int64_t)at[k]]);
    return b.data;
}

/* The k commonest successors of a row of counts. */
static int64_t commonest(const int32_t *count, int64_t V, double *at, int64_t k)
{
    int64_t n = 0;
    for (int64_t i = 0; i < k; i++) {
        int64_t best = -1;
        for (int64_t u = 0; u < V; u++) {
            bool taken = false;
            if (!count[u] || (best >= 0 && count[u] <= count[best])) continue;
            for (int64_t j = 0; j < n; j++) taken = taken || (int64_t)at[j] == u;
            if (!taken) best = u;
        }
        if (best < 0) break;
        at[n++] = (double)best;
    }
    return n;
}

static void report_common(const subject *s)
{
    static const column columns[] = {
        {"token", NULL, 12, "%s"}, {"weights", "from the weights", 31, "%s"}, {"text", "in the text", 31, "%s"},
        {NULL, NULL, 0, NULL}
    };
    const int64_t V = s->m.desc.vocab, asked = circuit_settings.common ? circuit_settings.common : 400;
    const int64_t n = asked < V ? asked : V, top = V < 5 ? V : 5;
    const int64_t wanted = circuit_settings.top ? circuit_settings.top : 20, shown = wanted < n ? wanted : n;
    int32_t      *count = successors(s, s->common, n);
    double       *values, *at = top_successors(s, s->common, n, top, &values), hits = 0, first = 0, theirs[5];
    report_table("per_token", NULL, columns);
    for (int64_t i = 0; i < n; i++) {
        const int32_t *row = count ? count + i * V : NULL;
        const int64_t  u = (int64_t)at[i * top], rank = row && row[u] ? rank_of(row, V, u) : V;
        hits += rank < TEN;
        first += rank < 1;
        if (i < shown) {
            char *ours = five(s, at + i * top, top), *text = row ? five(s, theirs, commonest(row, V, theirs, 5)) : NULL;
            report_row(columns, s->names[s->common[i]], ours, text ? text : "-");
            free(ours);
            free(text);
        }
    }
    report_value("tokens", "%.0f", (double)n);
    report_value("argmax_is_commonest", "%.4f", count ? first / (double)n : NAN);
    report_value("argmax_among_ten_commonest", "%.4f", count ? hits / (double)n : NAN);
    free(count);
    free(values);
    free(at);
}

void bigrams_report(subject *s, const char *token)
{
    if (token) report_token(s, token_id(s, token));
    else report_common(s);
    report_note("What follows a token where attention reads nothing: the logits of embedding, all MLPs and "
                "unembedding, with every norm of that stream, beside what follows it in the training text.");
}
