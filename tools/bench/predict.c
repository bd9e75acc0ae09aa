/* One prediction of a small network, as a program calls it once per frame: reset, the input written, two layers, the output read. The peer
   is the same arithmetic as plain C loops in one function, which needs no library; in a second row the fastest of LiteRT
   (TensorFlow Lite) and PyTorch, which Python calls: what that takes by itself is a third row. No prediction allocates. */
#define _GNU_SOURCE
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct net {
    tn_ctx *ctx;
    tn_mlp  layer;
    int     in, hidden, out;
    float  *w, *b, *p, *pb, *x, *y;      /* the peer's copies: w [2,hidden,in], b [2,hidden], p [out,hidden], pb [out]; x [in], y [out] */
} net;

static void predict(void *arg, long runs)
{
    net *n = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(n->ctx);
        tn_tensor *x = tn_tensor_2d(n->ctx, TN_F32, 1, n->in);
        tn_write(x, TN_F32, n->x, n->in);
        tn_read(tn_mlp_forward(n->ctx, &n->layer, x), TN_F32, n->y, n->out);
    }
    bench_check(n->ctx);
}

/* p ((w0 x + b0) * (w1 x + b1)) + pb */
static void predict_by_hand(const net *n, const float *restrict x, float *restrict y)
{
    float z[256];
    for (int i = 0; i < n->hidden; i++) {
        const float *left = n->w + i * n->in, *right = n->w + (n->hidden + i) * n->in;
        float        a = n->b[i], c = n->b[n->hidden + i];
        for (int j = 0; j < n->in; j++) { a += left[j] * x[j]; c += right[j] * x[j]; }
        z[i] = a * c;
    }
    for (int i = 0; i < n->out; i++) {
        const float *row = n->p + i * n->hidden;
        float        sum = n->pb[i];
        for (int j = 0; j < n->hidden; j++) sum += row[j] * z[j];
        y[i] = sum;
    }
}

static void run_by_hand(void *arg, long runs)
{
    net           *n = arg;
    volatile float sink = 0;
    for (long i = 0; i < runs; i++) {
        n->x[0] = (float)(i % 7);                       /* or the compiler might do it once */
        predict_by_hand(n, n->x, n->y);
        sink += n->y[0];
    }
}

static float *copy_of(const tn_tensor *t)
{
    int64_t n = tn_tensor_count(t);
    float  *v = malloc(sizeof *v * (size_t)n);
    if (!v || tn_read(t, TN_F32, v, n) != TN_OK) exit(1);
    return v;
}

static void small_net(int in, int hidden, int out)
{
    tn_ctx     *ctx = bench_ctx(TN_F32, 1);
    tn_params  *params = tn_params_create(ctx);
    tn_mlp_desc desc = { .in = in, .hidden = hidden, .out = out, .bias = true, .out_bias = true };
    net         n = { .ctx = ctx, .in = in, .hidden = hidden, .out = out };
    bench_row   row = { "prediction, batch 1", "", 1, .flops = 4.0 * hidden * in + 2.0 * hidden * out, .peer_name = "plain C" };
    char        name[64];
    float       ours[64];
    if (tn_mlp_init(params, "net", &desc, &n.layer) != TN_OK) bench_check(ctx);
    n.w = copy_of(n.layer.w);
    n.b = copy_of(n.layer.b);
    n.p = copy_of(n.layer.p);
    n.pb = copy_of(n.layer.pb);
    n.x = malloc(sizeof *n.x * (size_t)in);
    n.y = malloc(sizeof *n.y * (size_t)out);
    for (int j = 0; j < in; j++) n.x[j] = (float)(j % 5) - 2;
    predict(&n, 1);
    memcpy(ours, n.y, sizeof *n.y * (size_t)out);
    predict_by_hand(&n, n.x, n.y);
    for (int j = 0; j < out; j++)
        if (!(fabsf(n.y[j] - ours[j]) <= 1e-4f * (1 + fabsf(n.y[j])))) {
            fprintf(stderr, "bench: a prediction is %g, by hand %g\n", (double)ours[j], (double)n.y[j]);
            exit(1);
        }
    snprintf(row.shape, sizeof row.shape, "%d-%d-%d", in, hidden, out);
    bench_turns(&row, (bench_side){ predict, &n, NULL }, bench_peer(run_by_hand, &n));
    snprintf(name, sizeof name, "prediction_us_%d_%d_%d", in, hidden, out);
    bench_value(name, row.middle * 1e6);
    row.peer_name = "PyTorch";
    snprintf(name, sizeof name, "prediction %d %d %d", in, hidden, out);
    bench_turns(&row, (bench_side){ predict, &n, NULL }, bench_torch(name, 1));
    snprintf(name, sizeof name, "prediction_us_%s_%d_%d_%d", row.peer_name, in, hidden, out);
    bench_value(name, row.peer * 1e6);
    snprintf(name, sizeof name, "prediction_calls %d %d %d", in, hidden, out);
    snprintf(row.name, sizeof row.name, "only the peer's calls");
    row.peer_name = "Python";
    bench_turns(&row, (bench_side){ predict, &n, NULL }, bench_torch(name, 1));
    uint64_t before = tn_ctx_memory(ctx).allocations;
    predict(&n, 1000);
    if (tn_ctx_memory(ctx).allocations != before) {
        fprintf(stderr, "bench: 1000 predictions allocated %d times\n", (int)(tn_ctx_memory(ctx).allocations - before));
        exit(1);
    }
    float *all[] = {n.w, n.b, n.p, n.pb, n.x, n.y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    tn_params_destroy(params);
}

void bench_predict(void)
{
    small_net(8, 16, 4);
    small_net(64, 64, 8);
    small_net(784, 256, 10);
}
