#pragma once
#include "cuda/rows.h"

/* ---- indices of strided views -------------------------------------------------------------------------------- >>cuda-walk
   A walk is what a kernel receives in place of up to three views of one shape. Axes that are contiguous with each other in
   every view are merged, and axes are sorted so that those with the smallest strides of view 0 come first. A thread finds
   the offset of its element in each view by divisions, which are multiplications where numbers are below 2^31: q = (high(n *
   m) + n) >> shift with m = 2^32 (2^shift - d) / d + 1 (Granlund & Montgomery 1994). A widened walk has pieces of V elements
   along its first axis, where each view has stride 1, or 0 if it is broadcast. */

enum { TNC_VIEWS = 3 };

typedef struct tnc_divisor { int64_t by; uint32_t factor; int32_t shift; } tnc_divisor;

typedef struct tnc_axis { tnc_divisor extent; int64_t step[TNC_VIEWS]; } tnc_axis;

typedef struct tnc_walk {
    int64_t  count;                      /* elements, or pieces */
    int      rank;                       /* at least 1          */
    bool     wide;                       /* 2^31 or more        */
    tnc_axis axis[TN_MAX_RANK];
} tnc_walk;

static inline tnc_divisor tnc_divisor_of(int64_t by)
{
    tnc_divisor d = { by, 1, 0 };
    if (by < 1 || by > INT32_MAX) return d;
    while (d.shift < 31 && ((int64_t)1 << d.shift) < by) d.shift++;
    d.factor = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - (uint64_t)by)) / (uint64_t)by + 1);
    return d;
}

static __device__ __forceinline__ int64_t tnc_divide(int64_t n, const tnc_divisor &d, bool wide)
{
    if (wide) return n / d.by;
    return (int64_t)((uint32_t)((uint64_t)(uint32_t)n * d.factor >> 32) + (uint32_t)n) >> d.shift;
}

template <int VIEWS> static __device__ __forceinline__ void tnc_at(const tnc_walk &w, int64_t i, int64_t (&at)[TNC_VIEWS])
{
    int k;
    for (int v = 0; v < VIEWS; v++) at[v] = 0;
    for (k = 0; k + 1 < w.rank; k++) {
        const int64_t q = tnc_divide(i, w.axis[k].extent, w.wide), r = i - q * w.axis[k].extent.by;
        for (int v = 0; v < VIEWS; v++) at[v] += r * w.axis[k].step[v];
        i = q;
    }
    for (int v = 0; v < VIEWS; v++) at[v] += i * w.axis[k].step[v];
}

/* The walk of up to three views of the shape of the first; absent views are NULL. */
static inline tnc_walk tnc_walk_of(const tn_view *a, const tn_view *b, const tn_view *c)
{
    const tn_view *view[TNC_VIEWS] = { a, b, c };
    tnc_walk w;
    int      i, k;
    memset(&w, 0, sizeof w);
    w.count = 1;
    for (i = a->rank - 1; i >= 0; i--) {
        tnc_axis axis = { tnc_divisor_of(a->shape[i]), { 0, 0, 0 } };
        w.count *= a->shape[i];
        if (a->shape[i] == 1) continue;
        for (int v = 0; v < TNC_VIEWS; v++) axis.step[v] = view[v] ? view[v]->strides[i] : 0;
        for (k = w.rank++; k > 0 && llabs(w.axis[k - 1].step[0]) > llabs(axis.step[0]); k--) w.axis[k] = w.axis[k - 1];
        w.axis[k] = axis;
    }
    w.wide = w.count > INT32_MAX;
    for (i = 1, k = 0; i < w.rank; i++) {
        bool follows = true;
        for (int v = 0; v < TNC_VIEWS; v++)
            follows = follows && w.axis[i].step[v] == w.axis[k].step[v] * w.axis[k].extent.by;
        if (follows) w.axis[k].extent = tnc_divisor_of(w.axis[k].extent.by * w.axis[i].extent.by);
        else w.axis[++k] = w.axis[i];
    }
    if (w.rank > 0) w.rank = k + 1;
    else {
        w.rank = 1;
        w.axis[0].extent = tnc_divisor_of(1);
    }
    return w;
}

/* Widens a walk to pieces of V elements. Returns false and does nothing if in some view with a nonzero size the pieces are
   not contiguous and 16-byte aligned. */
static inline bool tnc_walk_widen(tnc_walk *w, int V, const void *const *p, const size_t *size)
{
    if (w->axis[0].extent.by % V != 0) return false;
    for (int v = 0; v < TNC_VIEWS; v++) {
        if (size[v] == 0 || (v > 0 && w->axis[0].step[v] == 0)) continue;
        if (w->axis[0].step[v] != 1 || !tnc_aligned(p[v])) return false;
        for (int k = 1; k < w->rank; k++)
            if (w->axis[k].step[v] * (int64_t)size[v] % 16 != 0) return false;
    }
    w->axis[0].extent = tnc_divisor_of(w->axis[0].extent.by / V);
    for (int v = 0; v < TNC_VIEWS; v++) w->axis[0].step[v] *= V;
    w->count /= V;
    w->wide = w->count > INT32_MAX;
    return true;
}

/* ---- elementwise kernels -------------------------------------------------------------------------------------- >>cuda-map
   y = op(a, b), or y += op(a, b), in one pass: each byte is read once and written once, in vectors of 16 bytes. A thread
   loads two vectors before it computes, which keeps at least 32 KiB of loads per multiprocessor in flight. An op is a
   functor on arrays, so that a switch inside it is evaluated once per vector. It declares the number of its inputs, and
   whether it can be added to y. */

template <int V, typename T>
static __device__ __forceinline__ void tnc_load_or_spread(typename tnc_real<T>::type (&to)[V], const T *from, bool one)
{
    if (V == 1 || !one) tnc_load(to, from);
    else {
        const typename tnc_real<T>::type x = tnc_to(*from);
        TNC_EACH to[k] = x;
    }
}

template <class Op, int V, typename Y, typename A, typename B>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_map_kernel(const tnc_walk w, const Op op, Y *y, const A *a, const B *b, const bool add)
{
    typedef typename tnc_real<Y>::type R;
    enum { PIECES = 2 };
    const int64_t all = (int64_t)gridDim.x * (TNC_THREADS * PIECES);
    for (int64_t first = (int64_t)blockIdx.x * (TNC_THREADS * PIECES) + threadIdx.x; first < w.count; first += all) {
        int64_t at[PIECES][TNC_VIEWS];
        R va[PIECES][V], vb[PIECES][V], vy[PIECES][V];
        TNC_UNROLL
        for (int u = 0; u < PIECES; u++) {
            if (first + u * TNC_THREADS >= w.count) break;
            tnc_at<1 + Op::inputs>(w, first + u * TNC_THREADS, at[u]);
            if constexpr (Op::inputs > 0) {
                tnc_load_or_spread<V>(va[u], a + at[u][1], w.axis[0].step[1] == 0);
            }
            if constexpr (Op::inputs > 1) {
                tnc_load_or_spread<V>(vb[u], b + at[u][2], w.axis[0].step[2] == 0);
            }
            if constexpr (Op::adds) {
                if (add) tnc_load(vy[u], y + at[u][0]);
            }
        }
        TNC_UNROLL
        for (int u = 0; u < PIECES; u++) {
            R v[V];
            if (first + u * TNC_THREADS >= w.count) break;
            op(v, va[u], vb[u]);
            if constexpr (Op::adds) {
                TNC_EACH if (add) v[k] += vy[u][k];
            }
            tnc_store(y + at[u][0], v);
        }
    }
}

template <class Op, int V, typename Y, typename A, typename B>
static void tnc_map_launch(tnc *s, const tnc_walk &w, const Op &op, Y *y, const A *a, const B *b, bool add)
{
    TNC_START((tnc_map_kernel<Op, V, Y, A, B>), tnc_blocks(w.count, TNC_THREADS * 2), w, op, y, a, b, add);
}

/* w is the walk of y, a, b. Vectors are 16 bytes of the smallest type. If a contiguous array is no multiple of a vector
   long, a second launch computes the last few elements. */
template <class Op, typename Y, typename A, typename B>
static void tnc_map(tnc *s, tnc_walk w, const Op &op, Y *y, const A *a, const B *b, bool add)
{
    constexpr size_t least = sizeof(Y) < sizeof(A) ? sizeof(Y) < sizeof(B) ? sizeof(Y) : sizeof(B)
                                                   : sizeof(A) < sizeof(B) ? sizeof(A) : sizeof(B);
    constexpr int    V = (int)(16 / least);
    const void      *p[TNC_VIEWS] = { y, a, b };
    const size_t     size[TNC_VIEWS] = { sizeof(Y), Op::inputs > 0 ? sizeof(A) : 0, Op::inputs > 1 ? sizeof(B) : 0 };
    tnc_walk         whole = w;
    int64_t          rest = w.rank == 1 ? w.count % V : 0;
    if (w.count == 0) return;
    if (rest > 0 && w.count > V) {
        whole.count -= rest;
        whole.axis[0].extent = tnc_divisor_of(whole.count);
    } else rest = 0;
    if (!tnc_walk_widen(&whole, V, p, size)) {
        tnc_map_launch<Op, 1>(s, w, op, y, a, b, add);
        return;
    }
    tnc_map_launch<Op, V>(s, whole, op, y, a, b, add);
    if (rest > 0) {
        const int64_t done = w.count - rest;
        w.count = rest;
        tnc_map_launch<Op, 1>(s, w, op, y + done * w.axis[0].step[0], Op::inputs > 0 ? a + done * w.axis[0].step[1] : a,
                              Op::inputs > 1 ? b + done * w.axis[0].step[2] : b, add);
    }
}

/* ---- views of column ranges --------------------------------------------------------------------------------- >>cuda-parts
   glu and prod read rows of parts * h columns as several views of h columns each, which share one walk. */

/* Columns [part h, (part + 1) h) of a view whose rows have parts * h columns. */
static inline tn_view tnc_part_view(tn_view x, int64_t parts, int64_t part)
{
    x.shape[1] /= parts;
    x.data = (char *)x.data + part * x.shape[1] * x.strides[1] * tnc_size_of(x.dtype);
    return x;
}

/* Widens the walk of one part of x, dx and dy, if the other parts are aligned like the first. */
static inline bool tnc_parts_widen(tnc_walk *w, int V, size_t size, int64_t h, const void *x, const void *dx, const void *dy)
{
    const void  *p[TNC_VIEWS] = { x, dy, NULL };
    const size_t sizes[TNC_VIEWS] = { size, size, 0 };
    return h % V == 0 && tnc_aligned(dx) && tnc_walk_widen(w, V, p, sizes);
}

/* ---- random numbers, see >>rng of tensornet.h -------------------------------------------------------------- >>cuda-philox
   Philox4x32-10. A thread computes one block of four numbers and uses them for elements 4 i .. 4 i + 3. */

typedef struct tnc_stream_of { uint64_t key, first; uint32_t call; double low, width; } tnc_stream_of;   /* or mean, deviation */

static __device__ __forceinline__ void tnc_philox(const tnc_stream_of &g, uint32_t clock, uint64_t block, uint32_t (&c)[4])
{
    uint32_t key0 = (uint32_t)g.key, key1 = (uint32_t)(g.key >> 32);
    block += g.first;
    c[0] = (uint32_t)block;
    c[1] = (uint32_t)(block >> 32);
    c[2] = g.call;
    c[3] = clock;
    TNC_UNROLL
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[3] = (uint32_t)a;
    }
}

/* A float strictly between 0 and 1: the middle of one of 2^23 equal intervals. Exact. */
static __device__ __forceinline__ float tnc_unit(uint32_t word) { return ((float)(word >> 9) + 0.5f) * (1.0f / 8388608.0f); }

/* Stores elements 4 block .. 4 block + 3 of n, as far as they exist. */
template <typename T>
static __device__ __forceinline__ void tnc_store_four(T *y, int64_t block, int64_t n, bool aligned,
                                                      const typename tnc_real<T>::type (&v)[4])
{
    if (aligned && 4 * block + 4 <= n) {
        tnc_store(y + 4 * block, v);
        return;
    }
    TNC_UNROLL
    for (int k = 0; k < 4; k++)
        if (4 * block + k < n) y[4 * block + k] = tnc_from<T>(v[k]);
}

template <typename T>
static __device__ __forceinline__ void tnc_load_four(typename tnc_real<T>::type (&v)[4], const T *x, int64_t block,
                                                     int64_t n, bool aligned)
{
    if (aligned && 4 * block + 4 <= n) {
        tnc_load(v, x + 4 * block);
        return;
    }
    TNC_UNROLL
    for (int k = 0; k < 4; k++) v[k] = 4 * block + k < n ? tnc_to(x[4 * block + k]) : typename tnc_real<T>::type(0);
}

static inline tnc_stream_of tnc_stream_from(const tn_call *c, double low, double width)
{
    tnc_stream_of g = { (uint64_t)c->i[0], (uint64_t)c->i[2], (uint32_t)c->i[1], low, width };
    return g;
}

/* ---- the fault word ----------------------------------------------------------------------------------------- >>cuda-fault
   Kernels cannot return an error. They write the first one of a step to four numbers in device memory, which the host reads
   later: the kind of error, the row or parameter, the id, the step. Of an invalid id the fourth says who has found it: 0 embed,
   1 gather, 2 cross_entropy. */

/* Reports an invalid id at `row`. The first one of a call is reported, so the thread returns if an earlier row has one.
   `ignored` is no fault: 0 if none is. */
static __device__ inline void tnc_bad_id(int32_t *fault, const int32_t *ids, int64_t row, int64_t end, int32_t who,
                                         int32_t ignored = 0)
{
    for (int64_t i = 0; i < row; i++) if ((ids[i] < 0 || ids[i] >= end) && (ignored == 0 || ids[i] != ignored)) return;
    if (!fault || fault[0] != 0) return;
    fault[0] = 1;
    fault[1] = (int32_t)row;
    fault[2] = ids[row];
    fault[3] = who;
}

static __device__ inline void tnc_not_finite(int32_t *fault, int32_t which, int32_t step)
{
    if (!fault || fault[0] != 0) return;
    fault[0] = 2;
    fault[1] = which;
    fault[2] = 0;
    fault[3] = step;
}
