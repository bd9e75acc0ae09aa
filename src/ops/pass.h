/* ======================================================================
   >>ops-impl  shape, forward and backward pass of each op, together
   The reference kernels compute in double and store TNI_REAL: they are the ones to read, and the ones that all others
   are tested against. The fast kernels are in >>cpu. R rows, C columns.
   ====================================================================== */

#ifndef TENSORNET_IMPLEMENTATION        /* a file of src/ is read first in float; again.h reads it in double */
#ifndef TNI_PASS
#define TNI_PASS 8
#endif
#endif

#if TNI_PASS == 8
#define TNI_REAL float
#define TNI_T(name) tni_f32_##name
#define TNI_FIRST
#else
#define TNI_REAL double
#define TNI_T(name) tni_f64_##name
#define TNI_ONCE
#endif
#ifdef TN_NO_F64
#define TNI_ONCE
#endif
