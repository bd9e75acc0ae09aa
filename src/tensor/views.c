#include "core/inner.h"
#include "tensor/inner.h"

/* ---- queries and views -------------------------------------------------- >>tensor-views */

int64_t tn_tensor_count(const tn_tensor *t)
{
    int64_t n = 1;
    if (!tni_alive(t)) return 0;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

bool tn_tensor_is_contiguous(const tn_tensor *t)
{
    int64_t stride = 1;
    if (!tni_alive(t)) return false;
    for (int i = 0; i < t->rank; i++) if (t->shape[i] == 0) return true;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != stride) return false;
        stride *= t->shape[i];
    }
    return true;
}

/* A header over t's data. The gradient of a view is the same view of its base's gradient. */
TNI_FN tn_tensor *tni_view_of(tn_tensor *t)
{
    tn_tensor *v = tni_header(t->ctx, t->dtype, t->rank, t->shape);
    if (!v) return NULL;
    memcpy(v->strides, t->strides, sizeof v->strides);
    v->data = t->data;
    v->base = t->base ? t->base : t;
    return v;
}

TNI_FN bool tni_axis(const tn_tensor *t, int *axis, const char *op, const char *what)
{
    const int given = *axis;
    if (*axis < 0) *axis += t->rank;
    if (*axis >= 0 && *axis < t->rank) return true;
    if (t->rank == 0) tni_fail(t->ctx, TN_ERR_SHAPE, "%s: %s has rank 0, expected at least 1", op, what);
    else tni_fail(t->ctx, TN_ERR_ARG, "%s: axis is %d, expected an axis of %s", op, given, TNI_SHAPE(t));
    return false;
}

tn_tensor *tn_slice_step(tn_tensor *t, int axis, int64_t start, int64_t stop, int64_t step)
{
    if (!tni_alive(t) || !tni_axis(t, &axis, "slice", "t")) return NULL;
    int64_t n = t->shape[axis];
    if (step == 0 || start < -1 || stop < -1 || start > n || stop > n
        || (step > 0 && (start < 0 || stop < start)) || (step < 0 && (start >= n || stop > start)))
        return tni_fail(t->ctx, TN_ERR_ARG, "slice: [%lld:%lld:%lld] is outside axis %d of %s, or runs against its step",
                        (long long)start, (long long)stop, (long long)step, axis, TNI_SHAPE(t)), (tn_tensor *)NULL;
    tn_tensor *v = tni_view_of(t);
    if (!v) return NULL;
    step = step > 0 ? tni_min(step, n + 1) : tni_max(step, -n - 1);        /* a longer step also takes one element */
    v->shape[axis] = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
    v->strides[axis] *= step;
    if (v->shape[axis] > 0) v->data = (char *)v->data + start * t->strides[axis] * (int64_t)tni_dtype_size(t->dtype);
    return v;
}

tn_tensor *tn_slice(tn_tensor *t, int axis, int64_t start, int64_t stop) { return tn_slice_step(t, axis, start, stop, 1); }

tn_tensor *tn_transpose(tn_tensor *t, int a, int b)
{
    if (!tni_alive(t) || !tni_axis(t, &a, "transpose", "t") || !tni_axis(t, &b, "transpose", "t")) return NULL;
    tn_tensor *v = tni_view_of(t);
    if (!v) return NULL;
    v->shape[a] = t->shape[b];
    v->shape[b] = t->shape[a];
    v->strides[a] = t->strides[b];
    v->strides[b] = t->strides[a];
    return v;
}

/* Fills in the one extent that may be -1; false if the number of elements differs. The extents of an empty shape have
   to fit without its zeros. */
static bool tni_infer_shape(const tn_tensor *t, int rank, const int64_t *shape, int64_t *full)
{
    int64_t count = tn_tensor_count(t), known = 1;
    int     open = -1;
    bool    empty = false;
    for (int i = 0; i < rank; i++) {
        full[i] = shape[i];
        if (shape[i] == -1 && open < 0) open = i;
        else if (shape[i] < 0 || known > INT64_MAX / tni_max(shape[i], 1)) return false;
        else known *= tni_max(shape[i], 1);
        empty = empty || shape[i] == 0;
    }
    if (open < 0) return (empty ? 0 : known) == count;
    if (empty || count % known != 0) return false;
    full[open] = count / known;
    return true;
}

tn_tensor *tn_reshape(tn_tensor *t, int rank, const int64_t *shape)
{
    int64_t full[TN_MAX_RANK];
    if (!tni_alive(t)) return NULL;
    if (!tni_rank_fits(t->ctx, "reshape", rank, shape)) return NULL;
    if (!tni_infer_shape(t, rank, shape, full))
        return tni_fail(t->ctx, TN_ERR_SHAPE, "reshape: %s to %s, expected as many elements and at most one -1", TNI_SHAPE(t),
                        tni_shape_of(rank, shape).s), (tn_tensor *)NULL;
    if (!tn_tensor_is_contiguous(t))
        return tni_fail(t->ctx, TN_ERR_SHAPE, "reshape: %s is a strided view, expected a contiguous tensor: tn_copy makes one",
                        TNI_SHAPE(t)), (tn_tensor *)NULL;
    tn_tensor *v = tni_view_of(t);
    if (!v) return NULL;
    v->rank = rank;
    tni_shape_to(rank, full, v->shape, v->strides);
    return v;
}

tn_tensor *tn_reshape_2d(tn_tensor *t, int64_t n, int64_t m)
{
    return tn_reshape(t, 2, TNI_DIMS(n, m));
}

/* ---- the first k numbers in an order ------------------------------------ >>tensor-select
   A heap holds the first k of all numbers that it was offered, the last of them on top. Equal ones are ordered by `at`. */

TNI_FN tni_heap tni_take_heap(tni_scratch *w, tn_order order, int64_t k)
{
    tni_heap h = {order, 0, k, (tni_found *)tni_take(w, k, sizeof *h.found)};
    return h;
}

static bool tni_found_before(tn_order order, tni_found i, tni_found j)
{
    double a = i.value, b = j.value;
    if ((a != a) != (b != b)) return (order == TN_ORDER_SMALLEST) != (a != a);
    if (order == TN_ORDER_MAGNITUDE) { a = fabs(a); b = fabs(b); }
    if (a < b || a > b) return (order == TN_ORDER_SMALLEST) == (a < b);
    return i.at < j.at;
}

/* Puts `moved` in place of the top. */
static void tni_heap_sink(tni_heap *h, tni_found moved)
{
    int64_t at = 0, child;
    for (; (child = 2 * at + 1) < h->held; at = child) {
        if (child + 1 < h->held && tni_found_before(h->order, h->found[child], h->found[child + 1])) child++;
        if (tni_found_before(h->order, h->found[child], moved)) break;
        h->found[at] = h->found[child];
    }
    h->found[at] = moved;
}

TNI_FN void tni_heap_offer(tni_heap *h, double value, int64_t at)
{
    tni_found x;
    x.value = value;
    x.at = at;
    if (h->held < h->k) {
        int64_t i;
        for (i = h->held++; i > 0 && tni_found_before(h->order, h->found[(i - 1) / 2], x); i = (i - 1) / 2)
            h->found[i] = h->found[(i - 1) / 2];
        h->found[i] = x;
    } else if (h->k > 0 && tni_found_before(h->order, x, h->found[0])) tni_heap_sink(h, x);
}

/* Brings found[0..held) into the order. It is no heap then. */
TNI_FN void tni_heap_sort(tni_heap *h)
{
    const int64_t all = h->held;
    while (h->held > 1) {
        tni_found last = h->found[--h->held];
        h->found[h->held] = h->found[0];
        tni_heap_sink(h, last);
    }
    h->held = all;
}

/* The first k of v[0..n). */
TNI_FN void tni_heap_select(tni_heap *h, const double *v, int64_t n)
{
    h->held = 0;
    for (int64_t i = 0; i < n; i++) tni_heap_offer(h, v[i], i);
    tni_heap_sort(h);
}
