#include "cuda/inner.h"

/* ======================================================================
   >>cuda-kernels     the entries of the kernel table
   In the order of the table, each with its CUDA kernels. The formulas and contracts are in tensornet.h, at >>op- and the
   name.
   ====================================================================== */

/* ---- copy, fill ---------------------------------------------------------------------------------------------- >>cuda-copy
   Copies between views of one type move bit patterns; others convert. A transposing copy goes through shared memory. Floor:
   the bytes read and written. */

template <typename T> struct tnc_same {
    enum { inputs = 1, adds = 0 };
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = a[k];
    }
};

template <typename T> struct tnc_value {
    enum { inputs = 0, adds = 0 };
    T value;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = value;
    }
};

/* Conversion between any two types through double, rounded once. Double to BF16 goes through float: where the float lies
   exactly between two BF16 numbers but the double does not, the float is moved by one bit towards the double before it
   is rounded. */
static __device__ __forceinline__ double tnc_read(const void *p, int dtype, int64_t i)
{
    switch (dtype) {
    case TN_F64:  return ((const double *)p)[i];
    case TN_I32:  return ((const int32_t *)p)[i];
    case TN_BF16: return tnc_to(((const tnc_bf16 *)p)[i]);
    default:      return ((const float *)p)[i];
    }
}

static __host__ __device__ inline uint16_t tnc_bits_of_bf16(double v)
{
    const float f = (float)v;
    uint32_t    bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40);
    if ((bits & 0xFFFF) == 0x8000 && (double)f != v) bits = fabs(v) > fabs((double)f) ? bits + 1 : bits - 1;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static __host__ __device__ inline int32_t tnc_to_int(double v)
{
    return v != v ? 0 : v >= 2147483647.0 ? INT32_MAX : v <= -2147483648.0 ? INT32_MIN : (int32_t)v;
}

static __device__ __forceinline__ void tnc_write(void *p, int dtype, int64_t i, double v)
{
    switch (dtype) {
    case TN_F64:  ((double *)p)[i] = v; break;
    case TN_I32:  ((int32_t *)p)[i] = tnc_to_int(v); break;
    case TN_BF16: ((uint16_t *)p)[i] = tnc_bits_of_bf16(v); break;
    default:      ((float *)p)[i] = (float)v; break;
    }
}

static __global__ void __launch_bounds__(TNC_THREADS)
tnc_cast_kernel(const tnc_walk w, void *y, int y_dtype, const void *x, int x_dtype)
{
    int64_t at[TNC_VIEWS];
    for (TNC_GRID_STRIDE(i, w.count)) {
        tnc_at<2>(w, i, at);
        tnc_write(y, y_dtype, at[0], tnc_read(x, x_dtype, at[1]));
    }
}

/* A transposing copy: x is contiguous along axis 1 of the walk and y along axis 0. Square tiles go through shared memory and
   are read along one axis and written along the other, so that both accesses are coalesced. The odd width of the tile keeps
   the numbers of a column in different banks. */
enum { TNC_SQUARE = 64 };

template <typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_transpose_kernel(const tnc_walk w, Y *y, const X *x)
{
    TNC_SHARED(X, square, [TNC_SQUARE][TNC_SQUARE + (sizeof(X) == 2 ? 2 : 1)]);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t rows = w.axis[0].extent.by, columns = w.axis[1].extent.by;
    const int64_t down = tnc_ceil(rows, TNC_SQUARE), across = tnc_ceil(columns, TNC_SQUARE);
    const int64_t squares = w.count / (rows * columns) * down * across;
    for (int64_t i = blockIdx.x; i < squares; i += gridDim.x) {
        const int64_t r0 = i % down * TNC_SQUARE, c0 = i / down % across * TNC_SQUARE;
        int64_t rest = i / down / across, to = 0, from = 0;
        for (int k = 2; k < w.rank; k++) {
            const int64_t q = rest / w.axis[k].extent.by, r = rest - q * w.axis[k].extent.by;
            to += r * w.axis[k].step[0];
            from += r * w.axis[k].step[1];
            rest = q;
        }
        for (int r = warp; r < TNC_SQUARE && r0 + r < rows; r += TNC_THREADS / 32)
            for (int c = lane; c < TNC_SQUARE && c0 + c < columns; c += 32)
                square[r][c] = x[from + (r0 + r) * w.axis[0].step[1] + c0 + c];
        __syncthreads();
        for (int c = warp; c < TNC_SQUARE && c0 + c < columns; c += TNC_THREADS / 32)
            for (int r = lane; r < TNC_SQUARE && r0 + r < rows; r += 32)
                y[to + (c0 + c) * w.axis[1].step[0] + r0 + r] = tnc_from<Y>(tnc_to(square[r][c]));
        __syncthreads();
    }
}

template <typename Y, typename X> static void tnc_copy_as(tnc *s, const tn_view *from, const tn_view *to)
{
    tnc_walk w = tnc_walk_of(to, from, NULL);
    int      k;
    if (w.count == 0) return;
    for (k = 1; k < w.rank; k++)
        if (w.axis[k].step[1] == 1 && w.axis[k].extent.by >= 8) break;
    if (k < w.rank && w.axis[0].step[0] == 1 && w.axis[0].extent.by >= 8) {
        const tnc_axis along = w.axis[k];
        for (; k > 1; k--) w.axis[k] = w.axis[k - 1];
        w.axis[1] = along;
        TNC_START((tnc_transpose_kernel<Y, X>), tnc_blocks(w.count, TNC_SQUARE * TNC_SQUARE), w, (Y *)to->data,
                  (const X *)from->data);
    } else tnc_map(s, w, tnc_same<Y>(), (Y *)to->data, (const X *)from->data, (const X *)NULL, false);
}

TNC_FN void tnc_copy_views(tnc *s, const tn_view *x, const tn_view *y)
{
    if (x->dtype == TN_F32 && y->dtype == TN_BF16) tnc_copy_as<tnc_bf16, float>(s, x, y);
    else if (x->dtype == TN_BF16 && y->dtype == TN_F32) tnc_copy_as<float, tnc_bf16>(s, x, y);
    else if (x->dtype != y->dtype) {
        tnc_walk w = tnc_walk_of(y, x, NULL);
        if (w.count > 0)
            TNC_START(tnc_cast_kernel, tnc_blocks(w.count, TNC_THREADS), w, y->data, (int)y->dtype, (const void *)x->data,
                      (int)x->dtype);
    } else if (x->dtype == TN_F64) tnc_copy_as<uint64_t, uint64_t>(s, x, y);
    else if (x->dtype == TN_BF16) tnc_copy_as<uint16_t, uint16_t>(s, x, y);
    else tnc_copy_as<uint32_t, uint32_t>(s, x, y);
}

TNC_FN tn_status tnc_copy(tnc *s, const tn_call *c)
{
    tnc_copy_views(s, &c->in[0], &c->out[0]);
    return TN_OK;
}

template <typename T> static void tnc_fill_as(tnc *s, const tn_view *y, T value)
{
    const tnc_value<T> op = { value };
    tnc_map(s, tnc_walk_of(y, NULL, NULL), op, (T *)y->data, (const T *)NULL, (const T *)NULL, false);
}

TNC_FN tn_status tnc_fill(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const double   v = c->f[0];
    if (y->dtype == TN_F64) tnc_fill_as<double>(s, y, v);
    else if (y->dtype == TN_F32) tnc_fill_as<float>(s, y, (float)v);
    else if (y->dtype == TN_BF16) tnc_fill_as<uint16_t>(s, y, tnc_bits_of_bf16(v));
    else tnc_fill_as<uint32_t>(s, y, (uint32_t)tnc_to_int(v));
    return TN_OK;
}

/* ---- uniform, normal --------------------------------------------------------------------------------------- >>cuda-random
   Each thread makes one Philox block of four numbers. Uniform numbers and masks are bit-identical to the CPU's; normal ones
   in F32 use the same polynomials. Floor: the bytes written, and 20 instructions of Philox per number. */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_uniform_kernel(const tnc_stream_of g, const int32_t *clock, T *y, int64_t n, bool aligned)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    for (TNC_GRID_STRIDE(i, blocks)) {
        uint32_t word[4];
        R        v[4];
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k++)              /* rounded after the product and after the sum, as on the CPU */
            v[k] = (R)__dadd_rn(g.low, __dmul_rn(g.width, (double)tnc_unit(word[k])));
        tnc_store_four(y, i, n, aligned, v);
    }
}

/* ln x of a normal float x > 0, with x = 2^n (1+f) and sqrt(1/2) <= 1+f < sqrt(2) */
static __device__ __forceinline__ double tnc_exact_log(float x)
{
    const uint32_t u = __float_as_uint(x) - 0x3f3504f3u;
    const float    f = __uint_as_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f, square = f * f;
    float p = fmaf(-0.0763748139f, f, 0.127667218f);
    p = fmaf(p, f, -0.131613255f);
    p = fmaf(p, f, 0.142010972f);
    p = fmaf(p, f, -0.166231945f);
    p = fmaf(p, f, 0.200012535f);
    p = fmaf(p, f, -0.250008255f);
    p = fmaf(p, f, 0.333333313f);
    p = fmaf(p * f, square, -0.5f * square);
    return (double)((int32_t)u >> 23) * 0.6931471805599453 + ((double)f + (double)p);
}

/* sin and cos of 2 pi u for 0 <= u <= 1. u = q/4 + r with |r| <= 1/8, exactly. Then sine = 2 pi r + a small term, and cosine
   = 1 + a small term. */
static __device__ __forceinline__ void tnc_circle(float u, double *cosine, double *sine)
{
    const uint32_t q = __float_as_uint(fmaf(u, 4.0f, 12582912.0f));                   /* 1.5 * 2^23: rounds to an integer */
    const float    r = fmaf((float)(int32_t)(q - 0x4b400000u), -0.25f, u), z = r * r;
    float  s = fmaf(-75.434494f, z, 81.5935135f), c = fmaf(58.7673836f, z, -85.4282761f);
    s = fmaf(s, z, -41.341671f);
    s = fmaf(s * z, r, -1.74845560e-7f * r);                                           /* 2 pi in two parts */
    c = fmaf(c, z, 64.9391708f);
    c = fmaf(c, z, -19.7392082f) * z;
    double along = 1.0 + (double)c;
    double across = (double)6.28318548f * (double)r + (double)s;
    *sine = q & 1 ? along : across;
    *cosine = q & 1 ? across : along;
    if (q & 2) *sine = -*sine;
    if ((q + 1) & 2) *cosine = -*cosine;
}

/* Box & Muller 1958 */
static __device__ __forceinline__ void tnc_gauss(float u, float v, double *first, double *second, float)
{
    const double radius = sqrt(-2 * tnc_exact_log(u));
    tnc_circle(v, first, second);
    *first *= radius;
    *second *= radius;
}

static __device__ __forceinline__ void tnc_gauss(float u, float v, double *first, double *second, double)
{
    const double radius = sqrt(-2 * log((double)u));
    tnc_sincospi(2 * (double)v, second, first);
    *first *= radius;
    *second *= radius;
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_normal_kernel(const tnc_stream_of g, const int32_t *clock, T *y, int64_t n, bool aligned)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    for (TNC_GRID_STRIDE(i, blocks)) {
        uint32_t word[4];
        R        v[4];
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k += 2) {
            double a, b;
            tnc_gauss(tnc_unit(word[k]), tnc_unit(word[k + 1]), &a, &b, R(0));
            v[k] = (R)(g.low + g.width * a);
            v[k + 1] = (R)(g.low + g.width * b);
        }
        tnc_store_four(y, i, n, aligned, v);
    }
}

TNC_FN tn_status tnc_uniform(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const int64_t  n = y->shape[0];
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_uniform_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS),
                      tnc_stream_from(c, c->f[0], c->f[1] - c->f[0]), (const int32_t *)c->in[0].data, (T *)y->data, n,
                      tnc_aligned(y->data, alignof(tnc_pack<T, 4>))))
    return TN_OK;
}

TNC_FN tn_status tnc_normal(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const int64_t  n = y->shape[0];
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_normal_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS), tnc_stream_from(c, c->f[0], c->f[1]),
                      (const int32_t *)c->in[0].data, (T *)y->data, n, tnc_aligned(y->data, alignof(tnc_pack<T, 4>))))
    return TN_OK;
}
