#if TNI_AVX512 && !defined(TN_NO_F64)
#define TNI_PASS 5
#include TN_HEADER_NAME
#undef TNI_PASS
#endif
