#include "core/inner.h"
#include "models/inner.h"

#ifndef TN_NO_MODELS
/* ---- maps of names ------------------------------------------------------ >>model-maps */

const tn_name_map *tn_name_map_gpt2(int64_t *count)
{
#define TNI_MAP(file, param, transpose, fp, fps, p, ps) \
    {"transformer." file "|" file, param, transpose, fp, fps, p, ps, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false}
    static const tn_name_map map[] = {
        TNI_MAP("wte.weight", "embed.w", false, 0, 0, 0, 0),
        TNI_MAP("wpe.weight", "position.w", false, 0, 0, 0, 0),
        TNI_MAP("h.{l}.ln_1.weight", "blocks.{l}.norm1.gain", false, 0, 0, 0, 0),
        TNI_MAP("h.{l}.ln_1.bias", "blocks.{l}.norm1.bias", false, 0, 0, 0, 0),
        TNI_MAP("h.{l}.attn.c_attn.weight", "blocks.{l}.attn.qk", true, 0, 3, 0, 2),
        TNI_MAP("h.{l}.attn.c_attn.weight", "blocks.{l}.attn.qk", true, 1, 3, 1, 2),
        TNI_MAP("h.{l}.attn.c_attn.weight", "blocks.{l}.attn.v", true, 2, 3, 0, 0),
        TNI_MAP("h.{l}.attn.c_attn.bias", "blocks.{l}.attn.qk_b", false, 0, 3, 0, 2),
        TNI_MAP("h.{l}.attn.c_attn.bias", "blocks.{l}.attn.qk_b", false, 1, 3, 1, 2),
        TNI_MAP("h.{l}.attn.c_attn.bias", "blocks.{l}.attn.v_b", false, 2, 3, 0, 0),
        TNI_MAP("h.{l}.attn.c_proj.weight", "blocks.{l}.attn.o", true, 0, 0, 0, 0),
        TNI_MAP("h.{l}.attn.c_proj.bias", "blocks.{l}.attn.o_b", false, 0, 0, 0, 0),
        TNI_MAP("h.{l}.ln_2.weight", "blocks.{l}.norm2.gain", false, 0, 0, 0, 0),
        TNI_MAP("h.{l}.ln_2.bias", "blocks.{l}.norm2.bias", false, 0, 0, 0, 0),
        TNI_MAP("h.{l}.mlp.c_fc.weight", "blocks.{l}.mlp.w", true, 0, 0, 0, 0),
        TNI_MAP("h.{l}.mlp.c_fc.bias", "blocks.{l}.mlp.b", false, 0, 0, 0, 0),
        TNI_MAP("h.{l}.mlp.c_proj.weight", "blocks.{l}.mlp.p", true, 0, 0, 0, 0),
        TNI_MAP("h.{l}.mlp.c_proj.bias", "blocks.{l}.mlp.pb", false, 0, 0, 0, 0),
        TNI_MAP("ln_f.weight", "norm.gain", false, 0, 0, 0, 0),
        TNI_MAP("ln_f.bias", "norm.bias", false, 0, 0, 0, 0),
        {"lm_head.weight", "head.w", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false}
    };
#undef TNI_MAP
    if (count) *count = (int64_t)(sizeof map / sizeof *map);
    return map;
}

const tn_name_map *tn_name_map_llama(int64_t *count)
{
#define TNI_MAP(file, param, p, ps, kv) \
    {"model." file "|" file, param, false, 0, 0, p, ps, kv, TN_HEAD_ROWS_PLAIN, 0, 0, false, false}
    static const tn_name_map map[] = {
        TNI_MAP("embed_tokens.weight", "embed.w", 0, 0, false),
        TNI_MAP("layers.{l}.input_layernorm.weight", "blocks.{l}.norm1.gain", 0, 0, false),
        TNI_MAP("layers.{l}.self_attn.q_proj.weight", "blocks.{l}.attn.qk", 0, 2, false),
        TNI_MAP("layers.{l}.self_attn.k_proj.weight", "blocks.{l}.attn.qk", 1, 2, true),
        TNI_MAP("layers.{l}.self_attn.v_proj.weight", "blocks.{l}.attn.v", 0, 0, true),
        TNI_MAP("layers.{l}.self_attn.o_proj.weight", "blocks.{l}.attn.o", 0, 0, false),
        TNI_MAP("layers.{l}.self_attn.q_norm.weight", "blocks.{l}.attn.qk_gain", 0, 2, false),
        TNI_MAP("layers.{l}.self_attn.k_norm.weight", "blocks.{l}.attn.qk_gain", 1, 2, false),
        TNI_MAP("layers.{l}.self_attn.q_proj.bias", "blocks.{l}.attn.qk_b", 0, 2, false),
        TNI_MAP("layers.{l}.self_attn.k_proj.bias", "blocks.{l}.attn.qk_b", 1, 2, true),
        TNI_MAP("layers.{l}.self_attn.v_proj.bias", "blocks.{l}.attn.v_b", 0, 0, true),
        TNI_MAP("layers.{l}.self_attn.o_proj.bias", "blocks.{l}.attn.o_b", 0, 0, false),
        TNI_MAP("layers.{l}.post_attention_layernorm.weight", "blocks.{l}.norm2.gain", 0, 0, false),
        TNI_MAP("layers.{l}.mlp.gate_proj.weight", "blocks.{l}.mlp.w", 0, 2, false),
        TNI_MAP("layers.{l}.mlp.up_proj.weight", "blocks.{l}.mlp.w", 1, 2, false),
        TNI_MAP("layers.{l}.mlp.gate_proj.bias", "blocks.{l}.mlp.b", 0, 2, false),
        TNI_MAP("layers.{l}.mlp.up_proj.bias", "blocks.{l}.mlp.b", 1, 2, false),
        TNI_MAP("layers.{l}.mlp.down_proj.weight", "blocks.{l}.mlp.p", 0, 0, false),
        TNI_MAP("layers.{l}.mlp.down_proj.bias", "blocks.{l}.mlp.pb", 0, 0, false),
        TNI_MAP("norm.weight", "norm.gain", 0, 0, false),
        {"lm_head.weight", "head.w", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false}
    };
#undef TNI_MAP
    if (count) *count = (int64_t)(sizeof map / sizeof *map);
    return map;
}

const tn_name_map *tn_name_map_gemma(int64_t *count)
{
#define TNI_LINE(file, param, p, ps, kv, offset, root) \
    {"model." file "|" file, param, false, 0, 0, p, ps, kv, TN_HEAD_ROWS_PLAIN, 0, offset, root, false}
#define TNI_MAP(file, param, p, ps, kv) TNI_LINE("layers.{l}." file, "blocks.{l}." param, p, ps, kv, 0, false)
#define TNI_GAIN(file, param)           TNI_LINE("layers.{l}." file, "blocks.{l}." param, 0, 0, false, 1, false)
    static const tn_name_map map[] = {
        TNI_LINE("embed_tokens.weight", "embed.w", 0, 0, false, 0, true),
        TNI_GAIN("input_layernorm.weight", "norm1.gain"), TNI_GAIN("post_attention_layernorm.weight", "norm2.gain"),
        TNI_MAP("self_attn.q_proj.weight", "attn.qk", 0, 2, false), TNI_MAP("self_attn.k_proj.weight", "attn.qk", 1, 2, true),
        TNI_MAP("self_attn.v_proj.weight", "attn.v", 0, 0, true), TNI_MAP("self_attn.o_proj.weight", "attn.o", 0, 0, false),
        TNI_MAP("self_attn.q_proj.bias", "attn.qk_b", 0, 2, false), TNI_MAP("self_attn.k_proj.bias", "attn.qk_b", 1, 2, true),
        TNI_MAP("self_attn.v_proj.bias", "attn.v_b", 0, 0, true), TNI_MAP("self_attn.o_proj.bias", "attn.o_b", 0, 0, false),
        TNI_MAP("mlp.gate_proj.weight", "mlp.w", 0, 2, false), TNI_MAP("mlp.up_proj.weight", "mlp.w", 1, 2, false),
        TNI_MAP("mlp.down_proj.weight", "mlp.p", 0, 0, false),
        TNI_LINE("norm.weight", "norm.gain", 0, 0, false, 1, false),
        {"lm_head.weight|model.embed_tokens.weight|embed_tokens.weight", "head.w", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN,
         0, 0, false, false}
    };
#undef TNI_LINE
#undef TNI_MAP
#undef TNI_GAIN
    if (count) *count = (int64_t)(sizeof map / sizeof *map);
    return map;
}

const tn_name_map *tn_name_map_bilinear(int64_t *count)
{
#define TNI_MAP(file, param, fp, fps, p, ps) \
    {"transformer." file, param, false, fp, fps, p, ps, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false}
    static const tn_name_map map[] = {
        TNI_MAP("wte.weight", "embed.w", 0, 0, 0, 0),
        TNI_MAP("h.{l}.n1.norm.weight", "blocks.{l}.norm1.gain", 0, 0, 0, 0),
        TNI_MAP("h.{l}.attn.qkv.weight", "blocks.{l}.attn.qk", 0, 3, 0, 2),
        TNI_MAP("h.{l}.attn.qkv.weight", "blocks.{l}.attn.qk", 1, 3, 1, 2),
        TNI_MAP("h.{l}.attn.qkv.weight", "blocks.{l}.attn.v", 2, 3, 0, 0),
        TNI_MAP("h.{l}.attn.o.weight", "blocks.{l}.attn.o", 0, 0, 0, 0),
        TNI_MAP("h.{l}.n2.norm.weight", "blocks.{l}.norm2.gain", 0, 0, 0, 0),
        TNI_MAP("h.{l}.mlp.w.weight", "blocks.{l}.mlp.w", 0, 0, 0, 0),
        TNI_MAP("h.{l}.mlp.w.bias", "blocks.{l}.mlp.b", 0, 0, 0, 0),
        TNI_MAP("h.{l}.mlp.p.weight|transformer.h.{l}.mlp.o.weight", "blocks.{l}.mlp.p", 0, 0, 0, 0),
        TNI_MAP("h.{l}.mlp.p.bias|transformer.h.{l}.mlp.o.bias", "blocks.{l}.mlp.pb", 0, 0, 0, 0),
        TNI_MAP("n_f.norm.weight", "norm.gain", 0, 0, 0, 0),
        {"lm_head.weight", "head.w", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false}
    };
#undef TNI_MAP
    if (count) *count = (int64_t)(sizeof map / sizeof *map);
    return map;
}

/* RoPE rotates the other way there. An encoder that is squared is here a bilinear MLP that has it twice; a value mix is one
   number m, (1 - m) v + m v0, which the first block has and does not use. */
const tn_name_map *tn_name_map_modded(int64_t *count)
{
#define TNI_MAP(file, param, p, ps, rows, scale, offset) \
    {"transformer." file "|_orig_mod.transformer." file, param, false, 0, 0, p, ps, false, rows, scale, offset, false, true}
#define TNI_PLAIN(file, param, p, ps) TNI_MAP(file, param, p, ps, TN_HEAD_ROWS_PLAIN, 0, 0)
#define TNI_ROTATED(file, p, ps) \
    TNI_MAP("h.{l}.attn." file ".weight", "blocks.{l}.attn.qk", p, ps, TN_HEAD_ROWS_SWAPPED, 0, 0)
#define TNI_ENCODER(file, p, ps) TNI_PLAIN("h.{l}.mlp." file ".weight", "blocks.{l}.mlp.w", p, ps)
    static const tn_name_map map[] = {
        TNI_PLAIN("wte.weight", "embed.w", 0, 0),
        TNI_PLAIN("h.{l}.lambdas", "blocks.{l}.lambdas", 0, 0),
        TNI_ROTATED("c_q", 0, 2), TNI_ROTATED("c_k", 1, 2),
        TNI_ROTATED("c_q", 0, 4), TNI_ROTATED("c_q2", 1, 4), TNI_ROTATED("c_k", 2, 4), TNI_ROTATED("c_k2", 3, 4),
        TNI_PLAIN("h.{l}.attn.c_v.weight", "blocks.{l}.attn.v", 0, 0),
        TNI_PLAIN("h.{l}.attn.c_proj.weight", "blocks.{l}.attn.o", 0, 0),
        TNI_PLAIN("h.{l}.attn.bilinear_lamb", "blocks.{l}.attn.lambda", 0, 0),
        TNI_MAP("h.{l}.attn.lamb", "blocks.{l}.attn.mix", 0, 2, TN_HEAD_ROWS_PLAIN, -1, 1),
        TNI_PLAIN("h.{l}.attn.lamb", "blocks.{l}.attn.mix", 1, 2),
        TNI_ENCODER("c_fc", 0, 1), TNI_ENCODER("c_fc", 0, 2), TNI_ENCODER("c_fc", 1, 2),
        TNI_ENCODER("Left", 0, 2), TNI_ENCODER("Right", 1, 2),
        TNI_PLAIN("h.{l}.mlp.c_proj.weight", "blocks.{l}.mlp.p", 0, 0),
        TNI_PLAIN("h.{l}.mlp.Down.weight", "blocks.{l}.mlp.p", 0, 0),
        TNI_PLAIN("h.{l}.mlp.bias", "blocks.{l}.mlp.pb", 0, 0),
        TNI_PLAIN("h.{l}.mlp.Down_bias", "blocks.{l}.mlp.pb", 0, 0),
        {"lm_head.weight|_orig_mod.lm_head.weight", "head.w", false, 0, 0, 0, 0, false, TN_HEAD_ROWS_PLAIN, 0, 0, false, false}
    };
#undef TNI_MAP
#undef TNI_PLAIN
#undef TNI_ROTATED
#undef TNI_ENCODER
    if (count) *count = (int64_t)(sizeof map / sizeof *map);
    return map;
}

#endif /* TN_NO_MODELS */
