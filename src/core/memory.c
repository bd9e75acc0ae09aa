#include "core/inner.h"

/* ======================================================================
   >>memory   counted allocations, and arenas
   An allocation that fails, or that max_bytes forbids, returns NULL after it has given the context an error
   (TN_ERR_MEMORY) that names what the memory was for. The caller frees what it has and passes the error on.
   Arrays are allocated by tni_array, tni_take and tni_arena_list, which check the product; extents are multiplied by
   tni_area. tests/idioms.sh finds a bare product in the arguments of a call, not one that was computed before.
   ====================================================================== */

/* The library's own allocator, which a context has if its desc has none. They are functions, not inline ones, because a
   context is asked whether it has them: an inline function may be another one in each unit. */
TNI_FN void *tni_malloc(size_t bytes, void *user) { (void)user; return malloc(bytes); }
TNI_FN void  tni_mfree(void *p, size_t bytes, void *user) { (void)bytes; (void)user; free(p); }

static bool tni_may_hold(tn_ctx *ctx, size_t bytes, const char *what)
{
    size_t max = ctx->desc.max_bytes, live = ctx->memory.live;
    if (max == 0 || (live <= max && bytes <= max - live)) return true;
    return tni_fail(ctx, TN_ERR_MEMORY, "%s: %zu bytes on top of %zu, expected at most max_bytes = %zu", what, bytes, live,
                    max), false;
}

static void *tni_counted(tn_ctx *ctx, void *p, size_t bytes, const char *what)
{
    if (!p) return tni_fail(ctx, TN_ERR_MEMORY, "%s: no memory for %zu bytes", what, bytes), (void *)NULL;
    ctx->memory.allocations++;
    ctx->memory.live += bytes;
    if (ctx->memory.live > ctx->memory.peak) ctx->memory.peak = ctx->memory.live;
    return p;
}

/* Host memory, not zeroed, counted against max_bytes. NULL with an error that names `what`. */
TNI_FN void *tni_alloc(tn_ctx *ctx, size_t bytes, const char *what)
{
    if (!tni_may_hold(ctx, bytes, what)) return NULL;
    return tni_counted(ctx, ctx->desc.allocator.alloc(bytes ? bytes : 1, ctx->desc.allocator.user), bytes, what);
}

TNI_NOINLINE TNI_FN void tni_free(tn_ctx *ctx, void *p, size_t bytes)
{
    if (!p) return;
    ctx->desc.allocator.release(p, bytes ? bytes : 1, ctx->desc.allocator.user);
    ctx->memory.live -= bytes;
}

/* The same for memory of the backend. */
TNI_FN void *tni_device_alloc(tn_ctx *ctx, size_t bytes, const char *what)
{
    if (ctx->capture)
        return tni_fail(ctx, TN_ERR_ARG, "graph: %s: %zu bytes are allocated during a capture, expected none: run a step of "
                        "the same shapes first", what, bytes), (void *)NULL;
    if (!tni_may_hold(ctx, bytes, what)) return NULL;
    return tni_counted(ctx, ctx->backend->alloc(ctx->state, bytes ? bytes : 1), bytes, what);
}

TNI_FN void tni_device_free(tn_ctx *ctx, void *p, size_t bytes)
{
    if (!p) return;
    if (ctx->capture) tni_fail(ctx, TN_ERR_ARG, "graph: %zu bytes are released during a capture, expected none", bytes);
    ctx->backend->release(ctx->state, p, bytes ? bytes : 1);
    ctx->memory.live -= bytes;
}

/* The bytes of n elements after `first` bytes. false: they do not fit the address space, and the context has the error. */
static bool tni_array_bytes(tn_ctx *ctx, size_t first, int64_t n, size_t each, const char *what, size_t *bytes)
{
    if (n >= 0 && n <= PTRDIFF_MAX && tni_mul_size((size_t)n, each, bytes) && tni_add_size(first, *bytes, bytes)) return true;
    return tni_fail(ctx, TN_ERR_MEMORY, n == INT64_MAX ? "%s: more elements than the address space can hold"
                    : "%s: %lld elements do not fit the address space", what, (long long)n), false;
}

/* n elements of `each` bytes. */
TNI_NOINLINE TNI_FN void *tni_array(tn_ctx *ctx, int64_t n, size_t each, const char *what)
{
    size_t bytes;
    return tni_array_bytes(ctx, 0, n, each, what, &bytes) ? tni_alloc(ctx, bytes, what) : NULL;
}

TNI_FN void tni_own(tn_ctx *ctx, tni_owned *o, void (*destroy)(tni_owned *))
{
    o->ctx = ctx;
    o->destroy = destroy;
    o->prev = NULL;
    o->next = ctx->owned;
    if (o->next) o->next->prev = o;
    ctx->owned = o;
}

TNI_FN void tni_disown(tni_owned *o)
{
    if (o->prev) o->prev->next = o->next;
    else o->ctx->owned = o->next;
    if (o->next) o->next->prev = o->prev;
}

/* A zeroed object of these bytes, which begins with its tni_owned. */
TNI_FN void *tni_object(tn_ctx *ctx, size_t bytes, const char *what, void (*destroy)(tni_owned *))
{
    tni_owned *o = (tni_owned *)tni_alloc(ctx, bytes, what);
    if (!o) return NULL;
    memset(o, 0, bytes);
    tni_own(ctx, o, destroy);
    return o;
}

TNI_FN void tni_object_free(tni_owned *o, size_t bytes)
{
    tni_disown(o);
    tni_free(o->ctx, o, bytes);
}

/* ---- arenas: blocks that are reused after a reset or a release ---------- >>arenas */

static bool tni_arena_grow(tn_ctx *ctx, tni_arena *a, size_t bytes)
{
    size_t want = a->blocks > 0 ? a->block[a->blocks - 1].bytes : a->device ? ctx->desc.arena_bytes / 2 : 16384;
    if (a->blocks == TNI_BLOCKS) return tni_fail(ctx, TN_ERR_MEMORY, "arena: all %d blocks are in use", TNI_BLOCKS), false;
    want = want <= TNI_BLOCK_MOST / 2 ? want * 2 : TNI_BLOCK_MOST;
    if (want < ctx->memory.arena / 8) want = ctx->memory.arena / 8;
    if (want < bytes) want = bytes;
    if (ctx->desc.max_bytes > 0) {       /* near the limit a block of the exact size may still fit */
        size_t left = ctx->desc.max_bytes - (size_t)tni_min((int64_t)ctx->memory.live, (int64_t)ctx->desc.max_bytes);
        if (want > left / 2) want = bytes;
    }
    void *p = a->device ? tni_device_alloc(ctx, want, "arena") : tni_alloc(ctx, want, "arena");
    if (!p) return false;
    ctx->memory.arena += want;
    a->block[a->blocks].p = (char *)p;
    a->block[a->blocks++].bytes = want;
    return true;
}

TNI_FN void *tni_arena_take(tn_ctx *ctx, tni_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX - TNI_ALIGN)
        return tni_fail(ctx, TN_ERR_MEMORY, "arena: %zu bytes do not fit the address space", bytes), (void *)NULL;
    bytes = (bytes + TNI_ALIGN - 1) / TNI_ALIGN * TNI_ALIGN;
    if (!TNI_ENTER(ctx, "allocation")) return NULL;
    while (a->at < a->blocks && a->block[a->at].bytes - a->used < bytes) { a->at++; a->used = 0; }
    char *p = a->at < a->blocks || tni_arena_grow(ctx, a, bytes) ? a->block[a->at].p + a->used : NULL;
    if (p) a->used += bytes;
    TNI_LEAVE(ctx);
    return p;
}

/* n pointers to tensors, which live as long as the heads of tensors that are made now. */
TNI_NOINLINE TNI_FN tn_tensor **tni_arena_list(tn_ctx *ctx, int64_t n)
{
    size_t bytes;
    return tni_array_bytes(ctx, 0, n, sizeof(tn_tensor *), "arena", &bytes)
           ? (tn_tensor **)tni_arena_take(ctx, &ctx->heads[ctx->head], bytes) : NULL;
}

TNI_FN void tni_arena_free(tn_ctx *ctx, tni_arena *a)
{
    for (size_t i = 0; i < a->blocks; i++) {
        ctx->memory.arena -= a->block[i].bytes;
        if (a->device) tni_device_free(ctx, a->block[i].p, a->block[i].bytes);
        else tni_free(ctx, a->block[i].p, a->block[i].bytes);
    }
    a->blocks = a->at = a->used = 0;
}

/* ---- scratch: host memory that is released together --------------------- >>scratch
       tni_scratch w = tni_scratch_begin(ctx, "qr");
       double     *a = tni_take_f64(&w, m, n), *x = tni_take_zeros(&w, n, 1);
       int64_t    *order = (int64_t *)tni_take(&w, n, sizeof *order);
       return tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : compute(a, x, order));
   One test after the last piece is enough. What was taken after a mark, a copy of w.newest, can be released alone.
     A block has twice the bytes of all before it, or those of its first piece: malloc returns memory to the system when more
   than twice the largest block is free, and the next call would wait for each page again (a fifth of the time of 64 small
   eigendecompositions). For a checker of memory, a program's own allocator and under a limit each piece is a block. */

enum { TNI_TAKEN_HEAD = 16, TNI_TAKEN_MOST = 31 << 20 };     /* bytes before a piece; glibc keeps no block from 32 MB on */

TNI_FN tni_scratch tni_scratch_begin(tn_ctx *ctx, const char *what)
{
    tni_scratch w = {ctx, what, NULL, NULL, 0, 0, false, false};
    return w;
}

/* A piece of these bytes with its header. */
static tni_taken *tni_take_piece(tni_scratch *w, size_t bytes)
{
    const tn_ctx *ctx = w->ctx;
    tni_taken    *piece = (tni_taken *)(void *)w->at;
    bytes += (TNI_TAKEN_HEAD - bytes % TNI_TAKEN_HEAD) % TNI_TAKEN_HEAD;
    size_t block = bytes <= w->left ? 0 : bytes;
    if (block > 0) {
        const size_t most = TNI_TAKEN_MOST, more = w->all < most / 2 ? 2 * w->all : most;
        const bool   own = ctx->desc.allocator.alloc == tni_malloc && ctx->desc.max_bytes == 0;
        if (!TNI_MEMORY_CHECKED && own && more > block) block = more;
        if (!(piece = (tni_taken *)tni_alloc(w->ctx, block, w->what))) return NULL;
        w->left = block;
        w->all += block;
    }
    w->at = (char *)piece + bytes;
    w->left -= bytes;
    piece->before = w->newest;
    piece->block = block;
    w->newest = piece;
    return piece;
}

/* n elements of `each` bytes, not zeroed. NULL: this piece, or one before it, was refused. */
TNI_NOINLINE TNI_FN void *tni_take(tni_scratch *w, int64_t n, size_t each)
{
    void  *piece = NULL;
    size_t bytes;
    if (!w->failed && tni_array_bytes(w->ctx, w->arena ? 0 : 2 * TNI_TAKEN_HEAD, n, each, w->what, &bytes))
        piece = w->arena ? tni_arena_take(w->ctx, &w->ctx->heads[w->ctx->head], bytes)
                         : tni_take_piece(w, bytes - TNI_TAKEN_HEAD);
    w->failed = !piece;
    return piece && !w->arena ? (char *)piece + TNI_TAKEN_HEAD : piece;
}

TNI_UNUSED TNI_NOINLINE TNI_FN void *tni_take_zeroed(tni_scratch *w, int64_t n, size_t each)
{
    void *p = tni_take(w, n, each);
    if (p) memset(p, 0, (size_t)n * each);
    return p;
}

/* n * m doubles, not zeroed */
TNI_UNUSED TNI_NOINLINE TNI_FN double *tni_take_f64(tni_scratch *w, int64_t n, int64_t m)
{
    return (double *)tni_take(w, tni_area(n, m), sizeof(double));
}

TNI_UNUSED TNI_NOINLINE TNI_FN double *tni_take_zeros(tni_scratch *w, int64_t n, int64_t m)
{
    return (double *)tni_take_zeroed(w, tni_area(n, m), sizeof(double));
}

/* Releases the pieces that were taken after the mark; NULL: all. */
TNI_FN void tni_scratch_release(tni_scratch *w, const tni_taken *mark)
{
    while (w->newest != mark) {
        tni_taken   *piece = w->newest;
        const size_t block = piece->block;
        w->newest = piece->before;
        if (block > 0) {                     /* what an older block had left is not used again */
            w->at = NULL;
            w->left = 0;
            w->all -= block;
            tni_free(w->ctx, piece, block);
        } else if (w->at) {
            w->left += (size_t)(w->at - (char *)piece);
            w->at = (char *)piece;
        }
    }
}

/* Releases all pieces, and returns s. */
TNI_NOINLINE TNI_FN tn_status tni_scratch_end(tni_scratch *w, tn_status s)
{
    tni_scratch_release(w, NULL);
    return s;
}
