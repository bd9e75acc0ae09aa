#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"

#ifndef TN_NO_SEQUENCES
/* ---- attention ---------------------------------------------------------- >>layer-attention-impl */

const char *tn_attention_kind_name(tn_attention_kind k)
{
    return (unsigned)k < TNI_ATTENTION_KINDS ? tni_attention_kinds[k].name : "?";
}

/* The desc for tn_attend. */
TNI_FN tn_attend_desc tni_attention_attend(const tn_attention_desc *d)
{
    tn_attend_desc a = TNI_ZERO;
    a.kind = tni_attention_kinds[d->kind].attend;
    a.form = d->form;
    a.bidirectional = d->bidirectional;
    a.window = d->window;
    a.scale = d->scale;
    a.row_scale = d->row_scale;
    a.row_length = d->row_length;
    return a;
}

/* The extents of a head. The default is an equal share of dim. */
static tn_status tni_attention_share(tn_ctx *ctx, const char *name, const char *what, int64_t dim, int64_t heads,
                                     int64_t sets, int64_t *d)
{
    if (*d == 0 && dim % (heads * sets) == 0) *d = dim / (heads * sets);
    if (*d > 0 && *d < INT32_MAX / heads) return TN_OK;
    if (*d != 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "attention%s%s: %s is %lld, expected at least 1, and below 2^31 - 1 for all "
                        "%lld heads together", TNI_NAMED(name), what, (long long)*d, (long long)heads);
    return tni_fail(ctx, TN_ERR_SHAPE, "attention%s%s: dim is %lld, expected a multiple of %lld for %lld heads, or %s to be "
                    "given", TNI_NAMED(name), (long long)dim, (long long)(heads * sets), (long long)heads, what);
}

/* Checks all fields but dim and heads, and fills in the defaults. */
TNI_FN tn_status tni_attention_check(tn_ctx *ctx, const char *name, tn_attention_desc *d)
{
    if ((unsigned)d->kind >= TNI_ATTENTION_KINDS)
        return tni_fail(ctx, TN_ERR_ARG, "attention%s%s: kind is %d, not a valid tn_attention_kind", TNI_NAMED(name),
                        (int)d->kind);
    bool      differential = tni_attention_kinds[d->kind].differential;
    tn_status s = tni_attention_share(ctx, name, "d_qk", d->dim, d->heads, differential ? 2 : 1, &d->d_qk);
    if (s == TN_OK) s = tni_attention_share(ctx, name, "d_v", d->dim, d->heads, 1, &d->d_v);
    if (s == TN_OK) s = tni_layer_projection(ctx, "attention", name, d->dim, d->heads * d->d_v, &d->out, false, d->out_bias);
    if (s != TN_OK) return s;
    tn_attend_desc a = tni_attention_attend(d);
    if (!tni_attend_numbers(ctx, &a, d->d_qk)) return TN_ERR_ARG;
    if ((s = tni_attend_possible(ctx, &a, d->d_qk, d->d_v)) != TN_OK) return s;
    if (d->rope_base != 0 && !tni_rope_number(ctx, "attention", "rope_base", d->rope_base)) return TN_ERR_ARG;
    if (!tni_rope_scaling_fits(ctx, "attention", &d->rope_scaling) || !tni_is_eps(ctx, d->qk_norm_eps, "attention"))
        return TN_ERR_ARG;
    if (d->qk_gain && !d->qk_norm)
        return tni_fail(ctx, TN_ERR_ARG, "attention%s%s: qk_gain is true, expected false without qk_norm", TNI_NAMED(name));
    if (d->depth < 0)
        return tni_fail(ctx, TN_ERR_ARG, "attention%s%s: depth is %lld, expected 0 or more", TNI_NAMED(name),
                        (long long)d->depth);
    if (!(fabs(d->lambda_init) < HUGE_VAL))
        return tni_fail(ctx, TN_ERR_ARG, "attention%s%s: lambda_init is %g, expected a finite number", TNI_NAMED(name),
                        d->lambda_init);
    if (differential && d->lambda_init == 0) d->lambda_init = 0.8 - 0.6 * exp(-0.3 * (double)d->depth);
    return TN_OK;
}

/* A small parameter that starts as one constant. A tied one keeps its values. */
TNI_FN tn_tensor *tni_attention_constant(tn_params *ps, const char *name, const char *part, int64_t n, double value)
{
    const int64_t before = tn_params_count(ps);
    tn_init zero = TNI_ZERO;
    tn_tensor *t = tni_layer_vector(ps, name, part, n, zero);
    return t && (tn_params_count(ps) == before || tni_fill(t, value) == TN_OK) ? t : NULL;
}

static bool tni_attention_lambda(tn_params *ps, const char *name, tn_attention *layer)
{
    const tn_attention_desc *d = &layer->desc;
    tn_init init = TNI_ZERO;
    init.rule = TN_INIT_NORMAL;
    init.std = 0.1;
    int64_t shape[2] = {4, d->d_qk};
    layer->lambda = d->kind == TN_ATTENTION_DIFFERENTIAL ? tni_layer_param(ps, name, "lambda", 2, shape, init, false)
                                                         : tni_attention_constant(ps, name, "lambda", 1, d->lambda_init);
    return layer->lambda != NULL;
}

TNI_COLD tn_status tn_attention_init(tn_params *ps, const char *name, const tn_attention_desc *desc, tn_attention *layer)
{
    int64_t   before = tn_params_count(ps);
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "attention: layer or desc is NULL");
    tn_attention_desc d = *desc;                            /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if ((s = tni_layer_extents(ps, "attention", name, "dim", d.dim, "heads", d.heads)) != TN_OK
        || (s = tni_attention_check(tn_params_ctx(ps), name, &d)) != TN_OK) return s;
    layer->desc = d;
    int64_t width = d.heads * d.d_v;
    tn_init in = tni_init_or(d.init, TN_INIT_UNIFORM, d.dim);
    tn_init out = tni_init_or(d.init_out, TN_INIT_UNIFORM, width);
    int64_t shape[3] = {2 * tni_attention_kinds[d.kind].sets, d.heads * d.d_qk, d.dim};
    bool    whole = (layer->qk = tni_layer_param(ps, name, "qk", 3, shape, in, true)) != NULL;
    if (whole) whole = (layer->v = tni_layer_matrix(ps, name, "v", width, d.dim, in)) != NULL;
    if (whole) whole = (layer->o = tni_layer_matrix(ps, name, "o", d.out, width, out)) != NULL;
    if (whole && d.bias)
        whole = (layer->qkb = tni_layer_param(ps, name, "qk_b", 2, shape, tni_init_bias(in), false)) != NULL
                && (layer->vb = tni_layer_vector(ps, name, "v_b", width, tni_init_bias(in))) != NULL;
    if (whole && d.out_bias) whole = (layer->ob = tni_layer_vector(ps, name, "o_b", d.out, tni_init_bias(out))) != NULL;
    if (whole && tni_attention_kinds[d.kind].differential) whole = tni_attention_lambda(ps, name, layer);
    if (whole && d.qk_gain)
        whole = (layer->qk_gain = tni_attention_constant(ps, name, "qk_gain", shape[0] * d.d_qk, 1)) != NULL;
    if (whole && d.mix_values) whole = (layer->mix = tni_attention_constant(ps, name, "mix", 2, 0.5)) != NULL;
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

/* [B,T,heads d] as [B,T,heads,d] */
static tn_tensor *tni_attention_split(tn_tensor *t, int64_t heads, int64_t d)
{
    if (!t) return NULL;
    int64_t shape[4] = {t->shape[0], t->shape[1], heads, d};
    return tn_reshape(t, 4, shape);
}

TNI_FN tn_rope_desc tni_attention_rope(const tn_attention_desc *d, int64_t first, bool norm)
{
    tn_rope_desc rope = {d->rope_base, d->rope_scaling, first, d->no_rope, norm, d->qk_norm_eps};
    return rope;
}

/* q or k [B,T,n,d_qk], whose row 0 is at position `first`: normed, times the gain, and rotated. gain: NULL, or d_qk numbers for
   each of equal parts of n. */
TNI_FN tn_tensor *tni_attention_rotated(tn_ctx *ctx, const tn_attention_desc *d, tn_tensor *x, tn_tensor *gain, int64_t first,
                                       bool norm)
{
    tn_rope_desc rope = tni_attention_rope(d, first, norm), alone = rope;
    if (x && gain) {
        const int64_t parts = gain->shape[0] / d->d_qk, n = x->shape[2];
        alone.no_rotation = true;
        if (norm) x = tn_rope(ctx, x, &alone);
        x = x ? tn_reshape(x, 5, TNI_DIMS(x->shape[0], x->shape[1], parts, n / parts, d->d_qk)) : NULL;
        x = tn_mul(ctx, x, tn_reshape(gain, 3, TNI_DIMS(parts, 1, d->d_qk)));
        x = x ? tn_reshape(x, 4, TNI_DIMS(x->shape[0], x->shape[1], n, d->d_qk)) : NULL;
        rope.norm = false;
    }
    return x ? tn_rope(ctx, x, &rope) : NULL;
}

/* All q and k of x, whose first row is at position `first`: [B,T,2s heads,d_qk], in one product. */
TNI_FN tn_tensor *tni_attention_qk(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, int64_t first)
{
    const tn_attention_desc *d = &layer->desc;
    const int64_t heads = layer->qk->shape[0] * d->heads;
    tn_tensor    *w = tn_reshape_2d(layer->qk, heads * d->d_qk, d->dim);
    tn_tensor    *b = tn_reshape(layer->qkb, 1, TNI_DIMS(-1));
    if (!w || (layer->qkb && !b)) return NULL;
    x = tni_attention_split(tn_affine(ctx, x, w, b), heads, d->d_qk);
    return tni_attention_rotated(ctx, d, x, layer->qk_gain, first, d->qk_norm);
}

/* v [B,T,heads,d_v], with those of an earlier layer, if there is one, mixed in */
TNI_FN tn_tensor *tni_attention_v(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor *earlier)
{
    const tn_attention_desc *d = &layer->desc;
    tn_tensor *v = tni_attention_split(tn_affine(ctx, x, layer->v, layer->vb), d->heads, d->d_v);
    if (!v || !earlier || !d->mix_values) return v;
    if (!tni_is_real(ctx, earlier, "attention", "values")) return NULL;
    if (!tni_same_shape(earlier, v))
        return tni_fail(ctx, TN_ERR_SHAPE, "attention: values are %s, expected %s as v", TNI_SHAPE(earlier),
                        TNI_SHAPE(v)), (tn_tensor *)NULL;
    earlier = tn_mul(ctx, earlier, tn_slice(layer->mix, 0, 1, 2));
    v = earlier ? tn_mul(ctx, v, tn_slice(layer->mix, 0, 0, 1)) : NULL;
    return v ? tn_add(ctx, v, earlier) : NULL;
}

/* lambda: one number for all positions, computed from parameters alone */
static tn_tensor *tni_attention_lambda_now(tn_ctx *ctx, const tn_attention *layer)
{
    const tn_dtype made = ctx->made;
    if (layer->desc.kind == TN_ATTENTION_DIFFERENTIAL_PLAIN) return layer->lambda;
    ctx->made = ctx->desc.dtype;
    tn_tensor *e = tn_mul(ctx, tn_slice_step(layer->lambda, 0, 0, 4, 2), tn_slice_step(layer->lambda, 0, 1, 4, 2));
    e = e ? tn_activation(ctx, tn_sum_axis(ctx, e, 1), TN_ACT_EXP) : NULL;
    e = e ? tn_sub(ctx, tn_slice(e, 0, 0, 1), tn_slice(e, 0, 1, 2)) : NULL;
    e = e ? tn_add(ctx, e, tn_full(ctx, 1, TNI_DIMS(1), layer->desc.lambda_init)) : NULL;
    ctx->made = made;
    return e;
}

/* Whether each head has a norm at its end. */
TNI_FN bool tni_attention_normed(const tn_attention_desc *d)
{
    return d->head_norm || d->kind == TN_ATTENTION_DIFFERENTIAL;
}

/* The patterns of the heads times v: q [B,Tq,s heads,d_qk], k [B,Tk,s heads,d_qk], v [B,Tk,heads,d_v] -> [B,Tq,heads,d_v] */
static tn_tensor *tni_attention_mix(tn_ctx *ctx, const tn_attention *layer, const tn_attend_desc *a, tn_tensor *q,
                                    tn_tensor *k, tn_tensor *v)
{
    const int64_t H = layer->desc.heads;
    if (!tni_attention_kinds[layer->desc.kind].differential) return tn_attend(ctx, q, k, v, a);
    tn_tensor *o = tn_attend(ctx, tn_slice(q, 2, 0, H), tn_slice(k, 2, 0, H), v, a);
    tn_tensor *second = o ? tn_attend(ctx, tn_slice(q, 2, H, 2 * H), tn_slice(k, 2, H, 2 * H), v, a) : NULL;
    second = second ? tn_mul(ctx, second, tni_attention_lambda_now(ctx, layer)) : NULL;
    return second ? tn_sub(ctx, o, second) : NULL;
}

/* Set i of the scores of all heads, those of masked pairs included: [B,heads,T,T] */
static tn_tensor *tni_pattern_scores(tn_ctx *ctx, const tn_attention *layer, double scale, tn_tensor *q, tn_tensor *k, int i)
{
    const int64_t H = layer->desc.heads;
    q = tn_slice(q, 2, i * H, (i + 1) * H);
    q = q ? tn_scale(ctx, tn_transpose(q, 1, 2), scale) : NULL;
    k = tn_transpose(q ? tn_slice(k, 2, i * H, (i + 1) * H) : NULL, 1, 2);
    return k ? tn_matmul(ctx, q, tn_transpose(k, 2, 3)) : NULL;
}

/* [T,T]: one number where a query sees the key and another elsewhere. Row i is a part of one vector u, m[i,j] = u[T-1-i+j]. */
static tn_tensor *tni_pattern_mask(tn_ctx *ctx, const tn_attend_desc *a, int64_t T, double seen, double masked)
{
    const int64_t before = a->window > 0 ? tni_min(a->window, T) : T, after = a->bidirectional ? before : 1;
    tn_tensor    *part[3], *u;
    int64_t       extent[3] = {T - before, before + after - 1, T - after};
    for (int i = 0; i < 3; i++) part[i] = tn_full(ctx, 1, &extent[i], i == 1 ? seen : masked);
    if (!(u = tn_concat(ctx, 3, part, 0)) || !(u = tn_slice(u, 0, T - 1, 2 * T - 1)) || !(u = tn_reshape_2d(u, 1, T)))
        return NULL;
    u->shape[0] = T;
    u->strides[0] = -1;
    return tn_copy(ctx, u);
}

/* The row scales c_i of n keys, [T,1]: what attention to ones returns, over the number of keys. */
static tn_tensor *tni_pattern_rows(tn_ctx *ctx, const tn_attend_desc *a, int64_t T)
{
    tn_attend_desc ones = *a;
    ones.kind = TN_ATTEND_SQUARED;
    ones.form = TN_ATTEND_FORM_QUADRATIC;
    ones.scale = 1;
    tn_tensor *one = tn_full(ctx, 4, TNI_DIMS(1, T, 1, 1), 1);
    tn_tensor *y = tn_attend(ctx, one, one, one, &ones);
    ones.row_scale = TN_ROW_SCALE_NONE;
    tn_tensor *n = y ? tn_attend(ctx, one, one, one, &ones) : NULL;
    return tn_reshape_2d(n ? tn_div(ctx, y, n) : NULL, T, 1);
}

/* P / (eps + sum_j P_ij) */
static tn_tensor *tni_pattern_by_sum(tn_ctx *ctx, tn_tensor *p, double eps)
{
    tn_tensor    *sum = p ? tni_mean_of_rows(ctx, p) : NULL;
    sum = sum ? tn_scale(ctx, sum, (double)p->shape[3]) : NULL;
    sum = sum ? tn_add(ctx, sum, tn_full(ctx, 1, TNI_DIMS(1), eps)) : NULL;
    return sum ? tn_div(ctx, p, sum) : NULL;
}

/* The patterns before the division by their sum. Row scales are multiplied into the mask, which is smaller. */
static tn_tensor *tni_pattern_pairs(tn_ctx *ctx, const tn_attention *layer, const tn_attend_desc *a, tn_tensor *q,
                                    tn_tensor *k)
{
    const bool    softmax = a->kind == TN_ATTEND_SOFTMAX;
    const bool    scaled = a->row_scale == TN_ROW_SCALE_LENGTH || a->row_scale == TN_ROW_SCALE_MEAN;
    const int     sets = tni_attention_kinds[layer->desc.kind].sets;
    const int64_t T = q->shape[1];
    tn_tensor    *mask = tni_pattern_mask(ctx, a, T, softmax ? 0 : 1, softmax ? -HUGE_VAL : 0);
    tn_tensor    *rows = scaled ? tni_pattern_rows(ctx, a, T) : NULL, *p[2];
    if (!mask || (scaled && !rows)) return NULL;
    if (scaled && !softmax) mask = tn_mul(ctx, mask, rows);
    for (int i = 0; i < sets; i++) {
        p[i] = tni_pattern_scores(ctx, layer, a->scale, q, k, i);
        if (p[i] && softmax) p[i] = tn_softmax(ctx, tn_add(ctx, p[i], mask));
        if (!p[i]) return NULL;
    }
    if (!softmax) return tn_mul(ctx, tn_mul(ctx, p[0], p[sets - 1]), mask);
    if (sets == 2) p[0] = tn_sub(ctx, p[0], tn_mul(ctx, p[1], tni_attention_lambda_now(ctx, layer)));
    return scaled ? tn_mul(ctx, p[0], rows) : p[0];
}

/* The patterns of the heads, [B,heads,T,T], from all scores at once: that takes less time than attention to unit vectors. */
static tn_tensor *tni_attention_weights(tn_ctx *ctx, const tn_attention *layer, tn_tensor *q, tn_tensor *k)
{
    const tn_dtype made = ctx->made;
    tn_attend_desc a = tni_attention_attend(&layer->desc);
    if (!tni_attend_numbers(ctx, &a, layer->desc.d_qk)) return NULL;
    int64_t shape[4] = {q->shape[0], layer->desc.heads, q->shape[1], q->shape[1]};
    if (shape[2] == 0) return tn_full(ctx, 4, shape, 0);
    ctx->made = ctx->desc.dtype;                        /* as within the fused kernels */
    tn_tensor *p = tni_pattern_pairs(ctx, layer, &a, q, k);
    if (a.row_scale == TN_ROW_SCALE_SUM) p = tni_pattern_by_sum(ctx, p, a.eps);
    ctx->made = made;
    return p && p->dtype != made ? tn_cast(ctx, p, made) : p;
}

/* The same as mix; if a tap replaces the patterns, by a product of them with v. */
static tn_tensor *tni_attention_mix_tapped(tn_ctx *ctx, const tn_attention *layer, const tn_attend_desc *a, tn_tensor *q,
                                           tn_tensor *k, tn_tensor *v, const tni_taps *taps)
{
    if (!tni_asked(taps, "attn", ".pattern")) return tni_attention_mix(ctx, layer, a, q, k, v);
    tn_tensor *p = tni_attention_weights(ctx, layer, q, k);
    tn_tensor *shown = tni_shown(ctx, taps, "attn", ".pattern", p);
    if (shown == p) return shown ? tni_attention_mix(ctx, layer, a, q, k, v) : NULL;
    p = shown ? tn_matmul(ctx, shown, tn_transpose(v, 1, 2)) : NULL;
    return p ? tn_copy(ctx, tn_transpose(p, 1, 2)) : NULL;
}

/* The results of the heads: the same with their norm */
static tn_tensor *tni_attention_heads(tn_ctx *ctx, const tn_attention *layer, const tn_attend_desc *a, tn_tensor *q,
                                      tn_tensor *k, tn_tensor *v, const tni_taps *taps)
{
    const tn_attention_desc *d = &layer->desc;
    tn_tensor *o = tni_attention_mix_tapped(ctx, layer, a, q, k, v, taps);
    tn_norm norm = TNI_ZERO;
    norm.desc.eps = 1e-5;
    if (tni_attention_normed(d)) o = tni_norm_tapped(ctx, &norm, o, taps, "attn.z");
    if (o && d->kind == TN_ATTENTION_DIFFERENTIAL) o = tn_scale(ctx, o, 1 - d->lambda_init);
    return tni_shown(ctx, taps, "attn", ".z", o);
}

static tn_tensor *tni_attention_out(tn_ctx *ctx, const tn_attention *layer, tn_tensor *o)
{
    if (!o) return NULL;
    int64_t shape[3] = {o->shape[0], o->shape[1], o->shape[2] * o->shape[3]};
    o = tn_reshape(o, 3, shape);
    return o ? tn_affine(ctx, o, layer->o, layer->ob) : NULL;
}

static bool tni_attention_given(tn_ctx *ctx, const tn_attention *layer, const tn_tensor *x, const char *op)
{
    if (!tni_layer_given(ctx, layer, op) || !tni_usable(ctx, layer->qk, op, "qk") || !tni_usable(ctx, layer->v, op, "v")
        || !tni_usable(ctx, layer->o, op, "o") || !tni_is_real(ctx, x, op, "x")) return false;
    if (x->rank == 3 && x->shape[2] == layer->desc.dim) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: x is %s, expected [B,T,%lld]", op, TNI_SHAPE(x), (long long)layer->desc.dim), false;
}

/* Shows the sets of q or k [B,T,s heads,d_qk] one by one. */
static tn_tensor *tni_attention_sets(tn_ctx *ctx, const tn_attention *layer, tn_tensor *t, const tni_taps *taps,
                                     const char *const names[2])
{
    const int64_t H = layer->desc.heads;
    const int     sets = tni_attention_kinds[layer->desc.kind].sets;
    tn_tensor    *part[2];
    bool          other = false;
    if (!tni_asked(taps, "attn", names[0]) && !(sets > 1 && tni_asked(taps, "attn", names[1]))) return t;
    for (int i = 0; i < sets; i++) {
        part[i] = sets > 1 ? tn_slice(t, 2, i * H, (i + 1) * H) : t;
        tn_tensor *shown = tni_shown(ctx, taps, "attn", names[i], part[i]);
        if (!shown) return NULL;
        other = other || shown != part[i];
        part[i] = shown;
    }
    return !other ? t : sets > 1 ? tn_concat(ctx, 2, part, 2) : part[0];
}

TNI_FN tn_tensor *tni_attention_tapped(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor **values,
                                       const tni_taps *taps)
{
    static const char *const queries[2] = {".q1", ".q2"}, *const keys[2] = {".k1", ".k2"};
    if (!tni_attention_given(ctx, layer, x, "attention")) return NULL;
    tn_attend_desc a = tni_attention_attend(&layer->desc);
    tn_tensor     *qk = tni_attention_qk(ctx, layer, x, 0);
    tn_tensor     *v = qk ? tni_attention_v(ctx, layer, x, values ? *values : NULL) : NULL;
    if (!v) return NULL;
    int64_t    n = qk->shape[2] / 2;
    tn_tensor *q = tni_attention_sets(ctx, layer, tn_slice(qk, 2, 0, n), taps, queries);
    tn_tensor *k = q ? tni_attention_sets(ctx, layer, tn_slice(qk, 2, n, 2 * n), taps, keys) : NULL;
    v = k ? tni_shown(ctx, taps, "attn", ".v", v) : NULL;
    tn_tensor *y = v ? tni_attention_out(ctx, layer, tni_attention_heads(ctx, layer, &a, q, k, v, taps)) : NULL;
    if (y && values && !*values) *values = v;
    return y;
}

tn_tensor *tn_attention_forward(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor **values)
{
    return tni_attention_tapped(ctx, layer, x, values, NULL);
}

tn_tensor *tn_attention_pattern(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x)
{
    tn_tensor *qk;
    if (!tni_attention_given(ctx, layer, x, "attention_pattern")) return NULL;
    if (!(qk = tni_attention_qk(ctx, layer, x, 0))) return NULL;
    tn_tensor *q = tn_slice(qk, 2, 0, qk->shape[2] / 2);
    tn_tensor *k = q ? tn_slice(qk, 2, q->shape[2], qk->shape[2]) : NULL;
    return k ? tni_attention_weights(ctx, layer, q, k) : NULL;
}

tn_tensor *tn_attention_head(const tn_attention *layer, int64_t h, tn_head_part part)
{
    if (!layer || !tni_alive(layer->qk) || !tni_alive(layer->v) || !tni_alive(layer->o)) return NULL;
    const tn_attention_desc *d = &layer->desc;
    if (!tni_within(layer->qk->ctx, "attention_head", "h", h, 0, d->heads - 1)) return NULL;
    int64_t s = layer->qk->shape[0] / 2;
    if ((unsigned)part > TN_HEAD_O || (s == 1 && (part == TN_HEAD_Q2 || part == TN_HEAD_K2)))
        return tni_fail(layer->qk->ctx, TN_ERR_ARG, "attention_head: part is %d, expected Q1, K1, V or O%s", (int)part,
                        s == 1 ? ", for this layer has one set of scores" : ", Q2 or K2"), (tn_tensor *)NULL;
    if (part == TN_HEAD_V) return tn_slice(layer->v, 0, h * d->d_v, (h + 1) * d->d_v);
    if (part == TN_HEAD_O) return tn_slice(layer->o, 1, h * d->d_v, (h + 1) * d->d_v);
    int64_t    at = (part == TN_HEAD_K1 || part == TN_HEAD_K2 ? s : 0) + (part == TN_HEAD_Q2 || part == TN_HEAD_K2);
    return tn_slice(tni_layer_part(layer->qk, at), 0, h * d->d_qk, (h + 1) * d->d_qk);
}

/* ---- the KV cache of an attention layer, or its state ------------------- >>layer-attention-cache */

static void tni_attention_cache_free(tni_owned *o)
{
    tn_attention_cache *c = (tn_attention_cache *)(void *)o;
    tn_tensor_destroy(c->k);
    tn_tensor_destroy(c->v);
    tn_tensor_destroy(c->state);
    tni_object_free(o, sizeof *c);
}

void    tn_attention_cache_destroy(tn_attention_cache *c)    { if (c) tni_attention_cache_free(&c->owned); }
int64_t tn_attention_cache_past(const tn_attention_cache *c) { return c ? c->past : 0; }

size_t tn_attention_cache_bytes(const tn_attention_cache *c)
{
    if (!c) return 0;
    return (c->k ? c->k->bytes : 0) + (c->v ? c->v->bytes : 0) + (c->state ? c->state->bytes : 0);
}

void tn_attention_cache_reset(tn_attention_cache *c)
{
    if (!c || !tni_uncaptured(c->owned.ctx, "an attention cache is reset")) return;
    c->past = 0;
    c->broken = c->state && tni_fill(c->state, 0) != TN_OK;
}

static bool tni_attention_keeps_state(const tn_ctx *ctx, const tn_attention_desc *d, int64_t length, const int64_t *state,
                                      int64_t k_heads)
{
    const double wide = (double)tni_dtype_size(ctx->desc.dtype), size = (double)tni_dtype_size(ctx->desc.activations);
    if (d->kind != TN_ATTENTION_SQUARED && d->kind != TN_ATTENTION_BILINEAR) return false;
    if (d->form != TN_ATTEND_FORM_AUTO || d->window > 0) return d->form == TN_ATTEND_FORM_LINEAR;
    return wide * (double)d->heads * (double)state[2] * (double)state[3]
           < size * (double)length * ((double)k_heads * (double)d->d_qk + (double)d->heads * (double)d->d_v);
}

tn_attention_cache *tn_attention_cache_create(tn_ctx *ctx, const tn_attention *layer, int64_t batch, int64_t length)
{
    tn_attention_cache *c;
    int64_t             k[4], v[4], state[4];
    if (!tni_layer_given(ctx, layer, "attention cache") || !tni_usable(ctx, layer->qk, "attention cache", "qk")) return NULL;
    const tn_attention_desc *d = &layer->desc;
    if (d->bidirectional)
        return tni_fail(ctx, TN_ERR_ARG, "attention cache: the layer is bidirectional, expected a causal one: later tokens "
                        "would change earlier outputs"), (tn_attention_cache *)NULL;
    if (!tni_within(ctx, "attention cache", "batch", batch, 1, INT64_MAX)
        || !tni_within(ctx, "attention cache", "length", length, 1, INT64_MAX)) return NULL;
    if (!(c = (tn_attention_cache *)tni_object(ctx, sizeof *c, "attention cache", tni_attention_cache_free))) return NULL;
    c->desc = *d;
    c->batch = batch;
    c->length = length;
    k[0] = v[0] = state[0] = batch;
    k[1] = v[1] = length;
    k[2] = tni_attention_kinds[d->kind].sets * d->heads;
    v[2] = state[1] = d->heads;
    k[3] = d->d_qk;
    v[3] = d->d_v;
    state[2] = tni_attend_features(tni_attention_kinds[d->kind].attend, d->d_qk);
    state[3] = d->d_v + (d->row_scale == TN_ROW_SCALE_SUM);
    if (tni_attention_keeps_state(ctx, d, length, state, k[2]))
        c->state = tni_tensor_create(ctx, "attention cache", TN_REAL, 4, state);
    else if ((c->k = tni_tensor_create(ctx, "attention cache", ctx->desc.activations, 4, k)) != NULL)
        c->v = tni_tensor_create(ctx, "attention cache", ctx->desc.activations, 4, v);
    if (c->state || c->v) return c;
    return tn_attention_cache_destroy(c), (tn_attention_cache *)NULL;
}

static bool tni_attention_cache_fits(tn_ctx *ctx, const tn_attention *layer, const tn_tensor *x, const tn_attention_cache *c)
{
    const tn_attention_desc *d = &layer->desc, *made = c ? &c->desc : d;
    if (!c || c->owned.ctx != ctx)
        tni_fail(ctx, TN_ERR_ARG, "attention: the cache %s", c ? "belongs to another context" : "is NULL");
    else if (made->kind != d->kind || made->heads != d->heads || made->d_qk != d->d_qk || made->d_v != d->d_v
             || made->window != d->window || made->row_scale != d->row_scale)
        tni_fail(ctx, TN_ERR_ARG, "attention: the cache was made for another layer: kind %s, %lld heads, d_qk %lld, "
                 "d_v %lld, window %lld", tn_attention_kind_name(made->kind), (long long)made->heads, (long long)made->d_qk,
                 (long long)made->d_v, (long long)made->window);
    else if (tni_recording(ctx))
        tni_fail(ctx, TN_ERR_ARG, "attention: the context is recording, expected decoding without it");
    else if (!tni_uncaptured(ctx, "an attention cache is updated")) return false;
    else if (c->broken)
        tni_fail(ctx, TN_ERR_ARG, "attention: an earlier call failed while it updated the cache, which must be reset first");
    else if (x->shape[0] != c->batch)
        tni_fail(ctx, TN_ERR_SHAPE, "attention: x is %s, expected batch %lld as in the cache", TNI_SHAPE(x),
                 (long long)c->batch);
    else if (!c->state && x->shape[1] > c->length - c->past)
        tni_fail(ctx, TN_ERR_SHAPE, "attention: x has %lld positions after %lld in the cache, expected at most %lld in all",
                 (long long)x->shape[1], (long long)c->past, (long long)c->length);
    else return true;
    return false;
}

/* Rows of k or v from `from` on: those in the cache, followed by the new rows t. */
static tn_tensor *tni_attention_remember(tn_tensor *kept, tn_tensor *t, int64_t past, int64_t from)
{
    const int64_t to = past + t->shape[1];
    tn_tensor    *here = tn_slice(kept, 1, past, to);
    return here && tni_copy(here, t) == TN_OK ? tn_slice(kept, 1, from, to) : NULL;
}

tn_tensor *tn_attention_decode(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_attention_cache *c,
                               tn_tensor **values)
{
    tn_tensor *v, *own;
    if (!tni_attention_given(ctx, layer, x, "attention") || !tni_attention_cache_fits(ctx, layer, x, c)) return NULL;
    tn_attend_desc a = tni_attention_attend(&layer->desc);
    tn_tensor     *qk = tni_attention_qk(ctx, layer, x, c->past);
    v = own = qk ? tni_attention_v(ctx, layer, x, values ? *values : NULL) : NULL;
    if (!v) return NULL;
    int64_t    n = qk->shape[2] / 2;
    tn_tensor *q = tn_slice(qk, 2, 0, n);
    tn_tensor *k = q ? tn_slice(qk, 2, n, 2 * n) : NULL;
    if (c->state) {
        a.form = TN_ATTEND_FORM_LINEAR;
        a.state = c->state;
        a.past = c->past;
    } else if (k) {
        const int64_t from = a.window > 0 ? tni_max(c->past - a.window + 1, 0) : 0;     /* visible to the first new row */
        k = tni_attention_remember(c->k, k, c->past, from);
        v = k ? tni_attention_remember(c->v, v, c->past, from) : NULL;
    }
    if (!k || !v) return NULL;
    c->broken = c->state != NULL;
    tn_tensor *y = tni_attention_out(ctx, layer, tni_attention_heads(ctx, layer, &a, q, k, v, NULL));
    if (!y) return NULL;
    c->broken = false;
    c->past += x->shape[1];
    if (values && !*values) *values = own;
    return y;
}
#endif /* TN_NO_SEQUENCES */
