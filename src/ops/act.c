#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- activation ------------------------------------------ >>op-act
   relu max(x,0)   relu2 max(x,0)^2   gelu x Phi(x)   swish x s(x)   sigmoid s(x) = 1/(1+e^-x)
   Phi' = phi: gelu' = Phi + x phi;  s' = s(1-s): swish' = s + x s(1-s)
   abs |x|   round: to the nearest integer, with slope 1 (the straight-through estimator, Bengio et al. 2013)
   exp e^x   tanh: tanh' = 1 - tanh^2   sqrt: sqrt' = 1/(2 sqrt)   log: log' = 1/x
   GELU: Hendrycks & Gimpel 2016   swish: Ramachandran et al. 2017   ReLU squared: So et al. 2021 */
#ifdef TNI_FIRST                        /* needed by both precisions: read with the first */
static double tni_act_value(int64_t kind, double x)
{
    switch (kind) {
    case TN_ACT_RELU:    return x > 0 || x != x ? x : 0;
    case TN_ACT_RELU2:   return x > 0 || x != x ? x * x : 0;
    case TN_ACT_GELU:    return 0.5 * x * erfc(-0.7071067811865476 * x);
    case TN_ACT_SWISH:   return x / (1 + exp(-x));
    case TN_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case TN_ACT_ABS:     return fabs(x);
    case TN_ACT_ROUND:   return rint(x);
    case TN_ACT_EXP:     return exp(x);
    case TN_ACT_TANH:    return tanh(x);
    case TN_ACT_SQRT:    return sqrt(x);
    case TN_ACT_LOG:     return log(x);
    default:             return x;
    }
}

static double tni_act_slope(int64_t kind, double x)
{
    double s = 1 / (1 + exp(-x));
    switch (kind) {
    case TN_ACT_RELU:    return x > 0 ? 1 : x != x ? x : 0;
    case TN_ACT_RELU2:   return x > 0 ? 2 * x : x != x ? x : 0;
    case TN_ACT_GELU:    return 0.5 * erfc(-0.7071067811865476 * x) + x * 0.3989422804014327 * exp(-0.5 * x * x);
    case TN_ACT_SWISH:   return s + x * s * (1 - s);
    case TN_ACT_SIGMOID: return s * (1 - s);
    case TN_ACT_ABS:     return x > 0 ? 1 : x < 0 ? -1 : x;      /* x: 0, or NaN */
    case TN_ACT_EXP:     return exp(x);
    case TN_ACT_TANH:    return (1 - tanh(x)) * (1 + tanh(x));
    case TN_ACT_SQRT:    return 0.5 / sqrt(x);
    case TN_ACT_LOG:     return 1 / x;
    default:             return 1;
    }
}
#endif

TNI_FN void TNI_T(act)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         n = c->out[0].shape[0];
    for (int64_t i = 0; i < n; i++) y[i] = (TNI_REAL)tni_act_value(c->i[0], (double)x[i]);
}

TNI_FN void TNI_T(act_backward)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data;
    int64_t         n = c->out[0].shape[0];
    for (int64_t i = 0; i < n; i++) {
        double v = (double)dy[i] * tni_act_slope(c->i[0], (double)x[i]);
        dx[i] = (TNI_REAL)(c->accumulate ? (double)dx[i] + v : v);
    }
}

#ifdef TNI_ONCE
static void tni_act_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call c = tni_call(TN_KERNEL_ACT_BACKWARD, "ff", n->in[0], n->out->grad);
    c.i[0] = n->i[0];
    tni_run_grad(ctx, &c, n->in[0], 'f');
}

static bool tni_act_known(tn_ctx *ctx, const char *op, tn_act kind)
{
    return tni_within(ctx, op, "the activation", (int)kind, 0, TN_ACT_LOG);
}

static tn_tensor *tni_activation(tn_ctx *ctx, const char *op, const char *what, tn_tensor *x, tn_act kind)
{
    if (!(x = tni_contiguous(ctx, x, op, what)) || !tni_act_known(ctx, op, kind)) return NULL;
    tn_tensor *y = tni_made(ctx, x->rank, x->shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_ACT, "f:f", x, y);
    c.i[0] = kind;
    return tni_recorded(ctx, &c, tni_act_backward, y, x, NULL, NULL, NULL);
}

tn_tensor *tn_activation(tn_ctx *ctx, tn_tensor *x, tn_act kind)
{
    return tni_activation(ctx, "activation", "x", x, kind);
}

tn_tensor *tn_sqrt(tn_ctx *ctx, tn_tensor *a) { return tni_activation(ctx, "sqrt", "a", a, TN_ACT_SQRT); }
tn_tensor *tn_exp(tn_ctx *ctx, tn_tensor *a)  { return tni_activation(ctx, "exp", "a", a, TN_ACT_EXP); }
tn_tensor *tn_log(tn_ctx *ctx, tn_tensor *a)  { return tni_activation(ctx, "log", "a", a, TN_ACT_LOG); }
#endif

/* ---- glu -------------------------------------------------- >>op-glu
   y = act(a) * b,  x = [a b]       da += dy * b * act'(a)      db += dy * act(a)
   act = none: bilinear; sigmoid: GLU (Dauphin et al. 2017); relu, gelu, swish: Shazeer 2020 */
TNI_FN void TNI_T(glu)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         h = c->out[0].shape[1];
    for (int64_t r = 0; r < c->out[0].shape[0]; r++, x += 2 * h, y += h)
        for (int64_t j = 0; j < h; j++) y[j] = (TNI_REAL)(tni_act_value(c->i[0], (double)x[j]) * (double)x[h + j]);
}

TNI_FN void TNI_T(glu_backward)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data;
    int64_t         h = c->in[1].shape[1];
    for (int64_t r = 0; r < c->in[1].shape[0]; r++, x += 2 * h, dx += 2 * h, dy += h)
        for (int64_t j = 0; j < h; j++) {
            double da = (double)dy[j] * (double)x[h + j] * tni_act_slope(c->i[0], (double)x[j]);
            double db = (double)dy[j] * tni_act_value(c->i[0], (double)x[j]);
            dx[j] = (TNI_REAL)(c->accumulate ? (double)dx[j] + da : da);
            dx[h + j] = (TNI_REAL)(c->accumulate ? (double)dx[h + j] + db : db);
        }
}

#ifdef TNI_ONCE
/* dx of an op on rows whose kernel needs x, dy and the number that the node keeps. */
static void tni_rows_backward(tn_ctx *ctx, const tni_node *n, tn_kernel kernel)
{
    tn_call c = tni_call(kernel, "rr", n->in[0], n->out->grad);
    c.i[0] = n->i[0];
    tni_run_grad(ctx, &c, n->in[0], 'r');
}

static void tni_glu_backward(tn_ctx *ctx, const tni_node *n) { tni_rows_backward(ctx, n, TN_KERNEL_GLU_BACKWARD); }

tn_tensor *tn_glu(tn_ctx *ctx, tn_tensor *x, tn_act kind)
{
    int64_t shape[TN_MAX_RANK];
    tn_call c;
    if (!(x = tni_contiguous(ctx, x, "glu", "x")) || !tni_act_known(ctx, "glu", kind)) return NULL;
    if (x->rank < 1 || x->shape[x->rank - 1] % 2 != 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "glu: x is %s, expected an even last extent", TNI_SHAPE(x)), (tn_tensor *)NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] /= 2;
    tn_tensor *y = tni_made(ctx, x->rank, shape);
    if (!y) return NULL;
    tni_call_begin(&c, TN_KERNEL_GLU);
    tni_in_rows(&c, x);
    tni_out_rows(&c, y);
    c.i[0] = kind;
    return tni_recorded(ctx, &c, tni_glu_backward, y, x, NULL, NULL, NULL);
}
#endif

/* ---- prod -------------------------------------------------- >>op-prod
   y = x_0 * ... * x_(k-1),  x = [x_0 .. x_(k-1)]       dx_e += dy * product of all factors except x_e
   The other factors are multiplied instead of dividing y by x_e, so that zeros are exact. */
TNI_FN void TNI_T(prod)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         h = c->out[0].shape[1], k = c->i[0];
    for (int64_t r = 0; r < c->out[0].shape[0]; r++, x += k * h, y += h)
        for (int64_t j = 0; j < h; j++) {
            double v = 1;
            for (int64_t e = 0; e < k; e++) v *= (double)x[e * h + j];
            y[j] = (TNI_REAL)v;
        }
}

TNI_FN void TNI_T(prod_backward)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data;
    int64_t         h = c->in[1].shape[1], k = c->i[0];
    for (int64_t r = 0; r < c->in[1].shape[0]; r++, x += k * h, dx += k * h, dy += h)
        for (int64_t e = 0; e < k; e++)
            for (int64_t j = 0; j < h; j++) {
                TNI_REAL *to = dx + e * h + j;
                double    v = (double)dy[j];
                for (int64_t f = 0; f < k; f++) if (f != e) v *= (double)x[f * h + j];
                *to = (TNI_REAL)(c->accumulate ? (double)*to + v : v);
            }
}

#ifdef TNI_ONCE
static void tni_prod_backward(tn_ctx *ctx, const tni_node *n) { tni_rows_backward(ctx, n, TN_KERNEL_PROD_BACKWARD); }

tn_tensor *tn_prod_parts(tn_ctx *ctx, tn_tensor *x, int64_t k)
{
    int64_t shape[TN_MAX_RANK];
    if (!(x = tni_contiguous(ctx, x, "prod_parts", "x"))) return NULL;
    if (k < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "prod_parts: k is %lld, expected at least 1", (long long)k), (tn_tensor *)NULL;
    if (x->rank < 1 || x->shape[x->rank - 1] % k != 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "prod_parts: x is %s, expected a last extent that is a multiple of k = %lld",
                        TNI_SHAPE(x), (long long)k), (tn_tensor *)NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] /= k;
    tn_tensor *y = tni_made(ctx, x->rank, shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_PROD, "r:r", x, y);
    c.i[0] = k;
    return tni_recorded(ctx, &c, tni_prod_backward, y, x, NULL, NULL, NULL);
}
#endif

#ifdef TNI_FIRST
/* The products of a call of GEMM, and where product `index` begins in an operand. C: the result. */
TNI_FN int64_t tni_gemm_batch(const tn_view *C)
{
    int64_t count = 1;
    for (int i = 0; i < C->rank - 2; i++) count *= C->shape[i];
    return count;
}

TNI_FN int64_t tni_gemm_offset(const tn_view *C, const tn_view *v, int64_t index)
{
    int64_t offset = 0;
    if (C->rank == 3) return index * v->strides[0];
    for (int i = C->rank - 3; i >= 0; i--) {
        offset += index % C->shape[i] * v->strides[i];
        index /= C->shape[i];
    }
    return offset;
}
#endif

#define TNI_AGAIN "ops/act.c"
#include "ops/again.h"
