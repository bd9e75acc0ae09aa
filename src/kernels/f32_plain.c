#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "cpu/vectors.h"
#include "kernels/inner.h"

#define TNI_PASS 0
#include "kernels/pass.inl"
#undef TNI_PASS
