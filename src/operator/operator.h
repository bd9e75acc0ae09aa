#pragma once
#include "core/core.h"
#include "decomp/decomp.h"
#include "layers/layers.h"

#ifndef TN_NO_OPERATOR
/* ======================================================================
   >>operator a whole layer as one tensor
   y[o] = sum_h P[o,h] prod_k (F_k x)[h]: a tensor of order k+1 in CP form, stored as its factors.
   With k = 2, F_0 = W and F_1 = V this is a bilinear layer with the tensor B[o,i,j] = sum_h P[o,h] W[h,i] V[h,j].
   With `constant` the last input is the constant one: biases are the last columns, and tn_cp_apply
   appends the one to a plain x. docs/math.md has every formula; Pearce et al. 2024, Sharkey 2023.
   Functions that return a tn_cp or a tensor return a new, owned one (NULL on error) and do not change their arguments.
   "Order 2 only" means that any other order is an error.
   ====================================================================== */

#define TN_CP_MAX_ORDER 6

typedef struct tn_cp {
    tn_ctx    *ctx;
    int        order;                       /* k, the number of input factors      */
    int64_t    out, terms;                  /* rows of P; number of terms          */
    int64_t    in[TN_CP_MAX_ORDER];         /* columns of F_k, with the constant   */
    bool       constant;                    /* whether inputs end with the one     */
    tn_tensor *p;                           /* [out,terms]                         */
    tn_tensor *f[TN_CP_MAX_ORDER];          /* [terms,in[k]]                       */
} tn_cp;

typedef enum tn_cp_input {
    TN_CP_INPUT_PLAIN = 0,      /* all elements of an input are variables      */
    TN_CP_INPUT_CONSTANT        /* the last element is the constant one        */
} tn_cp_input;
/* Makes an operator from arrays, which are copied: p [out,terms], f[0..order) [terms,in_k]. */
TN_API tn_cp *tn_cp_create(tn_ctx *ctx, int order, const tn_tensor *p, tn_tensor *const *f, tn_cp_input input);
/* Makes an operator from a bilinear layer (order <= TN_CP_MAX_ORDER). Biases and a residual are folded in and set
   `constant`. */
TN_API tn_cp *tn_cp_from_mlp(tn_ctx *ctx, const tn_mlp *mlp);
/* Makes an operator from a layer with another activation, which is replaced by polynomials: act[count], one for each hidden
   unit, or with count 1 one for all, such as fits to the activation in the distribution of its inputs (>>polynomial).
       y = P (p(W x + b) * (V x + c)) + p,  or without V:   sum_k P diag(c_k) (z * .. * z * 1 * .. * 1 * (V x + c)),
   z = (W x + b - centre)/width. Its order is the highest degree, one more with V, at most TN_CP_MAX_ORDER; it has (degree + 1)
   hidden terms, and `constant`: the one fills up lower powers. The activation that the layer's kind names is not used. */
TN_API tn_cp *tn_cp_from_mlp_polynomial(tn_ctx *ctx, const tn_mlp *mlp, const tn_polynomial *act, int64_t count);
TN_API tn_cp *tn_cp_from_modifier(tn_ctx *ctx, const tn_modifier *layer);      /* from a layer without rounding */
TN_API tn_cp *tn_cp_from_quadratic(tn_ctx *ctx, const tn_quadratic *layer);    /* from its tensor, exactly      */
/* Makes an operator from a full tensor t [out,n,m], exactly, in out n terms: term (o,i) is e_o, e_i, t[o,i,:]. They hold
   out n (out + n + m) numbers: TN_ERR_MEMORY, with the size, if these exceed desc.max_bytes. */
TN_API tn_cp *tn_cp_from_tensor(tn_ctx *ctx, const tn_tensor *t, tn_cp_input input);
#ifndef TN_NO_ANALYSIS
/* Makes an operator from a decomposition of a tensor [out,in_0,..] of rank 2 to TN_CP_MAX_ORDER + 1. */
TN_API tn_cp *tn_cp_from_als(tn_ctx *ctx, const tn_cp_als_result *terms, tn_cp_input input);
#endif /* TN_NO_ANALYSIS */
/* Makes one operator of the stack x -> embed -> mlp -> unembed; embed and unembed may be NULL. */
TN_API tn_cp *tn_cp_from_stack(tn_ctx *ctx, const tn_linear *embed, const tn_mlp *mlp, const tn_linear *unembed);
/* Makes a trainable bilinear layer with the operator's factors. With `constant` the layer has biases and accepts a plain x.
   All inputs have equal length. */
TN_API tn_status tn_mlp_from_cp(tn_params *params, const char *name, const tn_cp *cp, tn_mlp *layer);
/* Makes a trainable quadratic layer with the operator's tensor. Order 2 only; inputs as above. */
TN_API tn_status tn_quadratic_from_cp(tn_params *params, const char *name, const tn_cp *cp, tn_quadratic *layer);
TN_API void   tn_cp_destroy(tn_cp *cp);                                        /* frees the operator            */

/* Operators are owned, and each step of a chain makes a new one. tn_cp_release destroys all operators of the context that
   were made since tn_cp_mark, except `keep` (NULL: none), which it returns. It does not touch tensors and layers.

       uint64_t mark = tn_cp_mark(ctx);
       tn_cp *cp = tn_cp_release(ctx, mark, tn_cp_fold_out(tn_cp_fold_in(tn_cp_from_mlp(ctx, &mlp), e, NULL), u, NULL)); */
TN_API uint64_t tn_cp_mark(const tn_ctx *ctx);
TN_API tn_cp   *tn_cp_release(tn_ctx *ctx, uint64_t mark, tn_cp *keep);

/* ---- folding ------------------------------------------------------------ >>cp-folding */
/* Folds in a linear map on the input side: x -> cp(E x + b).   e [in,n]  b [in] or NULL (`in` without the one)
   A bias sets `constant`. */
TN_API tn_cp *tn_cp_fold_in(const tn_cp *cp, const tn_tensor *e, const tn_tensor *b);
/* Does the same for input `slot` alone, so that the inputs may get different lengths (tn_cp_apply_each). A bias sets
   `constant` for all inputs. */
TN_API tn_cp *tn_cp_fold_slot(const tn_cp *cp, int slot, const tn_tensor *e, const tn_tensor *b);
/* Folds in a linear map on the output side: x -> U cp(x) + b.   u [m,out]  b [m] or NULL */
TN_API tn_cp *tn_cp_fold_out(const tn_cp *cp, const tn_tensor *u, const tn_tensor *b);
/* Adds a residual connection: x -> x + cp(x), in h + n terms on [x;1]. All inputs have equal length; out = in, without the
   one. */
TN_API tn_cp *tn_cp_residual(const tn_cp *cp);
/* Makes the weighted sum of `count` operators, exactly, in all of their terms one after the other: x -> sum_i weights[i] y_i,
   y_i being operator i of x. With weights NULL, which are then 1/count, it is the mean of models as functions. They have equal
   orders, inputs and outputs; all inputs have equal length. */
TN_API tn_cp *tn_cp_mean(int count, const tn_cp *const *cp, const double *weights);
/* Composes two operators: x -> outer(inner(x)), exactly, of order k = the product of their orders, at most TN_CP_MAX_ORDER.
   For two layers the inputs 0 and 1 belong to the outer input 0, and 2 and 3 to the outer input 1. It has h^k_outer terms, h
   the inner ones: TN_ERR_MEMORY, with their number, if they exceed desc.max_bytes. A constant one of the outer operator is
   passed through the inner one, which adds a term. */
TN_API tn_cp *tn_cp_compose(const tn_cp *outer, const tn_cp *inner);
/* Symmetrises the operator: the mean over permutations of its inputs, (B + B^T)/2 in 2 h terms for order 2, k! h terms for
   order k. All inputs have equal length. */
TN_API tn_cp *tn_cp_symmetrise(const tn_cp *cp);
/* Splits an operator into quadratic, linear and constant part: cp([x;1]) = quadratic(x) + L x + c.   L [out,n]  c [out]
   Pass NULL for a part that is not needed. Without `constant` L and c are zero. Order 2 only. */
TN_API tn_status tn_cp_split(const tn_cp *cp, tn_cp **quadratic, tn_tensor **linear, tn_tensor **constant);
/* Fixes input `slot` at u [in[slot]]: an operator of order k-1 (for k = 2 a matrix, see tn_cp_dense). */
TN_API tn_cp *tn_cp_fix(const tn_cp *cp, int slot, const tn_tensor *u);

/* ---- forms -------------------------------------------------------------- >>cp-forms */
/* Returns the full tensor [out,in_0,..]. TN_ERR_MEMORY, with the size, if it exceeds desc.max_bytes. */
TN_API tn_tensor *tn_cp_dense(const tn_cp *cp);
TN_API tn_tensor *tn_cp_dense_symmetric(const tn_cp *cp);       /* the same, each slice (B + B^T)/2. Order 2 only */
/* Returns the interaction matrix of output direction u [out], Q_u = sum_o u[o] (B_o + B_o^T)/2: [in,in]. Order 2 only. */
TN_API tn_tensor *tn_cp_interaction(const tn_cp *cp, const tn_tensor *u);
TN_API tn_tensor *tn_cp_interaction_of(const tn_cp *cp, int64_t output);       /* that of one output            */
/* Applies the operator: x [..,in] -> [..,out], differentiable, an arena tensor. With `constant`, x may lack the one. */
TN_API tn_tensor *tn_cp_apply(tn_ctx *ctx, const tn_cp *cp, tn_tensor *x);
/* Applies the operator to k different inputs: b(u,v) for k = 2, with u in slot 0. It is not symmetrised by this call. */
TN_API tn_tensor *tn_cp_apply_each(tn_ctx *ctx, const tn_cp *cp, tn_tensor *const *x);

/* ---- eigenpairs --------------------------------------------------------- >>cp-eigen */
/* Eigenpairs of interaction matrices. */
typedef struct tn_eigenpairs {
    int64_t    outputs, count, n;           /* matrices, pairs per matrix, length of a vector                  */
    tn_tensor *values;                      /* [outputs,count] by decreasing magnitude                         */
    tn_tensor *vectors;                     /* [outputs,count,n] unit rows; the largest component is positive  */
    bool       constant;                    /* as in the operator: the last component is that of the one       */
} tn_eigenpairs;

/* Computes the `count` eigenpairs of largest |value| of the interaction matrix of output direction u [out]. 0 means all that
   can differ from zero, min(n, 2 terms); a larger count is reduced to that number, and out->count says how many there are.
   They are in the operator's input space: fold the embedding in first to get pixels.
   Exact up to the rounding of tn_eigh: from the 2h x 2h problem R S R^T if 2 terms < n, else from the full one. A few pairs
   of a large problem, size min(n, 2 terms) >= 1024 and count <= size / 32, come from tn_lanczos with residuals of at most
   1e-12 of the largest |value| (F32: 1e-8), and from the exact method only if that does not converge. Order 2 only.
   TN_ERR_SHAPE if n or 2 terms are at least 2^31. */
TN_API tn_status tn_cp_eigen(const tn_cp *cp, const tn_tensor *u, int64_t count, tn_eigenpairs *out);
/* Does the same for every output, sharing the factorisation and the threads. */
TN_API tn_status tn_cp_eigen_all(const tn_cp *cp, int64_t count, tn_eigenpairs *out);
TN_API void      tn_eigenpairs_destroy(tn_eigenpairs *e);                      /* frees the tensors of the result */
/* Makes an operator of the first k pairs of each output: y[o] = sum_i value[o,i] (vector[o,i] . x)^2, with e->constant. */
TN_API tn_cp    *tn_cp_from_eigen(tn_ctx *ctx, const tn_eigenpairs *e, int64_t k);
/* Truncates an operator to the first k eigenpairs of each output, or to all if there are fewer. k = 0 gives the zero
   operator (a count of 0 above means all). Order 2 only. */
TN_API tn_cp    *tn_cp_truncate(const tn_cp *cp, int64_t k);

/* ---- spectra, and the space that they refer to -------------------------- >>cp-spectra */
/* Eigenvalues of interaction matrices. */
typedef struct tn_spectrum {
    int64_t    outputs, count;              /* matrices, values per matrix                                            */
    tn_tensor *values;                      /* [outputs,count] by decreasing magnitude                                */
    tn_tensor *norm;                        /* [outputs] |Q_o|_F, the root of the sum of l^2 over all eigenvalues     */
    tn_tensor *rank_low, *rank_high;        /* [outputs] bounds of (sum |l|)^2 / sum l^2 over all eigenvalues         */
} tn_spectrum;

/* Computes the `count` eigenvalues of largest magnitude of every output's interaction matrix (counted as by tn_cp_eigen),
   and bounds of its effective rank. With all values rank_low = rank_high. With fewer there is an interval: the norm is
   known from the factors, and the missing part of its square comes from values no larger than the last one.
   Order 2 only. The values refer to the space of the operator's inputs: without the embedding, tn_cp_from_stack gives the
   hidden space, where they depend on the choice of coordinates; with it the input space, where they do not.
   Owned tensors: tn_spectrum_destroy. On failure all are NULL; errors are those of tn_cp_eigen_all.
   Spectra of bilinear layers, and how few values of each matter: Pearce et al. 2024; docs/math.md 10 */
TN_API tn_status tn_cp_spectrum(const tn_cp *cp, int64_t count, tn_spectrum *out);
TN_API void      tn_spectrum_destroy(tn_spectrum *spectrum);                   /* frees the tensors of the result */
/* Moves an operator to the data metric: z -> cp(S^1/2 z), where S = E[x x^T] [in,in] is the second moment of the inputs (of
   [x;1] if the operator has `constant`). Its interaction matrices S^1/2 Q S^1/2 have the eigenvalues of S Q: the effect of
   x^T Q x on such inputs. They are the same in all coordinates, their sum is the mean of x^T Q x, and directions that are
   rare in the data count little. Any order; all inputs have equal length. The result has no `constant`, as no element of
   z is the one. TN_ERR_SHAPE if s has another size, TN_ERR_ARG if it is not symmetric or not positive semidefinite,
   TN_ERR_NONFINITE.
   docs/math.md 12 */
TN_API tn_cp    *tn_cp_data_metric(const tn_cp *cp, const tn_tensor *s);

/* ---- comparing ---------------------------------------------------------- >>cp-comparing */
/* Computes the inner products of all pairs of (symmetrised) interaction tensors, G[o,o'] = <S_o, S'_o'>: [out_a,out_b].
   O(h h' n) for order 2, in double on the host, in blocks of terms: neither a tensor nor an h x h' matrix is stored, and
   entries of any magnitude are right. Order k needs k^2 such products. Here and below: TN_ERR_ARG if the operators have
   different contexts, TN_ERR_SHAPE if their order, input lengths or `constant` differ, TN_ERR_NONFINITE if one has NaN or
   infinity or the result is too large for its type. */
TN_API tn_tensor *tn_cp_gram(const tn_cp *a, const tn_cp *b);
/* Computes the cosines of all pairs, G[o,o'] / (|S_o| |S'_o'|); NaN where an output is zero: [out_a,out_b]. */
TN_API tn_tensor *tn_cp_cosines(const tn_cp *a, const tn_cp *b);
/* Computes the inner product of the whole symmetrised tensors, which have equal out. */
TN_API tn_status  tn_cp_inner(const tn_cp *a, const tn_cp *b, double *inner);
TN_API tn_status  tn_cp_norm(const tn_cp *a, double *norm);                         /* the norm of this tensor  */
TN_API tn_status  tn_cp_cosine(const tn_cp *a, const tn_cp *b, double *cosine);     /* cosine; NaN if one is 0  */

#ifndef TN_NO_ANALYSIS
/* ---- modes of the whole tensor ------------------------------------------ >>cp-modes
   HOSVD: the tensor in orthonormal directions of its output and of its inputs, B[o,i,j] = sum core[p,q,r] U_out[p,o]
   U_in[q,i] U_in[r,j], from the factors. The directions of a mode are the eigenvectors of its Gram matrix: O(h^2 (out +
   n)) and eigenproblems of [out,out] and [n,n]; values below some 1e-8 of the largest are lost in it. De Lathauwer, De Moor
   & Vandewalle 2000; docs/math.md 11 */
typedef struct tn_cp_hosvd_desc {
    int64_t rank_out, rank_in;              /* directions to keep; 0, or more than there are: all                      */
    bool    unsymmetrised;                  /* of the tensor as its factors give it, where each input has its own modes;
                                               else of the symmetrised one. Needed where the inputs differ in length   */
    bool    accurate;                       /* small values to about 1e-16 of the largest: by QR decompositions of blocks
                                               of the unfolded tensor, O(out n^2 h) instead of O(h^2 n)                */
    bool    core;                           /* also the core and the error of what is left out; its size is refused if
                                               it exceeds desc.max_bytes                                               */
} tn_cp_hosvd_desc;

typedef struct tn_cp_hosvd_result {
    tn_tensor *out_values, *out_vectors;    /* [out] descending; [rank,out] orthonormal rows, sign rule of tn_eigh     */
    tn_tensor *in_values[TN_CP_MAX_ORDER];  /* the same of each input; of a symmetrised tensor only that of input 0    */
    tn_tensor *in_vectors[TN_CP_MAX_ORDER];
    tn_tensor *core;                        /* [rank_out,rank_in,..] or NULL                                           */
    double     norm;                        /* of the tensor                                                           */
    double     error;                       /* |B - B in the kept directions| / |B|, from |B|^2 - |core|^2: at least some
                                               1e-8; NaN without desc.core                                             */
} tn_cp_hosvd_result;

/* Any order. A NULL desc means all defaults. On failure all results are NULL. */
TN_API tn_status tn_cp_hosvd(const tn_cp *cp, const tn_cp_hosvd_desc *desc, tn_cp_hosvd_result *out);
TN_API void      tn_cp_hosvd_destroy(tn_cp_hosvd_result *r);                   /* frees the tensors of the result */
#endif /* TN_NO_ANALYSIS */

/* The largest coefficients of a tensor. */
typedef struct tn_coefficients {
    int64_t    count;                       /* min(k, number of coefficients)                                          */
    tn_tensor *values;                      /* [count] by decreasing magnitude, of equal ones the first indices first  */
    tn_tensor *index;                       /* [count,axes], I32: output, then inputs                                  */
    double     visited;                     /* share of the coefficients that had to be computed                       */
} tn_coefficients;

/* Finds the k coefficients B[o,i,j] of largest magnitude without storing the tensor: blocks of coefficients in turn, except
   those whose bound |B[o,i,j]| <= sqrt(sum_h P[o,h]^2 W[h,i]^2) |V[:,j]| says that they cannot belong to them. Symmetrised
   (the default) they are entries of the interaction matrices with i <= j <= .., and their bound is the mean of those of the
   permutations; `unsymmetrised` takes B as its factors give it. O(out n^2 h). Any order. */
TN_API tn_status tn_cp_top(const tn_cp *cp, int64_t k, bool unsymmetrised, tn_coefficients *out);
/* Finds the k tuples of inputs that interact most over all outputs: the largest |B[:,i,j]| = sqrt(sum_o B[o,i,j]^2), where each
   index has inputs only, [count,inputs]. Otherwise as above; O(min(out, h) n^2 h). */
TN_API tn_status tn_cp_top_inputs(const tn_cp *cp, int64_t k, bool unsymmetrised, tn_coefficients *out);
TN_API void      tn_coefficients_destroy(tn_coefficients *c);                  /* frees the tensors of the result */

/* Computes E[f(x) g(x)^T], [out_a,out_b], exactly for Gaussian inputs with second moment s = E[x x^T] [in,in], as for
   tn_cp_data_metric, but whether it is positive semidefinite is not checked. With `constant` it is that of [x;1], whose last
   column is the mean and ends with 1; without it the mean is 0. Orders 1 and 2. Isserlis 1918; docs/math.md 11 */
TN_API tn_tensor *tn_cp_gaussian_moment(const tn_cp *a, const tn_cp *b, const tn_tensor *s);

#ifndef TN_NO_ANALYSIS
/* ---- inner products of stacks ------------------------------------------- >>cp-stacks
   A stack is the composition of operators of order 2, layers[0] first: a polynomial of degree 2^layers. */
typedef enum tn_cp_stack_method {
    TN_CP_STACK_AUTO = 0,                      /* exact up to two layers, sampled for more                                */
    TN_CP_STACK_EXACT,                         /* of the symmetric tensors of the polynomials. One or two layers; for two
                                               O(h'^2 n^3) with h' terms in the second layer                           */
    TN_CP_STACK_SAMPLED,                       /* the exact inner product, estimated from complex random inputs, with a
                                               standard error                                                          */
    TN_CP_STACK_TREE,                          /* of the networks of tensors, layer by layer: cheap, but two stacks that
                                               compute the same function may have the inner product 0. Beside copies
                                               of the layers, 2 [h,n] and 2 [n,n] doubles for the largest h and n       */
    TN_CP_STACK_LAYER_SYMMETRISED              /* as TN_CP_STACK_TREE, with each layer symmetrised. Exact for one layer      */
} tn_cp_stack_method;

typedef struct tn_cp_stack_desc {
    tn_cp_stack_method method;
    int64_t  samples;                       /* of TN_CP_STACK_SAMPLED; 0: 4096                                            */
    uint64_t seed;                          /* equal seeds give bit-identical results                                  */
    bool     gaussian;                      /* samples from the normal distribution, not from the sphere: more error   */
} tn_cp_stack_desc;

typedef struct tn_cp_stack_result {
    tn_cp_stack_method method;                 /* the method that was used, never TN_CP_STACK_AUTO                           */
    double   inner, norm_a, norm_b;         /* <a,b>, |a|, |b|                                                         */
    double   cosine;                        /* NaN if one is 0                                                         */
    double   inner_error, cosine_error;     /* standard errors of a sampled result; 0 otherwise                        */
    int64_t  samples;                       /* drawn                                                                   */
} tn_cp_stack_result;

/* Compares two stacks of `layers` operators each. Inputs of the first layers and outputs of the last have equal lengths, the
   others may differ. Either all layers have `constant`, and each passes the one on, or none. TN_ERR_NONFINITE if an operator
   holds NaN or infinity, or if the inner product or a norm is beyond the range of a double; the cosine is right even then.
   docs/math.md 11 */
TN_API tn_status tn_cp_stack_inner(const tn_cp *const *a, const tn_cp *const *b, int layers, const tn_cp_stack_desc *desc,
                                   tn_cp_stack_result *out);
#endif /* TN_NO_ANALYSIS */
#endif /* TN_NO_OPERATOR */
