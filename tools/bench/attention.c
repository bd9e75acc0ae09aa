/* Attention, causal: many heads of a model's length, and one head of a long text, in both forms. PyTorch gets its own best layout, [heads,T,d]. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

typedef struct attend_work { tn_ctx *ctx; tn_tensor *q, *k, *v, *w; tn_attend_desc desc; bool backward; } attend_work;

static void run_attend(void *arg, long runs)
{
    attend_work *a = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(a->ctx);
        if (a->backward) {
            tn_record(a->ctx);
            tn_tensor *q = tn_copy(a->ctx, a->q), *k = tn_copy(a->ctx, a->k), *v = tn_copy(a->ctx, a->v);
            tn_watch(q);
            tn_watch(k);
            tn_watch(v);
            tn_tensor *o = tn_attend(a->ctx, q, k, v, &a->desc);
            if (tn_backward(a->ctx, tn_sum(a->ctx, tn_mul(a->ctx, o, a->w))) != TN_OK) bench_check(a->ctx);
        } else if (!tn_attend(a->ctx, a->q, a->k, a->v, &a->desc)) bench_check(a->ctx);
    }
}

/* The multiply-adds that are needed, times two. */
static double flops_of(const attend_work *a, double heads, double T, double d)
{
    const double sets = a->desc.kind == TN_ATTEND_BILINEAR ? 2 : 1, pairs = T * (T + 1) / 2;
    /* beyond the first chunk a state is read and added to; backwards three more products */
    if (a->desc.form == TN_ATTEND_FORM_LINEAR)
        return heads * T * 2 * d * d * d * (a->backward ? 7 : 2) / (a->desc.kind == TN_ATTEND_SQUARED ? 2 : 1);
    return heads * pairs * 2 * d * (a->backward ? 4 * sets + 3 : sets + 1);     /* scores twice, dq and dk; dP, dv and o */
}

static void attend(const char *name, tn_attend_kind kind, tn_attend_form form, bool backward, int64_t batch, int64_t heads, int64_t T, int64_t d,
                   int threads, double goal, const char *peer)
{
    tn_ctx     *ctx = bench_ctx(TN_F32, threads);
    int64_t     sets = kind == TN_ATTEND_BILINEAR ? 2 : 1, qk[4] = {batch, T, sets * heads, d}, v[4] = {batch, T, heads, d};
    attend_work a = { .ctx = ctx, .backward = backward };
    bench_row   row = { .threads = threads, .goal = goal, .peer_name = "PyTorch" };
    char        value[96], work[96];
    a.q = bench_normal(ctx, 4, qk, 1);
    a.k = bench_normal(ctx, 4, qk, 1);
    a.v = bench_normal(ctx, 4, v, 1);
    a.w = bench_normal(ctx, 4, v, 1);
    a.desc.kind = kind;
    a.desc.form = form;
    row.flops = flops_of(&a, (double)(batch * heads), (double)T, (double)d);
    snprintf(row.name, sizeof row.name, "%s%s", name, backward ? " fwd+bwd" : "");
    snprintf(row.shape, sizeof row.shape, "%dx%dx%d", (int)(batch * heads), (int)T, (int)d);
    snprintf(work, sizeof work, "%s %d %d %d %d", peer, (int)(batch * heads), (int)T, (int)d, backward);
    bench_turns(&row, (bench_side){ run_attend, &a, NULL }, bench_torch(work, threads));
    snprintf(value, sizeof value, "%s_%d_%d%s_vs_torch_%dt", peer, (int)T, (int)d, backward ? "_backward" : "", threads);
    bench_value(value, row.ratio);
    tn_tensor *all[] = {a.q, a.k, a.v, a.w};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tn_tensor_destroy(all[i]);
}

void bench_attention(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        for (int backward = 0; backward < 2; backward++) {
            attend("softmax", TN_ATTEND_SOFTMAX, TN_ATTEND_FORM_QUADRATIC, backward, 16, 4, 256, 64, threads,
                   1.7, "softmax_heads");
            attend("bilinear", TN_ATTEND_BILINEAR, TN_ATTEND_FORM_QUADRATIC, backward, 16, 4, 256, 64, threads,
                   1.7, "bilinear_heads");
            attend("bilinear tiles", TN_ATTEND_BILINEAR, TN_ATTEND_FORM_QUADRATIC, backward, 1, 1, 4096, 64, threads,
                   backward ? 0 : 1.8, "bilinear_blocks");
            attend("bilinear linear", TN_ATTEND_BILINEAR, TN_ATTEND_FORM_LINEAR, backward, 1, 1, 16384, 32, threads,
                   backward ? 0 : 1.4, "bilinear_state");
            attend("bilinear linear", TN_ATTEND_BILINEAR, TN_ATTEND_FORM_LINEAR, backward, 1, 1, 16384, 64, threads,
                   backward ? 0 : 1.6, "bilinear_state");
        }
        attend("bilinear tiles", TN_ATTEND_BILINEAR, TN_ATTEND_FORM_QUADRATIC, false, 1, 1, 16384, 64, threads, 1.8,
               "bilinear_blocks");
    }
}
