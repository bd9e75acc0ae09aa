#include "core/inner.h"
#include "tensor/inner.h"
#include "comm/comm.h"
#include "tape/inner.h"
#include "ops/inner.h"

/* ---- helpers of the ops ------------------------------------------------- >>op-helpers */

/* A view broadcast to a larger shape: repeated axes have stride 0. NumPy's rule: axes are aligned at the last. */
TNI_FN tn_view tni_expand_view(tn_view v, int rank, const int64_t *shape)
{
    tn_view e = v;
    int     shift = rank - v.rank;
    e.rank = rank;
    for (int i = 0; i < rank; i++) {
        bool here = i >= shift && (v.shape[i - shift] != 1 || shape[i] == 1);
        e.shape[i] = shape[i];
        e.strides[i] = here ? v.strides[i - shift] : 0;
    }
    return e;
}

/* The same axes after new ones of extent 1, as SUM expects its output. */
TNI_FN tn_view tni_pad_view(tn_view v, int rank)
{
    tn_view p = v;
    int     shift = rank - v.rank;
    p.rank = rank;
    for (int i = 0; i < rank; i++) {
        p.shape[i] = i < shift ? 1 : v.shape[i - shift];
        p.strides[i] = i < shift ? 0 : v.strides[i - shift];
    }
    return p;
}

TNI_FN bool tni_is_real(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!tni_usable(ctx, t, op, what)) return false;
    if (tni_computes(ctx, t->dtype)) return true;
    return tni_fail(ctx, TN_ERR_DTYPE, "%s: %s is %s, expected %s as in this context", op, what, tn_dtype_name(t->dtype),
                    tn_dtype_name(ctx->desc.dtype)), false;
}

TNI_FN bool tni_is_ids(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!tni_usable(ctx, t, op, what)) return false;
    if (t->dtype == TN_I32) return true;
    return tni_fail(ctx, TN_ERR_DTYPE, "%s: %s is %s, expected I32", op, what, tn_dtype_name(t->dtype)), false;
}

TNI_FN bool tni_has_columns(tn_ctx *ctx, const tn_tensor *x, const char *op)
{
    if (x->rank > 0) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: x has rank 0, expected at least 1", op), false;
}

TNI_FN bool tni_fits_columns(tn_ctx *ctx, const tn_tensor *x, const tn_tensor *t, const char *op, const char *what)
{
    if (!t || (t->rank == 1 && t->shape[0] == x->shape[x->rank - 1])) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, expected [%lld], for x is %s", op, what, TNI_SHAPE(t),
                    (long long)x->shape[x->rank - 1], TNI_SHAPE(x)), false;
}

/* A random kernel reads the clock, and gets the seed and its number among the random calls of this step. */
TNI_FN void tni_random_call(tn_ctx *ctx, tn_call *c, int clock_in)
{
    c->in[clock_in] = tni_view(ctx->clock);
    c->n_in = clock_in + 1;
    c->i[0] = (int64_t)ctx->desc.seed;
    c->i[1] = ctx->calls++;
}

/* Runs a call of a random kernel, on flat operands, for a part of the batch: its elements are those that follow the parts of
   the processes of lower rank (>>comm), so that random numbers do not depend on the number of processes. Kernels begin at a
   multiple of 64 elements; if the part does not, the elements before it are computed as well, and left out. */
TNI_FN tn_status tni_run_at_position(tn_ctx *ctx, tn_call *c)
{
    enum { EVEN = 64 };
    const int64_t n = c->out[0].shape[0], first = ctx->desc.comm ? ctx->desc.comm->rank * n : 0, before = first % EVEN;
    tn_view       y = c->out[0], x = c->in[0];
    tn_tensor    *wide[2];
    tn_call       copy = tni_call(TN_KERNEL_COPY, "");
    const bool    reads = c->kernel == TN_KERNEL_DROPOUT;
    tn_status     s = TN_OK;
    c->i[2] = first / EVEN * EVEN / 4;
    if (before == 0) return tni_run(ctx, c);
    wide[0] = tn_tensor_1d(ctx, y.dtype, before + n);
    wide[1] = reads ? tn_tensor_1d(ctx, x.dtype, before + n) : wide[0];
    if (!wide[0] || !wide[1]) return ctx->status;
    c->out[0].data = wide[0]->data;
    c->out[0].shape[0] = before + n;
    if (reads) {
        c->in[0].data = wide[1]->data;
        c->in[0].shape[0] = before + n;
        copy.in[copy.n_in++] = x;
        copy.out[copy.n_out++] = x;
        copy.out[0].data = (char *)wide[1]->data + (size_t)before * tni_dtype_size(x.dtype);
        if ((s = tni_fill(wide[1], 0)) == TN_OK) s = tni_run(ctx, &copy);
    }
    copy = tni_call(TN_KERNEL_ADD, "");
    copy.f[0] = 1;
    copy.accumulate = c->accumulate;
    c->accumulate = false;
    if (s == TN_OK) s = tni_run(ctx, c);
    copy.in[copy.n_in++] = copy.out[copy.n_out++] = y;
    copy.in[0].data = (char *)wide[0]->data + (size_t)before * tni_dtype_size(y.dtype);
    return s == TN_OK ? tni_run(ctx, &copy) : s;
}

/* Runs the call that makes y, and records it with its inputs, its numbers, and what else the backward pass needs. */
TNI_FN tn_tensor *tni_recorded(tn_ctx *ctx, const tn_call *c, tni_backward_fn backward, tn_tensor *y, tn_tensor *a,
                               tn_tensor *b, tn_tensor *d, tn_tensor *saved)
{
    if (tni_run(ctx, c) != TN_OK) return NULL;
    tni_node *n = tni_note(ctx, backward, y, a, b, d);
    if (!n) return y;
    tni_node_keep(n, c);
    n->saved[0] = saved;
    return y;
}

TNI_FN bool tni_walk_begin(tni_walk *w, const tn_view *a, const tn_view *b, const tn_view *c)
{
    const tn_view *v[3] = {a, b, c};
    memset(w, 0, sizeof *w);
    w->rank = a->rank - 1;
    w->inner = a->rank > 0 ? a->shape[a->rank - 1] : 1;
    for (int k = 0; k < 3; k++) {
        if (!v[k]) continue;
        w->views = k + 1;
        w->step[k] = a->rank > 0 ? v[k]->strides[a->rank - 1] : 0;
        for (int i = 0; i < w->rank; i++) w->strides[k][i] = v[k]->strides[i];
    }
    for (int i = 0; i < w->rank; i++) {
        w->shape[i] = a->shape[i];
        if (a->shape[i] == 0) return false;
    }
    return w->inner > 0;
}

TNI_FN bool tni_walk_next(tni_walk *w)
{
    for (int i = w->rank - 1; i >= 0; i--) {
        for (int k = 0; k < w->views; k++) w->offset[k] += w->strides[k][i];
        if (++w->at[i] < w->shape[i]) return true;
        for (int k = 0; k < w->views; k++) w->offset[k] -= w->strides[k][i] * w->shape[i];
        w->at[i] = 0;
    }
    return false;
}
