#include "core/inner.h"

/* ======================================================================
   >>threads  parallel loops over tasks, whose boundaries do not depend on the number of threads
   ====================================================================== */

#if defined(TNI_OWN_THREADS)
/* ---- what a system calls threads, locks and atomic numbers -------------- >>threads-system */
enum { TNI_THREAD_STACK = 2 << 20 };    /* bytes that a thread's stack has at least */

#if defined(_WIN32)
typedef void *tni_lock, *tni_event, *tni_thread;        /* SRWLOCK and CONDITION_VARIABLE: a pointer each, NULL at first */
#define TNI_THREAD_RESULT unsigned __stdcall
static void tni_lock_init(tni_lock *l)    { *l = NULL; }
static void tni_lock_end(tni_lock *l)     { (void)l; }
static void tni_lock_take(tni_lock *l)    { AcquireSRWLockExclusive((struct _RTL_SRWLOCK *)(void *)l); }
static void tni_lock_give(tni_lock *l)    { ReleaseSRWLockExclusive((struct _RTL_SRWLOCK *)(void *)l); }
static void tni_event_init(tni_event *e)  { *e = NULL; }
static void tni_event_end(tni_event *e)   { (void)e; }
static void tni_event_signal(tni_event *e) { WakeConditionVariable((struct _RTL_CONDITION_VARIABLE *)(void *)e); }
static void tni_event_signal_all(tni_event *e) { WakeAllConditionVariable((struct _RTL_CONDITION_VARIABLE *)(void *)e); }
static void tni_event_wait(tni_event *e, tni_lock *l)
{
    SleepConditionVariableSRW((struct _RTL_CONDITION_VARIABLE *)(void *)e, (struct _RTL_SRWLOCK *)(void *)l, 0xFFFFFFFFu, 0);
}

static bool tni_thread_start(tni_thread *t, TNI_THREAD_RESULT fn(void *), void *arg)
{
    *t = (void *)_beginthreadex(NULL, TNI_THREAD_STACK, fn, arg, 0x10000 /* the size is a limit, not taken at once */, NULL);
    return *t != NULL;
}

static void tni_thread_join(tni_thread t)
{
    WaitForSingleObject(t, 0xFFFFFFFFu);
    CloseHandle(t);
}

static long tni_process(void) { return 0; }             /* there is no fork */

static int tni_processors(void)
{
    tni_affinity own = 0, all = 0;
    int          n = 0;
    if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) for (; own != 0; own &= own - 1) n++;
    return n > 0 ? n : (int)GetActiveProcessorCount(0xFFFF);    /* no mask: several groups of up to 64 processors */
}
#else
typedef pthread_mutex_t tni_lock;
typedef pthread_cond_t  tni_event;
typedef pthread_t       tni_thread;
#define TNI_THREAD_RESULT void *
static void tni_lock_init(tni_lock *l)    { pthread_mutex_init(l, NULL); }
static void tni_lock_end(tni_lock *l)     { pthread_mutex_destroy(l); }
static void tni_lock_take(tni_lock *l)    { pthread_mutex_lock(l); }
static void tni_lock_give(tni_lock *l)    { pthread_mutex_unlock(l); }
static void tni_event_init(tni_event *e)  { pthread_cond_init(e, NULL); }
static void tni_event_end(tni_event *e)   { pthread_cond_destroy(e); }
static void tni_event_signal(tni_event *e) { pthread_cond_signal(e); }
static void tni_event_signal_all(tni_event *e) { pthread_cond_broadcast(e); }
static void tni_event_wait(tni_event *e, tni_lock *l) { pthread_cond_wait(e, l); }

/* Signals of the process are for the program's own threads: a worker blocks all but those that report a fault of its own,
   and a profiler's. With -std=c99 alone the system hides the functions for this, and nothing is blocked. */
static bool tni_thread_start(tni_thread *t, TNI_THREAD_RESULT fn(void *), void *arg)
{
    pthread_attr_t how;
    size_t         stack = 0;
#ifdef SIG_BLOCK
    sigset_t       blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
#ifdef SIGPROF
    sigdelset(&blocked, SIGPROF);
#endif
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
#endif
    bool begun = pthread_attr_init(&how) == 0;
    if (begun) {
        if (pthread_attr_getstacksize(&how, &stack) == 0 && stack < TNI_THREAD_STACK)
            pthread_attr_setstacksize(&how, TNI_THREAD_STACK);
        begun = pthread_create(t, &how, fn, arg) == 0;
        pthread_attr_destroy(&how);
    }
#ifdef SIG_BLOCK
    pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
    return begun;
}

static void tni_thread_join(tni_thread t) { pthread_join(t, NULL); }
static long tni_process(void)             { return (long)getpid(); }

static int tni_processors(void)
{
    int n = 0;
#if defined(__linux__)                  /* sysconf does not know which processors the process is confined to */
    unsigned long mask[1024 / sizeof(long)];
    long          bytes = syscall(SYS_sched_getaffinity, 0L, sizeof mask, mask);
    for (long i = 0; i < bytes / (long)sizeof *mask; i++) for (; mask[i] != 0; mask[i] &= mask[i] - 1) n++;
#endif
#ifdef _SC_NPROCESSORS_ONLN
    if (n == 0) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
    return n > 0 ? n : 1;
}
#endif

/* A number that threads share. get, add and swap are sequentially consistent; clear is for a time when one thread alone uses
   it. add returns the number before; swap stores `now` if the number is *was, else sets *was to the number. Where the
   compiler has no atomic operations a lock guards it. */
#if defined(__GNUC__) && !defined(TNI_NO_ATOMICS)
typedef uint32_t tni_atomic;
static void     tni_atomic_init(tni_atomic *w)            { *w = 0; }
static void     tni_atomic_end(tni_atomic *w)             { (void)w; }
static void     tni_atomic_clear(tni_atomic *w)           { *w = 0; }
static uint32_t tni_atomic_get(tni_atomic *w)             { return __atomic_load_n(w, __ATOMIC_SEQ_CST); }
static uint32_t tni_atomic_add(tni_atomic *w, uint32_t n) { return __atomic_fetch_add(w, n, __ATOMIC_SEQ_CST); }
static bool     tni_atomic_swap(tni_atomic *w, uint32_t *was, uint32_t now)
{
    return __atomic_compare_exchange_n(w, was, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
#elif defined(_MSC_VER) && !defined(TNI_NO_ATOMICS)
typedef volatile long tni_atomic;
static void     tni_atomic_init(tni_atomic *w)            { *w = 0; }
static void     tni_atomic_end(tni_atomic *w)             { (void)w; }
static void     tni_atomic_clear(tni_atomic *w)           { *w = 0; }
static uint32_t tni_atomic_add(tni_atomic *w, uint32_t n) { return (uint32_t)_InterlockedExchangeAdd(w, (long)n); }
#if defined(_M_IX86) || defined(_M_X64)
static uint32_t tni_atomic_get(tni_atomic *w)             { return (uint32_t)*w; }    /* a plain load of these processors */
#else
static uint32_t tni_atomic_get(tni_atomic *w)             { return tni_atomic_add(w, 0); }
#endif
static bool     tni_atomic_swap(tni_atomic *w, uint32_t *was, uint32_t now)
{
    const uint32_t found = (uint32_t)_InterlockedCompareExchange(w, (long)now, (long)*was);
    const bool     same = found == *was;
    *was = found;
    return same;
}
#else
typedef struct tni_atomic { tni_lock lock; uint32_t value; } tni_atomic;
static void     tni_atomic_end(tni_atomic *w)             { tni_lock_end(&w->lock); }
static void     tni_atomic_init(tni_atomic *w)
{
    tni_lock_init(&w->lock);
    w->value = 0;
}
static uint32_t tni_atomic_add(tni_atomic *w, uint32_t n)
{
    tni_lock_take(&w->lock);
    uint32_t was = w->value;
    w->value = was + n;
    tni_lock_give(&w->lock);
    return was;
}
static uint32_t tni_atomic_get(tni_atomic *w)             { return tni_atomic_add(w, 0); }
static void     tni_atomic_clear(tni_atomic *w)           { w->value = 0; }
static bool     tni_atomic_swap(tni_atomic *w, uint32_t *was, uint32_t now)
{
    tni_lock_take(&w->lock);
    bool same = w->value == *was;
    *was = w->value;
    if (same) w->value = now;
    tni_lock_give(&w->lock);
    return same;
}
#endif

/* Tells the processor that this thread only waits. */
static void tni_pause(void)
{
#if defined(__GNUC__) && (defined(__i386__) || defined(__x86_64__))
    __builtin_ia32_pause();
#elif defined(__GNUC__) && defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#elif defined(_MSC_VER) && (defined(_M_IX86) || defined(_M_X64))
    _mm_pause();
#endif
}

/* How the calling thread rounds, and whether it flushes to zero: a worker computes as the caller does. On POSIX systems a
   new thread inherits this; where it can be read here, workers also follow a caller that changes it later. On Windows a new
   thread's x87, which exp and log of mingw use, has another precision than that of main: its control word is the upper half. */
static uint32_t tni_rounding(void)
{
#if defined(__GNUC__) && defined(__SSE__)
    uint32_t mode = __builtin_ia32_stmxcsr() & UINT32_C(0xFFC0);        /* without the flags of past exceptions */
#if defined(_WIN32)
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    mode |= (uint32_t)x87 << 16;
#endif
    return mode;
#elif defined(__GNUC__) && defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (uint32_t)fpcr;
#else
    return 0;
#endif
}

static void tni_rounding_set(uint32_t mode)
{
    if (tni_rounding() == mode) return;
#if defined(__GNUC__) && defined(__SSE__)
    __builtin_ia32_ldmxcsr(mode & 0xFFFF);
#if defined(_WIN32)
    const uint16_t x87 = (uint16_t)(mode >> 16);
    __asm__ volatile("fldcw %0" :: "m"(x87));
#endif
#elif defined(__GNUC__) && defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" :: "r"((uint64_t)mode));
#endif
}

/* ---- the threads of a context ------------------------------------------- >>threads-own
   A region is one call of tni_threads_for. Its caller works, too. Each thread has a part of the tasks, those that follow one
   another, and when they are taken it helps with the others' parts. So regions that go through the same rows or columns one
   after another leave them in the cache of one processor. A worker takes part only if it enters while there are tasks left,
   so the caller waits for those that have begun, and never for a worker that the system has not given a processor. A thread
   that waits spins for a moment, then sleeps.

   gate: the region's number (16 bits), whether it may be entered (1 bit), places left (15 bits). Only the caller opens and
   closes it; a worker enters by taking a place, once per number. What describes the region changes while the gate is closed
   and no worker is inside. Numbers repeat after 65535 regions, and a worker that slept so long may miss one. The number 0 is
   that of the last region, which ends the workers.
   Workers that slept get a permit each. A caller that finds no sleepers needs no lock: a worker counts itself among the
   sleepers before it looks at the gate for the last time, the caller opens the gate before it looks at that count.

   SPINS: on two busy cores of a Zen 4 EPYC a training did 36,400 tokens per second of processor time with 100 spins, 36,200
   with 300, 34,500 with 1,000 and 27,400 with 10,000. sched_yield in their place costs a thread half of its share. */
enum {
    TNI_GATE_OPEN = 1 << 15,
    TNI_GATE_FREE = TNI_GATE_OPEN - 1,  /* places left; also the most workers beside the caller       */
    TNI_SPINS     = 300,                /* looks before a thread sleeps, about 5 us                   */
    TNI_CLAIMS    = 1 << 30             /* most claims of a region, each of one task if they suffice  */
};

/* A thread's; place 0 is the caller's. */
typedef struct tni_thread_place {
    struct tni_threads *threads;
    tni_thread          thread;
    tni_atomic          next;           /* claims of its part that are taken */
    char                apart[128];
} tni_thread_place;

typedef struct tni_threads {
    tn_ctx    *ctx;
    int        most, spins;             /* threads beside the caller, at most; spins before one sleeps */
    int        started;
    bool       refused;                 /* the system gave no further thread */
    bool       busy;                    /* inside a region: a region within runs on its own thread alone */
    long       process;                 /* whose threads these are: a child of fork() has none of them */
    tn_task_fn fn;                      /* the region; a NULL fn ends the workers */
    void      *arg;
    int64_t    tasks, share;            /* tasks of a claim */
    int        workers;
    uint32_t   rounding;
    tni_lock   lock;
    tni_event  opened, left;
    uint32_t   permits;                 /* to wake up; guarded by the lock */
    tni_atomic sleepers, waiting;       /* workers that sleep; 1: the caller does */
    char       apart[4][64];            /* so that neither of these two shares a line of cache with others */
    tni_atomic gate;
    char       apart_gate[128];
    tni_atomic done;
    char       apart_done[128];
    tni_thread_place place[1];          /* [most + 1] */
} tni_threads;

static bool tni_gate_is_new(uint32_t gate, uint32_t seen)
{
    return (gate & TNI_GATE_OPEN) && (gate & TNI_GATE_FREE) && gate >> 16 != seen;
}

/* A worker has its place's number, so that it gets the same part of each region; where more threads have started than may
   enter, it has the number of the place that it took at the gate. */
static bool tni_threads_enter(tni_threads *t, uint32_t *seen, int *worker, int place)
{
    uint32_t gate = tni_atomic_get(&t->gate);
    while (tni_gate_is_new(gate, *seen)) {
        if (!tni_atomic_swap(&t->gate, &gate, gate - 1)) continue;
        *seen = gate >> 16;
        *worker = t->workers > t->started ? place : t->workers - (int)(gate & TNI_GATE_FREE);
        return true;
    }
    return false;
}

static void tni_threads_work(tni_threads *t, int worker)
{
    const int64_t claims = tni_ceil_div(t->tasks, t->share);
    for (int64_t i = 0; i < t->workers; i++) {
        const int64_t part = (worker + i) % t->workers, begin = part * claims / t->workers;
        const int64_t count = (part + 1) * claims / t->workers - begin;
        for (int64_t claim; (claim = tni_atomic_add(&t->place[part].next, 1)) < count;) {
            const int64_t task = (begin + claim) * t->share, end = tni_min(task + t->share, t->tasks);
            for (int64_t k = task; k < end; k++) t->fn(t->arg, k, worker);
        }
    }
}

static void tni_threads_sleep(tni_threads *t, uint32_t seen)
{
    tni_lock_take(&t->lock);
    tni_atomic_add(&t->sleepers, 1);
    if (tni_gate_is_new(tni_atomic_get(&t->gate), seen)) tni_atomic_add(&t->sleepers, (uint32_t)-1);
    else {
        while (t->permits == 0) tni_event_wait(&t->opened, &t->lock);
        t->permits--;
    }
    tni_lock_give(&t->lock);
}

static TNI_THREAD_RESULT tni_threads_main(void *user)
{
    tni_thread_place *place = (tni_thread_place *)user;
    tni_threads      *t = place->threads;
    uint32_t          seen = UINT32_MAX;
    int               spins = 0, worker;
    for (;;) {
        if (tni_threads_enter(t, &seen, &worker, (int)(place - t->place))) {
            if (!t->fn) return 0;
            tni_rounding_set(t->rounding);
            tni_threads_work(t, worker);
            tni_atomic_add(&t->done, 1);
            if (tni_atomic_get(&t->waiting)) {
                tni_lock_take(&t->lock);
                tni_event_signal(&t->left);
                tni_lock_give(&t->lock);
            }
            spins = 0;
        } else if (spins++ < t->spins) tni_pause();
        else {
            tni_threads_sleep(t, seen);
            spins = 0;
        }
    }
}

static void tni_threads_init(tni_threads *t)
{
    t->process = tni_process();
    t->started = 0;
    t->permits = 0;
    tni_lock_init(&t->lock);
    tni_event_init(&t->opened);
    tni_event_init(&t->left);
    tni_atomic_init(&t->sleepers);
    tni_atomic_init(&t->waiting);
    tni_atomic_init(&t->gate);
    for (int i = 0; i <= t->most; i++) {
        t->place[i].threads = t;
        tni_atomic_init(&t->place[i].next);
    }
    tni_atomic_init(&t->done);
}

/* Opens the gate for as many workers, and wakes those that sleep. */
static void tni_threads_open(tni_threads *t, int places)
{
    const uint32_t gate = tni_atomic_get(&t->gate), number = t->fn ? (gate >> 16) % 0xFFFF + 1 : 0;
    tni_atomic_add(&t->gate, (number << 16 | TNI_GATE_OPEN | (uint32_t)places) - gate);
    if (tni_atomic_get(&t->sleepers) == 0) return;
    tni_lock_take(&t->lock);
    uint32_t sleepers = tni_atomic_get(&t->sleepers), wake = (uint32_t)tni_min(sleepers, places);
    tni_atomic_add(&t->sleepers, 0 - wake);
    t->permits += wake;
    if (wake == sleepers) tni_event_signal_all(&t->opened);
    else for (; wake > 0; wake--) tni_event_signal(&t->opened);
    tni_lock_give(&t->lock);
}

/* Closes the gate, and waits for the workers that entered: they are within their last tasks, so that the caller looks for
   longer before it sleeps. */
static void tni_threads_close(tni_threads *t, int places)
{
    const uint32_t entered = (uint32_t)places - (tni_atomic_add(&t->gate, (uint32_t)-TNI_GATE_OPEN) & TNI_GATE_FREE);
    for (int spins = 0; spins < 10 * t->spins && tni_atomic_get(&t->done) != entered; spins++) tni_pause();
    if (tni_atomic_get(&t->done) == entered) return;
    tni_lock_take(&t->lock);
    tni_atomic_add(&t->waiting, 1);
    while (tni_atomic_get(&t->done) != entered) tni_event_wait(&t->left, &t->lock);
    tni_atomic_add(&t->waiting, (uint32_t)-1);
    tni_lock_give(&t->lock);
}

/* Starts threads until there are as many. Fewer are no error: a region waits only for workers that entered. */
static void tni_threads_start(tni_threads *t, int threads)
{
    while (t->started < threads && !t->refused) {
        tni_thread_place *place = &t->place[t->started + 1];
        if (tni_thread_start(&place->thread, tni_threads_main, place)) t->started++;
        else {
            t->refused = true;
            tni_log(t->ctx, TN_LOG_WARN, "threads: the system started %d of %d threads; results do not depend on it",
                    t->started + 1, t->most + 1);
        }
    }
}

TNI_FN void tni_threads_for(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    tni_threads *t = (tni_threads *)user;
    const int    places = (int)tni_min(workers - 1, t->most);
    if (t->busy) {
        for (int64_t task = 0; task < tasks; task++) fn(arg, task, 0);
        return;
    }
    if (t->started > 0 && t->process != tni_process()) tni_threads_init(t);     /* a child of fork() starts its own */
    tni_threads_start(t, places);
    t->busy = true;
    t->fn = fn;
    t->arg = arg;
    t->tasks = tasks;
    t->share = tni_ceil_div(tasks, TNI_CLAIMS);
    t->workers = places + 1;
    t->rounding = tni_rounding();
    for (int i = 0; i <= places; i++) tni_atomic_clear(&t->place[i].next);
    tni_atomic_clear(&t->done);
    tni_threads_open(t, places);
    tni_threads_work(t, 0);
    tni_threads_close(t, places);
    t->busy = false;
}

/* For a region that takes less time than to wake a thread: it is divided only if no thread sleeps. */
TNI_FN void tni_threads_for_little(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    tni_threads *t = (tni_threads *)user;
    const bool   awake = t->started + 1 >= workers && tni_atomic_get(&t->sleepers) == 0;
    if (awake) tni_threads_for(user, tasks, workers, fn, arg);
    else for (int64_t task = 0; task < tasks; task++) fn(arg, task, 0);
}

static size_t tni_threads_bytes(int most) { return sizeof(tni_threads) + sizeof(tni_thread_place) * (size_t)most; }

/* No thread begins before the first region. */
TNI_FN tni_threads *tni_threads_create(tn_ctx *ctx, int threads)
{
    const int    most = (int)tni_min(threads - 1, TNI_GATE_FREE);
    tni_threads *t = (tni_threads *)ctx->desc.allocator.alloc(tni_threads_bytes(most), ctx->desc.allocator.user);
    if (!t) return NULL;
    memset(t, 0, sizeof *t);
    t->ctx = ctx;
    t->most = most;
    t->spins = threads <= tni_processors() ? TNI_SPINS : 0;         /* else one would keep the other from its processor */
    tni_threads_init(t);
    return t;
}

TNI_FN void tni_threads_destroy(tni_threads *t)
{
    if (!t) return;
    if (t->process == tni_process()) {
        t->fn = NULL;                   /* the region that ends the workers */
        t->workers = t->started + 1;
        tni_threads_open(t, t->started);
        for (int i = 0; i < t->started; i++) tni_thread_join(t->place[i + 1].thread);
        tni_atomic_end(&t->done);
        for (int i = 0; i <= t->most; i++) tni_atomic_end(&t->place[i].next);
        tni_atomic_end(&t->gate);
        tni_atomic_end(&t->waiting);
        tni_atomic_end(&t->sleepers);
        tni_event_end(&t->left);
        tni_event_end(&t->opened);
        tni_lock_end(&t->lock);
    }
    tn_allocator mem = t->ctx->desc.allocator;
    mem.release(t, tni_threads_bytes(t->most), mem.user);
}

#ifndef TN_NO_TRAINING
/* ---- a thread that runs calls in turn, beside the caller ---------------- >>threads-beside */

typedef struct tni_comm_thread {
    tn_ctx    *ctx;
    long       process;
    uint32_t   rounding;
    void     (*fn)(void *arg, int64_t number);      /* they change only while no call is left */
    void      *arg;
    int64_t    given, done;                         /* calls; guarded by the lock */
    bool       ends;
    tni_lock   lock;
    tni_event  changed;
    tni_thread thread;
} tni_comm_thread;

static TNI_THREAD_RESULT tni_comm_thread_main(void *user)
{
    tni_comm_thread *b = (tni_comm_thread *)user;
    tni_lock_take(&b->lock);
    for (;;) {
        while (b->done == b->given && !b->ends) tni_event_wait(&b->changed, &b->lock);
        if (b->done == b->given) break;
        tni_lock_give(&b->lock);
        tni_rounding_set(b->rounding);
        b->fn(b->arg, b->done);
        tni_lock_take(&b->lock);
        b->done++;
        tni_event_signal_all(&b->changed);
    }
    tni_lock_give(&b->lock);
    return 0;
}

/* The context's; NULL if the system gives none. */
TNI_FN tni_comm_thread *tni_comm_thread_of(tn_ctx *ctx)
{
    tni_comm_thread *b = ctx->beside;
    if (b) return b;
    b = (tni_comm_thread *)ctx->desc.allocator.alloc(sizeof *b, ctx->desc.allocator.user);
    if (!b) return NULL;
    memset(b, 0, sizeof *b);
    b->ctx = ctx;
    b->process = tni_process();
    tni_lock_init(&b->lock);
    tni_event_init(&b->changed);
    if (tni_thread_start(&b->thread, tni_comm_thread_main, b)) return ctx->beside = b;
    tni_event_end(&b->changed);
    tni_lock_end(&b->lock);
    ctx->desc.allocator.release(b, sizeof *b, ctx->desc.allocator.user);
    return NULL;
}

/* The calls that follow run fn(arg, number). Returns the number of the first. */
TNI_FN int64_t tni_comm_thread_begin(tni_comm_thread *b, void (*fn)(void *, int64_t), void *arg)
{
    b->fn = fn;
    b->arg = arg;
    b->rounding = tni_rounding();
    return b->given;
}

TNI_FN void tni_comm_thread_give(tni_comm_thread *b)
{
    tni_lock_take(&b->lock);
    b->given++;
    tni_event_signal_all(&b->changed);
    tni_lock_give(&b->lock);
}

/* Whether a call is done; with `wait` it is afterwards. */
TNI_FN bool tni_comm_thread_done(tni_comm_thread *b, int64_t number, bool wait)
{
    tni_lock_take(&b->lock);
    while (wait && b->done <= number) tni_event_wait(&b->changed, &b->lock);
    bool done = b->done > number;
    tni_lock_give(&b->lock);
    return done;
}

TNI_FN void tni_comm_thread_destroy(tni_comm_thread *b)
{
    if (!b) return;
    tn_allocator mem = b->ctx->desc.allocator;
    if (b->process == tni_process()) {
        tni_lock_take(&b->lock);
        b->ends = true;
        tni_event_signal_all(&b->changed);
        tni_lock_give(&b->lock);
        tni_thread_join(b->thread);
        tni_event_end(&b->changed);
        tni_lock_end(&b->lock);
    }
    mem.release(b, sizeof *b, mem.user);
}
#endif /* TN_NO_TRAINING */

/* OMP_NUM_THREADS may be a list of numbers, one per level of nested regions: the first counts. OpenMP allows spaces. */
static int tni_threads_default(const tn_desc *desc)
{
    const char *given = getenv("OMP_NUM_THREADS");
    char       *end = NULL, message[160];
    const long  threads = given ? strtol(given, &end, 10) : 0;
    if (threads > 0) end += strspn(end, " \t");
    if (threads > 0 && (*end == 0 || *end == ',')) return (int)tni_min(threads, TNI_MOST_THREADS);
    if (given && *given) {
        tni_print(message, sizeof message, "ctx_create: the environment variable OMP_NUM_THREADS is \"%s\", expected a number of "
                  "threads; it is ignored", given);
        tn_printable(message, strlen(message), false);
        tni_say(desc, TN_LOG_WARN, message);
    }
    return tni_processors();
}
#endif

TNI_FN int tni_default_threads(const tn_desc *desc)
{
#if defined(TNI_OWN_THREADS)
    if (!desc->parallel_for) return tni_threads_default(desc);
#elif defined(TNI_OPENMP)
    if (!desc->parallel_for) return omp_get_max_threads();
#endif
    (void)desc;
    return 1;
}

TNI_FN void tni_parallel_for(const tni_pool *pool, int64_t tasks, tn_task_fn fn, void *arg)
{
    int64_t task;
    int     workers = (int)tni_min(pool->threads, tasks);
    if (workers > 1 && pool->fn) {
        pool->fn(pool->user, tasks, workers, fn, arg);
        return;
    }
#if defined(TNI_OPENMP)
    if (workers > 1) {
#pragma omp parallel for schedule(dynamic) num_threads(workers)
        for (task = 0; task < tasks; task++) fn(arg, task, omp_get_thread_num());
        return;
    }
#endif
    for (task = 0; task < tasks; task++) fn(arg, task, 0);
}
