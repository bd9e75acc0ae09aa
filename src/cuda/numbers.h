#pragma once
#include "cuda/state.h"

/* ======================================================================
   >>cuda-device      what the kernels share
   Types, conversions, grid sizes, reductions, vector loads, index computations, elementwise kernels, random numbers and the
   fault word.
   ====================================================================== */

/* ---- types -------------------------------------------------------------------------------------------------- >>cuda-types
   Kernels are templates on the type of the activations. Macros choose the instance for the dtype of a call, or return
   TN_ERR_DTYPE; the dispatcher then converts the operands to F32. */

/* The type of parameters, statistics and sums for activations of type T: float for BF16, else T itself. */
template <typename T> struct tnc_real { typedef T type; };
template <> struct tnc_real<tnc_bf16> { typedef float type; };

template <typename T> struct tnc_code;
template <> struct tnc_code<float> { enum { dtype = TN_F32 }; };
template <> struct tnc_code<double> { enum { dtype = TN_F64 }; };
template <> struct tnc_code<tnc_bf16> { enum { dtype = TN_BF16 }; };

/* Runs `statement` with T = the C++ type of a dtype. The entry returns TN_ERR_DTYPE for others, before it has
   done anything. */
#define TNC_TYPES(code, T, ...) \
    switch (code) { \
    case TN_F32:  { typedef float T; __VA_ARGS__; break; } \
    case TN_F64:  { typedef double T; __VA_ARGS__; break; } \
    case TN_BF16: { typedef tnc_bf16 T; __VA_ARGS__; break; } \
    default: return TN_ERR_DTYPE; \
    }

/* The same for F32 and F64 only, where BF16 would lose too much; the dispatcher then converts BF16 operands to F32. */
#define TNC_REALS(code, R, ...) \
    switch (code) { \
    case TN_F32: { typedef float R; __VA_ARGS__; break; } \
    case TN_F64: { typedef double R; __VA_ARGS__; break; } \
    default: return TN_ERR_DTYPE; \
    }

/* A case of a switch on two or three dtypes */
#define TNC_MIX(y, a, b) ((int)(y) << 8 | (int)(a) << 4 | (int)(b))

static inline int64_t tnc_size_of(int dtype) { return dtype == TN_F64 ? 8 : dtype == TN_BF16 ? 2 : 4; }

/* Whether an operand has this dtype; an absent one counts as having it. */
static inline bool tnc_has(const tn_view *v, int dtype) { return !v->data || (int)v->dtype == dtype; }

/* Whether all operands that are present have the dtype of the first output. */
static inline bool tnc_same_dtype(const tn_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (!tnc_has(&c->in[i], c->out[0].dtype)) return false;
    for (int i = 1; i < c->n_out; i++)
        if (!tnc_has(&c->out[i], c->out[0].dtype)) return false;
    return true;
}

/* ---- numbers ---------------------------------------------------------------------------------------------- >>cuda-numbers
   Conversions between BF16, F32, F64 and bit patterns, and elementary functions with one name for float and double. */

static __device__ __forceinline__ float    tnc_to(float x) { return x; }
static __device__ __forceinline__ double   tnc_to(double x) { return x; }
static __device__ __forceinline__ float    tnc_to(tnc_bf16 x) { return __bfloat162float(x); }
static __device__ __forceinline__ uint16_t tnc_to(uint16_t x) { return x; }         /* bit patterns that are only copied */
static __device__ __forceinline__ uint32_t tnc_to(uint32_t x) { return x; }
static __device__ __forceinline__ uint64_t tnc_to(uint64_t x) { return x; }
template <typename T> static __device__ __forceinline__ T tnc_from(typename tnc_real<T>::type x) { return T(x); }
template <> __device__ __forceinline__ tnc_bf16 tnc_from<tnc_bf16>(float x) { return __float2bfloat16(x); }

/* Functions with one name for both types. FAST: relative error up to 2e-6, far below the 4e-3 of BF16. */
static __device__ __forceinline__ float  tnc_fma(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ __forceinline__ double tnc_fma(double a, double b, double c) { return fma(a, b, c); }
static __device__ __forceinline__ float  tnc_sqrt(float x) { return sqrtf(x); }
static __device__ __forceinline__ double tnc_sqrt(double x) { return sqrt(x); }
static __device__ __forceinline__ float  tnc_abs(float x) { return fabsf(x); }
static __device__ __forceinline__ double tnc_abs(double x) { return fabs(x); }
static __device__ __forceinline__ float  tnc_rint(float x) { return rintf(x); }
static __device__ __forceinline__ double tnc_rint(double x) { return rint(x); }
static __device__ __forceinline__ float  tnc_log(float x) { return logf(x); }
static __device__ __forceinline__ double tnc_log(double x) { return log(x); }
static __device__ __forceinline__ float  tnc_tanh(float x) { return tanhf(x); }
static __device__ __forceinline__ double tnc_tanh(double x) { return tanh(x); }
template <bool FAST> static __device__ __forceinline__ float tnc_exp(float x) { return FAST ? __expf(x) : expf(x); }
template <bool FAST> static __device__ __forceinline__ double tnc_exp(double x) { return exp(x); }
template <bool FAST>
static __device__ __forceinline__ float tnc_quotient(float a, float b) { return FAST ? __fdividef(a, b) : a / b; }
template <bool FAST> static __device__ __forceinline__ double tnc_quotient(double a, double b) { return a / b; }

/* The larger of two numbers; a NaN is ignored unless both are NaN. */
template <typename R> static __device__ __forceinline__ R tnc_larger(R a, R b) { return a > b || b != b ? a : b; }

static __host__ __device__ inline int64_t tnc_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int tnc_bound(int64_t x, int low, int high) { return x < low ? low : x > high ? high : (int)x; }

/* ---- shared memory ----------------------------------------------------------------------------------------- >>cuda-shared
   A kernel may use 48 KiB of shared memory unless its limit is raised, which CUDA does per kernel and not per launch. */

/* Raises the limit of dynamic shared memory of a kernel, which is 48 KiB by default, before a launch that needs more. Static
   shared memory counts as well; in this file it is at most 16 KiB beside dynamic memory, so that below 32 KiB there is
   nothing to do. The limit belongs to the kernel and holds for all threads and graphs: it is set to the most that the device
   allows and never lowered. A context asks once for each kernel, because the question takes as long as a launch. */
template <class... P> static void tnc_shared_for(tnc *s, void (*kernel)(P...), size_t bytes)
{
    cudaFuncAttributes a;
    const void        *name = reinterpret_cast<const void *>(kernel);
    int                i = 0;
    if (bytes <= 32 << 10) return;
    while (i < s->raised_count && s->shared_raised[i] != name) i++;
    if (i < s->raised_count || cudaFuncGetAttributes(&a, kernel) != cudaSuccess) return;
    if ((size_t)a.maxDynamicSharedSizeBytes + a.sharedSizeBytes < s->shared_max
        && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)(s->shared_max - a.sharedSizeBytes)) != cudaSuccess) return;
    if (i < TNC_SHARED_RAISED) s->shared_raised[s->raised_count++] = name;
}

/* ---- grids: how work is divided between blocks and threads --------------------------------------------------- >>cuda-grid
   Kernels that only stream memory get one block per task; kernels whose blocks keep something between tasks, or leave
   partial sums, get as many blocks as the device can hold. A row belongs to a power of two of lanes, or to a whole block.
   All of this depends on the shapes and the number of multiprocessors, never on timing. Three numbers of blocks are
   constants tuned for about 132 multiprocessors: 1024 of sum, 2048 of rope, 264 of linear attention. */

enum { TNC_THREADS = 256 };              /* of most blocks */

/* One block per `each` elements, which is fastest for kernels that only stream memory. Above 2^30 blocks the
   kernels loop. */
static inline unsigned tnc_blocks(int64_t n, int64_t each)
{
    const int64_t blocks = tnc_ceil(n, each);
    return (unsigned)(blocks < 1 ? 1 : blocks < (1 << 30) ? blocks : 1 << 30);
}

/* At most 16 blocks per multiprocessor: for kernels whose blocks keep something between tasks or write a partial
   sum each. */
static inline unsigned tnc_grid(const tnc *s, int64_t n, int64_t each)
{
    return (unsigned)tnc_bound(tnc_ceil(n, each), 1, s->sms * 16);
}

/* Launches a kernel with blocks of TNC_THREADS threads on the stream of s */
#define TNC_START(kernel, blocks, ...) TNC_LAUNCH(kernel, blocks, TNC_THREADS, 0, s->stream, __VA_ARGS__)

/* The header of a grid-stride loop over n elements */
#define TNC_GRID_STRIDE(i, n) \
    int64_t i = (int64_t)blockIdx.x * TNC_THREADS + threadIdx.x; i < (n); i += (int64_t)gridDim.x * TNC_THREADS

/* The power of two of threads that a row of `pieces` vectors can keep busy, at most `most`. */
static inline int tnc_lanes(int64_t pieces, int most)
{
    int lanes = 1;
    while (lanes < most && lanes < pieces) lanes *= 2;
    return lanes;
}

/* How rows are assigned to threads. `lanes` threads share a row: a power of two up to 32, when a block has several rows, or
   the whole block. This depends on the shape alone. held: number of vectors that a thread keeps in registers; most: threads
   of the largest block. */
typedef struct tnc_rows { int lanes, threads; } tnc_rows;

static inline tnc_rows tnc_rows_of(int64_t pieces, int held, int most)
{
    tnc_rows r = { tnc_lanes(pieces, 32), TNC_THREADS };
    if (pieces > 32 * held) r.lanes = r.threads = 32 * tnc_bound(tnc_ceil(pieces, held * 32), 2, most / 32);
    return r;
}

static __device__ __forceinline__ int tnc_lane(int lanes) { return (int)threadIdx.x & (lanes > 32 ? 1023 : lanes - 1); }
