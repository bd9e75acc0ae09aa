#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- add, mul, div, scale -------------------------------- >>op-add
   y = f0 a + f1 b      da += f0 dy     db += f1 dy      each summed over the axes it was broadcast along
   y = f0 a * b         da += f0 dy * b                  db += f0 dy * a
   y = f0 a / b         da += q, q = dy / b              db -= q * y          (f0 = 1 where it is recorded) */
TNI_FN void TNI_T(add)(const tn_call *c)
{
    const TNI_REAL *a = (const TNI_REAL *)c->in[0].data, *b = c->n_in > 1 ? (const TNI_REAL *)c->in[1].data : NULL;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    tni_walk w;
    for (bool more = tni_walk_begin(&w, &c->out[0], &c->in[0], b ? &c->in[1] : NULL); more; more = tni_walk_next(&w))
        for (int64_t i = 0; i < w.inner; i++) {
            TNI_REAL *to = y + w.offset[0] + i * w.step[0];
            double    v = c->f[0] * (double)a[w.offset[1] + i * w.step[1]];
            if (b) v += c->f[1] * (double)b[w.offset[2] + i * w.step[2]];
            *to = (TNI_REAL)(c->accumulate ? (double)*to + v : v);
        }
}

static void TNI_T(product)(const tn_call *c, bool divides)
{
    const TNI_REAL *a = (const TNI_REAL *)c->in[0].data, *b = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    tni_walk w;
    for (bool more = tni_walk_begin(&w, &c->out[0], &c->in[0], &c->in[1]); more; more = tni_walk_next(&w))
        for (int64_t i = 0; i < w.inner; i++) {
            TNI_REAL *to = y + w.offset[0] + i * w.step[0];
            double    v = c->f[0] * (double)a[w.offset[1] + i * w.step[1]], by = (double)b[w.offset[2] + i * w.step[2]];
            v = divides ? v / by : v * by;
            *to = (TNI_REAL)(c->accumulate ? (double)*to + v : v);
        }
}

TNI_FN void TNI_T(mul)(const tn_call *c) { TNI_T(product)(c, false); }
TNI_FN void TNI_T(div)(const tn_call *c) { TNI_T(product)(c, true); }

#ifdef TNI_ONCE
/* Broadcasts the shape so far with that of t; false if they do not fit. */
static bool tni_broadcast_more(const tn_tensor *t, int *rank, int64_t *shape)
{
    int more = t->rank - *rank;
    for (int i = *rank - 1; more > 0 && i >= 0; i--) shape[i + more] = shape[i];
    for (int i = 0; i < more; i++) shape[i] = 1;
    if (more > 0) *rank = t->rank;
    for (int i = 0; i < t->rank; i++) {
        int64_t *at = &shape[*rank - t->rank + i];
        if (*at != t->shape[i] && *at != 1 && t->shape[i] != 1) return false;
        if (*at == 1) *at = t->shape[i];
    }
    return true;
}

static bool tni_broadcast(tn_ctx *ctx, const char *op, const tn_tensor *a, const tn_tensor *b, int *rank, int64_t *shape)
{
    if (!tni_is_real(ctx, a, op, "a") || !tni_is_real(ctx, b, op, "b")) return false;
    *rank = 0;
    if (tni_broadcast_more(a, rank, shape) && tni_broadcast_more(b, rank, shape)) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: a is %s and b is %s, which do not broadcast", op, TNI_SHAPE(a), TNI_SHAPE(b)),
           false;
}

/* The gradient of t, += factor * dy summed over the axes along which t was broadcast. */
TNI_FN void tni_grad_sum(tn_ctx *ctx, tn_tensor *t, const tn_tensor *dy, double factor)
{
    bool       add;
    tn_tensor *g = tni_grad(t, &add);
    if (!g) return;
    bool    same = tni_same_shape(t, dy);
    tn_call c = tni_call(same ? TN_KERNEL_ADD : TN_KERNEL_SUM, "t:t", dy, g);
    if (!same) c.out[0] = tni_pad_view(c.out[0], dy->rank);
    c.f[0] = factor;
    c.accumulate = add;
    tni_run(ctx, &c);
}

TNI_FN void tni_add_backward(tn_ctx *ctx, const tni_node *n)
{
    for (int k = 0; k < 2 && n->in[k]; k++)
        if (!tni_wants_grad(n->in[k]) || n->f[k] != 1 || !tni_grad_pass(n, n->in[k]))
            tni_grad_sum(ctx, n->in[k], n->out->grad, n->f[k]);
}

/* The gradient of t += factor dy * other, or factor dy / other; where t was broadcast, a second pass sums the result. */
TNI_FN void tni_mul_grad(tn_ctx *ctx, tn_kernel kernel, tn_tensor *t, const tn_tensor *other, const tn_tensor *dy,
                         double factor)
{
    tn_tensor *product = NULL;
    tn_call    c = tni_call(kernel, "t", dy);
    if (!tni_wants_grad(t)) return;
    c.in[c.n_in++] = tni_expand_view(tni_view(other), dy->rank, dy->shape);
    c.f[0] = factor;
    if (tni_same_shape(t, dy)) {
        tni_run_grad(ctx, &c, t, 't');
        return;
    }
    product = tni_like(ctx, dy);
    if (!product) return;
    tni_out(&c, product);
    if (tni_run(ctx, &c) == TN_OK) tni_grad_sum(ctx, t, product, 1);
}

static void tni_mul_backward(tn_ctx *ctx, const tni_node *n)
{
    tni_mul_grad(ctx, TN_KERNEL_MUL, n->in[0], n->in[1], n->out->grad, 1);
    tni_mul_grad(ctx, TN_KERNEL_MUL, n->in[1], n->in[0], n->out->grad, 1);
}

/* da += dy / b, db += -(dy * y) / b: y is finite where dy / b may overflow, and neither needs b^2. */
static void tni_div_backward(tn_ctx *ctx, const tni_node *n)
{
    const tn_tensor *dy = n->out->grad;
    tni_mul_grad(ctx, TN_KERNEL_DIV, n->in[0], n->in[1], dy, 1);
    if (!tni_wants_grad(n->in[1])) return;
    tn_tensor *product = tni_like(ctx, dy);
    if (!product) return;
    tn_call c = tni_call(TN_KERNEL_MUL, "tt:t", dy, n->out, product);
    c.f[0] = 1;
    if (tni_run(ctx, &c) == TN_OK) tni_mul_grad(ctx, TN_KERNEL_DIV, n->in[1], n->in[1], product, -1);
}

static tn_tensor *tni_binary(tn_ctx *ctx, const char *op, tn_kernel kernel, tn_tensor *a, tn_tensor *b, double f0, double f1)
{
    int     rank;
    int64_t shape[TN_MAX_RANK];
    if (!tni_broadcast(ctx, op, a, b, &rank, shape)) return NULL;
    tn_tensor *y = tni_made(ctx, rank, shape);
    if (!y) return NULL;
    tn_call c = tni_call(kernel, ":t", y);
    c.in[c.n_in++] = tni_expand_view(tni_view(a), rank, shape);
    c.in[c.n_in++] = tni_expand_view(tni_view(b), rank, shape);
    c.f[0] = f0;
    c.f[1] = f1;
    return tni_recorded(ctx, &c, kernel == TN_KERNEL_ADD ? tni_add_backward : kernel == TN_KERNEL_MUL ? tni_mul_backward
                                 : tni_div_backward, y, a, b, NULL, NULL);
}

tn_tensor *tn_add(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return tni_binary(ctx, "add", TN_KERNEL_ADD, a, b, 1, 1); }
tn_tensor *tn_sub(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return tni_binary(ctx, "sub", TN_KERNEL_ADD, a, b, 1, -1); }
tn_tensor *tn_mul(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return tni_binary(ctx, "mul", TN_KERNEL_MUL, a, b, 1, 0); }
tn_tensor *tn_div(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return tni_binary(ctx, "div", TN_KERNEL_DIV, a, b, 1, 0); }

tn_tensor *tn_scale(tn_ctx *ctx, tn_tensor *a, double factor)
{
    if (!tni_is_real(ctx, a, "scale", "a") || !tni_holds(ctx, ctx->desc.dtype, "scale", "factor", factor)) return NULL;
    tn_tensor *y = tni_made(ctx, a->rank, a->shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_ADD, "t:t", a, y);
    c.f[0] = factor;
    return tni_recorded(ctx, &c, tni_add_backward, y, a, NULL, NULL, NULL);
}
#endif

/* ---- where ------------------------------------------------ >>op-where
   y = a where the condition is not 0, else b       da += dy where a was chosen, db += dy elsewhere
   One of a and b may be absent and is then zero, so that the backward pass can use the same kernel. */
static void TNI_T(where_side)(const tn_call *c, bool chosen)
{
    const int32_t  *condition = (const int32_t *)c->in[0].data;
    const tn_view  *side = &c->in[chosen ? 1 : 2];
    const TNI_REAL *x = (const TNI_REAL *)side->data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    tni_walk w;
    if (!x && c->accumulate) return;
    for (bool more = tni_walk_begin(&w, &c->out[0], &c->in[0], x ? side : NULL); more; more = tni_walk_next(&w))
        for (int64_t i = 0; i < w.inner; i++) {
            TNI_REAL *to = y + w.offset[0] + i * w.step[0], v = x ? x[w.offset[2] + i * w.step[2]] : 0;
            if ((condition[w.offset[1] + i * w.step[1]] != 0) == chosen) *to = c->accumulate ? *to + v : v;
        }
}

TNI_FN void TNI_T(where)(const tn_call *c)
{
    TNI_T(where_side)(c, true);
    TNI_T(where_side)(c, false);
}

#ifdef TNI_ONCE
/* dy where t was chosen, in the shape of dy or summed to that of t */
static void tni_where_grad(tn_ctx *ctx, const tni_node *n, int side)
{
    tn_tensor       *t = n->in[side];
    const tn_tensor *dy = n->out->grad;
    tn_call          c = tni_call(TN_KERNEL_WHERE, "");
    if (!tni_wants_grad(t)) return;
    c.in[0] = tni_expand_view(tni_view(n->saved[0]), dy->rank, dy->shape);
    c.in[1 + side] = tni_view(dy);
    c.in[2 - side].dtype = dy->dtype;                    /* absent */
    c.n_in = 3;
    if (tni_same_shape(t, dy)) {
        tni_run_grad(ctx, &c, t, 't');
        return;
    }
    tn_tensor *part = tni_like(ctx, dy);
    if (!part) return;
    tni_out(&c, part);
    if (tni_run(ctx, &c) == TN_OK) tni_grad_sum(ctx, t, part, 1);
}

static void tni_where_backward(tn_ctx *ctx, const tni_node *n)
{
    tni_where_grad(ctx, n, 0);
    tni_where_grad(ctx, n, 1);
}

tn_tensor *tn_where(tn_ctx *ctx, tn_tensor *condition, tn_tensor *a, tn_tensor *b)
{
    int     rank = 0;
    int64_t shape[TN_MAX_RANK];
    if (!tni_is_ids(ctx, condition, "where", "condition")) return NULL;
    if (!tni_is_real(ctx, a, "where", "a") || !tni_is_real(ctx, b, "where", "b")) return NULL;
    if (!tni_broadcast_more(condition, &rank, shape) || !tni_broadcast_more(a, &rank, shape)
        || !tni_broadcast_more(b, &rank, shape))
        return tni_fail(ctx, TN_ERR_SHAPE, "where: condition is %s, a is %s and b is %s, which do not broadcast",
                        TNI_SHAPE(condition), TNI_SHAPE(a), TNI_SHAPE(b)), (tn_tensor *)NULL;
    tn_tensor *y = tni_made(ctx, rank, shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_WHERE, ":t", y);
    c.in[c.n_in++] = tni_expand_view(tni_view(condition), rank, shape);
    c.in[c.n_in++] = tni_expand_view(tni_view(a), rank, shape);
    c.in[c.n_in++] = tni_expand_view(tni_view(b), rank, shape);
    return tni_recorded(ctx, &c, tni_where_backward, y, a, b, NULL, condition);
}
#endif

/* ---- sum ------------------------------------------------- >>op-sum
   y = f0 * sum of x over the axes where y has extent 1      dx += f0 dy, broadcast */
TNI_FN void TNI_T(sum)(const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    tn_view  part = *x, at = *y, base = *x;        /* the part of x that is summed into one element; its start */
    tni_walk outer, inner;
    for (int k = 0; k < x->rank; k++) {
        bool summed = y->shape[k] == 1 && x->shape[k] != 1;
        if (!summed) part.shape[k] = 1;
        else at.strides[k] = base.strides[k] = 0;
    }
    for (bool more = tni_walk_begin(&outer, &at, &base, NULL); more; more = tni_walk_next(&outer))
        for (int64_t i = 0; i < outer.inner; i++) {
            const TNI_REAL *from = (const TNI_REAL *)x->data + outer.offset[1] + i * outer.step[1];
            TNI_REAL       *to = (TNI_REAL *)y->data + outer.offset[0] + i * outer.step[0];
            double sum = 0;
            for (bool deeper = tni_walk_begin(&inner, &part, NULL, NULL); deeper; deeper = tni_walk_next(&inner))
                for (int64_t j = 0; j < inner.inner; j++) sum += (double)from[inner.offset[0] + j * inner.step[0]];
            *to = (TNI_REAL)(c->f[0] * sum + (c->accumulate ? (double)*to : 0));
        }
}

#ifdef TNI_ONCE
static void tni_sum_backward(tn_ctx *ctx, const tni_node *n)
{
    const tn_tensor *x = n->in[0], *dy = n->out->grad;
    tn_call c = tni_call(TN_KERNEL_ADD, "");
    tn_view v = tni_view(dy);
    if (n->i[0] >= 0) {                       /* insert the axis that was summed */
        int axis = (int)n->i[0];
        v.rank = x->rank;
        for (int k = x->rank - 1; k > axis; k--) { v.shape[k] = v.shape[k - 1]; v.strides[k] = v.strides[k - 1]; }
        v.shape[axis] = 1;
        v.strides[axis] = 0;
    }
    c.in[c.n_in++] = tni_expand_view(v, x->rank, x->shape);
    c.f[0] = n->f[0];
    tni_run_grad(ctx, &c, n->in[0], 't');
}

/* Sums over one axis, or over all axes (axis -1), which gives rank 0. */
static tn_tensor *tni_sum(tn_ctx *ctx, tn_tensor *a, int axis, double factor)
{
    int64_t shape[TN_MAX_RANK] = {0};
    int     rank = 0;
    for (int i = 0; axis >= 0 && i < a->rank; i++)
        if (i != axis) shape[rank++] = a->shape[i];
    tn_tensor *y = tni_made(ctx, rank, shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_SUM, "t:t", a, y);
    c.out[0].rank = a->rank;
    for (int i = 0; i < a->rank; i++) {
        bool gone = axis < 0 || i == axis;
        int  from = axis >= 0 && i > axis ? i - 1 : i;
        c.out[0].shape[i] = gone ? 1 : a->shape[i];
        c.out[0].strides[i] = gone ? 0 : y->strides[from];
    }
    c.f[0] = factor;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    tni_node *n = tni_note(ctx, tni_sum_backward, y, a, NULL, NULL);
    if (n) { n->f[0] = factor; n->i[0] = axis; }
    return y;
}

tn_tensor *tn_sum(tn_ctx *ctx, tn_tensor *a)
{
    return tni_is_real(ctx, a, "sum", "a") ? tni_sum(ctx, a, -1, 1) : NULL;
}

tn_tensor *tn_sum_axis(tn_ctx *ctx, tn_tensor *a, int axis)
{
    return tni_is_real(ctx, a, "sum_axis", "a") && tni_axis(a, &axis, "sum_axis", "a") ? tni_sum(ctx, a, axis, 1) : NULL;
}

tn_tensor *tn_mean(tn_ctx *ctx, tn_tensor *a)
{
    if (!tni_is_real(ctx, a, "mean", "a")) return NULL;
    if (tn_tensor_count(a) == 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "mean: a is %s, expected at least one element", TNI_SHAPE(a)), (tn_tensor *)NULL;
    return tni_sum(ctx, a, -1, 1.0 / (double)tn_tensor_count(a));
}

/* mean (a-b)^2 */
tn_tensor *tn_mse(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    if (!tni_is_real(ctx, a, "mse", "a") || !tni_is_real(ctx, b, "mse", "b")) return NULL;
    if (!tni_same_shape(a, b))
        return tni_fail(ctx, TN_ERR_SHAPE, "mse: b is %s, expected %s as a", TNI_SHAPE(b), TNI_SHAPE(a)), (tn_tensor *)NULL;
    tn_tensor *d = tn_sub(ctx, a, b);
    d = d ? tn_mul(ctx, d, d) : NULL;
    return d ? tn_mean(ctx, d) : NULL;
}
#endif

#define TNI_AGAIN "ops/elementwise.c"
#include "ops/again.h"
