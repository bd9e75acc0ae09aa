#include "cuda/inner.h"

/* ---- embed -------------------------------------------------------------------------------------------------- >>cuda-embed
   y[r] = table[ids[r]]. A group of threads copies one row of the table at a time, in vectors. Floor: reads and writes R
   d numbers. */

template <typename T, int V> static __global__ void __launch_bounds__(TNC_THREADS)
tnc_embed_kernel(const typename tnc_real<T>::type *table, const int32_t *ids, T *y, int32_t *fault, int64_t rows, int64_t d,
                 int64_t words, int lanes, int32_t who)
{
    typedef typename tnc_real<T>::type R;
    const int64_t n = d / V, step = (int64_t)gridDim.x * (TNC_THREADS / lanes);
    const int     lane = tnc_lane(lanes);
    for (int64_t row = (int64_t)blockIdx.x * (TNC_THREADS / lanes) + (int)threadIdx.x / lanes; row < rows; row += step) {
        const int32_t id = ids[row];
        const bool    good = id >= 0 && id < words;
        const R      *from = table + (good ? id : 0) * d;
        T            *to = y + row * d;
        TNC_UNROLL_BY(4)
        for (int64_t i = lane; i < n; i += lanes) {
            R v[V] = {};
            if (good) tnc_load(v, from + i * V);
            tnc_store(to + i * V, v);
        }
        if (!good && lane == 0) tnc_bad_id(fault, ids, row, words, who);
    }
}

template <typename T, int V> static void tnc_embed_launch(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const int64_t rows = c->out[0].shape[0], d = c->out[0].shape[1];
    const int     lanes = tnc_lanes(d / V, 32);
    TNC_START((tnc_embed_kernel<T, V>), tnc_grid(s, rows, TNC_THREADS / lanes), (const R *)c->in[0].data,
              (const int32_t *)c->in[1].data, (T *)c->out[0].data, (int32_t *)c->out[1].data, rows, d, c->in[0].shape[0],
              lanes, (int32_t)c->i[0]);
}

template <typename T> static tn_status tnc_embed_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count };
    if (!tnc_has(&c->in[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (c->out[0].shape[0] == 0) return TN_OK;
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->out[0].data))
        tnc_embed_launch<T, V>(s, c);
    else tnc_embed_launch<T, 1>(s, c);
    return TN_OK;
}

TNC_FN tn_status tnc_embed(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->out[0].dtype, T, return tnc_embed_of<T>(s, c))
}

/* ---- embed_backward ------------------------------------------------------------------------------------ >>cuda-embed-back
   dtable[id] += the sum of dy[r] over all r with ids[r] = id, in an order that is the same in every run. Positions are
   sorted by id, equal ids by position (a stable radix sort with 8 bits per pass and integer counters), and divided into
   tiles of equal length. A tile sums its runs of equal ids. A run that crosses tiles leaves a partial sum in each, and a
   second kernel adds these from left to right. Floor: reads R d numbers, reads and writes the rows of dtable that occur. */

enum { TNC_SORT_THREADS = 512, TNC_SORT_BLOCKS = 128, TNC_SORT_COUNTERS = 256 * TNC_SORT_BLOCKS };

typedef struct tnc_sort {
    const int32_t  *ids;                    /* of the first pass                                       */
    const uint32_t *key, *row;              /* of later passes                                         */
    uint32_t       *to_key, *to_row;
    uint32_t       *count, *next_count;     /* [blocks,256]: how often each digit occurs in each chunk */
    int64_t         n, chunk, words;
    int             shift, blocks;
} tnc_sort;

/* Ids outside the table are sorted to the end, where they are ignored. */
static __device__ __forceinline__ uint32_t tnc_sort_key(const tnc_sort &s, int64_t i)
{
    if (!s.ids) return s.key[i];
    return s.ids[i] >= 0 && s.ids[i] < s.words ? (uint32_t)s.ids[i] : (uint32_t)s.words;
}

static __global__ void __launch_bounds__(TNC_SORT_THREADS) tnc_sort_count_kernel(tnc_sort s)
{
    TNC_SHARED(uint32_t, count, [256]);
    const int64_t begin = (int64_t)blockIdx.x * s.chunk, end = begin + s.chunk < s.n ? begin + s.chunk : s.n;
    const int     me = (int)threadIdx.x;
    if (me < 256) count[me] = 0;
    __syncthreads();
    for (int64_t i = begin + me; i < end; i += TNC_SORT_THREADS) atomicAdd(&count[tnc_sort_key(s, i) >> s.shift & 255], 1u);
    __syncthreads();
    if (me < 256) {
        s.count[blockIdx.x * 256 + me] = count[me];
        s.next_count[blockIdx.x * 256 + me] = 0;
    }
}

/* Computes where each digit of this block's chunk begins in the sorted order, into start[256]. */
static __device__ void tnc_sort_begin(const tnc_sort &s, uint32_t *start, uint32_t *sums)
{
    const int me = (int)threadIdx.x;
    uint32_t  before = 0, total = 0;
    if (me < 256) {
        TNC_UNROLL_BY(8)
        for (int k = 0; k < s.blocks; k++) {
            const uint32_t x = s.count[k * 256 + me];
            if (k < (int)blockIdx.x) before += x;
            total += x;
        }
        sums[me] = total;
    }
    __syncthreads();
    for (int k = 1; k < 256; k *= 2) {
        const uint32_t left = me < 256 && me >= k ? sums[me - k] : 0;
        __syncthreads();
        if (me < 256) sums[me] += left;
        __syncthreads();
    }
    if (me < 256) start[me] = sums[me] - total + before;
    __syncthreads();
}

/* One pass of the sort. A warp ranks its 32 digits by ballots, and the block ranks its warps. It also counts the digits of
   the next pass, for the chunks that will hold them. */
static __global__ void __launch_bounds__(TNC_SORT_THREADS) tnc_sort_kernel(tnc_sort s)
{
    enum { WARPS = TNC_SORT_THREADS / 32 };
    TNC_SHARED(uint32_t, start, [256]);
    TNC_SHARED(uint32_t, count, [WARPS][256]);
    const int64_t begin = (int64_t)blockIdx.x * s.chunk, end = begin + s.chunk < s.n ? begin + s.chunk : s.n;
    const int     me = (int)threadIdx.x, lane = me & 31, warp = me >> 5;
    tnc_sort_begin(s, start, &count[0][0]);
    for (int64_t i = begin; i < end; i += TNC_SORT_THREADS) {
        const bool     live = i + me < end;
        const uint32_t key = live ? tnc_sort_key(s, i + me) : 0, digit = key >> s.shift & 255;
        unsigned       peers = __ballot_sync(0xffffffffu, live);
        for (int k = me; k < WARPS * 256; k += TNC_SORT_THREADS) (&count[0][0])[k] = 0;
        TNC_UNROLL
        for (int k = 0; k < 8; k++) {
            const unsigned have = __ballot_sync(0xffffffffu, digit >> k & 1);
            peers &= digit >> k & 1 ? have : ~have;
        }
        int rank = __popc(peers & ((1u << lane) - 1));
        __syncthreads();
        if (live && rank == 0) count[warp][digit] = (uint32_t)__popc(peers);
        __syncthreads();
        if (me < 256) {
            uint32_t at = start[me];
            for (int k = 0; k < WARPS; k++) {
                const uint32_t x = count[k][me];
                count[k][me] = at;
                at += x;
            }
            start[me] = at;
        }
        __syncthreads();
        if (live) {
            const uint32_t to = count[warp][digit] + (uint32_t)rank;
            s.to_key[to] = key;
            s.to_row[to] = s.ids ? (uint32_t)(i + me) : s.row[i + me];
            if (s.next_count) atomicAdd(&s.next_count[to / s.chunk * 256 + (key >> s.shift >> 8 & 255)], 1u);
        }
        __syncthreads();
    }
}

typedef struct tnc_runs {
    const uint32_t *key, *row;              /* sorted           */
    int64_t         n, d, words, tile, tiles;
    int             lanes;                  /* threads per tile */
} tnc_runs;

/* Whether the run at position i continues at i + 1. */
static __device__ __forceinline__ bool tnc_run_on(const tnc_runs &r, int64_t i)
{
    return i + 1 < r.n && r.key[i] == r.key[i + 1];
}

/* The tile of a thread and the first of its V columns, for both kernels. False if there is none. */
template <int V> static __device__ __forceinline__ bool tnc_runs_place(const tnc_runs &r, int64_t *tile, int64_t *column)
{
    *tile = (int64_t)blockIdx.x * ((int)blockDim.x / r.lanes) + (int)threadIdx.x / r.lanes;
    *column = ((int64_t)blockIdx.y * r.lanes + (int)threadIdx.x % r.lanes) * V;
    return *tile < r.tiles && *column < r.d;
}

/* share[tiles,2,d]: the partial sums of a tile, of the run that comes in from the left, and of the run that begins here and
   goes on to the right. */
template <typename T, int V> static __global__ void __launch_bounds__(128)
tnc_runs_kernel(tnc_runs r, const T *dy, typename tnc_real<T>::type *table, typename tnc_real<T>::type *share)
{
    typedef typename tnc_real<T>::type R;
    enum { AHEAD = 8 };
    int64_t tile, column;
    R       sum[V] = {};
    if (!tnc_runs_place<V>(r, &tile, &column)) return;
    int64_t begin = tile * r.tile;
    int64_t end = begin + r.tile < r.n ? begin + r.tile : r.n;
    bool    from_left = begin > 0 && tnc_run_on(r, begin - 1);
    for (int64_t i = begin; i < end; i += AHEAD) {
        tnc_pack<T, V> piece[AHEAD];
        TNC_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            const int64_t at = i + j < end ? i + j : end - 1;
            piece[j] = tnc_fetch<V>(dy + (int64_t)r.row[at] * r.d + column);
        }
        TNC_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            R v[V];
            if (i + j >= end || r.key[i + j] >= r.words) break;
            tnc_unpack(v, piece[j]);
            TNC_EACH sum[k] += v[k];
            if (i + j + 1 < end && tnc_run_on(r, i + j)) continue;
            if (from_left) tnc_store(share + 2 * tile * r.d + column, sum);
            else if (tnc_run_on(r, i + j)) tnc_store(share + (2 * tile + 1) * r.d + column, sum);
            else tnc_add_to(table + (int64_t)r.key[i + j] * r.d + column, sum);
            from_left = false;
            TNC_EACH sum[k] = 0;
        }
    }
}

/* For each run that crosses tiles: the tile in which it begins adds its partial sums. */
template <typename R, int V> static __global__ void __launch_bounds__(128)
tnc_runs_combine_kernel(tnc_runs r, R *table, const R *share)
{
    int64_t tile, column;
    R       sum[V];
    if (!tnc_runs_place<V>(r, &tile, &column) || tile + 1 >= r.tiles) return;
    int64_t  last = (tile + 1) * r.tile - 1;
    uint32_t key = r.key[last];
    if (key >= r.words || !tnc_run_on(r, last)) return;
    if (tile > 0 && r.key[tile * r.tile - 1] == key) return;                    /* it begins further left */
    int64_t step = 1;
    for (last = tile + 1; last + step < r.tiles && r.key[(last + step) * r.tile] == key; step *= 2) last += step;
    for (; step; step /= 2) if (last + step < r.tiles && r.key[(last + step) * r.tile] == key) last += step;
    tnc_load(sum, share + (2 * tile + 1) * r.d + column);
    TNC_UNROLL_BY(4)
    for (int64_t i = tile + 1; i <= last; i++) {
        R v[V];
        tnc_load(v, share + 2 * i * r.d + column);
        TNC_EACH sum[k] += v[k];
    }
    tnc_add_to(table + (int64_t)key * r.d + column, sum);
}

template <typename T, int V> static void tnc_runs_launch(tnc *s, const tn_call *c, tnc_runs r, void *share)
{
    typedef typename tnc_real<T>::type R;
    const int64_t pieces = r.d / V;
    r.lanes = tnc_lanes(pieces, 128);
    if (pieces > 32 && pieces < 128) r.lanes = 32 * (int)tnc_ceil(pieces, 32);
    dim3 grid = dim3((unsigned)tnc_ceil(r.tiles, r.lanes > 64 ? 1 : 128 / r.lanes), (unsigned)tnc_ceil(pieces, r.lanes));
    TNC_LAUNCH((tnc_runs_kernel<T, V>), grid, r.lanes > 64 ? r.lanes : 128, 0, s->stream, r, (const T *)c->in[1].data,
               (R *)c->out[0].data, (R *)share);
    if (r.tiles > 1)
        TNC_LAUNCH((tnc_runs_combine_kernel<R, V>), grid, r.lanes > 64 ? r.lanes : 128, 0, s->stream, r, (R *)c->out[0].data,
                   (const R *)share);
}

/* Sorts the positions in scratch. `rest`: number of bytes that the caller needs after them, at *after. */
static tn_status tnc_sort_ids(tnc *s, const int32_t *ids, int64_t n, int64_t words, size_t rest, tnc_runs *r, void **after)
{
    const size_t each = ((size_t)n * 4 + 15) / 16 * 16;
    tnc_sort     sort;
    uint32_t    *key[2], *row[2], *count[2];
    int          passes = 1;
    char        *scratch = (char *)tnc_scratch(s, 4 * each + 2 * TNC_SORT_COUNTERS * sizeof(uint32_t) + rest);
    if (!scratch) return TN_ERR_MEMORY;
    for (int pass = 0; pass < 2; pass++) {
        key[pass] = (uint32_t *)(void *)(scratch + 2 * (size_t)pass * each);
        row[pass] = (uint32_t *)(void *)(scratch + (2 * (size_t)pass + 1) * each);
        count[pass] = (uint32_t *)(void *)(scratch + 4 * each) + pass * TNC_SORT_COUNTERS;
    }
    *after = scratch + 4 * each + 2 * TNC_SORT_COUNTERS * sizeof(uint32_t);
    while (passes < 4 && words >> 8 * passes) passes++;
    memset(&sort, 0, sizeof sort);
    sort.n = n;
    sort.words = words;
    sort.chunk = tnc_ceil(tnc_ceil(n, TNC_SORT_BLOCKS), 4 * TNC_SORT_THREADS) * 4 * TNC_SORT_THREADS;
    sort.blocks = (int)tnc_ceil(n, sort.chunk);
    sort.ids = ids;
    for (int pass = 0; pass < passes; pass++) {
        sort.shift = 8 * pass;
        sort.count = count[pass % 2];
        sort.next_count = count[1 - pass % 2];
        sort.to_key = key[pass % 2];
        sort.to_row = row[pass % 2];
        if (pass != 1) TNC_LAUNCH(tnc_sort_count_kernel, (unsigned)sort.blocks, TNC_SORT_THREADS, 0, s->stream, sort);
        if (pass + 1 >= passes || pass > 0) sort.next_count = NULL;
        TNC_LAUNCH(tnc_sort_kernel, (unsigned)sort.blocks, TNC_SORT_THREADS, 0, s->stream, sort);
        sort.ids = NULL;
        sort.key = sort.to_key;
        sort.row = sort.to_row;
    }
    r->key = sort.key;
    r->row = sort.row;
    return TN_OK;
}

template <typename T> static tn_status tnc_embed_backward_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count };
    tnc_runs r;
    void    *share;
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    memset(&r, 0, sizeof r);
    r.n = c->in[1].shape[0];
    r.d = c->in[1].shape[1];
    r.words = c->out[0].shape[0];
    if (r.n == 0 || r.d == 0 || r.words == 0) return TN_OK;
    if (r.n > (int64_t)UINT32_MAX || r.words > (int64_t)INT32_MAX) return TN_ERR_SHAPE;
    for (r.tile = 16; r.tile * 1024 < r.n; r.tile *= 2) {}
    r.tiles = tnc_ceil(r.n, r.tile);
    tn_status status = tnc_sort_ids(s, (const int32_t *)c->in[0].data, r.n, r.words, (size_t)(2 * r.tiles * r.d) * sizeof(R), &r,
                                    &share);
    if (status != TN_OK) return status;
    if (r.d % V == 0 && tnc_aligned(c->in[1].data) && tnc_aligned(c->out[0].data)) tnc_runs_launch<T, V>(s, c, r, share);
    else tnc_runs_launch<T, 1>(s, c, r, share);
    return TN_OK;
}

TNC_FN tn_status tnc_embed_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[1].dtype, T, return tnc_embed_backward_of<T>(s, c))
}
