/* A training step and its larger pieces, against PyTorch. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void result(const char *work, const bench_row *row)
{
    char name[96];
    snprintf(name, sizeof name, "%s_%dt", work, row->threads);
    bench_value(name, row->ratio);
}

/* ---- rows of the kernel table, called as the tape calls them ------------------------ */

typedef struct pieces { void *state; tn_call call[2]; int calls; } pieces;

static void run_calls(void *arg, long runs)
{
    pieces *p = arg;
    for (long i = 0; i < runs; i++)
        for (int k = 0; k < p->calls; k++)
            if (tn_cpu_backend()->fn[p->call[k].kernel](p->state, &p->call[k]) != TN_OK) exit(1);
}

static tn_view view_of(const tn_tensor *t)
{
    tn_view v = {0};
    if (!t) return v;
    v.data = t->data;
    v.dtype = t->dtype;
    v.rank = t->rank;
    memcpy(v.shape, t->shape, sizeof v.shape);
    memcpy(v.strides, t->strides, sizeof v.strides);
    return v;
}

static void set_call(tn_call *c, tn_kernel kernel, int n_in, tn_tensor *const *in, int n_out, tn_tensor *const *out)
{
    memset(c, 0, sizeof *c);
    c->kernel = kernel;
    c->n_in = n_in;
    c->n_out = n_out;
    for (int i = 0; i < n_in; i++) c->in[i] = view_of(in[i]);
    for (int i = 0; i < n_out; i++) c->out[i] = view_of(out[i]);
}

static tn_tensor *owned(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m)      /* m 0: a vector, n 0: a number */
{
    int64_t    shape[2] = {n, m};
    tn_tensor *t = tn_tensor_create(ctx, dtype, n == 0 ? 0 : m == 0 ? 1 : 2, shape);
    bench_check(ctx);
    return t;
}

static void cross_entropy(int threads)
{
    enum { R = 4096, C = 2048 };
    tn_ctx    *ctx = bench_ctx(TN_F32, threads);
    int64_t    shape[2] = {R, C};
    tn_tensor *logits = bench_normal(ctx, 2, shape, 1), *labels = owned(ctx, TN_I32, R, 0), *loss = owned(ctx, TN_F32, 0, 0);
    tn_tensor *lse = owned(ctx, TN_F32, R, 0), *dlogits = owned(ctx, TN_F32, R, C), *fault = owned(ctx, TN_I32, 4, 0);
    pieces     p = { .state = bench_state(ctx), .calls = 1 };
    bench_row  row = { "cross_entropy fwd+bwd", "4096 x 2048", threads, .bytes = 4.0 * R * C * 2, .goal = 4, .peer_name = "PyTorch" };
    set_call(&p.call[0], TN_KERNEL_CROSS_ENTROPY, 2, (tn_tensor *[]){logits, labels}, 4, (tn_tensor *[]){loss, lse, fault, dlogits});
    bench_turns(&row, (bench_side){ run_calls, &p, NULL }, bench_torch("cross_entropy 4096 2048", threads));
    result("cross_entropy_vs_torch", &row);
    tn_tensor *all[] = {logits, labels, loss, lse, dlogits, fault};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tn_tensor_destroy(all[i]);
}

static void rmsnorm(int threads)
{
    enum { R = 4096, C = 256 };
    tn_ctx    *ctx = bench_ctx(TN_F32, threads);
    int64_t    shape[2] = {R, C};
    tn_tensor *x = bench_normal(ctx, 2, shape, 1), *gain = bench_normal(ctx, 1, shape + 1, 1), *dy = bench_normal(ctx, 2, shape, 1);
    tn_tensor *y = owned(ctx, TN_F32, R, C), *r = owned(ctx, TN_F32, R, 0), *dx = owned(ctx, TN_F32, R, C), *dgain = owned(ctx, TN_F32, C, 0);
    pieces     p = { .state = bench_state(ctx), .calls = 2 };
    bench_row  row = { "rmsnorm fwd+bwd", "4096 x 256", threads, .bytes = 4.0 * R * C * 5, .goal = 2.5, .peer_name = "PyTorch" };
    set_call(&p.call[0], TN_KERNEL_RMSNORM, 2, (tn_tensor *[]){x, gain}, 2, (tn_tensor *[]){y, r});
    p.call[0].f[0] = 1e-5;
    set_call(&p.call[1], TN_KERNEL_RMSNORM_BACKWARD, 4, (tn_tensor *[]){x, gain, r, dy}, 2, (tn_tensor *[]){dx, dgain});
    bench_turns(&row, (bench_side){ run_calls, &p, NULL }, bench_torch("rmsnorm 4096 256", threads));
    result("rmsnorm_vs_torch", &row);
    tn_tensor *all[] = {x, gain, dy, y, r, dx, dgain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tn_tensor_destroy(all[i]);
}

/* ---- AdamW, through the optimiser: its step also takes the norm and looks for gradients that are not finite -------------- */

typedef struct updates { tn_params *params; tn_optim *optim; } updates;

static void run_adamw(void *arg, long runs)
{
    const updates *u = arg;
    for (long i = 0; i < runs; i++) {
        bench_fresh(u->params);
        if (tn_optim_step(u->optim) != TN_OK) exit(1);
    }
}

static void adamw(int threads)
{
    static const int64_t layer[4][2] = {{768, 256}, {256, 256}, {1024, 256}, {256, 1024}};
    tn_ctx    *ctx = bench_ctx(TN_F32, threads);
    tn_params *params = tn_params_create(ctx);
    tn_init    init = { .rule = TN_INIT_NORMAL };
    tn_tensor *sum = NULL;
    char       name[32];
    int64_t    table[2] = {2560, 256};
    tn_params_add(params, "embed", 2, table, init);
    tn_params_add(params, "unembed", 2, table, init);
    for (int l = 0; l < 4; l++)
        for (int m = 0; m < 4; m++) {
            snprintf(name, sizeof name, "%d.%d", l, m);
            tn_params_add(params, name, 2, layer[m], init);
        }
    tn_record(ctx);                                             /* a gradient for everybody: of half the sum of squares, it is p */
    for (int64_t i = 0; i < tn_params_count(params); i++) {
        tn_tensor *p = tn_params_at(params, i)->value, *s = tn_sum(ctx, tn_mul(ctx, p, p));
        sum = sum ? tn_add(ctx, sum, s) : s;
    }
    tn_backward(ctx, sum);
    bench_check(ctx);
    tn_optim  *optim = tn_optim_create(params, &(tn_optim_desc){ .weight_decay = 0.1 });
    double     elements = (double)tn_params_elements(params);
    /* 28 bytes for each: updates in place of three numbers, and one that is read. Reading it for the norm is not counted. */
    bench_row  row = { "adamw", "", threads, .bytes = 4 * elements * 7, .goal = 1.15, .peer_name = "PyTorch" };
    snprintf(row.shape, sizeof row.shape, "%.2fM in 18", elements * 1e-6);
    updates    u = { params, optim };
    bench_turns(&row, (bench_side){ run_adamw, &u, NULL }, bench_torch("adamw", threads));
    result("adamw_vs_torch", &row);
    tn_optim_destroy(optim);
    tn_params_destroy(params);
    tn_ctx_reset(ctx);
}

void bench_pieces(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        cross_entropy(threads);
        rmsnorm(threads);
        adamw(threads);
    }
}

/* ---- a whole step: bilinear 784-256-10, cross-entropy, AdamW ------------------------- */

typedef struct step { tn_ctx *ctx; tn_params *params; tn_mlp mlp; tn_optim *optim; tn_tensor *x, *y; } step;

static void run_step(void *arg, long runs)
{
    step *s = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(s->ctx);
        tn_record(s->ctx);
        tn_backward(s->ctx, tn_cross_entropy(s->ctx, tn_mlp_forward(s->ctx, &s->mlp, s->x), s->y));
        if (tn_optim_step(s->optim) != TN_OK) bench_check(s->ctx);
    }
}

static step fashion_make(tn_ctx *ctx, int batch)
{
    step         s = { .ctx = ctx, .params = tn_params_create(ctx) };
    tn_mlp_desc  desc = { .in = 784, .hidden = 256, .out = 10, .bias = true, .out_bias = true };
    int64_t      shape[2] = {batch, 784};
    int32_t     *labels = malloc((size_t)batch * sizeof *labels);
    if (!labels) exit(1);
    tn_mlp_init(s.params, "mlp", &desc, &s.mlp);
    s.optim = tn_optim_create(s.params, NULL);
    s.x = bench_normal(ctx, 2, shape, 1);
    s.y = owned(ctx, TN_I32, batch, 0);
    for (int i = 0; i < batch; i++) labels[i] = i % 10;
    tn_write(s.y, TN_I32, labels, batch);
    free(labels);
    bench_check(ctx);
    return s;
}

bench_side bench_fashion_work(tn_ctx *ctx, int batch)
{
    static step s;
    s = fashion_make(ctx, batch);
    return (bench_side){ run_step, &s, NULL };
}

static void fashion(int threads, int batch, double goal)
{
    step         s = fashion_make(bench_ctx(TN_F32, threads), batch);
    double       weights = 784 * 512 + 256 * 10;
    bench_row    row = { "bilinear 784-256-10 step", "", threads, .goal = goal, .peer_name = "PyTorch" };
    char         work[64];
    /* forward, and both gradients but the input's; the norm and AdamW read five numbers of each weight and write three */
    row.flops = 2.0 * batch * (2 * 784 * 512 + 3 * 256 * 10);
    row.bytes = 4 * (8 * weights + batch * 784.0 * 2);
    snprintf(row.shape, sizeof row.shape, "batch %d", batch);
    snprintf(work, sizeof work, "fashion_step %d", batch);
    bench_turns(&row, (bench_side){ run_step, &s, NULL }, bench_torch(work, threads));
    snprintf(work, sizeof work, "fashion_step_vs_torch_b%d", batch);
    result(work, &row);
    tn_optim_destroy(s.optim);
    tn_params_destroy(s.params);
    tn_tensor_destroy(s.x);
    tn_tensor_destroy(s.y);
    tn_ctx_reset(s.ctx);
}

void bench_step(void)
{
    fashion(1, 128, 1.6);
    fashion(2, 128, 2.0);
    fashion(1, 2048, 1.3);
    fashion(2, 2048, 1.3);
}
