#pragma once
#include "cuda/numbers.h"

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
