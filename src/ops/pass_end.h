#undef TNI_FIRST
#undef TNI_ONCE
#undef TNI_T
#undef TNI_REAL
