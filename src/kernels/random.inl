#if TNI_BITS == 32
/* ---- uniform, normal, dropout: Philox for TNI_W counters at once, see >>rng ---- >>pass-random */
#if TNI_LEVEL == 0 && TNI_PLAIN_BYTES == 0
TNI_INLINE void TNI_T(multiply)(uint32_t a, uint32_t m, uint32_t *high, uint32_t *low)
{
    uint64_t product = (uint64_t)a * m;
    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
}
#else
typedef uint64_t TNI_T(u64) __attribute__((vector_size(sizeof(TNI_V))));

/* the products of every second word, 64 bits each */
TNI_INLINE TNI_T(u64) TNI_T(products)(TNI_T(u64) a, TNI_U m)
{
#if TNI_LEVEL == 2
    return (TNI_T(u64))_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)m);
#elif TNI_LEVEL == 1
    return (TNI_T(u64))_mm256_mul_epu32((__m256i)a, (__m256i)m);
#elif TNI_LEVEL == 3
    return (TNI_T(u64))vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)m));
#elif TNI_X86
    return (TNI_T(u64))_mm_mul_epu32((__m128i)a, (__m128i)m);
#else
    return (a & 0xffffffffu) * ((TNI_T(u64))m & 0xffffffffu);
#endif
}

TNI_INLINE void TNI_T(multiply)(TNI_U a, uint32_t m, TNI_U *high, TNI_U *low)
{
    TNI_U      all = TNI_T(set_u)(m);
    TNI_T(u64) half = (TNI_T(u64))TNI_T(set_u)(0) + 0xffffffffu;
    TNI_T(u64) even = TNI_T(products)((TNI_T(u64))a, all), odd = TNI_T(products)((TNI_T(u64))a >> 32, all);
    *high = (TNI_U)((even >> 32) | (odd & ~half));
    *low = (TNI_U)((even & half) | (odd << 32));
}
#endif

/* Four uniform numbers for each of the TNI_W blocks from `block` on; with the call's first block a multiple of TNI_W. */
TNI_INLINE void TNI_T(units)(const tn_call *c, int32_t clock, uint64_t block, TNI_V u[4])
{
    TNI_U    lane, word[4], a_high, a_low, b_high, b_low;
    uint32_t key0 = (uint32_t)(uint64_t)c->i[0], key1 = (uint32_t)((uint64_t)c->i[0] >> 32);
    int      i;
    block += (uint64_t)c->i[2];
    memcpy(&lane, tni_lane, sizeof lane);
    word[0] = lane + (uint32_t)block;
    word[1] = TNI_T(set_u)((uint32_t)(block >> 32));
    word[2] = TNI_T(set_u)((uint32_t)c->i[1]);
    word[3] = TNI_T(set_u)((uint32_t)clock);
    for (i = 0; i < 10; i++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        TNI_T(multiply)(word[0], 0xD2511F53u, &a_high, &a_low);
        TNI_T(multiply)(word[2], 0xCD9E8D57u, &b_high, &b_low);
        word[0] = b_high ^ word[1] ^ TNI_T(set_u)(key0);
        word[2] = a_high ^ word[3] ^ TNI_T(set_u)(key1);
        word[1] = b_low;
        word[3] = a_low;
    }
    for (i = 0; i < 4; i++)
        u[i] = (TNI_T(from_i)((TNI_I)(word[i] >> 9)) + TNI_SET(0.5f)) * TNI_SET(1.0f / 8388608.0f);
}

/* y[4 lane + i] = v[i][lane], the first n of them */
TNI_INLINE void TNI_T(interleave)(float *y, const TNI_V v[4], int64_t n)
{
    float rows[4 * TNI_W], mixed[4 * TNI_W];
    for (int i = 0; i < 4; i++) TNI_STORE(rows + i * TNI_W, v[i], TNI_W);
    TNI_T(panel)(n < 4 * TNI_W ? mixed : y, 4, rows, TNI_W, 1, 4, TNI_W);
    if (n < 4 * TNI_W) memcpy(y, mixed, sizeof *y * (size_t)n);
}

/* Rounded after the product and after the sum, in double, so that results are bit-identical on all backends. */
TNI_INLINE TNI_V TNI_T(between)(double low, double high, TNI_V u)
{
    TNI_D a = TNI_T(low)(u) * TNI_T(set_d)(high - low), b = TNI_T(high)(u) * TNI_T(set_d)(high - low);
#if TNI_X86
    __asm__("" : "+x"(a), "+x"(b));     /* keeps the compiler from fusing them */
#elif TNI_NEON
    __asm__("" : "+w"(a), "+w"(b));
#endif
    return TNI_T(narrow)(a + TNI_T(set_d)(low), b + TNI_T(set_d)(low));
}

TNI_FAST void TNI_T(uniform_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int32_t clock = *(const int32_t *)c->in[0].data;
    TNI_V   u[4];
    for (int64_t e = begin; e < end; e += 4 * TNI_W) {
        TNI_T(units)(c, clock, (uint64_t)e / 4, u);
        for (int i = 0; i < 4; i++) u[i] = TNI_T(between)(c->f[0], c->f[1], u[i]);
        TNI_T(interleave)(TNI_OUT(0) + e, u, tni_min(4 * TNI_W, end - e));
    }
}

/* mean + deviation sqrt(-2 log) direction, in double */
TNI_INLINE TNI_V TNI_T(gauss)(const tn_call *c, const TNI_T(wide) *ln, const TNI_T(direction) *d)
{
    const TNI_D mean = TNI_T(set_d)(c->f[0]), deviation = TNI_T(set_d)(c->f[1]), minus2 = TNI_T(set_d)(-2);
    TNI_D a = TNI_T(sqrt_d)(minus2 * ln->low) * deviation, b = TNI_T(sqrt_d)(minus2 * ln->high) * deviation;
    a = a * (TNI_T(low)(d->factor) * TNI_T(low)(d->first) + TNI_T(low)(d->tail));
    b = b * (TNI_T(high)(d->factor) * TNI_T(high)(d->first) + TNI_T(high)(d->tail));
    return TNI_T(narrow)(a + mean, b + mean);
}

/* Box & Muller */
TNI_FAST void TNI_T(normal_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int32_t clock = *(const int32_t *)c->in[0].data;
    TNI_V   u[4];
    for (int64_t e = begin; e < end; e += 4 * TNI_W) {
        TNI_T(units)(c, clock, (uint64_t)e / 4, u);
        for (int i = 0; i < 4; i += 2) {
            TNI_T(direction) x, y;
            TNI_T(wide) ln = TNI_T(log)(u[i]);
            TNI_T(circle)(u[i + 1], &x, &y);
            u[i] = TNI_T(gauss)(c, &ln, &x);
            u[i + 1] = TNI_T(gauss)(c, &ln, &y);
        }
        TNI_T(interleave)(TNI_OUT(0) + e, u, tni_min(4 * TNI_W, end - e));
    }
}

/* u >= p for u = (w + 1/2) 2^-23 is w >= p 2^23 - 1/2, exact in double as in float */
TNI_FAST void TNI_T(dropout_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *x = TNI_IN(0);
    float       *y = TNI_OUT(0), chance[4 * TNI_W];
    int32_t      clock = *(const int32_t *)c->in[1].data;
    const TNI_V  p_first = TNI_SET(((float)ceil(c->f[0] * 8388608.0 - 0.5) + 0.5f) * (1.0f / 8388608.0f));
    const TNI_V  scale = TNI_SET((float)(1 / (1 - c->f[0])));
    int64_t      i;
    TNI_V        u[4];
    for (int64_t e = begin; e < end; e += 4 * TNI_W) {
        TNI_T(units)(c, clock, (uint64_t)e / 4, u);
        TNI_T(interleave)(chance, u, 4 * TNI_W);
        for (i = e; i < tni_min(end, e + 4 * TNI_W); i += TNI_W) {
            int   k = TNI_T(lanes)(end - i);
            TNI_V v = TNI_LOAD(x + i, k) * scale;
            v = TNI_PICK(TNI_LOAD(chance + (i - e), TNI_W) < p_first, TNI_SET(0.0f), v);
            if (c->accumulate) v = v + TNI_LOAD(y + i, k);
            TNI_STORE(y + i, v, k);
        }
    }
}

#endif
