#include "cuda/linear_plain.h"

/* ---- decoding: a few tokens with a state ------------------------------------------------------------ >>cuda-linear-decode
   The state is read and written once; the work does not depend on the number of earlier tokens. Blocks have 64 features
   each, and a second kernel combines their partial results with the pairs of the call, as in split-K. */

typedef struct tnc_linear_tokens {
    tnc_linear_set q[2], k[2], v, out;
    int64_t        H, Tq, Tk, d, dv, n;
    bool           squared, causal;
} tnc_linear_tokens;

/* Number e of v' of key j */
template <typename T>
static __device__ __forceinline__ typename tnc_real<T>::type tnc_linear_value(const tnc_linear_tokens &t, int64_t head,
                                                                              int64_t j, int64_t e)
{
    typedef typename tnc_real<T>::type R;
    return e < t.dv ? tnc_to(tnc_linear_row<const T>(t.v, t.H, head, j)[e]) : R(1);
}

/* phi_ab of row i of q or k */
template <typename T>
static __device__ __forceinline__ typename tnc_real<T>::type tnc_linear_phi(const tnc_linear_tokens &t,
                                                                            const tnc_linear_set x[2],
                                                                            int64_t head, int64_t i, unsigned a, unsigned b)
{
    return tnc_to(tnc_linear_row<const T>(x[0], t.H, head, i)[a]) * tnc_to(tnc_linear_row<const T>(x[1], t.H, head, i)[b]);
}

/* part [parts,heads,Tq,n]: the contribution of 64 features of the state to each query; then the keys are added to the state.
   A thread has every 8th feature and every 32nd column. Floor: 2 F n numbers read or written. */
template <typename T>
static __global__ void __launch_bounds__(256) tnc_linear_decode_step(tnc_linear_tokens t, typename tnc_real<T>::type *state,
                                                       typename tnc_real<T>::type *part)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, partial, [8][TNC_LINEAR_DECODE][32]);
    const int64_t features = t.squared ? t.d * (t.d + 1) / 2 : t.d * t.d, head = blockIdx.y;
    const unsigned first = blockIdx.x * 64u;
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t before = t.causal ? 0 : t.Tk;         /* whether the queries see the keys of this call in the state */
    const unsigned d = (unsigned)t.d, all = (unsigned)features;
    state += head * features * t.n;
    for (int64_t e0 = 0; e0 < t.n; e0 += 32) {
        const int64_t e = e0 + lane;
        R             sum[TNC_LINEAR_DECODE] = {};
        for (unsigned f = first + (unsigned)warp; f < first + 64 && f < all && e < t.n; f += 8) {
            R S = state[f * t.n + e], now = S;
            unsigned a = f / d, b = f % d;
            if (t.squared)
                for (a = 0, b = f; b >= d - a; a++) b -= d - a;
            if (t.squared) b += a;
            for (int64_t j = 0; j < t.Tk; j++)
                now = tnc_fma(tnc_linear_phi<T>(t, t.k, head, j, a, b), tnc_linear_value<T>(t, head, j, e), now);
            state[f * t.n + e] = now;
            if (before > 0) S = now;
            TNC_UNROLL
            for (int i = 0; i < TNC_LINEAR_DECODE; i++)
                if (i < t.Tq)
                    sum[i] = tnc_fma(tnc_linear_phi<T>(t, t.q, head, i, a, b) * R(t.squared && a != b ? 2 : 1), S, sum[i]);
        }
        TNC_UNROLL
        for (int i = 0; i < TNC_LINEAR_DECODE; i++) partial[warp][i][lane] = sum[i];
        __syncthreads();
        if (warp < t.Tq && e < t.n) {
            R total = R(0);
            for (int i = 0; i < 8; i++) total += partial[i][warp][lane];
            part[(((int64_t)blockIdx.x * gridDim.y + head) * t.Tq + warp) * t.n + e] = total;
        }
        __syncthreads();
    }
}

/* raw [heads,Tq,n] = scale^2 c (the sum of the parts and, if causal, of the pairs of this call) */
template <typename T>
static __global__ void tnc_linear_decode_combine(tnc_linear_tokens t, const typename tnc_real<T>::type *part, int64_t parts,
                                                 int64_t heads,
                                    typename tnc_real<T>::type factor, tnc_linear_scale<typename tnc_real<T>::type> scale,
                                    typename tnc_real<T>::type *raw)
{
    typedef typename tnc_real<T>::type R;
    const int64_t all = heads * t.Tq * t.n;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t head = at / (t.Tq * t.n), row = at / t.n % t.Tq, e = at % t.n;
        R             sum = R(0);
        for (int64_t p = 0; p < parts; p++) sum += part[p * all + at];
        for (int64_t j = 0; t.causal && j <= t.Tk - t.Tq + row; j++) {
            const T *q1 = tnc_linear_row<const T>(t.q[0], t.H, head, row),
                *k1 = tnc_linear_row<const T>(t.k[0], t.H, head, j);
            const T *q2 = tnc_linear_row<const T>(t.q[1], t.H, head, row),
                *k2 = tnc_linear_row<const T>(t.k[1], t.H, head, j);
            R        one = R(0), two = R(0);
            for (int64_t i = 0; i < t.d; i++) {
                one = tnc_fma(tnc_to(q1[i]), tnc_to(k1[i]), one);
                two = tnc_fma(tnc_to(q2[i]), tnc_to(k2[i]), two);
            }
            sum = tnc_fma(one * two, tnc_linear_value<T>(t, head, j, e), sum);
        }
        R value = sum * factor * (scale.kind == TN_ROW_SCALE_SUM ? R(1) : tnc_linear_row_scale(scale, head, t.Tq, row));
        if (raw) raw[at] = value;
        else tnc_linear_row<T>(t.out, t.H, head, row)[e] = tnc_from<T>(value);
    }
}

/* ---- the entries ------------------------------------------------------------------------------------- >>cuda-linear-entry
   Each packs the vectors of its call where that is needed, chooses groups of heads and chunks that fit into scratch, and
   sweeps over them: once in the forward pass; in the backward pass once for the queries and once for the keys. */

/* Set `set` of a view [B,T,sets H,d] of numbers of `size` bytes */
static tnc_linear_set tnc_linear_view(const tn_view *v, int64_t H, int set, size_t size)
{
    tnc_linear_set s;
    s.p = v->data ? (char *)v->data + (size_t)(set * H * v->strides[2]) * size : NULL;
    s.batch = v->strides[0];
    s.row = v->strides[1];
    s.head = v->strides[2];
    return s;
}

/* A packed set [heads,T,pitch] */
static tnc_linear_set tnc_linear_packed(void *p, int64_t H, int64_t T, int64_t pitch)
{
    tnc_linear_set s;
    s.p = p;
    s.batch = H * T * pitch;
    s.row = pitch;
    s.head = T * pitch;
    return s;
}

template <typename R> static tnc_linear_scale<R> tnc_linear_scale_of(const tn_call *c, bool backward)
{
    tnc_linear_scale<R> r;
    r.kind = (int)c->f[2];
    r.causal = c->i[1] != 0;
    r.Tk = c->in[1].shape[1];
    r.ahead = r.Tk - c->in[0].shape[1];
    r.past = c->i[3];
    r.length = (R)c->f[1];
    r.stat = backward ? (const R *)c->in[4].data : NULL;
    return r;
}

/* The problem of a call: rows x are queries, or (back) keys. The caller sets the vectors. */
static tnc_linear tnc_linear_of(const tn_call *c, bool back, bool tensor)
{
    const tn_view *Q = &c->in[0], *V = &c->in[2];
    tnc_linear     t;
    memset(&t, 0, sizeof t);
    t.H = V->shape[2];
    t.heads = V->shape[0] * t.H;
    t.w[0] = t.w[1] = Q->shape[3];
    t.w[2] = V->shape[3] + ((int)c->f[2] == TN_ROW_SCALE_SUM);
    t.causal = c->i[1] != 0;
    t.back = back;
    t.squared = c->i[0] == TN_ATTEND_SQUARED;
    t.x.T = Q->shape[1];
    t.y.T = V->shape[1];
    if (t.causal) {                                     /* the last query has the position of the last key */
        t.x.shift = t.y.T > t.x.T ? t.y.T - t.x.T : 0;
        t.y.shift = t.x.T > t.y.T ? t.x.T - t.y.T : 0;
    }
    t.length = t.x.T > t.y.T ? t.x.T : t.y.T;
    t.D = (int)t.w[0];
    t.NE = (int)t.w[2];
    t.chunk = t.D <= 16 ? 64 : t.D <= 32 ? 128 : t.D <= 64 ? 256 : 512;
    if (tensor) {
        t.D = t.D <= 16 ? 16 : t.D <= 32 ? 32 : t.D <= 64 ? 64 : 128;
        t.NE = t.NE <= 32 && t.D <= 32 ? 32 : t.NE <= 64 ? 64 : 128;                /* small dv with large d is rare */
        t.chunk = t.D <= 32 ? 256 : t.D <= 64 ? 512 : 1024;                         /* pairs are then a tenth of the work */
    }
    t.chunks = tnc_ceil(t.length, t.chunk);
    t.high = t.chunks;
    if (back) { const tnc_linear_side x = t.x; t.x = t.y; t.y = x; }
    if (c->kernel == TN_KERNEL_ATTENTION_LINEAR && c->out[2].data) return t;        /* then every chunk has a state */
    if (t.y.T == 0) t.high = 0;
    else if (t.causal && back) t.high--;
    else if (t.causal) t.low = t.y.shift / t.chunk + 1;
    return t;
}

static bool tnc_linear_types(const tn_call *c, tn_dtype activations, tn_dtype real, bool backward)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].data && c->in[i].dtype != (backward && i == 4 ? real : activations)) return false;
    for (int i = 0; i < (backward ? 3 : 1); i++)
        if (c->out[i].data && c->out[i].dtype != activations) return false;
    for (int i = 1; i < 3 && !backward; i++)
        if (c->out[i].data && c->out[i].dtype != real) return false;
    return true;
}

/* One of the six vectors of a call, as the kernels read it: in place, or packed. */
typedef struct tnc_linear_item {
    tnc_linear_set set;
    int64_t        T, width, pitch;
    int            mode;
    bool           pack;
    size_t         offset;
} tnc_linear_item;

/* Allocates scratch for `fixed` bytes and the states of a group, which it chooses. */
template <typename E>
static char *tnc_linear_scratch(tnc *s, const tnc_linear *t, bool kept, size_t fixed, tnc_linear_group *g)
{
    const double state = (double)t->D * t->D * t->NE * (double)sizeof(double);
    size_t       bytes = TNC_LINEAR_SCRATCH;
    while (bytes > s->memory / 16) bytes /= 2;
    if (state * 64 > 9e18) {                                                        /* more bytes than a size_t can count */
        tnc_error(s, TN_ERR_MEMORY, "the state has %d x %d x %d numbers, more than memory can hold", t->D, t->D, t->NE);
        return NULL;
    }
    *g = tnc_linear_groups(t, bytes, kept, E());
    return (char *)tnc_scratch(s, fixed + g->bytes + 256);
}

static size_t tnc_linear_bytes(int64_t n, size_t size) { return ((size_t)n * size + 255) / 256 * 256; }

static bool tnc_linear_aligned(const tnc_linear_set &s, size_t bytes, size_t size)
{
    const int64_t numbers = (int64_t)(bytes / size);
    return (uintptr_t)s.p % bytes == 0 && s.batch % numbers == 0 && s.row % numbers == 0 && s.head % numbers == 0;
}

/* The forward or backward pass for activations T with kernels that read E: BF16 for tensor cores, else T itself. */
template <typename T, typename E> static tn_status tnc_linear_run(tnc *s, const tn_call *c, bool backward)
{
    typedef typename tnc_real<T>::type R;
    const bool       tensor = (int)tnc_code<E>::dtype == TN_BF16, sums = (int)c->f[2] == TN_ROW_SCALE_SUM;
    const int64_t    dv = c->in[2].shape[3];
    tnc_linear       q = tnc_linear_of(c, false, tensor), k = tnc_linear_of(c, true, tensor);
    tnc_linear_item  items[6];                   /* q1, q2, u, k1, k2, v */
    tnc_linear_pass<R> pass[3];
    tnc_linear_group g;
    size_t           fixed = sums && !backward ? tnc_linear_bytes(q.heads * q.x.T * q.w[2], sizeof(R)) : 0;
    char            *scratch;
    for (int i = 0; i < 6; i++) {
        const tn_view   *from = i % 3 < 2 ? &c->in[i / 3] : i == 2 ? &c->in[5] : &c->in[2];
        tnc_linear_item *item = &items[i];
        memset(item, 0, sizeof *item);
        if (i == 2 && !backward) continue;
        item->set = tnc_linear_view(from, q.H, q.squared ? 0 : i % 3 % 2, sizeof(T));
        item->T = i < 3 ? q.x.T : q.y.T;
        item->width = i % 3 < 2 ? q.w[0] : dv;
        item->mode = i == 2 ? TNC_LINEAR_SLOPE : i == 5 && sums ? TNC_LINEAR_ONE : TNC_LINEAR_COPY;
        item->pitch = i % 3 < 2 ? q.w[0] : q.w[2];
        if (tensor) item->pitch = (item->pitch + 7) / 8 * 8;
        item->pack = item->mode != TNC_LINEAR_COPY || sizeof(T) != sizeof(E)
                     || (tensor && (item->pitch != item->width || !tnc_linear_aligned(item->set, 16, sizeof(E))));
        if (q.squared && i % 3 == 1) item->pack = false;                            /* the same vector as the first */
        item->offset = fixed;
        if (item->pack) fixed += tnc_linear_bytes(q.heads * item->T * item->pitch, sizeof(E));
    }
    if (!(scratch = tnc_linear_scratch<E>(s, &q, c->out[2].data && !backward, fixed, &g))) return TN_ERR_MEMORY;
    for (int i = 0; i < 6; i++) {
        tnc_linear_item *item = &items[i];
        if (item->pack) {
            E *to = (E *)(scratch + item->offset);
            TNC_LAUNCH((tnc_linear_pack<T, E>), tnc_grid(s, q.heads * item->T, 8), 256, 0, s->stream, item->set,
                       tnc_linear_view(&c->in[3], q.H, 0, sizeof(T)), item->mode, tnc_linear_scale_of<R>(c, backward), q.H,
                       q.heads, item->T, item->width, item->pitch, to);
            item->set = tnc_linear_packed(to, q.H, item->T, item->pitch);
        }
        if (q.squared && i % 3 == 1) item->set = items[i - 1].set;
        q.wide[i % 3] = k.wide[i % 3] = (int)items[3 + i % 3].pitch;
        if (i < 3) q.x.set[i] = k.y.set[i] = item->set;
        else q.y.set[i - 3] = k.x.set[i - 3] = item->set;
    }
    for (int side = 0; side < 1 + backward; side++) {                               /* the output; or dq, then dk and dv */
        memset(pass, 0, sizeof pass);
        int n = 0;
        for (int i = backward ? 0 : 2; i < (backward ? 2 + side : 3); i++) {
            const tn_view *out = &c->out[!backward ? 0 : i < 2 ? side : 2];
            tnc_linear_pass<R> *p = &pass[n];
            if (!out->data || (i == 1 && q.squared)) continue;
            p->out = tnc_linear_view(out, q.H, i % 2, sizeof(T));
            p->m = i;
            p->width = i < 2 ? q.w[i] : dv;
            p->add = backward && c->accumulate;
            p->factor = (R)(c->f[0] * c->f[0] * (i < 2 && q.squared ? 2 : 1));
            p->f32 = (int)tnc_code<T>::dtype == TN_F32;
            if (!backward) {
                p->scaled = !sums;
                p->scale = tnc_linear_scale_of<R>(c, false);
                if (sums) {
                    p->out = tnc_linear_packed(scratch, q.H, q.x.T, q.w[2]);
                    p->width = q.w[2];
                    p->f32 = true;
                }
            }
            p->pairs = p->width % 2 == 0 && tnc_linear_aligned(p->out, p->f32 ? 8 : 4, p->f32 ? 4 : 2);
            n++;
        }
        if (n > 0)
            tnc_linear_sweep(s, side ? k : q, pass, n, g, (E *)(scratch + fixed), (R *)(backward ? NULL : c->out[2].data));
    }
    if (sums && !backward)
        TNC_LAUNCH((tnc_linear_divide<T>), tnc_grid(s, q.heads * q.x.T * q.w[2], 256), 256, 0, s->stream, (const R *)scratch,
                   q.H,
                   q.heads, q.x.T, q.w[2], (R)c->f[3], tnc_linear_view(&c->out[0], q.H, 0, sizeof(T)), (R *)c->out[1].data);
    return TN_OK;
}

template <typename T> static tn_status tnc_linear_decode(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const tnc_linear p = tnc_linear_of(c, false, false);
    tnc_linear_tokens   t;
    const bool       sums = (int)c->f[2] == TN_ROW_SCALE_SUM;
    const int64_t    parts = tnc_ceil(p.squared ? p.w[0] * (p.w[0] + 1) / 2 : p.w[0] * p.w[0], 64);
    const int64_t    numbers = p.heads * p.x.T * p.w[2];
    R               *part = (R *)tnc_scratch(s, (size_t)(parts + 1) * (size_t)numbers * sizeof(R));
    R               *raw = sums ? part + parts * numbers : NULL;
    if (!part) return TN_ERR_MEMORY;
    for (int i = 0; i < 2; i++) {
        t.q[i] = tnc_linear_view(&c->in[0], p.H, p.squared ? 0 : i, sizeof(T));
        t.k[i] = tnc_linear_view(&c->in[1], p.H, p.squared ? 0 : i, sizeof(T));
    }
    t.v = tnc_linear_view(&c->in[2], p.H, 0, sizeof(T));
    t.out = tnc_linear_view(&c->out[0], p.H, 0, sizeof(T));
    t.H = p.H; t.Tq = p.x.T; t.Tk = p.y.T; t.d = p.w[0]; t.dv = c->in[2].shape[3]; t.n = p.w[2];
    t.squared = p.squared;
    t.causal = p.causal;
    TNC_LAUNCH((tnc_linear_decode_step<T>), dim3((unsigned)parts, (unsigned)p.heads), 256, 0, s->stream, t,
               (R *)c->out[2].data, part);
    TNC_LAUNCH((tnc_linear_decode_combine<T>), tnc_grid(s, numbers, 256), 256, 0, s->stream, t, (const R *)part, parts,
               p.heads, (R)(c->f[0] * c->f[0]), tnc_linear_scale_of<R>(c, false), raw);
    if (sums)
        TNC_LAUNCH((tnc_linear_divide<T>), tnc_grid(s, numbers, 256), 256, 0, s->stream, (const R *)raw, t.H, p.heads, t.Tq,
                   t.n, (R)c->f[3], t.out, (R *)c->out[1].data);
    return TN_OK;
}

/* Tensor cores compute d and n up to 128 with BF16 operands, or with F32 operands if the context has TN_GEMM_BF16. */
static tn_status tnc_linear_choose(tnc *s, const tn_call *c, bool backward)
{
    const tn_dtype   dtype = c->in[0].dtype, real = dtype == TN_F64 ? TN_F64 : TN_F32;
    const tnc_linear t = tnc_linear_of(c, false, true);
    const bool       tensor = t.w[0] <= 128 && t.w[2] <= 128 && tnc_linear_shared(t.D, 128, 64) <= s->shared_max;
    if (t.w[0] > INT32_MAX || t.w[2] > INT32_MAX || t.heads > UINT32_MAX)
        return tnc_error(s, TN_ERR_SHAPE, "%lld heads of %lld and %lld numbers, expected at most 2^32 - 1 heads of 2^31 - 1",
                         (long long)t.heads, (long long)t.w[0], (long long)t.w[2]);
    if (!tnc_linear_types(c, dtype, real, backward) || (dtype == TN_BF16 && !tensor)) return TN_ERR_DTYPE;
    if (backward && t.heads * t.x.T * t.y.T * t.w[2] == 0) return tnc_attend_no_pairs(s, c);
    if (t.heads * t.length * t.w[2] == 0) return TN_OK;
    if (!backward && c->out[2].data && t.x.T <= TNC_LINEAR_DECODE && t.y.T <= TNC_LINEAR_DECODE && t.heads <= 65535
        && t.w[0] * t.w[1] <= INT32_MAX)
        TNC_TYPES(dtype, T, return tnc_linear_decode<T>(s, c))
    if (dtype == TN_BF16) return tnc_linear_run<tnc_bf16, tnc_bf16>(s, c, backward);
    if (dtype == TN_F64) return tnc_linear_run<double, double>(s, c, backward);
    if (tensor && s->precision == TN_GEMM_BF16) return tnc_linear_run<float, tnc_bf16>(s, c, backward);
    return tnc_linear_run<float, float>(s, c, backward);
}

TNC_FN tn_status tnc_attention_linear(tnc *s, const tn_call *c) { return tnc_linear_choose(s, c, false); }
TNC_FN tn_status tnc_attention_linear_backward(tnc *s, const tn_call *c) { return tnc_linear_choose(s, c, true); }
