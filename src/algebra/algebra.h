#pragma once
#include "core/core.h"

#ifndef TN_NO_CONTRACTION
/* ======================================================================
   >>contraction  products of many tensors, summed over shared labels
   Every axis of an operand has a label. The result is the sum, over all values of the labels that it lacks, of the product
   of the operands' elements: "ij,jk->ik" is a matrix product. A label may occur in any number of operands (a hyperedge),
   several times in one operand (its diagonal), in one operand only (a private sum), and in the result as well (a batch).
   A plan is the order of pairwise products, by default the one of the least cost: flops + 64 * elements written. A flop is a
   multiplication or an addition. Diagonals are taken and private labels summed first. Up to 14 operands all orders are
   searched (subset dynamic programming), outer products included. More operands are ordered by seeded random-greedy
   searches, whose trees are then annealed and improved. Intermediate results may have any number of axes; TN_MAX_RANK limits
   operands and results alone.
   Gray & Kourtis 2021, Smith & Gray 2018, Kalachev, Panteleev & Yung 2021
   ====================================================================== */

/* Computes an expression as numpy.einsum has it, for example "oh,hi,hj->oij". Labels are letters; spaces are ignored; "..."
   is any number of axes, counted from the last, which the result has as well. Without "->" the result has the labels that
   occur once, in alphabetical order, after those of "...". Axes of one label have one extent, or 1: such an axis is repeated
   as in NumPy (a plan does so on request). 1 to 4096 operands of any strides. Errors name the character. */
TN_API tn_tensor *tn_einsum(tn_ctx *ctx, const char *expr, int64_t n, tn_tensor *const *operands);
/* The same with integers as labels: labels[k] has one number >= 0 for each axis of operand k, out those of the result. */
TN_API tn_tensor *tn_einsum_labels(tn_ctx *ctx, int64_t n, tn_tensor *const *operands, const int *const *labels, int rank,
                                   const int *out);

typedef struct tn_plan tn_plan;

typedef enum tn_plan_objective {
    TN_PLAN_COST = 0,           /* flops + 64 * elements written                                                 */
    TN_PLAN_FLOPS,              /* flops alone                                                                   */
    TN_PLAN_SIZE                /* elements of the largest intermediate result; of equally good plans, the cost  */
} tn_plan_objective;

typedef struct tn_plan_desc {
    tn_plan_objective minimize; /* what the order of products minimises                                           */
    size_t   max_bytes;         /* limit for the intermediate results and copies of a run, met by slicing: some labels are
                                   divided into parts, which are computed one after the other; where operands of a run are
                                   not contiguous and need copies, into smaller ones. 0: no limit                    */
    int      samples;           /* random-greedy searches if there are more than 14 operands; 0: 8                */
    uint64_t seed;              /* of these searches; equal seeds give equal plans                                */
    bool     broadcast;         /* an axis of extent 1 is repeated where its label has another extent, as in NumPy */
    double (*clock)(void);      /* seconds; if given, tn_plan_run measures each step, and waits for it            */
} tn_plan_desc;

/* What a plan costs, and what the product without a plan would. */
typedef struct tn_plan_cost {
    double   naive;             /* flops of one sum over all labels at once                        */
    double   flops;             /* flops of the plan, all slices                                   */
    double   written;           /* elements that its steps write, all slices                       */
    double   largest;           /* elements of the largest intermediate result, in one slice       */
    size_t   bytes;             /* of the intermediate results and copies that a run holds at once */
    int64_t  slices, steps;     /* number of slices; steps of a slice                              */
} tn_plan_cost;

/* Creates a plan for operands of these ranks and shapes. It is owned: it lives until tn_plan_destroy or the end of the
   context. TN_ERR_MEMORY if no slicing meets desc.max_bytes. A NULL desc means all defaults; NULL on error. */
TN_API tn_plan   *tn_plan_create(tn_ctx *ctx, const char *expr, int64_t n, const int *ranks, const int64_t *const *shapes,
                                 const tn_plan_desc *desc);
TN_API tn_plan   *tn_plan_create_labels(tn_ctx *ctx, int64_t n, const int *ranks, const int64_t *const *shapes,
                                        const int *const *labels, int rank, const int *out, const tn_plan_desc *desc);
/* Computes the plan's result for operands of its shapes, any number of times. While operands that need gradients are
   recorded it is not sliced, because the backward pass needs all intermediate results. */
TN_API tn_tensor *tn_plan_run(tn_plan *plan, int64_t n, tn_tensor *const *operands);
/* What a plan costs; zeros for NULL. */
TN_API tn_plan_cost tn_plan_cost_of(const tn_plan *plan);
/* Formats a plan as a table of 80 columns, one step per line; an expression or a product that is longer alone has a longer
   line of its own. Returns the length that the whole text needs without the final zero, as snprintf does; -1 on error. */
TN_API int64_t    tn_plan_format(const tn_plan *plan, char *dst, size_t bytes);
TN_API void       tn_plan_destroy(tn_plan *plan);              /* frees the plan */

/* ======================================================================
   >>products small products of tensors
   Made of other ops: results are arena tensors, recorded and differentiable. Kolda & Bader 2009, with one difference: where
   several axes become one, their order is row-major, the last of them fastest, as tn_reshape joins them. Kolda and Bader let
   the first of them change fastest, so their unfolding has the columns of this one in another order.
   ====================================================================== */

/* Contracts axis j of u with axis k of v, which may count from the last one as -1: the free axes of u come first, then those of
   v. A matrix product is tn_tensordot(ctx, a, 1, b, 0). It is the tensor inner product U .jk V with axes counted from 0.
   Sharkey 2023, equation 1 */
TN_API tn_tensor *tn_tensordot(tn_ctx *ctx, tn_tensor *u, int j, tn_tensor *v, int k);
/* The column-wise Khatri-Rao product: column c is the Kronecker product of the columns c.   a [m,r]  b [n,r] -> [m n,r] */
TN_API tn_tensor *tn_khatri_rao(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);
/* The row-wise Khatri-Rao product, row r (x) row r; also called face-splitting.   a [r,m]  b [r,n] -> [r,m n] */
TN_API tn_tensor *tn_khatri_rao_rows(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);
/* The Kronecker product of tensors of equal rank, at most 4: element (i p + k, j q + l) of two matrices is a[i,j] b[k,l] for
   b [p,q]. */
TN_API tn_tensor *tn_kronecker(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);
/* The mode product x x_n A: multiplies every fibre along the axis by a.   x [p..,n,s..]  a [m,n] -> [p..,m,s..] */
TN_API tn_tensor *tn_mode_product(tn_ctx *ctx, tn_tensor *x, int axis, tn_tensor *a);
/* Unfolds a tensor into a matrix: rows are the axis, columns all other axes in their order, the last one fastest.
   x [p..,n,s..] -> [n,p s] */
TN_API tn_tensor *tn_unfold(tn_ctx *ctx, tn_tensor *x, int axis);
/* The inverse of tn_unfold, for the shape of the tensor. (Folding a layer into an operator is tn_cp_fold_in.) */
TN_API tn_tensor *tn_fold(tn_ctx *ctx, tn_tensor *m, int axis, int rank, const int64_t *shape);
#endif /* TN_NO_CONTRACTION */
