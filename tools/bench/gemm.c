/* C = A B in float, against OpenBLAS: squares, layers forward (x W^T) and backward, attention, classifier heads, single rows. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gemm_shape { bool ta, tb; int m, n, k; } gemm_shape;     /* C [m,n] += over k; ta: A is stored [k,m], tb: B is stored [n,k] */
static const gemm_shape shapes[] = {
    {0,0,64,64,64}, {0,0,96,96,96}, {0,0,128,128,128}, {0,0,192,192,192}, {0,0,256,256,256}, {0,0,384,384,384}, {0,0,512,512,512},
    {0,0,768,768,768}, {0,0,1024,1024,1024}, {0,0,2048,2048,2048},
    {0,1,128,128,128}, {0,1,256,256,256}, {0,1,512,512,512}, {0,1,1024,1024,1024},
    {1,0,128,128,128}, {1,0,256,256,256}, {1,0,512,512,512}, {1,0,1024,1024,1024}, {1,1,512,512,512},
    {0,0,128,512,784}, {0,1,128,512,784}, {1,0,512,784,128}, {0,0,128,784,512}, {0,1,2048,512,784}, {1,0,512,784,2048},
    {0,1,256,768,256}, {0,1,4096,768,256}, {0,1,4096,256,1024}, {0,0,4096,256,1024}, {1,0,256,1024,4096}, {0,1,4096,2048,256},
    {0,1,256,256,64}, {0,0,256,64,256}, {1,0,256,64,256},
    {0,1,128,10,256}, {1,0,10,256,128}, {0,0,128,256,10}, {0,1,2048,10,256}, {1,0,10,256,2048}, {0,0,2048,256,10}, {1,0,784,10,128},
    {0,0,1,512,512}, {0,1,1,512,512}, {0,0,8,512,512}, {0,0,16,16,16}, {0,0,32,32,32}, {0,0,48,48,48},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef void (*cblas_gemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                           float beta, float *c, int ldc);

typedef struct gemm_work { gemm_shape s; float *a, *b, *c; tn_call call; void *state; cblas_gemm peer; } gemm_work;

static void run_ours(void *arg, long runs)
{
    gemm_work *w = arg;
    for (long i = 0; i < runs; i++) tn_cpu_backend()->fn[TN_KERNEL_GEMM](w->state, &w->call);
}

static void run_peer(void *arg, long runs)
{
    gemm_work *w = arg;
    gemm_shape s = w->s;
    for (long i = 0; i < runs; i++)
        w->peer(101, s.ta ? 112 : 111, s.tb ? 112 : 111, s.m, s.n, s.k, 1, w->a, s.ta ? s.m : s.k, w->b, s.tb ? s.k : s.n, 0, w->c, s.n);
}

static float *numbers(size_t n)
{
    float *p = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
    if (!p) exit(1);
    for (size_t i = 0; i < n; i++) p[i] = (float)((i * 2654435761u >> 8) % 1024) / 1024 - 0.5f;
    return p;
}

static tn_view matrix(float *data, int rows, int columns, bool transposed)
{
    tn_view v = { .data = data, .dtype = TN_F32, .rank = 3 };
    v.shape[0] = 1; v.shape[1] = rows; v.shape[2] = columns;
    v.strides[1] = transposed ? 1 : columns;
    v.strides[2] = transposed ? rows : 1;
    return v;
}

static double one_shape(const char *what, gemm_shape s, int threads, void *state, double goal)
{
    static const char *const op[] = {"NN", "NT", "TN", "TT"};
    size_t    m = (size_t)s.m, n = (size_t)s.n, k = (size_t)s.k;
    gemm_work w = { .s = s, .a = numbers(m * k), .b = numbers(k * n), .c = numbers(m * n), .state = state };
    bench_row row = { .threads = threads, .peer_name = "OpenBLAS" };
    if (!strcmp(what, "gemm")) {                                        /* the peak is that of floats */
        row.flops = 2.0 * s.m * s.n * s.k;
        row.bytes = 4.0 * (double)(m * k + k * n + m * n);
    }
    w.call.kernel = TN_KERNEL_GEMM;
    w.call.n_in = 3;
    w.call.n_out = 1;
    w.call.in[0] = matrix(w.a, s.m, s.k, s.ta);
    w.call.in[1] = matrix(w.b, s.k, s.n, s.tb);
    w.call.out[0] = matrix(w.c, s.m, s.n, false);
    w.call.f[0] = 1;
    *(void **)&w.peer = bench_openblas("cblas_sgemm", threads);
    snprintf(row.name, sizeof row.name, "%s %s", what, op[s.ta * 2 + s.tb]);
    snprintf(row.shape, sizeof row.shape, "%dx%dx%d", s.m, s.n, s.k);
    row.goal = goal;
    bench_turns(&row, (bench_side){ run_ours, &w, NULL }, bench_peer(w.peer ? run_peer : NULL, &w));
    free(w.a); free(w.b); free(w.c);
    return row.ratio;
}

/* ---- products of bfloat16 parts, beside OpenBLAS's of floats: the library says in its log where the processor gains nothing by them */

static void bf16(tn_gemm_precision precision, const char *what, double goal)
{
    static const gemm_shape large[] = {{0,0,1024,1024,1024}, {0,0,2048,2048,2048}, {0,1,4096,2048,256}};
    tn_ctx *ctx = bench_ctx_by(precision, TN_REAL, 1);
    char    name[64];
    double  sum = 0;
    if (!ctx) { printf("SKIP gemm %s: this processor has no unit that gains by it\n", what); return; }
    for (int i = 0; i < 3; i++) sum += log(one_shape(what, large[i], 1, bench_state(ctx), goal));
    snprintf(name, sizeof name, "gemm_%s_vs_openblas_1t", what);
    bench_value(name, exp(sum / 3));
}

void bench_gemm(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        char   name[64];
        void  *state = bench_state(bench_ctx(TN_F32, threads));
        double sum = 0, worst = HUGE_VAL;
        int    measured = 0;
        for (int i = 0; i < SHAPES; i++) {
            double ratio = one_shape("gemm", shapes[i], threads, state, 0.9);
            if (ratio <= 0) continue;                                       /* no peer, or not a row of BENCH_ROWS */
            sum += log(ratio);
            worst = fmin(worst, ratio);
            measured++;
        }
        if (measured == 0) continue;
        printf("%-26s %-16d %3d %10s %10s %-10s %6.2f %6.2f          worst %.2f\n", "gemm, geometric mean", measured, threads, "", "", "OpenBLAS",
               exp(sum / measured), 1.08, worst);
        snprintf(name, sizeof name, "gemm_vs_openblas_%dt", threads);
        bench_value(name, exp(sum / measured));
        snprintf(name, sizeof name, "gemm_worst_%dt", threads);
        bench_value(name, worst);
    }
    bf16(TN_GEMM_BF16, "bf16", 0);
    bf16(TN_GEMM_BF16X3, "bf16x3", 2.0);
    bf16(TN_GEMM_BF16X6, "bf16x6", 1.3);
}
