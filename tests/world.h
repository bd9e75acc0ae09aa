/* world.h: a context, its parameters and the heap they live on, which must be empty in the end. */

#ifndef TN_WORLD_H
#define TN_WORLD_H

#include "test.h"

typedef struct world {
    tn_ctx    *ctx;
    tn_params *params;
    uint64_t   seed;
    test_heap  heap;
} world;

static inline bool open_as(world *w, tn_dtype dtype, tn_dtype activations, uint64_t seed, int threads,
                           const tn_backend *backend)
{
    tn_desc desc;
    memset(w, 0, sizeof *w);
    memset(&desc, 0, sizeof desc);
    desc.dtype = dtype;
    desc.activations = activations;
    desc.seed = w->seed = seed;
    desc.threads = threads;
    desc.backend = backend;
    desc.backend_required = true;
    desc.allocator = test_heap_allocator(&w->heap);
    if (!CHECK(tn_ctx_create(&desc, &w->ctx, NULL) == TN_OK)) return false;
    w->params = tn_params_create(w->ctx);
    return CHECK(w->params != NULL);
}

static inline bool open_on(world *w, tn_dtype dtype, uint64_t seed, int threads, const tn_backend *backend)
{
    return open_as(w, dtype, TN_REAL, seed, threads, backend);
}

static inline void close_world(world *w)
{
    CHECK_CTX(w->ctx);
    tn_ctx_destroy(w->ctx);
    CHECK_INT(w->heap.live, 0);
    CHECK_INT(w->heap.blocks, 0);
}

#endif
