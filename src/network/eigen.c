#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "algebra/algebra.h"
#include "decomp/decomp.h"
#include "operator/inner.h"
#include "network/inner.h"

#ifndef TN_NO_OPERATOR
#ifndef TN_NO_CONTRACTION
/* ---- interaction matrices -------------------------------------------------------- >>net-eigen */

/* The net of u's interaction matrix: its two legs are the two of the net, or with x, one leg and x at the other. */
static tn_net *tni_net_matrix(const tn_net *net, const tn_tensor *u, tn_tensor *x, int at, const char *op)
{
    if (net->legs != 2)
        return tni_fail(net->ctx, TN_ERR_SHAPE, "%s: the net has %d input legs, expected 2: freeze the others", op,
                        net->legs), (tn_net *)NULL;
    tn_net *q = tni_net_make(net->ctx, net->nodes + (net->outs > 0) + (x != NULL), 0, 2 - (x != NULL));
    if (!q) return NULL;
    tni_net_take_all(q, 0, net, 0);
    q->in[0] = net->in[x ? 1 - at : 0];
    if (x) tni_net_refer(q, q->nodes - 1, x, &net->in[at].label);
    else q->in[1] = net->in[1];
    if (tni_net_direction(net, q, u, op)) return q;
    return tn_net_destroy(q), (tn_net *)NULL;
}

static tn_tensor *tni_net_interaction(const tn_net *net, const tn_tensor *u, const char *op)
{
    const tni_scope scope = tni_scope_begin(net->ctx);
    tn_net    *q = tni_net_matrix(net, u, NULL, 0, op);
    tn_tensor *t = q ? tni_net_run(q, NULL, op) : NULL, *to = NULL;
    if (t && net->in[0].input != net->in[1].input) to = tn_tensor_keep(t);
    else if (t && (to = tni_tensor_create(net->ctx, op, TN_REAL, 2, t->shape)) != NULL)
        to = tni_tensor_done(to, tni_put_symmetric(net->ctx, to, t));
    tn_net_destroy(q);
    tni_scope_end(net->ctx, scope);
    return to;
}

tn_tensor *tn_net_interaction(const tn_net *net, const tn_tensor *u)
{
    return net ? tni_net_interaction(net, u, "net_interaction") : NULL;
}

/* Q x = (T x + T^T x)/2 for one x, by two plans that are made once. */
typedef struct tni_net_product { tn_ctx *ctx; int64_t n; tn_tensor *x; tn_net *net[2]; tn_plan *plan[2]; } tni_net_product;

static tn_status tni_net_multiply(void *user, int64_t count, const double *x, double *y)
{
    const tni_net_product *p = (const tni_net_product *)user;
    tn_status s = TN_OK;
    for (int64_t c = 0; c < count && s == TN_OK; c++) {
        const tn_mark mark = tn_arena_mark(p->ctx);
        tn_tensor    *t[2];
        s = tn_write(p->x, TN_F64, x + c * p->n, p->n);
        t[0] = s == TN_OK ? tni_net_run(p->net[0], p->plan[0], "net_eigen") : NULL;
        t[1] = t[0] ? tni_net_run(p->net[1], p->plan[1], "net_eigen") : NULL;
        tn_tensor *sum = t[1] ? tn_scale(p->ctx, tn_add(p->ctx, t[0], t[1]), 0.5) : NULL;
        if (s == TN_OK) s = sum ? tn_read(sum, TN_F64, y + c * p->n, p->n) : tn_ctx_status(p->ctx);
        if (!p->ctx->tape) tn_arena_release(p->ctx, mark);
    }
    return s;
}

/* The pairs as values [count] and vectors [count,n], both owned. */
static tn_status tni_net_some_pairs(const tn_net *net, const tn_tensor *u, int64_t count, tn_tensor **values,
                                    tn_tensor **vectors)
{
    tn_ctx   *ctx = net->ctx;
    tn_status s = TN_OK;
    const tn_plan_desc limit = tni_net_plan_desc(ctx);
    tni_net_product p = TNI_ZERO;
    tn_lanczos_desc d = TNI_ZERO;
    tn_lanczos_result r = TNI_ZERO;
    p.ctx = ctx;
    p.n = net->in[0].extent;
    d.top = count;
    if (ctx->desc.dtype != TN_F64) d.tol = 1e-5;
    p.x = tn_tensor_create(ctx, TN_REAL, 1, &p.n);
    for (int k = 0; k < 2 && p.x && s == TN_OK; k++) {
        p.net[k] = tni_net_matrix(net, u, p.x, 1 - k, "net_eigen");
        p.plan[k] = p.net[k] ? tni_net_plan(p.net[k], &limit, "net_eigen") : NULL;
        if (!p.plan[k]) s = tn_ctx_status(ctx);
    }
    if (!p.x) s = TN_ERR_MEMORY;
    if (s == TN_OK) s = tn_lanczos(ctx, p.n, tni_net_multiply, &p, &d, &r);
    for (int k = 0; k < 2; k++) {
        tn_plan_destroy(p.plan[k]);
        tn_net_destroy(p.net[k]);
    }
    tn_tensor_destroy(p.x);
    *values = r.values;
    *vectors = r.vectors;
    return s;
}

static tn_status tni_net_all_pairs(const tn_net *net, const tn_tensor *u, int64_t count, tn_tensor **values,
                                   tn_tensor **vectors)
{
    tn_tensor *q = tni_net_interaction(net, u, "net_eigen");
    tn_eigh_desc d = TNI_ZERO;
    tn_eigh_result r = TNI_ZERO;
    d.order = TN_EIGH_MAGNITUDE;
    d.top = count;
    tn_status s = q ? tn_eigh(net->ctx, q, &d, &r) : tn_ctx_status(net->ctx);
    tn_tensor_destroy(q);
    *values = r.values;
    *vectors = r.vectors;
    r.values = r.vectors = NULL;
    tn_eigh_destroy(&r);
    return s;
}

tn_status tn_net_eigen(const tn_net *net, const tn_tensor *u, int64_t count, tn_eigenpairs *out)
{
    tn_tensor *values = NULL, *vectors = NULL;
    int64_t    shape[3];
    tn_status  s;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if (!net) return TN_ERR_ARG;
    if (!tni_within(net->ctx, "net_eigen", "count", count, 0, INT64_MAX)) return TN_ERR_ARG;
    if (net->legs != 2 || net->in[0].input != net->in[1].input)
        return tni_fail(net->ctx, TN_ERR_SHAPE, "net_eigen: the net has %d input legs%s, expected 2 of one input", net->legs,
                        net->legs == 2 ? " of two inputs" : "");
    shape[0] = 1;
    shape[2] = net->in[0].extent;
    shape[1] = count == 0 ? shape[2] : tni_min(count, shape[2]);
    tni_scope scope = tni_scope_begin(net->ctx);
    if (shape[2] <= 1024 || shape[1] > shape[2] / 32) s = tni_net_all_pairs(net, u, shape[1], &values, &vectors);
    else s = tni_net_some_pairs(net, u, shape[1], &values, &vectors);
    if (s == TN_OK) {
        out->values = tn_tensor_create(net->ctx, TN_REAL, 2, shape);
        out->vectors = tn_tensor_create(net->ctx, TN_REAL, 3, shape);
        s = out->values && out->vectors ? TN_OK : TN_ERR_MEMORY;
        for (int i = 0; i < 2 && s == TN_OK; i++) {
            tn_tensor *from = i ? vectors : values, *to = i ? out->vectors : out->values;
            s = tni_copy(tn_reshape(to, to->rank - 1, to->shape + 1), from);
        }
    }
    tni_scope_end(net->ctx, scope);
    tn_tensor_destroy(values);
    tn_tensor_destroy(vectors);
    out->outputs = 1;
    out->count = shape[1];
    out->n = shape[2];
    out->constant = net->constant;
    if (s != TN_OK) tn_eigenpairs_destroy(out);
    return s;
}

/* ---- the largest coefficients ------------------------------------------------------ >>net-top
   Slices of T are contracted one after the other: the first axes at one index each, then a range of the next one, then all
   of the others. A heap holds the k largest so far (>>tensor-select). */
typedef struct tni_net_search {
    int           axes, single;         /* the first `single` axes are at one index; the next one is divided into ranges */
    int64_t       shape[64], at[64];    /* of T; the present slice's indices                                             */
    int64_t       rest;                 /* elements of T for one index of the divided axis                               */
    int64_t       range;
    tni_heap      heap;
    double       *numbers;              /* of a slice                                                                    */
    tn_plan      *plan[2];              /* of slices of `range`, and of the last one, which is smaller                   */
} tni_net_search;

/* A view of the net's nodes at the slice; labels of single axes are removed. */
static tn_net *tni_net_slice(const tn_net *net, const tni_net_search *f, int64_t start, int64_t stop)
{
    tn_net *q = tni_net_make(net->ctx, net->nodes, f->axes - f->single, 0);
    int     k;
    if (!q) return NULL;
    for (k = f->single; k < f->axes; k++) q->out[k - f->single] = net->out[k];       /* in follows out */
    q->labels = net->labels;
    for (int i = 0; i < net->nodes; i++) {
        tn_tensor *t = tni_view_of(net->node[i].tensor);
        int        label[TN_MAX_RANK], rank = 0;
        for (int a = 0; t && a < net->node[i].tensor->rank; a++) {
            const int l = net->node[i].label[a];
            for (k = 0; k <= f->single && k < f->axes && net->out[k].label != l; k++) continue;
            if (k <= f->single && k < f->axes) t = tn_slice(t, rank, k < f->single ? f->at[k] : start,
                                                            k < f->single ? f->at[k] + 1 : stop);
            if (t && k < f->single) {                                 /* the axis is removed from the view */
                memmove(t->shape + rank, t->shape + rank + 1, sizeof *t->shape * (size_t)(t->rank - rank - 1));
                memmove(t->strides + rank, t->strides + rank + 1, sizeof *t->strides * (size_t)(t->rank - rank - 1));
                t->rank--;
            } else label[rank++] = l;
        }
        if (!t) return tn_net_destroy(q), (tn_net *)NULL;
        tni_net_refer(q, i, t, label);
    }
    return q;
}

/* Offers all elements of the slice [start,stop) of the divided axis. */
static tn_status tni_net_look(const tn_net *net, tni_net_search *f, int64_t start, int64_t stop)
{
    const tn_mark mark = tn_arena_mark(net->ctx);
    tn_net       *q = tni_net_slice(net, f, start, stop);
    tn_plan     **plan = &f->plan[stop - start != f->range];
    tn_plan_desc  d = tni_net_plan_desc(net->ctx);
    tn_tensor    *t = q && (*plan || (*plan = tni_net_plan(q, &d, "net_top"))) ? tni_net_run(q, *plan, "net_top") : NULL;
    int64_t       n = (stop - start) * f->rest, i, base = 0;
    tn_status     s = t ? tn_read(t, TN_F64, f->numbers, n) : tn_ctx_status(net->ctx);
    tn_net_destroy(q);
    if (!net->ctx->tape) tn_arena_release(net->ctx, mark);
    for (int a = 0; a < f->single; a++) base = base * f->shape[a] + f->at[a];
    if (f->single < f->axes) base = base * f->shape[f->single] + start;
    for (base *= f->rest, i = 0; i < n && s == TN_OK; i++) {
        if (!(fabs(f->numbers[i]) < HUGE_VAL))
            s = tni_fail(net->ctx, TN_ERR_NONFINITE, "net_top: a coefficient is %g, expected finite ones", f->numbers[i]);
        else tni_heap_offer(&f->heap, f->numbers[i], base + i);
    }
    return s;
}

/* Chooses the slices; *total is the number of all elements. */
static tn_status tni_net_divide(const tn_net *net, tni_net_search *f, int64_t *total)
{
    const size_t  max = net->ctx->desc.max_bytes;
    const int64_t room = tni_max((int64_t)(max > 0 ? max / 4 : (size_t)64 << 20) / 16, 1);   /* 8 bytes, and as doubles */
    int           k;
    if (net->outs + net->legs > 64)
        return tni_fail(net->ctx, TN_ERR_SHAPE, "net_top: the tensor has %d axes, expected at most 64",
                        net->outs + net->legs);
    f->axes = net->outs + net->legs;
    for (*total = 1, k = 0; k < f->axes; k++) {
        f->shape[k] = net->out[k].extent;
        if (f->shape[k] > 0 && *total > INT64_MAX / f->shape[k])
            return tni_fail(net->ctx, TN_ERR_SHAPE, "net_top: the tensor has more than 2^63 elements");
        *total *= f->shape[k];
    }
    f->rest = 1;
    for (k = f->axes - 1; k > 0 && f->axes - k < TN_MAX_RANK && *total > 0 && f->rest <= room / f->shape[k]; k--)
        f->rest *= f->shape[k];
    f->single = k > 0 ? k : 0;                                    /* axis k is the divided one */
    f->range = f->axes > 0 ? tni_min(tni_max(room / f->rest, 1), tni_max(f->shape[f->single], 1)) : 1;
    return TN_OK;
}

static tn_status tni_net_search_all(const tn_net *net, tni_net_search *f)
{
    const int64_t extent = f->axes > 0 ? f->shape[f->single] : 1;
    tn_status     s = TN_OK;
    int           k;
    memset(f->at, 0, sizeof f->at);
    for (;;) {
        for (int64_t start = 0; start < extent && s == TN_OK; start += f->range)
            s = tni_net_look(net, f, start, tni_min(start + f->range, extent));
        for (k = f->single - 1; k >= 0 && ++f->at[k] == f->shape[k]; k--) f->at[k] = 0;
        if (k < 0 || s != TN_OK) return s;
    }
}

tn_status tn_net_top(const tn_net *net, int64_t k, tn_coefficients *out)
{
    int64_t   total = 0;
    tn_status s;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if (!net) return TN_ERR_ARG;
    if (!tni_within(net->ctx, "net_top", "k", k, 1, INT64_MAX)) return TN_ERR_ARG;
    tni_net_search f = TNI_ZERO;
    if ((s = tni_net_divide(net, &f, &total)) != TN_OK) return s;
    tni_scratch w = tni_scratch_begin(net->ctx, "net_top");
    f.heap = tni_take_heap(&w, TN_ORDER_MAGNITUDE, tni_min(k, total));
    f.numbers = tni_take_f64(&w, f.range, f.rest);
    s = f.numbers ? TN_OK : TN_ERR_MEMORY;
    tni_scope scope = tni_scope_begin(net->ctx);
    if (s == TN_OK && total > 0) s = tni_net_search_all(net, &f);
    if (s == TN_OK) s = tni_coefficients_store(net->ctx, &f.heap, f.axes, f.shape, 0, out, "net_top");
    out->visited = 1;
    tni_scope_end(net->ctx, scope);
    for (int i = 0; i < 2; i++) tn_plan_destroy(f.plan[i]);
    if (s != TN_OK) tn_coefficients_destroy(out);
    return tni_scratch_end(&w, s);
}
#endif /* TN_NO_CONTRACTION */
#endif /* TN_NO_OPERATOR */
