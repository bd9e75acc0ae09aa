#include "core/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- the optimisers' kernels -------------------------------- >>op-optim
   Scalars: learning rate, updates done, norm so far, clip factor, skip, gradient norm, Muon's momentum, the step's
   number. They are on the device, so that no step waits for the host and a graph can replay a step. The norm is added up
   by hypot, which does not overflow where a square would. A fault, such as an invalid id or a gradient that is not finite,
   makes the whole step a skip. An update is also where a gradient is used up: the optimiser marks it (TNI_ZEROED), so no
   kernel writes the zeros that it then counts as. It is among the outputs because a backend may use its memory. */

TNI_FN void TNI_T(sumsq)(const tn_call *c)
{
    const TNI_REAL *g = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *s = (TNI_REAL *)c->out[0].data;
    int64_t         n = c->in[0].shape[0];
    double          sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    s[TNI_SIZE] = (TNI_REAL)hypot((double)s[TNI_SIZE], sqrt(sum));
    if (!(sum <= 1.7976931348623157e308)) tni_fault(&c->out[1], 2, c->i[0], 0, (int32_t)s[TNI_TAKEN]);
}

TNI_FN void TNI_T(step_begin)(const tn_call *c)
{
    TNI_REAL *s = (TNI_REAL *)c->out[0].data;
    double    norm = (double)s[TNI_SIZE];
    bool      skip = !(norm <= 1.7976931348623157e308);
    if (skip) tni_fault(&c->out[1], 2, -1, 0, (int32_t)s[TNI_TAKEN]);     /* each gradient is finite, their norm is not */
    skip = *(const int32_t *)c->out[1].data != 0;
    s[TNI_NORM] = (TNI_REAL)norm;
    s[TNI_SKIP] = (TNI_REAL)skip;
    s[TNI_FACTOR] = (TNI_REAL)(c->f[0] > 0 && norm > c->f[0] ? c->f[0] / norm : 1);
    s[TNI_STEP] = (TNI_REAL)((double)s[TNI_STEP] + (skip ? 0 : 1));
    s[TNI_SIZE] = 0;
}

/* Output k, if it is there: p rounded to BF16, or p itself where the caller rounds. */
static void TNI_T(shadow)(const tn_call *c, int k)
{
    const TNI_REAL *p = (const TNI_REAL *)c->out[0].data;
    int64_t         n = c->out[0].shape[0];
    if (k >= c->n_out || !c->out[k].data) return;
    for (int64_t i = 0; i < n; i++)
        if (c->out[k].dtype == TN_BF16) ((uint16_t *)c->out[k].data)[i] = tni_bf16_bits((float)p[i]);
        else ((TNI_REAL *)c->out[k].data)[i] = p[i];
}

/* m = b1 m + (1-b1) g    v = b2 v + (1-b2) g^2    p -= lr (wd p + m^/(sqrt(v^)+eps)),  m^ = m/(1-b1^t)
   |g| <= 2^63 in F32. Loshchilov & Hutter 2019, algorithm 2 */
TNI_FN void TNI_T(adamw)(const tn_call *c)
{
    const TNI_REAL *s = (const TNI_REAL *)c->in[0].data, *g = (const TNI_REAL *)c->out[1].data;
    TNI_REAL *p = (TNI_REAL *)c->out[0].data, *m = (TNI_REAL *)c->out[2].data, *v = (TNI_REAL *)c->out[3].data;
    int64_t   i, n = c->out[0].shape[0];
    double    b1 = c->f[0], b2 = c->f[1], eps = c->f[2], lr = (double)s[TNI_LR] * c->f[4], t = (double)s[TNI_STEP] - c->f[5];
    double    c1 = 1 / (1 - pow(b1, t)), c2 = 1 / (1 - pow(b2, t));
    double    most = sizeof(TNI_REAL) == sizeof(float) ? (double)TNI_ADAMW_LARGEST : HUGE_VAL;
    for (i = 0; s[TNI_SKIP] == 0 && i < n; i++) {
        double d = (double)g[i] * (double)s[TNI_FACTOR];
        d = d > most ? most : d < -most ? -most : d;
        double mi = b1 * (double)m[i] + (1 - b1) * d, vi = b2 * (double)v[i] + (1 - b2) * d * d;
        m[i] = (TNI_REAL)mi;
        v[i] = (TNI_REAL)vi;
        p[i] = (TNI_REAL)((double)p[i] - lr * (c->f[3] * (double)p[i] + mi * c1 / (sqrt(vi * c2) + eps)));
    }
    TNI_T(shadow)(c, 4);
}

/* m = mu m + g    p -= lr (wd p + m), or with Nesterov's step  p -= lr (wd p + g + mu m)
   Polyak 1964; Sutskever et al. 2013 */
TNI_FN void TNI_T(sgd)(const tn_call *c)
{
    const TNI_REAL *s = (const TNI_REAL *)c->in[0].data, *g = (const TNI_REAL *)c->out[1].data;
    TNI_REAL *p = (TNI_REAL *)c->out[0].data, *m = (TNI_REAL *)c->out[2].data;
    int64_t   n = c->out[0].shape[0];
    double    mu = c->f[0], lr = (double)s[TNI_LR] * c->f[4];
    for (int64_t i = 0; s[TNI_SKIP] == 0 && i < n; i++) {
        double d = (double)g[i] * (double)s[TNI_FACTOR], mi = m ? mu * (double)m[i] + d : d;
        if (m) m[i] = (TNI_REAL)mi;
        if (c->f[1] != 0) mi = d + mu * mi;
        p[i] = (TNI_REAL)((double)p[i] - lr * (c->f[3] * (double)p[i] + mi));
    }
    TNI_T(shadow)(c, 3);
}

/* m = mu m + (1-mu) g    x = m, or with Nesterov's step  x = mu m + (1-mu) g;    each matrix of x over its Frobenius norm.
   The matrix products that follow do not check whether the step is skipped; in that case x is zero. */
TNI_FN void TNI_T(muon_begin)(const tn_call *c)
{
    const TNI_REAL *s = (const TNI_REAL *)c->in[0].data, *g = (const TNI_REAL *)c->out[1].data;
    TNI_REAL *x = (TNI_REAL *)c->out[0].data, *m = (TNI_REAL *)c->out[2].data;
    int64_t   n = c->out[0].shape[1];
    double    mu = c->f[0] < 0 ? (double)s[TNI_MOMENTUM] : c->f[0];
    for (int64_t b = 0; b < c->out[0].shape[0]; b++, x += n, g += n, m += n) {
        double squares = 0;
        for (int64_t i = 0; s[TNI_SKIP] == 0 && i < n; i++) {
            double d = (1 - mu) * ((double)g[i] * (double)s[TNI_FACTOR]), mi = mu * (double)m[i] + d;
            m[i] = (TNI_REAL)mi;
            if (c->f[1] != 0) mi = mu * mi + d;
            x[i] = (TNI_REAL)mi;
            squares += mi * mi;
        }
        if (s[TNI_SKIP] != 0) memset(x, 0, sizeof *x * (size_t)n);
        for (int64_t i = 0; i < n; i++) x[i] = (TNI_REAL)((double)x[i] * tni_muon_unit(squares));
    }
}

/* p -= lr (wd p + scale x) */
TNI_FN void TNI_T(muon_end)(const tn_call *c)
{
    const TNI_REAL *s = (const TNI_REAL *)c->in[0].data, *x = (const TNI_REAL *)c->in[1].data;
    TNI_REAL *p = (TNI_REAL *)c->out[0].data;
    int64_t   n = c->out[0].shape[0];
    double    lr = (double)s[TNI_LR] * c->f[4];
    for (int64_t i = 0; s[TNI_SKIP] == 0 && i < n; i++)
        p[i] = (TNI_REAL)((double)p[i] - lr * (c->f[3] * (double)p[i] + c->f[0] * (double)x[i]));
    TNI_T(shadow)(c, 1);
}

#define TNI_AGAIN "ops/optim.c"
#include "ops/again.h"
