#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- forms -------------------------------------------------------------- >>cp-forms-impl */

/* T[o] = (diag(P_o) K)^T F_last with K the Khatri-Rao product of the other factors, row by row. */
static tn_status tni_cp_dense_slices(const tn_cp *cp, tn_tensor *k, tn_tensor *t)
{
    tn_ctx    *ctx = cp->ctx;
    int64_t    rows = k->shape[1], columns = cp->in[cp->order - 1];
    tn_tensor *scaled = tn_tensor_2d(ctx, TN_REAL, cp->terms, rows);
    tn_status  s = scaled ? TN_OK : TN_ERR_MEMORY;
    for (int64_t o = 0; o < cp->out && s == TN_OK; o++) {
        tn_view slice = tni_slice_view(t, o);
        slice.shape[0] = rows; slice.shape[1] = columns;
        slice.strides[0] = columns; slice.strides[1] = 1;
        s = tni_put_product(ctx, tni_view(scaled), tni_view(k), tni_transposed_view(tni_block_of(cp->p, o, 1, 0, cp->terms)),
                            false);
        if (s == TN_OK)
            s = tni_put_matmul(ctx, slice, tni_transposed_view(tni_view(scaled)), tni_view(cp->f[cp->order - 1]), 1, 0);
    }
    return s;
}

/* Row-wise Khatri-Rao product of all factors but the last: [terms, in_0 .. in_(k-2)]. */
static tn_tensor *tni_cp_khatri_rao(const tn_cp *cp)
{
    tn_tensor *k = cp->f[0];
    for (int i = 1; k && i + 1 < cp->order; i++) {
        int64_t a[3], b[3];
        a[0] = b[0] = cp->terms;
        a[1] = k->shape[1]; a[2] = 1;
        b[1] = 1; b[2] = cp->in[i];
        k = tn_mul(cp->ctx, tn_reshape(k, 3, a), tn_reshape(cp->f[i], 3, b));
        k = k ? tn_reshape_2d(k, cp->terms, k->shape[1] * k->shape[2]) : NULL;
    }
    return k;
}

TNI_FN tn_status tni_put_symmetric(tn_ctx *ctx, tn_tensor *to, tn_tensor *t)      /* (t + t^T)/2 of the last two axes */
{
    tn_call c = tni_call(TN_KERNEL_ADD, "t:t", t, to);
    c.in[c.n_in++] = tni_transposed_view(tni_view(t));
    c.f[0] = c.f[1] = 0.5;
    return tni_run(ctx, &c);
}

static tn_tensor *tni_symmetric_slices(tn_ctx *ctx, tn_tensor *t)
{
    tn_tensor *s = tni_tensor_create(ctx, "dense", TN_REAL, t->rank, t->shape);
    return s ? tni_tensor_done(s, tni_put_symmetric(ctx, s, t)) : NULL;
}

tn_tensor *tn_cp_dense(const tn_cp *cp)
{
    int64_t   shape[TN_CP_MAX_ORDER + 1];
    tn_status s;
    size_t    bytes;
    if (!cp) return NULL;
    shape[0] = cp->out;
    memcpy(shape + 1, cp->in, sizeof *shape * (size_t)cp->order);
    if (!tni_extents_fit(cp->ctx->desc.dtype, cp->order + 1, shape, &bytes))
        return tni_fail(cp->ctx, TN_ERR_MEMORY, "dense: a tensor of %s %s is larger than the address space",
                        tn_dtype_name(cp->ctx->desc.dtype), tni_shape_of(cp->order + 1, shape).s), (tn_tensor *)NULL;
    tn_tensor *t = tni_tensor_create(cp->ctx, "dense", TN_REAL, cp->order + 1, shape);
    if (!t) return NULL;
    tni_scope scope = tni_scope_begin(cp->ctx);
    if (cp->order == 1) s = tni_put_matmul(cp->ctx, tni_view(t), tni_view(cp->p), tni_view(cp->f[0]), 1, 0);
    else {
        tn_tensor *k = tni_cp_khatri_rao(cp);
        s = k ? tni_cp_dense_slices(cp, k, t) : TN_ERR_MEMORY;
    }
    tni_scope_end(cp->ctx, scope);
    return tni_tensor_done(t, s);
}

tn_tensor *tn_cp_dense_symmetric(const tn_cp *cp)
{
    tn_tensor *t = tni_cp_is_bilinear(cp, "dense") ? tn_cp_dense(cp) : NULL;
    tn_tensor *symmetric = t ? tni_symmetric_slices(cp->ctx, t) : NULL;
    tn_tensor_destroy(t);
    return symmetric;
}

tn_tensor *tn_cp_interaction(const tn_cp *cp, const tn_tensor *u)
{
    tn_tensor *q = NULL;
    if (!tni_cp_is_bilinear(cp, "interaction") || !tni_is_vector(cp->ctx, u, cp->out, "interaction", "u")) return NULL;
    tni_scope  scope = tni_scope_begin(cp->ctx);
    tn_tensor *d = tn_tensor_2d(cp->ctx, TN_REAL, cp->terms, 1);
    tn_tensor *scaled = d ? tn_tensor_2d(cp->ctx, TN_REAL, cp->terms, cp->in[0]) : NULL;
    tn_tensor *g = scaled ? tn_tensor_2d(cp->ctx, TN_REAL, cp->in[0], cp->in[0]) : NULL;
    if (g && tni_put_matmul(cp->ctx, tni_view(d), tni_transposed_view(tni_view(cp->p)), tni_column_view(u), 1, 0) == TN_OK
        && tni_put_product(cp->ctx, tni_view(scaled), tni_view(cp->f[0]), tni_view(d), false) == TN_OK
        && tni_put_matmul(cp->ctx, tni_view(g), tni_transposed_view(tni_view(scaled)), tni_view(cp->f[1]), 1, 0) == TN_OK)
        q = tni_symmetric_slices(cp->ctx, g);
    tni_scope_end(cp->ctx, scope);
    return q;
}

tn_tensor *tn_cp_interaction_of(const tn_cp *cp, int64_t output)
{
    tn_tensor *q = NULL;
    if (!cp) return NULL;
    if (!tni_within(cp->ctx, "interaction", "output", output, 0, cp->out - 1)) return NULL;
    tni_scope  scope = tni_scope_begin(cp->ctx);
    tn_tensor *u = tn_full(cp->ctx, 1, &cp->out, 0);
    tn_tensor *one = tn_slice(u, 0, output, output + 1);
    if (one && tni_put_value(cp->ctx, tni_view(one), 1) == TN_OK) q = tn_cp_interaction(cp, u);
    tni_scope_end(cp->ctx, scope);
    return q;
}

/* P (prod_k F_k x_k), by ops, so that it can be recorded and differentiated with respect to x */
tn_tensor *tn_cp_apply_each(tn_ctx *ctx, const tn_cp *cp, tn_tensor *const *x)
{
    tn_tensor *h = NULL;
    if (!cp || !x)
        return tni_fail(ctx, TN_ERR_ARG, "apply: %s is NULL", cp ? "x" : "the operator"), (tn_tensor *)NULL;
    for (int k = 0; k < cp->order; k++) {
        tn_tensor *input = x[k];
        if (!tni_is_real(ctx, input, "apply", "x")) return NULL;
        int64_t columns = input->rank > 0 ? input->shape[input->rank - 1] : -1;
        if (columns != cp->in[k] && !(cp->constant && columns == cp->in[k] - 1))
            return tni_fail(ctx, TN_ERR_SHAPE, "apply: x is %s, expected a last extent of %lld, the operator's inputs%s",
                            TNI_SHAPE(input), (long long)cp->in[k],
                            cp->constant ? ", or one less, without the constant one" : ""), (tn_tensor *)NULL;
        if (columns != cp->in[k]) input = tn_append_one(ctx, input);
        tn_tensor *e = input ? tn_affine(ctx, input, cp->f[k], NULL) : NULL;
        h = k == 0 || !e ? e : tn_mul(ctx, h, e);
        if (!h) return NULL;
    }
    return tn_affine(ctx, h, cp->p, NULL);
}

tn_tensor *tn_cp_apply(tn_ctx *ctx, const tn_cp *cp, tn_tensor *x)
{
    tn_tensor *all[TN_CP_MAX_ORDER];
    if (!cp) tni_fail(ctx, TN_ERR_ARG, "apply: the operator is NULL");
    if (!tni_cp_one_input(cp, "apply") || !tni_is_real(ctx, x, "apply", "x")) return NULL;
    if (cp->constant && x->rank > 0 && x->shape[x->rank - 1] == cp->in[0] - 1) x = tn_append_one(ctx, x);
    for (int k = 0; k < cp->order; k++) all[k] = x;
    return tn_cp_apply_each(ctx, cp, all);
}

#endif /* TN_NO_OPERATOR */
