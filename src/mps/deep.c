#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "decomp/inner.h"
#include "layers/inner.h"
#include "network/inner.h"
#include "mps/inner.h"

#ifndef TN_NO_MPS
#if !defined(TN_NO_OPERATOR) && !defined(TN_NO_CONTRACTION)
/* ---- trains and networks ------------------------------------------------------- >>mps-networks-impl */

/* Label k is the bond before axis k, label d + k the leg of axis k. */
tn_net *tn_net_from_tt(const tn_tt *tt, const int *input)
{
    int     k, j, outs = 0, legs = 0;
    bool    whole = true;
    tn_net *net;
    if (!tt) return NULL;
    if (tt->count > 4096)
        return tni_fail(tt->ctx, TN_ERR_ARG, "net_from_tt: the train has %lld axes, expected at most 4096",
                        (long long)tt->count), (tn_net *)NULL;
    int d = (int)tt->count;
    for (k = 0; input && k < d; k++) outs += input[k] < 0;
    if (!(net = tni_net_make(tt->ctx, d, outs, d - outs))) return NULL;
    for (outs = k = 0; k < d; k++) {
        const int to = input ? input[k] : k;
        if (to < 0) { net->out[outs++].label = d + k; continue; }
        for (j = legs++; j > 0 && net->in[j - 1].input > to; j--) net->in[j] = net->in[j - 1];
        net->in[j].label = d + k;
        net->in[j].input = to;
    }
    for (k = 0; k < d && whole; k++) {
        int label[3] = {k, d + k, (k + 1) % d};
        whole = tni_net_put(net, k, tni_net_copy(tt->ctx, tt->core[k], 1), label);
    }
    return tni_net_done(net, whole, "net_from_tt");
}

/* The core of a site, without the axis of the sites */
static tn_tensor *tni_tna_core(tn_tensor *cores, int64_t site, bool each)
{
    tn_tensor *t = each ? tn_slice(cores, 0, site, site + 1) : cores;
    return t && each ? tn_reshape(t, t->rank - 1, cores->shape + 1) : t;
}

/* Label i is the bond before site i; those of the legs follow, site by site. */
tn_net *tn_net_from_tn_attention(tn_ctx *ctx, const tn_tn_attention *layer, int64_t n, int64_t site)
{
    int     legs = 0, label[4];
    bool    whole = true;
    tn_net *net;
    if (!tni_layer_given(ctx, layer, "net_from_tn_attention") || !tni_usable(ctx, layer->a, "net_from_tn_attention", "a"))
        return NULL;
    const tn_tn_attention_desc *d = &layer->desc;
    const char *what = d->unit_weights ? "unit_weights" : d->act != TN_ACT_NONE ? "an activation" : d->bias ? "a bias"
                       : d->residual ? "a residual" : d->norm != TN_ROW_NORM_NONE ? "a norm" : NULL;
    if (what)
        return tni_fail(ctx, TN_ERR_ARG, "net_from_tn_attention: the layer has %s, expected a tensor of its inputs",
                        what), (tn_net *)NULL;
    if (n < 1 || n > 4096 || (d->sites > 0 && n != d->sites))
        return tni_fail(ctx, TN_ERR_ARG, "net_from_tn_attention: n is %lld, expected %s%lld", (long long)n,
                        d->sites > 0 ? "" : "1 to ", (long long)(d->sites > 0 ? d->sites : 4096)), (tn_net *)NULL;
    if (!tni_within(ctx, "net_from_tn_attention", "site", site, 0, n - 1)) return NULL;
    int all = (int)(d->causal ? site + 1 : n);
    int ends = d->boundary == TN_BOUNDARY_CLOSED ? 0 : 2;
    int next = all + 1;
    if (!(net = tni_net_make(ctx, all + ends, 1, (all - 1) * (1 + d->square) + 1))) return NULL;
    for (int i = 0; i < all && whole; i++) {
        tn_tensor *core = tni_tna_core(i == site ? layer->b : layer->a, i, d->sites > 0);
        label[0] = i;
        label[1] = ends == 0 && i + 1 == all ? 0 : i + 1;
        if (i == site) net->out[0].label = label[2] = next++;
        for (int k = i == site ? 1 : 0; k < (i == site || d->square ? 2 : 1); k++) {
            net->in[legs].input = i;
            net->in[legs++].label = label[2 + k] = next++;
        }
        whole = tni_net_put(net, i, tni_net_copy(ctx, core, 1), label);
    }
    for (int k = 0; k < ends && whole; k++) {
        tn_tensor *v = tni_tna_boundary(ctx, layer, k == 1);
        label[0] = k * all;
        whole = tni_net_put(net, all + k, tni_net_copy(ctx, tn_reshape(v, 1, &d->bond), 1), label);
    }
    return tni_net_done(net, whole, "net_from_tn_attention");
}

/* Bonds are pairs (h,a) of a head and one of its numbers, or heads alone. Factors f [n,heads,w] of a net of attention lie on
   the diagonal of the head: opening ones [h, n, (h,a)], closing ones [(h,a), n, h]. */
tn_tt *tn_tt_from_attention(tn_ctx *ctx, const tn_attention *layer, int64_t distance)
{
    static const int node[6] = {0, 2, 1, 3, 4, 5};           /* q1 k1 q2 k2 v o */
    tn_net   *net = tn_net_from_attention(ctx, layer, distance);
    int64_t   most = 0;
    tn_tt    *tt = NULL;
    tn_status s = TN_OK;
    tni_scratch host = tni_scratch_begin(ctx, "tt_from_attention");
    if (!net) return NULL;
    for (int64_t k = 0; k < 6; k++) most = tni_max(most, tn_tensor_count(net->node[k].tensor));
    int64_t heads = layer->desc.heads;
    double *f = tni_take_f64(&host, most, 1), *core = tni_take_f64(&host, most, heads);
    if (!host.failed) tt = tni_tt_make(ctx, "tt_from_attention", 6);
    for (int64_t k = 0; tt && s == TN_OK && k < 6; k++) {
        const tn_tensor *t = net->node[node[k]].tensor;
        const bool       opens = k % 2 == 0;
        const int64_t    n = t->shape[0], w = t->shape[2], one = k == 0 || k == 5 ? 1 : heads;
        const int64_t    r = opens ? one : heads * w, c = opens ? heads * w : one;
        if ((s = tn_read(t, TN_F64, f, tn_tensor_count(t))) != TN_OK) break;
        memset(core, 0, (size_t)(r * n * c) * sizeof *core);
        for (int64_t i = 0; i < n; i++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t a = 0; a < w; a++) {
                    const int64_t pair = h * w + a, head = one == 1 ? 0 : h;
                    core[((opens ? head : pair) * n + i) * c + (opens ? pair : head)] += f[(i * heads + h) * w + a];
                }
        s = tni_tt_put(tt, "tt_from_attention", k, r, n, c, core);
    }
    tn_net_destroy(net);
    s = tni_scratch_end(&host, s);
    return tt ? tni_tt_done(tt, s) : NULL;
}
#endif

/* ---- deep tensor network ------------------------------------------------ >>mps-deep-impl */
static tn_status tni_deep_check(tn_params *ps, const char *name, tn_deep_desc *d)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_status s;
    if (d->layers == 0) d->layers = 2;
    if (d->bond == 0) d->bond = 8;
    if (d->dim == 0) d->dim = 2;
    if (d->head_bond == 0) d->head_bond = d->bond;
    if (d->causal && d->boundary == TN_BOUNDARY_CLOSED) d->boundary = TN_BOUNDARY_VECTORS;
    if ((s = tni_layer_extents(ps, "deep", name, "out", d->out, "layers", d->layers)) != TN_OK) return s;
    if (d->layers > 1000)
        return tni_fail(ctx, TN_ERR_SHAPE, "deep%s%s: layers is %lld, expected 0 to 1000", TNI_NAMED(name),
                        (long long)d->layers);
    if (d->vocab < 0 || (d->vocab > 0 && d->map != TN_LOCAL_LINEAR))
        return tni_fail(ctx, TN_ERR_ARG, "deep%s%s: vocab is %lld, expected %s", TNI_NAMED(name), (long long)d->vocab,
                        d->vocab < 0 ? "0 or more" : "0 with a map");
    if (d->vocab == 0 && (s = tni_local_check(ctx, "deep", name, d->map, d->dim)) != TN_OK) return s;
    if ((unsigned)d->head > TN_DEEP_SITES || (d->causal && d->head != TN_DEEP_SITES))
        return tni_fail(ctx, TN_ERR_ARG, "deep%s%s: head is %d, expected %s", TNI_NAMED(name), (int)d->head,
                        d->causal ? "TN_DEEP_SITES in a causal network" : "TN_DEEP_MPS or TN_DEEP_SITES");
    return TN_OK;
}

tn_status tn_deep_init(tn_params *ps, const char *name, const tn_deep_desc *desc, tn_deep *model)
{
    const int64_t before = tn_params_count(ps);
    tn_status     s;
    char          part[200];
    if (!model || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "deep: model or desc is NULL");
    tn_deep_desc d = *desc;                                 /* which may be the model's own */
    memset(model, 0, sizeof *model);
    if ((s = tni_deep_check(ps, name, &d)) != TN_OK) return s;
    tn_embedding_desc    e = TNI_ZERO;
    tn_tn_attention_desc a = TNI_ZERO;
    tn_linear_desc       linear = TNI_ZERO;
    tn_mps_desc          mps = TNI_ZERO;
    model->desc = d;
    e.count = d.vocab; e.dim = d.dim;
    a.in = d.dim; a.bond = d.bond; a.sites = d.sites; a.square = d.square; a.boundary = d.boundary; a.causal = d.causal;
    a.unit_inputs = a.unit_weights = true;
    a.act = d.act; a.residual = !d.no_residual; a.norm = d.no_norm ? TN_ROW_NORM_NONE : TN_ROW_NORM_L2;
    linear.in = d.dim; linear.out = d.out; linear.bias = true;
    mps.sites = d.sites; mps.bond = d.head_bond; mps.out = d.out; mps.dim = d.dim; mps.map = TN_LOCAL_GIVEN;
    mps.uniform = d.sites == 0;
    tni_print(part, sizeof part, "%s%sembed", name ? name : "", name && *name ? "." : "");
    if (d.vocab > 0) s = tn_embedding_init(ps, part, &e, &model->embed);
    if (s == TN_OK && !(model->layer = (tn_tn_attention *)tni_layers_add(ps, (size_t)d.layers * sizeof *model->layer)))
        s = TN_ERR_MEMORY;
    for (int64_t l = 0; s == TN_OK && l < d.layers; l++) {
        tni_print(part, sizeof part, "%s%s%lld", name ? name : "", name && *name ? "." : "", (long long)l);
        s = tn_tn_attention_init(ps, part, &a, &model->layer[l]);
    }
    tni_print(part, sizeof part, "%s%shead", name ? name : "", name && *name ? "." : "");
    if (s == TN_OK) s = d.head == TN_DEEP_MPS ? tn_mps_init(ps, part, &mps, &model->mps)
                                              : tn_linear_init(ps, part, &linear, &model->linear);
    if (s == TN_OK) return TN_OK;
    if (model->layer) tni_layers_drop(ps);
    return tni_layer_done(ps, before, false, model, sizeof *model);
}

/* Through the map and all layers: [B,n,dim]. state: NULL, or that of the sites before. */
static tn_tensor *tni_deep_features(tn_ctx *ctx, const tn_deep *m, tn_tensor *x, tn_tensor *state)
{
    const int64_t width = m->desc.bond + 1;
    x = m->desc.vocab > 0 ? tn_embedding_forward(ctx, &m->embed, x) : tn_local_features(ctx, x, m->desc.map, m->desc.dim);
    for (int64_t l = 0; x && l < m->desc.layers; l++)
        x = state ? tn_tn_attention_decode(ctx, &m->layer[l], x, tn_slice(state, 1, l * width, (l + 1) * width))
                  : tn_tn_attention_forward(ctx, &m->layer[l], x);
    return x;
}

tn_tensor *tn_deep_forward(tn_ctx *ctx, const tn_deep *m, tn_tensor *x)
{
    if (!tni_layer_given(ctx, m, "deep") || !(x = tni_deep_features(ctx, m, x, NULL))) return NULL;
    return m->desc.head == TN_DEEP_MPS ? tn_mps_forward(ctx, &m->mps, x, NULL) : tn_linear_forward(ctx, &m->linear, x);
}

tn_tensor *tn_deep_state(tn_ctx *ctx, const tn_deep *m, int64_t batch)
{
    int64_t    l;
    tn_tensor *part = NULL;
    if (!tni_layer_given(ctx, m, "deep")) return NULL;
    int64_t    shape[2] = {batch, m->desc.layers * (m->desc.bond + 1)};
    tn_tensor *state = tn_tensor_create(ctx, TN_REAL, 2, shape);
    for (l = 0; state && l < m->desc.layers; l++) {
        part = tn_tn_attention_state(ctx, &m->layer[l], batch);
        if (!part || tn_assign(tn_slice(state, 1, l * part->shape[1], (l + 1) * part->shape[1]), part) != TN_OK) break;
        tn_tensor_destroy(part);
    }
    if (!state || l == m->desc.layers) return state;
    tn_tensor_destroy(part);
    tn_tensor_destroy(state);
    return NULL;
}

tn_tensor *tn_deep_decode(tn_ctx *ctx, const tn_deep *m, tn_tensor *x, tn_tensor *state)
{
    const int64_t width = m && m->layer ? m->desc.layers * (m->desc.bond + 1) : 0;
    if (!tni_layer_given(ctx, m, "deep") || !tni_is_real(ctx, state, "deep", "state")) return NULL;
    if (state->rank != 2 || state->shape[1] != width)
        return tni_fail(ctx, TN_ERR_SHAPE, "deep: state is %s, expected [batch,%lld]", TNI_SHAPE(state),
                        (long long)width), (tn_tensor *)NULL;
    x = tni_deep_features(ctx, m, x, state);
    return x ? tn_linear_forward(ctx, &m->linear, x) : NULL;
}
#endif /* TN_NO_MPS */
