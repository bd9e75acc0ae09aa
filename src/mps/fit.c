#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"
#include "mps/inner.h"

#ifndef TN_NO_MPS
#ifndef TN_NO_OPERATOR
/* ---- exchanging axes ---------------------------------------------------------- >>tt-swap */

typedef struct tni_tt_swap_job { tni_tt_round_job j; tni_tt_job cut; double *pair; int64_t r, n, m, c; } tni_tt_swap_job;

static void tni_tt_swap_take(tni_scratch *memory, tni_tt_swap_job *w)
{
    const int64_t rows = w->r * w->m, columns = w->n * w->c, least = tni_min(rows, columns);
    w->pair = tni_take_f64(memory, rows, columns);
    tni_tt_take(memory, &w->cut, rows * columns, rows * least, least, columns * least, tni_svd_work(rows, columns),
                tni_max(tni_max(rows, columns), tni_max(w->r * w->n, w->m * w->c)));
}

/* [r,n,m,c] of both cores as [r m,n c], divided again, and all cores written. */
static tn_status tni_tt_swap(tn_tt *tt, const tn_tt *from, int64_t axis, tni_tt_swap_job *w, double eps, double norm)
{
    const tni_host *h = &w->cut.host;
    const int64_t   r = w->r, n = w->n, m = w->m, c = w->c, d = w->j.r[axis + 1];
    int64_t         rank;
    tn_status       s;
    h->by->gemm(h, r * n, m * c, d, 1, tni_rows(w->j.cores + w->j.at[axis], d),
                tni_rows(w->j.cores + w->j.at[axis + 1], m * c), 0, tni_rows(w->pair, m * c));
    for (int64_t a = 0; a < r; a++)
        for (int64_t b = 0; b < n; b++)
            for (int64_t e = 0; e < m; e++)
                memcpy(w->cut.c + ((a * m + e) * n + b) * c, w->pair + ((a * n + b) * m + e) * c,
                       (size_t)c * sizeof *w->pair);
    w->cut.delta = eps * norm;
    if ((s = tni_tt_cut(&w->cut, r * m, n * c, &rank)) != TN_OK)
        return tni_fail(from->ctx, s, "tt_swap: the SVD did not converge");
    for (int64_t a = 0; a < rank * n * c; a++) w->cut.c[a] = tni_ldexp(w->cut.c[a], w->j.exponent);
    tt->error = norm > 0 ? sqrt(w->cut.dropped) / norm : 0;
    tt->discarded = tt->error * tt->error;
    tt->gap = w->cut.gap;
    for (int64_t k = 0; s == TN_OK && k < from->count; k++)
        if (k == axis) s = tni_tt_put(tt, "tt_swap", k, r, m, rank, w->cut.u);
        else if (k == axis + 1) s = tni_tt_put(tt, "tt_swap", k, rank, n, c, w->cut.c);
        else s = tni_tt_put(tt, "tt_swap", k, w->j.r[k], from->core[k]->shape[1], w->j.r[k + 1], w->j.cores + w->j.at[k]);
    return s;
}

tn_tt *tn_tt_swap(const tn_tt *from, int64_t axis, const tn_tt_desc *desc)
{
    double norm = 0, eps;
    tn_tt *tt = NULL;
    if (!from) return NULL;
    tni_tt_swap_job w = TNI_ZERO;
    w.cut.gap = 1;
    if (axis < 0 || axis >= from->count - 1) {
        if (from->count < 2) tni_fail(from->ctx, TN_ERR_ARG, "tt_swap: the train has 1 axis, expected 2 or more");
        else tni_fail(from->ctx, TN_ERR_ARG, "tt_swap: axis is %lld, expected 0 to %lld", (long long)axis,
                      (long long)from->count - 2);
        return NULL;
    }
    if (tni_tt_options(from->ctx, "tt_swap", desc, &eps, &w.cut) != TN_OK) return NULL;
    tni_scratch memory = tni_scratch_begin(from->ctx, "tt_swap");
    tn_status   s = tni_tt_canonical(&memory, from, axis, &w.j, &norm);
    if (s == TN_OK) {
        w.r = w.j.r[axis]; w.n = from->core[axis]->shape[1]; w.m = from->core[axis + 1]->shape[1]; w.c = w.j.r[axis + 2];
        tni_tt_swap_take(&memory, &w);
        tt = memory.failed ? NULL : tni_tt_make(from->ctx, "tt_swap", from->count);
        s = tt ? tni_tt_swap(tt, from, axis, &w, eps, norm) : TN_ERR_MEMORY;
    }
    tni_scratch_end(&memory, s);
    return tt ? tni_tt_done(tt, s) : NULL;
}

/* ---- two-site sweeps ---------------------------------------------------------- >>tt-fit-impl
   The near side of a bond is the one whose core is finished by this update, the far side the one to which the label moves.
   With P [b,m] the features of the near side (state times phi), Q [b,n] those of the far one, the prediction is
       y[b,o] = sum P[b,i] X[i,o,k] Q[b,k]
   Given U [m,r] of X = U V it is the same with P U in place of P; given V it is
       y[b,o] = sum P[b,i] U[i,k] Z[b,o,k],  Z[b,o,k] = sum_q V[k,o,q] Q[b,q]
   and each of the three problems is solved by conjugate gradients on its normal equations, from the present numbers on. */

typedef struct tni_fit_slot { double *p; int64_t n; } tni_fit_slot;     /* n numbers of their own */

typedef struct tni_fit {
    tn_ctx   *ctx;
    tn_tt_fit_desc d;
    int64_t   rows, sites, dim, out, most;       /* most: the largest bond that can occur */
    double   *phi, *y;                           /* [rows,sites,dim], [rows,out]          */
    tni_fit_slot *core, *env;                    /* [sites] [r,dim,r']; [sites+1] [rows,r]: left of the bond at hand states
                                                    before a site, right of it states after one */
    int64_t  *r, *exponent;                      /* [sites+1] of bonds and of envs        */
    double   *p, *q, *w, *z;                     /* features, and workspace of a problem  */
    double   *x, *u, *v, *g, *dir, *keep, *res, *s, *svd;
    int64_t   at;                                /* the bond at hand (-1: none), and its direction */
    bool      right;
    tni_host  host;
} tni_fit;

/* One of the three problems: P [rows,m], Z [rows,n] for all outputs or [rows,out,n] for each, X [m,width]. */
typedef struct tni_fit_problem { const double *p, *z; int64_t m, n; bool each; } tni_fit_problem;

static int64_t tni_fit_width(const tni_fit *f, const tni_fit_problem *a) { return a->each ? a->n : f->out * a->n; }

/* to = A x, or to += scale * A x of the predictions [rows,out] */
static void tni_fit_predict(const tni_fit *f, const tni_fit_problem *a, const double *x, double *to)
{
    const int64_t width = tni_fit_width(f, a);
    f->host.by->gemm(&f->host, f->rows, width, a->m, 1, tni_rows((double *)a->p, a->m), tni_rows((double *)x, width), 0,
                     tni_rows(f->w, width));
    for (int64_t b = 0; b < f->rows; b++)
        for (int64_t o = 0; o < f->out; o++)
            to[b * f->out + o] = a->each ? f->host.by->dot(a->n, f->w + b * width, a->z + (b * f->out + o) * a->n)
                                         : f->host.by->dot(a->n, f->w + b * width + o * a->n, a->z + b * a->n);
}

/* g = A^T res */
static void tni_fit_back(const tni_fit *f, const tni_fit_problem *a, const double *res, double *g)
{
    const int64_t width = tni_fit_width(f, a);
    memset(f->w, 0, (size_t)(f->rows * width) * sizeof *f->w);
    for (int64_t b = 0; b < f->rows; b++)
        for (int64_t o = 0; o < f->out; o++)
            f->host.by->axpy(a->n, res[b * f->out + o], a->z + (a->each ? b * f->out + o : b) * a->n,
                             f->w + b * width + (a->each ? 0 : o * a->n));
    f->host.by->gemm(&f->host, a->m, width, f->rows, 1, tni_transposed(tni_rows((double *)a->p, a->m)), tni_rows(f->w, width), 0,
                     tni_rows(g, width));
}

/* The mean square of a feature, summed over all data */
static double tni_fit_scale(const tni_fit *f, const tni_fit_problem *a)
{
    const int64_t each = a->each ? f->out : 1, size = a->m * tni_fit_width(f, a);
    double        sum = 0;
    for (int64_t b = 0; b < f->rows; b++)
        sum += f->host.by->dot(a->m, a->p + b * a->m, a->p + b * a->m)
               * f->host.by->dot(each * a->n, a->z + b * each * a->n, a->z + b * each * a->n);
    return size > 0 ? sum / (double)size * (a->each ? 1 : (double)f->out) : 0;
}

/* Conjugate gradients (CGLS, Hestenes & Stiefel 1952) on |y - A x|^2 + ridge |x|^2; res becomes y - A x. */
static void tni_fit_solve(const tni_fit *f, const tni_fit_problem *a, double *x, double ridge, int64_t steps)
{
    const int64_t n = a->m * tni_fit_width(f, a), all = f->rows * f->out;
    double       *g = f->g, *dir = f->dir, *made = f->res + all, first = 0;
    ridge *= tni_fit_scale(f, a);
    tni_fit_predict(f, a, x, f->res);
    for (int64_t i = 0; i < all; i++) f->res[i] = f->y[i] - f->res[i];
    tni_fit_back(f, a, f->res, g);
    for (int64_t i = 0; i < n; i++) dir[i] = g[i] -= ridge * x[i];
    double now = f->host.by->dot(n, g, g);
    tni_fit_back(f, a, f->y, f->g + n);                      /* what a gradient is compared with */
    first = f->host.by->dot(n, f->g + n, f->g + n);
    for (int64_t k = 0; k < steps && now > 1e-26 * first; k++) {
        tni_fit_predict(f, a, dir, made);
        double below = f->host.by->dot(all, made, made) + ridge * f->host.by->dot(n, dir, dir);
        if (!(below > 0)) break;
        double alpha = now / below;
        f->host.by->axpy(n, alpha, dir, x);
        f->host.by->axpy(all, -alpha, made, f->res);
        tni_fit_back(f, a, f->res, g);
        for (int64_t i = 0; i < n; i++) g[i] -= ridge * x[i];
        double next = f->host.by->dot(n, g, g);
        for (int64_t i = 0; i < n; i++) dir[i] = g[i] + next / now * dir[i];
        now = next;
    }
}

/* TN_ERR_NONFINITE if a size is not a number or infinite. */
static tn_status tni_fit_finite(const tni_fit *f, double size)
{
    if (size < HUGE_VAL) return TN_OK;
    return tni_fail(f->ctx, TN_ERR_NONFINITE, "tt_fit: products of cores and features overflow, expected features that give "
                    "the train values whose squares are finite");
}

/* The SVD of X [m,width]: U [m,r] orthonormal, V [r,width] with the singular values, of at most `limit`; *dropped is the
   share of the squares that the limit has cost. */
static tn_status tni_fit_cut(tni_fit *f, int64_t m, int64_t width, int64_t limit, int64_t *rank, double *dropped)
{
    const int64_t k = tni_min(m, width);
    int64_t       r;
    double       *vt = f->g;
    tn_status     s = tni_fit_finite(f, tni_largest_of(m * width, f->x));
    if (s != TN_OK) return s;
    s = tni_svd(&f->host, m, width, tni_rows(f->x, width), tni_rows(f->dir, k), f->s, tni_rows(vt, width), f->svd);
    if (s != TN_OK) return tni_fail(f->ctx, s, "tt_fit: the SVD of a tensor of two sites did not converge");
    for (r = k; r > 1 && f->s[r - 1] <= f->d.relative * f->s[0]; r--) {}
    double all = tni_tail_squares(r, f->s, 0);
    r = tni_min(r, limit);
    double kept = tni_tail_squares(r, f->s, 0);
    *dropped = all > 0 ? (all - kept) / all : 0;
    tni_keep_columns(m, k, r, f->dir, f->u);
    for (int64_t i = 0; i < r; i++)
        for (int64_t l = 0; l < width; l++) f->v[i * width + l] = f->s[i] * vt[i * width + l];
    *rank = r;
    return TN_OK;
}

/* P U, as the near features of V */
static tni_fit_problem tni_fit_far(const tni_fit *f, const tni_fit_problem *a, int64_t r, double *scratch)
{
    tni_fit_problem v = *a;
    f->host.by->gemm(&f->host, f->rows, r, a->m, 1, tni_rows((double *)a->p, a->m), tni_rows(f->u, r), 0, tni_rows(scratch, r));
    v.p = scratch;
    v.m = r;
    return v;
}

/* Fits U and V in turn, `first` columns of U and one more whenever that does not help any more. */
static tn_status tni_fit_grow(tni_fit *f, const tni_fit_problem *a, int64_t first, int64_t *rank)
{
    const int64_t width = tni_fit_width(f, a), limit = tni_min(f->d.max_bond, tni_min(a->m, width)), all = f->rows * f->out;
    const double  ridge = tni_max_f64(f->d.ridge, 1e-3), size = tni_frobenius(all, f->y);
    double        now = HUGE_VAL, dropped;
    int64_t       r;
    tn_status     s = tni_fit_cut(f, a->m, width, first, &r, &dropped);
    while (s == TN_OK) {
        tni_fit_problem v, u;
        int64_t         k = 0;
        for (double before = HUGE_VAL; k < 30; k++, before = now) {
            v = tni_fit_far(f, a, r, f->z);
            tni_fit_solve(f, &v, f->v, ridge, 10);
            for (int64_t b = 0; b < f->rows; b++)            /* Z[b,o,k] = sum_q V[k,o,q] Q[b,q] */
                for (int64_t o = 0; o < f->out; o++)
                    for (int64_t i = 0; i < r; i++)
                        f->z[(b * f->out + o) * r + i] =
                            f->host.by->dot(a->n, f->v + (i * f->out + o) * a->n, a->z + b * a->n);
            u.p = a->p; u.z = f->z; u.m = a->m; u.n = r; u.each = true;
            tni_fit_solve(f, &u, f->u, ridge, 10);
            now = tni_frobenius(all, f->res);
            if (now <= 1e-9 * size || now > 0.995 * before) break;
        }
        if (now <= 0.02 * size || r == limit) break;
        tni_fit_back(f, a, f->res, f->x);                    /* the gradient: its first singular vectors are the new ones */
        memcpy(f->keep, f->u, (size_t)(a->m * r) * sizeof *f->u);
        memcpy(f->keep + a->m * r, f->v, (size_t)(r * width) * sizeof *f->v);
        if ((s = tni_fit_cut(f, a->m, width, 1, &k, &dropped)) != TN_OK) break;
        v = tni_fit_far(f, a, 1, f->z);                      /* exact step along their product */
        tni_fit_predict(f, &v, f->v, f->res + all);
        dropped = f->host.by->dot(all, f->res + all, f->res + all);
        dropped = dropped > 0 ? f->host.by->dot(all, f->res, f->res + all) / dropped : 0;
        memmove(f->v + r * width, f->v, (size_t)width * sizeof *f->v);
        for (int64_t i = 0; i < width; i++) f->v[r * width + i] *= dropped;
        memcpy(f->v, f->keep + a->m * r, (size_t)(r * width) * sizeof *f->v);
        for (int64_t b = a->m; b-- > 0;) {
            f->u[b * (r + 1) + r] = f->u[b];
            memcpy(f->u + b * (r + 1), f->keep + b * r, (size_t)r * sizeof *f->u);
        }
        r++;
    }
    if (s != TN_OK) return s;
    f->host.by->gemm(&f->host, a->m, width, r, 1, tni_rows(f->u, r), tni_rows(f->v, width), 0, tni_rows(f->x, width));
    return tni_fit_cut(f, a->m, width, f->d.max_bond, rank, &dropped);
}

/* Makes a slot of n numbers; what was there is lost. */
static tn_status tni_fit_hold(tni_fit *f, tni_fit_slot *slot, int64_t n, const double *from)
{
    if (slot->p && slot->n != n) {
        tni_free(f->ctx, slot->p, (size_t)slot->n * sizeof *slot->p);
        slot->p = NULL;
    }
    slot->n = n;
    if (!slot->p && !(slot->p = (double *)tni_array(f->ctx, n, sizeof *slot->p, "tt_fit"))) return TN_ERR_MEMORY;
    if (from) memcpy(slot->p, from, (size_t)n * sizeof *from);
    return TN_OK;
}

/* Features of site j with the states before it, [rows,r dim], or after it, [rows,dim r] */
static void tni_fit_features(const tni_fit *f, int64_t j, bool before, double *to)
{
    const int64_t r = before ? f->r[j] : f->r[j + 1], n = f->dim;
    const double *env = f->env[before ? j : j + 1].p;
    for (int64_t b = 0; b < f->rows; b++)
        for (int64_t a = 0; a < r; a++)
            for (int64_t i = 0; i < n; i++)
                to[b * r * n + (before ? a * n + i : i * r + a)] = env[b * r + a] * f->phi[(b * f->sites + j) * n + i];
}

/* The states on the other side of a core: the near features [rows,m] times U [m,r] */
static tn_status tni_fit_pass(tni_fit *f, const double *p, int64_t m, const double *u, int64_t r, int64_t from, int64_t to)
{
    tn_status s = tni_fit_hold(f, &f->env[to], f->rows * r, NULL);
    if (s != TN_OK) return s;
    f->host.by->gemm(&f->host, f->rows, r, m, 1, tni_rows((double *)p, m), tni_rows((double *)u, r), 0,
                     tni_rows(f->env[to].p, r));
    f->exponent[to] = f->exponent[from];
    tni_tt_rescale(&f->host, f->rows * r, f->env[to].p, &f->exponent[to]);
    return TN_OK;
}

static int64_t tni_fit_exponent(const tni_fit *f, int64_t j) { return f->exponent[j] + f->exponent[j + 2]; }

/* Updates the tensor X of sites j and j + 1, [near,out,far], and finishes the core of the near one: its factor V [r,out,far]
   remains in f->v. */
static tn_status tni_fit_bond(tni_fit *f, int64_t j, bool right)
{
    const int64_t   m = right ? f->r[j] * f->dim : f->dim * f->r[j + 2], n = right ? f->dim * f->r[j + 2] : f->r[j] * f->dim;
    const int64_t   size = m * f->out * n, near_ = right ? j : j + 1;
    const bool      scarce = size > f->rows * f->out;
    int64_t         r;
    double          dropped;
    tni_fit_problem a;
    tn_status       s;
    tni_fit_features(f, j, true, right ? f->p : f->q);
    tni_fit_features(f, j + 1, false, right ? f->q : f->p);
    a.p = f->p; a.z = f->q; a.m = m; a.n = n; a.each = false;
    tni_fit_solve(f, &a, f->x, f->d.ridge, f->d.steps > 0 ? f->d.steps : scarce ? 2 : tni_min(2 * size + 10, 300));
    if ((s = tni_fit_cut(f, m, f->out * n, f->d.max_bond, &r, &dropped)) != TN_OK) return s;
    if (dropped > 1e-6 && (s = tni_fit_grow(f, &a, scarce ? 1 : r, &r)) != TN_OK) return s;
    f->r[j + 1] = r;
    s = tni_fit_pass(f, f->p, m, f->u, r, right ? j : j + 2, j + 1);
    if (s != TN_OK || (s = tni_fit_hold(f, &f->core[near_], m * r, f->u)) != TN_OK || right) return s;
    for (int64_t i = 0; i < m; i++)                          /* to the left U is [dim r'',r], the core its transposed */
        for (int64_t k = 0; k < r; k++) f->core[near_].p[k * m + i] = f->u[i * r + k];
    return TN_OK;
}

/* X of the next bond in this direction, from V of bond j; or the same bond seen from the other side. */
static void tni_fit_next(tni_fit *f, int64_t j, bool right, bool turn)
{
    const int64_t r = f->r[j + 1], out = f->out, side = f->r[right ? j + 2 : j], n = side * f->dim;
    const int64_t rows = turn ? n * out : r * f->dim * out, to = right ? j + 2 : j - 1;
    const int64_t inner = turn ? r : side;
    const int64_t columns = turn ? (right ? f->r[j] : f->r[j + 2]) * f->dim : f->dim * f->r[right ? j + 3 : j - 1];
    const int64_t shift = turn ? 0 : tni_fit_exponent(f, right ? j + 1 : j - 1) - tni_fit_exponent(f, j);
    tni_mat       other;
    double       *v = f->g;
    for (int64_t k = 0; k < r; k++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < f->dim; i++)
                for (int64_t c = 0; c < side; c++) {         /* V[k,o,(i,c)] to the right, V[k,o,(c,i)] to the left */
                    const int64_t far_ = right ? i * side + c : c * f->dim + i;
                    const double  x = f->v[(k * out + o) * n + far_];
                    if (turn) v[(far_ * out + o) * r + k] = x;
                    else if (right) v[((k * f->dim + i) * out + o) * side + c] = x;
                    else v[((i * r + k) * out + o) * side + c] = x;
                }
    if (turn) other = tni_transposed(tni_rows(f->u, r));
    else if (right) other = tni_rows(f->core[to].p, columns);
    else other = tni_transposed(tni_rows(f->core[to].p, side));
    f->host.by->gemm(&f->host, rows, columns, inner, 1, tni_rows(v, inner), other, 0, tni_rows(f->x, columns));
    for (int64_t i = 0; shift != 0 && i < rows * columns; i++) f->x[i] = tni_ldexp(f->x[i], shift);
}

/* The next update: of bond j, in a direction. */
static tn_status tni_fit_step(tni_fit *f, int64_t j, bool right)
{
    if (f->at >= 0) tni_fit_next(f, f->at, f->right, f->right != right);
    f->at = j;
    f->right = right;
    return tni_fit_bond(f, j, right);
}

/* All sweeps from bond `first` on, to the right end, the left end, and back. */
static tn_status tni_fit_sweeps(tni_fit *f, int64_t first)
{
    const int64_t last = f->sites - 2;
    tn_status     s = TN_OK;
    f->at = -1;
    for (int64_t sweep = 0; sweep < f->d.sweeps; sweep++) {
        for (int64_t j = first; j <= last && s == TN_OK; j++) s = tni_fit_step(f, j, true);
        for (int64_t j = last; j >= 0 && s == TN_OK; j--) s = tni_fit_step(f, j, false);
        for (int64_t j = 0; j < first && s == TN_OK; j++) s = tni_fit_step(f, j, true);
    }
    return s == TN_OK ? tni_fit_step(f, first, true) : s;
}

/* The cores of a train in the canonical form of its label, the states on both sides, and the first X. */
static tn_status tni_fit_begin(tni_fit *f, const tni_tt_round_job *c, int64_t label)
{
    const int64_t j = label - 1, n = f->dim;
    const double *left = c->cores + c->at[label - 1], *core = c->cores + c->at[label], *right = c->cores + c->at[label + 1];
    tn_status     s = TN_OK;
    for (int64_t k = 0; k <= f->sites; k++) f->r[k] = c->r[k <= j ? k : k + 1];
    for (int64_t k = 0; k < f->sites && s == TN_OK; k++)
        s = tni_fit_hold(f, &f->core[k], f->r[k] * n * f->r[k + 1],
                         k > j + 1 || k < j ? c->cores + c->at[k + (k > j)] : NULL);
    for (int64_t k = 0; k <= f->sites && s == TN_OK; k += f->sites) {
        s = tni_fit_hold(f, &f->env[k], f->rows, NULL);
        for (int64_t b = 0; s == TN_OK && b < f->rows; b++) f->env[k].p[b] = 1;
    }
    for (int64_t k = 0; k < j && s == TN_OK; k++) {
        tni_fit_features(f, k, true, f->p);
        s = tni_fit_pass(f, f->p, f->r[k] * n, f->core[k].p, f->r[k + 1], k, k + 1);
    }
    for (int64_t k = f->sites - 1; k > j + 1 && s == TN_OK; k--) {
        const int64_t m = n * f->r[k + 1];
        tni_fit_features(f, k, false, f->p);
        for (int64_t b = 0; b < m * f->r[k]; b++) f->g[b % m * f->r[k] + b / m] = f->core[k].p[b];
        s = tni_fit_pass(f, f->p, m, f->g, f->r[k], k + 1, k);
    }
    if (s != TN_OK) return s;
    f->host.by->gemm(&f->host, f->r[j] * n, f->out * c->r[label + 1], c->r[label], 1, tni_rows((double *)left, c->r[label]),
                     tni_rows((double *)core, f->out * c->r[label + 1]), 0, tni_rows(f->g, f->out * c->r[label + 1]));
    f->host.by->gemm(&f->host, f->r[j] * n * f->out, n * f->r[j + 2], c->r[label + 1], 1, tni_rows(f->g, c->r[label + 1]),
                     tni_rows((double *)right, n * f->r[j + 2]), 0, tni_rows(f->x, n * f->r[j + 2]));
    for (int64_t k = 0, b = f->r[j] * n * f->out * n * f->r[j + 2]; k < b; k++)
        f->x[k] = tni_ldexp(f->x[k], c->exponent + tni_fit_exponent(f, j));
    return TN_OK;
}

/* The train: V of the last bond [r,out,far] becomes the label's core and that of the site after it, which is the near side
   here. */
static tn_status tni_fit_end(tni_fit *f, tn_tt *tt, int64_t label, double *error)
{
    const int64_t   j = label - 1, r = f->r[j + 1], n = f->dim * f->r[j + 2], all = f->rows * f->out;
    int64_t         q;
    double          dropped;
    tni_fit_problem a;
    tn_status       s;
    a.p = f->q; a.z = f->env[j + 1].p; a.m = n; a.n = r; a.each = false;
    for (int64_t k = 0; k < r; k++)
        for (int64_t o = 0; o < f->out; o++)
            for (int64_t i = 0; i < n; i++)
                f->x[(i * f->out + o) * r + k] = tni_ldexp(f->v[(k * f->out + o) * n + i], f->exponent[j + 1] - f->exponent[j]);
    if ((s = tni_fit_cut(f, n, f->out * r, f->d.max_bond, &q, &dropped)) != TN_OK) return s;
    if (dropped > 1e-6 && (s = tni_fit_grow(f, &a, q, &q)) != TN_OK) return s;
    tni_fit_problem made = tni_fit_far(f, &a, q, f->z);
    tni_fit_predict(f, &made, f->v, f->res);
    for (int64_t i = 0; i < all; i++) f->res[i] -= f->y[i];
    if ((s = tni_fit_finite(f, tni_largest_of(all, f->res))) != TN_OK) return s;
    if (error) *error = tni_frobenius(all, f->res) / sqrt((double)all);
    for (int64_t k = 0; k < q; k++)
        for (int64_t i = 0; i < n; i++) f->x[k * n + i] = f->u[i * q + k];
    for (int64_t k = 0; k < q; k++)
        for (int64_t o = 0; o < f->out; o++)
            for (int64_t i = 0; i < r; i++)
                f->keep[(i * f->out + o) * q + k] = tni_ldexp(f->v[(k * f->out + o) * r + i],
                                                              -f->exponent[j + 1] - f->exponent[j + 2]);
    for (int64_t k = 0; s == TN_OK && k < tt->count; k++) {
        const int64_t site = k - (k > label);
        if (k == label) s = tni_tt_put(tt, "tt_fit", k, r, f->out, q, f->keep);
        else if (k == label + 1) s = tni_tt_put(tt, "tt_fit", k, q, f->dim, f->r[j + 2], f->x);
        else s = tni_tt_put(tt, "tt_fit", k, f->r[site], f->dim, f->r[site + 1], f->core[site].p);
    }
    return s;
}

static void tni_fit_take(tni_scratch *w, tni_fit *f)
{
    const int64_t side = f->most * f->dim, width = f->out * side, x = side * width, cap = f->d.max_bond;
    f->phi = tni_take_f64(w, tni_area(f->rows, f->sites), f->dim);
    f->y = tni_take_f64(w, f->rows, f->out);
    f->p = tni_take_f64(w, f->rows, side);
    f->q = tni_take_f64(w, f->rows, side);
    f->w = tni_take_f64(w, f->rows, width);
    f->z = tni_take_f64(w, f->rows, tni_area(f->out, cap));
    f->x = tni_take_f64(w, x, 1);
    f->g = tni_take_f64(w, x, 2);
    f->dir = tni_take_f64(w, x, 1);
    f->u = tni_take_f64(w, width, cap);
    f->v = tni_take_f64(w, width, cap);
    f->keep = tni_take_f64(w, tni_plus(side, width), cap);
    f->res = tni_take_f64(w, f->rows, tni_area(2, f->out));
    f->s = tni_take_f64(w, side, f->out);
    f->svd = tni_take_f64(w, tni_max(tni_svd_work(side, width), tni_svd_work(width, side)), 1);
    f->r = (int64_t *)tni_take(w, f->sites + 1, sizeof *f->r);
    f->exponent = (int64_t *)tni_take_zeroed(w, f->sites + 1, sizeof *f->exponent);
    f->core = (tni_fit_slot *)tni_take_zeroed(w, f->sites, sizeof *f->core);
    f->env = (tni_fit_slot *)tni_take_zeroed(w, f->sites + 1, sizeof *f->env);
    f->host = tni_take_host(w, tni_max(width, f->rows));
}

/* Checks the arguments, and fills in what does not depend on the train's numbers. */
static tn_status tni_fit_check(tni_fit *f, const tn_tt *tt, int64_t label, const tn_tensor *phi, const tn_tensor *y,
                               const tn_tt_fit_desc *desc)
{
    tn_ctx *ctx = tt->ctx;
    memset(f, 0, sizeof *f);
    f->ctx = ctx;
    if (desc) f->d = *desc;
    if (!tni_usable(ctx, phi, "tt_fit", "phi") || !tni_usable(ctx, y, "tt_fit", "y")) return TN_ERR_ARG;
    if (tt->count < 3 || label < 0 || label >= tt->count)
        return tni_fail(ctx, TN_ERR_ARG, "tt_fit: label is %lld of %lld axes, expected one of 3 or more", (long long)label,
                        (long long)tt->count);
    if (f->d.sweeps < 0 || f->d.max_bond < 0 || f->d.steps < 0 || !(f->d.relative >= 0 && f->d.relative < 1)
        || !(f->d.ridge >= 0 && f->d.ridge < HUGE_VAL))
        return tni_fail(ctx, TN_ERR_ARG, "tt_fit: sweeps %lld, max_bond %lld, steps %lld, relative %g and ridge %g, expected 0 "
                        "or more, and relative below 1", (long long)f->d.sweeps, (long long)f->d.max_bond,
                        (long long)f->d.steps, f->d.relative, f->d.ridge);
    if (f->d.sweeps == 0) f->d.sweeps = 1;
    if (f->d.max_bond == 0) f->d.max_bond = 16;
    if (f->d.relative == 0) f->d.relative = 1e-6;
    if (f->d.ridge == 0) f->d.ridge = 1e-9;
    f->sites = tt->count - 1;
    f->out = tt->core[label]->shape[1];
    f->dim = tt->core[label == 0]->shape[1];
    for (int64_t k = 0; k < tt->count; k++)
        if (k != label && tt->core[k]->shape[1] != f->dim)
            return tni_fail(ctx, TN_ERR_SHAPE, "tt_fit: core %lld is %s, expected %lld elements as the first site",
                            (long long)k, TNI_SHAPE(tt->core[k]), (long long)f->dim);
    if (phi->rank != 3 || phi->shape[0] < 1 || phi->shape[1] != f->sites || phi->shape[2] != f->dim)
        return tni_fail(ctx, TN_ERR_SHAPE, "tt_fit: phi is %s, expected [b,%lld,%lld]", TNI_SHAPE(phi), (long long)f->sites,
                        (long long)f->dim);
    f->rows = phi->shape[0];
    if (y->rank != 2 || y->shape[0] != f->rows || y->shape[1] != f->out || f->out < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "tt_fit: y is %s, expected [%lld,%lld]", TNI_SHAPE(y), (long long)f->rows,
                        (long long)f->out);
    return TN_OK;
}

/* The fit of a train whose label is neither first nor last. */
static tn_tt *tni_fit_train(tni_fit *f, const tn_tt *from, int64_t label, const tn_tensor *phi, const tn_tensor *y,
                            double *error)
{
    tni_tt_round_job c;
    int64_t k;
    double  norm = 0;
    size_t  unused;
    tn_tt  *tt = NULL;
    tni_scratch w = tni_scratch_begin(f->ctx, "tt_fit");
    tn_status   s = tni_tt_canonical(&w, from, label, &c, &norm);
    for (k = 0, f->most = 1; s == TN_OK && k <= from->count; k++) f->most = tni_max(f->most, tni_max(c.r[k], f->d.max_bond));
    /* 1,024 leaves a margin for the bare products in tni_fit_take: the largest, of the SVD, is a few of these matrices. */
    if (s == TN_OK && !tni_area_size(tni_area(f->most, f->dim), tni_area(f->most, tni_area(f->dim, f->out)), 1024, &unused))
        s = tni_fail(f->ctx, TN_ERR_MEMORY, "tt_fit: no memory for bonds of %lld, expected a smaller max_bond",
                     (long long)f->most);
    if (s == TN_OK) {
        tni_fit_take(&w, f);
        if (w.failed) s = TN_ERR_MEMORY;
    }
    if (s == TN_OK) {
        s = tni_read_scaled(f->ctx, "tt_fit", "phi", phi, f->phi, NULL);
        if (s == TN_OK) s = tni_read_scaled(f->ctx, "tt_fit", "y", y, f->y, NULL);
        if (s == TN_OK) s = tni_fit_begin(f, &c, label);
        if (s == TN_OK) s = tni_fit_sweeps(f, label - 1);
        if (s == TN_OK && !(tt = tni_tt_make(f->ctx, "tt_fit", from->count))) s = TN_ERR_MEMORY;
        if (s == TN_OK) s = tni_fit_end(f, tt, label, error);
        for (k = 0; k <= f->sites; k++) {
            tni_free(f->ctx, f->env[k].p, (size_t)f->env[k].n * sizeof(double));
            if (k < f->sites) tni_free(f->ctx, f->core[k].p, (size_t)f->core[k].n * sizeof(double));
        }
    }
    tni_scratch_end(&w, s);
    return tt ? tni_tt_done(tt, s) : NULL;
}

tn_tt *tn_tt_fit(const tn_tt *from, int64_t label, const tn_tensor *phi, const tn_tensor *y, const tn_tt_fit_desc *desc,
                 double *error)
{
    tni_fit f;
    tn_tt  *moved = NULL;
    if (error) *error = (double)NAN;
    if (!from || tni_fit_check(&f, from, label, phi, y, desc) != TN_OK) return NULL;
    int64_t inside = label == 0 ? 1 : label == f.sites ? label - 1 : label;
    if (inside != label && !(moved = tn_tt_swap(from, label == 0 ? 0 : inside, NULL))) return NULL;
    tn_tt *tt = tni_fit_train(&f, moved ? moved : from, inside, phi, y, error);
    tn_tt_destroy(moved);
    if (!tt || inside == label) return tt;
    tn_tt *back = tn_tt_swap(tt, label == 0 ? 0 : inside, NULL); /* leaves the norm in the second core */
    tn_tt_destroy(tt);
    if (!back || label > 0) return back;
    tt = tn_tt_canonical(back, 0, NULL);
    tn_tt_destroy(back);
    return tt;
}
#endif /* TN_NO_OPERATOR */

#endif /* TN_NO_MPS */
