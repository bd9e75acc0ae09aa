#include "cuda/inner.h"

/* ---- argmax, accuracy -------------------------------------------------------------------------------------- >>cuda-argmax
   The first of the largest numbers; a NaN counts as largest. Of two numbers the better one is determined by their values
   and positions alone, so that every order of comparisons finds the same one. Accuracy counts rows in integers. Floor:
   reads R C numbers. */

template <typename R> static __device__ __forceinline__ bool tnc_better(R x, int64_t i, R y, int64_t j)
{
    if ((x != x) != (y != y)) return x != x;
    if (x == x && x != y) return x > y;
    return i < j;
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_argmax_kernel(const T *x, const int32_t *label, int32_t *to, int64_t rows, int64_t C, int lanes)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, value, [8]);
    TNC_SHARED(int64_t, place, [8]);
    const int each = TNC_THREADS / lanes, lane = tnc_lane(lanes), warp = (int)threadIdx.x >> 5;
    int       right = 0;
    for (int64_t base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        const T      *from = x + row * C;
        int64_t best = 0;
        R       most = tnc_to(from[0]);
        TNC_UNROLL_BY(4)
        for (int64_t i = lane; i < C; i += lanes) {
            const R v = tnc_to(from[i]);
            if (tnc_better(v, i, most, best)) { most = v; best = i; }
        }
        for (int k = lanes > 32 ? 16 : lanes >> 1; k; k >>= 1) {
            const R       v = __shfl_xor_sync(0xffffffffu, most, k);
            const int64_t j = __shfl_xor_sync(0xffffffffu, best, k);
            if (tnc_better(v, j, most, best)) { most = v; best = j; }
        }
        if (lanes > 32) {
            if ((threadIdx.x & 31) == 0) { value[warp] = most; place[warp] = best; }
            __syncthreads();
            for (int k = 0; k < 8; k++) if (tnc_better(value[k], place[k], most, best)) { most = value[k]; best = place[k]; }
            __syncthreads();
        }
        if (lane > 0 || mine >= rows) continue;
        if (label) right += best == label[row];
        else to[row] = (int32_t)best;
    }
    if (!label) return;
    right = tnc_block_sum(right);
    if (threadIdx.x == 0) to[blockIdx.x] = right;
}

/* With labels: the number of rows of each block that are predicted correctly. */
template <typename T> static unsigned tnc_argmax_launch(tnc *s, const tn_view *x, const int32_t *label, int32_t *to)
{
    const int      lanes = x->shape[1] > 1024 ? TNC_THREADS : tnc_lanes(x->shape[1], 32);
    const unsigned blocks = tnc_grid(s, x->shape[0], TNC_THREADS / lanes);
    TNC_START((tnc_argmax_kernel<T>), blocks, (const T *)x->data, label, to, x->shape[0], x->shape[1], lanes);
    return blocks;
}

TNC_FN tn_status tnc_argmax(tnc *s, const tn_call *c)
{
    if (c->in[0].shape[0] == 0) return TN_OK;
    TNC_TYPES(c->in[0].dtype, T, tnc_argmax_launch<T>(s, &c->in[0], NULL, (int32_t *)c->out[0].data));
    return TN_OK;
}

template <typename T> static tn_status tnc_accuracy_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    int32_t *right = (int32_t *)tnc_scratch(s, (size_t)s->sms * 16 * sizeof(int32_t));
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (!right) return TN_ERR_MEMORY;
    unsigned blocks = tnc_argmax_launch<T>(s, &c->in[0], (const int32_t *)c->in[1].data, right);
    TNC_START((tnc_mean_kernel<int32_t, R>), 1, (const int32_t *)right, (int64_t)blocks, (double)c->in[0].shape[0],
              (const int32_t *)NULL, (R *)c->out[0].data);
    return TN_OK;
}

TNC_FN tn_status tnc_accuracy(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_accuracy_of<T>(s, c))
}
