/* Where the time of a step goes: make bench BENCH=profile. A backend counts the time of each kernel and passes the call on to
   the cpu backend; a parallel_for counts the time of each task and passes it on to the threads of a second context, which are
   of the same kind as those that are measured. A kernel's floor is the time of its multiply-adds at the processor's peak, or
   of its operands' bytes at the rate at which as many bytes are updated in place, whichever is longer. What both clocks cost
   is in the heading of each table: the time of a run with them, and without. */
#define _GNU_SOURCE
#include "bench.h"
#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_THREADS = 2 };

/* Of a kernel the first family counts whose text is a part of its name. */
typedef enum family {
    PRODUCTS, ATTEND, ATTEND_BACK, NORMS, LOSS, OPTIMISER, EMBEDDING, COPIES, ELEMENTWISE, HOST, FAMILIES
} family;
static const char *const family_name[FAMILIES] = {
    "products", "attention forward", "attention backward", "norms", "loss", "optimiser", "embedding", "copies, fills",
    "elementwise", "host between kernels"};
static const struct { const char *part; family family; } parts[] = {
    {"attention_backward", ATTEND_BACK}, {"attention_linear_backward", ATTEND_BACK}, {"attention", ATTEND},
    {"gemm", PRODUCTS}, {"norm", NORMS}, {"cross_entropy", LOSS}, {"argmax", LOSS},
    {"adamw", OPTIMISER}, {"sgd", OPTIMISER}, {"muon", OPTIMISER}, {"sumsq", OPTIMISER}, {"step_begin", OPTIMISER},
    {"tick", OPTIMISER}, {"embed", EMBEDDING}, {"copy", COPIES}, {"fill", COPIES}};

static family family_of(tn_kernel k)
{
    if (k == TN_KERNEL_NORMAL) return ELEMENTWISE;
    for (size_t i = 0; i < COUNT(parts); i++) if (strstr(tn_kernel_name(k), parts[i].part)) return parts[i].family;
    return ELEMENTWISE;
}

/* Sums over the counted runs. `waits`: the time that the calling thread spends in parallel regions without a task. */
static struct {
    double  kernel[TN_KERNEL_COUNT], floor[TN_KERNEL_COUNT];                    /* seconds                               */
    double  waits[FAMILIES], tasks[MOST_THREADS][FAMILIES];                     /* of the caller; in tasks, of each thread */
    int64_t calls[TN_KERNEL_COUNT];
    family  now;
    bool    counting;
} total;

static int     threads;                 /* of the present table    */
static double  working_set;             /* bytes read between two uses of the same operand; 0: the operands' own */
static tn_ctx *helper;                  /* whose threads do the work */

/* ---- floors ---------------------------------------------------------------------------- */

static double bytes_of(const tn_view *v)
{
    double n = !v->data ? 0 : v->dtype == TN_F64 ? 8 : v->dtype == TN_BF16 ? 2 : 4;
    for (int i = 0; i < v->rank; i++) if (v->strides[i] != 0) n *= (double)v->shape[i];
    return n;
}

/* Seconds for so many bytes, by the rate of a nearby size, which is measured once. */
static double seconds_of_bytes(double bytes, double set, bool reads)
{
    static double rate[MOST_THREADS + 1][2][128];
    int           step = (int)lrint(2 * log2(fmax(fmax(bytes, set), 4096.0 * threads)));
    double        size = exp2(step / 2.0);
    double       *known = &rate[threads][reads][step];
    if (*known == 0) *known = size / (reads ? bench_read_seconds(size, threads) : bench_update_seconds(size, threads));
    return bytes / *known;
}

/* Pairs of a query and a key that it sees. */
static double pairs_of(const tn_call *c)
{
    double queries = (double)c->in[0].shape[1], keys = (double)c->in[1].shape[1];
    return c->i[1] ? queries * (keys - queries) + queries * (queries + 1) / 2 : queries * keys;
}

static double floor_of(const tn_call *c)
{
    const tn_view *in = c->in, *out = c->out;
    double         flops = 0, bytes = 0;
    for (int i = 0; i < c->n_in; i++) bytes += bytes_of(&in[i]);
    for (int i = 0; i < c->n_out; i++) bytes += bytes_of(&out[i]);
    if (c->accumulate || (c->kernel == TN_KERNEL_GEMM && c->f[1] != 0)) bytes += bytes_of(&out[0]);
    switch (c->kernel) {
    case TN_KERNEL_GEMM:
        flops = 2.0 * (double)out[0].shape[0] * (double)out[0].shape[1] * (double)out[0].shape[2] * (double)in[0].shape[2];
        break;
    case TN_KERNEL_ATTENTION:
    case TN_KERNEL_ATTENTION_BACKWARD: {
        const double heads = (double)in[2].shape[2], sets = (double)in[0].shape[2] / heads, d = (double)in[0].shape[3];
        const double dv = (double)in[2].shape[3], each = 2 * (double)in[0].shape[0] * heads * pairs_of(c);
        flops = each * (c->kernel == TN_KERNEL_ATTENTION ? sets * d + dv : 3 * sets * d + 2 * dv);
        break;
    }
    case TN_KERNEL_EMBED:          bytes = 2 * bytes_of(&out[0]); break;
    case TN_KERNEL_EMBED_BACKWARD: bytes = 3 * bytes_of(&in[1]); break;
    case TN_KERNEL_ADAMW:          bytes = 2 * bytes - bytes_of(&out[1]); break;      /* reads p, g, m, v, writes p, m, v */
    default: break;
    }
    const bool reads = c->kernel == TN_KERNEL_GEMM || working_set > 0;
    return fmax(flops / (bench_peak() * threads), seconds_of_bytes(bytes, working_set, reads));
}

/* ---- the two clocks -------------------------------------------------------------------- */

static tn_status timed(void *state, const tn_call *call)
{
    const family before = total.now;
    total.now = family_of(call->kernel);
    double    start = now();
    tn_status status = tn_cpu_backend()->fn[call->kernel](state, call);
    double    seconds = now() - start;
    total.now = before;
    if (total.counting) {                           /* a kernel's floor is computed in the first run, which is not counted */
        total.kernel[call->kernel] += seconds;
        total.calls[call->kernel]++;
    } else total.floor[call->kernel] += floor_of(call);
    return status;
}

typedef struct region { tn_task_fn fn; void *arg; } region;

static void timed_task(void *arg, int64_t task, int worker)
{
    const region *r = arg;
    double        start = now();
    r->fn(r->arg, task, worker);
    total.tasks[worker][total.now] += now() - start;
}

/* A region within a task runs on the task's thread, as the library's own do. */
static void timed_for(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    static bool busy;
    region      r = { fn, arg };
    (void)user;
    if (busy || workers < threads) {                /* the latter has not been seen */
        for (int64_t task = 0; task < tasks; task++) fn(arg, task, 0);
        return;
    }
    busy = true;
    double start = now(), worked = total.tasks[0][total.now];
    bench_region(helper, tasks, timed_task, &r);
    total.waits[total.now] += now() - start - (total.tasks[0][total.now] - worked);
    busy = false;
}

/* ---- tables ---------------------------------------------------------------------------- */

static void print_line(const char *name, int64_t calls, double ms, double floor, double all, const double *unused)
{
    printf("    %-22s", name);
    if (calls > 0) printf(" %8lld", (long long)calls);
    else           printf(" %8s", "");
    printf(" %10.3f %5.1f%%", ms, 100 * ms / all);
    if (floor > 0) printf(" %10.3f %6.0f%%", floor, 100 * floor / ms);
    else           printf(" %10s %7s", "-", "-");
    for (int t = 0; t < threads; t++) printf(" %10.3f", unused[t]);
    puts("");
}

/* unit: what a run consists of, `units` of them: "step", "token". */
static void print_table(const char *title, const char *unit, double units, double plain, double wall)
{
    const double to_ms = 1e3 / units;
    double       kernels = 0, floors = 0, idle[MOST_THREADS] = {0};
    printf("\n%s, %d thread%s: %.3f ms per %s, %.3f with the clocks of this table (%+.1f%%)\n", title, threads,
           threads > 1 ? "s" : "", plain * to_ms, unit, wall * to_ms, 100 * (wall / plain - 1));
    printf("    %-22s %8s %10s %6s %10s %7s", "", "calls", "ms", "share", "floor ms", "floor");
    for (int t = 0; t < threads; t++) printf("   unused %d", t + 1);
    puts("");
    for (int f = 0; f < FAMILIES; f++) {
        double  seconds = 0, floor = 0, unused[MOST_THREADS];
        int64_t calls = 0;
        for (int k = 0; k < TN_KERNEL_COUNT; k++)
            if (f != HOST && family_of((tn_kernel)k) == (family)f) {
                seconds += total.kernel[k];
                floor += total.floor[k];
                calls += total.calls[k];
            }
        if (f == HOST) seconds = wall - kernels;
        else { kernels += seconds; floors += floor; }
        if (seconds <= 0) continue;
        for (int t = 0; t < threads; t++) {
            unused[t] = (t == 0 ? total.waits[f] : seconds - total.tasks[t][f]) * to_ms;
            idle[t] += unused[t];
        }
        print_line(family_name[f], calls, seconds * to_ms, floor * to_ms, wall * to_ms, unused);
    }
    print_line("all", 0, wall * to_ms, floors * to_ms, wall * to_ms, idle);
}

static double least_of(bench_side side)
{
    double best = HUGE_VAL;
    side.run(side.arg, 1);
    for (int i = 0; i < 3; i++) {
        double start = now();
        side.run(side.arg, 1);
        best = fmin(best, now() - start);
    }
    return best;
}

typedef enum kind_of_work { STEP_LM, DECODE_LM, STEP_FASHION } kind_of_work;

static bench_side work_in(tn_ctx *ctx, kind_of_work what, int kind, int size, int *units)
{
    *units = 1;
    working_set = 0;
    if (what == STEP_LM) return bench_lm_work(ctx, kind, size);
    if (what == DECODE_LM) return bench_decode_work(ctx, kind, size, units, &working_set);
    return bench_fashion_work(ctx, size);
}

static void profile(const char *title, kind_of_work what, int kind, int size)
{
    bench_row   row = { .threads = threads };
    tn_backend  backend = *tn_cpu_backend();
    tn_desc     desc = { .threads = threads, .seed = 1, .backend = &backend, .backend_required = true };
    tn_ctx     *plain = NULL, *clocked = NULL;
    char        why[TN_WHY];
    int         units, runs = 0;
    snprintf(row.name, sizeof row.name, "%s", title);
    if (!bench_wanted(&row)) return;
    backend.name = "timed";
    for (int k = 0; k < TN_KERNEL_COUNT; k++) if (backend.fn[k]) backend.fn[k] = timed;
    helper = bench_ctx(TN_F32, threads);
    if (threads > 1) desc.parallel_for = timed_for;
    if (tn_ctx_create(&(tn_desc){ .threads = threads, .seed = 1 }, &plain, why) != TN_OK ||
        tn_ctx_create(&desc, &clocked, why) != TN_OK) {
        fprintf(stderr, "bench: %s\n", why);
        return;
    }
    double alone = least_of(work_in(plain, what, kind, size, &units));
    bench_side side = work_in(clocked, what, kind, size, &units);
    side.run(side.arg, 1);                                                  /* arenas and caches get warm */
    memset(&total, 0, sizeof total);
    total.now = HOST;
    side.run(side.arg, 1);                                                  /* floors */
    memset(total.tasks, 0, sizeof total.tasks);
    memset(total.waits, 0, sizeof total.waits);
    total.counting = true;
    double start = now(), wall = 0;
    for (; runs < 100 && wall < 0.5; runs++) {
        side.run(side.arg, 1);
        wall = now() - start;
    }
    for (int k = 0; k < TN_KERNEL_COUNT; k++) {
        total.calls[k] /= runs * units;
        total.kernel[k] /= runs;
    }
    for (int f = 0; f < FAMILIES; f++) {
        total.waits[f] /= runs;
        for (int t = 0; t < threads; t++) total.tasks[t][f] /= runs;
    }
    print_table(title, what == DECODE_LM ? "token" : "step", units, alone, wall / runs);
    fflush(stdout);
    tn_ctx_destroy(clocked);
    tn_ctx_destroy(plain);
}

void bench_profile(void)
{
    for (threads = 1; threads <= MOST_THREADS; threads++) {
        profile("LM step, softmax, 1 layer", STEP_LM, 0, 1);
        profile("LM step, bilinear, 1 layer", STEP_LM, 1, 1);
        profile("LM step, softmax, 4 layers", STEP_LM, 0, 4);
        profile("LM step, bilinear, 4 layers", STEP_LM, 1, 4);
        profile("LM step, gpt2, 4 layers", STEP_LM, 2, 4);
        profile("bilinear 784-256-10 step, batch 128", STEP_FASHION, 0, 128);
        profile("bilinear 784-256-10 step, batch 2048", STEP_FASHION, 0, 2048);
        profile("decode, softmax, 1 text", DECODE_LM, 0, 1);
        profile("decode, bilinear, 1 text", DECODE_LM, 1, 1);
        profile("decode, softmax, 32 texts", DECODE_LM, 0, 32);
        profile("decode, bilinear, 32 texts", DECODE_LM, 1, 32);
    }
    puts("\nunused 1, 2: milliseconds in which a thread had nothing to do. floor: the share of the time that the necessary\n"
         "multiply-adds or bytes take at least; between kernels the host records, plans and prepares calls.");
}
