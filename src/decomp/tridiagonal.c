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
   One pass over A applies the last reflection and multiplies by the next v. LAPACK applies the reflections of a block
   together, which saves nearly all writes but no reads, and costs products with thin panels. [dsytd2] */

TNI_FN int64_t tni_tridiagonal_work(int64_t n) { return (4 + TNI_TRIDIAGONAL_BANDS) * n; }

/* y = A x, without the first `from` rows and columns, after A -= v w^T + w v^T. A large triangle is divided into bands of
   rows that take about equal times, whose results are added in their order. */
typedef struct tni_bands {
    const tni_host *host;
    int64_t       n, ld, begin[TNI_TRIDIAGONAL_BANDS + 1];
    double       *a, *part;             /* [n,ld], [bands,n] */
    const double *v, *w, *x;
} tni_bands;

static void tni_band_times(void *arg, int64_t task, int worker)
{
    const tni_bands *b = (const tni_bands *)arg;
    (void)worker;
    b->host->by->upper_times(b->begin[task], b->begin[task + 1], b->n, b->a, b->ld, b->v, b->w, b->x, b->part + task * b->n);
}

static void tni_tridiagonal_times(const tni_host *h, int64_t n, double *a, int64_t ld, int64_t from, const double *v,
                                  const double *w, const double *x, double *y, double *part)
{
    const int64_t count = tni_min(TNI_TRIDIAGONAL_BANDS, (n - from) / (2 * TNI_TRIDIAGONAL_BAND) * 2);
    tni_bands     b;
    int64_t       i;
    if (count < 2) {
        h->by->upper_times(from, n, n, a, ld, v, w, x, y);
        return;
    }
    b.host = h; b.n = n; b.ld = ld; b.a = a; b.part = part; b.v = v; b.w = w; b.x = x;
    for (i = 0; i < count; i++) {                            /* the rest of the triangle takes this share of the time */
        const double share = 1 - (double)i / (double)count, more = TNI_TRIDIAGONAL_ROW;
        b.begin[i] = from + (int64_t)(((double)(n - from) + more) * (1 - sqrt(share)));
        if (i > 0) b.begin[i] = b.begin[i] / 4 * 4;
    }
    b.begin[i] = n;
    tni_parallel_for(h->pool, count, tni_band_times, &b);
    memcpy(y + from, part + from, (size_t)(n - from) * sizeof *y);
    for (i = 1; i < count; i++) h->by->axpy(n - b.begin[i], 1, part + i * n + b.begin[i], y + b.begin[i]);
}

/* A = Q T Q^T. Row k of a becomes the reflector v_k, in columns k+1.., after zeros. */
TNI_FN void tni_tridiagonal(const tni_host *h, int64_t n, double *a, int64_t ld, double *d, double *e, double *tau, double *ws)
{
    double *v = ws, *w = v + n, *x = w + n, *next = x + n, *part = next + n;     /* v and x: copies of reflectors */
    memset(ws, 0, (size_t)(4 * n) * sizeof *ws);
    for (int64_t i = 0; i + 4 <= n; i += 4)                  /* of the blocks on the diagonal, both triangles */
        for (int64_t r = 1; r < 4; r++)
            for (int64_t c = 0; c < r; c++) a[(i + r) * ld + i + c] = a[(i + c) * ld + i + r];
    for (int64_t k = 0; k < n; k++) {
        double *row = a + k * ld, *p;
        int64_t from = k + 1, m = n - from;
        h->by->axpy(n - k, -v[k], w + k, row + k);           /* v and w are zero at first */
        h->by->axpy(n - k, -w[k], v + k, row + k);
        d[k] = row[k];
        e[k] = 0;
        if (m == 0) break;
        e[k] = tni_reflector(h, m, row + from, tau + k);
        memset(row, 0, (size_t)from * sizeof *row);
        memcpy(x, row, (size_t)n * sizeof *x);
        tni_tridiagonal_times(h, n, a, ld, from, v, w, x, next, part);
        p = next + from;                                     /* A v becomes w */
        h->by->scale(m, tau[k], p);
        h->by->axpy(m, -0.5 * tau[k] * h->by->dot(m, p, row + from), row + from, p);
        tni_swap_pointers(&v, &x);
        tni_swap_pointers(&w, &next);
    }
}

/* ---- 2. implicit QL, and its rotations ---------------------------------- >>eigh-ql
   The rotations are recorded and later applied to Z, so that each row is loaded once per sweep. The list holds, sweep
   after sweep: the row below the first rotation, the number of rotations, then c and s of each. They go upwards: the
   first rotates rows (top-1,top), the next (top-2,top-1), ... */

static void tni_rotations_apply(tni_rotations *r)
{
    if (r->used > 0) r->host->by->rotate_strip(r->list, r->list + r->used, r->z);
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
