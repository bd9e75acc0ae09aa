#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"
#include "mps/inner.h"

#ifndef TN_NO_MPS
/* ======================================================================
   >>mps-impl   matrix product states
   ====================================================================== */

/* ---- local features ------------------------------------------------------ >>local-features-impl */

enum { TNI_LOCAL_POWERS = 64, TNI_LOCAL_TERMS = 25 };

/* Checks a map and its number of features, for a function or a layer `op`. */
TNI_FN tn_status tni_local_check(tn_ctx *ctx, const char *op, const char *name, tn_local_map map, int64_t dim)
{
    const int64_t most = map == TN_LOCAL_POWERS ? TNI_LOCAL_POWERS : map >= TN_LOCAL_GIVEN ? INT32_MAX - 1 : 2;
    if ((unsigned)map > TN_LOCAL_IDS)
        return tni_fail(ctx, TN_ERR_ARG, "%s%s%s: map is %d, not a valid tn_local_map", op, TNI_NAMED(name), (int)map);
    if (dim >= (most == 2 ? 2 : 1) && dim <= most) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s%s%s: dim is %lld, expected %s", op, TNI_NAMED(name), (long long)dim,
                    most == 2 ? "2" : most < 100 ? "1 to 64" : "1 or more");
}

/* Taylor series of cos(pi x/2) and sin(pi x/2) about x = 1/2, as a matrix [terms,2] */
static tn_tensor *tni_local_cosine(tn_ctx *ctx)
{
    double  c[2 * TNI_LOCAL_TERMS], power = 1;
    for (int64_t k = 0; k < TNI_LOCAL_TERMS; k++) {         /* derivatives at pi/4 are all sqrt(1/2), up to the sign */
        c[2 * k] = (k % 4 == 1 || k % 4 == 2 ? -power : power) * 0.7071067811865476;
        c[2 * k + 1] = (k % 4 > 1 ? -power : power) * 0.7071067811865476;
        power *= 1.5707963267948966 / (double)(k + 1);
    }
    return tn_tensor_from(ctx, 2, TNI_DIMS(TNI_LOCAL_TERMS, 2), TN_F64, c);
}

static tn_tensor *tni_local_powers(tn_ctx *ctx, tn_tensor *x, int64_t n)
{
    tn_tensor *t[TNI_LOCAL_POWERS];
    t[0] = tn_full(ctx, x->rank, x->shape, 1);
    for (int64_t k = 1; k < n; k++) t[k] = k > 1 ? tn_mul(ctx, t[k - 1], x) : x;
    return tn_stack(ctx, n, t, -1);
}

tn_tensor *tn_local_features(tn_ctx *ctx, tn_tensor *x, tn_local_map map, int64_t dim)
{
    if (dim == 0) dim = 2;
    if (!tni_usable(ctx, x, "local_features", "x")) return NULL;
    if (tni_local_check(ctx, "local_features", NULL, map, dim) != TN_OK) return NULL;
    if (map == TN_LOCAL_IDS) return tn_embed(ctx, tn_eye(ctx, dim), x);
    if (!tni_is_real(ctx, x, "local_features", "x")) return NULL;
    if (map == TN_LOCAL_GIVEN) {
        if (x->rank > 0 && x->shape[x->rank - 1] == dim) return x;
        return tni_fail(ctx, TN_ERR_SHAPE, "local_features: x is %s, expected %lld features on its last axis", TNI_SHAPE(x),
                        (long long)dim), (tn_tensor *)NULL;
    }
    if (map == TN_LOCAL_POWERS) return tni_local_powers(ctx, x, dim);
    if (map == TN_LOCAL_LINEAR) {
        tn_tensor *both[2] = {tn_sub(ctx, tn_full(ctx, 1, TNI_DIMS(1), 1), x), x};
        return tn_stack(ctx, 2, both, -1);
    }
    x = tn_sub(ctx, x, tn_full(ctx, 1, TNI_DIMS(1), 0.5));
    if (!x || !(x = tni_local_powers(ctx, x, TNI_LOCAL_TERMS))) return NULL;
    return tn_matmul(ctx, x, tni_local_cosine(ctx));
}

#endif /* TN_NO_MPS */
