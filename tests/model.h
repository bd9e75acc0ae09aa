/* model.h: small transformers with one of everything, and their ids. */

#ifndef TN_MODEL_H
#define TN_MODEL_H

#include "kit.h"

static inline tn_transformer_desc tiny(void)
{
    tn_transformer_desc d = ZERO;
    d.vocab = 5;
    d.layers = 2;
    d.dim = 4;
    d.heads = 2;
    d.context = 7;
    d.hidden = 3;
    return d;
}

enum { VARIANTS = 24 };

/* Every attention, every norm and place, every option at least once. */
static inline tn_transformer_desc variant(int k, const char **what)
{
    tn_transformer_desc d = tiny();
    *what = "as it comes";
    switch (k) {
    case 1:  *what = "squared"; d.attention = TN_ATTENTION_SQUARED; d.mlp = TN_MLP_SWIGLU; break;
    case 2:  *what = "squared, linear form"; d.attention = TN_ATTENTION_SQUARED; d.form = TN_ATTEND_FORM_LINEAR; break;
    case 3:  *what = "squared, row sum"; d.attention = TN_ATTENTION_SQUARED; d.row_scale = TN_ROW_SCALE_SUM; d.attn_bias = true;
    break;
    case 4:  *what = "bilinear"; d.attention = TN_ATTENTION_BILINEAR; d.row_scale = TN_ROW_SCALE_MEAN; break;
    case 5:  *what = "bilinear, linear form, short rows";
             d.attention = TN_ATTENTION_BILINEAR; d.form = TN_ATTEND_FORM_LINEAR; d.row_length = 2; d.qk_norm = d.qk_gain = true; break;
    case 6:  *what = "differential"; d.attention = TN_ATTENTION_DIFFERENTIAL; d.d_qk = 3; d.d_v = 1; break;
    case 7:  *what = "plain differential"; d.attention = TN_ATTENTION_DIFFERENTIAL_PLAIN; d.lambda_init = 0.3; break;
    case 8:  *what = "LayerNorm, all biases, learned positions, tied, GELU of GPT-2";
             d.norm = TN_NORM_LAYER; d.norm_bias = true;
             d.attn_bias = d.attn_out_bias = d.mlp_bias = d.mlp_out_bias = d.tied = true;
             d.positions = TN_POSITIONS_LEARNED; d.mlp = TN_MLP_GELU_TANH; break;
    case 9:  *what = "modded-nanoGPT's residuals, soft-cap";
             d.x0_residual = d.value_residual = d.embed_norm = d.no_norm_gain = d.qk_norm = true;
             d.qk_norm_eps = 1e-5;
             d.softcap = 3; d.layers = 3; break;
    case 10: *what = "post norm"; d.norm_place = TN_PLACE_POST; d.norm = TN_NORM_LAYER; d.mlp = TN_MLP_SWISH; break;
    case 11: *what = "sandwich"; d.norm_place = TN_PLACE_SANDWICH; d.embed_norm = true; d.norm_eps = 0.01; break;
    case 12: *what = "no norm, no positions, scaled branches";
             d.no_norm = true; d.positions = TN_POSITIONS_NONE; d.attn_scale = TN_SCALE_DEPTH; d.mlp_scale = 0.7; break;
    case 13: *what = "three encoders"; d.mlp_order = 3; d.mlp_bias = d.mlp_out_bias = true; break;
    case 14: *what = "no projection"; d.hidden = 0; d.no_projection = true; break;
    case 15: *what = "window, tied, soft-cap"; d.window = 2; d.tied = true; d.softcap = 2; d.rope_base = 100; break;
    case 16: *what = "not causal"; d.bidirectional = true; d.head_norm = true; d.score_scale = 0.4; d.mlp = TN_MLP_GELU;
    break;
    case 17: *what = "one layer, one head, dim 1"; d.layers = d.heads = d.dim = d.context = 1; d.attn_out_bias = true; break;
    case 18: *what = "heads wider than the model"; d.d_qk = 5; d.d_v = 6; d.mlp = TN_MLP_GEGLU; break;
    case 19: *what = "value residual, bilinear attention, post norm, tied";
             d.attention = TN_ATTENTION_BILINEAR; d.value_residual = d.tied = true; d.norm_place = TN_PLACE_POST; break;
    case 20: *what = "linear MLP"; d.mlp_order = 1; d.hidden = 0; break;
    case 21: *what = "GLU, sandwich of LayerNorms without gain";
             d.mlp = TN_MLP_GLU; d.norm_place = TN_PLACE_SANDWICH; d.norm = TN_NORM_LAYER; d.norm_bias = true; d.no_norm_gain = true;
             break;
    case 22: *what = "blocks that differ in everything";
             d.layers = 3; d.hidden = 0; d.mlp_order = 3; d.row_scale = TN_ROW_SCALE_SUM; d.value_residual = true;
             d.attention_count = 3; d.attention_cycle[0] = TN_ATTENTION_DIFFERENTIAL;
             d.attention_cycle[1] = TN_ATTENTION_SQUARED; d.attention_cycle[2] = TN_ATTENTION_BILINEAR;
             d.window_count = 2; d.window_cycle[1] = 2;
             d.mlp_count = 2; d.mlp_cycle[1] = TN_MLP_SWIGLU; break;
    case 23: *what = "longer cycles than blocks, the linear form where it is possible";
             d.attention_count = 4; d.attention_cycle[1] = TN_ATTENTION_SQUARED; d.attention_cycle[3] = TN_ATTENTION_BILINEAR;
             d.form = TN_ATTEND_FORM_LINEAR; break;
    default: break;
    }
    return d;
}

/* Numbers that make every part matter: what begins as 0 or 1 hides its gradient. */
static inline bool stir(tn_params *ps, uint64_t seed, double size)
{
    for (int64_t i = 0; i < tn_params_count(ps); i++) {
        tn_tensor *t = tn_params_at(ps, i)->value;
        int64_t    n = tn_tensor_count(t);
        double    *v = (double *)malloc(sizeof *v * (size_t)n);
        bool       ok = CHECK(v != NULL) && CHECK_STATUS(tn_read(t, TN_F64, v, n), TN_OK);
        for (int64_t k = 0; ok && k < n; k++) v[k] += size * test_random_real(&seed);
        ok = ok && CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
        free(v);
        if (!ok) return false;
    }
    return true;
}

static inline tn_tensor *ids_of(tn_ctx *ctx, const tn_transformer_desc *d, int64_t texts, int64_t tokens, uint64_t seed)
{
    tn_tensor *t = tn_tensor_2d(ctx, TN_I32, texts, tokens);
    int32_t   *v = (int32_t *)malloc(sizeof *v * (size_t)(texts * tokens + 1));
    for (int64_t i = 0; i < texts * tokens; i++) v[i] = (int32_t)test_random_int(&seed, 0, d->vocab - 1);
    if (t) CHECK_STATUS(tn_write(t, TN_I32, v, texts * tokens), TN_OK);
    free(v);
    return t;
}

static inline bool model_on(world *w, tn_dtype dtype, const tn_transformer_desc *d, tn_transformer *m, uint64_t seed)
{
    if (!open_on(w, dtype, seed, 1, NULL)) return false;
    return CHECK_STATUS(tn_transformer_init(w->params, "", d, m), TN_OK) && stir(w->params, seed, 0.5);
}

#endif
