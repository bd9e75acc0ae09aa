#if TNI_NEON && !defined(TN_NO_F64)
#define TNI_PASS 7
#include TN_HEADER_NAME
#undef TNI_PASS
#endif
