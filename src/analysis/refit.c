#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "context/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- fewer terms -------------------------------------------------------- >>analysis-refit-impl
   Terms p (x) sym(w v^T), those of the operator in capitals; rows are terms, * is elementwise.
       <S',S'> = sum N * pp^T   N = ((ww^T) * (vv^T) + (wv^T) * (vw^T))/2     <S,S'> likewise with K from w, v, W, V
   p:  N p = K P
   w:  (pp^T * vv^T) w + (pp^T * v w^T) v = (pP^T * vV^T) W + (pP^T * vW^T) V, symmetric in w and positive semidefinite
   The left side minus the right is the gradient of |S - S'|^2, and changes by at most 2 |pp^T * vv^T| per change of w.
     With inputs X [rows,n] the error is that of outputs:  A = (WX^T) * (VX^T),  Y = P^T A,  a and y likewise,  |Y - y|/|Y|.
   p:  aa^T p = a Y^T
   w:  (p p^T (wX^T * vX^T) * vX^T) X = (p Y * vX^T) X
   X and the factors are then in coordinates in which the second moment of the inputs is 1, as they are with a moment. */
typedef struct tni_refit {
    tni_host host;
    int64_t  h, r, n, o;
    double  *P, *F[2];                       /* [h,o] [h,n] */
    double  *p, *f[2];                       /* [r,o] [r,n] */
    double  *cross[3], *own[3];              /* [r,h] [r,r] scratch */
    double  *x[4];                           /* [r,n] scratch */
    double   square, sparsity;               /* <S,S>, or |Y|^2 */
    int64_t  in, count;                      /* of the operator, and of the given inputs      */
    int64_t  rows;                           /* of inputs; 0: the error is that of the tensor */
    double  *X, *A, *Y, *a[2], *y;           /* [rows,n] [h,rows] [o,rows]; [r,rows] [o,rows] scratch */
    double  *back;                           /* [n,in] from coordinates to encoders of the operator; or NULL */
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

/* hidden [m,rows] = (f0 X^T) * (f1 X^T), f1 X^T in more */
static void tni_refit_hidden(const tni_refit *t, int64_t m, double *const *f, double *hidden, double *more)
{
    tni_refit_gram(t, m, t->rows, t->n, f[0], t->X, hidden);
    tni_refit_gram(t, m, t->rows, t->n, f[1], t->X, more);
    for (int64_t i = 0; i < m * t->rows; i++) hidden[i] *= more[i];
}

/* y [o,rows] = beta y + p^T hidden */
static void tni_refit_outputs(const tni_refit *t, int64_t m, double *p, double *hidden, double beta, double *y)
{
    t->host.by->gemm(&t->host, t->o, t->rows, m, 1, tni_transposed(tni_rows(p, t->o)), tni_rows(hidden, t->rows), beta,
                     tni_rows(y, t->rows));
}

/* out [r,n] = (p y * a[1]) X */
static void tni_refit_pull(const tni_refit *t, double *y, double *out)
{
    t->host.by->gemm(&t->host, t->r, t->rows, t->o, 1, tni_rows(t->p, t->o), tni_rows(y, t->rows), 0, tni_rows(t->a[0], t->rows));
    for (int64_t i = 0; i < t->r * t->rows; i++) t->a[0][i] *= t->a[1][i];
    tni_refit_times(t, t->rows, t->n, t->a[0], t->X, 0, out);
}

/* tni_refit_p by the outputs for the inputs. */
static double tni_refit_p_of_rows(const tni_refit *t)
{
    tni_refit_hidden(t, t->r, t->f, t->a[0], t->a[1]);
    tni_refit_gram(t, t->r, t->r, t->rows, t->a[0], t->a[0], t->own[1]);
    tni_refit_gram(t, t->r, t->o, t->rows, t->a[0], t->Y, t->p);
    tni_refit_solve(t->r, t->own[1], t->o, t->p);
    memcpy(t->y, t->Y, (size_t)(t->o * t->rows) * sizeof(double));
    tni_refit_outputs(t, t->r, t->p, t->a[0], -1, t->y);
    return t->square > 0 ? tni_frobenius(t->o * t->rows, t->y) / sqrt(t->square) : 0;
}

/* Scales the rows of the encoders to 1 and solves for p. Returns the relative error. */
static double tni_refit_p(const tni_refit *t)
{
    double  rest = t->square;
    int64_t unused;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < t->r; i++) tni_unit_row(t->n, t->f[k] + i * t->n, &unused);
    if (t->rows) return tni_refit_p_of_rows(t);
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

/* y = (pp^T * vv^T) x + (pp^T * v x^T) v; own[0]: pp^T, own[1]: pp^T * vv^T; with inputs by a[1] = v X^T */
static void tni_refit_apply(const tni_refit *t, double *v, double *x, double *y)
{
    if (t->rows) {
        tni_refit_gram(t, t->r, t->rows, t->n, x, t->X, t->a[0]);
        for (int64_t i = 0; i < t->r * t->rows; i++) t->a[0][i] *= t->a[1][i];
        tni_refit_outputs(t, t->r, t->p, t->a[0], 0, t->y);
        tni_refit_pull(t, t->y, y);
        return;
    }
    tni_refit_times(t, t->r, t->n, t->own[1], x, 0, y);
    tni_refit_gram(t, t->r, t->r, t->n, v, x, t->own[2]);
    for (int64_t i = 0; i < t->r * t->r; i++) t->own[2][i] *= t->own[0][i];
    tni_refit_times(t, t->r, t->n, t->own[2], v, 1, y);
}

enum { TNI_REFIT_STEPS = 8, TNI_REFIT_FIRST = 32 };

/* The matrices of the equation for encoder k, and its right side in x[0]. */
static void tni_refit_equation(const tni_refit *t, int k)
{
    double *v = t->f[1 - k];
    if (t->rows) {
        tni_refit_gram(t, t->r, t->rows, t->n, v, t->X, t->a[1]);
        tni_refit_pull(t, t->Y, t->x[0]);
        return;
    }
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
    double     *transposed = tni_take_f64(&w, t->r, t->o), *f[2] = {t->f[0], t->f[1]};
    int64_t     unused;
    for (int k = 0; k < 2 && t->back; k++) f[k] = tni_take_f64(&w, t->r, t->in);
    tn_status   s = to && !w.failed ? TN_OK : TN_ERR_MEMORY;
    for (int k = 0; k < 2 && t->back && s == TN_OK; k++) {
        tni_refit_times(t, t->n, t->in, t->f[k], t->back, 0, f[k]);
        for (int64_t i = 0; i < t->r; i++) {
            const double size = tni_unit_row(t->in, f[k] + i * t->in, &unused);
            for (int64_t j = 0; j < t->o; j++) t->p[i * t->o + j] *= size;
        }
    }
    for (int64_t i = 0; i < t->r && s == TN_OK; i++)
        for (int64_t j = 0; j < t->o; j++) transposed[j * t->r + i] = t->p[i * t->o + j];
    if (s == TN_OK) s = tn_write(to->p, TN_F64, transposed, t->r * t->o);
    for (int64_t i = 0; i < 2 && s == TN_OK; i++) s = tn_write(to->f[i], TN_F64, f[i], t->r * t->in);
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
    const bool    several = desc->sparsity > 0 || ((desc->inputs || desc->moment) && desc->starts > 0);
    const int64_t starts = !several ? 1 : desc->starts > 0 ? desc->starts : 8, size[3] = {t->o, t->n, t->n};
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

/* Reads inputs [rows,in], to which the constant one is appended if they lack it, on the scale of 1. */
static tn_status tni_refit_inputs(tni_scratch *w, const tn_cp *cp, const tn_tensor *inputs, double *x)
{
    const int64_t rows = inputs->shape[0], m = inputs->shape[1], n = cp->in[0];
    double       *v = tni_take_numbers(w, inputs);
    if (w->failed) return tni_analysis_status(cp->ctx);
    for (int64_t i = 0; i < rows; i++) {
        if (m < n) x[i * n + m] = 1;
        memcpy(x + i * n, v + i * m, (size_t)m * sizeof *x);
    }
    const double largest = tni_largest_of(rows * n, x), unit = tni_unit_scale(largest);
    if (!(largest < HUGE_VAL))
        return tni_fail(cp->ctx, TN_ERR_NONFINITE, "refit: inputs hold NaN or infinity, expected finite numbers");
    for (int64_t i = 0; i < rows * n; i++) x[i] *= unit;
    return TN_OK;
}

/* Moves inputs and factors to coordinates along the eigenvectors of s [n,n] whose eigenvalues l exceed `least` times the largest;
   unit: scaled by 1/sqrt(l), the factors by sqrt(l), so that s becomes 1. */
static tn_status tni_refit_turn(tni_refit *t, tni_scratch *w, double *s, double least, bool unit)
{
    const int64_t n = t->n, in = t->in;
    double       *l = tni_take_f64(w, n, 1), *v = tni_take_f64(w, n, n), *work = tni_take_f64(w, tni_eigh_work(n), 1);
    tn_status     status = w->failed ? TN_ERR_MEMORY : tni_eigh(&t->host, n, s, l, v, work);
    int64_t       first = 0;
    if (status != TN_OK) return status;
    if (n > 0 && l[0] < -1e-5 * fabs(l[n - 1]))
        return tni_fail(w->ctx, TN_ERR_ARG, "refit: moment has an eigenvalue of %g beside %g, expected none below 0", l[0],
                        l[n - 1]);
    while (first < n && !(l[first] > least * l[n - 1])) first++;
    const int64_t m = n - first;
    double       *x = t->X ? tni_take_f64(w, t->count, m) : NULL, *back = tni_take_f64(w, m, in);
    double       *f[2] = {tni_take_f64(w, t->h, m), tni_take_f64(w, t->h, m)};
    if (w->failed) return TN_ERR_MEMORY;
    v += first * n;
    if (x) tni_refit_gram(t, t->count, m, n, t->X, v, x);
    for (int k = 0; k < 2; k++) tni_refit_gram(t, t->h, m, n, t->F[k], v, f[k]);
    t->host.by->gemm(&t->host, m, in, n, 1, tni_rows(v, n), tni_rows(t->back, in), 0, tni_rows(back, in));
    for (int64_t j = 0; j < m && unit; j++) {
        const double root = sqrt(l[first + j]);
        for (int64_t i = 0; i < t->count && x; i++) x[i * m + j] /= root;
        for (int k = 0; k < 2; k++) for (int64_t i = 0; i < t->h; i++) f[k][i * m + j] *= root;
        for (int64_t i = 0; i < in; i++) back[j * in + i] /= root;
    }
    t->X = x;
    for (int k = 0; k < 2; k++) t->F[k] = f[k];
    t->back = back;
    t->n = m;
    return TN_OK;
}

/* The second moment of the inputs, or the given one, in the coordinates of now. */
static tn_status tni_refit_moment(const tni_refit *t, tni_scratch *w, const tn_cp *cp, const tn_tensor *moment, double *s)
{
    const int64_t n = t->n, in = t->in;
    if (t->X) {
        t->host.by->gemm(&t->host, n, n, t->count, 1 / (double)t->count, tni_transposed(tni_rows(t->X, n)), tni_rows(t->X, n), 0,
                         tni_rows(s, n));
        return TN_OK;
    }
    double   *all = tni_take_f64(w, in, in), *half = tni_take_f64(w, n, in);
    tn_status status = w->failed ? TN_ERR_MEMORY : tni_read_scaled(cp->ctx, "refit", "moment", moment, all, NULL);
    if (status == TN_OK) status = tni_symmetric_parts(cp->ctx, "refit", "moment", "", moment, all);
    if (status != TN_OK) return status;
    t->host.by->gemm(&t->host, n, in, in, 1, tni_rows(t->back, in), tni_rows(all, in), 0, tni_rows(half, in));
    t->host.by->gemm(&t->host, n, n, in, 1, tni_rows(half, in), tni_transposed(tni_rows(t->back, in)), 0, tni_rows(s, n));
    return TN_OK;
}

/* Moves to the span of the encoders, if they are fewer than the inputs, and of the data, where its second moment is 1. */
static tn_status tni_refit_whiten(tni_refit *t, tni_scratch *w, const tn_cp *cp, const tn_cp_refit_desc *desc)
{
    const int64_t n = t->n;
    double       *s = tni_take_f64(w, n, n);
    tn_status     status = (t->back = tni_take_f64(w, n, n)) != NULL ? TN_OK : TN_ERR_MEMORY;
    if (t->back) tni_unit_matrix(n, t->back);
    if (desc->inputs && status == TN_OK) {
        t->count = desc->inputs->shape[0];
        t->X = tni_take_f64(w, t->count, n);
        status = t->X ? tni_refit_inputs(w, cp, desc->inputs, t->X) : TN_ERR_MEMORY;
    }
    if (2 * t->h < n && status == TN_OK) {
        for (int k = 0; k < 2; k++)
            t->host.by->gemm(&t->host, n, n, t->h, 1, tni_transposed(tni_rows(t->F[k], n)), tni_rows(t->F[k], n), k,
                             tni_rows(s, n));
        status = tni_refit_turn(t, w, s, 1e-13, false);
    }
    if (status == TN_OK) status = tni_refit_moment(t, w, cp, desc->moment, s);
    if (status == TN_OK) tni_symmetrise(t->n, s);
    return status == TN_OK ? tni_refit_turn(t, w, s, cp->ctx->desc.dtype == TN_F32 ? 1e-8 : 1e-12, true) : status;
}

/* What the outputs need. */
static void tni_refit_take_rows(tni_refit *t, tni_scratch *w)
{
    t->A = tni_take_f64(w, t->h, t->rows);
    t->Y = tni_take_f64(w, t->o, t->rows);
    t->y = tni_take_f64(w, t->o, t->rows);
    double *more = tni_take_f64(w, t->h, t->rows);      /* also a[1], r <= h */
    t->a[0] = tni_take_f64(w, t->r, t->rows);
    t->a[1] = more;
    if (w->failed) return;
    tni_refit_hidden(t, t->h, t->F, t->A, more);
    tni_refit_outputs(t, t->h, t->P, t->A, 0, t->Y);
}

static tn_cp *tni_refit_run(const tn_cp *cp, tni_scratch *w, tni_units *u, const tn_cp_refit_desc *desc, double *error)
{
    const int64_t h = cp->terms, r = tni_min(desc->terms, h), o = cp->out;
    double       *left = tni_take_f64(w, h, 1), *best[3], now;
    tni_refit     t = TNI_ZERO;
    t.h = h; t.r = r; t.n = t.in = cp->in[0]; t.o = o;
    t.sparsity = desc->sparsity;
    t.P = u->p;
    t.p = tni_take_zeros(w, r, o);
    t.host = tni_take_host(w, tni_max(tni_max(h, t.n), tni_max(o, desc->inputs ? desc->inputs->shape[0] : 0)));
    for (int k = 0; k < 2; k++) t.F[k] = u->f[k];
    if (w->failed) return NULL;
    if ((desc->inputs || desc->moment) && tni_refit_whiten(&t, w, cp, desc) != TN_OK) return NULL;
    for (int k = 0; k < 2; k++) t.f[k] = tni_take_zeros(w, r, t.n);
    for (int k = 0; k < 4; k++) t.x[k] = tni_take_zeros(w, r, t.n);
    for (int k = 0; k < 3; k++) { t.cross[k] = tni_take_zeros(w, r, h); t.own[k] = tni_take_zeros(w, r, r); }
    for (int k = 0; k < 3; k++) best[k] = tni_take_f64(w, r, k ? t.n : o);
    if (w->failed) return NULL;
    tni_refit_begin(&t, left);
    if (t.count) {                              /* begins with what the metric of their second moment says */
        tn_cp_refit_desc first = *desc;
        first.sweeps = TNI_REFIT_FIRST;
        tni_refit_sweeps(&t, &first, &now);
        t.rows = t.count;
        tni_refit_take_rows(&t, w);
        if (w->failed) return NULL;
        t.square = t.host.by->dot(o * t.rows, t.Y, t.Y);
    }
    now = tni_refit_starts(&t, desc, best);
    tn_cp       *to = tni_refit_done(&t, cp);
    if (to && error) *error = now;
    return to;
}

/* Whether the inputs, or their moment, fit the operator. */
static bool tni_refit_takes(const tn_cp *cp, const tn_cp_refit_desc *desc)
{
    const tn_tensor *x = desc->inputs, *s = desc->moment;
    const int64_t    n = cp->in[0];
    if ((x != NULL) + (s != NULL) + (desc->sparsity > 0) > 1)
        return tni_fail(cp->ctx, TN_ERR_ARG, "refit: inputs, moment and sparsity exclude each other, expected one"), false;
    if (x && !tni_is_matrix(cp->ctx, x, "refit", "inputs")) return false;
    if (s && !tni_is_matrix(cp->ctx, s, "refit", "moment")) return false;
    if (s && (s->shape[0] != n || s->shape[1] != n))
        return tni_fail(cp->ctx, TN_ERR_SHAPE, "refit: moment is %s, expected [%lld,%lld] as the operator's inputs%s",
                        TNI_SHAPE(s), (long long)n, (long long)n, cp->constant ? ", including the constant one" : ""), false;
    if (x && (x->shape[0] < 1 || (x->shape[1] != n && !(cp->constant && x->shape[1] == n - 1))))
        return tni_fail(cp->ctx, TN_ERR_SHAPE, "refit: inputs are %s, expected one row or more of %lld numbers%s", TNI_SHAPE(x),
                        (long long)(n - cp->constant), cp->constant ? ", or one more for the constant one" : ""), false;
    return !x || tni_decomp_fits(cp->ctx, "refit", x->shape[0], tni_max(n, cp->terms));
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
    if (!tni_refit_takes(cp, desc) || !tni_decomp_fits(cp->ctx, "refit", cp->terms, tni_max(cp->in[0], cp->terms))) return NULL;
    tni_scratch w = tni_scratch_begin(cp->ctx, "refit");
    if (tni_units_read(&u, &w, cp) == TN_OK && tni_units_fit(&u, "refit")) to = tni_refit_run(cp, &w, &u, desc, error);
    tni_scratch_release(&w, NULL);
    return to;
}

#endif /* TN_NO_ANALYSIS */
