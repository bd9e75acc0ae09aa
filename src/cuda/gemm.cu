#include "cuda/inner.h"

/* ---- gemm ---------------------------------------------------------------------------------------------------- >>cuda-gemm
   cuBLAS computes the product where the strides allow it: of the last two axes of each of A, B and C, one must have stride
   1. Both orders will do, since a transposed operand is only a flag for cuBLAS, and C^T = B^T A^T. Where A or B is BF16, or
   with TN_GEMM_BF16, an F32 operand is rounded to BF16 in scratch, and packed, so that any strides will do; of a parameter the
   call has the rounded numbers already, as operand 3. If the product is thin, the BF16 operand is widened instead. Sums are
   F32. Products of two F32 operands use F32, or TF32 if desc.gemm_precision says so. Everything else is computed by the kernel
   of this file, whose sums run in the order of k. The results of cuBLAS are the same in every run on one model of GPU. Floor:
   2 m n k flops.

   F32 and BF16 products of two matrices run by plans of cublasLt: descriptors, and the first algorithm that its heuristic
   returns for the shape. It is never timed, and depends on addresses only by the power of two, up to 16, of which each is a
   multiple. A context keeps the TNC_PLANS plans that were used last, so that a step that repeats makes none if it has no more
   different products. A product adds the bias when it stores its result, and reads C if it accumulates. The bias then has the
   type of C: an F32 bias of a BF16 product is rounded, as its factors are. What has no plan (F64, products of a vector, what
   the heuristic refuses, such as some odd addresses) is computed by cublasGemmEx, and another kernel adds the bias. So is a
   product for which cublasLt fails in another way, and then the log has a warning. */

typedef struct tnc_matrices {            /* [batch,m,k] [batch,k,n] [batch,m,n] */
    int64_t batch, m, n, k, a_step[3], b_step[3], c_step[3], bias_step;
    int     a_dtype, b_dtype, c_dtype, bias_dtype;
    const void *a, *b, *bias;            /* bias: NULL if there is none */
    void   *c;
    double  alpha, beta;
} tnc_matrices;

static __device__ __forceinline__ double tnc_number(const void *p, int, int64_t i, double) { return ((const double *)p)[i]; }
static __device__ __forceinline__ float  tnc_number(const void *p, int dtype, int64_t i, float)
{
    return dtype == TN_BF16 ? tnc_to(((const tnc_bf16 *)p)[i]) : ((const float *)p)[i];
}

static __device__ __forceinline__ void tnc_number_put(void *p, int, int64_t i, double v) { ((double *)p)[i] = v; }
static __device__ __forceinline__ void tnc_number_put(void *p, int dtype, int64_t i, float v)
{
    if (dtype == TN_BF16) ((tnc_bf16 *)p)[i] = tnc_from<tnc_bf16>(v);
    else ((float *)p)[i] = v;
}

/* A block of 256 threads computes a BM x BN tile of C, and a thread TM x TN elements of it, in 4 x 4 squares that are FAR_M
   rows and FAR_N columns apart, so that the reads of a warp from shared memory have no bank conflicts. Slices of A and B
   that are BK deep are double buffered: the next ones are loaded into registers while the present ones are multiplied. They
   are read along k or across it, whichever is contiguous. */
template <typename R, int BM, int BN, int BK, int TM, int TN>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_gemm_kernel(const tnc_matrices g, const bool a_along, const bool b_along)
{
    enum { ACROSS = BN / TN, FAR_M = BM / (TM / 4), FAR_N = BN / (TN / 4) };
    enum { LA = BM * BK / TNC_THREADS, LB = BN * BK / TNC_THREADS };
    static_assert((BM / TM) * (BN / TN) == TNC_THREADS, "a thread for each part");
    TNC_SHARED_ALIGN(16, R, left, [2][BK][BM + 4]);
    TNC_SHARED_ALIGN(16, R, right, [2][BK][BN + 4]);
    const int     tid = (int)threadIdx.x, row = tid / ACROSS * 4, column = tid % ACROSS * 4;
    const int64_t down = (g.m + BM - 1) / BM, across = (g.n + BN - 1) / BN, tiles = g.batch * down * across;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t r0 = tile / across % down * BM, c0 = tile % across * BN, batch = tile / across / down;
        const int64_t a0 = batch * g.a_step[0], b0 = batch * g.b_step[0];
        R sum[TM][TN], next_a[LA], next_b[LB];
        TNC_UNROLL
        for (int i = 0; i < TM; i++)
            TNC_UNROLL
            for (int j = 0; j < TN; j++) sum[i][j] = 0;
        for (int64_t k0 = -BK; k0 < g.k; k0 += BK) {
            const int now = (int)(k0 / BK & 1);
            if (k0 + BK < g.k) {
                TNC_UNROLL
                for (int e = 0; e < LA; e++) {
                    const int     at = tid + e * TNC_THREADS;
                    const int64_t k = k0 + BK + (a_along ? at % BK : at / BM), r = r0 + (a_along ? at / BK : at % BM);
                    next_a[e] = k < g.k && r < g.m
                        ? tnc_number(g.a, g.a_dtype, a0 + r * g.a_step[1] + k * g.a_step[2], R(0)) : R(0);
                }
                TNC_UNROLL
                for (int e = 0; e < LB; e++) {
                    const int     at = tid + e * TNC_THREADS;
                    const int64_t k = k0 + BK + (b_along ? at % BK : at / BN), c = c0 + (b_along ? at / BK : at % BN);
                    next_b[e] = k < g.k && c < g.n
                        ? tnc_number(g.b, g.b_dtype, b0 + k * g.b_step[1] + c * g.b_step[2], R(0)) : R(0);
                }
            }
            if (k0 >= 0) {
                TNC_UNROLL
                for (int k = 0; k < BK; k++) {
                    R x[TM], y[TN];
                    TNC_UNROLL
                    for (int i = 0; i < TM; i++) x[i] = left[now][k][i / 4 * FAR_M + row + i % 4];
                    TNC_UNROLL
                    for (int j = 0; j < TN; j++) y[j] = right[now][k][j / 4 * FAR_N + column + j % 4];
                    TNC_UNROLL
                    for (int i = 0; i < TM; i++)
                        TNC_UNROLL
                        for (int j = 0; j < TN; j++) sum[i][j] = tnc_fma(x[i], y[j], sum[i][j]);
                }
            }
            if (k0 + BK < g.k) {
                TNC_UNROLL
                for (int e = 0; e < LA; e++) {
                    const int at = tid + e * TNC_THREADS;
                    left[1 - now][a_along ? at % BK : at / BM][a_along ? at / BK : at % BM] = next_a[e];
                }
                TNC_UNROLL
                for (int e = 0; e < LB; e++) {
                    const int at = tid + e * TNC_THREADS;
                    right[1 - now][b_along ? at % BK : at / BN][b_along ? at / BK : at % BN] = next_b[e];
                }
            }
            __syncthreads();
        }
        TNC_UNROLL
        for (int i = 0; i < TM; i++)
            TNC_UNROLL
            for (int j = 0; j < TN; j++) {
                const int64_t r = r0 + i / 4 * FAR_M + row + i % 4, c = c0 + j / 4 * FAR_N + column + j % 4;
                const int64_t to = batch * g.c_step[0] + r * g.c_step[1] + c * g.c_step[2];
                R v = (R)g.alpha * sum[i][j];
                if (r >= g.m || c >= g.n) continue;
                if (g.beta != 0) v = tnc_fma((R)g.beta, tnc_number(g.c, g.c_dtype, to, R(0)), v);
                if (g.bias) v += tnc_number(g.bias, g.bias_dtype, c * g.bias_step, R(0));
                tnc_number_put(g.c, g.c_dtype, to, v);
            }
    }
}

template <typename R, int BM, int BN, int BK, int TM, int TN> static void tnc_gemm_launch(tnc *s, const tnc_matrices &g)
{
    const int64_t tiles = g.batch * tnc_ceil(g.m, BM) * tnc_ceil(g.n, BN);
    TNC_START((tnc_gemm_kernel<R, BM, BN, BK, TM, TN>), tnc_blocks(tiles, 1), g, llabs(g.a_step[2]) < llabs(g.a_step[1]),
              llabs(g.b_step[1]) < llabs(g.b_step[2]));
}

/* Uses large tiles if there are enough of them to fill the device. */
static void tnc_gemm_own(tnc *s, const tnc_matrices &g)
{
    if (g.c_dtype == TN_F64) tnc_gemm_launch<double, 64, 64, 8, 4, 4>(s, g);
    else if (g.batch * tnc_ceil(g.m, 128) * tnc_ceil(g.n, 128) >= s->sms) tnc_gemm_launch<float, 128, 128, 8, 8, 8>(s, g);
    else tnc_gemm_launch<float, 64, 64, 16, 4, 4>(s, g);
}

/* Thin products gain little from tensor cores, so their operands are not rounded. */
static bool tnc_gemm_thin(const tnc_matrices &g) { return g.m < TNC_GEMM_THIN || g.n < TNC_GEMM_THIN || g.k < TNC_GEMM_THIN; }

/* A matrix for cuBLAS, which is column-major: a view [rows,columns] as it is (OP_N), or as the transpose of one (OP_T). */
typedef struct tnc_operand {
    const void       *data;
    cublasOperation_t op;
    cudaDataType      type;
    int               lead;
    int64_t           batch_step;
} tnc_operand;

static bool tnc_operand_of(tnc_operand *o, const void *data, int dtype, int64_t rows, int64_t columns, int64_t row_step,
                           int64_t column_step, int64_t batch_step)
{
    int64_t lead = columns == 1 ? rows : column_step;
    o->data = data;
    o->type = dtype == TN_F64 ? CUDA_R_64F : dtype == TN_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    o->batch_step = batch_step;
    o->op = CUBLAS_OP_N;
    o->lead = (int)lead;
    if ((rows == 1 || row_step == 1) && lead >= rows && lead <= INT32_MAX) return batch_step >= 0;
    lead = rows == 1 ? columns : row_step;
    o->op = CUBLAS_OP_T;
    o->lead = (int)lead;
    return (columns == 1 || column_step == 1) && lead >= columns && lead <= INT32_MAX && batch_step >= 0;
}

static int tnc_alignment_of(const void *p)
{
    const uintptr_t at = (uintptr_t)p, low = at & (~at + 1);
    return low == 0 || low > 16 ? 16 : (int)low;
}

/* Plans are made on the host, also during a capture. `bias`: an address that is a multiple of 16, as all biases have;
   the heuristic looks at its alignment only. The status is of what failed, but not of a heuristic that has no algorithm. */
static cublasStatus_t tnc_plan_make(const tnc_lt *b, tnc_plan *p, const tnc_plan_key *key, const void *bias)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
    const uint32_t                  epilogue = CUBLASLT_EPILOGUE_BIAS;
    const uint64_t                  down = (uint64_t)key->m, along = (uint64_t)key->n, deep = (uint64_t)key->k;
    const bool                      flip_a = key->op[0] != CUBLAS_OP_N, flip_b = key->op[1] != CUBLAS_OP_N;
    const int32_t                   count = (int32_t)key->batch;
    cublasLtMatmulHeuristicResult_t found;
    cublasStatus_t                  status = CUBLAS_STATUS_SUCCESS;
    int                             n = 0;
    auto works = [&](cublasStatus_t x) { return (status = x) == CUBLAS_STATUS_SUCCESS; };
    p->key = *key;
    bool ok = works(b->product_create(&p->product, (cublasComputeType_t)key->compute, CUDA_R_32F))
              && works(b->product_set(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &key->op[0], sizeof key->op[0]))
              && works(b->product_set(p->product, CUBLASLT_MATMUL_DESC_TRANSB, &key->op[1], sizeof key->op[1]))
              && works(b->layout_create(&p->a, (cudaDataType)key->type, flip_a ? deep : down, flip_a ? down : deep, key->lead[0]))
              && works(b->layout_create(&p->b, (cudaDataType)key->type, flip_b ? along : deep, flip_b ? deep : along,
                                        key->lead[1]))
              && works(b->layout_create(&p->c, (cudaDataType)key->c_type, down, along, key->lead[2]));
    if (ok && key->bias)
        ok = works(b->product_set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue))
             && works(b->product_set(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    for (int i = 0; i < 3 && ok && key->batch > 1; i++) {
        cublasLtMatrixLayout_t layout = i == 0 ? p->a : i == 1 ? p->b : p->c;
        ok = works(b->layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count))
             && works(b->layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &key->batch_step[i],
                                    sizeof key->batch_step[i]));
    }
    for (int i = 0; i < 4 && ok; i++) {
        const uint32_t bytes = (uint32_t)key->alignment[i < 2 ? i : 2];
        ok = works(b->preference_set(b->preference, aligned[i], &bytes, sizeof bytes));
    }
    if (!ok) return status;
    status = b->heuristic(b->handle, p->product, p->a, p->b, p->c, p->c, b->preference, 1, &found, &n);
    p->usable = status == CUBLAS_STATUS_SUCCESS && n == 1 && found.state == CUBLAS_STATUS_SUCCESS
                && found.workspaceSize <= TNC_BLAS_WORKSPACE;
    if (p->usable) p->algo = found.algo;
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? CUBLAS_STATUS_SUCCESS : status;
}

/* Not an error, since cublasGemmEx computes the product. */
static void tnc_lt_fails(tnc *s, cublasStatus_t status)
{
    char text[160];
    snprintf(text, sizeof text, "cuBLAS: cublasLt fails (%s); cublasGemmEx computes such products", s->blas.text(status));
    tnc_say_once(s, &s->said_lt_fails, TN_LOG_WARN, text);
}

/* A plan that is not usable is kept too, so that its product is not tried again. */
static tnc_plan *tnc_plan_of(tnc *s, const tnc_plan_key *key)
{
    tnc_lt   *b = &s->lt;
    tnc_plan *p = b->plan, *oldest = b->plan, *const end = b->plan + b->plans;
    for (; p < end && memcmp(&p->key, key, sizeof *key) != 0; p++)
        if (p->used < oldest->used) oldest = p;
    if (p == end) {
        if (b->plans < TNC_PLANS) b->plans++;
        else tnc_plan_destroy(b, p = oldest);
        cublasStatus_t status = tnc_plan_make(b, p, key, (const char *)s->blas_workspace + 16);
        if (status != CUBLAS_STATUS_SUCCESS) tnc_lt_fails(s, status);
    }
    p->used = ++b->products;
    return p;
}

/* C [m,n] = alpha X Y + beta C + bias [m], column-major. */
static cublasStatus_t tnc_gemm_plan(tnc *s, int64_t m, int64_t n, const tnc_matrices &g, const tnc_operand &x,
                                    const tnc_operand &y, const tnc_operand &z, cublasComputeType_t compute)
{
    const float    alpha = (float)g.alpha, beta = (float)g.beta;
    tnc_lt        *b = &s->lt;
    tnc_plan_key   key;
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    memset(&key, 0, sizeof key);
    key.m = m;
    key.n = n;
    key.k = g.k;
    key.batch = g.batch;
    key.lead[0] = x.lead;
    key.lead[1] = y.lead;
    key.lead[2] = z.lead;
    if (g.batch > 1) {
        key.batch_step[0] = x.batch_step;
        key.batch_step[1] = y.batch_step;
        key.batch_step[2] = z.batch_step;
    }
    key.op[0] = x.op;
    key.op[1] = y.op;
    key.type = x.type;
    key.c_type = z.type;
    key.compute = compute;
    key.bias = g.bias != NULL;
    key.alignment[0] = tnc_alignment_of(x.data);
    key.alignment[1] = tnc_alignment_of(y.data);
    key.alignment[2] = tnc_alignment_of(g.c);
    tnc_plan *p = tnc_plan_of(s, &key);
    if (!p->usable) return status;
    if (g.bias) status = b->product_set(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g.bias, sizeof g.bias);
    if (!g.bias || status == CUBLAS_STATUS_SUCCESS)
        status = b->matmul(b->handle, p->product, &alpha, x.data, p->a, y.data, p->b, &beta, g.c, p->c, g.c, p->c, &p->algo,
                           s->blas_workspace, TNC_BLAS_WORKSPACE, s->stream);
    if (status == CUBLAS_STATUS_SUCCESS)
        tnc_say_once(s, &s->said_lt, TN_LOG_INFO, "cuBLAS: the first product by cublasLt");
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) return status;
    tnc_lt_fails(s, status);
    p->usable = false;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

/* C is computed directly if its columns are contiguous; if its rows are, C^T = B^T A^T is, and only then can a bias be
   added. TN_ERR_SHAPE: cuBLAS cannot compute this product. */
static tn_status tnc_gemm_blas(tnc *s, const tnc_matrices &g)
{
    tnc_operand x, y, z;
    const float alpha = (float)g.alpha, beta = (float)g.beta;
    const bool  wide = g.c_dtype == TN_F64;
    const bool  transposed = tnc_operand_of(&z, g.c, g.c_dtype, g.n, g.m, g.c_step[2], g.c_step[1], g.c_step[0])
                       && z.op == CUBLAS_OP_N;
    const int64_t m = transposed ? g.n : g.m, n = transposed ? g.m : g.n;
    const bool  tf32 = g.a_dtype == TN_F32 && s->precision == TN_GEMM_TF32 && !tnc_gemm_thin(g);
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const void *by_alpha = wide ? (const void *)&g.alpha : &alpha, *by_beta = wide ? (const void *)&g.beta : &beta;
    if (!s->blas.handle || g.k == 0) return TN_ERR_SHAPE;
    if (m > INT32_MAX || n > INT32_MAX || g.k > INT32_MAX || g.batch > INT32_MAX) return TN_ERR_SHAPE;
    if (transposed) {
        if (!tnc_operand_of(&x, g.b, g.b_dtype, g.n, g.k, g.b_step[2], g.b_step[1], g.b_step[0])
            || !tnc_operand_of(&y, g.a, g.a_dtype, g.k, g.m, g.a_step[2], g.a_step[1], g.a_step[0])) return TN_ERR_SHAPE;
    } else if (!tnc_operand_of(&z, g.c, g.c_dtype, g.m, g.n, g.c_step[1], g.c_step[2], g.c_step[0]) || z.op != CUBLAS_OP_N
               || !tnc_operand_of(&x, g.a, g.a_dtype, g.m, g.k, g.a_step[1], g.a_step[2], g.a_step[0])
               || !tnc_operand_of(&y, g.b, g.b_dtype, g.k, g.n, g.b_step[1], g.b_step[2], g.b_step[0])) return TN_ERR_SHAPE;
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (s->lt.handle && !wide && m > 1 && n > 1 && (transposed || !g.bias))
        status = tnc_gemm_plan(s, m, n, g, x, y, z, compute);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED && !g.bias)
        status = g.batch == 1
            ? s->blas.gemm(s->blas.handle, x.op, y.op, (int)m, (int)n, (int)g.k, by_alpha, x.data, x.type, x.lead, y.data,
                           y.type, y.lead, by_beta, g.c, z.type, z.lead, compute, CUBLAS_GEMM_DEFAULT)
            : s->blas.gemms(s->blas.handle, x.op, y.op, (int)m, (int)n, (int)g.k, by_alpha, x.data, x.type, x.lead,
                            x.batch_step, y.data, y.type, y.lead, y.batch_step, by_beta, g.c, z.type, z.lead, z.batch_step,
                            (int)g.batch, compute, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS) return TN_OK;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return TN_ERR_SHAPE;
    return tnc_error(s, TN_ERR_BACKEND, "gemm: %s", s->blas.text(status));
}

/* The layout of a copy of an operand in another type: contiguous along the same axis, with lines at multiples of 16 bytes. A
   matrix that is broadcast over the batch is copied once. Returns the number of bytes. */
static size_t tnc_gemm_place(const tn_view *x, tn_dtype dtype, tn_view *y)
{
    const bool    down = x->strides[1] == 1 && x->strides[2] != 1;
    const int64_t line = tnc_ceil(x->shape[down ? 1 : 2], 8) * 8;
    *y = *x;
    y->dtype = dtype;
    y->strides[1] = down ? 1 : line;
    y->strides[2] = down ? line : 1;
    y->strides[0] = x->strides[0] == 0 ? 0 : line * x->shape[down ? 2 : 1];
    return (size_t)(line * x->shape[down ? 2 : 1] * (x->strides[0] == 0 ? 1 : x->shape[0])) * (size_t)tnc_size_of(dtype);
}

static void tnc_gemm_convert(tnc *s, tn_view from, tn_view to)
{
    if (from.strides[0] == 0) from.shape[0] = to.shape[0] = 1;
    tnc_copy_views(s, &from, &to);
}

static tnc_matrices tnc_matrices_of(const tn_call *c)
{
    const tn_view *x = c->in, *bias = c->n_in > 2 && c->in[2].data ? &c->in[2] : NULL, *y = &c->out[0];
    tnc_matrices   g;
    g.batch = y->shape[0];
    g.m = y->shape[1];
    g.n = y->shape[2];
    g.k = x[0].shape[2];
    for (int i = 0; i < 3; i++) {
        g.a_step[i] = x[0].strides[i];
        g.b_step[i] = x[1].strides[i];
        g.c_step[i] = y->strides[i];
    }
    g.a = x[0].data;
    g.b = x[1].data;
    g.c = y->data;
    g.bias = bias ? bias->data : NULL;
    g.a_dtype = x[0].dtype;
    g.b_dtype = x[1].dtype;
    g.c_dtype = y->dtype;
    g.bias_dtype = bias ? bias->dtype : y->dtype;
    g.bias_step = bias ? bias->strides[0] : 0;
    g.alpha = c->f[0];
    g.beta = c->f[1];
    return g;
}

static tn_status tnc_gemm_bias(tnc *s, const tn_call *c, const tn_view *y)
{
    tn_view bias = *y;
    if (c->n_in < 3 || !c->in[2].data) return TN_OK;
    bias.data = c->in[2].data;
    bias.dtype = c->in[2].dtype;
    bias.strides[0] = bias.strides[1] = 0;
    bias.strides[2] = c->in[2].strides[0];
    return tnc_add_one(s, y, &bias, 1, true);
}

/* Whether cublasLt may add the bias to z. It reads contiguous numbers of z's type at a multiple of 16: `bias` is what it
   gets, and `bytes` the size of a copy, if one is needed. */
static bool tnc_gemm_adds_bias(const tnc *s, const tn_call *c, const tn_view *z, tn_view *bias, size_t *bytes)
{
    const tn_view *x = &c->in[2];
    if (!s->lt.handle || c->n_in < 3 || !x->data || z->dtype == TN_F64) return false;
    if (z->strides[2] != 1 || z->shape[1] == 1 || z->shape[2] == 1) return false;
    *bias = *x;
    bias->dtype = z->dtype;
    bias->strides[0] = 1;
    if (x->dtype != z->dtype || x->strides[0] != 1 || (uintptr_t)x->data % 16 != 0)
        *bytes = (size_t)(tnc_ceil(x->shape[0], 8) * 8) * (size_t)tnc_size_of(z->dtype);
    return true;
}

/* Stores an F32 product whose output is BF16. It was computed in scratch, with its bias, so that it is rounded once. */
static tn_status tnc_gemm_keep(tnc *s, const tn_call *c, const tn_view *z)
{
    tn_call add;
    if (c->f[1] == 0) return tnc_add_one(s, &c->out[0], z, 1, false);
    memset(&add, 0, sizeof add);
    add.kernel = TN_KERNEL_ADD;
    add.in[add.n_in++] = c->out[0];
    add.in[add.n_in++] = *z;
    add.out[add.n_out++] = c->out[0];
    add.f[0] = c->f[1];
    add.f[1] = 1;
    return tnc_add(s, &add);
}

/* The type in which A and B are multiplied. */
static tn_dtype tnc_gemm_type(const tnc *s, const tnc_matrices &g)
{
    if (g.a_dtype == g.b_dtype && (g.a_dtype != TN_F32 || s->precision != TN_GEMM_BF16)) return (tn_dtype)g.a_dtype;
    return tnc_gemm_thin(g) ? TN_F32 : TN_BF16;
}

/* Whether the call has B in BF16 as well, laid out as a copy in scratch would be. */
static bool tnc_gemm_shadowed(const tn_call *c)
{
    const tn_view *b = &c->in[1], *shadow = &c->in[3];
    tn_view        copy;
    if (c->n_in < 4 || !shadow->data || shadow->dtype != TN_BF16 || !tnc_aligned(shadow->data)) return false;
    tnc_gemm_place(b, TN_BF16, &copy);
    return shadow->strides[1] == copy.strides[1] && shadow->strides[2] == copy.strides[2]
        && (b->shape[0] == 1 || shadow->strides[0] == copy.strides[0]);
}

TNC_FN tn_status tnc_gemm(tnc *s, const tn_call *c)
{
    tn_call            made = *c;
    tn_view           *z = &made.out[0];
    const tnc_matrices g = tnc_matrices_of(c);
    const int          dtypes[4] = { g.a_dtype, g.b_dtype, g.c_dtype, g.bias_dtype };
    const tn_dtype     type = tnc_gemm_type(s, g);
    const bool         keep = type == TN_F32 && g.c_dtype == TN_BF16;
    size_t             bytes[4] = { 0, 0, 0, 0 };           /* of A, B, bias, C in scratch */
    for (int i = 0; i < 4; i++) {
        if (dtypes[i] != TN_F32 && dtypes[i] != TN_F64 && dtypes[i] != TN_BF16) return TN_ERR_DTYPE;
        if ((dtypes[i] == TN_F64) != (dtypes[0] == TN_F64)) return TN_ERR_DTYPE;
    }
    if (g.batch == 0 || g.m == 0 || g.n == 0) return TN_OK;
    if (!s->blas.handle || g.k == 0 || (g.a_dtype != g.b_dtype && type == TN_F32 && g.k <= 256)) {
        tnc_gemm_own(s, g);                             /* converts operands as it reads them, in one launch */
        return TN_OK;
    }
    for (int i = 0; i < 2; i++) {
        if (dtypes[i] == type) continue;
        if (i == 1 && type == TN_BF16 && tnc_gemm_shadowed(c)) made.in[1] = c->in[3];
        else bytes[i] = tnc_gemm_place(&c->in[i], type, &made.in[i]);
    }
    if (keep) {
        z->dtype = TN_F32;
        z->strides[2] = 1;
        z->strides[1] = z->shape[2];
        z->strides[0] = z->shape[1] * z->shape[2];
        bytes[3] = (size_t)(z->shape[0] * z->strides[0]) * sizeof(float);
        made.f[1] = 0;
    }
    bool adds = tnc_gemm_adds_bias(s, c, z, &made.in[2], &bytes[2]);
    if (bytes[0] + bytes[1] + bytes[2] + bytes[3] > 0) {
        char *scratch = (char *)tnc_scratch(s, bytes[0] + bytes[1] + bytes[2] + bytes[3]);
        if (!scratch) return TN_ERR_MEMORY;
        for (int i = 0; i < 3; i++) {
            if (bytes[i] == 0) continue;
            made.in[i].data = scratch;
            scratch += bytes[i];
            if (i < 2) tnc_gemm_convert(s, c->in[i], made.in[i]);
            else tnc_copy_views(s, &c->in[2], &made.in[2]);
        }
        if (keep) z->data = scratch;
    }
    tnc_matrices product = tnc_matrices_of(&made);
    if (!adds) product.bias = NULL;
    tn_status status = tnc_gemm_blas(s, product);
    if (status == TN_ERR_SHAPE && adds) {
        adds = false;
        product.bias = NULL;
        status = tnc_gemm_blas(s, product);
    }
    if (status == TN_ERR_SHAPE) {
        tnc_gemm_own(s, g);
        return TN_OK;
    }
    if (status == TN_OK && !adds) status = tnc_gemm_bias(s, c, z);
    return keep && status == TN_OK ? tnc_gemm_keep(s, c, z) : status;
}
