#include "core/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "kernels/inner.h"
#include "context/inner.h"

/* ---- the two host backends ---------------------------------------------- >>host-backends */

/* Copies are chosen by the size of an element, all other kernels by the precision of their first wanted result. */
static tn_status tni_cpu_run(void *state, const tn_call *c)
{
    tni_cpu *cpu = (tni_cpu *)state;
    tn_dtype dtype;
    int      wanted = 0;
    while (wanted < c->n_out - 1 && !c->out[wanted].data) wanted++;
    dtype = c->out[wanted].dtype;
    if (c->kernel == TN_KERNEL_COPY) return tni_cpu_copy_run(cpu, c);
    if (c->kernel == TN_KERNEL_FILL) return tni_cpu_fill_run(cpu, c);
#if TNI_BF16
    if (c->kernel == TN_KERNEL_GEMM && dtype != TN_F64 && cpu->gemm_products) {
        const tn_status s = tni_bf16_run(cpu, c);
        if (s != TN_ERR_DTYPE) return s;
    }
#ifndef TN_NO_SEQUENCES
    if ((c->kernel == TN_KERNEL_ATTENTION || c->kernel == TN_KERNEL_ATTENTION_BACKWARD) && cpu->gemm_products) {
        const tn_status s = tni_bf16_attention_run(cpu, c);
        if (s != TN_ERR_DTYPE) return s;
    }
#endif
#endif
    if (tni_call_has_bf16(c)) return cpu->run[0] ? cpu->run[0](cpu, c) : TN_ERR_DTYPE;
    if (c->kernel == TN_KERNEL_EMBED) return tni_cpu_embed_run(cpu, c);
    if ((dtype == TN_F32 || dtype == TN_F64) && cpu->run[dtype == TN_F64]) return cpu->run[dtype == TN_F64](cpu, c);
    return tni_reference_run(cpu, c);
}

#ifdef TN_NO_F64
#define TNI_BOTH(level) cpu->run[0] = tni_f32_run_##level
#else
#define TNI_BOTH(level) (cpu->run[0] = tni_f32_run_##level, cpu->run[1] = tni_f64_run_##level)
#endif
static void tni_cpu_choose(tni_cpu *cpu, tn_simd simd)
{
#if TN_SIMD_MAX < 0
    (void)cpu;                          /* the reference computes */
#else
    TNI_BOTH(plain);
#endif
#if TNI_AVX2
    if (simd == TN_SIMD_AVX2) TNI_BOTH(avx2);
#endif
#if TNI_AVX512
    if (simd == TN_SIMD_AVX512) TNI_BOTH(avx512);
#endif
#if TNI_NEON
    if (simd == TN_SIMD_NEON) TNI_BOTH(neon);
#endif
    (void)simd;
}
#undef TNI_BOTH

static void tni_bf16_choose(tni_cpu *cpu, const tn_desc *desc)
{
    static const char *const name[] = {"F32", "BF16", "BF16X3", "BF16X6", "TF32"};
    char message[128];
    if (desc->gemm_precision == TN_GEMM_F32 || desc->dtype == TN_F64) return;
    cpu->gemm_parts = desc->gemm_precision == TN_GEMM_TF32 ? 0 : (int)desc->gemm_precision;
#if TNI_BF16
    if (tni_cpu_simd(desc->simd) == TN_SIMD_AVX512) {
        if (cpu->gemm_parts > 0 && tni_bf16_has_tiles()) cpu->gemm_products = tni_bf16_tiles;
        else if (cpu->gemm_parts == 1 && tni_bf16_has_dots()) cpu->gemm_products = tni_bf16_dots;
    }
#endif
    if (cpu->gemm_products) return;
    tni_print(message, sizeof message,
              "desc.gemm_precision is %s: this processor has no unit that is faster at it; products run in F32",
              name[desc->gemm_precision]);
    tni_say(desc, TN_LOG_WARN, message);
}

static tn_status tni_cpu_refuse(tni_cpu *cpu, void **state, char why[TN_WHY])
{
    tni_cpu_close(cpu);
    *state = NULL;
    return tni_print(why, TN_WHY, "no memory for the state of the cpu backend"), TN_ERR_MEMORY;
}

static tn_status tni_reference_open(const tn_desc *desc, void **state, char why[TN_WHY])
{
    tni_cpu *cpu = tni_cpu_new(desc, 1);
    *state = cpu;
    return cpu ? TN_OK : tni_cpu_refuse(cpu, state, why);
}

static tn_status tni_cpu_open(const tn_desc *desc, void **state, char why[TN_WHY])
{
    tni_cpu *cpu = tni_cpu_new(desc, desc->threads);
    size_t   least;
    *state = cpu;
    if (!cpu || !tni_mul_size((size_t)desc->threads, 2 * TNI_GEMM_SMALL, &least)) return tni_cpu_refuse(cpu, state, why);
    tni_cpu_choose(cpu, tni_cpu_simd(desc->simd));
    tni_bf16_choose(cpu, desc);
    cpu->block_bytes = least > 2 * TNI_GEMM_LARGE ? least : 2 * TNI_GEMM_LARGE;
    cpu->blocks = (char *)tni_cpu_alloc(cpu, cpu->block_bytes);
    return cpu->blocks ? TN_OK : tni_cpu_refuse(cpu, state, why);
}

const tn_backend *tn_cpu_backend(void)
{
#define TNI_X(ENUM, name) tni_cpu_run,
#define TNI_NONE(ENUM, name) NULL,
    static const tn_backend cpu = {
        TN_BACKEND_ABI, "cpu", true, true, TNI_PLAIN_ALL != 0, 0, tni_cpu_open, tni_cpu_close, tni_cpu_alloc, tni_cpu_release,
        tni_cpu_move, tni_cpu_move, NULL, NULL, NULL, NULL, NULL, NULL, { TNI_KERNELS(TNI_X, TNI_NONE, TNI_NONE) },
        TNI_PLAIN_ALL != 0
    };
#undef TNI_X
#undef TNI_NONE
    return &cpu;
}

const tn_backend *tn_reference_backend(void)
{
#define TNI_X(ENUM, name) tni_reference_run,
#define TNI_NONE(ENUM, name) NULL,
    static const tn_backend reference = {
        TN_BACKEND_ABI, "reference", true, false, false, 0, tni_reference_open, tni_cpu_close, tni_cpu_alloc, tni_cpu_release,
        tni_cpu_move, tni_cpu_move, NULL, NULL, NULL, NULL, NULL, NULL, { TNI_KERNELS(TNI_X, TNI_NONE, TNI_NONE) }, false
    };
#undef TNI_X
#undef TNI_NONE
    return &reference;
}

#ifndef TN_NO_OPERATOR
TNI_FN const tni_algebra *tni_algebra_of(tn_simd level)
{
#ifndef TN_NO_F64
#if TNI_AVX512
    if (level == TN_SIMD_AVX512) return &tni_f64_algebra_avx512;
#endif
#if TNI_AVX2
    if (level == TN_SIMD_AVX2) return &tni_f64_algebra_avx2;
#endif
#if TNI_NEON
    if (level == TN_SIMD_NEON) return &tni_f64_algebra_neon;
#endif
#endif
    (void)level;
    return &tni_f64_algebra_plain;
}

TNI_FN const tni_vector_ops *tni_vector_ops_of(tn_simd level, tn_dtype dtype)
{
    if (dtype == TN_F64) return tni_algebra_of(level)->vectors;
#if TNI_AVX512
    if (level == TN_SIMD_AVX512) return &tni_f32_vector_ops_avx512;
#endif
#if TNI_AVX2
    if (level == TN_SIMD_AVX2) return &tni_f32_vector_ops_avx2;
#endif
#if TNI_NEON
    if (level == TN_SIMD_NEON) return &tni_f32_vector_ops_neon;
#endif
    return &tni_f32_vector_ops_plain;
}
#endif
