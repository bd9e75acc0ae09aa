#pragma once
#include "core/core.h"
#include "layers/layers.h"
#include "operator/operator.h"

#ifndef TN_NO_ANALYSIS
/* ======================================================================
   >>analysis questions about weights, answered with operators
   docs/math.md has the formulas, under "Questions about weights". Results that own memory follow the rules of >>decomp;
   functions that take the context first are made of ops.
   ====================================================================== */

/* ---- how many eigenpairs are signal ------------------------------------- >>analysis-signal */
/* What an operator is compared with. */
typedef enum tn_null_model {
    TN_NULL_MODEL_ENTRIES = 0,        /* the numbers of each row of each factor are permuted, without the constant's:
                                   every hidden unit keeps its numbers, but not their places                    */
    TN_NULL_MODEL_PAIRS               /* the rows of factor 1 are permuted: every direction is kept, but it is
                                   multiplied by another one                                                    */
} tn_null_model;
typedef struct tn_signal_desc {
    tn_null_model  null;
    const tn_cp *const *nulls;  /* `draws` operators of the same extents to compare with instead, for example
                                   untrained layers; or NULL                                                    */
    bool     scaled;            /* first scales each null's values to the operator's norm, output by output     */
    int64_t  draws;             /* 0: 19, for 5 %; see below                                                    */
    int64_t  count;             /* number of eigenvalues; 0: all                                                */
    uint64_t seed;              /* of the permutations; equal seeds give equal results                          */
} tn_signal_desc;
typedef struct tn_signal {
    int64_t    outputs, count;
    tn_tensor *values;          /* [outputs,count] eigenvalues of the operator, by decreasing magnitude         */
    tn_tensor *null_values;     /* [outputs,count] mean over the draws of the magnitude at the same place       */
    tn_tensor *edge;            /* [outputs] the largest magnitude in all draws                                 */
    tn_tensor *signal;          /* I32 [outputs] how many values are beyond the edge                            */
} tn_signal;
/* Compares the spectrum of every output with those of a null model. If the operator were one more draw of the null model, an
   output would have a value beyond its edge with a probability of at most 1/(draws + 1). It costs draws + 1 calls of
   tn_cp_spectrum. Order 2 only.   Parallel analysis: Horn 1965; by permutations: Buja & Eyuboglu 1992 */
TN_API tn_status tn_cp_signal(const tn_cp *cp, const tn_signal_desc *desc, tn_signal *out);
TN_API void      tn_signal_destroy(tn_signal *s);                              /* frees the tensors of the result */
/* Makes one draw of the null model, as tn_cp_signal with this desc does: to ask it for other numbers than eigenvalues, such as
   its largest pair of inputs. draw: its number, from 0. Of the desc (NULL: defaults) null and seed matter. Owned:
   tn_cp_destroy frees it. NULL on error. Order 2 only. */
TN_API tn_cp    *tn_cp_null(const tn_cp *cp, const tn_signal_desc *desc, int64_t draw);

/* ---- truncation with a certificate -------------------------------------- >>analysis-certificate */
typedef struct tn_certificate {
    tn_cp     *cp;              /* the truncated operator, of the same inputs                                   */
    tn_tensor *rank;            /* I32 [outputs] eigenpairs that each output has kept                           */
    tn_tensor *error;           /* [outputs] |Q - Q_k|_F / |Q|_F in the metric; 0 for a zero output             */
    tn_tensor *bound;           /* [outputs] |y - y_k| is at most this for every x in the ball                  */
    tn_tensor *mean;            /* [outputs] so is the mean of |y - y_k| over the data; NaN without a moment    */
} tn_certificate;
/* Truncates each output to the fewest eigenpairs with a relative error of at most `error`, 0 <= error < 1, and says what
   this does to the outputs. Without a moment the pairs are those of Q, and the ball is |x| <= radius. With the second moment
   S = E[x x^T] of the data (of [x;1] if the operator has `constant`) they are those of S^1/2 Q S^1/2, the error is that of
   the data metric, and the ball is x^T S^-1 x <= radius^2 in the span of the data, outside of which nothing is claimed. Both
   bounds contain a margin for rounding, 1e-12 of the largest value (F32: 1e-5). Order 2 only.   docs/math.md 10 and 12 */
TN_API tn_status tn_cp_certify(const tn_cp *cp, double error, double radius, const tn_tensor *moment, tn_certificate *out);
TN_API void      tn_certificate_destroy(tn_certificate *c);        /* frees the operator and the tensors of the result */

/* ---- distance to another answer ----------------------------------------- >>analysis-radius */
enum { TN_RADIUS_MAX_LAYERS = 16 };
typedef struct tn_radius {
    tn_tensor *radius;          /* [rows,out] |d| up to which output o stays below the answer; infinity if it does for
                                   every d, 0 for the answer itself                                             */
    tn_tensor *answer, *rival;  /* I32 [rows] the largest output at x; the output with the least radius         */
    tn_tensor *nearest;         /* [rows,n] the nearest input at which answer and rival are equal, NaN where no input makes
                                   them equal; NULL for several layers                                          */
} tn_radius;
/* Computes how far each row of x [rows,n] must move for the answer, its largest output, to change. One layer: the lead of the
   answer over another output is a quadratic, whose nearest zero is found exactly, whatever its signs (secular equation on
   its eigenpairs), so that the radius is the distance, in the Euclidean norm over all inputs; within a box it is a lower
   bound. `count` layers, layers[0] first, each with the outputs of the one before it as inputs: a certified lower bound,
   from the exact radius of the last layer and the Jacobian and curvature of those before it. A single output is compared
   with 0: answer and rival are 0, and its radius is the distance to where its sign changes.
   Computed in double and rounded to the context's dtype; where a lead only just touches 0, and where eigenvalues nearly vanish,
   it is as accurate as these. Layers have order 2, with or without `constant`. It takes an eigenproblem of
   min(n, 2 terms) rows for each pair of outputs of which one is an answer. Owned tensors: tn_radius_destroy. TN_ERR_SHAPE
   for layers that do not fit, TN_ERR_NONFINITE for numbers that are not finite.   docs/math.md 19; More & Sorensen 1983 */
TN_API tn_status tn_cp_radius(int count, const tn_cp *const *layers, const tn_tensor *x, tn_radius *out);
TN_API void      tn_radius_destroy(tn_radius *r);                              /* frees the tensors of the result */

/* ---- what a training added ---------------------------------------------- >>analysis-anomaly */
typedef struct tn_anomaly {
    double     score;           /* the largest of `rows`                                                         */
    int64_t    output, input;   /* where it is                                                                   */
    double     concentration;   /* the largest of `share`                                                        */
    int64_t    raised;          /* the output with the largest of `values`                                       */
    tn_tensor *rows;            /* [out,n] |D_o e_i| over its median over i, see below                           */
    tn_tensor *share;           /* [out] the largest l^2 over the sum of all; 0 if D_o is zero, but for rounding */
    tn_tensor *values;          /* [out] the greatest eigenvalue l of D_o: the most by which an input of length 1
                                   raises the output; 0 if it raises none                                        */
    tn_tensor *vectors;         /* [out,n] that input                                                            */
} tn_anomaly;
/* Describes what training a reference further has added, D = suspect - reference, from the weights: the interaction matrices D_o
   do not depend on the order, scale or basis of hidden units, so that none of them hides it. A trigger, a pattern of
   few inputs that raises one output, is mostly a long row of D_o, or a direction with much of D_o's norm; ordinary
   training changes many inputs by similar amounts. It is evidence and not a proof: what is large must be learnt from models
   that are known to be clean. `logits`: D_o is compared with the mean over all outputs, which softmax ignores.
   Medians are at least what rounding leaves, 1e-13 (F32: 1e-5) of the rows of D and the reference; if D_o is no longer
   than that, `share` and `values` are 0: equal functions have a score of about 1 or less. With one output and `logits`
   D is 0. With `constant` the one is the last input; it counts in no median, nor for the score. Both operators
   have order 2 and equal extents, apart from terms. It takes an eigenproblem of min(n, 2 terms of both) rows for each output.
   Owned tensors: tn_anomaly_destroy. TN_ERR_NONFINITE for numbers that are not finite.   docs/math.md 19 */
TN_API tn_status tn_cp_anomaly(const tn_cp *suspect, const tn_cp *reference, bool logits, tn_anomaly *out);
TN_API void      tn_anomaly_destroy(tn_anomaly *a);                            /* frees the tensors of the result */
/* ---- fewer terms, with a bound for every input --------------------------- >>analysis-compress */
typedef struct tn_ball_bound {
    double     bound;           /* |y(x)| is at most this for every x with |x| <= radius; infinity where it overflows */
    double     reached;         /* |y| at `input`, the largest that an ascent has found                         */
    tn_tensor *input;           /* [n], without the constant one, of length radius                              */
} tn_ball_bound;
/* Bounds the length of an operator's output over a ball of inputs x [n], and says how near an ascent comes to it. With the
   symmetric tensor S of the quadratic part, the linear part L and the constant c,
       |y(x)| <= q radius^2 + |L|_2 radius + |c|,   q = the smaller spectral norm of the unfoldings [out,n n] and [n,out n] of S
   Computed in double with a margin for its rounding; that of tn_cp_apply itself is not part of it. Order 2 only.
   Owned: tn_ball_bound_destroy. TN_ERR_NONFINITE for numbers that are not finite.   docs/math.md 19 */
TN_API tn_status tn_cp_ball_bound(const tn_cp *cp, double radius, tn_ball_bound *out);
TN_API void      tn_ball_bound_destroy(tn_ball_bound *b);                      /* frees the tensor of the result */

typedef struct tn_compress_desc {
    double  radius;             /* of the ball of inputs                                                        */
    double  bound;              /* the largest change of the output that is allowed                             */
    int64_t terms;              /* 0: as few as the bound allows; else at most so many, whatever they change    */
    bool    single;             /* p is rounded to F32, also in an F64 context                                  */
    bool    plain;              /* for comparison: leaves out the terms of least |p| |w| |v|, and refits nothing */
} tn_compress_desc;
typedef struct tn_compression {
    tn_cp        *cp;           /* the rows of the factors that are kept, as they were, and another p           */
    tn_tensor    *kept;         /* I32 [cp->terms] their places in the operator                                 */
    int64_t       exact;        /* terms that remain when those that are zero or parallel to another are merged without
                                   rounding, which changes nothing                                              */
    tn_ball_bound change;       /* of cp as it is stored, minus the operator: for every x with |x| <= radius    */
} tn_compression;
/* Leaves out terms of an operator and refits p, so that the output moves by at most `bound` for any input of the ball. The next
   term to leave out is always that whose loss, after refitting the others, changes the symmetric tensor least (optimal brain
   surgeon, Hassibi & Stork 1993, with the tensor's Gram matrix as Hessian); with one term less in this order the bound would be
   exceeded. Bound 0 leaves out only what changes nothing. It takes O(terms^3 + n out (terms n + n out)) for each of
   log2(terms) bounds. Order 2 only; all results are owned: tn_compression_destroy.   docs/math.md 19 */
TN_API tn_status tn_cp_compress(const tn_cp *cp, const tn_compress_desc *desc, tn_compression *out);
TN_API void      tn_compression_destroy(tn_compression *c);      /* frees the operator and the tensors of the result */

/* ---- features ----------------------------------------------------------- >>analysis-features */
/* Computes how features interact: C[i,j] = d_i^T Q_u d_j for the rows d_i of a dictionary, and with a moment that times
   E[a_i a_j]: for x = sum_i a_i d_i the sum of all is the mean of u . y.
   u [out]  d [m,n]  moment [m,m] or NULL -> owned [m,m]
   With `constant` n does not count the one, and the one is the last feature: m + 1 in C and in the moment, which is then
   that of [a;1]. Order 2 only.   Sharkey 2023, equation 15 */
TN_API tn_tensor *tn_cp_feature_interactions(const tn_cp *cp, const tn_tensor *u, const tn_tensor *d, const tn_tensor *moment);
/* Computes how strongly input features modify the default output features of a layer (W x) * (V x): for the feature d_i the
   output feature u_l, a column of u, becomes (W d_i) * u_l, and M[i,l] = |u_l - (W d_i) * u_l|. Columns of u are for example
   the left singular vectors of V, or its independent components. tn_topk along axis 1 finds what d_i modifies most, along
   axis 0 which features modify u_l most.   w [h,n]  d [m,n]  u [h,l] -> [m,l]   Sharkey 2023, equation 16 */
TN_API tn_tensor *tn_feature_modification(tn_ctx *ctx, tn_tensor *w, tn_tensor *d, tn_tensor *u);
/* Computes default output features from data x [rows,n], as columns of length 1 of an owned [h,count]: the left singular
   vectors of W X, by decreasing singular value, or if `independent` the directions of the independent components of W x minus its
   mean (tn_ica; NULL with its errors). count 0: all.   w [h,n], the second encoder   Sharkey 2023 */
TN_API tn_tensor *tn_feature_basis(tn_ctx *ctx, const tn_tensor *w, const tn_tensor *x, int64_t count, bool independent);
/* Computes the correlation coefficients of the columns of a [rows,m] and b [rows,l], such as the activations of input features
   and the coordinates of W x in default output features: what tn_feature_modification says of a pair matters where both
   occur together. Owned [m,l]; 0 where a column is constant. */
TN_API tn_tensor *tn_feature_correlations(tn_ctx *ctx, const tn_tensor *a, const tn_tensor *b);
/* Computes the modifier of an MLP of any kind on data: layer(x) = P (m(x) * features) + p. With one encoder m = act(z)/z,
   and act'(0) where z = 0, for the features z = W x + b; with two m = act(W x + b) for the features V x + c; with more m is
   the product of all encoders but the last. `features` may be NULL. With one encoder m is computed on the host and is not
   recorded.   x [..,in] -> [..,hidden]   Sharkey 2023, equation 13 */
TN_API tn_tensor *tn_mlp_modifier(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x, tn_tensor **features);

/* ---- degree of nonlinearity --------------------------------------------- >>analysis-degree */
/* A function of a tensor, with a pointer of the caller's. */
typedef tn_tensor *(*tn_map_fn)(tn_ctx *ctx, const void *user, tn_tensor *x);
/* Computes the mixed difference of order n, the sum over all subsets of the directions of (-1)^(n - size) f(x + their sum),
   by 2^n calls of f: what n directions do together and no n - 1 of them explain. It is 0 for every polynomial of a degree
   below n, so with n = 3 for a bilinear layer. 1 <= n <= 8; a direction has a shape that broadcasts with x. */
TN_API tn_tensor *tn_mixed_difference(tn_ctx *ctx, tn_map_fn fn, const void *user, tn_tensor *x, int n,
                                      tn_tensor *const *directions);

/* ---- canonical form and alignment --------------------------------------- >>analysis-align */
/* Brings the hidden units into a form that does not depend on their order, scales or the order of their encoders: rows of
   factors have length 1 with a positive largest component (the first of equals), the size is in P; of a term's factors
   the one whose largest component comes first is first; terms are sorted by decreasing |P[:,h]|. Two operators that differ
   only by these changes become equal up to rounding, unless such a comparison ties. The function does not change, and any
   order is possible; all inputs have equal length. TN_ERR_NONFINITE if the sizes are beyond the range of the context's
   dtype. */
TN_API tn_cp    *tn_cp_canonical(const tn_cp *cp);
/* Aligns b with a: finds the assignment of terms with the largest sum of cosines of their rank-one tensors
   sym(w v^T) (x) p, and returns b with its terms in the order of a, factors swapped and scaled as in a, so that weights can
   be compared one by one. Its function does not change. cosines [terms], if not NULL, becomes those of the pairs; 0 for zero
   terms. Both have order 2, the same extents and the same number of terms, h; h^2 (n + out) + h^3 operations at most.
   Assignment: Kuhn 1955, by shortest augmenting paths */
TN_API tn_status tn_cp_align(const tn_cp *a, const tn_cp *b, tn_cp **aligned, tn_tensor **cosines);

/* ---- fewer terms -------------------------------------------------------- >>analysis-refit */
typedef struct tn_cp_refit_desc {
    int64_t terms;              /* required: number of terms; fewer are made if fewer are independent         */
    int64_t sweeps;             /* at most this number; 0: 100                                                */
    double  tol;                /* stops when a sweep lowers the relative error by less than this; 0: 1e-6    */
    double  sparsity;           /* factor of a penalty on the absolute numbers of the encoders, see below      */
    int64_t starts;             /* with sparsity, inputs or a moment: starts, all but the first random; 0: 8, 1, 1 */
    uint64_t seed;              /* of these; equal seeds give equal results                                    */
    const tn_tensor *inputs;    /* x [rows,n]: the error is that of the outputs for these, see below; or NULL  */
    const tn_tensor *moment;    /* S [n,n]: the error is that in the data metric of S; or NULL                  */
} tn_cp_refit_desc;
/* Fits an operator of fewer terms to the function of cp: alternating least squares of |S - S'|_F, the symmetrised tensors,
   from the factors alone. It begins with the terms that a pivoted Cholesky decomposition of their Gram matrix chooses; P is
   solved for exactly, each encoder by some steps of conjugate gradients, so that the error never rises. *error, if not NULL,
   becomes |S - S'|_F / |S|_F, which cannot be distinguished from 0 below about 1e-7. A local minimum is possible. Order 2 only.
   It takes some 4 h^2 n operations for h terms of cp, and (24 h + 120 terms) terms n for each sweep. NULL on error.
     With sparsity it minimises |S - S'|_F^2/|S|_F^2 + sparsity sum_h (|w_h|_1 + |v_h|_1) |p_h|/|S|_F, |w_h|_2 = |v_h|_2 = 1,
   so that many numbers of the encoders become 0: where factors are not unique, or the tensor is one of sparse factors and
   noise, this finds sparse ones. tol is then that of this sum, and the best of all starts by it is kept. Some 0.001 to 0.01.
     With inputs it minimises the error of outputs for these, sum |y(x) - y'(x)|^2 / sum |y(x)|^2, whose root *error becomes: its
   metric is their fourth moment. With `constant` they may lack the one. With a moment S, as for tn_cp_data_metric, the error is
   that of S^1/2 Q S^1/2, which needs fewer inputs to be known. Encoders are in the span of those of cp, and directions of less
   than 1e-12 (F32: 1e-8) of the largest second moment count as absent from the data. The error for other inputs is higher
   unless rows out is several times terms (2 m + out), m = min(n, 2 terms of cp). It takes some 85 rows terms (m + out)
   operations for each sweep.   docs/math.md 19 */
TN_API tn_cp    *tn_cp_refit(const tn_cp *cp, const tn_cp_refit_desc *desc, double *error);

#endif /* TN_NO_ANALYSIS */
