#if TNI_AVX512
#define TNI_PASS 4
#include TN_HEADER_NAME
#undef TNI_PASS
#endif
