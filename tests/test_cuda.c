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

/* ---- rows called directly: what no op makes, but the row's contract allows -------------------------------------------------- */

/* One operand: a buffer of `room` elements, with the element 0 of a view at `first`. Its numbers are such as the device's dtype holds. */
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
    return (uint16_t)(x != x ? 0x7FC0 : u >> 16);             /* x is one already: nothing to round */
}

static double bf16_number(uint16_t bits)
{
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

/* With strides; lowest element first. NULL strides: contiguous. */
static operand operand_make(uint64_t *rng, tn_dtype dtype, int rank, const int64_t *shape, const int64_t *strides)
{
    operand o;
    int64_t step = 1, low = 0, high = 0, i;
    int k;
    memset(&o, 0, sizeof o);
    o.dtype = dtype;
    o.rank = rank;
    for (k = rank - 1; k >= 0; k--) {
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
    for (i = 0; i < o.room; i++) o.v[i] = dtype == TN_I32 ? 0 : rounded(dtype, test_random_real(rng));
    return o;
}

/* Back to front, and every index once: element e of a row-major walk through the view. */
static int64_t operand_at(const operand *o, int64_t e)
{
    int64_t at = o->first;
    int k;
    for (k = o->rank - 1; k >= 0; k--) { at += e % o->shape[k] * o->strides[k]; e /= o->shape[k]; }
    return at;
}

static void operand_bytes(const operand *o, tn_dtype as, void *to)
{
    int64_t i;
    for (i = 0; i < o->room; i++) {
        if (as == TN_F64) ((double *)to)[i] = o->v[i];
        else if (as == TN_F32) ((float *)to)[i] = (float)o->v[i];
        else if (as == TN_BF16) ((uint16_t *)to)[i] = bf16_bits(o->v[i]);
        else ((int32_t *)to)[i] = (int32_t)o->v[i];
    }
}

static void operand_numbers(double *v, int64_t n, tn_dtype as, const void *from)
{
    int64_t i;
    for (i = 0; i < n; i++)
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
    bool        accumulate, bits;                /* bits: the same numbers, not nearly */
} direct;

static bool direct_absent(const operand *o) { return o->v == NULL; }

/* The call on one backend, reals as `wide` where that is not TN_REAL. after[k]: all of output k's buffer. */
static tn_status direct_on(const tn_backend *b, void *state, const direct *d, tn_dtype wide, double **after)
{
    tn_call   c;
    void     *raw[TN_CALL_IN + TN_CALL_OUT] = {NULL}, *host[TN_CALL_IN + TN_CALL_OUT] = {NULL};
    size_t    bytes[TN_CALL_IN + TN_CALL_OUT] = {0};
    tn_status s = TN_OK;
    int       k;
    memset(&c, 0, sizeof c);
    c.kernel = d->kernel;
    c.n_in = d->n_in;
    c.n_out = d->n_out;
    memcpy(c.i, d->i, sizeof c.i);
    memcpy(c.f, d->f, sizeof c.f);
    c.accumulate = d->accumulate;
    for (k = 0; k < d->n_in + d->n_out && s == TN_OK; k++) {
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
    for (k = 0; k < d->n_out && s == TN_OK; k++) {
        const operand *o = &d->out[k];
        if (direct_absent(o)) continue;
        s = b->download(state, host[d->n_in + k], raw[d->n_in + k], bytes[d->n_in + k]);
        after[k] = (double *)malloc(sizeof(double) * (size_t)o->room);
        operand_numbers(after[k], o->room, c.out[k].dtype, host[d->n_in + k]);
    }
    for (k = 0; k < d->n_in + d->n_out; k++) {
        if (raw[k]) b->release(state, raw[k], bytes[k]);
        free(host[k]);
    }
    return s;
}

/* A backend's state without a context. */
static void *opened(const tn_backend *b, tn_gemm_precision precision)
{
    static test_heap heap;
    tn_desc d = desc_with(b, TN_F32);
    void   *state = NULL;
    char    why[256] = "";
    d.allocator = test_heap_allocator(&heap);
    d.gemm_precision = precision;
    if (CHECK_STATUS(b->open(&d, &state, why), TN_OK)) return state;
    printf("     %s\n", why);
    return NULL;
}

static void direct_free(direct *d)
{
    int k;
    for (k = 0; k < TN_CALL_IN; k++) free(d->in[k].v);
    for (k = 0; k < TN_CALL_OUT; k++) free(d->out[k].v);
}

/* On the device and on the reference in double. Frees the operands. A row that is missing is coverage's affair. */
static bool direct_check(void *state, void *reference, direct *d)
{
    const tn_backend *backend = &guard.table;
    double   *got[TN_CALL_OUT] = {NULL}, *want[TN_CALL_OUT] = {NULL};
    tn_status s;
    bool      ok = true;
    int       k;
    if (!backend->fn[d->kernel]) { direct_free(d); return true; }
    s = direct_on(backend, state, d, TN_REAL, got);
    if (s != TN_OK) { printf("     %s: %s\n", d->what, tn_status_name(s)); ok = false; }
    s = direct_on(tn_reference_backend(), reference, d, TN_F64, want);
    if (s != TN_OK) { printf("     %s, reference: %s\n", d->what, tn_status_name(s)); ok = false; }
    for (k = 0; k < d->n_out && ok; k++) {
        operand *o = &d->out[k];
        int64_t  n = shape_count(o->rank, o->shape), e;
        double  *a, *b, worst;
        if (direct_absent(o)) continue;
        a = (double *)malloc(sizeof *a * (size_t)(n + 1));
        b = (double *)malloc(sizeof *b * (size_t)(n + 1));
        for (e = 0; e < n; e++) {
            int64_t at = operand_at(o, e);
            a[e] = got[k][at];
            b[e] = d->bits ? rounded(o->dtype, want[k][at]) : want[k][at];
            o->v[at] = got[k][at] = (double)NAN;                 /* what is left must be as it was */
        }
        for (e = 0; e < o->room; e++) if (o->v[e] == o->v[e] && o->v[e] != got[k][e]) { printf("     %s: output %d: beside it\n", d->what, k); ok = false; break; }
        worst = nmse(a, b, n);
        if (!(worst <= (d->bits ? 0 : d->gate)) && !(is_noise(a, b, n, d->gate) && !d->bits)) {
            printf("     %s: output %d: NMSE %.3g, allowed %.3g\n", d->what, k, worst, d->bits ? 0 : d->gate);
            ok = false;
        }
        free(a);
        free(b);
    }
    for (k = 0; k < TN_CALL_OUT; k++) { free(got[k]); free(want[k]); }
    direct_free(d);
    return CHECK(ok) && CHECK(guard_check());
}

/* layout 0: by rows, 1: by columns, 2, 3: the same in longer lines, of an odd length, 4: every second, 5: one row for all, 6: rows from
   the last to the first */
static operand matrix_make(uint64_t *rng, tn_dtype dtype, int64_t batch, int64_t rows, int64_t cols, int layout)
{
    int64_t shape[3], strides[3], span;
    shape[0] = batch; shape[1] = rows; shape[2] = cols;
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
    span = rows * (strides[1] < 0 ? -strides[1] : strides[1]) + cols * strides[2] + 3;
    strides[0] = layout == 5 ? 0 : span;
    return operand_make(rng, dtype, 3, shape, strides);
}

static const char *dtype_text(tn_dtype t) { return t == TN_F32 ? "F32" : t == TN_F64 ? "F64" : t == TN_BF16 ? "BF16" : t == TN_I32 ? "I32" : "none"; }

/* Draws one product. types: of A, B, C and the bias, whose TN_REAL is none. */
static void gemm_once(void *state, void *reference, uint64_t *rng, const tn_dtype *types, int64_t b, int64_t m, int64_t n, int64_t k,
                      int of_a, int of_b, int of_c, double alpha, double beta, double gate)
{
    static char what[200];
    direct  d;
    int64_t i;
    memset(&d, 0, sizeof d);
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
    d.gate = types[2] == TN_BF16 && gate < 3e-5 ? 3e-5 : gate;
    direct_check(state, reference, &d);
}

TEST(gemm_of_all_kinds)
{
    static const tn_dtype pick[2] = {TN_F32, TN_BF16};
    static const double   alphas[] = {1, -0.75, 0}, betas[] = {0, 1, -0.5};
    static const int64_t  extents[] = {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65, 130};
    uint64_t rng = 4711;
    void    *state, *reference;
    int      i;
    NEED_DEVICE();
    REQUIRE(device()->fn[TN_KERNEL_GEMM] || not_yet[0] != TN_KERNEL_COUNT);
    state = opened(device(), TN_GEMM_F32);
    reference = opened(tn_reference_backend(), TN_GEMM_F32);
    REQUIRE(state != NULL && reference != NULL);
    guard.stage = true;
    for (i = 0; i < 600 && test_now.failures < 10; i++) {
        tn_dtype types[4];
        int64_t  e[4];
        int      k;
        guard.shift = i % 3 == 2;
        for (k = 0; k < 4; k++) types[k] = i % 4 == 0 ? TN_F64 : pick[test_random_int(&rng, 0, 1)];
        if (test_random_int(&rng, 0, 2)) types[3] = TN_REAL;
        for (k = 0; k < 3; k++) e[k] = extents[test_random_int(&rng, 0, 13)];
        gemm_once(state, reference, &rng, types, i % 5 ? 1 : test_random_int(&rng, 0, 4), e[0], e[1], e[2], (int)test_random_int(&rng, 0, 6),
                  (int)test_random_int(&rng, 0, 6), (int)test_random_int(&rng, 0, 4), alphas[test_random_int(&rng, 0, 2)],
                  betas[test_random_int(&rng, 0, 2)], i % 4 ? 1e-10 : 1e-24);
    }
    guard.stage = guard.shift = false;
    tn_reference_backend()->close(reference);
    device()->close(state);
}

/* Copies of any dtype to any other, views of any strides, up to rank 8. */
TEST(copies_of_all_kinds)
{
    uint64_t rng = 815;
    void    *state, *reference;
    int      i;
    NEED_DEVICE();
    state = opened(device(), TN_GEMM_F32);
    reference = opened(tn_reference_backend(), TN_GEMM_F32);
    REQUIRE(state != NULL && reference != NULL);
    guard.stage = true;
    for (i = 0; i < 400 && test_now.failures < 10; i++) {
        static char what[200];
        direct   d;
        int64_t  shape[TN_MAX_RANK], strides[2][TN_MAX_RANK], e;
        int      rank = (int)test_random_int(&rng, 0, 8), side, k, n;
        tn_dtype types[2];
        memset(&d, 0, sizeof d);
        for (side = 0; side < 2; side++) types[side] = (tn_dtype)test_random_int(&rng, TN_F32, TN_I32);
        for (k = 0; k < rank; k++) shape[k] = test_random_int(&rng, 0, 40) == 0 ? 0 : test_random_int(&rng, 1, rank > 4 ? 3 : i % 16 == 0 ? 40 : 9);
        for (side = 0; side < 2; side++) {          /* axes in any order, with gaps, any of them backwards */
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
        n = snprintf(what, sizeof what, "copy %s to %s of [", dtype_text(types[0]), dtype_text(types[1]));
        for (k = 0; k < rank; k++) n += snprintf(what + n, sizeof what - (size_t)n, "%d (%d to %d) ", (int)shape[k], (int)strides[0][k], (int)strides[1][k]);
        d.what = what;
        d.kernel = TN_KERNEL_COPY;
        d.n_in = d.n_out = 1;
        d.bits = true;
        d.in[0] = operand_make(&rng, types[0], rank, shape, strides[0]);
        d.out[0] = operand_make(&rng, types[1], rank, shape, strides[1]);
        for (e = 0; e < d.in[0].room; e++) d.in[0].v[e] = types[0] == TN_I32 ? (double)test_random_int(&rng, -200, 200) : rounded(types[0], test_random_real(&rng) * 100);
        direct_check(state, reference, &d);
    }
    guard.stage = false;
    tn_reference_backend()->close(reference);
    device()->close(state);
}

/* ---- tall and wide: beyond the 65535 blocks of a grid's second and third axis --------------------------------------------------------- */

enum { TALL = 66000, TALL_INPUTS = 3 };

typedef struct tall_case {
    const char *name;
    int         rank;
    int64_t     shape[4];
    int         what;
} tall_case;

enum { TALL_ACT, TALL_GLU, TALL_PROD, TALL_RMSNORM, TALL_LAYERNORM, TALL_SUM, TALL_SUM_ROWS, TALL_ENTROPY, TALL_ARGMAX, TALL_ACCURACY, TALL_EMBED,
       TALL_BATCH, TALL_AFFINE, TALL_THIN, TALL_ROPE, TALL_SOFTMAX, TALL_SQUARED, TALL_BILINEAR, TALL_LINEAR, TALL_TURNED, TALL_STRETCHED, TALL_DROPOUT,
       TALL_ONE, TALL_CHAIN };

static tn_tensor *tall_attend(tn_ctx *ctx, tn_tensor *x, tn_attend_kind kind, tn_attend_form form)
{
    tn_attend_desc d;
    memset(&d, 0, sizeof d);
    d.kind = kind;
    d.form = form;
    d.causal = true;
    return tn_attend(ctx, x, x, kind == TN_ATTEND_BILINEAR ? tn_slice(x, 2, 0, 1) : x, &d);
}

static tn_tensor *tall_run(tn_ctx *ctx, tn_tensor *x, tn_tensor *ids, int what)
{
    tn_rope_desc rope;
    memset(&rope, 0, sizeof rope);
    rope.norm = true;
    switch (what) {
    case TALL_ACT:       return tn_activation(ctx, x, TN_ACT_GELU);
    case TALL_GLU:       return tn_glu(ctx, x, TN_ACT_SWISH);
    case TALL_PROD:      return tn_prod(ctx, x, 3);
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
    case TALL_SOFTMAX:   return tall_attend(ctx, x, TN_ATTEND_SOFTMAX, TN_ATTEND_AUTO);
    case TALL_SQUARED:   return tall_attend(ctx, x, TN_ATTEND_SQUARED, TN_ATTEND_QUADRATIC);
    case TALL_BILINEAR:  return tall_attend(ctx, x, TN_ATTEND_BILINEAR, TN_ATTEND_QUADRATIC);
    case TALL_LINEAR:    return tall_attend(ctx, x, TN_ATTEND_BILINEAR, TN_ATTEND_LINEAR);
    case TALL_TURNED:    return tn_copy(ctx, tn_transpose(x, 0, 1));
    case TALL_STRETCHED: return tn_mul(ctx, tn_slice(x, 1, 0, 1), x);
    case TALL_DROPOUT:   return tn_dropout(ctx, x, 0.25);
    case TALL_ONE:       return tn_append_one(ctx, x);
    default:             return tn_chain(ctx, x, NULL);
    }
}

typedef struct tall_result { double *y, *g; int64_t count, inputs; } tall_result;

static bool tall_on(const tn_backend *backend, tn_dtype dtype, const tall_case *c, tall_result *r)
{
    tn_desc    d = desc_with(backend, dtype);
    const int64_t n = shape_count(c->rank, c->shape), rows = c->shape[0] < TALL && c->what != TALL_EMBED ? c->shape[0] : TALL, last = c->shape[c->rank - 1];
    const int64_t limit = c->what == TALL_EMBED ? c->shape[0] : last;
    int64_t    i;
    uint64_t   rng = 99;
    double    *v = (double *)malloc(sizeof *v * (size_t)n);
    int32_t   *id = (int32_t *)malloc(sizeof *id * (size_t)rows);
    tn_tensor *x, *ids, *y;
    tn_ctx    *ctx;
    bool       ok;
    memset(r, 0, sizeof *r);
    d.arena_bytes = 0;
    for (i = 0; i < n; i++) v[i] = (double)(float)(test_random_real(&rng) + 1.25);
    for (i = 0; i < rows; i++) id[i] = (int32_t)test_random_int(&rng, 0, limit - 1);
    ok = CHECK_STATUS(tn_ctx_create(&ctx, &d, NULL), TN_OK);
    if (ok) {
        tn_ctx_reset(ctx);
        x = tn_tensor_new(ctx, TN_REAL, c->rank, c->shape);
        ids = tn_tensor_1d(ctx, TN_I32, rows);
        CHECK_STATUS(tn_write(x, TN_F64, v, n), TN_OK);
        CHECK_STATUS(tn_write(ids, TN_I32, id, rows), TN_OK);
        CHECK_STATUS(tn_watch(x), TN_OK);
        tn_record(ctx);
        y = tall_run(ctx, x, ids, c->what);
        if (y) {
            r->count = tn_tensor_count(y);
            r->inputs = n;
            r->y = (double *)malloc(sizeof *r->y * (size_t)r->count);
            ok = CHECK_STATUS(tn_read(y, TN_F64, r->y, r->count), TN_OK);
            if (ok && c->what != TALL_ARGMAX && c->what != TALL_ACCURACY) {
                tn_tensor *w = tn_tensor_new(ctx, TN_REAL, y->rank, y->shape);
                double    *weights = (double *)malloc(sizeof *weights * (size_t)r->count);
                for (i = 0; i < r->count; i++) weights[i] = weight_of(i);
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

/* Within the gate, or within what the cpu needs in the same numbers. */
static bool tall_agrees(const tall_case *c, tn_dtype dtype, bool gradient, const double *a, const double *b, int64_t n, double gate)
{
    const double e = nmse(a, b, n);
    tall_result  cpu;
    double       other = 0;
    if (e <= gate || is_noise(a, b, n, gate)) return true;
    if (tall_on(tn_cpu_backend(), dtype, c, &cpu)) other = nmse(gradient ? cpu.g : cpu.y, b, n);
    free(cpu.y);
    free(cpu.g);
    if (e <= 4 * other) return true;
    printf("     %s: NMSE %.3g, allowed %.3g; cpu has %.3g\n", gradient ? "the gradient" : "the value", e, gate, other);
    return false;
}

static void tall_check(const tall_case *c, tn_dtype dtype, double gate)
{
    tall_result got, want;
    bool ok = tall_on(device(), dtype, c, &got);
    memset(&want, 0, sizeof want);
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
        {"rmsnorm, wide",       2, {2, TALL, 0, 0},    TALL_RMSNORM},
        {"layernorm, tall",     2, {TALL, 3, 0, 0},    TALL_LAYERNORM},
        {"layernorm, wide",     2, {2, TALL, 0, 0},    TALL_LAYERNORM},
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
        {"rope, many texts",    4, {TALL, 1, 1, 2},    TALL_ROPE},
        {"rope, a long text",   4, {1, TALL, 1, 2},    TALL_ROPE},
        {"rope, many heads",    4, {1, 1, TALL, 2},    TALL_ROPE},
        {"softmax attention",   4, {TALL, 2, 1, 2},    TALL_SOFTMAX},
        {"squared attention",   4, {TALL, 2, 1, 2},    TALL_SQUARED},
        {"bilinear attention",  4, {TALL, 2, 2, 2},    TALL_BILINEAR},
        {"linear attention",    4, {TALL, 2, 2, 2},    TALL_LINEAR},
        {"turned, tall",        2, {TALL, 3, 0, 0},    TALL_TURNED},
        {"turned, batch",       3, {TALL, 2, 2, 0},    TALL_TURNED},
        {"stretched",           2, {TALL, 3, 0, 0},    TALL_STRETCHED},
        {"dropout",             2, {TALL, 3, 0, 0},    TALL_DROPOUT},
        {"append_one",          2, {TALL, 2, 0, 0},    TALL_ONE},
        {"chains",              4, {TALL, 2, 2, 2},    TALL_CHAIN},
        {"a long chain",        4, {1, 700, 3, 3},     TALL_CHAIN},
    };
    size_t k;
    NEED_DEVICE();
    for (k = 0; k < sizeof list / sizeof *list; k++) tall_check(&list[k], TN_F32, 1e-10);
}

/* What only a GPU does in time. */
TEST(large_shapes)
{
    static const tall_case list[] = {
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
    size_t k;
    NEED_DEVICE();
    if (!wanted || !*wanted || strcmp(wanted, "0") == 0) SKIP("TN_CUDA_LARGE=1", "these take minutes on the engine");
    for (k = 0; k < sizeof list / sizeof *list; k++) tall_check(&list[k], TN_F32, 1e-10);
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

TEST_MAIN(cases_f64, cases_f32, cases_f32_beside, cases_bf16, cases_tf32, cases_gemm_bf16, gemm_of_all_kinds, copies_of_all_kinds, tall_and_wide,
          large_shapes, coverage)
