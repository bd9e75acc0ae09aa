#pragma once
#include "cuda/linear.h"

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

#ifndef TNC_ONE_FILE
/* linear_tensor.cu */
TNC_FN tnc_linear_group tnc_linear_groups(const tnc_linear *t, size_t bytes, bool kept, tnc_bf16);
TNC_FN size_t tnc_linear_shared(int64_t D, int64_t K, int64_t N);
TNC_FN void tnc_linear_sweep(tnc *s, const tnc_linear &t, const tnc_linear_pass<float> *pass, int passes,
                             tnc_linear_group g, tnc_bf16 *scratch, float *state);
#endif
