/* What a parallel region costs: the context's own threads against OpenMP's, the same tasks on as many threads. OpenMP waits
   as the environment says (OMP_WAIT_POLICY, GOMP_SPINCOUNT). */
#include "bench.h"

#include <omp.h>
#include <stdio.h>
#include <time.h>

/* What the library does with OpenMP */
static void openmp_for(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    (void)user;
#pragma omp parallel for schedule(dynamic) num_threads(workers)
    for (int64_t task = 0; task < tasks; task++) fn(arg, task, omp_get_thread_num());
}

/* Regions of `tasks` tasks of so many products in turn, 3 ns each; `pause` nanoseconds before each region. */
typedef struct regions { tn_ctx *ctx; int64_t tasks, products; long pause; } regions;

static void multiply(void *arg, int64_t task, int worker)
{
    const regions *r = arg;
    volatile double x = 1 + (double)task;
    (void)worker;
    for (int64_t i = 0; i < r->products; i++) x *= 1.0000001;
}

static void run_regions(void *arg, long runs)
{
    regions *r = arg;
    for (long i = 0; i < runs; i++) {
        struct timespec pause = { 0, r->pause };
        if (r->pause) nanosleep(&pause, NULL);
        bench_region(r->ctx, r->tasks, multiply, r);
    }
}

typedef struct product { tn_ctx *ctx; tn_tensor *a, *b; } product;

static void run_product(void *arg, long runs)
{
    product *p = arg;
    for (long i = 0; i < runs; i++) {
        tn_ctx_reset(p->ctx);
        tn_matmul(p->ctx, p->a, p->b);
    }
    bench_check(p->ctx);
}

void bench_threads(void)
{
    enum { THREADS = 2 };
    static const struct { const char *name, *shape; int64_t tasks, products; long pause; } region[] = {
        {"region, no work", "2 tasks", 2, 0, 0}, {"region, no work", "16 tasks", 16, 0, 0},
        {"region, no work", "256 tasks", 256, 0, 0}, {"region, 2500 products", "2 tasks", 2, 2500, 0},
        {"region, 3000 products", "16 tasks", 16, 3000, 0},
        {"the same after 1 ms", "16 tasks", 16, 3000, 1000000}};
    static const int side[] = {128, 192, 256, 384, 512};
    tn_desc desc = { .threads = THREADS, .parallel_for = openmp_for, .seed = 1 };
    tn_ctx *ours = bench_ctx(TN_F32, THREADS), *theirs;
    char name[64];
    if (tn_ctx_create(&desc, &theirs, NULL) != TN_OK) return;
    for (size_t k = 0; k < sizeof region / sizeof *region; k++) {
        regions a = { ours, region[k].tasks, region[k].products, region[k].pause }, b = a;
        bench_row row = { .threads = THREADS, .peer_name = "OpenMP" };
        b.ctx = theirs;
        snprintf(row.name, sizeof row.name, "%s", region[k].name);
        snprintf(row.shape, sizeof row.shape, "%s", region[k].shape);
        bench_turns(&row, (bench_side){ run_regions, &a, NULL }, bench_peer(run_regions, &b));
        snprintf(name, sizeof name, "threads_region_%zu_us", k);
        bench_value(name, row.ours * 1e6);
        snprintf(name, sizeof name, "threads_region_%zu_openmp_us", k);
        bench_value(name, row.peer * 1e6);
    }
    for (size_t k = 0; k < sizeof side / sizeof *side; k++) {
        const int64_t shape[2] = { side[k], side[k] };
        product a = { ours, bench_normal(ours, 2, shape, 1), bench_normal(ours, 2, shape, 1) };
        product b = { theirs, bench_normal(theirs, 2, shape, 1), bench_normal(theirs, 2, shape, 1) };
        bench_row row = { .name = "matmul", .threads = THREADS, .peer_name = "OpenMP" };
        row.flops = 2.0 * side[k] * side[k] * side[k];
        snprintf(row.shape, sizeof row.shape, "%d^3", side[k]);
        bench_turns(&row, (bench_side){ run_product, &a, NULL }, bench_peer(run_product, &b));
        snprintf(name, sizeof name, "threads_matmul_%d_ratio", side[k]);
        bench_value(name, row.ratio);
    }
    tn_ctx_destroy(theirs);
}
