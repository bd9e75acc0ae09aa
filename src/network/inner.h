#pragma once
#include "core/inner.h"
#include "algebra/algebra.h"
#include "network/network.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* An owned tensor and the number of nodes, of one net or several, that use it. */
typedef struct tni_net_share { tn_tensor *tensor; int64_t users; } tni_net_share;

typedef struct tni_net_box {
    tni_owned       owned;
    int64_t         bytes;
    tni_net_share **share;              /* [nodes], NULL for a node that refers to a tensor of the caller */
    tn_plan        *plan;               /* of the last tn_net_apply, or NULL; not in the context's list   */
    int64_t         rows;               /* for which it was made, and whether leg k had rows: bit k       */
    uint64_t        with_rows;
    tn_net          net;
} tni_net_box;

/* A node of an inner product: `same` is equal for equal tensors, `form` for equal shapes, and `axis` for axes between which
   the tensor is symmetric. */
typedef struct tni_net_part { tn_tensor *tensor; uint64_t form; int same; uint8_t axis[TN_MAX_RANK]; } tni_net_part;

/* Two nets joined at legs, with colours of nodes and labels, see >>net-permutations. */
typedef struct tni_net_joined {
    int           nodes, labels, (*label)[TN_MAX_RANK];
    tni_net_part *part;
    uint64_t     *color, *edge, *next, *seed;                       /* [nodes]; the others [labels] */
} tni_net_joined;

typedef struct tni_net_mapping {
    const tni_net_joined *from, *to;
    int                  *node, *label, *back, steps;               /* [nodes], [labels], [labels]: the inverse of label */
    bool                 *used, shapes;                             /* [nodes] */
} tni_net_mapping;
#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* net.c */
TNI_FN tni_net_box *tni_net_box_of(const tn_net *net);
TNI_FN void tni_net_keep_plan(tni_net_box *box, tn_plan *plan);
TNI_FN tn_net *tni_net_make(tn_ctx *ctx, int nodes, int outs, int legs);
TNI_FN void tni_net_label(tn_net *net, tn_net_node *node, int rank, const int *label);
TNI_FN void tni_net_refer(tn_net *net, int i, tn_tensor *t, const int *label);
TNI_FN bool tni_net_put(tn_net *net, int i, tn_tensor *t, const int *label);
TNI_FN tn_tensor *tni_net_copy(tn_ctx *ctx, const tn_tensor *t, double factor);
TNI_FN void tni_net_take(tn_net *net, int i, const tn_net *from, int j, int shift);
TNI_FN void tni_net_take_all(tn_net *net, int at, const tn_net *from, int shift);
TNI_FN tn_net *tni_net_like(const tn_net *from, int more, int without);
TNI_FN tn_net *tni_net_done(tn_net *net, bool whole, const char *op);
TNI_FN tn_net *tni_net_compose(const tn_net *outer, const tn_net *inner, const char *op);

/* numbers.c */
TNI_FN tn_plan *tni_net_plan(const tn_net *net, const tn_plan_desc *desc, const char *op);
TNI_FN tn_plan_desc tni_net_plan_desc(const tn_ctx *ctx);
TNI_FN tn_tensor *tni_net_run(const tn_net *net, tn_plan *plan, const char *op);
TNI_FN bool tni_net_direction(const tn_net *net, tn_net *q, const tn_tensor *u, const char *op);

/* permute.c */
TNI_FN uint64_t tni_net_hash(const tni_net_part *n, const double *numbers);
TNI_FN bool tni_net_alike(const tni_net_part *p, const tni_net_part *q);
TNI_FN uint64_t tni_net_refine(tni_net_joined *g, bool shapes);
TNI_FN bool tni_net_maps(tni_net_mapping *m, const tni_net_joined *from, const tni_net_joined *to, bool shapes, int x, int y);
TNI_FN tn_status tni_net_merge_all(tn_net *net, tni_net_part *part, bool *in);
#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */

#endif
