/* test_cuda.c: the rows of tn_cuda_backend() against the reference. The build says who runs the kernels: nvcc's object on a GPU
   (make test-gpu), or the engine of tests/cuda_host on the CPU, compiled with -DTN_CUDA_HOST (make test). Without a GPU each test is
   skipped with the reason; with the engine that is a failure.

   What fails is printed with its case, round and seed. Alone it runs by
       TN_CUDA_CASE="attend window" TN_CUDA_ROUND=3 build/gcc/test_cuda cases_f32
   TN_CUDA_LARGE=1 adds shapes that the engine would take too long for. */

#include "guard.h"
#include "setting.h"
#include <float.h>

/* Rows that tensornet_cuda.cu does not have yet. Empty in the end. */
#define NOT_YET(ENUM, name) TN_KERNEL_##ENUM,
static const tn_kernel not_yet[] = { TN_KERNELS(NOT_YET) TN_KERNEL_COUNT };

/* ---- the device, or why there is none ------------------------------------------------------------------------------------ */

static tn_desc desc_with(const tn_backend *backend, tn_dtype dtype)
{
    tn_desc d;
    memset(&d, 0, sizeof d);
    d.backend = backend;
    d.backend_required = backend != NULL;
    d.dtype = dtype;
    d.threads = 1;
    d.seed = 11;
    d.arena_bytes = 1 << 16;
    return d;
}

static bool device_there(char *why)
{
    static int  known;                          /* 1: yes, 2: no */
    static char reason[256];
    tn_desc d = desc_with(tn_cuda_backend(), TN_F32);
    tn_ctx *ctx;
    if (!known) {
        known = tn_ctx_create(&ctx, &d, reason) == TN_OK ? 1 : 2;
        tn_ctx_destroy(ctx);
    }
    memcpy(why, reason, sizeof reason);
    return known == 1;
}

#ifdef TN_CUDA_HOST
#define NEED_DEVICE() do { char why_[256]; if (!CHECK(device_there(why_))) { printf("     %s\n", why_); return; } } while (0)
#else
#define NEED_DEVICE() do { char why_[256]; if (!device_there(why_)) SKIP("gpu", why_); } while (0)
#endif

static const tn_backend *device(void)
{
    guard.stage = guard.shift = false;
    return guard_of(tn_cuda_backend());
}

/* ---- how far apart two results are ------------------------------------------------------------------------------------------ */

static double nmse(const double *a, const double *b, int64_t n)
{
    double difference = 0, size = 0;
    int64_t i;
    for (i = 0; i < n; i++) { difference += (a[i] - b[i]) * (a[i] - b[i]); size += b[i] * b[i]; }
    return difference == 0 ? 0 : size > 0 ? difference / size : difference;
}

/* Where numbers cancel to less than a hundredth of a rounding of 1, the rest is noise. */
static bool is_noise(const double *a, const double *b, int64_t n, double gate)
{
    double difference = 0;
    int64_t i;
    for (i = 0; i < n; i++) difference += (a[i] - b[i]) * (a[i] - b[i]);
    return difference <= (double)n * gate * 1e-4;
}

/* ---- the list on the device, against the reference in double -------------------------------------------------------------------- */

enum { ALL_ROUNDS = (1 << CASE_ROUNDS) - 1, SMALL_ROUNDS = ALL_ROUNDS & ~(1 << CASE_LARGE) };

typedef struct way {
    const char       *name;
    tn_dtype          dtype, activations;
    tn_gemm_precision precision;
    double            gate;              /* NMSE against the reference in F64                            */
    bool              stage, shift;      /* guard.h                                                      */
    int               rounds;            /* bits                                                         */
} way;

static tn_desc desc_of_way(const way *w, const tn_backend *backend)
{
    tn_desc d = desc_with(backend, w->dtype);
    d.activations = w->activations;
    d.gemm_precision = w->precision;
    return d;
}

enum { RESULTS = CASES * CASE_ROUNDS };
static result   oracle[RESULTS];
static uint64_t oracle_seed[RESULTS];
static bool     oracle_there;

/* TN_CUDA_CASE: a case's whole name, or the beginning of several, with a * behind it. */
static bool chosen(int k, int round)
{
    const char *name = getenv("TN_CUDA_CASE"), *only = getenv("TN_CUDA_ROUND");
    size_t n = name ? strlen(name) : 0;
    if (only && *only && atoi(only) != round) return false;
    if (n == 0) return true;
    return name[n - 1] == '*' ? strncmp(cases[k].name, name, n - 1) == 0 : strcmp(cases[k].name, name) == 0;
}

static bool all_chosen(void) { return !getenv("TN_CUDA_CASE") && !getenv("TN_CUDA_ROUND"); }

/* The seed of a case depends on its name alone, so that it stays what it is when the list grows. */
static uint64_t seed_of(int k, int round)
{
    uint64_t h = CASE_SEED + (uint64_t)round;
    const char *p;
    for (p = cases[k].name; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001B3u;
    return h;
}

static bool run_one(tn_ctx *ctx, int index, result *r, setting *s)
{
    memset(r, 0, sizeof *r);
    setting_begin(s, ctx, &cases[index / CASE_ROUNDS], index % CASE_ROUNDS, oracle_seed[index], false);
    return setting_result(s, r);
}

/* Inputs that are away from every kink, and what the reference makes of them. */
static bool oracle_ready(void)
{
    tn_desc d = desc_with(tn_reference_backend(), TN_F64);
    tn_ctx *ctx;
    int index;
    if (oracle_there) return true;
    if (!CHECK_STATUS(tn_ctx_create(&ctx, &d, NULL), TN_OK)) return false;
    printf("%d cases, %d rounds each, seed %d\n", (int)CASES, CASE_ROUNDS, CASE_SEED);
    for (index = 0; index < RESULTS; index++) {
        const int k = index / CASE_ROUNDS, round = index % CASE_ROUNDS;
        uint64_t state = seed_of(k, round);
        bool kink = true;
        setting s;
        if (!chosen(k, round)) continue;
        while (kink) {
            oracle_seed[index] = test_random(&state);
            setting_begin(&s, ctx, &cases[k], round, oracle_seed[index], false);
            cases[k].want(&s);
            kink = s.kink && round != CASE_LARGE;
            setting_end(&s);
        }
        if (!run_one(ctx, index, &oracle[index], &s)) setting_where("reference F64", &s);
        setting_end(&s);
    }
    tn_ctx_destroy(ctx);
    oracle_there = test_now.failures == 0;
    return oracle_there;
}

/* cpu in the same numbers: what cancels for it as well is no fault of the device. */
static double cpu_error(const way *w, int index, int gradient)
{
    tn_desc d = desc_of_way(w, NULL);
    const result *o = &oracle[index];
    tn_ctx *ctx;
    setting s;
    result r;
    double e = 0;
    if (tn_ctx_create(&ctx, &d, NULL) != TN_OK) return 0;
    if (run_one(ctx, index, &r, &s)) e = gradient < 0 ? nmse(r.y, o->y, r.count) : nmse(r.gradient[gradient], o->gradient[gradient], r.of[gradient]);
    setting_end(&s);
    result_free(&r);
    tn_ctx_destroy(ctx);
    return e;
}

typedef struct tally { double worst; char worst_in[96]; int over, compared; } tally;

/* gradient -1: the value */
static bool agrees(const way *w, int index, int gradient, const double *a, const double *b, int64_t n, tally *t)
{
    const double e = nmse(a, b, n);
    double cpu;
    t->compared++;
    if (e <= w->gate) {
        if (e > t->worst) {
            t->worst = e;
            snprintf(t->worst_in, sizeof t->worst_in, "%s, round %d", cases[index / CASE_ROUNDS].name, index % CASE_ROUNDS);
        }
        return true;
    }
    if (is_noise(a, b, n, w->gate)) return true;
    cpu = cpu_error(w, index, gradient);
    if (e <= 4 * cpu) { t->over++; return true; }
    if (gradient >= 0) printf("     the gradient of input %d:", gradient);
    else printf("     the value:");
    printf(" NMSE %.3g, allowed %.3g; cpu has %.3g\n", e, w->gate, cpu);
    return false;
}

static bool compare(const way *w, int index, const result *r, tally *t)
{
    const result *o = &oracle[index];
    int k;
    if (!CHECK_INT(r->rank, o->rank) || !CHECK_INT(r->count, o->count)) return false;
    if (!CHECK(agrees(w, index, -1, r->y, o->y, r->count, t))) return false;
    for (k = 0; k < r->inputs; k++) {
        if (!o->gradient[k]) continue;
        if (!CHECK(r->gradient[k] != NULL) || !CHECK_INT(r->of[k], o->of[k])) return false;
        if (!CHECK(agrees(w, index, k, r->gradient[k], o->gradient[k], r->of[k], t))) return false;
    }
    return true;
}

static void rerun(const setting *s)
{
    setting_where(test_now.name, s);
    printf("     alone: TN_CUDA_CASE=\"%s\" TN_CUDA_ROUND=%d test_cuda %s\n", s->of->name, s->round, test_now.name);
}

static bool walked;                          /* the list went over the device: coverage can be judged */

static void walk(const way *w)
{
    const tn_backend *backend = device();
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc d = desc_of_way(w, backend);
    tally t;
    tn_ctx *ctx;
    char why[256];
    int index, shown = 0;
    memset(&t, 0, sizeof t);
    d.allocator = test_heap_allocator(&heap);
    if (!CHECK_STATUS(tn_ctx_create(&ctx, &d, why), TN_OK)) { printf("     %s: %s\n", w->name, why); return; }
    guard.stage = w->stage;
    guard.shift = w->shift;
    for (index = 0; index < RESULTS; index++) {
        setting s;
        result r;
        bool ok;
        if (!chosen(index / CASE_ROUNDS, index % CASE_ROUNDS) || !(w->rounds >> index % CASE_ROUNDS & 1)) continue;
        ok = run_one(ctx, index, &r, &s) && compare(w, index, &r, &t);
        if (!CHECK(guard_check())) ok = false;
        if (!ok && shown++ < 12) rerun(&s);
        tn_ctx_clear_error(ctx);
        setting_end(&s);
        result_free(&r);
    }
    tn_ctx_destroy(ctx);
    CHECK(guard_check());
    CHECK_INT(heap.live, 0);
    CHECK_INT(heap.blocks, 0);
    guard.stage = guard.shift = false;
    printf("%s: %d results, worst NMSE %.3g of %.3g in \"%s\"; %d beyond it where the cpu is, too\n", w->name, t.compared, t.worst, w->gate,
           t.worst_in, t.over);
    if (all_chosen()) walked = true;
}

static way way_of(const char *name, tn_dtype dtype, double gate)
{
    way w;
    memset(&w, 0, sizeof w);
    w.name = name;
    w.dtype = dtype;
    w.gate = gate;
    w.rounds = ALL_ROUNDS;
    return w;
}

TEST(cases_f64)
{
    way w = way_of("F64", TN_F64, 1e-24);
    NEED_DEVICE();
    REQUIRE(oracle_ready());
    w.stage = true;
    walk(&w);
}

TEST(cases_f32)
{
    way w = way_of("F32", TN_F32, 1e-10);
    NEED_DEVICE();
    REQUIRE(oracle_ready());
    walk(&w);
}

/* Each operand in memory of its own, and off its alignment. */
TEST(cases_f32_beside)
{
    way w = way_of("F32, beside", TN_F32, 1e-10);
    NEED_DEVICE();
    REQUIRE(oracle_ready());
    w.stage = w.shift = true;
    walk(&w);
}

TEST(cases_bf16)
{
    way w = way_of("BF16 activations", TN_F32, 3e-5);
    NEED_DEVICE();
    REQUIRE(oracle_ready());
    w.activations = TN_BF16;
    w.stage = true;
    walk(&w);
}

/* What is multiplied has 10 bits behind the point, or 7, and a step has several products. */
TEST(cases_tf32)
{
    way w = way_of("TF32 products", TN_F32, 2e-6);
    NEED_DEVICE();
    REQUIRE(oracle_ready());
    w.precision = TN_GEMM_TF32;
    w.rounds = 1 | 1 << CASE_LARGE;
    walk(&w);
}

TEST(cases_gemm_bf16)
{
    way w = way_of("BF16 products", TN_F32, 1e-4);
    NEED_DEVICE();
    REQUIRE(oracle_ready());
    w.precision = TN_GEMM_BF16;
    w.rounds = 1 | 1 << CASE_LARGE;
    walk(&w);
}

/* ---- every row of the table, on the device itself ---------------------------------------------------------------------------------- */

TEST(coverage)
{
    int k, i, missing = 0;
    NEED_DEVICE();
    if (!walked) SKIP("all tests of this program", "a table of some of them would say nothing");
    device();
    printf("%-28s %10s %10s %10s %10s %10s\n", "on the device itself", "F32", "F64", "BF16", "I32", "refused");
    for (k = 0; k < TN_KERNEL_COUNT; k++) {
        const uint64_t *ran = guard.ran[k];
        bool there = tn_cuda_backend()->fn[k] != NULL, expected = true;
        for (i = 0; not_yet[i] != TN_KERNEL_COUNT; i++) if (not_yet[i] == (tn_kernel)k) expected = false;
        if (!there) { missing++; printf("%-28s missing%s\n", tn_kernel_name((tn_kernel)k), expected ? "" : ", as it may for now"); CHECK(!expected); continue; }
        printf("%-28s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n", tn_kernel_name((tn_kernel)k), ran[TN_F32], ran[TN_F64],
               ran[TN_BF16], ran[TN_I32], guard.refused[k]);
        if (!CHECK(ran[TN_F32] + ran[TN_F64] + ran[TN_BF16] + ran[TN_I32] > 0)) printf("     %s was never called\n", tn_kernel_name((tn_kernel)k));
    }
    printf("%d rows of %d are missing\n", missing, (int)TN_KERNEL_COUNT);
}

TEST_MAIN(cases_f64, cases_f32, cases_f32_beside, cases_bf16, cases_tf32, cases_gemm_bf16, coverage)
