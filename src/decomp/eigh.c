#include "core/inner.h"
#include "cpu/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- 3. back to the vectors of A ---------------------------------------- >>eigh-back
   V = Z Q^T: blocks of reflections I - V T V^T, from the last to the first, are applied to the vectors as columns. A strip
   of columns stays in the second cache from the first product to the last; a task has some strips, and all blocks. V^T and
   -V T of each block are packed once, in the order in which all tasks read them. */
enum {
    TNI_BACK_BLOCK = 60, TNI_BACK_SMALL = 30,   /* most reflections in a block; up to TNI_BACK_FEW rows */
    TNI_BACK_FEW = 512,
    TNI_BACK_LANES = 32,                        /* most columns of a strip */
    TNI_BACK_STRIPS = 2                         /* strips per task */
};

typedef struct tni_back {
    const tni_host       *host;
    const tni_vector_ops *ops;
    int64_t        n, rows, block, strips, next;    /* next: numbers from strip to strip, (n + block) lanes */
    const int64_t *place;                       /* [rows]: row of the result of each row of Z           */
    double        *vectors;                     /* [n,n]: Z before, as floats or doubles                */
    char          *panels, *strip;              /* [strips][n + block,lanes]: a strip, then V^T times it */
} tni_back;

/* Numbers of all panels: V^T and T V have a triangle of n reflections each, in blocks; panels that lack rows are padded. */
static int64_t tni_back_panels(int64_t n) { return n * (n + 4 * TNI_BACK_BLOCK) + 32 * TNI_BACK_BLOCK; }

/* Doubles that hold all strips. Those of floats fit into the matrix A, unless it is small. */
static int64_t tni_back_strips(int64_t n, int64_t size)
{
    return tni_ceil_div((n + TNI_BACK_LANES) * (n + TNI_BACK_BLOCK) * size, 8);
}

static int64_t tni_back_work(int64_t n, int64_t size)
{
    const int64_t strips = tni_back_strips(n, size);
    return 3 * n + tni_ceil_div((tni_back_panels(n) + TNI_BACK_BLOCK * n) * size, 8) + (strips > n * n ? strips : 0)
         + TNI_BACK_BLOCK * (2 * TNI_BACK_BLOCK + n) + 4 * TNI_ALIGN / 8;
}

static int64_t tni_round_up(int64_t a, int64_t b) { return tni_ceil_div(a, b) * b; }

static void tni_back_read(void *arg, int64_t task, int worker)
{
    const tni_back *b = (const tni_back *)arg;
    const int64_t   lanes = b->ops->lanes, first = task * lanes, n = b->n, size = b->ops->size;
    (void)worker;
    b->ops->pack((int)lanes, tni_min(lanes, b->rows - first), n, (const char *)b->vectors + first * n * size, n, 1,
                 b->strip + task * b->next * size, 0);
}

static void tni_back_task(void *arg, int64_t task, int worker)
{
    const tni_back       *b = (const tni_back *)arg;
    const tni_vector_ops *ops = b->ops;
    const int64_t n = b->n, lanes = ops->lanes, size = ops->size, first = task * TNI_BACK_STRIPS;
    const int64_t strips = tni_min(TNI_BACK_STRIPS, b->strips - first);
    const char   *panels = b->panels;
    char         *strip = b->strip + first * b->next * size, *product = strip + n * lanes * size;
    (void)worker;
    for (int64_t start = (n - 2) / b->block * b->block; start >= 0; start -= b->block) {
        const int64_t m = n - start - 1, w = tni_min(b->block, m);
        char         *x = strip + (start + 1) * lanes * size;
        ops->strip_times(w, m, panels, strips, b->next, x, false, product);
        panels += tni_round_up(w, ops->tile_rows) * m * size;
        ops->strip_times(m, w, panels, strips, b->next, product, true, x);
        panels += tni_round_up(m, ops->tile_rows) * w * size;
    }
    for (int64_t i = 0; i < tni_min(strips * lanes, b->rows - first * lanes); i++) {
        double *to = b->vectors + b->place[first * lanes + i] * n;
        ops->column(n, strip + (i / lanes * b->next + i % lanes) * size, to);
        if (size < 8) b->host->by->scale(n, 1 / sqrt(b->host->by->dot(n, to, to)), to);     /* floats have lengthened it */
        tni_up(b->host, n, to);
    }
}

/* The reflectors are the rows of a. */
static void tni_back_pack(const tni_back *b, double *a, int64_t ld, const double *tau, double *work)
{
    const tni_host       *h = b->host;
    const tni_vector_ops *ops = b->ops;
    const int64_t         n = b->n, rows = ops->tile_rows, size = ops->size;
    char                 *panels = b->panels;
    for (int64_t start = (n - 2) / b->block * b->block; start >= 0; start -= b->block) {
        const int64_t m = n - start - 1, w = tni_min(b->block, m);
        const tni_mat v = tni_rows(a + start * ld + start + 1, ld);                      /* V^T [w,m] */
        double       *gram = work, *t = gram + w * w, *tv = t + w * w;
        char         *copy = (char *)(tv + w * m);
        tni_block_factor(h, m, w, tni_transposed(v), tau + start, gram, t);
        h->by->gemm(h, w, m, w, -1, tni_transposed(tni_rows(t, w)), v, 0, tni_rows(tv, m));
        for (int64_t i = 0; i < w; i++) ops->from(m, v.p + i * ld, copy + i * m * size);
        ops->pack((int)rows, w, m, copy, m, 1, panels, rows * m);
        panels += tni_round_up(w, rows) * m * size;
        for (int64_t i = 0; i < w; i++) ops->from(m, tv + i * m, copy + i * m * size);
        ops->pack((int)rows, m, w, copy, 1, m, panels, rows * w);
        panels += tni_round_up(m, rows) * w * size;
    }
}

/* Row i of Z, [rows,n] numbers of ops in `vectors`, becomes row place[i] of V, doubles. a, tau: from tni_tridiagonal. */
static void tni_eigh_back(const tni_host *h, const tni_vector_ops *ops, int64_t n, int64_t rows, double *a, int64_t ld,
                          const double *tau, const int64_t *place, double *vectors, double *work)
{
    tni_back b;
    b.host = h; b.ops = ops; b.n = n; b.rows = rows; b.place = place; b.vectors = vectors;
    b.block = (n > TNI_BACK_FEW ? TNI_BACK_BLOCK : TNI_BACK_SMALL) / ops->tile_rows * ops->tile_rows;
    b.strips = tni_ceil_div(rows, ops->lanes);
    b.next = (n + b.block) * ops->lanes;
    work = tni_aligned(work);
    b.panels = (char *)work;
    work = tni_aligned(work + tni_ceil_div(tni_back_panels(n) * ops->size, 8));
    b.strip = (char *)a;
    if (tni_back_strips(n, ops->size) > n * n) {
        b.strip = (char *)work;
        work += tni_back_strips(n, ops->size);
    }
    tni_back_pack(&b, a, ld, tau, work);                     /* the last use of a's numbers */
    tni_parallel_for(h->pool, b.strips, tni_back_read, &b);
    tni_parallel_for(h->pool, tni_ceil_div(b.strips, TNI_BACK_STRIPS), tni_back_task, &b);
}

/* ---- 4. all together ---------------------------------------------------- >>eigh-solve */
enum { TNI_EIGH_FEW = 128 };                   /* rows that one thread takes */

static int64_t tni_divide_work(int64_t n, int64_t size)
{
    const int64_t arrays = tni_ceil_div(n, TNI_MERGE_SHARE) + 2 + TNI_MERGE_ARRAYS + TNI_MERGE_LISTS;
    return tni_ceil_div(2 * n * n * size, 8) + arrays * n + TNI_ALIGN / 8;
}

/* In doubles, for vectors with numbers of `size` bytes. */
TNI_FN int64_t tni_eigh_work_of(int64_t n, int64_t size)
{
    int64_t work = 2 * n + tni_max(tni_divide_work(n, size), tni_max(tni_tridiagonal_work(n), tni_back_work(n, size)));
#ifdef TN_USE_BLAS
    work = tni_max(work, 2 * n * n + 11 * n + 4);            /* numbers and, after them, integers */
#endif
    return work;
}

TNI_FN int64_t tni_eigh_work(int64_t n) { return tni_eigh_work_of(n, 8); }

#ifdef TN_USE_BLAS
/* The lower triangle by columns of dsyevd is our upper triangle by rows, and its columns are our rows. */
static tn_status tni_lapack_eigh(const tni_host *h, int64_t n, double *a, double *values, double *z, double *work)
{
    const int in = (int)n, lwork = (int)(2 * n * n + 6 * n + 1), liwork = (int)(5 * n + 3);
    int       info = 0;
    dsyevd_(z ? "V" : "N", "L", &in, a, &in, values, work, &lwork, (int *)(void *)(work + lwork), &liwork, &info, 1, 1);
    if (info != 0) return TN_ERR_CONVERGENCE;
    if (z) memcpy(z, a, (size_t)(n * n) * sizeof *a);
    for (int64_t i = 0; z && i < n; i++) tni_up(h, n, z + i * n);
    return TN_OK;
}
#endif

/* Z, [n,n] or its first `top` rows, and d; e is used up. */
static tn_status tni_eigh_tridiagonal(const tni_host *h, const tni_vector_ops *ops, int64_t n, int64_t top, double *d,
                                      double *e, void *z, double *work)
{
    double        nothing = TNI_EPS * fmax(tni_largest_of(n, d), tni_largest_of(n, e));
    tni_rotations none;
    tni_divide    v;
    if (!z) {
        memset(&none, 0, sizeof none);
        return tni_ql(n, d, e, nothing, TNI_QL_SWEEPS, &none);
    }
    memset(z, 0, (size_t)(n * n * ops->size));
    v.host = h; v.ops = ops; v.n = n; v.top = top; v.z = (char *)z; v.d = d; v.e = e; v.nothing = nothing;
    v.rows = tni_aligned(work);
    v.ends[0] = v.rows + tni_ceil_div(n, TNI_MERGE_SHARE) * n; v.ends[1] = v.ends[0] + n;
    v.arrays = v.ends[1] + n;
    v.lists = (int64_t *)(void *)(v.arrays + TNI_MERGE_ARRAYS * n);
    v.packed = (char *)(v.arrays + (TNI_MERGE_ARRAYS + TNI_MERGE_LISTS) * n);
    v.turn = v.packed + n * n * ops->size;
    return tni_divide_run(&v);
}

/* place: the row of each value in ascending order; spare [2n] */
static void tni_eigh_sort(int64_t n, double *values, int64_t *place, double *spare)
{
    int64_t *order = (int64_t *)(void *)spare;
    tni_sort_index(n, values, order, place);
    for (int64_t i = 0; i < n; i++) place[order[i]] = i;
    memcpy(spare + n, values, (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) values[place[i]] = spare[n + i];
}

/* *rows, n before the call, becomes the number of pairs that were computed: the `top` of largest magnitude, or all n. */
static tn_status tni_eigh_scaled(const tni_host *h, const tni_vector_ops *ops, int64_t n, int64_t top, double *a,
                                 int64_t ld, double *values, double *vectors, double *work, int64_t *rows)
{
    double  *e = work, *tau = e + n, *rest = tau + n;
    int64_t *place = (int64_t *)(void *)rest;
#ifdef TN_USE_BLAS
    if (n <= TNI_LAPACK_MOST) return tni_lapack_eigh(h, n, a, values, vectors, work);
#endif
    if (vectors && top > 0 && n > TNI_LEAF) *rows = top;
    tni_tridiagonal(h, n, a, ld, values, e, tau, rest);
    tn_status s = tni_eigh_tridiagonal(h, ops, n, *rows, values, e, vectors, rest);
    if (s != TN_OK) return s;
    tni_eigh_sort(*rows, values, place, rest + n);
    if (vectors) tni_eigh_back(h, ops, n, *rows, a, ld, tau, place, vectors, rest + n);
    return TN_OK;
}

/* Eigenvalues of the symmetric a[n,n], which is overwritten; only its upper triangle is read. Its rows begin ld numbers apart,
   n with LAPACK; the numbers between them are overwritten, too. top 0: all, ascending; else by magnitude, and only the first
   `top`, at most n, have a meaning in values [n] and vectors [n,n]. vectors may be NULL; row i belongs to values[i], and its
   largest component is positive.
   TN_ERR_NONFINITE, TN_ERR_CONVERGENCE. ops: the precision in which vectors are computed, which are returned as doubles.
   Eigenvalues have the accuracy of doubles in any case. */
TNI_FN tn_status tni_eigh_in(const tni_host *h, const tni_vector_ops *ops, int64_t n, int64_t top, double *a, int64_t ld,
                             double *values, double *vectors, double *work)
{
    int64_t rows = n;
    double  scale = 1, squares = n > 0 ? h->by->dot(n * ld, a, a) : 1;
    tni_host host = *h;
    if (n == 0) return TN_OK;
    if (n <= TNI_EIGH_FEW) host.pool = &tni_alone;           /* waking a thread takes longer than what it saves */
    if (!(squares > 1e-40 && squares < 1e40)) {              /* else squares neither underflow nor overflow */
        double largest = tni_largest(n, n, tni_rows(a, ld));
        if (!(largest < HUGE_VAL)) return TN_ERR_NONFINITE;
        scale = tni_unit_scale(largest);
        h->by->scale(n * ld, scale, a);
    }
    tn_status s = tni_eigh_scaled(&host, ops, n, top, a, ld, values, vectors, work, &rows);
    if (s != TN_OK) return s;
    h->by->scale(n, 1 / scale, values);
    if (top > 0) tni_sort_rows(rows, values, tni_before_magnitude, n, vectors, NULL);
    return TN_OK;
}

TNI_FN tn_status tni_eigh(const tni_host *h, int64_t n, double *a, double *values, double *vectors, double *work)
{
    return tni_eigh_in(h, h->by->vectors, n, 0, a, n, values, vectors, work);
}

#endif /* TN_NO_OPERATOR */
