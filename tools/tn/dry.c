/* dry.c - a backend without memory: its addresses are never touched and its kernels do nothing, so that a step of any size, of
   any number of processes, shows in a moment how much memory it needs (tn_ctx_memory) */
#include "dry.h"
#include <stdlib.h>
#include <string.h>

typedef struct addresses { uintptr_t next; } addresses;

static tn_status dry_open(const tn_desc *desc, void **state, char why[TN_WHY])
{
    addresses *a = (addresses *)malloc(sizeof *a);
    (void)desc; (void)why;
    if (!a) return TN_ERR_MEMORY;
    a->next = (uintptr_t)1 << 20;
    *state = a;
    return TN_OK;
}

static void dry_close(void *state) { free(state); }

static void *dry_alloc(void *state, size_t bytes)
{
    addresses      *a = (addresses *)state;
    const uintptr_t at = a->next;
    if (bytes > UINTPTR_MAX - at - 64) return NULL;
    a->next += (bytes + 63) / 64 * 64;
    return (void *)at;
}

static void dry_release(void *state, void *p, size_t bytes) { (void)state; (void)p; (void)bytes; }

static tn_status dry_upload(void *state, void *dst, const void *src, size_t bytes)
{
    (void)state; (void)dst; (void)src; (void)bytes;
    return TN_OK;
}

static tn_status dry_download(void *state, void *dst, const void *src, size_t bytes)
{
    (void)state; (void)src;
    if (bytes) memset(dst, 0, bytes);
    return TN_OK;
}

static tn_status dry_run(void *state, const tn_call *call)
{
    (void)state; (void)call;
    return TN_OK;
}

/* That there is a device decides which form of attention a step takes. */
static void dry_device(void *state, char name[128])
{
    (void)state;
    strcpy(name, "none");
}

const tn_backend *dry_backend(void)
{
#define ROW(ENUM, name) dry_run,
    static const tn_backend dry = {
        TN_BACKEND_ABI, "dry", false, true, true, 64 /* shadow, as of the backend cuda */, dry_open, dry_close, dry_alloc,
        dry_release, dry_upload, dry_download, NULL, NULL, NULL, NULL, NULL, dry_device, { TN_KERNELS(ROW) }, false
    };
#undef ROW
    return &dry;
}

/* ---- processes of which only this one is there ---- */

static tn_status dry_reduce(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    (void)state; (void)data; (void)count; (void)dtype; (void)why;
    return TN_OK;
}

static tn_status dry_gather(void *state, void *data, size_t bytes, char why[TN_WHY])
{
    (void)state; (void)data; (void)bytes; (void)why;
    return TN_OK;
}

static tn_status dry_broadcast(void *state, void *data, size_t bytes, int root, char why[TN_WHY])
{
    (void)state; (void)data; (void)bytes; (void)root; (void)why;
    return TN_OK;
}

tn_comm dry_comm(int size)
{
    tn_comm k;
    memset(&k, 0, sizeof k);
    k.abi = TN_COMM_ABI;
    k.name = "dry";
    k.size = size;
    k.device = true;
    k.all_reduce = k.reduce_scatter = dry_reduce;
    k.all_gather = dry_gather;
    k.broadcast = dry_broadcast;
    return k;
}
