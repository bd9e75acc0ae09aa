#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "algebra/inner.h"
#include "operator/inner.h"
#include "network/inner.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* ---- numbers ------------------------------------------------------------------ >>net-numbers-impl */

TNI_FN tn_plan *tni_net_plan(const tn_net *net, const tn_plan_desc *desc, const char *op)
{
    const int       axes = net->outs + net->legs;
    tni_scratch     w = tni_scratch_begin(net->ctx, op);
    const int64_t **shape = (const int64_t **)tni_take(&w, net->nodes, sizeof *shape);
    const int     **label = (const int **)tni_take(&w, net->nodes, sizeof *label);
    int            *rank = (int *)tni_take(&w, net->nodes, sizeof *rank), *out = (int *)tni_take(&w, axes, sizeof *out);
    for (int i = 0; i < net->nodes && !w.failed; i++) {
        shape[i] = net->node[i].tensor->shape;
        label[i] = net->node[i].label;
        rank[i] = net->node[i].tensor->rank;
    }
    for (int i = 0; i < axes && !w.failed; i++) out[i] = net->out[i].label;     /* in follows out */
    tn_plan *plan = w.failed ? NULL : tni_plan_create(net->ctx, op, NULL, net->nodes, rank, shape, label, axes, out, desc);
    tni_scratch_release(&w, NULL);
    return plan;
}

/* With a limit on memory a contraction may take half of it, by slicing. Networks are chains and trees, for which few random
   searches find what many do. */
TNI_FN tn_plan_desc tni_net_plan_desc(const tn_ctx *ctx)
{
    tn_plan_desc d = TNI_ZERO;
    d.max_bytes = ctx->desc.max_bytes / 2;
    d.samples = 2;
    return d;
}

/* The contracted network, axes [outputs..,inputs..], an arena tensor: by a plan, or by one made for this call. */
TNI_FN tn_tensor *tni_net_run(const tn_net *net, tn_plan *plan, const char *op)
{
    tn_ctx    *ctx = net->ctx;
    tn_plan   *once = NULL;
    tn_tensor *t = NULL;
    for (int i = 0; i < net->nodes; i++) if (!tni_usable(ctx, net->node[i].tensor, op, "a node")) return NULL;
    if (net->outs + net->legs > TN_MAX_RANK)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: the result has %d axes, expected at most %d: freeze some legs first", op,
                        net->outs + net->legs, TN_MAX_RANK), (tn_tensor *)NULL;
    tn_plan_desc d = tni_net_plan_desc(ctx);
    if (!plan && !(plan = once = tni_net_plan(net, &d, op))) return NULL;
    tni_scratch w = tni_scratch_begin(ctx, op);
    tn_tensor **tensor = (tn_tensor **)tni_take(&w, net->nodes, sizeof *tensor);
    for (int i = 0; i < net->nodes && tensor; i++) tensor[i] = net->node[i].tensor;
    if (tensor) t = tni_plan_run(plan, net->nodes, tensor, op);
    tni_scratch_release(&w, NULL);
    tn_plan_destroy(once);
    return t;
}

tn_plan *tn_net_plan(const tn_net *net, const tn_plan_desc *desc) { return net ? tni_net_plan(net, desc, "net_plan") : NULL; }

/* Adds the tensor u with the shape of the output legs as the last node of q, which then has none of them. */
TNI_FN bool tni_net_direction(const tn_net *net, tn_net *q, const tn_tensor *u, const char *op)
{
    int  label[TN_MAX_RANK];
    bool fits = net->outs > 0 && u && u->rank == net->outs;
    if (net->outs == 0 && !u) return true;
    if (!tni_is_real(net->ctx, u, op, "u")) return false;
    for (int k = 0; k < net->outs && fits; k++) {
        fits = u->shape[k] == net->out[k].extent;
        label[k] = net->out[k].label;
    }
    if (fits) tni_net_refer(q, net->nodes, (tn_tensor *)(uintptr_t)u, label);
    else if (net->outs == 1)
        tni_fail(net->ctx, TN_ERR_SHAPE, "%s: u is %s, expected [%lld]", op, TNI_SHAPE(u), (long long)net->out[0].extent);
    else tni_fail(net->ctx, TN_ERR_SHAPE, "%s: u is %s, expected the shape of the net's %d output legs%s", op, TNI_SHAPE(u),
                  net->outs, net->outs == 0 ? ": NULL" : "");
    return fits;
}

tn_tensor *tn_net_contract(const tn_net *net)
{
    if (!net) return NULL;
    tni_scope  scope = tni_scope_begin(net->ctx);
    tn_tensor *t = tn_tensor_keep(tni_net_run(net, NULL, "net_contract"));
    tni_scope_end(net->ctx, scope);
    return t;
}

/* x [..,extent] or [..,extent - 1] as a node at leg k of q, and the axes before the last one in `lead`. */
static bool tni_net_give(tn_ctx *ctx, const tn_net *net, tn_net *q, int k, tn_tensor *x, const tn_tensor **lead,
                         const char *op)
{
    const int64_t n = net->in[k].extent;
    int64_t       rows = 1;
    if (!tni_is_real(ctx, x, op, "x")) return false;
    if (net->constant && x->rank > 0 && x->shape[x->rank - 1] == n - 1 && !(x = tn_append_one(ctx, x))) return false;
    if (x->rank < 1 || x->shape[x->rank - 1] != n)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: x is %s, expected %lld elements in its last axis for leg %d%s", op,
                        TNI_SHAPE(x), (long long)n, k, net->constant ? ", or one less without the one" : ""), false;
    int label[2] = {net->labels, net->in[k].label};
    if (x->rank == 1) {
        tni_net_refer(q, net->nodes + k, x, label + 1);
        return true;
    }
    if (!*lead) *lead = x;
    for (int a = 0; a < x->rank - 1; a++) rows *= x->shape[a];
    if (x->rank != (*lead)->rank || memcmp(x->shape, (*lead)->shape, sizeof *x->shape * (size_t)(x->rank - 1)) != 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: x is %s for leg %d and %s for an earlier one, expected equal axes but the last",
                        op, TNI_SHAPE(x), k, TNI_SHAPE(*lead)), false;
    if (!tn_tensor_is_contiguous(x)) x = tn_copy(ctx, x);
    x = tn_reshape_2d(x, rows, n);
    if (x) tni_net_refer(q, net->nodes + k, x, label);
    return x != NULL;
}

/* Contracts q, the net with the inputs as its last nodes, by the plan of the last call if that had the same shapes. */
static tn_tensor *tni_net_run_again(const tn_net *net, const tn_net *q, const char *op)
{
    tni_net_box *box = tni_net_box_of(net);
    tn_plan_desc d = tni_net_plan_desc(net->ctx);
    uint64_t     with_rows = 0;
    int64_t      rows = 0;
    for (int k = 0; k < net->legs && k < 64; k++) {
        const tn_tensor *x = q->node[net->nodes + k].tensor;
        if (x->rank == 2) rows = x->shape[0], with_rows |= (uint64_t)1 << k;
    }
    if (net->legs > 64) return tni_net_run(q, NULL, op);
    if (!box->plan || rows != box->rows || with_rows != box->with_rows) {
        tn_plan *plan = tni_net_plan(q, &d, op);
        if (!plan) return NULL;
        tni_net_keep_plan(box, plan);
        box->rows = rows;
        box->with_rows = with_rows;
    }
    return tni_net_run(q, box->plan, op);
}

static tn_tensor *tni_net_apply(tn_ctx *ctx, const tn_net *net, tn_tensor *const *x, const char *op)
{
    tn_net          *q = tni_net_make(ctx, net->nodes + net->legs, net->outs + 1, 0);
    const tn_tensor *lead = NULL;
    int64_t          shape[TN_MAX_RANK];
    int              j;
    bool             whole = true;
    if (!q) return NULL;
    tni_net_take_all(q, 0, net, 0);
    for (int k = 0; k < net->legs && whole; k++) {
        for (j = 0; j < k && x[j] != x[k]; j++) continue;
        if (j < k && net->in[j].extent == net->in[k].extent) {        /* the same node again, at another leg */
            tn_tensor *t = q->node[net->nodes + j].tensor;
            int label[2] = {net->labels, net->in[k].label};
            tni_net_refer(q, net->nodes + k, t, t->rank == 1 ? label + 1 : label);
        } else whole = tni_net_give(ctx, net, q, k, x[k], &lead, op);
    }
    int rank = lead ? lead->rank - 1 : 0;
    if (whole && rank + net->outs > TN_MAX_RANK) {
        tni_fail(ctx, TN_ERR_SHAPE, "%s: the result has %d axes, expected at most %d", op, rank + net->outs, TN_MAX_RANK);
        whole = false;
    }
    for (int k = 0; whole && k < rank; k++) shape[k] = lead->shape[k];
    for (int k = 0; whole && k < net->outs; k++) shape[rank + k] = net->out[k].extent;
    q->out[0].label = net->labels;                                    /* the rows */
    memcpy(q->out + 1, net->out, sizeof *net->out * (size_t)net->outs);
    if (!lead) {
        q->out++;
        q->outs--;
    }
    tn_tensor *y = whole ? tni_net_run_again(net, q, op) : NULL;
    tn_net_destroy(q);
    return y && rank > 1 ? tn_reshape(y, rank + net->outs, shape) : y;
}

static bool tni_net_given(tn_ctx *ctx, const tn_net *net, const void *x, const char *op)
{
    if (!net || !x) tni_fail(ctx, TN_ERR_ARG, "%s: %s is NULL", op, net ? "x" : "the net");
    else if (net->ctx != ctx) tni_fail(ctx, TN_ERR_ARG, "%s: the net belongs to another context", op);
    else return true;
    return false;
}

tn_tensor *tn_net_apply_each(tn_ctx *ctx, const tn_net *net, tn_tensor *const *x)
{
    return tni_net_given(ctx, net, (const void *)x, "net_apply_each") ? tni_net_apply(ctx, net, x, "net_apply_each") : NULL;
}

tn_tensor *tn_net_apply(tn_ctx *ctx, const tn_net *net, tn_tensor *x)
{
    if (!tni_net_given(ctx, net, x, "net_apply")) return NULL;
    tni_scratch w = tni_scratch_begin(ctx, "net_apply");
    tn_tensor **all = (tn_tensor **)tni_take(&w, net->legs, sizeof *all);
    for (int k = 0; all && k < net->legs; k++) all[k] = x;
    tn_tensor *y = all ? tni_net_apply(ctx, net, all, "net_apply") : NULL;
    tni_scratch_release(&w, NULL);
    return y;
}

#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */
