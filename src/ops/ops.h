#pragma once
#include "core/core.h"
#include "tensor/tensor.h"

/* ======================================================================
   >>ops      pure functions of tensors
   Results are arena tensors. A NULL operand gives NULL, so that one check per step is enough. Float operands have the
   context's dtype, ids and labels are I32. Row-wise ops work on the last axis; the axes before it count as rows.
   Ops take the context besides their operands because an operand may be NULL, the result of a failed call. So do
   functions made of ops (the layers' _forward, tn_cp_apply) and those that make an object from one of another kind
   (tn_cp_from_...). Functions of one object, such as views and the other tn_cp_ functions, use that object's context.
   Numbers are given in double. One that F32 cannot hold is an error in an F32 context, because as an infinity it would turn
   zeros into NaN; so is an eps that would vanish.
   With BF16 in desc.activations, operands may be F32 and BF16 in any mix. Results are then BF16, except those of rank 0
   (losses, means), of tn_chain, scans, tn_full, tn_uniform and tn_normal; tn_copy keeps the dtype of its operand, and
   tn_concat, tn_stack and tn_gather keep F32 if all of their operands are F32. A gradient has the dtype of its tensor.
   ====================================================================== */

/* The elementwise functions of tn_activation, tn_glu and the MLPs. */
typedef enum tn_act {
    TN_ACT_NONE = 0, TN_ACT_RELU, TN_ACT_RELU2, TN_ACT_GELU, TN_ACT_SWISH, TN_ACT_SIGMOID,
    TN_ACT_ABS,                 /* |x|; slope 0 at 0                                              */
    TN_ACT_ROUND,               /* to the nearest integer, ties to even; slope 1 (straight-through) */
    TN_ACT_EXP,                 /* e^x                                                            */
    TN_ACT_TANH,
    TN_ACT_SQRT,                /* NaN below 0; slope 1/(2 sqrt(x)), infinite at 0                */
    TN_ACT_LOG                  /* ln x; -inf at 0, NaN below 0; slope 1/x                        */
} tn_act;

TN_API tn_tensor *tn_copy(tn_ctx *ctx, tn_tensor *a);                          /* a contiguous copy           */
TN_API tn_tensor *tn_cast(tn_ctx *ctx, tn_tensor *a, tn_dtype dtype);          /* differentiable if ops take both dtypes */
TN_API tn_tensor *tn_full(tn_ctx *ctx, int rank, const int64_t *shape, double value);                /* all equal */
TN_API tn_tensor *tn_uniform(tn_ctx *ctx, int rank, const int64_t *shape, double low, double high);  /* random, uniform */
TN_API tn_tensor *tn_normal(tn_ctx *ctx, int rank, const int64_t *shape, double mean, double std);   /* random, normal */
TN_API tn_tensor *tn_eye(tn_ctx *ctx, int64_t n);                              /* the identity matrix [n,n] */
TN_API tn_tensor *tn_add(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);             /* a + b, broadcast as in NumPy */
TN_API tn_tensor *tn_sub(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);             /* a - b, broadcast            */
TN_API tn_tensor *tn_mul(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);             /* a * b elementwise, broadcast */
/* a / b, broadcast and correctly rounded (BF16: of the quotient in F32). Where b is 0 the result and its gradients are
   infinite or NaN, as IEEE 754 has it. To keep them finite choose with tn_where between divisors, not between quotients. */
TN_API tn_tensor *tn_div(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_scale(tn_ctx *ctx, tn_tensor *a, double factor);          /* factor * a                  */
/* The square root, TN_ACT_SQRT. At 0 its gradient is infinite, or NaN where the gradient of the result is 0. */
TN_API tn_tensor *tn_sqrt(tn_ctx *ctx, tn_tensor *a);
TN_API tn_tensor *tn_exp(tn_ctx *ctx, tn_tensor *a);                           /* e^x, TN_ACT_EXP             */
TN_API tn_tensor *tn_log(tn_ctx *ctx, tn_tensor *a);                           /* ln x, TN_ACT_LOG; at 0 as tn_sqrt */
/* Takes elements of a where the condition (I32) is not 0, else of b; all three are broadcast. The number that is not
   selected has no influence, even if it is infinite or NaN, and its gradient is 0. */
TN_API tn_tensor *tn_where(tn_ctx *ctx, tn_tensor *condition, tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_sum(tn_ctx *ctx, tn_tensor *a);                           /* sum of all elements -> []   */
TN_API tn_tensor *tn_mean(tn_ctx *ctx, tn_tensor *a);                          /* mean of all elements -> []  */
TN_API tn_tensor *tn_sum_axis(tn_ctx *ctx, tn_tensor *a, int axis);            /* sums over an axis and removes it */
TN_API tn_tensor *tn_matmul(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);          /* product [..,m,k] [..,k,n] -> [..,m,n] */
/* y = x w^T + b.   x [..,n]  w [m,n]  b [m] or NULL -> [..,m] */
TN_API tn_tensor *tn_affine(tn_ctx *ctx, tn_tensor *x, tn_tensor *w, tn_tensor *b);
TN_API tn_tensor *tn_activation(tn_ctx *ctx, tn_tensor *x, tn_act kind);       /* applies a tn_act elementwise */
/* y = act(x[..,:h]) * x[..,h:], a gated linear unit; bilinear with TN_ACT_NONE.   x [..,2h] -> [..,h]   Shazeer 2020 */
TN_API tn_tensor *tn_glu(tn_ctx *ctx, tn_tensor *x, tn_act kind);
/* y = x[..,:h] * x[..,h:2h] * ..., the product of the k >= 1 equal parts of the last axis.   x [..,k h] -> [..,h] */
TN_API tn_tensor *tn_prod_parts(tn_ctx *ctx, tn_tensor *x, int64_t k);
/* Appends a one to the last axis: [x;1].   x [..,n] -> [..,n+1] */
TN_API tn_tensor *tn_append_one(tn_ctx *ctx, tn_tensor *x);
/* Joins n >= 1 tensors along an existing axis; all other extents are equal. All are I32, or all are floats as for any op.
   The result is a copy: `tensors` may be a local array. */
TN_API tn_tensor *tn_concat(tn_ctx *ctx, int64_t n, tn_tensor *const *tensors, int axis);
/* Joins n >= 1 tensors of one shape along a new axis of the result, 0 <= axis <= rank; -1 makes it the last one. */
TN_API tn_tensor *tn_stack(tn_ctx *ctx, int64_t n, tn_tensor *const *tensors, int axis);
/* Selects by ids along an axis, as numpy.take does.   x [p..,v,s..]  ids I32 [i..] -> [p..,i..,s..].
   An id outside [0,v) gives zeros, and an error at the next sync. An element that is selected several times sums its
   gradients in the order of the ids, so that they are bit-identical in every run. */
TN_API tn_tensor *tn_gather(tn_ctx *ctx, tn_tensor *x, int axis, tn_tensor *ids);
/* Selects rows of a table.   table [v,d]  ids I32 [..] -> [..,d].
   An id outside [0,v) gives zeros, and an error at the next sync. */
TN_API tn_tensor *tn_embed(tn_ctx *ctx, tn_tensor *table, tn_tensor *ids);
/* x / sqrt(mean x^2 + eps) * gain, over the last axis.   gain [c] or NULL; eps >= 0. With eps = 0 a row of zeros gives NaN,
   and a row of subnormal numbers infinities or NaN.   Zhang & Sennrich 2019 */
TN_API tn_tensor *tn_rmsnorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *gain, double eps);
/* tn_rmsnorm(x + branch) in one pass over memory, for the residual stream of a transformer. *sum becomes x + branch, unless
   sum is NULL. The bits are those of tn_add and tn_rmsnorm, forward and backward (on a GPU if x and branch begin at multiples of
   16 bytes, as tensors do).   x, branch [..,c], of one shape */
TN_API tn_tensor *tn_residual_rmsnorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *branch, tn_tensor *gain, double eps,
                                      tn_tensor **sum);
/* (x - mean(x)) / sqrt(var(x) + eps) * gain + bias, over the last axis.   gain, bias [c] or NULL. With eps = 0 a row
   of equal numbers gives NaN; eps >= 0.   Ba, Kiros & Hinton 2016 */
TN_API tn_tensor *tn_layernorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *gain, tn_tensor *bias, double eps);
/* e^x / sum e^x over the last axis.   x [..,c] -> [..,c], c >= 0.
   Finite x may have any size: the largest is subtracted first. An element -inf has weight 0. A row of only -inf gives zeros
   (tn_log_softmax: -inf), as a query without a visible key does in tn_attend. A row with +inf or NaN becomes NaN. */
TN_API tn_tensor *tn_softmax(tn_ctx *ctx, tn_tensor *x);
TN_API tn_tensor *tn_log_softmax(tn_ctx *ctx, tn_tensor *x);                   /* x - log sum e^x             */
TN_API tn_tensor *tn_noise(tn_ctx *ctx, tn_tensor *x, double std);             /* x + std * normal; only while recording */
/* Sets elements to 0 with probability p and divides the others by 1-p, only while recording; else returns x. */
TN_API tn_tensor *tn_dropout(tn_ctx *ctx, tn_tensor *x, double p);
#ifndef TN_NO_SEQUENCES
/* Multiplies a chain of matrices: M[b,0] M[b,1] ... M[b,n-1] = exp(log_norm[b]) y[b].   m [b,n,d,d], n >= 1 -> y [b,d,d]
   y has Frobenius norm 1 and *log_norm [b] is the logarithm of the scale, so that long chains neither overflow nor vanish;
   log_norm may be NULL. Where the product is zero y is zero, log_norm -inf and the gradient zero.
   Matrix product states: Stoudenmire & Schwab 2016 */
TN_API tn_tensor *tn_chain(tn_ctx *ctx, tn_tensor *m, tn_tensor **log_norm);
/* Scans: all prefixes of a chain of matrices, where tn_chain gives the whole product alone. Each y has Frobenius norm 1, and
   *logs is the logarithm of its scale, so that 100,000 sites neither overflow nor vanish; logs may be NULL. Only a site with
   elements above 1e33 (F64: 1e303) may overflow. A prefix that is zero has y zero, the logarithm -inf and the gradient zero.
     tn_scan: all products.   m [b,n,d,d] -> y [b,n,d,d], *logs [b,n]
       M[b,0] ... M[b,j] = exp(logs[b,j]) y[b,j];   with reverse M[b,j] ... M[b,n-1]
     tn_scan_vector: an open chain, which begins with a vector.   v [d] or [b,d], m [b,n,d,d] -> y [b,n+1,d], *logs [b,n+1]
       v M[b,0] ... M[b,j-1] = exp(logs[b,j]) y[b,j];   with reverse M[b,j] ... M[b,n-1] v
     tn_scan_states: the same with M[b,j] = sum_s cores[j][:,s,:] phi[b,j,s], which are never made.
       v [d] or [b,d], cores [n,d,s,d] (one per site) or [1,d,s,d] (the same at all sites), phi [b,n,s] -> as above
   With n = 0 there is no product, or v alone. Bonds that differ from site to site are padded with zeros, which is exact.
   Flops per site: 2 d^3, 2 d^2 and 2 s d^2; backward passes take twice as many. While recording, a scan keeps one norm for
   each state besides its results: at 100,000 sites of d = 10 in F32 tn_scan gives 40 MB and keeps 0.4 MB, tn_scan_states
   gives 4.4 MB and keeps 0.4 MB. During the backward pass there are gradients of the results, and tn_scan_states needs
   b n d numbers of scratch besides, on a GPU b n d (s + 2).
     tn_scan_blocks: tn_scan, parallel in n. Blocks of `length` sites are multiplied side by side, then the products of the
       blocks are scanned, then all blocks side by side, each after what comes before it. Equal to tn_scan up to rounding.
       It needs twice the flops and three times the memory, so it is faster only where few long chains meet many processors:
       for n sites, a length of about sqrt(n). tn_scan does so itself on a GPU, for n >= 1024 and b < 32. */
TN_API tn_tensor *tn_scan(tn_ctx *ctx, tn_tensor *m, bool reverse, tn_tensor **logs);
TN_API tn_tensor *tn_scan_vector(tn_ctx *ctx, tn_tensor *v, tn_tensor *m, bool reverse, tn_tensor **logs);
TN_API tn_tensor *tn_scan_states(tn_ctx *ctx, tn_tensor *v, tn_tensor *cores, tn_tensor *phi, bool reverse,
                                 tn_tensor **logs);
TN_API tn_tensor *tn_scan_blocks(tn_ctx *ctx, tn_tensor *m, int64_t length, bool reverse, tn_tensor **logs);
/* Applies rotary positions (RoPE): x [B,T,n,d] -> [B,T,n,d].
   With h = d/2 rounded down, the pair (x_k, x_(k+h)) of row t is rotated by the angle (first + t) base^(-2k/d); with odd d
   the last number is not changed. So q.k depends only on the difference of two positions. A NULL desc means all defaults;
   without rotation and norm the result is x itself.   Su et al. 2021 */
/* Slower rotations for longer texts: pair k of rate r = base^(-2k/d) turns r context / (2 pi) times in `context` tokens.
   A pair that turns at least `high` times keeps its rate, that of one that turns at most `low` times is divided by factor;
   between, it is a mean of both, linear in the turns. This is "llama3" in Hugging Face's config.json (Llama 3.1). context 0:
   all rates are divided ("linear"). */
typedef struct tn_rope_scaling {
    double  factor;             /* 0: no scaling                                                      */
    double  low, high;          /* turns, low < high unless context is 0                              */
    double  context;            /* tokens of the training before                                      */
} tn_rope_scaling;
typedef struct tn_rope_desc {
    double  base;               /* 0: 10000                                                           */
    tn_rope_scaling scaling;
    int64_t first;              /* position of row 0                                                  */
    bool    no_rotation;        /* the norm only                                                      */
    bool    norm;               /* first divide x[b,t,n,:] by its root mean square: QK-norm without a gain,
                                   Henry et al. 2020                                                  */
    double  eps;                /* of the norm, added to the mean square; 0: 1e-6                     */
} tn_rope_desc;
TN_API tn_tensor *tn_rope(tn_ctx *ctx, tn_tensor *x, const tn_rope_desc *desc);
/* Attention: o_i = c_i sum_j P_ij v_j over the keys j that query i sees; s_ij = scale q_i.k_j is a score.
     TN_ATTEND_SOFTMAX    P_i = softmax of s_i            Vaswani et al. 2017
     TN_ATTEND_SQUARED    P_ij = s_ij^2
     TN_ATTEND_BILINEAR   P_ij = s1_ij s2_ij, two sets of q and k: with c_i constant, a tensor of all its inputs
   The last two also have a linear form, whose time grows with T instead of T^2: with phi(q) = q1 (x) q2, d d numbers per
   query, P = scale^2 phi(q) phi(k)^T, so that a query needs only one state of all keys before it, sum_j phi(k_j) v_j^T.
   By symmetry squared needs d(d+1)/2 numbers, those of a pair counted twice.
   No form stores a T x T matrix. Softmax accepts finite scores of any size: the largest is subtracted first. A score of -inf
   has weight 0, and a row of only -inf counts as a row without keys; a score of +inf or NaN makes the row NaN. Where v is
   not finite, rows nearby that do not see it may be NaN too, because masked pairs of a tile are multiplied by 0. The same
   holds for gradients if any operand is not finite. */
typedef enum tn_attend_kind { TN_ATTEND_SOFTMAX = 0, TN_ATTEND_SQUARED, TN_ATTEND_BILINEAR } tn_attend_kind;
typedef enum tn_attend_form {
    TN_ATTEND_FORM_AUTO = 0,    /* by a fixed rule of the extents (docs/measurements.md); softmax, windows: quadratic */
    TN_ATTEND_FORM_QUADRATIC,
    TN_ATTEND_FORM_LINEAR       /* squared and bilinear, without a window                                 */
} tn_attend_form;
/* The row scale c_i; n is the number of keys that query i sees. */
typedef enum tn_row_scale {
    TN_ROW_SCALE_DEFAULT = 0,   /* softmax: TN_ROW_SCALE_NONE, else TN_ROW_SCALE_LENGTH                   */
    TN_ROW_SCALE_NONE,          /* 1                                                                      */
    TN_ROW_SCALE_LENGTH,        /* sqrt(T0 / max(n,T0)): keeps the layer a tensor, and its outputs small beyond T0 */
    TN_ROW_SCALE_MEAN,          /* 1/n                                                                    */
    TN_ROW_SCALE_SUM            /* squared only: 1 / (eps + sum_j P_ij)                                   */
} tn_row_scale;
typedef struct tn_attend_desc {
    tn_attend_kind kind;
    tn_attend_form form;
    bool           bidirectional;
                                /* queries also see later keys. Default: query i sees keys up to its own position,
                                   past + Tk - Tq + i of 0..past+Tk-1                                     */
    int64_t        window;      /* 0: none; w: keys at positions > query's - w and, bidirectional, < query's + w */
    double         scale;       /* of each score; 0: 1/sqrt(d) for softmax, else 1/d                      */
    tn_row_scale   row_scale;
    int64_t        row_length;  /* T0 of TN_ROW_SCALE_LENGTH; 0: 512                                      */
    double         eps;         /* of TN_ROW_SCALE_SUM; 0: 1e-6                                           */
    tn_tensor     *state;       /* of the linear form, or NULL: [B,H,F,dv], with TN_ROW_SCALE_SUM [B,H,F,dv+1] (v gets a
                                   column of ones), contiguous, of the context's dtype. The call reads the sum over the
                                   keys of earlier calls and adds its own keys, without the scale. F = d d, feature
                                   a d + b is k1_a k2_b; squared: F = d(d+1)/2, row by row a <= b, k_a k_b. Not while
                                   recording; Tq <= Tk                                                    */
    int64_t        past;        /* number of keys in `state`                                              */
} tn_attend_desc;
/* Computes attention.   q [B,Tq,s H,d]  k [B,Tk,s H,d]  v [B,Tk,H,dv] -> [B,Tq,H,dv].
   Here s = 2 for bilinear: heads 0..H-1 are set 1, H..2H-1 are set 2; else s = 1. Extents may be 0, but d >= 1. The queries
   are the last positions: Tq < Tk continues a sequence. A query that sees no key gives zeros. */
TN_API tn_tensor *tn_attend(tn_ctx *ctx, tn_tensor *q, tn_tensor *k, tn_tensor *v, const tn_attend_desc *desc);
#endif /* TN_NO_SEQUENCES */
/* The mean over rows of -log softmax(logits)[label].   logits [..,c]  labels I32 [..] -> [] */
TN_API tn_tensor *tn_cross_entropy(tn_ctx *ctx, tn_tensor *logits, tn_tensor *labels);
/* The same over the rows whose label is not ignore_index, such as -100 where a text was padded, or the id of a token. Zero if
   there is no such row. With several processes each takes the mean over its own rows, so that the result is not the mean over
   all rows where their numbers differ. */
TN_API tn_tensor *tn_cross_entropy_ignore(tn_ctx *ctx, tn_tensor *logits, tn_tensor *labels, int32_t ignore_index);
TN_API tn_tensor *tn_mse(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);             /* mean of (a-b)^2 -> []       */
TN_API tn_tensor *tn_argmax(tn_ctx *ctx, tn_tensor *x);                        /* [..,c] -> I32 [..], the first of equals */
TN_API tn_tensor *tn_accuracy(tn_ctx *ctx, tn_tensor *logits, tn_tensor *labels); /* share of correct rows -> [] */
/* Selects the first k elements along an axis in the given order, sorted.   t [p..,n,s..], 0 <= k <= n -> [p..,k,s..]
   If ids is not NULL, *ids becomes their indices along the axis, I32 of the same shape. The selection is made on the host
   and waits for the device; the values are gathered from t, and gradients go to the selected elements. */
TN_API tn_tensor *tn_topk(tn_ctx *ctx, tn_tensor *t, int axis, int64_t k, tn_order order, tn_tensor **ids);
/* Sorts along an axis: tn_topk of all its elements. */
TN_API tn_tensor *tn_sort(tn_ctx *ctx, tn_tensor *t, int axis, tn_order order, tn_tensor **ids);
