/* test_params.c: weight tying, cloning and rebinding, freezing by pattern. */

#include "kit.h"

typedef struct model {
    tn_embedding embed;
    tn_norm      norm;
    tn_mlp       mlp;
    tn_linear    unembed;
} model;

enum { WORDS = 11, DIM = 6, ROWS = 7 };

/* embed, LayerNorm, bilinear layer, unembed: tied to the embedding, or with a matrix of its own. */
static tn_params *model_init(tn_ctx *ctx, model *m, bool tied)
{
    tn_params        *ps = tn_params_create(ctx);
    tn_embedding_desc e = ZERO;
    tn_norm_desc      n = ZERO;
    tn_mlp_desc       d = ZERO;
    tn_linear_desc    l = ZERO;
    l.bias = true;
    e.count = WORDS;
    e.dim = n.dim = d.in = l.in = DIM;
    n.kind = TN_NORM_LAYER;
    n.bias = true;
    d.hidden = 5;
    d.residual = d.bias = true;
    l.out = WORDS;
    CHECK_STATUS(tn_embedding_init(ps, "embed", &e, &m->embed), TN_OK);
    CHECK_STATUS(tn_norm_init(ps, "blocks.0.norm", &n, &m->norm), TN_OK);
    CHECK_STATUS(tn_mlp_init(ps, "blocks.0.mlp", &d, &m->mlp), TN_OK);
    if (tied) CHECK_STATUS(tn_params_tie(ps, "unembed.w", "embed.w"), TN_OK);
    CHECK_STATUS(tn_linear_init(ps, "unembed", &l, &m->unembed), TN_OK);
    return ps;
}

static tn_tensor *ids_of(tn_ctx *ctx)
{
    static const int32_t v[ROWS] = {3, 1, 4, 1, 5, 9, 2};
    tn_tensor *t = tn_tensor_1d(ctx, TN_I32, ROWS);
    CHECK_STATUS(tn_write(t, TN_I32, v, ROWS), TN_OK);
    return t;
}

static tn_tensor *model_forward(tn_ctx *ctx, const model *m, tn_tensor *ids)
{
    tn_tensor *x = tn_embedding_forward(ctx, &m->embed, ids);
    x = tn_mlp_forward(ctx, &m->mlp, tn_norm_forward(ctx, &m->norm, x));
    return tn_linear_forward(ctx, &m->unembed, x);
}

/* A step of gradients, and of the optimiser where there is one. */
static void model_step(tn_ctx *ctx, const model *m, tn_optim *optim)
{
    tn_ctx_reset(ctx);
    tn_tensor *ids = ids_of(ctx);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_cross_entropy(ctx, model_forward(ctx, m, ids), ids)), TN_OK);
    if (optim) CHECK_STATUS(tn_optim_step(optim), TN_OK);
}

static double *numbers_of(const tn_tensor *t)
{
    int64_t n = tn_tensor_count(t);
    double *v = doubles(n);
    CHECK_STATUS(tn_read(t, TN_F64, v, n), TN_OK);
    return v;
}

static bool same_numbers(const tn_tensor *a, const tn_tensor *b)
{
    double *va = numbers_of(a), *vb = numbers_of(b);
    bool    same = tn_tensor_count(a) == tn_tensor_count(b) && memcmp(va, vb, sizeof(double) * (size_t)tn_tensor_count(a)) == 0;
    return same;
}

/* ---- tying ------------------------------------------------------------------------------------------------ */

/* One matrix, and its gradient is the sum of what the two matrices of an untied model with the same numbers get. */
TEST(tied_gradients_add_up)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F64, 0);
    model      tied, apart;
    tn_params *one = model_init(ctx, &tied, true), *two = model_init(ctx, &apart, false);
    CHECK(tied.unembed.w == tied.embed.w);
    CHECK_INT(tn_params_count(two), tn_params_count(one) + 1);
    CHECK_INT(tn_params_elements(two), tn_params_elements(one) + WORDS * DIM);
    CHECK(tn_params_find(one, "unembed.w") == tn_params_find(one, "embed.w"));
    CHECK_STR(tn_params_find(one, "unembed.w")->name, "embed.w");
    for (int64_t i = 0; i < tn_params_count(two); i++) {
        tn_param *p = tn_params_at(two, i);
        double   *v = numbers_of(tn_params_find(one, p->name)->value);
        CHECK_STATUS(tn_write(p->value, TN_F64, v, tn_tensor_count(p->value)), TN_OK);
    }
    model_step(ctx, &tied, NULL);
    model_step(ctx, &apart, NULL);
    double *both = numbers_of(tied.embed.w->grad);
    double *embed = numbers_of(apart.embed.w->grad);
    double *unembed = numbers_of(apart.unembed.w->grad);
    for (int64_t i = 0; i < WORDS * DIM; i++) {
        embed[i] += unembed[i];
        CHECK(unembed[i] != 0);
    }
    WORST("gradient of a tied matrix against the sum of two, F64", test_max_error(both, embed, WORDS * DIM), 1e-15);
    CLOSE_CTX(ctx);
}

TEST(tied_is_saved_once)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F32, 0);
    model      a, b, c;
    tn_params *one = model_init(ctx, &a, true), *again = model_init(ctx, &b, true), *two = model_init(ctx, &c, false);
    size_t     used, wide;
    tn_optim  *optim = tn_optim_create(one, NULL);
    model_step(ctx, &a, optim);
    model_step(ctx, &a, optim);
    CHECK_STATUS(tn_params_write(one, tn_sink_memory(NULL, 0, &used), NULL, 0), TN_OK);
    char *bytes = (char *)malloc(used);
    CHECK_STATUS(tn_params_write(one, tn_sink_memory(bytes, used, &used), NULL, 0), TN_OK);
    tn_safetensors *file = tn_safetensors_open(ctx, tn_source_memory(bytes, used));
    CHECK_INT(tn_safetensors_count(file), tn_params_count(one));
    CHECK(tn_safetensors_find(file, "embed.w") && !tn_safetensors_find(file, "unembed.w"));
    tn_safetensors_close(file);
    CHECK(!same_numbers(a.embed.w, b.embed.w));
    CHECK_STATUS(tn_params_read(again, tn_source_memory(bytes, used), TN_MATCH_ALL), TN_OK);
    CHECK(same_numbers(a.embed.w, b.embed.w) && same_numbers(a.embed.w, b.unembed.w));
    CHECK(same_numbers(model_forward(ctx, &a, ids_of(ctx)), model_forward(ctx, &b, ids_of(ctx))));
    free(bytes);
    CHECK_STATUS(tn_params_write(two, tn_sink_memory(NULL, 0, &wide), NULL, 0), TN_OK);
    bytes = (char *)malloc(wide);
    CHECK_STATUS(tn_params_write(two, tn_sink_memory(bytes, wide, &wide), NULL, 0), TN_OK);
    CHECK_STATUS(tn_params_read(again, tn_source_memory(bytes, wide), TN_MATCH_ALL), TN_ERR_ARG);  /* two matrices for one */
    CHECK_ERROR(ctx, TN_ERR_ARG, "memory: tensor \"unembed.w\" [11,6] is not a parameter");
    CHECK(same_numbers(a.embed.w, b.embed.w));
    CHECK_STATUS(tn_params_read(again, tn_source_memory(bytes, wide), TN_MATCH_IGNORE_EXTRA), TN_OK);
    CHECK(same_numbers(c.embed.w, b.embed.w));
    free(bytes);
    CLOSE_CTX(ctx);
}

TEST(tying_refuses)
{
    tn_ctx        *ctx = ctx_in(NULL, TN_F32, 0);
    model          m;
    tn_params     *ps = model_init(ctx, &m, false);
    tn_linear_desc l = ZERO;
    tn_linear      linear;
    int64_t        count = tn_params_count(ps);
    l.bias = true;
    FAILS(ctx, tn_params_tie(ps, "a", "nobody"), TN_ERR_ARG, "params: a is tied to nobody, which is not a parameter");
    FAILS(ctx, tn_params_tie(ps, "unembed.w", "embed.w"), TN_ERR_ARG, "the parameter unembed.w exists already");
    FAILS(ctx, tn_params_tie(ps, "", "embed.w"), TN_ERR_ARG, "the name of a parameter is empty");
    FAILS(ctx, tn_params_tie(ps, "a", NULL), TN_ERR_ARG, "tied to NULL");
    CHECK_STATUS(tn_params_tie(NULL, "a", "embed.w"), TN_ERR_ARG);
    CHECK_STATUS(tn_params_tie(ps, "head.w", "embed.w"), TN_OK);
    FAILS(ctx, tn_params_tie(ps, "head.w", "embed.w"), TN_ERR_ARG, "the parameter head.w exists already");
    CHECK_STATUS(tn_params_tie(ps, "other.w", "head.w"), TN_OK);                /* through the other name */
    CHECK(tn_params_find(ps, "other.w")->value == m.embed.w);
    REFUSED(ctx, tn_params_add(ps, "head.w", 1, m.embed.w->shape, l.init), TN_ERR_ARG, "the parameter head.w exists already");
    l.in = WORDS;
    l.out = DIM;
    CHECK_STATUS(tn_linear_init(ps, "head", &l, &linear), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "params: head.w is tied to embed.w, which is [11,6], expected [6,11]");
    CHECK(linear.w == NULL && linear.b == NULL);
    CHECK_INT(tn_params_count(ps), count);
    tn_ctx_destroy(ctx);
}

/* ---- clones ------------------------------------------------------------------------------------------------- */

TEST(clones)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F32, 0), *wide = ctx_in(NULL, TN_F64, 0);
    model      a, b, c, d;
    tn_params *ps = model_init(ctx, &a, true);
    tn_optim  *optim = tn_optim_create(ps, NULL);
    int64_t    tensors = tn_params_count(ps) + 1;             /* one of them twice */
    model_step(ctx, &a, optim);
    tn_params_freeze(ps, "blocks.*.norm.*");
    tn_params_set_scales(ps, "embed", 0.5, 0.25);
    tn_params *same = tn_params_clone(ctx, ps), *up = tn_params_clone(wide, ps);
    tn_params *down = tn_params_clone(ctx, up);
    REQUIRE(same && up && down);
    b = c = d = a;
    CHECK_INT(tn_params_rebind(same, ps, &b, sizeof b), tensors);
    CHECK_INT(tn_params_rebind(up, ps, &c, sizeof c), tensors);
    CHECK_INT(tn_params_rebind(down, ps, &d, sizeof d), tensors);
    CHECK_INT(tn_params_rebind(same, ps, &b, sizeof b), 0);                     /* done already */
    CHECK(b.embed.w != a.embed.w && b.unembed.w == b.embed.w && c.embed.w->ctx == wide && c.embed.w->dtype == TN_F64);
    CHECK(b.mlp.pb == NULL && b.mlp.desc.hidden == 5 && b.mlp.w == tn_params_find(same, "blocks.0.mlp.w")->value);
    for (int64_t i = 0; i < tn_params_count(ps); i++) {
        tn_param *p = tn_params_at(ps, i), *q = tn_params_at(same, i), *r = tn_params_at(up, i), *s = tn_params_at(down, i);
        CHECK(same_numbers(p->value, q->value) && same_numbers(p->value, r->value) && same_numbers(p->value, s->value));
        CHECK_STR(p->name, q->name);
        CHECK(p->name != q->name && q->value->grad == NULL);
        CHECK(q->frozen == p->frozen && q->lr_scale == p->lr_scale && q->decay_scale == p->decay_scale && r->lr_scale == p->lr_scale);
    }
    CHECK(tn_params_find(same, "unembed.w") == tn_params_find(same, "embed.w"));
    tn_ctx_reset(ctx);
    CHECK(same_numbers(model_forward(ctx, &a, ids_of(ctx)), model_forward(ctx, &b, ids_of(ctx))));
    double *v = numbers_of(model_forward(ctx, &a, ids_of(ctx)));
    double *w = numbers_of(model_forward(wide, &c, ids_of(wide)));
    WORST("a model in F32 against its clone in F64", test_max_error(v, w, ROWS * WORDS), 2e-6);
    v = numbers_of(a.mlp.w);                                     /* the clone trains, the original stays */
    optim = tn_optim_create(same, NULL);
    model_step(ctx, &b, optim);
    w = numbers_of(a.mlp.w);
    CHECK(memcmp(v, w, sizeof *v * 2 * 5 * DIM) == 0 && !same_numbers(a.mlp.w, b.mlp.w));
    CHECK(same_numbers(a.norm.gain, b.norm.gain));               /* frozen in the clone as well */
    tn_params_destroy(ps);
    model_step(ctx, &b, optim);                                  /* and lives on */
    CHECK_CTX(ctx);
    CLOSE_CTX(wide);
    tn_ctx_destroy(ctx);
}

TEST(clones_refuse)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F32, 0);
    model      a, b;
    tn_params *ps = model_init(ctx, &a, false), *tied = model_init(ctx, &b, true), *empty = tn_params_create(ctx);
    int64_t    shape[2] = {WORDS, DIM + 1};
    tn_init    zero = ZERO;
    REFUSED(ctx, tn_params_clone(ctx, NULL), TN_ERR_ARG, "clone: params is NULL");
    CHECK(tn_params_clone(NULL, ps) == NULL);
    model was = a;
    CHECK_INT(tn_params_rebind(empty, ps, &a, sizeof a), -1);
    CHECK_ERROR(ctx, TN_ERR_ARG, "rebind: the target has no parameter embed.w of shape [11,6]");
    CHECK(memcmp(&a, &was, sizeof a) == 0);
    tn_params_add(empty, "embed.w", 2, shape, zero);
    CHECK_INT(tn_params_rebind(empty, ps, &a, sizeof a), -1);
    CHECK_ERROR(ctx, TN_ERR_ARG, "rebind: the target has no parameter embed.w of shape [11,6]");
    CHECK(memcmp(&a, &was, sizeof a) == 0);
    CHECK_INT(tn_params_rebind(tied, ps, NULL, sizeof a), -1);
    CHECK_ERROR(ctx, TN_ERR_ARG, "rebind: layers is NULL");
    CHECK_INT(tn_params_rebind(tied, NULL, &a, sizeof a), -1);
    CHECK_ERROR(ctx, TN_ERR_ARG, "rebind: a set of parameters is NULL");
    tn_ctx_destroy(ctx);
}

/* Each allocation of a clone fails once: nothing is left behind, and the original is as it was. */
TEST(clones_survive_failing_allocations)
{
    for (int across = 0; across < 2; across++) {
        test_heap heap = {0, 0, 0, 0, false};
        tn_ctx   *ctx = ctx_in(across ? NULL : &heap, TN_F32, 0), *to = across ? ctx_in(&heap, TN_F64, 0) : ctx;
        model     m;
        tn_params *ps = model_init(ctx, &m, true), *clone = NULL;
        uint64_t  fail;
        for (fail = 1; fail < 200; fail++) {
            uint64_t blocks = heap.blocks;
            heap.count = 0;
            heap.fail_at = fail;
            clone = tn_params_clone(to, ps);
            heap.fail_at = 0;
            if (clone) break;
            CHECK_INT(heap.blocks, blocks);
            CHECK_ERROR(to, TN_ERR_MEMORY, "");
        }
        printf("%d allocations of a clone %s failed\n", (int)fail - 1, across ? "into another context" : "in its context");
        CHECK(clone != NULL && fail > 10);
        CHECK(tn_params_count(clone) == tn_params_count(ps) && same_numbers(tn_params_at(clone, 3)->value, tn_params_at(ps, 3)->value));
        if (across) tn_ctx_destroy(to);
        tn_ctx_destroy(ctx);
        CHECK_INT(heap.blocks, 0);
    }
}

/* ---- freezing ------------------------------------------------------------------------------------------------- */

TEST(patterns)
{
    static const struct { const char *pattern; int64_t fits; } list[] = {
        {"", 8}, {"*", 8}, {"embed", 1}, {"embed.w", 1}, {"blocks", 5}, {"blocks.0.mlp.w", 1}, {"*.w", 3}, {"*.b", 2}, {"*b*", 8}, {"blocks.*.b", 1},
        {"blocks.*.mlp.*", 3}, {"*norm*", 2}, {"*norm", 0}, {"**.gain", 1}, {"e*d.w", 1}, {"*embed.*", 3}, {"e*", 1}, {"w", 0}, {"*mbed*mbed*", 0},
        {"blocks.0.mlp.w*", 1}, {"*.w.", 0}, {"a*", 0}
    };
    tn_ctx    *ctx = ctx_in(NULL, TN_F32, 0);
    model      m;
    tn_params *ps = model_init(ctx, &m, false);
    CHECK_INT(tn_params_count(ps), 8);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int64_t frozen = 0;
        if (!CHECK_INT(tn_params_freeze(ps, list[i].pattern), list[i].fits))
            printf("     pattern \"%s\"\n", list[i].pattern);
        for (int64_t k = 0; k < 8; k++) frozen += tn_params_at(ps, k)->frozen;
        CHECK_INT(frozen, list[i].fits);
        CHECK_INT(tn_params_set_scales(ps, list[i].pattern, 1, 1), list[i].fits);
        tn_params_thaw(ps, "");
    }
    CHECK_INT(tn_params_freeze(ps, NULL), 0);
    CHECK_INT(tn_params_freeze(NULL, ""), 0);
    tn_ctx_destroy(ctx);
}

/* Frozen: same bits after training, no gradient, less memory than before; thawed: trains again. */
TEST(freezing)
{
    test_heap  heap = {0, 0, 0, 0, false};
    tn_ctx    *ctx = ctx_in(&heap, TN_F32, 0);
    model      m;
    tn_params *ps = model_init(ctx, &m, true);
    tn_params *before = tn_params_clone(ctx, ps);
    tn_optim  *optim = tn_optim_create(ps, NULL);
    model_step(ctx, &m, optim);
    size_t bytes = heap.live;
    CHECK_INT(tn_params_freeze(ps, "blocks.*.mlp.*"), 3);
    CHECK(bytes - heap.live >= sizeof(float) * (2 * 5 * DIM + 2 * 5 + 5 * DIM));
    tn_params_destroy(before);
    before = tn_params_clone(ctx, ps);
    for (int step = 0; step < 3; step++) model_step(ctx, &m, optim);
    for (int64_t i = 0; i < tn_params_count(ps); i++) {
        tn_param *p = tn_params_at(ps, i);
        CHECK(p->frozen == (strstr(p->name, "mlp") != NULL));
        CHECK(same_numbers(p->value, tn_params_at(before, i)->value) == p->frozen);
        CHECK((p->value->grad == NULL) == p->frozen);
    }
    CHECK_INT(tn_params_thaw(ps, "*"), tn_params_count(ps));
    model_step(ctx, &m, optim);
    for (int64_t i = 0; i < tn_params_count(ps); i++)
        CHECK(!same_numbers(tn_params_at(ps, i)->value, tn_params_at(before, i)->value));
    CLOSE_CTX(ctx);
    CHECK_INT(heap.blocks, 0);
}

/* A model that is frozen from the start never gets memory for a gradient; what lies below what trains still passes gradients on. */
TEST(frozen_from_the_start)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F64, 0);
    model      m;
    tn_params *ps = model_init(ctx, &m, false);
    tn_params_freeze(ps, "");
    tn_tensor *ids = ids_of(ctx);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_cross_entropy(ctx, model_forward(ctx, &m, ids), ids)), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "backward: loss leads to no parameter, expected tn_record");
    tn_params_thaw(ps, "embed");
    model_step(ctx, &m, NULL);
    for (int64_t i = 0; i < tn_params_count(ps); i++) CHECK((tn_params_at(ps, i)->value->grad != NULL) == (i == 0));
    CLOSE_CTX(ctx);
}

TEST_MAIN(tied_gradients_add_up, tied_is_saved_once, tying_refuses, clones, clones_refuse, clones_survive_failing_allocations, patterns, freezing,
          frozen_from_the_start)
