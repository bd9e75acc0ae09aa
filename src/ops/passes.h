/* The section of the ops is read twice, in float and in double; parts without a precision are read once. */
#define TNI_PASS 8
#include TN_HEADER_NAME
#undef TNI_PASS
#ifndef TN_NO_F64
#define TNI_PASS 9
#include TN_HEADER_NAME
#undef TNI_PASS
#endif
