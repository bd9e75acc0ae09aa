/* diff.c - tn circuits diff: how similar the parts and the logits of two models are */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 256 };

/* ---- parts ------------------------------------------------------------------------------------------------------------ */

/* All numbers of a circuit, a new list; NULL with a note if it is refused. */
static double *entries(const subject *s, tn_circuit *c, int64_t *n)
{
    char   *why;
    double *v = NULL;
    tn_ctx_reset(s->m.ctx);
    if (c) v = numbers_in(tn_circuit_rows(s->m.ctx, c, 0, c->rows));
    *n = c ? c->rows * c->columns : 0;
    tn_circuit_destroy(c);
    if ((why = taken_error(s->m.ctx)) != NULL) report_note("Not compared: %s.", why);
    free(why);
    return v;
}

static double cosine_of(double *a, int64_t n, double *b, int64_t m)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; a && b && n == m && i < n; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    free(a);
    free(b);
    return aa > 0 && bb > 0 ? ab / sqrt(aa) / sqrt(bb) : NAN;
}

/* A head's QK or OV circuit between directions of the stream, or between the commonest tokens. */
static double *head_entries(const subject *s, const model *m, bool ov, bool tokens, int64_t block, int64_t head, int64_t *n)
{
    tn_circuit_desc d;
    int64_t         count = s->m.desc.vocab < MOST_TOKENS ? s->m.desc.vocab : MOST_TOKENS;
    memset(&d, 0, sizeof d);
    d.block = block;
    d.head = head;
    d.tokens = tokens;
    d.norm_scale = 1;
    d.query = tokens && !ov ? 1 : 0;
    d.set = !ov && m->net.blocks[block].attn.desc.kind >= TN_ATTENTION_DIFFERENTIAL ? 1 : 0;
    tn_circuit *c = ov ? tn_circuit_ov(m->ctx, &m->net, &d) : tn_circuit_qk(m->ctx, &m->net, &d);
    if (!c || !tokens) return entries(s, c, n);
    tn_tensor  *ids = tn_tensor_from(m->ctx, 1, &count, TN_I32, s->common);
    tn_circuit *some = tn_circuit_select(c, ids, ids);
    tn_circuit_destroy(c);
    return entries(s, some, n);
}

double head_cosine(const subject *s, const model *b, bool ov, bool tokens, int64_t block, int64_t h, int64_t g)
{
    int64_t n, m;
    double *x = head_entries(s, &s->m, ov, tokens, block, h, &n), *y = head_entries(s, b, ov, tokens, block, g, &m);
    return cosine_of(x, n, y, m);
}

/* The operator of an MLP from the embeddings of the commonest tokens to their logits, or between directions. */
static tn_cp *mlp_operator(const subject *s, const model *m, int64_t block, bool tokens)
{
    const int64_t count = s->m.desc.vocab < MOST_TOKENS ? s->m.desc.vocab : MOST_TOKENS;
    tn_cp        *cp = tn_circuit_mlp(m->ctx, &m->net, block);
    if (!cp || !tokens) return cp;
    tn_tensor *ids = tn_tensor_from(m->ctx, 1, &count, TN_I32, s->common);
    tn_tensor *e = tn_embed(m->ctx, m->net.embed.w, ids);
    tn_tensor *u = tn_embed(m->ctx, tn_circuit_unembedding(m->ctx, &m->net), ids);
    if (!e || !u) return NULL;
    return tn_cp_fold_out(tn_cp_fold_in(cp, tn_copy(m->ctx, tn_transpose(e, 0, 1)), NULL), u, NULL);
}

mlp_numbers compare_mlps(const subject *s, const model *b, int64_t block)
{
    mlp_numbers x = {NAN, NAN, NAN};
    uint64_t    mark = tn_cp_mark(s->m.ctx);
    tn_cp      *aligned = NULL;
    tn_tensor  *cosines = NULL;
    char       *why;
    int64_t     i;
    tn_ctx_reset(s->m.ctx);
    tn_cp *p = mlp_operator(s, &s->m, block, false);
    tn_cp *q = p ? mlp_operator(s, b, block, false) : NULL;
    if (p && q && p->order == q->order && p->in[0] == q->in[0] && p->out == q->out) {
        tn_cp_cosine(p, q, &x.stream);
        if (p->order == 2 && p->terms == q->terms && tn_cp_align(p, q, &aligned, &cosines) == TN_OK) {
            double *v = numbers_in(cosines);
            for (x.units = 0, i = 0; i < p->terms; i++) x.units += v[i] / (double)p->terms;
            tn_tensor_destroy(cosines);
            free(v);
        }
    }
    if (p && q && p->order == q->order && p->constant == q->constant) {
        p = mlp_operator(s, &s->m, block, true), q = p ? mlp_operator(s, b, block, true) : NULL;
        if (p && q) tn_cp_cosine(p, q, &x.tokens);
    }
    if ((why = taken_error(s->m.ctx)) != NULL) report_note("Not compared: %s.", why);
    free(why);
    tn_cp_release(s->m.ctx, mark, NULL);
    return x;
}

static void report_heads(const subject *s, const model *b, int64_t blocks, bool same_width)
{
    static const column columns[] = {
        {"head", NULL, 8, "%s"}, {"other", NULL, 8, "%s"}, {"qk_tokens", "QK tokens", 10, "%.4f"},
        {"ov_tokens", "OV tokens", 10, "%.4f"}, {"qk_stream", "QK stream", 10, "%.4f"},
        {"ov_stream", "OV stream", 10, "%.4f"}, {NULL, NULL, 0, NULL}
    };
    const int64_t H = s->m.desc.heads;
    double        sum = 0;
    report_table("per_head", NULL, columns);
    for (int64_t l = 0; l < blocks; l++)
        for (int64_t h = 0; h < H; h++) {
            int64_t best = 0;
            double  most = NAN;
            char    name[HEAD_NAME], other[HEAD_NAME];
            for (int64_t g = 0; g < b->desc.heads; g++) {
                const double v = head_cosine(s, b, true, true, l, h, g);
                if (v > most || isnan(most)) most = v, best = g;
            }
            report_row(columns, head_name(l, h, name), head_name(l, best, other), head_cosine(s, b, false, true, l, h, best), most,
                       same_width ? head_cosine(s, b, false, false, l, h, best) : NAN,
                       same_width ? head_cosine(s, b, true, false, l, h, best) : NAN);
            sum += most;
        }
    report_value("mean_ov_cosine", "%.6f", sum / (double)(blocks * H));
}

static void report_mlps(const subject *s, const model *b, int64_t blocks)
{
    static const column columns[] = {
        {"mlp", NULL, 6, "%.0f"}, {"tokens", NULL, 10, "%.4f"}, {"stream", NULL, 10, "%.4f"},
        {"units", "hidden units", 13, "%.4f"}, {NULL, NULL, 0, NULL}
    };
    report_table("per_mlp", NULL, columns);
    for (int64_t l = 0; l < blocks; l++) {
        const mlp_numbers x = compare_mlps(s, b, l);
        report_row(columns, (double)l, x.tokens, x.stream, x.units);
    }
}

/* ---- logits ----------------------------------------------------------------------------------------------------------- */

/* log p of each token after each position of a window, [length,vocab], a new list. */
static double *log_probabilities(const model *m, const samples *x, int64_t k)
{
    tn_ctx_reset(m->ctx);
    tn_tensor *logits = tn_transformer_forward(m->ctx, &m->net, ids_tensor(m->ctx, x->ids + x->start[k], x->length));
    logits = tn_log_softmax(m->ctx, logits);
    check_ctx(m->ctx, "the logits of a text");
    return numbers_in(logits);
}

static int64_t first_largest(const double *v, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) if (v[i] > v[best]) best = i;
    return best;
}

static void compare_logits(const subject *s, const model *b, const samples *x)
{
    const int64_t V = s->m.desc.vocab;
    const double  n = (double)(x->count * x->length);
    double        loss[2] = {0, 0}, divergence = 0, same = 0, largest = 0;
    for (int64_t k = 0; k < x->count; k++) {
        double *p = log_probabilities(&s->m, x, k), *q = log_probabilities(b, x, k);
        for (int64_t t = 0; t < x->length; t++) {
            const double *u = p + t * V, *w = q + t * V;
            const int32_t next = x->ids[x->start[k] + t + 1];
            loss[0] -= u[next] / n;
            loss[1] -= w[next] / n;
            same += first_largest(u, V) == first_largest(w, V) ? 1 / n : 0;
            for (int64_t i = 0; i < V; i++) {
                divergence += exp(u[i]) * (u[i] - w[i]) / n;
                if (!(fabs(u[i] - w[i]) <= largest)) largest = fabs(u[i] - w[i]);
            }
        }
        free(p);
        free(q);
    }
    report_value("tokens", "%.0f", n);
    report_value("loss", "%.6f", loss[0]);
    report_value("loss_of_other", "%.6f", loss[1]);
    report_value("divergence", "%.6g", divergence);
    report_value("same_prediction", "%.4f", same);
    report_value("largest_difference", "%.6g", largest);
}

void check_names(const subject *s, const model *b, const char *other)
{
    if (b->tokenizer && s->m.tokenizer) check_same_tokens(s->m.tokenizer, s->path, b->tokenizer, other);
}

void diff_report(subject *s, const char *other)
{
    model   b;
    samples x;
    open_model_in(s->m.ctx, &b, other, circuit_settings.tokenizer, NULL);
    check_finite(&b, other);
    if (b.desc.vocab != s->m.desc.vocab)
        fail("%s has a vocabulary of %lld tokens, expected %lld, that of %s", other, (long long)b.desc.vocab,
             (long long)s->m.desc.vocab, s->path);
    check_names(s, &b, other);
    int64_t blocks = b.desc.layers < s->m.desc.layers ? b.desc.layers : s->m.desc.layers;
    bool    same_width = b.desc.dim == s->m.desc.dim;
    report_heads(s, &b, blocks, same_width);
    report_mlps(s, &b, blocks);
    if (b.desc.layers != s->m.desc.layers)
        report_note("Only the first %lld of the blocks: one model has %lld, the other %lld.", (long long)blocks,
                    (long long)s->m.desc.layers, (long long)b.desc.layers);
    report_note("Cosines of the parts. Tokens: between the %d commonest tokens, through the embedding and "
                "unembedding of each model, so that models of any basis compare; a head is beside the one of the "
                "other model in that block whose OV is most similar. Stream: between directions of the residual "
                "stream, which two models share if one was trained from the other. Hidden units: their mean cosine "
                "after they were aligned.", MOST_TOKENS);
    report_value("blocks", "%.0f", (double)blocks);
    if (circuit_settings.text || s->has_run) {
        x = text_samples(s, circuit_settings.text, b.desc.context < s->m.desc.context ? b.desc.context : s->m.desc.context,
                         circuit_settings.tokens);
        compare_logits(s, &b, &x);
        free_samples(&x);
    } else report_note("Logits are not compared: there is no held-out text, and no --text TEXT.");
    report_note("Divergence: the mean over tokens of KL(first model || other), in nats; the largest difference is "
                "that of a log-probability.");
}
