#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"

/* ---- mlp ---------------------------------------------------------------- >>layer-mlp-impl */

int         tn_mlp_encoders(tn_mlp_kind k)  { return (unsigned)k < TNI_MLP_KINDS ? tni_mlp_kinds[k].encoders : 0; }
const char *tn_mlp_kind_name(tn_mlp_kind k) { return (unsigned)k < TNI_MLP_KINDS ? tni_mlp_kinds[k].name : "?"; }

static tn_status tni_mlp_check(tn_params *ps, const char *name, tn_mlp_desc *d)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_status s = tni_layer_extents(ps, "mlp", name, "in", d->in, "hidden", d->hidden);
    if (s != TN_OK) return s;
    if ((unsigned)d->kind >= TNI_MLP_KINDS)
        return tni_fail(ctx, TN_ERR_ARG, "mlp%s%s: kind is %d, not a valid tn_mlp_kind", TNI_NAMED(name), (int)d->kind);
    if (d->kind != TN_MLP_BILINEAR && d->order != 0)
        return tni_fail(ctx, TN_ERR_ARG, "mlp%s%s: order is %lld, expected 0 for the kind %s: only bilinear has orders",
                        TNI_NAMED(name), (long long)d->order, tn_mlp_kind_name(d->kind));
    if (d->kind == TN_MLP_BILINEAR && d->order == 0) d->order = 2;
    if (d->order < 0)
        return tni_fail(ctx, TN_ERR_ARG, "mlp%s%s: order is %lld, expected 1 or more, or 0 for 2", TNI_NAMED(name),
                        (long long)d->order);
    s = tni_layer_projection(ctx, "mlp", name, d->in, d->hidden, &d->out, d->no_projection, d->out_bias);
    if (s != TN_OK) return s;
    if (d->residual && d->out != d->in)
        return tni_fail(ctx, TN_ERR_SHAPE, "mlp%s%s: out is %lld, expected in = %lld with residual", TNI_NAMED(name),
                        (long long)d->out,
                        (long long)d->in);
    return tni_layer_augmented(ctx, "mlp", name, d->augmented, d->bias || d->out_bias);
}

/* The rules of the encoders (fan-in `in`) and of P (fan-in `hidden`). With an order other than 2 the constant one counts as
   an input. */
static void tni_mlp_rules(const tn_mlp_desc *d, tn_init *in, tn_init *out)
{
    const bool         normal = d->kind == TN_MLP_BILINEAR && d->order != 2;
    const tn_init_rule usual = normal ? TN_INIT_NORMAL : TN_INIT_UNIFORM;
    const int64_t      one = normal && d->augmented;
    *in = tni_init_or(d->init, usual, d->in + one);
    *out = tni_init_or(d->init_out, usual, d->hidden + one);
}

TNI_COLD tn_status tn_mlp_init(tn_params *ps, const char *name, const tn_mlp_desc *desc, tn_mlp *layer)
{
    int64_t   before = tn_params_count(ps);
    tn_init   in, out;
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "mlp: layer or desc is NULL");
    tn_mlp_desc d = *desc;                                  /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if ((s = tni_mlp_check(ps, name, &d)) != TN_OK) return s;
    layer->desc = d;
    tni_mlp_rules(&d, &in, &out);
    int64_t shape[3] = {d.kind == TN_MLP_BILINEAR ? d.order : tn_mlp_encoders(d.kind), d.hidden, d.in + d.augmented};
    layer->w = tni_layer_param(ps, name, "w", 3, shape, in, true);
    if (layer->w && d.bias) layer->b = tni_layer_param(ps, name, "b", 2, shape, tni_init_bias(in), false);
    if (layer->w && !d.no_projection) layer->p = tni_layer_matrix(ps, name, "p", d.out, d.hidden + d.augmented, out);
    if (layer->p && d.out_bias) layer->pb = tni_layer_vector(ps, name, "pb", d.out, tni_init_bias(out));
    bool whole = layer->w && (layer->b || !d.bias) && (layer->p || d.no_projection) && (layer->pb || !d.out_bias);
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

/* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, where (1 + tanh z) / 2 is the sigmoid of 2 z. Hendrycks & Gimpel 2016 */
static tn_tensor *tni_gelu_tanh(tn_ctx *ctx, tn_tensor *x)
{
    const double c = 1.5957691216057308;                    /* 2 sqrt(2/pi) */
    tn_tensor   *cube = tn_mul(ctx, tn_mul(ctx, x, x), x);
    tn_tensor   *z = tn_add(ctx, tn_scale(ctx, x, c), tn_scale(ctx, cube, 0.044715 * c));
    return tn_mul(ctx, x, tn_activation(ctx, z, TN_ACT_SIGMOID));
}

/* The activation of a kind. */
TNI_FN tn_tensor *tni_mlp_act(tn_ctx *ctx, tn_mlp_kind kind, tn_tensor *x)
{
    if (kind == TN_MLP_GELU_TANH || kind == TN_MLP_GEGLU_TANH) return tni_gelu_tanh(ctx, x);
    return tn_activation(ctx, x, tni_mlp_kinds[kind].act);
}

/* From [.., W x | V x | ..] to [.., act(W x) * V x * ..]. */
TNI_FN tn_tensor *tni_mlp_hidden(tn_ctx *ctx, tn_mlp_kind kind, int64_t encoders, tn_tensor *y)
{
    if (kind == TN_MLP_GEGLU_TANH) {
        const int64_t h = y->shape[y->rank - 1] / 2;
        return tn_mul(ctx, tni_gelu_tanh(ctx, tn_slice(y, -1, 0, h)), tn_slice(y, -1, h, 2 * h));
    }
    if (encoders == 2) return tn_glu(ctx, y, tni_mlp_kinds[kind].act);
    if (kind == TN_MLP_BILINEAR) return encoders > 1 ? tn_prod_parts(ctx, y, encoders) : y;
    return tni_mlp_act(ctx, kind, y);
}

/* The results of the encoders [B,T,e h], shown as [B,T,e,h] */
static tn_tensor *tni_mlp_encoded(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *y, const tni_taps *taps)
{
    const int64_t e = layer->w->shape[0];
    if (!y || !tni_asked(taps, "mlp", ".encoders")) return y;       /* a model's x has rank 3 */
    int64_t shape[4] = {y->shape[0], y->shape[1], e, y->shape[2] / e};
    y = tni_shown(ctx, taps, "mlp", ".encoders", tn_reshape(y, 4, shape));
    shape[2] *= shape[3];
    return tn_reshape(y, 3, shape);
}

/* All encoders in one product: w [e,h,n] as [e h, n], the result as [.., W x | V x | ..]. */
TNI_FN tn_tensor *tni_mlp_tapped(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x, const tni_taps *taps)
{
    if (!tni_layer_given(ctx, layer, "mlp") || !tni_usable(ctx, layer->w, "mlp", "w")) return NULL;
    const tn_mlp_desc *d = &layer->desc;
    tn_tensor         *w = tn_reshape_2d(layer->w, -1, d->in + d->augmented);
    tn_tensor         *b = tn_reshape(layer->b, 1, TNI_DIMS(-1));
    if (!w || (layer->b && !b)) return NULL;
    tn_tensor *y = tni_mlp_encoded(ctx, layer, tn_affine(ctx, x, w, b), taps);
    if (!y) return NULL;
    y = tni_shown(ctx, taps, "mlp", ".hidden", tni_mlp_hidden(ctx, d->kind, layer->w->shape[0], y));
    if (y && layer->p) {
        if (d->augmented) y = tn_append_one(ctx, y);
        y = y ? tn_affine(ctx, y, layer->p, layer->pb) : NULL;
    }
    if (y && d->residual) y = tn_add(ctx, d->augmented ? tn_slice(x, -1, 0, d->in) : x, y);
    return y && d->augmented ? tn_append_one(ctx, y) : y;
}

tn_tensor *tn_mlp_forward(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x) { return tni_mlp_tapped(ctx, layer, x, NULL); }

/* Part i of the first axis of a stack of matrices [k,n,m]. */
TNI_FN tn_tensor *tni_layer_part(tn_tensor *stack, int64_t i)
{
    return tn_reshape_2d(tn_slice(stack, 0, i, i + 1), stack->shape[1], stack->shape[2]);
}

tn_tensor *tn_mlp_encoder(const tn_mlp *layer, int64_t e)
{
    if (!layer || !tni_alive(layer->w)) return NULL;
    return tni_within(layer->w->ctx, "mlp_encoder", "e", e, 0, layer->w->shape[0] - 1) ? tni_layer_part(layer->w, e) : NULL;
}

/* ---- quadratic ---------------------------------------------------------- >>layer-quadratic-impl */
tn_status tn_quadratic_init(tn_params *ps, const char *name, const tn_quadratic_desc *desc, tn_quadratic *layer)
{
    int64_t   shape[3], before = tn_params_count(ps);
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "quadratic: layer or desc is NULL");
    tn_quadratic_desc d = *desc;                            /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if ((s = tni_layer_extents(ps, "quadratic", name, "in", d.in, "out", d.out)) != TN_OK) return s;
    if (d.augmented && d.bias)
        return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "quadratic%s%s: bias is true, expected false with augmented: the "
                        "tensor holds the bias", TNI_NAMED(name));
    layer->desc = d;
    shape[0] = d.out;
    shape[1] = shape[2] = d.in + (d.bias || d.augmented);
    layer->t = tni_layer_param(ps, name, "t", 3, shape, tni_init_or(d.init, TN_INIT_NORMAL, shape[1] * shape[2]), true);
    return tni_layer_done(ps, before, layer->t != NULL, layer, sizeof *layer);
}

/* u[r,o,i] = sum_j T[o,i,j] x[r,j],  y[r,o] = sum_i u[r,o,i] x[r,i] */
tn_tensor *tn_quadratic_forward(tn_ctx *ctx, const tn_quadratic *layer, tn_tensor *x)
{
    int64_t shape[TN_MAX_RANK];
    if (!tni_layer_given(ctx, layer, "quadratic") || !tni_usable(ctx, layer->t, "quadratic", "t")) return NULL;
    int64_t out = layer->desc.out, n = layer->t->shape[2];
    if (x && layer->desc.bias) x = tn_append_one(ctx, x);
    if (!(x = tni_contiguous(ctx, x, "quadratic", "x"))) return NULL;
    tn_tensor *t = tn_reshape_2d(layer->t, out * n, n);
    tn_tensor *u = t ? tn_affine(ctx, x, t, NULL) : NULL;
    if (!u) return NULL;
    int rank = x->rank;
    memcpy(shape, x->shape, sizeof shape);
    shape[rank - 1] = out;
    int64_t rows = tni_rows_view(x).shape[0];
    int64_t cube[3] = {rows, out, n};
    u = tn_reshape(u, 3, cube);
    cube[1] = n; cube[2] = 1;
    x = tn_reshape(x, 3, cube);
    tn_tensor *y = tn_reshape(u && x ? tn_matmul(ctx, u, x) : NULL, rank, shape);
    return y && layer->desc.augmented ? tn_append_one(ctx, y) : y;
}

/* ---- modifier ----------------------------------------------------------- >>layer-modifier-impl */

static tn_status tni_modifier_check(tn_params *ps, const char *name, tn_modifier_desc *d)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_status s = tni_layer_extents(ps, "modifier", name, "in", d->in, "hidden", d->hidden);
    if (s != TN_OK) return s;
    if (d->rank < 0 || d->rank >= INT32_MAX)
        return tni_fail(ctx, TN_ERR_ARG, "modifier%s%s: rank is %lld, expected 0 to 2^31 - 2", TNI_NAMED(name),
                        (long long)d->rank);
    if (!(d->step == 0 || (d->step >= 1e-30 && d->step <= 1e30)))
        return tni_fail(ctx, TN_ERR_ARG, "modifier%s%s: step is %g, expected 0, or 1e-30 to 1e30", TNI_NAMED(name), d->step);
    if ((unsigned)d->penalty > TN_PENALTY_L2)
        return tni_fail(ctx, TN_ERR_ARG, "modifier%s%s: penalty is %d, not a valid tn_penalty", TNI_NAMED(name),
                        (int)d->penalty);
    return tni_layer_projection(ctx, "modifier", name, d->in, d->hidden, &d->out, d->no_projection, d->out_bias);
}

/* W, or A and B. */
static bool tni_modifier_init_w(tn_params *ps, const char *name, tn_modifier *m, tn_init init)
{
    const tn_modifier_desc *d = &m->desc;
    const tn_init           zero = tni_init_or(d->init_w, TN_INIT_ZERO, d->rank > 0 ? d->rank : d->in);
    if (d->rank == 0) return (m->w = tni_layer_matrix(ps, name, "w", d->hidden, d->in, zero)) != NULL;
    m->wa = tni_layer_matrix(ps, name, "wa", d->hidden, d->rank, zero);
    if (m->wa) m->wb = tni_layer_matrix(ps, name, "wb", d->rank, d->in, init);
    return m->wb != NULL;
}

tn_status tn_modifier_init(tn_params *ps, const char *name, const tn_modifier_desc *desc, tn_modifier *layer)
{
    int64_t   before = tn_params_count(ps);
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "modifier: layer or desc is NULL");
    tn_modifier_desc d = *desc;                             /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if ((s = tni_modifier_check(ps, name, &d)) != TN_OK) return s;
    layer->desc = d;
    tn_init in = tni_init_or(d.init, TN_INIT_NORMAL, d.in);
    tn_init out = tni_init_or(d.init_out, TN_INIT_NORMAL, d.hidden);
    bool    whole = (layer->v = tni_layer_matrix(ps, name, "v", d.hidden, d.in, in)) != NULL;
    if (whole && d.bias) whole = (layer->c = tni_layer_vector(ps, name, "c", d.hidden, tni_init_bias(in))) != NULL;
    if (whole && !d.no_projection) whole = (layer->p = tni_layer_matrix(ps, name, "p", d.out, d.hidden, out)) != NULL;
    if (whole && d.out_bias) whole = (layer->pb = tni_layer_vector(ps, name, "pb", d.out, tni_init_bias(out))) != NULL;
    if (whole) whole = tni_modifier_init_w(ps, name, layer, in);    /* last: one seed gives the same V and P for any W */
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

static tn_tensor *tni_modifier_penalty(tn_ctx *ctx, tn_penalty kind, tn_tensor *z)
{
    z = kind == TN_PENALTY_L2 ? tn_mul(ctx, z, z) : tn_activation(ctx, z, TN_ACT_ABS);
    return z ? tn_mean(ctx, z) : NULL;
}

/* y = v + z * v,  z = W x,  v = V x + c */
tn_tensor *tn_modifier_forward(tn_ctx *ctx, const tn_modifier *layer, tn_tensor *x, tn_tensor **penalty)
{
    if (penalty) *penalty = NULL;
    if (!tni_layer_given(ctx, layer, "modifier") || !tni_is_real(ctx, x, "modifier", "x")) return NULL;
    const tn_modifier_desc *d = &layer->desc;
    tn_tensor              *z = d->rank > 0 ? tn_affine(ctx, x, layer->wb, NULL) : x;
    z = z ? tn_affine(ctx, z, d->rank > 0 ? layer->wa : layer->w, NULL) : NULL;
    if (!z || (penalty && !(*penalty = tni_modifier_penalty(ctx, d->penalty, z)))) return NULL;
    if (d->step > 0) {
        z = tn_activation(ctx, tn_scale(ctx, z, 1 / d->step), TN_ACT_ROUND);
        z = z ? tn_scale(ctx, z, d->step) : NULL;
    }
    tn_tensor *v = tn_affine(ctx, x, layer->v, layer->c);
    z = z && v ? tn_mul(ctx, z, v) : NULL;
    v = z ? tn_add(ctx, v, z) : NULL;
    return v && layer->p ? tn_affine(ctx, v, layer->p, layer->pb) : v;
}
