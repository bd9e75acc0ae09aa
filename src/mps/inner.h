#pragma once
#include "core/core.h"
#include "decomp/inner.h"
#include "mps/mps.h"

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_MPS
/* features.c */
TNI_FN tn_status tni_local_check(tn_ctx *ctx, const char *op, const char *name, tn_local_map map, int64_t dim);

/* layer.c */
TNI_FN int64_t tni_mps_place(const tn_mps_desc *d, int64_t n);

/* trains.c */
#ifndef TN_NO_OPERATOR
TNI_FN bool tni_from_tt_given(const char *op, const tn_tensor *core, const tn_tt *tt);
TNI_FN tn_status tni_tt_canonical(tni_scratch *w, const tn_tt *tt, int64_t site, tni_tt_round_job *j, double *norm);
#endif /* TN_NO_OPERATOR */
#endif /* TN_NO_MPS */

#endif
