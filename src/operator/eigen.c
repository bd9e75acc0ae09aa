#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "kernels/inner.h"
#include "context/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- eigenpairs --------------------------------------------------------- >>cp-eigen-impl
   Q_u = 1/2 (W^T D V + V^T D W),  D = diag(P^T u).
   With 2h < n:  [W^T V^T] = Q [R1 R2],  Q_u = Q T Q^T,  T = 1/2 (R1 D R2^T + R2 D R1^T): 2h x 2h.
   On the host in double, vectors as in tn_eigh, one output per task; every worker has its own workspace. A single output
   uses all threads. */
typedef struct tni_eigen_job {
    int64_t  n, h, r, outputs, out, count, bytes_of_worker;      /* r: size of the matrix that is solved */
    double  *left, *right;          /* R1 and R2, [r,h] both; or W and V, [h,r] both */
    double  *q;                     /* [n,r], or NULL where r = n                   */
    double  *p, *u;                 /* [out,h], [outputs,out]                       */
    double  *values, *vectors;      /* [outputs,count], [outputs,count,n] or NULL   */
    double  *work;                  /* per worker                                   */
    tn_status *status;              /* [outputs]                                    */
    const tni_pool       *pool;     /* of one output                                */
    const tni_vector_ops *ops;
    tn_simd  simd;
} tni_eigen_job;

static int64_t tni_eigen_extent(const tni_eigen_job *j)
{
    return tni_max(tni_max(j->n, 2 * j->h), tni_max(j->count, j->out));
}

static int64_t tni_eigen_work(const tni_eigen_job *j)
{
    const int64_t scaled = j->outputs > 1 ? j->r * j->h : 0;
    return 2 * j->r * j->r + scaled + j->h + j->r + tni_eigh_work(j->r) + tni_host_work(tni_eigen_extent(j));
}

/* The eigenvectors in input space, with the sign rule applied there. */
static void tni_eigen_vectors(const tni_eigen_job *j, const tni_host *host, double *z, double *to)
{
    if (j->q)
        host->by->gemm(host, j->count, j->n, j->r, 1, tni_rows(z, j->r), tni_transposed(tni_rows(j->q, j->r)), 0,
                       tni_rows(to, j->n));
    else memcpy(to, z, sizeof *to * (size_t)(j->count * j->n));
    for (int64_t i = 0; i < j->count; i++)
        if (tni_points_down(j->n, to + i * j->n, 1)) host->by->scale(j->n, -1, to + i * j->n);
}

static void tni_eigen_task(void *arg, int64_t task, int worker)
{
    const tni_eigen_job *j = (const tni_eigen_job *)arg;
    const int64_t r = j->r, h = j->h, lines = j->q ? r : h, length = j->q ? h : r;
    double *t = j->work + worker * tni_eigen_work(j), *z = t + r * r, *scaled = z + r * r;
    double *d = scaled + (j->outputs > 1 ? r * h : 0), *values = d + h, *rest = values + r;
    tni_host host = tni_host_of(j->simd, j->pool, tni_eigen_extent(j), rest + tni_eigh_work(r));
    host.by->gemm(&host, 1, h, j->out, 1, tni_rows(j->u + task * j->out, j->out), tni_rows(j->p, h), 0, tni_rows(d, h));
    if (j->outputs == 1) scaled = j->left;                   /* which is not read again */
    for (int64_t i = 0; i < lines; i++)
        for (int64_t k = 0; k < length; k++) scaled[i * length + k] = j->left[i * length + k] * d[j->q ? k : i];
    if (j->q) host.by->gemm(&host, r, r, h, 1, tni_rows(scaled, h), tni_transposed(tni_rows(j->right, h)), 0, tni_rows(t, r));
    else host.by->gemm(&host, r, r, h, 1, tni_transposed(tni_rows(scaled, r)), tni_rows(j->right, r), 0, tni_rows(t, r));
    tni_symmetrise(r, t);
    j->status[task] = tni_eigh_in(&host, j->ops, r, j->count, t, r, values, j->vectors ? z : NULL, rest);
    if (j->status[task] != TN_OK) return;
    memcpy(j->values + task * j->count, values, sizeof *values * (size_t)j->count);
    if (j->vectors) tni_eigen_vectors(j, &host, z, j->vectors + task * j->count * j->n);
}

/* [W^T V^T] = Q [R1 R2]. m: scratch for [n,2h], its R and the factorisation */
static tn_status tni_eigen_factor(tn_ctx *ctx, tni_eigen_job *j, double *const *f)
{
    int64_t     n = j->n, h = j->h, columns = 2 * h;
    tn_status   s = TN_ERR_MEMORY;
    tni_scratch w = tni_scratch_begin(ctx, "eigen");
    double     *m = tni_take_zeros(&w, n, columns), *r = tni_take_zeros(&w, columns, columns);
    double     *work = tni_take_zeros(&w, tni_qr_work(n, columns), 1);
    tni_host    host = tni_take_host(&w, tni_max(n, columns));
    if (!w.failed) {
        for (int64_t i = 0; i < h; i++)
            for (int64_t k = 0; k < n; k++) { m[k * columns + i] = f[0][i * n + k]; m[k * columns + h + i] = f[1][i * n + k]; }
        s = tni_qr(&host, n, columns, tni_rows(m, columns), tni_rows(j->q, j->r), tni_rows(r, columns), work);
        for (int64_t i = 0; i < j->r; i++) {
            memcpy(j->left + i * h, r + i * columns, sizeof *r * (size_t)h);
            memcpy(j->right + i * h, r + i * columns + h, sizeof *r * (size_t)h);
        }
    }
    return tni_scratch_end(&w, s);
}

static tn_status tni_eigen_run(tn_ctx *ctx, tni_eigen_job *j, const tn_cp *cp)
{
    const int64_t count = j->h * j->n;
    double       *f[2];
    tni_scratch   w = tni_scratch_begin(ctx, "eigen");
    f[0] = j->q ? tni_take_f64(&w, j->h, j->n) : j->left;
    f[1] = j->q ? tni_take_f64(&w, j->h, j->n) : j->right;
    tn_status s = w.failed ? TN_ERR_MEMORY : tn_read(cp->f[0], TN_F64, f[0], count);
    if (s == TN_OK) s = tn_read(cp->f[1], TN_F64, f[1], count);
    if (s == TN_OK) s = tn_read(cp->p, TN_F64, j->p, j->out * j->h);
    if (s == TN_OK && j->q) s = tni_eigen_factor(ctx, j, f);
    tni_scratch_release(&w, NULL);
    if (s != TN_OK) return s;
    tni_parallel_for(tni_ctx_pool(ctx), j->outputs, tni_eigen_task, j);
    for (int64_t i = 0; i < j->outputs; i++) if (j->status[i] != TN_OK) return j->status[i];
    return TN_OK;
}

TNI_COLD_FN tn_tensor *tni_owned_from(tn_ctx *ctx, int rank, const int64_t *shape, const double *values)
{
    tn_tensor *t = tn_tensor_create(ctx, TN_REAL, rank, shape);
    return t ? tni_tensor_done(t, tn_write(t, TN_F64, values, tn_tensor_count(t))) : NULL;
}

/* ---- some of many eigenpairs: by products, see >>lanczos ---------------- >>cp-eigen-some
   Q_u x = 1/2 (W^T (d * V x) + V^T (d * W x)),  d = P^T u:  8 h n flops. In double whatever the context's dtype,
   by its backend's kernels. Where n <= 2 h the matrix itself is smaller than its factors: forming it takes 2 h n^2
   flops, at the speed of a large matrix product, and then a product reads n^2 numbers instead of 2 h n.
   Many outputs are searched side by side, TNI_EIGEN_BATCH at a time: their products with the factors are then matrix
   products, too, and nothing is formed. When an output is done, the next one takes its place. */
enum {
    TNI_EIGEN_LARGE = 1024, TNI_EIGEN_FEW = 32, TNI_EIGEN_FORMED = 12288, TNI_EIGEN_CHUNK = 1 << 17,
    TNI_EIGEN_TOGETHER = 16, TNI_EIGEN_BATCH = 128, TNI_EIGEN_TERMS = 512
};

static tn_tensor *tni_owned_f64(tn_ctx *ctx, int64_t n, int64_t m)
{
    return tn_tensor_create(ctx, TN_F64, 2, TNI_DIMS(n, m));
}

static tn_view tni_every_second(tn_view v)              /* columns 0, 2, 4 .. */
{
    v.shape[1] /= 2;
    v.strides[1] *= 2;
    return v;
}

/* For each of the first `count` rows: z = M x;  swapped: z with the two numbers of each pair exchanged, times d/2;
   y += M^T swapped */
static tn_status tni_eigen_by_factors(tni_eigen_product *p, int64_t count)
{
    const tn_view x = tni_block_of(p->x, 0, count, 0, p->n), y = tni_block_of(p->y, 0, count, 0, p->n);
    tn_status s = TN_OK;
    for (int64_t at = 0; at < p->h && s == TN_OK; at += p->chunk) {
        int64_t rows = tni_min(p->chunk, p->h - at);
        tn_view m = tni_block_of(p->m, 2 * at, 2 * rows, 0, p->n);
        s = tni_put_matmul(p->ctx, tni_block_of(p->z, 0, count, 0, 2 * rows), x, tni_transposed_view(m), 0.5, 0);
        for (int64_t k = 0; k < 2 && s == TN_OK; k++)
            s = tni_put_product(p->ctx, tni_every_second(tni_block_of(p->swapped, 0, count, k, 2 * rows)),
                                tni_every_second(tni_block_of(p->z, 0, count, 1 - k, 2 * rows)),
                                tni_block_of(p->d, 0, count, at, rows), false);
        if (s == TN_OK)
            s = tni_put_matmul(p->ctx, y, tni_block_of(p->swapped, 0, count, 0, 2 * rows), m, 1, at > 0 ? 1 : 0);
    }
    return s;
}

static tn_status tni_eigen_multiply(void *user, int64_t count, const double *x, double *y)
{
    tni_eigen_product *p = (tni_eigen_product *)user;
    tn_status s = TN_OK;
    for (int64_t i = 0; i < count && s == TN_OK; i++) {
        s = tn_write(p->x, TN_F64, x + i * p->n, p->n);
        if (s == TN_OK)
            s = p->formed ? tni_put_matmul(p->ctx, tni_view(p->y), tni_view(p->x), tni_view(p->m), 1, 0)
                          : tni_eigen_by_factors(p, 1);
        if (s == TN_OK) s = tn_read(p->y, TN_F64, y + i * p->n, p->n);
    }
    return s;
}

/* G = W^T diag(d) V in chunks of terms, Q = (G + G^T)/2 */
TNI_COLD_FN tn_status tni_eigen_form(tni_eigen_product *p, const tn_cp *cp)
{
    tn_tensor *g = tni_owned_f64(p->ctx, p->n, p->n), *f[2], *scaled = tni_owned_f64(p->ctx, p->chunk, p->n);
    f[0] = tni_owned_f64(p->ctx, p->chunk, p->n);
    f[1] = tni_owned_f64(p->ctx, p->chunk, p->n);
    tn_status s = g && scaled && f[0] && f[1] ? TN_OK : TN_ERR_MEMORY;
    for (int64_t at = 0; at < p->h && s == TN_OK; at += p->chunk) {
        int64_t rows = tni_min(p->chunk, p->h - at);
        tn_view v = tni_block_of(f[1], 0, rows, 0, p->n), w = tni_block_of(scaled, 0, rows, 0, p->n);
        for (int k = 0; k < 2 && s == TN_OK; k++)
            s = tni_put_copy(p->ctx, tni_block_of(f[k], 0, rows, 0, p->n), tni_block_of(cp->f[k], at, rows, 0, p->n));
        if (s == TN_OK)
            s = tni_put_product(p->ctx, w, tni_block_of(f[0], 0, rows, 0, p->n),
                                tni_transposed_view(tni_block_of(p->d, 0, 1, at, rows)), false);
        if (s == TN_OK) s = tni_put_matmul(p->ctx, tni_view(g), tni_transposed_view(w), v, 1, 1);
    }
    if (s == TN_OK) s = tni_put_symmetric(p->ctx, p->m, g);
    tn_tensor_destroy(g);
    tn_tensor_destroy(scaled);
    tn_tensor_destroy(f[0]);
    tn_tensor_destroy(f[1]);
    return s;
}

TNI_COLD_FN void tni_eigen_product_end(tni_eigen_product *p)
{
    tn_tensor_destroy(p->m);
    tn_tensor_destroy(p->x);
    tn_tensor_destroy(p->y);
    tn_tensor_destroy(p->d);
    tn_tensor_destroy(p->z);
    tn_tensor_destroy(p->swapped);
}

TNI_COLD_FN tn_status tni_eigen_product_begin(tni_eigen_product *p, const tn_cp *cp, bool formed, int64_t most)
{
    int64_t   n = cp->in[0], h = cp->terms;
    tn_status s = TN_OK;
    memset(p, 0, sizeof *p);
    p->ctx = cp->ctx;
    p->n = n;
    p->h = h;
    p->formed = formed;
    p->chunk = tni_min(h, most > 1 ? (int64_t)TNI_EIGEN_TERMS : tni_max(formed ? 256 : TNI_EIGEN_CHUNK / (2 * n), 1));
    p->m = formed ? tni_owned_f64(p->ctx, n, n) : tni_owned_f64(p->ctx, 2 * h, n);
    p->x = tni_owned_f64(p->ctx, most, n);
    p->y = tni_owned_f64(p->ctx, most, n);
    p->d = tni_owned_f64(p->ctx, most, h);
    p->z = tni_owned_f64(p->ctx, most, 2 * p->chunk);
    p->swapped = tni_owned_f64(p->ctx, most, 2 * p->chunk);
    if (!p->m || !p->x || !p->y || !p->d || !p->z || !p->swapped) return TN_ERR_MEMORY;
    for (int64_t k = 0; k < 2 && !formed && s == TN_OK; k++) {
        tn_view rows = tni_block_of(p->m, k, h, 0, n);
        rows.strides[0] = 2 * n;
        s = tni_put_copy(p->ctx, rows, tni_view(cp->f[k]));
    }
    return s;
}

/* For each row of u [outputs,out]. */
static tn_status tni_eigen_each(tni_eigen_product *product, const tn_cp *cp, const double *u, int64_t outputs, int64_t count,
                                double *p, double *d, double *values, double *vectors)
{
    tn_ctx         *ctx = cp->ctx;
    tni_lanczos_job job;
    int64_t         n = cp->in[0], h = cp->terms;
    tni_scratch     w = tni_scratch_begin(ctx, "eigen");
    tn_status       s;
    tn_lanczos_desc desc = TNI_ZERO;
    desc.top = count;
    if ((s = tni_lanczos_plan(ctx, &job, n, &desc)) != TN_OK) return s;
    double *scratch = tni_take_zeros(&w, 1, tni_lanczos_work(&job));
    if (!scratch) return TN_ERR_MEMORY;
    for (int64_t o = 0; o < outputs && s == TN_OK; o++) {
        if ((s = tni_lanczos_plan(ctx, &job, n, &desc)) != TN_OK) break;
        tni_lanczos_lay(&job, scratch);
        job.fn = tni_eigen_multiply;
        job.user = product;
        job.host.by->gemm(&job.host, 1, h, cp->out, 1, tni_rows((double *)u + o * cp->out, cp->out), tni_rows(p, h), 0,
                          tni_rows(d, h));
        s = tn_write(product->d, TN_F64, d, h);
        if (s == TN_OK && product->formed) s = tni_eigen_form(product, cp);
        if (s != TN_OK) break;
        if ((s = tni_lanczos(&job)) != TN_OK) break;
        memcpy(values + o * count, job.theta, sizeof *values * (size_t)count);
        memcpy(vectors + o * count * n, job.v, sizeof *vectors * (size_t)(count * n));
    }
    return tni_scratch_end(&w, s);
}

/* Searches side by side: row i of x, y and d belongs to job i. */
typedef struct tni_eigen_batch {
    int64_t          active, n, h;
    tni_lanczos_job *job;               /* [most]                                          */
    int64_t         *output;            /* [most]                                          */
    tn_status       *status;            /* [most]                                          */
    double          *x, *y, *d;         /* [most,n] [most,n] [most,h]                      */
    double          *blocks;            /* [threads,block]: of the host products of a task */
    int64_t          block;
} tni_eigen_batch;

static tni_host tni_eigen_batch_host(const tni_eigen_batch *b, tn_simd simd, int worker)
{
    return tni_host_of(simd, &tni_alone, b->n, b->blocks + worker * b->block);
}

static void tni_eigen_batch_take(void *arg, int64_t task, int worker)
{
    tni_eigen_batch *b = (tni_eigen_batch *)arg;
    tni_lanczos_job *l = b->job + task;
    l->host = tni_eigen_batch_host(b, l->simd, worker);
    memcpy(l->y, b->y + task * b->n, sizeof *l->y * (size_t)b->n);
    b->status[task] = tni_lanczos_take(l);
}

/* Job i searches for the pairs of an output, in the workspace given. */
static tn_status tni_eigen_batch_begin(tni_eigen_batch *b, int64_t i, const tn_cp *cp, const tn_lanczos_desc *desc,
                                       double *scratch, const double *u, int64_t output, const double *p)
{
    tni_lanczos_job *l = b->job + i;
    tn_status        s = tni_lanczos_plan(cp->ctx, l, b->n, desc);
    if (s != TN_OK) return s;
    tni_lanczos_lay(l, scratch);
    l->host = tni_eigen_batch_host(b, l->simd, 0);
    b->output[i] = output;
    l->host.by->gemm(&l->host, 1, b->h, cp->out, 1, tni_rows((double *)u + output * cp->out, cp->out),
                     tni_rows((double *)p, b->h), 0, tni_rows(b->d + i * b->h, b->h));
    return tni_lanczos_begin(l);
}

/* The pairs of job i are stored, and its place is taken by another output or, if there is none, by the last job. */
static tn_status tni_eigen_batch_next(tni_eigen_batch *b, int64_t i, const tn_cp *cp, const tn_lanczos_desc *desc,
                                      const double *u, int64_t *next, int64_t outputs, const double *p, double *values,
                                      double *vectors)
{
    tni_lanczos_job *l = b->job + i, *last = b->job + b->active - 1;
    const int64_t    count = l->top, output = b->output[i];
    tni_lanczos_end(l);
    memcpy(values + output * count, l->theta, sizeof *values * (size_t)count);
    memcpy(vectors + output * count * b->n, l->v, sizeof *vectors * (size_t)(count * b->n));
    if (*next < outputs) return tni_eigen_batch_begin(b, i, cp, desc, l->v, u, (*next)++, p);
    if (l != last) {
        *l = *last;
        b->output[i] = b->output[b->active - 1];
        b->status[i] = b->status[b->active - 1];
        memcpy(b->d + i * b->h, b->d + (b->active - 1) * b->h, sizeof *b->d * (size_t)b->h);
    }
    b->active--;
    return TN_OK;
}

static tn_status tni_eigen_batch_run(tni_eigen_batch *b, tni_eigen_product *product, const tn_cp *cp, const double *u,
                                     int64_t outputs, int64_t most, const tn_lanczos_desc *desc, double *scratch, int64_t work,
                                     const double *p, double *values, double *vectors)
{
    int64_t   next = 0, i;
    bool      changed = true;
    tn_status s = TN_OK;
    while (next < most && s == TN_OK) {
        s = tni_eigen_batch_begin(b, next, cp, desc, scratch + next * work, u, next, p);
        next++;
    }
    for (b->active = most; b->active > 0 && s == TN_OK;) {
        for (i = 0; i < b->active; i++)
            memcpy(b->x + i * b->n, b->job[i].v + b->job[i].used * b->n, sizeof *b->x * (size_t)b->n);
        if (changed) s = tn_write(product->d, TN_F64, b->d, most * b->h);
        if (s == TN_OK) s = tn_write(product->x, TN_F64, b->x, most * b->n);
        if (s == TN_OK) s = tni_eigen_by_factors(product, b->active);
        if (s == TN_OK) s = tn_read(product->y, TN_F64, b->y, most * b->n);
        if (s != TN_OK) break;
        tni_parallel_for(tni_ctx_pool(cp->ctx), b->active, tni_eigen_batch_take, b);
        for (changed = false, i = 0; i < b->active && s == TN_OK;) {
            if ((s = b->status[i]) != TN_OK) break;
            if (!b->job[i].done) { i++; continue; }
            changed = true;
            s = tni_eigen_batch_next(b, i, cp, desc, u, &next, outputs, p, values, vectors);
        }
    }
    return s;
}

/* For each row of u [outputs,out], `most` of them at a time; a started job is not done before its first product. */
static tn_status tni_eigen_together(tni_eigen_product *product, const tn_cp *cp, const double *u, int64_t outputs,
                                    int64_t most, int64_t count, const double *p, double *values, double *vectors)
{
    tn_ctx         *ctx = cp->ctx;
    tni_lanczos_job job;
    int64_t         threads = tni_max(1, ctx->pool.threads);
    tn_status       s;
    tn_lanczos_desc desc = TNI_ZERO;
    desc.top = count;
    tni_eigen_batch b = TNI_ZERO;
    b.n = cp->in[0];
    b.h = cp->terms;
    if ((s = tni_lanczos_plan(ctx, &job, b.n, &desc)) != TN_OK) return s;
    int64_t work = tni_lanczos_work(&job) - tni_host_work(tni_max(b.n, job.basis + job.block));
    b.block = tni_host_work(b.n);
    tni_scratch w = tni_scratch_begin(ctx, "eigen");
    double     *scratch = tni_take_zeros(&w, most, work);
    b.x = tni_take_zeros(&w, most, b.n);
    b.y = tni_take_zeros(&w, most, b.n);
    b.d = tni_take_zeros(&w, most, b.h);
    b.blocks = tni_take_zeros(&w, threads, b.block);
    b.job = (tni_lanczos_job *)tni_take(&w, most, sizeof *b.job);
    b.output = (int64_t *)tni_take(&w, most, sizeof *b.output);
    b.status = (tn_status *)tni_take(&w, most, sizeof *b.status);
    if (w.failed) s = TN_ERR_MEMORY;
    else s = tni_eigen_batch_run(&b, product, cp, u, outputs, most, &desc, scratch, work, p, values, vectors);
    return tni_scratch_end(&w, s);
}

static tn_status tni_eigen_store(tn_ctx *ctx, tn_eigenpairs *e, int64_t outputs, int64_t count, int64_t n, const double *values,
                                 const double *vectors)
{
    int64_t shape[3] = {outputs, count, n};
    e->outputs = outputs; e->count = count; e->n = n;
    e->values = tni_owned_from(ctx, 2, shape, values);
    if (vectors) e->vectors = tni_owned_from(ctx, 3, shape, vectors);
    if (e->values && (e->vectors || !vectors)) return TN_OK;
    tn_eigenpairs_destroy(e);
    return tn_ctx_status(ctx);
}

static tn_status tni_eigen_lanczos(const tn_cp *cp, const double *u, int64_t outputs, int64_t count, bool formed,
                                   tn_eigenpairs *e)
{
    tn_ctx           *ctx = cp->ctx;
    int64_t           n = cp->in[0], h = cp->terms;
    tni_scratch       w = tni_scratch_begin(ctx, "eigen");
    double           *p = tni_take_zeros(&w, cp->out, h), *d = tni_take_zeros(&w, 1, h);
    double           *values = tni_take_zeros(&w, outputs, count);
    double           *vectors = tni_take_zeros(&w, tni_area(outputs, count), n);
    const bool        together = outputs >= TNI_EIGEN_TOGETHER && (!formed || n >= 2 * TNI_EIGEN_LARGE);
    const int64_t     most = together ? tni_min(outputs, TNI_EIGEN_BATCH) : 1;
    tni_eigen_product product;
    tn_status         s = tni_eigen_product_begin(&product, cp, formed && !together, most);
    if (s == TN_OK && w.failed) s = TN_ERR_MEMORY;
    if (s == TN_OK) s = tn_read(cp->p, TN_F64, p, cp->out * h);
    if (s == TN_OK) s = together ? tni_eigen_together(&product, cp, u, outputs, most, count, p, values, vectors)
                                 : tni_eigen_each(&product, cp, u, outputs, count, p, d, values, vectors);
    tni_eigen_product_end(&product);
    if (s == TN_OK) s = tni_eigen_store(ctx, e, outputs, count, n, values, vectors);
    return tni_scratch_end(&w, s);
}

/* Whether products are faster, for few pairs of a large problem. Seconds on one core, exact and by products: size 768,
   10 pairs: 0.44, 0.08; 1024 (h = 2048), 10 pairs: 1.22, 0.21, 32 pairs: 1.22, 0.37; 1024 (n = 1600), 10 pairs: 1.63, 0.15.
   The bounds are well inside of these, since spectra differ. Products by a formed Q and by the factors: n 1024, h 2048:
   0.21, 0.55; n 4096, h 16384: 17, 21. Forming costs h n^2; some 300 products cost 8 h n each, at an eighth of the speed. */
static bool tni_eigen_is_large(int64_t n, int64_t h, int64_t count)
{
    int64_t size = tni_min(n, 2 * h);
    return count > 0 && size >= TNI_EIGEN_LARGE && count <= size / TNI_EIGEN_FEW;
}

static void tni_eigen_say(tn_ctx *ctx, tn_status s, const char *op)
{
    if (s == TN_ERR_CONVERGENCE) tni_fail(ctx, s, "%s: the QL iteration did not converge", op);
    if (s == TN_ERR_NONFINITE) tni_fail(ctx, s, "%s: the operator holds NaN or infinity, expected finite numbers", op);
}

/* u [outputs,out] on the host. Values without vectors are faster. */
static tn_status tni_eigen_solve(const tn_cp *cp, double *u, int64_t outputs, int64_t count, bool vectors, tn_eigenpairs *e,
                                 const char *op)
{
    tn_ctx   *ctx = cp->ctx;
    int64_t   threads = tni_min(ctx->pool.threads, tni_max(outputs, 1));
    tn_status s = TN_ERR_MEMORY;
    if (tni_eigen_is_large(cp->in[0], cp->terms, count)) {
        const bool formed = cp->in[0] <= 2 * cp->terms && cp->in[0] <= TNI_EIGEN_FORMED;
        s = tni_eigen_lanczos(cp, u, outputs, count, formed, e);
        if (s != TN_ERR_CONVERGENCE) { tni_eigen_say(ctx, s, op); return s; }
        s = TN_ERR_MEMORY;
    }
    tni_eigen_job j = TNI_ZERO;
    j.simd = ctx->desc.simd;
    j.pool = outputs > 1 ? &tni_alone : tni_ctx_pool(ctx);
    j.ops = tni_vector_ops_of(ctx->desc.simd, ctx->desc.dtype);
    j.n = cp->in[0]; j.h = cp->terms; j.out = cp->out; j.outputs = outputs; j.u = u;
    bool few = 2 * j.h < j.n;
    j.r = few ? 2 * j.h : j.n;
    j.count = count == 0 ? j.r : count;
    int64_t work = tni_eigen_work(&j);
    tni_scratch w = tni_scratch_begin(ctx, "eigen");
    j.left = tni_take_f64(&w, j.r, j.h);
    j.right = tni_take_f64(&w, j.r, j.h);
    j.p = tni_take_zeros(&w, j.out, j.h);
    j.values = tni_take_zeros(&w, outputs, j.count);
    if (vectors) j.vectors = tni_take_zeros(&w, tni_area(outputs, j.count), j.n);
    j.work = tni_take_f64(&w, threads, work);
    j.status = (tn_status *)tni_take(&w, outputs, sizeof *j.status);
    if (few) j.q = tni_take_zeros(&w, j.n, j.r);
    if (!w.failed) s = tni_eigen_run(ctx, &j, cp);
    tni_eigen_say(ctx, s, op);
    if (s == TN_OK) s = tni_eigen_store(ctx, e, outputs, j.count, j.n, j.values, j.vectors);
    return tni_scratch_end(&w, s);
}

/* Checks for order 2 and for a place for the result. A count above the largest possible rank is reduced to it. */
static tn_status tni_eigen_check(const tn_cp *cp, int64_t *count, tn_eigenpairs *e, const char *op)
{
    if (e) memset(e, 0, sizeof *e);
    if (!cp) return TN_ERR_ARG;
    if (!e) return tni_fail(cp->ctx, TN_ERR_ARG, "%s: out is NULL, expected a place for the result", op);
    if (!tni_cp_is_bilinear(cp, op)) return TN_ERR_SHAPE;
    if (!tni_decomp_fits(cp->ctx, op, cp->in[0], 2 * tni_min(cp->terms, INT32_MAX))) return TN_ERR_SHAPE;
    if (!tni_within(cp->ctx, op, "count", *count, 0, INT64_MAX)) return TN_ERR_ARG;
    *count = tni_min(*count, tni_min(cp->in[0], 2 * cp->terms));
    e->constant = cp->constant;
    return TN_OK;
}

tn_status tn_cp_eigen(const tn_cp *cp, const tn_tensor *u, int64_t count, tn_eigenpairs *e)
{
    tn_status s = tni_eigen_check(cp, &count, e, "eigen");
    if (s != TN_OK) return s;
    if (!tni_is_vector(cp->ctx, u, cp->out, "eigen", "u")) return tn_ctx_status(cp->ctx);
    tni_scratch w = tni_scratch_begin(cp->ctx, "eigen");
    double     *host = tni_take_f64(&w, 1, cp->out);
    s = host ? tn_read(u, TN_F64, host, cp->out) : TN_ERR_MEMORY;
    if (s == TN_OK) s = tni_eigen_solve(cp, host, 1, count, true, e, "eigen");
    return tni_scratch_end(&w, s);
}

TNI_COLD_FN tn_status tni_eigen_all(const tn_cp *cp, int64_t count, bool vectors, tn_eigenpairs *e, const char *op)
{
    tn_status s = tni_eigen_check(cp, &count, e, op);
    if (s != TN_OK) return s;
    tni_scratch w = tni_scratch_begin(cp->ctx, op);
    double     *host = tni_take_zeros(&w, cp->out, cp->out);
    if (!host) return TN_ERR_MEMORY;
    for (int64_t o = 0; o < cp->out; o++) host[o * cp->out + o] = 1;
    return tni_scratch_end(&w, tni_eigen_solve(cp, host, cp->out, count, vectors, e, op));
}

tn_status tn_cp_eigen_all(const tn_cp *cp, int64_t count, tn_eigenpairs *e)
{
    return tni_eigen_all(cp, count, true, e, "eigen_all");
}

void tn_eigenpairs_destroy(tn_eigenpairs *e) { tni_result_end(e, sizeof *e, offsetof(tn_eigenpairs, values), 2); }

/* P[o, o k + i] = value[o,i]; both factors are the vectors. */
tn_cp *tn_cp_from_eigen(tn_ctx *ctx, const tn_eigenpairs *e, int64_t k)
{
    tn_status s = TN_OK;
    if (!e || !tni_usable(ctx, e->values, "from_eigen", "values") || !tni_usable(ctx, e->vectors, "from_eigen", "vectors"))
        return NULL;
    if (k < 0 || k > e->count)
        return tni_fail(ctx, TN_ERR_ARG, "from_eigen: k is %lld, expected 0 to %lld pairs", (long long)k,
                        (long long)e->count), (tn_cp *)NULL;
    int64_t in[2] = {e->n, e->n};
    tn_cp  *cp = tni_cp_make(ctx, 2, e->outputs, e->outputs * k, in, e->constant);
    if (!cp) return NULL;
    for (int64_t o = 0; o < e->outputs && s == TN_OK; o++) {
        tn_view v = tni_slice_view(e->vectors, o);
        v.shape[0] = k;
        s = tni_put_copy(ctx, tni_block_of(cp->p, o, 1, o * k, k), tni_block_of(e->values, o, 1, 0, k));
        if (s == TN_OK) s = tni_put_copy(ctx, tni_block_of(cp->f[0], o * k, k, 0, e->n), v);
        if (s == TN_OK) s = tni_put_copy(ctx, tni_block_of(cp->f[1], o * k, k, 0, e->n), v);
    }
    return tni_cp_done(cp, s);
}

tn_cp *tn_cp_truncate(const tn_cp *cp, int64_t k)
{
    tn_eigenpairs e;
    if (tni_eigen_all(cp, k, true, &e, "truncate") != TN_OK) return NULL;
    tn_cp *to = tn_cp_from_eigen(cp->ctx, &e, tni_min(k, e.count));
    tn_eigenpairs_destroy(&e);
    return to;
}

#endif /* TN_NO_OPERATOR */
