#pragma once

#include "tensornet.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TNC_ONE_FILE        /* begins each function that other files of src/cuda/ use; in tensornet_cuda.cu static */
#ifdef __GNUC__
#define TNC_FN __attribute__((visibility("hidden")))
#else
#define TNC_FN
#endif
#endif

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
