#ifndef TN_NO_CONTRACTION
enum { TNI_EXACT = 14, TNI_CLASSES = 128, TNI_OPERANDS = 4096 };
#define TNI_WRITE_COST 64.0              /* flops that writing an element costs */

/* An operand or the result. Labels begin as the caller's numbers or letters, negative ones from the last axis of an
   ellipsis on; tni_plan_bind replaces them by 0, 1, 2 .., or -1 on an axis of extent 1. */
typedef struct tni_subscript {
    int     rank, label[TN_MAX_RANK], at[TN_MAX_RANK];      /* at: the character of the expression, or -1 */
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
} tni_subscript;

/* Memory that is freed at once: blocks of its own, or of the arena of headers. */
typedef struct tni_pile_block { struct tni_pile_block *before; size_t bytes; } tni_pile_block;
typedef struct tni_pile { tn_ctx *ctx; bool owned; tni_pile_block *newest; char *at; size_t left; } tni_pile;

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
    tni_pile       pile;
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
#endif /* TN_NO_CONTRACTION */
