#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- concat, stack ---------------------------------------- >>op-concat
   y = the parts one after the other along an axis; in a stack, each part is one index of a new axis
   dpart += its slice of dy          no kernel of its own: COPY into slices of y, ADD from slices of dy */
#ifdef TNI_ONCE
/* The n indices of an axis of t from `start` on; for a stack n is 1, and the axis is removed. */
static tn_view tni_part_view(const tn_tensor *t, int axis, int64_t start, int64_t n, bool stacked)
{
    tn_view v = tni_view(t);
    if (tn_tensor_count(t) > 0) v.data = (char *)v.data + start * v.strides[axis] * (int64_t)tni_dtype_size(v.dtype);
    v.shape[axis] = n;
    if (!stacked) return v;
    for (int i = axis; i + 1 < v.rank; i++) { v.shape[i] = v.shape[i + 1]; v.strides[i] = v.strides[i + 1]; }
    v.rank--;
    return v;
}

static void tni_concat_backward(tn_ctx *ctx, const tni_node *n)
{
    const int  axis = (int)n->i[0];
    const bool stacked = n->i[1] != 0;
    int64_t    start = 0;
    for (int64_t k = 0; k < n->n_list; k++) {
        const int64_t part = stacked ? 1 : n->list[k]->shape[axis];
        tn_call       c = tni_call(TN_KERNEL_ADD, "");
        c.in[c.n_in++] = tni_part_view(n->out->grad, axis, start, part, stacked);
        c.f[0] = 1;
        tni_run_grad(ctx, &c, n->list[k], 't');
        start += part;
    }
}

/* Do the shapes differ in the joined axis only? `axis` is an axis of the result. */
static bool tni_concat_fits(tn_ctx *ctx, const char *op, int64_t n, tn_tensor *const *t, int axis, bool stacked)
{
    int64_t all = 0;
    int     i;
    for (int64_t k = 0; k < n; k++) {
        for (i = 0; i < t[0]->rank && t[k]->rank == t[0]->rank; i++)
            if (t[k]->shape[i] != t[0]->shape[i] && (stacked || i != axis)) break;
        if (t[k]->rank != t[0]->rank || i < t[0]->rank)
            return tni_fail(ctx, TN_ERR_SHAPE, stacked ? "%s: tensor 0 is %s but tensor %lld is %s, expected equal shapes"
                            : "%s: tensor 0 is %s but tensor %lld is %s, expected equal extents except along axis %d", op,
                            TNI_SHAPE(t[0]), (long long)k, TNI_SHAPE(t[k]), axis), false;
        if (!stacked && t[k]->shape[axis] > INT64_MAX - all)
            return tni_fail(ctx, TN_ERR_SHAPE, "%s: the extents of axis %d sum to 2^63 or more, expected less", op, axis),
                   false;
        all += stacked ? 1 : t[k]->shape[axis];
    }
    return true;
}

static bool tni_concat_operands(tn_ctx *ctx, const char *op, int64_t n, tn_tensor *const *t)
{
    char what[32];
    if (!ctx) return false;
    if (n < 1 || !t)
        return tni_fail(ctx, TN_ERR_ARG, t ? "%s: the number of tensors is %lld, expected at least 1"
                        : "%s: the array of %lld tensors is NULL", op, (long long)n), false;
    for (int64_t k = 0; k < n; k++) {
        tni_print(what, sizeof what, "tensor %lld", (long long)k);
        if (!tni_usable(ctx, t[k], op, what)) return false;
        if (t[0]->dtype == TN_I32 ? !tni_is_ids(ctx, t[k], op, what) : !tni_is_real(ctx, t[k], op, what)) return false;
    }
    return true;
}

/* Records the op with a list of its inputs. */
static bool tni_concat_note(tn_ctx *ctx, tn_tensor *y, int64_t n, tn_tensor *const *t, int axis, bool stacked)
{
    int64_t k;
    for (k = 0; k < n && !tni_wants_grad(t[k]); k++) {}
    if (!tni_recording(ctx) || k == n) return true;
    tn_tensor **list = tni_arena_list(ctx, n);
    tni_node   *node = list ? tni_note_all(ctx, tni_concat_backward, y, NULL, NULL, NULL) : NULL;
    if (!node) return false;
    memcpy(list, t, (size_t)n * sizeof *list);
    node->list = list;
    node->n_list = n;
    node->i[0] = axis;
    node->i[1] = stacked;
    return true;
}

static tn_tensor *tni_concat(tn_ctx *ctx, const char *op, int64_t n, tn_tensor *const *t, int axis, bool stacked)
{
    int64_t   shape[TN_MAX_RANK] = {0}, start = 0;
    const int given = axis;
    if (!tni_concat_operands(ctx, op, n, t)) return NULL;
    tn_dtype dtype = t[0]->dtype;
    int      rank = t[0]->rank + stacked;
    if (axis < 0) axis += rank;
    if (rank > TN_MAX_RANK)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: tensors have rank %d, expected at most %d", op, t[0]->rank, TN_MAX_RANK - 1),
               (tn_tensor *)NULL;
    if (rank == 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: tensor 0 has rank 0, expected at least 1", op), (tn_tensor *)NULL;
    if (axis < 0 || axis >= rank)
        return tni_fail(ctx, TN_ERR_ARG, "%s: axis is %d, expected an axis of a result of rank %d", op, given, rank),
               (tn_tensor *)NULL;
    if (!tni_concat_fits(ctx, op, n, t, axis, stacked)) return NULL;
    for (int i = 0; i < rank; i++) shape[i] = i == axis ? 0 : t[0]->shape[stacked && i > axis ? i - 1 : i];
    for (int64_t k = 0; k < n; k++) {
        shape[axis] += stacked ? 1 : t[k]->shape[axis];
        if (t[k]->dtype == TN_BF16) dtype = TN_BF16;
    }
    tn_tensor *y = tni_made_of(ctx, dtype, rank, shape);
    for (int64_t k = 0; y && k < n; k++) {
        const int64_t part = stacked ? 1 : t[k]->shape[axis];
        tn_call       c = tni_call(TN_KERNEL_COPY, "t", t[k]);
        c.out[c.n_out++] = tni_part_view(y, axis, start, part, stacked);
        if (tni_run(ctx, &c) != TN_OK) return NULL;
        start += part;
    }
    return y && tni_concat_note(ctx, y, n, t, axis, stacked) ? y : NULL;
}

tn_tensor *tn_concat(tn_ctx *ctx, int64_t n, tn_tensor *const *tensors, int axis)
{
    return tni_concat(ctx, "concat", n, tensors, axis, false);
}

tn_tensor *tn_stack(tn_ctx *ctx, int64_t n, tn_tensor *const *tensors, int axis)
{
    return tni_concat(ctx, "stack", n, tensors, axis, true);
}
#endif

/* ---- embed ------------------------------------------------ >>op-embed
   y[r] = table[ids[r]]         dtable[ids[r]] += dy[r], in the order of r         an invalid id: zeros and a fault */
#ifdef TNI_FIRST
TNI_FN void tni_fault(const tn_view *word, int32_t code, int64_t which, int64_t value, int32_t step)
{
    int32_t *f = (int32_t *)word->data;
    if (!f || f[0] != 0) return;                     /* the first fault is kept */
    f[0] = code;
    f[1] = (int32_t)which;
    f[2] = (int32_t)value;
    f[3] = step;
}
#endif

TNI_FN void TNI_T(embed)(const tn_call *c)
{
    const TNI_REAL *table = (const TNI_REAL *)c->in[0].data;
    const int32_t  *ids = (const int32_t *)c->in[1].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         R = c->out[0].shape[0], d = c->out[0].shape[1];
    for (int64_t r = 0; r < R; r++, y += d) {
        bool good = ids[r] >= 0 && ids[r] < c->in[0].shape[0];
        if (good) memcpy(y, table + ids[r] * d, sizeof *y * (size_t)d);
        else memset(y, 0, sizeof *y * (size_t)d);
        if (!good) tni_fault(&c->out[1], 1, r, ids[r], (int32_t)c->i[0]);
    }
}

TNI_FN void TNI_T(embed_backward)(const tn_call *c)
{
    const int32_t  *ids = (const int32_t *)c->in[0].data;
    const TNI_REAL *dy = (const TNI_REAL *)c->in[1].data;
    int64_t         R = c->in[1].shape[0], d = c->in[1].shape[1];
    for (int64_t r = 0; r < R; r++, dy += d) {
        TNI_REAL *to = (TNI_REAL *)c->out[0].data;
        if (ids[r] < 0 || ids[r] >= c->out[0].shape[0]) continue;
        to += ids[r] * d;
        for (int64_t j = 0; j < d; j++) to[j] = (TNI_REAL)(to[j] + dy[j]);
    }
}

#ifdef TNI_ONCE
static void tni_embed_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_tensor *g = tni_grad_to_add(n->in[0]);
    if (!g) return;
    tn_call c = tni_call(TN_KERNEL_EMBED_BACKWARD, "fr:t", n->saved[0], n->out->grad, g);
    tni_run(ctx, &c);
}

tn_tensor *tn_embed(tn_ctx *ctx, tn_tensor *table, tn_tensor *ids)
{
    int64_t shape[TN_MAX_RANK];
    if (!(table = tni_contiguous(ctx, table, "embed", "table")) || !tni_is_ids(ctx, ids, "embed", "ids")) return NULL;
    if (table->rank != 2)
        return tni_fail(ctx, TN_ERR_SHAPE, "embed: table is %s, expected rank 2", TNI_SHAPE(table)), (tn_tensor *)NULL;
    if (ids->rank >= TN_MAX_RANK)
        return tni_fail(ctx, TN_ERR_SHAPE, "embed: ids have rank %d, expected at most %d", ids->rank, TN_MAX_RANK - 1),
               (tn_tensor *)NULL;
    if (!tn_tensor_is_contiguous(ids) && !(ids = tn_copy(ctx, ids))) return NULL;
    memcpy(shape, ids->shape, sizeof shape);
    shape[ids->rank] = table->shape[1];
    tn_tensor *y = tni_made(ctx, ids->rank + 1, shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_EMBED, "tf:rt", table, ids, y, ctx->fault);
    return tni_recorded(ctx, &c, tni_embed_backward, y, table, NULL, NULL, ids);
}
#endif

/* ---- gather ------------------------------------------------ >>op-gather
   y[p,i,s] = x[p,ids[i],s]       dx[p,ids[i],s] += dy[p,i,s], in the order of i
   The kernel is that of embed. If the axis is not the first one, a copy is used in which it is. */
#ifdef TNI_ONCE
/* A contiguous tensor as [outer,n,inner], or in the order [n,outer,inner]. */
static tn_view tni_axis_view(const tn_tensor *t, int64_t outer, int64_t n, int64_t inner, bool first)
{
    tn_view v = tni_view(t);
    v.rank = 3;
    v.shape[first ? 1 : 0] = outer;
    v.shape[first ? 0 : 1] = n;
    v.shape[2] = inner;
    v.strides[first ? 1 : 0] = n * inner;
    v.strides[first ? 0 : 1] = inner;
    v.strides[2] = 1;
    return v;
}

/* A contiguous tensor as a table of n rows. */
static tn_view tni_table_view(const tn_tensor *t, int64_t n, int64_t columns)
{
    tn_view v = tni_view(t);
    tni_view_shape(&v, 2, TNI_DIMS(n, columns));
    return v;
}

/* t [outer,n,inner] as a contiguous [n,outer,inner]; t itself if that is the same. NULL: out of memory. */
static tn_tensor *tni_axis_first(tn_ctx *ctx, tn_tensor *t, int64_t outer, int64_t n, int64_t inner)
{
    if (outer == 1) return t;
    tn_tensor *f = tn_tensor_3d(ctx, t->dtype, n, outer, inner);
    if (!f) return NULL;
    tn_call c = tni_call(TN_KERNEL_COPY, ":t", f);
    c.in[c.n_in++] = tni_axis_view(t, outer, n, inner, true);
    return tni_run(ctx, &c) == TN_OK ? f : NULL;
}

static void tni_gather_backward(tn_ctx *ctx, const tni_node *node)
{
    const int64_t outer = node->i[0], v = node->i[1], inner = node->i[2], n = tn_tensor_count(node->saved[0]);
    tn_call       c = tni_call(TN_KERNEL_EMBED_BACKWARD, "");
    if (!tni_wants_grad(node->in[0])) return;
    tn_tensor *dy = tni_axis_first(ctx, node->out->grad, outer, n, inner);
    tn_tensor *dx = outer == 1 ? tni_grad_to_add(node->in[0]) : tn_tensor_3d(ctx, TN_REAL, v, outer, inner);
    if (!dy || !dx || (outer > 1 && tni_fill(dx, 0) != TN_OK)) return;
    tni_in_flat(&c, node->saved[0]);
    c.in[c.n_in++] = tni_table_view(dy, n, outer * inner);
    c.out[c.n_out++] = tni_table_view(dx, v, outer * inner);
    if (tni_run(ctx, &c) != TN_OK || outer == 1) return;
    tn_call back = tni_call(TN_KERNEL_ADD, "");
    back.in[back.n_in++] = tni_axis_view(dx, v, outer, inner, true);
    back.f[0] = 1;
    back.out[back.n_out++] = tni_axis_view(tni_grad(node->in[0], &back.accumulate), outer, v, inner, false);
    if (back.out[0].data) tni_run(ctx, &back);
}

tn_tensor *tn_gather(tn_ctx *ctx, tn_tensor *x, int axis, tn_tensor *ids)
{
    int64_t shape[TN_MAX_RANK], outer = 1, inner = 1;
    if (!(x = tni_contiguous(ctx, x, "gather", "x")) || !tni_is_ids(ctx, ids, "gather", "ids")) return NULL;
    if (!tni_axis(x, &axis, "gather", "x")) return NULL;
    int rank = x->rank - 1 + ids->rank;
    if (rank > TN_MAX_RANK)
        return tni_fail(ctx, TN_ERR_SHAPE, "gather: the result of x %s and ids %s has rank %d, expected at most %d",
                        TNI_SHAPE(x), TNI_SHAPE(ids), rank, TN_MAX_RANK), (tn_tensor *)NULL;
    if (!tn_tensor_is_contiguous(ids) && !(ids = tn_copy(ctx, ids))) return NULL;
    for (int i = 0; i < axis; i++) outer *= shape[i] = x->shape[i];
    for (int i = 0; i < ids->rank; i++) shape[axis + i] = ids->shape[i];
    for (int i = axis + 1; i < x->rank; i++) inner *= shape[ids->rank + i - 1] = x->shape[i];
    int64_t    v = x->shape[axis], n = tn_tensor_count(ids);
    tn_tensor *y = tni_made_of(ctx, x->dtype, rank, shape);
    tn_tensor *table = y ? tni_axis_first(ctx, x, outer, v, inner) : NULL;
    tn_tensor *rows = !table || outer == 1 ? y : tn_tensor_3d(ctx, y->dtype, n, outer, inner);
    if (!table || !rows) return NULL;
    tn_call c = tni_call(TN_KERNEL_EMBED, "");
    c.i[0] = 1;
    c.in[c.n_in++] = tni_table_view(table, v, outer * inner);
    tni_in_flat(&c, ids);
    c.out[c.n_out++] = tni_table_view(rows, n, outer * inner);
    tni_out(&c, ctx->fault);
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    if (rows != y) {
        c = tni_call(TN_KERNEL_COPY, "");
        c.in[c.n_in++] = tni_axis_view(rows, n, outer, inner, true);
        c.out[c.n_out++] = tni_axis_view(y, outer, n, inner, false);
        if (tni_run(ctx, &c) != TN_OK) return NULL;
    }
    tni_node *node = tni_note(ctx, tni_gather_backward, y, x, NULL, NULL);
    if (node) { node->saved[0] = ids; node->i[0] = outer; node->i[1] = v; node->i[2] = inner; }
    return y;
}
#endif

#define TNI_AGAIN "ops/index.c"
#include "ops/again.h"
