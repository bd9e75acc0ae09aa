/* test_abuse.c: what a program may do to the library without meaning to: full disks, folders it may not write, a locale with a decimal
   comma, two trainings at once, objects in the wrong order, numbers and extents beyond all measure. */

#include "comma.h"
#if defined(__linux__)
#include <sys/mount.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#define POSIX 1
#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define POSIX 0
#endif
#include "kit.h"
#include "net.h"

/* ---- helpers ------------------------------------------------------------------------- */

static tn_tensor *make_2d(tn_ctx *ctx, int64_t n, int64_t m)
{
    int64_t shape[2] = {n, m};
    return tn_tensor_create(ctx, TN_REAL, 2, shape);
}

/* ---- objects in the wrong order --------------------------------------------------------- */

static size_t owned_bytes(const tn_ctx *ctx) { return tn_ctx_memory(ctx).live - tn_ctx_memory(ctx).arena; }

/* The sum of y = f(x), for x of ones and a factor of twos that is destroyed before the backward pass, and then others are made
   where it was: the gradient is that of the factor. */
TEST(what_a_recording_reads_may_be_destroyed)
{
    enum { WHOLE, VIEW, TWICE, PARAMS, CP, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        tn_ctx    *ctx = ctx_of(TN_F64);
        tn_tensor *y = NULL, *f[2];
        tn_params *params = tn_params_create(ctx);
        tn_init    init = ZERO;
        tn_cp     *cp;
        double     gradient[9];
        int64_t    shape[2] = {3, 3};
        init.rule = TN_INIT_ONE;
        tn_record(ctx);
        tn_tensor *x = tn_full(ctx, 2, shape, 1);
        tn_watch(x);
        tn_tensor *t = tn_tensor_keep(tn_full(ctx, 2, shape, 2));
        switch (kind) {
        case WHOLE: case TWICE: y = tn_mul(ctx, x, t); break;
        case VIEW: y = tn_mul(ctx, x, tn_transpose(t, 0, 1)); break;
        case PARAMS: y = tn_mul(ctx, tn_add(ctx, x, x), tn_params_add(params, "w", 2, shape, init)->value); break;
        default:                                /* sum_r c_rk (sum_i f0_ri x_i) (sum_j f1_rj x_j): 2 * 3 * 3 of rows of ones */
            f[0] = f[1] = tn_scale(ctx, tn_full(ctx, 2, shape, 1), 1 / 3.0);
            cp = tn_cp_create(ctx, 2, tn_full(ctx, 2, shape, 1), f, TN_CP_INPUT_PLAIN);
            y = tn_scale(ctx, tn_cp_apply(ctx, cp, x), 1 / 3.0);
            tn_cp_destroy(cp);
        }
        tn_tensor_destroy(t);
        if (kind == TWICE) tn_tensor_destroy(t);
        tn_params_destroy(params);
        for (int64_t i = 0; i < 20; i++) tn_tensor_keep(tn_full(ctx, 2, shape, 7));
        size_t owned = owned_bytes(ctx);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, y)), TN_OK);
        CHECK_STATUS(tn_read(x->grad, TN_F64, gradient, 9), TN_OK);
        for (int64_t i = 0; i < 9; i++) CHECK_NEAR(gradient[i], 2, 1e-14);
        CHECK(owned_bytes(ctx) < owned);
        tn_ctx_destroy(ctx);
    }
}

TEST(a_step_after_the_parameters_are_gone)
{
    tn_ctx    *ctx = ctx_of(TN_F32);
    tn_params *params = tn_params_create(ctx);
    net        m;
    double     loss;
    REQUIRE(net_make(params, &m));
    tn_optim *a = net_optim(params);
    tn_optim *b = net_optim(params);
    tn_optim *c = net_optim(params);
    CHECK(net_train(ctx, &m, a, &loss) && net_train(ctx, &m, b, &loss) && net_train(ctx, &m, c, &loss));
    tn_optim_destroy(b);                        /* from the middle of those that know */
    tn_params_destroy(params);
    FAILS(ctx, tn_optim_step(a), TN_ERR_ARG, "optim: the optimiser's parameters were destroyed");
    tn_params *next = tn_params_create(ctx);    /* perhaps where the others were */
    REQUIRE(net_make(next, &m));
    FAILS(ctx, tn_optim_step(c), TN_ERR_ARG, "optim: the optimiser's parameters were destroyed");
    CHECK_INT(tn_optim_step_count(a), 1);
    CHECK(tn_optim_lr(a) > 0 && tn_optim_grad_norm(a) > 0);
    tn_optim_destroy(a);
    b = net_optim(next);
    CHECK(net_train(ctx, &m, b, &loss));
    tn_optim_destroy(c);
    CHECK(net_train(ctx, &m, b, &loss));
    CLOSE_CTX(ctx);
}

/* ---- what a recording needs is destroyed ------------------------------------------------ */

typedef struct lost {
    tn_ctx    *ctx;
    tn_tensor *x;                       /* [3,3], watched */
    tn_params *params;
    tn_linear  linear;
} lost;

static tn_tensor *random_2d(tn_ctx *ctx, int64_t n, int64_t m)
{
    int64_t shape[2] = {n, m};
    return tn_normal(ctx, 2, shape, 0, 1);
}

static tn_cp *make_operator(lost *l)
{
    tn_tensor *factor[2];
    factor[0] = random_2d(l->ctx, 4, 3);
    factor[1] = random_2d(l->ctx, 4, 3);
    return tn_cp_create(l->ctx, 2, random_2d(l->ctx, 2, 4), factor, TN_CP_INPUT_PLAIN);
}

static tn_tensor *lose_factor(lost *l)
{
    tn_tensor *t = make_2d(l->ctx, 3, 3), *y = tn_mul(l->ctx, t, l->x);
    tn_tensor_destroy(t);
    return y;
}
static tn_tensor *lose_summand(lost *l)                     /* its numbers are not needed */
{
    tn_tensor *t = make_2d(l->ctx, 3, 3), *y = tn_add(l->ctx, t, l->x);
    tn_tensor_destroy(t);
    return y;
}
static tn_tensor *lose_kept(lost *l)
{
    tn_tensor *t = tn_tensor_keep(l->x), *y = tn_matmul(l->ctx, l->x, t);
    tn_tensor_destroy(t);
    return y;
}
static tn_tensor *lose_base(lost *l)
{
    tn_tensor *t = make_2d(l->ctx, 3, 3), *y = tn_mul(l->ctx, tn_transpose(t, 0, 1), l->x);
    tn_tensor_destroy(t);
    return y;
}
static tn_tensor *lose_listed(lost *l)
{
    tn_tensor *t[2] = {l->x, make_2d(l->ctx, 3, 3)};
    tn_tensor *y = tn_concat(l->ctx, 2, t, 0);
    tn_tensor_destroy(t[1]);
    return y;
}
static tn_tensor *lose_params(lost *l)
{
    tn_tensor *y = tn_linear_forward(l->ctx, &l->linear, l->x);
    tn_params_destroy(l->params);
    return y;
}
static tn_tensor *lose_cp(lost *l)
{
    tn_cp     *cp = make_operator(l);
    tn_tensor *y = tn_cp_apply(l->ctx, cp, l->x);
    tn_cp_destroy(cp);
    return y;
}
static tn_tensor *lose_cp_made_since(lost *l)
{
    const uint64_t mark = tn_cp_mark(l->ctx);
    tn_tensor     *y = tn_cp_apply(l->ctx, make_operator(l), l->x);
    tn_cp_release(l->ctx, mark, NULL);
    return y;
}
static tn_tensor *lose_net(lost *l)
{
    tn_cp     *cp = make_operator(l);
    tn_net    *n = tn_net_from_cp(l->ctx, cp);
    tn_tensor *y = tn_net_apply(l->ctx, n, l->x);
    tn_net_destroy(n);
    tn_cp_destroy(cp);
    return y;
}
static tn_tensor *lose_svd(lost *l)
{
    tn_svd_result svd;
    if (!CHECK_STATUS(tn_svd(l->ctx, l->x, NULL, &svd), TN_OK)) return NULL;
    tn_tensor *y = tn_matmul(l->ctx, l->x, svd.vt);
    tn_svd_destroy(&svd);
    return y;
}
static tn_tensor *lose_train(lost *l)
{
    const int64_t extent[2] = {3, 3};
    tn_tt        *tt = tn_tt_random(l->ctx, 2, extent, 2, 1);
    tn_tensor    *y = tn_matmul(l->ctx, l->x, tn_reshape_2d(tt->core[0], 3, 2));
    tn_tt_destroy(tt);
    return y;
}

/* A function that tn_recompute runs, with `with`: it destroys what it has made; it reads a layer that is destroyed afterwards. */
static tn_tensor *loses(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    lost l;
    (void)with;
    l.ctx = ctx;
    l.x = in[0];
    return lose_factor(&l);
}
static tn_tensor *reads_layer(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    return tn_linear_forward(ctx, *(const tn_linear *const *)with, in[0]);
}
static tn_tensor *lose_inside(lost *l) { return tn_recompute(l->ctx, loses, NULL, 0, 1, &l->x); }
static tn_tensor *lose_recomputed(lost *l)
{
    const tn_linear *layer = &l->linear;
    tn_tensor       *y = tn_recompute(l->ctx, reads_layer, &layer, sizeof layer, 1, &l->x);
    tn_params_destroy(l->params);
    memset(&l->linear, 0, sizeof l->linear);
    return y;
}

/* What is destroyed is not needed. */
static tn_tensor *lose_nothing(lost *l)
{
    tn_params     *params = tn_params_create(l->ctx);
    tn_optim      *optim = tn_optim_create(params, NULL);
    tn_tensor     *y = tn_mul(l->ctx, l->x, l->x), *t = make_2d(l->ctx, 3, 3);
    const int64_t  extent[2] = {3, 3};
    int            rank[2] = {2, 2};
    const int64_t *shape[2] = {extent, extent};
    tn_plan       *plan = tn_plan_create(l->ctx, "ij,jk->ik", 2, rank, shape, NULL);
    if (plan) {
        tn_tensor *both[2] = {y, y};
        y = tn_plan_run(plan, 2, both);
    }
    tn_plan_destroy(plan);
    tn_add(l->ctx, t, t);
    tn_tensor_destroy(t);
    tn_optim_destroy(optim);
    tn_params_destroy(params);
    return y;
}

TEST(what_a_recording_needs_is_destroyed)
{
    static const struct { tn_tensor *(*lose)(lost *); bool fails; } all[] = {
        {lose_factor, false}, {lose_summand, false}, {lose_kept, false}, {lose_base, false}, {lose_listed, false},
        {lose_params, false}, {lose_cp, false}, {lose_cp_made_since, false}, {lose_net, false}, {lose_svd, false},
        {lose_train, false}, {lose_inside, false}, {lose_recomputed, true}, {lose_nothing, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int end = 0; end < 3; end++) {                 /* the backward pass, the end of the recording, of the context */
            test_heap      heap = {0, 0, 0, 0, false};
            tn_desc        d = ZERO;
            tn_linear_desc layer = ZERO;
            lost           l;
            d.allocator = test_heap_allocator(&heap);
            d.threads = 1;
            REQUIRE(tn_ctx_create(&d, &l.ctx, NULL) == TN_OK);
            l.params = tn_params_create(l.ctx);
            layer.in = 3;
            layer.out = 4;
            layer.bias = true;
            CHECK_STATUS(tn_linear_init(l.params, "l", &layer, &l.linear), TN_OK);
            tn_record(l.ctx);
            l.x = random_2d(l.ctx, 3, 3);
            tn_watch(l.x);
            tn_tensor *y = all[i].lose(&l);
            CHECK_CTX(l.ctx);
            for (int k = 0; k < 4; k++) make_2d(l.ctx, 3, 3);               /* may get the freed memory */
            CHECK_STATUS(tn_assign(random_2d(l.ctx, 3, 3), l.x), TN_OK);    /* asks what the recording needs */
            if (end == 0 && all[i].fails) {
                CHECK_STATUS(tn_backward(l.ctx, tn_sum(l.ctx, y)), TN_ERR_ARG);
                CHECK_ERROR(l.ctx, TN_ERR_ARG, "recompute: parameters were destroyed since, expected tn_backward before");
            } else if (end == 0) CHECK_STATUS(tn_backward(l.ctx, tn_sum(l.ctx, y)), TN_OK);
            else if (end == 1) tn_ctx_reset(l.ctx);
            CLOSE_CTX(l.ctx);
            CHECK_INT(heap.live, 0);
        }
}

/* ---- arguments that no call can use ---------------------------------------------------------- */

TEST(threads_and_levels_that_do_not_exist)
{
    static const struct { int threads, simd; const char *message; } bad[] = {
        {-1, 0, "ctx_create: desc.threads is -1, expected 0 to 32767"},
        {100000, 0, "ctx_create: desc.threads is 100000, expected 0 to 32767"},
        {1, 99, "ctx_create: desc.simd is 99, expected 0 to 4"},
        {1, -1, "ctx_create: desc.simd is -1, expected 0 to 4"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char    why[TN_WHY];
        tn_ctx *ctx;
        tn_desc d = ZERO;
        d.threads = bad[i].threads;
        d.simd = (tn_simd)bad[i].simd;
        CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_ARG);
        CHECK_STR(why, bad[i].message);
        tn_ctx_destroy(ctx);
    }
}

TEST(functions_and_paths_that_are_null)
{
    tn_ctx         *ctx = ctx_of(TN_F32);
    tn_params      *params = tn_params_create(ctx);
    tn_tensor      *t = make_2d(ctx, 2, 2);
    const tn_sink   store = tn_sink_calls(NULL, NULL);
    const tn_source fetch = tn_source_calls(NULL, NULL, 100);
    FAILS(ctx, tn_npy_write(t, store), TN_ERR_ARG, "sink_calls: store is NULL, expected a function");
    FAILS(ctx, tn_params_write(params, store, NULL, 0), TN_ERR_ARG, "sink_calls: store is NULL, expected a function");
    REFUSED(ctx, tn_npy_read(ctx, fetch), TN_ERR_ARG, "source_calls: fetch is NULL, expected a function");
    FAILS(ctx, tn_params_read(params, fetch, TN_MATCH_ALL), TN_ERR_ARG, "source_calls: fetch is NULL, expected a function");
    FAILS(ctx, tn_npy_save(t, NULL), TN_ERR_FILE, "sink_path: the path is empty or NULL, expected the name of a file");
    REFUSED(ctx, tn_npy_load(ctx, ""), TN_ERR_FILE, "source_path: the path is empty or NULL, expected the name of a file");
    tn_ctx_destroy(ctx);
}

TEST(a_core_that_is_null)
{
    tn_ctx       *ctx = ctx_of(TN_F32);
    const int64_t shape[3] = {1, 3, 1};
    tn_tensor *cores[2] = {tn_full(ctx, 3, shape, 1), NULL};
    REFUSED(ctx, tn_net_from_cores(ctx, 2, cores), TN_ERR_ARG, "net_from_cores: a core is NULL");
    tn_ctx_destroy(ctx);
}

/* What returns TN_OK leaves no error in the context. */
TEST(an_inner_product_without_memory)
{
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc   d = ZERO;
    tn_status s = TN_ERR_MEMORY;
    d.allocator = test_heap_allocator(&heap);
    d.arena_bytes = 64;
    d.threads = 1;
    for (uint64_t k = 1; k < 200 && s != TN_OK; k++) {
        lost   l;
        double inner;
        heap.fail_at = 0;
        REQUIRE(tn_ctx_create(&d, &l.ctx, NULL) == TN_OK);
        tn_net *n = tn_net_from_cp(l.ctx, make_operator(&l));
        CHECK_CTX(l.ctx);
        heap.fail_at = heap.count + k;
        s = tn_net_inner(n, n, TN_NET_SYMMETRIC, &inner);
        CHECK_STATUS(s, tn_ctx_status(l.ctx));
        tn_ctx_destroy(l.ctx);
    }
    CHECK_STATUS(s, TN_OK);
    CHECK_INT(heap.live, 0);
}

TEST(angles_that_are_not_finite)
{
    tn_ctx       *ctx = ctx_of(TN_F32);
    const int64_t shape[4] = {1, 2, 1, 4};
    tn_rope_desc  d = ZERO;
    d.scaling.factor = 5e-324;
    CHECK(!tn_rope(ctx, tn_full(ctx, 4, shape, 1), &d));
    CHECK_ERROR(ctx, TN_ERR_ARG, "rope: factor of the scaling is 4.94066e-324, expected a finite number >= 1e-30");
    d.scaling.factor = 0;
    d.base = 5e-324;
    CHECK(!tn_rope(ctx, tn_full(ctx, 4, shape, 1), &d));
    CHECK_ERROR(ctx, TN_ERR_ARG, "rope: base is 4.94066e-324, expected a finite number >= 1e-30");
    d.base = d.scaling.factor = 1e-30;
    d.first = INT64_MAX - 2;
    CHECK(tn_item(tn_sum(ctx, tn_rope(ctx, tn_full(ctx, 4, shape, 1), &d))) < 100);
    CLOSE_CTX(ctx);
}

TEST(rates_and_scales_that_ruin_a_step)
{
    tn_ctx       *ctx = ctx_of(TN_F32);
    tn_params    *params = tn_params_create(ctx);
    tn_optim_desc d = ZERO;
    net           m;
    double        loss;
    REQUIRE(net_make(params, &m));
    d.lr = 1e38;
    CHECK(!tn_optim_create(params, &d));
    CHECK_ERROR(ctx, TN_ERR_ARG, "optim: lr is 1e+38, expected a number > 0, in F32 from 1.17549e-38 to 1e+12");
    tn_optim *o = net_optim(params);
    for (int k = 0; k < 2; k++) {
        tn_params_set_scales(params, "head.w", k ? 1 : -1, k ? -1 : 1);
        CHECK(!net_train(ctx, &m, o, &loss));
        CHECK_ERROR(ctx, TN_ERR_ARG, k ? "optim: the scales of head.w are 1 of lr and -1 of weight_decay, expected numbers >= 0"
                                       : "optim: the scales of head.w are -1 of lr and 1 of weight_decay, expected numbers >= 0");
    }
    tn_ctx_destroy(ctx);
}

TEST(the_desc_of_the_layer_itself)
{
    tn_ctx         *ctx = ctx_of(TN_F32);
    tn_params      *params = tn_params_create(ctx);
    tn_linear       linear;
    tn_embedding    embedding;
    tn_norm         norm;
    tn_mlp          mlp;
    tn_quadratic    quadratic;
    tn_modifier     modifier;
    tn_attention    attention;
    tn_tn_attention tna;
    tn_mps          mps;
    tn_tt_linear    tt;
    tn_deep         deep;
    tn_transformer  model;
#define OWN(layer) memset(&layer, 0, sizeof layer)
    OWN(linear); OWN(embedding); OWN(norm); OWN(mlp); OWN(quadratic); OWN(modifier); OWN(attention); OWN(tna); OWN(mps); OWN(tt);
    OWN(deep); OWN(model);
#undef OWN
    linear.desc.in = linear.desc.out = embedding.desc.count = embedding.desc.dim = norm.desc.dim = 3;
    mlp.desc.in = mlp.desc.hidden = quadratic.desc.in = quadratic.desc.out = modifier.desc.in = modifier.desc.hidden = 3;
    attention.desc.dim = attention.desc.heads = tna.desc.in = tna.desc.bond = mps.desc.sites = mps.desc.bond = mps.desc.dim = 3;
    tt.desc.count = 1;
    tt.desc.in[0] = tt.desc.out[0] = tt.desc.bond = 3;
    deep.desc.vocab = deep.desc.sites = deep.desc.dim = deep.desc.bond = deep.desc.layers = deep.desc.out = deep.desc.head_bond = 3;
    model.desc.vocab = model.desc.layers = model.desc.dim = model.desc.heads = model.desc.context = 3;
    mps.desc.map = TN_LOCAL_GIVEN;
    CHECK_STATUS(tn_linear_init(params, "a", &linear.desc, &linear), TN_OK);
    CHECK_STATUS(tn_embedding_init(params, "b", &embedding.desc, &embedding), TN_OK);
    CHECK_STATUS(tn_norm_init(params, "c", &norm.desc, &norm), TN_OK);
    CHECK_STATUS(tn_mlp_init(params, "d", &mlp.desc, &mlp), TN_OK);
    CHECK_STATUS(tn_quadratic_init(params, "e", &quadratic.desc, &quadratic), TN_OK);
    CHECK_STATUS(tn_modifier_init(params, "f", &modifier.desc, &modifier), TN_OK);
    CHECK_STATUS(tn_attention_init(params, "g", &attention.desc, &attention), TN_OK);
    CHECK_STATUS(tn_tn_attention_init(params, "h", &tna.desc, &tna), TN_OK);
    CHECK_STATUS(tn_mps_init(params, "i", &mps.desc, &mps), TN_OK);
    CHECK_STATUS(tn_tt_linear_init(params, "j", &tt.desc, &tt), TN_OK);
    CHECK_STATUS(tn_deep_init(params, "k", &deep.desc, &deep), TN_OK);
    CHECK_STATUS(tn_transformer_init(params, "l", &model.desc, &model), TN_OK);
    CLOSE_CTX(ctx);
}

TEST(a_status_is_that_of_the_context)
{
    tn_ctx         *ctx = ctx_of(TN_F32);
    tn_params      *params = tn_params_create(ctx);
    tn_tensor      *q = tn_tensor_2d(ctx, TN_I32, 1, 1), *k = make_2d(ctx, 1, 1);
    const int64_t   extent[2] = {3, 3}, other[3] = {3, 3, 3};
    tn_tn_attention layer;
    double          inner;
    CHECK_STATUS(tn_tn_attention_from_linear_attention(params, "a", q, k, k, false, &layer), TN_ERR_DTYPE);
    CHECK_ERROR(ctx, TN_ERR_DTYPE, "tn_attention_from_linear_attention: q is");
    CHECK_STATUS(tn_tt_inner(tn_tt_random(ctx, 2, extent, 2, 1), tn_tt_random(ctx, 3, other, 2, 1), &inner), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tt_inner: b has 3 axes, expected 2 as a");
    tn_ctx_destroy(ctx);
}

/* x becomes its own reverse, its own transpose, and the half beside it. */
TEST(a_tensor_assigned_to_itself)
{
    static const double given[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, turned[9] = {0, 3, 6, 1, 4, 7, 2, 5, 8};
    tn_ctx    *ctx = ctx_of(TN_F32);
    tn_tensor *x = make_2d(ctx, 3, 3), *flat = tn_reshape_2d(x, 1, 9);
    double     v[9];
    CHECK_STATUS(tn_write(x, TN_F64, given, 9), TN_OK);
    CHECK_STATUS(tn_assign(flat, tn_slice_step(flat, 1, 8, -1, -1)), TN_OK);
    CHECK_STATUS(tn_read(x, TN_F64, v, 9), TN_OK);
    for (int i = 0; i < 9; i++) CHECK(v[i] == given[8 - i]);
    CHECK_STATUS(tn_write(x, TN_F64, given, 9), TN_OK);
    CHECK_STATUS(tn_assign(x, tn_transpose(x, 0, 1)), TN_OK);
    CHECK_STATUS(tn_read(x, TN_F64, v, 9), TN_OK);
    for (int i = 0; i < 9; i++) CHECK(v[i] == turned[i]);
    CHECK_STATUS(tn_assign(tn_slice(x, 1, 0, 2), tn_slice(x, 1, 1, 3)), TN_OK);
    CHECK_STATUS(tn_read(x, TN_F64, v, 9), TN_OK);
    for (int i = 0; i < 9; i++) CHECK(v[i] == turned[i % 3 < 2 ? i + 1 : i]);
    CLOSE_CTX(ctx);
}

/* ---- numbers and extents beyond all measure ------------------------------------------------ */

static size_t npy_of(unsigned char *file, const double *v, size_t n)
{
    size_t at = 10;
    memset(file, ' ', 128);
    memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
    at += (size_t)snprintf((char *)file + at, 118, "{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }", (int)n);
    file[at] = ' ';
    file[127] = '\n';
    for (size_t i = 0; i < 8 * n; i++) {
        uint64_t bits;
        memcpy(&bits, v + i / 8, 8);
        file[128 + i] = (unsigned char)(bits >> 8 * (i % 8));
    }
    return 128 + 8 * n;
}

/* Of the doubles of a file, a finite one never becomes infinite unsaid. */
TEST(a_double_that_does_not_fit_a_float)
{
    static const double fits[] = {3.4028235677973362e38, -3.4028235677973362e38, HUGE_VAL, -HUGE_VAL, (double)NAN, 1e-300};
    static const double beyond[] = {3.4028235677973366e38, -3.4028235677973366e38, 1.6069380442589903e60, -1.7e308};
    static const unsigned char idx[] = {0, 0, 0x0D, 1, 0, 0, 0, 1, 0x71, 0x49, 0xF2, 0xCA};      /* 1e30 */
    tn_ctx       *ctx = ctx_of(TN_F32), *wide = ctx_of(TN_F64);
    unsigned char file[256];
    double        v[6];
    size_t        n = npy_of(file, fits, 6);
    tn_tensor    *t = tn_npy_read(ctx, tn_source_memory(file, n));
    REQUIRE(t && tn_read(t, TN_F64, v, 6) == TN_OK);
    CHECK(v[0] == (double)3.4028234663852886e38 && v[1] == -v[0] && v[2] == HUGE_VAL && v[3] == -HUGE_VAL && v[4] != v[4] && v[5] == 0);
    for (int i = 0; i < 4; i++) {
        double two[2] = {1, 0};
        two[1] = beyond[i];
        n = npy_of(file, two, 2);
        CHECK(!tn_npy_read(ctx, tn_source_memory(file, n)));
        CHECK(strstr(tn_ctx_error(ctx), i == 2 ? "byte 136: 1.6069380442589903e+60 does not fit F32" : " does not fit F32"));
        CHECK_ERROR(ctx, TN_ERR_DATA, "memory: byte 136: ");
        t = tn_npy_read(wide, tn_source_memory(file, n));
        CHECK(t && tn_read(t, TN_F64, v, 2) == TN_OK && v[1] == beyond[i]);
    }
    CHECK(tn_idx_read(ctx, tn_source_memory(idx, sizeof idx), 1e8) != NULL);
    REFUSED(ctx, tn_idx_read(ctx, tn_source_memory(idx, sizeof idx), 1e9), TN_ERR_DATA, "does not fit F32");
    CHECK_CTX(wide);
    tn_ctx_destroy(ctx);
    tn_ctx_destroy(wide);
}

/* Operators of no terms have extents as large as one likes: sums of their products must not wrap. */
TEST(operators_of_vast_extents)
{
    static const int64_t vast[] = {(int64_t)1 << 20, (int64_t)1 << 28, (int64_t)1 << 31, (int64_t)1 << 40, (int64_t)1 << 57,
                                   (int64_t)1 << 60};
    tn_ctx *ctx = ctx_in(NULL, TN_F32, 1 << 26);
    for (size_t i = 0; i < sizeof vast / sizeof *vast; i++) {
        tn_tensor *f[2];
        tn_eigenpairs   e;
        if ((uint64_t)vast[i] > (uint64_t)PTRDIFF_MAX / 8) break;
        tn_tensor *p = make_2d(ctx, 3, 0);
        f[0] = f[1] = make_2d(ctx, 0, vast[i]);
        tn_cp *cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
        REQUIRE(cp);
        if (tn_cp_eigen_all(cp, 0, &e) == TN_OK) CHECK_INT(e.count, 0);
        else CHECK(tn_ctx_error(ctx)[0] != 0 && !e.values && !e.vectors);
        tn_eigenpairs_destroy(&e);
        tn_ctx_clear_error(ctx);
        if (vast[i] >= (int64_t)1 << 31) {
            REFUSED(ctx, tn_cp_dense(cp), TN_ERR_MEMORY, "dense: a tensor of F32 [3,");
            CHECK(!tn_cp_interaction_of(cp, 1));
            CHECK(tn_ctx_status(ctx) != TN_OK);
            tn_ctx_clear_error(ctx);
        }
        tn_cp_destroy(cp);
        tn_tensor_destroy(p);
        tn_tensor_destroy(f[0]);
    }
    tn_ctx_destroy(ctx);
}

/* A dense tensor that does not fit is named as such, with its size, whether the limit or the address space says no. */
TEST(dense_that_does_not_fit)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F32, 1 << 20);
    tn_tensor *f[2];
    tn_tensor *p = make_2d(ctx, 10, 1);
    f[0] = f[1] = make_2d(ctx, 1, 1000);
    tn_cp *cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    REQUIRE(cp);
    REFUSED(ctx, tn_cp_dense(cp), TN_ERR_MEMORY, "dense: 40000000 bytes on top of ");
    REFUSED(ctx, tn_cp_dense_symmetric(cp), TN_ERR_MEMORY, "dense: ");
    tn_cp_destroy(cp);
    tn_ctx_destroy(ctx);
}

TEST(pictures_of_tiny_and_huge_ranges)
{
    static const double values[] = {5e-324, 1e-323, 3e-320, 1e-310, 2.2e-308, 2.3e-308, 1e-300, 1e-299, 1e-17, 1, 1 + 3e-16, 7, 1e300,
                                    1e307, 1.7e308, HUGE_VAL};
    enum { VALUES = sizeof values / sizeof *values };
    tn_ctx *ctx = ctx_of(TN_F32);
    for (int i = 0; i < VALUES; i++)
        for (int j = 0; j < VALUES; j++)
            for (int log = 0; log < 16; log++) {
                tn_image_plot_desc d = ZERO;
                tn_image_series    s = ZERO;
                double       x[3], y[3];
                x[0] = y[2] = values[i]; x[1] = y[1] = values[j]; x[2] = y[0] = values[i] / 2 + values[j] / 2;
                d.log_x = log & 1;
                d.log_y = log & 2;
                if (log & 4 && values[i] < values[j]) { d.x_low = d.y_low = values[i]; d.x_high = d.y_high = values[j]; }
                d.width = 90; d.height = 70;
                s.x = x; s.y = y; s.count = 3;
                s.kind = log & 8 ? TN_IMAGE_SERIES_BARS : TN_IMAGE_SERIES_LINE;
                tn_image *image = tn_image_plot(ctx, &s, 1, &d);
                if (!image && !(log & 4)) CHECK_CTX(ctx);        /* given ends may be refused, data are not */
                if (!image) CHECK(tn_ctx_error(ctx)[0] != 0);
                tn_ctx_clear_error(ctx);
                tn_image_destroy(image);
                image = tn_image_matrix(ctx, y, 1, 3, NULL);
                CHECK(image != NULL);
                CHECK_CTX(ctx);
                tn_image_destroy(image);
            }
    tn_ctx_destroy(ctx);
}

/* ---- folders ----------------------------------------------------------------------------------- */

#if POSIX

/* How many names are in it; -1: no folder. */
static int folder_count(const char *path)
{
    DIR *d = opendir(path);
    int  n = d ? -2 : -1;               /* . and .. */
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static bool file_put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    bool  ok = CHECK(f && fputs(text, f) >= 0);
    return CHECK(f && fclose(f) == 0) && ok;
}

/* build/abuse-PID/name: tests of several builds run side by side */
static const char *place(const char *name)
{
    static char path[4][TEST_PATH];
    static int  turn;
    char       *p = path[turn = (turn + 1) % 4];
    snprintf(p, TEST_PATH, "build/abuse-%ld%s%s", (long)getpid(), *name ? "/" : "", name);
    return p;
}

static void place_make(void)
{
    mkdir("build", 0777);
    CHECK(mkdir(place(""), 0777) == 0);
}

typedef struct things { tn_ctx *ctx; tn_params *params; tn_tensor *t; tn_image *image; } things;

/* `large`: of some 360 kB each, else of less than 4 kB */
static things things_make(bool large)
{
    things  x;
    tn_init init = ZERO;
    int64_t shape[2] = {large ? 300 : 10, large ? 300 : 10};
    x.ctx = ctx_of(TN_F32);
    x.params = tn_params_create(x.ctx);
    CHECK(tn_params_add(x.params, "w", 2, shape, init));
    x.t = tn_params_at(x.params, 0)->value;
    x.image = tn_image_create(x.ctx, large ? 300 : 20, large ? 400 : 10);
    CHECK(x.image != NULL);
    return x;
}

enum { KINDS = 3 };
static tn_status things_save(const things *x, int kind, const char *path)
{
    return kind == 0 ? tn_params_save(x->params, path) : kind == 1 ? tn_npy_save(x->t, path) : tn_image_save_ppm(x->image, path);
}

/* Saving to folder/file fails with `reason`; the old file stays as it is, and nothing else appears. */
static void saving_fails(const things *x, const char *folder, const char *file, const char *reason)
{
    char path[TEST_PATH];
    int  before = folder_count(folder);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    bool old = file_is(path, "old");
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK_STATUS(things_save(x, kind, path), TN_ERR_FILE);
        if (!strstr(tn_ctx_error(x->ctx), path)) test_fail(__FILE__, __LINE__, "the message", tn_ctx_error(x->ctx), path);
        CHECK_ERROR(x->ctx, TN_ERR_FILE, reason);
        CHECK_INT(folder_count(folder), before);
        CHECK(!old || file_is(path, "old"));
    }
}

/* Saving, with no error and over what is there. */
static void saving_works(const things *x, const char *path)
{
    for (int kind = KINDS; kind-- > 0;) CHECK_STATUS(things_save(x, kind, path), TN_OK);
    CHECK_STATUS(tn_params_load(x->params, path), TN_OK);
    CHECK_STATUS(things_save(x, 1, path), TN_OK);
    tn_tensor *t = tn_npy_load(x->ctx, path);
    CHECK(t && tn_tensor_count(t) == tn_tensor_count(x->t));
    tn_tensor_destroy(t);
    CHECK_CTX(x->ctx);
}

TEST(paths_of_every_bad_kind)
{
    things x = things_make(false);
    char   name[300], folder[TEST_PATH];
    place_make();
    snprintf(folder, sizeof folder, "%s", place("folder"));
    CHECK(mkdir(folder, 0777) == 0);
    CHECK(file_put(place("file"), "old"));
    saving_fails(&x, place(""), "folder", "could not be replaced: Is a directory");
    saving_fails(&x, place(""), "no/such/file", "its temporary file could not be created: No such file or directory");
    saving_fails(&x, place(""), "file/inside", "its temporary file could not be created: Not a directory");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK_STATUS(things_save(&x, kind, name), TN_ERR_FILE);
        CHECK_ERROR(x.ctx, TN_ERR_FILE, "nnn: byte 0: its temporary file could not be created: File name too long");
        FAILS(x.ctx, things_save(&x, kind, ""), TN_ERR_FILE, "the path is empty");
        FAILS(x.ctx, things_save(&x, kind, NULL), TN_ERR_FILE, "the path is empty");
    }
    CHECK(!test_exists(".tmp"));
    REFUSED(x.ctx, tn_npy_load(x.ctx, folder), TN_ERR_FILE, "/folder: ");
    FAILS(x.ctx, tn_params_load(x.params, folder), TN_ERR_FILE, "/folder: ");
    REFUSED(x.ctx, tn_idx_load(x.ctx, "", 0), TN_ERR_FILE, "source_path: the path is empty or NULL, expected the name of a file");
    saving_works(&x, place("file"));
    CHECK_INT(folder_count(place("")), 2);
    remove(folder);
    remove(place("file"));
    remove(place(""));
    tn_ctx_destroy(x.ctx);
}

/* Of the files beside PATH only PATH.tnN.tmp are the library's, and where such a name is a link, only the link is. */
TEST(nobody_else_s_file_is_touched)
{
    things x = things_make(false);
    struct stat named;
    place_make();
    CHECK(file_put(place("w.tmp"), "mine") && file_put(place("w.tmp2"), "mine too"));
    saving_works(&x, place("w"));
    CHECK(file_is(place("w.tmp"), "mine") && file_is(place("w.tmp2"), "mine too"));
    CHECK_INT(folder_count(place("")), 3);
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK(symlink("none", place("v.tn1.tmp")) == 0 && symlink("w.tmp2", place("v.tn2.tmp")) == 0);
        CHECK_STATUS(things_save(&x, kind, place("v")), TN_OK);
        CHECK(file_is(place("w.tmp2"), "mine too"));
        CHECK(!test_exists(place("none")));
        CHECK(lstat(place("v"), &named) == 0 && S_ISREG(named.st_mode));
        remove(place("v.tn1.tmp")); remove(place("v.tn2.tmp"));
    }
    CHECK_INT(folder_count(place("")), 4);
    remove(place("w.tmp")); remove(place("w.tmp2")); remove(place("w")); remove(place("v"));
    CHECK(remove(place("")) == 0);
    tn_ctx_destroy(x.ctx);
}

/* As nobody, if we are root: root may do all. */
TEST(folders_that_may_not_be_written)
{
    things x = things_make(false);
    char   folder[TEST_PATH];
    bool   root = geteuid() == 0;
    place_make();
    snprintf(folder, sizeof folder, "%s", place("closed"));
    CHECK(mkdir(folder, 0777) == 0 && file_put(place("closed/file"), "old"));
    CHECK(chmod(place("closed/file"), 0) == 0 && chmod(folder, 0555) == 0);
    if (root && seteuid(65534) != 0) {
        chmod(folder, 0777);
        remove(place("closed/file")); remove(folder); remove(place(""));
        tn_ctx_destroy(x.ctx);
        SKIP("nobody", "root who may become nobody");
    }
    REFUSED(x.ctx, tn_npy_load(x.ctx, place("closed/file")), TN_ERR_FILE, "could not be opened: Permission denied");
    FAILS(x.ctx, tn_params_load(x.params, place("closed/file")), TN_ERR_FILE, "could not be opened: Permission denied");
    saving_fails(&x, folder, "file", "its temporary file could not be created: Permission denied");
    saving_fails(&x, folder, "new", "its temporary file could not be created: Permission denied");
    if (root) CHECK(seteuid(0) == 0);
    chmod(folder, 0777);
    chmod(place("closed/file"), 0666);
    CHECK(file_is(place("closed/file"), "old"));
    saving_works(&x, place("closed/file"));
    remove(place("closed/file")); remove(folder);
    CHECK(remove(place("")) == 0);
    tn_ctx_destroy(x.ctx);
}

#if defined(__linux__)
/* A disk of our own, of 64 kB, that gets full and then read-only. */
TEST(disks_that_are_full_or_read_only)
{
    things large = things_make(true), small = things_make(false);
    char   disk[TEST_PATH], zeros[4096] = {0};
    place_make();
    snprintf(disk, sizeof disk, "%s", place("disk"));
    CHECK(mkdir(disk, 0777) == 0);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=64k") != 0) {
        remove(disk); remove(place(""));
        tn_ctx_destroy(large.ctx);
        tn_ctx_destroy(small.ctx);
        SKIP("tmpfs", "root who may mount");
    }
    CHECK(file_put(place("disk/file"), "old"));
    saving_fails(&large, disk, "file", "could not be written: No space left on device");
    saving_fails(&large, disk, "new", "could not be written: No space left on device");
    FILE *f = fopen(place("disk/filler"), "wb");
    while (f && fwrite(zeros, 1, sizeof zeros, f) == sizeof zeros && fflush(f) == 0) {}
    if (f) fclose(f);
    saving_fails(&small, disk, "file", "could not be written: No space left on device");      /* found at the flush */
    saving_fails(&small, disk, "new", "could not be written: No space left on device");
    remove(place("disk/filler"));
    saving_works(&small, place("disk/new"));
    CHECK(mount("tmpfs", disk, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL) == 0);
    saving_fails(&small, disk, "file", "its temporary file could not be created: Read-only file system");
    CHECK(umount(disk) == 0);
    remove(disk);
    CHECK(remove(place("")) == 0);
    tn_ctx_destroy(large.ctx);
    tn_ctx_destroy(small.ctx);
}
#else
TEST(disks_that_are_full_or_read_only) { SKIP("linux", "a small tmpfs"); }
#endif

/* ---- two trainings at once ----------------------------------------------------------------------- */

enum { STEPS = 30 };

typedef struct training { tn_dtype dtype; double loss[STEPS]; unsigned char model[1 << 16]; size_t bytes; bool ok; } training;

static void *training_run(void *arg)
{
    training *t = (training *)arg;
    tn_ctx   *ctx;
    tn_desc   d;
    tn_optim *optim = NULL;
    net       m;
    memset(&d, 0, sizeof d);            /* checks are for the main thread: they count */
    d.dtype = t->dtype;
    d.seed = 5;
    d.threads = 1;
    t->ok = tn_ctx_create(&d, &ctx, NULL) == TN_OK;
    if (!t->ok) return NULL;
    tn_params *params = tn_params_create(ctx);
    t->ok = net_make(params, &m) && (optim = net_optim(params)) != NULL;
    for (int step = 0; step < STEPS && t->ok; step++) {
        t->ok = net_train(ctx, &m, optim, &t->loss[step]);
        if (step != STEPS / 2) continue;
        t->ok = t->ok && !tn_matmul(ctx, NULL, NULL) && tn_ctx_status(ctx) == TN_ERR_ARG;      /* an error of its own */
        tn_ctx_clear_error(ctx);
    }
    t->ok = t->ok && tn_params_write(params, tn_sink_memory(t->model, sizeof t->model, &t->bytes), NULL, 0) == TN_OK;
    tn_ctx_destroy(ctx);
    return NULL;
}

static bool same_training(const training *a, const training *b)
{
    if (!a->ok || !b->ok || a->bytes != b->bytes) return false;
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 && memcmp(a->model, b->model, a->bytes) == 0;
}

TEST(two_contexts_on_two_threads)
{
    static training alone[2], both[2];
    alone[0].dtype = both[0].dtype = TN_F32;
    alone[1].dtype = both[1].dtype = TN_F64;
    for (int i = 0; i < 2; i++) training_run(&alone[i]);
    CHECK(alone[0].loss[STEPS - 1] < alone[0].loss[0]);
    for (int round = 0; round < 4; round++) {
        pthread_t thread[2];
        int       begun = 0;
        for (int i = 0; i < 2; i++) {
            both[i].dtype = round == 3 ? TN_F32 : alone[i].dtype;       /* the same kernels at once, too */
            begun += CHECK(pthread_create(&thread[i], NULL, training_run, &both[i]) == 0);
        }
        REQUIRE(begun == 2);
        for (int i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
        for (int i = 0; i < 2; i++) CHECK(same_training(&both[i], &alone[round == 3 ? 0 : i]));
    }
}

#else
TEST(paths_of_every_bad_kind)          { SKIP("posix", "folders"); }
TEST(nobody_else_s_file_is_touched)    { SKIP("posix", "folders"); }
TEST(folders_that_may_not_be_written)  { SKIP("posix", "permissions"); }
TEST(disks_that_are_full_or_read_only) { SKIP("linux", "a small tmpfs"); }
TEST(two_contexts_on_two_threads)      { SKIP("posix", "pthreads"); }
#endif

/* ---- a decimal comma ------------------------------------------------------------------------------- */

typedef struct traces { char text[1 << 18]; size_t n; } traces;

static bool trace_put(void *user, const void *p, size_t n)
{
    traces *t = (traces *)user;
    if (!CHECK(n <= sizeof t->text - t->n)) return false;
    memcpy(t->text + t->n, p, n);
    t->n += n;
    return true;
}

/* All that writes or reads a number: files, text, labels, messages. */
static void trace(traces *t)
{
    static const double curve[3] = {0.25, 1.5, -2.75};
    tn_ctx        *ctx = ctx_of(TN_F64);
    tn_params     *params = tn_params_create(ctx);
    tn_metadata        note;
    tn_optim_desc  od = ZERO;
    tn_image_series      series = ZERO;
    tn_image_matrix_desc md = ZERO;
    net            m;
    char           text[4096];
    CHECK(net_make(params, &m));
    note.key = "x"; note.value = "1.5";
    CHECK_STATUS(tn_params_write(params, tn_sink_calls(trace_put, t), &note, 1), TN_OK);
    CHECK_STATUS(tn_params_read(params, tn_source_memory(t->text, t->n), TN_MATCH_ALL), TN_OK);
    CHECK_STATUS(tn_npy_write(m.mlp.w, tn_sink_calls(trace_put, t)), TN_OK);
    CHECK(tn_tensor_format(m.mlp.w, text, sizeof text) > 0);
    trace_put(t, text, strlen(text));
    od.lr = -0.125;
    CHECK(!tn_optim_create(params, &od));
    CHECK(strstr(tn_ctx_error(ctx), "-0.125"));
    trace_put(t, tn_ctx_error(ctx), strlen(tn_ctx_error(ctx)));
    tn_ctx_clear_error(ctx);
    series.y = curve; series.count = 3;
    tn_image *image = tn_image_plot(ctx, &series, 1, NULL);
    CHECK(image != NULL);
    for (int64_t y = 0; image && y < image->height; y += 2) trace_put(t, image->pixels + 3 * y * image->width, 600);   /* the labels, too */
    tn_image_destroy(image);
    md.numbers = true; md.size = 100;
    image = tn_image_matrix(ctx, curve, 1, 3, &md);
    CHECK_STATUS(tn_image_write_ppm(image, tn_sink_calls(trace_put, t)), TN_OK);
    CLOSE_CTX(ctx);
}

TEST(a_comma_locale_changes_nothing)
{
    static traces usual, comma;
    trace(&usual);
    if (!comma_locale()) SKIP("locale", "one with a decimal comma");
    trace(&comma);
    setlocale(LC_NUMERIC, "C");
    CHECK(usual.n > 10000);
    CHECK_INT(comma.n, usual.n);
    CHECK(memcmp(usual.text, comma.text, usual.n) == 0);
}

TEST_MAIN(a_step_after_the_parameters_are_gone, what_a_recording_needs_is_destroyed,
          what_a_recording_reads_may_be_destroyed, threads_and_levels_that_do_not_exist,
          functions_and_paths_that_are_null, a_core_that_is_null, an_inner_product_without_memory, angles_that_are_not_finite,
          rates_and_scales_that_ruin_a_step, the_desc_of_the_layer_itself, a_status_is_that_of_the_context,
          a_tensor_assigned_to_itself, a_double_that_does_not_fit_a_float, operators_of_vast_extents, dense_that_does_not_fit,
          pictures_of_tiny_and_huge_ranges, paths_of_every_bad_kind, nobody_else_s_file_is_touched,
          folders_that_may_not_be_written, disks_that_are_full_or_read_only, two_contexts_on_two_threads,
          a_comma_locale_changes_nothing)
