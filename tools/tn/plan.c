/* plan.c - tn info --plan: what a step of a training costs on a number of GPUs, by the model of docs/internals.md, section 9

   Everything that was not measured is a constant here, and is printed as an assumption. */
#include "train.h"

#define PEAK      989e12                /* bf16 products of an H100, dense: its data sheet                             */
#define USE       0.40                  /* share of it that a step reaches                                             */
#define MEMORY    3.35e12               /* bytes per second of its memory: its data sheet                              */
#define NEAR      360e9                 /* bytes per second from a GPU to others of its machine: 80 % of NVLink's 450  */
#define FAR       40e9                  /* to those of other machines: 80 % of 400 Gbit/s for each GPU                 */
#define TOGETHER  8                     /* GPUs in a machine                                                           */
#define BUCKET    16777216.0            /* bytes: four buckets of 1048576 numbers in F32                               */

/* Numbers that the backward pass keeps for each token: of a block the residual stream, two normed inputs, queries, keys,
   values, the heads' results, and of the MLP encoders, product and result; of the end logits and their gradient. */
static double kept_per_token(const tn_transformer_desc *d, bool recompute)
{
    const double heads = (double)d->heads, qk = heads * (double)d->d_qk, v = heads * (double)d->d_v, dim = (double)d->dim;
    const double block = 5 * dim + 2 * qk + 2 * v + 3 * (double)d->hidden;
    return (double)d->layers * (recompute ? dim : block) + (recompute ? block : 0) + 2 * (double)d->vocab;
}

static void print_gigabytes(const char *name, double bytes) { printf("%s: %.3g\n", name, bytes / 1e9); }

void print_plan(tn_ctx *ctx, const tn_transformer_desc *desc, const settings *s, int64_t gpus)
{
    const double        tokens = (double)(s->batch * s->accumulate * desc->context), n = (double)gpus;
    const double        texts = (double)s->batch / n < 1 ? 1 : (double)s->batch / n;
    tn_transformer_cost cost = tn_transformer_cost_of(desc, desc->context);
    tn_transformer_desc d;
    double              weights, moments, kept, sent, compute, update, network, step;
    int                 shared;
    tn_transformer_check(ctx, desc, &d);
    check_ctx(ctx, "the model");
    weights = 4 * (double)cost.params;
    kept = texts * (double)d.context * kept_per_token(&d, s->recompute) * (s->activations ? 2 : 4);
    sent = 2 * (n - 1) / n * weights;
    compute = cost.training * tokens / (n * PEAK * USE);
    network = sent / (gpus > TOGETHER ? FAR : NEAR);
    printf("plan: %lld GPUs, %lld texts per forward pass, %.4g tokens per step\n", (long long)gpus, (long long)s->batch, tokens);
    if (n > (double)s->batch)
        printf("note: fewer texts than GPUs; the memory is that of one text per GPU, the time that of %lld parts all the same\n",
               (long long)s->accumulate);
    printf("pflop_per_step: %.4g\n", cost.training * tokens / 1e15);
    print_gigabytes("sent_per_gpu_gb", sent);
    for (shared = 0; shared < 2; shared++) {
        moments = (s->optimiser ? 2 : 1) * weights + (s->optimiser ? 0 : 4 * (double)cost.table);
        update = (3 * weights + 2 * moments) / (shared ? n : 1) / MEMORY;       /* gradients, values, moments: read and written */
        step = compute + update + network;
        if (shared) moments /= n;
        printf("%s:\n", shared ? "with --share-moments" : "each GPU with all moments");
        printf("  memory_gb: %.3g = weights %.3g + gradients %.3g + moments %.3g + activations %.3g + bucket %.3g\n",
               (2 * weights + moments + kept + BUCKET) / 1e9, weights / 1e9, weights / 1e9, moments / 1e9, kept / 1e9,
               BUCKET / 1e9);
        printf("  seconds_per_step: %.3g = compute %.3g + update %.3g + network %.3g\n", step, compute, update, network);
        printf("  tokens_per_second: %.3g\n", tokens / step);
    }
    printf("assumptions, none measured: %.0f Tflop/s, of which %.0f %% are used; %.2f TB/s memory; %.0f GB/s between the %d GPUs "
           "of a machine, %.0f GB/s per GPU between machines; Muon's products left out; the network "
           "waits for the backward pass\n", PEAK / 1e12, 100 * USE,
           MEMORY / 1e12, NEAR / 1e9, TOGETHER, FAR / 1e9);
}
