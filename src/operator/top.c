#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- largest coefficients ----------------------------------------------- >>cp-top-impl
   One output after the other, and within it one tuple of the leading inputs after the other (for order 2 there are none):
   d = P[o] * F_0[:,i_0] * .., then blocks of (diag(d) F_left)^T F_right, the sum over permutations of the inputs if
   symmetrised, each with its bound |d * F_left[:,i]| |F_right[:,j]|. What is known is a heap, see >>tensor-select.
   For the norms over all outputs P[o] is replaced by the lengths of P's columns in d and in the bounds; the numbers of a
   block are then roots of sums over o of squares, with d times the columns of length 1. */
enum { TNI_TOP_BLOCK = 128 };

typedef struct tni_top {
    const tn_cp *cp;
    int64_t   blocks, skipped;              /* of products                                    */
    int64_t   left, right, lead;            /* extents; tuples of leading inputs              */
    int       groups, slot[721][TN_CP_MAX_ORDER];       /* at most 720 permutations, and the next one */
    bool      symmetric, joined;            /* joined: norms over all outputs                 */
    tni_heap  heap;
    double   *d, *scaled, *rows, *columns, *block;
    double   *lengths, *squares;            /* of columns of P, which have length 1 then; or NULL */
    tni_terms t;
    tni_host  host;
} tni_top;

/* The largest of n norms. */
static double tni_top_most(const double *norms, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = tni_max_f64(most, norms[i]);
    return most;
}

/* d [groups,terms] of a row of P and the leading inputs; rows [groups,left]: |d * F_left[:,i]| */
static void tni_top_lead(tni_top *t, const double *p, const int64_t *index)
{
    const tn_cp *cp = t->cp;
    int64_t h = cp->terms;
    for (int g = 0; g < t->groups; g++) {
        double *d = t->d + g * h, *rows = t->rows + g * t->left;
        const double *f = cp->order > 1 ? t->t.f[t->slot[g][cp->order - 2]] : NULL;
        memcpy(d, p, sizeof *d * (size_t)h);
        for (int s = 0; s + 2 < cp->order; s++) {
            int64_t n = cp->in[t->slot[g][s]];
            for (int64_t i = 0; i < h; i++) d[i] *= t->t.f[t->slot[g][s]][i * n + index[s]];
        }
        memset(rows, 0, sizeof *rows * (size_t)t->left);
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < t->left; j++) {
                double x = d[i] * (f ? f[i * t->left + j] : 1);
                rows[j] += x * x;
            }
        for (int64_t j = 0; j < t->left; j++) rows[j] = sqrt(rows[j]);
    }
}

/* block [m,n]: coefficients of d, whose columns F_left are scaled anew unless `ready`; with `factor` [terms], of d times it. */
static void tni_top_product(const tni_top *t, int64_t at, int64_t m, int64_t to, int64_t n, bool ready, const double *factor)
{
    const tn_cp  *cp = t->cp;
    const int64_t h = cp->terms;
    for (int g = 0; g < t->groups; g++) {
        const double *left = cp->order > 1 ? t->t.f[t->slot[g][cp->order - 2]] : NULL;
        double       *right = t->t.f[t->slot[g][cp->order - 1]], *scaled = t->scaled + g * h * TNI_TOP_BLOCK;
        for (int64_t i = 0; i < h && !ready; i++) {
            const double d = t->d[g * h + i] * (factor ? factor[i] : 1);
            for (int64_t j = 0; j < m; j++) scaled[i * m + j] = d * (left ? left[i * t->left + at + j] : 1);
        }
        t->host.by->gemm(&t->host, m, n, h, 1.0 / t->groups, tni_transposed(tni_rows(scaled, m)),
                         tni_rows(right + to, t->right), g > 0 ? 1 : 0, tni_rows(t->block, n));
    }
}

/* block [m,n]: norms over all outputs */
static void tni_top_norms(const tni_top *t, int64_t at, int64_t m, int64_t to, int64_t n)
{
    memset(t->squares, 0, sizeof(double) * (size_t)(m * n));
    for (int64_t o = 0; o < t->cp->out; o++) {
        tni_top_product(t, at, m, to, n, false, t->t.p + o * t->cp->terms);
        for (int64_t i = 0; i < m * n; i++) t->squares[i] += t->block[i] * t->block[i];
    }
    for (int64_t i = 0; i < m * n; i++) t->block[i] = sqrt(t->squares[i]);
}

/* All blocks of one matrix [left,right], whose first coefficient has the number `base`; least: smallest i if symmetrised. */
static void tni_top_matrix(tni_top *t, int64_t base, int64_t least)
{
    const tn_cp *cp = t->cp;
    const double weight = 1.0 / t->groups, slack = 1e-150 * (double)cp->terms;       /* squares of less are lost in bounds */
    for (int64_t at = 0; at < t->left; at += TNI_TOP_BLOCK) {
        bool    ready = false;
        int64_t m = tni_min(TNI_TOP_BLOCK, t->left - at);
        if (t->symmetric && at + m <= least) continue;
        for (int64_t to = 0; to < t->right; to += TNI_TOP_BLOCK) {
            double  bound = 0;
            int64_t n = tni_min(TNI_TOP_BLOCK, t->right - to);
            if (t->symmetric && cp->order > 1 && to + n <= at) continue;
            t->blocks++;
            for (int g = 0; g < t->groups; g++)
                bound += weight * tni_top_most(t->rows + g * t->left + at, m)
                         * tni_top_most(t->columns + t->slot[g][cp->order - 1] * t->right + to, n);
            if (t->heap.held == t->heap.k
                && (t->heap.k == 0 || bound * (1 + 1e-12) + slack < fabs(t->heap.found[0].value))) {
                t->skipped++;
                continue;
            }
            if (t->joined) tni_top_norms(t, at, m, to, n);
            else tni_top_product(t, at, m, to, n, ready, NULL);
            ready = true;
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++)
                    if (!t->symmetric || cp->order == 1 || (at + i >= least && to + j >= at + i))
                        tni_heap_offer(&t->heap, t->block[i * n + j], base + (at + i) * t->right + to + j);
        }
    }
}

static void tni_top_search(tni_top *t)
{
    const tn_cp *cp = t->cp;
    int64_t      rest, index[TN_CP_MAX_ORDER];
    int     k;
    for (int64_t o = 0; o < (t->joined ? tni_min(cp->out, 1) : cp->out); o++)
        for (int64_t lead = 0; lead < t->lead; lead++) {
            bool ascending = true;
            for (rest = lead, k = cp->order - 3; k >= 0; k--) { index[k] = rest % cp->in[k]; rest /= cp->in[k]; }
            for (k = 1; k + 2 < cp->order; k++) ascending = ascending && index[k - 1] <= index[k];
            if (t->symmetric && !ascending) continue;
            tni_top_lead(t, t->joined ? t->lengths : t->t.p + o * cp->terms, index);
            tni_top_matrix(t, (o * t->lead + lead) * t->left * t->right, cp->order > 2 ? index[cp->order - 3] : 0);
        }
}

/* The numbers of the heap times 2^shift, largest first, and their indices in a tensor of this shape. */
TNI_COLD_FN tn_status tni_coefficients_store(tn_ctx *ctx, tni_heap *heap, int axes, const int64_t *extents, int shift,
                                             tn_coefficients *out, const char *op)
{
    int64_t n = heap->held;
    tni_scratch w = tni_scratch_begin(ctx, op);
    double     *values = tni_take_f64(&w, 1, n);
    int32_t    *index = (int32_t *)tni_take(&w, tni_area(n, axes), sizeof *index);
    out->count = n;
    tni_heap_sort(heap);
    for (int64_t i = 0; i < n && !w.failed; i++) {
        int64_t rest = heap->found[i].at;
        values[i] = heap->found[i].value;
        for (int k = axes - 1; k >= 0; rest /= extents[k--]) index[i * axes + k] = (int32_t)(rest % extents[k]);
    }
    if (!w.failed) out->values = tni_owned_scaled(ctx, 1, &n, values, shift, op);
    if (out->values) out->index = tn_tensor_create(ctx, TN_I32, 2, TNI_DIMS(n, axes));
    if (out->index && tn_write(out->index, TN_I32, index, n * axes) != TN_OK) tni_drop(&out->index);
    return tni_scratch_end(&w, out->index ? TN_OK : tn_ctx_status(ctx));
}

/* Makes the columns of P have length 1. */
static void tni_top_lengths(tni_top *t)
{
    const int64_t h = t->cp->terms, out = t->cp->out;
    memset(t->lengths, 0, sizeof(double) * (size_t)h);
    for (int64_t i = 0; i < out * h; i++) t->lengths[i % h] += t->t.p[i] * t->t.p[i];
    for (int64_t i = 0; i < h; i++) t->lengths[i] = sqrt(t->lengths[i]);
    for (int64_t i = 0; i < out * h; i++) t->t.p[i] /= t->lengths[i % h] > 0 ? t->lengths[i % h] : 1;
}

static tn_status tni_top_run(tni_top *t, int64_t count, tn_coefficients *out, const char *op)
{
    const tn_cp *cp = t->cp;
    tn_ctx      *ctx = cp->ctx;
    int64_t      h = cp->terms, shape[TN_CP_MAX_ORDER + 1];
    tni_scratch  w = tni_scratch_begin(ctx, op);
    int          k;
    t->d = tni_take_f64(&w, t->groups, h);
    t->scaled = tni_take_f64(&w, tni_area(t->groups, h), TNI_TOP_BLOCK);
    t->rows = tni_take_f64(&w, t->groups, t->left);
    t->columns = tni_take_zeros(&w, cp->order, t->right);
    t->block = tni_take_f64(&w, TNI_TOP_BLOCK, TNI_TOP_BLOCK);
    if (t->joined) { t->lengths = tni_take_f64(&w, 1, h); t->squares = tni_take_f64(&w, TNI_TOP_BLOCK, TNI_TOP_BLOCK); }
    t->host = tni_take_host(&w, tni_max(tni_max(h, TNI_TOP_BLOCK), tni_max(t->left, t->right)));
    tn_status s = tni_terms_begin(&t->t, &w, cp, tni_max(1, h));
    t->heap = tni_take_heap(&w, TN_ORDER_MAGNITUDE, count);
    if (w.failed) s = TN_ERR_MEMORY;
    if (s == TN_OK && h > 0) s = tni_terms_load(&t->t, 0, h);
    if (s == TN_OK) {
        for (k = 0; k < cp->order; k++)
            for (int64_t i = 0; cp->in[k] == t->right && i < h; i++)
                for (int64_t j = 0; j < t->right; j++)
                    t->columns[k * t->right + j] += t->t.f[k][i * t->right + j] * t->t.f[k][i * t->right + j];
        for (int64_t i = 0; i < cp->order * t->right; i++) t->columns[i] = sqrt(t->columns[i]);
        if (t->joined && h > 0) tni_top_lengths(t);
        tni_top_search(t);
        for (shape[0] = cp->out, k = 0; k < cp->order; k++) shape[k + 1] = cp->in[k];
        s = tni_coefficients_store(ctx, &t->heap, cp->order + !t->joined, shape + t->joined, t->t.shift, out, op);
        out->visited = t->blocks > 0 ? (double)(t->blocks - t->skipped) / (double)t->blocks : 0;
    }
    return tni_scratch_end(&w, s);
}

static tn_status tni_cp_top(const tn_cp *cp, int64_t k, bool unsymmetrised, bool joined, tn_coefficients *out, const char *op)
{
    int i;
    if (out) memset(out, 0, sizeof *out);
    if (!cp) return TN_ERR_ARG;
    if (!out) return tni_fail(cp->ctx, TN_ERR_ARG, "%s: out is NULL, expected a place for the result", op);
    if (!tni_within(cp->ctx, op, "k", k, 0, INT64_MAX)) return TN_ERR_ARG;
    if (!unsymmetrised && !tni_cp_one_input(cp, op)) return TN_ERR_SHAPE;
    size_t all = joined ? (size_t)tni_min(cp->out, 1) : (size_t)cp->out;
    for (i = 0; i < cp->order; i++)
        if (cp->in[i] > INT32_MAX || cp->out > INT32_MAX || !tni_mul_size(all, (size_t)cp->in[i], &all)
            || (uint64_t)all > INT64_MAX)
            return tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: the tensor has too many coefficients, expected less than 2^63", op);
    tni_scratch w = tni_scratch_begin(cp->ctx, op);
    tni_top    *t = (tni_top *)tni_take_zeroed(&w, 1, sizeof *t);
    if (!t) return TN_ERR_MEMORY;
    t->cp = cp;
    t->symmetric = !unsymmetrised;
    t->joined = joined;
    t->right = cp->in[cp->order - 1];
    t->left = cp->order > 1 ? cp->in[cp->order - 2] : 1;
    for (t->lead = 1, i = 0; i + 2 < cp->order; i++) t->lead *= cp->in[i];
    for (i = 0; i < cp->order; i++) t->slot[0][i] = i;
    for (t->groups = 1; t->symmetric; t->groups++) {
        memcpy(t->slot[t->groups], t->slot[t->groups - 1], sizeof t->slot[0]);
        if (!tni_next_permutation(cp->order, t->slot[t->groups])) break;
    }
    tn_status s = tni_scratch_end(&w, tni_top_run(t, tni_min(k, (int64_t)all), out, op));
    if (s != TN_OK) tn_coefficients_destroy(out);
    return s;
}

tn_status tn_cp_top(const tn_cp *cp, int64_t k, bool unsymmetrised, tn_coefficients *out)
{
    return tni_cp_top(cp, k, unsymmetrised, false, out, "top");
}

/* With P = Q R the norms are those of R, which has at most `terms` rows. */
tn_status tn_cp_top_inputs(const tn_cp *cp, int64_t k, bool unsymmetrised, tn_coefficients *out)
{
    tn_qr_result qr = TNI_ZERO;
    tn_cp        least;
    if (cp && cp->out > cp->terms && cp->terms > 0) {
        least = *cp;
        if (out) memset(out, 0, sizeof *out);
        if (tn_qr(cp->ctx, cp->p, NULL, &qr) != TN_OK) return tn_ctx_status(cp->ctx);
        least.p = qr.r;
        least.out = cp->terms;
    }
    tn_status s = tni_cp_top(qr.r ? &least : cp, k, unsymmetrised, true, out, "top_inputs");
    tn_qr_destroy(&qr);
    return s;
}

void tn_coefficients_destroy(tn_coefficients *c) { tni_result_end(c, sizeof *c, offsetof(tn_coefficients, values), 2); }

/* ---- Gaussian inputs ---------------------------------------------------- >>cp-gaussian-impl
   Of second moments M = E[x x^T] and a mean m, for Gaussian x:  E[x_a x_b x_c x_d] = M_ab M_cd + M_ac M_bd + M_ad M_bc
   - 2 m_a m_b m_c m_d (Isserlis 1918). So with f's factors times M in place of F, and K as in >>cp-comparing-impl,
       E[f g^T] = 2 P K P'^T + E[f] E[g]^T - 2 f(m) g(m)^T      E[f]_o = sum_h P[o,h] w_h^T M v_h       order 1: P K P'^T */

/* mean [out] = E[f] and at [out] = f(m), of order 2; m the last column of s [n,n], or 0 */
static tn_status tni_gaussian_means(const tn_cp *cp, const double *s, double *mean, double *at, const char *op)
{
    int64_t     n = cp->in[0], width = tni_max(1, tni_terms_width(cp));
    int64_t     max = tni_max(1, tni_min(cp->terms, TNI_PAIRS_NUMBERS / width));
    tni_scratch w = tni_scratch_begin(cp->ctx, op);
    double     *ws = tni_take_f64(&w, max, n), *c = tni_take_f64(&w, 2, max);
    tni_host    h = tni_take_host(&w, tni_max(max, width));
    tni_terms   t;
    tn_status   status = tni_terms_begin(&t, &w, cp, max);
    for (int64_t o = 0; o < cp->out; o++) mean[o] = at[o] = 0;
    for (int64_t first = 0; first < cp->terms && status == TN_OK; first += max) {
        int64_t rows = tni_min(max, cp->terms - first);
        if ((status = tni_terms_load(&t, first, rows)) != TN_OK) break;
        h.by->gemm(&h, rows, n, n, 1, tni_terms_f(&t, 0), tni_rows((double *)s, n), 0, tni_rows(ws, n));
        for (int64_t i = 0; i < rows; i++) {
            double v = 0;
            c[i] = h.by->dot(n, ws + i * n, t.f[1] + i * n);
            for (int64_t o = 0; o < n && cp->constant; o++) v += t.f[1][i * n + o] * s[o * n + n - 1];
            c[max + i] = cp->constant ? ws[i * n + n - 1] * v : 0;
        }
        for (int64_t o = 0; o < cp->out; o++) {
            mean[o] += h.by->dot(rows, t.p + o * rows, c);
            at[o] += h.by->dot(rows, t.p + o * rows, c + max);
        }
    }
    for (int64_t o = 0; o < cp->out; o++) { mean[o] = ldexp(mean[o], t.shift); at[o] = ldexp(at[o], t.shift); }
    return tni_scratch_end(&w, status);
}

/* The operator with F M 2^-shift in place of F, so that no product leaves the range. m [n,n] is changed and restored. */
static tn_cp *tni_cp_times(const tn_cp *cp, double *m, int *shift)
{
    const int64_t n = cp->in[0];
    const double unit = tni_unit_scale(tni_largest(n, n, tni_rows(m, n)));
    tn_cp     *to = tni_cp_make(cp->ctx, cp->order, cp->out, cp->terms, cp->in, cp->constant);
    tn_tensor *scaled = tni_owned_2d(cp->ctx, n, n);
    tn_status  s = to && scaled ? tni_copy(to->p, cp->p) : TN_ERR_MEMORY;
    *shift = -tni_exponent(unit);
    for (int64_t i = 0; i < n * n; i++) m[i] *= unit;
    if (s == TN_OK) s = tn_write(scaled, TN_F64, m, n * n);
    for (int64_t i = 0; i < n * n; i++) m[i] /= unit;
    for (int k = 0; k < cp->order && s == TN_OK; k++)
        s = tni_put_matmul(cp->ctx, tni_view(to->f[k]), tni_view(cp->f[k]), tni_view(scaled), 1, 0);
    tn_tensor_destroy(scaled);
    return to ? tni_cp_done(to, s) : NULL;
}

static bool tni_gaussian_takes(const tn_cp *a, const tn_cp *b, const tn_tensor *s)
{
    if (!tni_cp_comparable(a, b, "gaussian_moment") || !tni_is_matrix(a->ctx, s, "gaussian_moment", "s")) return false;
    int64_t n = a->in[0];
    if (a->order > 2)
        tni_fail(a->ctx, TN_ERR_SHAPE, "gaussian_moment: the operators have order %d, expected 1 or 2", a->order);
    else if (s->shape[0] != n || s->shape[1] != n)
        tni_fail(a->ctx, TN_ERR_SHAPE, "gaussian_moment: s is %s, expected [%lld,%lld] as the operators' inputs%s",
                 TNI_SHAPE(s), (long long)n, (long long)n, a->constant ? ", including the constant one" : "");
    else return true;
    return false;
}

tn_tensor *tn_cp_gaussian_moment(const tn_cp *a, const tn_cp *b, const tn_tensor *s)
{
    tn_cp     *as = NULL;
    tn_tensor *moment = NULL;
    double     most = 0;
    int        scale = 0;
    if (!tni_gaussian_takes(a, b, s)) return NULL;
    tn_ctx     *ctx = a->ctx;
    int64_t     n = a->in[0];
    tni_scratch w = tni_scratch_begin(ctx, "gaussian_moment");
    double     *m = tni_take_f64(&w, n, n), *g = tni_take_f64(&w, a->out, b->out);
    double     *means = tni_take_zeros(&w, 2, tni_plus(a->out, b->out));
    int        *row = (int *)tni_take(&w, tni_plus(a->out, b->out), sizeof *row);
    tn_status   status = w.failed ? TN_ERR_MEMORY : tni_reads_symmetric(s, m, "gaussian_moment");
    if (status == TN_OK && a->constant && !(fabs(m[n * n - 1] - 1) <= 1e-5))
        status = tni_fail(ctx, TN_ERR_ARG, "gaussian_moment: the last element of s is %g, expected 1: the operators have a "
                          "constant input", m[n * n - 1]);
    if (status == TN_OK && !(as = tni_cp_times(a, m, &scale))) status = TN_ERR_MEMORY;
    if (status == TN_OK) status = tni_cp_gram_host(as, b, false, g, row, row + a->out, "gaussian_moment");
    if (status == TN_OK && a->order == 2) status = tni_gaussian_means(a, m, means, means + a->out, "gaussian_moment");
    if (status == TN_OK && a->order == 2)
        status = tni_gaussian_means(b, m, means + 2 * a->out, means + 2 * a->out + b->out, "gaussian_moment");
    for (int64_t i = 0; i < a->out && status == TN_OK; i++)
        for (int64_t j = 0; j < b->out; j++) {
            double *to = g + i * b->out + j, *fb = means + 2 * a->out;
            *to = ldexp(*to, row[i] + row[a->out + j] + a->order * scale);
            if (a->order == 2) *to = 2 * *to + means[i] * fb[j] - 2 * means[a->out + i] * fb[b->out + j];
            if (!(fabs(*to) <= most)) most = *to == *to ? fabs(*to) : HUGE_VAL;
        }
    if (status == TN_OK && !(most < HUGE_VAL))
        status = tni_fail(ctx, TN_ERR_NONFINITE, "gaussian_moment: a result is beyond the range of a double");
    if (status == TN_OK) moment = tni_owned_scaled(ctx, 2, TNI_DIMS(a->out, b->out), g, 0, "gaussian_moment");
    tn_cp_destroy(as);
    tni_scratch_release(&w, NULL);
    return moment;
}

#endif /* TN_NO_OPERATOR */
