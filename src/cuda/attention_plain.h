#pragma once
#include "cuda/attention.h"

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
