#pragma once
#include "cuda/inner.h"

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
