/* Operators and decompositions: eigenpairs, singular vectors, from the factors. Peers form the dense tensor or call LAPACK. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- symmetric eigenproblem, against LAPACK's divide and conquer in single precision: the faster of PyTorch's and OpenBLAS's */

typedef void (*syevd)(const char *job, const char *uplo, const int *n, float *a, const int *lda, float *w, float *work, const int *lwork,
                      int *iwork, const int *liwork, int *info);

typedef struct eigh_work { tn_ctx *ctx; tn_tensor *a; int n; float *from, *to, *values, *work; int *iwork, lwork, liwork; syevd peer; } eigh_work;

static void run_eigh(void *arg, long runs)
{
    eigh_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_eigh_result r;
        if (tn_eigh(w->ctx, w->a, &(tn_eigh_desc){ .symmetrise = true }, &r) != TN_OK) bench_check(w->ctx);
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

static void eigh(int n, int threads)
{
    size_t    count = (size_t)n * (size_t)n;
    int64_t   shape[2] = {n, n};
    eigh_work w = { .ctx = bench_ctx(TN_F32, threads), .n = n, .lwork = 1 + 6 * n + 2 * n * n, .liwork = 3 + 5 * n };
    bench_row row = { "eigh", "", threads, .flops = 4.0 / 3 * n * (double)count + 2.0 * n * (double)count, .goal = 1, .peer_name = "ssyevd" };
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
    snprintf(name, sizeof name, "eigh %d", n);
    bench_peers peers = bench_torch(name, threads);         /* on MKL, where PyTorch has it */
    if (peers.count == 1) peers.side[0].name = "torch";
    if (w.peer) bench_add(&peers, (bench_side){ run_syevd, &w, "OpenBLAS" });
    bench_turns(&row, (bench_side){ run_eigh, &w, NULL }, peers);
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
        tn_eigenpairs e;
        if (tn_cp_eigen(w->cp, w->u, w->count, &e) != TN_OK) bench_check(w->cp->ctx);
        tn_eigenpairs_destroy(&e);
    }
}

static void top_pairs(int n, int terms, int threads, bool with_peer)
{
    enum { COUNT = 10 };
    tn_ctx       *ctx = bench_ctx(TN_F32, threads);
    int64_t       one = 1;
    operator_work w = { random_operator(ctx, 1, terms, n), bench_normal(ctx, 1, &one, 1), COUNT };
    bench_row     row = { "10 eigenpairs of factors", "", threads, .goal = with_peer, .peer_name = with_peer ? "dense" : NULL };
    char          name[96], work[64];
    snprintf(row.shape, sizeof row.shape, "n %d h %d", n, terms);
    snprintf(work, sizeof work, "eigen_top %d %d %d", n, terms, COUNT);
    bench_turns(&row, (bench_side){ run_top, &w, NULL }, with_peer ? bench_torch(work, threads) : bench_peer(NULL, NULL));
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
    bench_row     row = { "output modes of factors", "", threads, .goal = 12, .peer_name = "dense",
                          .flops = 2.0 * terms * terms * (4.0 * d) / 2 + 2.0 * d * terms * (terms + (double)d) };
    char          name[64], work[64];
    snprintf(row.shape, sizeof row.shape, "d %d h %d", d, terms);
    snprintf(work, sizeof work, "hosvd_out %d %d %d", d, terms, d);
    bench_turns(&row, (bench_side){ run_hosvd, &w, NULL }, bench_torch(work, threads));
    snprintf(name, sizeof name, "output_modes_vs_dense_%dt", threads);
    bench_value(name, row.ratio);
    tn_cp_destroy(w.cp);
}

/* ---- decompositions in double ------------------------------------------------------------------------------ */

typedef enum decomp_kind { DECOMP_SVD, DECOMP_TOP, DECOMP_RANDOM, DECOMP_EIG, DECOMP_BATCH } decomp_kind;
typedef struct decomp_work { tn_ctx *ctx; tn_tensor *a; decomp_kind kind; } decomp_work;

static void run_decomp(void *arg, long runs)
{
    decomp_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_status s;
        if (w->kind == DECOMP_EIG) {
            tn_eig_result r;
            s = tn_eig(w->ctx, w->a, NULL, &r);
            tn_eig_destroy(&r);
        } else if (w->kind == DECOMP_BATCH) {
            tn_eigh_result r;
            s = tn_eigh(w->ctx, w->a, &(tn_eigh_desc){ .symmetrise = true }, &r);
            tn_eigh_destroy(&r);
        } else {
            tn_svd_desc   d = { .top = w->kind == DECOMP_SVD ? 0 : 10 };
            tn_svd_result r;
            if (w->kind == DECOMP_RANDOM) d.method = TN_SVD_RANDOMISED;
            s = tn_svd(w->ctx, w->a, &d, &r);
            tn_svd_destroy(&r);
        }
        if (s != TN_OK) bench_check(w->ctx);
    }
}

static void decomp(decomp_kind kind, int batch, int n, int threads)
{
    static const char *const names[] = {"svd", "svd_top", "svd_lowrank", "eig", "eigh_batch"};
    static const char *const peers[] = {"gesdd", "gesdd", "svd_lowrank", "geev", "syevd"};
    int64_t     shape[3] = {batch, n, n};
    decomp_work w = { bench_ctx(TN_F64, threads), NULL, kind };
    bench_row   row = { "", "", threads, .flops = 14.0 / 3 * batch * n * (double)n * n, .goal = 1 };
    char        name[64], work[64];
    row.peer_name = peers[kind];
    snprintf(row.name, sizeof row.name, "%s", names[kind]);
    w.a = kind == DECOMP_BATCH ? bench_normal(w.ctx, 3, shape, 1) : bench_normal(w.ctx, 2, shape + 1, 1);
    snprintf(row.shape, sizeof row.shape, "%d x %d x %d", batch, n, n);
    snprintf(work, sizeof work, "%s %d %d", names[kind], batch, n);
    bench_turns(&row, (bench_side){ run_decomp, &w, NULL }, bench_torch(work, threads));
    snprintf(name, sizeof name, "%s_%d_vs_%s_%dt", names[kind], n, peers[kind], threads);
    bench_value(name, row.ratio);
    tn_tensor_destroy(w.a);
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
    bench_row     row = { "HOSVD of factors", "", threads, .goal = 12, .peer_name = "dense",
                          .flops = 2.0 * terms * terms * (10.0 * d) / 2 + 6.0 * d * terms * (double)d };
    char          name[64], work[64];
    snprintf(row.shape, sizeof row.shape, "d %d h %d", d, terms);
    snprintf(work, sizeof work, "hosvd_all %d %d %d", d, terms, d);
    bench_turns(&row, (bench_side){ run_all_modes, &w, NULL }, bench_torch(work, threads));
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
    bench_turns(&row, (bench_side){ run_chain, &w, NULL }, bench_torch(work, threads));
    snprintf(work, sizeof work, "chain_%d_vs_bmm_%dt", d, threads);
    bench_value(work, row.ratio);
    tn_tensor_destroy(w.m);
}

/* ---- the tensor of order 6 of bilinear attention, against the loops that one would write: A1, A2 and M of each head first ---- */

enum { DIM = 12, HEADS = 4, DEPTH = 8 };
typedef struct net_work { tn_net *net; tn_plan *plan; tn_tensor *operand[6]; float *node[6], *to; float a[2][HEADS][DIM][DIM], m[HEADS][DIM][DIM]; } net_work;

static void run_net(void *arg, long runs)
{
    net_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(w->net->ctx);
        if (!tn_plan_run(w->plan, 6, w->operand)) bench_check(w->net->ctx);
    }
}

/* to[i,k] = sum_a x[i,h,a] y[k,h,a] */
static void head_matrix(const float *x, const float *y, int h, float to[DIM][DIM])
{
    for (int i = 0; i < DIM; i++)
        for (int k = 0; k < DIM; k++) {
            float sum = 0;
            for (int a = 0; a < DEPTH; a++) sum += x[(i * HEADS + h) * DEPTH + a] * y[(k * HEADS + h) * DEPTH + a];
            to[i][k] = sum;
        }
}

static void run_loops(void *arg, long runs)
{
    net_work *w = arg;
    for (long run = 0; run < runs; run++) {
        float *to = w->to;
        for (int h = 0; h < HEADS; h++) {
            head_matrix(w->node[0], w->node[2], h, w->a[0][h]);
            head_matrix(w->node[1], w->node[3], h, w->a[1][h]);
            head_matrix(w->node[5], w->node[4], h, w->m[h]);
        }
        for (int o = 0; o < DIM; o++)
            for (int i = 0; i < DIM; i++)
                for (int j = 0; j < DIM; j++)
                    for (int k = 0; k < DIM; k++)
                        for (int l = 0; l < DIM; l++, to += DIM) {
                            float sum[DIM] = {0};
                            for (int h = 0; h < HEADS; h++) {
                                const float s = w->a[0][h][i][k] * w->a[1][h][j][l];
                                for (int m = 0; m < DIM; m++) sum[m] += s * w->m[h][o][m];
                            }
                            memcpy(to, sum, sizeof sum);
                        }
    }
}

static void net_of_attention(int threads)
{
    const int64_t count = (int64_t)DIM * DIM * DIM * DIM * DIM * DIM;
    tn_ctx       *ctx = bench_ctx(TN_F32, threads);
    tn_params    *params = tn_params_create(ctx);
    tn_attention  layer;
    tn_attention_desc desc = { .dim = DIM, .heads = HEADS, .d_qk = DEPTH, .d_v = DEPTH, .kind = TN_ATTENTION_BILINEAR, .scale = 1 };
    net_work     *w = calloc(1, sizeof *w);
    bench_row     row = { "net_contract", "", threads, .flops = 2.0 * HEADS * (double)count, .bytes = 4.0 * (double)count,
                          .peer_name = "loops" };
    char          name[64];
    float        *ours = malloc((size_t)count * 4);
    if (!w || !ours || tn_attention_init(params, "attention", &desc, &layer) != TN_OK) exit(1);
    w->to = malloc((size_t)count * 4);
    if (!(w->net = tn_net_from_attention(ctx, &layer, 1)) || !(w->plan = tn_net_plan(w->net, NULL)) || !w->to) exit(1);
    for (int i = 0; i < 6; i++) {
        w->operand[i] = w->net->node[i].tensor;
        const int64_t n = tn_tensor_count(w->net->node[i].tensor);
        if (!(w->node[i] = malloc((size_t)n * 4)) || tn_read(w->net->node[i].tensor, TN_F32, w->node[i], n) != TN_OK) exit(1);
    }
    run_loops(w, 1);                                      /* both compute the same */
    tn_tensor *t = tn_net_contract(w->net);
    if (!t || tn_read(t, TN_F32, ours, count) != TN_OK) bench_check(ctx);
    tn_tensor_destroy(t);
    for (int64_t i = 0; i < count; i++) if (!(fabsf(ours[i] - w->to[i]) < 1e-5f)) exit(1);
    snprintf(row.shape, sizeof row.shape, "order 6, n %d", DIM);
    bench_turns(&row, (bench_side){ run_net, w, NULL }, bench_peer(run_loops, w));
    snprintf(name, sizeof name, "net_contract_vs_loops_%dt", threads);
    bench_value(name, row.ratio);
    for (int i = 0; i < 6; i++) free(w->node[i]);
    tn_plan_destroy(w->plan);
    tn_net_destroy(w->net);
    tn_params_destroy(params);
    free(w->to);
    free(w);
    free(ours);
}

/* The same kind of net applied to pairs of positions, against plain loops over each pair's products with the weights. */
enum { WIDE = 128, PAIRS = 256, D = WIDE / HEADS };
typedef struct pair_work { tn_net *net; tn_tensor *x[5]; float *node[6], *t, *s, *y; } pair_work;

static void run_pairs(void *arg, long runs)
{
    pair_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(w->net->ctx);
        if (!tn_net_apply_each(w->net->ctx, w->net, w->x)) bench_check(w->net->ctx);
    }
}

/* to[h,a] = sum_i x[i] w[i,h,a] */
static void project(const float *x, const float *w, float to[HEADS * D])
{
    memset(to, 0, sizeof(float) * HEADS * D);
    for (int i = 0; i < WIDE; i++)
        for (int a = 0; a < HEADS * D; a++) to[a] += x[i] * w[i * HEADS * D + a];
}

static void run_pair_loops(void *arg, long runs)
{
    pair_work *w = arg;
    for (long run = 0; run < runs; run++)
        for (int p = 0; p < PAIRS; p++) {
            const float *t = w->t + p * WIDE, *s = w->s + p * WIDE;
            float part[5][HEADS * D];
            for (int n = 0; n < 5; n++) project(n < 2 ? t : s, w->node[n], part[n]);
            for (int h = 0; h < HEADS; h++) {
                float score[2] = {0, 0};
                for (int n = 0; n < 2; n++)
                    for (int a = h * D; a < h * D + D; a++) score[n] += part[n][a] * part[n + 2][a];
                for (int a = h * D; a < h * D + D; a++) part[4][a] *= score[0] * score[1];
            }
            for (int o = 0; o < WIDE; o++) {
                float sum = 0;
                for (int a = 0; a < HEADS * D; a++) sum += w->node[5][o * HEADS * D + a] * part[4][a];
                w->y[p * WIDE + o] = sum;
            }
        }
}

static void net_of_pairs(int threads)
{
    const int64_t shape[2] = {PAIRS, WIDE}, n = (int64_t)WIDE * HEADS * D, count = (int64_t)PAIRS * WIDE;
    tn_ctx       *ctx = bench_ctx(TN_F32, threads);
    tn_params    *params = tn_params_create(ctx);
    tn_attention  layer;
    tn_attention_desc desc = { .dim = WIDE, .heads = HEADS, .kind = TN_ATTENTION_BILINEAR };
    pair_work     w = { .t = malloc((size_t)count * 4), .s = malloc((size_t)count * 4), .y = malloc((size_t)count * 4) };
    bench_row     row = { "net_apply", "", threads, .flops = 12.0 * (double)n * PAIRS, .peer_name = "loops" };
    char          name[64];
    float        *ours = malloc((size_t)count * 4);
    tn_tensor    *t = bench_normal(ctx, 2, shape, 1), *s = bench_normal(ctx, 2, shape, 1);
    if (!w.t || !w.s || !w.y || !ours || tn_attention_init(params, "attention", &desc, &layer) != TN_OK) exit(1);
    if (!(w.net = tn_net_from_attention(ctx, &layer, 1))) exit(1);
    for (int i = 0; i < 5; i++) w.x[i] = i < 2 ? t : s;
    for (int i = 0; i < 6; i++)
        if (!(w.node[i] = malloc((size_t)n * 4)) || tn_read(w.net->node[i].tensor, TN_F32, w.node[i], n) != TN_OK) exit(1);
    tn_read(t, TN_F32, w.t, count);
    tn_read(s, TN_F32, w.s, count);
    run_pair_loops(&w, 1);
    tn_tensor *y = tn_net_apply_each(ctx, w.net, w.x);
    if (!y || tn_read(y, TN_F32, ours, count) != TN_OK) bench_check(ctx);
    for (int64_t i = 0; i < count; i++) if (!(fabsf(ours[i] - w.y[i]) < 1e-4f)) exit(1);
    snprintf(row.shape, sizeof row.shape, "%d x %d, %d heads", PAIRS, WIDE, HEADS);
    bench_turns(&row, (bench_side){ run_pairs, &w, NULL }, bench_peer(run_pair_loops, &w));
    snprintf(name, sizeof name, "net_apply_vs_loops_%dt", threads);
    bench_value(name, row.ratio);
    for (int i = 0; i < 6; i++) free(w.node[i]);
    tn_net_destroy(w.net);
    tn_params_destroy(params);
    tn_tensor_destroy(t);
    tn_tensor_destroy(s);
    free(w.t); free(w.s); free(w.y); free(ours);
}

void bench_operator(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        for (int n = 64; n <= 1024; n *= 2) eigh(n, threads);
        hosvd(256, 1024, threads);
        decomp(DECOMP_SVD, 1, 512, threads);
        decomp(DECOMP_SVD, 1, 1024, threads);
        decomp(DECOMP_TOP, 1, 1024, threads);
        decomp(DECOMP_RANDOM, 1, 1024, threads);
        decomp(DECOMP_EIG, 1, 512, threads);
        decomp(DECOMP_BATCH, 64, 64, threads);
        all_modes(256, 1024, threads);
        chain(16, 784, 8, threads, 6);
        chain(16, 784, 16, threads, 4);
        chain(16, 256, 32, threads, 1.5);
        chain(16, 256, 64, threads, 1.1);
        net_of_attention(threads);
        net_of_pairs(threads);
    }
    top_pairs(512, 2048, 2, true);
    top_pairs(4096, 16384, 2, false);
}
