/* test_sizes.c: every public function that takes an int64_t is called with numbers that no size has, in each argument, each
   element of an array and each field of a desc in turn. build/sizes.h has the calls; sizes.awk makes them from the declarations
   and sizes.txt. A call succeeds or fails with a message, and the context can be used afterwards. That nothing is written
   beyond memory and no sum overflows is for the sanitizers to say. */

#include "test.h"

/* ---- the numbers ---------------------------------------------------------------------------------------------------- */

static const int64_t extremes[] = {
    0, -1, INT64_MIN, INT64_MAX, INT64_MAX - 1, (int64_t)1 << 31, ((int64_t)1 << 31) + 1, (int64_t)1 << 62,
};
enum { EXTREMES = sizeof extremes / sizeof *extremes };

enum { NONE = -1, ALL = -2 };

static struct turn {
    int         at, place;      /* the number at hand of a call, and the one that is replaced, or NONE or ALL */
    int64_t     value, calls;
    const char *function, *name;
} turn;

static int64_t number(const char *name, int64_t valid, int64_t most)
{
    if ((turn.at++ != turn.place && turn.place != ALL) || turn.value > most) return valid;
    turn.name = turn.place == ALL ? "all" : name;
    return turn.value;
}

/* ---- what the calls take ------------------------------------------------------------------------------------------- */

static const tn_backend *backend;
static tn_ctx        *ctx;
static tn_params     *params;
static double         reals[64];
static int32_t        ids[64];
static char           text[256];
static const tn_metadata  notes[1] = {{"key", "value"}};
static int64_t        indices[8];
static const int64_t  shape34[2] = {3, 4}, shape344[3] = {3, 4, 4}, shape3332[4] = {3, 3, 3, 2}, shape46[2] = {4, 6};
static const int      ranks[2] = {2, 2}, label[2] = {0, 1}, rules[2] = {30, 110};
static const int      second[2] = {1, 2}, ends[2] = {0, 2};
static const int     *const labels[2] = {label, label}, *const product[2] = {label, second};
static const float    logits[8] = {0, 1, 2, 3, 0, 1, 2, 3};
static const char     sentence[] = "the cat sat on the mat and the rat sat on the cat";

static tn_tensor *matrix(int64_t n, int64_t m)
{
    const int64_t shape[2] = {n, m};
    return tn_normal(ctx, 2, shape, 0, 1);
}

static tn_tensor *cube(int64_t n, int64_t m, int64_t k)
{
    const int64_t shape[3] = {n, m, k};
    return tn_normal(ctx, 3, shape, 0, 1);
}

static tn_tensor *four(int64_t b, int64_t n, int64_t h, int64_t d)
{
    const int64_t shape[4] = {b, n, h, d};
    return tn_normal(ctx, 4, shape, 0, 1);
}

static tn_tensor *vector(int64_t n) { return tn_normal(ctx, 1, &n, 0, 1); }

static const int64_t *const *shapes(void)
{
    static int64_t two[2][2];
    static const int64_t *const  both[2] = {two[0], two[1]};
    two[0][0] = number("shapes[0][0]", 3, INT64_MAX);
    two[0][1] = two[1][0] = number("shapes[0][1]", 4, INT64_MAX);
    two[1][1] = number("shapes[1][1]", 5, INT64_MAX);
    return both;
}

static tn_plan *plan(void)
{
    static const int64_t *const both[2] = {shape34, shape34};
    return tn_plan_create(ctx, "ij,ij->ij", 2, ranks, both, NULL);
}

static const tn_tap *edits(void)
{
    static tn_edit edit;
    static tn_tap  tap;
    memset(&edit, 0, sizeof edit);
    edit.head = number("edit.head", 0, INT64_MAX);
    edit.heads = number("edit.heads", 1, INT64_MAX);
    edit.token = number("edit.token", 1, INT64_MAX);
    edit.tokens = number("edit.tokens", 2, INT64_MAX);
    tap.points = "blocks.0.attn.z";
    tap.fn = tn_tap_edit;
    tap.user = &edit;
    return &tap;
}

static tn_tensor *const *pair(void)
{
    static tn_tensor *two[2];
    two[0] = matrix(3, 4);
    two[1] = matrix(3, 4);
    return two;
}

static tn_tensor *tokens(void)
{
    tn_tensor *t = tn_tensor_2d(ctx, TN_I32, 1, 4);
    CHECK_STATUS(tn_write(t, TN_I32, ids, 4), TN_OK);
    return t;
}

/* A prefix that no layer of the context has yet. */
static const char *fresh_name(void)
{
    static char name[32];
    snprintf(name, sizeof name, "layer%lld", (long long)tn_params_count(params));
    return name;
}

#define LAYER(type, init, ...) \
    static type layer; \
    type##_desc desc; \
    memset(&desc, 0, sizeof desc); \
    __VA_ARGS__; \
    CHECK_STATUS(init(params, fresh_name(), &desc, &layer), TN_OK); \
    return &layer

static const tn_mlp *mlp(void) { LAYER(tn_mlp, tn_mlp_init, desc.in = 3; desc.hidden = 4; desc.out = 2); }
static const tn_mlp *relu(void)
{
    LAYER(tn_mlp, tn_mlp_init, desc.in = 3; desc.hidden = 4; desc.kind = TN_MLP_RELU);
}
static const tn_attention *attention(void)
{
    LAYER(tn_attention, tn_attention_init, desc.dim = 4; desc.heads = 2; desc.kind = TN_ATTENTION_SQUARED);
}
static const tn_tn_attention *tn_attention_layer(void)
{
    LAYER(tn_tn_attention, tn_tn_attention_init, desc.in = 2; desc.bond = 2; desc.boundary = TN_BOUNDARY_VECTORS);
}
static const tn_tn_attention *causal_layer(void)
{
    LAYER(tn_tn_attention, tn_tn_attention_init, desc.in = 2; desc.bond = 2; desc.boundary = TN_BOUNDARY_VECTORS;
          desc.causal = true);
}
static const tn_transformer *model(void)
{
    LAYER(tn_transformer, tn_transformer_init, desc.vocab = 5; desc.layers = 2; desc.dim = 4; desc.heads = 2;
          desc.context = 7; desc.hidden = 3);
}
static const tn_transformer *squared_model(void)
{
    LAYER(tn_transformer, tn_transformer_init, desc.vocab = 5; desc.layers = 2; desc.dim = 4; desc.heads = 2;
          desc.context = 7; desc.hidden = 3; desc.attention = TN_ATTENTION_SQUARED);
}
static const tn_transformer *whole_polynomial(void)
{
    LAYER(tn_transformer, tn_transformer_init, desc.vocab = 5; desc.layers = 2; desc.dim = 4; desc.heads = 2; desc.context = 7;
          desc.hidden = 3; desc.attention = TN_ATTENTION_SQUARED; desc.no_norm = true);
}
static const tn_transformer *one_block(void)
{
    LAYER(tn_transformer, tn_transformer_init, desc.vocab = 5; desc.layers = 1; desc.dim = 4; desc.heads = 2;
          desc.context = 7; desc.hidden = 3);
}
static const tn_deep *deep(void)
{
    LAYER(tn_deep, tn_deep_init, desc.out = 2; desc.layers = 1; desc.bond = 2; desc.causal = true;
          desc.head = TN_DEEP_SITES; desc.boundary = TN_BOUNDARY_VECTORS);
}
static const tn_tn_attention *automaton(void)
{
    static tn_tn_attention layer;
    CHECK_STATUS(tn_tn_attention_from_rules(params, "rules", rules, 1, TN_BOUNDARY_VECTORS, &layer), TN_OK);
    return &layer;
}
static const tn_cp *cp(void) { return tn_cp_from_mlp(ctx, mlp()); }

/* Results that the context does not own. */
static struct made {
    tn_circuit_frozen frozen;
    tn_circuit_paths  paths;
    tn_circuit_parts  parts;
    tn_circuit_ratio  ratio;
    tn_polynomial_fit fit;
    tn_polynomial     polynomial;
    tn_circuit_terms  terms;
    tn_circuit_block   ovpp;
    tn_eigenpairs          eigen;
} made;

static const tn_circuit_frozen *frozen(void)
{
    CHECK_STATUS(tn_circuit_freeze(ctx, model(), tokens(), &made.frozen), TN_OK);
    return &made.frozen;
}

static const tn_circuit_target target = {TN_CIRCUIT_AIM_LOGIT, 1, 1, 2};

static const tn_circuit_paths *paths(void)
{
    tn_circuit_paths_desc desc = {20, 0};
    CHECK_STATUS(tn_circuit_paths_find(frozen(), &target, &desc, &made.paths), TN_OK);
    return &made.paths;
}

static const tn_circuit_parts *parts(void)
{
    tn_circuit_parts_desc desc = {TN_CIRCUIT_BY_MLPS, false, 0};
    CHECK_STATUS(tn_circuit_parts_of(frozen(), &target, &desc, &made.parts), TN_OK);
    return &made.parts;
}

static tn_polynomial_fit *fit(void)
{
    static const double x[3] = {0, 0.5, 1}, y[3] = {1, 2, 5};
    CHECK_STATUS(tn_polynomial_fit_init(ctx, 2, 0, 1, &made.fit), TN_OK);
    CHECK_STATUS(tn_polynomial_fit_add(&made.fit, 3, x, y, NULL), TN_OK);
    return &made.fit;
}

static const tn_polynomial *polynomial(void)
{
    CHECK_STATUS(tn_polynomial_fit_read(fit(), 1, &made.polynomial), TN_OK);
    return &made.polynomial;
}

static const tn_circuit_frozen *squared_frozen(void)
{
    CHECK_STATUS(tn_circuit_freeze(ctx, squared_model(), tokens(), &made.frozen), TN_OK);
    return &made.frozen;
}

static const tn_circuit_ratio *ratio(void)
{
    CHECK_STATUS(tn_circuit_ratio_of(squared_frozen(), NULL, &made.ratio), TN_OK);
    return &made.ratio;
}

static const tn_circuit_terms *terms(void)
{
    const tn_circuit_ratio *r = ratio();
    CHECK_STATUS(tn_circuit_ratio_terms(r, NULL, r->variables, NULL, &made.terms), TN_OK);
    return &made.terms;
}

static const tn_circuit_block *ovpp(void)
{
    tn_circuit_block_desc desc = {0, 1, 1, false};
    CHECK_STATUS(tn_circuit_block_of(ctx, model(), &desc, &made.ovpp), TN_OK);
    return &made.ovpp;
}

static tn_tensor *next_token(void)
{
    tn_tensor *t = tn_tensor_1d(ctx, TN_I32, 1);
    CHECK_STATUS(tn_write(t, TN_I32, ids, 1), TN_OK);
    return t;
}

static tn_tensor *symmetric(int64_t n) { tn_tensor *t = matrix(n, n); return tn_add(ctx, t, tn_transpose(t, 0, 1)); }
static tn_tensor *symmetric_cube(void) { tn_tensor *t = cube(2, 4, 4); return tn_add(ctx, t, tn_transpose(t, 1, 2)); }

static tn_tensor *const *cores(void)
{
    static tn_tensor *three[3];
    three[0] = cube(1, 3, 2);
    three[1] = cube(2, 4, 2);
    three[2] = cube(2, 4, 1);
    return three;
}

static tn_tt *two_by_three(void) { return tn_tt_random(ctx, 2, shape46, 2, 1); }

static tn_params *with_one(void)
{
    const tn_init init = {TN_INIT_NORMAL, 0, 0, 0};
    if (tn_params_count(params) == 0) CHECK(tn_params_add(params, "one", 2, shape34, init) != NULL);
    return params;
}

static const tn_named_tensor *named(void)
{
    static tn_named_tensor one;
    one.name = "one";
    one.tensor = matrix(3, 4);
    return &one;
}

static const tn_eigenpairs *eigen(void)
{
    CHECK_STATUS(tn_cp_eigen_all(cp(), 2, &made.eigen), TN_OK);
    return &made.eigen;
}

static const tn_cp *const *operators(void)
{
    static const tn_cp *one[1];
    one[0] = cp();
    return one;
}

/* A file in memory, as a function writes it. */
static unsigned char bytes_of_file[4096];
static size_t        bytes_written;
static tn_sink   sink_here(void) { return tn_sink_memory(bytes_of_file, sizeof bytes_of_file, &bytes_written); }
static tn_source source_here(void) { return tn_source_memory(bytes_of_file, bytes_written); }

enum { LINES = 21 };
static int64_t               lines;                 /* of the map, which a test compares with LINES */
static const tn_transformer *llama(void)
{
    LAYER(tn_transformer, tn_transformer_init, desc.vocab = 5; desc.layers = 2; desc.dim = 4; desc.heads = 2;
          desc.context = 7; desc.hidden = 3; desc.mlp = TN_MLP_SWIGLU);
}

static tn_source llama_source(void)
{
    const tn_name_map *map = tn_name_map_llama(&lines);
    CHECK_INT(lines, LINES);
    CHECK_STATUS(tn_transformer_write_mapped(params, llama(), sink_here(), map, lines, 0, NULL, 0), TN_OK);
    return source_here();
}

static tn_source shard_source(void)
{
    CHECK_STATUS(tn_shard_write(ctx, sink_here(), ids, 20, 300), TN_OK);
    return source_here();
}

static const tn_safetensors *file(void)
{
    CHECK_STATUS(tn_safetensors_write(ctx, sink_here(), named(), 1, NULL, 0), TN_OK);
    return tn_safetensors_open(ctx, source_here());
}

static tn_status doubled(void *user, int64_t count, const double *x, double *y)
{
    (void)user;
    for (int64_t i = 0; i < count * 8; i++) y[i] = (double)(i % 8 + 1) * x[i];
    return TN_OK;
}

/* ---- the calls ------------------------------------------------------------------------------------------------------- */

static void complain(const char *what)
{
    char line[1024];
    snprintf(line, sizeof line, "%s, %s = %lld: %s (%s)", turn.function, turn.name, (long long)turn.value, what,
             tn_ctx_error(ctx));
    test_fail(__FILE__, __LINE__, line, NULL, NULL);
}

/* A call has ended: all is well, or there is a message; of some a failure needs none. */
static void ended(bool ok, bool silent)
{
    const bool message = tn_ctx_error(ctx)[0] != 0;
    if (turn.place == NONE && (!ok || message)) complain("a valid call fails");
    else if (ok && message && !silent) complain("success with a message");
    else if (!ok && !message && !silent) complain("failure without a message");
}

static void ended_status(tn_status s)
{
    ended(s == TN_OK, false);
    if (s != TN_OK && s != tn_ctx_status(ctx)) complain("a status other than the context's");
}

#include "build/sizes.h"

/* One call, with parameters and an arena of its own. */
static void call(const struct listed *c, int place, int64_t value)
{
    float sum[12];
    for (int i = 0; i < 64; i++) { reals[i] = 0.5 + i; ids[i] = i % 4; indices[i % 8] = i % 3; }
    memset(&made, 0, sizeof made);
    params = tn_params_create(ctx);
    turn.at = 0; turn.place = place; turn.value = value; turn.function = c->name; turn.name = "none";
    c->run();
    turn.calls++;
    tn_ctx_clear_error(ctx);
    if (tn_read(tn_add(ctx, matrix(3, 4), matrix(3, 4)), TN_F32, sum, 12) != TN_OK) complain("the context cannot be used");
    tn_circuit_paths_destroy(&made.paths);
    tn_circuit_parts_destroy(&made.parts);
    tn_circuit_terms_destroy(&made.terms);
    tn_circuit_ratio_destroy(&made.ratio);
    tn_circuit_frozen_destroy(&made.frozen);
    tn_circuit_block_destroy(&made.ovpp);
    tn_eigenpairs_destroy(&made.eigen);
    tn_params_destroy(params);
    tn_ctx_reset(ctx);
}

/* All calls of one function, in a context of its own, which frees what they return. */
static void calls_of(const struct listed *c)
{
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc   desc = ZERO;
    desc.backend = backend;
    desc.threads = 1;
    desc.seed = 5;
    desc.max_bytes = (size_t)64 << 20;
    desc.allocator = test_heap_allocator(&heap);
    if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK)) return;
    call(c, NONE, 0);
    int numbers = turn.at;
    for (int i = 0; i < EXTREMES; i++) {
        for (int place = 0; place < numbers; place++) call(c, place, extremes[i]);
        if (numbers > 1) call(c, ALL, extremes[i]);
    }
    tn_ctx_destroy(ctx);
    ctx = NULL;
    if (heap.live != 0) complain("memory is lost");
}

static void all_calls(void)
{
    const char *only = getenv("TN_SIZES_CALL");
    const int   count = (int)(sizeof calls / sizeof *calls);
    memset(&turn, 0, sizeof turn);
    for (int k = 0; k < count; k++) if (!only || strcmp(only, calls[k].name) == 0) calls_of(&calls[k]);
    fprintf(test_out(), "%d functions, %lld calls\n", count, (long long)turn.calls);
}

TEST(sizes_on_the_backend_cpu) { backend = tn_cpu_backend(); all_calls(); }
TEST(sizes_on_the_backend_reference) { backend = tn_reference_backend(); all_calls(); }

TEST_MAIN(sizes_on_the_backend_cpu, sizes_on_the_backend_reference)
