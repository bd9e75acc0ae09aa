/* Training steps of layers that are chains of small matrices: an MPS classifier and TN attention. PyTorch gets the fastest
   of several ways to write it, eager or compiled (torch_peer.py); the MPS has TensorKrowch's layer as a second peer, where it is installed. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- an MPS classifier of 784 pixels, labels 0 to 9 in the middle ------------------------------------- */

typedef struct mps_work { tn_ctx *ctx; tn_mps layer; tn_optim *optim; tn_tensor *x, *y; } mps_work;

static void run_mps(void *arg, long runs)
{
    mps_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(w->ctx);
        tn_record(w->ctx);
        tn_backward(w->ctx, tn_cross_entropy(w->ctx, tn_mps_forward(w->ctx, &w->layer, w->x, NULL), w->y));
        if (tn_optim_step(w->optim) != TN_OK) bench_check(w->ctx);
    }
}

static void mps_step(int sites, int bond, int batch, int threads)
{
    const int64_t shape[2] = {batch, sites};
    mps_work      w = { .ctx = bench_ctx(TN_F32, threads) };
    tn_params    *params = tn_params_create(w.ctx);
    bench_row     row = { "MPS, training step", "", threads, .goal = 3, .peer_name = "PyTorch" };
    const char   *peers[2] = {"PyTorch", "Krowch"}, *works[2] = {"mps_step", "mps_step_krowch"};
    float        *x = malloc((size_t)(batch * sites) * sizeof *x);
    int32_t      *y = malloc((size_t)batch * sizeof *y);
    char          text[64];
    if (!x || !y) exit(1);
    tn_mps_init(params, "mps", &(tn_mps_desc){ .sites = sites, .bond = bond, .out = 10 }, &w.layer);
    w.optim = tn_optim_create(params, NULL);
    for (int i = 0; i < batch * sites; i++) x[i] = (float)(i * 7919LL % 1009) / 1008;
    for (int i = 0; i < batch; i++) y[i] = i % 10;
    w.x = tn_tensor_create(w.ctx, TN_F32, 2, shape);
    w.y = tn_tensor_create(w.ctx, TN_I32, 1, shape);
    if (!w.x || !w.y) bench_check(w.ctx);
    tn_write(w.x, TN_F32, x, batch * sites);
    tn_write(w.y, TN_I32, y, batch);
    bench_check(w.ctx);
    /* states times cores, forward; both gradients, backward: 2 s D^2 each */
    row.flops = 3.0 * batch * sites * 2 * 2 * bond * bond;
    snprintf(row.shape, sizeof row.shape, "%d, D %d, b %d", sites, bond, batch);
    for (int k = 0; k < (bench_has("tensorkrowch") ? 2 : 1); k++) {
        row.peer_name = peers[k];
        snprintf(text, sizeof text, "%s %d %d %d", works[k], sites, bond, batch);
        bench_turns(&row, (bench_side){ run_mps, &w, NULL }, bench_torch(text, threads));
        snprintf(text, sizeof text, "mps_step_vs_%s_%dt", k ? "tensorkrowch" : "torch", threads);
        bench_value(text, row.ratio);
    }
    tn_optim_destroy(w.optim);
    tn_params_destroy(params);
    tn_tensor_destroy(w.x);
    tn_tensor_destroy(w.y);
    tn_ctx_reset(w.ctx);
    free(x);
    free(y);
}

/* ---- TN attention over strings of cells, as a layer learns a cellular automaton ----------------------------- */

typedef struct tna_work { tn_ctx *ctx; tn_tn_attention layer; tn_optim *optim; tn_tensor *x, *y; } tna_work;

static void run_tna(void *arg, long runs)
{
    tna_work *w = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(w->ctx);
        tn_record(w->ctx);
        tn_backward(w->ctx, tn_mse(w->ctx, tn_tn_attention_forward(w->ctx, &w->layer, w->x), w->y));
        if (tn_optim_step(w->optim) != TN_OK) bench_check(w->ctx);
    }
}

static void tna_step(int length, int bond, int batch, int threads)
{
    const int64_t shape[3] = {batch, length, 2}, goals[3] = {batch, length, 1};
    const int     cells = batch * length;
    tna_work      w = { .ctx = bench_ctx(TN_F32, threads) };
    tn_params    *params = tn_params_create(w.ctx);
    bench_row     row = { "TN attention, step", "", threads, .goal = 3, .peer_name = "PyTorch" };
    float        *x = malloc((size_t)cells * 2 * sizeof *x), *y = malloc((size_t)cells * sizeof *y);
    char          text[64];
    if (!x || !y) exit(1);
    tn_tn_attention_init(params, "tna", &(tn_tn_attention_desc){ .in = 2, .out = 1, .bond = bond, .unit_inputs = true,
                         .unit_weights = true }, &w.layer);
    w.optim = tn_optim_create(params, NULL);
    for (int i = 0; i < cells; i++) {
        const int bit = (int)(i * 7919LL % 1009 % 2);
        x[2 * i] = (float)(1 - bit);
        x[2 * i + 1] = (float)bit;
        y[i] = bit ? 1 : -1;
    }
    w.x = tn_tensor_create(w.ctx, TN_F32, 3, shape);
    w.y = tn_tensor_create(w.ctx, TN_F32, 3, goals);
    if (!w.x || !w.y) bench_check(w.ctx);
    tn_write(w.x, TN_F32, x, 2 * cells);
    tn_write(w.y, TN_F32, y, cells);
    bench_check(w.ctx);
    /* matrices, two contexts and their product, W; twice as many for gradients */
    row.flops = 3.0 * cells * (4.0 * bond * bond + 6.0 * bond * bond * bond + 4.0 * bond * bond);
    snprintf(row.shape, sizeof row.shape, "%d, D %d, b %d", length, bond, batch);
    snprintf(text, sizeof text, "tna_step %d %d %d", length, bond, batch);
    bench_turns(&row, (bench_side){ run_tna, &w, NULL }, bench_torch(text, threads));
    snprintf(text, sizeof text, "tn_attention_step_vs_torch_%dt", threads);
    bench_value(text, row.ratio);
    tn_optim_destroy(w.optim);
    tn_params_destroy(params);
    tn_tensor_destroy(w.x);
    tn_tensor_destroy(w.y);
    tn_ctx_reset(w.ctx);
    free(x);
    free(y);
}

void bench_chains(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        mps_step(784, 10, 128, threads);
        tna_step(32, 10, 64, threads);
    }
}
