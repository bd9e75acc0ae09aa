#include "core/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"

/* ======================================================================
   >>blas     calls of BLAS and LAPACK, with TN_USE_BLAS
   ====================================================================== */
#ifdef TN_USE_BLAS
/* Can BLAS take a [rows,cols] with these strides? 'N': it is stored by columns. 'T': by rows. 0: neither. */
static char tni_blas_lies(int64_t rows, int64_t cols, int64_t row, int64_t col, int *ld)
{
    const bool by_columns = row == 1 && col >= rows;
    *ld = (int)(by_columns ? col : row);
    if ((by_columns ? col : row) > INT32_MAX) return 0;
    return by_columns ? 'N' : col == 1 && row >= cols ? 'T' : 0;
}

/* C = alpha A B + beta C with C by rows, that is, C^T = B^T A^T with C^T by columns. False: BLAS cannot take the operands,
   or would be slower. */
TNI_FN bool tni_blas_gemm(tn_dtype dtype, int64_t m, int64_t n, int64_t k, double alpha, const void *a, int64_t a_row,
                          int64_t a_col, const void *b, int64_t b_row, int64_t b_col, double beta, void *c,
                          int64_t c_row, int64_t c_col)
{
    int   im = (int)m, in = (int)n, ik = (int)k, lda, ldb, ldc = (int)c_row;
    float alpha32 = (float)alpha, beta32 = (float)beta;
    if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX || (double)m * (double)n * (double)k < TNI_BLAS_WORK) return false;
    if (alpha == 0 || c_col != 1 || c_row < n || c_row > INT32_MAX) return false;
    char ta = tni_blas_lies(k, m, a_col, a_row, &lda);
    char tb = tni_blas_lies(n, k, b_col, b_row, &ldb);
    if (!ta || !tb) return false;
    if (dtype == TN_F64)
        dgemm_(&tb, &ta, &in, &im, &ik, &alpha, (const double *)b, &ldb, (const double *)a, &lda,
               &beta, (double *)c, &ldc, 1, 1);
    else
        sgemm_(&tb, &ta, &in, &im, &ik, &alpha32, (const float *)b, &ldb, (const float *)a, &lda,
               &beta32, (float *)c, &ldc, 1, 1);
    return true;
}
#endif

/* ---- embed, see >>op-embed ---------------------------------------------- >>cpu-embed */
static void tni_embed_task(void *arg, int64_t task, int worker)
{
    const tni_pass *p = (const tni_pass *)arg;
    const tn_call  *c = p->call;
    const int32_t  *ids = (const int32_t *)c->in[1].data;
    const size_t    row = (size_t)c->out[0].shape[1] * tni_dtype_size(c->out[0].dtype);
    (void)worker;
    for (int64_t r = tni_pass_begin(p, task); r < tni_pass_end(p, task); r++) {
        char *to = (char *)c->out[0].data + (size_t)r * row;
        if (ids[r] >= 0 && ids[r] < c->in[0].shape[0]) memcpy(to, (const char *)c->in[0].data + (size_t)ids[r] * row, row);
        else memset(to, 0, row);
    }
}

TNI_FN tn_status tni_cpu_embed_run(tni_cpu *cpu, const tn_call *c)
{
    const int32_t *ids = (const int32_t *)c->in[1].data;
    int64_t        R = c->out[0].shape[0];
    tni_pass       p;
    p.cpu = cpu;
    p.call = c;
    tni_pass_run(&p, R, c->out[0].shape[1], INT64_MAX, tni_embed_task);
    for (int64_t r = 0; r < R; r++)
        if (ids[r] < 0 || ids[r] >= c->in[0].shape[0]) tni_fault(&c->out[1], 1, r, ids[r], (int32_t)c->i[0]);
    return TN_OK;
}

/* Scratch that is kept between kernels and grows if a larger one is needed. NULL: no memory. */
TNI_FN char *tni_cpu_scratch(tni_cpu *cpu, size_t bytes)
{
    if (bytes <= cpu->scratch_bytes) return cpu->scratch;
    if (cpu->ctx) tni_device_free(cpu->ctx, cpu->scratch, cpu->scratch_bytes);
    else tni_cpu_release(cpu, cpu->scratch, cpu->scratch_bytes);
    cpu->scratch = (char *)(cpu->ctx ? tni_device_alloc(cpu->ctx, bytes, "a kernel's scratch") : tni_cpu_alloc(cpu, bytes));
    cpu->scratch_bytes = cpu->scratch ? bytes : 0;
    return cpu->scratch;
}

#ifndef TN_NO_SEQUENCES
/* ---- scans: the part of a call that is the same at all levels, see >>op-scan ---- >>cpu-scan */

/* Scratch of `numbers` reals of `size` bytes per worker, and `shared` for all. */
TNI_FN bool tni_scans_scratch(tni_scans *p, int64_t numbers, int64_t shared, size_t size)
{
    size_t workers, more, all;
    if (!tni_area_size(numbers, (int64_t)size, 1, &p->each) || !tni_add_size(p->each, 63, &p->each)) return false;
    p->each = p->each / 64 * 64;
    if (!tni_mul_size(p->each, (size_t)p->cpu->pool.threads, &workers) || !tni_area_size(shared, (int64_t)size, 1, &more)
        || !tni_add_size(workers, more, &all)) return false;
    p->scratch = tni_cpu_scratch(p->cpu, all);
    p->shared = p->scratch ? p->scratch + workers : NULL;
    return p->scratch != NULL;
}

/* ---- attention: the part of a call that is the same at all levels, see >>op-attention ---- >>cpu-attention */

/* Scratch for `numbers` of `size` bytes per worker and `shared` more. */
TNI_FN bool tni_attention_scratch(tni_attention *t, int64_t numbers, double shared, size_t size)
{
    size_t workers;
    if (!tni_area_size(numbers, (int64_t)size, 1, &t->each) || !tni_add_size(t->each, 63, &t->each)) return false;
    t->each = t->each / 64 * 64;
    if (!tni_mul_size(t->each, (size_t)t->cpu->pool.threads, &workers)) return false;
    if (!((double)workers + shared * (double)size < (double)(PTRDIFF_MAX / 2))) return false;
    t->scratch = tni_cpu_scratch(t->cpu, workers + (size_t)shared * size);
    t->partial = t->scratch ? t->scratch + workers : NULL;
    return t->scratch != NULL;
}

TNI_FN tni_attention tni_attention_of(tni_cpu *cpu, const tn_call *c, int64_t side)
{
    tni_attention t = TNI_ZERO;
    t.cpu = cpu;
    t.call = c;
    t.queries = c->in[0].shape[1];
    t.keys = c->in[2].shape[1];
    t.heads = c->in[2].shape[2];
    t.all_heads = c->in[2].shape[0] * t.heads;
    t.d = c->in[0].shape[3];
    t.dv = c->in[2].shape[3];
    t.sets = c->i[0] == TN_ATTEND_BILINEAR ? 2 : 1;
    t.softmax = c->i[0] == TN_ATTEND_SOFTMAX;
    t.squared = c->i[0] == TN_ATTEND_SQUARED;
    t.sums = tni_attend_sums(c);
    t.side = side;
    t.blocks = tni_ceil_div(t.queries, side);
    t.parts = 1;
    t.columns = t.dv;
    return t;
}
#endif /* TN_NO_SEQUENCES */

#ifndef TN_NO_OPERATOR
/* ---- blocks of the host's algebra, see >>host-algebra ------------------- >>cpu-algebra */

#endif
