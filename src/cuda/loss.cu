#include "cuda/inner.h"

/* ---- dropout ---------------------------------------------------------------------------------------------- >>cuda-dropout
   Masks are bit-identical to the CPU's: p is rounded to a float that lies between the same two of the 2^23 possible random
   numbers as p itself. Kept numbers are multiplied by 1/(1-p); in F64 they are divided by 1-p, as the reference does. Floor:
   the bytes of x and y, and 20 instructions of Philox per number. */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_dropout_kernel(const tnc_stream_of g, const int32_t *clock, T *y, const T *x, int64_t n, bool aligned, bool add, float p)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    const R       scale = (R)(1 / g.width);
    for (TNC_GRID_STRIDE(i, blocks)) {
        uint32_t word[4];
        R        v[4], old[4];
        tnc_load_four(v, x, i, n, aligned);
        if (add) tnc_load_four(old, (const T *)y, i, n, aligned);
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k++) {
            v[k] = tnc_unit(word[k]) < p ? R(0) : sizeof(R) == 8 ? v[k] / (R)g.width : v[k] * scale;
            if (add) v[k] += old[k];
        }
        tnc_store_four(y, i, n, aligned, v);
    }
}

TNC_FN tn_status tnc_dropout(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    const int64_t  n = y->shape[0];
    const float    p = ((float)ceil(c->f[0] * 8388608.0 - 0.5) + 0.5f) * (1.0f / 8388608.0f);
    if (x->dtype != y->dtype) return TN_ERR_DTYPE;
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_dropout_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS), tnc_stream_from(c, 0, 1 - c->f[0]),
                      (const int32_t *)c->in[1].data, (T *)y->data, (const T *)x->data, n,
                      tnc_aligned(x->data, alignof(tnc_pack<T, 4>)) && tnc_aligned(y->data, alignof(tnc_pack<T, 4>)),
                      c->accumulate, p))
    return TN_OK;
}

/* ---- cross_entropy ---------------------------------------------------------------------------------------- >>cuda-entropy
   Each thread keeps a running maximum m of the logits and a running sum of e^(z - m), which is rescaled when m grows (online
   softmax). Vectors that fit into shared memory are kept there for the second pass, which writes the gradient. Rows need not
   be 16-byte aligned: V > 1 takes single elements at both ends. Each block adds the losses of its rows, and a second kernel
   adds the blocks. Floor: reads R C numbers, and writes R C if there is a gradient. */

template <typename T> struct tnc_entropy {
    typedef typename tnc_real<T>::type R;
    const T       *z;
    const int32_t *label;
    R             *loss, *lse;
    T             *dz;
    double        *part;
    int32_t       *fault;
    int64_t        rows;
    int            C, lanes, max;          /* max: vectors of a row kept in shared memory */
    int32_t       *counted, ignored;       /* how many rows do not have the label that is ignored; NULL: all */
};

/* Adds to *counted how many labels are not the one that is ignored. */
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_entropy_count_kernel(const int32_t *label, int64_t rows, int32_t ignored, int32_t *counted)
{
    int32_t sum = 0;
    for (TNC_GRID_STRIDE(r, rows)) sum += label[r] != ignored;
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(counted, sum);
}

/* Adds V numbers to a running maximum and sum. While the maximum is -inf they add 0. */
template <bool FAST, typename R, int V>
static __device__ __forceinline__ void tnc_entropy_add(const R (&v)[V], R *most, R *sum)
{
    R top = v[0];
    TNC_UNROLL
    for (int k = 1; k < V; k++) top = tnc_larger(v[k], top);
    if (top > *most) {
        *sum *= tnc_exp<FAST>(*most - top);
        *most = top;
    }
    R from = *most > -R(INFINITY) ? *most : R(0);
    TNC_EACH *sum += tnc_exp<FAST>(v[k] - from);
}

template <typename T, int V> static __global__ void __launch_bounds__(512, sizeof(T) == 8 ? 1 : 2)
tnc_entropy_kernel(tnc_entropy<T> a)
{
    typedef typename tnc_real<T>::type R;
    typedef tnc_pack<T, V> P;
    enum { AHEAD = 4 };
    TNC_DYN_SHARED(P, shared);
    const int lanes = a.lanes, each = (int)blockDim.x / lanes, lane = tnc_lane(lanes);
    P        *held = shared + (int)threadIdx.x / lanes * a.max;
    double    loss = 0;
    for (int64_t base = (int64_t)blockIdx.x * each; base < a.rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < a.rows ? mine : a.rows - 1;
        const T      *from = a.z + row * a.C;
        const int     head = V == 1 ? 0 : min((int)((16 - (uintptr_t)from % 16) % 16 / sizeof(T)), a.C);
        const int     n = (a.C - head) / V, ends = a.C - n * V;
        const int32_t label = a.label[row];
        const bool    ignored = a.counted && label == a.ignored, good = !ignored && label >= 0 && label < a.C;
        const T      *body = from + head;
        R       most = -R(INFINITY), sum = 0;
        for (int i = lane; i < ends; i += lanes) {
            const R v[1] = { tnc_to(from[i < head ? i : i + n * V]) };
            tnc_entropy_add<true>(v, &most, &sum);
        }
        for (int i = lane; i < n; i += AHEAD * lanes) {
            P piece[AHEAD];
            TNC_UNROLL
            for (int k = 0; k < AHEAD; k++) if (i + k * lanes < n) piece[k] = tnc_fetch<V>(body + (i + k * lanes) * V);
            TNC_UNROLL
            for (int k = 0; k < AHEAD; k++) {
                R v[V];
                if (i + k * lanes >= n) break;
                if (i + k * lanes < a.max) held[i + k * lanes] = piece[k];
                tnc_unpack(v, piece[k]);
                tnc_entropy_add<true>(v, &most, &sum);
            }
        }
        R top = tnc_row_largest(most, lanes);
        sum = tnc_row_sum(sum * tnc_exp<true>(most - (top > -R(INFINITY) ? top : R(0))), lanes);
        if (top == -R(INFINITY)) sum = R(NAN);                  /* every logit is -inf: the loss is undefined */
        if (mine >= a.rows) continue;
        if (lane == 0) {
            a.lse[row] = top + tnc_log(sum);
            if (good) loss += (double)(top - tnc_to(from[label]) + tnc_log(sum));
            else if (!ignored) tnc_bad_id(a.fault, a.label, row, a.C, 2, a.counted ? a.ignored : 0);
        }
        if (!a.dz) continue;
        {
            const R share = R(1) / (a.counted ? R(max(*a.counted, 1)) : R(a.rows));
            T      *to = a.dz + row * a.C, *to_body = to + head;
            R       scale = share / sum;
            for (int i = lane; i < ends; i += lanes) {
                const int at = i < head ? i : i + n * V;
                const R   v = tnc_exp<true>(tnc_to(from[at]) - top) * scale - (at == label ? share : R(0));
                to[at] = tnc_from<T>(good ? v : R(0));
            }
            TNC_UNROLL_BY(2)
            for (int i = lane; i < n; i += lanes) {
                R v[V];
                tnc_unpack(v, i < a.max ? held[i] : tnc_fetch<V>(body + i * V));
                TNC_EACH {
                    v[k] = tnc_exp<true>(v[k] - top) * scale - (head + i * V + k == label ? share : R(0));
                    if (!good) v[k] = 0;
                }
                tnc_store(to_body + i * V, v);
            }
        }
    }
    loss = tnc_block_sum(loss);
    if (threadIdx.x == 0) a.part[blockIdx.x] = loss;
}

template <typename T, int V> static tn_status tnc_entropy_launch(tnc *s, tnc_entropy<T> a, bool ignores)
{
    typedef typename tnc_real<T>::type R;
    const int      pieces = a.C / V;
    const tnc_rows at = tnc_rows_of(pieces, 4, 512);
    const int64_t  whole = (int64_t)(s->shared_max - 4096) / 16, half = whole / 2;
    const unsigned blocks = tnc_grid(s, a.rows, at.threads / at.lanes);
    size_t         shared = 0;
    a.part = (double *)tnc_scratch(s, (blocks + 1) * sizeof(double));
    if (!a.part) return TN_ERR_MEMORY;
    if (ignores) {
        a.counted = (int32_t *)(a.part + blocks);
        cudaMemsetAsync(a.counted, 0, sizeof *a.counted, s->stream);
        TNC_START(tnc_entropy_count_kernel, tnc_grid(s, a.rows, TNC_THREADS), a.label, a.rows, a.ignored, a.counted);
    }
    a.lanes = at.lanes;
    a.max = 0;
    if (V > 1 && a.dz) {
        a.max = pieces <= half || pieces > whole ? tnc_bound(pieces, 0, (int)half) : pieces;
        shared = (size_t)a.max * 16 * (size_t)(at.threads / at.lanes);
        tnc_shared_for(s, tnc_entropy_kernel<T, V>, shared);
    }
    TNC_LAUNCH((tnc_entropy_kernel<T, V>), blocks, at.threads, shared, s->stream, a);
    TNC_START((tnc_mean_kernel<double, R>), 1, (const double *)a.part, (int64_t)blocks, (double)a.rows,
              (const int32_t *)a.counted, a.loss);
    return TN_OK;
}

template <typename T> static tn_status tnc_cross_entropy_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    tnc_entropy<T> a;
    memset(&a, 0, sizeof a);
    a.z = (const T *)c->in[0].data;
    a.label = (const int32_t *)c->in[1].data;
    a.loss = (R *)c->out[0].data;
    a.lse = (R *)c->out[1].data;
    a.fault = (int32_t *)c->out[2].data;
    a.dz = c->n_out > 3 ? (T *)c->out[3].data : NULL;
    a.rows = c->in[0].shape[0];
    a.C = (int)c->in[0].shape[1];
    a.ignored = (int32_t)c->i[1];
    if (c->in[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype) || !tnc_has(&c->out[1], tnc_code<R>::dtype)
        || (a.dz && !tnc_has(&c->out[3], c->in[0].dtype))) return TN_ERR_DTYPE;
    if (a.dz && ((uintptr_t)a.z - (uintptr_t)a.dz) % 16 != 0) return tnc_entropy_launch<T, 1>(s, a, c->i[0] != 0);
    return tnc_entropy_launch<T, tnc_wide<T>::count>(s, a, c->i[0] != 0);
}

TNC_FN tn_status tnc_cross_entropy(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_cross_entropy_of<T>(s, c))
}

/* ---- softmax, softmax_backward ---------------------------------------------------------------------------- >>cuda-softmax
   The running maximum and sum of a row are computed as in cross_entropy; then the row is read again. Backward: the sum of dy
   * y, then dx. Floor: reads R C numbers, backward 2 R C (3 R C if dx is accumulated), and writes R C; the second read comes
   from the cache. */

template <typename T, int V>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_softmax_kernel(const T *x, T *y, const int64_t rows, const int C, const int lanes, const bool log_of)
{
    typedef typename tnc_real<T>::type R;
    enum { FAST = sizeof(T) == 2 };
    const int lane = tnc_lane(lanes), each = (int)blockDim.x / lanes, n = C / V;
    for (int64_t base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        R   most = -R(INFINITY), sum = 0, v[V];
        for (int i = lane; i < n; i += lanes) {
            tnc_load(v, x + row * C + i * V);
            tnc_entropy_add<FAST>(v, &most, &sum);
        }
        R top = tnc_row_largest(most, lanes);
        if (top == -R(INFINITY)) top = 0;                       /* every number is -inf: the sum is 0 */
        sum = tnc_row_sum(sum * tnc_exp<FAST>(most - top), lanes);
        R scale = log_of ? tnc_log(sum) : sum == 0 ? R(0) : R(1) / sum;
        if (mine >= rows) continue;
        for (int i = lane; i < n; i += lanes) {
            tnc_load(v, x + row * C + i * V);
            TNC_EACH {
                v[k] -= top;
                v[k] = log_of ? v[k] - scale : tnc_exp<FAST>(v[k]) * scale;
                if (log_of && sum == 0) v[k] = -R(INFINITY);
            }
            tnc_store(y + row * C + i * V, v);
        }
    }
}

template <typename T, int V>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_softmax_backward_kernel(const T *y, const T *dy, T *dx, const int64_t rows, const int C, const int lanes,
                            const bool log_of, const bool add)
{
    typedef typename tnc_real<T>::type R;
    enum { FAST = sizeof(T) == 2 };
    const int lane = tnc_lane(lanes), each = (int)blockDim.x / lanes, n = C / V;
    for (int64_t base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        R             sum = 0, v[V], d[V];
        for (int i = lane; i < n; i += lanes) {
            tnc_load(v, y + row * C + i * V);
            tnc_load(d, dy + row * C + i * V);
            TNC_EACH sum = log_of ? sum + d[k] : tnc_fma(d[k], v[k], sum);
        }
        sum = tnc_row_sum(sum, lanes);
        if (mine >= rows) continue;
        for (int i = lane; i < n; i += lanes) {
            T *to = dx + row * C + i * V;
            tnc_load(v, y + row * C + i * V);
            tnc_load(d, dy + row * C + i * V);
            TNC_EACH v[k] = log_of ? tnc_fma(-tnc_exp<FAST>(v[k]), sum, d[k]) : v[k] * (d[k] - sum);
            if (add) tnc_add_to(to, v);
            else tnc_store(to, v);
        }
    }
}

template <typename T, int V> static void tnc_softmax_launch(tnc *s, const tn_call *c)
{
    const int64_t  rows = c->out[0].shape[0], C = c->out[0].shape[1];
    const tnc_rows at = tnc_rows_of(C / V, 4, TNC_THREADS);
    const unsigned blocks = tnc_grid(s, rows, at.threads / at.lanes);
    const T       *x = (const T *)c->in[0].data, *dy = (const T *)c->in[1].data;
    T             *y = (T *)c->out[0].data;
    if (c->kernel == TN_KERNEL_SOFTMAX)
        TNC_LAUNCH((tnc_softmax_kernel<T, V>), blocks, at.threads, 0, s->stream, x, y, rows, (int)C, at.lanes, c->i[0] != 0);
    else
        TNC_LAUNCH((tnc_softmax_backward_kernel<T, V>), blocks, at.threads, 0, s->stream, x, dy, y, rows, (int)C, at.lanes,
                   c->i[0] != 0, c->accumulate);
}

template <typename T> static tn_status tnc_softmax_of(tnc *s, const tn_call *c)
{
    enum { V = tnc_wide<T>::count };
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    if (c->out[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (c->out[0].shape[0] == 0 || c->out[0].shape[1] == 0) return TN_OK;
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data)
        && tnc_aligned(c->out[0].data)) tnc_softmax_launch<T, V>(s, c);
    else tnc_softmax_launch<T, 1>(s, c);
    return TN_OK;
}

TNC_FN tn_status tnc_softmax(tnc *s, const tn_call *c) { TNC_TYPES(c->out[0].dtype, T, return tnc_softmax_of<T>(s, c)) }

TNC_FN tn_status tnc_softmax_backward(tnc *s, const tn_call *c) { return tnc_softmax(s, c); }
