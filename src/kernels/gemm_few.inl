/* ---- gemm with few rows: B is read once, in place, so memory bandwidth is the limit ---- >>pass-gemm-few
   Columns of B may have a compact copy of fewer bytes, which is read in their place: vectors of it are widened in registers
   for one row of A, and four columns at a time into a scratch in the first cache for several rows. With AVX2, one row of
   finite numbers is rounded to 16 bits and multiplied with INT8 in integers: three instructions for 16 weights, not six. */

TNI_INLINE TNI_REAL TNI_T(lane_sum)(TNI_V v)
{
    TNI_REAL lane[TNI_W];
    TNI_STORE(lane, v, TNI_W);
    for (int half = TNI_W / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* four[i] = the sum of the lanes of s_i */
TNI_INLINE void TNI_T(lane_sums)(TNI_V s0, TNI_V s1, TNI_V s2, TNI_V s3, TNI_REAL *four)
{
#if TNI_LEVEL == 3 && TNI_BITS == 32
    vst1q_f32(four, vpaddq_f32(vpaddq_f32(s0, s1), vpaddq_f32(s2, s3)));
#elif TNI_WASM && TNI_BITS == 32
#define TNI_HALF(a, b) \
    ((TNI_V)wasm_i32x4_shuffle((v128_t)a, (v128_t)b, 0, 4, 1, 5) + (TNI_V)wasm_i32x4_shuffle((v128_t)a, (v128_t)b, 2, 6, 3, 7))
    const v128_t s01 = (v128_t)TNI_HALF(s0, s1), s23 = (v128_t)TNI_HALF(s2, s3);
    TNI_STORE(four, (TNI_V)wasm_i64x2_shuffle(s01, s23, 0, 2) + (TNI_V)wasm_i64x2_shuffle(s01, s23, 1, 3), TNI_W);
#elif TNI_LEVEL == 0 || TNI_LEVEL == 3
    TNI_REAL lane[4][TNI_W];
    int      k;
    TNI_STORE(lane[0], s0, TNI_W);
    TNI_STORE(lane[1], s1, TNI_W);
    TNI_STORE(lane[2], s2, TNI_W);
    TNI_STORE(lane[3], s3, TNI_W);
    for (int i = 0; i < 4; i++)
        for (four[i] = lane[i][0], k = 1; k < TNI_W; k++) four[i] += lane[i][k];
#elif TNI_BITS == 32
#if TNI_LEVEL == 2
#define TNI_HALF(v) _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, v, 0), _mm512_maskz_extractf32x8_ps(0xff, v, 1))
#else
#define TNI_HALF(v) (v)
#endif
    __m256 sum = _mm256_hadd_ps(_mm256_hadd_ps(TNI_HALF(s0), TNI_HALF(s1)), _mm256_hadd_ps(TNI_HALF(s2), TNI_HALF(s3)));
    _mm_storeu_ps(four, _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1)));
#else
#if TNI_LEVEL == 2
#define TNI_HALF(v) _mm256_add_pd(_mm512_maskz_extractf64x4_pd(0xf, v, 0), _mm512_maskz_extractf64x4_pd(0xf, v, 1))
#else
#define TNI_HALF(v) (v)
#endif
    __m256d s01 = _mm256_hadd_pd(TNI_HALF(s0), TNI_HALF(s1)), s23 = _mm256_hadd_pd(TNI_HALF(s2), TNI_HALF(s3));
    _mm256_storeu_pd(four, _mm256_add_pd(_mm256_permute2f128_pd(s01, s23, 0x21), _mm256_blend_pd(s01, s23, 12)));
#endif
#undef TNI_HALF
}

TNI_INLINE void TNI_T(gemm_number)(const TNI_T(gemm) *g, int64_t i, int64_t j, TNI_REAL sum)
{
    TNI_REAL *c = g->c + i * g->c_row + j * g->c_col;
    sum *= g->alpha;
    if (g->beta != 0) sum += g->beta * *c;
    if (g->bias) sum += g->bias[i * g->bias_row + j * g->bias_col];
    *c = sum;
}

#if TNI_BITS == 32
/* W weights of a block of BF16, the upper halves of words or the lower ones, and W of INT8 (>>compact) */
#if TNI_LEVEL == 2
TNI_INLINE TNI_V TNI_T(halves)(const uint32_t *p, int upper)
{
    const __m512i v = _mm512_loadu_si512(p);
    return _mm512_castsi512_ps(upper ? _mm512_and_si512(v, _mm512_set1_epi32(-65536))
                                    : _mm512_maskz_slli_epi32(0xffff, v, 16));
}

TNI_INLINE TNI_V TNI_T(bytes)(const int8_t *p)
{
    return _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128((const __m128i *)p)));
}
#elif TNI_LEVEL == 1
TNI_INLINE TNI_V TNI_T(halves)(const uint32_t *p, int upper)
{
    const __m256i v = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_castsi256_ps(upper ? _mm256_and_si256(v, _mm256_set1_epi32(-65536)) : _mm256_slli_epi32(v, 16));
}

TNI_INLINE TNI_V TNI_T(bytes)(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
#else
TNI_INLINE TNI_V TNI_T(halves)(const uint32_t *p, int upper)
{
#if TNI_LEVEL == 3 || TNI_PLAIN_BYTES
    uint32_t lane __attribute__((vector_size(sizeof(TNI_V))));
    memcpy(&lane, p, sizeof lane);
    return (TNI_V)(upper ? lane & 0xffff0000u : lane << 16);
#else
    uint32_t lane = upper ? *p & 0xffff0000u : *p << 16;
    TNI_V    v;
    memcpy(&v, &lane, sizeof v);
    return v;
#endif
}

TNI_INLINE TNI_V TNI_T(bytes)(const int8_t *p)
{
#if TNI_LEVEL == 3
    int32_t four;
    memcpy(&four, p, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
#elif TNI_WASM
    return (TNI_V)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p))));
#else
    float lane[TNI_W];
    TNI_V v;
    for (int i = 0; i < TNI_W; i++) lane[i] = (float)p[i];
    memcpy(&v, lane, sizeof v);
    return v;
#endif
}
#endif
#endif

#if TNI_LEVEL == 2 || TNI_LEVEL == 3
#define TNI_DOTS(X)       X(0) X(1) X(2) X(3)
#define TNI_DOTS_OF(q, X) X(0, q) X(1, q) X(2, q) X(3, q)
enum { TNI_T(dots_high) = 4 };
#elif TNI_WASM                          /* 15 registers in browsers on x86, as for TNI_MR */
#define TNI_DOTS(X)       X(0) X(1)
#define TNI_DOTS_OF(q, X) X(0, q) X(1, q)
enum { TNI_T(dots_high) = 2 };
#else
#define TNI_DOTS(X)       X(0) X(1) X(2)
#define TNI_DOTS_OF(q, X) X(0, q) X(1, q) X(2, q)
enum { TNI_T(dots_high) = 3 };
#endif

/* Keeps v in a register, where the compiler would read it from memory again for each use. */
#if TNI_LEVEL == 1 || TNI_LEVEL == 2
#define TNI_HOLD(v) __asm__("" : "+v"(v))
#else
#define TNI_HOLD(v) (void)0
#endif

/* For rows of A and columns of B that are contiguous: `rows` by four inner products at once, of row i and column j and those
   after them; b is column j. Past the last column, the last column is repeated. fetch: also requests the next four columns,
   because four at once arrive slowly from beyond the second cache. */
TNI_INLINE void TNI_T(gemm_dots_tile)(const int rows, const TNI_T(gemm) *g, const TNI_REAL *b, int64_t b_col, int64_t i,
                                      int64_t j, int64_t end, bool fetch)
{
    const TNI_REAL *a = g->a + i * g->a_row, *b0 = b, *b1 = b + tni_min(1, end - 1 - j) * b_col;
    const TNI_REAL *b2 = b + tni_min(2, end - 1 - j) * b_col, *b3 = b + tni_min(3, end - 1 - j) * b_col;
    const int64_t   a_row = g->a_row, depth = g->k, whole = depth / TNI_W * TNI_W;
    const TNI_V     zero = TNI_SET(0);
    TNI_REAL        sums[4 * TNI_T(dots_high)];
    TNI_V           y;
    int64_t         d;
#define TNI_BEGIN(i) TNI_V s##i##0 = zero, s##i##1 = zero, s##i##2 = zero, s##i##3 = zero, x##i = zero;
#define TNI_TAKE(i)  if (i < rows) x##i = TNI_LOAD(a + i * a_row + d, k);
#define TNI_ADD(i, q) if (i < rows) s##i##q = TNI_FMA(x##i, y, s##i##q);
#define TNI_STEP(q)  y = TNI_LOAD(b##q + d, k); TNI_HOLD(y); TNI_DOTS_OF(q, TNI_ADD)
#define TNI_END(i)   if (i < rows) TNI_T(lane_sums)(s##i##0, s##i##1, s##i##2, s##i##3, sums + 4 * i);
    (void)fetch;
    TNI_DOTS(TNI_BEGIN)
    for (d = 0; d < whole; d += TNI_W) {        /* twelve sums, three x and one y are the 16 registers of AVX2 */
        const int k = TNI_W;
#if TNI_LEVEL == 2
        if (fetch) {
            TNI_REQUEST(b0, 4 * b_col + d, 2);
            TNI_REQUEST(b1, 4 * b_col + d, 2);
            TNI_REQUEST(b2, 4 * b_col + d, 2);
            TNI_REQUEST(b3, 4 * b_col + d, 2);
        }
#elif TNI_LEVEL == 1                        /* a vector is half a line: two columns, and then the other two */
        if (fetch) {
            const bool    later = 2 * d >= depth;
            const int64_t at = 4 * b_col + 2 * d - (later ? depth : 0);
            TNI_REQUEST(later ? b2 : b0, at, 2);
            TNI_REQUEST(later ? b3 : b1, at, 2);
        }
#endif
        TNI_DOTS(TNI_TAKE)
        TNI_STEP(0) TNI_STEP(1) TNI_STEP(2) TNI_STEP(3)
    }
    if (d < depth) {
        const int k = (int)(depth - d);
        TNI_DOTS(TNI_TAKE)
        TNI_STEP(0) TNI_STEP(1) TNI_STEP(2) TNI_STEP(3)
    }
    TNI_DOTS(TNI_END)
#undef TNI_BEGIN
#undef TNI_TAKE
#undef TNI_ADD
#undef TNI_STEP
#undef TNI_END
    if (j + 4 <= end && g->c_col == 1 && g->alpha == 1 && g->beta == 0 && !g->bias)
        for (int r = 0; r < rows; r++) memcpy(g->c + (i + r) * g->c_row + j, sums + 4 * r, 4 * sizeof *sums);
    else
        for (int r = 0; r < rows; r++)
            for (int q = 0; q < 4 && j + q < end; q++) TNI_T(gemm_number)(g, i + r, j + q, sums[4 * r + q]);
}

/* The same of all rows. The first ones request; but if they are many, each tile requests its share before it begins: then
   columns from memory arrive in time, which costs more than it gains for few rows and columns in the third cache. */
TNI_NOINLINE TNI_FAST void TNI_T(gemm_dots_rows)(const TNI_T(gemm) *g, const TNI_REAL *b, int64_t b_col, int64_t j,
                                                 int64_t end, bool fetch)
{
    enum { LINE = 64 / sizeof(TNI_REAL) };
    const bool    many = fetch && g->m > 16;
    const int64_t share = many ? tni_ceil_div(4 * tni_ceil_div(g->k, LINE), tni_ceil_div(g->m, g->high)) : 0;
    int64_t       next = 4 * b_col, at = 0;         /* the column and the element that are requested next */
    for (int64_t i = 0; i < g->m; i += g->high) {
        for (int64_t n = 0; n < share && next < 8 * b_col; n++) {
            TNI_REQUEST(b, next + at, 2);
            at += LINE;
            if (at < g->k) continue;
            at = 0;
            next += b_col;
        }
#define TNI_CASE(r) case r + 1: TNI_T(gemm_dots_tile)(r + 1, g, b, b_col, i, j, end, fetch && !many && i == 0); break;
        switch (tni_min(g->high, g->m - i)) { TNI_DOTS(TNI_CASE) default: break; }
#undef TNI_CASE
    }
}

/* W numbers of a column from element d + i on, of which `k` count: float, or words of a compact copy, of which there are
   whole blocks. d is a multiple of 4 W; i, in the loops a constant, of W. */
enum { TNI_T(as_real), TNI_T(as_bf16), TNI_T(as_int8) };
TNI_INLINE TNI_V TNI_T(column)(const int as, const void *y, int64_t d, const int i, int k)
{
#if TNI_BITS == 32
    if (as == TNI_T(as_bf16)) {
        const int e = (4 * TNI_W < 32 ? (int)(d & 31) : 0) + i;          /* in its block of 32, or one after it */
        return TNI_T(halves)((const uint32_t *)y + (d >> 5 << 4) + (e >> 5 << 4) + (e & 15), e & 16);
    }
    if (as == TNI_T(as_int8)) return TNI_T(bytes)((const int8_t *)y + d + i);
#endif
    (void)as;
    return TNI_LOAD((const TNI_REAL *)y + d + i, k);
}

/* The sum of x[d] y[d], as a vector whose lanes are still to be added */
TNI_INLINE TNI_V TNI_T(dot_lanes_as)(const int as, const TNI_REAL *x, const void *y, int64_t depth)
{
    TNI_V   s0 = TNI_SET(0), s1 = s0, s2 = s0, s3 = s0;
    int64_t d = 0;
    int     i;
    if (depth < TNI_W) return TNI_LOAD(x, (int)depth) * TNI_T(column)(as, y, 0, 0, (int)depth);
#define TNI_STEP(s, i, k) s = TNI_FMA(TNI_LOAD(x + d + (i), k), TNI_T(column)(as, y, d, i, k), s);
    for (; d + 4 * TNI_W <= depth; d += 4 * TNI_W) {
        TNI_STEP(s0, 0, TNI_W)
        TNI_STEP(s1, 1 * TNI_W, TNI_W)
        TNI_STEP(s2, 2 * TNI_W, TNI_W)
        TNI_STEP(s3, 3 * TNI_W, TNI_W)
    }
    for (i = 0; d + i < depth; i += TNI_W) TNI_STEP(s0, i, TNI_T(lanes)(depth - d - i))
#undef TNI_STEP
    return (s0 + s1) + (s2 + s3);
}

TNI_INLINE TNI_V TNI_T(dot_lanes)(const TNI_REAL *x, const TNI_REAL *y, int64_t depth)
{
    return TNI_T(dot_lanes_as)(TNI_T(as_real), x, y, depth);
}

/* Column j of B, in the form that is read. */
TNI_INLINE const void *TNI_T(column_at)(const int as, const TNI_T(gemm) *g, int64_t j)
{
    return as == TNI_T(as_real) ? (const void *)(g->b + j * g->b_col) : g->codes + j * g->words;
}

/* C = alpha sums + beta C + bias, of a strip with `cols` columns from j on */
TNI_FAST void TNI_T(gemm_strip_end)(const TNI_T(gemm) *g, int rows, int64_t j, int cols, const TNI_REAL *sums)
{
    for (int r = 0; r < rows; r++)
        if (g->c_col == 1 && (!g->bias || g->bias_col == 1))
            for (int q = 0; q < cols; q += TNI_W)
                TNI_T(gemm_finish)(g->c + r * g->c_row + j + q, sums + r * 4 * TNI_W + q, g->alpha, g->beta,
                                   g->bias ? g->bias + r * g->bias_row + j + q : NULL, TNI_T(lanes)(cols - q));
        else
            for (int q = 0; q < cols; q++) TNI_T(gemm_number)(g, r, j + q, sums[r * 4 * TNI_W + q]);
}

#if TNI_BITS == 32 && TNI_LEVEL == 1
/* Rounds x to multiples of a unit per block of 64: q of 16 bits, and zeros up to a whole block. False: a number is not
   finite, or a block has none that is large enough for its unit. This and the next one serve AVX-512, too. */
TNI_ISA TNI_FN bool TNI_T(gemm_round)(const float *x, int64_t n, int16_t *q, float *unit)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    for (int64_t d = 0; d < n; d += 64, q += 64, unit++) {
        uint32_t lane[8], bits = 0;
        __m256   v[8];
        __m256i  most = _mm256_setzero_si256();
        float    by;
        for (int i = 0; i < 8; i++) {
            const int64_t left = n - d - 8 * i;
            v[i] = left > 0 ? TNI_LOAD(x + d + 8 * i, TNI_T(lanes)(left)) : TNI_SET(0);
            most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
        }
        memcpy(lane, &most, sizeof most);
        for (int i = 0; i < 8; i++) bits = lane[i] > bits ? lane[i] : bits;         /* a NaN is larger than infinity */
        if (bits >= 0x7f800000 || (bits > 0 && bits < 0x0e000000)) return false;    /* 1.6e-30 */
        memcpy(&by, &bits, sizeof by);
        *unit = by / 32767;
        by = bits > 0 ? 32767 / by : 0;
        for (int i = 0; i < 4; i++) {
            const __m256i low = _mm256_cvtps_epi32(v[2 * i] * TNI_SET(by)), high = _mm256_cvtps_epi32(v[2 * i + 1] * TNI_SET(by));
            _mm256_storeu_si256((__m256i *)(q + 16 * i), _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8));
        }
    }
    return true;
}

/* The sum of this x times a column, as a vector whose lanes are still to be added. The sums of a block fit into 32 bits. */
TNI_INLINE TNI_V TNI_T(rounded_lanes)(const int8_t *y, int64_t depth, const int16_t *q, const float *unit)
{
    TNI_V   s = TNI_SET(0);
    int64_t d = 0;
#define TNI_STEP(i) _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(y + d + (i)))), \
                                      _mm256_loadu_si256((const __m256i *)(q + d + (i))))
    for (; d + 64 <= depth; d += 64, unit++) {
        const __m256i a = _mm256_add_epi32(TNI_STEP(0), TNI_STEP(16)), b = _mm256_add_epi32(TNI_STEP(32), TNI_STEP(48));
        s = TNI_FMA(_mm256_cvtepi32_ps(_mm256_add_epi32(a, b)), TNI_SET(*unit), s);
    }
    for (; d < depth; d += 16) s = TNI_FMA(_mm256_cvtepi32_ps(TNI_STEP(0)), TNI_SET(*unit), s);
#undef TNI_STEP
    return s;
}

/* sums[j] = the sum of this x times column j, of n columns whose first numbers are `next` bytes apart */
TNI_ISA TNI_FN void TNI_T(gemm_rounded)(const int8_t *w, int64_t next, int64_t n, int64_t depth, const int16_t *q,
                                        const float *unit, float *sums)
{
    for (int64_t j = 0; j < n; j += 4) {
        TNI_V s[4];
        for (int64_t i = 0; i < 4; i++) s[i] = TNI_T(rounded_lanes)(w + tni_min(j + i, n - 1) * next, depth, q, unit);
        TNI_T(lane_sums)(s[0], s[1], s[2], s[3], sums + j);
    }
}
#endif

/* One row of C. The columns of B are read one after the other: what lies beyond the caches arrives two to three times as fast
   as if several are read at once. */
TNI_INLINE void TNI_T(gemm_dots_row)(const int as, const TNI_T(gemm) *g, int64_t j, int64_t end)
{
    TNI_REAL sums[4 * TNI_W] = {0};
    for (; j < end; j += 4 * TNI_W) {
        const int cols = (int)tni_min(end - j, 4 * TNI_W);
#if TNI_BITS == 32 && (TNI_LEVEL == 1 || TNI_LEVEL == 2)
        if (as == TNI_T(as_int8))
            tni_f32_gemm_rounded_avx2((const int8_t *)TNI_T(column_at)(as, g, j), 4 * g->words, cols, g->k, g->rounded, g->unit,
                                      sums);
        else
#endif
        for (int64_t i = 0; i < cols; i += 4) {
            TNI_V s[4];
            for (int64_t q = 0; q < 4; q++)
                s[q] = TNI_T(dot_lanes_as)(as, g->a, TNI_T(column_at)(as, g, tni_min(j + i + q, end - 1)), g->k);
            TNI_T(lane_sums)(s[0], s[1], s[2], s[3], sums + i);
        }
#if TNI_BITS == 32
        for (int64_t i = 0; as == TNI_T(as_int8) && i < cols; i += TNI_W) {
            const int k = TNI_T(lanes)(cols - i);
            TNI_STORE(sums + i, TNI_LOAD(sums + i, k) * TNI_LOAD(g->scales + j + i, k), k);
        }
#endif
        TNI_T(gemm_strip_end)(g, 1, j, cols, sums);
    }
}

#if TNI_BITS == 32 && TNI_LEVEL == 1
/* Whether the products of a batch are inner products of contiguous rows. These two serve AVX-512, too. */
TNI_FN bool TNI_T(gemm_is_dots)(const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *out = &c->out[0];
    return out->rank == 3 && out->shape[1] == 1 && out->shape[2] == 1 && a->strides[2] == 1 && b->strides[1] == 1
           && c->f[0] == 1 && c->f[1] == 0 && !(c->n_in > 2 && c->in[2].data);
}

/* Task: some of these products. Slabs as in gemm_few_run; past the last row, the last one is repeated. */
TNI_ISA TNI_FN void TNI_T(gemm_batch_dots)(void *arg, int64_t task, int worker)
{
    enum { DEPTH = TNI_GEMM_DEPTH / sizeof(TNI_REAL) };
    const tni_pass *p = (const tni_pass *)arg;
    const tn_view  *a = &p->call->in[0], *b = &p->call->in[1], *out = &p->call->out[0];
    const int64_t   depth = a->shape[2], end = tni_pass_end(p, task);
    int64_t         q;
    (void)worker;
    for (int64_t i = tni_pass_begin(p, task); i < end; i += 4) {
        TNI_REAL four[4], sums[4] = {0};
        for (int64_t d = 0; d < depth; d += DEPTH) {
            TNI_V s[4];
            for (q = 0; q < 4; q++) {
                const int64_t row = tni_min(i + q, end - 1);
                s[q] = TNI_T(dot_lanes)((const TNI_REAL *)a->data + row * a->strides[0] + d,
                                        (const TNI_REAL *)b->data + row * b->strides[0] + d, tni_min(depth - d, DEPTH));
            }
            TNI_T(lane_sums)(s[0], s[1], s[2], s[3], four);
            for (q = 0; q < 4; q++) sums[q] += four[q];
        }
        for (q = i; q < tni_min(i + 4, end); q++) ((TNI_REAL *)out->data)[q * out->strides[0]] = sums[q - i];
    }
}
#endif

/* Columns j to j + 3 of B, up to the last column, from their compact copy. */
TNI_INLINE void TNI_T(gemm_widen)(const int as, const TNI_T(gemm) *g, int64_t j, int64_t end, TNI_REAL *to, int64_t to_col)
{
    int64_t d;
    for (int64_t q = 0; q < 4 && j + q < end; q++, to += to_col) {
        const void *from = TNI_T(column_at)(as, g, j + q);
        const TNI_V scale = TNI_SET(as == TNI_T(as_int8) ? (TNI_REAL)g->scales[j + q] : 1);
        for (d = 0; d < g->k; d += 4 * TNI_W) {
#define TNI_STEP(i) if (d + (i) < g->k) { \
            TNI_STORE(to + d + (i), TNI_T(column)(as, from, d, i, TNI_W) * scale, TNI_W); }
            TNI_STEP(0) TNI_STEP(1 * TNI_W) TNI_STEP(2 * TNI_W) TNI_STEP(3 * TNI_W)
#undef TNI_STEP
        }
    }
}

TNI_INLINE void TNI_T(gemm_dots_as)(const int as, const TNI_T(gemm) *g, int64_t j, int64_t end)
{
    enum { DEPTH = TNI_GEMM_DEPTH / sizeof(TNI_REAL) };
    const bool    wider = as != TNI_T(as_real);
    const int64_t b_col = wider ? (int64_t)DEPTH : g->b_col;
    TNI_REAL      scratch[4 * DEPTH + 64 / sizeof(TNI_REAL)];
    TNI_REAL     *wide = scratch + (64 - (uintptr_t)scratch % 64) / sizeof(TNI_REAL);   /* whole cache lines */
    if (g->m == 1 && (as != TNI_T(as_int8) || g->unit || TNI_LEVEL == 0 || TNI_LEVEL == 3)) {
        TNI_T(gemm_dots_row)(as, g, j, end);
        return;
    }
    for (; j < end; j += 4) {
        const TNI_REAL *b = wider ? wide : g->b + j * g->b_col;
        if (wider) TNI_T(gemm_widen)(as, g, j, end, wide, DEPTH);
        TNI_T(gemm_dots_rows)(g, b, b_col, j, end, !wider);
    }
}

/* Task: g->cols columns of C. */
TNI_FAST void TNI_T(gemm_dots)(void *arg, int64_t task, int worker)
{
    const TNI_T(gemm) *g = (const TNI_T(gemm) *)arg;
    const int64_t      j = task * g->cols, end = tni_min(g->n, j + g->cols);
    (void)worker;
#if TNI_BITS == 32
    if (g->codes && g->scales) TNI_T(gemm_dots_as)(TNI_T(as_int8), g, j, end);
    else if (g->codes)         TNI_T(gemm_dots_as)(TNI_T(as_bf16), g, j, end);
    else
#endif
    TNI_T(gemm_dots_as)(TNI_T(as_real), g, j, end);
}

/* For rows of B that are contiguous: adds A[i,d] times row d to a strip of C of at most four `vectors`. A single vector may
   have fewer than W lanes. */
TNI_INLINE void TNI_T(gemm_strip)(const int rows, const int vectors, const TNI_T(gemm) *g, int64_t j, const int last)
{
    const int       cols = (vectors - 1) * TNI_W + last;
    const int64_t   depth = g->k, a_row = g->a_row, a_col = g->a_col, b_row = g->b_row;
    const TNI_REAL *a = g->a, *b = g->b + j;
    const TNI_V     zero = TNI_SET(0);
    TNI_REAL        sums[3 * 4 * TNI_W];
    int64_t         d;
#define TNI_STRIP(X) X(0) X(1) X(2)
#define TNI_BEGIN(i) TNI_V s##i##0 = zero, s##i##1 = zero, s##i##2 = zero, s##i##3 = zero;
#define TNI_STEP(i) if (i < rows) { \
        TNI_V x = TNI_SET(a[i * a_row]); \
        s##i##0 = TNI_FMA(x, y0, s##i##0); \
        if (vectors > 1) s##i##1 = TNI_FMA(x, y1, s##i##1); \
        if (vectors > 2) s##i##2 = TNI_FMA(x, y2, s##i##2); \
        if (vectors > 3) s##i##3 = TNI_FMA(x, y3, s##i##3); }
#define TNI_END(i) if (i < rows) { \
        TNI_STORE(sums + (i * 4 + 0) * TNI_W, s##i##0, TNI_W); \
        if (vectors > 1) TNI_STORE(sums + (i * 4 + 1) * TNI_W, s##i##1, TNI_W); \
        if (vectors > 2) TNI_STORE(sums + (i * 4 + 2) * TNI_W, s##i##2, TNI_W); \
        if (vectors > 3) TNI_STORE(sums + (i * 4 + 3) * TNI_W, s##i##3, TNI_W); }
    TNI_STRIP(TNI_BEGIN)
    for (d = 0; d < depth; d++, a += a_col, b += b_row) {
        TNI_V y0 = TNI_LOAD(b, vectors > 1 ? TNI_W : last), y1 = zero, y2 = zero, y3 = zero;
        if (vectors > 1) y1 = TNI_LOAD(b + 1 * TNI_W, TNI_W);
        if (vectors > 2) y2 = TNI_LOAD(b + 2 * TNI_W, TNI_W);
        if (vectors > 3) y3 = TNI_LOAD(b + 3 * TNI_W, TNI_W);
        TNI_STRIP(TNI_STEP)
    }
    TNI_STRIP(TNI_END)
#undef TNI_STRIP
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
    TNI_T(gemm_strip_end)(g, rows, j, cols, sums);
}

TNI_INLINE void TNI_T(gemm_strips_of)(const int rows, const TNI_T(gemm) *g, int64_t j, int64_t end)
{
    for (; j + 4 * TNI_W <= end; j += 4 * TNI_W) TNI_T(gemm_strip)(rows, 4, g, j, TNI_W);
    if (j + 2 * TNI_W <= end) { TNI_T(gemm_strip)(rows, 2, g, j, TNI_W); j += 2 * TNI_W; }
    for (; j < end; j += TNI_W) TNI_T(gemm_strip)(rows, 1, g, j, TNI_T(lanes)(end - j));
}

/* Task: g->cols columns of C, of at most three rows. */
TNI_FAST void TNI_T(gemm_strips)(void *arg, int64_t task, int worker)
{
    const TNI_T(gemm) *g = (const TNI_T(gemm) *)arg;
    const int64_t      j = task * g->cols, end = tni_min(g->n, j + g->cols);
    (void)worker;
    if (g->m == 1) TNI_T(gemm_strips_of)(1, g, j, end);
    else if (g->m == 2) TNI_T(gemm_strips_of)(2, g, j, end);
    else TNI_T(gemm_strips_of)(3, g, j, end);
}

/* The task for few rows, inner products for at most `dots` rows; NULL: there are more, or B's strides do not fit. Inner
   products need some depth: the cost of their final sums grows with the rows, that of packing B does not. */
TNI_FAST tn_task_fn TNI_T(gemm_few)(const TNI_T(gemm) *g, int64_t dots, int64_t bytes)
{
    const bool deep = g->m == 1 || g->k >= 4 * TNI_W;
    const bool fits = g->a_col == 1 || g->m * g->k <= bytes / (int64_t)sizeof(TNI_REAL);
    if (!TNI_FEW) return NULL;
    if (g->b_col == 1 && g->m <= 3 && g->n >= TNI_W) return TNI_T(gemm_strips);
    if (g->b_row == 1 && g->m <= dots && deep && fits) return TNI_T(gemm_dots);
    return NULL;
}

TNI_FAST void TNI_T(gemm_few_run)(TNI_T(gemm) *g, const tni_pool *pool)
{
    if (g->few == TNI_T(gemm_dots) && g->a_col != 1) {
        TNI_T(panel)(g->panels_a, (int)g->k, g->a, g->a_col, g->a_row, (int)g->k, g->m);
        g->a = g->panels_a;
        g->a_row = g->k;
        g->a_col = 1;
    }
    g->high = tni_ceil_div(g->m, tni_ceil_div(g->m, TNI_T(dots_high)));
    g->cols = tni_max(TNI_GEMM_SHARE / (int64_t)sizeof(TNI_REAL) / tni_max(g->k, 1) / (4 * TNI_W), 1) * 4 * TNI_W;
    do {                                            /* slabs, as for tiles: rounding errors grow with the length of a sum */
        TNI_T(gemm) slab = *g;
        slab.k = tni_min(g->k, TNI_GEMM_DEPTH / (int64_t)sizeof(TNI_REAL));
#if TNI_BITS == 32 && (TNI_LEVEL == 1 || TNI_LEVEL == 2)
        if (g->m == 1 && g->codes && g->scales
            && tni_f32_gemm_round_avx2(g->a, slab.k, (int16_t *)(void *)(g->panels_b + 64), g->panels_b)) {
            slab.rounded = (int16_t *)(void *)(g->panels_b + 64);
            slab.unit = g->panels_b;
        }
#endif
        tni_parallel_for(pool, tni_ceil_div(g->n, g->cols), g->few, &slab);
        g->a += slab.k * g->a_col;
        g->b += slab.k * g->b_row;
        if (g->codes) g->codes += g->scales ? slab.k / 4 : slab.k / 2;      /* whole blocks */
        g->k -= slab.k;
        g->beta = 1;
        g->bias = NULL;
    } while (g->k > 0);
}
