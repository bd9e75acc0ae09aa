/* tn_recompute: the same losses and gradients, bit by bit, with the memory of one part instead of all. */

#include "sealed.h"
#include "kit.h"

enum { TEXTS = 2 };

/* ---- a small function, with everything that can matter: noise, dropout, a view as input, a parameter, an input used twice ---- */

typedef struct part { const tn_mlp *mlp; double p; } part;

static tn_tensor *piece(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    const part *q = (const part *)with;
    tn_tensor  *x = in[0], *y = tn_dropout(ctx, tn_noise(ctx, x, 0.3), q->p);
    y = tn_mlp_forward(ctx, q->mlp, y);
    y = tn_add(ctx, y, tn_mul(ctx, x, x));
    if (in[1]) y = tn_add(ctx, y, tn_mul(ctx, in[1], x));
    return tn_dropout(ctx, y, q->p);
}

typedef struct result { double loss, grads[4096]; int64_t count; } result;

static void take(result *r, const tn_tensor *g)
{
    int64_t n = tn_tensor_count(g);
    if (!CHECK(g && r->count + n <= 4096)) return;
    tn_read(g, TN_F64, r->grads + r->count, n);
    r->count += n;
}

static void same(const result *a, const result *b)
{
    CHECK(a->loss == b->loss);
    CHECK_INT(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) CHECK(a->grads[i] == b->grads[i] && a->grads[i] == a->grads[i]);
}

/* Three pieces one after the other; x0 goes into each, too, as one half of a larger tensor. mode 0: as they are; 1: recomputed; 2: all
   three as one piece that recomputes pieces. */
static tn_tensor *chain(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    tn_tensor *x = in[0];
    for (int i = 0; i < 3; i++) {
        tn_tensor *next[2] = {x, i > 0 ? in[1] : NULL};
        x = tn_recompute(ctx, piece, with, sizeof(part), 2, next);
    }
    return x;
}

static bool run_pieces(tn_dtype dtype, tn_dtype activations, int mode, bool frozen, int64_t rows, result *r)
{
    world       w;
    tn_mlp_desc d = ZERO;
    tn_mlp      mlp;
    part        q;
    tn_tensor  *in[3] = {NULL, NULL, NULL};
    memset(r, 0, sizeof *r);
    d.in = d.out = 5;
    d.hidden = 6;
    d.bias = d.out_bias = true;
    if (!open_as(&w, dtype, activations, 11, 1, NULL) || !CHECK(tn_mlp_init(w.params, "m", &d, &mlp) == TN_OK)) return false;
    if (frozen) tn_params_freeze(w.params, "");
    q.mlp = &mlp;
    q.p = 0.25;
    for (int k = 0; k < 2; k++) {                             /* the second step has other random numbers, and memory used before */
        tn_ctx_reset(w.ctx);
        tn_tensor *whole = tn_tensor_2d(w.ctx, TN_REAL, rows, 10);
        {
            double v[90];
            for (int64_t i = 0; i < rows * 10; i++) v[i] = (double)(i * 37 % 23) / 11 - 1;
            tn_write(whole, TN_F64, v, rows * 10);
        }
        tn_watch(whole);
        tn_record(w.ctx);
        tn_tensor *half = tn_slice(whole, 1, 0, 5);
        tn_tensor *x = tn_slice(whole, 1, 5, 10);
        if (mode == 2) {
            in[0] = x;
            in[1] = half;
            x = tn_recompute(w.ctx, chain, &q, sizeof q, 2, in);
        } else for (int64_t i = 0; i < 3; i++) {
            in[0] = x;
            in[1] = i > 0 ? half : NULL;
            x = mode ? tn_recompute(w.ctx, piece, &q, sizeof q, 2, in) : piece(w.ctx, &q, in);
        }
        x = tn_add(w.ctx, tn_sum(w.ctx, tn_mul(w.ctx, x, x)), tn_sum(w.ctx, half));
        r->loss += tn_item(x);
        CHECK_STATUS(tn_backward(w.ctx, x), TN_OK);
        take(r, whole->grad);
        for (int64_t i = 0; i < tn_params_count(w.params) && !frozen; i++) take(r, tn_params_at(w.params, i)->value->grad);
    }
    close_world(&w);
    return true;
}

TEST(pieces_have_the_same_bits)
{
    static result plain, again;
    static const int64_t rows[] = {1, 3, 9};
    for (int n = 0; n < 3; n++)
        for (int d = 0; d < 3; d++)
            for (int frozen = 0; frozen < 2; frozen++) {
                const tn_dtype dtype = d == 1 ? TN_F64 : TN_F32, activations = d == 2 ? TN_BF16 : TN_REAL;
                REQUIRE(run_pieces(dtype, activations, 0, frozen, rows[n], &plain));
                CHECK(plain.count > 0 && plain.grads[0] != 0);
                for (int mode = 1; mode < 3; mode++) {
                    REQUIRE(run_pieces(dtype, activations, mode, frozen, rows[n], &again));
                    same(&plain, &again);
                }
            }
}

/* ---- transformers ---------------------------------------------------------------------------------------------------------- */

static void small_model(tn_transformer_desc *d)
{
    memset(d, 0, sizeof *d);
    d->vocab = 13;
    d->layers = 3;
    d->dim = 8;
    d->heads = 2;
    d->context = 7;
    d->init = TN_INIT_NORMAL;
}

static bool run_model(const tn_transformer_desc *d, tn_dtype dtype, tn_dtype activations, const tn_backend *backend,
                      result *r)
{
    world          w;
    tn_transformer m;
    int32_t        ids[TEXTS * 7], next[TEXTS * 7];
    memset(r, 0, sizeof *r);
    if (!open_as(&w, dtype, activations, 5, 1, backend) || !CHECK(tn_transformer_init(w.params, "", d, &m) == TN_OK))
        return false;
    for (int64_t i = 0; i < TEXTS * 7; i++) {
        ids[i] = (int32_t)(i * 5 % 13);
        next[i] = (int32_t)(i * 3 % 13);
    }
    for (int64_t k = 0; k < 2; k++) {                             /* gradients of two passes add up */
        tn_ctx_reset(w.ctx);
        tn_tensor *x = tn_tensor_2d(w.ctx, TN_I32, TEXTS, 7);
        tn_tensor *y = tn_tensor_2d(w.ctx, TN_I32, TEXTS, 7);
        tn_write(x, TN_I32, ids, TEXTS * 7);
        tn_write(y, TN_I32, next, TEXTS * 7);
        tn_record(w.ctx);
        tn_tensor *loss = tn_transformer_loss(w.ctx, &m, x, y);
        r->loss += tn_item(loss);
        CHECK_STATUS(tn_backward(w.ctx, loss), TN_OK);
    }
    for (int64_t i = 0; i < tn_params_count(w.params); i++) take(r, tn_params_at(w.params, i)->value->grad);
    close_world(&w);
    return true;
}

TEST(transformers_have_the_same_bits)
{
    static result plain, again;
    for (int kind = 0; kind < 8; kind++)
        for (int dtype = 0; dtype < 5; dtype++) {          /* two more: BF16 activations, and memory that only kernels can see */
            const tn_dtype      real = dtype == 1 ? TN_F64 : TN_F32, activations = dtype == 2 || dtype == 4 ? TN_BF16 : TN_REAL;
            const tn_backend   *backend = dtype == 3 ? sealed_cpu() : dtype == 4 ? sealed_sparse() : NULL;
            tn_transformer_desc d;
            small_model(&d);
            d.qk_norm = kind & 1;
            if (kind == 1) d.attention = TN_ATTENTION_BILINEAR;
            if (kind == 2) d.x0_residual = d.value_residual = true;
            if (kind == 3) d.mlp_order = 3;
            if (kind == 4) d.norm_place = TN_PLACE_SANDWICH, d.norm = TN_NORM_LAYER, d.norm_bias = true;
            if (kind == 5) d.norm_place = TN_PLACE_POST, d.x0_residual = true;
            if (kind == 6) d.attention = TN_ATTENTION_SQUARED, d.tied = true, d.positions = TN_POSITIONS_LEARNED;
            if (kind == 7) d.value_residual = true, d.attn_bias = d.mlp_bias = true;
            REQUIRE(run_model(&d, real, activations, backend, &plain));
            d.recompute = true;
            REQUIRE(run_model(&d, real, activations, backend, &again));
            CHECK_INT(sealed_damaged(), 0);
            same(&plain, &again);
        }
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

/* What a recorded forward pass of 4 texts holds in the arena, and the peak of the whole step without parameters and their gradients.
   first: bytes of the arena's first block; one that holds everything makes `held` exact, a small one `peak`. */
static void step_memory(const tn_transformer_desc *d, size_t first, double *held, double *peak)
{
    const int64_t  shape[2] = {4, 64};
    tn_desc        desc = ZERO;
    tn_ctx        *ctx;
    tn_transformer m;
    desc.arena_bytes = first;
    desc.threads = 1;
    REQUIRE(CHECK(tn_ctx_create(&desc, &ctx, NULL) == TN_OK));
    tn_params *params = tn_params_create(ctx);
    CHECK_STATUS(tn_transformer_init(params, "", d, &m), TN_OK);
    tn_tensor *ids = tn_tensor_create(ctx, TN_I32, 2, shape);
    tn_record(ctx);
    tn_tensor *loss = tn_transformer_loss(ctx, &m, ids, ids);
    tn_mark mark = tn_arena_mark(ctx);
    *held = mark.data_block == 0 ? (double)mark.data_used : NAN;
    CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
    *peak = (double)tn_ctx_memory(ctx).peak - 8 * (double)tn_params_elements(params);
    tn_ctx_destroy(ctx);
}

/* What a layer more holds after the forward pass: with all kept every number of its activations; recomputed, what it hands on, 4 x 64
   x 64 floats, and nothing else. So 16 layers keep 16 of these and one block's activations, in blocks of an arena that may double. */
TEST(memory_is_that_of_one_block)
{
    enum { LAYERS = 16 };
    const double        stream = 4.0 * 64 * 64 * 4;
    tn_transformer_desc d;
    double              few, many, peak, peak_again, unused;
    small_model(&d);
    d.dim = 64;
    d.context = 64;
    d.layers = 2;
    step_memory(&d, (size_t)1 << 26, &few, &unused);
    d.layers = LAYERS;
    step_memory(&d, (size_t)1 << 26, &many, &unused);
    double kept = (many - few) / (LAYERS - 2);
    step_memory(&d, (size_t)1 << 16, &unused, &peak);
    d.recompute = true;
    step_memory(&d, (size_t)1 << 26, &many, &unused);
    step_memory(&d, (size_t)1 << 16, &unused, &peak_again);
    d.layers = 2;
    step_memory(&d, (size_t)1 << 26, &few, &unused);
    printf("bytes a layer: %.0f kept, %.0f recomputed; peak of %d layers %.0f, %.0f\n", kept, (many - few) / (LAYERS - 2), LAYERS,
           peak, peak_again);
    CHECK((many - few) / (LAYERS - 2) == stream);
    CHECK(kept > 10 * stream);
    CHECK(peak > (int)LAYERS * kept);
    CHECK(peak_again < 2 * ((LAYERS + 4) * stream + 2 * kept));
}

/* Steps of the same shapes ask for nothing. */
TEST(no_allocations_after_the_second)
{
    world               w;
    tn_transformer_desc d;
    tn_transformer      m;
    int64_t             shape[2] = {2, 7};
    uint64_t            before = 0;
    small_model(&d);
    d.recompute = true;
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL) && CHECK(tn_transformer_init(w.params, "", &d, &m) == TN_OK));
    tn_tensor *ids = tn_tensor_create(w.ctx, TN_I32, 2, shape);
    for (int64_t k = 0; k < 4; k++) {
        tn_ctx_reset(w.ctx);
        tn_record(w.ctx);
        CHECK_STATUS(tn_backward(w.ctx, tn_transformer_loss(w.ctx, &m, ids, ids)), TN_OK);
        if (k == 1) before = tn_ctx_memory(w.ctx).allocations;     /* TN_DEBUG's other arena of headers comes here */
    }
    CHECK_INT(tn_ctx_memory(w.ctx).allocations, before);
    close_world(&w);
}

/* ---- bad use --------------------------------------------------------------------------------------------------------------- */

static tn_tensor *outside;
static int        turns;
static tn_tensor *reads_outside(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    (void)with;
    return tn_mul(ctx, in[0], outside);
}
static tn_tensor *other_numbers(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    (void)with;
    return turns++ ? tn_mul(ctx, in[0], in[0]) : tn_dropout(ctx, in[0], 0.5);
}
static tn_tensor *other_shape(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    (void)with;
    return turns++ ? tn_sum(ctx, in[0]) : tn_mul(ctx, in[0], in[0]);
}
static tn_tensor *then_nothing(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    (void)with;
    return turns++ ? NULL : tn_mul(ctx, in[0], in[0]);
}
static tn_tensor *releases(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    tn_mark mark;
    memcpy(&mark, with, sizeof mark);
    tn_arena_release(ctx, mark);
    return tn_mul(ctx, in[0], in[0]);
}
static tn_tensor *squares(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    (void)with;
    return tn_mul(ctx, in[0], in[0]);
}
static tn_tensor *gives_input(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    (void)ctx;
    (void)with;
    return in[0];
}

TEST(bad_use)
{
    static const struct { tn_recompute_fn fn; const char *message; } no[] = {
        {reads_outside, "recompute: fn reads [3], which needs a gradient, expected it among the inputs"},
        {other_numbers, "recompute: the second run of fn gave [3] and 0 random calls, expected [3] and 1"},
        {other_shape, "recompute: the second run of fn gave [] and 0 random calls, expected [3] and 0"},
        {then_nothing, "recompute: the second run of fn gave NULL, expected [3]"},
    };
    world         w;
    const int64_t three = 3;
    tn_tensor    *x, *y;
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        tn_ctx_reset(w.ctx);
        turns = 0;
        x = tn_full(w.ctx, 1, &three, 2);
        outside = tn_full(w.ctx, 1, &three, 3);
        tn_watch(x);
        tn_watch(outside);
        tn_record(w.ctx);
        y = tn_recompute(w.ctx, no[i].fn, NULL, 0, 1, &x);
        FAILS(w.ctx, tn_backward(w.ctx, tn_sum(w.ctx, y)), TN_ERR_ARG, no[i].message);
    }
    REFUSED(w.ctx, tn_recompute(w.ctx, NULL, NULL, 0, 1, &x), TN_ERR_ARG, "recompute: fn is NULL");
    REFUSED(w.ctx, tn_recompute(w.ctx, gives_input, NULL, 4, 1, &x), TN_ERR_ARG, "recompute: with is NULL");
    CHECK(tn_recompute(w.ctx, gives_input, NULL, 0, 4, &x) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "recompute: the number of inputs is 4, expected 0 to 3");
    CHECK(tn_recompute(NULL, gives_input, NULL, 0, 1, &x) == NULL);
    tn_mark mark = tn_arena_mark(w.ctx);                           /* a mark of outside, released inside */
    tn_record(w.ctx);
    CHECK(tn_recompute(w.ctx, releases, &mark, sizeof mark, 1, &x) != NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "arena_release: the mark is not valid, expected one made since the last reset");
    tn_ctx_reset(w.ctx);                                   /* the input itself is a result like any other */
    x = tn_full(w.ctx, 1, &three, 2);
    tn_watch(x);
    tn_record(w.ctx);
    y = tn_recompute(w.ctx, gives_input, NULL, 0, 1, &x);
    CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, tn_mul(w.ctx, y, y))), TN_OK);
    CHECK_NEAR(tn_item(tn_slice(x->grad, 0, 1, 2)), 4, 0);
    close_world(&w);
}

/* fn makes tensors. It cannot begin, end or drop what it is a part of, nor write what that reads. */
static void (*middle)(tn_ctx *ctx);
static tn_tensor *with_middle(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    tn_tensor *y = tn_mul(ctx, in[0], in[0]);
    (void)with;
    middle(ctx);
    return tn_mul(ctx, y, in[0]);
}
static void by_reset(tn_ctx *ctx)    { tn_ctx_reset(ctx); }
static void by_record(tn_ctx *ctx)   { tn_record(ctx); }
static void by_backward(tn_ctx *ctx) { tn_backward(ctx, outside); }
static void by_write(tn_ctx *ctx)
{
    const double v[3] = {5, 5, 5};
    (void)ctx;
    tn_write(outside, TN_F64, v, 3);
}

TEST(what_it_is_part_of)
{
    static const struct { void (*act)(tn_ctx *ctx); const char *message; } no[] = {
        {by_reset, "reset: called inside a function that tn_recompute runs"},
        {by_record, "record: called inside a function that tn_recompute runs"},
        {by_backward, "backward: called inside a function that tn_recompute runs"},
        {by_write, "write: [3] is needed by the backward pass"},
    };
    world         w;
    const int64_t three = 3;
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        tn_ctx_reset(w.ctx);
        tn_tensor *x = tn_full(w.ctx, 1, &three, 2);
        tn_watch(x);
        outside = tn_full(w.ctx, 1, &three, 3);
        tn_watch(outside);
        tn_record(w.ctx);
        tn_tensor *z = tn_mul(w.ctx, outside, outside);
        middle = no[i].act;
        tn_tensor *y = tn_recompute(w.ctx, with_middle, NULL, 0, 1, &x);
        CHECK_ERROR(w.ctx, TN_ERR_ARG, no[i].message);
        CHECK(tn_backward(w.ctx, tn_sum(w.ctx, tn_add(w.ctx, y, z))) != TN_OK);      /* again, at the second time */
        CHECK_ERROR(w.ctx, TN_ERR_ARG, no[i].message);
    }
    close_world(&w);
}

/* An input that nothing flows through has no gradient afterwards: no decay may move it. */
TEST(parameters_nothing_reaches)
{
    world         w;
    const int64_t n = 3;
    tn_init       init = ZERO;
    tn_optim_desc od = ZERO;
    tn_tensor    *in[2];
    double        before[3], after[3];
    init.rule = TN_INIT_NORMAL;
    init.std = 1;
    od.weight_decay = 0.5;
    od.lr = 0.1;
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    in[0] = tn_params_add(w.params, "a", 1, &n, init)->value;
    in[1] = tn_params_add(w.params, "b", 1, &n, init)->value;
    tn_optim *o = tn_optim_create(w.params, &od);
    for (int pass = 0; pass < 2; pass++) {
        tn_read(in[1], TN_F64, before, 3);
        tn_ctx_reset(w.ctx);
        tn_record(w.ctx);
        CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, tn_recompute(w.ctx, squares, NULL, 0, 2, in))), TN_OK);
        CHECK(in[0]->grad != NULL && in[1]->grad == NULL);
        CHECK_STATUS(tn_optim_step(o), TN_OK);
        tn_read(in[1], TN_F64, after, 3);
        for (int i = 0; i < 3; i++) CHECK(after[i] == before[i]);
    }
    close_world(&w);
}

/* What a recomputed part might read cannot be written while it is noted. */
TEST(parameters_stay)
{
    world       w;
    tn_mlp_desc d = ZERO;
    tn_mlp      mlp;
    part        q;
    double      v[2 * 6 * 5] = {0};
    d.in = d.out = 5;
    d.hidden = 6;
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL) && CHECK(tn_mlp_init(w.params, "m", &d, &mlp) == TN_OK));
    q.mlp = &mlp;
    q.p = 0.1;
    tn_tensor *x = tn_tensor_2d(w.ctx, TN_REAL, 1, 5);
    tn_write(x, TN_F64, v, 5);
    tn_record(w.ctx);
    tn_tensor *y = tn_recompute(w.ctx, piece, &q, sizeof q, 1, &x);
    FAILS(w.ctx, tn_write(mlp.w, TN_F64, v, 60), TN_ERR_ARG, "is needed by the backward pass");
    CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, y)), TN_OK);
    CHECK_STATUS(tn_write(mlp.w, TN_F64, v, 60), TN_OK);
    close_world(&w);
}

/* Nor has an intermediate result, and what it was made of: no decay may move a parameter behind it. */
TEST(intermediates_nothing_reaches)
{
    world         w;
    const int64_t n = 3;
    tn_init       init = ZERO;
    tn_tensor    *in[2];
    init.rule = TN_INIT_ONE;
    REQUIRE(open_on(&w, TN_F32, 1, 1, NULL));
    tn_param *a = tn_params_add(w.params, "a", 1, &n, init);
    tn_param *b = tn_params_add(w.params, "b", 1, &n, init);
    for (int pass = 0; pass < 2; pass++) {
        tn_ctx_reset(w.ctx);
        tn_params_zero_grad(w.params);
        tn_record(w.ctx);
        in[0] = tn_scale(w.ctx, a->value, 2);
        in[1] = tn_scale(w.ctx, b->value, 2);
        CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, tn_recompute(w.ctx, squares, NULL, 0, 2, in))), TN_OK);
        CHECK(a->value->grad != NULL && b->value->grad == NULL);
    }
    close_world(&w);
}

/* The input is an intermediate that also takes part in an addition outside: z = h + h * h, h = 2 x, dx = 2 + 8 x. */
TEST(an_addition_outside)
{
    world         w;
    const int64_t n = 3;
    const double  x[3] = {1, -2, 3};
    double        got[3] = {0, 0, 0};
    REQUIRE(open_on(&w, TN_F64, 1, 1, NULL));
    for (int swapped = 0; swapped < 2; swapped++) {
        tn_ctx_reset(w.ctx);
        tn_tensor *of = tn_tensor_nd(w.ctx, TN_REAL, 1, &n);
        tn_write(of, TN_F64, x, 3);
        tn_watch(of);
        tn_record(w.ctx);
        tn_tensor *h = tn_scale(w.ctx, of, 2);
        tn_tensor *y = tn_recompute(w.ctx, squares, NULL, 0, 1, &h);
        y = swapped ? tn_add(w.ctx, y, h) : tn_add(w.ctx, h, y);
        CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, y)), TN_OK);
        tn_read(of->grad, TN_F64, got, 3);
        for (int i = 0; i < 3; i++) CHECK(got[i] == 2 + 8 * x[i]);
        CHECK_CTX(w.ctx);
    }
    close_world(&w);
}

/* Random calls after a backward pass that recomputed get the numbers that they get without it. */
static void draw_after(bool recompute, double out[4])
{
    world         w;
    const int64_t n = 4;
    tn_mlp_desc   d = ZERO;
    tn_mlp        mlp;
    part          q;
    tn_tensor    *in[3] = {NULL, NULL, NULL};
    const double  x[10] = {1, 2, 3, 4, 5, -1, -2, -3, -4, -5};
    d.in = d.out = 5;
    d.hidden = 6;
    if (!open_on(&w, TN_F32, 1, 1, NULL) || !CHECK(tn_mlp_init(w.params, "m", &d, &mlp) == TN_OK)) return;
    q.mlp = &mlp;
    q.p = 0.1;
    in[0] = tn_tensor_2d(w.ctx, TN_REAL, 2, 5);
    tn_write(in[0], TN_F64, x, 10);
    tn_record(w.ctx);
    tn_tensor *y = recompute ? tn_recompute(w.ctx, piece, &q, sizeof q, 1, in) : piece(w.ctx, &q, in);
    y = tn_dropout(w.ctx, y, 0.3);
    CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, y)), TN_OK);
    tn_read(tn_uniform(w.ctx, 1, &n, 0, 1), TN_F64, out, 4);
    close_world(&w);
}

TEST(random_calls_go_on_afterwards)
{
    double plain[4] = {0}, again[4] = {1};
    draw_after(false, plain);
    draw_after(true, again);
    CHECK(memcmp(plain, again, sizeof plain) == 0);
}

TEST_MAIN(pieces_have_the_same_bits, transformers_have_the_same_bits, memory_is_that_of_one_block, no_allocations_after_the_second,
          bad_use, what_it_is_part_of, parameters_stay, parameters_nothing_reaches,
          intermediates_nothing_reaches, an_addition_outside, random_calls_go_on_afterwards)
