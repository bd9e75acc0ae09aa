#include "cuda/inner.h"

/* ---- add, mul, div -------------------------------------------------------------------------------------------- >>cuda-add
   The operands may have different types, F32 and BF16, as when a parameter is added to activations. Floor: the bytes read
   and written. */

template <typename R> struct tnc_scaled {               /* f0 a */
    enum { inputs = 1, adds = 1 };
    R f0;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = f0 * a[k];
    }
};

template <typename R> struct tnc_pairs {                /* f0 a + f1 b, or f0 a * b */
    enum { inputs = 2, adds = 1 };
    R    f0, f1;
    bool product;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        TNC_EACH v[k] = product ? f0 * a[k] * b[k] : tnc_fma(f0, a[k], f1 * b[k]);
    }
};

template <typename Y, typename A>
static tn_status tnc_scaled_run(tnc *s, const tn_view *y, const tn_view *a, double f0, bool add)
{
    typedef typename tnc_real<Y>::type R;
    const tnc_scaled<R> op = { (R)f0 };
    tnc_map(s, tnc_walk_of(y, a, NULL), op, (Y *)y->data, (const A *)a->data, (const A *)NULL, add);
    return TN_OK;
}

template <typename Y, typename A, typename B>
static tn_status tnc_pairs_run(tnc *s, const tn_call *c, const tn_view *a, const tn_view *b, double f0, double f1)
{
    typedef typename tnc_real<Y>::type R;
    const tnc_pairs<R> op = { (R)f0, (R)f1, c->kernel == TN_KERNEL_MUL };
    const tn_view *y = &c->out[0];
    tnc_map(s, tnc_walk_of(y, a, b), op, (Y *)y->data, (const A *)a->data, (const B *)b->data, c->accumulate);
    return TN_OK;
}

TNC_FN tn_status tnc_add_one(tnc *s, const tn_view *y, const tn_view *a, double f0, bool add)
{
    switch (TNC_MIX(0, y->dtype, a->dtype)) {
    case TNC_MIX(0, TN_F32, TN_F32):   return tnc_scaled_run<float, float>(s, y, a, f0, add);
    case TNC_MIX(0, TN_F64, TN_F64):   return tnc_scaled_run<double, double>(s, y, a, f0, add);
    case TNC_MIX(0, TN_BF16, TN_BF16): return tnc_scaled_run<tnc_bf16, tnc_bf16>(s, y, a, f0, add);
    case TNC_MIX(0, TN_BF16, TN_F32):  return tnc_scaled_run<tnc_bf16, float>(s, y, a, f0, add);
    case TNC_MIX(0, TN_F32, TN_BF16):  return tnc_scaled_run<float, tnc_bf16>(s, y, a, f0, add);
    default:                           return TN_ERR_DTYPE;
    }
}

TNC_FN tn_status tnc_add(tnc *s, const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    double         f0 = c->f[0], f1 = c->f[1];
    if (c->n_in < 2) return tnc_add_one(s, y, a, f0, c->accumulate);
    if (a->dtype == TN_F32 && b->dtype == TN_BF16) {    /* both sums are commutative: fewer template instances */
        const tn_view *t = a;
        a = b;
        b = t;
        f0 = c->f[1];
        f1 = c->f[0];
        if (c->kernel == TN_KERNEL_MUL) f0 = c->f[0];
    }
    switch (TNC_MIX(y->dtype, a->dtype, b->dtype)) {
    case TNC_MIX(TN_F32, TN_F32, TN_F32):    return tnc_pairs_run<float, float, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F64, TN_F64, TN_F64):    return tnc_pairs_run<double, double, double>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_BF16, TN_BF16): return tnc_pairs_run<tnc_bf16, tnc_bf16, tnc_bf16>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_BF16, TN_F32):  return tnc_pairs_run<tnc_bf16, tnc_bf16, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_F32, TN_F32):   return tnc_pairs_run<tnc_bf16, float, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F32, TN_BF16, TN_BF16):  return tnc_pairs_run<float, tnc_bf16, tnc_bf16>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F32, TN_BF16, TN_F32):   return tnc_pairs_run<float, tnc_bf16, float>(s, c, a, b, f0, f1);
    default:                                 return TN_ERR_DTYPE;
    }
}

TNC_FN tn_status tnc_mul(tnc *s, const tn_call *c) { return tnc_add(s, c); }

template <typename R> struct tnc_ratio {                /* f0 a / b, correctly rounded */
    enum { inputs = 2, adds = 1 };
    R f0;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        TNC_EACH v[k] = f0 * a[k] / b[k];
    }
};

TNC_FN tn_status tnc_div(tnc *s, const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_ratio<typename tnc_real<T>::type> op = { (typename tnc_real<T>::type)c->f[0] };
        tnc_map(s, tnc_walk_of(y, a, b), op, (T *)y->data, (const T *)a->data, (const T *)b->data, c->accumulate))
    return TN_OK;
}

/* ---- where -------------------------------------------------------------------------------------------------- >>cuda-where
   A walk has three views, but the op has four operands: so one launch writes the elements of the first operand, and a second
   one those of the other. An absent operand counts as zeros. Floor: the bytes of y, of the chosen elements of both operands,
   and the condition twice. */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_where_kernel(const tnc_walk w, T *y, const int32_t *condition, const T *x, const bool chosen, const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_GRID_STRIDE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        tnc_at<3>(w, i, at);
        if ((condition[at[1]] != 0) != chosen) continue;
        R v = x ? tnc_to(x[at[2]]) : R(0);
        y[at[0]] = tnc_from<T>(add ? tnc_to(y[at[0]]) + v : v);
    }
}

template <typename T> static void tnc_where_side(tnc *s, const tn_call *c, bool chosen)
{
    const tn_view *x = &c->in[chosen ? 1 : 2], *y = &c->out[0];
    const tnc_walk w = tnc_walk_of(y, &c->in[0], x->data ? x : NULL);
    if (w.count == 0 || (!x->data && c->accumulate)) return;
    TNC_START((tnc_where_kernel<T>), tnc_blocks(w.count, TNC_THREADS), w, (T *)y->data, (const int32_t *)c->in[0].data,
              (const T *)x->data, chosen, c->accumulate);
}

TNC_FN tn_status tnc_where(tnc *s, const tn_call *c)
{
    const int dtype = c->out[0].dtype;
    if (!tnc_has(&c->in[1], dtype) || !tnc_has(&c->in[2], dtype)) return TN_ERR_DTYPE;
    TNC_TYPES(dtype, T, tnc_where_side<T>(s, c, true); tnc_where_side<T>(s, c, false))
    return TN_OK;
}

/* ---- sum ------------------------------------------------------------------------------------------------------ >>cuda-sum
   Each element of y is the sum of a part of x. The walk `kept` goes over the elements of y, the walk `summed` over the axes
   that are summed. Where the summed axis is contiguous, a warp or a block sums one element and its lanes stride along the
   part ("along"). Where the kept axis is contiguous, a thread sums one element or vector of elements and the eight warps of
   the block stride down the part ("down"). If there are few elements, their parts are split, as in split-K: partial sums go
   to scratch and are summed by a second pass. Split and order depend on the shape alone. Floor: the bytes of x. */

/* How parts are split. length, pieces: elements per split, number of splits; step: distance of their partial sums in y;
   along: distance of neighbouring elements in y; block: a block and not a warp sums an element. */
typedef struct tnc_cut { int64_t length, pieces, step, along; bool block; } tnc_cut;

template <int V, typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_sum_along_kernel(const tnc_walk kept, const tnc_walk summed, const tnc_cut cut, Y *y, const X *x,
                     const typename tnc_real<Y>::type factor, const bool add)
{
    typedef typename tnc_real<X>::type R;
    enum { STEPS = 4 };
    const int     team = cut.block ? TNC_THREADS : 32, lane = (int)threadIdx.x & (team - 1);
    const int64_t tasks = kept.count * cut.pieces, teams = TNC_THREADS / team;
    for (int64_t base = (int64_t)blockIdx.x * teams; base < tasks; base += (int64_t)gridDim.x * teams) {
        const int64_t task = base + (int)threadIdx.x / team, piece = task % cut.pieces;
        const int64_t begin = piece * cut.length;
        const int64_t end = begin + cut.length < summed.count ? begin + cut.length : summed.count;
        int64_t place[TNC_VIEWS] = {0};
        R       sums[STEPS][V], sum = 0;
        TNC_UNROLL
        for (int u = 0; u < STEPS; u++)
            TNC_EACH sums[u][k] = 0;
        if (task < tasks) {
            tnc_at<2>(kept, task / cut.pieces, place);
            for (int64_t i = begin + lane; i < end; i += STEPS * team) {
                R v[STEPS][V];
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    int64_t at[TNC_VIEWS];
                    if (i + u * team >= end) break;
                    tnc_at<1>(summed, i + u * team, at);
                    tnc_load(v[u], x + place[0] + at[0]);
                }
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    if (i + u * team >= end) break;
                    TNC_EACH sums[u][k] += v[u][k];
                }
            }
        }
        TNC_EACH sum += (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
        sum = cut.block ? tnc_block_sum(sum) : tnc_warp_sum(sum);
        if (task < tasks && lane == 0) {
            Y *to = y + place[1] + piece * cut.step;
            *to = tnc_from<Y>(factor * sum + (add ? tnc_to(*to) : 0));
        }
    }
}

template <int V, typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_sum_down_kernel(const tnc_walk kept, const tnc_walk summed, const tnc_cut cut, Y *y, const X *x,
                    const typename tnc_real<Y>::type factor, const bool add)
{
    typedef typename tnc_real<X>::type R;
    enum { STEPS = 4, WARPS = TNC_THREADS / 32 };
    TNC_SHARED(R, part, [WARPS][V][32]);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t across = (kept.count + 31) / 32, tasks = across * cut.pieces;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t piece = task / across, element = task % across * 32 + lane;
        const int64_t begin = piece * cut.length;
        const int64_t end = begin + cut.length < summed.count ? begin + cut.length : summed.count;
        int64_t place[TNC_VIEWS] = {};
        R       sums[STEPS][V];
        TNC_UNROLL
        for (int u = 0; u < STEPS; u++)
            TNC_EACH sums[u][k] = 0;
        if (element < kept.count) {
            tnc_at<2>(kept, element, place);
            for (int64_t i = begin + warp; i < end; i += STEPS * WARPS) {
                R v[STEPS][V];
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    int64_t at[TNC_VIEWS];
                    if (i + u * WARPS >= end) break;
                    tnc_at<1>(summed, i + u * WARPS, at);
                    tnc_load(v[u], x + place[0] + at[0]);
                }
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    if (i + u * WARPS >= end) break;
                    TNC_EACH sums[u][k] += v[u][k];
                }
            }
        }
        TNC_EACH part[warp][k][lane] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
        __syncthreads();
        for (int k = warp; k < V; k += WARPS) {
            R sum = part[0][k][lane];
            TNC_UNROLL
            for (int j = 1; j < WARPS; j++) sum += part[j][k][lane];
            if (element < kept.count) {
                Y *to = y + place[1] + k * cut.along + piece * cut.step;
                *to = tnc_from<Y>(factor * sum + (add ? tnc_to(*to) : 0));
            }
        }
        __syncthreads();
    }
}

/* The operands of one pass: x and y over the kept axes, x over the summed axes. */
typedef struct tnc_sums { tn_view kept_x, kept_y, summed; bool down; } tnc_sums;

/* Splits the parts until there are about a thousand blocks. */
static tnc_cut tnc_sum_cut(const tnc_sums *j, int64_t kept, int64_t summed)
{
    tnc_cut cut = { summed, 1, 0, 0, !j->down && summed >= 1024 };
    int64_t pieces = 1024 / (j->down ? tnc_ceil(kept, 32) : kept);
    if (pieces > summed / (j->down ? 64 : 2048)) pieces = summed / (j->down ? 64 : 2048);
    if (pieces < 2) return cut;
    cut.length = tnc_ceil(tnc_ceil(summed, pieces), 64) * 64;                   /* whole vectors of 16 bytes */
    cut.pieces = tnc_ceil(summed, cut.length);
    return cut;
}

static bool tnc_steps_divide(const tnc_walk *w, int V)
{
    for (int k = 0; k < w->rank; k++)
        if (w->axis[k].step[0] % V != 0) return false;
    return true;
}

template <int V, typename Y, typename X>
static void tnc_sum_launch(tnc *s, const tnc_walk &kept, const tnc_walk &summed, const tnc_sums *j, const tnc_cut &cut,
                           double factor, bool add)
{
    typedef typename tnc_real<Y>::type R;
    const int64_t tasks = j->down ? tnc_ceil(kept.count, 32) : tnc_ceil(kept.count, cut.block ? 1 : TNC_THREADS / 32);
    const unsigned blocks = tnc_blocks(tasks * cut.pieces, 1);
    if (j->down)
        TNC_START((tnc_sum_down_kernel<V, Y, X>), blocks, kept, summed, cut, (Y *)j->kept_y.data, (const X *)j->kept_x.data,
                  (R)factor, add);
    else
        TNC_START((tnc_sum_along_kernel<V, Y, X>), blocks, kept, summed, cut, (Y *)j->kept_y.data, (const X *)j->kept_x.data,
                  (R)factor, add);
}

/* Vectors of 16 bytes are used where elements, or the numbers of a part, are contiguous and aligned. */
template <typename Y, typename X>
static void tnc_sum_pass(tnc *s, const tnc_sums *j, tnc_cut cut, double factor, bool add)
{
    enum { V = (int)(16 / sizeof(X)) };
    const void  *p[TNC_VIEWS] = { j->kept_x.data, NULL, NULL };
    const size_t size[TNC_VIEWS] = { sizeof(X), 0, 0 };
    tnc_walk     kept = tnc_walk_of(&j->kept_x, &j->kept_y, NULL), summed = tnc_walk_of(&j->summed, NULL, NULL);
    cut.along = kept.axis[0].step[1];
    if (j->down ? tnc_steps_divide(&summed, V) && tnc_walk_widen(&kept, V, p, size)
                : tnc_steps_divide(&kept, V) && tnc_walk_widen(&summed, V, p, size)) {
        if (!j->down) cut.length = tnc_ceil(cut.length, V);
        tnc_sum_launch<V, Y, X>(s, kept, summed, j, cut, factor, add);
    } else tnc_sum_launch<1, Y, X>(s, kept, summed, j, cut, factor, add);
}

template <typename Y, typename X> static tn_status tnc_sum_run(tnc *s, tnc_sums *j, double factor, bool add)
{
    typedef typename tnc_real<X>::type R;
    const tnc_walk kept = tnc_walk_of(&j->kept_x, NULL, NULL), summed = tnc_walk_of(&j->summed, NULL, NULL);
    tnc_sums       first = *j, second = *j;
    if (kept.count == 0) return TN_OK;
    first.down = second.down = kept.count > 1
        && (llabs(kept.axis[0].step[0]) < llabs(summed.axis[0].step[0]) || summed.count < 16);
    tnc_cut cut = tnc_sum_cut(&first, kept.count, summed.count);
    if (cut.pieces == 1) {
        tnc_sum_pass<Y, X>(s, &first, cut, factor, add);
        return TN_OK;
    }
    first.kept_y.data = tnc_scratch(s, (size_t)(kept.count * cut.pieces) * sizeof(R));
    if (!first.kept_y.data) return TN_ERR_MEMORY;
    int64_t step = first.down ? 1 : cut.pieces;
    for (int i = first.kept_y.rank - 1; i >= 0; step *= first.kept_y.shape[i--]) first.kept_y.strides[i] = step;
    cut.step = first.down ? kept.count : 1;
    second.kept_x = first.kept_y;
    second.summed.rank = 1;
    second.summed.shape[0] = cut.pieces;
    second.summed.strides[0] = cut.step;
    tnc_sum_pass<R, X>(s, &first, cut, 1, false);
    cut.length = cut.pieces;
    cut.pieces = 1;
    cut.block = !second.down && cut.length >= 256;
    tnc_sum_pass<Y, R>(s, &second, cut, factor, add);
    return TN_OK;
}

TNC_FN tn_status tnc_sum(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    tnc_sums       j = { *x, *y, *x, false };
    for (int k = 0; k < x->rank; k++)
        if (y->shape[k] == 1 && x->shape[k] != 1) j.kept_x.shape[k] = 1;
        else j.summed.shape[k] = 1;
    switch (TNC_MIX(0, y->dtype, x->dtype)) {
    case TNC_MIX(0, TN_F32, TN_F32):   return tnc_sum_run<float, float>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_F64, TN_F64):   return tnc_sum_run<double, double>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_F32, TN_BF16):  return tnc_sum_run<float, tnc_bf16>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_BF16, TN_BF16): return tnc_sum_run<tnc_bf16, tnc_bf16>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_BF16, TN_F32):  return tnc_sum_run<tnc_bf16, float>(s, &j, c->f[0], c->accumulate);
    default:                           return TN_ERR_DTYPE;
    }
}
