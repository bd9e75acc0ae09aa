#if TNI_AVX2 && !defined(TN_NO_F64)
#define TNI_PASS 3
#include TN_HEADER_NAME
#undef TNI_PASS
#endif
