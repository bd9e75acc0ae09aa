#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

#ifndef TN_NO_SEQUENCES
/* ---- chain --------------------------------------------------- >>op-chain
   P_j = P_(j-1) M_j / v_j,  v_j = |P_(j-1) M_j|_F,  P_(-1) = I.    y = P_(n-1),  s = sum_j log v_j
   dM_j = e^(l + g) P_(j-1)^T G_j      l = log of the divisors of P_(j-1), g = log of those of G_j
   G_(n-1) = (dy - <y,dy> y + ds y),  g = -s;   G_(j-1) = G_j M_j^T / its norm
   saves P [b,n,d,d] and v [b,n] while recording. All v except the last are arbitrary; the fast kernel uses 1 where it can.
   l + g is carried as one number, which is -log v_(n-1) at first.
   All results have the context's dtype, even with BF16 activations: an error of s would be a factor, and P is used again. */

/* Divides x by its Frobenius norm, which it returns; zeros stay zeros. It is divided by the largest element first, because
   squares could overflow. */
TNI_FN double TNI_T(chain_normalise)(TNI_REAL *x, int64_t n)
{
    double most = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs((double)x[i]);
        if (!(size <= most)) most = size;                  /* keeps a NaN */
    }
    if (most == 0) return 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] / most * ((double)x[i] / most);
    double norm = (double)(TNI_REAL)(most * sqrt(sum));
    for (int64_t i = 0; i < n; i++) x[i] = (TNI_REAL)((double)x[i] / norm);
    return norm;
}

/* out [rows,columns] = a b, or a^T b, or a b^T, summed over `depth` */
TNI_FN void TNI_T(chain_product)(const TNI_REAL *a, bool ta, const TNI_REAL *b, bool tb, TNI_REAL *out, int64_t rows,
                                 int64_t depth, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < depth; k++)
                sum += (double)a[ta ? k * rows + i : i * depth + k] * (double)b[tb ? j * depth + k : k * columns + j];
            out[i * columns + j] = (TNI_REAL)sum;
        }
}

/* G_(n-1), the gradient of the last product. */
static void TNI_T(chain_seed)(TNI_REAL *g, const TNI_REAL *y, const TNI_REAL *dout, int64_t n)
{
    double dot = 0;
    for (int64_t i = 0; i < n; i++) dot += (double)y[i] * (double)dout[i];
    for (int64_t i = 0; i < n; i++) g[i] = (TNI_REAL)((double)dout[i] + ((double)dout[n] - dot) * (double)y[i]);
}

TNI_FN void TNI_T(chain)(const tn_call *c)
{
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data, *p = (TNI_REAL *)c->out[1].data, *v = (TNI_REAL *)c->out[2].data;
    TNI_REAL       *work = (TNI_REAL *)c->out[3].data;
    int64_t         n = c->in[0].shape[1], d = c->in[0].shape[2], dd = d * d;
    for (int64_t b = 0; b < c->in[0].shape[0]; b++, y += dd + 1) {
        double log_norm = 0;
        for (int64_t j = 0; j < n; j++, m += dd) {
            TNI_REAL *to = p ? p + (b * n + j) * dd : work + j % 2 * dd;
            if (j == 0) memcpy(to, m, sizeof *to * (size_t)dd);
            else TNI_T(chain_product)(p ? to - dd : work + (j + 1) % 2 * dd, false, m, false, to, d, d, d);
            double norm = TNI_T(chain_normalise)(to, dd);
            if (v) v[b * n + j] = (TNI_REAL)norm;
            log_norm += log(norm);
            if (j == n - 1) memcpy(y, to, sizeof *y * (size_t)dd);
        }
        y[dd] = (TNI_REAL)log_norm;
    }
}

TNI_FN void TNI_T(chain_backward)(const tn_call *c)
{
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data, *p = (const TNI_REAL *)c->in[1].data,
                   *v = (const TNI_REAL *)c->in[2].data;
    const TNI_REAL *dout = (const TNI_REAL *)c->in[3].data;
    TNI_REAL       *dm = (TNI_REAL *)c->out[0].data, *work = (TNI_REAL *)c->out[1].data;
    int64_t         n = c->in[0].shape[1], d = c->in[0].shape[2], dd = d * d;
    for (int64_t b = 0; b < c->in[0].shape[0]; b++, dout += dd + 1) {
        TNI_REAL *g = work, *next = work + dd, *product = work + 2 * dd;
        int64_t   last = (b + 1) * n - 1;
        double    scale = -log((double)v[last]);
        TNI_T(chain_seed)(g, p + last * dd, dout, dd);
        for (int64_t j = last; j >= b * n; j--) {
            double factor = v[last] == 0 ? 0 : exp(scale);
            if (j > b * n) TNI_T(chain_product)(p + (j - 1) * dd, true, g, false, product, d, d, d);
            else           memcpy(product, g, sizeof *g * (size_t)dd);
            for (int64_t i = 0; i < dd; i++) {
                double gradient = factor == 0 ? 0 : factor * (double)product[i];
                dm[j * dd + i] = (TNI_REAL)(c->accumulate ? (double)dm[j * dd + i] + gradient : gradient);
            }
            if (j == b * n) break;
            TNI_T(chain_product)(g, false, m + j * dd, true, next, d, d, d);
            double norm = TNI_T(chain_normalise)(next, dd);
            if (norm != 0) scale += log(norm);
            scale -= log((double)v[j - 1]);
            TNI_REAL *swap = g; g = next; next = swap;
        }
    }
}

#ifdef TNI_ONCE
/* A workspace of `count` matrices for each chain, because kernels do not allocate. */
static tn_tensor *tni_chain_work(tn_tensor *m, int64_t count)
{
    return tn_tensor_3d(m->ctx, TN_REAL, m->shape[0], count, m->shape[2] * m->shape[2]);
}

static void tni_chain_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_tensor *work = tni_chain_work(n->in[0], 4);
    if (!work) return;
    tn_call c = tni_call(TN_KERNEL_CHAIN_BACKWARD, "tttt:tt", n->in[0], n->saved[0], n->saved[1], n->out->grad,
                         (tn_tensor *)NULL, work);
    tni_run_grad(ctx, &c, n->in[0], 't');
}

tn_tensor *tn_chain(tn_ctx *ctx, tn_tensor *m, tn_tensor **log_norm)
{
    tn_tensor *out, *p = NULL, *v = NULL, *work, *sum;
    if (log_norm) *log_norm = NULL;
    if (!(m = tni_contiguous(ctx, m, "chain", "m"))) return NULL;
    if (m->rank != 4 || m->shape[2] != m->shape[3] || m->shape[1] < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "chain: m is %s, expected [b,n,d,d] with n >= 1", TNI_SHAPE(m)), (tn_tensor *)NULL;
    int64_t d = m->shape[2];
    if (!(out = tn_tensor_2d(ctx, TN_REAL, m->shape[0], d * d + 1)) || !(work = tni_chain_work(m, 2))) return NULL;
    if (tni_recording(ctx) && tni_wants_grad(m)
        && (!(p = tn_tensor_nd(ctx, TN_REAL, 4, m->shape)) || !(v = tn_tensor_2d(ctx, TN_REAL, m->shape[0], m->shape[1]))))
        return NULL;
    tn_call c = tni_call(TN_KERNEL_CHAIN, "t:tttt", m, out, p, v, work);
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    tni_node *node = tni_note(ctx, tni_chain_backward, out, m, NULL, NULL);
    if (node) { node->saved[0] = p; node->saved[1] = v; }
    /* Both results are copied from one tensor, in which the backward pass has their gradients together. */
    tn_tensor *y = tn_slice(out, 1, 0, d * d);
    if (y) { y->rank = 3; y->shape[1] = y->shape[2] = d; y->strides[1] = d; y->strides[2] = 1; }
    if (!y || !(y = tn_copy(ctx, y)) || !log_norm || !(sum = tn_slice(out, 1, d * d, d * d + 1))) return y;
    sum->rank = 1;
    return (*log_norm = tn_copy(ctx, sum)) ? y : NULL;
}
#endif
#endif /* TN_NO_SEQUENCES */

#define TNI_AGAIN "ops/chain.c"
#include "ops/again.h"
