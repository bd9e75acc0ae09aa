/* tiles.h: AMX's tile instructions in C, after Intel's manual: eight tiles and what they can do, TILELOADD, TILESTORED,
   TILEZERO, TDPBF16PS. It is included before kernels/f32_avx512.c, whose tile kernels are made of these then; the
   processor's own run where tiles_in_c is false. */

#ifndef TN_TILES_H
#define TN_TILES_H

#if defined(__x86_64__) && (!defined(_WIN32) || defined(__clang__)) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define HAVE_UNITS                      /* in the compiler, that is */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static bool tiles_in_c;                                 /* false: the processor's own */
static __thread bool  tile_ready;                       /* configured */
static __thread char  tile_bytes[8][1024];
static long           tile_abuse;                       /* used without a configuration, or configured twice */
static __thread long  tile_dots;                        /* products of tiles in C so far */

static void tile_check(bool ok) { if (!ok) tile_abuse++; }

/* Denormals in and out count as zero. */
static inline float tile_flush(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
    memcpy(&x, &bits, 4);
    return x;
}

static inline float tile_widen(const char *p)
{
    uint16_t half;
    float    x;
    memcpy(&half, p, 2);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&x, &bits, 4);
    return tile_flush(x);
}

__attribute__((target("avx2,fma"))) static inline __m256 tile_flush_8(__m256 x)
{
    const __m256i exponent = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7f800000));
    const __m256i none = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_srli_epi32(none, 1)), x);       /* all but the sign */
}

/* Each row by itself: even and odd products in two sums of their own, from zero; then their sum to what was there. Eight
   columns at a time, because this is most of what test_simd does. */
__attribute__((target("avx2,fma"))) static void tile_dot(int c, int a, int b)
{
    float right[32][16];
    tile_check(tile_ready);
    tile_dots++;
    for (int k = 0; k < 32; k++)
        for (int n = 0; n < 16; n++) right[k][n] = tile_widen(tile_bytes[b] + 64 * (k / 2) + 4 * n + 2 * (k % 2));
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n += 8) {
            float *to = (float *)(void *)(tile_bytes[c] + 64 * m + 4 * n);
            __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
            for (int k = 0; k < 32; k++) {
                const __m256 x = _mm256_set1_ps(tile_widen(tile_bytes[a] + 64 * m + 2 * k));
                sum[k % 2] = tile_flush_8(_mm256_fmadd_ps(x, _mm256_loadu_ps(&right[k][n]), sum[k % 2]));
            }
            sum[0] = tile_flush_8(_mm256_add_ps(sum[0], sum[1]));
            _mm256_storeu_ps(to, tile_flush_8(_mm256_add_ps(tile_flush_8(_mm256_loadu_ps(to)), sum[0])));
        }
}

static void tile_begin(const uint8_t *shape)            /* palette 1; 64 bytes a row, 16 rows, for all eight */
{
    tile_check(!tile_ready && shape[0] == 1 && shape[1] == 0);
    for (int t = 0; t < 8; t++) tile_check(shape[16 + 2 * t] == 64 && shape[17 + 2 * t] == 0 && shape[48 + t] == 16);
    memset(tile_bytes, 0x7f, sizeof tile_bytes);        /* nobody may count on zeros */
    tile_ready = true;
}

static void tile_end(void)  { tile_check(tile_ready); tile_ready = false; }

static void tile_load(int t, const char *p)
{
    tile_check(tile_ready);
    memcpy(tile_bytes[t], p, 1024);
}

static void tile_store(int t, float *p)
{
    tile_check(tile_ready);
    for (int r = 0; r < 16; r++) memcpy((char *)p + 128 * r, tile_bytes[t] + 64 * r, 64);
}

#define TNI_TILE_BEGIN(shape) if (tiles_in_c) tile_begin(shape); else _tile_loadconfig(shape)
#define TNI_TILE_END()        if (tiles_in_c) tile_end(); else _tile_release()
#define TNI_TILE_ZERO(t)      if (tiles_in_c) memset(tile_bytes[t], 0, 1024); else _tile_zero(t)
#define TNI_TILE_LOAD(t, p)   if (tiles_in_c) tile_load(t, p); else _tile_loadd(t, p, 64)
#define TNI_TILE_STORE(t, p)  if (tiles_in_c) tile_store(t, p); else _tile_stored(t, p, 128)
#define TNI_TILE_DOT(c, a, b) if (tiles_in_c) tile_dot(c, a, b); else _tile_dpbf16ps(c, a, b)
#endif

#endif
