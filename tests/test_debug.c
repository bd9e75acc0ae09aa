/* test_debug.c: what TN_DEBUG catches. A tensor of a reset arena is told from the tensors that came after it, by ops and by views,
   until the reset after; its data is NaN. A second thread that uses a context while the first one is in a call is refused.

   And two more macros that change what is compiled, so that it is compiled once. TN_STATIC keeps every name inside this file: the
   program is linked with a second copy of the library, and nothing clashes. Under TN_NO_STDIO the library does without stdio.h:
   whoever has no file system still has tensors. SIMD kernels, a third of what there is to compile, know nothing of these macros. */

#define TN_SIMD_MAX 0
#define TN_DEBUG
#define TN_STATIC
#define TN_NO_STDIO
#define TENSORNET_IMPLEMENTATION
#include "sealed.h"
#ifdef BUFSIZ
#error "tensornet.h includes stdio.h under TN_NO_STDIO"
#endif
#include "pool.h"
#include "kit.h"

static void stale(const tn_backend *backend)
{
    tn_ctx    *ctx = ctx_on(backend, TN_REAL, TN_SIMD_AUTO, 0);
    tn_tensor *fresh = NULL;
    float v[6] = {0, 0, 0, 0, 0, 0};
    REQUIRE(ctx != NULL);
    tn_tensor *old = tn_full(ctx, 0, NULL, 1);
    tn_tensor *kept = tn_tensor_keep(old);
    tn_ctx_reset(ctx);
    for (int k = 0; k < 100; k++) fresh = tn_full(ctx, 0, NULL, 2);        /* many headers, none over the old one */
    REFUSED(ctx, tn_add(ctx, fresh, old), TN_ERR_ARG, "add: b is a tensor of an arena that was reset");
    CHECK(tn_reshape_2d(old, 1, 1) == NULL);                           /* what is given no context refuses without words */
    CHECK(tn_slice(old, 0, 0, 1) == NULL);
    CHECK(tn_transpose(old, 0, 0) == NULL);
    CHECK(tn_tensor_keep(old) == NULL);
    CHECK(tn_item(old) != tn_item(old));
    CHECK_STATUS(tn_write(old, TN_F32, v, 1), TN_ERR_ARG);
    CHECK_STATUS(tn_watch(old), TN_ERR_ARG);
    CHECK_INT(tn_tensor_format(old, NULL, 0), -1);
    CHECK_INT(tn_tensor_count(old), 0);
    CHECK(tn_item(kept) == 1);
    CHECK(tn_item(fresh) == 2);
    CLOSE_CTX(ctx);
}

TEST(stale_tensors)
{
    stale(tn_cpu_backend());
    if (!test_leave_out(!SEALED, NO_SEALED)) stale(sealed_cpu());
}

/* A tap of a run that resets the context, at each point */
static tn_tensor *resets(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)user; (void)name;
    tn_ctx_reset(ctx);
    return x;
}

TEST(taps_that_reset)
{
    tn_ctx             *ctx = ctx_on(NULL, TN_REAL, TN_SIMD_AUTO, 0);
    tn_params          *params = tn_params_create(ctx);
    tn_transformer      m;
    tn_transformer_desc d = ZERO;
    tn_point            points[64];
    tn_tap              tap;
    char                message[160];
    const int64_t       shape[2] = {1, 2};
    const int32_t       id[2] = {0, 1};
    d.vocab = 3; d.layers = 1; d.dim = 4; d.heads = 2; d.context = 2; d.softcap = 2;
    REQUIRE(CHECK_STATUS(tn_transformer_init(params, "", &d, &m), TN_OK));
    int64_t n = tn_transformer_points(&m, 1, 2, points, 64);
    CHECK(n > 15 && n <= 64);
    tap.fn = resets;
    tap.user = NULL;
    for (int64_t i = 0; i < n; i++) {
        tap.points = points[i].name;
        snprintf(message, sizeof message, "transformer_run: %s is a tensor of an arena that was reset", points[i].name);
        REFUSED(ctx, tn_transformer_run(ctx, &m, tn_tensor_from(ctx, 2, shape, TN_I32, id), &tap, 1), TN_ERR_ARG, message);
    }
    tn_ctx_destroy(ctx);
}

/* Bytes that nobody has written since the reset are NaN, so that a forgotten write shows. */
TEST(poison)
{
    tn_ctx *ctx = ctx_on(NULL, TN_REAL, TN_SIMD_AUTO, 0);
    float v[6];
    int64_t n = 6;
    REQUIRE(ctx != NULL);
    tn_full(ctx, 1, &n, 1);
    tn_ctx_reset(ctx);
    tn_tensor *t = tn_tensor_nd(ctx, TN_F32, 1, &n);
    CHECK_STATUS(tn_read(t, TN_F32, v, n), TN_OK);
    for (int i = 0; i < 6; i++) CHECK(v[i] != v[i]);
    tn_mark mark = tn_arena_mark(ctx);
    tn_full(ctx, 1, &n, 1);
    CHECK_STATUS(tn_arena_release(ctx, mark), TN_OK);
    t = tn_tensor_nd(ctx, TN_F32, 1, &n);
    CHECK_STATUS(tn_read(t, TN_F32, v, n), TN_OK);
    for (int i = 0; i < 6; i++) CHECK(v[i] != v[i]);
    CLOSE_CTX(ctx);
}

/* Training under TN_DEBUG comes to the same end, and allocates nothing once it is warm. */
TEST(debug_training)
{
    tn_ctx *ctx = ctx_on(NULL, TN_REAL, TN_SIMD_AUTO, 0);
    tn_params *ps = tn_params_create(ctx);
    tn_linear_desc d = ZERO;
    tn_linear fc;
    tn_memory warm = tn_ctx_memory(ctx);
    int64_t shape[2] = {4, 3}, n = 4;
    float first = 0, loss = 0;
    d.bias = true;
    d.in = 3;
    d.out = 2;
    REQUIRE(tn_linear_init(ps, "fc", &d, &fc) == TN_OK);
    tn_optim *optim = tn_optim_create(ps, NULL);
    for (int step = 0; step < 20; step++) {
        tn_tensor *x = tn_uniform(ctx, 2, shape, 0, 1), *labels = tn_cast(ctx, tn_full(ctx, 1, &n, 1), TN_I32);
        tn_record(ctx);
        tn_tensor *y = tn_cross_entropy(ctx, tn_linear_forward(ctx, &fc, x), labels);
        CHECK_STATUS(tn_backward(ctx, y), TN_OK);
        CHECK_STATUS(tn_optim_step(optim), TN_OK);
        loss = (float)tn_item(y);
        if (step == 0) first = loss;
        tn_ctx_reset(ctx);
        if (step == 2) warm = tn_ctx_memory(ctx);
    }
    CHECK(loss < first);
    CHECK_INT(tn_ctx_memory(ctx).allocations, warm.allocations);
    CLOSE_CTX(ctx);
}

/* ---- two threads in one context ---- */

#ifdef HAVE_PTHREADS
typedef struct guest { tn_ctx *ctx; tn_tensor *kept; tn_params *params; int call; bool refused; } guest;

static void *visit(void *user)
{
    guest *g = (guest *)user;
    float  v = 0;
    if (g->call == 0) g->refused = tn_full(g->ctx, 0, NULL, 1) == NULL;
    else if (g->call == 1) g->refused = tn_read(g->kept, TN_F32, &v, 1) == TN_ERR_ARG;
    else if (g->call == 2) tn_ctx_reset(g->ctx);
    else if (g->call == 3) g->refused = tn_params_find(g->params, "w") == NULL;
    else g->refused = tn_params_freeze(g->params, "w") == 0;
    return NULL;
}

/* A parallel loop in the middle of which another thread visits its context, if there is one. */
static void visited_for(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    guest    *g = (guest *)user;
    pthread_t thread;
    if (g->ctx && CHECK(pthread_create(&thread, NULL, visit, g) == 0)) pthread_join(thread, NULL);
    g->ctx = NULL;
    pool_backwards(NULL, tasks, workers, fn, arg);
}

TEST(two_threads_in_a_context)
{
    static const char *const said[5] = {"allocation", "download", "reset", "params_find", "params_freeze"};
    const tn_init zeros = {TN_INIT_ZERO, 0, 0, 0};
    const int64_t n = 1 << 18, one = 1;
    tn_desc       d = ZERO;
    tn_ctx       *ctx;
    guest         g = ZERO;
    d.threads = 2;
    d.parallel_for = visited_for;
    d.parallel_user = &g;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    g.kept = tn_tensor_create(ctx, TN_REAL, 1, &one);
    tn_tensor *x = tn_full(ctx, 1, &n, 1);
    g.params = tn_params_create(ctx);
    CHECK(tn_params_add(g.params, "w", 1, &one, zeros) && tn_params_find(g.params, "w"));
    for (g.call = 0; g.call < 5; g.call++) {
        char message[128];
        snprintf(message, sizeof message, "act: another thread used the context meanwhile, in %s; expected one thread",
                 said[g.call]);
        CHECK(tn_exp(ctx, x) != NULL);
        CHECK_CTX(ctx);
        g.ctx = ctx;
        g.refused = g.call == 2;
        tn_tensor *y = tn_exp(ctx, x);
        CHECK(!g.ctx && g.refused);
        CHECK_ERROR(ctx, TN_ERR_ARG, message);
        CHECK(y && fabs(tn_item(tn_slice(y, 0, n - 1, n)) - exp(1.0)) < 1e-6 && tn_item(tn_slice(x, 0, 0, 1)) == 1);
    }
    tn_ctx_destroy(ctx);
}
#else
TEST(two_threads_in_a_context) { SKIP("pthreads", "two threads"); }
#endif

static void opens(void)
{
    tn_ctx *ctx = NULL;
    CHECK_STATUS(tn_ctx_create(NULL, &ctx, NULL), TN_OK);
    tn_ctx_destroy(ctx);
}

TEST(is_static) { opens(); }
TEST(no_stdio)  { opens(); }

TEST_MAIN(stale_tensors, taps_that_reset, poison, debug_training, two_threads_in_a_context, is_static, no_stdio)
