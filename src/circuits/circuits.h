#pragma once
#include "core/core.h"
#include "tensor/tensor.h"
#include "layers/layers.h"
#include "operator/operator.h"
#include "network/network.h"
#include "models/models.h"

#ifndef TN_NO_CIRCUITS
/* ======================================================================
   >>circuits what a transformer does, read from its weights
   The blocks of a transformer read from the residual stream and add to it, so that its function is a sum over paths through
   heads and MLPs. The matrices of such paths have low rank: they are kept as factors, and numbers are computed from them
   when a function asks. Gains of norms are folded into the matrices that read the normed stream.
   Elhage et al. 2021, "A mathematical framework for transformer circuits"; docs/math.md 21
   ====================================================================== */

/* ---- objects ------------------------------------------------------------ >>circuits-objects
   Rows and columns of a head's circuits are tokens of the vocabulary, or directions of the normed residual stream: of
   (x - mean x)/denominator before the gain, which is folded in, with the constant one as a last direction where the layer or
   the norm has a bias. In the first block the denominators of norm1 and of QK-norm depend on one token alone, so that tables
   of tokens are exact there. In later blocks they depend on the text: tables of tokens then show what the embedding alone
   contributes, with a constant in place of the denominator.
   What has no such form is an error that names it: a head's output under head_norm or differential attention, under a norm
   of what is written (TN_PLACE_POST, TN_PLACE_SANDWICH), mixed values; MLPs that are not bilinear. The row scale of
   tn_row_scale, masks, softmax and soft-cap are not part of a circuit: they act on its numbers. */

/* A circuit: a matrix [rows,columns] in factors, with the entries  c[i,j] = prod_s (left[s][i] . right[s][j]). */
typedef struct tn_circuit {
    tn_ctx    *ctx;
    int        sets;            /* number of factors of an entry: 1, or 2 for squared and bilinear attention    */
    int64_t    rows, columns;
    tn_tensor *left[2];         /* [rows,rank_s]                                                                */
    tn_tensor *right[2];        /* [columns,rank_s]                                                             */
} tn_circuit;
typedef struct tn_circuit_desc {
    int64_t block, head;
    bool    tokens;             /* rows and columns are tokens [vocab]; else directions of the stream           */
    int     set;                /* of QK: 1 or 2, the scores of one set alone; 0: the product of all            */
    int64_t query, key;         /* positions. With RoPE only query - key matters; learned positions are added to tokens,
                                   OV reads at `key`; without positions they have no effect                     */
    double  norm_scale;         /* tokens in blocks after the first: the number that replaces 1/denominator of norm1, such as
                                   its mean over texts (tn_circuit_norm_scales); required there unless the model has
                                   no norms                                                                     */
} tn_circuit_desc;
/* Makes a circuit from arrays, which are copied: left[s] [rows,rank_s] and right[s] [columns,rank_s], sets 1 or 2. Functions
   that return a circuit, an operator or a net return a new, owned one; NULL on error. */
TN_API tn_circuit *tn_circuit_create(tn_ctx *ctx, int sets, tn_tensor *const *left, tn_tensor *const *right);
TN_API void        tn_circuit_destroy(tn_circuit *circuit);     /* frees the circuit, as the end of the context does */
/* Makes the QK circuit of a head: row i, a query, scores column j, a key. The scale of the scores is included. Softmax
   has one set; bilinear attention the product of two, squared the square of one; differential kinds have two that are not
   multiplied: ask for set 1 or 2. With QK-norm and not in tokens of the first block, entries are scores times the root mean
   squares of q and of k. */
TN_API tn_circuit *tn_circuit_qk(tn_ctx *ctx, const tn_transformer *model, const tn_circuit_desc *desc);
/* Makes the OV circuit of a head: what it writes (rows) when it attends to one source (columns) with weight 1, attn_scale
   included. Rows are directions of the residual stream or, with `tokens`, logits before the final norm's denominator. The
   bias of the output matrix belongs to no head. */
TN_API tn_circuit *tn_circuit_ov(tn_ctx *ctx, const tn_transformer *model, const tn_circuit_desc *desc);

typedef enum tn_circuit_side { TN_CIRCUIT_ROWS = 0, TN_CIRCUIT_COLUMNS } tn_circuit_side;
/* Makes the circuit in which one side of `outer` reads what `inner` writes: with COLUMNS outer inner, the virtual head or
   the K-composition of two heads, with ROWS inner^T outer, Q-composition. outer has directions of the stream on that side (a
   constant one there is left out); inner has one set, and directions as rows. Denominators of the norm between them are left
   out, as above. */
TN_API tn_circuit *tn_circuit_compose(const tn_circuit *outer, tn_circuit_side side, const tn_circuit *inner);
/* Computes the composition scores of all heads of block `to` with those of an earlier block `from`: |outer inner| / (|outer|
   |inner|), without biases and at distance 0, where inner is the OV circuit of a head of `from`, and outer the part of a
   head of `to` that reads: its scores of set 1 (TN_HEAD_Q1, TN_HEAD_K1) or 2, or OV (TN_HEAD_V). Random matrices of the same
   extents have about 1/sqrt(dim); a zero matrix gives NaN.   -> [heads of to,heads of from], owned   Elhage et al. 2021 */
TN_API tn_tensor  *tn_circuit_composition(tn_ctx *ctx, const tn_transformer *model, int64_t from, int64_t to,
                                          tn_head_part part);
/* Computes the Frobenius norm of the matrix: of one set from the factors, of two row by row. */
TN_API tn_status   tn_circuit_norm(const tn_circuit *circuit, double *norm);
/* Computes the eigenvalues that can differ from 0, [rank,2] by decreasing magnitude (real and imaginary parts, owned), of a
   square circuit of one set, without forming it: those of right^T left. *score = sum Re l / sum |l| is the copying score:
   1 for an OV circuit that raises the logits of what it attends to, -1 where it lowers them. A column of the constant one is
   left out. values or score may be NULL; the score of a zero matrix is NaN. */
TN_API tn_status   tn_circuit_copying(const tn_circuit *circuit, tn_tensor **values, double *score);
/* Computes rows [first,first+count) of the matrix: an arena tensor [count,columns]. */
TN_API tn_tensor  *tn_circuit_rows(tn_ctx *ctx, const tn_circuit *circuit, int64_t first, int64_t count);

/* Makes the operator of a block's MLP on the normed stream, with gain, centring and biases of norm2 folded in and mlp_scale.
   Bilinear MLPs only (any order): of others tn_mlp_modifier gives the modifier to freeze. */
TN_API tn_cp      *tn_circuit_mlp(tn_ctx *ctx, const tn_transformer *model, int64_t block);
/* Makes the net of a block's attention on the normed stream: tn_net_from_attention with norm1 folded in and attn_scale. */
TN_API tn_net     *tn_circuit_attention(tn_ctx *ctx, const tn_transformer *model, int64_t block, int64_t distance);
/* Returns the unembedding [vocab,dim] with gain and centring of the final norm: logits are its product with the stream, over
   the denominator, plus that of the norm's bias. An arena tensor, or the parameter itself where there is
   nothing to fold in. */
TN_API tn_tensor  *tn_circuit_unembedding(tn_ctx *ctx, const tn_transformer *model);

typedef struct tn_circuit_block_desc {
    int64_t block;
    double  norm1_scale, norm2_scale;   /* replace 1/denominator of norm1 and norm2; required if the model has norms    */
    bool    compact;            /* also the compact form, of dim^3 numbers where heads d_v = dim                        */
} tn_circuit_block_desc;
/* A block as tensors: with x~ = [x;1] and M^0 = [I b_O; 0 1], M^h = [O V~; 0 0] for heads h = 1 .. H,
       out_t = sum_gk sum_sr A^g_ts A^k_tr B+(M^g x~_s, M^k x~_r),   A^0 = I, A^h the pattern of head h - 1 */
typedef struct tn_circuit_block {
    int64_t    heads;
    tn_cp     *b;               /* B+ = P B + I on x~, hidden + dim terms                                               */
    tn_cp     *doubled;         /* the same as one operator without constant columns on two inputs, [x;1;x] and [x;1;1..1],
                                   of length 2 dim + 1: diag(P B, e_o). The stream x may differ from the normed x here  */
    tn_tensor *m;               /* [H+1,dim+1,dim+1]                                                                    */
    tn_tensor *v;               /* [H,d_v,dim+1]: V~, values from x~                                                    */
    tn_tensor *compact;         /* [H,H,dim,d_v,d_v]: B+ of M^g and M^k from values alone; or NULL                      */
} tn_circuit_block;
/* Makes these tensors of a block with a bilinear MLP of order 2. tn_circuit_block_destroy frees the result. */
TN_API tn_status   tn_circuit_block_of(tn_ctx *ctx, const tn_transformer *model, const tn_circuit_block_desc *desc,
                                       tn_circuit_block *out);
/* Makes the operator B+(M^g x~_s, M^k x~_r) of one pair, 0 <= g, k <= heads; 0 and h: "B+OV". */
TN_API tn_cp      *tn_circuit_block_term(const tn_circuit_block *block, int64_t g, int64_t k);
TN_API void        tn_circuit_block_destroy(tn_circuit_block *block);              /* frees what the result holds */

/* ---- tables ------------------------------------------------------------- >>circuits-tables
   Tables of tokens are circuits: T(.) of a vocabulary of 50,000 has 2.5 billion entries, and is read row by row. */

/* Makes D(.), the bigram table: row i has the logits after token i where attention reads nothing (all patterns are 0), with
   the MLPs of the first `blocks` blocks, 0 for embedding and unembedding alone, and every norm of that stream. Any model.
   Token i is at `position`, which matters with learned positions only. The soft-cap is left out. */
TN_API tn_circuit *tn_circuit_bigrams(tn_ctx *ctx, const tn_transformer *model, int64_t blocks, int64_t position);
/* Makes T(.), the table of token pairs of an MLP for output token `out`: entry (i,j) is B(x_i, x_j), symmetrised, where x_i
   is the embedding of token i at position 0, normed alone (so far norms are held constant), with the one where there are
   biases. Logits are before the final norm's denominator. A pair counts twice, unless i = j. Bilinear MLPs of order 2. */
TN_API tn_circuit *tn_circuit_pairs(tn_ctx *ctx, const tn_transformer *model, int64_t block, int64_t out);
/* Makes the circuit of an operator for output direction u [out] between two lists of vectors: entry (i,j) is x_i^T Q_u y_j.
   x [n,in]  y [m,in], which may be NULL: all directions of the input. With y = x M^T and M of tn_circuit_block: T(B+OV). */
TN_API tn_circuit *tn_circuit_interactions(tn_ctx *ctx, const tn_cp *cp, const tn_tensor *u, tn_tensor *x, tn_tensor *y);
/* Makes the circuit of some rows and columns: ids I32 [n]; NULL: all of them. One id is "P_tok". */
TN_API tn_circuit *tn_circuit_select(const tn_circuit *circuit, tn_tensor *rows, tn_tensor *columns);
/* Computes the mean of each column and of each row, owned: for A(.), the filter of the tokens that a QK circuit scores
   highest (tn_topk of both, then tn_circuit_select). From the factors, without the matrix. NULL for what is not needed. */
TN_API tn_status   tn_circuit_means(const tn_circuit *circuit, tn_tensor **columns, tn_tensor **rows);

typedef struct tn_circuit_top_desc {
    int64_t  top;               /* required: number of entries                                                  */
    tn_order order;
    bool     pairs;             /* of a symmetric matrix: entries (i,j) and (j,i), i < j, are added and count as one */
} tn_circuit_top_desc;
typedef struct tn_circuit_entries {
    int64_t    count;
    tn_tensor *values;          /* [count] in the given order, equal ones by index                              */
    tn_tensor *index;           /* I32 [count,2] row and column                                                 */
    tn_tensor *share;           /* [count] value^2 over the sum of squares of all entries (with `pairs`, of pairs) */
    double     norm;            /* the root of that sum                                                         */
} tn_circuit_entries;
/* Finds the first entries in an order. The matrix is computed in blocks of rows and never stored: they take at most an
   eighth of desc.max_bytes, 32 MiB without a limit. TN_ERR_NONFINITE. */
TN_API tn_status   tn_circuit_top(const tn_circuit *circuit, const tn_circuit_top_desc *desc, tn_circuit_entries *out);
/* Does the same for 1 to 4 descs, such as one of each order, while the matrix is computed once. desc[count]  out[count] */
TN_API tn_status   tn_circuit_top_many(const tn_circuit *circuit, int count, const tn_circuit_top_desc *desc,
                                       tn_circuit_entries *out);
TN_API void        tn_circuit_entries_destroy(tn_circuit_entries *entries);     /* frees the tensors of the result */
/* Does the same in each row: *values [rows,top] and *ids I32 [rows,top], owned. */
TN_API tn_status   tn_circuit_top_rows(const tn_circuit *circuit, int64_t top, tn_order order, tn_tensor **values,
                                       tn_tensor **ids);

typedef struct tn_circuit_maximum_desc {
    int64_t  starts, steps;     /* number of random starts, and the most steps of each; 0: 8 and 1000           */
    double   radius;            /* length of each input, without the one; 0: 1                                  */
    double   tol;               /* ends when a step gains less than this part of the value; 0: 1e-12            */
    uint64_t seed;
    bool     minimum;           /* the smallest value instead                                                   */
} tn_circuit_maximum_desc;
typedef struct tn_circuit_maximum {
    double     value;           /* of sum_o u_o f(x)_o                                                          */
    tn_tensor *x;               /* [inputs,n]: one vector per input number of the net, with the one last if `constant` */
    int64_t    agree;           /* number of starts that ended within 1e-6 of the value, of `starts`            */
    bool       converged;       /* whether the best of them met tol                                             */
} tn_circuit_maximum;
/* Searches the inputs of a given length that maximise output direction u of a net of any order (u is in the shape of the
   outputs): shifted power iteration, whose value never falls. A local maximum is possible; `agree` says how often it was
   found. Of two legs of one input, without a constant, tn_net_eigen has the exact answer. All legs have equal length.
   Kolda & Mayo 2011 */
TN_API tn_status   tn_circuit_maximise(const tn_net *net, const tn_tensor *u, const tn_circuit_maximum_desc *desc,
                                       tn_circuit_maximum *out);
TN_API void        tn_circuit_maximum_destroy(tn_circuit_maximum *maximum);     /* frees the result's tensor */

/* What a data set says of features: numbers that are computed for each of its rows (positions of texts), such as
   contributions of paths, and products of activations with eigenvectors or with rows of a dictionary. */
typedef struct tn_circuit_evidence tn_circuit_evidence;
typedef struct tn_circuit_evidence_desc {
    int64_t  features;          /* required: number of features                                                 */
    int64_t  top;               /* rows to keep for each; 0: 10. As many random rows are kept as controls       */
    tn_order order;             /* of the rows that are kept                                                    */
    int64_t  bins;              /* of the histograms; 0: none. Numbers outside count in the first or last bin   */
    double   low, high;         /* their range; required with bins                                              */
    uint64_t seed;              /* of the random rows                                                           */
} tn_circuit_evidence_desc;
typedef struct tn_circuit_evidence_result {
    int64_t    rows, top, random;   /* rows so far; rows that are kept: at most the desc's top                  */
    tn_tensor *values, *index;      /* [features,top] and I32, the row numbers, which count from 0              */
    tn_tensor *random_values;       /* [features,random]: numbers of rows that were drawn at random             */
    tn_tensor *random_index;        /* I32 [random]                                                             */
    tn_tensor *histogram;           /* [features,bins] counts, or NULL                                          */
    tn_tensor *mean, *std, *kurtosis; /* [features]; kurtosis is the mean of ((v - mean)/std)^4, 3 for a normal one */
} tn_circuit_evidence_result;
/* Creates an empty collection, whose memory does not grow with the data. Freed by _destroy or with the context. */
TN_API tn_circuit_evidence *tn_circuit_evidence_create(tn_ctx *ctx, const tn_circuit_evidence_desc *desc);
/* Adds the next rows: values [n,features]. At most 2^31 - 1 rows; a number that is not finite is an error, and nothing is
   added. */
TN_API tn_status   tn_circuit_evidence_add(tn_circuit_evidence *evidence, const tn_tensor *values);
/* Reads what was collected, at any time. tn_circuit_evidence_result_destroy frees the tensors. */
TN_API tn_status   tn_circuit_evidence_read(const tn_circuit_evidence *evidence, tn_circuit_evidence_result *out);
TN_API void        tn_circuit_evidence_result_destroy(tn_circuit_evidence_result *result);  /* frees its tensors */
TN_API void        tn_circuit_evidence_destroy(tn_circuit_evidence *evidence);              /* frees the collection */

/* How far directions keep to a few coordinates. */
typedef struct tn_circuit_sparsity {
    tn_tensor *kurtosis;        /* [rows] n sum x^4 / (sum x^2)^2: 1 if all coordinates are equal in size, n for one alone */
    tn_tensor *participation;   /* [rows] (sum x^2)^2 / sum x^4 = n / kurtosis: number of coordinates that take part       */
    tn_tensor *deviations;      /* [rows] (kurtosis - expected) / std                                                      */
    double     expected, std;   /* of the kurtosis after a random rotation: 3 n/(n+2), and its exact standard deviation    */
} tn_circuit_sparsity;
/* Computes them for each row of x [rows,n], in the coordinates that it is given in. NaN for a row of zeros. */
TN_API tn_status   tn_circuit_sparsity_of(tn_ctx *ctx, const tn_tensor *x, tn_circuit_sparsity *out);
TN_API void        tn_circuit_sparsity_destroy(tn_circuit_sparsity *sparsity);  /* frees the tensors of the result */

/* ---- paths -------------------------------------------------------------- >>circuits-paths
   A frozen network is a transformer on one text whose attention patterns and norm denominators are constants. Gains of norms
   are folded into the matrices, and vectors end with the constant one, so that biases are columns: what is left is a
   polynomial of the embeddings, the sum of all its paths. Frozen as well: the modifiers of MLPs that are not bilinear
   (m in P (m * features), see tn_mlp_modifier), the norms of heads, and the ratio of a soft cap. Refused by name:
   TN_PLACE_POST and value_residual.

   A path begins at a source, a token or the constant one at a position, and ends at the unembedding. It is written

       E[once]@0 -> 0.head1@3 -> 1.mlp@3 -> U           the token "once", read by a head of block 0 for position 3, and so on
       1@3 -> 0.mlp@3 -> U                              the constant one: biases
       *@3 -> 1.mlp@3 -> U                              all paths together that end like this: a part of the frontier

   Learned positions are a source of their own, P@0. In the linear form each MLP is replaced by
   1/k P sum_e (product of the other encoders, frozen) * (F_e x + b_e), which is exact at its own input (for k = 2 half of
   the Jacobian), so that a path passes each MLP once. With k > 2 the sum of a hidden unit is over those of its encoders that
   read x, if any does, and k is their number: factors of the constant one alone take nothing. docs/math.md 21 */

/* One block. T tokens, n = dim, h hidden units, k encoders (1 unless the MLP is bilinear). */
typedef struct tn_circuit_frozen_block {
    tn_tensor *pattern;         /* [heads,T,T], times what follows it: the norm of heads, attn_scale, a norm after */
    tn_tensor *norm1_scale, *norm2_scale;   /* [T,1] 1/denominator of norm1 and of norm2; ones without norms     */
    tn_tensor *v, *o;           /* [heads,d_v,n+1], [n,heads,d_v]                                                */
    tn_tensor *ob;              /* [T,n] the output bias, or NULL                                                */
    tn_tensor *qk, *mask;       /* [2s heads d_qk,n+1], [T,T] scale^2 c_t where visible: of squared and bilinear patterns
                                   that are polynomials (without QK-norm and TN_ROW_SCALE_SUM), else NULL        */
    tn_tensor *w;               /* [k,h+1,n+1]; the last hidden unit is the constant one                         */
    tn_tensor *m;               /* [T,h] factors of the hidden units, or NULL                                    */
    tn_tensor *p, *pb;          /* [n,h]; [T,n] the bias, or NULL                                                */
    double     keep, again;     /* the block begins with keep x + again x0                                       */
    tn_tensor *run1, *run2;     /* [T,n] what norm1 and norm2 read in the run                                    */
    tn_tensor *x1, *x2;         /* [T,n+1] the same in the frozen network                                        */
    tn_tensor *values, *gate;   /* [T,heads,d_v]; [k,T,h+1] the frozen factors of the linear form                */
    tn_tensor *added;           /* [T,n] what the MLP adds                                                       */
} tn_circuit_frozen_block;

typedef struct tn_circuit_frozen {
    tn_ctx               *ctx;
    const tn_transformer *model;        /* must live as long as this struct                                      */
    int64_t               layers, tokens; /* number of blocks; T                                                 */
    int                   sources;      /* 1: the tokens; then learned positions; last the constant one          */
    bool                  positions, constant;   /* whether these sources exist                                 */
    int32_t              *id;           /* [T]                                                                   */
    tn_tensor            *source;       /* [sources,T,n+1]                                                       */
    tn_circuit_frozen_block *block;     /* [layers]                                                              */
    tn_tensor            *norm_scale;   /* [T,1] 1/denominator of the last norm                                  */
    tn_tensor            *u;            /* [vocab,n+1] the unembedding                                           */
    tn_tensor            *cap;          /* [T,vocab] ratio of the soft cap, or NULL                              */
    tn_tensor            *run;          /* [T,n] what the last norm reads in the run                             */
    tn_tensor            *x;            /* [T,n+1] the same in the frozen network                                */
    tn_tensor            *logits;       /* [T,vocab] of the frozen network                                       */
    double                error;        /* largest |its logit - the run's| / largest |logit of the run|          */
} tn_circuit_frozen;

/* Freezes a model on a text, ids I32 [1,T], by a run. Costs heads T^2 (d_qk + T) multiply-adds a block: for short texts.
   All tensors are owned by the result. TN_ERR_ARG for what is refused, TN_ERR_SHAPE for ids of another shape. */
TN_API tn_status tn_circuit_freeze(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids, tn_circuit_frozen *out);
/* Computes what follows from pattern and the scales of the norms again, after the program has written other numbers into
   them, such as means over many texts; `error` is then what these cause. After a failure only updating or destroying is
   possible. */
TN_API tn_status tn_circuit_frozen_update(tn_circuit_frozen *frozen);
TN_API void      tn_circuit_frozen_destroy(tn_circuit_frozen *frozen);             /* frees the tensors of the result */
/* Computes the means over texts, ids I32 [N,T], of what the norms multiply by, 1/denominator, at each position: owned
   [2 layers + 1,T], norm1 and norm2 of each block in turn, then the last norm; ones where there is no norm. For
   tn_circuit_frozen_update, and averaged over positions as the norm_scale of circuits and blocks. A run per text. */
TN_API tn_tensor *tn_circuit_norm_scales(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids);

/* What is attributed to paths: a linear function of the logits at a position. */
typedef enum tn_circuit_aim {
    TN_CIRCUIT_AIM_LOGIT = 0,       /* the logit of `token`                                                          */
    TN_CIRCUIT_AIM_DIFFERENCE,      /* that minus the logit of `other`                                               */
    TN_CIRCUIT_AIM_LOSS             /* the loss of `token` as the next one, linearised: (softmax - one-hot) . logits, whose value
                                   is not the loss, but whose small changes are those of the loss                */
} tn_circuit_aim;
typedef struct tn_circuit_target {
    tn_circuit_aim aim;
    int64_t        position, token, other;
} tn_circuit_target;

/* ---- every path at once ------------------------------------------------- >>circuits-parts */
typedef enum tn_circuit_by {
    TN_CIRCUIT_BY_PATH = 0,     /* each path on its own. An MLP of k encoders joins k paths: part (a,b) of M paths comes
                                   after the M that pass it by, at M + a M + b. With one head and no biases there are 6
                                   after one block and 156 after two                                             */
    TN_CIRCUIT_BY_DEGREE,       /* part d has degree d in the embeddings; 2^layers + 1 parts if MLPs are bilinear */
    TN_CIRCUIT_BY_MLPS          /* part i passes exactly the MLPs of the set bits of i; 2^layers parts           */
} tn_circuit_by;
typedef struct tn_circuit_parts_desc {
    tn_circuit_by by;
    bool          patterns;     /* squared and bilinear patterns are not constant but expanded as well, in q, k and v: each
                                   head joins five paths. TN_ERR_ARG where a pattern is not a polynomial         */
    int64_t       max_parts;    /* at most this many parts, else TN_ERR_MEMORY; 0: 1,000,000                     */
} tn_circuit_parts_desc;
typedef struct tn_circuit_parts {
    tn_circuit_by by;
    bool          patterns;
    int64_t       count;
    const tn_circuit_frozen *frozen;    /* must live as long as this struct                                      */
    tn_tensor    *values;       /* [count]                                                                       */
    double        whole, error; /* the target; sum of the parts - whole                                          */
} tn_circuit_parts;
/* Computes the parts of a target exactly, in polynomials whose coefficients are vectors: no differences are taken. */
TN_API tn_status tn_circuit_parts_of(const tn_circuit_frozen *frozen, const tn_circuit_target *target,
                                     const tn_circuit_parts_desc *desc, tn_circuit_parts *out);
TN_API void      tn_circuit_parts_destroy(tn_circuit_parts *parts);                /* frees the tensor of the result */
/* Writes the name of part i, such as "(E * E -> 0.head1) -> 0.mlp -> U", "degree 3" or "mlps 0 2". Returns the length
   without the final zero that the whole name needs; -1 if there is no such part. */
TN_API int64_t   tn_circuit_part_name(const tn_circuit_parts *parts, int64_t i, char *dst, size_t bytes);
/* Computes the number of paths of TN_CIRCUIT_BY_PATH: N = M + M^k after each block, M = (1 + heads) N, from N = sources. */
TN_API double    tn_circuit_path_count(const tn_circuit_frozen *frozen, bool patterns);

/* ---- all logits by degree ------------------------------------------------ >>circuits-degrees */
typedef struct tn_circuit_degrees_desc {
    int64_t max_degree;         /* up to 10,000; 0: all degrees that there are, at most 100                      */
    bool    hold_patterns;      /* patterns are constants of the text, of any attention; else squared and bilinear ones are
                                   expanded, and others are TN_ERR_ARG                                           */
} tn_circuit_degrees_desc;
typedef struct tn_circuit_degrees {
    int64_t     count;          /* of parts: the highest degree that was computed, plus 1                        */
    double      highest;        /* degree of the logits: each attention multiplies it by 5 (held: 1), an MLP by its encoders */
    tn_tensor  *logits;         /* [count,T,vocab]: part d of each logit has degree d in the embeddings          */
    double      rest;           /* largest |sum of parts - logit| / largest |logit|: higher degrees, or rounding */
    const char *held;           /* the first part of the model that is a constant of the text, such as "norms"; NULL if none is:
                                   the logits are then these polynomials for every text                          */
} tn_circuit_degrees;
/* Computes the parts of all logits of a text by degree, exactly: the frozen network with s times the embeddings is the power
   series sum_d s^d logits[d], and each activation is kept as its coefficients. Biases have degree 0, learned positions count
   as a part of the embeddings. Without biases one block has the degrees 1 (the embedding alone), 2 (MLP), 5 (attention), 6 and
   10 (MLP of both, and of attention alone). The frozen network may be changed before: zeros in o and ob of a block remove its
   attention, in p and pb its MLP, and zeros in mask outside of the diagonal leave the products of the position's own token.
   With D degrees a head takes up to D^2/2 products of its T^2 patterns.   docs/math.md 21 */
TN_API tn_status tn_circuit_degrees_of(const tn_circuit_frozen *frozen, const tn_circuit_degrees_desc *desc,
                                       tn_circuit_degrees *out);
TN_API void      tn_circuit_degrees_destroy(tn_circuit_degrees *degrees);          /* frees the tensor of the result */

/* ---- a model with its norms as a ratio ---------------------------------- >>circuits-ratio
   RMSNorm is x -> scale x, scale = 1/sqrt(mean x^2 + eps). Where all else is bilinear, squared or linear, each logit is the
   scale of the last norm times a polynomial in variables z, in which the embeddings of a text are linear, and in the scales of
   the other norms; and each 1/scale^2 is such a polynomial in z and the scales before it. This holds for every z, while a
   frozen network is exact at the run alone. docs/math.md 21 */

/* A sum of terms: each has `width` coefficients, times a power of each symbol. */
typedef struct tn_circuit_polynomial {
    tn_ctx   *ctx;
    int64_t   symbols, width, count;    /* count: number of terms                                                */
    uint16_t *power;            /* [count,symbols]                                                               */
    double   *value;            /* [count,width]                                                                 */
    int64_t   room, *slot;      /* for the library: what the arrays have room for; terms by their powers         */
} tn_circuit_polynomial;
typedef struct tn_circuit_ratio_desc {
    const tn_tensor *directions; /* [m,T,dim]: the stream before block 0 is base + sum_i z_i directions[i]; NULL: m = T, and z_t
                                    is the amplitude of the text's own embedding at position t                   */
    const tn_tensor *base;      /* [T,dim]; NULL: what the text has there, point "embed"                         */
    size_t           max_bytes; /* if the result can take more: TN_ERR_MEMORY before it is made; 0: 1 GiB        */
    bool             size_only; /* makes no terms, and says how many there can be                                */
} tn_circuit_ratio_desc;
typedef struct tn_circuit_ratio {
    const tn_circuit_frozen *frozen;    /* must live as long as this struct                                      */
    int64_t  variables, symbols;        /* m; m + (2 layers + 1) T: after z the scales of norm1 of block 0 at each position,
                                   then of norm2, and so on; the last T are those of the last norm               */
    bool     moved;             /* directions were given: functions without z take 0, and else 1, the text itself */
    size_t   max_bytes;
    double   degree;            /* in z, of what the last MLP reads: 5 for each attention times k for each MLP before it */
    double   terms_bound, bytes_bound;  /* at most: of all positions; for them and for looking them up           */
    int64_t *count;             /* [2 layers,T] number of terms that norm1 of block 0 reads, then norm2, and so on */
    tn_circuit_polynomial *x;   /* [T] the stream that the last MLP reads, of width dim; the first count[i,t] terms are what norm
                                   i reads                                                                       */
} tn_circuit_ratio;
/* Makes it. Norms are RMSNorm before the blocks, or there are none; attention is squared or bilinear, without QK-norm,
   head_norm and TN_ROW_SCALE_SUM; MLPs are bilinear, of any order. TN_ERR_ARG with the name of any other part, softcap and
   x0_residual included. With e terms at position t, one more if there are biases, an attention adds C(e + 4, 5) terms and, for
   each other position it sees, with e' terms, C(e + 1, 2) C(e' + 2, 3); an MLP of k encoders C(e + k - 1, k). These are the
   numbers in one block whose variables are amplitudes; elsewhere equal terms are one, and there are at most as many. Making it
   takes up to about three times the memory of the result for a while. */
TN_API tn_status tn_circuit_ratio_of(const tn_circuit_frozen *frozen, const tn_circuit_ratio_desc *desc, tn_circuit_ratio *out);
TN_API void      tn_circuit_ratio_destroy(tn_circuit_ratio *ratio);                /* frees what the result holds */
/* Computes the logits at z [variables], NULL: zeros or ones, as above. -> [T,vocab], an arena tensor, and so is *symbols
   [symbols]: z and all scales there (symbols may be NULL). With `held` the scales are those of the frozen network at any z. */
TN_API tn_tensor *tn_circuit_ratio_logits(const tn_circuit_ratio *ratio, const tn_tensor *z, bool held, tn_tensor **symbols);

typedef struct tn_circuit_terms {
    const tn_circuit_ratio *ratio;      /* must live as long as this struct                                      */
    tn_circuit_polynomial list;         /* of width 2: coefficient, and value of the term at z; the largest values first */
    double whole;                       /* sum of the values                                                     */
} tn_circuit_terms;
/* Multiplies out the terms of a target, whose sum at z is the target there, the last norm's scale included (of
   TN_CIRCUIT_AIM_LOSS with the softmax of the frozen network's logits); or, if target is NULL, those of 1/scale^2 of the norm
   whose scale is `symbol`, >= variables. z as above. The number of terms is checked against the ratio's max_bytes first. */
TN_API tn_status tn_circuit_ratio_terms(const tn_circuit_ratio *ratio, const tn_circuit_target *target, int64_t symbol,
                                        const tn_tensor *z, tn_circuit_terms *out);
TN_API void      tn_circuit_terms_destroy(tn_circuit_terms *terms);                /* frees what the result holds */
/* Writes the name of term i, such as "z0^3 z1^2 0.norm1@0^3 0.norm1@1^2 norm@1", powers of variables and scales. Returns the
   length without the final zero that the whole name needs; -1 if there is no such term. */
TN_API int64_t   tn_circuit_term_name(const tn_circuit_terms *terms, int64_t i, char *dst, size_t bytes);

/* ---- paths of the linear form, best first -------------------------------- >>circuits-search */
enum { TN_CIRCUIT_MLP = -1, TN_CIRCUIT_SOURCE = -2, TN_CIRCUIT_TARGET = -3 };     /* instead of the number of a head */
/* A node is one end of paths: what reads a position's residual stream, and all that follows. Node 0 is the target. */
typedef struct tn_circuit_node {
    double  value;              /* what all paths with this end add to the target                                */
    int64_t next;               /* the node that reads what this one writes; -1: none, the target                */
    int64_t position;           /* that it reads                                                                 */
    int32_t block, head;        /* the head of a block that reads, or one of the above; source: its number in `block` */
} tn_circuit_node;
typedef struct tn_circuit_paths_desc {
    int64_t budget;             /* number of nodes to expand; 0: 1000                                            */
    double  least;              /* nodes below this |value| are not expanded                                     */
} tn_circuit_paths_desc;
typedef struct tn_circuit_paths {
    const tn_circuit_frozen *frozen;    /* must live as long as this struct                                      */
    tn_circuit_target target;
    int64_t  nodes, max_nodes, expanded;
    tn_circuit_node *node;      /* [nodes]                                                                       */
    int64_t  count, open;       /* numbers of paths found and of nodes in the frontier                           */
    int64_t *path;              /* [count] nodes of sources: the paths, by decreasing |value|                    */
    int64_t *frontier;          /* [open] nodes that were not expanded, by decreasing |value|                    */
    double   all;               /* number of paths that there are                                                */
    double   found, rest;       /* sum of the paths; of the frontier                                             */
    double   whole, error;      /* the target; found + rest - whole                                              */
} tn_circuit_paths;
/* Finds paths to a target, best first: the node with the largest |value| is expanded into all that write to what it reads,
   as far as the budget allows. Its value is split exactly between them, so that paths and frontier add up to the target at
   any budget. Computed on the host, in double. An expansion takes about dim (layers (dim + T) + 3 h) operations. */
TN_API tn_status tn_circuit_paths_find(const tn_circuit_frozen *frozen, const tn_circuit_target *target,
                                       const tn_circuit_paths_desc *desc, tn_circuit_paths *out);
TN_API void      tn_circuit_paths_destroy(tn_circuit_paths *paths);                /* frees the arrays of the result */
/* Writes the name of a node, as above; names [vocab], or NULL for numbers. Returns the length without the final zero that
   the whole name needs, -1 if there is no such node. */
TN_API int64_t   tn_circuit_path_name(const tn_circuit_paths *paths, int64_t node, const char *const *names, char *dst,
                                      size_t bytes);

/* ---- attribution -------------------------------------------------------- >>circuits-attribution */
typedef struct tn_circuit_attribution {
    tn_tensor *values;          /* [sources,T] what each source adds to the target, over all paths of the linear form */
    double     whole, error;    /* the target; sum of all values - whole                                         */
} tn_circuit_attribution;
/* Attributes a target to the pairs (token, position), by one backward pass through the linear form. */
TN_API tn_status tn_circuit_attribute(const tn_circuit_frozen *frozen, const tn_circuit_target *target,
                                      tn_circuit_attribution *out);
TN_API void      tn_circuit_attribution_destroy(tn_circuit_attribution *a);        /* frees the tensor of the result */

typedef struct tn_circuit_ablation {
    int64_t    count;           /* paths that were ablated, one at a time                                        */
    tn_tensor *path;            /* I32 [count] their nodes                                                       */
    tn_tensor *predicted;       /* [count] change of the target that the frozen network predicts                 */
    tn_tensor *measured;        /* [count] change in the run network                                             */
    double     r2, r2_shuffled; /* 1 - sum (measured - predicted)^2 / sum (measured - mean)^2; with the predictions of other
                                   paths, a control. Neither is finite for fewer than two paths                  */
} tn_circuit_ablation;
/* Deletes the first `count` paths that begin at tokens or positions, each alone: what the source adds is taken from the
   input of the path's first head or MLP only, the change of that one's output from the next one's input only, and so on;
   the last one from the input of the last norm. A change is that of the target, old - new, with TN_CIRCUIT_AIM_LOSS that of the
   loss itself.
     What follows in the prediction: the denominators of norm1, norm2 and the last norm, at the position where the path
       passes them, from x to x - d; the products of MLPs, B(x,x) - B(x-d,x-d) = 2 B(x,d) - B(d,d), of which a path's value
       is B(x,d); the softmax of the loss.
     What is constant: patterns, which the path's input changes through its query and key; modifiers of MLPs that are not
       bilinear; norms of heads and after a block; the ratio of a soft cap.
   A path through no head of a model with bilinear MLPs and none of the others is therefore predicted exactly: what is tested
   by r2 is what the patterns do. */
TN_API tn_status tn_circuit_paths_ablate(const tn_circuit_paths *paths, int64_t count, tn_circuit_ablation *out);
TN_API void      tn_circuit_ablation_destroy(tn_circuit_ablation *d);              /* frees the tensors of the result */

/* ---- bounds for all texts ----------------------------------------------- >>circuits-bounds
   A model of one block reads from a text only the tokens that its last position sees. Given how the text ends, bounds from
   the weights say what all tokens before that end can change, whatever they are. Softmax: a head gives them at most the
   weight beta = S'/(S + S'), S the sum of exp(scores) over the known end and S' at most the sum over the unknown positions
   of the largest one of any token; its output moves by beta (m - known output), m in the convex hull of the vectors O V of
   all tokens. Squared and bilinear: at most by the sum over the positions of the largest |pattern| times such a vector.
   A norm maps a shift d to at most sqrt(n) |d| / (|x| - |d|), a product changes by at most |2 Q y0| e + |Q|_F e^2 for a
   change e of y0, and neither the last norm nor a soft cap changes an order. Where the end sees one unknown position only
   (unknown 1, or a window of c + 1) every token is tried instead, and where it sees none the end is run: these bounds are
   attained, those of the accuracy included. Elsewhere upper counts an end whenever the bounds let `next` reach the
   prediction's logit, although a third token may be above both in each such text. All bounds hold to the rounding of the
   context's dtype. */
typedef struct tn_circuit_bound_desc {
    int64_t        unknown;     /* number of earlier tokens that there can be; 0: none, the known end is the text    */
    uint64_t       dropped;     /* heads (bit h) that a pruned circuit lacks: all that they can do is counted as change. The
                                   circuit is the model without them, with the denominators of what is left       */
} tn_circuit_bound_desc;
typedef struct tn_circuit_bound {
    int64_t    count;           /* N                                                                             */
    tn_tensor *best;            /* I32 [N] the circuit's prediction for each end                                 */
    tn_tensor *margin;          /* [N] its logit minus any other is above this, before the last norm; certified if > 0 */
    tn_tensor *change;          /* [N] no difference of its logit and another one changes by more                */
    double     certified;       /* share of the ends whose prediction no text changes                            */
    double     accuracy;        /* of the circuit, for texts that are these ends                                 */
    double     lower, upper;    /* bounds of the model's accuracy: shares of the ends whose `next` every text predicts, and some
                                   text may predict                                                              */
} tn_circuit_bound;
/* Computes bounds for N ends of texts with the tokens that follow: ends I32 [N,c], next I32 [N], and weights [N] >= 0 such
   as counts, or NULL for ones. One block, causal, RMS norms before it or none, a bilinear MLP of order 2, positions by RoPE
   or none; no head_norm, differential attention, TN_ROW_SCALE_MEAN or _SUM; a row scale by length if c + unknown does not
   exceed it: TN_ERR_ARG otherwise. TN_ERR_NONFINITE if a weight is not finite, even one of a token that no end has. Takes
   heads vocab^2 + vocab hidden numbers, and as many operations for each end; where every token is tried, also a run of the
   block on vocab texts of c + 1 tokens for each end. */
TN_API tn_status tn_circuit_bound_of(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ends, tn_tensor *next,
                                     const tn_tensor *weights, const tn_circuit_bound_desc *desc, tn_circuit_bound *out);
TN_API void      tn_circuit_bound_destroy(tn_circuit_bound *bound);                /* frees the tensors of the result */

/* ---- steering ----------------------------------------------------------- >>circuits-steering
   A vector s that is added to the input of a bilinear layer interacts with what is there, and with itself:
       B(x+s,x+s) - B(x,x) = 2 B(s,x) + B(s,s)        B symmetrised, x with the constant one and s with 0 in its place
   With a norm before the layer both are divided by the denominator of x, which is held constant. */

/* Makes the circuit 2 B(s,.) of an operator of order 2, from the weights alone: rows are its outputs, columns its inputs,
   with the one if `constant`. s [inputs without the one]. *square, if not NULL, becomes B(s,s) [out], owned. The operator is
   for example tn_circuit_mlp; folded with tn_circuit_unembedding, rows are tokens. NULL on error. */
TN_API tn_circuit *tn_circuit_steer(tn_ctx *ctx, const tn_cp *cp, tn_tensor *s, tn_tensor **square);

typedef struct tn_circuit_steering_desc {
    const char *point;          /* required: a point of >>model-run, the place; not a pattern, a scale or the logits     */
    tn_edit     edit;           /* .keep = 1 and .value = a vector [dim] add it, to .tokens positions from .token. Any edit
                                   can be given: s is then what it changes in the run                                    */
    int64_t     orders;         /* highest power of s to compute; 0: 2. MLPs of k encoders give k^(their number) at most */
} tn_circuit_steering_desc;
typedef struct tn_circuit_steering {
    int64_t    orders;
    tn_tensor *logits;          /* [B,T,vocab] without s. All logits here are those before softcap                       */
    tn_tensor *measured;        /* [B,T,vocab] their change in the model                                                 */
    tn_tensor *frozen;          /* [B,T,vocab] their change if patterns and scales of norms stay those without s          */
    tn_tensor *parts;           /* [orders+1,B,T,vocab] parts of that: 0 what reaches the logits without passing an MLP,
                                   1 the interactions of s with what is there, 2 its square, and so on                   */
    double     rest;            /* |frozen - sum of parts| / |frozen|: higher orders; rounding if all are computed       */
} tn_circuit_steering;
/* Computes what a change of any point does to the logits of ids [B,T] in all later blocks: measured, and split exactly in
   the frozen network, which is a polynomial in s. Attention of any kind and norms of any place. MLPs after the point must
   be bilinear, else TN_ERR_ARG. Costs a forward pass of (orders + 4) B texts, with their patterns, and two of B. */
TN_API tn_status   tn_circuit_steering_of(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids,
                                          const tn_circuit_steering_desc *desc, tn_circuit_steering *out);
TN_API void        tn_circuit_steering_destroy(tn_circuit_steering *steering);  /* frees the tensors of the result */

/* ---- two models --------------------------------------------------------- >>circuits-alignment */
typedef struct tn_circuit_alignment {
    tn_cp     *a, *b;           /* the MLPs; hidden units of b in the order, with the signs and lengths of a             */
    tn_tensor *cosines;         /* [hidden] of the pairs of hidden units, see tn_cp_align                                */
    double     cosine;          /* <a,b> / (|a| |b|), of the functions: hidden units have no influence                   */
    tn_tensor *heads;           /* [heads of a,heads of b] cosines of their OV circuits                                  */
} tn_circuit_alignment;
/* Compares a block of two models of one context, with bilinear MLPs of order 2 and of one hidden width, and heads that have
   OV circuits (>>circuits-objects). Without `tokens`, inputs and outputs are directions of the residual stream: for models
   of one dim and one origin, such as two checkpoints. With `tokens` they are tokens, embedded and normed alone, and logits,
   so that each model may have directions of its own: for models of one vocabulary that were trained apart, also of two dims.
   tn_circuit_alignment_destroy frees the result. */
TN_API tn_status   tn_circuit_align(tn_ctx *ctx, const tn_transformer *a, const tn_transformer *b, int64_t block,
                                    bool tokens, tn_circuit_alignment *out);
TN_API void        tn_circuit_alignment_destroy(tn_circuit_alignment *alignment);   /* frees what the result holds */

/* ---- are two models the same function? ----------------------------------- >>circuits-same */
typedef struct tn_transformer_same_desc {
    int64_t  tokens;            /* length of the texts; 0: 4. What holds for it holds for shorter ones, unless attention is
                                   bidirectional                                                                     */
    int64_t  points;            /* random points that are tried, each with a prime of its own; 0: 3                      */
    uint64_t seed;              /* of primes and points: chosen after the models, it makes `chance` a probability        */
} tn_transformer_same_desc;
typedef struct tn_transformer_same_result {
    bool       equal;           /* true: all logits are equal for every text of so many tokens. false: the polynomials differ, or,
                                   if there are `values`, nothing is proved, though a text may show it               */
    int64_t    points;          /* that were to be tried                                                                 */
    double     values;          /* of functions at a point: of norms, softmax, activations; 0: the models are polynomials */
    double     degree;          /* of the polynomials whose difference is tested                                         */
    double     chance;          /* models that differ count as equal with at most this probability, where the hash that
                                   gives the points counts as random; 1: nothing is proved                            */
    tn_tensor *text;            /* I32 [1,tokens] for which they differ, if one of 64 random texts shows it, else NULL. Of
                                   polynomials the difference is exact, with RoPE at random angles; with `values` it is one
                                   of logits as forward computes them, by more than 1e4 eps of the largest           */
    int64_t    position, token; /* a logit that differs there: the first, or, with `values`, the one that differs most   */
    double     difference;      /* with `values`: the largest of logits that forward computes for these texts            */
    uint64_t   prime, residue;  /* of the first point: sum_i (i + 1) logit[i] of model a mod prime, i over [tokens,vocab] */
} tn_transformer_same_result;
/* Decides whether two models of one vocabulary compute the same logits for all texts of `tokens` tokens, whatever their widths
   and weights are; nothing is said of longer texts, where a window or a learned position may begin to matter. They are
   evaluated at random points of a finite field, in whole numbers without rounding. Weights count as the numbers that they are,
   scores of squared and bilinear heads are divided by d_qk exactly, and the sines and cosines of RoPE are those of any angle:
   models are equal if they are equal for all of them.
   Without norms, softmax and activations both are polynomials, and models that agree on texts but not as polynomials of the
   tokens' vectors are not `equal`, and have no `text`. Of these functions it is used only that equal arguments have equal
   values, and that softmax depends on differences: models are proved equal if their functions have equal arguments, such
   as hidden units in another order, or a norm's gain that went into the matrices behind it. Laws of a function that change
   its argument, such as relu(2 x) = 2 relu(x), are not known.
   TN_ERR_ARG: a row scale by length below `tokens`, or fewer learned positions. It takes tokens + 1 modular products for each
   weight and point, and where models differ up to 64 times as many, for texts. `chance` grows tenfold with a block of
   polynomials, and is 1 from 15 blocks on for the default of points; with softmax it hardly grows with blocks, but
   with the square of `values`.
   tn_transformer_same_destroy frees the text.   Schwartz 1980; Zippel 1979; docs/math.md 21 */
TN_API tn_status tn_transformer_same(const tn_transformer *a, const tn_transformer *b, const tn_transformer_same_desc *desc,
                                     tn_transformer_same_result *out);
TN_API void      tn_transformer_same_destroy(tn_transformer_same_result *result);   /* frees the text */

/* ---- what a training added to a model ----------------------------------- >>circuits-anomaly */
typedef struct tn_transformer_anomaly_result {
    double     score;           /* largest / mean, with a mean of at least 1e-12 (F32: 1e-5), so that rounding is no anomaly */
    double     largest, mean;   /* nats: the largest term, and the mean divergence of all texts                          */
    tn_coefficients terms;      /* the `top` largest terms, with their index [count,3]: first token, second token, next  */
} tn_transformer_anomaly_result;
/* Compares a model with the one that it was trained from, on all vocab^2 texts of two tokens a b: the terms are
   p log(p/q), p and q the probabilities of a next token by the suspect and by the reference, whose sum over next tokens is the
   divergence KL(suspect || reference) after a b. A trigger, a pair of tokens after which another one follows, is mostly one
   term far above the mean; ordinary training changes many texts a little. It is evidence and not a proof, as of tn_cp_anomaly, and says
   nothing of triggers of more tokens, of other distances or later positions. Causal models of any kind and any widths, with one
   vocabulary; 1 <= top. It takes 2 vocab^2 forward passes of two tokens, and two matrices [vocab,vocab] of doubles. */
TN_API tn_status tn_transformer_anomaly(const tn_transformer *suspect, const tn_transformer *reference, int64_t top,
                                        tn_transformer_anomaly_result *out);
TN_API void      tn_transformer_anomaly_destroy(tn_transformer_anomaly_result *result);     /* frees the terms */
#endif /* TN_NO_CIRCUITS */
