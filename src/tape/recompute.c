#include "core/inner.h"
#include "tensor/inner.h"
#include "comm/inner.h"
#include "tape/inner.h"

#ifndef TN_NO_TRAINING
/* ---- recompute ---------------------------------------------------------- >>recompute
   Tensors made by fn are kept apart: their bytes are in an arena of their own, their headers after a mark, their nodes
   on a tape of their own. When fn returns for the first time, all are released except for a copy of its result. The
   second time the backward pass goes over that tape; gradients of the inputs accumulate in place, so that their sums
   have the same order. */

typedef struct tni_again { tn_recompute_fn fn; const void *with; int64_t first, calls; } tni_again;

/* The outer state, which is restored afterwards. */
typedef struct tni_aside { tn_tensor *idle, *newest; tn_mark mark; } tni_aside;

static tni_aside tni_step_aside(tn_ctx *ctx)
{
    tni_aside a;
    a.idle = ctx->idle;
    a.newest = ctx->arena_tensors;
    ctx->waiting = ctx->tape;
    ctx->tape = NULL;
    ctx->idle = NULL;
    ctx->aside = 1;
    ctx->recording = true;                                  /* dropout acts both times */
    a.mark = tn_arena_mark(ctx);
    return a;
}

/* Returns an outer arena tensor whose gradient was made inside fn and is lost, or NULL. */
static tn_tensor *tni_step_back(tn_ctx *ctx, const tni_aside *a, bool recording)
{
    tn_tensor *bereft = tni_arena_back(ctx, a->mark, a->newest);
    ctx->tape = ctx->waiting;
    ctx->waiting = NULL;
    ctx->idle = a->idle;
    ctx->aside = 0;
    ctx->recording = recording;
    return bereft;
}

/* Makes the gradient of an input in advance, so that it is in the outer arena (a parameter's gradient always is). True:
   it is new, and is removed again if nothing is added to it. */
static bool tni_grad_early(tn_tensor *in)
{
    tn_tensor *t = in && in->base ? in->base : in;
    if (!tni_wants_grad(t) || (t->flags & TNI_PARAM)) return false;
    if (t->grad) {
        tni_grad_part(t);                                   /* its own copy of a shared one has to be outside, too */
        return false;
    }
    t->grad = tni_grad_new(t);
    return t->grad != NULL;
}

static void tni_recompute_backward(tn_ctx *ctx, const tni_node *n)
{
    const tni_again *again = (const tni_again *)n->with;
    const int64_t    calls = ctx->calls;
    bool             early[3];
    if (ctx->params_doomed) {                               /* fn would read the structs that they were in */
        tni_fail(ctx, TN_ERR_ARG, "recompute: parameters were destroyed since, expected tn_backward before");
        return;
    }
    for (int i = 0; i < 3; i++) early[i] = tni_grad_early(n->in[i]);
    tni_aside a = tni_step_aside(ctx);
    ctx->calls = again->first;
    tn_tensor *y = again->fn(ctx, again->with, n->in);
    ctx->recording = false;
    if (y && (!tni_same_shape(y, n->out) || ctx->calls - again->first != again->calls))
        tni_fail(ctx, TN_ERR_ARG, "recompute: the second run of fn gave %s and %lld random calls, expected %s and %lld",
                 TNI_SHAPE(y), (long long)(ctx->calls - again->first), TNI_SHAPE(n->out), (long long)again->calls);
    else if (y) {
        tn_call c = tni_call(TN_KERNEL_ADD, "t", n->out->grad);
        c.f[0] = 1;
        tni_run_grad(ctx, &c, y, 't');
        tni_tape_back(ctx);
    } else if (ctx->status == TN_OK)
        tni_fail(ctx, TN_ERR_ARG, "recompute: the second run of fn gave NULL, expected %s", TNI_SHAPE(n->out));
    ctx->calls = calls;
    tn_tensor *bereft = tni_step_back(ctx, &a, false);
    for (int i = 0; i < 3; i++) {
        tn_tensor *t = n->in[i] && n->in[i]->base ? n->in[i]->base : n->in[i];
        if (!early[i] || (t->flags & TNI_GRAD_USED)) continue;
        tni_grad_done(ctx, t);                              /* nothing was added */
        t->grad = NULL;
    }
    if (bereft && ctx->status == TN_OK)
        tni_fail(ctx, TN_ERR_ARG, "recompute: fn reads %s, which needs a gradient, expected it among the inputs",
                 TNI_SHAPE(bereft));
}

static bool tni_recompute_given(tn_ctx *ctx, tn_recompute_fn fn, const void *with, size_t bytes, int n, tn_tensor *const *in)
{
    if (!ctx) return false;
    if (!tni_within(ctx, "recompute", "the number of inputs", n, 0, 3)) return false;
    if (!fn || (n > 0 && !in) || (bytes > 0 && !with))
        return tni_fail(ctx, TN_ERR_ARG, "recompute: %s is NULL", !fn ? "fn" : n > 0 && !in ? "in" : "with"), false;
    for (int i = 0; i < n; i++) if (in[i] && !tni_usable(ctx, in[i], "recompute", "an input")) return false;
    return true;
}

/* A contiguous copy of a tensor of fn in the outer arena; it needs a gradient if the tensor does. */
static tn_tensor *tni_recompute_keep(tn_ctx *ctx, const tni_aside *a, const tn_tensor *result)
{
    tn_tensor kept, *y = NULL;
    size_t    bytes = 0;
    bool      there = result && tni_usable(ctx, result, "recompute", "what fn returned")
                   && tni_shape_bytes(ctx, "tensor", result->dtype, result->rank, result->shape, &bytes);
    if (there) {
        tni_fill_header(&kept, ctx, result->dtype, result->rank, result->shape);
        kept.data = tni_arena_take(ctx, &ctx->data[0], bytes ? bytes : 1);
        if (tni_wants_grad(result)) kept.flags |= TNI_WANTS_GRAD;
        there = kept.data && tni_copy(&kept, result) == TN_OK;
    }
    tni_step_back(ctx, a, true);
    if (there) y = tni_header(ctx, kept.dtype, kept.rank, kept.shape);
    if (!y) return NULL;
    y->data = kept.data;
    y->bytes = bytes;
    y->flags = kept.flags;
    return y;
}

/* The parameters that nodes of fn read are a list of the outer node: so it is known when their gradients are complete. */
static void tni_recompute_seeks(const tni_node *inner)
{
    for (; inner; inner = inner->before) {
        tn_tensor *const few[5] = {inner->in[0], inner->in[1], inner->in[2], inner->saved[0], inner->saved[1]};
        for (int64_t i = 0; i < 5 + inner->n_list; i++) {
            tn_tensor *t = i < 5 ? few[i] : inner->list[i - 5], *root = t && t->base ? t->base : t;
            if (root && (root->flags & TNI_PARAM)) root->flags |= TNI_SOUGHT;
        }
    }
}

static tn_tensor **tni_recompute_found(tn_ctx *ctx, int64_t *count)
{
    tn_tensor *t;
    for (t = ctx->owned_tensors; t; t = t->next) *count += (t->flags & TNI_SOUGHT) != 0;
    tn_tensor **list = tni_arena_list(ctx, tni_max(*count, 1));
    for (*count = 0, t = ctx->owned_tensors; t; t = t->next) {
        if (list && (t->flags & TNI_SOUGHT)) list[(*count)++] = t;
        t->flags &= ~(uint32_t)TNI_SOUGHT;
    }
    return list;
}

tn_tensor *tn_recompute(tn_ctx *ctx, tn_recompute_fn fn, const void *with, size_t bytes, int n, tn_tensor *const *in)
{
    tn_tensor *all[3] = {NULL, NULL, NULL}, **read = NULL;
    int64_t    n_read = 0;
    void      *copy = NULL;
    if (!tni_recompute_given(ctx, fn, with, bytes, n, in)) return NULL;
    for (int i = 0; i < n; i++) all[i] = in[i];
    if (!tni_recording(ctx) || ctx->aside) return fn(ctx, with, all);
    tni_again *again = (tni_again *)tni_arena_take(ctx, &ctx->heads[ctx->head], sizeof *again);
    if (again && bytes > 0) copy = tni_arena_take(ctx, &ctx->heads[ctx->head], bytes);
    if (!again || (bytes > 0 && !copy)) return NULL;
    if (bytes > 0) memcpy(copy, with, bytes);
    again->fn = fn;
    again->with = copy;
    again->first = ctx->calls;
    tni_aside  a = tni_step_aside(ctx);
    tn_tensor *y = fn(ctx, copy, all);
    if (tni_comm(ctx)) tni_recompute_seeks(ctx->tape);
    y = tni_recompute_keep(ctx, &a, y);
    if (tni_comm(ctx) && !(read = tni_recompute_found(ctx, &n_read))) return NULL;
    again->calls = ctx->calls - again->first;
    if (y && tni_wants_grad(y)) {
        tni_node *node = tni_note_all(ctx, tni_recompute_backward, y, all[0], all[1], all[2]);
        if (!node) return NULL;
        node->with = again;
        node->list = read;
        node->n_list = n_read;
    }
    return y;
}
#endif /* TN_NO_TRAINING */
