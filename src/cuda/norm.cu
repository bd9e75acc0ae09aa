#include "cuda/inner.h"

/* ---- rmsnorm, residual_rmsnorm, layernorm -------------------------------------------------------------------- >>cuda-norm
   A row is read once and kept in registers; what does not fit is read again. If it is centred, its mean is computed, and
   then the mean of what remains, which corrects the rounding of the first; then its mean square, then y. The squares of
   very large or very small numbers overflow or vanish in a float: such rows are summed in double. ADD: the row is x + branch,
   rounded and written to `total`; everything else is the same, so that the bits are those of an addition and a norm, unless
   x or branch is misaligned and total is not: then V, and with it the order of the sums, differs. Floor: reads and writes R C
   numbers; with ADD, reads and writes 2 R C. */

template <typename T, int V, bool CENTRED, bool ADD>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_norm_kernel(const T *x, const T *branch, const typename tnc_real<T>::type *w, const typename tnc_real<T>::type *b,
                T *total, T *y, typename tnc_real<T>::type *r, int64_t rows, int C, double eps, int lanes)
{
    typedef typename tnc_real<T>::type R;
    enum { HELD = 4 };
    const int    lane = tnc_lane(lanes), each = (int)blockDim.x / lanes;
    const int    n = C / V;
    const double whole = 1.0 / C;
    const R      part = (R)whole;
    for (int64_t base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        const T      *from = (ADD && mine < rows ? (const T *)total : x) + row * C;
        tnc_pack<T, V> held[HELD];
        R    mean = 0, rest = 0, sum = 0;
        auto first = [&](int i) {                       /* the first look at a vector */
            tnc_pack<T, V> p = tnc_fetch<V>(x + row * C + i * V);
            if (ADD) {
                R u[V], v[V];
                tnc_unpack(u, p);
                tnc_load(v, branch + row * C + i * V);
                for (int q = 0; q < V; q++) u[q] += v[q];
                for (int q = 0; q < V; q++) p.x[q] = tnc_from<T>(u[q]);
                if (mine < rows) tnc_store(total + row * C + i * V, u);
            }
            return p;
        };
        auto pieces = [&](auto use) {
            int i, j;
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                R v[V];
                if (lane + j * lanes >= n) break;
                tnc_unpack(v, held[j]);
                use(v, lane + j * lanes);
            }
            for (i = lane + HELD * lanes; i < n; i += lanes) {
                R v[V];
                tnc_load(v, from + i * V);
                use(v, i);
            }
        };
        TNC_UNROLL
        for (int k = 0; k < HELD; k++) if (lane + k * lanes < n) held[k] = first(lane + k * lanes);
        for (int k = lane + HELD * lanes; ADD && k < n; k += lanes) first(k);
        if (CENTRED) {
            pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) mean += v[i] * part; });
            mean = tnc_row_sum(mean, lanes);
            pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) rest += (v[i] - mean) * part; });
            rest = tnc_row_sum(rest, lanes);
        }
        pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) { R z = v[i] - mean - rest; sum = tnc_fma(z, z, sum); } });
        sum = tnc_row_sum(sum, lanes);
        R scale = (R)rsqrt((double)sum * whole + eps);
        if constexpr (sizeof(R) == sizeof(float)) {
            const bool beyond = !(sum > 1e-30f && sum < 1e30f);
            if (__any_sync(0xffffffffu, beyond)) {
                double wide = 0;
                pieces([&](R (&v)[V], int) {
                    for (int i = 0; i < V; i++) { double z = v[i] - mean - rest; wide = fma(z, z, wide); }
                });
                wide = tnc_row_sum(wide, lanes);
                if (beyond) scale = (R)rsqrt(wide * whole + eps);
            }
        }
        if (mine >= rows) continue;
        if (lane == 0) r[row] = scale;
        pieces([&](R (&v)[V], int i) {
            R gain[V] = {}, bias[V] = {};
            if (w) tnc_load(gain, w + i * V);
            if (b) tnc_load(bias, b + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                R z = (v[q] - mean - rest) * scale;
                if (w) z *= gain[q];
                v[q] = b ? z + bias[q] : z;
            }
            tnc_store(y + row * C + i * V, v);
        });
    }
}

template <typename T, int V, bool CENTRED, bool ADD> static void tnc_norm_launch(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const int64_t  rows = c->out[0].shape[0], C = c->out[0].shape[1];
    const tnc_rows at = tnc_rows_of(C / V, 4, TNC_THREADS);
    TNC_LAUNCH((tnc_norm_kernel<T, V, CENTRED, ADD>), tnc_grid(s, rows, at.threads / at.lanes), at.threads, 0, s->stream,
               (const T *)c->in[0].data, (const T *)(ADD ? c->in[1].data : NULL), (const R *)c->in[1 + ADD].data,
               (const R *)(CENTRED ? c->in[2].data : NULL), (T *)(ADD ? c->out[0].data : NULL), (T *)c->out[ADD].data,
               (R *)c->out[1 + ADD].data, rows, (int)C, c->f[0], at.lanes);
}

template <typename T, bool CENTRED, bool ADD> static tn_status tnc_norm_of(tnc *s, const tn_call *c)
{
    enum { V = tnc_wide<T>::count, real = tnc_code<typename tnc_real<T>::type>::dtype };
    bool wide = c->out[0].shape[1] % V == 0;
    for (int i = 0; i < c->n_in; i++) {
        if (!tnc_has(&c->in[i], i <= ADD ? (int)c->in[0].dtype : (int)real)) return TN_ERR_DTYPE;
        wide = wide && tnc_aligned(c->in[i].data);
    }
    for (int i = 0; i <= ADD; i++) {
        if (!tnc_has(&c->out[i], c->in[0].dtype)) return TN_ERR_DTYPE;
        wide = wide && tnc_aligned(c->out[i].data);
    }
    if (!tnc_has(&c->out[1 + ADD], real)) return TN_ERR_DTYPE;
    if (c->out[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (c->out[0].shape[0] == 0 || c->out[0].shape[1] == 0) return TN_OK;
    if (wide) tnc_norm_launch<T, V, CENTRED, ADD>(s, c);
    else tnc_norm_launch<T, 1, CENTRED, ADD>(s, c);
    return TN_OK;
}

TNC_FN tn_status tnc_rmsnorm(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_of<T, false, false>(s, c))
}

TNC_FN tn_status tnc_residual_rmsnorm(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_of<T, false, true>(s, c))
}

TNC_FN tn_status tnc_layernorm(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_of<T, true, false>(s, c))
}

/* ---- rmsnorm_backward, layernorm_backward --------------------------------------------------------------- >>cuda-norm-back
   dx is computed row by row, with x and dy in registers. SUMS: a thread has the same columns in every row, so that it
   accumulates what its rows contribute to dw and db. A block adds these sums in the order of its threads and writes
   part[2,blocks,C], and a second kernel adds the blocks. If a thread would need too many columns, the first kernel saves the
   means of the rows instead, and a third kernel reads x and dy again. Floor: reads 2 R C numbers (3 R C if dx is
   accumulated), writes R C. */

template <int V, bool CENTRED>
struct tnc_norm_held { enum { count = CENTRED && V == 8 ? 2 : 4 }; };     /* vectors that a thread keeps in registers */

template <typename R> struct tnc_norm_more {
    R      *part;                       /* [2,blocks,C], or NULL         */
    R      *means;                      /* [2,rows]: mean, rest; or NULL */
    int64_t rows;
    int     C, lanes;
    bool    accumulate;
};

template <typename T, int V, bool CENTRED, bool SUMS>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_norm_backward_kernel(const T *x, const typename tnc_real<T>::type *w, const typename tnc_real<T>::type *r, const T *dy,
                         T *dx, tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    enum { HELD = tnc_norm_held<V, CENTRED>::count, MINE = SUMS ? HELD * V : 1 };
    const int    lanes = more.lanes, each = (int)blockDim.x / lanes;
    const int    lane = tnc_lane(lanes);
    const int    C = more.C, n = C / V;
    const double whole = 1.0 / C;
    const R      part = (R)whole;
    R            dw[MINE] = {}, db[MINE] = {};
    for (int64_t base = (int64_t)blockIdx.x * each; base < more.rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < more.rows ? mine : more.rows - 1;
        const bool    live = mine < more.rows;
        const T      *from = x + row * C, *from_dy = dy + row * C;
        const R       scale = r[row];
        tnc_pack<T, V> held[HELD], held_dy[HELD];
        R    mean = 0, rest = 0, sum = 0, dot = 0, along = 0;
        bool beyond = false;
        auto pieces = [&](auto use) {               /* use(x, dy, index of the vector, its number among this thread's) */
            R   v[V], d[V];
            int i, j;
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                if (lane + j * lanes >= n) break;
                tnc_unpack(v, held[j]);
                tnc_unpack(d, held_dy[j]);
                use(v, d, lane + j * lanes, j);
            }
            for (i = lane + HELD * lanes; !SUMS && i < n; i += lanes) {
                tnc_load(v, from + i * V);
                tnc_load(d, from_dy + i * V);
                use(v, d, i, 0);
            }
        };
        TNC_UNROLL
        for (int k = 0; k < HELD; k++) {
            if (lane + k * lanes >= n) break;
            held[k] = tnc_fetch<V>(from + (lane + k * lanes) * V);
            held_dy[k] = tnc_fetch<V>(from_dy + (lane + k * lanes) * V);
        }
        if (CENTRED) {
            pieces([&](R (&v)[V], R (&)[V], int, int) { for (int q = 0; q < V; q++) mean += v[q] * part; });
            mean = tnc_row_sum(mean, lanes);
            pieces([&](R (&v)[V], R (&)[V], int, int) { for (int q = 0; q < V; q++) rest += (v[q] - mean) * part; });
            rest = tnc_row_sum(rest, lanes);
            if (more.means && live && lane == 0) {
                more.means[row] = mean;
                more.means[more.rows + row] = rest;
            }
        }
        pieces([&](R (&v)[V], R (&d)[V], int i, int j) {
            R gain[V] = {};
            if (w) tnc_load(gain, w + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                const R z = (v[q] - mean - rest) * scale, g = w ? d[q] * gain[q] : d[q];
                if (SUMS && live) {
                    dw[j * V + q] = tnc_fma(d[q], z, dw[j * V + q]);
                    if (CENTRED) db[j * V + q] += d[q];
                }
                if (CENTRED) sum += g;
                dot = tnc_fma(g, CENTRED ? z : v[q], dot);
            }
        });
        if (!dx) continue;
        if (CENTRED) sum = tnc_row_sum(sum, lanes) * part;
        dot = tnc_row_sum(dot, lanes);         /* the factor of x is computed in double, since that term nearly cancels dy */
        if constexpr (sizeof(R) == sizeof(float) && !CENTRED) {         /* scale^3 or d * v may be out of range: use z */
            const double factor = (double)scale * scale * scale * dot * whole, size = factor < 0 ? -factor : factor;
            const R      least = 1e-37f * C;            /* below, terms may be subnormal; above the range, dot may be NaN */
            beyond = !(scale > 1e-6f && scale < 1e6f) || !(size <= 3.4e38) || (size != 0 && size < 1.2e-38)
               || (dot > -least && dot < least);
            if (__any_sync(0xffffffffu, beyond)) {
                double wide = 0;
                pieces([&](R (&v)[V], R (&d)[V], int i, int) {
                    R gain[V] = {};
                    if (w) tnc_load(gain, w + i * V);
                    for (int q = 0; q < V; q++) {
                        const double g = w ? d[q] * gain[q] : d[q], z = v[q] * scale;
                        wide = fma(g, z, wide);
                    }
                });
                wide = tnc_row_sum(wide, lanes);
                if (beyond) along = (R)(-(double)scale * wide * whole);
            }
        }
        dot = (R)(CENTRED ? -(double)dot * whole : -(double)scale * scale * scale * dot * whole);
        if (!live) continue;
        pieces([&](R (&v)[V], R (&d)[V], int i, int) {
            T *to = dx + row * C + i * V;
            R  gain[V];
            if (w) tnc_load(gain, w + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                const R g = w ? d[q] * gain[q] : d[q];
                if (CENTRED) v[q] = scale * tnc_fma((v[q] - mean - rest) * scale, dot, g - sum);
                else v[q] = beyond ? tnc_fma(v[q] * scale, along, g * scale) : tnc_fma(v[q], dot, g * scale);
            }
            if (more.accumulate) tnc_add_to(to, v);
            else tnc_store(to, v);
        });
    }
    if constexpr (SUMS) {
        TNC_SHARED(R, total, [2][32 * HELD * V]);
        const int group = (int)threadIdx.x / lanes;
        R        *to = more.part + (int64_t)blockIdx.x * C, *to_b = to + (int64_t)gridDim.x * C;
        int       j;
        auto leave = [&](R *at, const R *of, bool first) {
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                if (lane + j * lanes >= n) break;
                for (int q = 0; q < V; q++) {
                    R *one = at + (lane + j * lanes) * V + q;
                    *one = first ? of[j * V + q] : *one + of[j * V + q];
                }
            }
        };
        for (int g = 0; g < each; g++) {
            if (g == group) {
                leave(each > 1 ? total[0] : to, dw, g == 0);
                if (CENTRED) leave(each > 1 ? total[1] : to_b, db, g == 0);
            }
            __syncthreads();
        }
        for (j = (int)threadIdx.x; each > 1 && j < C; j += (int)blockDim.x) {
            to[j] = total[0][j];
            if (CENTRED) to_b[j] = total[1][j];
        }
    }
}

/* The contributions of chunks of rows to dw and db, part[2,chunks,C]. A block has 32 columns and reads 8 rows at a time. */
template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_norm_columns_kernel(const T *x, const typename tnc_real<T>::type *r, const T *dy, int64_t chunk,
                        tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, sums, [2][8][33]);
    const int     column = (int)threadIdx.x & 31, lane = (int)threadIdx.x >> 5;
    const int64_t c = (int64_t)blockIdx.x * 32 + column, begin = (int64_t)blockIdx.y * chunk;
    const int64_t end = begin + chunk < more.rows ? begin + chunk : more.rows;
    R       dw = 0, db = 0;
    int     k;
    TNC_UNROLL_BY(4)
    for (int64_t i = begin + lane; c < more.C && i < end; i += 8) {
        const R mean = more.means ? more.means[i] : R(0), rest = more.means ? more.means[more.rows + i] : R(0);
        const R d = tnc_to(dy[i * more.C + c]);
        dw = tnc_fma(d, (tnc_to(x[i * more.C + c]) - mean - rest) * r[i], dw);
        db += d;
    }
    sums[0][lane][column] = dw;
    sums[1][lane][column] = db;
    __syncthreads();
    if (lane > 1 || c >= more.C) return;
    for (dw = 0, k = 0; k < 8; k++) dw += sums[lane][k][column];
    more.part[((int64_t)lane * gridDim.y + blockIdx.y) * more.C + c] = dw;
}

template <typename T, int V, bool CENTRED, bool SUMS>
static void tnc_norm_backward_launch(tnc *s, const tn_call *c, tnc_rows at, unsigned blocks,
                                     tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    TNC_LAUNCH((tnc_norm_backward_kernel<T, V, CENTRED, SUMS>), blocks, at.threads, 0, s->stream, (const T *)c->in[0].data,
               (const R *)c->in[1].data, (const R *)c->in[2].data, (const T *)c->in[3].data, (T *)c->out[0].data, more);
}

template <typename T, bool CENTRED> static tn_status tnc_norm_backward_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count, HELD = tnc_norm_held<V, CENTRED>::count, real = tnc_code<R>::dtype };
    const int        chunks = 64;
    const int64_t    rows = c->in[0].shape[0], C = c->in[0].shape[1];
    R               *dw = c->n_out > 1 ? (R *)c->out[1].data : NULL;
    R               *db = CENTRED && c->n_out > 2 ? (R *)c->out[2].data : NULL;
    const bool       wide = C % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data)
                         && tnc_aligned(c->in[3].data) && tnc_aligned(c->out[0].data);
    const tnc_rows   at = tnc_rows_of(wide ? C / V : C, HELD, TNC_THREADS);
    const bool       wanted = dw || db, sums = wanted && wide && C / V <= (int64_t)at.lanes * HELD;
    const int        each = at.threads / at.lanes;
    const unsigned   blocks = sums ? (unsigned)tnc_bound(tnc_ceil(rows, each), 1, s->sms * (512 / at.threads))
                                   : tnc_grid(s, rows, each);
    const int64_t    parts = sums ? (int64_t)blocks : chunks;
    tnc_norm_more<R> more = { NULL, NULL, rows, (int)C, at.lanes, c->accumulate };
    if (!tnc_has(&c->in[1], real) || !tnc_has(&c->in[2], real) || !tnc_has(&c->in[3], c->in[0].dtype)
        || !tnc_has(&c->out[0], c->in[0].dtype) || (dw && !tnc_has(&c->out[1], real)) || (db && !tnc_has(&c->out[2], real)))
        return TN_ERR_DTYPE;
    if (C > INT32_MAX) return TN_ERR_SHAPE;
    if (rows == 0 || C == 0) return TN_OK;
    if (wanted) {
        more.part = (R *)tnc_scratch(s, (size_t)(2 * parts * C + 2 * rows) * sizeof(R));
        if (!more.part) return TN_ERR_MEMORY;
        if (CENTRED && !sums) more.means = more.part + 2 * parts * C;
    }
    if (sums) tnc_norm_backward_launch<T, V, CENTRED, true>(s, c, at, blocks, more);
    else if (wide) tnc_norm_backward_launch<T, V, CENTRED, false>(s, c, at, blocks, more);
    else tnc_norm_backward_launch<T, 1, CENTRED, false>(s, c, at, blocks, more);
    if (wanted && !sums)
        TNC_START((tnc_norm_columns_kernel<T>), dim3((unsigned)tnc_ceil(C, 32), chunks), (const T *)c->in[0].data,
                  (const R *)c->in[2].data, (const T *)c->in[3].data, tnc_ceil(rows, chunks), more);
    if (dw) tnc_add_parts(s, more.part, parts, C, dw);
    if (db) tnc_add_parts(s, more.part + parts * C, parts, C, db);
    return TN_OK;
}

TNC_FN tn_status tnc_rmsnorm_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_backward_of<T, false>(s, c))
}

TNC_FN tn_status tnc_layernorm_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_backward_of<T, true>(s, c))
}
