/* planted.cu: typical bugs of kernels, each beside its correct twin, to prove that the engine finds what it claims to find.

       planted             runs all correct twins: nothing may be found, and all results must be right
       planted NAME        runs the bug: the exit status must not be 0
       planted --list      NAME:the kinds of run that must find it:what the checker reports

   planted.sh runs all of it. In each function `bug` is 0 or 1; everything else is the same. */

#include "cuda_host.h"
#include <vector>

/* ---- device memory that is freed automatically ------------------------------------------------------------------------ */

template <class T> struct device {
    T *p;
    int n;
    device(int count) : p(NULL), n(count) { if (cudaMalloc(&p, (size_t)n * sizeof(T)) != cudaSuccess) p = NULL; }
    device(const std::vector<T> &v) : device((int)v.size()) { cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice); }
    ~device() { cudaFree(p); }
    std::vector<T> get() const
    {
        std::vector<T> v((size_t)n);
        if (cudaMemcpy(v.data(), p, (size_t)n * sizeof(T), cudaMemcpyDeviceToHost) != cudaSuccess) v.assign((size_t)n, (T)-1);
        return v;
    }
};

static std::vector<float> counted(int n)
{
    std::vector<float> v((size_t)n);
    for (int i = 0; i < n; i++) v[(size_t)i] = (float)(i % 17 - 8);
    return v;
}

/* Whether the last launches succeeded and every element is as `expected`. */
template <class F> static bool right(const device<float> &y, F expected)
{
    if (cudaGetLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) return false;
    std::vector<float> v = y.get();
    for (int i = 0; i < y.n; i++) if (!(fabsf(v[(size_t)i] - (float)expected(i)) < 1e-3f)) return false;
    return true;
}

/* ---- barriers of a block ---------------------------------------------------------------------------------------------- */

/* y: each 64 elements of x reversed, through shared memory, in two rounds */
__global__ void reverse(int early, int late, const float *x, float *y)
{
    TNC_SHARED(float, tile, [64]);
    int t = (int)threadIdx.x;
    for (int round = 0; round < 2; round++) {
        tile[t] = x[round * 64 + t];
        if (!early) __syncthreads();
        y[round * 64 + t] = tile[63 - t];
        if (!late) __syncthreads();
    }
}

static bool reverse_with(int early, int late)
{
    std::vector<float> x = counted(128);
    device<float> a(x), y(128);
    TNC_LAUNCH(reverse, 1, 64, 0, 0, early, late, a.p, y.p);
    return right(y, [&](int i) { return x[(size_t)(i / 64 * 64 + 63 - i % 64)]; });
}

static bool no_barrier_before_use(int bug) { return reverse_with(bug, 0); }
static bool no_barrier_before_refill(int bug) { return reverse_with(0, bug); }

/* the sum over the block, twice, as in the norms */
static __device__ float block_sum(float v, int early, int late)
{
    TNC_SHARED(float, part, [32]);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, o);
    if (lane == 0) part[warp] = v;
    if (!early) __syncthreads();
    v = lane < warps ? part[lane] : 0.0f;
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, o);
    if (!late) __syncthreads();
    return v;
}

__global__ void two_sums(int early, int late, const float *x, float *y)
{
    float a = block_sum(x[threadIdx.x], early, late), b = block_sum(x[threadIdx.x] * 2, early, late);
    y[threadIdx.x] = a + b;
}

static bool two_sums_with(int early, int late)
{
    std::vector<float> x = counted(256);
    float sum = 0;
    for (float v : x) sum += v;
    device<float> a(x), y(256);
    TNC_LAUNCH(two_sums, 1, 256, 0, 0, early, late, a.p, y.p);
    return right(y, [&](int) { return 3 * sum; });
}

static bool sum_read_too_early(int bug) { return two_sums_with(bug, 0); }
static bool sum_refilled_too_early(int bug) { return two_sums_with(0, bug); }

__global__ void diverge(int bug, float *y)
{
    if (!bug || threadIdx.x < 64) __syncthreads();
    y[threadIdx.x] = 1;
    __syncthreads();
}

static bool divergent_barrier(int bug)
{
    device<float> y(128);
    TNC_LAUNCH(diverge, 1, 128, 0, 0, bug, y.p);
    return right(y, [](int) { return 1; });
}

/* ---- warps ------------------------------------------------------------------------------------------------------------ */

__global__ void swap_pairs(int bug, const float *x, float *y)
{
    TNC_SHARED(float, s, [32]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    if (!bug) __syncwarp();
    y[t] = s[t ^ 1];
}

static bool no_syncwarp(int bug)
{
    std::vector<float> x = counted(32);
    device<float> a(x), y(32);
    TNC_LAUNCH(swap_pairs, 1, 32, 0, 0, bug, a.p, y.p);
    return right(y, [&](int i) { return x[(size_t)(i ^ 1)]; });
}

__global__ void sum_of(int n, int bug, const float *x, float *y)
{
    int t = (int)threadIdx.x;
    if (bug && t >= n) return;
    float v = t < n ? x[t] : 0.0f;
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, o);
    if (t == 0) *y = v;
}

static bool return_before_shuffle(int bug)
{
    device<float> a(counted(20)), y(1);
    TNC_LAUNCH(sum_of, 1, 32, 0, 0, 20, bug, a.p, y.p);
    return right(y, [](int) { return -21; });          /* 0 - 8 - 7 - 6 */
}

__global__ void half_warp(int bug, float *y)
{
    unsigned mask = threadIdx.x < 16 ? 0x0000FFFFu : 0xFFFF0000u;
    y[threadIdx.x] = __shfl_xor_sync(mask, (float)threadIdx.x, bug ? 16 : 1);
}

static bool shuffle_from_outside(int bug)
{
    device<float> y(32);
    TNC_LAUNCH(half_warp, 1, 32, 0, 0, bug, y.p);
    return right(y, [](int i) { return i ^ 1; });
}

static bool odd_block(int bug)
{
    device<float> y(64);
    TNC_LAUNCH(diverge, 1, bug ? 48 : 64, 0, 0, 0, y.p);
    return right(y, [=](int i) { return bug && i >= 48 ? NAN : 1; });
}

/* ---- bounds ----------------------------------------------------------------------------------------------------------- */

__global__ void copy_to(int n, int from, const float *x, float *y)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = x[i + from];
}

static bool write_past_the_end(int bug)
{
    std::vector<float> x = counted(1100);
    device<float> a(x), y(1000);
    TNC_LAUNCH(copy_to, 8, 128, 0, 0, 1000 + bug, 0, a.p, y.p);
    return right(y, [&](int i) { return x[(size_t)i]; });
}

static bool read_past_the_end(int bug)
{
    std::vector<float> x = counted(1000);
    device<float> a(x), y(1000);
    TNC_LAUNCH(copy_to, 8, 128, 0, 0, 999, 1 + bug, a.p, y.p);
    cudaMemset(y.p + 999, 0, 4);
    return right(y, [&](int i) { return i < 999 ? x[(size_t)i + 1] : 0; }) || bug;   /* only a tool can detect it */
}

__global__ void wild(int *p) { if (threadIdx.x == 7) *p = 1; }

static bool null_pointer(int bug)
{
    device<int> y(1);
    TNC_LAUNCH(wild, 1, 32, 0, 0, bug ? nullptr : y.p);
    return cudaDeviceSynchronize() == cudaSuccess;
}

/* s has 4 rows of 8 and a guard column; the row after the last, or the element after the end of a row */
__global__ void rows(int past_rows, int past_columns, float *y)
{
    TNC_SHARED(float, s, [4][9]);
    int row = (int)threadIdx.x / 8, column = (int)threadIdx.x % 8;
    s[row + past_rows][column + 2 * past_columns] = 1;
    if (past_rows) s[row][column] = 1;
    __syncthreads();
    y[threadIdx.x] = past_columns ? 1 : s[row][column];
}

static bool rows_with(int past_rows, int past_columns)
{
    device<float> y(32);
    TNC_LAUNCH(rows, 1, 32, 0, 0, past_rows, past_columns, y.p);
    return right(y, [](int) { return 1; });
}

static bool shared_past_the_end(int bug) { return rows_with(bug, 0); }
static bool shared_past_a_row(int bug) { return rows_with(0, bug); }

__global__ void read_four(int bug, float *y)
{
    TNC_SHARED_ALIGN(16, float, s, [36]);
    s[threadIdx.x] = (float)threadIdx.x;
    if (threadIdx.x < 4) s[32 + threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x < 8) *(float4 *)&y[4 * threadIdx.x] = *(const float4 *)&s[4 * threadIdx.x + (unsigned)bug];
}

static bool misaligned_float4(int bug)
{
    device<float> y(32);
    TNC_LAUNCH(read_four, 1, 32, 0, 0, bug, y.p);
    return right(y, [=](int i) { return (i + bug) % 32; }) || bug;
}

/* ---- uninitialised memory --------------------------------------------------------------------------------------------- */

__global__ void half_filled(int bug, float *y)
{
    TNC_SHARED(float, s, [64]);
    if (threadIdx.x < 32 || !bug) s[threadIdx.x] = 0;
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x] * 0.0f;
}

static bool unwritten_shared(int bug)
{
    device<float> y(64);
    TNC_LAUNCH(half_filled, 1, 64, 0, 0, bug, y.p);
    return right(y, [](int) { return 0; });
}

__global__ void add_to(int n, const float *x, float *y)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] += x[i];
}

static bool unwritten_global(int bug)
{
    std::vector<float> x = counted(100);
    device<float> a(x), y(100);
    if (!bug) cudaMemset(y.p, 0, 400);
    TNC_LAUNCH(add_to, 1, 128, 0, 0, 100, a.p, y.p);
    return right(y, [&](int i) { return x[(size_t)i]; });
}

/* Scratch that is used by one call after the other: what the first one left there is uninitialised for the second. */
static bool left_by_an_earlier_call(int bug)
{
    std::vector<float> x = counted(100);
    device<float> a(x), y(100);
    for (int call = 0; call < 2; call++) {
        tnch_forget(y.p, 400, 0);
        if (call == 0 || !bug) cudaMemset(y.p, 0, 400);
        TNC_LAUNCH(add_to, 1, 128, 0, 0, 100, a.p, y.p);
    }
    return right(y, [&](int i) { return x[(size_t)i]; });
}

/* ---- races ------------------------------------------------------------------------------------------------------------ */

__global__ void count(int bug, int *y)
{
    if (threadIdx.x != 0) return;
    if (bug) *y += 1;
    else atomicAdd(y, 1);
}

static bool two_blocks_add(int bug)
{
    device<int> y(std::vector<int>(1, 0));
    TNC_LAUNCH(count, 8, 32, 0, 0, bug, y.p);
    return y.get()[0] == 8;
}

__global__ void count_threads(int bug, int *y)
{
    TNC_SHARED(int, n, [1]);
    if (threadIdx.x == 0) n[0] = 0;
    __syncthreads();
    if (bug) n[0] += 1;
    else atomicAdd(&n[0], 1);
    __syncthreads();
    if (threadIdx.x == 0) *y = n[0];
}

static bool two_threads_add(int bug)
{
    device<int> y(1);
    TNC_LAUNCH(count_threads, 1, 64, 0, 0, bug, y.p);
    return y.get()[0] == 64;
}

/* ---- asynchronous copies, tensor cores -------------------------------------------------------------------------------- */

__global__ void staged(int pending, int never, const float *x, float *y)
{
    TNC_SHARED_ALIGN(16, float, s, [2][32]);
    int t = (int)threadIdx.x;
    for (int half = 0; half < 2; half++) {
        if (t < 8) tnc_cp_async16(&s[half][4 * t], x + 32 * half + 4 * t);
        tnc_cp_async_commit();
    }
    if (pending) tnc_cp_async_wait<1>();
    else if (!never) tnc_cp_async_wait<0>();
    __syncthreads();
    y[t] = s[1][31 - t];
    if (pending) tnc_cp_async_wait<0>();
}

static bool staged_with(int pending, int never)
{
    std::vector<float> x = counted(64);
    device<float> a(x), y(32);
    TNC_LAUNCH(staged, 1, 32, 0, 0, pending, never, a.p, y.p);
    return right(y, [&](int i) { return x[(size_t)(63 - i)]; });
}

static bool copy_waited_for_too_little(int bug) { return staged_with(bug, 0); }
static bool copy_never_waited_for(int bug) { return staged_with(0, bug); }

/* The target of an asynchronous copy must be in shared memory. */
__global__ void staged_nowhere(int bug, const float *x, float *y, float *z)
{
    TNC_SHARED_ALIGN(16, float, s, [32]);
    int t = (int)threadIdx.x;
    if (t < 8) tnc_cp_async16(bug ? &z[4 * t] : &s[4 * t], x + 4 * t);
    tnc_cp_async_commit();
    tnc_cp_async_wait<0>();
    __syncthreads();
    y[t] = bug ? z[t] : s[t];
}

static bool copy_to_global_memory(int bug)
{
    std::vector<float> x = counted(32);
    device<float> a(x), y(32), z(32);
    TNC_LAUNCH(staged_nowhere, 1, 32, 0, 0, bug, a.p, y.p, z.p);
    return right(y, [&](int i) { return x[(size_t)i]; });
}

/* Two stages: one is read while the other is refilled, when no thread may still read it. */
__global__ void two_stages(int bug, const float *x, float *y)
{
    TNC_SHARED_ALIGN(16, float, s, [2][64]);
    int t = (int)threadIdx.x;
    float sum = 0;
    auto fetch = [&](int step) {
        if (t < 16 && step < 6) tnc_cp_async16(&s[step % 2][4 * t], x + 64 * step + 4 * t);
        tnc_cp_async_commit();
    };
    fetch(0);
    for (int step = 0; step < 6; step++) {
        tnc_cp_async_wait<0>();
        if (bug) fetch(step + 1);
        __syncthreads();
        if (!bug) fetch(step + 1);
        sum += s[step % 2][63 - t];
    }
    y[t] = sum;
}

static bool copy_issued_too_early(int bug)
{
    std::vector<float> x = counted(384);
    device<float> a(x), y(64);
    TNC_LAUNCH(two_stages, 1, 64, 0, 0, bug, a.p, y.p);
    return right(y, [&](int i) {
        float sum = 0;
        for (int step = 0; step < 6; step++) sum += x[(size_t)(64 * step + 63 - i)];
        return sum;
    });
}

__global__ void load_rows(int bug, float *y)
{
    TNC_SHARED_ALIGN(16, tnc_bf16, s, [32][8]);
    unsigned r[4];
    for (int i = 0; i < 8; i++) s[threadIdx.x][i] = __float2bfloat16(1);
    __syncwarp();
    tnc_ldmatrix_x4(r, (const char *)&s[threadIdx.x][0] + 2 * bug * (threadIdx.x == 3));
    y[threadIdx.x] = __uint_as_float(r[0] << 16);
}

static bool misaligned_ldmatrix(int bug)
{
    device<float> y(32);
    TNC_LAUNCH(load_rows, 1, 32, 0, 0, bug, y.p);
    return right(y, [](int) { return 1; });
}

/* ---- wgmma --------------------------------------------------------------------------------------------------------------
   d[64,64] = a b^T twice over, by one warpgroup: b's 64 rows of 64 numbers come by cp.async, are swizzled and doubled in place; a is
   in registers, first its left half, then its right one. */

enum wgmma_bug { NONE, NO_FENCE, WRITTEN_AFTER_FENCE, READ_TOO_EARLY, WAITED_TOO_LITTLE, NEVER_WAITED, A_OVERWRITTEN, D_OVERWRITTEN,
                 NO_ASYNC_FENCE, ASYNC_FENCE_TOO_LATE, TILE_OVERWRITTEN, ONE_WARP_LESS, TILE_NOT_ALIGNED, WRONG_STRIDE, COPY_PENDING,
                 NO_BARRIER, REFILLED_TOO_EARLY, OLDER_DEVICE };

/* a: 1 at (row, row), else 0 */
static __device__ void identity(unsigned (&left)[2][4], int half)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++) {
            const int row = 16 * warp + lane / 4 + i % 2 * 8, col = 32 * half + 16 * k + lane % 4 * 2 + i / 2 * 8;
            left[k][i] = row == col ? 0x3F80u : row == col + 1 ? 0x3F800000u : 0;
        }
}

static __device__ void add_half(int bug, float (&sum)[8][4], unsigned (&left)[2][4], uint64_t desc, int half)
{
    tnc_wgmma_operand(sum);
    tnc_wgmma_operand(left);
    if (bug != NO_FENCE) tnc_wgmma_fence();
    if (bug == WRITTEN_AFTER_FENCE) sum[0][0] += 1;
    for (int k = 0; k < 2; k++) tnc_wgmma_rs<64>(sum, left[k], desc + (uint64_t)((32 * half + 16 * k) * 8), half + k > 0);
    tnc_wgmma_commit();
    if (bug == D_OVERWRITTEN) sum[7][3] = 0;
    if (bug == A_OVERWRITTEN) left[1][0] = 0;
}

__global__ void two_halves(int bug, const tnc_bf16 *b, float *y)
{
    TNC_DYN_SHARED(unsigned char, shared);
    unsigned char *tile = shared + (1024 - tnc_shared_address(shared) % 1024) % 1024 + (bug == TILE_NOT_ALIGNED ? 128 : 0);
    const int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    /* b is 64 x 64, by its columns: MN-major, a row of 64 numbers is a line of 128 bytes */
    const uint64_t desc = (uint64_t)tnc_shared_address(tile) >> 4 | 1ull << 16 | (uint64_t)((bug == WRONG_STRIDE ? 2048 : 1024) / 16) << 32
                        | 1ull << 62;
    float sum[8][4];
    unsigned left[2][4];
    for (int i = t; i < 512; i += 128) tnc_cp_async16(tile + (i / 8 * 8 + (i % 8 ^ i / 8 % 8)) * 16, b + 8 * i);
    tnc_cp_async_commit();
    if (bug == COPY_PENDING) tnc_cp_async_wait<1>();
    else tnc_cp_async_wait<0>();
    if (bug != COPY_PENDING)
        for (int i = t; i < 512; i += 128) {
            tnc_bf16 *at = (tnc_bf16 *)(tile + (i / 8 * 8 + (i % 8 ^ i / 8 % 8)) * 16);
            for (int e = 0; e < 8; e++) at[e] = __float2bfloat16(2 * (float)at[e]);
        }
    if (bug != NO_ASYNC_FENCE && bug != ASYNC_FENCE_TOO_LATE) tnc_fence_async();
    if (bug != NO_BARRIER) __syncthreads();
    if (bug == ASYNC_FENCE_TOO_LATE) tnc_fence_async();
    for (int half = 0; half < 2; half++) {
        identity(left, half);
        if (bug != ONE_WARP_LESS || half == 0 || warp < 3) add_half(bug, sum, left, desc, half);
        if (half == 0) tnc_wgmma_wait<0>();
    }
    if (bug == TILE_OVERWRITTEN) __syncthreads();
    if (bug == TILE_OVERWRITTEN && t == 0) ((float *)tile)[1024] = 0;
    if (bug == WAITED_TOO_LITTLE) tnc_wgmma_wait<1>();
    else if (bug != READ_TOO_EARLY && bug != NEVER_WAITED) tnc_wgmma_wait<0>();
    if (bug == NEVER_WAITED) return;
    if (bug != REFILLED_TOO_EARLY) __syncthreads();
    ((float *)tile)[127 - t] = 0;
    for (int n = 0; n < 8; n++)
        for (int e = 0; e < 4; e++) y[(16 * warp + lane / 4 + e / 2 * 8) * 64 + 8 * n + lane % 4 * 2 + e % 2] = sum[n][e];
    if (bug == READ_TOO_EARLY || bug == WAITED_TOO_LITTLE) tnc_wgmma_wait<0>();
    if (bug == COPY_PENDING) tnc_cp_async_wait<0>();
}

static bool wgmma_with(int bug)
{
    std::vector<float> x = counted(4096);
    std::vector<tnc_bf16> b(4096);
    for (size_t i = 0; i < 4096; i++) b[i] = __float2bfloat16(x[i]);
    tnch_set_device(bug == OLDER_DEVICE ? 80 : 90);
    device<tnc_bf16> db(b);
    device<float> y(4096);
    TNC_LAUNCH(two_halves, 1, 128, 10 << 10, 0, bug, db.p, y.p);
    return right(y, [&](int i) { return 2 * x[(size_t)i]; });
}

#define WGMMA_BUG(name, which) static bool name(int bug) { return wgmma_with(bug ? which : NONE); }
WGMMA_BUG(wgmma_without_fence, NO_FENCE)                       WGMMA_BUG(wgmma_register_written_after_fence, WRITTEN_AFTER_FENCE)
WGMMA_BUG(wgmma_read_too_early, READ_TOO_EARLY)                WGMMA_BUG(wgmma_waited_for_too_little, WAITED_TOO_LITTLE)
WGMMA_BUG(wgmma_never_waited_for, NEVER_WAITED)                WGMMA_BUG(wgmma_a_overwritten, A_OVERWRITTEN)
WGMMA_BUG(wgmma_d_overwritten, D_OVERWRITTEN)                  WGMMA_BUG(no_async_fence, NO_ASYNC_FENCE)
WGMMA_BUG(async_fence_after_the_barrier, ASYNC_FENCE_TOO_LATE) WGMMA_BUG(wgmma_tile_overwritten, TILE_OVERWRITTEN)
WGMMA_BUG(wgmma_by_three_warps, ONE_WARP_LESS)                 WGMMA_BUG(wgmma_tile_not_aligned, TILE_NOT_ALIGNED)
WGMMA_BUG(wgmma_wrong_stride, WRONG_STRIDE)                    WGMMA_BUG(wgmma_copy_pending, COPY_PENDING)
WGMMA_BUG(wgmma_without_barrier, NO_BARRIER)                   WGMMA_BUG(wgmma_tile_refilled_too_early, REFILLED_TOO_EARLY)
WGMMA_BUG(async_fence_on_sm_80, OLDER_DEVICE)

/* ---- mbarriers and bulk copies -------------------------------------------------------------------------------------------
   y[i] = the sum of what 5 tiles of 32 rows of 64 numbers have in piece i. A ring of two tiles; one thread of the third warpgroup
   loads them, the threads of the first two have a piece of 8 numbers each. */

enum piped_bug { WELL, NO_WAIT, ONE_WARP_WAITS_NOT, FULL_PARITY, EMPTY_PARITY, NO_EXPECT, EXPECTS_LESS, EXPECTS_MORE, NO_RELEASE, RELEASES_EARLY,
                 NO_SYNCWARP, NO_INIT_FENCE, NO_INIT_BARRIER, NO_INIT, TWO_INITS, ARRIVES_TWICE, COUNTS_TOO_FEW, WAITS_NOT_FOR_EMPTY, NO_PROXY_FENCE,
                 TILE_OFF_BY_64, MAP_OF_THE_HOST, MAP_TOO_LONG, NO_SWIZZLE, LOADS_ONE_MORE, ALL_KEEP_REGISTERS, KEEPS_32_REGISTERS, ONE_WARP_GIVES,
                 SOURCE_WRITTEN, BARRIER_OVERWRITTEN, ON_SM_80, MAP_OFF_BY_8, MAP_STRIDE_OF_8 };
enum { ROUNDS = 5, TILE = 32 * 64 };

__global__ void piped(int bug, const CUtensorMap map, const CUtensorMap *elsewhere, tnc_bf16 *x, float *y)
{
    TNC_SHARED_ALIGN(1024, tnc_bf16, tiles, [2 * TILE + 64]);
    TNC_SHARED(tnc_barrier, full, [2]);
    TNC_SHARED(tnc_barrier, empty, [2]);
    const int t = (int)threadIdx.x, group = t / 128;
    float sum = 0;
    if (t == 0 && bug != NO_INIT)
        for (int i = 0; i < 2; i++) {
            tnc_barrier_init(&full[i], 1);
            tnc_barrier_init(&empty[i], bug == COUNTS_TOO_FEW ? 7 : 8);
        }
    if (t == 0 && bug == TWO_INITS) tnc_barrier_init(&full[0], 1);
    if (t == 0 && bug != NO_INIT_FENCE) tnc_barrier_fence();
    if (t == 0 && bug == SOURCE_WRITTEN) x[0] = __float2bfloat16((float)x[0] + 0);
    if (bug != NO_INIT_BARRIER) __syncthreads();
    if (group == 2) {
        if (bug == KEEPS_32_REGISTERS) tnc_registers_less<32>();    /* 64 K for the block, but it was launched with 384 * 168 */
        else if (bug != ALL_KEEP_REGISTERS && (bug != ONE_WARP_GIVES || t < 288)) tnc_registers_less<24>();
        if (t != 256) return;
        for (int r = 0; r < ROUNDS + (bug == LOADS_ONE_MORE); r++) {
            const int slot = r % 2, bytes = 2 * TILE + (bug == EXPECTS_LESS ? -16 : bug == EXPECTS_MORE ? 16 : 0);
            if (bug != WAITS_NOT_FOR_EMPTY) tnc_barrier_wait(&empty[slot], (r / 2 & 1) ^ (bug != EMPTY_PARITY));
            if (bug == NO_EXPECT) tnc_barrier_arrive(&full[slot]);
            else tnc_barrier_expect(&full[slot], bytes);
            tnc_bulk_load(tiles + slot * TILE + (bug == TILE_OFF_BY_64 ? 32 : 0), bug == MAP_OF_THE_HOST ? elsewhere : &map, &full[slot], 0,
                          32 * (r % ROUNDS));
            if (bug == ARRIVES_TWICE) tnc_barrier_arrive(&full[slot]);
        }
        return;
    }
    tnc_registers_more<240>();
    for (int r = 0; r < ROUNDS; r++) {
        const int slot = r % 2, row = t / 8, piece = t % 8;
        tnc_bf16 *at = tiles + slot * TILE + 64 * row + 8 * (piece ^ row % 8);
        if (bug != NO_WAIT && (bug != ONE_WARP_WAITS_NOT || t / 32 != 0)) tnc_barrier_wait(&full[slot], (r / 2 & 1) ^ (bug == FULL_PARITY));
        if (bug == RELEASES_EARLY) __syncwarp();
        if (bug == RELEASES_EARLY && t % 32 == 0) tnc_barrier_arrive(&empty[slot]);
        for (int e = 0; e < 8; e++) sum += (float)at[e];
        at[0] = __float2bfloat16(0);
        if (bug != NO_PROXY_FENCE) tnc_fence_async();
        if (bug == BARRIER_OVERWRITTEN && t == 0) full[1] = 0;
        if (bug == NO_RELEASE || bug == RELEASES_EARLY) continue;
        if (bug != NO_SYNCWARP) __syncwarp();
        if (t % 32 == 0) tnc_barrier_arrive(&empty[slot]);
    }
    if (tnc_warpgroup_or(group, sum != sum)) sum = -1;
    y[t] = sum;
}

static bool piped_with(int bug)
{
    std::vector<float> x = counted(ROUNDS * TILE);
    std::vector<tnc_bf16> b(x.size() + 8);
    CUtensorMap map;
    for (size_t i = 0; i < x.size(); i++) b[i] = __float2bfloat16(x[i]);
    tnch_set_device(bug == ON_SM_80 ? 80 : 90);
    device<tnc_bf16> db(b);
    device<float> y(256);
    const cuuint64_t extents[2] = {64, (cuuint64_t)ROUNDS * 32 + (bug == MAP_TOO_LONG)}, strides[1] = {bug == MAP_STRIDE_OF_8 ? 136u : 128u};
    const cuuint32_t box[2] = {64, 32}, ones[2] = {1, 1};
    const bool longer = bug == MAP_TOO_LONG;
    if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, db.p + (bug == MAP_OFF_BY_8 ? 4 : longer ? 64 : 0), extents, strides, box,
                               ones, CU_TENSOR_MAP_INTERLEAVE_NONE, bug == NO_SWIZZLE ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) return false;
    TNC_LAUNCH(piped, 1, 384, 0, 0, bug, map, &map, db.p, y.p);
    return right(y, [&](int i) {
        float sum = 0;
        for (int r = 0; r < ROUNDS; r++)
            for (int e = 0; e < 8; e++) sum += x[(size_t)(r * TILE + 8 * i + e)];
        return sum;
    });
}

#define PIPED_BUG(name, which) static bool name(int bug) { return piped_with(bug ? which : WELL); }
PIPED_BUG(no_wait_for_bulk_copy, NO_WAIT)                      PIPED_BUG(one_warp_does_not_wait, ONE_WARP_WAITS_NOT)
PIPED_BUG(wrong_parity_of_full, FULL_PARITY)                   PIPED_BUG(wrong_parity_of_empty, EMPTY_PARITY)
PIPED_BUG(no_expect_tx, NO_EXPECT)                             PIPED_BUG(fewer_bytes_expected, EXPECTS_LESS)
PIPED_BUG(more_bytes_expected, EXPECTS_MORE)                   PIPED_BUG(no_arrival_at_empty, NO_RELEASE)
PIPED_BUG(arrival_before_the_last_read, RELEASES_EARLY)        PIPED_BUG(arrival_without_syncwarp, NO_SYNCWARP)
PIPED_BUG(no_fence_after_mbarrier_init, NO_INIT_FENCE)         PIPED_BUG(no_barrier_after_mbarrier_init, NO_INIT_BARRIER)
PIPED_BUG(mbarrier_not_initialised, NO_INIT)                   PIPED_BUG(mbarrier_initialised_twice, TWO_INITS)
PIPED_BUG(too_many_arrivals, ARRIVES_TWICE)                    PIPED_BUG(count_of_arrivals_too_small, COUNTS_TOO_FEW)
PIPED_BUG(stage_refilled_too_early, WAITS_NOT_FOR_EMPTY)       PIPED_BUG(written_tile_without_proxy_fence, NO_PROXY_FENCE)
PIPED_BUG(bulk_copy_misaligned, TILE_OFF_BY_64)                PIPED_BUG(tensor_map_in_host_memory, MAP_OF_THE_HOST)
PIPED_BUG(tensor_map_too_long, MAP_TOO_LONG)                   PIPED_BUG(tensor_map_without_swizzle, NO_SWIZZLE)
PIPED_BUG(bulk_copy_never_waited_for, LOADS_ONE_MORE)          PIPED_BUG(too_many_registers, ALL_KEEP_REGISTERS)
PIPED_BUG(registers_of_one_warp, ONE_WARP_GIVES)               PIPED_BUG(bulk_copy_of_what_the_kernel_wrote, SOURCE_WRITTEN)
PIPED_BUG(mbarrier_overwritten, BARRIER_OVERWRITTEN)           PIPED_BUG(mbarrier_on_sm_80, ON_SM_80)
PIPED_BUG(tensor_map_misaligned, MAP_OFF_BY_8)                 PIPED_BUG(tensor_map_stride_not_of_16, MAP_STRIDE_OF_8)
PIPED_BUG(eight_registers_too_many, KEEPS_32_REGISTERS)

/* y[64,64] = twice the sum of three tiles, which a thread loads into a ring of two; a warpgroup doubles them in place and adds them
   by wgmma. */

enum { RELEASES_BEFORE_THE_WAIT = 1, DOUBLES_WITHOUT_FENCE, DOUBLES_WITHOUT_BARRIER, DOUBLES_BEFORE_THE_WAIT };

__global__ void piped_products(int bug, const CUtensorMap map, float *y)
{
    TNC_SHARED_ALIGN(1024, tnc_bf16, tiles, [2 * 4096]);
    TNC_SHARED(tnc_barrier, full, [2]);
    TNC_SHARED(tnc_barrier, empty, [2]);
    const int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    float total[8][4] = {};
    if (t == 0) {
        for (int i = 0; i < 2; i++) {
            tnc_barrier_init(&full[i], 1);
            tnc_barrier_init(&empty[i], 4);
        }
        tnc_barrier_fence();
    }
    __syncthreads();
    if (t >= 128) {
        for (int r = 0; t == 128 && r < 3; r++) {
            tnc_barrier_wait(&empty[r % 2], (r / 2 & 1) ^ 1);
            tnc_barrier_expect(&full[r % 2], 8192);
            tnc_bulk_load(tiles + r % 2 * 4096, &map, &full[r % 2], 0, 64 * r);
        }
        return;
    }
    for (int r = 0; r < 3; r++) {
        tnc_bf16 *tile = tiles + r % 2 * 4096;
        const uint64_t desc = (uint64_t)tnc_shared_address(tile) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
        float sum[8][4];
        unsigned left[2][4];
        if (bug != DOUBLES_BEFORE_THE_WAIT) tnc_barrier_wait(&full[r % 2], r / 2 & 1);
        for (int i = t; i < 4096; i += 128) tile[i] = __float2bfloat16(2 * (float)tile[i]);
        if (bug == DOUBLES_BEFORE_THE_WAIT) tnc_barrier_wait(&full[r % 2], r / 2 & 1);
        if (bug != DOUBLES_WITHOUT_FENCE) tnc_fence_async();
        if (bug != DOUBLES_WITHOUT_BARRIER) tnc_warpgroup_or(0, false);
        for (int half = 0; half < 2; half++) {
            identity(left, half);
            add_half(NONE, sum, left, desc, half);
            if (half == 0) tnc_wgmma_wait<0>();
        }
        if (bug != RELEASES_BEFORE_THE_WAIT) tnc_wgmma_wait<0>();
        if (lane == 0) tnc_barrier_arrive(&empty[r % 2]);
        if (bug == RELEASES_BEFORE_THE_WAIT) { __syncwarp(); tnc_wgmma_wait<0>(); }
        for (int n = 0; n < 8; n++) for (int e = 0; e < 4; e++) total[n][e] += sum[n][e];
    }
    for (int n = 0; n < 8; n++)
        for (int e = 0; e < 4; e++) y[(16 * warp + lane / 4 + e / 2 * 8) * 64 + 8 * n + lane % 4 * 2 + e % 2] = total[n][e];
}

static bool piped_products_with(int bug)
{
    std::vector<float> x = counted(3 * 4096);
    std::vector<tnc_bf16> b(x.size());
    CUtensorMap map;
    for (size_t i = 0; i < x.size(); i++) b[i] = __float2bfloat16(x[i]);
    tnch_set_device(90);
    device<tnc_bf16> db(b);
    device<float> y(4096);
    const cuuint64_t extents[2] = {64, 192}, strides[1] = {128};
    const cuuint32_t box[2] = {64, 64}, ones[2] = {1, 1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, db.p, extents, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TNC_LAUNCH(piped_products, 1, 160, 0, 0, bug, map, y.p);
    return right(y, [&](int i) { return 2 * (x[(size_t)i] + x[(size_t)i + 4096] + x[(size_t)i + 8192]); });
}

#define PRODUCTS_BUG(name, which) static bool name(int bug) { return piped_products_with(bug ? which : 0); }
PRODUCTS_BUG(arrival_before_wgmma_has_read, RELEASES_BEFORE_THE_WAIT) PRODUCTS_BUG(loaded_tile_changed_without_fence, DOUBLES_WITHOUT_FENCE)
PRODUCTS_BUG(loaded_tile_changed_without_barrier, DOUBLES_WITHOUT_BARRIER) PRODUCTS_BUG(tile_written_before_it_arrives, DOUBLES_BEFORE_THE_WAIT)

/* ---- launches --------------------------------------------------------------------------------------------------------- */

__global__ void large(int n, float *y)
{
    TNC_DYN_SHARED(float, s);
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) s[i] = 1;
    __syncthreads();
    y[threadIdx.x] = s[n - 1 - (int)threadIdx.x];
}

static bool shared_not_asked_for(int bug)
{
    device<float> y(32);
    if (!bug) cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
    TNC_LAUNCH(large, 1, 32, 64 << 10, 0, 16 << 10, y.p);
    return right(y, [](int) { return 1; });
}

static bool block_too_large(int bug)
{
    device<float> y(2048);
    cudaMemset(y.p, 0, 8192);
    TNC_LAUNCH(diverge, 1, bug ? 2048 : 1024, 0, 0, 0, y.p);
    return right(y, [](int i) { return i < 1024; });
}

/* ---- host and device -------------------------------------------------------------------------------------------------- */

static bool host_pointer_in_kernel(int bug)
{
    std::vector<float> x = counted(128);
    device<float> a(x), y(128);
    TNC_LAUNCH(copy_to, 1, 128, 0, 0, 128, 0, bug ? x.data() : a.p, y.p);
    return right(y, [&](int i) { return x[(size_t)i]; });
}

static bool device_pointer_in_host(int bug)
{
    device<float> a(counted(8));
    std::vector<float> x = a.get();
    const volatile float *p = bug ? a.p : x.data();
    return p[3] == -5;
}

static bool copy_past_the_end(int bug)
{
    device<float> a(counted(10));
    float x[11];
    return cudaMemcpy(x, a.p, sizeof(float) * (size_t)(10 + bug), cudaMemcpyDeviceToHost) == cudaSuccess;
}

static bool copy_the_wrong_way(int bug)
{
    device<float> a(counted(10));
    float x[10];
    return cudaMemcpy(x, a.p, sizeof x, bug ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost) == cudaSuccess;
}

static bool memory_not_freed(int bug)
{
    float *p;
    cudaMalloc(&p, 100);
    if (!bug) cudaFree(p);
    return true;
}

/* ---- streams ---------------------------------------------------------------------------------------------------------- */

struct three_streams {
    cudaStream_t s[3];
    cudaEvent_t e;
    float *host;
    three_streams()
    {
        for (int i = 0; i < 3; i++) cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking);
        cudaEventCreate(&e);
        cudaMallocHost(&host, 400);
        for (int i = 0; i < 100; i++) host[i] = (float)i;
    }
    ~three_streams()
    {
        for (int i = 0; i < 3; i++) cudaStreamDestroy(s[i]);
        cudaEventDestroy(e);
        cudaFreeHost(host);
    }
};

static bool no_stream_sync(int bug)
{
    three_streams t;
    device<float> a(counted(100));
    cudaMemcpyAsync(t.host, a.p, 400, cudaMemcpyDeviceToHost, t.s[0]);
    if (!bug) cudaStreamSynchronize(t.s[0]);
    return t.host[50] == counted(100)[50];
}

static bool no_event_between_streams(int bug)
{
    three_streams t;
    device<float> a(100), y(100);
    cudaMemcpyAsync(a.p, t.host, 400, cudaMemcpyHostToDevice, t.s[0]);
    cudaEventRecord(t.e, t.s[0]);
    if (!bug) cudaStreamWaitEvent(t.s[1], t.e, 0);
    TNC_LAUNCH(copy_to, 1, 128, 0, t.s[1], 100, 0, a.p, y.p);
    return right(y, [](int i) { return i; });
}

static bool plain_copy_beside_a_stream(int bug)
{
    three_streams t;
    device<float> a(100);
    float x[100];
    cudaMemcpyAsync(a.p, t.host, 400, cudaMemcpyHostToDevice, t.s[0]);
    if (!bug) cudaStreamSynchronize(t.s[0]);
    cudaMemcpy(x, a.p, 400, cudaMemcpyDeviceToHost);            /* waits for blocking streams; t.s[0] is not one */
    return x[50] == 50;
}

static bool pinned_memory_reused(int bug)
{
    three_streams t;
    device<float> a(100);
    cudaMemcpyAsync(a.p, t.host, 400, cudaMemcpyHostToDevice, t.s[0]);
    if (!bug) cudaStreamSynchronize(t.s[0]);
    for (int i = 0; i < 100; i++) t.host[i] = -1;
    cudaStreamSynchronize(t.s[0]);
    return right(a, [](int i) { return i; });
}

static bool allocation_while_captured(int bug)
{
    three_streams t;
    device<float> a(counted(100)), y(100);
    cudaGraph_t graph;
    float *p = NULL;
    cudaStreamBeginCapture(t.s[0], cudaStreamCaptureModeGlobal);
    TNC_LAUNCH(copy_to, 1, 128, 0, t.s[0], 100, 0, a.p, y.p);
    if (bug) cudaMalloc(&p, 4);
    bool ended = cudaStreamEndCapture(t.s[0], &graph) == cudaSuccess;
    if (ended) cudaGraphDestroy(graph);
    return ended;
}

static bool graph_destroyed_too_early(int bug)
{
    three_streams t;
    device<float> a(counted(100)), y(100);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamBeginCapture(t.s[0], cudaStreamCaptureModeGlobal);
    TNC_LAUNCH(copy_to, 1, 128, 0, t.s[0], 100, 0, a.p, y.p);
    cudaStreamEndCapture(t.s[0], &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    cudaGraphLaunch(exec, t.s[0]);
    if (!bug) cudaStreamSynchronize(t.s[0]);
    cudaGraphExecDestroy(exec);
    cudaStreamSynchronize(t.s[0]);
    return right(y, [](int i) { return counted(100)[(size_t)i]; });
}

/* ---- cuBLAS ----------------------------------------------------------------------------------------------------------- */

static bool wrong_leading_dimension(int bug)
{
    device<float> a(std::vector<float>(12, 1.0f)), b(std::vector<float>(20, 1.0f)), c(15);   /* 3 x 4, 4 x 5, 3 x 5 */
    cublasHandle_t handle;
    float one = 1, zero = 0;
    cublasCreate(&handle);
    bool called = cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 3, 5, 4, &one, a.p, CUDA_R_32F, 3, b.p, CUDA_R_32F,
                               bug ? 5 : 4, &zero, c.p, CUDA_R_32F, 3,
                               CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS;
    cublasDestroy(handle);
    return called && right(c, [](int) { return 4; });
}

/* 4 x 4 products of ones, whose columns are ld apart, A at number `first` of its memory. Asked for with the leading dimension
   `asked` and addresses at multiples of `alignment`. */
static bool by_cublas_lt(int ld, int asked, int first, uint32_t alignment, bool workspace)
{
    device<float> a(std::vector<float>(64, 1.0f)), c(64), room(1 << 18);
    float one = 1, zero = 0;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t x, y;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    uint64_t bytes = 1 << 20;
    int n = 0;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&x, CUDA_R_32F, 4, 4, ld);
    cublasLtMatrixLayoutCreate(&y, CUDA_R_32F, 4, 4, asked);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment);
    bool called = cublasLtMatmulAlgoGetHeuristic(handle, product, y, y, y, y, preference, 1, &found, &n) == CUBLAS_STATUS_SUCCESS && n == 1
        && cublasLtMatmul(handle, product, &one, a.p + first, x, a.p, x, &zero, c.p, x, c.p, x, &found.algo,
                          workspace ? room.p : NULL, workspace ? bytes : 0, 0) == CUBLAS_STATUS_SUCCESS;
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(y);
    cublasLtMatrixLayoutDestroy(x);
    cublasLtMatmulDescDestroy(product);
    cublasLtDestroy(handle);
    return called && c.get()[0] == 4 && c.get()[(size_t)(3 * ld + 3)] == 4;
}

static bool algorithm_of_another_product(int bug) { return by_cublas_lt(5, bug ? 4 : 5, 0, 256, true); }
static bool product_at_an_odd_address(int bug) { return by_cublas_lt(4, 4, 1, bug ? 16 : 4, true); }
static bool product_without_workspace(int bug) { return by_cublas_lt(4, 4, 0, 256, !bug); }

/* ---- the list --------------------------------------------------------------------------------------------------------- */

#define ALL "all"

/* says: what the checker must report, as a pattern of grep -E */
static const struct { const char *name; bool (*run)(int bug); const char *found_by, *says; } mistakes[] = {
#define MISTAKE(name, found_by, says) {#name, name, found_by, says}
    MISTAKE(no_barrier_before_use,      "forward reversed random check", "written by one thread, read by another without"),
    MISTAKE(no_barrier_before_refill,   "forward reversed random check",
            "read by one thread, overwritten by another without|written by one thread, read by another without"),
    MISTAKE(sum_read_too_early,         "forward reversed random check", "race: .* of part"),
    MISTAKE(sum_refilled_too_early,     "random check", "race: .* of part"),
    MISTAKE(divergent_barrier,          ALL, "divergent barrier: .* in line [0-9]"),
    MISTAKE(no_syncwarp,                "forward reversed random check", "race: "),
    MISTAKE(return_before_shuffle,      ALL, "deadlock .* have ended"),
    MISTAKE(shuffle_from_outside,       ALL, "does not take part"),
    MISTAKE(odd_block,                  ALL, "not a multiple of 32"),
    MISTAKE(write_past_the_end,         "forward asan check",
            "write out of bounds.* byte 4000 of an allocation of 4000.*planted.cu:[0-9]"),
    MISTAKE(read_past_the_end,          "asan check", "read out of bounds"),
    MISTAKE(null_pointer,               ALL, "address .nil.|address 0|access of address"),
    MISTAKE(shared_past_the_end,        "asan check", "write out of bounds"),
    MISTAKE(shared_past_a_row,          "asan", ""),
    MISTAKE(misaligned_float4,          "check", "misaligned access"),
    MISTAKE(unwritten_shared,           ALL, "uninitialised"),
    MISTAKE(unwritten_global,           ALL, "uninitialised"),
    MISTAKE(left_by_an_earlier_call,    ALL, "uninitialised"),
    MISTAKE(two_blocks_add,             "check", "race between blocks"),
    MISTAKE(two_threads_add,            "check", "race: "),
    MISTAKE(copy_waited_for_too_little, ALL, "uninitialised"),
    MISTAKE(copy_never_waited_for,      ALL, "never waited for"),
    MISTAKE(copy_issued_too_early,      "check", "read while an asynchronous copy to it is under way|read by one thread, overwritten"),
    MISTAKE(copy_to_global_memory,      ALL, "is not in shared memory"),
    MISTAKE(misaligned_ldmatrix,        ALL, "not aligned to 16 bytes"),
    MISTAKE(wgmma_without_fence,        ALL, "no wgmma.fence after the last access"),
    MISTAKE(wgmma_register_written_after_fence, ALL, "no wgmma.fence after d was written"),
    MISTAKE(wgmma_read_too_early,       ALL, ""),
    MISTAKE(wgmma_waited_for_too_little, ALL, ""),
    MISTAKE(wgmma_never_waited_for,     ALL, "never waited for"),
    MISTAKE(wgmma_a_overwritten,        ALL, "registers were written while"),
    MISTAKE(wgmma_d_overwritten,        ALL, "registers were written while"),
    MISTAKE(no_async_fence,             "check", "without a fence.proxy.async"),
    MISTAKE(async_fence_after_the_barrier, "check", "without a fence.proxy.async"),
    MISTAKE(async_fence_on_sm_80,       ALL, "fence.proxy.async needs a device of capability 9.0"),
    MISTAKE(wgmma_tile_overwritten,     "check", "written while wgmma may read it"),
    MISTAKE(wgmma_by_three_warps,       ALL, "another of its warpgroup|has ended"),
    MISTAKE(wgmma_tile_not_aligned,     ALL, ""),
    MISTAKE(wgmma_wrong_stride,         ALL, ""),
    MISTAKE(wgmma_copy_pending,         ALL, "read while an asynchronous copy|uninitialised"),
    MISTAKE(wgmma_without_barrier,      "check", "written by one thread, read by another without"),
    MISTAKE(wgmma_tile_refilled_too_early, "check", "overwritten by another without|written while wgmma may read it"),
    MISTAKE(no_wait_for_bulk_copy,      ALL, "while an asynchronous copy|never waited for|uninitialised"),
    MISTAKE(one_warp_does_not_wait,     "forward random check", "before the wait for the bulk copy|while an asynchronous copy|uninitialised"),
    MISTAKE(wrong_parity_of_full,       ALL, "while an asynchronous copy|never waited for|uninitialised"),
    MISTAKE(wrong_parity_of_empty,      ALL, "deadlock .*thread 256 waits in line [0-9]* for parity 0 of the mbarrier at byte 0 of empty, .* 8 of 8 arrivals"),
    MISTAKE(no_expect_tx,               ALL, "bring 4096 bytes, 0 were expected"),
    MISTAKE(fewer_bytes_expected,       ALL, "bring 4096 bytes, 4080 were expected"),
    MISTAKE(more_bytes_expected,        ALL, "deadlock .* of full.* lacks 0 of 1 arrivals, and 16 bytes"),
    MISTAKE(no_arrival_at_empty,        ALL, "deadlock .*thread 256 waits in line [0-9]* for parity 0 of the mbarrier at byte 0 of empty, .* 8 of 8 arrivals"),
    MISTAKE(arrival_before_the_last_read, "check", "may fill it before its readers have arrived"),
    MISTAKE(arrival_without_syncwarp,   "check", "may fill it before its readers have arrived"),
    MISTAKE(no_fence_after_mbarrier_init, ALL, "no fence after the mbarrier.init"),
    MISTAKE(no_barrier_after_mbarrier_init, "check reversed", "used without a barrier after its initialisation"),
    MISTAKE(mbarrier_not_initialised,   ALL, "is not initialised"),
    MISTAKE(mbarrier_initialised_twice, ALL, "initialised already"),
    MISTAKE(too_many_arrivals,          ALL, "too many arrivals|phase"),
    MISTAKE(count_of_arrivals_too_small, "check", "may fill it before its readers have arrived"),
    MISTAKE(stage_refilled_too_early,   "check", "may fill it before its readers have arrived|written before the wait for the bulk copy"),
    MISTAKE(written_tile_without_proxy_fence, "check", "overwrites what was written without a fence.proxy.async"),
    MISTAKE(bulk_copy_misaligned,       ALL, "not aligned to 128 bytes"),
    MISTAKE(tensor_map_in_host_memory,  ALL, "not a parameter of the kernel"),
    MISTAKE(tensor_map_too_long,        ALL, "out of bounds"),
    MISTAKE(tensor_map_without_swizzle, ALL, ""),
    MISTAKE(tensor_map_misaligned,      ALL, ""),
    MISTAKE(tensor_map_stride_not_of_16, ALL, ""),
    MISTAKE(bulk_copy_never_waited_for, ALL, "never waited for, of the mbarrier at byte 8 of full"),
    MISTAKE(bulk_copy_of_what_the_kernel_wrote, "check", "reads what this kernel has written"),
    MISTAKE(mbarrier_overwritten,       ALL, "was overwritten"),
    MISTAKE(mbarrier_on_sm_80,          ALL, "need a device of capability 9.0"),
    MISTAKE(too_many_registers,         ALL, "deadlock .* for 240 registers"),
    MISTAKE(eight_registers_too_many,   ALL, "deadlock .* for 240 registers"),
    MISTAKE(registers_of_one_warp,      ALL, "of the same warpgroup|deadlock .* registers"),
    MISTAKE(arrival_before_wgmma_has_read, "check", "written while wgmma may read it|may fill it before its readers have arrived"),
    MISTAKE(loaded_tile_changed_without_fence, "check", "wgmma reads what was written without a fence.proxy.async"),
    MISTAKE(loaded_tile_changed_without_barrier, "check", "written by one thread, read by another without"),
    MISTAKE(tile_written_before_it_arrives, ALL, "while an asynchronous copy to it is under way|before the wait for the bulk copy"),
    MISTAKE(shared_not_asked_for,       ALL, ""),
    MISTAKE(block_too_large,            ALL, ""),
    MISTAKE(host_pointer_in_kernel,     "check", "reads host memory"),
    MISTAKE(device_pointer_in_host,     "protect check", "the host touches device memory"),
    MISTAKE(copy_past_the_end,          ALL, "leave the allocation"),
    MISTAKE(copy_the_wrong_way,         ALL, "direction"),
    MISTAKE(memory_not_freed,           ALL, "1 device allocations are not freed"),
    MISTAKE(no_stream_sync,             "lazy", ""),
    MISTAKE(no_event_between_streams,   "lazy", ""),
    MISTAKE(plain_copy_beside_a_stream, "lazy", ""),
    MISTAKE(pinned_memory_reused,       "lazy", ""),
    MISTAKE(allocation_while_captured,  ALL, ""),
    MISTAKE(graph_destroyed_too_early,  "lazy", ""),
    MISTAKE(wrong_leading_dimension,    ALL, "leaves its allocation"),
    MISTAKE(algorithm_of_another_product, ALL, "the algorithm was found for another product"),
    MISTAKE(product_at_an_odd_address,  ALL, "A is at a multiple of 4 bytes, its algorithm needs 16"),
    MISTAKE(product_without_workspace,  ALL, "needs 65536 bytes of workspace"),
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

int main(int argc, char **argv)
{
    int wrong = 0;
    for (int i = 0; i < MISTAKES; i++) {
        bool listed = argc > 1 && strcmp(argv[1], "--list") == 0, chosen = argc > 1 && strcmp(argv[1], mistakes[i].name) == 0;
        if (listed) printf("%s:%s:%s\n", mistakes[i].name, mistakes[i].found_by, mistakes[i].says);
        else if (chosen) return !mistakes[i].run(1);
        else if (argc == 1 && (!mistakes[i].run(0) || tnch_faults())) {
            printf("FAIL %s: its correct twin: %s\n", mistakes[i].name, tnch_faults() ? tnch_fault_text() : "a wrong result");
            tnch_clear();
            wrong++;
        }
    }
    return wrong > 0;
}
