#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- distance to another answer ----------------------------------------- >>analysis-radius-impl
   The lead of output a over output b is a quadratic of the step d away from x. In its eigenvectors

       g(d) = g0 + sum_i (2 c_i d_i + l_i d_i^2),   g0 >= 0

   and the shortest d with g(d) = 0 is  d_i = -c_i/(m + l_i),  where m >= m0 = max(0, -min l) makes g zero (More & Sorensen
   1983; one quadratic constraint has no duality gap). On the way from m0 to infinity g rises to g0. Where it is positive at
   m0 already, the eigenvector of min l < 0 takes what is missing (the hard case); without such a vector no d exists.

   All is computed in the span of the encoders' rows, in which g changes: coordinates [k], k <= min(n, 2 terms). */
typedef struct tni_radius {
    tni_host host;
    int64_t  n, k, h, out, rows;            /* n: inputs, without the constant one                               */
    double  *p, *w[2], *c[2];               /* [out,h]; [h,k] and [h]: W in coordinates, and the constant's column */
    double  *basis;                         /* [n,k] orthonormal columns; NULL: coordinates are inputs           */
    double  *z, *y;                         /* [rows,k] and [rows,out]: where the rows are, and their outputs    */
    double  *radius, *step;                 /* [rows,out]; [rows,k] to the nearest input with another answer     */
    int32_t *answer, *rival;                /* [rows]                                                            */
    double  *a, *v, *scaled, *l, *b, *at, *d, *work;    /* of a pair of outputs: [k,k] [k,k] [h,k] and [k]       */
} tni_radius;

/* g at m = m0 + e, without eigenvectors whose m + l is 0. Fills d, unless it is NULL. */
static double tni_lead_at(int64_t k, double sign, const double *l, const double *c, double g0, double m0, double e, double *d)
{
    double g = g0;
    for (int64_t i = 0; i < k; i++) {
        const double gap = m0 + sign * l[i] + e;
        if (d) d[i] = gap > 0 ? -c[i] / gap : 0;
        if (gap > 0) g -= c[i] / gap * (c[i] / gap) * (m0 + e + gap);
    }
    return g;
}

/* Writes the shortest d and returns its length, infinity where no d exists. */
static double tni_shortest(int64_t k, double sign, const double *l, const double *c, double g0, double *d)
{
    int64_t low = 0;
    double  e = 1, least = 0, step = 2;
    bool    pole = false;
    memset(d, 0, (size_t)k * sizeof *d);
    if (!(g0 > 0)) return 0;
    for (int64_t i = 1; i < k; i++) if (sign * l[i] < sign * l[low]) low = i;
    const double m0 = k > 0 ? tni_max_f64(0, -sign * l[low]) : 0;
    for (int64_t i = 0; i < k; i++) pole = pole || (m0 + sign * l[i] <= 0 && c[i] != 0);
    const double most = tni_lead_at(k, sign, l, c, g0, m0, 0, d), length = tni_frobenius(k, d);
    if (!pole && most >= 0) {
        /* Up to the rounding of eigenvalues it touches 0. */
        if (most > 1e-13 * (double)k * (g0 + tni_largest_of(k, l) * length * length) && !(m0 > 0)) return HUGE_VAL;
        if (m0 > 0) d[low] = sqrt(most / m0);
        return tni_frobenius(k, d);
    }
    while (e > 1e-300 && tni_lead_at(k, sign, l, c, g0, m0, e, NULL) > 0) e /= 2;      /* the root is in [least, step least] */
    while (e < 1e300 && tni_lead_at(k, sign, l, c, g0, m0, 2 * e, NULL) < 0) e *= 2;
    for (least = e; step > 1; ) {
        const double half = sqrt(step);
        if (!(half < step && half > 1)) break;
        if (tni_lead_at(k, sign, l, c, g0, m0, least * half, NULL) < 0) least *= half;
        step = half;
    }
    tni_lead_at(k, sign, l, c, g0, m0, least, d);
    return tni_frobenius(k, d);
}

/* The quadratic of output a minus output b (or of a alone, b < 0): eigenvalues, eigenvectors as rows, linear part. Values
   that are rounding errors become 0. */
static tn_status tni_radius_pair(tni_radius *r, int64_t a, int64_t b)
{
    const tni_host *h = &r->host;
    const int64_t   k = r->k;
    double         *linear = r->at, most = 0;
    memset(linear, 0, (size_t)k * sizeof *linear);
    for (int64_t t = 0; t < r->h; t++) {
        const double q = r->p[a * r->h + t] - (b < 0 ? 0 : r->p[b * r->h + t]);
        for (int64_t i = 0; i < k; i++) r->scaled[t * k + i] = q / 2 * r->w[0][t * k + i];
        h->by->axpy(k, q / 2 * r->c[0][t], r->w[1] + t * k, linear);
        h->by->axpy(k, q / 2 * r->c[1][t], r->w[0] + t * k, linear);
    }
    h->by->gemm(h, k, k, r->h, 1, tni_transposed(tni_rows(r->scaled, k)), tni_rows(r->w[1], k), 0, tni_rows(r->a, k));
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j <= i; j++) r->a[i * k + j] = r->a[j * k + i] = r->a[i * k + j] + r->a[j * k + i];
    tn_status s = k > 0 ? tni_eigh(h, k, r->a, r->l, r->v, r->work) : TN_OK;
    for (int64_t i = 0; i < k && s == TN_OK; i++) most = tni_max_f64(most, fabs(r->l[i]));
    for (int64_t i = 0; i < k && s == TN_OK; i++) {
        r->b[i] = h->by->dot(k, r->v + i * k, linear);
        if (fabs(r->l[i]) <= 1e-14 * (double)k * most) r->l[i] = 0;
    }
    return s;
}

/* The distance of one row to where output b reaches its answer a, a sign apart from the pair's quadratic. */
static void tni_radius_row(tni_radius *r, int64_t row, int64_t other, double sign, double lead)
{
    const int64_t k = r->k;
    const double *z = r->z + row * k;
    double       *step = r->step + row * k, most = 0;
    for (int64_t i = 0; i < k; i++) {
        const double along = r->host.by->dot(k, r->v + i * k, z);
        r->at[i] = sign * (r->l[i] * along + r->b[i]);
        most = tni_max_f64(most, fabs(r->l[i] * along) + fabs(r->b[i]));
    }
    for (int64_t i = 0; i < k; i++) if (fabs(r->at[i]) <= 1e-14 * most) r->at[i] = 0;
    const double length = tni_shortest(k, sign, r->l, r->at, lead, r->d);
    r->radius[row * r->out + other] = length;
    const int32_t rival = r->rival[row];
    if (rival >= 0 && !(length < r->radius[row * r->out + rival])) return;
    r->rival[row] = (int32_t)other;
    memset(step, 0, (size_t)k * sizeof *step);
    if (length < HUGE_VAL) for (int64_t i = 0; i < k; i++) r->host.by->axpy(k, r->d[i], r->v + i * k, step);
}

/* All distances of the last layer, pair by pair of the outputs that are answers. */
static tn_status tni_radius_pairs(tni_radius *r)
{
    tn_status s = TN_OK;
    for (int64_t a = 0; a < r->out; a++)
        for (int64_t b = r->out == 1 ? -1 : a + 1; b < (r->out == 1 ? 0 : r->out); b++) {
            bool made = false;
            for (int64_t row = 0; row < r->rows && s == TN_OK; row++) {
                const double *y = r->y + row * r->out, lead = y[a] - (b < 0 ? 0 : y[b]);
                if (b >= 0 && r->answer[row] != a && r->answer[row] != b) continue;
                if (!made && (s = tni_radius_pair(r, a, b)) != TN_OK) break;
                made = true;
                const bool first = b < 0 ? lead >= 0 : r->answer[row] == a;
                tni_radius_row(r, row, b < 0 ? 0 : first ? b : a, first ? 1 : -1, fabs(lead));
            }
        }
    return s;
}

/* ---- bounds of the layers before the last ------------------------------- >>analysis-radius-bounds
   A layer's output moves by at most s r + q r^2 when x moves by r: s = |J(x)|, q >= |B(d,d)| for |d| = 1. What the next layer
   allows, t, is therefore kept where r <= 2 t/(s + sqrt(s^2 + 4 q t)). */
TNI_FN tn_status tni_flat_read(tni_flat *f, tni_scratch *w, const tn_cp *cp)
{
    const int64_t in = cp->in[0];
    f->n = in - cp->constant;
    f->h = cp->terms;
    f->out = cp->out;
    f->p = tni_take_f64(w, f->out, f->h);
    if (!f->p) return TN_ERR_MEMORY;
    tn_status s = tni_read_scaled(cp->ctx, w->what, "p", cp->p, f->p, NULL);
    for (int e = 0; e < 2 && s == TN_OK; e++) {
        f->w[e] = tni_take_f64(w, f->h, in);
        f->c[e] = tni_take_zeros(w, f->h, 1);
        f->length[e] = tni_take_f64(w, f->h, 1);
        if (w->failed) return TN_ERR_MEMORY;
        s = tni_read_scaled(cp->ctx, w->what, e == 0 ? "f[0]" : "f[1]", cp->f[e], f->w[e], NULL);
        for (int64_t t = 0; t < f->h && cp->constant; t++) f->c[e][t] = f->w[e][t * in + f->n];
        if (cp->constant) tni_keep_columns(f->h, in, f->n, f->w[e], f->w[e]);
        for (int64_t t = 0; t < f->h; t++) f->length[e][t] = tni_frobenius(f->n, f->w[e] + t * f->n);
    }
    return s;
}

/* u[e] [rows,h] = x W_e^T + c_e, and y [rows,out] = (u[0] * u[1]) P^T */
static void tni_flat_forward(const tni_flat *f, const tni_host *host, int64_t rows, double *x, double **u, double *more,
                             double *y)
{
    for (int e = 0; e < 2; e++) {
        for (int64_t i = 0; i < rows; i++) memcpy(u[e] + i * f->h, f->c[e], (size_t)f->h * sizeof(double));
        host->by->gemm(host, rows, f->h, f->n, 1, tni_rows(x, f->n), tni_transposed(tni_rows(f->w[e], f->n)), 1,
                       tni_rows(u[e], f->h));
    }
    for (int64_t i = 0; i < rows * f->h; i++) more[i] = u[0][i] * u[1][i];
    host->by->gemm(host, rows, f->out, f->h, 1, tni_rows(more, f->h), tni_transposed(tni_rows(f->p, f->h)), 0,
                   tni_rows(y, f->out));
}

/* The largest singular value of a [m,n], with a margin for rounding. */
TNI_FN tn_status tni_spectral_norm(tni_scratch *w, const tni_host *host, int64_t m, int64_t n, double *a, double *norm)
{
    const tni_taken *mark = w->newest;
    const int64_t    k = tni_min(m, n);
    const tni_mat    rows = m <= n ? tni_rows(a, n) : tni_transposed(tni_rows(a, n));
    double *gram = tni_take_f64(w, k, k), *values = tni_take_zeros(w, tni_max(k, 1), 1), *vectors = tni_take_f64(w, k, k);
    double *work = tni_take_f64(w, tni_eigh_work(k), 1);
    if (w->failed) return TN_ERR_MEMORY;
    host->by->gemm(host, k, k, tni_max(m, n), 1, rows, tni_transposed(rows), 0, tni_rows(gram, k));
    tn_status s = k > 0 ? tni_eigh(host, k, gram, values, vectors, work) : TN_OK;
    *norm = sqrt(tni_max_f64(0, tni_largest_of(k, values))) * (1 + 1e-12);
    tni_scratch_release(w, mark);
    return s;
}

/* What terms that cancel may have lost of the Jacobian at u: the root of sum_o (sum_t |p_ot| a_t)^2 times their rounding, with
   a_t = |u1_t| |w_t| + |u0_t| |v_t|. Of the curvature's square, for u = NULL, the square of this with a_t = |w_t| |v_t|. */
static double tni_flat_rounding(const tni_flat *f, const double *u0, const double *u1)
{
    double squares = 0;
    for (int64_t o = 0; o < f->out; o++) {
        double sum = 0;
        for (int64_t t = 0; t < f->h; t++) {
            const double w = f->length[0][t], v = f->length[1][t];
            sum += fabs(f->p[o * f->h + t]) * (u0 ? fabs(u1[t]) * w + fabs(u0[t]) * v : w * v);
        }
        squares += sum * sum;
    }
    return 1e-15 * (double)(f->h + f->n) * (u0 ? sqrt(squares) : squares);
}

/* q: |B(d,d)| <= q |d|^2, the spectral norm of the symmetric tensor's unfolding [out,n^2], from the Gram matrix P K P^T of its
   outputs. K[s,t] = 1/2 ((w_s w_t) (v_s v_t) + (w_s v_t) (v_s w_t)) */
static tn_status tni_flat_curvature(const tni_flat *f, tni_scratch *w, const tni_host *host, double *q)
{
    const tni_taken *mark = w->newest;
    const int64_t    h = f->h, o = f->out;
    double *g[4], *k = tni_take_f64(w, h, h), *pk = tni_take_f64(w, o, h), *gram = tni_take_f64(w, o, o);
    for (int e = 0; e < 4; e++) g[e] = tni_take_f64(w, h, h);
    if (w->failed) return TN_ERR_MEMORY;
    for (int e = 0; e < 4; e++)
        host->by->gemm(host, h, h, f->n, 1, tni_rows(f->w[e / 2], f->n), tni_transposed(tni_rows(f->w[e % 2], f->n)), 0,
                       tni_rows(g[e], h));
    for (int64_t i = 0; i < h * h; i++) k[i] = 0.5 * (g[0][i] * g[3][i] + g[1][i] * g[2][i]);
    host->by->gemm(host, o, h, h, 1, tni_rows(f->p, h), tni_rows(k, h), 0, tni_rows(pk, h));
    host->by->gemm(host, o, o, h, 1, tni_rows(pk, h), tni_transposed(tni_rows(f->p, h)), 0, tni_rows(gram, o));
    tn_status s = tni_spectral_norm(w, host, o, o, gram, q);
    *q = sqrt(*q + tni_flat_rounding(f, NULL, NULL));
    tni_scratch_release(w, mark);
    return s;
}

/* radius [rows,out]: what the layer's output may move by becomes what its input may. u: the encoders' outputs [rows,h] */
static tn_status tni_flat_pull(const tni_flat *f, tni_scratch *w, const tni_host *host, int64_t rows, double *const *u,
                               int64_t out, double *radius)
{
    const tni_taken *mark = w->newest;
    double *rates = tni_take_f64(w, f->h, f->n), *jacobian = tni_take_f64(w, f->out, f->n), slope = 0, q = 0;
    if (w->failed) return TN_ERR_MEMORY;
    tn_status s = tni_flat_curvature(f, w, host, &q);
    for (int64_t row = 0; row < rows && s == TN_OK; row++) {
        memset(rates, 0, (size_t)(f->h * f->n) * sizeof *rates);
        for (int64_t t = 0; t < f->h; t++)
            for (int e = 0; e < 2; e++)
                host->by->axpy(f->n, u[1 - e][row * f->h + t], f->w[e] + t * f->n, rates + t * f->n);
        host->by->gemm(host, f->out, f->n, f->h, 1, tni_rows(f->p, f->h), tni_rows(rates, f->n), 0, tni_rows(jacobian, f->n));
        s = tni_spectral_norm(w, host, f->out, f->n, jacobian, &slope);
        slope += tni_flat_rounding(f, u[0] + row * f->h, u[1] + row * f->h);
        for (int64_t b = 0; b < out; b++) {
            double *r = radius + row * out + b;
            if (*r > 0 && *r < HUGE_VAL) *r = 2 * *r / (slope + sqrt(slope * slope + 4 * q * *r));
        }
    }
    tni_scratch_release(w, mark);
    return s;
}

/* Coordinates of the last layer in the span of its encoders' 2 h rows, where these are fewer than the inputs. */
static tn_status tni_radius_begin(tni_radius *r, tni_scratch *w, const tni_flat *f, double *x)
{
    const int64_t h = f->h, n = f->n, k = tni_min(n, 2 * h);
    tn_status     s = TN_OK;
    r->n = n;
    r->k = k;
    r->h = h;
    r->p = f->p;
    r->z = x;
    r->a = tni_take_f64(w, k, k);
    r->v = tni_take_f64(w, k, k);
    r->scaled = tni_take_f64(w, h, k);
    r->step = tni_take_zeros(w, r->rows, k);
    r->l = tni_take_zeros(w, 4, k);
    r->work = tni_take_f64(w, tni_eigh_work(k), 1);
    for (int e = 0; e < 2; e++) {
        r->w[e] = f->w[e];
        r->c[e] = f->c[e];
    }
    if (w->failed) return TN_ERR_MEMORY;
    r->b = r->l + k;
    r->at = r->b + k;
    r->d = r->at + k;
    if (k == n) return TN_OK;
    double *both = tni_take_f64(w, k, n), *inside = tni_take_f64(w, k, k), *work = tni_take_f64(w, tni_qr_work(n, k), 1);
    r->basis = tni_take_f64(w, n, k);
    r->z = tni_take_f64(w, r->rows, k);
    if (w->failed) return TN_ERR_MEMORY;
    for (int e = 0; e < 2; e++) memcpy(both + e * h * n, f->w[e], (size_t)(h * n) * sizeof(double));
    s = tni_qr(&r->host, n, k, tni_transposed(tni_rows(both, n)), tni_rows(r->basis, k), tni_transposed(tni_rows(inside, k)),
               work);
    r->w[0] = inside;
    r->w[1] = inside + h * k;
    r->host.by->gemm(&r->host, r->rows, k, n, 1, tni_rows(x, n), tni_rows(r->basis, k), 0, tni_rows(r->z, k));
    return s;
}

static tn_status tni_radius_answers(tni_radius *r, tn_ctx *ctx)
{
    for (int64_t row = 0; row < r->rows; row++) {
        const double *y = r->y + row * r->out;
        r->answer[row] = 0;
        r->rival[row] = -1;
        for (int64_t o = 0; o < r->out; o++) {
            if (!(fabs(y[o]) < HUGE_VAL))
                return tni_fail(ctx, TN_ERR_NONFINITE, "radius: output %lld of row %lld is not finite", (long long)o,
                                (long long)row);
            if (y[o] > y[r->answer[row]]) r->answer[row] = (int32_t)o;
            r->radius[row * r->out + o] = 0;
        }
    }
    return TN_OK;
}

/* The nearest inputs [rows,n]: x and the step, in inputs again. NaN where no input has another answer. */
static void tni_radius_nearest(const tni_radius *r, const double *x, double *nearest)
{
    for (int64_t row = 0; row < r->rows; row++) {
        const int32_t rival = r->rival[row];
        const bool    none = rival < 0 || !(r->radius[row * r->out + rival] < HUGE_VAL);
        double       *step = r->step + row * r->k, *to = nearest + row * r->n;
        for (int64_t i = 0; i < r->n; i++)
            to[i] = none ? (double)NAN
                    : x[row * r->n + i] + (r->basis ? r->host.by->dot(r->k, r->basis + i * r->k, step) : step[i]);
    }
}

static tn_status tni_radius_run(tni_scratch *w, int count, const tn_cp *const *layers, const tn_tensor *x, tn_radius *out)
{
    tn_ctx    *ctx = w->ctx;
    tni_radius r = TNI_ZERO;
    tni_flat   f[TN_RADIUS_MAX_LAYERS] = TNI_ZERO;
    double    *at[TN_RADIUS_MAX_LAYERS + 1], *u[TN_RADIUS_MAX_LAYERS][2];
    int64_t    extent = 1, rows = x->shape[0];
    tn_status  s = TN_OK;
    at[0] = tni_take_f64(w, rows, x->shape[1]);
    if (w->failed || (s = tni_read_scaled(ctx, "radius", "x", x, at[0], NULL)) != TN_OK) return s == TN_OK ? TN_ERR_MEMORY : s;
    for (int l = 0; l < count && s == TN_OK; l++) {
        s = tni_flat_read(&f[l], w, layers[l]);
        if (s != TN_OK) return s;
        extent = tni_max(tni_max(extent, rows), tni_max(f[l].n, tni_max(f[l].h, f[l].out)));
    }
    r.host = tni_take_host(w, extent);
    r.rows = rows;
    r.out = f[count - 1].out;
    for (int l = 0; l < count; l++) {
        double *more = tni_take_f64(w, rows, f[l].h);
        for (int e = 0; e < 2; e++) u[l][e] = tni_take_f64(w, rows, f[l].h);
        at[l + 1] = tni_take_f64(w, rows, f[l].out);
        if (w->failed) return TN_ERR_MEMORY;
        tni_flat_forward(&f[l], &r.host, rows, at[l], u[l], more, at[l + 1]);
    }
    r.y = at[count];
    r.radius = tni_take_zeros(w, rows, r.out);
    r.answer = (int32_t *)tni_take(w, rows, sizeof *r.answer);
    r.rival = (int32_t *)tni_take(w, rows, sizeof *r.rival);
    double *nearest = tni_take_f64(w, rows, f[0].n);
    if (w->failed) return TN_ERR_MEMORY;
    if ((s = tni_radius_begin(&r, w, &f[count - 1], at[count - 1])) == TN_OK) s = tni_radius_answers(&r, ctx);
    if (s == TN_OK) s = tni_radius_pairs(&r);
    for (int l = count - 1; l-- > 0 && s == TN_OK; ) s = tni_flat_pull(&f[l], w, &r.host, rows, u[l], r.out, r.radius);
    for (int64_t i = 0; i < rows * r.out && count > 1 && ctx->desc.dtype == TN_F32; i++)
        r.radius[i] *= 1 - 1.2e-7;                                  /* a bound is not rounded up */
    if (s != TN_OK) return s;
    if (count == 1) tni_radius_nearest(&r, at[0], nearest);
    out->answer = tni_owned_counts(ctx, rows, r.answer);
    out->rival = tni_owned_counts(ctx, rows, r.rival);
    out->radius = tni_owned_from(ctx, 2, TNI_DIMS(rows, r.out), r.radius);
    if (count == 1) out->nearest = tni_owned_from(ctx, 2, TNI_DIMS(rows, f[0].n), nearest);
    return out->answer && out->rival && out->radius && (out->nearest || count > 1) ? TN_OK : tni_analysis_status(ctx);
}

tn_status tn_cp_radius(int count, const tn_cp *const *layers, const tn_tensor *x, tn_radius *out)
{
    tn_ctx *ctx = x ? x->ctx : NULL;
    if (out) memset(out, 0, sizeof *out);
    if (!x || !layers) return TN_ERR_ARG;
    if (!out) return tni_fail(ctx, TN_ERR_ARG, "radius: out is NULL, expected a place for the result");
    if (!tni_within(ctx, "radius", "count", count, 1, TN_RADIUS_MAX_LAYERS)) return TN_ERR_ARG;
    if (!tni_is_matrix(ctx, x, "radius", "x")) return tn_ctx_status(ctx);
    for (int l = 0; l < count; l++) {
        const int64_t n = l > 0 && layers[l - 1] ? layers[l - 1]->out : x->shape[1];
        if (!layers[l] || layers[l]->ctx != ctx)
            return tni_fail(ctx, TN_ERR_ARG, "radius: layers[%d] is %s", l, layers[l] ? "of another context than x" : "NULL");
        if (!tni_cp_is_bilinear(layers[l], "radius")) return tn_ctx_status(ctx);
        if (layers[l]->in[0] - layers[l]->constant != n)
            return tni_fail(ctx, TN_ERR_SHAPE, "radius: layers[%d] takes %lld inputs, expected %lld, %s", l,
                            (long long)(layers[l]->in[0] - layers[l]->constant), (long long)n,
                            l > 0 ? "the outputs of the layer before it" : "the columns of x");
    }
    if (layers[count - 1]->out < 1) return tni_fail(ctx, TN_ERR_SHAPE, "radius: the last layer has no outputs");
    tni_scratch w = tni_scratch_begin(ctx, "radius");
    tn_status   s = tni_scratch_end(&w, tni_radius_run(&w, count, layers, x, out));
    if (s != TN_OK) tn_radius_destroy(out);
    return s;
}

void tn_radius_destroy(tn_radius *r) { tni_result_end(r, sizeof *r, offsetof(tn_radius, radius), 4); }

#endif /* TN_NO_ANALYSIS */
