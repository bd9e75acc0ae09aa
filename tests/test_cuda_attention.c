/* Attention on the device in shapes that its tensor-core kernels take (tensornet_cuda.cu, "attention: which kernels"), and decoding:
   against the reference in F64, whose operands are the same BF16 numbers. Each pair of head sizes and sizes between, tiles that are
   full and that are not, windows and row scales; F32 operands that are rounded and BF16 ones; the same bits again. */
#include "test.h"

enum { CHANNELS = 4 };                      /* o, dq, dk, dv */

typedef struct problem {
    int64_t        B, Tq, Tk, H, d, dv;
    tn_attend_desc a;
} problem;

typedef struct results { double *x[CHANNELS]; int64_t n[CHANNELS]; } results;

static tn_ctx *context(const tn_backend *backend, tn_dtype dtype, tn_dtype activations, tn_gemm_precision precision)
{
    tn_desc desc;
    tn_ctx *ctx = NULL;
    char    why[256];
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.backend_required = true;
    desc.dtype = dtype;
    desc.activations = activations;
    desc.gemm_precision = precision;
    desc.threads = 1;
    if (!CHECK_STATUS(tn_ctx_create(&ctx, &desc, why), TN_OK)) printf("     %s\n", why);
    return ctx;
}

static bool device_there(char why[256])
{
    tn_desc desc;
    tn_ctx *ctx = NULL;
    memset(&desc, 0, sizeof desc);
    desc.backend = tn_cuda_backend();
    desc.backend_required = true;
    if (tn_ctx_create(&ctx, &desc, why) != TN_OK) return false;
    tn_ctx_destroy(ctx);
    return true;
}

#ifdef TN_CUDA_HOST
#define NEED_DEVICE() do { char why_[256] = ""; if (!CHECK(device_there(why_))) { printf("     %s\n", why_); return; } } while (0)
#else
#define NEED_DEVICE() do { char why_[256] = ""; if (!device_there(why_)) SKIP("gpu", why_); } while (0)
#endif

/* Random numbers that BF16 holds, about the size of what a norm leaves. */
static tn_tensor *operand(tn_ctx *ctx, int64_t B, int64_t T, int64_t n, int64_t d, uint64_t seed)
{
    const int64_t shape[4] = {B, T, n, d}, count = B * T * n * d;
    tn_tensor *t = tn_tensor_new(ctx, TN_REAL, 4, shape);
    double *x = (double *)malloc(sizeof *x * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) x[i] = floor(test_random_real(&seed) * 256) / 128;
    if (CHECK(t != NULL)) tn_write(t, TN_F64, x, count);
    free(x);
    return t;
}

static void take(results *r, int which, const tn_tensor *t)
{
    if (!CHECK(t != NULL)) return;
    r->n[which] = tn_tensor_count(t);
    r->x[which] = (double *)malloc(sizeof(double) * (size_t)(r->n[which] + 1));
    CHECK(tn_read(t, TN_F64, r->x[which], r->n[which]) == TN_OK);
}

static void drop(results *r) { for (int i = 0; i < CHANNELS; i++) free(r->x[i]); }

/* With `made` the operands are results of an op, and so of the activations' dtype. */
static results solve(tn_ctx *ctx, const problem *p, bool made)
{
    const int64_t sets = p->a.kind == TN_ATTEND_BILINEAR ? 2 : 1;
    results    r;
    tn_tensor *x[3], *in[3], *w, *o;
    memset(&r, 0, sizeof r);
    tn_ctx_reset(ctx);
    x[0] = operand(ctx, p->B, p->Tq, sets * p->H, p->d, 1);
    x[1] = operand(ctx, p->B, p->Tk, sets * p->H, p->d, 2);
    x[2] = operand(ctx, p->B, p->Tk, p->H, p->dv, 3);
    w = operand(ctx, p->B, p->Tq, p->H, p->dv, 4);
    tn_record(ctx);
    for (int i = 0; i < 3; i++) {
        tn_watch(x[i]);
        in[i] = made ? tn_scale(ctx, x[i], 1) : x[i];
    }
    o = tn_attend(ctx, in[0], in[1], in[2], &p->a);
    CHECK(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, o, w))) == TN_OK);
    take(&r, 0, o);
    for (int i = 0; i < 3; i++) take(&r, 1 + i, x[i]->grad);
    CHECK_CTX(ctx);
    return r;
}

static double worst[2];
static int    tried, compared;

static void compare(const problem *p, const results *got, const results *right, int way)
{
    static const char *const part[] = {"o", "dq", "dk", "dv"};
    for (int i = 0; i < CHANNELS; i++) {
        double e;
        if (!CHECK_INT(got->n[i], right->n[i])) return;
        e = test_frobenius(got->x[i], right->x[i], right->n[i]);
        e *= e;
        if (!(e <= worst[way])) worst[way] = e;
        if (e <= 3e-5) continue;
        printf("B %d Tq %d Tk %d H %d d %d dv %d kind %d causal %d window %d row %d, way %d: %s has NMSE %g\n", (int)p->B, (int)p->Tq, (int)p->Tk,
               (int)p->H, (int)p->d, (int)p->dv, (int)p->a.kind, p->a.causal, (int)p->a.window, (int)p->a.row, way, part[i], e);
        CHECK(false);
    }
}

static void try_problem(const problem *p)
{
    if (test_small() && tried++ % 5 != 0) return;                       /* sanitizers and the checker take their time */
    tn_ctx *ctx = context(tn_reference_backend(), TN_F64, TN_REAL, TN_GEMM_F32);
    results right = solve(ctx, p, false);
    tn_ctx_destroy(ctx);
    for (int way = 0; way < 2; way++) {
        results once, again;
        ctx = context(tn_cuda_backend(), TN_F32, way ? TN_BF16 : TN_REAL, way ? TN_GEMM_F32 : TN_GEMM_BF16);
        once = solve(ctx, p, way == 1);
        compare(p, &once, &right, way);
        again = solve(ctx, p, way == 1);
        for (int i = 0; i < CHANNELS; i++) CHECK(memcmp(once.x[i], again.x[i], sizeof(double) * (size_t)once.n[i]) == 0);
        drop(&once);
        drop(&again);
        tn_ctx_destroy(ctx);
    }
    drop(&right);
    compared++;
}

static problem make(tn_attend_kind kind, int64_t B, int64_t Tq, int64_t Tk, int64_t H, int64_t d, int64_t dv)
{
    problem p;
    memset(&p, 0, sizeof p);
    p.B = B; p.Tq = Tq; p.Tk = Tk; p.H = H; p.d = d; p.dv = dv;
    p.a.kind = kind;
    p.a.form = TN_ATTEND_QUADRATIC;
    p.a.causal = true;
    p.a.length = 64;
    return p;
}

static void finish(void)
{
    printf("%d problems, worst NMSE of F32 operands rounded %.3g, of BF16 %.3g\n", compared, worst[0], worst[1]);
    WORST("NMSE", worst[0] > worst[1] ? worst[0] : worst[1], 3e-5);
    worst[0] = worst[1] = 0;
    tried = compared = 0;
}

TEST(sizes)
{
    NEED_DEVICE();
    static const int64_t size[][2] = {{16, 16}, {32, 32}, {32, 64}, {64, 64}, {32, 128}, {64, 128}, {128, 128}, {5, 3}, {24, 40}, {96, 80}, {16, 100}, {64, 32}};
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            problem p = make((tn_attend_kind)kind, 1, 150, 150, 1, size[i][0], size[i][1]);
            try_problem(&p);
        }
    finish();
}

TEST(shapes)
{
    NEED_DEVICE();
    static const int64_t shape[][4] = {{1, 1, 700, 2}, {2, 4, 300, 1}, {2, 128, 128, 2}, {1, 129, 191, 2}, {1, 33, 300, 1}, {1, 300, 140, 1}, {1, 257, 257, 1}};
    for (int kind = 0; kind < 3; kind++)
        for (int causal = 0; causal < 2; causal++)
            for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
                problem p = make((tn_attend_kind)kind, shape[i][0], shape[i][1], shape[i][2], shape[i][3], 32, 32);
                p.a.causal = causal == 1;
                try_problem(&p);
            }
    finish();
}

TEST(options)
{
    NEED_DEVICE();
    for (int kind = 0; kind < 3; kind++)
        for (int row = TN_ROW_NONE; row <= TN_ROW_SUM; row++)
            for (int causal = 0; causal < 2; causal++) {
                problem p = make((tn_attend_kind)kind, 1, 200, 230, 2, 16, 16);
                if (row == TN_ROW_SUM && kind != TN_ATTEND_SQUARED) continue;
                p.a.row = (tn_row_scale)row;
                p.a.causal = causal == 1;
                p.a.eps = 0.25;
                try_problem(&p);
                p.a.window = 37;
                try_problem(&p);
                p.a.window = 150;
                p.a.scale = -0.1;
                try_problem(&p);
            }
    finish();
}

TEST_MAIN(sizes, shapes, options)
