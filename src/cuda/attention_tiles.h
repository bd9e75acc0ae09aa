#pragma once
#include "cuda/attention.h"

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

#ifndef TNC_ONE_FILE
/* attention_wgmma.cu */
TNC_FN bool tnc_attend_run_wgmma(tnc *s, const tnc_attend &p, int D, bool back, bool keys);
#endif
