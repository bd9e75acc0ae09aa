#include "cuda/inner.h"

/* ---- rope, rope_backward ------------------------------------------------------------------------------------- >>cuda-rope
   A block has one position t and some of the rows [b,t,n] of that position. The cosines and sines of t are computed once, in
   double since t may exceed a hundred thousand, and kept in shared memory. A group of lanes (`team`) has one row, and a lane
   one vector of its first half and one of its second. A row is read once, also for its norm. Rows that are not aligned, or
   longer than the vectors of a warp, are computed by a plain kernel with a warp per row. Floor: the bytes of x and y;
   backward those of dy and dx, and of x if there is a norm. */

typedef struct tnc_rope_args {
    const void *x, *dy;                  /* dy: NULL in the forward pass          */
    void   *y;                           /* or dx                                 */
    int64_t x_step[3], dy_step[3], y_step[3];
    int64_t batch, length, heads, d, first;
    int64_t pieces, rows;                /* blocks per position, rows of each     */
    double  octaves;                     /* pair k is rotated by t 2^(-k octaves) */
    double  slope, start, least;         /* scaling, see >>op-rope: s = start + slope rate; least = 1/factor, or 1 */
    double  eps;                         /* negative: no norm                     */
    int     team;
    bool    still, add;
} tnc_rope_args;

static __device__ __forceinline__ void tnc_rope_angle(const tnc_rope_args &g, int64_t t, int64_t k, double *cosine,
                                                      double *sine)
{
    const double rate = exp2(-(double)k * g.octaves), s = fmin(fmax(fma(g.slope, rate, g.start), 0.0), 1.0);
    *cosine = 1;
    *sine = 0;
    if (!g.still)
        tnc_sincospi((double)(g.first + t) * rate * fma(s, 1 - g.least, g.least) * 0.3183098861837907, sine, cosine);
}

/* The last step of the backward pass; pull contains the sums over the row of x * x and of x * g. Without a norm, norm is 1,
   and x and pull are 0. */
template <typename R>
static __device__ __forceinline__ R tnc_rope_back(R g, R x, R norm, R pull) { return norm * (g - x * pull); }

template <typename T, bool BACK>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_rope_kernel(const tnc_rope_args g)
{
    typedef typename tnc_real<T>::type R;
    enum { V = (int)(16 / sizeof(T)) };
    TNC_DYN_SHARED(R, turn);
    const int  h = (int)(g.d / 2), lane = tnc_lane(g.team), teams = TNC_THREADS / g.team, mine = (int)threadIdx.x / g.team;
    const bool norms = g.eps >= 0;
    for (int64_t task = blockIdx.x; task < g.length * g.pieces; task += gridDim.x) {
        const int64_t t = task / g.pieces, begin = task % g.pieces * g.rows;
        const int64_t all = g.batch * g.heads, end = begin + g.rows < all ? begin + g.rows : all;
        for (int k = (int)threadIdx.x; k < h; k += TNC_THREADS) {
            double cosine, sine;
            tnc_rope_angle(g, t, k, &cosine, &sine);
            turn[k] = (R)cosine;
            turn[h + k] = (R)sine;
        }
        __syncthreads();
        for (int64_t base = begin; base < end; base += teams) {
            const int64_t row = base + mine, b = row / g.heads, n = row - b * g.heads;
            const bool    live = row < end && lane * V < h;
            T            *y = (T *)g.y + b * g.y_step[0] + t * g.y_step[1] + n * g.y_step[2] + lane * V;
            R x0[V] = {}, x1[V] = {}, d0[V], d1[V], old0[V], old1[V], squares = 0, dot = 0, norm = 1, pull = 0;
            if (live) {
                const T *x = (const T *)g.x + b * g.x_step[0] + t * g.x_step[1] + n * g.x_step[2] + lane * V;
                if (!BACK || norms) {
                    tnc_load(x0, x);
                    tnc_load(x1, x + h);
                }
                if (BACK) {
                    const T *dy = (const T *)g.dy + b * g.dy_step[0] + t * g.dy_step[1] + n * g.dy_step[2] + lane * V;
                    tnc_load(d0, dy);
                    tnc_load(d1, dy + h);
                }
                if (g.add) {
                    tnc_load(old0, y);
                    tnc_load(old1, y + h);
                }
                TNC_EACH {
                    const R cosine = turn[lane * V + k], sine = turn[h + lane * V + k];
                    if (BACK) {
                        const R back = tnc_fma(d0[k], cosine, d1[k] * sine);
                        d1[k] = tnc_fma(d1[k], cosine, -d0[k] * sine);
                        d0[k] = back;
                    }
                    if (norms) {
                        squares = tnc_fma(x0[k], x0[k], tnc_fma(x1[k], x1[k], squares));
                        if (BACK) dot = tnc_fma(x0[k], d0[k], tnc_fma(x1[k], d1[k], dot));
                    }
                }
            }
            if (norms) {
                squares = tnc_lanes_sum(squares, g.team);
                if (BACK) dot = tnc_lanes_sum(dot, g.team);
                norm = R(1) / (R)sqrt(squares / (R)g.d + (R)g.eps);
                pull = norm * norm * dot / (R)g.d;
            }
            if (!live) continue;
            TNC_EACH {
                if (BACK) {
                    d0[k] = tnc_rope_back(d0[k], x0[k], norm, pull);
                    d1[k] = tnc_rope_back(d1[k], x1[k], norm, pull);
                } else {
                    const R cosine = turn[lane * V + k], sine = turn[h + lane * V + k];
                    d0[k] = norm * tnc_fma(x0[k], cosine, -x1[k] * sine);
                    d1[k] = norm * tnc_fma(x1[k], cosine, x0[k] * sine);
                }
                if (g.add) {
                    d0[k] += old0[k];
                    d1[k] += old1[k];
                }
            }
            tnc_store(y, d0);
            tnc_store(y + h, d1);
        }
        __syncthreads();
    }
}

/* Pair k of a row, rotated; backward R_t^T dy. k = h is the last number of a row of odd length, which is not rotated. */
template <typename R, typename T>
static __device__ __forceinline__ void tnc_rope_pair(const tnc_rope_args &g, const T *x, int64_t t, int64_t k, R *first,
                                                     R *second)
{
    const int64_t h = g.d / 2;
    double        cosine, sine;
    const R       a = tnc_to(x[k < h ? k : g.d - 1]), b = k < h ? tnc_to(x[k + h]) : R(0);
    tnc_rope_angle(g, t, k, &cosine, &sine);
    if (k >= h) {
        *first = a;
        *second = 0;
        return;
    }
    if (g.dy) sine = -sine;
    *first = tnc_fma(a, (R)cosine, -b * (R)sine);
    *second = tnc_fma(b, (R)cosine, a * (R)sine);
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_rope_plain_kernel(const tnc_rope_args g)
{
    typedef typename tnc_real<T>::type R;
    const int     lane = (int)threadIdx.x & 31;
    const int64_t rows = g.batch * g.length * g.heads, all = (int64_t)gridDim.x * (TNC_THREADS / 32), h = g.d / 2;
    for (int64_t row = (int64_t)blockIdx.x * (TNC_THREADS / 32) + (threadIdx.x >> 5); row < rows; row += all) {
        const int64_t n = row % g.heads, t = row / g.heads % g.length, b = row / g.heads / g.length;
        const T      *x = (const T *)g.x + b * g.x_step[0] + t * g.x_step[1] + n * g.x_step[2];
        const T      *dy = (const T *)g.dy + b * g.dy_step[0] + t * g.dy_step[1] + n * g.dy_step[2];
        T            *y = (T *)g.y + b * g.y_step[0] + t * g.y_step[1] + n * g.y_step[2];
        R             squares = 0, dot = 0, norm = 1, pull = 0, first, second;
        if (g.eps >= 0) {
            for (int64_t k = lane; k < g.d; k += 32) squares = tnc_fma(tnc_to(x[k]), tnc_to(x[k]), squares);
            for (int64_t k = lane; g.dy && k < h + g.d % 2; k += 32) {
                tnc_rope_pair<R>(g, dy, t, k, &first, &second);
                dot += first * tnc_to(x[k < h ? k : g.d - 1]) + (k < h ? second * tnc_to(x[k + h]) : R(0));
            }
            norm = R(1) / (R)sqrt(tnc_warp_sum(squares) / (R)g.d + (R)g.eps);
            pull = norm * norm * tnc_warp_sum(dot) / (R)g.d;
        }
        for (int64_t k = lane; k < h + g.d % 2; k += 32) {
            T *to = y + (k < h ? k : g.d - 1);
            tnc_rope_pair<R>(g, g.dy ? dy : x, t, k, &first, &second);
            if (!g.dy) first *= norm;
            else if (g.eps >= 0) first = tnc_rope_back(first, tnc_to(x[k < h ? k : g.d - 1]), norm, pull);
            *to = tnc_from<T>(g.add ? tnc_to(*to) + first : first);
            if (k >= h) continue;
            to = y + k + h;
            if (!g.dy) second *= norm;
            else if (g.eps >= 0) second = tnc_rope_back(second, tnc_to(x[k + h]), norm, pull);
            *to = tnc_from<T>(g.add ? tnc_to(*to) + second : second);
        }
    }
}

static bool tnc_heads_aligned(const tn_view *v, int64_t bytes)
{
    for (int i = 0; i < 3; i++)
        if (v->shape[i] > 1 && v->strides[i] * bytes % 16 != 0) return false;
    return tnc_aligned(v->data);
}

template <typename T> static void tnc_rope_run(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const tn_view *x = &c->in[0], *dy = c->n_in > 1 ? &c->in[1] : NULL, *y = &c->out[0];
    const int64_t  d = x->shape[3], rows = x->shape[0] * x->shape[2], lanes = d / 2 * (int64_t)sizeof(T) / 16;
    tnc_rope_args      g;
    memset(&g, 0, sizeof g);
    g.x = x->data;
    g.dy = dy ? dy->data : NULL;
    g.y = y->data;
    for (int i = 0; i < 3; i++) {
        g.x_step[i] = x->strides[i];
        g.dy_step[i] = dy ? dy->strides[i] : 0;
        g.y_step[i] = y->strides[i];
    }
    g.batch = x->shape[0];
    g.length = x->shape[1];
    g.heads = x->shape[2];
    g.d = d;
    g.first = c->i[0];
    g.octaves = 2 * log2(c->f[0]) / (double)(d > 0 ? d : 1);
    g.eps = c->f[1];
    g.least = c->f[2] > 0 ? 1 / c->f[2] : 1;
    g.slope = c->f[5] > 0 ? c->f[5] / (6.283185307179586477 * (c->f[4] - c->f[3])) : 0;
    g.start = c->f[5] > 0 ? -c->f[3] / (c->f[4] - c->f[3]) : 0;
    g.still = c->i[1] != 0;
    g.add = c->accumulate;
    if (rows * g.length * d == 0) return;
    if (d * (int64_t)sizeof(T) % 32 == 0 && lanes <= 32 && tnc_heads_aligned(x, sizeof(T)) && tnc_heads_aligned(y, sizeof(T))
        && (!dy || tnc_heads_aligned(dy, sizeof(T)))) {
        const size_t shared = (size_t)d * sizeof(R);
        g.team = tnc_lanes(lanes, 32);
        g.pieces = tnc_ceil(2048, g.length);                    /* enough blocks, but at least four rows per team */
        if (g.pieces > rows * g.team / (4 * TNC_THREADS)) g.pieces = rows * g.team / (4 * TNC_THREADS);
        if (g.pieces < 1) g.pieces = 1;
        g.rows = tnc_ceil(rows, g.pieces);
        g.pieces = tnc_ceil(rows, g.rows);
        if (dy) TNC_LAUNCH((tnc_rope_kernel<T, true>), tnc_blocks(g.length * g.pieces, 1), TNC_THREADS, shared, s->stream,
                           g);
        else TNC_LAUNCH((tnc_rope_kernel<T, false>), tnc_blocks(g.length * g.pieces, 1), TNC_THREADS, shared, s->stream, g);
    } else TNC_START((tnc_rope_plain_kernel<T>), tnc_blocks(rows * g.length, TNC_THREADS / 32), g);
}

TNC_FN tn_status tnc_rope(tnc *s, const tn_call *c)
{
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_rope_run<T>(s, c))
    return TN_OK;
}

TNC_FN tn_status tnc_rope_backward(tnc *s, const tn_call *c) { return tnc_rope(s, c); }
