/* test_cuda.c: the kernels of tn_cuda_backend() against the reference. They run on a GPU if nvcc's object is linked (make test-gpu), or
   on the CPU by the engine of tests/cuda_host if it is compiled with -DTN_CUDA_HOST (make test). Without a GPU each test is skipped
   with the reason; with the engine that is a failure.

   A failure is printed with its case, round and seed. To run that case alone:
       TN_CUDA_CASE="attend window" TN_CUDA_ROUND=3 build/gcc/test_cuda cases_f32
   TN_CUDA_LARGE=1 adds shapes for which the engine is too slow. TN_TEST_SMALL, as everywhere but in make check: fewer
   rounds of each case, fewer steps. TN_TEST_SMALL=least: fewer still, for ASan and the checker, which take ten times as long. */

#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE                          /* setenv */
#endif
#include "guard.h"
#include "setting.h"
#include <float.h>
#ifdef TN_CUDA_HOST
#include "cuda_host/control.h"
#endif

/* ---- the device, or why there is none ------------------------------------------------------------------------------------ */

static tn_desc desc_with(const tn_backend *backend, tn_dtype dtype)
{
    tn_desc d = ZERO;
    d.backend = backend;
    d.backend_required = backend != NULL;
    d.dtype = dtype;
    d.threads = 1;
    d.seed = 11;
    d.arena_bytes = 1 << 16;
    return d;
}

/* TN_CUDA_RAW=1: without the sentinels, so that compute-sanitizer sees the allocations as they are. */
static const tn_backend *device(void)
{
    const char *raw = getenv("TN_CUDA_RAW");
    if (raw && strcmp(raw, "1") == 0) return tn_cuda_backend();
    guard.stage = guard.shift = false;
    return guard_of(tn_cuda_backend());
}

static char said_of_cublas[640];
static void keep_cublas(void *user, tn_log_level level, const char *message)
{
    (void)user;
    (void)level;
    if (strncmp(message, "cuBLAS: ", 8) == 0) snprintf(said_of_cublas, sizeof said_of_cublas, "%s", message);
}

/* What computes the products of all that follows: without cuBLAS it is a kernel of the backend. */
TEST(device_and_cublas)
{
    tn_desc d = desc_with(tn_cuda_backend(), TN_F32);
    tn_ctx *ctx;
    NEED_GPU();
    d.log = keep_cublas;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    printf("device: %s; %s\n", tn_ctx_device_name(ctx), said_of_cublas);
    tn_ctx_destroy(ctx);
    CHECK(said_of_cublas[0] != 0);
    if (strstr(said_of_cublas, "without tensor cores")) SKIP("cublas", "products are tested without it");
}

/* The sentinels detect one byte written after an allocation or before it. */
TEST(sentinels)
{
    static const unsigned char wrong = 7;
    tn_desc d = desc_with(device(), TN_F32);
    tn_ctx *ctx;
    int64_t n = 25;
    NEED_GPU();
    if (d.backend != &guard.table) SKIP("sentinels", "TN_CUDA_RAW is set");
    for (int side = 0; side < 2; side++) {
        const guard_block *b;
        REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
        tn_tensor *t = tn_tensor_create(ctx, TN_F32, 1, &n);
        for (b = guard.blocks; b && b->bytes != (char *)t->data; b = b->next) {}
        REQUIRE(CHECK(b != NULL));
        CHECK_INT(b->used, 100);
        CHECK(guard_check());
        int was = guard.damage;
        CHECK_STATUS(guard.inner->upload(b->state, b->bytes + (side ? 100 : -1), &wrong, 1), TN_OK);
        guard.quiet = true;
        CHECK(!guard_check());
        CHECK(guard_check());
        guard.quiet = false;
        guard.damage = was;
        guard_check();
        tn_ctx_destroy(ctx);
        CHECK_INT(guard.damage, was);
    }
}

/* ---- how far apart two results are ------------------------------------------------------------------------------------------ */

/* NaN if the sums of squares are not finite, since finite / infinite would hide the error. */
static double nmse(const double *a, const double *b, int64_t n)
{
    const double e = test_frobenius(a, b, n);
    return e * e;
}

static double rms(const double *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * a[i];
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

/* If numbers cancel to less than a hundredth of a rounding of 1, the rest is noise. */
static bool is_noise(const double *a, const double *b, int64_t n, double gate)
{
    double difference = 0;
    for (int64_t i = 0; i < n; i++) difference += (a[i] - b[i]) * (a[i] - b[i]);
    return difference <= (double)n * gate * 1e-4;
}

/* ---- errors beyond the gate that are excused: counted by reason, printed, and limited --------------------------------- */

typedef enum reason {
    LET_TOGETHER,        /* a result of a case whose results are judged together and are within the gate */
    LET_NOISE,           /* is_noise                                                                        */
    LET_BESIDE,          /* the gradient is small beside the largest one of its case                        */
    LET_CPU,             /* the cpu has the same error in the same precision */
    LET_CASE,            /* the same for all results of a case together */
    LETS
} reason;

static int let_pass[LETS];

static bool let(reason r) { let_pass[r]++; return true; }

/* At the end of a test. most: the counts with as much data as this run has, and a little more for other math libraries. The
   counts are the same on every device of the engine and with every SIMD level of the cpu. On a GPU, which sums in another
   order, they are only printed. */
static void let_end(const char *what, const int most[LETS])
{
    static const char *const name[LETS] = {
        "judged together", "noise", "beside a larger gradient", "as the cpu", "as the cpu, together"
    };
    const char *separator = ":";
    int all = 0;
    for (int k = 0; k < LETS; k++) all += let_pass[k];
    printf("%s: %d let pass beyond the gate", what, all);
    for (int k = 0; k < LETS; k++) {
        if (let_pass[k] == 0) continue;
        printf("%s %s %d of at most %d", separator, name[k], let_pass[k], most[k]);
        separator = ",";
    }
    printf("\n");
#ifdef TN_CUDA_HOST
    for (int k = 0; k < LETS; k++)
        if (!CHECK(let_pass[k] <= most[k]))
            printf("     %s: more than before, %d, are let pass as \"%s\"\n", what, let_pass[k], name[k]);
#endif
    memset(let_pass, 0, sizeof let_pass);
}

static const int let_nothing[LETS] = {0, 0, 0, 0, 0};

/* ---- the list of cases on the device, against the reference in double ------------------------------------------------- */

/* Bit for bit. A small run takes one round of each kind: plain, odd, deep and large. */
enum { PLAIN = 1, ODD = 1 << 3, DEEP = 1 << CASE_DEEP, LARGE = 1 << CASE_LARGE, ALL_ROUNDS = (1 << CASE_ROUNDS) - 1 };
static int either(int all, int small, int few) { return test_least() ? few : test_small() ? small : all; }
static bool among(int rounds, int round) { return (rounds >> round & 1) != 0; }

typedef struct way {
    const char       *name;
    tn_dtype          dtype, activations;
    tn_gemm_precision precision;
    double            gate;              /* NMSE against the reference in F64 ...                        */
    bool              pooled;            /* ... of all results of a case together, and four times that for a layer; a single result may have a hundred times that: where a few numbers cancel, short factors have large relative errors */
    bool              stage, shift;      /* guard.h                                                      */
    int               rounds;            /* bits                                                         */
    int               let[LETS];         /* upper limits for let_end                                     */
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

/* TN_CUDA_CASE: the whole name of a case, or a prefix followed by *. */
static bool chosen(int k, int round)
{
    const char *name = getenv("TN_CUDA_CASE"), *only = getenv("TN_CUDA_ROUND");
    size_t n = name ? strlen(name) : 0;
    if (only && *only) { if (atoi(only) != round) return false; }
    else if (!among(either(ALL_ROUNDS, PLAIN | ODD | DEEP | LARGE, PLAIN | ODD | DEEP | LARGE), round)) return false;
    if (n == 0) return true;
    return name[n - 1] == '*' ? strncmp(cases[k].name, name, n - 1) == 0 : strcmp(cases[k].name, name) == 0;
}

static bool all_chosen(void) { return !getenv("TN_CUDA_CASE") && !getenv("TN_CUDA_ROUND"); }

/* The seed of a case depends on its name alone, so that it does not change when the list grows. */
static uint64_t seed_of(int k, int round)
{
    uint64_t h = CASE_SEED + (uint64_t)round;
    for (const char *p = cases[k].name; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001B3u;
    return h;
}

static bool run_one(tn_ctx *ctx, int index, result *r, setting *s)
{
    memset(r, 0, sizeof *r);
    setting_begin(s, ctx, &cases[index / CASE_ROUNDS], index % CASE_ROUNDS, oracle_seed[index], false);
    return setting_result(s, r);
}

/* Inputs that are away from every kink, and the reference's results for them. */
static bool oracle_ready(void)
{
    tn_desc d = desc_with(tn_reference_backend(), TN_F64);
    tn_ctx *ctx;
    if (oracle_there) return true;
    if (!CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK)) return false;
    printf("%d cases, %d rounds each, seed %d\n", (int)CASES, CASE_ROUNDS, CASE_SEED);
    for (int index = 0; index < RESULTS; index++) {
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

/* cpu in the same precision: cancellation that affects it as well is not an error of the device. */
static double cpu_error(const way *w, int index, int gradient)
{
    tn_desc d = desc_of_way(w, NULL);
    const result *o = &oracle[index];
    tn_ctx *ctx;
    setting s;
    result r;
    double e = 0;
    if (tn_ctx_create(&d, &ctx, NULL) != TN_OK) return 0;
    if (run_one(ctx, index, &r, &s)) e = gradient < 0 ? nmse(r.y, o->y, r.count) : nmse(r.gradient[gradient], o->gradient[gradient], r.of[gradient]);
    setting_end(&s);
    result_free(&r);
    tn_ctx_destroy(ctx);
    return e;
}

typedef struct tally {
    double worst, sum, count;            /* sum, count: of the case, for a pooled gate */
    char   worst_in[96];
    int    compared;
} tally;

enum { POOL = 100 };

/* The factor up to which an error counts as the cpu's. The engine rounds as the cpu does: the largest ratio is 1.4. A GPU
   sums in another order, and may round factors that the cpu does not. */
#ifdef TN_CUDA_HOST
static double as_cpu(const way *w) { (void)w; return 2; }
#else
static double as_cpu(const way *w) { return w->pooled ? 30 : 4; }
#endif

/* Layers consist of several ops, each with its own rounding. */
static bool is_layer(int k) { return cases[k].run == run_mlp || cases[k].run == run_product || cases[k].run == run_modifier || cases[k].run == run_attention; }

/* Norms of heads of a few numbers, some of them small: a short factor may change the sign of their results. */
static bool is_ill(const way *w, int k) { return w->precision != TN_GEMM_F32 && cases[k].run == run_attention && (cases[k].kind & ATTENTION_NORM) != 0; }

/* The largest gradient of a case: others, in which numbers cancel, are as exact as its size allows. */
static double largest_gradient(const result *o)
{
    double most = 0;
    for (int k = 0; k < o->inputs; k++) {
        const double size = o->gradient[k] ? rms(o->gradient[k], o->of[k]) : 0;
        if (size > most) most = size;
    }
    return most;
}

/* Results that are judged by themselves: the mean over a case leaves them out, on the device and on the cpu. */
static bool apart[RESULTS][CASE_INPUTS + 1];

/* gradient -1: the value */
static bool agrees(const way *w, int index, int gradient, const double *a, const double *b, int64_t n, tally *t)
{
    const double e = nmse(a, b, n), gate = w->gate * (w->pooled ? POOL : 1);
    t->compared++;
    apart[index][gradient + 1] = !(e <= gate);
    if (!(e <= gate)) {
        if (is_noise(a, b, n, w->gate)) return let(LET_NOISE);
        if (gradient >= 0 && sqrt(e) * rms(b, n) <= (w->pooled ? 1 : 0.1) * sqrt(w->gate) * largest_gradient(&oracle[index]))
            return let(LET_BESIDE);
        double cpu = cpu_error(w, index, gradient);
        if (e <= as_cpu(w) * cpu) return let(LET_CPU);
        if (gradient >= 0) printf("     the gradient of input %d:", gradient);
        else printf("     the value:");
        printf(" NMSE %.3g of %d numbers like %.3g, allowed %.3g; cpu has %.3g\n", e, (int)n, n > 0 ? b[n / 2] : 0, gate,
               cpu);
        return false;
    }
    if (w->pooled) {
        t->sum += e * (double)n;
        t->count += (double)n;
    } else if (test_raise(&t->worst, e))
        snprintf(t->worst_in, sizeof t->worst_in, "%s, round %d", cases[index / CASE_ROUNDS].name, index % CASE_ROUNDS);
    return e <= w->gate || let(LET_TOGETHER);
}

/* The cpu's mean over the rounds of a case. */
static double cpu_pooled(const way *w, int k)
{
    double sum = 0, count = 0;
    for (int round = 0; round < CASE_ROUNDS; round++) {
        const int index = k * CASE_ROUNDS + round;
        const result *o = &oracle[index];
        if (!chosen(k, round) || !among(w->rounds, round)) continue;
        for (int i = -1; i < o->inputs; i++) {
            const double n = (double)(i < 0 ? o->count : o->of[i]);
            if ((i >= 0 && !o->gradient[i]) || apart[index][i + 1]) continue;
            sum += n * cpu_error(w, index, i);
            count += n;
        }
    }
    return count > 0 ? sum / count : 0;
}

/* After the last round of a case. */
static bool pooled(const way *w, int index, tally *t)
{
    const double e = t->count > 0 ? t->sum / t->count : 0;
    const double gate = w->gate * (is_layer(index / CASE_ROUNDS) ? 4 : 1);
    t->sum = t->count = 0;
    if (e <= gate) {
        if (test_raise(&t->worst, e * w->gate / gate))
            snprintf(t->worst_in, sizeof t->worst_in, "%s", cases[index / CASE_ROUNDS].name);
        return true;
    }
    double cpu = cpu_pooled(w, index / CASE_ROUNDS);
    if (e <= as_cpu(w) * cpu) return let(LET_CASE);
    printf("     \"%s\", all rounds together: NMSE %.3g, allowed %.3g; cpu has %.3g\n", cases[index / CASE_ROUNDS].name, e,
           gate, cpu);
    return false;
}

static bool compare(const way *w, int index, const result *r, tally *t)
{
    const result *o = &oracle[index];
    if (!CHECK_INT(r->rank, o->rank) || !CHECK_INT(r->count, o->count)) return false;
    if (!CHECK(agrees(w, index, -1, r->y, o->y, r->count, t))) return false;
    for (int k = 0; k < r->inputs; k++) {
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

static bool walked;                          /* the whole list ran on the device: coverage can be judged */

static void walk(const way *w)
{
    const tn_backend *backend = device();
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc d = desc_of_way(w, backend);
    tally t = ZERO;
    tn_ctx *ctx;
    char why[256];
    int shown = 0;
    d.allocator = test_heap_allocator(&heap);
    if (!CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_OK)) { printf("     %s: %s\n", w->name, why); return; }
    guard.stage = w->stage;
    guard.shift = w->shift;
    for (int index = 0; index < RESULTS; index++) {
        setting s;
        result r;
        if (chosen(index / CASE_ROUNDS, index % CASE_ROUNDS) && among(w->rounds, index % CASE_ROUNDS)) {
            if (test_leave_out(is_ill(w, index / CASE_ROUNDS),
                               "cases of attention with norms, where products are not in F32")) continue;
            bool ok = run_one(ctx, index, &r, &s) && compare(w, index, &r, &t);
            if (!CHECK(guard_check())) ok = false;
            if (!ok && shown++ < 12) rerun(&s);
            tn_ctx_clear_error(ctx);
            setting_end(&s);
            result_free(&r);
        }
        if (index % CASE_ROUNDS == CASE_ROUNDS - 1 && t.count > 0) CHECK(pooled(w, index, &t));
    }
    tn_ctx_destroy(ctx);
    CHECK(guard_check());
    CHECK_INT(heap.live, 0);
    CHECK_INT(heap.blocks, 0);
    guard.stage = guard.shift = false;
    printf("%s: %d results, worst NMSE %.3g of %.3g in \"%s\"\n", w->name, t.compared, t.worst, w->gate, t.worst_in);
    let_end(w->name, w->let);
    if (all_chosen()) walked = true;
}

static way way_of(const char *name, tn_dtype dtype, double gate, int rounds)
{
    way w = ZERO;
    w.name = name;
    w.dtype = dtype;
    w.gate = gate;
    w.rounds = rounds;
    return w;
}

/* Upper limits in the order of the reasons: with all of the data, in a small run, in the least one */
static void let_at_most(way *w, const int most[3][LETS])
{
    memcpy(w->let, most[test_least() ? 2 : test_small() ? 1 : 0], sizeof w->let);
}

TEST(cases_f64)
{
    static const int most[3][LETS] = {{0, 30, 0, 0, 0}, {0, 1, 0, 0, 0}, {0, 1, 0, 0, 0}};
    way w = way_of("F64", TN_F64, 1e-24, either(ALL_ROUNDS, ODD, ODD));
    NEED_GPU();
    REQUIRE(oracle_ready());
    w.stage = true;
    let_at_most(&w, most);
    walk(&w);
}

TEST(cases_f32)
{
    static const int most[3][LETS] = {{0, 31, 11, 1, 0}, {0, 14, 3, 1, 0}, {0, 2, 3, 1, 0}};
    way w = way_of("F32", TN_F32, 1e-10, either(ALL_ROUNDS, PLAIN | LARGE, LARGE));
    NEED_GPU();
    REQUIRE(oracle_ready());
    let_at_most(&w, most);
    walk(&w);
}

/* Each operand in memory of its own, and unaligned. */
TEST(cases_f32_beside)
{
    static const int most[3][LETS] = {{0, 31, 11, 1, 0}, {0, 3, 4, 1, 0}, {0, 3, 3, 1, 0}};
    way w = way_of("F32, beside", TN_F32, 1e-10, either(ALL_ROUNDS, ODD | DEEP, DEEP));
    NEED_GPU();
    REQUIRE(oracle_ready());
    w.stage = w.shift = true;
    let_at_most(&w, most);
    walk(&w);
}

TEST(cases_bf16)
{
    static const int most[3][LETS] = {{340, 18, 13, 6, 5}, {80, 9, 4, 3, 5}, {45, 3, 2, 3, 4}};
    way w = way_of("BF16 activations", TN_F32, 3e-5, either(ALL_ROUNDS, PLAIN | LARGE, LARGE));
    NEED_GPU();
    REQUIRE(oracle_ready());
    w.activations = TN_BF16;
    w.pooled = true;
    w.stage = true;
    let_at_most(&w, most);
    walk(&w);
}

/* Factors have 10 bits after the point, or 7, and a step has several products. */
TEST(cases_tf32)
{
    static const int most[3][LETS] = {{0, 13, 0, 0, 0}, {0, 3, 0, 0, 0}, {0, 11, 0, 0, 0}};
    way w = way_of("TF32 products", TN_F32, 2e-6, either(PLAIN | LARGE, LARGE, PLAIN));
    NEED_GPU();
    REQUIRE(oracle_ready());
    w.precision = TN_GEMM_TF32;
    w.pooled = true;
    let_at_most(&w, most);
    walk(&w);
}

TEST(cases_gemm_bf16)
{
    static const int most[3][LETS] = {{3, 11, 0, 0, 0}, {0, 3, 0, 0, 0}, {3, 9, 0, 0, 0}};
    way w = way_of("BF16 products", TN_F32, 1e-4, either(PLAIN | LARGE, LARGE, PLAIN));
    NEED_GPU();
    REQUIRE(oracle_ready());
    w.precision = TN_GEMM_BF16;
    w.pooled = true;
    let_at_most(&w, most);
    walk(&w);
}

/* ---- entries called directly: what no op does, but the contract of the entry allows ----------------------------------------- */

/* One operand: a buffer of `room` elements, with element 0 of a view at `first`. Its numbers can be represented in the dtype
   of the device. */
typedef struct operand {
    tn_dtype dtype;
    int      rank;
    int64_t  shape[TN_MAX_RANK], strides[TN_MAX_RANK], first, room;
    double  *v;
} operand;

static double rounded(tn_dtype dtype, double x)
{
    if (dtype == TN_F32) return (double)(float)x;
    return dtype == TN_BF16 && x == x && fabs(x) <= DBL_MAX ? plain_bf16(x) : x;
}

static uint16_t bf16_bits(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)(x != x ? 0x7FC0 : u >> 16);             /* x already is one: nothing to round */
}

static double bf16_number(uint16_t bits)
{
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

/* With strides, lowest element first. NULL strides: contiguous. */
static operand operand_make(uint64_t *rng, tn_dtype dtype, int rank, const int64_t *shape, const int64_t *strides)
{
    operand o = ZERO;
    int64_t step = 1, low = 0, high = 0;
    o.dtype = dtype;
    o.rank = rank;
    for (int k = rank - 1; k >= 0; k--) {
        o.shape[k] = shape[k];
        o.strides[k] = strides ? strides[k] : step;
        step *= shape[k];
        if (shape[k] == 0) continue;
        if (o.strides[k] < 0) low += (shape[k] - 1) * o.strides[k];
        else high += (shape[k] - 1) * o.strides[k];
    }
    o.first = -low;
    o.room = high - low + 1;
    o.v = (double *)malloc(sizeof *o.v * (size_t)o.room);
    for (int64_t i = 0; i < o.room; i++) o.v[i] = dtype == TN_I32 ? 0 : rounded(dtype, test_random_real(rng));
    return o;
}

/* In reverse order, with every index once: element e of a row-major walk through the view. */
static int64_t operand_at(const operand *o, int64_t e)
{
    int64_t at = o->first;
    for (int k = o->rank - 1; k >= 0; k--) { at += e % o->shape[k] * o->strides[k]; e /= o->shape[k]; }
    return at;
}

static void operand_bytes(const operand *o, tn_dtype as, void *to)
{
    for (int64_t i = 0; i < o->room; i++) {
        if (as == TN_F64) ((double *)to)[i] = o->v[i];
        else if (as == TN_F32) ((float *)to)[i] = (float)o->v[i];
        else if (as == TN_BF16) ((uint16_t *)to)[i] = bf16_bits(o->v[i]);
        else ((int32_t *)to)[i] = (int32_t)o->v[i];
    }
}

static void operand_numbers(double *v, int64_t n, tn_dtype as, const void *from)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = as == TN_F64 ? ((const double *)from)[i] : as == TN_F32 ? (double)((const float *)from)[i]
             : as == TN_BF16 ? bf16_number(((const uint16_t *)from)[i]) : (double)((const int32_t *)from)[i];
}

typedef struct direct {
    const char *what;
    tn_kernel   kernel;
    int         n_in, n_out;
    operand     in[TN_CALL_IN], out[TN_CALL_OUT];
    int64_t     i[4];
    double      f[6], gate;
    bool        accumulate, bits;                /* bits: results must be equal, not nearly equal */
} direct;

static const tn_backend *direct_device;          /* the state that calls go to */

static bool direct_absent(const operand *o) { return o->v == NULL; }

/* The call on one backend; floats have the dtype `wide` instead of TN_REAL. after[k]: the whole buffer of output k. */
static tn_status direct_on(const tn_backend *b, void *state, const direct *d, tn_dtype wide, double **after)
{
    tn_call   c = ZERO;
    void     *raw[TN_CALL_IN + TN_CALL_OUT] = {NULL}, *host[TN_CALL_IN + TN_CALL_OUT] = {NULL};
    size_t    bytes[TN_CALL_IN + TN_CALL_OUT] = {0};
    tn_status s = TN_OK;
    c.kernel = d->kernel;
    c.n_in = d->n_in;
    c.n_out = d->n_out;
    memcpy(c.i, d->i, sizeof c.i);
    memcpy(c.f, d->f, sizeof c.f);
    c.accumulate = d->accumulate;
    for (int k = 0; k < d->n_in + d->n_out && s == TN_OK; k++) {
        const operand *o = k < d->n_in ? &d->in[k] : &d->out[k - d->n_in];
        tn_view       *v = k < d->n_in ? &c.in[k] : &c.out[k - d->n_in];
        if (direct_absent(o)) continue;
        v->dtype = o->dtype != TN_I32 && wide != TN_REAL ? wide : o->dtype;
        v->rank = o->rank;
        memcpy(v->shape, o->shape, sizeof v->shape);
        memcpy(v->strides, o->strides, sizeof v->strides);
        bytes[k] = (size_t)o->room * guard_size(v->dtype);
        host[k] = malloc(bytes[k]);
        raw[k] = b->alloc(state, bytes[k]);
        if (!host[k] || !raw[k]) { s = TN_ERR_MEMORY; break; }
        operand_bytes(o, v->dtype, host[k]);
        s = b->upload(state, raw[k], host[k], bytes[k]);
        v->data = (char *)raw[k] + (size_t)o->first * guard_size(v->dtype);
    }
    if (s == TN_OK) s = b->fn[d->kernel](state, &c);
    for (int k = 0; k < d->n_out && s == TN_OK; k++) {
        const operand *o = &d->out[k];
        if (direct_absent(o)) continue;
        s = b->download(state, host[d->n_in + k], raw[d->n_in + k], bytes[d->n_in + k]);
        after[k] = (double *)malloc(sizeof(double) * (size_t)o->room);
        operand_numbers(after[k], o->room, c.out[k].dtype, host[d->n_in + k]);
    }
    for (int k = 0; k < d->n_in + d->n_out; k++) {
        if (raw[k]) b->release(state, raw[k], bytes[k]);
        free(host[k]);
    }
    return s;
}

/* A state of a backend without a context. */
static void *opened(const tn_backend *b, tn_gemm_precision precision)
{
    static test_heap heap;
    tn_desc d = desc_with(b, TN_F32);
    void   *state = NULL;
    char    why[256] = "";
    d.allocator = test_heap_allocator(&heap);
    d.gemm_precision = precision;
    if (b != tn_reference_backend()) direct_device = b;
    if (CHECK_STATUS(b->open(&d, &state, why), TN_OK)) return state;
    printf("     %s\n", why);
    return NULL;
}

static void direct_free(direct *d)
{
    for (int k = 0; k < TN_CALL_IN; k++) free(d->in[k].v);
    for (int k = 0; k < TN_CALL_OUT; k++) free(d->out[k].v);
}

/* The call on the device and on the reference in double. Frees the operands. A missing entry is for the coverage test to
   report. */
static bool direct_check(void *state, void *reference, direct *d)
{
    const tn_backend *backend = direct_device;
    double   *got[TN_CALL_OUT] = {NULL}, *want[TN_CALL_OUT] = {NULL};
    bool      ok = true;
    if (!backend->fn[d->kernel]) { direct_free(d); return true; }
    tn_status s = direct_on(backend, state, d, TN_REAL, got);
    if (s != TN_OK) { printf("     %s: %s\n", d->what, tn_status_name(s)); ok = false; }
    s = direct_on(tn_reference_backend(), reference, d, TN_F64, want);
    if (s != TN_OK) { printf("     %s, reference: %s\n", d->what, tn_status_name(s)); ok = false; }
    for (int k = 0; k < d->n_out && ok; k++) {
        operand *o = &d->out[k];
        int64_t  n = shape_count(o->rank, o->shape);
        if (direct_absent(o)) continue;
        double *a = (double *)malloc(sizeof *a * (size_t)(n + 1));
        double *b = (double *)malloc(sizeof *b * (size_t)(n + 1));
        for (int64_t e = 0; e < n; e++) {
            int64_t at = operand_at(o, e);
            a[e] = got[k][at];
            b[e] = d->bits ? rounded(o->dtype, want[k][at]) : want[k][at];
            o->v[at] = got[k][at] = (double)NAN;                 /* the rest of the buffer must be unchanged */
        }
        for (int64_t e = 0; e < o->room; e++)
            if (o->v[e] == o->v[e] && o->v[e] != got[k][e]) { printf("     %s: output %d: beside it\n", d->what,
                                                                     k); ok = false; break; }
        double worst = nmse(a, b, n);
        if (!(worst <= (d->bits ? 0 : d->gate)) && !(!d->bits && is_noise(a, b, n, d->gate) && let(LET_NOISE))) {
            printf("     %s: output %d: NMSE %.3g, allowed %.3g\n", d->what, k, worst, d->bits ? 0 : d->gate);
            ok = false;
        }
        free(a);
        free(b);
    }
    for (int k = 0; k < TN_CALL_OUT; k++) { free(got[k]); free(want[k]); }
    direct_free(d);
    return CHECK(ok) && CHECK(guard_check());
}

/* layout 0: by rows, 1: by columns, 2, 3: the same with longer lines of an odd length, 4: every second, 5: one row for all,
   6: rows from the last to the first */
static operand matrix_make(uint64_t *rng, tn_dtype dtype, int64_t batch, int64_t rows, int64_t cols, int layout)
{
    int64_t strides[3];
    int64_t shape[3] = {batch, rows, cols};
    strides[1] = cols; strides[2] = 1;
    switch (layout) {
    case 1: strides[1] = 1; strides[2] = rows; break;
    case 2: strides[1] = (cols + 2) | 1; break;
    case 3: strides[1] = 1; strides[2] = (rows + 2) | 1; break;
    case 4: strides[1] = 2 * cols + 1; strides[2] = 2; break;
    case 5: strides[1] = 0; break;
    case 6: strides[1] = -cols; break;
    default: break;
    }
    int64_t span = rows * (strides[1] < 0 ? -strides[1] : strides[1]) + cols * strides[2] + 3;
    strides[0] = layout == 5 ? 0 : span;
    return operand_make(rng, dtype, 3, shape, strides);
}

static const char *dtype_text(tn_dtype t) { return t == TN_F32 ? "F32" : t == TN_F64 ? "F64" : t == TN_BF16 ? "BF16" : t == TN_I32 ? "I32" : "none"; }

/* Draws one product. types: of A, B, C and the bias; TN_REAL means no particular dtype. */
static void gemm_once(void *state, void *reference, uint64_t *rng, const tn_dtype *types, int64_t b, int64_t m, int64_t n, int64_t k,
                      int of_a, int of_b, int of_c, double alpha, double beta, double gate)
{
    static char what[200];
    direct  d = ZERO;
    int64_t i;
    snprintf(what, sizeof what, "gemm %s %s -> %s bias %s, batch %d, %dx%dx%d, layouts %d %d %d, alpha %g beta %g", dtype_text(types[0]),
             dtype_text(types[1]), dtype_text(types[2]), dtype_text(types[3]), (int)b, (int)m, (int)n, (int)k, of_a, of_b, of_c, alpha, beta);
    d.what = what;
    d.kernel = TN_KERNEL_GEMM;
    d.n_in = 3;
    d.n_out = 1;
    d.in[0] = matrix_make(rng, types[0], b, m, k, of_a);
    d.in[1] = matrix_make(rng, types[1], b, k, n, of_b);
    if (types[3] != TN_REAL) d.in[2] = operand_make(rng, types[3], 1, &n, NULL);
    d.out[0] = matrix_make(rng, types[2], b, m, n, of_c);
    if (beta == 0) for (i = 0; i < b * m * n; i++) d.out[0].v[operand_at(&d.out[0], i)] = (double)NAN;   /* it is never read */
    d.f[0] = alpha;
    d.f[1] = beta;
    d.gate = types[2] == TN_BF16 || types[0] != types[1] ? 3e-5 : gate;         /* beside a BF16 factor the other is rounded as well */
    direct_check(state, reference, &d);
}

TEST(gemm_of_all_kinds)
{
    static const tn_dtype pick[2] = {TN_F32, TN_BF16};
    static const double   alphas[] = {1, -0.75, 0}, betas[] = {0, 1, -0.5};
    static const int64_t  extents[] = {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65, 130};
    uint64_t rng = 4711;
    NEED_GPU();
    REQUIRE(device()->fn[TN_KERNEL_GEMM] != NULL);
    void *state = opened(device(), TN_GEMM_F32);
    void *reference = opened(tn_reference_backend(), TN_GEMM_F32);
    REQUIRE(state != NULL && reference != NULL);
    guard.stage = true;
    for (int i = 0; i < (test_small() ? 150 : 600) && test_now.failures < 10; i++) {
        tn_dtype types[4];
        int64_t  e[4];
        guard.shift = i % 3 == 2;
        for (int k = 0; k < 4; k++) types[k] = i % 4 == 0 ? TN_F64 : pick[test_random_int(&rng, 0, 1)];
        if (test_random_int(&rng, 0, 2)) types[3] = TN_REAL;
        for (int k = 0; k < 3; k++) e[k] = extents[test_random_int(&rng, 0, 13)];
        gemm_once(state, reference, &rng, types, i % 5 ? 1 : test_random_int(&rng, 0, 4), e[0], e[1], e[2], (int)test_random_int(&rng, 0, 6),
                  (int)test_random_int(&rng, 0, 6), (int)test_random_int(&rng, 0, 4), alphas[test_random_int(&rng, 0, 2)],
                  betas[test_random_int(&rng, 0, 2)], i % 4 ? 1e-10 : 1e-24);
    }
    guard.stage = guard.shift = false;
    tn_reference_backend()->close(reference);
    device()->close(state);
    let_end("products", let_nothing);
}

/* Copies of any dtype to any other, with views of any strides, up to rank 8. */
TEST(copies_of_all_kinds)
{
    uint64_t rng = 815;
    NEED_GPU();
    void *state = opened(device(), TN_GEMM_F32);
    void *reference = opened(tn_reference_backend(), TN_GEMM_F32);
    REQUIRE(state != NULL && reference != NULL);
    guard.stage = true;
    for (int i = 0; i < (test_small() ? 100 : 400) && test_now.failures < 10; i++) {
        static char what[200];
        direct   d = ZERO;
        int64_t  shape[TN_MAX_RANK], strides[2][TN_MAX_RANK];
        int      rank = (int)test_random_int(&rng, 0, 8), k;
        tn_dtype types[2];
        for (int side = 0; side < 2; side++) types[side] = (tn_dtype)test_random_int(&rng, TN_F32, TN_I32);
        for (k = 0; k < rank; k++) shape[k] = test_random_int(&rng, 0, 40) == 0 ? 0 : test_random_int(&rng, 1, rank > 4 ? 3 : i % 16 == 0 ? 40 : 9);
        for (int side = 0; side < 2; side++) {      /* axes in any order, with gaps, some of them reversed */
            int     order[TN_MAX_RANK];
            int64_t step = test_random_int(&rng, 1, 2);
            for (k = 0; k < rank; k++) order[k] = k;
            for (k = rank - 1; k > 0 && i % 2; k--) { int with = (int)test_random_int(&rng, 0, k), was = order[k]; order[k] = order[with]; order[with] = was; }
            for (k = rank - 1; k >= 0; k--) {
                strides[side][order[k]] = test_random_int(&rng, 0, 3) == 0 ? -step : step;
                step *= shape[order[k]] > 0 ? shape[order[k]] : 1;
                if (test_random_int(&rng, 0, 3) == 0) step++;
            }
        }
        if (rank > 0 && i % 5 == 0) strides[0][test_random_int(&rng, 0, rank - 1)] = 0;
        int n = snprintf(what, sizeof what, "copy %s to %s of [", dtype_text(types[0]), dtype_text(types[1]));
        for (k = 0; k < rank; k++) n += snprintf(what + n, sizeof what - (size_t)n, "%d (%d to %d) ", (int)shape[k], (int)strides[0][k], (int)strides[1][k]);
        d.what = what;
        d.kernel = TN_KERNEL_COPY;
        d.n_in = d.n_out = 1;
        d.bits = true;
        d.in[0] = operand_make(&rng, types[0], rank, shape, strides[0]);
        d.out[0] = operand_make(&rng, types[1], rank, shape, strides[1]);
        for (int64_t e = 0; e < d.in[0].room; e++)
            d.in[0].v[e] = types[0] == TN_I32 ? (double)test_random_int(&rng, -200, 200)
                           : rounded(types[0], test_random_real(&rng) * 100);
        direct_check(state, reference, &d);
    }
    guard.stage = false;
    tn_reference_backend()->close(reference);
    device()->close(state);
    let_end("copies", let_nothing);
}

/* ---- tall and wide: beyond the 65535 blocks of the second and third axis of a grid ---------------------------------------------------- */

enum { TALL = 66000, TALL_INPUTS = 3 };

typedef struct tall_case {
    const char *name;
    int         rank;
    int64_t     shape[4];
    int         what;
} tall_case;

enum { TALL_ACT, TALL_GLU, TALL_PROD, TALL_RMSNORM, TALL_LAYERNORM, TALL_SUM, TALL_SUM_ROWS, TALL_ENTROPY, TALL_ARGMAX, TALL_ACCURACY, TALL_EMBED,
       TALL_BATCH, TALL_AFFINE, TALL_THIN, TALL_ROPE, TALL_SOFTMAX, TALL_SQUARED, TALL_BILINEAR, TALL_LINEAR, TALL_TURNED, TALL_STRETCHED, TALL_DROPOUT,
       TALL_ONE, TALL_SCAN, TALL_CHAIN };

static tn_tensor *tall_attend(tn_ctx *ctx, tn_tensor *x, tn_attend_kind kind, tn_attend_form form)
{
    tn_attend_desc d = ZERO;
    d.kind = kind;
    d.form = form;
    return tn_attend(ctx, x, x, kind == TN_ATTEND_BILINEAR ? tn_slice(x, 2, 0, 1) : x, &d);
}

static tn_tensor *tall_run(tn_ctx *ctx, tn_tensor *x, tn_tensor *ids, int what)
{
    tn_rope_desc rope = ZERO;
    rope.norm = true;
    switch (what) {
    case TALL_ACT:       return tn_activation(ctx, x, TN_ACT_GELU);
    case TALL_GLU:       return tn_glu(ctx, x, TN_ACT_SWISH);
    case TALL_PROD:      return tn_prod_parts(ctx, x, 3);
    case TALL_RMSNORM:   return tn_rmsnorm(ctx, x, tn_reshape(tn_copy(ctx, tn_slice(x, 0, 0, 1)), 1, &x->shape[1]), 1e-2);
    case TALL_LAYERNORM: return tn_layernorm(ctx, x, tn_reshape(tn_copy(ctx, tn_slice(x, 0, 0, 1)), 1, &x->shape[1]), NULL, 1e-2);
    case TALL_SUM:       return tn_sum_axis(ctx, x, 0);
    case TALL_SUM_ROWS:  return tn_sum_axis(ctx, x, 1);
    case TALL_ENTROPY:   return tn_scale(ctx, tn_cross_entropy(ctx, x, ids), 1000);
    case TALL_ARGMAX:    return tn_argmax(ctx, x);
    case TALL_ACCURACY:  return tn_accuracy(ctx, x, ids);
    case TALL_EMBED:     return tn_embed(ctx, x, ids);
    case TALL_BATCH:     return tn_matmul(ctx, x, tn_transpose(x, 1, 2));
    case TALL_AFFINE:    return tn_affine(ctx, x, tn_copy(ctx, tn_slice(x, 0, 0, 3)), NULL);
    case TALL_THIN:      return tn_matmul(ctx, tn_transpose(tn_slice(x, 1, 0, 2), 0, 1), x);
    case TALL_ROPE:      return tn_rope(ctx, x, &rope);
    case TALL_SOFTMAX:   return tall_attend(ctx, x, TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_AUTO);
    case TALL_SQUARED:   return tall_attend(ctx, x, TN_ATTEND_SQUARED, TN_ATTEND_FORM_QUADRATIC);
    case TALL_BILINEAR:  return tall_attend(ctx, x, TN_ATTEND_BILINEAR, TN_ATTEND_FORM_QUADRATIC);
    case TALL_LINEAR:    return tall_attend(ctx, x, TN_ATTEND_BILINEAR, TN_ATTEND_FORM_LINEAR);
    case TALL_TURNED:    return tn_copy(ctx, tn_transpose(x, 0, 1));
    case TALL_STRETCHED: return tn_mul(ctx, tn_slice(x, 1, 0, 1), x);
    case TALL_DROPOUT:   return tn_dropout(ctx, x, 0.25);
    case TALL_ONE:       return tn_append_one(ctx, x);
    case TALL_SCAN:      return tn_scan(ctx, x, false, NULL);      /* in blocks on the device */
    default:             return tn_chain(ctx, x, NULL);
    }
}

typedef struct tall_result { double *y, *g; int64_t count, inputs; } tall_result;

static bool tall_on(const tn_backend *backend, tn_dtype dtype, const tall_case *c, tall_result *r)
{
    tn_desc    d = desc_with(backend, dtype);
    const int64_t n = shape_count(c->rank, c->shape), rows = c->shape[0] < TALL && c->what != TALL_EMBED ? c->shape[0] : (int64_t)TALL, last = c->shape[c->rank - 1];
    const int64_t limit = c->what == TALL_EMBED ? c->shape[0] : last;
    uint64_t   rng = 99;
    double    *v = (double *)malloc(sizeof *v * (size_t)n);
    int32_t   *id = (int32_t *)malloc(sizeof *id * (size_t)rows);
    tn_ctx    *ctx;
    memset(r, 0, sizeof *r);
    d.arena_bytes = 0;
    for (int64_t i = 0; i < n; i++) v[i] = (double)(float)(test_random_real(&rng) + 1.25);
    for (int64_t i = 0; i < rows; i++) id[i] = (int32_t)test_random_int(&rng, 0, limit - 1);
    bool ok = CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK);
    if (ok) {
        tn_ctx_reset(ctx);
        tn_tensor *x = tn_tensor_nd(ctx, TN_REAL, c->rank, c->shape);
        tn_tensor *ids = tn_tensor_1d(ctx, TN_I32, rows);
        CHECK_STATUS(tn_write(x, TN_F64, v, n), TN_OK);
        CHECK_STATUS(tn_write(ids, TN_I32, id, rows), TN_OK);
        CHECK_STATUS(tn_watch(x), TN_OK);
        tn_record(ctx);
        tn_tensor *y = tall_run(ctx, x, ids, c->what);
        if (y) {
            r->count = tn_tensor_count(y);
            r->inputs = n;
            r->y = (double *)malloc(sizeof *r->y * (size_t)r->count);
            ok = CHECK_STATUS(tn_read(y, TN_F64, r->y, r->count), TN_OK);
            if (ok && c->what != TALL_ARGMAX && c->what != TALL_ACCURACY) {
                tn_tensor *w = tn_tensor_nd(ctx, TN_REAL, y->rank, y->shape);
                double    *weights = (double *)malloc(sizeof *weights * (size_t)r->count);
                for (int64_t i = 0; i < r->count; i++) weights[i] = weight_of(i);
                CHECK_STATUS(tn_write(w, TN_F64, weights, r->count), TN_OK);
                free(weights);
                ok = CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, w))), TN_OK);
                r->g = (double *)malloc(sizeof *r->g * (size_t)n);
                if (ok) ok = CHECK_STATUS(tn_read(x->grad, TN_F64, r->g, n), TN_OK);
            }
        }
        ok = ok && CHECK(y != NULL);
        if (tn_ctx_status(ctx) != TN_OK) printf("     %s\n", tn_ctx_error(ctx));
        tn_ctx_destroy(ctx);
    }
    free(v);
    free(id);
    return ok;
}

/* Within the gate, or within the cpu's error in the same precision. */
static bool tall_agrees(const tall_case *c, tn_dtype dtype, bool gradient, const double *a, const double *b, int64_t n, double gate)
{
    const double e = nmse(a, b, n);
    tall_result  cpu;
    double       other = 0;
    if (e <= gate) return true;
    if (is_noise(a, b, n, gate)) return let(LET_NOISE);
    if (tall_on(tn_cpu_backend(), dtype, c, &cpu)) other = nmse(gradient ? cpu.g : cpu.y, b, n);
    free(cpu.y);
    free(cpu.g);
    if (e <= 4 * other) return let(LET_CPU);
    printf("     %s: NMSE %.3g, allowed %.3g; cpu has %.3g\n", gradient ? "the gradient" : "the value", e, gate, other);
    return false;
}

static void tall_check(const tall_case *c, tn_dtype dtype, double gate)
{
    tall_result got, want = ZERO;
    bool ok = tall_on(device(), dtype, c, &got);
    ok = ok && tall_on(tn_cpu_backend(), TN_F64, c, &want);
    if (ok) ok = CHECK_INT(got.count, want.count) && CHECK(tall_agrees(c, dtype, false, got.y, want.y, want.count, gate));
    if (ok && want.g) ok = CHECK(got.g != NULL && tall_agrees(c, dtype, true, got.g, want.g, want.inputs, gate));
    if (!CHECK(guard_check()) || !ok) printf("     %s [%d,%d,...] in %s\n", c->name, (int)c->shape[0], (int)c->shape[c->rank > 1], dtype_text(dtype));
    free(got.y); free(got.g);
    free(want.y); free(want.g);
}

TEST(tall_and_wide)
{
    static const tall_case list[] = {
        {"gelu",                2, {TALL, 1, 0, 0},    TALL_ACT},
        {"glu",                 2, {TALL, 2, 0, 0},    TALL_GLU},
        {"prod",                2, {TALL, 3, 0, 0},    TALL_PROD},
        {"rmsnorm, tall",       2, {TALL, 2, 0, 0},    TALL_RMSNORM},
        {"layernorm, tall",     2, {TALL, 3, 0, 0},    TALL_LAYERNORM},
        {"sum of columns, tall", 2, {TALL, 2, 0, 0},   TALL_SUM},
        {"sum of columns, wide", 2, {2, TALL, 0, 0},   TALL_SUM},
        {"sum of rows, tall",   2, {TALL, 2, 0, 0},    TALL_SUM_ROWS},
        {"sum of rows, wide",   2, {2, TALL, 0, 0},    TALL_SUM_ROWS},
        {"cross_entropy, tall", 2, {TALL, 3, 0, 0},    TALL_ENTROPY},
        {"cross_entropy, wide", 2, {2, TALL, 0, 0},    TALL_ENTROPY},
        {"argmax, tall",        2, {TALL, 3, 0, 0},    TALL_ARGMAX},
        {"argmax, wide",        2, {2, TALL, 0, 0},    TALL_ARGMAX},
        {"accuracy",            2, {TALL, 3, 0, 0},    TALL_ACCURACY},
        {"embed, long table",   2, {TALL, 2, 0, 0},    TALL_EMBED},
        {"embed, one row",      2, {1, 2, 0, 0},       TALL_EMBED},
        {"products of a batch", 3, {TALL, 2, 1, 0},    TALL_BATCH},
        {"affine",              2, {TALL, 2, 0, 0},    TALL_AFFINE},
        {"a deep product",      2, {TALL, 3, 0, 0},    TALL_THIN},
        {"turned, tall",        2, {TALL, 3, 0, 0},    TALL_TURNED},
        {"turned, batch",       3, {TALL, 2, 2, 0},    TALL_TURNED},
        {"stretched",           2, {TALL, 3, 0, 0},    TALL_STRETCHED},
        {"dropout",             2, {TALL, 3, 0, 0},    TALL_DROPOUT},
        {"append_one",          2, {TALL, 2, 0, 0},    TALL_ONE},
        {"a long chain",        4, {1, 700, 3, 3},     TALL_CHAIN},
        {"a long scan",         4, {2, 1030, 2, 2},    TALL_SCAN},
    };
    static const tall_case slow[] = {              /* seconds each on the engine: fibers, one tile per text */
        {"rmsnorm, wide",       2, {2, TALL, 0, 0},    TALL_RMSNORM},
        {"layernorm, wide",     2, {2, TALL, 0, 0},    TALL_LAYERNORM},
        {"rope, many texts",    4, {TALL, 1, 1, 2},    TALL_ROPE},
        {"rope, a long text",   4, {1, TALL, 1, 2},    TALL_ROPE},
        {"rope, many heads",    4, {1, 1, TALL, 2},    TALL_ROPE},
        {"softmax attention",   4, {TALL, 1, 1, 2},    TALL_SOFTMAX},
        {"linear attention",    4, {TALL, 1, 2, 2},    TALL_LINEAR},
        {"chains",              4, {TALL, 2, 2, 2},    TALL_CHAIN},
    };
    NEED_GPU();
    for (size_t k = 0; k < sizeof list / sizeof *list; k += test_least() ? 5 : 1) tall_check(&list[k], TN_F32, 1e-10);
    for (size_t k = 0; k < sizeof slow / sizeof *slow && !test_small(); k++) tall_check(&slow[k], TN_F32, 1e-10);
    let_end("tall and wide", let_nothing);
}

/* What only a GPU finishes in time. */
TEST(large_shapes)
{
    static const tall_case list[] = {
        {"squared attention",   4, {TALL, 2, 1, 2},    TALL_SQUARED},
        {"bilinear attention",  4, {TALL, 2, 2, 2},    TALL_BILINEAR},
        {"linear attention",    4, {TALL, 2, 2, 2},    TALL_LINEAR},
        {"softmax attention",   4, {1, 4096, 2, 64},   TALL_SOFTMAX},
        {"squared attention",   4, {1, 4096, 2, 64},   TALL_SQUARED},
        {"bilinear attention",  4, {1, 4096, 2, 128},  TALL_BILINEAR},
        {"bilinear attention",  4, {1, 2999, 2, 64},   TALL_BILINEAR},
        {"linear attention",    4, {1, 8192, 2, 32},   TALL_LINEAR},
        {"linear attention",    4, {1, 5001, 2, 64},   TALL_LINEAR},
        {"cross_entropy",       2, {512, 50257, 0, 0}, TALL_ENTROPY},
        {"argmax",              2, {512, 50257, 0, 0}, TALL_ARGMAX},
        {"embed",               2, {50257, 768, 0, 0}, TALL_EMBED},
        {"rmsnorm",             2, {70000, 768, 0, 0}, TALL_RMSNORM},
        {"layernorm",           2, {70000, 768, 0, 0}, TALL_LAYERNORM},
        {"a deep product",      2, {300000, 96, 0, 0}, TALL_THIN},
        {"sum of columns",      2, {300000, 96, 0, 0}, TALL_SUM},
        {"turned",              2, {9000, 3001, 0, 0}, TALL_TURNED},
        {"glu",                 2, {70000, 1536, 0, 0}, TALL_GLU},
    };
    const char *wanted = getenv("TN_CUDA_LARGE");
    NEED_GPU();
    if (!wanted || !*wanted || strcmp(wanted, "0") == 0) SKIP("TN_CUDA_LARGE=1", "these take minutes on the engine");
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) tall_check(&list[k], TN_F32, 1e-10);
    let_end("large shapes", let_nothing);
}

/* ---- NaN and infinities ------------------------------------------------------------------------------------------------------------- */

static int class_of(double x) { return x != x ? 1 : x > DBL_MAX ? 2 : x < -DBL_MAX ? 3 : 0; }

/* Tiles multiply masked pairs by zero, and states sum in another order: 0 times infinity may then make additional NaN, but
   none may be lost, on any backend. */
static bool has_tiles(const test_case *c)
{
    return c->run == run_attention || (c->run == run_attend && (c->kind & (ATTEND_CAUSAL + ATTEND_WINDOW + ATTEND_LINEAR)) != 0);
}

/* The first element whose class differs from that of the reference, or -1. */
static int64_t unlike(const double *a, const double *reference, int64_t n, bool tiles)
{
    for (int64_t i = 0; i < n; i++)
        if (tiles ? class_of(a[i]) == 0 && class_of(reference[i]) != 0 : class_of(a[i]) != class_of(reference[i])) return i;
    return -1;
}

static bool poisoned(tn_ctx *ctx, int index, result *r, setting *s)
{
    static const double poison[] = {(double)NAN, HUGE_VAL, -HUGE_VAL};
    uint64_t rng = oracle_seed[index] ^ 0xBAD;
    memset(r, 0, sizeof *r);
    setting_begin(s, ctx, &cases[index / CASE_ROUNDS], index % CASE_ROUNDS, oracle_seed[index], false);
    for (int k = 0; k < s->inputs; k++)
        for (int i = 0; s->in[k].real && s->in[k].count > 0 && i < 2; i++) {
            int64_t at = test_random_int(&rng, 0, s->in[k].count - 1);
            if (test_random_int(&rng, 0, 1)) s->in[k].v[at] = poison[test_random_int(&rng, 0, 2)];
        }
    return setting_result(s, r);
}

/* The reference and the device in the same precision: each result is finite, NaN or an infinity where the other is. */
static void nonfinite_in(tn_dtype dtype, tn_dtype activations)
{
    tn_desc d = desc_with(tn_reference_backend(), dtype), e = desc_with(device(), dtype);
    tn_ctx *reference, *ctx;
    int     shown = 0;
    int64_t special = 0;
    d.activations = e.activations = activations;
    if (!CHECK_STATUS(tn_ctx_create(&d, &reference, NULL), TN_OK)) return;
    if (!CHECK_STATUS(tn_ctx_create(&e, &ctx, NULL), TN_OK)) return;
    for (int index = 0; index < RESULTS; index++) {
        const test_case *c = &cases[index / CASE_ROUNDS];
        const int round = index % CASE_ROUNDS;
        setting s, t;
        result  a, b;
        if (!chosen(index / CASE_ROUNDS, round) || !among(~LARGE & either(ALL_ROUNDS, ALL_ROUNDS, DEEP), round)) continue;
        if (c->run == run_cast || c->run == run_through) continue;           /* an integer has no NaN */
        bool tiles = has_tiles(c);
        bool both = poisoned(reference, index, &a, &s);
        both = poisoned(ctx, index, &b, &t) && both;
        bool ok = both && CHECK_INT(b.count, a.count) && CHECK_INT(unlike(b.y, a.y, a.count, tiles), -1);
        for (int k = 0; ok && k < a.inputs; k++)
            if (a.count > 0 && a.gradient[k] && b.gradient[k] && !CHECK_INT(unlike(b.gradient[k], a.gradient[k], a.of[k], tiles), -1)) {
                printf("     in the gradient of input %d\n", k);
                ok = false;
            }
        for (int64_t i = 0; ok && i < a.count; i++) special += class_of(a.y[i]) != 0;
        if (!ok && shown++ < 12) rerun(&t);
        tn_ctx_clear_error(ctx);
        tn_ctx_clear_error(reference);
        setting_end(&s);
        setting_end(&t);
        result_free(&a);
        result_free(&b);
    }
    tn_ctx_destroy(ctx);
    tn_ctx_destroy(reference);
    printf("%s: %" PRId64 " results that are not finite\n", activations == TN_BF16 ? "BF16" : dtype_text(dtype), special);
    if (all_chosen()) CHECK(special > (test_least() ? 10 : test_small() ? 100 : 1000));
}

TEST(nan_and_infinity)
{
    NEED_GPU();
    REQUIRE(oracle_ready());
    nonfinite_in(TN_F32, TN_REAL);
    nonfinite_in(TN_F32, TN_BF16);
    if (!test_least()) nonfinite_in(TN_F64, TN_REAL);
}

/* ---- bit-identical results in every run, whatever else is done ------------------------------------------------------------------------ */

static result first_run[RESULTS];

static bool same_numbers(const double *a, const double *b, int64_t n) { return n == 0 || memcmp(a, b, sizeof *a * (size_t)n) == 0; }

/* Work that has nothing to do with the case, but uses memory and time of the device. */
static void unrelated(tn_ctx *ctx, uint64_t *rng)
{
    tn_mark    mark = tn_arena_mark(ctx);
    int64_t    n = test_random_int(rng, 1, 300);
    tn_tensor *x = tn_uniform(ctx, 1, &n, -1, 1);
    tn_tensor *y = tn_mul(ctx, x, x);
    if (n % 3) CHECK(tn_sum(ctx, tn_matmul(ctx, tn_reshape_2d(x, n, 1), tn_reshape_2d(y, 1, n))) != NULL);
    if (n % 2) CHECK_STATUS(tn_arena_release(ctx, mark), TN_OK);        /* nothing is recorded now */
}

static void determinism_in(tn_dtype dtype, tn_dtype activations)
{
    uint64_t rng = 3;
    for (int run = 0; run < 2; run++) {
        tn_desc d = desc_with(device(), dtype);
        tn_ctx *ctx;
        tn_tensor *kept = NULL;
        int64_t odd = 1009;
        d.activations = activations;
        if (!CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK)) return;
        if (run) kept = tn_tensor_create(ctx, TN_REAL, 1, &odd);             /* other addresses */
        for (int index = run ? RESULTS - 1 : 0; run ? index >= 0 : index < RESULTS; run ? index-- : index++) {
            const int round = index % CASE_ROUNDS;
            setting s;
            result  r;
            if (!chosen(index / CASE_ROUNDS, round) || !among(either(1 << 1 | DEEP | LARGE, DEEP | LARGE, DEEP), round)) continue;
            tn_ctx_reset(ctx);                                               /* clears what the last case recorded */
            if (run) unrelated(ctx, &rng);
            bool ok = run_one(ctx, index, &r, &s);
            if (!run) { first_run[index] = r; setting_end(&s); continue; }
            ok = ok && first_run[index].y && CHECK(same_numbers(r.y, first_run[index].y, r.count));
            for (int k = 0; ok && k < r.inputs; k++)
                ok = !r.gradient[k] || CHECK(same_numbers(r.gradient[k], first_run[index].gradient[k], r.of[k]));
            if (!ok) rerun(&s);
            setting_end(&s);
            result_free(&r);
            result_free(&first_run[index]);
        }
        tn_tensor_destroy(kept);
        tn_ctx_destroy(ctx);
    }
    CHECK(guard_check());
}

TEST(determinism)
{
    NEED_GPU();
    REQUIRE(oracle_ready());
    determinism_in(TN_F32, TN_REAL);
    if (!test_least()) determinism_in(TN_F32, TN_BF16);
}

/* ---- random numbers: the same stream as the cpu's --------------------------------------------------------------------------------------- */

static int64_t ulps(float a, float b)
{
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    if (x < 0) x = INT32_MIN - x;
    if (y < 0) y = INT32_MIN - y;
    return x > y ? (int64_t)x - y : (int64_t)y - x;
}

typedef struct stream { float *uniform, *normal, *dropped; } stream;

static bool stream_on(const tn_backend *backend, int64_t n, uint64_t seed, int steps, stream *s)
{
    tn_desc d = desc_with(backend, TN_F32);
    tn_ctx *ctx;
    float  *one = (float *)malloc(sizeof *one * (size_t)n);
    s->uniform = (float *)malloc(sizeof *one * (size_t)n);
    s->normal = (float *)malloc(sizeof *one * (size_t)n);
    s->dropped = (float *)malloc(sizeof *one * (size_t)n);
    bool ok = CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK);
    if (ok) {
        tn_ctx_seed(ctx, seed);
        for (int k = 0; k < steps; k++) tn_ctx_reset(ctx);                       /* the clock of the stream advances */
        tn_record(ctx);
        ok = CHECK_STATUS(tn_read(tn_uniform(ctx, 1, &n, 0, 1), TN_F32, s->uniform, n), TN_OK)
          && CHECK_STATUS(tn_read(tn_normal(ctx, 1, &n, 0, 1), TN_F32, s->normal, n), TN_OK)
          && CHECK_STATUS(tn_read(tn_dropout(ctx, tn_full(ctx, 1, &n, 1), 0.3), TN_F32, s->dropped, n), TN_OK);
        for (int64_t i = 0; i < n; i++) one[i] = (float)plain_uniform(seed, 0, i);
        if (steps == 0) CHECK(memcmp(one, s->uniform, sizeof *one * (size_t)n) == 0);
        tn_ctx_destroy(ctx);
    }
    free(one);
    return ok;
}

TEST(random_numbers)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 31, 1023, 4097, 100003};
    double  worst = 0;
    NEED_GPU();
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t n = sizes[k];
        stream a = {NULL, NULL, NULL}, b = {NULL, NULL, NULL};
        if (stream_on(device(), n, 77 + ((uint64_t)k << 33), (int)k % 4, &a) && stream_on(NULL, n, 77 + ((uint64_t)k << 33), (int)k % 4, &b)) {
            CHECK(memcmp(a.uniform, b.uniform, sizeof(float) * (size_t)n) == 0);
            CHECK(memcmp(a.dropped, b.dropped, sizeof(float) * (size_t)n) == 0);
            for (int64_t i = 0; i < n; i++) {
                int64_t u = fabs((double)b.normal[i]) < 1e-3 ? (fabs((double)a.normal[i] - (double)b.normal[i]) < 1e-9 ? 0 : 1000) : ulps(a.normal[i], b.normal[i]);
                test_raise(&worst, (double)u);
            }
        }
        free(a.uniform); free(a.normal); free(a.dropped);
        free(b.uniform); free(b.normal); free(b.dropped);
    }
    WORST("normals against the cpu's, in units of the last place", worst, 2);
    CHECK(guard_check());
}

/* ---- the fault word -------------------------------------------------------------------------------------------------------------------------- */

enum { FAULTS = 5 };

/* One error on this backend, which a sync or the step finds, and what it must leave unchanged: `after`. */
static void fault_on(const tn_backend *backend, int fault, char text[512], double *after)
{
    static const int32_t id[4] = {0, 2, 1, 3};
    int32_t    bad[4];
    tn_desc    d = desc_with(backend, TN_F32);
    tn_ctx    *ctx;
    tn_tensor *loss;
    tn_init    init = ZERO;
    int64_t    shape[2] = {4, 3}, four = 4;
    double     v[12];
    text[0] = 0;
    memcpy(bad, id, sizeof bad);
    if (!CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK)) return;
    tn_params *ps = tn_params_create(ctx);
    init.rule = TN_INIT_ZERO;
    tn_param *p = tn_params_add(ps, "table", 2, shape, init);
    tn_optim *optim = tn_optim_create(ps, NULL);
    for (int64_t i = 0; i < 12; i++) v[i] = (double)(i % 5) - 1.5;
    CHECK_STATUS(tn_write(p->value, TN_F64, v, 12), TN_OK);
    if (fault == 0) bad[2] = 4;
    if (fault == 1) bad[3] = -1;
    tn_ctx_reset(ctx);
    tn_tensor *ids = tn_tensor_1d(ctx, TN_I32, four);
    CHECK_STATUS(tn_write(ids, TN_I32, fault == 2 ? id : bad, 4), TN_OK);
    tn_tensor *w = tn_full(ctx, 2, shape, fault == 3 ? (double)NAN : fault == 4 ? HUGE_VAL : 1);
    tn_record(ctx);
    tn_tensor *x = tn_mul(ctx, tn_embed(ctx, p->value, ids), w);
    if (fault == 2) {
        bad[1] = 3;                                                     /* the first invalid one of 3 labels */
        ids = tn_tensor_1d(ctx, TN_I32, four);
        CHECK_STATUS(tn_write(ids, TN_I32, bad, 4), TN_OK);
        loss = tn_cross_entropy(ctx, x, ids);
    } else loss = tn_sum(ctx, x);
    CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
    if (tn_optim_step(optim) == TN_OK) tn_ctx_sync(ctx);
    snprintf(text, 512, "%s: %s", tn_status_name(tn_ctx_status(ctx)), tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
    CHECK_STATUS(tn_read(p->value, TN_F64, after, 12), TN_OK);
    CHECK(memcmp(v, after, sizeof v) == 0);                             /* not updated */
    tn_ctx_reset(ctx);                                                  /* and the next step is not skipped */
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, p->value)), TN_OK);
    CHECK_STATUS(tn_optim_step(optim), TN_OK);
    CHECK_STATUS(tn_ctx_sync(ctx), TN_OK);
    CHECK_STATUS(tn_read(p->value, TN_F64, after, 12), TN_OK);
    CHECK(memcmp(v, after, sizeof v) != 0);
    tn_ctx_destroy(ctx);
}

TEST(faults)
{
    NEED_GPU();
    for (int fault = 0; fault < FAULTS; fault++) {
        char   a[512], b[512];
        double after[2][12];
        fault_on(device(), fault, a, after[0]);
        fault_on(NULL, fault, b, after[1]);
        CHECK_STR(a, b);
        CHECK(strlen(b) > 10 && strstr(b, "TN_OK") == NULL);
        CHECK(nmse(after[0], after[1], 12) <= 1e-10);
    }
    CHECK(guard_check());
}

/* ---- a whole training ------------------------------------------------------------------------------------------------------------------------- */

typedef struct lesson { const char *name; tn_attention_kind attention; tn_attend_form form; tn_optim_kind optim; int what; } lesson;

enum { LESSON_PLAIN, LESSON_GPT2, LESSON_RESIDUALS, LESSON_MLP, LESSON_DEEP };

static tn_transformer_desc lesson_desc(const lesson *l)
{
    tn_transformer_desc d = ZERO;
    d.vocab = 19;
    d.layers = 2;
    d.dim = 16;
    d.heads = 2;
    d.context = 12;
    d.hidden = 24;
    d.attention = l->attention;
    d.form = l->form;
    if (l->what == LESSON_GPT2) {
        d.norm = TN_NORM_LAYER;
        d.norm_bias = true;
        d.attn_bias = d.attn_out_bias = d.mlp_bias = d.mlp_out_bias = d.tied = true;
        d.positions = TN_POSITIONS_LEARNED;
        d.mlp = TN_MLP_GELU;
    }
    if (l->what == LESSON_RESIDUALS) {
        d.x0_residual = d.value_residual = d.qk_norm = true;
        d.softcap = 15;
        d.window = 7;
    }
    return d;
}

/* The losses of `steps` steps from one seed. */
static bool lesson_on(const tn_backend *backend, tn_dtype dtype, tn_dtype activations, const lesson *l, int steps, double *losses)
{
    enum { TEXTS = 3, TOKENS = 12, ROWS = 20, PIXELS = 30 };
    tn_desc        d = desc_with(backend, dtype);
    tn_optim_desc  od = ZERO;
    tn_ctx        *ctx;
    tn_transformer model;
    tn_mlp         mlp;
    tn_mlp         product;
    bool           ok;
    d.activations = activations;
    if (!CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK)) return false;
    tn_params *ps = tn_params_create(ctx);
    if (l->what == LESSON_MLP) {
        tn_mlp_desc md = ZERO;
        md.in = PIXELS;
        md.hidden = 17;
        md.out = 10;
        md.bias = md.out_bias = true;
        ok = CHECK_STATUS(tn_mlp_init(ps, "mlp", &md, &mlp), TN_OK);
    } else if (l->what == LESSON_DEEP) {
        tn_mlp_desc pd = ZERO;
        pd.order = 3;
        pd.in = PIXELS;
        pd.hidden = 17;
        pd.out = 10;
        ok = CHECK_STATUS(tn_mlp_init(ps, "product", &pd, &product), TN_OK);
    } else {
        tn_transformer_desc td = lesson_desc(l);
        ok = CHECK_STATUS(tn_transformer_init(ps, "", &td, &model), TN_OK);
    }
    od.kind = l->optim;
    od.momentum = l->optim == TN_OPTIM_SGD ? 0.9 : 0;
    od.weight_decay = 0.1;
    od.clip_norm = 0.5;
    od.schedule.kind = TN_SCHEDULE_COSINE;
    od.schedule.warmup = 3;
    od.schedule.total = 100;
    tn_optim *optim = tn_optim_create(ps, &od);
    for (int step = 0; ok && step < steps; step++) {
        const bool text = l->what < LESSON_MLP;
        uint64_t   rng = 1000 + (uint64_t)(step % 10);
        int32_t    id[TEXTS * TOKENS], next[TEXTS * TOKENS];
        double     pixel[ROWS * PIXELS];
        int64_t    n = text ? TEXTS * TOKENS : ROWS;
        tn_tensor *x, *y;
        for (int64_t i = 0; i < TEXTS * TOKENS; i++) id[i] = (int32_t)(test_random_int(&rng, 0, 18) * test_random_int(&rng, 0, 1));
        for (int64_t i = 0; i < n; i++) next[i] = text ? (id[i] * 3 + 1) % 19 : id[i] % 10;
        for (int64_t i = 0; i < ROWS * PIXELS; i++) pixel[i] = (double)(float)(test_random_real(&rng) + next[i / PIXELS] * 0.1);
        tn_ctx_reset(ctx);
        if (text) {
            x = tn_tensor_2d(ctx, TN_I32, TEXTS, TOKENS);
            y = tn_tensor_2d(ctx, TN_I32, TEXTS, TOKENS);
            ok = CHECK_STATUS(tn_write(x, TN_I32, id, n), TN_OK);
        } else {
            x = tn_tensor_2d(ctx, TN_REAL, ROWS, PIXELS);
            y = tn_tensor_1d(ctx, TN_I32, ROWS);
            ok = CHECK_STATUS(tn_write(x, TN_F64, pixel, ROWS * PIXELS), TN_OK);
        }
        ok = ok && CHECK_STATUS(tn_write(y, TN_I32, next, n), TN_OK);
        tn_record(ctx);
        tn_tensor *loss = text ? tn_transformer_loss(ctx, &model, x, y)
                    : tn_cross_entropy(ctx, l->what == LESSON_MLP ? tn_mlp_forward(ctx, &mlp, x) : tn_mlp_forward(ctx,
                                                                                                                  &product,
                                                                                                                      x), y);
        losses[step] = tn_item(loss);
        ok = ok && CHECK_STATUS(tn_backward(ctx, loss), TN_OK) && CHECK_STATUS(tn_optim_step(optim), TN_OK);
    }
    if (!CHECK_STATUS(tn_ctx_sync(ctx), TN_OK) || tn_ctx_status(ctx) != TN_OK) printf("     %s\n", tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return ok;
}

static const lesson lessons[] = {
    {"softmax, AdamW",            TN_ATTENTION_SOFTMAX,            TN_ATTEND_FORM_AUTO,      TN_OPTIM_ADAMW, LESSON_PLAIN},
    {"GPT-2's shape, AdamW",      TN_ATTENTION_SOFTMAX,            TN_ATTEND_FORM_AUTO,      TN_OPTIM_ADAMW, LESSON_GPT2},
    {"softmax, residuals, Muon",  TN_ATTENTION_SOFTMAX,            TN_ATTEND_FORM_AUTO,      TN_OPTIM_MUON,
      LESSON_RESIDUALS},
    {"squared, Muon",             TN_ATTENTION_SQUARED,            TN_ATTEND_FORM_QUADRATIC, TN_OPTIM_MUON,  LESSON_PLAIN},
    {"squared, linear, AdamW",    TN_ATTENTION_SQUARED,            TN_ATTEND_FORM_LINEAR,    TN_OPTIM_ADAMW, LESSON_PLAIN},
    {"bilinear, AdamW",           TN_ATTENTION_BILINEAR,           TN_ATTEND_FORM_QUADRATIC, TN_OPTIM_ADAMW, LESSON_PLAIN},
    {"bilinear, linear, Muon",    TN_ATTENTION_BILINEAR,           TN_ATTEND_FORM_LINEAR,    TN_OPTIM_MUON,  LESSON_PLAIN},
    {"differential, AdamW",       TN_ATTENTION_DIFFERENTIAL,       TN_ATTEND_FORM_AUTO,      TN_OPTIM_ADAMW, LESSON_PLAIN},
    {"plain differential, Muon",  TN_ATTENTION_DIFFERENTIAL_PLAIN, TN_ATTEND_FORM_AUTO,      TN_OPTIM_MUON,  LESSON_PLAIN},
    {"bilinear MLP, AdamW",       TN_ATTENTION_SOFTMAX,            TN_ATTEND_FORM_AUTO,      TN_OPTIM_ADAMW, LESSON_MLP},
    {"bilinear MLP, Muon",        TN_ATTENTION_SOFTMAX,            TN_ATTEND_FORM_AUTO,      TN_OPTIM_MUON,  LESSON_MLP},
    {"product of three, SGD",     TN_ATTENTION_SOFTMAX,            TN_ATTEND_FORM_AUTO,      TN_OPTIM_SGD,   LESSON_DEEP},
};

enum { LESSON_STEPS = 100 };

static void learn(tn_dtype dtype, tn_dtype activations, int steps, double gate)
{
    double worst = 0, a[LESSON_STEPS] = {0}, b[LESSON_STEPS] = {0};
    const char *worst_in = "none";
    char   what[160];
    for (size_t k = 0; k < sizeof lessons / sizeof *lessons; k++) {
        double here = 0;
        if (!lesson_on(device(), dtype, activations, &lessons[k], steps, a) || !lesson_on(NULL, dtype, activations, &lessons[k], steps, b)) {
            printf("     %s\n", lessons[k].name);
            continue;
        }
        for (int i = 0; i < steps; i++) test_raise(&here, fabs(a[i] / b[i] - 1));
        if (!CHECK(here <= gate)) printf("     %s: a loss is off by %.3g of it\n", lessons[k].name, here);
        if (!CHECK(b[steps - 1] < b[0] || steps < 20)) printf("     %s: %.4f to %.4f: nothing is learned\n", lessons[k].name, b[0], b[steps - 1]);
        if (test_raise(&worst, here)) worst_in = lessons[k].name;
    }
    snprintf(what, sizeof what, "loss over %d steps in %s against the cpu's (%s)", steps, activations == TN_BF16 ? "BF16" : dtype_text(dtype), worst_in);
    WORST(what, worst, gate);
    CHECK(guard_check());
}

TEST(trains_alike_f64) { NEED_GPU(); learn(TN_F64, TN_REAL, either(LESSON_STEPS, 4, 2), 1e-9); }
TEST(trains_alike_f32) { NEED_GPU(); learn(TN_F32, TN_REAL, either(10, 4, 2), 1e-5); }
TEST(trains_alike_bf16) { NEED_GPU(); learn(TN_F32, TN_BF16, either(10, 4, 2), 2e-2); }

/* ---- contexts ----------------------------------------------------------------------------------------------------------------------------------- */

/* Two at once, step by step: each as if it were alone. */
TEST(two_contexts)
{
    tn_ctx *ctx[2];
    tn_tensor *x[2];
    double  alone[2][30], both[2][30];
    int64_t n = 30;
    NEED_GPU();
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < 2; k++) {
            tn_desc d = desc_with(device(), k ? TN_F64 : TN_F32);
            d.seed = 5 + (uint64_t)k;
            REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx[k], NULL), TN_OK));
            x[k] = tn_tensor_keep(tn_normal(ctx[k], 1, &n, 0, 1));
            if (round) continue;
            for (int step = 0; step < 5; step++) {
                tn_ctx_reset(ctx[k]);
                tn_tensor *y = tn_tensor_keep(tn_add(ctx[k], x[k],
                                                     tn_activation(ctx[k], tn_uniform(ctx[k], 1, &n, -1, 1), TN_ACT_EXP)));
                tn_tensor_destroy(x[k]);
                x[k] = y;
            }
            CHECK_STATUS(tn_read(x[k], TN_F64, alone[k], n), TN_OK);
            tn_ctx_destroy(ctx[k]);
        }
        if (!round) continue;
        for (int step = 0; step < 10; step++) {
            int k = step % 2;
            tn_ctx_reset(ctx[k]);
            tn_tensor *y = tn_tensor_keep(tn_add(ctx[k], x[k],
                                                 tn_activation(ctx[k], tn_uniform(ctx[k], 1, &n, -1, 1), TN_ACT_EXP)));
            tn_tensor_destroy(x[k]);
            x[k] = y;
        }
        for (int k = 0; k < 2; k++) CHECK_STATUS(tn_read(x[k], TN_F64, both[k], n), TN_OK);
        tn_ctx_destroy(ctx[0]);
        tn_ctx_destroy(ctx[1]);
        for (int k = 0; k < 2; k++) CHECK(same_numbers(alone[k], both[k], n));
    }
    CHECK(guard_check());
}

TEST(a_device_that_is_not_there)
{
    static const int wrong[] = {-1, 99};
    NEED_GPU();
    for (size_t k = 0; k < 2; k++) {
        tn_desc d = desc_with(device(), TN_F32);
        tn_ctx *ctx;
        char    why[256] = "", part[32];
        d.device = wrong[k];
        snprintf(part, sizeof part, "desc.device is %d", wrong[k]);
        CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_BACKEND);
        CHECK(ctx == NULL);
        if (!CHECK(strstr(why, part) != NULL)) printf("     %s\n", why);
    }
}

/* ---- without a GPU -------------------------------------------------------------------------------------------------------------------------------- */

static char logged[1024];
static void keep_log(void *user, tn_log_level level, const char *message)
{
    (void)user;
    if (level == TN_LOG_WARN) snprintf(logged, sizeof logged, "%s", message);
}

/* The context runs on the cpu and says why; if the backend is required, that is an error. */
static void falls_back(const char *part)
{
    tn_desc d = desc_with(tn_cuda_backend(), TN_F32);
    tn_ctx *ctx;
    char    why[256] = "";
    int64_t n = 3;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_BACKEND);
    CHECK(ctx == NULL);
    if (!CHECK(strstr(why, part) != NULL)) printf("     \"%s\" says nothing of \"%s\"\n", why, part);
    d.backend_required = false;
    d.log = keep_log;
    logged[0] = 0;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_OK));
    CHECK_STR(tn_ctx_backend_name(ctx), "cpu");
    if (!CHECK(strstr(logged, part) != NULL)) printf("     \"%s\" says nothing of \"%s\"\n", logged, part);
    CHECK(tn_item(tn_sum(ctx, tn_full(ctx, 1, &n, 2))) == 6);
    tn_ctx_destroy(ctx);
}

#ifdef TN_CUDA_HOST
TEST(without_a_gpu)
{
    const char *was = getenv("TNCH_DEVICE");
    tnch_set_device(TNCH_NO_DEVICE);
    falls_back("no GPU");
    tnch_set_device(TNCH_NO_DRIVER);
    falls_back("driver");
    tnch_set_device(70);
    falls_back("sm_70");
    tnch_set_device(was ? atoi(was) : 90);
    NEED_GPU();
    tnch_set_ptx(75);                                /* compiled for an older GPU, and by the driver for this one */
    falls_back("compile tensornet_cuda.cu with nvcc -arch=sm_");
    tnch_set_ptx(-1);
    falls_back("invalid argument");
    CHECK(strstr(logged, "nvcc") == NULL);
    tnch_set_ptx(0);
    CHECK(tnch_memory_in_use() == 0);
}
#else
TEST(without_a_gpu)                              /* make test-gpu also runs this test with the GPUs hidden */
{
    char why[256];
    if (test_opens(tn_cuda_backend(), why)) SKIP("no gpu", "there is one");
    printf("%s\n", why);
    falls_back(why);
}
#endif

/* ---- device memory full ---------------------------------------------------------------------------------------------------------------------------- */

TEST(memory_full)
{
    tn_desc d = desc_with(device(), TN_F32);
    tn_ctx *ctx;
    int64_t huge = (int64_t)1 << 42, n = 3;
    NEED_GPU();
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    CHECK(tn_full(ctx, 1, &n, 2) != NULL);
    tn_memory before = tn_ctx_memory(ctx);
    REFUSED(ctx, tn_tensor_nd(ctx, TN_REAL, 1, &huge), TN_ERR_MEMORY, "17592186044");
    REFUSED(ctx, tn_tensor_create(ctx, TN_REAL, 1, &huge), TN_ERR_MEMORY, "17592186044");
    tn_memory after = tn_ctx_memory(ctx);
    CHECK(after.live == before.live);
    CHECK(tn_item(tn_sum(ctx, tn_full(ctx, 1, &n, 2))) == 6);
    CLOSE_CTX(ctx);
    CHECK(guard_check());
}

#ifdef TN_CUDA_HOST
/* Every allocation of a training run fails once: an error is reported, everything is freed, and nothing else happens. */
TEST(each_allocation_fails)
{
    static const lesson l = {"bilinear, Muon", TN_ATTENTION_BILINEAR, TN_ATTEND_FORM_LINEAR, TN_OPTIM_MUON, LESSON_PLAIN};
    long   n, failed = 0, well = 0;
    NEED_GPU();
    for (n = 1; n < 400 && well < 12; n++) {
        tn_desc d = desc_with(tn_cuda_backend(), TN_F32);
        test_heap heap = {0, 0, 0, 0, false};
        tn_ctx *ctx;
        char    why[256] = "";
        d.allocator = test_heap_allocator(&heap);
        tnch_fail_malloc(n);
        if (tn_ctx_create(&d, &ctx, why) != TN_OK) {
            CHECK(strlen(why) > 5);
            failed++;
            well = 0;
        } else {
            tn_params     *ps = tn_params_create(ctx);
            tn_transformer model;
            tn_transformer_desc td = lesson_desc(&l);
            static const int32_t id[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
            tn_tensor     *ids;
            tn_optim      *optim;
            int64_t        three = 3;
            if (tn_transformer_init(ps, "", &td, &model) == TN_OK && (optim = tn_optim_create(ps, NULL)) != NULL
                && (ids = tn_tensor_2d(ctx, TN_I32, 1, 12)) != NULL) {
                tn_write(ids, TN_I32, id, 12);
                tn_record(ctx);
                if (tn_backward(ctx, tn_transformer_loss(ctx, &model, ids, ids)) == TN_OK) tn_optim_step(optim);
            }
            tn_ctx_sync(ctx);
            if (tn_ctx_status(ctx) != TN_OK) {
                CHECK_STATUS(tn_ctx_status(ctx), TN_ERR_MEMORY);
                if (tn_ctx_status(ctx) != TN_ERR_MEMORY) printf("     allocation %ld: %s\n", n, tn_ctx_error(ctx));
                failed++;
                tnch_fail_malloc(0);
                tn_ctx_clear_error(ctx);
                tn_ctx_reset(ctx);
                CHECK(tn_item(tn_sum(ctx, tn_full(ctx, 1, &three, 2))) == 6);              /* usable */
                CHECK_CTX(ctx);
                well = 0;
            } else well++;                       /* nothing failed, or nothing that was needed */
            tn_ctx_destroy(ctx);
        }
        tnch_fail_malloc(0);
        CHECK_INT(heap.live, 0);
        CHECK_INT(tnch_memory_in_use(), 0);
    }
    printf("%ld of %ld allocations failed with an error\n", failed, n - 1);
    CHECK(well == 12 && failed > 3);
}
#else
TEST(each_allocation_fails) { SKIP("the engine", "a GPU does not fail when asked to"); }
#endif

/* ---- a kernel faults ------------------------------------------------------------------------------------------------------------------------------- */

#ifdef TN_CUDA_HOST
#define BREAK_NEXT_LAUNCH(x) tnch_fail_launch(1)
#else
#define BREAK_NEXT_LAUNCH(x) ((x)->data = (char *)(x)->data + ((int64_t)1 << 44))      /* no GPU has that much */
#endif

/* The first error is kept, with its op and shapes; the context is lost, and the program continues. waits: TN_SYNC, which
   names the op that caused it. */
static void lose(bool waits)
{
    tn_desc d = desc_with(tn_cuda_backend(), TN_F32);
    tn_ctx *ctx;
    int64_t shape[2] = {3, 5};
    char    text[512];
    double  v[15];
    setenv("TN_SYNC", waits ? "1" : "0", 1);
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    tn_tensor *x = tn_full(ctx, 2, shape, 1);
    CHECK_STATUS(tn_ctx_sync(ctx), TN_OK);
    BREAK_NEXT_LAUNCH(x);
    x = tn_activation(ctx, x, TN_ACT_EXP);
    if (waits) CHECK(x == NULL);
    tn_ctx_sync(ctx);
    CHECK_STATUS(tn_ctx_status(ctx), TN_ERR_BACKEND);
    if (waits && !CHECK(strstr(tn_ctx_error(ctx), "act [15] -> [15]") != NULL)) printf("     %s\n", tn_ctx_error(ctx));
    if (!waits) printf("without TN_SYNC: %s\n", tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
    CHECK_STATUS(tn_ctx_sync(ctx), TN_ERR_BACKEND);               /* it stays lost, and reports the same error */
    snprintf(text, sizeof text, "%s", tn_ctx_error(ctx));
    if (waits && !CHECK(strstr(text, "act [15] -> [15]") != NULL)) printf("     %s\n", text);
    tn_ctx_clear_error(ctx);
    CHECK(tn_full(ctx, 2, shape, 1) == NULL);
    CHECK_STATUS(tn_ctx_status(ctx), TN_ERR_BACKEND);
    tn_ctx_clear_error(ctx);
    if (x) CHECK(tn_read(x, TN_F64, v, 15) != TN_OK);
    tn_ctx_clear_error(ctx);
    tn_ctx_sync(ctx);
    CHECK_STR(tn_ctx_error(ctx), text);
    tn_ctx_destroy(ctx);
    unsetenv("TN_SYNC");
}

/* After a fault a process cannot use the GPU any more: make test-gpu runs this test alone, with TN_CUDA_BREAK=1. */
TEST(kernel_fault)
{
    const char *wanted = getenv("TN_CUDA_BREAK");
    NEED_GPU();
    REQUIRE(tn_cuda_backend()->fn[TN_KERNEL_ACT] != NULL);
#ifdef TN_CUDA_HOST
    (void)wanted;
    lose(true);
    tnch_clear();
    lose(false);
    tnch_clear();
    two_contexts();                                              /* as ever */
#else
    if (!wanted || strcmp(wanted, "1") != 0) SKIP("TN_CUDA_BREAK=1", "it takes the GPU from all tests after it");
    lose(true);
#endif
}

/* ---- every entry of the kernel table, on the device itself ------------------------------------------------------------------------- */

TEST(coverage)
{
    NEED_GPU();
    if (device() != &guard.table) SKIP("sentinels", "TN_CUDA_RAW is set: nothing is counted");
    if (!walked) SKIP("all tests of this program", "a table of some of them would say nothing");
    device();
    printf("%-28s %10s %10s %10s %10s %10s\n", "on the device itself", "F32", "F64", "BF16", "I32", "refused");
    for (int k = 0; k < TN_KERNEL_COUNT; k++) {
        const uint64_t *ran = guard.ran[k];
        if (k == TN_KERNEL_SCAN_CORES && !tn_cuda_backend()->fn[k]) continue;                  /* composed of products */
        if (!CHECK(tn_cuda_backend()->fn[k] != NULL)) { printf("     %s is missing\n", tn_kernel_name((tn_kernel)k)); continue; }
        printf("%-28s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n", tn_kernel_name((tn_kernel)k), ran[TN_F32], ran[TN_F64],
               ran[TN_BF16], ran[TN_I32], guard.refused[k]);
        if (!CHECK(ran[TN_F32] + ran[TN_F64] + ran[TN_BF16] + ran[TN_I32] > 0)) printf("     %s was never called\n", tn_kernel_name((tn_kernel)k));
    }
}

TEST_MAIN(device_and_cublas, sentinels, cases_f64, cases_f32, cases_f32_beside, cases_bf16, cases_tf32, cases_gemm_bf16, gemm_of_all_kinds, copies_of_all_kinds, tall_and_wide,
          large_shapes, nan_and_infinity, determinism, random_numbers, faults, trains_alike_f64, trains_alike_f32, trains_alike_bf16,
          two_contexts, a_device_that_is_not_there, without_a_gpu, memory_full, each_allocation_fails, coverage, kernel_fault)
