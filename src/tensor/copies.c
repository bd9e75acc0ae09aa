#include "core/inner.h"
#include "tensor/inner.h"

/* ---- write and read ----------------------------------------------------- >>tensor-copies
   Contiguous tensors of the same dtype are copied at once, others are converted in small pieces on the stack, so
   that neither allocates. Strided views are first copied to a contiguous tensor by a kernel. */

TNI_FN double tni_load(const void *p, tn_dtype dtype, int64_t i)
{
    if (dtype == TN_F64) return ((const double *)p)[i];
    if (dtype == TN_I32) return ((const int32_t *)p)[i];
    if (dtype == TN_BF16) return (double)tni_bf16_value(((const uint16_t *)p)[i]);
    return (double)((const float *)p)[i];
}

static int32_t tni_i32_of(double v)                     /* towards zero, saturated; NaN becomes 0 */
{
    if (v != v) return 0;
    return v >= 2147483647.0 ? INT32_MAX : v <= -2147483648.0 ? INT32_MIN : (int32_t)v;
}

TNI_FN void tni_store(void *p, tn_dtype dtype, int64_t i, double v)
{
    if (dtype == TN_F64) ((double *)p)[i] = v;
    else if (dtype == TN_I32) ((int32_t *)p)[i] = tni_i32_of(v);
    else if (dtype == TN_BF16) ((uint16_t *)p)[i] = tni_bf16_of(v);
    else ((float *)p)[i] = (float)v;
}

/* The checks that reading and writing share; replaces TN_REAL by the context's dtype. */
static tn_status tni_host_check(const tn_tensor *t, tn_dtype *as, const void *host, int64_t count, const char *op)
{
    if (!tni_alive(t)) return TN_ERR_ARG;
    if (!tni_dtype_known(t->ctx, op, "as", as)) return TN_ERR_DTYPE;
    if (count != tn_tensor_count(t))
        return tni_fail(t->ctx, TN_ERR_SHAPE, "%s: count is %lld, expected the elements of %s", op, (long long)count,
                        TNI_SHAPE(t));
    if (!host && count > 0) return tni_fail(t->ctx, TN_ERR_ARG, "%s: host memory is NULL", op);
    if (t->ctx->capture)
        return tni_fail(t->ctx, TN_ERR_ARG, "graph: %s of %s during a capture, expected kernels only", op, TNI_SHAPE(t));
    return tni_settle(t);
}

/* Converts n elements. I32 takes whole numbers in its range only; `first` is the index of the first in the tensor. */
static tn_status tni_recode(tn_ctx *ctx, tn_dtype to, void *dst, tn_dtype from, const void *src, int64_t n, int64_t first,
                            const char *op)
{
    if (to == TN_F64 && from == TN_F32) {                    /* the common pairs, without a branch per element */
        for (int64_t i = 0; i < n; i++) ((double *)dst)[i] = (double)((const float *)src)[i];
        return TN_OK;
    }
    if (to == TN_F32 && from == TN_F64) {
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = (float)((const double *)src)[i];
        return TN_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        double v = tni_load(src, from, i);
        if (to == TN_I32 && (double)tni_i32_of(v) != v)
            return tni_fail(ctx, TN_ERR_DATA, "%s: element %lld is %g, expected a 32-bit integer", op,
                            (long long)(first + i), v);
        tni_store(dst, to, i, v);
    }
    return TN_OK;
}

/* Checks all integers before anything is written. */
static tn_status tni_i32_check(tn_ctx *ctx, tn_dtype as, const void *src, int64_t count)
{
    int32_t   unused;
    tn_status s = TN_OK;
    for (int64_t i = 0; i < count && s == TN_OK; i++)
        s = tni_recode(ctx, TN_I32, &unused, as, (const char *)src + (size_t)i * tni_dtype_size(as), 1, i, "write");
    return s;
}

enum { TNI_STAGE = 1024 };               /* elements converted at a time */

/* Between a contiguous tensor and numbers of the host, which `up` only reads. */
static tn_status tni_transfer(const tn_tensor *t, tn_dtype as, char *host, int64_t count, bool up)
{
    tn_ctx   *ctx = t->ctx;
    double    staged[TNI_STAGE];
    size_t    size = tni_dtype_size(t->dtype), given = tni_dtype_size(as), all = (size_t)count * size;
    int64_t   n;
    tn_status s = TN_OK;
    if (as == t->dtype) return up ? tni_to_device(ctx, t->data, host, all) : tni_to_host(ctx, host, t->data, all);
    for (int64_t i = 0; i < count && s == TN_OK; i += n) {
        char *data = (char *)t->data + (size_t)i * size, *at = host + (size_t)i * given;
        n = tni_min(count - i, TNI_STAGE);
        s = up ? tni_recode(ctx, t->dtype, staged, as, at, n, i, "write") : tni_to_host(ctx, staged, data, (size_t)n * size);
        if (s != TN_OK) break;
        s = up ? tni_to_device(ctx, data, staged, (size_t)n * size) : tni_recode(ctx, as, at, t->dtype, staged, n, i, "read");
    }
    return s;
}

tn_status tn_write(tn_tensor *t, tn_dtype as, const void *src, int64_t count)
{
    tn_status s = tni_host_check(t, &as, src, count, "write");
    if (s != TN_OK || count == 0) return s;
    tn_ctx *ctx = t->ctx;
    if (tni_tape_reads(ctx, t))
        return tni_fail(ctx, TN_ERR_ARG, "write: %s is needed by the backward pass", TNI_SHAPE(t));
    if (t->dtype == TN_I32 && as != TN_I32 && (s = tni_i32_check(ctx, as, src, count)) != TN_OK) return s;
    tni_rewritten(t);
    if (!tn_tensor_is_contiguous(t)) {
        tn_mark    mark = tn_arena_mark(ctx);
        tn_tensor *flat = tn_tensor_nd(ctx, t->dtype, t->rank, t->shape);
        s = flat ? tn_write(flat, as, src, count) : TN_ERR_MEMORY;
        if (s == TN_OK) s = tni_copy(t, flat);
        if (!ctx->tape) tn_arena_release(ctx, mark);
        return s;
    }
    s = tni_transfer(t, as, (char *)src, count, true);
    return s == TN_OK ? s : tni_backend_fail(ctx, s, "write");
}

tn_tensor *tn_tensor_from(tn_ctx *ctx, int rank, const int64_t *shape, tn_dtype as, const void *numbers)
{
    size_t bytes;
    if (!ctx || !tni_dtype_known(ctx, "tensor_from", "as", &as)) return NULL;
    if (!tni_shape_bytes(ctx, "tensor_from", as == TN_I32 ? TN_I32 : ctx->desc.dtype, rank, shape, &bytes)) return NULL;
    tn_tensor *t = tn_tensor_nd(ctx, as == TN_I32 ? TN_I32 : TN_REAL, rank, shape);
    if (!t) return NULL;
    if (!numbers && tn_tensor_count(t) > 0)
        return tni_fail(ctx, TN_ERR_ARG, "tensor_from: numbers are NULL, expected the numbers of a tensor %s", TNI_SHAPE(t)),
               (tn_tensor *)NULL;
    return tn_write(t, as, numbers, tn_tensor_count(t)) == TN_OK ? t : NULL;
}

tn_status tn_read(const tn_tensor *t, tn_dtype as, void *dst, int64_t count)
{
    tn_status s = tni_host_check(t, &as, dst, count, "read");
    if (s != TN_OK || count == 0) return s;
    tn_ctx *ctx = t->ctx;
    if (!tn_tensor_is_contiguous(t)) {
        tn_mark    mark = tn_arena_mark(ctx);
        tn_tensor *flat = tn_tensor_nd(ctx, t->dtype, t->rank, t->shape);
        s = flat ? tni_copy(flat, t) : TN_ERR_MEMORY;
        if (s == TN_OK) s = tn_read(flat, as, dst, count);
        if (!ctx->tape) tn_arena_release(ctx, mark);
        return s;
    }
    if ((s = tn_ctx_sync(ctx)) != TN_OK) return s;
    s = tni_transfer(t, as, (char *)dst, count, false);
    return s == TN_OK ? s : tni_backend_fail(ctx, s, "read");
}

/* All numbers of a tensor, as scratch; NULL where they cannot be read. */
TNI_UNUSED TNI_NOINLINE TNI_FN double *tni_take_numbers(tni_scratch *w, const tn_tensor *t)
{
    const int64_t n = tn_tensor_count(t);
    double       *v = tni_take_f64(w, n, 1);
    w->failed = !v || tn_read(t, TN_F64, v, n) != TN_OK;
    return w->failed ? NULL : v;
}

/* May two tensors have memory in common? Views of one tensor whose elements alternate count as such. */
static bool tni_overlap(const tn_tensor *a, const tn_tensor *b)
{
    const tn_view v = tni_view(a), w = tni_view(b);
    char         *low, *other;
    size_t        bytes, others;
    if (tni_root(a) != tni_root(b)) return false;
    tni_view_span(&v, &low, &bytes);
    tni_view_span(&w, &other, &others);
    return low < other + others && other < low + bytes;
}

tn_status tn_assign(tn_tensor *to, const tn_tensor *from)
{
    if (!tni_alive(to)) return TN_ERR_ARG;
    if (!tni_usable(to->ctx, from, "assign", "from")) return TN_ERR_ARG;
    if (to->rank != from->rank || memcmp(to->shape, from->shape, sizeof *to->shape * (size_t)to->rank) != 0)
        return tni_fail(to->ctx, TN_ERR_SHAPE, "assign: from is %s, expected %s", TNI_SHAPE(from), TNI_SHAPE(to));
    if (tni_tape_reads(to->ctx, to))
        return tni_fail(to->ctx, TN_ERR_ARG, "assign: %s is needed by the backward pass", TNI_SHAPE(to));
    if (to->base && tni_settle(to) != TN_OK) return to->ctx->status;      /* a part, and the rest are zeros */
    tni_rewritten(to);
    if (!tni_overlap(to, from)) return tni_copy(to, from);
    tn_mark    mark = tn_arena_mark(to->ctx);
    tn_tensor *flat = tn_tensor_nd(from->ctx, from->dtype, from->rank, from->shape);
    tn_status  s = flat ? tni_copy(flat, from) : TN_ERR_MEMORY;
    if (s == TN_OK) s = tni_copy(to, flat);
    if (!to->ctx->tape) tn_arena_release(to->ctx, mark);
    return s;
}

double tn_item(const tn_tensor *t)
{
    double v;
    return tn_read(t, TN_F64, &v, 1) == TN_OK ? v : (double)NAN;
}
