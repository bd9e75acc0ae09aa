#include "core/inner.h"
#include "tensor/inner.h"
#include "comm/comm.h"
#include "ops/inner.h"
#include "optim/inner.h"

#ifndef TN_NO_TRAINING
/* ---- graphs --------------------------------------------------------------------------- >>graph-run
   The backend keeps kernels, numbers and addresses. The state that the host keeps is here: which owned tensors a graph
   uses, which of them are gradients known to be zero (the first writer then overwrites), how many random calls a step
   makes, and which optimisers step. The host's changes of a captured step are undone at its end and repeated by each
   replay. */

/* A step of many processes needs the host. */
bool tn_graph_supported(const tn_ctx *ctx)
{
    return ctx && ctx->backend->capture_begin != NULL && tn_comm_size(ctx) == 1;
}

static void tni_graph_destroy(tni_owned *owned)
{
    tn_graph  *g = (tn_graph *)(void *)owned;
    tn_ctx    *ctx = owned->ctx;
    tn_graph **link = &ctx->graphs;
    while (*link && *link != g) link = &(*link)->next;
    if (*link) *link = g->next;
    if (g->recorded) ctx->backend->graph_release(ctx->state, g->recorded);
    tni_free(ctx, g->used, (size_t)g->used_count * sizeof *g->used);
    tni_disown(owned);
    tni_free(ctx, g, sizeof *g);
}

void tn_graph_destroy(tn_graph *g) { if (g && g != g->owned.ctx->capture) tni_graph_destroy(&g->owned); }

tn_status tn_graph_begin(tn_ctx *ctx)
{
    char why[TN_WHY] = "";
    if (!ctx) return TN_ERR_ARG;
    if (ctx->status != TN_OK) return ctx->status;
    if (!tn_graph_supported(ctx))
        return tni_fail(ctx, TN_ERR_BACKEND, "graph: backend %s cannot capture (tn_graph_supported)", ctx->backend->name);
    if (ctx->capture) return tni_fail(ctx, TN_ERR_ARG, "graph: a capture is running, expected tn_graph_end before the next");
    if (!tni_not_aside(ctx, "graph")) return TN_ERR_ARG;
    tn_graph *g = (tn_graph *)tni_alloc(ctx, sizeof *g, "graph");
    if (!g) return TN_ERR_MEMORY;
    memset(g, 0, sizeof *g);
    tn_ctx_reset(ctx);
    g->seed = ctx->desc.seed;
    memcpy(g->kernel_calls, ctx->kernel_calls, sizeof g->kernel_calls);
    for (tn_tensor *t = ctx->owned_tensors; t; t = t->next) {
        t->flags &= ~(uint32_t)(TNI_NOTED | TNI_WAS_ZEROED);
        if (t->flags & TNI_ZEROED) t->flags |= TNI_WAS_ZEROED;
        if (t->compact) t->compact->was_stale = t->compact->stale;
    }
    tni_own(ctx, &g->owned, tni_graph_destroy);
    tn_status s = ctx->backend->capture_begin(ctx->state, why);
    if (s != TN_OK) {
        tni_graph_destroy(&g->owned);
        return tni_fail(ctx, s, "graph: backend %s: %s", ctx->backend->name, why);
    }
    ctx->capture = g;
    ctx->capture_end = tn_graph_end;
    ctx->spoilt = TN_OK;
    return TN_OK;
}

static void tni_zeroed_set(tn_tensor *t, bool zero)
{
    t->flags &= ~(uint32_t)TNI_ZEROED;
    if (zero) t->flags |= TNI_ZEROED;
}

/* Makes the list of tensors that the capture has used, if `wanted`. The marks of gradients and of shadows become those from
   before it. */
static tn_status tni_graph_collect(tn_ctx *ctx, tn_graph *g, bool wanted)
{
    int64_t n = 0;
    for (tn_tensor *t = ctx->owned_tensors; t; t = t->next) n += (t->flags & TNI_NOTED) != 0;
    if (wanted && n > 0) g->used = (tni_used *)tni_array(ctx, n, sizeof *g->used, "graph");
    for (tn_tensor *t = ctx->owned_tensors; t; t = t->next) {
        const bool zero = (t->flags & TNI_WAS_ZEROED) != 0;
        if ((t->flags & TNI_NOTED) && g->used) {
            g->used[g->used_count].tensor = t;
            g->used[g->used_count].zero_before = zero;
            g->used[g->used_count].shadow_before = t->compact && t->compact->shadow && !t->compact->was_stale;
            g->used[g->used_count].shadow_after = tni_shadow_holds(t);
            g->used[g->used_count++].zero_after = (t->flags & TNI_ZEROED) != 0;
            t->flags |= TNI_GRAPHED;
        }
        tni_zeroed_set(t, zero);
        if (t->compact) t->compact->stale = t->compact->was_stale;
    }
    return wanted && n > 0 && !g->used ? TN_ERR_MEMORY : TN_OK;
}

tn_status tn_graph_end(tn_ctx *ctx, tn_graph **out)
{
    char why[TN_WHY] = "";
    if (out) *out = NULL;
    if (!ctx) return TN_ERR_ARG;
    tn_graph *g = ctx->capture;
    if (!g) return tni_fail(ctx, TN_ERR_ARG, "graph: no capture is running, expected tn_graph_begin before");
    if (!out) tni_fail(ctx, TN_ERR_ARG, "graph: out is NULL, so the capture was discarded");
    ctx->capture = NULL;
    if (ctx->status == TN_OK && ctx->spoilt != TN_OK) {        /* an error that was cleared: calls are missing */
        ctx->status = ctx->spoilt;
        memcpy(ctx->error, ctx->spoilt_by, sizeof ctx->error);
    }
    tn_status s = ctx->backend->capture_end(ctx->state, &g->recorded, why);
    if (s != TN_OK) tni_fail(ctx, s, "graph: backend %s: %s", ctx->backend->name, why);
    s = tni_graph_collect(ctx, g, ctx->status == TN_OK);
    for (int i = 0; i < g->optims; i++) g->optim[i]->steps = g->steps[i];
    for (int i = 0; i < TN_KERNEL_COUNT; i++) {
        const uint64_t before = g->kernel_calls[i];
        g->kernel_calls[i] = ctx->kernel_calls[i] - before;
        ctx->kernel_calls[i] = before;
    }
    g->calls = ctx->calls;
    ctx->calls = 0;
    tn_ctx_reset(ctx);
    if (ctx->status != TN_OK) {
        s = ctx->status;
        tni_graph_destroy(&g->owned);
        return s;
    }
    g->next = ctx->graphs;
    ctx->graphs = g;
    *out = g;
    return s;
}

static tn_status tni_graph_check(const tn_graph *g)
{
    tn_ctx *ctx = g->owned.ctx;
    if (ctx->status != TN_OK) return ctx->status;
    if (!tni_uncaptured(ctx, "another one is run") || !tni_not_aside(ctx, "graph")) return TN_ERR_ARG;
    if (g->lost[0]) return tni_fail(ctx, TN_ERR_ARG, "graph: %s, so it must be captured again", g->lost);
    if (g->seed != ctx->desc.seed)
        return tni_fail(ctx, TN_ERR_ARG, "graph: the context's seed has changed, so it must be captured again");
    for (int64_t i = 0; i < g->used_count; i++) {
        const tn_tensor *t = g->used[i].tensor;
        const bool       zero = (t->flags & TNI_ZEROED) != 0;
        if (zero != g->used[i].zero_before)
            return tni_fail(ctx, TN_ERR_ARG, "graph: the gradient %s is %s, expected %s as at the capture", TNI_SHAPE(t),
                            zero ? "zero" : "not zero", zero ? "one that is not zero" : "zero");
    }
    return TN_OK;
}

tn_status tn_graph_run(tn_graph *g)
{
    tn_status s;
    if (!g) return TN_ERR_ARG;
    tn_ctx *ctx = g->owned.ctx;
    if ((s = tni_graph_check(g)) != TN_OK) return s;
    tn_ctx_reset(ctx);
    for (int64_t i = 0; i < g->optims && s == TN_OK; i++) s = tni_optim_tell(g->optim[i]);
    for (int64_t i = 0; i < g->used_count && s == TN_OK; i++)
        if (g->used[i].shadow_before || g->used[i].shadow_after) s = tni_shadow_renew(g->used[i].tensor);
    if (s != TN_OK) return s;
    s = ctx->backend->replay(ctx->state, g->recorded);
    if (s != TN_OK) return tni_backend_fail(ctx, s, "graph");
    for (int64_t i = 0; i < g->optims; i++) {
        g->optim[i]->steps++;
        ctx->describe = tni_optim_describe;
        ctx->describe_with = g->optim[i];
    }
    for (int64_t i = 0; i < g->used_count; i++) {
        tni_zeroed_set(g->used[i].tensor, g->used[i].zero_after);
        if (!g->used[i].shadow_after && tni_shadow_holds(g->used[i].tensor)) g->used[i].tensor->compact->stale = true;
    }
    for (int64_t i = 0; i < TN_KERNEL_COUNT; i++) ctx->kernel_calls[i] += g->kernel_calls[i];
    ctx->calls = g->calls;
    return TN_OK;
}
#endif /* TN_NO_TRAINING */
