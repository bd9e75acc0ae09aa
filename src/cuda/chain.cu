#include "cuda/chain.h"

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2) tnc_chain_kernel(tnc_chains<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t b = blockIdx.x; b < a.batch; b += gridDim.x) {
        R       *to = a.shared ? shared : a.work + b * 2 * dd, *from = to + dd;
        R       *keep = a.shared ? shared + 2 * dd : NULL;
        const R *m = a.m + b * a.n * dd;
        R        next[TNC_CHAIN_AHEAD], *y = a.y + b * (dd + 1);
        double   log_norm = 0;
        if (a.shared && a.n > 1) tnc_chain_fetch(next, m + dd, dd);
        for (int64_t j = 0; j < a.n; j++, m += dd) {
            R squares = 0;
            R *swap = from; from = to; to = swap;
            if (j == 0) {
                for (int i = me; i < dd; i += threads) {
                    to[i] = m[i];
                    squares = tnc_fma(to[i], to[i], squares);
                }
            } else {
                if (keep) {
                    tnc_chain_put(keep, next, m, dd);
                    if (j + 1 < a.n) tnc_chain_fetch(next, m + dd, dd);
                    __syncthreads();
                }
                tnc_chain_product<TILE, false, false>((const R *)from, keep ? (const R *)keep : m, d, [&](int at, R x) {
                    to[at] = x;
                    squares = tnc_fma(x, x, squares);
                });
            }
            R norm = tnc_chain_norm(to, dd, squares, j == a.n - 1);
            if (norm != 1) log_norm += log((double)norm);
            if (me == 0 && a.v) a.v[b * a.n + j] = norm;
            for (int i = me; a.p && i < dd; i += threads) a.p[(b * a.n + j) * dd + i] = to[i];
        }
        for (int i = me; i < dd; i += threads) y[i] = to[i];
        if (me == 0) y[dd] = (R)log_norm;
        __syncthreads();
    }
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_chain_backward_kernel(tnc_chains<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t b = blockIdx.x; b < a.batch; b += gridDim.x) {
        const int64_t last = (b + 1) * a.n - 1;
        R       *g = a.shared ? shared : a.work + b * 4 * dd, *next = g + dd;
        R       *keep = a.shared ? shared + 2 * dd : NULL;
        const R *y = a.p + last * dd, *dy = a.y + b * (dd + 1);
        R        ahead[2][TNC_CHAIN_AHEAD];
        const R  last_v = a.v[last];
        double   scale = -log((double)last_v);
        R        dot = 0, factor = last_v == 0 ? R(0) : (R)exp(scale / 2);       /* applied twice: its square may overflow */
        for (int i = me; i < dd; i += threads) dot = tnc_fma(y[i], dy[i], dot);
        dot = dy[dd] - tnc_block_sum(dot);
        for (int i = me; i < dd; i += threads) g[i] = tnc_fma(dot, y[i], dy[i]);
        if (keep && a.n > 1) {
            tnc_chain_fetch(ahead[0], a.p + (last - 1) * dd, dd);
            tnc_chain_fetch(ahead[1], a.m + last * dd, dd);
        }
        __syncthreads();
        for (int64_t j = last; ; j--) {
            const R *p = a.p + (j - 1) * dd, *m = a.m + j * dd;
            R       *to = a.dm + j * dd, squares = 0;
            double   before = scale;
            auto     give = [&](int at, R x) {
                x = factor == 0 ? R(0) : factor * (factor * x);
                to[at] = a.accumulate ? to[at] + x : x;
            };
            if (j == b * a.n) {
                for (int i = me; i < dd; i += threads) give(i, g[i]);
                break;
            }
            if (keep) {
                tnc_chain_put(keep, ahead[0], p, dd);
                tnc_chain_put(keep + dd, ahead[1], m, dd);
                if (j - 1 > b * a.n) {
                    tnc_chain_fetch(ahead[0], p - dd, dd);
                    tnc_chain_fetch(ahead[1], m - dd, dd);
                }
                __syncthreads();
            }
            tnc_chain_product<TILE, true, false>(keep ? (const R *)keep : p, (const R *)g, d, give);
            tnc_chain_product<TILE, false, true>((const R *)g, keep ? (const R *)keep + dd : m, d, [&](int at, R x) {
                next[at] = x;
                squares = tnc_fma(x, x, squares);
            });
            R norm = tnc_chain_norm(next, dd, squares, false);
            TNC_ROLLED
            for (int i = 0; i < 2; i++) {
                const R by = i == 0 ? norm : a.v[j - 1];
                if (by != 1 && (by != 0 || i == 1)) scale += (i == 0 ? 1 : -1) * log((double)by);
            }
            if (scale != before && last_v != 0) factor = (R)exp(scale / 2);
            R *swap = g; g = next; next = swap;
        }
        __syncthreads();
    }
}

template <typename R> static tn_status tnc_chain_launch(tnc *s, tnc_chains<R> a, bool backward)
{
    const int    tile = a.d > 16 ? 4 : 1, side = (a.d + tile - 1) / tile;
    const int    threads = 32 * tnc_bound(tnc_ceil((int64_t)side * side, 32), 1, 8);
    const size_t bytes = (size_t)(backward ? 4 : 3) * (size_t)a.d * (size_t)a.d * sizeof(R);
    const unsigned blocks = (unsigned)tnc_bound(a.batch, 1, 1 << 30);
    void (*kernel)(tnc_chains<R>) = backward ? tile > 1 ? tnc_chain_backward_kernel<R, 4> : tnc_chain_backward_kernel<R, 1>
                                            : tile > 1 ? tnc_chain_kernel<R, 4> : tnc_chain_kernel<R, 1>;
    a.shared = bytes + 2048 <= s->shared_max;
    if (a.shared) tnc_shared_for(s, kernel, bytes);
    TNC_LAUNCH(kernel, blocks, threads, a.shared ? bytes : 0, s->stream, a);
    return TN_OK;
}

template <typename R> static tn_status tnc_chain_of(tnc *s, const tn_call *c, bool backward)
{
    tnc_chains<R> a;
    memset(&a, 0, sizeof a);
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    a.batch = c->in[0].shape[0];
    a.n = c->in[0].shape[1];
    a.accumulate = c->accumulate;
    if (a.batch == 0 || a.n == 0) return TN_OK;
    if (c->in[0].shape[2] > 16384) return TN_ERR_SHAPE;         /* d * d is an int */
    a.d = (int)c->in[0].shape[2];
    a.m = (R *)c->in[0].data;
    a.p = (R *)(backward ? c->in[1].data : c->out[1].data);
    a.v = (R *)(backward ? c->in[2].data : c->out[2].data);
    a.y = (R *)(backward ? c->in[3].data : c->out[0].data);
    a.dm = backward ? (R *)c->out[0].data : NULL;
    a.work = (R *)(backward ? c->out[1].data : c->out[3].data);
    return tnc_chain_launch(s, a, backward);
}

/* Results are divided by norms, for which BF16 is too coarse: the dispatcher converts BF16 operands to F32. */
static tn_status tnc_chain_call(tnc *s, const tn_call *c, bool backward)
{
    TNC_REALS(c->in[0].dtype, R, return tnc_chain_of<R>(s, c, backward))
}

TNC_FN tn_status tnc_chain(tnc *s, const tn_call *c) { return tnc_chain_call(s, c, false); }
TNC_FN tn_status tnc_chain_backward(tnc *s, const tn_call *c) { return tnc_chain_call(s, c, true); }
