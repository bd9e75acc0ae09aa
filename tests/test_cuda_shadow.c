/* Parameters in BF16 beside F32 (>>shadow in tensornet.h) on the cuda backend: training with them is bit-identical to training that
   rounds weights at each product, in steps and in graphs, whatever else happens to the weights; and how many conversions it saves.
   The rules of the library on backends of the processor are in test_shadow.c. */
#include "test.h"
#ifdef TN_CUDA_HOST
#include "cuda_host/control.h"
#endif

enum { STEPS = 10, BATCH = 2, TOKENS = 40, LAYERS = 2 };

typedef struct run {
    tn_ctx        *ctx;
    tn_params     *params;
    tn_transformer m;
    tn_optim      *optim;
    tn_tensor     *ids, *targets, *loss;
    tn_graph      *graph;
    test_heap      heap;
} run;

/* What is trained, and how. */
typedef struct plan {
    tn_optim_kind     rule;
    double            momentum;
    tn_dtype          activations;
    tn_gemm_precision precision;
    bool              recompute, tied, graph;
    int64_t           dim;
} plan;

static bool begin(run *r, const plan *p, const tn_backend *backend, size_t max_bytes)
{
    const int64_t       shape[2] = {BATCH, TOKENS}, vocab = p->dim + 16;
    int32_t             v[BATCH * TOKENS];
    tn_transformer_desc d = ZERO;
    tn_optim_desc       o = ZERO;
    tn_desc             desc = ZERO;
    memset(r, 0, sizeof *r);
    desc.backend = backend;
    desc.activations = p->activations;
    desc.gemm_precision = p->precision;
    desc.seed = 3;
    desc.max_bytes = max_bytes;
    desc.allocator = test_heap_allocator(&r->heap);
    if (!CHECK_STATUS(tn_ctx_create(&desc, &r->ctx, NULL), TN_OK)) return false;
    r->params = tn_params_create(r->ctx);
    d.vocab = vocab;
    d.layers = LAYERS;
    d.dim = p->dim;
    d.heads = 2;
    d.context = TOKENS;
    d.hidden = p->dim;
    d.attention = TN_ATTENTION_BILINEAR;
    d.recompute = p->recompute;
    d.tied = p->tied;
    if (!CHECK_STATUS(tn_transformer_init(r->params, "", &d, &r->m), TN_OK)) return false;
    o.kind = p->rule;
    o.lr = 0.01;
    o.momentum = p->momentum;
    o.clip_norm = 1;
    r->optim = tn_optim_create(r->params, &o);
    r->ids = tn_tensor_create(r->ctx, TN_I32, 2, shape);
    r->targets = tn_tensor_create(r->ctx, TN_I32, 2, shape);
    r->loss = tn_tensor_create(r->ctx, TN_REAL, 0, NULL);
    if (!CHECK(r->optim && r->ids && r->targets && r->loss)) return false;
    for (int i = 0; i < BATCH * TOKENS; i++) v[i] = (int32_t)(i * 7 % vocab);
    CHECK_STATUS(tn_write(r->ids, TN_I32, v, BATCH * TOKENS), TN_OK);
    for (int i = 0; i < BATCH * TOKENS; i++) v[i] = (int32_t)(i * 5 % vocab);
    CHECK_STATUS(tn_write(r->targets, TN_I32, v, BATCH * TOKENS), TN_OK);
    return true;
}

static void finish(run *r)
{
    tn_graph_destroy(r->graph);
    tn_optim_destroy(r->optim);
    tn_ctx_destroy(r->ctx);
    CHECK_INT(r->heap.blocks, 0);
}

static tn_status compute(run *r)
{
    tn_record(r->ctx);
    tn_tensor *loss = tn_transformer_loss(r->ctx, &r->m, r->ids, r->targets);
    if (!loss || tn_backward(r->ctx, loss) != TN_OK || tn_assign(r->loss, loss) != TN_OK) return tn_ctx_status(r->ctx);
    return tn_optim_step(r->optim);
}

/* A step; the graph is captured after two of them. */
static void take_step(run *r, const plan *p, int step)
{
    if (!p->graph || step < 2) {
        tn_ctx_reset(r->ctx);
        if (!CHECK_STATUS(compute(r), TN_OK)) printf("     %s\n", tn_ctx_error(r->ctx));
        return;
    }
    if (!r->graph) {
        CHECK_STATUS(tn_graph_begin(r->ctx), TN_OK);
        CHECK_STATUS(compute(r), TN_OK);
        CHECK_STATUS(tn_graph_end(r->ctx, &r->graph), TN_OK);
    }
    CHECK_STATUS(tn_graph_run(r->graph), TN_OK);
}

/* A parameter that products read, of each kind of layer */
static tn_tensor *matrix_of(const run *r, int which)
{
    return which == 0 ? r->m.blocks[0].mlp.w : which == 1 ? r->m.blocks[1].attn.qk : r->m.head.w;
}

/* What happens between steps: numbers are written, assigned, written to a part, loaded, or not updated. */
static void happen(run *r, int step)
{
    tn_tensor *w = matrix_of(r, step % 3);
    int64_t    n = tn_tensor_count(w);
    float     *v = (float *)malloc(sizeof *v * (size_t)n);
    CHECK_STATUS(tn_read(w, TN_F32, v, n), TN_OK);
    for (int64_t i = 0; i < n; i++) v[i] = v[i] * 0.75f + 0.001f;
    if (step == 3) CHECK_STATUS(tn_write(w, TN_F32, v, n), TN_OK);
    if (step == 4) CHECK_STATUS(tn_assign(w, tn_scale(r->ctx, w, 0.5)), TN_OK);
    if (step == 5) CHECK_STATUS(tn_write(tn_slice(w, 0, 0, 1), TN_F32, v, n / w->shape[0]), TN_OK);
    if (step == 6) {                                        /* this step is skipped */
        const float bad = NAN, good = v[0];
        CHECK_STATUS(tn_write(tn_slice(tn_reshape_2d(w, 1, n), 1, 0, 1), TN_F32, &bad, 1), TN_OK);
        tn_ctx_reset(r->ctx);
        compute(r);
        CHECK_STATUS(tn_ctx_sync(r->ctx), TN_ERR_NONFINITE);
        tn_ctx_clear_error(r->ctx);
        CHECK_STATUS(tn_write(tn_slice(tn_reshape_2d(w, 1, n), 1, 0, 1), TN_F32, &good, 1), TN_OK);
    }
    if (step == 7) {                                        /* as a program that evaluates between its steps */
        tn_ctx_reset(r->ctx);
        CHECK(tn_item(tn_transformer_loss(r->ctx, &r->m, r->ids, r->targets)) > 0);
    }
    free(v);
}

/* Losses of all steps, the parameters after them, and how many kernels the last step has launched. */
static double *train(const plan *p, const tn_backend *backend, bool events, int64_t *count, uint64_t *launches, tn_memory *memory)
{
    run     r;
    int64_t at = STEPS;
    *count = 0;
    if (!begin(&r, p, backend, 0)) return NULL;
    double *v = (double *)malloc(sizeof *v * (size_t)(STEPS + tn_params_elements(r.params)));
    for (int64_t i = 0; i < STEPS; i++) {
        if (events) happen(&r, (int)i);
#ifdef TN_CUDA_HOST
        *launches = tnch_launches();
#endif
        take_step(&r, p, (int)i);
        CHECK_STATUS(tn_read(r.loss, TN_F64, &v[i], 1), TN_OK);
#ifdef TN_CUDA_HOST
        *launches = tnch_launches() - *launches;
#endif
    }
    for (int64_t i = 0; i < tn_params_count(r.params); i++) {
        const tn_tensor *t = tn_params_at(r.params, i)->value;
        CHECK_STATUS(tn_read(t, TN_F64, v + at, tn_tensor_count(t)), TN_OK);
        at += tn_tensor_count(t);
    }
    *memory = tn_ctx_memory(r.ctx);
    CHECK_CTX(r.ctx);
    finish(&r);
    *count = at;
    return v;
}

static plan plan_of(int k)
{
    plan p = {TN_OPTIM_ADAMW, 0, TN_BF16, TN_GEMM_F32, false, false, false, 64};
    p.rule = k % 4 == 1 ? TN_OPTIM_MUON : k % 4 > 1 ? TN_OPTIM_SGD : TN_OPTIM_ADAMW;
    p.momentum = k % 4 == 3 || k % 4 == 1 ? 0.9 : 0;
    p.graph = k / 4 % 2 == 1;
    p.tied = k % 3 == 1;
    p.recompute = k % 5 == 2;
    if (k % 6 == 5) { p.activations = TN_F32; p.precision = TN_GEMM_BF16; }
    if (k % 7 == 3) p.dim = 72;
    if (k % 7 == 6) p.dim = 68;                             /* rows that a copy in scratch would pad to packs of 8 numbers */
    return p;
}

TEST(bits_are_those_of_rounding_at_each_product)
{
    NEED_GPU();
    tn_backend plain = *tn_cuda_backend();
    CHECK_INT(plain.shadow, 64);
    plain.shadow = 0;
    for (int k = test_least() ? 6 : 0; k < (test_small() ? 8 : 24); k++) {
        const plan p = plan_of(k);
        int64_t    n[2];
        uint64_t   launches[2] = {0, 0};
        tn_memory  memory[2];
        double    *with = train(&p, tn_cuda_backend(), k >= 4, &n[0], &launches[0], &memory[0]);
        double    *without = train(&p, &plain, k >= 4, &n[1], &launches[1], &memory[1]);
        if (CHECK(with && without) && CHECK_INT(n[0], n[1])) CHECK(memcmp(with, without, sizeof *with * (size_t)n[0]) == 0);
        /* qk, v and o of an attention, w and p of an MLP, and the head: 2 bytes per number, and what describes them */
        int64_t more = (int64_t)(memory[0].live - memory[1].live);
        int64_t numbers = LAYERS * (4 + 1 + 1 + 2 + 1) * p.dim * p.dim + p.dim * (p.dim + 16);
        CHECK(more >= 2 * numbers && more <= 2 * numbers + 128 * (5 * LAYERS + 1));
#ifdef TN_CUDA_HOST
        /* each of these 11 matrices would be rounded twice, and those of blocks that are recomputed a third time */
        CHECK_INT((int64_t)(launches[1] - launches[0]),
                  p.dim % 8 != 0 ? 0 : 2 * (5 * LAYERS + 1) + (p.recompute ? 5 * LAYERS : 0));
#endif
        free(with);
        free(without);
    }
}

/* Whether a first step succeeds within so many bytes; the arena takes smaller blocks where they would not fit. */
static bool fits(const tn_backend *backend, size_t bytes, char said[256])
{
    plan p = plan_of(0);
    run  r;
    if (!begin(&r, &p, backend, bytes)) return false;
    bool done = compute(&r) == TN_OK;
    CHECK(done || tn_ctx_status(r.ctx) == TN_ERR_MEMORY);
    CHECK_INT(tn_optim_step_count(r.optim), done);
    snprintf(said, 256, "%s", tn_ctx_error(r.ctx));
    finish(&r);
    return done;
}

/* The memory counts: where a step just fits without shadows, the optimiser gets none, and says so before it changes anything. A
   context that does not train makes none. */
TEST(memory_counts)
{
    plan p = plan_of(0);
    char said[256];
    run  r;
    NEED_GPU();
    tn_backend plain = *tn_cuda_backend();
    plain.shadow = 0;
    if (!begin(&r, &p, &plain, 0)) return;
    size_t low = tn_ctx_memory(r.ctx).live;
    CHECK_STATUS(compute(&r), TN_OK);
    size_t high = tn_ctx_memory(r.ctx).peak;
    finish(&r);
    while (high - low > 20000) {
        const size_t middle = (low + high) / 2;
        if (fits(&plain, middle, said)) high = middle;
        else low = middle;
    }
    CHECK(!fits(tn_cuda_backend(), high, said));
    if (!CHECK(strstr(said, "weights in BF16") != NULL)) printf("     %s\n", said);
    if (!begin(&r, &p, tn_cuda_backend(), 0)) return;
    CHECK(tn_transformer_loss(r.ctx, &r.m, r.ids, r.targets) != NULL);
    size_t before = tn_ctx_memory(r.ctx).live;
    tn_ctx_reset(r.ctx);
    CHECK(tn_transformer_loss(r.ctx, &r.m, r.ids, r.targets) != NULL);
    CHECK(tn_ctx_memory(r.ctx).live == before);
    finish(&r);
}

/* A clone has no shadows. */
TEST(clones)
{
    plan    p = plan_of(0);
    run     r;
    float  *v[2];
    int64_t n = BATCH * TOKENS * (p.dim + 16);
    NEED_GPU();
    if (!begin(&r, &p, tn_cuda_backend(), 0)) return;
    for (int i = 0; i < 3; i++) take_step(&r, &p, i);
    size_t live = tn_ctx_memory(r.ctx).live;
    tn_params *clone = tn_params_clone(r.ctx, r.params);
    CHECK(tn_ctx_memory(r.ctx).live - live < 5 * (size_t)tn_params_elements(r.params));
    tn_transformer m = r.m;
    CHECK(tn_params_rebind(clone, r.params, &m, sizeof m) > 0);
    tn_ctx_reset(r.ctx);
    for (int i = 0; i < 2; i++) {
        v[i] = (float *)malloc(sizeof(float) * (size_t)n);
        CHECK_STATUS(tn_read(tn_transformer_forward(r.ctx, i ? &m : &r.m, r.ids), TN_F32, v[i], n), TN_OK);
    }
    CHECK(memcmp(v[0], v[1], sizeof(float) * (size_t)n) == 0);
    free(v[0]);
    free(v[1]);
    tn_params_destroy(clone);
    CHECK_CTX(r.ctx);
    finish(&r);
}

/* The kernels of the last step of some, all of whose parameters are frozen but for the embedding. */
static uint64_t frozen(const tn_backend *backend, double *loss)
{
    plan     p = plan_of(0);
    uint64_t launches = 0;
    run      r;
    if (!begin(&r, &p, backend, 0)) return 0;
    CHECK(tn_params_freeze(r.params, "blocks.*") > 0 && tn_params_freeze(r.params, "head.*") == 1);
    for (int i = 0; i < 4; i++) {
#ifdef TN_CUDA_HOST
        launches = tnch_launches();
#endif
        take_step(&r, &p, i);
        *loss = tn_item(r.loss);
#ifdef TN_CUDA_HOST
        launches = tnch_launches() - launches;
#endif
    }
    CHECK_CTX(r.ctx);
    finish(&r);
    return launches;
}

/* Frozen parameters have shadows, too, which nothing makes anew. */
TEST(frozen_parameters)
{
    double   loss[2] = {0, 1};
    uint64_t launches[2];
    NEED_GPU();
    tn_backend plain = *tn_cuda_backend();
    plain.shadow = 0;
    launches[0] = frozen(tn_cuda_backend(), &loss[0]);
    launches[1] = frozen(&plain, &loss[1]);
    CHECK(loss[0] == loss[1]);
#ifdef TN_CUDA_HOST
    CHECK_INT((int64_t)(launches[1] - launches[0]), 2 * (5 * LAYERS + 1));
#endif
    (void)launches;
}

TEST_MAIN(bits_are_those_of_rounding_at_each_product, memory_counts, clones, frozen_parameters)
