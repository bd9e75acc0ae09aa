/* cuda_host.cpp: the engine of cuda_host.h. Compile it without -fsanitize=thread, even if the .cu is compiled with it.

   Sections: settings; faults; fibers; device memory; shared memory; a block; collectives; asynchronous copies and tensor cores;
   wgmma; mbarriers; bulk copies; registers of a warpgroup; a launch; streams; graphs; the runtime; tensor maps; cuBLAS; cublasLt; for
   tests. Everything runs under one lock, one kernel at a time. */

#include "cuda_host.h"
#include <algorithm>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <signal.h>
#include <stdarg.h>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define TNCH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TNCH_ASAN 1
#endif
#endif
#ifdef TNCH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

#define HOOK(name, ...) do { if (tnch_hook.name) tnch_hook.name(__VA_ARGS__); } while (0)
#define LOCK() std::lock_guard<std::recursive_mutex> lock_(engine_lock)

typedef std::function<void()> work;

tnch_thread *tnch_now;
uint3 tnch_block;
dim3 tnch_block_dim, tnch_grid_dim;
unsigned tnch_launch_number;
void *tnch_dynamic_shared;
tnch_hooks tnch_hook;
char *tnch_arena;
size_t tnch_arena_bytes;
static std::recursive_mutex engine_lock;

/* ---- settings --------------------------------------------------------------------------------------------------------- */

enum { MAX_THREADS = 1024, MAX_WARPS = 32, STATIC_SHARED_LIMIT = 48 << 10, ARENA_BYTES = 1 << 30 };

static struct {
    bool ready;
    int device;                /* capability, TNCH_NO_DEVICE or TNCH_NO_DRIVER */
    int ptx;                   /* of kernels; 0: that of the device, -1: the query fails */
    tnch_order order;
    uint32_t random;
    bool lazy, protect, no_cublas, no_tma, trace;
    int lt;                    /* as in tnch_set_cublas_lt */
    size_t memory;
    long fail_malloc, fail_launch;
    uint64_t first_block;
    int l2;                    /* bytes of the cache that the device shows */
} set;

static void at_exit(void);
static void catch_signals(void);

static long number(const char *name, long otherwise)
{
    const char *s = getenv(name);
    return s && *s ? atol(s) : otherwise;
}

static int device_of(const char *s)
{
    if (!s || !*s) return 90;
    return strcmp(s, "none") == 0 ? TNCH_NO_DEVICE : strcmp(s, "driver") == 0 ? TNCH_NO_DRIVER : atoi(s);
}

static void start(void)
{
    if (set.ready) return;
    set.ready = true;
    const char *order = getenv("TNCH_ORDER");
    set.device = device_of(getenv("TNCH_DEVICE"));
    set.order = !order ? TNCH_FORWARD : strncmp(order, "reversed", 8) == 0 ? TNCH_REVERSED
              : strncmp(order, "random", 6) == 0 ? TNCH_RANDOM : TNCH_FORWARD;
    set.ptx = (int)number("TNCH_PTX", 0);
    set.l2 = 40 << 20;
    set.random = (order && strchr(order, ':') ? (uint32_t)atol(strchr(order, ':') + 1) : 0u) * 2654435761u + 1u;
    set.lazy = number("TNCH_LAZY", 0) != 0;
    set.protect = number("TNCH_PROTECT", 0) != 0;
    set.memory = (size_t)number("TNCH_MEMORY", ARENA_BYTES);
    set.fail_malloc = number("TNCH_FAIL_MALLOC", 0);
    set.fail_launch = number("TNCH_FAIL_LAUNCH", 0);
    set.no_cublas = number("TNCH_NO_CUBLAS", 0) != 0;
    set.lt = 1;
    set.no_tma = number("TNCH_NO_TMA", 0) != 0;
    set.trace = number("TNCH_TRACE", 0) != 0;

    tnch_arena_bytes = (size_t)ARENA_BYTES + TNCH_SHARED_WINDOW + (1 << 20);   /* the last MiB: a red zone */
    void *p = mmap(NULL, tnch_arena_bytes, set.protect ? PROT_NONE : PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) { perror("tnch: device memory"); _exit(1); }
    tnch_arena = (char *)p;
    ASAN_POISON_MEMORY_REGION(tnch_arena, tnch_arena_bytes);
    catch_signals();
    atexit(at_exit);
}

static uint32_t random_bits(void)
{
    uint32_t x = set.random;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return set.random = x;
}

/* ---- faults --------------------------------------------------------------------------------------------------------------
   A report says what is wrong, and in which kernel, block and thread; the program then cannot exit with status 0. A fault is
   a report that ends the kernel as on a device: every later call returns its error. */

static int fault_count;
static char first_fault[768];
static cudaError_t last_error, sticky_error;
static std::string kernel_name;

static cudaError_t remember(cudaError_t error)
{
    if (error) last_error = error;
    return error;
}

static void report(const char *format, va_list arguments)
{
    char text[768];
    int n = vsnprintf(text, sizeof text, format, arguments);
    if (tnch_now && n >= 0 && n < (int)sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, " [kernel %s, block (%u,%u,%u), thread (%u,%u,%u)]",
                 kernel_name.c_str(), tnch_block.x, tnch_block.y,
                 tnch_block.z, tnch_now->index.x, tnch_now->index.y, tnch_now->index.z);
    if (fault_count++ == 0) memcpy(first_fault, text, sizeof text);
    if (fault_count <= 20) fprintf(stderr, "tnch: FAULT: %s\n", text);
}

void tnch_report(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(format, arguments);
    va_end(arguments);
}

static void abandon_block(void);
static void fault(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fault(cudaError_t error, const char *format, ...)   /* in a kernel it does not return */
{
    va_list arguments;
    va_start(arguments, format);
    report(format, arguments);
    va_end(arguments);
    if (!sticky_error) sticky_error = error;
    if (tnch_now) abandon_block();
}

void __trap(void) { fault(cudaErrorLaunchFailure, "__trap"); }

/* pc is a return address: the call is just before it. One process of addr2line per report, whose speed does not matter. */
void tnch_source_line(const void *pc, char *text, size_t space)
{
    Dl_info where;
    snprintf(text, space, "%p", pc);
    if (!dladdr(pc, &where) || !where.dli_fname) return;
    char command[1024];
    snprintf(command, sizeof command, "addr2line -s -e '%s' %#lx 2>/dev/null", where.dli_fname,
             (unsigned long)((const char *)pc - 1 - (const char *)where.dli_fbase));
    FILE *f = popen(command, "r");
    if (!f) return;
    char line[256];
    if (fgets(line, sizeof line, f) && line[0] != '?') snprintf(text, space, "%.*s", (int)strcspn(line, "\n"), line);
    pclose(f);
}

/* ---- fibers --------------------------------------------------------------------------------------------------------------
   Each has its stack, and a switch saves the registers that a call must preserve, in about 4 ns. Processors without such a
   switch here use ucontext, which makes two system calls per switch. A thread that ends passes its stack to the next thread
   that has none yet, so that a kernel without barriers is a loop of plain calls. */

#ifdef TNCH_ASAN
enum { STACK_BYTES = 256 << 10 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif
enum { GUARD_BYTES = 4096 };

#if !defined(__x86_64__) && !defined(__aarch64__)
#define TNCH_UCONTEXT 1
#endif

struct tnch_fiber {
    void *sp;
    char *stack;               /* NULL: the program's own */
    char *top;                 /* where it begins         */
    tnch_fiber *next;          /* in the pool             */
    const void *bottom;        /* for ASan                */
    size_t bytes;
    void *fake_stack;
#ifdef TNCH_UCONTEXT
    ucontext_t context;
#endif
};

static tnch_fiber host_fiber;
static tnch_fiber *fiber_pool;
static size_t fibers_made;
static uint64_t switches;

#if defined(__x86_64__)
extern "C" void tnch_swap(void **save, void *load);
__asm__(".text\n.globl tnch_swap\n.type tnch_swap,@function\ntnch_swap:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size tnch_swap,.-tnch_swap\n");
#elif defined(__aarch64__)
extern "C" void tnch_swap(void **save, void *load);
__asm__(".text\n.globl tnch_swap\n.type tnch_swap,%function\ntnch_swap:\n"
        "stp x29,x30,[sp,#-160]!\nstp x19,x20,[sp,#16]\nstp x21,x22,[sp,#32]\nstp x23,x24,[sp,#48]\n"
        "stp x25,x26,[sp,#64]\nstp x27,x28,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\n"
        "stp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\nmov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
        "ldp x19,x20,[sp,#16]\nldp x21,x22,[sp,#32]\nldp x23,x24,[sp,#48]\nldp x25,x26,[sp,#64]\n"
        "ldp x27,x28,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\n"
        "ldp d14,d15,[sp,#144]\nldp x29,x30,[sp],#160\nret\n.size tnch_swap,.-tnch_swap\n");
#endif

static void fiber_run(void);

static void fiber_begin(void)
{
#ifdef TNCH_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (!host_fiber.bytes) { host_fiber.bottom = bottom; host_fiber.bytes = bytes; }   /* the very first switch comes from there */
#endif
    fiber_run();
}

/* A new stack begins with a call of fiber_begin. */
static void fiber_prepare(tnch_fiber *f)
{
    ASAN_UNPOISON_MEMORY_REGION(f->stack, STACK_BYTES);
    f->fake_stack = NULL;
#if defined(TNCH_UCONTEXT)
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = (size_t)(f->top - f->stack);
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_begin, 0);
#elif defined(__x86_64__)
    void **sp = (void **)f->top;
    *--sp = NULL;
    *--sp = (void *)fiber_begin;
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
    f->sp = sp;
#else
    void **sp = (void **)f->top - 20;
    memset(sp, 0, 20 * sizeof *sp);
    sp[1] = (void *)fiber_begin;
    f->sp = sp;
#endif
}

static void fiber_give(tnch_fiber *f)
{
    f->next = fiber_pool;
    fiber_pool = f;
}

static tnch_fiber *fiber_take(void)
{
    tnch_fiber *f = fiber_pool;
    if (f) { fiber_pool = f->next; return f; }
    f = new tnch_fiber();
    void *p = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE)) { perror("tnch: a thread's stack"); _exit(1); }
    f->stack = (char *)p + GUARD_BYTES;
    f->top = f->stack + STACK_BYTES - fibers_made++ * 320 % 4096 / 64 * 64;   /* spreads the stacks over the lines of the cache */
    f->bottom = f->stack;
    f->bytes = STACK_BYTES;
    fiber_prepare(f);
    return f;
}

static inline void fiber_switch(tnch_fiber *from, tnch_fiber *to)
{
    switches++;
#ifdef TNCH_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
#ifdef TNCH_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    tnch_swap(&from->sp, to->sp);
#endif
#ifdef TNCH_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

/* ---- device memory -------------------------------------------------------------------------------------------------------
   One reserved range of addresses, so that "is this a device pointer" is a comparison. New memory is filled with 0xFF, which
   is NaN in every float type and -1 as an index; so is the red zone after each allocation, which is checked when it is
   freed. */

enum { RED_ZONE = 256 };

static std::map<char *, size_t> allocations;   /* address, number of bytes */
static std::map<char *, size_t> pinned;
static size_t memory_used;
static size_t memory_filled = TNCH_SHARED_WINDOW + RED_ZONE;   /* below this, free memory is already filled with 0xFF */

/* Open while kernels and copies run: with TNCH_PROTECT the host cannot access device memory at other times. */
struct open_memory {
    open_memory() { protect(PROT_READ | PROT_WRITE); }
    ~open_memory() { protect(PROT_NONE); }
    static void protect(int access) { if (set.protect && mprotect(tnch_arena, tnch_arena_bytes, access)) perror("tnch: mprotect"); }
};

static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }
static bool on_device(const void *p) { return tnch_arena && (size_t)((const char *)p - tnch_arena) < tnch_arena_bytes; }

/* Whether [p, p + bytes) lies inside one allocation. */
static bool inside(const std::map<char *, size_t> &list, const void *p, size_t bytes)
{
    auto it = list.upper_bound((char *)p);
    if (it == list.begin()) return false;
    --it;
    return (size_t)((char *)p - it->first) <= it->second && bytes <= it->second - (size_t)((char *)p - it->first);
}

static void *memory_new(size_t bytes)
{
    size_t at = TNCH_SHARED_WINDOW + RED_ZONE;
    for (auto &a : allocations) {                 /* the first gap that is large enough */
        size_t begin = (size_t)(a.first - tnch_arena);
        if (begin >= at + rounded(bytes) + RED_ZONE) break;
        at = begin + rounded(a.second) + RED_ZONE;
    }
    if (bytes > set.memory - memory_used || at + rounded(bytes) + RED_ZONE > tnch_arena_bytes) return NULL;
    char *p = tnch_arena + at;
    ASAN_UNPOISON_MEMORY_REGION(p, rounded(bytes) + RED_ZONE);
    if (at + rounded(bytes) + RED_ZONE > memory_filled) {
        open_memory open;
        const size_t end = at + rounded(bytes) + RED_ZONE;
        memset(tnch_arena + memory_filled, 0xFF, end - memory_filled);
        memory_filled = end;
    }
    ASAN_POISON_MEMORY_REGION(p + bytes, rounded(bytes) + RED_ZONE - bytes);
    HOOK(memory_new, p, bytes);
    allocations[p] = bytes;
    memory_used += bytes;
    return p;
}

static void check_red_zone(char *p, size_t bytes)
{
    size_t end = rounded(bytes) + RED_ZONE;
    ASAN_UNPOISON_MEMORY_REGION(p + bytes, end - bytes);
    for (size_t i = bytes; i < end; i++)
        if (p[i] != (char)0xFF) {
            tnch_report("%zu bytes after an allocation of %zu bytes were overwritten", i - bytes, bytes);
            memset(p + bytes, 0xFF, end - bytes);
            break;
        }
    ASAN_POISON_MEMORY_REGION(p + bytes, end - bytes);
}

static void memory_gone(char *p, size_t bytes)
{
    open_memory open;
    check_red_zone(p, bytes);
    memset(p, 0xFF, bytes);
    ASAN_POISON_MEMORY_REGION(p, bytes);
    HOOK(memory_gone, p, bytes);
    allocations.erase(p);
    memory_used -= bytes;
}

/* ---- shared memory -------------------------------------------------------------------------------------------------------
   A part of the device's range. A variable is placed when a launch first reaches its declaration, at a distance after the
   previous one; all of them are filled with 0xFF again before each block. */

static struct { char *at; size_t bytes; const char *name; } shared_variables[64];
static int shared_count;
static size_t shared_used, shared_static;

static size_t shared_limit(void)
{
    return set.device == 86 || set.device == 89 ? 99 << 10 : set.device >= 90 ? 227 << 10 : set.device >= 80 ? 163 << 10 : 96 << 10;
}

static void *shared_new(size_t bytes, size_t alignment, const char *name)
{
    size_t at = shared_used + 128 + alignment % 128;              /* aligned exactly as requested */
    if (alignment > 128) at = (at + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
    char *p = tnch_arena + at;
    shared_used = (size_t)(p - tnch_arena + (ptrdiff_t)bytes + 127) / 128 * 128;
    if (shared_used + 128 > TNCH_SHARED_WINDOW || shared_count == 64)
        fault(cudaErrorLaunchFailure, "shared memory: %zu bytes in %d variables, more than the engine has", shared_used, shared_count);
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
    HOOK(memory_new, p, bytes);
    memset(p, 0xFF, bytes);
    shared_variables[shared_count].at = p;
    shared_variables[shared_count].bytes = bytes;
    shared_variables[shared_count++].name = name;
    return p;
}

void *tnch_shared(tnch_slot *slot, size_t bytes, size_t alignment, const char *name)
{
    shared_static += bytes;
    if (shared_static > STATIC_SHARED_LIMIT)
        fault(cudaErrorLaunchFailure, "static shared memory of %zu bytes, up to %s: the limit is %d", shared_static, name,
              STATIC_SHARED_LIMIT);
    slot->at = shared_new(bytes, alignment, name);
    slot->launch = tnch_launch_number;
    return slot->at;
}

static void shared_begin(size_t dynamic_bytes)
{
    ASAN_POISON_MEMORY_REGION(tnch_arena, TNCH_SHARED_WINDOW);
    for (int i = 0; i < shared_count; i++) HOOK(memory_gone, shared_variables[i].at, shared_variables[i].bytes);
    shared_count = 0;
    shared_used = shared_static = 0;
    tnch_dynamic_shared = dynamic_bytes ? shared_new(dynamic_bytes, 16, "dynamic shared memory") : NULL;
}

static void shared_refill(void)
{
    for (int i = 0; i < shared_count; i++) {
        memset(shared_variables[i].at, 0xFF, shared_variables[i].bytes);
        HOOK(memory_new, shared_variables[i].at, shared_variables[i].bytes);
    }
}

bool tnch_is_memory(const void *p, size_t bytes)
{
    if (inside(allocations, p, bytes)) return true;
    for (int i = 0; i < shared_count; i++) {
        size_t from = (size_t)((const char *)p - shared_variables[i].at);
        if (from < shared_variables[i].bytes && bytes <= shared_variables[i].bytes - from) return true;
    }
    return false;
}

void tnch_place(const void *p, char *text, size_t space)
{
    const char *at = (const char *)p;
    snprintf(text, space, "%p", p);
    for (int i = 0; i < shared_count; i++)
        if (at >= shared_variables[i].at - 64 && at < shared_variables[i].at + shared_variables[i].bytes + 64)
            snprintf(text, space, "byte %ld of %s, which has %zu", (long)(at - shared_variables[i].at),
                     shared_variables[i].name, shared_variables[i].bytes);
    auto it = allocations.upper_bound(const_cast<char *>(at));
    if (it == allocations.begin() || at < tnch_arena + TNCH_SHARED_WINDOW) return;
    --it;
    snprintf(text, space, "byte %zu of an allocation of %zu", (size_t)(at - it->first), it->second);
}

/* ---- a block -------------------------------------------------------------------------------------------------------------
   A thread runs until it waits or ends; then the next one that can run is chosen. Forward: the lowest lane first, and a warp
   as long as one of its lanes can run. Reversed: the highest first. Random: any. */

static tnch_thread threads[MAX_THREADS];
static int thread_count, live, at_barrier;
static unsigned ready[MAX_WARPS], waiting[MAX_WARPS], ready_warps;
static int running_warp;
static bool abandoned;
static const void *kernel;
static tnch_entry kernel_entry;
static char parameters[TNCH_PARAMETERS] __attribute__((aligned(64)));

static inline void make_ready(tnch_thread *t)
{
    t->state = tnch_thread::READY;
    ready[t->warp] |= 1u << t->lane;
    ready_warps |= 1u << t->warp;
}

static inline void not_ready(tnch_thread *t)
{
    ready[t->warp] &= ~(1u << t->lane);
    if (!ready[t->warp]) ready_warps &= ~(1u << t->warp);
}

/* The lowest bit of mask at or above `from`, else the lowest of all */
static inline int bit_from(unsigned mask, unsigned from)
{
    unsigned above = mask & (0xFFFFFFFFu << from);
    return __builtin_ctz(above ? above : mask);
}

/* The next thread to run, or NULL if none can */
static inline tnch_thread *pick(void)
{
    if (!ready_warps) return NULL;
    int lane;
    if (set.order == TNCH_FORWARD) {
        running_warp = bit_from(ready_warps, (unsigned)running_warp);
        lane = __builtin_ctz(ready[running_warp]);
    } else if (set.order == TNCH_REVERSED) {
        unsigned below = ready_warps & (0xFFFFFFFFu >> (31 - running_warp));
        running_warp = 31 - __builtin_clz(below ? below : ready_warps);
        lane = 31 - __builtin_clz(ready[running_warp]);
    } else {
        uint32_t r = random_bits();
        running_warp = bit_from(ready_warps, r & 31);
        lane = bit_from(ready[running_warp], r >> 5 & 31);
    }
    tnch_thread *t = &threads[running_warp * 32 + lane];
    not_ready(t);
    return t;
}

/* The running thread waits, or yields to others. */
static void let_others_run(void)
{
    tnch_fiber *self = tnch_now->fiber;
    tnch_thread *next = pick();
    tnch_now = next;
    if (next && !next->fiber) next->fiber = fiber_take();
    tnch_fiber *to = next ? next->fiber : &host_fiber;
    if (to != self) fiber_switch(self, to);
}

static void barrier_complete(void);
static void wgmma_begin_block(void);
static void wgmma_thread_done(const tnch_thread *t);
static void mbarriers_begin_block(void);
static void mbarriers_end_block(void);
static void tell_mbarrier(const tnch_thread *t, char *text, size_t space);

static void thread_done(tnch_thread *t)
{
    wgmma_thread_done(t);
    if (t->copy_count)
        fault(cudaErrorLaunchFailure, "the thread ends with %d asynchronous copies that were never waited for", t->copy_count);
    t->state = tnch_thread::DONE;
    t->fiber = NULL;
    live--;
    if (!live) mbarriers_end_block();
    if (live && at_barrier == live) barrier_complete();
}

static void fiber_run(void)
{
    for (;;) {
        tnch_fiber *self = tnch_now->fiber;
        kernel_entry(kernel, parameters);
        thread_done(tnch_now);
        tnch_thread *next = pick();
        tnch_now = next;
        if (next && !next->fiber) { next->fiber = self; continue; }
        fiber_give(self);
        fiber_switch(self, next ? next->fiber : &host_fiber);   /* a thread that takes this fiber from the pool continues here */
    }
}

static void abandon_block(void)
{
    tnch_fiber *self = tnch_now->fiber;
    tnch_now = NULL;
    abandoned = true;
    fiber_switch(self, &host_fiber);
    abort();                                                    /* its stack is prepared again */
}

/* No thread can run, but not all have ended. */
static void report_deadlock(void)
{
    std::string who;
    for (int i = 0; i < thread_count && who.size() < 400; i++) {
        tnch_thread *t = &threads[i];
        bool told = i > 0 && t[-1].state == t->state && t[-1].line == t->line && (t[-1].warp == t->warp || t->state > tnch_thread::AT_COLLECTIVE);
        if (!told && t->state > tnch_thread::AT_COLLECTIVE && t->state < tnch_thread::DONE) {
            char text[256];
            tell_mbarrier(t, text, sizeof text);
            who += text;
        }
        if (t->state != tnch_thread::AT_COLLECTIVE || told) continue;
        unsigned gone = 0;
        for (int l = 0; l < 32; l++) gone |= (unsigned)(threads[t->warp * 32 + l].state == tnch_thread::DONE) << l;
        char text[160];
        snprintf(text, sizeof text,
                 "; thread %d waits in line %d for lanes %08x, of which %08x wait there and %08x have ended", i, t->line, t->mask,
                 waiting[t->warp] & t->mask, gone & t->mask);
        who += text;
    }
    int line = 0;
    for (int i = 0; i < thread_count && !line; i++) if (threads[i].state == tnch_thread::AT_BARRIER) line = threads[i].line;
    fault(cudaErrorLaunchFailure,
          "deadlock in kernel %s, block (%u,%u,%u): %d of %d threads wait at the barrier in line %d%s", kernel_name.c_str(),
          tnch_block.x, tnch_block.y, tnch_block.z, at_barrier, live, line, who.c_str());
}

static void run_block(void)
{
    live = thread_count;
    at_barrier = 0;
    running_warp = set.order == TNCH_REVERSED ? MAX_WARPS - 1 : 0;
    ready_warps = 0;
    for (int w = 0; w * 32 < thread_count; w++) {
        int lanes = std::min(32, thread_count - w * 32);
        ready[w] = 0xFFFFFFFFu >> (32 - lanes);
        waiting[w] = 0;
        ready_warps |= 1u << w;
    }
    wgmma_begin_block();
    mbarriers_begin_block();
    HOOK(block);
    tnch_thread *first = pick();
    if (!first->fiber) first->fiber = fiber_take();
    tnch_now = first;
    fiber_switch(&host_fiber, first->fiber);
    if (live && !abandoned) report_deadlock();
    if (!live) return;
    for (int i = 0; i < thread_count; i++) {                     /* what the fault left behind */
        tnch_thread *t = &threads[i];
        t->copy_count = 0;
        if (!t->fiber) continue;
        fiber_prepare(t->fiber);
        fiber_give(t->fiber);
        t->fiber = NULL;
    }
}

bool tnch_is_local(const void *p)
{
    const char *c = (const char *)p;
    if (c >= parameters && c < parameters + sizeof parameters) return true;
    return tnch_now && c >= tnch_now->fiber->stack && c < tnch_now->fiber->stack + STACK_BYTES;
}

/* A fiber is never interrupted, so every operation is atomic. In a random order others may run before it. */
static void maybe_others_first(void)
{
    if (set.order == TNCH_RANDOM && random_bits() % 8 == 0) { make_ready(tnch_now); let_others_run(); }
}

/* ---- collectives ------------------------------------------------------------------------------------------------------ */

struct ballot { int vote, kind, result; };

/* If all live threads are here: serves them, and lets all continue. */
static void barrier_complete(void)
{
    const tnch_thread *first = NULL;
    int votes = 0;
    for (int i = 0; i < thread_count; i++) {
        const tnch_thread *t = &threads[i];
        if (t->state != tnch_thread::AT_BARRIER) continue;
        if (!first) first = t;
        if (t->line != first->line)
            fault(cudaErrorLaunchFailure,
                  "divergent barrier: thread %d waits at the one in line %d, thread %d at the one in line %d", first->linear,
                  first->line, t->linear, t->line);
        votes += ((const ballot *)t->argument)->vote != 0;
    }
    int present = at_barrier;
    at_barrier = 0;
    for (int i = 0; i < thread_count; i++) {
        tnch_thread *t = &threads[i];
        if (t->state != tnch_thread::AT_BARRIER) continue;
        ballot *b = (ballot *)t->argument;
        b->result = b->kind == TNCH_AND ? votes == present : b->kind == TNCH_OR ? votes > 0 : votes;
        make_ready(t);
    }
    HOOK(barrier);
}

/* In a forward run the last one to arrive continues at once; else the order decides. */
static void wait_or_go_on(tnch_thread *t)
{
    if (t->state == tnch_thread::READY && set.order == TNCH_FORWARD) not_ready(t);
    else let_others_run();
}

int tnch_barrier(int vote, int kind, int line)
{
    tnch_thread *t = tnch_now;
    ballot b = {vote, kind, 0};
    t->argument = &b;
    t->line = line;
    t->state = tnch_thread::AT_BARRIER;
    if (++at_barrier == live) barrier_complete();
    wait_or_go_on(t);
    return b.result;
}

static void warp_complete(int warp, unsigned mask)
{
    tnch_thread *lanes = &threads[warp * 32];
    const tnch_thread *first = &lanes[__builtin_ctz(mask)];
    void *arguments[32] = {NULL};
    for (unsigned m = mask; m; m &= m - 1) {
        tnch_thread *t = &lanes[__builtin_ctz(m)];
        if (t->line != first->line || t->operation != first->operation || t->mask != mask)
            fault(cudaErrorLaunchFailure,
                  "divergent warp: lane %d waits in line %d for lanes %08x, lane %d in line %d for lanes %08x", first->lane,
                  first->line, first->mask, t->lane, t->line, t->mask);
        arguments[t->lane] = t->argument;
        make_ready(t);
    }
    waiting[warp] &= ~mask;
    if (!first->operation) { if (mask == 0xFFFFFFFFu) HOOK(warp_barrier, warp); return; }
    first->operation(arguments, mask);
}

void tnch_warp(unsigned mask, tnch_collective operation, void *argument, int line)
{
    tnch_thread *t = tnch_now;
    if (!(mask >> t->lane & 1))
        fault(cudaErrorLaunchFailure, "lane %d calls the collective in line %d for lanes %08x", t->lane, line, mask);
    t->argument = argument;
    t->operation = operation;
    t->mask = mask;
    t->line = line;
    t->state = tnch_thread::AT_COLLECTIVE;
    waiting[t->warp] |= 1u << t->lane;
    if ((waiting[t->warp] & mask) == mask) warp_complete(t->warp, mask);
    wait_or_go_on(t);
}

void __syncwarp(unsigned mask, int line) { tnch_warp(mask, NULL, NULL, line); }

#define FOR_LANES(lane, mask) for (unsigned m_ = (mask), lane; m_ && (lane = (unsigned)__builtin_ctz(m_), true); m_ &= m_ - 1)

struct reduction { unsigned value, result; int kind; };

static void do_ballot(void **arguments, unsigned mask)
{
    unsigned votes = 0;
    FOR_LANES(lane, mask) votes |= ((reduction *)arguments[lane])->value << lane;
    FOR_LANES(lane, mask) ((reduction *)arguments[lane])->result = votes;
}

unsigned tnch_ballot(unsigned mask, bool vote, int line)
{
    reduction r = {vote, 0, 0};
    tnch_warp(mask, do_ballot, &r, line);
    return r.result;
}

static void do_reduce(void **arguments, unsigned mask)
{
    const reduction *first = (const reduction *)arguments[__builtin_ctz(mask)];
    unsigned x = first->value;
    FOR_LANES(lane, mask & (mask - 1)) {
        unsigned v = ((const reduction *)arguments[lane])->value;
        switch (first->kind) {
        case TNCH_ADD:     x += v; break;
        case TNCH_MIN:     x = std::min(x, v); break;
        case TNCH_MAX:     x = std::max(x, v); break;
        case TNCH_BIT_AND: x &= v; break;
        case TNCH_BIT_OR:  x |= v; break;
        default:           x ^= v; break;
        }
    }
    FOR_LANES(lane, mask) ((reduction *)arguments[lane])->result = x;
}

unsigned tnch_reduce(unsigned mask, unsigned value, int kind, int line)
{
    reduction r = {value, 0, kind};
    tnch_warp(mask, do_reduce, &r, line);
    return r.result;
}

struct shuffle { uint64_t value, result; int lane, width, kind; };

/* The lane from which a lane takes its value: its own if the source is outside of its segment of `width` lanes. */
static int shuffle_source(const shuffle *s, int lane)
{
    int first = lane & ~(s->width - 1), end = first + s->width;
    int source = s->kind == TNCH_INDEXED ? first + (s->lane & (s->width - 1)) : s->kind == TNCH_UP ? lane - s->lane
               : s->kind == TNCH_DOWN ? lane + s->lane : lane ^ s->lane;
    if (s->kind == TNCH_XOR) return source < end ? source : lane;
    return source >= first && source < end ? source : lane;
}

static void do_shuffle(void **arguments, unsigned mask)
{
    FOR_LANES(lane, mask) {
        shuffle *s = (shuffle *)arguments[lane];
        int source = shuffle_source(s, (int)lane);
        if (!(mask >> source & 1))
            fault(cudaErrorLaunchFailure, "shuffle: lane %u reads lane %d, which does not take part (lanes %08x)", lane, source, mask);
        s->result = ((const shuffle *)arguments[source])->value;
    }
}

uint64_t tnch_shuffle(unsigned mask, uint64_t bits, int lane, int width, int kind, int line)
{
    shuffle s = {bits, 0, lane, width, kind};
    if (width < 1 || width > 32 || (width & (width - 1)))
        fault(cudaErrorLaunchFailure, "shuffle in line %d: a width of %d", line, width);
    tnch_warp(mask, do_shuffle, &s, line);
    return s.result;
}

/* ---- asynchronous copies and tensor cores ----------------------------------------------------------------------------- */

static void need_shared(const char *what, const void *p)
{
    if ((size_t)((const char *)p - tnch_arena) >= TNCH_SHARED_WINDOW)
        fault(cudaErrorIllegalAddress, "%s: %p is not in shared memory", what, p);
}

void tnch_misaligned(const void *p, size_t alignment)
{
    fault(cudaErrorMisalignedAddress, "access of %zu bytes or more at %p: not a multiple of %zu", alignment, p, alignment);
}

void tnc_cp_async16(void *shared, const void *global)
{
    tnch_thread *t = tnch_now;
    if (((uintptr_t)shared | (uintptr_t)global) & 15)
        fault(cudaErrorMisalignedAddress, "asynchronous copy of 16 bytes from %p to %p: not a multiple of 16", global, shared);
    need_shared("asynchronous copy", shared);
    if (t->copy_count == t->copy_space) {
        t->copy_space = t->copy_space ? 2 * t->copy_space : 16;
        t->copies = (tnch_copy *)realloc((void *)t->copies, (size_t)t->copy_space * sizeof *t->copies);
        if (!t->copies) abort();
    }
    if (tnch_hook.access) tnch_hook.access(global, 16, false, __builtin_return_address(0));
    HOOK(copy_begins, shared, 16, __builtin_return_address(0));
    t->copies[t->copy_count++] = tnch_copy{shared, *(const uint4 *)global, t->groups};
}

void tnc_cp_async_commit(void) { tnch_now->groups++; }

/* Waits for all committed groups except the last `pending`. */
void tnch_cp_async_wait(unsigned pending)
{
    tnch_thread *t = tnch_now;
    int done = 0;
    while (done < t->copy_count && t->copies[done].group + pending < t->groups) {
        HOOK(copy_ends, t->copies[done].shared, 16, __builtin_return_address(0));
        *(uint4 *)t->copies[done].shared = t->copies[done].value;
        done++;
    }
    if (!done) return;
    t->copy_count -= done;
    memmove((void *)t->copies, (void *)(t->copies + done), (size_t)t->copy_count * sizeof *t->copies);
}

void tnch_row_address(const void *shared)
{
    if ((uintptr_t)shared & 15) fault(cudaErrorMisalignedAddress, "ldmatrix: the row at %p is not aligned to 16 bytes", shared);
    need_shared("ldmatrix", shared);
}

struct matrix_load { unsigned *r; const uint4 *row; bool transposed; };

/* Lanes 8i to 8i+7 pass the rows of the i-th 8x8 matrix. Lane l receives, in its i-th register, elements 2(l%4) and 2(l%4)+1
   of row l/4 of the i-th matrix; transposed, of column l/4. The lower half comes first. */
static void do_ldmatrix(void **arguments, unsigned)
{
    for (int i = 0; i < 4; i++) {
        uint16_t m[8][8];
        for (int row = 0; row < 8; row++) memcpy(m[row], ((const matrix_load *)arguments[8 * i + row])->row, sizeof m[row]);
        for (int lane = 0; lane < 32; lane++) {
            const matrix_load *a = (const matrix_load *)arguments[lane];
            int g = lane / 4, e = lane % 4 * 2;
            a->r[i] = a->transposed ? m[e][g] | (unsigned)m[e + 1][g] << 16 : m[g][e] | (unsigned)m[g][e + 1] << 16;
        }
    }
}

void tnch_ldmatrix(unsigned r[4], const uint4 *row, bool transposed, int line)
{
    matrix_load a = {r, row, transposed};
    tnch_warp(0xFFFFFFFFu, do_ldmatrix, &a, line);
}

struct matrix_product { float *d; const unsigned *a, *b; };

static float low_half(unsigned pair) { return __uint_as_float(pair << 16); }
static float high_half(unsigned pair) { return __uint_as_float(pair & 0xFFFF0000u); }

/* mma.m16n8k16, A by rows, B by columns. With g = lane/4 and e = 2 (lane%4) a lane holds the pairs
     a[0] A[g][e..]   a[1] A[g+8][e..]   a[2] A[g][e+8..]   a[3] A[g+8][e+8..]
     b[0] B[e..][g]   b[1] B[e+8..][g]   d[0..1] D[g][e..]  d[2..3] D[g+8][e..]
   Products of BF16 are exact in F32, and are added in the order of k. The hardware's order and its rounding are its own. */
static void do_mma(void **arguments, unsigned)
{
    typedef float row8 __attribute__((vector_size(32)));
    float a[16][16];
    row8 b[16], d[16];
    for (int lane = 0; lane < 32; lane++) {
        const matrix_product *p = (const matrix_product *)arguments[lane];
        int g = lane / 4, e = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            a[g + i % 2 * 8][e + i / 2 * 8] = low_half(p->a[i]);
            a[g + i % 2 * 8][e + i / 2 * 8 + 1] = high_half(p->a[i]);
            d[g + i / 2 * 8][e + i % 2] = p->d[i];
        }
        for (int i = 0; i < 2; i++) {
            b[e + 8 * i][g] = low_half(p->b[i]);
            b[e + 8 * i + 1][g] = high_half(p->b[i]);
        }
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++) d[row] += a[row][k] * b[k];
    for (int lane = 0; lane < 32; lane++) {
        const matrix_product *p = (const matrix_product *)arguments[lane];
        int g = lane / 4, e = lane % 4 * 2;
        for (int i = 0; i < 4; i++) p->d[i] = d[g + i / 2 * 8][e + i % 2];
    }
}

void tnch_mma(float d[4], const unsigned a[4], const unsigned b[2], int line)
{
    matrix_product p = {d, a, b};
    tnch_warp(0xFFFFFFFFu, do_mma, &p, line);
}

/* ---- wgmma ---------------------------------------------------------------------------------------------------------------
   A warp has a queue of products that were issued and not yet waited for. A thread has a list of the register arrays that are
   ready for products, or in use by them, with their true contents. */

struct registers { unsigned *at; size_t words; bool fenced; int uses; std::vector<unsigned> value; };
struct issued { tnch_wgmma product; unsigned group; registers *d[32], *a[32]; size_t a_first[32]; };
struct call { tnch_wgmma product; int line; };

static std::vector<std::unique_ptr<registers>> thread_registers[MAX_THREADS];
static std::deque<issued> warp_products[MAX_WARPS];
static unsigned warp_groups[MAX_WARPS];
static size_t warp_calls[MAX_WARPS];
static std::vector<call> group_calls[MAX_WARPS / 4];          /* of the warp that is ahead; the others must follow */
static bool wgmma_used;
static unsigned warps_ended;                                  /* or at least one of their threads */

static void wgmma_begin_block(void)
{
    warps_ended = 0;
    if (!wgmma_used) return;
    wgmma_used = false;
    for (auto &list : thread_registers) list.clear();
    for (int w = 0; w < MAX_WARPS; w++) { warp_products[w].clear(); warp_groups[w] = 0; warp_calls[w] = 0; }
    for (auto &list : group_calls) list.clear();
}

static void wgmma_thread_done(const tnch_thread *t)
{
    warps_ended |= 1u << t->warp;
    if (!wgmma_used) return;
    if (!warp_products[t->warp].empty())
        fault(cudaErrorLaunchFailure, "the thread ends with %zu products of wgmma that were never waited for", warp_products[t->warp].size());
    if (warp_calls[t->warp] != group_calls[t->warp / 4].size())
        fault(cudaErrorLaunchFailure, "wgmma: warp %d ends after %zu products, another of its warpgroup issued %zu", t->warp,
              warp_calls[t->warp], group_calls[t->warp / 4].size());
}

unsigned tnc_shared_address(const void *shared)
{
    need_shared("address in shared memory", shared);
    return (unsigned)((const char *)shared - tnch_arena);
}

void tnc_fence_async(void)
{
    if (set.device < 90) fault(cudaErrorLaunchFailure, "fence.proxy.async needs a device of capability 9.0");
    HOOK(async_fence);
}

/* The array of the thread that contains these words, or NULL */
static registers *registers_of(int thread, const void *p, size_t bytes)
{
    for (auto &r : thread_registers[thread]) {
        size_t from = (size_t)((const char *)p - (const char *)r->at);
        if (from < 4 * r->words && bytes <= 4 * r->words - from) return r.get();
    }
    return NULL;
}

void tnch_wgmma_operand(void *words, size_t bytes)
{
    std::vector<std::unique_ptr<registers>> &list = thread_registers[tnch_now->linear];
    unsigned *at = (unsigned *)words;
    for (size_t i = list.size(); i-- > 0;) {
        registers *r = list[i].get();
        if (at >= r->at + r->words || at + bytes / 4 <= r->at) continue;
        if (r->uses) fault(cudaErrorLaunchFailure, "wgmma: registers are accessed while a product that uses them is not waited for");
        list.erase(list.begin() + (ptrdiff_t)i);
    }
    wgmma_used = true;
    list.push_back(std::make_unique<registers>(registers{at, bytes / 4, false, 0, std::vector<unsigned>(at, at + bytes / 4)}));
}

static void do_fence(void **, unsigned) {}
static void do_commit(void **, unsigned) { warp_groups[tnch_now->warp]++; }

void tnc_wgmma_fence(int line)
{
    tnch_warp(0xFFFFFFFFu, do_fence, NULL, line);
    for (auto &r : thread_registers[tnch_now->linear]) r->fenced = true;
}

void tnc_wgmma_commit(int line) { tnch_warp(0xFFFFFFFFu, do_commit, NULL, line); }

/* A matrix in shared memory, as its descriptor and the instruction say. Rows are the 64 of A, or the n columns of B. */
struct smem_matrix { uint64_t desc; bool mn_major; };

static uint32_t desc_bytes(uint64_t desc, int bit) { return (uint32_t)(desc >> bit & 0x3FFF) << 4; }

/* The 16 bytes that hold elements (row, k) to (row, k + 7), or if rows are contiguous (row, k) to (row + 7, k). The layouts are
   those of the section "Shared Memory Matrix Layout" of the PTX manual. A pattern of swizzling repeats every 8 lines of 128 bytes
   (64: of 4, and so on): bits 4 to 6 of the address are xored with bits 7 to 9. */
static char *matrix_piece(const smem_matrix &m, uint32_t row, uint32_t k)
{
    static const uint32_t pieces_of[4] = {1, 8, 4, 2};        /* no swizzling, 128 bytes, 64, 32 */
    const uint32_t pieces = pieces_of[m.desc >> 62], leading = desc_bytes(m.desc, 16), stride = desc_bytes(m.desc, 32);
    uint32_t at = desc_bytes(m.desc, 0);
    if (pieces == 1 && m.mn_major) at += row / 8 * stride + k % 8 * 16 + k / 8 * leading;
    else if (pieces == 1) at += row % 8 * 16 + row / 8 * stride + k / 8 * leading;
    else if (m.mn_major) at += row % (8 * pieces) * 2 + row / (8 * pieces) * leading + k % 8 * pieces * 16 + k / 8 * stride;
    else at += row % 8 * pieces * 16 + row / 8 * stride + k * 2;
    return tnch_arena + (at ^ (at >> 3 & (pieces - 1) << 4));
}

size_t tnch_wgmma_address(uint64_t desc, int mn_major, int row, int k)
{
    const int within = mn_major ? row % 8 : k % 8;
    const char *piece = matrix_piece(smem_matrix{desc, mn_major != 0}, (uint32_t)(mn_major ? row - within : row),
                                     (uint32_t)(mn_major ? k : k - within));
    return (size_t)(piece - tnch_arena) + 2 * (size_t)within;
}

/* Calls f(piece, row, k) for each piece of rows [first, first + rows). */
template <class F> static void each_piece(const smem_matrix &m, int first, int rows, F f)
{
    for (int i = 0; i < rows; i += m.mn_major ? 8 : 1)
        for (int k = 0; k < 16; k += m.mn_major ? 1 : 8) f(matrix_piece(m, (uint32_t)(first + i), (uint32_t)k), i, k);
}

static void check_descriptor(const char *name, uint64_t desc)
{
    if (desc & 0x3FF1C000C000C000ull || (desc >> 49 & 7))
        fault(cudaErrorLaunchFailure, "wgmma: the descriptor %016llx of %s has reserved bits or a base offset", (unsigned long long)desc, name);
}

static void report_pieces(const tnch_wgmma &p, int warp, bool ends)
{
    auto each = [&](char *piece, int, int) {
        if (!ends && !tnch_is_memory(piece, 16))
            fault(cudaErrorIllegalAddress, "wgmma reads out of bounds: shared address %#lx", (unsigned long)(piece - tnch_arena));
        HOOK(async_read, piece, 16, warp, ends, p.site);
    };
    if (!p.a) each_piece(smem_matrix{p.desc_a, p.trans_a != 0}, warp % 4 * 16, 16, each);
    each_piece(smem_matrix{p.desc_b, p.trans_b != 0}, 0, p.n, each);
}

/* The registers become NaN until the wait. */
static registers *use_registers(int thread, const void *p, size_t bytes, const char *name)
{
    registers *r = registers_of(thread, p, bytes);
    if (!r || !r->fenced) fault(cudaErrorLaunchFailure, "wgmma: no wgmma.fence after the last access of %s", name);
    if (r->uses++ == 0) {
        if (memcmp(r->at, r->value.data(), 4 * r->words))
            fault(cudaErrorLaunchFailure, "wgmma: no wgmma.fence after %s was written", name);
        std::fill(r->at, r->at + r->words, (unsigned)TNCH_WGMMA_NAN);
    }
    return r;
}

static bool same_call(const tnch_wgmma &x, const tnch_wgmma &y)
{
    return !x.a == !y.a && x.desc_a == y.desc_a && x.desc_b == y.desc_b && x.n == y.n && x.scale_d == y.scale_d
        && x.scale_a == y.scale_a && x.scale_b == y.scale_b && x.trans_a == y.trans_a && x.trans_b == y.trans_b;
}

static void do_issue(void **arguments, unsigned)
{
    const call *c = (const call *)arguments[0];
    const int warp = tnch_now->warp;
    std::vector<call> &calls = group_calls[warp / 4];
    for (int lane = 1; lane < 32; lane++)
        if (!same_call(c->product, ((const call *)arguments[lane])->product))
            fault(cudaErrorLaunchFailure, "wgmma in line %d: lanes 0 and %d pass different descriptors", c->line, lane);
    if (thread_count < warp / 4 * 128 + 128) fault(cudaErrorLaunchFailure, "wgmma: warp %d is not in a warpgroup of four warps", warp);
    if (warp_calls[warp] == calls.size() && (warps_ended >> (warp / 4 * 4) & 15))
        fault(cudaErrorLaunchFailure, "wgmma: warp %d issues a product in line %d, another of its warpgroup has ended", warp, c->line);
    if (warp_calls[warp] == calls.size()) calls.push_back(*c);
    else if (calls[warp_calls[warp]].line != c->line || !same_call(calls[warp_calls[warp]].product, c->product))
        fault(cudaErrorLaunchFailure, "wgmma: warp %d issues a product in line %d, another of its warpgroup another one in line %d", warp,
              c->line, calls[warp_calls[warp]].line);
    warp_calls[warp]++;
    if (!c->product.a) check_descriptor("a", c->product.desc_a);
    check_descriptor("b", c->product.desc_b);
    issued o = {c->product, warp_groups[warp], {}, {}, {}};
    for (int lane = 0; lane < 32; lane++) {
        const tnch_wgmma &p = ((const call *)arguments[lane])->product;
        o.d[lane] = use_registers(warp * 32 + lane, p.d, (size_t)p.n * 2, "d");
        if (!p.a) continue;
        o.a[lane] = use_registers(warp * 32 + lane, p.a, 16, "a");
        o.a_first[lane] = (size_t)((const unsigned *)p.a - o.a[lane]->at);
    }
    report_pieces(c->product, warp, false);
    warp_products[warp].push_back(o);
}

void tnch_wgmma_product(tnch_wgmma product, int line)
{
    call c = {product, line};
    if (set.device != 90) fault(cudaErrorLaunchFailure, "wgmma needs a device of capability 9.0");
    c.product.site = __builtin_return_address(0);
    tnch_warp(0xFFFFFFFFu, do_issue, &c, line);
}

static void load_matrix(const smem_matrix &m, int first, int rows, float (*x)[16])
{
    each_piece(m, first, rows, [&](const char *piece, int row, int k) {
        const uint16_t *v = (const uint16_t *)piece;
        for (int e = 0; e < 8; e++) x[m.mn_major ? row + e : row][m.mn_major ? k : k + e] = tnch_bf16_value(v[e]);
    });
}

/* The layout of d and of a in registers is that of mma.m16n8k16 in each warp. */
static void compute(const issued &o, int warp)
{
    const tnch_wgmma &p = o.product;
    static float a[16][16], b[256][16];
    float columns[16][256];
    if (p.a)
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++) {
                const unsigned pair = o.a[lane]->value[o.a_first[lane] + (size_t)i];
                a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8] = low_half(pair);
                a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8 + 1] = high_half(pair);
            }
    else load_matrix(smem_matrix{p.desc_a, p.trans_a != 0}, warp % 4 * 16, 16, a);
    load_matrix(smem_matrix{p.desc_b, p.trans_b != 0}, 0, p.n, b);
    for (int k = 0; k < 16; k++)
        for (int c = 0; c < p.n; c++) columns[k][c] = (float)p.scale_b * b[c][k];
    for (int row = 0; row < 16; row++) {
        float sum[256];
        for (int c = 0; c < p.n; c++) {
            const unsigned bits = o.d[row % 8 * 4 + c % 8 / 2]->value[(size_t)(c / 8 * 4 + row / 8 * 2 + c % 2)];
            sum[c] = p.scale_d ? __uint_as_float(bits) : 0;
        }
        for (int k = 0; k < 16; k++)
            for (int c = 0; c < p.n; c++) sum[c] += (float)p.scale_a * a[row][k] * columns[k][c];
        for (int c = 0; c < p.n; c++)
            o.d[row % 8 * 4 + c % 8 / 2]->value[(size_t)(c / 8 * 4 + row / 8 * 2 + c % 2)] = __float_as_uint(sum[c]);
    }
}

/* The last product that uses them is waited for: the true contents. */
static void release_registers(int thread, registers *r)
{
    if (--r->uses) return;
    for (size_t i = 0; i < r->words; i++)
        if (r->at[i] != (unsigned)TNCH_WGMMA_NAN)
            fault(cudaErrorLaunchFailure, "wgmma: registers were written while a product that uses them was not waited for");
    std::copy(r->value.begin(), r->value.end(), r->at);
    std::vector<std::unique_ptr<registers>> &list = thread_registers[thread];
    list.erase(std::find_if(list.begin(), list.end(), [&](const std::unique_ptr<registers> &x) { return x.get() == r; }));
}

static void do_wgmma_wait(void **arguments, unsigned)
{
    const int warp = tnch_now->warp;
    std::deque<issued> &queue = warp_products[warp];
    if (queue.empty()) return;
    while (!queue.empty() && queue.front().group + *(const unsigned *)arguments[0] < warp_groups[warp]) {
        const issued &o = queue.front();
        compute(o, warp);
        report_pieces(o.product, warp, true);
        for (int lane = 0; lane < 32; lane++) {
            release_registers(warp * 32 + lane, o.d[lane]);
            if (o.product.a) release_registers(warp * 32 + lane, o.a[lane]);
        }
        queue.pop_front();
    }
    HOOK(async_done, warp);
}

void tnch_wgmma_wait(unsigned pending, int line) { tnch_warp(0xFFFFFFFFu, do_wgmma_wait, &pending, line); }

/* ---- mbarriers -----------------------------------------------------------------------------------------------------------
   What an mbarrier counts is kept here; its eight bytes in shared memory hold a mark, so that memory that was never initialised, or
   was overwritten, is noticed. A phase that lacks nothing but copies that have been issued ends when a thread waits for it. */

struct bulk { char *to; CUtensorMap map; int at[5]; size_t bytes; };
struct mbarrier {
    char *at;
    int count, pending;                       /* arrivals of a phase, and those that are still missing */
    size_t expected, issued;                  /* bytes of its copies, as announced and as issued       */
    unsigned phase;
    int maker;                                /* the thread that initialised it, */
    bool fenced;                              /* and whether it has executed a fence since */
    std::vector<bulk> copies;
    std::vector<tnch_thread *> waiting;
};
struct waiting_for { int barrier, parity; };

static std::vector<mbarrier> mbarriers;       /* of the block */

static const char *where(const void *p)
{
    static char text[128];
    tnch_place(p, text, sizeof text);
    return text;
}

static const uint64_t MBARRIER_MARK = 0x6D62617272696572ull;

static int registers_of_warp[MAX_WARPS], register_calls[MAX_WARPS], registers_of_block;
static struct { int count, votes, line, result; } warpgroups[MAX_WARPS / 4];

static void mbarriers_begin_block(void)
{
    mbarriers.clear();
    memset(register_calls, 0, sizeof register_calls);
    memset(warpgroups, 0, sizeof warpgroups);
    const int each = std::min(65536 / thread_count / 8 * 8, 255);          /* at most; a kernel may have fewer */
    registers_of_block = thread_count * each;
    for (int w = 0; w < MAX_WARPS; w++) registers_of_warp[w] = w * 32 < thread_count ? each : 0;
}

static void mbarriers_end_block(void)
{
    for (const mbarrier &b : mbarriers)
        if (!b.copies.empty())
            fault(cudaErrorLaunchFailure, "the block ends with %zu bulk copies that were never waited for, of the mbarrier at %s",
                  b.copies.size(), where(b.at));
    for (int w = 0; w * 32 < thread_count; w++)
        if (register_calls[w] != register_calls[w / 4 * 4])
            fault(cudaErrorLaunchFailure, "setmaxnreg: warp %d has executed %d of them, warp %d of the same warpgroup %d", w, register_calls[w],
                  w / 4 * 4, register_calls[w / 4 * 4]);
}

static void check_mbarrier(const tnc_barrier *x, const char *what)
{
    if (set.device < 90) fault(cudaErrorLaunchFailure, "mbarriers with parity need a device of capability 9.0");
    need_shared("mbarrier", x);
    if ((uintptr_t)x % 8) fault(cudaErrorMisalignedAddress, "%s: the mbarrier at %s is not aligned to 8 bytes", what, where(x));
}

static int mbarrier_of(const tnc_barrier *x, const char *what, const void *site)
{
    check_mbarrier(x, what);
    for (size_t i = 0; i < mbarriers.size(); i++) {
        if (mbarriers[i].at != (const char *)x) continue;
        if (*x != MBARRIER_MARK + i) fault(cudaErrorLaunchFailure, "%s: the mbarrier at %s was overwritten", what, where(x));
        HOOK(mbarrier_used, (int)i, x, site);
        return (int)i;
    }
    fault(cudaErrorLaunchFailure, "%s: the mbarrier at %s is not initialised", what, where(x));
    return -1;
}

void tnc_barrier_init(tnc_barrier *x, int arrivals)
{
    check_mbarrier(x, "mbarrier.init");
    if (!tnch_is_memory(x, 8)) fault(cudaErrorIllegalAddress, "mbarrier.init out of bounds, at %s", where(x));
    if (arrivals < 1 || arrivals >= 1 << 20) fault(cudaErrorLaunchFailure, "mbarrier.init at %s: a count of %d", where(x), arrivals);
    for (const mbarrier &b : mbarriers)
        if (b.at == (const char *)x)
            fault(cudaErrorLaunchFailure, "mbarrier.init at %s: it is initialised already, and %zu threads wait for it", where(x),
                  b.waiting.size());
    mbarriers.push_back(mbarrier{(char *)x, arrivals, arrivals, 0, 0, 0, tnch_now->linear, false, {}, {}});
    if (mbarriers.size() > TNCH_MBARRIERS) fault(cudaErrorLaunchFailure, "more than %d mbarriers in a block", TNCH_MBARRIERS);
    *x = MBARRIER_MARK + mbarriers.size() - 1;
    HOOK(mbarrier_new, (int)mbarriers.size() - 1);
}

void tnc_barrier_fence(void)
{
    for (mbarrier &b : mbarriers) if (b.maker == tnch_now->linear) b.fenced = true;
    tnc_fence_async();
}

static void land(const bulk &c, int barrier);

/* Ends the phase if nothing is missing. watched: a thread waits for it, so that copies that are under way must end. */
static bool try_complete(int which, bool watched)
{
    mbarrier &b = mbarriers[(size_t)which];
    if (b.pending) return false;
    if (b.issued > b.expected)
        fault(cudaErrorLaunchFailure, "mbarrier at %s: the copies of this phase bring %zu bytes, %zu were expected", where(b.at), b.issued,
              b.expected);
    if (b.issued < b.expected || (b.issued && !watched)) return false;
    for (const bulk &c : b.copies) land(c, which);
    b.copies.clear();
    b.expected = b.issued = 0;
    b.pending = b.count;
    b.phase++;
    HOOK(mbarrier_complete, which);
    for (tnch_thread *t : b.waiting) make_ready(t);
    b.waiting.clear();
    return true;
}

static void arrive(int which, const char *what)
{
    mbarrier &b = mbarriers[(size_t)which];
    if (!b.pending)
        fault(cudaErrorLaunchFailure, "%s: too many arrivals at the mbarrier at %s: this phase had all %d, and no thread has waited for its copies",
              what, where(b.at), b.count);
    HOOK(mbarrier_arrived, which);
    b.pending--;
    try_complete(which, !b.waiting.empty());
}

void tnc_barrier_arrive(tnc_barrier *x)
{
    maybe_others_first();
    arrive(mbarrier_of(x, "mbarrier.arrive", __builtin_return_address(0)), "mbarrier.arrive");
}

void tnc_barrier_expect(tnc_barrier *x, int bytes)
{
    maybe_others_first();
    const int which = mbarrier_of(x, "mbarrier.arrive.expect_tx", __builtin_return_address(0));
    mbarrier &b = mbarriers[(size_t)which];
    if (bytes < 0 || b.expected + (size_t)bytes >= 1 << 20)
        fault(cudaErrorLaunchFailure, "mbarrier.arrive.expect_tx at %s: %d bytes, beside %zu", where(b.at), bytes, b.expected);
    if (b.pending) b.expected += (size_t)bytes;
    arrive(which, "mbarrier.arrive.expect_tx");
}

void tnc_barrier_wait(tnc_barrier *x, int parity, int line)
{
    tnch_thread *t = tnch_now;
    maybe_others_first();
    const int which = mbarrier_of(x, "mbarrier.try_wait", __builtin_return_address(0));
    const unsigned phase = mbarriers[(size_t)which].phase;
    if (parity & ~1) fault(cudaErrorLaunchFailure, "mbarrier.try_wait in line %d: a parity of %d", line, parity);
    if ((phase & 1) == (unsigned)parity && !try_complete(which, true)) {
        waiting_for w = {which, parity};
        t->argument = &w;
        t->line = line;
        t->state = tnch_thread::AT_MBARRIER;
        mbarriers[(size_t)which].waiting.push_back(t);
        let_others_run();
        if (mbarriers[(size_t)which].phase != phase + 1)
            fault(cudaErrorLaunchFailure, "mbarrier.try_wait in line %d: before this thread has seen the end of phase %u, phase %u has begun",
                  line, phase, mbarriers[(size_t)which].phase);
    }
    HOOK(mbarrier_seen, which);
}

/* What a thread waits for, for the report of a deadlock */
static void tell_mbarrier(const tnch_thread *t, char *text, size_t space)
{
    if (t->state == tnch_thread::AT_WARPGROUP) {
        snprintf(text, space, "; thread %d waits in line %d for its warpgroup, of which %d threads are there", t->linear, t->line,
                 warpgroups[t->warp / 4].count);
        return;
    }
    if (t->state == tnch_thread::AT_REGISTERS) {
        snprintf(text, space, "; thread %d waits in line %d for %d registers", t->linear, t->line, *(const int *)t->argument);
        return;
    }
    const waiting_for *w = (const waiting_for *)t->argument;
    const mbarrier &b = mbarriers[(size_t)w->barrier];
    snprintf(text, space, "; thread %d waits in line %d for parity %d of the mbarrier at %s: it lacks %d of %d arrivals, and %ld bytes", t->linear,
             t->line, w->parity, where(b.at), b.pending, b.count, (long)b.expected - (long)b.issued);
}

/* A barrier of the 128 threads of a warpgroup */
bool tnc_warpgroup_or(int warpgroup, bool x, int line)
{
    tnch_thread *t = tnch_now;
    const int mine = t->warp / 4;
    if (warpgroup != mine || thread_count < mine * 128 + 128)
        fault(cudaErrorLaunchFailure, "barrier of warpgroup %d in line %d: thread %d is not one of its 128", warpgroup, line, t->linear);
    auto &g = warpgroups[mine];
    if (g.count && g.line != line)
        fault(cudaErrorLaunchFailure, "divergent warpgroup: thread %d waits in line %d, another in line %d", t->linear, line, g.line);
    g.line = line;
    g.votes += x;
    if (++g.count < 128) {
        t->line = line;
        t->state = tnch_thread::AT_WARPGROUP;
        let_others_run();
        return g.result != 0;
    }
    g.result = g.votes > 0;
    g.count = g.votes = 0;
    HOOK(warpgroup_barrier, mine);
    for (int i = mine * 128; i < mine * 128 + 128; i++)
        if (threads[i].state == tnch_thread::AT_WARPGROUP) make_ready(&threads[i]);
    return g.result != 0;
}

/* ---- bulk copies --------------------------------------------------------------------------------------------------------
   The engine's own form of a tensor map: what cuTensorMapEncodeTiled was given, without its checks of the driver. */

struct tensor_map {
    uint64_t mark;
    char *address;
    uint64_t strides[4];                      /* in bytes, of the axes after the first */
    uint32_t last[5];                         /* extents less 1 */
    uint16_t box[5];
    uint8_t rank, element, swizzle, unused;   /* element: its bytes; swizzle: 16-byte pieces that it permutes, or 1 */
};
static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "a tensor map has 128 bytes");
static const uint64_t MAP_MARK = 0x74656E736F726D70ull;

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *extents,
                                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    static const uint8_t element_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    tensor_map m = {MAP_MARK, (char *)address, {}, {}, {}, (uint8_t)rank, 0, (uint8_t)(1 << swizzle), 0};
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || rank < 1 || rank > 5 || (unsigned)type > CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
        return CUDA_ERROR_INVALID_VALUE;
    m.element = element_of[type];
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || (unsigned)swizzle > CU_TENSOR_MAP_SWIZZLE_128B) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; i++) {
        if (extents[i] < 1 || extents[i] > (uint64_t)1 << 32 || box[i] < 1 || box[i] > 256 || element_strides[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        m.last[i] = (uint32_t)(extents[i] - 1);
        m.box[i] = (uint16_t)box[i];
        if (i == 0) continue;
        if (strides[i - 1] % 16 || strides[i - 1] >= (uint64_t)1 << 40 || !strides[i - 1]) return CUDA_ERROR_INVALID_VALUE;
        m.strides[i - 1] = strides[i - 1];
    }
    const uint32_t inner = box[0] * m.element;
    if (inner % 16 || (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && inner > 16u << swizzle)) return CUDA_ERROR_INVALID_VALUE;
    memset((void *)map, 0, sizeof *map);
    memcpy((void *)map, &m, sizeof m);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found)
{
    LOCK();
    start();
    const bool has = strcmp(symbol, "cuTensorMapEncodeTiled") == 0 && version >= 12000 && !set.no_tma;
    *function = has ? (void *)cuTensorMapEncodeTiled : NULL;
    *found = has ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

size_t tnch_bulk_address(size_t byte, int pieces) { return byte ^ (byte >> 3 & (size_t)(pieces - 1) << 4); }

/* Calls f(where in shared memory, from where or NULL beyond the tensor, bytes) for each 16 bytes of a box, or for each element where
   the tensor ends within them. */
template <class F> static void each_of_box(const bulk &c, F f)
{
    tensor_map m;
    memcpy((void *)&m, (const void *)&c.map, sizeof m);
    const size_t inner = (size_t)m.box[0] * m.element;
    size_t rows = 1;
    for (int i = 1; i < m.rank; i++) rows *= m.box[i];
    for (size_t row = 0; row < rows; row++) {
        const char *from = m.address;
        size_t rest = row;
        bool out = false;
        for (int i = 1; i < m.rank; i++) {
            const int64_t at = (int64_t)c.at[i] + (int64_t)(rest % m.box[i]);
            rest /= m.box[i];
            out = out || at < 0 || at > (int64_t)m.last[i];
            from += at * (int64_t)m.strides[i - 1];
        }
        for (size_t byte = 0; byte < inner; byte += 16) {
            char *to = tnch_arena + tnch_bulk_address((size_t)(c.to - tnch_arena) + row * inner + byte, m.swizzle);
            const int64_t first = c.at[0] + (int64_t)(byte / m.element), after = first + 16 / m.element, extent = (int64_t)m.last[0] + 1;
            if (out || after <= 0 || first >= extent) f(to, (const char *)NULL, (size_t)16);
            else if (first >= 0 && after <= extent) f(to, from + first * m.element, (size_t)16);
            else
                for (int64_t e = first; e < after; e++)
                    f(to + (e - first) * m.element, e < 0 || e >= extent ? (const char *)NULL : from + e * m.element, (size_t)m.element);
        }
    }
}

static void land(const bulk &c, int barrier)
{
    each_of_box(c, [&](char *to, const char *from, size_t bytes) {
        if (from) memcpy(to, from, bytes);
        else memset(to, 0, bytes);
        HOOK(bulk_ends, to, bytes, barrier);
    });
}

void tnch_bulk_load(void *shared, const CUtensorMap *map, tnc_barrier *x, int rank, const int *at, const void *site)
{
    maybe_others_first();
    const int which = mbarrier_of(x, "bulk copy", site);
    mbarrier &b = mbarriers[(size_t)which];
    bulk c = {(char *)shared, {}, {0, 0, 0, 0, 0}, 0};
    tensor_map m;
    need_shared("bulk copy", shared);
    if ((uintptr_t)map % 64) fault(cudaErrorMisalignedAddress, "bulk copy: the tensor map at %p is not aligned to 64 bytes", (const void *)map);
    if (!on_device(map) && !tnch_is_local(map)) fault(cudaErrorIllegalAddress, "bulk copy: the tensor map is not a parameter of the kernel");
    memcpy((void *)&m, (const void *)map, sizeof m);
    if (m.mark != MAP_MARK) fault(cudaErrorLaunchFailure, "bulk copy: a tensor map that cuTensorMapEncodeTiled has not made");
    if (m.rank != rank) fault(cudaErrorLaunchFailure, "bulk copy: %d coordinates for a tensor map of rank %d", rank, m.rank);
    if ((uintptr_t)shared % 128) fault(cudaErrorMisalignedAddress, "bulk copy to %s: it is not aligned to 128 bytes", where(shared));
    if (!b.fenced) fault(cudaErrorLaunchFailure, "bulk copy: no fence after the mbarrier.init of the mbarrier at %s", where(b.at));
    c.map = *map;
    c.bytes = m.element;
    for (int i = 0; i < rank; i++) { c.at[i] = at[i]; c.bytes *= m.box[i]; }
    if (!tnch_is_memory(shared, c.bytes)) fault(cudaErrorIllegalAddress, "bulk copy of %zu bytes to %s: out of bounds", c.bytes, where(shared));
    each_of_box(c, [&](char *to, const char *from, size_t bytes) {
        if (from && !inside(allocations, from, bytes))
            fault(cudaErrorIllegalAddress, "bulk copy: %zu bytes at %p of the tensor are out of bounds", bytes, (const void *)from);
        if (from) HOOK(bulk_reads, from, bytes, site);
        HOOK(bulk_begins, to, bytes, site);
    });
    b.issued += c.bytes;
    b.copies.push_back(c);
    if (!b.pending) try_complete(which, !b.waiting.empty());
}

/* ---- registers of a warpgroup --------------------------------------------------------------------------------------------
   The engine knows no number of registers of a kernel: at first a thread has as many as fit, which is what ptxas takes with
   __launch_bounds__(threads, 1) and setmaxnreg. The warps of a block share what it was launched with, and no more. */

static bool registers_fit(int warp, int n)
{
    int sum = 32 * (n - registers_of_warp[warp]);
    for (int w = 0; w < MAX_WARPS; w++) sum += 32 * registers_of_warp[w];
    return sum <= registers_of_block;
}

static void do_nothing(void **, unsigned) {}

void tnch_registers(int n, bool more, int line)
{
    tnch_thread *t = tnch_now;
    if (set.device < 90) fault(cudaErrorLaunchFailure, "setmaxnreg needs a device of capability 9.0");
    if (n < 24 || n > 256 || n % 8) fault(cudaErrorLaunchFailure, "setmaxnreg in line %d: %d registers", line, n);
    if (more ? n < registers_of_warp[t->warp] : n > registers_of_warp[t->warp])
        fault(cudaErrorLaunchFailure, "setmaxnreg.%s in line %d: from %d registers to %d", more ? "inc" : "dec", line, registers_of_warp[t->warp], n);
    tnch_warp(0xFFFFFFFFu, do_nothing, NULL, line);
    while (more && registers_of_warp[t->warp] < n && !registers_fit(t->warp, n)) {
        t->argument = &n;
        t->line = line;
        t->state = tnch_thread::AT_REGISTERS;
        let_others_run();
    }
    if (registers_of_warp[t->warp] == n) return;              /* another lane has been here */
    registers_of_warp[t->warp] = n;
    register_calls[t->warp]++;
    if (!more)
        for (int i = 0; i < thread_count; i++)
            if (threads[i].state == tnch_thread::AT_REGISTERS) make_ready(&threads[i]);
}

void tnch_atomic(void *p, size_t bytes, const void *site)
{
    maybe_others_first();
    HOOK(atomic, p, bytes, site);
}

/* ---- a launch --------------------------------------------------------------------------------------------------------- */

static std::map<const void *, int> dynamic_limits;    /* set by cudaFuncSetAttribute */
static uint64_t launches;
static std::map<std::string, uint64_t> launches_by_name;

static void place_threads(dim3 block)
{
    static dim3 placed(0, 0, 0);
    thread_count = (int)(block.x * block.y * block.z);
    if (placed.x == block.x && placed.y == block.y && placed.z == block.z) return;
    placed = block;
    for (int i = 0; i < thread_count; i++) {
        tnch_thread *t = &threads[i];
        t->index.x = (unsigned)i % block.x;
        t->index.y = (unsigned)i / block.x % block.y;
        t->index.z = (unsigned)i / block.x / block.y;
        t->linear = i;
        t->warp = i / 32;
        t->lane = i % 32;
    }
}

/* Which of n blocks is the i-th to run. A prime above all grid sizes in use makes the random order a permutation. */
static uint64_t block_at(uint64_t i, uint64_t n, uint64_t offset)
{
    return set.order == TNCH_FORWARD ? i : set.order == TNCH_REVERSED ? n - 1 - i : (i * 2654435761u % n + offset) % n;
}

static void run_kernel(const char *name, const void *function, tnch_entry entry, dim3 grid, dim3 block,
                       size_t shared_bytes, const void *bytes, size_t count)
{
    if (set.fail_launch && --set.fail_launch == 0) { sticky_error = cudaErrorIllegalAddress; return; }
    open_memory open;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z, first = std::min(set.first_block, blocks - 1);
    uint64_t some = blocks - first;
    uint64_t offset = set.order == TNCH_RANDOM ? random_bits() % some : 0, before = switches;
    launches++;
    if (++tnch_launch_number == 0) tnch_launch_number = 1;
    kernel_name = name;
    launches_by_name[kernel_name]++;
    kernel = function;
    kernel_entry = entry;
    abandoned = false;
    memcpy(parameters, bytes, count);
    tnch_grid_dim = grid;
    tnch_block_dim = block;
    place_threads(block);
    shared_begin(shared_bytes);
    HOOK(launch);
    for (uint64_t i = 0; i < some && !sticky_error; i++) {
        uint64_t b = first + block_at(i, some, offset);
        tnch_block.x = (unsigned)(b % grid.x);
        tnch_block.y = (unsigned)(b / grid.x % grid.y);
        tnch_block.z = (unsigned)(b / grid.x / grid.y);
        if (i) shared_refill();
        run_block();
    }
    size_t shared = shared_static + shared_bytes;
    size_t limit = dynamic_limits.count(function) ? shared_limit() : (size_t)STATIC_SHARED_LIMIT;
    if (shared > limit)
        fault(cudaErrorInvalidValue, "kernel %s takes %zu bytes of shared memory, %zu of them static: the limit is %zu", name,
              shared, shared_static, limit);
    if (set.trace)
        fprintf(stderr, "tnch: %s, %llu blocks of %d threads, %zu + %zu bytes of shared memory, %llu switches\n", name,
                (unsigned long long)blocks, thread_count,
                shared_static, shared_bytes, (unsigned long long)(switches - before));
}

#ifndef TNCH_ASAN
static void catch_signal(int number_, siginfo_t *info, void *context)
{
    const char *p = (const char *)info->si_addr;
    const void *pc = NULL;
#if defined(__x86_64__)
    pc = (const void *)(((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] + 1);
#elif defined(__aarch64__)
    pc = (const void *)(((ucontext_t *)context)->uc_mcontext.pc + 1);
#else
    (void)context;
#endif
    char line[300] = "?";
    if (pc) tnch_source_line(pc, line, sizeof line);
    if (!tnch_now) {
        fprintf(stderr, "tnch: signal %d at address %p in %s%s\n", number_, (const void *)p, line,
                on_device(p) ? ": the host touched device memory" : "");
        signal(number_, SIG_DFL);
        raise(number_);
    } else if (p >= tnch_now->fiber->stack - GUARD_BYTES && p < tnch_now->fiber->stack) {
        fault(cudaErrorLaunchFailure, "a thread's variables take more than its stack of %d bytes, in %s", STACK_BYTES, line);
    } else {
        fault(cudaErrorIllegalAddress, "access of address %p in %s", (const void *)p, line);
    }
}

/* A kernel that reads through a wild pointer ends as on a device; the program continues. */
static void catch_signals(void)
{
    static char stack[64 << 10];
    stack_t alternative;
    memset(&alternative, 0, sizeof alternative);
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    sigaltstack(&alternative, NULL);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = catch_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}
#else
static void catch_signals(void) {}

/* ASan reports the line; this reports the thread. */
extern "C" void __asan_on_error(void)
{
    if (tnch_now) tnch_report("AddressSanitizer");
}
#endif

/* ---- streams -------------------------------------------------------------------------------------------------------------
   Eager: work in a stream runs at once. Lazy: it runs when something waits for it, and nothing else does; other streams run
   first where that is allowed. Number one is the legacy stream, which waits for all blocking streams, as they do for it. */

struct task { uint64_t number; work run; };
struct capture { struct tnch_graph *graph; struct tnch_stream *origin; cudaStreamCaptureMode mode; bool invalid; };
struct tnch_stream { std::deque<task> queue; bool blocking; capture *recording; bool joined; };
struct tnch_graph { std::vector<work> nodes; std::vector<std::function<cudaError_t()>> checks; };
struct tnch_graph_exec { std::shared_ptr<const std::vector<work>> nodes; };

struct moment { tnch_stream *stream; uint64_t recorded, done; double ms; capture *recording; size_t node; };
struct tnch_event { std::shared_ptr<moment> m; };

static tnch_stream legacy = {{}, true, NULL, true};
static std::vector<tnch_stream *> streams = {&legacy};
static uint64_t task_count;
static int events_live, graphs_live;

static bool known(tnch_stream *s) { return std::find(streams.begin(), streams.end(), s) != streams.end(); }
static tnch_stream *stream_of(cudaStream_t s) { return s ? s : &legacy; }

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* The first task of s, after everything that must precede it */
static void run_front(tnch_stream *s)
{
    task t = std::move(s->queue.front());
    s->queue.pop_front();
    for (tnch_stream *o : streams) {
        bool before = o != s && (s == &legacy ? o->blocking : o == &legacy && s->blocking);
        while (before && !o->queue.empty() && o->queue.front().number < t.number) run_front(o);
    }
    if (!sticky_error) t.run();
}

static void drain(tnch_stream *s) { while (!s->queue.empty()) run_front(s); }
static void drain_all(void) { for (size_t i = streams.size(); i-- > 0;) drain(streams[i]); }

static cudaError_t invalidate(cudaError_t error)
{
    for (tnch_stream *s : streams) if (s->recording) s->recording->invalid = true;
    return remember(error);
}

/* What may not be called while any stream is captured, unless the capture is relaxed */
static cudaError_t unsafe_in_capture(void)
{
    for (tnch_stream *s : streams)
        if (s->recording && s->recording->mode != cudaStreamCaptureModeRelaxed) return invalidate(cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

/* The legacy stream would wait for a blocking stream that is captured. */
static cudaError_t implicit_in_capture(tnch_stream *s)
{
    for (tnch_stream *o : streams)
        if (s == &legacy && o->recording && o->blocking) return invalidate(cudaErrorStreamCaptureImplicit);
    return cudaSuccess;
}

static cudaError_t can_enqueue(tnch_stream *s)
{
    if (!known(s)) return remember(cudaErrorInvalidResourceHandle);
    if (s->recording && s->recording->invalid) return remember(cudaErrorStreamCaptureInvalidated);
    return implicit_in_capture(s);
}

static bool at_once(const tnch_stream *s) { return !set.lazy && !s->recording; }

static void enqueue(tnch_stream *s, work w)
{
    if (s->recording) { s->recording->graph->nodes.push_back(std::move(w)); s->joined = s == s->recording->origin; }
    else if (set.lazy) s->queue.push_back(task{++task_count, std::move(w)});
    else if (!sticky_error) w();
}

/* Device, driver, and whether a fault has ended everything */
static cudaError_t usable(void)
{
    start();
    if (set.device == TNCH_NO_DEVICE) return remember(cudaErrorNoDevice);
    if (set.device == TNCH_NO_DRIVER) return remember(cudaErrorInsufficientDriver);
    return sticky_error;
}
#define USABLE() LOCK(); do { cudaError_t error_ = usable(); if (error_) return error_; } while (0)
#define OK(call) do { cudaError_t error_ = (call); if (error_) return error_; } while (0)

static cudaError_t check_launch(const void *function, dim3 grid, dim3 block, size_t shared_bytes)
{
    uint64_t n = (uint64_t)block.x * block.y * block.z;
    auto set_to = dynamic_limits.find(function);
    size_t limit = set_to != dynamic_limits.end() ? (size_t)set_to->second : (size_t)STATIC_SHARED_LIMIT;
    if (!n || n > MAX_THREADS || block.z > 64 || !grid.x || !grid.y || !grid.z || grid.x > 0x7FFFFFFFu || grid.y > 65535 ||
        grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (shared_bytes > limit) return cudaErrorInvalidValue;
    return set.device < 80 ? cudaErrorNoKernelImageForDevice : cudaSuccess;
}

void tnch_submit(const char *name, const void *function, tnch_entry entry, dim3 grid, dim3 block, size_t shared_bytes,
                 cudaStream_t stream, const void *bytes,
                 size_t count)
{
    LOCK();
    tnch_stream *s = stream_of(stream);
    if (usable() || can_enqueue(s) || remember(check_launch(function, grid, block, shared_bytes))) return;
    unsigned count_of_threads = block.x * block.y * block.z;
    if (count_of_threads % 32) tnch_report("kernel %s: a block of %u threads, not a multiple of 32", name, count_of_threads);
    if (at_once(s)) { run_kernel(name, function, entry, grid, block, shared_bytes, bytes, count); return; }
    std::string kept((const char *)bytes, count);
    if (s->recording) s->recording->graph->checks.push_back([=] { return check_launch(function, grid, block, shared_bytes); });
    enqueue(s, [=] { run_kernel(name, function, entry, grid, block, shared_bytes, kept.data(), kept.size()); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    USABLE();
    *stream = new tnch_stream{{}, !(flags & cudaStreamNonBlocking), NULL, true};
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    LOCK();
    auto it = std::find(streams.begin(), streams.end(), stream);
    if (!stream || it == streams.end()) return remember(cudaErrorInvalidResourceHandle);
    drain(stream);
    cudaGraph_t graph;
    if (stream->recording && stream->recording->origin == stream && cudaStreamEndCapture(stream, &graph) == cudaSuccess)
        cudaGraphDestroy(graph);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return sticky_error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    USABLE();
    tnch_stream *s = stream_of(stream);
    if (!known(s)) return remember(cudaErrorInvalidResourceHandle);
    if (s->recording) return invalidate(cudaErrorStreamCaptureUnsupported);
    OK(implicit_in_capture(s));
    drain(s);
    return sticky_error;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    USABLE();
    tnch_stream *s = stream_of(stream);
    if (!known(s)) return remember(cudaErrorInvalidResourceHandle);
    if (s->recording) return invalidate(cudaErrorStreamCaptureUnsupported);
    return s->queue.empty() ? cudaSuccess : remember(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
    USABLE();
    for (tnch_stream *s : streams) if (s->recording) return invalidate(cudaErrorStreamCaptureUnsupported);
    drain_all();
    return sticky_error;
}

/* ---- events: the n-th record of one is done when its stream reaches it  */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    USABLE();
    *event = new tnch_event{std::make_shared<moment>(moment{NULL, 0, 0, 0, NULL, 0})};
    events_live++;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    LOCK();
    if (!event) return remember(cudaErrorInvalidResourceHandle);
    delete event;
    events_live--;
    return sticky_error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    USABLE();
    tnch_stream *s = stream_of(stream);
    OK(can_enqueue(s));
    std::shared_ptr<moment> m = event->m;
    m->stream = s;
    m->recording = s->recording;
    if (s->recording) { m->node = s->recording->graph->nodes.size(); return cudaSuccess; }   /* an edge of the graph, not a task */
    uint64_t number_ = ++m->recorded;
    enqueue(s, [m, number_] { m->done = number_; m->ms = now_ms(); });
    return cudaSuccess;
}

static void wait_for(const moment *m, uint64_t number_)
{
    while (m->done < number_ && !sticky_error && known(m->stream) && !m->stream->queue.empty()) run_front(m->stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    USABLE();
    tnch_stream *s = stream_of(stream);
    std::shared_ptr<moment> m = event->m;
    if (m->recording) {                                    /* s joins the capture, or the stream of the event returns to it */
        if (s->recording && s->recording != m->recording) return invalidate(cudaErrorStreamCaptureUnsupported);
        if (!s->recording) { s->recording = m->recording; s->joined = false; }
        else if (known(m->stream) && m->node == m->recording->graph->nodes.size()) m->stream->joined = true;
        return cudaSuccess;
    }
    OK(can_enqueue(s));
    if (s->recording) return invalidate(cudaErrorStreamCaptureUnsupported);   /* a dependency on work outside of the capture */
    uint64_t number_ = m->recorded;
    enqueue(s, [m, number_] { wait_for(m.get(), number_); });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    USABLE();
    if (event->m->recording) return invalidate(cudaErrorCapturedEvent);
    wait_for(event->m.get(), event->m->recorded);
    return sticky_error;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    USABLE();
    if (event->m->recording) return invalidate(cudaErrorCapturedEvent);
    return event->m->done == event->m->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t first, cudaEvent_t second)
{
    USABLE();
    if (!first->m->recorded || !second->m->recorded) return remember(cudaErrorInvalidResourceHandle);
    if (first->m->done < first->m->recorded || second->m->done < second->m->recorded) return remember(cudaErrorNotReady);
    *ms = (float)(second->m->ms - first->m->ms);
    return cudaSuccess;
}

/* ---- graphs: what is put into a captured stream is kept, with its arguments by value ------------------ */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    USABLE();
    tnch_stream *s = stream_of(stream);
    if (!known(s)) return remember(cudaErrorInvalidResourceHandle);
    if (s == &legacy) return remember(cudaErrorStreamCaptureUnsupported);
    if (s->recording) return invalidate(cudaErrorStreamCaptureUnmatched);
    s->recording = new capture{new tnch_graph(), s, mode, false};
    s->joined = true;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    LOCK();
    *graph = NULL;
    if (!stream || !known(stream) || !stream->recording || stream->recording->origin != stream) return remember(cudaErrorStreamCaptureUnmatched);
    capture *c = stream->recording;
    bool joined = true;
    for (tnch_stream *s : streams)
        if (s->recording == c) { s->recording = NULL; joined = joined && s->joined; }
    cudaError_t error = c->invalid ? cudaErrorStreamCaptureInvalidated : !joined ? cudaErrorStreamCaptureUnjoined : sticky_error;
    if (error) delete c->graph;
    else { *graph = c->graph; graphs_live++; }
    delete c;
    return remember(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    USABLE();
    tnch_stream *s = stream_of(stream);
    if (!known(s)) return remember(cudaErrorInvalidResourceHandle);
    OK(implicit_in_capture(s));
    *status = !s->recording ? cudaStreamCaptureStatusNone : s->recording->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    USABLE();
    if (!graph || nodes) return remember(cudaErrorInvalidValue);
    *count = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    USABLE();
    if (!graph) return remember(cudaErrorInvalidValue);
    for (const auto &check : graph->checks) OK(remember(check()));     /* limits of kernels are checked now */
    *exec = new tnch_graph_exec{std::make_shared<const std::vector<work>>(graph->nodes)};
    graphs_live++;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    USABLE();
    if (!exec) return remember(cudaErrorInvalidValue);
    tnch_stream *s = stream_of(stream);
    OK(can_enqueue(s));
    if (s->recording) {                                   /* a graph within a graph: a copy */
        for (const work &w : *exec->nodes) enqueue(s, w);
        return sticky_error;
    }
    std::weak_ptr<const std::vector<work>> launched = exec->nodes;
    enqueue(s, [launched] {
        std::shared_ptr<const std::vector<work>> nodes = launched.lock();
        if (!nodes) { fault(cudaErrorLaunchFailure, "a graph was destroyed before it had run"); return; }
        for (const work &w : *nodes) if (!sticky_error) w();
    });
    return sticky_error;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    LOCK();
    if (!graph) return remember(cudaErrorInvalidValue);
    delete graph;
    graphs_live--;
    return sticky_error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    LOCK();
    if (!exec) return remember(cudaErrorInvalidValue);
    delete exec;
    graphs_live--;
    return sticky_error;
}

/* ---- the runtime: device, errors, memory, copies ---------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
    LOCK();
    start();
    *count = set.device > TNCH_NO_DRIVER;
    return usable();
}

cudaError_t cudaGetDevice(int *device) { USABLE(); *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { USABLE(); return device == 0 ? cudaSuccess : remember(cudaErrorInvalidDevice); }
cudaError_t cudaDriverGetVersion(int *version) { LOCK(); start(); *version = set.device == TNCH_NO_DRIVER ? 0 : 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = 13000; return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    USABLE();
    if (device != 0) return remember(cudaErrorInvalidDevice);
    memset((void *)p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "the host engine, sm_%d", set.device);
    p->totalGlobalMem = set.memory;
    p->sharedMemPerBlock = STATIC_SHARED_LIMIT;
    p->sharedMemPerBlockOptin = shared_limit();
    p->sharedMemPerMultiprocessor = shared_limit() + 1024;
    p->major = set.device / 10;
    p->minor = set.device % 10;
    p->multiProcessorCount = 4;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = MAX_THREADS;
    p->maxThreadsPerMultiProcessor = 2048;
    p->l2CacheSize = set.l2;
    p->memoryBusWidth = 5120;
    p->maxGridSize[0] = 0x7FFFFFFF;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp p;
    OK(cudaGetDeviceProperties(&p, device));
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:               *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock:          *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize:                         *value = p.warpSize; break;
    case cudaDevAttrClockRate:                        *value = 1000000; break;       /* kHz */
    case cudaDevAttrMultiProcessorCount:              *value = p.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate:                  *value = 1000000; break;
    case cudaDevAttrGlobalMemoryBusWidth:             *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize:                      *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:      *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor:           *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor:           *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:     *value = (int)p.sharedMemPerBlockOptin; break;
    default:                                          return remember(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

/* The engine knows only those attributes of a kernel that were set. */
static uint64_t questions;

cudaError_t tnch_function_attributes(cudaFuncAttributes *attributes, const void *function)
{
    USABLE();
    questions++;
    if (set.device < 80) return remember(cudaErrorNoKernelImageForDevice);
    if (set.ptx < 0) return remember(cudaErrorInvalidValue);
    memset((void *)attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = MAX_THREADS;
    attributes->ptxVersion = set.ptx ? set.ptx : set.device;
    attributes->binaryVersion = set.device;
    attributes->maxDynamicSharedSizeBytes = dynamic_limits.count(function) ? dynamic_limits[function] : (int)STATIC_SHARED_LIMIT;
    return cudaSuccess;
}

cudaError_t tnch_function_attribute(const void *function, cudaFuncAttribute attribute, int value)
{
    USABLE();
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value > shared_limit()) return remember(cudaErrorInvalidValue);
    dynamic_limits[function] = value;
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void) { LOCK(); return sticky_error ? sticky_error : last_error; }

cudaError_t cudaGetLastError(void)
{
    LOCK();
    cudaError_t error = sticky_error ? sticky_error : last_error;
    last_error = cudaSuccess;
    return error;
}

#define ERRORS(X) \
    X(cudaSuccess, "no error") X(cudaErrorInvalidValue, "invalid argument") X(cudaErrorMemoryAllocation, "out of memory") \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument") \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy") \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected") X(cudaErrorInvalidDevice, "invalid device ordinal") \
    X(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device") \
    X(cudaErrorInvalidDeviceFunction, "invalid device function") \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle") X(cudaErrorNotReady, "device not ready") \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered") X(cudaErrorMisalignedAddress, "misaligned address") \
    X(cudaErrorLaunchFailure, "unspecified launch failure") \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing") \
    X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture") \
    X(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began") \
    X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work") \
    X(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream") \
    X(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream")

const char *cudaGetErrorName(cudaError_t error)
{
#define X(name, text) if (error == name) return #name;
    ERRORS(X)
#undef X
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
#define X(name, text) if (error == name) return text;
    ERRORS(X)
#undef X
    return "unknown error";
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    USABLE();
    *available = set.memory - std::min(set.memory, memory_used);
    *total = set.memory;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    USABLE();
    OK(unsafe_in_capture());
    *p = NULL;
    if (set.fail_malloc && --set.fail_malloc == 0) return remember(cudaErrorMemoryAllocation);
    if (!bytes) return cudaSuccess;
    *p = memory_used <= set.memory ? memory_new(bytes) : NULL;
    return *p ? cudaSuccess : remember(cudaErrorMemoryAllocation);
}

/* Does not wait, as CUDA is free to. After a fault it returns the error of the fault, as CUDA does, but still frees: nothing
   may be left at the end. */
cudaError_t cudaFree(void *p)
{
    LOCK();
    OK(unsafe_in_capture());
    if (!p) return sticky_error;
    auto it = allocations.find((char *)p);
    if (it == allocations.end()) {
        tnch_report("cudaFree: %p was not returned by cudaMalloc", p);
        return remember(cudaErrorInvalidValue);
    }
    memory_gone(it->first, it->second);
    return sticky_error;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    USABLE();
    OK(unsafe_in_capture());
    *p = NULL;
    if (set.fail_malloc && --set.fail_malloc == 0) return remember(cudaErrorMemoryAllocation);
    if (!bytes) return cudaSuccess;
    *p = malloc(bytes);
    if (!*p) return remember(cudaErrorMemoryAllocation);
    pinned[(char *)*p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    LOCK();
    OK(unsafe_in_capture());
    if (!p) return sticky_error;
    drain_all();
    if (!pinned.erase((char *)p)) {
        tnch_report("cudaFreeHost: %p was not returned by cudaMallocHost", p);
        return remember(cudaErrorInvalidValue);
    }
    free(p);
    return sticky_error;
}

struct copy { char *to; const char *from; size_t to_pitch, from_pitch, width, height; };

/* Whether the pointers fit the direction, and the bytes their allocations. */
static cudaError_t check_copy(const copy &c, cudaMemcpyKind kind)
{
    if (!c.width || !c.height) return cudaSuccess;
    bool to_device = on_device(c.to), from_device = on_device(c.from);
    size_t to_span = c.to_pitch * (c.height - 1) + c.width, from_span = c.from_pitch * (c.height - 1) + c.width;
    if (kind != cudaMemcpyDefault && (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
                                      from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))) {
        tnch_report("copy of %zu bytes from %s to %s memory: called one of direction %d", from_span, from_device ? "device" : "host",
                    to_device ? "device" : "host", (int)kind);
        return remember(cudaErrorInvalidValue);
    }
    if ((to_device && !inside(allocations, c.to, to_span)) || (from_device && !inside(allocations, c.from, from_span))) {
        tnch_report("copy of %zu bytes: they leave the allocation", from_span);
        return remember(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

static void do_copy(const copy &c, cudaMemcpyKind kind)
{
    if (check_copy(c, kind)) return;
    open_memory open;
    for (size_t row = 0; row < c.height && c.width; row++) {
        char *to = c.to + row * c.to_pitch;
        const char *from = c.from + row * c.from_pitch;
        memmove(to, from, c.width);
        if (on_device(to) && on_device(from)) HOOK(copied, to, from, c.width);
        else if (on_device(to)) HOOK(written, to, c.width);
    }
}

/* As CUDA documents it: bytes are read from pageable host memory at once; bytes for it have arrived on return. */
static cudaError_t copy_async(const copy &c, cudaMemcpyKind kind, cudaStream_t stream)
{
    tnch_stream *s = stream_of(stream);
    OK(can_enqueue(s));
    OK(check_copy(c, kind));
    if (!c.width || !c.height) return cudaSuccess;
    size_t from_span = c.from_pitch * (c.height - 1) + c.width, to_span = c.to_pitch * (c.height - 1) + c.width;
    if (at_once(s)) {
        do_copy(c, kind);
    } else if (!s->recording && !on_device(c.from) && !inside(pinned, c.from, from_span)) {
        std::string bytes(c.from, from_span);
        enqueue(s, [=] { copy staged = c; staged.from = bytes.data(); do_copy(staged, kind); });
    } else {
        enqueue(s, [=] { do_copy(c, kind); });
        if (!s->recording && !on_device(c.to) && !inside(pinned, c.to, to_span)) drain(s);
    }
    return sticky_error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    USABLE();
    return copy_async(copy{(char *)to, (const char *)from, bytes, bytes, bytes, 1}, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    USABLE();
    if (width > to_pitch || width > from_pitch) return remember(cudaErrorInvalidValue);
    return copy_async(copy{(char *)to, (const char *)from, to_pitch, from_pitch, width, height}, kind, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    USABLE();
    OK(implicit_in_capture(&legacy));
    OK(unsafe_in_capture());
    OK(copy_async(copy{(char *)to, (const char *)from, bytes, bytes, bytes, 1}, kind, NULL));
    drain(&legacy);
    return sticky_error;
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
    USABLE();
    tnch_stream *s = stream_of(stream);
    OK(can_enqueue(s));
    if (!bytes) return cudaSuccess;
    if (!inside(allocations, to, bytes)) {
        tnch_report("cudaMemset of %zu bytes: they leave the allocation", bytes);
        return remember(cudaErrorInvalidValue);
    }
    enqueue(s, [=] {
        open_memory open;
        memset(to, byte, bytes);
        HOOK(written, to, bytes);
    });
    return sticky_error;
}

/* In the order of the stream, the contents are forgotten: filled like new memory, and uninitialised for the checker. */
void tnch_forget(void *p, size_t bytes, cudaStream_t stream)
{
    LOCK();
    if (usable() || !inside(allocations, p, bytes)) return;
    enqueue(stream_of(stream), [=] {
        open_memory open;
        memset(p, 0xFF, bytes);
        HOOK(memory_new, p, bytes);
    });
}

cudaError_t cudaMemset(void *to, int byte, size_t bytes) { return cudaMemsetAsync(to, byte, bytes, NULL); }

/* ---- cuBLAS: column-major, plain loops -------------------------------------------------------------------------------- */

struct tnch_cublas { tnch_stream *stream; cublasMath_t math; };
static int handles_live;

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    LOCK();
    if (usable() || set.no_cublas) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new tnch_cublas{&legacy, CUBLAS_DEFAULT_MATH};
    handles_live++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    LOCK();
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    delete handle;
    handles_live--;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t, int *version) { *version = 130203; return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    LOCK();
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = stream_of(stream);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    LOCK();
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    bool ours = !bytes || inside(allocations, workspace, bytes);
    return (uintptr_t)workspace % 256 || !ours ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : status == CUBLAS_STATUS_NOT_INITIALIZED ? "the library was not initialized"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "an unsupported value or parameter was passed to the function" : "the operation failed";
}

struct matrix { const char *data; cudaDataType type; int rows, columns, ld; };
struct product {
    bool trans_a, trans_b;
    int m, n, k;
    double alpha, beta;
    matrix a, b, c;
    long long stride_a, stride_b, stride_c;
    int count;
    enum { EXACT, TF32, BF16 } rounding;          /* of A and B */
    const char *bias = NULL;                      /* one number per row of C, of C's type */
    bool halves = false;                          /* the sum of the first half of k is rounded to C's type */
};

static size_t element_bytes(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

/* to nearest, ties away from zero, like cvt.rna.tf32 */
static float to_tf32(float x)
{
    uint32_t u = __float_as_uint(x);
    return (u & 0x7F800000u) == 0x7F800000u ? x : __uint_as_float((u + 0x1000u) & ~0x1FFFu);
}

template <class R> static R element(const matrix &x, int row, int column)
{
    size_t at = (size_t)column * (size_t)x.ld + (size_t)row;
    if (x.type == CUDA_R_64F) return (R)((const double *)x.data)[at];
    if (x.type == CUDA_R_32F) return (R)((const float *)x.data)[at];
    return (R)tnch_bf16_value(((const uint16_t *)x.data)[at]);
}

template <class R> static R operand(const product &p, const matrix &x, bool transposed, int row, int column)
{
    R v = transposed ? element<R>(x, column, row) : element<R>(x, row, column);
    return p.rounding == product::TF32 ? (R)to_tf32((float)v) : p.rounding == product::BF16 ? (R)(float)__nv_bfloat16((float)v) : v;
}

static void store(const matrix &x, int row, int column, double v)
{
    size_t at = (size_t)column * (size_t)x.ld + (size_t)row;
    char *data = const_cast<char *>(x.data);
    if (x.type == CUDA_R_64F) ((double *)data)[at] = v;
    else if (x.type == CUDA_R_32F) ((float *)data)[at] = (float)v;
    else ((uint16_t *)data)[at] = tnch_bf16_bits((float)v);
}

static bool check_matrix(const matrix &x, const char *name, bool reads)
{
    size_t size = element_bytes(x.type), bytes = ((size_t)(x.columns - 1) * (size_t)x.ld + (size_t)x.rows) * size;
    if (x.rows == 0 || x.columns == 0) return true;
    if ((uintptr_t)x.data % size) { tnch_report("cuBLAS: %s is not aligned to its elements", name); return false; }
    if (!inside(allocations, x.data, bytes)) {
        tnch_report("cuBLAS: %s of %d x %d, columns %d apart, leaves its allocation", name, x.rows, x.columns, x.ld);
        return false;
    }
    for (int j = 0; j < x.columns && reads; j++) HOOK(reads, x.data + (size_t)j * (size_t)x.ld * size, (size_t)x.rows * size, name);
    return true;
}

/* R: the type of the sums */
template <class R> static void multiply(const product &p)
{
    size_t m = (size_t)p.m;
    std::vector<R> a(m * (size_t)p.k), sums(m);
    for (int k = 0; k < p.k; k++)
        for (int i = 0; i < p.m; i++) a[(size_t)k * m + (size_t)i] = operand<R>(p, p.a, p.trans_a, i, k);
    for (int j = 0; j < p.n; j++) {
        R *sum = sums.data();
        std::fill(sums.begin(), sums.end(), (R)0);
        for (int k = 0; k < p.k; k++) {
            R b = operand<R>(p, p.b, p.trans_b, k, j);
            const R *column = &a[(size_t)k * m];
            for (size_t i = 0; i < m; i++) sum[i] = std::fma(column[i], b, sum[i]);
            for (size_t i = 0; i < m && p.halves && k == p.k / 2 && p.c.type == CUDA_R_16BF; i++) sum[i] = (R)(float)__nv_bfloat16((float)sum[i]);
        }
        for (int i = 0; i < p.m; i++) {
            R v = (R)p.alpha * sum[i];
            if (p.beta != 0) v = std::fma((R)p.beta, element<R>(p.c, i, j), v);
            if (p.bias) v += element<R>(matrix{p.bias, p.c.type, p.m, 1, p.m}, i, 0);
            store(p.c, i, j, (double)v);
        }
        HOOK(written, const_cast<char *>(p.c.data) + (size_t)j * (size_t)p.c.ld * element_bytes(p.c.type), m * element_bytes(p.c.type));
    }
}

static void run_product(product p)
{
    open_memory open;
    if (p.alpha == 0) p.k = 0;                    /* then A and B are not read */
    for (int i = 0; i < p.count; i++) {
        bool fits = (p.k == 0 || (check_matrix(p.a, "A", true) && check_matrix(p.b, "B", true))) && check_matrix(p.c, "C", p.beta != 0)
                    && (!p.bias || check_matrix(matrix{p.bias, p.c.type, p.m, 1, p.m}, "the bias", true));
        if (!fits) { sticky_error = cudaErrorIllegalAddress; return; }
        if (p.c.type == CUDA_R_64F) multiply<double>(p);
        else multiply<float>(p);
        p.a.data += p.stride_a * (long long)element_bytes(p.a.type);
        p.b.data += p.stride_b * (long long)element_bytes(p.b.type);
        p.c.data += p.stride_c * (long long)element_bytes(p.c.type);
    }
}

/* The combinations of types that cuBLAS documents, as far as they are used here */
static bool types_supported(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute)
{
    bool in_f64 = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    bool fast = compute == CUBLAS_COMPUTE_32F_FAST_TF32 || compute == CUBLAS_COMPUTE_32F_FAST_16BF;
    if (a != b) return false;
    if (a == CUDA_R_64F) return c == CUDA_R_64F && in_f64;
    if (a == CUDA_R_32F) return c == CUDA_R_32F && !in_f64;
    return a == CUDA_R_16BF && (c == CUDA_R_16BF || c == CUDA_R_32F) && !in_f64 && !fast;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t trans_a, cublasOperation_t trans_b,
                                          int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType a_type, int lda, long long stride_a, const void *b,
                                          cudaDataType b_type, int ldb, long long stride_b, const void *beta, void *c, cudaDataType c_type,
                                          int ldc, long long stride_c, int count, cublasComputeType_t compute, cublasGemmAlgo_t)
{
    LOCK();
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || count < 0 || !alpha || !beta || lda < std::max(1, trans_a ? k : m) ||
        ldb < std::max(1, trans_b ? n : k) || ldc < std::max(1, m)) return CUBLAS_STATUS_INVALID_VALUE;
    if (on_device(alpha) || on_device(beta)) { tnch_report("cuBLAS: alpha and beta are read by the host"); return CUBLAS_STATUS_INVALID_VALUE; }
    if (!types_supported(a_type, b_type, c_type, compute)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (usable() || can_enqueue(handle->stream)) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (m == 0 || n == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;

    matrix x = {(const char *)a, a_type, trans_a ? k : m, trans_a ? m : k, lda};
    matrix y = {(const char *)b, b_type, trans_b ? n : k, trans_b ? k : n, ldb};
    matrix z = {(const char *)c, c_type, m, n, ldc};
    product p = {trans_a != CUBLAS_OP_N, trans_b != CUBLAS_OP_N, m, n, k, 0, 0, x, y, z, stride_a, stride_b, stride_c, count,
                 product::EXACT};
    bool in_f64 = a_type == CUDA_R_64F;
    p.alpha = in_f64 ? *(const double *)alpha : (double)*(const float *)alpha;
    p.beta = in_f64 ? *(const double *)beta : (double)*(const float *)beta;
    if (a_type == CUDA_R_32F && (compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                                 (compute == CUBLAS_COMPUTE_32F && handle->math == CUBLAS_TF32_TENSOR_OP_MATH)))
        p.rounding = product::TF32;
    if (a_type == CUDA_R_32F && compute == CUBLAS_COMPUTE_32F_FAST_16BF) p.rounding = product::BF16;
    enqueue(handle->stream, [p] { run_product(p); });
    return sticky_error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t trans_a, cublasOperation_t trans_b, int m, int n,
                            int k, const void *alpha,
                            const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type, int ldb, const void *beta, void *c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    return cublasGemmStridedBatchedEx(handle, trans_a, trans_b, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta,
                                      c, c_type, ldc, 0, 1, compute,
                                      algo);
}

/* ---- cublasLt: the same products, by descriptors ------------------------------------------------------------------------
   An algorithm is for the descriptors and alignments that it was found for, and cublasLtMatmul checks that it gets these. It
   refuses some products on purpose, so that the callers' fallbacks are tested: matrices at odd addresses, and biases of an odd
   number of rows. */

struct tnch_lt { };
struct tnch_lt_product { cublasComputeType_t compute; cudaDataType_t scale; int trans_a, trans_b; unsigned epilogue; const void *bias; };
struct tnch_lt_layout { cudaDataType type; uint64_t rows, columns; int64_t ld; int count; int64_t stride; };
struct tnch_lt_preference { uint64_t workspace; unsigned reductions, alignment[4]; };
enum { LT_WORKSPACE = 1 << 16 };
static int descriptors_live;
static uint64_t lt_questions, lt_products;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    LOCK();
    if (usable() || set.no_cublas || set.lt == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new tnch_lt;
    handles_live++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    LOCK();
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    delete handle;
    handles_live--;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) { return 130000; }

template <class T> static cublasStatus_t lt_new(T **p, const T &value)
{
    LOCK();
    *p = new T(value);
    descriptors_live++;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> static cublasStatus_t lt_delete(T *p)
{
    LOCK();
    descriptors_live -= p != NULL;
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

/* An attribute has the size of its type. */
template <class T> static cublasStatus_t lt_set(T &to, const void *value, size_t bytes)
{
    if (!value || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&to, value, sizeof to);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *p, cublasComputeType_t compute, cudaDataType_t scale)
{
    return lt_new(p, {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t p) { return lt_delete(p); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes)
{
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:       return lt_set(p->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:       return lt_set(p->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:     return lt_set(p->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return lt_set(p->bias, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *p, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld)
{
    if (set.lt == 2) return CUBLAS_STATUS_INVALID_VALUE;
    return lt_new(p, {type, rows, columns, ld, 1, 0});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t p) { return lt_delete(p); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t p, cublasLtMatrixLayoutAttribute_t name, const void *value, size_t bytes)
{
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:          return lt_set(p->count, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return lt_set(p->stride, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    return lt_new(p, {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return lt_delete(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes)
{
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:   return lt_set(p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return lt_set(p->reductions, value, bytes);
    default:                                         return lt_set(p->alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    }
}

/* What an algorithm says of itself: a number that follows from the descriptors, the alignments of A, B, C, D and the bias, its
   workspace, and whether it rounds the parts of a sum. */
enum { LT_OF, LT_ALIGNMENT, LT_BIAS = LT_ALIGNMENT + 4, LT_NEEDS, LT_HALVES };

static uint64_t lt_mix(uint64_t h, uint64_t x) { return (h ^ x) * 0x9E3779B97F4A7C15u + (h >> 29); }
static uint64_t lt_fingerprint(const tnch_lt_product *p, const tnch_lt_layout *const layouts[4])
{
    uint64_t h = lt_mix(lt_mix((uint64_t)p->compute, (uint64_t)p->scale), (uint64_t)(p->trans_a * 64 + p->trans_b * 8) + p->epilogue);
    for (int i = 0; i < 4; i++) {
        const tnch_lt_layout *l = layouts[i];
        h = lt_mix(lt_mix(lt_mix(lt_mix(lt_mix(lt_mix(h, (uint64_t)l->type), l->rows), l->columns), (uint64_t)l->ld), (uint64_t)l->count), (uint64_t)l->stride);
    }
    return h;
}

static uint64_t alignment_of(const void *p) { return (uintptr_t)p ? ((uintptr_t)p & -(uintptr_t)p) : 256; }

/* The extents fit each other, and the types each other. */
static cublasStatus_t lt_check(const tnch_lt_product *p, const tnch_lt_layout *const l[4])
{
    uint64_t m = p->trans_a ? l[0]->columns : l[0]->rows, k = p->trans_a ? l[0]->rows : l[0]->columns;
    uint64_t n = p->trans_b ? l[1]->rows : l[1]->columns;
    if ((p->trans_b ? l[1]->columns : l[1]->rows) != k || m == 0 || n == 0 || k == 0) return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; i++) {
        if (l[i]->ld < (int64_t)l[i]->rows || l[i]->count != l[0]->count) return CUBLAS_STATUS_INVALID_VALUE;
        if (i >= 2 && (l[i]->rows != m || l[i]->columns != n)) return CUBLAS_STATUS_INVALID_VALUE;
    }
    bool in_f64 = p->compute == CUBLAS_COMPUTE_64F, bias = p->epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (!bias && p->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l[3]->type != l[2]->type || p->scale != (in_f64 ? CUDA_R_64F : CUDA_R_32F) || (bias && (in_f64 || m % 2))) return CUBLAS_STATUS_NOT_SUPPORTED;
    return types_supported(l[0]->type, l[1]->type, l[2]->type, p->compute) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t p, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *count)
{
    LOCK();
    const tnch_lt_layout *const layouts[4] = {a, b, c, d};
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (wanted < 1 || !results || !count) return CUBLAS_STATUS_INVALID_VALUE;
    lt_questions++;
    *count = 0;
    cublasStatus_t status = lt_check(p, layouts);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    memset(results, 0, sizeof *results);
    uint64_t *algo = results->algo.data;
    for (int i = 0; i < 4; i++) {
        unsigned size = (unsigned)element_bytes(layouts[i]->type);
        if (preference->alignment[i] < std::max(size, 4u)) return CUBLAS_STATUS_NOT_SUPPORTED;
        algo[LT_ALIGNMENT + i] = preference->alignment[i];
    }
    algo[LT_OF] = lt_fingerprint(p, layouts);
    algo[LT_BIAS] = std::min<uint64_t>(alignment_of(p->bias), 256);
    algo[LT_NEEDS] = preference->workspace >= LT_WORKSPACE && (preference->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) ? LT_WORKSPACE : 0;
    algo[LT_HALVES] = (preference->reductions & (CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE)) != 0;
    results->workspaceSize = algo[LT_NEEDS];
    results->state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t p, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t on)
{
    LOCK();
    const tnch_lt_layout *const l[4] = {a_layout, b_layout, c_layout, d_layout};
    const void *const data[4] = {a, b, c, d};
    tnch_stream *stream = stream_of(on);
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (set.lt == 3) return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t status = lt_check(p, l);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (!alpha || !beta || !algo) return CUBLAS_STATUS_INVALID_VALUE;
    if (on_device(alpha) || on_device(beta)) { tnch_report("cublasLt: alpha and beta are read by the host"); return CUBLAS_STATUS_INVALID_VALUE; }
    if (algo->data[LT_OF] != lt_fingerprint(p, l)) { tnch_report("cublasLt: the algorithm was found for another product"); return CUBLAS_STATUS_INVALID_VALUE; }
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)data[i] % algo->data[LT_ALIGNMENT + i]) {
            tnch_report("cublasLt: %c is at a multiple of %d bytes, its algorithm needs %d", "ABCD"[i], (int)alignment_of(data[i]), (int)algo->data[LT_ALIGNMENT + i]);
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    if (c != d || c_layout->ld != d_layout->ld || c_layout->stride != d_layout->stride) { tnch_report("cublasLt: C and D differ, which this engine cannot do"); return CUBLAS_STATUS_NOT_SUPPORTED; }
    bool bias = p->epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (bias && (!p->bias || (uintptr_t)p->bias % algo->data[LT_BIAS])) {
        tnch_report("cublasLt: the bias is at a multiple of %d bytes, its algorithm needs %d", (int)alignment_of(p->bias), (int)algo->data[LT_BIAS]);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    size_t needs = algo->data[LT_NEEDS];
    if (needs && (workspace_bytes < needs || (uintptr_t)workspace % 256 || !inside(allocations, workspace, needs))) {
        tnch_report("cublasLt: the algorithm needs %zu bytes of workspace, at a multiple of 256", needs);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (usable() || can_enqueue(stream)) return CUBLAS_STATUS_EXECUTION_FAILED;

    auto of = [&](int i) { return matrix{(const char *)data[i], l[i]->type, (int)l[i]->rows, (int)l[i]->columns, (int)l[i]->ld}; };
    product q = {p->trans_a != CUBLAS_OP_N, p->trans_b != CUBLAS_OP_N, (int)d_layout->rows, (int)d_layout->columns,
                 (int)(p->trans_a ? a_layout->rows : a_layout->columns), 0, 0, of(0), of(1), of(3), a_layout->stride, b_layout->stride, d_layout->stride,
                 d_layout->count, product::EXACT};
    bool in_f64 = p->compute == CUBLAS_COMPUTE_64F;
    q.alpha = in_f64 ? *(const double *)alpha : (double)*(const float *)alpha;
    q.beta = in_f64 ? *(const double *)beta : (double)*(const float *)beta;
    if (p->compute == CUBLAS_COMPUTE_32F_FAST_TF32) q.rounding = product::TF32;
    q.bias = bias ? (const char *)p->bias : NULL;
    q.halves = algo->data[LT_HALVES] != 0;
    lt_products++;
    enqueue(stream, [q, workspace, needs] {
        if (needs) {
            open_memory open;
            memset(workspace, 0xFF, needs);
            HOOK(written, workspace, needs);
        }
        run_product(q);
    });
    return sticky_error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

/* ---- for tests -------------------------------------------------------------------------------------------------------- */

void tnch_set_device(int capability) { LOCK(); start(); set.device = capability; }
void tnch_set_order(tnch_order order, unsigned seed) { LOCK(); start(); set.order = order; set.random = seed * 2654435761u + 1u; }
void tnch_set_lazy(int on) { LOCK(); start(); drain_all(); set.lazy = on != 0; }
void tnch_set_memory(size_t bytes) { LOCK(); start(); set.memory = std::min(bytes, (size_t)ARENA_BYTES); }
void tnch_set_l2(int bytes) { LOCK(); start(); set.l2 = bytes; }
void tnch_set_ptx(int version) { LOCK(); start(); set.ptx = version; }
void tnch_set_cublas(int on) { LOCK(); start(); set.no_cublas = !on; }
void tnch_set_cublas_lt(int how) { LOCK(); start(); set.lt = how; }
uint64_t tnch_lt_questions(void) { return lt_questions; }
uint64_t tnch_lt_products(void) { return lt_products; }
void tnch_set_tma(int on) { LOCK(); start(); set.no_tma = !on; }
void tnch_fail_malloc(long n) { LOCK(); start(); set.fail_malloc = n; }
void tnch_set_first_block(uint64_t block) { LOCK(); start(); drain_all(); set.first_block = block; }
void tnch_fail_launch(long n) { LOCK(); start(); set.fail_launch = n; }
int tnch_faults(void) { return fault_count; }
const char *tnch_fault_text(void) { return first_fault; }
size_t tnch_memory_in_use(void) { return memory_used; }
uint64_t tnch_launches(void) { return launches; }
uint64_t tnch_questions(void) { return questions; }
uint64_t tnch_launches_of(const char *part)
{
    uint64_t sum = 0;
    for (auto &k : launches_by_name) if (k.first.find(part) != std::string::npos) sum += k.second;
    return sum;
}

/* What a device lost by a fault holds cannot be freed any more: it is lost as well. */
static void forget_lost(void)
{
    while (!allocations.empty()) { auto a = *allocations.begin(); memory_gone(a.first, a.second); }
    for (auto &a : pinned) free(a.first);
    pinned.clear();
    for (size_t i = 1; i < streams.size(); i++) delete streams[i];
    streams.resize(1);
    legacy.queue.clear();
    events_live = graphs_live = handles_live = descriptors_live = 0;
}

void tnch_clear(void)
{
    LOCK();
    if (sticky_error) forget_lost();
    fault_count = 0;
    first_fault[0] = 0;
    last_error = sticky_error = cudaSuccess;
}

static void at_exit(void)
{
    if (sticky_error) forget_lost();
    for (auto &a : allocations) { open_memory open; check_red_zone(a.first, a.second); }
    if (!allocations.empty()) tnch_report("at the end %zu device allocations are not freed, %zu bytes", allocations.size(),
                                          memory_used);
    if (!pinned.empty()) tnch_report("at the end %zu allocations of pinned memory are not freed", pinned.size());
    if (streams.size() > 1 || events_live || graphs_live || handles_live || descriptors_live)
        tnch_report("at the end there are %zu streams, %d events, %d graphs, %d handles of cuBLAS, %d descriptors of cublasLt", streams.size() - 1,
                    events_live, graphs_live, handles_live, descriptors_live);
    if (!fault_count) return;
    fprintf(stderr, "tnch: %d faults\n", fault_count);
    fflush(NULL);
    _exit(1);
}

static void switch_often(const void *count, const void *)
{
    for (long i = *(const long *)count; i > 0; i--) __syncwarp();
}

double tnch_switch_ns(long count)
{
    LOCK();
    start();
    place_threads(dim3(32));
    kernel_entry = switch_often;
    kernel = &count;
    uint64_t before = switches;
    double ms = now_ms();
    abandoned = false;
    run_block();
    return (now_ms() - ms) * 1e6 / (double)(switches - before);
}
