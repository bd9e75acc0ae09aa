#pragma once
#include "core/core.h"
#include "tensor/tensor.h"
#include "ops/ops.h"

/* ======================================================================
   >>layers   parameters by name, and the layers that own them
   A layer's init adds its parameters to a tn_params, under names such as "name.w", and fills the struct; forward computes
   the result. Gradients come from the ops. Tensors in the struct belong to the tn_params. An init that fails adds no
   parameter and zeroes the struct: TN_ERR_SHAPE for extents below 1 or of at least 2^31 - 1, TN_ERR_ARG for a desc that
   contradicts itself or a name that is in use.
   Flags of a desc name what is added to the plain layer (bias, residual, bidirectional); no_X switches off an X that every
   layer has by default (no_gain, no_projection, no_rope).
   ====================================================================== */

/* A parameter. Programs may change the scales and adamw; use tn_params_freeze for frozen. */
typedef struct tn_param {
    const char *name;
    tn_tensor  *value;          /* value->grad is its gradient after a backward pass        */
    bool        frozen;         /* gets no gradient and no update                           */
    double      lr_scale;       /* factor of the optimiser's learning rate: 1               */
    double      decay_scale;    /* factor of its weight decay: 1; 0 for biases and gains    */
    bool        adamw;          /* updated by AdamW even if the optimiser is TN_OPTIM_MUON: set by the init of biases,
                                   gains, embeddings and a transformer's head               */
} tn_param;

/* Init rules, with their scale in brackets. n: fan-in, m: fan-out. */
typedef enum tn_init_rule {
    TN_INIT_DEFAULT = 0,        /* the layer's own rule, see its desc                                    */
    TN_INIT_ZERO,
    TN_INIT_ONE,
    TN_INIT_NORMAL,             /* normal [1/sqrt(n)]                LeCun, Bottou, Orr & Mueller 1998   */
    TN_INIT_UNIFORM,            /* uniform [+-1/sqrt(n)]             the default of PyTorch's Linear     */
    TN_INIT_GLOROT,             /* uniform [+-sqrt(6/(n+m))]         Glorot & Bengio 2010                */
    TN_INIT_HE                  /* normal [sqrt(2/n)]                He, Zhang, Ren & Sun 2015           */
} tn_init_rule;

/* The initial values of a parameter. std > 0 replaces the rule's scale (the standard deviation, or the half width of a
   uniform distribution). fan_in and fan_out: 0 takes them from the last two extents. */
typedef struct tn_init { tn_init_rule rule; double std; int64_t fan_in, fan_out; } tn_init;

/* Creates an empty set, which will own its parameters. It lives until tn_params_destroy or the end of the context; NULL on
   error. */
TN_API tn_params *tn_params_create(tn_ctx *ctx);
TN_API void       tn_params_destroy(tn_params *params);                    /* frees it with all its parameters */
TN_API tn_ctx    *tn_params_ctx(const tn_params *params);                  /* its context                      */
TN_API int64_t    tn_params_count(const tn_params *params);                /* number of parameters             */
TN_API int64_t    tn_params_elements(const tn_params *params);             /* number of elements, all together */
TN_API tn_param  *tn_params_at(tn_params *params, int64_t i);              /* parameter i, in order of creation */
TN_API tn_param  *tn_params_find(tn_params *params, const char *name);     /* the parameter of a name, or NULL */
/* Adds a parameter of the context's dtype. The name is copied and must be new. NULL on error. */
TN_API tn_param  *tn_params_add(tn_params *params, const char *name, int rank, const int64_t *shape, tn_init init);
/* Sets all gradients to zero. After an optimiser's step they count as zeros: functions read zeros, whatever grad->data is. A
   failed backward pass may leave partial gradients. */
TN_API tn_status  tn_params_zero_grad(tn_params *params);
/* Freezes every parameter whose name matches the pattern: it has no gradient, no memory for one, and no update. Returns how
   many match, as the next three do. A pattern with stars must match the whole name, each star any run of characters
   ("blocks.*.b"); one without stars matches the names that begin with it ("" matches all). */
TN_API int64_t    tn_params_freeze(tn_params *params, const char *pattern);
TN_API int64_t    tn_params_thaw(tn_params *params, const char *pattern);   /* the reverse: trains them again  */
/* Replaces both scales of matching parameters; the next tn_optim_step checks that they are not negative. A decay_scale of 1
   gives decay to biases and gains, too. No decay for embeddings: tn_params_set_scales(params, "embed.", 1, 0). Decay for
   weights only: "" with 0, then "*.w" with 1. */
TN_API int64_t    tn_params_set_scales(tn_params *params, const char *pattern, double lr_scale, double decay_scale);
/* Sets `adamw` of matching parameters. Only the program itself can clear it again. */
TN_API int64_t    tn_params_use_adamw(tn_params *params, const char *pattern);
/* Ties weights: makes `name`, which must be new, another name of the parameter `of`. A layer that is then created under it
   uses that tensor instead of one of its own (a linear layer's w [out,in] and an embedding's table [count,dim] have the
   same layout; shapes must be equal, and the layer's init rule is not used). Both add to the same gradient. The parameter
   keeps its first name and is counted, updated, saved and loaded once. */
TN_API tn_status  tn_params_tie(tn_params *params, const char *name, const char *of);
/* Copies a set of parameters, with names, ties, frozen flags and scales, to ctx, which may be another context of another
   dtype (F64 to F32 rounds). Gradients are not copied. NULL on error. */
TN_API tn_params *tn_params_clone(tn_ctx *ctx, const tn_params *params);
/* Redirects a copied struct of layers, of `bytes` bytes: each pointer to a parameter of `from` becomes one to the parameter
   of the same name in `to`. A model's array of blocks, which `from` owns, is copied, and `to` owns the copy. Returns the
   number of pointers; -1, without any change, if `to` lacks one.
       model copy = original;   tn_params_rebind(clone, params, &copy, sizeof copy); */
TN_API int64_t    tn_params_rebind(tn_params *to, const tn_params *from, void *layers, size_t bytes);

/* ---- compact weights: fewer bytes to read per token ---------------------- >>compact-weights
   Decoding reads every weight once per token, and little else: its time is the bytes of the weights over the memory's rate.
   A compact matrix has its float32 numbers rounded in place to those of a smaller form, and a copy in that form beside them.
   So every backend, file and function sees one model, the rounded one; products x W^T of few rows, outside a recording, on
   the backend cpu read the copy and widen it in registers.
       BF16   w' = w rounded to 8 significant bits, ties to even:   |w - w'| <= 2^-8 |w|  for |w| >= 2^-126
       INT8   w' = s q,  q = round(w/s) in -127..127,  s = max |w of its row| / 127, cut to 17 significant bits so that s q is
              exact: |w - w'| <= s/2, about max |row| / 254. A row of numbers that are all below 1.49e-36 becomes zeros.
              Row-wise absmax, Dettmers, Lewis, Belkada & Zettlemoyer 2022
   The product of a single x with INT8 rows sums x q before it multiplies by s. So that the sum does not overflow, the k
   numbers of x must be below 2.6e36 / k in magnitude. With AVX2 and AVX-512 such an x is rounded to 16 bits, in units of each
   block of at most 64 numbers, so that y_j is wrong by up to sum_blocks 2^-16 max |x| sum |w'_j| beside the rounding of
   float32. For normal x and w the error is 2.3e-5 of y in root mean square, with a large number in each block up to 7e-5,
   where rounding w costs 6.4e-3 and 7e-3. An x that is not finite, or has a block of numbers below 1.6e-30 that are not all
   zero, is multiplied in float32. */

/* What rounding has changed. */
typedef struct tn_compact_error {
    double  largest;            /* max |w - w'| / max |w|                                               */
    double  rms;                /* sqrt(sum (w - w')^2 / sum w^2)                                       */
    int64_t count;              /* weights                                                              */
    size_t  bytes;              /* what a product of one row reads of them, all rows together           */
    char    worst[64];          /* of a model: the matrix with the largest rms, "blocks.0.attn.qk"; of one matrix: "" */
} tn_compact_error;

/* Rounds w and keeps the copy, until w is written (tn_write, tn_assign, an optimiser's step, a load), destroyed, or made
   TN_WEIGHT_F32, which only drops the copy. Rows run along the last axis: [out,in], or [e,hidden,in] as in tn_mlp. error may
   be NULL. Compacting again changes nothing. TN_ERR_DTYPE unless w and its context's activations are F32; TN_ERR_SHAPE for
   rank 0 or 1; TN_ERR_ARG for views, arena tensors, a w that a backward pass will read, and during a capture; TN_ERR_DATA if
   a number is not finite or would not be: w is then as before. */
TN_API tn_status      tn_compact(tn_tensor *w, tn_weight_kind kind, tn_compact_error *error);
TN_API tn_weight_kind tn_compact_kind(const tn_tensor *w);       /* of the copy that w or its base has now       */
TN_API const char    *tn_weight_kind_name(tn_weight_kind kind);  /* "f32", "bf16" or "int8", else "?": constants */

/* ---- linear: y = W x + b ------------------------------------------------ >>layer-linear */
typedef struct tn_linear_desc {
    int64_t in, out;            /* required                                                         */
    bool    bias;
    bool    augmented;          /* x and y end with a constant one, which in and out do not count;
                                   the bias is the last column of W                                 */
    tn_init init;               /* 0: TN_INIT_UNIFORM for W and b                                   */
} tn_linear_desc;
typedef struct tn_linear {
    tn_linear_desc desc;
    tn_tensor *w;               /* [out,in], augmented: [out,in+1] */
    tn_tensor *b;               /* [out] or NULL                   */
} tn_linear;
/* Creates the parameters NAME.w and NAME.b. */
TN_API tn_status  tn_linear_init(tn_params *params, const char *name, const tn_linear_desc *desc, tn_linear *layer);
TN_API tn_tensor *tn_linear_forward(tn_ctx *ctx, const tn_linear *layer, tn_tensor *x);       /* [..,in] -> [..,out] */

/* ---- embedding: one row of a table per id ------------------------------- >>layer-embedding */
typedef struct tn_embedding_desc {
    int64_t count, dim;         /* required             */
    tn_init init;               /* 0: normal, std 1     */
} tn_embedding_desc;
typedef struct tn_embedding {
    tn_embedding_desc desc;
    tn_tensor *w;               /* [count,dim] */
} tn_embedding;
/* Creates the parameter NAME.w. */
TN_API tn_status  tn_embedding_init(tn_params *params, const char *name, const tn_embedding_desc *desc, tn_embedding *layer);
TN_API tn_tensor *tn_embedding_forward(tn_ctx *ctx, const tn_embedding *layer, tn_tensor *ids); /* I32 [..] -> [..,dim] */

/* ---- norm: RMSNorm, Zhang & Sennrich 2019; LayerNorm, Ba, Kiros & Hinton 2016 ---- >>layer-norm */
typedef enum tn_norm_kind {
    TN_NORM_RMS = 0,            /* x / rms(x) * gain                                */
    TN_NORM_LAYER               /* (x - mean(x)) / std(x) * gain + bias             */
} tn_norm_kind;
typedef struct tn_norm_desc {
    int64_t dim;                /* required          */
    bool    no_gain;
    double  eps;                /* 0: 1e-5           */
    tn_norm_kind kind;
    bool    bias;               /* TN_NORM_LAYER only */
} tn_norm_desc;
typedef struct tn_norm {
    tn_norm_desc desc;
    tn_tensor *gain;            /* [dim], initially ones, or NULL                   */
    tn_tensor *bias;            /* [dim], initially zeros, or NULL                  */
} tn_norm;
/* Creates the parameters NAME.gain and NAME.bias. */
TN_API tn_status  tn_norm_init(tn_params *params, const char *name, const tn_norm_desc *desc, tn_norm *layer);
TN_API tn_tensor *tn_norm_forward(tn_ctx *ctx, const tn_norm *layer, tn_tensor *x);          /* [..,dim] -> [..,dim] */

/* ---- mlp: P (act(W x + b)) + p, P (act(W x + b) * (V x + c)) + p, products of more ---- >>layer-mlp
   One desc for the family: Shazeer 2020 (GLU variants), So et al. 2021 (ReLU squared), Pearce et al. 2024 (bilinear).
   A bilinear layer of order k is y = P ((F_1 x + b_1) * ... * (F_k x + b_k)) + p, a CP tensor of order k + 1: k = 1 is
   linear, k = 2 gives a tensor of order three with W = F_1 and V = F_2. Novikov et al. 2017, Chrysos et al. 2020 */
typedef enum tn_mlp_kind {
    TN_MLP_BILINEAR = 0,        /* no activation: P ((W x + b) * (V x + c)) + p, or desc.order factors */
    TN_MLP_RELU, TN_MLP_RELU2, TN_MLP_GELU, TN_MLP_SWISH,           /* one encoder          */
    TN_MLP_GLU, TN_MLP_REGLU, TN_MLP_GEGLU, TN_MLP_SWIGLU,          /* two: act(W x) * V x  */
    TN_MLP_GELU_TANH,           /* one: GPT-2's approximation of GELU by tanh, made of several ops */
    TN_MLP_GEGLU_TANH           /* two: the same with a gate, as in Gemma                             */
} tn_mlp_kind;
/* Default inits: TN_INIT_UNIFORM. With an order other than 2: TN_INIT_NORMAL, F with variance 1/in and P with 1/hidden, so
   that inputs of variance 1 give outputs of variance 1 at any order (docs/math.md 8). The constant one of an augmented
   layer then counts as an input, in + 1 and hidden + 1; with order 2, set .fan_in to in + 1 or hidden + 1 if the constant
   should count. */
typedef struct tn_mlp_desc {
    int64_t     in, hidden;     /* required                                                        */
    int64_t     out;            /* 0: in                                                           */
    tn_mlp_kind kind;
    int64_t     order;          /* k, the number of encoders of TN_MLP_BILINEAR; 0: 2. 0 for other kinds */
    bool        bias;           /* of the encoders                                                 */
    bool        out_bias;       /* of the projection                                               */
    bool        no_projection;  /* P = I: out must equal hidden                                    */
    bool        residual;       /* y = x + layer(x): out must equal in                             */
    bool        augmented;      /* x and y end with a constant one, which in, hidden and out do not
                                   count; biases are the last columns of the encoders and of P     */
    tn_init     init;           /* of the encoders; 0: see above                                   */
    tn_init     init_out;       /* of P; 0: see above                                              */
} tn_mlp_desc;
typedef struct tn_mlp {
    tn_mlp_desc desc;           /* with out and order filled in                                                           */
    tn_tensor *w;               /* [e,hidden,in] the e encoders stacked: W, then V, ...; augmented: [e,hidden,in+1]       */
    tn_tensor *b;               /* [e,hidden] b, then c, ...; or NULL                                                     */
    tn_tensor *p;               /* [out,hidden] or NULL; augmented: [out,hidden+1]                                        */
    tn_tensor *pb;              /* [out] or NULL                                                                          */
} tn_mlp;
/* Creates the parameters NAME.w, NAME.b, NAME.p and NAME.pb, as far as the desc has them. */
TN_API tn_status   tn_mlp_init(tn_params *params, const char *name, const tn_mlp_desc *desc, tn_mlp *layer);
TN_API tn_tensor  *tn_mlp_forward(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x);            /* [..,in] -> [..,out] */
TN_API int         tn_mlp_encoders(tn_mlp_kind kind);                           /* number of encoders; bilinear: 2  */
TN_API const char *tn_mlp_kind_name(tn_mlp_kind kind);                          /* a constant string such as "relu" */
/* Returns a view of encoder e, 0 for W and 1 for V: [hidden,in], augmented [hidden,in+1]. */
TN_API tn_tensor  *tn_mlp_encoder(const tn_mlp *layer, int64_t e);

/* ---- quadratic: y_o = x^T T_o x, the third-order tensor itself ---------- >>layer-quadratic
   A bilinear layer holds this tensor in factors. All o are computed by one product [rows,n] [n,out n], then a dot product
   with x: x (x) x is never formed. The gradient of T_o is symmetric, so T_o - T_o^T changes by weight decay only. Weights
   start normal with variance 1/n^2, which gives outputs of variance 1. */
typedef struct tn_quadratic_desc {
    int64_t in, out;            /* required                                                        */
    bool    bias;               /* the layer works on [x;1]: T has a linear and a constant part    */
    bool    augmented;          /* x and y end with a constant one                                 */
    tn_init init;               /* 0: TN_INIT_NORMAL                                               */
} tn_quadratic_desc;
typedef struct tn_quadratic {
    tn_quadratic_desc desc;
    tn_tensor *t;               /* [out,n,n], n = in, or in + 1 with bias or augmented */
} tn_quadratic;
/* Creates the parameter NAME.t. */
TN_API tn_status  tn_quadratic_init(tn_params *params, const char *name, const tn_quadratic_desc *desc, tn_quadratic *layer);
TN_API tn_tensor *tn_quadratic_forward(tn_ctx *ctx, const tn_quadratic *layer, tn_tensor *x); /* [..,in] -> [..,out] */

/* ---- modifier: y = P (m(x) * (V x + c)) + p,  m(x) = 1 + W x ------------ >>layer-modifier
   V holds the default output features, m(x) modifies each of them, and a penalty on W x keeps the modifications few (L1)
   or small (L2): Sharkey 2023, footnote 5. W may have low rank, W = A B, and W x may be rounded to multiples of `step`
   (with a straight-through gradient: Bengio, Leonard & Courville 2013). Without rounding the layer is bilinear, with bias
   1 in its first encoder, and therefore a tensor. W (or A) starts at zero, so that nothing is modified; B, V and P start
   as in a bilinear layer of an order other than 2. */
typedef enum tn_penalty { TN_PENALTY_L1 = 0, TN_PENALTY_L2 } tn_penalty;     /* mean |W x|, mean (W x)^2 */
typedef struct tn_modifier_desc {
    int64_t    in, hidden;      /* required                                                        */
    int64_t    out;             /* 0: in                                                           */
    int64_t    rank;            /* of W = A B; 0: W itself                                         */
    double     step;            /* 0: W x is not rounded                                           */
    tn_penalty penalty;
    bool       bias;            /* c                                                               */
    bool       out_bias;        /* p                                                               */
    bool       no_projection;   /* P = I: out must equal hidden                                    */
    tn_init    init;            /* of V and B; 0: TN_INIT_NORMAL                                   */
    tn_init    init_w;          /* of W, or A; 0: TN_INIT_ZERO                                     */
    tn_init    init_out;        /* of P; 0: TN_INIT_NORMAL                                         */
} tn_modifier_desc;
typedef struct tn_modifier {
    tn_modifier_desc desc;
    tn_tensor *w;               /* [hidden,in], or NULL with a rank    */
    tn_tensor *wa, *wb;         /* A [hidden,rank], B [rank,in]        */
    tn_tensor *v;               /* [hidden,in]                         */
    tn_tensor *c;               /* [hidden] or NULL                    */
    tn_tensor *p;               /* [out,hidden] or NULL                */
    tn_tensor *pb;              /* [out] or NULL                       */
} tn_modifier;
/* Creates the layer's parameters under NAME. */
TN_API tn_status  tn_modifier_init(tn_params *params, const char *name, const tn_modifier_desc *desc, tn_modifier *layer);
/* [..,in] -> [..,out]. If penalty is not NULL, *penalty becomes the penalty [] of W x before rounding, which the program
   adds to its loss: loss = tn_add(ctx, loss, tn_scale(ctx, penalty, 0.1)) */
TN_API tn_tensor *tn_modifier_forward(tn_ctx *ctx, const tn_modifier *layer, tn_tensor *x, tn_tensor **penalty);

#ifndef TN_NO_SEQUENCES
/* ---- attention: heads that read other positions ------------------------- >>layer-attention
   q, k and v are linear in x; tn_rope adds the positions to q and k, tn_attend attends, and o sums the heads.
   Softmax: Vaswani et al. 2017. Squared and bilinear, with a constant row scale, no QK-norm and no head norm, are tensors:
   o_t = sum_s c (q1_t.k1_s)(q2_t.k2_s) v_s has degree 2 in x_t and 3 in the x_s.
   Differential (Ye et al. 2024): (1 - lambda_init) norm((softmax1 - lambda softmax2) v), with an RMS-norm of each head and
   lambda = exp(lq1.lk1) - exp(lq2.lk2) + lambda_init; o contains the gain of the published norm, exactly.
   Plain differential: (softmax1 - lambda softmax2) v, where lambda is a single number. */
typedef enum tn_attention_kind {
    TN_ATTENTION_SOFTMAX = 0, TN_ATTENTION_SQUARED, TN_ATTENTION_BILINEAR, TN_ATTENTION_DIFFERENTIAL,
    TN_ATTENTION_DIFFERENTIAL_PLAIN
} tn_attention_kind;
typedef struct tn_attention_desc {
    int64_t dim, heads;         /* required                                                             */
    int64_t out;                /* 0: dim                                                               */
    int64_t d_qk, d_v;          /* per head; 0: dim/heads, for d_qk of the differential kinds dim/(2 heads) */
    tn_attention_kind kind;
    tn_attend_form form;        /* of squared and bilinear                                              */
    bool    bidirectional;      /* queries also see later keys; default: keys up to their own position  */
    int64_t window;             /* 0: none; see tn_attend_desc, also for the next three                 */
    tn_row_scale row_scale;
    int64_t row_length;
    double  scale;
    bool    no_rope;            /* no rotary positions                                                  */
    double  rope_base;          /* 0: 10000                                                             */
    tn_rope_scaling rope_scaling;
    bool    qk_norm;            /* RMS-norm of each q and k, before the rotation                        */
    double  qk_norm_eps;        /* added to the mean square there; 0: 1e-6                              */
    bool    qk_gain;            /* with qk_norm: gains after it, which all heads share (Qwen3)          */
    bool    head_norm;          /* RMS-norm of each head's output (differential: always)                */
    double  lambda_init;        /* of the differential kinds; 0: 0.8 - 0.6 exp(-0.3 depth)              */
    int64_t depth;              /* number of the block in its model, from 0                             */
    bool    bias, out_bias;     /* of q, k and v; of o                                                  */
    bool    mix_values;         /* v becomes m0 v + m1 values with learned m: value residual, Zhou et al. 2024 */
    tn_init init;               /* of qk and v; 0: TN_INIT_UNIFORM                                      */
    tn_init init_out;           /* of o; 0: TN_INIT_UNIFORM                                             */
} tn_attention_desc;
typedef struct tn_attention {
    tn_attention_desc desc;     /* with out, d_qk, d_v and lambda_init filled in                        */
    tn_tensor *qk;              /* [2s,heads d_qk,dim] Q1, (Q2), K1, (K2): s = 2 for bilinear and differential, else 1 */
    tn_tensor *v;               /* [heads d_v,dim]                                                      */
    tn_tensor *o;               /* [out,heads d_v]                                                      */
    tn_tensor *qkb, *vb, *ob;   /* NAME.qk_b [2s,heads d_qk], .v_b [heads d_v], .o_b [out]; or NULL     */
    tn_tensor *lambda;          /* [4,d_qk] lq1, lk1, lq2, lk2, initially normal with std 0.1; plain: [1], initially
                                   lambda_init; or NULL                                                 */
    tn_tensor *mix;             /* [2] m0, m1, initially 1/2; or NULL                                   */
    tn_tensor *qk_gain;         /* [2s d_qk], in the order of qk, initially 1; or NULL                  */
} tn_attention;
/* Creates the parameters NAME.qk, NAME.v, NAME.o and, as far as the desc has them, the others of tn_attention. */
TN_API tn_status   tn_attention_init(tn_params *params, const char *name, const tn_attention_desc *desc,
                                     tn_attention *layer);
/* x [B,T,dim] -> [B,T,out]. If values is not NULL, it passes v [B,T,heads,d_v] from the first layer of a model to the
   others: a *values of NULL becomes this layer's v, any other is mixed in where the desc has mix_values. */
TN_API tn_tensor  *tn_attention_forward(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor **values);
TN_API const char *tn_attention_kind_name(tn_attention_kind kind);                 /* a constant such as "softmax" */

/* The matrices of one head. Only bilinear and differential layers have Q2 and K2. */
typedef enum tn_head_part { TN_HEAD_Q1 = 0, TN_HEAD_K1, TN_HEAD_Q2, TN_HEAD_K2, TN_HEAD_V, TN_HEAD_O } tn_head_part;
/* Returns a view of a part of head h: Q1, K1, Q2, K2 [d_qk,dim], V [d_v,dim], O [out,d_v]. Its OV circuit is O V, and its
   scores without positions are x_i^T Q1^T K1 x_j. Every head has keys and values of its own here: a model with grouped
   queries is read with the heads of its keys repeated, so that two heads of a group have equal K and V. */
TN_API tn_tensor  *tn_attention_head(const tn_attention *layer, int64_t h, tn_head_part part);
/* Computes the patterns P of all heads, with positions, masks and row scales: the output of a head before its norm is P v;
   for differential kinds P = softmax1 - lambda softmax2.   x [B,T,dim] -> [B,heads,T,T]
   Differentiable. All scores are in memory at once, B heads T^2 numbers a few times: for short texts. */
TN_API tn_tensor  *tn_attention_pattern(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x);

/* The cache of a causal layer for decoding: k and v of `length` positions, or the state of the linear form, whose size does
   not depend on the length and which never fills up. k and v have the dtype of activations, a state the context's. With
   TN_ATTEND_FORM_AUTO the smaller one is used; softmax, differential and windows need k and v. */
typedef struct tn_attention_cache tn_attention_cache;
/* Creates an empty cache, freed by _destroy or with the context; the layer may be freed earlier. NULL on error. */
TN_API tn_attention_cache *tn_attention_cache_create(tn_ctx *ctx, const tn_attention *layer, int64_t batch, int64_t length);
TN_API void       tn_attention_cache_destroy(tn_attention_cache *cache);            /* frees the cache          */
TN_API void       tn_attention_cache_reset(tn_attention_cache *cache);              /* empties the cache        */
TN_API int64_t    tn_attention_cache_past(const tn_attention_cache *cache);         /* positions in the cache   */
TN_API size_t     tn_attention_cache_bytes(const tn_attention_cache *cache);        /* bytes of its tensors     */
/* Continues a sequence: x [batch,T,dim], the next T positions (one, or a whole prompt) -> [batch,T,out], as _forward over
   all positions so far would give for them; *values are those of the T positions. Not while recording. On error the cache is
   unchanged, except a state that was being read, which then needs a reset: later calls say so. */
TN_API tn_tensor *tn_attention_decode(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_attention_cache *cache,
                                      tn_tensor **values);
#endif /* TN_NO_SEQUENCES */

#ifndef TN_NO_MPS
/* ---- TN attention: each site is mapped by a product of matrices of all others ---- >>tn-attention
   Site j of a sequence x [n,d] is multiplied by a matrix W(j), which the other sites determine. Each of them gives a D x D
   matrix M_j = sum_s A[:,:,s] x_j[s], with `square` sum_ts x_j[t] A[:,:,t,s] x_j[s]. The contexts are the products
   L(j) = M_0 ... M_(j-1) and R(j) = M_(j+1) ... M_(n-1), and
       W(j)[t,k] = sum_ab G[a,b] (L(j) B[:,:,t,k] R(j))[a,b]         y_j = W(j) x_j
   A closed boundary, G = 1, is a ring: W(j)[t,k] is the trace of L B R, in O(n D^3). An open one is G = vL vR^T, in
   O(n D^2). Contexts are normalised at each site and keep the logarithms of their scales (tn_scan), so that no length of a
   sequence overflows. W(j) itself has the scale that the formula says, unless `unit_weights` is set.
   Zunkovic 2022, Zunkovic & Ilievski 2024; docs/math.md, "Tensor-network attention" */
typedef enum tn_boundary {
    TN_BOUNDARY_CLOSED = 0,     /* G = 1                                                                  */
    TN_BOUNDARY_DOMINANT,       /* vL and vR are the left and right eigenvectors of A[:,:,0] (with `square` [:,:,0,0]) for
                                   the eigenvalue of largest magnitude, as if infinitely many sites e_0 came before and
                                   after. Computed in each call, on the host, with exact gradients. An error if the
                                   eigenvalue is not real and simple, which for random matrices is frequent: use another
                                   boundary then                                                                    */
    TN_BOUNDARY_VECTORS,        /* vL and vR are parameters                                               */
    TN_BOUNDARY_FIRST           /* vL = vR = e_0                                                          */
} tn_boundary;
typedef enum tn_row_norm { TN_ROW_NORM_NONE = 0, TN_ROW_NORM_L1, TN_ROW_NORM_L2 } tn_row_norm;
typedef struct tn_tn_attention_desc {
    int64_t     in, bond;       /* d and D, required                                                      */
    int64_t     out;            /* rows of W; 0: in                                                       */
    int64_t     sites;          /* 0: one A and one B for all sites of sequences of any length; n: one each, n sites */
    bool        square;         /* A has four indices                                                     */
    tn_boundary boundary;
    bool        causal;         /* open boundaries: R(j) = 1, so that y_j depends on sites up to j only   */
    bool        unit_inputs;    /* M_j is computed from x_j / |x_j|                                       */
    bool        unit_weights;   /* W(j) is replaced by scale W(j) / |W(j)|_F                              */
    double      scale;          /* of unit_weights; 0: sqrt(in), so that |y_j| is about |x_j|             */
    tn_act      act;            /* applied to each element of W(j), after its scale                       */
    double      leak;           /* of TN_ACT_RELU: the slope below zero (leaky ReLU)                      */
    bool        bias;           /* y_j = W(j) x_j + bias                                                  */
    bool        residual;       /* then y_j <- (y_j + r x_j)/2 with a learned r; out must equal in        */
    tn_row_norm norm;           /* last, y_j <- y_j / |y_j|, with the sum of magnitudes or of squares     */
    double      eps;            /* added to the mean square (L1: to the sum) by which a vector is divided, so that a vector
                                   of zeros stays zero; 0: 1e-20                                          */
    tn_init     init_a, init_b; /* 0: normal, std 1/sqrt(bond), and for TN_BOUNDARY_DOMINANT A[:,:,0] symmetric, which has
                                   real eigenvalues                                                       */
} tn_tn_attention_desc;
typedef struct tn_tn_attention {
    tn_tn_attention_desc desc;  /* with out, scale and eps filled in                                      */
    tn_tensor *a;               /* [D,D,d], with `square` [D,D,d,d]; with sites an axis [n] comes first   */
    tn_tensor *b;               /* [D,D,out,d]; with sites an axis [n] comes first                        */
    tn_tensor *left, *right;    /* [D] vL, vR of TN_BOUNDARY_VECTORS, initially as A; or NULL             */
    tn_tensor *r;               /* [1] of the residual, initially 1; or NULL                              */
    tn_tensor *bias;            /* [out], initially zeros; or NULL                                        */
} tn_tn_attention;
/* Creates the parameters NAME.a, NAME.b and, as far as the desc has them, .left, .right, .r and .bias. */
TN_API tn_status  tn_tn_attention_init(tn_params *params, const char *name, const tn_tn_attention_desc *desc,
                                       tn_tn_attention *layer);
/* x [B,n,d] -> [B,n,out] */
TN_API tn_tensor *tn_tn_attention_forward(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x);
/* Computes the matrices W(j) of all sites, as _forward multiplies x_j by them. Differentiable.   x [B,n,d] -> [B,n,out,d] */
TN_API tn_tensor *tn_tn_attention_weights(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x);
/* Creates the state of a causal uniform layer before the first site: vL and the logarithm of its scale for each sequence, an
   owned tensor [batch,D+1]. */
TN_API tn_tensor *tn_tn_attention_state(tn_ctx *ctx, const tn_tn_attention *layer, int64_t batch);
/* Continues sequences: x [batch,n,d], the next n sites -> [batch,n,out], as _forward over all sites so far would give for
   them. The state, whose size does not depend on their number, is brought up to date. Not while recording. */
TN_API tn_tensor *tn_tn_attention_decode(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x, tn_tensor *state);

/* Exact layers. They fail as _init does, and their parameters may be trained further.
   Cellular automata of two states that look one cell to each side: D = 4, in 2, one output per rule (Wolfram's numbers 0 to
   255), which is +1 where the next state is 1 and -1 where it is 0. x has one-hot rows (1-c, c). The boundary is closed, a
   ring of n >= 3 cells, or TN_BOUNDARY_VECTORS, where cells outside are 0. */
TN_API tn_status  tn_tn_attention_from_rules(tn_params *params, const char *name, const int *rules, int64_t count,
                                             tn_boundary boundary, tn_tn_attention *layer);
/* Linear attention without a norm: y_j = sum_i v_i (k_i.q_j) with q_j = Q x_j, k_i = K u_i and v_i = V u_i of the unit
   vectors u_i = x_i/|x_i|, which must not be zero. The sum has all i but j, causal: those before j.
   q, k [m,d], v [out,d]; D = out m + 1, and A has D^2 d^2 numbers. */
TN_API tn_status  tn_tn_attention_from_linear_attention(tn_params *params, const char *name, const tn_tensor *q,
                                                        const tn_tensor *k, const tn_tensor *v, bool causal,
                                                        tn_tn_attention *layer);
/* The sum of all exchanges of two sites, sum_(i<j) P_ij, as a matrix product operator (A = B, D = d^2 + 2). For unit vectors
   y_j = sum_(i != j) (x_i.x_j) x_i + x_j sum (x_i.x_k)^2 over the pairs i < k of other sites. */
TN_API tn_status  tn_tn_attention_from_permutations(tn_params *params, const char *name, int64_t in,
                                                    tn_tn_attention *layer);

/* What rule a layer computes, read from the layer alone: from its outputs for all 2^n strings of n cells. */
typedef struct tn_rule_reading {
    int    rule;                /* bit 4 l + 2 c + r is 1 where the mean output at cells c between l and r is positive  */
    double agree;               /* share of all cells of all strings whose output has the sign that the rule says       */
    double margin;              /* the smallest output in the direction of the rule, divided by the root mean square of all;
                                   positive: the rule holds for every string                                            */
    double distance;            /* root mean square of |u - u'| over all cells of all strings: u holds the two outputs that
                                   a cell would have for c = 0 and 1, scaled to length 1, u' those of the layer of
                                   tn_tn_attention_from_rules. 0: equal up to a factor at each cell; at most 2          */
    double mean[8];             /* mean output of each neighbourhood 4 l + 2 c + r, divided by the same root mean square */
} tn_rule_reading;
/* Outside of an open boundary cells count as 0. `in` must be 2 and `out` 1, or 2, where the output is y[1] - y[0]; n is 3 to
   14. Nothing depends on the basis (gauge) in which A and B are given, nor on the scale of the outputs. TN_ERR_NONFINITE if
   one of these is NaN or infinite. The arena is used, and released unless recording. */
TN_API tn_status  tn_tn_attention_rule(tn_ctx *ctx, const tn_tn_attention *layer, int64_t n, tn_rule_reading *out);
#endif /* TN_NO_MPS */
