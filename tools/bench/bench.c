/* make bench, or build/bench/bench [gemm|pieces|step|lm|decode|operator|scan|chains|einsum|attention|predict|threads|profile]...
   Each row is the same work done by us and by a peer, in turns within one run, on equal threads. What counts is the ratio
   peer / ours, the median over the turns: above 1 we are faster. Where the peer has several forms, such as PyTorch's eager and
   compiled ones, each is tried before the turns, the fastest takes part, and the others' times are at the end of the row.
   "floor" is the share of what this machine could do at best, by its measured multiply-adds and by its measured update (or
   reading) of as many bytes. BENCH_ROWS="LM step, softmax|adamw": only rows that contain one of these texts, as in
   "adamw 4.46M in 18 2t". */
#define _GNU_SOURCE
#include "bench.h"
#include "clock.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- turns ------------------------------------------------------------------ */

#define TURNS 11
#define TURN  0.03      /* seconds of a turn, at least one run */
#define ROW   6.0       /* seconds of all turns, if runs are longer than a turn; at least three */

/* What the PyTorch process has used since use_of_torch(). */
typedef struct use { bool failed; double seconds, processors; long graphs; } use;
static struct { FILE *to, *from; bool tried; char version[256]; use use; } torch;

static use use_of_torch(void)
{
    use u = torch.use;
    memset(&torch.use, 0, sizeof torch.use);
    return u;
}

/* Another process says how long it took, because an order and its answer take as long as hundreds of short runs. */
static double seconds_of(bench_side side, long runs)
{
    double start = now();
    torch.use.seconds = 0;
    side.run(side.arg, runs);
    return (torch.use.seconds > 0 ? torch.use.seconds : now() - start) / (double)runs;
}

/* The time of a run, and of so many of them that they fill a turn: the first ones are slower. */
static double typical(bench_side side, long *runs)
{
    double once = seconds_of(side, *runs = 1);
    while (once * (double)*runs < TURN / 2) {
        *runs = (long)fmin((double)*runs * 10, TURN / once) + 1;
        once = seconds_of(side, *runs);
    }
    *runs = once >= TURN ? 1 : (long)(TURN / once) + 1;
    return once;
}

bench_peers bench_peer(void (*run)(void *arg, long runs), void *arg)
{
    return (bench_peers){ .side = { { run, arg, NULL } }, .count = run ? 1 : 0 };
}

void bench_add(bench_peers *peers, bench_side side)
{
    if (peers->count < BENCH_PEERS) peers->side[peers->count++] = side;
}

bool bench_wanted(const bench_row *r)
{
    const char *wanted = getenv("BENCH_ROWS");
    char        text[128];
    snprintf(text, sizeof text, "%s %s %dt", r->name, r->shape, r->threads);
    for (const char *end; wanted; wanted = *end ? end + 1 : NULL) {
        char part[128];
        end = wanted + strcspn(wanted, "|");
        snprintf(part, sizeof part, "%.*s", (int)(end - wanted), wanted);
        if (strstr(text, part)) return true;
    }
    return !getenv("BENCH_ROWS");
}

static void note(bench_row *r, const char *format, ...)
{
    size_t  used = strlen(r->notes);
    va_list args;
    va_start(args, format);
    vsnprintf(r->notes + used, sizeof r->notes - used, format, args);
    va_end(args);
}

static void print_head(void)
{
    static bool done;
    if (!done) printf("%-26s %-16s %3s %10s %10s %-10s %6s %6s %6s\n",
                      "work", "shape", "thr", "ours ms", "peer ms", "peer", "ratio", "goal", "floor");
    done = true;
}

static void print_row(const bench_row *r)
{
    print_head();
    printf("%-26s %-16s %3d %10.4g ", r->name, r->shape, r->threads, r->ours * 1e3);
    if (r->ratio > 0) printf("%10.4g %-10s %6.2f ", r->peer * 1e3, r->peer_name, r->ratio);
    else              printf("%10s %-10s %6s ", "-", r->peer_name ? r->peer_name : "-", "-");
    if (r->goal > 0) printf("%6.2f ", r->goal);
    else             printf("%6s ", "");
    if (r->flops + r->bytes + r->reads > 0) printf("%5.0f%%", 100 * bench_floor(r) / r->ours);
    else                                    printf("%6s", "");
    printf("%s%s\n", r->ratio > 0 && r->goal > 0 && r->ratio < r->goal ? "  below" : "", r->notes);
    fflush(stdout);
}

/* Runs each peer until everything is compiled and warm, then those that could be the fastest in turns. */
static bench_side fastest(bench_row *r, const bench_peers *peers)
{
    double best[BENCH_PEERS];
    long   runs[BENCH_PEERS];
    int    first = -1;
    for (int i = 0; i < peers->count; i++) {
        use_of_torch();
        seconds_of(peers->side[i], 1);
        best[i] = torch.use.failed ? HUGE_VAL : typical(peers->side[i], &runs[i]);
        if (use_of_torch().failed) best[i] = HUGE_VAL;
        else if (first < 0 || best[i] < best[first]) first = i;
    }
    for (int turn = 0; turn < 3 && peers->count > 1 && first >= 0; turn++)
        for (int i = 0; i < peers->count; i++)
            if (best[i] < 2 * best[first]) best[i] = fmin(best[i], seconds_of(peers->side[i], runs[i]));
    for (int i = 0; i < peers->count; i++) if (best[i] < best[first]) first = i;
    for (int i = 0; i < peers->count; i++)
        if (best[i] == HUGE_VAL) note(r, "  %s failed", peers->side[i].name);
        else if (i != first) note(r, "  %s %.4g", peers->side[i].name, best[i] * 1e3);
    if (first < 0) return (bench_side){ NULL, NULL, NULL };
    if (peers->side[first].name) r->peer_name = peers->side[first].name;
    return peers->side[first];
}

void bench_turns(bench_row *r, bench_side ours, bench_peers peers)
{
    double ratio[TURNS], each[TURNS];
    r->notes[0] = 0;
    if (!bench_wanted(r)) return;
    bench_side peer = fastest(r, &peers);
    seconds_of(ours, 1);                                            /* caches, arenas and pages get warm */
    long   our_runs = 0, peer_runs = 0;
    double our_time = typical(ours, &our_runs), peer_time = peer.run ? typical(peer, &peer_runs) : 0;
    double both = our_time * (double)our_runs + peer_time * (double)peer_runs;
    int    turns = peer.run ? (int)fmin(TURNS, fmax(3, ROW / both)) : 3;
    r->ours = r->peer = HUGE_VAL;
    use_of_torch();
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
    use u = use_of_torch();
    if (u.failed) { fprintf(stderr, "bench: the peer of %s, %s failed in a turn\n", r->name, r->shape); exit(1); }
    if (u.graphs > 0) note(r, "  the peer compiled in its turns");
    if (u.processors > r->threads + 0.1) note(r, "  the peer used %.1f processors", u.processors);
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
   written), on vectors as wide as the processor's; and reading them, for rows that write next to nothing. */

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
    }                                                                                   \
    TARGET static float read_##LEVEL(const float *p, size_t bytes)                      \
    {                                                                                   \
        typedef float vec __attribute__((vector_size(BYTES), may_alias));               \
        const vec *v = (const vec *)p;                                                  \
        vec a = {0}, b = {0}, c = {0}, d = {0};                                         \
        for (size_t i = 0; i + 4 <= bytes / BYTES; i += 4) {                            \
            a += v[i]; b += v[i + 1]; c += v[i + 2]; d += v[i + 3];                     \
        }                                                                               \
        a += b + c + d;                                                                 \
        return a[0];                                                                    \
    }
#if defined(__x86_64__)
DEFINE_CEILINGS(avx512, __attribute__((target("avx512f,fma"))), 64)
DEFINE_CEILINGS(avx2, __attribute__((target("avx2,fma"))), 32)
#endif
DEFINE_CEILINGS(plain, , 16)

typedef struct ceilings {
    float (*chain)(long n);
    void  (*update)(float *p, size_t bytes);
    float (*read)(const float *p, size_t bytes);
    int    width;
} ceilings;

static ceilings ceilings_here(void)
{
#if defined(__x86_64__)
    const char *level = getenv("TN_SIMD");
    if (__builtin_cpu_supports("avx512f") && !(level && strcmp(level, "avx512"))) return (ceilings){ chain_avx512, update_avx512, read_avx512, 16 };
    if (__builtin_cpu_supports("avx2")) return (ceilings){ chain_avx2, update_avx2, read_avx2, 8 };
#endif
    return (ceilings){ chain_plain, update_plain, read_plain, 4 };
}

double bench_peak(void)
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

/* In pages of 2 MB, as the library's tensors are: reading 14 MB from the third cache takes 1.5 times as long in pages of 4 KB. */
static double seconds_for(size_t bytes, bool write)
{
    enum { PAGE = 2 << 20 };
    ceilings       here = ceilings_here();
    char          *all = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double         best = HUGE_VAL;
    volatile float sink = 0;
    if (all == MAP_FAILED) exit(1);
    float *p = (float *)(void *)(all + (0 - (uintptr_t)all) % PAGE);
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE);
#endif
    for (size_t i = 0; i < bytes / sizeof *p; i++) p[i] = 1;
    long runs = (long)(1e7 / (double)bytes) + 1;
    for (int i = 0; i < 5; i++) {
#pragma omp barrier                                     /* all threads of seconds_on begin together */
        double start = now();
        for (long k = 0; k < runs; k++) {
            if (write) here.update(p, bytes);
            else sink += here.read(p, bytes);
        }
        best = fmin(best, (now() - start) / (double)runs);
    }
    munmap(all, bytes + PAGE);
    return best;
}

/* So many bytes on each of the threads at once: they share the memory's rate, and the last cache. */
static double seconds_on(size_t bytes, bool write, int threads)
{
    double most = 0;
#pragma omp parallel num_threads(threads) reduction(max:most)
    most = seconds_for(bytes / 64 * 64 + 64, write);
    return most;
}

double bench_update_seconds(double bytes, int threads)
{
    return bytes > 0 ? seconds_on((size_t)(bytes / 2 / threads), true, threads) : 0;
}

double bench_read_seconds(double bytes, int threads)
{
    return bytes > 0 ? seconds_on((size_t)(bytes / threads), false, threads) : 0;
}

double bench_floor(const bench_row *r)
{
    double flops = r->flops / (bench_peak() * r->threads);
    double reads = r->passes * bench_read_seconds(r->reads, r->threads);
    return fmax(flops, fmax(reads, bench_update_seconds(r->bytes, r->threads)));
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
        char *(*config)(void) = NULL;
        if (library) *(void **)&config = dlsym(library, "openblas_get_config");
        if (config) printf("%s\n", config());
    }
    if (!library) return NULL;
    void (*set)(int);
    *(void **)&set = dlsym(library, "openblas_set_num_threads");
    if (set) set(threads);
    return dlsym(library, symbol);
}

/* ---- PyTorch: torch_peer.py, a process that waits for its turn -------------------- */

static void torch_start(void)
{
    int to[2], from[2];
    char *line = torch.version;
    const char *script = getenv("BENCH_TORCH");         /* "python3 tools/bench/torch_peer.py" */
    torch.tried = true;
    if (!script || !*script || pipe(to) || pipe(from)) {
        puts("SKIP PyTorch: BENCH_TORCH does not say how to run torch_peer.py; sh tools/setup.sh --bench installs it");
        return;
    }
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
    if (!fgets(line, sizeof torch.version, torch.from) || strncmp(line, "ready", 5)) {
        puts("SKIP PyTorch: torch_peer.py did not start");
        torch.to = NULL;
    } else printf("PyTorch %s", line + 6);
    fflush(stdout);
}

/* The answer to an order: its first word has to be the expected one. */
static bool torch_asks(const char *order, const char *expected, char answer[256])
{
    fprintf(torch.to, "%s\n", order);
    fflush(torch.to);
    if (!fgets(answer, 256, torch.from)) {
        fprintf(stderr, "bench: torch_peer.py ended at: %s\n", order);
        exit(1);
    }
    if (!strncmp(answer, expected, strlen(expected))) return true;
    printf("note: %s: %s", order, answer);
    return false;
}

typedef struct torch_work { char command[128], form[16]; int threads; } torch_work;

static void torch_run(void *arg, long runs)
{
    torch_work *w = arg;
    char        order[256], answer[256];
    double      seconds = 0, processors = 0;
    long        graphs = 0;
    snprintf(order, sizeof order, "run %ld %d %s %s", runs, w->threads, w->form, w->command);
    if (!torch_asks(order, "done", answer) || sscanf(answer, "done %lf %lf %ld", &seconds, &processors, &graphs) != 3)
        torch.use.failed = true;
    torch.use.seconds = seconds;
    torch.use.processors = fmax(torch.use.processors, processors);
    torch.use.graphs += graphs;
}

bench_peers bench_torch(const char *work, int threads)
{
    static torch_work made[BENCH_PEERS];                /* of the present row */
    bench_peers       peers = {0};
    char              order[160], answer[256];
    if (!torch.tried) torch_start();
    snprintf(order, sizeof order, "forms %s", work);
    if (!torch.to || !torch_asks(order, "forms ", answer)) return peers;
    for (char *form = strtok(answer + 6, " \n"); form && peers.count < BENCH_PEERS; form = strtok(NULL, " \n")) {
        torch_work *w = &made[peers.count];
        snprintf(w->command, sizeof w->command, "%s", work);
        snprintf(w->form, sizeof w->form, "%s", form);
        w->threads = threads;
        bench_add(&peers, (bench_side){ torch_run, w, w->form });
    }
    if (peers.count == 1) peers.side[0].name = NULL;
    return peers;
}

bool bench_has(const char *package)
{
    if (!torch.tried) torch_start();
    return torch.to && strstr(torch.version, package);
}

/* ---- main ------------------------------------------------------------------------- */

/* As /proc/cpuinfo has it; elsewhere a dash. */
static void print_processor(void)
{
    static const char *const units[][2] = {
        {"avx2", "AVX2"}, {"avx512f", "AVX-512"}, {"avx512_bf16", "AVX512_BF16"}, {"amx_bf16", "AMX"}};
    char  line[8192], name[128] = "-", flags[8192] = "";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strstr(line, ": ");
        if (!strncmp(line, "model name", 10) && value)
            snprintf(name, sizeof name, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        if (!strncmp(line, "flags", 5)) snprintf(flags, sizeof flags, " %.*s ", (int)strcspn(line, "\n"), line);
    }
    if (f) fclose(f);
    printf("processor: %s, %ld threads, units:", name, sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < COUNT(units); i++) {
        snprintf(line, sizeof line, " %s ", units[i][0]);
        printf(" %s%s", strstr(flags, line) ? "" : "no ", units[i][1]);
    }
    puts("");
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } group[] = {
        {"gemm", bench_gemm}, {"pieces", bench_pieces}, {"step", bench_step}, {"lm", bench_lm}, {"decode", bench_decode},
        {"operator", bench_operator}, {"scan", bench_scan}, {"chains", bench_chains}, {"einsum", bench_einsum},
        {"attention", bench_attention}, {"predict", bench_predict}, {"threads", bench_threads}, {"profile", bench_profile}};
    signal(SIGPIPE, SIG_IGN);
    print_processor();
    printf("%s, %s kernels, one thread multiplies and adds %.0f GF/s\n", tn_version(), tn_ctx_simd_name(bench_ctx(TN_F32, 1)),
           bench_peak() * 1e-9);
    for (int i = 1; i < argc || i == 1; i++) {
        size_t found = 0;
        for (size_t g = 0; g < COUNT(group); g++)
            if (argc == 1 ? group[g].run != bench_profile : !strcmp(argv[i], group[g].name)) { group[g].run(); found++; }
        if (!found) {
            fprintf(stderr, "bench: %s is not a group; expected one of:", argv[i]);
            for (size_t g = 0; g < COUNT(group); g++) fprintf(stderr, " %s", group[g].name);
            fputs("\n", stderr);
            return 2;
        }
    }
    puts("");
    for (size_t i = 0; i < value_count; i++) printf("%s: %.3g\n", values[i].name, values[i].value);
    if (torch.to) fclose(torch.to);
    return 0;
}
