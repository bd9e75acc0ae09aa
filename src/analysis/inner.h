#pragma once
#include "core/inner.h"
#include "analysis/analysis.h"

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_ANALYSIS
/* signal.c */
TNI_FN tn_status tni_analysis_status(const tn_ctx *ctx);
TNI_FN tn_tensor *tni_owned_counts(tn_ctx *ctx, int64_t n, const int32_t *counts);

/* features.c */
TNI_FN tn_tensor *tni_quotient_of_act(tn_ctx *ctx, const tn_tensor *a, const tn_tensor *z, double slope);
#endif /* TN_NO_ANALYSIS */

#endif
