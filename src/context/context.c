#include "core/inner.h"
#include "tensor/inner.h"
#include "comm/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "context/inner.h"

/* ======================================================================
   >>context  creating and destroying a context
   Defaults are filled in and the backend is opened (or the cpu backend, if it does not open). Faults that
   kernels have reported in the fault word on the device become errors at the next sync.
   ====================================================================== */

static const char *const tni_simd_names[] = {"auto", "plain", "avx2", "avx512", "neon"};

/* An empty variable counts as unset. */
static tn_status tni_simd_from_environment(tn_simd *simd, char why[TN_WHY])
{
    const char *wanted = *simd == TN_SIMD_AUTO ? getenv("TN_SIMD") : NULL;
    if (!wanted || !*wanted) return TN_OK;
    for (int i = 1; i < 5; i++)
        if (strcmp(wanted, tni_simd_names[i]) == 0) { *simd = (tn_simd)i; return TN_OK; }
    tni_print(why, TN_WHY, "ctx_create: the environment variable TN_SIMD is \"%s\", expected plain, avx2, avx512 or neon",
              wanted);
    tn_printable(why, strlen(why), false);
    return TN_ERR_ARG;
}

const char *tn_ctx_simd_name(const tn_ctx *ctx)
{
    return ctx ? tni_simd_names[ctx->desc.simd] : "none";   /* by now an available level */
}

tn_dtype    tn_ctx_dtype(const tn_ctx *ctx)   { return ctx ? ctx->desc.dtype : TN_REAL; }
tn_dtype    tn_ctx_activations(const tn_ctx *ctx) { return ctx ? ctx->desc.activations : TN_REAL; }
int         tn_ctx_threads(const tn_ctx *ctx) { return ctx ? ctx->pool.threads : 0; }
const char *tn_ctx_device_name(const tn_ctx *ctx) { return ctx ? ctx->device : ""; }
const char *tn_ctx_backend_name(const tn_ctx *ctx) { return ctx ? ctx->backend->name : "none"; }

tn_memory tn_ctx_memory(const tn_ctx *ctx)
{
    static const tn_memory none = {0, 0, 0, 0};
    return ctx ? ctx->memory : none;
}

static tn_desc tni_desc_defaults(const tn_desc *given)
{
    tn_desc d = TNI_ZERO;
    if (given) d = *given;
    if (!d.backend) d.backend = tn_cpu_backend();
    if (d.dtype == TN_REAL) d.dtype = TN_F32;
    if (d.activations == TN_REAL) d.activations = d.dtype;
    if (!d.allocator.alloc) { d.allocator.alloc = tni_malloc; d.allocator.release = tni_mfree; }
    if (d.threads == 0) d.threads = tni_default_threads(&d);
    if (d.arena_bytes == 0) d.arena_bytes = (size_t)4 << 20;
    return d;
}

static tn_status tni_comm_check(const tn_comm *k, char why[TN_WHY])
{
    if (!k) return TN_OK;
#ifdef TN_NO_COMM
    return tni_print(why, TN_WHY, "ctx_create: desc.comm is %s, expected NULL: TN_NO_COMM left it out of this build", k->name),
           TN_ERR_ARG;
#else
    if (k->abi != TN_COMM_ABI)
        tni_print(why, TN_WHY, "ctx_create: desc.comm->abi is %d, expected %d", k->abi, TN_COMM_ABI);
    else if (k->size < 1 || k->rank < 0 || k->rank >= k->size)
        tni_print(why, TN_WHY, "ctx_create: desc.comm is rank %d of %d, expected 0 <= rank < size", k->rank, k->size);
    else if (k->device && !(k->all_reduce && k->reduce_scatter && k->all_gather && k->broadcast))
        tni_print(why, TN_WHY, "ctx_create: desc.comm takes memory of devices, expected all four collectives");
    else if (!k->device && !k->exchange && !(k->all_reduce && k->reduce_scatter && k->all_gather && k->broadcast))
        tni_print(why, TN_WHY, "ctx_create: desc.comm->exchange is NULL, expected it or all four collectives");
    else return TN_OK;
    return TN_ERR_ARG;
#endif
}

static tn_status tni_desc_check(const tn_desc *d, char why[TN_WHY])
{
    if (d->dtype != TN_F32 && d->dtype != TN_F64)
        return tni_print(why, TN_WHY, "ctx_create: desc.dtype is %s, expected F32 or F64", tn_dtype_name(d->dtype)),
               TN_ERR_DTYPE;
#ifdef TN_NO_F64
    if (d->dtype == TN_F64)
        return tni_print(why, TN_WHY, "ctx_create: desc.dtype is F64, which TN_NO_F64 left out of this build, expected F32"),
               TN_ERR_DTYPE;
#endif
    if (d->activations != d->dtype && (d->activations != TN_BF16 || d->dtype != TN_F32))
        return tni_print(why, TN_WHY, "ctx_create: desc.activations is %s and dtype is %s, expected %s for activations",
                         tn_dtype_name(d->activations), tn_dtype_name(d->dtype), d->dtype == TN_F32 ? "F32 or BF16" : "F64"),
               TN_ERR_DTYPE;
    if (d->threads < 1 || d->threads > TNI_MOST_THREADS)
        return tni_print(why, TN_WHY, "ctx_create: desc.threads is %d, expected 0 to %d", d->threads, TNI_MOST_THREADS),
               TN_ERR_ARG;
    if ((unsigned)d->simd > TN_SIMD_NEON)
        return tni_print(why, TN_WHY, "ctx_create: desc.simd is %d, expected 0 to %d", (int)d->simd, (int)TN_SIMD_NEON),
               TN_ERR_ARG;
    if ((unsigned)d->gemm_precision > TN_GEMM_TF32)
        return tni_print(why, TN_WHY, "ctx_create: desc.gemm_precision is %d, expected 0 to %d", (int)d->gemm_precision,
                         (int)TN_GEMM_TF32), TN_ERR_ARG;
    if (!d->allocator.release)
        return tni_print(why, TN_WHY, "ctx_create: desc.allocator.release is NULL, expected a function: alloc is given"),
               TN_ERR_ARG;
    return tni_comm_check(d->comm, why);
}

/* ---- opening the backend and the threads -------------------------------- >>context-open */

/* Has the backend all graph functions or none of them? A host backend has none, because it reports errors at once. */
static bool tni_graphs_whole(const tn_backend *b)
{
    const int n = (b->capture_begin != NULL) + (b->capture_end != NULL) + (b->replay != NULL) + (b->graph_release != NULL);
    return n == 0 || (n == 4 && !b->host);
}

/* Opens the wanted backend; if that fails, logs the reason and opens the cpu backend. */
static tn_status tni_open_backend(tn_ctx *ctx, char why[TN_WHY])
{
    const tn_backend *wanted = ctx->desc.backend;
    tn_status         s;
    if (wanted->abi != TN_BACKEND_ABI) {
        tni_print(why, TN_WHY, "backend %s: abi is %d, expected %d", wanted->name, wanted->abi, TN_BACKEND_ABI);
        s = TN_ERR_BACKEND;
    } else if (!tni_graphs_whole(wanted)) {
        tni_print(why, TN_WHY, "backend %s: it has some of the four graph functions, expected %s", wanted->name,
                  wanted->host ? "none for a host backend" : "all or none");
        s = TN_ERR_BACKEND;
    } else s = wanted->open(&ctx->desc, &ctx->state, why);
    if (s != TN_OK && !ctx->desc.backend_required && wanted != tn_cpu_backend()) {
        char first[TN_WHY];
        memcpy(first, why, sizeof first);
        first[TN_WHY - 1] = 0;
        tni_log(ctx, TN_LOG_WARN, "backend %s: %s; running on cpu", wanted->name, first);
        ctx->desc.backend = wanted = tn_cpu_backend();
        s = wanted->open(&ctx->desc, &ctx->state, why);
    }
    ctx->backend = wanted;
    if (s == TN_OK && wanted->device) wanted->device(ctx->state, ctx->device);
    if (s == TN_OK && wanted == tn_cpu_backend()) tni_cpu_counts(ctx->state, ctx);
    return s;
}

/* The context's own threads are a desc.parallel_for like any other. */
static tn_status tni_open_threads(tn_ctx *ctx, char why[TN_WHY])
{
#if defined(TNI_OWN_THREADS)
    tn_desc *d = &ctx->desc;
    if (d->parallel_for || d->threads == 1) return TN_OK;
    ctx->threads = tni_threads_create(ctx, d->threads);
    if (!ctx->threads) return tni_print(why, TN_WHY, "ctx_create: no memory for %d threads", d->threads), TN_ERR_MEMORY;
    d->parallel_for = tni_threads_for;
    d->parallel_user = ctx->threads;
#endif
    (void)ctx, (void)why;
    return TN_OK;
}

static void tni_close_threads(tn_ctx *ctx)
{
#if defined(TNI_OWN_THREADS)
#ifndef TN_NO_TRAINING
    tni_comm_thread_destroy(ctx->beside);
#endif
    tni_threads_destroy(ctx->threads);
#endif
    (void)ctx;
}

TNI_COLD tn_status tn_ctx_create(const tn_desc *given, tn_ctx **out, char why[TN_WHY])
{
    char      own[TN_WHY];
    tn_desc   d = tni_desc_defaults(given);
    tn_status s;
    if (!why) why = own;
    why[0] = 0;
    if (!out) return TN_ERR_ARG;
    *out = NULL;
    if ((s = tni_desc_check(&d, why)) != TN_OK || (s = tni_simd_from_environment(&d.simd, why)) != TN_OK) return s;
    d.simd = tni_cpu_simd(d.simd);
    tn_ctx *ctx = (tn_ctx *)d.allocator.alloc(sizeof *ctx, d.allocator.user);
    if (!ctx) return tni_print(why, TN_WHY, "ctx_create: no memory for %zu bytes", sizeof *ctx), TN_ERR_MEMORY;
    memset(ctx, 0, sizeof *ctx);
    ctx->desc = d;
    ctx->made = d.activations;
    ctx->reference = tni_reference_run;
    ctx->compose = tni_compose;
    ctx->rank = ctx->fault_rank = d.comm ? d.comm->rank : 0;
    ctx->link.comm = d.comm && d.comm->size > 1 ? d.comm : NULL;
    ctx->data[0].device = ctx->data[1].device = true;
    s = tni_open_threads(ctx, why);
    ctx->pool.threads = ctx->desc.threads;
    ctx->pool.fn = ctx->desc.parallel_for;
    ctx->pool.user = ctx->desc.parallel_user;
    if (s == TN_OK) s = tni_open_backend(ctx, why);
    if (s == TN_OK && d.comm && d.comm->device && ctx->backend->host) {
        tni_print(why, TN_WHY, "ctx_create: comm %s takes memory of a device, expected a backend with one instead of %s",
                  d.comm->name, ctx->backend->name);
        ctx->backend->close(ctx->state);
        s = TN_ERR_ARG;
    }
    if (s != TN_OK) {
        tni_close_threads(ctx);
        d.allocator.release(ctx, sizeof *ctx, d.allocator.user);
        return s;
    }
    {
        static const int64_t one = 1, four = 4;
        ctx->clock = tn_tensor_create(ctx, TN_I32, 1, &one);
        ctx->fault = tn_tensor_create(ctx, TN_I32, 1, &four);
    }
    if (ctx->status != TN_OK) {
        s = ctx->status;
        tni_print(why, TN_WHY, "%s", ctx->error);
        tn_ctx_destroy(ctx);
        return s;
    }
    *out = ctx;
    return TN_OK;
}

void tn_ctx_destroy(tn_ctx *ctx)
{
#ifndef TN_NO_TRAINING
    tn_graph *captured;
    if (ctx && ctx->capture) ctx->capture_end(ctx, &captured);
#endif
    if (!ctx) return;
    tni_tape_clear(ctx);
    while (ctx->owned) ctx->owned->destroy(ctx->owned);
    while (ctx->owned_tensors) tn_tensor_destroy(ctx->owned_tensors);
    tni_arena_free(ctx, &ctx->data[0]);
    tni_arena_free(ctx, &ctx->data[1]);
    tni_arena_free(ctx, &ctx->heads[0]);
    tni_arena_free(ctx, &ctx->heads[1]);
    if (ctx->comm_handle) tni_device_free(ctx, ctx->comm_handle, tni_comm_most(ctx));
    tni_free(ctx, ctx->link.scratch, ctx->link.bytes);
    ctx->backend->close(ctx->state);
    tni_close_threads(ctx);
    ctx->desc.allocator.release(ctx, sizeof *ctx, ctx->desc.allocator.user);
}
