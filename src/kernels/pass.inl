/* ======================================================================
   >>cpu-pass the kernels of one level (0 plain, 1 AVX2, 2 AVX-512, 3 NEON) in one precision
   ====================================================================== */

#define TNI_LEVEL (TNI_PASS / 2)
#if TNI_PASS == 0
#define TNI_T(name) tni_f32_##name##_plain
#elif TNI_PASS == 1
#define TNI_T(name) tni_f64_##name##_plain
#elif TNI_PASS == 2
#define TNI_T(name) tni_f32_##name##_avx2
#elif TNI_PASS == 3
#define TNI_T(name) tni_f64_##name##_avx2
#elif TNI_PASS == 4
#define TNI_T(name) tni_f32_##name##_avx512
#elif TNI_PASS == 5
#define TNI_T(name) tni_f64_##name##_avx512
#elif TNI_PASS == 6
#define TNI_T(name) tni_f32_##name##_neon
#else
#define TNI_T(name) tni_f64_##name##_neon
#endif
#if TNI_PASS % 2 == 0
#define TNI_BITS 32
#define TNI_REAL float
#define TNI_TRANSPOSE tni_float_transpose
#else
#define TNI_BITS 64
#define TNI_REAL double
#define TNI_TRANSPOSE tni_double_transpose
#endif
/* What is read: the loops of decompositions in any case, matrix products, and all other kernels. Of double the vectors of a
   level have products alone: what else a context in F64 computes is in plain C. TNI_FEW: the
   products with few rows that need no packing. */
#if TN_SIMD_MAX < 0 || (TNI_BITS == 64 && defined(TN_NO_F64))
#define TNI_PRODUCTS 0
#else
#define TNI_PRODUCTS 1
#endif
#if TNI_PLAIN_ALL
#define TNI_ALL (TNI_PRODUCTS && (TNI_BITS == 32 || TNI_LEVEL == 0))
#define TNI_FEW 1
#else
#define TNI_ALL (TNI_BITS == 32 && TNI_LEVEL > 0)
#define TNI_FEW TNI_ALL
#endif
#ifdef TN_NO_SEQUENCES
#define TNI_SEQUENCES 0
#else
#define TNI_SEQUENCES TNI_ALL
#endif

#if TNI_LEVEL == 2
#define TNI_ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#elif TNI_LEVEL == 1
#define TNI_ISA __attribute__((target("avx2,fma")))
#else
#define TNI_ISA
#endif
#define TNI_FAST TNI_UNUSED TNI_ISA static
#ifdef __GNUC__
#define TNI_INLINE TNI_UNUSED TNI_ISA __attribute__((always_inline)) static inline
#else
#define TNI_INLINE static inline
#endif

#include "kernels/vector.inl"
#include "kernels/gemm.inl"
#include "kernels/gemm_few.inl"
#include "kernels/gemm_run.inl"
#include "kernels/chain.inl"
#include "kernels/functions.inl"
#include "kernels/elements.inl"
#include "kernels/norm.inl"
#include "kernels/random.inl"
#include "kernels/optim.inl"
#include "kernels/algebra.inl"
#include "kernels/attention.inl"
#include "kernels/attention_backward.inl"
#include "kernels/attention_linear.inl"
#include "kernels/rope.inl"
#include "kernels/scan.inl"
#include "kernels/scan_lanes.inl"
#include "kernels/scan_last.inl"
#include "kernels/run.inl"
#include "kernels/pass_end.inl"
