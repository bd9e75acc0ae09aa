#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"
#include "operator/inner.h"
#include "network/inner.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* ---- made from operators and layers ----------------------------------------- >>net-layers */

/* P is (0,1), F_k is (1,2+k). */
static tn_net *tni_net_from_cp(tn_ctx *ctx, const tn_cp *cp, const char *op)
{
    bool same = true;
    if (!tni_usable(ctx, cp ? cp->p : NULL, op, "the operator")) return NULL;
    tn_net *net = tni_net_make(ctx, 1 + cp->order, 1, cp->order);
    if (!net) return NULL;
    net->constant = cp->constant;
    int  label[2] = {0, 1};
    bool whole = tni_net_put(net, 0, tni_net_copy(ctx, cp->p, 1), label);
    for (int k = 1; k < cp->order; k++) same = same && cp->in[k] == cp->in[0];
    for (int k = 0; k < cp->order && whole; k++) {
        label[0] = 1; label[1] = 2 + k;
        net->in[k].label = 2 + k;
        net->in[k].input = same ? 0 : k;
        whole = tni_net_put(net, 1 + k, tni_net_copy(ctx, cp->f[k], 1), label);
    }
    return tni_net_done(net, whole, op);
}

tn_net *tn_net_from_cp(tn_ctx *ctx, const tn_cp *cp) { return tni_net_from_cp(ctx, cp, "net_from_cp"); }

/* The same operator with the constant one as its last input, where it was missing, and as its last output: P' = [P 0; 0 1],
   and one more term, which is the one of every factor. */
static tn_cp *tni_cp_carrying(const tn_cp *cp)
{
    int64_t in[TN_CP_MAX_ORDER];
    for (int k = 0; k < cp->order; k++) in[k] = cp->in[k] + !cp->constant;
    tn_cp *to = tni_cp_make(cp->ctx, cp->order, cp->out + 1, cp->terms + 1, in, true);
    if (!to) return NULL;
    tn_status s = tni_put_copy(cp->ctx, tni_block_of(to->p, 0, cp->out, 0, cp->terms), tni_view(cp->p));
    if (s == TN_OK) s = tni_put_value(cp->ctx, tni_block_of(to->p, cp->out, 1, cp->terms, 1), 1);
    for (int k = 0; k < cp->order && s == TN_OK; k++) {
        s = tni_put_copy(cp->ctx, tni_block_of(to->f[k], 0, cp->terms, 0, cp->in[k]), tni_view(cp->f[k]));
        if (s == TN_OK) s = tni_put_value(cp->ctx, tni_block_of(to->f[k], cp->terms, 1, in[k] - 1, 1), 1);
    }
    return tni_cp_done(to, s);
}

/* cp(inner), or cp where inner is NULL; with `carry` its output ends with the one */
static tn_net *tni_net_on_top(const tn_cp *cp, bool carry, const tn_net *inner)
{
    tn_cp  *carrying = carry ? tni_cp_carrying(cp) : NULL;
    tn_net *outer = carry && !carrying ? NULL : tni_net_from_cp(cp->ctx, carry ? carrying : cp, "net_from_stack");
    tn_net *net = outer && inner ? tni_net_compose(outer, inner, "net_from_stack") : NULL;
    tn_cp_destroy(carrying);
    if (!inner) return outer;
    tn_net_destroy(outer);
    return net;
}

tn_net *tn_net_from_stack(tn_ctx *ctx, int n, const tn_cp *const *layers, bool carry)
{
    tn_net *net = NULL;
    if (!layers) return tni_fail(ctx, TN_ERR_ARG, "net_from_stack: layers is NULL"), (tn_net *)NULL;
    if (!tni_within(ctx, "net_from_stack", "n", n, 1, INT64_MAX)) return NULL;
    for (int l = 0; l < n; l++) if (!tni_usable(ctx, layers[l] ? layers[l]->p : NULL, "net_from_stack", "a layer")) return NULL;
    for (int l = 0; l < n; l++) {
        bool one = carry;
        for (int k = l + 1; k < n; k++) one = one || layers[k]->constant;
        tn_net *next = tni_net_on_top(layers[l], one, net);
        tn_net_destroy(net);
        if (!(net = next)) return NULL;
    }
    return net;
}

#ifndef TN_NO_SEQUENCES
/* The rows of a matrix of weights, with their biases, as vectors of heads: [dim(+1),1,heads,d], arena. */
static tn_tensor *tni_net_heads(tn_ctx *ctx, tn_tensor *w, tn_tensor *b, int64_t heads, int64_t d)
{
    if (w && b) {
        tn_tensor *both[2] = {w, tn_reshape_2d(b, w->shape[0], 1)};
        w = both[1] ? tn_concat(ctx, 2, both, 1) : NULL;
    }
    w = w ? tn_copy(ctx, tn_transpose(w, 0, 1)) : NULL;
    return w ? tn_reshape(w, 4, TNI_DIMS(w->shape[0], 1, heads, d)) : NULL;
}

/* Set i of qk as such vectors: queries rotated to position `distance`, keys at position 0. */
static tn_tensor *tni_net_set(tn_ctx *ctx, const tn_attention *layer, int i, int64_t distance)
{
    const tn_attention_desc *d = &layer->desc;
    tn_tensor *w = tn_slice(layer->qk, 0, i, i + 1), *b = tn_slice(layer->qkb, 0, i, i + 1);
    const tn_rope_desc rope = tni_attention_rope(d, i < layer->qk->shape[0] / 2 ? distance : 0, false);
    w = tn_reshape_2d(w, d->heads * d->d_qk, d->dim);
    return tn_rope(ctx, tni_net_heads(ctx, w, b, d->heads, d->d_qk), &rope);
}

/* [n,1,heads,d], or [n,heads d] as [n,heads,d] */
static tn_tensor *tni_net_split(tn_tensor *t, int64_t heads, int64_t d)
{
    return t ? tn_reshape(t, 3, TNI_DIMS(t->shape[0], heads, d)) : NULL;
}

static bool tni_net_attends(tn_ctx *ctx, const tn_attention *layer)
{
    const char *what = NULL;
    if (!tni_usable(ctx, layer ? layer->qk : NULL, "net_from_attention", "the layer")) return false;
    const tn_attention_desc *d = &layer->desc;
    if (d->kind != TN_ATTENTION_SQUARED && d->kind != TN_ATTENTION_BILINEAR)
        return tni_fail(ctx, TN_ERR_ARG, "net_from_attention: the layer's kind is %s, expected squared or bilinear: no other "
                        "one is a tensor", tn_attention_kind_name(d->kind)), false;
    if (d->qk_norm) what = "qk_norm";
    else if (d->head_norm) what = "head_norm";
    else if (d->mix_values) what = "mix_values";
    else if (d->row_scale == TN_ROW_SCALE_SUM) what = "TN_ROW_SCALE_SUM";
    if (what) tni_fail(ctx, TN_ERR_ARG, "net_from_attention: the layer has %s, with which it is not a tensor of its inputs",
                       what);
    return !what;
}

/* Labels: heads 0, d_qk 1 and 2, d_v 3, out 4; legs 5 to 9. */
tn_net *tn_net_from_attention(tn_ctx *ctx, const tn_attention *layer, int64_t distance)
{
    static const int label[6][3] = {{5, 0, 1}, {6, 0, 2}, {7, 0, 1}, {8, 0, 2}, {9, 0, 3}, {4, 0, 3}};  /* q1 q2 k1 k2 v o */
    const tn_attention_desc *d = layer ? &layer->desc : NULL;
    bool whole = true;
    if (!tni_net_attends(ctx, layer)) return NULL;
    tn_net *net = tni_net_make(ctx, 6, 1, 5);
    if (!net) return NULL;
    net->constant = layer->qkb != NULL;
    net->out[0].label = 4;
    for (int i = 0; i < 5; i++) {
        net->in[i].label = 5 + i;
        net->in[i].input = i > 1;
    }
    int       sets = (int)(layer->qk->shape[0] / 2);
    double    scale = d->scale != 0 ? d->scale : 1 / (double)d->d_qk;
    tni_scope scope = tni_scope_begin(ctx);
    for (int i = 0; i < 4 && whole; i++) {
        if (sets == 2 || i % 2 == 0) {
            tn_tensor *w = tni_net_set(ctx, layer, sets == 2 ? i : i / 2, distance);
            whole = tni_net_put(net, i, tni_net_copy(ctx, tni_net_split(w, d->heads, d->d_qk), 1), label[i]);
        } else {
            tni_net_take(net, i, net, i - 1, 0);
            tni_net_label(net, &net->node[i], 3, label[i]);
        }
    }
    if (whole) {
        tn_tensor *v = tni_net_heads(ctx, layer->v, layer->vb, d->heads, d->d_v);
        whole = tni_net_put(net, 4, tni_net_copy(ctx, tni_net_split(v, d->heads, d->d_v), 1), label[4]);
    }
    if (whole)
        whole = tni_net_put(net, 5, tni_net_copy(ctx, tni_net_split(layer->o, d->heads, d->d_v), scale * scale), label[5]);
    tni_scope_end(ctx, scope);
    return tni_net_done(net, whole, "net_from_attention");
}
#endif /* TN_NO_SEQUENCES */

/* Bond j is label j, and the last one is the first. */
tn_net *tn_net_from_cores(tn_ctx *ctx, int n, tn_tensor *const *cores)
{
    int  i, legs = 0, outs = 0, label[4], next;
    bool whole = true;
    if (!cores) return tni_fail(ctx, TN_ERR_ARG, "net_from_cores: cores is NULL"), (tn_net *)NULL;
    if (!tni_within(ctx, "net_from_cores", "n", n, 1, INT64_MAX)) return NULL;
    for (i = 0; i < n; i++) if (!tni_is_real(ctx, cores[i], "net_from_cores", "a core")) return NULL;
    for (i = 0; i < n; i++) {
        if (cores[i]->rank < 2 || cores[i]->rank > 4)
            return tni_fail(ctx, TN_ERR_SHAPE, "net_from_cores: core %d is %s, expected [D,n,D'], [D,n,out,D'] or [D,D']", i,
                            TNI_SHAPE(cores[i])), (tn_net *)NULL;
        if (cores[i]->shape[cores[i]->rank - 1] != cores[(i + 1) % n]->shape[0])
            return tni_fail(ctx, TN_ERR_SHAPE, "net_from_cores: core %d is %s and core %d begins with %lld, expected equal "
                            "bonds%s", i, TNI_SHAPE(cores[i]), (i + 1) % n, (long long)cores[(i + 1) % n]->shape[0],
                            i + 1 < n ? "" : ", which are 1 at both ends of an open chain"), (tn_net *)NULL;
        legs += cores[i]->rank > 2;
        outs += cores[i]->rank > 3;
    }
    tn_net *net = tni_net_make(ctx, n, outs, legs);
    if (!net) return NULL;
    for (next = n, outs = legs = i = 0; i < n && whole; i++) {
        const int rank = cores[i]->rank;
        label[0] = i;
        label[rank - 1] = (i + 1) % n;
        if (rank > 2) net->in[legs].input = legs, net->in[legs++].label = label[1] = next++;
        if (rank > 3) net->out[outs++].label = label[2] = next++;
        whole = tni_net_put(net, i, tni_net_copy(ctx, cores[i], 1), label);
    }
    return tni_net_done(net, whole, "net_from_cores");
}

#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */
