#if TNI_NEON
#define TNI_PASS 6
#include TN_HEADER_NAME
#undef TNI_PASS
#endif
