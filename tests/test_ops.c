/* test_ops.c: walks the list of cases.h. Each configuration runs the whole list on one context of its own, and is held against the
   first one, cpu in double, whose values are held against plain loops and whose gradients against central differences. */

#include "sealed.h"
#include "setting.h"
#include "pool.h"

/* ---- the list on one configuration ------------------------------------------------------------------------------ */

typedef struct configuration {
    const char       *name;
    const tn_backend *backend;
    tn_dtype          dtype;
    tn_simd           simd;
    bool              watch;
    int               threads;              /* 0: one; more: a pool that does its tasks backwards;
                                               below 0: so many of the library's own                  */
} configuration;

typedef bool (*visit_fn)(setting *s, const result *r, int index);

typedef struct run_report { uint64_t calls[TN_KERNEL_COUNT]; uint64_t leaked; } run_report;

static int64_t cut;                      /* how many passes the pool was given */

static void walk(const configuration *c, const uint64_t *seeds, visit_fn visit, run_report *report)
{
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc desc = ZERO;
    tn_ctx *ctx;
    char why[256];
    desc.backend = c->backend;
    desc.backend_required = true;
    desc.dtype = c->dtype;
    desc.simd = c->simd;
    desc.allocator = test_heap_allocator(&heap);
    desc.threads = c->threads > 0 ? c->threads : c->threads < 0 ? -c->threads : 1;
    if (c->threads >= 0) {
        desc.parallel_for = pool_backwards;
        desc.parallel_user = &cut;
    }
    desc.arena_bytes = 1 << 16;          /* what is sealed again and again is better small */
    if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, why), TN_OK)) { printf("     %s: %s\n", c->name, why); return; }
    for (int k = 0, index = 0; k < CASES; k++)
        for (int round = 0; round < CASE_ROUNDS; round++, index++) {
            setting s;
            result r = ZERO;
            setting_begin(&s, ctx, &cases[k], round, seeds[index], c->watch);
            bool ok = setting_result(&s, &r);
            if (!ok || (visit && !visit(&s, &r, index))) setting_where(c->name, &s);
            setting_end(&s);
            result_free(&r);
        }
    for (int k = 0; report && k < TN_KERNEL_COUNT; k++) report->calls[k] = tn_ctx_kernel_calls(ctx, (tn_kernel)k);
    tn_ctx_destroy(ctx);
    CHECK_INT(heap.live, 0);
    CHECK_INT(heap.blocks, 0);
    CHECK_INT(sealed_damaged(), 0);
}

/* ---- the oracle: cpu in double. Its seeds are drawn until no input is near a kink. --------------------------------- */

enum { RESULTS = CASES * CASE_ROUNDS };
static result   oracle[RESULTS];
static uint64_t oracle_seed[RESULTS];
static bool     oracle_there;
static run_report oracle_report;
static const configuration oracle_configuration = {"cpu F64", NULL, TN_F64, TN_SIMD_AUTO, false, 0};

static void draw_seeds(void)
{
    uint64_t state = CASE_SEED;
    tn_desc desc = ZERO;
    tn_ctx *ctx;
    desc.dtype = TN_F64;
    if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK)) return;
    for (int k = 0, index = 0; k < CASES; k++)
        for (int round = 0; round < CASE_ROUNDS; round++, index++) {
            bool kink = true;
            while (kink) {
                setting s;
                oracle_seed[index] = test_random(&state);
                setting_begin(&s, ctx, &cases[k], round, oracle_seed[index], false);
                cases[k].want(&s);
                kink = s.kink && round != CASE_LARGE;
                setting_end(&s);
            }
        }
    tn_ctx_destroy(ctx);
}

static result *keep_in;

static bool keep(setting *s, const result *r, int index)
{
    (void)s;
    result_copy(&keep_in[index], r);
    return true;
}

static void free_the_oracle(void)
{
    for (int i = 0; i < RESULTS; i++) result_free(&oracle[i]);
}

static bool oracle_ready(void)
{
    if (oracle_there) return true;
    CHECK(atexit(free_the_oracle) == 0);
    printf("%d cases, %d rounds each, seed %d\n", (int)CASES, CASE_ROUNDS, CASE_SEED);
    draw_seeds();
    keep_in = oracle;
    walk(&oracle_configuration, oracle_seed, keep, &oracle_report);
    oracle_there = test_now.failures == 0;
    return oracle_there;
}

/* ---- values and gradients --------------------------------------------------------------------------------------------- */

static double worst_value, worst_identity, worst_gradient;
static const char *worst_value_in = "", *worst_gradient_in = "";

static bool compare_value(setting *s, const result *r, int index)
{
    (void)index;
    s->of->want(s);
    if (!CHECK_INT(r->rank, s->want_rank)) return false;
    if (!CHECK(r->rank == 0 || memcmp(r->shape, s->want_shape, sizeof(int64_t) * (size_t)r->rank) == 0)) return false;
    double e = test_max_error(r->y, s->want, r->count);
    if (test_raise(&worst_value, e)) worst_value_in = s->of->name;
    if (s->of->run == run_mlp || s->of->run == run_linear)
        test_raise(&worst_identity, test_frobenius(r->y, s->want, r->count));
    return CHECK(e <= 1e-12);
}

/* dloss/dx by differences over h and 2h that cancel h^2: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h */
static double difference(setting *s, int k, int64_t i)
{
    const double h = 1e-3;
    double *x = &s->in[k].v[i], was = *x, sum = 0;
    for (int j = -2; j <= 2; j++) {
        static const double factor[5] = {1, -8, 0, 8, -1};
        if (j == 0) continue;
        *x = was + j * h;
        if (s->in[k].param) setting_write(s, k);
        sum += factor[j + 2] * setting_loss(s);
    }
    *x = was;
    if (s->in[k].param) setting_write(s, k);
    return sum / (12 * h);
}

enum { DIFFERENCES = 12 };               /* elements of each input that are tried */

static bool compare_gradient(setting *s, const result *r, int index)
{
    bool ok = true;
    (void)index;
    if (test_leave_out(!s->of->smooth, "gradients by differences: of cases that are not smooth")) return true;
    if (s->round == CASE_LARGE) {        /* no seed keeps all its hidden units away from a kink */
        s->of->want(s);
        if (test_leave_out(s->kink, "gradients by differences: of large cases, at a kink")) return true;
    }
    for (int k = 0; k < s->inputs; k++) {
        int64_t n = r->of[k], step = n / DIFFERENCES + 1;
        int64_t tried = 0;
        double largest = 1, e = 0;
        if (!r->gradient[k]) continue;
        for (int64_t i = 0; i < n; i++) if (fabs(r->gradient[k][i]) > largest) largest = fabs(r->gradient[k][i]);
        for (int64_t i = draw(s, 0, step - 1); i < n; i += step) {
            test_raise(&e, fabs(r->gradient[k][i] - difference(s, k, i)) / largest);
            tried++;
        }
        test_left_out("gradients by differences: elements beyond a sample of each input", n - tried, n);
        if (test_raise(&worst_gradient, e)) worst_gradient_in = s->of->name;
        if (!CHECK(e <= 1e-7)) { printf("     gradient of input %d is off by %.3g\n", k, e); ok = false; }
    }
    return ok;
}

TEST(values)
{
    REQUIRE(oracle_ready());
    worst_value = worst_identity = 0;
    walk(&oracle_configuration, oracle_seed, compare_value, NULL);
    printf("the worst value is in \"%s\"\n", worst_value_in);
    WORST("values against plain loops, F64, max|d| / max(1, max|y|)", worst_value, 1e-12);
    WORST("P2 linear layers and mlps against their tensors, F64, Frobenius", worst_identity, 2e-14);
}

TEST(gradients)
{
    REQUIRE(oracle_ready());
    worst_gradient = 0;
    walk(&oracle_configuration, oracle_seed, compare_gradient, NULL);
    printf("the worst gradient is in \"%s\"\n", worst_gradient_in);
    WORST("P3 gradients against central differences, F64", worst_gradient, 1e-7);
}

/* Every kernel was run by the list, on this one context. The optimisers' are not ops: test_optim and test_muon run them. */
TEST(coverage)
{
    static const tn_kernel elsewhere[] = {TN_KERNEL_SUMSQ, TN_KERNEL_STEP_BEGIN, TN_KERNEL_ADAMW, TN_KERNEL_SGD,
                                          TN_KERNEL_MUON_BEGIN, TN_KERNEL_MUON_END};
    REQUIRE(oracle_ready());
    for (int k = 0; k < TN_KERNEL_COUNT; k++) {
        bool expected = true;
        for (size_t e = 0; e < sizeof elsewhere / sizeof *elsewhere; e++) if (elsewhere[e] == (tn_kernel)k) expected = false;
        if (!CHECK((oracle_report.calls[k] > 0) == expected)) printf("     kernel %s: %" PRIu64 " calls\n", tn_kernel_name((tn_kernel)k), oracle_report.calls[k]);
    }
}

/* ---- one configuration against another ---------------------------------------------------------------------------------------- */

typedef enum closeness { BITS, NUMBERS, TOLERANCE } closeness;      /* of zeros, numbers leave the sign open; tolerance: in float the case's own */

static const result *against;
static closeness close_as;
static bool   single;
static double worst_other;
static const char *worst_other_in = "";

static bool agrees(const double *a, const double *b, int64_t n, double tolerance, const char *name)
{
    if (close_as == BITS) return CHECK(n == 0 || memcmp(a, b, sizeof *a * (size_t)n) == 0);
    double e = test_max_error(a, b, n);
    if (close_as == NUMBERS) return CHECK(e <= 0);
    if (test_raise(&worst_other, e)) worst_other_in = name;
    if (CHECK(e <= tolerance)) return true;
    printf("     off by %.3g, allowed %.3g\n", e, tolerance);
    return false;
}

static bool compare_other(setting *s, const result *r, int index)
{
    const result *o = &against[index];
    double tolerance = single ? s->of->f32 : 1e-12;
    bool ok = CHECK_INT(r->count, o->count) && agrees(r->y, o->y, r->count, tolerance, s->of->name);
    for (int k = 0; k < r->inputs && ok; k++) {
        if (!CHECK_INT(r->of[k], o->of[k])) return false;
        if (!r->gradient[k] || agrees(r->gradient[k], o->gradient[k], r->of[k], 4 * tolerance, s->of->name)) continue;
        printf("     in the gradient of input %d\n", k);
        ok = false;
    }
    return ok;
}

static void hold_against(const configuration *c, const result *o, closeness how)
{
    char what[160];
    against = o;
    close_as = how;
    single = c->dtype == TN_F32;
    worst_other = 0;
    worst_other_in = "none";
    walk(c, oracle_seed, compare_other, NULL);
    if (how != TOLERANCE) return;
    snprintf(what, sizeof what, "%s against cpu F64 (worst: %s)", c->name, worst_other_in);
    WORST(what, worst_other, single ? 1.2e-5 : 2e-13);
}

static configuration configure(const char *name, const tn_backend *backend, tn_dtype dtype, tn_simd simd)
{
    configuration c;
    c.name = name;
    c.backend = backend;
    c.dtype = dtype;
    c.simd = simd;
    c.watch = false;
    c.threads = 0;
    return c;
}

/* Inputs that are watched instead of parameters: the same numbers. */
TEST(watched)
{
    configuration c = configure("cpu F64, watched", NULL, TN_F64, TN_SIMD_AUTO);
    REQUIRE(oracle_ready());
    c.watch = true;
    hold_against(&c, oracle, NUMBERS);
}

TEST(reference)
{
    configuration wide = configure("reference F64", tn_reference_backend(), TN_F64, TN_SIMD_AUTO);
    configuration slim = configure("reference F32", tn_reference_backend(), TN_F32, TN_SIMD_AUTO);
    REQUIRE(oracle_ready());
    hold_against(&wide, oracle, TOLERANCE);
    hold_against(&slim, oracle, TOLERANCE);
}

TEST(simd_levels)
{
    static const char *const wide[] = {"", "cpu F64 plain", "cpu F64 avx2", "cpu F64 avx512", "cpu F64 neon"};
    static const char *const slim[] = {"", "cpu F32 plain", "cpu F32 avx2", "cpu F32 avx512", "cpu F32 neon"};
    REQUIRE(oracle_ready());
    for (int level = TN_SIMD_PLAIN; level <= TN_SIMD_NEON; level++) {
        configuration c = configure(wide[level], NULL, TN_F64, (tn_simd)level);
        tn_desc desc = ZERO;
        tn_ctx *ctx;
        desc.simd = (tn_simd)level;
        REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
        bool here = strstr(wide[level], tn_ctx_simd_name(ctx)) != NULL;
        tn_ctx_destroy(ctx);
        if (test_leave_out(!here, "SIMD levels that this processor lacks")) continue;
        hold_against(&c, oracle, TOLERANCE);
        c.name = slim[level];
        c.dtype = TN_F32;
        hold_against(&c, oracle, TOLERANCE);
    }
}

/* ---- a backend or pool that is to give the same bits as another ----------------------------------------------------------------- */

static result sample[RESULTS];

/* The list on `inner`, then on `other`, which differs only in who runs the kernels. */
static void same_bits(const configuration *inner, const configuration *other)
{
    keep_in = sample;
    walk(inner, oracle_seed, keep, NULL);
    hold_against(other, sample, BITS);
    for (int i = 0; i < RESULTS; i++) result_free(&sample[i]);
}

TEST(threads)
{
    REQUIRE(oracle_ready());
    for (tn_dtype dtype = TN_F32; dtype <= TN_F64; dtype = (tn_dtype)(dtype + 1)) {
        configuration one = configure("cpu, one thread", NULL, dtype, TN_SIMD_AUTO), three = one, own = one;
        three.name = "cpu, three threads";
        three.threads = 3;
        cut = 0;
        same_bits(&one, &three);
        CHECK(cut > 0);
        own.name = "cpu, the library's own threads";
        own.threads = dtype == TN_F32 ? -2 : -5;
        same_bits(&one, &own);
    }
}

static void sealed_as(const char *name, const tn_backend *sealed, const tn_backend *inner, tn_dtype dtype)
{
    configuration plain_one = configure(name, inner, dtype, TN_SIMD_AUTO), one = plain_one;
    one.backend = sealed;
    same_bits(&plain_one, &one);
}

TEST(sealed)
{
    if (!SEALED) SKIP("mmap", "sealed memory");
    REQUIRE(oracle_ready());
    sealed_as("sealed cpu F64", sealed_cpu(), tn_cpu_backend(), TN_F64);
    sealed_as("sealed cpu F32", sealed_cpu(), tn_cpu_backend(), TN_F32);
    sealed_as("sealed reference F64", sealed_reference(), tn_reference_backend(), TN_F64);
}

/* Rows missing: composed, or on the host. */
TEST(sealed_rows_missing)
{
    configuration c = configure("sealed, rows missing, F64", sealed_sparse(), TN_F64, TN_SIMD_AUTO);
    if (!SEALED) SKIP("mmap", "sealed memory");
    REQUIRE(oracle_ready());
    hold_against(&c, oracle, TOLERANCE);
    c.name = "sealed, rows missing, F32";
    c.dtype = TN_F32;
    hold_against(&c, oracle, TOLERANCE);
}

#if SEALED
#include <sys/wait.h>

/* The seal is tight: a process that follows tn_tensor.data dies of it. */
static bool dies(const tn_backend *backend, bool write)
{
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        tn_desc desc = ZERO;
        tn_ctx *ctx;
        FILE *quiet = freopen("/dev/null", "w", stderr);
        desc.backend = backend;
        if (quiet && tn_ctx_create(&desc, &ctx, NULL) == TN_OK) {
            int64_t n = 3;
            tn_tensor *t = tn_full(ctx, 1, &n, 1);
            if (write) ((volatile float *)t->data)[0] = 2;
            else if (((volatile float *)t->data)[0] != 1) _exit(0);
        }
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(seal_is_tight)
{
    CHECK(!dies(tn_cpu_backend(), false));
    CHECK(!dies(tn_cpu_backend(), true));
    CHECK(dies(sealed_cpu(), false));
    CHECK(dies(sealed_reference(), true));
}
#else
TEST(seal_is_tight) { SKIP("mmap", "sealed memory"); }
#endif

/* ---- the constant one as a bias: the same layer with the same numbers ------------------------------------------------------------ */

static void random_write(tn_tensor *t, uint64_t *rng)
{
    int64_t n = tn_tensor_count(t);
    double *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(rng);
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
}

/* [w | b] row by row. w is `rows` rows */
static void join(tn_tensor *to, const tn_tensor *w, const tn_tensor *b, bool gradients)
{
    int64_t columns = w->shape[w->rank - 1], rows = tn_tensor_count(w) / columns;
    double *vw = doubles(rows * columns), *vb = doubles(rows);
    double *all = doubles(rows * (columns + 1));
    CHECK_STATUS(tn_read(gradients ? w->grad : w, TN_F64, vw, rows * columns), TN_OK);
    CHECK_STATUS(tn_read(gradients ? b->grad : b, TN_F64, vb, rows), TN_OK);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(all + r * (columns + 1), vw + r * columns, sizeof *all * (size_t)columns);
        all[r * (columns + 1) + columns] = vb[r];
    }
    if (!gradients) CHECK_STATUS(tn_write(to, TN_F64, all, rows * (columns + 1)), TN_OK);
    else {
        double *got = doubles(rows * (columns + 1));
        CHECK_STATUS(tn_read(to->grad, TN_F64, got, rows * (columns + 1)), TN_OK);
        CHECK(test_max_error(got, all, rows * (columns + 1)) <= 1e-12);
    }
}

TEST(augmented_is_biased)
{
    uint64_t rng = 5;
    tn_desc desc = ZERO;
    tn_ctx *ctx;
    tn_mlp_desc d = ZERO;
    tn_mlp biased, augmented;
    double vy[6 * 4], vz[6 * 5];
    desc.dtype = TN_F64;
    REQUIRE(tn_ctx_create(&desc, &ctx, NULL) == TN_OK);
    tn_params *params = tn_params_create(ctx);
    d.in = d.out = 4;
    d.hidden = 7;
    d.residual = d.bias = d.out_bias = true;
    CHECK_STATUS(tn_mlp_init(params, "biased", &d, &biased), TN_OK);
    d.bias = d.out_bias = false;
    d.augmented = true;
    CHECK_STATUS(tn_mlp_init(params, "augmented", &d, &augmented), TN_OK);
    random_write(biased.w, &rng);
    random_write(biased.b, &rng);
    random_write(biased.p, &rng);
    random_write(biased.pb, &rng);
    join(augmented.w, biased.w, biased.b, false);
    join(augmented.p, biased.p, biased.pb, false);
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 6, 4);
    random_write(x, &rng);
    tn_record(ctx);
    tn_tensor *y = tn_mlp_forward(ctx, &biased, tn_mlp_forward(ctx, &biased, x));  /* a stack of two: the one is carried */
    tn_tensor *z = tn_mlp_forward(ctx, &augmented, tn_mlp_forward(ctx, &augmented, tn_append_one(ctx, x)));
    CHECK_STATUS(tn_read(y, TN_F64, vy, 24), TN_OK);
    CHECK_STATUS(tn_read(z, TN_F64, vz, 30), TN_OK);
    for (int r = 0; r < 6; r++) {
        for (int c = 0; c < 4; c++) CHECK_NEAR(vz[r * 5 + c], vy[r * 4 + c], 1e-12 * fmax(1, fabs(vy[r * 4 + c])));
        CHECK(vz[r * 5 + 4] == 1);
    }
    tn_tensor *one = tn_slice(z, 1, 0, 4);
    CHECK_STATUS(tn_backward(ctx, tn_add(ctx, tn_sum(ctx, tn_mul(ctx, y, y)), tn_sum(ctx, tn_mul(ctx, one, one)))), TN_OK);
    join(augmented.w, biased.w, biased.b, true);
    join(augmented.p, biased.p, biased.pb, true);
    CLOSE_CTX(ctx);
}

/* Gradients that an addition passes on without a copy: each tensor has its own sum, whatever is added to the others. All
   numbers are small integers, so every result is exact. h = 2 x, and dh is the gradient of an intermediate. */
TEST(gradients_passed_on)
{
    for (int way = 0; way < 9; way++) {
        double     vx[6] = {1, -2, 3, 4, -5, 6}, vc[6] = {2, 3, -1, 5, 7, -4}, got[6], held[6];
        tn_desc    desc = ZERO;
        tn_ctx    *ctx = NULL;
        tn_tensor *s, *b = NULL, *kept = NULL;
        desc.dtype = TN_F64;
        REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
        tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 2, 3);
        tn_tensor *c = tn_tensor_2d(ctx, TN_REAL, 2, 3);
        tn_write(x, TN_F64, vx, 6);
        tn_write(c, TN_F64, vc, 6);
        tn_watch(x);
        tn_record(ctx);
        tn_tensor *h = tn_scale(ctx, x, 2);
        if (way == 5) tn_watch(kept = h);
        switch (way) {
        case 0: s = tn_add(ctx, h, h); break;
        case 1: s = tn_add(ctx, h, tn_mul(ctx, h, h)); break;
        case 2: s = tn_add(ctx, tn_mul(ctx, h, h), h); break;
        case 3:                                                             /* two blocks with a residual stream */
            b = tn_add(ctx, h, tn_mul(ctx, h, h));
            s = tn_add(ctx, b, tn_scale(ctx, b, 3));
            break;
        case 4: s = tn_reshape_2d(tn_add(ctx, tn_reshape_2d(h, 3, 2), tn_reshape_2d(tn_mul(ctx, h, h), 3, 2)), 2, 3); break;
        case 5:
            s = tn_add(ctx, h, tn_mul(ctx, h, h));
            break;
        case 6:                                                             /* the sum itself is watched */
            s = tn_add(ctx, h, tn_mul(ctx, h, h));
            tn_watch(kept = s);
            break;
        case 7: s = tn_sub(ctx, tn_mul(ctx, h, h), h); break;
        default:                                                            /* a row, which is not the whole of its base */
            b = tn_add(ctx, tn_slice(h, 0, 0, 1), tn_slice(h, 0, 1, 2));
            s = tn_add(ctx, h, b);
        }
        tn_tensor *loss = tn_sum(ctx, tn_mul(ctx, s, c));
        if (way == 3) loss = tn_add(ctx, loss, tn_sum(ctx, tn_mul(ctx, b, c)));
        CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
        tn_read(x->grad, TN_F64, got, 6);
        if (kept) tn_read(kept->grad, TN_F64, held, 6);
        for (int i = 0; i < 6; i++) {
            const double H = 2 * vx[i], C = vc[i], both = vc[i % 3] + vc[i % 3 + 3];
            double       want = way == 0 ? 2 * C : way == 3 ? 5 * (C + 2 * H * C) : way == 7 ? 2 * H * C - C : way == 8 ? C + both
                                : C + 2 * H * C;
            CHECK(got[i] == 2 * want);
            if (kept) CHECK(held[i] == (kept == h ? want : C));
        }
        CLOSE_CTX(ctx);
    }
}

/* More tensors get one gradient than its holders can be counted: the rest get copies. dx = 2 * 70000 */
TEST(more_holders_than_are_counted)
{
    enum { MANY = 70000 };
    const double one = 1;
    double       got = 0;
    tn_desc      desc = ZERO;
    tn_ctx      *ctx = NULL;
    tn_tensor  **part = (tn_tensor **)malloc(MANY * sizeof *part);
    desc.dtype = TN_F64;
    REQUIRE(part && CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
    tn_tensor *x = tn_tensor_1d(ctx, TN_REAL, 1);
    tn_write(x, TN_F64, &one, 1);
    tn_watch(x);
    tn_record(ctx);
    for (int i = 0; i < MANY; i++) part[i] = tn_scale(ctx, x, 2);
    tn_tensor *s = part[0];
    for (int i = 1; i < MANY; i++) s = tn_add(ctx, s, part[i]);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, s)), TN_OK);
    tn_read(x->grad, TN_F64, &got, 1);
    CHECK(got == 2.0 * (double)MANY);
    free(part);
    tn_ctx_destroy(ctx);
}

/* What can be composed of the rows that are there does not run on the host, and nothing is said. */
static int said_host;
static void count_host(void *user, tn_log_level level, const char *message)
{
    (void)user;
    (void)level;
    said_host += strstr(message, "runs on the host") != NULL;
}

TEST(composed_rows_stay_on_the_device)
{
    static tn_backend b;
    tn_desc           desc = ZERO;
    tn_ctx           *ctx = NULL;
    const int64_t     shape[2] = {3, 8};
    if (!SEALED) SKIP("mmap", "sealed memory");
    b = *sealed_cpu();
    b.fn[TN_KERNEL_GLU] = b.fn[TN_KERNEL_GLU_BACKWARD] = NULL;
    desc.backend = &b;
    desc.log = count_host;
    said_host = 0;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
    tn_tensor *x = tn_normal(ctx, 2, shape, 0, 1);
    tn_watch(x);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_glu(ctx, x, TN_ACT_SWISH))), TN_OK);
    CHECK(x->grad != NULL);
    CHECK_INT(said_host, 0);
    CLOSE_CTX(ctx);
}

/* Rows of a table: the last one is there, the one after it and the one before the first are zeros. */
TEST(ids_at_the_ends_of_a_table)
{
    static const int32_t id[4] = {0, 3, 4, -1};
    tn_desc       desc = ZERO;
    tn_ctx       *ctx = NULL;
    const int64_t table[2] = {4, 16}, four = 4;
    double        v[4 * 16];
    REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
    tn_full(ctx, 2, table, 7);                                   /* what lies in front of the table, and behind it */
    tn_tensor *t = tn_full(ctx, 2, table, 1);
    tn_full(ctx, 2, table, 7);
    tn_tensor *ids = tn_tensor_nd(ctx, TN_I32, 1, &four);
    tn_write(ids, TN_I32, id, 4);
    tn_tensor *y = tn_embed(ctx, t, ids);
    CHECK_STATUS(tn_ctx_sync(ctx), TN_ERR_DATA);                  /* the context tells */
    CHECK_ERROR(ctx, TN_ERR_DATA, "embed: element");
    CHECK_STATUS(tn_read(y, TN_F64, v, 64), TN_OK);
    for (int k = 0; k < 64; k++) CHECK(v[k] == (k < 32 ? 1 : 0));
    tn_ctx_destroy(ctx);
}

TEST_MAIN(values, gradients, coverage, watched, reference, simd_levels, threads, sealed, sealed_rows_missing, seal_is_tight,
          gradients_passed_on, more_holders_than_are_counted, augmented_is_biased, composed_rows_stay_on_the_device, ids_at_the_ends_of_a_table)
