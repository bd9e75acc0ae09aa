#include "core/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- symmetric eigenproblem --------------------------------------- >>eigh
   A = V^T diag(l) V, the rows of V are eigenvectors. Three steps:
   1. A = Q T Q^T, T tridiagonal, by reflections [GVL 8.3.1] [dsytrd].
   2. T = Z^T diag(l) Z. A small T by implicit QL with Wilkinson's shift [GVL 8.3.3] [dsteqr]; a larger one is
      divided in two, and the eigenpairs of both are joined [dstedc].
   3. V = Z Q^T, by blocks of reflections. [dormtr] */

/* ---- 1. to tridiagonal form: only the upper triangle of A is read ------- >>eigh-tridiagonal
   A reflection takes A to A - v w^T - w v^T with
       w = p - (tau/2)(p.v) v      p = tau A v
   Small matrices stay in the cache: each pass over A applies the last reflection and multiplies by the next v.
   For large ones the reflections of a block are applied together, at its end, by one matrix product; until
   then A is represented by A - sum (v w^T + w v^T).
   Dongarra, Hammarling & Sorensen 1989. [dlatrd] */

TNI_FN int64_t tni_tridiagonal_work(int64_t n) { return (3 * TNI_BLOCK + TNI_TRIDIAGONAL_BANDS) * n; }

/* Replaces p = A v by w. */
static void tni_tridiagonal_partner(const tni_host *h, int64_t m, const double *v, double tau, double *w)
{
    h->by->scale(m, tau, w);
    h->by->axpy(m, -0.5 * tau * h->by->dot(m, w, v), v, w);
}

/* The remaining part, from row `first` on. Row k becomes the reflector v_k, in columns k+1.., after zeros. */
static void tni_tridiagonal_small(const tni_host *h, int64_t n, double *a, int64_t first, double *d, double *e, double *tau,
                                  double *ws)
{
    double *v = NULL, *w = ws, *next = ws + n;
    for (int64_t k = first; k < n; k++) {
        double *row = a + k * n, *spare = w;
        int64_t from = k + 1, m = n - from;
        if (v) {
            double vk = v[k], wk = w[k];
            h->by->axpy(n - k, -vk, w + k, row + k);
            h->by->axpy(n - k, -wk, v + k, row + k);
        }
        d[k] = row[k];
        if (m == 0) break;
        e[k] = tni_reflector(h, m, row + from, tau + k);
        memset(row, 0, (size_t)from * sizeof *row);
        h->by->upper_times(from, n, n, a, n, v, w, row, next);
        tni_tridiagonal_partner(h, m, row + from, tau[k], next + from);
        v = row;
        w = next;
        next = spare;
    }
}

/* p = A v, without the first `from` rows and columns: bands of rows of the triangle of about equal areas, whose results are
   added in their order. */
typedef struct tni_bands {
    const tni_host *host;
    int64_t       n, begin[TNI_TRIDIAGONAL_BANDS + 1];
    double       *a, *part;             /* [n,n], [bands,n] */
    const double *v;
} tni_bands;

static void tni_band_times(void *arg, int64_t task, int worker)
{
    const tni_bands *b = (const tni_bands *)arg;
    (void)worker;
    b->host->by->upper_times(b->begin[task], b->begin[task + 1], b->n, b->a, b->n, NULL, NULL, b->v, b->part + task * b->n);
}

static void tni_tridiagonal_times(const tni_host *h, int64_t n, double *a, int64_t from, const double *v, double *p,
                                  double *part)
{
    tni_bands b;
    int64_t   i;
    b.host = h; b.n = n; b.a = a; b.part = part; b.v = v;
    for (i = 0; i < TNI_TRIDIAGONAL_BANDS; i++) {            /* the rest of the triangle has this share of its area */
        const double share = 1 - (double)i / (double)TNI_TRIDIAGONAL_BANDS;
        b.begin[i] = from + (int64_t)((double)(n - from) * (1 - sqrt(share))) / 4 * 4;
    }
    b.begin[i] = n;
    tni_parallel_for(h->pool, TNI_TRIDIAGONAL_BANDS, tni_band_times, &b);
    memcpy(p + from, part + from, (size_t)(n - from) * sizeof *p);
    for (i = 1; i < TNI_TRIDIAGONAL_BANDS; i++) h->by->axpy(n - b.begin[i], 1, part + i * n + b.begin[i], p + b.begin[i]);
}

/* Rows first .. first+w-1; ws gets [V;-W;V], where V and W have a row for each reflection. */
static void tni_tridiagonal_panel(const tni_host *h, int64_t n, double *a, int64_t first, int64_t w, double *d, double *e,
                                  double *tau, double *ws)
{
    double *vs = ws, *partners = ws + w * n, coefficient[2 * TNI_BLOCK];
    for (int64_t k = first; k < first + w; k++) {
        int64_t  before = k - first, m = n - k - 1, from = k + 1;
        double  *row = a + k * n, *p = partners + before * n + from;
        tni_mat  v = tni_rows(vs, n), partner = tni_rows(partners, n), c = tni_rows(coefficient, 1);
        tni_mat  to = tni_rows(row + k, 1);
        if (before > 0) {
            h->by->gemm(h, n - k, 1, before, -1, tni_transposed(tni_from(partner, 0, k)), tni_mat_of(vs + k, n, 1), 1, to);
            h->by->gemm(h, n - k, 1, before, -1, tni_transposed(tni_from(v, 0, k)), tni_mat_of(partners + k, n, 1), 1, to);
        }
        d[k] = row[k];
        e[k] = tni_reflector(h, m, row + from, tau + k);
        memset(row, 0, (size_t)from * sizeof *row);
        memcpy(vs + before * n, row, (size_t)n * sizeof *row);
        tni_tridiagonal_times(h, n, a, from, row, partners + before * n, ws + 3 * w * n);
        if (before > 0) {
            h->by->gemm(h, before, 1, m, 1, tni_from(partner, 0, from), tni_rows(row + from, 1), 0, c);
            h->by->gemm(h, m, 1, before, -1, tni_transposed(tni_from(v, 0, from)), c, 1, tni_rows(p, 1));
            h->by->gemm(h, before, 1, m, 1, tni_from(v, 0, from), tni_rows(row + from, 1), 0, c);
            h->by->gemm(h, m, 1, before, -1, tni_transposed(tni_from(partner, 0, from)), c, 1, tni_rows(p, 1));
        }
        tni_tridiagonal_partner(h, m, row + from, tau[k], p);
    }
    h->by->scale(w * n, -1, partners);
    memcpy(ws + 2 * w * n, vs, (size_t)(w * n) * sizeof *ws);
}

/* A[next:, next:] += [V;-W]^T [-W;V], upper triangle */
static void tni_tridiagonal_update(const tni_host *h, int64_t n, double *a, int64_t next, int64_t w, double *ws)
{
    int64_t height = 2 * TNI_BLOCK;
    tni_mat vw = tni_rows(ws, n), wv = tni_rows(ws + w * n, n);
    for (int64_t i = next; i < n; i += height)
        h->by->gemm(h, tni_min(height, n - i), n - i, 2 * w, 1, tni_transposed(tni_from(vw, 0, i)), tni_from(wv, 0, i), 1,
                    tni_rows(a + i * n + i, n));
}

TNI_FN void tni_tridiagonal(const tni_host *h, int64_t n, double *a, double *d, double *e, double *tau, double *ws)
{
    int64_t first;
    for (first = 0; n - first > TNI_TRIDIAGONAL_SMALL; first += TNI_BLOCK) {
        tni_tridiagonal_panel(h, n, a, first, TNI_BLOCK, d, e, tau, ws);
        tni_tridiagonal_update(h, n, a, first + TNI_BLOCK, TNI_BLOCK, ws);
    }
    tni_tridiagonal_small(h, n, a, first, d, e, tau, ws);
    e[n - 1] = 0;
}

/* ---- 2. implicit QL, and its rotations ---------------------------------- >>eigh-ql
   The rotations are recorded and later applied to a strip of columns of Z at a time, which stays in the
   cache, so that each row is loaded once per sweep. The list holds, sweep after sweep: the row below the first
   rotation, the number of rotations, then c and s of each. They go upwards: the first rotates rows (top-1,top),
   the next (top-2,top-1), ... */

static void tni_rotations_apply(tni_rotations *r)
{
    int64_t n = r->n;
    for (int64_t j = 0; j < n && r->used > 0; j += TNI_STRIP) {
        size_t bytes = (size_t)tni_min(TNI_STRIP, n - j) * sizeof(double);
        for (int64_t i = 0; i < n; i++) memcpy(r->strip + i * TNI_STRIP, r->z + i * r->stride + j, bytes);
        r->host->by->rotate_strip(r->list, r->list + r->used, r->strip);
        for (int64_t i = 0; i < n; i++) memcpy(r->z + i * r->stride + j, r->strip + i * TNI_STRIP, bytes);
    }
    r->used = 0;
}

static void tni_rotations_begin(tni_rotations *r, int64_t top, int64_t most)
{
    if (!r->z) return;
    if (r->max - r->used < 2 + 2 * most) tni_rotations_apply(r);
    r->header = r->used;
    r->list[r->used++] = (double)top;
    r->list[r->used++] = 0;
}

static void tni_rotations_add(tni_rotations *r, double c, double s)
{
    if (!r->z) return;
    r->list[r->header + 1]++;
    r->list[r->used++] = c;
    r->list[r->used++] = s;
}

/* One sweep over the unreduced block l..m from below, with the shift for d[l]: it chases the bulge that the shift
   creates at m up to l. */
static void tni_ql_sweep(int64_t l, int64_t m, double *d, double *e, tni_rotations *rotations)
{
    double g = (d[l + 1] - d[l]) / (2 * e[l]), s = 1, c = 1, p = 0;
    g = d[m] - d[l] + e[l] / (g + copysign(sqrt(g * g + 1), g));
    tni_rotations_begin(rotations, m, m - l);
    for (int64_t i = m - 1; i >= l; i--) {
        double f = s * e[i], b = c * e[i], r = sqrt(f * f + g * g);
        if (r < 1e-140) r = hypot(f, g);                     /* the squares would underflow */
        e[i + 1] = r;
        if (r == 0) {                                        /* the block has split at i+1 */
            d[i + 1] -= p;
            e[m] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        tni_rotations_add(rotations, c, s);
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0;
}

TNI_FN tn_status tni_ql(int64_t n, double *d, double *e, double nothing, int sweeps, tni_rotations *rotations)
{
    int64_t m;
    for (int64_t l = 0; l < n; l++)
        for (int sweep = 0;; sweep++) {
            for (m = l; m < n - 1 && fabs(e[m]) > nothing; m++) {}
            if (m == l) break;
            if (sweep == sweeps) return TN_ERR_CONVERGENCE;
            tni_ql_sweep(l, m, d, e, rotations);
        }
    if (rotations->z) tni_rotations_apply(rotations);
    return TN_OK;
}

#endif /* TN_NO_OPERATOR */
