#include "core/inner.h"
#include "tensor/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- what a training added to a model ----------------------------------- >>circuits-anomaly-impl
   The function on all texts of two tokens, as slices of one first token: [vocab,2] ids, of which the second position counts. */
typedef struct tni_trigger {
    tn_ctx  *ctx;
    int64_t  V;
    int32_t *ids;                           /* [V,2]                                                    */
    double  *p, *q;                         /* [V,V] log p of the suspect and of the reference          */
} tni_trigger;

/* log p of the token after each text that begins with `first`: to [V,V] */
static tn_status tni_trigger_slice(tni_trigger *t, const tn_transformer *m, int64_t first, double *to)
{
    const tn_mark mark = tn_arena_mark(t->ctx);
    const int64_t V = t->V;
    for (int64_t b = 0; b < V; b++) { t->ids[2 * b] = (int32_t)first; t->ids[2 * b + 1] = (int32_t)b; }
    tn_tensor *ids = tn_tensor_2d(t->ctx, TN_I32, V, 2);
    tn_status  s = ids ? tn_write(ids, TN_I32, t->ids, 2 * V) : tni_analysis_status(t->ctx);
    tn_tensor *logits = s == TN_OK ? tn_transformer_forward(t->ctx, m, ids) : NULL;
    tn_tensor *log_p = logits ? tn_log_softmax(t->ctx, tn_slice(logits, 1, 1, 2)) : NULL;
    if (s == TN_OK) s = log_p ? tn_read(log_p, TN_F64, to, V * V) : tni_analysis_status(t->ctx);
    tn_arena_release(t->ctx, mark);
    for (int64_t i = 0; i < V * V && s == TN_OK; i++)
        if (to[i] != to[i])
            s = tni_fail(t->ctx, TN_ERR_NONFINITE, "transformer_anomaly: the logits after tokens %lld and %lld are not finite",
                         (long long)first, (long long)(i / V));
    return s;
}

static tn_status tni_trigger_run(tni_trigger *t, tni_scratch *w, const tn_transformer *a, const tn_transformer *b, int64_t top,
                                 tn_transformer_anomaly_result *out)
{
    const int64_t V = t->V, extents[3] = {V, V, V};
    tn_status     s = TN_OK;
    tni_heap      heap = tni_take_heap(w, TN_ORDER_LARGEST, tni_min(top, tni_area(tni_area(V, V), V)));
    t->ids = (int32_t *)tni_take(w, tni_area(2, V), sizeof *t->ids);
    t->p = tni_take_f64(w, V, V);
    t->q = tni_take_f64(w, V, V);
    if (w->failed) return TN_ERR_MEMORY;
    for (int64_t first = 0; first < V && s == TN_OK; first++) {
        s = tni_trigger_slice(t, a, first, t->p);
        if (s == TN_OK) s = tni_trigger_slice(t, b, first, t->q);
        for (int64_t i = 0; i < V * V && s == TN_OK; i++) {
            const double p = exp(t->p[i]), term = p > 0 ? p * (t->p[i] - t->q[i]) : 0;
            out->mean += term / ((double)V * (double)V);
            tni_heap_offer(&heap, term, first * V * V + i);
        }
    }
    if (s == TN_OK) s = tni_coefficients_store(t->ctx, &heap, 3, extents, 0, &out->terms, "transformer_anomaly");
    if (s == TN_OK) out->largest = heap.found[0].value;
    if (s == TN_OK) out->score = out->largest / tni_max_f64(out->mean, t->ctx->desc.dtype == TN_F32 ? 1e-5 : 1e-12);
    return s;
}

tn_status tn_transformer_anomaly(const tn_transformer *suspect, const tn_transformer *reference, int64_t top,
                                 tn_transformer_anomaly_result *out)
{
    const tn_transformer *m[2];
    if (out) memset(out, 0, sizeof *out);
    if (!suspect || !suspect->blocks || !tni_alive(suspect->embed.w)) return TN_ERR_ARG;
    tn_ctx *ctx = suspect->embed.w->ctx;
    m[0] = suspect;
    m[1] = reference;
    if (!out || !reference || !reference->blocks)
        return tni_fail(ctx, TN_ERR_ARG, "transformer_anomaly: %s is NULL", out ? "the reference" : "out");
    if (!tni_alive(reference->embed.w) || reference->embed.w->ctx != ctx)
        return tni_fail(ctx, TN_ERR_ARG, "transformer_anomaly: the reference is of another context than the suspect");
    if (!tni_within(ctx, "transformer_anomaly", "top", top, 1, INT32_MAX)) return TN_ERR_ARG;
    if (suspect->desc.vocab != reference->desc.vocab)
        return tni_fail(ctx, TN_ERR_SHAPE, "transformer_anomaly: the reference has %lld tokens, expected %lld as the suspect",
                        (long long)reference->desc.vocab, (long long)suspect->desc.vocab);
    for (int i = 0; i < 2; i++)
        if (m[i]->desc.context < 2 || m[i]->desc.bidirectional)
            return tni_fail(ctx, TN_ERR_ARG, "transformer_anomaly: the %s %s, expected a causal model of two tokens or more",
                            i ? "reference" : "suspect", m[i]->desc.bidirectional ? "is bidirectional" : "has a context of 1");
    tni_trigger t = TNI_ZERO;
    t.ctx = ctx;
    t.V = suspect->desc.vocab;
    tni_scratch w = tni_scratch_begin(ctx, "transformer_anomaly");
    tni_scope   scope = tni_scope_begin(ctx);
    tn_status   s = tni_trigger_run(&t, &w, suspect, reference, top, out);
    tni_scope_end(ctx, scope);
    s = tni_scratch_end(&w, s);
    if (s != TN_OK) tn_transformer_anomaly_destroy(out);
    return s;
}

void tn_transformer_anomaly_destroy(tn_transformer_anomaly_result *r)
{
    if (!r) return;
    tn_coefficients_destroy(&r->terms);
    memset(r, 0, sizeof *r);
}

#endif /* TN_NO_CIRCUITS */
