/* test_shadow.c: parameters in BF16 beside F32, which products read (>>shadow in tensornet.h): every product gets the numbers that
   rounding would give it, whatever has happened to the parameter, and how often they are made anew. The kernels of the cuda
   backend are in test_cuda_shadow.c, many processes in test_comm.c. */
#include "shadow.h"
#include "capture.h"
#include "net.h"

typedef struct run {
    tn_ctx    *ctx;
    tn_params *params;
    net        m;
    tn_optim  *optim;
    tn_tensor *ids, *labels, *loss;
    test_heap  heap;
} run;

enum { ROWS = 9, STEPS = 8 };

static tn_gemm_precision precision = TN_GEMM_BF16;

static bool begin(run *r, const tn_backend *backend, tn_optim_kind rule, double momentum, bool trains)
{
    static const int32_t id[ROWS] = {0, 1, 2, 3, 4, 0, 2, 4, 1}, label[ROWS] = {1, 2, 3, 4, 0, 1, 3, 0, 2};
    const int64_t n = ROWS;
    tn_optim_desc d = ZERO;
    tn_desc       desc = ZERO;
    memset(r, 0, sizeof *r);
    desc.backend = backend;
    desc.gemm_precision = precision;
    desc.threads = 1;
    desc.seed = 4;
    desc.allocator = test_heap_allocator(&r->heap);
    if (!CHECK_STATUS(tn_ctx_create(&desc, &r->ctx, NULL), TN_OK)) return false;
    r->params = tn_params_create(r->ctx);
    if (!CHECK(net_make(r->params, &r->m))) return false;
    d.kind = rule;
    d.momentum = momentum;
    d.lr = 0.05;
    r->optim = trains ? tn_optim_create(r->params, &d) : NULL;
    r->ids = tn_tensor_create(r->ctx, TN_I32, 1, &n);
    r->labels = tn_tensor_create(r->ctx, TN_I32, 1, &n);
    r->loss = tn_tensor_create(r->ctx, TN_REAL, 0, NULL);
    CHECK_STATUS(tn_write(r->ids, TN_I32, id, ROWS), TN_OK);
    CHECK_STATUS(tn_write(r->labels, TN_I32, label, ROWS), TN_OK);
    return true;
}

static void finish(run *r)
{
    tn_optim_destroy(r->optim);
    tn_ctx_destroy(r->ctx);
    CHECK_INT(r->heap.blocks, 0);
}

static tn_tensor *forward(run *r)
{
    tn_tensor *x = tn_embedding_forward(r->ctx, &r->m.embed, r->ids);
    x = tn_mlp_forward(r->ctx, &r->m.mlp, tn_norm_forward(r->ctx, &r->m.norm, x));
    return tn_cross_entropy(r->ctx, tn_linear_forward(r->ctx, &r->m.head, x), r->labels);
}

static tn_status compute(run *r)
{
    tn_record(r->ctx);
    tn_tensor *loss = forward(r);
    if (!loss || tn_assign(r->loss, loss) != TN_OK || tn_backward(r->ctx, loss) != TN_OK) return tn_ctx_status(r->ctx);
    return tn_optim_step(r->optim);
}

/* The losses, the parameters, and the calls of COPY of each step. */
typedef struct outcome { double loss[STEPS], params[400]; int64_t copies[STEPS], count; } outcome;

static void write_one(tn_tensor *w, double by)
{
    float x;
    tn_tensor *one = tn_slice(tn_reshape_2d(w, 1, -1), 1, 0, 1);
    CHECK_STATUS(tn_read(one, TN_F32, &x, 1), TN_OK);
    x = (float)((double)x + by);
    CHECK_STATUS(tn_write(one, TN_F32, &x, 1), TN_OK);
}

/* What happens before a step. */
static void happen(run *r, int step)
{
    tn_tensor *w = r->m.mlp.w;
    if (step == 2) write_one(r->m.head.w, 0.25);
    if (step == 3) CHECK_STATUS(tn_assign(w, tn_scale(r->ctx, w, 0.5)), TN_OK);
    if (step == 4) CHECK_STATUS(tn_assign(tn_slice(w, 0, 0, 1), tn_scale(r->ctx, tn_slice(w, 0, 1, 2), 2)), TN_OK);
    if (step == 5) {                                        /* a step is skipped */
        write_one(w, NAN);
        tn_ctx_reset(r->ctx);
        CHECK(compute(r) != TN_OK || tn_ctx_sync(r->ctx) != TN_OK);
        tn_ctx_clear_error(r->ctx);
        CHECK_STATUS(tn_assign(w, tn_full(r->ctx, w->rank, w->shape, 0.125)), TN_OK);
    }
    if (step == 6) write_one(r->m.mlp.p, 0.5);
}

static void train(run *r, const tn_backend *backend, tn_optim_kind rule, double momentum, bool events, bool graphed, outcome *o)
{
    tn_graph *graph = NULL;
    int64_t   at = 0;
    memset(o, 0, sizeof *o);
    if (!begin(r, backend, rule, momentum, true)) return;
    for (int i = 0; i < STEPS; i++) {
        tn_ctx_reset(r->ctx);
        if (events) happen(r, i);
        o->copies[i] = -(int64_t)tn_ctx_kernel_calls(r->ctx, TN_KERNEL_COPY);
        if (graphed && i == 2) {
            CHECK_STATUS(tn_graph_begin(r->ctx), TN_OK);
            CHECK_STATUS(compute(r), TN_OK);
            CHECK_STATUS(tn_graph_end(r->ctx, &graph), TN_OK);
            CHECK(forward(r) != NULL);                      /* the capture has computed nothing */
        }
        if (graph) CHECK_STATUS(tn_graph_run(graph), TN_OK);
        else {
            tn_ctx_reset(r->ctx);
            CHECK_STATUS(compute(r), TN_OK);
        }
        o->copies[i] += (int64_t)tn_ctx_kernel_calls(r->ctx, TN_KERNEL_COPY);
        CHECK_STATUS(tn_read(r->loss, TN_F64, &o->loss[i], 1), TN_OK);
    }
    for (int64_t k = 0; k < tn_params_count(r->params); k++) {
        const tn_tensor *t = tn_params_at(r->params, k)->value;
        if (CHECK(at + tn_tensor_count(t) <= 400)) CHECK_STATUS(tn_read(t, TN_F64, o->params + at, tn_tensor_count(t)), TN_OK);
        at += tn_tensor_count(t);
    }
    o->count = at;
    tn_graph_destroy(graph);
    CHECK_CTX(r->ctx);
}

/* Every rule, in steps and in graphs, alone and with all that rewrites parameters: products get what rounding would give, and
   so all is bit-identical. Once there, an operand is made anew only where something else than an update has written. */
TEST(training)
{
    for (int k = 0; k < 16; k++) {
        const tn_optim_kind rule = k % 4 == 0 ? TN_OPTIM_ADAMW : k % 4 == 1 ? TN_OPTIM_MUON : TN_OPTIM_SGD;
        const double        momentum = k % 4 == 1 || k % 4 == 3 ? 0.9 : 0;
        const bool          events = k / 4 % 2 == 1, graphed = k / 8 == 1;
        tn_backend          with = *shadow_backend(true), without = *shadow_backend(false);
        outcome             a, b;
        run                 r;
        if (graphed) {
            capture_rows = shadow_backend(true);
            with = without = *capture_backend();
            with.shadow = SHADOW_LEAST;
        }
        shadow_seen.given = shadow_seen.wrong = 0;
        train(&r, &with, rule, momentum, events, graphed, &a);
        /* the MLP's w and p, and the head; each step reads them twice from the second on */
        CHECK(shadow_seen.given >= (STEPS - 1) * 6);
        CHECK_INT(shadow_seen.wrong, 0);
        finish(&r);
        shadow_seen.given = 0;
        train(&r, &without, rule, momentum, events, graphed, &b);
        CHECK_INT(shadow_seen.given, 0);
        finish(&r);
        capture_rows = NULL;
        CHECK(a.count > 0 && a.count == b.count && memcmp(a.params, b.params, sizeof *a.params * (size_t)a.count) == 0);
        CHECK(memcmp(a.loss, b.loss, sizeof a.loss) == 0);
        for (int i = 0; i < STEPS && !events; i++) CHECK_INT(a.copies[i] - b.copies[i], i == 1 ? 3 : 0);
        for (int i = 0; i < STEPS && events && !graphed; i++)
            CHECK_INT(a.copies[i] - b.copies[i], i == 1 ? 3 : i == 2 || i == 3 || i == 4 || i == 5 || i == 6);
    }
}

/* What has no use for the operand has none: a program that does not train, other precisions, small matrices, and copies of
   parameters. A part of a parameter has that part of it. */
TEST(only_where_it_is_of_use)
{
    static const int64_t thin[2] = {1, 6};
    run        r;
    tn_init    init = ZERO;
    init.rule = TN_INIT_NORMAL;
    init.std = 1;
    if (!begin(&r, shadow_backend(true), TN_OPTIM_ADAMW, 0, false)) return;
    shadow_seen.given = shadow_seen.wrong = 0;
    CHECK(forward(&r) != NULL);
    finish(&r);
    precision = TN_GEMM_F32;
    if (!begin(&r, shadow_backend(true), TN_OPTIM_ADAMW, 0, true)) return;
    precision = TN_GEMM_BF16;
    CHECK_STATUS(compute(&r), TN_OK);
    tn_ctx_reset(r.ctx);
    CHECK(forward(&r) != NULL);
    CHECK_INT(shadow_seen.given, 0);
    finish(&r);
    if (!begin(&r, shadow_backend(true), TN_OPTIM_ADAMW, 0, true)) return;
    tn_tensor *w = tn_params_add(r.params, "thin", 2, thin, init)->value;
    CHECK_STATUS(compute(&r), TN_OK);
    tn_ctx_reset(r.ctx);
    shadow_seen.given = 0;
    tn_record(r.ctx);
    tn_tensor *x = tn_embedding_forward(r.ctx, &r.m.embed, r.ids);
    x = tn_affine(r.ctx, x, w, NULL);
    CHECK_STATUS(tn_backward(r.ctx, tn_sum(r.ctx, tn_mul(r.ctx, x, x))), TN_OK);
    CHECK_STATUS(tn_optim_step(r.optim), TN_OK);
    tn_ctx_reset(r.ctx);
    CHECK(tn_affine(r.ctx, tn_embedding_forward(r.ctx, &r.m.embed, r.ids), w, NULL) != NULL);
    CHECK(tn_affine(r.ctx, tn_embedding_forward(r.ctx, &r.m.embed, r.ids), tn_copy(r.ctx, r.m.head.w), NULL) != NULL);
    CHECK_INT(shadow_seen.given, 0);
    CHECK(tn_affine(r.ctx, tn_embedding_forward(r.ctx, &r.m.embed, r.ids), r.m.head.w, NULL) != NULL);
    CHECK_INT(shadow_seen.given, 1);
    CHECK(tn_affine(r.ctx, tn_embedding_forward(r.ctx, &r.m.embed, r.ids), tn_slice(r.m.head.w, 0, 1, 4), NULL) != NULL);
    CHECK_INT(shadow_seen.given, 2);
    CHECK_INT(shadow_seen.wrong, 0);
    CHECK_CTX(r.ctx);
    finish(&r);
}

/* Two steps, and a third one in a graph that has not ended. */
static void begin_capture(run *r)
{
    for (int i = 0; i < 2; i++) {
        tn_ctx_reset(r->ctx);
        CHECK_STATUS(compute(r), TN_OK);
    }
    CHECK_STATUS(tn_graph_begin(r->ctx), TN_OK);
    CHECK_STATUS(compute(r), TN_OK);
}

/* A graph that was captured before the operands were there reads none and writes none: they are made anew after it. */
TEST(a_graph_from_before)
{
    tn_graph *graph;
    run       r;
    capture_rows = shadow_backend(true);
    tn_backend with = *capture_backend();
    if (!begin(&r, &with, TN_OPTIM_ADAMW, 0, true)) return;            /* of a backend without them ... */
    begin_capture(&r);
    CHECK_STATUS(tn_graph_end(r.ctx, &graph), TN_OK);
    with.shadow = SHADOW_LEAST;                                         /* ... which has them from now on */
    shadow_seen.given = shadow_seen.wrong = 0;
    for (int i = 0; i < 6; i++) {
        tn_ctx_reset(r.ctx);
        if (i % 2 == 0) CHECK_STATUS(compute(&r), TN_OK);
        else CHECK_STATUS(tn_graph_run(graph), TN_OK);
    }
    CHECK_INT(shadow_seen.given, 2 * 6);                                /* the steps 2 and 4 */
    CHECK_INT(shadow_seen.wrong, 0);
    tn_graph_destroy(graph);
    CHECK_CTX(r.ctx);
    finish(&r);
    capture_rows = NULL;
}

/* A captured step that rewrites a parameter after its update: each replay makes the operand anew before it begins. */
TEST(a_graph_that_rewrites_a_parameter)
{
    tn_graph *graph;
    run       r;
    capture_rows = shadow_backend(true);
    tn_backend with = *capture_backend();
    with.shadow = SHADOW_LEAST;
    if (!begin(&r, &with, TN_OPTIM_ADAMW, 0, true)) return;
    begin_capture(&r);
    CHECK_STATUS(tn_assign(r.m.head.w, tn_scale(r.ctx, r.m.head.w, 0.5)), TN_OK);
    CHECK_STATUS(tn_graph_end(r.ctx, &graph), TN_OK);
    shadow_seen.given = shadow_seen.wrong = 0;
    for (int i = 0; i < 4; i++) CHECK_STATUS(tn_graph_run(graph), TN_OK);
    CHECK(shadow_seen.given > 0);
    CHECK_INT(shadow_seen.wrong, 0);
    tn_graph_destroy(graph);
    CHECK_CTX(r.ctx);
    finish(&r);
    capture_rows = NULL;
}

/* Memory for them that is refused is an error of the step, which then changes nothing. */
TEST(no_memory)
{
    uint64_t n;
    bool     done = false;
    for (n = 1; !done && n < 1000; n++) {
        run r;
        if (!begin(&r, shadow_backend(true), TN_OPTIM_ADAMW, 0, true)) return;
        r.heap.fail_at = r.heap.count + n;
        done = compute(&r) == TN_OK;
        r.heap.fail_at = 0;
        if (!done) {
            CHECK_STATUS(tn_ctx_status(r.ctx), TN_ERR_MEMORY);
            tn_ctx_clear_error(r.ctx);
            CHECK_INT(tn_optim_step_count(r.optim), 0);
            tn_ctx_reset(r.ctx);
            CHECK_STATUS(compute(&r), TN_OK);
        }
        finish(&r);
    }
    CHECK(done && n > 10);
}

TEST_MAIN(training, only_where_it_is_of_use, a_graph_from_before, a_graph_that_rewrites_a_parameter, no_memory)
