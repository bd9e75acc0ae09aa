/* plan.c - tn info --plan: what a step of a training costs on a number of GPUs, by the model of docs/internals.md, section 9

   Everything that was not measured is a constant here, and is printed as an assumption. */
#include "train.h"
#include "dry.h"
#include <string.h>

#define PEAK      989e12                /* bf16 products of an H100, dense: its data sheet                             */
#define USE       0.40                  /* share of it that a step reaches                                             */
#define MEMORY    3.35e12               /* bytes per second of its memory: its data sheet                              */
#define NEAR      360e9                 /* bytes per second from a GPU to others of its machine: 80 % of NVLink's 450  */
#define FAR       40e9                  /* to those of other machines: 80 % of 400 Gbit/s for each GPU                 */
#define TOGETHER  8                     /* GPUs in a machine                                                           */

#define ON_WAY    4                     /* buckets of gradients for which there is memory                              */
#define NUMBER(s) ((s)->dtype ? 8 : 4)  /* bytes of a number                                                           */

/* More would take longer than a second. */
#define LAYERS    1000
#define PARTS     300000                /* of layers, each on a GPU                                                    */

/* Bytes of a GPU: a few steps of the training itself, of so many parts, without computing anything. */
static double peak_of_parts(const tn_transformer_desc *desc, const settings *s, int64_t gpus, bool shared, int64_t parts)
{
    settings with = *s;
    tn_comm  others = dry_comm((int)gpus);
    tn_desc  d;
    tn_ctx  *ctx;
    run      r;
    feed     f;
    char     why[TN_WHY];
    memset(&r, 0, sizeof r);
    set_dtypes(s, &d);
    with.share_moments = shared;
    with.accumulate = parts;
    d.backend = dry_backend();
    d.backend_required = true;
    d.comm = gpus > 1 ? &others : NULL;
    if (tn_ctx_create(&d, &ctx, why) != TN_OK) fail("%s", why);
    r.s = &with;
    r.texts = (s->batch + gpus - 1) / gpus;
    r.m.desc = *desc;
    r.planned = true;
    make_model(&r, ctx, &r.m, &r.optim);
    open_feed(&r, &r.m, r.optim, &f);
    for (int step = 0; step < 3; step++) compute_step(&f);
    check_ctx(ctx, "a step");
    tn_memory memory = tn_ctx_memory(ctx);
    /* What its larger buckets take more than those of a training */
    double larger = (double)(planned_bucket(&with, r.m.params) - (1 << 20)) * ON_WAY * NUMBER(s);
    close_feed(&f);
    tn_ctx_destroy(ctx);
    return (double)memory.peak - (gpus > 1 ? larger : 0);
}

/* Each further part has the same texts and losses, and so the same bytes. */
static double peak_of(const tn_transformer_desc *desc, const settings *s, int64_t gpus, bool shared)
{
    const int64_t few = s->accumulate < 3 ? s->accumulate : 3;
    const double  peak = peak_of_parts(desc, s, gpus, shared, few);
    if (few == s->accumulate) return peak;
    return peak + (double)(s->accumulate - few) * (peak - peak_of_parts(desc, s, gpus, shared, few - 1));
}

static void print_gigabytes(const char *name, double bytes) { print("%s: %.3g\n", name, bytes / 1e9); }

void print_plan(tn_ctx *ctx, const tn_transformer_desc *desc, const settings *s, int64_t gpus)
{
    const double        tokens = (double)(s->batch * s->accumulate * desc->context), n = (double)gpus;
    const double        width = NUMBER(s);
    tn_transformer_cost cost = tn_transformer_cost_of(desc, desc->context);
    tn_transformer_desc d;
    double              update;
    tn_transformer_check(ctx, desc, &d);
    check_ctx(ctx, "the model");
    if (desc->layers > LAYERS || desc->layers * gpus > PARTS)
        fail("--plan %lld: the model has %lld layers, expected at most %lld", (long long)gpus, (long long)desc->layers,
             (long long)(PARTS / gpus < LAYERS ? PARTS / gpus : LAYERS));
    double weights = width * (double)cost.params, sent = 2 * (n - 1) / n * weights;
    double compute = cost.training * tokens / (n * PEAK * USE);
    double network = sent / (gpus > TOGETHER ? FAR : NEAR);
    print("plan: %lld GPUs, %lld texts per forward pass, %.4g tokens per step\n", (long long)gpus, (long long)s->batch, tokens);
    if (n > (double)s->batch)
        print("note: fewer texts than GPUs; the memory is that of one text per GPU, the time that of %lld parts all the same\n",
              (long long)s->accumulate);
    print("pflop_per_step: %.4g\n", cost.training * tokens / 1e15);
    print_gigabytes("sent_per_gpu_gb", sent);
    for (int shared = 0; shared < 2; shared++) {
        double moments = (s->optimiser ? 2 : 1) * weights + (s->optimiser ? 0 : width * (double)cost.table);
        update = (3 * weights + 2 * moments) / (shared ? n : 1) / MEMORY;       /* gradients, values, moments: read and written */
        double step = compute + update + network;
        if (shared) moments /= n;
        print("%s:\n", shared ? "with --share-moments" : "each GPU with all moments");
        double peak = peak_of(&d, s, gpus, shared);
        print("  memory_gb: %.3g = weights %.3g + gradients %.3g + moments %.3g + activations, buckets and weights in BF16 "
              "%.3g\n", peak / 1e9, weights / 1e9, weights / 1e9, moments / 1e9, (peak - 2 * weights - moments) / 1e9);
        print("  seconds_per_step: %.3g = compute %.3g + update %.3g + network %.3g\n", step, compute, update, network);
        print("  tokens_per_second: %.3g\n", tokens / step);
    }
    print("assumptions, none measured: %.0f Tflop/s, of which %.0f %% are used; %.2f TB/s memory; %.0f GB/s between the %d GPUs "
          "of a machine, %.0f GB/s per GPU between machines; Muon's products left out; the network "
          "waits for the backward pass. Memory is what a step asks for, without what kernels keep for themselves\n",
          PEAK / 1e12, 100 * USE, MEMORY / 1e12, NEAR / 1e9, TOGETHER, FAR / 1e9);
}
