#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"

/* ======================================================================
   >>tape     recorded operations and the backward pass
   There is one node per recorded op, newest first. A gradient is made when something is first added to it. The
   gradient of a view is the same view of its base's gradient, so views need no nodes. An intermediate's gradient
   is complete when the backward pass reaches the op that made it, because all its readers were recorded later.
   ====================================================================== */

#ifdef TN_NO_TRAINING
/* Nothing is recorded; the compiler drops the unused backward functions. */
TNI_FN bool tni_recording(const tn_ctx *ctx) { (void)ctx; return false; }

TNI_FN tni_node *tni_note_all(tn_ctx *ctx, tni_backward_fn backward, tn_tensor *out, tn_tensor *a, tn_tensor *b,
                              tn_tensor *c)
{
    (void)ctx; (void)backward; (void)out; (void)a; (void)b; (void)c;
    return NULL;
}

TNI_FN tni_node *tni_note(tn_ctx *ctx, tni_backward_fn backward, tn_tensor *out, tn_tensor *a, tn_tensor *b, tn_tensor *c)
{
    return tni_note_all(ctx, backward, out, a, b, c);
}
#else
TNI_FN bool tni_recording(const tn_ctx *ctx) { return ctx->recording; }

TNI_FN tni_node *tni_note_all(tn_ctx *ctx, tni_backward_fn backward, tn_tensor *out, tn_tensor *a, tn_tensor *b,
                              tn_tensor *c)
{
    tni_node *n = (tni_node *)tni_arena_take(ctx, &ctx->heads[ctx->head], sizeof *n);
    if (!n) return NULL;
    memset(n, 0, sizeof *n);
    n->before = ctx->tape;
    n->backward = backward;
    n->out = out;
    n->in[0] = a; n->in[1] = b; n->in[2] = c;
    out->flags |= TNI_WANTS_GRAD;
    ctx->tape = n;
    return n;
}

/* Adds a node while recording, if one of the inputs needs a gradient; the caller adds what the backward pass needs. */
TNI_FN tni_node *tni_note(tn_ctx *ctx, tni_backward_fn backward, tn_tensor *out, tn_tensor *a, tn_tensor *b, tn_tensor *c)
{
    if (!tni_recording(ctx) || !out || !(tni_wants_grad(a) || tni_wants_grad(b) || tni_wants_grad(c))) return NULL;
    return tni_note_all(ctx, backward, out, a, b, c);
}
#endif

/* Memory for an intermediate gradient: that of a gradient no longer needed, or new. */
TNI_FN tn_tensor *tni_grad_new(tn_tensor *t)
{
    tn_ctx     *ctx = t->ctx;
    tn_tensor **link = &ctx->idle, *g;
    if (t->flags & TNI_PARAM) {
        g = tn_tensor_create(ctx, t->dtype, t->rank, t->shape);
        if (g) g->flags |= TNI_ZEROED;
        return g;
    }
    while (*link && (*link)->bytes != t->bytes) link = &(*link)->next;
    g = *link;
    if (!g) return tn_tensor_nd(ctx, t->dtype, t->rank, t->shape);
    *link = g->next;
    g->next = NULL;
    g->dtype = t->dtype;
    g->rank = t->rank;
    memcpy(g->shape, t->shape, sizeof g->shape);
    memcpy(g->strides, t->strides, sizeof g->strides);
    return g;
}

TNI_FN tn_tensor *tni_grad_to_add(tn_tensor *t);

/* Makes dy, the gradient of n's output, the gradient of t as well, without a copy: for ops that pass it on as it is. False
   if t has a gradient already, or one that must have bytes of its own. Then it has to be added. */
TNI_FN bool tni_grad_pass(const tni_node *n, tn_tensor *t)
{
    tn_tensor *dy = n->out->grad;
    tn_tensor *to = t->base ? t->base : t;
    if (to->grad || ((to->flags | n->out->flags) & (TNI_PARAM | TNI_WATCHED)) || to->dtype != dy->dtype) return false;
    if (tni_root(dy)->flags > UINT32_MAX - TNI_HOLDER) return false;        /* no more holders can be counted */
    if (!tn_tensor_is_contiguous(t) || tn_tensor_count(t) != tn_tensor_count(to) || tn_tensor_count(t) != tn_tensor_count(dy))
        return false;
    tn_tensor *g = tni_view_of(to);
    if (!g) return true;                                    /* the context has the error */
    g->data = dy->data;
    g->base = dy->base ? dy->base : dy;
    g->base->flags += TNI_HOLDER;
    to->grad = g;
    to->flags |= TNI_GRAD_USED;
    return true;
}

/* t no longer has its gradient; the memory is free if no other tensor has it. */
static void tni_grad_leave(tn_ctx *ctx, tn_tensor *t)
{
    tn_tensor *g = t->grad->base ? t->grad->base : t->grad;
    t->grad = NULL;
    if (g->flags >= TNI_HOLDER) {
        g->flags -= TNI_HOLDER;
        return;
    }
    g->next = ctx->idle;
    ctx->idle = g;
}

/* Before something is added to a gradient that other tensors have as well: a copy for t alone. */
TNI_FN bool tni_grad_part(tn_tensor *t)
{
    tn_tensor *shared = t->grad;
    if (tni_root(shared)->flags < TNI_HOLDER) return true;
    tn_tensor *own = tni_grad_new(t);
    if (!own || tni_copy(own, shared) != TN_OK) return false;
    tni_grad_leave(t->ctx, t);
    t->grad = own;
    return true;
}

/* The part of its base's gradient g that belongs to the view t. */
TNI_FN tn_tensor *tni_grad_view(tn_tensor *t, tn_tensor *g)
{
    tn_tensor *v = g ? tni_view_of(t) : NULL;
    if (!v) return NULL;
    v->data = (char *)g->data + ((char *)t->data - (char *)t->base->data);
    v->base = g->base ? g->base : g;
    return v;
}

/* The gradient of t, or NULL if t needs none. *add: accumulate; the first writer overwrites instead. The gradient of a
   view of a part is added to zeros. */
TNI_FN tn_tensor *tni_grad(tn_tensor *t, bool *add)
{
    *add = true;
    if (!tni_wants_grad(t)) return NULL;
    if (t->base) {
        bool whole = tn_tensor_is_contiguous(t) && tn_tensor_count(t) == tn_tensor_count(t->base);
        return tni_grad_view(t, whole ? tni_grad(t->base, add) : tni_grad_to_add(t->base));
    }
    if (!t->grad) t->grad = tni_grad_new(t);
    if (!t->grad || !tni_grad_part(t)) return NULL;
    if ((t->grad->flags & (TNI_SENT | TNI_ZEROED)) == TNI_SENT)
        return tni_fail(t->ctx, TN_ERR_ARG, "backward: something is added to the gradient of a parameter %s, which the "
                        "processes have averaged; expected tn_optim_step before", TNI_SHAPE(t)), (tn_tensor *)NULL;
    *add = !tni_grad_is_new(t);
    t->grad->flags &= ~(uint32_t)(TNI_ZEROED | TNI_SENT);
    t->flags |= TNI_GRAD_USED;
    return t->grad;
}

/* The same for a writer that can only accumulate. */
TNI_FN tn_tensor *tni_grad_to_add(tn_tensor *t)
{
    bool       add;
    tn_tensor *g = tni_grad(t, &add);
    return !g || add || tni_fill(g, 0) == TN_OK ? g : NULL;
}

/* Runs the call with the gradient of t as call.out[0], if t needs one. as: a letter of tni_call */
TNI_FN void tni_run_grad(tn_ctx *ctx, tn_call *call, tn_tensor *t, char as)
{
    tn_tensor *g = tni_grad(t, &call->accumulate);
    if (!g) return;
    call->out[0] = as == 'r' ? tni_rows_view(g) : as == 'f' ? tni_flat_view(g) : tni_view(g);
    call->n_out = (int)tni_max(call->n_out, 1);
    tni_run(ctx, call);
}

#ifndef TN_NO_TRAINING
void tn_record(tn_ctx *ctx)
{
    if (!ctx || !tni_not_aside(ctx, "record")) return;
    tni_tape_clear(ctx);
    ctx->recording = true;
}

tn_status tn_watch(tn_tensor *t)
{
    if (!tni_alive(t)) return TN_ERR_ARG;
    if ((t->flags & TNI_OWNED) || t->base || !tni_computes(t->ctx, t->dtype))
        return tni_fail(t->ctx, TN_ERR_ARG, "watch: %s is %s %s, expected an arena tensor of the context's dtype",
                        TNI_SHAPE(t), t->flags & TNI_OWNED ? "an owned tensor of" : t->base ? "a view of" : "a tensor of",
                        tn_dtype_name(t->dtype));
    t->flags |= TNI_WATCHED | TNI_WANTS_GRAD;
    return TN_OK;
}

TNI_FN void tni_grad_done(tn_ctx *ctx, tn_tensor *t)
{
    if (!t->grad || (t->flags & TNI_WATCHED)) return;
    tni_grad_leave(ctx, t);
    t->flags &= ~(uint32_t)TNI_GRAD_USED;
}

static tn_status tni_backward_check(tn_ctx *ctx, const tn_tensor *loss)
{
    if (ctx->status != TN_OK || !tni_usable(ctx, loss, "backward", "loss")) return ctx->status;
    if (tn_tensor_count(loss) != 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "backward: loss is %s, expected one element", TNI_SHAPE(loss));
    if (!ctx->tape || !tni_wants_grad(loss))
        return tni_fail(ctx, TN_ERR_ARG, "backward: loss leads to no parameter, expected tn_record before the forward pass");
    return TN_OK;
}

static void tni_add_number(tn_tensor *t, double value)
{
    tn_ctx    *ctx = t->ctx;
    tn_tensor *number = tn_tensor_nd(ctx, TN_REAL, 0, NULL);
    if (!number || tni_fill(number, value) != TN_OK) return;
    tn_call c = tni_call(TN_KERNEL_ADD, "t:t", number, t);
    c.in[0].rank = t->rank;                                 /* its strides are zero already */
    memcpy(c.in[0].shape, t->shape, sizeof t->shape);
    c.f[0] = 1;
    c.accumulate = true;
    tni_run(ctx, &c);
}

/* Runs the backward functions from the newest node to the first, until one fails. */
TNI_FN void tni_tape_back(tn_ctx *ctx)
{
    for (const tni_node *n = ctx->tape; n && ctx->status == TN_OK; n = n->before) {
        if (n->out->grad) {
            n->backward(ctx, n);
            tni_grad_done(ctx, n->out);
        }
        if (ctx->on_node && !ctx->aside) ctx->on_node(ctx, n->before);
    }
}

tn_status tn_backward(tn_ctx *ctx, tn_tensor *loss)
{
    bool add;
    if (!ctx || !tni_not_aside(ctx, "backward")) return TN_ERR_ARG;
    ctx->recording = false;
    tn_tensor *g = tni_backward_check(ctx, loss) == TN_OK ? tni_grad(loss, &add) : NULL;
    if (g && add) tni_add_number(g, 1);                     /* a parameter with the gradient of an earlier pass */
    else if (g && tni_fill(g, 1) == TN_OK && !(loss->flags & TNI_PARAM)) loss->flags |= TNI_SEED;
    if (ctx->on_node && ctx->status == TN_OK) ctx->on_node(ctx, ctx->tape);
    tni_tape_back(ctx);
    if (ctx->on_node) ctx->on_node(ctx, NULL);              /* after an error */
    tni_tape_clear(ctx);
    return ctx->status;
}

#endif /* TN_NO_TRAINING */
