#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "cpu/vectors.h"
#include "kernels/inner.h"

#if TNI_NEON && !defined(TN_NO_F64)
#define TNI_PASS 7
#include "kernels/pass.inl"
#undef TNI_PASS
#endif
