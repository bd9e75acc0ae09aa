#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "cpu/vectors.h"
#include "kernels/inner.h"

#if TNI_NEON
#define TNI_PASS 6
#include "kernels/pass.inl"
#undef TNI_PASS
#endif
