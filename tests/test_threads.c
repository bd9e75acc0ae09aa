/* test_threads.c: parallel regions. Every task runs once, each worker has its own number, and results are bit-identical for
   any number of threads. With TN_USE_THREADS these are the context's own threads: they start when they are needed, end with
   the context, may be refused by the system, block signals, round as the caller does, and are started anew after fork().

   Tasks make no checks: the counters of test.h are not atomic. */

#include "comma.h"
#include "starting.h"                   /* before core/threads.c, whose threads it refuses */
#include "test.h"
#include "pool.h"
#include "core/inner.h"
#include "core/threads.c"
#include <fenv.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#endif
#if defined(TN_USE_THREADS) && !defined(TN_NO_THREADS)
#define OWN_THREADS 1
#else
#define OWN_THREADS 0
#endif

enum { MOST_TASKS = 1000, MOST_WORKERS = 64 };

/* ---- regions -------------------------------------------------------------------------------------------------- */

typedef struct count {
    const tni_pool *pool;
    int64_t task[MOST_TASKS];           /* how often each ran                        */
    int     inside[MOST_WORKERS];       /* tasks of each worker at this moment: 0, 1 */
    bool    used[MOST_WORKERS], wrong[MOST_WORKERS];
} count;

static void count_task(void *arg, int64_t task, int worker)
{
    count *c = (count *)arg;
    c->used[worker] = true;
    if (++c->inside[worker] != 1) c->wrong[worker] = true;
    c->task[task]++;
    --c->inside[worker];
}

static bool counted(const count *c, int64_t tasks, int workers)
{
    for (int64_t i = 0; i < MOST_TASKS; i++) if (c->task[i] != (i < tasks)) return false;
    for (int w = 0; w < MOST_WORKERS; w++) if (c->wrong[w] || (c->used[w] && w >= workers)) return false;
    return true;
}

static tn_ctx *threads_ctx(int threads)
{
    tn_desc d = ZERO;
    tn_ctx *ctx = NULL;
    d.threads = threads;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK);
    return ctx;
}

/* Each task of a region once, for many shapes of regions, at once after one another and after a pause, in which threads fall
   asleep. */
TEST(regions_cover)
{
    static const int threads[] = {1, 2, 3, 5, 40};
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        tn_ctx *ctx = threads_ctx(threads[k]);
        int64_t bad = 0;
        REQUIRE(ctx);
        CHECK_INT(tn_ctx_threads(ctx), threads[k]);
        for (int round = 0; round < 40; round++) {
            for (int64_t tasks = 0; tasks <= MOST_TASKS; tasks = tasks < 9 ? tasks + 1 : 3 * tasks + 1) {
                static count c;
                memset(&c, 0, sizeof c);
                tni_parallel_for(&ctx->pool, tasks, count_task, &c);
                bad += !counted(&c, tasks, (int)tni_min(tasks, threads[k]));
#if OWN_THREADS
                tni_pool little = ctx->pool;
                if (ctx->threads) little.fn = tni_threads_for_little;
                memset(&c, 0, sizeof c);
                tni_parallel_for(&little, tasks, count_task, &c);
                bad += !counted(&c, tasks, (int)tni_min(tasks, threads[k]));
#endif
            }
#if defined(__unix__) || defined(__APPLE__)
            usleep(300);
#endif
        }
        CHECK_INT(bad, 0);
        tn_ctx_destroy(ctx);
    }
}

static void count_within(void *arg, int64_t task, int worker)
{
    count *c = (count *)arg;
    c[0].task[task]++;
    (void)worker;
    tni_parallel_for(c->pool, 10, count_task, &c[1 + task]);
}

/* A region within a task runs on the task's own thread. */
TEST(regions_nested)
{
    enum { TASKS = 6 };
    static count c[1 + TASKS];
    tn_ctx *ctx = threads_ctx(3);
    int64_t bad = 0;
    REQUIRE(ctx);
    for (int64_t k = 0; k < 50; k++) {
        memset(c, 0, sizeof c);
        c->pool = &ctx->pool;
        tni_parallel_for(&ctx->pool, TASKS, count_within, c);
        bad += !counted(&c[0], TASKS, 3);
        for (int64_t i = 1; i <= TASKS; i++) bad += !counted(&c[i], 10, OWN_THREADS ? 1 : 3);
    }
    CHECK_INT(bad, 0);
    tn_ctx_destroy(ctx);
}

/* ---- results --------------------------------------------------------------------------------------------------- */

/* Products, a norm, attention, a decomposition, random numbers: large enough for several tasks each. 0: an error */
static uint64_t fingerprint(tn_ctx *ctx)
{
    int64_t many = 90001, rows = test_small() ? 150 : 300;
    tn_attend_desc d = ZERO;
    tn_tensor     *list[6];
    uint64_t h = 0xCBF29CE484222325u;
    tn_eigh_desc ed = ZERO;
    tn_eigh_result e;
    tn_ctx_seed(ctx, 5);
    tn_ctx_reset(ctx);
    list[0] = tn_normal(ctx, 1, &many, 0, 1);
    tn_tensor *x = tn_normal(ctx, 2, (const int64_t[2]){ rows, rows }, 0, 1);
    tn_tensor *q = tn_normal(ctx, 4, (const int64_t[4]){ 2, rows, 2, 16 }, 0, 1);
    list[1] = tn_matmul(ctx, x, x);
    list[2] = tn_matmul(ctx, x, tn_normal(ctx, 2, (const int64_t[2]){ rows, 512 }, 0, 1));
    list[2] = tn_rmsnorm(ctx, list[2], NULL, 0);
    list[3] = tn_attend(ctx, q, q, q, &d);
    list[4] = tn_sum(ctx, x);
    tn_tensor *a = tn_matmul(ctx, x, tn_transpose(x, 0, 1));
    if (tn_eigh(ctx, a, &ed, &e) != TN_OK) return 0;
    list[5] = e.vectors;
    for (int64_t k = 0; k < 6; k++) {
        const int64_t n = tn_tensor_count(list[k]);
        float *v = (float *)malloc(sizeof *v * (size_t)n);
        if (!v || tn_read(list[k], TN_F32, v, n) != TN_OK) { free(v); return 0; }
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &v[i], sizeof bits);
            h = (h ^ bits) * 0x100000001B3u;
        }
        free(v);
    }
    return tn_ctx_status(ctx) == TN_OK ? h : 0;
}

static uint64_t fingerprint_of(int threads)
{
    tn_ctx *ctx = threads_ctx(threads);
    uint64_t h = ctx ? fingerprint(ctx) : 0;
    if (ctx) CHECK_CTX(ctx);
    tn_ctx_destroy(ctx);
    return h;
}

TEST(threads_bits)
{
    static const int threads[] = {2, 3, 5, 16};
    const uint64_t one = fingerprint_of(1);
    REQUIRE(one != 0);
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) CHECK(fingerprint_of(threads[k]) == one);
}

/* Workers round as the caller does, whenever it changes that. */
TEST(threads_rounding)
{
#if OWN_THREADS && defined(FE_UPWARD) && defined(FE_DOWNWARD) \
    && (defined(__SSE2_MATH__) || (defined(__aarch64__) && defined(__GNUC__)))
    static const int direction[] = {FE_UPWARD, FE_DOWNWARD, FE_TONEAREST};
    uint64_t of[3];
    for (int k = 0; k < 3; k++) {
        tn_ctx *one = threads_ctx(1), *three = threads_ctx(3);
        const uint64_t before = three ? fingerprint(three) : 0;     /* its threads round to nearest */
        fesetround(direction[k]);
        of[k] = one ? fingerprint(one) : 0;
        CHECK(of[k] != 0 && three && fingerprint(three) == of[k]);
        fesetround(FE_TONEAREST);
        CHECK(three && fingerprint(three) == before);
        tn_ctx_destroy(one);
        tn_ctx_destroy(three);
    }
    CHECK(of[0] != of[1] && of[1] != of[2] && of[0] != of[2]);
#else
    SKIP("rounding", "threads of the context's own, and a processor whose rounding they copy");
#endif
}

/* ---- the context's own threads ---------------------------------------------------------------------------------- */

#if OWN_THREADS
static int  logged;
static void count_log(void *user, tn_log_level level, const char *message)
{
    (void)user;
    if (level == TN_LOG_WARN && strstr(message, "threads: the system started")) logged++;
}

/* No thread starts before it is needed, all that are needed start, and they end with the context. */
TEST(threads_started)
{
    static count c;
    tn_ctx *ctx = threads_ctx(4);
    REQUIRE(ctx);
    starting.begun = 0;
    tni_parallel_for(&ctx->pool, 1, count_task, &c);
    CHECK_INT(starting.begun, 0);
    tni_parallel_for(&ctx->pool, 2, count_task, &c);
    CHECK_INT(starting.begun, 1);
    tni_parallel_for(&ctx->pool, 100, count_task, &c);
    CHECK_INT(starting.begun, 3);
    for (int k = 0; k < 100; k++) tni_parallel_for(&ctx->pool, 100, count_task, &c);
    CHECK_INT(starting.begun, 3);
    tn_ctx_destroy(ctx);
    for (int k = 0; k < 100; k++) {
        ctx = threads_ctx(2 + k % 5);
        REQUIRE(ctx);
        if (k % 3) tni_parallel_for(&ctx->pool, 2 + k % 7, count_task, &c);
        tn_ctx_destroy(ctx);
    }
#if defined(__linux__)
    {
        FILE *f = fopen("/proc/self/status", "r");
        char line[256];
        int threads = 0;
        while (f && fgets(line, sizeof line, f)) if (strncmp(line, "Threads:", 8) == 0) threads = atoi(line + 8);
        if (f) fclose(f);
#if !defined(__SANITIZE_THREAD__)       /* which has one of its own */
        CHECK_INT(threads, 1);
#endif
    }
#endif
}

/* A system that refuses a thread: the others do its work, the log says so once, and nothing else changes. */
TEST(threads_refused)
{
    const uint64_t one = fingerprint_of(1);
    for (int allowed = 0; allowed < 4; allowed++) {
        tn_desc d = ZERO;
        tn_ctx *ctx;
        d.threads = 4;
        d.log = count_log;
        logged = starting.begun = starting.refused = 0;
        REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
        starting.allowed = allowed;
        CHECK(fingerprint(ctx) == one);
        CHECK(fingerprint(ctx) == one);
        starting.allowed = -1;
        CHECK_INT(starting.begun, allowed);
        CHECK_INT(starting.refused, allowed < 3);
        CHECK_INT(logged, allowed < 3);
        CHECK_INT(tn_ctx_threads(ctx), 4);
        CLOSE_CTX(ctx);
    }
}

static void *last_is_refused(size_t bytes, void *user) { return --*(int *)user > 0 ? malloc(bytes) : NULL; }
static void  give_back(void *p, size_t bytes, void *user) { (void)bytes, (void)user; free(p); }

/* The context's second allocation is that of its threads. */
TEST(threads_no_memory)
{
    char why[TN_WHY];
    tn_desc d = ZERO;
    tn_ctx *ctx;
    int left = 2;
    d.threads = 3;
    d.allocator.alloc = last_is_refused;
    d.allocator.release = give_back;
    d.allocator.user = &left;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_MEMORY);
    CHECK(ctx == NULL);
    CHECK_STR(why, "ctx_create: no memory for 3 threads");
}

/* A pool of the program goes before the context's own, and one thread needs none. */
TEST(threads_order)
{
    int64_t calls = 0;
    static count c;
    tn_desc d = ZERO;
    tn_ctx *ctx;
    d.threads = 3;
    d.parallel_for = pool_backwards;
    d.parallel_user = &calls;
    starting.begun = 0;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
    tni_parallel_for(&ctx->pool, 10, count_task, &c);
    CHECK_INT(calls, 1);
    CHECK_INT(starting.begun, 0);
    CHECK(ctx->threads == NULL);
    tn_ctx_destroy(ctx);
    ctx = threads_ctx(1);
    REQUIRE(ctx);
    CHECK(ctx->threads == NULL);
    tn_ctx_destroy(ctx);
}

/* A little region: the caller's alone until all threads have started, and while one sleeps. */
TEST(regions_little)
{
    static count c;
    tn_ctx *ctx = threads_ctx(3);
    REQUIRE(ctx);
    const tni_pool little = {3, tni_threads_for_little, ctx->threads};
    starting.begun = 0;
    tni_parallel_for(&little, 100, count_task, &c);
    CHECK(counted(&c, 100, 1));
    CHECK_INT(starting.begun, 0);
    tni_parallel_for(&ctx->pool, 2, count_task, &c);
    memset(&c, 0, sizeof c);
    tni_parallel_for(&little, 100, count_task, &c);
    CHECK(counted(&c, 100, 1));
    CHECK_INT(starting.begun, 1);
    tni_parallel_for(&ctx->pool, 3, count_task, &c);
    while (tni_atomic_get(&ctx->threads->sleepers) == 0) tni_pause();
    const uint32_t gate = tni_atomic_get(&ctx->threads->gate);
    memset(&c, 0, sizeof c);
    tni_parallel_for(&little, 100, count_task, &c);
    CHECK(counted(&c, 100, 1));
    CHECK_INT(tni_atomic_get(&ctx->threads->gate), gate);       /* it was not opened */
    tn_ctx_destroy(ctx);
}

typedef struct meeting {
    tni_lock   lock;
    tni_event  changed;
    int        expected, there;
    bool       slow;                    /* workers take their time, so that the caller falls asleep */
    uint32_t   numbers;                 /* bit w: worker w was there */
    tni_atomic done;
} meeting;

/* All tasks wait for each other, so as many threads run them. */
static void meet(void *arg, int64_t task, int worker)
{
    meeting *m = (meeting *)arg;
    (void)task;
    tni_lock_take(&m->lock);
    m->there++;
    m->numbers |= UINT32_C(1) << worker;
    tni_event_signal_all(&m->changed);
    while (m->there < m->expected) tni_event_wait(&m->changed, &m->lock);
    tni_lock_give(&m->lock);
    if (worker > 0 && m->slow) {
        const clock_t until = clock() + CLOCKS_PER_SEC / 300;
        while (clock() < until) {}
    }
    tni_atomic_add(&m->done, 1);
}

static void meeting_begin(meeting *m, int threads, bool slow)
{
    memset(m, 0, sizeof *m);
    m->expected = threads;
    m->slow = slow;
    tni_lock_init(&m->lock);
    tni_event_init(&m->changed);
    tni_atomic_init(&m->done);
}

static bool meeting_end(meeting *m)
{
    const bool all = tni_atomic_get(&m->done) == (uint32_t)m->expected && m->numbers == (UINT32_C(1) << m->expected) - 1;
    tni_atomic_end(&m->done);
    tni_event_end(&m->changed);
    tni_lock_end(&m->lock);
    return all;
}

static bool met_in(const tni_pool *pool, int threads, bool slow)
{
    meeting m;
    meeting_begin(&m, threads, slow);
    tni_parallel_for(pool, threads, meet, &m);
    return meeting_end(&m);
}

static bool met(tn_ctx *ctx, int threads, bool slow) { return met_in(&ctx->pool, threads, slow); }

/* Where no thread sleeps, a little region is divided. */
TEST(regions_little_shared)
{
    tn_ctx *ctx = threads_ctx(3);
    REQUIRE(ctx);
    const tni_pool little = {3, tni_threads_for_little, ctx->threads};
    ctx->threads->spins = 1 << 26;                      /* seconds */
    CHECK(met(ctx, 3, false));
    for (int k = 0; k < 10; k++) CHECK(met_in(&little, 3, k == 0));
    tn_ctx_destroy(ctx);
}

/* Where more threads have started than may enter, those that enter have the numbers of the region's workers. */
TEST(regions_of_some)
{
    tn_ctx *ctx = threads_ctx(6);
    REQUIRE(ctx);
    CHECK(met(ctx, 6, false));
    for (int k = 0; k < 20; k++) CHECK(met(ctx, 2 + k % 4, false));
    tn_ctx_destroy(ctx);
}

TEST(caller_waits)
{
    tn_ctx *ctx = threads_ctx(3);
    REQUIRE(ctx);
    for (int k = 0; k < 10; k++) CHECK(met(ctx, 3, true));
    tn_ctx_destroy(ctx);
}

/* Numbers of regions repeat. A worker for which the next one has the number of its last one misses that region, and ends
   with the context all the same. */
TEST(regions_repeat)
{
    static const uint32_t numbers[] = {1, 2, 0xFFFE, 0xFFFF};
    static count c;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        tn_ctx *ctx = threads_ctx(3);
        uint32_t before = numbers[k] == 1 ? 0xFFFF : numbers[k] - 1;
        REQUIRE(ctx);
        tni_threads *t = ctx->threads;
        tni_atomic_add(&t->gate, before << 16);         /* the first region gets this number */
        CHECK(met(ctx, 3, false));
        CHECK_INT(tni_atomic_get(&t->gate) >> 16, numbers[k]);
        tni_atomic_add(&t->gate, (before << 16) - (numbers[k] << 16));
        memset(&c, 0, sizeof c);
        tni_parallel_for(&ctx->pool, 100, count_task, &c);
        CHECK(counted(&c, 100, 1));
        CHECK(met(ctx, 3, false));
        tni_atomic_add(&t->gate, (numbers[k] << 16) - (tni_atomic_get(&t->gate) >> 16 << 16));
        tn_ctx_destroy(ctx);
    }
}

static void set_threads(const char *value)
{
#if defined(_WIN32)
    char text[64];
    snprintf(text, sizeof text, "OMP_NUM_THREADS=%s", value);
    putenv(text);
#else
    if (*value) setenv("OMP_NUM_THREADS", value, 1);
    else unsetenv("OMP_NUM_THREADS");
#endif
}

static void keep_message(void *user, tn_log_level level, const char *message)
{
    CHECK(level == TN_LOG_WARN);
    snprintf((char *)user, 160, "%s", message);
}

/* How many there are if the desc does not say; a value that is no number of threads is logged. */
TEST(threads_default)
{
    static const struct { const char *value; int threads; } given[] = {
        {"1", 1}, {"3", 3}, {"4,2", 4}, {" 5 ", 5}, {"4 , 2", 4}, {"", 0}, {"0", 0}, {"-2", 0}, {"many", 0}, {"3x", 0}, {"3 4", 0},
        {"99999999999", 0x7FFF}};
    const char *was = getenv("OMP_NUM_THREADS");
    char kept[64], said[160], expected[160];
    snprintf(kept, sizeof kept, "%s", was ? was : "");
    CHECK(tni_processors() >= 1);
    for (size_t k = 0; k < sizeof given / sizeof *given; k++) {
        tn_desc d = ZERO;
        d.log = keep_message;
        d.log_user = said;
        said[0] = expected[0] = 0;
        if (given[k].threads == 0 && *given[k].value)
            snprintf(expected, sizeof expected, "ctx_create: the environment variable OMP_NUM_THREADS is \"%s\", expected a number "
                     "of threads; it is ignored", given[k].value);
        set_threads(given[k].value);
        CHECK_INT(tni_default_threads(&d), given[k].threads > 0 ? given[k].threads : tni_processors());
        CHECK_STR(said, expected);
        d.parallel_for = pool_backwards;
        CHECK_INT(tni_default_threads(&d), 1);
    }
    set_threads(kept);
}
#else
TEST(threads_started)    { SKIP("threads", "TN_USE_THREADS"); }
TEST(threads_refused)    { SKIP("threads", "TN_USE_THREADS"); }
TEST(threads_no_memory)  { SKIP("threads", "TN_USE_THREADS"); }
TEST(threads_order)      { SKIP("threads", "TN_USE_THREADS"); }
TEST(regions_little)     { SKIP("threads", "TN_USE_THREADS"); }
TEST(regions_little_shared) { SKIP("threads", "TN_USE_THREADS"); }
TEST(regions_of_some)    { SKIP("threads", "TN_USE_THREADS"); }
TEST(caller_waits)       { SKIP("threads", "TN_USE_THREADS"); }
TEST(regions_repeat)     { SKIP("threads", "TN_USE_THREADS"); }
TEST(threads_default)    { SKIP("threads", "TN_USE_THREADS"); }
#endif

#if OWN_THREADS && (defined(__unix__) || defined(__APPLE__))
typedef struct masks { meeting m; sigset_t blocked[2]; } masks;

static void note_mask(void *arg, int64_t task, int worker)
{
    masks *all = (masks *)arg;
    pthread_sigmask(SIG_SETMASK, NULL, &all->blocked[worker]);
    meet(&all->m, task, worker);
}

/* A worker has blocked what the program wants to hear of itself, and not the faults of its own; the caller is as it was. */
TEST(threads_signals)
{
    static const int process[] = {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1};
    static const int own[] = {SIGSEGV, SIGFPE, SIGBUS, SIGILL, SIGPROF};
    tn_ctx *ctx = threads_ctx(2);
    masks all;
    REQUIRE(ctx);
    meeting_begin(&all.m, 2, false);
    tni_parallel_for(&ctx->pool, 2, note_mask, &all);
    CHECK(meeting_end(&all.m));
    for (size_t k = 0; k < sizeof process / sizeof *process; k++) {
        CHECK_INT(sigismember(&all.blocked[1], process[k]), 1);
        CHECK_INT(sigismember(&all.blocked[0], process[k]), 0);
    }
    for (size_t k = 0; k < sizeof own / sizeof *own; k++) CHECK_INT(sigismember(&all.blocked[1], own[k]), 0);
    tn_ctx_destroy(ctx);
}

static void *fingerprint_beside(void *user)
{
    tn_ctx *ctx;
    tn_desc d = ZERO;
    d.threads = 3;
    for (int k = 0; k < 3; k++) {
        if (tn_ctx_create(&d, &ctx, NULL) != TN_OK) return NULL;
        ((uint64_t *)user)[k] = fingerprint(ctx);
        tn_ctx_destroy(ctx);
    }
    return NULL;
}

/* Two contexts on two threads, with threads of their own, know nothing of each other. */
TEST(threads_of_two_contexts)
{
    const uint64_t one = fingerprint_of(1);
    uint64_t beside[2][3] = {{0, 0, 0}, {0, 0, 0}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&thread[i], NULL, fingerprint_beside, beside[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) for (int k = 0; k < 3; k++) CHECK(beside[i][k] == one);
}

/* A child of fork() goes on with its parent's context, whose threads it does not have, asleep or not as they were. It
   starts threads of its own at its first region. */
TEST(threads_forked)
{
#if defined(__SANITIZE_THREAD__)
    SKIP("fork", "a thread sanitizer that allows threads in a child");
#else
    const uint64_t one = fingerprint_of(1);
    for (int k = 0; k < 6; k++) {
        const enum { AT_ONCE, ASLEEP, AWAKE } how = k % 3 == 0 ? AT_ONCE : k % 3 == 1 ? ASLEEP : AWAKE;
        tn_ctx *ctx = threads_ctx(3);
        int status = -1;
        REQUIRE(ctx && fingerprint(ctx) == one);
        while (how != AT_ONCE && tni_atomic_get(&ctx->threads->sleepers) < 2) usleep(100);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            starting.begun = 0;
            if (how == AWAKE) tni_atomic_clear(&ctx->threads->sleepers);    /* as if they had looked at the gate just then */
            bool same = fingerprint(ctx) == one && fingerprint(ctx) == one
                && starting.begun == 2;
            tn_ctx_destroy(ctx);
            _exit(same ? 7 : 8);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(fingerprint(ctx) == one);
        tn_ctx_destroy(ctx);
    }
#endif
}
#else
TEST(threads_signals)         { SKIP("threads", "TN_USE_THREADS, and pthreads"); }
TEST(threads_of_two_contexts) { SKIP("threads", "TN_USE_THREADS, and pthreads"); }
TEST(threads_forked)          { SKIP("threads", "TN_USE_THREADS, and pthreads"); }
#endif

TEST_MAIN(regions_cover, regions_nested, regions_repeat, regions_little, regions_little_shared, regions_of_some, threads_bits,
          threads_rounding, threads_started, threads_refused, threads_no_memory, threads_order, threads_default, caller_waits,
          threads_signals, threads_of_two_contexts, threads_forked)
