/* test_mixed.c: desc.activations = TN_BF16. The list of cases.h on contexts that store what ops make in BF16, held against the same in
   double: NMSE, the squared error over the squared size, of each output and each gradient. One rounding to BF16 costs about 1.3e-6 of
   it, at most 3.8e-6 in each element, so 3e-5 has room for what ops and layers round on their way, and not for one sum in BF16. */

#include "sealed.h"
#include "net.h"
#include "setting.h"

static const double GATE = 3e-5;

/* ---- the list ------------------------------------------------------------------------------------------------------------------ */

typedef struct configuration {
    const char       *name;
    const tn_backend *backend;
    tn_dtype          activations;
    bool              watch;            /* inputs are BF16 tensors that are watched; else F32 parameters                        */
    int               threads;          /* 0: one; more: a pool that does its tasks backwards                                   */
    bool              brief;            /* three rounds, none large: sealing pages takes its time                               */
} configuration;

typedef bool (*visit_fn)(setting *s, const result *r, int index);

enum { RESULTS = CASES * CASE_ROUNDS };

static void round_to_bf16(double *v, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) {
        float    f = (float)v[i];
        uint32_t bits;
        memcpy(&bits, &f, 4);
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
        memcpy(&f, &bits, 4);
        v[i] = (double)f;
    }
}

static uint64_t seeds[RESULTS];         /* drawn until no input is near a kink */

/* Begins a case. Its numbers are such that BF16 holds them: no context knows them better than another. */
static void begin(setting *s, tn_ctx *ctx, int index, const configuration *c)
{
    int k;
    setting_begin(s, ctx, &cases[index / CASE_ROUNDS], index % CASE_ROUNDS, seeds[index], c->watch);
    for (k = 0; k < s->inputs; k++) if (s->in[k].real) round_to_bf16(s->in[k].v, s->in[k].count);
    if (c->activations == TN_BF16) s->dtype = TN_BF16;
}

static void backwards(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    int64_t task;
    ++*(int64_t *)user;
    for (task = tasks; task-- > 0; ) fn(arg, task, (int)(task % workers));
}

static int64_t cut;                     /* how many passes the pool was given */

static tn_ctx *open_as(const configuration *c, test_heap *heap)
{
    tn_ctx *ctx = NULL;
    tn_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(heap, 0, sizeof *heap);
    desc.backend = c->backend;
    desc.backend_required = true;
    desc.dtype = c->activations == TN_F64 ? TN_F64 : TN_F32;
    desc.activations = c->activations;
    desc.allocator = test_heap_allocator(heap);
    desc.threads = c->threads > 0 ? c->threads : 1;
    desc.parallel_for = backwards;
    desc.parallel_user = &cut;
    desc.arena_bytes = 1 << 16;
    CHECK_STATUS(tn_ctx_create(&ctx, &desc, NULL), TN_OK);
    return ctx;
}

static void close_it(tn_ctx *ctx, const test_heap *heap)
{
    tn_ctx_destroy(ctx);
    CHECK_INT(heap->live, 0);
    CHECK_INT(heap->blocks, 0);
    CHECK_INT(sealed_damaged(), 0);
}

static void walk(const configuration *c, visit_fn visit)
{
    test_heap heap;
    tn_ctx   *ctx = open_as(c, &heap);
    int       index;
    for (index = 0; ctx && index < RESULTS; index++) {
        setting s;
        result  r;
        if (c->brief && index % CASE_ROUNDS % 2 + index % CASE_ROUNDS / 5 > 0) continue;
        memset(&r, 0, sizeof r);
        begin(&s, ctx, index, c);
        if (!setting_result(&s, &r) || (visit && !visit(&s, &r, index))) setting_where(c->name, &s);
        setting_end(&s);
        result_free(&r);
    }
    if (ctx) close_it(ctx, &heap);
}

/* ---- the oracle: cpu in double -------------------------------------------------------------------------------------------------- */

static result oracle[RESULTS], *keep_in;
static bool   oracle_there;

static bool keep(setting *s, const result *r, int index)
{
    result *o = &keep_in[index];
    int     i;
    (void)s;
    *o = *r;
    o->y = (double *)malloc(sizeof(double) * (size_t)(r->count + 1));
    if (r->count > 0) memcpy(o->y, r->y, sizeof(double) * (size_t)r->count);
    for (i = 0; i < r->inputs; i++) {
        if (!r->gradient[i]) continue;
        o->gradient[i] = (double *)malloc(sizeof(double) * (size_t)(r->of[i] + 1));
        memcpy(o->gradient[i], r->gradient[i], sizeof(double) * (size_t)r->of[i]);
    }
    return true;
}

static const configuration wide = {"cpu F64", NULL, TN_F64, true, 0, false};

static bool oracle_ready(void)
{
    uint64_t  state = CASE_SEED + 1;
    test_heap heap;
    tn_ctx   *ctx;
    int       index;
    if (oracle_there) return true;
    ctx = open_as(&wide, &heap);
    for (index = 0; ctx && index < RESULTS; index++) {
        bool kink = true;
        while (kink) {
            setting s;
            seeds[index] = test_random(&state);
            begin(&s, ctx, index, &wide);
            s.of->want(&s);
            kink = s.kink && s.round != CASE_LARGE;
            setting_end(&s);
        }
    }
    if (ctx) close_it(ctx, &heap);
    keep_in = oracle;
    walk(&wide, keep);
    oracle_there = test_now.failures == 0;
    return oracle_there;
}

/* ---- values and gradients --------------------------------------------------------------------------------------------------------- */

/* What 3e-5 is too little for, and why. */
static const struct { const char *name; double bound; } own[] = {
    /* each factor is rounded, all errors add up in the product: 2.7e-6 (factors + 1) */
    {"prod 8", 6e-5}, {"prod 17", 1.2e-4}, {"product 8", 6e-5},
    /* the score is squared: its error counts twice, in a layer of six results one after the other */
    {"attention squared mean", 2e-4}, {"attention squared", 6e-5}, {"attention bilinear window", 6e-5},
    /* the gradient of a norm is what is left of dy without its part along x: smaller than what was rounded */
    {"attention norms", 1.2e-4}, {"attention squared norms", 1.2e-4},
    /* the difference of two heads is smaller than each; norm and gradient divide by it */
    {"attention differential", 1.5e-4}, {"attention differential, all", 3e-4}, {"attention differential, plain", 1e-4}
};

static double gate_of(const char *name)
{
    size_t i;
    for (i = 0; i < sizeof own / sizeof *own; i++) if (strcmp(own[i].name, name) == 0) return own[i].bound;
    return GATE;
}

enum { VALUE, GRADIENT };
enum { LARGEST = 16 };                  /* and no tensor is off by more than 1/16 of max(1, its largest element) */

static double error_of[CASES][2], size_of[CASES][2];     /* squares, of all rounds of a case: a small tensor alone may well cancel */

static bool pour(int k, int what, const double *a, const double *b, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) {
        error_of[k][what] += (a[i] - b[i]) * (a[i] - b[i]);
        size_of[k][what] += b[i] * b[i];
    }
    return CHECK(test_max_error(a, b, n) <= 1.0 / LARGEST);
}

static double poured(int k, int what)
{
    return size_of[k][what] > 0 ? error_of[k][what] / size_of[k][what] : error_of[k][what];
}

static const result *against;

static bool compare(setting *s, const result *r, int index)
{
    const result *o = &against[index];
    bool ok = CHECK_INT(r->count, o->count);
    int  k;
    if (s->round == CASE_LARGE) {        /* no seed keeps all its hidden units away from a kink */
        s->of->want(s);
        if (s->kink) return true;
    }
    ok = ok && pour(index / CASE_ROUNDS, VALUE, r->y, o->y, r->count);
    for (k = 0; k < r->inputs && ok; k++) {
        if (!r->gradient[k]) continue;
        ok = CHECK_INT(r->of[k], o->of[k]) && pour(index / CASE_ROUNDS, GRADIENT, r->gradient[k], o->gradient[k], r->of[k])
          && CHECK_INT(s->in[k].base->grad->dtype, s->in[k].base->dtype);
    }
    return ok;
}

/* Gates are `times` what they are. */
static void hold_against(const configuration *c, const result *o, double times)
{
    double      worst = 0;
    const char *worst_in = "";
    int         k, what;
    char        label[160];
    memset(error_of, 0, sizeof error_of);
    memset(size_of, 0, sizeof size_of);
    against = o;
    walk(c, compare);
    for (k = 0; k < (int)CASES; k++)
        for (what = VALUE; what <= GRADIENT; what++) {
            const double e = poured(k, what), gate = times * gate_of(cases[k].name);
            if (!CHECK(e <= gate))
                printf("     %s, case \"%s\", %s: NMSE %.3g, allowed %.3g\n", c->name, cases[k].name, what == VALUE ? "values" : "gradients", e, gate);
            if (!(e / gate <= worst)) { worst = e / gate; worst_in = cases[k].name; }
        }
    snprintf(label, sizeof label, "%s: the worst NMSE over its gate (%s)", c->name, worst_in);
    WORST(label, worst, 1);
}

/* What a case makes: an activation, but numbers alone, chains and what has no real operand. */
static tn_dtype dtype_of(const test_case *t, int rank)
{
    static const char *const same[] = {"full", "uniform", "normal", "chain", "chain's norm", "cast to itself", "cast to F32", "cast to F64", "through BF16"};
    size_t i;
    if (strcmp(t->name, "argmax") == 0 || strcmp(t->name, "cast to I32") == 0) return TN_I32;
    if (strcmp(t->name, "copy") == 0 || strcmp(t->name, "cast to BF16") == 0) return TN_BF16;
    for (i = 0; i < sizeof same / sizeof *same; i++) if (strcmp(t->name, same[i]) == 0) return TN_F32;
    return rank == 0 ? TN_F32 : TN_BF16;
}

static bool compare_dtype(setting *s, const result *r, int index)
{
    (void)index;
    return CHECK_INT(r->dtype, dtype_of(s->of, r->rank));
}

static configuration configure(const char *name, const tn_backend *backend)
{
    configuration c;
    c.name = name;
    c.backend = backend;
    c.activations = TN_BF16;
    c.watch = true;
    c.threads = 0;
    c.brief = false;
    return c;
}

TEST(dtypes)
{
    configuration c = configure("cpu BF16, dtypes", NULL);
    REQUIRE(oracle_ready());
    walk(&c, compare_dtype);
}

TEST(values_and_gradients)
{
    configuration c = configure("cpu BF16", NULL);
    REQUIRE(oracle_ready());
    hold_against(&c, oracle, 1);
    c.name = "reference BF16";
    c.backend = tn_reference_backend();
    hold_against(&c, oracle, 1);
}

/* F32 parameters in, F32 gradients out: what a layer's weights and a table meet. */
TEST(parameters)
{
    configuration c = configure("cpu BF16, parameters", NULL);
    REQUIRE(oracle_ready());
    c.watch = false;
    hold_against(&c, oracle, 1);
    c.name = "reference BF16, parameters";
    c.backend = tn_reference_backend();
    hold_against(&c, oracle, 1);
}

/* ---- the same bits: threads, sealed memory; the two backends ----------------------------------------------------------------------- */

static result sample[RESULTS];

static bool same_bits(setting *s, const result *r, int index)
{
    const result *o = &sample[index];
    bool ok = CHECK_INT(r->count, o->count) && CHECK(r->count == 0 || memcmp(r->y, o->y, sizeof *r->y * (size_t)r->count) == 0);
    int  k;
    (void)s;
    for (k = 0; k < r->inputs && ok; k++)
        if (r->gradient[k] && r->of[k] > 0) ok = CHECK(memcmp(r->gradient[k], o->gradient[k], sizeof(double) * (size_t)r->of[k]) == 0);
    return ok;
}

static void sample_of(const configuration *c)
{
    int i;
    for (i = 0; i < RESULTS; i++) result_free(&sample[i]);
    keep_in = sample;
    if (c) walk(c, keep);
}

TEST(threads)
{
    configuration one = configure("cpu BF16, one thread", NULL), three = one;
    REQUIRE(oracle_ready());
    three.name = "cpu BF16, three threads";
    three.threads = 3;
    sample_of(&one);
    cut = 0;
    walk(&three, same_bits);
    CHECK(cut > 0);
}

TEST(sealed)
{
    configuration plain_one = configure("cpu BF16", NULL), one = configure("sealed cpu BF16", sealed_cpu());
    if (!SEALED) SKIP("mmap", "sealed memory");
    REQUIRE(oracle_ready());
    plain_one.brief = one.brief = true;
    sample_of(&plain_one);
    walk(&one, same_bits);
}

/* Rows missing: composed of F32 copies, or on the host. */
TEST(sealed_rows_missing)
{
    configuration cpu = configure("cpu BF16", NULL), c = configure("sealed, rows missing, BF16", sealed_sparse());
    if (!SEALED) SKIP("mmap", "sealed memory");
    REQUIRE(oracle_ready());
    cpu.brief = c.brief = true;
    sample_of(&cpu);
    hold_against(&c, sample, 1);
}

/* The two differ where a sum in F32 ends near the middle between two numbers of BF16: one element of thousands. */
TEST(the_two_backends)
{
    configuration cpu = configure("cpu BF16", NULL), reference = configure("reference BF16 against cpu BF16", tn_reference_backend());
    REQUIRE(oracle_ready());
    sample_of(&cpu);
    hold_against(&reference, sample, 0.01);
    sample_of(NULL);
}

/* ---- a backend that looks at what its rows get ---------------------------------------------------------------------------------------
   cpu with bf16 set. It notes the dtypes of all operands, takes BF16 in ADD, and answers TN_ERR_DTYPE elsewhere. */

static bool     seen[TN_KERNEL_COUNT][TN_CALL_IN + TN_CALL_OUT][TN_I32 + 1];
static uint64_t taken, refused;

static double spy_load(const tn_view *v, int64_t at)
{
    uint32_t bits;
    float    f = 0;
    if (v->dtype == TN_F32) return (double)((const float *)v->data)[at];
    bits = (uint32_t)((const uint16_t *)v->data)[at] << 16;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static void spy_store(const tn_view *v, int64_t at, double x)
{
    uint32_t bits;
    float    f = (float)x;
    round_to_bf16(&x, 1);
    if (v->dtype == TN_F32) { ((float *)v->data)[at] = f; return; }
    f = (float)x;
    memcpy(&bits, &f, sizeof bits);
    ((uint16_t *)v->data)[at] = (uint16_t)(bits >> 16);
}

static tn_status spy_add(const tn_call *c)
{
    const tn_view *y = &c->out[0];
    int64_t        i, n = shape_count(y->rank, y->shape);
    for (i = 0; i < n; i++) {
        int64_t rest = i, at[3] = {0, 0, 0};
        double  sum;
        int     k;
        for (k = y->rank - 1; k >= 0; k--) {
            const int64_t here = rest % y->shape[k];
            rest /= y->shape[k];
            at[0] += here * y->strides[k];
            at[1] += here * c->in[0].strides[k];
            if (c->n_in > 1) at[2] += here * c->in[1].strides[k];
        }
        sum = c->f[0] * spy_load(&c->in[0], at[1]);
        if (c->n_in > 1 && c->in[1].data) sum += c->f[1] * spy_load(&c->in[1], at[2]);
        spy_store(y, at[0], c->accumulate ? spy_load(y, at[0]) + sum : sum);
    }
    taken++;
    return TN_OK;
}

static tn_status spy_row(void *state, const tn_call *c)
{
    bool bf16 = false;
    int  i;
    for (i = 0; i < c->n_in + c->n_out; i++) {
        const tn_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        if (!v->data) continue;
        seen[c->kernel][i < c->n_in ? i : TN_CALL_IN + i - c->n_in][v->dtype] = true;
        bf16 = bf16 || v->dtype == TN_BF16;
    }
    if (!bf16 || c->kernel == TN_KERNEL_COPY || c->kernel == TN_KERNEL_FILL) return tn_cpu_backend()->fn[c->kernel](state, c);
    if (c->kernel == TN_KERNEL_ADD) return spy_add(c);
    refused++;
    return TN_ERR_DTYPE;
}

static const tn_backend *spy(void)
{
    static tn_backend b;
    int k;
    b = *tn_cpu_backend();
    b.name = "spy";
    b.bf16 = true;
    for (k = 0; k < TN_KERNEL_COUNT; k++) b.fn[k] = spy_row;
    return &b;
}

/* Operands, inputs then outputs: A activations, seen in BF16; a may be either; f F32; i I32. */
static const struct { tn_kernel kernel; const char *in, *out; } operands[] = {
    {TN_KERNEL_UNIFORM, "i", "f"}, {TN_KERNEL_NORMAL, "i", "f"},
    {TN_KERNEL_ADD, "AA", "A"}, {TN_KERNEL_MUL, "AA", "A"}, {TN_KERNEL_SUM, "A", "A"},
    {TN_KERNEL_ACT, "A", "A"}, {TN_KERNEL_ACT_BACKWARD, "AA", "A"}, {TN_KERNEL_GLU, "A", "A"}, {TN_KERNEL_GLU_BACKWARD, "AA", "A"},
    {TN_KERNEL_PROD, "A", "A"}, {TN_KERNEL_PROD_BACKWARD, "AA", "A"}, {TN_KERNEL_GEMM, "AAa", "A"},
    {TN_KERNEL_EMBED, "ai", "Ai"}, {TN_KERNEL_EMBED_BACKWARD, "iA", "a"},
    {TN_KERNEL_RMSNORM, "Aa", "Af"}, {TN_KERNEL_RMSNORM_BACKWARD, "AafA", "Aa"},
    {TN_KERNEL_LAYERNORM, "Aaa", "Af"}, {TN_KERNEL_LAYERNORM_BACKWARD, "AafA", "Aaa"},
    {TN_KERNEL_DROPOUT, "Ai", "A"}, {TN_KERNEL_CROSS_ENTROPY, "Ai", "ffiA"},
    {TN_KERNEL_CHAIN, "A", "ffff"}, {TN_KERNEL_CHAIN_BACKWARD, "Afff", "Af"},
    {TN_KERNEL_ROPE, "A", "A"}, {TN_KERNEL_ROPE_BACKWARD, "AA", "A"},
    {TN_KERNEL_ATTENTION, "AAA", "Aff"}, {TN_KERNEL_ATTENTION_BACKWARD, "AAAAfA", "AAAf"},
    {TN_KERNEL_ATTENTION_LINEAR, "AAA", "Afff"}, {TN_KERNEL_ATTENTION_LINEAR_BACKWARD, "AAAAfA", "AAAf"},
    {TN_KERNEL_ARGMAX, "A", "i"}, {TN_KERNEL_ACCURACY, "Ai", "f"},
    {TN_KERNEL_SUMSQ, "f", "fi"}, {TN_KERNEL_STEP_BEGIN, "", "fi"}, {TN_KERNEL_ADAMW, "f", "ffff"}, {TN_KERNEL_SGD, "f", "fff"},
    {TN_KERNEL_MUON_BEGIN, "f", "fff"}, {TN_KERNEL_MUON_END, "ff", "f"}, {TN_KERNEL_TICK, "", "i"}
};

static void check_operands(tn_kernel kernel, const char *what, int first)
{
    int i;
    for (i = 0; i < (first == 0 ? TN_CALL_IN : TN_CALL_OUT); i++) {
        const bool *got = seen[kernel][first + i];
        const char  is = i < (int)strlen(what) ? what[i] : ' ';
        const bool  f32 = is == 'f' || is == 'a' || is == 'A', bf16 = is == 'a' || is == 'A';
        bool ok = CHECK(f32 || !got[TN_F32]) && CHECK(bf16 || !got[TN_BF16]);
        ok = CHECK(is == 'i' || !got[TN_I32]) && CHECK(!got[TN_F64]) && ok;
        ok = CHECK(is != 'A' || got[TN_BF16]) && ok;
        if (!ok) printf("     %s, %s %d\n", tn_kernel_name(kernel), first == 0 ? "input" : "output", i);
    }
}

/* A few steps of each optimiser on a spied context. */
static void train_spied(void)
{
    static const tn_optim_kind kinds[] = {TN_ADAMW, TN_SGD, TN_MUON};
    configuration c = configure("spy", spy());
    size_t k;
    for (k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        test_heap     heap;
        tn_ctx       *ctx = open_as(&c, &heap);
        tn_params    *params = tn_params_create(ctx);
        tn_optim_desc d;
        tn_optim     *optim;
        net           m;
        double        loss;
        int64_t       i, step;
        memset(&d, 0, sizeof d);
        d.kind = kinds[k];
        d.momentum = 0.9;
        d.clip_norm = 0.5;
        CHECK(net_make(params, &m));
        optim = tn_optim_create(params, &d);
        for (step = 0; step < 3; step++) CHECK(net_train(ctx, &m, optim, &loss));
        for (i = 0; i < tn_params_count(params); i++) {
            const tn_tensor *p = tn_params_at(params, i)->value;
            CHECK_INT(p->dtype, TN_F32);
            CHECK_INT(p->grad->dtype, TN_F32);
        }
        CHECK_CTX(ctx);
        close_it(ctx, &heap);
    }
}

TEST(statistics_stay_F32)
{
    configuration c = configure("spy", spy());
    size_t i;
    int    k;
    bool   listed[TN_KERNEL_COUNT] = {false};
    REQUIRE(oracle_ready());
    memset(seen, 0, sizeof seen);
    taken = refused = 0;
    hold_against(&c, oracle, 1);            /* its ADD rounds as the library's copies do */
    c.watch = false;
    walk(&c, NULL);
    train_spied();
    CHECK(taken > 0);
    CHECK(refused > 0);
    for (i = 0; i < sizeof operands / sizeof *operands; i++) {
        listed[operands[i].kernel] = true;
        check_operands(operands[i].kernel, operands[i].in, 0);
        check_operands(operands[i].kernel, operands[i].out, TN_CALL_IN);
    }
    for (k = 0; k < TN_KERNEL_COUNT; k++) CHECK(listed[k] == (k != TN_KERNEL_COPY && k != TN_KERNEL_FILL));
}
TEST_MAIN(dtypes, values_and_gradients, parameters, threads, sealed, sealed_rows_missing, the_two_backends, statistics_stay_F32)
