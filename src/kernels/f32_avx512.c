#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "cpu/vectors.h"
#include "kernels/inner.h"

#if TNI_AVX512
#define TNI_PASS 4
#include "kernels/pass.inl"
#undef TNI_PASS
#endif

#if TNI_BF16
#include "kernels/bf16.inl"
#include "kernels/bf16_attention.inl"
#endif
