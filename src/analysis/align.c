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
static double tni_unit_row(int64_t n, double *v, int64_t *largest)
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

/* An operator as doubles: f[k] [terms,in] with rows of length 1, p transposed to [terms,out], with the sizes. */
typedef struct tni_units {
    const tn_cp *cp;
    double      *p, *f[TN_CP_MAX_ORDER];
    int64_t     *largest[TN_CP_MAX_ORDER];   /* [terms] */
    bool         zero;                       /* whether all terms are */
} tni_units;

static tn_status tni_units_read(tni_units *u, tni_scratch *w, const tn_cp *cp)
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
static bool tni_units_fit(const tni_units *u, const char *op)
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

/* ---- fewer terms -------------------------------------------------------- >>analysis-refit-impl
   Terms p (x) sym(w v^T), those of the operator in capitals; rows are terms, * is elementwise.
       <S',S'> = sum N * pp^T   N = ((ww^T) * (vv^T) + (wv^T) * (vw^T))/2     <S,S'> likewise with K from w, v, W, V
   p:  N p = K P
   w:  (pp^T * vv^T) w + (pp^T * v w^T) v = (pP^T * vV^T) W + (pP^T * vW^T) V, symmetric in w and positive semidefinite
   The left side minus the right is the gradient of |S - S'|^2, and changes by at most 2 |pp^T * vv^T| per change of w. */
typedef struct tni_refit {
    tni_host host;
    int64_t  h, r, n, o;
    double  *P, *F[2];                       /* [h,o] [h,n] */
    double  *p, *f[2];                       /* [r,o] [r,n] */
    double  *cross[3], *own[3];              /* [r,h] [r,r] scratch */
    double  *x[4];                           /* [r,n] scratch */
    double   square, sparsity;               /* <S,S> */
} tni_refit;

/* c [m,k] = a [m,n] b[k,n]^T */
static void tni_refit_gram(const tni_refit *t, int64_t m, int64_t k, int64_t n, double *a, double *b, double *c)
{
    t->host.by->gemm(&t->host, m, k, n, 1, tni_rows(a, n), tni_transposed(tni_rows(b, n)), 0, tni_rows(c, k));
}

/* y [r,n] = beta y + m [r,k] b [k,n] */
static void tni_refit_times(const tni_refit *t, int64_t k, int64_t n, double *m, double *b, double beta, double *y)
{
    t->host.by->gemm(&t->host, t->r, n, k, 1, tni_rows(m, k), tni_rows(b, n), beta, tni_rows(y, n));
}

/* out [r,k] = ((f0 g0^T) * (f1 g1^T) + (f0 g1^T) * (f1 g0^T))/2; with `more` and `factor`: two scratches of this size */
static void tni_refit_pairs(const tni_refit *t, int64_t m, double *const *f, int64_t k, double *const *g, double *out,
                            double *more, double *factor)
{
    tni_refit_gram(t, m, k, t->n, f[0], g[0], out);
    tni_refit_gram(t, m, k, t->n, f[1], g[1], factor);
    for (int64_t i = 0; i < m * k; i++) out[i] *= factor[i];
    tni_refit_gram(t, m, k, t->n, f[0], g[1], more);
    tni_refit_gram(t, m, k, t->n, f[1], g[0], factor);
    for (int64_t i = 0; i < m * k; i++) out[i] = 0.5 * (out[i] + more[i] * factor[i]);
}

/* Solves a x = b in place for a positive semidefinite a [r,r], with a shift of rounding size: Cholesky, row by row. */
static void tni_refit_solve(int64_t r, double *a, int64_t o, double *b)
{
    double shift = 0;
    for (int64_t i = 0; i < r; i++) shift = tni_max_f64(shift, a[i * r + i]);
    shift = shift > 0 ? 1e-14 * (double)r * shift : 1;
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[i * r + j] + (i == j ? shift : 0);
            for (int64_t k = 0; k < j; k++) sum -= a[i * r + k] * a[j * r + k];
            a[i * r + j] = i == j ? sqrt(tni_max_f64(sum, shift)) : sum / a[j * r + j];
        }
    for (int64_t e = 0; e < o; e++) {
        for (int64_t i = 0; i < r; i++) {
            for (int64_t k = 0; k < i; k++) b[i * o + e] -= a[i * r + k] * b[k * o + e];
            b[i * o + e] /= a[i * r + i];
        }
        for (int64_t i = r; i-- > 0; ) {
            for (int64_t k = i + 1; k < r; k++) b[i * o + e] -= a[k * r + i] * b[k * o + e];
            b[i * o + e] /= a[i * r + i];
        }
    }
}

/* Scales the rows of the encoders to 1 and solves for p. Returns the relative error. */
static double tni_refit_p(const tni_refit *t)
{
    double  rest = t->square;
    int64_t unused;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < t->r; i++) tni_unit_row(t->n, t->f[k] + i * t->n, &unused);
    tni_refit_pairs(t, t->r, t->f, t->h, t->F, t->cross[0], t->cross[1], t->cross[2]);
    tni_refit_pairs(t, t->r, t->f, t->r, t->f, t->own[0], t->own[1], t->own[2]);
    memcpy(t->own[1], t->own[0], (size_t)(t->r * t->r) * sizeof(double));
    tni_refit_times(t, t->h, t->o, t->cross[0], t->P, 0, t->p);
    tni_refit_solve(t->r, t->own[1], t->o, t->p);
    tni_refit_gram(t, t->r, t->h, t->o, t->p, t->P, t->cross[1]);
    tni_refit_gram(t, t->r, t->r, t->o, t->p, t->p, t->own[1]);
    for (int64_t i = 0; i < t->r * t->h; i++) rest -= 2 * t->cross[0][i] * t->cross[1][i];
    for (int64_t i = 0; i < t->r * t->r; i++) rest += t->own[0][i] * t->own[1][i];
    return t->square > 0 ? sqrt(tni_max_f64(rest, 0) / t->square) : 0;
}

/* y = (pp^T * vv^T) x + (pp^T * v x^T) v; own[0]: pp^T, own[1]: pp^T * vv^T */
static void tni_refit_apply(const tni_refit *t, double *v, double *x, double *y)
{
    tni_refit_times(t, t->r, t->n, t->own[1], x, 0, y);
    tni_refit_gram(t, t->r, t->r, t->n, v, x, t->own[2]);
    for (int64_t i = 0; i < t->r * t->r; i++) t->own[2][i] *= t->own[0][i];
    tni_refit_times(t, t->r, t->n, t->own[2], v, 1, y);
}

enum { TNI_REFIT_STEPS = 8 };

/* The matrices of the equation for encoder k, and its right side in x[0]. */
static void tni_refit_equation(const tni_refit *t, int k)
{
    double *v = t->f[1 - k];
    tni_refit_gram(t, t->r, t->r, t->o, t->p, t->p, t->own[0]);
    tni_refit_gram(t, t->r, t->r, t->n, v, v, t->own[1]);
    for (int64_t i = 0; i < t->r * t->r; i++) t->own[1][i] *= t->own[0][i];
    tni_refit_gram(t, t->r, t->h, t->o, t->p, t->P, t->cross[0]);
    tni_refit_gram(t, t->r, t->h, t->n, v, t->F[1 - k], t->cross[1]);
    tni_refit_gram(t, t->r, t->h, t->n, v, t->F[k], t->cross[2]);
    for (int64_t i = 0; i < t->r * t->h; i++) {
        t->cross[1][i] *= t->cross[0][i];
        t->cross[2][i] *= t->cross[0][i];
    }
    tni_refit_times(t, t->h, t->n, t->cross[1], t->F[k], 0, t->x[0]);
    tni_refit_times(t, t->h, t->n, t->cross[2], t->F[1 - k], 1, t->x[0]);
}

/* Some steps of conjugate gradients for encoder k. */
static void tni_refit_encoder(const tni_refit *t, int k)
{
    const int64_t m = t->r * t->n;
    double *v = t->f[1 - k], *rest = t->x[0], *way = t->x[1], *y = t->x[2];
    tni_refit_equation(t, k);
    double first = t->host.by->dot(m, rest, rest);
    tni_refit_apply(t, v, t->f[k], y);
    t->host.by->axpy(m, -1, y, rest);
    memcpy(way, rest, (size_t)m * sizeof(double));
    double size = t->host.by->dot(m, rest, rest);
    for (int64_t round = 0; round < TNI_REFIT_STEPS && size > 1e-30 * first; round++) {
        tni_refit_apply(t, v, way, y);
        double step = t->host.by->dot(m, way, y);
        if (!(step > 0)) break;
        step = size / step;
        t->host.by->axpy(m, step, way, t->f[k]);
        t->host.by->axpy(m, -step, y, rest);
        double next = t->host.by->dot(m, rest, rest);
        for (int64_t i = 0; i < m; i++) way[i] = rest[i] + next / size * way[i];
        size = next;
    }
}

/* Some proximal gradient steps with momentum for encoder k, whose penalty is sparsity |S| sum |p_h| |w_h|_1 (Beck & Teboulle
   2009). A row that would become 0 keeps what it was. */
static void tni_refit_shrink(const tni_refit *t, int k)
{
    const int64_t r = t->r, n = t->n;
    double *x = t->f[k], *y = t->x[1], *slope = t->x[2], *old = t->x[3], most = 0, momentum = 1;
    tni_refit_equation(t, k);
    for (int64_t i = 0; i < r; i++) {
        double sum = 0;
        for (int64_t j = 0; j < r; j++) sum += fabs(t->own[1][i * r + j]);
        most = tni_max_f64(most, 2 * sum);
    }
    memcpy(y, x, (size_t)(r * n) * sizeof *y);
    for (int round = 0; round < TNI_REFIT_STEPS && most > 0; round++) {
        const double next = 0.5 * (1 + sqrt(1 + 4 * momentum * momentum));
        tni_refit_apply(t, t->f[1 - k], y, slope);
        memcpy(old, x, (size_t)(r * n) * sizeof *old);
        for (int64_t i = 0; i < r; i++) {
            const double least = t->sparsity * sqrt(t->square * t->own[0][i * r + i]) / most;
            bool         zero = true;
            for (int64_t j = i * n; j < i * n + n; j++) {
                const double z = y[j] - (slope[j] - t->x[0][j]) / most;
                x[j] = fabs(z) > least ? z - (z > 0 ? least : -least) : 0;
                zero = zero && x[j] == 0;
            }
            if (zero) memcpy(x + i * n, old + i * n, (size_t)n * sizeof *x);
        }
        for (int64_t j = 0; j < r * n; j++) y[j] = x[j] + (momentum - 1) / next * (x[j] - old[j]);
        momentum = next;
    }
}

/* The squared error with the penalty, relative to |S|^2; the encoders have unit rows. */
static double tni_refit_cost(const tni_refit *t, double error)
{
    double sum = 0;
    for (int64_t i = 0; i < t->r; i++) {
        double absolute = 0;
        for (int64_t j = i * t->n; j < (i + 1) * t->n; j++) absolute += fabs(t->f[0][j]) + fabs(t->f[1][j]);
        sum += absolute * tni_frobenius(t->o, t->p + i * t->o);
    }
    return error * error + (t->square > 0 ? t->sparsity * sum / sqrt(t->square) : 0);
}

/* <t_i, t_j> of two terms of the operator */
static double tni_refit_inner(const tni_refit *t, int64_t i, int64_t j)
{
    const tni_algebra *by = t->host.by;
    const double *w = t->F[0] + i * t->n, *v = t->F[1] + i * t->n, *w2 = t->F[0] + j * t->n, *v2 = t->F[1] + j * t->n;
    return 0.5 * by->dot(t->o, t->P + i * t->o, t->P + j * t->o)
           * (by->dot(t->n, w, w2) * by->dot(t->n, v, v2) + by->dot(t->n, w, v2) * by->dot(t->n, v, w2));
}

/* Chooses up to r terms by a pivoted Cholesky decomposition of their Gram matrix, and sets <S,S>. cross[0]: its rows;
   left [h]: the rest of the diagonal */
static void tni_refit_begin(tni_refit *t, double *left)
{
    double *rows = t->cross[0], largest = 0;
    int64_t i, k;
    for (t->square = 0, i = 0; i < t->h; i++) {
        left[i] = tni_refit_inner(t, i, i);
        largest = tni_max_f64(largest, left[i]);
        t->square += left[i];
        for (int64_t j = 0; j < i; j++) t->square += 2 * tni_refit_inner(t, i, j);
    }
    for (k = 0; k < t->r; k++) {
        int64_t best = 0;
        for (i = 1; i < t->h; i++) if (left[i] > left[best]) best = i;
        if (!(left[best] > 1e-13 * largest)) break;
        for (i = 0; i < t->h; i++) {
            double sum = tni_refit_inner(t, best, i);
            for (int64_t j = 0; j < k; j++) sum -= rows[j * t->h + best] * rows[j * t->h + i];
            rows[k * t->h + i] = sum / sqrt(left[best]);
        }
        for (i = 0; i < t->h; i++) left[i] -= rows[k * t->h + i] * rows[k * t->h + i];
        left[best] = 0;
        for (i = 0; i < 2; i++)
            memcpy(t->f[i] + k * t->n, t->F[i] + best * t->n, (size_t)t->n * sizeof(double));
    }
    t->r = k;
}

static tn_cp *tni_refit_done(const tni_refit *t, const tn_cp *cp)
{
    tn_cp      *to = tni_cp_make(cp->ctx, 2, cp->out, t->r, cp->in, cp->constant);
    tni_scratch w = tni_scratch_begin(cp->ctx, "refit");
    double     *transposed = tni_take_f64(&w, t->r, t->o);
    tn_status   s = to && transposed ? TN_OK : TN_ERR_MEMORY;
    for (int64_t i = 0; i < t->r && s == TN_OK; i++)
        for (int64_t j = 0; j < t->o; j++) transposed[j * t->r + i] = t->p[i * t->o + j];
    if (s == TN_OK) s = tn_write(to->p, TN_F64, transposed, t->r * t->o);
    for (int64_t i = 0; i < 2 && s == TN_OK; i++) s = tn_write(to->f[i], TN_F64, t->f[i], t->r * t->n);
    tni_scratch_release(&w, NULL);
    return to ? tni_cp_done(to, s) : NULL;
}

/* Sweeps over the encoders, beginning with what they are. Returns the error, or with sparsity the cost; *error: the error. */
static double tni_refit_sweeps(const tni_refit *t, const tn_cp_refit_desc *desc, double *error)
{
    const double  tol = desc->tol > 0 ? desc->tol : 1e-6;
    const int64_t sweeps = desc->sweeps > 0 ? desc->sweeps : 100;
    double        before = HUGE_VAL, now = *error = tni_refit_p(t);
    if (t->sparsity > 0) now = tni_refit_cost(t, now);
    for (int64_t sweep = 0; sweep < sweeps && now > (t->sparsity > 0 ? 0 : 1e-8); sweep++) {
        if (t->sparsity > 0 ? fabs(before - now) <= tol : !(before - now > tol)) break;
        before = now;
        if (t->sparsity > 0) {                  /* the penalty is that of unit rows */
            tni_refit_shrink(t, 0);
            tni_refit_p(t);
            tni_refit_shrink(t, 1);
        } else {
            tni_refit_encoder(t, 0);
            tni_refit_encoder(t, 1);
        }
        now = *error = tni_refit_p(t);
        if (t->sparsity > 0) now = tni_refit_cost(t, now);
    }
    return now;
}

/* The best of several starts, all but the first random. best [3]: scratch of the sizes of p and f */
static double tni_refit_starts(const tni_refit *t, const tn_cp_refit_desc *desc, double *const *best)
{
    const int64_t starts = desc->sparsity > 0 ? desc->starts > 0 ? desc->starts : 8 : 1, size[3] = {t->o, t->n, t->n};
    double *const now[3] = {t->p, t->f[0], t->f[1]};
    double        least = HUGE_VAL, error = 0, kept = 0;
    for (int64_t start = 0; start < starts; start++) {
        for (int k = 0; k < 2 && start > 0; k++) tni_random_signed(desc->seed, start, (uint32_t)k, t->r * t->n, t->f[k]);
        const double cost = tni_refit_sweeps(t, desc, &error);
        if (start > 0 && !(cost < least)) continue;
        least = cost;
        kept = error;
        for (int k = 0; k < 3 && starts > 1; k++) memcpy(best[k], now[k], (size_t)(t->r * size[k]) * sizeof(double));
    }
    for (int k = 0; k < 3 && starts > 1; k++) memcpy(now[k], best[k], (size_t)(t->r * size[k]) * sizeof(double));
    return kept;
}

static tn_cp *tni_refit_run(const tn_cp *cp, tni_scratch *w, tni_units *u, const tn_cp_refit_desc *desc, double *error)
{
    const int64_t h = cp->terms, r = tni_min(desc->terms, h), n = cp->in[0], o = cp->out;
    double       *left = tni_take_f64(w, h, 1), *best[3];
    tni_refit     t = TNI_ZERO;
    t.h = h; t.r = r; t.n = n; t.o = o;
    t.sparsity = desc->sparsity;
    t.P = u->p;
    t.p = tni_take_zeros(w, r, o);
    for (int k = 0; k < 2; k++) { t.F[k] = u->f[k]; t.f[k] = tni_take_zeros(w, r, n); }
    for (int k = 0; k < 4; k++) t.x[k] = tni_take_zeros(w, r, n);
    for (int k = 0; k < 3; k++) { t.cross[k] = tni_take_zeros(w, r, h); t.own[k] = tni_take_zeros(w, r, r); }
    for (int k = 0; k < 3; k++) best[k] = tni_take_f64(w, r, k ? n : o);
    t.host = tni_take_host(w, tni_max(tni_max(h, n), o));
    if (w->failed) return NULL;
    tni_refit_begin(&t, left);
    const double now = tni_refit_starts(&t, desc, best);
    tn_cp       *to = tni_refit_done(&t, cp);
    if (to && error) *error = now;
    return to;
}

tn_cp *tn_cp_refit(const tn_cp *cp, const tn_cp_refit_desc *desc, double *error)
{
    tni_units u;
    tn_cp    *to = NULL;
    if (error) *error = (double)NAN;
    if (!tni_cp_is_bilinear(cp, "refit")) return NULL;
    if (!desc) return tni_fail(cp->ctx, TN_ERR_ARG, "refit: desc is NULL"), (tn_cp *)NULL;
    if (desc->terms < 1)
        return tni_fail(cp->ctx, TN_ERR_ARG, "refit: terms is %lld, expected at least 1", (long long)desc->terms), (tn_cp *)NULL;
    if (!tni_within(cp->ctx, "refit", "sweeps", desc->sweeps, 0, INT64_MAX)) return NULL;
    if (!(desc->tol >= 0) || !(desc->sparsity >= 0 && desc->sparsity < HUGE_VAL))
        return tni_fail(cp->ctx, TN_ERR_ARG, "refit: tol is %g and sparsity %g, expected 0 or more", desc->tol, desc->sparsity),
               (tn_cp *)NULL;
    if (!tni_within(cp->ctx, "refit", "starts", desc->starts, 0, INT64_MAX)) return NULL;
    if (!tni_decomp_fits(cp->ctx, "refit", cp->terms, tni_max(cp->in[0], cp->terms))) return NULL;
    tni_scratch w = tni_scratch_begin(cp->ctx, "refit");
    if (tni_units_read(&u, &w, cp) == TN_OK && tni_units_fit(&u, "refit")) to = tni_refit_run(cp, &w, &u, desc, error);
    tni_scratch_release(&w, NULL);
    return to;
}

#endif /* TN_NO_ANALYSIS */
