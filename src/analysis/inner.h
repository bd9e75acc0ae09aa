#pragma once
#include "core/inner.h"
#include "kernels/inner.h"
#include "analysis/analysis.h"

#ifndef TN_NO_ANALYSIS
/* An operator as doubles: f[k] [terms,in] with rows of length 1, p transposed to [terms,out], with the sizes. */
typedef struct tni_units {
    const tn_cp *cp;
    double      *p, *f[TN_CP_MAX_ORDER];
    int64_t     *largest[TN_CP_MAX_ORDER];   /* [terms] */
    bool         zero;                       /* whether all terms are */
} tni_units;

typedef struct tni_flat {               /* a layer as plain arrays; encoders without the constant's column */
    int64_t n, h, out;
    double *p, *w[2], *c[2];            /* [out,h] [h,n] [h] */
    double *length[2];                  /* [h] of the rows of w */
} tni_flat;
#endif /* TN_NO_ANALYSIS */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_ANALYSIS
/* signal.c */
TNI_FN tn_status tni_analysis_status(const tn_ctx *ctx);
TNI_FN tn_tensor *tni_owned_counts(tn_ctx *ctx, int64_t n, const int32_t *counts);

/* radius.c */
TNI_FN tn_status tni_flat_read(tni_flat *f, tni_scratch *w, const tn_cp *cp);
TNI_FN tn_status tni_spectral_norm(tni_scratch *w, const tni_host *host, int64_t m, int64_t n, double *a, double *norm);

/* features.c */
TNI_FN tn_tensor *tni_quotient_of_act(tn_ctx *ctx, const tn_tensor *a, const tn_tensor *z, double slope);

/* align.c */
TNI_FN double tni_unit_row(int64_t n, double *v, int64_t *largest);
TNI_FN tn_status tni_units_read(tni_units *u, tni_scratch *w, const tn_cp *cp);
TNI_FN bool tni_units_fit(const tni_units *u, const char *op);
#endif /* TN_NO_ANALYSIS */

#endif
