#if TNI_BITS == 32
/* ---- float: whole numbers, comparisons, sums in double ------------------ >>pass-float */
#if TNI_LEVEL == 0 && TNI_PLAIN_BYTES == 0
typedef uint32_t TNI_T(u);
typedef int32_t  TNI_T(i);
typedef double   TNI_T(d);
#else
typedef uint32_t TNI_T(u) __attribute__((vector_size(sizeof(TNI_V))));
typedef int32_t  TNI_T(i) __attribute__((vector_size(sizeof(TNI_V))));
#if TNI_LEVEL == 2
typedef __m512d  TNI_T(d);
#elif TNI_LEVEL == 1
typedef __m256d  TNI_T(d);
#elif TNI_LEVEL == 3
typedef float64x2_t TNI_T(d);
#else
typedef double   TNI_T(d) __attribute__((vector_size(sizeof(TNI_V))));
#endif
#endif
#define TNI_U TNI_T(u)                  /* TNI_W words of 32 bits                      */
#define TNI_I TNI_T(i)                  /* the same with a sign; result of comparisons */
#define TNI_D TNI_T(d)                  /* half as many doubles                        */

#if TNI_LEVEL == 0 && TNI_PLAIN_BYTES == 0
TNI_INLINE uint32_t TNI_T(bits)(float v)                  { uint32_t u; memcpy(&u, &v, 4); return u; }
TNI_INLINE float    TNI_T(real)(uint32_t u)               { float v; memcpy(&v, &u, 4); return v; }
TNI_INLINE float    TNI_T(from_i)(int32_t i)              { return (float)i; }
TNI_INLINE uint32_t TNI_T(set_u)(uint32_t x)              { return x; }
TNI_INLINE float    TNI_T(pick)(int m, float a, float b)  { return m ? a : b; }
TNI_INLINE float    TNI_T(sqrt)(float x)                  { return (float)sqrt((double)x); }
TNI_INLINE double   TNI_T(low)(float v)                   { return (double)v; }
TNI_INLINE double   TNI_T(high)(float v)                  { (void)v; return 0; }
TNI_INLINE float    TNI_T(narrow)(double a, double b)     { (void)b; return (float)a; }
TNI_INLINE double   TNI_T(set_d)(double x)                { return x; }
TNI_INLINE double   TNI_T(sqrt_d)(double x)               { return sqrt(x); }
#else
TNI_INLINE TNI_U TNI_T(bits)(TNI_V v)   { return (TNI_U)v; }
TNI_INLINE TNI_V TNI_T(real)(TNI_U u)   { return (TNI_V)u; }
TNI_INLINE TNI_U TNI_T(set_u)(uint32_t x) { TNI_U zero = {0}; return zero + x; }
TNI_INLINE TNI_V TNI_T(pick)(TNI_I m, TNI_V a, TNI_V b) { return (TNI_V)((m & (TNI_I)a) | (~m & (TNI_I)b)); }
#if TNI_LEVEL == 2
TNI_INLINE TNI_V TNI_T(from_i)(TNI_I i) { return _mm512_maskz_cvtepi32_ps(0xffff, (__m512i)i); }
TNI_INLINE TNI_D TNI_T(low)(TNI_V v)    { return _mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, v, 0)); }
TNI_INLINE TNI_D TNI_T(high)(TNI_V v)   { return _mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, v, 1)); }
TNI_INLINE TNI_V TNI_T(narrow)(TNI_D a, TNI_D b)
{
    __m256 low = _mm512_maskz_cvtpd_ps(0xff, a), high = _mm512_maskz_cvtpd_ps(0xff, b);
    return _mm512_maskz_insertf32x8(0xffff, _mm512_castps256_ps512(low), high, 1);
}
TNI_INLINE TNI_D TNI_T(set_d)(double x) { return _mm512_set1_pd(x); }
TNI_INLINE TNI_D TNI_T(sqrt_d)(TNI_D x) { return _mm512_maskz_sqrt_pd(0xff, x); }
#elif TNI_LEVEL == 1
TNI_INLINE TNI_V TNI_T(from_i)(TNI_I i) { return _mm256_cvtepi32_ps((__m256i)i); }
TNI_INLINE TNI_D TNI_T(low)(TNI_V v)    { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
TNI_INLINE TNI_D TNI_T(high)(TNI_V v)   { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
TNI_INLINE TNI_V TNI_T(narrow)(TNI_D a, TNI_D b)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a)), _mm256_cvtpd_ps(b), 1);
}
TNI_INLINE TNI_D TNI_T(set_d)(double x) { return _mm256_set1_pd(x); }
TNI_INLINE TNI_D TNI_T(sqrt_d)(TNI_D x) { return _mm256_sqrt_pd(x); }
#elif TNI_LEVEL == 3
TNI_INLINE TNI_V TNI_T(from_i)(TNI_I i) { return vcvtq_f32_s32((int32x4_t)i); }
TNI_INLINE TNI_D TNI_T(low)(TNI_V v)    { return vcvt_f64_f32(vget_low_f32(v)); }
TNI_INLINE TNI_D TNI_T(high)(TNI_V v)   { return vcvt_high_f64_f32(v); }
TNI_INLINE TNI_V TNI_T(narrow)(TNI_D a, TNI_D b) { return vcvt_high_f32_f64(vcvt_f32_f64(a), b); }
TNI_INLINE TNI_D TNI_T(set_d)(double x) { return vdupq_n_f64(x); }
TNI_INLINE TNI_D TNI_T(sqrt_d)(TNI_D x) { return vsqrtq_f64(x); }
#else
TNI_INLINE TNI_V TNI_T(from_i)(TNI_I i) { return __builtin_convertvector(i, TNI_V); }
#if TNI_X86
TNI_INLINE TNI_V TNI_T(sqrt)(TNI_V x)   { return (TNI_V)_mm_sqrt_ps((__m128)x); }
#elif TNI_WASM
TNI_INLINE TNI_V TNI_T(sqrt)(TNI_V x)   { return (TNI_V)wasm_f32x4_sqrt((v128_t)x); }
#else
TNI_INLINE TNI_V TNI_T(sqrt)(TNI_V x)
{
    for (int i = 0; i < TNI_W; i++) x[i] = (float)sqrt((double)x[i]);
    return x;
}
#endif
TNI_INLINE TNI_D TNI_T(low)(TNI_V v)    { TNI_D d = {(double)v[0], (double)v[1]}; return d; }
TNI_INLINE TNI_D TNI_T(high)(TNI_V v)   { TNI_D d = {(double)v[2], (double)v[3]}; return d; }
TNI_INLINE TNI_V TNI_T(narrow)(TNI_D a, TNI_D b)
{
#if TNI_WASM
    TNI_V v = (TNI_V)wasm_i64x2_shuffle(wasm_f32x4_demote_f64x2_zero((v128_t)a), wasm_f32x4_demote_f64x2_zero((v128_t)b), 0, 2);
#else
    TNI_V v = {(float)a[0], (float)a[1], (float)b[0], (float)b[1]};
#endif
    return v;
}
TNI_INLINE TNI_D TNI_T(set_d)(double x) { TNI_D d = {x, x}; return d; }
TNI_INLINE TNI_D TNI_T(sqrt_d)(TNI_D x) { TNI_D d = {sqrt(x[0]), sqrt(x[1])}; return d; }
#endif
#endif
#define TNI_PICK(condition, a, b) TNI_T(pick)((TNI_I)(condition), a, b)
#define TNI_ABS(v) TNI_T(real)(TNI_T(bits)(v) & TNI_T(set_u)(0x7fffffffu))

#if TNI_WASM
TNI_INLINE TNI_V TNI_T(max)(TNI_V a, TNI_V b) { return (TNI_V)wasm_f32x4_pmax((v128_t)b, (v128_t)a); }
TNI_INLINE TNI_V TNI_T(min)(TNI_V a, TNI_V b) { return (TNI_V)wasm_f32x4_pmin((v128_t)b, (v128_t)a); }
#elif TNI_LEVEL == 0 || TNI_LEVEL == 3
TNI_INLINE TNI_V TNI_T(max)(TNI_V a, TNI_V b) { return TNI_PICK(a > b, a, b); }
TNI_INLINE TNI_V TNI_T(min)(TNI_V a, TNI_V b) { return TNI_PICK(a < b, a, b); }
#endif

/* TNI_W numbers in double, for sums of many floats. Lanes are added pairwise. */
typedef struct TNI_T(wide) { TNI_D low, high; } TNI_T(wide);

TNI_INLINE TNI_T(wide) TNI_T(wide_zero)(void)
{
    TNI_T(wide) t;
    t.low = t.high = TNI_T(set_d)(0);
    return t;
}

TNI_INLINE void TNI_T(wide_add)(TNI_T(wide) *t, TNI_V v)
{
    t->low = t->low + TNI_T(low)(v);
    t->high = t->high + TNI_T(high)(v);
}

TNI_INLINE void TNI_T(wide_add_product)(TNI_T(wide) *t, TNI_V a, TNI_V b)
{
    t->low = t->low + TNI_T(low)(a) * TNI_T(low)(b);            /* products are exact, so fusing changes no bit */
    t->high = t->high + TNI_T(high)(a) * TNI_T(high)(b);
}

TNI_INLINE double TNI_T(wide_sum)(const TNI_T(wide) *t)
{
    const TNI_D d = t->low + t->high;
#if TNI_LEVEL == 1 || TNI_LEVEL == 2
#if TNI_LEVEL == 2
    const __m256d four = _mm256_add_pd(_mm512_maskz_extractf64x4_pd(0xf, d, 0), _mm512_maskz_extractf64x4_pd(0xf, d, 1));
#else
    const __m256d four = d;
#endif
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
#else
    double lane[sizeof(TNI_D) / sizeof(double)];
    memcpy(lane, &d, sizeof lane);
    for (int i = 1; i < (int)(sizeof lane / sizeof *lane); i++) lane[0] += lane[i];
    return lane[0];
#endif
}

/* ---- exp, normal distribution, log, sin, cos: minimax polynomials ------- >>pass-functions */

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2. Returns e^r; *n is 1.5 2^23 more than n. */
TNI_INLINE TNI_V TNI_T(exp_rest)(TNI_V x, TNI_V *n)
{
    *n = TNI_FMA(x, TNI_SET(1.44269504f), TNI_SET(12582912.0f));      /* rounds */
    TNI_V k = *n - TNI_SET(12582912.0f), r = TNI_FMA(k, TNI_SET(-0.693359375f), x), p;
    r = TNI_FMA(k, TNI_SET(2.12194440e-4f), r);
    p = TNI_FMA(TNI_SET(0.00138232135f), r, TNI_SET(0.00836882368f));
    p = TNI_FMA(p, r, TNI_SET(0.04166824f));
    p = TNI_FMA(p, r, TNI_SET(0.166665196f));
    p = TNI_FMA(p, r, TNI_SET(0.49999994f));
    return TNI_FMA(p, r * r, r) + TNI_SET(1.0f);
}

/* Overflows to infinity, underflows gradually to 0. */
TNI_INLINE TNI_V TNI_T(exp)(TNI_V x)
{
    TNI_V n, p = TNI_T(exp_rest)(TNI_MIN(TNI_SET(89.0f), TNI_MAX(TNI_SET(-104.0f), x)), &n);
#if TNI_LEVEL == 2
    return _mm512_maskz_scalef_ps(0xffff, p, n - TNI_SET(12582912.0f));
#else
    {
        TNI_U whole = TNI_T(bits)(n) - TNI_T(set_u)(0x4b400000u);
        TNI_U half = (TNI_U)((TNI_I)whole >> 1);           /* two factors, because 2^n may exceed the exponent's range */
        p = p * TNI_T(real)((half + 127u) << 23);
        return p * TNI_T(real)((whole - half + 127u) << 23);
    }
#endif
}

/* e^x of differences from a maximum, which are at most 0 but for rounding: so nothing bounds x above. Below -87.6, where one
   power of two no longer suffices, it is 0, except with AVX-512. */
TNI_INLINE TNI_V TNI_T(exp_below)(TNI_V x)
{
#if TNI_LEVEL == 2
    return TNI_T(exp)(x);
#else
    TNI_V n, p = TNI_T(exp_rest)(x, &n);
    p = p * TNI_T(real)((TNI_T(bits)(n) << 23) + 0x3f800000u);         /* the shift leaves of n its whole number */
    return TNI_PICK(x < TNI_SET(-87.6f), TNI_SET(0.0f), p);
#endif
}

TNI_INLINE TNI_V TNI_T(sigmoid)(TNI_V x)
{
    return TNI_SET(1.0f) / (TNI_SET(1.0f) + TNI_T(exp)(TNI_SET(0.0f) - x));
}

/* From e^(-2|x|), or from a polynomial where that is close to 1. */
TNI_INLINE TNI_V TNI_T(tanh)(TNI_V x)
{
    const TNI_V one = TNI_SET(1.0f);
    TNI_V a = TNI_ABS(x), z = a * a, e = TNI_T(exp)(TNI_SET(-2.0f) * a);
    TNI_V       p = TNI_FMA(TNI_SET(-0.00610494567f), z, TNI_SET(0.0210036393f));
    p = TNI_FMA(p, z, TNI_SET(-0.0538524985f));
    p = TNI_FMA(p, z, TNI_SET(0.133327827f));
    p = TNI_FMA(p, z, TNI_SET(-0.333333284f));
    a = TNI_PICK(a < TNI_SET(0.625f), TNI_FMA(p * z, a, a), (one - e) / (one + e));
    return TNI_T(real)(TNI_T(bits)(a) | (TNI_T(bits)(x) & TNI_T(set_u)(0x80000000u)));
}

/* Phi(x) and phi(x). The tail Phi(-t) = e^(-t^2/2) g(t) has a smooth g, a polynomial in 1/(1 + 0.3 t). */
TNI_INLINE TNI_V TNI_T(normal_cdf)(TNI_V x, TNI_V *density)
{
    TNI_V t = TNI_MIN(TNI_SET(15.0f), TNI_ABS(x)), square = t * t, lost = TNI_FMA(t, t, TNI_SET(0.0f) - square);
    TNI_V z = TNI_SET(1.0f) / TNI_FMA(TNI_SET(0.3f), t, TNI_SET(1.0f));
    TNI_V e = TNI_T(exp)(TNI_SET(-0.5f) * square);
    e = TNI_FMA(e, TNI_SET(-0.5f) * lost, e);              /* the rounding error of the square */
    TNI_V g = TNI_FMA(TNI_SET(-0.0206242893f), z, TNI_SET(0.112440139f));
    g = TNI_FMA(g, z, TNI_SET(-0.228224412f));
    g = TNI_FMA(g, z, TNI_SET(0.191799164f));
    g = TNI_FMA(g, z, TNI_SET(-0.0794358179f));
    g = TNI_FMA(g, z, TNI_SET(0.0961635262f));
    g = TNI_FMA(g, z, TNI_SET(0.0783873126f));
    g = TNI_FMA(g, z, TNI_SET(0.110235929f));
    g = TNI_FMA(g, z, TNI_SET(0.119571753f));
    g = TNI_FMA(g, z, TNI_SET(0.119686693f)) * z * e;
    *density = TNI_SET(0.398942280f) * e;
    return TNI_PICK(x > TNI_SET(0.0f), TNI_SET(1.0f) - g, g);
}

/* ln x for normal x > 0: x = 2^n (1+f), sqrt(1/2) <= 1+f < sqrt(2) */
TNI_INLINE TNI_T(wide) TNI_T(log)(TNI_V x)
{
    const TNI_D ln2 = TNI_T(set_d)(0.6931471805599453);
    TNI_T(wide) sum;
    TNI_U u = TNI_T(bits)(x) - TNI_T(set_u)(0x3f3504f3u);
    TNI_V k = TNI_T(from_i)((TNI_I)u >> 23);
    TNI_V       f = TNI_T(real)((u & TNI_T(set_u)(0x007fffffu)) + TNI_T(set_u)(0x3f3504f3u)) - TNI_SET(1.0f);
    TNI_V       square = f * f;
    TNI_V       p = TNI_FMA(TNI_SET(-0.0763748139f), f, TNI_SET(0.127667218f));
    p = TNI_FMA(p, f, TNI_SET(-0.131613255f));
    p = TNI_FMA(p, f, TNI_SET(0.142010972f));
    p = TNI_FMA(p, f, TNI_SET(-0.166231945f));
    p = TNI_FMA(p, f, TNI_SET(0.200012535f));
    p = TNI_FMA(p, f, TNI_SET(-0.250008255f));
    p = TNI_FMA(p, f, TNI_SET(0.333333313f));
    p = TNI_FMA(p * f, square, TNI_SET(-0.5f) * square);
    sum.low = TNI_T(low)(k) * ln2 + (TNI_T(low)(f) + TNI_T(low)(p));
    sum.high = TNI_T(high)(k) * ln2 + (TNI_T(high)(f) + TNI_T(high)(p));
    return sum;
}

/* ln x for any x. Subnormals are scaled by 2^23 first. */
TNI_INLINE TNI_V TNI_T(log_of)(TNI_V x)
{
    const TNI_V zero = TNI_SET(0.0f), infinity = TNI_SET((float)HUGE_VAL);
    const TNI_I tiny = (TNI_I)(x < TNI_SET(1.17549435e-38f));
    TNI_T(wide) ln = TNI_T(log)(TNI_PICK(tiny, x * TNI_SET(8388608.0f), x));
    TNI_V y = TNI_T(narrow)(ln.low, ln.high);
    y = TNI_PICK(tiny, y - TNI_SET(15.9423850f), y);
    y = TNI_PICK(x > zero, TNI_PICK(x < infinity, y, x), TNI_SET((float)NAN));
    return TNI_PICK(x == zero, zero - infinity, y);
}

/* factor * first + tail in double: the product is exact, and the rounding error of the sum does not reach a float */
typedef struct TNI_T(direction) { TNI_V factor, first, tail; } TNI_T(direction);

/* `odd` lanes are a cosine, 1 + tail, the others a sine, 2 pi r + tail; `sign` is 2 where it is negative. */
TNI_INLINE TNI_T(direction) TNI_T(turn)(TNI_I odd, TNI_U sign, TNI_V r, TNI_V sine_tail, TNI_V cosine_tail)
{
    TNI_T(direction) d;
    d.factor = TNI_PICK(odd, TNI_SET(1.0f), TNI_SET(6.28318548f));
    d.first = TNI_T(real)(TNI_T(bits)(TNI_PICK(odd, TNI_SET(1.0f), r)) ^ (sign << 30));
    d.tail = TNI_T(real)(TNI_T(bits)(TNI_PICK(odd, cosine_tail, sine_tail)) ^ (sign << 30));
    return d;
}

/* cos and sin of 2 pi u, 0 <= u <= 1: u = q/4 + r, |r| <= 1/8, exact */
TNI_INLINE void TNI_T(circle)(TNI_V u, TNI_T(direction) *cosine, TNI_T(direction) *sine)
{
    TNI_U q = TNI_T(bits)(TNI_FMA(u, TNI_SET(4.0f), TNI_SET(12582912.0f)));
    TNI_V r = TNI_FMA(TNI_T(from_i)((TNI_I)(q - TNI_T(set_u)(0x4b400000u))), TNI_SET(-0.25f), u), z = r * r;
    TNI_I odd = (TNI_I)(q & TNI_T(set_u)(1)) == (TNI_I)TNI_T(set_u)(1);
    TNI_V s = TNI_FMA(TNI_SET(-75.434494f), z, TNI_SET(81.5935135f));
    s = TNI_FMA(s, z, TNI_SET(-41.341671f));
    s = TNI_FMA(s * z, r, TNI_SET(-1.74845560e-7f) * r);   /* 2 pi in two parts */
    TNI_V c = TNI_FMA(TNI_SET(58.7673836f), z, TNI_SET(-85.4282761f));
    c = TNI_FMA(c, z, TNI_SET(64.9391708f));
    c = TNI_FMA(c, z, TNI_SET(-19.7392082f)) * z;
    *sine = TNI_T(turn)(odd, q & TNI_T(set_u)(2), r, s, c);
    *cosine = TNI_T(turn)((TNI_I)(q & TNI_T(set_u)(1)) == (TNI_I)TNI_T(set_u)(0), (q + 1u) & TNI_T(set_u)(2), r, s, c);
}

#endif
