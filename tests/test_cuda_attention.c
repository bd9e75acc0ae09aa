/* Attention on the device in shapes that the tensor-core kernels take (>>cuda-attention-choose of tensornet_cuda.cu), and
   decoding, against the reference in F64 with the same BF16 numbers as operands: each pair of head dimensions and dimensions
   between them, full and partial blocks, windows and row scales, F32 operands that are rounded and BF16 ones, and
   bit-identical results in a second run. Then what the tensor cores leave to other kernels: a few queries, queries without a
   visible key, unaligned views, infinities and NaN. And the same with desc.wgmma, with loads by TMA and without. */
#define _DEFAULT_SOURCE                          /* setenv */
#include "test.h"
#include <float.h>
#ifdef TN_CUDA_HOST
#include "control.h"
#endif

enum { CHANNELS = 4 };                      /* o, dq, dk, dv */

/* x is written to an operand of the first head of the first batch item: number `at` of the first set of row t. */
typedef enum operand_of { Q, K, V, W } operand_of;
typedef struct poison { operand_of of; int64_t t, at; double x; } poison;

/* pad: numbers after each head, and `lead` (0: one) before it, so that operands are views; copies: contiguous copies of these.
   any: numbers that BF16 cannot represent. facing: the first numbers of q and k are positive, so that an infinity there gives
   every score the same sign. */
typedef struct problem {
    int64_t        B, Tq, Tk, H, d, dv, pad, lead;
    tn_attend_desc a;
    bool           copies, any, facing;
    poison         bad[3];
    int            bads;
} problem;

typedef struct results { double *x[CHANNELS]; int64_t n[CHANNELS]; } results;

/* The oracle is one thread of the reference; at shapes where that takes minutes, all threads of the cpu backend. */
static bool large;
/* desc.wgmma of the contexts on the device, TN_TMA=0 for them, what the last of them said of these when it was opened, and how
   many of all contexts have said that they launched such a kernel, and one that loads by TMA */
static bool hopper, without_tma;
static char said[160], said_of_tma[160];
static char tma_was[16];                    /* TN_TMA, if the environment has it */
static bool tma_was_set;
static int  launched, launched_tma;

static void listen(void *user, tn_log_level level, const char *text)
{
    (void)user;
    (void)level;
    if (strstr(text, "first launch with wgmma")) launched++;
    else if (strstr(text, "first launch with TMA")) launched_tma++;
    else if (strstr(text, "without TMA")) snprintf(said_of_tma, sizeof said_of_tma, "%s", text);
    else if (strstr(text, "wgmma")) snprintf(said, sizeof said, "%s", text);
}

static tn_ctx *context(const tn_backend *backend, tn_dtype dtype, tn_dtype activations, tn_gemm_precision precision)
{
    tn_desc desc = ZERO;
    tn_ctx *ctx = NULL;
    char    why[256];
    desc.backend = backend;
    desc.backend_required = true;
    desc.dtype = dtype;
    desc.activations = activations;
    desc.gemm_precision = precision;
    desc.threads = large ? 0 : 1;
    desc.wgmma = hopper;
    desc.log = listen;
    if (hopper && without_tma) setenv("TN_TMA", "0", 1);
    else if (hopper) unsetenv("TN_TMA");
    if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, why), TN_OK)) printf("     %s\n", why);
    return ctx;
}

static int64_t lead_of(const problem *p) { return p->lead ? p->lead : 1; }

/* Random numbers of about the size that a norm returns, by default ones that BF16 can represent. */
static tn_tensor *operand(tn_ctx *ctx, const problem *p, operand_of of)
{
    const int64_t sets = of < V && p->a.kind == TN_ATTEND_BILINEAR ? 2 : 1, n = sets * p->H, d = of < V ? p->d : p->dv;
    const int64_t T = of == Q || of == W ? p->Tq : p->Tk, wide = p->pad ? lead_of(p) + d + p->pad : d;
    const int64_t shape[4] = {p->B, T, n, wide}, count = p->B * T * n * wide;
    uint64_t   seed = (uint64_t)of + 1;
    tn_tensor *t = tn_tensor_nd(ctx, TN_REAL, 4, shape);
    double    *x = (double *)malloc(sizeof *x * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) x[i] = p->any ? 2 * test_random_real(&seed) : floor(test_random_real(&seed) * 256) / 128;
    for (int64_t i = 0; i < count && p->facing && of < V; i += wide) x[i] = fabs(x[i]) + 0.25;
    for (int k = 0; k < p->bads; k++)
        if (p->bad[k].of == of && CHECK(p->bad[k].t < T && p->bad[k].at < d))
            x[p->bad[k].t * n * wide + p->bad[k].at] = p->bad[k].x;
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

/* With `made` the operands are results of an op, and so have the dtype of the activations. */
static results solve(tn_ctx *ctx, const problem *p, bool made)
{
    results    r = ZERO;
    tn_tensor *x[3], *in[3];
    if (!ctx) return r;
    tn_ctx_reset(ctx);
    for (int i = 0; i < 3; i++) x[i] = operand(ctx, p, (operand_of)i);
    tn_tensor *w = operand(ctx, p, W);
    if (!x[0] || !x[1] || !x[2] || !w) return r;
    if (p->pad) w = tn_slice(w, 3, lead_of(p), lead_of(p) + p->dv);
    tn_record(ctx);
    for (int i = 0; i < 3; i++) {
        tn_watch(x[i]);
        in[i] = made ? tn_scale(ctx, x[i], 1) : x[i];
        if (p->pad) in[i] = tn_slice(in[i], 3, lead_of(p), lead_of(p) + (i < V ? p->d : p->dv));
        if (p->copies) in[i] = tn_copy(ctx, in[i]);
    }
    tn_tensor *o = tn_attend(ctx, in[0], in[1], in[2], &p->a);
    CHECK(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, o, w))) == TN_OK);
    take(&r, 0, o);
    for (int i = 0; i < 3; i++) take(&r, 1 + i, x[i]->grad);
    CHECK_CTX(ctx);
    return r;
}

static double worst[2];
static int    tried, compared;

static void tell(const problem *p, int way, const char *what)
{
    printf("B %d Tq %d Tk %d H %d d %d dv %d kind %d causal %d window %d row %d pad %d, way %d: %s\n", (int)p->B, (int)p->Tq, (int)p->Tk,
           (int)p->H, (int)p->d, (int)p->dv, (int)p->a.kind, !p->a.bidirectional, (int)p->a.window, (int)p->a.row_scale,
               (int)p->pad, way, what);
}

static const char *const part[] = {"o", "dq", "dk", "dv"};

/* Also where one has no results, because its device failed. */
static void same_bits(const problem *p, const results *x, const results *y, int way, const char *what)
{
    for (int i = 0; i < CHANNELS; i++) {
        const bool there = x->x[i] && y->x[i] && x->n[i] == y->n[i];
        if (!CHECK(there && memcmp(x->x[i], y->x[i], sizeof(double) * (size_t)x->n[i]) == 0)) {
            tell(p, way, part[i]);
            printf("     %s\n", what);
        }
    }
}

static void compare(const problem *p, const results *got, const results *right, int way, double bound)
{
    for (int i = 0; i < CHANNELS; i++) {
        if (!CHECK_INT(got->n[i], right->n[i])) return;
        double e = test_frobenius(got->x[i], right->x[i], right->n[i]);
        e *= e;
        test_raise(&worst[way], e);
        if (e <= bound) continue;
        tell(p, way, part[i]);
        printf("     NMSE %g\n", e);
        CHECK(false);
    }
}

static void try_problem(const problem *p)
{
    if (test_small() && tried++ % (test_least() ? 10 : 5) != 0) return;     /* sanitizers and the checker are slow */
    tn_ctx *ctx = context(large ? tn_cpu_backend() : tn_reference_backend(), TN_F64, TN_REAL, TN_GEMM_F32);
    results right = solve(ctx, p, false);
    tn_ctx_destroy(ctx);
    for (int way = 0; way < 2; way++) {
        ctx = context(tn_cuda_backend(), TN_F32, way ? TN_BF16 : TN_REAL, way ? TN_GEMM_F32 : TN_GEMM_BF16);
        results once = solve(ctx, p, way == 1);
        compare(p, &once, &right, way, 3e-5);
        results again = solve(ctx, p, way == 1);
        same_bits(p, &once, &again, way, "not as the first time");
        drop(&once);
        drop(&again);
        tn_ctx_destroy(ctx);
    }
    drop(&right);
    compared++;
}

static problem make(tn_attend_kind kind, int64_t B, int64_t Tq, int64_t Tk, int64_t H, int64_t d, int64_t dv)
{
    problem p = ZERO;
    p.B = B; p.Tq = Tq; p.Tk = Tk; p.H = H; p.d = d; p.dv = dv;
    p.a.kind = kind;
    p.a.form = TN_ATTEND_FORM_QUADRATIC;
    p.a.row_length = 64;
    return p;
}

/* ---- what tensor cores do not compute, or not alone --------- */

/* Kinds of context: tensor cores with F32 operands and with BF16 ones, then F32 and F64 without tensor cores. */
static const struct { tn_dtype dtype, activations; tn_gemm_precision precision; double bound; } ways[] = {
    {TN_F32, TN_REAL, TN_GEMM_BF16, 3e-5}, {TN_F32, TN_BF16, TN_GEMM_F32, 3e-5},
    {TN_F32, TN_REAL, TN_GEMM_F32, 1e-10}, {TN_F64, TN_REAL, TN_GEMM_F32, 1e-24},
};
enum { WAYS = sizeof ways / sizeof *ways };

static results right_of(const problem *p)
{
    tn_ctx *ctx = context(tn_reference_backend(), TN_F64, TN_REAL, TN_GEMM_F32);
    results r = solve(ctx, p, false);
    tn_ctx_destroy(ctx);
    return r;
}

static results result_of(const problem *p, int way)
{
    tn_ctx *ctx = context(tn_cuda_backend(), ways[way].dtype, ways[way].activations, ways[way].precision);
    results r = solve(ctx, p, ways[way].activations == TN_BF16);
    tn_ctx_destroy(ctx);
    return r;
}

/* In all kinds of context. A few queries are not rounded, whatever the precision: so also with numbers that BF16 cannot
   represent. */
static void try_all_ways(problem p)
{
    for (int way = 0; way < WAYS; way++) {
        const bool exact = way >= 2 || (way == 0 && p.Tq <= 4);
        p.any = exact;
        results right = right_of(&p);
        results got = result_of(&p, way);
        compare(&p, &got, &right, way % 2, exact && way == 0 ? 1e-10 : ways[way].bound);
        drop(&got);
        drop(&right);
    }
    compared++;
}

static int class_of(double x) { return x != x ? 1 : x > DBL_MAX ? 2 : x < -DBL_MAX ? 3 : 0; }

/* NaN, the two infinities and finite numbers are where the reference has them. Rounded to F32, a square may overflow that is
   finite in F64, but these numbers are small. */
static int64_t strange;

static void try_classes(const problem *p)
{
    results right = right_of(p);
    for (int way = 0; way < WAYS; way++) {
        results got = result_of(p, way);
        for (int i = 0; i < CHANNELS; i++) {
            int64_t wrong = 0, first = -1;
            if (!CHECK_INT(got.n[i], right.n[i])) continue;
            for (int64_t k = 0; k < got.n[i]; k++) {
                strange += class_of(right.x[i][k]) != 0;
                if (class_of(got.x[i][k]) == class_of(right.x[i][k])) continue;
                if (wrong++ == 0) first = k;
            }
            if (CHECK_INT(wrong, 0)) continue;
            tell(p, way, part[i]);
            for (int k = 0; k < p->bads; k++)
                printf("     of %d: %g at %d of row %d\n", (int)p->bad[k].of, p->bad[k].x, (int)p->bad[k].at, (int)p->bad[k].t);
            printf("     the first is %d of %d: %g, not %g\n", (int)first, (int)got.n[i], got.x[i][first], right.x[i][first]);
        }
        drop(&got);
    }
    drop(&right);
    compared++;
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
    NEED_GPU();
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
    NEED_GPU();
    static const int64_t shape[][4] = {{1, 1, 700, 2}, {2, 4, 300, 1}, {2, 128, 128, 2}, {1, 129, 191, 2}, {1, 33, 300, 1}, {1, 300, 140, 1}, {1, 257, 257, 1}};
    for (int kind = 0; kind < 3; kind++)
        for (int causal = 0; causal < 2; causal++)
            for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
                problem p = make((tn_attend_kind)kind, shape[i][0], shape[i][1], shape[i][2], shape[i][3], 32, 32);
                p.a.bidirectional = causal != 1;
                try_problem(&p);
            }
    finish();
}

/* More blocks than a GPU holds at once, so that some begin when others have ended: the heads of a GPT, long texts, many head
   sizes, with a rest in both directions. */
TEST(more_blocks_than_a_gpu_holds)
{
    static const int64_t shape[][6] = {{2, 2048, 2048, 8, 64, 64}, {1, 2048, 2048, 8, 128, 128}, {16, 1024, 1024, 12, 64, 64},
                                       {1, 1999, 2999, 5, 64, 64}, {1, 4096, 4096, 2, 128, 128}, {3, 1500, 1100, 4, 32, 32}};
    const char *wanted = getenv("TN_CUDA_LARGE");
    NEED_GPU();
    if (!wanted || strcmp(wanted, "1") != 0) SKIP("TN_CUDA_LARGE=1", "hours on the engine");
    large = true;
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
            problem p = make((tn_attend_kind)kind, shape[i][0], shape[i][1], shape[i][2], shape[i][3], shape[i][4], shape[i][5]);
            try_problem(&p);
        }
    large = false;
    finish();
}

/* Heads come in groups, as many as the L2 cache can hold. Groups of one, of some with fewer in the last, and one of all have the
   same bits. */
TEST(groups_of_heads)
{
#ifdef TN_CUDA_HOST
    NEED_GPU();
    for (int kind = 0; kind < 3; kind++) {
        const int row = 2 * 32 * (kind == TN_ATTEND_BILINEAR ? 3 : 2);
        problem   p = make((tn_attend_kind)kind, 2, 300, 290, test_small() ? 2 : 5, 32, 32);
        results   right = right_of(&p);
        for (int way = 0; way < 2; way++) {
            results all = result_of(&p, way);
            compare(&p, &all, &right, way, 3e-5);
            for (int group = 1; group < 5; group += 2) {
                tnch_set_l2(group == 1 ? 1 : 2 * group * 300 * (row + 16));
                results some = result_of(&p, way);
                same_bits(&p, &all, &some, way, "not as in one group");
                drop(&some);
                tnch_set_l2(40 << 20);
            }
            drop(&all);
        }
        drop(&right);
    }
#else
    SKIP("the engine", "a GPU's cache has its size");
#endif
}

TEST(options)
{
    NEED_GPU();
    for (int kind = 0; kind < 3; kind++)
        for (int row = TN_ROW_SCALE_NONE; row <= TN_ROW_SCALE_SUM; row++)
            for (int causal = 0; causal < 2; causal++) {
                problem p = make((tn_attend_kind)kind, 1, 200, 230, 2, 16, 16);
                if (row == TN_ROW_SCALE_SUM && kind != TN_ATTEND_SQUARED) continue;
                p.a.row_scale = (tn_row_scale)row;
                p.a.bidirectional = causal != 1;
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

/* In the forward pass a few queries are not rounded by TN_GEMM_BF16, and their log-sum-exp is that of unrounded scores: the
   backward pass must not round them either. */
TEST(few_queries)
{
    NEED_GPU();
    for (int kind = 0; kind < 3; kind++)
        for (int64_t Tq = 1; Tq <= 4; Tq += 3) {
            problem p = make((tn_attend_kind)kind, 2, Tq, 300, 1, 32, 32);
            if (test_small() && Tq == 1) continue;
            try_all_ways(p);
            p.a.bidirectional = true;
            p.a.row_scale = kind == TN_ATTEND_SQUARED ? TN_ROW_SCALE_SUM : TN_ROW_SCALE_DEFAULT;
            try_all_ways(p);
        }
    printf("%d problems\n", compared);
    compared = 0;
}

TEST(nothing_and_little)
{
    NEED_GPU();
    static const int64_t shape[][5] = {{0, 9, 2, 3, 2}, {9, 0, 2, 3, 2}, {0, 0, 1, 4, 4}, {3, 0, 1, 8, 8}, {0, 200, 1, 16, 16},
        {200, 0, 1, 16, 16}, {7, 7, 2, 1, 1}, {150, 150, 3, 1, 9}, {3, 200, 2, 1, 5}, {150, 140, 1, 5, 1}, {130, 129, 3, 16, 16}};
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
            problem p = make((tn_attend_kind)kind, 2, shape[i][0], shape[i][1], shape[i][2], shape[i][3], shape[i][4]);
            if (test_small() && (i + (size_t)kind) % 3) continue;
            try_all_ways(p);
        }
    printf("%d problems\n", compared);
    compared = 0;
}

/* Heads that begin at odd numbers, in rows of odd lengths: the second element of a slice of a larger tensor. */
TEST(odd_places)
{
    NEED_GPU();
    static const int64_t shape[][5] = {{150, 150, 2, 16, 16}, {3, 200, 2, 32, 32}, {140, 200, 1, 13, 7}, {40, 40, 2, 32, 64}};
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
            for (int64_t pad = 1; pad < 4; pad += 2) {
                problem p = make((tn_attend_kind)kind, 2, shape[i][0], shape[i][1], shape[i][2], shape[i][3], shape[i][4]);
                if (test_small() && (i + (size_t)kind + (size_t)pad / 2) % 4) continue;
                p.pad = pad;
                p.a.window = i == 3 ? 9 : 0;
                try_all_ways(p);
            }
    printf("%d problems\n", compared);
    compared = 0;
}

/* If one number is infinite or NaN, results are so where the reference's are, and rows to which it is not visible are as
   finite as in the reference. Rows whose scores are all -infinity are 0, whatever the values. */
TEST(infinities)
{
    NEED_GPU();
    static const double inf = HUGE_VAL;
    const struct { int n; poison bad[3]; } list[] = {
        {1, {{V, 139, 2, inf}}},                                            /* a value that is visible to few queries, or to none */
        {2, {{V, 70, 0, (double)NAN}, {V, 138, 1, -inf}}},
        {1, {{K, 139, 2, inf}}},
        {1, {{K, 80, 0, (double)NAN}}},
        {1, {{W, 3, 2, inf}}},
        {2, {{W, 1, 0, (double)NAN}, {V, 139, 0, inf}}},
        {1, {{Q, 2, 1, (double)NAN}}},
        {2, {{Q, 3, 0, -inf}, {V, 5, 2, inf}}},                             /* facing: scores of -infinity    */
        {3, {{Q, 3, 0, inf}, {Q, 2, 0, -inf}, {V, 5, 2, (double)NAN}}},
        {2, {{K, 4, 0, -inf}, {V, 4, 1, inf}}},
    };
    static const int64_t shape[][4] = {{140, 140, 16, 16}, {4, 140, 16, 16}, {40, 140, 64, 64}, {30, 100, 5, 3}, {140, 140, 32, 64}};
    enum { LIST = sizeof list / sizeof *list, SHAPES = sizeof shape / sizeof *shape };
    for (int k = 0; k < 3 * LIST * SHAPES * 3; k++) {
        const int kind = k % 3, which = k / 3 % LIST, option = k / 3 / LIST / SHAPES;
        const int64_t *size = shape[k / 3 / LIST % SHAPES];
        problem p = make((tn_attend_kind)kind, 1, size[0], size[1], 1, size[2], size[3]);
        if (test_small() && k % 23 > 0) continue;
        if (size[2] > 5 && size[0] < 140 && option > 0) continue;
        p.facing = which > 6;
        p.a.window = option == 1 ? 33 : 0;
        p.a.bidirectional = option >= 2;
        if (kind == TN_ATTEND_SQUARED && which % 2) p.a.row_scale = TN_ROW_SCALE_SUM;
        for (int i = 0; i < list[which].n; i++) {
            p.bad[i] = list[which].bad[i];
            if (p.bad[i].t >= p.Tk) p.bad[i].t = p.Tk - 1;
            if (p.bad[i].of == Q || p.bad[i].of == W) p.bad[i].t += p.Tq > 4 ? 20 : 0;
            p.bads++;
        }
        try_classes(&p);
    }
    /* More blocks to recompute than the grid that does it has on the engine, 4: those of the first head are 0, 9 and 18 */
    for (int kind = 0; kind < 3; kind++) {
        problem p = make((tn_attend_kind)kind, 1, 140, 140, 9, 16, 16);
        if (test_small() && kind != TN_ATTEND_SOFTMAX) continue;
        p.bad[p.bads++] = (poison){V, 5, 2, inf};
        try_classes(&p);
    }
    printf("%d problems, %d results that are not finite\n", compared, (int)strange);
    CHECK(strange > 0);
    compared = 0;
}

/* An entry has its own scratch: a call uses no more of the arena than its operands, its result and a gradient of each. If
   the backend has no entry for it, the reference runs on the host and needs a workspace. */
TEST(workspaces)
{
    NEED_GPU();
    tn_backend sparse = *tn_cuda_backend();
    problem    p = make(TN_ATTEND_BILINEAR, 1, 20, 20, 1, 128, 128);
    p.a.form = TN_ATTEND_FORM_LINEAR;
    if (test_small()) p.d = p.dv = 96;
    results right = right_of(&p);
    sparse.fn[TN_KERNEL_ATTENTION_LINEAR] = sparse.fn[TN_KERNEL_ATTENTION_LINEAR_BACKWARD] = NULL;
    for (int k = 0; k < 2; k++) {
        tn_ctx *ctx = context(k ? &sparse : tn_cuda_backend(), TN_F32, TN_REAL, TN_GEMM_F32);
        results got = solve(ctx, &p, false);
        size_t  state = sizeof(double) * (size_t)(p.d * p.d * (p.dv + 1));
        compare(&p, &got, &right, 0, 1e-10);
        CHECK((tn_ctx_memory(ctx).arena >= state) == (k == 1));
        drop(&got);
        tn_ctx_destroy(ctx);
    }
    drop(&right);
}

/* ---- desc.wgmma: the kernels for Hopper --------- */

/* Whether a context takes them. The engine then shows a device that does, whatever the run is for. */
static bool wgmma_begin(void)
{
#ifdef TN_CUDA_HOST
    tnch_set_device(90);
#endif
    tma_was_set = getenv("TN_TMA") != NULL;
    snprintf(tma_was, sizeof tma_was, "%s", tma_was_set ? getenv("TN_TMA") : "");
    hopper = true;
    said[0] = 0;
    tn_ctx *ctx = context(tn_cuda_backend(), TN_F32, TN_REAL, TN_GEMM_BF16);
    tn_ctx_destroy(ctx);
    return strstr(said, "uses wgmma") != NULL;
}

static void wgmma_end(void)
{
#ifdef TN_CUDA_HOST
    const char *device = getenv("TNCH_DEVICE");
    tnch_set_device(device && device[0] ? atoi(device) : 90);
#endif
    hopper = without_tma = false;
    if (tma_was_set) setenv("TN_TMA", tma_was, 1);
    else unsetenv("TN_TMA");
}

/* A call of attention whose context has asked for them launches them, and says so. With TN_REQUIRE=wgmma, a device that does not
   take them is a failure: so a script asks for the tests that need one. Operands that maps can describe are loaded by TMA. */
TEST(wgmma_launches)
{
    NEED_GPU();
    problem p = make(TN_ATTEND_BILINEAR, 1, 130, 130, 1, 64, 64);
    if (!wgmma_begin()) { wgmma_end(); SKIP("wgmma", said); }
    for (int off = 0; off < 2; off++) {
        without_tma = off == 1;
        launched = launched_tma = 0;
        results r = result_of(&p, 1);
        CHECK_INT(launched, 1);
        CHECK_INT(launched_tma, off ? 0 : 1);
        drop(&r);
    }
    wgmma_end();
}

#ifdef TN_CUDA_HOST
/* Launches of a context's forward and two backward kernels that load by TMA, and by cp.async. The gradients of bilinear keys and
   values of 128 numbers need too many registers for TMA. */
static uint64_t by_tma(void) { return tnch_launches_of("_tma<"); }
static uint64_t by_copies(void) { return tnch_launches_of("_wgmma<"); }
static uint64_t not_by_tma(const problem *p) { return p->a.kind == TN_ATTEND_BILINEAR && (p->d > 64 || p->dv > 64) ? 1 : 0; }
#endif

/* Head dimensions of 64 and 128 and those padded to them, with full and partial blocks of queries and keys, few and many tiles:
   loaded by TMA, as the number of launches shows, and by cp.async, which must give the same bits. */
TEST(wgmma)
{
    NEED_GPU();
    static const struct { int64_t B, Tq, Tk, H, d, dv, window; bool both; int row; double scale; } list[] = {
        {1, 150, 150, 1, 64, 64, 0, false, 0, 0},    {1, 257, 257, 1, 128, 128, 0, false, 0, 0},   {2, 129, 391, 2, 64, 64, 0, true, 0, 0},
        {1, 140, 300, 2, 96, 80, 0, true, 1, 0},     {2, 128, 128, 1, 40, 50, 0, false, 2, 0},     {1, 200, 230, 2, 64, 64, 37, false, 3, 0},
        {1, 300, 140, 1, 64, 64, 0, false, 0, 0},    {1, 33, 300, 1, 128, 128, 150, true, 2, 0},   {1, 260, 700, 1, 64, 64, 0, false, 1, 0},
        {1, 190, 513, 1, 128, 128, 37, false, 3, 0}, {1, 65, 256, 3, 64, 64, 150, true, 0, -0.1},  {1, 200, 200, 1, 128, 128, 0, true, 0, -0.05},
        {2, 63, 129, 2, 64, 64, 0, false, 0, 0},     {1, 64, 128, 3, 128, 128, 0, true, 0, 0},     {1, 127, 191, 1, 64, 64, 1, false, 0, 0},
        {3, 65, 192, 1, 64, 64, 64, true, 0, 0},     {1, 129, 193, 2, 128, 128, 65, false, 0, 0},
    };
    if (!wgmma_begin()) { wgmma_end(); SKIP("wgmma", said); }
    const int first = launched, first_tma = launched_tma;
    int       contexts = 0;
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
            problem p = make((tn_attend_kind)kind, list[i].B, list[i].Tq, list[i].Tk, list[i].H, list[i].d, list[i].dv);
            const int before = compared;
            p.a.window = list[i].window;
            p.a.bidirectional = list[i].both;
            p.a.scale = list[i].scale;
            p.a.eps = 0.25;
            p.a.row_scale = (tn_row_scale)(TN_ROW_SCALE_NONE + list[i].row);
            if (p.a.row_scale == TN_ROW_SCALE_SUM && kind != TN_ATTEND_SQUARED) p.a.row_scale = TN_ROW_SCALE_DEFAULT;
#ifdef TN_CUDA_HOST
            const uint64_t tma = by_tma(), copies = by_copies();
#endif
            try_problem(&p);
            if (compared == before) continue;
            contexts += 2;
#ifdef TN_CUDA_HOST
            CHECK_INT(by_tma(), tma + 4 * (3 - not_by_tma(&p)));        /* in two ways, twice */
            CHECK_INT(by_copies(), copies + 4 * not_by_tma(&p));
#endif
            results loaded = result_of(&p, 1);
            without_tma = true;
            results copied = result_of(&p, 1);
            without_tma = false;
            same_bits(&p, &loaded, &copied, 1, "not as by cp.async");
            drop(&loaded);
            drop(&copied);
        }
    CHECK_INT(launched, first + 2 * contexts);
    CHECK_INT(launched_tma, first_tma + 3 * contexts / 2);              /* of four contexts, one was told not to */
    finish();
    static const double inf = HUGE_VAL;
    for (int kind = 0; kind < 3; kind++) {
        problem p = make((tn_attend_kind)kind, 1, 140, 140, 1, 64, 64);
        p.bad[0] = (poison){V, 139, 2, inf};
        p.bad[1] = (poison){kind == 1 ? K : Q, 80, 0, (double)NAN};
        p.bads = 2;
        try_classes(&p);
        results loaded = result_of(&p, 1);
        without_tma = true;
        try_classes(&p);
        results copied = result_of(&p, 1);
        without_tma = false;
        same_bits(&p, &loaded, &copied, 1, "not as by cp.async, with numbers that are not finite");
        drop(&loaded);
        drop(&copied);
        try_all_ways(make((tn_attend_kind)kind, 2, 7, 130, 1, 64, 64));
        if (kind == 0 || !test_small()) {
            try_all_ways(make((tn_attend_kind)kind, 1, 0, 130, 1, 64, 64));
            try_all_ways(make((tn_attend_kind)kind, 1, 1, 129, 2, 64, 64));
        }
    }
    compared = 0;
    wgmma_end();
}

/* Operands are read in place where they are views whose rows are 16 bytes apart, or a multiple: then too by TMA, with the bits of
   contiguous ones. */
TEST(wgmma_views)
{
    NEED_GPU();
    if (!wgmma_begin()) { wgmma_end(); SKIP("wgmma", said); }
    for (int kind = 0; kind < 3; kind++) {
        problem p = make((tn_attend_kind)kind, 2, 140, 150, 2, 64, 64);
        for (int64_t lead = 8; lead < 25; lead += 16) {
            const int before = launched_tma;
            if (test_small() && lead > 8) continue;
            p.pad = p.lead = lead;
            results right = right_of(&p);
#ifdef TN_CUDA_HOST
            const uint64_t packs = tnch_launches_of("tnc_attend_pack");
#endif
            results got = result_of(&p, 1);
#ifdef TN_CUDA_HOST
            CHECK_INT(tnch_launches_of("tnc_attend_pack"), packs);
#endif
            compare(&p, &got, &right, 1, 3e-5);
            p.copies = true;
            results copied = result_of(&p, 1);
            p.copies = false;
            same_bits(&p, &got, &copied, 1, "not as from contiguous copies");
            CHECK_INT(launched_tma, before + 2);
            drop(&copied);
            drop(&got);
            drop(&right);
        }
    }
    wgmma_end();
}

/* Attention and its gradients in owned tensors, from owned operands that other numbers are written to. */
typedef struct kept { tn_tensor *in[4], *out[CHANNELS]; } kept;

static void keep_step(tn_ctx *ctx, const kept *k, const problem *p)
{
    tn_tensor *x[3];
    tn_ctx_reset(ctx);
    for (int i = 0; i < 3; i++) x[i] = tn_scale(ctx, k->in[i], 1);
    tn_record(ctx);
    for (int i = 0; i < 3; i++) tn_watch(x[i]);
    tn_tensor *o = tn_attend(ctx, x[0], x[1], x[2], &p->a);
    tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, o, k->in[3])));
    tn_assign(k->out[0], o);
    for (int i = 0; i < 3; i++) tn_assign(k->out[1 + i], x[i]->grad);
}

static void keep_numbers(const kept *k, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        const int64_t n = tn_tensor_count(k->in[i]);
        double *x = (double *)malloc(sizeof *x * (size_t)n);
        for (int64_t e = 0; e < n; e++) x[e] = floor(test_random_real(&seed) * 256) / 128;
        tn_write(k->in[i], TN_F64, x, n);
        free(x);
    }
}

/* A graph keeps the tensor maps, which are parameters of its kernels: replayed with other numbers, it has the bits of a step. */
TEST(wgmma_in_a_graph)
{
    NEED_GPU();
    if (!wgmma_begin()) { wgmma_end(); SKIP("wgmma", said); }
    for (int kind = 0; kind < 3; kind++) {
        const problem p = make((tn_attend_kind)kind, 1, 130, 140, 2, 64, 64);
        tn_ctx *ctx = context(tn_cuda_backend(), TN_F32, TN_BF16, TN_GEMM_F32);
        tn_graph *graph = NULL;
        kept k;
        results direct = ZERO, replayed = ZERO;
        for (int i = 0; i < 4; i++) {
            const int64_t shape[4] = {1, i == 1 || i == 2 ? p.Tk : p.Tq, i < 2 && kind == TN_ATTEND_BILINEAR ? 2 * p.H : p.H, 64};
            k.in[i] = tn_tensor_create(ctx, TN_BF16, 4, shape);
            k.out[i == 3 ? 0 : 1 + i] = tn_tensor_create(ctx, TN_BF16, 4, shape);
        }
        keep_numbers(&k, 1);
        keep_step(ctx, &k, &p);
        keep_step(ctx, &k, &p);                                     /* it may now be captured */
        CHECK_STATUS(tn_graph_begin(ctx), TN_OK);
        keep_step(ctx, &k, &p);
        CHECK_STATUS(tn_graph_end(ctx, &graph), TN_OK);
        keep_numbers(&k, 2);
        CHECK_STATUS(tn_graph_run(graph), TN_OK);
        for (int i = 0; i < CHANNELS; i++) take(&replayed, i, k.out[i]);
        keep_step(ctx, &k, &p);
        for (int i = 0; i < CHANNELS; i++) take(&direct, i, k.out[i]);
        same_bits(&p, &replayed, &direct, 1, "not as without a graph");
        CHECK_CTX(ctx);
        drop(&direct);
        drop(&replayed);
        tn_ctx_destroy(ctx);
    }
    wgmma_end();
}

/* Groups of heads, as in groups_of_heads; a warmed-up call allocates nothing; and without the driver's function for tensor maps the
   kernels load by cp.async, and the log says so. */
TEST(wgmma_in_groups_and_without_a_driver)
{
#ifdef TN_CUDA_HOST
    NEED_GPU();
    wgmma_begin();
    for (int kind = 0; kind < 3; kind++) {
        problem p = make((tn_attend_kind)kind, 1, 150, 140, 3, 64, 64);
        results all = result_of(&p, 1);
        tnch_set_l2(1);
        results some = result_of(&p, 1);
        same_bits(&p, &all, &some, 1, "not as in one group");
        drop(&some);
        tnch_set_l2(40 << 20);
        tn_ctx *ctx = context(tn_cuda_backend(), TN_F32, TN_BF16, TN_GEMM_F32);
        some = solve(ctx, &p, true);
        drop(&some);
        const uint64_t allocations = tn_ctx_memory(ctx).allocations, tma = by_tma();
        const size_t   bytes = tnch_memory_in_use();
        some = solve(ctx, &p, true);
        CHECK(tn_ctx_memory(ctx).allocations == allocations);
        CHECK(tnch_memory_in_use() == bytes);
        CHECK_INT(by_tma(), tma + 3);
        drop(&some);
        tn_ctx_destroy(ctx);
        tnch_set_tma(0);
        said_of_tma[0] = 0;
        const uint64_t launches = by_tma(), copies = by_copies();
        some = result_of(&p, 1);
        CHECK(strstr(said_of_tma, "without TMA") != NULL);
        CHECK_INT(by_tma(), launches);
        CHECK_INT(by_copies(), copies + 3);
        same_bits(&p, &all, &some, 1, "not as by TMA");
        drop(&some);
        drop(&all);
        tnch_set_tma(1);
    }
    wgmma_end();
#else
    SKIP("engine", "a GPU's cache has its size, and its driver all functions");
#endif
}

/* On other devices the request is ignored, and the log says so. */
TEST(wgmma_elsewhere)
{
#ifdef TN_CUDA_HOST
    problem p = make(TN_ATTEND_BILINEAR, 1, 130, 130, 1, 64, 64);
    wgmma_begin();
    tnch_set_device(80);
    hopper = false;
    results plain = result_of(&p, 1);
    hopper = true;
    results got = result_of(&p, 1);
    CHECK(strstr(said, "ignored") != NULL);
    same_bits(&p, &got, &plain, 1, "not as without the request");
    drop(&got);
    drop(&plain);
    wgmma_end();
#else
    SKIP("engine", "only the engine can show another device");
#endif
}

/* TN_WGMMA, where it is neither missing nor empty, overrides desc.wgmma. */
TEST(wgmma_of_the_environment)
{
#ifdef TN_CUDA_HOST
    static const struct { const char *set; bool desc, used; } list[] = {
        {NULL, false, false}, {"", false, false}, {"0", false, false}, {"1", false, true},
        {NULL, true, true},   {"", true, true},   {"0", true, false},  {"1", true, true},
    };
    const char *was = getenv("TN_WGMMA");
    char        old[16] = "";
    if (was) snprintf(old, sizeof old, "%s", was);
    wgmma_begin();
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].set) setenv("TN_WGMMA", list[i].set, 1);
        else unsetenv("TN_WGMMA");
        hopper = list[i].desc;
        said[0] = 0;
        tn_ctx_destroy(context(tn_cuda_backend(), TN_F32, TN_REAL, TN_GEMM_BF16));
        CHECK_INT(strstr(said, "uses wgmma") != NULL, list[i].used);
    }
    if (was) setenv("TN_WGMMA", old, 1);
    else unsetenv("TN_WGMMA");
    wgmma_end();
#else
    SKIP("engine", "a GPU may not take them");
#endif
}

TEST_MAIN(sizes, shapes, more_blocks_than_a_gpu_holds, groups_of_heads, options, few_queries, nothing_and_little, odd_places,
          infinities, workspaces, wgmma_launches, wgmma, wgmma_views, wgmma_in_a_graph, wgmma_in_groups_and_without_a_driver,
          wgmma_elsewhere, wgmma_of_the_environment)
