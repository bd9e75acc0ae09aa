#pragma once
#include "cuda/inner.h"

/* ---- linear attention ------------------------------------------------------------------------------------ >>cuda-linear
   The output and all gradients come from one trilinear sum over the visible pairs, L = sum_ij
   (q1_i.k1_j)(q2_i.k2_j)(u_i.v_j): the output is dL/du, and the gradients are dL/dq1, dL/dq2, dL/dk1, dL/dk2 and dL/dv. So
   there is one formula. The rows x (queries, or keys) have three vectors each, and so have the rows y of the other side.
   For {a,b,m} = {0,1,2} with a < b,

       out_r = sum_s (x_a.y_a)(x_b.y_b) y_m = sum_{i,k} x_a[i] x_b[k] S[..]      S[i0,i1,i2] = sum_s y_0[i0] y_1[i1] y_2[i2]

   This is computed as a chunk scan. Positions are divided into chunks. What the rows of a chunk see of other chunks is in
   the state S, an exclusive prefix sum over the chunks (from the first on for queries, from the last on for keys); what
   they see of their own chunk is computed by pairs. The features phi(x) = x_a (x) x_b are computed where they are used and
   never stored. u_i = c_i dO_i; with a row sum u and v have one more number, see >>op-attention_linear of tensornet.h. In
   squared attention x_0 = x_1 and y_0 = y_1, and both have one gradient.

   A state has d d n numbers (n = dv, or dv + 1), in device memory: 8 MiB in F32 for d = dv = 128. A group of as many chunks
   of as many heads is processed at once as fit into TNC_LINEAR_SCRATCH, or into a sixteenth of the device's memory, rounded
   down to a power of 2 so that what the driver reserves makes no difference; the sums are carried from one group to the
   next. The groups depend on nothing else, and so the order of the sums does not either: if less memory is free, that is an
   error. The single state of one head may exceed the limit. */

enum { TNC_LINEAR_DECODE = 8 };                         /* most queries, and keys, of the kernel for decoding */
static const size_t TNC_LINEAR_SCRATCH = (size_t)1 << 30; /* limit of scratch for states */

/* Row t of head h and batch item b is at p + b * batch + t * row + h * head; its numbers are contiguous. */
typedef struct tnc_linear_set { void *p; int64_t batch, row, head; } tnc_linear_set;

/* Row t has position t + shift. */
typedef struct tnc_linear_side { tnc_linear_set set[3]; int64_t T, shift; } tnc_linear_side;

typedef struct tnc_linear {
    tnc_linear_side x, y;                               /* rows that receive; rows that contribute                  */
    int64_t         w[3];                               /* extents of the three vectors: d, d, n                    */
    int             wide[3];                            /* tensor cores: readable numbers of a row, a multiple of 8 */
    int             D, NE;                              /* extents of a state [D,D,NE]: d and n, or padded          */
    int64_t         stride[3];                          /* strides of the three axes of a state                     */
    int64_t         H, heads;                           /* heads of a batch item, and of all                        */
    int64_t         length, chunk, chunks;              /* number of positions; of a chunk; number of chunks        */
    int64_t         low, high;                          /* chunks [low,high) have a nonempty state                  */
    bool            causal, back;                       /* back: positions >= its own are visible to a row, else <= */
    bool            squared;
} tnc_linear;

/* The row scale c_i of query i */
template <typename R> struct tnc_linear_scale {
    int      kind;
    bool     causal;
    int64_t  Tk, ahead, past;
    R        length;
    const R *stat;
};

/* One result, the output or a gradient: out = or += factor * c_i * dL/d(vector m of x). */
template <typename R> struct tnc_linear_pass {
    tnc_linear_set   out;
    int              m;
    int64_t          width;                             /* number of columns                                     */
    bool             add, scaled;
    bool             f32, pairs;                        /* tensor cores: out is F32, not BF16; aligned for pairs */
    R                factor;
    tnc_linear_scale<R> scale;
};

template <typename R>
static __device__ __forceinline__ R tnc_linear_row_scale(const tnc_linear_scale<R> &c, int64_t head, int64_t T, int64_t i)
{
    int64_t n = c.causal ? c.ahead + i + 1 : c.Tk;
    n = (n < 0 ? 0 : n) + c.past;
    switch (c.kind) {
    case TN_ROW_SCALE_SUM:    return R(1) / c.stat[head * T + i];
    case TN_ROW_SCALE_LENGTH: return R(n) > c.length ? sqrt(c.length / R(n)) : R(1);
    case TN_ROW_SCALE_MEAN:   return n > 0 ? R(1) / R(n) : R(0);
    default:            return R(1);
    }
}

/* Whether the state of a chunk contains anything. An empty state is not read: its zeros times an infinity would be NaN. */
static __device__ __forceinline__ bool tnc_linear_has_state(const tnc_linear &t, int64_t chunk)
{
    return chunk >= t.low && chunk < t.high;
}

template <typename T>
static __device__ __forceinline__ T *tnc_linear_row(const tnc_linear_set &s, int64_t H, int64_t head, int64_t t)
{
    const unsigned item = (unsigned)head / (unsigned)H;         /* there are fewer than 2^32 heads: a fast division */
    return (T *)s.p + item * s.batch + t * s.row + (head - item * H) * s.head;
}

/* Copies one vector per row to [heads,T,pitch] of type P, padded with zeros after `width`. ONE: v' = [v 1]. SLOPE: u' = c
   [dO, -dO.O]. A warp per row. Floor: the bytes read and written. */
enum { TNC_LINEAR_COPY, TNC_LINEAR_ONE, TNC_LINEAR_SLOPE };

template <typename T, typename P>
static __global__ void tnc_linear_pack(tnc_linear_set from, tnc_linear_set o, int mode,
                                       tnc_linear_scale<typename tnc_real<T>::type> c, int64_t H, int64_t heads,
                                int64_t rows, int64_t width, int64_t pitch, P *to)
{
    typedef typename tnc_real<T>::type R;
    const int64_t lane = threadIdx.x & 31, step = (int64_t)gridDim.x * (blockDim.x >> 5);
    for (int64_t at = (int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); at < heads * rows; at += step) {
        const int64_t head = at / rows, t = at % rows;
        const T *x = tnc_linear_row<const T>(from, H, head, t);
        R        scale = mode == TNC_LINEAR_SLOPE ? tnc_linear_row_scale(c, head, rows, t) : R(1), extra = R(0);
        if (mode == TNC_LINEAR_SLOPE && c.kind == TN_ROW_SCALE_SUM) {
            const T *y = tnc_linear_row<const T>(o, H, head, t);
            for (int64_t e = lane; e < width; e += 32) extra -= tnc_to(x[e]) * tnc_to(y[e]);
            extra = tnc_warp_sum(extra);
        }
        if (mode == TNC_LINEAR_ONE) extra = R(1);
        for (int64_t e = lane; e < pitch; e += 32) {
            const R value = e < width ? tnc_to(x[e]) : e == width ? extra : R(0);
            to[at * pitch + e] = tnc_from<P>(typename tnc_real<P>::type(scale * value));
        }
    }
}
