#if TNI_AVX2
#define TNI_PASS 2
#include TN_HEADER_NAME
#undef TNI_PASS
#endif
