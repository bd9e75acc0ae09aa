#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "decomp/decomp.h"
#include "layers/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- made from layers and stacks, and made into layers -------------------- >>cp-layers */

/* The operator with p as a term of its own, and the residual; cp is used up, and may be NULL. */
static tn_cp *tni_cp_ended(tn_cp *cp, const tn_mlp *m)
{
    const tn_mlp_desc *d = &m->desc;
    if (cp && m->pb) cp = tni_cp_next(cp, tni_cp_with_bias(cp, tni_column_view(m->pb)));
    if (cp && m->p && d->augmented) cp = tni_cp_next(cp, tni_cp_with_bias(cp, tni_block_of(m->p, 0, d->out, d->hidden, 1)));
    return cp && d->residual ? tni_cp_next(cp, tn_cp_residual(cp)) : cp;
}

/* The encoders, with the biases as their last columns where there are any; P, or I; then p as a term of its own. */
static tn_cp *tni_cp_from_encoders(const tn_mlp *m)
{
    const tn_mlp_desc *d = &m->desc;
    const int order = (int)m->w->shape[0];
    tn_ctx   *ctx = m->w->ctx;
    int64_t   in[TN_CP_MAX_ORDER];
    for (int k = 0; k < order; k++) in[k] = d->in + (m->b || d->augmented);
    tn_cp *cp = tni_cp_make(ctx, order, d->out, d->hidden, in, m->b || d->augmented);
    if (!cp) return NULL;
    tn_status s = m->p ? tni_put_copy(ctx, tni_view(cp->p), tni_block_of(m->p, 0, d->out, 0, d->hidden))
             : tni_put_identity(ctx, tni_view(cp->p));
    for (int k = 0; k < order && s == TN_OK; k++) {
        tn_view w = tni_slice_view(m->w, k);
        s = tni_put_copy(ctx, tni_block_of(cp->f[k], 0, d->hidden, 0, w.shape[1]), w);
        if (s == TN_OK && m->b) {
            tn_view b = tni_transposed_view(tni_block_of(m->b, k, 1, 0, d->hidden));
            s = tni_put_copy(ctx, tni_block_of(cp->f[k], 0, d->hidden, d->in, 1), b);
        }
    }
    return tni_cp_ended(tni_cp_done(cp, s), m);
}

#ifndef TN_NO_ANALYSIS
/* P = F_0 diag(weights), and the other factors transposed. */
tn_cp *tn_cp_from_als(tn_ctx *ctx, const tn_cp_als_result *r, tn_cp_input input)
{
    const bool constant = input == TN_CP_INPUT_CONSTANT;
    int64_t    in[TN_CP_MAX_ORDER];
    if (!tni_usable(ctx, r ? r->weights : NULL, "cp_from_als", "the decomposition")) return NULL;
    if (r->rank > TN_CP_MAX_ORDER + 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "cp_from_als: the decomposition is of a tensor of rank %d, expected 2 to %d",
                        r->rank, TN_CP_MAX_ORDER + 1), (tn_cp *)NULL;
    for (int k = 1; k < r->rank; k++) {
        in[k - 1] = r->factor[k]->shape[0];
        if (in[k - 1] > 0 || !constant) continue;
        return tni_fail(ctx, TN_ERR_SHAPE, "cp_from_als: axis %d has no elements, expected a last one for the constant one",
                        k), (tn_cp *)NULL;
    }
    tn_cp *cp = tni_cp_make(ctx, r->rank - 1, r->factor[0]->shape[0], r->weights->shape[0], in, constant);
    if (!cp) return NULL;
    tn_status s = tni_put_product(ctx, tni_view(cp->p), tni_view(r->factor[0]), tni_transposed_view(tni_column_view(r->weights)),
                                  false);
    for (int k = 1; k < r->rank && s == TN_OK; k++)
        s = tni_put_copy(ctx, tni_view(cp->f[k - 1]), tni_transposed_view(tni_view(r->factor[k])));
    return tni_cp_done(cp, s);
}
#endif

TNI_COLD tn_cp *tn_cp_from_mlp(tn_ctx *ctx, const tn_mlp *m)
{
    if (!tni_usable(ctx, m ? m->w : NULL, "cp_from_mlp", "mlp")) return NULL;
    if (m->desc.kind != TN_MLP_BILINEAR)
        return tni_fail(ctx, TN_ERR_ARG, "cp_from_mlp: the layer's kind is %s, expected bilinear: no other one is a tensor",
                        tn_mlp_kind_name(m->desc.kind)), (tn_cp *)NULL;
    if (m->w->shape[0] > TN_CP_MAX_ORDER)
        return tni_fail(ctx, TN_ERR_ARG, "cp_from_mlp: the layer has %lld encoders, expected at most %d (TN_CP_MAX_ORDER)",
                        (long long)m->w->shape[0], TN_CP_MAX_ORDER), (tn_cp *)NULL;
    return tni_cp_from_encoders(m);
}

/* The polynomials' highest degree, at least 1; 0: they or the layer cannot be used. */
static int tni_polynomial_degree(tn_ctx *ctx, const tn_mlp *m, const tn_polynomial *act, int64_t count)
{
    const int most = m->w->shape[0] == 2 ? TN_CP_MAX_ORDER - 1 : TN_CP_MAX_ORDER;
    int       degree = 1;
    if (m->desc.kind == TN_MLP_BILINEAR)
        return tni_fail(ctx, TN_ERR_ARG, "cp_from_mlp_polynomial: the layer's kind is bilinear, expected one with an activation: "
                        "tn_cp_from_mlp takes it as it is"), 0;
    if (!act || (count != 1 && count != m->desc.hidden))
        return tni_fail(ctx, TN_ERR_ARG, "cp_from_mlp_polynomial: act is %s and count %lld, expected 1 or %lld polynomials, the "
                        "layer's hidden units", act ? "given" : "NULL", (long long)count, (long long)m->desc.hidden), 0;
    for (int64_t i = 0; i < count; i++) {
        if (act[i].degree < 0 || act[i].degree > most)
            return tni_fail(ctx, TN_ERR_ARG, "cp_from_mlp_polynomial: polynomial %lld has degree %d, expected 0 to %d, the "
                            "highest for a layer of kind %s (TN_CP_MAX_ORDER is %d)", (long long)i, act[i].degree, most,
                            tn_mlp_kind_name(m->desc.kind), TN_CP_MAX_ORDER), 0;
        degree = act[i].degree > degree ? act[i].degree : degree;
        for (int k = 0; k <= act[i].degree; k++)
            if (!isfinite(act[i].c[k]) || !isfinite(act[i].centre) || !isfinite(1 / act[i].width))
                return tni_fail(ctx, TN_ERR_NONFINITE, "cp_from_mlp_polynomial: polynomial %lld has coefficient %g, centre %g "
                                "and width %g, expected finite numbers, and a width other than 0", (long long)i, act[i].c[k],
                                act[i].centre, act[i].width), 0;
    }
    return degree;
}

/* Term (k,i) is c_k of unit i times the k-th power of its z: k factors are z, the last one is V's where there is a V, and the
   others are the one. */
static tn_cp *tni_cp_of_powers(tn_ctx *ctx, const tn_mlp *m, const tn_polynomial *act, bool one, int degree)
{
    const tn_mlp_desc *d = &m->desc;
    const int64_t h = d->hidden, n = d->in + 1, terms = (degree + 1) * h, row = m->w->shape[2];
    const int     order = degree + (int)m->w->shape[0] - 1;
    int64_t       in[TN_CP_MAX_ORDER];
    tni_scratch   s = tni_scratch_begin(ctx, "cp_from_mlp_polynomial");
    for (int k = 0; k < order; k++) in[k] = n;
    tn_cp  *cp = tni_cp_make(ctx, order, d->out, terms, in, true);
    double *w = cp ? tni_take_numbers(&s, m->w) : NULL, *b = w && m->b ? tni_take_numbers(&s, m->b) : NULL;
    double *p = w && m->p ? tni_take_numbers(&s, m->p) : NULL;
    double *f = tni_take_f64(&s, terms, n), *q = tni_take_f64(&s, d->out, terms);
    tn_status status = !w || !f || !q || (m->b && !b) || (m->p && !p) ? TN_ERR_MEMORY : TN_OK;
    for (int slot = 0; slot < order && status == TN_OK; slot++) {
        for (int64_t t = 0; t < terms; t++) {
            const int64_t        i = t % h, e = slot < degree ? 0 : 1;
            const tn_polynomial *z = &act[one ? 0 : i];
            const double         by = e ? 1 : z->width;
            double              *to = f + t * n;
            memset(to, 0, (size_t)n * sizeof *to);
            to[d->in] = 1;
            if (!e && slot >= t / h) continue;
            for (int64_t j = 0; j < row; j++) to[j] = w[(e * h + i) * row + j] / by;
            if (row < n) to[d->in] = m->b ? b[e * h + i] / by : 0;
            if (!e) to[d->in] -= z->centre / by;
        }
        status = tn_write(cp->f[slot], TN_F64, f, terms * n);
    }
    for (int64_t o = 0; o < d->out && status == TN_OK; o++)
        for (int64_t t = 0; t < terms; t++) {
            const int64_t i = t % h, k = t / h, z = one ? 0 : i;
            q[o * terms + t] = (k <= act[z].degree ? act[z].c[k] : 0) * (m->p ? p[o * m->p->shape[1] + i] : o == i);
        }
    if (status == TN_OK) status = tn_write(cp->p, TN_F64, q, d->out * terms);
    status = tni_scratch_end(&s, status);
    return cp ? tni_cp_done(cp, status) : NULL;
}

tn_cp *tn_cp_from_mlp_polynomial(tn_ctx *ctx, const tn_mlp *m, const tn_polynomial *act, int64_t count)
{
    if (!tni_usable(ctx, m ? m->w : NULL, "cp_from_mlp_polynomial", "mlp")) return NULL;
    const int degree = tni_polynomial_degree(ctx, m, act, count);
    return degree ? tni_cp_ended(tni_cp_of_powers(ctx, m, act, count == 1, degree), m) : NULL;
}

/* F_0 = [W 1] or [A B 1]   F_1 = [V c] */
tn_cp *tn_cp_from_modifier(tn_ctx *ctx, const tn_modifier *m)
{
    if (!tni_usable(ctx, m ? m->v : NULL, "cp_from_modifier", "layer")) return NULL;
    const tn_modifier_desc *d = &m->desc;
    int64_t                 h = d->hidden, n = d->in;
    if (d->step > 0)
        return tni_fail(ctx, TN_ERR_ARG, "cp_from_modifier: the layer's step is %g, expected 0: with rounding it is not a "
                        "tensor", d->step), (tn_cp *)NULL;
    int64_t in[2] = {n + 1, n + 1};
    tn_cp  *cp = tni_cp_make(ctx, 2, d->out, h, in, true);
    if (!cp) return NULL;
    tn_view   w = tni_block_of(cp->f[0], 0, h, 0, n);
    tn_status s = m->w ? tni_put_copy(ctx, w, tni_view(m->w)) : tni_put_matmul(ctx, w, tni_view(m->wa), tni_view(m->wb), 1, 0);
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
    int64_t    in[2], n;
    size_t     numbers, bytes;
    tn_status  s = TN_OK;
    if (!tni_is_real(ctx, t, "cp_from_tensor", "t")) return NULL;
    if (t->rank != 3 || (constant && (t->shape[1] < 1 || t->shape[2] < 1)))
        return tni_fail(ctx, TN_ERR_SHAPE, "cp_from_tensor: t is %s, expected [out,n,m]%s", TNI_SHAPE(t),
                        constant ? ", with a last row and column for the constant one" : ""), (tn_cp *)NULL;
    int64_t out = t->shape[0];
    n = in[0] = t->shape[1];
    in[1] = t->shape[2];
    if (!tni_mul_size((size_t)out, (size_t)n, &numbers)
        || !tni_mul_size(numbers, (size_t)out + (size_t)n + (size_t)in[1], &numbers)
        || !tni_mul_size(numbers, tni_dtype_size(ctx->desc.dtype), &bytes)
        || (ctx->desc.max_bytes > 0 && bytes > ctx->desc.max_bytes))
        return tni_fail(ctx, TN_ERR_MEMORY, "cp_from_tensor: t is %s, which makes %lld x %lld terms of %lld numbers, more than "
                        "max_bytes = %zu", TNI_SHAPE(t), (long long)out, (long long)n, (long long)(out + n + in[1]),
                        ctx->desc.max_bytes), (tn_cp *)NULL;
    int64_t terms = out * n;
    tn_cp  *cp = tni_cp_make(ctx, 2, out, terms, in, constant);
    for (int64_t o = 0; cp && o < out && s == TN_OK; o++) {
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
TNI_COLD tn_status tn_mlp_from_cp(tn_params *ps, const char *name, const tn_cp *cp, tn_mlp *layer)
{
    int64_t   before = tn_params_count(ps);
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_status s;
    if (!layer || !cp) return tni_fail(ctx, TN_ERR_ARG, "mlp_from_cp: %s is NULL", layer ? "the operator" : "the layer");
    memset(layer, 0, sizeof *layer);
    if (!tni_cp_of_params(ps, cp, "mlp_from_cp")) return tn_ctx_status(ctx);
    int64_t n = cp->in[0] - cp->constant;
    tn_mlp_desc d = TNI_ZERO;
    d.in = n;
    d.hidden = cp->terms;
    d.out = cp->out;
    d.order = cp->order;
    d.bias = cp->constant;
    d.init.rule = d.init_out.rule = TN_INIT_ZERO;
    if ((s = tn_mlp_init(ps, name, &d, layer)) != TN_OK) return s;
    s = tni_copy(layer->p, cp->p);
    for (int k = 0; k < cp->order && s == TN_OK; k++) {
        s = tni_put_copy(ctx, tni_slice_view(layer->w, k), tni_block_of(cp->f[k], 0, cp->terms, 0, n));
        if (s == TN_OK && d.bias)
            s = tni_put_copy(ctx, tni_transposed_view(tni_block_of(layer->b, k, 1, 0, cp->terms)),
                             tni_block_of(cp->f[k], 0, cp->terms, n, 1));
    }
    return tni_layer_done(ps, before, s == TN_OK, layer, sizeof *layer);
}

tn_status tn_quadratic_from_cp(tn_params *ps, const char *name, const tn_cp *cp, tn_quadratic *layer)
{
    int64_t    before = tn_params_count(ps);
    tn_ctx    *ctx = tn_params_ctx(ps);
    tn_tensor *t;
    if (!layer || !cp)
        return tni_fail(ctx, TN_ERR_ARG, "quadratic_from_cp: %s is NULL", layer ? "the operator" : "the layer");
    memset(layer, 0, sizeof *layer);
    if (!tni_cp_of_params(ps, cp, "quadratic_from_cp") || !tni_cp_is_bilinear(cp, "quadratic_from_cp"))
        return tn_ctx_status(ctx);
    tn_quadratic_desc d = TNI_ZERO;
    d.in = cp->in[0] - cp->constant;
    d.out = cp->out;
    d.bias = cp->constant;
    d.init.rule = TN_INIT_ZERO;
    if (!(t = tn_cp_dense(cp))) return tn_ctx_status(ctx);
    tn_status s = tn_quadratic_init(ps, name, &d, layer);
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

TNI_COLD tn_cp *tn_cp_from_stack(tn_ctx *ctx, const tn_linear *embed, const tn_mlp *mlp, const tn_linear *unembed)
{
    tn_cp     *cp = tn_cp_from_mlp(ctx, mlp);
    tn_tensor *w, *b;
    if (!cp) return NULL;
    tni_scope scope = tni_scope_begin(ctx);
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
