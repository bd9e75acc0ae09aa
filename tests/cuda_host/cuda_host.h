/* cuda_host.h: CUDA for a machine without a GPU. tensornet_cuda.cu, compiled as plain C++17 with -DTN_CUDA_HOST, includes this
   instead of CUDA's headers; cuda_host.cpp is the engine. The threads of a block are fibers of one thread of the processor, so that
   every order of them can be reproduced. The engine is made to find bugs, not to be fast; docs/internals.md lists what it finds and
   what it cannot find. control.h: what tests can set and ask.

   In this order: the language, types, the running thread, collectives, shared memory, BF16, tensor cores and asynchronous copies,
   wgmma, mbarriers and bulk copies, numbers, atomics, the runtime, tensor maps, launches, cuBLAS, cublasLt, hooks of the checker. */

#ifndef TNCH_CUDA_HOST_H
#define TNCH_CUDA_HOST_H

#include "control.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <type_traits>

/* ---- the language --------------------------------------------------------------------------------------------------------
   What nvcc adds to C++, defined as nothing; and, as macros, the names that only the section >>cuda-port of the .cu
   defines. */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define TNC_CONSTANT static
#define TNC_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    tnch_launch(#kernel, kernel, dim3(grid), dim3(block), (shared_bytes), (stream), ##__VA_ARGS__)

/* ---- types ------------------------------------------------------------------------------------------------------------ */

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 { unsigned x, y, z; };

#define TNCH_VECTOR2(T, name, alignment) \
    struct __align__(alignment) name { T x, y; }; \
    static inline name make_##name(T x, T y) { return name{x, y}; }
#define TNCH_VECTOR4(T, name, alignment) \
    struct __align__(alignment) name { T x, y, z, w; }; \
    static inline name make_##name(T x, T y, T z, T w) { return name{x, y, z, w}; }
TNCH_VECTOR2(float, float2, 8)              TNCH_VECTOR4(float, float4, 16)
TNCH_VECTOR2(int, int2, 8)                  TNCH_VECTOR4(int, int4, 16)
TNCH_VECTOR2(unsigned, uint2, 8)            TNCH_VECTOR4(unsigned, uint4, 16)
TNCH_VECTOR2(unsigned short, ushort2, 4)    TNCH_VECTOR4(unsigned short, ushort4, 8)
TNCH_VECTOR2(double, double2, 16)
TNCH_VECTOR2(long long, longlong2, 16)
TNCH_VECTOR2(unsigned long long, ulonglong2, 16)
struct float3 { float x, y, z; };
static inline float3 make_float3(float x, float y, float z) { return float3{x, y, z}; }

/* ---- the running thread ----------------------------------------------------------------------------------------------- */

struct tnch_fiber;
struct tnch_copy { void *shared; uint4 value; unsigned group; };   /* a pending asynchronous copy of 16 bytes */
typedef void (*tnch_collective)(void **args, unsigned mask);      /* args[lane], for the lanes of mask */

struct tnch_thread {
    uint3 index;
    int linear, warp, lane;
    enum { READY, AT_BARRIER, AT_COLLECTIVE, AT_WARPGROUP, AT_MBARRIER, AT_REGISTERS, DONE } state;
    tnch_fiber *fiber;            /* NULL: not started                         */
    tnch_collective operation;    /* the collective at which it waits */
    void *argument;
    unsigned mask;
    int line;
    tnch_copy *copies;            /* issued, not yet waited for */
    int copy_count, copy_space;
    unsigned groups;              /* committed so far                          */
};

extern tnch_thread *tnch_now;     /* NULL in host code */
extern uint3 tnch_block;
extern dim3 tnch_block_dim, tnch_grid_dim;
#define threadIdx (tnch_now->index)
#define blockIdx  tnch_block
#define blockDim  tnch_block_dim
#define gridDim   tnch_grid_dim
enum { warpSize = 32 };

/* ---- collectives ---------------------------------------------------------------------------------------------------------
   Each call passes its line: threads that meet at different lines have diverged. */

#define TNCH_LINE int line = __builtin_LINE()

enum { TNCH_COUNT, TNCH_AND, TNCH_OR };
int  tnch_barrier(int vote, int kind, int line);
void tnch_warp(unsigned mask, tnch_collective operation, void *argument, int line);
unsigned tnch_ballot(unsigned mask, bool vote, int line);
unsigned tnch_reduce(unsigned mask, unsigned value, int kind, int line);

static inline void __syncthreads(TNCH_LINE) { tnch_barrier(0, TNCH_COUNT, line); }
static inline int  __syncthreads_count(int vote, TNCH_LINE) { return tnch_barrier(vote, TNCH_COUNT, line); }
static inline int  __syncthreads_and(int vote, TNCH_LINE) { return tnch_barrier(vote, TNCH_AND, line); }
static inline int  __syncthreads_or(int vote, TNCH_LINE) { return tnch_barrier(vote, TNCH_OR, line); }
void __syncwarp(unsigned mask = 0xFFFFFFFFu, TNCH_LINE);
static inline unsigned __ballot_sync(unsigned mask, int vote, TNCH_LINE) { return tnch_ballot(mask, vote != 0, line); }
static inline int  __any_sync(unsigned mask, int vote, TNCH_LINE) { return tnch_ballot(mask, vote != 0, line) != 0; }
static inline int  __all_sync(unsigned mask, int vote, TNCH_LINE) { return tnch_ballot(mask, vote != 0, line) == mask; }

enum { TNCH_ADD, TNCH_MIN, TNCH_MAX, TNCH_BIT_AND, TNCH_BIT_OR, TNCH_BIT_XOR };
static inline unsigned __reduce_add_sync(unsigned mask, unsigned v, TNCH_LINE) { return tnch_reduce(mask, v, TNCH_ADD, line); }
static inline unsigned __reduce_min_sync(unsigned mask, unsigned v, TNCH_LINE) { return tnch_reduce(mask, v, TNCH_MIN, line); }
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v, TNCH_LINE) { return tnch_reduce(mask, v, TNCH_MAX, line); }
static inline unsigned __reduce_and_sync(unsigned mask, unsigned v, TNCH_LINE) { return tnch_reduce(mask, v, TNCH_BIT_AND, line); }
static inline unsigned __reduce_or_sync(unsigned mask, unsigned v, TNCH_LINE) { return tnch_reduce(mask, v, TNCH_BIT_OR, line); }
static inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, TNCH_LINE) { return tnch_reduce(mask, v, TNCH_BIT_XOR, line); }

enum { TNCH_INDEXED, TNCH_UP, TNCH_DOWN, TNCH_XOR };
uint64_t tnch_shuffle(unsigned mask, uint64_t bits, int lane, int width, int kind, int line);
template <class T> static inline T tnch_shuffle_of(unsigned mask, T value, int lane, int width, int kind, int line)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a shuffle moves 8 bytes at most");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = tnch_shuffle(mask, bits, lane, width, kind, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, TNCH_LINE)
{ return tnch_shuffle_of(mask, value, lane, width, TNCH_INDEXED, line); }
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, TNCH_LINE)
{ return tnch_shuffle_of(mask, value, (int)delta, width, TNCH_UP, line); }
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, TNCH_LINE)
{ return tnch_shuffle_of(mask, value, (int)delta, width, TNCH_DOWN, line); }
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, TNCH_LINE)
{ return tnch_shuffle_of(mask, value, lanes, width, TNCH_XOR, line); }

static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
void __trap(void);

/* ---- shared memory -------------------------------------------------------------------------------------------------------
   A variable has exactly the alignment of its declaration, as nvcc may choose: a float4 read from a float array is
   misaligned here. */

struct tnch_slot { void *at; unsigned launch; };
extern unsigned tnch_launch_number;
extern void *tnch_dynamic_shared;
void *tnch_shared(tnch_slot *slot, size_t bytes, size_t alignment, const char *name);

#define TNC_SHARED_ALIGN(alignment, T, name, ...) \
    static tnch_slot tnch_slot_##name; \
    T (&name) __VA_ARGS__ = *reinterpret_cast<T (*) __VA_ARGS__>( \
        tnch_slot_##name.launch == tnch_launch_number ? tnch_slot_##name.at \
                                                      : tnch_shared(&tnch_slot_##name, sizeof(T __VA_ARGS__), (alignment), #name))
#define TNC_SHARED(T, name, ...) TNC_SHARED_ALIGN(alignof(T), T, name, __VA_ARGS__)
#define TNC_DYN_SHARED(T, name)  T *name = reinterpret_cast<T *>(tnch_dynamic_shared)

/* ---- bits of numbers, BF16 -----------------------------------------------------------------------------------------------
   Conversions from and to BF16 are explicit, which CUDA does not require: what compiles here compiles there, and nothing is
   rounded implicitly. */

#define TNCH_BITS(name, From, To) static inline To name(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
TNCH_BITS(__float_as_int, float, int)                   TNCH_BITS(__int_as_float, int, float)
TNCH_BITS(__float_as_uint, float, unsigned)             TNCH_BITS(__uint_as_float, unsigned, float)
TNCH_BITS(__double_as_longlong, double, long long)      TNCH_BITS(__longlong_as_double, long long, double)

/* to nearest, ties to even; NaN becomes 0x7FFF, as on the device */
static inline uint16_t tnch_bf16_bits(float x)
{
    uint32_t u = __float_as_uint(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
static inline float tnch_bf16_value(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    explicit __nv_bfloat16(float x) : bits(tnch_bf16_bits(x)) {}
    explicit operator float() const { return tnch_bf16_value(bits); }
};
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
typedef __nv_bfloat16 tnc_bf16;

static inline __nv_bfloat16  __float2bfloat16(float x) { return __nv_bfloat16(x); }
static inline __nv_bfloat16  __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
static inline float          __bfloat162float(__nv_bfloat16 x) { return (float)x; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
static inline __nv_bfloat16  __ushort_as_bfloat16(unsigned short bits) { __nv_bfloat16 x; x.bits = bits; return x; }
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162{x, y}; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return __nv_bfloat162{__nv_bfloat16(x), __nv_bfloat16(y)}; }
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
static inline float2         __bfloat1622float2(__nv_bfloat162 v) { return make_float2((float)v.x, (float)v.y); }
static inline __nv_bfloat16  __low2bfloat16(__nv_bfloat162 v) { return v.x; }
static inline __nv_bfloat16  __high2bfloat16(__nv_bfloat162 v) { return v.y; }
static inline float          __low2float(__nv_bfloat162 v) { return (float)v.x; }
static inline float          __high2float(__nv_bfloat162 v) { return (float)v.y; }

/* ---- asynchronous copies and tensor cores --------------------------------------------------------------------------------
   Register layouts are those of the PTX manual. An asynchronous copy reads when it is issued and writes when it is waited
   for, the latest time that the hardware allows. ldmatrix reads each row as the thread that passed its address, so that the
   checker sees it. */

void tnc_cp_async16(void *shared, const void *global);
void tnc_cp_async_commit(void);
void tnch_cp_async_wait(unsigned pending);
template <int N> static inline void tnc_cp_async_wait(void) { tnch_cp_async_wait(N); }

void tnch_row_address(const void *shared);
void tnch_ldmatrix(unsigned r[4], const uint4 *row, bool transposed, int line);
static inline void tnc_ldmatrix_x4(unsigned r[4], const void *shared, TNCH_LINE)
{
    tnch_row_address(shared);
    uint4 row = *(const uint4 *)shared;
    tnch_ldmatrix(r, &row, false, line);
}
static inline void tnc_ldmatrix_x4_trans(unsigned r[4], const void *shared, TNCH_LINE)
{
    tnch_row_address(shared);
    uint4 row = *(const uint4 *)shared;
    tnch_ldmatrix(r, &row, true, line);
}
void tnch_mma(float d[4], const unsigned a[4], const unsigned b[2], int line);
static inline void tnc_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2], TNCH_LINE) { tnch_mma(d, a, b, line); }

/* ---- wgmma: products of a warpgroup, asynchronous -----------------------------------------------------------------------
   An operand in registers is an array of 32-bit words on the thread's stack. tnch_wgmma_operand takes note of it, and wgmma.fence
   makes it ready: a product of an array that is not, or that was written after the fence, is a fault. From the product on to the
   wait that covers it the array holds NaN, and a product reads shared memory when it is waited for, the latest time that the
   hardware allows. Each warp computes its 16 of the 64 rows by itself; the four warps must make the same calls. */

enum { TNCH_WGMMA_NAN = 0xFFDEFFDEu };   /* as a float, and as two numbers of BF16 */
struct tnch_wgmma {                      /* d[64,n] = scale_d d + (scale_a a[64,16]) (scale_b b[16,n]) */
    void *d;
    const void *a;                       /* four words, or NULL: desc_a */
    uint64_t desc_a, desc_b;
    int n, scale_d, scale_a, scale_b, trans_a, trans_b;
    const void *site;
};
void tnch_wgmma_operand(void *words, size_t bytes);
void tnch_wgmma_product(tnch_wgmma product, int line);
void tnch_wgmma_wait(unsigned pending, int line);
void tnc_wgmma_fence(TNCH_LINE);
void tnc_wgmma_commit(TNCH_LINE);
template <int N> static inline void tnc_wgmma_wait(TNCH_LINE) { tnch_wgmma_wait(N, line); }
template <class T> static inline void tnc_wgmma_operand(T &registers) { tnch_wgmma_operand(&registers, sizeof registers); }

/* The same N as in >>cuda-port of tensornet_cuda.cu */
template <int N> static inline void tnc_wgmma_ss(float (&d)[N / 8][4], uint64_t a, uint64_t b, int add, TNCH_LINE)
{
    static_assert(N == 16 || N == 32 || N == 64 || N == 128, "N must be 16, 32, 64 or 128");
    tnch_wgmma_product(tnch_wgmma{d, NULL, a, b, N, add, 1, 1, 0, 0, NULL}, line);
}
template <int N> static inline void tnc_wgmma_rs(float (&d)[N / 8][4], const unsigned (&a)[4], uint64_t b, int add, TNCH_LINE)
{
    static_assert(N == 64 || N == 128, "N must be 64 or 128");
    tnch_wgmma_product(tnch_wgmma{d, a, 0, b, N, add, 1, 1, 0, 1, NULL}, line);
}

unsigned tnc_shared_address(const void *shared);
void tnc_fence_async(void);

/* ---- mbarriers, bulk copies, registers of a warpgroup -------------------------------------------------------------------
   As >>cuda-port of tensornet_cuda.cu explains them. A bulk copy writes when a thread waits for the phase of its mbarrier and
   nothing else is missing from it, the latest time that the hardware allows; until then its tile holds what it held before. */

typedef uint64_t tnc_barrier;
typedef struct CUtensorMap { alignas(64) uint64_t opaque[16]; } CUtensorMap;

void tnc_barrier_init(tnc_barrier *x, int arrivals);
void tnc_barrier_fence(void);
void tnc_barrier_arrive(tnc_barrier *x);
void tnc_barrier_expect(tnc_barrier *x, int bytes);
void tnc_barrier_wait(tnc_barrier *x, int parity, TNCH_LINE);
void tnch_bulk_load(void *shared, const CUtensorMap *map, tnc_barrier *x, int rank, const int *at, const void *site);
template <class... I> static inline __attribute__((noinline)) void tnc_bulk_load(void *shared, const CUtensorMap *map, tnc_barrier *x, I... at)
{
    const int coordinates[] = {at...};
    tnch_bulk_load(shared, map, x, (int)sizeof...(at), coordinates, __builtin_return_address(0));
}
bool tnc_warpgroup_or(int warpgroup, bool x, TNCH_LINE);
void tnch_registers(int n, bool more, int line);
template <int N> static inline void tnc_registers_less(TNCH_LINE) { tnch_registers(N, false, line); }
template <int N> static inline void tnc_registers_more(TNCH_LINE) { tnch_registers(N, true, line); }

/* ---- numbers ---------------------------------------------------------------------------------------------------------- */

static inline float  rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float  __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
static inline float  __fdividef(float a, float b) { return a / b; }
static inline float  __frcp_rn(float x) { return 1.0f / x; }
static inline float  __fsqrt_rn(float x) { return sqrtf(x); }
static inline float  __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float  __fadd_rn(float a, float b) { return a + b; }
static inline float  __fsub_rn(float a, float b) { return a - b; }
static inline float  __fmul_rn(float a, float b) { return a * b; }
static inline float  __fdiv_rn(float a, float b) { return a / b; }
static inline float  __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
/* glibc already has functions of these names, so these are macros */
#define __expf(x)    expf(x)
#define __exp10f(x)  exp10f(x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __powf(x, y) powf(x, y)
#define __sincosf(x, s, c) sincosf(x, s, c)

static inline int      __popc(unsigned x) { return __builtin_popcount(x); }
static inline int      __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int      __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int      __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int      __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{ return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline int      __float2int_rn(float x) { return (int)nearbyintf(x); }
static inline int      __float2int_rz(float x) { return (int)x; }
static inline int      __float2int_rd(float x) { return (int)floorf(x); }
static inline float    __int2float_rn(int x) { return (float)x; }
static inline float    __uint2float_rn(unsigned x) { return (float)x; }
static inline float    __double2float_rn(double x) { return (float)x; }
template <class T> static inline T __ldg(const T *p) { return *p; }

#define TNCH_MIN_MAX(T) \
    static inline T min(T a, T b) { return b < a ? b : a; } \
    static inline T max(T a, T b) { return a < b ? b : a; }
TNCH_MIN_MAX(int) TNCH_MIN_MAX(unsigned) TNCH_MIN_MAX(long) TNCH_MIN_MAX(unsigned long)
TNCH_MIN_MAX(long long) TNCH_MIN_MAX(unsigned long long)
static inline float  min(float a, float b) { return fminf(a, b); }
static inline float  max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

/* ---- atomics: of integers only, since sums of floats must have a fixed order ------------------------------------------ */

void tnch_atomic(void *p, size_t bytes, const void *site);   /* another thread may run first; the checker is notified */
#define TNCH_ATOMIC(T, name, parameters, result) \
    static inline __attribute__((noinline, no_sanitize("thread"))) T name parameters \
    { tnch_atomic((void *)p, sizeof *p, __builtin_return_address(0)); T old; old = *p; *p = (T)(result); return old; }
#define TNCH_ATOMICS(T) \
    TNCH_ATOMIC(T, atomicExch, (T *p, T v), v) \
    TNCH_ATOMIC(T, atomicMin, (T *p, T v), v < old ? v : old) \
    TNCH_ATOMIC(T, atomicMax, (T *p, T v), v > old ? v : old) \
    TNCH_ATOMIC(T, atomicAnd, (T *p, T v), old & v) \
    TNCH_ATOMIC(T, atomicOr, (T *p, T v), old | v) \
    TNCH_ATOMIC(T, atomicCAS, (T *p, T expected, T v), old == expected ? v : old)
TNCH_ATOMICS(int) TNCH_ATOMICS(unsigned) TNCH_ATOMICS(unsigned long long)
TNCH_ATOMIC(int, atomicAdd, (int *p, int v), (unsigned)old + (unsigned)v)
TNCH_ATOMIC(unsigned, atomicAdd, (unsigned *p, unsigned v), old + v)
TNCH_ATOMIC(unsigned long long, atomicAdd, (unsigned long long *p, unsigned long long v), old + v)
TNCH_ATOMIC(unsigned, atomicInc, (unsigned *p, unsigned v), old >= v ? 0 : old + 1)

/* ---- the runtime ------------------------------------------------------------------------------------------------------ */

enum cudaError_t {
    cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21, cudaErrorInsufficientDriver = 35, cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209, cudaErrorInvalidResourceHandle = 400, cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700, cudaErrorMisalignedAddress = 716, cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900, cudaErrorStreamCaptureInvalidated = 901, cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureUnjoined = 904, cudaErrorStreamCaptureImplicit = 906, cudaErrorCapturedEvent = 907, cudaErrorUnknown = 999
};
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice,
                     cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrWarpSize = 10, cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16, cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37, cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39, cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor;
    int l2CacheSize, memoryBusWidth, maxGridSize[3];
};
typedef struct tnch_stream *cudaStream_t;
typedef struct tnch_event *cudaEvent_t;
typedef struct tnch_graph *cudaGraph_t;
typedef struct tnch_graph_exec *cudaGraphExec_t;
typedef struct tnch_graph_node *cudaGraphNode_t;

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
static inline cudaError_t cudaMallocHost(void **p, size_t bytes) { return cudaHostAlloc(p, bytes, cudaHostAllocDefault); }
template <class T> static inline cudaError_t cudaMalloc(T **p, size_t bytes) { return cudaMalloc((void **)p, bytes); }
template <class T> static inline cudaError_t cudaMallocHost(T **p, size_t bytes) { return cudaMallocHost((void **)p, bytes); }
template <class T> static inline cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags)
{ return cudaHostAlloc((void **)p, bytes, flags); }

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = NULL);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream = NULL);
cudaError_t cudaMemset(void *to, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream = NULL);
void        tnch_forget(void *p, size_t bytes, cudaStream_t stream);               /* not a CUDA call: see tnc_scratch */
template <class T> static inline cudaError_t cudaMemcpyToSymbol(T &symbol, const void *from, size_t bytes, size_t offset = 0)
{
    memcpy((char *)&symbol + offset, from, bytes);
    return cudaPeekAtLastError();
}

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = NULL);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);   /* nodes: NULL to query the count */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, maxDynamicSharedSizeBytes;
};
cudaError_t tnch_function_attributes(cudaFuncAttributes *attributes, const void *kernel);
cudaError_t tnch_function_attribute(const void *kernel, cudaFuncAttribute attribute, int value);
template <class F> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, F *kernel)
{ return tnch_function_attributes(attributes, (const void *)kernel); }
template <class F> static inline cudaError_t cudaFuncSetAttribute(F *kernel, cudaFuncAttribute attribute, int value)
{ return tnch_function_attribute((const void *)kernel, attribute, value); }

/* ---- tensor maps: of the driver's interface, with its names ----------------------------------------------------------- */

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
enum CUtensorMapDataType {
    CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_DATA_TYPE_UINT32, CU_TENSOR_MAP_DATA_TYPE_INT32,
    CU_TENSOR_MAP_DATA_TYPE_UINT64, CU_TENSOR_MAP_DATA_TYPE_INT64, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT64, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_16B, CU_TENSOR_MAP_INTERLEAVE_32B };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA };
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *extents,
                                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill);

#define CUDART_VERSION 13000
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound, cudaDriverEntryPointVersionNotSufficent };
enum { cudaEnableDefault = 0 };
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *found);

/* ---- launches: parameters are passed by value, as bytes that a stream or a graph can keep ----------------------------- */

typedef void (*tnch_entry)(const void *kernel, const void *parameters);
enum { TNCH_PARAMETERS = 4096 };   /* in bytes, as in CUDA */
void tnch_submit(const char *name, const void *kernel, tnch_entry entry, dim3 grid, dim3 block, size_t shared_bytes,
                 cudaStream_t stream, const void *parameters, size_t parameter_bytes);

template <class... P> static void tnch_enter(const void *kernel, const void *parameters)
{
    std::apply((void (*)(P...))const_cast<void *>(kernel), *(const std::tuple<P...> *)parameters);
}

template <class... P, class... A>
static inline void tnch_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                               A... arguments)
{
    typedef std::tuple<P...> parameter_list;
    static_assert(sizeof...(P) == sizeof...(A), "the number of a kernel's arguments");
    static_assert((std::is_trivially_copyable<P>::value && ...), "a kernel's parameters travel as bytes");
    static_assert(sizeof(parameter_list) <= TNCH_PARAMETERS, "a kernel's parameters take 4 KiB at most");
    parameter_list parameters(static_cast<P>(arguments)...);
    tnch_submit(name, (const void *)kernel, tnch_enter<P...>, grid, block, shared_bytes, stream, &parameters, sizeof parameters);
}

/* ---- cuBLAS: with the names of its header, some of which are macros --------------------------------------------------- */

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3, CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasComputeType_t {
    CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69, CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
typedef cudaDataType_t cudaDataType;
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum cublasMath_t {
    CUBLAS_DEFAULT_MATH = 0, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
typedef struct tnch_cublas *cublasHandle_t;
#define CUBLAS_VER_MAJOR   13
#define cublasCreate       cublasCreate_v2
#define cublasDestroy      cublasDestroy_v2
#define cublasGetVersion   cublasGetVersion_v2
#define cublasSetStream    cublasSetStream_v2
#define cublasSetWorkspace cublasSetWorkspace_v2

extern "C" {
cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasGetVersion(cublasHandle_t handle, int *version);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
const char    *cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t trans_a, cublasOperation_t trans_b, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type, int ldb,
                            const void *beta, void *c, cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t trans_a, cublasOperation_t trans_b,
                                          int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType a_type, int lda, long long stride_a,
                                          const void *b, cudaDataType b_type, int ldb, long long stride_b, const void *beta,
                                          void *c, cudaDataType c_type, int ldc, long long stride_c, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algo);
}

/* ---- cublasLt ---------------------------------------------------------------------------------------------------------- */

typedef struct tnch_lt *cublasLtHandle_t;
typedef struct tnch_lt_product *cublasLtMatmulDesc_t;
typedef struct tnch_lt_layout *cublasLtMatrixLayout_t;
typedef struct tnch_lt_preference *cublasLtMatmulPreference_t;
struct cublasLtMatmulAlgo_t { uint64_t data[8]; };
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
};
enum cublasLtMatmulDescAttributes_t {
    CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4, CUBLASLT_MATMUL_DESC_EPILOGUE = 7, CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
};
enum cublasLtMatrixLayoutAttribute_t { CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6 };
enum cublasLtMatmulPreferenceAttributes_t {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};
enum cublasLtReductionScheme_t {
    CUBLASLT_REDUCTION_SCHEME_INPLACE = 1, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
    CUBLASLT_REDUCTION_SCHEME_MASK = 7
};
enum cublasLtEpilogue_t { CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_BIAS = 4 };

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
size_t         cublasLtGetVersion(void);
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const void *value,
                                              size_t bytes);
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t ld);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t bytes);
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *count);
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t stream);
}

/* ---- hooks of the checker: NULL without it ---------------------------------------------------------------------------- */

struct tnch_hooks {
    void (*memory_new)(void *p, size_t bytes);                         /* its contents are uninitialised           */
    void (*memory_gone)(void *p, size_t bytes);
    void (*written)(void *p, size_t bytes);                            /* by a copy, a fill, a product */
    void (*copied)(void *to, const void *from, size_t bytes);          /* uninitialised bytes stay uninitialised   */
    void (*reads)(const void *p, size_t bytes, const char *who);
    void (*launch)(void);
    void (*block)(void);
    void (*barrier)(void);
    void (*warp_barrier)(int warp);
    void (*atomic)(void *p, size_t bytes, const void *site);
    void (*access)(const void *p, size_t bytes, bool write, const void *site);
    void (*copy_begins)(const void *p, size_t bytes, const void *site); /* shared memory: may change at any time from here ... */
    void (*copy_ends)(const void *p, size_t bytes, const void *site);   /* ... to here                                    */
    void (*async_read)(const void *p, size_t bytes, int warp, bool ends, const void *site);   /* by wgmma, from its issue to its wait */
    void (*async_fence)(void);                                          /* fence.proxy.async of the running thread        */
    void (*async_done)(int warp);                                       /* the warp has waited for what it read           */
    void (*mbarrier_new)(int barrier);                                  /* number of an mbarrier in this block            */
    void (*mbarrier_used)(int barrier, const void *p, const void *site);
    void (*mbarrier_arrived)(int barrier);
    void (*mbarrier_complete)(int barrier);
    void (*mbarrier_seen)(int barrier);                                 /* the running thread knows that a phase is over  */
    void (*warpgroup_barrier)(int warpgroup);
    void (*bulk_reads)(const void *p, size_t bytes, const void *site);  /* global memory                                  */
    void (*bulk_begins)(const void *p, size_t bytes, const void *site); /* shared memory, as copy_begins                  */
    void (*bulk_ends)(const void *p, size_t bytes, int barrier);
};
extern tnch_hooks tnch_hook;
extern char *tnch_arena;                     /* device memory; shared memory is its first TNCH_SHARED_WINDOW bytes */
extern size_t tnch_arena_bytes;
enum { TNCH_SHARED_WINDOW = 1 << 20, TNCH_MBARRIERS = 64 };
void tnch_report(const char *format, ...) __attribute__((format(printf, 1, 2)));   /* reports a fault; the kernel continues */
void tnch_misaligned(const void *p, size_t alignment);                             /* a fault that ends the kernel */

/* p as the address of a T. A device faults if it is not aligned for T; this processor would not. */
template <class T, class U> static inline T *tnch_aligned(U *p)
{
    if ((uintptr_t)p % alignof(T)) tnch_misaligned(p, alignof(T));
    return reinterpret_cast<T *>(p);
}
void tnch_source_line(const void *pc, char *text, size_t space);                   /* file:line of the code before pc */
bool tnch_is_local(const void *p);           /* on the running thread's stack, or a parameter */
bool tnch_is_memory(const void *p, size_t bytes);                                  /* inside one allocation, or one shared variable */
void tnch_place(const void *p, char *text, size_t space);                          /* in words */

#endif
