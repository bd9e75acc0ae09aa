#pragma once
#include "core/core.h"

/* ======================================================================
   >>platform numbers, text and errors, without the C library's locale
   ====================================================================== */

/* Each part of -ffast-math that changes results, where the compiler defines a macro for it: gcc of all, clang up to 14 of the
   whole and of -ffinite-math-only, Microsoft's of /fp:fast. -fno-math-errno and -fno-trapping-math change nothing here. */
#if !defined(TN_ALLOW_FAST_MATH) && \
    (defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || defined(__ASSOCIATIVE_MATH__) || \
     defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__) || defined(_M_FP_FAST))
#error "tensornet.h needs NaN, signed zeros and the order of sums: compile without -ffast-math and without its parts \
(-ffinite-math-only, -funsafe-math-optimizations and others), or define TN_ALLOW_FAST_MATH"
#endif

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifndef TN_NO_STDIO
#include <errno.h>
#include <stdio.h>
#if defined(_WIN32)
#include <io.h>
#ifdef __cplusplus                      /* declared as in windows.h, which is too large to include for one function */
extern "C"
#endif
__declspec(dllimport) int __stdcall MoveFileExA(const char *from, const char *to, unsigned long flags);
#include <fcntl.h>
#elif defined(__unix__) || defined(__APPLE__)
#define TNI_POSIX
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(LOCK_EX)
#define TNI_FLOCK (LOCK_EX | LOCK_NB)
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__) || defined(__DragonFly__)
#define TNI_FLOCK (2 | 4)               /* the values are the same, but _POSIX_C_SOURCE and _XOPEN_SOURCE hide them */
#ifdef __cplusplus
extern "C"
#endif
int flock(int, int);
#endif
#if defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(__cplusplus)
int (fileno)(FILE *);                   /* which -std=c99 hides */
FILE *fdopen(int, const char *);
int fsync(int);
#endif
#ifndef __cplusplus
int fchmod(int, mode_t);                /* which older versions of POSIX hide */
int fchown(int, uid_t, gid_t);
#endif
#endif
#endif
#if defined(TN_NO_THREADS)
#elif defined(TN_USE_THREADS)
#define TNI_OWN_THREADS
#if defined(_WIN32)
#include <process.h>
#ifdef _MSC_VER
#include <intrin.h>
#endif
#ifdef _WIN64
typedef unsigned __int64 tni_affinity;
#else
typedef unsigned long tni_affinity;
#endif
#ifdef __cplusplus                      /* declared as in windows.h, like MoveFileExA */
extern "C" {
#endif
struct _RTL_SRWLOCK;
struct _RTL_CONDITION_VARIABLE;
__declspec(dllimport) void __stdcall AcquireSRWLockExclusive(struct _RTL_SRWLOCK *lock);
__declspec(dllimport) void __stdcall ReleaseSRWLockExclusive(struct _RTL_SRWLOCK *lock);
__declspec(dllimport) int __stdcall SleepConditionVariableSRW(struct _RTL_CONDITION_VARIABLE *event,
                                                              struct _RTL_SRWLOCK *lock, unsigned long milliseconds,
                                                              unsigned long flags);
__declspec(dllimport) void __stdcall WakeConditionVariable(struct _RTL_CONDITION_VARIABLE *event);
__declspec(dllimport) void __stdcall WakeAllConditionVariable(struct _RTL_CONDITION_VARIABLE *event);
__declspec(dllimport) unsigned long __stdcall WaitForSingleObject(void *handle, unsigned long milliseconds);
__declspec(dllimport) int __stdcall CloseHandle(void *handle);
__declspec(dllimport) void *__stdcall GetCurrentProcess(void);
__declspec(dllimport) int __stdcall GetProcessAffinityMask(void *process, tni_affinity *own, tni_affinity *all);
__declspec(dllimport) unsigned long __stdcall GetActiveProcessorCount(unsigned short group);
#ifdef __cplusplus
}
#endif
#else
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#endif
#elif defined(_OPENMP)
#define TNI_OPENMP
#include <omp.h>
#endif
#ifdef TN_DEBUG
#include <errno.h>
#endif
#if defined(__linux__)
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef __cplusplus
long syscall(long, ...);                /* which -std=c99 hides */
#endif
#endif

#ifndef TN_ASSERT
#define TN_ASSERT(condition) ((void)0)
#endif

#ifndef TENSORNET_IMPLEMENTATION        /* begins each function that other files of src/ use; in the one header static */
#ifdef __GNUC__
#define TNI_FN __attribute__((visibility("hidden")))
#else
#define TNI_FN
#endif
#endif

/* The rows of a table of kernels: X of those that are called, UNCALLED of those that only training calls, where it is left out,
   NONE of those that are left out. */
#if defined(TN_NO_SEQUENCES) && defined(TN_NO_TRAINING)
#define TNI_KERNELS(X, UNCALLED, NONE) TN_KERNELS_BY(X, UNCALLED, NONE, NONE)
#elif defined(TN_NO_SEQUENCES)
#define TNI_KERNELS(X, UNCALLED, NONE) TN_KERNELS_BY(X, X, NONE, NONE)
#elif defined(TN_NO_TRAINING)
#define TNI_KERNELS(X, UNCALLED, NONE) TN_KERNELS_BY(X, UNCALLED, X, UNCALLED)
#else
#define TNI_KERNELS(X, UNCALLED, NONE) TN_KERNELS(X)
#endif

/* Begins the functions of files that are not called many times in a step of training or a prediction: files and text, plans,
   networks, operators, circuits and pictures. With gcc the static functions that only these call are cold, too. */
#define TNI_COLD_FN TNI_COLD TNI_FN

#if defined(__GNUC__)
#define TNI_UNUSED __attribute__((unused))
#define TNI_NOINLINE __attribute__((noinline))
#define TNI_COLD     __attribute__((cold))              /* compiled for size; a branch that calls it counts as unlikely */
#define TNI_RARE     TNI_NOINLINE TNI_COLD
#if defined(__MINGW32__) && !defined(__clang__)       /* where plain "printf" means Microsoft's, which has no %zu */
#define TNI_PRINTF(text, first) __attribute__((format(gnu_printf, text, first)))
#else
#define TNI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#endif
#else
#define TNI_UNUSED
#define TNI_NOINLINE
#define TNI_COLD
#define TNI_RARE
#define TNI_PRINTF(text, first)
#endif

/* A struct of zeros; a shape that is written where it is passed. C++ has no compound literals, and C no empty braces. */
#ifdef __cplusplus
struct tni_dims { int64_t n[8]; };
#define TNI_ZERO {}
#define TNI_DIMS(...) tni_dims{{__VA_ARGS__}}.n
#else
#define TNI_ZERO {0}
#define TNI_DIMS(...) (const int64_t[]){__VA_ARGS__}
#endif

static inline int64_t tni_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tni_abs(int64_t a)            { return a < 0 ? -a : a; }
static inline int64_t tni_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t tni_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static inline bool tni_add_size(size_t a, size_t b, size_t *out)
{
    *out = a + b;
    return a <= SIZE_MAX - b;
}

static inline bool tni_mul_size(size_t a, size_t b, size_t *out)
{
    *out = a * b;
    return b == 0 || a <= SIZE_MAX / b;
}

typedef struct tni_text { char *dst; size_t bytes, length; } tni_text;

typedef struct tni_shape_text { char s[8 * 21 + 3]; } tni_shape_text;

#define TNI_SHAPE(t) tni_shape_of((t)->rank, (t)->shape).s

static inline size_t tni_dtype_size(tn_dtype d) { return d == TN_F64 ? 8 : d == TN_BF16 ? 2 : 4; }
static inline double tni_dtype_most(tn_dtype d)  { return d == TN_F64 ? 1.7976931348623157e308 : 3.4028234663852886e38; }
static inline double tni_dtype_least(tn_dtype d) { return d == TN_F64 ? 2.2250738585072014e-308 : 1.1754943508222875e-38; }

/* A struct, by the C library's memset: if gcc knows the size it writes `rep stos` instead, which is slow to begin. */
static inline void tni_clear(void *p, size_t bytes)
{
    volatile size_t unknown = bytes;
    memset(p, 0, unknown);
}

/* ---- the context -------------------------------------------------------- >>context-state
   Owned objects are in one list, so that the context can free those that its user has not destroyed. */
typedef struct tni_owned {
    struct tni_owned *prev, *next;
    void            (*destroy)(struct tni_owned *self);
    tn_ctx           *ctx;
} tni_owned;

typedef struct tni_block { char *p; size_t bytes; } tni_block;
#define TNI_BLOCKS 128
#define TNI_BLOCK_MOST ((size_t)256 << 20)  /* blocks double up to this size, then have the requested size */

typedef struct tni_arena {
    tni_block block[TNI_BLOCKS];
    size_t    blocks, at, used;         /* the block in use, and its bytes in use */
    bool      device;
} tni_arena;

/* Whether each allocation must be seen by what checks memory: one piece for one array, and none that stays for the next. */
#if defined(TN_DEBUG) || defined(__SANITIZE_ADDRESS__)
#define TNI_MEMORY_CHECKED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TNI_MEMORY_CHECKED true
#endif
#endif
#ifndef TNI_MEMORY_CHECKED
#define TNI_MEMORY_CHECKED false
#endif

/* Host memory that is released together, see >>scratch. */
typedef struct tni_taken {
    struct tni_taken *before;
    size_t            block;            /* bytes of the block that begins here, or 0 */
} tni_taken;
typedef struct tni_scratch {
    tn_ctx     *ctx;
    const char *what;                   /* names the memory in messages        */
    tni_taken  *newest;
    char       *at;                     /* what is left of the newest block    */
    size_t      left, all;              /* bytes there, and of all blocks      */
    bool        arena;                  /* the pieces are of the arena of headers, which alone releases them */
    bool        failed;                 /* a piece was refused, and the context has the error */
} tni_scratch;

struct tni_node;
struct tni_threads;

enum { TNI_MOST_THREADS = 32767 };      /* the places of a gate, see threads.c */

typedef struct tni_pool { int threads; tn_parallel_for_fn fn; void *user; } tni_pool;

/* What communicates, see >>comm-impl. One thread at a time uses it, and nothing else of the context. */
typedef struct tni_link {
    const tn_comm *comm;                /* NULL: one process                    */
    void          *scratch;             /* host memory in which sums are made   */
    size_t         bytes;
    tn_traffic     traffic;
    char           why[TN_WHY];         /* the failure after which nothing works any more, or "" */
} tni_link;

struct tn_ctx {
    tn_desc           desc;             /* with its defaults patched in         */
    const tn_backend *backend;
    void             *state;
    tn_kernel_fn      reference;        /* the reference backend's entry: for kernels that the backend lacks */
    /* Makes a kernel from simpler ones; false: there is no such composition. */
    bool            (*compose)(struct tn_ctx *ctx, const tn_call *call, tn_status *s);
    tni_pool          pool;             /* for host algorithms                  */
    struct tni_threads *threads;        /* the context's own, or NULL           */
    tn_status         status;
    char              error[512], device[128];
    tn_memory         memory;
    tni_arena         heads[2], data[2];    /* tensor headers and tape; bytes of tensors, of recomputed tensors */
    int               head;             /* which of the two is in use: TN_DEBUG keeps the last one readable */
    int               aside;            /* 1: inside tn_recompute, whose tensors have their bytes in data[1] */
    tn_tensor        *arena_tensors;    /* newest first, linked by prev         */
    tn_tensor        *owned_tensors;
    int64_t           doomed;           /* of them have TNI_DOOMED */
    bool              params_doomed;    /* some of these are parameters, whose tn_param is gone */
    tni_owned        *owned;
    uint64_t          operators;        /* made so far, see tn_cp_mark */
    struct tni_node  *tape, *waiting;   /* newest first; the outer tape while a part is recomputed */
    bool              recording;
    tn_dtype          made;             /* dtype of results of ops: desc.activations, in a tni_scope desc.dtype */
    uint64_t          resets;           /* of the arena: a mark is valid until the next */
    tn_tensor        *idle;             /* gradients whose memory is free again */
    tn_graph         *graphs, *capture; /* all graphs, newest first; the one being captured, or NULL */
    tn_status       (*capture_end)(struct tn_ctx *ctx, tn_graph **out);     /* ends this capture */
    tn_status         spoilt;           /* the first failure during the capture, cleared or not */
    char              spoilt_by[512];
    tn_tensor        *clock, *fault;    /* device: RNG clock [1], first fault [4] */
    int64_t           calls;            /* random calls since the clock's last tick */
    bool            (*describe)(tn_ctx *ctx, const int32_t fault[4]);
    void             *describe_with;
    tni_link          link;
    void             *comm_handle;      /* memory of the backend, tni_comm_most bytes, or NULL */
    struct tni_comm_thread *beside;          /* the thread that communicates, or NULL */
    void            (*on_node)(tn_ctx *ctx, const struct tni_node *n);  /* the backward pass has come to n; NULL: to its end */
    struct tn_optim  *sender;           /* whose on_node this is */
    int               rank, fault_rank; /* of this process in desc.comm; of the one that has found the fault */
    uint64_t          kernel_calls[TN_KERNEL_COUNT];
    bool              fallback_said[TN_KERNEL_COUNT];
#ifdef TN_DEBUG
    void             *user;             /* the thread that is in a call, see >>one-thread; NULL: none */
    const char       *user_call, *intruder;     /* its call, and one of another thread that came meanwhile, or NULL */
    int               user_depth;       /* calls inside of that call */
#endif
};

/* Between these two a thread uses the context: >>one-thread. false: another one does. Nothing without TN_DEBUG. */
#ifdef TN_DEBUG
#define TNI_ENTER(ctx, call) tni_enter(ctx, call)
#define TNI_LEAVE(ctx)       tni_leave(ctx)
#else
#define TNI_ENTER(ctx, call) true
#define TNI_LEAVE(ctx)       ((void)0)
#endif

/* The scalars of an optimiser on the device, see >>op-optim. */
enum { TNI_LR, TNI_STEP, TNI_SIZE, TNI_FACTOR, TNI_SKIP, TNI_NORM, TNI_MOMENTUM, TNI_TAKEN, TNI_SCALARS };

static inline void tni_say(const tn_desc *desc, tn_log_level level, const char *message)
{
    if (desc->log) desc->log(desc->log_user, level, message);
}

/* ---- flags of a tensor -------------------------------------------------- >>tensor-flags */

#define TNI_ALIVE 0x7E4508u
enum { TNI_OWNED = 1, TNI_WANTS_GRAD = 2, TNI_WATCHED = 4, TNI_PARAM = 8, TNI_GRAD_USED = 16,
       TNI_ZEROED = 32,                 /* a parameter's gradient that counts as zeros, whatever its bytes are: the first
                                           writer overwrites it, and a reader fills it (tni_settle) */
       TNI_SEED = 64,                   /* the loss that tn_backward began with: its gradient is 1 */
       TNI_NOTED = 128,                 /* of an owned tensor: the current capture uses it ... */
       TNI_WAS_ZEROED = 256,            /* ... and TNI_ZEROED as it was at its beginning            */
       TNI_GRAPHED = 512,               /* a graph uses it                                          */
       TNI_SOUGHT = 1024,               /* of an owned tensor: nodes that read it are looked for     */
       TNI_SENT = 2048,                 /* a parameter's gradient that processes have averaged; without meaning if TNI_ZEROED */
       TNI_SHADOW = 4096,               /* products have read it that would read it in BF16, see tni_shadow_operand */
       TNI_DOOMED = 8192,               /* destroyed while a recording may read it: freed when that ends    */
       TNI_HOLDER = 1 << 16 };          /* of a gradient, in the upper half of the flags: how many further tensors have its
                                           bytes as their gradient (tni_grad_pass)                  */

/* The tensor whose bytes t refers to: its base, or itself. */
static inline const tn_tensor *tni_root(const tn_tensor *t) { return t->base ? t->base : t; }

#define TNI_ALIGN 64

/* The midpoint of one of 2^23 intervals: never 0, never 1, exact in float. */
static inline float tni_unit(uint32_t word) { return ((float)(word >> 9) + 0.5f) * (1.0f / 8388608.0f); }

#if !defined(TN_NO_CONTRACTION) || !defined(TN_NO_OPERATOR)
/* Random numbers of searches and permutations on the host: words `at`, `at` + 1, .. of the random call `call`. */
typedef struct tni_rng { uint64_t key; int64_t call; uint64_t at; uint32_t words[4]; } tni_rng;
#endif

TNI_UNUSED static inline const tni_pool *tni_ctx_pool(tn_ctx *ctx) { return &ctx->pool; }
static const tni_pool tni_alone = {1, NULL, NULL};

#ifndef TN_NO_TRAINING
enum { TNI_GRAPH_OPTIMS = 8 };

typedef struct tni_used {
    tn_tensor *tensor;
    bool       zero_before, zero_after;
    bool       shadow_before, shadow_after; /* its shadow held when the capture began; holds after the step (>>shadow) */
} tni_used;

struct tn_graph {
    tni_owned owned;            /* first: the context destroys it by this */
    tn_graph *next;
    void     *recorded;         /* the backend's */
    tni_used *used;
    int64_t   used_count, calls;
    uint64_t  seed, kernel_calls[TN_KERNEL_COUNT];
    tn_optim *optim[TNI_GRAPH_OPTIMS];
    int64_t   steps[TNI_GRAPH_OPTIMS];      /* number of updates before the capture */
    int       optims;
    char      lost[128];        /* why it can no longer run, or "" */
};
#endif /* TN_NO_TRAINING */

typedef struct tni_node tni_node;
typedef void (*tni_backward_fn)(tn_ctx *ctx, const tni_node *node);

struct tni_node {
    tni_node       *before;
    tni_backward_fn backward;
    tn_tensor      *out, *in[3], *saved[2];
    tn_tensor     **list;               /* n_list inputs of an op that takes any number of them */
    int64_t         n_list;
    int64_t         i[4];
    double          f[6];
    const void     *with;               /* the tni_again of a tn_recompute */
};

static inline bool tni_is_bf16(const tn_view *v) { return v->data && v->dtype == TN_BF16; }

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* numbers.c */
TNI_FN uint16_t tni_bf16_bits(float f);
TNI_FN float tni_bf16_value(uint16_t half);
TNI_FN uint16_t tni_bf16_of(double v);
TNI_NOINLINE TNI_FN int64_t tni_plus(int64_t a, int64_t b);
TNI_NOINLINE TNI_FN int64_t tni_area(int64_t a, int64_t b);
TNI_FN bool tni_area_size(int64_t a, int64_t b, size_t each, size_t *bytes);
TNI_UNUSED TNI_FN size_t tni_parse_double(const char *s, size_t len, double *out);
TNI_FN int tni_format_double(char dst[32], double v, int digits);

/* messages.c */
TNI_FN size_t tni_utf8_length(const char *text, size_t left);
TNI_NOINLINE TNI_FN void tni_text_add(tni_text *t, const char *s, size_t n);
TNI_FN void tni_text_integer(tni_text *t, uint64_t v, bool negative);
TNI_FN void tni_text_signed(tni_text *t, int64_t v);
TNI_FN void tni_text_double(tni_text *t, double v, int digits);
TNI_FN void tni_text_v(tni_text *t, const char *fmt, va_list args);
TNI_PRINTF(3, 4) TNI_FN size_t tni_print(char *dst, size_t bytes, const char *fmt, ...);
TNI_FN tni_shape_text tni_shape_of(int rank, const int64_t *shape);
TNI_FN bool tni_extents_fit(tn_dtype dtype, int rank, const int64_t *shape, size_t *bytes);
TNI_PRINTF(3, 4) TNI_FN tn_status tni_fail(tn_ctx *ctx, tn_status s, const char *fmt, ...);
TNI_UNUSED TNI_NOINLINE TNI_FN bool tni_within(tn_ctx *ctx, const char *what, const char *name, int64_t v, int64_t low,
                                               int64_t high);
TNI_UNUSED TNI_PRINTF(3, 4) TNI_FN void tni_log(tn_ctx *ctx, tn_log_level level, const char *fmt, ...);
#ifdef TN_DEBUG
TNI_FN bool tni_enter(tn_ctx *ctx, const char *call);
TNI_FN void tni_leave(tn_ctx *ctx);
#endif

/* memory.c */
TNI_FN void *tni_alloc(tn_ctx *ctx, size_t bytes, const char *what);
TNI_NOINLINE TNI_FN void *tni_array(tn_ctx *ctx, int64_t n, size_t each, const char *what);
TNI_NOINLINE TNI_FN void tni_free(tn_ctx *ctx, void *p, size_t bytes);
TNI_FN void *tni_device_alloc(tn_ctx *ctx, size_t bytes, const char *what);
TNI_FN void tni_device_free(tn_ctx *ctx, void *p, size_t bytes);
TNI_FN void tni_own(tn_ctx *ctx, tni_owned *o, void (*destroy)(tni_owned *));
TNI_FN void tni_disown(tni_owned *o);
TNI_FN void *tni_object(tn_ctx *ctx, size_t bytes, const char *what, void (*destroy)(tni_owned *));
TNI_FN void tni_object_free(tni_owned *o, size_t bytes);
TNI_FN void *tni_arena_take(tn_ctx *ctx, tni_arena *a, size_t bytes);
TNI_NOINLINE TNI_FN tn_tensor **tni_arena_list(tn_ctx *ctx, int64_t n);
TNI_FN void tni_arena_free(tn_ctx *ctx, tni_arena *a);
TNI_FN void *tni_malloc(size_t bytes, void *user);
TNI_FN void tni_mfree(void *p, size_t bytes, void *user);
TNI_FN tni_scratch tni_scratch_begin(tn_ctx *ctx, const char *what);
TNI_NOINLINE TNI_FN void *tni_take(tni_scratch *w, int64_t n, size_t each);
TNI_NOINLINE TNI_FN void *tni_take_zeroed(tni_scratch *w, int64_t n, size_t each);
TNI_NOINLINE TNI_FN double *tni_take_f64(tni_scratch *w, int64_t n, int64_t m);
TNI_NOINLINE TNI_FN double *tni_take_zeros(tni_scratch *w, int64_t n, int64_t m);
TNI_FN void tni_scratch_release(tni_scratch *w, const tni_taken *mark);
TNI_NOINLINE TNI_FN tn_status tni_scratch_end(tni_scratch *w, tn_status s);

/* rng.c */
TNI_FN void tni_random_words(uint64_t key, int64_t call, uint32_t clock, uint64_t block, uint32_t out[4]);
#if !defined(TN_NO_CONTRACTION) || !defined(TN_NO_OPERATOR)
TNI_FN uint32_t tni_rng_word(tni_rng *d);
TNI_FN int64_t tni_rng_below(tni_rng *d, int64_t n);
#endif

/* threads.c */
#if defined(TNI_OWN_THREADS)
TNI_FN void tni_threads_for(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg);
TNI_FN void tni_threads_for_little(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg);
TNI_FN struct tni_threads *tni_threads_create(tn_ctx *ctx, int threads);
TNI_FN void tni_threads_destroy(struct tni_threads *t);
#ifndef TN_NO_TRAINING
TNI_FN struct tni_comm_thread *tni_comm_thread_of(tn_ctx *ctx);
TNI_FN int64_t tni_comm_thread_begin(struct tni_comm_thread *b, void (*fn)(void *, int64_t), void *arg);
TNI_FN void tni_comm_thread_give(struct tni_comm_thread *b);
TNI_FN bool tni_comm_thread_done(struct tni_comm_thread *b, int64_t number, bool wait);
TNI_FN void tni_comm_thread_destroy(struct tni_comm_thread *b);
#endif /* TN_NO_TRAINING */
#endif
TNI_FN int tni_default_threads(const tn_desc *desc);
TNI_FN void tni_parallel_for(const tni_pool *pool, int64_t tasks, tn_task_fn fn, void *arg);

/* dispatch.c */
#ifndef TN_NO_TRAINING
TNI_FN void tni_graphs_lose(tn_ctx *ctx, const tn_tensor *used, const char *why);
#endif /* TN_NO_TRAINING */
TNI_FN bool tni_tape_reads(const tn_ctx *ctx, const tn_tensor *t);
TNI_FN bool tni_not_aside(tn_ctx *ctx, const char *what);
TNI_FN bool tni_uncaptured(tn_ctx *ctx, const char *what);
TNI_FN void tni_view_span(const tn_view *v, char **low, size_t *bytes);
TNI_FN tn_status tni_backend_fail(tn_ctx *ctx, tn_status s, const char *what);
TNI_FN tn_status tni_to_device(tn_ctx *ctx, void *dst, const void *src, size_t bytes);
TNI_FN tn_status tni_to_host(tn_ctx *ctx, void *dst, const void *src, size_t bytes);
TNI_FN bool tni_call_has_bf16(const tn_call *c);
TNI_FN bool tni_call_adds(const tn_call *c, int k);
TNI_FN bool tni_holds(tn_ctx *ctx, tn_dtype dtype, const char *op, const char *name, double x);
TNI_FN tn_status tni_run(tn_ctx *ctx, const tn_call *call);
TNI_FN tn_status tni_ctx_faults(tn_ctx *ctx);

#endif
