#include "cuda/inner.h"

/* ---- act, glu and their backward passes ----------------------------------------------------------------------- >>cuda-act
   One pass each. The two halves of the input of glu are two views of x, so that its forward pass is an elementwise kernel of
   two operands. F32 uses the CPU's polynomials for Phi and CUDA's functions for the others; BF16, which has 8 significant
   bits, the fast exponential and quotient. Floor: the bytes read and written. */

/* Phi(x) and phi(x). The tail Phi(-t) = e^(-t^2/2) g(t) has a smooth factor g, a polynomial in 1/(1 + 0.3 t). */
template <bool FAST> static __device__ __forceinline__ float tnc_normal_cdf(float x, float *density)
{
    const float t = fminf(15.0f, fabsf(x)), square = t * t, lost = fmaf(t, t, -square);
    const float z = tnc_quotient<FAST>(1.0f, fmaf(0.3f, t, 1.0f));
    float e = tnc_exp<FAST>(-0.5f * square);
    e = fmaf(e, -0.5f * lost, e);                                       /* corrects the rounding error of the square */
    float g = fmaf(-0.0206242893f, z, 0.112440139f);
    g = fmaf(g, z, -0.228224412f);
    g = fmaf(g, z, 0.191799164f);
    g = fmaf(g, z, -0.0794358179f);
    g = fmaf(g, z, 0.0961635262f);
    g = fmaf(g, z, 0.0783873126f);
    g = fmaf(g, z, 0.110235929f);
    g = fmaf(g, z, 0.119571753f);
    g = fmaf(g, z, 0.119686693f) * z * e;
    *density = 0.398942280f * e;
    return x > 0.0f ? 1.0f - g : g;
}

template <bool FAST> static __device__ __forceinline__ double tnc_normal_cdf(double x, double *density)
{
    *density = 0.3989422804014327 * exp(-0.5 * x * x);
    return 0.5 * erfc(-0.7071067811865476 * x);
}

/* act(x) and act'(x) of V numbers, with one switch for all. The compiler removes the result that a caller does not use. */
template <bool FAST, int V, typename R>
static __device__ __forceinline__ void tnc_activate(int kind, const R (&x)[V], R (&value)[V], R (&slope)[V])
{
    switch (kind) {
    case TN_ACT_RELU:
        TNC_EACH {
            value[k] = x[k] > 0 || x[k] != x[k] ? x[k] : R(0);
            slope[k] = x[k] > 0 ? R(1) : value[k];
        }
        break;
    case TN_ACT_RELU2:
        TNC_EACH {
            const R v = x[k] > 0 || x[k] != x[k] ? x[k] : R(0);
            value[k] = v * v;
            slope[k] = v + v;
        }
        break;
    case TN_ACT_GELU:
        TNC_EACH {
            R density, cdf = tnc_normal_cdf<FAST>(x[k], &density);
            value[k] = x[k] * cdf;
            slope[k] = tnc_fma(x[k], density, cdf);
        }
        break;
    case TN_ACT_SWISH:
        TNC_EACH {
            const R s = tnc_quotient<FAST>(R(1), R(1) + tnc_exp<FAST>(-x[k]));
            value[k] = x[k] * s;
            slope[k] = tnc_fma(x[k] * s, R(1) - s, s);
        }
        break;
    case TN_ACT_SIGMOID:
        TNC_EACH {
            value[k] = tnc_quotient<FAST>(R(1), R(1) + tnc_exp<FAST>(-x[k]));
            slope[k] = value[k] * (R(1) - value[k]);
        }
        break;
    case TN_ACT_ABS:
        TNC_EACH {
            value[k] = x[k] < 0 ? -x[k] : x[k] > 0 ? x[k] : x[k] + R(0);      /* -0 becomes 0 */
            slope[k] = x[k] > 0 ? R(1) : x[k] < 0 ? R(-1) : x[k];
        }
        break;
    case TN_ACT_ROUND:
        TNC_EACH {
            value[k] = tnc_rint(x[k]);
            slope[k] = 1;
        }
        break;
    case TN_ACT_EXP:
        TNC_EACH value[k] = slope[k] = tnc_exp<FAST>(x[k]);
        break;
    case TN_ACT_TANH:
        TNC_EACH {
            value[k] = tnc_tanh(x[k]);
            slope[k] = (R(1) - value[k]) * (R(1) + value[k]);
        }
        break;
    case TN_ACT_SQRT:
        TNC_EACH {
            value[k] = tnc_sqrt(x[k]);
            slope[k] = R(0.5) / value[k];
        }
        break;
    case TN_ACT_LOG:
        TNC_EACH {
            value[k] = tnc_log(x[k]);
            slope[k] = R(1) / x[k];
        }
        break;
    default:
        TNC_EACH {
            value[k] = x[k];
            slope[k] = 1;
        }
    }
}

template <typename T> struct tnc_act_of {               /* act(a) */
    enum { inputs = 1, adds = 0 };
    int kind;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        R slope[V];
        tnc_activate<sizeof(T) == 2>(kind, a, v, slope);
    }
};

template <typename T> struct tnc_gate_of {              /* act(a) * b, or act'(a) * b */
    enum { inputs = 2, adds = 1 };
    int  kind;
    bool slope;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        R value[V], slopes[V];
        tnc_activate<sizeof(T) == 2>(kind, a, value, slopes);
        TNC_EACH v[k] = (slope ? slopes[k] : value[k]) * b[k];
    }
};

TNC_FN tn_status tnc_act(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_act_of<T> op = { (int)c->i[0] };
        tnc_map(s, tnc_walk_of(y, x, NULL), op, (T *)y->data, (const T *)x->data, (const T *)NULL, false))
    return TN_OK;
}

static tn_status tnc_gate(tnc *s, const tn_call *c, const tn_view *a, const tn_view *b, bool slope)
{
    const tn_view *y = &c->out[0];
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_gate_of<T> op = { (int)c->i[0], slope };
        tnc_map(s, tnc_walk_of(y, a, b), op, (T *)y->data, (const T *)a->data, (const T *)b->data, c->accumulate))
    return TN_OK;
}

TNC_FN tn_status tnc_act_backward(tnc *s, const tn_call *c) { return tnc_gate(s, c, &c->in[0], &c->in[1], true); }

TNC_FN tn_status tnc_glu(tnc *s, const tn_call *c)
{
    const tn_view a = tnc_part_view(c->in[0], 2, 0), b = tnc_part_view(c->in[0], 2, 1);
    return tnc_gate(s, c, &a, &b, false);
}

/* w is the walk of the first half of x, which dx shares, and of dy. The second half of x is `half` columns further. */
template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_glu_backward_kernel(const tnc_walk w, const int64_t half, const int kind, T *dx, const T *x, const T *dy, const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_GRID_STRIDE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       a[V], b[V], d[V], old_a[V], old_b[V], value[V], slope[V];
        tnc_at<2>(w, i, at);
        tnc_load(a, x + at[0]);
        tnc_load(b, x + at[0] + half);
        tnc_load(d, dy + at[1]);
        if (add) {
            tnc_load(old_a, dx + at[0]);
            tnc_load(old_b, dx + at[0] + half);
        }
        tnc_activate<sizeof(T) == 2>(kind, a, value, slope);
        TNC_EACH {
            a[k] = d[k] * b[k] * slope[k];
            b[k] = d[k] * value[k];
            if (add) {
                a[k] += old_a[k];
                b[k] += old_b[k];
            }
        }
        tnc_store(dx + at[0], a);
        tnc_store(dx + at[0] + half, b);
    }
}

template <typename T> static void tnc_glu_backward_run(tnc *s, const tn_call *c)
{
    enum { V = (int)(16 / sizeof(T)) };
    const tn_view a = tnc_part_view(c->in[0], 2, 0);
    tnc_walk      w = tnc_walk_of(&a, &c->in[1], NULL);
    T            *dx = (T *)c->out[0].data;
    const T      *x = (const T *)c->in[0].data, *dy = (const T *)c->in[1].data;
    if (w.count == 0) return;
    if (tnc_parts_widen(&w, V, sizeof(T), a.shape[1], x, dx, dy))
        TNC_START((tnc_glu_backward_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, a.shape[1], (int)c->i[0], dx, x, dy,
                  c->accumulate);
    else
        TNC_START((tnc_glu_backward_kernel<1, T>), tnc_blocks(w.count, TNC_THREADS), w, a.shape[1], (int)c->i[0], dx, x, dy,
                  c->accumulate);
}

TNC_FN tn_status tnc_glu_backward(tnc *s, const tn_call *c)
{
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_glu_backward_run<T>(s, c))
    return TN_OK;
}

/* ---- prod, prod_backward ------------------------------------------------------------------------------------- >>cuda-prod
   Forward, a thread multiplies all factors of its vector of elements. Backward, it computes the product without each factor
   in turn and so reads every factor once for each of the others; only the first read goes to device memory. Floor: the bytes
   of x and y; backward those of x, dy and dx. */

template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_prod_kernel(const tnc_walk w, const int64_t half, const int64_t factors, T *y, const T *x)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_GRID_STRIDE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       v[V], f[V];
        tnc_at<2>(w, i, at);
        tnc_load(v, x + at[0]);
        for (int64_t e = 1; e < factors; e++) {
            tnc_load(f, x + at[0] + e * half);
            TNC_EACH v[k] *= f[k];
        }
        tnc_store(y + at[1], v);
    }
}

template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_prod_backward_kernel(const tnc_walk w, const int64_t half, const int64_t factors, T *dx, const T *x, const T *dy,
                         const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_GRID_STRIDE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       d[V], v[V], f[V];
        tnc_at<2>(w, i, at);
        tnc_load(d, dy + at[1]);
        for (int64_t e = 0; e < factors; e++) {
            TNC_EACH v[k] = d[k];
            for (int64_t o = 0; o < factors; o++) {
                if (o == e) continue;
                tnc_load(f, x + at[0] + o * half);
                TNC_EACH v[k] *= f[k];
            }
            if (add) {
                tnc_load(f, dx + at[0] + e * half);
                TNC_EACH v[k] += f[k];
            }
            tnc_store(dx + at[0] + e * half, v);
        }
    }
}

/* In the backward pass y is NULL. */
template <int V, typename T>
static void tnc_prod_launch(tnc *s, const tn_call *c, const tnc_walk &w, int64_t h, T *y, T *dx, const T *x, const T *dy)
{
    if (y)
        TNC_START((tnc_prod_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, h, c->i[0], y, x);
    else
        TNC_START((tnc_prod_backward_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, h, c->i[0], dx, x, dy,
                  c->accumulate);
}

template <typename T> static void tnc_prod_run(tnc *s, const tn_call *c, bool back)
{
    enum { V = (int)(16 / sizeof(T)) };
    const tn_view  part = tnc_part_view(c->in[0], c->i[0], 0);
    const tn_view *y = back ? &c->in[1] : &c->out[0];
    tnc_walk       w = tnc_walk_of(&part, y, NULL);
    const int64_t  h = part.shape[1];
    T             *to = (T *)c->out[0].data;
    const T       *x = (const T *)c->in[0].data, *dy = back ? (const T *)c->in[1].data : NULL;
    if (w.count == 0) return;
    if (tnc_parts_widen(&w, V, sizeof(T), h, x, back ? (const void *)to : (const void *)x, y->data))
        tnc_prod_launch<V, T>(s, c, w, h, back ? NULL : to, to, x, dy);
    else
        tnc_prod_launch<1, T>(s, c, w, h, back ? NULL : to, to, x, dy);
}

TNC_FN tn_status tnc_prod(tnc *s, const tn_call *c)
{
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_prod_run<T>(s, c, false))
    return TN_OK;
}

TNC_FN tn_status tnc_prod_backward(tnc *s, const tn_call *c)
{
    if (!tnc_same_dtype(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_prod_run<T>(s, c, true))
    return TN_OK;
}
