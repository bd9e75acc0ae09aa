#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- argmax, accuracy -------------------------------------- >>op-argmax
   The first index of the largest element; NaN counts as largest, as in NumPy. No gradient. */
static int64_t TNI_T(row_argmax)(const TNI_REAL *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t j = 1; j < n && x[best] == x[best]; j++)
        if (x[j] > x[best] || x[j] != x[j]) best = j;
    return best;
}

TNI_FN void TNI_T(argmax)(const tn_call *c)
{
    int64_t C = c->in[0].shape[1];
    for (int64_t r = 0; r < c->in[0].shape[0]; r++)
        ((int32_t *)c->out[0].data)[r] = (int32_t)TNI_T(row_argmax)((const TNI_REAL *)c->in[0].data + r * C, C);
}

TNI_FN void TNI_T(accuracy)(const tn_call *c)
{
    int64_t right = 0, R = c->in[0].shape[0], C = c->in[0].shape[1];
    for (int64_t r = 0; r < R; r++)
        if (TNI_T(row_argmax)((const TNI_REAL *)c->in[0].data + r * C, C) == ((const int32_t *)c->in[1].data)[r]) right++;
    *(TNI_REAL *)c->out[0].data = (TNI_REAL)((double)right / (double)R);
}

#ifdef TNI_ONCE
tn_tensor *tn_argmax(tn_ctx *ctx, tn_tensor *x)
{
    if (!(x = tni_contiguous(ctx, x, "argmax", "x"))) return NULL;
    if (x->rank < 1 || x->shape[x->rank - 1] == 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "argmax: x is %s, expected a last extent of at least 1", TNI_SHAPE(x)),
               (tn_tensor *)NULL;
    tn_tensor *y = tn_tensor_nd(ctx, TN_I32, x->rank - 1, x->shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_ARGMAX, "r:f", x, y);
    return tni_run(ctx, &c) == TN_OK ? y : NULL;
}

tn_tensor *tn_accuracy(tn_ctx *ctx, tn_tensor *z, tn_tensor *labels)
{
    if (!(z = tni_contiguous(ctx, z, "accuracy", "logits")) || !tni_is_ids(ctx, labels, "accuracy", "labels")) return NULL;
    if (!tni_labels_fit(ctx, "accuracy", z, labels)) return NULL;
    if (!tn_tensor_is_contiguous(labels) && !(labels = tn_copy(ctx, labels))) return NULL;
    tn_tensor *y = tn_tensor_nd(ctx, TN_REAL, 0, NULL);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_ACCURACY, "rf:t", z, labels, y);
    return tni_run(ctx, &c) == TN_OK ? y : NULL;
}
#endif

/* ---- topk, sort ---------------------------------------------- >>op-topk
   The host selects indices; EMBED fetches the values from t as one table of single numbers. */
#ifdef TNI_ONCE
/* For each row along the axis: the indices of its first numbers, and their places in t. row: n numbers. */
static void tni_topk_rows(tni_heap *best, const double *v, int64_t outer, int64_t n, int64_t inner, double *row,
                          int32_t *ids, int32_t *places)
{
    int64_t k = best->k;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            for (int64_t j = 0; j < n; j++) row[j] = v[(o * n + j) * inner + i];
            tni_heap_select(best, row, n);
            for (int64_t j = 0; j < k; j++) {
                int64_t at = best->found[j].at;
                ids[(o * k + j) * inner + i] = (int32_t)at;
                places[(o * k + j) * inner + i] = (int32_t)((o * n + at) * inner + i);
            }
        }
}

static tn_tensor *tni_topk(tn_ctx *ctx, tn_tensor *t, int axis, int64_t k, tn_order order, tn_tensor **ids, const char *op)
{
    int64_t    shape[TN_MAX_RANK], outer = 1, inner = 1;
    tn_tensor *at = NULL, *y = NULL;
    if (ids) *ids = NULL;
    if (!(t = tni_contiguous(ctx, t, op, "t")) || !tni_axis(t, &axis, op, "t")) return NULL;
    int64_t n = t->shape[axis], count = tn_tensor_count(t);
    if (k < 0) k = n;
    if (count > INT32_MAX)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: t is %s, expected fewer than 2^31 elements", op, TNI_SHAPE(t)),
               (tn_tensor *)NULL;
    if (k > n)
        return tni_fail(ctx, TN_ERR_ARG, "%s: k is %lld, expected 0 to %lld, the extent of axis %d", op, (long long)k,
                        (long long)n, axis), (tn_tensor *)NULL;
    if ((unsigned)order > TN_ORDER_MAGNITUDE)
        return tni_fail(ctx, TN_ERR_ARG, "%s: order is %d, not a valid tn_order", op, (int)order), (tn_tensor *)NULL;
    for (int i = 0; i < t->rank; i++) {
        shape[i] = i == axis ? k : t->shape[i];
        if (i < axis) outer *= t->shape[i];
        if (i > axis) inner *= t->shape[i];
    }
    int64_t     wanted = outer * k * inner;
    tni_scratch w = tni_scratch_begin(ctx, op);
    double     *v = tni_take_f64(&w, count, 1), *row = tni_take_f64(&w, n, 1);
    tni_heap    best = tni_take_heap(&w, order, k);
    int32_t    *found = (int32_t *)tni_take(&w, 2 * wanted, sizeof *found);
    tn_tensor  *places = tn_tensor_nd(ctx, TN_I32, t->rank, shape);
    if (ids) at = tn_tensor_nd(ctx, TN_I32, t->rank, shape);
    if (!w.failed && places && (!ids || at) && tn_read(t, TN_F64, v, count) == TN_OK) {
        tni_topk_rows(&best, v, outer, n, inner, row, found, found + wanted);
        if (tn_write(places, TN_I32, found + wanted, wanted) == TN_OK
            && (!at || tn_write(at, TN_I32, found, wanted) == TN_OK))
            y = tn_gather(ctx, tn_reshape(t, 1, &count), 0, places);
    }
    tni_scratch_end(&w, TN_OK);
    if (y && ids) *ids = at;
    return y;
}

tn_tensor *tn_topk(tn_ctx *ctx, tn_tensor *t, int axis, int64_t k, tn_order order, tn_tensor **ids)
{
    if (k >= 0) return tni_topk(ctx, t, axis, k, order, ids, "topk");
    if (ids) *ids = NULL;
    if (tni_is_real(ctx, t, "topk", "t")) tni_fail(ctx, TN_ERR_ARG, "topk: k is %lld, expected 0 or more", (long long)k);
    return NULL;
}

tn_tensor *tn_sort(tn_ctx *ctx, tn_tensor *t, int axis, tn_order order, tn_tensor **ids)
{
    return tni_topk(ctx, t, axis, -1, order, ids, "sort");
}
#endif

#define TNI_AGAIN "ops/select.c"
#include "ops/again.h"
