#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- folding ------------------------------------------------------------ >>cp-folding-impl
   In: F [E b; 0 1], that is F' = F[:,:m] E and, for the constant, F[:,:m] b + F[:,m].      Out: U P. */

static bool tni_fold_takes(const tn_cp *cp, int slot, const tn_tensor *e, const tn_tensor *b, const char *op)
{
    int64_t m = cp->in[slot] - cp->constant;
    if (!tni_is_matrix(cp->ctx, e, op, "e")) return false;
    if (e->shape[0] == m) return !b || tni_is_vector(cp->ctx, b, m, op, "b");
    return tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: e is %s, expected %lld rows, the operator's inputs%s", op, TNI_SHAPE(e),
                    (long long)m, cp->constant ? " without the constant one" : ""), false;
}

/* F [E b; 0 one] */
static tn_status tni_fold_factor(const tn_cp *cp, tn_cp *to, int k, const tn_tensor *e, const tn_tensor *b, double one)
{
    const int64_t m = cp->in[k] - cp->constant, n = e->shape[1];
    tn_view   f = tni_block_of(cp->f[k], 0, cp->terms, 0, m), last = tni_block_of(to->f[k], 0, cp->terms, n, 1);
    tn_status s = tni_put_matmul(cp->ctx, tni_block_of(to->f[k], 0, cp->terms, 0, n), f, tni_view(e), 1, 0);
    if (s == TN_OK && cp->constant) s = tni_put_scaled(cp->ctx, last, tni_block_of(cp->f[k], 0, cp->terms, m, 1), one);
    if (s == TN_OK && b) s = tni_put_matmul(cp->ctx, last, f, tni_column_view(b), 1, 1);
    return s;
}

/* Folds e, b into the slots first .. last - 1, or u into the outputs. */
static tn_cp *tni_cp_folded(const tn_cp *cp, int first, int last, const tn_tensor *e, const tn_tensor *b, const tn_tensor *u,
                            double one)
{
    const bool constant = cp->constant || b;
    int64_t    in[TN_CP_MAX_ORDER];
    for (int k = 0; k < cp->order; k++)
        in[k] = (k >= first && k < last ? e->shape[1] + cp->constant : cp->in[k]) + (constant && !cp->constant);
    tn_cp *to = tni_cp_make(cp->ctx, cp->order, u ? u->shape[0] : cp->out, cp->terms, in, constant);
    if (!to) return NULL;
    tn_status s = u ? tni_put_matmul(cp->ctx, tni_view(to->p), tni_view(u), tni_view(cp->p), 1, 0) : tni_copy(to->p, cp->p);
    for (int k = 0; k < cp->order && s == TN_OK; k++)
        s = k >= first && k < last ? tni_fold_factor(cp, to, k, e, b, one)
            : tni_put_copy(cp->ctx, tni_block_of(to->f[k], 0, cp->terms, 0, cp->in[k]), tni_view(cp->f[k]));
    return tni_cp_done(to, s);
}

/* The exponent of the largest element of t, if that is larger than *exponent. */
static tn_status tni_raise_exponent(const tn_tensor *t, int *exponent, const char *op, const char *what)
{
    const int64_t n = tn_tensor_count(t);
    tni_scratch   w = tni_scratch_begin(t->ctx, op);
    double       *v = tni_take_f64(&w, n, 1);
    tn_status     s = v ? tn_read(t, TN_F64, v, n) : TN_ERR_MEMORY;
    int           e;
    double        largest = s == TN_OK ? tni_largest(1, n, tni_rows(v, n)) : 0;
    if (!(largest < HUGE_VAL))
        s = tni_fail(t->ctx, TN_ERR_NONFINITE, "%s: %s holds NaN or infinity, expected finite numbers", op, what);
    frexp(largest, &e);
    if (largest > 0 && e > *exponent) *exponent = e;
    return tni_scratch_end(&w, s);
}

/* The same for numbers of any size. */
TNI_COLD_FN tn_cp *tni_cp_fold(const tn_cp *cp, int first, int last, const tn_tensor *e, const tn_tensor *b, const tn_tensor *u,
                               const char *op)
{
    tn_ctx          *ctx = cp->ctx;
    const int64_t    h = cp->terms;
    const tn_tensor *m = u ? u : e;
    tn_tensor       *scaled[2] = {NULL, NULL};
    tn_cp           *to = NULL;
    tni_scratch      w = tni_scratch_begin(ctx, op);
    int             *exponents = (int *)tni_take(&w, tni_area(cp->order + 1, h), sizeof *exponents);
    int             *by = (int *)tni_take(&w, h, sizeof *by), raise = -2000, least = 0, most = 0;
    tn_status        s = by ? tni_raise_exponent(m, &raise, op, u ? "u" : "e") : TN_ERR_MEMORY;
    if (s == TN_OK && b) s = tni_raise_exponent(b, &raise, op, "b");
    if (s == TN_OK) s = tni_cp_exponents(cp, exponents, op);
    if (s == TN_OK && raise > -2000) {
        if (u) first = cp->order;
        tni_exponent_range((u ? 1 : last - first) * h, exponents + first * h, &least, &most);
    }
    if (s == TN_OK && most + (raise > 0 ? raise : 0) < tni_range_limit(ctx)
        && least + (raise > -2000 && raise < 0 ? raise : 0) > -tni_range_limit(ctx))
        to = tni_cp_folded(cp, first, last, e, b, u, 1);
    else if (s == TN_OK) {
        if (cp->constant && !u && raise < 1) raise = 1;
        raise = (int)tni_max(-2 * tni_range_limit(ctx), tni_min(2 * tni_range_limit(ctx), raise));
        double one = ldexp(1.0, -raise);
        for (int k = 0; k < 2 && s == TN_OK && (k == 0 || b); k++) {
            const tn_tensor *from = k ? b : m;
            scaled[k] = tn_tensor_create(ctx, TN_REAL, from->rank, from->shape);
            s = scaled[k] ? tni_put_scaled(ctx, tni_view(scaled[k]), tni_view(from), one) : TN_ERR_MEMORY;
        }
        tn_cp *unit = s == TN_OK ? tni_cp_near_one(cp, exponents, by) : NULL;
        if (unit) to = tni_cp_folded(unit, first, last, u ? NULL : scaled[0], scaled[1], u ? scaled[0] : NULL, one);
        for (int64_t i = 0; i < h; i++) by[i] += (u ? 1 : last - first) * raise;
        if (to) to = tni_cp_spread(to, by, op);
        tn_cp_destroy(unit);
        tn_tensor_destroy(scaled[0]);
        tn_tensor_destroy(scaled[1]);
    }
    tni_scratch_release(&w, NULL);
    return to;
}

TNI_COLD tn_cp *tn_cp_fold_in(const tn_cp *cp, const tn_tensor *e, const tn_tensor *b)
{
    if (!tni_cp_one_input(cp, "fold_in") || !tni_fold_takes(cp, 0, e, b, "fold_in")) return NULL;
    return tni_cp_fold(cp, 0, cp->order, e, b, NULL, "fold_in");
}

tn_cp *tn_cp_fold_slot(const tn_cp *cp, int slot, const tn_tensor *e, const tn_tensor *b)
{
    if (!cp || !tni_within(cp->ctx, "fold_slot", "slot", slot, 0, cp->order - 1)) return NULL;
    return tni_fold_takes(cp, slot, e, b, "fold_slot") ? tni_cp_fold(cp, slot, slot + 1, e, b, NULL, "fold_slot") : NULL;
}

tn_cp *tn_cp_fold_out(const tn_cp *cp, const tn_tensor *u, const tn_tensor *b)
{
    if (!cp || !tni_is_matrix(cp->ctx, u, "fold_out", "u")) return NULL;
    if (u->shape[1] != cp->out)
        return tni_fail(cp->ctx, TN_ERR_SHAPE, "fold_out: u is %s, expected %lld columns, the operator's outputs", TNI_SHAPE(u),
                        (long long)cp->out), (tn_cp *)NULL;
    if (b && !tni_is_vector(cp->ctx, b, u->shape[0], "fold_out", "b")) return NULL;
    tn_cp *to = tni_cp_fold(cp, 0, 0, NULL, NULL, u, "fold_out");
    return to && b ? tni_cp_next(to, tni_cp_with_bias(to, tni_column_view(b))) : to;
}

/* B+: P' = [P I]   W' = [[W b],[I 0]]   V' = [[V c],[0 1]], and every further factor like V' */
tn_cp *tn_cp_residual(const tn_cp *cp)
{
    if (!tni_cp_one_input(cp, "residual")) return NULL;
    int64_t n = cp->in[0] - cp->constant;
    if (cp->out != n)
        return tni_fail(cp->ctx, TN_ERR_SHAPE, "residual: the operator has %lld outputs, expected %lld as inputs",
                        (long long)cp->out, (long long)n), (tn_cp *)NULL;
    tn_cp *to = tni_cp_extend(cp, n, true);
    if (!to) return NULL;
    tn_status s = tni_put_identity(cp->ctx, tni_block_of(to->p, 0, n, cp->terms, n));
    if (s == TN_OK) s = tni_put_identity(cp->ctx, tni_block_of(to->f[0], cp->terms, n, 0, n));
    for (int k = 1; k < cp->order && s == TN_OK; k++)
        s = tni_put_value(cp->ctx, tni_block_of(to->f[k], cp->terms, n, n, 1), 1);
    return tni_cp_done(to, s);
}

/* The permutation after this one in the order of a dictionary; false after the last. */
TNI_COLD_FN bool tni_next_permutation(int n, int *p)
{
    int i = n - 2, j = n - 1;
    while (i >= 0 && p[i] > p[i + 1]) i--;
    if (i < 0) return false;
    while (p[j] < p[i]) j--;
    int t = p[i]; p[i] = p[j]; p[j] = t;
    for (i++, j = n - 1; i < j; i++, j--) { t = p[i]; p[i] = p[j]; p[j] = t; }
    return true;
}

/* Order 2: P' = [P P]/2   W' = [W;V]   V' = [V;W] */
tn_cp *tn_cp_symmetrise(const tn_cp *cp)
{
    int       slot[TN_CP_MAX_ORDER];
    int64_t   at = 0;
    tn_status s = TN_OK;
    if (!tni_cp_one_input(cp, "symmetrise")) return NULL;
    int64_t terms = cp->terms;
    for (int k = 0; k < cp->order; k++) { slot[k] = k; terms *= k + 1; }
    tn_cp *to = tni_cp_make(cp->ctx, cp->order, cp->out, terms, cp->in, cp->constant);
    if (!to) return NULL;
    do {
        s = tni_put_scaled(cp->ctx, tni_block_of(to->p, 0, cp->out, at, cp->terms), tni_view(cp->p),
                           (double)cp->terms / (double)terms);
        for (int k = 0; k < cp->order && s == TN_OK; k++)
            s = tni_put_copy(cp->ctx, tni_block_of(to->f[k], at, cp->terms, 0, cp->in[k]), tni_view(cp->f[slot[k]]));
        at += cp->terms;
    } while (s == TN_OK && tni_next_permutation(cp->order, slot));
    return tni_cp_done(to, s);
}

/* ---- composition -------------------------------------------------------- >>cp-compose
   outer(inner(x)): with M_s = F_s P', P' and F'_t of the inner operator, term (a_0,a_1,..) has the factors F'_t[a_s] in
   slot (s,t), and the column P (M_0[:,a_0] * M_1[:,a_1] * ..) of outputs: h'^k terms, whatever the outer ones are. With a
   constant one in the outer operator, the inner one has one more output, the one. */

/* cp with `carry` as one more output and term, 1 = 1 * 1 * .. */
static tn_cp *tni_cp_with_one(const tn_cp *cp)
{
    tn_cp *to = tni_cp_extend(cp, 1, true), *more;
    if (!to) return NULL;
    if ((more = tni_cp_make(to->ctx, to->order, to->out + 1, to->terms, to->in, true)) != NULL) {
        tn_status s = tni_put_copy(to->ctx, tni_block_of(more->p, 0, to->out, 0, to->terms), tni_view(to->p));
        if (s == TN_OK) s = tni_put_value(to->ctx, tni_block_of(more->p, to->out, 1, to->terms - 1, 1), 1);
        for (int k = 0; k < to->order && s == TN_OK; k++) {
            s = tni_copy(more->f[k], to->f[k]);
            if (s == TN_OK) s = tni_put_value(to->ctx, tni_block_of(more->f[k], to->terms - 1, 1, to->in[k] - 1, 1), 1);
        }
        more = tni_cp_done(more, s);
    }
    return tni_cp_next(to, more);
}

/* The column blocks of P: for each tuple of all a but the last, d = prod M_s[:,a_s], then P (d * M_last). */
static tn_status tni_compose_outputs(const tn_cp *outer, const tn_cp *inner, tn_cp *to)
{
    tn_ctx   *ctx = outer->ctx;
    int64_t   h = inner->terms, blocks = h > 0 ? to->terms / h : 0, rest;
    tn_tensor *m[TN_CP_MAX_ORDER], *d = NULL;
    tn_status s = TN_OK;
    int       k;
    for (k = 0; k < outer->order && s == TN_OK; k++) {
        m[k] = tn_tensor_2d(ctx, TN_REAL, outer->terms, h);
        s = m[k] ? tni_put_matmul(ctx, tni_view(m[k]), tni_view(outer->f[k]), tni_view(inner->p), 1, 0) : TN_ERR_MEMORY;
    }
    if (s == TN_OK && !(d = tn_tensor_2d(ctx, TN_REAL, outer->terms, h))) s = TN_ERR_MEMORY;
    for (int64_t block = 0; block < blocks && s == TN_OK; block++) {
        tn_view product = tni_view(m[outer->order - 1]);
        for (rest = block, k = outer->order - 2; k >= 0 && s == TN_OK; k--, rest /= h) {
            s = tni_put_product(ctx, tni_view(d), product, tni_block_of(m[k], 0, outer->terms, rest % h, 1), false);
            product = tni_view(d);
        }
        if (s == TN_OK)
            s = tni_put_matmul(ctx, tni_block_of(to->p, 0, to->out, block * h, h), tni_view(outer->p), product, 1, 0);
    }
    return s;
}

/* Row (a_0,a_1,..) of slot (s,t) is row a_s of the inner factor t: each `after` times, and all of it `before` times. */
static tn_status tni_compose_factor(const tn_cp *inner, int t, int64_t before, int64_t after, tn_tensor *to)
{
    int64_t   h = inner->terms, n = inner->in[t];
    tn_view   from = tni_view(inner->f[t]), into = tni_view(to);
    from.rank = into.rank = 4;
    from.shape[0] = into.shape[0] = before;
    from.shape[1] = into.shape[1] = h;
    from.shape[2] = into.shape[2] = after;
    from.shape[3] = into.shape[3] = n;
    from.strides[0] = from.strides[2] = 0;
    from.strides[1] = n;
    from.strides[3] = into.strides[3] = 1;
    into.strides[0] = h * after * n;
    into.strides[1] = after * n;
    into.strides[2] = n;
    return tni_put_copy(inner->ctx, into, from);
}

static tn_cp *tni_cp_composed(const tn_cp *outer, const tn_cp *inner)
{
    tn_ctx *ctx = outer->ctx;
    int64_t in[TN_CP_MAX_ORDER], numbers = outer->out, before;
    size_t  terms = 1, bytes;
    bool    fits = true;
    int     order = outer->order * inner->order, k;
    for (k = 0; k < order; k++) {
        in[k] = inner->in[k % inner->order];
        numbers += in[k];
    }
    for (k = 0; k < outer->order; k++) fits = fits && tni_mul_size(terms, (size_t)inner->terms, &terms);
    fits = fits && tni_mul_size(terms, (size_t)numbers, &bytes)
           && tni_mul_size(bytes, tni_dtype_size(ctx->desc.dtype), &bytes);
    if (!fits || (ctx->desc.max_bytes > 0 && bytes > ctx->desc.max_bytes))
        return tni_fail(ctx, TN_ERR_MEMORY, "compose: the composition has %lld^%d terms of %lld numbers, more than %s",
                        (long long)inner->terms, outer->order, (long long)numbers,
                        fits ? "desc.max_bytes" : "the address space"), (tn_cp *)NULL;
    tn_cp *to = tni_cp_make(ctx, order, outer->out, (int64_t)terms, in, inner->constant);
    if (!to) return NULL;
    tn_status s = terms > 0 ? tni_compose_outputs(outer, inner, to) : TN_OK;
    for (before = 1, k = 0; k < outer->order; k++, before *= inner->terms) {
        int64_t after = 1;
        for (int t = k + 1; t < outer->order; t++) after *= inner->terms;
        for (int t = 0; t < inner->order && s == TN_OK && terms > 0; t++)
            s = tni_compose_factor(inner, t, before, after, to->f[k * inner->order + t]);
    }
    return tni_cp_done(to, s);
}

/* The same for numbers of any size. Of the outer operator the terms relative to the largest are near 1, or less. */
static tn_cp *tni_cp_compose(const tn_cp *outer, const tn_cp *inner)
{
    tn_ctx     *ctx = outer->ctx;
    int64_t     ho = outer->terms, hi = inner->terms, rest;
    tni_scratch w = tni_scratch_begin(ctx, "compose");
    int        *eo = (int *)tni_take(&w, tni_area(outer->order + 1, ho), sizeof *eo), *bo = (int *)tni_take(&w, ho, sizeof *bo);
    int        *ei = (int *)tni_take(&w, tni_area(inner->order + 1, hi), sizeof *ei), *bi = (int *)tni_take(&w, hi, sizeof *bi);
    int         least[3] = {0, 0, 0}, most[3] = {0, 0, 0}, k;
    tn_cp      *to = NULL, *one = NULL, *two = NULL;
    tn_status   s = bi ? tni_cp_exponents(outer, eo, "compose") : TN_ERR_MEMORY;
    if (s == TN_OK) s = tni_cp_exponents(inner, ei, "compose");
    if (s == TN_OK) {
        tni_exponent_range(outer->order * ho, eo, &least[0], &most[0]);
        tni_exponent_range(ho, eo + outer->order * ho, &least[1], &most[1]);
        tni_exponent_range(hi, ei + inner->order * hi, &least[2], &most[2]);
    }
    if (s == TN_OK && outer->order * (most[0] + most[2]) + most[1] < tni_range_limit(ctx)
        && outer->order * (least[0] + least[2]) + least[1] > -tni_range_limit(ctx)) to = tni_cp_composed(outer, inner);
    else if (s == TN_OK) {
        int64_t i = 0;
        int     top;
        for (top = TNI_TERM_ZERO; i < ho; i++) {
            for (bo[i] = 0, k = 0; k <= outer->order; k++) bo[i] += eo[k * ho + i];
            if (eo[i] != TNI_TERM_ZERO && bo[i] > top) top = bo[i];
        }
        if (top == TNI_TERM_ZERO) top = 0;
        one = tni_cp_near_one(outer, eo, bo);
        two = one ? tni_cp_near_one(inner, ei, bi) : NULL;
        for (i = 0; i < ho; i++) bo[i] = (int)tni_max(bo[i] - top, -2 * tni_range_limit(ctx));
        if (two && tni_cp_shift(one, outer->order, bo) == TN_OK) to = tni_cp_composed(one, two);
        int *by = to ? (int *)tni_take(&w, to->terms, sizeof *by) : NULL;
        for (i = 0; by && i < to->terms; i++)
            for (by[i] = top, rest = i, k = 0; k < outer->order; k++, rest /= hi) by[i] += bi[rest % hi];
        if (to) to = by ? tni_cp_spread(to, by, "compose") : tni_cp_done(to, TN_ERR_MEMORY);
        tn_cp_destroy(one);
        tn_cp_destroy(two);
    }
    tni_scratch_release(&w, NULL);
    return to;
}

TNI_COLD tn_cp *tn_cp_compose(const tn_cp *outer, const tn_cp *inner)
{
    tn_cp *to = NULL, *carried = NULL;
    if (!tni_cp_one_input(outer, "compose")) return NULL;
    if (!inner || inner->ctx != outer->ctx)
        return tni_fail(outer->ctx, TN_ERR_ARG, "compose: the inner operator is %s",
                        inner ? "of another context" : "NULL"), (tn_cp *)NULL;
    if (outer->order * inner->order > TN_CP_MAX_ORDER)
        return tni_fail(outer->ctx, TN_ERR_SHAPE, "compose: the operators have orders %d and %d, expected a product of at most "
                        "%d", outer->order, inner->order, TN_CP_MAX_ORDER), (tn_cp *)NULL;
    if (outer->in[0] - outer->constant != inner->out)
        return tni_fail(outer->ctx, TN_ERR_SHAPE, "compose: the outer operator has %lld inputs%s, expected %lld as the inner "
                        "one has outputs", (long long)(outer->in[0] - outer->constant),
                        outer->constant ? " beside the constant one" : "", (long long)inner->out), (tn_cp *)NULL;
    tni_scope scope = tni_scope_begin(outer->ctx);
    if (!outer->constant) to = tni_cp_compose(outer, inner);
    else if ((carried = tni_cp_with_one(inner)) != NULL) to = tni_cp_next(carried, tni_cp_compose(outer, carried));
    tni_scope_end(outer->ctx, scope);
    return to;
}

/* ---- bias split: W x * V x,  (diag(c) W + diag(b) V) x,  b * c, each with P in front ---- >>cp-split */

/* Whether a row of n numbers is zero. */
static bool tni_zero_row(const double *f, int64_t n)
{
    for (int64_t j = 0; j < n; j++) if (f[j] != 0) return false;
    return true;
}

/* The quadratic part, without the terms that do not contribute to it: those of a residual or of a bias. */
static tn_cp *tni_cp_quadratic(const tn_cp *cp)
{
    int64_t   n = cp->in[0] - cp->constant, kept = 0, h;
    double   *f[2];
    tn_cp    *to = NULL;
    tn_status s = TN_OK;
    int64_t   in[2] = {n, n};
    tni_scratch w = tni_scratch_begin(cp->ctx, "split");
    f[0] = tni_take_zeros(&w, cp->terms, cp->in[0]);
    f[1] = tni_take_zeros(&w, cp->terms, cp->in[0]);
    bool read = !w.failed && tn_read(cp->f[0], TN_F64, f[0], cp->terms * cp->in[0]) == TN_OK
                && tn_read(cp->f[1], TN_F64, f[1], cp->terms * cp->in[0]) == TN_OK;
    for (int pass = 0; read && pass < 2; pass++) {           /* count, then copy */
        if (pass == 1 && !(to = tni_cp_make(cp->ctx, 2, cp->out, kept, in, false))) break;
        for (kept = 0, h = 0; h < cp->terms && s == TN_OK; h++) {
            if (tni_zero_row(f[0] + h * cp->in[0], n) || tni_zero_row(f[1] + h * cp->in[0], n)) continue;
            if (pass == 1)
                s = tni_put_copy(cp->ctx, tni_block_of(to->p, 0, cp->out, kept, 1), tni_block_of(cp->p, 0, cp->out, h, 1));
            for (int k = 0; pass == 1 && k < 2 && s == TN_OK; k++)
                s = tni_put_copy(cp->ctx, tni_block_of(to->f[k], kept, 1, 0, n), tni_block_of(cp->f[k], h, 1, 0, n));
            kept++;
        }
    }
    tni_scratch_release(&w, NULL);
    return to ? tni_cp_done(to, s) : NULL;
}

static tn_tensor *tni_cp_linear_part(const tn_cp *cp)
{
    tn_ctx    *ctx = cp->ctx;
    int64_t    n = cp->in[0] - cp->constant, h = cp->terms;
    tn_tensor *l = tni_owned_2d(ctx, cp->out, n);
    if (!l || !cp->constant) return l;
    tn_tensor *d = tn_tensor_2d(ctx, TN_REAL, h, n);
    tn_status  s = d ? tni_put_product(ctx, tni_view(d), tni_block_of(cp->f[0], 0, h, 0, n), tni_block_of(cp->f[1], 0, h, n, 1),
                                       false)
          : TN_ERR_MEMORY;
    if (s == TN_OK)
        s = tni_put_product(ctx, tni_view(d), tni_block_of(cp->f[1], 0, h, 0, n), tni_block_of(cp->f[0], 0, h, n, 1), true);
    if (s == TN_OK) s = tni_put_matmul(ctx, tni_view(l), tni_view(cp->p), tni_view(d), 1, 0);
    return tni_tensor_done(l, s);
}

static tn_tensor *tni_cp_constant_part(const tn_cp *cp)
{
    tn_ctx    *ctx = cp->ctx;
    int64_t    n = cp->in[0] - 1, h = cp->terms;
    tn_tensor *c = tn_tensor_create(ctx, TN_REAL, 1, &cp->out);
    if (!c || !cp->constant) return c;
    tn_tensor *d = tn_tensor_2d(ctx, TN_REAL, h, 1);
    tn_status  s = d ? tni_put_product(ctx, tni_view(d), tni_block_of(cp->f[0], 0, h, n, 1), tni_block_of(cp->f[1], 0, h, n, 1),
                                       false)
          : TN_ERR_MEMORY;
    if (s == TN_OK) s = tni_put_matmul(ctx, tni_column_view(c), tni_view(cp->p), tni_view(d), 1, 0);
    return tni_tensor_done(c, s);
}

tn_status tn_cp_split(const tn_cp *cp, tn_cp **quadratic, tn_tensor **linear, tn_tensor **constant)
{
    if (quadratic) *quadratic = NULL;
    if (linear) *linear = NULL;
    if (constant) *constant = NULL;
    if (!tni_cp_is_bilinear(cp, "split")) return cp ? tn_ctx_status(cp->ctx) : TN_ERR_ARG;
    tni_scope scope = tni_scope_begin(cp->ctx);
    bool      failed = (quadratic && !(*quadratic = tni_cp_quadratic(cp)))
          || (linear && !(*linear = tni_cp_linear_part(cp)))
          || (constant && !(*constant = tni_cp_constant_part(cp)));
    tni_scope_end(cp->ctx, scope);
    if (!failed) return TN_OK;
    if (quadratic) { tn_cp_destroy(*quadratic); *quadratic = NULL; }
    if (linear) { tn_tensor_destroy(*linear); *linear = NULL; }
    return tn_ctx_status(cp->ctx);
}

/* P' = P diag(F_slot u) */
tn_cp *tn_cp_fix(const tn_cp *cp, int slot, const tn_tensor *u)
{
    int64_t in[TN_CP_MAX_ORDER];
    tn_cp  *to = NULL;
    int     k, at = 0;
    if (!cp) return NULL;
    if (cp->order < 2)
        return tni_fail(cp->ctx, TN_ERR_ARG, "freeze: the operator has order %d, expected 2 or more", cp->order), (tn_cp *)NULL;
    if (!tni_within(cp->ctx, "freeze", "slot", slot, 0, cp->order - 1)) return NULL;
    if (!tni_is_vector(cp->ctx, u, cp->in[slot], "freeze", "u")) return NULL;
    for (k = 0; k < cp->order; k++) if (k != slot) in[at++] = cp->in[k];
    tni_scope  scope = tni_scope_begin(cp->ctx);
    tn_tensor *s = tn_tensor_2d(cp->ctx, TN_REAL, cp->terms, 1);
    if (s) to = tni_cp_make(cp->ctx, cp->order - 1, cp->out, cp->terms, in, cp->constant);
    if (to) {
        tn_status status = tni_put_matmul(cp->ctx, tni_view(s), tni_view(cp->f[slot]), tni_column_view(u), 1, 0);
        if (status == TN_OK)
            status = tni_put_product(cp->ctx, tni_view(to->p), tni_view(cp->p), tni_transposed_view(tni_view(s)), false);
        for (k = 0, at = 0; k < cp->order && status == TN_OK; k++)
            if (k != slot) status = tni_copy(to->f[at++], cp->f[k]);
        to = tni_cp_done(to, status);
    }
    tni_scope_end(cp->ctx, scope);
    return to;
}

#endif /* TN_NO_OPERATOR */
