/* A program with memory of its own: an allocator that counts, a limit, a log, and errors that it handles and goes on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tensornet.h"

static int failures;

static void check(const char *what, double value, double expected, double within)
{
    const bool right = fabs(value - expected) <= within;
    printf("%-48s %.6g%s\n", what, value, right ? "" : "   FAIL");
    failures += !right;
}

typedef struct heap { size_t bytes; long blocks, calls, fail_at; } heap;

static void *heap_alloc(size_t bytes, void *user)
{
    heap *h = (heap *)user;
    if (++h->calls == h->fail_at) return NULL;
    h->bytes += bytes;
    h->blocks++;
    return malloc(bytes);
}

static void heap_release(void *p, size_t bytes, void *user)
{
    heap *h = (heap *)user;
    if (!p) return;
    h->bytes -= bytes;
    h->blocks--;
    free(p);
}

static char said[512];

static void listen(void *user, tn_log_level level, const char *message)
{
    ++*(int *)user;
    if (level >= TN_LOG_ERROR) snprintf(said, sizeof said, "%s", message);
}

static tn_status train(tn_ctx *ctx, double *loss)
{
    const int64_t in[2] = {4, 2}, out[1] = {4};
    const float   x[8] = {0, 0, 0, 1, 1, 0, 1, 1};
    const int32_t y[4] = {0, 1, 1, 0};
    tn_mlp        mlp;
    tn_params    *params = tn_params_create(ctx);
    tn_optim     *optim = params ? tn_optim_create(params, NULL) : NULL;
    if (!optim || tn_mlp_init(params, "mlp", &(tn_mlp_desc){.in = 2, .hidden = 8, .out = 2}, &mlp) != TN_OK)
        return tn_ctx_status(ctx);
    for (int i = 0; i < 3; i++) {
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *l = tn_cross_entropy(ctx, tn_mlp_forward(ctx, &mlp, tn_tensor_from(ctx, 2, in, TN_F32, x)),
                                        tn_tensor_from(ctx, 1, out, TN_I32, y));
        tn_backward(ctx, l);
        if (tn_optim_step(optim) != TN_OK) return tn_ctx_status(ctx);
        *loss = tn_item(l);
    }
    return tn_ctx_status(ctx);
}

int main(void)
{
    heap    h = {0};
    int     lines = 0;
    tn_desc desc = {.allocator = {heap_alloc, heap_release, &h}, .log = listen, .log_user = &lines, .threads = 1};
    tn_ctx *ctx = NULL;
    char    why[TN_WHY] = "";
    double  loss = 0, again = 0;

    /* Every allocation fails once: each failure is reported, and nothing is lost. */
    check("a context", tn_ctx_create(&desc, &ctx, why), TN_OK, 0);
    check("trained", train(ctx, &loss), TN_OK, 0);
    const long calls = h.calls;
    tn_ctx_destroy(ctx);
    check("blocks left", (double)h.blocks, 0, 0);
    check("bytes left", (double)h.bytes, 0, 0);
    long failed = 0;
    for (long i = 1; i <= calls; i++) {
        h.calls = 0;
        h.fail_at = i;
        if (tn_ctx_create(&desc, &ctx, why) != TN_OK) { failed++; check("no context", ctx == NULL && why[0] != 0, 1, 0); continue; }
        if (train(ctx, &again) == TN_ERR_MEMORY) failed++;
        tn_ctx_destroy(ctx);
        if (h.blocks != 0) { check("blocks left", (double)h.blocks, 0, 0); return 1; }
    }
    check("failures reported", (double)failed, (double)calls, 0);
    h.fail_at = 0;
    check("then it works", tn_ctx_create(&desc, &ctx, why) == TN_OK && train(ctx, &again) == TN_OK, 1, 0);
    check("with the same loss", again - loss, 0, 0);

    /* The first error stays until it is cleared; ops that are given NULL give NULL. */
    const int64_t a[2] = {3, 4}, b[2] = {5, 6};
    tn_tensor *wrong = tn_matmul(ctx, tn_full(ctx, 2, a, 1), tn_full(ctx, 2, b, 1));
    check("no product", wrong == NULL, 1, 0);
    check("its status", tn_ctx_status(ctx), TN_ERR_SHAPE, 0);
    check("its message names both shapes", strstr(tn_ctx_error(ctx), "[3,4]") && strstr(tn_ctx_error(ctx), "[5,6]"), 1, 0);
    check("the log heard it", strstr(said, "[3,4]") != NULL && lines > 0, 1, 0);
    check("what follows is NULL, too", tn_add(ctx, wrong, wrong) == NULL, 1, 0);
    check("and the first message stays", strstr(tn_ctx_error(ctx), "[5,6]") != NULL, 1, 0);
    tn_ctx_clear_error(ctx);
    check("cleared", tn_ctx_error(ctx)[0], 0, 0);
    check("name of a status", strcmp(tn_status_name(TN_ERR_SHAPE), "TN_ERR_SHAPE") == 0 || tn_status_name(TN_ERR_SHAPE)[0] != 0, 1, 0);

    /* An id outside the table is found at the next sync. */
    const int32_t id[2] = {1, 9};
    const int64_t two[1] = {2}, table[2] = {4, 3};
    tn_tensor    *rows = tn_embed(ctx, tn_full(ctx, 2, table, 2), tn_tensor_from(ctx, 1, two, TN_I32, id));
    check("rows", rows != NULL, 1, 0);
    check("a bad id", tn_ctx_sync(ctx), TN_ERR_DATA, 0);
    tn_ctx_clear_error(ctx);

    /* Marks, the arena and its numbers. */
    const int64_t large[1] = {100000};
    tn_mark       mark = tn_arena_mark(ctx);
    tn_full(ctx, 1, large, 0);
    check("released", tn_arena_release(ctx, mark), TN_OK, 0);
    tn_memory m = tn_ctx_memory(ctx);
    check("memory is counted", m.live > 0 && m.peak >= m.live && m.arena > 0 && m.allocations > 0, 1, 0);
    tn_tensor *kept = tn_tensor_keep(tn_full(ctx, 1, two, 3));
    tn_ctx_reset(ctx);
    check("an owned tensor outlives a reset", tn_item(tn_slice(kept, 0, 1, 2)), 3, 0);
    tn_tensor_destroy(kept);
    tn_ctx_destroy(ctx);
    check("blocks left", (double)h.blocks, 0, 0);

    /* A limit. */
    desc.max_bytes = 1 << 20;
    check("a limit", tn_ctx_create(&desc, &ctx, why), TN_OK, 0);
    check("too large", tn_full(ctx, 1, (const int64_t[1]){1 << 22}, 0) == NULL && tn_ctx_status(ctx) == TN_ERR_MEMORY, 1, 0);
    tn_ctx_destroy(ctx);

    /* What a desc must not have. */
    desc = (tn_desc){.threads = -1};
    check("threads -1", tn_ctx_create(&desc, &ctx, why), TN_ERR_ARG, 0);
    check("says why", strstr(why, "threads") != NULL, 1, 0);
    tn_ctx_destroy(NULL);
    return failures != 0;
}
