/* ---- a vector of TNI_W numbers with + - * / and a few functions --------- >>pass-vector
   TNI_SOME(k) is the mask of the first k lanes. As on x86, TNI_MAX gives its second operand if one is NaN:
   TNI_MAX(bound, x) keeps a NaN of x. */
#if TNI_LEVEL == 2 && TNI_BITS == 32
typedef __m512 TNI_T(v);
#define TNI_MM(op)  _mm512_##op##_ps
#define TNI_SOME(k) ((__mmask16)(0xffffu >> (16 - (k))))
#elif TNI_LEVEL == 2
typedef __m512d TNI_T(v);
#define TNI_MM(op)  _mm512_##op##_pd
#define TNI_SOME(k) ((__mmask8)(0xffu >> (8 - (k))))
#elif TNI_LEVEL == 1 && TNI_BITS == 32
typedef __m256 TNI_T(v);
#define TNI_MM(op)  _mm256_##op##_ps
#define TNI_SOME(k) _mm256_loadu_si256((const __m256i *)(tni_lane_mask + 8 - (k)))
#elif TNI_LEVEL == 1
typedef __m256d TNI_T(v);
#define TNI_MM(op)  _mm256_##op##_pd
#define TNI_SOME(k) _mm256_loadu_si256((const __m256i *)(tni_lane_mask + 8 - 2 * (k)))
#elif TNI_LEVEL == 3 && TNI_BITS == 32
typedef float32x4_t TNI_T(v);
#define TNI_MM(op)  v##op##_f32
#elif TNI_LEVEL == 3
typedef float64x2_t TNI_T(v);
#define TNI_MM(op)  v##op##_f64
#elif TNI_PLAIN_BYTES
typedef TNI_REAL TNI_T(v) __attribute__((vector_size(TNI_PLAIN_BYTES)));
#else
typedef TNI_REAL TNI_T(v);
#endif

#define TNI_V TNI_T(v)
#define TNI_W ((int)(sizeof(TNI_V) / sizeof(TNI_REAL)))

#if TNI_LEVEL == 3
#define TNI_SET(x)       TNI_MM(dupq_n)(x)
#define TNI_FMA(a, b, c) TNI_MM(fmaq)(c, a, b)
#define TNI_MAX(a, b)    TNI_T(max)(a, b)            /* NEON's own max gives the NaN of either operand */
#define TNI_MIN(a, b)    TNI_T(min)(a, b)
#define TNI_SQRT(a)      TNI_MM(sqrtq)(a)
#elif TNI_LEVEL > 0
#define TNI_SET(x)       TNI_MM(set1)(x)
#define TNI_FMA(a, b, c) TNI_MM(fmadd)(a, b, c)
#if TNI_LEVEL == 2
#define TNI_MAX(a, b)    TNI_MM(maskz_max)(TNI_SOME(TNI_W), a, b)
#define TNI_MIN(a, b)    TNI_MM(maskz_min)(TNI_SOME(TNI_W), a, b)
#define TNI_SQRT(a)      TNI_MM(maskz_sqrt)(TNI_SOME(TNI_W), a)
#else
#define TNI_MAX(a, b)    TNI_MM(max)(a, b)
#define TNI_MIN(a, b)    TNI_MM(min)(a, b)
#define TNI_SQRT(a)      TNI_MM(sqrt)(a)
#endif
#else
#define TNI_SET(x)       TNI_T(set)(x)
#define TNI_FMA(a, b, c) ((a) * (b) + (c))
#define TNI_MAX(a, b)    TNI_T(max)(a, b)
#define TNI_MIN(a, b)    TNI_T(min)(a, b)
#define TNI_SQRT(a)      TNI_T(sqrt)(a)
#endif
#define TNI_LOAD(p, k)     TNI_T(load)(p, k)         /* k numbers, then zeros */
#define TNI_STORE(p, v, k) TNI_T(store)(p, v, k)     /* the first k           */

TNI_INLINE int TNI_T(lanes)(int64_t left) { return left < TNI_W ? (int)left : TNI_W; }

#if TNI_LEVEL == 3
TNI_INLINE TNI_V TNI_T(load)(const TNI_REAL *p, int k)
{
    TNI_V v = TNI_SET(0);
    if (k == TNI_W) return TNI_MM(ld1q)(p);
#if TNI_BITS == 32
    if (k & 2) v = vcombine_f32(vld1_f32(p), vget_low_f32(v));
    if (k == 3) return vld1q_lane_f32(p + 2, v, 2);
#endif
    return k == 1 ? TNI_MM(ld1q_lane)(p, v, 0) : v;
}

TNI_INLINE void TNI_T(store)(TNI_REAL *p, TNI_V v, int k)
{
    if (k == TNI_W) { TNI_MM(st1q)(p, v); return; }
#if TNI_BITS == 32
    if (k & 2) vst1_f32(p, vget_low_f32(v));
    if (k == 3) vst1q_lane_f32(p + 2, v, 2);
#endif
    if (k == 1) TNI_MM(st1q_lane)(p, v, 0);
}
#elif TNI_LEVEL > 0
TNI_INLINE TNI_V TNI_T(load)(const TNI_REAL *p, int k)
{
    if (k == TNI_W) return TNI_MM(loadu)(p);
#if TNI_LEVEL == 2
    return TNI_MM(maskz_loadu)(TNI_SOME(k), p);
#else
    return TNI_MM(maskload)(p, TNI_SOME(k));
#endif
}

TNI_INLINE void TNI_T(store)(TNI_REAL *p, TNI_V v, int k)
{
    if (k == TNI_W) TNI_MM(storeu)(p, v);
#if TNI_LEVEL == 2
    else TNI_MM(mask_storeu)(p, TNI_SOME(k), v);
#else
    else TNI_MM(maskstore)(p, TNI_SOME(k), v);
#endif
}
#else
TNI_INLINE TNI_V TNI_T(set)(TNI_REAL x)
{
#if TNI_PLAIN_BYTES == 0
    TNI_V v = x;
#elif TNI_BITS == 32
    TNI_V v = {x, x, x, x};
#else
    TNI_V v = {x, x};
#endif
    return v;
}

/* Vectors that are not whole, of at most three numbers, are apart from the loops, which so contain the code of whole ones
   only. */
TNI_RARE TNI_FAST TNI_V TNI_T(load_some)(const TNI_REAL *p, int k)
{
    TNI_REAL lane[TNI_W] = {0};
    TNI_V    v;
    if (TNI_W > 2 && (k & 2)) memcpy(lane, p, 2 * sizeof *p);
    if (k & 1) lane[k - 1] = p[k - 1];
    memcpy(&v, lane, sizeof v);
    return v;
}

TNI_RARE TNI_FAST void TNI_T(store_some)(TNI_REAL *p, TNI_V v, int k)
{
    TNI_REAL lane[TNI_W];
    memcpy(lane, &v, sizeof v);
    if (TNI_W > 2 && (k & 2)) memcpy(p, lane, 2 * sizeof *p);
    if (k & 1) p[k - 1] = lane[k - 1];
}

TNI_INLINE TNI_V TNI_T(load)(const TNI_REAL *p, int k)
{
    TNI_V v;
    if (k != TNI_W) return TNI_T(load_some)(p, k);
    memcpy(&v, p, sizeof v);
    return v;
}

TNI_INLINE void TNI_T(store)(TNI_REAL *p, TNI_V v, int k)
{
    if (k == TNI_W) memcpy(p, &v, sizeof v);
    else TNI_T(store_some)(p, v, k);
}
#endif

#if TNI_ALL
/* y[n] += factor x[n] */
TNI_NOINLINE TNI_FAST void TNI_T(row_add)(TNI_REAL *y, const TNI_REAL *x, int64_t n, TNI_REAL factor)
{
    const TNI_V by = TNI_SET(factor);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(y + i, TNI_FMA(by, TNI_LOAD(x + i, k), TNI_LOAD(y + i, k)), k);
    }
}
#endif
