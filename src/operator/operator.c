#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "decomp/decomp.h"
#include "layers/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ======================================================================
   >>operator-impl  a layer as one tensor in CP form: a sum of products of vectors
   Factors stay factors: only tn_cp_dense and the forms make dense tensors. Folding multiplies
   neighbouring matrices into a factor, forms contract factors with vectors, eigenpairs come from the Gram
   matrices of factors, or by products with a vector where there are many.
   Rows of the factors are rank-one terms. Whatever joins an operator to biases, residuals or other layers
   copies blocks into a larger one: views of blocks, moved by COPY, and products of them by GEMM.
   ====================================================================== */

typedef struct tni_cp_box { tni_owned owned; uint64_t number; tn_cp cp; } tni_cp_box;     /* number: the first is 1 */

static void tni_cp_destroy(tni_owned *o)
{
    tni_cp_box *box = (tni_cp_box *)(void *)o;
    int         k;
    tn_tensor_destroy(box->cp.p);
    for (k = 0; k < TN_CP_MAX_ORDER; k++) tn_tensor_destroy(box->cp.f[k]);
    tni_disown(o);
    tni_free(o->ctx, box, sizeof *box);
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

TNI_FN tn_tensor *tni_owned_2d(tn_ctx *ctx, int64_t n, int64_t m)
{
    int64_t shape[2];
    shape[0] = n; shape[1] = m;
    return tn_tensor_create(ctx, TN_REAL, 2, shape);
}

/* An operator of zeros. */
TNI_FN tn_cp *tni_cp_make(tn_ctx *ctx, int order, int64_t out, int64_t terms, const int64_t *in, bool constant)
{
    tni_cp_box *box = (tni_cp_box *)tni_alloc(ctx, sizeof *box, "operator");
    tn_cp      *cp;
    bool        whole;
    int         k;
    if (!box) return NULL;
    memset(box, 0, sizeof *box);
    tni_own(ctx, &box->owned, tni_cp_destroy);
    box->number = ++ctx->operators;
    cp = &box->cp;
    cp->ctx = ctx;
    cp->order = order;
    cp->out = out;
    cp->terms = terms;
    cp->constant = constant;
    cp->p = tni_owned_2d(ctx, out, terms);
    for (whole = cp->p != NULL, k = 0; k < order && whole; k++) {
        cp->in[k] = in[k];
        cp->f[k] = tni_owned_2d(ctx, terms, in[k]);
        whole = cp->f[k] != NULL;
    }
    if (whole) return cp;
    tn_cp_destroy(cp);
    return NULL;
}

/* Returns the finished operator, or destroys it where s is an error. */
TNI_FN tn_cp *tni_cp_done(tn_cp *cp, tn_status s)
{
    if (s == TN_OK) return cp;
    tn_cp_destroy(cp);
    return NULL;
}

/* ---- blocks ------------------------------------------------------------- >>cp-blocks */

TNI_FN tn_view tni_block_of(const tn_tensor *t, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    tn_view v = tni_view(t);
    v.data = (char *)v.data + (row * v.strides[0] + column * v.strides[1]) * (int64_t)tni_dtype_size(v.dtype);
    v.shape[0] = rows;
    v.shape[1] = columns;
    return v;
}

TNI_FN tn_view tni_column_view(const tn_tensor *t)               /* [n] as [n,1] */
{
    tn_view v = tni_view(t);
    v.rank = 2;
    v.shape[1] = 1;
    v.strides[1] = 0;
    return v;
}

TNI_FN tn_status tni_put_copy(tn_ctx *ctx, tn_view to, tn_view from)  /* to = from, the same shape */
{
    return tni_run_views(ctx, TN_KERNEL_COPY, &from, NULL, &to, 0, false);
}

TNI_FN tn_status tni_put_value(tn_ctx *ctx, tn_view to, double value)
{
    tn_call c = tni_call(TN_KERNEL_FILL, 0, NULL, 0, NULL);
    c.out[c.n_out++] = to;
    c.f[0] = value;
    return tni_run(ctx, &c);
}

TNI_FN tn_status tni_put_scaled(tn_ctx *ctx, tn_view to, tn_view from, double factor)
{
    tn_call c = tni_call(TN_KERNEL_ADD, 0, NULL, 0, NULL);
    c.in[c.n_in++] = from;
    c.out[c.n_out++] = to;
    c.f[0] = factor;
    return tni_run(ctx, &c);
}

TNI_FN tn_status tni_put_identity(tn_ctx *ctx, tn_view square)   /* ones on the diagonal of zeros */
{
    square.rank = 1;
    square.strides[0] += square.strides[1];
    return tni_put_value(ctx, square, 1);
}

/* to (+)= a * b, either one broadcast */
TNI_FN tn_status tni_put_product(tn_ctx *ctx, tn_view to, tn_view a, tn_view b, bool add)
{
    a = tni_expand_view(a, 2, to.shape);
    b = tni_expand_view(b, 2, to.shape);
    return tni_run_views(ctx, TN_KERNEL_MUL, &a, &b, &to, 0, add);
}

TNI_FN tn_status tni_put_matmul(tn_ctx *ctx, tn_view to, tn_view a, tn_view b, double alpha, double beta)
{
    return tni_gemm(ctx, tni_one_matrix(a), tni_one_matrix(b), NULL, tni_one_matrix(to), alpha, beta);
}

TNI_FN tni_scope tni_scope_begin(tn_ctx *ctx)
{
    tni_scope s;
    s.mark = tn_arena_mark(ctx);
    s.recording = ctx->recording;
    s.made = ctx->made;
    ctx->recording = false;
    ctx->made = ctx->desc.dtype;
    return s;
}

TNI_FN void tni_scope_end(tn_ctx *ctx, tni_scope s)
{
    if (!ctx->tape) tn_arena_release(ctx, s.mark);
    ctx->recording = s.recording;
    ctx->made = s.made;
}

/* ---- checks ------------------------------------------------------------- >>cp-checks */

TNI_FN bool tni_is_matrix(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return false;
    if (t->rank == 2) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, expected a matrix", op, what, TNI_SHAPE(t));
    return false;
}

TNI_FN bool tni_is_vector(tn_ctx *ctx, const tn_tensor *t, int64_t n, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return false;
    if (t->rank == 1 && t->shape[0] == n) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, expected [%lld]", op, what, TNI_SHAPE(t), (long long)n);
    return false;
}

/* Order 2 with inputs of one length: what symmetrising and everything after it needs. */
TNI_FN bool tni_cp_is_bilinear(const tn_cp *cp, const char *op)
{
    if (!cp) return false;
    if (cp->order != 2) tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: the operator has order %d, expected 2", op, cp->order);
    else if (cp->in[0] != cp->in[1])
        tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: input 1 has %lld elements, expected %lld as input 0", op,
                 (long long)cp->in[1], (long long)cp->in[0]);
    else return true;
    return false;
}

TNI_FN bool tni_cp_one_input(const tn_cp *cp, const char *op)
{
    int k;
    if (!cp) return false;
    for (k = 1; k < cp->order; k++)
        if (cp->in[k] != cp->in[0]) {
            tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: input %d has %lld elements, expected %lld as input 0", op, k,
                     (long long)cp->in[k], (long long)cp->in[0]);
            return false;
        }
    return true;
}

static bool tni_cp_of_params(const tn_params *ps, const tn_cp *cp, const char *op)
{
    if (!ps) return false;
    if (cp->ctx == tn_params_ctx(ps)) return tni_cp_one_input(cp, op);
    tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "%s: the operator is of another context than the parameters", op);
    return false;
}

/* ---- made from arrays, layers and stacks -------------------------------- >>cp-create */

tn_cp *tn_cp_create(tn_ctx *ctx, int order, const tn_tensor *p, tn_tensor *const *f, tn_cp_input input)
{
    const bool constant = input == TN_CP_INPUT_CONSTANT;
    int64_t    in[TN_CP_MAX_ORDER];
    tn_cp     *cp;
    tn_status  s;
    int        k;
    if (!tni_is_matrix(ctx, p, "cp", "p")) return NULL;
    if (order < 1 || order > TN_CP_MAX_ORDER || !f) {
        if (f) tni_fail(ctx, TN_ERR_ARG, "cp: order is %d, expected 1 to %d", order, TN_CP_MAX_ORDER);
        else tni_fail(ctx, TN_ERR_ARG, "cp: the factors are NULL");
        return NULL;
    }
    for (k = 0; k < order; k++) {
        if (!tni_is_matrix(ctx, f[k], "cp", "a factor")) return NULL;
        if (f[k]->shape[0] != p->shape[1] || (constant && f[k]->shape[1] < 1)) {
            tni_fail(ctx, TN_ERR_SHAPE, "cp: factor %d is %s, expected [%lld,in%s]: one row per term, as p, %s, has one "
                     "column per term", k, TNI_SHAPE(f[k]), (long long)p->shape[1],
                     constant ? " + 1 for the constant one" : "", TNI_SHAPE(p));
            return NULL;
        }
        in[k] = f[k]->shape[1];
    }
    cp = tni_cp_make(ctx, order, p->shape[0], p->shape[1], in, constant);
    if (!cp) return NULL;
    s = tni_copy(cp->p, p);
    for (k = 0; k < order && s == TN_OK; k++) s = tni_copy(cp->f[k], f[k]);
    return tni_cp_done(cp, s);
}

/* A copy with `more` further terms of zeros, and with the constant's column if it has none yet. */
TNI_FN tn_cp *tni_cp_extend(const tn_cp *cp, int64_t more, bool constant)
{
    int64_t   in[TN_CP_MAX_ORDER];
    tn_cp    *to;
    tn_status s;
    int       k, column = constant && !cp->constant;
    for (k = 0; k < cp->order; k++) in[k] = cp->in[k] + column;
    to = tni_cp_make(cp->ctx, cp->order, cp->out, cp->terms + more, in, cp->constant || constant);
    if (!to) return NULL;
    s = tni_put_copy(cp->ctx, tni_block_of(to->p, 0, cp->out, 0, cp->terms), tni_view(cp->p));
    for (k = 0; k < cp->order && s == TN_OK; k++)
        s = tni_put_copy(cp->ctx, tni_block_of(to->f[k], 0, cp->terms, 0, cp->in[k]), tni_view(cp->f[k]));
    return tni_cp_done(to, s);
}

/* Term `term` becomes a bias: b times the constant one, in every input. */
static tn_status tni_cp_put_bias(tn_cp *cp, int64_t term, tn_view b)
{
    tn_status s = tni_put_copy(cp->ctx, tni_block_of(cp->p, 0, cp->out, term, 1), b);
    int       k;
    for (k = 0; k < cp->order && s == TN_OK; k++)
        s = tni_put_value(cp->ctx, tni_block_of(cp->f[k], term, 1, cp->in[k] - 1, 1), 1);
    return s;
}

TNI_FN tn_cp *tni_cp_with_bias(const tn_cp *cp, tn_view b)
{
    tn_cp *to = cp ? tni_cp_extend(cp, 1, true) : NULL;
    return to ? tni_cp_done(to, tni_cp_put_bias(to, cp->terms, b)) : NULL;
}

/* Replaces an intermediate operator by the next one, which was made from it. */
TNI_FN tn_cp *tni_cp_next(tn_cp *used, tn_cp *next)
{
    tn_cp_destroy(used);
    return next;
}

static tn_view tni_slice_view(const tn_tensor *t, int64_t i)     /* slice i of [k,h,n] */
{
    tn_view v = tni_view(t);
    v.data = (char *)v.data + i * v.strides[0] * (int64_t)tni_dtype_size(v.dtype);
    v.rank = 2;
    v.shape[0] = v.shape[1]; v.shape[1] = v.shape[2];
    v.strides[0] = v.strides[1]; v.strides[1] = v.strides[2];
    return v;
}

/* The encoders, with the biases as their last columns where there are any; P, or I; then p as a term of its own. */
static tn_cp *tni_cp_from_encoders(const tn_mlp *m)
{
    const tn_mlp_desc *d = &m->desc;
    const int order = (int)m->w->shape[0];
    tn_ctx   *ctx = m->w->ctx;
    tn_cp    *cp;
    tn_status s;
    int64_t   in[TN_CP_MAX_ORDER];
    int       k;
    for (k = 0; k < order; k++) in[k] = d->in + (m->b || d->augmented);
    cp = tni_cp_make(ctx, order, d->out, d->hidden, in, m->b || d->augmented);
    if (!cp) return NULL;
    s = m->p ? tni_put_copy(ctx, tni_view(cp->p), tni_block_of(m->p, 0, d->out, 0, d->hidden))
             : tni_put_identity(ctx, tni_view(cp->p));
    for (k = 0; k < order && s == TN_OK; k++) {
        tn_view w = tni_slice_view(m->w, k);
        s = tni_put_copy(ctx, tni_block_of(cp->f[k], 0, d->hidden, 0, w.shape[1]), w);
        if (s == TN_OK && m->b) {
            tn_view b = tni_transposed_view(tni_block_of(m->b, k, 1, 0, d->hidden));
            s = tni_put_copy(ctx, tni_block_of(cp->f[k], 0, d->hidden, d->in, 1), b);
        }
    }
    cp = tni_cp_done(cp, s);
    if (cp && m->pb) cp = tni_cp_next(cp, tni_cp_with_bias(cp, tni_column_view(m->pb)));
    if (cp && m->p && d->augmented) cp = tni_cp_next(cp, tni_cp_with_bias(cp, tni_block_of(m->p, 0, d->out, d->hidden, 1)));
    return cp;
}

/* P = F_0 diag(weights), and the other factors transposed. */
tn_cp *tn_cp_from_als(tn_ctx *ctx, const tn_cp_als_result *r, tn_cp_input input)
{
    const bool constant = input == TN_CP_INPUT_CONSTANT;
    int64_t    in[TN_CP_MAX_ORDER];
    tn_cp     *cp;
    tn_status  s;
    int        k;
    if (!tni_usable(ctx, r ? r->weights : NULL, "cp_from_als", "the decomposition")) return NULL;
    if (r->rank > TN_CP_MAX_ORDER + 1) {
        tni_fail(ctx, TN_ERR_SHAPE, "cp_from_als: the decomposition is of a tensor of rank %d, expected 2 to %d", r->rank,
                 TN_CP_MAX_ORDER + 1);
        return NULL;
    }
    for (k = 1; k < r->rank; k++) {
        in[k - 1] = r->factor[k]->shape[0];
        if (in[k - 1] > 0 || !constant) continue;
        tni_fail(ctx, TN_ERR_SHAPE, "cp_from_als: axis %d has no elements, expected a last one for the constant one", k);
        return NULL;
    }
    cp = tni_cp_make(ctx, r->rank - 1, r->factor[0]->shape[0], r->weights->shape[0], in, constant);
    if (!cp) return NULL;
    s = tni_put_product(ctx, tni_view(cp->p), tni_view(r->factor[0]), tni_transposed_view(tni_column_view(r->weights)), false);
    for (k = 1; k < r->rank && s == TN_OK; k++)
        s = tni_put_copy(ctx, tni_view(cp->f[k - 1]), tni_transposed_view(tni_view(r->factor[k])));
    return tni_cp_done(cp, s);
}

tn_cp *tn_cp_from_mlp(tn_ctx *ctx, const tn_mlp *m)
{
    tn_cp *cp;
    if (!tni_usable(ctx, m ? m->w : NULL, "cp_from_mlp", "mlp")) return NULL;
    if (m->desc.kind != TN_MLP_BILINEAR) {
        tni_fail(ctx, TN_ERR_ARG, "cp_from_mlp: the layer's kind is %s, expected bilinear: no other one is a tensor",
                 tn_mlp_kind_name(m->desc.kind));
        return NULL;
    }
    if (m->w->shape[0] > TN_CP_MAX_ORDER) {
        tni_fail(ctx, TN_ERR_ARG, "cp_from_mlp: the layer has %lld encoders, expected at most %d (TN_CP_MAX_ORDER)",
                 (long long)m->w->shape[0], TN_CP_MAX_ORDER);
        return NULL;
    }
    cp = tni_cp_from_encoders(m);
    return cp && m->desc.residual ? tni_cp_next(cp, tn_cp_residual(cp)) : cp;
}

/* F_0 = [W 1] or [A B 1]   F_1 = [V c] */
tn_cp *tn_cp_from_modifier(tn_ctx *ctx, const tn_modifier *m)
{
    const tn_modifier_desc *d;
    int64_t   in[2], h, n;
    tn_cp    *cp;
    tn_view   w;
    tn_status s;
    if (!tni_usable(ctx, m ? m->v : NULL, "cp_from_modifier", "layer")) return NULL;
    d = &m->desc;
    h = d->hidden;
    n = d->in;
    if (d->step > 0) {
        tni_fail(ctx, TN_ERR_ARG, "cp_from_modifier: the layer's step is %g, expected 0: with rounding it is not a tensor",
                 d->step);
        return NULL;
    }
    in[0] = in[1] = n + 1;
    cp = tni_cp_make(ctx, 2, d->out, h, in, true);
    if (!cp) return NULL;
    w = tni_block_of(cp->f[0], 0, h, 0, n);
    s = m->w ? tni_put_copy(ctx, w, tni_view(m->w)) : tni_put_matmul(ctx, w, tni_view(m->wa), tni_view(m->wb), 1, 0);
    if (s == TN_OK) s = tni_put_value(ctx, tni_block_of(cp->f[0], 0, h, n, 1), 1);
    if (s == TN_OK) s = tni_put_copy(ctx, tni_block_of(cp->f[1], 0, h, 0, n), tni_view(m->v));
    if (s == TN_OK && m->c) s = tni_put_copy(ctx, tni_block_of(cp->f[1], 0, h, n, 1), tni_column_view(m->c));
    if (s == TN_OK) s = m->p ? tni_copy(cp->p, m->p) : tni_put_identity(ctx, tni_view(cp->p));
    cp = tni_cp_done(cp, s);
    return cp && m->pb ? tni_cp_next(cp, tni_cp_with_bias(cp, tni_column_view(m->pb))) : cp;
}

/* Term (o,i): P = e_o, F_0 = e_i, F_1 = t[o,i,:]. */
tn_cp *tn_cp_from_tensor(tn_ctx *ctx, const tn_tensor *t, tn_cp_input input)
{
    const bool constant = input == TN_CP_INPUT_CONSTANT;
    int64_t    in[2], out, n, terms, o;
    size_t     numbers, bytes;
    tn_cp     *cp;
    tn_status  s = TN_OK;
    if (!tni_is_real(ctx, t, "cp_from_tensor", "t")) return NULL;
    if (t->rank != 3 || (constant && (t->shape[1] < 1 || t->shape[2] < 1))) {
        tni_fail(ctx, TN_ERR_SHAPE, "cp_from_tensor: t is %s, expected [out,n,m]%s", TNI_SHAPE(t),
                 constant ? ", with a last row and column for the constant one" : "");
        return NULL;
    }
    out = t->shape[0];
    n = in[0] = t->shape[1];
    in[1] = t->shape[2];
    if (!tni_mul_size((size_t)out, (size_t)n, &numbers)
        || !tni_mul_size(numbers, (size_t)out + (size_t)n + (size_t)in[1], &numbers)
        || !tni_mul_size(numbers, tni_dtype_size(ctx->desc.dtype), &bytes)
        || (ctx->desc.max_bytes > 0 && bytes > ctx->desc.max_bytes)) {
        tni_fail(ctx, TN_ERR_MEMORY, "cp_from_tensor: t is %s, which makes %lld x %lld terms of %lld numbers, "
                 "more than max_bytes = %zu", TNI_SHAPE(t), (long long)out, (long long)n, (long long)(out + n + in[1]),
                 ctx->desc.max_bytes);
        return NULL;
    }
    terms = out * n;
    cp = tni_cp_make(ctx, 2, out, terms, in, constant);
    for (o = 0; cp && o < out && s == TN_OK; o++) {
        s = tni_put_value(ctx, tni_block_of(cp->p, o, 1, o * n, n), 1);
        if (s == TN_OK) s = tni_put_identity(ctx, tni_block_of(cp->f[0], o * n, n, 0, n));
        if (s == TN_OK) s = tni_put_copy(ctx, tni_block_of(cp->f[1], o * n, n, 0, in[1]), tni_slice_view(t, o));
    }
    return cp ? tni_cp_done(cp, s) : NULL;
}

tn_cp *tn_cp_from_quadratic(tn_ctx *ctx, const tn_quadratic *m)
{
    if (!tni_usable(ctx, m ? m->t : NULL, "cp_from_quadratic", "layer")) return NULL;
    return tn_cp_from_tensor(ctx, m->t, m->desc.bias || m->desc.augmented ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
}

/* To factors that can be trained: F_k as slice k of w, and the constant's column, if there is one, as b. */
tn_status tn_mlp_from_cp(tn_params *ps, const char *name, const tn_cp *cp, tn_mlp *layer)
{
    int64_t     before = tn_params_count(ps), n;
    tn_ctx     *ctx = tn_params_ctx(ps);
    tn_mlp_desc d;
    tn_status   s;
    int         k;
    if (!layer || !cp) return tni_fail(ctx, TN_ERR_ARG, "mlp_from_cp: %s is NULL", layer ? "the operator" : "the layer");
    memset(layer, 0, sizeof *layer);
    if (!tni_cp_of_params(ps, cp, "mlp_from_cp")) return tn_ctx_status(ctx);
    n = cp->in[0] - cp->constant;
    memset(&d, 0, sizeof d);
    d.in = n;
    d.hidden = cp->terms;
    d.out = cp->out;
    d.order = cp->order;
    d.bias = cp->constant;
    d.init.rule = d.init_out.rule = TN_INIT_ZERO;
    if ((s = tn_mlp_init(ps, name, &d, layer)) != TN_OK) return s;
    s = tni_copy(layer->p, cp->p);
    for (k = 0; k < cp->order && s == TN_OK; k++) {
        s = tni_put_copy(ctx, tni_slice_view(layer->w, k), tni_block_of(cp->f[k], 0, cp->terms, 0, n));
        if (s == TN_OK && d.bias)
            s = tni_put_copy(ctx, tni_transposed_view(tni_block_of(layer->b, k, 1, 0, cp->terms)),
                             tni_block_of(cp->f[k], 0, cp->terms, n, 1));
    }
    return tni_layer_done(ps, before, s == TN_OK, layer, sizeof *layer);
}

tn_status tn_quadratic_from_cp(tn_params *ps, const char *name, const tn_cp *cp, tn_quadratic *layer)
{
    int64_t           before = tn_params_count(ps);
    tn_ctx           *ctx = tn_params_ctx(ps);
    tn_quadratic_desc d;
    tn_tensor        *t;
    tn_status         s;
    if (!layer || !cp)
        return tni_fail(ctx, TN_ERR_ARG, "quadratic_from_cp: %s is NULL", layer ? "the operator" : "the layer");
    memset(layer, 0, sizeof *layer);
    if (!tni_cp_of_params(ps, cp, "quadratic_from_cp") || !tni_cp_is_bilinear(cp, "quadratic_from_cp"))
        return tn_ctx_status(ctx);
    memset(&d, 0, sizeof d);
    d.in = cp->in[0] - cp->constant;
    d.out = cp->out;
    d.bias = cp->constant;
    d.init.rule = TN_INIT_ZERO;
    if (!(t = tn_cp_dense(cp))) return tn_ctx_status(ctx);
    s = tn_quadratic_init(ps, name, &d, layer);
    if (s == TN_OK) s = tni_layer_done(ps, before, tni_copy(layer->t, t) == TN_OK, layer, sizeof *layer);
    tn_tensor_destroy(t);
    return s;
}

/* A linear layer's matrix and bias, wherever it keeps them. */
static bool tni_linear_parts(const tn_linear *l, tn_tensor **w, tn_tensor **b)
{
    *w = l->w;
    *b = l->b;
    if (!l->desc.augmented) return true;
    *w = tn_slice(l->w, 1, 0, l->desc.in);
    *b = tn_slice(l->w, 1, l->desc.in, l->desc.in + 1);
    if (*b) (*b)->rank = 1;                          /* the last column, as a vector */
    return *w && *b;
}

tn_cp *tn_cp_from_stack(tn_ctx *ctx, const tn_linear *embed, const tn_mlp *mlp, const tn_linear *unembed)
{
    tn_cp     *cp = tn_cp_from_mlp(ctx, mlp);
    tn_tensor *w, *b;
    tni_scope  scope;
    if (!cp) return NULL;
    scope = tni_scope_begin(ctx);
    if (unembed) {
        bool whole = tni_linear_parts(unembed, &w, &b);
        cp = tni_cp_next(cp, whole ? tn_cp_fold_out(cp, w, b) : NULL);
    }
    if (cp && embed) {
        bool whole = tni_linear_parts(embed, &w, &b);
        cp = tni_cp_next(cp, whole ? tn_cp_fold_in(cp, w, b) : NULL);
    }
    tni_scope_end(ctx, scope);
    return cp;
}

#endif /* TN_NO_OPERATOR */
