/* Scans beside the products that they need: 2 d^3 flops for each site of a chain of matrices, 2 s d^2 for each site of a chain of
   states, and twice as many in the backward pass. */
#include "bench.h"
#include <stdio.h>

typedef struct scan_work { tn_ctx *ctx; tn_params *params; tn_tensor *m, *v, *phi; bool backward; } scan_work;

static void run_scan(void *arg, long runs)
{
    scan_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_tensor *logs;
        tn_ctx_reset(w->ctx);
        if (w->backward) tn_record(w->ctx);
        tn_tensor *y = w->phi ? tn_scan_states(w->ctx, w->v, w->m, w->phi, false, &logs) : tn_scan(w->ctx, w->m, false, &logs);
        if (y && w->backward) {
            tn_backward(w->ctx, tn_sum(w->ctx, logs));
            tn_params_zero_grad(w->params);
        }
        bench_check(w->ctx);
    }
}

static tn_tensor *scan_param(scan_work *w, const char *name, int rank, const int64_t *shape)
{
    tn_init init = { .rule = TN_INIT_NORMAL, .std = 1 };
    return tn_params_add(w->params, name, rank, shape, init)->value;
}

/* s 0: a chain of matrices. The peer multiplies them site by site, all of a batch at once, without normalising. */
static void scan(int batch, int sites, int d, int s, bool backward, int threads)
{
    const int64_t matrices[4] = {batch, sites, d, d}, cores[4] = {sites, d, s, d}, features[3] = {batch, sites, s}, start[1] = {d};
    const double  steps = (double)batch * sites, cost = (s > 0 ? 2.0 * s * d * d : 2.0 * d * d * d) * (backward ? 3 : 1);
    const double  bytes = 4 * (s > 0 ? steps * (s + d + 1.0) : steps * d * d * 2) * (backward ? 3 : 1);
    scan_work     w = { .ctx = bench_ctx(TN_F32, threads), .backward = backward };
    bench_row     row = { "scan", "", threads, .flops = steps * cost, .bytes = bytes, .peer_name = "bmm" };
    char          work[64];
    w.params = tn_params_create(w.ctx);
    w.m = scan_param(&w, "m", 4, s > 0 ? cores : matrices);
    if (s > 0) {
        w.v = scan_param(&w, "v", 1, start);
        w.phi = scan_param(&w, "phi", 3, features);
    }
    snprintf(row.name, sizeof row.name, "%s%s", s > 0 ? "states" : "scan", backward ? " + backward" : "");
    snprintf(row.shape, sizeof row.shape, s > 0 ? "%d x %d x %d, s %d" : "%d x %d x %d", batch, sites, d, s);
    snprintf(work, sizeof work, "scan %d %d %d", batch, sites, d);
    bench_turns(&row, (bench_side){ run_scan, &w, NULL }, s > 0 || backward ? bench_peer(NULL, NULL) : bench_torch(work, threads));
    snprintf(work, sizeof work, "%s%s_%dx%d_floor_%dt", s > 0 ? "states" : "scan", backward ? "_backward" : "", batch, d, threads);
    bench_value(work, bench_floor(&row) / row.ours);
    tn_params_destroy(w.params);
}

void bench_scan(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        scan(16, 784, 16, 0, false, threads);
        scan(16, 256, 32, 0, false, threads);
        scan(16, 256, 64, 0, false, threads);
        scan(1, 4096, 16, 0, false, threads);
        scan(1, 1024, 32, 0, false, threads);
        scan(16, 784, 16, 0, true, threads);
        scan(16, 256, 32, 0, true, threads);
        scan(16, 256, 64, 0, true, threads);
        scan(100, 784, 10, 2, false, threads);
        scan(100, 784, 16, 2, false, threads);
        scan(100, 256, 32, 2, false, threads);
        scan(1, 100000, 10, 2, false, threads);
        scan(100, 784, 10, 2, true, threads);
        scan(100, 784, 16, 2, true, threads);
        scan(100, 256, 32, 2, true, threads);
    }
}
