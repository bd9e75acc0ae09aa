#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "ops/pass.h"

/* ---- softmax, log_softmax ---------------------------------- >>op-softmax
   y[r,c] = e^(x-m) / s       m = max_c x, s = sum_c e^(x-m)      dx += y (dy - sum_c dy y)
   log:  x - m - log s                                            dx += dy - e^y sum_c dy
   A row of only -inf: s = 0, y = 0, and its logarithm is -inf. NaN or +inf makes s, and with it the row, NaN. */
TNI_FN void TNI_T(softmax)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         R = c->in[0].shape[0], C = c->in[0].shape[1];
    for (int64_t r = 0; r < R; r++, x += C, y += C) {
        double top = -HUGE_VAL, sum = 0;
        for (int64_t j = 0; j < C; j++) if ((double)x[j] > top) top = (double)x[j];
        if (top == -HUGE_VAL) top = 0;
        for (int64_t j = 0; j < C; j++) sum += exp((double)x[j] - top);
        for (int64_t j = 0; j < C; j++)
            if (c->i[0]) y[j] = (TNI_REAL)(sum == 0 ? -HUGE_VAL : (double)x[j] - top - log(sum));
            else y[j] = (TNI_REAL)(sum == 0 ? 0 : exp((double)x[j] - top) / sum);
    }
}

TNI_FN void TNI_T(softmax_backward)(const tn_call *c)
{
    const TNI_REAL *y = (const TNI_REAL *)c->in[0].data, *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data;
    int64_t         R = c->in[0].shape[0], C = c->in[0].shape[1];
    for (int64_t r = 0; r < R; r++, y += C, dy += C, dx += C) {
        double sum = 0;
        for (int64_t j = 0; j < C; j++) sum += c->i[0] ? (double)dy[j] : (double)dy[j] * (double)y[j];
        for (int64_t j = 0; j < C; j++) {
            double v = c->i[0] ? (double)dy[j] - exp((double)y[j]) * sum : (double)y[j] * ((double)dy[j] - sum);
            dx[j] = (TNI_REAL)(c->accumulate ? (double)dx[j] + v : v);
        }
    }
}

#ifdef TNI_ONCE
static void tni_softmax_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call c = tni_call(TN_KERNEL_SOFTMAX_BACKWARD, "rr", n->out, n->out->grad);
    c.i[0] = n->i[0];
    tni_run_grad(ctx, &c, n->in[0], 'r');
}

static tn_tensor *tni_softmax(tn_ctx *ctx, const char *op, tn_tensor *x, bool log_of)
{
    if (!(x = tni_contiguous(ctx, x, op, "x")) || !tni_has_columns(ctx, x, op)) return NULL;
    tn_tensor *y = tni_made(ctx, x->rank, x->shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_SOFTMAX, "r:r", x, y);
    c.i[0] = log_of;
    return tni_recorded(ctx, &c, tni_softmax_backward, y, x, NULL, NULL, NULL);
}

tn_tensor *tn_softmax(tn_ctx *ctx, tn_tensor *x)     { return tni_softmax(ctx, "softmax", x, false); }
tn_tensor *tn_log_softmax(tn_ctx *ctx, tn_tensor *x) { return tni_softmax(ctx, "log_softmax", x, true); }
#endif

/* ---- noise, dropout --------------------------------------- >>op-dropout
   noise:   y = x + std z                                         dx += dy
   dropout: y = x/(1-p) where u >= p, else 0    dx += the same of dy: the mask is drawn again instead of saved
   Of many processes each has its part of the batch, the first axis of x, and draws the numbers of its part.
   Srivastava et al. 2014 (dropout); Pearce et al. 2024 (input noise that cleans eigenvectors) */
TNI_FN void TNI_T(dropout)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    uint32_t        clock = (uint32_t)*(const int32_t *)c->in[1].data, word[4] = {0, 0, 0, 0};
    int64_t         n = c->out[0].shape[0];
    for (int64_t e = 0; e < n; e++) {
        if (e % 4 == 0) tni_random_words((uint64_t)c->i[0], c->i[1], clock, (uint64_t)(c->i[2] + e / 4), word);
        double v = (double)tni_unit(word[e % 4]) >= c->f[0] ? (double)x[e] / (1 - c->f[0]) : 0;
        y[e] = (TNI_REAL)(c->accumulate ? (double)y[e] + v : v);
    }
}

#ifdef TNI_ONCE
static void tni_dropout_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *g = tni_grad(n->in[0], &add);
    if (!g) return;
    tn_call c = tni_call(TN_KERNEL_DROPOUT, "ft:f", n->out->grad, ctx->clock, g);
    tni_node_give(n, &c);
    c.accumulate = add;
    tni_run_at_position(ctx, &c);
}

tn_tensor *tn_dropout(tn_ctx *ctx, tn_tensor *x, double p)
{
    if (!(x = tni_contiguous(ctx, x, "dropout", "x"))) return NULL;
    if (!(p >= 0 && p < 1)) return tni_fail(ctx, TN_ERR_ARG, "dropout: p is %g, expected 0 <= p < 1", p), (tn_tensor *)NULL;
    if (!tni_recording(ctx) || p == 0) return x;
    tn_tensor *y = tni_made(ctx, x->rank, x->shape);
    if (!y) return NULL;
    tn_call c = tni_call(TN_KERNEL_DROPOUT, "f:f", x, y);
    c.f[0] = p;
    tni_random_call(ctx, &c, 1);
    if (tni_run_at_position(ctx, &c) != TN_OK) return NULL;
    tni_node *n = tni_note(ctx, tni_dropout_backward, y, x, NULL, NULL);
    if (n) tni_node_keep(n, &c);
    return y;
}

tn_tensor *tn_noise(tn_ctx *ctx, tn_tensor *x, double std)
{
    if (!tni_is_real(ctx, x, "noise", "x")) return NULL;
    if (!(std >= 0)) return tni_fail(ctx, TN_ERR_ARG, "noise: std is %g, expected 0 or more", std), (tn_tensor *)NULL;
    if (!tni_recording(ctx) || std == 0) return x;
    tn_tensor *z = tni_random(ctx, TN_KERNEL_NORMAL, x->rank, x->shape, 0, std, true);
    return z ? tn_add(ctx, x, z) : NULL;
}
#endif

/* ---- cross_entropy ----------------------------------------- >>op-cross_entropy
   loss = mean_r (lse[r] - z[r,label])     lse = log sum_c e^z, from the row's maximum
   dz[r,c] = 1/R (e^(z-lse) - [c = label])        written together with the loss, if it is needed
   Fused with softmax. A row with an invalid label adds nothing, and reports a fault. If i[0] is set, R counts the rows whose
   label is not i[1], and the others add nothing. */
#ifdef TNI_FIRST
TNI_FN int64_t tni_rows_counted(const tn_call *c)
{
    const int32_t *label = (const int32_t *)c->in[1].data;
    int64_t        rows = c->in[0].shape[0];
    for (int64_t r = 0; r < c->in[0].shape[0]; r++) rows -= tni_is_ignored(c, label[r]);
    return rows;
}
#endif

TNI_FN void TNI_T(cross_entropy)(const tn_call *c)
{
    const TNI_REAL *z = (const TNI_REAL *)c->in[0].data;
    const int32_t  *label = (const int32_t *)c->in[1].data;
    TNI_REAL       *lse = (TNI_REAL *)c->out[1].data, *dz = c->n_out > 3 ? (TNI_REAL *)c->out[3].data : NULL;
    int64_t         R = c->in[0].shape[0], C = c->in[0].shape[1];
    double          loss = 0, count = (double)tni_max(tni_rows_counted(c), 1);
    for (int64_t r = 0; r < R; r++, z += C) {
        bool   ignored = tni_is_ignored(c, label[r]), good = !ignored && label[r] >= 0 && label[r] < C;
        double top = (double)z[0], sum = 0;
        for (int64_t j = 1; j < C; j++) if ((double)z[j] > top || z[j] != z[j]) top = (double)z[j];
        for (int64_t j = 0; j < C; j++) sum += exp((double)z[j] - top);
        sum = top + log(sum);
        lse[r] = (TNI_REAL)sum;
        if (good) loss += sum - (double)z[label[r]];
        else if (!ignored) tni_fault(&c->out[2], 1, r, label[r], 2);
        for (int64_t j = 0; dz && j < C; j++)
            dz[r * C + j] = (TNI_REAL)(good ? (exp((double)z[j] - sum) - (j == label[r])) / count : 0);
    }
    *(TNI_REAL *)c->out[0].data = (TNI_REAL)(loss / count);
}

#ifdef TNI_ONCE
/* The saved dz is the gradient if tn_backward began with this loss; otherwise it is multiplied by the loss's gradient. */
static void tni_cross_entropy_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_tensor *z = n->in[0], *dz = n->saved[0];
    tn_call    c = tni_call(TN_KERNEL_MUL, "t", dz);
    if ((n->out->flags & TNI_SEED) && !z->base && !z->grad && !(z->flags & TNI_PARAM)) {
        z->grad = dz;
        z->flags |= TNI_GRAD_USED;
        return;
    }
    c.in[c.n_in++] = tni_expand_view(tni_view(n->out->grad), z->rank, z->shape);
    c.f[0] = 1;
    tni_run_grad(ctx, &c, z, 't');
}

/* The check of labels that several ops on logits share. */
TNI_FN bool tni_labels_fit(tn_ctx *ctx, const char *op, const tn_tensor *z, const tn_tensor *labels)
{
    bool fits = z->rank >= 1 && labels->rank == z->rank - 1
             && memcmp(z->shape, labels->shape, sizeof *z->shape * (size_t)labels->rank) == 0;
    if (!fits) tni_fail(ctx, TN_ERR_SHAPE, "%s: labels are %s, expected the shape of logits %s without its last axis",
                        op, TNI_SHAPE(labels), TNI_SHAPE(z));
    else if (tn_tensor_count(z) == 0)
        tni_fail(ctx, TN_ERR_SHAPE, "%s: logits are %s, expected at least one row and one column", op, TNI_SHAPE(z));
    else return true;
    return false;
}

static tn_tensor *tni_cross_entropy(tn_ctx *ctx, const char *op, tn_tensor *z, tn_tensor *labels, bool ignores, int32_t ignored)
{
    tn_tensor *dz = NULL;
    if (!(z = tni_contiguous(ctx, z, op, "logits")) || !tni_is_ids(ctx, labels, op, "labels")) return NULL;
    if (!tni_labels_fit(ctx, op, z, labels)) return NULL;
    if (!tn_tensor_is_contiguous(labels) && !(labels = tn_copy(ctx, labels))) return NULL;
    bool       wanted = tni_recording(ctx) && tni_wants_grad(z);
    tn_tensor *loss = tn_tensor_nd(ctx, TN_REAL, 0, NULL);
    tn_tensor *lse = loss ? tn_tensor_1d(ctx, TN_REAL, tn_tensor_count(labels)) : NULL;
    if (lse && wanted) dz = tni_like(ctx, z);
    if (!lse || (wanted && !dz)) return NULL;
    tn_call c = tni_call(TN_KERNEL_CROSS_ENTROPY, "rf:ttt", z, labels, loss, lse, ctx->fault);
    if (dz) tni_out_rows(&c, dz);
    c.i[0] = ignores;
    c.i[1] = ignored;
    return tni_recorded(ctx, &c, tni_cross_entropy_backward, loss, z, NULL, NULL, dz);
}

tn_tensor *tn_cross_entropy(tn_ctx *ctx, tn_tensor *z, tn_tensor *labels)
{
    return tni_cross_entropy(ctx, "cross_entropy", z, labels, false, 0);
}

tn_tensor *tn_cross_entropy_ignore(tn_ctx *ctx, tn_tensor *z, tn_tensor *labels, int32_t ignore_index)
{
    return tni_cross_entropy(ctx, "cross_entropy_ignore", z, labels, true, ignore_index);
}
#endif

#define TNI_AGAIN "ops/loss.c"
#include "ops/again.h"
