/* make bench, or build/bench/bench [gemm|pieces|step|lm|operator|attention|predict|threads]...
   Each row is the same work done by us and by a peer, in turns within one run, on equal threads. What counts is the ratio
   peer / ours, the median over the turns: above 1 we are faster. "floor" is the share of what this machine could do at best,
   by its measured multiply-adds and by its measured update of as many bytes. */
#define _GNU_SOURCE
#define TENSORNET_IMPLEMENTATION
#include "bench.h"
#include "clock.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- turns ------------------------------------------------------------------ */

#define TURNS 11
#define TURN  0.03      /* seconds of a turn, at least one run */

static double seconds_of(bench_side side, long runs)
{
    double start = now();
    side.run(side.arg, runs);
    return (now() - start) / (double)runs;
}

static long runs_in_a_turn(bench_side side)
{
    seconds_of(side, 1);                                            /* caches, arenas and pages get warm */
    double once = seconds_of(side, 1);
    return once >= TURN ? 1 : (long)(TURN / once) + 1;
}

static void print_head(void)
{
    static bool done;
    if (!done) printf("%-26s %-16s %3s %10s %10s %-9s %6s %6s %6s\n", "work", "shape", "thr", "ours ms", "peer ms", "peer", "ratio", "goal", "floor");
    done = true;
}

static void print_row(const bench_row *r)
{
    print_head();
    printf("%-26s %-16s %3d %10.4g ", r->name, r->shape, r->threads, r->ours * 1e3);
    if (r->ratio > 0) printf("%10.4g %-9s %6.2f ", r->peer * 1e3, r->peer_name, r->ratio);
    else              printf("%10s %-9s %6s ", "-", r->peer_name ? r->peer_name : "-", "-");
    if (r->goal > 0) printf("%6.2f ", r->goal);
    else             printf("%6s ", "");
    if (r->flops + r->bytes > 0) printf("%5.0f%%", 100 * bench_floor(r) / r->ours);
    printf("%s\n", r->ratio > 0 && r->goal > 0 && r->ratio < r->goal ? "  below" : "");
    fflush(stdout);
}

void bench_turns(bench_row *r, bench_side ours, bench_side peer)
{
    double ratio[TURNS], each[TURNS];
    long   our_runs = runs_in_a_turn(ours), peer_runs = peer.run ? runs_in_a_turn(peer) : 0;
    int    turns = peer.run && our_runs * peer_runs > 1 ? TURNS : 3;
    r->ours = r->peer = HUGE_VAL;
    for (int i = 0; i < turns; i++) {
        /* Who begins changes, so that a drifting clock favours nobody. Threads that spin after their work get time to sleep. */
        double t[2] = {0, 0};
        for (int k = 0; k < 2; k++) {
            int side = (i + k) % 2;
            if (side == 1 && !peer.run) continue;
            usleep(20000);
            t[side] = side ? seconds_of(peer, peer_runs) : seconds_of(ours, our_runs);
        }
        r->ours = fmin(r->ours, t[0]);
        r->peer = fmin(r->peer, t[1]);
        ratio[i] = t[1] / t[0];
        each[i] = t[0];
    }
    r->ratio = peer.run ? median(ratio, turns) : 0;
    r->middle = median(each, turns);
    print_row(r);
}

static struct { char name[64]; double value; } values[192];
static size_t value_count;

void bench_value(const char *name, double value)
{
    if (!(value > 0) || value_count == COUNT(values)) return;       /* no peer, no figure */
    snprintf(values[value_count].name, sizeof values->name, "%s", name);
    values[value_count++].value = value;
}

/* ---- ceilings ------------------------------------------------------------------
   Multiply-adds of independent chains in registers, and an update in place of as many bytes as a row moves (half of them read, half
   written), on vectors as wide as the processor's. */

#define CHAIN(i)  x##i = x##i * a + b;
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define START(i)  vec x##i = a + i;
#define END(i)    + x##i
#define DEFINE_CEILINGS(LEVEL, TARGET, BYTES)                                           \
    TARGET static float chain_##LEVEL(long n)                                           \
    {                                                                                   \
        typedef float vec __attribute__((vector_size(BYTES)));                          \
        vec a = {0}, b = {0}, sum;                                                      \
        a += 0.999f; b += 0.001f;                                                       \
        TWELVE(START)                                                                   \
        for (long i = 0; i < n; i++) { TWELVE(CHAIN) }                                  \
        sum = b TWELVE(END);                                                            \
        return sum[0];                                                                  \
    }                                                                                   \
    TARGET static void update_##LEVEL(float *p, size_t bytes)                           \
    {                                                                                   \
        typedef float vec __attribute__((vector_size(BYTES), may_alias));               \
        for (size_t i = 0; i < bytes / BYTES; i++) ((vec *)p)[i] *= 0.999f;             \
    }
#if defined(__x86_64__)
DEFINE_CEILINGS(avx512, __attribute__((target("avx512f,fma"))), 64)
DEFINE_CEILINGS(avx2, __attribute__((target("avx2,fma"))), 32)
#endif
DEFINE_CEILINGS(plain, , 16)

typedef struct ceilings { float (*chain)(long n); void (*update)(float *p, size_t bytes); int width; } ceilings;

static ceilings ceilings_here(void)
{
#if defined(__x86_64__)
    const char *level = getenv("TN_SIMD");
    if (__builtin_cpu_supports("avx512f") && !(level && strcmp(level, "avx512"))) return (ceilings){ chain_avx512, update_avx512, 16 };
    if (__builtin_cpu_supports("avx2")) return (ceilings){ chain_avx2, update_avx2, 8 };
#endif
    return (ceilings){ chain_plain, update_plain, 4 };
}

static double peak_flops(void)
{
    static double peak;
    double        best = peak;
    ceilings      here = ceilings_here();
    volatile float sink = 0;
    for (int i = 0; i < 8 && peak == 0; i++) {
        double start = now();
        sink += here.chain(2000000);
        best = fmax(best, 2e6 * 12 * 2 * here.width / (now() - start));
    }
    return peak = best;
}

static double update_seconds(double bytes)
{
    size_t half = (size_t)(bytes / 2) / 64 * 64 + 64;
    float *p = aligned_alloc(64, half);
    double best = HUGE_VAL;
    if (!p) exit(1);
    for (size_t i = 0; i < half / sizeof *p; i++) p[i] = 1;
    long runs = (long)(1e7 / (double)half) + 1;
    for (int i = 0; i < 5; i++) {
        double start = now();
        for (long k = 0; k < runs; k++) ceilings_here().update(p, half);
        best = fmin(best, (now() - start) / (double)runs);
    }
    free(p);
    return best;
}

double bench_floor(const bench_row *r)
{
    double flops = r->flops / (peak_flops() * r->threads);
    return fmax(flops, r->bytes > 0 ? update_seconds(r->bytes / r->threads) : 0);
}

/* ---- ours ---------------------------------------------------------------------- */

void bench_check(tn_ctx *ctx)
{
    if (tn_ctx_status(ctx) == TN_OK) return;
    fprintf(stderr, "bench: %s\n", tn_ctx_error(ctx));
    exit(1);
}

tn_ctx *bench_ctx(tn_dtype dtype, int threads)
{
    static tn_ctx *made[2][65];
    tn_ctx **ctx = &made[dtype == TN_F64][threads];
    char     why[256];
    tn_desc  desc = { .dtype = dtype, .threads = threads, .seed = 1 };
    if (!*ctx && tn_ctx_create(&desc, ctx, why) != TN_OK) {
        fprintf(stderr, "bench: %s\n", why);
        exit(1);
    }
    return *ctx;
}

void *bench_state(tn_ctx *ctx) { return ctx->state; }
void  bench_region(tn_ctx *ctx, int64_t tasks, tn_task_fn fn, void *arg) { tni_parallel_for(&ctx->pool, tasks, fn, arg); }

tn_tensor *bench_normal(tn_ctx *ctx, int rank, const int64_t *shape, double std)
{
    tn_tensor *t = tn_tensor_keep(tn_normal(ctx, rank, shape, 0, std));
    bench_check(ctx);
    tn_ctx_reset(ctx);
    return t;
}

/* ---- OpenBLAS ------------------------------------------------------------------- */

void *bench_openblas(const char *symbol, int threads)
{
    static void *library;
    static bool  tried;
    if (!tried) {
        tried = true;
        library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
        if (!library) printf("SKIP OpenBLAS: %s\n", dlerror());
    }
    if (!library) return NULL;
    void (*set)(int);
    *(void **)&set = dlsym(library, "openblas_set_num_threads");
    if (set) set(threads);
    return dlsym(library, symbol);
}

/* ---- PyTorch: torch_peer.py, a process that waits for its turn -------------------- */

static struct { FILE *to, *from; bool tried; } torch;

static void torch_start(void)
{
    int to[2], from[2];
    char line[256];
    const char *script = getenv("BENCH_TORCH");         /* "python3 tools/bench/torch_peer.py" */
    torch.tried = true;
    if (!script || pipe(to) || pipe(from)) { puts("SKIP PyTorch: BENCH_TORCH does not say how to run torch_peer.py"); return; }
    if (fork() == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    torch.to = fdopen(to[1], "w");
    torch.from = fdopen(from[0], "r");
    if (!fgets(line, sizeof line, torch.from) || strncmp(line, "ready", 5)) {
        puts("SKIP PyTorch: torch_peer.py did not start");
        torch.to = NULL;
    } else printf("PyTorch %s", line + 6);
}

typedef struct torch_work { char command[128]; } torch_work;

static void torch_run(void *arg, long runs)
{
    char line[256];
    fprintf(torch.to, "%ld %s\n", runs, ((torch_work *)arg)->command);
    fflush(torch.to);
    if (!fgets(line, sizeof line, torch.from) || strncmp(line, "done", 4)) {
        fprintf(stderr, "bench: torch_peer.py: %s\n", ((torch_work *)arg)->command);
        exit(1);
    }
}

bench_side bench_torch(const char *work, int threads)
{
    static torch_work made[128];
    static int        count;
    bench_side        side = { NULL, NULL };
    if (!torch.tried) torch_start();
    if (!torch.to || count == (int)COUNT(made)) return side;
    snprintf(made[count].command, sizeof made->command, "%d %s", threads, work);
    side.run = torch_run;
    side.arg = &made[count++];
    return side;
}

/* ---- main ------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } group[] = {
        {"gemm", bench_gemm}, {"pieces", bench_pieces}, {"step", bench_step}, {"lm", bench_lm}, {"operator", bench_operator}, {"scan", bench_scan},
        {"einsum", bench_einsum},
        {"attention", bench_attention}, {"predict", bench_predict}, {"threads", bench_threads}};
    signal(SIGPIPE, SIG_IGN);
    printf("%s, %s kernels, one thread multiplies and adds %.0f GF/s\n", tn_version(), tn_ctx_simd_name(bench_ctx(TN_F32, 1)), peak_flops() * 1e-9);
    for (int i = 1; i < argc || i == 1; i++) {
        size_t found = 0;
        for (size_t g = 0; g < COUNT(group); g++)
            if (argc == 1 || !strcmp(argv[i], group[g].name)) { group[g].run(); found++; }
        if (!found) {
            fprintf(stderr, "bench: there is no %s; gemm, pieces, step, lm, operator, attention, predict and threads are\n", argv[i]);
            return 2;
        }
    }
    puts("");
    for (size_t i = 0; i < value_count; i++) printf("%s: %.3g\n", values[i].name, values[i].value);
    if (torch.to) fclose(torch.to);
    return 0;
}
