/* test_dry.c: a backend without memory, and a carrier without processes (tools/tn/dry.c). The memory of a step, as they tell it
   (tn info --plan), beside that of a step that computes. test_cuda_nccl.c does the same for the backend cuda, for BF16 (which
   kernels of cpu take it depends on the processor) and for several processes. */
#include "model.h"
#include "../tools/tn/dry.c"

typedef struct training {
    tn_transformer_desc d;
    tn_dtype      dtype, activations;
    tn_optim_kind kind;
    int64_t       texts, parts;
} training;

/* The most that three steps need. */
static size_t peak_of(const training *t, const tn_backend *backend)
{
    world          w;
    tn_transformer m;
    tn_optim_desc  od = ZERO;
    const int64_t  n = t->texts * t->d.context;
    int32_t       *ids = (int32_t *)malloc((size_t)n * sizeof *ids);
    od.kind = t->kind;
    if (!CHECK(ids != NULL) || !open_as(&w, t->dtype, t->activations, 1, 1, backend)) exit(1);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(i % t->d.vocab);
    CHECK_STATUS(tn_transformer_init(w.params, "", &t->d, &m), TN_OK);
    tn_optim *optim = tn_optim_create(w.params, &od);
    for (int64_t step = 0; step < 3; step++) {
        for (int64_t part = 0; part < t->parts; part++) {
            tn_ctx_reset(w.ctx);
            tn_tensor *x = tn_tensor_2d(w.ctx, TN_I32, t->texts, t->d.context);
            tn_write(x, TN_I32, ids, n);
            tn_record(w.ctx);
            tn_tensor *loss = tn_transformer_loss(w.ctx, &m, x, x);
            CHECK_STATUS(tn_backward(w.ctx, tn_scale(w.ctx, loss, 1 / (double)t->parts)), TN_OK);
        }
        CHECK_STATUS(tn_optim_step(optim), TN_OK);
    }
    size_t peak = tn_ctx_memory(w.ctx).peak;
    close_world(&w);
    free(ids);
    return peak;
}

/* Without a device, so that attention has the forms that it has on a processor. */
static const tn_backend *dry_processor(void)
{
    static tn_backend b;
    b = *dry_backend();
    b.device = NULL;
    return &b;
}

static double worst;
static void compare(const training *t, const char *what)
{
    const double real = (double)peak_of(t, tn_cpu_backend()), dry = (double)peak_of(t, dry_processor());
    if (!CHECK(fabs(dry / real - 1) <= 0.02)) printf("%s, %s: %g bytes, dry %g\n", what, tn_dtype_name(t->dtype), real, dry);
    test_raise(&worst, fabs(dry / real - 1));
}

/* Each attention, MLP and norm, with so many tokens that tensors are most of the memory: a dry step does not count what kernels
   keep for themselves. */
TEST(every_model)
{
    training t = ZERO;
    int      most = test_small() ? 4 : VARIANTS;
    t.texts = 256;
    t.parts = 1;
    for (int k = 0; k < most; k++) {
        const char *what;
        t.d = variant(k, &what);
        t.d.context = 32;
        t.d.vocab = 97;
        t.dtype = TN_F32;
        t.activations = TN_REAL;
        compare(&t, what);
        t.dtype = TN_F64;
        compare(&t, what);
    }
    WORST("memory of a dry step against a real one", worst, 0.02);
}

TEST(parts_recomputation_and_optimisers)
{
    training t = ZERO;
    t.d = tiny();
    t.d.dim = 64;
    t.d.hidden = 96;
    t.d.layers = 6;
    t.d.context = 48;
    t.d.vocab = 600;
    t.dtype = TN_F32;
    t.texts = 24;
    t.parts = 2;
    worst = 0;
    compare(&t, "parts");
    t.d.recompute = true;
    compare(&t, "recomputed blocks");
    t.kind = TN_OPTIM_MUON;
    t.d.tied = true;
    compare(&t, "Muon, tied");
    t.d.recompute = false;
    t.d.dropout = 0.1;
    t.d.embed_noise = 0.1;
    compare(&t, "dropout and noise");
    t.kind = TN_OPTIM_SGD;
    compare(&t, "SGD");
    WORST("memory of a dry step against a real one", worst, 0.02);
}

/* 200 layers of width 8192. */
TEST(a_model_that_is_too_large_for_this_machine)
{
    training t = ZERO;
    if (sizeof(void *) < 8) SKIP("64", "addresses of 64 bits");
    t.d = tiny();
    t.d.dim = 8192;
    t.d.heads = 64;
    t.d.hidden = 3 * 8192;
    t.d.layers = 200;
    t.d.context = 2048;
    t.d.vocab = 50304;
    t.d.recompute = true;
    t.dtype = TN_F32;
    t.activations = TN_BF16;
    t.texts = 1;
    t.parts = 1;
    double weights = 4 * (double)tn_transformer_cost_of(&t.d, t.d.context).params;
    size_t peak = peak_of(&t, dry_backend());
    CHECK(weights > 5e11);
    if (!CHECK((double)peak > 4.49 * weights && (double)peak < 4.59 * weights))      /* values, gradients, two moments; BF16 */
        printf("%g times the weights\n", (double)peak / weights);
}

/* 256 keys of extent 8: the rule of processors takes the quadratic form, that of devices the linear one. */
TEST(attention_has_the_form_of_a_gpu)
{
    const int64_t     shape[4] = {1, 256, 2, 8};
    const tn_backend *backend[2];
    tn_attend_desc    d = ZERO;
    d.kind = TN_ATTEND_SQUARED;
    backend[0] = dry_processor();
    backend[1] = dry_backend();
    for (int k = 0; k < 2; k++) {
        world w;
        if (!CHECK(open_as(&w, TN_F32, TN_REAL, 1, 1, backend[k]))) exit(1);
        tn_tensor *x = tn_tensor_nd(w.ctx, TN_F32, 4, shape);
        CHECK(tn_attend(w.ctx, x, x, x, &d) != NULL);
        CHECK_INT((long long)tn_ctx_kernel_calls(w.ctx, TN_KERNEL_ATTENTION_LINEAR), k);
        CHECK_INT((long long)tn_ctx_kernel_calls(w.ctx, TN_KERNEL_ATTENTION), !k);
        close_world(&w);
    }
}

/* A device without memory, and a carrier that counts how often this process tells the others something. */
static bool full;
static int  told;
static void *alloc_unless_full(void *state, size_t bytes) { return full ? NULL : dry_backend()->alloc(state, bytes); }
static tn_status count_calls(void *state, void *data, size_t bytes, char why[TN_WHY])
{
    (void)state; (void)data; (void)bytes; (void)why;
    told++;
    return TN_OK;
}

/* The others wait for what this process has to say, so it must be able to say that it has no memory. */
TEST(a_process_without_memory_tells_the_others)
{
    const int64_t shape = 40;
    tn_backend    b = *dry_backend();
    tn_comm       k = dry_comm(2);
    tn_desc       d = ZERO;
    tn_ctx       *ctx;
    tn_init       zeros = ZERO;
    b.alloc = alloc_unless_full;
    k.all_gather = count_calls;
    d.backend = &b;
    d.backend_required = true;
    d.comm = &k;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    tn_params *ps = tn_params_create(ctx);
    tn_param *p = tn_params_add(ps, "p", 1, &shape, zeros);
    tn_optim *o = tn_optim_create(ps, NULL);
    REQUIRE(CHECK(p && o));
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, p->value)), TN_OK);
    full = true;
    told = 0;
    CHECK_STATUS(tn_optim_step(o), TN_ERR_MEMORY);
    CHECK_INT(told, 1);
    full = false;
    tn_ctx_destroy(ctx);
}

TEST_MAIN(every_model, parts_recomputation_and_optimisers, attention_has_the_form_of_a_gpu,
          a_model_that_is_too_large_for_this_machine, a_process_without_memory_tells_the_others)
