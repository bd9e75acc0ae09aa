#pragma once
#include "core/inner.h"
#include "algebra/algebra.h"

#ifndef TN_NO_CONTRACTION
enum { TNI_EXACT = 14, TNI_CLASSES = 128, TNI_OPERANDS = 4096 };
#define TNI_WRITE_COST 64.0              /* flops that writing an element costs */

/* An operand or the result. Labels begin as the caller's numbers or letters, negative ones from the last axis of an
   ellipsis on; tni_plan_bind replaces them by 0, 1, 2 .., or -1 on an axis of extent 1. */
typedef struct tni_subscript {
    int     rank, label[TN_MAX_RANK], at[TN_MAX_RANK];      /* at: the character of the expression, or -1 */
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
} tni_subscript;

typedef struct tni_move tni_move;
typedef struct tni_source { int operand; tni_move *from; tn_view view; } tni_source;    /* from NULL: an operand */

/* One kernel call of a program; its views are in the axes of the kernel, without data. */
struct tni_move {
    tni_move  *next;
    tn_kernel  kernel;
    int        n_in, node;              /* the node of the tree it works for */
    bool       last;                    /* writes to the result, not to a buffer */
    tni_source in[2];
    tn_view    out;
    int64_t    count;                   /* elements of its buffer */
    size_t     offset, bytes;           /* its place in the workspace */
    uint64_t   *labels;                 /* the labels of its buffer, a set */
    tn_tensor *made;                    /* its result while recording */
};
typedef struct tni_program { tni_move *first; size_t bytes; bool in_place; } tni_program;  /* in_place: not for the tape */

struct tn_plan {
    tni_owned      owned;               /* first: the context destroys it by this */
    tn_ctx        *ctx;
    const char    *op, *expr;           /* the function that was called; NULL if labels are integers */
    tn_plan_desc   desc;
    tni_scratch    memory;              /* of the plan itself: in the arena if it is of one call */
    int            n, labels, words, root;
    tni_subscript *operand, out;
    int           *name;                /* [labels] of the caller */
    int64_t       *extent, *part;       /* [labels] whole, and in one slice */
    double        *width;               /* [labels] part, as the planner multiplies it */
    uint64_t      *all, *legs, *keep;   /* [n] all labels of operands; [2n-1] labels of nodes; of the result */
    int           *child;               /* [2n-1][2] */
    int           *order;               /* [n-1] the products in order of evaluation */
    double        *seconds;             /* [2n-1] measured */
    int64_t        runs;                /* that were measured */
    tni_program   *program;
};

/* Where the numbers of a node are, and their layout: its labels of extent other than 1, by decreasing stride. */
typedef struct tni_layout { tni_source at; int count, *label; int64_t *stride; } tni_layout;

enum { TNI_B, TNI_M, TNI_K, TNI_N, TNI_AXES };      /* the axes of a GEMM: batch, rows, depth, columns */

typedef struct tni_builder {
    const tn_plan *p;
    tni_scratch   *memory;
    const int64_t *extent;              /* [labels] of a slice */
    size_t         size;                /* of an element */
    tni_program   *program;
    tni_move     **end;
    tni_layout      *piece, result;       /* [2n-1] */
    tni_move     **live;                /* buffers in use, by offset */
    int            lives, *list[TNI_AXES], count[TNI_AXES], *order;
    int64_t       *s[3];                /* [labels] strides of a, b and the result of a step; 0: absent */
    bool           ok, in_place;        /* in_place: GEMM takes any number of batch axes */
} tni_builder;
#endif /* TN_NO_CONTRACTION */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_CONTRACTION
/* expression.c */
TNI_FN bool tni_parse(tn_plan *p);
TNI_FN bool tni_set_has(const uint64_t *set, int label);
TNI_FN void tni_set_add(uint64_t *set, int label);
TNI_FN int tni_lowest_bit(uint64_t bits);
TNI_FN bool tni_plan_bind(tn_plan *p);

/* order.c */
TNI_FN const uint64_t *tni_legs(const tn_plan *p, int node);
TNI_FN double tni_volume(const tn_plan *p, const uint64_t *a, const uint64_t *b);
TNI_FN double tni_couple_flops(const tn_plan *p, const uint64_t *a, const uint64_t *b, const uint64_t *left);
TNI_FN double tni_write_cost(const tn_plan *p);
TNI_FN double tni_rng_unit(tni_rng *d);
TNI_FN bool tni_plan_tree(tn_plan *p);

/* layout.c */
TNI_FN int64_t tni_step_of(const tni_builder *b, int label);
TNI_FN int tni_fuse(const tni_builder *b, int n, const int *label, int views, int64_t *const *s, tn_view *v);
TNI_FN int64_t tni_elements(const tni_builder *b, int n, const int *label);
TNI_FN void tni_plan_strides(const tni_builder *b, int n, const int *label, int64_t *s);
TNI_FN void tni_strides_of(const tni_layout *q, int64_t *s);
TNI_FN bool tni_layout_begin(tni_builder *b, tni_layout *q, int most);
TNI_FN void tni_layout_set(tni_builder *b, tni_layout *q, tni_move *from, int n, const int *label);
TNI_FN tni_move *tni_emit(tni_builder *b, tn_kernel kernel, int node, bool last, const tni_layout *x, const tni_layout *y,
                          const tn_view *v, const tn_view *out, int64_t count);
TNI_FN void tni_build_copy(tni_builder *b, tni_layout *q, int node, const int *order);
TNI_FN void tni_build_result(tni_builder *b, const tni_layout *q, int node);
TNI_FN void tni_build_operand(tni_builder *b, int k);

/* program.c */
TNI_FN tni_program *tni_plan_program(const tn_plan *p, tni_scratch *memory, const int64_t *extent, bool recorded);

/* run.c */
TNI_FN const uint64_t *tni_program_largest(const tni_program *g);
TNI_FN tn_status tni_plan_too_large(const tn_plan *p, const tni_program *g);
TNI_FN bool tni_plan_takes(tn_plan *p, tn_tensor *const *t, bool *same);
TNI_FN tn_tensor *tni_plan_result(tn_plan *p, tn_tensor *const *t, const tni_program *g);

/* plan.c */
TNI_FN tn_plan *tni_plan_create(tn_ctx *ctx, const char *op, const char *expr, int64_t n, const int *ranks,
                                const int64_t *const *shapes, const int *const *labels, int rank, const int *out,
                                const tn_plan_desc *desc);
TNI_FN tn_tensor *tni_plan_run(tn_plan *p, int64_t n, tn_tensor *const *operands, const char *op);
#endif /* TN_NO_CONTRACTION */

#endif
