#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/layers.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ======================================================================
   >>operator-impl  a layer as one tensor in CP form: a sum of products of vectors
   Factors stay factors: only tn_cp_dense and the forms make dense tensors. Folding multiplies
   neighbouring matrices into a factor, forms contract factors with vectors, eigenpairs come from a QR
   factorisation of the factors, or from products with vectors where there are many.
   Rows of the factors are rank-one terms. Whatever joins an operator to biases, residuals or other layers
   copies blocks into a larger one: views of blocks, moved by COPY, and products of them by GEMM.
   ====================================================================== */

typedef struct tni_cp_box { tni_owned owned; uint64_t number; tn_cp cp; } tni_cp_box;     /* number: the first is 1 */

static void tni_cp_destroy(tni_owned *o)
{
    tni_cp_box *box = (tni_cp_box *)(void *)o;
    tn_tensor_destroy(box->cp.p);
    for (int k = 0; k < TN_CP_MAX_ORDER; k++) tn_tensor_destroy(box->cp.f[k]);
    tni_object_free(o, sizeof *box);
}

void tn_cp_destroy(tn_cp *cp)
{
    if (cp) tni_cp_destroy(&((tni_cp_box *)(void *)((char *)cp - offsetof(tni_cp_box, cp)))->owned);
}

uint64_t tn_cp_mark(const tn_ctx *ctx) { return ctx ? ctx->operators : 0; }

tn_cp *tn_cp_release(tn_ctx *ctx, uint64_t mark, tn_cp *keep)
{
    tni_owned *o = ctx ? ctx->owned : NULL, *next;
    for (; o; o = next) {
        tni_cp_box *box = (tni_cp_box *)(void *)o;
        next = o->next;
        if (o->destroy == tni_cp_destroy && box->number > mark && &box->cp != keep) tni_cp_destroy(o);
    }
    return keep;
}

TNI_COLD_FN tn_tensor *tni_owned_2d(tn_ctx *ctx, int64_t n, int64_t m)
{
    return tn_tensor_create(ctx, TN_REAL, 2, TNI_DIMS(n, m));
}

/* An operator of zeros. */
TNI_COLD_FN tn_cp *tni_cp_make(tn_ctx *ctx, int order, int64_t out, int64_t terms, const int64_t *in, bool constant)
{
    tni_cp_box *box = (tni_cp_box *)tni_object(ctx, sizeof *box, "operator", tni_cp_destroy);
    if (!box) return NULL;
    box->number = ++ctx->operators;
    tn_cp *cp = &box->cp;
    cp->ctx = ctx;
    cp->order = order;
    cp->out = out;
    cp->terms = terms;
    cp->constant = constant;
    cp->p = tni_owned_2d(ctx, out, terms);
    bool whole = cp->p != NULL;
    for (int k = 0; k < order && whole; k++) {
        cp->in[k] = in[k];
        cp->f[k] = tni_owned_2d(ctx, terms, in[k]);
        whole = cp->f[k] != NULL;
    }
    if (whole) return cp;
    return tn_cp_destroy(cp), (tn_cp *)NULL;
}

/* Returns the finished operator, or destroys it where s is an error. */
TNI_COLD_FN tn_cp *tni_cp_done(tn_cp *cp, tn_status s)
{
    if (s == TN_OK) return cp;
    return tn_cp_destroy(cp), (tn_cp *)NULL;
}

/* ---- blocks ------------------------------------------------------------- >>cp-blocks */

TNI_COLD_FN tn_view tni_block_of(const tn_tensor *t, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    tn_view v = tni_view(t);
    v.data = (char *)v.data + (row * v.strides[0] + column * v.strides[1]) * (int64_t)tni_dtype_size(v.dtype);
    v.shape[0] = rows;
    v.shape[1] = columns;
    return v;
}

TNI_COLD_FN tn_view tni_slice_view(const tn_tensor *t, int64_t i)     /* slice i of [k,h,n] */
{
    tn_view v = tni_view(t);
    v.data = (char *)v.data + i * v.strides[0] * (int64_t)tni_dtype_size(v.dtype);
    v.rank = 2;
    v.shape[0] = v.shape[1]; v.shape[1] = v.shape[2];
    v.strides[0] = v.strides[1]; v.strides[1] = v.strides[2];
    return v;
}

TNI_COLD_FN tn_view tni_column_view(const tn_tensor *t)               /* [n] as [n,1] */
{
    tn_view v = tni_view(t);
    v.rank = 2;
    v.shape[1] = 1;
    v.strides[1] = 0;
    return v;
}

TNI_COLD_FN tn_status tni_put_copy(tn_ctx *ctx, tn_view to, tn_view from)  /* to = from, the same shape */
{
    return tni_run_views(ctx, TN_KERNEL_COPY, &from, NULL, &to, 0, false);
}

TNI_COLD_FN tn_status tni_put_value(tn_ctx *ctx, tn_view to, double value)
{
    tn_call c = tni_call(TN_KERNEL_FILL, "");
    c.out[c.n_out++] = to;
    c.f[0] = value;
    return tni_run(ctx, &c);
}

TNI_COLD_FN tn_status tni_put_scaled(tn_ctx *ctx, tn_view to, tn_view from, double factor)
{
    tn_call c = tni_call(TN_KERNEL_ADD, "");
    c.in[c.n_in++] = from;
    c.out[c.n_out++] = to;
    c.f[0] = factor;
    return tni_run(ctx, &c);
}

TNI_COLD_FN tn_status tni_put_identity(tn_ctx *ctx, tn_view square)   /* ones on the diagonal of zeros */
{
    square.rank = 1;
    square.strides[0] += square.strides[1];
    return tni_put_value(ctx, square, 1);
}

/* to (+)= a * b, either one broadcast */
TNI_COLD_FN tn_status tni_put_product(tn_ctx *ctx, tn_view to, tn_view a, tn_view b, bool add)
{
    a = tni_expand_view(a, 2, to.shape);
    b = tni_expand_view(b, 2, to.shape);
    return tni_run_views(ctx, TN_KERNEL_MUL, &a, &b, &to, 0, add);
}

TNI_COLD_FN tn_status tni_put_matmul(tn_ctx *ctx, tn_view to, tn_view a, tn_view b, double alpha, double beta)
{
    return tni_gemm(ctx, tni_one_matrix(a), tni_one_matrix(b), NULL, tni_one_matrix(to), alpha, beta);
}

TNI_COLD_FN tni_scope tni_scope_begin(tn_ctx *ctx)
{
    tni_scope s = {tn_arena_mark(ctx), ctx->recording, ctx->made};
    ctx->recording = false;
    ctx->made = ctx->desc.dtype;
    return s;
}

TNI_COLD_FN void tni_scope_end(tn_ctx *ctx, tni_scope s)
{
    if (!ctx->tape) tn_arena_release(ctx, s.mark);
    ctx->recording = s.recording;
    ctx->made = s.made;
}

/* ---- checks ------------------------------------------------------------- >>cp-checks */

TNI_COLD_FN bool tni_is_matrix(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return false;
    if (t->rank == 2) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, expected a matrix", op, what, TNI_SHAPE(t)), false;
}

TNI_COLD_FN bool tni_is_vector(tn_ctx *ctx, const tn_tensor *t, int64_t n, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return false;
    if (t->rank == 1 && t->shape[0] == n) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, expected [%lld]", op, what, TNI_SHAPE(t), (long long)n), false;
}

/* Order 2 with inputs of one length: what symmetrising and everything after it needs. */
TNI_COLD_FN bool tni_cp_is_bilinear(const tn_cp *cp, const char *op)
{
    if (!cp) return false;
    if (cp->order != 2) tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: the operator has order %d, expected 2", op, cp->order);
    else if (cp->in[0] != cp->in[1])
        tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: input 1 has %lld elements, expected %lld as input 0", op,
                 (long long)cp->in[1], (long long)cp->in[0]);
    else return true;
    return false;
}

TNI_COLD_FN bool tni_cp_one_input(const tn_cp *cp, const char *op)
{
    if (!cp) return false;
    for (int k = 1; k < cp->order; k++)
        if (cp->in[k] != cp->in[0])
            return tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: input %d has %lld elements, expected %lld as input 0", op, k,
                            (long long)cp->in[k], (long long)cp->in[0]), false;
    return true;
}

TNI_COLD_FN bool tni_cp_of_params(const tn_params *ps, const tn_cp *cp, const char *op)
{
    if (!ps) return false;
    if (cp->ctx == tn_params_ctx(ps)) return tni_cp_one_input(cp, op);
    return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "%s: the operator is of another context than the parameters", op), false;
}

/* ---- made from arrays --------------------------------------------------- >>cp-create */

TNI_COLD tn_cp *tn_cp_create(tn_ctx *ctx, int order, const tn_tensor *p, tn_tensor *const *f, tn_cp_input input)
{
    const bool constant = input == TN_CP_INPUT_CONSTANT;
    int64_t    in[TN_CP_MAX_ORDER] = {0};
    if (!tni_is_matrix(ctx, p, "cp", "p")) return NULL;
    if (!f) return tni_fail(ctx, TN_ERR_ARG, "cp: the factors are NULL"), (tn_cp *)NULL;
    if (!tni_within(ctx, "cp", "order", order, 1, TN_CP_MAX_ORDER)) return NULL;
    for (int k = 0; k < order; k++) {
        if (!tni_is_matrix(ctx, f[k], "cp", "a factor")) return NULL;
        if (f[k]->shape[0] != p->shape[1] || (constant && f[k]->shape[1] < 1))
            return tni_fail(ctx, TN_ERR_SHAPE, "cp: factor %d is %s, expected [%lld,in%s]: one row per term, as p, %s, has one "
                            "column per term", k, TNI_SHAPE(f[k]), (long long)p->shape[1],
                            constant ? " + 1 for the constant one" : "", TNI_SHAPE(p)), (tn_cp *)NULL;
        in[k] = f[k]->shape[1];
    }
    tn_cp *cp = tni_cp_make(ctx, order, p->shape[0], p->shape[1], in, constant);
    if (!cp) return NULL;
    tn_status s = tni_copy(cp->p, p);
    for (int k = 0; k < order && s == TN_OK; k++) s = tni_copy(cp->f[k], f[k]);
    return tni_cp_done(cp, s);
}

/* A copy with `more` further terms of zeros, and with the constant's column if it has none yet. */
TNI_COLD_FN tn_cp *tni_cp_extend(const tn_cp *cp, int64_t more, bool constant)
{
    int64_t in[TN_CP_MAX_ORDER];
    int     column = constant && !cp->constant;
    for (int k = 0; k < cp->order; k++) in[k] = cp->in[k] + column;
    tn_cp *to = tni_cp_make(cp->ctx, cp->order, cp->out, cp->terms + more, in, cp->constant || constant);
    if (!to) return NULL;
    tn_status s = tni_put_copy(cp->ctx, tni_block_of(to->p, 0, cp->out, 0, cp->terms), tni_view(cp->p));
    for (int k = 0; k < cp->order && s == TN_OK; k++)
        s = tni_put_copy(cp->ctx, tni_block_of(to->f[k], 0, cp->terms, 0, cp->in[k]), tni_view(cp->f[k]));
    return tni_cp_done(to, s);
}

/* Term `term` becomes a bias: b times the constant one, in every input. */
static tn_status tni_cp_put_bias(tn_cp *cp, int64_t term, tn_view b)
{
    tn_status s = tni_put_copy(cp->ctx, tni_block_of(cp->p, 0, cp->out, term, 1), b);
    for (int k = 0; k < cp->order && s == TN_OK; k++)
        s = tni_put_value(cp->ctx, tni_block_of(cp->f[k], term, 1, cp->in[k] - 1, 1), 1);
    return s;
}

TNI_COLD_FN tn_cp *tni_cp_with_bias(const tn_cp *cp, tn_view b)
{
    tn_cp *to = cp ? tni_cp_extend(cp, 1, true) : NULL;
    return to ? tni_cp_done(to, tni_cp_put_bias(to, cp->terms, b)) : NULL;
}

/* Replaces an intermediate operator by the next one, which was made from it. */
TNI_COLD_FN tn_cp *tni_cp_next(tn_cp *used, tn_cp *next)
{
    tn_cp_destroy(used);
    return next;
}
#endif /* TN_NO_OPERATOR */
