#include "core/inner.h"

#ifndef TN_NO_TRAINING
/* ======================================================================
   >>graph    the host's record of a captured step, see >>graph-run
   It lists the owned tensors that the step uses, so that a graph whose tensor was destroyed is not replayed.
   ====================================================================== */

/* Adds the owned tensors among a call's operands to the graph's list. */
static void tni_graph_notes(tn_ctx *ctx, const tn_call *call)
{
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const char *p = (const char *)(i < call->n_in ? call->in[i].data : call->out[i - call->n_in].data);
        tn_tensor  *t = p ? ctx->owned_tensors : NULL;
        while (t && !(p >= (const char *)t->data && p < (const char *)t->data + (t->bytes ? t->bytes : 1))) t = t->next;
        if (t) t->flags |= TNI_NOTED;
    }
}

/* Makes all graphs that use a tensor (NULL: all graphs) invalid. */
TNI_FN void tni_graphs_lose(tn_ctx *ctx, const tn_tensor *used, const char *why)
{
    int64_t i;
    for (tn_graph *g = ctx->graphs; g; g = g->next) {
        for (i = 0; used && i < g->used_count && g->used[i].tensor != used; i++) {}
        if (g->lost[0] || (used && i == g->used_count)) continue;
        if (used) tni_print(g->lost, sizeof g->lost, "a tensor %s that the graph uses %s", TNI_SHAPE(used), why);
        else tni_print(g->lost, sizeof g->lost, "%s", why);
    }
}
#endif /* TN_NO_TRAINING */

/* ======================================================================
   >>nodes    the nodes of the tape, and whether they read a tensor; see >>tape
   A tensor that the backward pass will read must not be written.
   ====================================================================== */

static bool tni_nodes_read(const tni_node *n, const tn_tensor *t)
{
    for (; n; n = n->before) {
        if (tni_root(n->out) == tni_root(t)) return true;
        for (int64_t i = 0; i < 3; i++) if (n->in[i] && tni_root(n->in[i]) == tni_root(t)) return true;
        for (int64_t i = 0; i < 2; i++) if (n->saved[i] && tni_root(n->saved[i]) == tni_root(t)) return true;
        for (int64_t i = 0; i < n->n_list; i++) if (tni_root(n->list[i]) == tni_root(t)) return true;
        if (n->with && (tni_root(t)->flags & TNI_OWNED)) return true;       /* fn may read any of them */
    }
    return false;
}

/* Will the backward pass read t? */
TNI_FN bool tni_tape_reads(const tn_ctx *ctx, const tn_tensor *t)
{
    return tni_nodes_read(ctx->tape, t) || tni_nodes_read(ctx->waiting, t);
}

/* ======================================================================
   >>dispatch chooses the implementation of a kernel call
   The backend's own kernel is run, or a composition of its other kernels, or the reference kernel on the host.
   BF16 operands are copied to F32 for kernels that do not take them.
   ====================================================================== */

const char *tn_kernel_name(tn_kernel k)
{
#define TNI_X(ENUM, name) #name,
    static const char *const name[] = { TN_KERNELS(TNI_X) "?" };
#undef TNI_X
    return name[(unsigned)k < TN_KERNEL_COUNT ? k : TN_KERNEL_COUNT];
}

uint64_t tn_ctx_kernel_calls(const tn_ctx *ctx, tn_kernel k)
{
    return ctx && (unsigned)k < TN_KERNEL_COUNT ? ctx->kernel_calls[k] : 0;
}

/* The bytes that a view spans, from its lowest address: they are copied when a kernel runs on the host. */
TNI_FN void tni_view_span(const tn_view *v, char **low, size_t *bytes)
{
    int64_t first = 0, last = 0;
    *bytes = 0;
    *low = (char *)v->data;
    for (int i = 0; i < v->rank; i++) {
        if (v->shape[i] == 0) return;
        if (v->strides[i] < 0) first += (v->shape[i] - 1) * v->strides[i];
        else last += (v->shape[i] - 1) * v->strides[i];
    }
    *low += first * (int64_t)tni_dtype_size(v->dtype);
    *bytes = (size_t)(last - first + 1) * tni_dtype_size(v->dtype);
}

/* The function given to tn_recompute must not reset the arena, start a recording or run a backward pass. */
TNI_FN bool tni_not_aside(tn_ctx *ctx, const char *what)
{
    if (!ctx->aside) return true;
    return tni_fail(ctx, TN_ERR_ARG, "%s: called inside a function that tn_recompute runs, expected a call outside of it",
                    what), false;
}

/* A graph holds kernel calls only; false with an error that names `what`, which needs the host, during a capture. */
TNI_FN bool tni_uncaptured(tn_ctx *ctx, const char *what)
{
    if (!ctx->capture) return true;
    return tni_fail(ctx, TN_ERR_ARG, "graph: %s during a capture, expected kernels only", what), false;
}

/* Takes the message from the backend's sync. It may be of an earlier error than s, whose status then replaces s. */
TNI_FN tn_status tni_backend_fail(tn_ctx *ctx, tn_status s, const char *what)
{
    char            why[TN_WHY] = "";
    const tn_status synced = ctx->backend->sync ? ctx->backend->sync(ctx->state, why) : TN_OK;
    if (synced != TN_OK) s = synced;
    return tni_fail(ctx, s, "%s: backend %s: %s", what, ctx->backend->name, why[0] ? why : tn_status_name(s));
}

TNI_FN tn_status tni_to_device(tn_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    if (!tni_uncaptured(ctx, "host memory is copied") || !TNI_ENTER(ctx, "upload")) return TN_ERR_ARG;
    tn_status s = ctx->backend->upload(ctx->state, dst, src, bytes);
    TNI_LEAVE(ctx);
    return s;
}

TNI_FN tn_status tni_to_host(tn_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    if (!tni_uncaptured(ctx, "device memory is read") || !TNI_ENTER(ctx, "download")) return TN_ERR_ARG;
    tn_status s = ctx->backend->download(ctx->state, dst, src, bytes);
    TNI_LEAVE(ctx);
    return s;
}

/* The bytes of an operand and their copy on the host. Operands that overlap, such as views of one tensor, share a copy. */
typedef struct tni_host_copy { char *low; size_t bytes; void *host; bool shared; } tni_host_copy;

/* Extends overlapping spans to their union. */
static void tni_host_copy_join(tni_host_copy *l, int n)
{
    int  i;
    bool again = true;
    while (again)
        for (again = false, i = 0; i < n; i++)
            for (int k = 0; k < i; k++) {
                char *low = l[k].low < l[i].low ? l[k].low : l[i].low;
                if (l[k].bytes == 0 || l[i].bytes == 0) continue;        /* absent, or without elements */
                char *end = l[k].low + l[k].bytes, *other = l[i].low + l[i].bytes;
                if (l[i].low >= end || l[k].low >= other || (l[i].low == l[k].low && end == other)) continue;
                l[i].low = l[k].low = low;
                l[i].bytes = l[k].bytes = (size_t)((end > other ? end : other) - low);
                again = true;
            }
}

/* Copies operand i to the host, unless an earlier operand has the same span, and lets the view point to the copy. */
static tn_status tni_host_copy_get(tn_ctx *ctx, tni_host_copy *l, int i, tn_view *v)
{
    tn_status s = TN_OK;
    if (!v->data) return TN_OK;
    for (int k = 0; k < i && !l[i].shared; k++)
        if (l[k].host && l[i].bytes > 0 && l[k].low == l[i].low && l[k].bytes == l[i].bytes) {
            l[i].host = l[k].host;
            l[i].shared = true;
        }
    if (!l[i].shared) {
        l[i].host = tni_alloc(ctx, l[i].bytes, "kernel on the host");
        if (!l[i].host) return TN_ERR_MEMORY;
        s = tni_to_host(ctx, l[i].host, l[i].low, l[i].bytes);
    }
    v->data = (char *)l[i].host + ((char *)v->data - l[i].low);
    return s;
}

/* The host fallback: copies the operands to the host, runs the reference kernel, and copies the outputs back. */
static tn_status tni_run_on_host(tn_ctx *ctx, const tn_call *call)
{
    tn_call       host = *call;
    tni_host_copy l[TN_CALL_IN + TN_CALL_OUT];
    int           k, n = call->n_in + call->n_out;
    tn_status     s = TN_OK;
    if (ctx->capture)
        return tni_fail(ctx, TN_ERR_ARG, "graph: %s runs on the host, expected a kernel of backend %s",
                        tn_kernel_name(call->kernel), ctx->backend->name);
    if (!ctx->fallback_said[call->kernel])
        tni_log(ctx, TN_LOG_WARN, "%s: backend %s has no such kernel; it runs on the host", tn_kernel_name(call->kernel),
                ctx->backend->name);
    ctx->fallback_said[call->kernel] = true;
    memset(l, 0, sizeof l);
    for (int i = 0; i < n; i++) {
        const tn_view *v = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        if (v->data) tni_view_span(v, &l[i].low, &l[i].bytes);
    }
    tni_host_copy_join(l, n);
    for (int i = 0; i < n && s == TN_OK; i++)
        s = tni_host_copy_get(ctx, l, i, i < call->n_in ? &host.in[i] : &host.out[i - call->n_in]);
    if (s == TN_OK) s = ctx->reference(NULL, &host);
    for (int i = call->n_in; i < n && s == TN_OK; i++) {
        for (k = call->n_in; k < i && l[k].host != l[i].host; k++) {}
        if (k == i && l[i].host) s = tni_to_device(ctx, l[i].low, l[i].host, l[i].bytes);
    }
    for (int i = 0; i < n; i++) if (!l[i].shared) tni_free(ctx, l[i].host, l[i].bytes);
    return s;
}

/* The backend's kernel, or else its composition from simpler ones, or else the reference kernel on the host. */
static tn_status tni_run_plainly(tn_ctx *ctx, const tn_call *call)
{
    tn_kernel_fn fn = ctx->backend->fn[call->kernel];
    tn_status    s;
    if (fn) s = fn(ctx->state, call);
    else if (!ctx->compose(ctx, call, &s)) s = tni_run_on_host(ctx, call);
    return s;
}

/* ---- BF16 operands of kernels that compute in F32: copied, and the results cast back ---- >>dispatch-bf16
   The copies are in the arena during the call and are released after it. Results are rounded once, whether a kernel, a
   composition or the host computes them. */

/* COPY and FILL take any dtype. */
TNI_FN bool tni_call_has_bf16(const tn_call *c)
{
    bool has = false;
    if (c->kernel == TN_KERNEL_COPY || c->kernel == TN_KERNEL_FILL) return false;
    for (int i = 0; i < c->n_in; i++) has = has || tni_is_bf16(&c->in[i]);
    for (int i = 0; i < c->n_out; i++) has = has || tni_is_bf16(&c->out[i]);
    return has;
}

/* Does the call read the old numbers of its output k? */
TNI_FN bool tni_call_adds(const tn_call *c, int k)
{
    switch (c->kernel) {
    case TN_KERNEL_GEMM:                      return c->f[1] != 0;
    case TN_KERNEL_EMBED_BACKWARD:            return true;
    case TN_KERNEL_ATTENTION_BACKWARD:
    case TN_KERNEL_ATTENTION_LINEAR_BACKWARD: return k < 3 && c->accumulate;
    case TN_KERNEL_RMSNORM_BACKWARD:
    case TN_KERNEL_LAYERNORM_BACKWARD:        return k > 0 || c->accumulate;
    default:                                  return k == 0 && c->accumulate;
    }
}

/* The elements of a view without repeats: a broadcast axis has extent 1. */
static tn_view tni_folded_view(tn_view v)
{
    for (int i = 0; i < v.rank; i++) if (v.strides[i] == 0) v.shape[i] = tni_min(v.shape[i], 1);
    return v;
}

/* Strides of the same elements without gaps, with the axes in their order in memory: a contiguous view stays contiguous, a
   transposed matrix stays transposed, and broadcast axes stay broadcast. */
static void tni_packed_strides(tn_view *v)
{
    const tn_view from = tni_folded_view(*v);
    bool    done[TN_MAX_RANK] = {false};
    int64_t stride = 1;
    for (int k = 0; k < from.rank; k++) {
        int next = -1;
        for (int i = from.rank - 1; i >= 0; i--) {
            if (done[i] || from.strides[i] == 0) continue;
            if (next < 0 || tni_abs(from.strides[i]) < tni_abs(from.strides[next])) next = i;
        }
        if (next < 0) return;
        done[next] = true;
        v->strides[next] = stride;
        stride *= tni_max(from.shape[next], 1);
    }
}

TNI_FN tn_status tni_run(tn_ctx *ctx, const tn_call *call);

static tn_status tni_run_cast(tn_ctx *ctx, const tn_view *from, const tn_view *to)
{
    tn_call c = TNI_ZERO;
    c.kernel = TN_KERNEL_COPY;
    c.in[c.n_in++] = tni_folded_view(*from);
    c.out[c.n_out++] = tni_folded_view(*to);
    return tni_run(ctx, &c);
}

/* Replaces a BF16 operand by an F32 copy, with its numbers if `read`; an absent operand becomes F32, too. */
static tn_status tni_widen(tn_ctx *ctx, tn_view *v, bool read)
{
    const tn_view from = *v, all = tni_folded_view(from);
    size_t        bytes;
    if (from.dtype != TN_BF16) return TN_OK;
    v->dtype = TN_F32;
    if (!from.data) return TN_OK;
    if (!tni_extents_fit(TN_F32, all.rank, all.shape, &bytes))
        return tni_fail(ctx, TN_ERR_MEMORY, "cast: the F32 copy of a BF16 operand %s does not fit the address space",
                        tni_shape_of(all.rank, all.shape).s);
    v->data = tni_arena_take(ctx, &ctx->data[ctx->aside], bytes ? bytes : 1);
    if (!v->data) return TN_ERR_MEMORY;
    tni_packed_strides(v);
    return read ? tni_run_cast(ctx, &from, v) : TN_OK;
}

static tn_status tni_run_widened(tn_ctx *ctx, const tn_call *call)
{
    tni_arena   *data = &ctx->data[ctx->aside];
    const size_t at = data->at, used = data->used;
    tn_call      wide = *call;
    tn_status    s = TN_OK;
    for (int i = 0; i < call->n_in && s == TN_OK; i++) s = tni_widen(ctx, &wide.in[i], true);
    for (int i = 0; i < call->n_out && s == TN_OK; i++) s = tni_widen(ctx, &wide.out[i], tni_call_adds(call, i));
    if (s == TN_OK) s = tni_run_plainly(ctx, &wide);
    for (int i = 0; i < call->n_out && s == TN_OK; i++)
        if (tni_is_bf16(&call->out[i])) s = tni_run_cast(ctx, &wide.out[i], &call->out[i]);
    data->at = at;
    data->used = used;
    return s;
}

/* Whether a number that is given in double stays finite as one of dtype; else an error, because infinity times 0 is NaN. An
   argument that is itself infinite or NaN is passed on. */
TNI_FN bool tni_holds(tn_ctx *ctx, tn_dtype dtype, const char *op, const char *name, double x)
{
    if (dtype == TN_F64 || !(fabs(x) > tni_dtype_most(dtype)) || fabs(x) > tni_dtype_most(TN_F64)) return true;
    return tni_fail(ctx, TN_ERR_ARG, "%s: %s is %g, expected a number that %s can hold, up to %g", op, name, x,
                    tn_dtype_name(dtype), tni_dtype_most(dtype)), false;
}

/* Passes BF16 operands on to a kernel that takes them, and F32 copies to all others. RESIDUAL_RMSNORM is composed instead,
   because the sum has to be rounded before it is normalised. Kernels take their numbers in the dtype of the result. */
TNI_FN tn_status tni_run(tn_ctx *ctx, const tn_call *call)
{
    const bool bf16 = ctx->desc.activations == TN_BF16 && tni_call_has_bf16(call);
    const bool taken = ctx->backend->bf16 && ctx->backend->fn[call->kernel];
    TN_ASSERT(call->n_in <= TN_CALL_IN && call->n_out <= TN_CALL_OUT);
    for (int k = 0; k < (int)(sizeof call->f / sizeof *call->f); k++)
        if (!tni_holds(ctx, call->out[0].dtype, tn_kernel_name(call->kernel), "a number", call->f[k])) return TN_ERR_ARG;
    if (!TNI_ENTER(ctx, tn_kernel_name(call->kernel))) return TN_ERR_ARG;
    ctx->kernel_calls[call->kernel]++;
#ifndef TN_NO_TRAINING
    if (ctx->capture) tni_graph_notes(ctx, call);
#endif
    tn_status s = bf16 && !taken ? TN_ERR_DTYPE : tni_run_plainly(ctx, call);
    if (bf16 && s == TN_ERR_DTYPE && !(call->kernel == TN_KERNEL_RESIDUAL_RMSNORM && ctx->compose(ctx, call, &s)))
        s = tni_run_widened(ctx, call);
    TNI_LEAVE(ctx);
    return s == TN_OK ? s : tni_backend_fail(ctx, s, tn_kernel_name(call->kernel));
}

typedef struct tni_rank_text { char s[24]; } tni_rank_text;

/* " of rank 2" for a fault that another process has found. */
static tni_rank_text tni_of_rank(const tn_ctx *ctx)
{
    tni_rank_text out;
    out.s[0] = 0;
    if (ctx->fault_rank != ctx->rank)
        tni_print(out.s, sizeof out.s, " of rank %d", ctx->fault_rank);
    return out;
}

/* The fault word is written by kernels: {1, index, id, 0 embed, 1 gather, 2 cross_entropy} or {2, which, value, step}. It is read
   here and cleared. */
TNI_FN tn_status tni_ctx_faults(tn_ctx *ctx)
{
    static const char *const who[] = {"embed", "gather", "cross_entropy"};
    int32_t   f[4], zero[4] = {0, 0, 0, 0};
    tn_status s = tni_to_host(ctx, f, ctx->fault->data, sizeof f);
    if (s != TN_OK) return tni_backend_fail(ctx, s, "sync");
    if (f[0] == 0) return TN_OK;
    tni_to_device(ctx, ctx->fault->data, zero, sizeof zero);
    if (f[0] == 1)
        return tni_fail(ctx, TN_ERR_DATA, "%s: element %d of the %s%s is %d, which is %s", who[(unsigned)f[3] % 3], (int)f[1],
                        f[3] == 2 ? "labels" : "ids", tni_of_rank(ctx).s, (int)f[2],
                        f[3] == 2 ? "no column of the logits" : "outside the table");
    if (ctx->describe && ctx->describe(ctx, f)) return TN_ERR_NONFINITE;
    return tni_fail(ctx, TN_ERR_NONFINITE,
                    "step %d: the norm of the gradient is not finite; the update was skipped, the parameters are unchanged",
                    (int)f[3]);
}

tn_status tn_ctx_sync(tn_ctx *ctx)
{
    char      why[TN_WHY] = "";
    tn_status s = TN_OK;
    if (!ctx) return TN_ERR_ARG;
    if (!tni_uncaptured(ctx, "the device is synchronised")) return TN_ERR_ARG;
    if (ctx->backend->sync) s = ctx->backend->sync(ctx->state, why);
    if (s != TN_OK) return tni_fail(ctx, s, "sync: backend %s: %s", ctx->backend->name, why);
    return tni_ctx_faults(ctx);
}
