#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

#ifndef TN_NO_SEQUENCES
/* ---- attention, linear --------------------------------------- >>op-attention_linear
   (q1.k1)(q2.k2) = phi(q)^T W phi(k),  phi(x) = x1 (x) x2: the rows' Khatri-Rao product, and W = 1. Squared: x_a x_b,
   a <= b, and W doubles where a < b; a state does not contain W, which its readers apply, so that saving it is exact.
   A chunk scan: queries are processed in chunks. The keys before a chunk's first query are in the state
   S = sum_j phi(k_j) v_j^T:    o_i = c_i (f0^2 phi(q_i)^T W S + the pairs inside the chunk as above)
   The backward pass, with u and w as above, v' = [v 1], u' = [u w], is one sweep forwards with S = sum_j phi(k_j) v'_j^T,
   and one backwards with G = sum_i f0^2 phi(q_i) u'_i^T of the later queries:
   dphi(q_i) = f0^2 W S u'_i      dphi(k_j) = W G v'_j      dv_j += G^T W phi(k_j)
   dphi is passed on to the factors: dx1_a += dphi_ab x2_b, dx2_b += dphi_ab x1_a. phi is never stored.
   A state without keys that was not given is not read, because its zeros times infinity or NaN would be NaN. */
#ifdef TNI_FIRST
enum { TNI_ATTEND_CHUNK = 16 };          /* queries of a chunk of the reference */

#endif

/* One row of q or k, of which phi is made. */
typedef struct TNI_T(features) { const TNI_REAL *x1, *x2; int64_t d, squared; } TNI_T(features);

static TNI_T(features) TNI_T(features_of)(const tn_call *c, const tn_view *x, int64_t b, int64_t h, int64_t t)
{
    TNI_T(features) f;
    f.squared = c->i[0] == TN_ATTEND_SQUARED;
    f.d = x->shape[3];
    f.x1 = TNI_ROW(x, b, t, h);
    f.x2 = f.squared ? f.x1 : TNI_ROW(x, b, t, h + c->in[2].shape[2]);
    return f;
}

/* S [F,n] += factor phi(x) u^T,   u [n] */
static void TNI_T(state_add)(TNI_T(features) f, double factor, const double *u, int64_t n, double *S)
{
    for (int64_t a = 0; a < f.d; a++)
        for (int64_t b = f.squared ? a : 0; b < f.d; b++, S += n) {
            double phi = factor * (double)f.x1[a] * (double)f.x2[b];
            for (int64_t e = 0; e < n; e++) S[e] += phi * u[e];
        }
}

/* y [n] += factor S^T W phi(x) */
static void TNI_T(state_read)(TNI_T(features) f, double factor, const double *S, int64_t n, double *y)
{
    for (int64_t a = 0; a < f.d; a++)
        for (int64_t b = f.squared ? a : 0; b < f.d; b++, S += n) {
            double phi = factor * (double)f.x1[a] * (double)f.x2[b] * (f.squared && a < b ? 2 : 1);
            for (int64_t e = 0; e < n; e++) y[e] += phi * S[e];
        }
}

/* dx [2,d] += the gradient of factor phi(x)^T W S u */
static void TNI_T(state_slope)(TNI_T(features) f, double factor, const double *S, const double *u, int64_t n, double *dx)
{
    for (int64_t a = 0; a < f.d; a++)
        for (int64_t b = f.squared ? a : 0; b < f.d; b++, S += n) {
            double dphi = 0;
            for (int64_t e = 0; e < n; e++) dphi += S[e] * u[e];
            dphi *= factor * (f.squared && a < b ? 2 : 1);
            dx[a] += dphi * (double)f.x2[b];
            dx[f.d + b] += dphi * (double)f.x1[a];
        }
}

/* v' of key j: its values, then 1. */
static void TNI_T(attend_values)(const tn_call *c, int64_t b, int64_t h, int64_t j, double *v)
{
    const TNI_REAL *from = TNI_ROW(&c->in[2], b, j, h);
    int64_t         dv = c->in[2].shape[3];
    for (int64_t e = 0; e < dv; e++) v[e] = (double)from[e];
    v[dv] = 1;
}

TNI_FN void TNI_T(attention_linear)(const tn_call *c)
{
    const tn_view *O = &c->out[0];
    TNI_REAL      *stat = (TNI_REAL *)c->out[1].data, *state = (TNI_REAL *)c->out[2].data;
    const int64_t  F = tni_attend_features(c->i[0], c->in[0].shape[3]), Tk = c->in[1].shape[1];
    const int64_t  T = O->shape[1], H = O->shape[2], dv = O->shape[3], n = dv + tni_attend_sums(c);
    double        *S = (double *)c->out[3].data, *sum = S + F * n, *v = sum + dv + 1;   /* [F,n], [n], [dv+1] */
    for (int64_t b = 0; b < O->shape[0]; b++)
        for (int64_t h = 0; h < H; h++) {
            int64_t first = 0, added = 0;
            for (int64_t e = 0; e < F * n; e++) S[e] = state ? (double)state[(b * H + h) * F * n + e] : 0;
            for (int64_t i = 0; i <= T; i++) {              /* at T: the remaining keys go into the state */
                const tni_seen seen = tni_attend_seen(c, i);
                if (i % TNI_ATTEND_CHUNK == 0 || i == T) {
                    first = i == T ? Tk : tni_attend_before(c, i);
                    for (; added < first; added++) {
                        TNI_T(attend_values)(c, b, h, added, v);
                        TNI_T(state_add)(TNI_T(features_of)(c, &c->in[1], b, h, added), 1, v, n, S);
                    }
                }
                if (i == T) break;
                for (int64_t e = 0; e < n; e++) sum[e] = 0;
                if (state || added > 0)
                    TNI_T(state_read)(TNI_T(features_of)(c, &c->in[0], b, h, i), c->f[0] * c->f[0], S, n, sum);
                for (int64_t j = first; j < seen.high; j++) {
                    double s[2];
                    TNI_T(attend_scores)(c, b, h, i, j, s);
                    TNI_T(attend_values)(c, b, h, j, v);
                    for (int64_t e = 0; e < n; e++) sum[e] += s[0] * s[1] * v[e];
                }
                double    scale = tni_attend_sums(c) ? 1 / (sum[dv] + c->f[3]) : tni_attend_row_scale(c, seen.n);
                TNI_REAL *o = TNI_ROW(O, b, i, h);
                for (int64_t e = 0; e < dv; e++) o[e] = (TNI_REAL)(scale * sum[e]);
                if (stat) stat[(b * H + h) * T + i] = (TNI_REAL)(sum[dv] + c->f[3]);
            }
            for (int64_t e = 0; state && e < F * n; e++) state[(b * H + h) * F * n + e] = (TNI_REAL)S[e];
        }
}

/* dq: the keys are added to S, which each query then reads. */
static void TNI_T(linear_queries)(const tn_call *c, int64_t b, int64_t h, double *S, double *work)
{
    const tn_view *Q = &c->in[0], *K = &c->in[1];
    const int64_t  d = Q->shape[3], dv = c->in[2].shape[3], n = dv + 1, F = tni_attend_features(c->i[0], d);
    double        *u = work, *v = u + n, *sum = v + n;
    int64_t        first = 0, added = 0;
    for (int64_t a = 0; a < F * n; a++) S[a] = 0;
    for (int64_t i = 0; i < Q->shape[1]; i++) {
        const tni_seen seen = tni_attend_seen(c, i);
        if (i % TNI_ATTEND_CHUNK == 0)
            for (first = tni_attend_before(c, i); added < first; added++) {
                TNI_T(attend_values)(c, b, h, added, v);
                TNI_T(state_add)(TNI_T(features_of)(c, K, b, h, added), 1, v, n, S);
            }
        for (int64_t a = 0; a < 2 * d; a++) sum[a] = 0;
        TNI_T(attend_upstream)(c, b, h, i, u);
        if (added > 0) TNI_T(state_slope)(TNI_T(features_of)(c, Q, b, h, i), c->f[0] * c->f[0], S, u, n, sum);
        for (int64_t j = first; j < seen.high; j++) TNI_T(attend_pair)(c, b, h, i, j, u, sum, NULL);
        TNI_T(attend_store)(c, &c->out[0], b, h, i, sum);
    }
}

/* dk and dv of the keys [from,to): from the queries [begin,end) pair by pair, and from later queries, if any, by G. */
static void TNI_T(linear_keys_of)(const tn_call *c, int64_t b, int64_t h, int64_t from, int64_t to, int64_t begin,
                                  int64_t end, const double *G, double *work)
{
    const int64_t d = c->in[0].shape[3], n = c->in[2].shape[3] + 1;
    double       *u = work, *v = u + n, *sum = v + n;                                    /* [2 d + n] */
    for (int64_t j = from; j < to; j++) {
        TNI_T(features) f = TNI_T(features_of)(c, &c->in[1], b, h, j);
        for (int64_t a = 0; a < 2 * d + n; a++) sum[a] = 0;
        TNI_T(attend_values)(c, b, h, j, v);
        if (end < c->in[0].shape[1]) {
            TNI_T(state_slope)(f, 1, G, v, n, sum);
            TNI_T(state_read)(f, 1, G, n, sum + 2 * d);
        }
        for (int64_t i = begin; i < end; i++) {
            if (tni_attend_seen(c, i).high <= j) continue;
            TNI_T(attend_upstream)(c, b, h, i, u);
            TNI_T(attend_pair)(c, b, h, i, j, u, NULL, sum);
        }
        TNI_T(attend_store)(c, &c->out[1], b, h, j, sum);
        TNI_T(attend_store_v)(c, b, h, j, sum + 2 * d);
    }
}

/* dk and dv: from the last chunk to the first, the queries are added to G. */
static void TNI_T(linear_keys)(const tn_call *c, int64_t b, int64_t h, double *G, double *work)
{
    const tn_view *Q = &c->in[0];
    const int64_t  d = Q->shape[3], n = c->in[2].shape[3] + 1, F = tni_attend_features(c->i[0], d), T = Q->shape[1];
    int64_t        begin, to = c->in[1].shape[1];
    for (int64_t i = 0; i < F * n; i++) G[i] = 0;
    for (int64_t end = T; end > 0; end = begin) {
        begin = (end - 1) / TNI_ATTEND_CHUNK * TNI_ATTEND_CHUNK;
        TNI_T(linear_keys_of)(c, b, h, tni_attend_before(c, begin), to, begin, end, G, work);
        to = tni_attend_before(c, begin);
        for (int64_t i = begin; i < end; i++) {
            TNI_T(attend_upstream)(c, b, h, i, work);
            TNI_T(state_add)(TNI_T(features_of)(c, Q, b, h, i), c->f[0] * c->f[0], work, n, G);
        }
    }
    TNI_T(linear_keys_of)(c, b, h, 0, to, 0, 0, G, work);
}

TNI_FN void TNI_T(attention_linear_backward)(const tn_call *c)
{
    const tn_view *V = &c->in[2];
    const int64_t  F = tni_attend_features(c->i[0], c->in[0].shape[3]);
    double        *S = (double *)c->out[3].data, *work = S + F * (V->shape[3] + 1);
    for (int64_t b = 0; b < V->shape[0]; b++)
        for (int64_t h = 0; h < V->shape[2]; h++) {
            if (c->out[0].data) TNI_T(linear_queries)(c, b, h, S, work);
            if (c->out[1].data || c->out[2].data) TNI_T(linear_keys)(c, b, h, S, work);
        }
}

#ifdef TNI_ONCE
/* Elements of the workspace of a call: doubles for the reference, where the reference may run. */
static int64_t tni_attention_work(const tn_ctx *ctx, const tn_call *c)
{
    const int64_t d = c->in[0].shape[3], n = c->in[2].shape[3] + 1;
    const bool    linear = c->kernel == TN_KERNEL_ATTENTION_LINEAR || c->kernel == TN_KERNEL_ATTENTION_LINEAR_BACKWARD;
    int64_t       reference = 2 * d + 3 * n + (linear ? tni_attend_features(c->i[0], d) * n : 0);
    if (ctx->backend->own_scratch && ctx->backend->fn[c->kernel]) return 0;
    return reference * (int64_t)(sizeof(double) / tni_dtype_size(ctx->desc.dtype));
}

/* The last output of a call: its workspace, if it has one. */
static tn_status tni_attention_run(tn_ctx *ctx, tn_call *c)
{
    const int64_t elements = tni_attention_work(ctx, c);
    tn_tensor    *work = elements ? tn_tensor_1d(ctx, TN_REAL, elements) : NULL;
    if (elements && !work) return ctx->status;
    tni_out(c, work);
    return tni_run(ctx, c);
}

/* Are two gradients [B,T,n,d] certainly disjoint? Only different tensors and neighbouring heads of one are known to be. */
static bool tni_heads_apart(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t size = (int64_t)tni_dtype_size(a->dtype);
    int64_t       a0 = 0;
    if (tni_root(a) != tni_root(b)) return true;
    if (a->strides[0] != b->strides[0] || a->strides[1] != b->strides[1]) return false;
    if (a->strides[2] < 0 || b->strides[2] < 0) return false;
    int64_t b0 = ((const char *)b->data - (const char *)a->data) / size;
    int64_t a1 = a0 + (a->shape[2] - 1) * a->strides[2] + a->shape[3];
    int64_t b1 = b0 + (b->shape[2] - 1) * b->strides[2] + b->shape[3];
    int64_t all = tni_max(a1, b1) - tni_min(a0, b0);                                      /* elements of one position */
    return (a1 <= b0 || b1 <= a0) && all <= a->strides[1]
           && (tni_max(a->shape[1], b->shape[1]) - 1) * a->strides[1] + all <= a->strides[0];
}

/* Do those of q, k and v that need a gradient, and are the tensor `base` or views of it, have each of its elements once? No
   view has an element twice. */
static bool tni_heads_cover(tn_tensor *const in[3], const tn_tensor *base)
{
    int64_t left = tn_tensor_count(base);
    for (int i = 0; i < 3; i++) {
        if (!tni_wants_grad(in[i]) || tni_root(in[i]) != base) continue;
        for (int j = 0; j < i; j++)
            if (tni_wants_grad(in[j]) && !tni_heads_apart(in[i], in[j])) return false;
        left -= tn_tensor_count(in[i]);
    }
    return left == 0;
}

/* Whether the kernel adds to the three gradients. It overwrites them if nothing has been added to any of them, and if
   it writes all elements of the tensors that they are, or are views of. */
static bool tni_attention_adds(tn_tensor *const in[3])
{
    for (int i = 0; i < 3; i++)
        if (tni_wants_grad(in[i]) && (!tni_grad_is_new(tni_root(in[i])) || !tni_heads_cover(in, tni_root(in[i])))) return true;
    return false;
}

/* The gradient of one of them, which the kernel overwrites. */
static tn_tensor *tni_grad_to_write(tn_tensor *t)
{
    bool       add;
    tn_tensor *g = tni_wants_grad(t) ? tni_grad(t->base ? t->base : t, &add) : NULL;
    return t->base ? tni_grad_view(t, g) : g;
}

/* The kernel writes three gradients at once. If two may overlap, each has memory of its own, which is added afterwards. */
static void tni_attention_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call    c = tni_call((tn_kernel)n->i[3], "tttttt", n->in[0], n->in[1], n->in[2], n->saved[0] ? n->out : NULL,
                            n->saved[0], n->out->grad);
    tn_tensor *grad[3], *to[3];
    c.accumulate = tni_attention_adds(n->in);
    tni_node_give(n, &c);
    c.i[3] = 0;                                             /* there is no past while recording */
    for (int i = 0; i < 3; i++) {
        to[i] = grad[i] = c.accumulate ? tni_grad_to_add(n->in[i]) : tni_grad_to_write(n->in[i]);
        for (int j = 0; j < i; j++) {
            if (!grad[i] || !grad[j] || tni_heads_apart(grad[i], grad[j])) continue;
            to[i] = tni_like(ctx, grad[i]);
            if (!to[i] || tni_fill(to[i], 0) != TN_OK) return;
            break;
        }
        tni_out(&c, to[i]);
    }
    if (tni_attention_run(ctx, &c) != TN_OK) return;
    for (int i = 0; i < 3; i++) {
        if (to[i] == grad[i]) continue;
        tn_call add = tni_call(TN_KERNEL_ADD, "t:t", to[i], grad[i]);
        add.f[0] = 1;
        add.accumulate = true;
        tni_run(ctx, &add);
    }
}

/* The form of TN_ATTEND_FORM_AUTO, by the multiplications of each. With a state a key costs F dv, and a query as much; a
   pair costs s d + dv (s sets); the linear form has a further cost per query, and more pairs if causal. The constants were
   measured in forward and backward passes on the cpu backend, for d from 8 to 128; see docs/internals.md. For a backend that
   names a device they are counts: 9 products with a state per position (three to make it, one each for the output and
   five gradients); 14/3 times the cost of the output per pair in the quadratic form; and, if causal, the pairs of half
   a chunk of 8 d, at 9/7 of their cost. */
typedef struct tni_attend_rule { double state, whole, causal, causal_d; } tni_attend_rule;

static bool tni_attend_is_linear(const tn_ctx *ctx, const tn_attend_desc *a, int64_t Tq, int64_t Tk, int64_t d, int64_t dv)
{
    static const tni_attend_rule host = { 0.85, 100, 200, 0 }, device = { 0.96, 0, 0, 5 };
    const tni_attend_rule *r = ctx->backend->device ? &device : &host;
    const tn_attend_kind   kind = a->kind;
    const double F = kind == TN_ATTEND_SQUARED ? (double)d * ((double)d + 1) / 2 : (double)d * (double)d;
    const double sets = kind == TN_ATTEND_BILINEAR ? 2 : 1, values = (double)dv + (a->row_scale == TN_ROW_SCALE_SUM);
    const double own = a->bidirectional ? r->whole : (double)tni_min(Tq, Tk) / 2 + r->causal + r->causal_d * (double)d;
    const double pair = sets * (double)d + (double)dv;
    if (kind == TN_ATTEND_SOFTMAX || a->window > 0) return false;
    return r->state * F * values * ((double)Tq + (double)Tk) < (double)Tq * ((double)Tk - own) * pair;
}

/* Checks the numbers of a desc and fills in the defaults. */
TNI_FN bool tni_attend_numbers(tn_ctx *ctx, tn_attend_desc *a, int64_t d)
{
    if (!tni_within(ctx, "attend", "kind", (int)a->kind, 0, TN_ATTEND_BILINEAR)
        || !tni_within(ctx, "attend", "form", (int)a->form, 0, TN_ATTEND_FORM_LINEAR)
        || !tni_within(ctx, "attend", "row_scale", (int)a->row_scale, 0, TN_ROW_SCALE_SUM)
        || !tni_within(ctx, "attend", "window", a->window, 0, INT64_MAX)
        || !tni_within(ctx, "attend", "row_length", a->row_length, 0, INT64_MAX)
        || !tni_within(ctx, "attend", "past", a->past, 0, INT64_MAX)) return false;
    if (!(fabs(a->scale) < HUGE_VAL))
        tni_fail(ctx, TN_ERR_ARG, "attend: scale is %g, expected a finite number", a->scale);
    else if (a->row_scale == TN_ROW_SCALE_SUM && a->kind != TN_ATTEND_SQUARED)
        tni_fail(ctx, TN_ERR_ARG, "attend: row_scale is TN_ROW_SCALE_SUM, expected squared attention: softmax divides by its sum "
                                  "itself, and bilinear scores have signs");
    else if (tni_is_eps(ctx, a->eps, "attend")) {
        if (a->scale == 0) a->scale = a->kind == TN_ATTEND_SOFTMAX ? 1 / sqrt((double)d) : 1 / (double)d;
        if (a->row_scale == TN_ROW_SCALE_DEFAULT)
            a->row_scale = a->kind == TN_ATTEND_SOFTMAX ? TN_ROW_SCALE_NONE : TN_ROW_SCALE_LENGTH;
        if (a->row_length == 0) a->row_length = 512;
        if (a->eps == 0) a->eps = 1e-6;
        return true;
    }
    return false;
}

static bool tni_attend_shapes(tn_ctx *ctx, tn_attend_kind kind, const tn_tensor *q, const tn_tensor *k, const tn_tensor *v)
{
    const int64_t sets = kind == TN_ATTEND_BILINEAR ? 2 : 1;
    const char   *times = sets == 2 ? "2 " : "";
    if (q->shape[0] == k->shape[0] && q->shape[0] == v->shape[0] && k->shape[1] == v->shape[1]
        && q->shape[2] % sets == 0 && q->shape[2] / sets == v->shape[2] && k->shape[2] == q->shape[2]
        && q->shape[3] == k->shape[3] && q->shape[3] >= 1) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "attend: q is %s, k is %s and v is %s, expected [B,Tq,%sH,d], [B,Tk,%sH,d], "
                    "[B,Tk,H,dv], d >= 1", TNI_SHAPE(q), TNI_SHAPE(k), TNI_SHAPE(v), times, times), false;
}

/* An error if the linear form is requested but not possible. */
TNI_FN tn_status tni_attend_possible(tn_ctx *ctx, const tn_attend_desc *a, int64_t d, int64_t dv)
{
    if (a->form != TN_ATTEND_FORM_LINEAR) return TN_OK;
    if (a->kind == TN_ATTEND_SOFTMAX || a->window > 0)
        return tni_fail(ctx, TN_ERR_ARG, "attend: form is linear, expected the quadratic form: %s has no linear form",
                        a->kind == TN_ATTEND_SOFTMAX ? "softmax" : "a window");
    if ((double)d * (double)d * ((double)dv + 1) <= 1e15) return TN_OK;
    return tni_fail(ctx, TN_ERR_SHAPE, "attend: the state would have %lld * %lld * %lld numbers, expected at most 1e15",
                    (long long)d, (long long)d, (long long)dv);
}

/* Chooses the linear or the quadratic form; false with an error if the desc is inconsistent. */
static bool tni_attend_form(tn_ctx *ctx, tn_attend_desc *a, const tn_tensor *q, const tn_tensor *k, const tn_tensor *v)
{
    const int64_t d = q->shape[3], dv = v->shape[3];
    if (a->form == TN_ATTEND_FORM_AUTO)
        a->form = a->state || tni_attend_is_linear(ctx, a, q->shape[1], k->shape[1], d, dv) ? TN_ATTEND_FORM_LINEAR
                                                                                            : TN_ATTEND_FORM_QUADRATIC;
    if (tni_attend_possible(ctx, a, d, dv) != TN_OK) return false;
    if (a->form != TN_ATTEND_FORM_LINEAR && (a->state || a->past > 0))
        tni_fail(ctx, TN_ERR_ARG, "attend: %s is given, expected the linear form: the quadratic form has no state",
                 a->state ? "state" : "past");
    else if (a->past > 0 && !a->state)
        tni_fail(ctx, TN_ERR_ARG, "attend: past is %lld without a state, expected 0", (long long)a->past);
    else if (a->past > INT64_MAX - k->shape[1])
        tni_fail(ctx, TN_ERR_ARG, "attend: past is %lld, expected at most 2^63 - 1 less the %lld keys of k",
                 (long long)a->past, (long long)k->shape[1]);
    else return true;
    return false;
}

static bool tni_attend_state(tn_ctx *ctx, const tn_attend_desc *a, const tn_tensor *q, const tn_tensor *k,
                             const tn_tensor *v)
{
    const int64_t F = tni_attend_features(a->kind, q->shape[3]), n = v->shape[3] + (a->row_scale == TN_ROW_SCALE_SUM);
    const tn_tensor *s = a->state;
    if (!s) return true;
    if (!tni_is_real(ctx, s, "attend", "state")) return false;
    if (s->dtype != ctx->desc.dtype)
        return tni_fail(ctx, TN_ERR_DTYPE, "attend: the state is %s, expected %s", tn_dtype_name(s->dtype),
                        tn_dtype_name(ctx->desc.dtype)), false;
    if (s->rank != 4 || s->shape[0] != v->shape[0] || s->shape[1] != v->shape[2] || s->shape[2] != F || s->shape[3] != n
        || !tn_tensor_is_contiguous(s))
        tni_fail(ctx, TN_ERR_SHAPE, "attend: the state is %s, expected [%lld,%lld,%lld,%lld], contiguous", TNI_SHAPE(s),
                 (long long)v->shape[0], (long long)v->shape[2], (long long)F, (long long)n);
    else if (q->shape[1] > k->shape[1])
        tni_fail(ctx, TN_ERR_SHAPE, "attend: there are %lld queries, expected at most the %lld keys with a state",
                 (long long)q->shape[1], (long long)k->shape[1]);
    else if (tni_recording(ctx))
        tni_fail(ctx, TN_ERR_ARG, "attend: a state is given while recording, expected none: it has no gradient");
    else return true;
    return false;
}

tn_tensor *tn_attend(tn_ctx *ctx, tn_tensor *q, tn_tensor *k, tn_tensor *v, const tn_attend_desc *desc)
{
    tn_attend_desc a = TNI_ZERO;
    tn_tensor     *o, *stat = NULL;
    tni_node      *n;
    if (desc) a = *desc;
    if (!(q = tni_heads(ctx, q, "attend", "q")) || !(k = tni_heads(ctx, k, "attend", "k"))
        || !(v = tni_heads(ctx, v, "attend", "v")) || !tni_attend_numbers(ctx, &a, q->shape[3])
        || !tni_attend_shapes(ctx, a.kind, q, k, v) || !tni_attend_form(ctx, &a, q, k, v)) return NULL;
    bool linear = a.form == TN_ATTEND_FORM_LINEAR;
    if (!tni_attend_state(ctx, &a, q, k, v)) return NULL;
    int64_t shape[4] = {q->shape[0], q->shape[1], v->shape[2], v->shape[3]};
    if (!(o = tni_made(ctx, 4, shape))) return NULL;
    if ((a.kind == TN_ATTEND_SOFTMAX || a.row_scale == TN_ROW_SCALE_SUM)
        && !(stat = tn_tensor_3d(ctx, TN_REAL, shape[0], shape[2], shape[1]))) return NULL;
    tn_call c = tni_call(linear ? TN_KERNEL_ATTENTION_LINEAR : TN_KERNEL_ATTENTION, "ttt:tt", q, k, v, o, stat);
    if (linear) tni_out(&c, a.state);
    c.i[0] = a.kind;
    c.i[1] = !a.bidirectional;
    c.i[2] = tni_min(a.window, q->shape[1] + k->shape[1]);             /* no pair is further apart */
    c.i[3] = a.past;
    c.f[0] = a.scale;
    c.f[1] = (double)a.row_length;
    c.f[2] = (double)a.row_scale;
    c.f[3] = a.eps;
    if (tni_attention_run(ctx, &c) != TN_OK) return NULL;
    if ((n = tni_note(ctx, tni_attention_backward, o, q, k, v)) != NULL) {
        n->saved[0] = stat;
        tni_node_keep(n, &c);
        n->i[3] = linear ? TN_KERNEL_ATTENTION_LINEAR_BACKWARD : TN_KERNEL_ATTENTION_BACKWARD;
    }
    return o;
}
#endif
#endif /* TN_NO_SEQUENCES */

#define TNI_AGAIN "ops/attention_linear.c"
#include "ops/again.h"
