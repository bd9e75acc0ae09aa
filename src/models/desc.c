#include "core/inner.h"
#include "ops/ops.h"
#include "layers/inner.h"
#include "models/inner.h"

#ifndef TN_NO_MODELS
/* ======================================================================
   >>models-impl  transformers
   A desc is checked and completed in one place; counting, init and config.json all begin there. Blocks are
   layers; decoding keeps what attention has read; maps bring the weights of other programs.
   ====================================================================== */

/* ---- the desc ----------------------------------------------------------- >>model-desc */

static int64_t tni_transformer_encoders(const tn_transformer_desc *d)
{
    return d->mlp_order > 0 ? d->mlp_order : tn_mlp_encoders(d->mlp);
}

/* An extent between 1 and 2^31 - 2, or an error that names it. */
static bool tni_extent_given(tn_ctx *ctx, const char *what, int64_t n)
{
    if (tni_is_extent(n)) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "transformer: %s is %lld, expected 1 to 2^31 - 2", what, (long long)n), false;
}

/* Checks for 0, the default, or a positive number that is finite. */
static bool tni_positive_or_0(tn_ctx *ctx, const char *what, double v)
{
    if (v >= 0 && v <= 1e30) return true;
    return tni_fail(ctx, TN_ERR_ARG, "transformer: %s is %g, expected 0 to 1e30", what, v), false;
}

TNI_COLD_FN bool tni_contradiction(tn_ctx *ctx, bool is, const char *what)
{
    if (is) tni_fail(ctx, TN_ERR_ARG, "transformer: %s", what);
    return is;
}

/* ---- blocks that differ: the desc as one block sees it ------------------- >>model-cycles */

static int64_t tni_lcm(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) { const int64_t rest = x % y; x = y; y = rest; }
    return a / x * b;
}

/* The shortest cycle that gives the same blocks. */
static int64_t tni_cycle_shortest(const void *list, size_t bytes, int64_t count, int64_t layers)
{
    const char   *at = (const char *)list;
    const int64_t n = tni_min(count, layers);
    int64_t       i;
    for (int64_t p = 1; p < n; p++) {
        if (n < layers && n % p != 0) continue;
        for (i = 0; i < n && memcmp(at + (size_t)i * bytes, at + (size_t)(i % p) * bytes, bytes) == 0; i++) {}
        if (i == n) return p;
    }
    return n;
}

/* Gives descs of the same blocks the same bytes: the shortest cycles, a cycle of one as that kind, zeros after the end. */
static void tni_cycles_tidy(tn_transformer_desc *d)
{
#define TNI_TIDY(cycle, count, one) \
    count = tni_cycle_shortest(cycle, sizeof *cycle, count, d->layers); \
    if (count == 1) { one = cycle[0]; count = 0; } \
    memset(cycle + count, 0, sizeof cycle - (size_t)count * sizeof *cycle);
    TNI_TIDY(d->attention_cycle, d->attention_count, d->attention)
    TNI_TIDY(d->window_cycle, d->window_count, d->window)
    TNI_TIDY(d->mlp_cycle, d->mlp_count, d->mlp)
#undef TNI_TIDY
}

/* Block l + period is like block l. */
static int64_t tni_block_period(const tn_transformer_desc *d)
{
    const int64_t kinds = tni_lcm(tni_max(d->attention_count, 1), tni_max(d->mlp_count, 1));
    return tni_min(tni_lcm(kinds, tni_max(d->window_count, 1)), d->layers);
}

/* Whether that attention can use a form or row scale which is not the default. */
TNI_COLD_FN bool tni_takes_form(tn_attention_kind k) { return k == TN_ATTENTION_SQUARED || k == TN_ATTENTION_BILINEAR; }
static bool tni_takes_row(tn_attention_kind k, tn_row_scale row)
{
    return k == TN_ATTENTION_SQUARED || (k == TN_ATTENTION_BILINEAR && row != TN_ROW_SCALE_SUM);
}

/* The desc of a model whose blocks are all like block l: without settings that only other blocks can use, and with the width
   of its own MLP. */
TNI_COLD_FN tn_transformer_desc tni_block_desc(const tn_transformer_desc *d, int64_t l)
{
    tn_transformer_desc b = *d;
    bool                form = false, row = false, order = false;       /* that another block can use */
    for (int64_t i = 0; i < d->attention_count; i++) {
        form = form || tni_takes_form(d->attention_cycle[i]);
        row = row || tni_takes_row(d->attention_cycle[i], d->row_scale);
    }
    for (int64_t i = 0; i < d->mlp_count; i++) order = order || d->mlp_cycle[i] == TN_MLP_BILINEAR;
    if (d->attention_count) b.attention = d->attention_cycle[l % d->attention_count];
    if (d->window_count) b.window = d->window_cycle[l % d->window_count];
    if (d->mlp_count) b.mlp = d->mlp_cycle[l % d->mlp_count];
    b.attention_count = b.window_count = b.mlp_count = 0;
    if (form && !tni_takes_form(b.attention)) b.form = TN_ATTEND_FORM_AUTO;
    if (row && !tni_takes_row(b.attention, b.row_scale)) b.row_scale = TN_ROW_SCALE_DEFAULT;
    if (order && b.mlp != TN_MLP_BILINEAR) b.mlp_order = 0;
    int64_t k = tni_transformer_encoders(&b);
    if (b.hidden == 0)
        b.hidden = b.no_projection ? b.dim : k == 1 ? 4 * b.dim : tni_max((8 * b.dim / (k + 1) + 4) / 8 * 8, 8);
    return b;
}

/* ---- checking a desc ----------------------------------------------------- >>model-check */

static bool tni_transformer_known(tn_ctx *ctx, const tn_transformer_desc *d)
{
    const char *what = "transformer";
    return tni_within(ctx, what, "mlp", (int64_t)d->mlp, 0, (int64_t)TNI_MLP_KINDS - 1)
        && tni_within(ctx, what, "attention", (int64_t)d->attention, 0, TN_ATTENTION_DIFFERENTIAL_PLAIN)
        && tni_within(ctx, what, "positions", (int64_t)d->positions, 0, TN_POSITIONS_NONE)
        && tni_within(ctx, what, "norm", (int64_t)d->norm, 0, TN_NORM_LAYER)
        && tni_within(ctx, what, "place", (int64_t)d->norm_place, 0, TN_PLACE_SANDWICH)
        && tni_within(ctx, what, "init", (int64_t)d->init, 0, TN_INIT_HE);
}

static bool tni_transformer_numbers(tn_ctx *ctx, const tn_transformer_desc *d)
{
    return tni_positive_or_0(ctx, "score_scale", d->score_scale) && tni_positive_or_0(ctx, "lambda_init", d->lambda_init)
        && tni_positive_or_0(ctx, "rope_base", d->rope_base) && tni_positive_or_0(ctx, "norm_eps", d->norm_eps)
        && tni_positive_or_0(ctx, "qk_norm_eps", d->qk_norm_eps)
        && (d->attn_scale == TN_SCALE_DEPTH || tni_positive_or_0(ctx, "attn_scale", d->attn_scale))
        && (d->mlp_scale == TN_SCALE_DEPTH || tni_positive_or_0(ctx, "mlp_scale", d->mlp_scale))
        && tni_positive_or_0(ctx, "softcap", d->softcap) && tni_positive_or_0(ctx, "init_std", d->init_std)
        && tni_positive_or_0(ctx, "embed_std", d->embed_std) && tni_positive_or_0(ctx, "embed_noise", d->embed_noise);
}

static bool tni_transformer_extents(tn_ctx *ctx, tn_transformer_desc *d)
{
    if (d->row_length == 0) d->row_length = d->context;
    if (!tni_extent_given(ctx, "hidden", d->hidden) || !tni_extent_given(ctx, "row_length", d->row_length)) return false;
    if (!d->no_projection || d->hidden == d->dim) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "transformer: hidden is %lld, expected dim = %lld with no_projection",
                    (long long)d->hidden, (long long)d->dim), false;
}

static bool tni_transformer_sound(tn_ctx *ctx, const tn_transformer_desc *d)
{
    return !tni_contradiction(ctx, d->mlp_order > 0 && d->mlp != TN_MLP_BILINEAR, "mlp_order is given, expected 0: not bilinear")
        && !tni_contradiction(ctx, d->no_projection && d->mlp_out_bias,
                              "mlp_out_bias is true, expected false with no_projection: it is the projection's")
        && !tni_contradiction(ctx, d->no_norm && d->norm_place != TN_PLACE_PRE, "norm_place is given, expected 0 with no_norm")
        && !tni_contradiction(ctx, d->no_norm && d->embed_norm, "embed_norm is true, expected false with no_norm")
        && !tni_contradiction(ctx, d->norm_bias && d->norm != TN_NORM_LAYER,
                              "norm_bias is true, expected false: only TN_NORM_LAYER has one")
        && !tni_contradiction(ctx, d->tied && d->zero_head,
                              "zero_head is true, expected false with tied: the embedding would be zero");
}

/* The init of a matrix; `out`: it writes to the residual stream. */
TNI_COLD_FN tn_init tni_transformer_rule(const tn_transformer_desc *d, bool out)
{
    tn_init init = TNI_ZERO;
    init.rule = d->init;
    init.std = d->init_std;
    if (d->init == TN_INIT_DEFAULT) {
        init.rule = TN_INIT_NORMAL;
        if (d->init_std == 0) init.std = 0.02;
        if (out) init.std /= sqrt(2.0 * (double)d->layers);
    }
    if (out && d->zero_out) init.rule = TN_INIT_ZERO;
    return init;
}

TNI_COLD_FN tn_attention_desc tni_model_attention(const tn_transformer_desc *d, int64_t depth)
{
    tn_attention_desc a = TNI_ZERO;
    a.dim = d->dim;
    a.heads = d->heads;
    a.d_qk = d->d_qk;
    a.d_v = d->d_v;
    a.kind = d->attention;
    a.form = d->form;
    a.bidirectional = d->bidirectional;
    a.window = d->window;
    a.no_rope = d->positions != TN_POSITIONS_ROPE;
    a.rope_base = d->rope_base;
    a.rope_scaling = d->rope_scaling;
    a.qk_norm = d->qk_norm;
    a.qk_gain = d->qk_gain;
    a.qk_norm_eps = d->qk_norm_eps;
    a.row_scale = d->row_scale;
    a.row_length = d->row_length;
    a.scale = d->score_scale;
    a.head_norm = d->head_norm;
    a.lambda_init = d->lambda_init;
    a.depth = depth;
    a.bias = d->attn_bias;
    a.out_bias = d->attn_out_bias;
    a.mix_values = d->value_residual && depth > 0;
    a.init = tni_transformer_rule(d, false);
    a.init_out = tni_transformer_rule(d, true);
    return a;
}

/* Checks the attention and the number of parameters, and fills in the extents of the heads. */
static tn_status tni_transformer_fits(tn_ctx *ctx, tn_transformer_desc *d)
{
    tn_attention_desc a = tni_model_attention(d, 0);
    const tn_status   s = tni_attention_check(ctx, "of the transformer", &a);
    const double      wide = (double)d->heads * (8.0 * (double)a.d_qk + 2.0 * (double)a.d_v);
    const double      deep = (1.0 + (double)tni_transformer_encoders(d)) * (double)d->hidden;
    const double      all = (double)d->dim * ((double)d->layers * (wide + deep) + 2.0 * (double)d->vocab
                                              + (double)d->context);
    if (s != TN_OK) return s;
    d->d_qk = a.d_qk;
    d->d_v = a.d_v;
    if (all < 1e18) return TN_OK;
    return tni_fail(ctx, TN_ERR_SHAPE, "transformer: the model has about %g parameters, expected less than 1e18", all);
}

/* Checks the desc of a model whose blocks are all alike, and fills in its defaults. */
static tn_status tni_transformer_alike(tn_ctx *ctx, tn_transformer_desc *d)
{
    const double depth = 1 / sqrt(2.0 * (double)d->layers);
    tn_status    s;
    if (!tni_transformer_known(ctx, d) || !tni_transformer_numbers(ctx, d) || !tni_transformer_sound(ctx, d))
        return TN_ERR_ARG;
    if (!tni_within(ctx, "transformer", "mlp_order", d->mlp_order, 0, 64)
        || !tni_within(ctx, "transformer", "window", d->window, 0, INT64_MAX)) return TN_ERR_ARG;
    if (!(d->dropout >= 0 && d->dropout < 1))
        return tni_fail(ctx, TN_ERR_ARG, "transformer: dropout is %g, expected 0 <= dropout < 1", d->dropout);
    if (!tni_transformer_extents(ctx, d)) return TN_ERR_SHAPE;
    if ((s = tni_transformer_fits(ctx, d)) != TN_OK) return s;
    if (d->mlp_order == 2) d->mlp_order = 0;                        /* the bilinear MLP itself */
    if (d->attn_scale <= 0) d->attn_scale = d->attn_scale == 0 ? 1 : depth;
    if (d->mlp_scale <= 0) d->mlp_scale = d->mlp_scale == 0 ? 1 : depth;
    if (d->rope_base == 0) d->rope_base = 10000;
    if (d->norm_eps == 0) d->norm_eps = 1e-5;
    if (d->qk_norm_eps == 0) d->qk_norm_eps = 1e-6;
    return TN_OK;
}

/* Checks each kind of block. *d becomes the first block's desc with the cycles and what the blocks do not share. */
static tn_status tni_transformer_cycles(tn_ctx *ctx, tn_transformer_desc *d)
{
    const tn_transformer_desc given = *d;
    const int64_t             period = tni_block_period(d);
    tn_transformer_desc       b;
    for (int64_t l = 0; l < period; l++) {
        tn_status s;
        b = tni_block_desc(&given, l);
        if ((s = tni_transformer_alike(ctx, &b)) != TN_OK) return s;
        if (l == 0) *d = b;
        if (b.hidden != d->hidden) d->hidden = given.hidden;
        if (b.d_qk != d->d_qk) d->d_qk = given.d_qk;
    }
    d->row_scale = given.row_scale;
    d->form = given.form;
    d->mlp_order = given.mlp_order == 2 ? 0 : given.mlp_order;
    d->attention_count = given.attention_count;
    d->window_count = given.window_count;
    d->mlp_count = given.mlp_count;
    return TN_OK;
}

TNI_COLD tn_status tn_transformer_check(tn_ctx *ctx, const tn_transformer_desc *desc, tn_transformer_desc *out)
{
    tn_status s;
    if (!desc) return tni_fail(ctx, TN_ERR_ARG, "transformer: desc is NULL");
    tn_transformer_desc d = *desc;
    if (!tni_extent_given(ctx, "vocab", d.vocab) || !tni_extent_given(ctx, "layers", d.layers)
        || !tni_extent_given(ctx, "dim", d.dim) || !tni_extent_given(ctx, "heads", d.heads)
        || !tni_extent_given(ctx, "context", d.context)) return TN_ERR_SHAPE;
    if (!tni_within(ctx, "transformer", "attention_count", d.attention_count, 0, TN_MAX_CYCLE)
        || !tni_within(ctx, "transformer", "window_count", d.window_count, 0, TN_MAX_CYCLE)
        || !tni_within(ctx, "transformer", "mlp_count", d.mlp_count, 0, TN_MAX_CYCLE)) return TN_ERR_ARG;
    tni_cycles_tidy(&d);
    if ((s = tni_transformer_cycles(ctx, &d)) == TN_OK && out) *out = d;
    return s;
}

/* ---- parameters and floating-point operations --------------------------- >>model-cost */

static int64_t tni_norm_numbers(const tn_transformer_desc *d)
{
    if (d->no_norm) return 0;
    return d->dim * (!d->no_norm_gain + d->norm_bias);
}

/* A block's parameters: those of matrices that multiply, and all others. */
static void tni_block_numbers(const tn_transformer_desc *d, int64_t *matrices, int64_t *rest)
{
    const int64_t k = tni_transformer_encoders(d), norms = d->norm_place == TN_PLACE_SANDWICH ? 4 : 2;
    const int64_t qk = 2 * tni_attention_kinds[d->attention].sets * d->heads * d->d_qk, v = d->heads * d->d_v;
    *matrices = (qk + 2 * v) * d->dim + (k + !d->no_projection) * d->hidden * d->dim;
    *rest = norms * tni_norm_numbers(d);
    if (d->attn_bias) *rest += qk + v;
    if (d->attn_out_bias) *rest += d->dim;
    if (d->attention == TN_ATTENTION_DIFFERENTIAL) *rest += 4 * d->d_qk;
    if (d->attention == TN_ATTENTION_DIFFERENTIAL_PLAIN) *rest += 1;
    if (d->mlp_bias) *rest += k * d->hidden;
    if (d->mlp_out_bias) *rest += d->dim;
    if (d->x0_residual) *rest += 2;
    if (d->qk_gain) *rest += 2 * tni_attention_kinds[d->attention].sets * d->d_qk;
}

/* For one head and one query. Linear form: reading the state and adding to it take F d_v multiply-adds each. */
static double tni_score_flops(const tn_transformer_desc *d, double keys)
{
    const double s = tni_attention_kinds[d->attention].sets, dk = (double)d->d_qk, dv = (double)d->d_v;
    const double features = d->attention == TN_ATTENTION_SQUARED ? dk * (dk + 1) / 2 : dk * dk;
    if (d->form == TN_ATTEND_FORM_LINEAR) return 4 * dv * features;
    return keys * (2 * s * dk + 2 * (tni_attention_kinds[d->attention].differential ? 2 : 1) * dv);
}

/* The number of visible keys, as a mean over the T queries of a text. */
static double tni_mean_keys(const tn_transformer_desc *d, int64_t T)
{
    const double t = (double)T, w = d->window > 0 && d->window < T ? (double)d->window : t;
    const double back = w * t - w * (w - 1) / 2;                     /* sum over the positions of min(i + 1, w) */
    if (T < 1) return 0;
    return (d->bidirectional ? 2 * back - t : back) / t;
}

tn_transformer_cost tn_transformer_cost_of(const tn_transformer_desc *desc, int64_t T)
{
    tn_transformer_desc d, b;
    int64_t             matrices, rest;
    tn_transformer_cost c = TNI_ZERO;
    if (T < 0 || tn_transformer_check(NULL, desc, &d) != TN_OK) return c;
    c.table = (d.vocab + (d.positions == TN_POSITIONS_LEARNED ? d.context : 0)) * d.dim;
    c.params = c.table + (d.value_residual ? 2 * (d.layers - 1) : 0) + (d.tied ? 0 : d.vocab * d.dim)
             + (d.embed_norm + (d.norm_place != TN_PLACE_POST)) * tni_norm_numbers(&d);
    c.weights = 2.0 * (double)d.vocab * (double)d.dim;
    for (int64_t l = 0, period = tni_block_period(&d); l < period; l++) {
        b = tni_block_desc(&d, l);
        tni_transformer_alike(NULL, &b);
        tni_block_numbers(&b, &matrices, &rest);
        int64_t alike = (d.layers - l - 1) / period + 1;
        c.params += alike * (matrices + rest);
        c.weights += 2.0 * (double)alike * (double)matrices;
        c.scores += (double)alike * (double)d.heads * tni_score_flops(&b, tni_mean_keys(&b, T));
    }
    c.forward = c.weights + c.scores;
    c.training = 3 * c.forward;
    return c;
}

#endif /* TN_NO_MODELS */
