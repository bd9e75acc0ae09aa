#include "cuda/attention_tiles.h"

/* ---- tensor cores of Hopper ----------------------------------------------------------------------- >>cuda-attention-wgmma
   The kernels above with wgmma, which multiplies 64 rows of A, in registers or in shared memory, by B in shared memory. What
   a lane holds of the accumulators and of A is what it holds for mma, so that what is done with scores is the same. Products
   and exponentials of one warpgroup do not overlap, those of two warpgroups may. Used on request, see tnc_wgmma_open.

   A tile of D columns lies in shared memory as D / 64 panels of 64 columns. A row of a panel has 128 bytes, and tnc_swizzle<8>
   is the 128-byte swizzle of wgmma if the tile begins at a multiple of 1,024 bytes. A descriptor holds, in units of 16 bytes,
   the address, the distance of panels (which is used where the rows are k: V), and the distance of 8 rows.

   wgmma reads shared memory by the asynchronous proxy: a thread that has written there, also by cp.async, executes
   fence.proxy.async before the barrier. Products run until they are waited for; until then their registers must not be
   accessed.

   Each kernel has two forms with the same arithmetic. In the one for cp.async all threads load, into two stages. The one for
   TMA (_tma) has a third warpgroup, one thread of which loads whole tiles ahead into a ring of stages; each stage has
   mbarriers that say when its tiles have arrived, and when all warps have read them. That warpgroup leaves its registers to
   the others, which may then have 240. A call uses this form where tensor maps can describe its operands (tnc_tma_map). The
   kernel for the gradients of bilinear keys and values with D = 128 needs more registers, and exists for cp.async only. */

#if TNC_WGMMA
/* Starts the copy of ROWS rows of D numbers to the panels of a tile, as tnc_tile_load does. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tnc_wgmma_load(tnc_bf16 *tile, const tnc_bf16 *from, int64_t pitch, int64_t there)
{
    for (int panel = 0; panel < D / 64; panel++)
        tnc_tile_load<64, ROWS, THREADS>(tile + panel * ROWS * 64, from + panel * 64, pitch, there);
}

/* The descriptor of a tile, of all or from a row on that is a multiple of 8. panel: rows of a panel, or 0 if k is contiguous */
static __device__ __forceinline__ uint64_t tnc_wgmma_tile(const tnc_bf16 *tile, int panel)
{
    return (uint64_t)(tnc_shared_address(tile) >> 4) | (uint64_t)(panel ? panel * 8 : 1) << 16 | (uint64_t)64 << 32
         | (uint64_t)1 << 62;
}

/* s = a b^T for 64 rows of a tile with A_ROWS rows and N rows of a tile with B_ROWS, of D numbers each. */
template <int N, int D, int A_ROWS, int B_ROWS>
static __device__ __forceinline__ void tnc_wgmma_rows(float (&s)[N / 8][4], const tnc_bf16 *a, const tnc_bf16 *b)
{
    const uint64_t a_desc = tnc_wgmma_tile(a, 0), b_desc = tnc_wgmma_tile(b, 0);
    TNC_UNROLL
    for (int k = 0; k < D / 16; k++)
        tnc_wgmma_ss<N>(s, a_desc + (uint64_t)(k / 4 * A_ROWS * 8 + k % 4 * 2),
                        b_desc + (uint64_t)(k / 4 * B_ROWS * 8 + k % 4 * 2), k > 0);
}

/* out += p x, where p has 64 rows and K columns in registers, and x are K rows of a tile of ROWS rows and C columns. */
template <int K, int C, int ROWS>
static __device__ __forceinline__ void tnc_wgmma_step(float (&out)[C / 8][4], const unsigned (&p)[K / 16][4],
                                                      const tnc_bf16 *x)
{
    const uint64_t desc = tnc_wgmma_tile(x, ROWS);
    TNC_UNROLL
    for (int k = 0; k < K / 16; k++) tnc_wgmma_rs<C>(out, p[k], desc + (uint64_t)(k * 128), 1);
}

/* The first multiple of 1,024 in dynamic shared memory */
static __device__ __forceinline__ tnc_bf16 *tnc_wgmma_shared(tnc_bf16 *shared)
{
    return shared + (1024 - tnc_shared_address(shared) % 1024) % 1024 / 2;
}

/* One stage of keys: scores of 64 queries, P, and o += P V. row and col: this thread's first query and key. values() returns
   when the values have arrived. */
template <class PLAN, int KIND, int D, class F>
static __device__ __forceinline__ void tnc_attend_wgmma_stage(const tnc_attend &p, const tnc_bf16 *q, const tnc_bf16 *kt,
                                                              float (&o)[1][D / 8][4], float (&row_max)[1][2],
                                                              float (&row_sum)[1][2], int mask, int row, int col, F values)
{
    enum { sets = PLAN::sets, keys = PLAN::keys, queries = PLAN::queries };
    float    s[sets][1][keys / 8][4];
    unsigned left[keys / 16][4];
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(s[set][0]);
    tnc_wgmma_fence();
    TNC_UNROLL
    for (int set = 0; set < sets; set++)
        tnc_wgmma_rows<keys, D, queries, keys>(s[set][0], q + set * queries * D, kt + set * keys * D);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(s[set][0]);
    tnc_attend_scores_to_p<KIND>(p, s, o, row_max, row_sum, mask, row, col);
    TNC_UNROLL
    for (int k = 0; k < keys / 16; k++) tnc_attend_frag_of(left[k], s[0][0], k);
    values();
    tnc_wgmma_operand(o[0]);
    tnc_wgmma_operand(left);
    tnc_wgmma_fence();
    tnc_wgmma_step<keys, D, keys>(o[0], left, kt + sets * keys * D);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    tnc_wgmma_operand(o[0]);
}

/* N streamed rows of the backward pass, which begin at xt and yt: scores and dP of 64 resident rows, P and dS, and what they
   add to the gradients. queries: as for tnc_attend_back_frags. row, col: this thread's first resident and streamed row. */
template <class PLAN, int KIND, int D, bool KEYS>
static __device__ __forceinline__ void tnc_attend_wgmma_back_rows(const tnc_attend &p, const tnc_bf16 *x, const tnc_bf16 *y,
                                                                  const tnc_bf16 *xt, const tnc_bf16 *yt,
                                                                  const float4 *queries,
                                                                  float (&dx)[PLAN::sets][1][D / 8][4],
                                                                  float (&dv)[1][D / 8][4], int mask, int row, int col)
{
    enum { sets = PLAN::sets, N = PLAN::N, resident = PLAN::resident, streamed = PLAN::streamed };
    float    s[sets][1][N / 8][4], dp[N / 8][4];
    unsigned p_frag[N / 16][4], ds_frag[sets][N / 16][4];
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(s[set][0]);
    tnc_wgmma_operand(dp);
    tnc_wgmma_fence();
    TNC_UNROLL
    for (int set = 0; set < sets; set++)
        tnc_wgmma_rows<N, D, resident, streamed>(s[set][0], x + set * resident * D, xt + set * streamed * D);
    tnc_wgmma_rows<N, D, resident, streamed>(dp, y, yt);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(s[set][0]);
    tnc_wgmma_operand(dp);
    if (mask == 1) tnc_attend_mask_back<KIND, KEYS>(p, s, row, col);
    TNC_UNROLL
    for (int k = 0; k < N / 16; k++)
        tnc_attend_back_frags<KIND, KEYS>(p, p_frag[k], ds_frag[0][k], ds_frag[sets - 1][k], s[0][0], s[sets - 1][0], dp,
                                          queries, k);
    if (KEYS) {
        tnc_wgmma_operand(p_frag);
        tnc_wgmma_operand(dv[0]);
    }
    TNC_UNROLL
    for (int set = 0; set < sets; set++) {
        tnc_wgmma_operand(ds_frag[set]);
        tnc_wgmma_operand(dx[set][0]);
    }
    tnc_wgmma_fence();
    if (KEYS) tnc_wgmma_step<N, D, streamed>(dv[0], p_frag, yt);
    TNC_UNROLL
    for (int set = 0; set < sets; set++)
        tnc_wgmma_step<N, D, streamed>(dx[set][0], ds_frag[set], xt + set * streamed * D);
    tnc_wgmma_commit();
    tnc_wgmma_wait<0>();
    if (KEYS) tnc_wgmma_operand(dv[0]);
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_wgmma_operand(dx[set][0]);
}
#endif

/* Two warpgroups of 64 queries. One block has the registers of a multiprocessor, up to 255 for a thread: keys / 2 for each set
   of scores, D / 2 for o, keys / 4 for P. A stage has 128 keys, or 64 where two stages of 128 are too large. */
template <int KIND, int D> struct tnc_attend_wgmma_plan {
    enum {
        threads = 256, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1, queries = 128, row = (sets + 1) * D,
        keys = 2 * (queries * sets * D + 2 * 128 * row) + 1024 <= 227 * 1024 ? 128 : 64,
        stage = keys * row, bytes = 2 * (queries * sets * D + 2 * stage) + 1024
    };
};

/* The forward kernel: the loop of tnc_attend_mma, in which a warpgroup computes the scores of 64 queries at once. */
template <int KIND, int D> static __global__ void __launch_bounds__(256, 1) tnc_attend_wgmma(tnc_attend p)
{
#if TNC_WGMMA
    typedef tnc_attend_wgmma_plan<KIND, D> plan;
    enum { sets = plan::sets, keys = plan::keys, stage = plan::stage, threads = plan::threads, queries = plan::queries };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16     *const q = tnc_wgmma_shared(shared), *const stages = q + queries * sets * D;
    const int H = (int)p.H, Tq = (int)p.Tq, Tk = (int)p.Tk, i0 = tnc_attend_first_row<false>(p, queries);
    const int lane = (int)threadIdx.x & 31, group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int mine = i0 + (int)threadIdx.x / 32 * 16 + lane / 4;                    /* the first of two queries, 8 apart */
    const tnc_attend_place at = tnc_attend_place_of(p);
    const int last = i0 + queries < Tq ? i0 + queries - 1 : Tq - 1;
    const int to = tnc_attend_keys_of(p, last).high;
    int       j0 = tnc_attend_keys_of(p, i0).low / keys * keys;
    float     o[1][D / 8][4], row_max[1][2] = { { -INFINITY, -INFINITY } }, row_sum[1][2] = { { 0.0f, 0.0f } };
    auto load = [&](int which, int j) {
        tnc_bf16 *to_x = stages + which * stage;
        for (int x = 0; x < sets; x++)
            tnc_wgmma_load<D, keys, threads>(to_x + x * keys * D, tnc_head<const tnc_bf16>(p.k, at.b, j, at.h + x * H),
                                             p.k.t, Tk - j);
        tnc_wgmma_load<D, keys, threads>(to_x + sets * keys * D, tnc_head<const tnc_bf16>(p.v, at.b, j, at.h), p.v.t, Tk - j);
    };
    for (int set = 0; set < sets; set++)
        tnc_wgmma_load<D, queries, threads>(q + set * queries * D,
                                            tnc_head<const tnc_bf16>(p.q, at.b, i0, at.h + set * H), p.q.t, Tq - i0);
    if (j0 < to) load(j0 / keys % 2, j0);
    tnc_cp_async_commit();
    tnc_attend_clear(o);
    for (; j0 < to; j0 += keys) {
        const int turn = j0 / keys % 2, first = i0 + 64 * group;
        const int mask = tnc_attend_mask_of(p, first, first + 63, j0, j0 + keys - 1);
        tnc_cp_async_wait<0>();
        tnc_fence_async();
        __syncthreads();                        /* this stage has arrived, and no thread reads the other any more */
        if (j0 + keys < to) load(turn ^ 1, j0 + keys);
        tnc_cp_async_commit();
        if (mask == 0) continue;
        tnc_attend_wgmma_stage<plan, KIND, D>(p, q + group * 64 * 64, stages + turn * stage, o, row_max, row_sum, mask, mine,
                                              j0 + 2 * (lane & 3), [] {});
    }
    tnc_attend_end_rows<KIND>(p, at.head, row_max, row_sum, mine);
    tnc_attend_store_rows<1, D>(p, p.o, at.b, at.h, mine - lane / 4, Tq, (int)p.n_v, o, row_sum, false);
    tnc_attend_mark_redo_alone(p, at.head, i0 + 64 * group, p.Tq, tnc_attend_not_finite<1, D>(o), group);
    tnc_cp_async_wait<0>();
#else
    (void)p;
#endif
}

/* Backward: two warpgroups of 64 resident rows. `sums` registers hold the gradients of a thread during the whole walk. N
   streamed rows at a time need N / 2 for each set of scores and for dP, later half of that for P and dS: as many as fit. */
template <int KIND, int D, bool KEYS> struct tnc_attend_wgmma_back_plan {
    enum {
        threads = 256, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1, resident = 128, streamed = 64, row = (sets + 1) * D,
        sums = (KEYS ? row : sets * D) / 2,
        N = sums + 32 * (sets + 1) <= 192 ? 64 : sums + 16 * (sets + 1) <= 192 ? 32 : 16,
        stage = streamed * (row + (KEYS ? 8 : 0)),                      /* with the row_stats of each query */
        kept = resident * (row + (KEYS ? 0 : 8)),
        bytes = 2 * (kept + 2 * stage) + 1024
    };
};

/* The backward kernel: the loop of tnc_attend_mma_back. */
template <int KIND, int D, bool KEYS> static __global__ void __launch_bounds__(256, 1) tnc_attend_back_wgmma(tnc_attend p)
{
#if TNC_WGMMA
    typedef tnc_attend_wgmma_back_plan<KIND, D, KEYS> plan;
    enum { sets = plan::sets, N = plan::N, resident_rows = plan::resident, streamed = plan::streamed, stage = plan::stage,
           threads = plan::threads };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const  x = tnc_wgmma_shared(shared), *const y = x + resident_rows * sets * D,
        *const stages = y + resident_rows * (D + (KEYS ? 0 : 8));
    const tnc_heads &gx = KEYS ? p.k : p.q, &gy = KEYS ? p.v : p.dout, &hx = KEYS ? p.q : p.k, &hy = KEYS ? p.dout : p.v;
    const int        H = (int)p.H, T_resident = (int)(KEYS ? p.Tk : p.Tq), T_streamed = (int)(KEYS ? p.Tq : p.Tk);
    const int        row0 = tnc_attend_first_row<KEYS>(p, resident_rows);
    const int        lane = (int)threadIdx.x & 31, group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int        warp_row = (int)threadIdx.x / 32 * 16, mine = row0 + 64 * group;
    const int        last = row0 + resident_rows < T_resident ? row0 + resident_rows - 1 : T_resident - 1;
    const tnc_attend_place here = tnc_attend_place_of(p);
    /* the float4 of a query has 16 bytes, like 8 numbers of BF16 */
    const tnc_heads rows = { p.row_stats, 0, 8, p.Tq * 8 };
    float         dx[sets][1][D / 8][4], dv[1][D / 8][4];
    auto load = [&](int which, int t) {
        tnc_bf16 *to_x = stages + which * stage;
        for (int i = 0; i < sets; i++)
            tnc_wgmma_load<D, streamed, threads>(to_x + i * streamed * D,
                                                 tnc_head<const tnc_bf16>(hx, here.b, t, here.h + i * H), hx.t,
                                                 T_streamed - t);
        tnc_wgmma_load<D, streamed, threads>(to_x + sets * streamed * D, tnc_head<const tnc_bf16>(hy, here.b, t, here.h),
                                             hy.t, T_streamed - t);
        if (KEYS)
            tnc_tile_load<8, streamed, threads>(to_x + streamed * (sets * D + D),
                                                tnc_head<const tnc_bf16>(rows, 0, t, here.head), 8, T_streamed - t);
    };
    const tnc_span<int> walk = tnc_attend_walk_of<KEYS>(p, row0, last);
    const int           to = walk.high;
    for (int set = 0; set < sets; set++)
        tnc_wgmma_load<D, resident_rows, threads>(x + set * resident_rows * D,
                                                  tnc_head<const tnc_bf16>(gx, here.b, row0, here.h + set * H), gx.t,
                                                  T_resident - row0);
    tnc_wgmma_load<D, resident_rows, threads>(y, tnc_head<const tnc_bf16>(gy, here.b, row0, here.h), gy.t,
                                              T_resident - row0);
    if (!KEYS)
        tnc_tile_load<8, resident_rows, threads>(y + resident_rows * D,
                                                 tnc_head<const tnc_bf16>(rows, 0, row0, here.head), 8, T_resident - row0);
    int at = walk.low / streamed * streamed;
    if (at < to) load(at / streamed % 2, at);
    tnc_cp_async_commit();
    tnc_attend_clear(dv);
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_attend_clear(dx[set]);
    for (; at < to; at += N) {
        const int       sub = at % streamed, turn = at / streamed % 2;
        const tnc_bf16 *xt = stages + turn * stage, *yt = xt + sets * streamed * D;
        const float4   *queries = reinterpret_cast<const float4 *>(KEYS ? yt + streamed * D : y + resident_rows * D);
        const int       mask = KEYS ? tnc_attend_mask_of(p, at, at + N - 1, mine, mine + 63)
                                    : tnc_attend_mask_of(p, mine, mine + 63, at, at + N - 1);
        if (sub == 0) {
            tnc_cp_async_wait<0>();
            tnc_fence_async();
            __syncthreads();                    /* this stage has arrived, and no thread reads the other any more */
            if (at + streamed < to) load(turn ^ 1, at + streamed);
            tnc_cp_async_commit();
        }
        if (mask == 0) continue;
        tnc_attend_wgmma_back_rows<plan, KIND, D, KEYS>(
            p, x + group * 64 * 64, y + group * 64 * 64, xt + sub * 64, yt + sub * 64,
            queries + (KEYS ? sub + 2 * (lane & 3) : warp_row + lane / 4), dx, dv, mask, row0 + warp_row + lane / 4,
            at + 2 * (lane & 3));
    }
    tnc_attend_end_back<KIND, KEYS, true>(p, here, mine, 64, row0 + warp_row, dx, dv);
    tnc_cp_async_wait<0>();
#else
    (void)p;
#endif
}

/* The forms for TMA. The ring has as many stages as fit, up to four, beside KEPT numbers that stay in shared memory during
   the whole kernel. After it come the mbarriers of a tnc_ring. */
template <class PLAN, int KEPT> struct tnc_ring_plan {
    enum {
        threads = 384, fixed = 2 * KEPT + 1024 + 128, fit = (227 * 1024 - fixed) / (2 * PLAN::stage),
        stages = fit > 4 ? 4 : fit, bytes = fixed + stages * 2 * PLAN::stage
    };
};

template <int KIND, int D> struct tnc_attend_tma_plan : tnc_attend_wgmma_plan<KIND, D> {
    typedef tnc_attend_wgmma_plan<KIND, D> tiles;
    typedef tnc_ring_plan<tiles, tiles::queries * tiles::sets * D> ring;
};

template <int KIND, int D, bool KEYS> struct tnc_attend_tma_back_plan : tnc_attend_wgmma_back_plan<KIND, D, KEYS> {
    typedef tnc_attend_wgmma_back_plan<KIND, D, KEYS> tiles;
    typedef tnc_ring_plan<tiles, tiles::kept> ring;
    enum { fits = tiles::sums <= 128 };                                 /* else 240 registers are too few */
};

/* The tensor maps of what stays and of what is streamed, in the order in which tiles are loaded */
template <int N> struct tnc_tma_maps { CUtensorMap map[N]; };
enum { TNC_TMA_STATS = 256 };            /* columns of a box of row_stats, the most that a box has */

#if TNC_WGMMA
enum { TNC_RING_PRODUCER = 2, TNC_RING_READERS = 8 };         /* the warpgroup that loads; the warps that read */

/* Where a thread is in the ring, and its mbarriers. kept [1]: what stays has arrived. full [stages]: the tiles of a stage
   have arrived, but for those that are needed later, which have `later` if there are any. empty: all warps have read them. */
typedef struct tnc_ring { tnc_barrier *kept, *full, *later, *empty; int slot, parity; } tnc_ring;

template <int STAGES, bool LATER> static __device__ __forceinline__ tnc_ring tnc_ring_of(void *at)
{
    tnc_barrier *const kept = (tnc_barrier *)at;
    const tnc_ring     r = { kept, kept + 1, kept + 1 + STAGES, kept + 1 + 2 * STAGES, 0, 0 };
    if (threadIdx.x == 0) {
        tnc_barrier_init(r.kept, 1);
        for (int i = 0; i < STAGES; i++) {
            tnc_barrier_init(r.full + i, 1);
            if (LATER) tnc_barrier_init(r.later + i, 1);
            tnc_barrier_init(r.empty + i, TNC_RING_READERS);
        }
        tnc_barrier_fence();
    }
    __syncthreads();
    return r;
}

template <int STAGES> static __device__ __forceinline__ void tnc_ring_next(tnc_ring &r)
{
    if (++r.slot < STAGES) return;
    r.slot = 0;
    r.parity ^= 1;
}

/* Waits until this slot may be filled. In the first turn it is empty, and the wait ends at once. */
static __device__ __forceinline__ void tnc_ring_wait_empty(const tnc_ring &r)
{
    tnc_barrier_wait(r.empty + r.slot, r.parity ^ 1);
}

/* By all threads of a warp that have read this slot */
static __device__ __forceinline__ void tnc_ring_release(const tnc_ring &r)
{
    __syncwarp();
    if (((int)threadIdx.x & 31) == 0) tnc_barrier_arrive(r.empty + r.slot);
}

/* Starts the copy of ROWS rows of D numbers, from row t of a head on, to the panels of a tile. */
template <int D, int ROWS>
static __device__ __forceinline__ void tnc_tma_load(tnc_bf16 *tile, const CUtensorMap *map, tnc_barrier *full, int b, int t,
                                                    int h)
{
    for (int panel = 0; panel < D / 64; panel++)
        tnc_bulk_load(tile + panel * ROWS * 64, map, full, panel * 64, h, t, b);
}

/* Starts the copy of the row_stats of ROWS queries, from query t of a head on. The float4 of a query has 16 bytes, like 8
   numbers of BF16, and those of a head follow each other: so a box has as many numbers as it may, of many queries. */
template <int ROWS>
static __device__ __forceinline__ void tnc_tma_load_stats(tnc_bf16 *to, const CUtensorMap *map, tnc_barrier *full, int t,
                                                          int head)
{
    for (int at = 0; at < 8 * ROWS; at += TNC_TMA_STATS)
        tnc_bulk_load(to + at, map, full, 8 * t + at, 0, head, 0);
}
#endif

/* The forward kernel. maps: q, k, v */
template <int KIND, int D>
static __global__ void __launch_bounds__(384, 1) tnc_attend_tma(const __grid_constant__ tnc_attend p,
                                                                const __grid_constant__ tnc_tma_maps<3> maps)
{
#if TNC_WGMMA
    typedef tnc_attend_tma_plan<KIND, D> plan;
    enum { sets = plan::sets, keys = plan::keys, stage = plan::stage, queries = plan::queries, stages = plan::ring::stages };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const q = tnc_wgmma_shared(shared), *const tiles = q + queries * sets * D;
    tnc_ring ring = tnc_ring_of<stages, true>(tiles + stages * stage);
    const int H = (int)p.H, Tq = (int)p.Tq, i0 = tnc_attend_first_row<false>(p, queries);
    const int lane = (int)threadIdx.x & 31, group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int mine = i0 + (int)threadIdx.x / 32 * 16 + lane / 4, first = i0 + 64 * group;
    const int last = i0 + queries < Tq ? i0 + queries - 1 : Tq - 1, to = tnc_attend_keys_of(p, last).high;
    const tnc_attend_place at = tnc_attend_place_of(p);
    int       j0 = tnc_attend_keys_of(p, i0).low / keys * keys;
    if (group == TNC_RING_PRODUCER) {
        tnc_registers_less<24>();
        if (threadIdx.x % 128) return;
        tnc_barrier_expect(ring.kept, 2 * queries * sets * D);
        for (int set = 0; set < sets; set++)
            tnc_tma_load<D, queries>(q + set * queries * D, &maps.map[0], ring.kept, at.b, i0, at.h + set * H);
        for (; j0 < to; j0 += keys, tnc_ring_next<stages>(ring)) {
            tnc_bf16    *kt = tiles + ring.slot * stage;
            tnc_barrier *full = ring.full + ring.slot, *later = ring.later + ring.slot;
            tnc_ring_wait_empty(ring);
            tnc_barrier_expect(full, 2 * keys * sets * D);
            for (int set = 0; set < sets; set++)
                tnc_tma_load<D, keys>(kt + set * keys * D, &maps.map[1], full, at.b, j0, at.h + set * H);
            tnc_barrier_expect(later, 2 * keys * D);
            tnc_tma_load<D, keys>(kt + sets * keys * D, &maps.map[2], later, at.b, j0, at.h);
        }
        return;
    }
    tnc_registers_more<240>();
    float o[1][D / 8][4], row_max[1][2] = { { -INFINITY, -INFINITY } }, row_sum[1][2] = { { 0.0f, 0.0f } };
    tnc_attend_clear(o);
    tnc_barrier_wait(ring.kept, 0);
    for (; j0 < to; j0 += keys, tnc_ring_next<stages>(ring)) {
        const int mask = tnc_attend_mask_of(p, first, first + 63, j0, j0 + keys - 1);
        auto values = [&] { tnc_barrier_wait(ring.later + ring.slot, ring.parity); };
        tnc_barrier_wait(ring.full + ring.slot, ring.parity);
        if (mask)                               /* else the values are those of the other warpgroup, which waits for them */
            tnc_attend_wgmma_stage<plan, KIND, D>(p, q + group * 64 * 64, tiles + ring.slot * stage, o, row_max, row_sum,
                                                  mask, mine, j0 + 2 * (lane & 3), values);
        tnc_ring_release(ring);
    }
    tnc_attend_end_rows<KIND>(p, at.head, row_max, row_sum, mine);
    tnc_attend_store_rows<1, D>(p, p.o, at.b, at.h, mine - lane / 4, Tq, (int)p.n_v, o, row_sum, false);
    tnc_attend_mark_redo_alone(p, at.head, first, p.Tq, tnc_attend_not_finite<1, D>(o), group);
#else
    (void)p, (void)maps;
#endif
}

/* The backward kernel. maps: the resident x and y, the streamed x and y, row_stats */
template <int KIND, int D, bool KEYS>
static __global__ void __launch_bounds__(384, 1) tnc_attend_back_tma(const __grid_constant__ tnc_attend p,
                                                                     const __grid_constant__ tnc_tma_maps<5> maps)
{
#if TNC_WGMMA
    typedef tnc_attend_tma_back_plan<KIND, D, KEYS> plan;
    enum { sets = plan::sets, N = plan::N, resident = plan::resident, streamed = plan::streamed, stage = plan::stage,
           stages = plan::ring::stages };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const x = tnc_wgmma_shared(shared), *const y = x + resident * sets * D, *const tiles = x + plan::kept;
    tnc_ring ring = tnc_ring_of<stages, false>(tiles + stages * stage);
    const int H = (int)p.H, T = (int)(KEYS ? p.Tk : p.Tq), row0 = tnc_attend_first_row<KEYS>(p, resident);
    const int lane = (int)threadIdx.x & 31, group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp_row = (int)threadIdx.x / 32 * 16, mine = row0 + 64 * group;
    const tnc_attend_place here = tnc_attend_place_of(p);
    const tnc_span<int>    walk = tnc_attend_walk_of<KEYS>(p, row0, row0 + resident < T ? row0 + resident - 1 : T - 1);
    const int to = walk.high;
    int       at = walk.low / streamed * streamed;
    if (group == TNC_RING_PRODUCER) {
        tnc_registers_less<24>();
        if (threadIdx.x % 128) return;
        tnc_barrier_expect(ring.kept, 2 * plan::kept);
        for (int set = 0; set < sets; set++)
            tnc_tma_load<D, resident>(x + set * resident * D, &maps.map[0], ring.kept, here.b, row0, here.h + set * H);
        tnc_tma_load<D, resident>(y, &maps.map[1], ring.kept, here.b, row0, here.h);
        if (!KEYS) tnc_tma_load_stats<resident>(y + resident * D, &maps.map[4], ring.kept, row0, here.head);
        for (; at < to; at += streamed, tnc_ring_next<stages>(ring)) {
            tnc_bf16    *xt = tiles + ring.slot * stage, *yt = xt + sets * streamed * D;
            tnc_barrier *full = ring.full + ring.slot;
            tnc_ring_wait_empty(ring);
            tnc_barrier_expect(full, 2 * stage);
            for (int set = 0; set < sets; set++)
                tnc_tma_load<D, streamed>(xt + set * streamed * D, &maps.map[2], full, here.b, at, here.h + set * H);
            tnc_tma_load<D, streamed>(yt, &maps.map[3], full, here.b, at, here.h);
            if (KEYS) tnc_tma_load_stats<streamed>(yt + streamed * D, &maps.map[4], full, at, here.head);
        }
        return;
    }
    tnc_registers_more<240>();
    float dx[sets][1][D / 8][4], dv[1][D / 8][4];
    tnc_attend_clear(dv);
    TNC_UNROLL
    for (int set = 0; set < sets; set++) tnc_attend_clear(dx[set]);
    tnc_barrier_wait(ring.kept, 0);
    for (; at < to; at += N) {
        const int       sub = at % streamed;
        const tnc_bf16 *xt = tiles + ring.slot * stage, *yt = xt + sets * streamed * D;
        const float4   *queries = reinterpret_cast<const float4 *>(KEYS ? yt + streamed * D : y + resident * D);
        const int       mask = KEYS ? tnc_attend_mask_of(p, at, at + N - 1, mine, mine + 63)
                                    : tnc_attend_mask_of(p, mine, mine + 63, at, at + N - 1);
        if (sub == 0) tnc_barrier_wait(ring.full + ring.slot, ring.parity);
        if (mask)
            tnc_attend_wgmma_back_rows<plan, KIND, D, KEYS>(
                p, x + group * 64 * 64, y + group * 64 * 64, xt + sub * 64, yt + sub * 64,
                queries + (KEYS ? sub + 2 * (lane & 3) : warp_row + lane / 4), dx, dv, mask, row0 + warp_row + lane / 4,
                at + 2 * (lane & 3));
        if (sub + N < streamed) continue;
        tnc_ring_release(ring);
        tnc_ring_next<stages>(ring);
    }
    tnc_attend_end_back<KIND, KEYS, true>(p, here, mine, 64, row0 + warp_row, dx, dv);
#else
    (void)p, (void)maps;
#endif
}

/* The tensor map of an operand [B,T,heads,D] from which TMA copies `rows` rows of a head at once: panels of 64 columns,
   swizzled as wgmma needs them, or more columns as they are. It is a parameter of the kernel, so a graph keeps it. Its axes
   are D, heads, T, B, because cuda.h documents strides that grow. Returns false where no map can describe the operand: all
   strides must be positive multiples of 16 bytes, coordinates are ints. */
static bool tnc_tma_map(const tnc *s, CUtensorMap *map, const tnc_heads &x, int64_t B, int64_t T, int64_t heads, int64_t D,
                        int rows, int columns = 64)
{
    const cuuint64_t extents[4] = { (cuuint64_t)D, (cuuint64_t)heads, (cuuint64_t)T, (cuuint64_t)B };
    const int64_t    steps[3] = { x.h, x.t, x.b };
    const cuuint32_t ones[4] = { 1, 1, 1, 1 }, box[4] = { (cuuint32_t)columns, 1, (cuuint32_t)rows, 1 };
    cuuint64_t       strides[3];
    int64_t          step = D;
    if (D > INT32_MAX / 2) return false;
    for (int i = 0; i < 3; i++) {
        if (extents[i + 1] > 1) step = steps[i];                            /* the stride of one row means nothing */
        if (step <= 0 || step % 8) return false;
        strides[i] = (cuuint64_t)step * sizeof(tnc_bf16);
    }
    return s->tma_encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, x.data, extents, strides, box, ones,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, columns > 64 ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Launch these kernels, by TMA where that is possible, if the context and the call are for them. */
template <int KIND, int D> static bool tnc_attend_run_tma(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_tma_plan<KIND, D> plan;
    const int64_t   tiles = tnc_ceil(p.Tq, plan::queries), set_heads = plan::sets * p.H;
    tnc_tma_maps<3> maps;
    if (!s->tma_encode || (size_t)plan::ring::bytes > s->shared_max
        || !tnc_tma_map(s, &maps.map[0], p.q, p.B, p.Tq, set_heads, D, plan::queries)
        || !tnc_tma_map(s, &maps.map[1], p.k, p.B, p.Tk, set_heads, D, plan::keys)
        || !tnc_tma_map(s, &maps.map[2], p.v, p.B, p.Tk, p.H, D, plan::keys)) return false;
    tnc_shared_for(s, tnc_attend_tma<KIND, D>, plan::ring::bytes);
    TNC_LAUNCH((tnc_attend_tma<KIND, D>), (unsigned)(tiles * p.B * p.H), plan::ring::threads, plan::ring::bytes, s->stream,
               tnc_attend_in_groups(s, p, tiles, p.Tk, 2 * plan::row), maps);
    tnc_wgmma_launched(s, true);
    return true;
}

template <int KIND, int D, bool KEYS>
static bool tnc_attend_run_back_tma(tnc *s, const tnc_attend &p, const tnc_attend &in_groups, int64_t tiles)
{
    typedef tnc_attend_tma_back_plan<KIND, D, KEYS> plan;
    if constexpr (plan::fits) {
        const int       queries = KEYS ? plan::streamed : plan::resident, keys = KEYS ? plan::resident : plan::streamed;
        const int64_t   set_heads = plan::sets * p.H;
        const tnc_heads stats = { p.row_stats, 0, 8 * p.Tq, 0 };        /* [1,B H,1,8 Tq], see tnc_tma_load_stats */
        tnc_tma_maps<5> maps;
        if (!s->tma_encode || (size_t)plan::ring::bytes > s->shared_max
            || !tnc_tma_map(s, &maps.map[KEYS ? 2 : 0], p.q, p.B, p.Tq, set_heads, D, queries)
            || !tnc_tma_map(s, &maps.map[KEYS ? 0 : 2], p.k, p.B, p.Tk, set_heads, D, keys)
            || !tnc_tma_map(s, &maps.map[KEYS ? 1 : 3], p.v, p.B, p.Tk, p.H, D, keys)
            || !tnc_tma_map(s, &maps.map[KEYS ? 3 : 1], p.dout, p.B, p.Tq, p.H, D, queries)
            || !tnc_tma_map(s, &maps.map[4], stats, 1, p.B * p.H, 1, 8 * p.Tq, 1, TNC_TMA_STATS)) return false;
        tnc_shared_for(s, tnc_attend_back_tma<KIND, D, KEYS>, plan::ring::bytes);
        TNC_LAUNCH((tnc_attend_back_tma<KIND, D, KEYS>), (unsigned)(tiles * p.B * p.H), plan::ring::threads,
                   plan::ring::bytes, s->stream, in_groups, maps);
        tnc_wgmma_launched(s, true);
        return true;
    } else return false;
}

template <int KIND, int D> static bool tnc_attend_run_forward_wgmma(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_wgmma_plan<KIND, D> plan;
    const int64_t tiles = tnc_ceil(p.Tq, plan::queries);
    if ((size_t)plan::bytes > s->shared_max) return false;
    if (tnc_attend_run_tma<KIND, D>(s, p)) return true;
    tnc_shared_for(s, tnc_attend_wgmma<KIND, D>, plan::bytes);
    TNC_LAUNCH((tnc_attend_wgmma<KIND, D>), (unsigned)(tiles * p.B * p.H), plan::threads, plan::bytes, s->stream,
               tnc_attend_in_groups(s, p, tiles, p.Tk, 2 * plan::row));
    tnc_wgmma_launched(s, false);
    return true;
}

template <int KIND, int D, bool KEYS> static bool tnc_attend_run_back_wgmma(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_wgmma_back_plan<KIND, D, KEYS> plan;
    const int64_t tiles = tnc_ceil(KEYS ? p.Tk : p.Tq, plan::resident);
    tnc_attend    in_groups = tnc_attend_in_groups(s, p, tiles, KEYS ? p.Tq : p.Tk, 2 * plan::stage / plan::streamed);
    if ((size_t)plan::bytes > s->shared_max) return false;
    if (KEYS) in_groups.redo += tnc_attend_tiles(p, p.Tq);
    if (tnc_attend_run_back_tma<KIND, D, KEYS>(s, p, in_groups, tiles)) return true;
    tnc_shared_for(s, tnc_attend_back_wgmma<KIND, D, KEYS>, plan::bytes);
    TNC_LAUNCH((tnc_attend_back_wgmma<KIND, D, KEYS>), (unsigned)(tiles * p.B * p.H), plan::threads, plan::bytes, s->stream,
               in_groups);
    tnc_wgmma_launched(s, false);
    return true;
}

/* Launches the kernel for a call with D = DV: of the forward pass; or of the backward pass, for the gradients of queries or of
   keys. Returns false where there is none. */
TNC_FN bool tnc_attend_run_wgmma(tnc *s, const tnc_attend &p, int D, bool back, bool keys)
{
    if (!s->wgmma) return false;
#define TNC_CASE(KIND, n) \
    if (p.kind == KIND && D == n) \
        return !back ? tnc_attend_run_forward_wgmma<KIND, n>(s, p) \
               : keys ? tnc_attend_run_back_wgmma<KIND, n, true>(s, p) : tnc_attend_run_back_wgmma<KIND, n, false>(s, p)
    TNC_CASE(TN_ATTEND_SOFTMAX, 64);   TNC_CASE(TN_ATTEND_SQUARED, 64);   TNC_CASE(TN_ATTEND_BILINEAR, 64);
    TNC_CASE(TN_ATTEND_SOFTMAX, 128);  TNC_CASE(TN_ATTEND_SQUARED, 128);  TNC_CASE(TN_ATTEND_BILINEAR, 128);
#undef TNC_CASE
    return false;
}
