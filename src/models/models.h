#pragma once
#include "core/core.h"
#include "tensor/tensor.h"
#include "ops/ops.h"
#include "layers/layers.h"
#include "io/io.h"

#ifndef TN_NO_MODELS
/* ======================================================================
   >>models   transformers: blocks of attention and MLP, from one desc
       x = E[ids] (+ position);  each block: x += a attn(norm(x)), x += m mlp(norm(x));  logits = U norm(x)
   Vaswani et al. 2017, Radford et al. 2019. docs/math.md 16 has the formula with every option in its place,
   docs/language.md the keys of config.json.
   ====================================================================== */

/* How a transformer gets the positions of its tokens. */
typedef enum tn_positions {
    TN_POSITIONS_ROPE = 0,      /* queries and keys are rotated. Su et al. 2021                  */
    TN_POSITIONS_LEARNED,       /* a table of `context` rows is added to the embedding           */
    TN_POSITIONS_NONE
} tn_positions;

/* Where a block f, attention or MLP, has its norm. */
typedef enum tn_place {
    TN_PLACE_PRE = 0,           /* x + f(norm(x)), and one norm before the unembedding           */
    TN_PLACE_POST,              /* norm(x + f(x))                                                */
    TN_PLACE_SANDWICH           /* x + norm(f(norm(x))), and one norm before the unembedding. Ding et al. 2021 */
} tn_place;

#define TN_SCALE_DEPTH (-1.0)   /* 1/sqrt(2 layers): all branches together then add the variance of one branch */
#define TN_MAX_CYCLE   64       /* most entries of a cycle of kinds */

typedef struct tn_transformer_desc {
    int64_t vocab, layers, dim, heads; /* required                                                              */
    int64_t context;            /* required: tokens per training text; a limit with learned positions only      */
    /* the MLP */
    tn_mlp_kind mlp;
    int64_t mlp_order;          /* encoders of TN_MLP_BILINEAR; 0: 2                                            */
    int64_t hidden;             /* 0: 4 dim with one encoder; with k encoders 8 dim/(k+1), which gives as many
                                   parameters, rounded to the nearest multiple of 8                             */
    bool    mlp_bias, mlp_out_bias;
    bool    no_projection;      /* of the MLP: hidden must equal dim                                            */
    /* attention: as in tn_attention_desc */
    tn_attention_kind attention;
    tn_attend_form    form;
    int64_t d_qk, d_v;
    int64_t window;
    bool    bidirectional;      /* queries also see later keys; default: keys up to their own position          */
    bool    qk_norm, head_norm;
    bool    qk_gain;            /* with qk_norm                                                                 */
    double  qk_norm_eps;        /* 0: 1e-6. norm_eps below is that of the norms outside attention               */
    tn_row_scale row_scale;
    int64_t row_length;         /* 0: context                                                                   */
    double  score_scale, lambda_init;
    bool    attn_bias, attn_out_bias;
    /* Blocks that differ: a count above 0 replaces `attention` of block l by attention_cycle[l % attention_count], and so
       on. mlp_order, form and row_scale then apply to the blocks that can use them. hidden and d_qk of 0 have a default of their own
       in each block, and remain 0 where the blocks differ in it. */
    int64_t           attention_count, window_count, mlp_count;
    tn_attention_kind attention_cycle[TN_MAX_CYCLE];
    int64_t           window_cycle[TN_MAX_CYCLE];
    tn_mlp_kind       mlp_cycle[TN_MAX_CYCLE];
    tn_positions positions;
    double  rope_base;          /* 0: 10000                                                                     */
    tn_rope_scaling rope_scaling;
    /* norms */
    tn_norm_kind norm;
    tn_place     norm_place;
    bool    no_norm;            /* no norms at all, except inside attention                                     */
    bool    no_norm_gain;
    bool    norm_bias;          /* TN_NORM_LAYER only                                                           */
    bool    embed_norm;         /* one more norm, after the embedding                                           */
    double  norm_eps;           /* added to the variance or mean square; 0: 1e-5                                */
    /* the residual stream */
    double  attn_scale, mlp_scale; /* factor of a branch before it is added; 0: 1; or TN_SCALE_DEPTH            */
    bool    x0_residual;        /* a block begins with x = l0 x + l1 x0, x0 the embedding, l learned from (1,0) */
    bool    value_residual;     /* v = m0 v + m1 (v of the first block), m learned; both as in modded-nanoGPT   */
    /* the output */
    bool    tied;               /* U = E                                                                        */
    double  softcap;            /* logits c tanh(z/c); 0: z                                                     */
    /* The initial values. 0: GPT-2's rule (Radford et al. 2019): normal, std 0.02; matrices that write to the residual
       stream 0.02/sqrt(2 layers); biases 0. Another rule scales by fan-in; embeddings are normal, std 1, or, if tied,
       ln(vocab)/(2 dim), without norms the square root of that: the loss begins near ln(vocab). */
    tn_init_rule init;
    double  init_std;           /* replaces the rule's scale                                                    */
    double  embed_std;          /* of embedding and positions; 0: as above                                      */
    bool    zero_out;           /* matrices that write to the residual stream are 0                             */
    bool    zero_head;          /* U is 0                                                                       */
    /* Training, not saved in files. Noise and dropout act only while recording. */
    double  embed_noise;        /* std of normal noise that is added to the first block's input                 */
    double  dropout;            /* probability, for the first block's input and each branch. Srivastava et al. 2014 */
    bool    recompute;          /* a block keeps only its input and computes the rest a second time for the gradient
                                   (tn_recompute); with value_residual the first block keeps everything         */
} tn_transformer_desc;

typedef struct tn_transformer_block {
    tn_norm      norm1, norm2;          /* for attention, for the MLP    NAME.blocks.0.norm1.gain                */
    tn_norm      norm1_out, norm2_out;  /* with TN_PLACE_SANDWICH        NAME.blocks.0.norm1_out.gain            */
    tn_attention attn;                  /*                               NAME.blocks.0.attn.qk                   */
    tn_mlp       mlp;                   /*                               NAME.blocks.0.mlp.w                     */
    tn_tensor   *lambdas;               /* [2] or NULL                   NAME.blocks.0.lambdas                   */
} tn_transformer_block;

/* A transformer. To copy one for a clone of its parameters, use tn_params_rebind. */
typedef struct tn_transformer {
    tn_transformer_desc   desc;         /* with its defaults filled in                                           */
    tn_embedding          embed;        /* [vocab,dim]                   NAME.embed.w                            */
    tn_tensor            *position;     /* [context,dim] or NULL         NAME.position.w                         */
    tn_norm               embed_norm, norm; /*                           NAME.embed_norm.gain, NAME.norm.gain    */
    tn_linear             head;         /* [vocab,dim]                   NAME.head.w, tied: another name of embed.w */
    tn_transformer_block *blocks;       /* [layers], owned by the tn_params                                      */
} tn_transformer;

/* Creates the parameters under "NAME." (NULL or "": no prefix). TN_ERR_SHAPE or TN_ERR_ARG for an invalid desc. */
TN_API tn_status  tn_transformer_init(tn_params *params, const char *name, const tn_transformer_desc *desc,
                                      tn_transformer *model);
/* Computes the logits: ids I32 [B,T] -> [B,T,vocab]. An id outside the vocabulary is an error at the next sync. */
TN_API tn_tensor *tn_transformer_forward(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids);
/* Computes all of forward but the unembedding: ids [B,T] -> [B,T,dim]. */
TN_API tn_tensor *tn_transformer_hidden(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids);
/* Computes the pattern of block l, 0 <= l < layers: ids [B,T] -> [B,heads,T,T], as tn_attention_pattern does. */
TN_API tn_tensor *tn_transformer_pattern(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids, int64_t l);
/* Applies the unembedding, and softcap: [B,T,dim] -> logits [B,T,vocab]. */
TN_API tn_tensor *tn_transformer_unembed(tn_ctx *ctx, const tn_transformer *model, tn_tensor *hidden);
/* Computes the mean cross-entropy [] of targets I32 [B,T], in nats per token. */
TN_API tn_tensor *tn_transformer_loss(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids, tn_tensor *targets);

/* Makes all matrices of blocks and the unembedding compact, see tn_compact; not gains, biases and tables that are only looked
   up: positions, and an embedding that is not tied. A matrix that several parts share counts once. error may be NULL. Its
   `largest` is the maximum over the matrices, its `rms` that of all weights together. If it fails, no matrix has changed,
   except after a failure of the device. */
TN_API tn_status  tn_transformer_compact(const tn_transformer *model, tn_weight_kind kind, tn_compact_error *error);

/* ---- runs: what a model computes on the way, read or replaced ------------ >>model-run
   A run is a forward pass that shows its intermediate results, the points, to functions, the taps. Points are named after
   the parameters; in the order of a run, with x the residual stream and H heads:
       embed_norm.scale                   [B,T,1]     with embed_norm
       embed                              [B,T,dim]   x before block 0
     then for each block l, each name after "blocks.l":
       .input                             [B,T,dim]   with x0_residual: l0 x + l1 x0
       .norm1.scale .norm1                [B,T,1], [B,T,dim]   see below; with TN_PLACE_POST .norm1.scale is after .attn
       .attn.q1 .attn.k1                  [B,T,H,d_qk]   after qk_norm and RoPE; bilinear and differential also .q2 .k2, in
                                                         the order q1 q2 k1 k2
       .attn.v                            [B,T,H,d_v]    with value_residual mixed; that of block 0 is passed on
       .attn.pattern                      [B,H,T,T]   [b,h,query,key], as tn_attention_pattern
       .attn.z.scale                      [B,T,H,1]   with head_norm or differential attention
       .attn.z                            [B,T,H,d_v] the heads' results, which the output matrix reads
       .attn.out                          [B,T,dim]   what the layer returns, if it is not what is added: with
       .norm1_out.scale .norm1_out                    attn_scale != 1 or TN_PLACE_SANDWICH; the next two with the latter
       .attn                              [B,T,dim]   what attention adds to x
       .middle                            [B,T,dim]   x between attention and MLP
       .norm2.scale .norm2                [B,T,1], [B,T,dim]
       .mlp.encoders                      [B,T,encoders,hidden]   W x + b, V x + c, ..
       .mlp.hidden                        [B,T,hidden]   after product and activation; what the projection reads
       .mlp.out .norm2_out.scale .norm2_out .mlp         as with attention
       (nothing: the name is "blocks.l")  [B,T,dim]   x after the block
     and
       norm.scale norm                    [B,T,1], [B,T,dim]   not with TN_PLACE_POST
       head                               [B,T,vocab] with softcap: the logits before it
       logits                             [B,T,vocab]
   A norm is the pair of its scale and its result: RMSNorm gives x * scale * gain, LayerNorm (x - mean x) * scale * gain +
   bias. The scale is computed apart from the norm: 1/sqrt(mean x^2 + eps) to rounding. */

/* Is shown the point x, and returns x, or another tensor of its shape that the run goes on with. Floats of another dtype are
   converted to that of x. NULL stops the run, which returns NULL; that is an error even if the tap reports none. x belongs
   to the run, and may be a view; do not write to it, and do not reset the context. */
typedef tn_tensor *(*tn_tap_fn)(tn_ctx *ctx, void *user, const char *name, tn_tensor *x);
typedef struct tn_tap {
    const char *points;         /* a name, or a pattern of names: each * is any text, so that "blocks.*.attn.z" and "*.z"
                                   are the results of all heads                                                 */
    tn_tap_fn   fn;
    void       *user;
} tn_tap;
/* Computes the logits as tn_transformer_forward does, while it shows the points that taps[0..n) ask for; a point that
   several ask for goes through them in this order. The result is bit-identical to forward's unless a tap replaces a point.
   Only points that are asked for cost time: a pattern is formed beside the attention, which does not need it
   (docs/measurements.md). A pattern or scale that is replaced is multiplied with v or x by ops, which agrees with the fused
   kernels to rounding. If a name or pattern has no point, the error TN_ERR_ARG proposes the nearest.
     Recording: gradients flow through points, and through what replaces them. With desc.recompute a block with a point
       that is asked for is not recomputed, so each tap is called once.
     BF16 activations: points have the activations' dtype, scales the context's.
     Graphs: taps are called at the capture only; the ops that they call are replayed. */
TN_API tn_tensor *tn_transformer_run(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids, const tn_tap *taps,
                                     int64_t n);

typedef struct tn_point { char name[56]; int rank; int64_t shape[4]; } tn_point;
/* Lists the points of a run over ids [batch,tokens], in its order: writes up to `max` to `points` (NULL if max is 0) and
   returns their number; 0 if the model is not initialised. */
TN_API int64_t    tn_transformer_points(const tn_transformer *model, int64_t batch, int64_t tokens, tn_point *points,
                                         int64_t max);

/* A tap that stores the point in *(tn_tensor **)user, where it is until tn_ctx_reset. */
TN_API tn_tensor *tn_tap_read(tn_ctx *ctx, void *user, const char *name, tn_tensor *x);
/* A change of a point, or of a part of it: x becomes keep * x + value. All 0 ablates: x becomes 0.
     a head alone      .head = 3, .heads = 1, of q1 .. z and patterns
     its mean          .mean = true: the mean over texts and tokens (of a pattern: texts and queries) of x is added
     another run       .value = the point of that run, of x's shape: the same part of it replaces that of x
     some positions    .token = 5, .tokens = 2 (of a pattern: of queries)
     steering          .keep = 1, .value = a vector [dim] */
typedef struct tn_edit {
    int64_t    head, heads;     /* heads 0: all    */
    int64_t    token, tokens;   /* tokens 0: all   */
    double     keep;
    bool       mean;
    tn_tensor *value;           /* NULL: 0. Of x's shape, or one that is broadcast to the part */
} tn_edit;
/* A tap that applies the edit *(const tn_edit *)user. */
TN_API tn_tensor *tn_tap_edit(tn_ctx *ctx, void *user, const char *name, tn_tensor *x);

/* The logit lens (nostalgebraist 2020): applies the last norm and the unembedding to a residual stream, such as the point
   "blocks.0".   x [B,T,dim] -> [B,T,vocab]; the last block's stream gives the logits. */
TN_API tn_tensor *tn_transformer_logit_lens(tn_ctx *ctx, const tn_transformer *model, tn_tensor *x);
/* Direct logit attribution (Elhage et al. 2021): what each part of the model adds to the logit of a token, or to the
   difference of two (others may be NULL).   targets, others I32 [B,T] -> [B,T,parts]
   The scales of the norms after a part are constants, those of this run. The sum over parts is logit[target] - logit[other]
   before softcap, to rounding. The parts do not change if the residual stream is multiplied by a number, because the last
   norm divides by it. The parts are embed; of each block its heads, the constants of its attention (attn.bias, if it has
   any) and its MLP; the constant of the last norm (norm.bias, if it has one). TN_ERR_ARG with TN_PLACE_POST, whose norms
   change the parts of earlier blocks, and with dropout while recording. */
TN_API tn_tensor *tn_transformer_attribution(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids, tn_tensor *targets,
                                             tn_tensor *others);
/* Names the parts, "blocks.0.attn.3" the head 3; as tn_transformer_points does, with rank 0. */
TN_API int64_t    tn_transformer_parts(const tn_transformer *model, tn_point *parts, int64_t max);

/* The cache of `batch` texts for decoding, up to `length` tokens each. */
typedef struct tn_transformer_cache tn_transformer_cache;
/* Creates an empty cache of a causal model, freed by _destroy or with the context. NULL on error. */
TN_API tn_transformer_cache *tn_transformer_cache_create(tn_ctx *ctx, const tn_transformer *model, int64_t batch,
                                                         int64_t length);
TN_API void       tn_transformer_cache_destroy(tn_transformer_cache *cache);         /* frees the cache      */
TN_API void       tn_transformer_cache_reset(tn_transformer_cache *cache);           /* empties the cache    */
TN_API int64_t    tn_transformer_cache_past(const tn_transformer_cache *cache);      /* tokens in the cache  */
TN_API size_t     tn_transformer_cache_bytes(const tn_transformer_cache *cache);     /* bytes of its tensors */
/* Forgets all but the first `tokens` of each text, so that other tokens follow them. TN_ERR_ARG if the cache has fewer, or a
   block keeps a state instead of keys and values (tn_attention_cache_create), which can keep only all tokens or none. */
TN_API tn_status  tn_transformer_cache_rewind(tn_transformer_cache *cache, int64_t tokens);
/* Computes the logits of the next n >= 1 tokens of each text, or of a whole prompt: ids I32 [B,n] -> [B,n,vocab], as forward
   over the whole texts would. Not while recording. After a failed call the cache needs a reset, or to be rewound. */
TN_API tn_tensor *tn_transformer_decode(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids,
                                        tn_transformer_cache *cache);

/* Draws an id from softmax(logits/temperature). Only the top_k largest count (0: all; the first of equals), and of these
   the fewest that together have at least the probability top_p (0 or 1: all; Holtzman et al. 2020). temperature 0: the
   largest, the first of equals. u in [0,1) is the caller's random number: equal u give equal ids. Returns -1 if n < 1, an
   argument is out of range, a logit is NaN or +inf, or all are -inf. Allocates no memory. */
TN_API int64_t    tn_sample(const float *logits, int64_t n, double temperature, int64_t top_k, double top_p, double u);

/* The cost of a model, per token: the mean over a text of that many tokens. A multiply-add is two flops; norms, RoPE,
   activations and additions are not counted. */
typedef struct tn_transformer_cost {
    int64_t params;             /* number of learned numbers, tied ones once                                   */
    int64_t table;              /* of these: embedding and positions, which are looked up, not multiplied      */
    double  weights;            /* flops of products with weights, the unembedding included                    */
    double  scores;             /* flops of queries with keys and of patterns with values: in the quadratic form or,
                                   with desc.form TN_ATTEND_FORM_LINEAR, of reading and updating states        */
    double  forward, training;  /* weights + scores; three times that: a backward pass costs two forward passes */
} tn_transformer_cost;
/* Computes the cost of a desc without a model. All numbers are 0 if the desc is invalid (tn_transformer_check says why). */
TN_API tn_transformer_cost tn_transformer_cost_of(const tn_transformer_desc *desc, int64_t tokens);
/* Checks a desc. *out (out may be NULL, or desc) becomes the desc with its defaults filled in. */
TN_API tn_status  tn_transformer_check(tn_ctx *ctx, const tn_transformer_desc *desc, tn_transformer_desc *out);

/* ---- config.json -------------------------------------------------------- >>model-config */
/* Writes config.json with every key of docs/language.md, defaults filled in. */
TN_API tn_status  tn_transformer_config_write(tn_ctx *ctx, const tn_transformer_desc *desc, tn_sink sink);
/* Reads config.json: these keys, the required ones present, none unknown or twice, all in range. If "model_type" is "gpt2",
   "llama", "mistral", "qwen2", "qwen3" or "gemma", Hugging Face's keys are read: those that change what is computed are used,
   or are an error, as quantization_config is. Others are ignored; a warning in the log names those that are not known
   to change nothing. Without "model_type", and with a key "bilinear", the keys are those of the models of tn_name_map_modded, if
   there is "n_embd", or of tn_name_map_bilinear; these need "vocab_size" added where they have no vocabulary. On error *desc does
   not change. */
TN_API tn_status  tn_transformer_config_read(tn_ctx *ctx, tn_source source, tn_transformer_desc *desc);

/* ---- weights of other programs ------------------------------------------ >>model-weights
   A line of a map says where a part of a parameter is in a file. Matrices are [out,in] here; the rows of a vector are its
   numbers. {l} is a block's number; a line without it is used once. */
typedef enum tn_head_rows {
    TN_HEAD_ROWS_PLAIN = 0,     /* as they are                                                                  */
    TN_HEAD_ROWS_SWAPPED,       /* the halves of each head are exchanged: RoPE that rotates the other way       */
    TN_HEAD_ROWS_PAIRS          /* rows 2k and 2k+1 of a head become k and k + d/2: RoPE that rotates neighbours */
} tn_head_rows;
typedef struct tn_name_map {
    const char  *file;          /* "transformer.h.{l}.attn.c_attn.weight|h.{l}.attn.c_attn.weight": the first that exists */
    const char  *param;         /* "blocks.{l}.attn.qk"                                                         */
    bool         transpose;     /* the file has [in,out]                                                        */
    int          file_part, file_parts; /* part file_part (from 0) of file_parts equal parts of its rows; 0, 0: all */
    int          part, parts;   /* the same for the parameter                                                   */
    bool         kv;            /* rows of heads; if the file has fewer, each is repeated (grouped queries)     */
    tn_head_rows rows;
    double       scale, offset; /* the parameter is offset + scale * the file's number; scale 0: 1              */
    bool         root_dim;      /* scale is also multiplied by sqrt(dim)                                        */
    bool         spare;         /* the line is left out where the file lacks the tensor, or the model the parameter; or
                                   where the first axis of the parameter is not `parts`, if that is not 0. A tensor for
                                   which all lines are left out is an error                                     */
} tn_name_map;
TN_API const tn_name_map *tn_name_map_gpt2(int64_t *count);     /* the map of Hugging Face's GPT-2, of *count lines */
TN_API const tn_name_map *tn_name_map_llama(int64_t *count);    /* the same of Llama, Mistral, Qwen2 and Qwen3      */
TN_API const tn_name_map *tn_name_map_bilinear(int64_t *count); /* of github.com/tdooms/bilinear-decomposition      */
/* For reading only, as several lines give one parameter, or one tensor several: */
TN_API const tn_name_map *tn_name_map_gemma(int64_t *count);    /* of Gemma                                          */
TN_API const tn_name_map *tn_name_map_modded(int64_t *count);   /* of github.com/loganriggs/modded-nanogpt          */
/* Reads all parameters of a model from a safetensors file through a map; on error none is set (unless a device fails).
   Errors are a parameter that the map or the file lacks, a shape that does not match, and a tensor of the map that the
   file has but the model lacks (such as a bias). A file that has a tied parameter under both of its names must have the same
   dtype and bits there. Other tensors in the file are ignored; the log says so. */
TN_API tn_status  tn_transformer_read_mapped(tn_params *params, const tn_transformer *model, tn_source source,
                                             const tn_name_map *map, int64_t lines);
/* Counts the heads of keys and values that differ: fewer than desc.heads if in all blocks groups of neighbours are equal, as
   after reading a model with grouped queries; else desc.heads. -1 on error. */
TN_API int64_t    tn_transformer_kv_heads(const tn_transformer *model);
/* Writes all parameters of a model to a safetensors file, the other way through a map: under the first of the names in its
   lines, in the context's dtype. Of lines with `kv`, kv_heads heads are written (0: all), which must be one of each group of
   equal heads. A parameter that no line names is an error, and so is a row of the file that no line gives. Tied parameters
   are written once. */
TN_API tn_status  tn_transformer_write_mapped(tn_params *params, const tn_transformer *model, tn_sink sink,
                                              const tn_name_map *map, int64_t lines, int64_t kv_heads,
                                              const tn_metadata *notes, int64_t note_count);
#endif /* TN_NO_MODELS */
