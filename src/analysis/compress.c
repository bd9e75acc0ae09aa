#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- bounds on a ball ---------------------------------------------------- >>analysis-ball-impl
   The symmetric tensor S of the quadratic part, as slabs S_i = S[:,i,:] [out,n], gives two matrices,

       sum_i S_i S_i^T   [out,out]          sum_i S_i^T S_i   [n,n]

   The largest eigenvalue of either is at least |S(u,u)|^2 for |u| = 1: S(u,u) . z is the product of an unfolding with the unit
   vectors z and u (x) u, or u and z (x) u. Inputs are divided by the radius and all arrays by powers of two, whose exponents add
   up to that of the results, so that squares do not overflow; for those that vanish the bound of rounding has a summand. */
typedef struct tni_ball {
    tni_scratch *w;
    tni_host     host;
    tni_flat     f;
    double       radius;
    int          exponent;              /* without that of p            */
    bool        *zero;                  /* [h] of terms that are 0 on the ball, before numbers are scaled */
    double      *p, *slab, *mixed, *g[2], *values, *vectors, *work;     /* [out,h] [out,n] [h,n] [out,out] [n,n] */
} tni_ball;

/* Divides by a power of two, whose exponent it returns. */
static int tni_scale_to_one(int64_t n, double *x, int64_t more, double *y)
{
    const double scale = tni_unit_scale(tni_max_f64(tni_largest_of(n, x), tni_largest_of(more, y)));
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
    for (int64_t i = 0; i < more; i++) y[i] *= scale;
    return -tni_exponent(scale);
}

/* Divides inputs by the radius; f is read, as it is. */
static tn_status tni_ball_begin(tni_ball *b, tni_scratch *w, double radius)
{
    const int64_t n = b->f.n, h = b->f.h, out = b->f.out, most = tni_max(n, out);
    const double  power = tni_unit_scale(radius);
    b->w = w;
    b->radius = radius;
    b->exponent = -2 * tni_exponent(power);
    b->zero = (bool *)tni_take(w, tni_max(h, 1), sizeof *b->zero);
    if (w->failed) return TN_ERR_MEMORY;
    for (int64_t t = 0; t < h; t++) {
        b->zero[t] = false;
        for (int e = 0; e < 2; e++) b->zero[t] = b->zero[t] || (b->f.c[e][t] == 0 && (radius == 0 || b->f.length[e][t] == 0));
    }
    for (int e = 0; e < 2; e++) {
        b->exponent += tni_scale_to_one(h * n, b->f.w[e], h, b->f.c[e]);
        for (int64_t i = 0; i < h * n; i++) b->f.w[e][i] *= radius * power;
        for (int64_t t = 0; t < h; t++) b->f.c[e][t] *= power;
        b->exponent += tni_scale_to_one(h * n, b->f.w[e], h, b->f.c[e]);
        for (int64_t t = 0; t < h; t++) b->f.length[e][t] = tni_frobenius(n, b->f.w[e] + t * n);
    }
    b->host = tni_take_host(w, tni_max(most, h));
    b->p = tni_take_f64(w, out, h);
    b->slab = tni_take_f64(w, out, n);
    b->mixed = tni_take_f64(w, h, n);
    b->g[0] = tni_take_f64(w, out, out);
    b->g[1] = tni_take_f64(w, n, n);
    b->values = tni_take_zeros(w, tni_max(most, 1), 1);
    b->vectors = tni_take_f64(w, most, most);
    b->work = tni_take_f64(w, tni_eigh_work(most), 1);
    return w->failed ? TN_ERR_MEMORY : TN_OK;
}

/* The two Gram matrices of the quadratic part with the outputs p [out,h]. */
static void tni_ball_grams(tni_ball *b)
{
    const tni_flat *f = &b->f;
    const tni_host *host = &b->host;
    const int64_t   n = f->n, h = f->h, out = f->out;
    memset(b->g[0], 0, (size_t)(out * out) * sizeof(double));
    memset(b->g[1], 0, (size_t)(n * n) * sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        for (int64_t t = 0; t < h; t++)
            for (int64_t j = 0; j < n; j++)
                b->mixed[t * n + j] = 0.5 * (f->w[0][t * n + i] * f->w[1][t * n + j] + f->w[1][t * n + i] * f->w[0][t * n + j]);
        host->by->gemm(host, out, n, h, 1, tni_rows(b->p, h), tni_rows(b->mixed, n), 0, tni_rows(b->slab, n));
        const tni_mat slab = tni_rows(b->slab, n);
        host->by->gemm(host, out, out, n, 1, slab, tni_transposed(slab), 1, tni_rows(b->g[0], out));
        host->by->gemm(host, n, n, out, 1, tni_transposed(slab), slab, 1, tni_rows(b->g[1], n));
    }
}

/* The outputs p of the constant and of the linear part, [out] and [out,n], or of neither (NULL). */
static void tni_ball_affine(tni_ball *b, double *constant, double *linear)
{
    const tni_flat *f = &b->f;
    for (int64_t o = 0; o < f->out; o++)
        for (int64_t t = 0; t < f->h; t++) {
            const double p = b->p[o * f->h + t];
            constant[o] += p * f->c[0][t] * f->c[1][t];
            b->host.by->axpy(f->n, p * f->c[1][t], f->w[0] + t * f->n, linear + o * f->n);
            b->host.by->axpy(f->n, p * f->c[0][t], f->w[1] + t * f->n, linear + o * f->n);
        }
}

/* What rounding may have changed of the outputs p, if all terms cancel; 0 only if all terms are. */
static double tni_ball_rounding(const tni_ball *b, const double *p)
{
    const tni_flat *f = &b->f;
    double          all = 0;
    bool            zero = true;
    for (int64_t o = 0; o < f->out; o++) {
        double sum = 0;
        for (int64_t t = 0; t < f->h; t++) {
            zero = zero && (b->zero[t] || p[o * f->h + t] == 0);
            sum += fabs(b->p[o * f->h + t]) * (f->length[0][t] + fabs(f->c[0][t])) * (f->length[1][t] + fabs(f->c[1][t]));
        }
        all += sum * sum;
    }
    return zero ? 0 : 1e-15 * (double)(f->h + f->n) * sqrt(all) + 1e-140;
}

/* A result for scaled numbers in the inputs' and outputs' own unit. */
static double tni_ball_unscaled(const tni_ball *b, const double *p, double y)
{
    return ldexp(y, b->exponent - tni_exponent(tni_unit_scale(tni_largest_of(b->f.out * b->f.h, p))));
}

/* Bounds |y| for the outputs p [out,h], which are copied to b->p and scaled. The top eigenvector of the matrix [n,n] is left in
   the first row of b->vectors. */
static tn_status tni_ball_bound(tni_ball *b, const double *p, double *bound)
{
    const tni_taken *mark = b->w->newest;
    const tni_flat  *f = &b->f;
    const int64_t    n = f->n, h = f->h, out = f->out, size[2] = {out, n};
    double          *constant = tni_take_zeros(b->w, out, 1), *linear = tni_take_zeros(b->w, out, n);
    double           least = HUGE_VAL, slope = 0, trace = 0, squares = 0;
    if (b->w->failed) return TN_ERR_MEMORY;
    memcpy(b->p, p, (size_t)(out * h) * sizeof *p);
    tni_scale_to_one(out * h, b->p, 0, NULL);
    tni_ball_grams(b);
    tni_ball_affine(b, constant, linear);
    for (int64_t i = 0; i < n; i++) trace += b->g[1][i * n + i];
    for (int64_t i = 0; i < out * n; i++) squares += linear[i] * linear[i];
    tn_status s = TN_OK;
    for (int k = 0; k < 2 && s == TN_OK; k++) {
        const int64_t m = size[k];
        s = m > 0 ? tni_eigh(&b->host, m, b->g[k], b->values, b->vectors, b->work) : TN_OK;
        if (s == TN_OK) least = fmin(least, m > 0 ? tni_max_f64(0, tni_largest_of(m, b->values)) : 0);
    }
    if (s == TN_OK) s = tni_spectral_norm(b->w, &b->host, out, n, linear, &slope);
    least += 2.3e-16 * (double)(n * tni_max(n, out) + 10 * (n + out)) * trace;
    slope = sqrt(slope * slope + 2.3e-16 * (double)(tni_max(n, out) + 10 * tni_min(n, out)) * squares);
    const double sum = (sqrt(least) + slope + tni_frobenius(out, constant) + tni_ball_rounding(b, p)) * (1 + 1e-12);
    *bound = sum > 0 ? tni_max_f64(tni_ball_unscaled(b, p, sum), 1e-307) : sum;
    if (!(*bound < HUGE_VAL)) *bound = HUGE_VAL;
    for (int64_t i = 0; i < n && n > 1; i++) b->vectors[i] = b->vectors[(n - 1) * n + i];
    tni_scratch_release(b->w, mark);
    return s;
}

/* |y(x)| with b->p, and half the gradient of its square, g [n]. more: space for [3 h + out] */
static double tni_ball_length(const tni_ball *b, const double *x, double *g, double *more)
{
    const tni_flat *f = &b->f;
    const int64_t   n = f->n, h = f->h, out = f->out;
    double *u[2] = {more, more + h}, *d = more + 2 * h, *y = more + 3 * h;
    memset(g, 0, (size_t)n * sizeof *g);
    memset(d, 0, (size_t)h * sizeof *d);
    for (int e = 0; e < 2; e++)
        for (int64_t t = 0; t < h; t++) u[e][t] = f->c[e][t] + b->host.by->dot(n, f->w[e] + t * n, x);
    for (int64_t o = 0; o < out; o++) {
        y[o] = 0;
        for (int64_t t = 0; t < h; t++) y[o] += b->p[o * h + t] * u[0][t] * u[1][t];
        b->host.by->axpy(h, y[o], b->p + o * h, d);
    }
    for (int64_t t = 0; t < h; t++) {
        b->host.by->axpy(n, d[t] * u[1][t], f->w[0] + t * n, g);
        b->host.by->axpy(n, d[t] * u[0][t], f->w[1] + t * n, g);
    }
    return tni_frobenius(out, y);
}

/* to = (x + step g/|g|) of length 1; false where there is no direction. */
static bool tni_ball_step(int64_t n, const double *x, const double *g, double step, double *to)
{
    const double size = tni_frobenius(n, g);
    if (!(size > 0)) return false;
    for (int64_t i = 0; i < n; i++) to[i] = x[i] + step * (g[i] / size);
    const double length = tni_frobenius(n, to);
    for (int64_t i = 0; i < n; i++) to[i] /= length;
    return length > 0;
}

enum { TNI_BALL_STARTS = 16, TNI_BALL_STEPS = 300 };

/* The largest |y| that ascents on the sphere find, after tni_ball_bound: steps to the gradient's direction, shorter where they
   do not help, from the eigenvector that it left and from random points, of both signs. Writes where it is, in the inputs' own
   unit. */
static tn_status tni_ball_ascend(tni_ball *b, const double *p, tn_ball_bound *out)
{
    const tni_taken *mark = b->w->newest;
    tn_ctx          *ctx = b->w->ctx;
    const int64_t    n = b->f.n;
    double *x = tni_take_zeros(b->w, 5, tni_max(n, 1)), *g = x + n, *to = g + n, *best = to + n, *next = best + n;
    double *more = tni_take_f64(b->w, 4, tni_max(b->f.h, b->f.out)), most = -1;
    if (b->w->failed) return TN_ERR_MEMORY;
    for (int start = 0; start < TNI_BALL_STARTS; start++) {
        if (start > 1) tni_random_signed(1, start / 2, 0, n, to);
        else memcpy(to, b->vectors, (size_t)n * sizeof *to);
        tni_ball_step(n, x, to, start % 2 ? -1e300 : 1e300, x);
        double now = tni_ball_length(b, x, g, more);
        for (int i = 0; i < TNI_BALL_STEPS; i++) {
            double step = 1e9, then = -1;
            while (step > 1e-6 && tni_ball_step(n, x, g, step, to) && !((then = tni_ball_length(b, to, next, more)) > now))
                step = step > 1 ? 1 : step / 4;
            if (!(then > now * (1 + 1e-12))) break;
            now = then;
            memcpy(x, to, (size_t)n * sizeof *x);
            memcpy(g, next, (size_t)n * sizeof *g);
        }
        if (now > most) {
            most = now;
            memcpy(best, x, (size_t)n * sizeof *x);
        }
        memset(x, 0, (size_t)n * sizeof *x);
    }
    for (int64_t i = 0; i < n; i++) best[i] *= b->radius;
    out->reached = tni_ball_unscaled(b, p, most);
    out->input = tni_owned_from(ctx, 1, &n, best);
    tni_scratch_release(b->w, mark);
    return out->input ? TN_OK : tni_analysis_status(ctx);
}

/* Both, of the outputs p. */
static tn_status tni_ball_measure(tni_ball *b, const double *p, tn_ball_bound *out)
{
    tn_status s = tni_ball_bound(b, p, &out->bound);
    return s == TN_OK ? tni_ball_ascend(b, p, out) : s;
}

static bool tni_ball_fits(const tn_cp *cp, double radius, const void *out, const char *op)
{
    if (!tni_cp_is_bilinear(cp, op)) return false;
    if (!out) return tni_fail(cp->ctx, TN_ERR_ARG, "%s: out is NULL, expected a place for the result", op), false;
    if (radius >= 0 && radius < HUGE_VAL) return true;
    return tni_fail(cp->ctx, TN_ERR_ARG, "%s: radius is %g, expected a finite number >= 0", op, radius), false;
}

tn_status tn_cp_ball_bound(const tn_cp *cp, double radius, tn_ball_bound *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!tni_ball_fits(cp, radius, out, "cp_ball_bound")) return cp ? tn_ctx_status(cp->ctx) : TN_ERR_ARG;
    tni_scratch w = tni_scratch_begin(cp->ctx, "cp_ball_bound");
    tni_ball    b = TNI_ZERO;
    tn_status   s = tni_flat_read(&b.f, &w, cp);
    if (s == TN_OK) s = tni_ball_begin(&b, &w, radius);
    if (s == TN_OK) s = tni_ball_measure(&b, b.f.p, out);
    if (s != TN_OK) tn_ball_bound_destroy(out);
    return tni_scratch_end(&w, s);
}

void tn_ball_bound_destroy(tn_ball_bound *b) { tni_result_end(b, sizeof *b, offsetof(tn_ball_bound, input), 1); }

/* ---- fewer terms ---------------------------------------------------------- >>analysis-compress-impl
   Term t is p_t (x) T_t, T_t = sym(w_t (x) v_t). With K = <T_s,T_t> and the inverse H of K, leaving out term k and refitting the
   others changes the tensor by at least |p_k|/sqrt(H_kk), with p_t -= p_k H_kt/H_kk. */
typedef struct tni_compress {
    tni_ball ball;
    int64_t  exact;
    bool    *merged;                    /* [h] terms that are zero, or part of another one                    */
    double  *whole;                     /* [out,h] p after that                                               */
    double  *length, *inverse;          /* [h] powers of two near |T_t|; [h,h] H, of T_t divided by these     */
    double  *p, *h, *change;            /* [h,out] [h,h] [out,h] */
    bool    *left;                      /* [h] terms that remain */
    bool     plain, single;             /* as in the desc        */
} tni_compress;

/* Whether a b has no more bits than a number, which y is. Near 0 the rest of a product is rounded, too, so that it is refused. */
static bool tni_is_product(double a, double b, double y)
{
    return a == 0 || b == 0 ? y == 0 : fabs(y) > 1e-280 && fma(a, b, -y) == 0;
}

/* The number f with y = f x in every bit, also of further numbers y1 = f x1; 0 where no number is exact. */
static double tni_exact_factor(int64_t n, const double *x, const double *y, double x1, double y1)
{
    int64_t at = 0;
    while (at < n && x[at] == 0) at++;
    const double by = at < n ? x[at] : x1, f = by != 0 ? (at < n ? y[at] : y1) / by : 0;
    if (!(fabs(f) < HUGE_VAL) || !tni_is_product(f, x1, y1)) return 0;
    for (int64_t i = 0; i < n; i++) if (!tni_is_product(f, x[i], y[i])) return 0;
    return f;
}

/* Adds f g times column k of p to column t if no number of the result is rounded. */
static bool tni_merge_exactly(const tni_compress *c, int64_t t, int64_t k, double f, double g)
{
    const int64_t h = c->ball.f.h, out = c->ball.f.out;
    const double  factor = f * g;
    if (!tni_is_product(f, g, factor)) return false;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t o = 0; o < out; o++) {
            const double a = c->whole[o * h + t], b = factor * c->whole[o * h + k], sum = a + b, part = sum - a;
            if (pass) c->whole[o * h + t] = sum;
            else if (!tni_is_product(factor, c->whole[o * h + k], b) || (a - (sum - part)) + (b - part) != 0
                     || (c->single && (double)(float)sum != sum)) return false;
        }
    return true;
}

/* Removes terms that are zero, and adds those that are parallel to another one to it, where nothing is rounded. */
static void tni_compress_merge(tni_compress *c)
{
    const tni_flat *f = &c->ball.f;
    const int64_t   n = f->n, h = f->h;
    c->exact = 0;
    for (int64_t k = 0; k < h; k++) {
        bool zero = true;
        for (int64_t o = 0; o < f->out && zero; o++) zero = c->whole[o * h + k] == 0;
        for (int e = 0; e < 2; e++) zero = zero || (f->length[e][k] == 0 && f->c[e][k] == 0);
        c->merged[k] = zero;
        for (int64_t t = 0; t < k && !c->merged[k]; t++)
            for (int e = 0; e < 2 && !c->merged[t] && !c->merged[k]; e++) {
                const double *w = f->w[e] + k * n, *v = f->w[1 - e] + k * n;
                const double  a = tni_exact_factor(n, f->w[0] + t * n, w, f->c[0][t], f->c[e][k]);
                const double  b = a != 0 ? tni_exact_factor(n, f->w[1] + t * n, v, f->c[1][t], f->c[1 - e][k]) : 0;
                c->merged[k] = b != 0 && tni_merge_exactly(c, t, k, a, b);
            }
        c->exact += !c->merged[k];
        for (int64_t o = 0; o < f->out && c->merged[k]; o++) c->whole[o * h + k] = 0;
    }
}

/* H, from the eigenpairs of K with a small number added to its values. The constant counts as one of the inputs. */
static tn_status tni_compress_inverse(tni_compress *c)
{
    tni_ball        *b = &c->ball;
    const tni_flat  *f = &b->f;
    const tni_taken *mark = b->w->newest;
    const int64_t    h = f->h;
    double *k = tni_take_f64(b->w, h, h), *values = tni_take_zeros(b->w, tni_max(h, 1), 1);
    double *vectors = tni_take_f64(b->w, h, h), *work = tni_take_f64(b->w, tni_eigh_work(h), 1);
    double *const g[4] = {tni_take_f64(b->w, h, h), tni_take_f64(b->w, h, h), tni_take_f64(b->w, h, h), tni_take_f64(b->w, h, h)};
    if (b->w->failed) return TN_ERR_MEMORY;
    for (int e = 0; e < 4; e++) {
        b->host.by->gemm(&b->host, h, h, f->n, 1 / (double)tni_max(f->n, 1), tni_rows(f->w[e / 2], f->n),
                         tni_transposed(tni_rows(f->w[e % 2], f->n)), 0, tni_rows(g[e], h));
        for (int64_t i = 0; i < h * h; i++) g[e][i] += f->c[e / 2][i / h] * f->c[e % 2][i % h];
    }
    for (int64_t i = 0; i < h * h; i++)
        k[i] = i / h != i % h && (c->merged[i / h] || c->merged[i % h]) ? 0 : 0.5 * (g[0][i] * g[3][i] + g[1][i] * g[2][i]);
    for (int64_t t = 0; t < h; t++) c->length[t] = k[t * h + t] > 0 ? tni_unit_scale(sqrt(k[t * h + t])) : 1;
    for (int64_t i = 0; i < h * h; i++) k[i] *= c->length[i / h] * c->length[i % h];
    tn_status s = h > 0 ? tni_eigh(&b->host, h, k, values, vectors, work) : TN_OK;
    for (int64_t i = 0; i < h && s == TN_OK; i++)
        b->host.by->scale(h, 1 / sqrt(tni_max_f64(values[i], 0) + 1e-10), vectors + i * h);
    if (s == TN_OK) b->host.by->gemm(&b->host, h, h, h, 1, tni_transposed(tni_rows(vectors, h)), tni_rows(vectors, h), 0,
                                     tni_rows(c->inverse, h));
    tni_scratch_release(b->w, mark);
    return s;
}

/* Leaves out term k. */
static void tni_compress_drop(tni_compress *c, int64_t k)
{
    c->left[k] = false;
    if (c->plain) return;
    const int64_t      h = c->ball.f.h, out = c->ball.f.out;
    const tni_algebra *by = c->ball.host.by;
    const double      *row = c->h + k * h, pivot = -1 / row[k];
    for (int64_t t = 0; t < h; t++) {
        if (!c->left[t]) continue;
        by->axpy(out, pivot * row[t], c->p + k * out, c->p + t * out);
        by->axpy(h, pivot * row[t], row, c->h + t * h);
    }
}

/* Leaves `terms` of them, p as it is stored in c->p, and what that changes in c->change. */
static void tni_compress_to(tni_compress *c, int64_t terms)
{
    const tni_flat *f = &c->ball.f;
    const int64_t   h = f->h, out = f->out;
    int64_t         left = c->exact;
    memcpy(c->h, c->inverse, (size_t)(h * h) * sizeof *c->h);
    for (int64_t i = 0; i < h * out; i++) c->p[i] = c->whole[i % out * h + i / out] / c->length[i / out];
    for (int64_t t = 0; t < h; t++) c->left[t] = true;
    for (int64_t t = 0; t < h; t++) if (c->merged[t]) tni_compress_drop(c, t);
    for (; left > terms; left--) {
        double  least = HUGE_VAL;
        int64_t at = -1;
        for (int64_t t = 0; t < h; t++) {
            if (!c->left[t]) continue;
            const double square = c->ball.host.by->dot(out, c->p + t * out, c->p + t * out);
            const double unit = c->length[t] * f->length[0][t] * f->length[1][t];
            const double loss = c->plain ? square * unit * unit : square / c->h[t * h + t];
            if (at >= 0 && !(loss < least)) continue;
            least = loss;
            at = t;
        }
        tni_compress_drop(c, at);
    }
    for (int64_t i = 0; i < h * out; i++) {
        const int64_t t = i / out, at = i % out * h + t;
        c->p[i] = !c->left[t] ? 0 : terms < c->exact ? c->p[i] * c->length[t] : c->whole[at];
        if (c->single) c->p[i] = (double)(float)c->p[i];
        c->change[at] = c->p[i] - c->whole[at];
    }
}

/* The operator of the terms that are left, and their places. */
static tn_status tni_compress_store(const tni_compress *c, const tn_cp *cp, tn_compression *out)
{
    const int64_t h = cp->terms;
    tni_scratch  *w = c->ball.w;
    int64_t       terms = 0, in[2] = {cp->in[0], cp->in[1]};
    int32_t      *kept = (int32_t *)tni_take(w, tni_max(h, 1), sizeof *kept);
    double       *p = tni_take_f64(w, cp->out, h);
    if (w->failed) return TN_ERR_MEMORY;
    for (int64_t t = 0; t < h; t++) if (c->left[t]) kept[terms++] = (int32_t)t;
    for (int64_t i = 0; i < cp->out * terms; i++) p[i] = c->p[kept[i % terms] * cp->out + i / terms];
    out->kept = tni_owned_counts(cp->ctx, terms, kept);
    out->cp = tni_cp_make(cp->ctx, 2, cp->out, terms, in, cp->constant);
    if (!out->kept || !out->cp) return tni_analysis_status(cp->ctx);
    tn_status s = tn_write(out->cp->p, TN_F64, p, cp->out * terms);
    for (int64_t t = 0; t < terms; t++)
        for (int e = 0; e < 2 && s == TN_OK; e++)
            s = tni_put_copy(cp->ctx, tni_block_of(out->cp->f[e], t, 1, 0, in[e]), tni_block_of(cp->f[e], kept[t], 1, 0, in[e]));
    return s;
}

static tn_status tni_compress_run(tni_scratch *w, const tn_cp *cp, const tn_compress_desc *d, tn_compression *out)
{
    tni_compress  c = TNI_ZERO;
    const int64_t h = cp->terms, numbers = cp->out * h;
    tn_status     s = tni_flat_read(&c.ball.f, w, cp);
    if (s != TN_OK) return s;
    c.plain = d->plain;
    c.single = d->single || cp->p->dtype != TN_F64;
    c.merged = (bool *)tni_take(w, tni_max(h, 1), sizeof *c.merged);
    c.left = (bool *)tni_take(w, tni_max(h, 1), sizeof *c.left);
    c.whole = tni_take_f64(w, numbers, 1);
    c.p = tni_take_f64(w, numbers, 1);
    c.change = tni_take_f64(w, numbers, 1);
    c.length = tni_take_f64(w, h, 1);
    c.inverse = tni_take_f64(w, h, h);
    c.h = tni_take_f64(w, h, h);
    if (w->failed) return TN_ERR_MEMORY;
    memcpy(c.whole, c.ball.f.p, (size_t)numbers * sizeof *c.whole);
    tni_compress_merge(&c);
    out->exact = c.exact;
    if ((s = tni_ball_begin(&c.ball, w, d->radius)) != TN_OK || (s = tni_compress_inverse(&c)) != TN_OK) return s;
    int64_t low = d->terms > 0 ? tni_min(d->terms, c.exact) : -1, high = d->terms > 0 ? low : c.exact;
    double  bound = 0;
    while (high - low > 1 && d->bound > 0) {                    /* high keeps the bound, low does not */
        const int64_t middle = low + (high - low) / 2;
        tni_compress_to(&c, middle);
        if ((s = tni_ball_bound(&c.ball, c.change, &bound)) != TN_OK) return s;
        if (bound <= d->bound) high = middle;
        else low = middle;
    }
    tni_compress_to(&c, high);
    if ((s = tni_ball_measure(&c.ball, c.change, &out->change)) != TN_OK) return s;
    return tni_compress_store(&c, cp, out);
}

tn_status tn_cp_compress(const tn_cp *cp, const tn_compress_desc *desc, tn_compression *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!tni_ball_fits(cp, desc ? desc->radius : 0, out, "cp_compress")) return cp ? tn_ctx_status(cp->ctx) : TN_ERR_ARG;
    if (!desc) return tni_fail(cp->ctx, TN_ERR_ARG, "cp_compress: desc is NULL, expected a radius and a bound");
    if (!(desc->bound >= 0 && desc->bound < HUGE_VAL))
        return tni_fail(cp->ctx, TN_ERR_ARG, "cp_compress: bound is %g, expected a finite number >= 0", desc->bound);
    if (!tni_within(cp->ctx, "cp_compress", "terms", desc->terms, 0, INT32_MAX)) return TN_ERR_ARG;
    tni_scratch w = tni_scratch_begin(cp->ctx, "cp_compress");
    tn_status   s = tni_scratch_end(&w, tni_compress_run(&w, cp, desc, out));
    if (s != TN_OK) tn_compression_destroy(out);
    return s;
}

void tn_compression_destroy(tn_compression *c)
{
    if (!c) return;
    tn_cp_destroy(c->cp);
    tn_ball_bound_destroy(&c->change);
    tni_result_end(c, sizeof *c, offsetof(tn_compression, kept), 1);
}

#endif /* TN_NO_ANALYSIS */
