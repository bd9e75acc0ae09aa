#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "algebra/algebra.h"
#include "layers/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- attribution -------------------------------------------------------- >>circuits-attribution-impl */

/* The covectors [T,n+1] of the stream at the end of a block -> at its beginning, after its mixing */
static tn_tensor *tni_frozen_backward(tn_ctx *ctx, const tn_circuit_frozen_block *b, tn_tensor *c)
{
    const int64_t n = b->p->shape[0];
    tn_tensor    *in[4], *part[2], *un = tn_slice(c, -1, 0, n);
    part[0] = tn_matmul(ctx, un, b->p);
    part[1] = b->pb ? tn_sum_axis(ctx, tn_mul(ctx, un, b->pb), -1) : tn_full(ctx, 2, TNI_DIMS(b->in1->shape[0], 1), 0);
    part[1] = tn_reshape_2d(part[1], -1, 1);
    in[0] = tn_concat(ctx, 2, part, 1); in[1] = b->gate; in[2] = b->w;
    c = tn_add(ctx, c, tni_frozen_read(ctx, tn_einsum(ctx, "th,eth,ehn->tn", 3, in), b->in2));
    un = tn_slice(c, -1, 0, n);
    in[0] = un; in[1] = b->o; in[2] = b->pattern; in[3] = b->v;
    part[0] = tni_frozen_read(ctx, tn_einsum(ctx, "to,ohv,hts,hvn->sn", 4, in), b->in1);
    if (b->ob) {
        tn_tensor *one = tn_sum_axis(ctx, tn_mul(ctx, un, b->ob), -1);
        part[1] = tn_mul(ctx, tni_frozen_factors(ctx, n, 0, 1), tn_reshape_2d(one, -1, 1));
        c = tn_add(ctx, c, part[1]);
    }
    return tn_add(ctx, c, part[0]);
}

static tn_tensor *tni_attribute(const tn_circuit_frozen *f, const tn_circuit_target *target, double *whole)
{
    const int64_t n = f->model->desc.dim;
    tn_ctx    *ctx = f->ctx;
    tn_tensor *c = tni_target_covector(f, target, "circuit_attribute", whole), *first = NULL, *in[2];
    if (!c) return NULL;
    in[0] = tn_slice(tn_eye(ctx, f->tokens), 1, target->position, target->position + 1);
    in[1] = tn_reshape_2d(c, 1, -1);
    c = tn_matmul(ctx, in[0], in[1]);
    for (int64_t l = f->layers; l-- > 0 && c;) {
        const tn_circuit_frozen_block *b = &f->block[l];
        c = tni_frozen_backward(ctx, b, c);
        if (b->again != 0) {
            in[0] = tn_mul(ctx, c, tni_frozen_factors(ctx, n, b->again, 0));
            first = first ? tn_add(ctx, first, in[0]) : in[0];
        }
        if (b->keep != 1) c = tn_mul(ctx, c, tni_frozen_factors(ctx, n, b->keep, 1));
    }
    in[0] = f->source; in[1] = first ? tn_add(ctx, c, first) : c;
    return tn_einsum(ctx, "stn,tn->st", 2, in);
}

tn_status tn_circuit_attribute(const tn_circuit_frozen *f, const tn_circuit_target *target, tn_circuit_attribution *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!f || !f->ctx) return TN_ERR_ARG;
    if (!target || !out) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_attribute: %s is NULL", out ? "target" : "out");
    tni_scope  scope = tni_scope_begin(f->ctx);
    tn_tensor *t = tni_attribute(f, target, &out->whole);
    out->values = tn_tensor_keep(t);
    tni_scope_end(f->ctx, scope);
    if (!out->values) return tni_analysis_status(f->ctx);
    out->error = tni_values_sum(out->values) - out->whole;
    return TN_OK;
}

void tn_circuit_attribution_destroy(tn_circuit_attribution *a) { tni_result_end(a, sizeof *a, 0, 1); }

/* A layer that is one head of another, without the output bias */
static tn_attention tni_circuit_one_head(tn_ctx *ctx, const tn_attention *layer, int64_t h)
{
    const int64_t d = layer->desc.d_qk, e = layer->desc.d_v;
    tn_attention  one = *layer;
    one.desc.heads = 1;
    one.ob = NULL;
    one.qk = tn_copy(ctx, tn_slice(layer->qk, 1, h * d, (h + 1) * d));
    one.v = tn_copy(ctx, tn_slice(layer->v, 0, h * e, (h + 1) * e));
    one.o = tn_copy(ctx, tn_slice(layer->o, 1, h * e, (h + 1) * e));
    if (layer->qkb) one.qkb = tn_copy(ctx, tn_slice(layer->qkb, 1, h * d, (h + 1) * d));
    if (layer->vb) one.vb = tn_copy(ctx, tn_slice(layer->vb, 0, h * e, (h + 1) * e));
    return one;
}

/* The difference of the two rows of x [2,n], as [1,n] */
static tn_tensor *tni_rows_differ(tn_ctx *ctx, tn_tensor *x)
{
    return x ? tn_sub(ctx, tn_slice(x, 0, 0, 1), tn_slice(x, 0, 1, 2)) : NULL;
}

/* x [T,n] and x with d [1,n] taken from row t: [2,T,n] */
static tn_tensor *tni_rows_without(tn_ctx *ctx, tn_tensor *x, tn_tensor *d, int64_t t)
{
    if (!x) return NULL;
    tn_tensor *pair[2] = {x, tn_sub(ctx, x, tn_matmul(ctx, tn_slice(tn_eye(ctx, x->shape[0]), 1, t, t + 1), d))};
    return tn_stack(ctx, 2, pair, 0);
}

/* How the output of a head changes at position `to`, or of an MLP at `at`, when d [1,n] is taken from its input at `at` */
static tn_tensor *tni_ablate_measured(const tn_circuit_frozen *f, int64_t l, int64_t h, int64_t at, int64_t to, tn_tensor *d)
{
    const tn_transformer       *m = f->model;
    const tn_transformer_block *block = &m->blocks[l];
    const bool   sandwich = m->desc.norm_place == TN_PLACE_SANDWICH;
    const double scale = h >= 0 ? m->desc.attn_scale : m->desc.mlp_scale;
    tn_ctx      *ctx = f->ctx;
    tn_attention one;
    tn_tensor   *x = h >= 0 ? f->block[l].run1 : tn_slice(f->block[l].run2, 0, at, at + 1), *y;
    x = tni_rows_without(ctx, x, d, h >= 0 ? at : 0);
    x = x ? tni_model_normed(ctx, m, h >= 0 ? &block->norm1 : &block->norm2, x, NULL, "") : NULL;
    if (!x) return NULL;
    if (h >= 0) {
        one = tni_circuit_one_head(ctx, &block->attn, h);
        y = one.qk && one.v && one.o ? tn_attention_forward(ctx, &one, x, NULL) : NULL;
        y = y ? tn_copy(ctx, tn_slice(y, 1, to, to + 1)) : NULL;
        if (y && sandwich) {                             /* the norm after the block reads all heads */
            tn_tensor *whole = tn_attention_forward(ctx, &block->attn, tn_slice(x, 0, 0, 1), NULL);
            whole = whole ? tn_sub(ctx, tn_slice(whole, 1, to, to + 1), tn_slice(y, 0, 0, 1)) : NULL;
            y = tn_norm_forward(ctx, &block->norm1_out, tn_add(ctx, y, whole));
        }
    } else {
        y = tn_mlp_forward(ctx, &block->mlp, x);
        if (sandwich) y = tn_norm_forward(ctx, &block->norm2_out, y);
    }
    return y ? tn_scale(ctx, tni_rows_differ(ctx, tn_reshape_2d(y, 2, -1)), scale) : NULL;
}

/* What follows a norm, [r x; 1], before and after d [1,n] is taken from x at position t, where its denominator changes by
   the ratio that x gives.   x [T,n+1]  r [T,1] -> [2,n+1] */
static tn_tensor *tni_ablate_normed(const tn_circuit_frozen *f, const tn_norm *norm, tn_tensor *x, tn_tensor *r, int64_t t,
                                    tn_tensor *d)
{
    const int64_t n = f->model->desc.dim;
    tn_ctx    *ctx = f->ctx;
    x = tn_reshape_2d(tni_rows_without(ctx, tn_slice(x, 0, t, t + 1), tni_frozen_with(ctx, d, 0), 0), 2, n + 1);
    r = tn_slice(r, 0, t, t + 1);
    if (x && !f->model->desc.no_norm) {
        tn_tensor *scale = tni_frozen_scale(ctx, norm, tn_slice(x, -1, 0, n));
        r = scale ? tn_mul(ctx, r, tn_div(ctx, scale, tn_slice(scale, 0, 0, 1))) : NULL;
    }
    return r ? tni_frozen_read(ctx, x, r) : NULL;
}

/* The same from the frozen network, whose patterns and factors of hidden units are constant */
static tn_tensor *tni_ablate_predicted(const tn_circuit_frozen *f, int64_t l, int64_t h, int64_t at, int64_t to,
                                       tn_tensor *d)
{
    const tn_circuit_frozen_block *b = &f->block[l];
    const tn_transformer_block    *block = &f->model->blocks[l];
    tn_ctx       *ctx = f->ctx;
    tn_tensor    *y, *product = NULL, *in[3];
    if (h >= 0) {
        y = tni_rows_differ(ctx, tni_ablate_normed(f, &block->norm1, b->x1, b->in1, at, d));
        y = tn_affine(ctx, y, tni_layer_part(b->v, h), NULL);
        in[0] = y; in[1] = tn_slice(b->o, 1, h, h + 1);
        in[2] = tn_slice(tn_slice(tn_slice(b->pattern, 0, h, h + 1), 1, to, to + 1), 2, at, at + 1);
        return tn_einsum(ctx, "tv,ohv,hts->to", 3, in);
    }
    y = tni_ablate_normed(f, &block->norm2, b->x2, b->in2, at, d);
    for (int64_t e = 0; e < b->w->shape[0]; e++) {
        tn_tensor *z = tn_affine(ctx, y, tni_layer_part(b->w, e), NULL);
        product = e ? tn_mul(ctx, product, z) : z;
    }
    product = tni_rows_differ(ctx, product);
    if (b->m) product = tn_mul(ctx, product, tni_frozen_with(ctx, tn_slice(b->m, 0, at, at + 1), 1));
    return product ? tn_affine(ctx, tn_slice(product, -1, 0, b->p->shape[1]), b->p, NULL) : NULL;  /* its bias stays */
}

/* The change of the target itself, when d is taken from what the last norm reads, in the frozen network or the run one */
static double tni_ablate_end(const tn_circuit_frozen *f, const tn_circuit_target *target, tn_tensor *d, bool frozen)
{
    const int64_t t = target->position;
    tn_ctx    *ctx = f->ctx;
    tn_tensor *y;
    if (frozen) {
        y = tn_affine(ctx, tni_ablate_normed(f, &f->model->norm, f->x, f->scale, t, d), f->u, NULL);
        if (f->cap) y = tn_mul(ctx, y, tn_slice(f->cap, 0, t, t + 1));
    } else {
        y = tni_rows_without(ctx, tn_slice(f->run, 0, t, t + 1), d, 0);
        y = y ? tni_model_normed(ctx, f->model, &f->model->norm, tn_reshape_2d(y, 2, -1), NULL, "") : NULL;
        y = y ? tn_transformer_unembed(ctx, f->model, y) : NULL;
    }
    if (target->aim == TN_CIRCUIT_AIM_LOSS) y = tn_log_softmax(ctx, y);
    y = tni_rows_differ(ctx, y);
    if (!y) return (double)NAN;
    double change = tn_item(tn_slice(y, 1, target->token, target->token + 1));
    if (target->aim == TN_CIRCUIT_AIM_DIFFERENCE) change -= tn_item(tn_slice(y, 1, target->other, target->other + 1));
    return target->aim == TN_CIRCUIT_AIM_LOSS ? -change : change;
}

/* Follows a path from its source with what its deletion changes. */
static bool tni_ablate_path(const tn_circuit_paths *p, int64_t leaf, double *predicted, double *measured)
{
    const tn_circuit_frozen *f = p->frozen;
    const tn_circuit_node   *node = &p->node[leaf];
    const int64_t n = f->model->desc.dim;
    tn_ctx    *ctx = f->ctx;
    tn_tensor *d[2], *source = tn_slice(tni_layer_part(f->source, node->block), 0, node->position, node->position + 1);
    const tn_circuit_node *next = &p->node[node->next];
    source = source ? tn_copy(ctx, tn_slice(source, 1, 0, n)) : NULL;
    d[0] = d[1] = source ? tn_scale(ctx, source, tni_frozen_first(f, tni_node_stage(f, next))) : NULL;
    for (node = next; node->next >= 0 && d[0] && d[1]; node = next) {
        next = &p->node[node->next];
        double kept = tni_frozen_kept(f, node->block, tni_node_stage(f, next));
        d[0] = tni_ablate_predicted(f, node->block, node->head, node->position, next->position, d[0]);
        d[1] = tni_ablate_measured(f, node->block, node->head, node->position, next->position, d[1]);
        for (int i = 0; i < 2; i++) d[i] = d[i] && kept != 1 ? tn_scale(ctx, d[i], kept) : d[i];
    }
    if (!d[0] || !d[1]) return false;
    *predicted = tni_ablate_end(f, &p->target, d[0], true);
    *measured = tni_ablate_end(f, &p->target, d[1], false);
    return tn_ctx_status(ctx) == TN_OK;
}

/* 1 - sum (m - p)^2 / sum (m - mean)^2, with predictions shifted by `shift` */
static double tni_ablate_r2(const double *p, const double *m, int64_t n, int64_t shift)
{
    double mean = 0, rest = 0, all = 0;
    for (int64_t i = 0; i < n; i++) mean += m[i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        rest += (m[i] - p[(i + shift) % n]) * (m[i] - p[(i + shift) % n]);
        all += (m[i] - mean) * (m[i] - mean);
    }
    return 1 - rest / all;
}

tn_status tn_circuit_paths_ablate(const tn_circuit_paths *p, int64_t count, tn_circuit_ablation *out)
{
    int64_t k = 0;
    if (out) memset(out, 0, sizeof *out);
    if (!p || !p->frozen || !out) return TN_ERR_ARG;
    const tn_circuit_frozen *f = p->frozen;
    if (!tni_within(f->ctx, "circuit_paths_ablate", "count", count, 1, INT64_MAX)) return TN_ERR_ARG;
    if (!tni_frozen_whole(f, "circuit_paths_ablate")) return TN_ERR_ARG;
    int64_t     room = tni_min(count, tni_max(p->count, 1));
    tni_scratch w = tni_scratch_begin(f->ctx, "circuit_paths_ablate");
    double     *v = tni_take_zeros(&w, room, 2);
    int32_t    *leaf = (int32_t *)tni_take(&w, room, sizeof *leaf);
    tni_scope   scope = tni_scope_begin(f->ctx);
    bool        done = !w.failed;
    for (int64_t i = 0; i < p->count && k < room && done; i++) {
        const tn_circuit_node *node = &p->node[p->path[i]];
        if (f->constant && node->block == f->sources - 1) continue;
        leaf[k] = (int32_t)p->path[i];
        tni_scope each = tni_scope_begin(f->ctx);
        done = tni_ablate_path(p, p->path[i], &v[k], &v[room + k]);
        tni_scope_end(f->ctx, each);
        k++;
    }
    if (done) {
        out->count = k;
        out->path = tni_owned_counts(f->ctx, k, leaf);
        out->predicted = tni_owned_from(f->ctx, 1, &k, v);
        out->measured = tni_owned_from(f->ctx, 1, &k, v + room);
        out->r2 = tni_ablate_r2(v, v + room, k, 0);
        out->r2_shuffled = tni_ablate_r2(v, v + room, k, k / 2);
        done = out->path && out->predicted && out->measured;
    }
    tni_scope_end(f->ctx, scope);
    tni_scratch_release(&w, NULL);
    if (done) return TN_OK;
    tn_circuit_ablation_destroy(out);
    return tni_analysis_status(f->ctx);
}

void tn_circuit_ablation_destroy(tn_circuit_ablation *d)
{
    tni_result_end(d, sizeof *d, offsetof(tn_circuit_ablation, path), 3);
}

#endif /* TN_NO_CIRCUITS */
