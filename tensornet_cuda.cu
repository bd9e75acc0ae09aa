/* Generated from the files of src/cuda/ by `make header`: make changes there. */

/* tensornet_cuda.cu - the CUDA backend of tensornet.h                                                C++17, CUDA 12 or later

   One file beside tensornet.h. Compile it, link it and pass it to a context:

       nvcc -O3 -arch=sm_90 -c tensornet_cuda.cu         (or -arch=native: this machine's GPU; sm_80 or later)
       cc -c program.c && nvcc program.o tensornet_cuda.o -o program

       tn_desc d = {0};
       d.backend = tn_cuda_backend();
       tn_ctx_create(&d, &ctx, why);

   Without a usable GPU the context runs on the cpu backend, and its log says why; desc.backend_required turns that into an
   error. Each context has one stream on the GPU desc.device. Matrix products are computed by cuBLAS, which is opened at run
   time; where it is not installed, a kernel of this file computes them.

   Environment variables, read when a context is created:
       TN_SYNC=1       synchronises after every call, so that an error names the op that caused it; disables graph capture
       TN_CUBLAS=0     computes matrix products with this file's own kernel
       TN_CUBLASLT=0   computes them by cublasGemmEx only, without plans of cublasLt
       TN_WGMMA=1      attention by the kernels for sm_90a, on GPUs of capability 9.0; 0: without them. Overrides desc.wgmma
       TN_TMA=0        these kernels load by cp.async, not by TMA
       CUDA_HOME       where to look for cuBLAS if the loader does not find it; default /usr/local/cuda. After it come the
                       packages of Python (pip install nvidia-cublas). The log says which file was opened, or that none was.

   What to know
       Precision       F64 is computed in F64. F32 is computed in F32, except that cross_entropy uses __expf;
                       desc.gemm_precision allows products of F32 to run on tensor cores as TF32 or BF16. With
                       desc.activations = TN_BF16 the results of ops are BF16; sums, statistics and parameters are F32,
                       but cublasLt rounds the bias of a BF16 product to BF16.
                       Uniform random numbers and masks are bit-identical to the CPU's, normal ones agree to 2 ulp.
       Reproducibility Results are bit-identical in every run on one model of GPU with one version of cuBLAS: no sum uses
                       floating-point atomics, and nothing is chosen by timing. Another model has other grid sizes, and so
                       its results may differ in the last bits.
       Devices         Each call makes desc.device the current device of the calling thread. All work of a context, uploads
                       included, goes to its one stream.
       Errors          Kernels run asynchronously, so an error is reported late: by the next download or sync. After a fault
                       of a kernel the context cannot be used any more.
       Optimisers      Consecutive calls for different parameters are collected and run together, up to 45 in one launch.
                       Every call that touches device memory runs them first.
       Graphs          tn_graph captures a step once and replays it with one call. Scratch cannot grow during the capture,
                       so run the step once before it. Memory that a graph may use is kept until the last graph is released.
       Scratch         grows to the largest size that any call has needed, and is kept until the context is destroyed.
       Limits          Rows of norms and numbers of classes below 2^31; chains of matrices up to 16384 x 16384; 2^32 ids per
                       call; linear attention with up to 2^32 - 1 heads of 2^31 - 1 numbers; else TN_ERR_SHAPE. States of
                       linear attention and all scratch must fit into device memory; else TN_ERR_MEMORY. Quadratic attention
                       with sums of more than 2^20 terms does not use tensor cores and is slow.
                       Calls with dtypes that no entry takes are computed in F32 by the dispatcher.

   Words. A kernel is a CUDA kernel (__global__). An entry is the host function that serves one kernel of tensornet.h's table
   (TN_KERNELS): it checks the call and launches CUDA kernels. "Floor" is the least traffic or arithmetic that the operation
   needs. A pack or piece is 16 bytes that are loaded at once. The section on quadratic attention begins with a glossary.

   CONTENTS (search for a tag; the mathematics of an op is at its tag in tensornet.h, such as >>op-rmsnorm)
       >>cuda-port         CUDA's extensions of C++ under other names, for nvcc and for the host engine of tests/cuda_host
           >>cuda-hopper       those of sm_90a
       >>cuda-state        the state of a context and its first error
           >>cuda-blas         loading cuBLAS
           >>cuda-open         choosing a device, creating and destroying the state
       >>cuda-memory       allocation, copies, scratch
           >>cuda-graph        capture and replay
       >>cuda-device       what the kernels share
           >>cuda-types        dtypes and C++ types                  >>cuda-numbers      conversion and elementary functions
           >>cuda-shared       limits of shared memory               >>cuda-grid         grid sizes, threads per row
           >>cuda-reduce       sums of a warp, a block, a row        >>cuda-packs        vectors of 16 bytes
           >>cuda-swizzle      BF16 tiles in shared memory           >>cuda-walk         indices of strided views
           >>cuda-map          elementwise kernels                   >>cuda-parts        views of column ranges
           >>cuda-philox       random numbers                        >>cuda-fault        the fault word
       >>cuda-kernels      the entries of the kernel table, each with its CUDA kernels
           >>cuda-copy         copy, fill                            >>cuda-random       uniform, normal
           >>cuda-add          add, mul, div                         >>cuda-where        where
           >>cuda-sum          sum                                   >>cuda-act          act, glu and their backward passes
           >>cuda-prod         prod and backward                     >>cuda-gemm         gemm
           >>cuda-embed        embed                                 >>cuda-embed-back   embed_backward
           >>cuda-norm         rmsnorm, layernorm                    >>cuda-norm-back    their backward passes
           >>cuda-dropout      dropout                               >>cuda-entropy      cross_entropy
           >>cuda-softmax      softmax and backward                  >>cuda-chain        chain and backward
           >>cuda-scan         scans and their backward passes       >>cuda-rope         rope and backward
           >>cuda-attention    quadratic attention: glossary, masks, row scales
               >>cuda-attention-delta    what the backward pass needs of each query
               >>cuda-attention-plain    any dtype and head size     >>cuda-attention-split    split-K for decoding
               >>cuda-attention-mma      tensor cores                >>cuda-attention-wgmma    those of Hopper
               >>cuda-attention-choose   which kernels a call takes  >>cuda-attention-entry    the entries
           >>cuda-linear       linear attention: the formula, chunks and states
               >>cuda-linear-plain       any extents, F32 and F64    >>cuda-linear-mma         tensor cores
               >>cuda-linear-decode      a few tokens with a state   >>cuda-linear-entry       the entries
           >>cuda-argmax       argmax, accuracy
           >>cuda-optim        collecting the calls of optimisers
               >>cuda-sumsq              sumsq                       >>cuda-step               step_begin
               >>cuda-adamw              adamw, sgd, muon_end        >>cuda-muon               muon_begin
           >>cuda-tick         the clock of the random numbers
       >>cuda-table        the backend                                                                                     */

/* Functions that several files of src/cuda/ use: here all are in one file. */
#define TNC_FN static

#include "tensornet.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ======================================================================
   >>cuda-port        CUDA under other names
   Launches, shared memory and assembly are written with the names of this section and nowhere else, because nvcc and the
   host engine spell them differently. nvcc compiles the second half; the host engine of tests/cuda_host, which runs the
   kernels on the CPU, compiles the first and defines the remaining names in cuda_host.h.
   ====================================================================== */

#ifdef TN_CUDA_HOST
#include "cuda_host.h"
#define TNC_UNROLL
#define TNC_UNROLL_BY(n)
#define TNC_ROLLED
#define TNC_VECTOR(T, p) (*tnch_aligned<T>(p))
static inline int tnc_reread_thread(void) { return (int)threadIdx.x; }
static inline int tnc_reread_block(void) { return (int)blockIdx.x; }
static inline void tnc_hold(int &) {}
static inline float tnc_exp2(float x) { return exp2f(x); }
#define tnc_forget tnch_forget                   /* the memory counts as uninitialised again */
#define TNC_WGMMA 1
static inline bool tnc_wgmma_compiled(void (*)(void)) { return true; }

static inline unsigned tnc_mul_bf16x2(unsigned a, unsigned b)
{
    const float low = __uint_as_float(a << 16) * __uint_as_float(b << 16);
    const float high = __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
    return (unsigned)__bfloat16_as_ushort(__float2bfloat16(low))
         | (unsigned)__bfloat16_as_ushort(__float2bfloat16(high)) << 16;
}

/* sin and cos of pi x. fmod(x, 2) is exact. */
static inline void tnc_sincospi(double x, double *sine, double *cosine)
{
    const double angle = 3.141592653589793 * fmod(x, 2.0);
    *sine = sin(angle);
    *cosine = cos(angle);
}
#else
#include <cuda.h>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>
#include <cublasLt.h>
#include <math.h>

#if CUDART_VERSION < 12000
#error tensornet_cuda.cu needs CUDA 12 or later
#endif

typedef uint64_t tnc_barrier;                   /* an mbarrier, in shared memory */

/* Code for older architectures that nvcc compiles as well (-arch=all-major) never runs: tnc_choose rejects such GPUs. */
#ifdef __CUDA_ARCH_LIST__
template <class... N> static constexpr int tnc_last_of(N... arch) { int last = 0; ((last = arch), ...); return last; }
static_assert(tnc_last_of(__CUDA_ARCH_LIST__) >= 800, "tensornet_cuda.cu needs sm_80 or later: nvcc -arch=sm_90, or native");
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define TNC_ASM(...) __trap()
#else
#define TNC_ASM(...) asm volatile(__VA_ARGS__)
#endif

#define TNC_LAUNCH(kernel, grid, block, shared, stream, ...) (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define TNC_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define TNC_SHARED_ALIGN(A, T, name, ...) __shared__ __align__(A) T name __VA_ARGS__
#define TNC_DYN_SHARED(T, name) \
    extern __shared__ __align__(16) unsigned char tnc_dynamic[]; \
    T *name = reinterpret_cast<T *>(tnc_dynamic)
#define TNC_PRAGMA(x) _Pragma(#x)
#define TNC_UNROLL _Pragma("unroll")            /* before a loop whose array must stay in registers            */
#define TNC_UNROLL_BY(n) TNC_PRAGMA(unroll n)   /* before a loop whose loads should overlap                    */
#define TNC_ROLLED _Pragma("unroll 1")          /* before a loop that needs too many registers unrolled        */
#define TNC_VECTOR(T, p) (*reinterpret_cast<T *>(p))    /* one vector access to an aligned T */

static inline void tnc_forget(void *, size_t, cudaStream_t) {}

/* threadIdx.x and blockIdx.x, read from the special register every time: values derived from them are recomputed where they
   are needed and do not occupy registers during a loop. */
static __device__ __forceinline__ int tnc_reread_thread(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}
static __device__ __forceinline__ int tnc_reread_block(void)
{
    int x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}

/* The opposite: x is held in a register, and not computed again where it is needed. */
static __device__ __forceinline__ void tnc_hold(int &x) { asm volatile("" : "+r"(x)); }

static __device__ __forceinline__ void tnc_sincospi(double x, double *sine, double *cosine) { sincospi(x, sine, cosine); }

/* 2^x in one instruction, with a relative error of 2^-22; results below 2^-126 are 0. exp2f takes four. */
static __device__ __forceinline__ float tnc_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Copies 16 bytes from global to shared memory asynchronously, without registers. Both addresses are multiples of 16. */
static __device__ __forceinline__ void tnc_cp_async16(void *shared, const void *global)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    TNC_ASM("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(s), "l"(global) : "memory");
}

static __device__ __forceinline__ void tnc_cp_async_commit(void) { TNC_ASM("cp.async.commit_group;" : : : "memory"); }

/* Waits until at most N cp.async groups of this thread are pending. */
template <int N> static __device__ __forceinline__ void tnc_cp_async_wait(void)
{
    TNC_ASM("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

/* Loads four 8 x 8 matrices of 16-bit numbers. Lane l passes the address of row l % 8 of matrix l / 8; in r[i] it receives,
   from row l / 4 of matrix i, the numbers in columns 2 (l % 4) and 2 (l % 4) + 1. _trans: of the transposed matrix. */
static __device__ __forceinline__ void tnc_ldmatrix_x4(unsigned r[4], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    TNC_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s) : "memory");
}

static __device__ __forceinline__ void tnc_ldmatrix_x4_trans(unsigned r[4], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    TNC_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s) : "memory");
}

/* d[16,8] += a[16,16] b[16,8] with F32 accumulators. With g = l / 4 and t = 2 (l % 4), lane l holds of d the elements (g,
   t), (g, t+1), (g+8, t), (g+8, t+1); of a the pairs that begin at (g, t), (g+8, t), (g, t+8), (g+8, t+8); of b the pairs
   down a column that begin at (t, g), (t+8, g). */
static __device__ __forceinline__ void tnc_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2])
{
    TNC_ASM("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Two products of BF16 numbers at once, each rounded to BF16. */
static __device__ __forceinline__ unsigned tnc_mul_bf16x2(unsigned a, unsigned b)
{
    __nv_bfloat162 x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = __hmul2(x, y);
    memcpy(&a, &x, sizeof a);
    return a;
}

/* Whether x is true for one of the 128 threads of a warpgroup, which all call it. Each warpgroup has its own barrier. */
static __device__ __forceinline__ bool tnc_warpgroup_or(int warpgroup, bool x)
{
    int any;
    TNC_ASM("{\n.reg .pred p, q;\nsetp.ne.s32 q, %2, 0;\nbarrier.red.or.pred p, %1, 128, q;\nselp.s32 %0, 1, 0, p;\n}"
            : "=r"(any) : "r"(warpgroup + 1), "r"((int)x) : "memory");
    return any != 0;
}

/* ---- warpgroups, mbarriers and TMA ------------------------------------------------------------------------- >>cuda-hopper
   For sm_90a. Compiled for another architecture, the kernels that use these are empty, and never launched. */

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TNC_WGMMA 1

static __device__ __forceinline__ unsigned tnc_shared_address(const void *shared)
{
    return (unsigned)__cvta_generic_to_shared(shared);
}

/* What this thread has written to shared memory becomes visible to wgmma, after a barrier also for other warps. */
static __device__ __forceinline__ void tnc_fence_async(void) { TNC_ASM("fence.proxy.async.shared::cta;" : : : "memory"); }

/* Prevents the compiler from moving accesses to these registers across this point: call it before the fence and after the
   wait. */
template <int N> static __device__ __forceinline__ void tnc_wgmma_operand(float (&x)[N][4])
{
    TNC_UNROLL
    for (int n = 0; n < N; n++)
        TNC_ASM("" : "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3]) : : "memory");
}
template <int N> static __device__ __forceinline__ void tnc_wgmma_operand(unsigned (&x)[N][4])
{
    TNC_UNROLL
    for (int n = 0; n < N; n++)
        TNC_ASM("" : "+r"(x[n][0]), "+r"(x[n][1]), "+r"(x[n][2]), "+r"(x[n][3]) : : "memory");
}

static __device__ __forceinline__ void tnc_wgmma_fence(void) { TNC_ASM("wgmma.fence.sync.aligned;" : : : "memory"); }
static __device__ __forceinline__ void tnc_wgmma_commit(void)
{
    TNC_ASM("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Waits until at most N groups of products are pending. */
template <int N> static __device__ __forceinline__ void tnc_wgmma_wait(void)
{
    TNC_ASM("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
}

#define TNC_D4(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define TNC_D16(n) TNC_D4(n), TNC_D4(n + 1), TNC_D4(n + 2), TNC_D4(n + 3)
#define TNC_D32(n) TNC_D16(n), TNC_D16(n + 4)
#define TNC_R16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TNC_R32 TNC_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TNC_R64 TNC_R32 \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
    ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TNC_WGMMA_TEXT(n, add, operands) \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 " operands ";\n}"

/* d[64,N] = a[64,16] b[16,N], plus d if add is not 0. A lane of warp w of the warpgroup holds of rows 16 w .. 16 w + 15 of d,
   and of a in registers, what it holds for mma.m16n8k16. Descriptors: see tnc_wgmma_tile. _ss: a and b in shared memory, both
   with contiguous k. _rs: a in registers, b in shared memory with contiguous columns. */
template <int N> static __device__ __forceinline__ void tnc_wgmma_ss(float (&d)[N / 8][4], uint64_t a, uint64_t b, int add)
{
    static_assert(N == 16 || N == 32 || N == 64 || N == 128, "N must be 16, 32, 64 or 128");
    if constexpr (N == 16)
        TNC_ASM(TNC_WGMMA_TEXT("16", "%10", "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0")
                      : TNC_D4(0), TNC_D4(1) : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 32)
        TNC_ASM(TNC_WGMMA_TEXT("32", "%18", "{" TNC_R16 "}, %16, %17, p, 1, 1, 0, 0")
                      : TNC_D16(0) : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 64)
        TNC_ASM(TNC_WGMMA_TEXT("64", "%34", "{" TNC_R32 "}, %32, %33, p, 1, 1, 0, 0")
                      : TNC_D32(0) : "l"(a), "l"(b), "r"(add));
    else
        TNC_ASM(TNC_WGMMA_TEXT("128", "%66", "{" TNC_R64 "}, %64, %65, p, 1, 1, 0, 0")
                      : TNC_D32(0), TNC_D32(8) : "l"(a), "l"(b), "r"(add));
}

template <int N>
static __device__ __forceinline__ void tnc_wgmma_rs(float (&d)[N / 8][4], const unsigned (&a)[4], uint64_t b, int add)
{
    static_assert(N == 64 || N == 128, "N must be 64 or 128");
    if constexpr (N == 64)
        TNC_ASM(TNC_WGMMA_TEXT("64", "%37", "{" TNC_R32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 1")
                      : TNC_D32(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
    else
        TNC_ASM(TNC_WGMMA_TEXT("128", "%69", "{" TNC_R64 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1")
                      : TNC_D32(0), TNC_D32(8) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/* An mbarrier counts the arrivals of a phase, and the bytes that its copies still have to write. When nothing is left, the
   next phase begins. A wait names the parity of the phase that it waits for, which alternates between 0 and 1. One that
   waits for parity 1 before the first phase has ended returns at once. */

static __device__ __forceinline__ void tnc_barrier_init(tnc_barrier *x, int arrivals)
{
    TNC_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(tnc_shared_address(x)), "r"(arrivals) : "memory");
}

/* What this thread has initialised becomes visible to copies, and after a barrier of the block to other threads. */
static __device__ __forceinline__ void tnc_barrier_fence(void)
{
    TNC_ASM("fence.mbarrier_init.release.cluster;" : : : "memory");
    tnc_fence_async();
}

static __device__ __forceinline__ void tnc_barrier_arrive(tnc_barrier *x)
{
    TNC_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(tnc_shared_address(x)) : "memory");
}

/* Arrives, and makes the phase wait for copies of so many bytes. */
static __device__ __forceinline__ void tnc_barrier_expect(tnc_barrier *x, int bytes)
{
    TNC_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(tnc_shared_address(x)), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void tnc_barrier_wait(tnc_barrier *x, int parity)
{
    TNC_ASM("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
            "@p bra done;\nbra again;\ndone:\n}"
            : : "r"(tnc_shared_address(x)), "r"(parity) : "memory");
}

/* Starts the copy of the box of the map at these coordinates to shared memory, where numbers beyond the tensor become zeros.
   All bytes of the box count for the phase of the mbarrier. */
static __device__ __forceinline__ void tnc_bulk_load(void *shared, const CUtensorMap *map, tnc_barrier *x, int c0, int c1,
                                                     int c2, int c3)
{
    TNC_ASM("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
            : : "r"(tnc_shared_address(shared)), "l"(map), "r"(tnc_shared_address(x)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
            : "memory");
}

/* The threads of a warpgroup have at most N registers from here on, and leave the others to those that need more. */
template <int N> static __device__ __forceinline__ void tnc_registers_less(void)
{
    TNC_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N));
}
template <int N> static __device__ __forceinline__ void tnc_registers_more(void)
{
    TNC_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N));
}
#else
#define TNC_WGMMA 0
#endif

/* A kernel that is never launched. Only its variant for sm_90a has shared memory. */
static __global__ void tnc_wgmma_probe(int *y)
{
#if TNC_WGMMA
    __shared__ volatile int x[16];
    x[threadIdx.x] = y[threadIdx.x];
    y[threadIdx.x] = x[threadIdx.x ^ 1];
#else
    (void)y;
#endif
}

/* Whether the code that the driver has chosen for this device was compiled for sm_90a. `nothing` is a kernel without shared
   memory. */
static inline bool tnc_wgmma_compiled(void (*nothing)(void))
{
    cudaFuncAttributes a, b;
    if (cudaFuncGetAttributes(&a, tnc_wgmma_probe) == cudaSuccess && cudaFuncGetAttributes(&b, nothing) == cudaSuccess)
        return a.sharedSizeBytes > b.sharedSizeBytes;
    (void)cudaGetLastError();
    return false;
}
#endif

typedef __nv_bfloat16 tnc_bf16;

/* ======================================================================
   >>cuda-state       the state of a context and its first error
   A context owns one stream, one cuBLAS handle, pinned staging buffers, scratch and a list of collected optimiser calls.
   The first error is kept with its message until the caller asks for it. Every entry runs through tnc_run (>>cuda-table),
   which selects the device and checks for errors of CUDA afterwards.
   ====================================================================== */

/* What is computed by cublasLt: extents and types of a product, layouts of its matrices, whether a bias is added. */
typedef struct tnc_plan_key {
    int64_t m, n, k, batch, lead[3], batch_step[3];     /* of A, B and C                                          */
    int32_t op[2], type, c_type, compute, bias;
    int32_t alignment[3];                               /* of the addresses of A, B, C in bytes, a power of 2 up to 16 */
    int32_t unused;                                     /* keys are compared as bytes                             */
} tnc_plan_key;

/* The descriptors of such a product, and the algorithm for it; without one it is computed in another way. */
typedef struct tnc_plan {
    tnc_plan_key           key;
    cublasLtMatmulDesc_t   product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t   algo;
    bool                   usable;
    int64_t                used;                        /* number of the product that used it last */
} tnc_plan;

enum { TNC_PLANS = 128 };

/* The functions of cublasLt that are used, and the plans of the latest products. */
typedef struct tnc_lt {
    void                      *library;
    cublasLtHandle_t           handle;
    cublasLtMatmulPreference_t preference;
    tnc_plan                   plan[TNC_PLANS];
    int                        plans;
    int64_t                    products;
    cublasStatus_t (*create)(cublasLtHandle_t *);
    cublasStatus_t (*destroy)(cublasLtHandle_t);
    size_t         (*version)(void);
    cublasStatus_t (*product_create)(cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t);
    cublasStatus_t (*product_destroy)(cublasLtMatmulDesc_t);
    cublasStatus_t (*product_set)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t);
    cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t);
    cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t);
    cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t);
    cublasStatus_t (*preference_create)(cublasLtMatmulPreference_t *);
    cublasStatus_t (*preference_destroy)(cublasLtMatmulPreference_t);
    cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t);
    cublasStatus_t (*heuristic)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                cublasLtMatmulHeuristicResult_t *, int *);
    cublasStatus_t (*matmul)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t,
                             const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,
                             void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t);
} tnc_lt;

/* The functions of cuBLAS that are used. */
typedef struct tnc_blas {
    void           *library;
    cublasHandle_t  handle;
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*destroy)(cublasHandle_t);
    cublasStatus_t (*version)(cublasHandle_t, int *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    cublasStatus_t (*set_math)(cublasHandle_t, cublasMath_t);
    const char    *(*text)(cublasStatus_t);
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, cudaDataType, int, const void *, cudaDataType, int,
                           const void *, void *, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
    cublasStatus_t (*gemms)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                            const void *, cudaDataType, int, long long, const void *, cudaDataType, int, long long,
                            const void *, void *, cudaDataType, int, long long, int, cublasComputeType_t, cublasGemmAlgo_t);
} tnc_blas;

/* Collected calls of one kind, each for another parameter, that run together: see >>cuda-optim. The struct is passed by
   value as a parameter of a kernel, which may take 4 KiB. */
enum { TNC_PENDING = 45 };

typedef struct tnc_part {
    void   *x[4];                       /* adamw, sgd: value, gradient, moments; muon_end: value, move; sumsq: gradient */
    void   *shadow;                     /* the value in BF16, or NULL                                                   */
    int64_t n, first;                   /* number of elements; index of its first block */
    double  scale, decay, rate;
    int32_t index;                      /* which parameter */
    bool    wide;                       /* all of x are 16-byte aligned, and shadow is 8-byte aligned */
} tnc_part;

typedef struct tnc_pending {
    tn_kernel   kernel;                 /* what the calls have in common */
    tn_dtype    dtype;
    const char *name;
    const void *scalars, *fault;
    double      f[4];                   /* adamw: beta1, beta2, eps, born; sgd: momentum, Nesterov */
    int         count;                  /* number of calls */
    tnc_part    part[TNC_PENDING];
} tnc_pending;

enum { TNC_GEMM_THIN = 64 };             /* a smaller extent makes a product thin */
enum { TNC_STAGE = 1 << 20, TNC_STAGES = 4, TNC_BLAS_WORKSPACE = 32 << 20, TNC_SHARED_RAISED = 64 };

/* Device memory that cannot be freed yet: a graph may use it, or it was released during a capture, when nothing can
   be freed. */
typedef struct tnc_kept { struct tnc_kept *next; void *p; bool of_graph; } tnc_kept;

typedef struct tnc {
    tn_allocator      allocator;
    int               device, sms, capability;      /* device: -1 until one is chosen; capability: 80, 90 */
    size_t            shared_max;                   /* dynamic shared memory that a kernel may ask for    */
    size_t            memory, l2;                   /* bytes of device memory, and of its L2 cache        */
    tn_gemm_precision precision;
    cudaStream_t      stream;
    tnc_blas          blas;
    tnc_lt            lt;
    void             *blas_workspace;               /* of both; their work is in the order of the stream      */
    char             *stage[TNC_STAGES];            /* pinned staging buffers of uploads, used in turn    */
    cudaEvent_t       staged[TNC_STAGES];           /* when the copy from each buffer is done             */
    int               next_stage;
    char             *scratch;
    size_t            scratch_bytes;
    tnc_pending       pending;
    tnc_kept         *kept;                         /* memory to be freed later                           */
    int               graphs;                       /* number of graphs that exist                        */
    const void       *shared_raised[TNC_SHARED_RAISED]; /* kernels whose limit of shared memory is raised */
    int               raised_count;
    bool              capturing;
    bool              wait;                         /* TN_SYNC=1                                          */
    bool              wgmma;                        /* attention by the kernels for sm_90a                */
    decltype(&cuTensorMapEncodeTiled) tma_encode;   /* of the driver; NULL: without TMA                   */
    tn_log_fn         log;                          /* desc.log                                           */
    void             *log_user;
    bool              said_wgmma, said_tma, said_lt;    /* whether the log has heard of the first of each */
    bool              said_lt_fails;
    bool              lost;                         /* a kernel faulted: CUDA accepts no more work        */
    tn_status         late;                         /* of a flush whose caller could not return a status  */
    tn_status         failed;                       /* the first error that was not yet reported          */
    char              why[256];                     /* and its message                                    */
} tnc;

typedef tn_status tnc_entry_fn(tnc *s, const tn_call *call);

/* Runs the collected optimiser calls. Every function that touches device memory or the stream calls it first. */
TNC_FN tn_status tnc_flush(tnc *s);

/* Records an error with its message, unless an earlier one is recorded. tnc_take_error reports it. Returns the status. */
TNC_FN tn_status tnc_error(tnc *s, tn_status status, const char *format, ...)
{
    va_list list;
    if (s->failed != TN_OK) return status;
    va_start(list, format);
    vsnprintf(s->why, sizeof s->why, format, list);
    va_end(list);
    return s->failed = status;
}

/* Records an error of CUDA. A sticky error, such as a fault of a kernel, makes the context lost: from then on it reports
   only that error. */
TNC_FN tn_status tnc_fail(tnc *s, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return TN_OK;
    (void)cudaGetLastError();
    if (!s->lost && (cudaPeekAtLastError() != cudaSuccess || (!s->capturing && cudaStreamQuery(s->stream) == e))) {
        s->lost = true;
        s->failed = TN_OK;
    }
    (void)cudaGetLastError();                                           /* clears the error of the query */
    return tnc_error(s, e == cudaErrorMemoryAllocation ? TN_ERR_MEMORY : TN_ERR_BACKEND, "%s: %s", what,
                     cudaGetErrorString(e));
}

/* Returns the recorded error with its message and clears it; without one it returns `status`. A lost context keeps
   its error. */
TNC_FN tn_status tnc_take_error(tnc *s, tn_status status, char why[TN_WHY])
{
    if (s->failed != TN_OK) status = s->failed;
    if (status != TN_OK) snprintf(why, 256, "%s", s->failed != TN_OK ? s->why : tn_status_name(status));
    if (!s->lost) s->failed = TN_OK;
    return status;
}

/* The begin of every call except sync: selects the device, and clears the error that was recorded before and any error that
   the program left in CUDA. Returns the error of a flush that could not report it. */
TNC_FN tn_status tnc_enter(tnc *s)
{
    const tn_status late = s->late;
    if (s->lost) return TN_ERR_BACKEND;
    s->late = TN_OK;
    if (late != TN_OK) return late;
    s->failed = TN_OK;
    cudaError_t e = cudaSetDevice(s->device);
    (void)cudaGetLastError();
    return tnc_fail(s, e, "cudaSetDevice");
}

/* ---- cuBLAS -------------------------------------------------------------------------------------------------- >>cuda-blas
   The library is opened at run time, so that a program also runs where it is not installed; only its headers are needed to
   compile this file. A context owns one handle with a workspace of its own, and its results are then the same in every run,
   also within a graph. cublasLt, which comes with cuBLAS, computes most products (>>cuda-gemm); TN_CUBLASLT=0 leaves it
   out. */

#define TNC_TEXT_(x) #x
#define TNC_TEXT(x) TNC_TEXT_(x)

#if defined(_WIN32) && !defined(TN_CUDA_HOST)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#define TNC_FIND(function) reinterpret_cast<void *>(GetProcAddress((HMODULE)b->library, TNC_TEXT(function)))
static void *tnc_library_open(void) { return (void *)LoadLibraryA("cublas64_" TNC_TEXT(CUBLAS_VER_MAJOR) ".dll"); }
static void *tnc_library_lt(void) { return (void *)LoadLibraryA("cublasLt64_" TNC_TEXT(CUBLAS_VER_MAJOR) ".dll"); }
static void  tnc_library_close(void *library) { FreeLibrary((HMODULE)library); }
static void  tnc_library_path(void *library, char path[512]) { GetModuleFileNameA((HMODULE)library, path, 512); }
#else
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#ifdef TN_CUDA_HOST
#define TNC_FIND(function) reinterpret_cast<void *>(&function)
#define TNC_BLAS(name) "libtnch_" name ".so"                            /* what a test puts somewhere, to be found */
#define TNC_BLAS_ELSE &tnc_engine
static char tnc_engine;
#else
#define TNC_FIND(function) dlsym(b->library, TNC_TEXT(function))      /* cublasCreate is a macro for cublasCreate_v2 */
#define TNC_BLAS(name) "lib" name ".so." TNC_TEXT(CUBLAS_VER_MAJOR)
#define TNC_BLAS_ELSE NULL
#endif
#ifdef __aarch64__
#define TNC_TARGET "sbsa-linux"
#else
#define TNC_TARGET "x86_64-linux"
#endif

/* Opens cuBLAS in the first folder ROOT/WITHIN that has it; * in WITHIN stands for anything. cuBLAS needs cublasLt, which lies
   beside it, where the loader need not look: so that is loaded first. */
static void *tnc_library_in(const char *root, const char *within)
{
    char   path[512];
    void  *library = NULL;
    glob_t found;
    if (!root || !root[0]) return NULL;
    if (snprintf(path, sizeof path, "%s/%s/" TNC_BLAS("cublas"), root, within) >= (int)sizeof path) return NULL;
    if (glob(path, 0, NULL, &found) != 0) return NULL;
    for (size_t i = 0; i < found.gl_pathc && !library; i++) {
        const char *at = found.gl_pathv[i];
        if (snprintf(path, sizeof path, "%.*s" TNC_BLAS("cublasLt"), (int)(strrchr(at, '/') + 1 - at), at) < (int)sizeof path)
            (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
        library = dlopen(at, RTLD_NOW | RTLD_LOCAL);
    }
    globfree(&found);
    return library;
}

/* Searches the paths of the loader; the folder where CUDA is installed, which is often not one of them; and the packages of
   Python, of an active environment first. */
static void *tnc_library_open(void)
{
    static const char *const of_cuda[] = { "lib64", "lib", "targets/" TNC_TARGET "/lib" };
    static const char *const of_python[] = { "lib/python3*/*-packages/nvidia/cu" TNC_TEXT(CUBLAS_VER_MAJOR) "/lib",
                                             "lib/python3*/*-packages/nvidia/cublas/lib" };        /* of CUDA 12 */
    const char *home = getenv("CUDA_HOME"), *user = getenv("HOME");
    const char *root[] = { getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), NULL, "/usr/local", "/usr", "/opt/conda" };
    char        local[512] = "";
    void       *library = dlopen(TNC_BLAS("cublas"), RTLD_NOW | RTLD_LOCAL);
    if (user && user[0]) snprintf(local, sizeof local, "%s/.local", user);
    root[2] = local;
    for (size_t i = 0; i < sizeof of_cuda / sizeof *of_cuda && !library; i++)
        library = tnc_library_in(home && home[0] ? home : "/usr/local/cuda", of_cuda[i]);
    for (size_t i = 0; i < sizeof root / sizeof *root; i++)
        for (size_t k = 0; k < sizeof of_python / sizeof *of_python && !library; k++)
            library = tnc_library_in(root[i], of_python[k]);
    return library ? library : TNC_BLAS_ELSE;
}

/* The one that cuBLAS has loaded, which has this name. */
static void *tnc_library_lt(void)
{
    void *library = dlopen(TNC_BLAS("cublasLt"), RTLD_NOW | RTLD_LOCAL);
    return library ? library : TNC_BLAS_ELSE;
}
static void tnc_library_close(void *) {}        /* the library stays loaded: it is large, and the next context needs it */

static void tnc_library_path(void *library, char path[512])
{
    struct link_map *map = NULL;
    if (library != TNC_BLAS_ELSE && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) snprintf(path, 512, "%s", map->l_name);
}
#endif

TNC_FN void tnc_plan_destroy(const tnc_lt *b, tnc_plan *p)
{
    if (p->a) b->layout_destroy(p->a);
    if (p->b) b->layout_destroy(p->b);
    if (p->c) b->layout_destroy(p->c);
    if (p->product) b->product_destroy(p->product);
    memset(p, 0, sizeof *p);
}

TNC_FN void tnc_lt_close(tnc_lt *b)
{
    while (b->plans > 0) tnc_plan_destroy(b, &b->plan[--b->plans]);
    if (b->preference) b->preference_destroy(b->preference);
    if (b->handle) b->destroy(b->handle);
    if (b->library) tnc_library_close(b->library);
    memset(b, 0, sizeof *b);
}

/* Where the depth of a product is divided, its partial sums are F32 and added in one order. */
static bool tnc_lt_open(tnc_lt *b)
{
    const char    *wanted = getenv("TN_CUBLASLT");
    const uint64_t workspace = TNC_BLAS_WORKSPACE;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if ((wanted && strcmp(wanted, "0") == 0) || (b->library = tnc_library_lt()) == NULL) return false;
    *(void **)&b->create = TNC_FIND(cublasLtCreate);
    *(void **)&b->destroy = TNC_FIND(cublasLtDestroy);
    *(void **)&b->version = TNC_FIND(cublasLtGetVersion);
    *(void **)&b->product_create = TNC_FIND(cublasLtMatmulDescCreate);
    *(void **)&b->product_destroy = TNC_FIND(cublasLtMatmulDescDestroy);
    *(void **)&b->product_set = TNC_FIND(cublasLtMatmulDescSetAttribute);
    *(void **)&b->layout_create = TNC_FIND(cublasLtMatrixLayoutCreate);
    *(void **)&b->layout_destroy = TNC_FIND(cublasLtMatrixLayoutDestroy);
    *(void **)&b->layout_set = TNC_FIND(cublasLtMatrixLayoutSetAttribute);
    *(void **)&b->preference_create = TNC_FIND(cublasLtMatmulPreferenceCreate);
    *(void **)&b->preference_destroy = TNC_FIND(cublasLtMatmulPreferenceDestroy);
    *(void **)&b->preference_set = TNC_FIND(cublasLtMatmulPreferenceSetAttribute);
    *(void **)&b->heuristic = TNC_FIND(cublasLtMatmulAlgoGetHeuristic);
    *(void **)&b->matmul = TNC_FIND(cublasLtMatmul);
    if (b->create && b->destroy && b->version && b->product_create && b->product_destroy && b->product_set
        && b->layout_create && b->layout_destroy && b->layout_set && b->preference_create && b->preference_destroy
        && b->preference_set && b->heuristic && b->matmul && b->create(&b->handle) == CUBLAS_STATUS_SUCCESS
        && b->preference_create(&b->preference) == CUBLAS_STATUS_SUCCESS
        && b->preference_set(b->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace)
               == CUBLAS_STATUS_SUCCESS
        && b->preference_set(b->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions)
               == CUBLAS_STATUS_SUCCESS) return true;
    tnc_lt_close(b);
    return false;
}

TNC_FN void tnc_blas_close(tnc_blas *b)
{
    if (b->handle) b->destroy(b->handle);
    if (b->library) tnc_library_close(b->library);
    memset(b, 0, sizeof *b);
}

static void tnc_blas_log(const tn_desc *desc, tn_log_level level, const char *format, ...)
{
    char    text[640];
    va_list list;
    if (!desc->log) return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    desc->log(desc->log_user, level, text);
}

/* The log says which cuBLAS computes the products of the context. Without one it is the slow kernel of this file, and the line
   is a warning. Products of BF16 are accumulated in F32: reductions in reduced precision are disabled. */
TNC_FN void tnc_blas_open(tnc *s, const tn_desc *desc)
{
    tnc_blas   *b = &s->blas;
    const char *wanted = getenv("TN_CUBLAS");
    const char *why = "not found";
    char        path[512] = "an unknown path", with[64] = "without cublasLt";
    int         version = 0;
    if (wanted && strcmp(wanted, "0") == 0) {
        tnc_blas_log(desc, TN_LOG_INFO, "cuBLAS: not used, because TN_CUBLAS is 0; matrix products run on a kernel of this "
                     "backend");
        return;
    }
    if ((b->library = tnc_library_open()) != NULL) {
        *(void **)&b->create = TNC_FIND(cublasCreate);
        *(void **)&b->destroy = TNC_FIND(cublasDestroy);
        *(void **)&b->version = TNC_FIND(cublasGetVersion);
        *(void **)&b->set_stream = TNC_FIND(cublasSetStream);
        *(void **)&b->set_workspace = TNC_FIND(cublasSetWorkspace);
        *(void **)&b->set_math = TNC_FIND(cublasSetMathMode);
        *(void **)&b->text = TNC_FIND(cublasGetStatusString);
        *(void **)&b->gemm = TNC_FIND(cublasGemmEx);
        *(void **)&b->gemms = TNC_FIND(cublasGemmStridedBatchedEx);
        tnc_library_path(b->library, path);
        if (b->create && b->destroy && b->version && b->set_stream && b->set_workspace && b->set_math && b->text && b->gemm
            && b->gemms && b->create(&b->handle) == CUBLAS_STATUS_SUCCESS
            && b->set_stream(b->handle, s->stream) == CUBLAS_STATUS_SUCCESS
            && b->set_math(b->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == CUBLAS_STATUS_SUCCESS
            && cudaMalloc(&s->blas_workspace, TNC_BLAS_WORKSPACE) == cudaSuccess
            && b->set_workspace(b->handle, s->blas_workspace, TNC_BLAS_WORKSPACE) == CUBLAS_STATUS_SUCCESS
            && b->version(b->handle, &version) == CUBLAS_STATUS_SUCCESS) {
            if (tnc_lt_open(&s->lt)) {
                const int lt = (int)s->lt.version();
                snprintf(with, sizeof with, "with cublasLt %d.%d.%d", lt / 10000, lt / 100 % 100, lt % 100);
            }
            tnc_blas_log(desc, TN_LOG_INFO, "cuBLAS: %d.%d.%d from %s, %s", version / 10000, version / 100 % 100,
                         version % 100, path, with);
            return;
        }
        why = path;
    }
    (void)cudaGetLastError();
    tnc_blas_close(b);
    tnc_blas_log(desc, TN_LOG_WARN, "cuBLAS: %s%s; matrix products run on a kernel of this backend, without tensor cores",
                 why, why == path ? " cannot be initialised" : "");
}

/* ---- creating and destroying the state ----------------------------------------------------------------------- >>cuda-open
   tnc_open selects the device, creates the stream and the staging buffers, and loads cuBLAS. If a step fails, tnc_close
   frees what exists by then. */

TNC_FN bool tnc_keep(tnc *s, void *p, bool of_graph)
{
    tnc_kept *k = (tnc_kept *)s->allocator.alloc(sizeof *k, s->allocator.user);
    if (!k) return false;
    k->next = s->kept;
    k->p = p;
    k->of_graph = of_graph;
    s->kept = k;
    return true;
}

/* Frees memory that kernels may still use. cudaFree usually waits for them, but does not guarantee it. */
TNC_FN void tnc_free(tnc *s, void *p)
{
    if (p) cudaStreamSynchronize(s->stream);
    cudaFree(p);
}

/* Frees the memory that no graph uses any more. */
TNC_FN void tnc_kept_free(tnc *s)
{
    tnc_kept **link = &s->kept;
    while (!s->capturing && *link) {
        tnc_kept *k = *link;
        if (k->of_graph && s->graphs > 0) { link = &k->next; continue; }
        *link = k->next;
        tnc_free(s, k->p);
        s->allocator.release(k, sizeof *k, s->allocator.user);
    }
}

TNC_FN void tnc_close(void *state)
{
    tnc *s = (tnc *)state;
    if (s->device >= 0) {
        (void)cudaSetDevice(s->device);                 /* a lost context fails, but its handles hold host memory */
        if (s->stream) cudaStreamSynchronize(s->stream);
        tnc_lt_close(&s->lt);
        tnc_blas_close(&s->blas);
        cudaFree(s->blas_workspace);
        cudaFree(s->scratch);
        s->graphs = 0;
        s->capturing = false;
        tnc_kept_free(s);
        for (int i = 0; i < TNC_STAGES; i++) {
            if (s->stage[i]) cudaFreeHost(s->stage[i]);
            if (s->staged[i]) cudaEventDestroy(s->staged[i]);
        }
        if (s->stream) cudaStreamDestroy(s->stream);
    }
    (void)cudaGetLastError();
    s->allocator.release(s, sizeof *s, s->allocator.user);
}

static __global__ void tnc_nothing(void) {}

/* Selects the device with this number, if it can run the kernels of this file. */
static cudaError_t tnc_choose(tnc *s, int device, char why[TN_WHY])
{
    int                   devices = 0, driver = 0, runtime = 0, major = 0, minor = 0;
    cudaFuncAttributes    attributes;
    cudaError_t           e = cudaGetDeviceCount(&devices);
    if (e == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        if (driver == 0) snprintf(why, 256, "no GPU: no NVIDIA driver is installed");
        else snprintf(why, 256, "the NVIDIA driver supports CUDA %d.%d, expected %d.%d or later", driver / 1000,
                      driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
        return e;
    }
    if (e != cudaSuccess || devices == 0) {
        snprintf(why, 256, "no GPU: %s", e != cudaSuccess ? cudaGetErrorString(e) : "CUDA reports no device");
        return e != cudaSuccess ? e : cudaErrorNoDevice;
    }
    if (device < 0 || device >= devices) {
        snprintf(why, 256, "desc.device is %d, expected a number from 0 to %d", device, devices - 1);
        return cudaErrorInvalidDevice;
    }
    if ((e = cudaSetDevice(device)) != cudaSuccess) {
        snprintf(why, 256, "GPU %d: %s", device, cudaGetErrorString(e));
        return e;
    }
    s->device = device;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    s->capability = 10 * major + minor;
    e = s->capability < 80 ? cudaErrorNoKernelImageForDevice : cudaFuncGetAttributes(&attributes, tnc_nothing);
    if (e == cudaSuccess && attributes.ptxVersion < 80) e = cudaErrorNoKernelImageForDevice;
    if (s->capability < 80) snprintf(why, 256, "GPU %d is sm_%d, expected sm_80 or later", device, s->capability);
    else if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction)
        snprintf(why, 256, "GPU %d is sm_%d: %s; compile tensornet_cuda.cu with nvcc -arch=sm_%d", device, s->capability,
                 cudaGetErrorString(e), s->capability);
    else if (e != cudaSuccess) snprintf(why, 256, "GPU %d is sm_%d: %s", device, s->capability, cudaGetErrorString(e));
    return e;
}

/* What makes tensor maps for TMA, from the driver, which this file is not linked with */
static decltype(&cuTensorMapEncodeTiled) tnc_tma_open(void)
{
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void                           *f = NULL;
#if CUDART_VERSION >= 12050
    const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &found);
#endif
    (void)cudaGetLastError();
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? (decltype(&cuTensorMapEncodeTiled))f : NULL;
}

/* The kernels for Hopper's tensor cores are used on request only, since no GPU has run them yet. */
static void tnc_wgmma_open(tnc *s, const tn_desc *desc)
{
    const char *wanted = getenv("TN_WGMMA"), *tma = getenv("TN_TMA"), *why = NULL;
    s->wgmma = wanted && *wanted ? strcmp(wanted, "0") != 0 : desc->wgmma;
    if (!s->wgmma) return;
    if (s->capability != 90) why = "desc.wgmma: ignored, the GPU is not of capability 9.0";
    else if (!tnc_wgmma_compiled(tnc_nothing))
        why = "desc.wgmma: ignored; compile tensornet_cuda.cu with nvcc -gencode arch=compute_90a,code=sm_90a";
    if (why) s->wgmma = false;
    if (desc->log) desc->log(desc->log_user, why ? TN_LOG_WARN : TN_LOG_INFO, why ? why : "desc.wgmma: attention uses wgmma");
    if (why || (tma && strcmp(tma, "0") == 0)) return;
    s->tma_encode = tnc_tma_open();
    if (!s->tma_encode && desc->log)
        desc->log(desc->log_user, TN_LOG_WARN, "desc.wgmma: without TMA, the driver has no cuTensorMapEncodeTiled");
}

/* A line of the log that comes once. So a test knows, on a GPU too, that these kernels have run and not others. */
TNC_FN void tnc_say_once(const tnc *s, bool *said, tn_log_level level, const char *text)
{
    if (s->log && !*said) s->log(s->log_user, level, text);
    *said = true;
}

TNC_FN void tnc_wgmma_launched(tnc *s, bool tma)
{
    tnc_say_once(s, &s->said_wgmma, TN_LOG_INFO, "desc.wgmma: the first launch with wgmma");
    if (tma) tnc_say_once(s, &s->said_tma, TN_LOG_INFO, "desc.wgmma: the first launch with TMA");
}

TNC_FN tn_status tnc_open(const tn_desc *desc, void **state, char why[TN_WHY])
{
    tnc        *s = (tnc *)desc->allocator.alloc(sizeof *s, desc->allocator.user);
    const char *wait = getenv("TN_SYNC");
    cudaError_t e;
    int         shared = 0, l2 = 0;
    if (!s) {
        snprintf(why, 256, "out of memory: %zu bytes for the state of the backend", sizeof *s);
        return TN_ERR_MEMORY;
    }
    memset(s, 0, sizeof *s);
    s->allocator = desc->allocator;
    s->log = desc->log;
    s->log_user = desc->log_user;
    s->device = -1;
    s->precision = desc->gemm_precision;
    s->wait = wait && strcmp(wait, "0") != 0;
    if ((e = tnc_choose(s, desc->device, why)) == cudaSuccess) {
        size_t left;
        cudaDeviceGetAttribute(&s->sms, cudaDevAttrMultiProcessorCount, s->device);
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, s->device);
        cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, s->device);
        s->shared_max = (size_t)shared;
        s->l2 = (size_t)l2;
        e = cudaMemGetInfo(&left, &s->memory);
        if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
        for (int i = 0; i < TNC_STAGES && e == cudaSuccess; i++) {
            e = cudaMallocHost((void **)&s->stage[i], TNC_STAGE);
            if (e == cudaSuccess) e = cudaEventCreateWithFlags(&s->staged[i], cudaEventDisableTiming);
        }
        if (e != cudaSuccess) snprintf(why, 256, "GPU %d: %s", s->device, cudaGetErrorString(e));
    }
    if (e != cudaSuccess) {
        tnc_close(s);
        return e == cudaErrorMemoryAllocation ? TN_ERR_MEMORY : TN_ERR_BACKEND;
    }
    tnc_blas_open(s, desc);
    tnc_wgmma_open(s, desc);
    *state = s;
    return TN_OK;
}

TNC_FN void tnc_device(void *state, char name[128])
{
    const tnc     *s = (const tnc *)state;
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, s->device) != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(name, 128, "sm_%d", s->capability);
    } else snprintf(name, 128, "%.100s, sm_%d", p.name, s->capability);
}

/* ======================================================================
   >>cuda-memory      allocation, copies, scratch
   Uploads go through pinned staging buffers and are asynchronous; downloads wait for the stream. Scratch is one block of
   memory that every call may overwrite: since all kernels of a context run in order on one stream, calls cannot disturb
   each other.
   ====================================================================== */

TNC_FN void *tnc_alloc(void *state, size_t bytes)
{
    tnc  *s = (tnc *)state;
    void *p = NULL;
    if (s->capturing) {                                         /* cudaMalloc would make the capture invalid, too */
        tnc_error(s, TN_ERR_MEMORY, "a capture cannot allocate: %zu bytes were asked for; run the step once before it", bytes);
        return NULL;
    }
    if (s->lost || cudaSetDevice(s->device) != cudaSuccess) return NULL;
    if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
    (void)cudaGetLastError();                                   /* the caller reports that the memory is full */
    return NULL;
}

TNC_FN void tnc_release(void *state, void *p, size_t bytes)
{
    tnc            *s = (tnc *)state;
    const tn_status status = tnc_flush(s);
    (void)bytes;
    if (s->late == TN_OK) s->late = status;
    if (cudaSetDevice(s->device) == cudaSuccess && !(s->capturing && tnc_keep(s, p, false))) tnc_free(s, p);
    (void)cudaGetLastError();
}

/* Copies through pinned buffers, in the order of the stream: the function returns as soon as the bytes are in
   the buffers. */
TNC_FN tn_status tnc_upload(void *state, void *to, const void *from, size_t bytes)
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_enter(s);
    cudaError_t e = cudaSuccess;
    if (status == TN_OK) status = tnc_flush(s);
    if (status != TN_OK) return status;
    while (bytes > 0 && e == cudaSuccess) {
        size_t n = bytes < TNC_STAGE ? bytes : (size_t)TNC_STAGE;
        int    i = s->next_stage;
        s->next_stage = (i + 1) % TNC_STAGES;
        if ((e = cudaEventSynchronize(s->staged[i])) != cudaSuccess) break;
        memcpy(s->stage[i], from, n);
        e = cudaMemcpyAsync(to, s->stage[i], n, cudaMemcpyHostToDevice, s->stream);
        if (e == cudaSuccess) e = cudaEventRecord(s->staged[i], s->stream);
        to = (char *)to + n;
        from = (const char *)from + n;
        bytes -= n;
    }
    return tnc_fail(s, e, "upload");
}

TNC_FN tn_status tnc_download(void *state, void *to, const void *from, size_t bytes)
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_enter(s);
    cudaError_t e = cudaSuccess;
    if (status == TN_OK) status = tnc_flush(s);
    if (status != TN_OK) return status;
    if (bytes > 0) e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
    return tnc_fail(s, e, "download");
}

/* Reports the first error since the last sync. The stream is not synchronised during a capture, when that is
   not possible. */
TNC_FN tn_status tnc_sync(void *state, char why[TN_WHY])
{
    tnc      *s = (tnc *)state;
    tn_status status = s->late;
    s->late = TN_OK;
    if (!s->capturing) {
        const tn_status flushed = tnc_flush(s);
        cudaError_t     e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
        if (status == TN_OK) status = flushed;
        if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
        (void)tnc_fail(s, e, "a kernel since the last sync failed (set TN_SYNC=1 to see which)");
    }
    return tnc_take_error(s, status, why);
}

/* Device memory for the calling entry until it returns: the kernels of the next entry run after its own. Its contents are
   undefined. Returns NULL if there is not enough memory, or if scratch would have to grow during a capture; the error with
   the numbers of bytes is recorded for sync. */
TNC_FN void *tnc_scratch(tnc *s, size_t bytes)
{
    void *p = NULL;
    if (bytes == 0) bytes = 1;                                  /* since NULL means an error */
    if (bytes <= s->scratch_bytes) {
        tnc_forget(s->scratch, bytes, s->stream);
        return s->scratch;
    }
    if (s->capturing) {
        tnc_error(s, TN_ERR_MEMORY, "%zu bytes of scratch are needed: it has %zu and cannot grow during a capture; "
                  "run the step once before it", bytes, s->scratch_bytes);
        return NULL;
    }
    if (s->graphs > 0 && s->scratch) {
        if (!tnc_keep(s, s->scratch, true)) return NULL;
    } else tnc_free(s, s->scratch);
    s->scratch = NULL;
    s->scratch_bytes = 0;
    size_t      more = bytes + bytes / 4;                       /* avoids many small steps of growth */
    cudaError_t e = cudaMalloc(&p, more);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        e = cudaMalloc(&p, more = bytes);
    }
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        tnc_error(s, TN_ERR_MEMORY, "%zu bytes of scratch are needed: the device of %zu bytes has too few free",
                  bytes, s->memory);
    } else (void)tnc_fail(s, e, "at or before an allocation of scratch");
    if (e != cudaSuccess) return NULL;
    s->scratch = (char *)p;
    s->scratch_bytes = more;
    return p;
}

/* ---- graphs ------------------------------------------------------------------------------------------------- >>cuda-graph
   A capture records the kernel launches of a step into a CUDA graph, which is instantiated once and replayed by one
   call. The memory that its kernels use must not move: scratch cannot grow during the capture and is not freed while a
   graph exists. */

static tn_status tnc_capture_fails(tnc *s, tn_status status, char why[TN_WHY])
{
    char words[256];
    status = tnc_take_error(s, status, words);
    snprintf(why, 256, "capture: %.240s", words);
    return status;
}

TNC_FN tn_status tnc_capture_begin(void *state, char why[TN_WHY])
{
    tnc      *s = (tnc *)state;
    tn_status status = tnc_enter(s);
    if (s->wait) {
        snprintf(why, 256, "TN_SYNC is 1, expected 0: a capture cannot wait for kernels");
        return TN_ERR_BACKEND;
    }
    if (status == TN_OK) status = tnc_flush(s);
    if (status != TN_OK) return tnc_capture_fails(s, status, why);
    cudaError_t e = cudaStreamSynchronize(s->stream); /* no graph that is released meanwhile is running */
    if (e == cudaSuccess) e = cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess) return tnc_capture_fails(s, tnc_fail(s, e, "the stream"), why);
    s->capturing = true;
    return TN_OK;
}

/* Ends the capture of the stream in every case, also after an error. */
TNC_FN tn_status tnc_capture_end(void *state, void **out, char why[TN_WHY])
{
    tnc            *s = (tnc *)state;
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t run = NULL;
    tn_status       status = tnc_flush(s);
    cudaError_t     e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (e == cudaSuccess) e = cudaStreamEndCapture(s->stream, &graph);
    s->capturing = false;
    if (status == TN_OK && e == cudaSuccess) e = cudaGraphInstantiate(&run, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (status == TN_OK) status = tnc_fail(s, e, "the graph");
    (void)cudaGetLastError();
    if (status == TN_OK) s->graphs++;
    tnc_kept_free(s);
    if (status != TN_OK) return tnc_capture_fails(s, status, why);
    *out = run;
    return TN_OK;
}

TNC_FN tn_status tnc_replay(void *state, void *graph)
{
    tnc      *s = (tnc *)state;
    tn_status status = tnc_enter(s);
    if (status == TN_OK) status = tnc_flush(s);
    return status == TN_OK ? tnc_fail(s, cudaGraphLaunch((cudaGraphExec_t)graph, s->stream), "replay") : status;
}

TNC_FN void tnc_graph_release(void *state, void *graph)
{
    tnc *s = (tnc *)state;
    if (cudaSetDevice(s->device) == cudaSuccess) {
        if (!s->capturing) cudaStreamSynchronize(s->stream);        /* its last replay may still be running */
        cudaGraphExecDestroy((cudaGraphExec_t)graph);
    }
    s->graphs--;
    tnc_kept_free(s);
    (void)cudaGetLastError();
}

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

/* ---- reductions -------------------------------------------------------------------------------------------- >>cuda-reduce
   Sums over a warp, a block, or the threads of a row. The order of the additions is always the same, and every thread
   receives the result. All threads of the block must call these functions. */

/* Over groups of `lanes` neighbouring threads of a warp, a power of two */
template <typename R> static __device__ __forceinline__ R tnc_lanes_sum(R x, int lanes)
{
    for (int k = lanes >> 1; k; k >>= 1) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

template <typename R> static __device__ __forceinline__ R tnc_warp_sum(R x) { return tnc_lanes_sum(x, 32); }

/* Over a block of whole warps */
template <typename R> static __device__ __forceinline__ R tnc_block_sum(R x)
{
    TNC_SHARED(R, part, [32]);
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, warps = (int)blockDim.x >> 5;
    x = tnc_warp_sum(x);
    if (lane == 0) part[warp] = x;
    __syncthreads();
    x = tnc_warp_sum(lane < warps ? part[lane] : R(0));
    __syncthreads();                                            /* part may be overwritten by the next call */
    return x;
}

/* Over the threads of a row */
template <typename R> static __device__ __forceinline__ R tnc_row_sum(R x, int lanes)
{
    return lanes > 32 ? tnc_block_sum(x) : tnc_lanes_sum(x, lanes);
}

template <typename R> static __device__ __forceinline__ R tnc_row_largest(R x, int lanes)
{
    TNC_SHARED(R, part, [32]);
    const int warp = (int)threadIdx.x >> 5, warps = (int)blockDim.x >> 5;
    for (int k = lanes > 32 ? 16 : lanes >> 1; k; k >>= 1) x = tnc_larger(x, __shfl_xor_sync(0xffffffffu, x, k));
    if (lanes <= 32) return x;
    if ((threadIdx.x & 31) == 0) part[warp] = x;
    __syncthreads();
    for (int k = 0; k < warps; k++) x = tnc_larger(x, part[k]);
    __syncthreads();
    return x;
}

/* to[C] += the sum of the `parts` rows of part[parts,C], with eight threads per column and a fixed order. */
template <typename R> static __global__ void __launch_bounds__(TNC_THREADS)
tnc_add_parts_kernel(const R *part, int64_t parts, int64_t C, R *to)
{
    TNC_SHARED(R, sums, [8][33]);
    const int     column = (int)threadIdx.x & 31, lane = (int)threadIdx.x >> 5;
    const int64_t c = (int64_t)blockIdx.x * 32 + column;
    R       sum = 0;
    int     k;
    TNC_UNROLL_BY(4)
    for (int64_t i = lane; c < C && i < parts; i += 8) sum += part[i * C + c];
    sums[lane][column] = sum;
    __syncthreads();
    if (lane > 0 || c >= C) return;
    for (sum = 0, k = 0; k < 8; k++) sum += sums[k][column];
    to[c] += sum;
}

template <typename R> static void tnc_add_parts(tnc *s, const R *part, int64_t parts, int64_t C, R *to)
{
    TNC_START((tnc_add_parts_kernel<R>), (unsigned)tnc_ceil(C, 32), part, parts, C, to);
}

/* to = sum of part[parts] / count, or if `counted` is given, / max(*counted, 1) */
template <typename N, typename R> static __global__ void __launch_bounds__(TNC_THREADS)
tnc_mean_kernel(const N *part, int64_t parts, double count, const int32_t *counted, R *to)
{
    N sum = 0;
    for (int64_t i = threadIdx.x; i < parts; i += TNC_THREADS) sum += part[i];
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) *to = (R)((double)sum / (counted ? (double)max(*counted, 1) : count));
}

/* ---- packs: V numbers in one vector access ------------------------------------------------------------------ >>cuda-packs
   Where rows begin at multiples of 16 bytes, numbers are loaded and stored in vectors of 16 bytes, called packs or
   pieces; else V = 1. A pack is a struct of the numbers themselves, so that it may alias them; nvcc moves it with
   one instruction. */

template <typename T, int V> struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) tnc_pack { T x[V]; };

template <typename T> struct tnc_wide { enum { count = 16 / sizeof(T) }; };          /* numbers of a 16-byte pack */

/* The header of a loop over the numbers of a pack */
#define TNC_EACH TNC_UNROLL for (int k = 0; k < V; k++)

static inline bool tnc_aligned(const void *p, size_t bytes = 16) { return (uintptr_t)p % bytes == 0; }

template <int V, typename T> static __device__ __forceinline__ tnc_pack<T, V> tnc_fetch(const T *from)
{
    typedef const tnc_pack<T, V> P;
    return TNC_VECTOR(P, from);
}

template <int V, typename T>
static __device__ __forceinline__ void tnc_unpack(typename tnc_real<T>::type (&to)[V], const tnc_pack<T, V> &p)
{
    TNC_EACH to[k] = tnc_to(p.x[k]);
}

template <int V, typename T>
static __device__ __forceinline__ void tnc_load(typename tnc_real<T>::type (&to)[V], const T *from)
{
    tnc_unpack<V, T>(to, tnc_fetch<V>(from));
}

template <int V, typename T>
static __device__ __forceinline__ void tnc_store(T *to, const typename tnc_real<T>::type (&from)[V])
{
    typedef tnc_pack<T, V> P;
    P p;
    TNC_EACH p.x[k] = tnc_from<T>(from[k]);
    TNC_VECTOR(P, to) = p;
}

template <int V, typename T>
static __device__ __forceinline__ void tnc_add_to(T *to, const typename tnc_real<T>::type (&x)[V])
{
    typename tnc_real<T>::type sum[V];
    tnc_load(sum, to);
    TNC_EACH sum[k] += x[k];
    tnc_store(to, sum);
}

/* ---- BF16 tiles in shared memory -------------------------------------------------------------------------- >>cuda-swizzle
   The tensor-core kernels keep tiles in shared memory in rows of BF16 numbers, whose 16-byte pieces are permuted so that
   ldmatrix has no bank conflicts. Results leave the registers in pairs of neighbouring numbers, as mma delivers them. */

/* The XOR swizzle of tiles in shared memory: the offset, in numbers, of 16-byte piece first + more of a row. A row has
   `pieces` pieces (a power of 2) of 8 numbers. ldmatrix reads one piece of each of 8 rows at once, and these must lie in
   different banks. Where a row fills lines of 128 bytes, piece p of row r is at position p xor (r % 8); where a line holds
   several rows, at p xor the number of the line, modulo the pieces of a row. `first` is even and known at compile time, so
   that the part that depends on `more` and `row` is computed once. PIECES: the number of pieces if it is known at compile
   time, else 0. */
template <int PIECES = 0>
static __device__ __forceinline__ int tnc_swizzle(int row, int first, int more, int pieces = PIECES)
{
    const int n = PIECES ? PIECES : pieces, lines = n < 8 ? 8 / n : 1, mask = (n < 8 ? n : 8) - 1;
    const int key = PIECES ? row / lines & mask : (n >= 8 ? row : n == 4 ? row >> 1 : row >> 2) & mask;
    return row * (n * 8) + ((first & ~mask) << 3) + (((first & mask) ^ (more ^ key)) << 3);
}

static __device__ __forceinline__ unsigned tnc_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    unsigned             bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* Stores, or adds, two neighbouring numbers of a row at `column`, which may lie beyond its width. pairs: the row is aligned
   for pairs and its width is even. */
static __device__ __forceinline__ void tnc_store_pair(char *row, int column, int width, bool f32, bool pairs, bool add,
                                                      float x, float y)
{
    if (column >= width) return;
    if (f32 && pairs) {
        float2 *to = (float2 *)row + column / 2, old = add ? *to : make_float2(0, 0);
        *to = make_float2(old.x + x, old.y + y);
    } else if (pairs) {
        unsigned *to = (unsigned *)row + column / 2, old = add ? *to : 0u;
        *to = tnc_pair(__uint_as_float(old << 16) + x, __uint_as_float(old & 0xffff0000u) + y);
    } else {
        float    *to = (float *)row + column;
        tnc_bf16 *narrow = (tnc_bf16 *)row + column;
        for (int i = 0; i < 2 && column + i < width; i++) {
            const float value = i ? y : x;
            if (f32) to[i] = add ? to[i] + value : value;
            else narrow[i] = __float2bfloat16(add ? __bfloat162float(narrow[i]) + value : value);
        }
    }
}

/* ---- indices of strided views -------------------------------------------------------------------------------- >>cuda-walk
   A walk is what a kernel receives in place of up to three views of one shape. Axes that are contiguous with each other in
   every view are merged, and axes are sorted so that those with the smallest strides of view 0 come first. A thread finds
   the offset of its element in each view by divisions, which are multiplications where numbers are below 2^31: q = (high(n *
   m) + n) >> shift with m = 2^32 (2^shift - d) / d + 1 (Granlund & Montgomery 1994). A widened walk has pieces of V elements
   along its first axis, where each view has stride 1, or 0 if it is broadcast. */

enum { TNC_VIEWS = 3 };

typedef struct tnc_divisor { int64_t by; uint32_t factor; int32_t shift; } tnc_divisor;

typedef struct tnc_axis { tnc_divisor extent; int64_t step[TNC_VIEWS]; } tnc_axis;

typedef struct tnc_walk {
    int64_t  count;                      /* elements, or pieces */
    int      rank;                       /* at least 1          */
    bool     wide;                       /* 2^31 or more        */
    tnc_axis axis[TN_MAX_RANK];
} tnc_walk;

static inline tnc_divisor tnc_divisor_of(int64_t by)
{
    tnc_divisor d = { by, 1, 0 };
    if (by < 1 || by > INT32_MAX) return d;
    while (d.shift < 31 && ((int64_t)1 << d.shift) < by) d.shift++;
    d.factor = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - (uint64_t)by)) / (uint64_t)by + 1);
    return d;
}

static __device__ __forceinline__ int64_t tnc_divide(int64_t n, const tnc_divisor &d, bool wide)
{
    if (wide) return n / d.by;
    return (int64_t)((uint32_t)((uint64_t)(uint32_t)n * d.factor >> 32) + (uint32_t)n) >> d.shift;
}

template <int VIEWS> static __device__ __forceinline__ void tnc_at(const tnc_walk &w, int64_t i, int64_t (&at)[TNC_VIEWS])
{
    int k;
    for (int v = 0; v < VIEWS; v++) at[v] = 0;
    for (k = 0; k + 1 < w.rank; k++) {
        const int64_t q = tnc_divide(i, w.axis[k].extent, w.wide), r = i - q * w.axis[k].extent.by;
        for (int v = 0; v < VIEWS; v++) at[v] += r * w.axis[k].step[v];
        i = q;
    }
    for (int v = 0; v < VIEWS; v++) at[v] += i * w.axis[k].step[v];
}

/* The walk of up to three views of the shape of the first; absent views are NULL. */
static inline tnc_walk tnc_walk_of(const tn_view *a, const tn_view *b, const tn_view *c)
{
    const tn_view *view[TNC_VIEWS] = { a, b, c };
    tnc_walk w;
    int      i, k;
    memset(&w, 0, sizeof w);
    w.count = 1;
    for (i = a->rank - 1; i >= 0; i--) {
        tnc_axis axis = { tnc_divisor_of(a->shape[i]), { 0, 0, 0 } };
        w.count *= a->shape[i];
        if (a->shape[i] == 1) continue;
        for (int v = 0; v < TNC_VIEWS; v++) axis.step[v] = view[v] ? view[v]->strides[i] : 0;
        for (k = w.rank++; k > 0 && llabs(w.axis[k - 1].step[0]) > llabs(axis.step[0]); k--) w.axis[k] = w.axis[k - 1];
        w.axis[k] = axis;
    }
    w.wide = w.count > INT32_MAX;
    for (i = 1, k = 0; i < w.rank; i++) {
        bool follows = true;
        for (int v = 0; v < TNC_VIEWS; v++)
            follows = follows && w.axis[i].step[v] == w.axis[k].step[v] * w.axis[k].extent.by;
        if (follows) w.axis[k].extent = tnc_divisor_of(w.axis[k].extent.by * w.axis[i].extent.by);
        else w.axis[++k] = w.axis[i];
    }
    if (w.rank > 0) w.rank = k + 1;
    else {
        w.rank = 1;
        w.axis[0].extent = tnc_divisor_of(1);
    }
    return w;
}

/* Widens a walk to pieces of V elements. Returns false and does nothing if in some view with a nonzero size the pieces are
   not contiguous and 16-byte aligned. */
static inline bool tnc_walk_widen(tnc_walk *w, int V, const void *const *p, const size_t *size)
{
    if (w->axis[0].extent.by % V != 0) return false;
    for (int v = 0; v < TNC_VIEWS; v++) {
        if (size[v] == 0 || (v > 0 && w->axis[0].step[v] == 0)) continue;
        if (w->axis[0].step[v] != 1 || !tnc_aligned(p[v])) return false;
        for (int k = 1; k < w->rank; k++)
            if (w->axis[k].step[v] * (int64_t)size[v] % 16 != 0) return false;
    }
    w->axis[0].extent = tnc_divisor_of(w->axis[0].extent.by / V);
    for (int v = 0; v < TNC_VIEWS; v++) w->axis[0].step[v] *= V;
    w->count /= V;
    w->wide = w->count > INT32_MAX;
    return true;
}

/* ---- elementwise kernels -------------------------------------------------------------------------------------- >>cuda-map
   y = op(a, b), or y += op(a, b), in one pass: each byte is read once and written once, in vectors of 16 bytes. A thread
   loads two vectors before it computes, which keeps at least 32 KiB of loads per multiprocessor in flight. An op is a
   functor on arrays, so that a switch inside it is evaluated once per vector. It declares the number of its inputs, and
   whether it can be added to y. */

template <int V, typename T>
static __device__ __forceinline__ void tnc_load_or_spread(typename tnc_real<T>::type (&to)[V], const T *from, bool one)
{
    if (V == 1 || !one) tnc_load(to, from);
    else {
        const typename tnc_real<T>::type x = tnc_to(*from);
        TNC_EACH to[k] = x;
    }
}

template <class Op, int V, typename Y, typename A, typename B>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_map_kernel(const tnc_walk w, const Op op, Y *y, const A *a, const B *b, const bool add)
{
    typedef typename tnc_real<Y>::type R;
    enum { PIECES = 2 };
    const int64_t all = (int64_t)gridDim.x * (TNC_THREADS * PIECES);
    for (int64_t first = (int64_t)blockIdx.x * (TNC_THREADS * PIECES) + threadIdx.x; first < w.count; first += all) {
        int64_t at[PIECES][TNC_VIEWS];
        R va[PIECES][V], vb[PIECES][V], vy[PIECES][V];
        TNC_UNROLL
        for (int u = 0; u < PIECES; u++) {
            if (first + u * TNC_THREADS >= w.count) break;
            tnc_at<1 + Op::inputs>(w, first + u * TNC_THREADS, at[u]);
            if constexpr (Op::inputs > 0) {
                tnc_load_or_spread<V>(va[u], a + at[u][1], w.axis[0].step[1] == 0);
            }
            if constexpr (Op::inputs > 1) {
                tnc_load_or_spread<V>(vb[u], b + at[u][2], w.axis[0].step[2] == 0);
            }
            if constexpr (Op::adds) {
                if (add) tnc_load(vy[u], y + at[u][0]);
            }
        }
        TNC_UNROLL
        for (int u = 0; u < PIECES; u++) {
            R v[V];
            if (first + u * TNC_THREADS >= w.count) break;
            op(v, va[u], vb[u]);
            if constexpr (Op::adds) {
                TNC_EACH if (add) v[k] += vy[u][k];
            }
            tnc_store(y + at[u][0], v);
        }
    }
}

template <class Op, int V, typename Y, typename A, typename B>
static void tnc_map_launch(tnc *s, const tnc_walk &w, const Op &op, Y *y, const A *a, const B *b, bool add)
{
    TNC_START((tnc_map_kernel<Op, V, Y, A, B>), tnc_blocks(w.count, TNC_THREADS * 2), w, op, y, a, b, add);
}

/* w is the walk of y, a, b. Vectors are 16 bytes of the smallest type. If a contiguous array is no multiple of a vector
   long, a second launch computes the last few elements. */
template <class Op, typename Y, typename A, typename B>
static void tnc_map(tnc *s, tnc_walk w, const Op &op, Y *y, const A *a, const B *b, bool add)
{
    constexpr size_t least = sizeof(Y) < sizeof(A) ? sizeof(Y) < sizeof(B) ? sizeof(Y) : sizeof(B)
                                                   : sizeof(A) < sizeof(B) ? sizeof(A) : sizeof(B);
    constexpr int    V = (int)(16 / least);
    const void      *p[TNC_VIEWS] = { y, a, b };
    const size_t     size[TNC_VIEWS] = { sizeof(Y), Op::inputs > 0 ? sizeof(A) : 0, Op::inputs > 1 ? sizeof(B) : 0 };
    tnc_walk         whole = w;
    int64_t          rest = w.rank == 1 ? w.count % V : 0;
    if (w.count == 0) return;
    if (rest > 0 && w.count > V) {
        whole.count -= rest;
        whole.axis[0].extent = tnc_divisor_of(whole.count);
    } else rest = 0;
    if (!tnc_walk_widen(&whole, V, p, size)) {
        tnc_map_launch<Op, 1>(s, w, op, y, a, b, add);
        return;
    }
    tnc_map_launch<Op, V>(s, whole, op, y, a, b, add);
    if (rest > 0) {
        const int64_t done = w.count - rest;
        w.count = rest;
        tnc_map_launch<Op, 1>(s, w, op, y + done * w.axis[0].step[0], Op::inputs > 0 ? a + done * w.axis[0].step[1] : a,
                              Op::inputs > 1 ? b + done * w.axis[0].step[2] : b, add);
    }
}

/* ---- views of column ranges --------------------------------------------------------------------------------- >>cuda-parts
   glu and prod read rows of parts * h columns as several views of h columns each, which share one walk. */

/* Columns [part h, (part + 1) h) of a view whose rows have parts * h columns. */
static inline tn_view tnc_part_view(tn_view x, int64_t parts, int64_t part)
{
    x.shape[1] /= parts;
    x.data = (char *)x.data + part * x.shape[1] * x.strides[1] * tnc_size_of(x.dtype);
    return x;
}

/* Widens the walk of one part of x, dx and dy, if the other parts are aligned like the first. */
static inline bool tnc_parts_widen(tnc_walk *w, int V, size_t size, int64_t h, const void *x, const void *dx, const void *dy)
{
    const void  *p[TNC_VIEWS] = { x, dy, NULL };
    const size_t sizes[TNC_VIEWS] = { size, size, 0 };
    return h % V == 0 && tnc_aligned(dx) && tnc_walk_widen(w, V, p, sizes);
}

/* ---- random numbers, see >>rng of tensornet.h -------------------------------------------------------------- >>cuda-philox
   Philox4x32-10. A thread computes one block of four numbers and uses them for elements 4 i .. 4 i + 3. */

typedef struct tnc_stream_of { uint64_t key, first; uint32_t call; double low, width; } tnc_stream_of;   /* or mean, deviation */

static __device__ __forceinline__ void tnc_philox(const tnc_stream_of &g, uint32_t clock, uint64_t block, uint32_t (&c)[4])
{
    uint32_t key0 = (uint32_t)g.key, key1 = (uint32_t)(g.key >> 32);
    block += g.first;
    c[0] = (uint32_t)block;
    c[1] = (uint32_t)(block >> 32);
    c[2] = g.call;
    c[3] = clock;
    TNC_UNROLL
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[3] = (uint32_t)a;
    }
}

/* A float strictly between 0 and 1: the middle of one of 2^23 equal intervals. Exact. */
static __device__ __forceinline__ float tnc_unit(uint32_t word) { return ((float)(word >> 9) + 0.5f) * (1.0f / 8388608.0f); }

/* Stores elements 4 block .. 4 block + 3 of n, as far as they exist. */
template <typename T>
static __device__ __forceinline__ void tnc_store_four(T *y, int64_t block, int64_t n, bool aligned,
                                                      const typename tnc_real<T>::type (&v)[4])
{
    if (aligned && 4 * block + 4 <= n) {
        tnc_store(y + 4 * block, v);
        return;
    }
    TNC_UNROLL
    for (int k = 0; k < 4; k++)
        if (4 * block + k < n) y[4 * block + k] = tnc_from<T>(v[k]);
}

template <typename T>
static __device__ __forceinline__ void tnc_load_four(typename tnc_real<T>::type (&v)[4], const T *x, int64_t block,
                                                     int64_t n, bool aligned)
{
    if (aligned && 4 * block + 4 <= n) {
        tnc_load(v, x + 4 * block);
        return;
    }
    TNC_UNROLL
    for (int k = 0; k < 4; k++) v[k] = 4 * block + k < n ? tnc_to(x[4 * block + k]) : typename tnc_real<T>::type(0);
}

static inline tnc_stream_of tnc_stream_from(const tn_call *c, double low, double width)
{
    tnc_stream_of g = { (uint64_t)c->i[0], (uint64_t)c->i[2], (uint32_t)c->i[1], low, width };
    return g;
}

/* ---- the fault word ----------------------------------------------------------------------------------------- >>cuda-fault
   Kernels cannot return an error. They write the first one of a step to four numbers in device memory, which the host reads
   later: the kind of error, the row or parameter, the id, the step. Of an invalid id the fourth says who has found it: 0 embed,
   1 gather, 2 cross_entropy. */

/* Reports an invalid id at `row`. The first one of a call is reported, so the thread returns if an earlier row has one.
   `ignored` is no fault: 0 if none is. */
static __device__ inline void tnc_bad_id(int32_t *fault, const int32_t *ids, int64_t row, int64_t end, int32_t who,
                                         int32_t ignored = 0)
{
    for (int64_t i = 0; i < row; i++) if ((ids[i] < 0 || ids[i] >= end) && (ignored == 0 || ids[i] != ignored)) return;
    if (!fault || fault[0] != 0) return;
    fault[0] = 1;
    fault[1] = (int32_t)row;
    fault[2] = ids[row];
    fault[3] = who;
}

static __device__ inline void tnc_not_finite(int32_t *fault, int32_t which, int32_t step)
{
    if (!fault || fault[0] != 0) return;
    fault[0] = 2;
    fault[1] = which;
    fault[2] = 0;
    fault[3] = step;
}

/* ======================================================================
   >>cuda-kernels     the entries of the kernel table
   In the order of the table, each with its CUDA kernels. The formulas and contracts are in tensornet.h, at >>op- and the
   name.
   ====================================================================== */

/* ---- copy, fill ---------------------------------------------------------------------------------------------- >>cuda-copy
   Copies between views of one type move bit patterns; others convert. A transposing copy goes through shared memory. Floor:
   the bytes read and written. */

template <typename T> struct tnc_same {
    enum { inputs = 1, adds = 0 };
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = a[k];
    }
};

template <typename T> struct tnc_value {
    enum { inputs = 0, adds = 0 };
    T value;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = value;
    }
};

/* Conversion between any two types through double, rounded once. Double to BF16 goes through float: where the float lies
   exactly between two BF16 numbers but the double does not, the float is moved by one bit towards the double before it
   is rounded. */
static __device__ __forceinline__ double tnc_read(const void *p, int dtype, int64_t i)
{
    switch (dtype) {
    case TN_F64:  return ((const double *)p)[i];
    case TN_I32:  return ((const int32_t *)p)[i];
    case TN_BF16: return tnc_to(((const tnc_bf16 *)p)[i]);
    default:      return ((const float *)p)[i];
    }
}

static __host__ __device__ inline uint16_t tnc_bits_of_bf16(double v)
{
    const float f = (float)v;
    uint32_t    bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40);
    if ((bits & 0xFFFF) == 0x8000 && (double)f != v) bits = fabs(v) > fabs((double)f) ? bits + 1 : bits - 1;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static __host__ __device__ inline int32_t tnc_to_int(double v)
{
    return v != v ? 0 : v >= 2147483647.0 ? INT32_MAX : v <= -2147483648.0 ? INT32_MIN : (int32_t)v;
}

static __device__ __forceinline__ void tnc_write(void *p, int dtype, int64_t i, double v)
{
    switch (dtype) {
    case TN_F64:  ((double *)p)[i] = v; break;
    case TN_I32:  ((int32_t *)p)[i] = tnc_to_int(v); break;
    case TN_BF16: ((uint16_t *)p)[i] = tnc_bits_of_bf16(v); break;
    default:      ((float *)p)[i] = (float)v; break;
    }
}

static __global__ void __launch_bounds__(TNC_THREADS)
tnc_cast_kernel(const tnc_walk w, void *y, int y_dtype, const void *x, int x_dtype)
{
    int64_t at[TNC_VIEWS];
    for (TNC_GRID_STRIDE(i, w.count)) {
        tnc_at<2>(w, i, at);
        tnc_write(y, y_dtype, at[0], tnc_read(x, x_dtype, at[1]));
    }
}

/* A transposing copy: x is contiguous along axis 1 of the walk and y along axis 0. Square tiles go through shared memory and
   are read along one axis and written along the other, so that both accesses are coalesced. The odd width of the tile keeps
   the numbers of a column in different banks. */
enum { TNC_SQUARE = 64 };

template <typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_transpose_kernel(const tnc_walk w, Y *y, const X *x)
{
    TNC_SHARED(X, square, [TNC_SQUARE][TNC_SQUARE + (sizeof(X) == 2 ? 2 : 1)]);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t rows = w.axis[0].extent.by, columns = w.axis[1].extent.by;
    const int64_t down = tnc_ceil(rows, TNC_SQUARE), across = tnc_ceil(columns, TNC_SQUARE);
    const int64_t squares = w.count / (rows * columns) * down * across;
    for (int64_t i = blockIdx.x; i < squares; i += gridDim.x) {
        const int64_t r0 = i % down * TNC_SQUARE, c0 = i / down % across * TNC_SQUARE;
        int64_t rest = i / down / across, to = 0, from = 0;
        for (int k = 2; k < w.rank; k++) {
            const int64_t q = rest / w.axis[k].extent.by, r = rest - q * w.axis[k].extent.by;
            to += r * w.axis[k].step[0];
            from += r * w.axis[k].step[1];
            rest = q;
        }
        for (int r = warp; r < TNC_SQUARE && r0 + r < rows; r += TNC_THREADS / 32)
            for (int c = lane; c < TNC_SQUARE && c0 + c < columns; c += 32)
                square[r][c] = x[from + (r0 + r) * w.axis[0].step[1] + c0 + c];
        __syncthreads();
        for (int c = warp; c < TNC_SQUARE && c0 + c < columns; c += TNC_THREADS / 32)
            for (int r = lane; r < TNC_SQUARE && r0 + r < rows; r += 32)
                y[to + (c0 + c) * w.axis[1].step[0] + r0 + r] = tnc_from<Y>(tnc_to(square[r][c]));
        __syncthreads();
    }
}

template <typename Y, typename X> static void tnc_copy_as(tnc *s, const tn_view *from, const tn_view *to)
{
    tnc_walk w = tnc_walk_of(to, from, NULL);
    int      k;
    if (w.count == 0) return;
    for (k = 1; k < w.rank; k++)
        if (w.axis[k].step[1] == 1 && w.axis[k].extent.by >= 8) break;
    if (k < w.rank && w.axis[0].step[0] == 1 && w.axis[0].extent.by >= 8) {
        const tnc_axis along = w.axis[k];
        for (; k > 1; k--) w.axis[k] = w.axis[k - 1];
        w.axis[1] = along;
        TNC_START((tnc_transpose_kernel<Y, X>), tnc_blocks(w.count, TNC_SQUARE * TNC_SQUARE), w, (Y *)to->data,
                  (const X *)from->data);
    } else tnc_map(s, w, tnc_same<Y>(), (Y *)to->data, (const X *)from->data, (const X *)NULL, false);
}

TNC_FN void tnc_copy_views(tnc *s, const tn_view *x, const tn_view *y)
{
    if (x->dtype == TN_F32 && y->dtype == TN_BF16) tnc_copy_as<tnc_bf16, float>(s, x, y);
    else if (x->dtype == TN_BF16 && y->dtype == TN_F32) tnc_copy_as<float, tnc_bf16>(s, x, y);
    else if (x->dtype != y->dtype) {
        tnc_walk w = tnc_walk_of(y, x, NULL);
        if (w.count > 0)
            TNC_START(tnc_cast_kernel, tnc_blocks(w.count, TNC_THREADS), w, y->data, (int)y->dtype, (const void *)x->data,
                      (int)x->dtype);
    } else if (x->dtype == TN_F64) tnc_copy_as<uint64_t, uint64_t>(s, x, y);
    else if (x->dtype == TN_BF16) tnc_copy_as<uint16_t, uint16_t>(s, x, y);
    else tnc_copy_as<uint32_t, uint32_t>(s, x, y);
}

TNC_FN tn_status tnc_copy(tnc *s, const tn_call *c)
{
    tnc_copy_views(s, &c->in[0], &c->out[0]);
    return TN_OK;
}

template <typename T> static void tnc_fill_as(tnc *s, const tn_view *y, T value)
{
    const tnc_value<T> op = { value };
    tnc_map(s, tnc_walk_of(y, NULL, NULL), op, (T *)y->data, (const T *)NULL, (const T *)NULL, false);
}

TNC_FN tn_status tnc_fill(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const double   v = c->f[0];
    if (y->dtype == TN_F64) tnc_fill_as<double>(s, y, v);
    else if (y->dtype == TN_F32) tnc_fill_as<float>(s, y, (float)v);
    else if (y->dtype == TN_BF16) tnc_fill_as<uint16_t>(s, y, tnc_bits_of_bf16(v));
    else tnc_fill_as<uint32_t>(s, y, (uint32_t)tnc_to_int(v));
    return TN_OK;
}

/* ---- uniform, normal --------------------------------------------------------------------------------------- >>cuda-random
   Each thread makes one Philox block of four numbers. Uniform numbers and masks are bit-identical to the CPU's; normal ones
   in F32 use the same polynomials. Floor: the bytes written, and 20 instructions of Philox per number. */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_uniform_kernel(const tnc_stream_of g, const int32_t *clock, T *y, int64_t n, bool aligned)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    for (TNC_GRID_STRIDE(i, blocks)) {
        uint32_t word[4];
        R        v[4];
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k++)              /* rounded after the product and after the sum, as on the CPU */
            v[k] = (R)__dadd_rn(g.low, __dmul_rn(g.width, (double)tnc_unit(word[k])));
        tnc_store_four(y, i, n, aligned, v);
    }
}

/* ln x of a normal float x > 0, with x = 2^n (1+f) and sqrt(1/2) <= 1+f < sqrt(2) */
static __device__ __forceinline__ double tnc_exact_log(float x)
{
    const uint32_t u = __float_as_uint(x) - 0x3f3504f3u;
    const float    f = __uint_as_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f, square = f * f;
    float p = fmaf(-0.0763748139f, f, 0.127667218f);
    p = fmaf(p, f, -0.131613255f);
    p = fmaf(p, f, 0.142010972f);
    p = fmaf(p, f, -0.166231945f);
    p = fmaf(p, f, 0.200012535f);
    p = fmaf(p, f, -0.250008255f);
    p = fmaf(p, f, 0.333333313f);
    p = fmaf(p * f, square, -0.5f * square);
    return (double)((int32_t)u >> 23) * 0.6931471805599453 + ((double)f + (double)p);
}

/* sin and cos of 2 pi u for 0 <= u <= 1. u = q/4 + r with |r| <= 1/8, exactly. Then sine = 2 pi r + a small term, and cosine
   = 1 + a small term. */
static __device__ __forceinline__ void tnc_circle(float u, double *cosine, double *sine)
{
    const uint32_t q = __float_as_uint(fmaf(u, 4.0f, 12582912.0f));                   /* 1.5 * 2^23: rounds to an integer */
    const float    r = fmaf((float)(int32_t)(q - 0x4b400000u), -0.25f, u), z = r * r;
    float  s = fmaf(-75.434494f, z, 81.5935135f), c = fmaf(58.7673836f, z, -85.4282761f);
    s = fmaf(s, z, -41.341671f);
    s = fmaf(s * z, r, -1.74845560e-7f * r);                                           /* 2 pi in two parts */
    c = fmaf(c, z, 64.9391708f);
    c = fmaf(c, z, -19.7392082f) * z;
    double along = 1.0 + (double)c;
    double across = (double)6.28318548f * (double)r + (double)s;
    *sine = q & 1 ? along : across;
    *cosine = q & 1 ? across : along;
    if (q & 2) *sine = -*sine;
    if ((q + 1) & 2) *cosine = -*cosine;
}

/* Box & Muller 1958 */
static __device__ __forceinline__ void tnc_gauss(float u, float v, double *first, double *second, float)
{
    const double radius = sqrt(-2 * tnc_exact_log(u));
    tnc_circle(v, first, second);
    *first *= radius;
    *second *= radius;
}

static __device__ __forceinline__ void tnc_gauss(float u, float v, double *first, double *second, double)
{
    const double radius = sqrt(-2 * log((double)u));
    tnc_sincospi(2 * (double)v, second, first);
    *first *= radius;
    *second *= radius;
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_normal_kernel(const tnc_stream_of g, const int32_t *clock, T *y, int64_t n, bool aligned)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    for (TNC_GRID_STRIDE(i, blocks)) {
        uint32_t word[4];
        R        v[4];
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k += 2) {
            double a, b;
            tnc_gauss(tnc_unit(word[k]), tnc_unit(word[k + 1]), &a, &b, R(0));
            v[k] = (R)(g.low + g.width * a);
            v[k + 1] = (R)(g.low + g.width * b);
        }
        tnc_store_four(y, i, n, aligned, v);
    }
}

TNC_FN tn_status tnc_uniform(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const int64_t  n = y->shape[0];
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_uniform_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS),
                      tnc_stream_from(c, c->f[0], c->f[1] - c->f[0]), (const int32_t *)c->in[0].data, (T *)y->data, n,
                      tnc_aligned(y->data, alignof(tnc_pack<T, 4>))))
    return TN_OK;
}

TNC_FN tn_status tnc_normal(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const int64_t  n = y->shape[0];
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_normal_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS), tnc_stream_from(c, c->f[0], c->f[1]),
                      (const int32_t *)c->in[0].data, (T *)y->data, n, tnc_aligned(y->data, alignof(tnc_pack<T, 4>))))
    return TN_OK;
}

/* ---- add, mul, div -------------------------------------------------------------------------------------------- >>cuda-add
   The operands may have different types, F32 and BF16, as when a parameter is added to activations. Floor: the bytes read
   and written. */

template <typename R> struct tnc_scaled {               /* f0 a */
    enum { inputs = 1, adds = 1 };
    R f0;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = f0 * a[k];
    }
};

template <typename R> struct tnc_pairs {                /* f0 a + f1 b, or f0 a * b */
    enum { inputs = 2, adds = 1 };
    R    f0, f1;
    bool product;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        TNC_EACH v[k] = product ? f0 * a[k] * b[k] : tnc_fma(f0, a[k], f1 * b[k]);
    }
};

template <typename Y, typename A>
static tn_status tnc_scaled_run(tnc *s, const tn_view *y, const tn_view *a, double f0, bool add)
{
    typedef typename tnc_real<Y>::type R;
    const tnc_scaled<R> op = { (R)f0 };
    tnc_map(s, tnc_walk_of(y, a, NULL), op, (Y *)y->data, (const A *)a->data, (const A *)NULL, add);
    return TN_OK;
}

template <typename Y, typename A, typename B>
static tn_status tnc_pairs_run(tnc *s, const tn_call *c, const tn_view *a, const tn_view *b, double f0, double f1)
{
    typedef typename tnc_real<Y>::type R;
    const tnc_pairs<R> op = { (R)f0, (R)f1, c->kernel == TN_KERNEL_MUL };
    const tn_view *y = &c->out[0];
    tnc_map(s, tnc_walk_of(y, a, b), op, (Y *)y->data, (const A *)a->data, (const B *)b->data, c->accumulate);
    return TN_OK;
}

TNC_FN tn_status tnc_add_one(tnc *s, const tn_view *y, const tn_view *a, double f0, bool add)
{
    switch (TNC_MIX(0, y->dtype, a->dtype)) {
    case TNC_MIX(0, TN_F32, TN_F32):   return tnc_scaled_run<float, float>(s, y, a, f0, add);
    case TNC_MIX(0, TN_F64, TN_F64):   return tnc_scaled_run<double, double>(s, y, a, f0, add);
    case TNC_MIX(0, TN_BF16, TN_BF16): return tnc_scaled_run<tnc_bf16, tnc_bf16>(s, y, a, f0, add);
    case TNC_MIX(0, TN_BF16, TN_F32):  return tnc_scaled_run<tnc_bf16, float>(s, y, a, f0, add);
    case TNC_MIX(0, TN_F32, TN_BF16):  return tnc_scaled_run<float, tnc_bf16>(s, y, a, f0, add);
    default:                           return TN_ERR_DTYPE;
    }
}

TNC_FN tn_status tnc_add(tnc *s, const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    double         f0 = c->f[0], f1 = c->f[1];
    if (c->n_in < 2) return tnc_add_one(s, y, a, f0, c->accumulate);
    if (a->dtype == TN_F32 && b->dtype == TN_BF16) {    /* both sums are commutative: fewer template instances */
        const tn_view *t = a;
        a = b;
        b = t;
        f0 = c->f[1];
        f1 = c->f[0];
        if (c->kernel == TN_KERNEL_MUL) f0 = c->f[0];
    }
    switch (TNC_MIX(y->dtype, a->dtype, b->dtype)) {
    case TNC_MIX(TN_F32, TN_F32, TN_F32):    return tnc_pairs_run<float, float, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F64, TN_F64, TN_F64):    return tnc_pairs_run<double, double, double>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_BF16, TN_BF16): return tnc_pairs_run<tnc_bf16, tnc_bf16, tnc_bf16>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_BF16, TN_F32):  return tnc_pairs_run<tnc_bf16, tnc_bf16, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_F32, TN_F32):   return tnc_pairs_run<tnc_bf16, float, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F32, TN_BF16, TN_BF16):  return tnc_pairs_run<float, tnc_bf16, tnc_bf16>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F32, TN_BF16, TN_F32):   return tnc_pairs_run<float, tnc_bf16, float>(s, c, a, b, f0, f1);
    default:                                 return TN_ERR_DTYPE;
    }
}

TNC_FN tn_status tnc_mul(tnc *s, const tn_call *c) { return tnc_add(s, c); }

template <typename R> struct tnc_ratio {                /* f0 a / b, correctly rounded */
    enum { inputs = 2, adds = 1 };
    R f0;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        TNC_EACH v[k] = f0 * a[k] / b[k];
    }
};

TNC_FN tn_status tnc_div(tnc *s, const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_ratio<typename tnc_real<T>::type> op = { (typename tnc_real<T>::type)c->f[0] };
        tnc_map(s, tnc_walk_of(y, a, b), op, (T *)y->data, (const T *)a->data, (const T *)b->data, c->accumulate))
    return TN_OK;
}

/* ---- where -------------------------------------------------------------------------------------------------- >>cuda-where
   A walk has three views, but the op has four operands: so one launch writes the elements of the first operand, and a second
   one those of the other. An absent operand counts as zeros. Floor: the bytes of y, of the chosen elements of both operands,
   and the condition twice. */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_where_kernel(const tnc_walk w, T *y, const int32_t *condition, const T *x, const bool chosen, const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_GRID_STRIDE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        tnc_at<3>(w, i, at);
        if ((condition[at[1]] != 0) != chosen) continue;
        R v = x ? tnc_to(x[at[2]]) : R(0);
        y[at[0]] = tnc_from<T>(add ? tnc_to(y[at[0]]) + v : v);
    }
}

template <typename T> static void tnc_where_side(tnc *s, const tn_call *c, bool chosen)
{
    const tn_view *x = &c->in[chosen ? 1 : 2], *y = &c->out[0];
    const tnc_walk w = tnc_walk_of(y, &c->in[0], x->data ? x : NULL);
    if (w.count == 0 || (!x->data && c->accumulate)) return;
    TNC_START((tnc_where_kernel<T>), tnc_blocks(w.count, TNC_THREADS), w, (T *)y->data, (const int32_t *)c->in[0].data,
              (const T *)x->data, chosen, c->accumulate);
}

TNC_FN tn_status tnc_where(tnc *s, const tn_call *c)
{
    const int dtype = c->out[0].dtype;
    if (!tnc_has(&c->in[1], dtype) || !tnc_has(&c->in[2], dtype)) return TN_ERR_DTYPE;
    TNC_TYPES(dtype, T, tnc_where_side<T>(s, c, true); tnc_where_side<T>(s, c, false))
    return TN_OK;
}

/* ---- sum ------------------------------------------------------------------------------------------------------ >>cuda-sum
   Each element of y is the sum of a part of x. The walk `kept` goes over the elements of y, the walk `summed` over the axes
   that are summed. Where the summed axis is contiguous, a warp or a block sums one element and its lanes stride along the
   part ("along"). Where the kept axis is contiguous, a thread sums one element or vector of elements and the eight warps of
   the block stride down the part ("down"). If there are few elements, their parts are split, as in split-K: partial sums go
   to scratch and are summed by a second pass. Split and order depend on the shape alone. Floor: the bytes of x. */

/* How parts are split. length, pieces: elements per split, number of splits; step: distance of their partial sums in y;
   along: distance of neighbouring elements in y; block: a block and not a warp sums an element. */
typedef struct tnc_cut { int64_t length, pieces, step, along; bool block; } tnc_cut;

template <int V, typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_sum_along_kernel(const tnc_walk kept, const tnc_walk summed, const tnc_cut cut, Y *y, const X *x,
                     const typename tnc_real<Y>::type factor, const bool add)
{
    typedef typename tnc_real<X>::type R;
    enum { STEPS = 4 };
    const int     team = cut.block ? TNC_THREADS : 32, lane = (int)threadIdx.x & (team - 1);
    const int64_t tasks = kept.count * cut.pieces, teams = TNC_THREADS / team;
    for (int64_t base = (int64_t)blockIdx.x * teams; base < tasks; base += (int64_t)gridDim.x * teams) {
        const int64_t task = base + (int)threadIdx.x / team, piece = task % cut.pieces;
        const int64_t begin = piece * cut.length;
        const int64_t end = begin + cut.length < summed.count ? begin + cut.length : summed.count;
        int64_t place[TNC_VIEWS] = {0};
        R       sums[STEPS][V], sum = 0;
        TNC_UNROLL
        for (int u = 0; u < STEPS; u++)
            TNC_EACH sums[u][k] = 0;
        if (task < tasks) {
            tnc_at<2>(kept, task / cut.pieces, place);
            for (int64_t i = begin + lane; i < end; i += STEPS * team) {
                R v[STEPS][V];
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    int64_t at[TNC_VIEWS];
                    if (i + u * team >= end) break;
                    tnc_at<1>(summed, i + u * team, at);
                    tnc_load(v[u], x + place[0] + at[0]);
                }
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    if (i + u * team >= end) break;
                    TNC_EACH sums[u][k] += v[u][k];
                }
            }
        }
        TNC_EACH sum += (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
        sum = cut.block ? tnc_block_sum(sum) : tnc_warp_sum(sum);
        if (task < tasks && lane == 0) {
            Y *to = y + place[1] + piece * cut.step;
            *to = tnc_from<Y>(factor * sum + (add ? tnc_to(*to) : 0));
        }
    }
}

template <int V, typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_sum_down_kernel(const tnc_walk kept, const tnc_walk summed, const tnc_cut cut, Y *y, const X *x,
                    const typename tnc_real<Y>::type factor, const bool add)
{
    typedef typename tnc_real<X>::type R;
    enum { STEPS = 4, WARPS = TNC_THREADS / 32 };
    TNC_SHARED(R, part, [WARPS][V][32]);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t across = (kept.count + 31) / 32, tasks = across * cut.pieces;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t piece = task / across, element = task % across * 32 + lane;
        const int64_t begin = piece * cut.length;
        const int64_t end = begin + cut.length < summed.count ? begin + cut.length : summed.count;
        int64_t place[TNC_VIEWS] = {};
        R       sums[STEPS][V];
        TNC_UNROLL
        for (int u = 0; u < STEPS; u++)
            TNC_EACH sums[u][k] = 0;
        if (element < kept.count) {
            tnc_at<2>(kept, element, place);
            for (int64_t i = begin + warp; i < end; i += STEPS * WARPS) {
                R v[STEPS][V];
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    int64_t at[TNC_VIEWS];
                    if (i + u * WARPS >= end) break;
                    tnc_at<1>(summed, i + u * WARPS, at);
                    tnc_load(v[u], x + place[0] + at[0]);
                }
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    if (i + u * WARPS >= end) break;
                    TNC_EACH sums[u][k] += v[u][k];
                }
            }
        }
        TNC_EACH part[warp][k][lane] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
        __syncthreads();
        for (int k = warp; k < V; k += WARPS) {
            R sum = part[0][k][lane];
            TNC_UNROLL
            for (int j = 1; j < WARPS; j++) sum += part[j][k][lane];
            if (element < kept.count) {
                Y *to = y + place[1] + k * cut.along + piece * cut.step;
                *to = tnc_from<Y>(factor * sum + (add ? tnc_to(*to) : 0));
            }
        }
        __syncthreads();
    }
}

/* The operands of one pass: x and y over the kept axes, x over the summed axes. */
typedef struct tnc_sums { tn_view kept_x, kept_y, summed; bool down; } tnc_sums;

/* Splits the parts until there are about a thousand blocks. */
static tnc_cut tnc_sum_cut(const tnc_sums *j, int64_t kept, int64_t summed)
{
    tnc_cut cut = { summed, 1, 0, 0, !j->down && summed >= 1024 };
    int64_t pieces = 1024 / (j->down ? tnc_ceil(kept, 32) : kept);
    if (pieces > summed / (j->down ? 64 : 2048)) pieces = summed / (j->down ? 64 : 2048);
    if (pieces < 2) return cut;
    cut.length = tnc_ceil(tnc_ceil(summed, pieces), 64) * 64;                   /* whole vectors of 16 bytes */
    cut.pieces = tnc_ceil(summed, cut.length);
    return cut;
}

static bool tnc_steps_divide(const tnc_walk *w, int V)
{
    for (int k = 0; k < w->rank; k++)
        if (w->axis[k].step[0] % V != 0) return false;
    return true;
}

template <int V, typename Y, typename X>
static void tnc_sum_launch(tnc *s, const tnc_walk &kept, const tnc_walk &summed, const tnc_sums *j, const tnc_cut &cut,
                           double factor, bool add)
{
    typedef typename tnc_real<Y>::type R;
    const int64_t tasks = j->down ? tnc_ceil(kept.count, 32) : tnc_ceil(kept.count, cut.block ? 1 : TNC_THREADS / 32);
    const unsigned blocks = tnc_blocks(tasks * cut.pieces, 1);
    if (j->down)
        TNC_START((tnc_sum_down_kernel<V, Y, X>), blocks, kept, summed, cut, (Y *)j->kept_y.data, (const X *)j->kept_x.data,
                  (R)factor, add);
    else
        TNC_START((tnc_sum_along_kernel<V, Y, X>), blocks, kept, summed, cut, (Y *)j->kept_y.data, (const X *)j->kept_x.data,
                  (R)factor, add);
}

/* Vectors of 16 bytes are used where elements, or the numbers of a part, are contiguous and aligned. */
template <typename Y, typename X>
static void tnc_sum_pass(tnc *s, const tnc_sums *j, tnc_cut cut, double factor, bool add)
{
    enum { V = (int)(16 / sizeof(X)) };
    const void  *p[TNC_VIEWS] = { j->kept_x.data, NULL, NULL };
    const size_t size[TNC_VIEWS] = { sizeof(X), 0, 0 };
    tnc_walk     kept = tnc_walk_of(&j->kept_x, &j->kept_y, NULL), summed = tnc_walk_of(&j->summed, NULL, NULL);
    cut.along = kept.axis[0].step[1];
    if (j->down ? tnc_steps_divide(&summed, V) && tnc_walk_widen(&kept, V, p, size)
                : tnc_steps_divide(&kept, V) && tnc_walk_widen(&summed, V, p, size)) {
        if (!j->down) cut.length = tnc_ceil(cut.length, V);
        tnc_sum_launch<V, Y, X>(s, kept, summed, j, cut, factor, add);
    } else tnc_sum_launch<1, Y, X>(s, kept, summed, j, cut, factor, add);
}

template <typename Y, typename X> static tn_status tnc_sum_run(tnc *s, tnc_sums *j, double factor, bool add)
{
    typedef typename tnc_real<X>::type R;
    const tnc_walk kept = tnc_walk_of(&j->kept_x, NULL, NULL), summed = tnc_walk_of(&j->summed, NULL, NULL);
    tnc_sums       first = *j, second = *j;
    if (kept.count == 0) return TN_OK;
    first.down = second.down = kept.count > 1
        && (llabs(kept.axis[0].step[0]) < llabs(summed.axis[0].step[0]) || summed.count < 16);
    tnc_cut cut = tnc_sum_cut(&first, kept.count, summed.count);
    if (cut.pieces == 1) {
        tnc_sum_pass<Y, X>(s, &first, cut, factor, add);
        return TN_OK;
    }
    first.kept_y.data = tnc_scratch(s, (size_t)(kept.count * cut.pieces) * sizeof(R));
    if (!first.kept_y.data) return TN_ERR_MEMORY;
    int64_t step = first.down ? 1 : cut.pieces;
    for (int i = first.kept_y.rank - 1; i >= 0; step *= first.kept_y.shape[i--]) first.kept_y.strides[i] = step;
    cut.step = first.down ? kept.count : 1;
    second.kept_x = first.kept_y;
    second.summed.rank = 1;
    second.summed.shape[0] = cut.pieces;
    second.summed.strides[0] = cut.step;
    tnc_sum_pass<R, X>(s, &first, cut, 1, false);
    cut.length = cut.pieces;
    cut.pieces = 1;
    cut.block = !second.down && cut.length >= 256;
    tnc_sum_pass<Y, R>(s, &second, cut, factor, add);
    return TN_OK;
}

TNC_FN tn_status tnc_sum(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    tnc_sums       j = { *x, *y, *x, false };
    for (int k = 0; k < x->rank; k++)
        if (y->shape[k] == 1 && x->shape[k] != 1) j.kept_x.shape[k] = 1;
        else j.summed.shape[k] = 1;
    switch (TNC_MIX(0, y->dtype, x->dtype)) {
    case TNC_MIX(0, TN_F32, TN_F32):   return tnc_sum_run<float, float>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_F64, TN_F64):   return tnc_sum_run<double, double>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_F32, TN_BF16):  return tnc_sum_run<float, tnc_bf16>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_BF16, TN_BF16): return tnc_sum_run<tnc_bf16, tnc_bf16>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_BF16, TN_F32):  return tnc_sum_run<tnc_bf16, float>(s, &j, c->f[0], c->accumulate);
    default:                           return TN_ERR_DTYPE;
    }
}

/* ---- act, glu and their backward passes ----------------------------------------------------------------------- >>cuda-act
   One pass each. The two halves of the input of glu are two views of x, so that its forward pass is an elementwise kernel of
   two operands. F32 uses the CPU's polynomials for Phi and CUDA's functions for the others; BF16, which has 8 significant
   bits, the fast exponential and quotient. Floor: the bytes read and written. */

/* Phi(x) and phi(x). The tail Phi(-t) = e^(-t^2/2) g(t) has a smooth factor g, a polynomial in 1/(1 + 0.3 t). */
template <bool FAST> static __device__ __forceinline__ float tnc_normal_cdf(float x, float *density)
{
    const float t = fminf(15.0f, fabsf(x)), square = t * t, lost = fmaf(t, t, -square);
    const float z = tnc_quotient<FAST>(1.0f, fmaf(0.3f, t, 1.0f));
    float e = tnc_exp<FAST>(-0.5f * square);
    e = fmaf(e, -0.5f * lost, e);                                       /* corrects the rounding error of the square */
    float g = fmaf(-0.0206242893f, z, 0.112440139f);
    g = fmaf(g, z, -0.228224412f);
    g = fmaf(g, z, 0.191799164f);
    g = fmaf(g, z, -0.0794358179f);
    g = fmaf(g, z, 0.0961635262f);
    g = fmaf(g, z, 0.0783873126f);
    g = fmaf(g, z, 0.110235929f);
    g = fmaf(g, z, 0.119571753f);
    g = fmaf(g, z, 0.119686693f) * z * e;
    *density = 0.398942280f * e;
    return x > 0.0f ? 1.0f - g : g;
}

template <bool FAST> static __device__ __forceinline__ double tnc_normal_cdf(double x, double *density)
{
    *density = 0.3989422804014327 * exp(-0.5 * x * x);
    return 0.5 * erfc(-0.7071067811865476 * x);
}

/* act(x) and act'(x) of V numbers, with one switch for all. The compiler removes the result that a caller does not use. */
template <bool FAST, int V, typename R>
static __device__ __forceinline__ void tnc_activate(int kind, const R (&x)[V], R (&value)[V], R (&slope)[V])
{
    switch (kind) {
    case TN_ACT_RELU:
        TNC_EACH {
            value[k] = x[k] > 0 || x[k] != x[k] ? x[k] : R(0);
            slope[k] = x[k] > 0 ? R(1) : value[k];
        }
        break;
    case TN_ACT_RELU2:
        TNC_EACH {
            const R v = x[k] > 0 || x[k] != x[k] ? x[k] : R(0);
            value[k] = v * v;
            slope[k] = v + v;
        }
        break;
    case TN_ACT_GELU:
        TNC_EACH {
            R density, cdf = tnc_normal_cdf<FAST>(x[k], &density);
            value[k] = x[k] * cdf;
            slope[k] = tnc_fma(x[k], density, cdf);
        }
        break;
    case TN_ACT_SWISH:
        TNC_EACH {
            const R s = tnc_quotient<FAST>(R(1), R(1) + tnc_exp<FAST>(-x[k]));
            value[k] = x[k] * s;
            slope[k] = tnc_fma(x[k] * s, R(1) - s, s);
        }
        break;
    case TN_ACT_SIGMOID:
        TNC_EACH {
            value[k] = tnc_quotient<FAST>(R(1), R(1) + tnc_exp<FAST>(-x[k]));
            slope[k] = value[k] * (R(1) - value[k]);
        }
        break;
    case TN_ACT_ABS:
        TNC_EACH {
            value[k] = x[k] < 0 ? -x[k] : x[k] > 0 ? x[k] : x[k] + R(0);      /* -0 becomes 0 */
            slope[k] = x[k] > 0 ? R(1) : x[k] < 0 ? R(-1) : x[k];
        }
        break;
    case TN_ACT_ROUND:
        TNC_EACH {
            value[k] = tnc_rint(x[k]);
            slope[k] = 1;
        }
        break;
    case TN_ACT_EXP:
        TNC_EACH value[k] = slope[k] = tnc_exp<FAST>(x[k]);
        break;
    case TN_ACT_TANH:
        TNC_EACH {
            value[k] = tnc_tanh(x[k]);
            slope[k] = (R(1) - value[k]) * (R(1) + value[k]);
        }
        break;
    case TN_ACT_SQRT:
        TNC_EACH {
            value[k] = tnc_sqrt(x[k]);
            slope[k] = R(0.5) / value[k];
        }
        break;
    case TN_ACT_LOG:
        TNC_EACH {
            value[k] = tnc_log(x[k]);
            slope[k] = R(1) / x[k];
        }
        break;
    default:
        TNC_EACH {
            value[k] = x[k];
            slope[k] = 1;
        }
    }
}

template <typename T> struct tnc_act_of {               /* act(a) */
    enum { inputs = 1, adds = 0 };
    int kind;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        R slope[V];
        tnc_activate<sizeof(T) == 2>(kind, a, v, slope);
    }
};

template <typename T> struct tnc_gate_of {              /* act(a) * b, or act'(a) * b */
    enum { inputs = 2, adds = 1 };
    int  kind;
    bool slope;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        R value[V], slopes[V];
        tnc_activate<sizeof(T) == 2>(kind, a, value, slopes);
        TNC_EACH v[k] = (slope ? slopes[k] : value[k]) * b[k];
    }
};

TNC_FN tn_status tnc_act(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_act_of<T> op = { (int)c->i[0] };
        tnc_map(s, tnc_walk_of(y, x, NULL), op, (T *)y->data, (const T *)x->data, (const T *)NULL, false))
    return TN_OK;
}

static tn_status tnc_gate(tnc *s, const tn_call *c, const tn_view *a, const tn_view *b, bool slope)
{
    const tn_view *y = &c->out[0];
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_gate_of<T> op = { (int)c->i[0], slope };
        tnc_map(s, tnc_walk_of(y, a, b), op, (T *)y->data, (const T *)a->data, (const T *)b->data, c->accumulate))
    return TN_OK;
}

TNC_FN tn_status tnc_act_backward(tnc *s, const tn_call *c) { return tnc_gate(s, c, &c->in[0], &c->in[1], true); }

TNC_FN tn_status tnc_glu(tnc *s, const tn_call *c)
{
    const tn_view a = tnc_part_view(c->in[0], 2, 0), b = tnc_part_view(c->in[0], 2, 1);
    return tnc_gate(s, c, &a, &b, false);
}

/* w is the walk of the first half of x, which dx shares, and of dy. The second half of x is `half` columns further. */
template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_glu_backward_kernel(const tnc_walk w, const int64_t half, const int kind, T *dx, const T *x, const T *dy, const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_GRID_STRIDE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       a[V], b[V], d[V], old_a[V], old_b[V], value[V], slope[V];
        tnc_at<2>(w, i, at);
        tnc_load(a, x + at[0]);
        tnc_load(b, x + at[0] + half);
        tnc_load(d, dy + at[1]);
        if (add) {
            tnc_load(old_a, dx + at[0]);
            tnc_load(old_b, dx + at[0] + half);
        }
        tnc_activate<sizeof(T) == 2>(kind, a, value, slope);
        TNC_EACH {
            a[k] = d[k] * b[k] * slope[k];
            b[k] = d[k] * value[k];
            if (add) {
                a[k] += old_a[k];
                b[k] += old_b[k];
            }
        }
        tnc_store(dx + at[0], a);
        tnc_store(dx + at[0] + half, b);
    }
}

template <typename T> static void tnc_glu_backward_run(tnc *s, const tn_call *c)
{
    enum { V = (int)(16 / sizeof(T)) };
    const tn_view a = tnc_part_view(c->in[0], 2, 0);
    tnc_walk      w = tnc_walk_of(&a, &c->in[1], NULL);
    T            *dx = (T *)c->out[0].data;
    const T      *x = (const T *)c->in[0].data, *dy = (const T *)c->in[1].data;
    if (w.count == 0) return;
    if (tnc_parts_widen(&w, V, sizeof(T), a.shape[1], x, dx, dy))
        TNC_START((tnc_glu_backward_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, a.shape[1], (int)c->i[0], dx, x, dy,
                  c->accumulate);
    else
        TNC_START((tnc_glu_backward_kernel<1, T>), tnc_blocks(w.count, TNC_THREADS), w, a.shape[1], (int)c->i[0], dx, x, dy,
                  c->accumulate);
}

TNC_FN tn_status tnc_glu_backward(tnc *s, const tn_call *c)
{
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_glu_backward_run<T>(s, c))
    return TN_OK;
}

/* ---- prod, prod_backward ------------------------------------------------------------------------------------- >>cuda-prod
   Forward, a thread multiplies all factors of its vector of elements. Backward, it computes the product without each factor
   in turn and so reads every factor once for each of the others; only the first read goes to device memory. Floor: the bytes
   of x and y; backward those of x, dy and dx. */

template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_prod_kernel(const tnc_walk w, const int64_t half, const int64_t factors, T *y, const T *x)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_GRID_STRIDE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       v[V], f[V];
        tnc_at<2>(w, i, at);
        tnc_load(v, x + at[0]);
        for (int64_t e = 1; e < factors; e++) {
            tnc_load(f, x + at[0] + e * half);
            TNC_EACH v[k] *= f[k];
        }
        tnc_store(y + at[1], v);
    }
}

template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_prod_backward_kernel(const tnc_walk w, const int64_t half, const int64_t factors, T *dx, const T *x, const T *dy,
                         const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_GRID_STRIDE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       d[V], v[V], f[V];
        tnc_at<2>(w, i, at);
        tnc_load(d, dy + at[1]);
        for (int64_t e = 0; e < factors; e++) {
            TNC_EACH v[k] = d[k];
            for (int64_t o = 0; o < factors; o++) {
                if (o == e) continue;
                tnc_load(f, x + at[0] + o * half);
                TNC_EACH v[k] *= f[k];
            }
            if (add) {
                tnc_load(f, dx + at[0] + e * half);
                TNC_EACH v[k] += f[k];
            }
            tnc_store(dx + at[0] + e * half, v);
        }
    }
}

/* In the backward pass y is NULL. */
template <int V, typename T>
static void tnc_prod_launch(tnc *s, const tn_call *c, const tnc_walk &w, int64_t h, T *y, T *dx, const T *x, const T *dy)
{
    if (y)
        TNC_START((tnc_prod_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, h, c->i[0], y, x);
    else
        TNC_START((tnc_prod_backward_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, h, c->i[0], dx, x, dy,
                  c->accumulate);
}

template <typename T> static void tnc_prod_run(tnc *s, const tn_call *c, bool back)
{
    enum { V = (int)(16 / sizeof(T)) };
    const tn_view  part = tnc_part_view(c->in[0], c->i[0], 0);
    const tn_view *y = back ? &c->in[1] : &c->out[0];
    tnc_walk       w = tnc_walk_of(&part, y, NULL);
    const int64_t  h = part.shape[1];
    T             *to = (T *)c->out[0].data;
    const T       *x = (const T *)c->in[0].data, *dy = back ? (const T *)c->in[1].data : NULL;
    if (w.count == 0) return;
    if (tnc_parts_widen(&w, V, sizeof(T), h, x, back ? (const void *)to : (const void *)x, y->data))
        tnc_prod_launch<V, T>(s, c, w, h, back ? NULL : to, to, x, dy);
    else
        tnc_prod_launch<1, T>(s, c, w, h, back ? NULL : to, to, x, dy);
}

TNC_FN tn_status tnc_prod(tnc *s, const tn_call *c)
{
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_prod_run<T>(s, c, false))
    return TN_OK;
}

TNC_FN tn_status tnc_prod_backward(tnc *s, const tn_call *c)
{
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_prod_run<T>(s, c, true))
    return TN_OK;
}

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

/* ---- embed -------------------------------------------------------------------------------------------------- >>cuda-embed
   y[r] = table[ids[r]]. A group of threads copies one row of the table at a time, in vectors. Floor: reads and writes R
   d numbers. */

template <typename T, int V> static __global__ void __launch_bounds__(TNC_THREADS)
tnc_embed_kernel(const typename tnc_real<T>::type *table, const int32_t *ids, T *y, int32_t *fault, int64_t rows, int64_t d,
                 int64_t words, int lanes, int32_t who)
{
    typedef typename tnc_real<T>::type R;
    const int64_t n = d / V, step = (int64_t)gridDim.x * (TNC_THREADS / lanes);
    const int     lane = tnc_lane(lanes);
    for (int64_t row = (int64_t)blockIdx.x * (TNC_THREADS / lanes) + (int)threadIdx.x / lanes; row < rows; row += step) {
        const int32_t id = ids[row];
        const bool    good = id >= 0 && id < words;
        const R      *from = table + (good ? id : 0) * d;
        T            *to = y + row * d;
        TNC_UNROLL_BY(4)
        for (int64_t i = lane; i < n; i += lanes) {
            R v[V] = {};
            if (good) tnc_load(v, from + i * V);
            tnc_store(to + i * V, v);
        }
        if (!good && lane == 0) tnc_bad_id(fault, ids, row, words, who);
    }
}

template <typename T, int V> static void tnc_embed_launch(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const int64_t rows = c->out[0].shape[0], d = c->out[0].shape[1];
    const int     lanes = tnc_lanes(d / V, 32);
    TNC_START((tnc_embed_kernel<T, V>), tnc_grid(s, rows, TNC_THREADS / lanes), (const R *)c->in[0].data,
              (const int32_t *)c->in[1].data, (T *)c->out[0].data, (int32_t *)c->out[1].data, rows, d, c->in[0].shape[0],
              lanes, (int32_t)c->i[0]);
}

template <typename T> static tn_status tnc_embed_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count };
    if (!tnc_has(&c->in[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (c->out[0].shape[0] == 0) return TN_OK;
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->out[0].data))
        tnc_embed_launch<T, V>(s, c);
    else tnc_embed_launch<T, 1>(s, c);
    return TN_OK;
}

TNC_FN tn_status tnc_embed(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->out[0].dtype, T, return tnc_embed_of<T>(s, c))
}

/* ---- embed_backward ------------------------------------------------------------------------------------ >>cuda-embed-back
   dtable[id] += the sum of dy[r] over all r with ids[r] = id, in an order that is the same in every run. Positions are
   sorted by id, equal ids by position (a stable radix sort with 8 bits per pass and integer counters), and divided into
   tiles of equal length. A tile sums its runs of equal ids. A run that crosses tiles leaves a partial sum in each, and a
   second kernel adds these from left to right. Floor: reads R d numbers, reads and writes the rows of dtable that occur. */

enum { TNC_SORT_THREADS = 512, TNC_SORT_BLOCKS = 128, TNC_SORT_COUNTERS = 256 * TNC_SORT_BLOCKS };

typedef struct tnc_sort {
    const int32_t  *ids;                    /* of the first pass                                       */
    const uint32_t *key, *row;              /* of later passes                                         */
    uint32_t       *to_key, *to_row;
    uint32_t       *count, *next_count;     /* [blocks,256]: how often each digit occurs in each chunk */
    int64_t         n, chunk, words;
    int             shift, blocks;
} tnc_sort;

/* Ids outside the table are sorted to the end, where they are ignored. */
static __device__ __forceinline__ uint32_t tnc_sort_key(const tnc_sort &s, int64_t i)
{
    if (!s.ids) return s.key[i];
    return s.ids[i] >= 0 && s.ids[i] < s.words ? (uint32_t)s.ids[i] : (uint32_t)s.words;
}

static __global__ void __launch_bounds__(TNC_SORT_THREADS) tnc_sort_count_kernel(tnc_sort s)
{
    TNC_SHARED(uint32_t, count, [256]);
    const int64_t begin = (int64_t)blockIdx.x * s.chunk, end = begin + s.chunk < s.n ? begin + s.chunk : s.n;
    const int     me = (int)threadIdx.x;
    if (me < 256) count[me] = 0;
    __syncthreads();
    for (int64_t i = begin + me; i < end; i += TNC_SORT_THREADS) atomicAdd(&count[tnc_sort_key(s, i) >> s.shift & 255], 1u);
    __syncthreads();
    if (me < 256) {
        s.count[blockIdx.x * 256 + me] = count[me];
        s.next_count[blockIdx.x * 256 + me] = 0;
    }
}

/* Computes where each digit of this block's chunk begins in the sorted order, into start[256]. */
static __device__ void tnc_sort_begin(const tnc_sort &s, uint32_t *start, uint32_t *sums)
{
    const int me = (int)threadIdx.x;
    uint32_t  before = 0, total = 0;
    if (me < 256) {
        TNC_UNROLL_BY(8)
        for (int k = 0; k < s.blocks; k++) {
            const uint32_t x = s.count[k * 256 + me];
            if (k < (int)blockIdx.x) before += x;
            total += x;
        }
        sums[me] = total;
    }
    __syncthreads();
    for (int k = 1; k < 256; k *= 2) {
        const uint32_t left = me < 256 && me >= k ? sums[me - k] : 0;
        __syncthreads();
        if (me < 256) sums[me] += left;
        __syncthreads();
    }
    if (me < 256) start[me] = sums[me] - total + before;
    __syncthreads();
}

/* One pass of the sort. A warp ranks its 32 digits by ballots, and the block ranks its warps. It also counts the digits of
   the next pass, for the chunks that will hold them. */
static __global__ void __launch_bounds__(TNC_SORT_THREADS) tnc_sort_kernel(tnc_sort s)
{
    enum { WARPS = TNC_SORT_THREADS / 32 };
    TNC_SHARED(uint32_t, start, [256]);
    TNC_SHARED(uint32_t, count, [WARPS][256]);
    const int64_t begin = (int64_t)blockIdx.x * s.chunk, end = begin + s.chunk < s.n ? begin + s.chunk : s.n;
    const int     me = (int)threadIdx.x, lane = me & 31, warp = me >> 5;
    tnc_sort_begin(s, start, &count[0][0]);
    for (int64_t i = begin; i < end; i += TNC_SORT_THREADS) {
        const bool     live = i + me < end;
        const uint32_t key = live ? tnc_sort_key(s, i + me) : 0, digit = key >> s.shift & 255;
        unsigned       peers = __ballot_sync(0xffffffffu, live);
        for (int k = me; k < WARPS * 256; k += TNC_SORT_THREADS) (&count[0][0])[k] = 0;
        TNC_UNROLL
        for (int k = 0; k < 8; k++) {
            const unsigned have = __ballot_sync(0xffffffffu, digit >> k & 1);
            peers &= digit >> k & 1 ? have : ~have;
        }
        int rank = __popc(peers & ((1u << lane) - 1));
        __syncthreads();
        if (live && rank == 0) count[warp][digit] = (uint32_t)__popc(peers);
        __syncthreads();
        if (me < 256) {
            uint32_t at = start[me];
            for (int k = 0; k < WARPS; k++) {
                const uint32_t x = count[k][me];
                count[k][me] = at;
                at += x;
            }
            start[me] = at;
        }
        __syncthreads();
        if (live) {
            const uint32_t to = count[warp][digit] + (uint32_t)rank;
            s.to_key[to] = key;
            s.to_row[to] = s.ids ? (uint32_t)(i + me) : s.row[i + me];
            if (s.next_count) atomicAdd(&s.next_count[to / s.chunk * 256 + (key >> s.shift >> 8 & 255)], 1u);
        }
        __syncthreads();
    }
}

typedef struct tnc_runs {
    const uint32_t *key, *row;              /* sorted           */
    int64_t         n, d, words, tile, tiles;
    int             lanes;                  /* threads per tile */
} tnc_runs;

/* Whether the run at position i continues at i + 1. */
static __device__ __forceinline__ bool tnc_run_on(const tnc_runs &r, int64_t i)
{
    return i + 1 < r.n && r.key[i] == r.key[i + 1];
}

/* The tile of a thread and the first of its V columns, for both kernels. False if there is none. */
template <int V> static __device__ __forceinline__ bool tnc_runs_place(const tnc_runs &r, int64_t *tile, int64_t *column)
{
    *tile = (int64_t)blockIdx.x * ((int)blockDim.x / r.lanes) + (int)threadIdx.x / r.lanes;
    *column = ((int64_t)blockIdx.y * r.lanes + (int)threadIdx.x % r.lanes) * V;
    return *tile < r.tiles && *column < r.d;
}

/* share[tiles,2,d]: the partial sums of a tile, of the run that comes in from the left, and of the run that begins here and
   goes on to the right. */
template <typename T, int V> static __global__ void __launch_bounds__(128)
tnc_runs_kernel(tnc_runs r, const T *dy, typename tnc_real<T>::type *table, typename tnc_real<T>::type *share)
{
    typedef typename tnc_real<T>::type R;
    enum { AHEAD = 8 };
    int64_t tile, column;
    R       sum[V] = {};
    if (!tnc_runs_place<V>(r, &tile, &column)) return;
    int64_t begin = tile * r.tile;
    int64_t end = begin + r.tile < r.n ? begin + r.tile : r.n;
    bool    from_left = begin > 0 && tnc_run_on(r, begin - 1);
    for (int64_t i = begin; i < end; i += AHEAD) {
        tnc_pack<T, V> piece[AHEAD];
        TNC_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            const int64_t at = i + j < end ? i + j : end - 1;
            piece[j] = tnc_fetch<V>(dy + (int64_t)r.row[at] * r.d + column);
        }
        TNC_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            R v[V];
            if (i + j >= end || r.key[i + j] >= r.words) break;
            tnc_unpack(v, piece[j]);
            TNC_EACH sum[k] += v[k];
            if (i + j + 1 < end && tnc_run_on(r, i + j)) continue;
            if (from_left) tnc_store(share + 2 * tile * r.d + column, sum);
            else if (tnc_run_on(r, i + j)) tnc_store(share + (2 * tile + 1) * r.d + column, sum);
            else tnc_add_to(table + (int64_t)r.key[i + j] * r.d + column, sum);
            from_left = false;
            TNC_EACH sum[k] = 0;
        }
    }
}

/* For each run that crosses tiles: the tile in which it begins adds its partial sums. */
template <typename R, int V> static __global__ void __launch_bounds__(128)
tnc_runs_combine_kernel(tnc_runs r, R *table, const R *share)
{
    int64_t tile, column;
    R       sum[V];
    if (!tnc_runs_place<V>(r, &tile, &column) || tile + 1 >= r.tiles) return;
    int64_t  last = (tile + 1) * r.tile - 1;
    uint32_t key = r.key[last];
    if (key >= r.words || !tnc_run_on(r, last)) return;
    if (tile > 0 && r.key[tile * r.tile - 1] == key) return;                    /* it begins further left */
    int64_t step = 1;
    for (last = tile + 1; last + step < r.tiles && r.key[(last + step) * r.tile] == key; step *= 2) last += step;
    for (; step; step /= 2) if (last + step < r.tiles && r.key[(last + step) * r.tile] == key) last += step;
    tnc_load(sum, share + (2 * tile + 1) * r.d + column);
    TNC_UNROLL_BY(4)
    for (int64_t i = tile + 1; i <= last; i++) {
        R v[V];
        tnc_load(v, share + 2 * i * r.d + column);
        TNC_EACH sum[k] += v[k];
    }
    tnc_add_to(table + (int64_t)key * r.d + column, sum);
}

template <typename T, int V> static void tnc_runs_launch(tnc *s, const tn_call *c, tnc_runs r, void *share)
{
    typedef typename tnc_real<T>::type R;
    const int64_t pieces = r.d / V;
    r.lanes = tnc_lanes(pieces, 128);
    if (pieces > 32 && pieces < 128) r.lanes = 32 * (int)tnc_ceil(pieces, 32);
    dim3 grid = dim3((unsigned)tnc_ceil(r.tiles, r.lanes > 64 ? 1 : 128 / r.lanes), (unsigned)tnc_ceil(pieces, r.lanes));
    TNC_LAUNCH((tnc_runs_kernel<T, V>), grid, r.lanes > 64 ? r.lanes : 128, 0, s->stream, r, (const T *)c->in[1].data,
               (R *)c->out[0].data, (R *)share);
    if (r.tiles > 1)
        TNC_LAUNCH((tnc_runs_combine_kernel<R, V>), grid, r.lanes > 64 ? r.lanes : 128, 0, s->stream, r, (R *)c->out[0].data,
                   (const R *)share);
}

/* Sorts the positions in scratch. `rest`: number of bytes that the caller needs after them, at *after. */
static tn_status tnc_sort_ids(tnc *s, const int32_t *ids, int64_t n, int64_t words, size_t rest, tnc_runs *r, void **after)
{
    const size_t each = ((size_t)n * 4 + 15) / 16 * 16;
    tnc_sort     sort;
    uint32_t    *key[2], *row[2], *count[2];
    int          passes = 1;
    char        *scratch = (char *)tnc_scratch(s, 4 * each + 2 * TNC_SORT_COUNTERS * sizeof(uint32_t) + rest);
    if (!scratch) return TN_ERR_MEMORY;
    for (int pass = 0; pass < 2; pass++) {
        key[pass] = (uint32_t *)(void *)(scratch + 2 * (size_t)pass * each);
        row[pass] = (uint32_t *)(void *)(scratch + (2 * (size_t)pass + 1) * each);
        count[pass] = (uint32_t *)(void *)(scratch + 4 * each) + pass * TNC_SORT_COUNTERS;
    }
    *after = scratch + 4 * each + 2 * TNC_SORT_COUNTERS * sizeof(uint32_t);
    while (passes < 4 && words >> 8 * passes) passes++;
    memset(&sort, 0, sizeof sort);
    sort.n = n;
    sort.words = words;
    sort.chunk = tnc_ceil(tnc_ceil(n, TNC_SORT_BLOCKS), 4 * TNC_SORT_THREADS) * 4 * TNC_SORT_THREADS;
    sort.blocks = (int)tnc_ceil(n, sort.chunk);
    sort.ids = ids;
    for (int pass = 0; pass < passes; pass++) {
        sort.shift = 8 * pass;
        sort.count = count[pass % 2];
        sort.next_count = count[1 - pass % 2];
        sort.to_key = key[pass % 2];
        sort.to_row = row[pass % 2];
        if (pass != 1) TNC_LAUNCH(tnc_sort_count_kernel, (unsigned)sort.blocks, TNC_SORT_THREADS, 0, s->stream, sort);
        if (pass + 1 >= passes || pass > 0) sort.next_count = NULL;
        TNC_LAUNCH(tnc_sort_kernel, (unsigned)sort.blocks, TNC_SORT_THREADS, 0, s->stream, sort);
        sort.ids = NULL;
        sort.key = sort.to_key;
        sort.row = sort.to_row;
    }
    r->key = sort.key;
    r->row = sort.row;
    return TN_OK;
}

template <typename T> static tn_status tnc_embed_backward_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count };
    tnc_runs r;
    void    *share;
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    memset(&r, 0, sizeof r);
    r.n = c->in[1].shape[0];
    r.d = c->in[1].shape[1];
    r.words = c->out[0].shape[0];
    if (r.n == 0 || r.d == 0 || r.words == 0) return TN_OK;
    if (r.n > (int64_t)UINT32_MAX || r.words > (int64_t)INT32_MAX) return TN_ERR_SHAPE;
    for (r.tile = 16; r.tile * 1024 < r.n; r.tile *= 2) {}
    r.tiles = tnc_ceil(r.n, r.tile);
    tn_status status = tnc_sort_ids(s, (const int32_t *)c->in[0].data, r.n, r.words, (size_t)(2 * r.tiles * r.d) * sizeof(R), &r,
                                    &share);
    if (status != TN_OK) return status;
    if (r.d % V == 0 && tnc_aligned(c->in[1].data) && tnc_aligned(c->out[0].data)) tnc_runs_launch<T, V>(s, c, r, share);
    else tnc_runs_launch<T, 1>(s, c, r, share);
    return TN_OK;
}

TNC_FN tn_status tnc_embed_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[1].dtype, T, return tnc_embed_backward_of<T>(s, c))
}

/* ---- rmsnorm, residual_rmsnorm, layernorm -------------------------------------------------------------------- >>cuda-norm
   A row is read once and kept in registers; what does not fit is read again. If it is centred, its mean is computed, and
   then the mean of what remains, which corrects the rounding of the first; then its mean square, then y. The squares of
   very large or very small numbers overflow or vanish in a float: such rows are summed in double. ADD: the row is x + branch,
   rounded and written to `total`; everything else is the same, so that the bits are those of an addition and a norm, unless
   x or branch is misaligned and total is not: then V, and with it the order of the sums, differs. Floor: reads and writes R C
   numbers; with ADD, reads and writes 2 R C. */

template <typename T, int V, bool CENTRED, bool ADD>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_norm_kernel(const T *x, const T *branch, const typename tnc_real<T>::type *w, const typename tnc_real<T>::type *b,
                T *total, T *y, typename tnc_real<T>::type *r, int64_t rows, int C, double eps, int lanes)
{
    typedef typename tnc_real<T>::type R;
    enum { HELD = 4 };
    const int    lane = tnc_lane(lanes), each = (int)blockDim.x / lanes;
    const int    n = C / V;
    const double whole = 1.0 / C;
    const R      part = (R)whole;
    for (int64_t base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        const T      *from = (ADD && mine < rows ? (const T *)total : x) + row * C;
        tnc_pack<T, V> held[HELD];
        R    mean = 0, rest = 0, sum = 0;
        auto first = [&](int i) {                       /* the first look at a vector */
            tnc_pack<T, V> p = tnc_fetch<V>(x + row * C + i * V);
            if (ADD) {
                R u[V], v[V];
                tnc_unpack(u, p);
                tnc_load(v, branch + row * C + i * V);
                for (int q = 0; q < V; q++) u[q] += v[q];
                for (int q = 0; q < V; q++) p.x[q] = tnc_from<T>(u[q]);
                if (mine < rows) tnc_store(total + row * C + i * V, u);
            }
            return p;
        };
        auto pieces = [&](auto use) {
            int i, j;
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                R v[V];
                if (lane + j * lanes >= n) break;
                tnc_unpack(v, held[j]);
                use(v, lane + j * lanes);
            }
            for (i = lane + HELD * lanes; i < n; i += lanes) {
                R v[V];
                tnc_load(v, from + i * V);
                use(v, i);
            }
        };
        TNC_UNROLL
        for (int k = 0; k < HELD; k++) if (lane + k * lanes < n) held[k] = first(lane + k * lanes);
        for (int k = lane + HELD * lanes; ADD && k < n; k += lanes) first(k);
        if (CENTRED) {
            pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) mean += v[i] * part; });
            mean = tnc_row_sum(mean, lanes);
            pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) rest += (v[i] - mean) * part; });
            rest = tnc_row_sum(rest, lanes);
        }
        pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) { R z = v[i] - mean - rest; sum = tnc_fma(z, z, sum); } });
        sum = tnc_row_sum(sum, lanes);
        R scale = (R)rsqrt((double)sum * whole + eps);
        if constexpr (sizeof(R) == sizeof(float)) {
            const bool beyond = !(sum > 1e-30f && sum < 1e30f);
            if (__any_sync(0xffffffffu, beyond)) {
                double wide = 0;
                pieces([&](R (&v)[V], int) {
                    for (int i = 0; i < V; i++) { double z = v[i] - mean - rest; wide = fma(z, z, wide); }
                });
                wide = tnc_row_sum(wide, lanes);
                if (beyond) scale = (R)rsqrt(wide * whole + eps);
            }
        }
        if (mine >= rows) continue;
        if (lane == 0) r[row] = scale;
        pieces([&](R (&v)[V], int i) {
            R gain[V] = {}, bias[V] = {};
            if (w) tnc_load(gain, w + i * V);
            if (b) tnc_load(bias, b + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                R z = (v[q] - mean - rest) * scale;
                if (w) z *= gain[q];
                v[q] = b ? z + bias[q] : z;
            }
            tnc_store(y + row * C + i * V, v);
        });
    }
}

template <typename T, int V, bool CENTRED, bool ADD> static void tnc_norm_launch(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const int64_t  rows = c->out[0].shape[0], C = c->out[0].shape[1];
    const tnc_rows at = tnc_rows_of(C / V, 4, TNC_THREADS);
    TNC_LAUNCH((tnc_norm_kernel<T, V, CENTRED, ADD>), tnc_grid(s, rows, at.threads / at.lanes), at.threads, 0, s->stream,
               (const T *)c->in[0].data, (const T *)(ADD ? c->in[1].data : NULL), (const R *)c->in[1 + ADD].data,
               (const R *)(CENTRED ? c->in[2].data : NULL), (T *)(ADD ? c->out[0].data : NULL), (T *)c->out[ADD].data,
               (R *)c->out[1 + ADD].data, rows, (int)C, c->f[0], at.lanes);
}

template <typename T, bool CENTRED, bool ADD> static tn_status tnc_norm_of(tnc *s, const tn_call *c)
{
    enum { V = tnc_wide<T>::count, real = tnc_code<typename tnc_real<T>::type>::dtype };
    bool wide = c->out[0].shape[1] % V == 0;
    for (int i = 0; i < c->n_in; i++) {
        if (!tnc_has(&c->in[i], i <= ADD ? (int)c->in[0].dtype : (int)real)) return TN_ERR_DTYPE;
        wide = wide && tnc_aligned(c->in[i].data);
    }
    for (int i = 0; i <= ADD; i++) {
        if (!tnc_has(&c->out[i], c->in[0].dtype)) return TN_ERR_DTYPE;
        wide = wide && tnc_aligned(c->out[i].data);
    }
    if (!tnc_has(&c->out[1 + ADD], real)) return TN_ERR_DTYPE;
    if (c->out[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (c->out[0].shape[0] == 0 || c->out[0].shape[1] == 0) return TN_OK;
    if (wide) tnc_norm_launch<T, V, CENTRED, ADD>(s, c);
    else tnc_norm_launch<T, 1, CENTRED, ADD>(s, c);
    return TN_OK;
}

TNC_FN tn_status tnc_rmsnorm(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_of<T, false, false>(s, c))
}

TNC_FN tn_status tnc_residual_rmsnorm(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_of<T, false, true>(s, c))
}

TNC_FN tn_status tnc_layernorm(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_of<T, true, false>(s, c))
}

/* ---- rmsnorm_backward, layernorm_backward --------------------------------------------------------------- >>cuda-norm-back
   dx is computed row by row, with x and dy in registers. SUMS: a thread has the same columns in every row, so that it
   accumulates what its rows contribute to dw and db. A block adds these sums in the order of its threads and writes
   part[2,blocks,C], and a second kernel adds the blocks. If a thread would need too many columns, the first kernel saves the
   means of the rows instead, and a third kernel reads x and dy again. Floor: reads 2 R C numbers (3 R C if dx is
   accumulated), writes R C. */

template <int V, bool CENTRED>
struct tnc_norm_held { enum { count = CENTRED && V == 8 ? 2 : 4 }; };     /* vectors that a thread keeps in registers */

template <typename R> struct tnc_norm_more {
    R      *part;                       /* [2,blocks,C], or NULL         */
    R      *means;                      /* [2,rows]: mean, rest; or NULL */
    int64_t rows;
    int     C, lanes;
    bool    accumulate;
};

template <typename T, int V, bool CENTRED, bool SUMS>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_norm_backward_kernel(const T *x, const typename tnc_real<T>::type *w, const typename tnc_real<T>::type *r, const T *dy,
                         T *dx, tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    enum { HELD = tnc_norm_held<V, CENTRED>::count, MINE = SUMS ? HELD * V : 1 };
    const int    lanes = more.lanes, each = (int)blockDim.x / lanes;
    const int    lane = tnc_lane(lanes);
    const int    C = more.C, n = C / V;
    const double whole = 1.0 / C;
    const R      part = (R)whole;
    R            dw[MINE] = {}, db[MINE] = {};
    for (int64_t base = (int64_t)blockIdx.x * each; base < more.rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < more.rows ? mine : more.rows - 1;
        const bool    live = mine < more.rows;
        const T      *from = x + row * C, *from_dy = dy + row * C;
        const R       scale = r[row];
        tnc_pack<T, V> held[HELD], held_dy[HELD];
        R    mean = 0, rest = 0, sum = 0, dot = 0, along = 0;
        bool beyond = false;
        auto pieces = [&](auto use) {               /* use(x, dy, index of the vector, its number among this thread's) */
            R   v[V], d[V];
            int i, j;
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                if (lane + j * lanes >= n) break;
                tnc_unpack(v, held[j]);
                tnc_unpack(d, held_dy[j]);
                use(v, d, lane + j * lanes, j);
            }
            for (i = lane + HELD * lanes; !SUMS && i < n; i += lanes) {
                tnc_load(v, from + i * V);
                tnc_load(d, from_dy + i * V);
                use(v, d, i, 0);
            }
        };
        TNC_UNROLL
        for (int k = 0; k < HELD; k++) {
            if (lane + k * lanes >= n) break;
            held[k] = tnc_fetch<V>(from + (lane + k * lanes) * V);
            held_dy[k] = tnc_fetch<V>(from_dy + (lane + k * lanes) * V);
        }
        if (CENTRED) {
            pieces([&](R (&v)[V], R (&)[V], int, int) { for (int q = 0; q < V; q++) mean += v[q] * part; });
            mean = tnc_row_sum(mean, lanes);
            pieces([&](R (&v)[V], R (&)[V], int, int) { for (int q = 0; q < V; q++) rest += (v[q] - mean) * part; });
            rest = tnc_row_sum(rest, lanes);
            if (more.means && live && lane == 0) {
                more.means[row] = mean;
                more.means[more.rows + row] = rest;
            }
        }
        pieces([&](R (&v)[V], R (&d)[V], int i, int j) {
            R gain[V] = {};
            if (w) tnc_load(gain, w + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                const R z = (v[q] - mean - rest) * scale, g = w ? d[q] * gain[q] : d[q];
                if (SUMS && live) {
                    dw[j * V + q] = tnc_fma(d[q], z, dw[j * V + q]);
                    if (CENTRED) db[j * V + q] += d[q];
                }
                if (CENTRED) sum += g;
                dot = tnc_fma(g, CENTRED ? z : v[q], dot);
            }
        });
        if (!dx) continue;
        if (CENTRED) sum = tnc_row_sum(sum, lanes) * part;
        dot = tnc_row_sum(dot, lanes);         /* the factor of x is computed in double, since that term nearly cancels dy */
        if constexpr (sizeof(R) == sizeof(float) && !CENTRED) {         /* scale^3 or d * v may be out of range: use z */
            const double factor = (double)scale * scale * scale * dot * whole, size = factor < 0 ? -factor : factor;
            const R      least = 1e-37f * C;            /* below, terms may be subnormal; above the range, dot may be NaN */
            beyond = !(scale > 1e-6f && scale < 1e6f) || !(size <= 3.4e38) || (size != 0 && size < 1.2e-38)
               || (dot > -least && dot < least);
            if (__any_sync(0xffffffffu, beyond)) {
                double wide = 0;
                pieces([&](R (&v)[V], R (&d)[V], int i, int) {
                    R gain[V] = {};
                    if (w) tnc_load(gain, w + i * V);
                    for (int q = 0; q < V; q++) {
                        const double g = w ? d[q] * gain[q] : d[q], z = v[q] * scale;
                        wide = fma(g, z, wide);
                    }
                });
                wide = tnc_row_sum(wide, lanes);
                if (beyond) along = (R)(-(double)scale * wide * whole);
            }
        }
        dot = (R)(CENTRED ? -(double)dot * whole : -(double)scale * scale * scale * dot * whole);
        if (!live) continue;
        pieces([&](R (&v)[V], R (&d)[V], int i, int) {
            T *to = dx + row * C + i * V;
            R  gain[V];
            if (w) tnc_load(gain, w + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                const R g = w ? d[q] * gain[q] : d[q];
                if (CENTRED) v[q] = scale * tnc_fma((v[q] - mean - rest) * scale, dot, g - sum);
                else v[q] = beyond ? tnc_fma(v[q] * scale, along, g * scale) : tnc_fma(v[q], dot, g * scale);
            }
            if (more.accumulate) tnc_add_to(to, v);
            else tnc_store(to, v);
        });
    }
    if constexpr (SUMS) {
        TNC_SHARED(R, total, [2][32 * HELD * V]);
        const int group = (int)threadIdx.x / lanes;
        R        *to = more.part + (int64_t)blockIdx.x * C, *to_b = to + (int64_t)gridDim.x * C;
        int       j;
        auto leave = [&](R *at, const R *of, bool first) {
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                if (lane + j * lanes >= n) break;
                for (int q = 0; q < V; q++) {
                    R *one = at + (lane + j * lanes) * V + q;
                    *one = first ? of[j * V + q] : *one + of[j * V + q];
                }
            }
        };
        for (int g = 0; g < each; g++) {
            if (g == group) {
                leave(each > 1 ? total[0] : to, dw, g == 0);
                if (CENTRED) leave(each > 1 ? total[1] : to_b, db, g == 0);
            }
            __syncthreads();
        }
        for (j = (int)threadIdx.x; each > 1 && j < C; j += (int)blockDim.x) {
            to[j] = total[0][j];
            if (CENTRED) to_b[j] = total[1][j];
        }
    }
}

/* The contributions of chunks of rows to dw and db, part[2,chunks,C]. A block has 32 columns and reads 8 rows at a time. */
template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_norm_columns_kernel(const T *x, const typename tnc_real<T>::type *r, const T *dy, int64_t chunk,
                        tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, sums, [2][8][33]);
    const int     column = (int)threadIdx.x & 31, lane = (int)threadIdx.x >> 5;
    const int64_t c = (int64_t)blockIdx.x * 32 + column, begin = (int64_t)blockIdx.y * chunk;
    const int64_t end = begin + chunk < more.rows ? begin + chunk : more.rows;
    R       dw = 0, db = 0;
    int     k;
    TNC_UNROLL_BY(4)
    for (int64_t i = begin + lane; c < more.C && i < end; i += 8) {
        const R mean = more.means ? more.means[i] : R(0), rest = more.means ? more.means[more.rows + i] : R(0);
        const R d = tnc_to(dy[i * more.C + c]);
        dw = tnc_fma(d, (tnc_to(x[i * more.C + c]) - mean - rest) * r[i], dw);
        db += d;
    }
    sums[0][lane][column] = dw;
    sums[1][lane][column] = db;
    __syncthreads();
    if (lane > 1 || c >= more.C) return;
    for (dw = 0, k = 0; k < 8; k++) dw += sums[lane][k][column];
    more.part[((int64_t)lane * gridDim.y + blockIdx.y) * more.C + c] = dw;
}

template <typename T, int V, bool CENTRED, bool SUMS>
static void tnc_norm_backward_launch(tnc *s, const tn_call *c, tnc_rows at, unsigned blocks,
                                     tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    TNC_LAUNCH((tnc_norm_backward_kernel<T, V, CENTRED, SUMS>), blocks, at.threads, 0, s->stream, (const T *)c->in[0].data,
               (const R *)c->in[1].data, (const R *)c->in[2].data, (const T *)c->in[3].data, (T *)c->out[0].data, more);
}

template <typename T, bool CENTRED> static tn_status tnc_norm_backward_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count, HELD = tnc_norm_held<V, CENTRED>::count, real = tnc_code<R>::dtype };
    const int        chunks = 64;
    const int64_t    rows = c->in[0].shape[0], C = c->in[0].shape[1];
    R               *dw = c->n_out > 1 ? (R *)c->out[1].data : NULL;
    R               *db = CENTRED && c->n_out > 2 ? (R *)c->out[2].data : NULL;
    const bool       wide = C % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data)
                         && tnc_aligned(c->in[3].data) && tnc_aligned(c->out[0].data);
    const tnc_rows   at = tnc_rows_of(wide ? C / V : C, HELD, TNC_THREADS);
    const bool       wanted = dw || db, sums = wanted && wide && C / V <= (int64_t)at.lanes * HELD;
    const int        each = at.threads / at.lanes;
    const unsigned   blocks = sums ? (unsigned)tnc_bound(tnc_ceil(rows, each), 1, s->sms * (512 / at.threads))
                                   : tnc_grid(s, rows, each);
    const int64_t    parts = sums ? (int64_t)blocks : chunks;
    tnc_norm_more<R> more = { NULL, NULL, rows, (int)C, at.lanes, c->accumulate };
    if (!tnc_has(&c->in[1], real) || !tnc_has(&c->in[2], real) || !tnc_has(&c->in[3], c->in[0].dtype)
        || !tnc_has(&c->out[0], c->in[0].dtype) || (dw && !tnc_has(&c->out[1], real)) || (db && !tnc_has(&c->out[2], real)))
        return TN_ERR_DTYPE;
    if (C > INT32_MAX) return TN_ERR_SHAPE;
    if (rows == 0 || C == 0) return TN_OK;
    if (wanted) {
        more.part = (R *)tnc_scratch(s, (size_t)(2 * parts * C + 2 * rows) * sizeof(R));
        if (!more.part) return TN_ERR_MEMORY;
        if (CENTRED && !sums) more.means = more.part + 2 * parts * C;
    }
    if (sums) tnc_norm_backward_launch<T, V, CENTRED, true>(s, c, at, blocks, more);
    else if (wide) tnc_norm_backward_launch<T, V, CENTRED, false>(s, c, at, blocks, more);
    else tnc_norm_backward_launch<T, 1, CENTRED, false>(s, c, at, blocks, more);
    if (wanted && !sums)
        TNC_START((tnc_norm_columns_kernel<T>), dim3((unsigned)tnc_ceil(C, 32), chunks), (const T *)c->in[0].data,
                  (const R *)c->in[2].data, (const T *)c->in[3].data, tnc_ceil(rows, chunks), more);
    if (dw) tnc_add_parts(s, more.part, parts, C, dw);
    if (db) tnc_add_parts(s, more.part + parts * C, parts, C, db);
    return TN_OK;
}

TNC_FN tn_status tnc_rmsnorm_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_backward_of<T, false>(s, c))
}

TNC_FN tn_status tnc_layernorm_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_backward_of<T, true>(s, c))
}

/* ---- dropout ---------------------------------------------------------------------------------------------- >>cuda-dropout
   Masks are bit-identical to the CPU's: p is rounded to a float that lies between the same two of the 2^23 possible random
   numbers as p itself. Kept numbers are multiplied by 1/(1-p); in F64 they are divided by 1-p, as the reference does. Floor:
   the bytes of x and y, and 20 instructions of Philox per number. */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_dropout_kernel(const tnc_stream_of g, const int32_t *clock, T *y, const T *x, int64_t n, bool aligned, bool add, float p)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    const R       scale = (R)(1 / g.width);
    for (TNC_GRID_STRIDE(i, blocks)) {
        uint32_t word[4];
        R        v[4], old[4];
        tnc_load_four(v, x, i, n, aligned);
        if (add) tnc_load_four(old, (const T *)y, i, n, aligned);
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k++) {
            v[k] = tnc_unit(word[k]) < p ? R(0) : sizeof(R) == 8 ? v[k] / (R)g.width : v[k] * scale;
            if (add) v[k] += old[k];
        }
        tnc_store_four(y, i, n, aligned, v);
    }
}

TNC_FN tn_status tnc_dropout(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    const int64_t  n = y->shape[0];
    const float    p = ((float)ceil(c->f[0] * 8388608.0 - 0.5) + 0.5f) * (1.0f / 8388608.0f);
    if (x->dtype != y->dtype) return TN_ERR_DTYPE;
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_dropout_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS), tnc_stream_from(c, 0, 1 - c->f[0]),
                      (const int32_t *)c->in[1].data, (T *)y->data, (const T *)x->data, n,
                      tnc_aligned(x->data, alignof(tnc_pack<T, 4>)) && tnc_aligned(y->data, alignof(tnc_pack<T, 4>)),
                      c->accumulate, p))
    return TN_OK;
}

/* ---- cross_entropy ---------------------------------------------------------------------------------------- >>cuda-entropy
   Each thread keeps a running maximum m of the logits and a running sum of e^(z - m), which is rescaled when m grows (online
   softmax). Vectors that fit into shared memory are kept there for the second pass, which writes the gradient. Rows need not
   be 16-byte aligned: V > 1 takes single elements at both ends. Each block adds the losses of its rows, and a second kernel
   adds the blocks. Floor: reads R C numbers, and writes R C if there is a gradient. */

template <typename T> struct tnc_entropy {
    typedef typename tnc_real<T>::type R;
    const T       *z;
    const int32_t *label;
    R             *loss, *lse;
    T             *dz;
    double        *part;
    int32_t       *fault;
    int64_t        rows;
    int            C, lanes, max;          /* max: vectors of a row kept in shared memory */
    int32_t       *counted, ignored;       /* how many rows do not have the label that is ignored; NULL: all */
};

/* Adds to *counted how many labels are not the one that is ignored. */
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_entropy_count_kernel(const int32_t *label, int64_t rows, int32_t ignored, int32_t *counted)
{
    int32_t sum = 0;
    for (TNC_GRID_STRIDE(r, rows)) sum += label[r] != ignored;
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(counted, sum);
}

/* Adds V numbers to a running maximum and sum. While the maximum is -inf they add 0. */
template <bool FAST, typename R, int V>
static __device__ __forceinline__ void tnc_entropy_add(const R (&v)[V], R *most, R *sum)
{
    R top = v[0];
    TNC_UNROLL
    for (int k = 1; k < V; k++) top = tnc_larger(v[k], top);
    if (top > *most) {
        *sum *= tnc_exp<FAST>(*most - top);
        *most = top;
    }
    R from = *most > -R(INFINITY) ? *most : R(0);
    TNC_EACH *sum += tnc_exp<FAST>(v[k] - from);
}

template <typename T, int V> static __global__ void __launch_bounds__(512, sizeof(T) == 8 ? 1 : 2)
tnc_entropy_kernel(tnc_entropy<T> a)
{
    typedef typename tnc_real<T>::type R;
    typedef tnc_pack<T, V> P;
    enum { AHEAD = 4 };
    TNC_DYN_SHARED(P, shared);
    const int lanes = a.lanes, each = (int)blockDim.x / lanes, lane = tnc_lane(lanes);
    P        *held = shared + (int)threadIdx.x / lanes * a.max;
    double    loss = 0;
    for (int64_t base = (int64_t)blockIdx.x * each; base < a.rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < a.rows ? mine : a.rows - 1;
        const T      *from = a.z + row * a.C;
        const int     head = V == 1 ? 0 : min((int)((16 - (uintptr_t)from % 16) % 16 / sizeof(T)), a.C);
        const int     n = (a.C - head) / V, ends = a.C - n * V;
        const int32_t label = a.label[row];
        const bool    ignored = a.counted && label == a.ignored, good = !ignored && label >= 0 && label < a.C;
        const T      *body = from + head;
        R       most = -R(INFINITY), sum = 0;
        for (int i = lane; i < ends; i += lanes) {
            const R v[1] = { tnc_to(from[i < head ? i : i + n * V]) };
            tnc_entropy_add<true>(v, &most, &sum);
        }
        for (int i = lane; i < n; i += AHEAD * lanes) {
            P piece[AHEAD];
            TNC_UNROLL
            for (int k = 0; k < AHEAD; k++) if (i + k * lanes < n) piece[k] = tnc_fetch<V>(body + (i + k * lanes) * V);
            TNC_UNROLL
            for (int k = 0; k < AHEAD; k++) {
                R v[V];
                if (i + k * lanes >= n) break;
                if (i + k * lanes < a.max) held[i + k * lanes] = piece[k];
                tnc_unpack(v, piece[k]);
                tnc_entropy_add<true>(v, &most, &sum);
            }
        }
        R top = tnc_row_largest(most, lanes);
        sum = tnc_row_sum(sum * tnc_exp<true>(most - (top > -R(INFINITY) ? top : R(0))), lanes);
        if (top == -R(INFINITY)) sum = R(NAN);                  /* every logit is -inf: the loss is undefined */
        if (mine >= a.rows) continue;
        if (lane == 0) {
            a.lse[row] = top + tnc_log(sum);
            if (good) loss += (double)(top - tnc_to(from[label]) + tnc_log(sum));
            else if (!ignored) tnc_bad_id(a.fault, a.label, row, a.C, 2, a.counted ? a.ignored : 0);
        }
        if (!a.dz) continue;
        {
            const R share = R(1) / (a.counted ? R(max(*a.counted, 1)) : R(a.rows));
            T      *to = a.dz + row * a.C, *to_body = to + head;
            R       scale = share / sum;
            for (int i = lane; i < ends; i += lanes) {
                const int at = i < head ? i : i + n * V;
                const R   v = tnc_exp<true>(tnc_to(from[at]) - top) * scale - (at == label ? share : R(0));
                to[at] = tnc_from<T>(good ? v : R(0));
            }
            TNC_UNROLL_BY(2)
            for (int i = lane; i < n; i += lanes) {
                R v[V];
                tnc_unpack(v, i < a.max ? held[i] : tnc_fetch<V>(body + i * V));
                TNC_EACH {
                    v[k] = tnc_exp<true>(v[k] - top) * scale - (head + i * V + k == label ? share : R(0));
                    if (!good) v[k] = 0;
                }
                tnc_store(to_body + i * V, v);
            }
        }
    }
    loss = tnc_block_sum(loss);
    if (threadIdx.x == 0) a.part[blockIdx.x] = loss;
}

template <typename T, int V> static tn_status tnc_entropy_launch(tnc *s, tnc_entropy<T> a, bool ignores)
{
    typedef typename tnc_real<T>::type R;
    const int      pieces = a.C / V;
    const tnc_rows at = tnc_rows_of(pieces, 4, 512);
    const int64_t  whole = (int64_t)(s->shared_max - 4096) / 16, half = whole / 2;
    const unsigned blocks = tnc_grid(s, a.rows, at.threads / at.lanes);
    size_t         shared = 0;
    a.part = (double *)tnc_scratch(s, (blocks + 1) * sizeof(double));
    if (!a.part) return TN_ERR_MEMORY;
    if (ignores) {
        a.counted = (int32_t *)(a.part + blocks);
        cudaMemsetAsync(a.counted, 0, sizeof *a.counted, s->stream);
        TNC_START(tnc_entropy_count_kernel, tnc_grid(s, a.rows, TNC_THREADS), a.label, a.rows, a.ignored, a.counted);
    }
    a.lanes = at.lanes;
    a.max = 0;
    if (V > 1 && a.dz) {
        a.max = pieces <= half || pieces > whole ? tnc_bound(pieces, 0, (int)half) : pieces;
        shared = (size_t)a.max * 16 * (size_t)(at.threads / at.lanes);
        tnc_shared_for(s, tnc_entropy_kernel<T, V>, shared);
    }
    TNC_LAUNCH((tnc_entropy_kernel<T, V>), blocks, at.threads, shared, s->stream, a);
    TNC_START((tnc_mean_kernel<double, R>), 1, (const double *)a.part, (int64_t)blocks, (double)a.rows,
              (const int32_t *)a.counted, a.loss);
    return TN_OK;
}

template <typename T> static tn_status tnc_cross_entropy_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    tnc_entropy<T> a;
    memset(&a, 0, sizeof a);
    a.z = (const T *)c->in[0].data;
    a.label = (const int32_t *)c->in[1].data;
    a.loss = (R *)c->out[0].data;
    a.lse = (R *)c->out[1].data;
    a.fault = (int32_t *)c->out[2].data;
    a.dz = c->n_out > 3 ? (T *)c->out[3].data : NULL;
    a.rows = c->in[0].shape[0];
    a.C = (int)c->in[0].shape[1];
    a.ignored = (int32_t)c->i[1];
    if (c->in[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype) || !tnc_has(&c->out[1], tnc_code<R>::dtype)
        || (a.dz && !tnc_has(&c->out[3], c->in[0].dtype))) return TN_ERR_DTYPE;
    if (a.dz && ((uintptr_t)a.z - (uintptr_t)a.dz) % 16 != 0) return tnc_entropy_launch<T, 1>(s, a, c->i[0] != 0);
    return tnc_entropy_launch<T, tnc_wide<T>::count>(s, a, c->i[0] != 0);
}

TNC_FN tn_status tnc_cross_entropy(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_cross_entropy_of<T>(s, c))
}

/* ---- softmax, softmax_backward ---------------------------------------------------------------------------- >>cuda-softmax
   The running maximum and sum of a row are computed as in cross_entropy; then the row is read again. Backward: the sum of dy
   * y, then dx. Floor: reads R C numbers, backward 2 R C (3 R C if dx is accumulated), and writes R C; the second read comes
   from the cache. */

template <typename T, int V>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_softmax_kernel(const T *x, T *y, const int64_t rows, const int C, const int lanes, const bool log_of)
{
    typedef typename tnc_real<T>::type R;
    enum { FAST = sizeof(T) == 2 };
    const int lane = tnc_lane(lanes), each = (int)blockDim.x / lanes, n = C / V;
    for (int64_t base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        R   most = -R(INFINITY), sum = 0, v[V];
        for (int i = lane; i < n; i += lanes) {
            tnc_load(v, x + row * C + i * V);
            tnc_entropy_add<FAST>(v, &most, &sum);
        }
        R top = tnc_row_largest(most, lanes);
        if (top == -R(INFINITY)) top = 0;                       /* every number is -inf: the sum is 0 */
        sum = tnc_row_sum(sum * tnc_exp<FAST>(most - top), lanes);
        R scale = log_of ? tnc_log(sum) : sum == 0 ? R(0) : R(1) / sum;
        if (mine >= rows) continue;
        for (int i = lane; i < n; i += lanes) {
            tnc_load(v, x + row * C + i * V);
            TNC_EACH {
                v[k] -= top;
                v[k] = log_of ? v[k] - scale : tnc_exp<FAST>(v[k]) * scale;
                if (log_of && sum == 0) v[k] = -R(INFINITY);
            }
            tnc_store(y + row * C + i * V, v);
        }
    }
}

template <typename T, int V>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_softmax_backward_kernel(const T *y, const T *dy, T *dx, const int64_t rows, const int C, const int lanes,
                            const bool log_of, const bool add)
{
    typedef typename tnc_real<T>::type R;
    enum { FAST = sizeof(T) == 2 };
    const int lane = tnc_lane(lanes), each = (int)blockDim.x / lanes, n = C / V;
    for (int64_t base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        R             sum = 0, v[V], d[V];
        for (int i = lane; i < n; i += lanes) {
            tnc_load(v, y + row * C + i * V);
            tnc_load(d, dy + row * C + i * V);
            TNC_EACH sum = log_of ? sum + d[k] : tnc_fma(d[k], v[k], sum);
        }
        sum = tnc_row_sum(sum, lanes);
        if (mine >= rows) continue;
        for (int i = lane; i < n; i += lanes) {
            T *to = dx + row * C + i * V;
            tnc_load(v, y + row * C + i * V);
            tnc_load(d, dy + row * C + i * V);
            TNC_EACH v[k] = log_of ? tnc_fma(-tnc_exp<FAST>(v[k]), sum, d[k]) : v[k] * (d[k] - sum);
            if (add) tnc_add_to(to, v);
            else tnc_store(to, v);
        }
    }
}

template <typename T, int V> static void tnc_softmax_launch(tnc *s, const tn_call *c)
{
    const int64_t  rows = c->out[0].shape[0], C = c->out[0].shape[1];
    const tnc_rows at = tnc_rows_of(C / V, 4, TNC_THREADS);
    const unsigned blocks = tnc_grid(s, rows, at.threads / at.lanes);
    const T       *x = (const T *)c->in[0].data, *dy = (const T *)c->in[1].data;
    T             *y = (T *)c->out[0].data;
    if (c->kernel == TN_KERNEL_SOFTMAX)
        TNC_LAUNCH((tnc_softmax_kernel<T, V>), blocks, at.threads, 0, s->stream, x, y, rows, (int)C, at.lanes, c->i[0] != 0);
    else
        TNC_LAUNCH((tnc_softmax_backward_kernel<T, V>), blocks, at.threads, 0, s->stream, x, dy, y, rows, (int)C, at.lanes,
                   c->i[0] != 0, c->accumulate);
}

template <typename T> static tn_status tnc_softmax_of(tnc *s, const tn_call *c)
{
    enum { V = tnc_wide<T>::count };
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    if (c->out[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (c->out[0].shape[0] == 0 || c->out[0].shape[1] == 0) return TN_OK;
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data)
        && tnc_aligned(c->out[0].data)) tnc_softmax_launch<T, V>(s, c);
    else tnc_softmax_launch<T, 1>(s, c);
    return TN_OK;
}

TNC_FN tn_status tnc_softmax(tnc *s, const tn_call *c) { TNC_TYPES(c->out[0].dtype, T, return tnc_softmax_of<T>(s, c)) }

TNC_FN tn_status tnc_softmax_backward(tnc *s, const tn_call *c) { return tnc_softmax(s, c); }

/* ---- chain, chain_backward ---------------------------------------------------------------------------------- >>cuda-chain
   One block per chain, whose products depend on each other. The running product is in shared memory, and the next matrix is
   loaded into registers while the present one is multiplied. The product is normalised when its norm leaves 2^+-16, and at
   the end. Matrices that are too large for shared memory stay in the workspace. TILE: a thread computes TILE x TILE
   elements. Floor: 2 n d^3 flops per chain, twice that backward; different chains run in parallel. */

template <typename R> struct tnc_chains {
    R *m, *p, *v;                           /* [b,n,d,d], [b,n,d,d] or NULL, [b,n] or NULL */
    R *y;                                   /* [b,d*d+1]: the output, or its gradient      */
    R *dm, *work;                           /* [b,n,d,d]; [b,2 or 4,d,d]                   */
    int64_t batch, n;
    int     d;
    bool    shared, accumulate;
};

enum { TNC_CHAIN_AHEAD = 4 };

/* Prefetches the next matrix: fetch starts the loads into registers, put stores them to shared memory. put itself reads the
   elements that do not fit into registers. */
template <typename R>
static __device__ __forceinline__ void tnc_chain_fetch(R (&next)[TNC_CHAIN_AHEAD], const R *from, int dd)
{
    TNC_UNROLL
    for (int k = 0; k < TNC_CHAIN_AHEAD; k++) {
        const int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < dd) next[k] = from[i];
    }
}

template <typename R>
static __device__ __forceinline__ void tnc_chain_put(R *to, const R (&next)[TNC_CHAIN_AHEAD], const R *from, int dd)
{
    TNC_UNROLL
    for (int k = 0; k < TNC_CHAIN_AHEAD; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < dd) to[i] = next[k];
    }
    for (int i = (int)threadIdx.x + TNC_CHAIN_AHEAD * (int)blockDim.x; i < dd; i += (int)blockDim.x) to[i] = from[i];
}

/* a b, a^T b or a b^T; keep(index, value) receives each element. */
template <int TILE, bool TA, bool TB, typename R, typename K>
static __device__ __forceinline__ void tnc_chain_product(const R *a, const R *b, int d, K keep)
{
    const int side = (d + TILE - 1) / TILE;
    for (int t = (int)threadIdx.x; t < side * side; t += (int)blockDim.x) {
        const int row = t / side, column = t % side;            /* and every side-th row and column after them */
        R         sum[TILE][TILE] = {};
        int       at_row[TILE], at_column[TILE];
        TNC_UNROLL
        for (int i = 0; i < TILE; i++) {
            at_row[i] = (row + i * side < d ? row + i * side : d - 1) * (TA ? 1 : d);
            at_column[i] = (column + i * side < d ? column + i * side : d - 1) * (TB ? d : 1);
        }
        for (int k = 0; k < d; k++) {
            R left[TILE], right[TILE];
            TNC_UNROLL
            for (int i = 0; i < TILE; i++) {
                left[i] = a[at_row[i] + (TA ? k * d : k)];
                right[i] = b[at_column[i] + (TB ? k : k * d)];
            }
            TNC_UNROLL
            for (int i = 0; i < TILE; i++)
                TNC_UNROLL
                for (int j = 0; j < TILE; j++) sum[i][j] = tnc_fma(left[i], right[j], sum[i][j]);
        }
        TNC_UNROLL
        for (int i = 0; i < TILE; i++)
            TNC_UNROLL
            for (int j = 0; j < TILE; j++)
                if (row + i * side < d && column + j * side < d) keep((row + i * side) * d + column + j * side, sum[i][j]);
    }
}

/* Divides x by its norm if that is required or the norm has left its range, and returns the divisor. squares: this thread's
   share of |x|^2. If the sum of squares overflows or vanishes, x is first divided by a power of two. A zero matrix stays
   zero; an infinity makes NaN. */
template <typename R> static __device__ __forceinline__ R tnc_chain_norm(R *x, int dd, R squares, bool must)
{
    const R limit = sizeof(R) == 4 ? R(1e30) : R(1e300), near_one = R(4294967296.0);
    R       total = tnc_block_sum(squares), most = 1;
    int     i, power = 0;
    if (!must && total > 1 / near_one && total < near_one) return R(1);
    if (!(total > 1 / limit && total < limit)) {
        for (most = 0, i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) most = tnc_larger(tnc_abs(x[i]), most);
        most = tnc_row_largest(most, (int)blockDim.x);
        if (most == 0 && total == 0) return R(0);
        power = most == 0 || most == R(INFINITY) ? 0 : ilogb(most);
        for (squares = 0, i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) {
            x[i] = ldexp(x[i], -power);
            squares = tnc_fma(x[i], x[i], squares);
        }
        total = tnc_block_sum(squares);
        if (most == R(INFINITY)) total = R(NAN);
    }
    R unit = rsqrt(total);
    for (i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) x[i] *= unit;
    __syncthreads();
    return ldexp(total * unit, power);
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2) tnc_chain_kernel(tnc_chains<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t b = blockIdx.x; b < a.batch; b += gridDim.x) {
        R       *to = a.shared ? shared : a.work + b * 2 * dd, *from = to + dd;
        R       *keep = a.shared ? shared + 2 * dd : NULL;
        const R *m = a.m + b * a.n * dd;
        R        next[TNC_CHAIN_AHEAD], *y = a.y + b * (dd + 1);
        double   log_norm = 0;
        if (a.shared && a.n > 1) tnc_chain_fetch(next, m + dd, dd);
        for (int64_t j = 0; j < a.n; j++, m += dd) {
            R squares = 0;
            R *swap = from; from = to; to = swap;
            if (j == 0) {
                for (int i = me; i < dd; i += threads) {
                    to[i] = m[i];
                    squares = tnc_fma(to[i], to[i], squares);
                }
            } else {
                if (keep) {
                    tnc_chain_put(keep, next, m, dd);
                    if (j + 1 < a.n) tnc_chain_fetch(next, m + dd, dd);
                    __syncthreads();
                }
                tnc_chain_product<TILE, false, false>((const R *)from, keep ? (const R *)keep : m, d, [&](int at, R x) {
                    to[at] = x;
                    squares = tnc_fma(x, x, squares);
                });
            }
            R norm = tnc_chain_norm(to, dd, squares, j == a.n - 1);
            if (norm != 1) log_norm += log((double)norm);
            if (me == 0 && a.v) a.v[b * a.n + j] = norm;
            for (int i = me; a.p && i < dd; i += threads) a.p[(b * a.n + j) * dd + i] = to[i];
        }
        for (int i = me; i < dd; i += threads) y[i] = to[i];
        if (me == 0) y[dd] = (R)log_norm;
        __syncthreads();
    }
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_chain_backward_kernel(tnc_chains<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t b = blockIdx.x; b < a.batch; b += gridDim.x) {
        const int64_t last = (b + 1) * a.n - 1;
        R       *g = a.shared ? shared : a.work + b * 4 * dd, *next = g + dd;
        R       *keep = a.shared ? shared + 2 * dd : NULL;
        const R *y = a.p + last * dd, *dy = a.y + b * (dd + 1);
        R        ahead[2][TNC_CHAIN_AHEAD];
        const R  last_v = a.v[last];
        double   scale = -log((double)last_v);
        R        dot = 0, factor = last_v == 0 ? R(0) : (R)exp(scale / 2);       /* applied twice: its square may overflow */
        for (int i = me; i < dd; i += threads) dot = tnc_fma(y[i], dy[i], dot);
        dot = dy[dd] - tnc_block_sum(dot);
        for (int i = me; i < dd; i += threads) g[i] = tnc_fma(dot, y[i], dy[i]);
        if (keep && a.n > 1) {
            tnc_chain_fetch(ahead[0], a.p + (last - 1) * dd, dd);
            tnc_chain_fetch(ahead[1], a.m + last * dd, dd);
        }
        __syncthreads();
        for (int64_t j = last; ; j--) {
            const R *p = a.p + (j - 1) * dd, *m = a.m + j * dd;
            R       *to = a.dm + j * dd, squares = 0;
            double   before = scale;
            auto     give = [&](int at, R x) {
                x = factor == 0 ? R(0) : factor * (factor * x);
                to[at] = a.accumulate ? to[at] + x : x;
            };
            if (j == b * a.n) {
                for (int i = me; i < dd; i += threads) give(i, g[i]);
                break;
            }
            if (keep) {
                tnc_chain_put(keep, ahead[0], p, dd);
                tnc_chain_put(keep + dd, ahead[1], m, dd);
                if (j - 1 > b * a.n) {
                    tnc_chain_fetch(ahead[0], p - dd, dd);
                    tnc_chain_fetch(ahead[1], m - dd, dd);
                }
                __syncthreads();
            }
            tnc_chain_product<TILE, true, false>(keep ? (const R *)keep : p, (const R *)g, d, give);
            tnc_chain_product<TILE, false, true>((const R *)g, keep ? (const R *)keep + dd : m, d, [&](int at, R x) {
                next[at] = x;
                squares = tnc_fma(x, x, squares);
            });
            R norm = tnc_chain_norm(next, dd, squares, false);
            TNC_ROLLED
            for (int i = 0; i < 2; i++) {
                const R by = i == 0 ? norm : a.v[j - 1];
                if (by != 1 && (by != 0 || i == 1)) scale += (i == 0 ? 1 : -1) * log((double)by);
            }
            if (scale != before && last_v != 0) factor = (R)exp(scale / 2);
            R *swap = g; g = next; next = swap;
        }
        __syncthreads();
    }
}

template <typename R> static tn_status tnc_chain_launch(tnc *s, tnc_chains<R> a, bool backward)
{
    const int    tile = a.d > 16 ? 4 : 1, side = (a.d + tile - 1) / tile;
    const int    threads = 32 * tnc_bound(tnc_ceil((int64_t)side * side, 32), 1, 8);
    const size_t bytes = (size_t)(backward ? 4 : 3) * (size_t)a.d * (size_t)a.d * sizeof(R);
    const unsigned blocks = (unsigned)tnc_bound(a.batch, 1, 1 << 30);
    void (*kernel)(tnc_chains<R>) = backward ? tile > 1 ? tnc_chain_backward_kernel<R, 4> : tnc_chain_backward_kernel<R, 1>
                                            : tile > 1 ? tnc_chain_kernel<R, 4> : tnc_chain_kernel<R, 1>;
    a.shared = bytes + 2048 <= s->shared_max;
    if (a.shared) tnc_shared_for(s, kernel, bytes);
    TNC_LAUNCH(kernel, blocks, threads, a.shared ? bytes : 0, s->stream, a);
    return TN_OK;
}

template <typename R> static tn_status tnc_chain_of(tnc *s, const tn_call *c, bool backward)
{
    tnc_chains<R> a;
    memset(&a, 0, sizeof a);
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    a.batch = c->in[0].shape[0];
    a.n = c->in[0].shape[1];
    a.accumulate = c->accumulate;
    if (a.batch == 0 || a.n == 0) return TN_OK;
    if (c->in[0].shape[2] > 16384) return TN_ERR_SHAPE;         /* d * d is an int */
    a.d = (int)c->in[0].shape[2];
    a.m = (R *)c->in[0].data;
    a.p = (R *)(backward ? c->in[1].data : c->out[1].data);
    a.v = (R *)(backward ? c->in[2].data : c->out[2].data);
    a.y = (R *)(backward ? c->in[3].data : c->out[0].data);
    a.dm = backward ? (R *)c->out[0].data : NULL;
    a.work = (R *)(backward ? c->out[1].data : c->out[3].data);
    return tnc_chain_launch(s, a, backward);
}

/* Results are divided by norms, for which BF16 is too coarse: the dispatcher converts BF16 operands to F32. */
static tn_status tnc_chain_call(tnc *s, const tn_call *c, bool backward)
{
    TNC_REALS(c->in[0].dtype, R, return tnc_chain_of<R>(s, c, backward))
}

TNC_FN tn_status tnc_chain(tnc *s, const tn_call *c) { return tnc_chain_call(s, c, false); }
TNC_FN tn_status tnc_chain_backward(tnc *s, const tn_call *c) { return tnc_chain_call(s, c, true); }

/* ---- scan, scan_states and their backward passes ------------------------------------------------------------ >>cuda-scan
   Matrices: one block per chain, as in >>cuda-chain. The running product stays as it is until its norm leaves 2^+-16, and is
   divided by its norm on the way to memory. Floor: 2 n d^3 flops per chain, twice that backward.
   States: a row of lanes per chain, so that a block has several chains, which share the core of a site in shared memory, or
   one chain if d > 32. Cores are stored as [e,s,f], where e is summed over and f belongs to the lanes; where products need a
   transposed core, it is transposed on its way to shared memory. Cores that are too large for that, and the matrices of
   tn_scan_vector, which are used once, are read in place. Floor: 2 n s d^2 flops per chain, twice that backward. */

template <typename R> struct tnc_scans {
    const R *m, *v, *phi;                   /* matrices or cores; the first state and the features, or NULL */
    R       *y, *logs, *r;                  /* backward: what was computed, and below the gradients         */
    const R *dy, *dlogs;
    R       *given, *z, *work;              /* of m or phi; of v or all states; [b,2,d,d]                   */
    int64_t  batch, n, states, v_step, site;        /* site: numbers between the cores of two sites, or 0   */
    int      d, features, lanes;
    bool     reverse, transposed, shared, accumulate;
};

template <typename R> static __device__ __forceinline__ int64_t tnc_scan_place(const tnc_scans<R> &a, int64_t b, int64_t k)
{
    return b * a.states + (a.reverse ? a.states - 1 - k : k);
}

template <typename R> static __device__ __forceinline__ int64_t tnc_scan_site(const tnc_scans<R> &a, int64_t b, int64_t k)
{
    return b * a.n + (a.reverse ? a.states - 1 - k : k - (a.states - a.n));
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2) tnc_scan_kernel(tnc_scans<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const R   near_one = R(4294967296.0);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t b = blockIdx.x; b < a.batch; b += gridDim.x) {
        R     *to = shared, *from = shared + dd, *keep = a.shared ? shared + 2 * dd : NULL;
        R      next[TNC_CHAIN_AHEAD], before = 1;
        double log_scale = 0;
        if (a.shared) tnc_chain_fetch(next, a.m + tnc_scan_site(a, b, 0) * dd, dd);
        for (int64_t k = 0; k < a.states; k++) {
            const int64_t at = tnc_scan_place(a, b, k);
            const R      *m = a.m + tnc_scan_site(a, b, k) * dd;
            R            *y = a.y + at * dd, squares = 0, norm, unit = 1;
            auto          take = [&](int j, R x) {
                to[j] = x;
                squares = tnc_fma(x, x, squares);
            };
            R *swap = from; from = to; to = swap;
            if (!a.shared) {
                to = y;
                from = a.y + tnc_scan_place(a, b, k > 0 ? k - 1 : 0) * dd;
            }
            if (keep) {
                tnc_chain_put(keep, next, m, dd);
                if (k + 1 < a.states) tnc_chain_fetch(next, a.m + tnc_scan_site(a, b, k + 1) * dd, dd);
                __syncthreads();
                m = keep;
            }
            if (k == 0) for (int i = me; i < dd; i += threads) take(i, m[i]);
            else if (a.reverse) tnc_chain_product<TILE, false, false>(m, (const R *)from, d, take);
            else tnc_chain_product<TILE, false, false>((const R *)from, m, d, take);
            R total = tnc_block_sum(squares);
            if (a.shared && total > 1 / near_one && total < near_one) {
                norm = tnc_sqrt(total);
                unit = R(1) / norm;
            } else norm = tnc_chain_norm(to, dd, squares, true);
            for (int i = me; a.shared && i < dd; i += threads) y[i] = to[i] * unit;
            log_scale += log((double)norm / (double)before);
            if (me == 0) {
                a.logs[at] = (R)log_scale;
                if (a.r) a.r[at] = norm / before;
            }
            before = unit == 1 ? R(1) : norm;
            __syncthreads();
        }
    }
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_scan_backward_kernel(tnc_scans<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t b = blockIdx.x; b < a.batch; b += gridDim.x) {
        R     *z = a.shared ? shared : a.work + b * 2 * dd, *next = z + dd;
        R     *keep = a.shared ? shared + 2 * dd : NULL;
        double later = 0;
        for (int i = me; i < dd; i += threads) z[i] = 0;
        __syncthreads();
        for (int64_t k = a.states - 1; k >= 0; k--) {
            const int64_t at = tnc_scan_place(a, b, k), site = tnc_scan_site(a, b, k) * dd;
            const R      *m = a.m + site, *p = a.y + tnc_scan_place(a, b, k > 0 ? k - 1 : 0) * dd, *y = a.y + at * dd;
            const R      *dy = a.dy + at * dd, r = a.r[at], by = r == 0 ? R(0) : R(1) / r;
            R            *to = a.given + site, dot = 0;
            auto          give = [&](int j, R x) { to[j] = a.accumulate ? to[j] + x : x; };
            for (int i = me; i < dd; i += threads) dot = tnc_fma(z[i] + dy[i], y[i], dot);
            later = r == 0 ? 0 : later + (double)a.dlogs[at];
            dot = (R)(later - (double)tnc_block_sum(dot));
            for (int i = me; i < dd; i += threads) {
                z[i] = tnc_fma(dot, y[i], z[i] + dy[i]) * by;
                if (k == 0) give(i, z[i]);
                else if (keep) {
                    keep[i] = p[i];
                    keep[dd + i] = m[i];
                }
            }
            __syncthreads();
            if (k == 0) break;
            if (keep) {
                p = keep;
                m = keep + dd;
            }
            if (a.reverse) {
                tnc_chain_product<TILE, false, true>((const R *)z, p, d, give);
                tnc_chain_product<TILE, true, false>(m, (const R *)z, d, [&](int j, R x) { next[j] = x; });
            } else {
                tnc_chain_product<TILE, true, false>(p, (const R *)z, d, give);
                tnc_chain_product<TILE, false, true>((const R *)z, m, d, [&](int j, R x) { next[j] = x; });
            }
            __syncthreads();
            R *swap = z; z = next; next = swap;
        }
        __syncthreads();
    }
}

/* The core of the step to state k, with these steps of e and f, in shared memory or in place. All threads call it. */
template <typename R>
static __device__ __forceinline__ const R *tnc_scan_core(const tnc_scans<R> &a, R *keep, int64_t b, int64_t k, int *step_e,
                                                         int *step_f)
{
    const int d = a.d, width = a.features * d;
    const R  *core = a.m + tnc_scan_site(a, a.phi ? 0 : b, k) * a.site;
    *step_e = width;
    *step_f = 1;
    if (!keep) {
        if (a.transposed) {
            *step_e = 1;
            *step_f = width;
        }
        return core;
    }
    __syncthreads();                                            /* the core before it is not read any more */
    for (int i = (int)threadIdx.x; i < d * width; i += (int)blockDim.x)
        keep[a.transposed ? i % d * width + i / d % a.features * d + i / width : i] = core[i];
    __syncthreads();
    return keep;
}

/* Divides the row x [d] by its norm, which it returns. A row of zeros stays zero, an infinity makes NaN. */
template <typename R> static __device__ __forceinline__ R tnc_scan_unit(R *x, int d, int lanes, R most)
{
    const int lane = tnc_lane(lanes);
    R         squares = 0;
    most = tnc_row_largest(most, lanes);
    int power = most > 0 && most < R(INFINITY) ? ilogb(most) : 0;
    for (int i = lane; i < d; i += lanes) {
        x[i] = ldexp(x[i], -power);
        squares = tnc_fma(x[i], x[i], squares);
    }
    R norm = tnc_sqrt(tnc_row_sum(squares, lanes));             /* of all threads, whatever their rows hold */
    if (most == R(INFINITY)) norm = R(NAN);
    for (int i = lane; i < d; i += lanes) x[i] = norm == 0 ? R(0) : x[i] / norm;
    return ldexp(norm, power);
}

template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_scan_states_kernel(tnc_scans<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, S = a.features, lanes = a.lanes, rows = lanes > 32 ? 1 : (int)blockDim.x / lanes;
    const int lane = tnc_lane(lanes), row = lanes > 32 ? 0 : (int)threadIdx.x / lanes;
    R        *keep = a.shared ? shared + 2 * rows * d : NULL, *to = shared + 2 * row * d, *from = to + d;
    int       step_e, step_f;
    for (int64_t base = (int64_t)blockIdx.x * rows; base < a.batch; base += (int64_t)gridDim.x * rows) {
        const bool    mine = base + row < a.batch;
        const int64_t b = mine ? base + row : a.batch - 1;
        double        log_scale = 0;
        for (int64_t k = 0; k < a.states; k++) {
            const int64_t at = tnc_scan_place(a, b, k);
            const R      *phi = a.phi ? a.phi + tnc_scan_site(a, b, k) * S : NULL;
            R             most = 0;
            R *swap = from; from = to; to = swap;
            if (k == 0) for (int f = lane; f < d; f += lanes) to[f] = a.v[b * a.v_step + f];
            else {
                const R *core = tnc_scan_core(a, keep, b, k, &step_e, &step_f);
                if (!keep) __syncthreads();
                for (int f = lane; f < d; f += lanes) {
                    R total = 0;
                    for (int i = 0; i < S; i++) {
                        R sum = 0;
                        for (int e = 0; e < d; e++) sum = tnc_fma(from[e], core[e * step_e + i * d + f * step_f], sum);
                        total = phi ? tnc_fma(phi[i], sum, total) : sum;
                    }
                    to[f] = total;
                }
            }
            for (int f = lane; f < d; f += lanes) most = tnc_larger(tnc_abs(to[f]), most);
            R norm = tnc_scan_unit(to, d, lanes, most);
            log_scale += log((double)norm);
            for (int f = lane; mine && f < d; f += lanes) a.y[at * d + f] = to[f];
            if (mine && lane == 0) {
                a.logs[at] = (R)log_scale;
                if (a.r) a.r[at] = norm;
            }
        }
        __syncthreads();
    }
}

template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_scan_states_backward_kernel(tnc_scans<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, S = a.features, lanes = a.lanes, rows = lanes > 32 ? 1 : (int)blockDim.x / lanes;
    const int lane = tnc_lane(lanes), row = lanes > 32 ? 0 : (int)threadIdx.x / lanes;
    R        *keep = a.shared ? shared + 2 * rows * d : NULL, *x = shared + 2 * row * d, *next = x + d;
    int       f, step_e, step_f;
    for (int64_t base = (int64_t)blockIdx.x * rows; base < a.batch; base += (int64_t)gridDim.x * rows) {
        const bool    mine = base + row < a.batch;
        const int64_t b = mine ? base + row : a.batch - 1;
        double        later = 0;
        for (f = lane; f < d; f += lanes) x[f] = 0;
        for (int64_t k = a.states - 1; k >= 0; k--) {
            const int64_t at = tnc_scan_place(a, b, k), site = tnc_scan_site(a, b, k);
            const R      *y = a.y + at * d, *dy = a.dy + at * d;
            const R      *before = a.y + tnc_scan_place(a, b, k > 0 ? k - 1 : 0) * d;
            const R       r = a.r[at], by = r == 0 ? R(0) : R(1) / r;
            R             dot = 0;
            for (f = lane; f < d; f += lanes) dot = tnc_fma(x[f] + dy[f], y[f], dot);
            later = r == 0 ? 0 : later + (double)a.dlogs[at];
            dot = (R)(later - (double)tnc_row_sum(dot, lanes));
            for (f = lane; f < d; f += lanes) {
                x[f] = tnc_fma(dot, y[f], x[f] + dy[f]) * by;
                if (mine && a.z && (a.phi || k == 0)) a.z[(a.phi ? at : b) * d + f] = x[f];
            }
            if (k == 0) break;
            const R *core = tnc_scan_core(a, keep, b, k, &step_e, &step_f);
            if (!keep) __syncthreads();
            for (int i = 0; i < S; i++) {
                const R by_phi = a.phi ? a.phi[site * S + i] : R(1);
                for (dot = 0, f = lane; f < d; f += lanes) {
                    R sum = 0;
                    for (int e = 0; e < d; e++) sum = tnc_fma(x[e], core[e * step_e + i * d + f * step_f], sum);
                    next[f] = tnc_fma(by_phi, sum, i > 0 ? next[f] : R(0));
                    dot = tnc_fma(before[f], sum, dot);
                }
                dot = tnc_row_sum(dot, lanes);
                if (mine && a.phi && a.given && lane == 0) {
                    R *to = a.given + site * S + i;
                    *to = a.accumulate ? *to + dot : dot;
                }
            }
            if (S == 0) for (f = lane; f < d; f += lanes) next[f] = 0;
            for (int i = lane; mine && !a.phi && a.given && i < d * d; i += lanes) {
                R      *to = a.given + site * d * d + i;
                const R product = a.reverse ? x[i / d] * before[i % d] : before[i / d] * x[i % d];
                *to = a.accumulate ? *to + product : product;
            }
            __syncthreads();
            R *swap = x; x = next; next = swap;
        }
        __syncthreads();
    }
}

template <typename R> static tn_status tnc_scan_launch(tnc *s, tnc_scans<R> a, bool backward)
{
    const int    tile = a.d > 16 ? 4 : 1, side = (a.d + tile - 1) / tile;
    const int    threads = 32 * tnc_bound(tnc_ceil((int64_t)side * side, 32), 1, 8);
    const size_t bytes = (size_t)(backward ? 4 : 3) * (size_t)a.d * (size_t)a.d * sizeof(R);
    const unsigned blocks = (unsigned)tnc_bound(a.batch, 1, 1 << 30);
    void (*kernel)(tnc_scans<R>) = backward ? tile > 1 ? tnc_scan_backward_kernel<R, 4> : tnc_scan_backward_kernel<R, 1>
                                            : tile > 1 ? tnc_scan_kernel<R, 4> : tnc_scan_kernel<R, 1>;
    a.shared = bytes + 2048 <= s->shared_max;
    if (a.shared) tnc_shared_for(s, kernel, bytes);
    TNC_LAUNCH(kernel, blocks, threads, a.shared ? bytes : 0, s->stream, a);
    return TN_OK;
}

template <typename R> static tn_status tnc_scan_states_launch(tnc *s, tnc_scans<R> a, bool backward)
{
    const int      lanes = a.d <= 32 ? tnc_lanes(a.d, 32) : 32 * tnc_bound(tnc_ceil(a.d, 32), 2, 8);
    const int      threads = lanes > 32 ? lanes : 128, rows = lanes > 32 ? 1 : threads / lanes;
    const size_t   states = (size_t)rows * 2 * (size_t)a.d * sizeof(R);
    const size_t   core = (size_t)a.d * (size_t)a.d * (size_t)a.features * sizeof(R);
    const unsigned blocks = (unsigned)tnc_bound(tnc_ceil(a.batch, rows), 1, 1 << 30);
    void (*kernel)(tnc_scans<R>) = backward ? tnc_scan_states_backward_kernel<R> : tnc_scan_states_kernel<R>;
    if (states + 2048 > s->shared_max) return TN_ERR_SHAPE;
    a.lanes = lanes;
    a.shared = a.phi && states + core + 2048 <= s->shared_max;
    tnc_shared_for(s, kernel, states + (a.shared ? core : 0));
    TNC_LAUNCH(kernel, blocks, threads, states + (a.shared ? core : 0), s->stream, a);
    return TN_OK;
}

template <typename R> static tn_status tnc_scan_of(tnc *s, const tn_call *c, bool states, bool backward)
{
    const tn_view *m = &c->in[states && !backward ? 1 : 0], *phi = states ? &c->in[backward ? 1 : 2] : NULL;
    const tn_view *v = backward ? NULL : &c->in[states ? 0 : 1], *y = backward ? &c->in[states ? 2 : 1] : &c->out[0];
    const int64_t  d = m->shape[3], features = states ? m->shape[2] : 1;
    tnc_scans<R>   a;
    memset(&a, 0, sizeof a);
    for (int i = 0; i < c->n_in; i++) if (!tnc_has(&c->in[i], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    for (int i = 0; i < c->n_out; i++) if (!tnc_has(&c->out[i], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (d > 16384 || d * features > INT32_MAX / (d > 0 ? d : 1)) return TN_ERR_SHAPE;    /* d * d * s is an int */
    a.batch = y->shape[0];
    a.states = y->shape[1];
    a.n = states ? phi->shape[1] : m->shape[1];
    a.d = (int)d;
    a.features = (int)features;
    a.site = states && m->shape[0] == 1 ? 0 : d * d * features;
    a.reverse = c->i[0] != 0;
    a.transposed = a.reverse != backward;
    a.accumulate = c->accumulate;
    if (a.batch == 0 || a.states == 0) return TN_OK;
    a.m = (const R *)m->data;
    a.phi = states ? (const R *)phi->data : NULL;
    a.y = (R *)y->data;
    if (backward) {
        const tn_view *of = y + 1;                              /* r, dy, dlogs */
        a.r = (R *)of[0].data;
        a.dy = (const R *)of[1].data;
        a.dlogs = (const R *)of[2].data;
        a.given = (R *)c->out[0].data;
        a.z = (R *)c->out[1].data;
        a.work = states ? NULL : (R *)c->out[2].data;
    } else {
        a.v = (const R *)v->data;
        a.v_step = v->shape[0] == 1 ? 0 : d;
        a.logs = (R *)c->out[1].data;
        a.r = (R *)c->out[2].data;
    }
    return a.states > a.n ? tnc_scan_states_launch(s, a, backward) : tnc_scan_launch(s, a, backward);
}

/* Like >>cuda-chain: the dispatcher converts BF16 operands to F32. */
static tn_status tnc_scan_call(tnc *s, const tn_call *c, bool states, bool backward)
{
    TNC_REALS(c->in[0].dtype, R, return tnc_scan_of<R>(s, c, states, backward))
}

TNC_FN tn_status tnc_scan(tnc *s, const tn_call *c) { return tnc_scan_call(s, c, false, false); }
TNC_FN tn_status tnc_scan_backward(tnc *s, const tn_call *c) { return tnc_scan_call(s, c, false, true); }
TNC_FN tn_status tnc_scan_states(tnc *s, const tn_call *c) { return tnc_scan_call(s, c, true, false); }
TNC_FN tn_status tnc_scan_states_backward(tnc *s, const tn_call *c) { return tnc_scan_call(s, c, true, true); }

/* ---- rope, rope_backward ------------------------------------------------------------------------------------- >>cuda-rope
   A block has one position t and some of the rows [b,t,n] of that position. The cosines and sines of t are computed once, in
   double since t may exceed a hundred thousand, and kept in shared memory. A group of lanes (`team`) has one row, and a lane
   one vector of its first half and one of its second. A row is read once, also for its norm. Rows that are not aligned, or
   longer than the vectors of a warp, are computed by a plain kernel with a warp per row. Floor: the bytes of x and y;
   backward those of dy and dx, and of x if there is a norm. */

typedef struct tnc_rope_args {
    const void *x, *dy;                  /* dy: NULL in the forward pass          */
    void   *y;                           /* or dx                                 */
    int64_t x_step[3], dy_step[3], y_step[3];
    int64_t batch, length, heads, d, first;
    int64_t pieces, rows;                /* blocks per position, rows of each     */
    double  octaves;                     /* pair k is rotated by t 2^(-k octaves) */
    double  slope, start, least;         /* scaling, see >>op-rope: s = start + slope rate; least = 1/factor, or 1 */
    double  eps;                         /* negative: no norm                     */
    int     team;
    bool    still, add;
} tnc_rope_args;

static __device__ __forceinline__ void tnc_rope_angle(const tnc_rope_args &g, int64_t t, int64_t k, double *cosine,
                                                      double *sine)
{
    const double rate = exp2(-(double)k * g.octaves), s = fmin(fmax(fma(g.slope, rate, g.start), 0.0), 1.0);
    *cosine = 1;
    *sine = 0;
    if (!g.still)
        tnc_sincospi((double)(g.first + t) * rate * fma(s, 1 - g.least, g.least) * 0.3183098861837907, sine, cosine);
}

/* The last step of the backward pass; pull contains the sums over the row of x * x and of x * g. Without a norm, norm is 1,
   and x and pull are 0. */
template <typename R>
static __device__ __forceinline__ R tnc_rope_back(R g, R x, R norm, R pull) { return norm * (g - x * pull); }

template <typename T, bool BACK>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_rope_kernel(const tnc_rope_args g)
{
    typedef typename tnc_real<T>::type R;
    enum { V = (int)(16 / sizeof(T)) };
    TNC_DYN_SHARED(R, turn);
    const int  h = (int)(g.d / 2), lane = tnc_lane(g.team), teams = TNC_THREADS / g.team, mine = (int)threadIdx.x / g.team;
    const bool norms = g.eps >= 0;
    for (int64_t task = blockIdx.x; task < g.length * g.pieces; task += gridDim.x) {
        const int64_t t = task / g.pieces, begin = task % g.pieces * g.rows;
        const int64_t all = g.batch * g.heads, end = begin + g.rows < all ? begin + g.rows : all;
        for (int k = (int)threadIdx.x; k < h; k += TNC_THREADS) {
            double cosine, sine;
            tnc_rope_angle(g, t, k, &cosine, &sine);
            turn[k] = (R)cosine;
            turn[h + k] = (R)sine;
        }
        __syncthreads();
        for (int64_t base = begin; base < end; base += teams) {
            const int64_t row = base + mine, b = row / g.heads, n = row - b * g.heads;
            const bool    live = row < end && lane * V < h;
            T            *y = (T *)g.y + b * g.y_step[0] + t * g.y_step[1] + n * g.y_step[2] + lane * V;
            R x0[V] = {}, x1[V] = {}, d0[V], d1[V], old0[V], old1[V], squares = 0, dot = 0, norm = 1, pull = 0;
            if (live) {
                const T *x = (const T *)g.x + b * g.x_step[0] + t * g.x_step[1] + n * g.x_step[2] + lane * V;
                if (!BACK || norms) {
                    tnc_load(x0, x);
                    tnc_load(x1, x + h);
                }
                if (BACK) {
                    const T *dy = (const T *)g.dy + b * g.dy_step[0] + t * g.dy_step[1] + n * g.dy_step[2] + lane * V;
                    tnc_load(d0, dy);
                    tnc_load(d1, dy + h);
                }
                if (g.add) {
                    tnc_load(old0, y);
                    tnc_load(old1, y + h);
                }
                TNC_EACH {
                    const R cosine = turn[lane * V + k], sine = turn[h + lane * V + k];
                    if (BACK) {
                        const R back = tnc_fma(d0[k], cosine, d1[k] * sine);
                        d1[k] = tnc_fma(d1[k], cosine, -d0[k] * sine);
                        d0[k] = back;
                    }
                    if (norms) {
                        squares = tnc_fma(x0[k], x0[k], tnc_fma(x1[k], x1[k], squares));
                        if (BACK) dot = tnc_fma(x0[k], d0[k], tnc_fma(x1[k], d1[k], dot));
                    }
                }
            }
            if (norms) {
                squares = tnc_lanes_sum(squares, g.team);
                if (BACK) dot = tnc_lanes_sum(dot, g.team);
                norm = R(1) / (R)sqrt(squares / (R)g.d + (R)g.eps);
                pull = norm * norm * dot / (R)g.d;
            }
            if (!live) continue;
            TNC_EACH {
                if (BACK) {
                    d0[k] = tnc_rope_back(d0[k], x0[k], norm, pull);
                    d1[k] = tnc_rope_back(d1[k], x1[k], norm, pull);
                } else {
                    const R cosine = turn[lane * V + k], sine = turn[h + lane * V + k];
                    d0[k] = norm * tnc_fma(x0[k], cosine, -x1[k] * sine);
                    d1[k] = norm * tnc_fma(x1[k], cosine, x0[k] * sine);
                }
                if (g.add) {
                    d0[k] += old0[k];
                    d1[k] += old1[k];
                }
            }
            tnc_store(y, d0);
            tnc_store(y + h, d1);
        }
        __syncthreads();
    }
}

/* Pair k of a row, rotated; backward R_t^T dy. k = h is the last number of a row of odd length, which is not rotated. */
template <typename R, typename T>
static __device__ __forceinline__ void tnc_rope_pair(const tnc_rope_args &g, const T *x, int64_t t, int64_t k, R *first,
                                                     R *second)
{
    const int64_t h = g.d / 2;
    double        cosine, sine;
    const R       a = tnc_to(x[k < h ? k : g.d - 1]), b = k < h ? tnc_to(x[k + h]) : R(0);
    tnc_rope_angle(g, t, k, &cosine, &sine);
    if (k >= h) {
        *first = a;
        *second = 0;
        return;
    }
    if (g.dy) sine = -sine;
    *first = tnc_fma(a, (R)cosine, -b * (R)sine);
    *second = tnc_fma(b, (R)cosine, a * (R)sine);
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_rope_plain_kernel(const tnc_rope_args g)
{
    typedef typename tnc_real<T>::type R;
    const int     lane = (int)threadIdx.x & 31;
    const int64_t rows = g.batch * g.length * g.heads, all = (int64_t)gridDim.x * (TNC_THREADS / 32), h = g.d / 2;
    for (int64_t row = (int64_t)blockIdx.x * (TNC_THREADS / 32) + (threadIdx.x >> 5); row < rows; row += all) {
        const int64_t n = row % g.heads, t = row / g.heads % g.length, b = row / g.heads / g.length;
        const T      *x = (const T *)g.x + b * g.x_step[0] + t * g.x_step[1] + n * g.x_step[2];
        const T      *dy = (const T *)g.dy + b * g.dy_step[0] + t * g.dy_step[1] + n * g.dy_step[2];
        T            *y = (T *)g.y + b * g.y_step[0] + t * g.y_step[1] + n * g.y_step[2];
        R             squares = 0, dot = 0, norm = 1, pull = 0, first, second;
        if (g.eps >= 0) {
            for (int64_t k = lane; k < g.d; k += 32) squares = tnc_fma(tnc_to(x[k]), tnc_to(x[k]), squares);
            for (int64_t k = lane; g.dy && k < h + g.d % 2; k += 32) {
                tnc_rope_pair<R>(g, dy, t, k, &first, &second);
                dot += first * tnc_to(x[k < h ? k : g.d - 1]) + (k < h ? second * tnc_to(x[k + h]) : R(0));
            }
            norm = R(1) / (R)sqrt(tnc_warp_sum(squares) / (R)g.d + (R)g.eps);
            pull = norm * norm * tnc_warp_sum(dot) / (R)g.d;
        }
        for (int64_t k = lane; k < h + g.d % 2; k += 32) {
            T *to = y + (k < h ? k : g.d - 1);
            tnc_rope_pair<R>(g, g.dy ? dy : x, t, k, &first, &second);
            if (!g.dy) first *= norm;
            else if (g.eps >= 0) first = tnc_rope_back(first, tnc_to(x[k < h ? k : g.d - 1]), norm, pull);
            *to = tnc_from<T>(g.add ? tnc_to(*to) + first : first);
            if (k >= h) continue;
            to = y + k + h;
            if (!g.dy) second *= norm;
            else if (g.eps >= 0) second = tnc_rope_back(second, tnc_to(x[k + h]), norm, pull);
            *to = tnc_from<T>(g.add ? tnc_to(*to) + second : second);
        }
    }
}

static bool tnc_heads_aligned(const tn_view *v, int64_t bytes)
{
    for (int i = 0; i < 3; i++)
        if (v->shape[i] > 1 && v->strides[i] * bytes % 16 != 0) return false;
    return tnc_aligned(v->data);
}

template <typename T> static void tnc_rope_run(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const tn_view *x = &c->in[0], *dy = c->n_in > 1 ? &c->in[1] : NULL, *y = &c->out[0];
    const int64_t  d = x->shape[3], rows = x->shape[0] * x->shape[2], lanes = d / 2 * (int64_t)sizeof(T) / 16;
    tnc_rope_args      g;
    memset(&g, 0, sizeof g);
    g.x = x->data;
    g.dy = dy ? dy->data : NULL;
    g.y = y->data;
    for (int i = 0; i < 3; i++) {
        g.x_step[i] = x->strides[i];
        g.dy_step[i] = dy ? dy->strides[i] : 0;
        g.y_step[i] = y->strides[i];
    }
    g.batch = x->shape[0];
    g.length = x->shape[1];
    g.heads = x->shape[2];
    g.d = d;
    g.first = c->i[0];
    g.octaves = 2 * log2(c->f[0]) / (double)(d > 0 ? d : 1);
    g.eps = c->f[1];
    g.least = c->f[2] > 0 ? 1 / c->f[2] : 1;
    g.slope = c->f[5] > 0 ? c->f[5] / (6.283185307179586477 * (c->f[4] - c->f[3])) : 0;
    g.start = c->f[5] > 0 ? -c->f[3] / (c->f[4] - c->f[3]) : 0;
    g.still = c->i[1] != 0;
    g.add = c->accumulate;
    if (rows * g.length * d == 0) return;
    if (d * (int64_t)sizeof(T) % 32 == 0 && lanes <= 32 && tnc_heads_aligned(x, sizeof(T)) && tnc_heads_aligned(y, sizeof(T))
        && (!dy || tnc_heads_aligned(dy, sizeof(T)))) {
        const size_t shared = (size_t)d * sizeof(R);
        g.team = tnc_lanes(lanes, 32);
        g.pieces = tnc_ceil(2048, g.length);                    /* enough blocks, but at least four rows per team */
        if (g.pieces > rows * g.team / (4 * TNC_THREADS)) g.pieces = rows * g.team / (4 * TNC_THREADS);
        if (g.pieces < 1) g.pieces = 1;
        g.rows = tnc_ceil(rows, g.pieces);
        g.pieces = tnc_ceil(rows, g.rows);
        if (dy) TNC_LAUNCH((tnc_rope_kernel<T, true>), tnc_blocks(g.length * g.pieces, 1), TNC_THREADS, shared, s->stream,
                           g);
        else TNC_LAUNCH((tnc_rope_kernel<T, false>), tnc_blocks(g.length * g.pieces, 1), TNC_THREADS, shared, s->stream, g);
    } else TNC_START((tnc_rope_plain_kernel<T>), tnc_blocks(rows * g.length, TNC_THREADS / 32), g);
}

TNC_FN tn_status tnc_rope(tnc *s, const tn_call *c)
{
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_rope_run<T>(s, c))
    return TN_OK;
}

TNC_FN tn_status tnc_rope_backward(tnc *s, const tn_call *c) { return tnc_rope(s, c); }

/* ---- quadratic attention ------------------------------------------------------------------------------ >>cuda-attention
   The formulas are at >>op-attention of tensornet.h:
       S = scale * Q K^T over the visible pairs       P = exp(S - lse), or S1 * S2 (bilinear), or S * S (squared)
       O = c * (P V)         dP = u V^T + w           dV = P^T u       dQ = scale * (dS K)       dK = scale * (dS^T Q)
   with u = c dO and dS = P * dP (softmax), dS1 = S2 * dP, dS2 = S1 * dP (bilinear), 2 S * dP (squared). `*` is elementwise.

   GLOSSARY. T: Tq queries or Tk keys; d, dv: head dimensions of q and k, of v; D, DV: the same, padded to a size for which a
   kernel exists; `sets`: 2 for bilinear (heads h and h + H are the two sets of queries and keys), else 1. Block sizes are
   those of the tensor-core kernels; the plain kernels have blocks of 64 queries and 64 keys, in F64 32.

     in this file          FlashAttention      shape               where it lives
     q, k, v, o, dout      Q, K, V, O, dO      [B,T,heads,d|dv]    device memory, last axis with stride 1; tiles of them in
                                                                   shared memory, swizzled (>>cuda-swizzle)
     query block           Q tile, BLOCK_M     128 x D             shared memory during the whole forward kernel
     key block, stage      K, V tiles, BLOCK_N 64 or 32 x D, DV    shared memory, two stages: double buffering by cp.async
     ring                  pipeline            up to 4 stages      shared memory, filled by TMA (>>cuda-attention-wgmma)
     s[set]                S                   rows x columns      registers, as C fragments of mma
     s[0], then p_frag     P                   rows x columns      registers: C fragments, rounded to BF16 A fragments
     dp                    u V^T               rows x columns      registers
     row_max, row_sum      m, l                per query           registers: the running maximum and sum of online softmax
     o, dx, dv (sums)      O, dQ or dK, dV     rows x D or DV      registers, until the epilogue stores or adds them
     stat, l               lse                 [B,H,Tq]            device memory: the log-sum-exp, or eps + sum_j P_ij
     row scale c           -                   per query           1, 1/n, sqrt(length/n) or 1/(eps + sum_j P_ij)
     w                     -delta, scaled      per query           -dO.O for softmax, -c dO.O with a row sum, else 0
     row_stats             lse, delta          [B,H,Tq] x float4   device memory: c, w, l, 0 of each query, for backward
     redo                  -                   [B*H,blocks of 64]  device memory: 1 if a result of tensor cores is not finite
     resident, streamed    -                   tiles               backward: the rows that a block owns and whose gradients
                                                                   it sums, and the rows of the other side that it walks over

   Kernels, by fixed rules of dtype and shape (>>cuda-attention-choose):
   tnc_attend_split, _combine      up to 4 queries (decoding), any dtype, forward: split-K, the keys are split between blocks
   tnc_attend_mma, _mma_back       BF16 operands, or F32 ones that TN_GEMM_BF16 allows to be rounded; at least 128 keys, head
                                   dimensions up to 128: tensor cores with F32 sums
   tnc_attend_wgmma, _back_wgmma   the same on request with D = DV = 64 or 128, for capability 9.0
   tnc_attend_tma, _back_tma       those with loads by TMA, where tensor maps can describe the operands
   tnc_attend_plain, _plain_back   everything else, in the precision of the dtype: any head dimension and length; and blocks
                                   with a result of tensor cores that is not finite

   The backward pass is two launches of one template: in one, blocks own key blocks and walk over the queries that see them
   (dk, dv); in the other, blocks own query blocks and walk over their keys (dq). Both recompute the scores from the inputs,
   the log-sum-exp and row_stats. Every sum is computed by one block in one order: there are no atomics, and results are
   bit-identical in every run.

   Flops per pair (query, key): forward 2 sets d + 2 dv; backward, where both launches compute scores and u V^T, 4 sets d +
   4 dv for the keys and 4 sets d + 2 dv for the queries, together 8 sets d + 6 dv. Floor in bytes: each operand once, which
   is negligible beside the flops for more than about 100 keys. */

#define TNC_LOG2E 1.4426950408889634

/* An operand [B,T,heads,d] whose last axis has stride 1: its first element and the strides of the other axes. */
typedef struct tnc_heads { void *data; int64_t b, t, h; } tnc_heads;

typedef struct tnc_attend {
    tnc_heads q, k, v, o, dout, dq, dk, dv;
    void     *stat;                      /* [B,H,Tq]: l_i, or eps + the sum of the row; NULL if it is not needed */
    void     *row_stats;                 /* backward [B,H,Tq,4]: c_i, w_i, l_i, 0; split-K: partial results      */
    int      *redo;                      /* [heads,blocks of 64 rows]: 1 where the plain kernels must recompute  */
    int64_t   B, H, Tq, Tk, n_qk, n_v;   /* head dimensions of q and k, of v                                     */
    int64_t   window, past;
    int       kind, row;
    bool      causal, sums;
    bool      wide;                      /* tensor cores: outputs are F32, not BF16                              */
    bool      add;                       /* backward: the gradients are added to, not overwritten                */
    int       group, group_blocks;       /* tensor cores: heads of a group, and their blocks                     */
    double    scale, length, eps, unit;  /* unit: factor of l_i in row_stats                                     */
    float     score, power, square;      /* scale; scale / ln 2; scale squared                                   */
} tnc_attend;

/* Kernels with tensor cores for head dimensions up to d and dv, and the shared memory that they need. */
typedef struct tnc_attend_size {
    int  d, dv;
    struct { int shared; void (*run)(tnc *, const tnc_attend &, bool); } kind[3];           /* indexed by tn_attend_kind */
} tnc_attend_size;

template <typename T> static __device__ __forceinline__ T *tnc_head(const tnc_heads &x, int64_t b, int64_t t, int64_t h)
{
    return (T *)x.data + b * x.b + t * x.t + h * x.h;
}

/* Number of 64-row blocks of all heads */
static inline int64_t tnc_attend_tiles(const tnc_attend &p, int64_t T) { return tnc_ceil(T, 64) * p.B * p.H; }

/* A range of keys or queries; tnc_attend_keys_of: the keys that are visible to query i. Neither bound decreases as i grows.
   Int: int in kernels that are short of registers. */
template <typename Int> struct tnc_span { Int low, high; };

template <typename Int> static __device__ __forceinline__ tnc_span<Int> tnc_attend_keys_of(const tnc_attend &p, Int i)
{
    const Int     Tk = (Int)p.Tk, diagonal = Tk - (Int)p.Tq + i, window = (Int)p.window;
    tnc_span<Int> s = { 0, Tk };
    if (window > 0 && diagonal - window + 1 > 0) s.low = diagonal - window + 1;
    if (p.causal) s.high = diagonal + 1;
    else if (window > 0 && diagonal + window < Tk) s.high = diagonal + window;
    if (s.high < s.low) s.high = s.low;
    return s;
}

/* The queries [low,high) to which some key of [first,last] may be visible: the function above, solved for i. */
template <typename Int>
static __device__ __forceinline__ tnc_span<Int> tnc_attend_queries_of(const tnc_attend &p, Int first, Int last)
{
    const Int     Tq = (Int)p.Tq, ahead = (Int)p.Tk - Tq, window = (Int)p.window;
    tnc_span<Int> s = { 0, Tq };
    if (p.causal) s.low = first - ahead;
    else if (window > 0) s.low = first - ahead - window + 1;
    if (window > 0 && last - ahead + window < Tq) s.high = last - ahead + window;
    if (s.low < 0) s.low = 0;
    return s;
}

/* The row scale c_i, if it depends on the number of visible keys alone */
template <typename R, typename Int> static __device__ R tnc_attend_row_scale(const tnc_attend &p, tnc_span<Int> s)
{
    const R n = R((int64_t)(s.high - s.low) + p.past);
    if (p.row == TN_ROW_SCALE_LENGTH) return n > R(p.length) ? sqrt(R(p.length) / n) : R(1);
    if (p.row == TN_ROW_SCALE_MEAN) return n > R(0) ? R(1) / n : R(0);
    return R(1);
}

/* Whether o_i is 0 for any values: no key is visible, or (softmax) every score is -inf. `most`: the largest score. */
template <typename R>
static __device__ __forceinline__ bool tnc_attend_is_zero(const tnc_attend &p, tnc_span<int64_t> visible, R most)
{
    return visible.high == visible.low || (p.kind == TN_ATTEND_SOFTMAX && most == -R(INFINITY));
}

/* The epilogue of a query: o_i = factor * sum_j P_ij v_j. Returns the factor, and adds eps to the row sum, which
   is saved. */
template <typename R> static __device__ R tnc_attend_epilogue(const tnc_attend &p, tnc_span<int64_t> visible, R *sum)
{
    R factor = tnc_attend_row_scale<R>(p, visible);
    if (p.sums) *sum += R(p.eps);
    return p.kind == TN_ATTEND_SOFTMAX || p.sums ? factor / *sum : factor;
}

/* The factor e^(from - to) that rescales sums when the running maximum changes. */
template <typename R> static __device__ __forceinline__ R tnc_attend_rescale(R from, R to)
{
    return from == -R(INFINITY) ? R(0) : exp(from - to);
}

/* The larger of two numbers, or NaN if one of them is NaN. */
template <typename R> static __device__ __forceinline__ R tnc_attend_max(R a, R b) { return b > a || b != b ? b : a; }

/* ---- what the backward pass needs of each query --------------------------------------------------- >>cuda-attention-delta
   row_stats = c_i, w_i, l_i, 0. Where w needs the dot product of dO_i and o_i (DOTS) a warp computes a query, else a thread.
   In FlashAttention this is the preprocessing kernel that computes delta. */

template <typename R> struct alignas(16) tnc_attend_stats { R c, w, l, none; };

template <typename T, bool DOTS> static __global__ void tnc_attend_delta(tnc_attend p)
{
    typedef typename tnc_real<T>::type R;
    enum { team = DOTS ? 32 : 1 };
    const int     lane = (int)threadIdx.x % team;
    const int64_t teams = (int64_t)gridDim.x * blockDim.x / team;
    for (int64_t n = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / team; n < p.B * p.H * p.Tq; n += teams) {
        const int64_t i = n % p.Tq;
        const bool    softmax = p.kind == TN_ATTEND_SOFTMAX;
        const R       stat = p.stat ? ((const R *)p.stat)[n] : R(0);
        R             c = p.sums ? R(1) / stat : tnc_attend_row_scale<R>(p, tnc_attend_keys_of(p, i)), dot = R(0);
        if (DOTS) {
            const int64_t h = n / p.Tq % p.H, b = n / p.Tq / p.H;
            const T      *o = tnc_head<T>(p.o, b, i, h), *dout = tnc_head<T>(p.dout, b, i, h);
            for (int64_t e = lane; e < p.n_v; e += 32) dot = fma(R(tnc_to(dout[e])), R(tnc_to(o[e])), dot);
            dot = tnc_warp_sum(dot);
        }
        if (lane > 0) continue;
        /* without a visible key e^(s - l) must be 0 */
        TNC_VECTOR(tnc_attend_stats<R>, (R *)p.row_stats + 4 * n) = tnc_attend_stats<R>{
            c, p.sums ? -dot * c : -dot, softmax && stat == -R(INFINITY) ? R(INFINITY) : stat * R(p.unit), R(0) };
    }
}

/* ---- any dtype and head size ---------------------------------------------------------------------- >>cuda-attention-plain
   A block has `side` rows (queries, or resident rows in the backward pass) and walks over blocks of `side` others. A thread
   has a cell of 4 x 4 (in double 2 x 2) elements of each tile: rows 4 y .. 4 y + 3 and columns x, x + lanes, ..., so that
   reads along a row are broadcasts, and reads across rows, whose pitch is odd, have no bank conflicts. Outputs are computed
   `side` columns at a time; each of these column tiles has its own block, which recomputes the scores. After the tensor-core
   kernels, these kernels recompute the blocks marked in `redo` and no others. There are mostly none: so a grid that fits on
   the device at once, one block per multiprocessor, reads all marks first, a mark per thread, and ends. */

template <typename R> struct tnc_attend_smem {
    enum { cell = sizeof(R) == 8 ? 2 : 4, lanes = 16, threads = lanes * lanes, side = cell * lanes, slice = 16 };
    R       a[side][slice + 1], b[side][slice + 1];     /* slices of the operands of A B^T, `slice` deep */
    R       p[side][side + 1];                          /* P or dS: rows x columns of the scores         */
    R       x[side][side + 1];                          /* the right factor of P X, one column tile      */
    R       row[side][4];                               /* of the queries: c, w, l                       */
    int64_t low[side], high[side];
};

/* out = a b^T, for two tiles with rows of n numbers */
template <typename T, typename R>
static __device__ void tnc_attend_product(tnc_attend_smem<R> &m,
                                          R (&out)[tnc_attend_smem<R>::cell][tnc_attend_smem<R>::cell], const T *a,
                                          int64_t a_pitch, int64_t a_rows,
                                          const T *b, int64_t b_pitch, int64_t b_rows, int64_t n)
{
    enum { cell = tnc_attend_smem<R>::cell, lanes = tnc_attend_smem<R>::lanes, slice = tnc_attend_smem<R>::slice,
        side = tnc_attend_smem<R>::side };
    const int x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    TNC_UNROLL
    for (int r = 0; r < cell; r++)
        TNC_UNROLL
        for (int c = 0; c < cell; c++) out[r][c] = R(0);
    for (int64_t k0 = 0; k0 < n; k0 += slice) {
        for (int t = (int)threadIdx.x; t < side * slice; t += lanes * lanes) {
            const int row = t / slice, at = t % slice;
            m.a[row][at] = row < a_rows && k0 + at < n ? R(tnc_to(a[row * a_pitch + k0 + at])) : R(0);
            m.b[row][at] = row < b_rows && k0 + at < n ? R(tnc_to(b[row * b_pitch + k0 + at])) : R(0);
        }
        __syncthreads();
        TNC_UNROLL
        for (int k = 0; k < slice; k++)
            TNC_UNROLL
            for (int r = 0; r < cell; r++)
                TNC_UNROLL
                for (int c = 0; c < cell; c++) out[r][c] = fma(m.a[cell * y + r][k], m.b[x + lanes * c][k], out[r][c]);
        __syncthreads();
    }
}

/* out += p x, where x are the rows of `from` at columns [first, first + side) of n. Masked pairs are skipped, not
   multiplied by 0, so that an infinity or a NaN does not spread. KEYS: the rows of out are keys, not queries; the first is
   row0. The streamed rows begin at `at`. Each tile is summed separately, so that the rounding error of n terms grows as n /
   64 + 64. */
template <bool KEYS, typename T, typename R>
static __device__ void tnc_attend_accumulate(tnc_attend_smem<R> &m,
                                             R (&out)[tnc_attend_smem<R>::cell][tnc_attend_smem<R>::cell], const T *from,
                                             int64_t pitch, int64_t rows,
                                             int64_t first, int64_t n, int64_t row0, int64_t at, bool edge)
{
    enum { cell = tnc_attend_smem<R>::cell, lanes = tnc_attend_smem<R>::lanes, side = tnc_attend_smem<R>::side };
    const int x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    R         sum[cell][cell] = {};
    for (int t = (int)threadIdx.x; t < side * side; t += lanes * lanes) {
        const int row = t / side, col = t % side;
        m.x[row][col] = row < rows && first + col < n ? R(tnc_to(from[row * pitch + first + col])) : R(0);
    }
    __syncthreads();                                                            /* m.p is complete as well */
    for (int k = 0; k < rows; k++)
        TNC_UNROLL
        for (int r = 0; r < cell; r++) {
            const int     i = KEYS ? k : cell * y + r;
            const int64_t j = KEYS ? row0 + cell * y + r : at + k;
            if (edge && (j < m.low[i] || j >= m.high[i])) continue;
            TNC_UNROLL
            for (int c = 0; c < cell; c++) sum[r][c] = fma(m.p[cell * y + r][k], m.x[k][x + lanes * c], sum[r][c]);
        }
    TNC_UNROLL
    for (int r = 0; r < cell; r++)
        TNC_UNROLL
        for (int c = 0; c < cell; c++) out[r][c] += sum[r][c];
    __syncthreads();
}

/* Loads the visible range of each query of a tile and, in the backward pass, its row_stats. Queries beyond the last see
   no key. */
template <typename R>
static __device__ void tnc_attend_load_queries(const tnc_attend &p, tnc_attend_smem<R> &m, int64_t head, int64_t i0)
{
    enum { side = tnc_attend_smem<R>::side, threads = tnc_attend_smem<R>::threads };
    for (int t = (int)threadIdx.x; t < side; t += threads) {
        const bool     there = i0 + t < p.Tq;
        const tnc_span<int64_t> s = tnc_attend_keys_of(p, i0 + t);
        m.low[t] = there ? s.low : 0;
        m.high[t] = there ? s.high : 0;
        for (int k = 0; k < 4 && p.row_stats; k++)
            m.row[t][k] = there ? ((const R *)p.row_stats)[4 * (head * p.Tq + i0 + t) + k] : R(0);
        if (p.row_stats) m.row[t][2] /= R(p.unit);
    }
    __syncthreads();
}

/* The maximum over the lanes that share a row. */
template <int lanes, typename R> static __device__ R tnc_attend_row_max(R v)
{
    for (int k = lanes / 2; k; k >>= 1) v = tnc_attend_max(v, __shfl_xor_sync(0xffffffffu, v, k));
    return v;
}

/* The scores of both sets, multiplied by the scale. With one set, the second is a copy of the first. */
template <typename T, typename R>
static __device__ void tnc_attend_scores(const tnc_attend &p, tnc_attend_smem<R> &m,
                                         R (&s)[2][tnc_attend_smem<R>::cell][tnc_attend_smem<R>::cell], const tnc_heads &a,
                                         int64_t a0,
                                         int64_t a_rows, const tnc_heads &b, int64_t b0, int64_t b_rows, int64_t batch,
                                         int64_t h)
{
    enum { cell = tnc_attend_smem<R>::cell };
    const int sets = p.kind == TN_ATTEND_BILINEAR ? 2 : 1;
    TNC_UNROLL
    for (int set = 0; set < 2; set++) {
        if (set < sets)
            tnc_attend_product(m, s[set], tnc_head<const T>(a, batch, a0, h + set * p.H), a.t, a_rows,
                               tnc_head<const T>(b, batch, b0, h + set * p.H), b.t, b_rows, p.n_qk);
        TNC_UNROLL
        for (int r = 0; r < cell; r++)
            TNC_UNROLL
            for (int c = 0; c < cell; c++) s[set][r][c] = set < sets ? s[set][r][c] * R(p.scale) : s[0][r][c];
    }
}

/* Whether one of the tasks of this block, numbered as in its loop, is marked. There are fewer than 2^32: fast divisions. */
static __device__ __forceinline__ bool tnc_attend_any_redo(const tnc_attend &p, int64_t col_tiles, int64_t blocks,
                                                           int64_t tiles, bool last_first)
{
    const unsigned heads = (unsigned)(p.B * p.H);
    bool           any = false;
    for (int64_t n = blockIdx.x + (int64_t)threadIdx.x * gridDim.x; n < blocks; n += (int64_t)blockDim.x * gridDim.x) {
        const unsigned task = (unsigned)n / (unsigned)col_tiles, tile = task / heads;
        any = any || p.redo[task % heads * tiles + (last_first ? tiles - 1 - tile : tile)] != 0;
    }
    return __syncthreads_or(any) != 0;
}

template <typename T>
static __global__ void __launch_bounds__(256) tnc_attend_plain(tnc_attend p, int64_t col_tiles, int64_t blocks)
{
    typedef typename tnc_real<T>::type R;
    typedef tnc_attend_smem<R> smem;
    enum { cell = smem::cell, lanes = smem::lanes, side = smem::side };
    TNC_SHARED(smem, shared, [1]);
    smem         &m = shared[0];
    const bool    softmax = p.kind == TN_ATTEND_SOFTMAX;
    const int     x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    const int64_t heads = p.B * p.H, tiles = (p.Tq + side - 1) / side;
    if (p.redo && !tnc_attend_any_redo(p, col_tiles, blocks, tiles, true)) return;
    for (int64_t n = blockIdx.x; n < blocks; n += gridDim.x) {
        const int64_t head = n / col_tiles % heads, b = head / p.H, h = head % p.H, first = n % col_tiles * side;
        const int64_t i0 = (tiles - 1 - n / col_tiles / heads) * side;           /* query blocks with most keys come first */
        const int64_t rows = p.Tq - i0 < side ? p.Tq - i0 : (int64_t)side;
        const int64_t from = tnc_attend_keys_of(p, i0).low, full = tnc_attend_keys_of(p, i0).high;
        const int64_t to = tnc_attend_keys_of(p, i0 + rows - 1).high, all = tnc_attend_keys_of(p, i0 + rows - 1).low;
        R             out[cell][cell] = {}, row_max[cell], row_sum[cell];
        if (p.redo && !p.redo[head * tiles + i0 / side]) continue;
        tnc_attend_load_queries(p, m, head, i0);
        TNC_UNROLL
        for (int r = 0; r < cell; r++) {
            row_max[r] = -R(INFINITY);
            row_sum[r] = R(0);
        }
        for (int64_t j0 = from; j0 < to; j0 += side) {
            const int64_t keys = p.Tk - j0 < side ? p.Tk - j0 : (int64_t)side;
            const bool    edge = j0 < all || j0 + side > full;
            R             s[2][cell][cell];
            tnc_attend_scores<T>(p, m, s, p.q, i0, rows, p.k, j0, keys, b, h);
            TNC_UNROLL
            for (int r = 0; r < cell; r++) {
                const int64_t low = m.low[cell * y + r] - j0, high = m.high[cell * y + r] - j0;
                R             largest = row_max[r], factor = R(1), sum = R(0);
                if (softmax) {
                    TNC_UNROLL
                    for (int c = 0; c < cell; c++)
                        if (x + lanes * c >= low && x + lanes * c < high) largest = tnc_attend_max(largest, s[0][r][c]);
                    largest = tnc_attend_row_max<lanes>(largest);
                    factor = tnc_attend_rescale(row_max[r], largest);
                    row_max[r] = largest;
                }
                TNC_UNROLL
                for (int c = 0; c < cell; c++) {
                    R pij = softmax ? exp(s[0][r][c] - largest) : s[0][r][c] * s[1][r][c];
                    if (x + lanes * c < low || x + lanes * c >= high || (softmax && largest == -R(INFINITY))) pij = R(0);
                    m.p[cell * y + r][x + lanes * c] = pij;
                    sum += pij;
                    out[r][c] *= factor;
                }
                row_sum[r] = fma(row_sum[r], factor, sum);
            }
            tnc_attend_accumulate<false>(m, out, tnc_head<const T>(p.v, b, j0, h), p.v.t, keys, first, p.n_v, i0, j0, edge);
        }
        TNC_UNROLL
        for (int r = 0; r < cell; r++) {
            const int64_t           i = i0 + cell * y + r;
            const tnc_span<int64_t> visible = tnc_attend_keys_of(p, i);
            const bool              none = tnc_attend_is_zero(p, visible, row_max[r]);
            R                       sum = tnc_lanes_sum(row_sum[r], lanes);
            if (i >= p.Tq) continue;
            R factor = tnc_attend_epilogue(p, visible, &sum);
            TNC_UNROLL
            for (int c = 0; c < cell; c++)
                if (first + x + lanes * c < p.n_v)
                    tnc_head<T>(p.o, b, i, h)[first + x + lanes * c] = tnc_from<T>(none ? R(0) : factor * out[r][c]);
            if (p.stat && first == 0 && x == 0) ((R *)p.stat)[head * p.Tq + i] = softmax ? row_max[r] + log(sum) : sum;
        }
        __syncthreads();
    }
}

/* to (+)= sum, for the rows and columns of one tile */
template <typename T, typename R>
static __device__ void tnc_attend_add(const tnc_heads &to, int64_t b, int64_t h, int64_t row0, int64_t rows, int64_t first,
                                      int64_t n, const R (&sum)[tnc_attend_smem<R>::cell][tnc_attend_smem<R>::cell], bool add)
{
    enum { cell = tnc_attend_smem<R>::cell, lanes = tnc_attend_smem<R>::lanes };
    const int x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    if (!to.data) return;
    TNC_UNROLL
    for (int r = 0; r < cell; r++)
        TNC_UNROLL
        for (int c = 0; c < cell; c++) {
            T *at = tnc_head<T>(to, b, row0 + cell * y + r, h) + first + x + lanes * c;
            if (cell * y + r < rows && first + x + lanes * c < n)
                *at = tnc_from<T>(add ? R(tnc_to(*at)) + sum[r][c] : sum[r][c]);
        }
}

/* KEYS: the resident rows are keys, and the results dk and dv; else they are queries, and the result is dq. */
template <typename T, bool KEYS>
static __global__ void __launch_bounds__(256) tnc_attend_plain_back(tnc_attend p, int64_t col_tiles, int64_t blocks)
{
    typedef typename tnc_real<T>::type R;
    typedef tnc_attend_smem<R> smem;
    enum { cell = smem::cell, lanes = smem::lanes, side = smem::side };
    TNC_SHARED(smem, shared, [1]);
    smem            &m = shared[0];
    const bool       softmax = p.kind == TN_ATTEND_SOFTMAX, two = p.kind == TN_ATTEND_BILINEAR;
    const int        x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    const tnc_heads &resident_x = KEYS ? p.k : p.q, &resident_y = KEYS ? p.v : p.dout, &streamed_x = KEYS ? p.q : p.k;
    const tnc_heads &streamed_y = KEYS ? p.dout : p.v, &to = KEYS ? p.dk : p.dq;
    const int64_t heads = p.B * p.H, T_resident = KEYS ? p.Tk : p.Tq, T_streamed = KEYS ? p.Tq : p.Tk,
        tiles = (T_resident + side - 1) / side;
    if (p.redo && !tnc_attend_any_redo(p, col_tiles, blocks, tiles, !KEYS)) return;
    for (int64_t n = blockIdx.x; n < blocks; n += gridDim.x) {
        const int64_t head = n / col_tiles % heads, b = head / p.H, h = head % p.H, first = n % col_tiles * side,
            tile = n / col_tiles / heads;
        const int64_t row0 = (KEYS ? tile : tiles - 1 - tile) * side;              /* causal: the longest walks come first */
        const int64_t rows = T_resident - row0 < side ? T_resident - row0 : (int64_t)side;
        R             dx[2][cell][cell] = {}, dv[cell][cell] = {};
        tnc_span<int64_t>      range;
        if (p.redo && !p.redo[head * tiles + row0 / side]) continue;
        if (KEYS) range = tnc_attend_queries_of(p, row0, row0 + rows - 1);
        else {
            range.low = tnc_attend_keys_of(p, row0).low;
            range.high = tnc_attend_keys_of(p, row0 + rows - 1).high;
            tnc_attend_load_queries(p, m, head, row0);
        }
        for (int64_t at = range.low; at < range.high; at += side) {
            const int64_t streamed = T_streamed - at < side ? T_streamed - at : (int64_t)side;
            R             s[2][cell][cell], dp[cell][cell];
            if (KEYS) tnc_attend_load_queries(p, m, head, at);
            tnc_attend_scores<T>(p, m, s, resident_x, row0, rows, streamed_x, at, streamed, b, h);
            tnc_attend_product(m, dp, tnc_head<const T>(resident_y, b, row0, h), resident_y.t, rows,
                               tnc_head<const T>(streamed_y, b, at, h),
                               streamed_y.t, streamed, p.n_v);
            TNC_UNROLL
            for (int r = 0; r < cell; r++)
                TNC_UNROLL
                for (int c = 0; c < cell; c++) {
                    const int i = KEYS ? x + lanes * c : cell * y + r;
                    const R   pij = softmax ? exp(s[0][r][c] - m.row[i][2]) : s[0][r][c] * s[1][r][c];
                    dp[r][c] = R(p.scale) * fma(m.row[i][0], dp[r][c], m.row[i][1]);               /* scale (u.v + w) */
                    if (softmax) s[1][r][c] = pij;                                                 /* dS = dp times this */
                    else if (!two) s[1][r][c] = R(2) * s[0][r][c];
                    /* P_ij c_i, which multiplies dO_i */
                    m.p[cell * y + r][x + lanes * c] = pij * m.row[i][0];
                }
            if (KEYS)
                tnc_attend_accumulate<KEYS>(m, dv, tnc_head<const T>(p.dout, b, at, h), p.dout.t, streamed, first, p.n_v,
                                            row0, at, true);
            TNC_UNROLL
            for (int set = 0; set < 2; set++) {
                if (set > two) break;
                TNC_UNROLL
                for (int r = 0; r < cell; r++)
                    TNC_UNROLL
                    for (int c = 0; c < cell; c++) m.p[cell * y + r][x + lanes * c] = dp[r][c] * s[1 - set][r][c];
                tnc_attend_accumulate<KEYS>(m, dx[set], tnc_head<const T>(streamed_x, b, at, h + set * p.H), streamed_x.t,
                                            streamed, first, p.n_qk, row0, at, true);
            }
        }
        TNC_UNROLL
        for (int set = 0; set < 2; set++)
            if (set <= two) tnc_attend_add<T>(to, b, h + set * p.H, row0, rows, first, p.n_qk, dx[set], p.add);
        if (KEYS) tnc_attend_add<T>(p.dv, b, h, row0, rows, first, p.n_v, dv, p.add);
        __syncthreads();
    }
}

/* ---- split-K for decoding ------------------------------------------------------------------------- >>cuda-attention-split
   With few queries a query block would be nearly empty, and one block per head would leave most of the GPU unused. So the
   keys of a query are split between blocks. Each writes its running maximum, its sum of P and its P v, and a second kernel
   combines these in order. Floor: k and v read once. */

enum { TNC_ATTEND_DECODE = 4, TNC_ATTEND_SPLIT = 256 };     /* most queries; keys per split */

template <typename T>
static __global__ void __launch_bounds__(128) tnc_attend_split(tnc_attend p, int64_t splits, int64_t blocks)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, scores, [TNC_ATTEND_SPLIT]);                /* then P */
    TNC_SHARED(R, sums, [4][32]);
    const bool softmax = p.kind == TN_ATTEND_SOFTMAX, two = p.kind == TN_ATTEND_BILINEAR;
    const int  lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    for (int64_t n = blockIdx.x; n < blocks; n += gridDim.x) {
        const int64_t row = n / splits, i = row % p.Tq, h = row / p.Tq % p.H, b = row / p.Tq / p.H;
        const tnc_span<int64_t> visible = tnc_attend_keys_of(p, i);
        const int64_t first = visible.low + n % splits * TNC_ATTEND_SPLIT, rest = visible.high - first;
        const int     count = rest < 0 ? 0 : rest < TNC_ATTEND_SPLIT ? (int)rest : (int)TNC_ATTEND_SPLIT;
        R            *to = (R *)p.row_stats + n * (2 + p.n_v), largest = -R(INFINITY), total = R(0);
        for (int k = (int)threadIdx.x / 8; k < (count + 15) / 16 * 16; k += 16) {         /* scores: 8 lanes per key */
            const int64_t j = first + (k < count ? k : 0);
            R             s[2] = { R(0), R(0) };
            TNC_UNROLL
            for (int set = 0; set < 2; set++) {
                if (set > 0 && !two) continue;
                const T *q = tnc_head<const T>(p.q, b, i, h + set * p.H), *key = tnc_head<const T>(p.k, b, j, h + set * p.H);
                for (int64_t a = lane % 8; a < p.n_qk; a += 8) s[set] = fma(R(tnc_to(q[a])), R(tnc_to(key[a])), s[set]);
                s[set] = R(p.scale) * tnc_lanes_sum(s[set], 8);
            }
            if (lane % 8 == 0 && k < count) scores[k] = softmax ? s[0] : s[0] * (two ? s[1] : s[0]);
        }
        __syncthreads();
        for (int k = lane; k < count; k += 32) largest = tnc_attend_max(largest, scores[k]);
        largest = tnc_attend_row_max<32>(largest);
        __syncthreads();
        for (int k = (int)threadIdx.x; k < count && softmax; k += 128)
            scores[k] = largest == -R(INFINITY) ? R(0) : exp(scores[k] - largest);
        __syncthreads();
        for (int k = lane; k < count; k += 32) total += scores[k];
        total = tnc_warp_sum(total);
        /* each warp sums a quarter of the keys */
        for (int64_t e = lane; e < (p.n_v + 31) / 32 * 32; e += 32) {
            R sum = R(0);
            for (int k = warp; k < count && e < p.n_v; k += 4)
                sum = fma(scores[k], R(tnc_to(tnc_head<const T>(p.v, b, first + k, h)[e])), sum);
            sums[warp][lane] = sum;
            __syncthreads();
            if (warp == 0 && e < p.n_v) to[2 + e] = (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]);
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            to[0] = largest;
            to[1] = total;
        }
        __syncthreads();
    }
}

/* Combines the splits of a query; one warp per query. */
template <typename T> static __global__ void tnc_attend_combine(tnc_attend p, int64_t splits)
{
    typedef typename tnc_real<T>::type R;
    const bool    softmax = p.kind == TN_ATTEND_SOFTMAX;
    const int     lane = (int)threadIdx.x & 31;
    const int64_t warps = (int64_t)gridDim.x * blockDim.x / 32, width = 2 + p.n_v;
    for (int64_t n = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; n < p.B * p.H * p.Tq; n += warps) {
        const int64_t i = n % p.Tq, h = n / p.Tq % p.H, b = n / p.Tq / p.H;
        const R      *from = (const R *)p.row_stats + n * splits * width;
        const tnc_span<int64_t> visible = tnc_attend_keys_of(p, i);
        R             largest = -R(INFINITY), total = R(0);
        for (int64_t k = 0; k < splits; k++) largest = tnc_attend_max(largest, from[k * width]);
        for (int64_t k = 0; k < splits; k++)
            total = fma(from[k * width + 1], softmax ? tnc_attend_rescale(from[k * width], largest) : R(1), total);
        R factor = tnc_attend_epilogue(p, visible, &total);
        for (int64_t e = lane; e < p.n_v; e += 32) {
            R sum = R(0);
            for (int64_t k = 0; k < splits; k++)
                sum = fma(from[k * width + 2 + e], softmax ? tnc_attend_rescale(from[k * width], largest) : R(1), sum);
            tnc_head<T>(p.o, b, i, h)[e] = tnc_from<T>(tnc_attend_is_zero(p, visible, largest) ? R(0) : factor * sum);
        }
        if (p.stat && lane == 0) ((R *)p.stat)[n] = softmax ? largest + log(total) : total;
    }
}

/* ---- tensor cores --------------------------------------------------------------------------------- >>cuda-attention-mma
   mma m16n8k16 multiplies a 16 x 16 A fragment by a 16 x 8 B fragment. With g = lane / 4 and t = 2 (lane % 4), a lane holds
   (g, t), (g, t+1), (g+8, t), (g+8, t+1) of the C fragment, and of the A fragment the pairs at (g, t), (g+8, t), (g, t+8),
   (g+8, t+8). Two neighbouring C fragments, 16 x 16 together and rounded to BF16 pairs, are therefore exactly the A fragment
   that the lane needs for the next product: scores become P or dS and are multiplied by V, dO, Q or K without leaving the
   registers.

   Masked pairs have P = 0 and dS = 0 here and are multiplied like the others, so that an infinity or a NaN in a masked row
   would make a NaN. But then a result of the block is not finite. The block writes to `redo` whether that is so, and such a
   block is recomputed by the plain kernels, which skip masked pairs; nothing is added to a gradient before. This costs one
   addition per result and, if all results are finite, one launch that ends at once (two in the backward pass).

   An mma adds 16 products to an F32 sum and truncates what lies below the last bit of the sum, at most 2^-23 of it. Sums of
   n terms are thus within n / 16 * 2^-23 of the sum of magnitudes, which is 2^-7 for TNC_ATTEND_TERMS terms, and half of
   that for sums that grow; beside it, each P as BF16 has an error of 2^-9. Longer sums are left to the plain kernels.

   Tiles are stored in shared memory row by row, D numbers each, swizzled by tnc_swizzle. */

/* Starts the copy of ROWS rows of D numbers to shared memory. Rows from `there` on are filled with zeros. The data can
   be read after a cp.async wait and a barrier. The rows of a thread are a multiple of 8 apart, where the swizzle is
   the same. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tnc_tile_load(tnc_bf16 *tile, const tnc_bf16 *from, int64_t pitch, int64_t there)
{
    enum { chunks = D / 8, step = THREADS / chunks };
    const int thread = tnc_reread_thread(), chunk = thread % chunks, rows = there < ROWS ? (int)there : (int)ROWS;
    int       row = thread / chunks;
    from += row * pitch + chunk * 8;
    tile += tnc_swizzle<D / 8>(row, 0, chunk);
    TNC_ROLLED
    for (; row < ROWS; row += step, from += step * pitch, tile += step * D) {
        if (row < rows) tnc_cp_async16(tile, from);
        else *reinterpret_cast<uint4 *>(tile) = make_uint4(0, 0, 0, 0);
    }
}

/* The A fragment of rows row .. row + 15 and columns 16 k .. 16 k + 15. ldmatrix loads four 8 x 8 matrices in the order in
   which mma needs them: upper, lower, upper right, lower right. Lanes 0-7 address the rows of the first, lanes 8-15 those of
   the second, and so on. */
template <int D>
static __device__ __forceinline__ void tnc_frag_a(unsigned f[4], const tnc_bf16 *tile, int row, int k, int lane)
{
    tnc_ldmatrix_x4(f, tile + tnc_swizzle<D / 8>(row + (lane & 15), 2 * k, lane >> 4));
}

/* Two B fragments, f[0], f[1] and f[2], f[3]: the transposes of rows row .. row + 7 and row + 8 .. row + 15 at columns 16 k
   .. 16 k + 15. mma takes B by columns, which are the rows of this tile, so nothing is transposed. */
template <int D>
static __device__ __forceinline__ void tnc_frag_b(unsigned f[4], const tnc_bf16 *tile, int row, int k, int lane)
{
    tnc_ldmatrix_x4(f, tile + tnc_swizzle<D / 8>(row + (lane & 7) + (lane >> 4) * 8, 2 * k, lane >> 3 & 1));
}

/* Two B fragments of rows row .. row + 15, at columns 16 n .. 16 n + 7 and at the next 8; transposed by ldmatrix. */
template <int D>
static __device__ __forceinline__ void tnc_frag_b_trans(unsigned f[4], const tnc_bf16 *tile, int row, int n, int lane)
{
    tnc_ldmatrix_x4_trans(f, tile + tnc_swizzle<D / 8>(row + (lane & 15), 2 * n, lane >> 4));
}

/* s = a b^T for 16 M rows of a and N rows of b, of D numbers each. A B fragment is used for all M. */
template <int M, int N, int D>
static __device__ __forceinline__ void tnc_mma_rows(float (&s)[M][N / 8][4], const tnc_bf16 *a, int a_row, const tnc_bf16 *b,
                                                    int b_row, int lane)
{
    TNC_UNROLL
    for (int m = 0; m < M; m++)
        TNC_UNROLL
        for (int n = 0; n < N / 8; n++)
            TNC_UNROLL
            for (int e = 0; e < 4; e++) s[m][n][e] = 0.0f;
    TNC_UNROLL
    for (int k = 0; k < D / 16; k++) {
        unsigned a_frag[M][4];
        TNC_UNROLL
        for (int m = 0; m < M; m++) tnc_frag_a<D>(a_frag[m], a, a_row + 16 * m, k, lane);
        TNC_UNROLL
        for (int n = 0; n < N / 16; n++) {
            unsigned b_frag[4];
            tnc_frag_b<D>(b_frag, b, b_row + 16 * n, k, lane);
            TNC_UNROLL
            for (int m = 0; m < M; m++) {
                tnc_mma_bf16(s[m][2 * n], a_frag[m], b_frag);
                tnc_mma_bf16(s[m][2 * n + 1], a_frag[m], b_frag + 2);
            }
        }
    }
}

/* out += p x, where p has 16 M rows and 16 columns in registers, and x is rows row .. row + 15 of a tile with C columns. */
template <int M, int C>
static __device__ __forceinline__ void tnc_mma_step(float (&out)[M][C / 8][4], const unsigned (&p)[M][4], const tnc_bf16 *x,
                                                    int row, int lane)
{
    TNC_UNROLL
    for (int n = 0; n < C / 16; n++) {
        unsigned b_frag[4];
        tnc_frag_b_trans<C>(b_frag, x, row, n, lane);
        TNC_UNROLL
        for (int m = 0; m < M; m++) {
            tnc_mma_bf16(out[m][2 * n], p[m], b_frag);
            tnc_mma_bf16(out[m][2 * n + 1], p[m], b_frag + 2);
        }
    }
}

/* The batch item b, the head h and the tile of a block. The blocks of a group of heads, whose streamed operands the L2 cache
   can hold, come before those of the next group: they are meant to be read from device memory once. Within a group the first
   tiles of all heads come first. The last group may have fewer heads. */
typedef struct tnc_attend_place { int b, h, head, tile; } tnc_attend_place;

static __device__ __forceinline__ tnc_attend_place tnc_attend_place_of(const tnc_attend &p)
{
    const int H = (int)p.H, block = tnc_reread_block(), first = block / p.group_blocks * p.group;
    const int rest = (int)p.B * H - first, heads = rest < p.group ? rest : p.group, inside = block % p.group_blocks;
    const int head = first + inside % heads;
    return tnc_attend_place{ head / H, head % H, head, inside / heads };
}

/* The first row of a block: a key, or a query; query blocks that may see most keys come first. */
template <bool KEYS> static __device__ __forceinline__ int tnc_attend_first_row(const tnc_attend &p, int rows)
{
    const int tile = tnc_attend_place_of(p).tile;
    return (KEYS ? tile : ((int)p.Tq + rows - 1) / rows - 1 - tile) * rows;
}

/* The mask of queries [q0,q1] and keys [k0,k1]: 0 if all pairs are masked, 1 if some are, 2 if all are visible. */
static __device__ __forceinline__ int tnc_attend_mask_of(const tnc_attend &p, int q0, int q1, int k0, int k1)
{
    const tnc_span<int> first = tnc_attend_keys_of(p, q0), last = tnc_attend_keys_of(p, q1);
    if (q0 >= p.Tq || k1 < first.low || k0 >= last.high) return 0;
    return last.low <= k0 && k1 < first.high ? 2 : 1;
}

/* Whether one of these numbers is infinite or NaN. */
template <int M, int C> static __device__ __forceinline__ bool tnc_attend_not_finite(const float (&x)[M][C / 8][4])
{
    float sum = 0.0f;
    TNC_UNROLL
    for (int m = 0; m < M; m++)
        TNC_UNROLL
        for (int n = 0; n < C / 8; n++)
            TNC_UNROLL
            for (int e = 0; e < 4; e++) sum = fmaf(x[m][n][e], 0.0f, sum);
    return sum != 0.0f;                                         /* true for NaN */
}

/* Writes to `redo` whether some result of the block's `rows` rows is not finite, for each 64 rows. Returns the same for
   the block. */
static __device__ __forceinline__ bool tnc_attend_mark_redo(const tnc_attend &p, int head, int first, int rows, int64_t T,
                                                            bool redo)
{
    const int64_t tiles = (T + 63) / 64;
    redo = __syncthreads_or(redo) != 0;
    for (int i = (int)threadIdx.x; i < rows / 64; i += (int)blockDim.x)
        if (first / 64 + i < tiles) p.redo[head * tiles + first / 64 + i] = redo;
    return redo;
}

/* The same for the 64 rows of a warpgroup of the block: it waits for no other, and does not recompute because of others. */
static __device__ __forceinline__ bool tnc_attend_mark_redo_alone(const tnc_attend &p, int head, int first, int64_t T,
                                                                  bool redo, int warpgroup)
{
    const int64_t tiles = (T + 63) / 64;
    redo = tnc_warpgroup_or(warpgroup, redo);
    if ((int)threadIdx.x % 128 == 0 && first / 64 < tiles) p.redo[head * tiles + first / 64] = redo;
    return redo;
}

/* The epilogue: stores or adds the 16 M rows of a warp, from `row` on, each multiplied by its factor. */
template <int M, int C>
static __device__ __forceinline__ void tnc_attend_store_rows(const tnc_attend &p, const tnc_heads &to, int b, int h, int row,
                                                             int rows, int n, const float (&x)[M][C / 8][4],
                                                             const float (&factor)[M][2], bool add)
{
    const int lane = (int)threadIdx.x & 31;
    TNC_UNROLL
    for (int m = 0; m < M; m++)
        TNC_UNROLL
        for (int half = 0; half < 2; half++) {
            const int t = row + 16 * m + 8 * half + lane / 4;
            if (t >= rows) continue;
            char      *line = p.wide ? (char *)tnc_head<float>(to, b, t, h) : (char *)tnc_head<tnc_bf16>(to, b, t, h);
            const bool pairs = n % 2 == 0 && (size_t)line % (p.wide ? 8 : 4) == 0;
            TNC_UNROLL
            for (int c = 0; c < C / 8; c++)
                tnc_store_pair(line, 8 * c + 2 * (lane & 3), n, p.wide, pairs, add, factor[m][half] * x[m][c][2 * half],
                               factor[m][half] * x[m][c][2 * half + 1]);
        }
}

/* What the loops of mma and of wgmma do with M tiles of 16 rows in the registers of a warp. N and C count tiles of 8 columns; i
   and j are the row and the column of a lane's first number. */

template <int M, int N> static __device__ __forceinline__ void tnc_attend_clear(float (&x)[M][N][4])
{
    TNC_UNROLL
    for (int m = 0; m < M; m++)
        TNC_UNROLL
        for (int n = 0; n < N; n++)
            TNC_UNROLL
            for (int e = 0; e < 4; e++) x[m][n][e] = 0.0f;
}

/* The 16 columns of x from 16 k on, as an A fragment */
template <int N>
static __device__ __forceinline__ void tnc_attend_frag_of(unsigned (&a)[4], const float (&x)[N][4], int k)
{
    TNC_UNROLL
    for (int e = 0; e < 4; e++) a[e] = tnc_pair(x[2 * k + e / 2][e % 2 * 2], x[2 * k + e / 2][e % 2 * 2 + 1]);
}

/* Scores become P, in place of the first set. Softmax multiplies o and row_sum by what the new maxima make of them. */
template <int KIND, int S, int M, int N, int C>
static __device__ __forceinline__ void tnc_attend_scores_to_p(const tnc_attend &p, float (&s)[S][M][N][4], float (&o)[M][C][4],
                                                              float (&row_max)[M][2], float (&row_sum)[M][2], int mask, int i,
                                                              int j)
{
    const bool softmax = KIND == TN_ATTEND_SOFTMAX, sums = KIND == TN_ATTEND_SQUARED && p.sums;
    TNC_UNROLL
    for (int m = 0; m < M; m++)
        TNC_UNROLL
        for (int n = 0; n < N; n++)
            TNC_UNROLL
            for (int e = 0; e < 4; e++) s[0][m][n][e] *= softmax ? p.power : s[S - 1][m][n][e];
    if (mask == 1) {
        TNC_UNROLL
        for (int m = 0; m < M; m++)
            TNC_UNROLL
            for (int k = 0; k < 2; k++) {
                const tnc_span<int> visible = tnc_attend_keys_of(p, i + 16 * m + 8 * k);
                TNC_UNROLL
                for (int n = 0; n < N; n++)
                    TNC_UNROLL
                    for (int e = 0; e < 2; e++)
                        if (j + 8 * n + e < visible.low || j + 8 * n + e >= visible.high)
                            s[0][m][n][2 * k + e] = softmax ? -INFINITY : 0.0f;
            }
    }
    TNC_UNROLL
    for (int m = 0; m < M; m++)
        TNC_UNROLL
        for (int k = 0; k < 2; k++) {
            if (softmax) {
                float largest = row_max[m][k];
                TNC_UNROLL
                for (int n = 0; n < N; n++) largest = fmaxf(largest, fmaxf(s[0][m][n][2 * k], s[0][m][n][2 * k + 1]));
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
                float factor = largest == -INFINITY ? 1.0f : tnc_exp2(row_max[m][k] - largest);
                row_max[m][k] = largest;
                if (largest == -INFINITY) largest = 0.0f;                       /* every key is masked: e^-inf is 0 */
                TNC_UNROLL
                for (int n = 0; n < N; n++)
                    TNC_UNROLL
                    for (int e = 2 * k; e < 2 * k + 2; e++) s[0][m][n][e] = tnc_exp2(s[0][m][n][e] - largest);
                TNC_UNROLL
                for (int n = 0; n < C; n++) {
                    o[m][n][2 * k] *= factor;
                    o[m][n][2 * k + 1] *= factor;
                }
                row_sum[m][k] *= factor;
            }
            if (softmax || sums)
                TNC_UNROLL
                for (int n = 0; n < N; n++) row_sum[m][k] += s[0][m][n][2 * k] + s[0][m][n][2 * k + 1];
        }
}

/* Writes the statistic of each row, and replaces its sum by its factor. */
template <int KIND, int M>
static __device__ __forceinline__ void tnc_attend_end_rows(const tnc_attend &p, int head, const float (&row_max)[M][2],
                                                           float (&row_sum)[M][2], int i)
{
    const bool softmax = KIND == TN_ATTEND_SOFTMAX, sums = KIND == TN_ATTEND_SQUARED && p.sums;
    TNC_UNROLL
    for (int m = 0; m < M; m++)
        TNC_UNROLL
        for (int k = 0; k < 2; k++) {
            const int           row = i + 16 * m + 8 * k;
            const tnc_span<int> visible = tnc_attend_keys_of(p, row);
            float               sum = row_sum[m][k], factor = tnc_attend_row_scale<float>(p, visible);
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (sums) sum = fmaf(sum, p.square, (float)p.eps);
            if (softmax || sums) factor /= sum;
            if (!softmax) factor *= p.square;
            if (visible.high == visible.low || (softmax && row_max[m][k] == -INFINITY)) factor = 0.0f; /* NaN stays: redo */
            if (p.stat && ((int)threadIdx.x & 3) == 0 && row < p.Tq)
                ((float *)p.stat)[head * p.Tq + row] = softmax ? row_max[m][k] * 0.6931471805599453f + logf(sum) : sum;
            row_sum[m][k] = factor;
        }
}

/* Backward: the streamed rows that the resident rows first .. last see, or that see them */
template <bool KEYS> static __device__ __forceinline__ tnc_span<int> tnc_attend_walk_of(const tnc_attend &p, int first, int last)
{
    if (KEYS) return tnc_attend_queries_of(p, first, last);
    return tnc_span<int>{ tnc_attend_keys_of(p, first).low, tnc_attend_keys_of(p, last).high };
}

/* Scores of masked pairs of resident rows and streamed columns become such that P and dS are 0. */
template <int KIND, bool KEYS, int S, int M, int N>
static __device__ __forceinline__ void tnc_attend_mask_back(const tnc_attend &p, float (&s)[S][M][N][4], int i, int j)
{
    TNC_UNROLL
    for (int m = 0; m < M; m++)
        TNC_UNROLL
        for (int n = 0; n < N; n++)
            TNC_UNROLL
            for (int e = 0; e < 4; e++) {
                const int           row = i + 16 * m + 8 * (e / 2), col = j + 8 * n + e % 2;
                const tnc_span<int> visible = tnc_attend_keys_of(p, KEYS ? col : row);
                if ((KEYS ? row : col) >= visible.low && (KEYS ? row : col) < visible.high) continue;
                s[0][m][n][e] = KIND != TN_ATTEND_SOFTMAX ? 0.0f : p.score < 0.0f ? INFINITY : -INFINITY;
                if (S == 2) s[S - 1][m][n][e] = 0.0f;
            }
}

/* The A fragments of P, of dS and, bilinear, of dS of the second set, from 16 rows of scores a and b and of dP, for 16 columns
   from 16 k on. queries: the row_stats of this lane's first column (KEYS) or row. */
template <int KIND, bool KEYS>
static __device__ __forceinline__ void tnc_attend_back_frags(const tnc_attend &p, unsigned (&p_frag)[4], unsigned (&ds_first)[4],
                                                             unsigned (&ds_second)[4], const float (*a)[4], const float (*b)[4],
                                                             const float (*dp)[4], const float4 *queries, int k)
{
    const bool softmax = KIND == TN_ATTEND_SOFTMAX;
    TNC_UNROLL
    for (int e = 0; e < 4; e++) {                       /* e / 2: which 8 columns, e % 2: which 8 rows */
        const int    c = 2 * k + e / 2, r = e % 2 * 2;
        const float4 q0 = queries[8 * (KEYS ? c : e % 2)], q1 = KEYS ? queries[8 * c + 1] : q0;
        const float  a0 = a[c][r], a1 = a[c][r + 1], b0 = b[c][r], b1 = b[c][r + 1];
        const float  slope0 = fmaf(q0.x, dp[c][r], q0.y), slope1 = fmaf(q1.x, dp[c][r + 1], q1.y);
        const float  p0 = softmax ? tnc_exp2(fmaf(a0, p.power, -q0.z)) : a0 * b0;
        const float  p1 = softmax ? tnc_exp2(fmaf(a1, p.power, -q1.z)) : a1 * b1;
        p_frag[e] = tnc_pair(q0.x * p0, q1.x * p1);
        ds_first[e] = softmax ? tnc_pair(p0 * slope0, p1 * slope1) : tnc_pair(b0 * slope0, b1 * slope1);
        if (KIND == TN_ATTEND_BILINEAR) ds_second[e] = tnc_pair(a0 * slope0, a1 * slope1);
    }
}

/* The epilogue of the backward kernels, for the rows of a warp, which begin at `row`: marks what has results that are not
   finite, and stores or adds the other gradients. ALONE: for the 64 rows of a warpgroup, which begin at `first`; else for the
   `rows` rows of the block. */
template <int KIND, bool KEYS, bool ALONE, int S, int M, int C, int CV>
static __device__ __forceinline__ void tnc_attend_end_back(const tnc_attend &p, const tnc_attend_place &at, int first, int rows,
                                                           int row, const float (&dx)[S][M][C][4],
                                                           const float (&dv)[M][CV][4])
{
    const bool       softmax = KIND == TN_ATTEND_SOFTMAX;
    const tnc_heads &to = KEYS ? p.dk : p.dq;
    const int        T = (int)(KEYS ? p.Tk : p.Tq);
    float            factor[M][2];
    bool             redo = KEYS && tnc_attend_not_finite<M, 8 * CV>(dv);
    TNC_UNROLL
    for (int set = 0; set < S; set++) redo = tnc_attend_not_finite<M, 8 * C>(dx[set]) || redo;
    redo = ALONE ? tnc_attend_mark_redo_alone(p, at.head, first, T, redo, (int)threadIdx.x / 128)
                 : tnc_attend_mark_redo(p, at.head, first, rows, T, redo);
    TNC_UNROLL
    for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = softmax ? p.score : S == 2 ? p.square : 2.0f * p.square;
    TNC_UNROLL
    for (int set = 0; set < S; set++)
        if (to.data && !redo)
            tnc_attend_store_rows<M, 8 * C>(p, to, at.b, at.h + set * (int)p.H, row, T, (int)p.n_qk, dx[set], factor, p.add);
    TNC_UNROLL
    for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = softmax ? 1.0f : p.square;
    if (KEYS && p.dv.data && !redo)
        tnc_attend_store_rows<M, 8 * CV>(p, p.dv, at.b, at.h, row, T, (int)p.n_v, dv, factor, p.add);
}

/* The same call with its heads in groups, for a kernel whose blocks own one of `tiles` tiles of a head and stream `rows` rows
   of `bytes` bytes: half of the L2 cache holds those of a group, and groups are about equal. */
static inline tnc_attend tnc_attend_in_groups(const tnc *s, tnc_attend p, int64_t tiles, int64_t rows, int64_t bytes)
{
    const int64_t fit = (int64_t)s->l2 / 2 / (rows * bytes), heads = p.B * p.H;
    p.group = (int)tnc_ceil(heads, tnc_ceil(heads, fit > 1 ? fit : 1));
    p.group_blocks = (int)(p.group * tiles);
    return p;
}

/* How registers and shared memory are divided. A thread may have 255 registers, so that two blocks of 128 threads use the 64
   K registers of a multiprocessor; two times 112 KiB is about its shared memory. A thread needs C / 2 registers for the sums
   of 16 rows and C columns. Forward: a warp has 32 queries, so that each B fragment is used for two A fragments. A stage has
   64 keys, or 32 where the scores of 64 and o would need too many registers. */
template <int KIND, int D, int DV> struct tnc_attend_plan {
    enum {
        threads = 128, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1,
        queries = 128, keys = DV > 64 ? 32 : 64,
        stage = keys * (sets * D + DV),
        bytes = 2 * (queries * sets * D + 2 * stage)
    };
};

/* Backward: `sums` registers per thread hold the gradients of 16 rows during the whole walk; the scores use what is left of
   200. A warp has 32 rows if at least 16 columns of scores then fit, else 16. Heads whose values are wider than their keys
   need a few registers more. */
template <int KIND, int D, int DV, bool KEYS> struct tnc_attend_back_plan {
    enum {
        threads = 128, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1,
        sums = (sets * D + (KEYS ? DV : 0)) / 2,
        M = (100 - sums) / (sets + 1) * 2 >= 16 ? 2 : 1,                /* tiles of 16 resident rows per warp   */
        left = (200 / M - sums) / (sets + 1) * 2,
        N = left >= (DV > D ? 72 : 64) ? 64 : left >= 32 ? 32 : 16,     /* columns of scores computed at a time */
        resident = 64 * M, row = sets * D + DV,                         /* resident rows of a block             */
        wide = 2 * (resident + 2 * 64) * (row + 8),
        streamed = N < 64 && wide > 112 * 1024 ? 32 : 64,               /* streamed rows of a stage             */
        stage = streamed * (row + (KEYS ? 8 : 0)),                      /* with the row_stats of each query     */
        bytes = 2 * (resident * (row + (KEYS ? 0 : 8)) + 2 * stage)
    };
};

/* The forward kernel. Four warps with 32 queries each walk over the keys. Two stages of keys are in shared memory: one is
   read while the next is loaded. Only o and the statistic are written. */
template <int KIND, int D, int DV> static __global__ void __launch_bounds__(128, 2) tnc_attend_mma(tnc_attend p)
{
    typedef tnc_attend_plan<KIND, D, DV> plan;
    enum { sets = plan::sets, keys = plan::keys, stage = plan::stage, threads = plan::threads, queries = plan::queries };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16     *const q = shared, *const stages = shared + queries * sets * D;
    const int H = (int)p.H, Tq = (int)p.Tq, Tk = (int)p.Tk, i0 = tnc_attend_first_row<false>(p, queries);
    const tnc_attend_place begin = tnc_attend_place_of(p);
    const int last = i0 + queries < Tq ? i0 + queries - 1 : Tq - 1;
    const int to = tnc_attend_keys_of(p, last).high;
    float     o[2][DV / 8][4], row_max[2][2], row_sum[2][2];
    int       j0 = tnc_attend_keys_of(p, i0).low / keys * keys;
    auto load = [&](int which, int j) {
        const tnc_attend_place at = tnc_attend_place_of(p);
        tnc_bf16 *to_x = stages + which * stage;
        for (int x = 0; x < sets; x++)
            tnc_tile_load<D, keys, threads>(to_x + x * keys * D, tnc_head<const tnc_bf16>(p.k, at.b, j, at.h + x * H),
                                            p.k.t, Tk - j);
        tnc_tile_load<DV, keys, threads>(to_x + sets * keys * D, tnc_head<const tnc_bf16>(p.v, at.b, j, at.h), p.v.t,
                                         Tk - j);
    };
    for (int set = 0; set < sets; set++)
        tnc_tile_load<D, queries, threads>(q + set * queries * D,
                                           tnc_head<const tnc_bf16>(p.q, begin.b, i0, begin.h + set * H), p.q.t, Tq - i0);
    if (j0 < to) load(j0 / keys % 2, j0);
    tnc_cp_async_commit();
    tnc_attend_clear(o);
    TNC_UNROLL
    for (int m = 0; m < 2; m++) {
        row_max[m][0] = row_max[m][1] = -INFINITY;
        row_sum[m][0] = row_sum[m][1] = 0.0f;
    }
    /* Everything that can be recomputed is, so that only sums occupy registers between stages. */
    for (; j0 < to; j0 += keys) {
        const int       thread = tnc_reread_thread(), lane = thread & 31, warp_row = thread / 32 * 32, turn = j0 / keys % 2;
        const tnc_bf16 *kt = stages + turn * stage, *vt = kt + sets * keys * D;
        const int       mask = tnc_attend_mask_of(p, i0 + warp_row, i0 + warp_row + 31, j0, j0 + keys - 1);
        float           s[sets][2][keys / 8][4];
        tnc_cp_async_wait<0>();
        __syncthreads();                        /* this stage has arrived, and no thread reads the other any more */
        if (j0 + keys < to) load(turn ^ 1, j0 + keys);
        tnc_cp_async_commit();
        if (mask == 0) continue;
        TNC_UNROLL
        for (int set = 0; set < sets; set++)
            tnc_mma_rows<2, keys, D>(s[set], q + set * queries * D, warp_row, kt + set * keys * D, 0, lane);
        tnc_attend_scores_to_p<KIND>(p, s, o, row_max, row_sum, mask, i0 + warp_row + lane / 4, j0 + 2 * (lane & 3));
        const int again = tnc_reread_thread() & 31;
        TNC_UNROLL
        for (int k = 0; k < keys / 16; k++) {
            unsigned left[2][4];
            TNC_UNROLL
            for (int m = 0; m < 2; m++) tnc_attend_frag_of(left[m], s[0][m], k);
            tnc_mma_step<2, DV>(o, left, vt, 16 * k, again);
        }
    }
    const tnc_attend_place end = tnc_attend_place_of(p);
    const int thread = tnc_reread_thread(), lane = thread & 31, warp_row = thread / 32 * 32;
    tnc_attend_end_rows<KIND>(p, end.head, row_max, row_sum, i0 + warp_row + lane / 4);
    tnc_attend_store_rows<2, DV>(p, p.o, end.b, end.h, i0 + warp_row, Tq, (int)p.n_v, o, row_sum, false);
    tnc_attend_mark_redo(p, tnc_attend_place_of(p).head, tnc_attend_first_row<false>(p, queries), queries, p.Tq,
                         tnc_attend_not_finite<2, DV>(o));
    tnc_cp_async_wait<0>();
}

/* The backward kernel, as in the plain one: resident rows are keys (dk, dv) or queries (dq), and the streamed rows come in
   two stages. Scores are computed as resident x streamed, so that P and dS are A fragments and the streamed rows B fragments
   of the next products: nothing is transposed. */
template <int KIND, int D, int DV, bool KEYS>
static __global__ void __launch_bounds__(128, 2) tnc_attend_mma_back(tnc_attend p)
{
    typedef tnc_attend_back_plan<KIND, D, DV, KEYS> plan;
    enum { sets = plan::sets, M = plan::M, N = plan::N, resident_rows = plan::resident, streamed = plan::streamed,
           stage = plan::stage, threads = plan::threads };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const  resident_x = shared, *const resident_y = shared + resident_rows * sets * D,
        *const stages = resident_y + resident_rows * (DV + (KEYS ? 0 : 8));
    const tnc_heads &gx = KEYS ? p.k : p.q, &gy = KEYS ? p.v : p.dout, &hx = KEYS ? p.q : p.k, &hy = KEYS ? p.dout : p.v;
    const int H = (int)p.H, T_resident = (int)(KEYS ? p.Tk : p.Tq), T_streamed = (int)(KEYS ? p.Tq : p.Tk);
    const int row0 = tnc_attend_first_row<KEYS>(p, resident_rows);
    const tnc_attend_place begin = tnc_attend_place_of(p);
    const int last = row0 + resident_rows < T_resident ? row0 + resident_rows - 1 : T_resident - 1;
    /* the float4 of a query has 16 bytes, like 8 numbers of BF16 */
    const tnc_heads rows = { p.row_stats, 0, 8, p.Tq * 8 };
    float         dx[sets][M][D / 8][4], dv[M][DV / 8][4];
    auto load = [&](int which, int t) {
        const tnc_attend_place here = tnc_attend_place_of(p);
        tnc_bf16 *x = stages + which * stage;
        for (int y = 0; y < sets; y++)
            tnc_tile_load<D, streamed, threads>(x + y * streamed * D,
                                                tnc_head<const tnc_bf16>(hx, here.b, t, here.h + y * H), hx.t,
                                                T_streamed - t);
        tnc_tile_load<DV, streamed, threads>(x + sets * streamed * D, tnc_head<const tnc_bf16>(hy, here.b, t, here.h), hy.t,
                                             T_streamed - t);
        if (KEYS)
            tnc_tile_load<8, streamed, threads>(x + streamed * (sets * D + DV),
                                                tnc_head<const tnc_bf16>(rows, 0, t, here.head), 8, T_streamed - t);
    };
    const tnc_span<int> walk = tnc_attend_walk_of<KEYS>(p, row0, last);
    const int           to = walk.high;
    for (int set = 0; set < sets; set++)
        tnc_tile_load<D, resident_rows, threads>(resident_x + set * resident_rows * D,
                                                 tnc_head<const tnc_bf16>(gx, begin.b, row0, begin.h + set * H),
                                                 gx.t, T_resident - row0);
    tnc_tile_load<DV, resident_rows, threads>(resident_y, tnc_head<const tnc_bf16>(gy, begin.b, row0, begin.h), gy.t,
                                              T_resident - row0);
    if (!KEYS)
        tnc_tile_load<8, resident_rows, threads>(resident_y + resident_rows * DV,
                                                 tnc_head<const tnc_bf16>(rows, 0, row0, begin.head), 8, T_resident - row0);
    int at = walk.low / streamed * streamed;
    if (at < to) load(at / streamed % 2, at);
    tnc_cp_async_commit();
    tnc_attend_clear(dv);
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_attend_clear(dx[set]);
    /* N streamed rows at a time. Everything that can be recomputed is, so that only sums occupy registers between turns. */
    for (; at < to; at += N) {
        const int       sub = at % streamed, turn = at / streamed % 2;
        const int       thread = tnc_reread_thread(), lane = thread & 31;
        const int       warp_row = thread / 32 * 16 * M, mine = row0 + warp_row;
        const tnc_bf16 *xt = stages + turn * stage, *yt = xt + sets * streamed * D;
        const float4   *queries = reinterpret_cast<const float4 *>(KEYS ? yt + streamed * DV
                                                                        : resident_y + resident_rows * DV);
        if (sub == 0) {
            tnc_cp_async_wait<0>();
            __syncthreads();                    /* this stage has arrived, and no thread reads the other any more */
            if (at + streamed < to) load(turn ^ 1, at + streamed);
            tnc_cp_async_commit();
        }
        const int mask = KEYS ? tnc_attend_mask_of(p, at, at + N - 1, mine, mine + 16 * M - 1)
                              : tnc_attend_mask_of(p, mine, mine + 16 * M - 1, at, at + N - 1);
        float     s[sets][M][N / 8][4], dp[M][N / 8][4];
        if (mask == 0) continue;
        TNC_UNROLL
        for (int set = 0; set < sets; set++)
            tnc_mma_rows<M, N, D>(s[set], resident_x + set * resident_rows * D, warp_row, xt + set * streamed * D, sub,
                                  lane);
        if (mask == 1) tnc_attend_mask_back<KIND, KEYS>(p, s, mine + lane / 4, at + 2 * (lane & 3));
        tnc_mma_rows<M, N, DV>(dp, resident_y, warp_row, yt, sub, lane);
        TNC_UNROLL
        for (int k = 0; k < N / 16; k++) {              /* 16 streamed rows: their A fragments, then the products */
            unsigned p_frag[M][4], ds_frag[sets][M][4];
            TNC_UNROLL
            for (int m = 0; m < M; m++)
                tnc_attend_back_frags<KIND, KEYS>(p, p_frag[m], ds_frag[0][m], ds_frag[sets - 1][m], s[0][m], s[sets - 1][m],
                                                  dp[m], queries + (KEYS ? sub + 2 * (lane & 3)
                                                                         : warp_row + 16 * m + lane / 4), k);
            if (KEYS) tnc_mma_step<M, DV>(dv, p_frag, yt, sub + 16 * k, lane);
            TNC_UNROLL
            for (int set = 0; set < sets; set++)
                tnc_mma_step<M, D>(dx[set], ds_frag[set], xt + set * streamed * D, sub + 16 * k, lane);
        }
    }
    const tnc_attend_place end = tnc_attend_place_of(p);
    const int first = tnc_attend_first_row<KEYS>(p, resident_rows), mine = first + tnc_reread_thread() / 32 * 16 * M;
    tnc_attend_end_back<KIND, KEYS, false>(p, end, first, resident_rows, mine, dx, dv);
    tnc_cp_async_wait<0>();
}

/* Copies an operand for the tensor-core kernels: BF16 [B,T,heads,D], padded with zeros. A thread converts 8 numbers. */
template <typename T>
static __global__ void tnc_attend_pack(tnc_heads x, int64_t time, int64_t n, int64_t d, int64_t D, int64_t chunks, uint4 *to)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < chunks; at += step) {
        const int64_t col = at % (D / 8) * 8, row = at / (D / 8);
        const T      *from = tnc_head<const T>(x, row / n / time, row / n % time, row % n) + col;
        float         v[8];
        TNC_UNROLL
        for (int e = 0; e < 8; e++) v[e] = col + e < d ? (float)tnc_to(from[e]) : 0.0f;
        to[at] = make_uint4(tnc_pair(v[0], v[1]), tnc_pair(v[2], v[3]), tnc_pair(v[4], v[5]), tnc_pair(v[6], v[7]));
    }
}

/* ---- tensor cores of Hopper ----------------------------------------------------------------------- >>cuda-attention-wgmma
   The kernels above with wgmma, which multiplies 64 rows of A, in registers or in shared memory, by B in shared memory. What
   a lane holds of the accumulators and of A is what it holds for mma, so that what is done with scores is the same. Products
   and exponentials of one warpgroup do not overlap, those of two warpgroups may. Used on request, see tnc_wgmma_open.

   A tile of D columns lies in shared memory as D / 64 panels of 64 columns. A row of a panel has 128 bytes, and tnc_swizzle<8>
   is the 128-byte swizzle of wgmma if the tile begins at a multiple of 1,024 bytes. A descriptor holds, in units of 16 bytes,
   the address, the distance of panels (which is used where the rows are k: V), and the distance of 8 rows.

   wgmma reads shared memory by the asynchronous proxy: a thread that has written there, also by cp.async, executes
   fence.proxy.async before the barrier. Products run until they are waited for; until then their registers must not be
   accessed.

   Each kernel has two forms with the same arithmetic. In the one for cp.async all threads load, into two stages. The one for
   TMA (_tma) has a third warpgroup, one thread of which loads whole tiles ahead into a ring of stages; each stage has
   mbarriers that say when its tiles have arrived, and when all warps have read them. That warpgroup leaves its registers to
   the others, which may then have 240. A call uses this form where tensor maps can describe its operands (tnc_tma_map). The
   kernel for the gradients of bilinear keys and values with D = 128 needs more registers, and exists for cp.async only. */

#if TNC_WGMMA
/* Starts the copy of ROWS rows of D numbers to the panels of a tile, as tnc_tile_load does. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tnc_wgmma_load(tnc_bf16 *tile, const tnc_bf16 *from, int64_t pitch, int64_t there)
{
    for (int panel = 0; panel < D / 64; panel++)
        tnc_tile_load<64, ROWS, THREADS>(tile + panel * ROWS * 64, from + panel * 64, pitch, there);
}

/* The descriptor of a tile, of all or from a row on that is a multiple of 8. panel: rows of a panel, or 0 if k is contiguous */
static __device__ __forceinline__ uint64_t tnc_wgmma_tile(const tnc_bf16 *tile, int panel)
{
    return (uint64_t)(tnc_shared_address(tile) >> 4) | (uint64_t)(panel ? panel * 8 : 1) << 16 | (uint64_t)64 << 32
         | (uint64_t)1 << 62;
}

/* s = a b^T for 64 rows of a tile with A_ROWS rows and N rows of a tile with B_ROWS, of D numbers each. */
template <int N, int D, int A_ROWS, int B_ROWS>
static __device__ __forceinline__ void tnc_wgmma_rows(float (&s)[N / 8][4], const tnc_bf16 *a, const tnc_bf16 *b)
{
    const uint64_t a_desc = tnc_wgmma_tile(a, 0), b_desc = tnc_wgmma_tile(b, 0);
    TNC_UNROLL
    for (int k = 0; k < D / 16; k++)
        tnc_wgmma_ss<N>(s, a_desc + (uint64_t)(k / 4 * A_ROWS * 8 + k % 4 * 2),
                        b_desc + (uint64_t)(k / 4 * B_ROWS * 8 + k % 4 * 2), k > 0);
}

/* out += p x, where p has 64 rows and K columns in registers, and x are K rows of a tile of ROWS rows and C columns. */
template <int K, int C, int ROWS>
static __device__ __forceinline__ void tnc_wgmma_step(float (&out)[C / 8][4], const unsigned (&p)[K / 16][4],
                                                      const tnc_bf16 *x)
{
    const uint64_t desc = tnc_wgmma_tile(x, ROWS);
    TNC_UNROLL
    for (int k = 0; k < K / 16; k++) tnc_wgmma_rs<C>(out, p[k], desc + (uint64_t)(k * 128), 1);
}

/* The first multiple of 1,024 in dynamic shared memory */
static __device__ __forceinline__ tnc_bf16 *tnc_wgmma_shared(tnc_bf16 *shared)
{
    return shared + (1024 - tnc_shared_address(shared) % 1024) % 1024 / 2;
}

/* One stage of keys: scores of 64 queries, P, and o += P V. row and col: this thread's first query and key. values() returns
   when the values have arrived. */
template <class PLAN, int KIND, int D, class F>
static __device__ __forceinline__ void tnc_attend_wgmma_stage(const tnc_attend &p, const tnc_bf16 *q, const tnc_bf16 *kt,
                                                              float (&o)[1][D / 8][4], float (&row_max)[1][2],
                                                              float (&row_sum)[1][2], int mask, int row, int col, F values)
{
    enum { sets = PLAN::sets, keys = PLAN::keys, queries = PLAN::queries };
    float    s[sets][1][keys / 8][4];
    unsigned left[keys / 16][4];
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(s[set][0]);
    tnc_wgmma_fence();
    TNC_UNROLL
    for (int set = 0; set < sets; set++)
        tnc_wgmma_rows<keys, D, queries, keys>(s[set][0], q + set * queries * D, kt + set * keys * D);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(s[set][0]);
    tnc_attend_scores_to_p<KIND>(p, s, o, row_max, row_sum, mask, row, col);
    TNC_UNROLL
    for (int k = 0; k < keys / 16; k++) tnc_attend_frag_of(left[k], s[0][0], k);
    values();
    tnc_wgmma_operand(o[0]);
    tnc_wgmma_operand(left);
    tnc_wgmma_fence();
    tnc_wgmma_step<keys, D, keys>(o[0], left, kt + sets * keys * D);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    tnc_wgmma_operand(o[0]);
}

/* N streamed rows of the backward pass, which begin at xt and yt: scores and dP of 64 resident rows, P and dS, and what they
   add to the gradients. queries: as for tnc_attend_back_frags. row, col: this thread's first resident and streamed row. */
template <class PLAN, int KIND, int D, bool KEYS>
static __device__ __forceinline__ void tnc_attend_wgmma_back_rows(const tnc_attend &p, const tnc_bf16 *x, const tnc_bf16 *y,
                                                                  const tnc_bf16 *xt, const tnc_bf16 *yt,
                                                                  const float4 *queries,
                                                                  float (&dx)[PLAN::sets][1][D / 8][4],
                                                                  float (&dv)[1][D / 8][4], int mask, int row, int col)
{
    enum { sets = PLAN::sets, N = PLAN::N, resident = PLAN::resident, streamed = PLAN::streamed };
    float    s[sets][1][N / 8][4], dp[N / 8][4];
    unsigned p_frag[N / 16][4], ds_frag[sets][N / 16][4];
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(s[set][0]);
    tnc_wgmma_operand(dp);
    tnc_wgmma_fence();
    TNC_UNROLL
    for (int set = 0; set < sets; set++)
        tnc_wgmma_rows<N, D, resident, streamed>(s[set][0], x + set * resident * D, xt + set * streamed * D);
    tnc_wgmma_rows<N, D, resident, streamed>(dp, y, yt);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(s[set][0]);
    tnc_wgmma_operand(dp);
    if (mask == 1) tnc_attend_mask_back<KIND, KEYS>(p, s, row, col);
    TNC_UNROLL
    for (int k = 0; k < N / 16; k++)
        tnc_attend_back_frags<KIND, KEYS>(p, p_frag[k], ds_frag[0][k], ds_frag[sets - 1][k], s[0][0], s[sets - 1][0], dp,
                                          queries, k);
    if (KEYS) {
        tnc_wgmma_operand(p_frag);
        tnc_wgmma_operand(dv[0]);
    }
    TNC_UNROLL
    for (int set = 0; set < sets; set++) {
        tnc_wgmma_operand(ds_frag[set]);
        tnc_wgmma_operand(dx[set][0]);
    }
    tnc_wgmma_fence();
    if (KEYS) tnc_wgmma_step<N, D, streamed>(dv[0], p_frag, yt);
    TNC_UNROLL
    for (int set = 0; set < sets; set++)
        tnc_wgmma_step<N, D, streamed>(dx[set][0], ds_frag[set], xt + set * streamed * D);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    if (KEYS) tnc_wgmma_operand(dv[0]);
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(dx[set][0]);
}
#endif

/* Two warpgroups of 64 queries. One block has the registers of a multiprocessor, up to 255 for a thread: keys / 2 for each set
   of scores, D / 2 for o, keys / 4 for P. A stage has 128 keys, or 64 where two stages of 128 are too large. */
template <int KIND, int D> struct tnc_attend_wgmma_plan {
    enum {
        threads = 256, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1, queries = 128, row = (sets + 1) * D,
        keys = 2 * (queries * sets * D + 2 * 128 * row) + 1024 <= 227 * 1024 ? 128 : 64,
        stage = keys * row, bytes = 2 * (queries * sets * D + 2 * stage) + 1024
    };
};

/* The forward kernel: the loop of tnc_attend_mma, in which a warpgroup computes the scores of 64 queries at once. */
template <int KIND, int D> static __global__ void __launch_bounds__(256, 1) tnc_attend_wgmma(tnc_attend p)
{
#if TNC_WGMMA
    typedef tnc_attend_wgmma_plan<KIND, D> plan;
    enum { sets = plan::sets, keys = plan::keys, stage = plan::stage, threads = plan::threads, queries = plan::queries };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16     *const q = tnc_wgmma_shared(shared), *const stages = q + queries * sets * D;
    const int H = (int)p.H, Tq = (int)p.Tq, Tk = (int)p.Tk, i0 = tnc_attend_first_row<false>(p, queries);
    const int lane = (int)threadIdx.x & 31, group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int mine = i0 + (int)threadIdx.x / 32 * 16 + lane / 4;                    /* the first of two queries, 8 apart */
    const tnc_attend_place at = tnc_attend_place_of(p);
    const int last = i0 + queries < Tq ? i0 + queries - 1 : Tq - 1;
    const int to = tnc_attend_keys_of(p, last).high;
    int       j0 = tnc_attend_keys_of(p, i0).low / keys * keys;
    float     o[1][D / 8][4], row_max[1][2] = { { -INFINITY, -INFINITY } }, row_sum[1][2] = { { 0.0f, 0.0f } };
    auto load = [&](int which, int j) {
        tnc_bf16 *to_x = stages + which * stage;
        for (int x = 0; x < sets; x++)
            tnc_wgmma_load<D, keys, threads>(to_x + x * keys * D, tnc_head<const tnc_bf16>(p.k, at.b, j, at.h + x * H),
                                             p.k.t, Tk - j);
        tnc_wgmma_load<D, keys, threads>(to_x + sets * keys * D, tnc_head<const tnc_bf16>(p.v, at.b, j, at.h), p.v.t, Tk - j);
    };
    for (int set = 0; set < sets; set++)
        tnc_wgmma_load<D, queries, threads>(q + set * queries * D,
                                            tnc_head<const tnc_bf16>(p.q, at.b, i0, at.h + set * H), p.q.t, Tq - i0);
    if (j0 < to) load(j0 / keys % 2, j0);
    tnc_cp_async_commit();
    tnc_attend_clear(o);
    for (; j0 < to; j0 += keys) {
        const int turn = j0 / keys % 2, first = i0 + 64 * group;
        const int mask = tnc_attend_mask_of(p, first, first + 63, j0, j0 + keys - 1);
        tnc_cp_async_wait<0>();
        tnc_fence_async();
        __syncthreads();                        /* this stage has arrived, and no thread reads the other any more */
        if (j0 + keys < to) load(turn ^ 1, j0 + keys);
        tnc_cp_async_commit();
        if (mask == 0) continue;
        tnc_attend_wgmma_stage<plan, KIND, D>(p, q + group * 64 * 64, stages + turn * stage, o, row_max, row_sum, mask, mine,
                                              j0 + 2 * (lane & 3), [] {});
    }
    tnc_attend_end_rows<KIND>(p, at.head, row_max, row_sum, mine);
    tnc_attend_store_rows<1, D>(p, p.o, at.b, at.h, mine - lane / 4, Tq, (int)p.n_v, o, row_sum, false);
    tnc_attend_mark_redo_alone(p, at.head, i0 + 64 * group, p.Tq, tnc_attend_not_finite<1, D>(o), group);
    tnc_cp_async_wait<0>();
#else
    (void)p;
#endif
}

/* Backward: two warpgroups of 64 resident rows. `sums` registers hold the gradients of a thread during the whole walk. N
   streamed rows at a time need N / 2 for each set of scores and for dP, later half of that for P and dS: as many as fit. */
template <int KIND, int D, bool KEYS> struct tnc_attend_wgmma_back_plan {
    enum {
        threads = 256, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1, resident = 128, streamed = 64, row = (sets + 1) * D,
        sums = (KEYS ? row : sets * D) / 2,
        N = sums + 32 * (sets + 1) <= 192 ? 64 : sums + 16 * (sets + 1) <= 192 ? 32 : 16,
        stage = streamed * (row + (KEYS ? 8 : 0)),                      /* with the row_stats of each query */
        kept = resident * (row + (KEYS ? 0 : 8)),
        bytes = 2 * (kept + 2 * stage) + 1024
    };
};

/* The backward kernel: the loop of tnc_attend_mma_back. */
template <int KIND, int D, bool KEYS> static __global__ void __launch_bounds__(256, 1) tnc_attend_back_wgmma(tnc_attend p)
{
#if TNC_WGMMA
    typedef tnc_attend_wgmma_back_plan<KIND, D, KEYS> plan;
    enum { sets = plan::sets, N = plan::N, resident_rows = plan::resident, streamed = plan::streamed, stage = plan::stage,
           threads = plan::threads };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const  x = tnc_wgmma_shared(shared), *const y = x + resident_rows * sets * D,
        *const stages = y + resident_rows * (D + (KEYS ? 0 : 8));
    const tnc_heads &gx = KEYS ? p.k : p.q, &gy = KEYS ? p.v : p.dout, &hx = KEYS ? p.q : p.k, &hy = KEYS ? p.dout : p.v;
    const int        H = (int)p.H, T_resident = (int)(KEYS ? p.Tk : p.Tq), T_streamed = (int)(KEYS ? p.Tq : p.Tk);
    const int        row0 = tnc_attend_first_row<KEYS>(p, resident_rows);
    const int        lane = (int)threadIdx.x & 31, group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int        warp_row = (int)threadIdx.x / 32 * 16, mine = row0 + 64 * group;
    const int        last = row0 + resident_rows < T_resident ? row0 + resident_rows - 1 : T_resident - 1;
    const tnc_attend_place here = tnc_attend_place_of(p);
    /* the float4 of a query has 16 bytes, like 8 numbers of BF16 */
    const tnc_heads rows = { p.row_stats, 0, 8, p.Tq * 8 };
    float         dx[sets][1][D / 8][4], dv[1][D / 8][4];
    auto load = [&](int which, int t) {
        tnc_bf16 *to_x = stages + which * stage;
        for (int i = 0; i < sets; i++)
            tnc_wgmma_load<D, streamed, threads>(to_x + i * streamed * D,
                                                 tnc_head<const tnc_bf16>(hx, here.b, t, here.h + i * H), hx.t,
                                                 T_streamed - t);
        tnc_wgmma_load<D, streamed, threads>(to_x + sets * streamed * D, tnc_head<const tnc_bf16>(hy, here.b, t, here.h),
                                             hy.t, T_streamed - t);
        if (KEYS)
            tnc_tile_load<8, streamed, threads>(to_x + streamed * (sets * D + D),
                                                tnc_head<const tnc_bf16>(rows, 0, t, here.head), 8, T_streamed - t);
    };
    const tnc_span<int> walk = tnc_attend_walk_of<KEYS>(p, row0, last);
    const int           to = walk.high;
    for (int set = 0; set < sets; set++)
        tnc_wgmma_load<D, resident_rows, threads>(x + set * resident_rows * D,
                                                  tnc_head<const tnc_bf16>(gx, here.b, row0, here.h + set * H), gx.t,
                                                  T_resident - row0);
    tnc_wgmma_load<D, resident_rows, threads>(y, tnc_head<const tnc_bf16>(gy, here.b, row0, here.h), gy.t,
                                              T_resident - row0);
    if (!KEYS)
        tnc_tile_load<8, resident_rows, threads>(y + resident_rows * D,
                                                 tnc_head<const tnc_bf16>(rows, 0, row0, here.head), 8, T_resident - row0);
    int at = walk.low / streamed * streamed;
    if (at < to) load(at / streamed % 2, at);
    tnc_cp_async_commit();
    tnc_attend_clear(dv);
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_attend_clear(dx[set]);
    for (; at < to; at += N) {
        const int       sub = at % streamed, turn = at / streamed % 2;
        const tnc_bf16 *xt = stages + turn * stage, *yt = xt + sets * streamed * D;
        const float4   *queries = reinterpret_cast<const float4 *>(KEYS ? yt + streamed * D : y + resident_rows * D);
        const int       mask = KEYS ? tnc_attend_mask_of(p, at, at + N - 1, mine, mine + 63)
                                    : tnc_attend_mask_of(p, mine, mine + 63, at, at + N - 1);
        if (sub == 0) {
            tnc_cp_async_wait<0>();
            tnc_fence_async();
            __syncthreads();                    /* this stage has arrived, and no thread reads the other any more */
            if (at + streamed < to) load(turn ^ 1, at + streamed);
            tnc_cp_async_commit();
        }
        if (mask == 0) continue;
        tnc_attend_wgmma_back_rows<plan, KIND, D, KEYS>(
            p, x + group * 64 * 64, y + group * 64 * 64, xt + sub * 64, yt + sub * 64,
            queries + (KEYS ? sub + 2 * (lane & 3) : warp_row + lane / 4), dx, dv, mask, row0 + warp_row + lane / 4,
            at + 2 * (lane & 3));
    }
    tnc_attend_end_back<KIND, KEYS, true>(p, here, mine, 64, row0 + warp_row, dx, dv);
    tnc_cp_async_wait<0>();
#else
    (void)p;
#endif
}

/* The forms for TMA. The ring has as many stages as fit, up to four, beside KEPT numbers that stay in shared memory during
   the whole kernel. After it come the mbarriers of a tnc_ring. */
template <class PLAN, int KEPT> struct tnc_ring_plan {
    enum {
        threads = 384, fixed = 2 * KEPT + 1024 + 128, fit = (227 * 1024 - fixed) / (2 * PLAN::stage),
        stages = fit > 4 ? 4 : fit, bytes = fixed + stages * 2 * PLAN::stage
    };
};

template <int KIND, int D> struct tnc_attend_tma_plan : tnc_attend_wgmma_plan<KIND, D> {
    typedef tnc_attend_wgmma_plan<KIND, D> tiles;
    typedef tnc_ring_plan<tiles, tiles::queries * tiles::sets * D> ring;
};

template <int KIND, int D, bool KEYS> struct tnc_attend_tma_back_plan : tnc_attend_wgmma_back_plan<KIND, D, KEYS> {
    typedef tnc_attend_wgmma_back_plan<KIND, D, KEYS> tiles;
    typedef tnc_ring_plan<tiles, tiles::kept> ring;
    enum { fits = tiles::sums <= 128 };                                 /* else 240 registers are too few */
};

/* The tensor maps of what stays and of what is streamed, in the order in which tiles are loaded */
template <int N> struct tnc_tma_maps { CUtensorMap map[N]; };
enum { TNC_TMA_STATS = 256 };            /* columns of a box of row_stats, the most that a box has */

#if TNC_WGMMA
enum { TNC_RING_PRODUCER = 2, TNC_RING_READERS = 8 };         /* the warpgroup that loads; the warps that read */

/* Where a thread is in the ring, and its mbarriers. kept [1]: what stays has arrived. full [stages]: the tiles of a stage
   have arrived, but for those that are needed later, which have `later` if there are any. empty: all warps have read them. */
typedef struct tnc_ring { tnc_barrier *kept, *full, *later, *empty; int slot, parity; } tnc_ring;

template <int STAGES, bool LATER> static __device__ __forceinline__ tnc_ring tnc_ring_of(void *at)
{
    tnc_barrier *const kept = (tnc_barrier *)at;
    const tnc_ring     r = { kept, kept + 1, kept + 1 + STAGES, kept + 1 + 2 * STAGES, 0, 0 };
    if (threadIdx.x == 0) {
        tnc_barrier_init(r.kept, 1);
        for (int i = 0; i < STAGES; i++) {
            tnc_barrier_init(r.full + i, 1);
            if (LATER) tnc_barrier_init(r.later + i, 1);
            tnc_barrier_init(r.empty + i, TNC_RING_READERS);
        }
        tnc_barrier_fence();
    }
    __syncthreads();
    return r;
}

template <int STAGES> static __device__ __forceinline__ void tnc_ring_next(tnc_ring &r)
{
    if (++r.slot < STAGES) return;
    r.slot = 0;
    r.parity ^= 1;
}

/* Waits until this slot may be filled. In the first turn it is empty, and the wait ends at once. */
static __device__ __forceinline__ void tnc_ring_wait_empty(const tnc_ring &r)
{
    tnc_barrier_wait(r.empty + r.slot, r.parity ^ 1);
}

/* By all threads of a warp that have read this slot */
static __device__ __forceinline__ void tnc_ring_release(const tnc_ring &r)
{
    __syncwarp();
    if (((int)threadIdx.x & 31) == 0) tnc_barrier_arrive(r.empty + r.slot);
}

/* Starts the copy of ROWS rows of D numbers, from row t of a head on, to the panels of a tile. */
template <int D, int ROWS>
static __device__ __forceinline__ void tnc_tma_load(tnc_bf16 *tile, const CUtensorMap *map, tnc_barrier *full, int b, int t,
                                                    int h)
{
    for (int panel = 0; panel < D / 64; panel++)
        tnc_bulk_load(tile + panel * ROWS * 64, map, full, panel * 64, h, t, b);
}

/* Starts the copy of the row_stats of ROWS queries, from query t of a head on. The float4 of a query has 16 bytes, like 8
   numbers of BF16, and those of a head follow each other: so a box has as many numbers as it may, of many queries. */
template <int ROWS>
static __device__ __forceinline__ void tnc_tma_load_stats(tnc_bf16 *to, const CUtensorMap *map, tnc_barrier *full, int t,
                                                          int head)
{
    for (int at = 0; at < 8 * ROWS; at += TNC_TMA_STATS)
        tnc_bulk_load(to + at, map, full, 8 * t + at, 0, head, 0);
}
#endif

/* The forward kernel. maps: q, k, v */
template <int KIND, int D>
static __global__ void __launch_bounds__(384, 1) tnc_attend_tma(const __grid_constant__ tnc_attend p,
                                                                const __grid_constant__ tnc_tma_maps<3> maps)
{
#if TNC_WGMMA
    typedef tnc_attend_tma_plan<KIND, D> plan;
    enum { sets = plan::sets, keys = plan::keys, stage = plan::stage, queries = plan::queries, stages = plan::ring::stages };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const q = tnc_wgmma_shared(shared), *const tiles = q + queries * sets * D;
    tnc_ring ring = tnc_ring_of<stages, true>(tiles + stages * stage);
    const int H = (int)p.H, Tq = (int)p.Tq, i0 = tnc_attend_first_row<false>(p, queries);
    const int lane = (int)threadIdx.x & 31, group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int mine = i0 + (int)threadIdx.x / 32 * 16 + lane / 4, first = i0 + 64 * group;
    const int last = i0 + queries < Tq ? i0 + queries - 1 : Tq - 1, to = tnc_attend_keys_of(p, last).high;
    const tnc_attend_place at = tnc_attend_place_of(p);
    int       j0 = tnc_attend_keys_of(p, i0).low / keys * keys;
    if (group == TNC_RING_PRODUCER) {
        tnc_registers_less<24>();
        if (threadIdx.x % 128) return;
        tnc_barrier_expect(ring.kept, 2 * queries * sets * D);
        for (int set = 0; set < sets; set++)
            tnc_tma_load<D, queries>(q + set * queries * D, &maps.map[0], ring.kept, at.b, i0, at.h + set * H);
        for (; j0 < to; j0 += keys, tnc_ring_next<stages>(ring)) {
            tnc_bf16    *kt = tiles + ring.slot * stage;
            tnc_barrier *full = ring.full + ring.slot, *later = ring.later + ring.slot;
            tnc_ring_wait_empty(ring);
            tnc_barrier_expect(full, 2 * keys * sets * D);
            for (int set = 0; set < sets; set++)
                tnc_tma_load<D, keys>(kt + set * keys * D, &maps.map[1], full, at.b, j0, at.h + set * H);
            tnc_barrier_expect(later, 2 * keys * D);
            tnc_tma_load<D, keys>(kt + sets * keys * D, &maps.map[2], later, at.b, j0, at.h);
        }
        return;
    }
    tnc_registers_more<240>();
    float o[1][D / 8][4], row_max[1][2] = { { -INFINITY, -INFINITY } }, row_sum[1][2] = { { 0.0f, 0.0f } };
    tnc_attend_clear(o);
    tnc_barrier_wait(ring.kept, 0);
    for (; j0 < to; j0 += keys, tnc_ring_next<stages>(ring)) {
        const int mask = tnc_attend_mask_of(p, first, first + 63, j0, j0 + keys - 1);
        auto values = [&] { tnc_barrier_wait(ring.later + ring.slot, ring.parity); };
        tnc_barrier_wait(ring.full + ring.slot, ring.parity);
        if (mask)                               /* else the values are those of the other warpgroup, which waits for them */
            tnc_attend_wgmma_stage<plan, KIND, D>(p, q + group * 64 * 64, tiles + ring.slot * stage, o, row_max, row_sum,
                                                  mask, mine, j0 + 2 * (lane & 3), values);
        tnc_ring_release(ring);
    }
    tnc_attend_end_rows<KIND>(p, at.head, row_max, row_sum, mine);
    tnc_attend_store_rows<1, D>(p, p.o, at.b, at.h, mine - lane / 4, Tq, (int)p.n_v, o, row_sum, false);
    tnc_attend_mark_redo_alone(p, at.head, first, p.Tq, tnc_attend_not_finite<1, D>(o), group);
#else
    (void)p, (void)maps;
#endif
}

/* The backward kernel. maps: the resident x and y, the streamed x and y, row_stats */
template <int KIND, int D, bool KEYS>
static __global__ void __launch_bounds__(384, 1) tnc_attend_back_tma(const __grid_constant__ tnc_attend p,
                                                                     const __grid_constant__ tnc_tma_maps<5> maps)
{
#if TNC_WGMMA
    typedef tnc_attend_tma_back_plan<KIND, D, KEYS> plan;
    enum { sets = plan::sets, N = plan::N, resident = plan::resident, streamed = plan::streamed, stage = plan::stage,
           stages = plan::ring::stages };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const x = tnc_wgmma_shared(shared), *const y = x + resident * sets * D, *const tiles = x + plan::kept;
    tnc_ring ring = tnc_ring_of<stages, false>(tiles + stages * stage);
    const int H = (int)p.H, T = (int)(KEYS ? p.Tk : p.Tq), row0 = tnc_attend_first_row<KEYS>(p, resident);
    const int lane = (int)threadIdx.x & 31, group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp_row = (int)threadIdx.x / 32 * 16, mine = row0 + 64 * group;
    const tnc_attend_place here = tnc_attend_place_of(p);
    const tnc_span<int>    walk = tnc_attend_walk_of<KEYS>(p, row0, row0 + resident < T ? row0 + resident - 1 : T - 1);
    const int to = walk.high;
    int       at = walk.low / streamed * streamed;
    if (group == TNC_RING_PRODUCER) {
        tnc_registers_less<24>();
        if (threadIdx.x % 128) return;
        tnc_barrier_expect(ring.kept, 2 * plan::kept);
        for (int set = 0; set < sets; set++)
            tnc_tma_load<D, resident>(x + set * resident * D, &maps.map[0], ring.kept, here.b, row0, here.h + set * H);
        tnc_tma_load<D, resident>(y, &maps.map[1], ring.kept, here.b, row0, here.h);
        if (!KEYS) tnc_tma_load_stats<resident>(y + resident * D, &maps.map[4], ring.kept, row0, here.head);
        for (; at < to; at += streamed, tnc_ring_next<stages>(ring)) {
            tnc_bf16    *xt = tiles + ring.slot * stage, *yt = xt + sets * streamed * D;
            tnc_barrier *full = ring.full + ring.slot;
            tnc_ring_wait_empty(ring);
            tnc_barrier_expect(full, 2 * stage);
            for (int set = 0; set < sets; set++)
                tnc_tma_load<D, streamed>(xt + set * streamed * D, &maps.map[2], full, here.b, at, here.h + set * H);
            tnc_tma_load<D, streamed>(yt, &maps.map[3], full, here.b, at, here.h);
            if (KEYS) tnc_tma_load_stats<streamed>(yt + streamed * D, &maps.map[4], full, at, here.head);
        }
        return;
    }
    tnc_registers_more<240>();
    float dx[sets][1][D / 8][4], dv[1][D / 8][4];
    tnc_attend_clear(dv);
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_attend_clear(dx[set]);
    tnc_barrier_wait(ring.kept, 0);
    for (; at < to; at += N) {
        const int       sub = at % streamed;
        const tnc_bf16 *xt = tiles + ring.slot * stage, *yt = xt + sets * streamed * D;
        const float4   *queries = reinterpret_cast<const float4 *>(KEYS ? yt + streamed * D : y + resident * D);
        const int       mask = KEYS ? tnc_attend_mask_of(p, at, at + N - 1, mine, mine + 63)
                                    : tnc_attend_mask_of(p, mine, mine + 63, at, at + N - 1);
        if (sub == 0) tnc_barrier_wait(ring.full + ring.slot, ring.parity);
        if (mask)
            tnc_attend_wgmma_back_rows<plan, KIND, D, KEYS>(
                p, x + group * 64 * 64, y + group * 64 * 64, xt + sub * 64, yt + sub * 64,
                queries + (KEYS ? sub + 2 * (lane & 3) : warp_row + lane / 4), dx, dv, mask, row0 + warp_row + lane / 4,
                at + 2 * (lane & 3));
        if (sub + N < streamed) continue;
        tnc_ring_release(ring);
        tnc_ring_next<stages>(ring);
    }
    tnc_attend_end_back<KIND, KEYS, true>(p, here, mine, 64, row0 + warp_row, dx, dv);
#else
    (void)p, (void)maps;
#endif
}

/* The tensor map of an operand [B,T,heads,D] from which TMA copies `rows` rows of a head at once: panels of 64 columns,
   swizzled as wgmma needs them, or more columns as they are. It is a parameter of the kernel, so a graph keeps it. Its axes
   are D, heads, T, B, because cuda.h documents strides that grow. Returns false where no map can describe the operand: all
   strides must be positive multiples of 16 bytes, coordinates are ints. */
static bool tnc_tma_map(const tnc *s, CUtensorMap *map, const tnc_heads &x, int64_t B, int64_t T, int64_t heads, int64_t D,
                        int rows, int columns = 64)
{
    const cuuint64_t extents[4] = { (cuuint64_t)D, (cuuint64_t)heads, (cuuint64_t)T, (cuuint64_t)B };
    const int64_t    steps[3] = { x.h, x.t, x.b };
    const cuuint32_t ones[4] = { 1, 1, 1, 1 }, box[4] = { (cuuint32_t)columns, 1, (cuuint32_t)rows, 1 };
    cuuint64_t       strides[3];
    int64_t          step = D;
    if (D > INT32_MAX / 2) return false;
    for (int i = 0; i < 3; i++) {
        if (extents[i + 1] > 1) step = steps[i];                            /* the stride of one row means nothing */
        if (step <= 0 || step % 8) return false;
        strides[i] = (cuuint64_t)step * sizeof(tnc_bf16);
    }
    return s->tma_encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, x.data, extents, strides, box, ones,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, columns > 64 ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Launch these kernels, by TMA where that is possible, if the context and the call are for them. */
template <int KIND, int D> static bool tnc_attend_run_tma(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_tma_plan<KIND, D> plan;
    const int64_t   tiles = tnc_ceil(p.Tq, plan::queries), set_heads = plan::sets * p.H;
    tnc_tma_maps<3> maps;
    if (!s->tma_encode || (size_t)plan::ring::bytes > s->shared_max
        || !tnc_tma_map(s, &maps.map[0], p.q, p.B, p.Tq, set_heads, D, plan::queries)
        || !tnc_tma_map(s, &maps.map[1], p.k, p.B, p.Tk, set_heads, D, plan::keys)
        || !tnc_tma_map(s, &maps.map[2], p.v, p.B, p.Tk, p.H, D, plan::keys)) return false;
    tnc_shared_for(s, tnc_attend_tma<KIND, D>, plan::ring::bytes);
    TNC_LAUNCH((tnc_attend_tma<KIND, D>), (unsigned)(tiles * p.B * p.H), plan::ring::threads, plan::ring::bytes, s->stream,
               tnc_attend_in_groups(s, p, tiles, p.Tk, 2 * plan::row), maps);
    tnc_wgmma_launched(s, true);
    return true;
}

template <int KIND, int D, bool KEYS>
static bool tnc_attend_run_back_tma(tnc *s, const tnc_attend &p, const tnc_attend &in_groups, int64_t tiles)
{
    typedef tnc_attend_tma_back_plan<KIND, D, KEYS> plan;
    if constexpr (plan::fits) {
        const int       queries = KEYS ? plan::streamed : plan::resident, keys = KEYS ? plan::resident : plan::streamed;
        const int64_t   set_heads = plan::sets * p.H;
        const tnc_heads stats = { p.row_stats, 0, 8 * p.Tq, 0 };        /* [1,B H,1,8 Tq], see tnc_tma_load_stats */
        tnc_tma_maps<5> maps;
        if (!s->tma_encode || (size_t)plan::ring::bytes > s->shared_max
            || !tnc_tma_map(s, &maps.map[KEYS ? 2 : 0], p.q, p.B, p.Tq, set_heads, D, queries)
            || !tnc_tma_map(s, &maps.map[KEYS ? 0 : 2], p.k, p.B, p.Tk, set_heads, D, keys)
            || !tnc_tma_map(s, &maps.map[KEYS ? 1 : 3], p.v, p.B, p.Tk, p.H, D, keys)
            || !tnc_tma_map(s, &maps.map[KEYS ? 3 : 1], p.dout, p.B, p.Tq, p.H, D, queries)
            || !tnc_tma_map(s, &maps.map[4], stats, 1, p.B * p.H, 1, 8 * p.Tq, 1, TNC_TMA_STATS)) return false;
        tnc_shared_for(s, tnc_attend_back_tma<KIND, D, KEYS>, plan::ring::bytes);
        TNC_LAUNCH((tnc_attend_back_tma<KIND, D, KEYS>), (unsigned)(tiles * p.B * p.H), plan::ring::threads,
                   plan::ring::bytes, s->stream, in_groups, maps);
        tnc_wgmma_launched(s, true);
        return true;
    } else return false;
}

template <int KIND, int D> static bool tnc_attend_run_forward_wgmma(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_wgmma_plan<KIND, D> plan;
    const int64_t tiles = tnc_ceil(p.Tq, plan::queries);
    if ((size_t)plan::bytes > s->shared_max) return false;
    if (tnc_attend_run_tma<KIND, D>(s, p)) return true;
    tnc_shared_for(s, tnc_attend_wgmma<KIND, D>, plan::bytes);
    TNC_LAUNCH((tnc_attend_wgmma<KIND, D>), (unsigned)(tiles * p.B * p.H), plan::threads, plan::bytes, s->stream,
               tnc_attend_in_groups(s, p, tiles, p.Tk, 2 * plan::row));
    tnc_wgmma_launched(s, false);
    return true;
}

template <int KIND, int D, bool KEYS> static bool tnc_attend_run_back_wgmma(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_wgmma_back_plan<KIND, D, KEYS> plan;
    const int64_t tiles = tnc_ceil(KEYS ? p.Tk : p.Tq, plan::resident);
    tnc_attend    in_groups = tnc_attend_in_groups(s, p, tiles, KEYS ? p.Tq : p.Tk, 2 * plan::stage / plan::streamed);
    if ((size_t)plan::bytes > s->shared_max) return false;
    if (KEYS) in_groups.redo += tnc_attend_tiles(p, p.Tq);
    if (tnc_attend_run_back_tma<KIND, D, KEYS>(s, p, in_groups, tiles)) return true;
    tnc_shared_for(s, tnc_attend_back_wgmma<KIND, D, KEYS>, plan::bytes);
    TNC_LAUNCH((tnc_attend_back_wgmma<KIND, D, KEYS>), (unsigned)(tiles * p.B * p.H), plan::threads, plan::bytes, s->stream,
               in_groups);
    tnc_wgmma_launched(s, false);
    return true;
}

/* Launches the kernel for a call with D = DV: of the forward pass; or of the backward pass, for the gradients of queries or of
   keys. Returns false where there is none. */
TNC_FN bool tnc_attend_run_wgmma(tnc *s, const tnc_attend &p, int D, bool back, bool keys)
{
    if (!s->wgmma) return false;
#define TNC_CASE(KIND, n) \
    if (p.kind == KIND && D == n) \
        return !back ? tnc_attend_run_forward_wgmma<KIND, n>(s, p) \
               : keys ? tnc_attend_run_back_wgmma<KIND, n, true>(s, p) : tnc_attend_run_back_wgmma<KIND, n, false>(s, p)
    TNC_CASE(TN_ATTEND_SOFTMAX, 64);   TNC_CASE(TN_ATTEND_SQUARED, 64);   TNC_CASE(TN_ATTEND_BILINEAR, 64);
    TNC_CASE(TN_ATTEND_SOFTMAX, 128);  TNC_CASE(TN_ATTEND_SQUARED, 128);  TNC_CASE(TN_ATTEND_BILINEAR, 128);
#undef TNC_CASE
    return false;
}

/* ---- which kernels a call takes ------------------------------------------------------------------ >>cuda-attention-choose
   Dtype, head dimensions, lengths and the shared memory of the device decide; values and timing do not. Operands that the
   tensor-core kernels cannot read in place are copied to scratch first. */

/* The longest sum that is computed on tensor cores */
static const int64_t TNC_ATTEND_TERMS = (int64_t)1 << 20;

/* The most keys that are visible to a query, which also bounds the number of queries to which a key is visible. */
TNC_FN int64_t tnc_attend_max_visible(const tnc_attend &p, int64_t T)
{
    const int64_t most = p.window > 0 ? (p.causal ? p.window : 2 * p.window - 1) : T;
    return most < T ? most : T;
}

/* Launches the forward kernel of a kind and a pair of head dimensions, or the two backward kernels. */
template <int KIND, int D, int DV> static void tnc_attend_run_mma(tnc *s, const tnc_attend &p, bool back)
{
    typedef tnc_attend_plan<KIND, D, DV> plan;
    typedef tnc_attend_back_plan<KIND, D, DV, false> by_query;
    typedef tnc_attend_back_plan<KIND, D, DV, true> by_key;
    const int64_t heads = p.B * p.H, tiles = tnc_ceil(p.Tq, plan::queries), row = 2 * by_key::row;
    const int64_t queries = tnc_ceil(p.Tq, by_query::resident), keys = tnc_ceil(p.Tk, by_key::resident);
    if (!back) {
        if (D == DV && tnc_attend_run_wgmma(s, p, D, false, false)) return;
        tnc_shared_for(s, tnc_attend_mma<KIND, D, DV>, plan::bytes);
        TNC_LAUNCH((tnc_attend_mma<KIND, D, DV>), (unsigned)(tiles * heads), plan::threads, plan::bytes, s->stream,
                   tnc_attend_in_groups(s, p, tiles, p.Tk, row));
        return;
    }
    if (p.dq.data && !(D == DV && tnc_attend_run_wgmma(s, p, D, true, false))) {
        tnc_shared_for(s, tnc_attend_mma_back<KIND, D, DV, false>, by_query::bytes);
        TNC_LAUNCH((tnc_attend_mma_back<KIND, D, DV, false>), (unsigned)(queries * heads), by_query::threads,
                   by_query::bytes, s->stream, tnc_attend_in_groups(s, p, queries, p.Tk, row));
    }
    if (p.dk.data || p.dv.data) {
        if (D == DV && tnc_attend_run_wgmma(s, p, D, true, true)) return;
        tnc_shared_for(s, tnc_attend_mma_back<KIND, D, DV, true>, by_key::bytes);
        tnc_attend at_keys = tnc_attend_in_groups(s, p, keys, p.Tq, row + 16);
        at_keys.redo += tnc_attend_tiles(p, p.Tq);
        TNC_LAUNCH((tnc_attend_mma_back<KIND, D, DV, true>), (unsigned)(keys * heads), by_key::threads, by_key::bytes,
                   s->stream, at_keys);
    }
}

/* The most shared memory that one of these kernels needs. */
template <int KIND, int D, int DV> static constexpr int tnc_attend_shared(void)
{
    constexpr int a = tnc_attend_plan<KIND, D, DV>::bytes, b = tnc_attend_back_plan<KIND, D, DV, false>::bytes;
    constexpr int c = tnc_attend_back_plan<KIND, D, DV, true>::bytes, d = a > b ? a : b;
    return c > d ? c : d;
}

/* The tensor-core kernels for a call, or NULL if it does not use them. */
TNC_FN const tnc_attend_size *tnc_attend_size_of(const tnc *s, const tnc_attend &p, tn_dtype dtype)
{
#define TNC_Y(KIND, D, DV) { tnc_attend_shared<KIND, D, DV>(), tnc_attend_run_mma<KIND, D, DV> }
#define TNC_ALL(D, DV) \
    { D, DV, { TNC_Y(TN_ATTEND_SOFTMAX, D, DV), TNC_Y(TN_ATTEND_SQUARED, D, DV), TNC_Y(TN_ATTEND_BILINEAR, D, DV) } }
#define TNC_SOFTMAX(D, DV) { D, DV, { TNC_Y(TN_ATTEND_SOFTMAX, D, DV), { 0, NULL }, { 0, NULL } } }
    /* Head dimensions of q and k, and of v. A call uses the first pair that is large enough, padded with zeros. Each pair
       takes about a second to compile, so there are few. The pairs with dv = 2 d are for differential attention, which uses
       softmax only. */
    static const tnc_attend_size sizes[] = {
        TNC_ALL(16, 16), TNC_ALL(32, 32), TNC_SOFTMAX(32, 64), TNC_ALL(64, 64), TNC_SOFTMAX(64, 128), TNC_ALL(128, 128)
    };
#undef TNC_SOFTMAX
#undef TNC_ALL
#undef TNC_Y
    if (dtype == TN_F64 || (dtype == TN_F32 && s->precision != TN_GEMM_BF16) || p.n_v == 0) return NULL;
    if (tnc_attend_max_visible(p, p.Tq > p.Tk ? p.Tq : p.Tk) > TNC_ATTEND_TERMS) return NULL;
    if (p.Tk < 128 || p.Tq + p.Tk > INT32_MAX / 2 || p.B * p.H * ((p.Tq + p.Tk) / 64 + 1) > INT32_MAX) return NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (p.n_qk <= sizes[i].d && p.n_v <= sizes[i].dv && sizes[i].kind[p.kind].run)
            return (size_t)sizes[i].kind[p.kind].shared <= s->shared_max ? &sizes[i] : NULL;
    return NULL;
}

/* An operand [B,time,n,d] of these kernels: in place if it is BF16, unpadded and aligned; else a copy of `bytes` bytes. */
typedef struct tnc_attend_operand { tnc_heads *x; int64_t time, n, d, D; size_t bytes; } tnc_attend_operand;

static tnc_attend_operand tnc_attend_operand_of(const tnc_attend &p, tnc_heads *x, tn_dtype dtype, bool key, bool value,
                                                int D)
{
    tnc_attend_operand o = { x, key ? p.Tk : p.Tq, p.H * (!value && p.kind == TN_ATTEND_BILINEAR ? 2 : 1),
        value ? p.n_v : p.n_qk, D, 0 };
    const bool whole = o.d == D && x->b % 8 == 0 && x->t % 8 == 0 && x->h % 8 == 0 && (size_t)x->data % 16 == 0;
    if (dtype != TN_BF16 || !whole) o.bytes = (size_t)(p.B * o.time * o.n * D) * sizeof(tnc_bf16);
    return o;
}

static char *tnc_attend_copy(tnc *s, tnc_attend_operand o, tn_dtype dtype, char *to)
{
    const int64_t chunks = (int64_t)(o.bytes / 16);
    if (chunks == 0) return to;
    if (dtype == TN_F32)
        TNC_LAUNCH((tnc_attend_pack<float>), tnc_grid(s, chunks, 256), 256, 0, s->stream, *o.x, o.time, o.n, o.d, o.D,
                   chunks, (uint4 *)to);
    else
        TNC_LAUNCH((tnc_attend_pack<tnc_bf16>), tnc_grid(s, chunks, 256), 256, 0, s->stream, *o.x, o.time, o.n, o.d, o.D,
                   chunks, (uint4 *)to);
    *o.x = tnc_heads{ to, o.time * o.n * o.D, o.n * o.D, o.D };
    return to + o.bytes;
}

/* Bytes of `redo`: one int per 64 queries; in the backward pass, those of the keys follow. */
TNC_FN size_t tnc_attend_redo_bytes(const tnc_attend &p, bool back)
{
    return (size_t)tnc_ceil(tnc_attend_tiles(p, p.Tq) + (back ? tnc_attend_tiles(p, p.Tk) : 0), 4) * 16;
}

/* Allocates scratch and copies operands to it as the tensor-core kernels need them. The first `taken` bytes are
   the caller's. */
TNC_FN tn_status tnc_attend_operands(tnc *s, tnc_attend *p, const tnc_attend_size *size, tn_dtype dtype, size_t taken,
                                     bool back, void **scratch)
{
    const tnc_attend_operand all[] = { tnc_attend_operand_of(*p, &p->q, dtype, false, false, size->d),
                                       tnc_attend_operand_of(*p, &p->k, dtype, true, false, size->d),
                                       tnc_attend_operand_of(*p, &p->v, dtype, true, true, size->dv),
                                       tnc_attend_operand_of(*p, &p->dout, dtype, false, true, size->dv) };
    const int n = back ? 4 : 3;
    size_t    bytes = taken;
    char     *to;
    int       i;
    for (i = 0; i < n; i++) bytes += all[i].bytes;
    if (!(*scratch = tnc_scratch(s, bytes))) return TN_ERR_MEMORY;
    for (i = 0, to = (char *)*scratch + taken; i < n; i++) to = tnc_attend_copy(s, all[i], dtype, to);
    return TN_OK;
}

/* ---- the entries ---------------------------------------------------------------------------------- >>cuda-attention-entry
   Each fills a tnc_attend from its call, allocates scratch, and launches the kernels chosen above. */

static tnc_heads tnc_heads_of(const tn_view *v)
{
    tnc_heads h = { v->data, 0, 0, 0 };
    if (!v->data) return h;
    h.b = v->strides[0];
    h.t = v->strides[1];
    h.h = v->strides[2];
    return h;
}

static tnc_attend tnc_attend_of(const tn_call *c)
{
    tnc_attend p;
    memset(&p, 0, sizeof p);
    p.q = tnc_heads_of(&c->in[0]);
    p.k = tnc_heads_of(&c->in[1]);
    p.v = tnc_heads_of(&c->in[2]);
    p.B = c->in[2].shape[0];
    p.H = c->in[2].shape[2];
    p.Tq = c->in[0].shape[1];
    p.Tk = c->in[2].shape[1];
    p.n_qk = c->in[0].shape[3];
    p.n_v = c->in[2].shape[3];
    p.kind = (int)c->i[0];
    p.causal = c->i[1] != 0;
    p.window = c->i[2];
    p.past = c->i[3];
    p.scale = c->f[0];
    p.score = (float)p.scale;
    p.power = (float)(p.scale * TNC_LOG2E);
    p.square = (float)(p.scale * p.scale);
    p.length = c->f[1];
    p.row = (int)c->f[2];
    p.sums = p.row == TN_ROW_SCALE_SUM;
    p.eps = c->f[3];
    return p;
}

/* Whether all operands that are present have one dtype, and the statistic that of its sums. */
static bool tnc_attend_dtypes(const tn_view *const *v, int n, const tn_view *stat)
{
    const tn_dtype t = v[0]->dtype;
    for (int i = 1; i < n; i++)
        if (v[i]->data && v[i]->dtype != t) return false;
    return !stat->data || stat->dtype == (t == TN_F64 ? TN_F64 : TN_F32);
}

/* One block per task; or, to look for tasks to recompute, at most one per multiprocessor, whose registers suffice for one. */
static unsigned tnc_attend_grid(const tnc *s, const tnc_attend &p, int64_t blocks)
{
    return p.redo ? (unsigned)tnc_bound(blocks, 1, s->sms) : tnc_blocks(blocks, 1);
}

template <typename T> static void tnc_attend_run_plain(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_smem<typename tnc_real<T>::type> smem;
    const int64_t col_tiles = p.n_v > 0 ? tnc_ceil(p.n_v, smem::side) : 1,
        blocks = tnc_ceil(p.Tq, smem::side) * p.B * p.H * col_tiles;
    TNC_LAUNCH((tnc_attend_plain<T>), tnc_attend_grid(s, p, blocks), smem::threads, 0, s->stream, p, col_tiles, blocks);
}

/* Number of splits for the query that sees most keys. */
static int64_t tnc_attend_splits(const tnc_attend &p)
{
    const int64_t keys = tnc_attend_max_visible(p, p.Tk);
    return keys > 0 ? tnc_ceil(keys, TNC_ATTEND_SPLIT) : 1;
}

template <typename T> static void tnc_attend_run_split(tnc *s, const tnc_attend &p)
{
    const int64_t rows = p.B * p.H * p.Tq, splits = tnc_attend_splits(p);
    TNC_LAUNCH((tnc_attend_split<T>), tnc_blocks(rows * splits, 1), 128, 0, s->stream, p, splits, rows * splits);
    TNC_LAUNCH((tnc_attend_combine<T>), tnc_grid(s, rows, 8), 256, 0, s->stream, p, splits);
}

TNC_FN tn_status tnc_attention(tnc *s, const tn_call *c)
{
    const tn_view *all[] = { &c->in[0], &c->in[1], &c->in[2], &c->out[0] };
    const tn_dtype dtype = c->in[0].dtype;
    const tnc_attend_size *size;
    tnc_attend     p = tnc_attend_of(c);
    void          *scratch = NULL;
    p.o = tnc_heads_of(&c->out[0]);
    p.stat = c->out[1].data;
    if (!tnc_attend_dtypes(all, 4, &c->out[1])) return TN_ERR_DTYPE;
    if (p.B * p.H * p.Tq == 0) return TN_OK;
    if (p.Tq <= TNC_ATTEND_DECODE) {
        p.row_stats = tnc_scratch(s, (size_t)(p.B * p.H * p.Tq * tnc_attend_splits(p) * (2 + p.n_v))
                                     * (dtype == TN_F64 ? 8 : 4));
        if (!p.row_stats) return TN_ERR_MEMORY;
        TNC_TYPES(dtype, T, tnc_attend_run_split<T>(s, p))
        return TN_OK;
    }
    if ((size = tnc_attend_size_of(s, p, dtype)) != NULL) {
        tnc_attend m = p;
        m.wide = dtype == TN_F32;
        if (tnc_attend_operands(s, &m, size, dtype, tnc_attend_redo_bytes(p, false), false, &scratch) != TN_OK)
            return TN_ERR_MEMORY;
        p.redo = m.redo = (int *)scratch;
        size->kind[p.kind].run(s, m, false);
    }
    TNC_TYPES(dtype, T, tnc_attend_run_plain<T>(s, p))
    return TN_OK;
}

template <typename T> static void tnc_attend_run_plain_back(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_smem<typename tnc_real<T>::type> smem;
    const int64_t heads = p.B * p.H, col_tiles = tnc_ceil(p.n_qk, smem::side), both = tnc_ceil(p.n_v, smem::side);
    const int64_t wide = col_tiles > both ? col_tiles : both;
    const int64_t queries = tnc_ceil(p.Tq, smem::side) * heads * col_tiles, keys = tnc_ceil(p.Tk, smem::side) * heads * wide;
    if (p.dq.data)
        TNC_LAUNCH((tnc_attend_plain_back<T, false>), tnc_attend_grid(s, p, queries), smem::threads, 0, s->stream, p,
                   col_tiles, queries);
    if (p.dk.data || p.dv.data) {
        tnc_attend at_keys = p;
        if (p.redo) at_keys.redo += tnc_attend_tiles(p, p.Tq);
        TNC_LAUNCH((tnc_attend_plain_back<T, true>), tnc_attend_grid(s, p, keys), smem::threads, 0, s->stream, at_keys, wide,
                   keys);
    }
}

/* The gradients of a call without pairs of queries and keys, or without values: zeros, if they are overwritten. */
TNC_FN tn_status tnc_attend_no_pairs(tnc *s, const tn_call *c)
{
    tn_status status = TN_OK;
    for (int i = 0; i < 3 && !c->accumulate && status == TN_OK; i++) {
        tn_call fill;
        memset(&fill, 0, sizeof fill);
        fill.kernel = TN_KERNEL_FILL;
        fill.out[fill.n_out++] = c->out[i];
        if (c->out[i].data) status = tnc_fill(s, &fill);
    }
    return status;
}

TNC_FN tn_status tnc_attention_backward(tnc *s, const tn_call *c)
{
    const tn_view *all[] = { &c->in[0], &c->in[1], &c->in[2], &c->in[3], &c->in[5], &c->out[0], &c->out[1], &c->out[2] };
    tnc_attend     p = tnc_attend_of(c);
    const tn_dtype dtype = c->in[0].dtype;
    const int64_t  rows = p.B * p.H * p.Tq;
    const size_t   bytes = 4 * (size_t)rows * (dtype == TN_F64 ? 8 : 4);
    /* With few F32 queries the forward pass did not round its operands, and l belongs to these: nor may the
       backward pass. */
    const tnc_attend_size *size = p.Tq <= TNC_ATTEND_DECODE && dtype == TN_F32 ? NULL : tnc_attend_size_of(s, p, dtype);
    p.o = tnc_heads_of(&c->in[3]);
    p.stat = c->in[4].data;
    p.dout = tnc_heads_of(&c->in[5]);
    p.dq = tnc_heads_of(&c->out[0]);
    p.dk = tnc_heads_of(&c->out[1]);
    p.dv = tnc_heads_of(&c->out[2]);
    p.add = c->accumulate;
    p.unit = size ? TNC_LOG2E : 1;                     /* the tensor-core kernels use powers of 2 */
    p.wide = dtype == TN_F32;
    if (!tnc_attend_dtypes(all, 8, &c->in[4])) return TN_ERR_DTYPE;
    if (rows == 0 || p.Tk == 0) return tnc_attend_no_pairs(s, c);
    tnc_attend m = p;
    if (size && tnc_attend_operands(s, &m, size, dtype, bytes + tnc_attend_redo_bytes(p, true), true, &m.row_stats) != TN_OK)
        return TN_ERR_MEMORY;
    p.row_stats = m.row_stats = size ? m.row_stats : tnc_scratch(s, bytes);
    if (!p.row_stats) return TN_ERR_MEMORY;
    if (size) p.redo = m.redo = (int *)((char *)p.row_stats + bytes);
    TNC_TYPES(dtype, T,
              if (p.kind == TN_ATTEND_SOFTMAX || p.sums)
                  TNC_LAUNCH((tnc_attend_delta<T, true>), tnc_grid(s, rows, 8), 256, 0, s->stream, p);
              else TNC_LAUNCH((tnc_attend_delta<T, false>), tnc_grid(s, rows, 256), 256, 0, s->stream, p);
              if (size) size->kind[p.kind].run(s, m, true);
              tnc_attend_run_plain_back<T>(s, p))
    return TN_OK;
}

/* ---- linear attention ------------------------------------------------------------------------------------ >>cuda-linear
   The output and all gradients come from one trilinear sum over the visible pairs, L = sum_ij
   (q1_i.k1_j)(q2_i.k2_j)(u_i.v_j): the output is dL/du, and the gradients are dL/dq1, dL/dq2, dL/dk1, dL/dk2 and dL/dv. So
   there is one formula. The rows x (queries, or keys) have three vectors each, and so have the rows y of the other side.
   For {a,b,m} = {0,1,2} with a < b,

       out_r = sum_s (x_a.y_a)(x_b.y_b) y_m = sum_{i,k} x_a[i] x_b[k] S[..]      S[i0,i1,i2] = sum_s y_0[i0] y_1[i1] y_2[i2]

   This is computed as a chunk scan. Positions are divided into chunks. What the rows of a chunk see of other chunks is in
   the state S, an exclusive prefix sum over the chunks (from the first on for queries, from the last on for keys); what
   they see of their own chunk is computed by pairs. The features phi(x) = x_a (x) x_b are computed where they are used and
   never stored. u_i = c_i dO_i; with a row sum u and v have one more number, see >>op-attention_linear of tensornet.h. In
   squared attention x_0 = x_1 and y_0 = y_1, and both have one gradient.

   A state has d d n numbers (n = dv, or dv + 1), in device memory: 8 MiB in F32 for d = dv = 128. A group of as many chunks
   of as many heads is processed at once as fit into TNC_LINEAR_SCRATCH, or into a sixteenth of the device's memory, rounded
   down to a power of 2 so that what the driver reserves makes no difference; the sums are carried from one group to the
   next. The groups depend on nothing else, and so the order of the sums does not either: if less memory is free, that is an
   error. The single state of one head may exceed the limit. */

enum { TNC_LINEAR_DECODE = 8 };                         /* most queries, and keys, of the kernel for decoding */
static const size_t TNC_LINEAR_SCRATCH = (size_t)1 << 30; /* limit of scratch for states */

/* Row t of head h and batch item b is at p + b * batch + t * row + h * head; its numbers are contiguous. */
typedef struct tnc_linear_set { void *p; int64_t batch, row, head; } tnc_linear_set;

/* Row t has position t + shift. */
typedef struct tnc_linear_side { tnc_linear_set set[3]; int64_t T, shift; } tnc_linear_side;

typedef struct tnc_linear {
    tnc_linear_side x, y;                               /* rows that receive; rows that contribute                  */
    int64_t         w[3];                               /* extents of the three vectors: d, d, n                    */
    int             wide[3];                            /* tensor cores: readable numbers of a row, a multiple of 8 */
    int             D, NE;                              /* extents of a state [D,D,NE]: d and n, or padded          */
    int64_t         stride[3];                          /* strides of the three axes of a state                     */
    int64_t         H, heads;                           /* heads of a batch item, and of all                        */
    int64_t         length, chunk, chunks;              /* number of positions; of a chunk; number of chunks        */
    int64_t         low, high;                          /* chunks [low,high) have a nonempty state                  */
    bool            causal, back;                       /* back: positions >= its own are visible to a row, else <= */
    bool            squared;
} tnc_linear;

/* The row scale c_i of query i */
template <typename R> struct tnc_linear_scale {
    int      kind;
    bool     causal;
    int64_t  Tk, ahead, past;
    R        length;
    const R *stat;
};

/* One result, the output or a gradient: out = or += factor * c_i * dL/d(vector m of x). */
template <typename R> struct tnc_linear_pass {
    tnc_linear_set   out;
    int              m;
    int64_t          width;                             /* number of columns                                     */
    bool             add, scaled;
    bool             f32, pairs;                        /* tensor cores: out is F32, not BF16; aligned for pairs */
    R                factor;
    tnc_linear_scale<R> scale;
};

template <typename R>
static __device__ __forceinline__ R tnc_linear_row_scale(const tnc_linear_scale<R> &c, int64_t head, int64_t T, int64_t i)
{
    int64_t n = c.causal ? c.ahead + i + 1 : c.Tk;
    n = (n < 0 ? 0 : n) + c.past;
    switch (c.kind) {
    case TN_ROW_SCALE_SUM:    return R(1) / c.stat[head * T + i];
    case TN_ROW_SCALE_LENGTH: return R(n) > c.length ? sqrt(c.length / R(n)) : R(1);
    case TN_ROW_SCALE_MEAN:   return n > 0 ? R(1) / R(n) : R(0);
    default:            return R(1);
    }
}

/* Whether the state of a chunk contains anything. An empty state is not read: its zeros times an infinity would be NaN. */
static __device__ __forceinline__ bool tnc_linear_has_state(const tnc_linear &t, int64_t chunk)
{
    return chunk >= t.low && chunk < t.high;
}

template <typename T>
static __device__ __forceinline__ T *tnc_linear_row(const tnc_linear_set &s, int64_t H, int64_t head, int64_t t)
{
    const unsigned item = (unsigned)head / (unsigned)H;         /* there are fewer than 2^32 heads: a fast division */
    return (T *)s.p + item * s.batch + t * s.row + (head - item * H) * s.head;
}

/* Copies one vector per row to [heads,T,pitch] of type P, padded with zeros after `width`. ONE: v' = [v 1]. SLOPE: u' = c
   [dO, -dO.O]. A warp per row. Floor: the bytes read and written. */
enum { TNC_LINEAR_COPY, TNC_LINEAR_ONE, TNC_LINEAR_SLOPE };

template <typename T, typename P>
static __global__ void tnc_linear_pack(tnc_linear_set from, tnc_linear_set o, int mode,
                                       tnc_linear_scale<typename tnc_real<T>::type> c, int64_t H, int64_t heads,
                                int64_t rows, int64_t width, int64_t pitch, P *to)
{
    typedef typename tnc_real<T>::type R;
    const int64_t lane = threadIdx.x & 31, step = (int64_t)gridDim.x * (blockDim.x >> 5);
    for (int64_t at = (int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); at < heads * rows; at += step) {
        const int64_t head = at / rows, t = at % rows;
        const T *x = tnc_linear_row<const T>(from, H, head, t);
        R        scale = mode == TNC_LINEAR_SLOPE ? tnc_linear_row_scale(c, head, rows, t) : R(1), extra = R(0);
        if (mode == TNC_LINEAR_SLOPE && c.kind == TN_ROW_SCALE_SUM) {
            const T *y = tnc_linear_row<const T>(o, H, head, t);
            for (int64_t e = lane; e < width; e += 32) extra -= tnc_to(x[e]) * tnc_to(y[e]);
            extra = tnc_warp_sum(extra);
        }
        if (mode == TNC_LINEAR_ONE) extra = R(1);
        for (int64_t e = lane; e < pitch; e += 32) {
            const R value = e < width ? tnc_to(x[e]) : e == width ? extra : R(0);
            to[at * pitch + e] = tnc_from<P>(typename tnc_real<P>::type(scale * value));
        }
    }
}

/* ---- any extents, F32 and F64 ------------------------------------------------------------------------ >>cuda-linear-plain
   Tiles of 64 x 64 with 256 threads, each of which has 4 x 4 sums. One kernel sums the states of the chunks, one computes
   their prefix sums, and one computes the results from states and pairs. */

enum { TNC_LINEAR_TILE = 64, TNC_LINEAR_DEPTH = 16 };

/* sum += A^T B over those k that are visible to row i. Masked terms are skipped, since they may be infinite. */
template <typename R, typename Sees>
static __device__ __forceinline__ void tnc_linear_product(const R (*A)[TNC_LINEAR_TILE + 4],
                                                          const R (*B)[TNC_LINEAR_TILE + 4], R sum[4][4], Sees sees)
{
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    TNC_UNROLL_BY(4)
    for (int k = 0; k < TNC_LINEAR_DEPTH; k++)
        TNC_UNROLL
        for (int i = 0; i < 4; i++) {
            if (!sees(k, row + i)) continue;
            TNC_UNROLL
            for (int j = 0; j < 4; j++) sum[i][j] = tnc_fma(A[k][row + i], B[k][column + j], sum[i][j]);
        }
}

/* The rows [first,end) of a side whose positions are in chunk c */
static __device__ __forceinline__ void tnc_linear_range(const tnc_linear &t, const tnc_linear_side &s, int64_t c,
                                                        int64_t *first, int64_t *end)
{
    const int64_t low = c * t.chunk - s.shift, high = low + t.chunk;
    *first = low < 0 ? 0 : low;
    *end = high < s.T ? high : s.T;
}

/* S [heads,chunks,F,n] of this launch: the state that each chunk contributes, sum_s phi(y)_f y_2[e]. A block has 64 features
   and 64 columns of one chunk of one head. Floor: 2 C F n flops per chunk of C rows. */
template <typename R>
static __global__ void __launch_bounds__(256) tnc_linear_states(tnc_linear t, int64_t head0, int64_t chunk0, R *S)
{
    TNC_SHARED(R, A, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    TNC_SHARED(R, B, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    const int64_t F = t.w[0] * t.w[1], n = t.w[2], tiles = tnc_ceil(F, TNC_LINEAR_TILE), head = head0 + blockIdx.z;
    const int64_t f0 = (int64_t)blockIdx.x % tiles * TNC_LINEAR_TILE, e0 = (int64_t)blockIdx.x / tiles * TNC_LINEAR_TILE;
    const int     column = (int)threadIdx.x % TNC_LINEAR_TILE, line = (int)threadIdx.x / TNC_LINEAR_TILE;
    const int64_t a = (f0 + column) / t.w[1], b = (f0 + column) % t.w[1];
    R             sum[4][4] = {};
    int64_t       first, end;
    tnc_linear_range(t, t.y, chunk0 + blockIdx.y, &first, &end);
    for (int64_t from = first; from < end; from += TNC_LINEAR_DEPTH) {
        for (int k = line; k < TNC_LINEAR_DEPTH; k += 4) {
            const bool here = from + k < end;
            const R   *ya = tnc_linear_row<const R>(t.y.set[0], t.H, head, from + k);
            const R   *yb = tnc_linear_row<const R>(t.y.set[1], t.H, head, from + k);
            const R   *ym = tnc_linear_row<const R>(t.y.set[2], t.H, head, from + k);
            A[k][column] = here && f0 + column < F ? ya[a] * yb[b] : R(0);
            B[k][column] = here && e0 + column < n ? ym[e0 + column] : R(0);
        }
        __syncthreads();
        tnc_linear_product<R>(A, B, sum, [](int, int) { return true; });
        __syncthreads();
    }
    S += ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * F * n;
    TNC_UNROLL
    for (int i = 0; i < 4; i++)
        TNC_UNROLL
        for (int j = 0; j < 4; j++) {
            const int64_t f = f0 + threadIdx.x / 16 * 4 + i, e = e0 + threadIdx.x % 16 * 4 + j;
            if (f < F && e < n) S[f * n + e] = sum[i][j];
        }
}

/* Replaces S [heads,chunks,size] by its exclusive prefix sum over the chunks (back: from the last on), which begins with
   carry [heads,size]; carry then holds the total. Summed in double, since there may be many chunks and the kernel is bound
   by memory. Floor: S read and written once. */
template <typename R>
static __global__ void tnc_linear_prefix(R *S, R *carry, int64_t heads, int64_t chunks, int64_t size, bool back)
{
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * size; at += (int64_t)gridDim.x * blockDim.x) {
        R     *p = S + at / size * chunks * size + at % size;
        double sum = (double)carry[at];
        for (int64_t c = 0; c < chunks; c++) {
            R           *here = p + (back ? chunks - 1 - c : c) * size;
            const double own = (double)*here;
            *here = (R)sum;
            sum += own;
        }
        carry[at] = (R)sum;
    }
}

/* Copies a state operand [F',n] to the carry [D,D,NE] of every head, or back. Squared: F' = d (d + 1) / 2, a <= b. */
template <typename R>
static __global__ void tnc_linear_carry(R *carry, R *state, tnc_linear t, int64_t head0, int64_t heads, bool back)
{
    const int64_t size = (int64_t)t.D * t.D * t.NE, d = t.w[0], n = t.w[2], features = t.squared ? d * (d + 1) / 2 : d * d;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * size; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t e = at % t.NE, b = at / t.NE % t.D, a = at / t.NE / t.D % t.D;
        const int64_t low = a < b ? a : b, high = a < b ? b : a;
        const bool    inside = a < d && b < d && e < n;
        const int64_t f = t.squared ? low * d - low * (low - 1) / 2 + high - low : a * d + b;
        R            *own = state + ((head0 + at / size) * features + f) * n + e;
        if (!back) carry[at] = inside ? *own : R(0);
        else if (inside && (!t.squared || a <= b)) *own = carry[at];
    }
}

/* The output, or one gradient, of 64 rows x 64 columns, for t permuted to {a,b,m} = {0,1,2}. S: the states as above, one per
   chunk (each = 1) or one for all (each = 0); NULL if there are no states. Floor: 2 F n flops per row, and half of the pairs
   of a chunk. */
template <typename R>
static __global__ void __launch_bounds__(256, 1)
tnc_linear_read(tnc_linear t, tnc_linear_pass<R> p, int64_t head0, int64_t chunk0,
                                                       const R *S, int64_t each)
{
    TNC_SHARED(R, A, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    TNC_SHARED(R, B, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    const int     tid = (int)threadIdx.x;
    const int64_t tiles = t.chunk / TNC_LINEAR_TILE, c = blockIdx.y / tiles, chunk = chunk0 + c, head = head0 + blockIdx.z;
    const int64_t r0 = chunk * t.chunk + blockIdx.y % tiles * TNC_LINEAR_TILE, c0 = (int64_t)blockIdx.x * TNC_LINEAR_TILE;
    R             sum[4][4] = {};
    int64_t       first, end;
    int           m;
    if (S && tnc_linear_has_state(t, chunk)) {
        S += (blockIdx.z * (each ? gridDim.y / tiles : 1) + c * each) * t.w[0] * t.w[1] * t.w[2];
        for (int64_t i = 0; i < t.w[0]; i++)
            for (int64_t k0 = 0; k0 < t.w[1]; k0 += TNC_LINEAR_DEPTH) {
                for (int n = 0; n < 4; n++) {
                    const int     row = tid / 16 + 16 * n;
                    const int64_t r = r0 + row - t.x.shift;
                    const R      *xa = tnc_linear_row<const R>(t.x.set[0], t.H, head, r);
                    const R      *xb = tnc_linear_row<const R>(t.x.set[1], t.H, head, r) + k0;
                    const R      *from = S + i * t.stride[0] + k0 * t.stride[1] + c0 * t.stride[2];
                    int           k = tid % 16;
                    A[k][row] = r >= 0 && r < t.x.T && k0 + k < t.w[1] ? xa[i] * xb[k] : R(0);
                    if (t.stride[2] == 1) { k = tid / 64 + 4 * n; m = tid % 64; }   /* along the contiguous axis */
                    else { k = tid % 16; m = tid / 16 + 16 * n; }
                    B[k][m] = k0 + k < t.w[1] && c0 + m < t.w[2] ? from[k * t.stride[1] + m * t.stride[2]] : R(0);
                }
                __syncthreads();
                tnc_linear_product<R>(A, B, sum, [](int, int) { return true; });
                __syncthreads();
            }
    }
    tnc_linear_range(t, t.y, chunk, &first, &end);
    if (!t.causal) end = first;                                                     /* the state contains all keys */
    for (int64_t s = first; s < end; s += TNC_LINEAR_DEPTH) {
        const int64_t low = s + t.y.shift, high = low + TNC_LINEAR_DEPTH;           /* positions */
        if (t.back ? high <= r0 : low >= r0 + TNC_LINEAR_TILE) continue;
        const int  ahead = (int)(low - r0);
        const auto sees = [&](int key, int row) { return t.back ? key + ahead >= row : key + ahead <= row; };
        for (int n = 0; n < 4; n++) {
            const int     row = tid % 64;
            const int64_t r = r0 + row - t.x.shift;
            R             one = R(0), two = R(0);
            int           k = tid / 64 + 4 * n;
            if (s + k < end && r >= 0 && r < t.x.T && sees(k, row)) {
                const R *xa = tnc_linear_row<const R>(t.x.set[0], t.H, head, r);
                const R *xb = tnc_linear_row<const R>(t.x.set[1], t.H, head, r);
                const R *ya = tnc_linear_row<const R>(t.y.set[0], t.H, head, s + k);
                const R *yb = tnc_linear_row<const R>(t.y.set[1], t.H, head, s + k);
                for (int64_t i = 0; i < t.w[0]; i++) one = tnc_fma(xa[i], ya[i], one);
                for (int64_t i = 0; i < t.w[1]; i++) two = tnc_fma(xb[i], yb[i], two);
            }
            A[k][row] = one * two;
            B[k][row] = R(0);
            if (s + k < end && c0 + row < t.w[2])
                B[k][row] = tnc_linear_row<const R>(t.y.set[2], t.H, head, s + k)[c0 + row];
        }
        __syncthreads();
        tnc_linear_product<R>(A, B, sum, sees);
        __syncthreads();
    }
    TNC_UNROLL
    for (int n = 0; n < 4; n++) {
        const int64_t r = r0 + tid / 16 * 4 + n - t.x.shift, column = c0 + tid % 16 * 4;
        if (r < 0 || r >= t.x.T) continue;
        const R scale = p.scaled ? tnc_linear_row_scale(p.scale, head, t.x.T, r) : R(1);
        R      *to = tnc_linear_row<R>(p.out, t.H, head, r) + column;
        TNC_UNROLL
        for (m = 0; m < 4; m++) {
            const R value = sum[n][m] * p.factor * scale;
            if (column + m < p.width) to[m] = p.add ? to[m] + value : value;
        }
    }
}

/* The division by the row sum: raw [heads,T,n], already scaled, whose last column divides the others. */
template <typename T>
static __global__ void tnc_linear_divide(const typename tnc_real<T>::type *raw, int64_t H, int64_t heads, int64_t rows,
                                         int64_t n,
                                  typename tnc_real<T>::type eps, tnc_linear_set out, typename tnc_real<T>::type *stat)
{
    typedef typename tnc_real<T>::type R;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * rows * n;
         at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = at / n, e = at % n;
        const R       total = raw[row * n + n - 1] + eps;
        if (e < n - 1) tnc_linear_row<T>(out, H, row / rows, row % rows)[e] = tnc_from<T>(raw[at] / total);
        else stat[row] = total;
    }
}

/* A group: states of `chunks` chunks of `heads` heads, in `bytes` of scratch, summed in `segments` segments. */
typedef struct tnc_linear_group { int64_t heads, chunks, segments; size_t bytes; bool states; } tnc_linear_group;

static inline int64_t tnc_linear_clamp(double x, int64_t most) { return x < 1 ? 1 : x < (double)most ? (int64_t)x : most; }

/* t with its three vectors in the order a, b, m, and the strides of its state in that order. */
static inline tnc_linear tnc_linear_permute(const tnc_linear *t, int m)
{
    const int64_t stride[3] = { (int64_t)t->D * t->NE, t->NE, 1 };
    const int     order[3] = { m == 0 ? 1 : 0, m == 2 ? 1 : 2, m };
    tnc_linear    r = *t;
    for (int i = 0; i < 3; i++) {
        r.x.set[i] = t->x.set[order[i]];
        r.y.set[i] = t->y.set[order[i]];
        r.w[i] = t->w[order[i]];
        r.wide[i] = t->wide[order[i]];
        r.stride[i] = stride[order[i]];
    }
    return r;
}

/* One F32 (F64) state per head for the carry, and one per chunk. */
template <typename R> static tnc_linear_group tnc_linear_groups(const tnc_linear *t, size_t bytes, bool kept, R)
{
    tnc_linear_group g;
    const int64_t    most = 65535 / (t->chunk / TNC_LINEAR_TILE);                   /* grid.y is at most 65535 */
    const double     state = (double)t->D * t->D * t->NE * (double)sizeof(R);
    g.states = kept || t->chunks > 1 || !t->causal;
    g.segments = 1;
    g.heads = tnc_linear_clamp(g.states ? (double)bytes / 4 / state : 65535, t->heads < 65535 ? t->heads : 65535);
    g.chunks = tnc_linear_clamp((double)bytes / state / (double)g.heads - 1, t->chunks < most ? t->chunks : most);
    g.bytes = g.states ? (size_t)(state * (double)g.heads * (double)(g.chunks + 1)) : 0;
    return g;
}

/* Computes all results of the rows x, group by group. scratch: of the size that g says. state: the state operand of the
   call, to which the keys are added, or NULL. */
template <typename R> static void tnc_linear_sweep(tnc *s, const tnc_linear &t, const tnc_linear_pass<R> *pass, int passes,
                                                   tnc_linear_group g, R *scratch, R *state)
{
    const int64_t size = (int64_t)t.D * t.D * t.NE, tile = TNC_LINEAR_TILE;
    int           i;
    for (int64_t head = 0; head < t.heads; head += g.heads) {
        const int64_t  heads = t.heads - head < g.heads ? t.heads - head : g.heads;
        const unsigned wide = tnc_grid(s, heads * size, 256);
        R             *carry = scratch, *S = scratch + g.heads * size;
        auto read = [&](int64_t from, int64_t chunks, const R *states, int64_t each) {
            for (i = 0; i < passes; i++) {
                const dim3 grid((unsigned)tnc_ceil(t.w[pass[i].m], tile), (unsigned)(chunks * t.chunk / tile),
                                (unsigned)heads);
                TNC_LAUNCH((tnc_linear_read<R>), grid, 256, 0, s->stream, tnc_linear_permute(&t, pass[i].m), pass[i], head,
                           from, states, each);
            }
        };
        if (state) TNC_LAUNCH((tnc_linear_carry<R>), wide, 256, 0, s->stream, carry, state, t, head, heads, false);
        else if (g.states) cudaMemsetAsync(carry, 0, (size_t)(heads * size) * sizeof(R), s->stream);
        for (int64_t done = 0; done < t.chunks; done += g.chunks) {
            const int64_t chunks = t.chunks - done < g.chunks ? t.chunks - done : g.chunks;
            int64_t       chunk = t.back ? t.chunks - done - chunks : done;
            if (g.states) {
                const int64_t tiles = tnc_ceil(t.w[0] * t.w[1], tile) * tnc_ceil(t.w[2], tile);
                TNC_LAUNCH((tnc_linear_states<R>), dim3((unsigned)tiles, (unsigned)chunks, (unsigned)heads), 256, 0,
                           s->stream, t, head, chunk, S);
                TNC_LAUNCH((tnc_linear_prefix<R>), wide, 256, 0, s->stream, S, carry, heads, chunks, size, t.back);
            }
            if (t.causal) read(chunk, chunks, g.states ? S : (R *)NULL, 1);
        }
        for (int64_t chunk = 0; chunk < t.chunks && !t.causal; chunk += g.chunks)
            read(chunk, t.chunks - chunk < g.chunks ? t.chunks - chunk : g.chunks, carry, 0);
        if (state) TNC_LAUNCH((tnc_linear_carry<R>), wide, 256, 0, s->stream, carry, state, t, head, heads, true);
    }
}

/* ---- tensor cores ------------------------------------------------------------------------------------ >>cuda-linear-mma
   BF16 operands, d and n up to 128. tnc_linear_scan sums the states, and tnc_linear_mma computes results from them.

   Sums are F32, also those of states. A state is rounded to BF16 where it is an operand of a product, as are phi and the
   pairs. A sum has at most TNC_SCAN_TERMS positions and is then added to the earlier ones, as each call's sum is added to
   the state operand: it is within 2^-7 of the sum of magnitudes, as in the quadratic form, and each further sum adds 2^-24.
   Where the chunks of a head are processed one after the other, the state never leaves the registers: only its BF16 copy at
   the begin of each chunk is written, 2 bytes per number, which the rows of the chunk read. A state in memory is [D,D,NE]:
   d and n padded with zeros to a power of 2. Squared: of the 16 x 16 blocks of (a,b) only those with b's block >= a's are
   computed, and those off the diagonal count twice: d (d + 16) / 2 features instead of d d.

   Flops per position, forward and backward: 18 d d n (three states, six reads), where a fused pass that sums dphi across
   lanes would need 14, and 36 d per pair of a chunk, of which a position has C / 2. Bytes for d = n = 64, C = 512: 14 per
   number of a state (written twice, read five more times), 7 KiB per position against 4.7 Mflop: 650 flops per byte, three
   times what an H200 needs.

   Tiles in shared memory are swizzled by tnc_swizzle, so that ldmatrix and the reads of four numbers from each of eight rows
   have no bank conflicts. */

enum {
    TNC_LINEAR_ROWS   = 256,                            /* rows of a block of tnc_linear_mma: 32 per warp      */
    TNC_LINEAR_KEYS   = 32,                             /* keys of a tile of pairs                             */
    TNC_LINEAR_STAGES = 4,                              /* stages of the ring of state tiles                   */
    TNC_SCAN_STEP     = 64,                             /* rows that are added to a state between two barriers */
    TNC_SCAN_STAGES   = 3,
    TNC_SCAN_TERMS    = 1 << 20                         /* most positions of one F32 sum                       */
};

typedef struct tnc_linear_tiles {
    int64_t  head0, chunk0, chunks, each;               /* first head and chunk, chunks, chunks per segment              */
    int      step;                                      /* 1: one state per chunk; 0: one for all                        */
    bool     states;
    bool     last;                                      /* the sum after the last of these chunks is not needed          */
    bool     apart;                                     /* sums begin at 0, and the carry is added when they are written */
} tnc_linear_tiles;

static __device__ __forceinline__ unsigned tnc_linear_lows(unsigned a, unsigned b) { return (a & 0xffffu) | b << 16; }
static __device__ __forceinline__ unsigned tnc_linear_highs(unsigned a, unsigned b) { return a >> 16 | (b & 0xffff0000u); }

/* Starts the copy to shared memory of `rows` rows of a set from row t0 on, `pieces` 16-byte pieces of each from number e0
   on; zeros outside. */
static __device__ __forceinline__ void tnc_linear_fetch(tnc_bf16 *to, int rows, int pieces, const tnc_linear_set &s,
                                                        int64_t H, int64_t head, int64_t t0, int64_t T, int e0, int wide)
{
    const tnc_bf16 *from = tnc_linear_row<const tnc_bf16>(s, H, head, 0);
    for (int at = (int)threadIdx.x; at < rows * pieces; at += (int)blockDim.x) {
        const int     row = at / pieces, piece = at % pieces, e = e0 + piece * 8;
        const int64_t t = t0 + row;
        tnc_bf16     *here = to + tnc_swizzle(row, 0, piece, pieces);
        if (t >= 0 && t < T && e < wide) tnc_cp_async16(here, from + t * s.row + e);
        else *(uint4 *)here = make_uint4(0, 0, 0, 0);
    }
}

/* A block of tnc_linear_scan has X values of a and 16 of b of a state. */
static __host__ __device__ __forceinline__ int tnc_scan_x(const tnc_linear &t) { return t.D < 32 ? 16 : 32; }

/* Columns of a state of a block of tnc_linear_scan: 32 if blocks of 64 leave half of a GPU idle. Twice the blocks need no
   segments: 18 d d n flops per position, forward and backward, where four segments need 22, since they sum three of four
   chunks twice. 264 is that of tnc_linear_groups. The sums do not depend on it. */
static int tnc_scan_columns(const tnc_linear &t, int64_t heads)
{
    return t.NE < 64 || 4 * heads * (t.D / 16) * (t.D / tnc_scan_x(t)) * (t.NE / 64) <= 264 ? 32 : 64;
}

/* Whether the block of a state that contains (a,b) is computed. Squared: blocks below the diagonal are not. */
static __device__ __forceinline__ bool tnc_scan_has(const tnc_linear &t, int a, int b)
{
    const int X = tnc_scan_x(t);
    return !t.squared || a / X * X <= b / 16 * 16;
}

/* Sums X a's, 16 b's and N columns of the state of one head over the chunks of a segment. A warp has 4 a's x 16 b's x N
   columns in registers; the A fragment phi^T[b,t] = x_b^T is loaded once and scaled by x_a[t] for each of the 4. S: the
   state before each chunk is written there; if it is NULL, the sum of the segment is written to totals. The last segment
   writes the whole sum to `left`. Per 16 positions and warp, for N = 64: 32 mma of 4096 flops, 16 products of 2 numbers, and
   28 cycles of shared memory (4 + 16 by ldmatrix, 8 for x_a), which is half of the time that mma.sync takes at 600 TF/s.
   Floor: 2 F n flops per row. */
template <int X, int N>
static __global__ void __launch_bounds__(X * 8, 1)
tnc_linear_scan(tnc_linear t, tnc_linear_tiles p, const float *carry, float *left,
                                                            float *totals, tnc_bf16 *S)
{
    TNC_SHARED_ALIGN(16, tnc_bf16, shared, [TNC_SCAN_STAGES][TNC_SCAN_STEP * (16 + X + N)]);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, g = lane / 4, two = lane % 4 * 2;
    const int     slices = t.NE / N, e0 = (int)blockIdx.x % slices * N, xs = t.D / X;
    const int     x0 = (int)blockIdx.x / slices % xs * X, y0 = (int)blockIdx.x / slices / xs * 16;
    const int     per = (int)(t.chunk / TNC_SCAN_STEP);
    const int64_t head = p.head0 + blockIdx.z, size = (int64_t)t.D * t.D * t.NE, first = (int64_t)blockIdx.y * p.each;
    const int64_t count = first + p.each < p.chunks ? p.each : p.chunks - first;
    const bool    last = p.last && first + count == p.chunks;
    const int     steps = (int)(last ? count - 1 : count) * per;                /* of at most TNC_SCAN_TERMS rows */
    const int64_t corner = ((int64_t)(x0 + 4 * warp) * t.D + y0 + g) * t.NE + e0 + two;      /* first element of this lane */
    const float  *begin = carry && S ? carry + blockIdx.z * size : NULL;
    float         sum[4][N / 8][4];
    int           x, j, half;
    if (!tnc_scan_has(t, x0, y0)) return;

    TNC_UNROLL
    for (x = 0; x < 4; x++)
        TNC_UNROLL
        for (half = 0; half < 2; half++)
            TNC_UNROLL
            for (j = 0; j < N / 8; j++) {
                const int64_t at = corner + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j;
                const float2  value = begin && !p.apart ? *(const float2 *)(begin + at) : make_float2(0, 0);
                sum[x][j][2 * half] = value.x;
                sum[x][j][2 * half + 1] = value.y;
            }
    TNC_ROLLED
    for (int64_t segment = 0; segment < (int64_t)blockIdx.y && S; segment++) {
        const float *more = totals + (segment * gridDim.z + blockIdx.z) * size + corner;
        TNC_UNROLL
        for (x = 0; x < 4; x++)
            TNC_UNROLL
            for (half = 0; half < 2; half++)
                TNC_UNROLL
                for (j = 0; j < N / 8; j++) {
                    const float2 value = *(const float2 *)(more + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j);
                    sum[x][j][2 * half] += value.x;
                    sum[x][j][2 * half + 1] += value.y;
                }
    }

    /* A step has 64 rows; the chunks come in the order of the sums. Where all its rows and columns exist, a thread copies
       from offsets that it has computed once. */
    int64_t         chunk = t.back ? p.chunks - 1 - first : first, ahead = (p.chunk0 + chunk) * t.chunk - t.y.shift;
    int             place[3], offset[3], to_fetch = per, to_keep = 1, slot = 0;
    const tnc_bf16 *from[3];
    bool            whole = true;
    TNC_UNROLL
    for (int i = 0; i < 3; i++) {
        const int pieces = i == 0 ? X / 8 : i == 1 ? 2 : N / 8, column = i == 0 ? x0 : i == 1 ? y0 : e0;
        const int row = (int)threadIdx.x / pieces, piece = (int)threadIdx.x % pieces;
        whole = whole && column + 8 * pieces <= t.wide[i] && llabs(t.y.set[i].row) < 1 << 24;
        from[i] = tnc_linear_row<const tnc_bf16>(t.y.set[i], t.H, head, 0) + column;
        offset[i] = (int)(row * t.y.set[i].row) + 8 * piece;
        place[i] = TNC_SCAN_STEP * (i == 0 ? 16 : i == 1 ? 0 : 16 + X) + tnc_swizzle(row, 0, piece, pieces);
        tnc_hold(place[i]);
    }
    auto fetch = [&](int into) {
        tnc_bf16 *b = shared[into], *a = b + TNC_SCAN_STEP * 16, *y = a + TNC_SCAN_STEP * X;
        if (whole && ahead >= 0 && ahead + TNC_SCAN_STEP <= t.y.T) {
            TNC_UNROLL
            for (int set = 0; set < 3; set++) {
                const int pieces = set == 0 ? X / 8 : set == 1 ? 2 : N / 8;
                TNC_UNROLL
                for (int at = 0; at < TNC_SCAN_STEP * pieces; at += X * 8)
                    if (TNC_SCAN_STEP * pieces >= X * 8 || (int)threadIdx.x < TNC_SCAN_STEP * pieces)
                        tnc_cp_async16(b + place[set] + 8 * at,
                                       from[set] + (ahead + at / pieces) * t.y.set[set].row + offset[set]);
            }
        } else {
            tnc_linear_fetch(b, TNC_SCAN_STEP, 2, t.y.set[1], t.H, head, ahead, t.y.T, y0, t.wide[1]);
            tnc_linear_fetch(a, TNC_SCAN_STEP, X / 8, t.y.set[0], t.H, head, ahead, t.y.T, x0, t.wide[0]);
            tnc_linear_fetch(y, TNC_SCAN_STEP, N / 8, t.y.set[2], t.H, head, ahead, t.y.T, e0, t.wide[2]);
        }
        ahead += TNC_SCAN_STEP;
        if (--to_fetch == 0) {
            to_fetch = per;
            if (t.back) ahead -= 2 * t.chunk;
        }
    };
    auto keep = [&] {
        tnc_bf16 *to = S + (blockIdx.z * p.chunks + chunk) * size + corner;
        if (!tnc_linear_has_state(t, p.chunk0 + chunk)) return;
        TNC_UNROLL
        for (int x = 0; x < 4; x++)
            TNC_UNROLL
            for (int half = 0; half < 2; half++)
                TNC_UNROLL
                for (int j = 0; j < N / 8; j++) {
                    const int64_t at = ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j;
                    const float2  more = p.apart ? *(const float2 *)(begin + corner + at) : make_float2(0, 0);
                    *(unsigned *)(to + at) = tnc_pair(sum[x][j][2 * half] + more.x, sum[x][j][2 * half + 1] + more.y);
                }
    };
    for (int i = 0; i < TNC_SCAN_STAGES - 1; i++) {
        if (i < steps) fetch(i);
        tnc_cp_async_commit();
    }
    for (int step = 0; step < steps; step++) {
        const tnc_bf16 *b = shared[slot], *a = b + TNC_SCAN_STEP * 16, *y = a + TNC_SCAN_STEP * X;
        tnc_cp_async_wait<TNC_SCAN_STAGES - 2>();
        __syncthreads();
        if (step + TNC_SCAN_STAGES - 1 < steps) fetch(slot == 0 ? TNC_SCAN_STAGES - 1 : slot - 1);
        tnc_cp_async_commit();
        if (--to_keep == 0) {
            to_keep = per;
            if (S) keep();
            chunk += t.back ? -1 : 1;
        }
        slot = slot == TNC_SCAN_STAGES - 1 ? 0 : slot + 1;
        TNC_UNROLL
        for (int k = 0; k < TNC_SCAN_STEP; k += 16) {
            unsigned phi[4], scaled[4], v[N / 8][2], pair[4][2], r[4];
            /* Rows t of x_b and y are rows of k, so both operands are loaded transposed. A: matrix 1 is 8 b's further,
               matrix 2 is 8 t's further; B: matrix 1 is 8 t's further, matrix 2 has the next 8 columns. */
            tnc_ldmatrix_x4_trans(phi, b + tnc_swizzle(k + lane % 8 + lane / 16 * 8, 0, lane / 8 % 2, 2));
            TNC_UNROLL
            for (j = 0; j < N / 16; j++) {
                tnc_ldmatrix_x4_trans(r, y + tnc_swizzle(k + lane % 16, 0, 2 * j + lane / 16, N / 8));
                v[2 * j][0] = r[0]; v[2 * j][1] = r[1]; v[2 * j + 1][0] = r[2]; v[2 * j + 1][1] = r[3];
            }
            /* x_a of t, t+1 and t+8, t+9 of this lane, for four a's */
            TNC_UNROLL
            for (half = 0; half < 2; half++) {
                const int   at = k + 8 * half + two, piece = warp / 2, rest = warp % 2 * 4;
                const uint2 even = *(const uint2 *)(a + tnc_swizzle(at, 0, piece, X / 8) + rest);
                const uint2 odd = *(const uint2 *)(a + tnc_swizzle(at + 1, 0, piece, X / 8) + rest);
                pair[0][half] = tnc_linear_lows(even.x, odd.x);
                pair[1][half] = tnc_linear_highs(even.x, odd.x);
                pair[2][half] = tnc_linear_lows(even.y, odd.y);
                pair[3][half] = tnc_linear_highs(even.y, odd.y);
            }
            TNC_UNROLL
            for (x = 0; x < 4; x++) {
                TNC_UNROLL
                for (int i = 0; i < 4; i++) scaled[i] = tnc_mul_bf16x2(phi[i], pair[x][i / 2]);
                TNC_UNROLL
                for (j = 0; j < N / 8; j++) tnc_mma_bf16(sum[x][j], scaled, v[j]);
            }
        }
    }
    tnc_cp_async_wait<0>();
    if (S && last) keep();
    if (S && !(left && blockIdx.y == gridDim.y - 1)) return;
    left = S ? left + blockIdx.z * size : totals + ((int64_t)blockIdx.y * gridDim.z + blockIdx.z) * size;
    TNC_UNROLL
    for (x = 0; x < 4; x++)
        TNC_UNROLL
        for (half = 0; half < 2; half++)
            TNC_UNROLL
            for (j = 0; j < N / 8; j++) {
                const int64_t at = corner + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j;
                const float2  more = begin && p.apart ? *(const float2 *)(begin + at) : make_float2(0, 0);
                *(float2 *)(left + at) = make_float2(sum[x][j][2 * half] + more.x, sum[x][j][2 * half + 1] + more.y);
            }
}

/* left = carry + totals [segments,numbers] in their order, and S = left in BF16, for the blocks that are computed. */
static __global__ void tnc_linear_total(tnc_linear t, const float *carry, const float *totals, int64_t segments,
                                        int64_t numbers, float *left, tnc_bf16 *S)
{
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < numbers; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t line = at / t.NE;
        if (!tnc_scan_has(t, (int)(line / t.D % t.D), (int)(line % t.D))) continue;
        float sum = carry[at];
        for (int64_t s = 0; s < segments; s++) sum += totals[s * numbers + at];
        left[at] = sum;
        S[at] = __float2bfloat16(sum);
    }
}

/* Whether one of these BF16 numbers, two per word, is infinite or NaN. */
static __device__ __forceinline__ bool tnc_linear_not_finite(const unsigned (&v)[4])
{
    bool odd = false;
    TNC_UNROLL
    for (int i = 0; i < 4; i++) odd = odd || (v[i] & 0x7f80u) == 0x7f80u || (v[i] & 0x7f800000u) == 0x7f800000u;
    return odd;
}

/* out [2 x 16 rows, 16] += p y, like two mma products, over the visible pairs only: key 0 of the 16 is `ahead` positions
   after row 0. p is a C fragment, so that key k of a lane's row is in a neighbouring lane. y: 16 keys, the columns of pieces
   `piece` and piece + 1. Infinite values are rare: this code is short, not fast. */
static __device__ __forceinline__ void tnc_linear_masked_product(float (&out)[2][2][4], const float (&p)[2][2][4],
                                                                 const tnc_bf16 *y, int key0, int piece, int pieces,
                                                                 int ahead, bool back)
{
    const int lane = (int)threadIdx.x & 31;
    TNC_ROLLED
    for (int k = 0; k < 16; k++)
        TNC_UNROLL
        for (int m = 0; m < 2; m++)
            TNC_UNROLL
            for (int h = 0; h < 2; h++) {
                const float even = k < 8 ? p[m][0][2 * h] : p[m][1][2 * h];
                const float odd = k < 8 ? p[m][0][2 * h + 1] : p[m][1][2 * h + 1];
                const float one = __shfl_sync(0xffffffffu, k % 2 ? odd : even, (lane & ~3) + k % 8 / 2);
                const int   row = 16 * m + 8 * h + lane / 4;
                if (back ? k + ahead < row : k + ahead > row) continue;
                TNC_UNROLL
                for (int c = 0; c < 2; c++) {
                    const tnc_bf16 *at = y + tnc_swizzle(key0 + k, 0, piece + c, pieces) + lane % 4 * 2;
                    out[m][c][2 * h] = fmaf(one, tnc_to(at[0]), out[m][c][2 * h]);
                    out[m][c][2 * h + 1] = fmaf(one, tnc_to(at[1]), out[m][c][2 * h + 1]);
                }
            }
}

/* The output, or one gradient, of 256 rows x N columns, for a permuted t: sum_i x_a[i] (x_b [32,K] S_i [K,N]) for the 32
   rows of each warp. The fragments of x_b stay in registers and are scaled by x_a[:,i] for each i; S_i is a tile in a ring
   of stages that all warps read. TRANS: the rows of S_i in memory are k, so that its fragments are loaded transposed; else
   its columns are. Per 16 k and warp, for N = 64: 16 mma, 8 products of 2 numbers, 16 cycles of shared memory, which is 60%
   of the time of the mma at 600 TF/s. Then the pairs of the rows' own chunk, 32 keys at a time: two tiles of scores, whose
   product in registers is the A fragment of the next product. */
template <int K, int N, bool TRANS, bool SQUARED>
static __global__ void __launch_bounds__(256, 1) tnc_linear_mma(tnc_linear t, tnc_linear_pass<float> p, tnc_linear_tiles q,
                                                                const tnc_bf16 *S)
{
    enum { GROUP = K < 64 ? 64 / K : 1, ROWS = TRANS ? K : N, PIECES = (TRANS ? N : K) / 8 };
    enum { S_TILE = K * N, STAGE = GROUP * S_TILE, COPIES = (STAGE / 8 + 255) / 256 };
    TNC_DYN_SHARED(tnc_bf16, shared);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, g = lane / 4, two = lane % 4 * 2;
    const int     n0 = (int)blockIdx.x * N, D8 = t.D / 8, loops = t.wide[0];
    const int64_t tiles = t.chunk / TNC_LINEAR_ROWS, c = blockIdx.y / tiles, chunk = q.chunk0 + c;
    const int64_t head = q.head0 + blockIdx.z;
    const int64_t p0 = chunk * t.chunk + blockIdx.y % tiles * TNC_LINEAR_ROWS, r0 = p0 - t.x.shift;     /* position, row */
    tnc_bf16     *xa = shared, *ring = shared + TNC_LINEAR_ROWS * t.D;
    float         sum[2][N / 8][4] = {};
    unsigned      xb[2][K / 16][4];

    if (r0 >= t.x.T || r0 + TNC_LINEAR_ROWS <= 0) return;
    tnc_linear_fetch(xa, TNC_LINEAR_ROWS, D8, t.x.set[0], t.H, head, r0, t.x.T, 0, t.wide[0]);
    tnc_cp_async_commit();
    TNC_UNROLL
    for (int m = 0; m < 2; m++)
        TNC_UNROLL
        for (int h = 0; h < 2; h++) {
            const int64_t   r = r0 + 32 * warp + 16 * m + 8 * h + g;
            const bool      here = r >= 0 && r < t.x.T;
            const tnc_bf16 *from = tnc_linear_row<const tnc_bf16>(t.x.set[1], t.H, head, here ? r : 0) + two;
            TNC_UNROLL
            for (int k = 0; k < K / 16; k++) {
                xb[m][k][h] = here && 16 * k < t.wide[1] ? *(const unsigned *)(from + 16 * k) : 0u;
                xb[m][k][h + 2] = here && 16 * k + 8 < t.wide[1] ? *(const unsigned *)(from + 16 * k + 8) : 0u;
            }
        }

    if (q.states && tnc_linear_has_state(t, chunk)) {
        /* A thread copies the same pieces of every stage: their places in shared memory stay, their offsets in the states
           advance by one row of the state or by D of them. Of a squared state only the rows (a,b) with b >= a exist: once
           the diagonal is crossed, the other step leads from (b,a) to its neighbour. */
        const bool      down = TRANS || t.squared || p.m == 1;
        const unsigned  step = (unsigned)(down ? t.D * t.NE : t.NE), after = t.squared && !TRANS ? (unsigned)t.NE : step;
        const int       stages = (loops + GROUP - 1) / GROUP, x = tnc_swizzle(32 * warp + g, 0, 0, D8);
        const tnc_bf16 *from = S + (blockIdx.z * (q.step ? gridDim.y / tiles : 1) + c * q.step) * (int64_t)t.D * t.D * t.NE;
        unsigned        offset[COPIES];
        int             place[COPIES], left[COPIES];                /* left: rows until the diagonal is crossed */
        int             cell = TRANS ? tnc_swizzle<PIECES>(lane % 16, 0, lane / 16)     /* of this lane, for ldmatrix */
                                     : tnc_swizzle<PIECES>(lane % 8 + lane / 16 * 8, 0, lane / 8 % 2);
        tnc_hold(cell);
        TNC_UNROLL
        for (int m = 0; m < COPIES; m++) {
            const int line = ((int)threadIdx.x + 256 * m) / PIECES, piece = (int)threadIdx.x % PIECES;
            const int one = line / ROWS, row = line % ROWS, other = TRANS ? row : n0 + row;
            left[m] = (SQUARED ? row | 15 : other) - one;
            place[m] = one * S_TILE + tnc_swizzle<PIECES>(row, 0, piece);
            const bool as_is = down && (TRANS || !t.squared || left[m] > 0);
            offset[m] = (unsigned)((as_is ? one * t.D + other : other * t.D + one) * t.NE + (TRANS ? n0 : 0) + 8 * piece);
        }
        auto fetch = [&](int slot) {
            TNC_UNROLL
            for (int e = 0; e < COPIES; e++) {
                const bool mine = GROUP * ROWS * PIECES % 256 == 0 || (int)threadIdx.x < GROUP * ROWS * PIECES;
                if (mine && (!SQUARED || left[e] >= 0)) tnc_cp_async16(ring + slot * STAGE + place[e], from + offset[e]);
                TNC_UNROLL
                for (int one = 0; one < GROUP; one++) offset[e] += TRANS || left[e]-- > 0 ? step : after;
                if (SQUARED) left[e] -= GROUP;
            }
        };
        for (int i = 0; i < TNC_LINEAR_STAGES - 1; i++) {
            if (i < stages) fetch(i);
            tnc_cp_async_commit();
        }
        for (int i = 0; i < loops; i += 4) {
            uint2 scale[4];                                         /* x_a[i .. i + 3] of rows g, g + 8, g + 16, g + 24 */
            TNC_UNROLL
            for (int j = 0; j < 4; j++) {
                const int stage = (i + j) / GROUP, slot = GROUP == 1 ? j : stage % TNC_LINEAR_STAGES;
                if (j % GROUP == 0) {
                    tnc_cp_async_wait<TNC_LINEAR_STAGES - 2>();
                    __syncthreads();
                    if (stage + TNC_LINEAR_STAGES - 1 < stages) fetch((slot + TNC_LINEAR_STAGES - 1) % TNC_LINEAR_STAGES);
                    tnc_cp_async_commit();
                }
                if (j == 0) {
                    TNC_UNROLL
                    for (int h = 0; h < 4; h++) scale[h] = *(const uint2 *)(xa + (x ^ i) + 8 * h * t.D);
                }
                const tnc_bf16 *s_tile = ring + slot * STAGE + j % GROUP * S_TILE;
                unsigned        once[4], twice[4];                  /* off the diagonal: twice, which is exact */
                TNC_UNROLL
                for (int h = 0; h < 4; h++) {
                    const unsigned word = j < 2 ? scale[h].x : scale[h].y;
                    once[h] = j % 2 ? tnc_linear_highs(word, word) : tnc_linear_lows(word, word);
                    twice[h] = SQUARED ? tnc_mul_bf16x2(once[h], 0x40004000u) : once[h];
                }
                TNC_UNROLL
                for (int k = 0; k < K / 16; k++) {
                    unsigned a[2][4], r[4];
                    if (SQUARED && 16 * k + 15 < i) continue;
                    TNC_UNROLL
                    for (int m = 0; m < 2; m++)
                        TNC_UNROLL
                        for (int h = 0; h < 4; h++) {                               /* rows g, g + 8, g, g + 8 */
                            const int row = 2 * m + h % 2;
                            a[m][h] = tnc_mul_bf16x2(xb[m][k][h], 16 * k > i ? twice[row] : once[row]);
                        }
                    TNC_UNROLL
                    for (int n = 0; n < N / 16; n++) {
                        if (TRANS) tnc_ldmatrix_x4_trans(r, s_tile + 128 * PIECES * k + (cell ^ 16 * n));
                        else tnc_ldmatrix_x4(r, s_tile + 128 * PIECES * n + (cell ^ 16 * k));
                        TNC_UNROLL
                        for (int m = 0; m < 2; m++) {
                            tnc_mma_bf16(sum[m][2 * n], a[m], r);
                            tnc_mma_bf16(sum[m][2 * n + 1], a[m], r + 2);
                        }
                    }
                }
            }
        }
    }

    /* The pairs of the rows' own chunk */
    if (t.causal) {
        enum { SIZE = TNC_LINEAR_KEYS };
        const int     stage = SIZE * (t.D + K + N);
        const int64_t begin = chunk * t.chunk, end = begin + t.chunk < t.length ? begin + t.chunk : t.length;
        const int64_t first = begin < t.y.shift ? t.y.shift : begin;                 /* no key comes before it */
        const int64_t low = t.back ? p0 : first, own = p0 + TNC_LINEAR_ROWS, high = t.back || end < own ? end : own;
        const int     count = (int)((high - low + SIZE - 1) / SIZE);
        const int64_t mine = p0 + 32 * warp;                                        /* position of the warp's first row */
        auto fetch = [&](int tile) {
            tnc_bf16     *to = ring + tile % 2 * stage;
            const int64_t row = low + tile * SIZE - t.y.shift;
            tnc_linear_fetch(to, SIZE, D8, t.y.set[0], t.H, head, row, t.y.T, 0, t.wide[0]);
            tnc_linear_fetch(to + SIZE * t.D, SIZE, K / 8, t.y.set[1], t.H, head, row, t.y.T, 0, t.wide[1]);
            tnc_linear_fetch(to + SIZE * (t.D + K), SIZE, N / 8, t.y.set[2], t.H, head, row, t.y.T, n0, t.wide[2]);
        };
        tnc_cp_async_wait<0>();
        __syncthreads();                                                          /* the ring is free, and x_a has arrived */
        if (count > 0) fetch(0);
        tnc_cp_async_commit();
        for (int i = 0; i < count; i++) {
            const tnc_bf16 *ya = ring + i % 2 * stage, *yb = ya + SIZE * t.D, *ym = yb + SIZE * K;
            tnc_cp_async_wait<0>();
            __syncthreads();
            if (i + 1 < count) fetch(i + 1);
            tnc_cp_async_commit();
            for (int h = 0; h < SIZE / 16; h++) {
                const int64_t key = low + i * SIZE + 16 * h;
                float         one[2][2][4] = {}, other[2][2][4] = {};
                unsigned      a[4], b[4], v[4];
                if (t.back ? key + 15 < mine : key > mine + 31) continue;               /* uniform in the warp */
                for (int k = 0; k < t.D / 16; k++) {
                    tnc_ldmatrix_x4(b, ya + tnc_swizzle(16 * h + lane % 8 + lane / 16 * 8, 0, 2 * k + lane / 8 % 2, D8));
                    TNC_UNROLL
                    for (int m = 0; m < 2; m++) {
                        tnc_ldmatrix_x4(a, xa + tnc_swizzle(32 * warp + 16 * m + lane % 16, 0, 2 * k + lane / 16, D8));
                        tnc_mma_bf16(one[m][0], a, b);
                        tnc_mma_bf16(one[m][1], a, b + 2);
                    }
                }
                TNC_UNROLL
                for (int k = 0; k < K / 16; k++) {
                    tnc_ldmatrix_x4(b, yb + tnc_swizzle(16 * h + lane % 8 + lane / 16 * 8, 0, 2 * k + lane / 8 % 2, K / 8));
                    TNC_UNROLL
                    for (int m = 0; m < 2; m++) {
                        tnc_mma_bf16(other[m][0], xb[m][k], b);
                        tnc_mma_bf16(other[m][1], xb[m][k], b + 2);
                    }
                }
                /* the products at (row, key) of a lane are in the layout of the next A fragment */
                TNC_UNROLL
                for (int m = 0; m < 2; m++)
                    TNC_UNROLL
                    for (int j = 0; j < 4; j++) {
                        const int64_t row = mine + 16 * m + 8 * (j % 2) + g, at = key + 8 * (j / 2) + two;
                        const int     e = 2 * (j % 2);
                        const bool    sees0 = t.back ? at >= row : at <= row, sees1 = t.back ? at + 1 >= row : at + 1 <= row;
                        const float   p0_ = sees0 ? one[m][j / 2][e] * other[m][j / 2][e] : 0.0f;
                        const float   p1_ = sees1 ? one[m][j / 2][e + 1] * other[m][j / 2][e + 1] : 0.0f;
                        one[m][j / 2][e] = p0_;
                        one[m][j / 2][e + 1] = p1_;
                    }
                TNC_UNROLL
                for (int n = 0; n < N / 16; n++) {
                    tnc_ldmatrix_x4_trans(v, ym + tnc_swizzle(16 * h + lane % 16, 2 * n, lane / 16, N / 8));
                    /* some pairs are masked: what their 0 is multiplied by must be finite */
                    if ((t.back ? key < mine + 31 : key + 15 > mine) && __any_sync(0xffffffffu, tnc_linear_not_finite(v))) {
                        float out[2][2][4];
                        TNC_UNROLL
                        for (int m = 0; m < 2; m++)
                            TNC_UNROLL
                            for (int j = 0; j < 8; j++) out[m][j / 4][j % 4] = sum[m][2 * n + j / 4][j % 4];
                        tnc_linear_masked_product(out, one, ym, 16 * h, 2 * n, N / 8, (int)(key - mine), t.back);
                        TNC_UNROLL
                        for (int m = 0; m < 2; m++)
                            TNC_UNROLL
                            for (int j = 0; j < 8; j++) sum[m][2 * n + j / 4][j % 4] = out[m][j / 4][j % 4];
                        continue;
                    }
                    TNC_UNROLL
                    for (int m = 0; m < 2; m++) {
                        TNC_UNROLL
                        for (int j = 0; j < 4; j++)
                            a[j] = tnc_pair(one[m][j / 2][2 * (j % 2)], one[m][j / 2][2 * (j % 2) + 1]);
                        tnc_mma_bf16(sum[m][2 * n], a, v);
                        tnc_mma_bf16(sum[m][2 * n + 1], a, v + 2);
                    }
                }
            }
        }
    }
    tnc_cp_async_wait<0>();

    TNC_UNROLL
    for (int m = 0; m < 2; m++)
        TNC_UNROLL
        for (int h = 0; h < 2; h++) {
            const int64_t r = r0 + 32 * warp + 16 * m + 8 * h + g;
            if (r >= 0 && r < t.x.T) {
                const float scale = p.scaled ? tnc_linear_row_scale(p.scale, head, t.x.T, r) : 1.0f;
                const float factor = p.factor * scale;
                char       *to = p.f32 ? (char *)tnc_linear_row<float>(p.out, t.H, head, r)
                                       : (char *)tnc_linear_row<tnc_bf16>(p.out, t.H, head, r);
                TNC_UNROLL
                for (int n = 0; n < N / 8; n++)
                    tnc_store_pair(to, n0 + 8 * n + two, (int)p.width, p.f32, p.pairs, p.add, factor * sum[m][n][2 * h],
                                   factor * sum[m][n][2 * h + 1]);
            }
        }
}

/* Copies of states with 2 bytes per number; two carries, since the last segment writes one while others still read the
   other; totals of the segments. If the tiles of the heads do not fill a GPU, the chunks are divided into segments that run
   in parallel, and every chunk is summed twice, first for the segments after its own. 264 blocks: twice the multiprocessors
   of an H200, and a constant, so that the sums do not depend on the device. */
TNC_FN tnc_linear_group tnc_linear_groups(const tnc_linear *t, size_t bytes, bool kept, tnc_bf16)
{
    tnc_linear_group g;
    const int64_t    most = 65535 / (t->chunk / TNC_LINEAR_ROWS);
    const double     state = (double)t->D * t->D * t->NE;
    g.states = kept || t->chunks > 1 || !t->causal;
    g.heads = tnc_linear_clamp(g.states ? (double)bytes / 32 / state : 65535, t->heads < 65535 ? t->heads : 65535);
    int64_t blocks = g.heads * (t->D / 16) * (t->D / tnc_scan_x(*t)) * (t->NE / tnc_scan_columns(*t, g.heads));
    g.segments = tnc_linear_clamp(264 / (double)blocks, 32);
    if (t->causal && g.segments < 4) g.segments = 1;                                /* twice the work: no gain */
    g.segments = g.segments < t->chunks ? g.segments : t->chunks;
    /* bytes per number, without the copies */
    double each = 8 + 4 * (double)g.segments;
    g.chunks = tnc_linear_clamp((double)(TNC_SCAN_TERMS / t->chunk), t->chunks < most ? t->chunks : most);
    if (t->causal) g.chunks = tnc_linear_clamp(((double)bytes / state / (double)g.heads - each) / 2, g.chunks);
    each += 2 * (double)(t->causal ? g.chunks : 1);                                 /* else one state for all */
    g.bytes = g.states ? (size_t)(state * (double)g.heads * each) : 0;
    return g;
}

TNC_FN size_t tnc_linear_shared(int64_t D, int64_t K, int64_t N)
{
    const int64_t ring = TNC_LINEAR_STAGES * (K < 64 ? 64 : K) * N, pairs = 2 * TNC_LINEAR_KEYS * (D + K + N);
    return (size_t)(TNC_LINEAR_ROWS * D + (ring > pairs ? ring : pairs)) * 2;
}

template <int K, int N, bool TRANS, bool SQUARED>
static void tnc_linear_mma_launch(tnc *s, dim3 grid, const tnc_linear &t, const tnc_linear_pass<float> &p,
                                  const tnc_linear_tiles &q, const tnc_bf16 *S)
{
    const size_t bytes = tnc_linear_shared(t.D, K, N);
    tnc_shared_for(s, tnc_linear_mma<K, N, TRANS, SQUARED>, bytes);
    TNC_LAUNCH((tnc_linear_mma<K, N, TRANS, SQUARED>), grid, 256, bytes, s->stream, t, p, q, S);
}

/* Launches the kernel for the depth of the products (d, or n for the gradients of q and k) and their width. */
static void tnc_linear_mma_rows(tnc *s, const tnc_linear &whole, const tnc_linear_pass<float> &p,
                                const tnc_linear_tiles &q, int64_t chunks, int64_t heads, const tnc_bf16 *S)
{
    const tnc_linear t = tnc_linear_permute(&whole, p.m);
    const int        K = p.m == 2 ? t.D : t.NE, all = p.m == 2 ? t.NE : t.D, N = all < 64 ? all : 64;
    const bool       squared = t.squared && p.m == 2 && K > 16;     /* of 16 x 16 numbers none are off the diagonal */
    const dim3       grid((unsigned)(all / N), (unsigned)(chunks * t.chunk / TNC_LINEAR_ROWS), (unsigned)heads);
#define TNC_CASE(k, n, trans, squares) \
    if (K == k && N == n && (p.m == 2) == trans && squared == squares) \
        tnc_linear_mma_launch<k, n, trans, squares>(s, grid, t, p, q, S)
    TNC_CASE(16, 32, true, false);   TNC_CASE(32, 32, true, false);   TNC_CASE(32, 32, true, true);
    TNC_CASE(16, 64, true, false);   TNC_CASE(32, 64, true, false);   TNC_CASE(32, 64, true, true);
    TNC_CASE(64, 64, true, false);   TNC_CASE(64, 64, true, true);
    TNC_CASE(128, 64, true, false);  TNC_CASE(128, 64, true, true);
    TNC_CASE(32, 16, false, false);  TNC_CASE(64, 16, false, false);  TNC_CASE(128, 16, false, false);
    TNC_CASE(32, 32, false, false);  TNC_CASE(64, 32, false, false);  TNC_CASE(128, 32, false, false);
                                     TNC_CASE(64, 64, false, false);  TNC_CASE(128, 64, false, false);
#undef TNC_CASE
}

static void tnc_linear_scan_rows(tnc *s, const tnc_linear &t, const tnc_linear_tiles &q, int64_t segments, int64_t heads,
                                 const float *carry, float *left, float *totals, tnc_bf16 *S)
{
    const int  X = tnc_scan_x(t), N = tnc_scan_columns(t, heads);
    const dim3 grid((unsigned)(t.D / 16 * (t.D / X) * (t.NE / N)), (unsigned)segments, (unsigned)heads);
#define TNC_CASE(x, n) \
    if (X == x && N == n) TNC_LAUNCH((tnc_linear_scan<x, n>), grid, x * 8, 0, s->stream, t, q, carry, left, totals, S)
    TNC_CASE(16, 32);  TNC_CASE(16, 64);  TNC_CASE(32, 32);  TNC_CASE(32, 64);
#undef TNC_CASE
}

/* The same for tensor cores. scratch: two carries, the totals of the segments, the BF16 states. */
TNC_FN void tnc_linear_sweep(tnc *s, const tnc_linear &t, const tnc_linear_pass<float> *pass, int passes, tnc_linear_group g,
                             tnc_bf16 *scratch, float *state)
{
    const int64_t size = (int64_t)t.D * t.D * t.NE;
    for (int64_t head = 0; head < t.heads; head += g.heads) {
        const int64_t    heads = t.heads - head < g.heads ? t.heads - head : g.heads;
        const unsigned   wide = tnc_grid(s, heads * size, 256);
        float           *carry = (float *)scratch, *left = carry + g.heads * size, *totals = left + g.heads * size;
        tnc_bf16        *S = (tnc_bf16 *)(totals + g.segments * g.heads * size);
        tnc_linear_tiles q;
        memset(&q, 0, sizeof q);
        q.head0 = head;
        q.states = g.states;
        q.step = t.causal;
        q.apart = state || t.length > TNC_SCAN_TERMS;
        if (state) TNC_LAUNCH((tnc_linear_carry<float>), wide, 256, 0, s->stream, carry, state, t, head, heads, false);
        else if (g.states) cudaMemsetAsync(carry, 0, (size_t)(heads * size) * sizeof(float), s->stream);
        for (int64_t done = 0; done < t.chunks; done += g.chunks) {
            const int64_t chunks = t.chunks - done < g.chunks ? t.chunks - done : g.chunks;
            q.chunks = chunks;
            q.chunk0 = t.back ? t.chunks - done - chunks : done;
            q.each = tnc_ceil(chunks, g.segments);
            q.last = t.causal && done + chunks == t.chunks && !state;
            int64_t segments = tnc_ceil(chunks, q.each);
            if (g.states && (segments > 1 || !t.causal))
                tnc_linear_scan_rows(s, t, q, t.causal ? segments - 1 : segments, heads, NULL, NULL, totals, NULL);
            if (g.states && t.causal) tnc_linear_scan_rows(s, t, q, segments, heads, carry, left, totals, S);
            if (!t.causal)
                TNC_LAUNCH(tnc_linear_total, wide, 256, 0, s->stream, t, carry, totals, segments, heads * size, left, S);
            float *other = carry; carry = left; left = other;
            for (int i = 0; i < passes && t.causal; i++) tnc_linear_mma_rows(s, t, pass[i], q, chunks, heads, S);
        }
        for (q.chunk0 = 0; q.chunk0 < t.chunks && !t.causal; q.chunk0 += g.chunks)
            for (int i = 0; i < passes; i++) {
                const int64_t left_over = t.chunks - q.chunk0;
                tnc_linear_mma_rows(s, t, pass[i], q, left_over < g.chunks ? left_over : g.chunks, heads, S);
            }
        if (state) TNC_LAUNCH((tnc_linear_carry<float>), wide, 256, 0, s->stream, carry, state, t, head, heads, true);
    }
}

/* ---- decoding: a few tokens with a state ------------------------------------------------------------ >>cuda-linear-decode
   The state is read and written once; the work does not depend on the number of earlier tokens. Blocks have 64 features
   each, and a second kernel combines their partial results with the pairs of the call, as in split-K. */

typedef struct tnc_linear_tokens {
    tnc_linear_set q[2], k[2], v, out;
    int64_t        H, Tq, Tk, d, dv, n;
    bool           squared, causal;
} tnc_linear_tokens;

/* Number e of v' of key j */
template <typename T>
static __device__ __forceinline__ typename tnc_real<T>::type tnc_linear_value(const tnc_linear_tokens &t, int64_t head,
                                                                              int64_t j, int64_t e)
{
    typedef typename tnc_real<T>::type R;
    return e < t.dv ? tnc_to(tnc_linear_row<const T>(t.v, t.H, head, j)[e]) : R(1);
}

/* phi_ab of row i of q or k */
template <typename T>
static __device__ __forceinline__ typename tnc_real<T>::type tnc_linear_phi(const tnc_linear_tokens &t,
                                                                            const tnc_linear_set x[2],
                                                                            int64_t head, int64_t i, unsigned a, unsigned b)
{
    return tnc_to(tnc_linear_row<const T>(x[0], t.H, head, i)[a]) * tnc_to(tnc_linear_row<const T>(x[1], t.H, head, i)[b]);
}

/* part [parts,heads,Tq,n]: the contribution of 64 features of the state to each query; then the keys are added to the state.
   A thread has every 8th feature and every 32nd column. Floor: 2 F n numbers read or written. */
template <typename T>
static __global__ void __launch_bounds__(256) tnc_linear_decode_step(tnc_linear_tokens t, typename tnc_real<T>::type *state,
                                                       typename tnc_real<T>::type *part)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, partial, [8][TNC_LINEAR_DECODE][32]);
    const int64_t features = t.squared ? t.d * (t.d + 1) / 2 : t.d * t.d, head = blockIdx.y;
    const unsigned first = blockIdx.x * 64u;
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t before = t.causal ? 0 : t.Tk;         /* whether the queries see the keys of this call in the state */
    const unsigned d = (unsigned)t.d, all = (unsigned)features;
    state += head * features * t.n;
    for (int64_t e0 = 0; e0 < t.n; e0 += 32) {
        const int64_t e = e0 + lane;
        R             sum[TNC_LINEAR_DECODE] = {};
        for (unsigned f = first + (unsigned)warp; f < first + 64 && f < all && e < t.n; f += 8) {
            R S = state[f * t.n + e], now = S;
            unsigned a = f / d, b = f % d;
            if (t.squared)
                for (a = 0, b = f; b >= d - a; a++) b -= d - a;
            if (t.squared) b += a;
            for (int64_t j = 0; j < t.Tk; j++)
                now = tnc_fma(tnc_linear_phi<T>(t, t.k, head, j, a, b), tnc_linear_value<T>(t, head, j, e), now);
            state[f * t.n + e] = now;
            if (before > 0) S = now;
            TNC_UNROLL
            for (int i = 0; i < TNC_LINEAR_DECODE; i++)
                if (i < t.Tq)
                    sum[i] = tnc_fma(tnc_linear_phi<T>(t, t.q, head, i, a, b) * R(t.squared && a != b ? 2 : 1), S, sum[i]);
        }
        TNC_UNROLL
        for (int i = 0; i < TNC_LINEAR_DECODE; i++) partial[warp][i][lane] = sum[i];
        __syncthreads();
        if (warp < t.Tq && e < t.n) {
            R total = R(0);
            for (int i = 0; i < 8; i++) total += partial[i][warp][lane];
            part[(((int64_t)blockIdx.x * gridDim.y + head) * t.Tq + warp) * t.n + e] = total;
        }
        __syncthreads();
    }
}

/* raw [heads,Tq,n] = scale^2 c (the sum of the parts and, if causal, of the pairs of this call) */
template <typename T>
static __global__ void tnc_linear_decode_combine(tnc_linear_tokens t, const typename tnc_real<T>::type *part, int64_t parts,
                                                 int64_t heads,
                                    typename tnc_real<T>::type factor, tnc_linear_scale<typename tnc_real<T>::type> scale,
                                    typename tnc_real<T>::type *raw)
{
    typedef typename tnc_real<T>::type R;
    const int64_t all = heads * t.Tq * t.n;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t head = at / (t.Tq * t.n), row = at / t.n % t.Tq, e = at % t.n;
        R             sum = R(0);
        for (int64_t p = 0; p < parts; p++) sum += part[p * all + at];
        for (int64_t j = 0; t.causal && j <= t.Tk - t.Tq + row; j++) {
            const T *q1 = tnc_linear_row<const T>(t.q[0], t.H, head, row),
                *k1 = tnc_linear_row<const T>(t.k[0], t.H, head, j);
            const T *q2 = tnc_linear_row<const T>(t.q[1], t.H, head, row),
                *k2 = tnc_linear_row<const T>(t.k[1], t.H, head, j);
            R        one = R(0), two = R(0);
            for (int64_t i = 0; i < t.d; i++) {
                one = tnc_fma(tnc_to(q1[i]), tnc_to(k1[i]), one);
                two = tnc_fma(tnc_to(q2[i]), tnc_to(k2[i]), two);
            }
            sum = tnc_fma(one * two, tnc_linear_value<T>(t, head, j, e), sum);
        }
        R value = sum * factor * (scale.kind == TN_ROW_SCALE_SUM ? R(1) : tnc_linear_row_scale(scale, head, t.Tq, row));
        if (raw) raw[at] = value;
        else tnc_linear_row<T>(t.out, t.H, head, row)[e] = tnc_from<T>(value);
    }
}

/* ---- the entries ------------------------------------------------------------------------------------- >>cuda-linear-entry
   Each packs the vectors of its call where that is needed, chooses groups of heads and chunks that fit into scratch, and
   sweeps over them: once in the forward pass; in the backward pass once for the queries and once for the keys. */

/* Set `set` of a view [B,T,sets H,d] of numbers of `size` bytes */
static tnc_linear_set tnc_linear_view(const tn_view *v, int64_t H, int set, size_t size)
{
    tnc_linear_set s;
    s.p = v->data ? (char *)v->data + (size_t)(set * H * v->strides[2]) * size : NULL;
    s.batch = v->strides[0];
    s.row = v->strides[1];
    s.head = v->strides[2];
    return s;
}

/* A packed set [heads,T,pitch] */
static tnc_linear_set tnc_linear_packed(void *p, int64_t H, int64_t T, int64_t pitch)
{
    tnc_linear_set s;
    s.p = p;
    s.batch = H * T * pitch;
    s.row = pitch;
    s.head = T * pitch;
    return s;
}

template <typename R> static tnc_linear_scale<R> tnc_linear_scale_of(const tn_call *c, bool backward)
{
    tnc_linear_scale<R> r;
    r.kind = (int)c->f[2];
    r.causal = c->i[1] != 0;
    r.Tk = c->in[1].shape[1];
    r.ahead = r.Tk - c->in[0].shape[1];
    r.past = c->i[3];
    r.length = (R)c->f[1];
    r.stat = backward ? (const R *)c->in[4].data : NULL;
    return r;
}

/* The problem of a call: rows x are queries, or (back) keys. The caller sets the vectors. */
static tnc_linear tnc_linear_of(const tn_call *c, bool back, bool tensor)
{
    const tn_view *Q = &c->in[0], *V = &c->in[2];
    tnc_linear     t;
    memset(&t, 0, sizeof t);
    t.H = V->shape[2];
    t.heads = V->shape[0] * t.H;
    t.w[0] = t.w[1] = Q->shape[3];
    t.w[2] = V->shape[3] + ((int)c->f[2] == TN_ROW_SCALE_SUM);
    t.causal = c->i[1] != 0;
    t.back = back;
    t.squared = c->i[0] == TN_ATTEND_SQUARED;
    t.x.T = Q->shape[1];
    t.y.T = V->shape[1];
    if (t.causal) {                                     /* the last query has the position of the last key */
        t.x.shift = t.y.T > t.x.T ? t.y.T - t.x.T : 0;
        t.y.shift = t.x.T > t.y.T ? t.x.T - t.y.T : 0;
    }
    t.length = t.x.T > t.y.T ? t.x.T : t.y.T;
    t.D = (int)t.w[0];
    t.NE = (int)t.w[2];
    t.chunk = t.D <= 16 ? 64 : t.D <= 32 ? 128 : t.D <= 64 ? 256 : 512;
    if (tensor) {
        t.D = t.D <= 16 ? 16 : t.D <= 32 ? 32 : t.D <= 64 ? 64 : 128;
        t.NE = t.NE <= 32 && t.D <= 32 ? 32 : t.NE <= 64 ? 64 : 128;                /* small dv with large d is rare */
        t.chunk = t.D <= 32 ? 256 : t.D <= 64 ? 512 : 1024;                         /* pairs are then a tenth of the work */
    }
    t.chunks = tnc_ceil(t.length, t.chunk);
    t.high = t.chunks;
    if (back) { const tnc_linear_side x = t.x; t.x = t.y; t.y = x; }
    if (c->kernel == TN_KERNEL_ATTENTION_LINEAR && c->out[2].data) return t;        /* then every chunk has a state */
    if (t.y.T == 0) t.high = 0;
    else if (t.causal && back) t.high--;
    else if (t.causal) t.low = t.y.shift / t.chunk + 1;
    return t;
}

static bool tnc_linear_types(const tn_call *c, tn_dtype activations, tn_dtype real, bool backward)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].data && c->in[i].dtype != (backward && i == 4 ? real : activations)) return false;
    for (int i = 0; i < (backward ? 3 : 1); i++)
        if (c->out[i].data && c->out[i].dtype != activations) return false;
    for (int i = 1; i < 3 && !backward; i++)
        if (c->out[i].data && c->out[i].dtype != real) return false;
    return true;
}

/* One of the six vectors of a call, as the kernels read it: in place, or packed. */
typedef struct tnc_linear_item {
    tnc_linear_set set;
    int64_t        T, width, pitch;
    int            mode;
    bool           pack;
    size_t         offset;
} tnc_linear_item;

/* Allocates scratch for `fixed` bytes and the states of a group, which it chooses. */
template <typename E>
static char *tnc_linear_scratch(tnc *s, const tnc_linear *t, bool kept, size_t fixed, tnc_linear_group *g)
{
    const double state = (double)t->D * t->D * t->NE * (double)sizeof(double);
    size_t       bytes = TNC_LINEAR_SCRATCH;
    while (bytes > s->memory / 16) bytes /= 2;
    if (state * 64 > 9e18) {                                                        /* more bytes than a size_t can count */
        tnc_error(s, TN_ERR_MEMORY, "the state has %d x %d x %d numbers, more than memory can hold", t->D, t->D, t->NE);
        return NULL;
    }
    *g = tnc_linear_groups(t, bytes, kept, E());
    return (char *)tnc_scratch(s, fixed + g->bytes + 256);
}

static size_t tnc_linear_bytes(int64_t n, size_t size) { return ((size_t)n * size + 255) / 256 * 256; }

static bool tnc_linear_aligned(const tnc_linear_set &s, size_t bytes, size_t size)
{
    const int64_t numbers = (int64_t)(bytes / size);
    return (uintptr_t)s.p % bytes == 0 && s.batch % numbers == 0 && s.row % numbers == 0 && s.head % numbers == 0;
}

/* The forward or backward pass for activations T with kernels that read E: BF16 for tensor cores, else T itself. */
template <typename T, typename E> static tn_status tnc_linear_run(tnc *s, const tn_call *c, bool backward)
{
    typedef typename tnc_real<T>::type R;
    const bool       tensor = (int)tnc_code<E>::dtype == TN_BF16, sums = (int)c->f[2] == TN_ROW_SCALE_SUM;
    const int64_t    dv = c->in[2].shape[3];
    tnc_linear       q = tnc_linear_of(c, false, tensor), k = tnc_linear_of(c, true, tensor);
    tnc_linear_item  items[6];                   /* q1, q2, u, k1, k2, v */
    tnc_linear_pass<R> pass[3];
    tnc_linear_group g;
    size_t           fixed = sums && !backward ? tnc_linear_bytes(q.heads * q.x.T * q.w[2], sizeof(R)) : 0;
    char            *scratch;
    for (int i = 0; i < 6; i++) {
        const tn_view   *from = i % 3 < 2 ? &c->in[i / 3] : i == 2 ? &c->in[5] : &c->in[2];
        tnc_linear_item *item = &items[i];
        memset(item, 0, sizeof *item);
        if (i == 2 && !backward) continue;
        item->set = tnc_linear_view(from, q.H, q.squared ? 0 : i % 3 % 2, sizeof(T));
        item->T = i < 3 ? q.x.T : q.y.T;
        item->width = i % 3 < 2 ? q.w[0] : dv;
        item->mode = i == 2 ? TNC_LINEAR_SLOPE : i == 5 && sums ? TNC_LINEAR_ONE : TNC_LINEAR_COPY;
        item->pitch = i % 3 < 2 ? q.w[0] : q.w[2];
        if (tensor) item->pitch = (item->pitch + 7) / 8 * 8;
        item->pack = item->mode != TNC_LINEAR_COPY || sizeof(T) != sizeof(E)
                     || (tensor && (item->pitch != item->width || !tnc_linear_aligned(item->set, 16, sizeof(E))));
        if (q.squared && i % 3 == 1) item->pack = false;                            /* the same vector as the first */
        item->offset = fixed;
        if (item->pack) fixed += tnc_linear_bytes(q.heads * item->T * item->pitch, sizeof(E));
    }
    if (!(scratch = tnc_linear_scratch<E>(s, &q, c->out[2].data && !backward, fixed, &g))) return TN_ERR_MEMORY;
    for (int i = 0; i < 6; i++) {
        tnc_linear_item *item = &items[i];
        if (item->pack) {
            E *to = (E *)(scratch + item->offset);
            TNC_LAUNCH((tnc_linear_pack<T, E>), tnc_grid(s, q.heads * item->T, 8), 256, 0, s->stream, item->set,
                       tnc_linear_view(&c->in[3], q.H, 0, sizeof(T)), item->mode, tnc_linear_scale_of<R>(c, backward), q.H,
                       q.heads, item->T, item->width, item->pitch, to);
            item->set = tnc_linear_packed(to, q.H, item->T, item->pitch);
        }
        if (q.squared && i % 3 == 1) item->set = items[i - 1].set;
        q.wide[i % 3] = k.wide[i % 3] = (int)items[3 + i % 3].pitch;
        if (i < 3) q.x.set[i] = k.y.set[i] = item->set;
        else q.y.set[i - 3] = k.x.set[i - 3] = item->set;
    }
    for (int side = 0; side < 1 + backward; side++) {                               /* the output; or dq, then dk and dv */
        memset(pass, 0, sizeof pass);
        int n = 0;
        for (int i = backward ? 0 : 2; i < (backward ? 2 + side : 3); i++) {
            const tn_view *out = &c->out[!backward ? 0 : i < 2 ? side : 2];
            tnc_linear_pass<R> *p = &pass[n];
            if (!out->data || (i == 1 && q.squared)) continue;
            p->out = tnc_linear_view(out, q.H, i % 2, sizeof(T));
            p->m = i;
            p->width = i < 2 ? q.w[i] : dv;
            p->add = backward && c->accumulate;
            p->factor = (R)(c->f[0] * c->f[0] * (i < 2 && q.squared ? 2 : 1));
            p->f32 = (int)tnc_code<T>::dtype == TN_F32;
            if (!backward) {
                p->scaled = !sums;
                p->scale = tnc_linear_scale_of<R>(c, false);
                if (sums) {
                    p->out = tnc_linear_packed(scratch, q.H, q.x.T, q.w[2]);
                    p->width = q.w[2];
                    p->f32 = true;
                }
            }
            p->pairs = p->width % 2 == 0 && tnc_linear_aligned(p->out, p->f32 ? 8 : 4, p->f32 ? 4 : 2);
            n++;
        }
        if (n > 0)
            tnc_linear_sweep(s, side ? k : q, pass, n, g, (E *)(scratch + fixed), (R *)(backward ? NULL : c->out[2].data));
    }
    if (sums && !backward)
        TNC_LAUNCH((tnc_linear_divide<T>), tnc_grid(s, q.heads * q.x.T * q.w[2], 256), 256, 0, s->stream, (const R *)scratch,
                   q.H,
                   q.heads, q.x.T, q.w[2], (R)c->f[3], tnc_linear_view(&c->out[0], q.H, 0, sizeof(T)), (R *)c->out[1].data);
    return TN_OK;
}

template <typename T> static tn_status tnc_linear_decode(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const tnc_linear p = tnc_linear_of(c, false, false);
    tnc_linear_tokens   t;
    const bool       sums = (int)c->f[2] == TN_ROW_SCALE_SUM;
    const int64_t    parts = tnc_ceil(p.squared ? p.w[0] * (p.w[0] + 1) / 2 : p.w[0] * p.w[0], 64);
    const int64_t    numbers = p.heads * p.x.T * p.w[2];
    R               *part = (R *)tnc_scratch(s, (size_t)(parts + 1) * (size_t)numbers * sizeof(R));
    R               *raw = sums ? part + parts * numbers : NULL;
    if (!part) return TN_ERR_MEMORY;
    for (int i = 0; i < 2; i++) {
        t.q[i] = tnc_linear_view(&c->in[0], p.H, p.squared ? 0 : i, sizeof(T));
        t.k[i] = tnc_linear_view(&c->in[1], p.H, p.squared ? 0 : i, sizeof(T));
    }
    t.v = tnc_linear_view(&c->in[2], p.H, 0, sizeof(T));
    t.out = tnc_linear_view(&c->out[0], p.H, 0, sizeof(T));
    t.H = p.H; t.Tq = p.x.T; t.Tk = p.y.T; t.d = p.w[0]; t.dv = c->in[2].shape[3]; t.n = p.w[2];
    t.squared = p.squared;
    t.causal = p.causal;
    TNC_LAUNCH((tnc_linear_decode_step<T>), dim3((unsigned)parts, (unsigned)p.heads), 256, 0, s->stream, t,
               (R *)c->out[2].data, part);
    TNC_LAUNCH((tnc_linear_decode_combine<T>), tnc_grid(s, numbers, 256), 256, 0, s->stream, t, (const R *)part, parts,
               p.heads, (R)(c->f[0] * c->f[0]), tnc_linear_scale_of<R>(c, false), raw);
    if (sums)
        TNC_LAUNCH((tnc_linear_divide<T>), tnc_grid(s, numbers, 256), 256, 0, s->stream, (const R *)raw, t.H, p.heads, t.Tq,
                   t.n, (R)c->f[3], t.out, (R *)c->out[1].data);
    return TN_OK;
}

/* Tensor cores compute d and n up to 128 with BF16 operands, or with F32 operands if the context has TN_GEMM_BF16. */
static tn_status tnc_linear_choose(tnc *s, const tn_call *c, bool backward)
{
    const tn_dtype   dtype = c->in[0].dtype, real = dtype == TN_F64 ? TN_F64 : TN_F32;
    const tnc_linear t = tnc_linear_of(c, false, true);
    const bool       tensor = t.w[0] <= 128 && t.w[2] <= 128 && tnc_linear_shared(t.D, 128, 64) <= s->shared_max;
    if (t.w[0] > INT32_MAX || t.w[2] > INT32_MAX || t.heads > UINT32_MAX)
        return tnc_error(s, TN_ERR_SHAPE, "%lld heads of %lld and %lld numbers, expected at most 2^32 - 1 heads of 2^31 - 1",
                         (long long)t.heads, (long long)t.w[0], (long long)t.w[2]);
    if (!tnc_linear_types(c, dtype, real, backward) || (dtype == TN_BF16 && !tensor)) return TN_ERR_DTYPE;
    if (backward && t.heads * t.x.T * t.y.T * t.w[2] == 0) return tnc_attend_no_pairs(s, c);
    if (t.heads * t.length * t.w[2] == 0) return TN_OK;
    if (!backward && c->out[2].data && t.x.T <= TNC_LINEAR_DECODE && t.y.T <= TNC_LINEAR_DECODE && t.heads <= 65535
        && t.w[0] * t.w[1] <= INT32_MAX)
        TNC_TYPES(dtype, T, return tnc_linear_decode<T>(s, c))
    if (dtype == TN_BF16) return tnc_linear_run<tnc_bf16, tnc_bf16>(s, c, backward);
    if (dtype == TN_F64) return tnc_linear_run<double, double>(s, c, backward);
    if (tensor && s->precision == TN_GEMM_BF16) return tnc_linear_run<float, tnc_bf16>(s, c, backward);
    return tnc_linear_run<float, float>(s, c, backward);
}

TNC_FN tn_status tnc_attention_linear(tnc *s, const tn_call *c) { return tnc_linear_choose(s, c, false); }
TNC_FN tn_status tnc_attention_linear_backward(tnc *s, const tn_call *c) { return tnc_linear_choose(s, c, true); }

/* ---- argmax, accuracy -------------------------------------------------------------------------------------- >>cuda-argmax
   The first of the largest numbers; a NaN counts as largest. Of two numbers the better one is determined by their values
   and positions alone, so that every order of comparisons finds the same one. Accuracy counts rows in integers. Floor:
   reads R C numbers. */

template <typename R> static __device__ __forceinline__ bool tnc_better(R x, int64_t i, R y, int64_t j)
{
    if ((x != x) != (y != y)) return x != x;
    if (x == x && x != y) return x > y;
    return i < j;
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_argmax_kernel(const T *x, const int32_t *label, int32_t *to, int64_t rows, int64_t C, int lanes)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, value, [8]);
    TNC_SHARED(int64_t, place, [8]);
    const int each = TNC_THREADS / lanes, lane = tnc_lane(lanes), warp = (int)threadIdx.x >> 5;
    int       right = 0;
    for (int64_t base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        const T      *from = x + row * C;
        int64_t best = 0;
        R       most = tnc_to(from[0]);
        TNC_UNROLL_BY(4)
        for (int64_t i = lane; i < C; i += lanes) {
            const R v = tnc_to(from[i]);
            if (tnc_better(v, i, most, best)) { most = v; best = i; }
        }
        for (int k = lanes > 32 ? 16 : lanes >> 1; k; k >>= 1) {
            const R       v = __shfl_xor_sync(0xffffffffu, most, k);
            const int64_t j = __shfl_xor_sync(0xffffffffu, best, k);
            if (tnc_better(v, j, most, best)) { most = v; best = j; }
        }
        if (lanes > 32) {
            if ((threadIdx.x & 31) == 0) { value[warp] = most; place[warp] = best; }
            __syncthreads();
            for (int k = 0; k < 8; k++) if (tnc_better(value[k], place[k], most, best)) { most = value[k]; best = place[k]; }
            __syncthreads();
        }
        if (lane > 0 || mine >= rows) continue;
        if (label) right += best == label[row];
        else to[row] = (int32_t)best;
    }
    if (!label) return;
    right = tnc_block_sum(right);
    if (threadIdx.x == 0) to[blockIdx.x] = right;
}

/* With labels: the number of rows of each block that are predicted correctly. */
template <typename T> static unsigned tnc_argmax_launch(tnc *s, const tn_view *x, const int32_t *label, int32_t *to)
{
    const int      lanes = x->shape[1] > 1024 ? TNC_THREADS : tnc_lanes(x->shape[1], 32);
    const unsigned blocks = tnc_grid(s, x->shape[0], TNC_THREADS / lanes);
    TNC_START((tnc_argmax_kernel<T>), blocks, (const T *)x->data, label, to, x->shape[0], x->shape[1], lanes);
    return blocks;
}

TNC_FN tn_status tnc_argmax(tnc *s, const tn_call *c)
{
    if (c->in[0].shape[0] == 0) return TN_OK;
    TNC_TYPES(c->in[0].dtype, T, tnc_argmax_launch<T>(s, &c->in[0], NULL, (int32_t *)c->out[0].data));
    return TN_OK;
}

template <typename T> static tn_status tnc_accuracy_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    int32_t *right = (int32_t *)tnc_scratch(s, (size_t)s->sms * 16 * sizeof(int32_t));
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (!right) return TN_ERR_MEMORY;
    unsigned blocks = tnc_argmax_launch<T>(s, &c->in[0], (const int32_t *)c->in[1].data, right);
    TNC_START((tnc_mean_kernel<int32_t, R>), 1, (const int32_t *)right, (int64_t)blocks, (double)c->in[0].shape[0],
              (const int32_t *)NULL, (R *)c->out[0].data);
    return TN_OK;
}

TNC_FN tn_status tnc_accuracy(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_accuracy_of<T>(s, c))
}

/* ---- collecting the calls of optimisers --------------------------------------------------------------------- >>cuda-optim
   The header calls an optimiser once per parameter. Consecutive calls of one kind are collected in s->pending until a call
   of another kind comes or tnc_flush is called, and then run in one launch: each block updates TNC_SHARE elements of one
   parameter. The delay cannot be observed, since everything that touches device memory flushes first. */

enum { TNC_SHARE = 8192 };
enum { TNC_LR, TNC_STEP, TNC_SIZE, TNC_FACTOR, TNC_SKIP, TNC_NORM, TNC_MOMENTUM, TNC_TAKEN };     /* the scalars of a step */

#define TNC_FINITE 1.7976931348623157e308
#define TNC_ADAMW_LARGEST 9223372036854775808.0f        /* 2^63, see TNI_ADAMW_LARGEST */

/* The parameter that a block works on. */
static __device__ __forceinline__ int tnc_part_of(const tnc_pending &a, int64_t block)
{
    int low = 0, high = a.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (a.part[middle].first <= block) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* The elements [begin,end) of a block within its parameter; whole packs up to `wide`. */
typedef struct tnc_range { int64_t begin, wide, end; } tnc_range;

static __device__ __forceinline__ tnc_range tnc_range_of(int64_t block, int64_t n, bool packs, int V)
{
    tnc_range r = { block * TNC_SHARE, block * TNC_SHARE, block * TNC_SHARE + TNC_SHARE };
    if (r.end > n) r.end = n;
    if (packs) r.wide = r.end - (r.end - r.begin) % V;
    return r;
}

/* Whether the collected calls must run first: they are full, of another kind, or contain this parameter, whose two steps
   must run in order. */
static bool tnc_must_flush(const tnc_pending *a, const tnc_pending *like, const void *parameter)
{
    if (a->count == TNC_PENDING || (a->count > 0 && memcmp(a, like, offsetof(tnc_pending, count)) != 0)) return true;
    for (int k = 0; k < a->count; k++)
        if (a->part[k].x[0] == parameter) return true;
    return false;
}

/* Adds a call to the collected ones. Scratch that they will need is allocated here, where an error belongs to a call. */
static tn_status tnc_pend(tnc *s, const tn_call *c, const char *name, const tn_view *const x[4], const tn_view *shadow,
                          int64_t n, const void *scalars, const void *fault)
{
    tnc_pending *a = &s->pending, like;
    const tn_dtype dtype = x[0]->dtype;
    tn_status    status;
    if (dtype != TN_F32 && dtype != TN_F64) return TN_ERR_DTYPE;
    for (int k = 0; k < 4; k++) if (x[k] && !tnc_has(x[k], dtype)) return TN_ERR_DTYPE;
    if (shadow && shadow->data && (shadow->dtype != TN_BF16 || dtype != TN_F32)) return TN_ERR_DTYPE;
    memset(&like, 0, sizeof like);
    like.kernel = c->kernel;
    like.dtype = dtype;
    like.name = name;
    like.scalars = scalars;
    like.fault = fault;
    if (c->kernel == TN_KERNEL_ADAMW || c->kernel == TN_KERNEL_SGD) {
        memcpy(like.f, c->f, 3 * sizeof *c->f);
        like.f[3] = c->f[5];
    }
    if (tnc_must_flush(a, &like, x[0]->data) && (status = tnc_flush(s)) != TN_OK) return status;
    if (a->count == 0) memcpy(a, &like, offsetof(tnc_pending, count));
    tnc_part *part = &a->part[a->count];
    memset(part, 0, sizeof *part);
    part->wide = true;
    for (int k = 0; k < 4; k++) {
        part->x[k] = x[k] ? x[k]->data : NULL;
        part->wide = part->wide && tnc_aligned(part->x[k]);
    }
    part->shadow = shadow ? shadow->data : NULL;
    part->wide = part->wide && tnc_aligned(part->shadow, 8);
    part->n = n;
    part->first = a->count ? part[-1].first + tnc_ceil(part[-1].n, TNC_SHARE) : 0;
    part->index = (int32_t)c->i[0];
    part->scale = c->f[0];
    part->decay = c->f[3];
    part->rate = c->f[4];
    if (part->first + tnc_ceil(n, TNC_SHARE) > INT32_MAX) return TN_ERR_SHAPE;
    if (c->kernel == TN_KERNEL_SUMSQ && !tnc_scratch(s, (size_t)(part->first + tnc_ceil(n, TNC_SHARE)) * sizeof(double)))
        return TN_ERR_MEMORY;
    a->count++;
    return TN_OK;
}

/* ---- sumsq -------------------------------------------------------------------------------------------------- >>cuda-sumsq
   The sum of squares is computed in double, since a square may overflow a float; few GPUs are too slow for that. Floor:
   reads every gradient. */

/* The sum of squares of the elements of each block. */
template <typename R>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_squares_kernel(const __grid_constant__ tnc_pending a, double *sums)
{
    enum { V = tnc_wide<R>::count };
    const tnc_part &part = a.part[tnc_part_of(a, blockIdx.x)];
    const R        *g = (const R *)part.x[0];
    const tnc_range at = tnc_range_of(blockIdx.x - part.first, part.n, part.wide, V);
    double          sum = 0;
    TNC_UNROLL_BY(4)
    for (int64_t i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V) {
        R v[V];
        tnc_load(v, g + i);
        TNC_EACH sum = fma((double)v[k], (double)v[k], sum);
    }
    for (int64_t i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS) sum = fma((double)g[i], (double)g[i], sum);
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* One block: a warp adds the sums of the blocks of a parameter, then one thread combines the parameters in order. */
template <typename R>
static __global__ void __launch_bounds__(1024)
tnc_squares_end_kernel(const __grid_constant__ tnc_pending a, const double *sums, int64_t blocks)
{
    TNC_SHARED(double, total, [TNC_PENDING]);
    R *s = (R *)a.scalars;
    for (int k = (int)threadIdx.x >> 5; k < a.count; k += 32) {
        const int64_t end = k + 1 < a.count ? a.part[k + 1].first : blocks;
        double        sum = 0;
        TNC_UNROLL_BY(4)
        for (int64_t i = a.part[k].first + (threadIdx.x & 31); i < end; i += 32) sum += sums[i];
        sum = tnc_warp_sum(sum);
        if ((threadIdx.x & 31) == 0) total[k] = sum;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int k = 0; k < a.count; k++) {
        s[TNC_SIZE] = (R)hypot((double)s[TNC_SIZE], sqrt(total[k]));
        if (!(total[k] <= TNC_FINITE)) tnc_not_finite((int32_t *)a.fault, a.part[k].index, (int32_t)s[TNC_TAKEN]);
    }
}

template <typename R> static tn_status tnc_sumsq_flush(tnc *s, const tnc_pending &a, int64_t blocks)
{
    double *sums = (double *)tnc_scratch(s, (size_t)blocks * sizeof *sums);
    if (!sums) return TN_ERR_MEMORY;
    if (blocks > 0) TNC_START((tnc_squares_kernel<R>), (unsigned)blocks, a, sums);
    TNC_LAUNCH((tnc_squares_end_kernel<R>), 1, 1024, 0, s->stream, a, (const double *)sums, blocks);
    return TN_OK;
}

TNC_FN tn_status tnc_sumsq(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->in[0], NULL, NULL, NULL };
    return tnc_pend(s, c, "sumsq", x, NULL, c->in[0].shape[0], c->out[0].data, c->out[1].data);
}

/* ---- step_begin ---------------------------------------------------------------------------------------------- >>cuda-step
   One thread computes what the optimisers need of a step - the norm, the clipping factor, whether to skip - from the result
   of sumsq. Floor: one launch. */

template <typename R> static __global__ void tnc_step_begin_kernel(R *s, int32_t *fault, double clip)
{
    const double norm = (double)s[TNC_SIZE];
    if (threadIdx.x > 0) return;
    if (!(norm <= TNC_FINITE)) tnc_not_finite(fault, -1, (int32_t)s[TNC_TAKEN]);    /* the gradients are finite */
    bool skip = fault[0] != 0;
    s[TNC_NORM] = (R)norm;
    s[TNC_SKIP] = R(skip ? 1 : 0);
    s[TNC_FACTOR] = (R)(clip > 0 && norm > clip ? clip / norm : 1);
    s[TNC_STEP] = (R)((double)s[TNC_STEP] + (skip ? 0 : 1));
    s[TNC_SIZE] = 0;
}

TNC_FN tn_status tnc_step_begin(tnc *s, const tn_call *c)
{
    int32_t *fault = (int32_t *)c->out[1].data;
    TNC_REALS(c->out[0].dtype, R,
        TNC_LAUNCH((tnc_step_begin_kernel<R>), 1, 32, 0, s->stream, (R *)c->out[0].data, fault, c->f[0]))
    return TN_OK;
}

/* ---- adamw, sgd, muon_end ----------------------------------------------------------------------------------- >>cuda-adamw
   One elementwise update for all rules. Floor: adamw reads 4 arrays and writes 3, sgd 3 and 2 (2 and 1 without momentum);
   muon_end reads 2 and writes 1; and 2 bytes per number for a shadow, which is the value in BF16 for products. */

/* The coefficients of an update, computed by one thread for its block. */
template <typename R> struct tnc_rule {
    R    keep1, take1, keep2, take2, unbias1, unbias2, eps, decay, down, factor, scale;
    bool skip, nesterov;
};

template <typename R> static __device__ void tnc_rule_of(tnc_rule<R> *r, const tnc_pending &a, const tnc_part &part)
{
    const R     *s = (const R *)a.scalars;
    const double t = (double)s[TNC_STEP] - a.f[3];
    r->skip = s[TNC_SKIP] != 0;
    r->keep1 = (R)a.f[0];
    r->take1 = (R)(1 - a.f[0]);
    r->keep2 = (R)a.f[1];
    r->take2 = (R)(1 - a.f[1]);
    r->nesterov = a.f[1] != 0;
    r->scale = (R)part.scale;
    r->eps = (R)a.f[2];
    r->decay = (R)part.decay;
    r->down = (R)(-(double)s[TNC_LR] * part.rate);
    r->factor = s[TNC_FACTOR];
    if (a.kernel != TN_KERNEL_ADAMW) return;
    r->unbias1 = (R)(1 / (1 - pow(a.f[0], t)));
    r->unbias2 = (R)(1 / (1 - pow(a.f[1], t)));
}

/* Bounds a float, and leaves a double. NaN stays. */
static __device__ __forceinline__ float  tnc_clamp(float x, float most) { return x > most ? most : x < -most ? -most : x; }
static __device__ __forceinline__ double tnc_clamp(double x, float) { return x; }

/* Updates V elements. */
template <typename R, int V, int KERNEL>
static __device__ __forceinline__ void tnc_update(const tnc_rule<R> &r, const tnc_part &part, int64_t i)
{
    const R *g = (const R *)part.x[1] + i;
    R *p = (R *)part.x[0] + i, *m = NULL, *v = NULL;
    R  p_[V], g_[V], m_[V] = {}, v_[V] = {};
    tnc_load(g_, g);
    tnc_load(p_, p);
    if (part.x[2]) m = (R *)part.x[2] + i;
    if (part.x[3]) v = (R *)part.x[3] + i;
    if (KERNEL == TN_KERNEL_ADAMW) {
        tnc_load(m_, m);
        tnc_load(v_, v);
        TNC_EACH {
            R d = tnc_clamp(g_[k] * r.factor, TNC_ADAMW_LARGEST);
            m_[k] = tnc_fma(r.take1, d, r.keep1 * m_[k]);
            v_[k] = tnc_fma(r.take2 * d, d, r.keep2 * v_[k]);
            d = m_[k] * r.unbias1 / (tnc_sqrt(v_[k] * r.unbias2) + r.eps);
            p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], d), p_[k]);
        }
        tnc_store(m, m_);
        tnc_store(v, v_);
    } else if (KERNEL == TN_KERNEL_SGD) {
        if (m) tnc_load(m_, m);
        TNC_EACH {
            const R d = g_[k] * r.factor;
            R       to = d;
            if (m) to = m_[k] = tnc_fma(r.keep1, m_[k], d);
            if (r.nesterov) to = tnc_fma(r.keep1, to, d);
            p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], to), p_[k]);
        }
        if (m) tnc_store(m, m_);
    } else {
        TNC_EACH p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], r.scale * g_[k]), p_[k]);
    }
    tnc_store(p, p_);
    if constexpr (sizeof(R) == sizeof(float)) if (part.shadow) tnc_store((tnc_bf16 *)part.shadow + i, p_);
}

template <typename R, int KERNEL> static __global__ void __launch_bounds__(TNC_THREADS, sizeof(R) == 8 ? 2 : 4)
tnc_update_kernel(const __grid_constant__ tnc_pending a)
{
    enum { V = tnc_wide<R>::count };
    TNC_SHARED(tnc_rule<R>, shared, [1]);
    const int       which = tnc_part_of(a, blockIdx.x);
    const tnc_part &part = a.part[which];
    const tnc_range at = tnc_range_of(blockIdx.x - part.first, part.n, part.wide, V);
    if (threadIdx.x == 0) tnc_rule_of(&shared[0], a, part);
    __syncthreads();
    tnc_rule<R> r = shared[0];
    if (r.skip) return;
    TNC_UNROLL_BY(2)
    for (int64_t i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V) tnc_update<R, V, KERNEL>(r, part, i);
    for (int64_t i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS) tnc_update<R, 1, KERNEL>(r, part, i);
}

TNC_FN tn_status tnc_adamw(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->out[1], &c->out[2], &c->out[3] };
    return tnc_pend(s, c, "adamw", x, c->n_out > 4 ? &c->out[4] : NULL, c->out[0].shape[0], c->in[0].data, NULL);
}

TNC_FN tn_status tnc_sgd(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->out[1], c->n_out > 2 ? &c->out[2] : NULL, NULL };
    return tnc_pend(s, c, "sgd", x, c->n_out > 3 ? &c->out[3] : NULL, c->out[0].shape[0], c->in[0].data, NULL);
}

TNC_FN tn_status tnc_muon_end(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->in[1], NULL, NULL };
    return tnc_pend(s, c, "muon_end", x, c->n_out > 1 ? &c->out[1] : NULL, c->out[0].shape[0], c->in[0].data, NULL);
}

template <typename R> static tn_status tnc_flush_of(tnc *s, const tnc_pending &a)
{
    const tnc_part *last = &a.part[a.count - 1];
    const int64_t   blocks = last->first + tnc_ceil(last->n, TNC_SHARE);
    if (a.kernel == TN_KERNEL_SUMSQ) return tnc_sumsq_flush<R>(s, a, blocks);
    if (blocks == 0) return TN_OK;
    if (a.kernel == TN_KERNEL_ADAMW)
        TNC_START((tnc_update_kernel<R, TN_KERNEL_ADAMW>), (unsigned)blocks, a);
    else if (a.kernel == TN_KERNEL_SGD)
        TNC_START((tnc_update_kernel<R, TN_KERNEL_SGD>), (unsigned)blocks, a);
    else
        TNC_START((tnc_update_kernel<R, TN_KERNEL_MUON_END>), (unsigned)blocks, a);
    return TN_OK;
}

TNC_FN tn_status tnc_flush(tnc *s)
{
    tnc_pending *a = &s->pending;
    tn_status    status = TN_ERR_BACKEND;
    char         what[96];
    if (a->count == 0) return TN_OK;
    snprintf(what, sizeof what, "%s of %d parameters", a->name, a->count);
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (e == cudaSuccess) {
        status = a->dtype == TN_F64 ? tnc_flush_of<double>(s, *a) : tnc_flush_of<float>(s, *a);
        e = cudaGetLastError();
        if (e == cudaSuccess && s->wait) e = cudaStreamSynchronize(s->stream);
    }
    a->count = 0;
    return e == cudaSuccess ? status : tnc_fail(s, e, what);
}

/* ---- muon_begin ---------------------------------------------------------------------------------------------- >>cuda-muon
   The first kernel updates the momentum, computes the unscaled x and the sum of squares of each block; the second divides x
   by the norm of its matrix, which every block sums for itself in the same order. Floor: reads 3 arrays and writes 3. */

template <typename R> struct tnc_muon {
    const R *scalars, *g;                   /* g, x and m are [batch,n] */
    R       *x, *m;
    double  *sums;                          /* [batch,blocks] */
    int64_t  n;
    unsigned blocks;                        /* per matrix */
    double   momentum;
    bool     nesterov, wide;
};

template <typename R, int V>
static __device__ __forceinline__ double tnc_muon_move(const tnc_muon<R> &a, int64_t at, R keep, R take, R factor)
{
    R      g[V], m[V], x[V];
    double squares = 0;
    tnc_load(g, a.g + at);
    tnc_load(m, a.m + at);
    TNC_EACH {
        const R d = take * (g[k] * factor);
        m[k] = tnc_fma(keep, m[k], d);
        x[k] = a.nesterov ? tnc_fma(keep, m[k], d) : m[k];
        squares = fma((double)x[k], (double)x[k], squares);
    }
    tnc_store(a.m + at, m);
    tnc_store(a.x + at, x);
    return squares;
}

/* A skipped step keeps the momentum and sets x to zero: the matrix products that follow run in any case. */
template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_muon_begin_kernel(tnc_muon<R> a)
{
    enum { V = tnc_wide<R>::count };
    const int64_t   first = blockIdx.x / a.blocks * a.n;
    const tnc_range at = tnc_range_of(blockIdx.x % a.blocks, a.n, a.wide, V);
    const double    momentum = a.momentum < 0 ? (double)a.scalars[TNC_MOMENTUM] : a.momentum;
    const R         keep = (R)momentum, take = (R)(1 - momentum), factor = a.scalars[TNC_FACTOR];
    double          sum = 0;
    if (a.scalars[TNC_SKIP] != 0) {
        for (int64_t i = at.begin + (int)threadIdx.x; i < at.end; i += TNC_THREADS) a.x[first + i] = 0;
    } else {
        TNC_UNROLL_BY(2)
        for (int64_t i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V)
            sum += tnc_muon_move<R, V>(a, first + i, keep, take, factor);
        for (int64_t i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS)
            sum += tnc_muon_move<R, 1>(a, first + i, keep, take, factor);
    }
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_muon_unit_kernel(tnc_muon<R> a)
{
    const int64_t   matrix = blockIdx.x / a.blocks;
    const tnc_range at = tnc_range_of(blockIdx.x % a.blocks, a.n, false, 1);
    R              *x = a.x + matrix * a.n;
    double          sum = 0;
    for (int64_t i = threadIdx.x; i < a.blocks; i += TNC_THREADS) sum += a.sums[matrix * a.blocks + i];
    sum = tnc_block_sum(sum);
    R unit = sum > 1e-60 ? (R)(1 / sqrt(sum)) : R(0);           /* below 1e-30 the factor may overflow a float */
    for (int64_t i = at.begin + (int)threadIdx.x; i < at.end; i += TNC_THREADS) x[i] *= unit;
}

template <typename R> static tn_status tnc_muon_begin_of(tnc *s, const tn_call *c)
{
    const int64_t batch = c->out[0].shape[0];
    tnc_muon<R>   a;
    for (int k = 0; k < 3; k++) if (!tnc_has(&c->out[k], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    memset(&a, 0, sizeof a);
    a.scalars = (const R *)c->in[0].data;
    a.x = (R *)c->out[0].data;
    a.g = (const R *)c->out[1].data;
    a.m = (R *)c->out[2].data;
    a.n = c->out[0].shape[1];
    if (batch == 0 || a.n == 0) return TN_OK;
    a.wide = tnc_aligned(a.x) && tnc_aligned(a.g) && tnc_aligned(a.m) && a.n % tnc_wide<R>::count == 0;
    a.momentum = c->f[0];
    a.nesterov = c->f[1] != 0;
    a.blocks = (unsigned)tnc_ceil(a.n, TNC_SHARE);
    if (batch > INT32_MAX / a.blocks) return TN_ERR_SHAPE;
    a.sums = (double *)tnc_scratch(s, (size_t)(batch * a.blocks) * sizeof *a.sums);
    if (!a.sums) return TN_ERR_MEMORY;
    TNC_START((tnc_muon_begin_kernel<R>), (unsigned)(batch * a.blocks), a);
    TNC_START((tnc_muon_unit_kernel<R>), (unsigned)(batch * a.blocks), a);
    return TN_OK;
}

TNC_FN tn_status tnc_muon_begin(tnc *s, const tn_call *c)
{
    TNC_REALS(c->in[0].dtype, R, return tnc_muon_begin_of<R>(s, c))
}

/* ---- tick ---------------------------------------------------------------------------------------------------- >>cuda-tick
   Advances the clock of the random numbers. Floor: one launch. */

static __global__ void tnc_tick_kernel(uint32_t *clock, uint32_t by) { if (threadIdx.x == 0) *clock += by; }

static tn_status tnc_tick(tnc *s, const tn_call *c)
{
    TNC_LAUNCH(tnc_tick_kernel, 1, 32, 0, s->stream, (uint32_t *)c->out[0].data, (uint32_t)c->i[0]);
    return TN_OK;
}

/* ======================================================================
   >>cuda-table       the backend
   The one exported symbol. Entries are in the order of TN_KERNELS, and each runs through tnc_run.
   ====================================================================== */

/* "gemm [1,64,128] [1,128,32] -> [1,64,32]" */
static void tnc_describe(char *text, size_t size, const tn_call *c)
{
#define TNC_X(ENUM, name) #name,
    static const char *const names[] = { TN_KERNELS(TNC_X) };       /* tn_kernel_name may be static in another unit */
#undef TNC_X
    int n = snprintf(text, size, "%s", names[c->kernel]);
    for (int i = 0; i < c->n_in + c->n_out && n >= 0 && (size_t)n + 32 < size; i++) {
        const tn_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        n += snprintf(text + n, size - (size_t)n, i == c->n_in ? " -> [" : " [");
        for (int k = 0; v->data && k < v->rank && (size_t)n + 24 < size; k++)
            n += snprintf(text + n, size - (size_t)n, k ? ",%lld" : "%lld", (long long)v->shape[k]);
        n += snprintf(text + n, size - (size_t)n, "]");
    }
}

/* Runs one entry of the kernel table. After a launch CUDA may report a fault of any earlier kernel: hence "at or before". */
template <tnc_entry_fn *entry> static tn_status tnc_run(void *state, const tn_call *call)
{
    tnc      *s = (tnc *)state;
    tn_status status = tnc_enter(s);
    char      what[200] = "at or before ";
    const int from = s->wait ? 0 : 13;
    if (status == TN_OK && s->pending.count > 0 && s->pending.kernel != call->kernel) status = tnc_flush(s);
    if (status != TN_OK) return status;
    status = entry(s, call);
    if (s->wait && status == TN_OK) status = tnc_flush(s);
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess && s->wait && status == TN_OK) e = cudaStreamSynchronize(s->stream);
    if (e == cudaSuccess) return status;
    tnc_describe(what + from, sizeof what - (size_t)from, call);
    return tnc_fail(s, e, what);
}

template <tnc_entry_fn *entry> static constexpr tn_kernel_fn tnc_entry(void) { return tnc_run<entry>; }
template <> constexpr tn_kernel_fn tnc_entry<nullptr>(void) { return nullptr; }

/* No entry: composed of products, which the device computes in parallel over sites, chains and numbers. */
static constexpr tnc_entry_fn *tnc_scan_cores = nullptr;

extern "C" const tn_backend *tn_cuda_backend(void)
{
#define TNC_X(ENUM, name) tnc_entry<tnc_##name>(),
    static const tn_backend cuda = {
        TN_BACKEND_ABI, "cuda", false, true, true, TNC_GEMM_THIN, tnc_open, tnc_close, tnc_alloc, tnc_release, tnc_upload,
        tnc_download, tnc_sync, tnc_capture_begin, tnc_capture_end, tnc_replay, tnc_graph_release, tnc_device,
        { TN_KERNELS(TNC_X) }, false
    };
#undef TNC_X
    return &cuda;
}
