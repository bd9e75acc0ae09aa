#pragma once
#include "core/core.h"
#include "kernels/inner.h"

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* backends.c */
#ifndef TN_NO_OPERATOR
TNI_FN const tni_algebra *tni_algebra_of(tn_simd level);
TNI_FN const tni_vector_ops *tni_vector_ops_of(tn_simd level, tn_dtype dtype);
#endif /* TN_NO_OPERATOR */

#endif
