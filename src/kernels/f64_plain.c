#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "cpu/vectors.h"
#include "kernels/inner.h"

#if !defined(TN_NO_OPERATOR) || (TN_SIMD_MAX >= 0 && !defined(TN_NO_F64))
#define TNI_PASS 1
#include "kernels/pass.inl"
#undef TNI_PASS
#endif
