#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "context/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- canonical form and alignment --------------------------------------- >>analysis-align-impl */

/* Scales a vector to length 1 with a positive largest component, the first of equals. Returns what it was multiplied by
   before, 0 for zeros; *largest becomes the index of the component. */
TNI_FN double tni_unit_row(int64_t n, double *v, int64_t *largest)
{
    double size = 0, most = 0;
    *largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs(v[i]) > most) {
            most = fabs(v[i]);
            *largest = i;
        }
    size = tni_frobenius(n, v);
    if (!(size > 0)) return 0;
    if (v[*largest] < 0) size = -size;
    for (int64_t i = 0; i < n; i++) v[i] /= size;
    return size;
}

TNI_FN tn_status tni_units_read(tni_units *u, tni_scratch *w, const tn_cp *cp)
{
    const int64_t h = cp->terms;
    double *p = tni_take_numbers(w, cp->p);
    int     exponent;
    u->cp = cp;
    u->zero = true;
    u->p = tni_take_f64(w, cp->out, h);
    bool finite = !w->failed && tni_frobenius(cp->out * h, p) < HUGE_VAL;
    for (int k = 0; k < cp->order; k++) {
        u->f[k] = tni_take_numbers(w, cp->f[k]);
        u->largest[k] = (int64_t *)tni_take(w, h, sizeof *u->largest[k]);
        finite = finite && !w->failed && tni_frobenius(h * cp->in[k], u->f[k]) < HUGE_VAL;
    }
    if (w->failed) return tni_analysis_status(cp->ctx);
    if (!finite)
        return tni_fail(cp->ctx, TN_ERR_NONFINITE, "%s: the operator has NaN or infinity, expected finite numbers", w->what);
    for (int64_t t = 0; t < h; t++) {
        double size = 1;
        int    shift = 0;
        for (int k = 0; k < cp->order; k++) {       /* a product of sizes may leave the range */
            size *= frexp(tni_unit_row(cp->in[k], u->f[k] + t * cp->in[k], &u->largest[k][t]), &exponent);
            shift += exponent;
        }
        for (int64_t o = 0; o < cp->out; o++) {
            u->p[t * cp->out + o] = size == 0 ? 0 : ldexp(p[o * h + t] * size, shift);
            u->zero = u->zero && (size == 0 || p[o * h + t] == 0);
        }
    }
    return TN_OK;
}

/* Whether the largest number of P, which has the sizes, is within the range of the context's dtype. */
TNI_FN bool tni_units_fit(const tni_units *u, const char *op)
{
    const tn_dtype dtype = u->cp->ctx->desc.dtype;
    const double largest = tni_largest(u->cp->terms, u->cp->out, tni_rows(u->p, u->cp->out));
    if (u->zero || (largest >= tni_dtype_least(dtype) && largest <= tni_dtype_most(dtype))) return true;
    return tni_fail(u->cp->ctx, TN_ERR_NONFINITE, "%s: with factors of these lengths the largest element of p is %g, beyond "
                    "the range of %s", op, largest, tn_dtype_name(dtype)), false;
}

/* Whether row a comes after row b: by the place of its largest component, then by the components. */
static bool tni_rows_after(int64_t n, const double *a, int64_t largest_a, const double *b, int64_t largest_b)
{
    if (largest_a != largest_b) return largest_a > largest_b;
    for (int64_t i = 0; i < n; i++) if (a[i] < b[i] || a[i] > b[i]) return a[i] < b[i];
    return false;
}

/* Sorts the factors of each term, by exchanges of neighbours. */
static void tni_units_sort_factors(const tni_units *u)
{
    const int64_t n = u->cp->in[0];
    for (int64_t t = 0; t < u->cp->terms; t++)
        for (int i = 1; i < u->cp->order; i++)
            for (int j = i; j > 0; j--) {
                double *before = u->f[j - 1] + t * n, *after = u->f[j] + t * n;
                if (!tni_rows_after(n, before, u->largest[j - 1][t], after, u->largest[j][t])) break;
                tni_swap(n, before, after);
                int64_t swap = u->largest[j - 1][t]; u->largest[j - 1][t] = u->largest[j][t]; u->largest[j][t] = swap;
            }
}

/* Writes term from[t] of u as term t. p is [out,terms]. */
static tn_cp *tni_units_operator(const tni_units *u, const int64_t *from, const char *op)
{
    const tn_cp *cp = u->cp;
    tn_cp       *to = tni_cp_make(cp->ctx, cp->order, cp->out, cp->terms, cp->in, cp->constant);
    int64_t      widest = cp->out;
    tni_scratch  w = tni_scratch_begin(cp->ctx, op);
    if (!to) return NULL;
    for (int k = 0; k < cp->order; k++) widest = tni_max(widest, cp->in[k]);
    double *v = tni_take_f64(&w, cp->terms, widest);
    for (int64_t t = 0; v && t < cp->terms; t++)
        for (int64_t i = 0; i < cp->out; i++) v[i * cp->terms + t] = u->p[from[t] * cp->out + i];
    tn_status s = v ? tn_write(to->p, TN_F64, v, cp->out * cp->terms) : TN_ERR_MEMORY;
    for (int k = 0; k < cp->order && s == TN_OK; k++) {
        for (int64_t t = 0; t < cp->terms; t++)
            memcpy(v + t * cp->in[k], u->f[k] + from[t] * cp->in[k], (size_t)cp->in[k] * sizeof *v);
        s = tn_write(to->f[k], TN_F64, v, cp->terms * cp->in[k]);
    }
    return tni_cp_done(to, tni_scratch_end(&w, s));
}

tn_cp *tn_cp_canonical(const tn_cp *cp)
{
    tni_units u;
    tn_cp    *to = NULL;
    if (!tni_cp_one_input(cp, "canonical")) return NULL;
    tni_scratch w = tni_scratch_begin(cp->ctx, "canonical");
    tni_heap    sizes = tni_take_heap(&w, TN_ORDER_LARGEST, cp->terms);
    int64_t    *from = (int64_t *)tni_take(&w, cp->terms, sizeof *from);
    if (tni_units_read(&u, &w, cp) == TN_OK && tni_units_fit(&u, "canonical")) {
        tni_units_sort_factors(&u);
        for (int64_t t = 0; t < cp->terms; t++) tni_heap_offer(&sizes, tni_frobenius(cp->out, u.p + t * cp->out), t);
        tni_heap_sort(&sizes);
        for (int64_t t = 0; t < cp->terms; t++) from[t] = sizes.found[t].at;
        to = tni_units_operator(&u, from, "canonical");
    }
    tni_scratch_release(&w, NULL);
    return to;
}

/* The cosine of two terms, and whether factor 0 of b fits factor 1 of a better. */
static double tni_term_cosine(const tni_units *a, int64_t i, const tni_units *b, int64_t j, bool *crossed)
{
    const tni_algebra *by = tni_algebra_of(a->cp->ctx->desc.simd);
    const int64_t n = a->cp->in[0], m = a->cp->out;
    const double *w = a->f[0] + i * n, *v = a->f[1] + i * n, *w2 = b->f[0] + j * n, *v2 = b->f[1] + j * n;
    const double *p = a->p + i * m, *p2 = b->p + j * m;
    double straight = by->dot(n, w, w2) * by->dot(n, v, v2), cross = by->dot(n, w, v2) * by->dot(n, v, w2);
    double wv = by->dot(n, w, v), wv2 = by->dot(n, w2, v2), sum = 0, square = 0, square2 = 0;
    const double unit = tni_unit_scale(tni_largest_of(m, p)), unit2 = tni_unit_scale(tni_largest_of(m, p2));
    for (int64_t k = 0; k < m; k++) {
        const double x = unit * p[k], x2 = unit2 * p2[k];
        sum += x * x2;
        square += x * x;
        square2 += x2 * x2;
    }
    *crossed = fabs(cross) > fabs(straight);
    return square * square2 > 0 ? (straight + cross) * sum / sqrt(square * square2 * (1 + wv * wv) * (1 + wv2 * wv2)) : 0;
}

/* The assignment of rows to columns of c [n,n] with the largest sum: column[row]. Each row in turn gets a shortest
   augmenting path by reduced costs. scratch: [3,n] doubles, marks: [3,n] integers */
static void tni_assign(int64_t n, const double *c, int64_t *column, double *scratch, int64_t *marks)
{
    double  *value = scratch, *slack = scratch + n, *price = scratch + 2 * n;
    int64_t *row = marks, *back = marks + n, *seen = marks + 2 * n, next;
    for (int64_t j = 0; j < n; j++) { row[j] = -1; value[j] = price[j] = 0; }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) { slack[j] = HUGE_VAL; seen[j] = 0; back[j] = -1; }
        int64_t at = -1;
        for (int64_t k = i; ; k = row[at]) {        /* column `at` is reached, and taken by row k */
            double least = HUGE_VAL;
            next = -1;
            for (int64_t j = 0; j < n; j++) {
                double rest = -c[k * n + j] - price[k] - value[j];
                if (seen[j]) continue;
                if (rest < slack[j]) { slack[j] = rest; back[j] = at; }
                if (slack[j] < least || next < 0) { least = slack[j]; next = j; }
            }
            price[i] += least;
            for (int64_t j = 0; j < n; j++) {
                if (seen[j]) { price[row[j]] += least; value[j] -= least; }
                else slack[j] -= least;
            }
            seen[next] = 1;
            at = next;
            if (row[at] < 0) break;
        }
        for (; at >= 0; at = next) {                         /* shift the path by one */
            next = back[at];
            row[at] = next < 0 ? i : row[next];
        }
    }
    for (int64_t j = 0; j < n; j++) column[row[j]] = j;
}

/* Gives term j of b the signs, the sizes and the order of the factors of a term of a, whose rows are w[0] and w[1]. */
static void tni_align_term(tni_units *b, int64_t j, bool crossed, double *const *w)
{
    const int64_t n = b->cp->in[0];
    double all = 1;
    int           exponent, shift = 0;
    if (crossed) tni_swap(n, b->f[0] + j * n, b->f[1] + j * n);
    for (int k = 0; k < 2; k++) {
        double size = tni_frobenius(n, w[k]);
        if (!(size > 0)) size = 1;
        if (tni_algebra_of(b->cp->ctx->desc.simd)->dot(n, w[k], b->f[k] + j * n) < 0) size = -size;
        for (int64_t e = 0; e < n; e++) b->f[k][j * n + e] *= size;
        all *= frexp(size, &exponent);
        shift += exponent;
    }
    for (int64_t e = 0; e < b->cp->out; e++)
        b->p[j * b->cp->out + e] = tni_times_power(b->p[j * b->cp->out + e] / all, -shift);
}

static tn_status tni_align(const tn_cp *a, const tni_units *ua, tni_units *ub, double *cosine, int64_t *column)
{
    const int64_t h = a->terms, n = a->in[0];
    tni_scratch   w = tni_scratch_begin(a->ctx, "align");
    double       *c = tni_take_f64(&w, h, h), *scratch = tni_take_f64(&w, h, 3);
    int64_t      *marks = (int64_t *)tni_take(&w, tni_area(h, 3), sizeof *marks);
    double       *raw[2] = {tni_take_numbers(&w, a->f[0]), tni_take_numbers(&w, a->f[1])};
    bool          crossed;
    for (int64_t i = 0; i < h && !w.failed; i++)
        for (int64_t j = 0; j < h; j++) c[i * h + j] = tni_term_cosine(ua, i, ub, j, &crossed);
    if (!w.failed) tni_assign(h, c, column, scratch, marks);
    for (int64_t i = 0; i < h && !w.failed; i++) {
        double *rows[2] = {raw[0] + i * n, raw[1] + i * n};
        cosine[i] = tni_term_cosine(ua, i, ub, column[i], &crossed);
        tni_align_term(ub, column[i], crossed, rows);
    }
    return tni_scratch_end(&w, w.failed ? tni_analysis_status(a->ctx) : TN_OK);
}

tn_status tn_cp_align(const tn_cp *a, const tn_cp *b, tn_cp **aligned, tn_tensor **cosines)
{
    tni_units ua, ub;
    if (aligned) *aligned = NULL;
    if (cosines) *cosines = NULL;
    if (!aligned)
        return a ? tni_fail(a->ctx, TN_ERR_ARG, "align: aligned is NULL, expected a place for the operator") : TN_ERR_ARG;
    if (!tni_cp_is_bilinear(a, "align")) return a ? tn_ctx_status(a->ctx) : TN_ERR_ARG;
    if (!tni_cp_comparable(a, b, "align")) return tn_ctx_status(a->ctx);
    if (a->out != b->out || a->terms != b->terms)
        return tni_fail(a->ctx, TN_ERR_SHAPE, "align: b has %lld outputs and %lld terms, expected %lld and %lld as a",
                        (long long)b->out, (long long)b->terms, (long long)a->out, (long long)a->terms);
    tni_scratch w = tni_scratch_begin(a->ctx, "align");
    double     *cosine = tni_take_f64(&w, a->terms, 1);
    int64_t    *column = (int64_t *)tni_take(&w, a->terms, sizeof *column);
    tn_status   s = tni_units_read(&ua, &w, a);
    if (s == TN_OK) s = tni_units_read(&ub, &w, b);
    if (s == TN_OK) s = tni_align(a, &ua, &ub, cosine, column);
    if (s == TN_OK && !tni_units_fit(&ub, "align")) s = TN_ERR_NONFINITE;
    if (s == TN_OK && !(*aligned = tni_units_operator(&ub, column, "align"))) s = tni_analysis_status(a->ctx);
    if (s == TN_OK && cosines && !(*cosines = tni_owned_from(a->ctx, 1, &a->terms, cosine)))
        s = tni_analysis_status(a->ctx);
    if (s != TN_OK) {
        tn_cp_destroy(*aligned);
        *aligned = NULL;
    }
    return tni_scratch_end(&w, s);
}

#endif /* TN_NO_ANALYSIS */
