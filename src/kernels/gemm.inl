/* ---- gemm: C = alpha A B + beta C + bias -------------------------------- >>pass-gemm
   A tile of C, TNI_MR rows by two vectors, stays in registers while the microkernel goes along the depth:
   C[MR][2W] += A[d][MR] (x) B[d][2W], MR 2W multiplications for MR + 2W numbers read. Both factors come from
   panels, MR rows of A or 2W columns of B, packed so that the numbers of a step are contiguous; if packing does
   not pay, they are read in place. A task packs the panels that only it needs, those of its rows or of its columns.
   The depth is divided into slabs of at most TNI_GEMM_DEPTH bytes and never between threads, so the order of a sum
   does not depend on the place of its tile.
   Goto & van de Geijn 2008; Van Zee & van de Geijn 2015 */
#if TNI_LEVEL == 2
#define TNI_MR 14
#define TNI_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#elif TNI_LEVEL == 3
#define TNI_MR 12
#define TNI_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#elif TNI_WASM                          /* without fused products six rows are one vector too many for browsers on x86 */
#define TNI_MR 4
#define TNI_ROWS(X) X(0) X(1) X(2) X(3)
#else
#define TNI_MR 6
#define TNI_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#endif
#define TNI_NR (2 * TNI_W)

typedef struct TNI_T(gemm) {
    const TNI_REAL *a, *b, *bias;
    TNI_REAL       *c;
    int64_t         m, n, k;
    int64_t         a_row, a_col, b_row, b_col, c_row, c_col, bias_row, bias_col;   /* strides */
    TNI_REAL        alpha, beta;
    TNI_REAL       *panels_a, *panels_b;
    int64_t         i0, rows, j0, cols, k0, depth;     /* the current block */
    int64_t         panels_i, panels_j;                /* panels of the block */
    int64_t         packed_a, packed_b;                /* the first packed panel; earlier ones are read in place */
    int64_t         high;                              /* rows of a panel of A */
    int64_t         tasks, own;                        /* tasks; numbers of a worker's panels, see gemm_part */
    bool            by_columns;
    tn_task_fn      few;                               /* the task, if C has few rows */
    const uint32_t *codes;                             /* a compact copy of B's columns (>>compact), or NULL; of INT8 with */
    const float    *scales;                            /* scales, of BF16 without                                          */
    int64_t         words;                             /* of a column                                                      */
    const int16_t  *rounded;                           /* A's row for INT8, in units of blocks of 64, if `unit` is not NULL */
    const float    *unit;
} TNI_T(gemm);

/* The microkernel's type: c[rows, (wide ? W : 0) + last] = from + A B. Of the last vector, `last` lanes are read from `from`
   and written to c. */
typedef struct TNI_T(tile) {
    const TNI_REAL *a, *b, *from;
    TNI_REAL       *c;
    int64_t         depth, a_row, a_col, b_row, from_row, c_row;
    int             last;
} TNI_T(tile);

static const TNI_REAL TNI_T(zeros)[2 * sizeof(TNI_V) / sizeof(TNI_REAL)] = {0};

/* Masks cost nothing with AVX-512 only: otherwise the last vector is whole. (Inside the loop they cost AVX-512 5 %, too, so
   B is padded.) */
#if TNI_LEVEL == 2
#define TNI_LAST(t)                ((t)->last)
#define TNI_LOAD_SOME(p, k)        TNI_MM(maskz_loadu)(TNI_SOME(k), p)
#define TNI_STORE_SOME(p, v, k)    TNI_MM(mask_storeu)(p, TNI_SOME(k), v)
#else
#define TNI_LAST(t)                TNI_W
#define TNI_LOAD_SOME(p, k)        TNI_LOAD(p, k)
#define TNI_STORE_SOME(p, v, k)    TNI_STORE(p, v, k)
#endif

/* Called with constants, so that the compiler removes all conditions: `rows`; `wide`: two vectors; `packed`: a_row is 1
   and the last vector is whole. The sums are named variables because gcc would keep an array in memory. */
TNI_INLINE void TNI_T(gemm_tile)(const int rows, const bool wide, const bool packed, const TNI_T(tile) *t)
{
    const int       last = packed ? TNI_W : TNI_LAST(t), first = wide ? TNI_W : last;
    const int64_t   depth = t->depth, a_row = packed ? 1 : t->a_row, a_col = t->a_col, b_row = t->b_row;
    const TNI_REAL *a = t->a, *b = t->b, *from = t->from;
    TNI_REAL       *c = t->c;
    const TNI_V     zero = TNI_SET(0);
    const bool      add = from != TNI_T(zeros);
    int64_t         k;
#define TNI_BEGIN(i) TNI_V left##i = zero, right##i = zero;
#define TNI_STEP(i)  if (i < rows) { \
        TNI_V x = TNI_SET(a[i * a_row]); \
        left##i = TNI_FMA(x, b0, left##i); \
        if (wide) right##i = TNI_FMA(x, b1, right##i); }
#define TNI_END(i)   if (i < rows) { \
        if (add) left##i = left##i + (wide ? TNI_LOAD(from, TNI_W) : TNI_LOAD_SOME(from, first)); \
        if (add && wide) right##i = right##i + TNI_LOAD_SOME(from + TNI_W, last); \
        if (wide) TNI_STORE(c, left##i, TNI_W); else TNI_STORE_SOME(c, left##i, first); \
        if (wide) TNI_STORE_SOME(c + TNI_W, right##i, last); \
        from += t->from_row; \
        c += t->c_row; }
    TNI_ROWS(TNI_BEGIN)
#if TNI_LEVEL == 2                      /* prefetch C; no gain on AVX2 */
    for (k = 0; k < rows; k++) {
        __builtin_prefetch(c + k * t->c_row, 1);
        if (wide) __builtin_prefetch(c + k * t->c_row + TNI_NR - 1, 1);
    }
#endif
    for (k = 0; k < depth; k++, a += a_col, b += b_row) {
        TNI_V b0 = TNI_LOAD(b, TNI_W), b1 = wide ? TNI_LOAD(b + TNI_W, TNI_W) : zero;
#if TNI_LEVEL == 2                      /* the next panel of a B in place; in a packed one, the next step */
        if (packed) {
            TNI_REQUEST(b, TNI_NR, 2);
            TNI_REQUEST(b, TNI_NR + TNI_W, 2);
        }
#endif
        TNI_ROWS(TNI_STEP)
    }
    TNI_ROWS(TNI_END)
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
}

#if TNI_LEVEL == 3
/* The full tile from packed A: the twelve numbers of a step are loaded as vectors and multiplied lane by lane. */
TNI_FAST void TNI_T(gemm_lanes)(const TNI_T(tile) *t)
{
    const TNI_REAL *a = t->a, *b = t->b, *from = t->from;
    const TNI_V     zero = TNI_SET(0);
    TNI_REAL       *c = t->c;
    int64_t         k;
#define TNI_BEGIN(i) TNI_V left##i = zero, right##i = zero;
#define TNI_STEP(i)  left##i = TNI_MM(fmaq_laneq)(left##i, b0, x, i % TNI_LANES); \
                     right##i = TNI_MM(fmaq_laneq)(right##i, b1, x, i % TNI_LANES);
#define TNI_END(i)   TNI_STORE(c, left##i + TNI_LOAD(from, TNI_W), TNI_W); \
                     TNI_STORE(c + TNI_W, right##i + TNI_LOAD(from + TNI_W, TNI_W), TNI_W); \
                     from += t->from_row; c += t->c_row;
    TNI_ROWS(TNI_BEGIN)
    for (k = 0; k < t->depth; k++, a += t->a_col, b += t->b_row) {
        TNI_V b0 = TNI_LOAD(b, TNI_W), b1 = TNI_LOAD(b + TNI_W, TNI_W), x;
#if TNI_BITS == 32
#define TNI_LANES 4
        x = TNI_LOAD(a, TNI_W);     TNI_STEP(0) TNI_STEP(1) TNI_STEP(2)  TNI_STEP(3)
        x = TNI_LOAD(a + 4, TNI_W); TNI_STEP(4) TNI_STEP(5) TNI_STEP(6)  TNI_STEP(7)
        x = TNI_LOAD(a + 8, TNI_W); TNI_STEP(8) TNI_STEP(9) TNI_STEP(10) TNI_STEP(11)
#else
#define TNI_LANES 2
        x = TNI_LOAD(a, TNI_W);      TNI_STEP(0)  TNI_STEP(1)
        x = TNI_LOAD(a + 2, TNI_W);  TNI_STEP(2)  TNI_STEP(3)
        x = TNI_LOAD(a + 4, TNI_W);  TNI_STEP(4)  TNI_STEP(5)
        x = TNI_LOAD(a + 6, TNI_W);  TNI_STEP(6)  TNI_STEP(7)
        x = TNI_LOAD(a + 8, TNI_W);  TNI_STEP(8)  TNI_STEP(9)
        x = TNI_LOAD(a + 10, TNI_W); TNI_STEP(10) TNI_STEP(11)
#endif
    }
    TNI_ROWS(TNI_END)
#undef TNI_LANES
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
}
#endif

#if TNI_WASM && TNI_BITS == 32
/* c = from + A B of a full tile, by another program with fused products, which not every browser has (tools/tn/look/wasm.js);
   steps are in bytes. NULL: this program computes the tile. The library's only mutable global, which a page sets before its
   first call. */
typedef void (*tni_wasm_tile_fn)(const float *a, const float *b, const float *from, float *c, int depth, int a_step, int b_step,
                                 int from_step, int c_step);
static tni_wasm_tile_fn tni_wasm_tile;
#endif

TNI_FAST void TNI_T(gemm_rows)(int rows, bool wide, const TNI_T(tile) *t)
{
    if (rows == TNI_MR && wide && t->a_row == 1 && t->last == TNI_W) {
#if TNI_WASM && TNI_BITS == 32
        if (tni_wasm_tile)
            tni_wasm_tile(t->a, t->b, t->from, t->c, (int)t->depth, 4 * (int)t->a_col, 4 * (int)t->b_row, 4 * (int)t->from_row,
                          4 * (int)t->c_row);
        else TNI_T(gemm_tile)(TNI_MR, true, true, t);
#elif TNI_LEVEL == 3
        TNI_T(gemm_lanes)(t);
#else
        TNI_T(gemm_tile)(TNI_MR, true, true, t);
#endif
        return;
    }
#define TNI_CASE(i) \
    case i + 1: \
        if (wide) TNI_T(gemm_tile)(i + 1, true, false, t); \
        else TNI_T(gemm_tile)(i + 1, false, false, t); \
        break;
    switch (rows) { TNI_ROWS(TNI_CASE) default: break; }
#undef TNI_CASE
}

#if TNI_BITS == 32 && (TNI_LEVEL == 1 || TNI_LEVEL == 2)
#define TNI_STRIP_SIDE 8
/* As TNI_TRANSPOSE, for 8 lanes of floats and four steps of the depth. */
TNI_INLINE void TNI_T(transpose_half)(float *to, int64_t width, const float *from, int64_t stride)
{
#define TNI_PAIR(i) _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + (i) * stride)), \
                                         _mm_loadu_ps(from + ((i) + 4) * stride), 1)
    const __m256 r0 = TNI_PAIR(0), r1 = TNI_PAIR(1), r2 = TNI_PAIR(2), r3 = TNI_PAIR(3);
    const __m256 a0 = _mm256_unpacklo_ps(r0, r1), a1 = _mm256_unpackhi_ps(r0, r1);
    const __m256 a2 = _mm256_unpacklo_ps(r2, r3), a3 = _mm256_unpackhi_ps(r2, r3);
    _mm256_storeu_ps(to, _mm256_shuffle_ps(a0, a2, 0x44));
    _mm256_storeu_ps(to + width, _mm256_shuffle_ps(a0, a2, 0xee));
    _mm256_storeu_ps(to + 2 * width, _mm256_shuffle_ps(a1, a3, 0x44));
    _mm256_storeu_ps(to + 3 * width, _mm256_shuffle_ps(a1, a3, 0xee));
#undef TNI_PAIR
}

TNI_INLINE void TNI_T(transpose_wide)(float *to, int64_t width, const float *from, int64_t stride)
{
    TNI_T(transpose_half)(to, width, from, stride);
    TNI_T(transpose_half)(to + 4 * width, width, from + 4, stride);
}
#elif TNI_BITS == 64 && (TNI_LEVEL == 1 || TNI_LEVEL == 2)
#define TNI_STRIP_SIDE 4
/* As TNI_TRANSPOSE, for 4 lanes of doubles. */
TNI_INLINE void TNI_T(transpose_wide)(double *to, int64_t width, const double *from, int64_t stride)
{
    const __m256d r0 = _mm256_loadu_pd(from), r1 = _mm256_loadu_pd(from + stride);
    const __m256d r2 = _mm256_loadu_pd(from + 2 * stride), r3 = _mm256_loadu_pd(from + 3 * stride);
    const __m256d a0 = _mm256_unpacklo_pd(r0, r1), a1 = _mm256_unpackhi_pd(r0, r1);
    const __m256d a2 = _mm256_unpacklo_pd(r2, r3), a3 = _mm256_unpackhi_pd(r2, r3);
    _mm256_storeu_pd(to, _mm256_permute2f128_pd(a0, a2, 0x20));
    _mm256_storeu_pd(to + width, _mm256_permute2f128_pd(a1, a3, 0x20));
    _mm256_storeu_pd(to + 2 * width, _mm256_permute2f128_pd(a0, a2, 0x31));
    _mm256_storeu_pd(to + 3 * width, _mm256_permute2f128_pd(a1, a3, 0x31));
}
#endif

#if TNI_LEVEL == 1 && TNI_BITS == 32
/* Four steps of a panel of six rows */
TNI_INLINE void TNI_T(transpose_six)(float *to, const float *from, int64_t stride)
{
    __m128       r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + stride);
    __m128       r2 = _mm_loadu_ps(from + 2 * stride), r3 = _mm_loadu_ps(from + 3 * stride);
    const __m128 r4 = _mm_loadu_ps(from + 4 * stride), r5 = _mm_loadu_ps(from + 5 * stride);
    const __m128 low = _mm_unpacklo_ps(r4, r5), high = _mm_unpackhi_ps(r4, r5);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(to, r0);
    _mm_storeu_ps(to + 4, _mm_movelh_ps(low, r1));
    _mm_storeu_ps(to + 8, _mm_shuffle_ps(r1, low, 0xee));
    _mm_storeu_ps(to + 12, r2);
    _mm_storeu_ps(to + 16, _mm_movelh_ps(high, r3));
    _mm_storeu_ps(to + 20, _mm_shuffle_ps(r3, high, 0xee));
}

/* A panel of six rows whose steps are contiguous; requests a line of each row of the next one, too. */
TNI_FAST void TNI_T(panel_six)(float *dst, const float *src, int64_t stride, int64_t depth)
{
    int64_t d;
    for (d = 0; d + 4 <= depth; d += 4) {
        if (d % 16 == 0) for (int k = TNI_MR; k < 2 * TNI_MR; k++) TNI_REQUEST(src + d, k * stride, 2);
        TNI_T(transpose_six)(dst + d * TNI_MR, src + d, stride);
    }
    for (; d < depth; d++) for (int k = 0; k < TNI_MR; k++) dst[d * TNI_MR + k] = src[k * stride + d];
}
#endif

/* MR numbers of a panel, contiguous in A too */
TNI_INLINE void TNI_T(gemm_copy_rows)(TNI_REAL *to, const TNI_REAL *from)
{
#if TNI_LEVEL == 2                      /* memcpy would be three moves */
    const int whole = TNI_MR / TNI_W * TNI_W, rest = TNI_MR % TNI_W;
    if (whole > 0) TNI_STORE(to, TNI_LOAD(from, TNI_W), TNI_W);
    TNI_STORE(to + whole, TNI_LOAD(from + whole, rest), rest);
#else
    memcpy(to, from, TNI_MR * sizeof *to);
#endif
}

/* A panel: dst[d width + lane] = src[lane stride + d step], zeros in lanes [lanes,width) */
TNI_FAST void TNI_T(panel)(TNI_REAL *dst, int width, const TNI_REAL *src, int64_t stride, int64_t step, int lanes,
                           int64_t depth)
{
    int64_t d = 0;
    int     lane = 0, k;
    if (stride == 1 && lanes == TNI_MR && width == TNI_MR) {         /* the common widths, as constants */
        for (; d < depth; d++) TNI_T(gemm_copy_rows)(dst + d * TNI_MR, src + d * step);
        return;
    }
    if (stride == 1 && width == TNI_NR) {
        const TNI_V zero = TNI_SET(0);
        k = TNI_T(lanes)(lanes);
        for (; d < depth; d++, dst += TNI_NR, src += step) {
            TNI_REQUEST(src, 16 * step, 1);               /* rows are too far apart for the processor's own prefetching */
            TNI_STORE(dst, TNI_LOAD(src, k), TNI_W);
            TNI_STORE(dst + TNI_W, lanes > TNI_W ? TNI_LOAD(src + TNI_W, lanes - TNI_W) : zero, TNI_W);
        }
        return;
    }
    if (stride == 1) {
        for (; d < depth; d++, dst += width, src += step) {
            for (lane = 0; lane < lanes; lane += k) {
                k = TNI_T(lanes)(lanes - lane);
                TNI_STORE(dst + lane, TNI_LOAD(src + lane, k), k);
            }
            for (; lane < width; lane++) dst[lane] = 0;
        }
        return;
    }
#if TNI_LEVEL == 1 && TNI_BITS == 32
    if (step == 1 && lanes == TNI_MR && width == TNI_MR) {
        TNI_T(panel_six)(dst, src, stride, depth);
        return;
    }
#endif
#if TNI_TURN
    if (step == 1) {                                      /* a depth of 64 at a time stays in the cache */
        int64_t start, end;
/* overlaps: the last strip overlaps the one before */
#define TNI_STRIPS(side, turn, overlaps) \
        for (; lane + side <= lanes || (overlaps && lane > 0 && lanes - lane > 1); lane += side) { \
            lane = (int)tni_min(lane, lanes - side); \
            const TNI_REAL *from = src + lane * stride; \
            for (d = start; d + side <= end; d += side) turn(dst + d * width + lane, width, from + d, stride); \
            for (; d < end; d++) \
                for (k = 0; k < side; k++) dst[d * width + lane + k] = from[k * stride + d]; \
        }
        for (start = 0; start < depth; start = end) {
            end = tni_min(start + 64, depth);
            lane = 0;
#ifdef TNI_STRIP_SIDE
            TNI_STRIPS(TNI_STRIP_SIDE, TNI_T(transpose_wide), true)
#endif
            TNI_STRIPS(128 / TNI_BITS, TNI_TRANSPOSE, false)
        }
#undef TNI_STRIPS
    }
#endif
    for (; lane < lanes; lane++)
        for (d = 0; d < depth; d++) dst[d * width + lane] = src[lane * stride + d * step];
    for (; lane < width; lane++)
        for (d = 0; d < depth; d++) dst[d * width + lane] = 0;
}
#undef TNI_STRIP_SIDE

enum { TNI_T(gemm_high) = (56 + TNI_MR - 1) / TNI_MR };      /* most panels of a task's rows */

/* Rows [row,end) of A in panels. Those of a transposed A are packed together, since a line of memory belongs to several. */
TNI_FAST void TNI_T(gemm_pack_a)(const TNI_T(gemm) *g, TNI_REAL *to, int64_t row, int64_t end)
{
    const TNI_REAL *from = g->a + (g->i0 + row) * g->a_row + g->k0 * g->a_col;
    const int64_t   panels = g->a_row == 1 ? (end - row) / TNI_MR : 0;
    for (int64_t d = 0, stop; d < g->depth && panels > 0; d = stop) {
        stop = tni_min(d + 8, g->depth);
        for (int64_t i = 0; i < panels; i++)
            for (int64_t k = d; k < stop; k++)
                TNI_T(gemm_copy_rows)(to + (i * g->depth + k) * TNI_MR, from + k * g->a_col + i * TNI_MR);
    }
    for (int64_t i = panels * TNI_MR; row + i < end; i += TNI_MR)
        TNI_T(panel)(to + i * g->depth, TNI_MR, from + i * g->a_row, g->a_row, g->a_col, (int)tni_min(TNI_MR, end - row - i),
                     g->depth);
}

TNI_FAST void TNI_T(gemm_pack_b)(const TNI_T(gemm) *g, TNI_REAL *to, int64_t panel)
{
    const int64_t at = panel * TNI_NR;
    TNI_T(panel)(to, TNI_NR, g->b + (g->j0 + at) * g->b_col + g->k0 * g->b_row, g->b_col, g->b_row,
                 (int)tni_min(TNI_NR, g->cols - at), g->depth);
}

/* Task: pack panels that all tasks of the block read: some of A, or one of B. */
TNI_FAST void TNI_T(gemm_pack)(void *arg, int64_t task, int worker)
{
    const TNI_T(gemm) *g = (const TNI_T(gemm) *)arg;
    (void)worker;
    if (g->by_columns) {
        const int64_t row = task * g->panels_i / g->tasks * TNI_MR, end = (task + 1) * g->panels_i / g->tasks * TNI_MR;
        TNI_T(gemm_pack_a)(g, g->panels_a + row * g->depth, row, tni_min(g->rows, end));
    } else {
        const int64_t panel = g->packed_b + task;
        TNI_T(gemm_pack_b)(g, g->panels_b + panel * TNI_NR * g->depth, panel);
    }
}

/* One vector of C = alpha sums + beta C + bias. */
TNI_INLINE void TNI_T(gemm_finish)(TNI_REAL *c, const TNI_REAL *sums, TNI_REAL alpha, TNI_REAL beta, const TNI_REAL *bias,
                                   int k)
{
    TNI_V v = TNI_LOAD(sums, TNI_W) * TNI_SET(alpha);
    if (beta != 0) v = TNI_FMA(TNI_SET(beta), TNI_LOAD(c, k), v);
    if (bias) v = v + TNI_LOAD(bias, k);
    TNI_STORE(c, v, k);
}

/* The tile at (i,j). The first slab adds beta C and the bias, the others accumulate. */
TNI_FAST void TNI_T(gemm_store)(const TNI_T(gemm) *g, const TNI_REAL *sums, int64_t i, int64_t j, int rows, int cols)
{
    const TNI_REAL  alpha = g->alpha, beta = g->k0 == 0 ? g->beta : 1;
    const TNI_REAL *bias = g->k0 == 0 && g->bias ? g->bias + i * g->bias_row + j * g->bias_col : NULL;
    const int       left = TNI_T(lanes)(cols), right = cols - left;
    const int       width = (rows + 3) / 4 * 4;
    TNI_REAL       *c = g->c + i * g->c_row + j * g->c_col, transposed[(TNI_MR + 3) / 4 * 4 * TNI_NR + TNI_W];
    if (g->c_col == 1 && (!bias || g->bias_col == 1))
        for (int r = 0; r < rows; r++, c += g->c_row, sums += TNI_NR) {
            TNI_T(gemm_finish)(c, sums, alpha, beta, bias, left);
            if (right > 0) TNI_T(gemm_finish)(c + TNI_W, sums + TNI_W, alpha, beta, bias ? bias + TNI_W : NULL, right);
        }
    else if (g->c_row == 1 && (!bias || g->bias_row == 1)) {
        TNI_T(panel)(transposed, width, sums, TNI_NR, 1, rows, cols);
        for (int q = 0; q < cols; q++, c += g->c_col)
            for (int r = 0; r < rows; r += TNI_W)
                TNI_T(gemm_finish)(c + r, transposed + q * width + r, alpha, beta, bias ? bias + q * g->bias_col + r : NULL,
                                   TNI_T(lanes)(rows - r));
    } else
        for (int r = 0; r < rows; r++, c += g->c_row, sums += TNI_NR)
            for (int q = 0; q < cols; q++) {
                TNI_REAL *to = c + q * g->c_col, v = sums[q] * alpha;
                if (beta != 0) v += beta * *to;
                if (bias) v += bias[r * g->bias_row + q * g->bias_col];
                *to = v;
            }
}

/* Can the microkernel write to C directly? Then `from` is the start of its sums: zeros, the bias, or C itself. */
TNI_INLINE bool TNI_T(gemm_direct)(const TNI_T(gemm) *g, TNI_T(tile) *t, int64_t i, int64_t j)
{
    const TNI_REAL beta = g->k0 == 0 ? g->beta : 1;
    const bool     bias = g->k0 == 0 && g->bias;
    t->from = TNI_T(zeros);
    t->from_row = 0;
    t->c = g->c + i * g->c_row + j * g->c_col;
    t->c_row = g->c_row;
    if (g->alpha != 1 || g->c_col != 1 || (TNI_LEVEL != 2 && t->last != TNI_W)) return false;
    if (bias) {
        t->from = g->bias + i * g->bias_row + j * g->bias_col;
        t->from_row = g->bias_row;
        return beta == 0 && g->bias_col == 1;
    }
    if (beta == 1) {
        t->from = t->c;
        t->from_row = t->c_row;
    }
    return beta == 0 || beta == 1;
}

/* The tiles of panels [begin,end) of A and panel j of B; a and b: these panels, if they are packed. */
TNI_FAST void TNI_T(gemm_tiles)(const TNI_T(gemm) *g, int64_t begin, int64_t end, const TNI_REAL *a, int64_t j,
                                const TNI_REAL *b)
{
    TNI_REAL      sums[TNI_MR * 2 * TNI_W];
    const int64_t col = j * TNI_NR;
    const int     cols = (int)tni_min(TNI_NR, g->cols - col);
    const bool    wide = cols > TNI_W, packed = j >= g->packed_b;
    TNI_T(tile)   t;
    t.b = packed ? b : g->b + (g->j0 + col) * g->b_col + g->k0 * g->b_row;
    t.b_row = packed ? TNI_NR : g->b_row;
    t.depth = g->depth;
    t.last = wide ? cols - TNI_W : cols;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i * g->high;
        const int     rows = (int)tni_min(g->high, g->rows - row);
        t.a = i >= g->packed_a ? a + (i - begin) * TNI_MR * g->depth : g->a + (g->i0 + row) * g->a_row + g->k0 * g->a_col;
        t.a_row = i >= g->packed_a ? 1 : g->a_row;
        t.a_col = i >= g->packed_a ? TNI_MR : g->a_col;
        if (TNI_T(gemm_direct)(g, &t, g->i0 + row, g->j0 + col)) {
            TNI_T(gemm_rows)(rows, wide, &t);
            continue;
        }
        t.from = TNI_T(zeros);
        t.from_row = 0;
        t.c = sums;
        t.c_row = TNI_NR;
        TNI_T(gemm_rows)(rows, wide, &t);
        TNI_T(gemm_store)(g, sums, g->i0 + row, g->j0 + col, rows, cols);
    }
}

/* Task: some rows of the block of C, or a panel of its columns. It packs the panels that no other task reads into its worker's
   memory, where they are still in the cache when they are multiplied. */
TNI_FAST void TNI_T(gemm_part)(void *arg, int64_t task, int worker)
{
    const TNI_T(gemm) *g = (const TNI_T(gemm) *)arg;
    const int64_t      begin = task * g->panels_i / g->tasks, end = (task + 1) * g->panels_i / g->tasks;
    TNI_REAL          *own = (g->by_columns ? g->panels_b : g->panels_a) + worker * g->own;
    if (g->by_columns) {
        if (task >= g->packed_b) TNI_T(gemm_pack_b)(g, own, task);
        TNI_T(gemm_tiles)(g, 0, g->panels_i, g->panels_a, task, own);
    } else {
        if (!g->packed_a) TNI_T(gemm_pack_a)(g, own, begin * TNI_MR, tni_min(g->rows, end * TNI_MR));
        for (int64_t j = 0; j < g->panels_j; j++)
            TNI_T(gemm_tiles)(g, begin, end, own, j, j >= g->packed_b ? g->panels_b + j * TNI_NR * g->depth : NULL);
    }
}

/* Tasks of at most so many panels: an even number of them, for two threads. */
TNI_FAST int64_t TNI_T(gemm_tasks)(int64_t panels, int64_t most)
{
    return tni_min(2 * tni_ceil_div(panels, 2 * most), panels);
}

/* The block of C at (i0,j0), one slab deep. Read in place: A if B has few columns; B if its rows are contiguous and do not
   share cache sets (AVX-512), or if A has few rows; both if shallow. Packed in any case: a deep transposed A (except for
   one panel), a transposed B, and an A whose row stride makes rows share cache sets. */
TNI_FAST void TNI_T(gemm_block)(TNI_T(gemm) *g, const tni_pool *pool, int64_t bytes)
{
    const int64_t size = (int64_t)sizeof(TNI_REAL);
    const bool    shallow = g->depth <= TNI_GEMM_SHALLOW;
    const bool    same_set = TNI_MR > 8 && g->rows > 8 && g->a_row * size % 4096 == 0;
    const bool    narrow = g->m <= TNI_MR && g->a_row == 1 && tni_abs(g->a_col) <= 2 * TNI_MR;   /* one panel, dense already */
    const bool    few_columns = g->a_col == 1 ? g->n < 8 * TNI_NR && !same_set : narrow || (g->n <= TNI_NR && g->k <= 256);
    const bool    apart = TNI_LEVEL == 2 && g->b_row * size % 4096 != 0;
    const bool    b_in_place = g->b_col == 1 && (g->m <= 8 * TNI_MR || apart || shallow);
    tni_pool      some = *pool;         /* as many workers as there is memory for */
    int64_t       most, shared, tasks;  /* panels of a task, at most; tasks that pack for all; tasks */
    g->panels_i = tni_ceil_div(g->rows, TNI_MR);
    g->panels_j = tni_ceil_div(g->cols, TNI_NR);
    g->packed_a = few_columns || shallow ? g->panels_i : 0;
    /* in place, only whole vectors of B are read */
    g->packed_b = !b_in_place ? 0 : g->cols % TNI_NR == TNI_W ? g->panels_j : g->cols / TNI_NR;
    g->high = g->packed_a ? tni_ceil_div(g->rows, g->panels_i) : TNI_MR;
    if (g->by_columns) {
        shared = g->tasks = g->packed_a ? 0 : TNI_T(gemm_tasks)(g->panels_i, TNI_T(gemm_high));
        g->own = TNI_NR * g->depth;
        tasks = g->panels_j;
    } else {
        shared = g->panels_j - g->packed_b;
        most = tni_max(tni_min(TNI_T(gemm_high), bytes / size / tni_max(TNI_MR * g->depth, 1)), 1);
        g->own = most * TNI_MR * g->depth;
        tasks = TNI_T(gemm_tasks)(g->panels_i, most);
    }
    some.threads = (int)tni_max(tni_min(some.threads, bytes / size / tni_max(g->own, 1)), 1);
    tni_parallel_for(pool, shared, TNI_T(gemm_pack), g);
    g->tasks = tasks;
    tni_parallel_for(&some, g->tasks, TNI_T(gemm_part), g);
}
