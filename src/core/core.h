#pragma once
#include "config.h"

/* ======================================================================
   >>types    status, context, memory
   ====================================================================== */

#define TN_VERSION_MAJOR 0
#define TN_VERSION_MINOR 2
#define TN_VERSION_PATCH 0
#define TN_MAX_RANK 8
#define TN_WHY 256                   /* size of a buffer for a message: char why[TN_WHY] */

typedef struct tn_ctx     tn_ctx;
typedef struct tn_tensor  tn_tensor;
typedef struct tn_params  tn_params;
typedef struct tn_backend tn_backend;
typedef struct tn_graph   tn_graph;
typedef struct tn_comm    tn_comm;
typedef struct tn_optim   tn_optim;

typedef enum tn_status {
    TN_OK = 0,
    TN_ERR_ARG,          /* NULL, out of range, or of another context           */
    TN_ERR_SHAPE,        /* extents that do not match                           */
    TN_ERR_DTYPE,        /* a dtype that the call does not accept               */
    TN_ERR_MEMORY,       /* the allocator failed, or desc.max_bytes is reached  */
    TN_ERR_FILE,         /* could not open, read, write or rename               */
    TN_ERR_FORMAT,       /* a damaged or hostile file                           */
    TN_ERR_BACKEND,      /* the device or a kernel failed                       */
    TN_ERR_DATA,         /* a token id or label out of range                    */
    TN_ERR_NONFINITE,    /* NaN or infinity in a gradient or a matrix           */
    TN_ERR_CONVERGENCE,  /* an iteration did not converge                       */
    TN_ERR_COMM          /* another process failed or cannot be reached         */
} tn_status;

typedef enum tn_dtype {
    TN_REAL = 0,         /* the context's dtype: F32, or F64 if its desc says so */
    TN_F32, TN_F64,
    TN_BF16,             /* for storage: casts, copies, and results of ops where desc.activations is TN_BF16 */
    TN_I32
} tn_dtype;

/* The SIMD level of the cpu backend. */
typedef enum tn_simd { TN_SIMD_AUTO = 0, TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_AVX512, TN_SIMD_NEON } tn_simd;

/* The precision in which large F32 matrices are multiplied. Where a setting would not be faster, F32 is used, which is at
   least as exact, and the log says so once. F64 contexts and small shapes ignore the setting.
   cpu: all settings but TN_GEMM_F32 and TN_GEMM_TF32 split each number into bfloat16 parts and sum products of parts in
   F32. AMX-BF16 runs all of them; AVX512_BF16 is faster with TN_GEMM_BF16 only. With TN_GEMM_BF16, BF16 operands
   (desc.activations) are taken as they are, in attention of at least 16 queries, 16 keys, d = 16, dv = 16 and 8 heads of
   all texts as well, whose weights and their gradients are rounded to BF16 before they are multiplied. In products,
   infinities, NaN and numbers of at least 2^48 are multiplied as in F32. Parts and products of parts below 2^-126 count
   as zero: an error of at most that much each.
   cuda: TN_GEMM_TF32 and TN_GEMM_BF16 use tensor cores, which round F32 operands to 10 and 7 bits after the leading one
   and sum in F32; TN_GEMM_BF16X3 and _BF16X6 are F32 there. A product with a BF16 operand (desc.activations) uses
   tensor cores in every setting: its factors are exact, its sums are F32.
   The errors below are relative, in the Frobenius norm, for numbers drawn uniformly from [-1,1) at depth 1000: measured on
   the cpu, except that of TF32, which is computed from its rounding. */
typedef enum tn_gemm_precision {
    TN_GEMM_F32 = 0,     /* 4e-7                                                        */
    TN_GEMM_BF16,        /* 2e-3: one part                                              */
    TN_GEMM_BF16X3,      /* 4e-6: two parts, three products                             */
    TN_GEMM_BF16X6,      /* 2e-7: three parts, which hold all bits of F32; six products */
    TN_GEMM_TF32         /* 2.6e-4: operands rounded to the 10 bits of TF32. cpu: F32   */
} tn_gemm_precision;

/* alloc returns memory aligned for any C type, or NULL; release is given the size that was requested. */
typedef struct tn_allocator {
    void *(*alloc)(size_t bytes, void *user);
    void  (*release)(void *p, size_t bytes, void *user);
    void  *user;
} tn_allocator;

typedef enum tn_log_level { TN_LOG_INFO = 0, TN_LOG_WARN, TN_LOG_ERROR } tn_log_level;
/* A function of the program that receives the messages of the log. */
typedef void (*tn_log_fn)(void *user, tn_log_level level, const char *message);

/* A thread pool of the program: call fn(arg, task, worker) once for each task in [0,tasks), with
   worker < workers and no two calls with the same worker at the same time; return when all are done. */
typedef void (*tn_task_fn)(void *arg, int64_t task, int worker);
typedef void (*tn_parallel_for_fn)(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg);

/* The settings of a context. */
typedef struct tn_desc {
    const tn_backend *backend;          /* NULL: tn_cpu_backend()                                */
    bool              backend_required; /* if it does not open: fail, instead of running on cpu  */
    int               device;           /* number of the GPU                                     */
    tn_dtype          dtype;            /* TN_F32 (default) or TN_F64: the dtype of every layer  */
    tn_dtype          activations;      /* TN_REAL (default): as dtype. TN_BF16 (F32 contexts only): results of ops and their
                                           gradients are stored in BF16. Parameters, their gradients, optimisers,
                                           statistics, losses and the caller's tensors stay F32; sums are F32 or wider */
    uint64_t          seed;             /* of the random numbers (Philox)                        */
    int               threads;          /* at most 32767. 0: with TN_USE_THREADS the environment variable OMP_NUM_THREADS,
                                           else one per processor that the process may use; with OpenMP what it offers;
                                           else, and if parallel_for is given, 1                 */
    tn_parallel_for_fn parallel_for;    /* NULL: the context's own pool with TN_USE_THREADS, else OpenMP if compiled in,
                                           else one thread                                       */
    void             *parallel_user;
    tn_allocator      allocator;        /* {0}: malloc and free                                  */
    tn_log_fn         log;              /* NULL: silent                                          */
    void             *log_user;
    size_t            max_bytes;        /* limit for tensors and workspaces; 0: no limit. The context itself, some MB that
                                           the cpu backend keeps for products, and what is free in the memory that tensors
                                           share (malloc's, on Linux) do not count               */
    size_t            arena_bytes;      /* size of the arena's first block; 0: 4 MiB             */
    tn_simd           simd;             /* 0: as the environment variable TN_SIMD says (plain, avx2,
                                           avx512, neon; read once; another word is an error), else
                                           the processor's best                                  */
    tn_gemm_precision gemm_precision;   /* TN_GEMM_F32 (default), or products of shorter numbers */
    const tn_comm    *comm;             /* the processes that train together, see >>comm; NULL: this one alone. It must
                                           outlive the context                                   */
    bool              wgmma;            /* experimental, cuda backend on GPUs of capability 9.0: attention by kernels for
                                           sm_90a that no GPU has run yet; others ignore it. TN_WGMMA=1 or
                                           0 overrides this                                      */
} tn_desc;

typedef struct tn_memory {
    size_t   live, peak;                /* bytes held now, and the most so far, counted as max_bytes counts */
    size_t   arena;                     /* the part of `live` that is in the arena's blocks  */
    uint64_t allocations;               /* calls of the allocator and the backend so far     */
} tn_memory;

/* A tensor, see >>tensor. Programs may read the fields, not write them. */
struct tn_tensor {
    tn_ctx    *ctx;                     /* whose backend owns the bytes                  */
    tn_dtype   dtype;                   /* never TN_REAL                                 */
    int        rank;
    int64_t    shape[TN_MAX_RANK];
    int64_t    strides[TN_MAX_RANK];
    void      *data;
    tn_tensor *grad;                    /* same shape, or NULL                           */
    tn_tensor *base;                    /* of a view: the tensor whose bytes it shares   */
    size_t     bytes;                   /* owned by this tensor, 0 for a view            */
    struct tni_compact *compact;        /* internal: see tn_compact                      */
    uint32_t   flags, alive;            /* internal                                      */
    tn_tensor *prev, *next;             /* internal                                      */
};

/* Creates a context. A NULL desc means all defaults. On failure *ctx is NULL, and why (may be NULL) says what failed. */
TN_API tn_status   tn_ctx_create(const tn_desc *desc, tn_ctx **ctx, char why[TN_WHY]);
/* Frees the context and everything that it owns: tensors, parameters, operators. NULL is allowed. */
TN_API void        tn_ctx_destroy(tn_ctx *ctx);
TN_API tn_status   tn_ctx_status(const tn_ctx *ctx);           /* the first error since the last clear, or TN_OK   */
TN_API const char *tn_ctx_error(const tn_ctx *ctx);            /* the message of that error; "" if there is none   */
TN_API void        tn_ctx_clear_error(tn_ctx *ctx);            /* forgets the error, so that the next one is kept  */
/* Makes a text that comes from a file fit for a terminal, in place: a "?" replaces each character that a terminal obeys or that
   shows something else than what is there (controls, C0 and C1; marks of the direction of writing; format characters without
   width; separators of lines), and each byte that is not UTF-8. lines: newline, tab and the joiners U+200C and U+200D stay. Returns
   the new length, which is not larger; a zero follows if it is smaller. All messages of a context have passed through it. */
TN_API size_t      tn_printable(char *text, size_t bytes, bool lines);
/* Waits for the device and reports what it found: bad token ids, non-finite gradients. */
TN_API tn_status   tn_ctx_sync(tn_ctx *ctx);
/* Frees all arena tensors and the tape, and keeps their memory for the next step. */
TN_API void        tn_ctx_reset(tn_ctx *ctx);
TN_API void        tn_ctx_seed(tn_ctx *ctx, uint64_t seed);    /* restarts the random numbers from this seed       */
TN_API tn_memory   tn_ctx_memory(const tn_ctx *ctx);           /* how much memory the context holds                */
TN_API tn_dtype    tn_ctx_dtype(const tn_ctx *ctx);            /* TN_F32 or TN_F64                                 */
TN_API tn_dtype    tn_ctx_activations(const tn_ctx *ctx);      /* the dtype of the results of ops; never TN_REAL   */
TN_API int         tn_ctx_threads(const tn_ctx *ctx);          /* the number of threads                            */
TN_API const char *tn_ctx_backend_name(const tn_ctx *ctx);     /* "cpu", "reference" or "cuda": a constant string  */
TN_API const char *tn_ctx_simd_name(const tn_ctx *ctx);        /* "plain", "avx2", "avx512" or "neon": a constant  */
/* Names the device of the backend, "NVIDIA H200, sm_90"; "" on cpu. The string belongs to the context. */
TN_API TN_EXPERIMENTAL const char *tn_ctx_device_name(const tn_ctx *ctx);
TN_API const char *tn_status_name(tn_status s);                /* names a status: a constant string                */
TN_API const char *tn_version(void);                           /* the version of the implementation, "0.2.0"       */
/* Names a dtype: "REAL", "F32", "F64", "BF16" or "I32", else "?". The string is a constant. */
TN_API const char *tn_dtype_name(tn_dtype dtype);

/* What this process has sent since the context was created, without the 32 bytes for each other process with which a collective
   begins. Of a carrier's own collectives: what a ring sends. */
typedef struct tn_traffic { uint64_t calls, bytes; } tn_traffic;
TN_API TN_EXPERIMENTAL tn_traffic tn_ctx_traffic(const tn_ctx *ctx);

/* A position in the arena. */
typedef struct tn_mark { size_t head_block, head_used, data_block, data_used; uint64_t resets; } tn_mark;
TN_API tn_mark     tn_arena_mark(const tn_ctx *ctx);           /* the arena's present position                     */
/* Frees the arena tensors that were made after the mark. TN_ERR_ARG while recording, or if a reset came after it. */
TN_API tn_status   tn_arena_release(tn_ctx *ctx, tn_mark mark);

/* ======================================================================
   >>backend  the kernel table
   Only kernels touch the bytes of tensors. All kernels have one signature: inputs and outputs are
   views, numbers are in a small parameter block. A backend is a constant table. A kernel that it leaves
   NULL is composed from its other kernels or runs on the host: slower, but correct. The log says so once.
   ====================================================================== */

/* X(ENUM, name, parameter block). Kernels are explained at their implementation, >>op-NAME.
   A kernel with `accumulate` in its line can add to its first output instead of overwriting it; those of attention add to
   all three gradients, or overwrite all three. */
#define TN_KERNELS(X) TN_KERNELS_BY(X, X, X, X)
#define TN_KERNELS_BY(X, T, S, U) /* T: kernels that only training needs; S and U: the same of sequences */ \
    X(COPY,                   copy)                   /* casts, any strides                     */ \
    X(FILL,                   fill)                   /* f0 value                               */ \
    X(UNIFORM,                uniform)                /* f0 low, f1 high; i0 key, i1 call, i2 first */ \
    X(NORMAL,                 normal)                 /* f0 mean, f1 std; i0 key, i1 call, i2 first */ \
    X(ADD,                    add)                    /* f0 a + f1 b, broadcast; accumulate     */ \
    X(MUL,                    mul)                    /* f0 a b, broadcast; accumulate          */ \
    X(DIV,                    div)                    /* f0 a / b, broadcast; accumulate        */ \
    X(WHERE,                  where)                  /* condition I32, broadcast; accumulate   */ \
    X(SUM,                    sum)                    /* f0 * sum over broadcast axes; accumulate */ \
    X(ACT,                    act)                    /* i0 tn_act                              */ \
    T(ACT_BACKWARD,           act_backward)           /* i0 tn_act; accumulate                  */ \
    X(GLU,                    glu)                    /* i0 tn_act                              */ \
    T(GLU_BACKWARD,           glu_backward)           /* i0 tn_act; accumulate                  */ \
    X(PROD,                   prod)                   /* i0 number of factors                   */ \
    T(PROD_BACKWARD,          prod_backward)          /* i0 number of factors; accumulate       */ \
    X(GEMM,                   gemm)                   /* f0 alpha, f1 beta; may use a copy of B in fewer bytes */ \
    X(EMBED,                  embed)                  /* i0 1: the call of a gather, in messages  */ \
    T(EMBED_BACKWARD,         embed_backward)         /* always adds                            */ \
    X(RMSNORM,                rmsnorm)                /* f0 eps                                 */ \
    T(RMSNORM_BACKWARD,       rmsnorm_backward)       /* accumulate                             */ \
    X(RESIDUAL_RMSNORM,       residual_rmsnorm)       /* f0 eps                                 */ \
    X(LAYERNORM,              layernorm)              /* f0 eps                                 */ \
    T(LAYERNORM_BACKWARD,     layernorm_backward)     /* accumulate                             */ \
    X(SOFTMAX,                softmax)                /* i0 1: log-softmax                      */ \
    T(SOFTMAX_BACKWARD,       softmax_backward)       /* the same; accumulate                   */ \
    T(DROPOUT,                dropout)                /* f0 p; i0 key, i1 call, i2 first; accumulate */ \
    X(CROSS_ENTROPY,          cross_entropy)          \
    S(CHAIN,                  chain)                  \
    U(CHAIN_BACKWARD,         chain_backward)         /* accumulate                             */ \
    S(SCAN,                   scan)                   /* i0 reverse                             */ \
    U(SCAN_BACKWARD,          scan_backward)          /* the same; accumulate                   */ \
    S(SCAN_STATES,            scan_states)            /* i0 reverse, i1 the last state alone    */ \
    U(SCAN_STATES_BACKWARD,   scan_states_backward)   /* the same; accumulate; i2: that of dcores */ \
    U(SCAN_CORES,             scan_cores)             /* i0 reverse; accumulate                 */ \
    S(ROPE,                   rope)                   /* f0 base, f1 eps (< 0: no norm), f2 ... f5 scaling: factor, low, */ \
                                                      /* high, context; i0 first, i1 no rotation */ \
    U(ROPE_BACKWARD,          rope_backward)          /* the same; accumulate                   */ \
    S(ATTENTION,              attention)              /* i0 kind, i1 causal, i2 window, i3 past; */ \
    U(ATTENTION_BACKWARD,     attention_backward)     /*   f0 scale, f1 T0, f2 row scale, f3 eps; accumulate */ \
    S(ATTENTION_LINEAR,       attention_linear)       /* the same numbers                       */ \
    U(ATTENTION_LINEAR_BACKWARD, attention_linear_backward) /* the same; accumulate             */ \
    X(ARGMAX,                 argmax)                 \
    X(ACCURACY,               accuracy)               \
    T(SUMSQ,                  sumsq)                  /* i0 parameter's index; i1, i2: the series */ \
    T(STEP_BEGIN,             step_begin)             /* f0 clip norm                           */ \
    T(ADAMW,                  adamw)                  /* i1, i2: the series                     */ \
    T(SGD,                    sgd)                    /* the same                               */ \
    T(MUON_BEGIN,             muon_begin)             /* f0 momentum (< 0: the scalars'), f1 Nesterov */ \
    T(MUON_END,               muon_end)               /* f0 scale, f3 decay, f4 lr scale        */ \
    X(TICK,                   tick)                   /* i0 how far the random clock advances   */

typedef enum tn_kernel {
#define TNI_X(ENUM, name) TN_KERNEL_##ENUM,
    TN_KERNELS(TNI_X)
#undef TNI_X
    TN_KERNEL_COUNT
} tn_kernel;

#define TN_BACKEND_ABI 8
#define TN_CALL_IN  6
#define TN_CALL_OUT 5

/* An operand of a kernel. */
typedef struct tn_view {
    void    *data;                   /* backend handle of element 0; NULL: operand absent */
    tn_dtype dtype;                  /* never TN_REAL                                     */
    int      rank;
    int64_t  shape[TN_MAX_RANK];
    int64_t  strides[TN_MAX_RANK];   /* in elements                                       */
} tn_view;

/* A kernel call: operands and parameter block. */
typedef struct tn_call {
    tn_kernel kernel;
    int       n_in, n_out;
    tn_view   in[TN_CALL_IN], out[TN_CALL_OUT];
    int64_t   i[4];                  /* i0 ... of TN_KERNELS   */
    double    f[6];                  /* f0 ...                 */
    bool      accumulate;            /* out[0] += instead of =; attention: out[0] to out[2] */
} tn_call;

typedef tn_status (*tn_kernel_fn)(void *state, const tn_call *call);

struct tn_backend {
    int         abi;                                  /* TN_BACKEND_ABI                            */
    const char *name;
    bool        host;                                 /* handles are plain pointers of this process */
    bool        bf16;                                 /* kernels accept BF16 operands, or return TN_ERR_DTYPE before they
                                                         write anything; false: all but COPY and FILL get F32 copies */
    bool        own_scratch;                          /* attention kernels use scratch of the backend; false: their last
                                                         output is a workspace, as the reference kernels need it */
    int64_t     shadow;                               /* GEMM reads a BF16 copy of an F32 matrix B, operand 3, instead of
                                                         rounding B, if B has at least this extent both ways; updates write
                                                         such copies of parameters. 0: there are no copies */
    tn_status (*open)(const tn_desc *desc, void **state, char why[TN_WHY]);
    void      (*close)(void *state);
    void     *(*alloc)(void *state, size_t bytes);    /* 64-byte aligned, or NULL                  */
    void      (*release)(void *state, void *p, size_t bytes);
    tn_status (*upload)(void *state, void *dst, const void *src, size_t bytes);
    tn_status (*download)(void *state, void *dst, const void *src, size_t bytes);
    /* Waits for the device; returns the first error since the last call, of a kernel or a copy too, with its message in
       why, and clears it. Does not wait during a capture. NULL: there is nothing to wait for or to report. */
    tn_status (*sync)(void *state, char why[TN_WHY]);
    /* Graphs: all four or none; none with `host`. Between begin and end kernels are only recorded. end returns the recording
       and replay runs it, with the same numbers at the same addresses. The backend's scratch must not move while a graph
       exists that was captured with it. A capture that fails leaves nothing to release. */
    tn_status (*capture_begin)(void *state, char why[TN_WHY]);
    tn_status (*capture_end)(void *state, void **graph, char why[TN_WHY]);
    tn_status (*replay)(void *state, void *graph);
    void      (*graph_release)(void *state, void *graph);
    void      (*device)(void *state, char name[128]); /* the device and its architecture; NULL: no name        */
    tn_kernel_fn fn[TN_KERNEL_COUNT];
    bool        last_states;                          /* SCAN_STATES and its backward pass take i1 */
};

TN_API const tn_backend *tn_reference_backend(void);  /* plain C on one thread, written to be read        */
TN_API const tn_backend *tn_cpu_backend(void);        /* SIMD kernels on several threads: the default     */
/* The backend for NVIDIA GPUs; desc.device selects one. Compile tensornet_cuda.cu, which defines this function, with nvcc
   and link it; tensornet.h itself never calls it. Without a driver, such a GPU, or code for it in that file, the backend
   does not open, and the context runs on cpu; the log has the reason. */
extern const tn_backend *tn_cuda_backend(void);
TN_API const char       *tn_kernel_name(tn_kernel k); /* "gemm" for TN_KERNEL_GEMM: a constant string      */
/* Counts how often the context has run kernel k. A composed kernel counts as the kernels that it is made of. */
TN_API uint64_t          tn_ctx_kernel_calls(const tn_ctx *ctx, tn_kernel k);
