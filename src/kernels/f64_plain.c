#if !defined(TN_NO_F64) || !defined(TN_NO_OPERATOR)
#define TNI_PASS 1
#include TN_HEADER_NAME
#undef TNI_PASS
#endif
