/* Linear attention on the cuda backend, kernel by kernel against the reference in double: several chunks, partial chunks,
   long and short sides, states, head dimensions that have kernels of their own and others. LOUD=1 prints the error of every
   shape. */

#include "test.h"
#ifdef TN_CUDA_HOST
#include "cuda_host/control.h"
#endif
#include <float.h>

/* left: number of bytes that a call finds free, 0: all. keep: differ leaves the output in got, and its caller frees it. */
typedef struct world {
    const tn_backend *gpu;
    void             *state;
    uint64_t          seed;
    size_t            left, scratch;
    bool              keep;
    double           *got;
    int64_t           calls;
} world;

static double uniform(world *w)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(w->seed >> 40) / (double)(1 << 24) * 2 - 1;
}

/* An operand [B,T,n,d] with rows of `pitch` numbers: on the host in double, as stored, and on the device. */
typedef struct operand { int64_t B, T, n, d, pitch, count; double *x; void *at; tn_view v; } operand;

static size_t size_of(tn_dtype t) { return t == TN_F64 ? 8 : t == TN_F32 ? 4 : 2; }

static float from_bf16(uint16_t h) { uint32_t u = (uint32_t)h << 16; float f; memcpy(&f, &u, 4); return f; }

static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Copies an operand to the device; x then holds what is stored there. */
static void put(world *w, operand *o)
{
    char *raw = (char *)malloc((size_t)o->count * 8 + 1);
    for (int64_t i = 0; i < o->count; i++) {
        if (o->v.dtype == TN_F64) ((double *)raw)[i] = o->x[i];
        if (o->v.dtype == TN_F32) o->x[i] = ((float *)raw)[i] = (float)o->x[i];
        if (o->v.dtype == TN_BF16) o->x[i] = from_bf16(((uint16_t *)raw)[i] = to_bf16((float)o->x[i]));
    }
    CHECK_STATUS(w->gpu->upload(w->state, o->at, raw, (size_t)o->count * size_of(o->v.dtype)), TN_OK);
    free(raw);
}

static double *get(world *w, const operand *o)
{
    char   *raw = (char *)malloc((size_t)o->count * 8 + 1);
    double *x = (double *)malloc((size_t)o->count * 8 + 8);
    CHECK_STATUS(w->gpu->download(w->state, raw, o->at, (size_t)o->count * size_of(o->v.dtype)), TN_OK);
    for (int64_t i = 0; i < o->count; i++)
        x[i] = o->v.dtype == TN_F64 ? ((double *)raw)[i] : o->v.dtype == TN_F32 ? (double)((float *)raw)[i]
                                                         : (double)from_bf16(((uint16_t *)raw)[i]);
    free(raw);
    return x;
}

static operand make(world *w, int64_t B, int64_t T, int64_t n, int64_t d, int64_t pad, tn_dtype dtype, double size)
{
    operand o = ZERO;
    o.B = B; o.T = T; o.n = n; o.d = d;
    o.pitch = n * d + pad;
    o.count = B * T * o.pitch;
    o.x = (double *)malloc((size_t)o.count * 8 + 8);
    for (int64_t i = 0; i < o.count; i++) o.x[i] = size * uniform(w);
    o.v.dtype = dtype;
    o.v.rank = 4;
    o.v.shape[0] = B; o.v.shape[1] = T; o.v.shape[2] = n; o.v.shape[3] = d;
    o.v.strides[0] = T * o.pitch; o.v.strides[1] = o.pitch; o.v.strides[2] = d; o.v.strides[3] = 1;
    o.v.data = o.at = w->gpu->alloc(w->state, (size_t)o.count * size_of(dtype) + 64);
    CHECK(o.at != NULL);
    put(w, &o);
    return o;
}

static void drop(world *w, operand *o)
{
    free(o->x);
    w->gpu->release(w->state, o->at, (size_t)o->count * size_of(o->v.dtype) + 64);
}

/* The view of the same operand in doubles, for the reference: of y, or else of its own numbers. */
static tn_view plain(const operand *o, double *y)
{
    tn_view v = o->v;
    v.dtype = TN_F64;
    v.data = y ? y : o->x;
    return v;
}

/* The engine can limit the memory that a call finds. */
static tn_status call_gpu(world *w, const tn_call *c)
{
#ifdef TN_CUDA_HOST
    const size_t before = tnch_memory_in_use() - w->scratch;
    if (w->left) tnch_set_memory(before + w->left);
    tn_status status = w->gpu->fn[c->kernel](w->state, c);
    w->scratch = tnch_memory_in_use() - before;
    if (w->left) tnch_set_memory((size_t)1 << 30);
    return status;
#else
    return w->gpu->fn[c->kernel](w->state, c);
#endif
}

/* NaN if the sums of squares are not finite, since finite / infinite would hide the error. */
static double nmse(const double *x, const double *y, int64_t n)
{
    const double e = test_frobenius(x, y, n);
    return e * e;
}

/* kept: with a state of 37 keys. pad: numbers between the rows. */
typedef struct shape { int64_t B, H, Tq, Tk, d, dv; int kind, causal, row, kept; int64_t pad; } shape;

/* The same call on both backends: the reference's results are in x, in double, the device's beside them. */
typedef struct attempt {
    operand q, k, v, o, stat, state, dout, to[3];
    tn_call c, r;
    double *work;
} attempt;

/* The state after 37 keys whose features are positive, so that a row sum is positive. */
static void fill_state(world *w, const shape *s, operand *state, double size)
{
    const bool    squared = s->kind == TN_ATTEND_SQUARED;
    const int64_t n = state->d, F = state->n;
    memset(state->x, 0, (size_t)state->count * sizeof(double));
    for (int64_t head = 0; head < s->B * s->H; head++)
        for (int64_t j = 0; j < 37; j++) {
            double key[2][128], values[129], *to = state->x + head * F * n;
            for (int64_t a = 0; a < 2 * s->d; a++) key[a / s->d][a % s->d] = size * uniform(w);
            for (int64_t e = 0; e < n; e++) values[e] = e < s->dv ? uniform(w) : 1;
            for (int64_t a = 0; a < s->d; a++)
                for (int64_t b = squared ? a : 0; b < s->d; b++, to += n)
                    for (int64_t e = 0; e < n; e++) to[e] += key[0][a] * key[squared ? 0 : 1][b] * values[e];
        }
    put(w, state);
}

/* The forward call for keys and queries of this size. */
static attempt forwards(world *w, const shape *s, tn_dtype dtype, double size)
{
    const bool     squared = s->kind == TN_ATTEND_SQUARED, sums = s->row == TN_ROW_SCALE_SUM;
    const int64_t  sets = squared ? 1 : 2, n = s->dv + sums, F = squared ? s->d * (s->d + 1) / 2 : s->d * s->d;
    const tn_dtype real = dtype == TN_F64 ? TN_F64 : TN_F32;
    attempt        t = ZERO;
    t.work = (double *)malloc(sizeof(double) * (size_t)(F * (s->dv + 1) + 2 * s->d + 3 * s->dv + 9));
    t.q = make(w, s->B, s->Tq, sets * s->H, s->d, s->pad, dtype, size);
    t.k = make(w, s->B, s->Tk, sets * s->H, s->d, s->pad, dtype, size);
    t.v = make(w, s->B, s->Tk, s->H, s->dv, s->pad, dtype, 1);
    t.o = make(w, s->B, s->Tq, s->H, s->dv, s->pad, dtype, 1);
    t.stat = make(w, s->B, s->H, 1, s->Tq, 0, real, 1);
    t.state = make(w, s->B, s->H, F, n, 0, real, 1);
    if (s->kept) fill_state(w, s, &t.state, size);
    t.c.kernel = TN_KERNEL_ATTENTION_LINEAR;
    t.c.n_in = 3; t.c.n_out = 4;
    t.c.in[0] = t.q.v; t.c.in[1] = t.k.v; t.c.in[2] = t.v.v;
    t.c.out[0] = t.o.v;
    t.stat.v.rank = 3; t.stat.v.shape[0] = s->B; t.stat.v.shape[1] = s->H; t.stat.v.shape[2] = s->Tq;
    if (sums) t.c.out[1] = t.stat.v;
    if (s->kept) t.c.out[2] = t.state.v;
    t.c.i[0] = s->kind; t.c.i[1] = s->causal; t.c.i[3] = s->kept ? 37 : 0;
    t.c.f[0] = 0.8; t.c.f[1] = 20; t.c.f[2] = s->row; t.c.f[3] = 0.25;
    t.r = t.c;
    t.r.in[0] = plain(&t.q, NULL); t.r.in[1] = plain(&t.k, NULL); t.r.in[2] = plain(&t.v, NULL);
    t.r.out[0] = plain(&t.o, NULL); t.r.out[3].data = t.work;
    if (sums) t.r.out[1] = plain(&t.stat, NULL);
    if (s->kept) t.r.out[2] = plain(&t.state, NULL);
    return t;
}

/* The backward call: results of the reference's forward call are operands of both. */
static void backwards(world *w, const shape *s, attempt *t)
{
    const tn_dtype dtype = t->q.v.dtype;
    t->c.accumulate = t->r.accumulate = w->calls++ % 2;                   /* the gradients hold other numbers before */
    t->dout = make(w, s->B, s->Tq, s->H, s->dv, s->pad, dtype, 1);
    put(w, &t->o);
    put(w, &t->stat);
    t->c.kernel = TN_KERNEL_ATTENTION_LINEAR_BACKWARD;
    t->c.n_in = 6;
    t->c.in[5] = t->dout.v;
    if (s->row == TN_ROW_SCALE_SUM) { t->c.in[3] = t->o.v; t->c.in[4] = t->stat.v; }
    for (int i = 0; i < 3; i++) {
        const operand *of = i == 0 ? &t->q : i == 1 ? &t->k : &t->v;
        t->to[i] = make(w, of->B, of->T, of->n, of->d, s->pad, dtype, 0.5);
        t->c.out[i] = t->to[i].v;
        t->r.out[i] = plain(&t->to[i], NULL);
    }
    t->r.kernel = t->c.kernel;
    t->r.n_in = t->c.n_in;
    t->r.in[5] = plain(&t->dout, NULL);
    if (s->row == TN_ROW_SCALE_SUM) { t->r.in[3] = plain(&t->o, NULL); t->r.in[4] = plain(&t->stat, NULL); }
}

static void run(world *w, attempt *t)
{
    CHECK_STATUS(tn_reference_backend()->fn[t->r.kernel](NULL, &t->r), TN_OK);
    CHECK_STATUS(call_gpu(w, &t->c), TN_OK);
}

static void end(world *w, attempt *t)
{
    drop(w, &t->q); drop(w, &t->k); drop(w, &t->v); drop(w, &t->o); drop(w, &t->stat); drop(w, &t->state);
    if (t->dout.x) drop(w, &t->dout);
    for (int i = 0; i < 3; i++)
        if (t->to[i].x) drop(w, &t->to[i]);
    free(t->work);
}

/* The error of the device's result; infinite if it is not below 1. */
static double error_of(world *w, const operand *of)
{
    double *got = get(w, of), e = nmse(got, of->x, of->count);
    free(got);
    return e <= 1 ? e : HUGE_VAL;
}

/* The worst of the output, statistics, state and gradients. */
static double differ(world *w, const shape *s, tn_dtype dtype, bool backward)
{
    attempt t = forwards(w, s, dtype, pow((double)s->d, -0.5) * 1.7);
    run(w, &t);
    if (w->keep) w->got = get(w, &t.o);
    double worst = error_of(w, &t.o);
    if (t.c.out[1].data) test_raise(&worst, error_of(w, &t.stat));
    if (s->kept) test_raise(&worst, error_of(w, &t.state));
    if (backward && !s->kept) {
        backwards(w, s, &t);
        run(w, &t);
        for (int i = 0; i < 3; i++) test_raise(&worst, error_of(w, &t.to[i]));
    }
    end(w, &t);
    return worst;
}

/* How far the output of the linear form is from that of the quadratic form. */
static double forms(world *w, const shape *s, tn_dtype dtype)
{
    const int64_t sets = s->kind == TN_ATTEND_SQUARED ? 1 : 2;
    const double  size = pow((double)s->d, -0.5) * 1.7;
    operand  q = make(w, s->B, s->Tq, sets * s->H, s->d, 0, dtype, size), k = make(w, s->B, s->Tk, sets * s->H, s->d, 0, dtype, size);
    operand  v = make(w, s->B, s->Tk, s->H, s->dv, 0, dtype, 1), o = make(w, s->B, s->Tq, s->H, s->dv, 0, dtype, 1);
    operand  stat = make(w, s->B, s->H, 1, s->Tq, 0, TN_F32, 1);
    tn_call  c = ZERO;
    c.n_in = 3; c.n_out = 4;
    c.in[0] = q.v; c.in[1] = k.v; c.in[2] = v.v;
    c.out[0] = o.v;
    stat.v.rank = 3; stat.v.shape[0] = s->B; stat.v.shape[1] = s->H; stat.v.shape[2] = s->Tq;
    if (s->row == TN_ROW_SCALE_SUM) c.out[1] = stat.v;
    c.i[0] = s->kind; c.i[1] = s->causal;
    c.f[0] = 0.8; c.f[1] = 20; c.f[2] = s->row; c.f[3] = 0.25;
    c.kernel = TN_KERNEL_ATTENTION_LINEAR;
    CHECK_STATUS(call_gpu(w, &c), TN_OK);
    double *one = get(w, &o);
    put(w, &o);                                         /* something else there */
    c.kernel = TN_KERNEL_ATTENTION;
    CHECK_STATUS(call_gpu(w, &c), TN_OK);
    double *two = get(w, &o);
    double e = nmse(one, two, o.count);
    free(one);
    free(two);
    drop(w, &q); drop(w, &k); drop(w, &v); drop(w, &o); drop(w, &stat);
    return e <= 1 ? e : HUGE_VAL;
}

static int64_t between(world *w, int64_t low, int64_t high) { return low + (int64_t)((uniform(w) + 1) / 2 * (double)(high - low + 1)); }

static void *take(size_t bytes, void *user) { (void)user; return malloc(bytes ? bytes : 1); }
static void  give(void *p, size_t bytes, void *user) { (void)bytes; (void)user; free(p); }

static world open_world_of(uint64_t seed, tn_gemm_precision precision)
{
    world   w = ZERO;
    tn_desc d = ZERO;
    char    why[256];
    w.gpu = tn_cuda_backend();
    w.seed = seed;
    d.allocator.alloc = take;
    d.allocator.release = give;
    d.gemm_precision = precision;
    if (w.gpu->open(&d, &w.state, why) != TN_OK) { printf("%s\n", why); w.gpu = NULL; }
    return w;
}

#ifdef TN_CUDA_HOST
/* On a device with this much memory when it is opened: states may take a sixteenth of it. */
static world open_world_on(uint64_t seed, size_t memory)
{
    tnch_set_memory(memory);
    world w = open_world_of(seed, TN_GEMM_F32);
    tnch_set_memory((size_t)1 << 30);
    return w;
}
#endif

static world open_world(uint64_t seed) { return open_world_of(seed, TN_GEMM_F32); }

static void tell(const shape *s, double e)
{
    printf("B %d H %d Tq %d Tk %d d %d dv %d kind %d causal %d row %d kept %d pad %d: %.2e\n", (int)s->B, (int)s->H, (int)s->Tq,
           (int)s->Tk, (int)s->d, (int)s->dv, s->kind, s->causal, s->row, s->kept, (int)s->pad, e);
    fflush(stdout);
}

static void any(tn_dtype dtype, double bound, const char *what, int rounds, int64_t T, int64_t d_most)
{
    world  w = open_world(7);
    double worst = 0;
    if (!w.gpu) NO_GPU("the backend does not open");
    for (int i = 0; i < (test_small() ? rounds / 4 : rounds); i++) {
        shape s;
        s.B = between(&w, 1, 2); s.H = between(&w, 1, 2);
        s.Tk = between(&w, 0, T);
        s.Tq = between(&w, 0, 1) ? s.Tk : between(&w, 0, T);
        s.d = between(&w, 1, d_most); s.dv = between(&w, 0, d_most + 4);
        s.kind = i % 2 ? TN_ATTEND_SQUARED : TN_ATTEND_BILINEAR;
        s.causal = i / 2 % 2;
        s.row = (int)between(&w, TN_ROW_SCALE_NONE, i % 2 ? TN_ROW_SCALE_SUM : TN_ROW_SCALE_MEAN);
        s.kept = i % 3 == 0;
        if (s.kept && between(&w, 0, 1)) s.Tk = between(&w, 0, 9);
        if (s.kept && s.Tq > s.Tk) s.Tq = s.Tk;
        s.pad = between(&w, 0, 1) * 3;
        if (i == 1 || i == 2) {                         /* without values: gradients of q and k are 0, or stay as they are */
            s.Tq = s.Tk = 5;
            s.dv = s.kept = 0;
            s.row = TN_ROW_SCALE_NONE;
        }
        double e = differ(&w, &s, dtype, true);
        if (getenv("LOUD") || !(e <= bound))
            tell(&s, e);
        test_raise(&worst, e);
    }
    WORST(what, worst, bound);
    w.gpu->close(w.state);
}

TEST(any_extents_in_float) { any(TN_F32, 1e-10, "NMSE of F32", 40, 300, 20); }
TEST(any_extents_in_double) { any(TN_F64, 1e-24, "NMSE of F64", 40, 200, 20); }


/* Under a sanitizer only the first of the large shapes. */
static size_t few(size_t n) { return test_small() ? 1 : n; }

/* BF16 heads wider than 64 need 128 KiB of shared memory. On a device with 99 KiB per block (sm_86, 89, 120) the entry
   refuses them, and the dispatcher computes them in F32, as in the cases of test_cuda. */
static bool fits(const world *w, tn_dtype dtype, const shape *s)
{
    char name[128] = "";
    if (dtype != TN_BF16 || s->d <= 64) return true;
    w->gpu->device(w->state, name);
    return !strstr(name, "sm_86") && !strstr(name, "sm_89") && !strstr(name, "sm_12");
}

static void some_of(world w, tn_dtype dtype, double bound, const char *what, const shape *list, size_t n, bool backward)
{
    double worst = 0;
    if (!w.gpu) NO_GPU("the backend does not open");
    if (!fits(&w, dtype, &list[0])) {
        w.gpu->close(w.state);
        SKIP("shared", "a block of this device has less than 128 KiB of shared memory");
    }
    for (size_t i = 0; i < n; i++) {
        const shape *s = &list[i];
        double e = differ(&w, s, dtype, backward);
        if (getenv("LOUD") || !(e <= bound))
            tell(s, e);
        test_raise(&worst, e);
    }
    WORST(what, worst, bound);
    w.gpu->close(w.state);
}

static void some(tn_dtype dtype, double bound, const char *what, const shape *list, size_t n)
{
    some_of(open_world(11), dtype, bound, what, list, n, true);
}

enum { S = TN_ATTEND_SQUARED, L = TN_ATTEND_BILINEAR };
enum { NONE = TN_ROW_SCALE_NONE, LENGTH = TN_ROW_SCALE_LENGTH, MEAN = TN_ROW_SCALE_MEAN, SUM = TN_ROW_SCALE_SUM };

TEST(tensor_cores)
{
    static const shape list[] = {
        {1, 2, 300, 300, 16, 16, L, 1, LENGTH, 0, 0},
        {2, 1, 600, 600, 16, 32, L, 1, NONE, 0, 8},
        {1, 1, 600, 600, 16, 20, S, 1, SUM, 0, 0},
        {1, 2, 100, 40, 16, 64, L, 0, MEAN, 0, 0},
        {1, 1, 30, 290, 24, 24, S, 1, LENGTH, 0, 0},
        {1, 1, 290, 30, 32, 32, L, 1, NONE, 0, 0},
        {2, 1, 520, 520, 32, 32, S, 1, NONE, 0, 0},
        {1, 2, 520, 520, 32, 64, L, 1, LENGTH, 0, 4},
        {1, 1, 270, 300, 32, 48, S, 0, SUM, 0, 0},
        {1, 1, 20, 50, 16, 16, L, 1, LENGTH, 1, 0},
        {1, 2, 50, 50, 16, 16, S, 1, SUM, 1, 0},
        {1, 1, 5, 5, 16, 16, S, 1, SUM, 1, 0},
        {1, 1, 3, 7, 16, 24, L, 0, MEAN, 1, 0},
        {1, 1, 40, 40, 7, 5, L, 0, NONE, 0, 0},
        {2, 2, 1, 1, 3, 40, L, 1, NONE, 0, 0},
        {1, 1, 0, 9, 16, 16, L, 1, NONE, 1, 0},
        {1, 1, 9, 0, 16, 16, L, 1, NONE, 0, 0},
        {1, 1, 90, 90, 20, 100, L, 0, NONE, 0, 0},
    };
    some(TN_BF16, 3e-5, "NMSE of BF16", list, sizeof list / sizeof *list);
}

TEST(tensor_cores_of_64)
{
    static const shape list[] = {
        {1, 1, 40, 40, 64, 63, S, 1, SUM, 1, 0},
        {1, 1, 70, 130, 64, 64, S, 0, NONE, 0, 0},
        {1, 1, 560, 560, 64, 64, L, 1, LENGTH, 0, 0},
        {1, 1, 560, 560, 64, 64, S, 1, NONE, 0, 0},
    };
    some(TN_BF16, 3e-5, "NMSE of BF16, d 64", list, few(sizeof list / sizeof *list));
}

TEST(tensor_cores_of_128)
{
    static const shape list[] = {
        {1, 1, 20, 20, 128, 128, L, 1, NONE, 1, 0},
        {1, 1, 16, 40, 128, 64, S, 0, NONE, 0, 0},
        {1, 1, 100, 100, 128, 128, L, 1, LENGTH, 0, 0},
        {1, 1, 16, 40, 128, 128, L, 0, NONE, 0, 0},
    };
    some(TN_BF16, 3e-5, "NMSE of BF16, d 128", list, few(sizeof list / sizeof *list));
}

/* Chunks have 1024 positions: the last six rows see a state and their own chunk. */
TEST(chunks_of_wide_heads)
{
    static const shape list[] = { {1, 1, 6, 1030, 128, 40, S, 1, LENGTH, 0, 0} };
    some_of(open_world(11), TN_BF16, 3e-5, "NMSE of BF16, d 128, two chunks", list, 1, false);
}

/* Segments of more than one chunk: with 53 heads there are four segments for five chunks. */
TEST(segments_of_two_chunks)
{
    static const shape list[] = { {1, 53, 20, 1290, 16, 16, L, 1, LENGTH, 0, 0} };
    some_of(open_world(11), TN_BF16, 3e-5, "NMSE of BF16, segments of two chunks", list, few(1), false);
}

/* So many heads that a block sums 64 columns of a state: with fewer it sums 32. */
TEST(many_heads_on_tensor_cores)
{
    static const shape list[] = {
        {1, 34, 10, 50, 32, 64, L, 0, NONE, 0, 0},
        {1, 33, 10, 50, 32, 64, L, 0, NONE, 0, 0},
        {1, 67, 10, 270, 16, 64, S, 1, LENGTH, 0, 0},
    };
    some_of(open_world(11), TN_BF16, 3e-5, "NMSE of BF16, many heads", list, few(sizeof list / sizeof *list), false);
}

/* F32 operands that the context allows to be rounded. */
TEST(float_operands_on_tensor_cores)
{
    static const shape list[] = {
        {1, 2, 40, 300, 16, 16, L, 1, LENGTH, 0, 0},
        {1, 1, 70, 70, 24, 15, S, 1, SUM, 0, 3},
        {1, 1, 60, 50, 16, 40, L, 0, MEAN, 0, 0},
        {1, 1, 30, 30, 16, 16, S, 1, SUM, 1, 0},
    };
    some_of(open_world_of(11, TN_GEMM_BF16), TN_F32, 3e-5, "NMSE of F32 rounded to BF16", list, few(4), true);
}

#ifdef TN_CUDA_HOST
/* Scratch for all heads and chunks, and less of it: then heads are processed one by one, and then their chunks as well. The
   output is the same. */
static void groups(tn_dtype dtype, double bound, const char *what, const shape *s, const size_t room[3], bool backward)
{
    uint64_t launches = 0;
    double   worst = 0, *first = NULL;
    for (int i = 0; i < 3; i++) {
        world    w = open_world_on(11, 16 * room[i]);
        uint64_t before = tnch_launches();
        if (!w.gpu) NO_GPU("the backend does not open");
        w.keep = true;
        test_raise(&worst, differ(&w, s, dtype, backward));
        before = tnch_launches() - before;
        if (getenv("LOUD")) printf("%d bytes: %d kernels\n", (int)room[i], (int)before);
        CHECK(before > launches);                       /* more groups */
        launches = before;
        if (first) {
            CHECK(nmse(w.got, first, s->B * s->Tq * s->H * s->dv) <= bound);
            free(w.got);
        } else first = w.got;
        w.gpu->close(w.state);
    }
    free(first);
    WORST(what, worst, bound);
}

TEST(groups_of_heads_and_chunks)
{
    static const shape half = {1, 3, 520, 520, 16, 16, L, 1, LENGTH, 0, 0}, whole = {1, 3, 200, 200, 5, 6, L, 1, LENGTH, 0, 0};
    static const size_t of_half[] = {1 << 20, 1 << 18, 1 << 16}, of_whole[] = {1 << 14, 1 << 11, 1 << 10};
    groups(TN_F32, 1e-10, "NMSE of F32 in groups", &whole, of_whole, false);
    groups(TN_F32, 1e-10, "NMSE of F32 in groups, backwards", &whole, of_whole, true);
    if (few(2) > 1) groups(TN_BF16, 3e-5, "NMSE of BF16 in groups", &half, of_half, true);
}

/* The order of sums depends on the device, not on how much of its memory is free: too little is an error that names the
   numbers. */
TEST(memory_that_is_not_left)
{
    world   w = open_world(11);
    tn_call c = ZERO;
    char    why[256] = "";
    if (!w.gpu) NO_GPU("the backend does not open");
    operand q = make(&w, 1, 600, 2, 16, 0, TN_BF16, 1);
    operand k = make(&w, 1, 600, 2, 16, 0, TN_BF16, 1);
    operand v = make(&w, 1, 600, 1, 16, 0, TN_BF16, 1);
    operand o = make(&w, 1, 600, 1, 16, 0, TN_BF16, 1);
    c.kernel = TN_KERNEL_ATTENTION_LINEAR;
    c.n_in = 3; c.n_out = 3;
    c.in[0] = q.v; c.in[1] = k.v; c.in[2] = v.v;
    c.out[0] = o.v;
    c.i[0] = L; c.i[1] = 1;
    c.f[0] = 1; c.f[2] = NONE;
    w.left = 200000;                                    /* would suffice for smaller groups, which would be other sums */
    CHECK_STATUS(call_gpu(&w, &c), TN_ERR_MEMORY);
    CHECK(w.gpu->sync(w.state, why) != TN_OK);
    if (!CHECK(strstr(why, " bytes of scratch") != NULL)) printf("%s\n", why);
    w.left = 0;
    CHECK_STATUS(call_gpu(&w, &c), TN_OK);
    CHECK_STATUS(w.gpu->sync(w.state, why), TN_OK);
    c.in[0].shape[3] = c.in[1].shape[3] = (int64_t)1 << 31;
    CHECK_STATUS(call_gpu(&w, &c), TN_ERR_SHAPE);
    CHECK(w.gpu->sync(w.state, why) != TN_OK);
    if (!CHECK(strstr(why, "2147483648") != NULL)) printf("%s\n", why);
    drop(&w, &q); drop(&w, &k); drop(&w, &v); drop(&w, &o);
    w.gpu->close(w.state);
}

#else
TEST(groups_of_heads_and_chunks) { SKIP("the engine", "a GPU's memory does not shrink when asked to"); }
TEST(memory_that_is_not_left)    { SKIP("the engine", "a GPU's memory does not shrink when asked to"); }
#endif

/* The contribution of a call is summed before it is added to a state: added one by one, ones would be lost beside 2^24. All
   numbers are exact. */
TEST(a_state_of_many_calls)
{
    static const shape list[] = {
        {1, 1, 16, 16, 16, 16, L, 1, NONE, 1, 0}, {1, 1, 600, 600, 16, 16, S, 1, NONE, 1, 0},
        {1, 1, 20, 30, 64, 8, L, 0, NONE, 1, 0},
    };
    world w = open_world(11);
    if (!w.gpu) NO_GPU("the backend does not open");
    for (size_t i = 0; i < few(3); i++) {
        attempt t = forwards(&w, &list[i], TN_BF16, 1);
        int64_t wrong = 0;
        for (int64_t e = 0; e < t.k.count; e++) t.k.x[e] = 1;
        for (int64_t e = 0; e < t.v.count; e++) t.v.x[e] = 1;
        for (int64_t e = 0; e < t.state.count; e++) t.state.x[e] = 1 << 24;
        put(&w, &t.k); put(&w, &t.v); put(&w, &t.state);
        for (int round = 0; round < 3; round++) CHECK_STATUS(call_gpu(&w, &t.c), TN_OK);
        double *got = get(&w, &t.state);
        for (int64_t e = 0; e < t.state.count; e++) wrong += got[e] != (1 << 24) + 3 * (double)list[i].Tk;
        if (!CHECK_INT(wrong, 0)) printf("     of %d keys, the first is 2^24 + %g\n", (int)list[i].Tk, got[0] - (1 << 24));
        free(got);
        end(&w, &t);
    }
    w.gpu->close(w.state);
}

/* Squared attention keeps only a part of a state; the rest is never read. (The checker finds out.) */
TEST(halves_of_states)
{
    static const shape list[] = { {1, 1, 20, 30, 64, 8, S, 0, NONE, 0, 0}, {1, 1, 20, 30, 64, 8, S, 0, NONE, 1, 0} };
    some_of(open_world(11), TN_BF16, 3e-5, "NMSE of BF16, squared, d 64", list, 2, false);
}

/* More queries than a decoding step has, with few keys. */
TEST(queries_of_a_state)
{
    static const shape list[] = {
        {1, 2, 12, 5, 6, 5, L, 0, NONE, 1, 0}, {1, 1, 9, 8, 6, 5, S, 0, SUM, 1, 0}, {1, 1, 8, 8, 6, 5, S, 1, SUM, 1, 0},
    };
    some_of(open_world(11), TN_F32, 1e-10, "NMSE of F32, queries of a state", list, 3, false);
}

/* F32 without rounding, for heads as wide as tensor cores allow: long sums over the features. */
TEST(float_heads_of_128)
{
    static const shape list[] = { {1, 1, 6, 70, 128, 9, L, 0, NONE, 0, 0} };
    some_of(open_world(11), TN_F32, 1e-10, "NMSE of F32, d 128", list, 1, false);
}

static bool wants_large(void)
{
    const char *wanted = getenv("TN_CUDA_LARGE");
    return wanted && *wanted && strcmp(wanted, "0") != 0;
}

/* More heads than the third extent of a grid: in groups. */
TEST(many_heads)
{
    static const shape list[] = { {65537, 1, 2, 2, 1, 1, L, 1, NONE, 1, 0} };
    if (!wants_large()) SKIP("TN_CUDA_LARGE=1", "minutes on the engine");
    some_of(open_world(11), TN_F32, 1e-10, "NMSE of F32, many heads", list, 1, false);
}

/* Of n numbers, how many are finite in only one of both results. */
static int64_t unlike(const double *x, const double *y, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += (fabs(x[i]) <= DBL_MAX) != (fabs(y[i]) <= DBL_MAX);
    return count;
}

/* An infinity, or a NaN, at number `at` of position t of operand `of` (q, k, v, do). */
static void poisoned(world *w, const shape *s, tn_dtype dtype, int of, int64_t t, int64_t at, double x)
{
    static const char *const part[] = {"o", "dq", "dk", "dv"};
    attempt a = forwards(w, s, dtype, 0.6);
    operand  *const in[] = {&a.q, &a.k, &a.v, &a.dout};
    for (int i = 0; i < 4; i++) {
        const operand *which = i ? &a.to[i - 1] : &a.o;
        if (i == 1) backwards(w, s, &a);
        if (i == (of == 3) && CHECK(t < in[of]->T && at < in[of]->d)) {
            in[of]->x[t * in[of]->pitch + at] = x;
            put(w, in[of]);
        }
        if (i < 2) run(w, &a);
        double *got = get(w, which);
        int64_t wrong = unlike(got, which->x, which->count);
        if (!CHECK_INT(wrong, 0)) {
            tell(s, x);
            printf("     in %s, dtype %d, with that at %d of %d of operand %d\n", part[i], (int)dtype, (int)at, (int)t, of);
        }
        free(got);
    }
    end(w, &a);
}

/* A row to which no infinity or NaN is visible is as finite as in the reference; other rows are not finite. Which of the two
   they become may depend on the order of sums. */
TEST(infinities)
{
    static const shape list[] = {
        {1, 1, 100, 100, 16, 16, L, 1, LENGTH, 0, 0},
        {1, 1, 90, 140, 5, 7, S, 1, SUM, 0, 0},
        {1, 1, 300, 300, 24, 16, S, 1, NONE, 0, 0},
        {1, 1, 40, 30, 16, 16, L, 0, NONE, 0, 0},
        {1, 1, 20, 4, 16, 16, S, 1, NONE, 0, 0},                            /* queries without a visible key: of the first chunk, */
        {1, 1, 540, 10, 5, 7, L, 1, LENGTH, 0, 0},                          /* and of the second                             */
        {1, 1, 300, 0, 16, 16, L, 1, NONE, 0, 0},
        {1, 1, 9, 0, 16, 16, S, 0, SUM, 0, 0},
        {1, 1, 0, 300, 16, 16, L, 1, NONE, 0, 0},                           /* keys that are visible to no query              */
        {1, 1, 0, 9, 5, 3, S, 0, MEAN, 0, 0},
    };
    const double what[] = {HUGE_VAL, (double)NAN, -HUGE_VAL};
    for (int type = 0; type < 3; type++) {
        const tn_dtype dtype = type == 0 ? TN_BF16 : type == 1 ? TN_F32 : TN_F64;
        world          w = open_world(11);
        if (!w.gpu) NO_GPU("the backend does not open");
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            for (int of = 0; of < 4; of++) {
                const shape *s = &list[i];
                const int64_t T = of == 0 || of == 3 ? s->Tq : s->Tk;
                if (T == 0 || (test_small() && (s->Tq > 100 || (of + (int)i + type) % 3))) continue;
                poisoned(&w, s, dtype, of, T > 6 ? T / 2 + 3 : 1, 2, what[(of + type) % 3]);
                poisoned(&w, s, dtype, of, of == 0 || of == 3 ? 0 : T - 1, 1, what[type]);
            }
        w.gpu->close(w.state);
    }
}

/* Sums of more terms than one accumulator takes. */
TEST(more_than_a_million_terms)
{
    static const shape list[] = { {1, 1, 6, (1 << 20) + 300, 16, 16, L, 1, MEAN, 0, 0}, {1, 1, 6, (1 << 20) + 300, 16, 16, S, 0, SUM, 0, 0} };
    if (!wants_large()) SKIP("TN_CUDA_LARGE=1", "minutes on the engine");
    some_of(open_world(11), TN_BF16, 3e-5, "NMSE of BF16, a million terms", list, 2, false);
}

/* Both forms are the same function of their inputs. */
TEST(linear_is_quadratic)
{
    static const shape list[] = {
        {1, 2, 300, 300, 16, 16, L, 1, LENGTH, 0, 0},
        {1, 1, 40, 290, 16, 24, S, 1, SUM, 0, 0},
        {1, 1, 130, 140, 16, 16, L, 0, MEAN, 0, 0},
    };
    size_t             n = few(3);
    for (int dtype = 0; dtype < 2; dtype++) {
        const tn_dtype type = dtype ? TN_BF16 : TN_F32;
        double         worst = 0;
        world          w = open_world(11);
        if (!w.gpu) NO_GPU("the backend does not open");
        for (size_t i = 0; i < n; i++) test_raise(&worst, forms(&w, &list[i], type));
        WORST(dtype ? "NMSE of the forms, BF16" : "NMSE of the forms, F32", worst, dtype ? 6e-5 : 1e-10);
        w.gpu->close(w.state);
    }
}

TEST_MAIN(any_extents_in_float, any_extents_in_double, tensor_cores, tensor_cores_of_64, tensor_cores_of_128, chunks_of_wide_heads,
          segments_of_two_chunks, many_heads_on_tensor_cores, float_operands_on_tensor_cores, groups_of_heads_and_chunks, memory_that_is_not_left,
          a_state_of_many_calls, halves_of_states, queries_of_a_state, float_heads_of_128, many_heads, infinities, more_than_a_million_terms, linear_is_quadratic)
