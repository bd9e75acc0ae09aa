#pragma once
#include "core/inner.h"
#include "comm/comm.h"

/* Most bytes of numbers of the host that processes exchange at once: enough for what each tells all others. */
static inline size_t tni_comm_most(const tn_ctx *ctx)
{
    const size_t needed = 64 * (size_t)ctx->desc.comm->size;
    return needed > 65536 ? needed : 65536;
}

typedef enum tni_collective { TNI_ALL_REDUCE, TNI_REDUCE_SCATTER, TNI_ALL_GATHER, TNI_BROADCAST } tni_collective;

/* Elements [begin,begin + count) of n: `most` of rank's part from its element `at`. */
typedef struct tni_span { int64_t begin, count; } tni_span;

/* The carrier, or NULL for one process. */
static inline const tn_comm *tni_comm(const tn_ctx *ctx)
{
#ifdef TN_NO_COMM
    (void)ctx;
    return NULL;
#else
    return ctx->link.comm;
#endif
}

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* comm.c */
TNI_FN tn_status tni_comm_failed(tn_ctx *ctx, tn_status s);
TNI_FN void *tni_comm_scratch(tn_ctx *ctx, size_t bytes);
TNI_FN tn_status tni_link_exchange(tni_link *l, int to, const void *out, size_t out_bytes, int from, void *in, size_t in_bytes);
TNI_FN tni_span tni_comm_span(int64_t n, int size, int rank, int64_t at, int64_t most);
TNI_FN size_t tni_comm_needs(const tn_comm *k, tni_collective what, int64_t n, tn_dtype dtype);
TNI_FN tn_status tni_link_failed(tni_link *l, tn_status s);
TNI_FN tn_status tni_link_run(tni_link *l, tni_collective what, void *data, int64_t n, tn_dtype dtype, int root);
TNI_FN tn_status tni_comm_run(tn_ctx *ctx, tni_collective what, void *data, int64_t n, tn_dtype dtype, int root);
TNI_FN bool tni_comm_ready(tn_ctx *ctx);
TNI_FN tn_status tni_comm_numbers(tn_ctx *ctx, tni_collective what, void *numbers, int64_t n, tn_dtype dtype);

#endif
