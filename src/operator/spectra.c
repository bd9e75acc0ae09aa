#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- spectra ------------------------------------------------------------ >>cp-spectra-impl
   |Q_o|^2 = sum_i l_i^2 without any eigenvalue: from Q_o itself, 2 h n^2 flops each, or for all at once from the inner
   products of terms (>>cp-pairs), 6 h^2 n. In double. */

static tn_status tni_norms_dense(const tn_cp *cp, double *norms)
{
    const int64_t     n = cp->in[0];
    tni_scratch       w = tni_scratch_begin(cp->ctx, "spectrum");
    double           *q = tni_take_zeros(&w, n, n), *d = tni_take_zeros(&w, cp->out, cp->terms);
    tni_eigen_product p;
    tn_status         s = tni_eigen_product_begin(&p, cp, true, 1);
    if (s == TN_OK && w.failed) s = TN_ERR_MEMORY;
    if (s == TN_OK) s = tn_read(cp->p, TN_F64, d, cp->out * cp->terms);
    for (int64_t o = 0; o < cp->out && s == TN_OK; o++) {
        s = tn_write(p.d, TN_F64, d + o * cp->terms, cp->terms);
        if (s == TN_OK) s = tni_eigen_form(&p, cp);
        if (s == TN_OK) s = tn_read(p.m, TN_F64, q, n * n);
        norms[o] = tni_frobenius(n * n, q);
    }
    tni_eigen_product_end(&p);
    return tni_scratch_end(&w, s);
}

static tn_status tni_norms_gram(const tn_cp *cp, double *norms)
{
    tni_scratch w = tni_scratch_begin(cp->ctx, "spectrum");
    int        *row = (int *)tni_take(&w, cp->out, sizeof *row);
    tn_status   s = row ? tni_cp_gram_host(cp, cp, true, norms, row, NULL, "spectrum") : TN_ERR_MEMORY;
    for (int64_t o = 0; o < cp->out && s == TN_OK; o++) norms[o] = ldexp(sqrt(tni_max_f64(0, norms[o])), row[o]);
    return tni_scratch_end(&w, s);
}

/* The interval of (sum |l|)^2 / sum l^2 for an output of which `count` of `all` values are known, divided by the norm. E,
   the rest of the sum of squares, belongs to all - count values of at most c = |last|, so E/c <= their sum <=
   min(sqrt((all - count) E), (all - count) c). `slack` bounds the rounding error of E. */
static void tni_rank_interval(const double *values, int64_t count, int64_t all, double norm, double slack, double *low,
                              double *high)
{
    double sum = 0, rest = 1, c = count > 0 ? fabs(values[count - 1]) / norm : HUGE_VAL, left = (double)(all - count);
    *low = *high = 0;
    if (!(norm > 0)) return;
    if (count == all) {
        *low = *high = tn_effective_rank(values, count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        double value = fabs(values[i]) / norm;
        sum += value;
        rest -= value * value;
    }
    double more = sqrt(left * tni_max_f64(rest + slack, 0));
    if (left * c < more) more = left * c;
    *high = (sum + more) * (sum + more);
    *low = sum + (c > 0 ? tni_max_f64(rest - slack, 0) / c : 0);
    *low *= *low;
}

static tn_status tni_spectrum_fill(const tn_cp *cp, const tn_eigenpairs *e, tn_spectrum *out, double *values, double *numbers)
{
    tn_ctx   *ctx = cp->ctx;
    int64_t   n = cp->in[0], h = cp->terms, all = tni_min(n, 2 * h), k = e->count;
    double   *norm = numbers, *low = norm + cp->out, *high = low + cp->out;
    double    slack = ctx->desc.dtype == TN_F32 ? 1e-6 : 1e-13;
    tn_status s = tn_read(e->values, TN_F64, values, cp->out * k);
    if (s == TN_OK && k < all)
        s = (double)cp->out * (double)n > 3 * (double)h ? tni_norms_gram(cp, norm) : tni_norms_dense(cp, norm);
    for (int64_t o = 0; o < cp->out && s == TN_OK; o++) {
        if (k == all) norm[o] = tni_frobenius(k, values + o * k);
        tni_rank_interval(values + o * k, k, all, norm[o], slack, low + o, high + o);
    }
    if (s != TN_OK) return s;
    out->norm = tni_owned_scaled(ctx, 1, &cp->out, norm, 0, "spectrum");
    out->rank_low = tni_owned_from(ctx, 1, &cp->out, low);
    out->rank_high = tni_owned_from(ctx, 1, &cp->out, high);
    return out->norm && out->rank_low && out->rank_high ? TN_OK : tn_ctx_status(ctx);
}

TNI_COLD_FN tn_status tni_cp_spectrum(const tn_cp *cp, int64_t count, tn_spectrum *out, const char *op)
{
    tn_eigenpairs  e;
    tn_status s = TN_ERR_MEMORY;
    if (out) memset(out, 0, sizeof *out);
    else return cp ? tni_fail(cp->ctx, TN_ERR_ARG, "%s: out is NULL, expected a place for the result", op) : TN_ERR_ARG;
    if ((s = tni_eigen_all(cp, count, false, &e, op)) != TN_OK) return s;
    tni_scratch w = tni_scratch_begin(cp->ctx, op);
    double     *values = tni_take_zeros(&w, cp->out, e.count), *numbers = tni_take_zeros(&w, cp->out, 3);
    out->outputs = cp->out;
    out->count = e.count;
    s = w.failed ? TN_ERR_MEMORY : tni_spectrum_fill(cp, &e, out, values, numbers);
    out->values = e.values;
    e.values = NULL;
    tn_eigenpairs_destroy(&e);                                    /* with its vectors, if any */
    if (s != TN_OK) tn_spectrum_destroy(out);
    return tni_scratch_end(&w, s);
}

tn_status tn_cp_spectrum(const tn_cp *cp, int64_t count, tn_spectrum *out)
{
    return tni_cp_spectrum(cp, count, out, "spectrum");
}

void tn_spectrum_destroy(tn_spectrum *s) { tni_result_end(s, sizeof *s, offsetof(tn_spectrum, values), 4); }

/* Reads s [n,n], which must be symmetric up to rounding of its dtype. */
TNI_COLD_FN tn_status tni_reads_symmetric(const tn_tensor *s, double *a, const char *op)
{
    tn_status status = tni_read_scaled(s->ctx, op, "s", s, a, NULL);
    return status == TN_OK ? tni_symmetric_parts(s->ctx, op, "s", "", s, a) : status;
}

/* R = diag(l^1/4) V, so that S^1/2 = R^T R. If an eigenvalue is negative by more than rounding, s is not semidefinite. */
static tn_status tni_quarter_root(tn_ctx *ctx, const tn_tensor *s, tn_tensor **root)
{
    tn_eigh_result e;
    int64_t        n = s->shape[0];
    tni_scratch    w = tni_scratch_begin(ctx, "data_metric");
    double        *l = tni_take_f64(&w, n, n);
    tn_status      status = tni_scratch_end(&w, l ? tni_reads_symmetric(s, l, "data_metric") : TN_ERR_MEMORY);
    *root = NULL;
    if (status != TN_OK) return status;
    tn_eigh_desc desc = TNI_ZERO;
    desc.symmetrise = true;                           /* of what is left, rounding errors */
    if ((status = tn_eigh(ctx, s, &desc, &e)) != TN_OK) return status;
    l = tni_take_f64(&w, n, 1);
    status = l ? tn_read(e.values, TN_F64, l, n) : TN_ERR_MEMORY;
    if (status == TN_OK && n > 0 && l[0] < -(ctx->desc.dtype == TN_F32 ? 1e-5 : 1e-10) * fabs(l[n - 1]))
        status = tni_fail(ctx, TN_ERR_ARG, "data_metric: s has an eigenvalue of %g beside %g, expected none below 0",
                          l[0], l[n - 1]);
    for (int64_t i = 0; i < n && status == TN_OK; i++) l[i] = sqrt(sqrt(tni_max_f64(l[i], 0)));
    if (status == TN_OK) status = tn_write(e.values, TN_F64, l, n);
    *root = status == TN_OK ? tn_tensor_2d(ctx, TN_REAL, n, n) : NULL;
    if (*root) status = tni_put_product(ctx, tni_view(*root), tni_view(e.vectors), tni_column_view(e.values), false);
    else if (status == TN_OK) status = TN_ERR_MEMORY;
    tn_eigh_destroy(&e);
    return tni_scratch_end(&w, status);
}

TNI_COLD tn_cp *tn_cp_data_metric(const tn_cp *cp, const tn_tensor *s)
{
    tn_cp     *to = NULL;
    tn_tensor *root;
    if (!tni_cp_one_input(cp, "data_metric") || !tni_is_matrix(cp->ctx, s, "data_metric", "s")) return NULL;
    tn_ctx *ctx = cp->ctx;
    if (s->shape[0] != cp->in[0] || s->shape[1] != cp->in[0])
        return tni_fail(ctx, TN_ERR_SHAPE, "data_metric: s is %s, expected [%lld,%lld] as the operator's inputs%s",
                        TNI_SHAPE(s), (long long)cp->in[0], (long long)cp->in[0],
                        cp->constant ? ", including the constant one" : ""), (tn_cp *)NULL;
    tni_scope  scope = tni_scope_begin(ctx);
    tn_status  status = tni_quarter_root(ctx, s, &root);
    tn_tensor *half = status == TN_OK ? tn_tensor_2d(ctx, TN_REAL, cp->in[0], cp->in[0]) : NULL;
    if (half) status = tni_put_matmul(ctx, tni_view(half), tni_transposed_view(tni_view(root)), tni_view(root), 1, 0);
    tn_cp plain = *cp;
    plain.constant = false;
    if (half && status == TN_OK) to = tni_cp_fold(&plain, 0, cp->order, half, NULL, NULL, "data_metric");
    tni_scope_end(ctx, scope);
    return to;
}

/* ---- comparing ---------------------------------------------------------- >>cp-comparing-impl
   K[h,h'] = mean over permutations of prod_s F_s[h] . F'_permutation(s)[h']      G = P K P'^T      <T,T'> = tr G
   Order 2: K = 1/2 [(W W'^T) * (V V'^T) + (W V'^T) * (V W'^T)]. See >>cp-pairs. */

TNI_COLD_FN bool tni_cp_comparable(const tn_cp *a, const tn_cp *b, const char *op)
{
    if (!a) return false;
    if (!b) tni_fail(a->ctx, TN_ERR_ARG, "%s: the second operator is NULL", op);
    else if (b->ctx != a->ctx) tni_fail(a->ctx, TN_ERR_ARG, "%s: the operators are of two contexts, expected one", op);
    else if (b->order != a->order)
        tni_fail(a->ctx, TN_ERR_SHAPE, "%s: the operators have orders %d and %d, expected the same", op, a->order, b->order);
    else if (!tni_cp_one_input(a, op) || !tni_cp_one_input(b, op)) return false;
    else if (a->in[0] != b->in[0])
        tni_fail(a->ctx, TN_ERR_SHAPE, "%s: the inputs have %lld and %lld elements, expected the same", op,
                 (long long)a->in[0], (long long)b->in[0]);
    else if (a->constant != b->constant)
        tni_fail(a->ctx, TN_ERR_SHAPE, "%s: one operator has a constant input, the other has none, expected the same", op);
    else return true;
    return false;
}

/* P' = [s_0 P_0, s_1 P_1, ..]   F' = [F_0; F_1; ..] */
tn_cp *tn_cp_mean(int count, const tn_cp *const *cp, const double *weights)
{
    if (count < 1 || !cp || !cp[0]) return NULL;
    const tn_cp *a = cp[0];
    int64_t      terms = 0;
    for (int i = 0; i < count; i++) {
        if (!tni_cp_comparable(a, cp[i], "mean")) return NULL;
        if (cp[i]->out != a->out)
            return tni_fail(a->ctx, TN_ERR_SHAPE, "mean: the operators have %lld and %lld outputs, expected the same",
                            (long long)a->out, (long long)cp[i]->out), (tn_cp *)NULL;
        if (weights && !(fabs(weights[i]) < HUGE_VAL))
            return tni_fail(a->ctx, TN_ERR_NONFINITE, "mean: weight %d is %g, expected a finite number", i, weights[i]),
                   (tn_cp *)NULL;
        terms = tni_plus(terms, cp[i]->terms);
    }
    tn_cp    *to = tni_cp_make(a->ctx, a->order, a->out, terms, a->in, a->constant);
    tn_status s = TN_OK;
    if (!to) return NULL;
    for (int64_t i = 0, at = 0; i < count && s == TN_OK; at += cp[i++]->terms) {
        s = tni_put_scaled(a->ctx, tni_block_of(to->p, 0, a->out, at, cp[i]->terms), tni_view(cp[i]->p),
                           weights ? weights[i] : 1 / (double)count);
        for (int k = 0; k < a->order && s == TN_OK; k++)
            s = tni_put_copy(a->ctx, tni_block_of(to->f[k], at, cp[i]->terms, 0, a->in[k]), tni_view(cp[i]->f[k]));
    }
    return tni_cp_done(to, s);
}

tn_tensor *tn_cp_gram(const tn_cp *a, const tn_cp *b)
{
    tn_tensor *gram = NULL;
    if (!tni_cp_comparable(a, b, "gram")) return NULL;
    tni_scratch w = tni_scratch_begin(a->ctx, "gram");
    double     *g = tni_take_f64(&w, a->out, b->out);
    int        *row = (int *)tni_take(&w, tni_plus(a->out, b->out), sizeof *row);
    if (row && tni_cp_gram_host(a, b, false, g, row, row + a->out, "gram") == TN_OK)
        gram = tni_owned_by_rows(a->ctx, 2, TNI_DIMS(a->out, b->out), g, 0, row, row + a->out, "gram");
    tni_scratch_release(&w, NULL);
    return gram;
}

tn_tensor *tn_cp_cosines(const tn_cp *a, const tn_cp *b)
{
    tn_tensor *cosines = NULL;
    if (!tni_cp_comparable(a, b, "cosines")) return NULL;
    tni_scratch w = tni_scratch_begin(a->ctx, "cosines");
    double     *g = tni_take_f64(&w, a->out, b->out), *na = tni_take_f64(&w, a->out, 1), *nb = tni_take_f64(&w, b->out, 1);
    int        *row = (int *)tni_take(&w, tni_max(a->out, b->out), sizeof *row);     /* no part of a cosine */
    tn_status   s = w.failed ? TN_ERR_MEMORY : tni_cp_gram_host(a, b, false, g, row, NULL, "cosines");
    if (s == TN_OK && b != a) s = tni_cp_gram_host(a, a, true, na, row, NULL, "cosines");
    if (s == TN_OK && b != a) s = tni_cp_gram_host(b, b, true, nb, row, NULL, "cosines");
    for (int64_t i = 0; i < a->out && s == TN_OK && b == a; i++) na[i] = nb[i] = g[i * a->out + i];
    for (int64_t i = 0; i < a->out && s == TN_OK; i++)
        for (int64_t j = 0; j < b->out; j++)
            g[i * b->out + j] = na[i] > 0 && nb[j] > 0 ? g[i * b->out + j] / sqrt(na[i]) / sqrt(nb[j]) : (double)NAN;
    if (s == TN_OK) cosines = tni_owned_from(a->ctx, 2, TNI_DIMS(a->out, b->out), g);
    tni_scratch_release(&w, NULL);
    return cosines;
}

/* Checks for tn_cp_inner and its kin, whose result is NaN until it is known. */
static tn_status tni_cp_compares(const tn_cp *a, const tn_cp *b, double *result, const char *op)
{
    if (result) *result = (double)NAN;
    if (!a) return TN_ERR_ARG;
    if (!result) return tni_fail(a->ctx, TN_ERR_ARG, "%s: %s is NULL, expected a place for the result", op, op);
    if (!tni_cp_comparable(a, b, op)) return b && b->ctx == a->ctx ? TN_ERR_SHAPE : TN_ERR_ARG;
    if (a->out == b->out) return TN_OK;
    return tni_fail(a->ctx, TN_ERR_SHAPE, "%s: the operators have %lld and %lld outputs, expected the same", op,
                    (long long)a->out, (long long)b->out);
}

tn_status tn_cp_inner(const tn_cp *a, const tn_cp *b, double *inner)
{
    tn_status s = tni_cp_compares(a, b, inner, "inner");
    double    sum;
    int       shift;
    if (s == TN_OK) s = tni_cp_inner_host(a, b, &sum, &shift, "inner");
    if (s == TN_OK) s = tni_scale_result(a->ctx, &sum, shift, "inner");
    if (s == TN_OK) *inner = sum;
    return s;
}

tn_status tn_cp_norm(const tn_cp *a, double *norm)
{
    tn_status s = tni_cp_compares(a, a, norm, "norm");
    double    sum;
    int       shift;                                         /* even, as the two of one operator are equal */
    if (s == TN_OK) s = tni_cp_inner_host(a, a, &sum, &shift, "norm");
    if (s == TN_OK) sum = sum > 0 ? sqrt(sum) : 0;           /* rounding may make the sum of a zero operator negative */
    if (s == TN_OK) s = tni_scale_result(a->ctx, &sum, shift / 2, "norm");
    if (s == TN_OK) *norm = sum;
    return s;
}

tn_status tn_cp_cosine(const tn_cp *a, const tn_cp *b, double *cosine)
{
    tn_status s = tni_cp_compares(a, b, cosine, "cosine");
    double    inner = 0, aa, bb;
    int       shift;
    if (s == TN_OK) s = tni_cp_inner_host(a, a, &aa, &shift, "cosine");
    if (a == b) inner = bb = aa;
    else if (s == TN_OK && (s = tni_cp_inner_host(b, b, &bb, &shift, "cosine")) == TN_OK)
        s = tni_cp_inner_host(a, b, &inner, &shift, "cosine");
    if (s == TN_OK && aa > 0 && bb > 0) *cosine = inner / sqrt(aa) / sqrt(bb);
    return s;
}

#endif /* TN_NO_OPERATOR */
