#pragma once
#include "cuda/attention_tiles.h"

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
