#pragma once
#include "cpu/inner.h"

/* ---- vectors: their instructions, which take a compiler longer to read than most files ---- >>cpu-vectors */
#if TNI_NEON
#include <arm_neon.h>
#elif TNI_AVX2
#include <immintrin.h>
#elif TNI_X86
#include <emmintrin.h>
#elif TNI_WASM
#include <wasm_simd128.h>
#endif
/* Intrinsics of AVX-512 are here often given a mask of all lanes, as in _mm512_maskz_max_ps(0xffff, a, b): the forms without a
   mask pass a vector that is not initialised, of which g++ 12 warns. */

#if TNI_TURN
/* to[d width + lane] = from[lane stride + d], for 4 lanes of floats or 2 of doubles, and as many d */
static inline void tni_float_transpose(float *to, int64_t width, const float *from, int64_t stride)
{
#if TNI_NEON
    float32x4_t r0 = vld1q_f32(from), r1 = vld1q_f32(from + stride);
    float32x4_t r2 = vld1q_f32(from + 2 * stride), r3 = vld1q_f32(from + 3 * stride);
    float32x4_t a0 = vzip1q_f32(r0, r2), a1 = vzip1q_f32(r1, r3), a2 = vzip2q_f32(r0, r2), a3 = vzip2q_f32(r1, r3);
    vst1q_f32(to, vzip1q_f32(a0, a1));
    vst1q_f32(to + width, vzip2q_f32(a0, a1));
    vst1q_f32(to + 2 * width, vzip1q_f32(a2, a3));
    vst1q_f32(to + 3 * width, vzip2q_f32(a2, a3));
#elif TNI_WASM
    const v128_t r0 = wasm_v128_load(from), r1 = wasm_v128_load(from + stride);
    const v128_t r2 = wasm_v128_load(from + 2 * stride), r3 = wasm_v128_load(from + 3 * stride);
    const v128_t a0 = wasm_i32x4_shuffle(r0, r1, 0, 4, 1, 5), a1 = wasm_i32x4_shuffle(r0, r1, 2, 6, 3, 7);
    const v128_t a2 = wasm_i32x4_shuffle(r2, r3, 0, 4, 1, 5), a3 = wasm_i32x4_shuffle(r2, r3, 2, 6, 3, 7);
    wasm_v128_store(to, wasm_i64x2_shuffle(a0, a2, 0, 2));
    wasm_v128_store(to + width, wasm_i64x2_shuffle(a0, a2, 1, 3));
    wasm_v128_store(to + 2 * width, wasm_i64x2_shuffle(a1, a3, 0, 2));
    wasm_v128_store(to + 3 * width, wasm_i64x2_shuffle(a1, a3, 1, 3));
#else
    __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + stride);
    __m128 r2 = _mm_loadu_ps(from + 2 * stride), r3 = _mm_loadu_ps(from + 3 * stride);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(to, r0);
    _mm_storeu_ps(to + width, r1);
    _mm_storeu_ps(to + 2 * width, r2);
    _mm_storeu_ps(to + 3 * width, r3);
#endif
}

static inline void tni_double_transpose(double *to, int64_t width, const double *from, int64_t stride)
{
#if TNI_NEON
    float64x2_t r0 = vld1q_f64(from), r1 = vld1q_f64(from + stride);
    vst1q_f64(to, vzip1q_f64(r0, r1));
    vst1q_f64(to + width, vzip2q_f64(r0, r1));
#elif TNI_WASM
    const v128_t r0 = wasm_v128_load(from), r1 = wasm_v128_load(from + stride);
    wasm_v128_store(to, wasm_i64x2_shuffle(r0, r1, 0, 2));
    wasm_v128_store(to + width, wasm_i64x2_shuffle(r0, r1, 1, 3));
#else
    __m128d r0 = _mm_loadu_pd(from), r1 = _mm_loadu_pd(from + stride);
    _mm_storeu_pd(to, _mm_unpacklo_pd(r0, r1));
    _mm_storeu_pd(to + width, _mm_unpackhi_pd(r0, r1));
#endif
}
#endif
