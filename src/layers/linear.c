#include "core/inner.h"
#include "tensor/tensor.h"
#include "ops/inner.h"
#include "layers/inner.h"

/* ---- linear ------------------------------------------------------------- >>layer-linear-impl */
tn_status tn_linear_init(tn_params *ps, const char *name, const tn_linear_desc *desc, tn_linear *layer)
{
    int64_t   before = tn_params_count(ps);
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "linear: layer or desc is NULL");
    tn_linear_desc d = *desc;                               /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if ((s = tni_layer_extents(ps, "linear", name, "in", d.in, "out", d.out)) != TN_OK) return s;
    if ((s = tni_layer_augmented(tn_params_ctx(ps), "linear", name, d.augmented, d.bias)) != TN_OK) return s;
    layer->desc = d;
    tn_init init = tni_init_or(d.init, TN_INIT_UNIFORM, d.in);
    layer->w = tni_layer_matrix(ps, name, "w", d.out, d.in + d.augmented, init);
    if (layer->w && d.bias) layer->b = tni_layer_vector(ps, name, "b", d.out, tni_init_bias(init));
    return tni_layer_done(ps, before, layer->w && (layer->b || !d.bias), layer, sizeof *layer);
}

tn_tensor *tn_linear_forward(tn_ctx *ctx, const tn_linear *layer, tn_tensor *x)
{
    if (!tni_layer_given(ctx, layer, "linear")) return NULL;
    tn_tensor *y = tn_affine(ctx, x, layer->w, layer->b);
    return y && layer->desc.augmented ? tn_append_one(ctx, y) : y;
}

/* ---- embedding ---------------------------------------------------------- >>layer-embedding-impl */
tn_status tn_embedding_init(tn_params *ps, const char *name, const tn_embedding_desc *desc, tn_embedding *layer)
{
    int64_t   before = tn_params_count(ps);
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "embedding: layer or desc is NULL");
    tn_embedding_desc d = *desc;                            /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if ((s = tni_layer_extents(ps, "embedding", name, "count", d.count, "dim", d.dim)) != TN_OK) return s;
    layer->desc = d;
    tn_init init = tni_init_or(d.init, TN_INIT_NORMAL, 1);
    layer->w = tni_layer_matrix(ps, name, "w", d.count, d.dim, init);
    tni_layer_adamw(ps, layer->w);
    return tni_layer_done(ps, before, layer->w != NULL, layer, sizeof *layer);
}

tn_tensor *tn_embedding_forward(tn_ctx *ctx, const tn_embedding *layer, tn_tensor *ids)
{
    return tni_layer_given(ctx, layer, "embedding") ? tn_embed(ctx, layer->w, ids) : NULL;
}

/* ---- points that a layer shows to the taps of a run, see >>model-run ------ >>layer-points */

TNI_FN tni_point_name tni_point_named(int64_t block, const char *part, const char *point)
{
    tni_point_name n;
    if (block < 0) tni_print(n.s, sizeof n.s, "%s%s", part, point);
    else tni_print(n.s, sizeof n.s, "blocks.%lld%s%s%s", (long long)block, *part ? "." : "", part, point);
    return n;
}

TNI_FN bool tni_asked(const tni_taps *taps, const char *part, const char *point)
{
    return taps && taps->asks(taps, tni_point_named(taps->block, part, point).s);
}

/* x, or what a tap returns instead. Without taps this is x. */
TNI_FN tn_tensor *tni_shown(tn_ctx *ctx, const tni_taps *taps, const char *part, const char *point, tn_tensor *x)
{
    return taps && x ? taps->show(ctx, taps, tni_point_named(taps->block, part, point).s, x) : x;
}

/* ---- norm --------------------------------------------------------------- >>layer-norm-impl */
tn_status tn_norm_init(tn_params *ps, const char *name, const tn_norm_desc *desc, tn_norm *layer)
{
    int64_t   before = tn_params_count(ps);
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "norm: layer or desc is NULL");
    tn_norm_desc d = *desc;                                 /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    tn_init ones = TNI_ZERO;
    ones.rule = TN_INIT_ONE;
    if ((s = tni_layer_extents(ps, "norm", name, "dim", d.dim, "", 1)) != TN_OK) return s;
    if ((unsigned)d.kind > TN_NORM_LAYER)
        return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "norm%s%s: kind is %d, not a valid tn_norm_kind", TNI_NAMED(name),
                        (int)d.kind);
    if (d.bias && d.kind != TN_NORM_LAYER)
        return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "norm%s%s: bias is true, expected false: only TN_NORM_LAYER has one",
                        TNI_NAMED(name));
    if (!tni_is_eps(tn_params_ctx(ps), d.eps, "norm")) return TN_ERR_ARG;
    layer->desc = d;
    if (layer->desc.eps == 0) layer->desc.eps = 1e-5;
    if (!d.no_gain) layer->gain = tni_layer_vector(ps, name, "gain", d.dim, ones);
    bool whole = layer->gain || d.no_gain;
    ones.rule = TN_INIT_ZERO;
    if (whole && d.bias) layer->bias = tni_layer_vector(ps, name, "bias", d.dim, ones);
    return tni_layer_done(ps, before, whole && (layer->bias || !d.bias), layer, sizeof *layer);
}

tn_tensor *tn_norm_forward(tn_ctx *ctx, const tn_norm *layer, tn_tensor *x)
{
    if (!tni_layer_given(ctx, layer, "norm")) return NULL;
    return layer->desc.kind == TN_NORM_LAYER ? tn_layernorm(ctx, x, layer->gain, layer->bias, layer->desc.eps)
                                             : tn_rmsnorm(ctx, x, layer->gain, layer->desc.eps);
}

/* [..,c] -> [..,1] */
TNI_FN tn_tensor *tni_mean_of_rows(tn_ctx *ctx, tn_tensor *x)
{
    int64_t    shape[TN_MAX_RANK];
    tn_tensor *sum = x ? tn_sum_axis(ctx, x, -1) : NULL;
    if (!sum) return NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = 1;
    sum = tn_reshape(sum, x->rank, shape);
    return sum ? tn_scale(ctx, sum, 1 / (double)x->shape[x->rank - 1]) : NULL;
}

/* The norm `part` of x. If the scale is asked for it is computed by ops, and, if it is replaced, so is the norm. */
TNI_FN tn_tensor *tni_norm_tapped(tn_ctx *ctx, const tn_norm *layer, tn_tensor *x, const tni_taps *taps, const char *part)
{
    const tn_dtype made = ctx->made;
    tn_tensor     *z = x;
    if (!x || !tni_asked(taps, part, ".scale")) return x ? tn_norm_forward(ctx, layer, x) : NULL;
    ctx->made = ctx->desc.dtype;                        /* statistics are not rounded to BF16 */
    if (layer->desc.kind == TN_NORM_LAYER) z = tn_sub(ctx, x, tni_mean_of_rows(ctx, x));
    tn_tensor *scale = tni_mean_of_rows(ctx, z ? tn_mul(ctx, z, z) : NULL);
    scale = scale ? tn_sqrt(ctx, tn_add(ctx, scale, tn_full(ctx, 1, TNI_DIMS(1), layer->desc.eps))) : NULL;
    scale = scale ? tn_div(ctx, tn_full(ctx, 1, TNI_DIMS(1), 1), scale) : NULL;
    ctx->made = made;
    tn_tensor *shown = tni_shown(ctx, taps, part, ".scale", scale);
    if (!shown) return NULL;
    if (shown == scale) return tn_norm_forward(ctx, layer, x);
    ctx->made = ctx->desc.dtype;
    x = tn_mul(ctx, z, shown);
    if (layer->gain) x = tn_mul(ctx, x, layer->gain);
    if (layer->bias) x = tn_add(ctx, x, layer->bias);
    ctx->made = made;
    return x && made != x->dtype ? tn_cast(ctx, x, made) : x;
}
