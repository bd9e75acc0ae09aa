#pragma once
#include "core/core.h"
#include "algebra/algebra.h"
#include "layers/layers.h"
#include "operator/operator.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* ======================================================================
   >>network  multilinear functions as networks of tensors
   A tn_net is a function that is linear in each of its input legs, and the tensor of that function,

       f(x_0, x_1, ..)[o] = sum_{i j ..} T[o,i,j,..] x_0[i] x_1[j] ..

   given as a network: T is the sum, over all labels that are not legs, of the product of the nodes. A node is a tensor with
   a label for each axis; axes that share a label (two or more) are multiplied together. Legs are the labels that are left:
   output legs, the first axes of T, and then the input legs. Nothing is contracted before a function asks for numbers, and
   then in an order that is planned (>>contraction). A bilinear layer, a stack of them, squared and bilinear attention and
   matrix product states are all such networks; tn_cp is the special case whose functions know its form and are faster.

   Legs have input numbers: legs of one input are given the same vector when f is used, so that only the part of T which is
   symmetric in them matters. In bilinear attention legs 0 and 1 take x_t (input 0), legs 2, 3 and 4 take x_s (input 1).
   With `constant` the last element of every input vector is the constant one, as in a tn_cp.

   A sum of such functions is kept as a list of nets: applied, contracted and as interaction matrices they are added, and
   <a + b, c> = <a, c> + <b, c>.

   Nets own copies of their tensors, which nets that are made from each other share. Functions that return a tn_net or a
   tensor return a new, owned one (NULL on error) and do not change their arguments. Numbers are computed in the context's
   dtype unless a function says otherwise. TN_ERR_MEMORY if a contraction needs more than desc.max_bytes.
   Tensor networks: Orus 2014. Attention and stacks of layers as networks: docs/math.md 20
   ====================================================================== */

typedef struct tn_net_node {
    tn_tensor *tensor;
    int        label[TN_MAX_RANK];          /* one for each axis                                              */
} tn_net_node;

typedef struct tn_net_leg {
    int        label;
    int        input;                       /* of input legs: legs with equal numbers take the same vector    */
    int64_t    extent;
} tn_net_leg;

typedef struct tn_net {
    tn_ctx      *ctx;
    int          nodes, outs, legs;         /* numbers of nodes, of output legs, of input legs (the order)    */
    int          labels;                    /* labels are 0 .. labels-1                                       */
    bool         constant;                  /* whether inputs end with the one                                */
    tn_net_node *node;                      /* [nodes]                                                        */
    tn_net_leg  *out, *in;                  /* [outs], [legs]                                                 */
} tn_net;

/* ---- made from arrays, operators and layers ------------------------------ >>net-making */
typedef enum tn_net_nodes {
    TN_NET_COPY = 0,            /* the net owns copies                                                          */
    TN_NET_REFER                /* the net uses the caller's tensors, which must live as long as it and as all nets that
                                   are made from it: with parameters as nodes tn_net_apply trains them           */
} tn_net_nodes;
/* Makes a net from n tensors and an expression: labels of each tensor's axes, "->", output legs, and after each '|' the legs
   of one more input. Labels are letters; blanks are ignored.
       tn_net_create(ctx, "oh,hi,hj->o|ij", 3, pwv, TN_NET_COPY)       a bilinear layer
       tn_net_create(ctx, "aib,bjc,cka->|i|j|k", 3, cores, TN_NET_COPY)   a closed matrix product state of three sites
   Legs are distinct labels of nodes; extents of equal labels are equal. TN_ERR_ARG with the position of a mistake,
   counted from 1. */
TN_API tn_net *tn_net_create(tn_ctx *ctx, const char *expression, int n, tn_tensor *const *tensors, tn_net_nodes nodes);
/* Makes a net from an operator: nodes P and F_k, all legs of input 0 if they have equal lengths; with `constant` as cp. */
TN_API tn_net *tn_net_from_cp(tn_ctx *ctx, const tn_cp *cp);
/* Makes a net from n >= 1 operators, layers[0] applied first: each input of a layer is the output of the layer before it,
   so that bilinear layers give order 2^n. The constant one is passed on to layers with `constant`, and with `carry` the
   output ends with it as well: [y;1], so that another net with `constant` can be composed with this one. */
TN_API tn_net *tn_net_from_stack(tn_ctx *ctx, int n, const tn_cp *const *layers, bool carry);
#ifndef TN_NO_SEQUENCES
/* Makes a net of order 5 from squared or bilinear attention: the contribution of key s to query t, without the row scale,
       y_t = c_t sum_s f(x_t, x_t, x_s, x_s, x_s) + o_b,   T[o,i,j,k,l,m] = sum_h A1_h[i,k] A2_h[j,l] M_h[o,m]
   A = scale Q^T K of each set (squared: twice the same), M = O V. The sum over the keys that are visible, their number's row
   scale c_t (see tn_row_scale) and the layer's out_bias are left to the caller. With rotary positions the net is for one
   distance t - s; without, `distance` has no effect. Biases of q, k and v set `constant`. TN_ERR_ARG for what is not a
   tensor of its inputs: softmax and differential attention, qk_norm, head_norm, mix_values, TN_ROW_SCALE_SUM. */
TN_API tn_net *tn_net_from_attention(tn_ctx *ctx, const tn_attention *layer, int64_t distance);
#endif /* TN_NO_SEQUENCES */
/* Makes a net from the n >= 1 cores of a matrix product state or tensor train, core j [D_j,n_j,D_(j+1)], closed by a trace:
   D_n = D_0, which is 1 for an open chain. Each core has an input leg, an input of its own. A core of rank 4,
   [D_j,n_j,out,D_(j+1)], has an output leg too; one of rank 2 has no leg. */
TN_API tn_net *tn_net_from_cores(tn_ctx *ctx, int n, tn_tensor *const *cores);
TN_API void    tn_net_destroy(tn_net *net);                                     /* frees the net              */

/* ---- nets from nets: nothing is contracted -------------------------------- >>net-changing */
enum { TN_NET_ALL = -1 };       /* as a leg: all input legs */
/* Composes two functions: outer(inner(..), inner(..), ..), with one copy of inner for each leg of outer. inner has one
   output leg, as long as the legs of outer; an outer with `constant` needs an inner whose output ends with the one. Legs
   are in the order of outer's, and for each in the order of inner's; outer's input a and inner's input b become one input
   (a,b). */
TN_API tn_net *tn_net_compose(const tn_net *outer, const tn_net *inner);
/* Fixes input leg `leg` at u [extent]: a net with one leg less. */
TN_API tn_net *tn_net_fix(const tn_net *net, int leg, const tn_tensor *u);
/* Folds in a linear map: one input leg, or all of them (TN_NET_ALL, which then have equal lengths), takes E x + b instead of
   x.   e [extent,n]  b [extent] or NULL (extent without the one). Folded alone, a leg becomes an input of its own. A bias
   needs `constant`, which TN_NET_ALL sets where it is missing. */
TN_API tn_net *tn_net_fold_in(const tn_net *net, int leg, const tn_tensor *e, const tn_tensor *b);
/* Folds in a linear map on the output side: U f(..), for nets with one output leg.   u [m,out] */
TN_API tn_net *tn_net_fold_out(const tn_net *net, const tn_tensor *u);

/* ---- numbers --------------------------------------------------------------- >>net-numbers */
/* Returns the full tensor T [outputs..,inputs..], of at most TN_MAX_RANK axes. */
TN_API tn_tensor *tn_net_contract(const tn_net *net);
/* Makes the plan of that contraction, to be read (tn_plan_format) or reused: its operands are the nodes' tensors. */
TN_API tn_plan   *tn_net_plan(const tn_net *net, const tn_plan_desc *desc);
/* Applies the function with the same x in every leg: x [..,in] -> [..,outputs..], an arena tensor, differentiable with
   respect to x and to nodes that are parameters (TN_NET_REFER). With `constant`, x may lack the one. The net keeps the plan
   of the last call, which is used again for inputs of the same shapes. */
TN_API tn_tensor *tn_net_apply(tn_ctx *ctx, const tn_net *net, tn_tensor *x);
/* The same with an x for each leg, x[0..legs) [..,in_k]. Those of rank 1 are used for all rows of the others, whose leading
   axes are equal. */
TN_API tn_tensor *tn_net_apply_each(tn_ctx *ctx, const tn_net *net, tn_tensor *const *x);

typedef enum tn_net_form {
    TN_NET_SYMMETRIC = 0,       /* T replaced by its mean over all permutations of the legs of each input, which is the
                                   same function: equal functions have equal tensors. Orders of the legs in which equal
                                   tensors meet in the same way are one contraction; TN_ERR_ARG above 40,320
                                   different ones, or where more than 2^20 orders have to be looked at           */
    TN_NET_AS_GIVEN             /* T as it is: one contraction. It depends on how the function is written       */
} tn_net_form;
/* Computes the inner product of two tensors, by contracting the networks with each other: no tensor is formed.
   TN_ERR_SHAPE if the legs, their inputs or `constant` differ, TN_ERR_NONFINITE if the result is not finite. */
TN_API tn_status tn_net_inner(const tn_net *a, const tn_net *b, tn_net_form form, double *inner);
TN_API tn_status tn_net_norm(const tn_net *a, tn_net_form form, double *norm);      /* the Frobenius norm      */
TN_API tn_status tn_net_cosine(const tn_net *a, const tn_net *b, tn_net_form form, double *cosine); /* NaN if one is 0 */

/* Computes E[<f(x),g(x)>], the sum over outputs, exactly for inputs that are independent Gaussian vectors with this covariance
   [n,n] and mean [n] (NULL: 0): the sum over all ways to pair the legs of each input, or to leave them to the mean, where
   equal ones are one contraction. The orders of a and b may differ, so that E|f - g|^2 and cosines of sums of nets, such as a
   residual stream x + attention(x), are sums of such numbers. With `constant` n is without the one. TN_ERR_SHAPE if outputs,
   lengths of legs or `constant` differ, TN_ERR_ARG above 40,320 different contractions, or where more than 2^20
   pairings have to be looked at. Isserlis 1918; docs/math.md 20 */
TN_API tn_status tn_net_gaussian(const tn_net *a, const tn_net *b, const tn_tensor *covariance, const tn_tensor *mean,
                                 double *moment);

/* Returns the interaction matrix of output direction u (the shape of the outputs; NULL without any), [in_0,in_1]: of
   sum_o u[o] T[o,..], for nets with two input legs (fix the others). Symmetrised if both legs are of one input. */
TN_API tn_tensor *tn_net_interaction(const tn_net *net, const tn_tensor *u);
/* Computes the `count` eigenpairs of largest |value| of that matrix (0: all), for two legs of one input: out->outputs is 1.
   Up to 1,024 elements of the leg, or for more than 1/32 of all pairs, from the matrix; else by tn_lanczos with products by
   a plan that is reused, never forming it, with residuals of at most 1e-12 of the largest |value| (F32: 1e-5). */
TN_API tn_status  tn_net_eigen(const tn_net *net, const tn_tensor *u, int64_t count, tn_eigenpairs *out);

/* Finds the k coefficients of largest magnitude of T as it is given. T is computed slice by slice and never stored: slices
   take at most a quarter of desc.max_bytes (64 MiB without a limit). TN_ERR_NONFINITE if a coefficient is not finite. */
TN_API tn_status tn_net_top(const tn_net *net, int64_t k, tn_coefficients *out);
#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */
