#include "cuda/chain.h"

/* ---- scan, scan_states and their backward passes ------------------------------------------------------------ >>cuda-scan
   Matrices: one block per chain, as in >>cuda-chain. The running product stays as it is until its norm leaves 2^+-16, and is
   divided by its norm on the way to memory. Floor: 2 n d^3 flops per chain, twice that backward.
   States: a row of lanes per chain, so that a block has several chains, which share the core of a site in shared memory, or
   one chain if d > 32. Cores are stored as [e,s,f], where e is summed over and f belongs to the lanes; where products need a
   transposed core, it is transposed on its way to shared memory. Cores that are too large for that, and the matrices of
   tn_scan_vector, which are used once, are read in place. Floor: 2 n s d^2 flops per chain, twice that backward. */

template <typename R> struct tnc_scans {
    const R *m, *v, *phi;                   /* matrices or cores; the first state and the features, or NULL */
    R       *y, *logs, *r;                  /* backward: what was computed, and below the gradients         */
    const R *dy, *dlogs;
    R       *given, *z, *work;              /* of m or phi; of v or all states; [b,2,d,d]                   */
    int64_t  batch, n, states, v_step, site;        /* site: numbers between the cores of two sites, or 0   */
    int      d, features, lanes;
    bool     reverse, transposed, shared, accumulate;
};

template <typename R> static __device__ __forceinline__ int64_t tnc_scan_place(const tnc_scans<R> &a, int64_t b, int64_t k)
{
    return b * a.states + (a.reverse ? a.states - 1 - k : k);
}

template <typename R> static __device__ __forceinline__ int64_t tnc_scan_site(const tnc_scans<R> &a, int64_t b, int64_t k)
{
    return b * a.n + (a.reverse ? a.states - 1 - k : k - (a.states - a.n));
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2) tnc_scan_kernel(tnc_scans<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const R   near_one = R(4294967296.0);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t b = blockIdx.x; b < a.batch; b += gridDim.x) {
        R     *to = shared, *from = shared + dd, *keep = a.shared ? shared + 2 * dd : NULL;
        R      next[TNC_CHAIN_AHEAD], before = 1;
        double log_scale = 0;
        if (a.shared) tnc_chain_fetch(next, a.m + tnc_scan_site(a, b, 0) * dd, dd);
        for (int64_t k = 0; k < a.states; k++) {
            const int64_t at = tnc_scan_place(a, b, k);
            const R      *m = a.m + tnc_scan_site(a, b, k) * dd;
            R            *y = a.y + at * dd, squares = 0, norm, unit = 1;
            auto          take = [&](int j, R x) {
                to[j] = x;
                squares = tnc_fma(x, x, squares);
            };
            R *swap = from; from = to; to = swap;
            if (!a.shared) {
                to = y;
                from = a.y + tnc_scan_place(a, b, k > 0 ? k - 1 : 0) * dd;
            }
            if (keep) {
                tnc_chain_put(keep, next, m, dd);
                if (k + 1 < a.states) tnc_chain_fetch(next, a.m + tnc_scan_site(a, b, k + 1) * dd, dd);
                __syncthreads();
                m = keep;
            }
            if (k == 0) for (int i = me; i < dd; i += threads) take(i, m[i]);
            else if (a.reverse) tnc_chain_product<TILE, false, false>(m, (const R *)from, d, take);
            else tnc_chain_product<TILE, false, false>((const R *)from, m, d, take);
            R total = tnc_block_sum(squares);
            if (a.shared && total > 1 / near_one && total < near_one) {
                norm = tnc_sqrt(total);
                unit = R(1) / norm;
            } else norm = tnc_chain_norm(to, dd, squares, true);
            for (int i = me; a.shared && i < dd; i += threads) y[i] = to[i] * unit;
            log_scale += log((double)norm / (double)before);
            if (me == 0) {
                a.logs[at] = (R)log_scale;
                if (a.r) a.r[at] = norm / before;
            }
            before = unit == 1 ? R(1) : norm;
            __syncthreads();
        }
    }
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_scan_backward_kernel(tnc_scans<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    for (int64_t b = blockIdx.x; b < a.batch; b += gridDim.x) {
        R     *z = a.shared ? shared : a.work + b * 2 * dd, *next = z + dd;
        R     *keep = a.shared ? shared + 2 * dd : NULL;
        double later = 0;
        for (int i = me; i < dd; i += threads) z[i] = 0;
        __syncthreads();
        for (int64_t k = a.states - 1; k >= 0; k--) {
            const int64_t at = tnc_scan_place(a, b, k), site = tnc_scan_site(a, b, k) * dd;
            const R      *m = a.m + site, *p = a.y + tnc_scan_place(a, b, k > 0 ? k - 1 : 0) * dd, *y = a.y + at * dd;
            const R      *dy = a.dy + at * dd, r = a.r[at], by = r == 0 ? R(0) : R(1) / r;
            R            *to = a.given + site, dot = 0;
            auto          give = [&](int j, R x) { to[j] = a.accumulate ? to[j] + x : x; };
            for (int i = me; i < dd; i += threads) dot = tnc_fma(z[i] + dy[i], y[i], dot);
            later = r == 0 ? 0 : later + (double)a.dlogs[at];
            dot = (R)(later - (double)tnc_block_sum(dot));
            for (int i = me; i < dd; i += threads) {
                z[i] = tnc_fma(dot, y[i], z[i] + dy[i]) * by;
                if (k == 0) give(i, z[i]);
                else if (keep) {
                    keep[i] = p[i];
                    keep[dd + i] = m[i];
                }
            }
            __syncthreads();
            if (k == 0) break;
            if (keep) {
                p = keep;
                m = keep + dd;
            }
            if (a.reverse) {
                tnc_chain_product<TILE, false, true>((const R *)z, p, d, give);
                tnc_chain_product<TILE, true, false>(m, (const R *)z, d, [&](int j, R x) { next[j] = x; });
            } else {
                tnc_chain_product<TILE, true, false>(p, (const R *)z, d, give);
                tnc_chain_product<TILE, false, true>((const R *)z, m, d, [&](int j, R x) { next[j] = x; });
            }
            __syncthreads();
            R *swap = z; z = next; next = swap;
        }
        __syncthreads();
    }
}

/* The core of the step to state k, with these steps of e and f, in shared memory or in place. All threads call it. */
template <typename R>
static __device__ __forceinline__ const R *tnc_scan_core(const tnc_scans<R> &a, R *keep, int64_t b, int64_t k, int *step_e,
                                                         int *step_f)
{
    const int d = a.d, width = a.features * d;
    const R  *core = a.m + tnc_scan_site(a, a.phi ? 0 : b, k) * a.site;
    *step_e = width;
    *step_f = 1;
    if (!keep) {
        if (a.transposed) {
            *step_e = 1;
            *step_f = width;
        }
        return core;
    }
    __syncthreads();                                            /* the core before it is not read any more */
    for (int i = (int)threadIdx.x; i < d * width; i += (int)blockDim.x)
        keep[a.transposed ? i % d * width + i / d % a.features * d + i / width : i] = core[i];
    __syncthreads();
    return keep;
}

/* Divides the row x [d] by its norm, which it returns. A row of zeros stays zero, an infinity makes NaN. */
template <typename R> static __device__ __forceinline__ R tnc_scan_unit(R *x, int d, int lanes, R most)
{
    const int lane = tnc_lane(lanes);
    R         squares = 0;
    most = tnc_row_largest(most, lanes);
    int power = most > 0 && most < R(INFINITY) ? ilogb(most) : 0;
    for (int i = lane; i < d; i += lanes) {
        x[i] = ldexp(x[i], -power);
        squares = tnc_fma(x[i], x[i], squares);
    }
    R norm = tnc_sqrt(tnc_row_sum(squares, lanes));             /* of all threads, whatever their rows hold */
    if (most == R(INFINITY)) norm = R(NAN);
    for (int i = lane; i < d; i += lanes) x[i] = norm == 0 ? R(0) : x[i] / norm;
    return ldexp(norm, power);
}

template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_scan_states_kernel(tnc_scans<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, S = a.features, lanes = a.lanes, rows = lanes > 32 ? 1 : (int)blockDim.x / lanes;
    const int lane = tnc_lane(lanes), row = lanes > 32 ? 0 : (int)threadIdx.x / lanes;
    R        *keep = a.shared ? shared + 2 * rows * d : NULL, *to = shared + 2 * row * d, *from = to + d;
    int       step_e, step_f;
    for (int64_t base = (int64_t)blockIdx.x * rows; base < a.batch; base += (int64_t)gridDim.x * rows) {
        const bool    mine = base + row < a.batch;
        const int64_t b = mine ? base + row : a.batch - 1;
        double        log_scale = 0;
        for (int64_t k = 0; k < a.states; k++) {
            const int64_t at = tnc_scan_place(a, b, k);
            const R      *phi = a.phi ? a.phi + tnc_scan_site(a, b, k) * S : NULL;
            R             most = 0;
            R *swap = from; from = to; to = swap;
            if (k == 0) for (int f = lane; f < d; f += lanes) to[f] = a.v[b * a.v_step + f];
            else {
                const R *core = tnc_scan_core(a, keep, b, k, &step_e, &step_f);
                if (!keep) __syncthreads();
                for (int f = lane; f < d; f += lanes) {
                    R total = 0;
                    for (int i = 0; i < S; i++) {
                        R sum = 0;
                        for (int e = 0; e < d; e++) sum = tnc_fma(from[e], core[e * step_e + i * d + f * step_f], sum);
                        total = phi ? tnc_fma(phi[i], sum, total) : sum;
                    }
                    to[f] = total;
                }
            }
            for (int f = lane; f < d; f += lanes) most = tnc_larger(tnc_abs(to[f]), most);
            R norm = tnc_scan_unit(to, d, lanes, most);
            log_scale += log((double)norm);
            for (int f = lane; mine && f < d; f += lanes) a.y[at * d + f] = to[f];
            if (mine && lane == 0) {
                a.logs[at] = (R)log_scale;
                if (a.r) a.r[at] = norm;
            }
        }
        __syncthreads();
    }
}

template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_scan_states_backward_kernel(tnc_scans<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, S = a.features, lanes = a.lanes, rows = lanes > 32 ? 1 : (int)blockDim.x / lanes;
    const int lane = tnc_lane(lanes), row = lanes > 32 ? 0 : (int)threadIdx.x / lanes;
    R        *keep = a.shared ? shared + 2 * rows * d : NULL, *x = shared + 2 * row * d, *next = x + d;
    int       f, step_e, step_f;
    for (int64_t base = (int64_t)blockIdx.x * rows; base < a.batch; base += (int64_t)gridDim.x * rows) {
        const bool    mine = base + row < a.batch;
        const int64_t b = mine ? base + row : a.batch - 1;
        double        later = 0;
        for (f = lane; f < d; f += lanes) x[f] = 0;
        for (int64_t k = a.states - 1; k >= 0; k--) {
            const int64_t at = tnc_scan_place(a, b, k), site = tnc_scan_site(a, b, k);
            const R      *y = a.y + at * d, *dy = a.dy + at * d;
            const R      *before = a.y + tnc_scan_place(a, b, k > 0 ? k - 1 : 0) * d;
            const R       r = a.r[at], by = r == 0 ? R(0) : R(1) / r;
            R             dot = 0;
            for (f = lane; f < d; f += lanes) dot = tnc_fma(x[f] + dy[f], y[f], dot);
            later = r == 0 ? 0 : later + (double)a.dlogs[at];
            dot = (R)(later - (double)tnc_row_sum(dot, lanes));
            for (f = lane; f < d; f += lanes) {
                x[f] = tnc_fma(dot, y[f], x[f] + dy[f]) * by;
                if (mine && a.z && (a.phi || k == 0)) a.z[(a.phi ? at : b) * d + f] = x[f];
            }
            if (k == 0) break;
            const R *core = tnc_scan_core(a, keep, b, k, &step_e, &step_f);
            if (!keep) __syncthreads();
            for (int i = 0; i < S; i++) {
                const R by_phi = a.phi ? a.phi[site * S + i] : R(1);
                for (dot = 0, f = lane; f < d; f += lanes) {
                    R sum = 0;
                    for (int e = 0; e < d; e++) sum = tnc_fma(x[e], core[e * step_e + i * d + f * step_f], sum);
                    next[f] = tnc_fma(by_phi, sum, i > 0 ? next[f] : R(0));
                    dot = tnc_fma(before[f], sum, dot);
                }
                dot = tnc_row_sum(dot, lanes);
                if (mine && a.phi && a.given && lane == 0) {
                    R *to = a.given + site * S + i;
                    *to = a.accumulate ? *to + dot : dot;
                }
            }
            if (S == 0) for (f = lane; f < d; f += lanes) next[f] = 0;
            for (int i = lane; mine && !a.phi && a.given && i < d * d; i += lanes) {
                R      *to = a.given + site * d * d + i;
                const R product = a.reverse ? x[i / d] * before[i % d] : before[i / d] * x[i % d];
                *to = a.accumulate ? *to + product : product;
            }
            __syncthreads();
            R *swap = x; x = next; next = swap;
        }
        __syncthreads();
    }
}

template <typename R> static tn_status tnc_scan_launch(tnc *s, tnc_scans<R> a, bool backward)
{
    const int    tile = a.d > 16 ? 4 : 1, side = (a.d + tile - 1) / tile;
    const int    threads = 32 * tnc_bound(tnc_ceil((int64_t)side * side, 32), 1, 8);
    const size_t bytes = (size_t)(backward ? 4 : 3) * (size_t)a.d * (size_t)a.d * sizeof(R);
    const unsigned blocks = (unsigned)tnc_bound(a.batch, 1, 1 << 30);
    void (*kernel)(tnc_scans<R>) = backward ? tile > 1 ? tnc_scan_backward_kernel<R, 4> : tnc_scan_backward_kernel<R, 1>
                                            : tile > 1 ? tnc_scan_kernel<R, 4> : tnc_scan_kernel<R, 1>;
    a.shared = bytes + 2048 <= s->shared_max;
    if (a.shared) tnc_shared_for(s, kernel, bytes);
    TNC_LAUNCH(kernel, blocks, threads, a.shared ? bytes : 0, s->stream, a);
    return TN_OK;
}

template <typename R> static tn_status tnc_scan_states_launch(tnc *s, tnc_scans<R> a, bool backward)
{
    const int      lanes = a.d <= 32 ? tnc_lanes(a.d, 32) : 32 * tnc_bound(tnc_ceil(a.d, 32), 2, 8);
    const int      threads = lanes > 32 ? lanes : 128, rows = lanes > 32 ? 1 : threads / lanes;
    const size_t   states = (size_t)rows * 2 * (size_t)a.d * sizeof(R);
    const size_t   core = (size_t)a.d * (size_t)a.d * (size_t)a.features * sizeof(R);
    const unsigned blocks = (unsigned)tnc_bound(tnc_ceil(a.batch, rows), 1, 1 << 30);
    void (*kernel)(tnc_scans<R>) = backward ? tnc_scan_states_backward_kernel<R> : tnc_scan_states_kernel<R>;
    if (states + 2048 > s->shared_max) return TN_ERR_SHAPE;
    a.lanes = lanes;
    a.shared = a.phi && states + core + 2048 <= s->shared_max;
    tnc_shared_for(s, kernel, states + (a.shared ? core : 0));
    TNC_LAUNCH(kernel, blocks, threads, states + (a.shared ? core : 0), s->stream, a);
    return TN_OK;
}

template <typename R> static tn_status tnc_scan_of(tnc *s, const tn_call *c, bool states, bool backward)
{
    const tn_view *m = &c->in[states && !backward ? 1 : 0], *phi = states ? &c->in[backward ? 1 : 2] : NULL;
    const tn_view *v = backward ? NULL : &c->in[states ? 0 : 1], *y = backward ? &c->in[states ? 2 : 1] : &c->out[0];
    const int64_t  d = m->shape[3], features = states ? m->shape[2] : 1;
    tnc_scans<R>   a;
    memset(&a, 0, sizeof a);
    for (int i = 0; i < c->n_in; i++) if (!tnc_has(&c->in[i], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    for (int i = 0; i < c->n_out; i++) if (!tnc_has(&c->out[i], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (d > 16384 || d * features > INT32_MAX / (d > 0 ? d : 1)) return TN_ERR_SHAPE;    /* d * d * s is an int */
    a.batch = y->shape[0];
    a.states = y->shape[1];
    a.n = states ? phi->shape[1] : m->shape[1];
    a.d = (int)d;
    a.features = (int)features;
    a.site = states && m->shape[0] == 1 ? 0 : d * d * features;
    a.reverse = c->i[0] != 0;
    a.transposed = a.reverse != backward;
    a.accumulate = c->accumulate;
    if (a.batch == 0 || a.states == 0) return TN_OK;
    a.m = (const R *)m->data;
    a.phi = states ? (const R *)phi->data : NULL;
    a.y = (R *)y->data;
    if (backward) {
        const tn_view *of = y + 1;                              /* r, dy, dlogs */
        a.r = (R *)of[0].data;
        a.dy = (const R *)of[1].data;
        a.dlogs = (const R *)of[2].data;
        a.given = (R *)c->out[0].data;
        a.z = (R *)c->out[1].data;
        a.work = states ? NULL : (R *)c->out[2].data;
    } else {
        a.v = (const R *)v->data;
        a.v_step = v->shape[0] == 1 ? 0 : d;
        a.logs = (R *)c->out[1].data;
        a.r = (R *)c->out[2].data;
    }
    return a.states > a.n ? tnc_scan_states_launch(s, a, backward) : tnc_scan_launch(s, a, backward);
}

/* Like >>cuda-chain: the dispatcher converts BF16 operands to F32. */
static tn_status tnc_scan_call(tnc *s, const tn_call *c, bool states, bool backward)
{
    TNC_REALS(c->in[0].dtype, R, return tnc_scan_of<R>(s, c, states, backward))
}

TNC_FN tn_status tnc_scan(tnc *s, const tn_call *c) { return tnc_scan_call(s, c, false, false); }
TNC_FN tn_status tnc_scan_backward(tnc *s, const tn_call *c) { return tnc_scan_call(s, c, false, true); }
TNC_FN tn_status tnc_scan_states(tnc *s, const tn_call *c) { return tnc_scan_call(s, c, true, false); }
TNC_FN tn_status tnc_scan_states_backward(tnc *s, const tn_call *c) { return tnc_scan_call(s, c, true, true); }
