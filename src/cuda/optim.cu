#include "cuda/inner.h"

/* ---- collecting the calls of optimisers --------------------------------------------------------------------- >>cuda-optim
   The header calls an optimiser once per parameter. Consecutive calls of one kind are collected in s->pending until a call
   of another kind comes or tnc_flush is called, and then run in one launch: each block updates TNC_SHARE elements of one
   parameter. The delay cannot be observed, since everything that touches device memory flushes first. */

enum { TNC_SHARE = 8192 };
enum { TNC_LR, TNC_STEP, TNC_SIZE, TNC_FACTOR, TNC_SKIP, TNC_NORM, TNC_MOMENTUM, TNC_TAKEN };     /* the scalars of a step */

#define TNC_FINITE 1.7976931348623157e308
#define TNC_ADAMW_LARGEST 9223372036854775808.0f        /* 2^63, see TNI_ADAMW_LARGEST */

/* The parameter that a block works on. */
static __device__ __forceinline__ int tnc_part_of(const tnc_pending &a, int64_t block)
{
    int low = 0, high = a.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (a.part[middle].first <= block) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* The elements [begin,end) of a block within its parameter; whole packs up to `wide`. */
typedef struct tnc_range { int64_t begin, wide, end; } tnc_range;

static __device__ __forceinline__ tnc_range tnc_range_of(int64_t block, int64_t n, bool packs, int V)
{
    tnc_range r = { block * TNC_SHARE, block * TNC_SHARE, block * TNC_SHARE + TNC_SHARE };
    if (r.end > n) r.end = n;
    if (packs) r.wide = r.end - (r.end - r.begin) % V;
    return r;
}

/* Whether the collected calls must run first: they are full, of another kind, or contain this parameter, whose two steps
   must run in order. */
static bool tnc_must_flush(const tnc_pending *a, const tnc_pending *like, const void *parameter)
{
    if (a->count == TNC_PENDING || (a->count > 0 && memcmp(a, like, offsetof(tnc_pending, count)) != 0)) return true;
    for (int k = 0; k < a->count; k++)
        if (a->part[k].x[0] == parameter) return true;
    return false;
}

/* Adds a call to the collected ones. Scratch that they will need is allocated here, where an error belongs to a call. */
static tn_status tnc_pend(tnc *s, const tn_call *c, const char *name, const tn_view *const x[4], const tn_view *shadow,
                          int64_t n, const void *scalars, const void *fault)
{
    tnc_pending *a = &s->pending, like;
    const tn_dtype dtype = x[0]->dtype;
    tn_status    status;
    if (dtype != TN_F32 && dtype != TN_F64) return TN_ERR_DTYPE;
    for (int k = 0; k < 4; k++) if (x[k] && !tnc_has(x[k], dtype)) return TN_ERR_DTYPE;
    if (shadow && shadow->data && (shadow->dtype != TN_BF16 || dtype != TN_F32)) return TN_ERR_DTYPE;
    memset(&like, 0, sizeof like);
    like.kernel = c->kernel;
    like.dtype = dtype;
    like.name = name;
    like.scalars = scalars;
    like.fault = fault;
    if (c->kernel == TN_KERNEL_ADAMW || c->kernel == TN_KERNEL_SGD) {
        memcpy(like.f, c->f, 3 * sizeof *c->f);
        like.f[3] = c->f[5];
    }
    if (tnc_must_flush(a, &like, x[0]->data) && (status = tnc_flush(s)) != TN_OK) return status;
    if (a->count == 0) memcpy(a, &like, offsetof(tnc_pending, count));
    tnc_part *part = &a->part[a->count];
    memset(part, 0, sizeof *part);
    part->wide = true;
    for (int k = 0; k < 4; k++) {
        part->x[k] = x[k] ? x[k]->data : NULL;
        part->wide = part->wide && tnc_aligned(part->x[k]);
    }
    part->shadow = shadow ? shadow->data : NULL;
    part->wide = part->wide && tnc_aligned(part->shadow, 8);
    part->n = n;
    part->first = a->count ? part[-1].first + tnc_ceil(part[-1].n, TNC_SHARE) : 0;
    part->index = (int32_t)c->i[0];
    part->scale = c->f[0];
    part->decay = c->f[3];
    part->rate = c->f[4];
    if (part->first + tnc_ceil(n, TNC_SHARE) > INT32_MAX) return TN_ERR_SHAPE;
    if (c->kernel == TN_KERNEL_SUMSQ && !tnc_scratch(s, (size_t)(part->first + tnc_ceil(n, TNC_SHARE)) * sizeof(double)))
        return TN_ERR_MEMORY;
    a->count++;
    return TN_OK;
}

/* ---- sumsq -------------------------------------------------------------------------------------------------- >>cuda-sumsq
   The sum of squares is computed in double, since a square may overflow a float; few GPUs are too slow for that. Floor:
   reads every gradient. */

/* The sum of squares of the elements of each block. */
template <typename R>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_squares_kernel(const __grid_constant__ tnc_pending a, double *sums)
{
    enum { V = tnc_wide<R>::count };
    const tnc_part &part = a.part[tnc_part_of(a, blockIdx.x)];
    const R        *g = (const R *)part.x[0];
    const tnc_range at = tnc_range_of(blockIdx.x - part.first, part.n, part.wide, V);
    double          sum = 0;
    TNC_UNROLL_BY(4)
    for (int64_t i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V) {
        R v[V];
        tnc_load(v, g + i);
        TNC_EACH sum = fma((double)v[k], (double)v[k], sum);
    }
    for (int64_t i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS) sum = fma((double)g[i], (double)g[i], sum);
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* One block: a warp adds the sums of the blocks of a parameter, then one thread combines the parameters in order. */
template <typename R>
static __global__ void __launch_bounds__(1024)
tnc_squares_end_kernel(const __grid_constant__ tnc_pending a, const double *sums, int64_t blocks)
{
    TNC_SHARED(double, total, [TNC_PENDING]);
    R *s = (R *)a.scalars;
    for (int k = (int)threadIdx.x >> 5; k < a.count; k += 32) {
        const int64_t end = k + 1 < a.count ? a.part[k + 1].first : blocks;
        double        sum = 0;
        TNC_UNROLL_BY(4)
        for (int64_t i = a.part[k].first + (threadIdx.x & 31); i < end; i += 32) sum += sums[i];
        sum = tnc_warp_sum(sum);
        if ((threadIdx.x & 31) == 0) total[k] = sum;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int k = 0; k < a.count; k++) {
        s[TNC_SIZE] = (R)hypot((double)s[TNC_SIZE], sqrt(total[k]));
        if (!(total[k] <= TNC_FINITE)) tnc_not_finite((int32_t *)a.fault, a.part[k].index, (int32_t)s[TNC_TAKEN]);
    }
}

template <typename R> static tn_status tnc_sumsq_flush(tnc *s, const tnc_pending &a, int64_t blocks)
{
    double *sums = (double *)tnc_scratch(s, (size_t)blocks * sizeof *sums);
    if (!sums) return TN_ERR_MEMORY;
    if (blocks > 0) TNC_START((tnc_squares_kernel<R>), (unsigned)blocks, a, sums);
    TNC_LAUNCH((tnc_squares_end_kernel<R>), 1, 1024, 0, s->stream, a, (const double *)sums, blocks);
    return TN_OK;
}

TNC_FN tn_status tnc_sumsq(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->in[0], NULL, NULL, NULL };
    return tnc_pend(s, c, "sumsq", x, NULL, c->in[0].shape[0], c->out[0].data, c->out[1].data);
}

/* ---- step_begin ---------------------------------------------------------------------------------------------- >>cuda-step
   One thread computes what the optimisers need of a step - the norm, the clipping factor, whether to skip - from the result
   of sumsq. Floor: one launch. */

template <typename R> static __global__ void tnc_step_begin_kernel(R *s, int32_t *fault, double clip)
{
    const double norm = (double)s[TNC_SIZE];
    if (threadIdx.x > 0) return;
    if (!(norm <= TNC_FINITE)) tnc_not_finite(fault, -1, (int32_t)s[TNC_TAKEN]);    /* the gradients are finite */
    bool skip = fault[0] != 0;
    s[TNC_NORM] = (R)norm;
    s[TNC_SKIP] = R(skip ? 1 : 0);
    s[TNC_FACTOR] = (R)(clip > 0 && norm > clip ? clip / norm : 1);
    s[TNC_STEP] = (R)((double)s[TNC_STEP] + (skip ? 0 : 1));
    s[TNC_SIZE] = 0;
}

TNC_FN tn_status tnc_step_begin(tnc *s, const tn_call *c)
{
    int32_t *fault = (int32_t *)c->out[1].data;
    TNC_REALS(c->out[0].dtype, R,
        TNC_LAUNCH((tnc_step_begin_kernel<R>), 1, 32, 0, s->stream, (R *)c->out[0].data, fault, c->f[0]))
    return TN_OK;
}

/* ---- adamw, sgd, muon_end ----------------------------------------------------------------------------------- >>cuda-adamw
   One elementwise update for all rules. Floor: adamw reads 4 arrays and writes 3, sgd 3 and 2 (2 and 1 without momentum);
   muon_end reads 2 and writes 1; and 2 bytes per number for a shadow, which is the value in BF16 for products. */

/* The coefficients of an update, computed by one thread for its block. */
template <typename R> struct tnc_rule {
    R    keep1, take1, keep2, take2, unbias1, unbias2, eps, decay, down, factor, scale;
    bool skip, nesterov;
};

template <typename R> static __device__ void tnc_rule_of(tnc_rule<R> *r, const tnc_pending &a, const tnc_part &part)
{
    const R     *s = (const R *)a.scalars;
    const double t = (double)s[TNC_STEP] - a.f[3];
    r->skip = s[TNC_SKIP] != 0;
    r->keep1 = (R)a.f[0];
    r->take1 = (R)(1 - a.f[0]);
    r->keep2 = (R)a.f[1];
    r->take2 = (R)(1 - a.f[1]);
    r->nesterov = a.f[1] != 0;
    r->scale = (R)part.scale;
    r->eps = (R)a.f[2];
    r->decay = (R)part.decay;
    r->down = (R)(-(double)s[TNC_LR] * part.rate);
    r->factor = s[TNC_FACTOR];
    if (a.kernel != TN_KERNEL_ADAMW) return;
    r->unbias1 = (R)(1 / (1 - pow(a.f[0], t)));
    r->unbias2 = (R)(1 / (1 - pow(a.f[1], t)));
}

/* Bounds a float, and leaves a double. NaN stays. */
static __device__ __forceinline__ float  tnc_clamp(float x, float most) { return x > most ? most : x < -most ? -most : x; }
static __device__ __forceinline__ double tnc_clamp(double x, float) { return x; }

/* Updates V elements. */
template <typename R, int V, int KERNEL>
static __device__ __forceinline__ void tnc_update(const tnc_rule<R> &r, const tnc_part &part, int64_t i)
{
    const R *g = (const R *)part.x[1] + i;
    R *p = (R *)part.x[0] + i, *m = NULL, *v = NULL;
    R  p_[V], g_[V], m_[V] = {}, v_[V] = {};
    tnc_load(g_, g);
    tnc_load(p_, p);
    if (part.x[2]) m = (R *)part.x[2] + i;
    if (part.x[3]) v = (R *)part.x[3] + i;
    if (KERNEL == TN_KERNEL_ADAMW) {
        tnc_load(m_, m);
        tnc_load(v_, v);
        TNC_EACH {
            R d = tnc_clamp(g_[k] * r.factor, TNC_ADAMW_LARGEST);
            m_[k] = tnc_fma(r.take1, d, r.keep1 * m_[k]);
            v_[k] = tnc_fma(r.take2 * d, d, r.keep2 * v_[k]);
            d = m_[k] * r.unbias1 / (tnc_sqrt(v_[k] * r.unbias2) + r.eps);
            p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], d), p_[k]);
        }
        tnc_store(m, m_);
        tnc_store(v, v_);
    } else if (KERNEL == TN_KERNEL_SGD) {
        if (m) tnc_load(m_, m);
        TNC_EACH {
            const R d = g_[k] * r.factor;
            R       to = d;
            if (m) to = m_[k] = tnc_fma(r.keep1, m_[k], d);
            if (r.nesterov) to = tnc_fma(r.keep1, to, d);
            p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], to), p_[k]);
        }
        if (m) tnc_store(m, m_);
    } else {
        TNC_EACH p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], r.scale * g_[k]), p_[k]);
    }
    tnc_store(p, p_);
    if constexpr (sizeof(R) == sizeof(float)) if (part.shadow) tnc_store((tnc_bf16 *)part.shadow + i, p_);
}

template <typename R, int KERNEL> static __global__ void __launch_bounds__(TNC_THREADS, sizeof(R) == 8 ? 2 : 4)
tnc_update_kernel(const __grid_constant__ tnc_pending a)
{
    enum { V = tnc_wide<R>::count };
    TNC_SHARED(tnc_rule<R>, shared, [1]);
    const int       which = tnc_part_of(a, blockIdx.x);
    const tnc_part &part = a.part[which];
    const tnc_range at = tnc_range_of(blockIdx.x - part.first, part.n, part.wide, V);
    if (threadIdx.x == 0) tnc_rule_of(&shared[0], a, part);
    __syncthreads();
    tnc_rule<R> r = shared[0];
    if (r.skip) return;
    TNC_UNROLL_BY(2)
    for (int64_t i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V) tnc_update<R, V, KERNEL>(r, part, i);
    for (int64_t i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS) tnc_update<R, 1, KERNEL>(r, part, i);
}

TNC_FN tn_status tnc_adamw(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->out[1], &c->out[2], &c->out[3] };
    return tnc_pend(s, c, "adamw", x, c->n_out > 4 ? &c->out[4] : NULL, c->out[0].shape[0], c->in[0].data, NULL);
}

TNC_FN tn_status tnc_sgd(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->out[1], c->n_out > 2 ? &c->out[2] : NULL, NULL };
    return tnc_pend(s, c, "sgd", x, c->n_out > 3 ? &c->out[3] : NULL, c->out[0].shape[0], c->in[0].data, NULL);
}

TNC_FN tn_status tnc_muon_end(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->in[1], NULL, NULL };
    return tnc_pend(s, c, "muon_end", x, c->n_out > 1 ? &c->out[1] : NULL, c->out[0].shape[0], c->in[0].data, NULL);
}

template <typename R> static tn_status tnc_flush_of(tnc *s, const tnc_pending &a)
{
    const tnc_part *last = &a.part[a.count - 1];
    const int64_t   blocks = last->first + tnc_ceil(last->n, TNC_SHARE);
    if (a.kernel == TN_KERNEL_SUMSQ) return tnc_sumsq_flush<R>(s, a, blocks);
    if (blocks == 0) return TN_OK;
    if (a.kernel == TN_KERNEL_ADAMW)
        TNC_START((tnc_update_kernel<R, TN_KERNEL_ADAMW>), (unsigned)blocks, a);
    else if (a.kernel == TN_KERNEL_SGD)
        TNC_START((tnc_update_kernel<R, TN_KERNEL_SGD>), (unsigned)blocks, a);
    else
        TNC_START((tnc_update_kernel<R, TN_KERNEL_MUON_END>), (unsigned)blocks, a);
    return TN_OK;
}

TNC_FN tn_status tnc_flush(tnc *s)
{
    tnc_pending *a = &s->pending;
    tn_status    status = TN_ERR_BACKEND;
    char         what[96];
    if (a->count == 0) return TN_OK;
    snprintf(what, sizeof what, "%s of %d parameters", a->name, a->count);
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (e == cudaSuccess) {
        status = a->dtype == TN_F64 ? tnc_flush_of<double>(s, *a) : tnc_flush_of<float>(s, *a);
        e = cudaGetLastError();
        if (e == cudaSuccess && s->wait) e = cudaStreamSynchronize(s->stream);
    }
    a->count = 0;
    return e == cudaSuccess ? status : tnc_fail(s, e, what);
}

/* ---- muon_begin ---------------------------------------------------------------------------------------------- >>cuda-muon
   The first kernel updates the momentum, computes the unscaled x and the sum of squares of each block; the second divides x
   by the norm of its matrix, which every block sums for itself in the same order. Floor: reads 3 arrays and writes 3. */

template <typename R> struct tnc_muon {
    const R *scalars, *g;                   /* g, x and m are [batch,n] */
    R       *x, *m;
    double  *sums;                          /* [batch,blocks] */
    int64_t  n;
    unsigned blocks;                        /* per matrix */
    double   momentum;
    bool     nesterov, wide;
};

template <typename R, int V>
static __device__ __forceinline__ double tnc_muon_move(const tnc_muon<R> &a, int64_t at, R keep, R take, R factor)
{
    R      g[V], m[V], x[V];
    double squares = 0;
    tnc_load(g, a.g + at);
    tnc_load(m, a.m + at);
    TNC_EACH {
        const R d = take * (g[k] * factor);
        m[k] = tnc_fma(keep, m[k], d);
        x[k] = a.nesterov ? tnc_fma(keep, m[k], d) : m[k];
        squares = fma((double)x[k], (double)x[k], squares);
    }
    tnc_store(a.m + at, m);
    tnc_store(a.x + at, x);
    return squares;
}

/* A skipped step keeps the momentum and sets x to zero: the matrix products that follow run in any case. */
template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_muon_begin_kernel(tnc_muon<R> a)
{
    enum { V = tnc_wide<R>::count };
    const int64_t   first = blockIdx.x / a.blocks * a.n;
    const tnc_range at = tnc_range_of(blockIdx.x % a.blocks, a.n, a.wide, V);
    const double    momentum = a.momentum < 0 ? (double)a.scalars[TNC_MOMENTUM] : a.momentum;
    const R         keep = (R)momentum, take = (R)(1 - momentum), factor = a.scalars[TNC_FACTOR];
    double          sum = 0;
    if (a.scalars[TNC_SKIP] != 0) {
        for (int64_t i = at.begin + (int)threadIdx.x; i < at.end; i += TNC_THREADS) a.x[first + i] = 0;
    } else {
        TNC_UNROLL_BY(2)
        for (int64_t i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V)
            sum += tnc_muon_move<R, V>(a, first + i, keep, take, factor);
        for (int64_t i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS)
            sum += tnc_muon_move<R, 1>(a, first + i, keep, take, factor);
    }
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_muon_unit_kernel(tnc_muon<R> a)
{
    const int64_t   matrix = blockIdx.x / a.blocks;
    const tnc_range at = tnc_range_of(blockIdx.x % a.blocks, a.n, false, 1);
    R              *x = a.x + matrix * a.n;
    double          sum = 0;
    for (int64_t i = threadIdx.x; i < a.blocks; i += TNC_THREADS) sum += a.sums[matrix * a.blocks + i];
    sum = tnc_block_sum(sum);
    R unit = sum > 1e-60 ? (R)(1 / sqrt(sum)) : R(0);           /* below 1e-30 the factor may overflow a float */
    for (int64_t i = at.begin + (int)threadIdx.x; i < at.end; i += TNC_THREADS) x[i] *= unit;
}

template <typename R> static tn_status tnc_muon_begin_of(tnc *s, const tn_call *c)
{
    const int64_t batch = c->out[0].shape[0];
    tnc_muon<R>   a;
    for (int k = 0; k < 3; k++) if (!tnc_has(&c->out[k], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    memset(&a, 0, sizeof a);
    a.scalars = (const R *)c->in[0].data;
    a.x = (R *)c->out[0].data;
    a.g = (const R *)c->out[1].data;
    a.m = (R *)c->out[2].data;
    a.n = c->out[0].shape[1];
    if (batch == 0 || a.n == 0) return TN_OK;
    a.wide = tnc_aligned(a.x) && tnc_aligned(a.g) && tnc_aligned(a.m) && a.n % tnc_wide<R>::count == 0;
    a.momentum = c->f[0];
    a.nesterov = c->f[1] != 0;
    a.blocks = (unsigned)tnc_ceil(a.n, TNC_SHARE);
    if (batch > INT32_MAX / a.blocks) return TN_ERR_SHAPE;
    a.sums = (double *)tnc_scratch(s, (size_t)(batch * a.blocks) * sizeof *a.sums);
    if (!a.sums) return TN_ERR_MEMORY;
    TNC_START((tnc_muon_begin_kernel<R>), (unsigned)(batch * a.blocks), a);
    TNC_START((tnc_muon_unit_kernel<R>), (unsigned)(batch * a.blocks), a);
    return TN_OK;
}

TNC_FN tn_status tnc_muon_begin(tnc *s, const tn_call *c)
{
    TNC_REALS(c->in[0].dtype, R, return tnc_muon_begin_of<R>(s, c))
}
