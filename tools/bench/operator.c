/* Operators and decompositions: eigenpairs, singular vectors, from the factors. Peers form the dense tensor or call LAPACK. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- symmetric eigenproblem, against LAPACK's divide and conquer in single precision ------------ */

typedef void (*syevd)(const char *job, const char *uplo, const int *n, float *a, const int *lda, float *w, float *work, const int *lwork,
                      int *iwork, const int *liwork, int *info);

typedef struct eigh_work { tn_ctx *ctx; tn_tensor *a; int n; float *from, *to, *values, *work; int *iwork, lwork, liwork; syevd peer; } eigh_work;

static void run_eigh(void *arg, long runs)
{
    eigh_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_eigh_result r;
        if (tn_eigh(w->ctx, w->a, NULL, &r) != TN_OK) bench_check(w->ctx);
        tn_eigh_destroy(&r);
    }
}

static void run_syevd(void *arg, long runs)
{
    eigh_work *w = arg;
    int        info;
    for (long i = 0; i < runs; i++) {
        memcpy(w->to, w->from, sizeof(float) * (size_t)w->n * (size_t)w->n);        /* it overwrites its matrix; ours does not */
        w->peer("V", "U", &w->n, w->to, &w->n, w->values, w->work, &w->lwork, w->iwork, &w->liwork, &info);
        if (info) exit(1);
    }
}

static void eigh(int n, int threads, double goal)
{
    size_t    count = (size_t)n * (size_t)n;
    int64_t   shape[2] = {n, n};
    eigh_work w = { .ctx = bench_ctx(TN_F32, threads), .n = n, .lwork = 1 + 6 * n + 2 * n * n, .liwork = 3 + 5 * n };
    bench_row row = { "eigh", "", threads, .flops = 4.0 / 3 * n * (double)count + 2.0 * n * (double)count, .goal = goal, .peer_name = "ssyevd" };
    char      name[64];
    w.a = bench_normal(w.ctx, 2, shape, 1);
    w.from = malloc(count * 4);
    w.to = malloc(count * 4);
    w.values = malloc((size_t)n * 4);
    w.work = malloc((size_t)w.lwork * 4);
    w.iwork = malloc((size_t)w.liwork * sizeof(int));
    if (!w.from || !w.to || !w.values || !w.work || !w.iwork) exit(1);
    tn_read(w.a, TN_F32, w.from, (int64_t)count);
    *(void **)&w.peer = bench_openblas("ssyevd_", threads);
    snprintf(row.shape, sizeof row.shape, "%d", n);
    bench_turns(&row, (bench_side){ run_eigh, &w }, w.peer ? (bench_side){ run_syevd, &w } : (bench_side){ NULL, NULL });
    snprintf(name, sizeof name, "eigh_%d_vs_ssyevd_%dt", n, threads);
    bench_value(name, row.ratio);
    free(w.from); free(w.to); free(w.values); free(w.work); free(w.iwork);
    tn_tensor_destroy(w.a);
}

/* ---- from the factors -------------------------------------------------------------------------- */

static tn_cp *random_operator(tn_ctx *ctx, int64_t out, int64_t terms, int64_t n)
{
    int64_t    p_shape[2] = {out, terms}, f_shape[2] = {terms, n};
    tn_tensor *p = bench_normal(ctx, 2, p_shape, 1), *f[2] = {bench_normal(ctx, 2, f_shape, 1), bench_normal(ctx, 2, f_shape, 1)};
    tn_cp     *cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    bench_check(ctx);
    tn_tensor_destroy(p);
    tn_tensor_destroy(f[0]);
    tn_tensor_destroy(f[1]);
    return cp;
}

typedef struct operator_work { tn_cp *cp; tn_tensor *u; int count; } operator_work;

static void run_top(void *arg, long runs)
{
    operator_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_eigen e;
        if (tn_cp_eigen(w->cp, w->u, w->count, &e) != TN_OK) bench_check(w->cp->ctx);
        tn_eigen_destroy(&e);
    }
}

static void top_pairs(int n, int terms, int threads, bool with_peer)
{
    enum { COUNT = 10 };
    tn_ctx       *ctx = bench_ctx(TN_F32, threads);
    int64_t       one = 1;
    operator_work w = { random_operator(ctx, 1, terms, n), bench_normal(ctx, 1, &one, 1), COUNT };
    bench_row     row = { "10 eigenpairs of factors", "", threads, .peer_name = with_peer ? "dense" : NULL };
    char          name[96], work[64];
    snprintf(row.shape, sizeof row.shape, "n %d h %d", n, terms);
    snprintf(work, sizeof work, "eigen_top %d %d %d", n, terms, COUNT);
    bench_turns(&row, (bench_side){ run_top, &w }, with_peer ? bench_torch(work, threads) : (bench_side){ NULL, NULL });
    if (with_peer) snprintf(name, sizeof name, "eigen_top10_%d_%d_vs_dense_%dt", n, terms, threads);
    else           snprintf(name, sizeof name, "eigen_top10_%d_%d_seconds_%dt", n, terms, threads);
    bench_value(name, with_peer ? row.ratio : row.ours);
    tn_cp_destroy(w.cp);
    tn_tensor_destroy(w.u);
}

static void run_hosvd(void *arg, long runs)
{
    operator_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_tensor     *gram = tn_cp_gram(w->cp, w->cp);
        tn_eigh_result r;
        if (tn_eigh(w->cp->ctx, gram, NULL, &r) != TN_OK) bench_check(w->cp->ctx);
        tn_eigh_destroy(&r);
        tn_tensor_destroy(gram);
    }
}

static void hosvd(int d, int terms, int threads)
{
    operator_work w = { random_operator(bench_ctx(TN_F32, threads), d, terms, d), NULL, 0 };
    bench_row     row = { "output modes of factors", "", threads, .goal = 15, .peer_name = "dense",
                          .flops = 2.0 * terms * terms * (4.0 * d) / 2 + 2.0 * d * terms * (terms + (double)d) };
    char          name[64], work[64];
    snprintf(row.shape, sizeof row.shape, "d %d h %d", d, terms);
    snprintf(work, sizeof work, "hosvd_out %d %d %d", d, terms, d);
    bench_turns(&row, (bench_side){ run_hosvd, &w }, bench_torch(work, threads));
    snprintf(name, sizeof name, "output_modes_vs_dense_%dt", threads);
    bench_value(name, row.ratio);
    tn_cp_destroy(w.cp);
}

static void run_all_modes(void *arg, long runs)
{
    operator_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_cp_hosvd_result r;
        if (tn_cp_hosvd(w->cp, NULL, &r) != TN_OK) bench_check(w->cp->ctx);
        tn_cp_hosvd_destroy(&r);
    }
}

/* Output and input modes, in double; the peer's dense tensor is in float. */
static void all_modes(int d, int terms, int threads)
{
    operator_work w = { random_operator(bench_ctx(TN_F32, threads), d, terms, d), NULL, 0 };
    bench_row     row = { "HOSVD of factors", "", threads, .goal = 15, .peer_name = "dense",
                          .flops = 2.0 * terms * terms * (10.0 * d) / 2 + 6.0 * d * terms * (double)d };
    char          name[64], work[64];
    snprintf(row.shape, sizeof row.shape, "d %d h %d", d, terms);
    snprintf(work, sizeof work, "hosvd_all %d %d %d", d, terms, d);
    bench_turns(&row, (bench_side){ run_all_modes, &w }, bench_torch(work, threads));
    snprintf(name, sizeof name, "hosvd_vs_dense_%dt", threads);
    bench_value(name, row.ratio);
    tn_cp_destroy(w.cp);
}

/* ---- chains of small matrices: PyTorch multiplies them site by site, all of a batch at once ---------------- */

typedef struct chain_work { tn_ctx *ctx; tn_tensor *m; } chain_work;

static void run_chain(void *arg, long runs)
{
    chain_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(w->ctx);
        if (!tn_chain(w->ctx, w->m, NULL)) bench_check(w->ctx);
    }
}

static void chain(int batch, int sites, int d, int threads, double goal)
{
    int64_t    shape[4] = {batch, sites, d, d};
    double     elements = (double)batch * sites * d * d;
    chain_work w = { bench_ctx(TN_F32, threads), bench_normal(bench_ctx(TN_F32, threads), 4, shape, 1) };
    bench_row  row = { "chain", "", threads, .flops = 2 * elements * d, .bytes = 4 * elements, .goal = goal, .peer_name = "bmm" };
    char       work[64];
    snprintf(row.shape, sizeof row.shape, "%d x %d x %d", batch, sites, d);
    snprintf(work, sizeof work, "chain %d %d %d", batch, sites, d);
    bench_turns(&row, (bench_side){ run_chain, &w }, bench_torch(work, threads));
    snprintf(work, sizeof work, "chain_%d_vs_bmm_%dt", d, threads);
    bench_value(work, row.ratio);
    tn_tensor_destroy(w.m);
}

void bench_operator(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        eigh(64, threads, 1 / 1.2);
        eigh(128, threads, 1 / 1.2);
        eigh(256, threads, 1 / 1.2);
        eigh(512, threads, 0);
        eigh(1024, threads, 0.5);
        hosvd(256, 1024, threads);
        all_modes(256, 1024, threads);
        chain(16, 784, 8, threads, 15);
        chain(16, 784, 16, threads, 15);
        chain(16, 256, 32, threads, 3);
        chain(16, 256, 64, threads, 1);
    }
    top_pairs(512, 2048, 2, true);
    top_pairs(4096, 16384, 2, false);
}
