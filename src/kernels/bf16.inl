/* ---- gemm by bfloat16 products, see desc.gemm_precision ----------------- >>gemm-bf16
   x = x0 + x1 + x2, where each part is the bfloat16 nearest to the remainder of those before it; three parts of 8 bits hold
   the 24 bits of a float. Products of parts are exact in F32. Those are summed that are not smaller than the first
   part left out:
       1 part    a0 b0
       2 parts   a0 b0 + a0 b1 + a1 b0
       3 parts   a0 b0 + a0 b1 + a1 b0 + a0 b2 + a1 b1 + a2 b0
   A strip is 16 rows of A or 16 columns of B. It is packed as one tile of 1 KiB for each 32 of the depth and each part:
   [row][depth] for A, [depth / 2][column][2] for B, as the instruction needs them. Two strips by two strips make
   32 x 32 sums. A transposed A is packed like B for the dot products, which can broadcast a pair of either order.

   With one part, operands and results may be BF16 (desc.activations): those are packed without rounding, and a result is
   rounded once, after the sums of all slabs, the old C and the bias have been added in F32.

   A strip that contains an infinity, a NaN or a magnitude of 2^48 or more is "wild", and its products are computed in F32.
   In all others neither products of parts nor their sums can overflow, so that splitting never makes a NaN.
   Henry, Tang & Heinecke 2019; Intel's manual of instructions, TDPBF16PS and VDPBF16PS */
#if TNI_BF16
enum {
    TNI_BF16_STRIPS = 256,              /* in a block, at most */
    TNI_BF16_DEPTH  = 1024,             /* times parts: of a slab, at most */
    TNI_BF16_SIDE   = 4,                /* pairs of strips of a task's part of C, each way */
    TNI_BF16_GROUP  = 4,                /* strips packed together, */
    TNI_BF16_CHUNK  = 64                /* as far as this depth, when their numbers share cache lines */
};
#define TNI_ISA512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define TNI_ISA_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))
#define TNI_ISA_TILE __attribute__((target("amx-tile,amx-bf16")))

typedef struct tni_bf16 {
    tni_f32_gemm_avx512 g;              /* its panels stay empty; a, b and c may point to BF16 */
    tni_cpu       *cpu;
    char          *a, *b;               /* strips */
    float         *part;                /* sums of a BF16 result's slabs so far, rows of the block `part_row` apart */
    int64_t        part_row;
    int64_t        strip;               /* bytes of one */
    bool           half_a, half_b, half_c;              /* which are BF16 */
    bool           pairs_a;             /* A is packed like B */
    uint8_t        wild_a[TNI_BF16_STRIPS], wild_b[TNI_BF16_STRIPS];
} tni_bf16;

/* To nearest, half to even; not for NaN. */
TNI_ISA512 static __m512 tni_bf16_round(__m512 x)
{
    tni_f32_u_avx512 u = (tni_f32_u_avx512)x;
    u = u + 0x7fffu + (u >> 16 & 1u);
    return (__m512)(u & 0xffff0000u);
}

/* The first n of 16 numbers, then zeros. */
TNI_ISA512 static __m512 tni_bf16_load(const float *src, int64_t offset, int64_t step, int64_t n)
{
    float x[16] = {0};
    if (n <= 0) return _mm512_setzero_ps();
    if (n > 16) n = 16;
    if (step == 1) return _mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (16 - n)), src + offset);
    for (int i = 0; i < n; i++) x[i] = src[offset + i * step];
    return _mm512_loadu_ps(x);
}

/* Transposes a tile of 16 x 16 words of 32 bits, by exchanging squares of 1, 2, 4 and 8 words. */
TNI_ISA512 static void tni_bf16_transpose(char *tile)
{
    const __m512i column = _mm512_loadu_si512(tni_lane);
    for (int side = 1; side < 16; side *= 2) {
        const __m512i   size = _mm512_set1_epi32(side), second = _mm512_set1_epi32(16);
        const __mmask16 upper = _mm512_test_epi32_mask(column, size);
        const __m512i   to_first = _mm512_mask_add_epi32(column, upper, _mm512_sub_epi32(column, size), second);
        const __m512i   to_second = _mm512_mask_add_epi32(_mm512_add_epi32(column, size), upper, column, second);
        for (int i = 0; i < 16; i++) {
            char *p = tile + i * 64, *q = p + side * 64;
            if (i & side) continue;
            __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(q);
            _mm512_storeu_si512(p, _mm512_permutex2var_epi32(a, to_first, b));
            _mm512_storeu_si512(q, _mm512_permutex2var_epi32(a, to_second, b));
        }
    }
}

/* Packs a strip: line l (a row of A, a column of B) at depth d is src[l line_step + d depth_step]. Returns whether it is
   wild. */
TNI_ISA512 static bool tni_bf16_pack(char *dst, int parts, const float *src, int64_t line_step, int64_t depth_step,
                                     int64_t lines, int64_t depth, bool of_a)
{
    const bool   along = line_step != 1;            /* contiguous along the depth, not across the lines */
    const __m512 most = _mm512_set1_ps(281474976710656.0f);
    tni_f32_u_avx512 odd;                           /* upper halves of floats: of x, then of y, or in turn */
    __mmask16    wild = 0;
    memcpy(&odd, tni_lane, sizeof odd);
    odd = odd * (along ? 4u : 2u) + 1u;
    __m512i order = (__m512i)(odd | (odd + (along ? 2u : 32u)) << 16);
    for (int64_t d = 0; d < depth; d += 32, dst += parts * 1024) {
        for (int q = 0; q < 16; q++) {
            const int64_t at = along ? q * line_step + d * depth_step : (d + 2 * q) * depth_step;
            const int64_t n = along ? (q < lines ? depth - d : 0) : d + 2 * q < depth ? lines : 0;
            const int64_t m = along ? n - 16 : d + 2 * q + 1 < depth ? lines : 0;
            __m512 x = tni_bf16_load(src, at, along ? depth_step : 1, n);
            __m512 y = tni_bf16_load(src, at + (along ? 16 : 1) * depth_step, along ? depth_step : 1, m);
            wild = (__mmask16)(wild | _mm512_cmp_ps_mask(_mm512_abs_ps(x), most, _CMP_NLT_UQ)
                                    | _mm512_cmp_ps_mask(_mm512_abs_ps(y), most, _CMP_NLT_UQ));
            for (int p = 0; p < parts; p++) {
                __m512 x0 = tni_bf16_round(x), y0 = tni_bf16_round(y);
                _mm512_storeu_si512(dst + p * 1024 + q * 64,
                                    _mm512_permutex2var_epi16(_mm512_castps_si512(x0), order, _mm512_castps_si512(y0)));
                x = _mm512_sub_ps(x, x0);
                y = _mm512_sub_ps(y, y0);
            }
        }
        for (int p = 0; p < parts && along != of_a; p++) tni_bf16_transpose(dst + p * 1024);
    }
    return wild != 0;
}

/* The same of numbers that are BF16 already: one part, bit by bit. */
TNI_ISA512 static bool tni_bf16_pack_halves(char *dst, const uint16_t *src, int64_t line_step, int64_t depth_step,
                                            int64_t lines, int64_t depth, bool of_a)
{
    const bool    along = line_step != 1;
    const __m512i sign = _mm512_set1_epi16(0x7fff);
    __m512i       most = _mm512_setzero_si512();
    tni_f32_u_avx512 even;
    memcpy(&even, tni_lane, sizeof even);
    __m512i order = (__m512i)(even | (even + 16u) << 16); /* of two rows of 16 */
    for (int64_t d = 0; d < depth; d += 32, dst += 1024) {
        const int64_t left = tni_min(32, depth - d);
        for (int q = 0; q < 16; q++) {
            __m512i x = _mm512_setzero_si512();
            if (!along) {
                const __mmask16 mask = (__mmask16)(0xffffu >> (16 - lines));
                const uint16_t *from = src + (d + 2 * q) * depth_step;
                TNI_REQUEST(from, 32 * depth_step, 1);
                if (2 * q < left) x = _mm512_maskz_inserti64x4(0xff, x, _mm256_maskz_loadu_epi16(mask, from), 0);
                if (2 * q + 1 < left)
                    x = _mm512_maskz_inserti64x4(0xff, x, _mm256_maskz_loadu_epi16(mask, from + depth_step), 1);
                x = _mm512_permutexvar_epi16(order, x);
            } else if (q < lines && depth_step == 1) {
                TNI_REQUEST(src, (q + 16) * line_step + d, 1);
                x = _mm512_maskz_loadu_epi16((__mmask32)(0xffffffffu >> (32 - left)), src + q * line_step + d);
            } else if (q < lines) {
                uint16_t some[32] = {0};
                for (int64_t i = 0; i < left; i++) some[i] = src[q * line_step + (d + i) * depth_step];
                x = _mm512_loadu_si512(some);
            }
            most = _mm512_max_epu16(most, _mm512_and_si512(x, sign));
            _mm512_storeu_si512(dst + q * 64, x);
        }
        if (along != of_a) tni_bf16_transpose(dst);
    }
    return _mm512_cmp_epu16_mask(most, _mm512_set1_epi16(0x5780), _MM_CMPINT_NLT) != 0;     /* 2^48 */
}

/* The address of an element of an operand that may be BF16 */
static const void *tni_bf16_at(const float *base, int64_t offset, bool half)
{
    return (const char *)base + offset * (half ? 2 : 4);
}

/* Packs the strips [s,end) of A, or of B. */
static void tni_bf16_pack_strips(tni_bf16 *w, int64_t s, int64_t end, bool of_a)
{
    const tni_f32_gemm_avx512 *g = &w->g;
    const int     parts = w->cpu->gemm_parts;
    const bool    half = of_a ? w->half_a : w->half_b, by_rows = of_a && !w->pairs_a;
    const int64_t line_step = of_a ? g->a_row : g->b_col, depth_step = of_a ? g->a_col : g->b_row;
    const int64_t first = of_a ? g->i0 : g->j0, lines = of_a ? g->rows : g->cols;
    const int64_t chunk = line_step == 1 ? (int64_t)TNI_BF16_CHUNK : g->depth;
    uint8_t      *wild = of_a ? w->wild_a : w->wild_b;
    for (int64_t i = s; i < end; i++) wild[i] = 0;
    for (int64_t d = 0; d < g->depth; d += chunk)
        for (int64_t i = s; i < end; i++) {
            const int64_t n = tni_max(tni_min(16, lines - 16 * i), 0), depth = tni_min(chunk, g->depth - d);
            char         *to = (of_a ? w->a : w->b) + i * w->strip + d / 32 * parts * 1024;
            const int64_t at = (first + 16 * i) * line_step + (g->k0 + d) * depth_step;
            const void   *src = tni_bf16_at(of_a ? g->a : g->b, at, half);
            if (n == 0) memset(to, 0, (size_t)(tni_ceil_div(depth, 32) * parts * 1024));
            else if (half)
                wild[i] |= tni_bf16_pack_halves(to, (const uint16_t *)src, line_step, depth_step, n, depth, by_rows);
            else wild[i] |= tni_bf16_pack(to, parts, (const float *)src, line_step, depth_step, n, depth, by_rows);
        }
}

/* Task: pack some strips, first of A, then of B. The second strip of the last pair may be past the edge: zeros. */
static void tni_bf16_pack_task(void *arg, int64_t task, int worker)
{
    tni_bf16     *w = (tni_bf16 *)arg;
    const int64_t a = 2 * tni_ceil_div(w->g.rows, 32), b = 2 * tni_ceil_div(w->g.cols, 32);
    const int64_t in_a = tni_ceil_div(a, TNI_BF16_GROUP), s = (task < in_a ? task : task - in_a) * TNI_BF16_GROUP;
    (void)worker;
    tni_bf16_pack_strips(w, s, tni_min(s + TNI_BF16_GROUP, task < in_a ? a : b), task < in_a);
}

/* sums[32,32] by AVX512_BF16, one part: eight rows at a time. Constants: the bytes from a row of A to the next, and from a
   pair of its depth to the next. */
TNI_ISA_DOT __attribute__((always_inline)) static inline void tni_bf16_dots_of(const int row, const int step,
                              int64_t blocks, const char *a, int64_t a_next, const char *b, int64_t b_next, float *sums)
{
    int64_t k;
    int     rows;
#define TNI_ROWS(X)  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define TNI_BEGIN(i) __m512 left##i = _mm512_setzero_ps(), right##i = left##i;
#define TNI_STEP(i)  { int32_t word; __m512i x; \
        memcpy(&word, from + i * row, 4); \
        x = _mm512_set1_epi32(word); \
        left##i = _mm512_dpbf16_ps(left##i, (__m512bh)x, (__m512bh)b0); \
        right##i = _mm512_dpbf16_ps(right##i, (__m512bh)x, (__m512bh)b1); }
#define TNI_END(i)   _mm512_storeu_ps(sums + i * 32, left##i); _mm512_storeu_ps(sums + i * 32 + 16, right##i);
    for (rows = 0; rows < 32; rows += 8, sums += 8 * 32) {
        const char *from_a = a + rows / 16 * a_next + rows % 16 * row, *from_b = b;
        TNI_ROWS(TNI_BEGIN)
        for (k = 0; k < blocks; k++, from_a += 1024)
            for (int pair = 0; pair < 16; pair++, from_b += 64) {
                const char   *from = from_a + pair * step;
                const __m512i b0 = _mm512_loadu_si512(from_b), b1 = _mm512_loadu_si512(from_b + b_next);
                TNI_ROWS(TNI_STEP)
            }
        TNI_ROWS(TNI_END)
    }
#undef TNI_ROWS
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
}

TNI_ISA_DOT TNI_FN void tni_bf16_dots(int parts, int64_t blocks, const char *a, int64_t a_next, const char *b,
                                      int64_t b_next, float *sums)
{
    (void)parts;
    tni_bf16_dots_of(64, 4, blocks, a, a_next, b, b_next, sums);
}

/* With A packed like B */
TNI_ISA_DOT static void tni_bf16_dots_pairs(int parts, int64_t blocks, const char *a, int64_t a_next, const char *b,
                                            int64_t b_next, float *sums)
{
    (void)parts;
    tni_bf16_dots_of(4, 64, blocks, a, a_next, b, b_next, sums);
}

/* ---- the same by AMX ---------------------------------------------------- >>gemm-amx
   Tiles 0 to 3 hold sums, 4 and 5 strips of A, 6 and 7 strips of B. Macros are needed because the instructions contain
   the numbers of their tiles. tests/test_simd.c defines its own, which work without the unit. */
#ifndef TNI_TILE_DOT
#define TNI_TILE_BEGIN(shape) _tile_loadconfig(shape)
#define TNI_TILE_END()        _tile_release()
#define TNI_TILE_ZERO(t)      _tile_zero(t)
#define TNI_TILE_LOAD(t, p)   _tile_loadd(t, p, 64)
#define TNI_TILE_STORE(t, p)  _tile_stored(t, p, 128)
#define TNI_TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#endif

/* Constant, because gcc tells the optimiser that only its first bytes are read. */
static const uint8_t tni_tile_shape[64] = {
    1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                         /* palette                     */
    64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,                 /* bytes of a row, eight tiles */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0                  /* rows                        */
};

TNI_ISA_TILE static void tni_bf16_tiles_begin(void) { TNI_TILE_BEGIN(tni_tile_shape); }
TNI_ISA_TILE static void tni_bf16_tiles_end(void)   { TNI_TILE_END(); }

TNI_ISA_TILE TNI_FN void tni_bf16_tiles(int parts, int64_t blocks, const char *a, int64_t a_next, const char *b,
                                        int64_t b_next, float *sums)
{
    const char *a1 = a + a_next, *b1 = b + b_next;
    int64_t     k;
#define TNI_A(part) { TNI_TILE_LOAD(4, a + (part) * 1024); TNI_TILE_LOAD(5, a1 + (part) * 1024); }
#define TNI_B(part) { TNI_TILE_LOAD(6, b + (part) * 1024); TNI_TILE_LOAD(7, b1 + (part) * 1024); }
#define TNI_DOTS    { TNI_TILE_DOT(0, 4, 6); TNI_TILE_DOT(1, 4, 7); TNI_TILE_DOT(2, 5, 6); TNI_TILE_DOT(3, 5, 7); }
    TNI_TILE_ZERO(0);
    TNI_TILE_ZERO(1);
    TNI_TILE_ZERO(2);
    TNI_TILE_ZERO(3);
    for (k = 0; k < blocks; k++) {                      /* in an order with few loads */
        if (parts == 3) {
            TNI_A(2) TNI_B(0) TNI_DOTS
            TNI_A(1) TNI_DOTS
            TNI_B(1) TNI_DOTS
            TNI_A(0) TNI_DOTS
            TNI_B(2) TNI_DOTS
            TNI_B(0) TNI_DOTS
        } else if (parts == 2) {
            TNI_A(1) TNI_B(0) TNI_DOTS
            TNI_A(0) TNI_DOTS
            TNI_B(1) TNI_DOTS
        } else {
            TNI_A(0) TNI_B(0) TNI_DOTS
        }
        a += parts * 1024;
        a1 += parts * 1024;
        b += parts * 1024;
        b1 += parts * 1024;
    }
    TNI_TILE_STORE(0, sums);
    TNI_TILE_STORE(1, sums + 16);
    TNI_TILE_STORE(2, sums + 16 * 32);
    TNI_TILE_STORE(3, sums + 16 * 32 + 16);
#undef TNI_A
#undef TNI_B
#undef TNI_DOTS
}

/* An element of an operand */
static float tni_bf16_element(const float *base, int64_t offset, bool half)
{
    return half ? tni_bf16_value(*(const uint16_t *)tni_bf16_at(base, offset, half)) : base[offset];
}

/* sums[rows,cols] in F32, from the unsplit operands */
TNI_ISA512 static void tni_bf16_wild(const tni_bf16 *w, int64_t row, int64_t col, int64_t rows, int64_t cols, float *sums)
{
    const tni_f32_gemm_avx512 *g = &w->g;
    const int64_t a0 = (g->i0 + row) * g->a_row + g->k0 * g->a_col, b0 = (g->j0 + col) * g->b_col + g->k0 * g->b_row;
    memset(sums, 0, sizeof *sums * 32 * 32);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < g->depth; d++) {
            const float x = tni_bf16_element(g->a, a0 + i * g->a_row + d * g->a_col, w->half_a);
            for (int64_t j = 0; j < cols; j++)
                sums[i * 32 + j] = fmaf(x, tni_bf16_element(g->b, b0 + d * g->b_row + j * g->b_col, w->half_b),
                                        sums[i * 32 + j]);
        }
}

/* 16 numbers as BF16, bits as tni_bf16_bits gives them. */
TNI_ISA512 static __m256i tni_bf16_narrow(__m512 x)
{
    const __m512i   bits = _mm512_castps_si512(x), quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i   nearest = _mm512_mask_mov_epi32(_mm512_castps_si512(tni_bf16_round(x)), is_nan, quiet);
    return _mm512_maskz_cvtepi32_epi16(0xffff, _mm512_maskz_srli_epi32(0xffff, nearest, 16));
}

/* The tile at (row,col) of the block, of a result in BF16: the sums of all slabs but the last are kept in F32. */
TNI_ISA512 static void tni_bf16_store(const tni_bf16 *w, const float *sums, int64_t row, int64_t col, int rows, int cols)
{
    const tni_f32_gemm_avx512 *g = &w->g;
    const bool    last = g->k0 + g->depth == g->k, vectors = g->c_col == 1 && (!g->bias || g->bias_col == 1);
    const __m512  alpha = _mm512_set1_ps(g->alpha), beta = _mm512_set1_ps(g->beta);
    const int64_t i0 = g->i0 + row, j0 = g->j0 + col;
    for (int r = 0; r < rows; r++)
        for (int q = 0; q < cols; q += 16) {
            const __mmask16 some = (__mmask16)(cols - q < 16 ? 0xffffu >> (16 - (cols - q)) : 0xffffu);
            float          *part = w->part ? w->part + (row + r) * w->part_row + col + q : NULL;
            uint16_t       *c = (uint16_t *)(void *)g->c + (i0 + r) * g->c_row + (j0 + q) * g->c_col;
            const float    *bias = g->bias ? g->bias + (i0 + r) * g->bias_row + (j0 + q) * g->bias_col : NULL;
            __m512          v = _mm512_loadu_ps(sums + r * 32 + q);
            float           lane[16];
            if (g->k0 > 0) v = _mm512_add_ps(v, _mm512_loadu_ps(part));
            if (!last) {
                _mm512_storeu_ps(part, v);
                continue;
            }
            v = _mm512_mul_ps(v, alpha);
            if (vectors) {
                if (g->beta != 0) {
                    const __m512i old = _mm512_maskz_cvtepu16_epi32(some, _mm256_maskz_loadu_epi16(some, c));
                    v = _mm512_fmadd_ps(beta, _mm512_castsi512_ps(_mm512_maskz_slli_epi32(some, old, 16)), v);
                }
                if (bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(some, bias));
                _mm256_mask_storeu_epi16(c, some, tni_bf16_narrow(v));
                continue;
            }
            _mm512_storeu_ps(lane, v);
            for (int k = 0; k < tni_min(16, cols - q); k++, c += g->c_col) {
                if (g->beta != 0) lane[k] = fmaf(g->beta, tni_bf16_value(*c), lane[k]);
                if (bias) lane[k] += bias[k * g->bias_col];
                *c = tni_bf16_bits(lane[k]);
            }
        }
}

/* Task: a part of the block of C. */
static void tni_bf16_part_task(void *arg, int64_t task, int worker)
{
    const tni_bf16            *w = (const tni_bf16 *)arg;
    const tni_f32_gemm_avx512 *g = &w->g;
    const int64_t parts_j = tni_ceil_div(g->cols, 32 * TNI_BF16_SIDE), blocks = tni_ceil_div(g->depth, 32);
    const int64_t row0 = task / parts_j * 32 * TNI_BF16_SIDE, col0 = task % parts_j * 32 * TNI_BF16_SIDE;
    const int64_t row_end = tni_min(row0 + 32 * TNI_BF16_SIDE, g->rows);
    const int64_t col_end = tni_min(col0 + 32 * TNI_BF16_SIDE, g->cols);
    const bool    tiles = w->cpu->gemm_products == tni_bf16_tiles;
    float         sums[32 * 32];
    (void)worker;
    if (tiles) tni_bf16_tiles_begin();
    for (int64_t col = col0; col < col_end; col += 32)
        for (int64_t row = row0; row < row_end; row += 32) {
            const int64_t i = row / 16, j = col / 16, rows = tni_min(32, g->rows - row), cols = tni_min(32, g->cols - col);
            for (int64_t r = 0; r < rows; r++)
                __builtin_prefetch(tni_bf16_at(g->c, (g->i0 + row + r) * g->c_row + (g->j0 + col) * g->c_col, w->half_c), 1);
            if (w->wild_a[i] | w->wild_a[i + 1] | w->wild_b[j] | w->wild_b[j + 1])
                tni_bf16_wild(w, row, col, rows, cols, sums);
            else (w->pairs_a ? tni_bf16_dots_pairs : w->cpu->gemm_products)
                (w->cpu->gemm_parts, blocks, w->a + i * w->strip, w->strip, w->b + j * w->strip, w->strip, sums);
            if (w->half_c) tni_bf16_store(w, sums, row, col, (int)rows, (int)cols);
            else tni_f32_gemm_store_avx512(g, sums, g->i0 + row, g->j0 + col, (int)rows, (int)cols);
        }
    if (tiles) tni_bf16_tiles_end();
}

/* One product, in blocks. Those of a BF16 result keep their sums while the slabs are added; false: no memory for them. */
static bool tni_bf16_one(tni_bf16 *w)
{
    tni_f32_gemm_avx512 *g = &w->g;
    tni_cpu      *cpu = w->cpu;
    const int64_t slabs = tni_ceil_div(g->k, TNI_BF16_DEPTH / cpu->gemm_parts);
    const int64_t deep = tni_ceil_div(tni_ceil_div(g->k, slabs), 32) * 32;
    const int64_t most = tni_min(TNI_GEMM_LARGE / (deep * cpu->gemm_parts * 32), TNI_BF16_STRIPS) / 2 * 32;
    w->a = cpu->blocks;
    w->b = cpu->blocks + TNI_GEMM_LARGE;
    w->pairs_a = cpu->gemm_products == tni_bf16_dots && g->a_row == 1 && g->a_col != 1;
    w->part = NULL;
    if (w->half_c && slabs > 1) {
        w->part_row = tni_min(most, tni_ceil_div(g->n, 32) * 32) + 16;
        w->part = (float *)(void *)tni_cpu_scratch(cpu, (size_t)(w->part_row * tni_min(most, g->m)) * sizeof *w->part);
        if (!w->part) return false;
    }
    for (g->j0 = 0; g->j0 < g->n; g->j0 += most)
        for (g->i0 = 0; g->i0 < g->m; g->i0 += most) {
            g->cols = tni_min(most, g->n - g->j0);
            g->rows = tni_min(most, g->m - g->i0);
            for (g->k0 = 0; g->k0 < g->k; g->k0 += deep) {
                const int64_t a = tni_ceil_div(g->rows, 32), b = tni_ceil_div(g->cols, 32);
                g->depth = tni_min(deep, g->k - g->k0);
                w->strip = tni_ceil_div(g->depth, 32) * cpu->gemm_parts * 1024;
                tni_parallel_for(&cpu->pool, tni_ceil_div(2 * a, TNI_BF16_GROUP) + tni_ceil_div(2 * b, TNI_BF16_GROUP),
                                 tni_bf16_pack_task, w);
                tni_parallel_for(&cpu->pool, tni_ceil_div(a, TNI_BF16_SIDE) * tni_ceil_div(b, TNI_BF16_SIDE),
                                 tni_bf16_part_task, w);
            }
        }
    return true;
}

/* This depends on the shape only. */
static bool tni_bf16_pays(int64_t m, int64_t n, int64_t k)
{
    return m >= 64 && n >= 64 && k >= 64 && (double)m * (double)n * (double)k >= 2097152.0;
}

/* The first element of matrix `index` of an operand */
static const float *tni_bf16_start(const tn_view *out, const tn_view *v, int64_t index)
{
    return (const float *)tni_bf16_at((const float *)v->data, tni_gemm_offset(out, v, index), v->dtype == TN_BF16);
}

/* Computes the product; TN_ERR_DTYPE, before anything is done: it is too small, or of dtypes that are not supported. */
TNI_FN tn_status tni_bf16_run(tni_cpu *cpu, const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *out = &c->out[0];
    const int     axes = out->rank;
    const int64_t m = out->shape[axes - 2];
    int64_t       batch = tni_gemm_batch(out), rows = m;
    tni_bf16      w;
    w.cpu = cpu;
    w.half_a = a->dtype == TN_BF16;
    w.half_b = b->dtype == TN_BF16;
    w.half_c = out->dtype == TN_BF16;
    if (!cpu->gemm_products || (c->n_in > 2 && tni_is_bf16(&c->in[2]))) return TN_ERR_DTYPE;
    if ((w.half_a || w.half_b || w.half_c) && cpu->gemm_parts > 1) return TN_ERR_DTYPE;
    if (axes == 3 && b->strides[0] == 0 && a->strides[0] == m * a->strides[1] && out->strides[0] == m * out->strides[1]) {
        rows *= batch;                                  /* contiguous rows of one matrix, as in gemm_run */
        batch = tni_min(batch, 1);
    }
    if (!tni_bf16_pays(rows, out->shape[axes - 1], a->shape[axes - 1])) return TN_ERR_DTYPE;
    for (int64_t i = 0; i < batch; i++) {
        w.g = tni_f32_gemm_matrix_avx512(c, i);
        w.g.a = tni_bf16_start(out, a, i);
        w.g.b = tni_bf16_start(out, b, i);
        if (w.half_c) w.g.c = (float *)(void *)((uint16_t *)out->data + tni_gemm_offset(out, out, i));
        w.g.m = rows;
        if (w.g.c_col != 1 && w.g.c_row == 1) {
            tni_f32_gemm_swap_avx512(&w.g);
            w.half_a = b->dtype == TN_BF16;
            w.half_b = a->dtype == TN_BF16;
        }
        if (!tni_bf16_one(&w)) return TN_ERR_MEMORY;
    }
    return TN_OK;
}

/* Is there an AMX unit, and does the system allow its use? Linux needs a request per process. */
TNI_FN bool tni_bf16_has_tiles(void)
{
#if defined(__linux__) && !defined(__ILP32__)
    unsigned a, b, c, d;
    long     result;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false; /* AMX-BF16, AMX-TILE */
    __asm__ volatile("syscall" : "=a"(result) : "0"(158L), "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    return result == 0;                                 /* arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) */
#else
    return false;
#endif
}

TNI_FN bool tni_bf16_has_dots(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

#endif
