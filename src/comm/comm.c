#include "core/inner.h"
#include "tensor/inner.h"
#include "comm/inner.h"

/* ======================================================================
   >>comm-impl    collectives from exchanges
   n numbers are divided into parts of equal length, one per process; the last may be shorter, or empty. In step k of N-1 a
   process sends to the k-th after it and receives from the k-th before it. All-reduce is reduce-scatter, which gives each
   process its part of every other, and all-gather: a process sends 2 (N-1)/N n numbers, as in a ring, but has all summands
   of an element at once, so that they are added in the order of ranks. Thakur, Rabenseifner & Gropp 2005
   ====================================================================== */

enum { TNI_COMM_PIECE = 1 << 15 };      /* elements of a part that are summed at a time: they stay in the cache */

/* With TN_NO_COMM both are constants, from which the compiler sees what it can leave out. */
#ifdef TN_NO_COMM
int        tn_comm_rank(const tn_ctx *ctx)   { (void)ctx; return 0; }
int        tn_comm_size(const tn_ctx *ctx)   { (void)ctx; return 1; }
#else
int        tn_comm_rank(const tn_ctx *ctx)   { return ctx && ctx->desc.comm ? ctx->desc.comm->rank : 0; }
int        tn_comm_size(const tn_ctx *ctx)   { return ctx && ctx->desc.comm ? ctx->desc.comm->size : 1; }
#endif
tn_traffic tn_ctx_traffic(const tn_ctx *ctx)
{
    static const tn_traffic none = {0, 0};
    return ctx ? ctx->link.traffic : none;
}

TNI_FN tn_status tni_comm_failed(tn_ctx *ctx, tn_status s)
{
    return tni_fail(ctx, s, "comm %s, rank %d: %s", ctx->desc.comm->name, ctx->desc.comm->rank, ctx->link.why);
}

/* Host memory that grows and is kept for the next call. */
TNI_FN void *tni_comm_scratch(tn_ctx *ctx, size_t bytes)
{
    tni_link *l = &ctx->link;
    if (l->bytes >= bytes) return l->scratch;
    tni_free(ctx, l->scratch, l->bytes);
    l->scratch = tni_alloc(ctx, bytes, "comm");
    l->bytes = l->scratch ? bytes : 0;
    return l->scratch;
}

TNI_FN tn_status tni_link_exchange(tni_link *l, int to, const void *out, size_t out_bytes, int from, void *in, size_t in_bytes)
{
    const tn_comm *k = l->comm;
    if (out_bytes == 0 && in_bytes == 0) return TN_OK;
    l->traffic.bytes += out_bytes;
    return k->exchange(k->state, out_bytes > 0 ? to : -1, out, out_bytes, in_bytes > 0 ? from : -1, in, in_bytes, l->why);
}

/* Before a collective all tell each other which one it is: where they differ, bytes would arrive in the wrong place. */
static tn_status tni_link_meet(tni_link *l, tni_collective what, int64_t n, tn_dtype dtype, int root)
{
    static const char *const name[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
    const tn_comm *k = l->comm;
    int64_t        other[4];
    int64_t        own[4] = {what, n, dtype, root};
    for (int step = 1; step < k->size; step++) {
        const int to = (k->rank + step) % k->size, from = (k->rank + k->size - step) % k->size;
        tn_status s = k->exchange(k->state, to, own, sizeof own, from, other, sizeof other, l->why);
        if (s != TN_OK) return s;
        if (memcmp(own, other, sizeof own) == 0) continue;
        tni_print(l->why, sizeof l->why, "rank %d calls %s of %lld %s from rank %d, and rank %d %s of %lld %s from rank %d; "
                  "expected the same calls in the same order", from, (uint64_t)other[0] < 4 ? name[other[0]] : "?",
                  (long long)other[1], tn_dtype_name((tn_dtype)other[2]), (int)other[3], k->rank, name[what], (long long)n,
                  tn_dtype_name(dtype), root);
        return TN_ERR_COMM;
    }
    return TN_OK;
}

TNI_FN tni_span tni_comm_span(int64_t n, int size, int rank, int64_t at, int64_t most)
{
    const int64_t each = (n + size - 1) / size, end = tni_min(n, rank * each + tni_min(each, at + most));
    tni_span      p;
    p.begin = tni_min(n, rank * each + at);
    p.count = tni_max(end - p.begin, 0);
    return p;
}

/* own[i] = the sum over ranks of row[rank][i], in this order, where the row of this rank is `own`. Integers whose magnitude is
   2^31 or more become INT32_MIN, by which all processes that get them know: tni_comm_direct. */
static void tni_comm_add(const tn_comm *k, char *own, const char *rows, size_t pitch, int64_t n, tn_dtype dtype)
{
    enum { FEW = 256 };
    double sum[FEW];
    for (int64_t first = 0; first < n; first += FEW) {
        const int64_t m = tni_min(FEW, n - first);
        memset(sum, 0, sizeof sum);
        for (int r = 0; r < k->size; r++) {
            const char *row = r == k->rank ? own : rows + (size_t)r * pitch;
            if (dtype == TN_F32) for (int64_t i = 0; i < m; i++) sum[i] += (double)((const float *)(const void *)row)[first + i];
            else if (dtype == TN_F64) for (int64_t i = 0; i < m; i++) sum[i] += ((const double *)(const void *)row)[first + i];
            else for (int64_t i = 0; i < m; i++) sum[i] += (double)((const int32_t *)(const void *)row)[first + i];
        }
        if (dtype == TN_F32) for (int64_t i = 0; i < m; i++) ((float *)(void *)own)[first + i] = (float)sum[i];
        else if (dtype == TN_F64) for (int64_t i = 0; i < m; i++) ((double *)(void *)own)[first + i] = sum[i];
        else for (int64_t i = 0; i < m; i++)
            ((int32_t *)(void *)own)[first + i] = fabs(sum[i]) <= INT32_MAX ? (int32_t)sum[i] : INT32_MIN;
    }
}

/* Elements of a part that are summed at a time. */
static int64_t tni_comm_piece(const tn_comm *k, int64_t n) { return tni_min((n + k->size - 1) / k->size, TNI_COMM_PIECE); }

/* The part of this process becomes the sum. */
static tn_status tni_link_reduce(tni_link *l, char *data, int64_t n, tn_dtype dtype)
{
    const tn_comm *k = l->comm;
    const size_t   size = tni_dtype_size(dtype);
    const int64_t  each = (n + k->size - 1) / k->size, most = tni_comm_piece(k, n);
    const size_t   pitch = (size_t)most * size;
    char          *rows = (char *)l->scratch;
    tn_status      s = TN_OK;
    for (int64_t at = 0; at < each && s == TN_OK; at += most) {
        const tni_span own = tni_comm_span(n, k->size, k->rank, at, most);
        for (int step = 1; step < k->size && s == TN_OK; step++) {
            const int      to = (k->rank + step) % k->size, from = (k->rank + k->size - step) % k->size;
            const tni_span out = tni_comm_span(n, k->size, to, at, most);
            s = tni_link_exchange(l, to, data + (size_t)out.begin * size, (size_t)out.count * size, from,
                                  rows + (size_t)from * pitch, (size_t)own.count * size);
        }
        if (s == TN_OK) tni_comm_add(k, data + (size_t)own.begin * size, rows, pitch, own.count, dtype);
    }
    return s;
}

static tn_status tni_link_gather(tni_link *l, char *data, int64_t n, size_t size)
{
    const tn_comm *k = l->comm;
    const tni_span own = tni_comm_span(n, k->size, k->rank, 0, n);
    tn_status      s = TN_OK;
    for (int step = 1; step < k->size && s == TN_OK; step++) {
        const int      to = (k->rank + step) % k->size, from = (k->rank + k->size - step) % k->size;
        const tni_span in = tni_comm_span(n, k->size, from, 0, n);
        s = tni_link_exchange(l, to, data + (size_t)own.begin * size, (size_t)own.count * size, from,
                              data + (size_t)in.begin * size, (size_t)in.count * size);
    }
    return s;
}

/* Along a binomial tree: each process that has the data passes it on to one that has not. */
static tn_status tni_link_spread(tni_link *l, char *data, size_t bytes, int root)
{
    const tn_comm *k = l->comm;
    const int      place = (k->rank + k->size - root) % k->size;
    tn_status      s = TN_OK;
    for (int have = 1; have < k->size && s == TN_OK; have *= 2) {
        if (place < have && place + have < k->size)
            s = tni_link_exchange(l, (k->rank + have) % k->size, data, bytes, -1, NULL, 0);
        else if (place >= have && place < 2 * have)
            s = tni_link_exchange(l, -1, NULL, 0, (k->rank + k->size - have) % k->size, data, bytes);
    }
    return s;
}

/* The carrier's own collective. n counts all elements, of which each process has the N-th part. */
static tn_status tni_link_native(tni_link *l, tni_collective what, void *data, int64_t n, tn_dtype dtype, int root)
{
    const tn_comm *k = l->comm;
    const size_t   bytes = (size_t)n * tni_dtype_size(dtype), part = bytes / (size_t)k->size;
    l->traffic.bytes += what == TNI_BROADCAST ? bytes : (what == TNI_ALL_REDUCE ? 2 : 1) * (bytes - part);
    if (what == TNI_ALL_REDUCE) return k->all_reduce(k->state, data, n, dtype, l->why);
    if (what == TNI_REDUCE_SCATTER) return k->reduce_scatter(k->state, data, n / k->size, dtype, l->why);
    if (what == TNI_ALL_GATHER) return k->all_gather(k->state, data, part, l->why);
    return k->broadcast(k->state, data, bytes, root, l->why);
}

static bool tni_comm_has(const tn_comm *k, tni_collective what)
{
    return what == TNI_ALL_REDUCE ? k->all_reduce != NULL : what == TNI_REDUCE_SCATTER ? k->reduce_scatter != NULL
         : what == TNI_ALL_GATHER ? k->all_gather != NULL : k->broadcast != NULL;
}

/* Bytes of scratch that a collective needs. */
TNI_FN size_t tni_comm_needs(const tn_comm *k, tni_collective what, int64_t n, tn_dtype dtype)
{
    if (tni_comm_has(k, what) || (what != TNI_ALL_REDUCE && what != TNI_REDUCE_SCATTER)) return 0;
    return (size_t)(tni_comm_piece(k, n) * k->size) * tni_dtype_size(dtype);
}

/* After a failure nothing works any more: why[0] says so. */
TNI_FN tn_status tni_link_failed(tni_link *l, tn_status s)
{
    if (s != TN_OK && !l->why[0]) tni_print(l->why, sizeof l->why, "%s", tn_status_name(s));
    return s;
}

/* On memory that the carrier takes, [n] of dtype; the scratch is there. */
TNI_FN tn_status tni_link_run(tni_link *l, tni_collective what, void *data, int64_t n, tn_dtype dtype, int root)
{
    const size_t size = tni_dtype_size(dtype);
    tn_status    s = TN_OK;
    if (l->why[0]) return TN_ERR_COMM;
    l->traffic.calls++;
    if (l->comm->exchange && !l->comm->device) s = tni_link_meet(l, what, n, dtype, root);
    if (s == TN_OK && tni_comm_has(l->comm, what)) s = tni_link_native(l, what, data, n, dtype, root);
    else if (s == TN_OK && what == TNI_BROADCAST) s = tni_link_spread(l, (char *)data, (size_t)n * size, root);
    else if (s == TN_OK) {
        if (what != TNI_ALL_GATHER) s = tni_link_reduce(l, (char *)data, n, dtype);
        if (s == TN_OK && what != TNI_REDUCE_SCATTER) s = tni_link_gather(l, (char *)data, n, size);
    }
    return tni_link_failed(l, s);
}

/* ---- collectives on memory of the backend, and on numbers of the host --- >>comm-backend
   The carrier is given the memory of a host backend, or of a device if it takes that; else bytes go through the host. */

static tn_status tni_comm_direct(tn_ctx *ctx, tni_collective what, void *data, int64_t n, tn_dtype dtype, int root)
{
    const size_t   needs = tni_comm_needs(ctx->link.comm, what, n, dtype);
    const int32_t *sum = (const int32_t *)data;
    if (needs > 0 && !tni_comm_scratch(ctx, needs)) return TN_ERR_MEMORY;
    tn_status s = tni_link_run(&ctx->link, what, data, n, dtype, root);
    if (s != TN_OK) return tni_comm_failed(ctx, s);
    if (needs == 0 || dtype != TN_I32) return s;
    tni_span own = tni_comm_span(n, ctx->link.comm->size, ctx->rank, 0, n); /* the sums that are here */
    if (what == TNI_ALL_REDUCE) own.begin = 0, own.count = n;
    for (; own.count > 0; own.begin++, own.count--)
        if (sum[own.begin] == INT32_MIN)
            return tni_fail(ctx, TN_ERR_DATA,
                            "comm: the sum of element %lld does not fit I32, expected -2147483647 to 2147483647",
                            (long long)own.begin);
    return s;
}

/* On memory of the backend, [n] of dtype. A device's bytes go through the host if the carrier cannot take them. */
TNI_FN tn_status tni_comm_run(tn_ctx *ctx, tni_collective what, void *data, int64_t n, tn_dtype dtype, int root)
{
    const size_t bytes = (size_t)n * tni_dtype_size(dtype);
    tn_status    s;
    if (!tni_comm(ctx) || n == 0) return TN_OK;
    if (!tni_uncaptured(ctx, "processes communicate") || !tni_not_aside(ctx, "comm")) return TN_ERR_ARG;
    if (ctx->backend->host) return tni_comm_direct(ctx, what, data, n, dtype, root);
    if (ctx->desc.comm->device) {
        char why[TN_WHY] = "";
        s = ctx->backend->sync ? ctx->backend->sync(ctx->state, why) : TN_OK;
        if (s != TN_OK) return tni_fail(ctx, s, "comm: backend %s: %s", ctx->backend->name, why);
        return tni_comm_direct(ctx, what, data, n, dtype, root);
    }
    void *host = tni_alloc(ctx, bytes, "comm");
    s = host ? tni_to_host(ctx, host, data, bytes) : TN_ERR_MEMORY;
    if (s == TN_OK) s = tni_comm_direct(ctx, what, host, n, dtype, root);
    if (s == TN_OK) s = tni_to_device(ctx, data, host, bytes);
    tni_free(ctx, host, bytes);
    return s == TN_OK || ctx->status != TN_OK ? s : tni_backend_fail(ctx, s, "comm");
}

/* The memory through which numbers of the host reach a carrier that only takes memory of a device. */
TNI_FN bool tni_comm_ready(tn_ctx *ctx)
{
    if (!tni_comm(ctx) || !ctx->desc.comm->device || ctx->comm_handle) return true;
    ctx->comm_handle = tni_device_alloc(ctx, tni_comm_most(ctx), "comm");
    return ctx->comm_handle != NULL;
}

/* tni_comm_run on numbers of the host, which are copied to this memory and back where there has to be one. */
TNI_FN tn_status tni_comm_numbers(tn_ctx *ctx, tni_collective what, void *numbers, int64_t n, tn_dtype dtype)
{
    const size_t bytes = (size_t)n * tni_dtype_size(dtype);
    tn_status    s = TN_OK;
    if (!tni_comm(ctx) || n == 0) return TN_OK;
    if (!tni_uncaptured(ctx, "processes communicate") || !tni_not_aside(ctx, "comm")) return TN_ERR_ARG;
    if (!ctx->desc.comm->device) return tni_comm_direct(ctx, what, numbers, n, dtype, 0);
    if (bytes > tni_comm_most(ctx))
        return tni_fail(ctx, TN_ERR_ARG, "comm: %zu bytes of numbers, expected at most %zu", bytes, tni_comm_most(ctx));
    if (!tni_comm_ready(ctx)) return TN_ERR_MEMORY;
    s = tni_to_device(ctx, ctx->comm_handle, numbers, bytes);
    if (s == TN_OK) s = tni_comm_run(ctx, what, ctx->comm_handle, n, dtype, 0);
    if (s == TN_OK) s = tni_to_host(ctx, numbers, ctx->comm_handle, bytes);
    return s == TN_OK || ctx->status != TN_OK ? s : tni_backend_fail(ctx, s, "comm");
}

#ifndef TN_NO_COMM
static tn_status tni_comm_tensor(tn_tensor *t, tni_collective what, const char *name, int root)
{
    const bool divides = what == TNI_REDUCE_SCATTER || what == TNI_ALL_GATHER;
    tn_ctx    *ctx = tni_alive(t) ? t->ctx : NULL;
    const int  size = tn_comm_size(ctx);
    if (!ctx || !tni_usable(ctx, t, name, "t")) return TN_ERR_ARG;
    if (t->dtype == TN_BF16 || !tn_tensor_is_contiguous(t))
        return tni_fail(ctx, TN_ERR_DTYPE, "%s: t is %s %s, expected a contiguous tensor of F32, F64 or I32", name,
                        tn_dtype_name(t->dtype), TNI_SHAPE(t));
    if (divides && (t->rank == 0 || t->shape[0] % size != 0))
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: t is %s, expected a first axis that %d processes can divide", name,
                        TNI_SHAPE(t), size);
    if (root < 0 || root >= size)
        return tni_fail(ctx, TN_ERR_ARG, "%s: root is %d, expected 0 <= root < %d", name, root, size);
    if (tni_tape_reads(ctx, t))
        return tni_fail(ctx, TN_ERR_ARG, "%s: %s is needed by the backward pass", name, TNI_SHAPE(t));
    if (size == 1) return TN_OK;
    tni_rewritten(t);
    return tni_comm_run(ctx, what, t->data, tn_tensor_count(t), t->dtype, root);
}

tn_status tn_comm_all_reduce(tn_tensor *t)     { return tni_comm_tensor(t, TNI_ALL_REDUCE, "comm_all_reduce", 0); }
tn_status tn_comm_reduce_scatter(tn_tensor *t) { return tni_comm_tensor(t, TNI_REDUCE_SCATTER, "comm_reduce_scatter", 0); }
tn_status tn_comm_all_gather(tn_tensor *t)     { return tni_comm_tensor(t, TNI_ALL_GATHER, "comm_all_gather", 0); }
tn_status tn_comm_broadcast(tn_tensor *t, int root) { return tni_comm_tensor(t, TNI_BROADCAST, "comm_broadcast", root); }

tn_status tn_comm_sum(tn_ctx *ctx, double *numbers, int64_t count)
{
    if (!ctx) return TN_ERR_ARG;
    if (count < 0 || (count > 0 && !numbers))
        return tni_fail(ctx, TN_ERR_ARG, "comm_sum: %lld numbers at %s, expected 0 or more", (long long)count,
                        numbers ? "an address" : "NULL");
    return tni_comm_numbers(ctx, TNI_ALL_REDUCE, numbers, count, TN_F64);
}
#endif /* TN_NO_COMM */
