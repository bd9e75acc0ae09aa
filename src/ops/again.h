/* Ends a reading of the file TNI_AGAIN, which includes this last, and after the one in float reads it in double. */
#include "ops/pass_end.h"
#if TNI_PASS == 8 && !defined(TN_NO_F64)
#undef TNI_PASS
#define TNI_PASS 9
#include TNI_AGAIN
#endif
