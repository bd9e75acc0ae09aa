#include "cuda/linear_plain.h"

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
