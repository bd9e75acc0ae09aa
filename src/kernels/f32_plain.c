#define TNI_PASS 0
#include TN_HEADER_NAME
#undef TNI_PASS
