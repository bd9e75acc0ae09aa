#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "algebra/inner.h"

#ifndef TN_NO_CONTRACTION
/* ======================================================================
   >>products-impl  views with moved and added axes, one product, one reshape
   ====================================================================== */

/* A view with the axis `from` moved to the place `to`; the other axes keep their order. */
static tn_tensor *tni_moved_axis(tn_tensor *t, int from, int to)
{
    tn_tensor *v = t ? tni_view_of(t) : NULL;
    if (!v) return NULL;
    for (int i = 0; i < t->rank; i++) {
        int at = i == to ? from : i - (i > to) + (i - (i > to) >= from);
        v->shape[i] = t->shape[at];
        v->strides[i] = t->strides[at];
    }
    return v;
}

/* A view with a new axis of extent 1 at `axis`. */
static tn_tensor *tni_added_axis(tn_tensor *t, int axis)
{
    tn_tensor *v = t ? tni_view_of(t) : NULL;
    if (!v) return NULL;
    for (int i = v->rank++; i > axis; i--) {
        v->shape[i] = v->shape[i - 1];
        v->strides[i] = v->strides[i - 1];
    }
    v->shape[axis] = v->strides[axis] = 1;
    return v;
}

tn_tensor *tn_tensordot(tn_ctx *ctx, tn_tensor *u, int j, tn_tensor *v, int k)
{
    enum { SHARED = 2 * TN_MAX_RANK };
    int of_u[TN_MAX_RANK], of_v[TN_MAX_RANK], of_y[2 * TN_MAX_RANK], rank = 0;
    if (!tni_is_real(ctx, u, "tensordot", "u") || !tni_is_real(ctx, v, "tensordot", "v")
        || !tni_axis(u, &j, "tensordot", "u") || !tni_axis(v, &k, "tensordot", "v")) return NULL;
    if (u->shape[j] != v->shape[k])
        return tni_fail(ctx, TN_ERR_SHAPE, "tensordot: axis %d of u %s and axis %d of v %s differ, expected equal extents", j,
                        TNI_SHAPE(u), k, TNI_SHAPE(v)), (tn_tensor *)NULL;
    if (u->rank + v->rank - 2 > TN_MAX_RANK)
        return tni_fail(ctx, TN_ERR_SHAPE, "tensordot: the result of u %s and v %s has rank %d, expected at most %d",
                        TNI_SHAPE(u), TNI_SHAPE(v), u->rank + v->rank - 2, TN_MAX_RANK), (tn_tensor *)NULL;
    for (int i = 0; i < u->rank; i++) if ((of_u[i] = i == j ? SHARED : i) != SHARED) of_y[rank++] = of_u[i];
    for (int i = 0; i < v->rank; i++) if ((of_v[i] = i == k ? SHARED : TN_MAX_RANK + i) != SHARED) of_y[rank++] = of_v[i];
    const int *labels[2] = {of_u, of_v};
    tn_tensor *both[2] = {u, v};
    return tn_einsum_labels(ctx, 2, both, labels, rank, of_y);
}

static bool tni_two_matrices(tn_ctx *ctx, const tn_tensor *a, const tn_tensor *b, int shared, const char *op)
{
    if (!tni_is_real(ctx, a, op, "a") || !tni_is_real(ctx, b, op, "b")) return false;
    if (a->rank == 2 && b->rank == 2 && a->shape[shared] == b->shape[shared]) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: a is %s but b is %s, expected matrices with equal %s", op, TNI_SHAPE(a),
                    TNI_SHAPE(b), shared ? "columns" : "rows"), false;
}

/* The product of all a[..] b[..] with the axes of each in their own places, then neighbours joined to `shape`. */
static tn_tensor *tni_joined_product(tn_ctx *ctx, tn_tensor *a, tn_tensor *b, int rank, const int64_t *shape)
{
    tn_tensor *y = a && b ? tn_mul(ctx, a, b) : NULL;
    return y ? tn_reshape(y, rank, shape) : NULL;
}

tn_tensor *tn_khatri_rao(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    if (!tni_two_matrices(ctx, a, b, 1, "khatri_rao")) return NULL;
    int64_t shape[2] = {a->shape[0] * b->shape[0], a->shape[1]};
    return tni_joined_product(ctx, tni_added_axis(a, 1), tni_added_axis(b, 0), 2, shape);
}

tn_tensor *tn_khatri_rao_rows(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    if (!tni_two_matrices(ctx, a, b, 0, "khatri_rao_rows")) return NULL;
    int64_t shape[2] = {a->shape[0], a->shape[1] * b->shape[1]};
    return tni_joined_product(ctx, tni_added_axis(a, 2), tni_added_axis(b, 1), 2, shape);
}

tn_tensor *tn_kronecker(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    int64_t shape[TN_MAX_RANK / 2];
    if (!tni_is_real(ctx, a, "kronecker", "a") || !tni_is_real(ctx, b, "kronecker", "b")) return NULL;
    int rank = a->rank;
    if (rank != b->rank || rank > TN_MAX_RANK / 2)
        return tni_fail(ctx, TN_ERR_SHAPE, "kronecker: a is %s but b is %s, expected equal ranks of at most %d", TNI_SHAPE(a),
                        TNI_SHAPE(b), TN_MAX_RANK / 2), (tn_tensor *)NULL;
    for (int i = 0; i < rank; i++) shape[i] = a->shape[i] * b->shape[i];
    for (int i = 0; i < rank; i++) {
        a = tni_added_axis(a, 2 * i + 1);
        b = tni_added_axis(b, 2 * i);
        if (!a || !b) return NULL;
    }
    return tni_joined_product(ctx, a, b, rank, shape);
}

tn_tensor *tn_mode_product(tn_ctx *ctx, tn_tensor *x, int axis, tn_tensor *a)
{
    int64_t shape[TN_MAX_RANK];
    if (!tni_is_real(ctx, x, "mode_product", "x") || !tni_is_real(ctx, a, "mode_product", "a")) return NULL;
    if (!tni_axis(x, &axis, "mode_product", "x")) return NULL;
    if (a->rank != 2 || a->shape[1] != x->shape[axis])
        return tni_fail(ctx, TN_ERR_SHAPE, "mode_product: a is %s, expected [m,%lld] for axis %d of x %s", TNI_SHAPE(a),
                        (long long)x->shape[axis], axis, TNI_SHAPE(x)), (tn_tensor *)NULL;
    if (axis == x->rank - 1) return tn_affine(ctx, x, a, NULL);
    int64_t fibres[3] = {1, x->shape[axis], 1};
    for (int i = 0; i < x->rank; i++) {
        shape[i] = i == axis ? a->shape[0] : x->shape[i];
        if (i != axis) fibres[i < axis ? 0 : 2] *= x->shape[i];
    }
    if (!tn_tensor_is_contiguous(x) && !(x = tn_copy(ctx, x))) return NULL;
    tn_tensor *y = tn_reshape(x, 3, fibres);
    y = y ? tn_matmul(ctx, a, y) : NULL;
    return y ? tn_reshape(y, x->rank, shape) : NULL;
}

tn_tensor *tn_unfold(tn_ctx *ctx, tn_tensor *x, int axis)
{
    int64_t others = 1;
    if (!tni_is_real(ctx, x, "unfold", "x") || !tni_axis(x, &axis, "unfold", "x")) return NULL;
    for (int i = 0; i < x->rank; i++) if (i != axis) others *= x->shape[i];
    x = tni_moved_axis(x, axis, 0);
    if (x && !tn_tensor_is_contiguous(x)) x = tn_copy(ctx, x);
    return x ? tn_reshape_2d(x, x->shape[0], others) : NULL;
}

tn_tensor *tn_fold(tn_ctx *ctx, tn_tensor *m, int axis, int rank, const int64_t *shape)
{
    int64_t first[TN_MAX_RANK], others = 1;
    int     given = axis, at = 1;
    if (!tni_is_real(ctx, m, "fold", "m") || !tni_rank_fits(ctx, "fold", rank, shape)) return NULL;
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank)
        return tni_fail(ctx, TN_ERR_ARG, "fold: axis is %d, expected an axis of %s", given, tni_shape_of(rank, shape).s),
               (tn_tensor *)NULL;
    first[0] = shape[axis];
    for (int i = 0; i < rank; i++) {
        if (i == axis) continue;
        first[at++] = shape[i];
        others = shape[i] > 0 && others > INT64_MAX / shape[i] ? -1 : others * shape[i];
        if (others < 0) break;
    }
    if (m->rank != 2 || m->shape[0] != shape[axis] || m->shape[1] != others)
        return tni_fail(ctx, TN_ERR_SHAPE, "fold: m is %s, expected the unfolding of %s by axis %d", TNI_SHAPE(m),
                        tni_shape_of(rank, shape).s, axis), (tn_tensor *)NULL;
    if (!tn_tensor_is_contiguous(m) && !(m = tn_copy(ctx, m))) return NULL;
    m = tni_moved_axis(tn_reshape(m, rank, first), 0, axis);
    return m && !tn_tensor_is_contiguous(m) ? tn_copy(ctx, m) : m;
}
#endif /* TN_NO_CONTRACTION */
