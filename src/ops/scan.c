#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

#ifndef TN_NO_SEQUENCES
/* ---- scan ---------------------------------------------------- >>op-scan
   The states x_0, x_1, ... of a chain, each divided by its norm:
     x_0 = the boundary v, or the first matrix;   x_k = y_(k-1) M, or M y_(k-1) with reverse
     r_k = |x_k|_F,   y_k = x_k / r_k,   log_k = ln r_0 + ... + ln r_k
   Backward, from the last state to the first, with the carry C_k (0 at the last one) and L_k = dlog_k + dlog_(k+1) + ...:
     Y = dy_k + C_k,   z_k = (Y - <Y,y_k> y_k + L_k y_k) / r_k,   dv = z_0
     dM += y_(k-1)^T z_k,  C_(k-1) = z_k M^T;   with reverse  dM += z_k y_(k-1)^T,  C_(k-1) = M^T z_k
   Where r_k is 0, so are z_k and L_k. States are stored at their place in the chain, k or, with reverse, N-1-k: [b,N,size].
   N = n and size = d d if it begins with a matrix, N = n+1 and size = d if it begins with v. tn_scan_states has the matrices
     M[e,f] = sum_s core[e,s,f] phi[s]    dphi[s] = sum_ef y[e] core[e,s,f] z[f]    dcore[e,s,f] = sum_b y[e] phi[s] z[f]
   where e and f change places with reverse. The first kernel gives all z; from them and the y another one
   computes dcores.
   The results are views of one tensor, y before log, in which the backward pass has their gradients together. They have the
   context's dtype, for the reason given at >>op-chain. saves r [b,N]
   Where only the last state is wanted (i1), y is [b,1,d] and log [b,1], and so are their gradients. What the backward pass
   reads of all states and of phi, the kernel keeps in an order of its own, and one kernel gives dphi and dcores. */

#ifdef TNI_FIRST

TNI_FN tni_prefixes tni_prefixes_of(const tn_call *c, int64_t n, int64_t d, const tn_view *y)
{
    tni_prefixes s;
    s.batch = y->shape[0];
    s.n = n;
    s.d = d;
    s.states = y->shape[1];
    s.size = y->shape[2];
    s.open = s.states > n;
    s.reverse = c->i[0] != 0;
    return s;
}

#endif

/* Normalises a state and stores its norm and the logarithm of its scale. */
static void TNI_T(scan_store)(const tn_call *c, TNI_REAL *x, int64_t size, int64_t at, double *log_scale)
{
    double norm = TNI_T(chain_normalise)(x, size);
    *log_scale += log(norm);
    ((TNI_REAL *)c->out[1].data)[at] = (TNI_REAL)*log_scale;
    if (c->out[2].data) ((TNI_REAL *)c->out[2].data)[at] = (TNI_REAL)norm;
}

TNI_FN void TNI_T(scan)(const tn_call *c)
{
    const tni_prefixes s = tni_prefixes_of(c, c->in[0].shape[1], c->in[0].shape[2], &c->out[0]);
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data, *v = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    const int64_t   d = s.d, h = s.open ? 1 : d;
    for (int64_t b = 0; b < s.batch; b++) {
        const TNI_REAL *from = s.open ? v + (c->in[1].shape[0] == 1 ? 0 : b * d) : NULL;
        double          log_scale = 0;
        for (int64_t k = 0; k < s.states; k++) {
            const int64_t   at = tni_prefix_place(&s, b, k);
            const TNI_REAL *site = s.open && k == 0 ? from : m + tni_prefix_site(&s, b, k) * d * d;
            TNI_REAL       *to = y + at * s.size;
            if (k == 0) memcpy(to, site, sizeof *to * (size_t)s.size);
            else if (s.reverse) TNI_T(chain_product)(site, false, from, false, to, d, d, h);
            else                TNI_T(chain_product)(from, false, site, false, to, h, d, d);
            TNI_T(scan_store)(c, to, s.size, at, &log_scale);
            from = to;
        }
    }
}

/* z_k from its carry, in place. *later is L_(k+1), and becomes L_k. */
static void TNI_T(scan_adjoint)(TNI_REAL *z, const TNI_REAL *y, const TNI_REAL *dy, double norm, double dlog, double *later,
                                int64_t n)
{
    double dot = 0;
    *later = norm == 0 ? 0 : *later + dlog;
    for (int64_t i = 0; i < n; i++) dot += ((double)dy[i] + (double)z[i]) * (double)y[i];
    for (int64_t i = 0; i < n; i++)
        z[i] = (TNI_REAL)(norm == 0 ? 0 : ((double)dy[i] + (double)z[i] + (*later - dot) * (double)y[i]) / norm);
}

TNI_FN void TNI_T(scan_backward)(const tn_call *c)
{
    const tni_prefixes s = tni_prefixes_of(c, c->in[0].shape[1], c->in[0].shape[2], &c->in[1]);
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data, *y = (const TNI_REAL *)c->in[1].data;
    const TNI_REAL *r = (const TNI_REAL *)c->in[2].data, *dy = (const TNI_REAL *)c->in[3].data;
    const TNI_REAL *dlog = (const TNI_REAL *)c->in[4].data;
    TNI_REAL       *dm = (TNI_REAL *)c->out[0].data, *dv = (TNI_REAL *)c->out[1].data, *work = (TNI_REAL *)c->out[2].data;
    const int64_t   d = s.d, h = s.open ? 1 : d;
    for (int64_t b = 0; b < s.batch; b++) {
        TNI_REAL *z = work, *next = work + s.size;
        double    later = 0;
        memset(z, 0, sizeof *z * (size_t)s.size);
        for (int64_t k = s.states - 1; k >= 0; k--) {
            const int64_t   at = tni_prefix_place(&s, b, k), site = tni_prefix_site(&s, b, k) * d * d;
            const TNI_REAL *before = k > 0 ? y + tni_prefix_place(&s, b, k - 1) * s.size : NULL;
            TNI_T(scan_adjoint)(z, y + at * s.size, dy + at * s.size, (double)r[at], (double)dlog[at], &later, s.size);
            if (k == 0 && s.open) {
                if (dv) memcpy(dv + b * d, z, sizeof *z * (size_t)d);
                break;
            }
            for (int64_t e = 0; dm && e < d; e++)
                for (int64_t f = 0; f < d; f++) {
                    double gradient = before ? 0 : (double)z[e * d + f];
                    for (int64_t i = 0; before && i < h; i++)
                        gradient += s.reverse ? (double)z[e * h + i] * (double)before[f * h + i]
                                              : (double)before[i * d + e] * (double)z[i * d + f];
                    dm[site + e * d + f] = (TNI_REAL)(c->accumulate ? (double)dm[site + e * d + f] + gradient : gradient);
                }
            if (k == 0) break;
            if (s.reverse) TNI_T(chain_product)(m + site, true, z, false, next, d, d, h);
            else           TNI_T(chain_product)(z, false, m + site, true, next, h, d, d);
            TNI_REAL *swap = z; z = next; next = swap;
        }
    }
}

/* The core of the site that leads to state k of tn_scan_states. */
static const TNI_REAL *TNI_T(scan_core)(const tn_view *cores, const tni_prefixes *s, int64_t k)
{
    const int64_t site = cores->shape[0] == 1 ? 0 : tni_prefix_site(s, 0, k);
    return (const TNI_REAL *)cores->data + site * s->d * s->d * cores->shape[2];
}

TNI_FN void TNI_T(scan_states)(const tn_call *c)
{
    const int64_t   n = c->in[2].shape[1], d = c->in[1].shape[1], S = c->in[1].shape[2];
    const tni_prefixes s = tni_prefixes_of(c, n, d, &c->out[0]);
    const TNI_REAL *v = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    const int64_t   step_e = s.reverse ? 1 : S * d, step_f = s.reverse ? S * d : 1;
    for (int64_t b = 0; b < s.batch; b++) {
        const TNI_REAL *from = v + (c->in[0].shape[0] == 1 ? 0 : b * d);
        double          log_scale = 0;
        for (int64_t k = 0; k < s.states; k++) {
            const int64_t at = tni_prefix_place(&s, b, k);
            TNI_REAL     *to = y + at * d;
            if (k == 0) memcpy(to, from, sizeof *to * (size_t)d);
            else {
                const TNI_REAL *core = TNI_T(scan_core)(&c->in[1], &s, k);
                const TNI_REAL *phi = (const TNI_REAL *)c->in[2].data + tni_prefix_site(&s, b, k) * S;
                for (int64_t f = 0; f < d; f++) {
                    double sum = 0;
                    for (int64_t e = 0; e < d; e++)
                        for (int64_t i = 0; i < S; i++)
                            sum += (double)from[e] * (double)phi[i] * (double)core[e * step_e + i * d + f * step_f];
                    to[f] = (TNI_REAL)sum;
                }
            }
            TNI_T(scan_store)(c, to, d, at, &log_scale);
            from = to;
        }
    }
}

/* dcores of tn_scan_states: the states before each core times phi, times the z after it, summed over the chains, and over
   the sites if all have the same core. With reverse, states and z exchange their roles. */
TNI_FN void TNI_T(scan_cores)(const tn_call *c)
{
    const int64_t   b = c->in[1].shape[0], n = c->in[1].shape[1], S = c->in[1].shape[2], d = c->in[0].shape[2];
    const TNI_REAL *left = (const TNI_REAL *)c->in[c->i[0] ? 2 : 0].data, *phi = (const TNI_REAL *)c->in[1].data;
    const TNI_REAL *right = (const TNI_REAL *)c->in[c->i[0] ? 0 : 2].data;
    const bool      uniform = c->out[0].shape[0] == 1;
    TNI_REAL       *to = (TNI_REAL *)c->out[0].data;
    for (int64_t core = 0; core < (uniform ? 1 : n); core++)
        for (int64_t e = 0; e < d; e++)
            for (int64_t i = 0; i < S; i++)
                for (int64_t f = 0; f < d; f++, to++) {
                    double sum = c->accumulate ? (double)*to : 0;
                    for (int64_t k = 0; k < b; k++)
                        for (int64_t j = uniform ? 0 : core; j < (uniform ? n : core + 1); j++)
                            sum += (double)left[(k * (n + 1) + j) * d + e] * (double)phi[(k * n + j) * S + i]
                                   * (double)right[(k * (n + 1) + j + 1) * d + f];
                    *to = (TNI_REAL)sum;
                }
}

TNI_FN void TNI_T(scan_states_backward)(const tn_call *c)
{
    const int64_t   n = c->in[1].shape[1], d = c->in[0].shape[1], S = c->in[0].shape[2];
    const tni_prefixes s = tni_prefixes_of(c, n, d, &c->in[2]);
    const TNI_REAL *y = (const TNI_REAL *)c->in[2].data, *r = (const TNI_REAL *)c->in[3].data;
    const TNI_REAL *dy = (const TNI_REAL *)c->in[4].data, *dlog = (const TNI_REAL *)c->in[5].data;
    TNI_REAL       *dphi = (TNI_REAL *)c->out[0].data, *z = (TNI_REAL *)c->out[1].data;
    const int64_t   step_e = s.reverse ? 1 : S * d, step_f = s.reverse ? S * d : 1;
    for (int64_t b = 0; b < s.batch; b++) {
        double later = 0;
        if (s.states > 0) memset(z + tni_prefix_place(&s, b, s.states - 1) * d, 0, sizeof *z * (size_t)d);
        for (int64_t k = s.states - 1; k >= 0; k--) {
            const int64_t   at = tni_prefix_place(&s, b, k), site = tni_prefix_site(&s, b, k) * S;
            const int64_t   before = tni_prefix_place(&s, b, k - 1) * d;
            const TNI_REAL *phi = (const TNI_REAL *)c->in[1].data + site, *zk = z + at * d;
            TNI_T(scan_adjoint)(z + at * d, y + at * d, dy + at * d, (double)r[at], (double)dlog[at], &later, d);
            if (k == 0) break;
            const TNI_REAL *core = TNI_T(scan_core)(&c->in[0], &s, k);
            for (int64_t i = 0; dphi && i < S; i++) {
                double sum = 0;
                for (int64_t e = 0; e < d; e++)
                    for (int64_t f = 0; f < d; f++)
                        sum += (double)y[before + e] * (double)core[e * step_e + i * d + f * step_f] * (double)zk[f];
                dphi[site + i] = (TNI_REAL)(c->accumulate ? (double)dphi[site + i] + sum : sum);
            }
            for (int64_t e = 0; e < d; e++) {
                double sum = 0;
                for (int64_t i = 0; i < S; i++)
                    for (int64_t f = 0; f < d; f++)
                        sum += (double)phi[i] * (double)core[e * step_e + i * d + f * step_f] * (double)zk[f];
                z[before + e] = (TNI_REAL)sum;
            }
        }
    }
}

#ifdef TNI_ONCE
/* The two parts of the result of a scan, or of its gradient: states [b,N,size] and logarithms [b,N]. */
static bool tni_scan_parts(tn_tensor *both, const int64_t *extent, tn_tensor **y, tn_tensor **logs)
{
    const int64_t count = extent[0] * extent[1] * extent[2];
    tn_tensor    *part = tn_slice(both, 0, 0, count);
    *logs = tn_slice(both, 0, count, count + extent[0] * extent[1]);
    *y = part ? tn_reshape(part, 3, extent) : NULL;
    *logs = *logs ? tn_reshape(*logs, 2, extent) : NULL;
    return *y && *logs;
}

static void tni_scan_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *v = n->in[0], *m = n->in[1], *y, *logs, *dy, *dlogs, *dv = NULL, *work;
    if (!tni_scan_parts(n->out, n->i, &y, &logs) || !tni_scan_parts(n->out->grad, n->i, &dy, &dlogs)) return;
    if (!(work = tn_tensor_3d(ctx, TN_REAL, n->i[0], 2, n->i[2]))) return;
    if (tni_wants_grad(v) && !(dv = tn_tensor_2d(ctx, TN_REAL, n->i[0], n->i[2]))) return;
    tn_tensor *dm = tni_grad(m, &add);
    tn_call    c = tni_call(TN_KERNEL_SCAN_BACKWARD, "ttttt:ttt", m, y, n->saved[0], dy, dlogs, dm, dv, work);
    c.i[0] = n->i[3];
    c.accumulate = add;
    if (tni_run(ctx, &c) == TN_OK && dv) tni_grad_sum(ctx, v, dv, 1);
}

static void tni_scan_states_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *y, *logs, *dy, *dlogs, *z;
    if (!tni_scan_parts(n->out, n->i, &y, &logs) || !tni_scan_parts(n->out->grad, n->i, &dy, &dlogs)) return;
    if (!(z = tn_tensor_3d(ctx, TN_REAL, n->i[0], n->i[1], n->i[2]))) return;
    tn_tensor *dphi = tni_grad(n->in[2], &add);
    tn_call    c = tni_call(TN_KERNEL_SCAN_STATES_BACKWARD, "tttttt:tt", n->in[1], n->in[2], y, n->saved[0], dy, dlogs, dphi,
                            z);
    c.i[0] = n->i[3];
    c.accumulate = add;
    if (tni_run(ctx, &c) != TN_OK) return;
    if (tni_wants_grad(n->in[0])) {
        tn_tensor *first = n->i[3] ? tn_slice(z, 1, n->i[1] - 1, n->i[1]) : tn_slice(z, 1, 0, 1);
        if (!first) return;
        first->rank = 2;
        first->shape[1] = n->i[2];
        first->strides[1] = 1;
        tni_grad_sum(ctx, n->in[0], first, 1);
    }
    c = tni_call(TN_KERNEL_SCAN_CORES, "ttt", y, n->in[2], z);
    c.i[0] = n->i[3];
    tni_run_grad(ctx, &c, n->in[1], 't');
}

static void tni_scan_last_backward(tn_ctx *ctx, const tni_node *n)
{
    bool          add, add_cores;
    const int64_t chains = TNI_SCAN_LANES * tni_ceil_div(n->i[0], TNI_SCAN_LANES);
    tn_tensor    *dy, *dlogs, *work;
    if (!tni_scan_parts(n->out->grad, n->i, &dy, &dlogs)
        || !(work = tn_tensor_3d(ctx, TN_REAL, chains, n->in[2]->shape[1] + 1, 2 * n->i[2] + 1))) return;
    tn_tensor *dphi = tni_grad(n->in[2], &add), *dcores = tni_grad(n->in[1], &add_cores);
    tn_call    c = tni_call(TN_KERNEL_SCAN_STATES_BACKWARD, "ttttt:ttt", n->in[1], n->in[2], n->saved[0], dy, dlogs, dphi,
                            dcores, work);
    c.i[0] = n->i[3];
    c.i[1] = 1;
    c.i[2] = add_cores;
    c.accumulate = add;
    tni_run(ctx, &c);
}

/* Makes the results, runs the call, whose inputs are given, and records it. r: what it keeps, if that is not the norms */
static tn_tensor *tni_scan_run(tn_ctx *ctx, tn_call *c, const int64_t *extent, bool reverse, tn_tensor *r,
                               tni_backward_fn backward, tn_tensor *v, tn_tensor *m, tn_tensor *phi, tn_tensor **logs)
{
    tn_tensor *both = tn_tensor_3d(ctx, TN_REAL, extent[0], extent[1], extent[2] + 1), *y, *of;
    if (!both) return NULL;
    both->rank = 1;
    both->shape[0] = extent[0] * extent[1] * (extent[2] + 1);
    both->strides[0] = 1;
    if (!tni_scan_parts(both, extent, &y, &of)) return NULL;
    c->i[1] = r != NULL;
    if (!r && tni_recording(ctx) && (tni_wants_grad(v) || tni_wants_grad(m) || tni_wants_grad(phi))
        && !(r = tn_tensor_2d(ctx, TN_REAL, extent[0], extent[1]))) return NULL;
    tni_out(c, y);
    tni_out(c, of);
    tni_out(c, r);
    c->i[0] = reverse;
    if (tni_run(ctx, c) != TN_OK) return NULL;
    tni_node *n = tni_note(ctx, backward, both, v, m, phi);
    if (n) {
        n->saved[0] = r;
        memcpy(n->i, extent, 3 * sizeof *extent);
        n->i[3] = reverse;
    }
    if (logs) *logs = of;
    return y;
}

/* On a device, chains that are fewer and longer than this are scanned in blocks. */
enum { TNI_SCAN_FEW = 32, TNI_SCAN_LONG = 1024 };

static bool tni_scan_matrices(tn_ctx *ctx, const tn_tensor *m, const char *op)
{
    if (m->rank == 4 && m->shape[2] == m->shape[3]) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: m is %s, expected [b,n,d,d]", op, TNI_SHAPE(m)), false;
}

/* v [d] or [b,d], as [1,d] or [b,d] */
static bool tni_scan_begins(tn_ctx *ctx, tn_tensor *v, int64_t b, int64_t d, const char *op, tn_view *as)
{
    *as = tni_view(v);
    if (v->rank == 1 && v->shape[0] == d) { *as = tni_pad_view(*as, 2); return true; }
    if (v->rank == 2 && v->shape[0] == b && v->shape[1] == d) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: v is %s, expected [%lld] or [%lld,%lld]", op, TNI_SHAPE(v), (long long)d,
                    (long long)b, (long long)d), false;
}

/* The scan of sites m [c,L,d,d] after their `start` [c,1,d,d] of scale `offset` [c,1] */
static tn_tensor *tni_scan_after(tn_ctx *ctx, tn_tensor *start, tn_tensor *offset, tn_tensor *m, bool reverse,
                                 tn_tensor **logs)
{
    const int64_t first = reverse ? 0 : 1, end = first + m->shape[1];
    tn_tensor    *parts[2] = {reverse ? m : start, reverse ? start : m};
    tn_tensor    *y = tn_scan(ctx, tn_concat(ctx, 2, parts, 1), reverse, logs);
    *logs = y ? tn_add(ctx, tn_slice(*logs, 1, first, end), offset) : NULL;
    return y ? tn_slice(y, 1, first, end) : NULL;
}

/* What comes before each of n blocks, x [b,n,..] being what comes before its end: `first`, then all of x but the last */
static tn_tensor *tni_scan_before(tn_ctx *ctx, tn_tensor *first, tn_tensor *x, bool reverse)
{
    const int64_t n = x->shape[1];
    tn_tensor    *parts[2];
    parts[reverse] = first;
    parts[!reverse] = tn_slice(x, 1, reverse, n - !reverse);
    return tn_concat(ctx, 2, parts, 1);
}

/* Sums of the logarithms x [b,n] from the beginning of the scan on. log2(n) additions, since -inf times 0 is no number. */
static tn_tensor *tni_scan_sums(tn_ctx *ctx, tn_tensor *x, bool reverse)
{
    int64_t    n = x ? x->shape[1] : 0;
    tn_tensor *parts[2];
    for (int64_t step = 1; step < n && x; step *= 2) {
        parts[reverse] = reverse ? tn_slice(x, 1, n - step, n) : tn_slice(x, 1, 0, step);
        parts[!reverse] = tn_add(ctx, tn_slice(x, 1, 0, n - step), tn_slice(x, 1, step, n));
        x = tn_concat(ctx, 2, parts, 1);
    }
    return x;
}

static tn_tensor *tni_scan_blocks(tn_ctx *ctx, tn_tensor *m, int64_t length, bool reverse, tn_tensor **logs)
{
    const int64_t b = m->shape[0], n = m->shape[1], d = m->shape[2], blocks = n / length, rest = n % length;
    tn_tensor    *sums, *scale, *parts[2], *of[2];
    int64_t       shape[4] = {b, blocks * length, d, d};
    tn_tensor    *x = rest ? tn_copy(ctx, tn_slice(m, 1, reverse ? rest : 0, reverse ? n : n - rest)) : m;
    tn_tensor    *rest_of = tn_slice(m, 1, reverse ? 0 : n - rest, reverse ? rest : n);
    shape[0] = b * blocks; shape[1] = length;
    x = x ? tn_reshape(x, 4, shape) : NULL;
    tn_tensor *ends = tn_chain(ctx, x, &sums);                                       /* the product of each block      */
    shape[0] = b; shape[1] = blocks;
    tn_tensor *q = ends ? tn_scan(ctx, tn_reshape(ends, 4, shape), reverse, &scale) : NULL; /* all sites to the end of each   */
    sums = q ? tni_scan_sums(ctx, tn_reshape(sums, 2, shape), reverse) : NULL;
    scale = sums ? tn_add(ctx, scale, sums) : NULL;
    shape[1] = 1;
    tn_tensor *unit = scale ? tn_add(ctx, tn_full(ctx, 4, shape, 0), tn_eye(ctx, d)) : NULL;
    tn_tensor *none = unit ? tn_full(ctx, 2, shape, 0) : NULL;
    if (!none) return NULL;
    parts[0] = tni_scan_before(ctx, unit, q, reverse);
    of[0] = tni_scan_before(ctx, none, scale, reverse);
    shape[0] = b * blocks;
    if (!parts[0] || !of[0]) return NULL;
    parts[0] = tni_scan_after(ctx, tn_reshape(parts[0], 4, shape), tn_reshape(of[0], 2, shape), x, reverse, &of[0]);
    parts[0] = parts[0] ? tn_copy(ctx, parts[0]) : NULL;
    shape[0] = b; shape[1] = blocks * length;
    parts[0] = parts[0] ? tn_reshape(parts[0], 4, shape) : NULL;
    of[0] = of[0] ? tn_reshape(of[0], 2, shape) : NULL;
    if (rest && of[0]) {
        const int64_t last = reverse ? 0 : blocks - 1;
        parts[1] = tni_scan_after(ctx, tn_slice(q, 1, last, last + 1), tn_slice(scale, 1, last, last + 1), rest_of, reverse,
                                  &of[1]);
        if (reverse) {
            tn_tensor *y = parts[0], *l = of[0];
            parts[0] = parts[1]; parts[1] = y;
            of[0] = of[1]; of[1] = l;
        }
        parts[0] = tn_concat(ctx, 2, parts, 1);
        of[0] = tn_concat(ctx, 2, of, 1);
    }
    if (!parts[0] || !of[0]) return NULL;
    if (logs) *logs = of[0];
    return parts[0];
}

tn_tensor *tn_scan_blocks(tn_ctx *ctx, tn_tensor *m, int64_t length, bool reverse, tn_tensor **logs)
{
    if (logs) *logs = NULL;
    if (!tni_is_real(ctx, m, "scan_blocks", "m") || !tni_scan_matrices(ctx, m, "scan_blocks")) return NULL;
    if (length < 1)
        return tni_fail(ctx, TN_ERR_ARG, "scan_blocks: length is %lld, expected at least 1", (long long)length),
               (tn_tensor *)NULL;
    if (m->shape[1] / length < 2) return tn_scan(ctx, m, reverse, logs);
    tn_dtype made = ctx->made;
    ctx->made = ctx->desc.dtype;                            /* logarithms and products as exact as those of tn_scan */
    tn_tensor *y = m->dtype == ctx->made ? m : tn_cast(ctx, m, ctx->made);
    y = y ? tni_scan_blocks(ctx, y, length, reverse, logs) : NULL;
    ctx->made = made;
    return y;
}

tn_tensor *tn_scan(tn_ctx *ctx, tn_tensor *m, bool reverse, tn_tensor **logs)
{
    if (logs) *logs = NULL;
    if (!(m = tni_contiguous(ctx, m, "scan", "m")) || !tni_scan_matrices(ctx, m, "scan")) return NULL;
    if (!ctx->backend->host && m->shape[0] < TNI_SCAN_FEW && m->shape[1] >= TNI_SCAN_LONG)
        return tn_scan_blocks(ctx, m, (int64_t)sqrt((double)m->shape[1]), reverse, logs);
    int64_t extent[3] = {m->shape[0], m->shape[1], m->shape[2] * m->shape[2]};
    tn_call c = tni_call(TN_KERNEL_SCAN, "t", m);
    c.n_in = 2;                                             /* no vector */
    tn_tensor *y = tni_scan_run(ctx, &c, extent, reverse, NULL, tni_scan_backward, NULL, m, NULL, logs);
    return y ? tn_reshape(y, 4, m->shape) : NULL;
}

tn_tensor *tn_scan_vector(tn_ctx *ctx, tn_tensor *v, tn_tensor *m, bool reverse, tn_tensor **logs)
{
    if (logs) *logs = NULL;
    if (!(v = tni_contiguous(ctx, v, "scan_vector", "v")) || !(m = tni_contiguous(ctx, m, "scan_vector", "m"))
        || !tni_scan_matrices(ctx, m, "scan_vector")) return NULL;
    int64_t extent[3] = {m->shape[0], m->shape[1] + 1, m->shape[2]};
    tn_call c = tni_call(TN_KERNEL_SCAN, "t", m);
    c.n_in = 2;
    if (!tni_scan_begins(ctx, v, extent[0], extent[2], "scan_vector", &c.in[1])) return NULL;
    return tni_scan_run(ctx, &c, extent, reverse, NULL, tni_scan_backward, v, m, NULL, logs);
}

tn_tensor *tn_scan_states(tn_ctx *ctx, tn_tensor *v, tn_tensor *cores, tn_tensor *phi, bool reverse, tn_tensor **logs)
{
    if (logs) *logs = NULL;
    if (!(v = tni_contiguous(ctx, v, "scan_states", "v")) || !(cores = tni_contiguous(ctx, cores, "scan_states", "cores"))
        || !(phi = tni_contiguous(ctx, phi, "scan_states", "phi"))) return NULL;
    if (phi->rank != 3)
        return tni_fail(ctx, TN_ERR_SHAPE, "scan_states: phi is %s, expected [b,n,s]", TNI_SHAPE(phi)), (tn_tensor *)NULL;
    if (cores->rank != 4 || cores->shape[1] != cores->shape[3] || cores->shape[2] != phi->shape[2]
        || (cores->shape[0] != 1 && cores->shape[0] != phi->shape[1]))
        return tni_fail(ctx, TN_ERR_SHAPE, "scan_states: cores is %s, expected [%lld,d,%lld,d] or [1,d,%lld,d], for phi is %s",
                        TNI_SHAPE(cores), (long long)phi->shape[1], (long long)phi->shape[2], (long long)phi->shape[2],
                        TNI_SHAPE(phi)), (tn_tensor *)NULL;
    int64_t extent[3] = {phi->shape[0], phi->shape[1] + 1, cores->shape[1]};
    tn_call c = tni_call(TN_KERNEL_SCAN_STATES, "");
    c.n_in = 3;
    c.in[1] = tni_view(cores);
    c.in[2] = tni_view(phi);
    if (!tni_scan_begins(ctx, v, extent[0], extent[2], "scan_states", &c.in[0])) return NULL;
    return tni_scan_run(ctx, &c, extent, reverse, NULL, tni_scan_states_backward, v, cores, phi, logs);
}

/* The last state [b,d] of tn_scan_states from v [d] and its logarithm [b]. If the backend can, no other state is stored for
   all to read; then extents that do not agree are for the caller to refuse. */
TNI_UNUSED TNI_FN tn_tensor *tni_scan_last(tn_ctx *ctx, tn_tensor *v, tn_tensor *cores, tn_tensor *phi, bool reverse,
                                           tn_tensor **logs)
{
    const int64_t b = phi ? phi->shape[0] : 0, d = cores ? cores->shape[1] : 0, at = reverse || !phi ? 0 : phi->shape[1];
    tn_tensor    *kept, *y;
    int64_t       extent[3] = {b, 1, d};
    if (!v || !cores || !phi || !ctx->backend->last_states || !ctx->backend->fn[TN_KERNEL_SCAN_STATES]
        || (tni_recording(ctx) && !ctx->backend->fn[TN_KERNEL_SCAN_STATES_BACKWARD]) || ctx->desc.dtype != TN_F32
        || cores->dtype != TN_F32 || cores->shape[0] != phi->shape[1] || tni_wants_grad(v) || 2 * b < TNI_SCAN_LANES) {
        y = tn_scan_states(ctx, v, cores, phi, reverse, logs);
        *logs = y ? tn_copy(ctx, tn_slice(*logs, 1, at, at + 1)) : NULL;
        y = *logs ? tn_copy(ctx, tn_slice(y, 1, at, at + 1)) : NULL;
    } else {
        if (!(v = tni_contiguous(ctx, v, "scan_states", "v")) || !(cores = tni_contiguous(ctx, cores, "scan_states", "cores"))
            || !(phi = tni_contiguous(ctx, phi, "scan_states", "phi"))) return NULL;
        tn_call c = tni_call(TN_KERNEL_SCAN_STATES, "ttt", v, cores, phi);
        c.in[0] = tni_pad_view(c.in[0], 2);
        kept = tn_tensor_3d(ctx, TN_REAL, TNI_SCAN_LANES * tni_ceil_div(b, TNI_SCAN_LANES), phi->shape[1] + 1,
                            d + phi->shape[2] + 2);
        y = kept ? tni_scan_run(ctx, &c, extent, reverse, kept, tni_scan_last_backward, v, cores, phi, logs) : NULL;
    }
    *logs = y ? tn_reshape(*logs, 1, &b) : NULL;
    extent[1] = d;
    return *logs ? tn_reshape(y, 2, extent) : NULL;
}
#endif
#endif /* TN_NO_SEQUENCES */

#define TNI_AGAIN "ops/scan.c"
#include "ops/again.h"
