/* tensornet.h - tensor-network neural layers in one C file. v0.1.0. No warranty; licence at the end.

   >>readme

   Layers whose whole computation is a tensor: build them, train them, fold a network into one object, and
   read that object from its weights: which inputs interact, along which eigenvectors.

   USE
       In ONE .c or .cpp file                        everywhere else
           #define TENSORNET_IMPLEMENTATION              #include "tensornet.h"
           #include "tensornet.h"
       cc -O2 program.c -lm         C99 or C++17, no other library. -fopenmp: threads. -O0 is seven to ten times slower.

       tn_ctx *ctx;                                        holds memory, backend, first error
       tn_ctx_create(&ctx, NULL, NULL);
       tn_params *params = tn_params_create(ctx);          y = P ((W x + b) (x) (V x + c)) + p
       tn_mlp_desc desc = { .in = 784, .hidden = 256, .out = 10, .bias = true, .out_bias = true };
       tn_mlp layer;
       tn_mlp_init(params, "mlp", &layer, &desc);
       tn_optim *optim = tn_optim_create(params, NULL);    AdamW
       for (each batch) {
           tn_ctx_reset(ctx);                              last step's tensors go, their memory stays
           tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, n, 784), *y = tn_tensor_1d(ctx, TN_I32, n);
           tn_write(x, TN_F32, pixels, n * 784);
           tn_write(y, TN_I32, labels, n);
           tn_record(ctx);
           tn_tensor *loss = tn_cross_entropy(ctx, tn_mlp_forward(ctx, &layer, x), y);
           if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) puts(tn_ctx_error(ctx));
       }
       tn_cp *cp = tn_cp_from_mlp(ctx, &layer);            the layer as one tensor on [x;1]
       tn_tensor *q = tn_cp_interaction_of(cp, 3);         the matrix behind output 3
       tn_ctx_destroy(ctx);                                frees everything

   CONTENTS: search for a tag; both halves keep the same order, lowest first
       DECLARATIONS                                IMPLEMENTATION
       >>readme   use, macros, limits
       >>types    status, context, memory          >>platform  numbers, text, errors
                                                   >>memory  >>rng  >>threads
       >>backend  the kernel table                 >>cpu  >>cpu-pass   packed GEMM, SIMD kernels
                                                   >>dispatch  >>context
       >>tensor   make, view, read, format         >>tensor-impl
       >>ops  >>grad  functions, their gradients   >>tape  >>ops-impl  shape, forward, backward together
       >>decomp   QR, symmetric eigen, SVD,        >>decomp-impl
                  Lanczos
       >>layers   parameters, linear, norm, mlp,   >>layers-impl
                  product, quadratic, modifier
       >>operator tn_cp: fold, split, eigen        >>operator-impl
       >>optim    AdamW, SGD, schedules            >>optim-impl
       >>io       safetensors, npy, idx            >>io-impl
       >>image    matrices, curves as pictures     >>image-impl

   MACROS, defined before the include; none of them changes a struct
       TENSORNET_IMPLEMENTATION  this file gets the code
       TN_STATIC                 everything is static: with the implementation in the same file
       TN_API                    what stands before every public declaration (a dllexport, say); default extern
       TN_ASSERT(condition)      default: nothing
       TN_NO_STDIO               no paths and no stdio; memory and callbacks remain
       TN_NO_THREADS             no OpenMP even where it is compiled in
       TN_USE_BLAS               large products, eigh and SVD by BLAS and LAPACK (link them); equal bits are their affair
       TN_DEBUG                  the dead tensors of a reset arena are told from live ones, their numbers are NaN
       TN_ALLOW_FAST_MATH        compile under -ffast-math all the same: what is said of bits and NaN then fails

   LIMITS
       Ranks up to 8. One context is used by one thread at a time; two contexts need no lock. Compute is F32 or F64 by
       context. What is done is recorded only between tn_record and tn_backward. The library never prints or exits:
       a failed call returns NULL or a status, the context keeps the first message, NULL operands pass it on.
       OpenMP's idle threads spin by default: on a busy machine set OMP_WAIT_POLICY=passive in the environment.

   docs/guide.md teaches, docs/math.md explains, docs/internals.md is for those who change this file.
*/

#ifndef TENSORNET_H
#define TENSORNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TN_API
#if defined(TN_STATIC) && defined(__GNUC__)
#define TN_API static __attribute__((unused))
#elif defined(TN_STATIC)
#define TN_API static
#else
#define TN_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ======================================================================
   >>types    status, context, memory
   ====================================================================== */

#define TN_VERSION_MAJOR 0
#define TN_VERSION_MINOR 1
#define TN_VERSION_PATCH 0
#define TN_MAX_RANK 8

typedef struct tn_ctx     tn_ctx;
typedef struct tn_tensor  tn_tensor;
typedef struct tn_params  tn_params;
typedef struct tn_backend tn_backend;

typedef enum tn_status {
    TN_OK = 0,
    TN_ERR_ARG,          /* NULL, out of range, of another context            */
    TN_ERR_SHAPE,        /* extents that do not fit                           */
    TN_ERR_DTYPE,        /* a dtype the call cannot take                      */
    TN_ERR_MEMORY,       /* the allocator said no, or desc.max_bytes is spent */
    TN_ERR_FILE,         /* could not open, read, write or rename             */
    TN_ERR_FORMAT,       /* a damaged or hostile file                         */
    TN_ERR_BACKEND,      /* the device or a kernel failed                     */
    TN_ERR_DATA,         /* a token id or label outside its table             */
    TN_ERR_NONFINITE,    /* NaN or infinity in a gradient or a matrix         */
    TN_ERR_CONVERGENCE   /* an iteration did not converge                     */
} tn_status;

typedef enum tn_dtype {
    TN_REAL = 0,         /* the context's own: F32, or F64 if its desc said so */
    TN_F32, TN_F64,
    TN_BF16,             /* storage only: cast and copy                        */
    TN_I32
} tn_dtype;

typedef enum tn_simd { TN_SIMD_BEST = 0, TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_AVX512, TN_SIMD_NEON } tn_simd;

/* How the cpu backend multiplies large F32 matrices. The others split each number into bfloat16 parts and sum products
   of parts in F32. They run where the processor has a unit that gains by it: AMX-BF16 for all, AVX512_BF16 for
   TN_GEMM_BF16 alone; elsewhere they are F32, which is at least as exact, and the log says so once. F64 contexts and
   small shapes ignore the setting. Errors: Frobenius norm of the difference over that of the product, for numbers drawn
   evenly from [-1,1), measured at depth 1000. Infinities, NaN and numbers of 2^48 and more are multiplied as in F32.
   Parts and products of parts below 2^-126 count as zero: an error of at most that much each. */
typedef enum tn_gemm_precision {
    TN_GEMM_F32 = 0,     /* 4e-7                                                        */
    TN_GEMM_BF16,        /* 2e-3: one part                                              */
    TN_GEMM_BF16X3,      /* 4e-6: two parts, three products                             */
    TN_GEMM_BF16X6       /* 2e-7: three parts, which hold all bits of F32; six products */
} tn_gemm_precision;

/* alloc returns memory aligned for any C type, or NULL; release gets the size that was asked for. */
typedef struct tn_allocator {
    void *(*alloc)(size_t bytes, void *user);
    void  (*release)(void *p, size_t bytes, void *user);
    void  *user;
} tn_allocator;

typedef enum tn_log_level { TN_LOG_INFO = 0, TN_LOG_WARN, TN_LOG_ERROR } tn_log_level;
typedef void (*tn_log_fn)(void *user, tn_log_level level, const char *message);

/* A host program's own pool: call fn(arg, task, worker) once for each task in [0,tasks), with
   worker < workers and no two calls with the same worker at the same time; return when all are done. */
typedef void (*tn_task_fn)(void *arg, int64_t task, int worker);
typedef void (*tn_parallel_for_fn)(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg);

typedef struct tn_desc {
    const tn_backend *backend;          /* NULL: tn_cpu_backend()                                */
    bool              backend_required; /* if it does not open: fail, instead of running on cpu  */
    int               device;
    tn_dtype          dtype;            /* TN_F32 (default) or TN_F64: every layer computes in it */
    uint64_t          seed;             /* of the Philox generator                               */
    int               threads;          /* 0: all that OpenMP offers, else 1                     */
    tn_parallel_for_fn parallel_for;    /* NULL: OpenMP when compiled in, else one thread        */
    void             *parallel_user;
    tn_allocator      allocator;        /* {0}: malloc and free                                  */
    tn_log_fn         log;              /* NULL: silent                                          */
    void             *log_user;
    size_t            max_bytes;        /* of tensors and workspaces; 0: no limit                */
    size_t            arena_bytes;      /* the arena's first block; 0: 4 MiB                     */
    tn_simd           simd;             /* 0: the environment's TN_SIMD (plain, avx2, avx512,
                                           neon), read once, else the best this processor has    */
    tn_gemm_precision gemm_precision;   /* TN_GEMM_F32 (default), or products of bfloat16 parts  */
} tn_desc;

typedef struct tn_memory {
    size_t   live, peak;                /* bytes now held from the allocator and the backend */
    size_t   arena;                     /* of them: the arena's blocks                       */
    uint64_t allocations;               /* calls of the allocator and the backend so far     */
} tn_memory;

/* A NULL desc means all defaults. On failure *ctx is NULL, and why (256 bytes, or NULL) says what failed. */
TN_API tn_status   tn_ctx_create(tn_ctx **ctx, const tn_desc *desc, char *why);
/* Frees everything that belongs to the context: tensors, parameters, operators. NULL is fine. */
TN_API void        tn_ctx_destroy(tn_ctx *ctx);
/* The first error since the last clear: its status and its message ("" when there is none). */
TN_API tn_status   tn_ctx_status(const tn_ctx *ctx);
TN_API const char *tn_ctx_error(const tn_ctx *ctx);
TN_API void        tn_ctx_clear_error(tn_ctx *ctx);
/* Waits for the device and reports what it found: bad token ids, non-finite gradients. */
TN_API tn_status   tn_ctx_sync(tn_ctx *ctx);
/* Drops all arena tensors and the tape; keeps the memory for the next step. */
TN_API void        tn_ctx_reset(tn_ctx *ctx);
/* The random stream starts again from this seed. */
TN_API void        tn_ctx_seed(tn_ctx *ctx, uint64_t seed);
/* What it holds and how it computes. Strings are constants of the program, never freed. */
TN_API tn_memory   tn_ctx_memory(const tn_ctx *ctx);
TN_API tn_dtype    tn_ctx_dtype(const tn_ctx *ctx);
TN_API int         tn_ctx_threads(const tn_ctx *ctx);
TN_API const char *tn_ctx_backend_name(const tn_ctx *ctx);
TN_API const char *tn_ctx_simd_name(const tn_ctx *ctx);
TN_API const char *tn_status_name(tn_status s);
TN_API const char *tn_version(void);

/* A mark inside the arena: what was made after it goes at its release, what was made before stays. TN_ERR_ARG while
   recording, and for a mark from before the last reset. */
typedef struct tn_mark { size_t head_block, head_used, data_block, data_used; uint64_t resets; } tn_mark;
TN_API tn_mark     tn_arena_mark(tn_ctx *ctx);
TN_API tn_status   tn_arena_release(tn_ctx *ctx, tn_mark mark);

/* ======================================================================
   >>backend  the kernel table
   Tensor bytes are touched by kernels only. All kernels have one signature; inputs and outputs are
   views, numbers travel in a small block. A backend is a constant table: what it leaves NULL is
   composed from its other rows, or runs on the host (logged once): slow, never wrong.
   ====================================================================== */

/* X(ENUM, name, what the parameter block holds). Rows are explained at their implementation, >>op-NAME.
   Every kernel that has an `accumulate` in its row adds to its first output instead of overwriting it. */
#define TN_KERNELS(X) \
    X(COPY,                   copy)                   /* casts, any strides                     */ \
    X(FILL,                   fill)                   /* f0 value                               */ \
    X(UNIFORM,                uniform)                /* f0 low, f1 high; i0 key, i1 call       */ \
    X(NORMAL,                 normal)                 /* f0 mean, f1 std; i0 key, i1 call       */ \
    X(ADD,                    add)                    /* f0 a + f1 b, broadcast; accumulate     */ \
    X(MUL,                    mul)                    /* f0 a b, broadcast; accumulate          */ \
    X(SUM,                    sum)                    /* f0 * sum over broadcast axes; accumulate */ \
    X(ACT,                    act)                    /* i0 tn_act                              */ \
    X(ACT_BACKWARD,           act_backward)           /* i0 tn_act; accumulate                  */ \
    X(GLU,                    glu)                    /* i0 tn_act                              */ \
    X(GLU_BACKWARD,           glu_backward)           /* i0 tn_act; accumulate                  */ \
    X(PROD,                   prod)                   /* i0 how many factors                    */ \
    X(PROD_BACKWARD,          prod_backward)          /* i0 how many factors; accumulate        */ \
    X(GEMM,                   gemm)                   /* f0 alpha, f1 beta                      */ \
    X(EMBED,                  embed)                  \
    X(EMBED_BACKWARD,         embed_backward)         \
    X(RMSNORM,                rmsnorm)                /* f0 eps                                 */ \
    X(RMSNORM_BACKWARD,       rmsnorm_backward)       /* accumulate                             */ \
    X(LAYERNORM,              layernorm)              /* f0 eps                                 */ \
    X(LAYERNORM_BACKWARD,     layernorm_backward)     /* accumulate                             */ \
    X(DROPOUT,                dropout)                /* f0 p; i0 key, i1 call; accumulate      */ \
    X(CROSS_ENTROPY,          cross_entropy)          \
    X(CHAIN,                  chain)                  \
    X(CHAIN_BACKWARD,         chain_backward)         /* accumulate                             */ \
    X(ROPE,                   rope)                   /* f0 base, f1 eps (< 0: no norm); i0 first, i1 no rotation */ \
    X(ROPE_BACKWARD,          rope_backward)          /* the same; accumulate                   */ \
    X(ATTENTION,              attention)              /* i0 kind, i1 causal, i2 window, i3 past; */ \
    X(ATTENTION_BACKWARD,     attention_backward)     /*   f0 scale, f1 T0, f2 row scale, f3 eps */ \
    X(ATTENTION_LINEAR,       attention_linear)       /* the same numbers                       */ \
    X(ATTENTION_LINEAR_BACKWARD, attention_linear_backward) \
    X(ARGMAX,                 argmax)                 \
    X(ACCURACY,               accuracy)               \
    X(SUMSQ,                  sumsq)                  /* i0 parameter's index, i1 step          */ \
    X(STEP_BEGIN,             step_begin)             /* f0 clip norm                           */ \
    X(ADAMW,                  adamw)                  \
    X(SGD,                    sgd)                    \
    X(TICK,                   tick)                   /* i0 by how much                         */

typedef enum tn_kernel {
#define TNI_X(ENUM, name) TN_KERNEL_##ENUM,
    TN_KERNELS(TNI_X)
#undef TNI_X
    TN_KERNEL_COUNT
} tn_kernel;

#define TN_BACKEND_ABI 3
#define TN_CALL_IN  6
#define TN_CALL_OUT 4

typedef struct tn_view {
    void    *data;                   /* backend handle of element 0; NULL: operand absent */
    tn_dtype dtype;                  /* never TN_REAL                                     */
    int      rank;
    int64_t  shape[TN_MAX_RANK];
    int64_t  strides[TN_MAX_RANK];   /* in elements                                       */
} tn_view;

typedef struct tn_call {
    tn_kernel kernel;
    int       n_in, n_out;
    tn_view   in[TN_CALL_IN], out[TN_CALL_OUT];
    int64_t   i[4];
    double    f[6];
    bool      accumulate;            /* out[0] += instead of = */
} tn_call;

typedef tn_status (*tn_kernel_fn)(void *state, const tn_call *call);

struct tn_backend {
    int         abi;                                  /* TN_BACKEND_ABI                            */
    const char *name;
    bool        host;                                 /* handles are plain pointers of this process */
    tn_status (*open)(const tn_desc *desc, void **state, char why[256]);
    void      (*close)(void *state);
    void     *(*alloc)(void *state, size_t bytes);    /* 64-byte aligned, or NULL                  */
    void      (*release)(void *state, void *p, size_t bytes);
    tn_status (*upload)(void *state, void *dst, const void *src, size_t bytes);
    tn_status (*download)(void *state, void *dst, const void *src, size_t bytes);
    tn_status (*sync)(void *state, char why[256]);    /* NULL: nothing to wait for                 */
    tn_kernel_fn fn[TN_KERNEL_COUNT];
};

TN_API const tn_backend *tn_reference_backend(void);  /* one thread, written to be read          */
TN_API const tn_backend *tn_cpu_backend(void);        /* packed SIMD GEMM, fused kernels; default */
TN_API const char       *tn_kernel_name(tn_kernel k);
/* How often this context has run kernel k (fallbacks and compositions count as what they run). */
TN_API uint64_t          tn_ctx_kernel_calls(const tn_ctx *ctx, tn_kernel k);

/* ======================================================================
   >>tensor   make, view, read, write, format
   Row-major unless a view says otherwise; strides count elements. Fields are for reading. `data` is
   the backend's handle: only kernels follow it. A dead tensor has no context that could keep a message: calls that
   get nothing else return NULL, TN_ERR_ARG, -1 or NaN and no more.
   ====================================================================== */

struct tn_tensor {
    tn_ctx    *ctx;                     /* whose backend owns the bytes                  */
    tn_dtype   dtype;                   /* never TN_REAL                                 */
    int        rank;
    int64_t    shape[TN_MAX_RANK];
    int64_t    strides[TN_MAX_RANK];
    void      *data;
    tn_tensor *grad;                    /* same shape, or NULL                           */
    tn_tensor *base;                    /* of a view: the tensor it looks into           */
    size_t     bytes;                   /* owned by this tensor, 0 for a view            */
    uint32_t   flags, alive;            /* internal                                      */
    tn_tensor *prev, *next;             /* internal                                      */
};

/* Arena tensors live until tn_ctx_reset (or the release of a mark); their bytes are not initialised. */
TN_API tn_tensor *tn_tensor_new(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape);
TN_API tn_tensor *tn_tensor_1d(tn_ctx *ctx, tn_dtype dtype, int64_t n);
TN_API tn_tensor *tn_tensor_2d(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m);
TN_API tn_tensor *tn_tensor_3d(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m, int64_t k);
/* Owned tensors live until tn_tensor_destroy or the end of the context. Zeroed. */
TN_API tn_tensor *tn_tensor_create(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape);
TN_API void       tn_tensor_destroy(tn_tensor *t);
/* An owned, contiguous copy of any tensor or view. */
TN_API tn_tensor *tn_tensor_keep(const tn_tensor *t);

TN_API int64_t    tn_tensor_count(const tn_tensor *t);        /* elements; 1 for rank 0 */
TN_API bool       tn_tensor_contiguous(const tn_tensor *t);

/* Host memory to tensor and back, row-major, `count` elements of type `as` (TN_REAL: the context's),
   converted. I32 from a float must be integral. Both wait for the device. */
TN_API tn_status  tn_write(tn_tensor *t, tn_dtype as, const void *src, int64_t count);
TN_API tn_status  tn_read(const tn_tensor *t, tn_dtype as, void *dst, int64_t count);
TN_API double     tn_item(const tn_tensor *t);                /* the only element of t; NaN on error */

/* Views: no bytes move. Arena headers over the same data. A negative axis counts from the last, here and in all that
   takes one. tn_slice takes [start,stop), 0 <= start <= stop <= extent. */
TN_API tn_tensor *tn_slice(tn_tensor *t, int axis, int64_t start, int64_t stop);
TN_API tn_tensor *tn_slice_step(tn_tensor *t, int axis, int64_t start, int64_t stop, int64_t step); /* step < 0 too */
TN_API tn_tensor *tn_transpose(tn_tensor *t, int axis_a, int axis_b);
TN_API tn_tensor *tn_reshape(tn_tensor *t, int rank, const int64_t *shape);  /* one extent may be -1; contiguous t */
TN_API tn_tensor *tn_reshape_2d(tn_tensor *t, int64_t n, int64_t m);

/* Writes like NumPy: nested brackets, columns aligned, long axes shortened with "...". Returns the
   length it would need without the final zero, as snprintf does; -1 on error. */
TN_API int64_t    tn_tensor_format(const tn_tensor *t, char *dst, size_t bytes);

/* ======================================================================
   >>ops      pure functions of tensors
   Results are arena tensors. Any NULL operand gives NULL: check once per step. Float operands have
   the context's dtype, ids and labels are I32. Leading axes of row-wise ops are flattened.
   ====================================================================== */

typedef enum tn_act {
    TN_ACT_NONE = 0, TN_ACT_RELU, TN_ACT_RELU2, TN_ACT_GELU, TN_ACT_SWISH, TN_ACT_SIGMOID,
    TN_ACT_ABS,                 /* |x|; slope 0 at 0                                              */
    TN_ACT_ROUND,               /* to the nearest integer, ties to even; slope 1 (straight-through) */
    TN_ACT_EXP,                 /* e^x                                                            */
    TN_ACT_TANH
} tn_act;

TN_API tn_tensor *tn_copy(tn_ctx *ctx, tn_tensor *a);                          /* contiguous                  */
TN_API tn_tensor *tn_cast(tn_ctx *ctx, tn_tensor *a, tn_dtype dtype);          /* differentiable to itself only */
TN_API tn_tensor *tn_full(tn_ctx *ctx, int rank, const int64_t *shape, double value);
TN_API tn_tensor *tn_uniform(tn_ctx *ctx, int rank, const int64_t *shape, double low, double high);
TN_API tn_tensor *tn_normal(tn_ctx *ctx, int rank, const int64_t *shape, double mean, double std);
TN_API tn_tensor *tn_add(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);             /* broadcast as in NumPy       */
TN_API tn_tensor *tn_sub(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_mul(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_scale(tn_ctx *ctx, tn_tensor *a, double factor);
TN_API tn_tensor *tn_sum(tn_ctx *ctx, tn_tensor *a);                           /* of all elements -> []       */
TN_API tn_tensor *tn_mean(tn_ctx *ctx, tn_tensor *a);
TN_API tn_tensor *tn_sum_axis(tn_ctx *ctx, tn_tensor *a, int axis);            /* the axis goes               */
TN_API tn_tensor *tn_matmul(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);          /* [..,m,k] [..,k,n] -> [..,m,n] */
/* y = x w^T + b.   x [..,n]  w [m,n]  b [m] or NULL -> [..,m] */
TN_API tn_tensor *tn_affine(tn_ctx *ctx, tn_tensor *x, tn_tensor *w, tn_tensor *b);
TN_API tn_tensor *tn_activation(tn_ctx *ctx, tn_tensor *x, tn_act kind);
/* y = act(x[..,:h]) (x) x[..,h:]: bilinear with TN_ACT_NONE.   x [..,2h] -> [..,h]   Shazeer 2020 */
TN_API tn_tensor *tn_glu(tn_ctx *ctx, tn_tensor *x, tn_act kind);
/* y = x[..,:h] (x) x[..,h:2h] (x) ...: the product of the k >= 1 equal parts of the last axis.   x [..,k h] -> [..,h] */
TN_API tn_tensor *tn_prod(tn_ctx *ctx, tn_tensor *x, int64_t k);
/* [x;1]: appends a column of ones to the last axis */
TN_API tn_tensor *tn_append_one(tn_ctx *ctx, tn_tensor *x);
/* rows of a table.   table [v,d]  ids I32 [..] -> [..,d]   an id outside [0,v) gives zeros and an error at sync */
TN_API tn_tensor *tn_embed(tn_ctx *ctx, tn_tensor *table, tn_tensor *ids);
/* x / sqrt(mean x^2 + eps) * gain.   gain [c] or NULL; eps >= 0, and with 0 a row of zeros gives NaN.
   Zhang & Sennrich 2019 */
TN_API tn_tensor *tn_rmsnorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *gain, double eps);
/* (x - mean(x)) / sqrt(var(x) + eps) * gain + bias, over the last axis.   gain, bias [c] or NULL; eps >= 0, and with 0
   a row of equal numbers gives NaN.   Ba, Kiros & Hinton 2016 */
TN_API tn_tensor *tn_layernorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *gain, tn_tensor *bias, double eps);
/* Act only while recording; else they return x. */
TN_API tn_tensor *tn_noise(tn_ctx *ctx, tn_tensor *x, double std);             /* x + std * normal            */
TN_API tn_tensor *tn_dropout(tn_ctx *ctx, tn_tensor *x, double p);             /* inverted: kept / (1-p)      */
/* The product of a chain of matrices, m [b,n,d,d], n >= 1, with its scale apart, so that long chains neither overflow
   nor vanish: M[b,0] M[b,1] ... M[b,n-1] = exp(log_norm[b]) y[b].   y [b,d,d] of Frobenius norm 1; log_norm [b], or NULL
   if not wanted. Where the product is zero y is zero, log_norm -inf and the gradient zero.
   Matrix product states: Stoudenmire & Schwab 2016 */
TN_API tn_tensor *tn_chain(tn_ctx *ctx, tn_tensor *m, tn_tensor **log_norm);
/* Positions as rotations: x [B,T,n,d] -> [B,T,n,d]. With h = d/2 rounded down the pair (x_k, x_(k+h)) of row t is turned
   by the angle (first + t) base^(-2k/d); with odd d the last number stays. So q.k depends on the difference of two
   positions only. A NULL desc means all defaults; without rotation and norm the result is x itself.   Su et al. 2021 */
typedef struct tn_rope_desc {
    double  base;               /* 0: 10000                                                           */
    int64_t first;              /* position of row 0                                                  */
    bool    no_rotation;        /* only the norm                                                      */
    bool    norm;               /* x[b,t,n,:] is first divided by its root mean square: QK-norm without a gain,
                                   Henry et al. 2020                                                  */
    double  eps;                /* of the norm, added to the mean square; 0: 1e-6                     */
} tn_rope_desc;
TN_API tn_tensor *tn_rope(tn_ctx *ctx, tn_tensor *x, const tn_rope_desc *desc);
/* Attention: o_i = c_i sum_j P_ij v_j over the keys j that query i sees; s_ij = scale q_i.k_j is a score.
     TN_ATTEND_SOFTMAX    P_i = softmax of s_i            Vaswani et al. 2017
     TN_ATTEND_SQUARED    P_ij = s_ij^2
     TN_ATTEND_BILINEAR   P_ij = s1_ij s2_ij, two sets of q and k: with c_i constant, a tensor of all its inputs
   The last two have a linear form as well, whose time grows with T and not with T^2: with the row-wise products
   phi(q) = q1 (x) q2 of d d numbers (squared: d(d+1)/2, by symmetry), P = scale^2 phi(q) phi(k)^T, so that what a query
   needs of all keys before it is one state, sum_j phi(k_j) v_j^T.
   No form holds a T x T matrix. Softmax takes scores of any size: the largest is subtracted first. A score of -inf weighs
   nothing, a row of nothing else is a row without keys; a score of +inf or NaN makes the row NaN. */
typedef enum tn_attend_kind { TN_ATTEND_SOFTMAX = 0, TN_ATTEND_SQUARED, TN_ATTEND_BILINEAR } tn_attend_kind;
typedef enum tn_attend_form {
    TN_ATTEND_AUTO = 0,         /* by a fixed rule of the extents; softmax and windows: quadratic         */
    TN_ATTEND_QUADRATIC,
    TN_ATTEND_LINEAR            /* squared and bilinear, without a window                                 */
} tn_attend_form;
/* c_i. n: how many keys query i sees. */
typedef enum tn_row_scale {
    TN_ROW_DEFAULT = 0,         /* softmax: TN_ROW_NONE, else TN_ROW_LENGTH                               */
    TN_ROW_NONE,                /* 1                                                                      */
    TN_ROW_LENGTH,              /* sqrt(T0 / max(n,T0)): keeps the layer a tensor, and its outputs small beyond T0 */
    TN_ROW_MEAN,                /* 1/n                                                                    */
    TN_ROW_SUM                  /* squared only: 1 / (eps + sum_j P_ij)                                   */
} tn_row_scale;
typedef struct tn_attend_desc {
    tn_attend_kind kind;
    tn_attend_form form;
    bool           causal;      /* query i sees keys up to its own position, past + Tk - Tq + i of 0..past+Tk-1 */
    int64_t        window;      /* 0: none; w: keys at positions > query's - w and, not causal, < query's + w   */
    double         scale;       /* of each score; 0: 1/sqrt(d) for softmax, else 1/d                      */
    tn_row_scale   row;
    int64_t        length;      /* T0 of TN_ROW_LENGTH; 0: 512                                            */
    double         eps;         /* of TN_ROW_SUM; 0: 1e-6                                                 */
    tn_tensor     *state;       /* of the linear form, or NULL: [B,H,F,dv], with TN_ROW_SUM [B,H,F,dv+1] (v gets a column of
                                   ones), contiguous. What the keys of earlier calls left is read, then this call's are
                                   added, without the scale. F = d d, feature a d + b is k1_a k2_b; squared: d(d+1)/2,
                                   row by row a <= b, k_a k_b, times sqrt 2 where a < b. Not while recording; Tq <= Tk. */
    int64_t        past;        /* how many keys `state` holds                                            */
} tn_attend_desc;
/* q [B,Tq,s H,d]  k [B,Tk,s H,d]  v [B,Tk,H,dv] -> [B,Tq,H,dv].   s = 2 for bilinear: heads 0..H-1 are set 1, H..2H-1 set 2;
   else 1. Any extents, 0 too, but d >= 1. The queries are the last ones: Tq < Tk continues a sequence. A query that sees
   no key gives zeros. */
TN_API tn_tensor *tn_attend(tn_ctx *ctx, tn_tensor *q, tn_tensor *k, tn_tensor *v, const tn_attend_desc *desc);
/* mean over rows of -log softmax(logits)[label].   logits [..,c]  labels I32 [..] -> [] */
TN_API tn_tensor *tn_cross_entropy(tn_ctx *ctx, tn_tensor *logits, tn_tensor *labels);
TN_API tn_tensor *tn_mse(tn_ctx *ctx, tn_tensor *a, tn_tensor *b);             /* mean of (a-b)^2 -> []       */
TN_API tn_tensor *tn_argmax(tn_ctx *ctx, tn_tensor *x);                        /* [..,c] -> I32 [..]; first of equals */
TN_API tn_tensor *tn_accuracy(tn_ctx *ctx, tn_tensor *logits, tn_tensor *labels); /* share of rows right -> [] */

/* ======================================================================
   >>grad     recording and the backward pass
   ====================================================================== */

/* From here on ops are noted; noise and dropout act. */
TN_API void       tn_record(tn_ctx *ctx);
/* d loss / d everything recorded, added to ->grad; loss has one element. Ends the recording.
   Intermediate gradients go as soon as they are used, except where tn_watch asked to keep one. */
TN_API tn_status  tn_backward(tn_ctx *ctx, tn_tensor *loss);
/* Asks for the gradient of an arena tensor (an input, say): t->grad is there after tn_backward. */
TN_API tn_status  tn_watch(tn_tensor *t);

/* ======================================================================
   >>decomp   QR, symmetric eigen, SVD, Lanczos
   Computed on the host in double from a copy of the matrix, whatever its dtype and strides; the results
   are owned tensors of the context's dtype. On failure all results are NULL and the status says why:
   TN_ERR_SHAPE, TN_ERR_NONFINITE (the matrix holds NaN or infinity), TN_ERR_CONVERGENCE, TN_ERR_MEMORY.
   Same matrix, same bits. Nothing here is recorded.

       tn_eigh_result e;
       if (tn_eigh(ctx, &e, a, NULL) == TN_OK) { ... e.values, e.vectors ... }
       tn_eigh_destroy(&e);
   ====================================================================== */

/* `error` of each result: |A - product of the results|_F / |A|_F with the results as they are stored
   and cut, if desc.measure asks for it, else NaN. */

typedef enum tn_eigh_order {
    TN_EIGH_ASCENDING = 0,
    TN_EIGH_MAGNITUDE            /* largest |value| first; of +-l the positive one */
} tn_eigh_order;

typedef struct tn_eigh_desc {
    tn_eigh_order order;
    int64_t       top;           /* keep so many, the first in this order; 0: all */
    bool          no_vectors;    /* values only: quicker, by another way: their last digits may differ */
    bool          measure;
} tn_eigh_desc;

typedef struct tn_eigh_result {
    tn_tensor *values;           /* [k]                                          */
    tn_tensor *vectors;          /* [k,n]: row i belongs to values[i]; orthonormal */
    double     error;
    tn_status  status;
} tn_eigh_result;

/* Eigenvalues and -vectors of the symmetric part (A + A^T)/2.   a [n,n]
   A = vectors^T diag(values) vectors. Of each vector the component of largest magnitude, the first of
   equals, is positive. A NULL desc means all defaults. */
TN_API tn_status tn_eigh(tn_ctx *ctx, tn_eigh_result *out, const tn_tensor *a, const tn_eigh_desc *desc);
TN_API void      tn_eigh_destroy(tn_eigh_result *r);

typedef struct tn_qr_desc { bool measure; } tn_qr_desc;

typedef struct tn_qr_result {
    tn_tensor *q;                /* [m,k], k = min(m,n): orthonormal columns, whatever the rank */
    tn_tensor *r;                /* [k,n] upper triangular, its diagonal not negative           */
    double     error;
    tn_status  status;
} tn_qr_result;

/* A = Q R.   a [m,n] */
TN_API tn_status tn_qr(tn_ctx *ctx, tn_qr_result *out, const tn_tensor *a, const tn_qr_desc *desc);
TN_API void      tn_qr_destroy(tn_qr_result *r);

typedef struct tn_svd_desc {
    int64_t top;                 /* keep the so many largest; 0: all min(m,n) */
    bool    measure;
} tn_svd_desc;

typedef struct tn_svd_result {
    tn_tensor *u;                /* [m,k] orthonormal columns */
    tn_tensor *s;                /* [k] descending            */
    tn_tensor *vt;               /* [k,n] orthonormal rows    */
    double     error;
    tn_status  status;
} tn_svd_result;

/* A = U diag(s) Vt, every s right to about eps times the largest.   a [m,n]
   Of each column of U the component of largest magnitude, the first of equals, is positive. */
TN_API tn_status tn_svd(tn_ctx *ctx, tn_svd_result *out, const tn_tensor *a, const tn_svd_desc *desc);
TN_API void      tn_svd_destroy(tn_svd_result *r);

/* ---- Lanczos: some eigenpairs of a symmetric matrix that is known by its products alone ---- */

/* y = A x for `count` vectors at once: x and y are [count,n], rows, doubles of the host. Anything but TN_OK ends the
   search. */
typedef tn_status (*tn_matvec_fn)(void *user, int64_t count, const double *x, double *y);

typedef enum tn_lanczos_end {
    TN_LANCZOS_MAGNITUDE = 0,    /* largest |value| first    */
    TN_LANCZOS_LARGEST,          /* from the largest down    */
    TN_LANCZOS_SMALLEST          /* from the smallest upward */
} tn_lanczos_end;

typedef struct tn_lanczos_desc {
    tn_lanczos_end end;
    int64_t  top;                /* so many pairs; 0: all n                                                           */
    double   tol;                /* a pair is found when |A v - l v| <= tol |A|. 0: 1e-12, in an F32 context 1e-8. Not
                                    finer than the product's own rounding                                             */
    int64_t  block;              /* vectors in one product; 0: 1, which wants the fewest. More pay where a product
                                    of several costs hardly more than one                                             */
    int64_t  basis;              /* vectors held, of n doubles each: top + 2 blocks, or all n, at least; 0: 2 top + 40
                                    blocks, at most n                                                                 */
    int64_t  products;           /* no restart after so many multiplied vectors; 0: 300 times the basis               */
    uint64_t seed;               /* of the start: the same seed, the same bits                                        */
    bool     measure;
} tn_lanczos_desc;

typedef struct tn_lanczos_result {
    tn_tensor *values;           /* [top]                                                              */
    tn_tensor *vectors;          /* [top,n] orthonormal rows, the largest component of each positive   */
    double     residual;         /* the largest |A v - l v| / |A| of them: as the recurrence has it, or,
                                    if desc.measure asks, by products with the vectors as stored. Set
                                    where TN_ERR_CONVERGENCE says that `products` did not suffice, too */
    int64_t    products;         /* vectors multiplied                                                 */
    tn_status  status;
} tn_lanczos_result;

/* Blocks, each made orthogonal to all before it, thick restarts: Golub & Underwood 1977, Wu & Simon 2000, Zhou &
   Saad 2008. Multiple values are found with all their vectors: when the pairs stand, a block of new random vectors
   looks for what was missed. A of size n x n must be symmetric: TN_ERR_ARG where the products show that it is not.
   Values that are crowded when measured by |A|, as the smallest of a positive matrix often are, come slowly: give such
   a search a larger basis, or the products of the inverse. */
TN_API tn_status tn_lanczos(tn_ctx *ctx, tn_lanczos_result *out, int64_t n, tn_matvec_fn fn, void *user,
                            const tn_lanczos_desc *desc);
TN_API void      tn_lanczos_destroy(tn_lanczos_result *r);

/* (sum |l|)^2 / sum l^2: n for n equal values, 1 for a single one, 0 for all zeros or none */
TN_API double    tn_effective_rank(const double *values, int64_t n);

/* ======================================================================
   >>layers   parameters by name, and the layers that own them
   A layer's init makes its parameters in a tn_params under "name.w" and fills the struct; forward
   reads the struct. Gradients come from the ops. Tensors in the struct belong to the tn_params. An init
   that fails adds no parameter and leaves the struct zeroed: TN_ERR_SHAPE for extents below 1 or of
   2^31 - 1 and more, TN_ERR_ARG for a desc that contradicts itself or a name that is taken.
   ====================================================================== */

typedef struct tn_param {
    const char *name;
    tn_tensor  *value;          /* value->grad is its gradient once a backward pass has run */
    bool        frozen;         /* gets no gradient and no update                           */
    double      lr_scale;       /* of the optimiser's learning rate: 1                      */
    double      decay_scale;    /* of its weight decay: 1; 0 for biases and gains           */
} tn_param;

/* Init rules; the scale in brackets. n: fan-in, m: fan-out. */
typedef enum tn_init_rule {
    TN_INIT_DEFAULT = 0,        /* the layer's own, see its desc                                         */
    TN_INIT_ZERO,
    TN_INIT_ONE,
    TN_INIT_NORMAL,             /* normal [1/sqrt(n)]                LeCun, Bottou, Orr & Mueller 1998   */
    TN_INIT_UNIFORM,            /* uniform [+-1/sqrt(n)]             the default of PyTorch's Linear     */
    TN_INIT_GLOROT,             /* uniform [+-sqrt(6/(n+m))]         Glorot & Bengio 2010                */
    TN_INIT_HE                  /* normal [sqrt(2/n)]                He, Zhang, Ren & Sun 2015           */
} tn_init_rule;

/* What a parameter starts as. std > 0 replaces the rule's scale (standard deviation, or the half
   width of a uniform). fan_in, fan_out: 0 takes them from the last two extents. */
typedef struct tn_init { tn_init_rule rule; double std; int64_t fan_in, fan_out; } tn_init;

/* A set of parameters, empty. It owns them, and lives until tn_params_destroy or the end of the context; NULL on error. */
TN_API tn_params *tn_params_create(tn_ctx *ctx);
TN_API void       tn_params_destroy(tn_params *params);
TN_API tn_ctx    *tn_params_ctx(const tn_params *params);
TN_API int64_t    tn_params_count(const tn_params *params);
TN_API int64_t    tn_params_elements(const tn_params *params);              /* numbers in all of them together */
TN_API tn_param  *tn_params_at(tn_params *params, int64_t i);              /* in the order of their making  */
TN_API tn_param  *tn_params_find(tn_params *params, const char *name);     /* NULL when there is none       */
/* A parameter of the context's dtype. The name is copied and must be new. NULL on error. */
TN_API tn_param  *tn_params_add(tn_params *params, const char *name, int rank, const int64_t *shape, tn_init init);
/* Gradients to zero: an optimiser's step does it, a failed backward pass may leave half of one. */
TN_API tn_status  tn_params_zero_grad(tn_params *params);
/* Every parameter whose name matches; returns how many. A pattern with stars must fit the whole name, each star
   standing for any run of characters ("blocks.*.b"); one without is what the name begins with ("" for all).
   A frozen parameter has no gradient, not even its memory, and no update, until it is thawed (frozen = false). A group's
   scales replace those it had: a decay_scale of 1 gives decay to biases and gains in it, too. */
TN_API int64_t    tn_params_freeze(tn_params *params, const char *pattern, bool frozen);
TN_API int64_t    tn_params_group(tn_params *params, const char *pattern, double lr_scale, double decay_scale);
/* Weight tying: `name`, which must be new, is from now on another name of parameter `of`. A layer that is then made
   under it gets that tensor instead of one of its own (a linear layer's w [out,in] and an embedding's table [count,dim]
   are both rows of one table; the shapes must be equal, the layer's init rule is not used). Both add to the one
   gradient. There is one parameter, under its first name: counted once, updated once, saved and loaded once. */
TN_API tn_status  tn_params_tie(tn_params *params, const char *name, const char *of);
/* The same parameters again, with other names, frozen ones and scales, on ctx, which may be another context and of
   another dtype (F64 to F32 rounds). Gradients are not copied. NULL on error. */
TN_API tn_params *tn_params_clone(tn_ctx *ctx, const tn_params *params);
/* In a copied struct of layers, of `bytes` bytes: every pointer to the value of a parameter of `from` becomes the one to
   the parameter of the same name in `to`. Returns how many there were; nothing is changed and -1 returned where `to`
   lacks one.
       model copy = original;   tn_params_rebind(clone, params, &copy, sizeof copy); */
TN_API int64_t    tn_params_rebind(tn_params *to, const tn_params *from, void *layers, size_t bytes);

/* ---- linear: y = W x + b ------------------------------------------------ */
typedef struct tn_linear_desc {
    int64_t in, out;            /* required                                                         */
    bool    no_bias;
    bool    augmented;          /* x ends with the constant one: the bias is the last column of W,
                                   and y ends with a one again (in and out do not count it)         */
    tn_init init;               /* 0: TN_INIT_UNIFORM for W and b                                   */
} tn_linear_desc;
typedef struct tn_linear {
    tn_linear_desc desc;
    tn_tensor *w;               /* [out,in], augmented: [out,in+1] */
    tn_tensor *b;               /* [out] or NULL                   */
} tn_linear;
TN_API tn_status  tn_linear_init(tn_params *params, const char *name, tn_linear *layer, const tn_linear_desc *desc);
TN_API tn_tensor *tn_linear_forward(tn_ctx *ctx, const tn_linear *layer, tn_tensor *x);       /* [..,in] -> [..,out] */

/* ---- embedding: a row of a table per id --------------------------------- */
typedef struct tn_embedding_desc {
    int64_t count, dim;         /* required             */
    tn_init init;               /* 0: normal, std 1     */
} tn_embedding_desc;
typedef struct tn_embedding {
    tn_embedding_desc desc;
    tn_tensor *w;               /* [count,dim] */
} tn_embedding;
TN_API tn_status  tn_embedding_init(tn_params *params, const char *name, tn_embedding *layer, const tn_embedding_desc *desc);
TN_API tn_tensor *tn_embedding_forward(tn_ctx *ctx, const tn_embedding *layer, tn_tensor *ids); /* I32 [..] -> [..,dim] */

/* ---- norm: RMSNorm, Zhang & Sennrich 2019; LayerNorm, Ba, Kiros & Hinton 2016 ---------- */
typedef enum tn_norm_kind {
    TN_NORM_RMS = 0,            /* x / rms(x) (x) gain                              */
    TN_NORM_LAYER               /* (x - mean(x)) / std(x) (x) gain + bias           */
} tn_norm_kind;
typedef struct tn_norm_desc {
    int64_t dim;                /* required          */
    bool    no_gain;
    double  eps;                /* 0: 1e-5           */
    tn_norm_kind kind;
    bool    no_bias;            /* of TN_NORM_LAYER  */
} tn_norm_desc;
typedef struct tn_norm {
    tn_norm_desc desc;
    tn_tensor *gain;            /* [dim], ones at first, or NULL                     */
    tn_tensor *bias;            /* [dim], zeros at first; NULL in RMSNorm            */
} tn_norm;
TN_API tn_status  tn_norm_init(tn_params *params, const char *name, tn_norm *layer, const tn_norm_desc *desc);
TN_API tn_tensor *tn_norm_forward(tn_ctx *ctx, const tn_norm *layer, tn_tensor *x);          /* [..,dim] -> [..,dim] */

/* ---- mlp: P (act(W x + b)) and P (act(W x + b) (x) (V x + c)) -------------
   One desc for the family: Shazeer 2020 (GLU variants), So et al. 2021 (ReLU squared), Pearce et al. 2024 (bilinear). */
typedef enum tn_mlp_kind {
    TN_MLP_BILINEAR = 0,        /* P ((W x + b) (x) (V x + c)) + p: a third-order tensor */
    TN_MLP_RELU, TN_MLP_RELU2, TN_MLP_GELU, TN_MLP_SWISH,           /* one encoder          */
    TN_MLP_GLU, TN_MLP_REGLU, TN_MLP_GEGLU, TN_MLP_SWIGLU           /* two: act(W x) (x) V x */
} tn_mlp_kind;
typedef struct tn_mlp_desc {
    int64_t     in, hidden;     /* required                                                        */
    int64_t     out;            /* 0: in                                                           */
    tn_mlp_kind kind;
    bool        bias;           /* of the encoders                                                 */
    bool        out_bias;       /* of the projection                                               */
    bool        no_projection;  /* P = I: out is hidden                                            */
    bool        residual;       /* y = x + layer(x): out must be in                                */
    bool        augmented;      /* x ends with the constant one and so does y; biases are the last
                                   columns of W, V and P (in, hidden and out do not count the one) */
    tn_init     init;           /* of W and V; 0: TN_INIT_UNIFORM                                  */
    tn_init     init_out;       /* of P; 0: TN_INIT_UNIFORM                                        */
} tn_mlp_desc;
typedef struct tn_mlp {
    tn_mlp_desc desc;
    tn_tensor *w;               /* [e,hidden,in] the encoders stacked: W, then V (e = 1 or 2); augmented: [e,hidden,in+1] */
    tn_tensor *b;               /* [e,hidden] b, then c; or NULL                                                          */
    tn_tensor *p;               /* [out,hidden] or NULL; augmented: [out,hidden+1]                                        */
    tn_tensor *pb;              /* [out] or NULL                                                                          */
} tn_mlp;
TN_API tn_status   tn_mlp_init(tn_params *params, const char *name, tn_mlp *layer, const tn_mlp_desc *desc);
TN_API tn_tensor  *tn_mlp_forward(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x);            /* [..,in] -> [..,out] */
TN_API int         tn_mlp_encoders(tn_mlp_kind kind);                                          /* 1 or 2 */
TN_API const char *tn_mlp_kind_name(tn_mlp_kind kind);

/* ---- product: y = P ((F_1 x + b_1) (x) ... (x) (F_k x + b_k)) + p, a CP tensor of order k + 1 ---------------
   k = 1 is linear, k = 2 bilinear. Weights start so that inputs of variance 1 give outputs of variance 1 at any k:
   F normal with 1/in, P normal with 1/hidden (docs/math.md 8). Novikov et al. 2017, Chrysos et al. 2020 */
typedef struct tn_product_desc {
    int64_t in, hidden;         /* required                                                        */
    int64_t out;                /* 0: in                                                           */
    int64_t order;              /* k; 0: 2                                                         */
    bool    bias;               /* of the encoders                                                 */
    bool    out_bias;           /* of the projection                                               */
    bool    no_projection;      /* P = I: out is hidden                                            */
    bool    augmented;          /* x ends with the constant one and so does y; biases are the last
                                   columns of F and P (in, hidden and out do not count the one)    */
    tn_init init;               /* of F; 0: TN_INIT_NORMAL                                         */
    tn_init init_out;           /* of P; 0: TN_INIT_NORMAL                                         */
} tn_product_desc;
typedef struct tn_product {
    tn_product_desc desc;
    tn_tensor *w;               /* [k,hidden,in] the encoders stacked; augmented: [k,hidden,in+1]  */
    tn_tensor *b;               /* [k,hidden] or NULL                                              */
    tn_tensor *p;               /* [out,hidden] or NULL; augmented: [out,hidden+1]                 */
    tn_tensor *pb;              /* [out] or NULL                                                   */
} tn_product;
TN_API tn_status  tn_product_init(tn_params *params, const char *name, tn_product *layer, const tn_product_desc *desc);
TN_API tn_tensor *tn_product_forward(tn_ctx *ctx, const tn_product *layer, tn_tensor *x);    /* [..,in] -> [..,out] */

/* ---- quadratic: y_o = x^T T_o x, the third-order tensor itself -----------------------------------------------
   What a bilinear layer is in factors. All o in one product [rows,n] [n,out n], then a dot with x: x o x is never
   formed. The gradient of T_o is symmetric, so T_o - T_o^T stays as it began, but for weight decay. Weights start
   normal with 1/n^2, which gives outputs of variance 1. */
typedef struct tn_quadratic_desc {
    int64_t in, out;            /* required                                                        */
    bool    bias;               /* the layer works on [x;1]: T has a linear and a constant part    */
    bool    augmented;          /* x ends with the constant one already, and so does y             */
    tn_init init;               /* 0: TN_INIT_NORMAL                                               */
} tn_quadratic_desc;
typedef struct tn_quadratic {
    tn_quadratic_desc desc;
    tn_tensor *t;               /* [out,n,n], n = in, or in + 1 with bias or augmented */
} tn_quadratic;
TN_API tn_status  tn_quadratic_init(tn_params *params, const char *name, tn_quadratic *layer, const tn_quadratic_desc *desc);
TN_API tn_tensor *tn_quadratic_forward(tn_ctx *ctx, const tn_quadratic *layer, tn_tensor *x); /* [..,in] -> [..,out] */

/* ---- modifier: y = P (m(x) (x) (V x + c)) + p,  m(x) = 1 + W x --------------------------------------------------
   V holds the default output features, m says by how much each is modified, and a penalty on W x keeps modifications
   few (L1) or small (L2): Sharkey 2023, footnote 5. W may be of low rank, W = A B, and W x rounded to multiples of
   `step` (its gradient goes straight through: Bengio, Leonard & Courville 2013). Without rounding the layer is a
   bilinear one whose first encoder has the bias 1, and so a tensor. W (A, if there is one) starts at zero: no
   modification; B, V and P as in a product layer. */
typedef enum tn_penalty { TN_PENALTY_L1 = 0, TN_PENALTY_L2 } tn_penalty;     /* mean |W x|, mean (W x)^2 */
typedef struct tn_modifier_desc {
    int64_t    in, hidden;      /* required                                                        */
    int64_t    out;             /* 0: in                                                           */
    int64_t    rank;            /* of W = A B; 0: W itself                                         */
    double     step;            /* 0: W x is not rounded                                           */
    tn_penalty penalty;
    bool       bias;            /* c                                                               */
    bool       out_bias;        /* p                                                               */
    bool       no_projection;   /* P = I: out is hidden                                            */
    tn_init    init;            /* of V and B; 0: TN_INIT_NORMAL                                   */
    tn_init    init_w;          /* of W, or A; 0: TN_INIT_ZERO                                     */
    tn_init    init_out;        /* of P; 0: TN_INIT_NORMAL                                         */
} tn_modifier_desc;
typedef struct tn_modifier {
    tn_modifier_desc desc;
    tn_tensor *w;               /* [hidden,in], or NULL with a rank    */
    tn_tensor *wa, *wb;         /* A [hidden,rank], B [rank,in]        */
    tn_tensor *v;               /* [hidden,in]                         */
    tn_tensor *c;               /* [hidden] or NULL                    */
    tn_tensor *p;               /* [out,hidden] or NULL                */
    tn_tensor *pb;              /* [out] or NULL                       */
} tn_modifier;
TN_API tn_status  tn_modifier_init(tn_params *params, const char *name, tn_modifier *layer, const tn_modifier_desc *desc);
/* [..,in] -> [..,out]. *penalty (may be NULL) gets the penalty [], of W x before it is rounded, to be added to the loss:
   loss = tn_add(ctx, loss, tn_scale(ctx, penalty, 0.1)) */
TN_API tn_tensor *tn_modifier_forward(tn_ctx *ctx, const tn_modifier *layer, tn_tensor *x, tn_tensor **penalty);

/* ---- attention: heads that read other positions ----------------------------------------------------------------
   q, k and v are linear in x; tn_rope gives q and k their position, tn_attend their pattern, o adds the heads up.
   Softmax: Vaswani et al. 2017. Squared and bilinear, with a constant row scale, no QK-norm and no head norm, are tensors:
   o_t = sum_s c (q1_t.k1_s)(q2_t.k2_s) v_s has degree 2 in x_t and 3 in the x_s.
   Differential (Ye et al. 2024): (1 - lambda_init) norm((softmax1 - lambda softmax2) v) with an RMS-norm of each head and
   lambda = exp(lq1.lk1) - exp(lq2.lk2) + lambda_init; the published norm's gain is left to o, which holds it exactly.
   Plain differential: (softmax1 - lambda softmax2) v, lambda one number. */
typedef enum tn_attention_kind {
    TN_ATTENTION_SOFTMAX = 0, TN_ATTENTION_SQUARED, TN_ATTENTION_BILINEAR, TN_ATTENTION_DIFFERENTIAL,
    TN_ATTENTION_DIFFERENTIAL_PLAIN
} tn_attention_kind;
typedef struct tn_attention_desc {
    int64_t dim, heads;         /* required                                                             */
    int64_t out;                /* 0: dim                                                               */
    int64_t d_qk, d_v;          /* of a head; 0: dim/heads, and d_qk of the differential kinds dim/(2 heads) */
    tn_attention_kind kind;
    tn_attend_form form;        /* of squared and bilinear                                              */
    bool    not_causal;
    int64_t window;             /* 0: none; see tn_attend_desc, for this and the next three             */
    tn_row_scale row;
    int64_t length;
    double  scale;
    bool    no_rope;            /* positions come from elsewhere, or there are none                     */
    double  rope_base;          /* 0: 10000                                                             */
    bool    qk_norm;            /* each q and k through an RMS-norm, before the rotation                */
    bool    head_norm;          /* each head's output through an RMS-norm (differential: always)        */
    double  lambda_init;        /* of the differential kinds; 0: 0.8 - 0.6 exp(-0.3 depth)              */
    int64_t depth;              /* of the block in its model, from 0                                    */
    bool    bias, out_bias;     /* of q, k and v; of o                                                  */
    bool    mix_values;         /* v becomes m0 v + m1 values with learned m: value residual, Zhou et al. 2024 */
    tn_init init;               /* of qk and v; 0: TN_INIT_UNIFORM                                      */
    tn_init init_out;           /* of o; 0: TN_INIT_UNIFORM                                             */
} tn_attention_desc;
typedef struct tn_attention {
    tn_attention_desc desc;     /* with out, d_qk, d_v and lambda_init in place                         */
    tn_tensor *qk;              /* [2s,heads d_qk,dim] Q1, (Q2), K1, (K2): s = 2 for bilinear and differential, else 1 */
    tn_tensor *v;               /* [heads d_v,dim]                                                      */
    tn_tensor *o;               /* [out,heads d_v]                                                      */
    tn_tensor *qkb, *vb, *ob;   /* NAME.qk_b [2s,heads d_qk], .v_b [heads d_v], .o_b [out]; or NULL     */
    tn_tensor *lambda;          /* [4,d_qk] lq1, lk1, lq2, lk2, normal with 0.1 at first; plain: [1], lambda_init at
                                   first; or NULL                                                       */
    tn_tensor *mix;             /* [2] m0, m1, 1/2 at first; or NULL                                    */
} tn_attention;
TN_API tn_status   tn_attention_init(tn_params *params, const char *name, tn_attention *layer,
                                     const tn_attention_desc *desc);
/* x [B,T,dim] -> [B,T,out]. values (may be NULL) hands v [B,T,heads,d_v] from the first layer of a model to the others:
   *values gets this layer's v where it is NULL, and is mixed in where it is not and the desc says so. */
TN_API tn_tensor  *tn_attention_forward(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor **values);
TN_API const char *tn_attention_kind_name(tn_attention_kind kind);

/* What a causal layer remembers while it decodes: k and v of `length` positions, or the running state of the linear form,
   whose size does not depend on the length, and which has no end. desc.form AUTO takes the smaller one; softmax,
   differential and windows keep k and v. Freed by _destroy, or with the context; the layer may go before. NULL on error. */
typedef struct tn_attention_cache tn_attention_cache;
TN_API tn_attention_cache *tn_attention_cache_create(tn_ctx *ctx, const tn_attention *layer, int64_t batch, int64_t length);
TN_API void       tn_attention_cache_destroy(tn_attention_cache *cache);
TN_API void       tn_attention_cache_reset(tn_attention_cache *cache);              /* nothing is past any more */
TN_API int64_t    tn_attention_cache_past(const tn_attention_cache *cache);         /* positions so far         */
TN_API size_t     tn_attention_cache_bytes(const tn_attention_cache *cache);        /* of its tensors           */
/* x [batch,T,dim], the next T positions, one or a whole prompt -> [batch,T,out], what _forward over everything so far would
   give for them; *values are of these T positions. Not while recording. On error the cache is as before, but for a
   state that was being read: that one wants a reset first, and says so. */
TN_API tn_tensor *tn_attention_decode(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_attention_cache *cache,
                                      tn_tensor **values);

/* ======================================================================
   >>operator a layer's whole computation as one object
   y[o] = sum_h P[o,h] prod_k (F_k x)[h]: a tensor of order k+1 in CP factors, never formed unless asked for.
   With k = 2, F_0 = W and F_1 = V this is a bilinear layer and B[o,i,j] = sum_h P[o,h] W[h,i] V[h,j] its tensor.
   Where `constant` is set the last input is the constant one: biases live in the last columns, and a
   plain x is given the one by tn_cp_apply. docs/math.md has every formula; Pearce et al. 2024, Sharkey 2023.
   Functions that give a tn_cp or a tensor give a new, owned one (NULL on error) and leave their arguments as
   they are. "Order 2 only" is an error of any other order.
   ====================================================================== */

#define TN_CP_MAX_ORDER 6

typedef struct tn_cp {
    tn_ctx    *ctx;
    int        order;                       /* k, the number of input factors  */
    int64_t    out, terms;                  /* rows of P; rank-one terms        */
    int64_t    in[TN_CP_MAX_ORDER];         /* columns of F_k, the one included */
    bool       constant;
    tn_tensor *p;                           /* [out,terms]                      */
    tn_tensor *f[TN_CP_MAX_ORDER];          /* [terms,in[k]]                    */
} tn_cp;

/* From arrays (copied): p [out,terms], f[0..order) [terms,in_k]. */
TN_API tn_cp *tn_cp_create(tn_ctx *ctx, int order, tn_tensor *p, tn_tensor *const *f, bool constant);
/* From a bilinear layer. Biases and a residual are folded in, and set `constant`; without them it stays clear. */
TN_API tn_cp *tn_cp_from_mlp(tn_ctx *ctx, const tn_mlp *mlp);
/* From a layer of up to TN_CP_MAX_ORDER encoders, from a modifier layer without rounding, from a tensor layer. */
TN_API tn_cp *tn_cp_from_product(tn_ctx *ctx, const tn_product *layer);
TN_API tn_cp *tn_cp_from_modifier(tn_ctx *ctx, const tn_modifier *layer);
TN_API tn_cp *tn_cp_from_quadratic(tn_ctx *ctx, const tn_quadratic *layer);
/* From a full tensor t [out,n,m], exactly, in out n terms: term (o,i) is e_o, e_i, t[o,i,:]. They hold
   out n (out + n + m) numbers: TN_ERR_MEMORY, with the size, where these would not fit desc.max_bytes. */
TN_API tn_cp *tn_cp_from_tensor(tn_ctx *ctx, tn_tensor *t, bool constant);
/* The stack x -> embed -> mlp -> unembed as one operator; embed or unembed may be NULL. */
TN_API tn_cp *tn_cp_from_stack(tn_ctx *ctx, const tn_linear *embed, const tn_mlp *mlp, const tn_linear *unembed);
/* Back to layers that train, with the operator's numbers: in factors, or (order 2 only) as the tensor itself. With
   `constant` the layer has biases and takes a plain x. All inputs of equal length. */
TN_API tn_status tn_product_from_cp(tn_params *params, const char *name, tn_product *layer, const tn_cp *cp);
TN_API tn_status tn_quadratic_from_cp(tn_params *params, const char *name, tn_quadratic *layer, const tn_cp *cp);
TN_API void   tn_cp_destroy(tn_cp *cp);

/* ---- folding ------------------------------------------------------------- */
/* x -> cp(E x + b).   e [in,n]  b [in] or NULL (`in` without the one). A bias sets `constant`. */
TN_API tn_cp *tn_cp_fold_in(const tn_cp *cp, tn_tensor *e, tn_tensor *b);
/* x -> U cp(x) + b.   u [m,out]  b [m] or NULL */
TN_API tn_cp *tn_cp_fold_out(const tn_cp *cp, tn_tensor *u, tn_tensor *b);
/* B+: x -> x + cp(x), h + n terms on [x;1]. Order 2 only; out = in (without the one). */
TN_API tn_cp *tn_cp_residual(const tn_cp *cp);
/* (B + B^T)/2 in 2 h terms. Order 2 only. */
TN_API tn_cp *tn_cp_symmetrise(const tn_cp *cp);
/* quadratic, linear and constant part: cp([x;1]) = quadratic(x) + L x + c.   L [out,n]  c [out]
   Pass NULL for a part that is not wanted. Without `constant` L and c are zero. Order 2 only. */
TN_API tn_status tn_cp_split(const tn_cp *cp, tn_cp **quadratic, tn_tensor **linear, tn_tensor **constant);
/* Input `slot` held at u [in[slot]]: an operator of order k-1 (for k = 2 a matrix: tn_cp_dense gives it). */
TN_API tn_cp *tn_cp_freeze(const tn_cp *cp, int slot, tn_tensor *u);

/* ---- forms --------------------------------------------------------------- */
/* The full tensor [out,in_0,..]. `symmetric`: each slice as (B + B^T)/2, order 2 only.
   TN_ERR_MEMORY, with the size, where it would not fit desc.max_bytes. */
TN_API tn_tensor *tn_cp_dense(const tn_cp *cp, bool symmetric);
/* Q_u = sum_o u[o] (B_o + B_o^T)/2, the interaction matrix of output direction u [out]: [in,in]. Order 2 only. */
TN_API tn_tensor *tn_cp_interaction(const tn_cp *cp, tn_tensor *u);
TN_API tn_tensor *tn_cp_interaction_of(const tn_cp *cp, int64_t output);
/* As a function (differentiable, arena result): x [..,in] -> [..,out]. With `constant` x may come without the one. */
TN_API tn_tensor *tn_cp_apply(tn_ctx *ctx, const tn_cp *cp, tn_tensor *x);
/* On k different inputs: b(u,v) for k = 2, with u in slot 0. Not symmetrised: symmetrise the operator first. */
TN_API tn_tensor *tn_cp_apply_each(tn_ctx *ctx, const tn_cp *cp, tn_tensor *const *x);

/* ---- eigenpairs ---------------------------------------------------------- */
typedef struct tn_eigen {
    int64_t    outputs, count, n;           /* matrices, pairs of each, length of a vector                    */
    tn_tensor *values;                      /* [outputs,count] by falling magnitude                           */
    tn_tensor *vectors;                     /* [outputs,count,n] unit rows; the largest component is positive */
} tn_eigen;

/* Pairs of the interaction matrix of output direction u [out], the `count` largest by |value| (0: all that
   can differ from zero, min(n, 2 terms)). In the operator's input space: fold the embedding in first to get pixels.
   Exact: through the 2h x 2h problem R S R^T where 2 terms < n, else the full one. A few pairs of a large problem,
   size min(n, 2 terms) >= 1024 and count <= size / 32, come from tn_lanczos with residuals of at most 1e-12 of the
   largest |value| (F32: 1e-8), and from the exact way only where that does not converge. Order 2 only.
   TN_ERR_SHAPE where n or 2 terms are 2^31 or more. */
TN_API tn_status tn_cp_eigen(const tn_cp *cp, tn_tensor *u, int64_t count, tn_eigen *out);
/* The same for every output, sharing the factorisation and the threads. */
TN_API tn_status tn_cp_eigen_all(const tn_cp *cp, int64_t count, tn_eigen *out);
TN_API void      tn_eigen_destroy(tn_eigen *e);
/* An operator of the first k pairs of each output: y[o] = sum_i value[o,i] (vector[o,i] . x)^2 */
TN_API tn_cp    *tn_cp_from_eigen(tn_ctx *ctx, const tn_eigen *e, int64_t k, bool constant);
/* The same from an operator's own pairs. k = 0 is the zero operator here, where a count of 0 above means all.
   Order 2 only. */
TN_API tn_cp    *tn_cp_truncate(const tn_cp *cp, int64_t k);

/* ---- spectra and the space they belong to ----------------------------------- */
typedef struct tn_spectrum {
    int64_t    outputs, count;              /* matrices, values of each                                               */
    tn_tensor *values;                      /* [outputs,count] by falling magnitude                                   */
    tn_tensor *norm;                        /* [outputs] |Q_o|_F, the root of the sum of all l^2, known or not        */
    tn_tensor *rank_low, *rank_high;        /* [outputs] between these lies (sum |l|)^2 / sum l^2 of all l            */
} tn_spectrum;

/* The `count` largest eigenvalues by magnitude of every output's interaction matrix (0: all that can differ from
   zero), and its effective rank: rank_low = rank_high where all are there. Some leave an interval: what is missing of the
   norm's square, the norm being known from the factors, is shared by values no larger than the last. Order 2 only.
   The numbers belong to the space of the operator's inputs: tn_cp_from_stack without the embedding gives the
   hidden space, where they depend on the choice of coordinates, with it the input space, where they do not.
   Owned tensors: tn_spectrum_destroy. On failure all are NULL; errors are those of tn_cp_eigen_all.
   Spectra of bilinear layers, and how few values of each count: Pearce et al. 2024; docs/math.md 10 */
TN_API tn_status tn_cp_spectrum(const tn_cp *cp, int64_t count, tn_spectrum *out);
TN_API void      tn_spectrum_destroy(tn_spectrum *spectrum);
/* The data metric: z -> cp(S^1/2 z), S = E[x x^T] [in,in], the second moment of the inputs (of [x;1] where the
   operator has the constant one). Its interaction matrices S^1/2 Q S^1/2 have the eigenvalues of S Q: what x^T Q x
   does on inputs of that moment. They are the same in all coordinates, their sum is the mean of x^T Q x, and what
   the data hardly reach counts little. Any order, all inputs of equal length. `constant` is clear, as no element of
   z is the one. TN_ERR_SHAPE where s is of another size, TN_ERR_ARG where it is not positive semidefinite,
   TN_ERR_NONFINITE. docs/math.md 12 */
TN_API tn_cp    *tn_cp_data_metric(const tn_cp *cp, tn_tensor *s);

/* ---- comparing ----------------------------------------------------------- */
/* G[o,o'] = <S_o, S'_o'>, the inner products of all pairs of (symmetrised) interaction tensors: [out_a,out_b].
   Orders 1 and 2. O(h h' n), no tensor is formed. Operators of one context: TN_ERR_ARG; with the same order, input
   lengths and `constant`: TN_ERR_SHAPE. So do all below. */
TN_API tn_tensor *tn_cp_gram(const tn_cp *a, const tn_cp *b);
/* The cosines of all pairs, G[o,o'] / (|S_o| |S'_o'|); NaN where an output is zero: [out_a,out_b]. */
TN_API tn_tensor *tn_cp_cosines(const tn_cp *a, const tn_cp *b);
/* Of the whole symmetrised tensors. Equal out. The cosine with a zero operator is NaN. */
TN_API tn_status  tn_cp_inner(const tn_cp *a, const tn_cp *b, double *inner);
TN_API tn_status  tn_cp_norm(const tn_cp *a, double *norm);
TN_API tn_status  tn_cp_cosine(const tn_cp *a, const tn_cp *b, double *cosine);

/* ======================================================================
   >>optim    update rules and schedules
   ====================================================================== */

typedef enum tn_schedule_kind { TN_SCHEDULE_CONSTANT = 0, TN_SCHEDULE_COSINE, TN_SCHEDULE_LINEAR } tn_schedule_kind;

/* The factor on the learning rate: up linearly over `warmup` steps, then constant, or down by half a cosine
   (Loshchilov & Hutter 2017) or a line, reaching `floor` at step `total`. */
typedef struct tn_schedule {
    tn_schedule_kind kind;
    int64_t          warmup, total;
    double           floor;
} tn_schedule;
/* Step 0 is the first. A NULL schedule gives 1. */
TN_API double tn_schedule_at(const tn_schedule *schedule, int64_t step);

typedef enum tn_optim_kind {
    TN_ADAMW = 0,               /* Loshchilov & Hutter 2019 */
    TN_SGD                      /* with momentum, if wanted */
} tn_optim_kind;

typedef struct tn_optim_desc {
    tn_optim_kind kind;
    double        lr;           /* 0: 1e-3 (AdamW), 1e-2 (SGD)                                     */
    double        beta1, beta2; /* 0: 0.9, 0.999                                                   */
    double        eps;          /* 0: 1e-8                                                         */
    double        weight_decay; /* decoupled: p -= lr wd p, times each parameter's decay_scale     */
    double        momentum;     /* SGD                                                             */
    bool          nesterov;
    double        clip_norm;    /* gradients are scaled to this global norm where it is exceeded; 0: never */
    tn_schedule   schedule;
} tn_optim_desc;

typedef struct tn_optim tn_optim;
/* Of these parameters, also those added later. When they are destroyed a step is an error (TN_ERR_ARG). A NULL desc
   means AdamW with all defaults. Lives until tn_optim_destroy or the end of the context; NULL on error. */
TN_API tn_optim *tn_optim_create(tn_params *params, const tn_optim_desc *desc);
TN_API void      tn_optim_destroy(tn_optim *optim);
/* One update from the gradients, which are zero afterwards. While the context holds an error nothing is updated, nor
   where a label or id was outside its table, nor where a gradient is not finite: the error (TN_ERR_DATA; or
   TN_ERR_NONFINITE, with the step and the parameter's name) comes here on a host backend, at the next sync elsewhere. */
TN_API tn_status tn_optim_step(tn_optim *optim);
TN_API int64_t   tn_optim_steps(const tn_optim *optim);           /* taken so far, skipped ones included */
TN_API double    tn_optim_lr(const tn_optim *optim);              /* of the next step                    */
TN_API double    tn_optim_grad_norm(const tn_optim *optim);       /* of the last step, before clipping   */

/* ======================================================================
   >>io       safetensors, npy, idx
   Readers trust nothing: a damaged file is an error that names the file, the byte and the reason,
   and leaves everything as it was. What is read is an owned tensor, floats in the context's dtype,
   integers in I32 if every one of them fits. A finite double too large for a float is an error, too.
   _load and _save take a path; _read and _write take any source or sink, in the same format.
   A save writes PATH.tmp (PATH.tmp2 ... if there is one) and renames it over PATH when all of it is there: on failure
   the old file stays and the new one goes. No other file is touched; a save that was killed leaves its own behind. A link
   is replaced, not followed. Whoever fears a power cut syncs the file himself.
   Devices (/dev/...) are written directly.
   ====================================================================== */

/* Where bytes come from: a path, memory, or a call that fetches `bytes` bytes at `offset` into dst (false: it
   could not). Memory and user must outlive what reads them. name is for messages; NULL: the path, or what it is. */
typedef bool (*tn_fetch_fn)(void *user, uint64_t offset, void *dst, size_t bytes);
typedef struct tn_source {
    const char *path;
    const void *data;
    uint64_t    bytes;                  /* of the memory, or of all that fetch can reach */
    tn_fetch_fn fetch;
    void       *user;
    const char *name;
} tn_source;

/* Where bytes go: a path, memory, or a call that is handed one piece after the other (false: it could not). */
typedef bool (*tn_store_fn)(void *user, const void *src, size_t bytes);
typedef struct tn_sink {
    const char *path;
    void       *data;                   /* NULL: nothing is written, only counted          */
    size_t      room;
    size_t     *used;                   /* gets the length, also where room is too small   */
    tn_store_fn store;
    void       *user;
    const char *name;
} tn_sink;

#ifndef TN_NO_STDIO
TN_API tn_source tn_from_path(const char *path);
TN_API tn_sink   tn_to_path(const char *path);
#endif
TN_API tn_source tn_from_memory(const void *data, size_t bytes);
TN_API tn_source tn_from_calls(tn_fetch_fn fetch, void *user, uint64_t bytes);
TN_API tn_sink   tn_to_memory(void *data, size_t room, size_t *used);
TN_API tn_sink   tn_to_calls(tn_store_fn store, void *user);

/* ---- safetensors: named tensors and a few strings -------------------------
   Opening reads and checks the header; a tensor's bytes are read when they are asked for.
   https://github.com/huggingface/safetensors */
typedef struct tn_safetensors tn_safetensors;
typedef struct tn_safetensors_entry {
    const char *name;                   /* UTF-8                                                 */
    const char *dtype;                  /* as the file spells it: "F32", "BF16", "F8_E4M3"       */
    int         rank;
    int64_t     shape[TN_MAX_RANK];
    uint64_t    offset, bytes;          /* of its data, in the file                              */
} tn_safetensors_entry;

/* NULL on error. Closed by its _close or with the context. */
TN_API tn_safetensors *tn_safetensors_open(tn_ctx *ctx, tn_source source);
TN_API void            tn_safetensors_close(tn_safetensors *file);
TN_API int64_t         tn_safetensors_count(const tn_safetensors *file);
TN_API const tn_safetensors_entry *tn_safetensors_at(const tn_safetensors *file, int64_t i);   /* in the order of the data */
TN_API const tn_safetensors_entry *tn_safetensors_find(const tn_safetensors *file, const char *name);   /* or NULL */
TN_API const char     *tn_safetensors_metadata(const tn_safetensors *file, const char *key);   /* NULL: no such key */
/* F64 F32 F16 BF16 become the context's dtype, I64 ... I8, U64 ... U8 and BOOL become I32; others are refused by name. */
TN_API tn_tensor      *tn_safetensors_read(tn_safetensors *file, const char *name);
/* A tensor's bytes as they are, of any dtype; `bytes` must be the entry's. */
TN_API tn_status       tn_safetensors_read_bytes(tn_safetensors *file, const char *name, void *dst, size_t bytes);

typedef struct tn_named { const char *name; const tn_tensor *tensor; } tn_named;
typedef struct tn_note  { const char *key, *value; } tn_note;      /* a line of metadata */

/* Tensors are written in their own dtype, wide ones first, so that all are aligned. Names differ from each other. */
TN_API tn_status tn_safetensors_write(tn_ctx *ctx, tn_sink sink, const tn_named *tensors, int64_t count,
                                      const tn_note *notes, int64_t note_count);

/* The parameters of a model, by name. Reading sets all of them or none (unless a device fails halfway): each must be in
   the file with its shape. */
typedef enum tn_params_match {
    TN_MATCH_ALL = 0,                   /* and the file holds nothing else */
    TN_MATCH_IGNORE_EXTRA
} tn_params_match;
TN_API tn_status tn_params_read(tn_params *params, tn_source source, tn_params_match match);
TN_API tn_status tn_params_write(tn_params *params, tn_sink sink, const tn_note *notes, int64_t note_count);
#ifndef TN_NO_STDIO
TN_API tn_status tn_params_load(tn_params *params, const char *path);           /* TN_MATCH_ALL */
TN_API tn_status tn_params_save(tn_params *params, const char *path);
#endif

/* ---- npy: one NumPy array --------------------------------------------------
   Reads versions 1 to 3, f2 f4 f8, i1 ... i8, u1 ... u8 and b1, in either byte order, row- or column-major.
   Objects are never unpickled. Writes version 1; BF16 goes as f4, because NumPy has no such type. */
TN_API tn_tensor *tn_npy_read(tn_ctx *ctx, tn_source source);
TN_API tn_status  tn_npy_write(const tn_tensor *t, tn_sink sink);
#ifndef TN_NO_STDIO
TN_API tn_tensor *tn_npy_load(tn_ctx *ctx, const char *path);
TN_API tn_status  tn_npy_save(const tn_tensor *t, const char *path);
#endif

/* ---- idx: the format of MNIST -----------------------------------------------
   scale 0: integers become I32 (labels), floats stay as they are. Else all become floats of the context's dtype,
   times scale: tn_idx_load(ctx, "train-images-idx3-ubyte", 1 / 255.0) is [60000,28,28] in [0,1]. A batch of
   shuffled rows is tn_embed(ctx, tn_reshape_2d(images, 60000, 784), ids). */
TN_API tn_tensor *tn_idx_read(tn_ctx *ctx, tn_source source, double scale);
#ifndef TN_NO_STDIO
TN_API tn_tensor *tn_idx_load(tn_ctx *ctx, const char *path, double scale);
#endif

/* ======================================================================
   >>image    matrices and curves as pixels
   Every figure is an owned picture: hand its pixels to a writer of your own, or save it. Values are
   host doubles; tn_image_*_of reads them from a tensor. Sizes are in pixels at scale 1; a figure
   drawn at scale 2 or 3 has the same layout with finer pixels. Text is UTF-8, of which ASCII and
   a few signs of mathematics have glyphs (lambda, plus-minus, times, minus, middle dot); '\n' breaks
   titles and captions. NaN is drawn grey. Strings are used during the call only.
   ====================================================================== */

typedef struct tn_image {
    tn_ctx  *ctx;
    int64_t  width, height;
    uint8_t *pixels;                /* [height,width,3]: sRGB bytes, top row first */
} tn_image;

/* A white picture. It, and every figure below, lives until tn_image_destroy (NULL is fine) or the end of the context.
   All that give one give NULL on error: TN_ERR_SHAPE for sizes that fit no memory, TN_ERR_ARG for a desc that
   contradicts itself. */
TN_API tn_image *tn_image_create(tn_ctx *ctx, int64_t width, int64_t height);
TN_API void      tn_image_destroy(tn_image *image);
/* PNG goes through stb_image_write, when the file with the implementation includes it before tensornet.h;
   binary PPM needs no library, and most viewers know it. */
TN_API tn_status tn_image_write_png(const tn_image *image, tn_sink sink);
TN_API tn_status tn_image_write_ppm(const tn_image *image, tn_sink sink);
#ifndef TN_NO_STDIO
TN_API tn_status tn_image_save_png(const tn_image *image, const char *path);
TN_API tn_status tn_image_save_ppm(const tn_image *image, const char *path);
#endif

typedef enum tn_colours {
    TN_COLOURS_DIVERGING = 0,       /* blue, white at exactly zero, red; equally dark on both sides */
    TN_COLOURS_SEQUENTIAL           /* white, green, dark blue                                      */
} tn_colours;

/* The colour at t in [-1,1] (diverging) or [0,1] (sequential); NaN: grey. */
TN_API void tn_colour(tn_colours colours, double t, uint8_t rgb[3]);

/* ---- one matrix ---------------------------------------------------------- */
typedef struct tn_matrix_desc {
    const char *title, *caption;    /* above, below                                                   */
    const char *x_title, *y_title;  /* of the columns, of the rows                                    */
    const char *const *x_names, *const *y_names;  /* one per column, per row; NULL: their numbers     */
    tn_colours colours;
    double  low, high;              /* ends of the colour scale; both 0: from the data. Diverging
                                       scales reach as far below zero as above                        */
    int64_t cell;                   /* pixels per cell; 0: as fits into size                          */
    int64_t size;                   /* of the longer side; 0: 400. Larger matrices show means of
                                       neighbours, and the scale is of what is shown                  */
    bool    numbers;                /* write the value into each cell that has room                   */
    bool    no_bar, no_ticks;
    int     scale;                  /* 0: 1                                                           */
} tn_matrix_desc;

/* values [rows,columns], row-major */
TN_API tn_image *tn_image_matrix(tn_ctx *ctx, const double *values, int64_t rows, int64_t columns,
                                 const tn_matrix_desc *desc);
TN_API tn_image *tn_image_matrix_of(tn_ctx *ctx, const tn_tensor *t, const tn_matrix_desc *desc);   /* rank 0, 1, 2 */

/* ---- a grid of matrices ---------------------------------------------------- */
typedef struct tn_tiles_desc {
    int64_t rows, columns;          /* of tiles, filled row by row; both 0: nearly square             */
    const char *title, *caption;
    const char *const *captions;    /* one under each tile, such as "+3.21", or NULL                  */
    const char *const *row_names, *const *column_names;
    tn_colours colours;
    double  low, high;              /* of all tiles; both 0: from the data                            */
    bool    own_scales;             /* each tile from its own data, and no bar                        */
    int64_t cell, size;             /* as above, of one tile; size 0: 84                              */
    bool    no_bar;
    int     scale;                  /* 0: 1                                                           */
} tn_tiles_desc;

/* values [count,height,width] */
TN_API tn_image *tn_image_tiles(tn_ctx *ctx, const double *values, int64_t count, int64_t height, int64_t width,
                                const tn_tiles_desc *desc);
TN_API tn_image *tn_image_tiles_of(tn_ctx *ctx, const tn_tensor *t, const tn_tiles_desc *desc);     /* rank 3 */

/* ---- curves and spectra ------------------------------------------------------ */
typedef enum tn_series_kind {
    TN_SERIES_LINE = 0,             /* with markers when the points are few; NaN leaves a gap         */
    TN_SERIES_POINTS,
    TN_SERIES_BARS,                 /* from zero; a lone series is red above and blue below           */
    TN_SERIES_STEMS
} tn_series_kind;

typedef struct tn_series {
    const char   *name;             /* in the legend, or NULL                                         */
    const double *x;                /* [count], or NULL: 0, 1, 2 ...                                  */
    const double *y;                /* [count]                                                        */
    int64_t       count;
    tn_series_kind kind;
    bool          dashed;
    int           colour;           /* 1..7 of the palette; 0: the series' place among all            */
} tn_series;

typedef struct tn_plot_desc {
    const char *title, *caption, *x_title, *y_title;
    bool    log_x, log_y;           /* what is not positive is left out                               */
    double  x_low, x_high;          /* both 0: from the data                                          */
    double  y_low, y_high;
    int64_t width, height;          /* of the picture; 0: 560 x 360                                   */
    int     scale;                  /* 0: 1                                                           */
} tn_plot_desc;

/* series [count] in one pair of axes, the first undermost. A NULL desc means all defaults. */
TN_API tn_image *tn_image_plot(tn_ctx *ctx, const tn_series *series, int64_t count, const tn_plot_desc *desc);

#ifdef __cplusplus
}
#endif
#endif /* TENSORNET_H */

/* ======================================================================
   IMPLEMENTATION
   ====================================================================== */
#if defined(TENSORNET_IMPLEMENTATION) && !defined(TNI_IMPLEMENTED) && !defined(TNI_REAL)

/* ======================================================================
   >>platform assert, numbers, text, errors
   ====================================================================== */

#ifdef __FAST_MATH__
#ifndef TN_ALLOW_FAST_MATH
#error "tensornet.h promises equal bits and sees NaN: compile without -ffast-math, or define TN_ALLOW_FAST_MATH"
#endif
#endif

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifndef TN_NO_STDIO
#include <errno.h>
#include <stdio.h>
#ifdef _WIN32                           /* as windows.h has it, which is too large for one function */
#ifdef __cplusplus
extern "C"
#endif
__declspec(dllimport) int __stdcall MoveFileExA(const char *from, const char *to, unsigned long flags);
#endif
#endif
#if defined(_OPENMP) && !defined(TN_NO_THREADS)
#include <omp.h>
#endif

#ifndef TN_ASSERT
#define TN_ASSERT(condition) ((void)0)
#endif

#if defined(__GNUC__)
#define TNI_UNUSED __attribute__((unused))
#ifdef __MINGW32__                      /* where plain "printf" means Microsoft's, which has no %zu */
#define TNI_PRINTF(text, first) __attribute__((format(gnu_printf, text, first)))
#else
#define TNI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#endif
#else
#define TNI_UNUSED
#define TNI_PRINTF(text, first)
#endif

static int64_t tni_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t tni_max(int64_t a, int64_t b) { return a > b ? a : b; }

static bool tni_add_size(size_t a, size_t b, size_t *out)
{
    *out = a + b;
    return a <= SIZE_MAX - b;
}

static bool tni_mul_size(size_t a, size_t b, size_t *out)
{
    *out = a * b;
    return b == 0 || a <= SIZE_MAX / b;
}

/* The bytes of a x b things. Extents have 64 bits where a size has 32, too. */
static bool tni_area_size(int64_t a, int64_t b, size_t each, size_t *bytes)
{
    *bytes = 0;
    if (a < 0 || b < 0) return false;
    if (a == 0 || b == 0) return true;
    if (a > PTRDIFF_MAX || b > PTRDIFF_MAX) return false;
    return tni_mul_size((size_t)a, (size_t)b, bytes) && tni_mul_size(*bytes, each, bytes);
}

/* ---- decimal numbers, whatever the locale -------------------------------
   A double is an integer times a power of two, so both directions are a long decimal that is shifted
   by bits: exact, and rounded once, half to even. 800 digits hold any double (at most 767 are needed);
   what a text has beyond them only has to say "not exactly half". */
#define TNI_DIGITS 800

typedef struct tni_decimal {          /* 0.d[0]d[1]..d[n-1] x 10^point */
    int     n, point;
    uint8_t d[TNI_DIGITS + 24];
} tni_decimal;

static void tni_decimal_trim(tni_decimal *a)
{
    int lead = 0;
    while (lead < a->n && a->d[lead] == 0) lead++;
    if (lead > 0) {
        memmove(a->d, a->d + lead, (size_t)(a->n - lead));
        a->n -= lead;
        a->point -= lead;
    }
    while (a->n > 0 && a->d[a->n - 1] == 0) a->n--;
    if (a->n == 0) a->point = 0;
}

/* Digits that do not fit leave their trace in the last one: zero and five are the only digits
   that can pretend to be exact. */
static void tni_decimal_push(tni_decimal *a, unsigned digit)
{
    if (a->n < TNI_DIGITS) a->d[a->n++] = (uint8_t)digit;
    else if (digit != 0 && a->d[TNI_DIGITS - 1] % 5 == 0) a->d[TNI_DIGITS - 1]++;
}

static void tni_decimal_double_up(tni_decimal *a, int bits)      /* a *= 2^bits, bits <= 50 */
{
    uint64_t carry = 0;
    int      i, extra = 20;
    memmove(a->d + extra, a->d, (size_t)a->n);
    for (i = a->n - 1; i >= 0; i--) {
        carry += (uint64_t)a->d[extra + i] << bits;
        a->d[extra + i] = (uint8_t)(carry % 10);
        carry /= 10;
    }
    for (i = extra - 1; i >= 0; i--) {
        a->d[i] = (uint8_t)(carry % 10);
        carry /= 10;
    }
    a->n += extra;
    a->point += extra;
    tni_decimal_trim(a);
    while (a->n > TNI_DIGITS) {
        unsigned last = a->d[--a->n];
        if (last != 0 && a->d[a->n - 1] % 5 == 0) a->d[a->n - 1]++;
    }
}

static void tni_decimal_halve(tni_decimal *a, int bits)          /* a /= 2^bits, bits <= 50 */
{
    tni_decimal from = *a;
    uint64_t    rest = 0, mask = ((uint64_t)1 << bits) - 1;
    int         i;
    a->n = 0;
    for (i = 0; i < from.n || rest != 0; i++) {
        rest = rest * 10 + (i < from.n ? from.d[i] : 0u);
        tni_decimal_push(a, (unsigned)(rest >> bits));
        rest &= mask;
    }
    tni_decimal_trim(a);
}

static void tni_decimal_shift(tni_decimal *a, int bits)          /* a *= 2^bits */
{
    while (bits != 0 && a->n > 0) {
        int step = (int)tni_min(bits > 0 ? bits : -bits, 50);
        if (bits > 0) tni_decimal_double_up(a, step);
        else tni_decimal_halve(a, step);
        bits -= bits > 0 ? step : -step;
    }
}

/* Does the part behind the first `keep` digits round up? Half goes to the even neighbour. */
static bool tni_decimal_rounds_up(const tni_decimal *a, int keep)
{
    if (keep < 0 || keep >= a->n) return false;
    if (a->d[keep] == 5 && keep + 1 == a->n) return keep > 0 && a->d[keep - 1] % 2 == 1;
    return a->d[keep] >= 5;
}

static void tni_decimal_round(tni_decimal *a, int keep)
{
    bool up = tni_decimal_rounds_up(a, keep);
    int  i;
    if (keep < a->n) a->n = keep;
    for (i = a->n - 1; up && i >= 0; i--) {
        up = a->d[i] == 9;
        a->d[i] = (uint8_t)(up ? 0 : a->d[i] + 1);
    }
    if (up) {
        a->d[0] = 1;
        a->n = 1;
        a->point++;
    }
    tni_decimal_trim(a);
}

static double tni_decimal_to_double(tni_decimal *a)
{
    int      exponent = 0, step, bits, i;
    uint64_t mantissa = 0;
    if (a->n == 0 || a->point < -330) return 0.0;
    if (a->point > 310) return HUGE_VAL;
    while (a->point > 0) {                                       /* down to a < 1 */
        step = (int)tni_min(3 * a->point, 50);
        tni_decimal_shift(a, -step);
        exponent += step;
    }
    while (a->point < 0 || a->d[0] < 5) {                        /* up to 0.5 <= a */
        step = (int)tni_min(tni_max(-3 * a->point, 1), 50);
        tni_decimal_shift(a, step);
        exponent -= step;
    }
    bits = exponent < -1021 ? 53 + 1021 + exponent : 53;         /* subnormals keep fewer */
    if (bits < 0) return 0.0;
    tni_decimal_shift(a, bits);
    for (i = 0; i < a->point; i++) mantissa = mantissa * 10 + (i < a->n ? a->d[i] : 0u);
    if (tni_decimal_rounds_up(a, a->point)) mantissa++;
    return ldexp((double)mantissa, exponent - bits);
}

static size_t tni_parse_nonfinite(const char *s, size_t len, double *out)
{
    static const char *const word[] = {"infinity", "inf", "nan"};
    size_t w, i;
    for (w = 0; w < 3; w++) {
        for (i = 0; word[w][i] != 0; i++)
            if (i >= len || (s[i] | 0x20) != word[w][i]) break;
        if (word[w][i] == 0) {
            *out = w == 2 ? (double)NAN : HUGE_VAL;
            return i;
        }
    }
    return 0;
}

/* Reads [+-]digits[.digits][e[+-]digits], inf or nan from the first `len` bytes. Correctly rounded.
   Returns the bytes used, 0 when there is no number. */
TNI_UNUSED static size_t tni_parse_double(const char *s, size_t len, double *out)
{
    tni_decimal a;
    size_t      i = 0, used;
    bool        negative = false, any = false, after_point = false;
    a.n = a.point = 0;
    if (i < len && (s[i] == '+' || s[i] == '-')) negative = s[i++] == '-';
    if ((used = tni_parse_nonfinite(s + i, len - i, out)) > 0) {
        if (negative) *out = -*out;
        return i + used;
    }
    for (; i < len; i++) {
        if (s[i] == '.' && !after_point) { after_point = true; continue; }
        if (s[i] < '0' || s[i] > '9') break;
        any = true;
        if (a.n > 0 || s[i] != '0') {
            tni_decimal_push(&a, (unsigned)(s[i] - '0'));
            if (!after_point) a.point++;
        } else if (after_point) a.point--;
    }
    if (!any) return 0;
    if (i < len && (s[i] == 'e' || s[i] == 'E')) {
        size_t j = i + 1;
        int    exponent = 0;
        bool   down = false;
        if (j < len && (s[j] == '+' || s[j] == '-')) down = s[j++] == '-';
        if (j < len && s[j] >= '0' && s[j] <= '9') {
            for (; j < len && s[j] >= '0' && s[j] <= '9'; j++)
                if (exponent < 100000) exponent = exponent * 10 + (s[j] - '0');
            a.point += down ? -exponent : exponent;
            i = j;
        }
    }
    while (a.n > 0 && a.d[a.n - 1] == 0) a.n--;
    *out = tni_decimal_to_double(&a);
    if (negative) *out = -*out;
    return i;
}

/* Writes v as C's %.{digits}g does, 1 <= digits <= 17, with a point in every locale. Returns the length. */
static int tni_format_double(char dst[32], double v, int digits)
{
    tni_decimal a;
    int         exponent, n = 0, i;
    uint64_t    mantissa;
    if (v != v) { memcpy(dst, "nan", 4); return 3; }
    if (v < 0 || (v == 0 && 1 / v < 0)) { dst[n++] = '-'; v = -v; }
    if (v == HUGE_VAL) { memcpy(dst + n, "inf", 4); return n + 3; }
    mantissa = (uint64_t)ldexp(frexp(v, &exponent), 53);
    for (a.n = a.point = 0; mantissa > 0; mantissa /= 10) a.d[a.n++] = (uint8_t)(mantissa % 10);
    for (i = 0; i < a.n / 2; i++) { uint8_t t = a.d[i]; a.d[i] = a.d[a.n - 1 - i]; a.d[a.n - 1 - i] = t; }
    a.point = a.n;
    tni_decimal_trim(&a);
    tni_decimal_shift(&a, exponent - 53);
    tni_decimal_round(&a, digits);
    exponent = a.n > 0 ? a.point - 1 : 0;
    if (a.n == 0) dst[n++] = '0';
    else if (exponent < -4 || exponent >= digits) {              /* d.ddde+xx */
        dst[n++] = (char)('0' + a.d[0]);
        if (a.n > 1) dst[n++] = '.';
        for (i = 1; i < a.n; i++) dst[n++] = (char)('0' + a.d[i]);
        dst[n++] = 'e';
        dst[n++] = exponent < 0 ? '-' : '+';
        if (exponent < 0) exponent = -exponent;
        if (exponent >= 100) dst[n++] = (char)('0' + exponent / 100);
        dst[n++] = (char)('0' + exponent / 10 % 10);
        dst[n++] = (char)('0' + exponent % 10);
    } else {
        if (a.point <= 0) { dst[n++] = '0'; dst[n++] = '.'; }
        for (i = a.point; i < 0; i++) dst[n++] = '0';
        for (i = 0; i < a.n || i < a.point; i++) {
            if (i == a.point && i > 0) dst[n++] = '.';
            dst[n++] = (char)('0' + (i < a.n ? a.d[i] : 0));
        }
    }
    dst[n] = 0;
    return n;
}

/* ---- text ----------------------------------------------------------------
   The few conversions that messages need, %s %c %d %lld %llu %zu %g, in every locale and without stdio. */
typedef struct tni_text { char *dst; size_t room, length; } tni_text;

static void tni_text_add(tni_text *t, const char *s, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++, t->length++)
        if (t->length + 1 < t->room) t->dst[t->length] = s[i];
    if (t->room > 0) t->dst[t->length < t->room ? t->length : t->room - 1] = 0;
}

static void tni_text_integer(tni_text *t, uint64_t v, bool negative)
{
    char digits[24];
    int  n = 24;
    do digits[--n] = (char)('0' + v % 10); while ((v /= 10) > 0);
    if (negative) digits[--n] = '-';
    tni_text_add(t, digits + n, (size_t)(24 - n));
}

static void tni_text_signed(tni_text *t, int64_t v)
{
    tni_text_integer(t, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v, v < 0);
}

static void tni_text_double(tni_text *t, double v, int digits)
{
    char number[32];
    int  n = tni_format_double(number, v, digits);
    tni_text_add(t, number, (size_t)n);
}

static void tni_text_v(tni_text *t, const char *fmt, va_list args)
{
    tni_text_add(t, "", 0);
    for (; *fmt; fmt++) {
        if (*fmt != '%') { tni_text_add(t, fmt, 1); continue; }
        fmt++;
        if (*fmt == 's') { const char *s = va_arg(args, const char *); tni_text_add(t, s ? s : "NULL", s ? strlen(s) : 4); }
        else if (*fmt == 'c') { char c = (char)va_arg(args, int); tni_text_add(t, &c, 1); }
        else if (*fmt == 'd') tni_text_signed(t, va_arg(args, int));
        else if (*fmt == 'g') tni_text_double(t, va_arg(args, double), 6);
        else if (*fmt == 'z') { fmt++; tni_text_integer(t, va_arg(args, size_t), false); }
        else if (*fmt == 'l') {
            fmt += 2;
            if (*fmt == 'u') tni_text_integer(t, va_arg(args, unsigned long long), false);
            else tni_text_signed(t, va_arg(args, long long));
        } else tni_text_add(t, fmt, 1);
    }
}

TNI_PRINTF(3, 4) static size_t tni_print(char *dst, size_t room, const char *fmt, ...)
{
    tni_text t;
    va_list  args;
    t.dst = dst; t.room = room; t.length = 0;
    va_start(args, fmt);
    tni_text_v(&t, fmt, args);
    va_end(args);
    return t.length;
}

typedef struct tni_shape_text { char s[8 * 21 + 3]; } tni_shape_text;

static tni_shape_text tni_shape_of(int rank, const int64_t *shape)      /* "[3,4]" */
{
    tni_shape_text out;
    tni_text       t;
    int            i;
    t.dst = out.s; t.room = sizeof out.s; t.length = 0;
    tni_text_add(&t, "[", 1);
    for (i = 0; i < rank && i < TN_MAX_RANK; i++) {
        if (i > 0) tni_text_add(&t, ",", 1);
        tni_text_signed(&t, shape[i]);
    }
    tni_text_add(&t, "]", 1);
    return out;
}
#define TNI_SHAPE(t) tni_shape_of((t)->rank, (t)->shape).s

static const char *tni_dtype_name(tn_dtype d)
{
    static const char *const name[] = {"REAL", "F32", "F64", "BF16", "I32"};
    return (unsigned)d < 5 ? name[d] : "?";
}

static size_t tni_dtype_size(tn_dtype d) { return d == TN_F64 ? 8 : d == TN_BF16 ? 2 : 4; }

const char *tn_status_name(tn_status s)
{
    static const char *const name[] = {"ok", "bad argument", "shape", "dtype", "out of memory", "file", "file format",
                                       "backend", "data", "not finite", "no convergence"};
    return (unsigned)s < sizeof name / sizeof *name ? name[s] : "unknown status";
}

#define TNI_TEXT(x)  #x
#define TNI_VALUE(x) TNI_TEXT(x)
const char *tn_version(void)
{
    return TNI_VALUE(TN_VERSION_MAJOR) "." TNI_VALUE(TN_VERSION_MINOR) "." TNI_VALUE(TN_VERSION_PATCH);
}

/* ---- the context ----------------------------------------------------------
   Owned objects hang in one list, so that the context can free what its user forgot. */
typedef struct tni_owned {
    struct tni_owned *prev, *next;
    void            (*destroy)(struct tni_owned *self);
    tn_ctx           *ctx;
} tni_owned;

typedef struct tni_block { char *p; size_t bytes; } tni_block;
#define TNI_BLOCKS 128
#define TNI_BLOCK_MOST ((size_t)256 << 20)  /* blocks double up to here, then follow what is asked for */

typedef struct tni_arena {
    tni_block block[TNI_BLOCKS];
    size_t    blocks, at, used;         /* the block in use, and its bytes in use */
    bool      device;
} tni_arena;

struct tni_node;

typedef struct tni_pool { int threads; tn_parallel_for_fn fn; void *user; } tni_pool;

struct tn_ctx {
    tn_desc           desc;             /* with its defaults patched in         */
    const tn_backend *backend;
    void             *state;
    tni_pool          pool;             /* for host algorithms                  */
    tn_status         status;
    char              error[512];
    tn_memory         memory;
    tni_arena         heads[2], data;   /* tensor headers and tape; their bytes */
    int               head;             /* which of the two is in use: TN_DEBUG keeps the last one readable */
    tn_tensor        *arena_tensors;    /* newest first, linked by prev         */
    tn_tensor        *owned_tensors;
    tni_owned        *owned;
    struct tni_node  *tape;             /* newest first                         */
    bool              recording;
    uint64_t          resets;           /* of the arena: a mark is good for one   */
    tn_tensor        *idle;             /* gradients whose memory is free again */
    tn_tensor        *clock, *fault;    /* device: RNG clock [1], first fault [4] */
    int64_t           calls;            /* random calls since the clock's last tick */
    bool            (*describe)(tn_ctx *ctx, const int32_t fault[4]);
    void             *describe_with;
    uint64_t          kernel_calls[TN_KERNEL_COUNT];
    bool              fallback_said[TN_KERNEL_COUNT];
};

/* What an optimiser keeps on the device, see >>op-optim. */
enum { TNI_LR, TNI_STEP, TNI_SIZE, TNI_FACTOR, TNI_SKIP, TNI_NORM, TNI_SCALARS = 8 };

static void tni_say(const tn_desc *desc, tn_log_level level, const char *message)
{
    if (desc->log) desc->log(desc->log_user, level, message);
}

/* The first error wins; every failure is logged. */
TNI_PRINTF(3, 4) static tn_status tni_fail(tn_ctx *ctx, tn_status s, const char *fmt, ...)
{
    char     message[sizeof ctx->error];
    tni_text t;
    va_list  args;
    t.dst = message; t.room = sizeof message; t.length = 0;
    va_start(args, fmt);
    tni_text_v(&t, fmt, args);
    va_end(args);
    if (!ctx) return s;
    if (ctx->status == TN_OK) {
        ctx->status = s;
        memcpy(ctx->error, message, sizeof message);
    }
    tni_say(&ctx->desc, TN_LOG_ERROR, message);
    return s;
}

TNI_UNUSED TNI_PRINTF(3, 4) static void tni_log(tn_ctx *ctx, tn_log_level level, const char *fmt, ...)
{
    char     message[512];
    tni_text t;
    va_list  args;
    t.dst = message; t.room = sizeof message; t.length = 0;
    va_start(args, fmt);
    tni_text_v(&t, fmt, args);
    va_end(args);
    tni_say(&ctx->desc, level, message);
}

tn_status   tn_ctx_status(const tn_ctx *ctx) { return ctx ? ctx->status : TN_ERR_ARG; }
const char *tn_ctx_error(const tn_ctx *ctx)  { return ctx ? ctx->error : "the context is NULL"; }
tn_dtype    tn_ctx_dtype(const tn_ctx *ctx)   { return ctx ? ctx->desc.dtype : TN_REAL; }
int         tn_ctx_threads(const tn_ctx *ctx) { return ctx ? ctx->pool.threads : 0; }
const char *tn_ctx_backend_name(const tn_ctx *ctx) { return ctx ? ctx->backend->name : "none"; }

tn_memory tn_ctx_memory(const tn_ctx *ctx)
{
    static const tn_memory none = {0, 0, 0, 0};
    return ctx ? ctx->memory : none;
}

void tn_ctx_clear_error(tn_ctx *ctx)
{
    if (!ctx) return;
    ctx->status = TN_OK;
    ctx->error[0] = 0;
}

/* ======================================================================
   >>memory   the allocator, counted; arenas
   ====================================================================== */

static void *tni_malloc(size_t bytes, void *user) { (void)user; return malloc(bytes); }
static void  tni_mfree(void *p, size_t bytes, void *user) { (void)bytes; (void)user; free(p); }

static bool tni_may_hold(tn_ctx *ctx, size_t bytes, const char *what)
{
    size_t max = ctx->desc.max_bytes, live = ctx->memory.live;
    if (max == 0 || (live <= max && bytes <= max - live)) return true;
    tni_fail(ctx, TN_ERR_MEMORY, "%s: %zu bytes on top of %zu are more than max_bytes = %zu", what, bytes, live, max);
    return false;
}

static void *tni_counted(tn_ctx *ctx, void *p, size_t bytes, const char *what)
{
    if (!p) {
        tni_fail(ctx, TN_ERR_MEMORY, "%s: no memory for %zu bytes", what, bytes);
        return NULL;
    }
    ctx->memory.allocations++;
    ctx->memory.live += bytes;
    if (ctx->memory.live > ctx->memory.peak) ctx->memory.peak = ctx->memory.live;
    return p;
}

/* Host memory, not zeroed, counted against max_bytes. NULL with an error that names `what`. */
static void *tni_alloc(tn_ctx *ctx, size_t bytes, const char *what)
{
    if (!tni_may_hold(ctx, bytes, what)) return NULL;
    return tni_counted(ctx, ctx->desc.allocator.alloc(bytes ? bytes : 1, ctx->desc.allocator.user), bytes, what);
}

static void tni_free(tn_ctx *ctx, void *p, size_t bytes)
{
    if (!p) return;
    ctx->desc.allocator.release(p, bytes ? bytes : 1, ctx->desc.allocator.user);
    ctx->memory.live -= bytes;
}

/* The same from the backend. */
static void *tni_device_alloc(tn_ctx *ctx, size_t bytes, const char *what)
{
    if (!tni_may_hold(ctx, bytes, what)) return NULL;
    return tni_counted(ctx, ctx->backend->alloc(ctx->state, bytes ? bytes : 1), bytes, what);
}

static void tni_device_free(tn_ctx *ctx, void *p, size_t bytes)
{
    if (!p) return;
    ctx->backend->release(ctx->state, p, bytes ? bytes : 1);
    ctx->memory.live -= bytes;
}

/* n m doubles for a host algorithm. */
static double *tni_room_f64(tn_ctx *ctx, int64_t n, int64_t m, const char *what)
{
    size_t bytes;
    if (!tni_area_size(n, m, 8, &bytes)) {
        tni_fail(ctx, TN_ERR_MEMORY, "%s: %lld x %lld doubles do not fit a size", what, (long long)n, (long long)m);
        return NULL;
    }
    return (double *)tni_alloc(ctx, bytes, what);
}

/* The same, zeroed. */
static double *tni_alloc_f64(tn_ctx *ctx, int64_t n, int64_t m, const char *what)
{
    double *p = tni_room_f64(ctx, n, m, what);
    if (p) memset(p, 0, (size_t)n * (size_t)m * sizeof *p);
    return p;
}

static void tni_free_f64(tn_ctx *ctx, double *p, int64_t n, int64_t m) { tni_free(ctx, p, (size_t)n * (size_t)m * 8); }

static void tni_own(tn_ctx *ctx, tni_owned *o, void (*destroy)(tni_owned *))
{
    o->ctx = ctx;
    o->destroy = destroy;
    o->prev = NULL;
    o->next = ctx->owned;
    if (o->next) o->next->prev = o;
    ctx->owned = o;
}

static void tni_disown(tni_owned *o)
{
    if (o->prev) o->prev->next = o->next;
    else o->ctx->owned = o->next;
    if (o->next) o->next->prev = o->prev;
}

/* ---- arenas: blocks that are kept, a mark that moves ---------------------- */
#define TNI_ALIGN 64

static bool tni_arena_grow(tn_ctx *ctx, tni_arena *a, size_t bytes)
{
    size_t want = a->blocks > 0 ? a->block[a->blocks - 1].bytes : a->device ? ctx->desc.arena_bytes / 2 : 16384;
    void  *p;
    if (a->blocks == TNI_BLOCKS) {
        tni_fail(ctx, TN_ERR_MEMORY, "arena: %d blocks are in use", TNI_BLOCKS);
        return false;
    }
    want = want <= TNI_BLOCK_MOST / 2 ? want * 2 : TNI_BLOCK_MOST;
    if (want < ctx->memory.arena / 8) want = ctx->memory.arena / 8;
    if (want < bytes) want = bytes;
    if (ctx->desc.max_bytes > 0) {       /* near the limit a block of just the size is better than none */
        size_t left = ctx->desc.max_bytes - (size_t)tni_min((int64_t)ctx->memory.live, (int64_t)ctx->desc.max_bytes);
        if (want > left / 2) want = bytes;
    }
    p = a->device ? tni_device_alloc(ctx, want, "arena") : tni_alloc(ctx, want, "arena");
    if (!p) return false;
    ctx->memory.arena += want;
    a->block[a->blocks].p = (char *)p;
    a->block[a->blocks++].bytes = want;
    return true;
}

static void *tni_arena_take(tn_ctx *ctx, tni_arena *a, size_t bytes)
{
    char *p;
    if (bytes > SIZE_MAX - TNI_ALIGN) {
        tni_fail(ctx, TN_ERR_MEMORY, "arena: %zu bytes do not fit a size", bytes);
        return NULL;
    }
    bytes = (bytes + TNI_ALIGN - 1) / TNI_ALIGN * TNI_ALIGN;
    while (a->at < a->blocks && a->block[a->at].bytes - a->used < bytes) { a->at++; a->used = 0; }
    if (a->at == a->blocks && !tni_arena_grow(ctx, a, bytes)) return NULL;
    p = a->block[a->at].p + a->used;
    a->used += bytes;
    return p;
}

static void tni_arena_free(tn_ctx *ctx, tni_arena *a)
{
    size_t i;
    for (i = 0; i < a->blocks; i++) {
        ctx->memory.arena -= a->block[i].bytes;
        if (a->device) tni_device_free(ctx, a->block[i].p, a->block[i].bytes);
        else tni_free(ctx, a->block[i].p, a->block[i].bytes);
    }
    a->blocks = a->at = a->used = 0;
}

/* ======================================================================
   >>rng      Philox 4x32-10: a counter and a key give four words
   The same numbers on every backend and for any number of threads, since element e of random call c
   is a pure function of (seed, clock, c, e). Salmon, Moraes, Dror & Shaw 2011.
   ====================================================================== */

static void tni_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    int      round;
    for (round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

/* The four words for elements 4 block .. 4 block + 3 of a random call. */
static void tni_random_words(uint64_t key, int64_t call, uint32_t clock, uint64_t block, uint32_t out[4])
{
    uint32_t counter[4];
    counter[0] = (uint32_t)block;
    counter[1] = (uint32_t)(block >> 32);
    counter[2] = (uint32_t)call;
    counter[3] = clock;
    tni_philox(counter, key, out);
}

/* 23 bits in the middle of their interval: never 0, never 1, exact in float. */
static float tni_unit(uint32_t word) { return ((float)(word >> 9) + 0.5f) * (1.0f / 8388608.0f); }

/* ======================================================================
   >>threads  parallel-for over tasks whose boundaries never depend on the number of threads
   ====================================================================== */

static int tni_default_threads(const tn_desc *desc)
{
#if defined(_OPENMP) && !defined(TN_NO_THREADS)
    if (!desc->parallel_for) return omp_get_max_threads();
#endif
    (void)desc;
    return 1;
}

static void tni_parallel_for(const tni_pool *pool, int64_t tasks, tn_task_fn fn, void *arg)
{
    int64_t task;
    int     workers = (int)tni_min(pool->threads, tasks);
    if (workers > 1 && pool->fn) {
        pool->fn(pool->user, tasks, workers, fn, arg);
        return;
    }
#if defined(_OPENMP) && !defined(TN_NO_THREADS)
    if (workers > 1) {
#pragma omp parallel for schedule(dynamic) num_threads(workers)
        for (task = 0; task < tasks; task++) fn(arg, task, omp_get_thread_num());
        return;
    }
#endif
    for (task = 0; task < tasks; task++) fn(arg, task, 0);
}

static const tni_pool *tni_ctx_pool(tn_ctx *ctx) { return &ctx->pool; }

/* ======================================================================
   >>cpu      the fast host backend
   A few kernels carry all the time: the matrix product, and passes over memory that are fused so that
   each number is read once. They are written once, in terms of a vector of TNI_W numbers, and the header
   reads them several times (>>cpu-pass): for plain C, AVX2, AVX-512 and NEON, in float and in double.
   What the processor has decides which of them a context runs; no -m flag is needed. Strange strides and
   rare kernels go to the reference.

   Work is cut into tasks by shape alone and sums have a fixed order: the same bits for any number of
   threads.
   ====================================================================== */

static tn_status tni_reference_run(void *state, const tn_call *c);
static void tni_fault(const tn_view *word, int32_t code, int64_t which, int64_t value, int32_t step);

/* gcc for Windows keeps its stack aligned to 16 bytes only, too little for wider vectors (GCC PR 54412). */
#if defined(__GNUC__) && defined(__x86_64__) && (!defined(_WIN32) || defined(__clang__))
#define TNI_X86 1
#include <immintrin.h>
#else
#define TNI_X86 0
#endif
#if defined(__GNUC__) && defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define TNI_NEON 1                      /* part of every such processor: nothing to ask at run time */
#include <arm_neon.h>
#else
#define TNI_NEON 0
#endif
/* The x87 mixes with no vector. */
#if defined(__GNUC__) && (defined(__SSE2__) || defined(__aarch64__)) && __FLT_EVAL_METHOD__ != 2
#define TNI_PLAIN_BYTES 16              /* of a vector in plain C */
#else
#define TNI_PLAIN_BYTES 0               /* none: one number at a time */
#endif

/* The best level up to the wanted one that both processor and operating system have. A level of another kind of
   processor counts as plain. */
static tn_simd tni_cpu_simd(tn_simd wanted)
{
#if TNI_X86
    bool avx2, avx512;
    __builtin_cpu_init();
    avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
          && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && (wanted == TN_SIMD_BEST || wanted == TN_SIMD_AVX512)) return TN_SIMD_AVX512;
    if (avx2 && wanted != TN_SIMD_PLAIN && wanted != TN_SIMD_NEON) return TN_SIMD_AVX2;
#elif TNI_NEON
    if (wanted == TN_SIMD_BEST || wanted == TN_SIMD_NEON) return TN_SIMD_NEON;
#endif
    (void)wanted;
    return TN_SIMD_PLAIN;
}

/* ---- the state --------------------------------------------------------------
   The matrix product packs a block of A and one of B, so that its inner loop reads straight on. One large
   product has LARGE bytes for each; in a batch of small ones every worker has its own, of SMALL bytes. The
   two kinds are never in use at once and lie over each other. */
enum {
    TNI_GEMM_LARGE = 3 << 20,
    TNI_GEMM_SMALL = 1 << 18,
    TNI_GEMM_DEPTH = 3200,              /* bytes of a row of A in a block, at most: 784 floats are one */
    TNI_GEMM_SHALLOW = 16,              /* depth up to which packing does not pay */
    TNI_GEMM_CUT   = 1 << 25,           /* operations of a product that is worth cutting */
    TNI_CPU_SHARE  = 16384,             /* elements that a task of a simple pass takes */
    TNI_CPU_ALONE  = 65536,             /* elements that are done before a second thread is awake */
    TNI_CPU_STRIP  = 32,                /* lines that are turned at a time */
    TNI_CPU_PARTS  = 1024,              /* most tasks of a pass that leave a partial sum each */
    TNI_PROD_MOST  = 16                 /* most factors of a product that is taken back in registers */
};

static const tni_pool tni_alone = {1, NULL, NULL};

typedef struct tni_cpu {
    tn_allocator mem;
    tni_pool     pool;
    tn_kernel_fn run[2];                /* in float, in double */
    char        *blocks;                /* for gemm; scratch for others */
    size_t       block_bytes;
    char        *room;                  /* larger scratch, see tni_cpu_room */
    size_t       room_bytes;
    double       part[TNI_CPU_PARTS];
    int          gemm_parts;            /* of bfloat16 in a float, where the next is not NULL */
    void       (*gemm_products)(int parts, int64_t blocks, const char *a, const char *b, float *sums);
} tni_cpu;

/* 64-byte aligned; the allocator's own pointer stands just before. */
static void *tni_cpu_alloc(void *state, size_t bytes)
{
    tni_cpu *cpu = (tni_cpu *)state;
    size_t   total;
    char    *raw, *p;
    if (!tni_add_size(bytes, TNI_ALIGN + sizeof raw, &total)) return NULL;
    raw = (char *)cpu->mem.alloc(total, cpu->mem.user);
    if (!raw) return NULL;
    p = raw + sizeof raw;
    p += (0 - (uintptr_t)p) % TNI_ALIGN;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}

static void tni_cpu_release(void *state, void *p, size_t bytes)
{
    tni_cpu *cpu = (tni_cpu *)state;
    char    *raw;
    if (!p) return;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    cpu->mem.release(raw, bytes + TNI_ALIGN + sizeof raw, cpu->mem.user);
}

static tn_status tni_cpu_move(void *state, void *dst, const void *src, size_t bytes)
{
    (void)state;
    if (bytes > 0) memmove(dst, src, bytes);
    return TN_OK;
}

static void tni_cpu_close(void *state)
{
    tni_cpu     *cpu = (tni_cpu *)state;
    tn_allocator mem;
    if (!cpu) return;
    mem = cpu->mem;
    tni_cpu_release(cpu, cpu->blocks, cpu->block_bytes);
    tni_cpu_release(cpu, cpu->room, cpu->room_bytes);
    mem.release(cpu, sizeof *cpu, mem.user);
}

static tni_cpu *tni_cpu_new(const tn_desc *desc, int threads)
{
    tni_cpu *cpu = (tni_cpu *)desc->allocator.alloc(sizeof *cpu, desc->allocator.user);
    if (!cpu) return NULL;
    memset(cpu, 0, sizeof *cpu);
    cpu->mem = desc->allocator;
    cpu->pool.threads = threads;
    cpu->pool.fn = desc->parallel_for;
    cpu->pool.user = desc->parallel_user;
    return cpu;
}

/* ---- a pass over n elements or rows, cut into tasks -------------------------- */
typedef struct tni_pass {
    tni_cpu       *cpu;
    const tn_call *call;
    int64_t        n, share;            /* items, and how many of them one task takes */
} tni_pass;

static int64_t tni_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static int64_t tni_pass_begin(const tni_pass *p, int64_t task) { return task * p->share; }
static int64_t tni_pass_end(const tni_pass *p, int64_t task)   { return tni_min(p->n, (task + 1) * p->share); }

/* Items of `width` elements in at most `most` tasks. Returns how many tasks it took. */
static int64_t tni_pass_run(tni_pass *p, int64_t n, int64_t width, int64_t most, tn_task_fn fn)
{
    int64_t tasks;
    p->n = n;
    p->share = tni_max(TNI_CPU_SHARE / tni_max(width, 1), 1);
    p->share = tni_max(p->share, tni_ceil_div(n, most));
    tasks = tni_ceil_div(n, p->share);
    tni_parallel_for(n <= TNI_CPU_ALONE / tni_max(width, 1) ? &tni_alone : &p->cpu->pool, tasks, fn, p);
    return tasks;
}

static double tni_parts_sum(const tni_cpu *cpu, int64_t parts)
{
    double  sum = 0;
    int64_t i;
    for (i = 0; i < parts; i++) sum += cpu->part[i];
    return sum;
}

/* ---- lines ------------------------------------------------------------------
   Views of one shape, with as few axes as they allow: neighbours that lie in memory as one axis become
   one. The last axis is the line that a kernel runs along; long ones are cut into pieces. */
typedef struct tni_lines {
    int     views, rank;                /* rank: axes before the line */
    int64_t shape[TN_MAX_RANK];
    int64_t strides[3][TN_MAX_RANK];
    int64_t length, step[3];            /* of the line */
    int64_t piece, pieces, count;       /* pieces of a line, all pieces */
} tni_lines;

static void tni_lines_push(tni_lines *l, const tn_view *const *v, int axis)
{
    int  k, last = l->rank - 1;
    bool joins = last >= 0;
    for (k = 0; k < l->views && joins; k++)
        joins = l->strides[k][last] == v[k]->strides[axis] * v[k]->shape[axis];
    if (joins) l->shape[last] *= v[0]->shape[axis];
    else l->shape[++last] = v[0]->shape[axis];
    for (k = 0; k < l->views; k++) l->strides[k][last] = v[k]->strides[axis];
    l->rank = last + 1;
}

static tni_lines tni_lines_of(const tn_view *a, const tn_view *b, const tn_view *c)
{
    const tn_view *v[3];
    tni_lines      l;
    int            i, k;
    memset(&l, 0, sizeof l);
    v[0] = a; v[1] = b; v[2] = c;
    while (l.views < 3 && v[l.views]) l.views++;
    for (i = 0; i < a->rank; i++)
        if (a->shape[i] != 1) tni_lines_push(&l, v, i);
    l.length = 1;
    if (l.rank > 0) {
        l.length = l.shape[--l.rank];
        for (k = 0; k < l.views; k++) l.step[k] = l.strides[k][l.rank];
    }
    l.piece = tni_min(tni_max(l.length, 1), TNI_CPU_SHARE);
    l.pieces = tni_ceil_div(l.length, l.piece);
    l.count = l.pieces;
    for (i = 0; i < l.rank; i++) l.count *= l.shape[i];
    return l;
}

/* Where piece `index` begins in each view; returns its length. */
static int64_t tni_lines_at(const tni_lines *l, int64_t index, int64_t offset[3])
{
    int64_t start = index % l->pieces * l->piece;
    int     i, k;
    index /= l->pieces;
    for (k = 0; k < l->views; k++) offset[k] = start * l->step[k];
    for (i = l->rank - 1; i >= 0; i--) {
        int64_t at = index % l->shape[i];
        index /= l->shape[i];
        for (k = 0; k < l->views; k++) offset[k] += at * l->strides[k][i];
    }
    return tni_min(l->piece, l->length - start);
}

typedef struct tni_line_pass { tni_pass pass; tni_lines lines; } tni_line_pass;   /* a tni_pass comes first */

static tn_status tni_line_pass_run(tni_cpu *cpu, const tn_call *c, const tni_lines *l, tn_task_fn fn)
{
    tni_line_pass p;
    p.pass.cpu = cpu;
    p.pass.call = c;
    p.lines = *l;
    tni_pass_run(&p.pass, l->count, l->piece, INT64_MAX, fn);
    return TN_OK;
}

/* ---- copy and fill: by the size of an element, whatever it means ---------------- */
static void tni_copy_line(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, int64_t size)
{
    int64_t i;
    if (to_step == 1 && from_step <= 1 && from_step >= 0 && n > 0) {
        int64_t have = from_step == 1 ? n : 1;          /* one for all: what is there doubles */
        memcpy(to, from, (size_t)(have * size));
        for (; have < n; have *= 2) memcpy(to + have * size, to, (size_t)(tni_min(have, n - have) * size));
        return;
    }
    to_step *= size;
    from_step *= size;
    if (size == 8) for (i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 8);
    else if (size == 4) for (i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 4);
    else for (i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 2);
}

static void tni_copy_task(void *arg, int64_t task, int worker)
{
    const tni_line_pass *p = (const tni_line_pass *)arg;
    const tn_call       *c = p->pass.call;
    int64_t i, n, at[3], size = (int64_t)tni_dtype_size(c->out[0].dtype);
    (void)worker;
    for (i = tni_pass_begin(&p->pass, task); i < tni_pass_end(&p->pass, task); i++) {
        n = tni_lines_at(&p->lines, i, at);
        tni_copy_line((char *)c->out[0].data + at[0] * size, p->lines.step[0],
                      (const char *)c->in[0].data + at[1] * size, p->lines.step[1], n, size);
    }
}

/* Where the lines of x run across those of y: squares, turned in a buffer, so that each cache line is met once. */
typedef struct tni_turn_pass { tni_line_pass along; int64_t length, step; } tni_turn_pass;  /* y's lines, x's step there */

static void tni_turn_task(void *arg, int64_t task, int worker)
{
    const tni_turn_pass *p = (const tni_turn_pass *)arg;
    const tni_lines     *l = &p->along.lines;
    const tn_call       *c = p->along.pass.call;
    int64_t i, k, r, n, rows, at[3], size = (int64_t)tni_dtype_size(c->out[0].dtype);
    char    square[TNI_CPU_STRIP * TNI_CPU_STRIP * sizeof(double)];
    (void)worker;
    for (i = tni_pass_begin(&p->along.pass, task); i < tni_pass_end(&p->along.pass, task); i++) {
        rows = tni_lines_at(l, i, at);
        for (k = 0; k < p->length; k += n) {
            n = tni_min(TNI_CPU_STRIP, p->length - k);
            for (r = 0; r < n; r++)
                tni_copy_line(square + r * size, TNI_CPU_STRIP,
                              (const char *)c->in[0].data + (at[1] + (k + r) * p->step) * size, 1, rows, size);
            for (r = 0; r < rows; r++)
                tni_copy_line((char *)c->out[0].data + (at[0] + r * l->step[0] + k) * size, 1,
                              square + r * TNI_CPU_STRIP * size, 1, n, size);
        }
    }
}

static tn_status tni_cpu_copy_run(tni_cpu *cpu, const tn_call *c)
{
    tni_turn_pass p;
    tni_lines    *l = &p.along.lines;
    if (c->in[0].dtype != c->out[0].dtype) return tni_reference_run(cpu, c);
    *l = tni_lines_of(&c->out[0], &c->in[0], NULL);
    if (l->rank == 0 || l->count == 0 || l->step[0] != 1 || (uint64_t)l->step[1] <= 1 || l->strides[1][l->rank - 1] != 1)
        return tni_line_pass_run(cpu, c, l, tni_copy_task);
    p.along.pass.cpu = cpu;
    p.along.pass.call = c;
    p.length = l->length;
    p.step = l->step[1];
    l->length = l->shape[--l->rank];
    l->step[0] = l->strides[0][l->rank];
    l->step[1] = 1;
    l->piece = TNI_CPU_STRIP;
    l->count /= l->pieces * l->length;
    l->pieces = tni_ceil_div(l->length, l->piece);
    l->count *= l->pieces;
    tni_pass_run(&p.along.pass, l->count, TNI_CPU_STRIP * p.length, INT64_MAX, tni_turn_task);
    return TN_OK;
}

/* One element, copied to everywhere. */
static tn_status tni_cpu_fill_run(tni_cpu *cpu, const tn_call *c)
{
    tn_call copy = *c;
    double  wide = c->f[0];
    float   narrow = (float)wide;
    if (c->out[0].dtype != TN_F32 && c->out[0].dtype != TN_F64) return tni_reference_run(cpu, c);
    copy.in[0] = c->out[0];
    copy.in[0].data = c->out[0].dtype == TN_F64 ? (void *)&wide : (void *)&narrow;
    memset(copy.in[0].strides, 0, sizeof copy.in[0].strides);
    return tni_cpu_copy_run(cpu, &copy);
}

/* ---- the host's algebra: its inner loops, in double at each level; who uses them is in >>decomp-impl ---------- */
enum {
    TNI_HOST_CUT  = 1 << 21,            /* operations of a product that is worth several threads */
    TNI_HOST_MOST = TNI_GEMM_SMALL / 8, /* doubles of a block of gemm, */
    TNI_HOST_LEAST = TNI_GEMM_DEPTH / 8 * 16,   /* and the fewest that hold a panel */
    TNI_STRIP     = 32                  /* columns that are rotated together */
};

/* A matrix in place: element (i,j) is p[i row + j col]. */
typedef struct tni_mat { double *p; int64_t row, col; } tni_mat;

typedef struct tni_sums { double value, slope, bend; } tni_sums;    /* of z_i^2/pole_i, z_i^2/pole_i^2, z_i^2/pole_i^3 */

typedef struct tni_algebra tni_algebra;
typedef struct tni_host {               /* who computes, with which threads, and two blocks for gemm */
    const tni_algebra *by;
    const tni_pool    *pool;
    char              *blocks;
    int64_t            bytes;           /* of each */
} tni_host;

struct tni_algebra {
    /* C[m,n] = alpha A[m,k] B[k,n] + beta C. beta == 0 never reads C. */
    void   (*gemm)(const tni_host *h, int64_t m, int64_t n, int64_t k, double alpha, tni_mat a, tni_mat b, double beta,
                   tni_mat c);
    double (*dot)(int64_t n, const double *x, const double *y);
    void   (*axpy)(int64_t n, double alpha, const double *x, double *y);             /* y += alpha x              */
    void   (*scale)(int64_t n, double alpha, double *x);
    void   (*rotate)(int64_t n, double c, double s, double *x, double *y);           /* [x;y] = [c -s; s c] [x;y] */
    /* A -= v w^T + w v^T, unless v is NULL, then y = A x, of all but the first `from` rows and columns; of A the
       upper triangle is read and written. */
    void   (*upper_times)(int64_t from, int64_t n, double *a, int64_t stride, const double *v, const double *w,
                          const double *x, double *y);
    void   (*rotate_strip)(const double *list, const double *end, double *strip);    /* >>eigh, step 2: QL        */
    /* >>eigh, divide and conquer: pole_i = d_i - origin - tau */
    tni_sums (*poles)(int64_t n, const double *d, const double *z, double origin, double tau);
    /* w_i *= pole_i/(d_i - other) */
    void   (*weights)(int64_t n, const double *d, double origin, double tau, double other, double *w);
    /* row_i = z_i/pole_i, then to unit length */
    void   (*pole_vector)(int64_t n, const double *d, const double *z, double origin, double tau, double *row);
};

#ifdef TN_USE_BLAS
/* ---- BLAS and LAPACK, by their Fortran names: any library has them, and no header is needed. Integers are int.
   A Fortran compiler passes the lengths of strings behind all else. [lapack] */
#ifdef __cplusplus
extern "C" {
#endif
extern void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const float *alpha,
                   const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
                   const int *ldc, size_t, size_t);
extern void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const double *alpha,
                   const double *a, const int *lda, const double *b, const int *ldb, const double *beta, double *c,
                   const int *ldc, size_t, size_t);
extern void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
                    const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t);
extern void dgesdd_(const char *jobz, const int *m, const int *n, double *a, const int *lda, double *s, double *u,
                    const int *ldu, double *vt, const int *ldvt, double *work, const int *lwork, int *iwork, int *info,
                    size_t);
#ifdef __cplusplus
}
#endif
#define TNI_LAPACK_MOST 16384           /* rows and columns: its workspace is counted by an int */
#define TNI_BLAS_WORK (1 << 21)         /* products below, in multiplications, are faster here */

/* Is [rows,cols] with these strides a matrix that BLAS knows: by columns ('N'), or by rows, which it calls transposed?
   0: neither. */
static char tni_blas_lies(int64_t rows, int64_t cols, int64_t row, int64_t col, int *ld)
{
    const bool by_columns = row == 1 && col >= rows;
    *ld = (int)(by_columns ? col : row);
    if ((by_columns ? col : row) > INT32_MAX) return 0;
    return by_columns ? 'N' : col == 1 && row >= cols ? 'T' : 0;
}

/* C = alpha A B + beta C with C by rows, that is, C^T = B^T A^T with C^T by columns. False: BLAS cannot, or it does
   not pay. */
static bool tni_blas_gemm(tn_dtype dtype, int64_t m, int64_t n, int64_t k, double alpha, const void *a, int64_t a_row,
                          int64_t a_col, const void *b, int64_t b_row, int64_t b_col, double beta, void *c,
                          int64_t c_row, int64_t c_col)
{
    int   im = (int)m, in = (int)n, ik = (int)k, lda, ldb, ldc = (int)c_row;
    char  ta, tb;
    float alpha32 = (float)alpha, beta32 = (float)beta;
    if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX || (double)m * (double)n * (double)k < TNI_BLAS_WORK) return false;
    if (alpha == 0 || c_col != 1 || c_row < n || c_row > INT32_MAX) return false;
    ta = tni_blas_lies(k, m, a_col, a_row, &lda);
    tb = tni_blas_lies(n, k, b_col, b_row, &ldb);
    if (!ta || !tb) return false;
    if (dtype == TN_F64)
        dgemm_(&tb, &ta, &in, &im, &ik, &alpha, (const double *)b, &ldb, (const double *)a, &lda,
               &beta, (double *)c, &ldc, 1, 1);
    else
        sgemm_(&tb, &ta, &in, &im, &ik, &alpha32, (const float *)b, &ldb, (const float *)a, &lda,
               &beta32, (float *)c, &ldc, 1, 1);
    return true;
}
#endif

/* ---- embed, see >>op-embed ---- */
static void tni_embed_task(void *arg, int64_t task, int worker)
{
    const tni_pass *p = (const tni_pass *)arg;
    const tn_call  *c = p->call;
    const int32_t  *ids = (const int32_t *)c->in[1].data;
    const size_t    row = (size_t)c->out[0].shape[1] * tni_dtype_size(c->out[0].dtype);
    int64_t         r;
    (void)worker;
    for (r = tni_pass_begin(p, task); r < tni_pass_end(p, task); r++) {
        char *to = (char *)c->out[0].data + (size_t)r * row;
        if (ids[r] >= 0 && ids[r] < c->in[0].shape[0]) memcpy(to, (const char *)c->in[0].data + (size_t)ids[r] * row, row);
        else memset(to, 0, row);
    }
}

static tn_status tni_cpu_embed_run(tni_cpu *cpu, const tn_call *c)
{
    const int32_t *ids = (const int32_t *)c->in[1].data;
    int64_t        r, R = c->out[0].shape[0];
    tni_pass       p;
    p.cpu = cpu;
    p.call = c;
    tni_pass_run(&p, R, c->out[0].shape[1], INT64_MAX, tni_embed_task);
    for (r = 0; r < R; r++)
        if (ids[r] < 0 || ids[r] >= c->in[0].shape[0]) tni_fault(&c->out[1], 1, r, ids[r], 0);
    return TN_OK;
}

/* ---- attention: what the passes of all levels know of a call, see >>op-attention ------------------------------------
   The keys [low,high) of this call that query i sees, and how many there are with the past. */
typedef struct tni_seen { int64_t low, high, n; } tni_seen;

static tni_seen tni_attend_seen(const tn_call *c, int64_t i);
static double   tni_attend_row_scale(const tn_call *c, int64_t n);
static bool     tni_attend_sums(const tn_call *c);
static int64_t  tni_attend_features(int64_t kind, int64_t d);
static int64_t  tni_attend_before(const tn_call *c, int64_t i);

enum {
    TNI_ATTEND_KEYS  = 128,             /* of a tile of scores, at most */
    TNI_ATTEND_PARTS = 4,               /* of few heads: of the keys backwards, of v's columns in the linear form */
    TNI_ATTEND_FEW   = 8,               /* heads that are few */
    TNI_ATTEND_SLAB  = 256              /* features that are multiplied out at a time */
};

typedef struct tni_attention {
    tni_cpu       *cpu;
    const tn_call *call;
    char          *room;                /* scratch: `each` bytes a worker, then `partial` for all */
    size_t         each;
    char          *partial;             /* dq of every part */
    int64_t        heads, all_heads;    /* of one item of the batch, of all */
    int64_t        sets, d, dv, queries, keys;
    int64_t        side, blocks;        /* queries of a block, how many blocks */
    int64_t        parts, columns;      /* parts of the keys, or of v's columns, `columns` each */
    bool           softmax, squared, sums;
    bool           local;               /* a block's own keys only: the state has those before */
} tni_attention;

/* Scratch that lasts from one kernel to the next; it grows where a larger one is wanted. NULL: no memory. */
static char *tni_cpu_room(tni_cpu *cpu, size_t bytes)
{
    if (bytes <= cpu->room_bytes) return cpu->room;
    tni_cpu_release(cpu, cpu->room, cpu->room_bytes);
    cpu->room = (char *)tni_cpu_alloc(cpu, bytes);
    cpu->room_bytes = cpu->room ? bytes : 0;
    return cpu->room;
}

/* Room for `numbers` of `size` bytes for every worker, and for `shared` more. */
static bool tni_attention_room(tni_attention *t, double numbers, double shared, size_t size)
{
    const double each = (numbers + 64) * (double)size, all = each * t->cpu->pool.threads + (shared + 16) * (double)size;
    if (!(all < (double)(PTRDIFF_MAX / 2))) return false;
    t->each = ((size_t)each + 63) / 64 * 64;
    t->room = tni_cpu_room(t->cpu, t->each * (size_t)t->cpu->pool.threads + (size_t)shared * size);
    t->partial = t->room ? t->room + t->each * (size_t)t->cpu->pool.threads : NULL;
    return t->room != NULL;
}

static tni_attention tni_attention_of(tni_cpu *cpu, const tn_call *c, int64_t side)
{
    tni_attention t;
    memset(&t, 0, sizeof t);
    t.cpu = cpu;
    t.call = c;
    t.queries = c->in[0].shape[1];
    t.keys = c->in[2].shape[1];
    t.heads = c->in[2].shape[2];
    t.all_heads = c->in[2].shape[0] * t.heads;
    t.d = c->in[0].shape[3];
    t.dv = c->in[2].shape[3];
    t.sets = c->i[0] == TN_ATTEND_BILINEAR ? 2 : 1;
    t.softmax = c->i[0] == TN_ATTEND_SOFTMAX;
    t.squared = c->i[0] == TN_ATTEND_SQUARED;
    t.sums = tni_attend_sums(c);
    t.side = side;
    t.blocks = tni_ceil_div(t.queries, side);
    t.parts = 1;
    t.columns = t.dv;
    return t;
}

/* ---- the passes: each level in float, then in double ------------------------------ */
#if TNI_X86
static const int32_t tni_lane_mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
#endif
static const uint32_t tni_lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

#define TNI_LEVEL 0
#define TNI_REAL float
#define TNI_BITS 32
#define TNI_T(name) tni_f32_##name##_plain
#include "tensornet.h"
#undef TNI_T
#undef TNI_BITS
#undef TNI_REAL
#define TNI_REAL double
#define TNI_BITS 64
#define TNI_T(name) tni_f64_##name##_plain
#include "tensornet.h"
#undef TNI_T
#undef TNI_BITS
#undef TNI_REAL
#undef TNI_LEVEL
#if TNI_X86
#define TNI_LEVEL 1
#define TNI_REAL float
#define TNI_BITS 32
#define TNI_T(name) tni_f32_##name##_avx2
#include "tensornet.h"
#undef TNI_T
#undef TNI_BITS
#undef TNI_REAL
#define TNI_REAL double
#define TNI_BITS 64
#define TNI_T(name) tni_f64_##name##_avx2
#include "tensornet.h"
#undef TNI_T
#undef TNI_BITS
#undef TNI_REAL
#undef TNI_LEVEL
#define TNI_LEVEL 2
#define TNI_REAL float
#define TNI_BITS 32
#define TNI_T(name) tni_f32_##name##_avx512
#include "tensornet.h"
#undef TNI_T
#undef TNI_BITS
#undef TNI_REAL
#define TNI_REAL double
#define TNI_BITS 64
#define TNI_T(name) tni_f64_##name##_avx512
#include "tensornet.h"
#undef TNI_T
#undef TNI_BITS
#undef TNI_REAL
#undef TNI_LEVEL
#elif TNI_NEON
#define TNI_LEVEL 3
#define TNI_REAL float
#define TNI_BITS 32
#define TNI_T(name) tni_f32_##name##_neon
#include "tensornet.h"
#undef TNI_T
#undef TNI_BITS
#undef TNI_REAL
#define TNI_REAL double
#define TNI_BITS 64
#define TNI_T(name) tni_f64_##name##_neon
#include "tensornet.h"
#undef TNI_T
#undef TNI_BITS
#undef TNI_REAL
#undef TNI_LEVEL
#endif

#endif /* the implementation goes on below */

/* ======================================================================
   >>cpu-pass the kernels of one level (0 plain, 1 AVX2, 2 AVX-512, 3 NEON) in one precision
   ====================================================================== */
#ifdef TNI_LEVEL

#if TNI_LEVEL == 2
#define TNI_ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#elif TNI_LEVEL == 1
#define TNI_ISA __attribute__((target("avx2,fma")))
#else
#define TNI_ISA
#endif
#define TNI_FAST TNI_UNUSED TNI_ISA static
#ifdef __GNUC__
#define TNI_INLINE TNI_UNUSED TNI_ISA __attribute__((always_inline)) static inline
#else
#define TNI_INLINE static inline
#endif

/* ---- a vector: TNI_W numbers that know + - * /, and a few functions ----------------
   TNI_SOME(k) is the mask of the first k lanes. x86's max gives its second operand when one is NaN, and
   so does ours: TNI_MAX(bound, x) keeps a NaN in x. */
#if TNI_LEVEL == 2 && TNI_BITS == 32
typedef __m512 TNI_T(v);
#define TNI_MM(op)  _mm512_##op##_ps
#define TNI_SOME(k) ((__mmask16)(0xffffu >> (16 - (k))))
#elif TNI_LEVEL == 2
typedef __m512d TNI_T(v);
#define TNI_MM(op)  _mm512_##op##_pd
#define TNI_SOME(k) ((__mmask8)(0xffu >> (8 - (k))))
#elif TNI_LEVEL == 1 && TNI_BITS == 32
typedef __m256 TNI_T(v);
#define TNI_MM(op)  _mm256_##op##_ps
#define TNI_SOME(k) _mm256_loadu_si256((const __m256i *)(tni_lane_mask + 8 - (k)))
#elif TNI_LEVEL == 1
typedef __m256d TNI_T(v);
#define TNI_MM(op)  _mm256_##op##_pd
#define TNI_SOME(k) _mm256_loadu_si256((const __m256i *)(tni_lane_mask + 8 - 2 * (k)))
#elif TNI_LEVEL == 3 && TNI_BITS == 32
typedef float32x4_t TNI_T(v);
#define TNI_MM(op)  v##op##_f32
#elif TNI_LEVEL == 3
typedef float64x2_t TNI_T(v);
#define TNI_MM(op)  v##op##_f64
#elif TNI_PLAIN_BYTES
typedef TNI_REAL TNI_T(v) __attribute__((vector_size(TNI_PLAIN_BYTES)));
#else
typedef TNI_REAL TNI_T(v);
#endif

#define TNI_V TNI_T(v)
#define TNI_W ((int)(sizeof(TNI_V) / sizeof(TNI_REAL)))

#if TNI_LEVEL == 3
#define TNI_SET(x)       TNI_MM(dupq_n)(x)
#define TNI_FMA(a, b, c) TNI_MM(fmaq)(c, a, b)
#define TNI_MAX(a, b)    TNI_T(max)(a, b)            /* NEON's own would give the NaN of either operand */
#define TNI_MIN(a, b)    TNI_T(min)(a, b)
#define TNI_SQRT(a)      TNI_MM(sqrtq)(a)
#elif TNI_LEVEL > 0
#define TNI_SET(x)       TNI_MM(set1)(x)
#define TNI_FMA(a, b, c) TNI_MM(fmadd)(a, b, c)
#if TNI_LEVEL == 2                      /* "all lanes of": gcc 12 warns of its own unmasked max */
#define TNI_MAX(a, b)    TNI_MM(maskz_max)(TNI_SOME(TNI_W), a, b)
#define TNI_MIN(a, b)    TNI_MM(maskz_min)(TNI_SOME(TNI_W), a, b)
#define TNI_SQRT(a)      TNI_MM(maskz_sqrt)(TNI_SOME(TNI_W), a)
#else
#define TNI_MAX(a, b)    TNI_MM(max)(a, b)
#define TNI_MIN(a, b)    TNI_MM(min)(a, b)
#define TNI_SQRT(a)      TNI_MM(sqrt)(a)
#endif
#else
#define TNI_SET(x)       TNI_T(set)(x)
#define TNI_FMA(a, b, c) ((a) * (b) + (c))
#define TNI_MAX(a, b)    TNI_T(max)(a, b)
#define TNI_MIN(a, b)    TNI_T(min)(a, b)
#define TNI_SQRT(a)      TNI_T(sqrt)(a)
#endif
#define TNI_LOAD(p, k)     TNI_T(load)(p, k)         /* k numbers, then zeros */
#define TNI_STORE(p, v, k) TNI_T(store)(p, v, k)     /* the first k           */

TNI_INLINE int TNI_T(lanes)(int64_t left) { return left < TNI_W ? (int)left : TNI_W; }

#if TNI_LEVEL == 3
TNI_INLINE TNI_V TNI_T(load)(const TNI_REAL *p, int k)
{
    TNI_V v = TNI_SET(0);
    if (k == TNI_W) return TNI_MM(ld1q)(p);
#if TNI_BITS == 32
    if (k & 2) v = vcombine_f32(vld1_f32(p), vget_low_f32(v));
    if (k == 3) return vld1q_lane_f32(p + 2, v, 2);
#endif
    return k == 1 ? TNI_MM(ld1q_lane)(p, v, 0) : v;
}

TNI_INLINE void TNI_T(store)(TNI_REAL *p, TNI_V v, int k)
{
    if (k == TNI_W) { TNI_MM(st1q)(p, v); return; }
#if TNI_BITS == 32
    if (k & 2) vst1_f32(p, vget_low_f32(v));
    if (k == 3) vst1q_lane_f32(p + 2, v, 2);
#endif
    if (k == 1) TNI_MM(st1q_lane)(p, v, 0);
}
#elif TNI_LEVEL > 0
TNI_INLINE TNI_V TNI_T(load)(const TNI_REAL *p, int k)
{
    if (k == TNI_W) return TNI_MM(loadu)(p);
#if TNI_LEVEL == 2
    return TNI_MM(maskz_loadu)(TNI_SOME(k), p);
#else
    return TNI_MM(maskload)(p, TNI_SOME(k));
#endif
}

TNI_INLINE void TNI_T(store)(TNI_REAL *p, TNI_V v, int k)
{
    if (k == TNI_W) TNI_MM(storeu)(p, v);
#if TNI_LEVEL == 2
    else TNI_MM(mask_storeu)(p, TNI_SOME(k), v);
#else
    else TNI_MM(maskstore)(p, TNI_SOME(k), v);
#endif
}
#else
TNI_INLINE TNI_V TNI_T(set)(TNI_REAL x)
{
#if TNI_PLAIN_BYTES == 0
    TNI_V v = x;
#elif TNI_BITS == 32
    TNI_V v = {x, x, x, x};
#else
    TNI_V v = {x, x};
#endif
    return v;
}

TNI_INLINE TNI_V TNI_T(load)(const TNI_REAL *p, int k)
{
    TNI_V v = TNI_T(set)(0);
    if (k == TNI_W) memcpy(&v, p, sizeof v);
    else memcpy(&v, p, sizeof *p * (size_t)k);
    return v;
}

TNI_INLINE void TNI_T(store)(TNI_REAL *p, TNI_V v, int k)
{
    if (k == TNI_W) memcpy(p, &v, sizeof v);
    else memcpy(p, &v, sizeof *p * (size_t)k);
}
#endif

/* ---- gemm: C = alpha A B + beta C + bias --------------------------------------------
   A tile of C, TNI_MR rows by two vectors, stays in registers while the kernel walks down the depth:
   each step multiplies MR numbers of A by 2W of B. Both come from panels, MR rows of A or 2W columns of B
   packed so that a step's numbers are neighbours; where packing would not pay they are read in place. The
   depth is cut into slabs of at most TNI_GEMM_DEPTH bytes and never shared between threads, so an
   element is summed in the same order wherever its tile lies.
   Goto & van de Geijn 2008; Van Zee & van de Geijn 2015 */
#if TNI_LEVEL == 2
#define TNI_MR 14
#define TNI_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#elif TNI_LEVEL == 3
#define TNI_MR 12
#define TNI_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#else
#define TNI_MR 6
#define TNI_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#endif
#define TNI_NR (2 * TNI_W)

typedef struct TNI_T(gemm) {
    const TNI_REAL *a, *b, *bias;
    TNI_REAL       *c;
    int64_t         m, n, k;
    int64_t         a_row, a_col, b_row, b_col, c_row, c_col, bias_row, bias_col;   /* strides */
    TNI_REAL        alpha, beta;
    TNI_REAL       *panels_a, *panels_b;
    int64_t         i0, rows, j0, cols, k0, depth;     /* the block in work */
    int64_t         panels_i, panels_j;                /* panels in it */
    int64_t         packed_a, packed_b;                /* the first packed panel; those before are read in place */
    int64_t         high;                              /* rows of a panel of A */
    tn_task_fn      few;                               /* the task, where C has few rows */
} TNI_T(gemm);

/* A tile: c[rows, (wide ? W : 0) + last] = from + A B. Of its last vector, `last` lanes are read from `from` and written
   to c. */
typedef struct TNI_T(tile) {
    const TNI_REAL *a, *b, *from;
    TNI_REAL       *c;
    int64_t         depth, a_row, a_col, b_row, from_row, c_row;
    int             last;
} TNI_T(tile);

static const TNI_REAL TNI_T(zeros)[2 * sizeof(TNI_V) / sizeof(TNI_REAL)] = {0};

/* Only AVX-512 has masks for nothing: below it the last vector is whole. (In the loop they cost it 5 % too, so B is
   padded.) */
#if TNI_LEVEL == 2
#define TNI_LAST(t)                ((t)->last)
#define TNI_LOAD_SOME(p, k)        TNI_MM(maskz_loadu)(TNI_SOME(k), p)
#define TNI_STORE_SOME(p, v, k)    TNI_MM(mask_storeu)(p, TNI_SOME(k), v)
#else
#define TNI_LAST(t)                TNI_W
#define TNI_LOAD_SOME(p, k)        TNI_LOAD(p, k)
#define TNI_STORE_SOME(p, v, k)    TNI_STORE(p, v, k)
#endif

/* Called with constants: `rows`; `wide`, two vectors, not one; `packed`, a_row is 1 and the last vector is
   whole. So all conditions go. The sums are named variables since gcc keeps an array of them in memory. */
TNI_INLINE void TNI_T(gemm_tile)(const int rows, const bool wide, const bool packed, const TNI_T(tile) *t)
{
    const int       last = packed ? TNI_W : TNI_LAST(t), first = wide ? TNI_W : last;
    const int64_t   depth = t->depth, a_row = packed ? 1 : t->a_row, a_col = t->a_col, b_row = t->b_row;
    const TNI_REAL *a = t->a, *b = t->b, *from = t->from;
    TNI_REAL       *c = t->c;
    const TNI_V     zero = TNI_SET(0);
    int64_t         k;
#define TNI_BEGIN(i) TNI_V left##i = zero, right##i = zero;
#define TNI_STEP(i)  if (i < rows) { \
        TNI_V x = TNI_SET(a[i * a_row]); \
        left##i = TNI_FMA(x, b0, left##i); \
        if (wide) right##i = TNI_FMA(x, b1, right##i); }
#define TNI_END(i)   if (i < rows) { \
        left##i = left##i + (wide ? TNI_LOAD(from, TNI_W) : TNI_LOAD_SOME(from, first)); \
        if (wide) right##i = right##i + TNI_LOAD_SOME(from + TNI_W, last); \
        if (wide) TNI_STORE(c, left##i, TNI_W); else TNI_STORE_SOME(c, left##i, first); \
        if (wide) TNI_STORE_SOME(c + TNI_W, right##i, last); \
        from += t->from_row; \
        c += t->c_row; }
    TNI_ROWS(TNI_BEGIN)
#if TNI_LEVEL == 2                      /* C is far away; on AVX2 this gained nothing */
    for (k = 0; packed && k < rows; k++) {
        __builtin_prefetch(c + k * t->c_row, 1);
        __builtin_prefetch(c + k * t->c_row + TNI_NR - 1, 1);
    }
#endif
    for (k = 0; k < depth; k++, a += a_col, b += b_row) {
        TNI_V b0 = TNI_LOAD(b, TNI_W), b1 = wide ? TNI_LOAD(b + TNI_W, TNI_W) : zero;
        TNI_ROWS(TNI_STEP)
    }
    TNI_ROWS(TNI_END)
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
}

#if TNI_LEVEL == 3
/* The full tile from packed A: a step's twelve numbers come in whole vectors, and the product takes one of their lanes. */
TNI_FAST void TNI_T(gemm_lanes)(const TNI_T(tile) *t)
{
    const TNI_REAL *a = t->a, *b = t->b, *from = t->from;
    const TNI_V     zero = TNI_SET(0);
    TNI_REAL       *c = t->c;
    int64_t         k;
#define TNI_BEGIN(i) TNI_V left##i = zero, right##i = zero;
#define TNI_STEP(i)  left##i = TNI_MM(fmaq_laneq)(left##i, b0, x, i % TNI_LANES); \
                     right##i = TNI_MM(fmaq_laneq)(right##i, b1, x, i % TNI_LANES);
#define TNI_END(i)   TNI_STORE(c, left##i + TNI_LOAD(from, TNI_W), TNI_W); \
                     TNI_STORE(c + TNI_W, right##i + TNI_LOAD(from + TNI_W, TNI_W), TNI_W); \
                     from += t->from_row; c += t->c_row;
    TNI_ROWS(TNI_BEGIN)
    for (k = 0; k < t->depth; k++, a += t->a_col, b += t->b_row) {
        TNI_V b0 = TNI_LOAD(b, TNI_W), b1 = TNI_LOAD(b + TNI_W, TNI_W), x;
#if TNI_BITS == 32
#define TNI_LANES 4
        x = TNI_LOAD(a, TNI_W);     TNI_STEP(0) TNI_STEP(1) TNI_STEP(2)  TNI_STEP(3)
        x = TNI_LOAD(a + 4, TNI_W); TNI_STEP(4) TNI_STEP(5) TNI_STEP(6)  TNI_STEP(7)
        x = TNI_LOAD(a + 8, TNI_W); TNI_STEP(8) TNI_STEP(9) TNI_STEP(10) TNI_STEP(11)
#else
#define TNI_LANES 2
        x = TNI_LOAD(a, TNI_W);      TNI_STEP(0)  TNI_STEP(1)
        x = TNI_LOAD(a + 2, TNI_W);  TNI_STEP(2)  TNI_STEP(3)
        x = TNI_LOAD(a + 4, TNI_W);  TNI_STEP(4)  TNI_STEP(5)
        x = TNI_LOAD(a + 6, TNI_W);  TNI_STEP(6)  TNI_STEP(7)
        x = TNI_LOAD(a + 8, TNI_W);  TNI_STEP(8)  TNI_STEP(9)
        x = TNI_LOAD(a + 10, TNI_W); TNI_STEP(10) TNI_STEP(11)
#endif
    }
    TNI_ROWS(TNI_END)
#undef TNI_LANES
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
}
#endif

TNI_FAST void TNI_T(gemm_rows)(int rows, bool wide, const TNI_T(tile) *t)
{
    if (rows == TNI_MR && wide && t->a_row == 1 && t->last == TNI_W) {
#if TNI_LEVEL == 3
        TNI_T(gemm_lanes)(t);
#else
        TNI_T(gemm_tile)(TNI_MR, true, true, t);
#endif
        return;
    }
#define TNI_CASE(i) \
    case i + 1: \
        if (wide) TNI_T(gemm_tile)(i + 1, true, false, t); \
        else TNI_T(gemm_tile)(i + 1, false, false, t); \
        break;
    switch (rows) { TNI_ROWS(TNI_CASE) default: break; }
#undef TNI_CASE
}

#if TNI_X86 || TNI_NEON
/* dst[d width + lane] = src[lane stride + d], for 4 lanes (2 of double) and as many d */
TNI_INLINE void TNI_T(transpose)(TNI_REAL *dst, int width, const TNI_REAL *src, int64_t stride)
{
#if TNI_NEON && TNI_BITS == 32
    float32x4_t r0 = vld1q_f32(src), r1 = vld1q_f32(src + stride);
    float32x4_t r2 = vld1q_f32(src + 2 * stride), r3 = vld1q_f32(src + 3 * stride);
    float32x4_t a0 = vzip1q_f32(r0, r2), a1 = vzip1q_f32(r1, r3), a2 = vzip2q_f32(r0, r2), a3 = vzip2q_f32(r1, r3);
    vst1q_f32(dst, vzip1q_f32(a0, a1));
    vst1q_f32(dst + width, vzip2q_f32(a0, a1));
    vst1q_f32(dst + 2 * width, vzip1q_f32(a2, a3));
    vst1q_f32(dst + 3 * width, vzip2q_f32(a2, a3));
#elif TNI_NEON
    float64x2_t r0 = vld1q_f64(src), r1 = vld1q_f64(src + stride);
    vst1q_f64(dst, vzip1q_f64(r0, r1));
    vst1q_f64(dst + width, vzip2q_f64(r0, r1));
#elif TNI_BITS == 32
    __m128 r0 = _mm_loadu_ps(src), r1 = _mm_loadu_ps(src + stride);
    __m128 r2 = _mm_loadu_ps(src + 2 * stride), r3 = _mm_loadu_ps(src + 3 * stride);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(dst, r0);
    _mm_storeu_ps(dst + width, r1);
    _mm_storeu_ps(dst + 2 * width, r2);
    _mm_storeu_ps(dst + 3 * width, r3);
#else
    __m128d r0 = _mm_loadu_pd(src), r1 = _mm_loadu_pd(src + stride);
    _mm_storeu_pd(dst, _mm_unpacklo_pd(r0, r1));
    _mm_storeu_pd(dst + width, _mm_unpackhi_pd(r0, r1));
#endif
}
#endif

/* A panel: dst[d width + lane] = src[lane stride + d step], zeros in lanes [lanes,width) */
TNI_FAST void TNI_T(panel)(TNI_REAL *dst, int width, const TNI_REAL *src, int64_t stride, int64_t step, int lanes,
                           int64_t depth)
{
    int64_t d = 0;
    int     lane = 0, k;
    if (stride == 1 && lanes == TNI_MR && width == TNI_MR) {         /* the usual widths, as constants */
        for (; d < depth; d++) memcpy(dst + d * TNI_MR, src + d * step, TNI_MR * sizeof *dst);
        return;
    }
    if (stride == 1 && width == TNI_NR) {
        const TNI_V zero = TNI_SET(0);
        k = TNI_T(lanes)(lanes);
        for (; d < depth; d++, dst += TNI_NR, src += step) {
            TNI_STORE(dst, TNI_LOAD(src, k), TNI_W);
            TNI_STORE(dst + TNI_W, lanes > TNI_W ? TNI_LOAD(src + TNI_W, lanes - TNI_W) : zero, TNI_W);
        }
        return;
    }
    if (stride == 1) {
        for (; d < depth; d++, dst += width, src += step) {
            for (lane = 0; lane < lanes; lane += k) {
                k = TNI_T(lanes)(lanes - lane);
                TNI_STORE(dst + lane, TNI_LOAD(src + lane, k), k);
            }
            for (; lane < width; lane++) dst[lane] = 0;
        }
        return;
    }
#if TNI_X86 || TNI_NEON
    if (step == 1) {                                      /* 64 deep at a time: that much of the panel stays in the cache */
        int64_t start, end;
        for (start = 0; start < depth; start = end) {
            end = tni_min(start + 64, depth);
            for (lane = 0; lane + 128 / TNI_BITS <= lanes; lane += 128 / TNI_BITS) {
                const TNI_REAL *from = src + lane * stride;
                for (d = start; d + 128 / TNI_BITS <= end; d += 128 / TNI_BITS)
                    TNI_T(transpose)(dst + d * width + lane, width, from + d, stride);
                for (; d < end; d++)
                    for (k = 0; k < 128 / TNI_BITS; k++) dst[d * width + lane + k] = from[k * stride + d];
            }
        }
    }
#endif
    for (; lane < lanes; lane++)
        for (d = 0; d < depth; d++) dst[d * width + lane] = src[lane * stride + d * step];
    for (; lane < width; lane++)
        for (d = 0; d < depth; d++) dst[d * width + lane] = 0;
}

enum {
    TNI_T(gemm_high) = (56 + TNI_MR - 1) / TNI_MR,      /* panels in a task's part of C */
    TNI_T(gemm_across) = 128 / TNI_NR,
    TNI_T(gemm_group) = 4                               /* panels packed together */
};

/* Tasks that pack A: some panels each, since a line of a transposed A goes to more than one. (Ten: slower.) */
TNI_FAST int64_t TNI_T(gemm_pack_tasks)(const TNI_T(gemm) *g)
{
    return g->packed_a ? 0 : tni_ceil_div(g->panels_i, TNI_T(gemm_group));
}

TNI_FAST void TNI_T(gemm_pack_a)(const TNI_T(gemm) *g, int64_t row, int64_t end)
{
    TNI_REAL       *to = g->panels_a + row * g->depth;
    const TNI_REAL *from = g->a + (g->i0 + row) * g->a_row + g->k0 * g->a_col;
    int64_t         d, i;
    if (g->a_row == 1 && end - row == TNI_T(gemm_group) * TNI_MR) {
        for (d = 0; d < g->depth; d++, from += g->a_col, to += TNI_MR)
            for (i = 0; i < TNI_T(gemm_group); i++)
                memcpy(to + i * TNI_MR * g->depth, from + i * TNI_MR, TNI_MR * sizeof *to);
        return;
    }
    for (; row < end; row += TNI_MR, from += TNI_MR * g->a_row, to += TNI_MR * g->depth)
        TNI_T(panel)(to, TNI_MR, from, g->a_row, g->a_col, (int)tni_min(TNI_MR, end - row), g->depth);
}

/* Task: panels of A, or, behind those, one of B. */
TNI_FAST void TNI_T(gemm_pack)(void *arg, int64_t task, int worker)
{
    const TNI_T(gemm) *g = (const TNI_T(gemm) *)arg;
    const int64_t      in_a = TNI_T(gemm_pack_tasks)(g), rows = TNI_T(gemm_group) * TNI_MR;
    const int64_t      at = (g->packed_b + task - in_a) * TNI_NR;
    (void)worker;
    if (task < in_a) TNI_T(gemm_pack_a)(g, task * rows, tni_min(g->rows, (task + 1) * rows));
    else TNI_T(panel)(g->panels_b + at * g->depth, TNI_NR, g->b + (g->j0 + at) * g->b_col + g->k0 * g->b_row,
                      g->b_col, g->b_row, (int)tni_min(TNI_NR, g->cols - at), g->depth);
}

/* One vector of C = alpha sums + beta C + bias. */
TNI_INLINE void TNI_T(gemm_finish)(TNI_REAL *c, const TNI_REAL *sums, TNI_REAL alpha, TNI_REAL beta, const TNI_REAL *bias,
                                   int k)
{
    TNI_V v = TNI_LOAD(sums, TNI_W) * TNI_SET(alpha);
    if (beta != 0) v = TNI_FMA(TNI_SET(beta), TNI_LOAD(c, k), v);
    if (bias) v = v + TNI_LOAD(bias, k);
    TNI_STORE(c, v, k);
}

/* The tile at (i,j). The first slab brings beta C and the bias in, the others add. */
TNI_FAST void TNI_T(gemm_store)(const TNI_T(gemm) *g, const TNI_REAL *sums, int64_t i, int64_t j, int rows, int cols)
{
    const TNI_REAL  alpha = g->alpha, beta = g->k0 == 0 ? g->beta : 1;
    const TNI_REAL *bias = g->k0 == 0 && g->bias ? g->bias + i * g->bias_row + j * g->bias_col : NULL;
    const int       left = TNI_T(lanes)(cols), right = cols - left;
    const int       width = (rows + 3) / 4 * 4;
    TNI_REAL       *c = g->c + i * g->c_row + j * g->c_col, turned[(TNI_MR + 3) / 4 * 4 * TNI_NR + TNI_W];
    int             r, q;
    if (g->c_col == 1 && (!bias || g->bias_col == 1))
        for (r = 0; r < rows; r++, c += g->c_row, sums += TNI_NR) {
            TNI_T(gemm_finish)(c, sums, alpha, beta, bias, left);
            if (right > 0) TNI_T(gemm_finish)(c + TNI_W, sums + TNI_W, alpha, beta, bias ? bias + TNI_W : NULL, right);
        }
    else if (g->c_row == 1 && (!bias || g->bias_row == 1)) {
        TNI_T(panel)(turned, width, sums, TNI_NR, 1, rows, cols);
        for (q = 0; q < cols; q++, c += g->c_col)
            for (r = 0; r < rows; r += TNI_W)
                TNI_T(gemm_finish)(c + r, turned + q * width + r, alpha, beta, bias ? bias + q * g->bias_col + r : NULL,
                                   TNI_T(lanes)(rows - r));
    } else
        for (r = 0; r < rows; r++, c += g->c_row, sums += TNI_NR)
            for (q = 0; q < cols; q++) {
                TNI_REAL *to = c + q * g->c_col, v = sums[q] * alpha;
                if (beta != 0) v += beta * *to;
                if (bias) v += bias[r * g->bias_row + q * g->bias_col];
                *to = v;
            }
}

/* May a tile be written to C as it is? Then `from` is where its sums begin: zeros, the bias, or C itself. */
TNI_INLINE bool TNI_T(gemm_direct)(const TNI_T(gemm) *g, TNI_T(tile) *t, int64_t i, int64_t j)
{
    const TNI_REAL beta = g->k0 == 0 ? g->beta : 1;
    const bool     bias = g->k0 == 0 && g->bias;
    t->from = TNI_T(zeros);
    t->from_row = 0;
    t->c = g->c + i * g->c_row + j * g->c_col;
    t->c_row = g->c_row;
    if (g->alpha != 1 || g->c_col != 1 || (TNI_LEVEL != 2 && t->last != TNI_W)) return false;
    if (bias) {
        t->from = g->bias + i * g->bias_row + j * g->bias_col;
        t->from_row = g->bias_row;
        return beta == 0 && g->bias_col == 1;
    }
    if (beta == 1) {
        t->from = t->c;
        t->from_row = t->c_row;
    }
    return beta == 0 || beta == 1;
}

/* The tiles that panels [i,i_end) of A make with panel j of B. */
TNI_FAST void TNI_T(gemm_tiles)(const TNI_T(gemm) *g, int64_t i, int64_t i_end, int64_t j)
{
    TNI_REAL      sums[TNI_MR * 2 * TNI_W];
    const int64_t col = j * TNI_NR;
    const int     cols = (int)tni_min(TNI_NR, g->cols - col);
    const bool    wide = cols > TNI_W, packed = j >= g->packed_b;
    TNI_T(tile)   t;
    t.b = packed ? g->panels_b + col * g->depth : g->b + (g->j0 + col) * g->b_col + g->k0 * g->b_row;
    t.b_row = packed ? TNI_NR : g->b_row;
    t.depth = g->depth;
    t.last = wide ? cols - TNI_W : cols;
    for (; i < i_end; i++) {
        const int64_t row = i * g->high;
        const int     rows = (int)tni_min(g->high, g->rows - row);
        t.a = i >= g->packed_a ? g->panels_a + row * g->depth : g->a + (g->i0 + row) * g->a_row + g->k0 * g->a_col;
        t.a_row = i >= g->packed_a ? 1 : g->a_row;
        t.a_col = i >= g->packed_a ? TNI_MR : g->a_col;
        if (TNI_T(gemm_direct)(g, &t, g->i0 + row, g->j0 + col)) {
            TNI_T(gemm_rows)(rows, wide, &t);
            continue;
        }
        t.from = TNI_T(zeros);
        t.from_row = 0;
        t.c = sums;
        t.c_row = TNI_NR;
        TNI_T(gemm_rows)(rows, wide, &t);
        TNI_T(gemm_store)(g, sums, g->i0 + row, g->j0 + col, rows, cols);
    }
}

/* Task: a part of the block of C. */
TNI_FAST void TNI_T(gemm_part)(void *arg, int64_t task, int worker)
{
    const TNI_T(gemm) *g = (const TNI_T(gemm) *)arg;
    int64_t parts_j = tni_ceil_div(g->panels_j, TNI_T(gemm_across));
    int64_t i = task / parts_j * TNI_T(gemm_high), j = task % parts_j * TNI_T(gemm_across);
    int64_t i_end = tni_min(i + TNI_T(gemm_high), g->panels_i), j_end = tni_min(j + TNI_T(gemm_across), g->panels_j);
    (void)worker;
    for (; j < j_end; j++) TNI_T(gemm_tiles)(g, i, i_end, j);
}

/* The block of C at (i0,j0), one slab deep; packed panels of B serve all i0. In place: A when B has few
   columns, B when A has few rows, both when shallow. Not in place: a transposed A of some depth (bearable for
   one panel), a transposed B, and an A whose rows lie so that they push each other out of the cache. */
TNI_FAST void TNI_T(gemm_block)(TNI_T(gemm) *g, const tni_pool *pool)
{
    const int64_t size = (int64_t)sizeof(TNI_REAL);
    const bool    shallow = g->depth <= TNI_GEMM_SHALLOW;
    const bool    same_set = TNI_MR > 8 && g->rows > 8 && g->a_row * size % 4096 == 0;
    const bool    few_columns = g->a_col == 1 ? g->n < 8 * TNI_NR && !same_set : g->n <= TNI_NR && g->k <= 256;
    const bool    few_rows = g->b_col == 1 && (g->m <= 8 * TNI_MR || shallow);
    g->panels_i = tni_ceil_div(g->rows, TNI_MR);
    g->panels_j = tni_ceil_div(g->cols, TNI_NR);
    g->packed_a = few_columns || shallow ? g->panels_i : 0;
    /* of a B that is not packed only whole vectors are read */
    g->packed_b = !few_rows ? 0 : g->cols % TNI_NR == TNI_W ? g->panels_j : g->cols / TNI_NR;
    g->high = g->packed_a ? tni_ceil_div(g->rows, g->panels_i) : TNI_MR;
    tni_parallel_for(pool, TNI_T(gemm_pack_tasks)(g) + (g->i0 == 0 ? g->panels_j - g->packed_b : 0), TNI_T(gemm_pack), g);
    tni_parallel_for(pool, tni_ceil_div(g->panels_i, TNI_T(gemm_high)) * tni_ceil_div(g->panels_j, TNI_T(gemm_across)),
                     TNI_T(gemm_part), g);
}

/* ---- gemm with few rows: B is read once and where it lies, so memory decides ------------- */

TNI_INLINE TNI_REAL TNI_T(lane_sum)(TNI_V v)
{
    TNI_REAL lane[TNI_W];
    int      i, half;
    TNI_STORE(lane, v, TNI_W);
    for (half = TNI_W / 2; half > 0; half /= 2)
        for (i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* four[i] = the sum of the lanes of s_i */
TNI_INLINE void TNI_T(lane_sums)(TNI_V s0, TNI_V s1, TNI_V s2, TNI_V s3, TNI_REAL *four)
{
#if TNI_LEVEL == 0 || TNI_LEVEL == 3
    TNI_REAL lane[4][TNI_W];
    int      i, k;
    TNI_STORE(lane[0], s0, TNI_W);
    TNI_STORE(lane[1], s1, TNI_W);
    TNI_STORE(lane[2], s2, TNI_W);
    TNI_STORE(lane[3], s3, TNI_W);
    for (i = 0; i < 4; i++)
        for (four[i] = lane[i][0], k = 1; k < TNI_W; k++) four[i] += lane[i][k];
#elif TNI_BITS == 32
#if TNI_LEVEL == 2
#define TNI_HALF(v) _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, v, 0), _mm512_maskz_extractf32x8_ps(0xff, v, 1))
#else
#define TNI_HALF(v) (v)
#endif
    __m256 sum = _mm256_hadd_ps(_mm256_hadd_ps(TNI_HALF(s0), TNI_HALF(s1)), _mm256_hadd_ps(TNI_HALF(s2), TNI_HALF(s3)));
    _mm_storeu_ps(four, _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1)));
#else
#if TNI_LEVEL == 2
#define TNI_HALF(v) _mm256_add_pd(_mm512_maskz_extractf64x4_pd(0xf, v, 0), _mm512_maskz_extractf64x4_pd(0xf, v, 1))
#else
#define TNI_HALF(v) (v)
#endif
    __m256d s01 = _mm256_hadd_pd(TNI_HALF(s0), TNI_HALF(s1)), s23 = _mm256_hadd_pd(TNI_HALF(s2), TNI_HALF(s3));
    _mm256_storeu_pd(four, _mm256_add_pd(_mm256_permute2f128_pd(s01, s23, 0x21), _mm256_blend_pd(s01, s23, 12)));
#endif
#undef TNI_HALF
}

TNI_INLINE void TNI_T(gemm_number)(const TNI_T(gemm) *g, int64_t i, int64_t j, TNI_REAL sum)
{
    TNI_REAL *c = g->c + i * g->c_row + j * g->c_col;
    sum *= g->alpha;
    if (g->beta != 0) sum += g->beta * *c;
    if (g->bias) sum += g->bias[i * g->bias_row + j * g->bias_col];
    *c = sum;
}

#if TNI_LEVEL == 2
#define TNI_DOTS(X) X(0) X(1) X(2) X(3)
enum { TNI_T(dots_high) = 4 };
#else
#define TNI_DOTS(X) X(0) X(1) X(2)
enum { TNI_T(dots_high) = 3 };
#endif

/* Rows of A and columns of B that lie in memory: `rows` by four inner products at once; past the last column,
   the last column again. */
TNI_INLINE void TNI_T(gemm_dots_tile)(const int rows, const TNI_T(gemm) *g, int64_t i, int64_t j, int64_t end)
{
    const TNI_REAL *a = g->a + i * g->a_row, *b0 = g->b + j * g->b_col, *b1 = g->b + tni_min(j + 1, end - 1) * g->b_col;
    const TNI_REAL *b2 = g->b + tni_min(j + 2, end - 1) * g->b_col, *b3 = g->b + tni_min(j + 3, end - 1) * g->b_col;
    const int64_t   a_row = g->a_row, depth = g->k, whole = depth / TNI_W * TNI_W;
    const TNI_V     zero = TNI_SET(0);
    TNI_REAL        sums[4 * TNI_T(dots_high)];
    int64_t         d;
    int             r, q;
#define TNI_BEGIN(i) TNI_V s##i##0 = zero, s##i##1 = zero, s##i##2 = zero, s##i##3 = zero;
#define TNI_STEP(i, k) if (i < rows) { \
        TNI_V x = TNI_LOAD(a + i * a_row + d, k); \
        s##i##0 = TNI_FMA(x, y0, s##i##0); \
        s##i##1 = TNI_FMA(x, y1, s##i##1); \
        s##i##2 = TNI_FMA(x, y2, s##i##2); \
        s##i##3 = TNI_FMA(x, y3, s##i##3); }
#define TNI_WHOLE(i) TNI_STEP(i, TNI_W)
#define TNI_REST(i)  TNI_STEP(i, k)
#define TNI_END(i)   if (i < rows) TNI_T(lane_sums)(s##i##0, s##i##1, s##i##2, s##i##3, sums + 4 * i);
    TNI_DOTS(TNI_BEGIN)
    for (d = 0; d < whole; d += TNI_W) {
        TNI_V y0 = TNI_LOAD(b0 + d, TNI_W), y1 = TNI_LOAD(b1 + d, TNI_W);
        TNI_V y2 = TNI_LOAD(b2 + d, TNI_W), y3 = TNI_LOAD(b3 + d, TNI_W);
        TNI_DOTS(TNI_WHOLE)
    }
    if (d < depth) {
        const int k = (int)(depth - d);
        TNI_V     y0 = TNI_LOAD(b0 + d, k), y1 = TNI_LOAD(b1 + d, k), y2 = TNI_LOAD(b2 + d, k), y3 = TNI_LOAD(b3 + d, k);
        TNI_DOTS(TNI_REST)
    }
    TNI_DOTS(TNI_END)
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_WHOLE
#undef TNI_REST
#undef TNI_END
    for (r = 0; r < rows; r++)
        for (q = 0; q < 4 && j + q < end; q++) TNI_T(gemm_number)(g, i + r, j + q, sums[4 * r + q]);
}

/* Task: g->cols columns of C. */
TNI_FAST void TNI_T(gemm_dots)(void *arg, int64_t task, int worker)
{
    const TNI_T(gemm) *g = (const TNI_T(gemm) *)arg;
    const int64_t      end = tni_min(g->n, (task + 1) * g->cols);
    int64_t            i, j;
    (void)worker;
    for (j = task * g->cols; j < end; j += 4)
        for (i = 0; i < g->m; i += g->high)
#define TNI_CASE(r) case r + 1: TNI_T(gemm_dots_tile)(r + 1, g, i, j, end); break;
            switch (tni_min(g->high, g->m - i)) { TNI_DOTS(TNI_CASE) default: break; }
#undef TNI_CASE
}

/* Rows of B that lie in memory: a strip of `vectors` of C, at most four, gathers A[i,d] times row d. Only where
   there is one vector it may have less than W lanes. */
TNI_INLINE void TNI_T(gemm_strip)(const int rows, const int vectors, const TNI_T(gemm) *g, int64_t j, const int last)
{
    const int       cols = (vectors - 1) * TNI_W + last;
    const int64_t   depth = g->k, a_row = g->a_row, a_col = g->a_col, b_row = g->b_row;
    const TNI_REAL *a = g->a, *b = g->b + j;
    const TNI_V     zero = TNI_SET(0);
    TNI_REAL        sums[3 * 4 * TNI_W];
    int64_t         d;
    int             r, q;
#define TNI_STRIP(X) X(0) X(1) X(2)
#define TNI_BEGIN(i) TNI_V s##i##0 = zero, s##i##1 = zero, s##i##2 = zero, s##i##3 = zero;
#define TNI_STEP(i) if (i < rows) { \
        TNI_V x = TNI_SET(a[i * a_row]); \
        s##i##0 = TNI_FMA(x, y0, s##i##0); \
        if (vectors > 1) s##i##1 = TNI_FMA(x, y1, s##i##1); \
        if (vectors > 2) s##i##2 = TNI_FMA(x, y2, s##i##2); \
        if (vectors > 3) s##i##3 = TNI_FMA(x, y3, s##i##3); }
#define TNI_END(i) if (i < rows) { \
        TNI_STORE(sums + (i * 4 + 0) * TNI_W, s##i##0, TNI_W); \
        if (vectors > 1) TNI_STORE(sums + (i * 4 + 1) * TNI_W, s##i##1, TNI_W); \
        if (vectors > 2) TNI_STORE(sums + (i * 4 + 2) * TNI_W, s##i##2, TNI_W); \
        if (vectors > 3) TNI_STORE(sums + (i * 4 + 3) * TNI_W, s##i##3, TNI_W); }
    TNI_STRIP(TNI_BEGIN)
    for (d = 0; d < depth; d++, a += a_col, b += b_row) {
        TNI_V y0 = TNI_LOAD(b, vectors > 1 ? TNI_W : last), y1 = zero, y2 = zero, y3 = zero;
        if (vectors > 1) y1 = TNI_LOAD(b + 1 * TNI_W, TNI_W);
        if (vectors > 2) y2 = TNI_LOAD(b + 2 * TNI_W, TNI_W);
        if (vectors > 3) y3 = TNI_LOAD(b + 3 * TNI_W, TNI_W);
        TNI_STRIP(TNI_STEP)
    }
    TNI_STRIP(TNI_END)
#undef TNI_STRIP
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
    for (r = 0; r < rows; r++)
        if (g->c_col == 1 && (!g->bias || g->bias_col == 1))
            for (q = 0; q < cols; q += TNI_W)
                TNI_T(gemm_finish)(g->c + r * g->c_row + j + q, sums + r * 4 * TNI_W + q, g->alpha, g->beta,
                                   g->bias ? g->bias + r * g->bias_row + j + q : NULL, TNI_T(lanes)(cols - q));
        else
            for (q = 0; q < cols; q++) TNI_T(gemm_number)(g, r, j + q, sums[r * 4 * TNI_W + q]);
}

TNI_INLINE void TNI_T(gemm_strips_of)(const int rows, const TNI_T(gemm) *g, int64_t j, int64_t end)
{
    for (; j + 4 * TNI_W <= end; j += 4 * TNI_W) TNI_T(gemm_strip)(rows, 4, g, j, TNI_W);
    if (j + 2 * TNI_W <= end) { TNI_T(gemm_strip)(rows, 2, g, j, TNI_W); j += 2 * TNI_W; }
    for (; j < end; j += TNI_W) TNI_T(gemm_strip)(rows, 1, g, j, TNI_T(lanes)(end - j));
}

/* Task: g->cols columns of C, of at most three rows. */
TNI_FAST void TNI_T(gemm_strips)(void *arg, int64_t task, int worker)
{
    const TNI_T(gemm) *g = (const TNI_T(gemm) *)arg;
    const int64_t      j = task * g->cols, end = tni_min(g->n, j + g->cols);
    (void)worker;
    if (g->m == 1) TNI_T(gemm_strips_of)(1, g, j, end);
    else if (g->m == 2) TNI_T(gemm_strips_of)(2, g, j, end);
    else TNI_T(gemm_strips_of)(3, g, j, end);
}

/* The task for few rows, `dots` for inner products at most; NULL: there are more, or B lies badly. Inner products
   want some depth: what they spend at its end grows with the rows, what packing B would cost does not. */
TNI_FAST tn_task_fn TNI_T(gemm_few)(const TNI_T(gemm) *g, int64_t dots, int64_t bytes)
{
    const bool deep = g->m == 1 || g->k >= 4 * TNI_W;
    const bool fits = g->a_col == 1 || g->m * g->k <= bytes / (int64_t)sizeof(TNI_REAL);
    if (g->b_col == 1 && g->m <= 3 && g->n >= TNI_W) return TNI_T(gemm_strips);
    if (g->b_row == 1 && g->m <= dots && deep && fits) return TNI_T(gemm_dots);
    return NULL;
}

TNI_FAST void TNI_T(gemm_few_run)(TNI_T(gemm) *g, const tni_pool *pool)
{
    if (g->few == TNI_T(gemm_dots) && g->a_col != 1) {
        TNI_T(panel)(g->panels_a, (int)g->k, g->a, g->a_col, g->a_row, (int)g->k, g->m);
        g->a = g->panels_a;
        g->a_row = g->k;
        g->a_col = 1;
    }
    g->high = tni_ceil_div(g->m, tni_ceil_div(g->m, TNI_T(dots_high)));
    g->cols = tni_max(TNI_GEMM_SMALL / tni_max(g->k * g->m, 1) / (4 * TNI_W), 1) * 4 * TNI_W;
    do {                                            /* as deep as the tiles: rounding errors grow with the length of a sum */
        TNI_T(gemm) slab = *g;
        slab.k = tni_min(g->k, TNI_GEMM_DEPTH / (int64_t)sizeof(TNI_REAL));
        tni_parallel_for(pool, tni_ceil_div(g->n, g->cols), g->few, &slab);
        g->a += slab.k * g->a_col;
        g->b += slab.k * g->b_row;
        g->k -= slab.k;
        g->beta = 1;
        g->bias = NULL;
    } while (g->k > 0);
}

/* ---- gemm as a whole ------------------------------------------------------------------ */

/* The whole product, in blocks of `bytes`. */
TNI_FAST void TNI_T(gemm_one)(TNI_T(gemm) *g, const tni_pool *pool, char *blocks, int64_t bytes)
{
    const int64_t size = (int64_t)sizeof(TNI_REAL);
    int64_t       slabs, deep, lines, most_rows, most_cols, s;
    g->panels_a = (TNI_REAL *)(void *)blocks;
    g->panels_b = (TNI_REAL *)(void *)(blocks + bytes);
    if (g->few) {
        TNI_T(gemm_few_run)(g, pool);
        return;
    }
    slabs = tni_max(tni_ceil_div(g->k, TNI_GEMM_DEPTH / size), 1);
    deep = tni_ceil_div(g->k, slabs);
    lines = bytes / size / tni_max(deep, 1);
    most_rows = lines / TNI_MR * TNI_MR;
    most_cols = lines / TNI_NR * TNI_NR;
    for (g->j0 = 0; g->j0 < g->n; g->j0 += most_cols) {
        g->cols = tni_min(most_cols, g->n - g->j0);
        for (s = 0; s < slabs; s++) {
            g->k0 = s * deep;
            g->depth = tni_max(tni_min(deep, g->k - g->k0), 0);
            for (g->i0 = 0; g->i0 < g->m; g->i0 += most_rows) {
                g->rows = tni_min(most_rows, g->m - g->i0);
                TNI_T(gemm_block)(g, pool);
            }
        }
    }
}

/* C^T = B^T A^T */
TNI_FAST void TNI_T(gemm_swap)(TNI_T(gemm) *g)
{
    TNI_T(gemm) from = *g;
    g->m = from.n;                g->n = from.m;
    g->a = from.b;                g->b = from.a;
    g->a_row = from.b_col;        g->a_col = from.b_row;
    g->b_row = from.a_col;        g->b_col = from.a_row;
    g->c_row = from.c_col;        g->c_col = from.c_row;
    g->bias_row = from.bias_col;  g->bias_col = from.bias_row;
}

/* Product `index` of the call. */
TNI_FAST TNI_T(gemm) TNI_T(gemm_matrix)(const tn_call *c, int64_t index)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *bias = &c->in[2], *out = &c->out[0];
    TNI_T(gemm)    g;
    memset(&g, 0, sizeof g);
    g.m = out->shape[1];
    g.n = out->shape[2];
    g.k = a->shape[2];
    g.a = (const TNI_REAL *)a->data + index * a->strides[0];
    g.b = (const TNI_REAL *)b->data + index * b->strides[0];
    g.c = (TNI_REAL *)out->data + index * out->strides[0];
    g.a_row = a->strides[1];
    g.a_col = a->strides[2];
    g.b_row = b->strides[1];
    g.b_col = b->strides[2];
    g.c_row = out->strides[1];
    g.c_col = out->strides[2];
    g.alpha = (TNI_REAL)c->f[0];
    g.beta = (TNI_REAL)c->f[1];
    if (c->n_in > 2 && bias->data) {
        g.bias = (const TNI_REAL *)bias->data;
        g.bias_col = bias->strides[0];
    }
    return g;
}

/* Vectors are to run along memory: swapped, when C is stored by columns, or has few and A is transposed.
   Few columns are few rows of the transposed product; tiles are better once they fill their vectors. */
TNI_FAST void TNI_T(gemm_turn)(TNI_T(gemm) *g, int64_t bytes)
{
    const bool    by_columns = g->c_col != 1 && g->c_row == 1;
    const bool    thin = g->n <= TNI_W && g->n < g->m && g->a_row == 1 && g->a_col != 1;
    const int64_t dots = 16, lanes = tni_ceil_div(g->n, TNI_W) * TNI_W;
    TNI_T(gemm)   turned = *g;
    TNI_T(gemm_swap)(&turned);
    if (g->n < g->m) turned.few = TNI_T(gemm_few)(&turned, 4 * g->n > 3 * lanes ? 0 : dots, bytes);
    else g->few = TNI_T(gemm_few)(g, dots, bytes);
    if (!g->few && (turned.few || thin || by_columns)) *g = turned;
}

/* Task: `share` products, by one worker in its own blocks. */
TNI_FAST void TNI_T(gemm_some)(void *arg, int64_t task, int worker)
{
    const tni_pass *p = (const tni_pass *)arg;
    int64_t         i;
    for (i = tni_pass_begin(p, task); i < tni_pass_end(p, task); i++) {
        TNI_T(gemm) g = TNI_T(gemm_matrix)(p->call, i);
        TNI_T(gemm_turn)(&g, TNI_GEMM_SMALL);
        TNI_T(gemm_one)(&g, &tni_alone, p->cpu->blocks + 2 * (size_t)worker * TNI_GEMM_SMALL, TNI_GEMM_SMALL);
    }
}

#ifdef TN_USE_BLAS
TNI_FAST bool TNI_T(gemm_blas)(const TNI_T(gemm) *g)
{
    int64_t i, j;
    if (g->few || !tni_blas_gemm(TNI_BITS == 64 ? TN_F64 : TN_F32, g->m, g->n, g->k, g->alpha, g->a, g->a_row, g->a_col,
                                 g->b, g->b_row, g->b_col, g->beta, g->c, g->c_row, g->c_col)) return false;
    for (i = 0; g->bias && i < g->m; i++)
        for (j = 0; j < g->n; j++) g->c[i * g->c_row + j] += g->bias[i * g->bias_row + j * g->bias_col];
    return true;
}
#endif

/* A batch of small products is shared out by the product; large ones are cut, one after the other. Times
   one matrix, a batch whose rows follow one another is a single product. */
TNI_FAST tn_status TNI_T(gemm_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t  m = c->out[0].shape[1];
    int64_t        batch = c->out[0].shape[0], rows = m, i;
    double         work;
    tni_pass       p;
    if (batch == 0 || m == 0 || c->out[0].shape[2] == 0) return TN_OK;
    if (c->in[1].strides[0] == 0 && c->in[0].strides[0] == m * c->in[0].strides[1]
        && c->out[0].strides[0] == m * c->out[0].strides[1]) {
        rows *= batch;
        batch = 1;
    }
    work = 2.0 * (double)rows * (double)c->out[0].shape[2] * (double)c->in[0].shape[2];
    if (batch > 1 && work < (double)TNI_GEMM_CUT) {
        p.cpu = cpu;
        p.call = c;
        tni_pass_run(&p, batch, (int64_t)(work / 64), INT64_MAX, TNI_T(gemm_some));
        return TN_OK;
    }
    for (i = 0; i < batch; i++) {
        TNI_T(gemm) g = TNI_T(gemm_matrix)(c, i);
        g.m = rows;
        TNI_T(gemm_turn)(&g, TNI_GEMM_LARGE);
#ifdef TN_USE_BLAS
        if (TNI_T(gemm_blas)(&g)) continue;
#endif
        TNI_T(gemm_one)(&g, work < (double)(64 * TNI_CPU_SHARE) ? &tni_alone : &cpu->pool, cpu->blocks, TNI_GEMM_LARGE);
    }
    return TN_OK;
}

/* ---- chain, see >>op-chain: products of small square matrices, whose left factor is read element by element ------ */
#define TNI_CHAIN_ROW(r)   const TNI_REAL *a##r = a + tni_min(i + r, d - 1) * d;
#define TNI_CHAIN_ONE(X)   X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define TNI_CHAIN_TWO(X)   X(0) X(1) X(2) X(3)

/* Rows past the last one repeat it: what they store is the same. */
TNI_INLINE void TNI_T(chain_8x1)(const TNI_REAL *a, const TNI_REAL *b, TNI_REAL *out, int64_t d, int64_t i, int lanes)
{
    int64_t k;
#define TNI_X(r) TNI_CHAIN_ROW(r) TNI_V x##r = TNI_SET((TNI_REAL)0);
    TNI_CHAIN_ONE(TNI_X)
#undef TNI_X
    for (k = 0; k < d; k++) {
        TNI_V row = TNI_LOAD(b + k * d, lanes);
#define TNI_X(r) x##r = TNI_FMA(TNI_SET(a##r[k]), row, x##r);
        TNI_CHAIN_ONE(TNI_X)
#undef TNI_X
    }
#define TNI_X(r) TNI_STORE(out + tni_min(i + r, d - 1) * d, x##r, lanes);
    TNI_CHAIN_ONE(TNI_X)
#undef TNI_X
}

TNI_INLINE void TNI_T(chain_4x2)(const TNI_REAL *a, const TNI_REAL *b, TNI_REAL *out, int64_t d, int64_t i, int lanes)
{
    int64_t k;
#define TNI_X(r) TNI_CHAIN_ROW(r) TNI_V x##r = TNI_SET((TNI_REAL)0), y##r = x##r;
    TNI_CHAIN_TWO(TNI_X)
#undef TNI_X
    for (k = 0; k < d; k++) {
        TNI_V left = TNI_LOAD(b + k * d, TNI_W), right = TNI_LOAD(b + k * d + TNI_W, lanes);
#define TNI_X(r) { TNI_V v = TNI_SET(a##r[k]); x##r = TNI_FMA(v, left, x##r); y##r = TNI_FMA(v, right, y##r); }
        TNI_CHAIN_TWO(TNI_X)
#undef TNI_X
    }
#define TNI_X(r) { \
        TNI_REAL *to = out + tni_min(i + r, d - 1) * d; \
        TNI_STORE(to, x##r, TNI_W); \
        TNI_STORE(to + TNI_W, y##r, lanes); \
    }
    TNI_CHAIN_TWO(TNI_X)
#undef TNI_X
}
#undef TNI_CHAIN_ROW
#undef TNI_CHAIN_ONE
#undef TNI_CHAIN_TWO

/* out = a b   all [d,d] */
TNI_FAST void TNI_T(chain_multiply)(const TNI_REAL *a, const TNI_REAL *b, TNI_REAL *out, int64_t d)
{
    int64_t i, j;
    for (j = 0; j < d; j += d - j > TNI_W ? 2 * TNI_W : TNI_W) {
        if (d - j > TNI_W) for (i = 0; i < d; i += 4) TNI_T(chain_4x2)(a, b + j, out + j, d, i, TNI_T(lanes)(d - j - TNI_W));
        else               for (i = 0; i < d; i += 8) TNI_T(chain_8x1)(a, b + j, out + j, d, i, TNI_T(lanes)(d - j));
    }
}

TNI_FAST double TNI_T(chain_squares)(const TNI_REAL *x, int64_t n)
{
    TNI_V    even = TNI_SET((TNI_REAL)0), odd = even;
    TNI_REAL lane[TNI_W];
    double   total = 0;
    int64_t  i;
    for (i = 0; i + TNI_W < n; i += 2 * TNI_W) {
        TNI_V v = TNI_LOAD(x + i, TNI_W), w = TNI_LOAD(x + i + TNI_W, TNI_T(lanes)(n - i - TNI_W));
        even = TNI_FMA(v, v, even);
        odd = TNI_FMA(w, w, odd);
    }
    if (i < n) {
        TNI_V v = TNI_LOAD(x + i, TNI_T(lanes)(n - i));
        even = TNI_FMA(v, v, even);
    }
    TNI_STORE(lane, even + odd, TNI_W);
    for (i = 0; i < TNI_W; i++) total += (double)lane[i];
    return total;
}

/* Divides x by what it returns: its Frobenius norm if it must, else 1 as long as the norm is within 2^+-16, so that most
   products of a chain need no second pass. By the largest element first where squares overflow or vanish; zeros stay
   zeros, an infinity makes NaN. */
TNI_FAST double TNI_T(chain_norm)(TNI_REAL *x, int64_t n, bool must)
{
    const double near_one = 4294967296.0, limit = TNI_BITS == 32 ? 1e30 : 1e300;
    double       most = 1, total = TNI_T(chain_squares)(x, n);
    int64_t      i;
    if (!must && total > 1 / near_one && total < near_one) return 1;
    if (!(total > 1 / limit && total < limit)) {
        for (most = 0, i = 0; i < n; i++) if (!(fabs((double)x[i]) <= most)) most = fabs((double)x[i]);
        if (most == 0) return 0;
        for (i = 0; i < n; i++) x[i] = (TNI_REAL)((double)x[i] / most);
        total = TNI_T(chain_squares)(x, n);
    }
    total = sqrt(total);
    for (i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(x + i, TNI_LOAD(x + i, k) * TNI_SET((TNI_REAL)(1 / total)), k);
    }
    return most * total;
}

/* What the rest of the chain sees of dy and ds. */
TNI_FAST void TNI_T(chain_seed)(TNI_REAL *g, const TNI_REAL *y, const TNI_REAL *dout, int64_t n)
{
    double  dot = 0;
    int64_t i;
    for (i = 0; i < n; i++) dot += (double)y[i] * (double)dout[i];
    for (i = 0; i < n; i++) g[i] = (TNI_REAL)((double)dout[i] + ((double)dout[n] - dot) * (double)y[i]);
}

/* A task is a chain: its products follow each other. */
TNI_FAST void TNI_T(chain_task)(void *arg, int64_t task, int worker)
{
    const tn_call  *c = ((const tni_pass *)arg)->call;
    int64_t         j, n = c->in[0].shape[1], d = c->in[0].shape[2], dd = d * d;
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data + task * n * dd;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data + task * (dd + 1), *p = (TNI_REAL *)c->out[1].data,
                   *v = (TNI_REAL *)c->out[2].data;
    TNI_REAL       *work = (TNI_REAL *)c->out[3].data + task * 2 * dd, *to = work, *from;
    double          log_norm = 0;
    (void)worker;
    for (j = 0; j < n; j++, m += dd) {
        double norm;
        from = to;
        to = p ? p + (task * n + j) * dd : work + j % 2 * dd;
        if (j == 0) memcpy(to, m, sizeof *to * (size_t)dd);
        else TNI_T(chain_multiply)(from, m, to, d);
        norm = TNI_T(chain_norm)(to, dd, j == n - 1);
        if (v) v[task * n + j] = (TNI_REAL)norm;
        if (norm != 1) log_norm += log(norm);
    }
    memcpy(y, to, sizeof *y * (size_t)dd);
    y[dd] = (TNI_REAL)log_norm;
}

TNI_INLINE void TNI_T(chain_transpose)(const TNI_REAL *x, TNI_REAL *out, int64_t d)
{
    int64_t i, j;
    for (i = 0; i < d; i++)
        for (j = 0; j < d; j++) out[j * d + i] = x[i * d + j];
}

TNI_FAST void TNI_T(chain_backward_task)(void *arg, int64_t task, int worker)
{
    const tn_call  *c = ((const tni_pass *)arg)->call;
    int64_t         i, j, n = c->in[0].shape[1], d = c->in[0].shape[2], dd = d * d, first = task * n, last = first + n - 1;
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data, *p = (const TNI_REAL *)c->in[1].data,
                   *v = (const TNI_REAL *)c->in[2].data;
    TNI_REAL       *dm = (TNI_REAL *)c->out[0].data, *work = (TNI_REAL *)c->out[1].data + task * 4 * dd;
    TNI_REAL       *g = work, *next = work + dd, *product = work + 2 * dd, *turned = work + 3 * dd, *swap;
    double          scale = -log((double)v[last]);
    (void)worker;
    TNI_T(chain_seed)(g, p + last * dd, (const TNI_REAL *)c->in[3].data + task * (dd + 1), dd);
    for (j = last; ; j--) {
        const TNI_REAL *gradient = g;
        const TNI_REAL  factor = v[last] == 0 ? 0 : (TNI_REAL)exp(scale);
        const TNI_V     by = TNI_SET(factor);
        double          norm;
        if (j > first) {
            TNI_T(chain_transpose)(p + (j - 1) * dd, turned, d);
            TNI_T(chain_multiply)(turned, g, product, d);
            gradient = product;
        }
        for (i = 0; i < dd; i += TNI_W) {
            int       k = TNI_T(lanes)(dd - i);
            TNI_REAL *to = dm + j * dd + i;
            TNI_V     x = by;
            if (factor != 0) x = x * TNI_LOAD(gradient + i, k);
            if (c->accumulate) x = x + TNI_LOAD(to, k);
            TNI_STORE(to, x, k);
        }
        if (j == first) break;
        TNI_T(chain_transpose)(m + j * dd, turned, d);
        TNI_T(chain_multiply)(g, turned, next, d);
        norm = TNI_T(chain_norm)(next, dd, false);
        if (norm != 0 && norm != 1) scale += log(norm);
        if (v[j - 1] != 1) scale -= log((double)v[j - 1]);
        swap = g; g = next; next = swap;
    }
}

TNI_FAST tn_status TNI_T(chain_run)(tni_cpu *cpu, const tn_call *c, tn_task_fn fn)
{
    tni_pass p;
    p.cpu = cpu;
    p.call = c;
    tni_parallel_for(&cpu->pool, c->in[0].shape[0], fn, &p);
    return TN_OK;
}

#if TNI_BITS == 32
/* ---- float: whole numbers, comparisons, sums in double ---------------------------------- */
#if TNI_LEVEL == 0 && TNI_PLAIN_BYTES == 0
typedef uint32_t TNI_T(u);
typedef int32_t  TNI_T(i);
typedef double   TNI_T(d);
#else
typedef uint32_t TNI_T(u) __attribute__((vector_size(sizeof(TNI_V))));
typedef int32_t  TNI_T(i) __attribute__((vector_size(sizeof(TNI_V))));
#if TNI_LEVEL == 2
typedef __m512d  TNI_T(d);
#elif TNI_LEVEL == 1
typedef __m256d  TNI_T(d);
#elif TNI_LEVEL == 3
typedef float64x2_t TNI_T(d);
#else
typedef double   TNI_T(d) __attribute__((vector_size(sizeof(TNI_V))));
#endif
#endif
#define TNI_U TNI_T(u)                  /* TNI_W words of 32 bits                      */
#define TNI_I TNI_T(i)                  /* the same with a sign; what comparisons give */
#define TNI_D TNI_T(d)                  /* half as many doubles                        */

#if TNI_LEVEL == 0 && TNI_PLAIN_BYTES == 0
TNI_INLINE uint32_t TNI_T(bits)(float v)                  { uint32_t u; memcpy(&u, &v, 4); return u; }
TNI_INLINE float    TNI_T(real)(uint32_t u)               { float v; memcpy(&v, &u, 4); return v; }
TNI_INLINE float    TNI_T(from_i)(int32_t i)              { return (float)i; }
TNI_INLINE uint32_t TNI_T(set_u)(uint32_t x)              { return x; }
TNI_INLINE float    TNI_T(pick)(int m, float a, float b)  { return m ? a : b; }
TNI_INLINE float    TNI_T(sqrt)(float x)                  { return (float)sqrt((double)x); }
TNI_INLINE double   TNI_T(low)(float v)                   { return (double)v; }
TNI_INLINE double   TNI_T(high)(float v)                  { (void)v; return 0; }
TNI_INLINE float    TNI_T(narrow)(double a, double b)     { (void)b; return (float)a; }
TNI_INLINE double   TNI_T(set_d)(double x)                { return x; }
TNI_INLINE double   TNI_T(sqrt_d)(double x)               { return sqrt(x); }
#else
TNI_INLINE TNI_U TNI_T(bits)(TNI_V v)   { return (TNI_U)v; }
TNI_INLINE TNI_V TNI_T(real)(TNI_U u)   { return (TNI_V)u; }
TNI_INLINE TNI_U TNI_T(set_u)(uint32_t x) { TNI_U zero = {0}; return zero + x; }
TNI_INLINE TNI_V TNI_T(pick)(TNI_I m, TNI_V a, TNI_V b) { return (TNI_V)((m & (TNI_I)a) | (~m & (TNI_I)b)); }
#if TNI_LEVEL == 2
TNI_INLINE TNI_V TNI_T(from_i)(TNI_I i) { return _mm512_maskz_cvtepi32_ps(0xffff, (__m512i)i); }
TNI_INLINE TNI_D TNI_T(low)(TNI_V v)    { return _mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, v, 0)); }
TNI_INLINE TNI_D TNI_T(high)(TNI_V v)   { return _mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, v, 1)); }
TNI_INLINE TNI_V TNI_T(narrow)(TNI_D a, TNI_D b)
{
    __m256 low = _mm512_maskz_cvtpd_ps(0xff, a), high = _mm512_maskz_cvtpd_ps(0xff, b);
    return _mm512_maskz_insertf32x8(0xffff, _mm512_castps256_ps512(low), high, 1);
}
TNI_INLINE TNI_D TNI_T(set_d)(double x) { return _mm512_set1_pd(x); }
TNI_INLINE TNI_D TNI_T(sqrt_d)(TNI_D x) { return _mm512_maskz_sqrt_pd(0xff, x); }
#elif TNI_LEVEL == 1
TNI_INLINE TNI_V TNI_T(from_i)(TNI_I i) { return _mm256_cvtepi32_ps((__m256i)i); }
TNI_INLINE TNI_D TNI_T(low)(TNI_V v)    { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
TNI_INLINE TNI_D TNI_T(high)(TNI_V v)   { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
TNI_INLINE TNI_V TNI_T(narrow)(TNI_D a, TNI_D b)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a)), _mm256_cvtpd_ps(b), 1);
}
TNI_INLINE TNI_D TNI_T(set_d)(double x) { return _mm256_set1_pd(x); }
TNI_INLINE TNI_D TNI_T(sqrt_d)(TNI_D x) { return _mm256_sqrt_pd(x); }
#elif TNI_LEVEL == 3
TNI_INLINE TNI_V TNI_T(from_i)(TNI_I i) { return vcvtq_f32_s32((int32x4_t)i); }
TNI_INLINE TNI_D TNI_T(low)(TNI_V v)    { return vcvt_f64_f32(vget_low_f32(v)); }
TNI_INLINE TNI_D TNI_T(high)(TNI_V v)   { return vcvt_high_f64_f32(v); }
TNI_INLINE TNI_V TNI_T(narrow)(TNI_D a, TNI_D b) { return vcvt_high_f32_f64(vcvt_f32_f64(a), b); }
TNI_INLINE TNI_D TNI_T(set_d)(double x) { return vdupq_n_f64(x); }
TNI_INLINE TNI_D TNI_T(sqrt_d)(TNI_D x) { return vsqrtq_f64(x); }
#else
TNI_INLINE TNI_V TNI_T(from_i)(TNI_I i) { return __builtin_convertvector(i, TNI_V); }
#if TNI_X86
TNI_INLINE TNI_V TNI_T(sqrt)(TNI_V x)   { return (TNI_V)_mm_sqrt_ps((__m128)x); }
#else
TNI_INLINE TNI_V TNI_T(sqrt)(TNI_V x)
{
    int i;
    for (i = 0; i < TNI_W; i++) x[i] = (float)sqrt((double)x[i]);
    return x;
}
#endif
TNI_INLINE TNI_D TNI_T(low)(TNI_V v)    { TNI_D d = {(double)v[0], (double)v[1]}; return d; }
TNI_INLINE TNI_D TNI_T(high)(TNI_V v)   { TNI_D d = {(double)v[2], (double)v[3]}; return d; }
TNI_INLINE TNI_V TNI_T(narrow)(TNI_D a, TNI_D b)
{
    TNI_V v = {(float)a[0], (float)a[1], (float)b[0], (float)b[1]};
    return v;
}
TNI_INLINE TNI_D TNI_T(set_d)(double x) { TNI_D d = {x, x}; return d; }
TNI_INLINE TNI_D TNI_T(sqrt_d)(TNI_D x) { TNI_D d = {sqrt(x[0]), sqrt(x[1])}; return d; }
#endif
#endif
#define TNI_PICK(condition, a, b) TNI_T(pick)((TNI_I)(condition), a, b)
#define TNI_ABS(v) TNI_T(real)(TNI_T(bits)(v) & TNI_T(set_u)(0x7fffffffu))

#if TNI_LEVEL == 0 || TNI_LEVEL == 3
TNI_INLINE TNI_V TNI_T(max)(TNI_V a, TNI_V b) { return TNI_PICK(a > b, a, b); }
TNI_INLINE TNI_V TNI_T(min)(TNI_V a, TNI_V b) { return TNI_PICK(a < b, a, b); }
#endif

/* TNI_W numbers in double: mostly sums of many floats. Lanes are added up pairwise. */
typedef struct TNI_T(wide) { TNI_D low, high; } TNI_T(wide);

TNI_INLINE TNI_T(wide) TNI_T(wide_zero)(void)
{
    TNI_T(wide) t;
    t.low = t.high = TNI_T(set_d)(0);
    return t;
}

TNI_INLINE void TNI_T(wide_add)(TNI_T(wide) *t, TNI_V v)
{
    t->low = t->low + TNI_T(low)(v);
    t->high = t->high + TNI_T(high)(v);
}

TNI_INLINE void TNI_T(wide_add_product)(TNI_T(wide) *t, TNI_V a, TNI_V b)
{
    t->low = t->low + TNI_T(low)(a) * TNI_T(low)(b);            /* exact products: fused or not, the same bits */
    t->high = t->high + TNI_T(high)(a) * TNI_T(high)(b);
}

TNI_INLINE double TNI_T(wide_sum)(const TNI_T(wide) *t)
{
    double lane[2 * sizeof(TNI_D) / sizeof(double)];
    int    i, half;
    memcpy(lane, t, sizeof lane);
    for (half = (int)(sizeof(TNI_D) / sizeof(double)); half > 0; half /= 2)
        for (i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* ---- exp, normal distribution, log, sin, cos: minimax polynomials ------------------------------- */

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2. Overflows to infinity, falls gently to 0. */
TNI_INLINE TNI_V TNI_T(exp)(TNI_V x)
{
    TNI_V k, n, r, p;
    x = TNI_MIN(TNI_SET(89.0f), TNI_MAX(TNI_SET(-104.0f), x));
    n = TNI_FMA(x, TNI_SET(1.44269504f), TNI_SET(12582912.0f));       /* 1.5 2^23: rounds */
    k = n - TNI_SET(12582912.0f);
    r = TNI_FMA(k, TNI_SET(-0.693359375f), x);
    r = TNI_FMA(k, TNI_SET(2.12194440e-4f), r);
    p = TNI_FMA(TNI_SET(0.00138232135f), r, TNI_SET(0.00836882368f));
    p = TNI_FMA(p, r, TNI_SET(0.04166824f));
    p = TNI_FMA(p, r, TNI_SET(0.166665196f));
    p = TNI_FMA(p, r, TNI_SET(0.49999994f));
    p = TNI_FMA(p, r * r, r) + TNI_SET(1.0f);
#if TNI_LEVEL == 2
    return _mm512_maskz_scalef_ps(0xffff, p, k);
#else
    {
        TNI_U whole = TNI_T(bits)(n) - TNI_T(set_u)(0x4b400000u);
        TNI_U half = (TNI_U)((TNI_I)whole >> 1);           /* 2^n in two steps: one alone may leave the exponent's range */
        p = p * TNI_T(real)((half + 127u) << 23);
        return p * TNI_T(real)((whole - half + 127u) << 23);
    }
#endif
}

TNI_INLINE TNI_V TNI_T(sigmoid)(TNI_V x)
{
    return TNI_SET(1.0f) / (TNI_SET(1.0f) + TNI_T(exp)(TNI_SET(0.0f) - x));
}

/* By e^(-2|x|), but where that is near 1 by a polynomial. */
TNI_INLINE TNI_V TNI_T(tanh)(TNI_V x)
{
    const TNI_V one = TNI_SET(1.0f);
    TNI_V a = TNI_ABS(x), z = a * a, e = TNI_T(exp)(TNI_SET(-2.0f) * a), p;
    p = TNI_FMA(TNI_SET(-0.00610494567f), z, TNI_SET(0.0210036393f));
    p = TNI_FMA(p, z, TNI_SET(-0.0538524985f));
    p = TNI_FMA(p, z, TNI_SET(0.133327827f));
    p = TNI_FMA(p, z, TNI_SET(-0.333333284f));
    a = TNI_PICK(a < TNI_SET(0.625f), TNI_FMA(p * z, a, a), (one - e) / (one + e));
    return TNI_T(real)(TNI_T(bits)(a) | (TNI_T(bits)(x) & TNI_T(set_u)(0x80000000u)));
}

/* Phi(x) and phi(x). The tail Phi(-t) = e^(-t^2/2) g(t) has a smooth g, a polynomial in 1/(1 + 0.3 t). */
TNI_INLINE TNI_V TNI_T(normal_cdf)(TNI_V x, TNI_V *density)
{
    TNI_V t = TNI_MIN(TNI_SET(15.0f), TNI_ABS(x)), square = t * t, lost = TNI_FMA(t, t, TNI_SET(0.0f) - square);
    TNI_V z = TNI_SET(1.0f) / TNI_FMA(TNI_SET(0.3f), t, TNI_SET(1.0f));
    TNI_V e = TNI_T(exp)(TNI_SET(-0.5f) * square), g;
    e = TNI_FMA(e, TNI_SET(-0.5f) * lost, e);              /* what rounding took from the square */
    g = TNI_FMA(TNI_SET(-0.0206242893f), z, TNI_SET(0.112440139f));
    g = TNI_FMA(g, z, TNI_SET(-0.228224412f));
    g = TNI_FMA(g, z, TNI_SET(0.191799164f));
    g = TNI_FMA(g, z, TNI_SET(-0.0794358179f));
    g = TNI_FMA(g, z, TNI_SET(0.0961635262f));
    g = TNI_FMA(g, z, TNI_SET(0.0783873126f));
    g = TNI_FMA(g, z, TNI_SET(0.110235929f));
    g = TNI_FMA(g, z, TNI_SET(0.119571753f));
    g = TNI_FMA(g, z, TNI_SET(0.119686693f)) * z * e;
    *density = TNI_SET(0.398942280f) * e;
    return TNI_PICK(x > TNI_SET(0.0f), TNI_SET(1.0f) - g, g);
}

/* ln x for normal x > 0: x = 2^n (1+f), sqrt(1/2) <= 1+f < sqrt(2) */
TNI_INLINE TNI_T(wide) TNI_T(log)(TNI_V x)
{
    const TNI_D ln2 = TNI_T(set_d)(0.6931471805599453);
    TNI_T(wide) sum;
    TNI_U u = TNI_T(bits)(x) - TNI_T(set_u)(0x3f3504f3u);
    TNI_V k = TNI_T(from_i)((TNI_I)u >> 23), f, p, square;
    f = TNI_T(real)((u & TNI_T(set_u)(0x007fffffu)) + TNI_T(set_u)(0x3f3504f3u)) - TNI_SET(1.0f);
    square = f * f;
    p = TNI_FMA(TNI_SET(-0.0763748139f), f, TNI_SET(0.127667218f));
    p = TNI_FMA(p, f, TNI_SET(-0.131613255f));
    p = TNI_FMA(p, f, TNI_SET(0.142010972f));
    p = TNI_FMA(p, f, TNI_SET(-0.166231945f));
    p = TNI_FMA(p, f, TNI_SET(0.200012535f));
    p = TNI_FMA(p, f, TNI_SET(-0.250008255f));
    p = TNI_FMA(p, f, TNI_SET(0.333333313f));
    p = TNI_FMA(p * f, square, TNI_SET(-0.5f) * square);
    sum.low = TNI_T(low)(k) * ln2 + (TNI_T(low)(f) + TNI_T(low)(p));
    sum.high = TNI_T(high)(k) * ln2 + (TNI_T(high)(f) + TNI_T(high)(p));
    return sum;
}

/* factor * first + tail: the product is exact in double, so that neither its rounding nor the sum's is seen in a float */
typedef struct TNI_T(direction) { TNI_V factor, first, tail; } TNI_T(direction);

/* `odd` lanes are a cosine, 1 + tail, the others a sine, 2 pi r + tail; `sign` is 2 where it is negative. */
TNI_INLINE TNI_T(direction) TNI_T(turn)(TNI_I odd, TNI_U sign, TNI_V r, TNI_V sine_tail, TNI_V cosine_tail)
{
    TNI_T(direction) d;
    d.factor = TNI_PICK(odd, TNI_SET(1.0f), TNI_SET(6.28318548f));
    d.first = TNI_T(real)(TNI_T(bits)(TNI_PICK(odd, TNI_SET(1.0f), r)) ^ (sign << 30));
    d.tail = TNI_T(real)(TNI_T(bits)(TNI_PICK(odd, cosine_tail, sine_tail)) ^ (sign << 30));
    return d;
}

/* cos and sin of 2 pi u, 0 <= u <= 1: u = q/4 + r, |r| <= 1/8, exact */
TNI_INLINE void TNI_T(circle)(TNI_V u, TNI_T(direction) *cosine, TNI_T(direction) *sine)
{
    TNI_U q = TNI_T(bits)(TNI_FMA(u, TNI_SET(4.0f), TNI_SET(12582912.0f)));
    TNI_V r = TNI_FMA(TNI_T(from_i)((TNI_I)(q - TNI_T(set_u)(0x4b400000u))), TNI_SET(-0.25f), u), z = r * r, s, c;
    TNI_I odd = (TNI_I)(q & TNI_T(set_u)(1)) == (TNI_I)TNI_T(set_u)(1);
    s = TNI_FMA(TNI_SET(-75.434494f), z, TNI_SET(81.5935135f));
    s = TNI_FMA(s, z, TNI_SET(-41.341671f));
    s = TNI_FMA(s * z, r, TNI_SET(-1.74845560e-7f) * r);   /* 2 pi in two parts */
    c = TNI_FMA(TNI_SET(58.7673836f), z, TNI_SET(-85.4282761f));
    c = TNI_FMA(c, z, TNI_SET(64.9391708f));
    c = TNI_FMA(c, z, TNI_SET(-19.7392082f)) * z;
    *sine = TNI_T(turn)(odd, q & TNI_T(set_u)(2), r, s, c);
    *cosine = TNI_T(turn)((TNI_I)(q & TNI_T(set_u)(1)) == (TNI_I)TNI_T(set_u)(0), (q + 1u) & TNI_T(set_u)(2), r, s, c);
}

/* ---- passes over elements ------------------------------------------------------------------------ */

/* act(x) and its slope, see >>op-act. The switch is the same for a whole pass. */
TNI_INLINE TNI_V TNI_T(act)(int64_t kind, TNI_V x, TNI_V *slope)
{
    const TNI_V zero = TNI_SET(0.0f), one = TNI_SET(1.0f);
    TNI_V s, t;
    switch (kind) {
    case TN_ACT_RELU:
        s = TNI_MAX(zero, x);
        *slope = TNI_PICK(x > zero, one, s);
        return s;
    case TN_ACT_RELU2:
        s = TNI_MAX(zero, x);
        *slope = s + s;
        return s * s;
    case TN_ACT_GELU: {
        TNI_V density, cdf = TNI_T(normal_cdf)(x, &density);
        *slope = TNI_FMA(x, density, cdf);
        return x * cdf;
    }
    case TN_ACT_SWISH:
        s = TNI_T(sigmoid)(x);
        *slope = TNI_FMA(x * s, one - s, s);
        return x * s;
    case TN_ACT_SIGMOID:
        s = TNI_T(sigmoid)(x);
        *slope = s * (one - s);
        return s;
    case TN_ACT_ABS:
        *slope = TNI_PICK(x > zero, one, TNI_PICK(x < zero, zero - one, x));       /* x: 0, or NaN */
        return TNI_ABS(x);
    case TN_ACT_ROUND:
        *slope = one;
        s = TNI_ABS(x);
        t = s + TNI_SET(8388608.0f);        /* 2^23, where numbers are whole; stored, since the x87 holds more digits */
        s = TNI_PICK(s < TNI_SET(8388608.0f), t - TNI_SET(8388608.0f), s);
        return TNI_T(real)(TNI_T(bits)(s) | (TNI_T(bits)(x) & TNI_T(set_u)(0x80000000u)));
    case TN_ACT_EXP:
        return *slope = TNI_T(exp)(x);
    case TN_ACT_TANH:
        s = TNI_T(tanh)(x);
        *slope = (one - s) * (one + s);
        return s;
    default:
        *slope = one;
        return x;
    }
}

#define TNI_PASS_OF(arg) \
    const tni_pass *p = (const tni_pass *)(arg); \
    const tn_call  *c = p->call; \
    const int64_t   begin = tni_pass_begin(p, task), end = tni_pass_end(p, task); \
    (void)worker
#define TNI_IN(k)  ((const float *)c->in[k].data)
#define TNI_OUT(k) ((float *)c->out[k].data)

TNI_FAST void TNI_T(act_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *x = TNI_IN(0);
    float       *y = TNI_OUT(0);
    int64_t      i, kind = c->i[0];
    for (i = begin; i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V slope;
        TNI_STORE(y + i, TNI_T(act)(kind, TNI_LOAD(x + i, k), &slope), k);
    }
}

TNI_FAST void TNI_T(act_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *x = TNI_IN(0), *dy = TNI_IN(1);
    float       *dx = TNI_OUT(0);
    int64_t      i, kind = c->i[0];
    bool         add = c->accumulate;
    for (i = begin; i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V slope;
        TNI_T(act)(kind, TNI_LOAD(x + i, k), &slope);
        slope = slope * TNI_LOAD(dy + i, k);
        if (add) slope = slope + TNI_LOAD(dx + i, k);
        TNI_STORE(dx + i, slope, k);
    }
}

TNI_FAST void TNI_T(glu_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t r, i, h = c->out[0].shape[1], kind = c->i[0];
    for (r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * 2 * h;
        float       *y = TNI_OUT(0) + r * h;
        for (i = 0; i < h; i += TNI_W) {
            int   k = TNI_T(lanes)(h - i);
            TNI_V slope, gate = TNI_T(act)(kind, TNI_LOAD(x + i, k), &slope);
            TNI_STORE(y + i, gate * TNI_LOAD(x + h + i, k), k);
        }
    }
}

TNI_FAST void TNI_T(glu_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t r, i, h = c->in[1].shape[1], kind = c->i[0];
    bool    add = c->accumulate;
    for (r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * 2 * h, *dy = TNI_IN(1) + r * h;
        float       *dx = TNI_OUT(0) + r * 2 * h;
        for (i = 0; i < h; i += TNI_W) {
            int   k = TNI_T(lanes)(h - i);
            TNI_V slope, d = TNI_LOAD(dy + i, k), gate = TNI_T(act)(kind, TNI_LOAD(x + i, k), &slope);
            slope = d * TNI_LOAD(x + h + i, k) * slope;
            gate = d * gate;
            if (add) {
                slope = slope + TNI_LOAD(dx + i, k);
                gate = gate + TNI_LOAD(dx + h + i, k);
            }
            TNI_STORE(dx + i, slope, k);
            TNI_STORE(dx + h + i, gate, k);
        }
    }
}

/* ---- prod, see >>op-prod: what stands before a factor, then what stands behind it ----------------------- */
TNI_FAST void TNI_T(prod_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t r, i, e, h = c->out[0].shape[1], all = c->i[0];
    for (r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * all * h;
        float       *y = TNI_OUT(0) + r * h;
        for (i = 0; i < h; i += TNI_W) {
            int   k = TNI_T(lanes)(h - i);
            TNI_V v = TNI_LOAD(x + i, k);
            for (e = 1; e < all; e++) v = v * TNI_LOAD(x + e * h + i, k);
            TNI_STORE(y + i, v, k);
        }
    }
}

TNI_FAST void TNI_T(prod_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t r, i, e, h = c->in[1].shape[1], all = c->i[0];
    bool    add = c->accumulate;
    TNI_V   front[TNI_PROD_MOST];
    for (r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * all * h, *dy = TNI_IN(1) + r * h;
        float       *dx = TNI_OUT(0) + r * all * h;
        for (i = 0; i < h; i += TNI_W) {
            int   k = TNI_T(lanes)(h - i);
            TNI_V behind = TNI_SET(1.0f);
            front[0] = TNI_LOAD(dy + i, k);
            for (e = 1; e < all; e++) front[e] = front[e - 1] * TNI_LOAD(x + (e - 1) * h + i, k);
            for (e = all - 1; e >= 0; e--) {
                float *to = dx + e * h + i;
                TNI_V  d = front[e] * behind;
                behind = behind * TNI_LOAD(x + e * h + i, k);
                if (add) d = d + TNI_LOAD(to, k);
                TNI_STORE(to, d, k);
            }
        }
    }
}

/* ---- add, mul: along lines whose step is 1, or 0 where broadcast ------------------------------------ */
TNI_INLINE TNI_V TNI_T(along)(const float *p, int64_t step, int64_t i, int k)
{
    return step == 0 ? TNI_SET(*p) : TNI_LOAD(p + i, k);
}

TNI_FAST void TNI_T(add_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    const TNI_V f0 = TNI_SET((float)c->f[0]), f1 = TNI_SET((float)c->f[1]);
    bool        add = c->accumulate, two = c->n_in > 1;
    int64_t     at[3], index, i, n;
    for (index = begin; index < end; index++) {
        const float *a, *b;
        float       *y;
        n = tni_lines_at(l, index, at);
        y = TNI_OUT(0) + at[0];
        a = TNI_IN(0) + at[1];
        b = two ? TNI_IN(1) + at[2] : NULL;
        for (i = 0; i < n; i += TNI_W) {
            int   k = TNI_T(lanes)(n - i);
            TNI_V v = f0 * TNI_T(along)(a, l->step[1], i, k);
            if (two) v = TNI_FMA(f1, TNI_T(along)(b, l->step[2], i, k), v);
            if (add) v = v + TNI_LOAD(y + i, k);
            TNI_STORE(y + i, v, k);
        }
    }
}

TNI_FAST void TNI_T(mul_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    const TNI_V f0 = TNI_SET((float)c->f[0]);
    bool        add = c->accumulate;
    int64_t     at[3], index, i, n;
    for (index = begin; index < end; index++) {
        n = tni_lines_at(l, index, at);
        for (i = 0; i < n; i += TNI_W) {
            int    k = TNI_T(lanes)(n - i);
            float *y = TNI_OUT(0) + at[0] + i;
            TNI_V  v = f0 * TNI_T(along)(TNI_IN(0) + at[1], l->step[1], i, k)
                     * TNI_T(along)(TNI_IN(1) + at[2], l->step[2], i, k);
            if (add) v = v + TNI_LOAD(y, k);
            TNI_STORE(y, v, k);
        }
    }
}

TNI_FAST tn_status TNI_T(binary_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_lines l = tni_lines_of(&c->out[0], &c->in[0], c->n_in > 1 ? &c->in[1] : NULL);
    if (l.length > 1 && (l.step[0] != 1 || (uint64_t)l.step[1] > 1 || (uint64_t)l.step[2] > 1))
        return tni_reference_run(cpu, c);
    return tni_line_pass_run(cpu, c, &l, c->kernel == TN_KERNEL_ADD ? TNI_T(add_task) : TNI_T(mul_task));
}

/* ---- sum: of everything, of each row, or of each column ----------------------------------------------- */
TNI_INLINE double TNI_T(sum_of)(const float *x, int64_t n)
{
    TNI_T(wide) t = TNI_T(wide_zero)();
    int64_t      i;
    for (i = 0; i < n; i += TNI_W) TNI_T(wide_add)(&t, TNI_LOAD(x + i, TNI_T(lanes)(n - i)));
    return TNI_T(wide_sum)(&t);
}

TNI_INLINE void TNI_T(sum_store)(const tn_call *c, int64_t i, double sum)
{
    float *y = TNI_OUT(0) + i;
    *y = (float)(c->f[0] * sum + (c->accumulate ? (double)*y : 0));
}

TNI_FAST void TNI_T(sum_all_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    p->cpu->part[task] = TNI_T(sum_of)(TNI_IN(0) + begin, end - begin);
}

TNI_FAST void TNI_T(sum_rows_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    int64_t r;
    for (r = begin; r < end; r++)
        TNI_T(sum_store)(c, r * l->strides[0][0], TNI_T(sum_of)(TNI_IN(0) + r * l->strides[1][0], l->length));
}

/* Item: a strip of two vectors, down all rows. */
TNI_FAST void TNI_T(sum_columns_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    const float     *x;
    int64_t          strip, r, rows = l->shape[0];
    double           lane[2 * TNI_W];
    int              i;
    for (strip = begin; strip < end; strip++) {
        int64_t      at = strip * 2 * TNI_W, left = tni_min(2 * TNI_W, l->length - at);
        int          k = TNI_T(lanes)(left), k2 = (int)left - k;
        TNI_T(wide) a = TNI_T(wide_zero)(), b = a;
        for (r = 0, x = TNI_IN(0) + at; r < rows; r++, x += l->strides[1][0]) {
            TNI_T(wide_add)(&a, TNI_LOAD(x, k));
            if (k2 > 0) TNI_T(wide_add)(&b, TNI_LOAD(x + TNI_W, k2));
        }
        memcpy(lane, &a, sizeof(double) * (size_t)TNI_W);
        memcpy(lane + TNI_W, &b, sizeof(double) * (size_t)TNI_W);
        for (i = 0; i < left; i++) TNI_T(sum_store)(c, at + i, lane[i]);
    }
}

TNI_FAST tn_status TNI_T(sum_run)(tni_cpu *cpu, const tn_call *c)
{
    tn_view       at = c->out[0], x = c->in[0];
    tni_line_pass p;
    tni_lines    *l = &p.lines;
    int           i;
    for (i = 0; i < x.rank; i++)
        if (at.shape[i] != x.shape[i]) { at.shape[i] = x.shape[i]; at.strides[i] = 0; }
    *l = tni_lines_of(&at, &x, NULL);
    p.pass.cpu = cpu;
    p.pass.call = c;
    if (l->count == 0 || l->rank > 1 || l->step[1] != 1) return tni_reference_run(cpu, c);
    if (l->rank == 0 && l->step[0] == 0) {
        int64_t parts = tni_pass_run(&p.pass, l->length, 1, TNI_CPU_PARTS, TNI_T(sum_all_task));
        TNI_T(sum_store)(c, 0, tni_parts_sum(cpu, parts));
    } else if (l->rank == 1 && l->step[0] == 0 && l->strides[0][0] != 0)
        tni_pass_run(&p.pass, l->shape[0], l->length, INT64_MAX, TNI_T(sum_rows_task));
    else if (l->rank == 1 && l->strides[0][0] == 0 && l->step[0] == 1)
        tni_pass_run(&p.pass, tni_ceil_div(l->length, 2 * TNI_W), 2 * TNI_W * l->shape[0], INT64_MAX,
                     TNI_T(sum_columns_task));
    else return tni_reference_run(cpu, c);
    return TN_OK;
}

/* ---- rmsnorm, see >>op-rmsnorm --------------------------------------------------------------------------- */
TNI_FAST void TNI_T(rmsnorm_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *w = TNI_IN(1);
    int64_t      r, i, C = c->out[0].shape[1];
    for (r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * C;
        float       *y = TNI_OUT(0) + r * C;
        TNI_T(wide) squares = TNI_T(wide_zero)();
        double       scale;
        TNI_V        s;
        for (i = 0; i < C; i += TNI_W) {
            TNI_V v = TNI_LOAD(x + i, TNI_T(lanes)(C - i));
            TNI_T(wide_add_product)(&squares, v, v);
        }
        scale = 1 / sqrt(TNI_T(wide_sum)(&squares) / (double)C + c->f[0]);
        TNI_OUT(1)[r] = (float)scale;
        s = TNI_SET((float)scale);
        for (i = 0; i < C; i += TNI_W) {
            int   k = TNI_T(lanes)(C - i);
            TNI_V v = TNI_LOAD(x + i, k) * s;
            if (w) v = v * TNI_LOAD(w + i, k);
            TNI_STORE(y + i, v, k);
        }
    }
}

/* to[C] += the sum of the tasks' shares, which lie `stride` apart. */
TNI_FAST void TNI_T(add_parts)(float *to, const float *part, int64_t parts, int64_t stride, int64_t C)
{
    int64_t i, q;
    for (i = 0; i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V sum = TNI_SET(0.0f);
        for (q = 0; q < parts; q++) sum = sum + TNI_LOAD(part + q * stride + i, k);
        TNI_STORE(to + i, TNI_LOAD(to + i, k) + sum, k);
    }
}

/* One row: dx, and its share of dw. */
TNI_INLINE void TNI_T(rmsnorm_row)(const tn_call *c, int64_t r, int64_t C, float *dw)
{
    const float *x = TNI_IN(0) + r * C, *w = TNI_IN(1), *dy = TNI_IN(3) + r * C;
    float       *dx = TNI_OUT(0) ? TNI_OUT(0) + r * C : NULL;
    const TNI_V  scale = TNI_SET(TNI_IN(2)[r]);
    double       s = (double)TNI_IN(2)[r];
    TNI_T(wide) dot = TNI_T(wide_zero)();
    TNI_V        mean;
    int64_t      i;
    for (i = 0; i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V d = TNI_LOAD(x + i, k) * TNI_LOAD(dy + i, k);
        if (dw) TNI_STORE(dw + i, TNI_FMA(d, scale, TNI_LOAD(dw + i, k)), k);
        if (w) d = d * TNI_LOAD(w + i, k);
        TNI_T(wide_add)(&dot, d);
    }
    mean = TNI_SET((float)(-s * s * s * TNI_T(wide_sum)(&dot) / (double)C));
    for (i = 0; dx && i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V d = TNI_LOAD(dy + i, k) * scale;
        if (w) d = d * TNI_LOAD(w + i, k);
        d = TNI_FMA(TNI_LOAD(x + i, k), mean, d);
        if (c->accumulate) d = d + TNI_LOAD(dx + i, k);
        TNI_STORE(dx + i, d, k);
    }
}

/* Every task sums dw of its rows for itself. */
TNI_FAST void TNI_T(rmsnorm_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t r, C = c->in[0].shape[1];
    float  *dw = c->n_out > 1 && TNI_OUT(1) ? (float *)(void *)p->cpu->blocks + task * C : NULL;
    if (dw) memset(dw, 0, sizeof *dw * (size_t)C);
    for (r = begin; r < end; r++) TNI_T(rmsnorm_row)(c, r, C, dw);
}

TNI_FAST tn_status TNI_T(rmsnorm_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t most = 16, C = c->in[0].shape[1];
    int64_t       parts;
    tni_pass      p;
    float        *dw = c->n_out > 1 ? TNI_OUT(1) : NULL;
    if (C > 2 * TNI_GEMM_LARGE / (most * (int64_t)sizeof *dw)) return tni_reference_run(cpu, c);
    p.cpu = cpu;
    p.call = c;
    parts = tni_pass_run(&p, c->in[0].shape[0], C, most, TNI_T(rmsnorm_backward_task));
    if (dw) TNI_T(add_parts)(dw, (const float *)(void *)cpu->blocks, parts, C, C);
    return TN_OK;
}

/* ---- layernorm, see >>op-layernorm -------------------------------------------------------------------------
   The mean as a float and what that lost: a row far from zero keeps the digits it has. */
TNI_INLINE TNI_V TNI_T(row_mean)(const float *x, int64_t C, TNI_V *lost)
{
    TNI_T(wide) sum = TNI_T(wide_zero)();
    double       mean;
    int64_t      i;
    for (i = 0; i < C; i += TNI_W) TNI_T(wide_add)(&sum, TNI_LOAD(x + i, TNI_T(lanes)(C - i)));
    mean = TNI_T(wide_sum)(&sum) / (double)C;
    *lost = TNI_SET((float)(mean - (double)(float)mean));
    return TNI_SET((float)mean);
}

TNI_FAST void TNI_T(layernorm_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *w = TNI_IN(1), *b = TNI_IN(2);
    int64_t      r, i, C = c->out[0].shape[1];
    for (r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * C;
        float       *y = TNI_OUT(0) + r * C;
        TNI_T(wide) squares = TNI_T(wide_zero)();
        TNI_V        lost, s, mean = TNI_T(row_mean)(x, C, &lost);
        double       scale;
        for (i = 0; i < C; i += TNI_W) {
            int   k = TNI_T(lanes)(C - i);
            TNI_V v = TNI_LOAD(x + i, k) - mean - lost;
            TNI_STORE(y + i, v, k);
            if (k < TNI_W) v = TNI_LOAD(y + i, k);      /* lanes behind the row count zero */
            TNI_T(wide_add_product)(&squares, v, v);
        }
        scale = 1 / sqrt(TNI_T(wide_sum)(&squares) / (double)C + c->f[0]);
        TNI_OUT(1)[r] = (float)scale;
        s = TNI_SET((float)scale);
        for (i = 0; i < C; i += TNI_W) {
            int   k = TNI_T(lanes)(C - i);
            TNI_V v = TNI_LOAD(y + i, k) * s;
            if (w) v = v * TNI_LOAD(w + i, k);
            if (b) v = v + TNI_LOAD(b + i, k);
            TNI_STORE(y + i, v, k);
        }
    }
}

/* One row: dx, and its share of dw and db. */
TNI_INLINE void TNI_T(layernorm_row)(const tn_call *c, int64_t r, int64_t C, float *dw, float *db)
{
    const float *x = TNI_IN(0) + r * C, *w = TNI_IN(1), *dy = TNI_IN(3) + r * C;
    float       *dx = TNI_OUT(0) ? TNI_OUT(0) + r * C : NULL;
    const TNI_V  scale = TNI_SET(TNI_IN(2)[r]);
    TNI_T(wide) sum = TNI_T(wide_zero)(), dot = sum;
    TNI_V        lost, mean = TNI_T(row_mean)(x, C, &lost), slope, mean_g;
    int64_t      i;
    for (i = 0; i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V d = TNI_LOAD(dy + i, k), z = (TNI_LOAD(x + i, k) - mean - lost) * scale;
        if (db) TNI_STORE(db + i, d + TNI_LOAD(db + i, k), k);
        if (dw) TNI_STORE(dw + i, TNI_FMA(d, z, TNI_LOAD(dw + i, k)), k);
        if (w) d = d * TNI_LOAD(w + i, k);
        TNI_T(wide_add)(&sum, d);
        TNI_T(wide_add_product)(&dot, d, z);
    }
    mean_g = TNI_SET((float)(TNI_T(wide_sum)(&sum) / (double)C));
    slope = TNI_SET((float)(-TNI_T(wide_sum)(&dot) / (double)C));
    for (i = 0; dx && i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V d = TNI_LOAD(dy + i, k), z = (TNI_LOAD(x + i, k) - mean - lost) * scale;
        if (w) d = d * TNI_LOAD(w + i, k);
        d = TNI_FMA(z, slope, d - mean_g) * scale;
        if (c->accumulate) d = d + TNI_LOAD(dx + i, k);
        TNI_STORE(dx + i, d, k);
    }
}

/* Every task sums dw, then db, of its rows for itself. */
TNI_FAST void TNI_T(layernorm_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t r, C = c->in[0].shape[1];
    float  *part = (float *)(void *)p->cpu->blocks + task * 2 * C;
    memset(part, 0, sizeof *part * 2 * (size_t)C);
    for (r = begin; r < end; r++) TNI_T(layernorm_row)(c, r, C, TNI_OUT(1) ? part : NULL, TNI_OUT(2) ? part + C : NULL);
}

TNI_FAST tn_status TNI_T(layernorm_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t most = 16, C = c->in[0].shape[1];
    int64_t       parts, which;
    tni_pass      p;
    if (C > 2 * TNI_GEMM_LARGE / (most * 2 * (int64_t)sizeof(float))) return tni_reference_run(cpu, c);
    p.cpu = cpu;
    p.call = c;
    parts = tni_pass_run(&p, c->in[0].shape[0], C, most, TNI_T(layernorm_backward_task));
    for (which = 0; which < 2; which++) {
        const float *part = (const float *)(void *)cpu->blocks + which * C;
        if (TNI_OUT(1 + which)) TNI_T(add_parts)(TNI_OUT(1 + which), part, parts, 2 * C, C);
    }
    return TN_OK;
}

/* ---- cross_entropy, see >>op-cross_entropy ----------------------------------------------------------------- */
/* One row: e^(z-top) is kept in dz, if there is one, until the sum is known. Returns the lse. */
TNI_INLINE double TNI_T(cross_entropy_row)(const float *z, float *dz, int64_t C, double share)
{
    float       lane[TNI_W], most;
    TNI_V       top = TNI_SET(z[0]), scale;
    TNI_T(wide) sum = TNI_T(wide_zero)();
    double      total;
    int64_t     i;
    for (i = 0; i + TNI_W <= C; i += TNI_W) top = TNI_MAX(top, TNI_LOAD(z + i, TNI_W));
    TNI_STORE(lane, top, TNI_W);
    for (most = lane[0]; i < C; i++) most = z[i] > most ? z[i] : most;
    for (i = 1; i < TNI_W; i++) most = lane[i] > most ? lane[i] : most;
    top = TNI_SET(most);
    for (i = 0; i + TNI_W <= C;) {                        /* eight at most are added in float, all within [0,1] */
        const int64_t end = tni_min(i + 8 * TNI_W, C - TNI_W + 1);
        TNI_V         some = TNI_SET(0.0f);
        for (; i < end; i += TNI_W) {
            TNI_V e = TNI_T(exp)(TNI_LOAD(z + i, TNI_W) - top);
            if (dz) TNI_STORE(dz + i, e, TNI_W);
            some = some + e;
        }
        TNI_T(wide_add)(&sum, some);
    }
    if (i < C) {
        int k = (int)(C - i);
        TNI_STORE(lane, TNI_T(exp)(TNI_LOAD(z + i, k) - top), TNI_W);
        TNI_T(wide_add)(&sum, TNI_LOAD(lane, k));
        if (dz) memcpy(dz + i, lane, sizeof *dz * (size_t)k);
    }
    total = TNI_T(wide_sum)(&sum);
    scale = TNI_SET((float)(share / total));
    for (i = 0; dz && i < C; i += TNI_W) {
        int k = TNI_T(lanes)(C - i);
        TNI_STORE(dz + i, TNI_LOAD(dz + i, k) * scale, k);
    }
    return (double)most + log(total);
}

TNI_FAST void TNI_T(cross_entropy_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const int32_t *label = (const int32_t *)c->in[1].data;
    const int64_t  C = c->in[0].shape[1];
    const double   share = 1 / (double)c->in[0].shape[0];
    float         *dz = c->n_out > 3 ? TNI_OUT(3) : NULL;
    int64_t        r;
    for (r = begin; r < end; r++) {
        const bool good = label[r] >= 0 && label[r] < C;
        TNI_OUT(1)[r] = (float)TNI_T(cross_entropy_row)(TNI_IN(0) + r * C, dz && good ? dz + r * C : NULL, C, share);
        if (dz && good) dz[r * C + label[r]] -= (float)share;
        else if (dz) memset(dz + r * C, 0, sizeof *dz * (size_t)C);
    }
}

TNI_FAST tn_status TNI_T(cross_entropy_run)(tni_cpu *cpu, const tn_call *c)
{
    const int32_t *label = (const int32_t *)c->in[1].data;
    int64_t        r, R = c->in[0].shape[0], C = c->in[0].shape[1];
    double         loss = 0;
    tni_pass       p;
    p.cpu = cpu;
    p.call = c;
    tni_pass_run(&p, R, C, INT64_MAX, TNI_T(cross_entropy_task));
    for (r = 0; r < R; r++)
        if (label[r] >= 0 && label[r] < C) loss += (double)TNI_OUT(1)[r] - (double)TNI_IN(0)[r * C + label[r]];
        else tni_fault(&c->out[2], 1, r, label[r], 0);
    *TNI_OUT(0) = (float)(loss / (double)R);
    return TN_OK;
}

/* ---- uniform, normal, dropout: Philox for TNI_W counters at once, see >>rng --------------------------------- */
#if TNI_LEVEL == 0 && TNI_PLAIN_BYTES == 0
TNI_INLINE void TNI_T(multiply)(uint32_t a, uint32_t m, uint32_t *high, uint32_t *low)
{
    uint64_t product = (uint64_t)a * m;
    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
}
#else
typedef uint64_t TNI_T(u64) __attribute__((vector_size(sizeof(TNI_V))));

/* the products of every second word, 64 bits each */
TNI_INLINE TNI_T(u64) TNI_T(products)(TNI_T(u64) a, TNI_U m)
{
#if TNI_LEVEL == 2
    return (TNI_T(u64))_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)m);
#elif TNI_LEVEL == 1
    return (TNI_T(u64))_mm256_mul_epu32((__m256i)a, (__m256i)m);
#elif TNI_LEVEL == 3
    return (TNI_T(u64))vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)m));
#elif TNI_X86
    return (TNI_T(u64))_mm_mul_epu32((__m128i)a, (__m128i)m);
#else
    return (a & 0xffffffffu) * ((TNI_T(u64))m & 0xffffffffu);
#endif
}

TNI_INLINE void TNI_T(multiply)(TNI_U a, uint32_t m, TNI_U *high, TNI_U *low)
{
    TNI_U      all = TNI_T(set_u)(m);
    TNI_T(u64) half = (TNI_T(u64))TNI_T(set_u)(0) + 0xffffffffu;
    TNI_T(u64) even = TNI_T(products)((TNI_T(u64))a, all), odd = TNI_T(products)((TNI_T(u64))a >> 32, all);
    *high = (TNI_U)((even >> 32) | (odd & ~half));
    *low = (TNI_U)((even & half) | (odd << 32));
}
#endif

/* Four uniform numbers for each of the TNI_W blocks from `block` on, a multiple of TNI_W. */
TNI_INLINE void TNI_T(units)(const tn_call *c, int32_t clock, uint64_t block, TNI_V u[4])
{
    TNI_U    lane, word[4], a_high, a_low, b_high, b_low;
    uint32_t key0 = (uint32_t)(uint64_t)c->i[0], key1 = (uint32_t)((uint64_t)c->i[0] >> 32);
    int      i;
    memcpy(&lane, tni_lane, sizeof lane);
    word[0] = lane + (uint32_t)block;
    word[1] = TNI_T(set_u)((uint32_t)(block >> 32));
    word[2] = TNI_T(set_u)((uint32_t)c->i[1]);
    word[3] = TNI_T(set_u)((uint32_t)clock);
    for (i = 0; i < 10; i++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        TNI_T(multiply)(word[0], 0xD2511F53u, &a_high, &a_low);
        TNI_T(multiply)(word[2], 0xCD9E8D57u, &b_high, &b_low);
        word[0] = b_high ^ word[1] ^ TNI_T(set_u)(key0);
        word[2] = a_high ^ word[3] ^ TNI_T(set_u)(key1);
        word[1] = b_low;
        word[3] = a_low;
    }
    for (i = 0; i < 4; i++)
        u[i] = (TNI_T(from_i)((TNI_I)(word[i] >> 9)) + TNI_SET(0.5f)) * TNI_SET(1.0f / 8388608.0f);
}

/* y[4 lane + i] = v[i][lane], the first n of them */
TNI_INLINE void TNI_T(interleave)(float *y, const TNI_V v[4], int64_t n)
{
    float rows[4 * TNI_W], mixed[4 * TNI_W];
    int   i;
    for (i = 0; i < 4; i++) TNI_STORE(rows + i * TNI_W, v[i], TNI_W);
    TNI_T(panel)(n < 4 * TNI_W ? mixed : y, 4, rows, TNI_W, 1, 4, TNI_W);
    if (n < 4 * TNI_W) memcpy(y, mixed, sizeof *y * (size_t)n);
}

/* Rounded after the product and after the sum, in double: the numbers are to be the same everywhere. */
TNI_INLINE TNI_V TNI_T(between)(double low, double high, TNI_V u)
{
    TNI_D a = TNI_T(low)(u) * TNI_T(set_d)(high - low), b = TNI_T(high)(u) * TNI_T(set_d)(high - low);
#if TNI_X86
    __asm__("" : "+x"(a), "+x"(b));     /* or the compiler may fuse them */
#elif TNI_NEON
    __asm__("" : "+w"(a), "+w"(b));
#endif
    return TNI_T(narrow)(a + TNI_T(set_d)(low), b + TNI_T(set_d)(low));
}

TNI_FAST void TNI_T(uniform_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int32_t clock = *(const int32_t *)c->in[0].data;
    int64_t e;
    TNI_V   u[4];
    int     i;
    for (e = begin; e < end; e += 4 * TNI_W) {
        TNI_T(units)(c, clock, (uint64_t)e / 4, u);
        for (i = 0; i < 4; i++) u[i] = TNI_T(between)(c->f[0], c->f[1], u[i]);
        TNI_T(interleave)(TNI_OUT(0) + e, u, tni_min(4 * TNI_W, end - e));
    }
}

/* mean + deviation sqrt(-2 log) direction, in double */
TNI_INLINE TNI_V TNI_T(gauss)(const tn_call *c, const TNI_T(wide) *ln, const TNI_T(direction) *d)
{
    const TNI_D mean = TNI_T(set_d)(c->f[0]), deviation = TNI_T(set_d)(c->f[1]), minus2 = TNI_T(set_d)(-2);
    TNI_D a = TNI_T(sqrt_d)(minus2 * ln->low) * deviation, b = TNI_T(sqrt_d)(minus2 * ln->high) * deviation;
    a = a * (TNI_T(low)(d->factor) * TNI_T(low)(d->first) + TNI_T(low)(d->tail));
    b = b * (TNI_T(high)(d->factor) * TNI_T(high)(d->first) + TNI_T(high)(d->tail));
    return TNI_T(narrow)(a + mean, b + mean);
}

/* Box & Muller */
TNI_FAST void TNI_T(normal_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int32_t clock = *(const int32_t *)c->in[0].data;
    int64_t e;
    TNI_V   u[4];
    int     i;
    for (e = begin; e < end; e += 4 * TNI_W) {
        TNI_T(units)(c, clock, (uint64_t)e / 4, u);
        for (i = 0; i < 4; i += 2) {
            TNI_T(direction) x, y;
            TNI_T(wide) ln = TNI_T(log)(u[i]);
            TNI_T(circle)(u[i + 1], &x, &y);
            u[i] = TNI_T(gauss)(c, &ln, &x);
            u[i + 1] = TNI_T(gauss)(c, &ln, &y);
        }
        TNI_T(interleave)(TNI_OUT(0) + e, u, tni_min(4 * TNI_W, end - e));
    }
}

/* u >= p for u = (w + 1/2) 2^-23 is w >= p 2^23 - 1/2, exact in double as in float */
TNI_FAST void TNI_T(dropout_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *x = TNI_IN(0);
    float       *y = TNI_OUT(0), chance[4 * TNI_W];
    int32_t      clock = *(const int32_t *)c->in[1].data;
    const TNI_V  p_first = TNI_SET(((float)ceil(c->f[0] * 8388608.0 - 0.5) + 0.5f) * (1.0f / 8388608.0f));
    const TNI_V  scale = TNI_SET((float)(1 / (1 - c->f[0])));
    int64_t      e, i;
    TNI_V        u[4];
    for (e = begin; e < end; e += 4 * TNI_W) {
        TNI_T(units)(c, clock, (uint64_t)e / 4, u);
        TNI_T(interleave)(chance, u, 4 * TNI_W);
        for (i = e; i < tni_min(end, e + 4 * TNI_W); i += TNI_W) {
            int   k = TNI_T(lanes)(end - i);
            TNI_V v = TNI_LOAD(x + i, k) * scale;
            v = TNI_PICK(TNI_LOAD(chance + (i - e), TNI_W) < p_first, TNI_SET(0.0f), v);
            if (c->accumulate) v = v + TNI_LOAD(y + i, k);
            TNI_STORE(y + i, v, k);
        }
    }
}

/* ---- the optimisers, see >>op-optim: one pass over all that a parameter has ----------------------------------- */
TNI_FAST void TNI_T(sumsq_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *g = TNI_IN(0);
    TNI_T(wide) squares = TNI_T(wide_zero)();
    int64_t      i;
    for (i = begin; i < end; i += TNI_W) {
        TNI_V v = TNI_LOAD(g + i, TNI_T(lanes)(end - i));
        TNI_T(wide_add_product)(&squares, v, v);
    }
    p->cpu->part[task] = TNI_T(wide_sum)(&squares);
}

TNI_FAST tn_status TNI_T(sumsq_run)(tni_cpu *cpu, const tn_call *c)
{
    float   *s = TNI_OUT(0);
    double   sum;
    tni_pass p;
    p.cpu = cpu;
    p.call = c;
    sum = tni_parts_sum(cpu, tni_pass_run(&p, c->in[0].shape[0], 1, TNI_CPU_PARTS, TNI_T(sumsq_task)));
    s[TNI_SIZE] = (float)hypot((double)s[TNI_SIZE], sqrt(sum));
    if (!(sum <= 1.7976931348623157e308)) tni_fault(&c->out[1], 2, c->i[0], 0, (int32_t)c->i[1]);
    return TN_OK;
}

TNI_FAST void TNI_T(adamw_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *s = TNI_IN(0);
    float       *w = TNI_OUT(0), *g = TNI_OUT(1), *m = TNI_OUT(2), *v = TNI_OUT(3);
    const double b1 = c->f[0], b2 = c->f[1], t = (double)s[TNI_STEP] - c->f[5], rate = (double)s[TNI_LR] * c->f[4];
    const TNI_V  keep1 = TNI_SET((float)b1), take1 = TNI_SET((float)(1 - b1));
    const TNI_V  keep2 = TNI_SET((float)b2), take2 = TNI_SET((float)(1 - b2));
    const TNI_V  unbias1 = TNI_SET((float)(1 / (1 - pow(b1, t))));
    const TNI_V  unbias2 = TNI_SET((float)(1 / (1 - pow(b2, t))));
    const TNI_V  eps = TNI_SET((float)c->f[2]), decay = TNI_SET((float)c->f[3]), down = TNI_SET((float)-rate);
    const TNI_V  factor = TNI_SET(s[TNI_FACTOR]), zero = TNI_SET(0.0f);
    int64_t      i;
    if (s[TNI_SKIP] != 0) { memset(g + begin, 0, sizeof *g * (size_t)(end - begin)); return; }
    for (i = begin; i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V wi = TNI_LOAD(w + i, k), d = TNI_LOAD(g + i, k) * factor, mi, vi;
        mi = TNI_FMA(take1, d, keep1 * TNI_LOAD(m + i, k));
        vi = TNI_FMA(take2 * d, d, keep2 * TNI_LOAD(v + i, k));
        TNI_STORE(m + i, mi, k);
        TNI_STORE(v + i, vi, k);
        mi = mi * unbias1 / (TNI_SQRT(vi * unbias2) + eps);
        TNI_STORE(w + i, TNI_FMA(down, TNI_FMA(decay, wi, mi), wi), k);
        TNI_STORE(g + i, zero, k);
    }
}

TNI_FAST void TNI_T(sgd_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *s = TNI_IN(0);
    float       *w = TNI_OUT(0), *g = TNI_OUT(1), *m = c->n_out > 2 ? TNI_OUT(2) : NULL;
    const bool   nesterov = c->f[1] != 0;
    const TNI_V  mu = TNI_SET((float)c->f[0]), decay = TNI_SET((float)c->f[3]);
    const TNI_V  down = TNI_SET((float)(-(double)s[TNI_LR] * c->f[4]));
    const TNI_V  factor = TNI_SET(s[TNI_FACTOR]), zero = TNI_SET(0.0f);
    int64_t      i;
    if (s[TNI_SKIP] != 0) { memset(g + begin, 0, sizeof *g * (size_t)(end - begin)); return; }
    for (i = begin; i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V wi = TNI_LOAD(w + i, k), d = TNI_LOAD(g + i, k) * factor, mi = d;
        if (m) {
            mi = TNI_FMA(mu, TNI_LOAD(m + i, k), d);
            TNI_STORE(m + i, mi, k);
        }
        if (nesterov) mi = TNI_FMA(mu, mi, d);
        TNI_STORE(w + i, TNI_FMA(down, TNI_FMA(decay, wi, mi), wi), k);
        TNI_STORE(g + i, zero, k);
    }
}

/* Passes whose items all stand alone: what one item is, and the task. */
TNI_FAST tn_status TNI_T(pass_run)(tni_cpu *cpu, const tn_call *c, int64_t items, int64_t width, tn_task_fn fn)
{
    tni_pass p;
    p.cpu = cpu;
    p.call = c;
    tni_pass_run(&p, items, width, INT64_MAX, fn);
    return TN_OK;
}
#endif /* float */

#if TNI_BITS == 64
/* ---- double: the inner loops of the host's algebra (>>decomp-impl) ------------------------------------------------- */
TNI_FAST void TNI_T(host_gemm)(const tni_host *h, int64_t m, int64_t n, int64_t k, double alpha, tni_mat a, tni_mat b,
                               double beta, tni_mat c)
{
    const bool  small = 2.0 * (double)m * (double)n * (double)k < (double)TNI_HOST_CUT;
    TNI_T(gemm) g;
    if (m == 0 || n == 0) return;
    memset(&g, 0, sizeof g);
    g.m = m;       g.n = n;       g.k = k;
    g.a = a.p;     g.a_row = a.row; g.a_col = a.col;
    g.b = b.p;     g.b_row = b.row; g.b_col = b.col;
    g.c = c.p;     g.c_row = c.row; g.c_col = c.col;
    g.alpha = alpha;
    g.beta = beta;
    TNI_T(gemm_turn)(&g, h->bytes);
    TNI_T(gemm_one)(&g, small ? &tni_alone : h->pool, h->blocks, h->bytes);
}

TNI_FAST double TNI_T(dot)(int64_t n, const double *x, const double *y)
{
    TNI_V   s0 = TNI_SET(0), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 4 * TNI_W <= n; i += 4 * TNI_W) {
        s0 = TNI_FMA(TNI_LOAD(x + i, TNI_W), TNI_LOAD(y + i, TNI_W), s0);
        s1 = TNI_FMA(TNI_LOAD(x + i + TNI_W, TNI_W), TNI_LOAD(y + i + TNI_W, TNI_W), s1);
        s2 = TNI_FMA(TNI_LOAD(x + i + 2 * TNI_W, TNI_W), TNI_LOAD(y + i + 2 * TNI_W, TNI_W), s2);
        s3 = TNI_FMA(TNI_LOAD(x + i + 3 * TNI_W, TNI_W), TNI_LOAD(y + i + 3 * TNI_W, TNI_W), s3);
    }
    for (; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        s0 = TNI_FMA(TNI_LOAD(x + i, k), TNI_LOAD(y + i, k), s0);
    }
    return TNI_T(lane_sum)((s0 + s1) + (s2 + s3));
}

TNI_FAST void TNI_T(axpy)(int64_t n, double alpha, const double *x, double *y)
{
    const TNI_V by = TNI_SET(alpha);
    int64_t     i;
    for (i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(y + i, TNI_FMA(by, TNI_LOAD(x + i, k), TNI_LOAD(y + i, k)), k);
    }
}

TNI_FAST void TNI_T(scale)(int64_t n, double alpha, double *x)
{
    const TNI_V by = TNI_SET(alpha);
    int64_t     i;
    for (i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(x + i, TNI_LOAD(x + i, k) * by, k);
    }
}

TNI_FAST void TNI_T(rotate)(int64_t n, double cosine, double sine, double *x, double *y)
{
    const TNI_V c = TNI_SET(cosine), s = TNI_SET(sine);
    int64_t     i;
    for (i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V u = TNI_LOAD(x + i, k), v = TNI_LOAD(y + i, k);
        TNI_STORE(x + i, c * u - s * v, k);
        TNI_STORE(y + i, s * u + c * v, k);
    }
}

/* Columns [j,j+k) of four rows of upper_times: each number of A serves its row and its column. */
#define TNI_FOUR(X) X(0) X(1) X(2) X(3)
TNI_INLINE void TNI_T(upper_columns)(const bool update, const int k, double *a0, int64_t stride, const TNI_V *vi,
                                     const TNI_V *wi, const TNI_V *xi, const double *v, const double *w, const double *x,
                                     double *y, TNI_V *sums)
{
    double *a1 = a0 + stride, *a2 = a1 + stride, *a3 = a2 + stride;
    TNI_V   b0 = TNI_LOAD(a0, k), b1 = TNI_LOAD(a1, k), b2 = TNI_LOAD(a2, k), b3 = TNI_LOAD(a3, k);
    TNI_V   xj = TNI_LOAD(x, k), yj = TNI_LOAD(y, k);
    if (update) {
        TNI_V vj = TNI_LOAD(v, k), wj = TNI_LOAD(w, k);
#define TNI_STEP(r) b##r = TNI_FMA(vi[r], wj, TNI_FMA(wi[r], vj, b##r)); TNI_STORE(a##r, b##r, k);
        TNI_FOUR(TNI_STEP)
#undef TNI_STEP
    }
#define TNI_STEP(r) sums[r] = TNI_FMA(b##r, xj, sums[r]);
    TNI_FOUR(TNI_STEP)
#undef TNI_STEP
    TNI_STORE(y, TNI_FMA(xi[0], b0, TNI_FMA(xi[1], b1, yj)) + TNI_FMA(xi[2], b2, xi[3] * b3), k);
}

/* Four rows at a time: the triangle on the diagonal by itself, the rest as vectors, which begin at multiples
   of TNI_W, for the memory's sake (and not where the address is even: sums would depend on it). */
TNI_INLINE void TNI_T(upper)(const bool update, int64_t from, int64_t n, double *a, int64_t stride, const double *v,
                             const double *w, const double *x, double *y)
{
    int64_t i, j, r, c, begin;
    memset(y + from, 0, (size_t)(n - from) * sizeof *y);
    for (i = from; i < n; i += 4) {
        const int64_t rows = tni_min(4, n - i);
        double       *row = a + i * stride;
        TNI_V         vi[4], wi[4], xi[4], sums[4];
        for (r = 0; r < rows; r++)
            for (c = r; c < rows; c++) {
                double *b = row + r * stride + i + c;
                if (update) *b -= v[i + r] * w[i + c] + w[i + r] * v[i + c];
                y[i + r] += *b * x[i + c];
                if (c > r) y[i + c] += *b * x[i + r];
            }
        if (rows < 4) break;
#define TNI_STEP(q) vi[q] = TNI_SET(update ? -v[i + q] : 0); wi[q] = TNI_SET(update ? -w[i + q] : 0); \
                    xi[q] = TNI_SET(x[i + q]); sums[q] = TNI_SET(0);
        TNI_FOUR(TNI_STEP)
#undef TNI_STEP
        j = i + 4;
        begin = tni_min(n, tni_ceil_div(j, TNI_W) * TNI_W);
        if (j < begin)
            TNI_T(upper_columns)(update, (int)(begin - j), row + j, stride, vi, wi, xi, v + j, w + j, x + j, y + j, sums);
        for (j = begin; j + TNI_W <= n; j += TNI_W)
            TNI_T(upper_columns)(update, TNI_W, row + j, stride, vi, wi, xi, v + j, w + j, x + j, y + j, sums);
        if (j < n) TNI_T(upper_columns)(update, (int)(n - j), row + j, stride, vi, wi, xi, v + j, w + j, x + j, y + j, sums);
#define TNI_STEP(q) y[i + q] += TNI_T(lane_sum)(sums[q]);
        TNI_FOUR(TNI_STEP)
#undef TNI_STEP
    }
}

TNI_FAST void TNI_T(upper_times)(int64_t from, int64_t n, double *a, int64_t stride, const double *v, const double *w,
                                 const double *x, double *y)
{
    if (v) TNI_T(upper)(true, from, n, a, stride, v, w, x, y);
    else TNI_T(upper)(false, from, n, a, stride, x, x, x, y);
}

/* Four vectors of each row at a time; of the two rows that a rotation turns the next one wants the upper, y. */
TNI_FAST void TNI_T(rotate_strip)(const double *list, const double *end, double *strip)
{
#define TNI_BEGIN(q) TNI_V y##q = TNI_LOAD(row + q * TNI_W, TNI_W);
#define TNI_STEP(q)  { \
        TNI_V x = TNI_LOAD(row + q * TNI_W, TNI_W); \
        TNI_STORE(row + TNI_STRIP + q * TNI_W, s * x + c * y##q, TNI_W); \
        y##q = c * x - s * y##q; }
#define TNI_END(q)   TNI_STORE(row + q * TNI_W, y##q, TNI_W);
    int at;
    for (at = 0; at < TNI_STRIP; at += 4 * TNI_W) {
        const double *p = list;
        while (p < end) {
            double *row = strip + (int64_t)p[0] * TNI_STRIP + at;
            int64_t count = (int64_t)p[1];
            TNI_FOUR(TNI_BEGIN)
            for (p += 2; count > 0; count--, p += 2) {
                const TNI_V c = TNI_SET(p[0]), s = TNI_SET(p[1]);
                row -= TNI_STRIP;
                TNI_FOUR(TNI_STEP)
            }
            TNI_FOUR(TNI_END)
        }
    }
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
}
#undef TNI_FOUR

/* Lanes past the last one divide zero by one. */
TNI_INLINE TNI_V TNI_T(gaps)(const double *d, TNI_V origin, TNI_V tau, int k)
{
    double rest[TNI_W];
    int    i;
    if (k == TNI_W) return (TNI_LOAD(d, TNI_W) - origin) - tau;
    TNI_STORE(rest, (TNI_LOAD(d, k) - origin) - tau, TNI_W);
    for (i = k; i < TNI_W; i++) rest[i] = 1;
    return TNI_LOAD(rest, TNI_W);
}

TNI_FAST tni_sums TNI_T(poles)(int64_t n, const double *d, const double *z, double origin, double tau)
{
    const TNI_V o = TNI_SET(origin), t = TNI_SET(tau), one = TNI_SET(1);
    TNI_V       value0 = TNI_SET(0), value1 = value0, slope0 = value0, slope1 = value0, bend0 = value0, bend1 = value0;
    int64_t     i = 0;
    tni_sums    sums;
    for (; i + 2 * TNI_W <= n; i += 2 * TNI_W) {
        TNI_V r0 = one / TNI_T(gaps)(d + i, o, t, TNI_W), z0 = TNI_LOAD(z + i, TNI_W), q0 = z0 * r0;
        TNI_V r1 = one / TNI_T(gaps)(d + i + TNI_W, o, t, TNI_W), z1 = TNI_LOAD(z + i + TNI_W, TNI_W), q1 = z1 * r1;
        value0 = TNI_FMA(z0, q0, value0);
        value1 = TNI_FMA(z1, q1, value1);
        slope0 = TNI_FMA(q0, q0, slope0);
        slope1 = TNI_FMA(q1, q1, slope1);
        bend0 = TNI_FMA(q0 * r0, q0, bend0);
        bend1 = TNI_FMA(q1 * r1, q1, bend1);
    }
    for (; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V r0 = one / TNI_T(gaps)(d + i, o, t, k), z0 = TNI_LOAD(z + i, k), q0 = z0 * r0;
        value0 = TNI_FMA(z0, q0, value0);
        slope0 = TNI_FMA(q0, q0, slope0);
        bend0 = TNI_FMA(q0 * r0, q0, bend0);
    }
    sums.value = TNI_T(lane_sum)(value0 + value1);
    sums.slope = TNI_T(lane_sum)(slope0 + slope1);
    sums.bend = TNI_T(lane_sum)(bend0 + bend1);
    return sums;
}

TNI_FAST void TNI_T(weights)(int64_t n, const double *d, double origin, double tau, double pole, double *w)
{
    const TNI_V o = TNI_SET(origin), t = TNI_SET(tau), p = TNI_SET(pole), zero = TNI_SET(0);
    int64_t     i;
    for (i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(w + i, TNI_LOAD(w + i, k) * (TNI_T(gaps)(d + i, o, t, k) / TNI_T(gaps)(d + i, p, zero, k)), k);
    }
}

TNI_FAST void TNI_T(pole_vector)(int64_t n, const double *d, const double *z, double origin, double tau, double *row)
{
    const TNI_V o = TNI_SET(origin), t = TNI_SET(tau);
    TNI_V       sum = TNI_SET(0);
    int64_t     i;
    for (i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V q = TNI_LOAD(z + i, k) / TNI_T(gaps)(d + i, o, t, k);
        sum = TNI_FMA(q, q, sum);
        TNI_STORE(row + i, q, k);
    }
    TNI_T(scale)(n, 1 / sqrt(TNI_T(lane_sum)(sum)), row);
}

static const tni_algebra TNI_T(algebra) = {
    TNI_T(host_gemm), TNI_T(dot), TNI_T(axpy), TNI_T(scale), TNI_T(rotate), TNI_T(upper_times), TNI_T(rotate_strip),
    TNI_T(poles), TNI_T(weights), TNI_T(pole_vector)
};
#endif /* double */

/* ---- attention, see >>op-attention ----------------------------------------------------------------------------------
   A block of queries, up to TNI_SIDE, meets TNI_ATTEND_KEYS keys at a time, and nothing larger than that tile is held.
   Scores lie with the queries side by side, s[key][query]: so a row's largest, its sum and its scale are vectors, keys are
   read where they lie as the left factor, and what follows has the tile for its left factor, in either direction,
   as if it had been packed. Of the tiles on the diagonal only the parts that somebody sees are multiplied.
   Forwards a task is a block of queries, which it alone writes. Backwards it is a head; of few heads it is a part of the
   keys, every so many tiles, and the parts of dq are added up in their order. Dao et al. 2022 */
#if TNI_MR == 14
#define TNI_SIDE 112                    /* rows and columns of tiles, both without a rest */
#else
#define TNI_SIDE 96
#endif
#define TNI_WIDE  ((TNI_MR + TNI_W - 1) / TNI_W * TNI_W)
#define TNI_WHOLE(n) (((n) + TNI_W - 1) / TNI_W * TNI_W)
#define TNI_ROW(x, b, t, n) ((TNI_REAL *)(x)->data + (b) * (x)->strides[0] + (t) * (x)->strides[1] + (n) * (x)->strides[2])

/* c[m,n] = a b, or += that; n is whole vectors. Panel p of b, two vectors wide, begins at b + p panel. */
TNI_FAST void TNI_T(attend_product)(bool add, int64_t m, int64_t n, int64_t depth, const TNI_REAL *a, int64_t a_row,
                                    int64_t a_col, const TNI_REAL *b, int64_t b_row, TNI_REAL *c, int64_t c_row)
{
    const int64_t high = a_row == 1 ? TNI_MR : tni_ceil_div(m, tni_max(tni_ceil_div(m, TNI_MR), 1));
    TNI_T(tile)   t;
    int64_t       i, j;
    t.depth = depth;
    t.a_row = a_row;
    t.a_col = a_col;
    t.b_row = b_row;
    t.c_row = c_row;
    t.from_row = add ? c_row : 0;
    t.last = TNI_W;
    for (j = 0; j < n; j += TNI_NR)
        for (i = 0; i < m; i += high) {
            t.a = a + i * a_row;
            t.b = b + j;
            t.c = c + i * c_row + j;
            t.from = add ? t.c : TNI_T(zeros);
            TNI_T(gemm_rows)((int)tni_min(high, m - i), n - j > TNI_W, &t);
        }
}

/* y[n] = factor x[n], then zeros up to `width` */
TNI_INLINE void TNI_T(attend_copy)(TNI_REAL *y, const TNI_REAL *x, int64_t n, int64_t width, TNI_REAL factor)
{
    const TNI_V by = TNI_SET(factor);
    int64_t     i;
    for (i = 0; i < n; i += TNI_W)
        TNI_STORE(y + i, TNI_LOAD(x + i, TNI_T(lanes)(n - i)) * by, TNI_T(lanes)(width - i));
    for (; i < width; i += TNI_W) TNI_STORE(y + i, TNI_SET(0), TNI_T(lanes)(width - i));
}

/* y[n] += factor x[n] */
TNI_INLINE void TNI_T(attend_add)(TNI_REAL *y, const TNI_REAL *x, int64_t n, TNI_REAL factor)
{
    const TNI_V by = TNI_SET(factor);
    int64_t     i;
    for (i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(y + i, TNI_FMA(by, TNI_LOAD(x + i, k), TNI_LOAD(y + i, k)), k);
    }
}

#if TNI_BITS == 32
TNI_INLINE TNI_V TNI_T(attend_exp)(TNI_V x) { return TNI_T(exp)(x); }
#else
TNI_INLINE TNI_V TNI_T(attend_exp)(TNI_V x)
{
    double lane[TNI_W];
    int    i;
    TNI_STORE(lane, x, TNI_W);
    for (i = 0; i < TNI_W; i++) lane[i] = exp(lane[i]);
    return TNI_LOAD(lane, TNI_W);
}
#endif
#if TNI_BITS == 64 && (TNI_LEVEL == 0 || TNI_LEVEL == 3)
TNI_INLINE TNI_V TNI_T(attend_max)(TNI_V a, TNI_V b)
{
    double x[TNI_W], y[TNI_W];
    int    i;
    TNI_STORE(x, a, TNI_W);
    TNI_STORE(y, b, TNI_W);
    for (i = 0; i < TNI_W; i++) x[i] = x[i] > y[i] ? x[i] : y[i];
    return TNI_LOAD(x, TNI_W);
}
#else
TNI_INLINE TNI_V TNI_T(attend_max)(TNI_V a, TNI_V b) { return TNI_MAX(a, b); }
#endif

/* Rows in memory: how they lie, and, where they do so badly, room for a copy of TNI_ATTEND_KEYS of them. */
typedef struct TNI_T(lines) { TNI_REAL *copy, *at; int64_t row, width; } TNI_T(lines);

/* A block of queries at work. */
typedef struct TNI_T(attend) {
    const tni_attention *t;
    int64_t     b, h, i0, n, lanes;                     /* queries [i0,i0+n), in whole vectors */
    int64_t     low[TNI_SIDE], high[TNI_SIDE];          /* keys that each one sees */
    int64_t     j0, j1;                                 /* keys in work */
    int64_t     first, width, padded;                   /* columns of v, those with a one behind them, in whole vectors */
    int64_t     padded_d;
    bool        one;
    TNI_REAL   *q[2], *q_rows[2];                       /* [d,TNI_SIDE], scaled; [n,padded_d] */
    TNI_REAL   *u, *u_rows;                             /* the same of u, see >>op-attention */
    TNI_REAL   *s[2], *p;                               /* [TNI_ATTEND_KEYS,TNI_SIDE] */
    TNI_REAL   *top, *sum, *factor;                     /* [TNI_SIDE]; backwards w and l */
    TNI_REAL   *out;                                    /* [TNI_SIDE,padded]; backwards dq, sets of [TNI_SIDE,padded_d] */
    TNI_REAL   *tile;                                   /* [TNI_MR, the wider of both] */
    TNI_T(lines) k[2], v;
} TNI_T(attend);

TNI_INLINE TNI_REAL *TNI_T(attend_take)(TNI_REAL **room, int64_t numbers)
{
    TNI_REAL *p = *room;
    *room += (numbers + 15) / 16 * 16;
    return p;
}

/* Copies do not lie 1 KiB apart. */
TNI_INLINE int64_t TNI_T(attend_apart)(int64_t width)
{
    return width * (int64_t)sizeof(TNI_REAL) % 1024 == 0 ? width + 16 : width;
}

/* What attend_open takes, at most */
TNI_FAST double TNI_T(attend_numbers)(const tni_attention *t, bool backward)
{
    const double d = (double)(TNI_WHOLE(t->d) + 32), v = (double)(TNI_WHOLE(t->columns + 1) + 32), sets = (double)t->sets;
    const double keys = (double)TNI_ATTEND_KEYS;
    double       n = TNI_SIDE * (sets * d + v) + keys * ((sets + 1) * TNI_SIDE + sets * d + v) + 4 * TNI_SIDE + 256;
    if (backward) n += TNI_SIDE * (2 * sets * d + 2 * v) + (TNI_MR + 1) * (d + v);
    return n;
}

TNI_FAST TNI_REAL *TNI_T(attend_open)(TNI_T(attend) *w, const tni_attention *t, int64_t head, int worker, int64_t first,
                                      int64_t end, bool one, bool backward)
{
    TNI_REAL *room = (TNI_REAL *)(void *)(t->room + (size_t)worker * t->each);
    int64_t   set;
    memset(w, 0, sizeof *w);
    w->t = t;
    w->b = head / t->heads;
    w->h = head % t->heads;
    w->first = first;
    w->width = end - first + one;
    w->one = one;
    w->padded = TNI_WHOLE(w->width);
    w->padded_d = TNI_WHOLE(t->d);
    for (set = 0; set < t->sets; set++) {
        w->q[set] = TNI_T(attend_take)(&room, t->d * TNI_SIDE);
        w->s[set] = TNI_T(attend_take)(&room, TNI_ATTEND_KEYS * TNI_SIDE);
        w->k[set].width = TNI_T(attend_apart)(w->padded_d);
        w->k[set].copy = TNI_T(attend_take)(&room, TNI_ATTEND_KEYS * w->k[set].width);
        if (backward) w->q_rows[set] = TNI_T(attend_take)(&room, TNI_SIDE * w->padded_d);
    }
    w->v.width = TNI_T(attend_apart)(w->padded);
    w->v.copy = TNI_T(attend_take)(&room, TNI_ATTEND_KEYS * w->v.width);
    w->top = TNI_T(attend_take)(&room, TNI_SIDE);
    w->sum = TNI_T(attend_take)(&room, TNI_SIDE);
    w->factor = TNI_T(attend_take)(&room, TNI_SIDE);
    w->out = TNI_T(attend_take)(&room, TNI_SIDE * (backward ? t->sets * w->padded_d : w->padded));
    if (!backward) return room;
    w->u = TNI_T(attend_take)(&room, w->padded * TNI_SIDE);
    w->u_rows = TNI_T(attend_take)(&room, TNI_SIDE * w->padded);
    w->p = TNI_T(attend_take)(&room, TNI_ATTEND_KEYS * TNI_SIDE);
    w->tile = TNI_T(attend_take)(&room, TNI_MR * tni_max(w->padded, w->padded_d));
    return room;
}

/* Rows x[n,d] -> [d,TNI_SIDE], times `scale`, zeros behind the last one up to a whole vector */
TNI_FAST void TNI_T(attend_turn)(TNI_REAL *to, const TNI_REAL *x, int64_t row, int64_t n, int64_t d, TNI_REAL scale)
{
    const TNI_V   by = TNI_SET(scale);
    const int64_t lanes = TNI_WHOLE(n);
    int64_t       i = 0, k, lane;
#if TNI_X86 || TNI_NEON
    const int64_t some = 128 / TNI_BITS;                        /* a line of the cache is filled before the next one */
    for (; i + 4 * some <= n; i += 4 * some)
        for (k = 0; k < d; k += some)
            for (lane = i; lane < i + 4 * some; lane += some)
                if (k + some <= d) TNI_T(transpose)(to + k * TNI_SIDE + lane, TNI_SIDE, x + lane * row + k, row);
                else {
                    int64_t q, r;
                    for (q = k; q < d; q++)
                        for (r = lane; r < lane + some; r++) to[q * TNI_SIDE + r] = x[r * row + q];
                }
#endif
    for (k = 0; k < d; k++, to += TNI_SIDE) {
        for (lane = i; lane < n; lane++) to[lane] = x[lane * row + k];
        for (; lane < lanes; lane++) to[lane] = 0;
        for (lane = 0; scale != 1 && lane < lanes; lane += TNI_W)
            TNI_STORE(to + lane, TNI_LOAD(to + lane, TNI_W) * by, TNI_W);
    }
}

/* Queries [i0,i0+n): who sees what; their rows, scaled and turned. */
TNI_FAST void TNI_T(attend_queries)(TNI_T(attend) *w, int64_t i0)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    const int64_t        before = t->local ? tni_attend_before(c, i0) : 0;
    int64_t              i, set;
    w->i0 = i0;
    w->n = tni_min(TNI_SIDE, t->queries - i0);
    w->lanes = TNI_WHOLE(w->n);
    for (i = 0; i < w->lanes; i++) {
        const tni_seen seen = tni_attend_seen(c, i0 + tni_min(i, w->n - 1));
        w->low[i] = tni_max(seen.low, before);
        w->high[i] = tni_max(seen.high, w->low[i]);
    }
    for (set = 0; set < t->sets; set++) {
        const TNI_REAL *q = TNI_ROW(&c->in[0], w->b, i0, w->h + set * t->heads);
        TNI_T(attend_turn)(w->q[set], q, c->in[0].strides[1], w->n, t->d, (TNI_REAL)c->f[0]);
        for (i = 0; w->q_rows[set] && i < w->n; i++)
            TNI_T(attend_copy)(w->q_rows[set] + i * w->padded_d, q + i * c->in[0].strides[1], t->d, w->padded_d,
                               (TNI_REAL)c->f[0]);
    }
}

/* Rows [j0,j1) of x, `n` numbers each; `whole`: vectors are read to their ends. one: with a one behind each. */
TNI_FAST void TNI_T(attend_lines)(TNI_T(lines) *l, TNI_REAL *x, int64_t stride, int64_t rows, int64_t n, bool whole,
                                  bool one)
{
    int64_t i;
    l->at = x;
    l->row = stride;
    if (!one && (!whole || n % TNI_W == 0) && stride * (int64_t)sizeof *x % 4096 != 0) return;
    l->at = l->copy;
    l->row = l->width;
    for (i = 0; i < rows; i++) {
        TNI_T(attend_copy)(l->copy + i * l->width, x + i * stride, n, TNI_WHOLE(n + one), 1);
        if (one) l->copy[i * l->width + n] = 1;
    }
}

/* Keys [j0,j1) go to work; `whole` as above. */
TNI_FAST void TNI_T(attend_keys)(TNI_T(attend) *w, int64_t j0, int64_t j1, bool whole_k, bool whole_v)
{
    const tni_attention *t = w->t;
    const tn_view       *k = &t->call->in[1], *v = &t->call->in[2];
    int64_t              set;
    w->j0 = j0;
    w->j1 = j1;
    for (set = 0; set < t->sets; set++)
        TNI_T(attend_lines)(&w->k[set], TNI_ROW(k, w->b, j0, w->h + set * t->heads), k->strides[1], j1 - j0, t->d, whole_k,
                            false);
    TNI_T(attend_lines)(&w->v, TNI_ROW(v, w->b, j0, w->h) + w->first, v->strides[1], j1 - j0, w->width - w->one, whole_v,
                        w->one);
}

/* s[key][query] = x[key] . y[query] where a panel of queries sees somebody; y [depth,TNI_SIDE] */
TNI_FAST void TNI_T(attend_scores)(const TNI_T(attend) *w, const TNI_T(lines) *x, int64_t depth, const TNI_REAL *y,
                                   TNI_REAL *s)
{
    int64_t a;
    for (a = 0; a < w->lanes; a += TNI_NR) {
        const int64_t end = tni_min(a + TNI_NR, w->lanes);
        const int64_t from = tni_max(w->low[a], w->j0), to = tni_min(w->high[end - 1], w->j1);
        if (from < to)
            TNI_T(attend_product)(false, to - from, end - a, depth, x->at + (from - w->j0) * x->row, x->row, 1,
                                  y + a, TNI_SIDE, s + (from - w->j0) * TNI_SIDE + a, TNI_SIDE);
    }
}

/* Of the vector at query a: the rows of the tile that somebody sees, [from,to), of them those that all see, [all,end). */
typedef struct TNI_T(span) { int64_t from, to, all, end; } TNI_T(span);

TNI_INLINE TNI_T(span) TNI_T(attend_span)(const TNI_T(attend) *w, int64_t a)
{
    const int64_t  last = a + TNI_W - 1;
    TNI_T(span)    r;
    r.from = tni_max(w->low[a], w->j0) - w->j0;
    r.to = tni_max(tni_min(w->high[last], w->j1) - w->j0, r.from);
    r.all = tni_min(tni_max(w->low[last] - w->j0, r.from), r.to);
    r.end = tni_max(tni_min(w->high[a] - w->j0, r.to), r.all);
    return r;
}

/* Scores of unseen keys = value, in the rows that are in work */
TNI_FAST void TNI_T(attend_mask)(const TNI_T(attend) *w, const TNI_T(span) *r, int64_t a, TNI_REAL *s, TNI_REAL value)
{
    int64_t j, i;
    for (j = r->from; j < r->to; j++) {
        if (j == r->all && r->end > j) j = r->end;
        if (j == r->to) break;
        for (i = a; i < a + TNI_W; i++)
            if (j + w->j0 < w->low[i] || j + w->j0 >= w->high[i]) s[j * TNI_SIDE + i] = value;
    }
}

/* The same of what is to be multiplied: zeros, also in the rows where nothing was worked out. */
TNI_FAST void TNI_T(attend_clear)(const TNI_T(attend) *w, const TNI_T(span) *r, int64_t a, TNI_REAL *s)
{
    const TNI_V zero = TNI_SET(0);
    int64_t     j;
    TNI_T(attend_mask)(w, r, a, s, 0);
    for (j = 0; j < r->from; j++) TNI_STORE(s + j * TNI_SIDE + a, zero, TNI_W);
    for (j = r->to; j < w->j1 - w->j0; j++) TNI_STORE(s + j * TNI_SIDE + a, zero, TNI_W);
}

#define TNI_NONE ((TNI_REAL)(TNI_BITS == 32 ? -3e38 : -1e308))      /* no score so far */

/* e^(s - top), the running largest score and sum of each query, and by what the sums so far shrink */
TNI_FAST void TNI_T(attend_softmax)(TNI_T(attend) *w)
{
    int64_t a, j;
    for (a = 0; a < w->lanes; a += TNI_W) {
        const TNI_T(span) r = TNI_T(attend_span)(w, a);
        TNI_REAL         *s = w->s[0] + a;
        TNI_V             old = TNI_LOAD(w->top + a, TNI_W), top = old, other = old, sum = TNI_SET(0), more = sum;
        TNI_T(attend_mask)(w, &r, a, w->s[0], TNI_NONE);
        for (j = r.from; j + 1 < r.to; j += 2) {
            top = TNI_T(attend_max)(top, TNI_LOAD(s + j * TNI_SIDE, TNI_W));
            other = TNI_T(attend_max)(other, TNI_LOAD(s + (j + 1) * TNI_SIDE, TNI_W));
        }
        if (j < r.to) top = TNI_T(attend_max)(top, TNI_LOAD(s + j * TNI_SIDE, TNI_W));
        top = TNI_T(attend_max)(top, other);
        for (j = r.from; j + 1 < r.to; j += 2) {
            TNI_V e0 = TNI_T(attend_exp)(TNI_LOAD(s + j * TNI_SIDE, TNI_W) - top);
            TNI_V e1 = TNI_T(attend_exp)(TNI_LOAD(s + (j + 1) * TNI_SIDE, TNI_W) - top);
            TNI_STORE(s + j * TNI_SIDE, e0, TNI_W);
            TNI_STORE(s + (j + 1) * TNI_SIDE, e1, TNI_W);
            sum = sum + e0;
            more = more + e1;
        }
        if (j < r.to) {
            TNI_V e0 = TNI_T(attend_exp)(TNI_LOAD(s + j * TNI_SIDE, TNI_W) - top);
            TNI_STORE(s + j * TNI_SIDE, e0, TNI_W);
            sum = sum + e0;
        }
        TNI_T(attend_clear)(w, &r, a, w->s[0]);
        old = TNI_T(attend_exp)(old - top);
        TNI_STORE(w->factor + a, old, TNI_W);
        TNI_STORE(w->top + a, top, TNI_W);
        TNI_STORE(w->sum + a, TNI_FMA(TNI_LOAD(w->sum + a, TNI_W), old, sum + more), TNI_W);
    }
}

/* The product of both scores, and its running sum */
TNI_FAST void TNI_T(attend_square)(TNI_T(attend) *w)
{
    const TNI_REAL *other = w->s[w->t->sets - 1];
    int64_t         a, j;
    for (a = 0; a < w->lanes; a += TNI_W) {
        const TNI_T(span) r = TNI_T(attend_span)(w, a);
        TNI_REAL         *s = w->s[0] + a;
        TNI_V             sum = TNI_LOAD(w->sum + a, TNI_W);
        for (j = r.from; j < r.to; j++)
            TNI_STORE(s + j * TNI_SIDE, TNI_LOAD(s + j * TNI_SIDE, TNI_W) * TNI_LOAD(other + a + j * TNI_SIDE, TNI_W),
                      TNI_W);
        TNI_T(attend_clear)(w, &r, a, w->s[0]);
        for (j = r.from; w->t->sums && j < r.to; j++) sum = sum + TNI_LOAD(s + j * TNI_SIDE, TNI_W);
        TNI_STORE(w->sum + a, sum, TNI_W);
    }
}

/* to[query] += sum over the keys in work of p[key][query] x[key]: the tiles of queries, each with the keys that it sees */
TNI_FAST void TNI_T(attend_to_queries)(const TNI_T(attend) *w, const TNI_REAL *p, const TNI_T(lines) *x, int64_t width,
                                       TNI_REAL *to)
{
    int64_t i;
    for (i = 0; i < w->n; i += TNI_MR) {
        const int64_t rows = tni_min(TNI_MR, w->n - i);
        const int64_t from = tni_max(w->low[i], w->j0) - w->j0, end = tni_min(w->high[i + rows - 1], w->j1) - w->j0;
        if (from < end)
            TNI_T(attend_product)(true, rows, width, end - from, p + from * TNI_SIDE + i, 1, TNI_SIDE, x->at + from * x->row,
                                  x->row, to + i * width, width);
    }
}

/* Rows j of y += sum over queries of p[key][query] x[query], x [n,padded] */
TNI_FAST void TNI_T(attend_to_keys)(const TNI_T(attend) *w, const TNI_REAL *p, const TNI_REAL *x, int64_t padded,
                                    TNI_REAL *y, int64_t stride, int64_t width)
{
    const bool direct = width == padded;
    int64_t    j, i = 0, end = 0, r;
    for (j = w->j0; j < w->j1; j += TNI_MR, y += TNI_MR * stride) {
        const int64_t rows = tni_min(TNI_MR, w->j1 - j);
        while (i < w->n && w->high[i] <= j) i++;
        while (end < w->n && w->low[end] < j + rows) end++;
        if (i >= end) continue;
        TNI_T(attend_product)(direct, rows, padded, end - i, p + (j - w->j0) * TNI_SIDE + i, TNI_SIDE, 1, x + i * padded,
                              padded, direct ? y : w->tile, direct ? stride : padded);
        for (r = 0; !direct && r < rows; r++) TNI_T(attend_add)(y + r * stride, w->tile + r * padded, width, 1);
    }
}

/* out[query] = sum_j P_ij v_j without the query's own factor. */
TNI_FAST void TNI_T(attend_block)(TNI_T(attend) *w)
{
    const tni_attention *t = w->t;
    const int64_t        end = w->high[w->n - 1];
    int64_t              j, i, set;
    for (i = 0; i < TNI_SIDE; i++) w->top[i] = TNI_NONE;
    memset(w->sum, 0, sizeof *w->sum * TNI_SIDE);
    memset(w->out, 0, sizeof *w->out * (size_t)(w->n * w->padded));
    for (j = w->low[0]; j < end; j += TNI_ATTEND_KEYS) {
        TNI_T(attend_keys)(w, j, tni_min(j + TNI_ATTEND_KEYS, end), false, true);
        for (set = 0; set < t->sets; set++) TNI_T(attend_scores)(w, &w->k[set], t->d, w->q[set], w->s[set]);
        if (t->softmax) TNI_T(attend_softmax)(w);
        else TNI_T(attend_square)(w);
        for (i = 0; t->softmax && j > w->low[0] && i < w->n; i++)
            if (w->factor[i] != 1)
                TNI_T(attend_copy)(w->out + i * w->padded, w->out + i * w->padded, w->padded, w->padded, w->factor[i]);
        TNI_T(attend_to_queries)(w, w->s[0], &w->v, w->padded, w->out);
    }
}

/* Its columns of o = c_i out, and the row's statistics. */
TNI_FAST void TNI_T(attend_finish)(const TNI_T(attend) *w)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    TNI_REAL            *stat = (TNI_REAL *)c->out[1].data;
    int64_t              i;
    for (i = 0; i < w->n; i++) {
        const TNI_REAL *out = w->out + i * w->padded;
        const int64_t   seen = tni_attend_seen(c, w->i0 + i).n, width = w->width - w->one;
        const bool      none = seen == 0 || (t->softmax && w->top[i] == TNI_NONE);
        TNI_REAL       *o = TNI_ROW(&c->out[0], w->b, w->i0 + i, w->h) + w->first;
        double          sum = w->one ? (double)out[width] : (double)w->sum[i];
        if (t->sums) sum += c->f[3];
        if (none) memset(o, 0, sizeof *o * (size_t)width);
        else TNI_T(attend_copy)(o, out, width, width, (TNI_REAL)(t->softmax ? tni_attend_row_scale(c, seen) / sum
                                                                : t->sums ? 1 / sum : tni_attend_row_scale(c, seen)));
        if (stat && w->first == 0)
            stat[(w->b * t->heads + w->h) * t->queries + w->i0 + i] =
                (TNI_REAL)(!t->softmax ? sum : none ? -HUGE_VAL : (double)w->top[i] + log(sum));
    }
}

/* Task: a block of queries of one head. Of few heads the long ones come first, else those whose keys are in the cache. */
TNI_FAST void TNI_T(attention_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const int64_t        block = t->all_heads < TNI_ATTEND_FEW ? t->blocks - 1 - task % t->blocks : task % t->blocks;
    TNI_T(attend)        w;
    TNI_T(attend_open)(&w, t, task / t->blocks, worker, 0, t->dv, false, false);
    TNI_T(attend_queries)(&w, block * TNI_SIDE);
    TNI_T(attend_block)(&w);
    TNI_T(attend_finish)(&w);
}

TNI_FAST tn_status TNI_T(attention_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_attention t = tni_attention_of(cpu, c, TNI_SIDE);
    if (!tni_attention_room(&t, TNI_T(attend_numbers)(&t, false), 0, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, t.all_heads * t.blocks, TNI_T(attention_task), &t);
    return TN_OK;
}

/* u and w of the block's queries, see >>op-attention: u in rows and turned. With `one`, w stands behind u. */
TNI_FAST void TNI_T(attend_upstream)(TNI_T(attend) *w)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    const int64_t        row = (w->b * t->heads + w->h) * t->queries + w->i0;
    const TNI_REAL      *stat = c->in[4].data ? (const TNI_REAL *)c->in[4].data + row : NULL;
    int64_t              i, e;
    for (i = 0; i < TNI_SIDE; i++) w->top[i] = w->sum[i] = 0;
    for (i = 0; i < w->n; i++) {
        const TNI_REAL *dout = TNI_ROW(&c->in[5], w->b, w->i0 + i, w->h);
        double          scale = t->sums ? 1 / (double)stat[i] : tni_attend_row_scale(c, tni_attend_seen(c, w->i0 + i).n);
        double          dot;
        TNI_V           products = TNI_SET(0);
        if (t->softmax || t->sums) {
            const TNI_REAL *o = TNI_ROW(&c->in[3], w->b, w->i0 + i, w->h);
            for (e = 0; e < t->dv; e += TNI_W) {
                const int k = TNI_T(lanes)(t->dv - e);
                products = TNI_FMA(TNI_LOAD(dout + e, k), TNI_LOAD(o + e, k), products);
            }
        }
        dot = (double)TNI_T(lane_sum)(products);
        TNI_T(attend_copy)(w->u_rows + i * w->padded, dout, t->dv, w->padded, (TNI_REAL)scale);
        w->sum[i] = (TNI_REAL)(-dot * (t->sums ? scale : 1));
        if (w->one) w->u_rows[i * w->padded + t->dv] = w->sum[i];
        if (t->softmax) w->top[i] = stat[i] == (TNI_REAL)-HUGE_VAL ? (TNI_REAL)HUGE_VAL : stat[i];
    }
    TNI_T(attend_turn)(w->u, w->u_rows, w->padded, w->n, w->width, 1);
}

/* From both scores and dP: P, and ds in the place of the scores; where there is one set, P in the place of dP. */
TNI_FAST void TNI_T(attend_slopes)(TNI_T(attend) *w)
{
    const tni_attention *t = w->t;
    int64_t              a, j, set;
    for (a = 0; a < w->lanes; a += TNI_W) {
        const TNI_T(span) r = TNI_T(attend_span)(w, a);
        const TNI_V       l = TNI_LOAD(w->top + a, TNI_W), wi = TNI_LOAD(w->sum + a, TNI_W);
        TNI_REAL         *s = w->s[0] + a, *s2 = w->s[t->sets - 1] + a, *p = w->p + a;
        for (j = r.from * TNI_SIDE; j < r.to * TNI_SIDE; j += TNI_SIDE) {
            const TNI_V x = TNI_LOAD(s + j, TNI_W), dp = TNI_LOAD(p + j, TNI_W) + wi;
            if (t->softmax) {
                const TNI_V e = TNI_T(attend_exp)(x - l);
                TNI_STORE(p + j, e, TNI_W);
                TNI_STORE(s + j, e * dp, TNI_W);
            } else if (t->squared) {
                TNI_STORE(p + j, x * x, TNI_W);
                TNI_STORE(s + j, (x + x) * dp, TNI_W);
            } else {
                const TNI_V y = TNI_LOAD(s2 + j, TNI_W);
                TNI_STORE(p + j, x * y, TNI_W);
                TNI_STORE(s + j, y * dp, TNI_W);
                TNI_STORE(s2 + j, x * dp, TNI_W);
            }
        }
        TNI_T(attend_clear)(w, &r, a, w->p);
        for (set = 0; set < t->sets; set++) TNI_T(attend_clear)(w, &r, a, w->s[set]);
    }
}

/* The keys [j0,j1) and the block: dv and dk get theirs, dq's share is added to w->out. */
TNI_FAST void TNI_T(attend_pairs)(TNI_T(attend) *w, int64_t j0, int64_t j1)
{
    const tni_attention *t = w->t;
    const tn_view       *dk = &t->call->out[1], *dv = &t->call->out[2];
    int64_t              set;
    TNI_T(attend_keys)(w, j0, j1, true, false);
    for (set = 0; set < t->sets; set++) TNI_T(attend_scores)(w, &w->k[set], t->d, w->q[set], w->s[set]);
    TNI_T(attend_scores)(w, &w->v, t->dv, w->u, w->p);
    TNI_T(attend_slopes)(w);
    if (dv->data)
        TNI_T(attend_to_keys)(w, w->p, w->u_rows, w->padded, TNI_ROW(dv, w->b, j0, w->h), dv->strides[1], t->dv);
    for (set = 0; set < t->sets; set++) {
        if (dk->data)
            TNI_T(attend_to_keys)(w, w->s[set], w->q_rows[set], w->padded_d, TNI_ROW(dk, w->b, j0, w->h + set * t->heads),
                                  dk->strides[1], t->d);
        if (t->call->out[0].data)
            TNI_T(attend_to_queries)(w, w->s[set], &w->k[set], w->padded_d, w->out + set * TNI_SIDE * w->padded_d);
    }
}

/* Row i of a part's own dq */
TNI_INLINE TNI_REAL *TNI_T(attend_part)(const tni_attention *t, int64_t part, int64_t head, int64_t set, int64_t i)
{
    return (TNI_REAL *)(void *)t->partial + (((part * t->all_heads + head) * t->sets + set) * t->queries + i) * t->d;
}

/* dq += what the block has gathered, or the part's own dq = that */
TNI_FAST void TNI_T(attend_give)(const TNI_T(attend) *w, int64_t part)
{
    const tni_attention *t = w->t;
    const tn_view       *dq = &t->call->out[0];
    int64_t              i, set;
    for (set = 0; dq->data && set < t->sets; set++)
        for (i = 0; i < w->n; i++) {
            const TNI_REAL *from = w->out + (set * TNI_SIDE + i) * w->padded_d;
            if (t->parts == 1)
                TNI_T(attend_add)(TNI_ROW(dq, w->b, w->i0 + i, w->h + set * t->heads), from, t->d, (TNI_REAL)t->call->f[0]);
            else
                memcpy(TNI_T(attend_part)(t, part, w->b * t->heads + w->h, set, w->i0 + i), from,
                       sizeof *from * (size_t)t->d);
        }
}

/* Task: one head with a part of its keys, or, where a block sees its own keys only, a block of one head. */
TNI_FAST void TNI_T(attention_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const int64_t        cuts = t->local ? t->blocks : t->parts, part = t->local ? 0 : task % cuts;
    int64_t              i = t->local ? task % cuts : 0, i_end = t->local ? i + 1 : t->blocks;
    TNI_T(attend)        w;
    TNI_T(attend_open)(&w, t, task / cuts, worker, 0, t->dv, false, true);
    for (; i < i_end; i++) {
        int64_t j, end;
        TNI_T(attend_queries)(&w, i * TNI_SIDE);
        TNI_T(attend_upstream)(&w);
        memset(w.out, 0, sizeof *w.out * (size_t)(t->sets * TNI_SIDE * w.padded_d));
        end = w.high[w.n - 1];
        for (j = t->local ? w.low[0] : w.low[0] / TNI_ATTEND_KEYS * TNI_ATTEND_KEYS; j < end; j += TNI_ATTEND_KEYS)
            if (t->local || j / TNI_ATTEND_KEYS % t->parts == part)
                TNI_T(attend_pairs)(&w, tni_max(j, w.low[0]), tni_min(j + TNI_ATTEND_KEYS, end));
        TNI_T(attend_give)(&w, part);
    }
}

/* Task: a row of a head's dq += the parts, in their order */
TNI_FAST void TNI_T(attention_parts_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const tn_view       *dq = &t->call->out[0];
    const int64_t        head = task / t->blocks, i0 = task % t->blocks * TNI_SIDE;
    int64_t              i, set, part;
    (void)worker;
    for (set = 0; set < t->sets; set++)
        for (i = i0; i < tni_min(i0 + TNI_SIDE, t->queries); i++)
            for (part = 0; part < t->parts; part++)
                TNI_T(attend_add)(TNI_ROW(dq, head / t->heads, i, head % t->heads + set * t->heads),
                                  TNI_T(attend_part)(t, part, head, set, i), t->d, (TNI_REAL)t->call->f[0]);
}

TNI_FAST tn_status TNI_T(attention_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_attention t = tni_attention_of(cpu, c, TNI_SIDE);
    double        shared = 0;
    if (t.all_heads < TNI_ATTEND_FEW && t.keys >= 2 * TNI_ATTEND_PARTS * TNI_ATTEND_KEYS) {
        t.parts = TNI_ATTEND_PARTS;
        shared = (double)(t.parts * t.all_heads * t.sets) * (double)t.queries * (double)t.d;
    }
    if (!tni_attention_room(&t, TNI_T(attend_numbers)(&t, true), shared, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, t.all_heads * t.parts, TNI_T(attention_backward_task), &t);
    if (t.parts > 1 && c->out[0].data) tni_parallel_for(&cpu->pool, t.all_heads * t.blocks, TNI_T(attention_parts_task), &t);
    return TN_OK;
}

/* ---- attention in linear time, see >>op-attention_linear --------------------------------------------------------------
   Products with phi(x) = x1 (x) x2 are ordinary ones of depth or height F, of which a panel at a time is multiplied out:
   each of its numbers serves all columns of v. A state is [F,padded], row by row of a; squared, with weight 1 for all
   features where it is added to, and 2 off the diagonal where it is read. A task goes through one head from end to end:
   forwards with its part of v's columns, where heads are few; backwards once for dq and once for dk and dv. The pairs
   inside a block are those of >>op-attention with the block's own keys. */

/* S += phi(x)^T y for n rows of x1 and x2, n of y [n,padded]: for each a, x2^T (x1_a y). scaled has room for what is in
   brackets. */
TNI_FAST void TNI_T(state_add)(bool squared, int64_t d, int64_t n, const TNI_REAL *x1, const TNI_REAL *x2, int64_t row,
                               const TNI_REAL *y, int64_t y_row, int64_t padded, TNI_REAL *scaled, TNI_REAL *S)
{
    int64_t a, j;
    for (a = 0; a < d; a++) {
        const int64_t first = squared ? a : 0;
        for (j = 0; j < n; j++) TNI_T(attend_copy)(scaled + j * padded, y + j * y_row, padded, padded, x1[j * row + a]);
        TNI_T(attend_product)(true, d - first, padded, n, x2 + first, 1, row, scaled, padded, S, padded);
        S += (d - first) * padded;
    }
}

/* y [n,padded] += phi(x) S. turned: room for both x in panels; panel [a slab, TNI_WIDE] */
TNI_FAST void TNI_T(state_read)(bool squared, int64_t d, int64_t n, const TNI_REAL *x1, const TNI_REAL *x2, int64_t row,
                                const TNI_REAL *S, int64_t padded, TNI_REAL *turned, TNI_REAL *panel, TNI_REAL *y)
{
    const int64_t slab = tni_max(TNI_ATTEND_SLAB / d, 1), tiles = tni_ceil_div(n, TNI_MR), size = d * TNI_WIDE;
    TNI_REAL     *turned2 = squared ? turned : turned + tiles * size;
    int64_t       a0, a, b, i, q;
    for (i = 0; i < tiles; i++) {
        const int rows = (int)tni_min(TNI_MR, n - i * TNI_MR);
        TNI_T(panel)(turned + i * size, TNI_WIDE, x1 + i * TNI_MR * row, row, 1, rows, d);
        if (!squared) TNI_T(panel)(turned2 + i * size, TNI_WIDE, x2 + i * TNI_MR * row, row, 1, rows, d);
    }
    for (a0 = 0; a0 < d; a0 += slab) {
        const int64_t a_end = tni_min(a0 + slab, d);
        int64_t       depth = 0;
        for (i = 0; i < tiles; i++) {
            TNI_REAL *to = panel;
            for (a = a0; a < a_end; a++)
                for (q = 0; q < TNI_WIDE; q += TNI_W) {
                    const TNI_REAL *from = turned2 + i * size + q;
                    const TNI_V     x = TNI_LOAD(turned + i * size + a * TNI_WIDE + q, TNI_W);
                    const TNI_V     factor = x * TNI_SET(squared ? 2 : 1);
                    TNI_REAL       *at = to + q;
                    for (b = squared ? a : 0; b < d; b++, at += TNI_WIDE)
                        TNI_STORE(at, factor * TNI_LOAD(from + b * TNI_WIDE, TNI_W), TNI_W);
                    if (squared) TNI_STORE(to + q, x * x, TNI_W);
                    if (q + TNI_W == TNI_WIDE) to = at - q;
                }
            depth = (to - panel) / TNI_WIDE;
            TNI_T(attend_product)(true, tni_min(TNI_MR, n - i * TNI_MR), padded, depth, panel, 1, TNI_WIDE, S, padded,
                                  y + i * TNI_MR * padded, padded);
        }
        S += depth * padded;
    }
}

/* g1, g2 [d,TNI_SIDE] += the slopes of phi(x) . (S u) at x1, x2, of which, turned, and of u [width,TNI_SIDE] the first
   `lanes` count. squared: there is one x and one g. tile [d,TNI_NR] */
TNI_FAST void TNI_T(state_slope)(bool squared, int64_t d, int64_t lanes, const TNI_REAL *x1, const TNI_REAL *x2,
                                 const TNI_REAL *S, int64_t padded, const TNI_REAL *u, int64_t width, TNI_REAL *tile,
                                 TNI_REAL *g1, TNI_REAL *g2)
{
    const TNI_V twice = TNI_SET(squared ? 2 : 1);
    int64_t     a, b, p, q;
    for (a = 0; a < d; a++) {
        const int64_t first = squared ? a : 0, count = d - first;
        for (p = 0; p < lanes; p += TNI_NR) {
            const int64_t across = tni_min(TNI_NR, lanes - p);
            TNI_T(attend_product)(false, count, across, width, S, padded, 1, u + p, TNI_SIDE, tile, TNI_NR);
            for (q = 0; q < across; q += TNI_W) {
                const TNI_V     x = TNI_LOAD(x1 + a * TNI_SIDE + p + q, TNI_W), factor = x * twice;
                const TNI_REAL *from = tile + q, *other = x2 + first * TNI_SIDE + p + q;
                TNI_REAL       *to = g2 + first * TNI_SIDE + p + q;
                TNI_V           sum = TNI_SET(0), more = sum;
                b = 0;
                if (squared) {                              /* x_a^2 */
                    more = (x + x) * TNI_LOAD(from, TNI_W);
                    b = 1;
                }
                for (; b < count; b++) {
                    const TNI_V t = TNI_LOAD(from + b * TNI_NR, TNI_W);
                    sum = TNI_FMA(t, TNI_LOAD(other + b * TNI_SIDE, TNI_W), sum);
                    TNI_STORE(to + b * TNI_SIDE, TNI_FMA(t, factor, TNI_LOAD(to + b * TNI_SIDE, TNI_W)), TNI_W);
                }
                sum = TNI_FMA(sum, twice, more);
                to = g1 + a * TNI_SIDE + p + q;
                TNI_STORE(to, TNI_LOAD(to, TNI_W) + sum, TNI_W);
            }
        }
        S += count * padded;
    }
}

/* What a task of the linear form has beside its block. */
typedef struct TNI_T(linear) {
    TNI_T(attend) w;
    int64_t   features, added;
    TNI_REAL *S, *panel, *turned;
    TNI_REAL *rows[2];                                  /* [TNI_ATTEND_KEYS,padded_d] of q, scaled, or k */
    TNI_REAL *x[2], *g[2], *tile, *y;                   /* backwards: [d,TNI_SIDE]; [d,TNI_NR]; [TNI_SIDE, the wider] */
} TNI_T(linear);

TNI_FAST double TNI_T(linear_numbers)(const tni_attention *t, bool backward)
{
    const double d = (double)(TNI_WHOLE(t->d) + 32), v = (double)(TNI_WHOLE(t->columns + 1) + 32), sets = (double)t->sets;
    double       n = TNI_T(attend_numbers)(t, backward) + (double)tni_attend_features(t->call->i[0], t->d) * (v - 32) + 256;
    n += (double)tni_max(TNI_ATTEND_SLAB, t->d) * TNI_WIDE + sets * d * 2 * TNI_SIDE * TNI_WIDE / TNI_MR;
    n += (double)TNI_ATTEND_KEYS * (v + sets * d);
    if (backward) n += sets * 2 * d * TNI_SIDE + d * TNI_NR + TNI_SIDE * (d + v);
    return n;
}

TNI_FAST void TNI_T(linear_open)(TNI_T(linear) *l, const tni_attention *t, int64_t head, int worker, int64_t first,
                                 int64_t end, bool one, bool backward)
{
    TNI_REAL *room = TNI_T(attend_open)(&l->w, t, head, worker, first, end, one, backward);
    int64_t   set;
    l->features = tni_attend_features(t->call->i[0], t->d);
    l->added = 0;
    l->S = TNI_T(attend_take)(&room, l->features * l->w.padded);
    l->panel = TNI_T(attend_take)(&room, tni_max(tni_max(TNI_ATTEND_SLAB, t->d) * TNI_WIDE, TNI_ATTEND_KEYS * l->w.padded));
    l->turned = TNI_T(attend_take)(&room, t->sets * tni_ceil_div(TNI_SIDE, TNI_MR) * TNI_WIDE * t->d);
    for (set = 0; set < t->sets; set++) l->rows[set] = TNI_T(attend_take)(&room, TNI_ATTEND_KEYS * l->w.padded_d);
    memset(l->S, 0, sizeof *l->S * (size_t)(l->features * l->w.padded));
    if (!backward) return;
    for (set = 0; set < t->sets; set++) {
        l->x[set] = TNI_T(attend_take)(&room, t->d * TNI_SIDE);
        l->g[set] = TNI_T(attend_take)(&room, t->d * TNI_SIDE);
    }
    l->tile = TNI_T(attend_take)(&room, t->d * TNI_NR);
    l->y = TNI_T(attend_take)(&room, TNI_SIDE * tni_max(l->w.padded, l->w.padded_d));
}

/* Rows [from,from+n) of q or k, scaled */
TNI_FAST void TNI_T(linear_rows)(TNI_T(linear) *l, const tn_view *x, int64_t from, int64_t n, TNI_REAL scale)
{
    const tni_attention *t = l->w.t;
    int64_t              set, i;
    for (set = 0; set < t->sets; set++) {
        const TNI_REAL *row = TNI_ROW(x, l->w.b, from, l->w.h + set * t->heads);
        for (i = 0; i < n; i++)
            TNI_T(attend_copy)(l->rows[set] + i * l->w.padded_d, row + i * x->strides[1], t->d, l->w.padded_d, scale);
    }
}

TNI_FAST void TNI_T(linear_values)(TNI_T(linear) *l, int64_t from, int64_t n)
{
    const tn_view *v = &l->w.t->call->in[2];
    TNI_T(attend_lines)(&l->w.v, TNI_ROW(v, l->w.b, from, l->w.h) + l->w.first, v->strides[1], n, l->w.width - l->w.one,
                        true, l->w.one);
}

/* The keys before `end` go into the state. */
TNI_FAST void TNI_T(linear_take)(TNI_T(linear) *l, int64_t end)
{
    const tni_attention *t = l->w.t;
    while (l->added < end) {
        const int64_t n = tni_min(TNI_ATTEND_KEYS, end - l->added);
        TNI_T(linear_rows)(l, &t->call->in[1], l->added, n, 1);
        TNI_T(linear_values)(l, l->added, n);
        TNI_T(state_add)(t->squared, t->d, n, l->rows[0], l->rows[t->sets - 1], l->w.padded_d, l->w.v.at, l->w.v.row,
                         l->w.padded, l->panel, l->S);
        l->added += n;
    }
}

/* The columns of this task between the state operand and ours */
TNI_FAST void TNI_T(linear_state)(TNI_T(linear) *l, bool store)
{
    const tni_attention *t = l->w.t;
    const int64_t        all = t->dv + t->sums, plain = l->w.width - l->w.one;
    TNI_REAL            *state = (TNI_REAL *)t->call->out[2].data + (l->w.b * t->heads + l->w.h) * l->features * all;
    int64_t              f, a = 0, b = 0;
    for (f = 0; f < l->features; f++, state += all) {
        const double weight = t->squared && a < b ? (store ? 1.4142135623730951 : 0.7071067811865476) : 1;
        TNI_REAL    *S = l->S + f * l->w.padded;
        TNI_T(attend_copy)(store ? state + l->w.first : S, store ? S : state + l->w.first, plain, plain, (TNI_REAL)weight);
        if (l->w.one && !store) S[plain] = (TNI_REAL)weight * state[t->dv];
        if (l->w.one && store) state[t->dv] = (TNI_REAL)weight * S[plain];
        if (++b < t->d) continue;
        a++;
        b = t->squared ? a : 0;
    }
}

/* Task: one head, some columns of v */
TNI_FAST void TNI_T(attention_linear_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const tn_call       *c = t->call;
    const int64_t        first = task % t->parts * t->columns;
    int64_t              i;
    TNI_T(linear)        l;
    TNI_T(linear_open)(&l, t, task / t->parts, worker, first, tni_min(first + t->columns, t->dv), t->sums, false);
    if (c->out[2].data) TNI_T(linear_state)(&l, false);
    for (i = 0; i < t->blocks; i++) {
        TNI_T(attend_queries)(&l.w, i * TNI_SIDE);
        TNI_T(linear_take)(&l, tni_attend_before(c, l.w.i0));
        TNI_T(attend_block)(&l.w);
        if (l.added > 0 || c->out[2].data) {
            TNI_T(linear_rows)(&l, &c->in[0], l.w.i0, l.w.n, (TNI_REAL)c->f[0]);
            TNI_T(state_read)(t->squared, t->d, l.w.n, l.rows[0], l.rows[t->sets - 1], l.w.padded_d, l.S, l.w.padded,
                              l.turned, l.panel, l.w.out);
        }
        TNI_T(attend_finish)(&l.w);
    }
    if (!c->out[2].data) return;
    TNI_T(linear_take)(&l, t->keys);
    TNI_T(linear_state)(&l, true);
}

TNI_FAST tn_status TNI_T(attention_linear_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_attention t = tni_attention_of(cpu, c, TNI_SIDE);
    t.local = true;
    if (t.all_heads < TNI_ATTEND_FEW && !(t.sums && c->out[2].data)) {     /* a state's sums are written by one task */
        t.columns = tni_ceil_div(tni_ceil_div(t.dv, TNI_ATTEND_PARTS), TNI_NR) * TNI_NR;
        t.columns = tni_max(t.columns, 1);
        t.parts = tni_max(tni_ceil_div(t.dv, t.columns), 1);
    }
    if (!tni_attention_room(&t, TNI_T(linear_numbers)(&t, false), 0, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, t.all_heads * t.parts, TNI_T(attention_linear_task), &t);
    return TN_OK;
}

/* dx += what the state and u, turned, [width,lanes] give the n rows of x that are in work. */
TNI_FAST void TNI_T(linear_slope)(TNI_T(linear) *l, int64_t n, const TNI_REAL *u, const tn_view *dx, int64_t from,
                                  TNI_REAL scale)
{
    const tni_attention *t = l->w.t;
    const int64_t        padded_d = l->w.padded_d;
    int64_t              set, i;
    for (set = 0; set < t->sets; set++) {
        TNI_T(attend_turn)(l->x[set], l->rows[set], padded_d, n, t->d, 1);
        memset(l->g[set], 0, sizeof *l->g[set] * (size_t)(t->d * TNI_SIDE));
    }
    TNI_T(state_slope)(t->squared, t->d, TNI_WHOLE(n), l->x[0], l->x[t->sets - 1], l->S, l->w.padded, u, l->w.width, l->tile,
                       l->g[0], l->g[t->sets - 1]);
    for (set = 0; set < t->sets; set++) {
        TNI_T(panel)(l->y, (int)padded_d, l->g[set], TNI_SIDE, 1, (int)t->d, n);
        for (i = 0; i < n; i++)
            TNI_T(attend_add)(TNI_ROW(dx, l->w.b, from + i, l->w.h + set * t->heads), l->y + i * padded_d, t->d, scale);
    }
}

/* dq of the block: the keys before it are in S. */
TNI_FAST void TNI_T(linear_queries)(TNI_T(linear) *l, int64_t i0)
{
    const tn_call *c = l->w.t->call;
    TNI_T(attend_queries)(&l->w, i0);
    TNI_T(linear_take)(l, tni_attend_before(c, i0));
    if (l->added == 0) return;
    TNI_T(attend_upstream)(&l->w);
    TNI_T(linear_rows)(l, &c->in[0], i0, l->w.n, (TNI_REAL)c->f[0]);
    TNI_T(linear_slope)(l, l->w.n, l->w.u, &c->out[0], i0, (TNI_REAL)c->f[0]);
}

/* dk and dv of the keys [from,to): the queries behind them are in S. */
TNI_FAST void TNI_T(linear_keys)(TNI_T(linear) *l, int64_t from, int64_t to)
{
    const tni_attention *t = l->w.t;
    const tn_view       *dk = &t->call->out[1], *dv = &t->call->out[2];
    int64_t              n, i;
    for (; from < to; from += n) {
        n = tni_min(TNI_SIDE, to - from);
        TNI_T(linear_rows)(l, &t->call->in[1], from, n, 1);
        if (dv->data) {
            memset(l->y, 0, sizeof *l->y * (size_t)(n * l->w.padded));
            TNI_T(state_read)(t->squared, t->d, n, l->rows[0], l->rows[t->sets - 1], l->w.padded_d, l->S, l->w.padded,
                              l->turned, l->panel, l->y);
            for (i = 0; i < n; i++)
                TNI_T(attend_add)(TNI_ROW(dv, l->w.b, from + i, l->w.h), l->y + i * l->w.padded, t->dv, 1);
        }
        if (!dk->data) continue;
        TNI_T(linear_values)(l, from, n);
        TNI_T(attend_turn)(l->w.u, l->w.v.at, l->w.v.row, n, l->w.width, 1);
        TNI_T(linear_slope)(l, n, l->w.u, dk, from, 1);
    }
}

/* Task: dq of one head, or dk and dv of it: these go from the last block to the first. */
TNI_FAST void TNI_T(attention_linear_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const tn_call       *c = t->call;
    int64_t              i, to = t->keys;
    TNI_T(linear)        l;
    TNI_T(linear_open)(&l, t, task / 2, worker, 0, t->dv, t->sums, true);
    for (i = 0; task % 2 == 1 && c->out[0].data && i < t->blocks; i++) TNI_T(linear_queries)(&l, i * TNI_SIDE);
    if (task % 2 == 1 || !(c->out[1].data || c->out[2].data)) return;
    for (i = t->blocks - 1; i >= 0; i--) {
        const int64_t before = tni_attend_before(c, i * TNI_SIDE);
        if (i < t->blocks - 1) TNI_T(linear_keys)(&l, before, to);
        to = before;
        if (before == 0) break;
        TNI_T(attend_queries)(&l.w, i * TNI_SIDE);
        TNI_T(attend_upstream)(&l.w);
        TNI_T(linear_rows)(&l, &c->in[0], l.w.i0, l.w.n, (TNI_REAL)c->f[0]);
        TNI_T(state_add)(t->squared, t->d, l.w.n, l.rows[0], l.rows[t->sets - 1], l.w.padded_d, l.w.u_rows, l.w.padded,
                         l.w.padded, l.panel, l.S);
    }
    TNI_T(linear_keys)(&l, 0, to);
}

TNI_FAST tn_status TNI_T(attention_linear_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_attention t = tni_attention_of(cpu, c, TNI_SIDE);
    t.local = true;
    if (!tni_attention_room(&t, TNI_T(linear_numbers)(&t, true), 0, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, t.all_heads * 2, TNI_T(attention_linear_backward_task), &t);
    tni_parallel_for(&cpu->pool, t.all_heads * t.blocks, TNI_T(attention_backward_task), &t);
    return TN_OK;
}

/* ---- rope, see >>op-rope: a task's positions go through the whole batch, so that each angle is made once ------------- */
typedef struct TNI_T(rope) { tni_pass pass; const double *turns; char *room; size_t each; } TNI_T(rope);

/* cosine[h], sine[h] of position t. turns: of a circle, per position */
TNI_FAST void TNI_T(rope_angles)(const double *turns, double t, int64_t h, TNI_REAL *cosine, TNI_REAL *sine)
{
    int64_t k;
#if TNI_BITS == 32
    for (k = 0; k < h; k++) cosine[k] = (float)(t * turns[k] - floor(t * turns[k]));
    for (k = 0; k < h; k += TNI_W) {
        const int        n = TNI_T(lanes)(h - k);
        TNI_T(direction) x, y;
        TNI_T(circle)(TNI_LOAD(cosine + k, n), &x, &y);
        TNI_STORE(cosine + k, TNI_FMA(x.factor, x.first, x.tail), n);
        TNI_STORE(sine + k, TNI_FMA(y.factor, y.first, y.tail), n);
    }
#else
    for (k = 0; k < h; k++) {
        const double angle = 6.283185307179586 * (t * turns[k] - floor(t * turns[k]));
        cosine[k] = cos(angle);
        sine[k] = sin(angle);
    }
#endif
}

/* 1/|x|, see >>op-rope */
TNI_INLINE double TNI_T(rope_length)(const tn_call *c, const TNI_REAL *x, int64_t d)
{
    TNI_V   squares = TNI_SET(0);
    int64_t i;
    for (i = 0; i < d; i += TNI_W) {
        const TNI_V v = TNI_LOAD(x + i, TNI_T(lanes)(d - i));
        squares = TNI_FMA(v, v, squares);
    }
    return 1 / sqrt((double)TNI_T(lane_sum)(squares) / (double)d + c->f[1]);
}

/* y = factor R x, where `sign` is 1, or, -1, R^T x */
TNI_FAST void TNI_T(rope_turn)(const TNI_REAL *x, int64_t d, const TNI_REAL *cosine, const TNI_REAL *sine, TNI_REAL sign,
                                 TNI_REAL factor, TNI_REAL *y)
{
    const TNI_V   by = TNI_SET(factor), by_sine = TNI_SET(sign * factor);
    const int64_t h = d / 2;
    int64_t       k;
    for (k = 0; k < h; k += TNI_W) {
        const int   n = TNI_T(lanes)(h - k);
        const TNI_V c = TNI_LOAD(cosine + k, n) * by, s = TNI_LOAD(sine + k, n) * by_sine;
        const TNI_V u = TNI_LOAD(x + k, n), v = TNI_LOAD(x + h + k, n);
        TNI_STORE(y + k, u * c - v * s, n);
        TNI_STORE(y + h + k, TNI_FMA(v, c, u * s), n);
    }
    if (d % 2) y[d - 1] = factor * x[d - 1];
}

/* dx (+)= norm (g - x norm^2 mean(g x)) with g in `turned` */
TNI_FAST void TNI_T(rope_slope)(const tn_call *c, const TNI_REAL *x, const TNI_REAL *turned, int64_t d, TNI_REAL *dx)
{
    TNI_V   dot = TNI_SET(0), by = TNI_SET(1), mean = dot;
    int64_t i;
    if (c->f[1] >= 0) {
        const double norm = TNI_T(rope_length)(c, x, d);
        for (i = 0; i < d; i += TNI_W) {
            const int n = TNI_T(lanes)(d - i);
            dot = TNI_FMA(TNI_LOAD(x + i, n), TNI_LOAD(turned + i, n), dot);
        }
        by = TNI_SET((TNI_REAL)norm);
        mean = TNI_SET((TNI_REAL)(-norm * norm * norm * (double)TNI_T(lane_sum)(dot) / (double)d));
    }
    for (i = 0; i < d; i += TNI_W) {
        const int n = TNI_T(lanes)(d - i);
        TNI_V     v = TNI_FMA(TNI_LOAD(x + i, n), mean, TNI_LOAD(turned + i, n) * by);
        if (c->accumulate) v = v + TNI_LOAD(dx + i, n);
        TNI_STORE(dx + i, v, n);
    }
}

TNI_FAST void TNI_T(rope_task)(void *arg, int64_t task, int worker)
{
    const TNI_T(rope) *p = (const TNI_T(rope) *)arg;
    const tn_call     *c = p->pass.call;
    const tn_view     *x = &c->in[0], *y = &c->out[0];
    const bool         backward = c->kernel == TN_KERNEL_ROPE_BACKWARD;
    const int64_t      d = x->shape[3], h = d / 2;
    TNI_REAL          *cosine = (TNI_REAL *)(void *)(p->room + (size_t)worker * p->each), *sine = cosine + h;
    TNI_REAL          *turned = sine + h;
    int64_t            t, b, n, k;
    for (t = tni_pass_begin(&p->pass, task); t < tni_pass_end(&p->pass, task); t++) {
        if (!c->i[1]) TNI_T(rope_angles)(p->turns, (double)(c->i[0] + t), h, cosine, sine);
        for (k = 0; c->i[1] && k < h; k++) {
            cosine[k] = 1;
            sine[k] = 0;
        }
        for (b = 0; b < x->shape[0]; b++)
            for (n = 0; n < x->shape[2]; n++) {
                const TNI_REAL *from = TNI_ROW(x, b, t, n);
                if (backward) {
                    TNI_T(rope_turn)(TNI_ROW(&c->in[1], b, t, n), d, cosine, sine, -1, 1, turned);
                    TNI_T(rope_slope)(c, from, turned, d, TNI_ROW(y, b, t, n));
                } else
                    TNI_T(rope_turn)(from, d, cosine, sine, 1,
                                     c->f[1] < 0 ? 1 : (TNI_REAL)TNI_T(rope_length)(c, from, d), TNI_ROW(y, b, t, n));
            }
    }
}

TNI_FAST tn_status TNI_T(rope_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t d = c->in[0].shape[3], h = d / 2;
    size_t        bytes, each;
    double       *turns;
    TNI_T(rope)   p;
    int64_t       k;
    if (!tni_area_size(2, d, sizeof(TNI_REAL), &each) || !tni_area_size(cpu->pool.threads, (int64_t)(each += 64), 1, &bytes)
        || !tni_add_size(bytes, sizeof(double) * (size_t)(h + 1), &bytes)) return TN_ERR_MEMORY;
    p.each = each / 64 * 64;
    p.pass.cpu = cpu;
    p.pass.call = c;
    p.room = tni_cpu_room(cpu, bytes);
    if (!p.room) return TN_ERR_MEMORY;
    p.turns = turns = (double *)(void *)(p.room + p.each * (size_t)cpu->pool.threads);
    for (k = 0; !c->i[1] && k < h; k++) turns[k] = pow(c->f[0], -2 * (double)k / (double)d) / 6.283185307179586;
    tni_pass_run(&p.pass, c->in[0].shape[1], c->in[0].shape[0] * c->in[0].shape[2] * d, INT64_MAX, TNI_T(rope_task));
    return TN_OK;
}

/* ---- embed_backward, see >>op-embed: a task has some columns of all rows, so that rows are added in their order ------- */
TNI_FAST void TNI_T(embed_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_pass *p = (const tni_pass *)arg;
    const tn_call  *c = p->call;
    const int32_t  *ids = (const int32_t *)c->in[0].data;
    const TNI_REAL *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *to = (TNI_REAL *)c->out[0].data;
    const int64_t   d = c->in[1].shape[1], begin = task * p->share, n = tni_min(p->share, d - begin);
    int64_t         r;
    (void)worker;
    for (r = 0; r < c->in[1].shape[0]; r++)
        if (ids[r] >= 0 && ids[r] < c->out[0].shape[0])
            TNI_T(attend_add)(to + ids[r] * d + begin, dy + r * d + begin, n, 1);
}

TNI_FAST tn_status TNI_T(embed_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t d = c->in[1].shape[1], R = c->in[1].shape[0];
    tni_pass      p;
    p.cpu = cpu;
    p.call = c;
    p.share = 64;
    tni_parallel_for(R * d <= TNI_CPU_ALONE ? &tni_alone : &cpu->pool, tni_ceil_div(d, p.share), TNI_T(embed_backward_task),
                     &p);
    return TN_OK;
}

/* ---- the entry ---------------------------------------------------------------------------------------------------- */
TNI_FAST tn_status TNI_T(run)(void *state, const tn_call *c)
{
    tni_cpu *cpu = (tni_cpu *)state;
#if TNI_BITS == 32
    const int64_t n = c->out[0].shape[0], width = c->out[0].shape[1];
#endif
    switch (c->kernel) {
    case TN_KERNEL_GEMM:             return TNI_T(gemm_run)(cpu, c);
    case TN_KERNEL_CHAIN:            return TNI_T(chain_run)(cpu, c, TNI_T(chain_task));
    case TN_KERNEL_CHAIN_BACKWARD:   return TNI_T(chain_run)(cpu, c, TNI_T(chain_backward_task));
    case TN_KERNEL_ROPE:
    case TN_KERNEL_ROPE_BACKWARD:    return TNI_T(rope_run)(cpu, c);
    case TN_KERNEL_ATTENTION:        return TNI_T(attention_run)(cpu, c);
    case TN_KERNEL_ATTENTION_BACKWARD: return TNI_T(attention_backward_run)(cpu, c);
    case TN_KERNEL_ATTENTION_LINEAR: return TNI_T(attention_linear_run)(cpu, c);
    case TN_KERNEL_ATTENTION_LINEAR_BACKWARD: return TNI_T(attention_linear_backward_run)(cpu, c);
    case TN_KERNEL_EMBED_BACKWARD:   return TNI_T(embed_backward_run)(cpu, c);
#if TNI_BITS == 32
    case TN_KERNEL_ADD:
    case TN_KERNEL_MUL:              return TNI_T(binary_run)(cpu, c);
    case TN_KERNEL_SUM:              return TNI_T(sum_run)(cpu, c);
    case TN_KERNEL_RMSNORM_BACKWARD: return TNI_T(rmsnorm_backward_run)(cpu, c);
    case TN_KERNEL_LAYERNORM_BACKWARD: return TNI_T(layernorm_backward_run)(cpu, c);
    case TN_KERNEL_CROSS_ENTROPY:    return TNI_T(cross_entropy_run)(cpu, c);
    case TN_KERNEL_SUMSQ:            return TNI_T(sumsq_run)(cpu, c);
    case TN_KERNEL_ACT:              return TNI_T(pass_run)(cpu, c, n, 1, TNI_T(act_task));
    case TN_KERNEL_ACT_BACKWARD:     return TNI_T(pass_run)(cpu, c, n, 1, TNI_T(act_backward_task));
    case TN_KERNEL_UNIFORM:          return TNI_T(pass_run)(cpu, c, n, 1, TNI_T(uniform_task));
    case TN_KERNEL_NORMAL:           return TNI_T(pass_run)(cpu, c, n, 1, TNI_T(normal_task));
    case TN_KERNEL_DROPOUT:          return TNI_T(pass_run)(cpu, c, n, 1, TNI_T(dropout_task));
    case TN_KERNEL_ADAMW:            return TNI_T(pass_run)(cpu, c, n, 1, TNI_T(adamw_task));
    case TN_KERNEL_SGD:              return TNI_T(pass_run)(cpu, c, n, 1, TNI_T(sgd_task));
    case TN_KERNEL_RMSNORM:          return TNI_T(pass_run)(cpu, c, n, width, TNI_T(rmsnorm_task));
    case TN_KERNEL_LAYERNORM:        return TNI_T(pass_run)(cpu, c, n, width, TNI_T(layernorm_task));
    case TN_KERNEL_GLU:              return TNI_T(pass_run)(cpu, c, n, width, TNI_T(glu_task));
    case TN_KERNEL_GLU_BACKWARD:     return TNI_T(pass_run)(cpu, c, n, width, TNI_T(glu_backward_task));
    case TN_KERNEL_PROD:             return TNI_T(pass_run)(cpu, c, n, width, TNI_T(prod_task));
    case TN_KERNEL_PROD_BACKWARD:
        if (c->i[0] > TNI_PROD_MOST) return tni_reference_run(cpu, c);
        return TNI_T(pass_run)(cpu, c, n, width, TNI_T(prod_backward_task));
#endif
    default:                         return tni_reference_run(cpu, c);
    }
}

#undef TNI_ISA
#undef TNI_FAST
#undef TNI_INLINE
#undef TNI_V
#undef TNI_W
#undef TNI_MM
#undef TNI_SOME
#undef TNI_SET
#undef TNI_FMA
#undef TNI_MAX
#undef TNI_MIN
#undef TNI_SQRT
#undef TNI_LOAD
#undef TNI_STORE
#undef TNI_MR
#undef TNI_ROWS
#undef TNI_NR
#undef TNI_LAST
#undef TNI_LOAD_SOME
#undef TNI_STORE_SOME
#undef TNI_DOTS
#undef TNI_SIDE
#undef TNI_WIDE
#undef TNI_WHOLE
#undef TNI_ROW
#undef TNI_NONE
#undef TNI_U
#undef TNI_I
#undef TNI_D
#undef TNI_PICK
#undef TNI_ABS
#undef TNI_PASS_OF
#undef TNI_IN
#undef TNI_OUT
#endif /* TNI_LEVEL */

#if defined(TENSORNET_IMPLEMENTATION) && !defined(TNI_IMPLEMENTED) && !defined(TNI_REAL)
/* ---- gemm by bfloat16 products, see desc.gemm_precision ----------------------------------------------------------------
   x = x0 + x1 + x2, each part the bfloat16 nearest to what those before it left; three of them, 8 bits each, hold a
   float's 24. Products of parts are exact in F32, and those of the same or a lower order than the first part left out
   are summed:
       1 part    a0 b0
       2 parts   a0 b0 + a0 b1 + a1 b0
       3 parts   a0 b0 + a0 b1 + a1 b0 + a0 b2 + a1 b1 + a2 b0
   A strip is 16 rows of A or 16 columns of B. It is packed as one tile of 1 KiB for each 32 of the depth and each part:
   of A [row][depth], of B [depth / 2][column][2], the shapes that the unit's dot product wants. Two strips by two make
   32 x 32 sums.

   A strip with an infinity, a NaN or a number of 2^48 and more in it is wild, and its products are taken in F32. In all
   others no product of parts or sum of such can overflow, so that splitting never makes a NaN.
   Henry, Tang & Heinecke 2019; Intel's manual of instructions, TDPBF16PS and VDPBF16PS */
#if TNI_X86 && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define TNI_BF16 1
#include <cpuid.h>
#else
#define TNI_BF16 0
#endif

#if TNI_BF16
enum {
    TNI_BF16_STRIPS = 256,              /* in a block, at most */
    TNI_BF16_DEPTH  = 512,
    TNI_BF16_SIDE   = 4                 /* pairs of strips of a task's part of C, each way */
};
#define TNI_ISA512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define TNI_ISA_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))
#define TNI_ISA_TILE __attribute__((target("amx-tile,amx-bf16")))

typedef struct tni_bf16 {
    tni_f32_gemm_avx512 g;              /* its panels stay empty */
    const tni_cpu *cpu;
    char          *a, *b;               /* strips */
    int64_t        strip;               /* bytes of one */
    uint8_t        wild_a[TNI_BF16_STRIPS], wild_b[TNI_BF16_STRIPS];
} tni_bf16;

/* Nearest, half to even; not for NaN. */
TNI_ISA512 static __m512 tni_bf16_round(__m512 x)
{
    tni_f32_u_avx512 u = (tni_f32_u_avx512)x;
    u = u + 0x7fffu + (u >> 16 & 1u);
    return (__m512)(u & 0xffff0000u);
}

/* The first n of 16 numbers, then zeros. */
TNI_ISA512 static __m512 tni_bf16_load(const float *src, int64_t offset, int64_t step, int64_t n)
{
    float x[16] = {0};
    int   i;
    if (n <= 0) return _mm512_setzero_ps();
    if (n > 16) n = 16;
    if (step == 1) return _mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (16 - n)), src + offset);
    for (i = 0; i < n; i++) x[i] = src[offset + i * step];
    return _mm512_loadu_ps(x);
}

/* A tile as 16 x 16 words of 32 bits: squares of 1, 2, 4, 8 words change places. */
TNI_ISA512 static void tni_bf16_transpose(char *tile)
{
    const __m512i column = _mm512_loadu_si512(tni_lane);
    int side, i;
    for (side = 1; side < 16; side *= 2) {
        const __m512i   size = _mm512_set1_epi32(side), second = _mm512_set1_epi32(16);
        const __mmask16 upper = _mm512_test_epi32_mask(column, size);
        const __m512i   to_first = _mm512_mask_add_epi32(column, upper, _mm512_sub_epi32(column, size), second);
        const __m512i   to_second = _mm512_mask_add_epi32(_mm512_add_epi32(column, size), upper, column, second);
        for (i = 0; i < 16; i++) {
            char   *p = tile + i * 64, *q = p + side * 64;
            __m512i a, b;
            if (i & side) continue;
            a = _mm512_loadu_si512(p);
            b = _mm512_loadu_si512(q);
            _mm512_storeu_si512(p, _mm512_permutex2var_epi32(a, to_first, b));
            _mm512_storeu_si512(q, _mm512_permutex2var_epi32(a, to_second, b));
        }
    }
}

/* A strip: line l (a row of A, a column of B) at depth d is src[l line_step + d depth_step]. Is it wild? */
TNI_ISA512 static bool tni_bf16_pack(char *dst, int parts, const float *src, int64_t line_step, int64_t depth_step,
                                     int64_t lines, int64_t depth, bool of_a)
{
    const bool    along = line_step != 1;           /* what lies together runs along the depth, not across the lines */
    const __m512  most = _mm512_set1_ps(281474976710656.0f);
    tni_f32_u_avx512 odd;                           /* upper halves of floats: of x, then of y, or in turn */
    __m512i       order;
    __mmask16     wild = 0;
    int64_t       d;
    int           q, p;
    memcpy(&odd, tni_lane, sizeof odd);
    odd = odd * (along ? 4u : 2u) + 1u;
    order = (__m512i)(odd | (odd + (along ? 2u : 32u)) << 16);
    for (d = 0; d < depth; d += 32, dst += parts * 1024) {
        for (q = 0; q < 16; q++) {
            const int64_t at = along ? q * line_step + d * depth_step : (d + 2 * q) * depth_step;
            const int64_t n = along ? (q < lines ? depth - d : 0) : d + 2 * q < depth ? lines : 0;
            const int64_t m = along ? n - 16 : d + 2 * q + 1 < depth ? lines : 0;
            __m512 x = tni_bf16_load(src, at, along ? depth_step : 1, n);
            __m512 y = tni_bf16_load(src, at + (along ? 16 : 1) * depth_step, along ? depth_step : 1, m);
            wild = (__mmask16)(wild | _mm512_cmp_ps_mask(_mm512_abs_ps(x), most, _CMP_NLT_UQ)
                                    | _mm512_cmp_ps_mask(_mm512_abs_ps(y), most, _CMP_NLT_UQ));
            for (p = 0; p < parts; p++) {
                __m512 x0 = tni_bf16_round(x), y0 = tni_bf16_round(y);
                _mm512_storeu_si512(dst + p * 1024 + q * 64,
                                    _mm512_permutex2var_epi16(_mm512_castps_si512(x0), order, _mm512_castps_si512(y0)));
                x = _mm512_sub_ps(x, x0);
                y = _mm512_sub_ps(y, y0);
            }
        }
        for (p = 0; p < parts && along != of_a; p++) tni_bf16_transpose(dst + p * 1024);
    }
    return wild != 0;
}

/* Task: one strip, first of A, then of B. The last pair's second strip may be past the edge: zeros. */
static void tni_bf16_pack_task(void *arg, int64_t task, int worker)
{
    tni_bf16                  *w = (tni_bf16 *)arg;
    const tni_f32_gemm_avx512 *g = &w->g;
    const int64_t              in_a = 2 * tni_ceil_div(g->rows, 32), s = task < in_a ? task : task - in_a;
    (void)worker;
    if (task < in_a)
        w->wild_a[s] = tni_bf16_pack(w->a + s * w->strip, w->cpu->gemm_parts,
                                     g->a + (g->i0 + 16 * s) * g->a_row + g->k0 * g->a_col,
                                     g->a_row, g->a_col, tni_min(16, g->rows - 16 * s), g->depth, true);
    else
        w->wild_b[s] = tni_bf16_pack(w->b + s * w->strip, w->cpu->gemm_parts,
                                     g->b + (g->j0 + 16 * s) * g->b_col + g->k0 * g->b_row,
                                     g->b_col, g->b_row, tni_min(16, g->cols - 16 * s), g->depth, false);
}

/* sums[32,32] by AVX512_BF16, one part: eight rows at a time */
TNI_ISA_DOT static void tni_bf16_dots(int parts, int64_t blocks, const char *a, const char *b, float *sums)
{
    int64_t k;
    int     rows, pair;
    (void)parts;
#define TNI_ROWS(X)  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define TNI_BEGIN(i) __m512 left##i = _mm512_setzero_ps(), right##i = left##i;
#define TNI_STEP(i)  { int32_t word; __m512i x; \
        memcpy(&word, from + i * 64, 4); \
        x = _mm512_set1_epi32(word); \
        left##i = _mm512_dpbf16_ps(left##i, (__m512bh)x, (__m512bh)b0); \
        right##i = _mm512_dpbf16_ps(right##i, (__m512bh)x, (__m512bh)b1); }
#define TNI_END(i)   _mm512_storeu_ps(sums + i * 32, left##i); _mm512_storeu_ps(sums + i * 32 + 16, right##i);
    for (rows = 0; rows < 32; rows += 8, sums += 8 * 32) {
        const char *from_a = a + rows / 16 * blocks * 1024 + rows % 16 * 64, *from_b = b;
        TNI_ROWS(TNI_BEGIN)
        for (k = 0; k < blocks; k++, from_a += 1024)
            for (pair = 0; pair < 16; pair++, from_b += 64) {
                const char   *from = from_a + pair * 4;
                const __m512i b0 = _mm512_loadu_si512(from_b), b1 = _mm512_loadu_si512(from_b + blocks * 1024);
                TNI_ROWS(TNI_STEP)
            }
        TNI_ROWS(TNI_END)
    }
#undef TNI_ROWS
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
}

/* ---- the same by AMX. Tiles 0 to 3 hold sums, 4 and 5 strips of A, 6 and 7 of B. The numbers of tiles are part of the
   instructions, hence macros. tests/test_simd.c brings its own, which work without the unit too. */
#ifndef TNI_TILE_DOT
#define TNI_TILE_BEGIN(shape) _tile_loadconfig(shape)
#define TNI_TILE_END()        _tile_release()
#define TNI_TILE_ZERO(t)      _tile_zero(t)
#define TNI_TILE_LOAD(t, p)   _tile_loadd(t, p, 64)
#define TNI_TILE_STORE(t, p)  _tile_stored(t, p, 128)
#define TNI_TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#endif

/* Constant, since gcc tells the optimiser of its first bytes only. */
static const uint8_t tni_tile_shape[64] = {
    1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                         /* palette                     */
    64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,                 /* bytes of a row, eight tiles */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0                  /* rows                        */
};

TNI_ISA_TILE static void tni_bf16_tiles_begin(void) { TNI_TILE_BEGIN(tni_tile_shape); }
TNI_ISA_TILE static void tni_bf16_tiles_end(void)   { TNI_TILE_END(); }

TNI_ISA_TILE static void tni_bf16_tiles(int parts, int64_t blocks, const char *a, const char *b, float *sums)
{
    const char *a1 = a + blocks * parts * 1024, *b1 = b + blocks * parts * 1024;
    int64_t     k;
#define TNI_A(part) { TNI_TILE_LOAD(4, a + (part) * 1024); TNI_TILE_LOAD(5, a1 + (part) * 1024); }
#define TNI_B(part) { TNI_TILE_LOAD(6, b + (part) * 1024); TNI_TILE_LOAD(7, b1 + (part) * 1024); }
#define TNI_DOTS    { TNI_TILE_DOT(0, 4, 6); TNI_TILE_DOT(1, 4, 7); TNI_TILE_DOT(2, 5, 6); TNI_TILE_DOT(3, 5, 7); }
    TNI_TILE_ZERO(0);
    TNI_TILE_ZERO(1);
    TNI_TILE_ZERO(2);
    TNI_TILE_ZERO(3);
    for (k = 0; k < blocks; k++) {                      /* in an order that loads little */
        if (parts == 3) {
            TNI_A(2) TNI_B(0) TNI_DOTS
            TNI_A(1) TNI_DOTS
            TNI_B(1) TNI_DOTS
            TNI_A(0) TNI_DOTS
            TNI_B(2) TNI_DOTS
            TNI_B(0) TNI_DOTS
        } else if (parts == 2) {
            TNI_A(1) TNI_B(0) TNI_DOTS
            TNI_A(0) TNI_DOTS
            TNI_B(1) TNI_DOTS
        } else {
            TNI_A(0) TNI_B(0) TNI_DOTS
        }
        a += parts * 1024;
        a1 += parts * 1024;
        b += parts * 1024;
        b1 += parts * 1024;
    }
    TNI_TILE_STORE(0, sums);
    TNI_TILE_STORE(1, sums + 16);
    TNI_TILE_STORE(2, sums + 16 * 32);
    TNI_TILE_STORE(3, sums + 16 * 32 + 16);
#undef TNI_A
#undef TNI_B
#undef TNI_DOTS
}

/* sums[rows,cols] in F32, from the operands themselves */
TNI_ISA512 static void tni_bf16_wild(const tni_f32_gemm_avx512 *g, int64_t row, int64_t col, int64_t rows, int64_t cols,
                                     float *sums)
{
    const float *a = g->a + (g->i0 + row) * g->a_row + g->k0 * g->a_col;
    const float *b = g->b + (g->j0 + col) * g->b_col + g->k0 * g->b_row;
    int64_t      i, j, d;
    memset(sums, 0, sizeof *sums * 32 * 32);
    for (i = 0; i < rows; i++)
        for (d = 0; d < g->depth; d++)
            for (j = 0; j < cols; j++)
                sums[i * 32 + j] = fmaf(a[i * g->a_row + d * g->a_col], b[d * g->b_row + j * g->b_col], sums[i * 32 + j]);
}

/* Task: a part of the block of C. */
static void tni_bf16_part_task(void *arg, int64_t task, int worker)
{
    const tni_bf16            *w = (const tni_bf16 *)arg;
    const tni_f32_gemm_avx512 *g = &w->g;
    const int64_t parts_j = tni_ceil_div(g->cols, 32 * TNI_BF16_SIDE), blocks = tni_ceil_div(g->depth, 32);
    const int64_t row0 = task / parts_j * 32 * TNI_BF16_SIDE, col0 = task % parts_j * 32 * TNI_BF16_SIDE;
    const int64_t row_end = tni_min(row0 + 32 * TNI_BF16_SIDE, g->rows);
    const int64_t col_end = tni_min(col0 + 32 * TNI_BF16_SIDE, g->cols);
    const bool    tiles = w->cpu->gemm_products == tni_bf16_tiles;
    float         sums[32 * 32];
    int64_t       row, col;
    (void)worker;
    if (tiles) tni_bf16_tiles_begin();
    for (col = col0; col < col_end; col += 32)
        for (row = row0; row < row_end; row += 32) {
            const int64_t i = row / 16, j = col / 16, rows = tni_min(32, g->rows - row), cols = tni_min(32, g->cols - col);
            if (w->wild_a[i] | w->wild_a[i + 1] | w->wild_b[j] | w->wild_b[j + 1])
                tni_bf16_wild(g, row, col, rows, cols, sums);
            else w->cpu->gemm_products(w->cpu->gemm_parts, blocks, w->a + i * w->strip, w->b + j * w->strip, sums);
            tni_f32_gemm_store_avx512(g, sums, g->i0 + row, g->j0 + col, (int)rows, (int)cols);
        }
    if (tiles) tni_bf16_tiles_end();
}

static void tni_bf16_one(tni_bf16 *w)
{
    tni_f32_gemm_avx512 *g = &w->g;
    const int64_t slabs = tni_ceil_div(g->k, TNI_BF16_DEPTH), deep = tni_ceil_div(tni_ceil_div(g->k, slabs), 32) * 32;
    int64_t       most;
    w->a = w->cpu->blocks;
    w->b = w->cpu->blocks + TNI_GEMM_LARGE;
    most = tni_min(TNI_GEMM_LARGE / (deep * w->cpu->gemm_parts * 32), TNI_BF16_STRIPS) / 2 * 32;
    for (g->j0 = 0; g->j0 < g->n; g->j0 += most) {
        g->cols = tni_min(most, g->n - g->j0);
        for (g->k0 = 0; g->k0 < g->k; g->k0 += deep) {
            g->depth = tni_min(deep, g->k - g->k0);
            w->strip = tni_ceil_div(g->depth, 32) * w->cpu->gemm_parts * 1024;
            for (g->i0 = 0; g->i0 < g->m; g->i0 += most) {
                const int64_t a = tni_ceil_div(g->rows = tni_min(most, g->m - g->i0), 32), b = tni_ceil_div(g->cols, 32);
                tni_parallel_for(&w->cpu->pool, 2 * (a + b), tni_bf16_pack_task, w);
                tni_parallel_for(&w->cpu->pool, tni_ceil_div(a, TNI_BF16_SIDE) * tni_ceil_div(b, TNI_BF16_SIDE),
                                 tni_bf16_part_task, w);
            }
        }
    }
}

/* A rule of the shape alone. */
static bool tni_bf16_pays(int64_t m, int64_t n, int64_t k)
{
    return m >= 64 && n >= 64 && k >= 64 && (double)m * (double)n * (double)k >= 2097152.0;
}

/* Runs the product if it is large enough. */
static bool tni_bf16_run(tni_cpu *cpu, const tn_call *c)
{
    const int64_t m = c->out[0].shape[1];
    int64_t       batch = c->out[0].shape[0], rows = m, i;
    tni_bf16      w;
    if (c->in[1].strides[0] == 0 && c->in[0].strides[0] == m * c->in[0].strides[1]
        && c->out[0].strides[0] == m * c->out[0].strides[1]) {
        rows *= batch;                                  /* rows of one matrix, as in gemm_run */
        batch = tni_min(batch, 1);
    }
    if (!tni_bf16_pays(rows, c->out[0].shape[2], c->in[0].shape[2])) return false;
    w.cpu = cpu;
    for (i = 0; i < batch; i++) {
        w.g = tni_f32_gemm_matrix_avx512(c, i);
        w.g.m = rows;
        if (w.g.c_col != 1 && w.g.c_row == 1) tni_f32_gemm_swap_avx512(&w.g);
        tni_bf16_one(&w);
    }
    return true;
}

/* Is there a unit for tiles, and does the system let us use it? Linux wants to be asked, once for a process. */
static bool tni_bf16_has_tiles(void)
{
#if defined(__linux__) && !defined(__ILP32__)
    unsigned a, b, c, d;
    long     result;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false; /* AMX-BF16, AMX-TILE */
    __asm__ volatile("syscall" : "=a"(result) : "0"(158L), "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    return result == 0;                                 /* arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) */
#else
    return false;
#endif
}

static bool tni_bf16_has_dots(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
#endif

static void tni_bf16_choose(tni_cpu *cpu, const tn_desc *desc)
{
    cpu->gemm_parts = (int)desc->gemm_precision;
    if (cpu->gemm_parts == 0 || desc->dtype == TN_F64) return;
#if TNI_BF16
    if (tni_cpu_simd(desc->simd) == TN_SIMD_AVX512) {
        if (tni_bf16_has_tiles()) cpu->gemm_products = tni_bf16_tiles;
        else if (cpu->gemm_parts == 1 && tni_bf16_has_dots()) cpu->gemm_products = tni_bf16_dots;
    }
#endif
    if (!cpu->gemm_products)
        tni_say(desc, TN_LOG_INFO, "desc.gemm_precision: nothing here gains by it, products run in F32");
}

/* ---- the two host backends ------------------------------------------------------------------------------------------ */

/* Copies go by the size of an element, all else by the precision of the result (of the first one that is wanted). */
static tn_status tni_cpu_run(void *state, const tn_call *c)
{
    tni_cpu *cpu = (tni_cpu *)state;
    tn_dtype dtype;
    int      wanted = 0;
    while (wanted < c->n_out - 1 && !c->out[wanted].data) wanted++;
    dtype = c->out[wanted].dtype;
    if (c->kernel == TN_KERNEL_COPY) return tni_cpu_copy_run(cpu, c);
    if (c->kernel == TN_KERNEL_FILL) return tni_cpu_fill_run(cpu, c);
    if (c->kernel == TN_KERNEL_EMBED) return tni_cpu_embed_run(cpu, c);
#if TNI_BF16
    if (c->kernel == TN_KERNEL_GEMM && dtype == TN_F32 && cpu->gemm_products && tni_bf16_run(cpu, c)) return TN_OK;
#endif
    if (dtype == TN_F32 || dtype == TN_F64) return cpu->run[dtype == TN_F64](cpu, c);
    return tni_reference_run(cpu, c);
}

static void tni_cpu_choose(tni_cpu *cpu, tn_simd simd)
{
    cpu->run[0] = tni_f32_run_plain;
    cpu->run[1] = tni_f64_run_plain;
#if TNI_X86
    if (simd == TN_SIMD_AVX2) {
        cpu->run[0] = tni_f32_run_avx2;
        cpu->run[1] = tni_f64_run_avx2;
    } else if (simd == TN_SIMD_AVX512) {
        cpu->run[0] = tni_f32_run_avx512;
        cpu->run[1] = tni_f64_run_avx512;
    }
#elif TNI_NEON
    if (simd == TN_SIMD_NEON) {
        cpu->run[0] = tni_f32_run_neon;
        cpu->run[1] = tni_f64_run_neon;
    }
#endif
    (void)simd;
}

static tn_status tni_cpu_refuse(tni_cpu *cpu, void **state, char why[256])
{
    tni_cpu_close(cpu);
    *state = NULL;
    tni_print(why, 256, "no memory for the backend's state");
    return TN_ERR_MEMORY;
}

static tn_status tni_reference_open(const tn_desc *desc, void **state, char why[256])
{
    tni_cpu *cpu = tni_cpu_new(desc, 1);
    *state = cpu;
    return cpu ? TN_OK : tni_cpu_refuse(cpu, state, why);
}

static tn_status tni_cpu_open(const tn_desc *desc, void **state, char why[256])
{
    tni_cpu *cpu = tni_cpu_new(desc, desc->threads);
    size_t   small;
    *state = cpu;
    if (!cpu || !tni_mul_size((size_t)desc->threads, 2 * TNI_GEMM_SMALL, &small)) return tni_cpu_refuse(cpu, state, why);
    tni_cpu_choose(cpu, tni_cpu_simd(desc->simd));
    tni_bf16_choose(cpu, desc);
    cpu->block_bytes = small > 2 * TNI_GEMM_LARGE ? small : 2 * TNI_GEMM_LARGE;
    cpu->blocks = (char *)tni_cpu_alloc(cpu, cpu->block_bytes);
    return cpu->blocks ? TN_OK : tni_cpu_refuse(cpu, state, why);
}

const tn_backend *tn_cpu_backend(void)
{
#define TNI_X(ENUM, name) tni_cpu_run,
    static const tn_backend cpu = {
        TN_BACKEND_ABI, "cpu", true, tni_cpu_open, tni_cpu_close, tni_cpu_alloc, tni_cpu_release,
        tni_cpu_move, tni_cpu_move, NULL, { TN_KERNELS(TNI_X) }
    };
#undef TNI_X
    return &cpu;
}

const tn_backend *tn_reference_backend(void)
{
#define TNI_X(ENUM, name) tni_reference_run,
    static const tn_backend reference = {
        TN_BACKEND_ABI, "reference", true, tni_reference_open, tni_cpu_close, tni_cpu_alloc, tni_cpu_release,
        tni_cpu_move, tni_cpu_move, NULL, { TN_KERNELS(TNI_X) }
    };
#undef TNI_X
    return &reference;
}

/* ======================================================================
   >>dispatch from a kernel's number to somebody who runs it
   ====================================================================== */

static tn_status tni_reference_run(void *state, const tn_call *call);           /* >>reference */
static bool      tni_compose(tn_ctx *ctx, const tn_call *call, tn_status *s);   /* >>compose   */
static tn_status tni_ctx_faults(tn_ctx *ctx);
static bool      tni_tape_reads(const tn_ctx *ctx, const tn_tensor *t);          /* >>tape      */
static void      tni_tape_clear(tn_ctx *ctx);

const char *tn_kernel_name(tn_kernel k)
{
#define TNI_X(ENUM, name) #name,
    static const char *const name[] = { TN_KERNELS(TNI_X) "?" };
#undef TNI_X
    return name[(unsigned)k < TN_KERNEL_COUNT ? k : TN_KERNEL_COUNT];
}

uint64_t tn_ctx_kernel_calls(const tn_ctx *ctx, tn_kernel k)
{
    return ctx && (unsigned)k < TN_KERNEL_COUNT ? ctx->kernel_calls[k] : 0;
}

/* The bytes a view spans, from its lowest address: what has to travel when a kernel runs on the host. */
static void tni_view_span(const tn_view *v, char **low, size_t *bytes)
{
    int64_t first = 0, last = 0;
    int     i;
    *bytes = 0;
    *low = (char *)v->data;
    for (i = 0; i < v->rank; i++) {
        if (v->shape[i] == 0) return;
        if (v->strides[i] < 0) first += (v->shape[i] - 1) * v->strides[i];
        else last += (v->shape[i] - 1) * v->strides[i];
    }
    *low += first * (int64_t)tni_dtype_size(v->dtype);
    *bytes = (size_t)(last - first + 1) * tni_dtype_size(v->dtype);
}

/* A copy of one operand on the host, with the view moved onto it. */
static tn_status tni_host_operand(tn_ctx *ctx, tn_view *v, void **host, size_t *bytes)
{
    char *low;
    *host = NULL;
    *bytes = 0;
    if (!v->data) return TN_OK;
    tni_view_span(v, &low, bytes);
    *host = tni_alloc(ctx, *bytes, "kernel on the host");
    if (!*host) return TN_ERR_MEMORY;
    if (ctx->backend->download(ctx->state, *host, low, *bytes) != TN_OK) return TN_ERR_BACKEND;
    v->data = (char *)*host + ((char *)v->data - low);
    return TN_OK;
}

/* A device that lacks a kernel: operands come down, the reference runs, outputs go up. */
static tn_status tni_run_on_host(tn_ctx *ctx, const tn_call *call)
{
    tn_call   host = *call;
    void     *p[TN_CALL_IN + TN_CALL_OUT];
    size_t    bytes[TN_CALL_IN + TN_CALL_OUT];
    int       i, n = 0;
    tn_status s = TN_OK;
    if (!ctx->fallback_said[call->kernel])
        tni_log(ctx, TN_LOG_WARN, "%s: backend %s has no such kernel, it runs on the host", tn_kernel_name(call->kernel),
                ctx->backend->name);
    ctx->fallback_said[call->kernel] = true;
    for (i = 0; i < call->n_in && s == TN_OK; i++, n++) s = tni_host_operand(ctx, &host.in[i], &p[n], &bytes[n]);
    for (i = 0; i < call->n_out && s == TN_OK; i++, n++) s = tni_host_operand(ctx, &host.out[i], &p[n], &bytes[n]);
    if (s == TN_OK) s = tni_reference_run(NULL, &host);
    for (i = 0; i < call->n_out && s == TN_OK; i++) {
        char  *low;
        size_t size;
        if (!call->out[i].data) continue;
        tni_view_span(&call->out[i], &low, &size);
        s = ctx->backend->upload(ctx->state, low, p[call->n_in + i], size);
    }
    while (n-- > 0) tni_free(ctx, p[n], bytes[n]);
    return s;
}

/* The backend's kernel, else its composition from simpler ones, else the reference on the host. */
static tn_status tni_run(tn_ctx *ctx, const tn_call *call)
{
    tn_kernel_fn fn = ctx->backend->fn[call->kernel];
    tn_status    s;
    TN_ASSERT(call->n_in <= TN_CALL_IN && call->n_out <= TN_CALL_OUT);
    ctx->kernel_calls[call->kernel]++;
    if (fn) s = fn(ctx->state, call);
    else if (!tni_compose(ctx, call, &s)) s = tni_run_on_host(ctx, call);
    if (s == TN_OK) return s;
    return tni_fail(ctx, s, "%s: backend %s: %s", tn_kernel_name(call->kernel), ctx->backend->name, tn_status_name(s));
}

/* ======================================================================
   >>context
   ====================================================================== */

static tn_simd tni_simd_from_environment(void)
{
    static const char *const name[] = {"plain", "avx2", "avx512", "neon"};
    const char *wanted = getenv("TN_SIMD");
    int i;
    for (i = 0; wanted && i < 4; i++)
        if (strcmp(wanted, name[i]) == 0) return (tn_simd)(i + 1);
    return TN_SIMD_BEST;
}

const char *tn_ctx_simd_name(const tn_ctx *ctx)
{
    static const char *const name[] = {"best", "plain", "avx2", "avx512", "neon"};
    return ctx ? name[ctx->desc.simd] : "none";             /* by now a level that is here */
}

static tn_desc tni_desc_defaults(const tn_desc *given)
{
    tn_desc d;
    memset(&d, 0, sizeof d);
    if (given) d = *given;
    if (!d.backend) d.backend = tn_cpu_backend();
    if (d.dtype == TN_REAL) d.dtype = TN_F32;
    if (!d.allocator.alloc) { d.allocator.alloc = tni_malloc; d.allocator.release = tni_mfree; }
    if (d.threads <= 0) d.threads = tni_default_threads(&d);
    if (d.simd == TN_SIMD_BEST) d.simd = tni_simd_from_environment();
    d.simd = tni_cpu_simd(d.simd);
    if (d.arena_bytes == 0) d.arena_bytes = (size_t)4 << 20;
    return d;
}

static tn_status tni_desc_check(const tn_desc *d, char *why)
{
    if (d->dtype != TN_F32 && d->dtype != TN_F64) {
        tni_print(why, 256, "desc.dtype: a context computes in F32 or F64, not in %s", tni_dtype_name(d->dtype));
        return TN_ERR_DTYPE;
    }
    if ((unsigned)d->gemm_precision > TN_GEMM_BF16X6) {
        tni_print(why, 256, "desc.gemm_precision: %d is none, the last is %d", (int)d->gemm_precision, (int)TN_GEMM_BF16X6);
        return TN_ERR_ARG;
    }
    if (!d->allocator.release) {
        tni_print(why, 256, "desc.allocator: alloc without release");
        return TN_ERR_ARG;
    }
    return TN_OK;
}

/* Opens the wanted backend, or with the reason logged the cpu. */
static tn_status tni_open_backend(tn_ctx *ctx, char *why)
{
    const tn_backend *wanted = ctx->desc.backend;
    tn_status         s;
    if (wanted->abi != TN_BACKEND_ABI) {
        tni_print(why, 256, "backend %s: abi %d, this header has %d", wanted->name, wanted->abi, TN_BACKEND_ABI);
        s = TN_ERR_BACKEND;
    } else s = wanted->open(&ctx->desc, &ctx->state, why);
    if (s != TN_OK && !ctx->desc.backend_required && wanted != tn_cpu_backend()) {
        char first[256];
        memcpy(first, why, sizeof first);
        first[255] = 0;
        tni_log(ctx, TN_LOG_WARN, "backend %s: %s; running on cpu", wanted->name, first);
        ctx->desc.backend = wanted = tn_cpu_backend();
        s = wanted->open(&ctx->desc, &ctx->state, why);
    }
    ctx->backend = wanted;
    return s;
}

tn_status tn_ctx_create(tn_ctx **out, const tn_desc *given, char *why)
{
    char      room[256];
    tn_desc   d = tni_desc_defaults(given);
    tn_ctx   *ctx;
    tn_status s;
    if (!why) why = room;
    why[0] = 0;
    if (!out) return TN_ERR_ARG;
    *out = NULL;
    if ((s = tni_desc_check(&d, why)) != TN_OK) return s;
    ctx = (tn_ctx *)d.allocator.alloc(sizeof *ctx, d.allocator.user);
    if (!ctx) {
        tni_print(why, 256, "no memory for %zu bytes of context", sizeof *ctx);
        return TN_ERR_MEMORY;
    }
    memset(ctx, 0, sizeof *ctx);
    ctx->desc = d;
    ctx->pool.threads = d.threads;
    ctx->pool.fn = d.parallel_for;
    ctx->pool.user = d.parallel_user;
    ctx->data.device = true;
    if ((s = tni_open_backend(ctx, why)) != TN_OK) {
        d.allocator.release(ctx, sizeof *ctx, d.allocator.user);
        return s;
    }
    {
        static const int64_t one = 1, four = 4;
        ctx->clock = tn_tensor_create(ctx, TN_I32, 1, &one);
        ctx->fault = tn_tensor_create(ctx, TN_I32, 1, &four);
    }
    if (ctx->status != TN_OK) {
        s = ctx->status;
        tni_print(why, 256, "%s", ctx->error);
        tn_ctx_destroy(ctx);
        return s;
    }
    *out = ctx;
    return TN_OK;
}

void tn_ctx_destroy(tn_ctx *ctx)
{
    if (!ctx) return;
    while (ctx->owned) ctx->owned->destroy(ctx->owned);
    while (ctx->owned_tensors) tn_tensor_destroy(ctx->owned_tensors);
    tni_arena_free(ctx, &ctx->data);
    tni_arena_free(ctx, &ctx->heads[0]);
    tni_arena_free(ctx, &ctx->heads[1]);
    ctx->backend->close(ctx->state);
    ctx->desc.allocator.release(ctx, sizeof *ctx, ctx->desc.allocator.user);
}

tn_status tn_ctx_sync(tn_ctx *ctx)
{
    char      why[256] = "";
    tn_status s = TN_OK;
    if (!ctx) return TN_ERR_ARG;
    if (ctx->backend->sync) s = ctx->backend->sync(ctx->state, why);
    if (s != TN_OK) return tni_fail(ctx, s, "sync: backend %s: %s", ctx->backend->name, why);
    return tni_ctx_faults(ctx);
}

/* The fault word is written by kernels: {code, which, value, step}. It is read here and cleared. */
static tn_status tni_ctx_faults(tn_ctx *ctx)
{
    int32_t f[4], zero[4] = {0, 0, 0, 0};
    if (ctx->backend->download(ctx->state, f, ctx->fault->data, sizeof f) != TN_OK)
        return tni_fail(ctx, TN_ERR_BACKEND, "sync: backend %s: reading failed", ctx->backend->name);
    if (f[0] == 0) return TN_OK;
    ctx->backend->upload(ctx->state, ctx->fault->data, zero, sizeof zero);
    if (f[0] == 1) return tni_fail(ctx, TN_ERR_DATA, "id or label %d in row %d is outside its table", (int)f[2], (int)f[1]);
    if (ctx->describe && ctx->describe(ctx, f)) return TN_ERR_NONFINITE;
    return tni_fail(ctx, TN_ERR_NONFINITE,
                    "step %d: the norm of the gradient is not finite; the update was skipped, parameters are as before",
                    (int)f[3]);
}

/* ======================================================================
   >>tensor-impl
   ====================================================================== */

#define TNI_ALIVE 0x7E4508u
enum { TNI_OWNED = 1, TNI_WANTS_GRAD = 2, TNI_WATCHED = 4, TNI_PARAM = 8, TNI_GRAD_USED = 16,
       TNI_ZEROED = 32,                 /* a parameter's gradient that is all zeros: the first writer need not read it */
       TNI_SEED = 64 };                 /* what tn_backward began with: its gradient is 1 */

/* What an op asks of each operand; `what` names it in the message. */
static bool tni_usable(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!ctx) return false;
    if (!t) tni_fail(ctx, TN_ERR_ARG, "%s: %s is NULL", op, what);
    else if (t->alive != TNI_ALIVE) tni_fail(ctx, TN_ERR_ARG, "%s: %s is a tensor of an arena that was reset", op, what);
    else if (t->ctx != ctx) tni_fail(ctx, TN_ERR_ARG, "%s: %s belongs to another context", op, what);
    else return true;
    return false;
}

static bool tni_alive(const tn_tensor *t) { return t && t->alive == TNI_ALIVE; }

/* Whose bytes t looks into. */
static const tn_tensor *tni_root(const tn_tensor *t) { return t->base ? t->base : t; }

/* A view wants what its base wants by now: that may be watched, or frozen, after the view was made. */
static bool tni_wants_grad(const tn_tensor *t) { return t && (tni_root(t)->flags & TNI_WANTS_GRAD) != 0; }

/* The bytes of extents that are not negative; false where they do not fit the address space. An empty shape has to fit
   without its zeros, so that its strides do. */
static bool tni_extents_fit(tn_dtype dtype, int rank, const int64_t *shape, size_t *bytes)
{
    int i;
    *bytes = tni_dtype_size(dtype);
    for (i = 0; i < rank; i++) {
        if (shape[i] > PTRDIFF_MAX || !tni_mul_size(*bytes, (size_t)tni_max(shape[i], 1), bytes)) return false;
        if (*bytes > (size_t)PTRDIFF_MAX) return false;
    }
    for (i = 0; i < rank; i++) if (shape[i] == 0) *bytes = 0;
    return true;
}

/* The same of any shape, with a message where it is none or does not fit. */
static bool tni_shape_bytes(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape, size_t *bytes)
{
    int i;
    if (rank < 0 || rank > TN_MAX_RANK || (rank > 0 && !shape)) {
        tni_fail(ctx, TN_ERR_SHAPE, "tensor: rank %d, but it must be 0 to %d", rank, TN_MAX_RANK);
        return false;
    }
    for (i = 0; i < rank; i++)
        if (shape[i] < 0) {
            tni_fail(ctx, TN_ERR_SHAPE, "tensor: extent %d of %s is negative", i, tni_shape_of(rank, shape).s);
            return false;
        }
    if (tni_extents_fit(dtype, rank, shape, bytes)) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "tensor: %s %s does not fit the address space", tni_dtype_name(dtype),
             tni_shape_of(rank, shape).s);
    return false;
}

static void tni_fill_header(tn_tensor *t, tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    int64_t stride = 1;
    int     i;
    memset(t, 0, sizeof *t);
    t->ctx = ctx;
    t->alive = TNI_ALIVE;
    t->dtype = dtype;
    t->rank = rank;
    for (i = rank - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->strides[i] = stride;
        stride *= tni_max(shape[i], 1);
    }
}

static bool tni_dtype_known(tn_ctx *ctx, tn_dtype *dtype)
{
    if (*dtype == TN_REAL) *dtype = ctx->desc.dtype;
    if (*dtype >= TN_F32 && *dtype <= TN_I32) return true;
    tni_fail(ctx, TN_ERR_DTYPE, "tensor: %d is no dtype", (int)*dtype);
    return false;
}

/* A header alone, in the arena. */
static tn_tensor *tni_header(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    tn_tensor *t = (tn_tensor *)tni_arena_take(ctx, &ctx->heads[ctx->head], sizeof *t);
    if (!t) return NULL;
    tni_fill_header(t, ctx, dtype, rank, shape);
    t->prev = ctx->arena_tensors;
    ctx->arena_tensors = t;
    return t;
}

tn_tensor *tn_tensor_new(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    tn_tensor *t;
    size_t     bytes;
    void      *data;
    if (!ctx || !tni_dtype_known(ctx, &dtype) || !tni_shape_bytes(ctx, dtype, rank, shape, &bytes)) return NULL;
    data = tni_arena_take(ctx, &ctx->data, bytes ? bytes : 1);
    t = data ? tni_header(ctx, dtype, rank, shape) : NULL;
    if (!t) return NULL;
    t->data = data;
    t->bytes = bytes;
    return t;
}

tn_tensor *tn_tensor_1d(tn_ctx *ctx, tn_dtype dtype, int64_t n) { return tn_tensor_new(ctx, dtype, 1, &n); }

tn_tensor *tn_tensor_2d(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m)
{
    int64_t shape[2];
    shape[0] = n; shape[1] = m;
    return tn_tensor_new(ctx, dtype, 2, shape);
}

tn_tensor *tn_tensor_3d(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m, int64_t k)
{
    int64_t shape[3];
    shape[0] = n; shape[1] = m; shape[2] = k;
    return tn_tensor_new(ctx, dtype, 3, shape);
}

static tn_view tni_view(const tn_tensor *t)
{
    tn_view v;
    memset(&v, 0, sizeof v);
    if (!t) return v;
    v.data = t->data;
    v.dtype = t->dtype;
    v.rank = t->rank;
    memcpy(v.shape, t->shape, sizeof v.shape);
    memcpy(v.strides, t->strides, sizeof v.strides);
    return v;
}

static tn_call tni_call(tn_kernel kernel, int n_in, const tn_tensor *const *in, int n_out, tn_tensor *const *out)
{
    tn_call c;
    int     i;
    memset(&c, 0, sizeof c);
    c.kernel = kernel;
    c.n_in = n_in;
    c.n_out = n_out;
    for (i = 0; i < n_in; i++) c.in[i] = tni_view(in[i]);
    for (i = 0; i < n_out; i++) c.out[i] = tni_view(out[i]);
    return c;
}

static tn_status tni_fill(tn_tensor *t, double value)
{
    tn_call c = tni_call(TN_KERNEL_FILL, 0, NULL, 1, &t);
    c.f[0] = value;
    return tni_run(t->ctx, &c);
}

static tn_status tni_copy(tn_tensor *to, const tn_tensor *from)          /* same shape, any strides, any dtypes */
{
    tn_call c = tni_call(TN_KERNEL_COPY, 1, &from, 1, &to);
    return tni_run(to->ctx, &c);
}

/* An owned tensor; `what` is named where there is no room for it. */
static tn_tensor *tni_tensor_create(tn_ctx *ctx, const char *what, tn_dtype dtype, int rank, const int64_t *shape)
{
    tn_tensor *t;
    size_t     bytes;
    if (!ctx || !tni_dtype_known(ctx, &dtype) || !tni_shape_bytes(ctx, dtype, rank, shape, &bytes)) return NULL;
    t = (tn_tensor *)tni_alloc(ctx, sizeof *t, what);
    if (!t) return NULL;
    tni_fill_header(t, ctx, dtype, rank, shape);
    t->flags = TNI_OWNED;
    t->bytes = bytes;
    t->data = tni_device_alloc(ctx, bytes, what);
    if (!t->data) {
        tni_free(ctx, t, sizeof *t);
        return NULL;
    }
    t->next = ctx->owned_tensors;
    if (t->next) t->next->prev = t;
    ctx->owned_tensors = t;
    if (tni_fill(t, 0) != TN_OK) {
        tn_tensor_destroy(t);
        return NULL;
    }
    return t;
}

tn_tensor *tn_tensor_create(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    return tni_tensor_create(ctx, "tensor", dtype, rank, shape);
}

void tn_tensor_destroy(tn_tensor *t)
{
    tn_ctx *ctx;
    if (!tni_alive(t) || !(t->flags & TNI_OWNED)) return;
    ctx = t->ctx;
    tn_tensor_destroy(t->grad);
    if (t->prev) t->prev->next = t->next;
    else ctx->owned_tensors = t->next;
    if (t->next) t->next->prev = t->prev;
    tni_device_free(ctx, t->data, t->bytes);
    t->alive = 0;
    tni_free(ctx, t, sizeof *t);
}

tn_tensor *tn_tensor_keep(const tn_tensor *t)
{
    tn_tensor *kept;
    if (!tni_alive(t)) return NULL;
    kept = tn_tensor_create(t->ctx, t->dtype, t->rank, t->shape);
    if (kept && tni_copy(kept, t) != TN_OK) {
        tn_tensor_destroy(kept);
        return NULL;
    }
    return kept;
}

/* ---- reset and marks ------------------------------------------------------ */

/* The headers that go are marked dead, so that a tensor kept too long is told from a live one; under
   TN_DEBUG they also stay readable until the next reset, and their data turns into NaN. */
static void tni_bury(tn_ctx *ctx, const tn_tensor *until)
{
    for (; ctx->arena_tensors && ctx->arena_tensors != until; ctx->arena_tensors = ctx->arena_tensors->prev) {
#ifdef TN_DEBUG
        tn_tensor *t = ctx->arena_tensors;
        if (t->bytes > 0 && t->dtype != TN_I32) tni_fill(t, (double)NAN);
#endif
        ctx->arena_tensors->alive = 0;
    }
}

void tn_ctx_reset(tn_ctx *ctx)
{
    if (!ctx) return;
    tni_tape_clear(ctx);
    tni_bury(ctx, NULL);
    ctx->resets++;
#ifdef TN_DEBUG
    ctx->head ^= 1;
#endif
    ctx->heads[ctx->head].at = ctx->heads[ctx->head].used = 0;
    ctx->data.at = ctx->data.used = 0;
    if (ctx->calls > 0) {                /* the clock ticks: next step's random calls count from zero again */
        tn_call c = tni_call(TN_KERNEL_TICK, 0, NULL, 1, &ctx->clock);
        c.i[0] = 1;
        tni_run(ctx, &c);
        ctx->calls = 0;
    }
}

void tn_ctx_seed(tn_ctx *ctx, uint64_t seed)
{
    if (!ctx) return;
    ctx->desc.seed = seed;
    ctx->calls = 0;
    tni_fill(ctx->clock, 0);
}

tn_mark tn_arena_mark(tn_ctx *ctx)
{
    tn_mark m;
    memset(&m, 0, sizeof m);
    if (!ctx) return m;
    m.head_block = ctx->heads[ctx->head].at;
    m.head_used = ctx->heads[ctx->head].used;
    m.data_block = ctx->data.at;
    m.data_used = ctx->data.used;
    m.resets = ctx->resets;
    return m;
}

tn_status tn_arena_release(tn_ctx *ctx, tn_mark m)
{
    tni_arena *heads;
    tn_tensor *t;
    if (!ctx) return TN_ERR_ARG;
    heads = &ctx->heads[ctx->head];
    if (ctx->tape) return tni_fail(ctx, TN_ERR_ARG, "arena release: the tape still needs what would go");
    if (m.resets != ctx->resets || m.head_block > heads->at || (m.head_block == heads->at && m.head_used > heads->used))
        return tni_fail(ctx, TN_ERR_ARG, "arena release: the mark is newer than the arena's last reset");
    for (t = ctx->arena_tensors; t; t = t->prev) {          /* the newest header that the mark keeps */
        size_t b = m.head_block;
        bool   kept = false;
        if (b < heads->blocks) kept = (char *)t >= heads->block[b].p && (char *)t < heads->block[b].p + m.head_used;
        while (!kept && b-- > 0)
            kept = (char *)t >= heads->block[b].p && (char *)t < heads->block[b].p + heads->block[b].bytes;
        if (kept) break;
    }
    tni_bury(ctx, t);
    for (; t; t = t->prev)                                  /* a gradient younger than the mark goes too */
        if (t->grad && !tni_alive(t->grad)) {
            t->grad = NULL;
            t->flags &= ~(uint32_t)TNI_GRAD_USED;
        }
    heads->at = m.head_block;
    heads->used = m.head_used;
    ctx->data.at = m.data_block;
    ctx->data.used = m.data_used;
    ctx->idle = NULL;
    return TN_OK;
}

/* ---- queries and views ----------------------------------------------------- */

int64_t tn_tensor_count(const tn_tensor *t)
{
    int64_t n = 1;
    int     i;
    if (!tni_alive(t)) return 0;
    for (i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

bool tn_tensor_contiguous(const tn_tensor *t)
{
    int64_t stride = 1;
    int     i;
    if (!tni_alive(t)) return false;
    for (i = 0; i < t->rank; i++) if (t->shape[i] == 0) return true;
    for (i = t->rank - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != stride) return false;
        stride *= t->shape[i];
    }
    return true;
}

/* A header over t's data. The gradient of a view is the same view of its base's gradient. */
static tn_tensor *tni_view_of(tn_tensor *t)
{
    tn_tensor *v = tni_header(t->ctx, t->dtype, t->rank, t->shape);
    if (!v) return NULL;
    memcpy(v->strides, t->strides, sizeof v->strides);
    v->data = t->data;
    v->base = t->base ? t->base : t;
    return v;
}

static bool tni_axis(const tn_tensor *t, int *axis, const char *op)
{
    if (*axis < 0) *axis += t->rank;
    if (*axis >= 0 && *axis < t->rank) return true;
    tni_fail(t->ctx, TN_ERR_ARG, "%s: no such axis in %s", op, TNI_SHAPE(t));
    return false;
}

tn_tensor *tn_slice_step(tn_tensor *t, int axis, int64_t start, int64_t stop, int64_t step)
{
    tn_tensor *v;
    int64_t    n;
    if (!tni_alive(t) || !tni_axis(t, &axis, "slice")) return NULL;
    n = t->shape[axis];
    if (step == 0 || start < -1 || stop < -1 || start > n || stop > n
        || (step > 0 && (start < 0 || stop < start)) || (step < 0 && (start >= n || stop > start))) {
        tni_fail(t->ctx, TN_ERR_ARG, "slice: [%lld:%lld:%lld] of axis %d of %s", (long long)start, (long long)stop,
                 (long long)step, axis, TNI_SHAPE(t));
        return NULL;
    }
    v = tni_view_of(t);
    if (!v) return NULL;
    step = step > 0 ? tni_min(step, n + 1) : tni_max(step, -n - 1);        /* longer ones take one element all the same */
    v->shape[axis] = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
    v->strides[axis] *= step;
    if (v->shape[axis] > 0) v->data = (char *)v->data + start * t->strides[axis] * (int64_t)tni_dtype_size(t->dtype);
    return v;
}

tn_tensor *tn_slice(tn_tensor *t, int axis, int64_t start, int64_t stop) { return tn_slice_step(t, axis, start, stop, 1); }

tn_tensor *tn_transpose(tn_tensor *t, int a, int b)
{
    tn_tensor *v;
    if (!tni_alive(t) || !tni_axis(t, &a, "transpose") || !tni_axis(t, &b, "transpose")) return NULL;
    v = tni_view_of(t);
    if (!v) return NULL;
    v->shape[a] = t->shape[b];
    v->shape[b] = t->shape[a];
    v->strides[a] = t->strides[b];
    v->strides[b] = t->strides[a];
    return v;
}

/* Fills in the one extent that may be -1; false where the elements do not come out even. The extents of
   an empty shape have to fit without its zeros. */
static bool tni_infer_shape(const tn_tensor *t, int rank, const int64_t *shape, int64_t *full)
{
    int64_t count = tn_tensor_count(t), known = 1;
    int     i, open = -1;
    bool    empty = false;
    for (i = 0; i < rank; i++) {
        full[i] = shape[i];
        if (shape[i] == -1 && open < 0) open = i;
        else if (shape[i] < 0 || known > INT64_MAX / tni_max(shape[i], 1)) return false;
        else known *= tni_max(shape[i], 1);
        empty = empty || shape[i] == 0;
    }
    if (open < 0) return (empty ? 0 : known) == count;
    if (empty || count % known != 0) return false;
    full[open] = count / known;
    return true;
}

tn_tensor *tn_reshape(tn_tensor *t, int rank, const int64_t *shape)
{
    tn_tensor *v;
    int64_t    full[TN_MAX_RANK], stride = 1;
    int        i;
    if (!tni_alive(t)) return NULL;
    if (rank < 0 || rank > TN_MAX_RANK || (rank > 0 && !shape) || !tni_infer_shape(t, rank, shape, full)) {
        tni_fail(t->ctx, TN_ERR_SHAPE, "reshape: %s to %s", TNI_SHAPE(t), shape ? tni_shape_of(rank, shape).s : "NULL");
        return NULL;
    }
    if (!tn_tensor_contiguous(t)) {
        tni_fail(t->ctx, TN_ERR_SHAPE, "reshape: %s is a strided view; tn_copy makes it contiguous", TNI_SHAPE(t));
        return NULL;
    }
    v = tni_view_of(t);
    if (!v) return NULL;
    v->rank = rank;
    for (i = rank - 1; i >= 0; i--) {
        v->shape[i] = full[i];
        v->strides[i] = stride;
        stride *= tni_max(full[i], 1);
    }
    return v;
}

tn_tensor *tn_reshape_2d(tn_tensor *t, int64_t n, int64_t m)
{
    int64_t shape[2];
    shape[0] = n; shape[1] = m;
    return tn_reshape(t, 2, shape);
}

/* ---- write and read --------------------------------------------------------
   Contiguous tensors of the same dtype go through in one piece; what has to be converted goes in small
   ones by way of the stack, so that neither allocates. Views go by way of a contiguous copy, made by a kernel. */

static double tni_load(const void *p, tn_dtype dtype, int64_t i)
{
    if (dtype == TN_F64) return ((const double *)p)[i];
    if (dtype == TN_I32) return ((const int32_t *)p)[i];
    if (dtype == TN_BF16) {
        uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
        float    f;
        memcpy(&f, &bits, 4);
        return (double)f;
    }
    return (double)((const float *)p)[i];
}

/* To nearest, ties to even; NaN stays NaN. What only looks like a tie once it is a float is nudged off it. */
static uint16_t tni_bf16_of(double v)
{
    float    f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40);
    if ((bits & 0xFFFF) == 0x8000 && (double)f != v) bits = fabs(v) > fabs((double)f) ? bits + 1 : bits - 1;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static int32_t tni_i32_of(double v)                     /* toward zero, saturated; NaN is 0 */
{
    if (v != v) return 0;
    return v >= 2147483647.0 ? INT32_MAX : v <= -2147483648.0 ? INT32_MIN : (int32_t)v;
}

static void tni_store(void *p, tn_dtype dtype, int64_t i, double v)
{
    if (dtype == TN_F64) ((double *)p)[i] = v;
    else if (dtype == TN_I32) ((int32_t *)p)[i] = tni_i32_of(v);
    else if (dtype == TN_BF16) ((uint16_t *)p)[i] = tni_bf16_of(v);
    else ((float *)p)[i] = (float)v;
}

/* The checks that reading and writing share, and the type that TN_REAL stands for. */
static tn_status tni_host_check(const tn_tensor *t, tn_dtype *as, const void *host, int64_t count, const char *op)
{
    if (!tni_alive(t)) return TN_ERR_ARG;
    if (!tni_dtype_known(t->ctx, as)) return TN_ERR_DTYPE;
    if (count != tn_tensor_count(t))
        return tni_fail(t->ctx, TN_ERR_SHAPE, "%s: %lld elements for a tensor %s", op, (long long)count, TNI_SHAPE(t));
    if (!host && count > 0) return tni_fail(t->ctx, TN_ERR_ARG, "%s: host memory is NULL", op);
    return TN_OK;
}

/* Converts n elements. Integers take whole numbers in their range only; `first` is where these stand in all. */
static tn_status tni_recode(tn_ctx *ctx, tn_dtype to, void *dst, tn_dtype from, const void *src, int64_t n, int64_t first,
                            const char *op)
{
    int64_t i;
    if (to == TN_F64 && from == TN_F32) {                    /* the usual two, without a choice for each element */
        for (i = 0; i < n; i++) ((double *)dst)[i] = (double)((const float *)src)[i];
        return TN_OK;
    }
    if (to == TN_F32 && from == TN_F64) {
        for (i = 0; i < n; i++) ((float *)dst)[i] = (float)((const double *)src)[i];
        return TN_OK;
    }
    for (i = 0; i < n; i++) {
        double v = tni_load(src, from, i);
        if (to == TN_I32 && (double)tni_i32_of(v) != v)
            return tni_fail(ctx, TN_ERR_DATA, "%s: element %lld is %g, no 32-bit integer", op, (long long)(first + i), v);
        tni_store(dst, to, i, v);
    }
    return TN_OK;
}

/* Integers that would not fit are found before anything is written. */
static tn_status tni_i32_check(tn_ctx *ctx, tn_dtype as, const void *src, int64_t count)
{
    int64_t   i;
    int32_t   unused;
    tn_status s = TN_OK;
    for (i = 0; i < count && s == TN_OK; i++)
        s = tni_recode(ctx, TN_I32, &unused, as, (const char *)src + (size_t)i * tni_dtype_size(as), 1, i, "write");
    return s;
}

enum { TNI_STAGE = 1024 };               /* elements converted at a time */

static tn_status tni_upload(tn_tensor *t, tn_dtype as, const char *src, int64_t count)
{
    tn_ctx   *ctx = t->ctx;
    double    staged[TNI_STAGE];
    size_t    size = tni_dtype_size(t->dtype), given = tni_dtype_size(as);
    int64_t   i, n;
    tn_status s = TN_OK;
    if (as == t->dtype) return ctx->backend->upload(ctx->state, t->data, src, (size_t)count * size);
    for (i = 0; i < count && s == TN_OK; i += n) {
        n = tni_min(count - i, TNI_STAGE);
        s = tni_recode(ctx, t->dtype, staged, as, src + (size_t)i * given, n, i, "write");
        if (s == TN_OK) s = ctx->backend->upload(ctx->state, (char *)t->data + (size_t)i * size, staged, (size_t)n * size);
    }
    return s;
}

static tn_status tni_download(const tn_tensor *t, tn_dtype as, char *dst, int64_t count)
{
    tn_ctx   *ctx = t->ctx;
    double    staged[TNI_STAGE];
    size_t    size = tni_dtype_size(t->dtype), given = tni_dtype_size(as);
    int64_t   i, n;
    tn_status s = TN_OK;
    if (as == t->dtype) return ctx->backend->download(ctx->state, dst, t->data, (size_t)count * size);
    for (i = 0; i < count && s == TN_OK; i += n) {
        n = tni_min(count - i, TNI_STAGE);
        s = ctx->backend->download(ctx->state, staged, (const char *)t->data + (size_t)i * size, (size_t)n * size);
        if (s == TN_OK) s = tni_recode(ctx, as, dst + (size_t)i * given, t->dtype, staged, n, i, "read");
    }
    return s;
}

tn_status tn_write(tn_tensor *t, tn_dtype as, const void *src, int64_t count)
{
    tn_status s = tni_host_check(t, &as, src, count, "write");
    tn_ctx   *ctx;
    if (s != TN_OK || count == 0) return s;
    ctx = t->ctx;
    if (tni_tape_reads(ctx, t)) return tni_fail(ctx, TN_ERR_ARG, "write: %s is part of a recording", TNI_SHAPE(t));
    if (t->dtype == TN_I32 && as != TN_I32 && (s = tni_i32_check(ctx, as, src, count)) != TN_OK) return s;
    (t->base ? t->base : t)->flags &= ~(uint32_t)TNI_ZEROED;
    if (!tn_tensor_contiguous(t)) {
        tn_mark    mark = tn_arena_mark(ctx);
        tn_tensor *flat = tn_tensor_new(ctx, t->dtype, t->rank, t->shape);
        s = flat ? tn_write(flat, as, src, count) : TN_ERR_MEMORY;
        if (s == TN_OK) s = tni_copy(t, flat);
        if (!ctx->tape) tn_arena_release(ctx, mark);
        return s;
    }
    s = tni_upload(t, as, (const char *)src, count);
    return s == TN_OK ? s : tni_fail(ctx, s, "write: backend %s: upload to %s failed", ctx->backend->name, TNI_SHAPE(t));
}

tn_status tn_read(const tn_tensor *t, tn_dtype as, void *dst, int64_t count)
{
    tn_status s = tni_host_check(t, &as, dst, count, "read");
    tn_ctx   *ctx;
    if (s != TN_OK || count == 0) return s;
    ctx = t->ctx;
    if (!tn_tensor_contiguous(t)) {
        tn_mark    mark = tn_arena_mark(ctx);
        tn_tensor *flat = tn_tensor_new(ctx, t->dtype, t->rank, t->shape);
        s = flat ? tni_copy(flat, t) : TN_ERR_MEMORY;
        if (s == TN_OK) s = tn_read(flat, as, dst, count);
        if (!ctx->tape) tn_arena_release(ctx, mark);
        return s;
    }
    if ((s = tn_ctx_sync(ctx)) != TN_OK) return s;
    s = tni_download(t, as, (char *)dst, count);
    return s == TN_OK ? s : tni_fail(ctx, s, "read: backend %s: download from %s failed", ctx->backend->name, TNI_SHAPE(t));
}

double tn_item(const tn_tensor *t)
{
    double v;
    return tn_read(t, TN_F64, &v, 1) == TN_OK ? v : (double)NAN;
}

/* ---- format: as NumPy prints ------------------------------------------------ */

#define TNI_FORMAT_EDGE 3                /* elements shown at both ends of an axis longer than 8 */

typedef struct tni_format { const tn_tensor *t; const double *v; tni_text *to; int *width; } tni_format;

static bool tni_format_skips(int64_t i, int64_t n) { return n > 8 && i >= TNI_FORMAT_EDGE && i < n - TNI_FORMAT_EDGE; }

/* Between two members of an axis: rows begin a new line, matrices stand apart by an empty one. */
static void tni_format_break(const tni_format *f, int axis)
{
    int k;
    for (k = axis + 1; k < f->t->rank; k++) tni_text_add(f->to, "\n", 1);
    for (k = 0; k <= axis; k++) tni_text_add(f->to, " ", 1);
}

static void tni_format_axis(const tni_format *f, int axis, int64_t at)
{
    int64_t i, n;
    int     k;
    char    number[32];
    if (axis == f->t->rank) {
        int length = tni_format_double(number, f->v[at], 5);
        for (k = length; k < *f->width; k++) tni_text_add(f->to, " ", 1);
        if (length > *f->width) *f->width = length;
        tni_text_add(f->to, number, (size_t)length);
        return;
    }
    n = f->t->shape[axis];
    tni_text_add(f->to, "[", 1);
    for (i = 0; i < n; i++) {
        if (tni_format_skips(i, n)) {
            tni_text_add(f->to, "...", 3);
            if (axis + 1 == f->t->rank) tni_text_add(f->to, " ", 1);
            else tni_format_break(f, axis);
            i = n - TNI_FORMAT_EDGE;
        }
        tni_format_axis(f, axis + 1, at * n + i);
        if (i + 1 == n) break;
        if (axis + 1 == f->t->rank) tni_text_add(f->to, " ", 1);
        else tni_format_break(f, axis);
    }
    tni_text_add(f->to, "]", 1);
}

int64_t tn_tensor_format(const tn_tensor *t, char *dst, size_t bytes)
{
    tni_text   out, nowhere;
    tni_format f;
    int        width = 0;
    int64_t    n;
    double    *v;
    out.dst = dst; out.room = bytes; out.length = 0;
    nowhere.dst = NULL; nowhere.room = nowhere.length = 0;
    if (!tni_alive(t)) return -1;
    n = tn_tensor_count(t);
    v = tni_alloc_f64(t->ctx, n, 1, "format");
    if (!v || tn_read(t, TN_F64, v, n) != TN_OK) {
        tni_free_f64(t->ctx, v, n, 1);
        return -1;
    }
    f.t = t; f.v = v; f.to = &nowhere; f.width = &width;
    tni_format_axis(&f, 0, 0);                       /* only to learn the width of what is shown */
    f.to = &out;
    tni_text_add(&out, "", 0);
    tni_format_axis(&f, 0, 0);
    tni_free_f64(t->ctx, v, n, 1);
    return (int64_t)out.length;
}

/* ======================================================================
   >>tape     what was done, and how to go back
   A node per recorded op, newest first. Gradients are made when first added to. The gradient of a view
   is the same view of its base's gradient, so views need no nodes. An intermediate's gradient is
   complete when the backward pass reaches the op that made it: all its readers came later.
   ====================================================================== */

typedef struct tni_node tni_node;
typedef void (*tni_backward_fn)(tn_ctx *ctx, const tni_node *node);

struct tni_node {
    tni_node       *before;
    tni_backward_fn backward;
    tn_tensor      *out, *in[3], *saved[2];
    int64_t         i[4];
    double          f[4];
};

/* Would the backward pass notice if t changed? */
static bool tni_tape_reads(const tn_ctx *ctx, const tn_tensor *t)
{
    const tni_node *n;
    int             i;
    for (n = ctx->tape; n; n = n->before) {
        if (tni_root(n->out) == tni_root(t)) return true;
        for (i = 0; i < 3; i++) if (n->in[i] && tni_root(n->in[i]) == tni_root(t)) return true;
        for (i = 0; i < 2; i++) if (n->saved[i] && tni_root(n->saved[i]) == tni_root(t)) return true;
    }
    return false;
}

/* What was computed is a constant from now on: an intermediate must not look as if it still led to a parameter. */
static void tni_tape_clear(tn_ctx *ctx)
{
    const tni_node *n;
    for (n = ctx->tape; n; n = n->before)
        if (!(n->out->flags & TNI_WATCHED)) n->out->flags &= ~(uint32_t)TNI_WANTS_GRAD;
    ctx->tape = NULL;
    ctx->idle = NULL;
    ctx->recording = false;
}

/* Notes an op while recording, if one of its inputs wants a gradient; the caller adds what backward needs. */
static tni_node *tni_note(tn_ctx *ctx, tni_backward_fn backward, tn_tensor *out, tn_tensor *a, tn_tensor *b, tn_tensor *c)
{
    tni_node *n;
    if (!ctx->recording || !out || !(tni_wants_grad(a) || tni_wants_grad(b) || tni_wants_grad(c))) return NULL;
    n = (tni_node *)tni_arena_take(ctx, &ctx->heads[ctx->head], sizeof *n);
    if (!n) return NULL;
    memset(n, 0, sizeof *n);
    n->before = ctx->tape;
    n->backward = backward;
    n->out = out;
    n->in[0] = a; n->in[1] = b; n->in[2] = c;
    out->flags |= TNI_WANTS_GRAD;
    ctx->tape = n;
    return n;
}

/* Memory of an intermediate gradient: one that has done its work, or new. */
static tn_tensor *tni_grad_new(tn_tensor *t)
{
    tn_ctx     *ctx = t->ctx;
    tn_tensor **link = &ctx->idle, *g;
    if (t->flags & TNI_PARAM) {
        g = tn_tensor_create(ctx, t->dtype, t->rank, t->shape);
        if (g) g->flags |= TNI_ZEROED;
        return g;
    }
    while (*link && (*link)->bytes != t->bytes) link = &(*link)->next;
    g = *link;
    if (!g) return tn_tensor_new(ctx, t->dtype, t->rank, t->shape);
    *link = g->next;
    g->next = NULL;
    g->dtype = t->dtype;
    g->rank = t->rank;
    memcpy(g->shape, t->shape, sizeof g->shape);
    memcpy(g->strides, t->strides, sizeof g->strides);
    return g;
}

static tn_tensor *tni_grad_to_add(tn_tensor *t);

/* Where the gradient of t is to be added, or NULL where nobody wants it. *add tells whether something
   is there already; the first writer overwrites. A view of a part adds to zeros. */
static tn_tensor *tni_grad(tn_tensor *t, bool *add)
{
    tn_tensor *g, *v;
    *add = true;
    if (!tni_wants_grad(t)) return NULL;
    if (t->base) {
        bool whole = tn_tensor_contiguous(t) && tn_tensor_count(t) == tn_tensor_count(t->base);
        g = whole ? tni_grad(t->base, add) : tni_grad_to_add(t->base);
        v = g ? tni_view_of(t) : NULL;
        if (!v) return NULL;
        v->data = (char *)g->data + ((char *)t->data - (char *)t->base->data);
        v->base = g;
        return v;
    }
    if (!t->grad) t->grad = tni_grad_new(t);
    if (!t->grad) return NULL;
    *add = t->flags & TNI_PARAM ? (t->grad->flags & TNI_ZEROED) == 0 : (t->flags & TNI_GRAD_USED) != 0;
    t->grad->flags &= ~(uint32_t)TNI_ZEROED;
    t->flags |= TNI_GRAD_USED;
    return t->grad;
}

/* The same for a writer that can only add. */
static tn_tensor *tni_grad_to_add(tn_tensor *t)
{
    const tn_tensor *before = tni_root(t)->grad;
    bool       add, zero = before && (before->flags & TNI_ZEROED) != 0;
    tn_tensor *g = tni_grad(t, &add);
    return !g || add || zero || tni_fill(g, 0) == TN_OK ? g : NULL;
}

/* call.out[0] = the gradient of t: runs the call if anybody wants it. */
static void tni_run_grad(tn_ctx *ctx, tn_call *call, tn_tensor *t)
{
    tn_tensor *g = tni_grad(t, &call->accumulate);
    if (!g) return;
    call->out[0] = tni_view(g);
    call->n_out = (int)tni_max(call->n_out, 1);
    tni_run(ctx, call);
}

void tn_record(tn_ctx *ctx)
{
    if (!ctx) return;
    tni_tape_clear(ctx);
    ctx->recording = true;
}

tn_status tn_watch(tn_tensor *t)
{
    if (!tni_alive(t)) return TN_ERR_ARG;
    if ((t->flags & TNI_OWNED) || t->base || t->dtype != t->ctx->desc.dtype)
        return tni_fail(t->ctx, TN_ERR_ARG, "watch: %s is not an arena tensor of the context's dtype", TNI_SHAPE(t));
    t->flags |= TNI_WATCHED | TNI_WANTS_GRAD;
    return TN_OK;
}

static void tni_grad_done(tn_ctx *ctx, tn_tensor *t)
{
    if (!t->grad || (t->flags & TNI_WATCHED)) return;
    t->grad->next = ctx->idle;
    ctx->idle = t->grad;
    t->grad = NULL;
    t->flags &= ~(uint32_t)TNI_GRAD_USED;
}

static tn_status tni_backward_check(tn_ctx *ctx, const tn_tensor *loss)
{
    if (ctx->status != TN_OK || !tni_usable(ctx, loss, "backward", "loss")) return ctx->status;
    if (tn_tensor_count(loss) != 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "backward: loss is %s, but it must have one element", TNI_SHAPE(loss));
    if (!ctx->tape || !tni_wants_grad(loss))
        return tni_fail(ctx, TN_ERR_ARG, "backward: nothing was recorded that leads to a parameter; call tn_record first");
    return TN_OK;
}

static void tni_add_number(tn_tensor *t, double value)
{
    tn_ctx    *ctx = t->ctx;
    tn_tensor *number = tn_full(ctx, 0, NULL, value);
    tn_call    c;
    if (!number) return;
    c = tni_call(TN_KERNEL_ADD, 1, (const tn_tensor *const *)&number, 1, &t);
    c.in[0].rank = t->rank;                                 /* its strides are zero already */
    memcpy(c.in[0].shape, t->shape, sizeof t->shape);
    c.f[0] = 1;
    c.accumulate = true;
    tni_run(ctx, &c);
}

tn_status tn_backward(tn_ctx *ctx, tn_tensor *loss)
{
    const tni_node *n;
    tn_tensor      *g;
    bool            add;
    if (!ctx) return TN_ERR_ARG;
    ctx->recording = false;
    g = tni_backward_check(ctx, loss) == TN_OK ? tni_grad(loss, &add) : NULL;
    if (g && add) tni_add_number(g, 1);                     /* a parameter, to which an earlier pass has added */
    else if (g && tni_fill(g, 1) == TN_OK && !(loss->flags & TNI_PARAM)) loss->flags |= TNI_SEED;
    for (n = ctx->tape; n && ctx->status == TN_OK; n = n->before) {
        if (!n->out->grad) continue;
        n->backward(ctx, n);
        tni_grad_done(ctx, n->out);
    }
    tni_tape_clear(ctx);
    return ctx->status;
}

/* ---- helpers of the ops ----------------------------------------------------- */

/* A contiguous tensor as rows x columns: all but the last axis are rows. */
static tn_view tni_rows_view(const tn_tensor *t)
{
    tn_view v = tni_view(t);
    int64_t columns = t->rank > 0 ? t->shape[t->rank - 1] : 1, rows = 1;
    int     i;
    for (i = 0; i + 1 < t->rank; i++) rows *= t->shape[i];
    v.rank = 2;
    v.shape[0] = rows;
    v.shape[1] = columns;
    v.strides[0] = columns;
    v.strides[1] = 1;
    return v;
}

static tn_view tni_flat_view(const tn_tensor *t)                /* a contiguous tensor as one axis */
{
    tn_view v = tni_view(t);
    v.rank = 1;
    v.shape[0] = tn_tensor_count(t);
    v.strides[0] = 1;
    return v;
}

/* A view stretched to a larger shape: broadcast axes get stride 0. NumPy's rule, aligned at the right. */
static tn_view tni_expand_view(tn_view v, int rank, const int64_t *shape)
{
    tn_view e = v;
    int     i, shift = rank - v.rank;
    e.rank = rank;
    for (i = 0; i < rank; i++) {
        bool here = i >= shift && (v.shape[i - shift] != 1 || shape[i] == 1);
        e.shape[i] = shape[i];
        e.strides[i] = here ? v.strides[i - shift] : 0;
    }
    return e;
}

/* The same axes, but extents of 1 in front: what SUM wants of its output. */
static tn_view tni_pad_view(tn_view v, int rank)
{
    tn_view p = v;
    int     i, shift = rank - v.rank;
    p.rank = rank;
    for (i = 0; i < rank; i++) {
        p.shape[i] = i < shift ? 1 : v.shape[i - shift];
        p.strides[i] = i < shift ? 0 : v.strides[i - shift];
    }
    return p;
}

static bool tni_same_shape(const tn_tensor *a, const tn_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->rank) == 0;
}

static bool tni_is_real(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!tni_usable(ctx, t, op, what)) return false;
    if (t->dtype == ctx->desc.dtype) return true;
    tni_fail(ctx, TN_ERR_DTYPE, "%s: %s is %s, but this context computes in %s", op, what, tni_dtype_name(t->dtype),
             tni_dtype_name(ctx->desc.dtype));
    return false;
}

static bool tni_is_ids(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!tni_usable(ctx, t, op, what)) return false;
    if (t->dtype == TN_I32) return true;
    tni_fail(ctx, TN_ERR_DTYPE, "%s: %s is %s, but must be I32", op, what, tni_dtype_name(t->dtype));
    return false;
}

/* A real operand, made contiguous by a recorded copy where it is a strided view. */
static tn_tensor *tni_contiguous(tn_ctx *ctx, tn_tensor *t, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return NULL;
    return tn_tensor_contiguous(t) ? t : tn_copy(ctx, t);
}

static tn_tensor *tni_like(tn_ctx *ctx, const tn_tensor *t) { return tn_tensor_new(ctx, t->dtype, t->rank, t->shape); }

/* Random kernels read the clock, and are told the seed and which call of this step they are. */
static void tni_random_call(tn_ctx *ctx, tn_call *c, int clock_in)
{
    c->in[clock_in] = tni_view(ctx->clock);
    c->n_in = clock_in + 1;
    c->i[0] = (int64_t)ctx->desc.seed;
    c->i[1] = ctx->calls++;
}

/* Visits views of one shape row by row: offsets of up to four operands, and their steps along a row. */
typedef struct tni_walk {
    int     rank, views;
    int64_t inner, shape[TN_MAX_RANK], at[TN_MAX_RANK];
    int64_t strides[4][TN_MAX_RANK], offset[4], step[4];
} tni_walk;

static bool tni_walk_begin(tni_walk *w, const tn_view *a, const tn_view *b, const tn_view *c)
{
    const tn_view *v[3];
    int i, k;
    v[0] = a; v[1] = b; v[2] = c;
    memset(w, 0, sizeof *w);
    w->rank = a->rank - 1;
    w->inner = a->rank > 0 ? a->shape[a->rank - 1] : 1;
    for (k = 0; k < 3; k++) {
        if (!v[k]) continue;
        w->views = k + 1;
        w->step[k] = a->rank > 0 ? v[k]->strides[a->rank - 1] : 0;
        for (i = 0; i < w->rank; i++) w->strides[k][i] = v[k]->strides[i];
    }
    for (i = 0; i < w->rank; i++) {
        w->shape[i] = a->shape[i];
        if (a->shape[i] == 0) return false;
    }
    return w->inner > 0;
}

static bool tni_walk_next(tni_walk *w)
{
    int i, k;
    for (i = w->rank - 1; i >= 0; i--) {
        for (k = 0; k < w->views; k++) w->offset[k] += w->strides[k][i];
        if (++w->at[i] < w->shape[i]) return true;
        for (k = 0; k < w->views; k++) w->offset[k] -= w->strides[k][i] * w->shape[i];
        w->at[i] = 0;
    }
    return false;
}

/* The ops' section is read twice, once for each precision; what knows no precision is read once. */
#define TNI_REAL float
#define TNI_T(name) tni_f32_##name
#include "tensornet.h"
#undef TNI_T
#undef TNI_REAL
#define TNI_REAL double
#define TNI_T(name) tni_f64_##name
#define TNI_ONCE
#include "tensornet.h"
#undef TNI_ONCE
#undef TNI_T
#undef TNI_REAL

#endif /* the lower half of the implementation */

/* ======================================================================
   >>ops-impl  shape, forward and backward of each op, together
   Kernels compute in double and store TNI_REAL: they are the textbook and the oracle, the fast ones are
   in >>cpu. R rows, C columns.
   ====================================================================== */
#if defined(TNI_REAL) && !defined(TNI_LEVEL)

/* ---- copy, fill ------------------------------------------ >>op-copy
   y = x, from any dtype to any, any strides            dx += dy */
static void TNI_T(copy)(const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    tni_walk w;
    bool     more;
    int64_t  i;
    for (more = tni_walk_begin(&w, x, y, NULL); more; more = tni_walk_next(&w))
        for (i = 0; i < w.inner; i++)
            tni_store(y->data, y->dtype, w.offset[1] + i * w.step[1],
                      tni_load(x->data, x->dtype, w.offset[0] + i * w.step[0]));
}

static void TNI_T(fill)(const tn_call *c)
{
    const tn_view *y = &c->out[0];
    tni_walk w;
    bool     more;
    int64_t  i;
    for (more = tni_walk_begin(&w, y, NULL, NULL); more; more = tni_walk_next(&w))
        for (i = 0; i < w.inner; i++) tni_store(y->data, y->dtype, w.offset[0] + i * w.step[0], c->f[0]);
}

static void TNI_T(tick)(const tn_call *c)
{
    *(int32_t *)c->out[0].data = (int32_t)((uint32_t)*(int32_t *)c->out[0].data + (uint32_t)c->i[0]);
}

#ifdef TNI_ONCE
static void tni_copy_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call c = tni_call(TN_KERNEL_ADD, 1, (const tn_tensor *const *)&n->out->grad, 0, NULL);
    c.f[0] = 1;
    tni_run_grad(ctx, &c, n->in[0]);
}

tn_tensor *tn_copy(tn_ctx *ctx, tn_tensor *a)
{
    tn_tensor *y;
    if (!tni_usable(ctx, a, "copy", "a")) return NULL;
    y = tni_like(ctx, a);
    if (!y || tni_copy(y, a) != TN_OK) return NULL;
    tni_note(ctx, tni_copy_backward, y, a, NULL, NULL);
    return y;
}

tn_tensor *tn_cast(tn_ctx *ctx, tn_tensor *a, tn_dtype dtype)
{
    tn_tensor *y;
    if (!tni_usable(ctx, a, "cast", "a") || !tni_dtype_known(ctx, &dtype)) return NULL;
    if (dtype == a->dtype) return tn_copy(ctx, a);
    y = tn_tensor_new(ctx, dtype, a->rank, a->shape);
    return y && tni_copy(y, a) == TN_OK ? y : NULL;
}

tn_tensor *tn_full(tn_ctx *ctx, int rank, const int64_t *shape, double value)
{
    tn_tensor *y = tn_tensor_new(ctx, TN_REAL, rank, shape);
    return y && tni_fill(y, value) == TN_OK ? y : NULL;
}
#endif

/* ---- uniform, normal ------------------------------------- >>op-random
   u = (w + 1/2) 2^-23 of a Philox word; normals from pairs (u,v): sqrt(-2 ln u) (cos, sin)(2 pi v)
   Box & Muller 1958 */
static void TNI_T(uniform)(const tn_call *c)
{
    TNI_REAL *y = (TNI_REAL *)c->out[0].data;
    uint32_t  clock = (uint32_t)*(const int32_t *)c->in[0].data, word[4] = {0, 0, 0, 0};
    int64_t   e, n = c->out[0].shape[0];
    for (e = 0; e < n; e++) {
        if (e % 4 == 0) tni_random_words((uint64_t)c->i[0], c->i[1], clock, (uint64_t)e / 4, word);
        y[e] = (TNI_REAL)(c->f[0] + (c->f[1] - c->f[0]) * (double)tni_unit(word[e % 4]));
    }
}

static void TNI_T(normal)(const tn_call *c)
{
    TNI_REAL *y = (TNI_REAL *)c->out[0].data;
    uint32_t  clock = (uint32_t)*(const int32_t *)c->in[0].data, word[4] = {0, 0, 0, 0};
    int64_t   e, n = c->out[0].shape[0];
    for (e = 0; e < n; e++) {
        double u, v;
        if (e % 4 == 0) tni_random_words((uint64_t)c->i[0], c->i[1], clock, (uint64_t)e / 4, word);
        u = sqrt(-2 * log((double)tni_unit(word[e % 4 & 2])));
        v = 6.283185307179586 * (double)tni_unit(word[(e % 4) | 1]);
        y[e] = (TNI_REAL)(c->f[0] + c->f[1] * u * (e % 2 == 0 ? cos(v) : sin(v)));
    }
}

#ifdef TNI_ONCE
static tn_tensor *tni_random(tn_ctx *ctx, tn_kernel kernel, int rank, const int64_t *shape, double f0, double f1)
{
    tn_tensor *y = tn_tensor_new(ctx, TN_REAL, rank, shape);
    tn_call    c;
    if (!y) return NULL;
    c = tni_call(kernel, 0, NULL, 1, &y);
    c.out[0] = tni_flat_view(y);
    c.f[0] = f0;
    c.f[1] = f1;
    tni_random_call(ctx, &c, 0);
    return tni_run(ctx, &c) == TN_OK ? y : NULL;
}

tn_tensor *tn_uniform(tn_ctx *ctx, int rank, const int64_t *shape, double low, double high)
{
    return tni_random(ctx, TN_KERNEL_UNIFORM, rank, shape, low, high);
}

tn_tensor *tn_normal(tn_ctx *ctx, int rank, const int64_t *shape, double mean, double std)
{
    return tni_random(ctx, TN_KERNEL_NORMAL, rank, shape, mean, std);
}
#endif

/* ---- add, mul, scale ------------------------------------- >>op-add
   y = f0 a + f1 b      da += f0 dy     db += f1 dy      each summed over the axes it was broadcast along
   y = f0 a (x) b       da += f0 dy (x) b                db += f0 dy (x) a */
static void TNI_T(add)(const tn_call *c)
{
    const TNI_REAL *a = (const TNI_REAL *)c->in[0].data, *b = c->n_in > 1 ? (const TNI_REAL *)c->in[1].data : NULL;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    tni_walk w;
    bool     more;
    int64_t  i;
    for (more = tni_walk_begin(&w, &c->out[0], &c->in[0], b ? &c->in[1] : NULL); more; more = tni_walk_next(&w))
        for (i = 0; i < w.inner; i++) {
            TNI_REAL *to = y + w.offset[0] + i * w.step[0];
            double    v = c->f[0] * (double)a[w.offset[1] + i * w.step[1]];
            if (b) v += c->f[1] * (double)b[w.offset[2] + i * w.step[2]];
            *to = (TNI_REAL)(c->accumulate ? (double)*to + v : v);
        }
}

static void TNI_T(mul)(const tn_call *c)
{
    const TNI_REAL *a = (const TNI_REAL *)c->in[0].data, *b = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    tni_walk w;
    bool     more;
    int64_t  i;
    for (more = tni_walk_begin(&w, &c->out[0], &c->in[0], &c->in[1]); more; more = tni_walk_next(&w))
        for (i = 0; i < w.inner; i++) {
            TNI_REAL *to = y + w.offset[0] + i * w.step[0];
            double    v = c->f[0] * (double)a[w.offset[1] + i * w.step[1]] * (double)b[w.offset[2] + i * w.step[2]];
            *to = (TNI_REAL)(c->accumulate ? (double)*to + v : v);
        }
}

#ifdef TNI_ONCE
static bool tni_broadcast(tn_ctx *ctx, const char *op, const tn_tensor *a, const tn_tensor *b, int *rank, int64_t *shape)
{
    int i;
    if (!tni_is_real(ctx, a, op, "a") || !tni_is_real(ctx, b, op, "b")) return false;
    *rank = (int)tni_max(a->rank, b->rank);
    for (i = 0; i < *rank; i++) {
        int     ia = i - (*rank - a->rank), ib = i - (*rank - b->rank);
        int64_t na = ia < 0 ? 1 : a->shape[ia], nb = ib < 0 ? 1 : b->shape[ib];
        if (na != nb && na != 1 && nb != 1) {
            tni_fail(ctx, TN_ERR_SHAPE, "%s: a is %s but b is %s", op, TNI_SHAPE(a), TNI_SHAPE(b));
            return false;
        }
        shape[i] = na == 1 ? nb : na;
    }
    return true;
}

/* The gradient of t, += factor * dy summed over the axes along which t was broadcast. */
static void tni_grad_sum(tn_ctx *ctx, tn_tensor *t, const tn_tensor *dy, double factor)
{
    bool       add, same;
    tn_tensor *g = tni_grad(t, &add);
    tn_call    c;
    if (!g) return;
    same = tni_same_shape(t, dy);
    c = tni_call(same ? TN_KERNEL_ADD : TN_KERNEL_SUM, 1, &dy, 1, &g);
    if (!same) c.out[0] = tni_pad_view(c.out[0], dy->rank);
    c.f[0] = factor;
    c.accumulate = add;
    tni_run(ctx, &c);
}

static void tni_add_backward(tn_ctx *ctx, const tni_node *n)
{
    tni_grad_sum(ctx, n->in[0], n->out->grad, n->f[0]);
    if (n->in[1]) tni_grad_sum(ctx, n->in[1], n->out->grad, n->f[1]);
}

/* += factor dy (x) other; where t was broadcast the product is summed in a second pass */
static void tni_mul_grad(tn_ctx *ctx, tn_tensor *t, const tn_tensor *other, const tn_tensor *dy)
{
    tn_tensor *product = NULL;
    tn_call    c = tni_call(TN_KERNEL_MUL, 1, &dy, 0, NULL);
    if (!tni_wants_grad(t)) return;
    c.in[c.n_in++] = tni_expand_view(tni_view(other), dy->rank, dy->shape);
    c.f[0] = 1;
    if (tni_same_shape(t, dy)) {
        tni_run_grad(ctx, &c, t);
        return;
    }
    product = tni_like(ctx, dy);
    if (!product) return;
    c.out[c.n_out++] = tni_view(product);
    if (tni_run(ctx, &c) == TN_OK) tni_grad_sum(ctx, t, product, 1);
}

static void tni_mul_backward(tn_ctx *ctx, const tni_node *n)
{
    tni_mul_grad(ctx, n->in[0], n->in[1], n->out->grad);
    tni_mul_grad(ctx, n->in[1], n->in[0], n->out->grad);
}

static tn_tensor *tni_binary(tn_ctx *ctx, const char *op, tn_kernel kernel, tn_tensor *a, tn_tensor *b, double f0, double f1)
{
    int        rank;
    int64_t    shape[TN_MAX_RANK];
    tn_tensor *y;
    tn_call    c;
    tni_node  *n;
    if (!tni_broadcast(ctx, op, a, b, &rank, shape)) return NULL;
    y = tn_tensor_new(ctx, TN_REAL, rank, shape);
    if (!y) return NULL;
    c = tni_call(kernel, 0, NULL, 1, &y);
    c.in[c.n_in++] = tni_expand_view(tni_view(a), rank, shape);
    c.in[c.n_in++] = tni_expand_view(tni_view(b), rank, shape);
    c.f[0] = f0;
    c.f[1] = f1;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, kernel == TN_KERNEL_ADD ? tni_add_backward : tni_mul_backward, y, a, b, NULL);
    if (n) { n->f[0] = f0; n->f[1] = f1; }
    return y;
}

tn_tensor *tn_add(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return tni_binary(ctx, "add", TN_KERNEL_ADD, a, b, 1, 1); }
tn_tensor *tn_sub(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return tni_binary(ctx, "sub", TN_KERNEL_ADD, a, b, 1, -1); }
tn_tensor *tn_mul(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return tni_binary(ctx, "mul", TN_KERNEL_MUL, a, b, 1, 0); }

tn_tensor *tn_scale(tn_ctx *ctx, tn_tensor *a, double factor)
{
    tn_tensor *y;
    tn_call    c;
    tni_node  *n;
    if (!tni_is_real(ctx, a, "scale", "a")) return NULL;
    y = tni_like(ctx, a);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_ADD, 1, (const tn_tensor *const *)&a, 1, &y);
    c.f[0] = factor;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_add_backward, y, a, NULL, NULL);
    if (n) n->f[0] = factor;
    return y;
}
#endif

/* ---- sum ------------------------------------------------- >>op-sum
   y = f0 * sum of x over the axes where y has extent 1      dx += f0 dy, spread out again */
static void TNI_T(sum)(const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    tn_view  part = *x, at = *y, base = *x;        /* what is summed into one element; where that starts */
    tni_walk outer, inner;
    bool     more, deeper;
    int64_t  i, j;
    int      k;
    for (k = 0; k < x->rank; k++) {
        bool summed = y->shape[k] == 1 && x->shape[k] != 1;
        if (!summed) part.shape[k] = 1;
        else at.strides[k] = base.strides[k] = 0;
    }
    for (more = tni_walk_begin(&outer, &at, &base, NULL); more; more = tni_walk_next(&outer))
        for (i = 0; i < outer.inner; i++) {
            const TNI_REAL *from = (const TNI_REAL *)x->data + outer.offset[1] + i * outer.step[1];
            TNI_REAL       *to = (TNI_REAL *)y->data + outer.offset[0] + i * outer.step[0];
            double sum = 0;
            for (deeper = tni_walk_begin(&inner, &part, NULL, NULL); deeper; deeper = tni_walk_next(&inner))
                for (j = 0; j < inner.inner; j++) sum += (double)from[inner.offset[0] + j * inner.step[0]];
            *to = (TNI_REAL)(c->f[0] * sum + (c->accumulate ? (double)*to : 0));
        }
}

#ifdef TNI_ONCE
static void tni_sum_backward(tn_ctx *ctx, const tni_node *n)
{
    const tn_tensor *x = n->in[0], *dy = n->out->grad;
    tn_call c = tni_call(TN_KERNEL_ADD, 0, NULL, 0, NULL);
    tn_view v = tni_view(dy);
    if (n->i[0] >= 0) {                       /* put back the axis that went */
        int k, axis = (int)n->i[0];
        v.rank = x->rank;
        for (k = x->rank - 1; k > axis; k--) { v.shape[k] = v.shape[k - 1]; v.strides[k] = v.strides[k - 1]; }
        v.shape[axis] = 1;
        v.strides[axis] = 0;
    }
    c.in[c.n_in++] = tni_expand_view(v, x->rank, x->shape);
    c.f[0] = n->f[0];
    tni_run_grad(ctx, &c, n->in[0]);
}

/* Sums over one axis, or over all (axis -1) into rank 0. */
static tn_tensor *tni_sum(tn_ctx *ctx, tn_tensor *a, int axis, double factor)
{
    int64_t    shape[TN_MAX_RANK];
    int        i, rank = 0;
    tn_tensor *y;
    tn_call    c;
    tni_node  *n;
    for (i = 0; axis >= 0 && i < a->rank; i++)
        if (i != axis) shape[rank++] = a->shape[i];
    y = tn_tensor_new(ctx, TN_REAL, rank, shape);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_SUM, 1, (const tn_tensor *const *)&a, 1, &y);
    c.out[0].rank = a->rank;
    for (i = 0; i < a->rank; i++) {
        bool gone = axis < 0 || i == axis;
        int  from = axis >= 0 && i > axis ? i - 1 : i;
        c.out[0].shape[i] = gone ? 1 : a->shape[i];
        c.out[0].strides[i] = gone ? 0 : y->strides[from];
    }
    c.f[0] = factor;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_sum_backward, y, a, NULL, NULL);
    if (n) { n->f[0] = factor; n->i[0] = axis; }
    return y;
}

tn_tensor *tn_sum(tn_ctx *ctx, tn_tensor *a)
{
    return tni_is_real(ctx, a, "sum", "a") ? tni_sum(ctx, a, -1, 1) : NULL;
}

tn_tensor *tn_sum_axis(tn_ctx *ctx, tn_tensor *a, int axis)
{
    return tni_is_real(ctx, a, "sum_axis", "a") && tni_axis(a, &axis, "sum_axis") ? tni_sum(ctx, a, axis, 1) : NULL;
}

tn_tensor *tn_mean(tn_ctx *ctx, tn_tensor *a)
{
    if (!tni_is_real(ctx, a, "mean", "a")) return NULL;
    if (tn_tensor_count(a) == 0) {
        tni_fail(ctx, TN_ERR_SHAPE, "mean: a is %s, there is nothing to average", TNI_SHAPE(a));
        return NULL;
    }
    return tni_sum(ctx, a, -1, 1.0 / (double)tn_tensor_count(a));
}

/* mean (a-b)^2 */
tn_tensor *tn_mse(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    tn_tensor *d;
    if (!tni_is_real(ctx, a, "mse", "a") || !tni_is_real(ctx, b, "mse", "b")) return NULL;
    if (!tni_same_shape(a, b)) {
        tni_fail(ctx, TN_ERR_SHAPE, "mse: a is %s but b is %s", TNI_SHAPE(a), TNI_SHAPE(b));
        return NULL;
    }
    d = tn_sub(ctx, a, b);
    d = d ? tn_mul(ctx, d, d) : NULL;
    return d ? tn_mean(ctx, d) : NULL;
}
#endif

/* ---- activation ------------------------------------------ >>op-act
   relu max(x,0)   relu2 max(x,0)^2   gelu x Phi(x)   swish x s(x)   sigmoid s(x) = 1/(1+e^-x)
   Phi' = phi: gelu' = Phi + x phi;  s' = s(1-s): swish' = s + x s(1-s)
   abs |x|   round: to the nearest integer, with the slope 1 of the identity it stands for (Bengio et al. 2013)
   exp e^x   tanh: tanh' = 1 - tanh^2
   GELU: Hendrycks & Gimpel 2016   swish: Ramachandran et al. 2017   ReLU squared: So et al. 2021 */
#ifndef TNI_ONCE                         /* needed by both precisions: read with the first */
static double tni_act_value(int64_t kind, double x)
{
    switch (kind) {
    case TN_ACT_RELU:    return x > 0 || x != x ? x : 0;
    case TN_ACT_RELU2:   return x > 0 || x != x ? x * x : 0;
    case TN_ACT_GELU:    return 0.5 * x * erfc(-0.7071067811865476 * x);
    case TN_ACT_SWISH:   return x / (1 + exp(-x));
    case TN_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case TN_ACT_ABS:     return fabs(x);
    case TN_ACT_ROUND:   return rint(x);
    case TN_ACT_EXP:     return exp(x);
    case TN_ACT_TANH:    return tanh(x);
    default:             return x;
    }
}

static double tni_act_slope(int64_t kind, double x)
{
    double s = 1 / (1 + exp(-x));
    switch (kind) {
    case TN_ACT_RELU:    return x > 0 ? 1 : x != x ? x : 0;
    case TN_ACT_RELU2:   return x > 0 ? 2 * x : x != x ? x : 0;
    case TN_ACT_GELU:    return 0.5 * erfc(-0.7071067811865476 * x) + x * 0.3989422804014327 * exp(-0.5 * x * x);
    case TN_ACT_SWISH:   return s + x * s * (1 - s);
    case TN_ACT_SIGMOID: return s * (1 - s);
    case TN_ACT_ABS:     return x > 0 ? 1 : x < 0 ? -1 : x;      /* x: 0, or NaN */
    case TN_ACT_EXP:     return exp(x);
    case TN_ACT_TANH:    return (1 - tanh(x)) * (1 + tanh(x));
    default:             return 1;
    }
}
#endif

static void TNI_T(act)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         i, n = c->out[0].shape[0];
    for (i = 0; i < n; i++) y[i] = (TNI_REAL)tni_act_value(c->i[0], (double)x[i]);
}

static void TNI_T(act_backward)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data;
    int64_t         i, n = c->out[0].shape[0];
    for (i = 0; i < n; i++) {
        double v = (double)dy[i] * tni_act_slope(c->i[0], (double)x[i]);
        dx[i] = (TNI_REAL)(c->accumulate ? (double)dx[i] + v : v);
    }
}

#ifdef TNI_ONCE
static void tni_act_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *g = tni_grad(n->in[0], &add);
    tn_call    c = tni_call(TN_KERNEL_ACT_BACKWARD, 0, NULL, 0, NULL);
    if (!g) return;
    c.in[c.n_in++] = tni_flat_view(n->in[0]);
    c.in[c.n_in++] = tni_flat_view(n->out->grad);
    c.out[c.n_out++] = tni_flat_view(g);
    c.i[0] = n->i[0];
    c.accumulate = add;
    tni_run(ctx, &c);
}

static bool tni_act_known(tn_ctx *ctx, const char *op, tn_act kind)
{
    if ((unsigned)kind <= TN_ACT_TANH) return true;
    tni_fail(ctx, TN_ERR_ARG, "%s: %d is no activation", op, (int)kind);
    return false;
}

tn_tensor *tn_activation(tn_ctx *ctx, tn_tensor *x, tn_act kind)
{
    tn_tensor *y;
    tn_call    c;
    tni_node  *n;
    if (!(x = tni_contiguous(ctx, x, "activation", "x")) || !tni_act_known(ctx, "activation", kind)) return NULL;
    y = tni_like(ctx, x);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_ACT, 0, NULL, 0, NULL);
    c.in[c.n_in++] = tni_flat_view(x);
    c.out[c.n_out++] = tni_flat_view(y);
    c.i[0] = kind;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_act_backward, y, x, NULL, NULL);
    if (n) n->i[0] = kind;
    return y;
}
#endif

/* ---- glu -------------------------------------------------- >>op-glu
   y = act(a) (x) b,  x = [a b]       da += dy (x) b (x) act'(a)      db += dy (x) act(a)
   act = none: bilinear; sigmoid: GLU (Dauphin et al. 2017); relu, gelu, swish: Shazeer 2020 */
static void TNI_T(glu)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         r, j, h = c->out[0].shape[1];
    for (r = 0; r < c->out[0].shape[0]; r++, x += 2 * h, y += h)
        for (j = 0; j < h; j++) y[j] = (TNI_REAL)(tni_act_value(c->i[0], (double)x[j]) * (double)x[h + j]);
}

static void TNI_T(glu_backward)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data;
    int64_t         r, j, h = c->in[1].shape[1];
    for (r = 0; r < c->in[1].shape[0]; r++, x += 2 * h, dx += 2 * h, dy += h)
        for (j = 0; j < h; j++) {
            double da = (double)dy[j] * (double)x[h + j] * tni_act_slope(c->i[0], (double)x[j]);
            double db = (double)dy[j] * tni_act_value(c->i[0], (double)x[j]);
            dx[j] = (TNI_REAL)(c->accumulate ? (double)dx[j] + da : da);
            dx[h + j] = (TNI_REAL)(c->accumulate ? (double)dx[h + j] + db : db);
        }
}

#ifdef TNI_ONCE
/* dx of an op on rows whose kernel wants x, dy and the number that the node keeps. */
static void tni_rows_backward(tn_ctx *ctx, const tni_node *n, tn_kernel kernel)
{
    bool       add;
    tn_tensor *g = tni_grad(n->in[0], &add);
    tn_call    c = tni_call(kernel, 0, NULL, 0, NULL);
    if (!g) return;
    c.in[c.n_in++] = tni_rows_view(n->in[0]);
    c.in[c.n_in++] = tni_rows_view(n->out->grad);
    c.out[c.n_out++] = tni_rows_view(g);
    c.i[0] = n->i[0];
    c.accumulate = add;
    tni_run(ctx, &c);
}

static void tni_glu_backward(tn_ctx *ctx, const tni_node *n) { tni_rows_backward(ctx, n, TN_KERNEL_GLU_BACKWARD); }

tn_tensor *tn_glu(tn_ctx *ctx, tn_tensor *x, tn_act kind)
{
    int64_t    shape[TN_MAX_RANK];
    tn_tensor *y;
    tn_call    c;
    tni_node  *n;
    if (!(x = tni_contiguous(ctx, x, "glu", "x")) || !tni_act_known(ctx, "glu", kind)) return NULL;
    if (x->rank < 1 || x->shape[x->rank - 1] % 2 != 0) {
        tni_fail(ctx, TN_ERR_SHAPE, "glu: x is %s, but its last extent must be even", TNI_SHAPE(x));
        return NULL;
    }
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] /= 2;
    y = tn_tensor_new(ctx, TN_REAL, x->rank, shape);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_GLU, 0, NULL, 0, NULL);
    c.in[c.n_in++] = tni_rows_view(x);
    c.out[c.n_out++] = tni_rows_view(y);
    c.i[0] = kind;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_glu_backward, y, x, NULL, NULL);
    if (n) n->i[0] = kind;
    return y;
}
#endif

/* ---- prod -------------------------------------------------- >>op-prod
   y = x_0 (x) ... (x) x_(k-1),  x = [x_0 .. x_(k-1)]       dx_e += dy (x) the product of all but x_e
   The other factors are multiplied, never y divided by x_e: a zero among them loses nothing. */
static void TNI_T(prod)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         r, j, e, h = c->out[0].shape[1], k = c->i[0];
    for (r = 0; r < c->out[0].shape[0]; r++, x += k * h, y += h)
        for (j = 0; j < h; j++) {
            double v = 1;
            for (e = 0; e < k; e++) v *= (double)x[e * h + j];
            y[j] = (TNI_REAL)v;
        }
}

static void TNI_T(prod_backward)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data;
    int64_t         r, j, e, f, h = c->in[1].shape[1], k = c->i[0];
    for (r = 0; r < c->in[1].shape[0]; r++, x += k * h, dx += k * h, dy += h)
        for (e = 0; e < k; e++)
            for (j = 0; j < h; j++) {
                TNI_REAL *to = dx + e * h + j;
                double    v = (double)dy[j];
                for (f = 0; f < k; f++) if (f != e) v *= (double)x[f * h + j];
                *to = (TNI_REAL)(c->accumulate ? (double)*to + v : v);
            }
}

#ifdef TNI_ONCE
static void tni_prod_backward(tn_ctx *ctx, const tni_node *n) { tni_rows_backward(ctx, n, TN_KERNEL_PROD_BACKWARD); }

tn_tensor *tn_prod(tn_ctx *ctx, tn_tensor *x, int64_t k)
{
    int64_t    shape[TN_MAX_RANK];
    tn_tensor *y;
    tn_call    c;
    tni_node  *n;
    if (!(x = tni_contiguous(ctx, x, "prod", "x"))) return NULL;
    if (x->rank < 1 || k < 1 || x->shape[x->rank - 1] % k != 0) {
        tni_fail(ctx, TN_ERR_SHAPE, "prod: x is %s, but its last extent must be a multiple of k = %lld, at least 1",
                 TNI_SHAPE(x), (long long)k);
        return NULL;
    }
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] /= k;
    y = tn_tensor_new(ctx, TN_REAL, x->rank, shape);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_PROD, 0, NULL, 0, NULL);
    c.in[c.n_in++] = tni_rows_view(x);
    c.out[c.n_out++] = tni_rows_view(y);
    c.i[0] = k;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_prod_backward, y, x, NULL, NULL);
    if (n) n->i[0] = k;
    return y;
}
#endif

/* ---- gemm: matmul and affine ------------------------------ >>op-gemm
   C = alpha A B + beta C + bias       dA += dC B^T      dB += A^T dC      dbias += sum of rows of dC
   Transposed operands are strides. beta = 0 never reads C. */
static void TNI_T(gemm)(const tn_call *c)
{
    const tn_view *A = &c->in[0], *B = &c->in[1], *bias = &c->in[2], *C = &c->out[0];
    int64_t b, i, j, k;
    for (b = 0; b < C->shape[0]; b++)
        for (i = 0; i < C->shape[1]; i++)
            for (j = 0; j < C->shape[2]; j++) {
                const TNI_REAL *x = (const TNI_REAL *)A->data + b * A->strides[0] + i * A->strides[1];
                const TNI_REAL *y = (const TNI_REAL *)B->data + b * B->strides[0] + j * B->strides[2];
                TNI_REAL       *z = (TNI_REAL *)C->data + b * C->strides[0] + i * C->strides[1] + j * C->strides[2];
                double          sum = 0;
                for (k = 0; k < A->shape[2]; k++) sum += (double)x[k * A->strides[2]] * (double)y[k * B->strides[1]];
                sum *= c->f[0];
                if (c->f[1] != 0) sum += c->f[1] * (double)*z;
                if (c->n_in > 2 && bias->data) sum += (double)((const TNI_REAL *)bias->data)[j * bias->strides[0]];
                *z = (TNI_REAL)sum;
            }
}

#ifdef TNI_ONCE
static tn_view tni_transposed_view(tn_view v)                    /* the last two axes */
{
    int64_t n = v.shape[v.rank - 1], s = v.strides[v.rank - 1];
    v.shape[v.rank - 1] = v.shape[v.rank - 2];
    v.strides[v.rank - 1] = v.strides[v.rank - 2];
    v.shape[v.rank - 2] = n;
    v.strides[v.rank - 2] = s;
    return v;
}

static tn_view tni_one_matrix(tn_view v)                         /* [m,n] -> [1,m,n] */
{
    return tni_pad_view(v, 3);
}

/* C = alpha A B + beta C + bias on views [b,m,k] [b,k,n] [b,m,n]. */
static tn_status tni_gemm(tn_ctx *ctx, tn_view a, tn_view b, const tn_tensor *bias, tn_view out, double alpha, double beta)
{
    tn_call c = tni_call(TN_KERNEL_GEMM, 0, NULL, 0, NULL);
    c.in[c.n_in++] = a;
    c.in[c.n_in++] = b;
    if (bias) c.in[c.n_in++] = tni_view(bias);
    c.out[c.n_out++] = out;
    c.f[0] = alpha;
    c.f[1] = beta;
    return tni_run(ctx, &c);
}

/* [.., m, n] as [batch, m, n]; a contiguous tensor, or any matrix */
static tn_view tni_batch_view(const tn_tensor *t)
{
    tn_view v = tni_view(t);
    int64_t batch = 1;
    int     i, r = t->rank;
    if (r == 2) return tni_one_matrix(v);
    for (i = 0; i < r - 2; i++) batch *= t->shape[i];
    v.rank = 3;
    v.shape[2] = t->shape[r - 1];
    v.shape[1] = t->shape[r - 2];
    v.shape[0] = batch;
    v.strides[2] = 1;                    /* what t says where an extent is 1 means nothing */
    v.strides[1] = v.shape[2];
    v.strides[0] = v.shape[1] * v.shape[2];
    return v;
}

static tn_view tni_matrix_of(tn_view v, int64_t b)               /* matrix b of a batch, as a batch of one */
{
    v.data = (char *)v.data + b * v.strides[0] * (int64_t)tni_dtype_size(v.dtype);
    v.shape[0] = 1;
    return v;
}

/* grad t += A B, batch by batch where t is one matrix that served a whole batch */
static void tni_gemm_grad(tn_ctx *ctx, tn_tensor *t, tn_view a, tn_view b)
{
    bool       add;
    tn_tensor *g = tni_grad(t, &add);
    int64_t    i, batch = tni_max(a.shape[0], b.shape[0]);
    tn_view    out;
    if (!g) return;
    out = tni_batch_view(g);
    if (out.shape[0] == batch) {
        tni_gemm(ctx, a, b, NULL, out, 1, add ? 1 : 0);
        return;
    }
    if (batch == 0 && !add) tni_fill(g, 0);
    for (i = 0; i < batch; i++)
        tni_gemm(ctx, tni_matrix_of(a, i), tni_matrix_of(b, i), NULL, out, 1, add || i > 0 ? 1 : 0);
}

static void tni_stretch_batch(tn_view *v, int64_t batch)         /* one matrix for every member of the batch */
{
    if (v->shape[0] == batch) return;
    v->shape[0] = batch;
    v->strides[0] = 0;
}

static void tni_matmul_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_view a = tni_batch_view(n->in[0]), b = tni_batch_view(n->in[1]), dc = tni_batch_view(n->out->grad);
    tni_stretch_batch(&a, dc.shape[0]);
    tni_stretch_batch(&b, dc.shape[0]);
    tni_gemm_grad(ctx, n->in[0], dc, tni_transposed_view(b));
    tni_gemm_grad(ctx, n->in[1], tni_transposed_view(a), dc);
}

tn_tensor *tn_matmul(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    int64_t    shape[TN_MAX_RANK];
    int        rank;
    tn_tensor *y;
    tn_view    va, vb, vc;
    if (!tni_is_real(ctx, a, "matmul", "a") || !tni_is_real(ctx, b, "matmul", "b")) return NULL;
    if (a->rank < 2 || b->rank < 2 || a->shape[a->rank - 1] != b->shape[b->rank - 2]
        || (a->rank > 2 && b->rank > 2
            && (a->rank != b->rank || memcmp(a->shape, b->shape, sizeof *shape * (size_t)(a->rank - 2)) != 0))) {
        tni_fail(ctx, TN_ERR_SHAPE, "matmul: a is %s but b is %s", TNI_SHAPE(a), TNI_SHAPE(b));
        return NULL;
    }
    if (a->rank > 2 && !(a = tni_contiguous(ctx, a, "matmul", "a"))) return NULL;
    if (b->rank > 2 && !(b = tni_contiguous(ctx, b, "matmul", "b"))) return NULL;
    rank = (int)tni_max(a->rank, b->rank);
    memcpy(shape, a->rank == rank ? a->shape : b->shape, sizeof shape);
    shape[rank - 2] = a->shape[a->rank - 2];
    shape[rank - 1] = b->shape[b->rank - 1];
    y = tn_tensor_new(ctx, TN_REAL, rank, shape);
    if (!y) return NULL;
    va = tni_batch_view(a);
    vb = tni_batch_view(b);
    vc = tni_batch_view(y);
    tni_stretch_batch(&va, vc.shape[0]);
    tni_stretch_batch(&vb, vc.shape[0]);
    if (tni_gemm(ctx, va, vb, NULL, vc, 1, 0) != TN_OK) return NULL;
    tni_note(ctx, tni_matmul_backward, y, a, b, NULL);
    return y;
}

static void tni_affine_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_tensor *x = n->in[0], *w = n->in[1], *bias = n->in[2], *g;
    tn_view    dy = tni_one_matrix(tni_rows_view(n->out->grad));
    bool       add;
    g = tni_grad(x, &add);
    if (g) tni_gemm(ctx, dy, tni_one_matrix(tni_view(w)), NULL, tni_one_matrix(tni_rows_view(g)), 1, add ? 1 : 0);
    g = tni_grad(w, &add);
    if (g)
        tni_gemm(ctx, tni_transposed_view(dy), tni_one_matrix(tni_rows_view(x)), NULL, tni_one_matrix(tni_view(g)), 1,
                 add ? 1 : 0);
    g = bias ? tni_grad(bias, &add) : NULL;
    if (g) {
        tn_call c = tni_call(TN_KERNEL_SUM, 0, NULL, 0, NULL);
        c.in[c.n_in++] = tni_rows_view(n->out->grad);
        c.out[c.n_out++] = tni_pad_view(tni_view(g), 2);
        c.f[0] = 1;
        c.accumulate = add;
        tni_run(ctx, &c);
    }
}

tn_tensor *tn_affine(tn_ctx *ctx, tn_tensor *x, tn_tensor *w, tn_tensor *b)
{
    int64_t    shape[TN_MAX_RANK];
    tn_tensor *y;
    if (!(x = tni_contiguous(ctx, x, "affine", "x")) || !tni_is_real(ctx, w, "affine", "w")) return NULL;
    if (b && !tni_is_real(ctx, b, "affine", "b")) return NULL;
    if (x->rank < 1 || w->rank != 2 || x->shape[x->rank - 1] != w->shape[1]) {
        tni_fail(ctx, TN_ERR_SHAPE, "affine: x is %s but w is %s", TNI_SHAPE(x), TNI_SHAPE(w));
        return NULL;
    }
    if (b && (b->rank != 1 || b->shape[0] != w->shape[0])) {
        tni_fail(ctx, TN_ERR_SHAPE, "affine: w is %s but b is %s", TNI_SHAPE(w), TNI_SHAPE(b));
        return NULL;
    }
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = w->shape[0];
    y = tn_tensor_new(ctx, TN_REAL, x->rank, shape);
    if (!y) return NULL;
    if (tni_gemm(ctx, tni_one_matrix(tni_rows_view(x)), tni_transposed_view(tni_one_matrix(tni_view(w))), b,
                 tni_one_matrix(tni_rows_view(y)), 1, 0) != TN_OK) return NULL;
    tni_note(ctx, tni_affine_backward, y, x, w, b);
    return y;
}
#endif

/* ---- append_one ------------------------------------------- >>op-append_one
   y = [x;1]: the bias of the next layer becomes a column of its matrix      dx += dy without its last column */
#ifdef TNI_ONCE
static tn_view tni_columns_view(const tn_tensor *t, int64_t start, int64_t stop)
{
    tn_view v = tni_rows_view(t);
    v.data = (char *)v.data + start * (int64_t)tni_dtype_size(v.dtype);
    v.shape[1] = stop - start;
    return v;
}

static void tni_append_one_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *g = tni_grad(n->in[0], &add);
    tn_call    c = tni_call(TN_KERNEL_ADD, 0, NULL, 0, NULL);
    if (!g) return;
    c.out[c.n_out++] = tni_rows_view(g);
    c.in[c.n_in++] = tni_columns_view(n->out->grad, 0, c.out[0].shape[1]);
    c.f[0] = 1;
    c.accumulate = add;
    tni_run(ctx, &c);
}

tn_tensor *tn_append_one(tn_ctx *ctx, tn_tensor *x)
{
    int64_t    shape[TN_MAX_RANK], columns;
    tn_tensor *y;
    tn_call    c;
    if (!(x = tni_contiguous(ctx, x, "append_one", "x"))) return NULL;
    if (x->rank < 1) {
        tni_fail(ctx, TN_ERR_SHAPE, "append_one: x has rank 0, there is no last axis");
        return NULL;
    }
    memcpy(shape, x->shape, sizeof shape);
    columns = shape[x->rank - 1]++;
    y = tn_tensor_new(ctx, TN_REAL, x->rank, shape);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_COPY, 0, NULL, 0, NULL);
    c.in[c.n_in++] = tni_rows_view(x);
    c.out[c.n_out++] = tni_columns_view(y, 0, columns);
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    c = tni_call(TN_KERNEL_FILL, 0, NULL, 0, NULL);
    c.out[c.n_out++] = tni_columns_view(y, columns, columns + 1);
    c.f[0] = 1;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    tni_note(ctx, tni_append_one_backward, y, x, NULL, NULL);
    return y;
}
#endif

/* ---- embed ------------------------------------------------ >>op-embed
   y[r] = table[ids[r]]         dtable[ids[r]] += dy[r], rows in order          a bad id: zeros, and a fault */
#ifndef TNI_ONCE
static void tni_fault(const tn_view *word, int32_t code, int64_t which, int64_t value, int32_t step)
{
    int32_t *f = (int32_t *)word->data;
    if (!f || f[0] != 0) return;                     /* the first one wins */
    f[0] = code;
    f[1] = (int32_t)which;
    f[2] = (int32_t)value;
    f[3] = step;
}
#endif

static void TNI_T(embed)(const tn_call *c)
{
    const TNI_REAL *table = (const TNI_REAL *)c->in[0].data;
    const int32_t  *ids = (const int32_t *)c->in[1].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    int64_t         r, R = c->out[0].shape[0], d = c->out[0].shape[1];
    for (r = 0; r < R; r++, y += d) {
        bool good = ids[r] >= 0 && ids[r] < c->in[0].shape[0];
        if (good) memcpy(y, table + ids[r] * d, sizeof *y * (size_t)d);
        else memset(y, 0, sizeof *y * (size_t)d);
        if (!good) tni_fault(&c->out[1], 1, r, ids[r], 0);
    }
}

static void TNI_T(embed_backward)(const tn_call *c)
{
    const int32_t  *ids = (const int32_t *)c->in[0].data;
    const TNI_REAL *dy = (const TNI_REAL *)c->in[1].data;
    int64_t         r, j, R = c->in[1].shape[0], d = c->in[1].shape[1];
    for (r = 0; r < R; r++, dy += d) {
        TNI_REAL *to = (TNI_REAL *)c->out[0].data;
        if (ids[r] < 0 || ids[r] >= c->out[0].shape[0]) continue;
        to += ids[r] * d;
        for (j = 0; j < d; j++) to[j] = (TNI_REAL)(to[j] + dy[j]);
    }
}

#ifdef TNI_ONCE
static void tni_embed_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_tensor *g = tni_grad_to_add(n->in[0]);
    tn_call    c = tni_call(TN_KERNEL_EMBED_BACKWARD, 0, NULL, 1, &g);
    if (!g) return;
    c.in[c.n_in++] = tni_flat_view(n->saved[0]);
    c.in[c.n_in++] = tni_rows_view(n->out->grad);
    tni_run(ctx, &c);
}

tn_tensor *tn_embed(tn_ctx *ctx, tn_tensor *table, tn_tensor *ids)
{
    int64_t    shape[TN_MAX_RANK];
    tn_tensor *y;
    tn_call    c;
    tni_node  *n;
    if (!(table = tni_contiguous(ctx, table, "embed", "table")) || !tni_is_ids(ctx, ids, "embed", "ids")) return NULL;
    if (table->rank != 2 || ids->rank >= TN_MAX_RANK) {
        tni_fail(ctx, TN_ERR_SHAPE, "embed: table is %s and ids are %s", TNI_SHAPE(table), TNI_SHAPE(ids));
        return NULL;
    }
    if (!tn_tensor_contiguous(ids) && !(ids = tn_copy(ctx, ids))) return NULL;
    memcpy(shape, ids->shape, sizeof shape);
    shape[ids->rank] = table->shape[1];
    y = tn_tensor_new(ctx, TN_REAL, ids->rank + 1, shape);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_EMBED, 1, (const tn_tensor *const *)&table, 0, NULL);
    c.in[c.n_in++] = tni_flat_view(ids);
    c.out[c.n_out++] = tni_rows_view(y);
    c.out[c.n_out++] = tni_view(ctx->fault);
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_embed_backward, y, table, NULL, NULL);
    if (n) n->saved[0] = ids;
    return y;
}
#endif

/* ---- rmsnorm ---------------------------------------------- >>op-rmsnorm
   y[n,c]   = x[n,c] r[n] w[c]      r[n] = 1/sqrt(mean_c x^2 + eps)
   dw[c]   += sum_n dy x r
   dx[n,c] += r (w dy - x r^2 mean_c(w dy x))         saves r[n]
   Zhang & Sennrich 2019 */
static void TNI_T(rmsnorm)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *w = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data, *r = (TNI_REAL *)c->out[1].data;
    int64_t         n, j, R = c->out[0].shape[0], C = c->out[0].shape[1];
    for (n = 0; n < R; n++, x += C, y += C) {
        double squares = 0, scale;
        for (j = 0; j < C; j++) squares += (double)x[j] * (double)x[j];
        scale = 1 / sqrt(squares / (double)C + c->f[0]);
        r[n] = (TNI_REAL)scale;
        for (j = 0; j < C; j++) y[j] = (TNI_REAL)((double)x[j] * scale * (w ? (double)w[j] : 1));
    }
}

static void TNI_T(rmsnorm_backward)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *w = (const TNI_REAL *)c->in[1].data;
    const TNI_REAL *r = (const TNI_REAL *)c->in[2].data, *dy = (const TNI_REAL *)c->in[3].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data, *dw = c->n_out > 1 ? (TNI_REAL *)c->out[1].data : NULL;
    int64_t         n, j, R = c->in[0].shape[0], C = c->in[0].shape[1];
    for (n = 0; n < R; n++, x += C, dy += C) {
        double scale = (double)r[n], dot = 0;
        for (j = 0; j < C; j++) dot += (w ? (double)w[j] : 1) * (double)dy[j] * (double)x[j];
        for (j = 0; dx && j < C; j++) {
            double v = scale * ((w ? (double)w[j] : 1) * (double)dy[j] - (double)x[j] * scale * scale * dot / (double)C);
            dx[n * C + j] = (TNI_REAL)(c->accumulate ? (double)dx[n * C + j] + v : v);
        }
        for (j = 0; dw && j < C; j++) dw[j] = (TNI_REAL)((double)dw[j] + (double)dy[j] * (double)x[j] * scale);
    }
}

#ifdef TNI_ONCE
static void tni_rmsnorm_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *dx = tni_grad(n->in[0], &add), *dw = n->in[1] ? tni_grad_to_add(n->in[1]) : NULL;
    tn_call    c = tni_call(TN_KERNEL_RMSNORM_BACKWARD, 0, NULL, 0, NULL);
    c.in[0] = tni_rows_view(n->in[0]);
    c.in[1] = tni_view(n->in[1]);
    c.in[2] = tni_view(n->saved[0]);
    c.in[3] = tni_rows_view(n->out->grad);
    c.n_in = 4;
    if (dx) c.out[0] = tni_rows_view(dx);
    c.n_out = 2;
    c.accumulate = add;
    if (dx && dw && tni_root(dx) == tni_root(dw)) {    /* the gain is a part of x: no kernel writes one place twice */
        tni_run(ctx, &c);
        c.out[0].data = NULL;
    }
    if (dw) c.out[1] = tni_view(dw);
    tni_run(ctx, &c);
}

static bool tni_is_eps(tn_ctx *ctx, double eps, const char *op)
{
    if (eps >= 0 && eps < HUGE_VAL) return true;
    tni_fail(ctx, TN_ERR_ARG, "%s: eps is %g, but must be zero or positive", op, eps);
    return false;
}

tn_tensor *tn_rmsnorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *gain, double eps)
{
    tn_tensor *y, *r;
    tn_call    c;
    tni_node  *n;
    if (!(x = tni_contiguous(ctx, x, "rmsnorm", "x")) || !tni_is_eps(ctx, eps, "rmsnorm")) return NULL;
    if (gain && !(gain = tni_contiguous(ctx, gain, "rmsnorm", "gain"))) return NULL;
    if (x->rank < 1 || (gain && (gain->rank != 1 || gain->shape[0] != x->shape[x->rank - 1]))) {
        tni_fail(ctx, TN_ERR_SHAPE, "rmsnorm: x is %s and gain is %s", TNI_SHAPE(x), gain ? TNI_SHAPE(gain) : "absent");
        return NULL;
    }
    y = tni_like(ctx, x);
    r = y ? tn_tensor_1d(ctx, TN_REAL, tni_rows_view(x).shape[0]) : NULL;
    if (!r) return NULL;
    c = tni_call(TN_KERNEL_RMSNORM, 0, NULL, 0, NULL);
    c.in[c.n_in++] = tni_rows_view(x);
    c.in[c.n_in++] = tni_view(gain);
    c.out[c.n_out++] = tni_rows_view(y);
    c.out[c.n_out++] = tni_view(r);
    c.f[0] = eps;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_rmsnorm_backward, y, x, gain, NULL);
    if (n) n->saved[0] = r;
    return y;
}
#endif

/* ---- layernorm --------------------------------------------- >>op-layernorm
   z[n,c]   = (x[n,c] - mean_c x) r[n]     r[n] = 1/sqrt(mean_c (x - mean_c x)^2 + eps)     y = z w[c] + b[c]
   dw[c]   += sum_n dy z        db[c] += sum_n dy
   dx[n,c] += r (w dy - mean_c(w dy) - z mean_c(w dy z))         saves r[n]
   The variance from differences, not as mean x^2 - mean^2; and their mean, which rounding left, is taken off again:
   a row that is far from zero against its width loses no digit (Chan, Golub & LeVeque 1983).
   Ba, Kiros & Hinton 2016 */
static double TNI_T(row_mean)(const TNI_REAL *x, int64_t C, double *rest)
{
    double  sum = 0, left = 0;
    int64_t j;
    for (j = 0; j < C; j++) sum += (double)x[j];
    sum /= (double)C;
    for (j = 0; j < C; j++) left += (double)x[j] - sum;
    *rest = left / (double)C;
    return sum;
}

static void TNI_T(layernorm)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *w = (const TNI_REAL *)c->in[1].data,
                   *b = (const TNI_REAL *)c->in[2].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data, *r = (TNI_REAL *)c->out[1].data;
    int64_t         n, j, R = c->out[0].shape[0], C = c->out[0].shape[1];
    for (n = 0; n < R; n++, x += C, y += C) {
        double rest, mean = TNI_T(row_mean)(x, C, &rest), squares = 0, scale;
        for (j = 0; j < C; j++) squares += ((double)x[j] - mean - rest) * ((double)x[j] - mean - rest);
        scale = 1 / sqrt(squares / (double)C + c->f[0]);
        r[n] = (TNI_REAL)scale;
        for (j = 0; j < C; j++)
            y[j] = (TNI_REAL)(((double)x[j] - mean - rest) * scale * (w ? (double)w[j] : 1) + (b ? (double)b[j] : 0));
    }
}

static void TNI_T(layernorm_backward)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data, *w = (const TNI_REAL *)c->in[1].data;
    const TNI_REAL *r = (const TNI_REAL *)c->in[2].data, *dy = (const TNI_REAL *)c->in[3].data;
    TNI_REAL       *dx = (TNI_REAL *)c->out[0].data, *dw = (TNI_REAL *)c->out[1].data, *db = (TNI_REAL *)c->out[2].data;
    int64_t         n, j, R = c->in[0].shape[0], C = c->in[0].shape[1];
    for (n = 0; n < R; n++, x += C, dy += C) {
        double rest, mean = TNI_T(row_mean)(x, C, &rest), scale = (double)r[n], sum = 0, dot = 0;
        for (j = 0; j < C; j++) {
            double d = (double)dy[j], z = ((double)x[j] - mean - rest) * scale;
            if (db) db[j] = (TNI_REAL)((double)db[j] + d);
            if (dw) dw[j] = (TNI_REAL)((double)dw[j] + d * z);
            if (w) d *= (double)w[j];
            sum += d;
            dot += d * z;
        }
        for (j = 0; dx && j < C; j++) {
            double z = ((double)x[j] - mean - rest) * scale;
            double v = scale * ((w ? (double)w[j] : 1) * (double)dy[j] - sum / (double)C - z * dot / (double)C);
            dx[n * C + j] = (TNI_REAL)(c->accumulate ? (double)dx[n * C + j] + v : v);
        }
    }
}

#ifdef TNI_ONCE
static void tni_layernorm_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *g[3];
    tn_view    all[3];
    tn_call    c = tni_call(TN_KERNEL_LAYERNORM_BACKWARD, 0, NULL, 0, NULL);
    bool       apart = false;
    int        k, j;
    memset(all, 0, sizeof all);
    for (k = 0; k < 3; k++) {
        g[k] = k == 0 ? tni_grad(n->in[0], &add) : n->in[k] ? tni_grad_to_add(n->in[k]) : NULL;
        all[k].dtype = n->out->dtype;
        if (!g[k]) continue;
        all[k] = k == 0 ? tni_rows_view(g[k]) : tni_view(g[k]);
        for (j = 0; j < k; j++) apart = apart || (g[j] && tni_root(g[j]) == tni_root(g[k]));
    }
    c.in[0] = tni_rows_view(n->in[0]);
    c.in[1] = tni_view(n->in[1]);
    c.in[2] = tni_view(n->saved[0]);
    c.in[3] = tni_rows_view(n->out->grad);
    c.n_in = 4;
    c.n_out = 3;
    c.accumulate = add;
    memcpy(c.out, all, sizeof all);
    if (!apart) tni_run(ctx, &c);
    for (k = 0; apart && k < 3; k++) {   /* gain or bias are a part of x, or one tensor: no kernel writes one place twice */
        if (!g[k]) continue;
        for (j = 0; j < 3; j++) c.out[j].data = j == k ? all[k].data : NULL;
        tni_run(ctx, &c);
    }
}

static bool tni_fits_columns(tn_ctx *ctx, const tn_tensor *x, const tn_tensor *t, const char *op, const char *what)
{
    if (!t || (t->rank == 1 && t->shape[0] == x->shape[x->rank - 1])) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "%s: x is %s and %s is %s", op, TNI_SHAPE(x), what, TNI_SHAPE(t));
    return false;
}

tn_tensor *tn_layernorm(tn_ctx *ctx, tn_tensor *x, tn_tensor *gain, tn_tensor *bias, double eps)
{
    tn_tensor *y, *r;
    tn_call    c;
    tni_node  *n;
    if (!(x = tni_contiguous(ctx, x, "layernorm", "x")) || !tni_is_eps(ctx, eps, "layernorm")) return NULL;
    if (gain && !(gain = tni_contiguous(ctx, gain, "layernorm", "gain"))) return NULL;
    if (bias && !(bias = tni_contiguous(ctx, bias, "layernorm", "bias"))) return NULL;
    if (x->rank < 1) {
        tni_fail(ctx, TN_ERR_SHAPE, "layernorm: x has rank 0, there is no last axis");
        return NULL;
    }
    if (!tni_fits_columns(ctx, x, gain, "layernorm", "gain") || !tni_fits_columns(ctx, x, bias, "layernorm", "bias"))
        return NULL;
    y = tni_like(ctx, x);
    r = y ? tn_tensor_1d(ctx, TN_REAL, tni_rows_view(x).shape[0]) : NULL;
    if (!r) return NULL;
    c = tni_call(TN_KERNEL_LAYERNORM, 0, NULL, 0, NULL);
    c.in[c.n_in++] = tni_rows_view(x);
    c.in[c.n_in++] = tni_view(gain);
    c.in[c.n_in++] = tni_view(bias);
    c.out[c.n_out++] = tni_rows_view(y);
    c.out[c.n_out++] = tni_view(r);
    c.f[0] = eps;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_layernorm_backward, y, x, gain, bias);
    if (n) n->saved[0] = r;
    return y;
}
#endif

/* ---- chain --------------------------------------------------- >>op-chain
   P_j = P_(j-1) M_j / v_j,  v_j = |P_(j-1) M_j|_F,  P_(-1) = I.    y = P_(n-1),  s = sum_j log v_j
   dM_j = e^(l + g) P_(j-1)^T G_j      l = log of what P_(j-1) was divided by, g = that of G_j
   G_(n-1) = (dy - <y,dy> y + ds y),  g = -s;   G_(j-1) = G_j M_j^T / its norm
   saves P [b,n,d,d] and v [b,n] while recording; any v will do but the last, and the fast kernel has 1 where it can.
   l + g is carried as one number: -log v_(n-1) at first. */

/* Divides x by its Frobenius norm, which it returns; zeros stay zeros. By the largest element first: squares could
   overflow. */
static double TNI_T(chain_normalise)(TNI_REAL *x, int64_t n)
{
    double  most = 0, sum = 0, norm;
    int64_t i;
    for (i = 0; i < n; i++) {
        double size = fabs((double)x[i]);
        if (!(size <= most)) most = size;                  /* keeps a NaN */
    }
    if (most == 0) return 0;
    for (i = 0; i < n; i++) sum += (double)x[i] / most * ((double)x[i] / most);
    norm = (double)(TNI_REAL)(most * sqrt(sum));
    for (i = 0; i < n; i++) x[i] = (TNI_REAL)((double)x[i] / norm);
    return norm;
}

/* c = a b, or a^T b, or a b^T.   all [d,d] */
static void TNI_T(chain_product)(const TNI_REAL *a, bool ta, const TNI_REAL *b, bool tb, TNI_REAL *out, int64_t d)
{
    int64_t i, j, k;
    for (i = 0; i < d; i++)
        for (j = 0; j < d; j++) {
            double sum = 0;
            for (k = 0; k < d; k++) sum += (double)a[ta ? k * d + i : i * d + k] * (double)b[tb ? j * d + k : k * d + j];
            out[i * d + j] = (TNI_REAL)sum;
        }
}

/* The gradient of the normalised product, which is what the rest of the chain sees of dy and ds. */
static void TNI_T(chain_seed)(TNI_REAL *g, const TNI_REAL *y, const TNI_REAL *dout, int64_t n)
{
    double  dot = 0;
    int64_t i;
    for (i = 0; i < n; i++) dot += (double)y[i] * (double)dout[i];
    for (i = 0; i < n; i++) g[i] = (TNI_REAL)((double)dout[i] + ((double)dout[n] - dot) * (double)y[i]);
}

static void TNI_T(chain)(const tn_call *c)
{
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data, *p = (TNI_REAL *)c->out[1].data, *v = (TNI_REAL *)c->out[2].data;
    TNI_REAL       *work = (TNI_REAL *)c->out[3].data;
    int64_t         b, j, n = c->in[0].shape[1], d = c->in[0].shape[2], dd = d * d;
    for (b = 0; b < c->in[0].shape[0]; b++, y += dd + 1) {
        double log_norm = 0;
        for (j = 0; j < n; j++, m += dd) {
            TNI_REAL *to = p ? p + (b * n + j) * dd : work + j % 2 * dd;
            double    norm;
            if (j == 0) memcpy(to, m, sizeof *to * (size_t)dd);
            else TNI_T(chain_product)(p ? to - dd : work + (j + 1) % 2 * dd, false, m, false, to, d);
            norm = TNI_T(chain_normalise)(to, dd);
            if (v) v[b * n + j] = (TNI_REAL)norm;
            log_norm += log(norm);
            if (j == n - 1) memcpy(y, to, sizeof *y * (size_t)dd);
        }
        y[dd] = (TNI_REAL)log_norm;
    }
}

static void TNI_T(chain_backward)(const tn_call *c)
{
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data, *p = (const TNI_REAL *)c->in[1].data,
                   *v = (const TNI_REAL *)c->in[2].data;
    const TNI_REAL *dout = (const TNI_REAL *)c->in[3].data;
    TNI_REAL       *dm = (TNI_REAL *)c->out[0].data, *work = (TNI_REAL *)c->out[1].data;
    int64_t         b, i, j, n = c->in[0].shape[1], d = c->in[0].shape[2], dd = d * d;
    for (b = 0; b < c->in[0].shape[0]; b++, dout += dd + 1) {
        TNI_REAL *g = work, *next = work + dd, *product = work + 2 * dd, *swap;
        int64_t   last = (b + 1) * n - 1;
        double    scale = -log((double)v[last]);
        TNI_T(chain_seed)(g, p + last * dd, dout, dd);
        for (j = last; j >= b * n; j--) {
            double norm, factor = v[last] == 0 ? 0 : exp(scale);
            if (j > b * n) TNI_T(chain_product)(p + (j - 1) * dd, true, g, false, product, d);
            else           memcpy(product, g, sizeof *g * (size_t)dd);
            for (i = 0; i < dd; i++) {
                double gradient = factor == 0 ? 0 : factor * (double)product[i];
                dm[j * dd + i] = (TNI_REAL)(c->accumulate ? (double)dm[j * dd + i] + gradient : gradient);
            }
            if (j == b * n) break;
            TNI_T(chain_product)(g, false, m + j * dd, true, next, d);
            norm = TNI_T(chain_normalise)(next, dd);
            if (norm != 0) scale += log(norm);
            scale -= log((double)v[j - 1]);
            swap = g; g = next; next = swap;
        }
    }
}

#ifdef TNI_ONCE
/* Room for `count` matrices of each chain: kernels do not allocate. */
static tn_tensor *tni_chain_work(tn_tensor *m, int64_t count)
{
    return tn_tensor_3d(m->ctx, TN_REAL, m->shape[0], count, m->shape[2] * m->shape[2]);
}

static void tni_chain_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call    c = tni_call(TN_KERNEL_CHAIN_BACKWARD, 0, NULL, 0, NULL);
    tn_tensor *work = tni_chain_work(n->in[0], 4);
    if (!work) return;
    c.in[c.n_in++] = tni_view(n->in[0]);
    c.in[c.n_in++] = tni_view(n->saved[0]);
    c.in[c.n_in++] = tni_view(n->saved[1]);
    c.in[c.n_in++] = tni_view(n->out->grad);
    c.n_out = 2;
    c.out[1] = tni_view(work);
    tni_run_grad(ctx, &c, n->in[0]);
}

tn_tensor *tn_chain(tn_ctx *ctx, tn_tensor *m, tn_tensor **log_norm)
{
    tn_tensor *out, *p = NULL, *v = NULL, *work, *y;
    tn_call    c;
    tni_node  *node;
    int64_t    d, shape[3];
    if (log_norm) *log_norm = NULL;
    if (!(m = tni_contiguous(ctx, m, "chain", "m"))) return NULL;
    if (m->rank != 4 || m->shape[2] != m->shape[3] || m->shape[1] < 1) {
        tni_fail(ctx, TN_ERR_SHAPE, "chain: m is %s, but must be [b,n,d,d] with n >= 1", TNI_SHAPE(m));
        return NULL;
    }
    d = m->shape[2];
    if (!(out = tn_tensor_2d(ctx, TN_REAL, m->shape[0], d * d + 1)) || !(work = tni_chain_work(m, 2))) return NULL;
    if (ctx->recording && tni_wants_grad(m)
        && (!(p = tni_like(ctx, m)) || !(v = tn_tensor_2d(ctx, TN_REAL, m->shape[0], m->shape[1]))))
        return NULL;
    c = tni_call(TN_KERNEL_CHAIN, 1, (const tn_tensor *const *)&m, 1, &out);
    c.n_out = 4;
    c.out[1] = tni_view(p);
    c.out[2] = tni_view(v);
    c.out[3] = tni_view(work);
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    node = tni_note(ctx, tni_chain_backward, out, m, NULL, NULL);
    if (node) { node->saved[0] = p; node->saved[1] = v; }
    /* The two results are views of one tensor, so that their gradients arrive together. */
    shape[0] = m->shape[0]; shape[1] = d; shape[2] = d;
    y = tn_slice(out, 1, 0, d * d);
    if (log_norm && y && !(*log_norm = tn_slice(out, 1, d * d, d * d + 1))) return NULL;
    if (y) { y->rank = 3; memcpy(y->shape, shape, sizeof shape); y->strides[1] = d; y->strides[2] = 1; }
    if (log_norm && *log_norm) (*log_norm)->rank = 1;
    return y;
}
#endif

/* ---- rope --------------------------------------------------- >>op-rope
   y = R_t x / |x|,  |x| = sqrt(mean_k x_k^2 + eps), or 1 without the norm
   R_t turns (x_k, x_(k+h)), k < h = d/2, by (first + t) base^(-2k/d)
   dx += (g - x mean_k(g x) / |x|^2) / |x|,  g = R_t^T dy         R^T turns back
   Su et al. 2021 */

/* The row of heads n of [B,T,n,d]: the last axis has stride 1. */
static TNI_REAL *TNI_T(row)(const tn_view *x, int64_t b, int64_t t, int64_t n)
{
    return (TNI_REAL *)x->data + b * x->strides[0] + t * x->strides[1] + n * x->strides[2];
}

#ifndef TNI_ONCE                         /* needed by both precisions: read with the first */
/* Cosine and sine of the angle of pair k in row t; 1 and 0 for what stays. */
static void tni_rope_angle(const tn_call *c, int64_t t, int64_t k, double *cosine, double *sine)
{
    const int64_t d = c->in[0].shape[3];
    double angle = c->i[1] || k >= d / 2 ? 0 : (double)(c->i[0] + t) * pow(c->f[0], -2 * (double)k / (double)d);
    *cosine = cos(angle);
    *sine = sin(angle);
}
#endif

/* 1/|x| */
static double TNI_T(rope_norm)(const tn_call *c, const TNI_REAL *x, int64_t d)
{
    double  squares = 0;
    int64_t k;
    if (c->f[1] < 0) return 1;
    for (k = 0; k < d; k++) squares += (double)x[k] * (double)x[k];
    return 1 / sqrt(squares / (double)d + c->f[1]);
}

static void TNI_T(rope)(const tn_call *c)
{
    const tn_view *X = &c->in[0];
    int64_t b, t, n, k, d = X->shape[3], h = d / 2;
    for (b = 0; b < X->shape[0]; b++)
        for (t = 0; t < X->shape[1]; t++)
            for (n = 0; n < X->shape[2]; n++) {
                const TNI_REAL *x = TNI_T(row)(X, b, t, n);
                TNI_REAL       *y = TNI_T(row)(&c->out[0], b, t, n);
                double norm = TNI_T(rope_norm)(c, x, d), cosine, sine;
                for (k = 0; k < h; k++) {
                    tni_rope_angle(c, t, k, &cosine, &sine);
                    y[k] = (TNI_REAL)(norm * ((double)x[k] * cosine - (double)x[k + h] * sine));
                    y[k + h] = (TNI_REAL)(norm * ((double)x[k + h] * cosine + (double)x[k] * sine));
                }
                if (d % 2) y[d - 1] = (TNI_REAL)(norm * (double)x[d - 1]);
            }
}

/* Element k of R_t^T dy. */
static double TNI_T(rope_back)(const tn_call *c, const TNI_REAL *dy, int64_t t, int64_t k)
{
    const int64_t d = c->in[0].shape[3], h = d / 2;
    double cosine, sine;
    tni_rope_angle(c, t, k < 2 * h ? k % h : k, &cosine, &sine);
    if (k >= 2 * h) return (double)dy[k];
    return (double)dy[k] * cosine + (k < h ? (double)dy[k + h] : -(double)dy[k - h]) * sine;
}

static void TNI_T(rope_backward)(const tn_call *c)
{
    const tn_view *X = &c->in[0];
    int64_t b, t, n, k, d = X->shape[3];
    for (b = 0; b < X->shape[0]; b++)
        for (t = 0; t < X->shape[1]; t++)
            for (n = 0; n < X->shape[2]; n++) {
                const TNI_REAL *x = TNI_T(row)(X, b, t, n), *dy = TNI_T(row)(&c->in[1], b, t, n);
                TNI_REAL       *dx = TNI_T(row)(&c->out[0], b, t, n);
                double norm = TNI_T(rope_norm)(c, x, d), dot = 0;
                for (k = 0; k < d && c->f[1] >= 0; k++) dot += TNI_T(rope_back)(c, dy, t, k) * (double)x[k];
                for (k = 0; k < d; k++) {
                    double v = norm * (TNI_T(rope_back)(c, dy, t, k) - (double)x[k] * norm * norm * dot / (double)d);
                    dx[k] = (TNI_REAL)(c->accumulate ? (double)dx[k] + v : v);
                }
            }
}

#ifdef TNI_ONCE
/* A real operand [B,T,n,d] whose last axis has stride 1, copied (and that recorded) where it has not. */
static tn_tensor *tni_heads(tn_ctx *ctx, tn_tensor *t, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return NULL;
    if (t->rank != 4) {
        tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, but must have four axes: batch, position, head, dimension", op, what,
                 TNI_SHAPE(t));
        return NULL;
    }
    return t->strides[3] == 1 || t->shape[3] <= 1 ? t : tn_copy(ctx, t);
}

/* The numbers of a call, for the node and from it. */
static void tni_node_keep(tni_node *n, const tn_call *c)
{
    memcpy(n->i, c->i, sizeof n->i);
    memcpy(n->f, c->f, sizeof n->f);
}

static void tni_node_give(const tni_node *n, tn_call *c)
{
    memcpy(c->i, n->i, sizeof n->i);
    memcpy(c->f, n->f, sizeof n->f);
}

static void tni_rope_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call c = tni_call(TN_KERNEL_ROPE_BACKWARD, 0, NULL, 0, NULL);
    c.in[c.n_in++] = tni_view(n->in[0]);
    c.in[c.n_in++] = tni_view(n->out->grad);
    tni_node_give(n, &c);
    tni_run_grad(ctx, &c, n->in[0]);
}

tn_tensor *tn_rope(tn_ctx *ctx, tn_tensor *x, const tn_rope_desc *desc)
{
    tn_rope_desc d;
    tn_tensor   *y;
    tn_call      c;
    tni_node    *n;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    if (!(x = tni_heads(ctx, x, "rope", "x")) || !tni_is_eps(ctx, d.eps, "rope")) return NULL;
    if (d.base == 0) d.base = 10000;
    if (d.eps == 0) d.eps = 1e-6;
    if (!(d.base > 0 && d.base < HUGE_VAL)) {
        tni_fail(ctx, TN_ERR_ARG, "rope: the base is %g, but must be positive", d.base);
        return NULL;
    }
    if (d.no_rotation && !d.norm) return x;
    if (!(y = tni_like(ctx, x))) return NULL;
    c = tni_call(TN_KERNEL_ROPE, 1, (const tn_tensor *const *)&x, 1, &y);
    c.f[0] = d.base;
    c.f[1] = d.norm ? d.eps : -1;
    c.i[0] = d.first;
    c.i[1] = d.no_rotation;
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_rope_backward, y, x, NULL, NULL);
    if (n) tni_node_keep(n, &c);
    return y;
}
#endif

/* ---- attention, quadratic ------------------------------------ >>op-attention
   o_i = c_i sum_j P_ij v_j,  s_ij = f0 q_i.k_j over the keys that query i sees
   softmax: P_ij = exp(s_ij - l_i), l_i = log sum_j exp s_ij;   bilinear: P = s1 s2;   squared: the same with both sets equal
   With u_i = c_i do_i, and w_i = -do_i.o_i (softmax), -c_i do_i.o_i (row sum, c_i = 1/(eps + sum_j P_ij)), else 0:
   dP_ij = u_i.v_j + w_i      dv_j += sum_i P_ij u_i
   softmax: ds_ij = P_ij dP_ij     else: ds1_ij = s2_ij dP_ij, ds2_ij = s1_ij dP_ij
   dq_i += f0 sum_j ds_ij k_j      dk_j += f0 sum_i ds_ij q_i
   saves what makes P again without a sum: l_i, or the row's eps + sum. The reference goes by queries, then by keys. */
#ifndef TNI_ONCE
static tni_seen tni_attend_seen(const tn_call *c, int64_t i)
{
    const int64_t Tk = c->in[1].shape[1], own = Tk - c->in[0].shape[1] + i, window = c->i[2];
    tni_seen s;
    s.low = window > 0 ? tni_max(own - window + 1, 0) : 0;
    s.high = c->i[1] ? own + 1 : window > 0 ? tni_min(own + window, Tk) : Tk;
    s.high = tni_max(s.high, s.low);
    s.n = s.high - s.low + c->i[3];
    return s;
}

/* c_i, where it depends on the number of keys alone */
static double tni_attend_row_scale(const tn_call *c, int64_t n)
{
    switch ((int)c->f[2]) {
    case TN_ROW_LENGTH: return (double)n > c->f[1] ? sqrt(c->f[1] / (double)n) : 1;
    case TN_ROW_MEAN:   return n > 0 ? 1 / (double)n : 0;
    default:            return 1;
    }
}

static bool tni_attend_sums(const tn_call *c) { return (int)c->f[2] == TN_ROW_SUM; }
#endif

/* Both scores of query i and key j; with one set of q and k they are the same. */
static void TNI_T(attend_scores)(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, double s[2])
{
    const int64_t H = c->in[2].shape[2], d = c->in[0].shape[3], sets = c->i[0] == TN_ATTEND_BILINEAR ? 2 : 1;
    int64_t set, a;
    for (set = 0; set < sets; set++) {
        const TNI_REAL *q = TNI_T(row)(&c->in[0], b, i, h + set * H), *k = TNI_T(row)(&c->in[1], b, j, h + set * H);
        s[set] = 0;
        for (a = 0; a < d; a++) s[set] += (double)q[a] * (double)k[a];
        s[set] *= c->f[0];
    }
    if (sets == 1) s[1] = s[0];
}

static double TNI_T(attend_largest)(const tn_call *c, int64_t b, int64_t h, int64_t i, tni_seen seen)
{
    double  s[2], most = -HUGE_VAL;
    int64_t j;
    for (j = seen.low; j < seen.high; j++) {
        TNI_T(attend_scores)(c, b, h, i, j, s);
        if (!(s[0] <= most)) most = s[0];                  /* keeps a NaN, until the next number; exp finds it again */
    }
    return most;
}

static void TNI_T(attention)(const tn_call *c)
{
    const tn_view *O = &c->out[0];
    const bool     softmax = c->i[0] == TN_ATTEND_SOFTMAX;
    TNI_REAL      *stat = (TNI_REAL *)c->out[1].data;
    double        *sum = (double *)c->out[2].data;                                                  /* [dv] */
    int64_t        b, h, i, j, e, B = O->shape[0], T = O->shape[1], H = O->shape[2], dv = O->shape[3];
    for (b = 0; b < B; b++)
        for (h = 0; h < H; h++)
            for (i = 0; i < T; i++) {
                const tni_seen seen = tni_attend_seen(c, i);
                double    most = softmax ? TNI_T(attend_largest)(c, b, h, i, seen) : 0, total = 0, scale;
                TNI_REAL *o = TNI_T(row)(O, b, i, h);
                bool      none = seen.n == 0 || most == -HUGE_VAL;
                for (e = 0; e < dv; e++) sum[e] = 0;
                for (j = seen.low; j < seen.high && !none; j++) {
                    const TNI_REAL *v = TNI_T(row)(&c->in[2], b, j, h);
                    double s[2], p;
                    TNI_T(attend_scores)(c, b, h, i, j, s);
                    p = softmax ? exp(s[0] - most) : s[0] * s[1];
                    total += p;
                    for (e = 0; e < dv; e++) sum[e] += p * (double)v[e];
                }
                if (tni_attend_sums(c)) total += c->f[3];
                scale = tni_attend_row_scale(c, seen.n) / (softmax || tni_attend_sums(c) ? total : 1);
                for (e = 0; e < dv; e++) o[e] = (TNI_REAL)(none ? 0 : scale * sum[e]);
                if (stat) stat[(b * H + h) * T + i] = (TNI_REAL)(softmax ? most + log(total) : total);
            }
}

/* u_i and, behind it, w_i. */
static void TNI_T(attend_upstream)(const tn_call *c, int64_t b, int64_t h, int64_t i, double *u)
{
    const TNI_REAL *dout = TNI_T(row)(&c->in[5], b, i, h);
    const int64_t   T = c->in[0].shape[1], H = c->in[2].shape[2], dv = c->in[2].shape[3];
    const bool      sums = tni_attend_sums(c);
    double  scale = tni_attend_row_scale(c, tni_attend_seen(c, i).n), dot = 0;
    int64_t e;
    if (sums) scale = 1 / (double)((const TNI_REAL *)c->in[4].data)[(b * H + h) * T + i];
    for (e = 0; e < dv; e++) u[e] = scale * (double)dout[e];
    if (c->i[0] == TN_ATTEND_SOFTMAX || sums) {
        const TNI_REAL *o = TNI_T(row)(&c->in[3], b, i, h);
        for (e = 0; e < dv; e++) dot += (double)dout[e] * (double)o[e];
    }
    u[dv] = -dot * (sums ? scale : 1);
}

/* P_ij, and the gradients ds of both scores, the scale in them: softmax has one, squared twice the same. */
static double TNI_T(attend_slopes)(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, const double *u,
                                   double ds[2])
{
    const TNI_REAL *v = TNI_T(row)(&c->in[2], b, j, h);
    const int64_t   T = c->in[0].shape[1], H = c->in[2].shape[2], dv = c->in[2].shape[3];
    double  s[2], dp = u[dv], p;
    int64_t e;
    for (e = 0; e < dv; e++) dp += u[e] * (double)v[e];
    TNI_T(attend_scores)(c, b, h, i, j, s);
    if (c->i[0] == TN_ATTEND_SOFTMAX) {
        double whole = (double)((const TNI_REAL *)c->in[4].data)[(b * H + h) * T + i];
        p = whole == -HUGE_VAL ? 0 : exp(s[0] - whole);
        ds[0] = c->f[0] * p * dp;
        ds[1] = 0;
        return p;
    }
    ds[0] = c->f[0] * s[1] * dp;
    ds[1] = c->f[0] * s[0] * dp;
    return s[0] * s[1];
}

/* sum [2,d] += ds (x) row x of both sets */
static void TNI_T(attend_add)(const tn_call *c, const tn_view *x, int64_t b, int64_t h, int64_t t, const double ds[2],
                              double *sum)
{
    const int64_t H = c->in[2].shape[2], d = x->shape[3], other = c->i[0] == TN_ATTEND_BILINEAR ? H : 0;
    int64_t set, a;
    for (set = 0; set < 2; set++) {
        const TNI_REAL *from = TNI_T(row)(x, b, t, h + set * other);
        for (a = 0; a < d; a++) sum[set * d + a] += ds[set] * (double)from[a];
    }
}

/* Row t of the gradient of q or k += sum [2,d]. */
static void TNI_T(attend_store)(const tn_call *c, const tn_view *dx, int64_t b, int64_t h, int64_t t, const double *sum)
{
    const int64_t H = c->in[2].shape[2], d = dx->shape[3], two = c->i[0] == TN_ATTEND_BILINEAR;
    int64_t set, a;
    if (!dx->data) return;
    for (set = 0; set <= two; set++) {
        TNI_REAL *to = TNI_T(row)(dx, b, t, h + set * H);
        for (a = 0; a < d; a++) to[a] = (TNI_REAL)((double)to[a] + sum[set * d + a] + (two ? 0 : sum[d + a]));
    }
}

/* Row j of dv += sum [dv]. */
static void TNI_T(attend_store_v)(const tn_view *dv, int64_t b, int64_t h, int64_t j, const double *sum)
{
    TNI_REAL *to = TNI_T(row)(dv, b, j, h);
    int64_t   e;
    for (e = 0; dv->data && e < dv->shape[3]; e++) to[e] = (TNI_REAL)((double)to[e] + sum[e]);
}

/* What the pair (i,j) adds to the sums of query i (dq [2,d]), or of key j (dk [2,d] and, behind it, dv); one is NULL. */
static void TNI_T(attend_pair)(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, const double *u, double *dq,
                               double *dk)
{
    const int64_t d = c->in[0].shape[3], dv = c->in[2].shape[3];
    double  ds[2], p = TNI_T(attend_slopes)(c, b, h, i, j, u, ds);
    int64_t e;
    if (dq) TNI_T(attend_add)(c, &c->in[1], b, h, j, ds, dq);
    if (!dk) return;
    TNI_T(attend_add)(c, &c->in[0], b, h, i, ds, dk);
    for (e = 0; e < dv; e++) dk[2 * d + e] += p * u[e];
}

static void TNI_T(attention_backward)(const tn_call *c)
{
    const tn_view *Q = &c->in[0], *V = &c->in[2];
    int64_t  b, h, i, j, a, d = Q->shape[3], dv = V->shape[3];
    double  *u = (double *)c->out[3].data, *sum = u + dv + 1;                           /* [dv+1], [2 d + dv + 1] */
    for (b = 0; b < V->shape[0]; b++)
        for (h = 0; h < V->shape[2]; h++) {
            for (i = 0; i < Q->shape[1]; i++) {
                const tni_seen seen = tni_attend_seen(c, i);
                for (a = 0; a < 2 * d; a++) sum[a] = 0;
                TNI_T(attend_upstream)(c, b, h, i, u);
                for (j = seen.low; j < seen.high; j++) TNI_T(attend_pair)(c, b, h, i, j, u, sum, NULL);
                TNI_T(attend_store)(c, &c->out[0], b, h, i, sum);
            }
            for (j = 0; j < V->shape[1]; j++) {
                for (a = 0; a < 2 * d + dv; a++) sum[a] = 0;
                for (i = 0; i < Q->shape[1]; i++) {
                    const tni_seen seen = tni_attend_seen(c, i);
                    if (j < seen.low || j >= seen.high) continue;
                    TNI_T(attend_upstream)(c, b, h, i, u);
                    TNI_T(attend_pair)(c, b, h, i, j, u, NULL, sum);
                }
                TNI_T(attend_store)(c, &c->out[1], b, h, j, sum);
                TNI_T(attend_store_v)(&c->out[2], b, h, j, sum + 2 * d);
            }
        }
}

/* ---- attention, linear --------------------------------------- >>op-attention_linear
   (q1.k1)(q2.k2) = phi(q).phi(k),  phi(x) = x1 (x) x2: the rows' Khatri-Rao product (squared: x_a x_b, a <= b, times
   sqrt 2 where a < b). Queries go in chunks. What a chunk's first query has before it is in the state
   S = sum_j phi(k_j) v_j^T:    o_i = c_i (f0^2 phi(q_i)^T S + the pairs inside the chunk as above)
   Backward, u and w as above, v' = [v 1], u' = [u w]: a sweep forwards with S = sum_j phi(k_j) v'_j^T, and one backwards
   with G = sum_i f0^2 phi(q_i) u'_i^T of the queries behind:
   dphi(q_i) = f0^2 S u'_i      dphi(k_j) = G v'_j      dv_j += G^T phi(k_j)
   dphi goes to its factors: dx1_a += dphi_ab x2_b, dx2_b += dphi_ab x1_a. phi is never held. */
#ifndef TNI_ONCE
enum { TNI_ATTEND_CHUNK = 16 };          /* of the reference */

static int64_t tni_attend_features(int64_t kind, int64_t d) { return kind == TN_ATTEND_SQUARED ? d * (d + 1) / 2 : d * d; }

/* Keys before this one are in the state when query i's chunk begins with i. */
static int64_t tni_attend_before(const tn_call *c, int64_t i)
{
    const int64_t Tq = c->in[0].shape[1], Tk = c->in[1].shape[1];
    return c->i[1] ? tni_max(Tk - Tq + i, 0) : Tk;
}
#endif

/* One row of q or k as the state sees it. */
typedef struct TNI_T(features) { const TNI_REAL *x1, *x2; int64_t d, squared; } TNI_T(features);

static TNI_T(features) TNI_T(features_of)(const tn_call *c, const tn_view *x, int64_t b, int64_t h, int64_t t)
{
    TNI_T(features) f;
    f.squared = c->i[0] == TN_ATTEND_SQUARED;
    f.d = x->shape[3];
    f.x1 = TNI_T(row)(x, b, t, h);
    f.x2 = f.squared ? f.x1 : TNI_T(row)(x, b, t, h + c->in[2].shape[2]);
    return f;
}

/* S [F,n] += factor phi(x) u^T,   u [n] */
static void TNI_T(state_add)(TNI_T(features) f, double factor, const double *u, int64_t n, double *S)
{
    int64_t a, b, e;
    for (a = 0; a < f.d; a++)
        for (b = f.squared ? a : 0; b < f.d; b++, S += n) {
            double phi = factor * (double)f.x1[a] * (double)f.x2[b] * (f.squared && a < b ? sqrt(2.0) : 1);
            for (e = 0; e < n; e++) S[e] += phi * u[e];
        }
}

/* y [n] += factor S^T phi(x) */
static void TNI_T(state_read)(TNI_T(features) f, double factor, const double *S, int64_t n, double *y)
{
    int64_t a, b, e;
    for (a = 0; a < f.d; a++)
        for (b = f.squared ? a : 0; b < f.d; b++, S += n) {
            double phi = factor * (double)f.x1[a] * (double)f.x2[b] * (f.squared && a < b ? sqrt(2.0) : 1);
            for (e = 0; e < n; e++) y[e] += phi * S[e];
        }
}

/* dx [2,d] += the gradient of factor phi(x)^T S u */
static void TNI_T(state_slope)(TNI_T(features) f, double factor, const double *S, const double *u, int64_t n, double *dx)
{
    int64_t a, b, e;
    for (a = 0; a < f.d; a++)
        for (b = f.squared ? a : 0; b < f.d; b++, S += n) {
            double dphi = 0;
            for (e = 0; e < n; e++) dphi += S[e] * u[e];
            dphi *= factor * (f.squared && a < b ? sqrt(2.0) : 1);
            dx[a] += dphi * (double)f.x2[b];
            dx[f.d + b] += dphi * (double)f.x1[a];
        }
}

/* v' of key j: its values, then a one. */
static void TNI_T(attend_values)(const tn_call *c, int64_t b, int64_t h, int64_t j, double *v)
{
    const TNI_REAL *from = TNI_T(row)(&c->in[2], b, j, h);
    int64_t e, dv = c->in[2].shape[3];
    for (e = 0; e < dv; e++) v[e] = (double)from[e];
    v[dv] = 1;
}

static void TNI_T(attention_linear)(const tn_call *c)
{
    const tn_view *O = &c->out[0];
    TNI_REAL      *stat = (TNI_REAL *)c->out[1].data, *state = (TNI_REAL *)c->out[2].data;
    const int64_t  F = tni_attend_features(c->i[0], c->in[0].shape[3]), Tk = c->in[1].shape[1];
    const int64_t  T = O->shape[1], H = O->shape[2], dv = O->shape[3], n = dv + tni_attend_sums(c);
    double        *S = (double *)c->out[3].data, *sum = S + F * n, *v = sum + dv + 1;   /* [F,n], [n], [dv+1] */
    int64_t        b, h, i, j, e;
    for (b = 0; b < O->shape[0]; b++)
        for (h = 0; h < H; h++) {
            int64_t first = 0, added = 0;
            for (e = 0; e < F * n; e++) S[e] = state ? (double)state[(b * H + h) * F * n + e] : 0;
            for (i = 0; i <= T; i++) {                      /* at T: what the state has yet to take in */
                const tni_seen seen = tni_attend_seen(c, i);
                TNI_REAL *o;
                double    scale;
                if (i % TNI_ATTEND_CHUNK == 0 || i == T) {
                    first = i == T ? Tk : tni_attend_before(c, i);
                    for (; added < first; added++) {
                        TNI_T(attend_values)(c, b, h, added, v);
                        TNI_T(state_add)(TNI_T(features_of)(c, &c->in[1], b, h, added), 1, v, n, S);
                    }
                }
                if (i == T) break;
                for (e = 0; e < n; e++) sum[e] = 0;
                TNI_T(state_read)(TNI_T(features_of)(c, &c->in[0], b, h, i), c->f[0] * c->f[0], S, n, sum);
                for (j = first; j < seen.high; j++) {
                    double s[2];
                    TNI_T(attend_scores)(c, b, h, i, j, s);
                    TNI_T(attend_values)(c, b, h, j, v);
                    for (e = 0; e < n; e++) sum[e] += s[0] * s[1] * v[e];
                }
                scale = tni_attend_sums(c) ? 1 / (sum[dv] + c->f[3]) : tni_attend_row_scale(c, seen.n);
                o = TNI_T(row)(O, b, i, h);
                for (e = 0; e < dv; e++) o[e] = (TNI_REAL)(scale * sum[e]);
                if (stat) stat[(b * H + h) * T + i] = (TNI_REAL)(sum[dv] + c->f[3]);
            }
            for (e = 0; state && e < F * n; e++) state[(b * H + h) * F * n + e] = (TNI_REAL)S[e];
        }
}

/* dq: S takes in the keys, and each query takes what it holds. */
static void TNI_T(linear_queries)(const tn_call *c, int64_t b, int64_t h, double *S, double *work)
{
    const tn_view *Q = &c->in[0], *K = &c->in[1];
    const int64_t  d = Q->shape[3], dv = c->in[2].shape[3], n = dv + 1, F = tni_attend_features(c->i[0], d);
    double        *u = work, *v = u + n, *sum = v + n;
    int64_t        i, j, a, first = 0, added = 0;
    for (a = 0; a < F * n; a++) S[a] = 0;
    for (i = 0; i < Q->shape[1]; i++) {
        const tni_seen seen = tni_attend_seen(c, i);
        if (i % TNI_ATTEND_CHUNK == 0)
            for (first = tni_attend_before(c, i); added < first; added++) {
                TNI_T(attend_values)(c, b, h, added, v);
                TNI_T(state_add)(TNI_T(features_of)(c, K, b, h, added), 1, v, n, S);
            }
        for (a = 0; a < 2 * d; a++) sum[a] = 0;
        TNI_T(attend_upstream)(c, b, h, i, u);
        TNI_T(state_slope)(TNI_T(features_of)(c, Q, b, h, i), c->f[0] * c->f[0], S, u, n, sum);
        for (j = first; j < seen.high; j++) TNI_T(attend_pair)(c, b, h, i, j, u, sum, NULL);
        TNI_T(attend_store)(c, &c->out[0], b, h, i, sum);
    }
}

/* dk and dv of the keys [from,to), which the queries [begin,end) see by pairs and those behind by G. */
static void TNI_T(linear_keys_of)(const tn_call *c, int64_t b, int64_t h, int64_t from, int64_t to, int64_t begin,
                                  int64_t end, const double *G, double *work)
{
    const int64_t d = c->in[0].shape[3], n = c->in[2].shape[3] + 1;
    double       *u = work, *v = u + n, *sum = v + n;                                    /* [2 d + n] */
    int64_t       i, j, a;
    for (j = from; j < to; j++) {
        TNI_T(features) f = TNI_T(features_of)(c, &c->in[1], b, h, j);
        for (a = 0; a < 2 * d + n; a++) sum[a] = 0;
        TNI_T(attend_values)(c, b, h, j, v);
        TNI_T(state_slope)(f, 1, G, v, n, sum);
        TNI_T(state_read)(f, 1, G, n, sum + 2 * d);
        for (i = begin; i < end; i++) {
            if (tni_attend_seen(c, i).high <= j) continue;
            TNI_T(attend_upstream)(c, b, h, i, u);
            TNI_T(attend_pair)(c, b, h, i, j, u, NULL, sum);
        }
        TNI_T(attend_store)(c, &c->out[1], b, h, j, sum);
        TNI_T(attend_store_v)(&c->out[2], b, h, j, sum + 2 * d);
    }
}

/* dk and dv: from the last chunk to the first, G takes in the queries. */
static void TNI_T(linear_keys)(const tn_call *c, int64_t b, int64_t h, double *G, double *work)
{
    const tn_view *Q = &c->in[0];
    const int64_t  d = Q->shape[3], n = c->in[2].shape[3] + 1, F = tni_attend_features(c->i[0], d), T = Q->shape[1];
    int64_t        begin, end, i, to = c->in[1].shape[1];
    for (i = 0; i < F * n; i++) G[i] = 0;
    for (end = T; end > 0; end = begin) {
        begin = (end - 1) / TNI_ATTEND_CHUNK * TNI_ATTEND_CHUNK;
        TNI_T(linear_keys_of)(c, b, h, tni_attend_before(c, begin), to, begin, end, G, work);
        to = tni_attend_before(c, begin);
        for (i = begin; i < end; i++) {
            TNI_T(attend_upstream)(c, b, h, i, work);
            TNI_T(state_add)(TNI_T(features_of)(c, Q, b, h, i), c->f[0] * c->f[0], work, n, G);
        }
    }
    TNI_T(linear_keys_of)(c, b, h, 0, to, 0, 0, G, work);
}

static void TNI_T(attention_linear_backward)(const tn_call *c)
{
    const tn_view *V = &c->in[2];
    const int64_t  F = tni_attend_features(c->i[0], c->in[0].shape[3]);
    double        *S = (double *)c->out[3].data, *work = S + F * (V->shape[3] + 1);
    int64_t        b, h;
    for (b = 0; b < V->shape[0]; b++)
        for (h = 0; h < V->shape[2]; h++) {
            if (c->out[0].data) TNI_T(linear_queries)(c, b, h, S, work);
            if (c->out[1].data || c->out[2].data) TNI_T(linear_keys)(c, b, h, S, work);
        }
}

#ifdef TNI_ONCE
/* Elements of the workspace of a call, the largest that any kernel for it wants. The reference: doubles. */
static int64_t tni_attention_work(const tn_ctx *ctx, const tn_call *c)
{
    const int64_t d = c->in[0].shape[3], n = c->in[2].shape[3] + 1;
    const bool    linear = c->kernel == TN_KERNEL_ATTENTION_LINEAR || c->kernel == TN_KERNEL_ATTENTION_LINEAR_BACKWARD;
    int64_t       reference = 2 * d + 3 * n + (linear ? tni_attend_features(c->i[0], d) * n : 0);
    return reference * (int64_t)(sizeof(double) / tni_dtype_size(ctx->desc.dtype));
}

/* The last output of a call: its workspace. */
static tn_status tni_attention_run(tn_ctx *ctx, tn_call *c)
{
    tn_tensor *work = tn_tensor_1d(ctx, TN_REAL, tni_attention_work(ctx, c));
    if (!work) return ctx->status;
    c->out[c->n_out++] = tni_view(work);
    return tni_run(ctx, c);
}

/* Do two gradients [B,T,n,d] share no number? Sure only of different tensors, and of neighbouring heads of one. */
static bool tni_heads_apart(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t size = (int64_t)tni_dtype_size(a->dtype);
    int64_t       a0 = 0, b0, a1, b1, all;
    if (tni_root(a) != tni_root(b)) return true;
    if (a->strides[0] != b->strides[0] || a->strides[1] != b->strides[1]) return false;
    if (a->strides[2] < 0 || b->strides[2] < 0) return false;
    b0 = ((const char *)b->data - (const char *)a->data) / size;
    a1 = a0 + (a->shape[2] - 1) * a->strides[2] + a->shape[3];
    b1 = b0 + (b->shape[2] - 1) * b->strides[2] + b->shape[3];
    all = tni_max(a1, b1) - tni_min(a0, b0);                                              /* of one position */
    return (a1 <= b0 || b1 <= a0) && all <= a->strides[1]
           && (tni_max(a->shape[1], b->shape[1]) - 1) * a->strides[1] + all <= a->strides[0];
}

/* Kernels add to three places at once: where two may be one, each has its own, which is added afterwards. */
static void tni_attention_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_call    c = tni_call((tn_kernel)n->i[3], 0, NULL, 0, NULL);
    tn_tensor *grad[3], *to[3];
    int        i, j;
    for (i = 0; i < 3; i++) c.in[c.n_in++] = tni_view(n->in[i]);
    c.in[c.n_in++] = tni_view(n->saved[0] ? n->out : NULL);
    c.in[c.n_in++] = tni_view(n->saved[0]);
    c.in[c.n_in++] = tni_view(n->out->grad);
    tni_node_give(n, &c);
    c.i[3] = 0;                                             /* nothing is past while recording */
    for (i = 0; i < 3; i++) {
        to[i] = grad[i] = tni_grad_to_add(n->in[i]);
        for (j = 0; j < i; j++) {
            if (!grad[i] || !grad[j] || tni_heads_apart(grad[i], grad[j])) continue;
            to[i] = tni_like(ctx, grad[i]);
            if (!to[i] || tni_fill(to[i], 0) != TN_OK) return;
            break;
        }
        c.out[c.n_out++] = tni_view(to[i]);
    }
    if (tni_attention_run(ctx, &c) != TN_OK) return;
    for (i = 0; i < 3; i++) {
        tn_call add = tni_call(TN_KERNEL_ADD, 0, NULL, 0, NULL);
        if (to[i] == grad[i]) continue;
        add.in[add.n_in++] = tni_view(to[i]);
        add.out[add.n_out++] = tni_view(grad[i]);
        add.f[0] = 1;
        add.accumulate = true;
        tni_run(ctx, &add);
    }
}

/* The form of TN_ATTEND_AUTO: by the multiplications of each, causal. A state costs F dv for a key and as much for a query,
   a pair s d + dv (s sets), and the linear form has some pairs for every query, too. Both constants were measured forwards
   and backwards on the cpu backend, for d from 8 to 128; see docs/internals.md. */
static bool tni_attend_is_linear(tn_attend_kind kind, int64_t Tq, int64_t Tk, int64_t d, int64_t dv, int64_t window,
                                 tn_row_scale row)
{
    const double F = kind == TN_ATTEND_SQUARED ? (double)d * ((double)d + 1) / 2 : (double)d * (double)d;
    const double sets = kind == TN_ATTEND_BILINEAR ? 2 : 1, values = (double)dv + (row == TN_ROW_SUM);
    const double pairs = (double)Tq * ((double)Tk - (double)tni_min(Tq, Tk) / 2);
    if (kind == TN_ATTEND_SOFTMAX || window > 0) return false;
    return 0.85 * F * values * ((double)Tq + (double)Tk) < (pairs - 200 * (double)Tq) * (sets * (double)d + (double)dv);
}

/* The numbers of a desc: in range, and the defaults in place. */
static bool tni_attend_numbers(tn_ctx *ctx, tn_attend_desc *a, int64_t d)
{
    if ((unsigned)a->kind > TN_ATTEND_BILINEAR || (unsigned)a->form > TN_ATTEND_LINEAR || (unsigned)a->row > TN_ROW_SUM)
        tni_fail(ctx, TN_ERR_ARG, "attend: kind %d, form %d, row scale %d: not all of them exist", (int)a->kind,
                 (int)a->form, (int)a->row);
    else if (a->window < 0 || a->length < 0 || a->past < 0)
        tni_fail(ctx, TN_ERR_ARG, "attend: window %lld, length %lld, past %lld: none can be negative", (long long)a->window,
                 (long long)a->length, (long long)a->past);
    else if (!(fabs(a->scale) < HUGE_VAL))
        tni_fail(ctx, TN_ERR_ARG, "attend: the scale is %g, but must be finite", a->scale);
    else if (a->row == TN_ROW_SUM && a->kind != TN_ATTEND_SQUARED)
        tni_fail(ctx, TN_ERR_ARG, "attend: only squared attention has a row sum to divide by; softmax has its own, the "
                                  "bilinear pattern has signs");
    else if (tni_is_eps(ctx, a->eps, "attend")) {
        if (a->scale == 0) a->scale = a->kind == TN_ATTEND_SOFTMAX ? 1 / sqrt((double)d) : 1 / (double)d;
        if (a->row == TN_ROW_DEFAULT) a->row = a->kind == TN_ATTEND_SOFTMAX ? TN_ROW_NONE : TN_ROW_LENGTH;
        if (a->length == 0) a->length = 512;
        if (a->eps == 0) a->eps = 1e-6;
        return true;
    }
    return false;
}

static bool tni_attend_shapes(tn_ctx *ctx, tn_attend_kind kind, const tn_tensor *q, const tn_tensor *k, const tn_tensor *v)
{
    const int64_t sets = kind == TN_ATTEND_BILINEAR ? 2 : 1;
    const char   *times = sets == 2 ? "2 " : "";
    if (q->shape[0] == k->shape[0] && q->shape[0] == v->shape[0] && k->shape[1] == v->shape[1]
        && q->shape[2] % sets == 0 && q->shape[2] / sets == v->shape[2] && k->shape[2] == q->shape[2]
        && q->shape[3] == k->shape[3] && q->shape[3] >= 1) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "attend: q is %s, k is %s and v is %s, but must be [B,Tq,%sH,d], [B,Tk,%sH,d], [B,Tk,H,dv], "
             "d >= 1", TNI_SHAPE(q), TNI_SHAPE(k), TNI_SHAPE(v), times, times);
    return false;
}

/* Can there be a linear form, if that is what is asked for? */
static bool tni_attend_possible(tn_ctx *ctx, const tn_attend_desc *a, int64_t d, int64_t dv)
{
    if (a->form == TN_ATTEND_LINEAR && (a->kind == TN_ATTEND_SOFTMAX || a->window > 0))
        tni_fail(ctx, TN_ERR_ARG, "attend: %s has no linear form", a->kind == TN_ATTEND_SOFTMAX ? "softmax" : "a window");
    else if (a->form == TN_ATTEND_LINEAR && (double)d * (double)d * ((double)dv + 1) > 1e15)
        tni_fail(ctx, TN_ERR_SHAPE, "attend: the linear form's state of %lld x %lld x %lld numbers does not fit",
                 (long long)d, (long long)d, (long long)dv);
    else return true;
    return false;
}

/* The linear form, or the quadratic one; false where the desc contradicts itself. */
static bool tni_attend_form(tn_ctx *ctx, tn_attend_desc *a, const tn_tensor *q, const tn_tensor *k, const tn_tensor *v)
{
    const int64_t d = q->shape[3], dv = v->shape[3];
    if (a->form == TN_ATTEND_AUTO)
        a->form = a->state || tni_attend_is_linear(a->kind, q->shape[1], k->shape[1], d, dv, a->window, a->row)
                  ? TN_ATTEND_LINEAR : TN_ATTEND_QUADRATIC;
    if (!tni_attend_possible(ctx, a, d, dv)) return false;
    if (a->form != TN_ATTEND_LINEAR && (a->state || a->past > 0))
        tni_fail(ctx, TN_ERR_ARG, "attend: the quadratic form has no state, and so no past");
    else if (a->past > 0 && !a->state)
        tni_fail(ctx, TN_ERR_ARG, "attend: %lld keys are past, but there is no state that holds them", (long long)a->past);
    else return true;
    return false;
}

static bool tni_attend_state(tn_ctx *ctx, const tn_attend_desc *a, const tn_tensor *q, const tn_tensor *k,
                             const tn_tensor *v)
{
    const int64_t F = tni_attend_features(a->kind, q->shape[3]), n = v->shape[3] + (a->row == TN_ROW_SUM);
    const tn_tensor *s = a->state;
    if (!s) return true;
    if (!tni_is_real(ctx, s, "attend", "state")) return false;
    if (s->rank != 4 || s->shape[0] != v->shape[0] || s->shape[1] != v->shape[2] || s->shape[2] != F || s->shape[3] != n
        || !tn_tensor_contiguous(s))
        tni_fail(ctx, TN_ERR_SHAPE, "attend: the state is %s, but must be [%lld,%lld,%lld,%lld], contiguous", TNI_SHAPE(s),
                 (long long)v->shape[0], (long long)v->shape[2], (long long)F, (long long)n);
    else if (q->shape[1] > k->shape[1])
        tni_fail(ctx, TN_ERR_SHAPE, "attend: %lld queries, but only %lld keys: with a state some would stand in the past",
                 (long long)q->shape[1], (long long)k->shape[1]);
    else if (ctx->recording)
        tni_fail(ctx, TN_ERR_ARG, "attend: a state cannot be used while recording");
    else return true;
    return false;
}

tn_tensor *tn_attend(tn_ctx *ctx, tn_tensor *q, tn_tensor *k, tn_tensor *v, const tn_attend_desc *desc)
{
    tn_attend_desc a;
    tn_tensor     *o, *stat = NULL;
    tni_node      *n;
    tn_call        c;
    int64_t        shape[4];
    bool           linear;
    memset(&a, 0, sizeof a);
    if (desc) a = *desc;
    if (!(q = tni_heads(ctx, q, "attend", "q")) || !(k = tni_heads(ctx, k, "attend", "k"))
        || !(v = tni_heads(ctx, v, "attend", "v")) || !tni_attend_numbers(ctx, &a, q->shape[3])
        || !tni_attend_shapes(ctx, a.kind, q, k, v) || !tni_attend_form(ctx, &a, q, k, v)) return NULL;
    linear = a.form == TN_ATTEND_LINEAR;
    if (!tni_attend_state(ctx, &a, q, k, v)) return NULL;
    shape[0] = q->shape[0]; shape[1] = q->shape[1]; shape[2] = v->shape[2]; shape[3] = v->shape[3];
    if (!(o = tn_tensor_new(ctx, TN_REAL, 4, shape))) return NULL;
    if ((a.kind == TN_ATTEND_SOFTMAX || a.row == TN_ROW_SUM)
        && !(stat = tn_tensor_3d(ctx, TN_REAL, shape[0], shape[2], shape[1]))) return NULL;
    c = tni_call(linear ? TN_KERNEL_ATTENTION_LINEAR : TN_KERNEL_ATTENTION, 0, NULL, 1, &o);
    c.in[c.n_in++] = tni_view(q);
    c.in[c.n_in++] = tni_view(k);
    c.in[c.n_in++] = tni_view(v);
    c.out[c.n_out++] = tni_view(stat);
    if (linear) c.out[c.n_out++] = tni_view(a.state);
    c.i[0] = a.kind;
    c.i[1] = a.causal;
    c.i[2] = tni_min(a.window, q->shape[1] + k->shape[1]);             /* nobody is further away */
    c.i[3] = a.past;
    c.f[0] = a.scale;
    c.f[1] = (double)a.length;
    c.f[2] = (double)a.row;
    c.f[3] = a.eps;
    if (tni_attention_run(ctx, &c) != TN_OK) return NULL;
    if ((n = tni_note(ctx, tni_attention_backward, o, q, k, v)) != NULL) {
        n->saved[0] = stat;
        tni_node_keep(n, &c);
        n->i[3] = linear ? TN_KERNEL_ATTENTION_LINEAR_BACKWARD : TN_KERNEL_ATTENTION_BACKWARD;
    }
    return o;
}
#endif

/* ---- noise, dropout --------------------------------------- >>op-dropout
   noise:   y = x + std z                                         dx += dy
   dropout: y = x/(1-p) where u >= p, else 0    dx += the same of dy: the mask is drawn again, not kept
   Srivastava et al. 2014 (dropout); Pearce et al. 2024 (input noise that cleans eigenvectors) */
static void TNI_T(dropout)(const tn_call *c)
{
    const TNI_REAL *x = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data;
    uint32_t        clock = (uint32_t)*(const int32_t *)c->in[1].data, word[4] = {0, 0, 0, 0};
    int64_t         e, n = c->out[0].shape[0];
    for (e = 0; e < n; e++) {
        double v;
        if (e % 4 == 0) tni_random_words((uint64_t)c->i[0], c->i[1], clock, (uint64_t)e / 4, word);
        v = (double)tni_unit(word[e % 4]) >= c->f[0] ? (double)x[e] / (1 - c->f[0]) : 0;
        y[e] = (TNI_REAL)(c->accumulate ? (double)y[e] + v : v);
    }
}

#ifdef TNI_ONCE
static void tni_dropout_backward(tn_ctx *ctx, const tni_node *n)
{
    bool       add;
    tn_tensor *g = tni_grad(n->in[0], &add);
    tn_call    c = tni_call(TN_KERNEL_DROPOUT, 0, NULL, 0, NULL);
    if (!g) return;
    c.in[c.n_in++] = tni_flat_view(n->out->grad);
    c.in[c.n_in++] = tni_view(ctx->clock);
    c.out[c.n_out++] = tni_flat_view(g);
    c.i[0] = n->i[0];
    c.i[1] = n->i[1];
    c.f[0] = n->f[0];
    c.accumulate = add;
    tni_run(ctx, &c);
}

tn_tensor *tn_dropout(tn_ctx *ctx, tn_tensor *x, double p)
{
    tn_tensor *y;
    tn_call    c;
    tni_node  *n;
    if (!(x = tni_contiguous(ctx, x, "dropout", "x"))) return NULL;
    if (!(p >= 0 && p < 1)) {
        tni_fail(ctx, TN_ERR_ARG, "dropout: p is %g, but must be in [0,1)", p);
        return NULL;
    }
    if (!ctx->recording || p == 0) return x;
    y = tni_like(ctx, x);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_DROPOUT, 0, NULL, 0, NULL);
    c.in[0] = tni_flat_view(x);
    c.out[c.n_out++] = tni_flat_view(y);
    c.f[0] = p;
    tni_random_call(ctx, &c, 1);
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_dropout_backward, y, x, NULL, NULL);
    if (n) { n->i[0] = c.i[0]; n->i[1] = c.i[1]; n->f[0] = p; }
    return y;
}

tn_tensor *tn_noise(tn_ctx *ctx, tn_tensor *x, double std)
{
    tn_tensor *z;
    if (!tni_is_real(ctx, x, "noise", "x")) return NULL;
    if (!(std >= 0)) {
        tni_fail(ctx, TN_ERR_ARG, "noise: std is %g, but must not be negative", std);
        return NULL;
    }
    if (!ctx->recording || std == 0) return x;
    z = tn_normal(ctx, x->rank, x->shape, 0, std);
    return z ? tn_add(ctx, x, z) : NULL;
}
#endif

/* ---- cross_entropy ----------------------------------------- >>op-cross_entropy
   loss = mean_r (lse[r] - z[r,label])     lse = log sum_c e^z, from the row's maximum
   dz[r,c] = 1/R (e^(z-lse) - [c = label])        written with the loss while a row is at hand, if it is wanted
   Fused with softmax. A bad label: its row adds nothing, and a fault. */
static void TNI_T(cross_entropy)(const tn_call *c)
{
    const TNI_REAL *z = (const TNI_REAL *)c->in[0].data;
    const int32_t  *label = (const int32_t *)c->in[1].data;
    TNI_REAL       *lse = (TNI_REAL *)c->out[1].data, *dz = c->n_out > 3 ? (TNI_REAL *)c->out[3].data : NULL;
    int64_t         r, j, R = c->in[0].shape[0], C = c->in[0].shape[1];
    double          loss = 0;
    for (r = 0; r < R; r++, z += C) {
        bool   good = label[r] >= 0 && label[r] < C;
        double top = (double)z[0], sum = 0;
        for (j = 1; j < C; j++) if ((double)z[j] > top || z[j] != z[j]) top = (double)z[j];
        for (j = 0; j < C; j++) sum += exp((double)z[j] - top);
        sum = top + log(sum);
        lse[r] = (TNI_REAL)sum;
        if (good) loss += sum - (double)z[label[r]];
        else tni_fault(&c->out[2], 1, r, label[r], 0);
        for (j = 0; dz && j < C; j++)
            dz[r * C + j] = (TNI_REAL)(good ? (exp((double)z[j] - sum) - (j == label[r])) / (double)R : 0);
    }
    *(TNI_REAL *)c->out[0].data = (TNI_REAL)(loss / (double)R);
}

#ifdef TNI_ONCE
/* Where the loss is what tn_backward began with, what was saved is the gradient; else that much of it. */
static void tni_cross_entropy_backward(tn_ctx *ctx, const tni_node *n)
{
    tn_tensor *z = n->in[0], *dz = n->saved[0];
    tn_call    c = tni_call(TN_KERNEL_MUL, 1, (const tn_tensor *const *)&dz, 0, NULL);
    if ((n->out->flags & TNI_SEED) && !z->base && !z->grad && !(z->flags & TNI_PARAM)) {
        z->grad = dz;
        z->flags |= TNI_GRAD_USED;
        return;
    }
    c.in[c.n_in++] = tni_expand_view(tni_view(n->out->grad), z->rank, z->shape);
    c.f[0] = 1;
    tni_run_grad(ctx, &c, z);
}

/* What the ops on rows of logits and their labels check alike. */
static bool tni_labels_fit(tn_ctx *ctx, const char *op, const tn_tensor *z, const tn_tensor *labels)
{
    bool fits = z->rank >= 1 && labels->rank == z->rank - 1
             && memcmp(z->shape, labels->shape, sizeof *z->shape * (size_t)labels->rank) == 0;
    if (!fits) tni_fail(ctx, TN_ERR_SHAPE, "%s: logits are %s but labels are %s", op, TNI_SHAPE(z), TNI_SHAPE(labels));
    else if (tn_tensor_count(z) == 0)
        tni_fail(ctx, TN_ERR_SHAPE, "%s: logits are %s, there is nothing to average", op, TNI_SHAPE(z));
    else return true;
    return false;
}

tn_tensor *tn_cross_entropy(tn_ctx *ctx, tn_tensor *z, tn_tensor *labels)
{
    tn_tensor *loss, *lse, *dz = NULL;
    tn_call    c;
    tni_node  *n;
    bool       wanted;
    if (!(z = tni_contiguous(ctx, z, "cross_entropy", "logits")) || !tni_is_ids(ctx, labels, "cross_entropy", "labels"))
        return NULL;
    if (!tni_labels_fit(ctx, "cross_entropy", z, labels)) return NULL;
    if (!tn_tensor_contiguous(labels) && !(labels = tn_copy(ctx, labels))) return NULL;
    wanted = ctx->recording && tni_wants_grad(z);
    loss = tn_tensor_new(ctx, TN_REAL, 0, NULL);
    lse = loss ? tn_tensor_1d(ctx, TN_REAL, tn_tensor_count(labels)) : NULL;
    if (lse && wanted) dz = tni_like(ctx, z);
    if (!lse || (wanted && !dz)) return NULL;
    c = tni_call(TN_KERNEL_CROSS_ENTROPY, 0, NULL, 1, &loss);
    c.in[c.n_in++] = tni_rows_view(z);
    c.in[c.n_in++] = tni_flat_view(labels);
    c.out[c.n_out++] = tni_view(lse);
    c.out[c.n_out++] = tni_view(ctx->fault);
    if (dz) c.out[c.n_out++] = tni_rows_view(dz);
    if (tni_run(ctx, &c) != TN_OK) return NULL;
    n = tni_note(ctx, tni_cross_entropy_backward, loss, z, NULL, NULL);
    if (n) n->saved[0] = dz;
    return loss;
}
#endif

/* ---- argmax, accuracy -------------------------------------- >>op-argmax
   the first of the largest; NaN counts as largest, as in NumPy. No gradient. */
static int64_t TNI_T(row_argmax)(const TNI_REAL *x, int64_t n)
{
    int64_t j, best = 0;
    for (j = 1; j < n && x[best] == x[best]; j++)
        if (x[j] > x[best] || x[j] != x[j]) best = j;
    return best;
}

static void TNI_T(argmax)(const tn_call *c)
{
    int64_t r, C = c->in[0].shape[1];
    for (r = 0; r < c->in[0].shape[0]; r++)
        ((int32_t *)c->out[0].data)[r] = (int32_t)TNI_T(row_argmax)((const TNI_REAL *)c->in[0].data + r * C, C);
}

static void TNI_T(accuracy)(const tn_call *c)
{
    int64_t r, right = 0, R = c->in[0].shape[0], C = c->in[0].shape[1];
    for (r = 0; r < R; r++)
        if (TNI_T(row_argmax)((const TNI_REAL *)c->in[0].data + r * C, C) == ((const int32_t *)c->in[1].data)[r]) right++;
    *(TNI_REAL *)c->out[0].data = (TNI_REAL)((double)right / (double)R);
}

#ifdef TNI_ONCE
tn_tensor *tn_argmax(tn_ctx *ctx, tn_tensor *x)
{
    tn_tensor *y;
    tn_call    c;
    if (!(x = tni_contiguous(ctx, x, "argmax", "x"))) return NULL;
    if (x->rank < 1 || x->shape[x->rank - 1] == 0) {
        tni_fail(ctx, TN_ERR_SHAPE, "argmax: x is %s, but its last extent must be at least 1", TNI_SHAPE(x));
        return NULL;
    }
    y = tn_tensor_new(ctx, TN_I32, x->rank - 1, x->shape);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_ARGMAX, 0, NULL, 0, NULL);
    c.in[c.n_in++] = tni_rows_view(x);
    c.out[c.n_out++] = tni_flat_view(y);
    return tni_run(ctx, &c) == TN_OK ? y : NULL;
}

tn_tensor *tn_accuracy(tn_ctx *ctx, tn_tensor *z, tn_tensor *labels)
{
    tn_tensor *y;
    tn_call    c;
    if (!(z = tni_contiguous(ctx, z, "accuracy", "logits")) || !tni_is_ids(ctx, labels, "accuracy", "labels")) return NULL;
    if (!tni_labels_fit(ctx, "accuracy", z, labels)) return NULL;
    if (!tn_tensor_contiguous(labels) && !(labels = tn_copy(ctx, labels))) return NULL;
    y = tn_tensor_new(ctx, TN_REAL, 0, NULL);
    if (!y) return NULL;
    c = tni_call(TN_KERNEL_ACCURACY, 0, NULL, 1, &y);
    c.in[c.n_in++] = tni_rows_view(z);
    c.in[c.n_in++] = tni_flat_view(labels);
    return tni_run(ctx, &c) == TN_OK ? y : NULL;
}
#endif

/* ---- the optimisers' kernels -------------------------------- >>op-optim
   scalars: learning rate, updates done, norm so far, clip factor, skip, gradient norm. They live on the device, so
   that no step waits for the host. The norm grows by hypot, which does not overflow where a square would. A fault,
   be it a bad id or a gradient that is not finite, makes the whole step a skip. */
static void TNI_T(sumsq)(const tn_call *c)
{
    const TNI_REAL *g = (const TNI_REAL *)c->in[0].data;
    TNI_REAL       *s = (TNI_REAL *)c->out[0].data;
    int64_t         i, n = c->in[0].shape[0];
    double          sum = 0;
    for (i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    s[TNI_SIZE] = (TNI_REAL)hypot((double)s[TNI_SIZE], sqrt(sum));
    if (!(sum <= 1.7976931348623157e308)) tni_fault(&c->out[1], 2, c->i[0], 0, (int32_t)c->i[1]);
}

static void TNI_T(step_begin)(const tn_call *c)
{
    TNI_REAL *s = (TNI_REAL *)c->out[0].data;
    double    norm = (double)s[TNI_SIZE];
    bool      skip = !(norm <= 1.7976931348623157e308);
    if (skip) tni_fault(&c->out[1], 2, -1, 0, (int32_t)c->i[1]);     /* each gradient is finite, their norm is not */
    skip = *(const int32_t *)c->out[1].data != 0;
    s[TNI_NORM] = (TNI_REAL)norm;
    s[TNI_SKIP] = (TNI_REAL)skip;
    s[TNI_FACTOR] = (TNI_REAL)(c->f[0] > 0 && norm > c->f[0] ? c->f[0] / norm : 1);
    s[TNI_STEP] = (TNI_REAL)((double)s[TNI_STEP] + (skip ? 0 : 1));
    s[TNI_SIZE] = 0;
}

/* m = b1 m + (1-b1) g    v = b2 v + (1-b2) g^2    p -= lr (wd p + m^/(sqrt(v^)+eps)),  m^ = m/(1-b1^t)
   Loshchilov & Hutter 2019, algorithm 2 */
static void TNI_T(adamw)(const tn_call *c)
{
    const TNI_REAL *s = (const TNI_REAL *)c->in[0].data;
    TNI_REAL *p = (TNI_REAL *)c->out[0].data, *g = (TNI_REAL *)c->out[1].data, *m = (TNI_REAL *)c->out[2].data,
             *v = (TNI_REAL *)c->out[3].data;
    int64_t   i, n = c->out[0].shape[0];
    double    b1 = c->f[0], b2 = c->f[1], eps = c->f[2], lr = (double)s[TNI_LR] * c->f[4], t = (double)s[TNI_STEP] - c->f[5];
    double    c1 = 1 / (1 - pow(b1, t)), c2 = 1 / (1 - pow(b2, t));
    for (i = 0; s[TNI_SKIP] == 0 && i < n; i++) {
        double d = (double)g[i] * (double)s[TNI_FACTOR];
        double mi = b1 * (double)m[i] + (1 - b1) * d, vi = b2 * (double)v[i] + (1 - b2) * d * d;
        m[i] = (TNI_REAL)mi;
        v[i] = (TNI_REAL)vi;
        p[i] = (TNI_REAL)((double)p[i] - lr * (c->f[3] * (double)p[i] + mi * c1 / (sqrt(vi * c2) + eps)));
    }
    memset(g, 0, sizeof *g * (size_t)n);
}

/* m = mu m + g    p -= lr (wd p + m), or with Nesterov's step  p -= lr (wd p + g + mu m)
   Polyak 1964; Sutskever et al. 2013 */
static void TNI_T(sgd)(const tn_call *c)
{
    const TNI_REAL *s = (const TNI_REAL *)c->in[0].data;
    TNI_REAL *p = (TNI_REAL *)c->out[0].data, *g = (TNI_REAL *)c->out[1].data, *m = (TNI_REAL *)c->out[2].data;
    int64_t   i, n = c->out[0].shape[0];
    double    mu = c->f[0], lr = (double)s[TNI_LR] * c->f[4];
    for (i = 0; s[TNI_SKIP] == 0 && i < n; i++) {
        double d = (double)g[i] * (double)s[TNI_FACTOR], mi = m ? mu * (double)m[i] + d : d;
        if (m) m[i] = (TNI_REAL)mi;
        if (c->f[1] != 0) mi = d + mu * mi;
        p[i] = (TNI_REAL)((double)p[i] - lr * (c->f[3] * (double)p[i] + mi));
    }
    memset(g, 0, sizeof *g * (size_t)n);
}

#ifdef TNI_ONCE
/* ---- the reference backend's one entry ----------------------- >>reference */
static tn_status tni_reference_run(void *state, const tn_call *c)
{
#define TNI_X(ENUM, name) {tni_f32_##name, tni_f64_##name},
    static void (*const row[][2])(const tn_call *) = { TN_KERNELS(TNI_X) };
#undef TNI_X
    int i, wide = 0;
    (void)state;
    for (i = 0; i < c->n_in; i++) wide |= c->in[i].dtype == TN_F64;
    for (i = 0; i < c->n_out; i++) wide |= c->out[i].dtype == TN_F64;
    row[c->kernel][wide](c);
    return TN_OK;
}

/* ---- kernels made of simpler ones ----------------------------- >>compose
   What a backend may leave out. Each composition is also the test of the fused kernel. */
static tn_view tni_half_view(tn_view x, int which)               /* columns [0,h) or [h,2h) of [R,2h] */
{
    x.shape[1] /= 2;
    x.data = (char *)x.data + which * x.shape[1] * (int64_t)tni_dtype_size(x.dtype);
    return x;
}

static tn_status tni_run_views(tn_ctx *ctx, tn_kernel kernel, const tn_view *a, const tn_view *b, const tn_view *out,
                               int64_t i0, bool add)
{
    tn_call c = tni_call(kernel, 0, NULL, 0, NULL);
    c.in[c.n_in++] = *a;
    if (b) c.in[c.n_in++] = *b;
    c.out[c.n_out++] = *out;
    c.f[0] = 1;
    c.i[0] = i0;
    c.accumulate = add;
    return tni_run(ctx, &c);
}

/* act of the left half, contiguous: copied out of its rows, then in place */
static tn_status tni_compose_gate(tn_ctx *ctx, const tn_view *x, int64_t kind, tn_tensor **copy, tn_tensor **gate)
{
    tn_view left = tni_half_view(*x, 0), v;
    *copy = tn_tensor_2d(ctx, x->dtype, left.shape[0], left.shape[1]);
    *gate = tn_tensor_2d(ctx, x->dtype, left.shape[0], left.shape[1]);
    if (!*copy || !*gate) return TN_ERR_MEMORY;
    v = tni_view(*copy);
    if (tni_run_views(ctx, TN_KERNEL_COPY, &left, NULL, &v, 0, false) != TN_OK) return TN_ERR_BACKEND;
    {
        tn_view from = tni_flat_view(*copy), to = tni_flat_view(*gate);
        return tni_run_views(ctx, TN_KERNEL_ACT, &from, NULL, &to, kind, false);
    }
}

static tn_status tni_compose_glu(tn_ctx *ctx, const tn_call *call)
{
    tn_tensor *copy, *gate;
    tn_view    right = tni_half_view(call->in[0], 1), v;
    tn_status  s = tni_compose_gate(ctx, &call->in[0], call->i[0], &copy, &gate);
    if (s != TN_OK) return s;
    v = tni_view(gate);
    return tni_run_views(ctx, TN_KERNEL_MUL, &v, &right, &call->out[0], 0, false);
}

static tn_status tni_compose_glu_backward(tn_ctx *ctx, const tn_call *call)
{
    const tn_view *dy = &call->in[1];
    tn_tensor     *copy, *gate, *product;
    tn_view        right = tni_half_view(call->in[0], 1), da = tni_half_view(call->out[0], 0),
                   db = tni_half_view(call->out[0], 1);
    tn_view        v, flat_x, flat_dy, flat_out;
    tn_status      s = tni_compose_gate(ctx, &call->in[0], call->i[0], &copy, &gate);
    if (s != TN_OK) return s;
    product = tni_like(ctx, copy);
    if (!product) return TN_ERR_MEMORY;
    v = tni_view(gate);
    s = tni_run_views(ctx, TN_KERNEL_MUL, dy, &v, &db, 0, call->accumulate);
    v = tni_view(product);
    if (s == TN_OK) s = tni_run_views(ctx, TN_KERNEL_MUL, dy, &right, &v, 0, false);
    flat_x = tni_flat_view(copy);
    flat_dy = tni_flat_view(product);
    flat_out = tni_flat_view(gate);              /* its values are used up: act' dy goes there */
    if (s == TN_OK) s = tni_run_views(ctx, TN_KERNEL_ACT_BACKWARD, &flat_x, &flat_dy, &flat_out, call->i[0], false);
    v = tni_view(gate);
    if (s == TN_OK) s = tni_run_views(ctx, TN_KERNEL_ADD, &v, NULL, &da, 0, call->accumulate);
    return s;
}

static bool tni_compose(tn_ctx *ctx, const tn_call *call, tn_status *s)
{
    switch (call->kernel) {
    case TN_KERNEL_GLU:          *s = tni_compose_glu(ctx, call); return true;
    case TN_KERNEL_GLU_BACKWARD: *s = tni_compose_glu_backward(ctx, call); return true;
    default: return false;
    }
}
#endif
#endif /* TNI_REAL */

#if defined(TENSORNET_IMPLEMENTATION) && !defined(TNI_IMPLEMENTED) && !defined(TNI_REAL)

/* ======================================================================
   >>decomp-impl   host algebra, QR, symmetric eigen, SVD
   Pure functions on plain arrays of doubles: they take their workspace from the caller and touch no
   context, so that several may run at once. Each tni_X has a tni_X_work, the doubles it wants.
   The source is Golub & Van Loan 2013 [GVL]; in brackets stands who in LAPACK does the same.
   ====================================================================== */

#define TNI_EPS 2.220446049250313e-16         /* 2^-52 */

/* ---- host algebra ------------------------------------------ >>host-algebra
   The inner loops come from a tni_host, whose level the context has chosen. */

static const tni_algebra *tni_algebra_of(tn_simd level)
{
#if TNI_X86
    if (level == TN_SIMD_AVX512) return &tni_f64_algebra_avx512;
    if (level == TN_SIMD_AVX2) return &tni_f64_algebra_avx2;
#endif
#if TNI_NEON
    if (level == TN_SIMD_NEON) return &tni_f64_algebra_neon;
#endif
    (void)level;
    return &tni_f64_algebra_plain;
}

/* Doubles of a block of gemm, for matrices with extents up to `extent`. */
static int64_t tni_host_block(int64_t extent)
{
    return tni_max(TNI_HOST_LEAST, tni_min(TNI_HOST_MOST, (extent + 16) * tni_min(extent, TNI_GEMM_DEPTH / 8)));
}

static int64_t tni_host_work(int64_t extent) { return 2 * tni_host_block(extent) + TNI_ALIGN / 8; }

static double *tni_aligned(double *p) { return (double *)(void *)((char *)p + (0 - (uintptr_t)p) % TNI_ALIGN); }

static tni_host tni_host_of(tn_simd level, const tni_pool *pool, int64_t extent, double *work)
{
    tni_host h;
    h.by = tni_algebra_of(level);
    h.pool = pool;
    h.blocks = (char *)tni_aligned(work);
    h.bytes = tni_host_block(extent) * 8;
    return h;
}

static void tni_swap(int64_t n, double *x, double *y)
{
    int64_t i;
    for (i = 0; i < n; i++) { double t = x[i]; x[i] = y[i]; y[i] = t; }
}

static tni_mat tni_mat_of(double *p, int64_t row, int64_t col) { tni_mat m; m.p = p; m.row = row; m.col = col; return m; }
static tni_mat tni_rows(double *p, int64_t row)                { return tni_mat_of(p, row, 1); }     /* row-major      */
static tni_mat tni_turned(tni_mat m)                           { return tni_mat_of(m.p, m.col, m.row); } /* transposed */
static tni_mat tni_from(tni_mat m, int64_t i, int64_t j)       { m.p += i * m.row + j * m.col; return m; }

/* The largest magnitude; infinity where one is NaN. */
static double tni_largest(int64_t m, int64_t n, tni_mat a)
{
    double  largest = 0;
    int64_t i, j;
    for (i = 0; i < m && n > 0; i++)
        for (j = 0; j < n; j++) {
            double x = fabs(a.p[i * a.row + j * a.col]);
            if (!(x <= largest)) largest = x <= HUGE_VAL ? x : HUGE_VAL;
        }
    return largest;
}

/* A power of two that brings a matrix with this largest element near one, so that no square in between
   is lost or too large; its inverse is exact too. */
static double tni_unit_scale(double largest)
{
    int exponent = 0;
    frexp(largest, &exponent);
    return ldexp(1.0, (int)tni_max(-1000, tni_min(1000, -exponent)));
}

static double tni_frobenius(int64_t n, const double *x)
{
    double  scale = tni_unit_scale(tni_largest(1, n, tni_rows((double *)x, n))), sum = 0;
    int64_t i;
    for (i = 0; i < n; i++) sum += (x[i] * scale) * (x[i] * scale);
    return sqrt(sum) / scale;
}

static double tni_max_f64(double a, double b) { return b > a ? b : a; }

/* Selection sort of values, and of the rows that go with them: few swaps, any number of compares. */
static bool tni_before_descending(double a, double b) { return a > b; }
static bool tni_before_magnitude(double a, double b)  { return fabs(a) > fabs(b) || (fabs(a) == fabs(b) && a > b); }

static void tni_sort_rows(int64_t n, double *values, bool (*before)(double, double), int64_t cols, double *rows,
                          double *more_rows)
{
    int64_t i, j, first;
    for (i = 0; i < n; i++) {
        for (first = i, j = i + 1; j < n; j++)
            if (before(values[j], values[first])) first = j;
        if (first == i) continue;
        tni_swap(1, values + i, values + first);
        if (rows) tni_swap(cols, rows + i * cols, rows + first * cols);
        if (more_rows) tni_swap(cols, more_rows + i * cols, more_rows + first * cols);
    }
}

/* The sign rule: is the component of largest magnitude, the first of equals, negative? */
static bool tni_points_down(int64_t n, const double *x, int64_t stride)
{
    double  largest = 0;
    int64_t i;
    for (i = 0; i < n; i++)
        if (fabs(x[i * stride]) > fabs(largest)) largest = x[i * stride];
    return largest < 0;
}

/* ---- reflections -------------------------------------------- >>reflections
   H = I - tau v v^T, v[0] = 1, tau = 2/|v|^2.   [GVL 5.1] [dlarfg]
   A product of them is one block, H_0 H_1 .. H_(w-1) = I - V T V^T with T upper triangular:
       T[i][i] = tau_i      T[:i,i] = -tau_i T[:i,:i] (V^T v_i)[:i]
   Schreiber & Van Loan 1989. [dlarft, dlarfb] */
enum { TNI_BLOCK = 32, TNI_BLOCK_WIDE = 64 };  /* reflections in a block: usually, and of large matrices */

/* Turns x into the v that takes it to (beta,0,..,0), and returns beta. tau == 0 stands for H = I.
   Where squares are too small to be trusted, x is scaled first. */
static double tni_reflector(const tni_host *h, int64_t n, double *x, double *tau)
{
    double alpha = x[0], squares = h->by->dot(n - 1, x + 1, x + 1), scale = 1, beta;
    x[0] = 1;
    *tau = 0;
    if (squares < 1e-250) {
        double size = tni_largest(1, n - 1, tni_rows(x + 1, n));
        if (size == 0) return alpha;
        scale = tni_unit_scale(fmax(size, fabs(alpha)));
        h->by->scale(n - 1, scale, x + 1);
        squares = h->by->dot(n - 1, x + 1, x + 1);
        alpha *= scale;
    }
    beta = -copysign(sqrt(alpha * alpha + squares), alpha);
    h->by->scale(n - 1, 1 / (alpha - beta), x + 1);
    *tau = (beta - alpha) / beta;
    return beta / scale;
}

static void tni_block_factor(const tni_host *h, int64_t m, int64_t w, tni_mat v, const double *tau, double *gram, double *t)
{
    int64_t i, j, l;
    h->by->gemm(h, w, w, m, 1, tni_turned(v), v, 0, tni_rows(gram, w));
    memset(t, 0, (size_t)(w * w) * sizeof *t);
    for (i = 0; i < w; i++) {
        t[i * w + i] = tau[i];
        for (j = 0; j < i; j++) {
            double sum = 0;
            for (l = j; l < i; l++) sum += t[j * w + l] * gram[l * w + i];
            t[j * w + i] = -tau[i] * sum;
        }
    }
}

static int64_t tni_reflect_work(int64_t m, int64_t n, int64_t most) { return most * (2 * most + m + n); }

/* C[m,n] = (I - V T V^T) C, or with the transposed of it; V is [m,w]. V^T C is stored the way C is. */
static void tni_reflect(const tni_host *h, int64_t m, int64_t n, int64_t w, tni_mat v, const double *tau, bool transposed,
                        tni_mat c, double *work)
{
    double *gram = work, *t = gram + w * w, *vt = t + w * w, *product = vt + w * m;
    tni_mat vtc = c.col == 1 ? tni_rows(product, n) : tni_mat_of(product, 1, w);
    if (n == 0) return;
    tni_block_factor(h, m, w, v, tau, gram, t);
    h->by->gemm(h, w, m, w, 1, transposed ? tni_rows(t, w) : tni_turned(tni_rows(t, w)), tni_turned(v), 0, tni_rows(vt, m));
    h->by->gemm(h, w, n, m, 1, tni_turned(v), c, 0, vtc);
    h->by->gemm(h, m, n, w, -1, tni_turned(tni_rows(vt, m)), vtc, 1, c);
}

/* ---- QR -------------------------------------------------------------- >>qr
   A = Q R by Householder reflections in blocks [GVL 5.2] [dgeqrf, dorgqr]. A is worked on transposed,
   so that a column, and with it a reflector, lies in one piece. Q's columns are orthonormal whatever
   A's rank; R's diagonal is not negative. */

static int64_t tni_qr_work(int64_t m, int64_t n) { return m * n + n + tni_reflect_work(m, tni_max(m, n), TNI_BLOCK); }

/* Reflectors first .. first+w-1. The finished columns of R leave for r, and zeros take their place,
   so that the rows of `at` hold the reflectors and nothing else. */
static void tni_qr_panel(const tni_host *h, int64_t m, int64_t first, int64_t w, double *at, double *tau, tni_mat r)
{
    int64_t i, j, l;
    for (j = first; j < first + w; j++) {
        double *v = at + j * m;
        r.p[j * r.row + j * r.col] = tni_reflector(h, m - j, v + j, tau + j);
        for (i = 0; i < j; i++) { r.p[i * r.row + j * r.col] = v[i]; v[i] = 0; }
        for (l = j + 1; l < first + w; l++)
            h->by->axpy(m - j, -tau[j] * h->by->dot(m - j, v + j, at + l * m + j), v + j, at + l * m + j);
    }
}

static void tni_qr_form(const tni_host *h, int64_t m, int64_t k, double *at, const double *tau, tni_mat q, double *work)
{
    int64_t i, j, first;
    for (i = 0; i < m; i++)
        for (j = 0; j < k; j++) q.p[i * q.row + j * q.col] = i == j;
    for (first = (k - 1) / TNI_BLOCK * TNI_BLOCK; first >= 0; first -= TNI_BLOCK)
        tni_reflect(h, m - first, k - first, tni_min(TNI_BLOCK, k - first), tni_mat_of(at + first * m + first, 1, m),
                    tau + first, false, tni_from(q, first, first), work);
}

/* R's diagonal becomes positive: row i of R and column i of Q change their sign. R returns to A's scale. */
static void tni_qr_finish(int64_t m, int64_t n, int64_t k, double scale, tni_mat q, tni_mat r)
{
    int64_t i, j;
    for (i = 0; i < k; i++) {
        double sign = r.p[i * r.row + i * r.col] < 0 ? -1 : 1;
        for (j = i; j < n; j++) r.p[i * r.row + j * r.col] *= sign / scale;
        if (sign < 0) for (j = 0; j < m; j++) q.p[j * q.row + i * q.col] = -q.p[j * q.row + i * q.col];
    }
}

/* a[m,n] = q[m,k] r[k,n], k = min(m,n). a is left as it is. TN_ERR_NONFINITE where a is not finite. */
static tn_status tni_qr(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat q, tni_mat r, double *work)
{
    double *at = work, *tau = at + m * n, *rest = tau + n, largest = tni_largest(m, n, a), scale;
    int64_t i, j, first, k = tni_min(m, n);
    if (k == 0) return TN_OK;
    if (!(largest < HUGE_VAL)) return TN_ERR_NONFINITE;
    scale = tni_unit_scale(largest);
    for (j = 0; j < n; j++)
        for (i = 0; i < m; i++) at[j * m + i] = a.p[i * a.row + j * a.col] * scale;
    for (i = 0; i < k; i++)
        for (j = 0; j < n; j++) r.p[i * r.row + j * r.col] = 0;
    for (first = 0; first < k; first += TNI_BLOCK) {
        int64_t w = tni_min(TNI_BLOCK, k - first), next = first + w;
        tni_qr_panel(h, m, first, w, at, tau, r);
        tni_reflect(h, m - first, n - next, w, tni_mat_of(at + first * m + first, 1, m), tau + first, true,
                    tni_mat_of(at + next * m + first, 1, m), rest);
    }
    for (i = 0; i < k; i++)                                  /* a wide A: the columns that have no reflector */
        for (j = k; j < n; j++) r.p[i * r.row + j * r.col] = at[j * m + i];
    tni_qr_form(h, m, k, at, tau, q, rest);
    tni_qr_finish(m, n, k, scale, q, r);
    return TN_OK;
}

/* ---- symmetric eigenproblem --------------------------------------- >>eigh
   A = V^T diag(l) V, the rows of V are eigenvectors. Three steps:
   1. A = Q T Q^T, T tridiagonal, by reflections [GVL 8.3.1] [dsytrd].
   2. T = Z^T diag(l) Z. Small T by implicit QL with Wilkinson's shift [GVL 8.3.3] [dsteqr]; a larger one is
      torn into two, and their eigenpairs are joined [dstedc].
   3. V = Z Q^T, by blocks of reflections. */

/* ---- 1. to tridiagonal form: only the upper triangle of A is read
   A reflection takes A to A - v w^T - w v^T with
       w = p - (tau/2)(p.v) v      p = tau A v
   Small matrices stay in the cache: each pass over A takes the last reflection in and multiplies by the next
   v at once. In large ones a block of reflections is put off: A - sum (v w^T + w v^T) stands for A, and is
   formed at the block's end by one matrix product.
   Dongarra, Hammarling & Sorensen 1989. [dlatrd] */
enum { TNI_TRIDIAGONAL_SMALL = 512 };

static int64_t tni_tridiagonal_work(int64_t n) { return 3 * TNI_BLOCK * n; }

/* w, from the p = A v that it holds. */
static void tni_tridiagonal_partner(const tni_host *h, int64_t m, const double *v, double tau, double *w)
{
    h->by->scale(m, tau, w);
    h->by->axpy(m, -0.5 * tau * h->by->dot(m, w, v), v, w);
}

/* The part that is left, from row `first` on. Row k ends as the reflector v_k, in columns k+1.., after zeros. */
static void tni_tridiagonal_small(const tni_host *h, int64_t n, double *a, int64_t first, double *d, double *e, double *tau,
                                  double *ws)
{
    double *v = NULL, *w = ws, *next = ws + n;
    int64_t k;
    for (k = first; k < n; k++) {
        double *row = a + k * n, *spare = w;
        int64_t from = k + 1, m = n - from;
        if (v) {
            double vk = v[k], wk = w[k];
            h->by->axpy(n - k, -vk, w + k, row + k);
            h->by->axpy(n - k, -wk, v + k, row + k);
        }
        d[k] = row[k];
        if (m == 0) break;
        e[k] = tni_reflector(h, m, row + from, tau + k);
        memset(row, 0, (size_t)from * sizeof *row);
        h->by->upper_times(from, n, a, n, v, w, row, next);
        tni_tridiagonal_partner(h, m, row + from, tau[k], next + from);
        v = row;
        w = next;
        next = spare;
    }
}

/* Rows first .. first+w-1; ws gets [V;W;V], where V and W have a row for each reflection. */
static void tni_tridiagonal_panel(const tni_host *h, int64_t n, double *a, int64_t first, int64_t w, double *d, double *e,
                                  double *tau, double *ws)
{
    double *vs = ws, *partners = ws + w * n, coefficient[2 * TNI_BLOCK];
    int64_t k;
    for (k = first; k < first + w; k++) {
        int64_t  before = k - first, m = n - k - 1, from = k + 1;
        double  *row = a + k * n, *p = partners + before * n + from;
        tni_mat  v = tni_rows(vs, n), partner = tni_rows(partners, n), c = tni_rows(coefficient, 1);
        tni_mat  to = tni_rows(row + k, 1);
        if (before > 0) {
            h->by->gemm(h, n - k, 1, before, -1, tni_turned(tni_from(partner, 0, k)), tni_mat_of(vs + k, n, 1), 1, to);
            h->by->gemm(h, n - k, 1, before, -1, tni_turned(tni_from(v, 0, k)), tni_mat_of(partners + k, n, 1), 1, to);
        }
        d[k] = row[k];
        e[k] = tni_reflector(h, m, row + from, tau + k);
        memset(row, 0, (size_t)from * sizeof *row);
        memcpy(vs + before * n, row, (size_t)n * sizeof *row);
        h->by->upper_times(from, n, a, n, NULL, NULL, row, partners + before * n);
        if (before > 0) {
            h->by->gemm(h, before, 1, m, 1, tni_from(partner, 0, from), tni_rows(row + from, 1), 0, c);
            h->by->gemm(h, m, 1, before, -1, tni_turned(tni_from(v, 0, from)), c, 1, tni_rows(p, 1));
            h->by->gemm(h, before, 1, m, 1, tni_from(v, 0, from), tni_rows(row + from, 1), 0, c);
            h->by->gemm(h, m, 1, before, -1, tni_turned(tni_from(partner, 0, from)), c, 1, tni_rows(p, 1));
        }
        tni_tridiagonal_partner(h, m, row + from, tau[k], p);
    }
    memcpy(ws + 2 * w * n, vs, (size_t)(w * n) * sizeof *ws);
}

/* A[next:, next:] -= [V;W]^T [W;V], the upper triangle of it */
static void tni_tridiagonal_update(const tni_host *h, int64_t n, double *a, int64_t next, int64_t w, double *ws)
{
    int64_t i, height = 2 * TNI_BLOCK;
    tni_mat vw = tni_rows(ws, n), wv = tni_rows(ws + w * n, n);
    for (i = next; i < n; i += height)
        h->by->gemm(h, tni_min(height, n - i), n - i, 2 * w, -1, tni_turned(tni_from(vw, 0, i)), tni_from(wv, 0, i), 1,
                    tni_rows(a + i * n + i, n));
}

static void tni_tridiagonal(const tni_host *h, int64_t n, double *a, double *d, double *e, double *tau, double *ws)
{
    int64_t first;
    for (first = 0; n - first > TNI_TRIDIAGONAL_SMALL; first += TNI_BLOCK) {
        tni_tridiagonal_panel(h, n, a, first, TNI_BLOCK, d, e, tau, ws);
        tni_tridiagonal_update(h, n, a, first + TNI_BLOCK, TNI_BLOCK, ws);
    }
    tni_tridiagonal_small(h, n, a, first, d, e, tau, ws);
    e[n - 1] = 0;
}

/* ---- 2. implicit QL, and its rotations
   The rotations are recorded and later applied to a strip of columns of Z at a time, which stays in the
   cache and lets each row be loaded once per sweep. The list holds, sweep after sweep: the row below the
   first rotation, how many there are, then c and s of each. They go upwards: the first turns rows
   (top-1,top), the next (top-2,top-1), ... */
typedef struct tni_rotations {
    const tni_host *host;
    double *list, *strip;                      /* strip: [n,TNI_STRIP]           */
    int64_t used, room, header;                /* header: where this sweep began */
    double *z;                                 /* [n,n], or NULL: values only    */
    int64_t n, stride;                         /* of z                           */
} tni_rotations;

static void tni_rotations_apply(tni_rotations *r)
{
    int64_t i, j, n = r->n;
    for (j = 0; j < n && r->used > 0; j += TNI_STRIP) {
        size_t bytes = (size_t)tni_min(TNI_STRIP, n - j) * sizeof(double);
        for (i = 0; i < n; i++) memcpy(r->strip + i * TNI_STRIP, r->z + i * r->stride + j, bytes);
        r->host->by->rotate_strip(r->list, r->list + r->used, r->strip);
        for (i = 0; i < n; i++) memcpy(r->z + i * r->stride + j, r->strip + i * TNI_STRIP, bytes);
    }
    r->used = 0;
}

static void tni_rotations_begin(tni_rotations *r, int64_t top, int64_t most)
{
    if (!r->z) return;
    if (r->room - r->used < 2 + 2 * most) tni_rotations_apply(r);
    r->header = r->used;
    r->list[r->used++] = (double)top;
    r->list[r->used++] = 0;
}

static void tni_rotations_add(tni_rotations *r, double c, double s)
{
    if (!r->z) return;
    r->list[r->header + 1]++;
    r->list[r->used++] = c;
    r->list[r->used++] = s;
}

/* One sweep over the unreduced block l..m, from below with the shift that suits d[l]: the bulge that the
   shift makes at m is chased up and out at l. */
static void tni_ql_sweep(int64_t l, int64_t m, double *d, double *e, tni_rotations *rotations)
{
    double  g = (d[l + 1] - d[l]) / (2 * e[l]), r, s = 1, c = 1, p = 0;
    int64_t i;
    g = d[m] - d[l] + e[l] / (g + copysign(sqrt(g * g + 1), g));
    tni_rotations_begin(rotations, m, m - l);
    for (i = m - 1; i >= l; i--) {
        double f = s * e[i], b = c * e[i];
        r = sqrt(f * f + g * g);
        if (r < 1e-140) r = hypot(f, g);                     /* the squares would have lost digits */
        e[i + 1] = r;
        if (r == 0) {                                        /* the block has split at i+1 */
            d[i + 1] -= p;
            e[m] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        tni_rotations_add(rotations, c, s);
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0;
}

/* d, e: diagonal and off-diagonal of T; d becomes the eigenvalues, in any order. An e up to `nothing` is zero:
   eps times the largest element of the whole T, which is not known better. (Measured by its neighbours alone,
   noise that is left of zero eigenvalues may never converge.) */
enum { TNI_QL_SWEEPS = 60 };                   /* per eigenvalue; about 1.7 are usual */

static tn_status tni_ql(int64_t n, double *d, double *e, double nothing, int sweeps, tni_rotations *rotations)
{
    int64_t l, m;
    int     sweep;
    for (l = 0; l < n; l++)
        for (sweep = 0;; sweep++) {
            for (m = l; m < n - 1 && fabs(e[m]) > nothing; m++) {}
            if (m == l) break;
            if (sweep == sweeps) return TN_ERR_CONVERGENCE;
            tni_ql_sweep(l, m, d, e, rotations);
        }
    if (rotations->z) tni_rotations_apply(rotations);
    return TN_OK;
}

/* ---- divide and conquer
   Without its middle off-diagonal element +-rho, T falls into two; their diagonals lose rho at the tear:
       T = diag(T1,T2) + rho u u^T      Z1, Z2 of T1, T2 make it      diag(d) + rho z z^T,   z = diag(Z1,Z2) u
   Cuppen 1981. Where rho z_i is nothing, or two d are so near that a rotation makes it nothing, d_i is an
   eigenvalue already (deflation). The others lie one in each gap of the d, where
       1/rho + sum_i z_i^2/(d_i - l) = 0
   and each is kept as its distance tau from the nearer d, so that all d_i - l have their digits. The vectors
   z_i/(d_i - l) are made not from z but from the z' for which the computed l are exact, and so are orthogonal:
       z'_i^2 = prod_j (l_j - d_i) / prod_(j!=i) (d_j - d_i)
   Gu & Eisenstat 1995; the iteration is Gragg's, as in Li 1993. [dlaed1, dlaed2, dlaed3, dlaed4] */
enum {
    TNI_LEAF = 32,                             /* rows that QL does              */
    TNI_LEAF_ROTATIONS = 4096,
    TNI_ROOT_STEPS = 200,                      /* five or six are usual          */
    TNI_MERGE_SHARE = 64,                      /* poles in a task                */
    TNI_MERGE_ARRAYS = 7, TNI_MERGE_LISTS = 5
};

typedef struct tni_divide {
    const tni_host *host;
    int64_t   stride;                          /* of z                                          */
    double   *z, *d, *e;                       /* [n,stride], [n], [n]                          */
    double    nothing;                         /* an off-diagonal below is zero                 */
    double   *packed, *turn;                   /* [n,n] each: rows that are joined, and by what */
    double   *arrays;                          /* TNI_MERGE_ARRAYS of [n], of numbers           */
    int64_t  *lists;                           /* TNI_MERGE_LISTS of [n], of indices            */
    double   *strip, *rotations;               /* for QL, TNI_LEAF_ROTATIONS of them            */
} tni_divide;

/* A rank-one problem of k poles, d ascending. `group` orders the poles by where their rows are not zero. */
typedef struct tni_merge {
    const tni_divide *divide;
    int64_t  k;
    double   rho;
    double  *d, *z, *origin, *tau, *values;    /* [k]; value = origin + tau         */
    double  *pole, *weight;                    /* [k] in the order of groups: d, z' */
    int64_t *at;                               /* [k]: place of d_j among the groups */
} tni_merge;

/* The step to where c + left_slope left^2/(left - x) + right_slope right^2/(right - x) is zero: a function with
   poles at both ends of the gap, and the given value at x = 0. left < 0 < right. */
static double tni_root_step(double left, double right, double value, double left_slope, double right_slope)
{
    double slope = left_slope + right_slope, a = (left + right) * value - left * right * slope, b = left * right * value;
    double c = value - left * left_slope - right * right_slope, root = sqrt(fmax(a * a - 4 * b * c, 0)), step;
    if (c == 0) step = b / a;
    else if (a <= 0) step = (a - root) / (2 * c);
    else step = 2 * b / (a + root);
    return step * value < 0 ? step : -value / slope;
}

/* Root j: right of d_j, left of d_(j+1); the last one at most rho |z|^2 further. low < tau < high always. The
   first step, from the middle, takes the two nearest poles as they are and all others as constant; the next
   have slope and bend of all of them. A root that is not found is NaN. */
static void tni_merge_root(const tni_merge *m, int64_t j)
{
    const tni_algebra *by = m->divide->host->by;
    const int64_t next_pole = j + 1, above = m->k - next_pole;
    const double  gap = above > 0 ? m->d[next_pole] - m->d[j] : m->rho * by->dot(m->k, m->z, m->z);
    double low = 0, high = gap, tau = 0.5 * gap, origin = m->d[j], width = gap;
    int    step;
    for (step = 0; step < TNI_ROOT_STEPS; step++) {
        tni_sums psi = by->poles(next_pole, m->d, m->z, origin, tau);
        tni_sums phi = by->poles(above, m->d + next_pole, m->z + next_pole, origin, tau);
        double   value = 1 / m->rho + psi.value + phi.value, slope = psi.slope + phi.slope;
        double   left = (m->d[j] - origin) - tau, next;
        if (fabs(value) <= TNI_EPS * (8 * (phi.value - psi.value) + 1 / m->rho + fabs(tau) * slope)) break;
        if (value < 0) low = tau;
        else high = tau;
        if (above == 0) next = tau + value * left / (value - slope * left);
        else {
            double right = (m->d[next_pole] - origin) - tau, ours = m->z[j] / left, theirs = m->z[next_pole] / right;
            double left_slope = (left * right * (psi.bend + phi.bend) - left * slope) / (right - left);
            next = tau + (step == 0 ? tni_root_step(left, right, value, ours * ours, theirs * theirs)
                                    : tni_root_step(left, right, value, left_slope, slope - left_slope));
        }
        if (step == 0 && value < 0 && above > 0) {           /* d_(j+1) is the nearer one */
            origin = m->d[next_pole];
            next -= gap;
            tau -= gap;
            low -= gap;
            high -= gap;
        }
        if (step % 8 == 7) {                                 /* too slow: half of it, by magnitude where that is known */
            double half = low * high > 0 ? copysign(sqrt(fabs(low)) * sqrt(fabs(high)), low) : 0.5 * (low + high);
            if (high - low > 0.25 * width) next = half;
            width = high - low;
        }
        if (!(next > low && next < high)) next = 0.5 * (low + high);
        if (next <= low || next >= high) break;              /* neighbours */
        tau = next;
    }
    m->origin[j] = origin;
    m->tau[j] = tau;
    m->values[j] = step < TNI_ROOT_STEPS ? origin + tau : (double)NAN;
}

static int64_t tni_merge_end(const tni_merge *m, int64_t task) { return tni_min(m->k, (task + 1) * TNI_MERGE_SHARE); }

static void tni_merge_roots(void *arg, int64_t task, int worker)
{
    const tni_merge *m = (const tni_merge *)arg;
    int64_t j;
    (void)worker;
    for (j = task * TNI_MERGE_SHARE; j < tni_merge_end(m, task); j++) tni_merge_root(m, j);
}

/* z' of some poles; its signs are those of z, which `weight` holds before. */
static void tni_merge_weights(void *arg, int64_t task, int worker)
{
    const tni_merge   *m = (const tni_merge *)arg;
    const tni_algebra *by = m->divide->host->by;
    const int64_t      begin = task * TNI_MERGE_SHARE, end = tni_merge_end(m, task);
    double             w[TNI_MERGE_SHARE];
    int64_t            i, j;
    (void)worker;
    for (i = begin; i < end; i++) w[i - begin] = 1;
    for (j = 0; j < m->k; j++) {
        int64_t own = m->at[j], split = tni_max(begin, tni_min(own, end)), after = tni_max(begin, tni_min(own + 1, end));
        by->weights(split - begin, m->pole + begin, m->origin[j], m->tau[j], m->d[j], w);
        if (split < after) w[own - begin] *= (m->pole[own] - m->origin[j]) - m->tau[j];
        by->weights(end - after, m->pole + after, m->origin[j], m->tau[j], m->d[j], w + (after - begin));
    }
    for (i = begin; i < end; i++) m->weight[i] = copysign(sqrt(fmax(-w[i - begin], 0)), m->weight[i]);
}

static void tni_merge_vectors(void *arg, int64_t task, int worker)
{
    const tni_merge *m = (const tni_merge *)arg;
    int64_t j;
    (void)worker;
    for (j = task * TNI_MERGE_SHARE; j < tni_merge_end(m, task); j++)
        m->divide->host->by->pole_vector(m->k, m->pole, m->weight, m->origin[j], m->tau[j], m->divide->turn + j * m->k);
}

/* order: the indices of x[n], ascending; spare [n]. Merges ever longer runs. */
static void tni_sort_index(int64_t n, const double *x, int64_t *order, int64_t *spare)
{
    int64_t run, i, k;
    for (i = 0; i < n; i++) order[i] = i;
    for (run = 1; run < n; run *= 2) {
        for (i = 0; i < n; i += 2 * run) {
            int64_t middle = tni_min(i + run, n), end = tni_min(i + 2 * run, n), l = i, r = middle;
            for (k = i; k < end; k++)
                spare[k] = l < middle && (r >= end || x[order[l]] <= x[order[r]]) ? order[l++] : order[r++];
        }
        memcpy(order, spare, (size_t)n * sizeof *order);
    }
}

/* Where the row of an eigenvector is not zero. */
typedef enum tni_support { TNI_FIRST, TNI_BOTH, TNI_SECOND, TNI_DONE, TNI_SUPPORTS } tni_support;

/* Deflation: finds rows that are done, and leaves those that are not, in ascending order, in `left`. z: rows of Z. */
static int64_t tni_merge_deflate(const tni_divide *v, int64_t n, double *z, double *d, double *u, double rho,
                                 const int64_t *order, int64_t *support, int64_t *left)
{
    const double nothing = 8 * v->nothing;
    int64_t      i, k = 0, held = -1;
    for (i = 0; i < n; i++) {
        int64_t row = order[i];
        if (rho * fabs(u[row]) <= nothing) { support[row] = TNI_DONE; continue; }
        if (held >= 0) {
            double both = hypot(u[row], u[held]), c = u[row] / both, s = u[held] / both, dh = d[held], dr = d[row];
            if (fabs((dr - dh) * c * s) <= nothing) {
                v->host->by->rotate(n, c, s, z + held * v->stride, z + row * v->stride);
                u[row] = both;
                d[held] = dh * c * c + dr * s * s;
                d[row] = dh * s * s + dr * c * c;
                if (support[row] != support[held]) support[row] = TNI_BOTH;
                support[held] = TNI_DONE;
            } else left[k++] = held;
        }
        held = row;
    }
    if (held >= 0) left[k++] = held;
    return k;
}

/* Rows of Z, by where they are not zero, to `packed`: the first n1 columns of FIRST and BOTH, the other columns
   of BOTH and SECOND, then all of DONE, whose values follow those of the others. */
static void tni_merge_pack(const tni_divide *v, int64_t n, int64_t n1, const double *z, const int64_t *member,
                           const int64_t *count, const double *d, double *values)
{
    int64_t i, k = count[TNI_FIRST] + count[TNI_BOTH] + count[TNI_SECOND];
    double *to = v->packed;
    for (i = 0; i < count[TNI_FIRST] + count[TNI_BOTH]; i++, to += n1)
        memcpy(to, z + member[i] * v->stride, (size_t)n1 * sizeof *to);
    for (i = count[TNI_FIRST]; i < k; i++, to += n - n1)
        memcpy(to, z + member[i] * v->stride + n1, (size_t)(n - n1) * sizeof *to);
    for (i = k; i < n; i++, to += n) {
        memcpy(to, z + member[i] * v->stride, (size_t)n * sizeof *to);
        values[i] = d[member[i]];
    }
}

/* Z = turn packed, and the rows that are done. */
static void tni_merge_join(const tni_divide *v, int64_t n, int64_t n1, double *z, const int64_t *count)
{
    const tni_host *h = v->host;
    int64_t n2 = n - n1, up = count[TNI_FIRST] + count[TNI_BOTH], down = count[TNI_BOTH] + count[TNI_SECOND], i;
    int64_t k = up + count[TNI_SECOND];
    double *lower = v->packed + up * n1, *done = lower + down * n2;
    h->by->gemm(h, k, n1, up, 1, tni_rows(v->turn, k), tni_rows(v->packed, n1), 0, tni_rows(z, v->stride));
    h->by->gemm(h, k, n2, down, 1, tni_rows(v->turn + count[TNI_FIRST], k), tni_rows(lower, n2), 0,
                tni_rows(z + n1, v->stride));
    for (i = k; i < n; i++, done += n) memcpy(z + i * v->stride, done, (size_t)n * sizeof *done);
}

/* Joins the eigenpairs of rows [first,first+n1) and of the rest of n; e: what was torn. */
static tn_status tni_merge_halves(const tni_divide *v, int64_t first, int64_t n, int64_t n1, double e)
{
    double   *z = v->z + first * v->stride + first, *d = v->d + first, *u = v->arrays;
    int64_t  *order = v->lists, *support = order + n, *left = support + n, *member = left + n, *at = member + n;
    int64_t   count[TNI_SUPPORTS] = {0}, place[TNI_SUPPORTS], i, tasks;
    tni_merge m;
    const tni_pool *pool;
    for (i = 0; i < n; i++) {
        u[i] = sqrt(0.5) * (i < n1 ? z[i * v->stride + n1 - 1] : copysign(1, e) * z[i * v->stride + n1]);
        support[i] = i < n1 ? TNI_FIRST : TNI_SECOND;
    }
    m.divide = v; m.rho = 2 * fabs(e); m.at = at;
    m.d = u + n; m.z = m.d + n; m.origin = m.z + n; m.tau = m.origin + n; m.pole = m.tau + n; m.weight = m.pole + n;
    tni_sort_index(n, d, order, member);
    m.k = tni_merge_deflate(v, n, z, d, u, m.rho, order, support, left);
    for (i = 0; i < n; i++) count[support[i]]++;
    for (place[0] = 0, i = 1; i < TNI_SUPPORTS; i++) place[i] = place[i - 1] + count[i - 1];
    for (i = 0; i < m.k; i++) {
        at[i] = place[support[left[i]]]++;
        member[at[i]] = left[i];
        m.d[i] = m.pole[at[i]] = d[left[i]];
        m.z[i] = m.weight[at[i]] = u[left[i]];
    }
    for (i = 0; i < n; i++) if (support[i] == TNI_DONE) member[place[TNI_DONE]++] = i;
    m.values = u;                                            /* u has been taken over */
    tni_merge_pack(v, n, n1, z, member, count, d, m.values);
    tasks = tni_ceil_div(m.k, TNI_MERGE_SHARE);
    pool = tasks > 2 ? v->host->pool : &tni_alone;
    tni_parallel_for(pool, tasks, tni_merge_roots, &m);
    for (i = 0; i < m.k; i++) if (!(fabs(m.values[i]) < HUGE_VAL)) return TN_ERR_CONVERGENCE;
    tni_parallel_for(pool, tasks, tni_merge_weights, &m);
    tni_parallel_for(pool, tasks, tni_merge_vectors, &m);
    tni_merge_join(v, n, n1, z, count);
    memcpy(d, m.values, (size_t)n * sizeof *d);
    return TN_OK;
}

/* Rows and columns [first,first+n) of Z, which is the identity there. */
static tn_status tni_divide_run(const tni_divide *v, int64_t first, int64_t n)
{
    int64_t   n1 = n / 2;
    double    e;
    tn_status s;
    if (n <= TNI_LEAF) {
        tni_rotations r;
        r.host = v->host; r.list = v->rotations; r.room = TNI_LEAF_ROTATIONS; r.used = r.header = 0;
        r.strip = v->strip; r.z = v->z + first * v->stride + first; r.n = n; r.stride = v->stride;
        return tni_ql(n, v->d + first, v->e + first, v->nothing, TNI_QL_SWEEPS, &r);
    }
    e = v->e[first + n1 - 1];
    v->e[first + n1 - 1] = 0;
    v->d[first + n1 - 1] -= fabs(e);
    v->d[first + n1] -= fabs(e);
    if ((s = tni_divide_run(v, first, n1)) != TN_OK) return s;
    if ((s = tni_divide_run(v, first + n1, n - n1)) != TN_OK) return s;
    return tni_merge_halves(v, first, n, n1, e);
}

/* ---- 3. all together */
static int64_t tni_divide_work(int64_t n)
{
    return 2 * n * n + (TNI_MERGE_ARRAYS + TNI_MERGE_LISTS) * n + TNI_LEAF * TNI_STRIP + TNI_LEAF_ROTATIONS;
}

static int64_t tni_eigh_block(int64_t n) { return n < 512 ? TNI_BLOCK : TNI_BLOCK_WIDE; }

static int64_t tni_eigh_work(int64_t n)
{
    int64_t reduce = tni_max(tni_tridiagonal_work(n), tni_reflect_work(n, n, tni_eigh_block(n)));
    int64_t work = 2 * n + tni_max(tni_divide_work(n), reduce);
#ifdef TN_USE_BLAS
    work = tni_max(work, 2 * n * n + 11 * n + 4);            /* numbers and, behind them, integers */
#endif
    return work;
}

#ifdef TN_USE_BLAS
/* dsyevd's lower triangle by columns is our upper one by rows, and its columns are our rows. */
static tn_status tni_lapack_eigh(int64_t n, double *a, double *values, double *z, double *work)
{
    const int     in = (int)n, lwork = (int)(2 * n * n + 6 * n + 1), liwork = (int)(5 * n + 3);
    int           info = 0;
    dsyevd_(z ? "V" : "N", "L", &in, a, &in, values, work, &lwork, (int *)(void *)(work + lwork), &liwork, &info, 1, 1);
    if (info != 0) return TN_ERR_CONVERGENCE;
    if (z) memcpy(z, a, (size_t)(n * n) * sizeof *a);
    return TN_OK;
}
#endif

/* Z, [n,n], and d; e is used up. */
static tn_status tni_eigh_tridiagonal(const tni_host *h, int64_t n, double *d, double *e, double *z, double *work)
{
    double        nothing = TNI_EPS * fmax(tni_largest(1, n, tni_rows(d, n)), tni_largest(1, n, tni_rows(e, n)));
    tni_rotations none;
    tni_divide    v;
    int64_t       i;
    if (!z) {
        memset(&none, 0, sizeof none);
        return tni_ql(n, d, e, nothing, TNI_QL_SWEEPS, &none);
    }
    memset(z, 0, (size_t)(n * n) * sizeof *z);
    for (i = 0; i < n; i++) z[i * n + i] = 1;
    v.host = h; v.stride = n; v.z = z; v.d = d; v.e = e; v.nothing = nothing;
    v.packed = work; v.turn = v.packed + n * n; v.arrays = v.turn + n * n;
    v.lists = (int64_t *)(void *)(v.arrays + TNI_MERGE_ARRAYS * n);
    v.strip = v.arrays + (TNI_MERGE_ARRAYS + TNI_MERGE_LISTS) * n; v.rotations = v.strip + TNI_LEAF * TNI_STRIP;
    memset(v.strip, 0, (size_t)(TNI_LEAF * TNI_STRIP) * sizeof *v.strip);
    return tni_divide_run(&v, 0, n);
}

/* V = Z Q^T: the reflectors, the rows of a, from the last block to the first. */
static void tni_eigh_back(const tni_host *h, int64_t n, double *a, const double *tau, double *z, double *work)
{
    int64_t first, block = tni_eigh_block(n);
    for (first = (n - 2) / block * block; first >= 0; first -= block)
        tni_reflect(h, n - first - 1, n, tni_min(block, n - 1 - first), tni_mat_of(a + first * n + first + 1, 1, n),
                    tau + first, false, tni_mat_of(z + first + 1, 1, n), work);
}

/* Ascending: one walk along each cycle of the order, so that a row moves once. */
static void tni_eigh_sort(int64_t n, double *values, double *vectors, double *work)
{
    double   value, *row = work;
    int64_t *order = (int64_t *)(void *)(row + n), i, to, from;
    const size_t bytes = (size_t)n * sizeof *row;
    tni_sort_index(n, values, order, order + n);
    for (i = 0; i < n; i++) {
        if (order[i] == i) continue;
        value = values[i];
        if (vectors) memcpy(row, vectors + i * n, bytes);
        for (to = i; order[to] != i; to = from) {
            from = order[to];
            values[to] = values[from];
            if (vectors) memcpy(vectors + to * n, vectors + from * n, bytes);
            order[to] = to;
        }
        values[to] = value;
        if (vectors) memcpy(vectors + to * n, row, bytes);
        order[to] = to;
    }
}

static tn_status tni_eigh_scaled(const tni_host *h, int64_t n, double *a, double *values, double *vectors, double *work)
{
    double   *e = work, *tau = e + n, *rest = tau + n;
    tn_status s;
#ifdef TN_USE_BLAS
    if (n <= TNI_LAPACK_MOST) return tni_lapack_eigh(n, a, values, vectors, work);
#endif
    tni_tridiagonal(h, n, a, values, e, tau, rest);
    s = tni_eigh_tridiagonal(h, n, values, e, vectors, rest);
    if (s == TN_OK && vectors && n > 1) tni_eigh_back(h, n, a, tau, vectors, rest);
    return s;
}

/* Eigenvalues, ascending, of the symmetric a[n,n], which is used up (and of which the upper triangle counts).
   vectors: [n,n], row i belongs to values[i], its largest component is positive; or NULL.
   TN_ERR_NONFINITE, TN_ERR_CONVERGENCE. */
static tn_status tni_eigh(const tni_host *h, int64_t n, double *a, double *values, double *vectors, double *work)
{
    double    largest = tni_largest(n, n, tni_rows(a, n)), scale;
    tn_status s;
    int64_t   i;
    if (n == 0) return TN_OK;
    if (!(largest < HUGE_VAL)) return TN_ERR_NONFINITE;
    scale = tni_unit_scale(largest);
    h->by->scale(n * n, scale, a);
    s = tni_eigh_scaled(h, n, a, values, vectors, work);
    if (s != TN_OK) return s;
    h->by->scale(n, 1 / scale, values);
    tni_eigh_sort(n, values, vectors, work);
    for (i = 0; vectors && i < n; i++)
        if (tni_points_down(n, vectors + i * n, 1)) h->by->scale(n, -1, vectors + i * n);
    return TN_OK;
}

/* ---- Lanczos --------------------------------------------------------- >>lanczos
   Rows of V are an orthonormal basis, H = V A V^T, and all of A V^T that H does not hold lies in the next block:
       A V^T = V^T H + Q^T [0 R]         R belongs to the last block of V, Q is the block that follows it
   so H s = theta s gives the pair (theta, s V) with a residual of |R s_last|, and nothing needs to be multiplied to
   know it. When V is full it shrinks to its best such vectors, and Q goes on from there [Wu & Simon 2000]. Every
   block is made orthogonal to all of V, twice: no copies of values that have been found, as in Lanczos' own way.

   A start does not see all of the space: of a value that is l-fold it finds as many vectors as a block has rows.
   Therefore the pairs that were found stay, a random block takes the place of Q, and the search ends when the next
   pair in line, with all its residual, cannot be better than the last one that is wanted. */
enum { TNI_LANCZOS_STRIP = 32 };

typedef struct tni_lanczos_job {
    const tni_pool *pool;
    tn_simd         simd;
    tni_host        host;
    int64_t        n, top, block, room, limit;           /* room: rows of V */
    tn_lanczos_end end;
    double         tol;
    uint64_t       seed;
    tn_matvec_fn  fn;
    void          *user;
    int64_t        used, last, next;                     /* rows of V; of its last block; of Q, which stands below V */
    int64_t        products, draws;
    double         scale, norm, skew, residual;          /* y times scale is near one; |A|; |H - H^T|                */
    double        *v, *y;                                /* [room + block,n]  [block,n]                              */
    double        *h, *copy, *s, *theta;                 /* [room + block,room]  [room,room] twice  [room]           */
    double        *c, *sum, *r, *length, *strip, *rest;
} tni_lanczos_job;

static int64_t tni_lanczos_work(const tni_lanczos_job *l)
{
    int64_t all = l->room + l->block;
    return (all + l->block) * l->n + (all + 2 * l->room) * l->room + l->room + 2 * all * l->block
         + l->block * (l->block + 1) + l->room * TNI_LANCZOS_STRIP + tni_eigh_work(l->room)
         + tni_host_work(tni_max(l->n, all));
}

static void tni_lanczos_lay(tni_lanczos_job *l, double *work)
{
    int64_t all = l->room + l->block;
    l->v = work;                           l->y = l->v + all * l->n;
    l->h = l->y + l->block * l->n;         l->copy = l->h + all * l->room;
    l->s = l->copy + l->room * l->room;    l->theta = l->s + l->room * l->room;
    l->c = l->theta + l->room;             l->sum = l->c + all * l->block;
    l->r = l->sum + all * l->block;        l->length = l->r + l->block * l->block;
    l->strip = l->length + l->block;       l->rest = l->strip + l->room * TNI_LANCZOS_STRIP;
    l->host = tni_host_of(l->simd, l->pool, tni_max(l->n, all), l->rest + tni_eigh_work(l->room));
}

static double tni_lanczos_dot(const tni_lanczos_job *l, const double *x, const double *y)
{
    return l->host.by->dot(l->n, x, y);
}
static double tni_lanczos_length(const tni_lanczos_job *l, const double *x) { return sqrt(tni_lanczos_dot(l, x, x)); }

/* x loses what lies along rows from .. to - 1 of V. */
static void tni_lanczos_clean(const tni_lanczos_job *l, int64_t from, int64_t to, double *x)
{
    for (; from < to; from++) l->host.by->axpy(l->n, -tni_lanczos_dot(l, l->v + from * l->n, x), l->v + from * l->n, x);
}

/* Row m of V becomes a random unit vector, orthogonal to the rows before it. */
static void tni_lanczos_draw(tni_lanczos_job *l, int64_t m)
{
    double  *x = l->v + m * l->n;
    uint32_t word[4] = {0, 0, 0, 0};
    int64_t  i;
    int      pass;
    for (i = 0; i < l->n; i++) {
        if (i % 4 == 0) tni_random_words(l->seed, l->draws, 0, (uint64_t)i / 4, word);
        x[i] = 2 * (double)tni_unit(word[i % 4]) - 1;
    }
    l->draws++;
    for (pass = 0; pass < 3; pass++) {                       /* near the end of the space little is left of a first pass */
        tni_lanczos_clean(l, 0, m, x);
        l->host.by->scale(l->n, 1 / tni_lanczos_length(l, x), x);
    }
}

static void tni_lanczos_draw_block(tni_lanczos_job *l)
{
    int64_t i;
    l->next = tni_min(l->block, l->n - l->used);
    for (i = 0; i < l->next; i++) tni_lanczos_draw(l, l->used + i);
}

/* Y = A Q, scaled, with the lengths of its rows. */
static tn_status tni_lanczos_multiply(tni_lanczos_job *l)
{
    tn_status s = l->fn(l->user, l->next, l->v + l->used * l->n, l->y);
    double    largest;
    int64_t   i;
    if (s != TN_OK) return s;
    l->products += l->next;
    largest = tni_largest(l->next, l->n, tni_rows(l->y, l->n));
    if (!(largest < HUGE_VAL)) return TN_ERR_NONFINITE;
    if (l->scale == 0 && largest > 0) l->scale = tni_unit_scale(largest);
    l->host.by->scale(l->next * l->n, l->scale, l->y);
    for (i = 0; i < l->next; i++) {
        l->length[i] = tni_lanczos_length(l, l->y + i * l->n);
        if (l->length[i] > l->norm) l->norm = l->length[i];
    }
    return TN_OK;
}

/* The columns of H that belong to Q. What its rows hold already, from R, must be the same. */
static void tni_lanczos_project(tni_lanczos_job *l)
{
    int64_t n = l->n, w = l->next, m = l->used + w, i, j;
    int     pass;
    memset(l->sum, 0, sizeof *l->sum * (size_t)(m * w));
    for (pass = 0; pass < 2; pass++) {
        l->host.by->gemm(&l->host, m, w, n, 1, tni_rows(l->v, n), tni_turned(tni_rows(l->y, n)), 0, tni_rows(l->c, w));
        l->host.by->gemm(&l->host, w, n, m, -1, tni_turned(tni_rows(l->c, w)), tni_rows(l->v, n), 1, tni_rows(l->y, n));
        l->host.by->axpy(m * w, 1, l->c, l->sum);
    }
    for (j = 0; j < w; j++)
        for (i = 0; i < l->used + j + 1; i++) {
            double *column = l->h + i * l->room + l->used + j, *row = l->h + (l->used + j) * l->room + i;
            double  value = l->sum[i * w + j];
            double  mirror = i < l->used ? *row : l->sum[(l->used + j) * w + i - l->used];
            l->skew = tni_max_f64(l->skew, fabs(value - mirror));
            *column = *row = i < l->used ? value : 0.5 * (value + mirror);
        }
}

/* What is left of Y becomes the next block, R Q = Y. A row that depends on the others gives way to a random one, of
   which R knows nothing. */
static void tni_lanczos_succeed(tni_lanczos_job *l)
{
    int64_t n = l->n, w = l->next, m = l->used + w, next = tni_min(l->block, n - m), found = 0, i, j;
    int     pass;
    memset(l->r, 0, sizeof *l->r * (size_t)(l->block * l->block));
    for (i = 0; i < w; i++) {
        double *x = l->y + i * n, length;
        for (pass = 0; pass < 2; pass++)
            for (j = 0; j < found; j++) {
                double d = tni_lanczos_dot(l, l->v + (m + j) * n, x);
                l->host.by->axpy(n, -d, l->v + (m + j) * n, x);
                l->r[j * l->block + i] += d;
            }
        length = tni_lanczos_length(l, x);
        if (found == next || length <= TNI_EPS * l->norm) continue;
        l->r[found * l->block + i] = length;
        l->host.by->scale(n, 1 / length, x);
        if (length < 1e-3 * l->length[i]) {                  /* mostly rounding by now: not quite orthogonal */
            tni_lanczos_clean(l, 0, m + found, x);
            l->host.by->scale(n, 1 / tni_lanczos_length(l, x), x);
        }
        memcpy(l->v + (m + found++) * n, x, sizeof *x * (size_t)n);
    }
    for (; found < next; found++) tni_lanczos_draw(l, m + found);
    for (j = 0; j < next; j++) {
        memset(l->h + (m + j) * l->room, 0, sizeof *l->h * (size_t)l->used);
        for (i = 0; i < w; i++) l->h[(m + j) * l->room + l->used + i] = l->r[j * l->block + i];
    }
    l->last = w;
    l->used = m;
    l->next = next;
}

static double tni_lanczos_key(const tni_lanczos_job *l, int64_t i)
{
    double x = l->theta[i];
    return l->end == TN_LANCZOS_MAGNITUDE ? fabs(x) : l->end == TN_LANCZOS_LARGEST ? x : -x;
}

/* theta and s of H, in the order that is wanted */
static tn_status tni_lanczos_ritz(tni_lanczos_job *l)
{
    int64_t   m = l->used, i;
    tn_status s;
    for (i = 0; i < m; i++) memcpy(l->copy + i * m, l->h + i * l->room, sizeof *l->h * (size_t)m);
    if ((s = tni_eigh(&l->host, m, l->copy, l->theta, l->s, l->rest)) != TN_OK) return s;
    if (l->end != TN_LANCZOS_SMALLEST)
        tni_sort_rows(m, l->theta, l->end == TN_LANCZOS_LARGEST ? tni_before_descending : tni_before_magnitude, m, l->s,
                      NULL);
    for (i = 0; i < m; i++) l->norm = tni_max_f64(l->norm, fabs(l->theta[i]));
    return TN_OK;
}

/* (R s_last)[j] of Ritz pair i */
static double tni_lanczos_coupling(const tni_lanczos_job *l, int64_t i, int64_t j)
{
    return l->host.by->dot(l->last, l->r + j * l->block, l->s + i * l->used + l->used - l->last);
}

static double tni_lanczos_residual(const tni_lanczos_job *l, int64_t i)
{
    double  sum = 0;
    int64_t j;
    for (j = 0; j < l->next; j++) {
        double x = tni_lanczos_coupling(l, i, j);
        sum += x * x;
    }
    return sqrt(sum);
}

/* The first `keep` rows of V become the first Ritz vectors: a strip of columns at a time, in place. */
static void tni_lanczos_rotate(tni_lanczos_job *l, int64_t keep)
{
    int64_t at, i, n = l->n;
    for (at = 0; at < n; at += TNI_LANCZOS_STRIP) {
        int64_t w = tni_min(TNI_LANCZOS_STRIP, n - at);
        l->host.by->gemm(&l->host, keep, w, l->used, 1, tni_rows(l->s, l->used), tni_rows(l->v + at, n), 0,
                         tni_rows(l->strip, w));
        for (i = 0; i < keep; i++) memcpy(l->v + i * n + at, l->strip + i * w, sizeof *l->v * (size_t)w);
    }
}

/* `anew`: with a random block instead of Q. */
static void tni_lanczos_restart(tni_lanczos_job *l, int64_t keep, bool anew)
{
    int64_t i, j, m = l->used, next = anew ? tni_min(l->block, l->n - keep) : l->next;
    tni_lanczos_rotate(l, keep);
    for (i = 0; i < keep; i++) {
        memset(l->h + i * l->room, 0, sizeof *l->h * (size_t)keep);
        l->h[i * l->room + i] = l->theta[i];
    }
    for (j = 0; j < next; j++)
        for (i = 0; i < keep; i++) l->h[(keep + j) * l->room + i] = anew ? 0 : tni_lanczos_coupling(l, i, j);
    if (!anew) memmove(l->v + keep * l->n, l->v + m * l->n, sizeof *l->v * (size_t)(next * l->n));
    l->used = keep;
    if (anew) tni_lanczos_draw_block(l);
}

/* Have the wanted pairs been found, and may a better one still be hidden? Restarts where the search goes on. */
static bool tni_lanczos_finished(tni_lanczos_job *l, bool *anew, double *before)
{
    double  slack = l->tol * l->norm, worst, next;
    int64_t i, k = l->top;
    for (worst = 0, i = 0; i < k; i++) worst = tni_max_f64(worst, tni_lanczos_residual(l, i));
    l->residual = l->norm > 0 ? worst / l->norm : 0;
    if (l->next == 0 || k == 0) return true;                 /* V is all of the space */
    if (worst <= slack && (!*anew || tni_lanczos_key(l, k - 1) > *before + 10 * slack)) {
        *anew = true;
        *before = tni_lanczos_key(l, k - 1);
        tni_lanczos_restart(l, k, true);
        return false;
    }
    next = tni_lanczos_residual(l, k);
    if (worst <= slack && (next <= slack || tni_lanczos_key(l, k) + next <= tni_lanczos_key(l, k - 1) + slack)) return true;
    tni_lanczos_restart(l, tni_min(k + (l->used - k) / 2, l->room - l->next), false);
    return false;
}

/* theta [top] and the first `top` rows of V. TN_ERR_ARG: A is not symmetric. */
static tn_status tni_lanczos(tni_lanczos_job *l)
{
    bool      anew = false;
    double    before = 0;
    tn_status s = TN_OK;
    tni_lanczos_draw_block(l);
    for (;;) {
        while (l->next > 0 && l->used + l->next <= l->room) {
            if ((s = tni_lanczos_multiply(l)) != TN_OK) return s;
            tni_lanczos_project(l);
            tni_lanczos_succeed(l);
        }
        if (l->skew > 1e-3 * l->norm) return TN_ERR_ARG;
        if ((s = tni_lanczos_ritz(l)) != TN_OK) return s;
        if (tni_lanczos_finished(l, &anew, &before)) break;
        if (l->products >= l->limit) return TN_ERR_CONVERGENCE;
    }
    tni_lanczos_rotate(l, l->top);
    for (l->last = 0; l->last < l->top; l->last++) {
        double *x = l->v + l->last * l->n;
        if (l->scale > 0) l->theta[l->last] /= l->scale;
        if (tni_points_down(l->n, x, 1)) l->host.by->scale(l->n, -1, x);
    }
    return TN_OK;
}

/* ---- SVD ------------------------------------------------------------ >>svd
   A = Q R (a wide A: its transposed), then R = L^T diag(s) V by one-sided Jacobi: rotations from the
   left, L, make the rows of L R orthogonal; they are s_i v_i. Hestenes 1958 [GVL 8.6.3] [dgesvj].
   The first L are the eigenvectors of R R^T. They are exact enough for singular values above the
   root of eps, so that sweeps are few; what the squares have lost below, the sweeps repair: every value
   is right to eps times the largest, as with Golub and Kahan's way. */
enum { TNI_JACOBI_SWEEPS = 60 };

#ifdef TN_USE_BLAS
/* What dgesdd asks for at least, over all versions, and room for its blocks. */
static int64_t tni_lapack_svd_work(int64_t m, int64_t n) { return 3 * n + tni_max(m, 5 * n * n + 7 * n) + 32 * (m + n); }
#endif

static int64_t tni_svd_work(int64_t m, int64_t n)
{
    int64_t k = tni_min(m, n), l = tni_max(m, n);
    int64_t work = l * k + 3 * k * k + tni_max(tni_qr_work(l, k), tni_eigh_work(k));
#ifdef TN_USE_BLAS
    work = tni_max(work, 2 * l * k + k * k + tni_lapack_svd_work(l, k) + 4 * k);
#endif
    return work;
}

#ifdef TN_USE_BLAS
/* u[m,n], s[n], vt[n,n] of a[m,n], m >= n */
static tn_status tni_lapack_svd(int64_t m, int64_t n, tni_mat a, tni_mat u, double *s, tni_mat vt, double *work)
{
    double   *ac = work, *uc = ac + m * n, *vc = uc + m * n, *rest = vc + n * n;
    const int im = (int)m, in = (int)n, lwork = (int)tni_lapack_svd_work(m, n);
    int       info = 0;
    int64_t   i, j;
    if (!(tni_largest(m, n, a) < HUGE_VAL)) return TN_ERR_NONFINITE;
    for (j = 0; j < n; j++)
        for (i = 0; i < m; i++) ac[j * m + i] = a.p[i * a.row + j * a.col];
    dgesdd_("S", &im, &in, ac, &im, s, uc, &im, vc, &in, rest, &lwork, (int *)(void *)(rest + lwork), &info, 1);
    if (info != 0) return TN_ERR_CONVERGENCE;
    for (j = 0; j < n; j++) {
        for (i = 0; i < m; i++) u.p[i * u.row + j * u.col] = uc[j * m + i];
        for (i = 0; i < n; i++) vt.p[i * vt.row + j * vt.col] = vc[j * n + i];
    }
    return TN_OK;
}
#endif

/* Makes rows i and j of y orthogonal, if they are not; squares holds |y_i|^2. */
static bool tni_jacobi_pair(const tni_host *h, int64_t n, double *y, double *left, double *squares, int64_t i, int64_t j)
{
    double *yi = y + i * n, *yj = y + j * n, product = h->by->dot(n, yi, yj), zeta, t, c;
    if (fabs(product) <= TNI_EPS * sqrt((double)n) * sqrt(squares[i]) * sqrt(squares[j])) return false;
    zeta = (squares[j] - squares[i]) / (2 * product);
    t = copysign(1, zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    c = 1 / sqrt(1 + t * t);
    h->by->rotate(n, c, c * t, yi, yj);
    h->by->rotate(n, c, c * t, left + i * n, left + j * n);
    squares[i] = h->by->dot(n, yi, yi);
    squares[j] = h->by->dot(n, yj, yj);
    return true;
}

/* Rows shorter than eps times the longest are rounding noise: they are left alone, and become zeros. */
static double tni_jacobi_noise(int64_t n, const double *squares)
{
    return TNI_EPS * TNI_EPS * tni_largest(1, n, tni_rows((double *)squares, n));
}

static tn_status tni_jacobi(const tni_host *h, int64_t n, double *y, double *left, double *squares)
{
    int64_t i, j, turned = 1;
    int     sweep;
    for (sweep = 0; sweep < TNI_JACOBI_SWEEPS && turned > 0; sweep++) {
        double noise;
        for (i = 0; i < n; i++) squares[i] = h->by->dot(n, y + i * n, y + i * n);
        noise = tni_jacobi_noise(n, squares);
        for (turned = 0, i = 0; i < n; i++)
            for (j = i + 1; j < n && squares[i] > noise; j++)
                if (squares[j] > noise) turned += tni_jacobi_pair(h, n, y, left, squares, i, j);
    }
    return turned > 0 ? TN_ERR_CONVERGENCE : TN_OK;
}

/* Rows of y to unit length, their lengths to s, in descending order; returns how many are not zero. */
static int64_t tni_svd_lengths(const tni_host *h, int64_t n, double *y, double *left, double *s)
{
    int64_t i, rank = 0;
    for (i = 0; i < n; i++) s[i] = sqrt(h->by->dot(n, y + i * n, y + i * n));
    tni_sort_rows(n, s, tni_before_descending, n, y, left);
    for (rank = 0; rank < n && s[rank] > TNI_EPS * s[0]; rank++) h->by->scale(n, 1 / s[rank], y + rank * n);
    for (i = rank; i < n; i++) s[i] = 0;
    memset(y + rank * n, 0, (size_t)((n - rank) * n) * sizeof *y);
    return rank;
}

/* polished = (3 I - L L^T) L / 2: thousands of rotations have left L orthonormal to about 1e-13 only; one
   step of Newton's iteration squares that. Higham 2008, chapter 8. */
static void tni_svd_polish(const tni_host *h, int64_t n, double *left, double *product, double *polished)
{
    tni_mat l = tni_rows(left, n), p = tni_rows(product, n);
    h->by->gemm(h, n, n, n, 1, l, tni_turned(l), 0, p);
    memcpy(polished, left, (size_t)(n * n) * sizeof *left);
    h->by->gemm(h, n, n, n, -0.5, p, l, 1.5, tni_rows(polished, n));
}

/* u[m,n], s[n], vt[n,n] of a[m,n], m >= n */
static tn_status tni_svd_tall(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat u, double *s, tni_mat vt,
                              double *work)
{
    double   *q = work, *r = q + m * n, *left = r + n * n, *y = left + n * n, *rest = y + n * n, scale;
    tni_mat   rm = tni_rows(r, n), lm = tni_rows(left, n), ym = tni_rows(y, n);
    int64_t   i, j, rank;
    tn_status status;
#ifdef TN_USE_BLAS
    if (n > 0 && m <= TNI_LAPACK_MOST && n <= TNI_LAPACK_MOST) return tni_lapack_svd(m, n, a, u, s, vt, work);
#endif
    status = tni_qr(h, m, n, a, tni_rows(q, n), rm, rest);
    if (status != TN_OK || n == 0) return status;
    scale = tni_unit_scale(tni_largest(n, n, rm));
    h->by->scale(n * n, scale, r);
    h->by->gemm(h, n, n, n, 1, rm, tni_turned(rm), 0, ym);
    if ((status = tni_eigh(h, n, y, s, left, rest)) != TN_OK) return status;
    for (i = 0; i < n / 2; i++) tni_swap(n, left + i * n, left + (n - 1 - i) * n);      /* the largest first */
    h->by->gemm(h, n, n, n, 1, lm, rm, 0, ym);
    if ((status = tni_jacobi(h, n, y, left, s)) != TN_OK) return status;
    rank = tni_svd_lengths(h, n, y, left, s);
    h->by->scale(n, 1 / scale, s);
    tni_svd_polish(h, n, left, r, rest);
    h->by->gemm(h, m, n, n, 1, tni_rows(q, n), tni_turned(tni_rows(rest, n)), 0, u);
    if (rank < n) {                                          /* the missing right vectors: any that complete the others */
        if ((status = tni_qr(h, n, n, tni_turned(ym), tni_turned(lm), rm, rest)) != TN_OK) return status;
        memcpy(y + rank * n, left + rank * n, (size_t)((n - rank) * n) * sizeof *y);
    }
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) vt.p[i * vt.row + j * vt.col] = y[i * n + j];
    return TN_OK;
}

/* a[m,n] = u[m,k] diag(s) vt[k,n], k = min(m,n), s descending; the largest component of each column of u
   is positive. a is left as it is. TN_ERR_NONFINITE, TN_ERR_CONVERGENCE. */
static tn_status tni_svd(const tni_host *h, int64_t m, int64_t n, tni_mat a, tni_mat u, double *s, tni_mat vt, double *work)
{
    int64_t   i, j, k = tni_min(m, n);
    tn_status status = m >= n ? tni_svd_tall(h, m, n, a, u, s, vt, work)
                              : tni_svd_tall(h, n, m, tni_turned(a), tni_turned(vt), s, tni_turned(u), work);
    for (i = 0; status == TN_OK && i < k; i++) {
        if (!tni_points_down(m, u.p + i * u.col, u.row)) continue;
        for (j = 0; j < m; j++) u.p[j * u.row + i * u.col] = -u.p[j * u.row + i * u.col];
        for (j = 0; j < n; j++) vt.p[i * vt.row + j * vt.col] = -vt.p[i * vt.row + j * vt.col];
    }
    return status;
}

/* ---- tensors ------------------------------------------------ >>decomp-tensors
   A copy in double is read, decomposed, and what was asked for is written. `room` is one allocation. */

/* Workspaces are small multiples of m n, m^2 or n^2 of the smaller, and m + n: under these bounds their sizes do not
   wrap. */
static bool tni_decomp_fits(tn_ctx *ctx, const char *op, int64_t m, int64_t n)
{
    if (m <= INT32_MAX && n <= INT32_MAX && m * n <= INT64_MAX / 64) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "%s: a matrix of %lld x %lld, but extents must be below 2^31", op, (long long)m,
             (long long)n);
    return false;
}

static tn_status tni_decomp_takes(tn_ctx *ctx, const char *op, const tn_tensor *a)
{
    if (!tni_usable(ctx, a, op, "a")) return TN_ERR_ARG;
    if (a->rank != 2) return tni_fail(ctx, TN_ERR_SHAPE, "%s: a is %s, but must be a matrix", op, TNI_SHAPE(a));
    return tni_decomp_fits(ctx, op, a->shape[0], a->shape[1]) ? TN_OK : TN_ERR_SHAPE;
}

/* How many are kept, 0 standing for all; -1 with a message where there are not so many. */
static int64_t tni_decomp_top(tn_ctx *ctx, const char *op, int64_t top, int64_t all)
{
    if (top >= 0 && top <= all) return top ? top : all;
    tni_fail(ctx, TN_ERR_ARG, "%s: top is %lld, but there are %lld", op, (long long)top, (long long)all);
    return -1;
}

static tn_status tni_decomp_read(tn_ctx *ctx, const char *op, const tn_tensor *a, double *p)
{
    int64_t   n = a->shape[0] * a->shape[1];
    tn_status s = tn_read(a, TN_F64, p, n);
    if (s != TN_OK || tni_largest(1, n, tni_rows(p, n)) < HUGE_VAL) return s;
    return tni_fail(ctx, TN_ERR_NONFINITE, "%s: a, %s, holds NaN or infinity", op, TNI_SHAPE(a));
}

static tni_host tni_decomp_host(tn_ctx *ctx, int64_t extent, double *work)
{
    return tni_host_of(ctx->desc.simd, tni_ctx_pool(ctx), extent, work);
}

/* An owned tensor of the context's dtype, [n] or [n,m]. */
static tn_status tni_decomp_write(tn_ctx *ctx, tn_tensor **out, int rank, int64_t n, int64_t m, const double *p)
{
    int64_t shape[2];
    shape[0] = n; shape[1] = m;
    *out = tn_tensor_create(ctx, TN_REAL, rank, shape);
    return *out ? tn_write(*out, TN_F64, p, rank == 1 ? n : n * m) : TN_ERR_MEMORY;
}

/* As the context's dtype holds them. */
static void tni_decomp_round(tn_ctx *ctx, int64_t n, double *p)
{
    int64_t i;
    for (i = 0; ctx->desc.dtype == TN_F32 && i < n; i++) p[i] = (double)(float)p[i];
}

/* |A - L diag(d) R|_F / |A|_F with L [m,k], R [k,n]; d NULL: all ones. a is used up; scratch: [k,n]. */
static double tni_decomp_error(const tni_host *h, int64_t m, int64_t n, int64_t k, double *a, tni_mat left, const double *d,
                               const double *right, double *scratch)
{
    double  size = tni_frobenius(m * n, a), rest;
    int64_t i, j;
    for (i = 0; i < k; i++)
        for (j = 0; j < n; j++) scratch[i * n + j] = (d ? d[i] : 1) * right[i * n + j];
    h->by->gemm(h, m, n, k, -1, left, tni_rows(scratch, n), 1, tni_rows(a, n));
    rest = tni_frobenius(m * n, a);
    return size > 0 ? rest / size : rest;
}

/* (A + A^T)/2, by squares that stay in the cache with their mirror images */
static void tni_symmetrise(int64_t n, double *a)
{
    const int64_t side = 16;
    int64_t bi, bj, i, j;
    for (bi = 0; bi < n; bi += side)
        for (bj = bi; bj < n; bj += side)
            for (i = bi; i < tni_min(bi + side, n); i++)
                for (j = tni_max(bj, i + 1); j < tni_min(bj + side, n); j++)
                    a[i * n + j] = a[j * n + i] = 0.5 * a[i * n + j] + 0.5 * a[j * n + i];
}

/* The three below: read, decompose, write, and measure if asked. */
static tn_status tni_eigh_tensor(tn_ctx *ctx, tn_eigh_result *out, const tn_tensor *a, const tn_eigh_desc *desc, int64_t top,
                                 double *room)
{
    int64_t   n = a->shape[0];
    double   *vectors = tni_aligned(room), *values = vectors + n * n, *matrix = values + n, *work = matrix + n * n;
    double   *again = work + tni_eigh_work(n);
    double   *wanted = desc->no_vectors ? NULL : vectors;
    tni_host  h = tni_decomp_host(ctx, n, again + (desc->measure ? n * n : 0));
    tn_status s = tni_decomp_read(ctx, "eigh", a, matrix);
    if (s != TN_OK) return s;
    tni_symmetrise(n, matrix);
    if (desc->measure) memcpy(again, matrix, (size_t)(n * n) * sizeof *again);
    if ((s = tni_eigh(&h, n, matrix, values, wanted, work)) != TN_OK)
        return tni_fail(ctx, s, "eigh: a, %s: no convergence", TNI_SHAPE(a));
    if (desc->order == TN_EIGH_MAGNITUDE) tni_sort_rows(n, values, tni_before_magnitude, n, wanted, NULL);
    if ((s = tni_decomp_write(ctx, &out->values, 1, top, 0, values)) != TN_OK || !wanted) return s;
    if ((s = tni_decomp_write(ctx, &out->vectors, 2, top, n, vectors)) != TN_OK || !desc->measure) return s;
    tni_decomp_round(ctx, top, values);
    tni_decomp_round(ctx, top * n, vectors);
    out->error = tni_decomp_error(&h, n, n, top, again, tni_turned(tni_rows(vectors, n)), values, vectors, matrix);
    return TN_OK;
}

static tn_status tni_qr_tensor(tn_ctx *ctx, tn_qr_result *out, const tn_tensor *a, const tn_qr_desc *desc, double *room)
{
    int64_t   m = a->shape[0], n = a->shape[1], k = tni_min(m, n);
    double   *matrix = room, *q = matrix + m * n, *r = q + m * k, *work = r + k * n;
    tni_host  h = tni_decomp_host(ctx, tni_max(m, n), work + tni_qr_work(m, n));
    tn_status s = tni_decomp_read(ctx, "qr", a, matrix);
    if (s != TN_OK) return s;
    if ((s = tni_qr(&h, m, n, tni_rows(matrix, n), tni_rows(q, k), tni_rows(r, n), work)) != TN_OK) return s;
    if ((s = tni_decomp_write(ctx, &out->q, 2, m, k, q)) != TN_OK) return s;
    if ((s = tni_decomp_write(ctx, &out->r, 2, k, n, r)) != TN_OK || !desc->measure) return s;
    tni_decomp_round(ctx, m * k + k * n, q);
    out->error = tni_decomp_error(&h, m, n, k, matrix, tni_rows(q, k), NULL, r, work);
    return TN_OK;
}

static tn_status tni_svd_tensor(tn_ctx *ctx, tn_svd_result *out, const tn_tensor *a, const tn_svd_desc *desc, int64_t top,
                                double *room)
{
    int64_t   m = a->shape[0], n = a->shape[1], k = tni_min(m, n), i;
    double   *matrix = room, *u = matrix + m * n, *vt = u + m * k, *values = vt + k * n, *work = values + k;
    tni_host  h = tni_decomp_host(ctx, tni_max(m, n), work + tni_svd_work(m, n));
    tn_status s = tni_decomp_read(ctx, "svd", a, matrix);
    if (s != TN_OK) return s;
    if ((s = tni_svd(&h, m, n, tni_rows(matrix, n), tni_rows(u, k), values, tni_rows(vt, n), work)) != TN_OK)
        return tni_fail(ctx, s, "svd: a, %s: no convergence", TNI_SHAPE(a));
    for (i = 0; i < m; i++) memmove(u + i * top, u + i * k, (size_t)top * sizeof *u);
    if ((s = tni_decomp_write(ctx, &out->u, 2, m, top, u)) != TN_OK) return s;
    if ((s = tni_decomp_write(ctx, &out->s, 1, top, 0, values)) != TN_OK) return s;
    if ((s = tni_decomp_write(ctx, &out->vt, 2, top, n, vt)) != TN_OK || !desc->measure) return s;
    tni_decomp_round(ctx, m * k + k * n + k, u);
    out->error = tni_decomp_error(&h, m, n, top, matrix, tni_rows(u, top), values, vt, work);
    return TN_OK;
}

tn_status tn_eigh(tn_ctx *ctx, tn_eigh_result *out, const tn_tensor *a, const tn_eigh_desc *desc)
{
    static const tn_eigh_desc usual = {TN_EIGH_ASCENDING, 0, false, false};
    int64_t n, top, size;
    double *room;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    out->error = (double)NAN;
    if (!desc) desc = &usual;
    if ((out->status = tni_decomp_takes(ctx, "eigh", a)) != TN_OK) return out->status;
    n = a->shape[0];
    if (n != a->shape[1])
        return out->status = tni_fail(ctx, TN_ERR_SHAPE, "eigh: a is %s, but must be square", TNI_SHAPE(a));
    if ((top = tni_decomp_top(ctx, "eigh", desc->top, n)) < 0) return out->status = TN_ERR_ARG;
    size = (desc->measure ? 3 : 2) * n * n + n + tni_eigh_work(n) + tni_host_work(n) + TNI_ALIGN / 8;
    if (!(room = tni_room_f64(ctx, 1, size, "eigh"))) return out->status = TN_ERR_MEMORY;
    out->status = tni_eigh_tensor(ctx, out, a, desc, top, room);
    tni_free_f64(ctx, room, 1, size);
    if (out->status != TN_OK) tn_eigh_destroy(out);
    return out->status;
}

tn_status tn_qr(tn_ctx *ctx, tn_qr_result *out, const tn_tensor *a, const tn_qr_desc *desc)
{
    static const tn_qr_desc usual = {false};
    int64_t m, n, k, size;
    double *room;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    out->error = (double)NAN;
    if ((out->status = tni_decomp_takes(ctx, "qr", a)) != TN_OK) return out->status;
    m = a->shape[0]; n = a->shape[1]; k = tni_min(m, n);
    size = m * n + k * (m + n) + tni_qr_work(m, n) + tni_host_work(tni_max(m, n));
    if (!(room = tni_alloc_f64(ctx, 1, size, "qr"))) return out->status = TN_ERR_MEMORY;
    out->status = tni_qr_tensor(ctx, out, a, desc ? desc : &usual, room);
    tni_free_f64(ctx, room, 1, size);
    if (out->status != TN_OK) tn_qr_destroy(out);
    return out->status;
}

tn_status tn_svd(tn_ctx *ctx, tn_svd_result *out, const tn_tensor *a, const tn_svd_desc *desc)
{
    static const tn_svd_desc usual = {0, false};
    int64_t m, n, k, top, size;
    double *room;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    out->error = (double)NAN;
    if (!desc) desc = &usual;
    if ((out->status = tni_decomp_takes(ctx, "svd", a)) != TN_OK) return out->status;
    m = a->shape[0]; n = a->shape[1]; k = tni_min(m, n);
    if ((top = tni_decomp_top(ctx, "svd", desc->top, k)) < 0) return out->status = TN_ERR_ARG;
    size = m * n + k * (m + n + 1) + tni_svd_work(m, n) + tni_host_work(tni_max(m, n));
    if (!(room = tni_alloc_f64(ctx, 1, size, "svd"))) return out->status = TN_ERR_MEMORY;
    out->status = tni_svd_tensor(ctx, out, a, desc, top, room);
    tni_free_f64(ctx, room, 1, size);
    if (out->status != TN_OK) tn_svd_destroy(out);
    return out->status;
}

/* The sizes that a desc leaves open, and what it may not ask for. */
static tn_status tni_lanczos_plan(tn_ctx *ctx, tni_lanczos_job *l, int64_t n, const tn_lanczos_desc *d)
{
    memset(l, 0, sizeof *l);
    l->pool = tni_ctx_pool(ctx);
    l->simd = ctx->desc.simd;
    if (n < 0 || n > INT32_MAX)
        return tni_fail(ctx, TN_ERR_ARG, "lanczos: a matrix of size %lld, but it must be below 2^31", (long long)n);
    if ((unsigned)d->end > TN_LANCZOS_SMALLEST) return tni_fail(ctx, TN_ERR_ARG, "lanczos: end %d is none", (int)d->end);
    if ((l->top = tni_decomp_top(ctx, "lanczos", d->top, n)) < 0) return TN_ERR_ARG;
    if (d->block < 0 || d->basis < 0 || d->products < 0 || !(d->tol >= 0) || !(d->tol < 1))
        return tni_fail(ctx, TN_ERR_ARG, "lanczos: block %lld, basis %lld, products %lld, tol %g: none may be negative, "
                        "and tol must be below one",
                        (long long)d->block, (long long)d->basis, (long long)d->products, d->tol);
    l->n = n;
    l->end = d->end;
    l->seed = d->seed;
    l->tol = d->tol > 0 ? d->tol : ctx->desc.dtype == TN_F32 ? 1e-8 : 1e-12;
    l->block = tni_min(tni_max(d->block, 1), tni_max(n, 1));
    l->room = tni_min(n, d->basis > 0 ? d->basis : 2 * l->top + 40 * l->block);
    l->limit = d->products > 0 ? d->products : 300 * l->room;
    if (n > 0 && l->room + 2 * l->block > (INT64_MAX >> 8) / n)
        return tni_fail(ctx, TN_ERR_MEMORY, "lanczos: no memory for a basis of %lld vectors of %lld", (long long)l->room,
                        (long long)n);
    if (l->room == n || l->room >= l->top + 2 * l->block) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "lanczos: a basis of %lld for %lld pairs and blocks of %lld: it must be %lld at least",
                    (long long)l->room, (long long)l->top, (long long)l->block, (long long)(l->top + 2 * l->block));
}

/* |A v - l v| / |A| of the results as they are stored: y is A v. */
static tn_status tni_lanczos_measure(tn_ctx *ctx, tni_lanczos_job *l, double *residual)
{
    double    worst = 0;
    int64_t   i;
    tn_status s;
    tni_decomp_round(ctx, l->top, l->theta);
    tni_decomp_round(ctx, l->top * l->n, l->v);
    for (i = 0; i < l->top; i++) {
        if ((s = l->fn(l->user, 1, l->v + i * l->n, l->y)) != TN_OK) return s;
        l->host.by->axpy(l->n, -l->theta[i], l->v + i * l->n, l->y);
        worst = tni_max_f64(worst, tni_frobenius(l->n, l->y));
    }
    *residual = l->norm > 0 ? worst * l->scale / l->norm : worst;
    return TN_OK;
}

static tn_status tni_lanczos_tensor(tn_ctx *ctx, tn_lanczos_result *out, tni_lanczos_job *l, const tn_lanczos_desc *desc)
{
    tn_status s = tni_lanczos(l);
    out->residual = l->residual;
    out->products = l->products;
    if (s == TN_ERR_CONVERGENCE)
        return tni_fail(ctx, s, "lanczos: after %lld products the residual is %g, not %g", (long long)l->products,
                        l->residual, l->tol);
    if (s == TN_ERR_ARG && l->skew > 1e-3 * l->norm)
        return tni_fail(ctx, s, "lanczos: the matrix is not symmetric: x . A y and y . A x differ by %g of |A|",
                        l->skew / l->norm);
    if (s == TN_ERR_NONFINITE) return tni_fail(ctx, s, "lanczos: a product holds NaN or infinity");
    if (s != TN_OK) return tni_fail(ctx, s, "lanczos: the product failed: %s", tn_status_name(s));
    if ((s = tni_decomp_write(ctx, &out->values, 1, l->top, 0, l->theta)) != TN_OK) return s;
    if ((s = tni_decomp_write(ctx, &out->vectors, 2, l->top, l->n, l->v)) != TN_OK || !desc->measure) return s;
    return tni_lanczos_measure(ctx, l, &out->residual);
}

tn_status tn_lanczos(tn_ctx *ctx, tn_lanczos_result *out, int64_t n, tn_matvec_fn fn, void *user,
                     const tn_lanczos_desc *desc)
{
    static const tn_lanczos_desc usual = {TN_LANCZOS_MAGNITUDE, 0, 0, 0, 0, 0, 0, false};
    tni_lanczos_job job;
    double *room;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    out->residual = (double)NAN;
    if (!desc) desc = &usual;
    if (!ctx) return out->status = TN_ERR_ARG;
    if (!fn) return out->status = tni_fail(ctx, TN_ERR_ARG, "lanczos: there is no product");
    if ((out->status = tni_lanczos_plan(ctx, &job, n, desc)) != TN_OK) return out->status;
    job.fn = fn;
    job.user = user;
    if (!(room = tni_alloc_f64(ctx, 1, tni_lanczos_work(&job), "lanczos"))) return out->status = TN_ERR_MEMORY;
    tni_lanczos_lay(&job, room);
    out->status = tni_lanczos_tensor(ctx, out, &job, desc);
    tni_free_f64(ctx, room, 1, tni_lanczos_work(&job));
    if (out->status != TN_OK) tn_lanczos_destroy(out);
    return out->status;
}

static void tni_drop(tn_tensor **t)
{
    if (*t) tn_tensor_destroy(*t);
    *t = NULL;
}

void tn_eigh_destroy(tn_eigh_result *r) { if (r) { tni_drop(&r->values); tni_drop(&r->vectors); } }
void tn_qr_destroy(tn_qr_result *r)     { if (r) { tni_drop(&r->q); tni_drop(&r->r); } }
void tn_svd_destroy(tn_svd_result *r)   { if (r) { tni_drop(&r->u); tni_drop(&r->s); tni_drop(&r->vt); } }
void tn_lanczos_destroy(tn_lanczos_result *r) { if (r) { tni_drop(&r->values); tni_drop(&r->vectors); } }

double tn_effective_rank(const double *values, int64_t n)
{
    double  largest = 0, sum = 0, squares = 0;
    int64_t i;
    for (i = 0; i < n; i++) if (!(fabs(values[i]) <= largest)) largest = fabs(values[i]);
    if (largest == 0) return 0;
    for (i = 0; i < n; i++) {
        double x = fabs(values[i]) / largest;
        sum += x;
        squares += x * x;
    }
    return sum * sum / squares;
}

#undef TNI_EPS

/* ======================================================================
   >>layers-impl
   ====================================================================== */

/* ---- named parameters ------------------------------------------------------ */
typedef struct tni_alias { struct tni_alias *next; tn_param *param; } tni_alias;        /* its name stands behind it */

/* Who must be told when parameters go: an optimiser. */
typedef struct tni_watcher { tn_params *params; struct tni_watcher *next; } tni_watcher;

struct tn_params {
    tni_owned    owned;
    tn_param   **item;
    int64_t      count, room;
    tni_alias   *aliases;
    tni_watcher *watchers;
};

static const char *tni_alias_name(const tni_alias *a) { return (const char *)(a + 1); }

static void tni_param_free(tn_ctx *ctx, tn_param *p)
{
    size_t bytes = sizeof *p + strlen(p->name) + 1;
    tn_tensor_destroy(p->value);
    tni_free(ctx, p, bytes);
}

static void tni_params_destroy(tni_owned *o)
{
    tn_params *ps = (tn_params *)(void *)o;
    tn_ctx    *ctx = o->ctx;
    int64_t    i;
    for (; ps->watchers; ps->watchers = ps->watchers->next) ps->watchers->params = NULL;
    for (i = 0; i < ps->count; i++) tni_param_free(ctx, ps->item[i]);
    while (ps->aliases) {
        tni_alias *a = ps->aliases;
        ps->aliases = a->next;
        tni_free(ctx, a, sizeof *a + strlen(tni_alias_name(a)) + 1);
    }
    tni_free(ctx, ps->item, sizeof *ps->item * (size_t)ps->room);
    tni_disown(o);
    tni_free(ctx, ps, sizeof *ps);
}

static void tni_params_watch(tn_params *ps, tni_watcher *w)
{
    w->params = ps;
    w->next = ps->watchers;
    ps->watchers = w;
}

static void tni_params_unwatch(tni_watcher *w)
{
    tni_watcher **link;
    if (!w->params) return;
    for (link = &w->params->watchers; *link != w; link = &(*link)->next) {}
    *link = w->next;
}

tn_params *tn_params_create(tn_ctx *ctx)
{
    tn_params *ps;
    if (!ctx) return NULL;
    ps = (tn_params *)tni_alloc(ctx, sizeof *ps, "params");
    if (!ps) return NULL;
    memset(ps, 0, sizeof *ps);
    tni_own(ctx, &ps->owned, tni_params_destroy);
    return ps;
}

void      tn_params_destroy(tn_params *ps)     { if (ps) tni_params_destroy(&ps->owned); }
tn_ctx   *tn_params_ctx(const tn_params *ps)   { return ps ? ps->owned.ctx : NULL; }
int64_t   tn_params_count(const tn_params *ps) { return ps ? ps->count : 0; }
tn_param *tn_params_at(tn_params *ps, int64_t i) { return ps && i >= 0 && i < ps->count ? ps->item[i] : NULL; }

int64_t tn_params_elements(const tn_params *ps)
{
    int64_t i, n = 0;
    for (i = 0; ps && i < ps->count; i++) n += tn_tensor_count(ps->item[i]->value);
    return n;
}

static const tni_alias *tni_alias_find(const tn_params *ps, const char *name)
{
    const tni_alias *a = ps ? ps->aliases : NULL;
    while (a && strcmp(tni_alias_name(a), name) != 0) a = a->next;
    return a;
}

tn_param *tn_params_find(tn_params *ps, const char *name)
{
    const tni_alias *a;
    int64_t          i;
    for (i = 0; ps && name && i < ps->count; i++)
        if (strcmp(ps->item[i]->name, name) == 0) return ps->item[i];
    a = name ? tni_alias_find(ps, name) : NULL;
    return a ? a->param : NULL;
}

/* Fills t by its rule. The fans are the last two extents where the layer does not say. */
static tn_status tni_init_fill(tn_tensor *t, tn_init init)
{
    double  n = (double)(init.fan_in > 0 ? init.fan_in : t->rank > 0 ? t->shape[t->rank - 1] : 1);
    double  m = (double)(init.fan_out > 0 ? init.fan_out : t->rank > 1 ? t->shape[t->rank - 2] : 1);
    double  scale = 0;
    bool    uniform = init.rule == TN_INIT_UNIFORM || init.rule == TN_INIT_GLOROT;
    tn_call c = tni_call(uniform ? TN_KERNEL_UNIFORM : TN_KERNEL_NORMAL, 0, NULL, 1, &t);
    switch (init.rule) {
    case TN_INIT_ZERO:    return tni_fill(t, 0);
    case TN_INIT_ONE:     return tni_fill(t, 1);
    case TN_INIT_NORMAL:
    case TN_INIT_UNIFORM: scale = 1 / sqrt(n); break;
    case TN_INIT_GLOROT:  scale = sqrt(6 / (n + m)); break;
    case TN_INIT_HE:      scale = sqrt(2 / n); break;
    default: return tni_fail(t->ctx, TN_ERR_ARG, "init: %d is no rule", (int)init.rule);
    }
    if (init.std > 0) scale = init.std;
    c.out[0] = tni_flat_view(t);
    c.f[0] = uniform ? -scale : 0;
    c.f[1] = scale;
    tni_random_call(t->ctx, &c, 0);
    return tni_run(t->ctx, &c);
}

static bool tni_params_grow(tn_params *ps)
{
    int64_t    room = ps->room > 0 ? 2 * ps->room : 16;
    tn_param **item;
    if (ps->count < ps->room) return true;
    item = (tn_param **)tni_alloc(ps->owned.ctx, sizeof *item * (size_t)room, "params");
    if (!item) return false;
    if (ps->count > 0) memcpy(item, ps->item, sizeof *item * (size_t)ps->count);
    tni_free(ps->owned.ctx, ps->item, sizeof *item * (size_t)ps->room);
    ps->item = item;
    ps->room = room;
    return true;
}

tn_param *tn_params_add(tn_params *ps, const char *name, int rank, const int64_t *shape, tn_init init)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_param *p;
    size_t    length;
    if (!ctx) return NULL;
    if (!name || !name[0]) {
        tni_fail(ctx, TN_ERR_ARG, "params: a parameter needs a name");
        return NULL;
    }
    if (tn_params_find(ps, name)) {
        tni_fail(ctx, TN_ERR_ARG, "params: there is a parameter %s already", name);
        return NULL;
    }
    if (!tni_params_grow(ps)) return NULL;
    length = strlen(name) + 1;
    p = (tn_param *)tni_alloc(ctx, sizeof *p + length, "parameter");
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    memcpy(p + 1, name, length);
    p->name = (const char *)(p + 1);
    p->lr_scale = p->decay_scale = 1;
    p->value = tn_tensor_create(ctx, TN_REAL, rank, shape);
    if (init.rule == TN_INIT_DEFAULT) init.rule = TN_INIT_ZERO;
    if (!p->value || tni_init_fill(p->value, init) != TN_OK) {
        tni_param_free(ctx, p);
        return NULL;
    }
    p->value->flags |= TNI_PARAM | TNI_WANTS_GRAD;
    ps->item[ps->count++] = p;
    return p;
}

tn_status tn_params_zero_grad(tn_params *ps)
{
    tn_status s = ps ? TN_OK : TN_ERR_ARG;
    int64_t   i;
    for (i = 0; ps && i < ps->count && s == TN_OK; i++)
        if (ps->item[i]->value->grad && (s = tni_fill(ps->item[i]->value->grad, 0)) == TN_OK)
            ps->item[i]->value->grad->flags |= TNI_ZEROED;
    return s;
}

/* Does the name fit? At a mismatch the latest star takes one character more. */
static bool tni_name_fits(const char *name, const char *pattern)
{
    const char *star = NULL, *from = name;
    if (!strchr(pattern, '*')) return strncmp(name, pattern, strlen(pattern)) == 0;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else return false;
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

int64_t tn_params_freeze(tn_params *ps, const char *pattern, bool frozen)
{
    int64_t i, n = 0;
    for (i = 0; ps && pattern && i < ps->count; i++) {
        tn_param *p = ps->item[i];
        if (!tni_name_fits(p->name, pattern)) continue;
        p->frozen = frozen;
        p->value->flags |= TNI_WANTS_GRAD;
        if (frozen) {
            p->value->flags &= ~(uint32_t)TNI_WANTS_GRAD;
            tn_tensor_destroy(p->value->grad);
            p->value->grad = NULL;
        }
        n++;
    }
    return n;
}

int64_t tn_params_group(tn_params *ps, const char *pattern, double lr_scale, double decay_scale)
{
    int64_t i, n = 0;
    for (i = 0; ps && pattern && i < ps->count; i++) {
        if (!tni_name_fits(ps->item[i]->name, pattern)) continue;
        ps->item[i]->lr_scale = lr_scale;
        ps->item[i]->decay_scale = decay_scale;
        n++;
    }
    return n;
}

tn_status tn_params_tie(tn_params *ps, const char *name, const char *of)
{
    tn_ctx    *ctx = tn_params_ctx(ps);
    tn_param  *p = tn_params_find(ps, of);
    tni_alias *a;
    size_t     length;
    if (!ctx) return TN_ERR_ARG;
    if (!name || !name[0]) return tni_fail(ctx, TN_ERR_ARG, "params: a parameter needs a name");
    if (!p)
        return tni_fail(ctx, TN_ERR_ARG, "params: %s cannot be tied to %s, which is no parameter", name, of ? of : "NULL");
    if (tn_params_find(ps, name)) return tni_fail(ctx, TN_ERR_ARG, "params: there is a parameter %s already", name);
    length = strlen(name) + 1;
    a = (tni_alias *)tni_alloc(ctx, sizeof *a + length, "parameter");
    if (!a) return TN_ERR_MEMORY;
    memcpy(a + 1, name, length);
    a->param = p;
    a->next = ps->aliases;
    ps->aliases = a;
    return TN_OK;
}

/* Numbers of one context's tensor into another's, of the same shape. */
static tn_status tni_copy_across(tn_tensor *to, const tn_tensor *from)
{
    int64_t   n = tn_tensor_count(from);
    double   *v;
    tn_status s;
    if (to->ctx == from->ctx) return tni_copy(to, from);
    if (!(v = tni_alloc_f64(to->ctx, n, 1, "clone"))) return TN_ERR_MEMORY;
    s = tn_read(from, TN_F64, v, n);
    s = s == TN_OK ? tn_write(to, TN_F64, v, n)
                   : tni_fail(to->ctx, s, "clone: a parameter cannot be read: %s", tn_ctx_error(from->ctx));
    tni_free_f64(to->ctx, v, n, 1);
    return s;
}

static bool tni_clone_param(tn_params *to, const tn_param *from)
{
    tn_init   zero;
    tn_param *p;
    memset(&zero, 0, sizeof zero);
    p = tn_params_add(to, from->name, from->value->rank, from->value->shape, zero);
    if (!p || tni_copy_across(p->value, from->value) != TN_OK) return false;
    p->lr_scale = from->lr_scale;
    p->decay_scale = from->decay_scale;
    p->frozen = from->frozen;
    if (p->frozen) p->value->flags &= ~(uint32_t)TNI_WANTS_GRAD;
    return true;
}

tn_params *tn_params_clone(tn_ctx *ctx, const tn_params *ps)
{
    tn_params       *to;
    const tni_alias *a;
    int64_t          i;
    bool             whole;
    if (!ps) tni_fail(ctx, TN_ERR_ARG, "clone: params is NULL");
    to = ctx && ps ? tn_params_create(ctx) : NULL;
    if (!to) return NULL;
    for (i = 0, whole = true; i < ps->count && whole; i++) whole = tni_clone_param(to, ps->item[i]);
    for (a = ps->aliases; a && whole; a = a->next) whole = tn_params_tie(to, tni_alias_name(a), a->param->name) == TN_OK;
    if (whole) return to;
    tn_params_destroy(to);
    return NULL;
}

/* In the struct pointers stand at multiples of their size, wherever the fields are. Looks first, then writes. */
static int64_t tni_rebind(tn_params *to, const tn_params *from, char *at, size_t bytes, bool write)
{
    int64_t i, n = 0;
    for (; bytes >= sizeof(tn_tensor *); at += sizeof(tn_tensor *), bytes -= sizeof(tn_tensor *)) {
        tn_tensor *t;
        memcpy(&t, at, sizeof t);
        for (i = 0; t && i < from->count && from->item[i]->value != t; i++) {}
        if (!t || i == from->count) continue;
        n++;
        {
            tn_param *p = tn_params_find(to, from->item[i]->name);
            if (!p || !tni_same_shape(p->value, t)) {
                tni_fail(to->owned.ctx, TN_ERR_ARG, "rebind: parameter %s %s has no like", from->item[i]->name,
                         TNI_SHAPE(t));
                return -1;
            }
            if (write) memcpy(at, &p->value, sizeof p->value);
        }
    }
    return n;
}

int64_t tn_params_rebind(tn_params *to, const tn_params *from, void *layers, size_t bytes)
{
    int64_t n;
    if (!to || !from || !layers) {
        tni_fail(tn_params_ctx(to), TN_ERR_ARG, "rebind: %s is NULL", !layers ? "layers" : "a set of parameters");
        return -1;
    }
    n = tni_rebind(to, from, (char *)layers, bytes, false);
    return n < 0 ? n : tni_rebind(to, from, (char *)layers, bytes, true);
}

/* What tn_params_tie has promised to a layer: rules and scales are those of the parameter's first layer. */
static tn_tensor *tni_layer_tied(tn_params *ps, const char *name, int rank, const int64_t *shape)
{
    const tn_param *p = tni_alias_find(ps, name)->param;
    tn_tensor       want;
    if (p->value->rank == rank && memcmp(p->value->shape, shape, sizeof *shape * (size_t)rank) == 0) return p->value;
    memset(&want, 0, sizeof want);
    want.rank = rank;
    memcpy(want.shape, shape, sizeof *shape * (size_t)rank);
    tni_fail(ps->owned.ctx, TN_ERR_SHAPE, "params: %s %s is tied to %s, which is %s", name, TNI_SHAPE(&want), p->name,
             TNI_SHAPE(p->value));
    return NULL;
}

/* "name.part" as a parameter of a layer; biases and gains take no weight decay. */
static tn_tensor *tni_layer_param(tn_params *ps, const char *name, const char *part, int rank, const int64_t *shape,
                                  tn_init init, bool decays)
{
    char      full[256];
    tn_param *p;
    if (tni_print(full, sizeof full, "%s.%s", name ? name : "", part) >= sizeof full) {
        tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "params: the name %s is too long", full);
        return NULL;
    }
    if (!name || !name[0]) tni_print(full, sizeof full, "%s", part);
    if (tni_alias_find(ps, full)) return tni_layer_tied(ps, full, rank, shape);
    p = tn_params_add(ps, full, rank, shape, init);
    if (!p) return NULL;
    p->decay_scale = decays ? 1 : 0;
    return p->value;
}

static tn_tensor *tni_layer_matrix(tn_params *ps, const char *name, const char *part, int64_t n, int64_t m, tn_init init)
{
    int64_t shape[2];
    shape[0] = n; shape[1] = m;
    return tni_layer_param(ps, name, part, 2, shape, init, true);
}

static tn_tensor *tni_layer_vector(tn_params *ps, const char *name, const char *part, int64_t n, tn_init init)
{
    return tni_layer_param(ps, name, part, 1, &n, init, false);
}

/* The rule a desc gives, or the layer's usual one, with the layer's fan-in. */
static tn_init tni_init_or(tn_init init, tn_init_rule usual, int64_t fan_in)
{
    if (init.rule == TN_INIT_DEFAULT) init.rule = usual;
    if (init.fan_in == 0) init.fan_in = fan_in;
    return init;
}

/* A bias starts as its layer's weights do, or at zero where they are not random. */
static tn_init tni_init_bias(tn_init of_weights)
{
    if (of_weights.rule != TN_INIT_UNIFORM) of_weights.rule = TN_INIT_ZERO;
    return of_weights;
}

static tn_status tni_layer_extents(tn_params *ps, const char *layer, const char *name, int64_t a, int64_t b)
{
    if (!ps) return TN_ERR_ARG;
    if (a > 0 && b > 0 && a < INT32_MAX && b < INT32_MAX) return TN_OK;   /* so products of two, and one more, fit 64 bits */
    return tni_fail(ps->owned.ctx, TN_ERR_SHAPE, "%s %s: extents %lld and %lld, but both must be from 1 to 2^31 - 2",
                    layer, name ? name : "", (long long)a, (long long)b);
}

/* What mlp, product and modifier layers ask of their output side; `out` gets its default. */
static tn_status tni_layer_projection(tn_ctx *ctx, const char *layer, const char *name, int64_t in, int64_t hidden,
                                      int64_t *out, bool none, bool bias)
{
    if (!name) name = "";
    if (*out == 0) *out = none ? hidden : in;
    if (*out < 0 || *out >= INT32_MAX || (none && *out != hidden))
        return tni_fail(ctx, TN_ERR_SHAPE, "%s %s: out is %lld and hidden is %lld%s", layer, name, (long long)*out,
                        (long long)hidden, none ? ", but without a projection they are the same" : "");
    if (!none || !bias) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s %s: out_bias belongs to the projection, no_projection contradicts it", layer, name);
}

/* In an augmented layer the last columns of the matrices are its biases. */
static tn_status tni_layer_augmented(tn_ctx *ctx, const char *layer, const char *name, bool augmented, bool biased)
{
    if (!augmented || !biased) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s %s: augmented holds the biases in the matrices, bias and out_bias contradict it",
                    layer, name ? name : "");
}

/* A layer is made whole or not at all: what a failed one has added since `before` goes again. */
static tn_status tni_layer_done(tn_params *ps, int64_t before, bool whole, void *layer, size_t bytes)
{
    if (whole) return TN_OK;
    while (ps->count > before) tni_param_free(ps->owned.ctx, ps->item[--ps->count]);
    memset(layer, 0, bytes);
    return tn_ctx_status(ps->owned.ctx);
}

static bool tni_layer_given(tn_ctx *ctx, const void *layer, const char *what)
{
    if (!layer) tni_fail(ctx, TN_ERR_ARG, "%s: the layer is NULL", what);
    return ctx && layer;
}

/* ---- linear ------------------------------------------------------------------ */
tn_status tn_linear_init(tn_params *ps, const char *name, tn_linear *layer, const tn_linear_desc *desc)
{
    int64_t   before = tn_params_count(ps);
    tn_init   init;
    tn_status s;
    bool      bias;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "linear: layer or desc is NULL");
    memset(layer, 0, sizeof *layer);
    if ((s = tni_layer_extents(ps, "linear", name, desc->in, desc->out)) != TN_OK) return s;
    if (desc->augmented && desc->no_bias)
        return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "linear %s: augmented holds the bias in W, no_bias contradicts it",
                        name ? name : "");
    bias = !desc->no_bias && !desc->augmented;
    layer->desc = *desc;
    init = tni_init_or(desc->init, TN_INIT_UNIFORM, desc->in);
    layer->w = tni_layer_matrix(ps, name, "w", desc->out, desc->in + desc->augmented, init);
    if (layer->w && bias) layer->b = tni_layer_vector(ps, name, "b", desc->out, tni_init_bias(init));
    return tni_layer_done(ps, before, layer->w && (layer->b || !bias), layer, sizeof *layer);
}

tn_tensor *tn_linear_forward(tn_ctx *ctx, const tn_linear *layer, tn_tensor *x)
{
    tn_tensor *y;
    if (!tni_layer_given(ctx, layer, "linear")) return NULL;
    y = tn_affine(ctx, x, layer->w, layer->b);
    return y && layer->desc.augmented ? tn_append_one(ctx, y) : y;
}

/* ---- embedding ------------------------------------------------------------------ */
tn_status tn_embedding_init(tn_params *ps, const char *name, tn_embedding *layer, const tn_embedding_desc *desc)
{
    int64_t   before = tn_params_count(ps);
    tn_init   init;
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "embedding: layer or desc is NULL");
    memset(layer, 0, sizeof *layer);
    if ((s = tni_layer_extents(ps, "embedding", name, desc->count, desc->dim)) != TN_OK) return s;
    layer->desc = *desc;
    init = tni_init_or(desc->init, TN_INIT_NORMAL, 1);
    layer->w = tni_layer_matrix(ps, name, "w", desc->count, desc->dim, init);
    return tni_layer_done(ps, before, layer->w != NULL, layer, sizeof *layer);
}

tn_tensor *tn_embedding_forward(tn_ctx *ctx, const tn_embedding *layer, tn_tensor *ids)
{
    return tni_layer_given(ctx, layer, "embedding") ? tn_embed(ctx, layer->w, ids) : NULL;
}

/* ---- norm ----------------------------------------------------------------------- */
tn_status tn_norm_init(tn_params *ps, const char *name, tn_norm *layer, const tn_norm_desc *desc)
{
    int64_t   before = tn_params_count(ps);
    tn_init   ones;
    tn_status s;
    bool      bias, whole;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "norm: layer or desc is NULL");
    memset(layer, 0, sizeof *layer);
    memset(&ones, 0, sizeof ones);
    ones.rule = TN_INIT_ONE;
    if ((s = tni_layer_extents(ps, "norm", name, desc->dim, 1)) != TN_OK) return s;
    if ((unsigned)desc->kind > TN_NORM_LAYER)
        return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "norm %s: %d is no kind", name ? name : "", (int)desc->kind);
    bias = desc->kind == TN_NORM_LAYER && !desc->no_bias;
    if (!tni_is_eps(tn_params_ctx(ps), desc->eps, "norm")) return TN_ERR_ARG;
    layer->desc = *desc;
    if (layer->desc.eps == 0) layer->desc.eps = 1e-5;
    if (!desc->no_gain) layer->gain = tni_layer_vector(ps, name, "gain", desc->dim, ones);
    whole = layer->gain || desc->no_gain;
    ones.rule = TN_INIT_ZERO;
    if (whole && bias) layer->bias = tni_layer_vector(ps, name, "bias", desc->dim, ones);
    return tni_layer_done(ps, before, whole && (layer->bias || !bias), layer, sizeof *layer);
}

tn_tensor *tn_norm_forward(tn_ctx *ctx, const tn_norm *layer, tn_tensor *x)
{
    if (!tni_layer_given(ctx, layer, "norm")) return NULL;
    return layer->desc.kind == TN_NORM_LAYER ? tn_layernorm(ctx, x, layer->gain, layer->bias, layer->desc.eps)
                                             : tn_rmsnorm(ctx, x, layer->gain, layer->desc.eps);
}

/* ---- mlp ------------------------------------------------------------------------ */
static const struct { const char *name; int encoders; tn_act act; } tni_mlp_kinds[] = {
    {"bilinear", 2, TN_ACT_NONE}, {"relu", 1, TN_ACT_RELU}, {"relu2", 1, TN_ACT_RELU2}, {"gelu", 1, TN_ACT_GELU},
    {"swish", 1, TN_ACT_SWISH}, {"glu", 2, TN_ACT_SIGMOID}, {"reglu", 2, TN_ACT_RELU}, {"geglu", 2, TN_ACT_GELU},
    {"swiglu", 2, TN_ACT_SWISH}
};
#define TNI_MLP_KINDS (sizeof tni_mlp_kinds / sizeof *tni_mlp_kinds)

int         tn_mlp_encoders(tn_mlp_kind k)  { return (unsigned)k < TNI_MLP_KINDS ? tni_mlp_kinds[k].encoders : 0; }
const char *tn_mlp_kind_name(tn_mlp_kind k) { return (unsigned)k < TNI_MLP_KINDS ? tni_mlp_kinds[k].name : "?"; }

static tn_status tni_mlp_check(tn_params *ps, const char *name, tn_mlp_desc *d)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_status s = tni_layer_extents(ps, "mlp", name, d->in, d->hidden);
    if (s != TN_OK) return s;
    if (!name) name = "";
    if ((unsigned)d->kind >= TNI_MLP_KINDS) return tni_fail(ctx, TN_ERR_ARG, "mlp %s: %d is no kind", name, (int)d->kind);
    s = tni_layer_projection(ctx, "mlp", name, d->in, d->hidden, &d->out, d->no_projection, d->out_bias);
    if (s != TN_OK) return s;
    if (d->residual && d->out != d->in)
        return tni_fail(ctx, TN_ERR_SHAPE, "mlp %s: in is %lld but out is %lld: no residual", name, (long long)d->in,
                        (long long)d->out);
    return tni_layer_augmented(ctx, "mlp", name, d->augmented, d->bias || d->out_bias);
}

tn_status tn_mlp_init(tn_params *ps, const char *name, tn_mlp *layer, const tn_mlp_desc *desc)
{
    int64_t     shape[3], before = tn_params_count(ps);
    tn_init     in, out;
    tn_mlp_desc d;
    tn_status   s;
    bool        whole;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "mlp: layer or desc is NULL");
    memset(layer, 0, sizeof *layer);
    d = *desc;
    if ((s = tni_mlp_check(ps, name, &d)) != TN_OK) return s;
    layer->desc = d;
    in = tni_init_or(d.init, TN_INIT_UNIFORM, d.in);
    out = tni_init_or(d.init_out, TN_INIT_UNIFORM, d.hidden);
    shape[0] = tn_mlp_encoders(d.kind);
    shape[1] = d.hidden;
    shape[2] = d.in + d.augmented;
    layer->w = tni_layer_param(ps, name, "w", 3, shape, in, true);
    if (layer->w && d.bias) layer->b = tni_layer_param(ps, name, "b", 2, shape, tni_init_bias(in), false);
    if (layer->w && !d.no_projection) layer->p = tni_layer_matrix(ps, name, "p", d.out, d.hidden + d.augmented, out);
    if (layer->p && d.out_bias) layer->pb = tni_layer_vector(ps, name, "pb", d.out, tni_init_bias(out));
    whole = layer->w && (layer->b || !d.bias) && (layer->p || d.no_projection) && (layer->pb || !d.out_bias);
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

/* Both encoders in one product: w [e,h,n] as [e h, n], the result as [.., W x | V x]. */
tn_tensor *tn_mlp_forward(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x)
{
    const tn_mlp_desc *d;
    int64_t    all = -1;
    tn_tensor *y, *w, *b;
    if (!tni_layer_given(ctx, layer, "mlp") || !tni_usable(ctx, layer->w, "mlp", "w")) return NULL;
    d = &layer->desc;
    w = tn_reshape_2d(layer->w, -1, d->in + d->augmented);
    b = layer->b ? tn_reshape(layer->b, 1, &all) : NULL;
    if (!w || (layer->b && !b)) return NULL;
    y = tn_affine(ctx, x, w, b);
    if (!y) return NULL;
    y = layer->w->shape[0] == 2 ? tn_glu(ctx, y, tni_mlp_kinds[d->kind].act)
                                : tn_activation(ctx, y, tni_mlp_kinds[d->kind].act);
    if (y && layer->p) {
        if (d->augmented) y = tn_append_one(ctx, y);
        y = y ? tn_affine(ctx, y, layer->p, layer->pb) : NULL;
    }
    if (y && d->residual) y = tn_add(ctx, d->augmented ? tn_slice(x, -1, 0, d->in) : x, y);
    return y && d->augmented ? tn_append_one(ctx, y) : y;
}

/* ---- product -------------------------------------------------------------------- */

tn_status tn_product_init(tn_params *ps, const char *name, tn_product *layer, const tn_product_desc *desc)
{
    int64_t         shape[3], before = tn_params_count(ps);
    tn_ctx         *ctx = tn_params_ctx(ps);
    tn_init         in, out;
    tn_product_desc d;
    tn_status       s;
    bool            whole;
    if (!layer || !desc) return tni_fail(ctx, TN_ERR_ARG, "product: layer or desc is NULL");
    memset(layer, 0, sizeof *layer);
    d = *desc;
    if (d.order == 0) d.order = 2;
    if ((s = tni_layer_extents(ps, "product", name, d.in, d.hidden)) != TN_OK) return s;
    if (d.order < 1)
        return tni_fail(ctx, TN_ERR_ARG, "product %s: order %lld, but it must be at least 1", name ? name : "",
                        (long long)d.order);
    s = tni_layer_projection(ctx, "product", name, d.in, d.hidden, &d.out, d.no_projection, d.out_bias);
    if (s == TN_OK) s = tni_layer_augmented(ctx, "product", name, d.augmented, d.bias || d.out_bias);
    if (s != TN_OK) return s;
    layer->desc = d;
    in = tni_init_or(d.init, TN_INIT_NORMAL, d.in + d.augmented);
    out = tni_init_or(d.init_out, TN_INIT_NORMAL, d.hidden + d.augmented);
    shape[0] = d.order;
    shape[1] = d.hidden;
    shape[2] = d.in + d.augmented;
    layer->w = tni_layer_param(ps, name, "w", 3, shape, in, true);
    if (layer->w && d.bias) layer->b = tni_layer_param(ps, name, "b", 2, shape, tni_init_bias(in), false);
    whole = layer->w && (layer->b || !d.bias);
    if (whole && !d.no_projection) layer->p = tni_layer_matrix(ps, name, "p", d.out, d.hidden + d.augmented, out);
    whole = whole && (layer->p || d.no_projection);
    if (whole && d.out_bias) layer->pb = tni_layer_vector(ps, name, "pb", d.out, tni_init_bias(out));
    return tni_layer_done(ps, before, whole && (layer->pb || !d.out_bias), layer, sizeof *layer);
}

/* All encoders in one product: w [k,h,n] as [k h, n], the result as [.., F_1 x | F_2 x | ..]. */
tn_tensor *tn_product_forward(tn_ctx *ctx, const tn_product *layer, tn_tensor *x)
{
    const tn_product_desc *d;
    int64_t    all = -1;
    tn_tensor *y, *w, *b;
    if (!tni_layer_given(ctx, layer, "product") || !tni_usable(ctx, layer->w, "product", "w")) return NULL;
    d = &layer->desc;
    w = tn_reshape_2d(layer->w, -1, d->in + d->augmented);
    b = layer->b ? tn_reshape(layer->b, 1, &all) : NULL;
    if (!w || (layer->b && !b)) return NULL;
    y = tn_affine(ctx, x, w, b);
    y = y && d->order > 1 ? tn_prod(ctx, y, d->order) : y;
    if (y && layer->p) {
        if (d->augmented) y = tn_append_one(ctx, y);
        y = y ? tn_affine(ctx, y, layer->p, layer->pb) : NULL;
    }
    return y && d->augmented ? tn_append_one(ctx, y) : y;
}

/* ---- quadratic ------------------------------------------------------------------ */
tn_status tn_quadratic_init(tn_params *ps, const char *name, tn_quadratic *layer, const tn_quadratic_desc *desc)
{
    int64_t   shape[3], before = tn_params_count(ps);
    tn_status s;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "quadratic: layer or desc is NULL");
    memset(layer, 0, sizeof *layer);
    if ((s = tni_layer_extents(ps, "quadratic", name, desc->in, desc->out)) != TN_OK) return s;
    if (desc->augmented && desc->bias)
        return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "quadratic %s: augmented holds the bias already, bias contradicts it",
                        name ? name : "");
    layer->desc = *desc;
    shape[0] = desc->out;
    shape[1] = shape[2] = desc->in + (desc->bias || desc->augmented);
    layer->t = tni_layer_param(ps, name, "t", 3, shape, tni_init_or(desc->init, TN_INIT_NORMAL, shape[1] * shape[2]), true);
    return tni_layer_done(ps, before, layer->t != NULL, layer, sizeof *layer);
}

/* u[r,o,i] = sum_j T[o,i,j] x[r,j],  y[r,o] = sum_i u[r,o,i] x[r,i] */
tn_tensor *tn_quadratic_forward(tn_ctx *ctx, const tn_quadratic *layer, tn_tensor *x)
{
    int64_t    shape[TN_MAX_RANK], cube[3], out, n, rows;
    int        rank;
    tn_tensor *u, *t, *y;
    if (!tni_layer_given(ctx, layer, "quadratic") || !tni_usable(ctx, layer->t, "quadratic", "t")) return NULL;
    out = layer->desc.out;
    n = layer->t->shape[2];
    if (x && layer->desc.bias) x = tn_append_one(ctx, x);
    if (!(x = tni_contiguous(ctx, x, "quadratic", "x"))) return NULL;
    t = tn_reshape_2d(layer->t, out * n, n);
    u = t ? tn_affine(ctx, x, t, NULL) : NULL;
    if (!u) return NULL;
    rank = x->rank;
    memcpy(shape, x->shape, sizeof shape);
    shape[rank - 1] = out;
    rows = tni_rows_view(x).shape[0];
    cube[0] = rows; cube[1] = out; cube[2] = n;
    u = tn_reshape(u, 3, cube);
    cube[1] = n; cube[2] = 1;
    x = tn_reshape(x, 3, cube);
    y = u && x ? tn_matmul(ctx, u, x) : NULL;
    y = y ? tn_reshape(y, rank, shape) : NULL;
    return y && layer->desc.augmented ? tn_append_one(ctx, y) : y;
}

/* ---- modifier -------------------------------------------------------------------- */

static tn_status tni_modifier_check(tn_params *ps, const char *name, tn_modifier_desc *d)
{
    tn_ctx   *ctx = tn_params_ctx(ps);
    tn_status s = tni_layer_extents(ps, "modifier", name, d->in, d->hidden);
    if (s != TN_OK) return s;
    if (!name) name = "";
    if (d->rank < 0 || d->rank >= INT32_MAX || !(d->step == 0 || (d->step >= 1e-30 && d->step <= 1e30)))
        return tni_fail(ctx, TN_ERR_ARG, "modifier %s: rank %lld, step %g; a step is 0 or from 1e-30 to 1e30", name,
                        (long long)d->rank, d->step);
    if ((unsigned)d->penalty > TN_PENALTY_L2)
        return tni_fail(ctx, TN_ERR_ARG, "modifier %s: %d is no penalty", name, (int)d->penalty);
    return tni_layer_projection(ctx, "modifier", name, d->in, d->hidden, &d->out, d->no_projection, d->out_bias);
}

/* W, or A and B. */
static bool tni_modifier_init_w(tn_params *ps, const char *name, tn_modifier *m, tn_init init)
{
    const tn_modifier_desc *d = &m->desc;
    const tn_init           zero = tni_init_or(d->init_w, TN_INIT_ZERO, d->rank > 0 ? d->rank : d->in);
    if (d->rank == 0) return (m->w = tni_layer_matrix(ps, name, "w", d->hidden, d->in, zero)) != NULL;
    m->wa = tni_layer_matrix(ps, name, "wa", d->hidden, d->rank, zero);
    if (m->wa) m->wb = tni_layer_matrix(ps, name, "wb", d->rank, d->in, init);
    return m->wb != NULL;
}

tn_status tn_modifier_init(tn_params *ps, const char *name, tn_modifier *layer, const tn_modifier_desc *desc)
{
    int64_t          before = tn_params_count(ps);
    tn_init          in, out;
    tn_modifier_desc d;
    tn_status        s;
    bool             whole;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "modifier: layer or desc is NULL");
    memset(layer, 0, sizeof *layer);
    d = *desc;
    if ((s = tni_modifier_check(ps, name, &d)) != TN_OK) return s;
    layer->desc = d;
    in = tni_init_or(d.init, TN_INIT_NORMAL, d.in);
    out = tni_init_or(d.init_out, TN_INIT_NORMAL, d.hidden);
    whole = (layer->v = tni_layer_matrix(ps, name, "v", d.hidden, d.in, in)) != NULL;
    if (whole && d.bias) whole = (layer->c = tni_layer_vector(ps, name, "c", d.hidden, tni_init_bias(in))) != NULL;
    if (whole && !d.no_projection) whole = (layer->p = tni_layer_matrix(ps, name, "p", d.out, d.hidden, out)) != NULL;
    if (whole && d.out_bias) whole = (layer->pb = tni_layer_vector(ps, name, "pb", d.out, tni_init_bias(out))) != NULL;
    if (whole) whole = tni_modifier_init_w(ps, name, layer, in);    /* last: one seed gives the same V and P for any W */
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

static tn_tensor *tni_modifier_penalty(tn_ctx *ctx, tn_penalty kind, tn_tensor *z)
{
    z = kind == TN_PENALTY_L2 ? tn_mul(ctx, z, z) : tn_activation(ctx, z, TN_ACT_ABS);
    return z ? tn_mean(ctx, z) : NULL;
}

/* y = v + z (x) v,  z = W x,  v = V x + c */
tn_tensor *tn_modifier_forward(tn_ctx *ctx, const tn_modifier *layer, tn_tensor *x, tn_tensor **penalty)
{
    const tn_modifier_desc *d;
    tn_tensor *z, *v;
    if (penalty) *penalty = NULL;
    if (!tni_layer_given(ctx, layer, "modifier") || !tni_is_real(ctx, x, "modifier", "x")) return NULL;
    d = &layer->desc;
    z = d->rank > 0 ? tn_affine(ctx, x, layer->wb, NULL) : x;
    z = z ? tn_affine(ctx, z, d->rank > 0 ? layer->wa : layer->w, NULL) : NULL;
    if (!z || (penalty && !(*penalty = tni_modifier_penalty(ctx, d->penalty, z)))) return NULL;
    if (d->step > 0) {
        z = tn_activation(ctx, tn_scale(ctx, z, 1 / d->step), TN_ACT_ROUND);
        z = z ? tn_scale(ctx, z, d->step) : NULL;
    }
    v = tn_affine(ctx, x, layer->v, layer->c);
    z = z && v ? tn_mul(ctx, z, v) : NULL;
    v = z ? tn_add(ctx, v, z) : NULL;
    return v && layer->p ? tn_affine(ctx, v, layer->p, layer->pb) : v;
}

/* ---- attention --------------------------------------------------------------------- */
static const struct { const char *name; tn_attend_kind attend; int sets; bool differential; } tni_attention_kinds[] = {
    {"softmax", TN_ATTEND_SOFTMAX, 1, false}, {"squared", TN_ATTEND_SQUARED, 1, false},
    {"bilinear", TN_ATTEND_BILINEAR, 2, false}, {"differential", TN_ATTEND_SOFTMAX, 2, true},
    {"differential_plain", TN_ATTEND_SOFTMAX, 2, true}
};
#define TNI_ATTENTION_KINDS (sizeof tni_attention_kinds / sizeof *tni_attention_kinds)

const char *tn_attention_kind_name(tn_attention_kind k)
{
    return (unsigned)k < TNI_ATTENTION_KINDS ? tni_attention_kinds[k].name : "?";
}

/* What tn_attend is asked for. */
static tn_attend_desc tni_attention_attend(const tn_attention_desc *d)
{
    tn_attend_desc a;
    memset(&a, 0, sizeof a);
    a.kind = tni_attention_kinds[d->kind].attend;
    a.form = d->form;
    a.causal = !d->not_causal;
    a.window = d->window;
    a.scale = d->scale;
    a.row = d->row;
    a.length = d->length;
    return a;
}

/* The extents of a head: a whole share of dim where the desc does not say. */
static tn_status tni_attention_share(tn_ctx *ctx, const char *name, const char *what, int64_t dim, int64_t heads,
                                     int64_t sets, int64_t *d)
{
    if (*d == 0 && dim % (heads * sets) == 0) *d = dim / (heads * sets);
    if (*d > 0 && *d < INT32_MAX / heads) return TN_OK;
    return tni_fail(ctx, TN_ERR_SHAPE, "attention %s: %s is %lld with dim %lld and %lld heads; give it, or a dim that is a "
                    "multiple of %lld", name, what, (long long)*d, (long long)dim, (long long)heads,
                    (long long)(heads * sets));
}

static tn_status tni_attention_check(tn_params *ps, const char *name, tn_attention_desc *d)
{
    tn_ctx        *ctx = tn_params_ctx(ps);
    tn_attend_desc a;
    bool           differential;
    tn_status      s = tni_layer_extents(ps, "attention", name, d->dim, d->heads);
    if (s != TN_OK) return s;
    if (!name) name = "";
    if ((unsigned)d->kind >= TNI_ATTENTION_KINDS)
        return tni_fail(ctx, TN_ERR_ARG, "attention %s: %d is no kind", name, (int)d->kind);
    differential = tni_attention_kinds[d->kind].differential;
    s = tni_attention_share(ctx, name, "d_qk", d->dim, d->heads, differential ? 2 : 1, &d->d_qk);
    if (s == TN_OK) s = tni_attention_share(ctx, name, "d_v", d->dim, d->heads, 1, &d->d_v);
    if (s == TN_OK) s = tni_layer_projection(ctx, "attention", name, d->dim, d->heads * d->d_v, &d->out, false, d->out_bias);
    if (s != TN_OK) return s;
    a = tni_attention_attend(d);
    if (!tni_attend_numbers(ctx, &a, d->d_qk) || !tni_attend_possible(ctx, &a, d->d_qk, d->d_v)) return ctx->status;
    if (!(d->rope_base >= 0 && d->rope_base < HUGE_VAL) || d->depth < 0 || !(fabs(d->lambda_init) < HUGE_VAL))
        return tni_fail(ctx, TN_ERR_ARG, "attention %s: rope_base %g and depth %lld cannot be negative, nor these or "
                        "lambda_init %g infinite", name, d->rope_base, (long long)d->depth, d->lambda_init);
    if (differential && d->lambda_init == 0) d->lambda_init = 0.8 - 0.6 * exp(-0.3 * (double)d->depth);
    return TN_OK;
}

/* The small parameters, which start as one number: where they are tied to others they keep theirs. */
static tn_tensor *tni_attention_constant(tn_params *ps, const char *name, const char *part, int64_t n, double value)
{
    const int64_t before = tn_params_count(ps);
    tn_init       zero;
    tn_tensor    *t;
    memset(&zero, 0, sizeof zero);
    t = tni_layer_vector(ps, name, part, n, zero);
    return t && (tn_params_count(ps) == before || tni_fill(t, value) == TN_OK) ? t : NULL;
}

static bool tni_attention_lambda(tn_params *ps, const char *name, tn_attention *layer)
{
    const tn_attention_desc *d = &layer->desc;
    int64_t shape[2];
    tn_init init;
    memset(&init, 0, sizeof init);
    init.rule = TN_INIT_NORMAL;
    init.std = 0.1;
    shape[0] = 4; shape[1] = d->d_qk;
    layer->lambda = d->kind == TN_ATTENTION_DIFFERENTIAL ? tni_layer_param(ps, name, "lambda", 2, shape, init, false)
                                                         : tni_attention_constant(ps, name, "lambda", 1, d->lambda_init);
    return layer->lambda != NULL;
}

tn_status tn_attention_init(tn_params *ps, const char *name, tn_attention *layer, const tn_attention_desc *desc)
{
    int64_t           shape[3], before = tn_params_count(ps), width;
    tn_init           in, out;
    tn_attention_desc d;
    tn_status         s;
    bool              whole;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "attention: layer or desc is NULL");
    memset(layer, 0, sizeof *layer);
    d = *desc;
    if ((s = tni_attention_check(ps, name, &d)) != TN_OK) return s;
    layer->desc = d;
    width = d.heads * d.d_v;
    in = tni_init_or(d.init, TN_INIT_UNIFORM, d.dim);
    out = tni_init_or(d.init_out, TN_INIT_UNIFORM, width);
    shape[0] = 2 * tni_attention_kinds[d.kind].sets;
    shape[1] = d.heads * d.d_qk;
    shape[2] = d.dim;
    whole = (layer->qk = tni_layer_param(ps, name, "qk", 3, shape, in, true)) != NULL;
    if (whole) whole = (layer->v = tni_layer_matrix(ps, name, "v", width, d.dim, in)) != NULL;
    if (whole) whole = (layer->o = tni_layer_matrix(ps, name, "o", d.out, width, out)) != NULL;
    if (whole && d.bias)
        whole = (layer->qkb = tni_layer_param(ps, name, "qk_b", 2, shape, tni_init_bias(in), false)) != NULL
                && (layer->vb = tni_layer_vector(ps, name, "v_b", width, tni_init_bias(in))) != NULL;
    if (whole && d.out_bias) whole = (layer->ob = tni_layer_vector(ps, name, "o_b", d.out, tni_init_bias(out))) != NULL;
    if (whole && tni_attention_kinds[d.kind].differential) whole = tni_attention_lambda(ps, name, layer);
    if (whole && d.mix_values) whole = (layer->mix = tni_attention_constant(ps, name, "mix", 2, 0.5)) != NULL;
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

/* [B,T,heads d] as [B,T,heads,d] */
static tn_tensor *tni_attention_split(tn_tensor *t, int64_t heads, int64_t d)
{
    int64_t shape[4];
    if (!t) return NULL;
    shape[0] = t->shape[0]; shape[1] = t->shape[1]; shape[2] = heads; shape[3] = d;
    return tn_reshape(t, 4, shape);
}

/* All q and k of x, whose first row stands at position `first`: [B,T,2s heads,d_qk], in one product. */
static tn_tensor *tni_attention_qk(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, int64_t first)
{
    const tn_attention_desc *d = &layer->desc;
    const int64_t heads = layer->qk->shape[0] * d->heads;
    tn_rope_desc  rope;
    int64_t       all = -1;
    tn_tensor    *w = tn_reshape_2d(layer->qk, heads * d->d_qk, d->dim);
    tn_tensor    *b = layer->qkb ? tn_reshape(layer->qkb, 1, &all) : NULL;
    memset(&rope, 0, sizeof rope);
    rope.base = d->rope_base;
    rope.first = first;
    rope.no_rotation = d->no_rope;
    rope.norm = d->qk_norm;
    if (!w || (layer->qkb && !b)) return NULL;
    x = tni_attention_split(tn_affine(ctx, x, w, b), heads, d->d_qk);
    return x ? tn_rope(ctx, x, &rope) : NULL;
}

/* v [B,T,heads,d_v], with those of an earlier layer mixed in */
static tn_tensor *tni_attention_v(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor **values)
{
    const tn_attention_desc *d = &layer->desc;
    tn_tensor *v = tni_attention_split(tn_affine(ctx, x, layer->v, layer->vb), d->heads, d->d_v), *earlier;
    if (!v || !values) return v;
    if (!*values) return *values = v;
    if (!d->mix_values) return v;
    if (!tni_is_real(ctx, *values, "attention", "values")) return NULL;
    if (!tni_same_shape(*values, v)) {
        tni_fail(ctx, TN_ERR_SHAPE, "attention: values are %s, but v is %s", TNI_SHAPE(*values), TNI_SHAPE(v));
        return NULL;
    }
    earlier = tn_mul(ctx, *values, tn_slice(layer->mix, 0, 1, 2));
    v = earlier ? tn_mul(ctx, v, tn_slice(layer->mix, 0, 0, 1)) : NULL;
    return v ? tn_add(ctx, v, earlier) : NULL;
}

/* lambda, one number */
static tn_tensor *tni_attention_lambda_now(tn_ctx *ctx, const tn_attention *layer)
{
    const int64_t one = 1;
    tn_tensor    *e;
    if (layer->desc.kind == TN_ATTENTION_DIFFERENTIAL_PLAIN) return layer->lambda;
    e = tn_mul(ctx, tn_slice_step(layer->lambda, 0, 0, 4, 2), tn_slice_step(layer->lambda, 0, 1, 4, 2));
    e = e ? tn_activation(ctx, tn_sum_axis(ctx, e, 1), TN_ACT_EXP) : NULL;
    e = e ? tn_sub(ctx, tn_slice(e, 0, 0, 1), tn_slice(e, 0, 1, 2)) : NULL;
    return e ? tn_add(ctx, e, tn_full(ctx, 1, &one, layer->desc.lambda_init)) : NULL;
}

/* What the heads give: q [B,Tq,s heads,d_qk], k [B,Tk,s heads,d_qk], v [B,Tk,heads,d_v] -> [B,Tq,heads,d_v] */
static tn_tensor *tni_attention_heads(tn_ctx *ctx, const tn_attention *layer, const tn_attend_desc *a, tn_tensor *q,
                                      tn_tensor *k, tn_tensor *v)
{
    const tn_attention_desc *d = &layer->desc;
    const int64_t H = d->heads;
    tn_tensor    *o, *second;
    if (tni_attention_kinds[d->kind].differential) {
        o = tn_attend(ctx, tn_slice(q, 2, 0, H), tn_slice(k, 2, 0, H), v, a);
        second = o ? tn_attend(ctx, tn_slice(q, 2, H, 2 * H), tn_slice(k, 2, H, 2 * H), v, a) : NULL;
        second = second ? tn_mul(ctx, second, tni_attention_lambda_now(ctx, layer)) : NULL;
        o = second ? tn_sub(ctx, o, second) : NULL;
    } else o = tn_attend(ctx, q, k, v, a);
    if (o && (d->head_norm || d->kind == TN_ATTENTION_DIFFERENTIAL)) o = tn_rmsnorm(ctx, o, NULL, 1e-5);
    return o && d->kind == TN_ATTENTION_DIFFERENTIAL ? tn_scale(ctx, o, 1 - d->lambda_init) : o;
}

static tn_tensor *tni_attention_out(tn_ctx *ctx, const tn_attention *layer, tn_tensor *o)
{
    int64_t shape[3];
    if (!o) return NULL;
    shape[0] = o->shape[0]; shape[1] = o->shape[1]; shape[2] = o->shape[2] * o->shape[3];
    o = tn_reshape(o, 3, shape);
    return o ? tn_affine(ctx, o, layer->o, layer->ob) : NULL;
}

static bool tni_attention_given(tn_ctx *ctx, const tn_attention *layer, const tn_tensor *x)
{
    if (!tni_layer_given(ctx, layer, "attention") || !tni_usable(ctx, layer->qk, "attention", "qk")
        || !tni_usable(ctx, layer->v, "attention", "v") || !tni_usable(ctx, layer->o, "attention", "o")
        || !tni_is_real(ctx, x, "attention", "x")) return false;
    if (x->rank == 3 && x->shape[2] == layer->desc.dim) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "attention: x is %s, but must be [B,T,%lld]", TNI_SHAPE(x), (long long)layer->desc.dim);
    return false;
}

tn_tensor *tn_attention_forward(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor **values)
{
    tn_attend_desc a;
    tn_tensor     *qk, *q, *k, *v;
    int64_t        n;
    if (!tni_attention_given(ctx, layer, x)) return NULL;
    a = tni_attention_attend(&layer->desc);
    qk = tni_attention_qk(ctx, layer, x, 0);
    v = qk ? tni_attention_v(ctx, layer, x, values) : NULL;
    if (!v) return NULL;
    n = qk->shape[2] / 2;
    q = tn_slice(qk, 2, 0, n);
    k = q ? tn_slice(qk, 2, n, 2 * n) : NULL;
    return k ? tni_attention_out(ctx, layer, tni_attention_heads(ctx, layer, &a, q, k, v)) : NULL;
}

/* ---- attention's memory of what was decoded: k and v, or the state ------------------ */
struct tn_attention_cache {
    tni_owned         owned;
    tn_attention_desc desc;             /* of the layer it was made for             */
    int64_t           batch, length, past;
    bool              broken;           /* a call failed while the state took it in */
    tn_tensor        *k, *v;            /* [batch,length,s heads,d_qk], [batch,length,heads,d_v]; or NULL */
    tn_tensor        *state;            /* as tn_attend wants it; or NULL           */
};

static void tni_attention_cache_free(tni_owned *o)
{
    tn_attention_cache *c = (tn_attention_cache *)(void *)o;
    tn_ctx             *ctx = o->ctx;
    tn_tensor_destroy(c->k);
    tn_tensor_destroy(c->v);
    tn_tensor_destroy(c->state);
    tni_disown(o);
    tni_free(ctx, c, sizeof *c);
}

void    tn_attention_cache_destroy(tn_attention_cache *c)    { if (c) tni_attention_cache_free(&c->owned); }
int64_t tn_attention_cache_past(const tn_attention_cache *c) { return c ? c->past : 0; }

size_t tn_attention_cache_bytes(const tn_attention_cache *c)
{
    if (!c) return 0;
    return (c->k ? c->k->bytes : 0) + (c->v ? c->v->bytes : 0) + (c->state ? c->state->bytes : 0);
}

void tn_attention_cache_reset(tn_attention_cache *c)
{
    if (!c) return;
    c->past = 0;
    c->broken = c->state && tni_fill(c->state, 0) != TN_OK;
}

static bool tni_attention_keeps_state(const tn_attention_desc *d, int64_t length, const int64_t *state, int64_t k_heads)
{
    if (d->kind != TN_ATTENTION_SQUARED && d->kind != TN_ATTENTION_BILINEAR) return false;
    if (d->form != TN_ATTEND_AUTO || d->window > 0) return d->form == TN_ATTEND_LINEAR;
    return (double)d->heads * (double)state[2] * (double)state[3]
           < (double)length * ((double)k_heads * (double)d->d_qk + (double)d->heads * (double)d->d_v);
}

tn_attention_cache *tn_attention_cache_create(tn_ctx *ctx, const tn_attention *layer, int64_t batch, int64_t length)
{
    const tn_attention_desc *d;
    tn_attention_cache      *c;
    int64_t                  k[4], v[4], state[4];
    if (!tni_layer_given(ctx, layer, "attention cache") || !tni_usable(ctx, layer->qk, "attention cache", "qk")) return NULL;
    d = &layer->desc;
    if (d->not_causal)
        tni_fail(ctx, TN_ERR_ARG, "attention cache: the layer is not causal: what comes later would change what was said");
    else if (batch < 1 || length < 1)
        tni_fail(ctx, TN_ERR_ARG, "attention cache: batch %lld and length %lld must be at least 1", (long long)batch,
                 (long long)length);
    if (d->not_causal || batch < 1 || length < 1) return NULL;
    if (!(c = (tn_attention_cache *)tni_alloc(ctx, sizeof *c, "attention cache"))) return NULL;
    memset(c, 0, sizeof *c);
    tni_own(ctx, &c->owned, tni_attention_cache_free);
    c->desc = *d;
    c->batch = batch;
    c->length = length;
    k[0] = v[0] = state[0] = batch;
    k[1] = v[1] = length;
    k[2] = tni_attention_kinds[d->kind].sets * d->heads;
    v[2] = state[1] = d->heads;
    k[3] = d->d_qk;
    v[3] = d->d_v;
    state[2] = tni_attend_features(tni_attention_kinds[d->kind].attend, d->d_qk);
    state[3] = d->d_v + (d->row == TN_ROW_SUM);
    if (tni_attention_keeps_state(d, length, state, k[2]))
        c->state = tni_tensor_create(ctx, "attention cache", TN_REAL, 4, state);
    else if ((c->k = tni_tensor_create(ctx, "attention cache", TN_REAL, 4, k)) != NULL)
        c->v = tni_tensor_create(ctx, "attention cache", TN_REAL, 4, v);
    if (c->state || c->v) return c;
    tn_attention_cache_destroy(c);
    return NULL;
}

static bool tni_attention_cache_fits(tn_ctx *ctx, const tn_attention *layer, const tn_tensor *x, const tn_attention_cache *c)
{
    const tn_attention_desc *d = &layer->desc, *made = c ? &c->desc : d;
    if (!c || c->owned.ctx != ctx)
        tni_fail(ctx, TN_ERR_ARG, "attention: the cache %s", c ? "belongs to another context" : "is NULL");
    else if (made->kind != d->kind || made->heads != d->heads || made->d_qk != d->d_qk || made->d_v != d->d_v
             || made->window != d->window || made->row != d->row)
        tni_fail(ctx, TN_ERR_ARG, "attention: the cache was made for another layer: %s, %lld heads of %lld and %lld",
                 tn_attention_kind_name(made->kind), (long long)made->heads, (long long)made->d_qk, (long long)made->d_v);
    else if (ctx->recording) tni_fail(ctx, TN_ERR_ARG, "attention: nothing is decoded while recording");
    else if (c->broken)
        tni_fail(ctx, TN_ERR_ARG, "attention: the last call failed while the cache took it in; reset it first");
    else if (x->shape[0] != c->batch)
        tni_fail(ctx, TN_ERR_SHAPE, "attention: x is %s, but the cache was made for batch %lld", TNI_SHAPE(x),
                 (long long)c->batch);
    else if (!c->state && x->shape[1] > c->length - c->past)
        tni_fail(ctx, TN_ERR_SHAPE, "attention: %lld positions after %lld, but the cache has room for %lld in all",
                 (long long)x->shape[1], (long long)c->past, (long long)c->length);
    else return true;
    return false;
}

/* Rows [from,to) of k or v: what is past, with the new rows t behind it. */
static tn_tensor *tni_attention_remember(tn_tensor *kept, tn_tensor *t, int64_t past, int64_t from)
{
    const int64_t to = past + t->shape[1];
    tn_tensor    *here = tn_slice(kept, 1, past, to);
    return here && tni_copy(here, t) == TN_OK ? tn_slice(kept, 1, from, to) : NULL;
}

tn_tensor *tn_attention_decode(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_attention_cache *c,
                               tn_tensor **values)
{
    tn_attend_desc a;
    tn_tensor     *qk, *q, *k, *v, *y;
    int64_t        n;
    if (!tni_attention_given(ctx, layer, x) || !tni_attention_cache_fits(ctx, layer, x, c)) return NULL;
    a = tni_attention_attend(&layer->desc);
    qk = tni_attention_qk(ctx, layer, x, c->past);
    v = qk ? tni_attention_v(ctx, layer, x, values) : NULL;
    if (!v) return NULL;
    n = qk->shape[2] / 2;
    q = tn_slice(qk, 2, 0, n);
    k = q ? tn_slice(qk, 2, n, 2 * n) : NULL;
    if (c->state) {
        a.form = TN_ATTEND_LINEAR;
        a.state = c->state;
        a.past = c->past;
    } else if (k) {
        const int64_t from = a.window > 0 ? tni_max(c->past - a.window + 1, 0) : 0;     /* what the first new row sees */
        k = tni_attention_remember(c->k, k, c->past, from);
        v = k ? tni_attention_remember(c->v, v, c->past, from) : NULL;
    }
    if (!k || !v) return NULL;
    c->broken = c->state != NULL;
    y = tni_attention_out(ctx, layer, tni_attention_heads(ctx, layer, &a, q, k, v));
    if (!y) return NULL;
    c->broken = false;
    c->past += x->shape[1];
    return y;
}

/* ======================================================================
   >>operator-impl
   Rows of the factors are rank-one terms. Whatever joins an operator to biases, residuals or other layers
   copies blocks into a larger one: views of blocks, moved by COPY, and products of them by GEMM.
   ====================================================================== */

typedef struct tni_cp_box { tni_owned owned; tn_cp cp; } tni_cp_box;

static void tni_cp_destroy(tni_owned *o)
{
    tni_cp_box *box = (tni_cp_box *)(void *)o;
    int         k;
    tn_tensor_destroy(box->cp.p);
    for (k = 0; k < TN_CP_MAX_ORDER; k++) tn_tensor_destroy(box->cp.f[k]);
    tni_disown(o);
    tni_free(o->ctx, box, sizeof *box);
}

void tn_cp_destroy(tn_cp *cp)
{
    if (cp) tni_cp_destroy(&((tni_cp_box *)(void *)((char *)cp - offsetof(tni_cp_box, cp)))->owned);
}

static tn_tensor *tni_owned_2d(tn_ctx *ctx, int64_t n, int64_t m)
{
    int64_t shape[2];
    shape[0] = n; shape[1] = m;
    return tn_tensor_create(ctx, TN_REAL, 2, shape);
}

/* An operator of zeros. */
static tn_cp *tni_cp_make(tn_ctx *ctx, int order, int64_t out, int64_t terms, const int64_t *in, bool constant)
{
    tni_cp_box *box = (tni_cp_box *)tni_alloc(ctx, sizeof *box, "operator");
    tn_cp      *cp;
    bool        whole;
    int         k;
    if (!box) return NULL;
    memset(box, 0, sizeof *box);
    tni_own(ctx, &box->owned, tni_cp_destroy);
    cp = &box->cp;
    cp->ctx = ctx;
    cp->order = order;
    cp->out = out;
    cp->terms = terms;
    cp->constant = constant;
    cp->p = tni_owned_2d(ctx, out, terms);
    for (whole = cp->p != NULL, k = 0; k < order && whole; k++) {
        cp->in[k] = in[k];
        cp->f[k] = tni_owned_2d(ctx, terms, in[k]);
        whole = cp->f[k] != NULL;
    }
    if (whole) return cp;
    tn_cp_destroy(cp);
    return NULL;
}

/* Gives the finished operator, or destroys what could not be finished. */
static tn_cp *tni_cp_done(tn_cp *cp, tn_status s)
{
    if (s == TN_OK) return cp;
    tn_cp_destroy(cp);
    return NULL;
}

/* ---- blocks ---------------------------------------------------------------- */

static tn_view tni_block_of(const tn_tensor *t, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    tn_view v = tni_view(t);
    v.data = (char *)v.data + (row * v.strides[0] + column * v.strides[1]) * (int64_t)tni_dtype_size(v.dtype);
    v.shape[0] = rows;
    v.shape[1] = columns;
    return v;
}

static tn_view tni_column_view(const tn_tensor *t)               /* [n] as [n,1] */
{
    tn_view v = tni_view(t);
    v.rank = 2;
    v.shape[1] = 1;
    v.strides[1] = 0;
    return v;
}

static tn_status tni_put_copy(tn_ctx *ctx, tn_view to, tn_view from)  /* to = from, the same shape */
{
    return tni_run_views(ctx, TN_KERNEL_COPY, &from, NULL, &to, 0, false);
}

static tn_status tni_put_value(tn_ctx *ctx, tn_view to, double value)
{
    tn_call c = tni_call(TN_KERNEL_FILL, 0, NULL, 0, NULL);
    c.out[c.n_out++] = to;
    c.f[0] = value;
    return tni_run(ctx, &c);
}

static tn_status tni_put_scaled(tn_ctx *ctx, tn_view to, tn_view from, double factor)
{
    tn_call c = tni_call(TN_KERNEL_ADD, 0, NULL, 0, NULL);
    c.in[c.n_in++] = from;
    c.out[c.n_out++] = to;
    c.f[0] = factor;
    return tni_run(ctx, &c);
}

static tn_status tni_put_identity(tn_ctx *ctx, tn_view square)   /* ones on the diagonal of zeros */
{
    square.rank = 1;
    square.strides[0] += square.strides[1];
    return tni_put_value(ctx, square, 1);
}

/* to (+)= a (x) b, either one stretched */
static tn_status tni_put_product(tn_ctx *ctx, tn_view to, tn_view a, tn_view b, bool add)
{
    a = tni_expand_view(a, 2, to.shape);
    b = tni_expand_view(b, 2, to.shape);
    return tni_run_views(ctx, TN_KERNEL_MUL, &a, &b, &to, 0, add);
}

static tn_status tni_put_matmul(tn_ctx *ctx, tn_view to, tn_view a, tn_view b, double alpha, double beta)
{
    return tni_gemm(ctx, tni_one_matrix(a), tni_one_matrix(b), NULL, tni_one_matrix(to), alpha, beta);
}

/* Operators are made outside of any recording, from arena tensors that go again. */
typedef struct tni_scope { tn_mark mark; bool recording; } tni_scope;

static tni_scope tni_scope_begin(tn_ctx *ctx)
{
    tni_scope s;
    s.mark = tn_arena_mark(ctx);
    s.recording = ctx->recording;
    ctx->recording = false;
    return s;
}

static void tni_scope_end(tn_ctx *ctx, tni_scope s)
{
    if (!ctx->tape) tn_arena_release(ctx, s.mark);
    ctx->recording = s.recording;
}

/* ---- checks ---------------------------------------------------------------- */

static bool tni_is_matrix(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return false;
    if (t->rank == 2) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, but must be a matrix", op, what, TNI_SHAPE(t));
    return false;
}

static bool tni_is_vector(tn_ctx *ctx, const tn_tensor *t, int64_t n, const char *op, const char *what)
{
    if (!tni_is_real(ctx, t, op, what)) return false;
    if (t->rank == 1 && t->shape[0] == n) return true;
    tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, but must be [%lld]", op, what, TNI_SHAPE(t), (long long)n);
    return false;
}

/* Order 2 with inputs of one length: what symmetrising and everything after it needs. */
static bool tni_cp_is_bilinear(const tn_cp *cp, const char *op)
{
    if (!cp) return false;
    if (cp->order != 2) tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: the operator has order %d, but must have 2", op, cp->order);
    else if (cp->in[0] != cp->in[1])
        tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: the inputs have %lld and %lld elements, but must have as many", op,
                 (long long)cp->in[0], (long long)cp->in[1]);
    else return true;
    return false;
}

static bool tni_cp_one_input(const tn_cp *cp, const char *op)
{
    int k;
    if (!cp) return false;
    for (k = 1; k < cp->order; k++)
        if (cp->in[k] != cp->in[0]) {
            tni_fail(cp->ctx, TN_ERR_SHAPE, "%s: inputs 0 and %d have %lld and %lld elements, but must have as many", op, k,
                     (long long)cp->in[0], (long long)cp->in[k]);
            return false;
        }
    return true;
}

static bool tni_cp_of_params(const tn_params *ps, const tn_cp *cp, const char *op)
{
    if (!ps) return false;
    if (cp->ctx == tn_params_ctx(ps)) return tni_cp_one_input(cp, op);
    tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "%s: the operator belongs to another context", op);
    return false;
}

/* ---- made from arrays, layers and stacks -------------------------------------- */

tn_cp *tn_cp_create(tn_ctx *ctx, int order, tn_tensor *p, tn_tensor *const *f, bool constant)
{
    int64_t   in[TN_CP_MAX_ORDER];
    tn_cp    *cp;
    tn_status s;
    int       k;
    if (!tni_is_matrix(ctx, p, "cp", "p")) return NULL;
    if (order < 1 || order > TN_CP_MAX_ORDER || !f) {
        tni_fail(ctx, TN_ERR_ARG, "cp: order %d, but it must be 1 to %d, with as many factors", order, TN_CP_MAX_ORDER);
        return NULL;
    }
    for (k = 0; k < order; k++) {
        if (!tni_is_matrix(ctx, f[k], "cp", "a factor")) return NULL;
        if (f[k]->shape[0] != p->shape[1] || (constant && f[k]->shape[1] < 1)) {
            tni_fail(ctx, TN_ERR_SHAPE, "cp: p is %s but factor %d is %s%s", TNI_SHAPE(p), k, TNI_SHAPE(f[k]),
                     constant ? ", whose last column is the constant's" : "");
            return NULL;
        }
        in[k] = f[k]->shape[1];
    }
    cp = tni_cp_make(ctx, order, p->shape[0], p->shape[1], in, constant);
    if (!cp) return NULL;
    s = tni_copy(cp->p, p);
    for (k = 0; k < order && s == TN_OK; k++) s = tni_copy(cp->f[k], f[k]);
    return tni_cp_done(cp, s);
}

/* A copy with room for more terms, and with the constant's column if it has none yet. */
static tn_cp *tni_cp_extend(const tn_cp *cp, int64_t more, bool constant)
{
    int64_t   in[TN_CP_MAX_ORDER];
    tn_cp    *to;
    tn_status s;
    int       k, column = constant && !cp->constant;
    for (k = 0; k < cp->order; k++) in[k] = cp->in[k] + column;
    to = tni_cp_make(cp->ctx, cp->order, cp->out, cp->terms + more, in, cp->constant || constant);
    if (!to) return NULL;
    s = tni_put_copy(cp->ctx, tni_block_of(to->p, 0, cp->out, 0, cp->terms), tni_view(cp->p));
    for (k = 0; k < cp->order && s == TN_OK; k++)
        s = tni_put_copy(cp->ctx, tni_block_of(to->f[k], 0, cp->terms, 0, cp->in[k]), tni_view(cp->f[k]));
    return tni_cp_done(to, s);
}

/* Term `term` becomes a bias: b times the constant one, in every input. */
static tn_status tni_cp_put_bias(tn_cp *cp, int64_t term, tn_view b)
{
    tn_status s = tni_put_copy(cp->ctx, tni_block_of(cp->p, 0, cp->out, term, 1), b);
    int       k;
    for (k = 0; k < cp->order && s == TN_OK; k++)
        s = tni_put_value(cp->ctx, tni_block_of(cp->f[k], term, 1, cp->in[k] - 1, 1), 1);
    return s;
}

static tn_cp *tni_cp_with_bias(const tn_cp *cp, tn_view b)
{
    tn_cp *to = cp ? tni_cp_extend(cp, 1, true) : NULL;
    return to ? tni_cp_done(to, tni_cp_put_bias(to, cp->terms, b)) : NULL;
}

/* Replaces an intermediate operator by the next one, which was made from it. */
static tn_cp *tni_cp_next(tn_cp *used, tn_cp *next)
{
    tn_cp_destroy(used);
    return next;
}

static tn_view tni_slice_view(const tn_tensor *t, int64_t i)     /* slice i of [k,h,n] */
{
    tn_view v = tni_view(t);
    v.data = (char *)v.data + i * v.strides[0] * (int64_t)tni_dtype_size(v.dtype);
    v.rank = 2;
    v.shape[0] = v.shape[1]; v.shape[1] = v.shape[2];
    v.strides[0] = v.strides[1]; v.strides[1] = v.strides[2];
    return v;
}

/* The encoders, with the biases as their last columns where there are any; P, or I; then p as a term of its own. */
static tn_cp *tni_cp_from_encoders(const tn_product *m)
{
    const tn_product_desc *d = &m->desc;
    tn_ctx   *ctx = m->w->ctx;
    tn_cp    *cp;
    tn_status s;
    int64_t   in[TN_CP_MAX_ORDER];
    int       k;
    for (k = 0; k < d->order; k++) in[k] = d->in + (m->b || d->augmented);
    cp = tni_cp_make(ctx, (int)d->order, d->out, d->hidden, in, m->b || d->augmented);
    if (!cp) return NULL;
    s = m->p ? tni_put_copy(ctx, tni_view(cp->p), tni_block_of(m->p, 0, d->out, 0, d->hidden))
             : tni_put_identity(ctx, tni_view(cp->p));
    for (k = 0; k < d->order && s == TN_OK; k++) {
        tn_view w = tni_slice_view(m->w, k);
        s = tni_put_copy(ctx, tni_block_of(cp->f[k], 0, d->hidden, 0, w.shape[1]), w);
        if (s == TN_OK && m->b) {
            tn_view b = tni_transposed_view(tni_block_of(m->b, k, 1, 0, d->hidden));
            s = tni_put_copy(ctx, tni_block_of(cp->f[k], 0, d->hidden, d->in, 1), b);
        }
    }
    cp = tni_cp_done(cp, s);
    if (cp && m->pb) cp = tni_cp_next(cp, tni_cp_with_bias(cp, tni_column_view(m->pb)));
    if (cp && m->p && d->augmented) cp = tni_cp_next(cp, tni_cp_with_bias(cp, tni_block_of(m->p, 0, d->out, d->hidden, 1)));
    return cp;
}

tn_cp *tn_cp_from_mlp(tn_ctx *ctx, const tn_mlp *m)
{
    tn_product two;
    tn_cp     *cp;
    if (!tni_usable(ctx, m ? m->w : NULL, "cp_from_mlp", "mlp")) return NULL;
    if (m->desc.kind != TN_MLP_BILINEAR) {
        tni_fail(ctx, TN_ERR_ARG, "cp_from_mlp: a %s layer is no tensor, only a bilinear one is",
                 tn_mlp_kind_name(m->desc.kind));
        return NULL;
    }
    memset(&two, 0, sizeof two);
    two.desc.in = m->desc.in;
    two.desc.hidden = m->desc.hidden;
    two.desc.out = m->desc.out;
    two.desc.order = 2;
    two.desc.augmented = m->desc.augmented;
    two.w = m->w;
    two.b = m->b;
    two.p = m->p;
    two.pb = m->pb;
    cp = tni_cp_from_encoders(&two);
    if (cp && m->desc.residual) cp = tni_cp_next(cp, tn_cp_residual(cp));
    return cp;
}

tn_cp *tn_cp_from_product(tn_ctx *ctx, const tn_product *m)
{
    if (!tni_usable(ctx, m ? m->w : NULL, "cp_from_product", "layer")) return NULL;
    if (m->desc.order <= TN_CP_MAX_ORDER) return tni_cp_from_encoders(m);
    tni_fail(ctx, TN_ERR_ARG,
             "cp_from_product: the layer has %lld encoders, but an operator has at most %d (TN_CP_MAX_ORDER)",
             (long long)m->desc.order, TN_CP_MAX_ORDER);
    return NULL;
}

/* F_0 = [W 1] or [A B 1]   F_1 = [V c] */
tn_cp *tn_cp_from_modifier(tn_ctx *ctx, const tn_modifier *m)
{
    const tn_modifier_desc *d;
    int64_t   in[2], h, n;
    tn_cp    *cp;
    tn_view   w;
    tn_status s;
    if (!tni_usable(ctx, m ? m->v : NULL, "cp_from_modifier", "layer")) return NULL;
    d = &m->desc;
    h = d->hidden;
    n = d->in;
    if (d->step > 0) {
        tni_fail(ctx, TN_ERR_ARG, "cp_from_modifier: W x is rounded to multiples of %g, and what is rounded is no tensor",
                 d->step);
        return NULL;
    }
    in[0] = in[1] = n + 1;
    cp = tni_cp_make(ctx, 2, d->out, h, in, true);
    if (!cp) return NULL;
    w = tni_block_of(cp->f[0], 0, h, 0, n);
    s = m->w ? tni_put_copy(ctx, w, tni_view(m->w)) : tni_put_matmul(ctx, w, tni_view(m->wa), tni_view(m->wb), 1, 0);
    if (s == TN_OK) s = tni_put_value(ctx, tni_block_of(cp->f[0], 0, h, n, 1), 1);
    if (s == TN_OK) s = tni_put_copy(ctx, tni_block_of(cp->f[1], 0, h, 0, n), tni_view(m->v));
    if (s == TN_OK && m->c) s = tni_put_copy(ctx, tni_block_of(cp->f[1], 0, h, n, 1), tni_column_view(m->c));
    if (s == TN_OK) s = m->p ? tni_copy(cp->p, m->p) : tni_put_identity(ctx, tni_view(cp->p));
    cp = tni_cp_done(cp, s);
    return cp && m->pb ? tni_cp_next(cp, tni_cp_with_bias(cp, tni_column_view(m->pb))) : cp;
}

/* Term (o,i): P = e_o, F_0 = e_i, F_1 = t[o,i,:]. */
tn_cp *tn_cp_from_tensor(tn_ctx *ctx, tn_tensor *t, bool constant)
{
    int64_t   in[2], out, n, terms, o;
    size_t    numbers, bytes;
    tn_cp    *cp;
    tn_status s = TN_OK;
    if (!tni_is_real(ctx, t, "cp_from_tensor", "t")) return NULL;
    if (t->rank != 3 || (constant && (t->shape[1] < 1 || t->shape[2] < 1))) {
        tni_fail(ctx, TN_ERR_SHAPE, "cp_from_tensor: t is %s, but must be [out,n,m]%s", TNI_SHAPE(t),
                 constant ? ", whose last row and column are the constant's" : "");
        return NULL;
    }
    out = t->shape[0];
    n = in[0] = t->shape[1];
    in[1] = t->shape[2];
    if (!tni_mul_size((size_t)out, (size_t)n, &numbers)
        || !tni_mul_size(numbers, (size_t)out + (size_t)n + (size_t)in[1], &numbers)
        || !tni_mul_size(numbers, tni_dtype_size(ctx->desc.dtype), &bytes)
        || (ctx->desc.max_bytes > 0 && bytes > ctx->desc.max_bytes)) {
        tni_fail(ctx, TN_ERR_MEMORY, "cp_from_tensor: t is %s, as factors %lld x %lld terms of %lld numbers: "
                 "more than max_bytes = %zu", TNI_SHAPE(t), (long long)out, (long long)n, (long long)(out + n + in[1]),
                 ctx->desc.max_bytes);
        return NULL;
    }
    terms = out * n;
    cp = tni_cp_make(ctx, 2, out, terms, in, constant);
    for (o = 0; cp && o < out && s == TN_OK; o++) {
        s = tni_put_value(ctx, tni_block_of(cp->p, o, 1, o * n, n), 1);
        if (s == TN_OK) s = tni_put_identity(ctx, tni_block_of(cp->f[0], o * n, n, 0, n));
        if (s == TN_OK) s = tni_put_copy(ctx, tni_block_of(cp->f[1], o * n, n, 0, in[1]), tni_slice_view(t, o));
    }
    return cp ? tni_cp_done(cp, s) : NULL;
}

tn_cp *tn_cp_from_quadratic(tn_ctx *ctx, const tn_quadratic *m)
{
    if (!tni_usable(ctx, m ? m->t : NULL, "cp_from_quadratic", "layer")) return NULL;
    return tn_cp_from_tensor(ctx, m->t, m->desc.bias || m->desc.augmented);
}

/* Into factors that train: F_k as slice k of w, its last column as b where that is the constant's. */
tn_status tn_product_from_cp(tn_params *ps, const char *name, tn_product *layer, const tn_cp *cp)
{
    int64_t         before = tn_params_count(ps), n;
    tn_ctx         *ctx = tn_params_ctx(ps);
    tn_product_desc d;
    tn_status       s;
    int             k;
    if (!layer || !cp) return tni_fail(ctx, TN_ERR_ARG, "product_from_cp: %s is NULL", layer ? "the operator" : "the layer");
    memset(layer, 0, sizeof *layer);
    if (!tni_cp_of_params(ps, cp, "product_from_cp")) return tn_ctx_status(ctx);
    n = cp->in[0] - cp->constant;
    memset(&d, 0, sizeof d);
    d.in = n;
    d.hidden = cp->terms;
    d.out = cp->out;
    d.order = cp->order;
    d.bias = cp->constant;
    d.init.rule = d.init_out.rule = TN_INIT_ZERO;
    if ((s = tn_product_init(ps, name, layer, &d)) != TN_OK) return s;
    s = tni_copy(layer->p, cp->p);
    for (k = 0; k < cp->order && s == TN_OK; k++) {
        s = tni_put_copy(ctx, tni_slice_view(layer->w, k), tni_block_of(cp->f[k], 0, cp->terms, 0, n));
        if (s == TN_OK && d.bias)
            s = tni_put_copy(ctx, tni_transposed_view(tni_block_of(layer->b, k, 1, 0, cp->terms)),
                             tni_block_of(cp->f[k], 0, cp->terms, n, 1));
    }
    return tni_layer_done(ps, before, s == TN_OK, layer, sizeof *layer);
}

tn_status tn_quadratic_from_cp(tn_params *ps, const char *name, tn_quadratic *layer, const tn_cp *cp)
{
    int64_t           before = tn_params_count(ps);
    tn_ctx           *ctx = tn_params_ctx(ps);
    tn_quadratic_desc d;
    tn_tensor        *t;
    tn_status         s;
    if (!layer || !cp)
        return tni_fail(ctx, TN_ERR_ARG, "quadratic_from_cp: %s is NULL", layer ? "the operator" : "the layer");
    memset(layer, 0, sizeof *layer);
    if (!tni_cp_of_params(ps, cp, "quadratic_from_cp") || !tni_cp_is_bilinear(cp, "quadratic_from_cp"))
        return tn_ctx_status(ctx);
    memset(&d, 0, sizeof d);
    d.in = cp->in[0] - cp->constant;
    d.out = cp->out;
    d.bias = cp->constant;
    d.init.rule = TN_INIT_ZERO;
    if (!(t = tn_cp_dense(cp, false))) return tn_ctx_status(ctx);
    s = tn_quadratic_init(ps, name, layer, &d);
    if (s == TN_OK) s = tni_layer_done(ps, before, tni_copy(layer->t, t) == TN_OK, layer, sizeof *layer);
    tn_tensor_destroy(t);
    return s;
}

/* A linear layer's matrix and bias, wherever it keeps them. */
static bool tni_linear_parts(const tn_linear *l, tn_tensor **w, tn_tensor **b)
{
    *w = l->w;
    *b = l->b;
    if (!l->desc.augmented) return true;
    *w = tn_slice(l->w, 1, 0, l->desc.in);
    *b = tn_slice(l->w, 1, l->desc.in, l->desc.in + 1);
    if (*b) (*b)->rank = 1;                          /* the last column, as a vector */
    return *w && *b;
}

tn_cp *tn_cp_from_stack(tn_ctx *ctx, const tn_linear *embed, const tn_mlp *mlp, const tn_linear *unembed)
{
    tn_cp     *cp = tn_cp_from_mlp(ctx, mlp);
    tn_tensor *w, *b;
    tni_scope  scope;
    if (!cp) return NULL;
    scope = tni_scope_begin(ctx);
    if (unembed) {
        bool whole = tni_linear_parts(unembed, &w, &b);
        cp = tni_cp_next(cp, whole ? tn_cp_fold_out(cp, w, b) : NULL);
    }
    if (cp && embed) {
        bool whole = tni_linear_parts(embed, &w, &b);
        cp = tni_cp_next(cp, whole ? tn_cp_fold_in(cp, w, b) : NULL);
    }
    tni_scope_end(ctx, scope);
    return cp;
}

/* ---- folding --------------------------------------------------------------------
   In: F [E b; 0 1], that is F' = F[:,:m] E and, for the constant, F[:,:m] b + F[:,m].      Out: U P. */

tn_cp *tn_cp_fold_in(const tn_cp *cp, tn_tensor *e, tn_tensor *b)
{
    int64_t   in[TN_CP_MAX_ORDER], m;
    tn_cp    *to;
    tn_status s = TN_OK;
    int       k;
    bool      constant;
    if (!tni_cp_one_input(cp, "fold_in") || !tni_is_matrix(cp->ctx, e, "fold_in", "e")) return NULL;
    m = cp->in[0] - cp->constant;
    constant = cp->constant || b;
    if (e->shape[0] != m) {
        tni_fail(cp->ctx, TN_ERR_SHAPE, "fold_in: e is %s, but the operator takes %lld inputs", TNI_SHAPE(e), (long long)m);
        return NULL;
    }
    if (b && !tni_is_vector(cp->ctx, b, m, "fold_in", "b")) return NULL;
    for (k = 0; k < cp->order; k++) in[k] = e->shape[1] + constant;
    to = tni_cp_make(cp->ctx, cp->order, cp->out, cp->terms, in, constant);
    if (!to) return NULL;
    s = tni_copy(to->p, cp->p);
    for (k = 0; k < cp->order && s == TN_OK; k++) {
        tn_view f = tni_block_of(cp->f[k], 0, cp->terms, 0, m);
        tn_view last = tni_block_of(to->f[k], 0, cp->terms, e->shape[1], 1);
        s = tni_put_matmul(cp->ctx, tni_block_of(to->f[k], 0, cp->terms, 0, e->shape[1]), f, tni_view(e), 1, 0);
        if (s == TN_OK && cp->constant) s = tni_put_copy(cp->ctx, last, tni_block_of(cp->f[k], 0, cp->terms, m, 1));
        if (s == TN_OK && b) s = tni_put_matmul(cp->ctx, last, f, tni_column_view(b), 1, 1);
    }
    return tni_cp_done(to, s);
}

tn_cp *tn_cp_fold_out(const tn_cp *cp, tn_tensor *u, tn_tensor *b)
{
    tn_cp    *to;
    tn_status s;
    int       k;
    if (!cp || !tni_is_matrix(cp->ctx, u, "fold_out", "u")) return NULL;
    if (u->shape[1] != cp->out) {
        tni_fail(cp->ctx, TN_ERR_SHAPE, "fold_out: u is %s, but the operator gives %lld outputs", TNI_SHAPE(u),
                 (long long)cp->out);
        return NULL;
    }
    if (b && !tni_is_vector(cp->ctx, b, u->shape[0], "fold_out", "b")) return NULL;
    to = tni_cp_make(cp->ctx, cp->order, u->shape[0], cp->terms, cp->in, cp->constant);
    if (!to) return NULL;
    s = tni_put_matmul(cp->ctx, tni_view(to->p), tni_view(u), tni_view(cp->p), 1, 0);
    for (k = 0; k < cp->order && s == TN_OK; k++) s = tni_copy(to->f[k], cp->f[k]);
    to = tni_cp_done(to, s);
    return to && b ? tni_cp_next(to, tni_cp_with_bias(to, tni_column_view(b))) : to;
}

/* B+: P' = [P I]   W' = [[W b],[I 0]]   V' = [[V c],[0 1]] */
tn_cp *tn_cp_residual(const tn_cp *cp)
{
    tn_cp    *to;
    tn_status s;
    int64_t   n;
    if (!tni_cp_is_bilinear(cp, "residual")) return NULL;
    n = cp->in[0] - cp->constant;
    if (cp->out != n) {
        tni_fail(cp->ctx, TN_ERR_SHAPE, "residual: %lld inputs but %lld outputs", (long long)n, (long long)cp->out);
        return NULL;
    }
    to = tni_cp_extend(cp, n, true);
    if (!to) return NULL;
    s = tni_put_identity(cp->ctx, tni_block_of(to->p, 0, n, cp->terms, n));
    if (s == TN_OK) s = tni_put_identity(cp->ctx, tni_block_of(to->f[0], cp->terms, n, 0, n));
    if (s == TN_OK) s = tni_put_value(cp->ctx, tni_block_of(to->f[1], cp->terms, n, n, 1), 1);
    return tni_cp_done(to, s);
}

/* P' = [P P]/2   W' = [W;V]   V' = [V;W] */
tn_cp *tn_cp_symmetrise(const tn_cp *cp)
{
    tn_cp    *to;
    tn_status s = TN_OK;
    int       half;
    if (!tni_cp_is_bilinear(cp, "symmetrise")) return NULL;
    to = tni_cp_make(cp->ctx, 2, cp->out, 2 * cp->terms, cp->in, cp->constant);
    if (!to) return NULL;
    for (half = 0; half < 2 && s == TN_OK; half++) {
        int64_t at = half * cp->terms;
        s = tni_put_scaled(cp->ctx, tni_block_of(to->p, 0, cp->out, at, cp->terms), tni_view(cp->p), 0.5);
        if (s == TN_OK)
            s = tni_put_copy(cp->ctx, tni_block_of(to->f[0], at, cp->terms, 0, cp->in[0]), tni_view(cp->f[half]));
        if (s == TN_OK)
            s = tni_put_copy(cp->ctx, tni_block_of(to->f[1], at, cp->terms, 0, cp->in[0]), tni_view(cp->f[1 - half]));
    }
    return tni_cp_done(to, s);
}

/* ---- bias split: W x (x) V x,  (diag(c) W + diag(b) V) x,  b (x) c, all under P -------- */

/* Row h of an [h,n] matrix on the host: all zeros? */
static bool tni_zero_row(const double *f, int64_t n)
{
    int64_t j;
    for (j = 0; j < n; j++) if (f[j] != 0) return false;
    return true;
}

/* The quadratic part, without the terms that have none: those of a residual or of a bias. */
static tn_cp *tni_cp_quadratic(const tn_cp *cp)
{
    int64_t   n = cp->in[0] - cp->constant, kept = 0, h, in[2];
    double   *f[2];
    bool      read;
    tn_cp    *to = NULL;
    tn_status s = TN_OK;
    int       k, pass;
    in[0] = in[1] = n;
    f[0] = tni_alloc_f64(cp->ctx, cp->terms, cp->in[0], "split");
    f[1] = tni_alloc_f64(cp->ctx, cp->terms, cp->in[0], "split");
    read = f[0] && f[1] && tn_read(cp->f[0], TN_F64, f[0], cp->terms * cp->in[0]) == TN_OK
           && tn_read(cp->f[1], TN_F64, f[1], cp->terms * cp->in[0]) == TN_OK;
    for (pass = 0; read && pass < 2; pass++) {               /* count, then copy */
        if (pass == 1 && !(to = tni_cp_make(cp->ctx, 2, cp->out, kept, in, false))) break;
        for (kept = 0, h = 0; h < cp->terms && s == TN_OK; h++) {
            if (tni_zero_row(f[0] + h * cp->in[0], n) || tni_zero_row(f[1] + h * cp->in[0], n)) continue;
            if (pass == 1)
                s = tni_put_copy(cp->ctx, tni_block_of(to->p, 0, cp->out, kept, 1), tni_block_of(cp->p, 0, cp->out, h, 1));
            for (k = 0; pass == 1 && k < 2 && s == TN_OK; k++)
                s = tni_put_copy(cp->ctx, tni_block_of(to->f[k], kept, 1, 0, n), tni_block_of(cp->f[k], h, 1, 0, n));
            kept++;
        }
    }
    tni_free_f64(cp->ctx, f[0], cp->terms, cp->in[0]);
    tni_free_f64(cp->ctx, f[1], cp->terms, cp->in[0]);
    return to ? tni_cp_done(to, s) : NULL;
}

static tn_tensor *tni_cp_linear_part(const tn_cp *cp)
{
    tn_ctx    *ctx = cp->ctx;
    int64_t    n = cp->in[0] - cp->constant, h = cp->terms;
    tn_tensor *l = tni_owned_2d(ctx, cp->out, n), *d;
    tn_status  s;
    if (!l || !cp->constant) return l;
    d = tn_tensor_2d(ctx, TN_REAL, h, n);
    s = d ? tni_put_product(ctx, tni_view(d), tni_block_of(cp->f[0], 0, h, 0, n), tni_block_of(cp->f[1], 0, h, n, 1), false)
          : TN_ERR_MEMORY;
    if (s == TN_OK)
        s = tni_put_product(ctx, tni_view(d), tni_block_of(cp->f[1], 0, h, 0, n), tni_block_of(cp->f[0], 0, h, n, 1), true);
    if (s == TN_OK) s = tni_put_matmul(ctx, tni_view(l), tni_view(cp->p), tni_view(d), 1, 0);
    if (s == TN_OK) return l;
    tn_tensor_destroy(l);
    return NULL;
}

static tn_tensor *tni_cp_constant_part(const tn_cp *cp)
{
    tn_ctx    *ctx = cp->ctx;
    int64_t    n = cp->in[0] - 1, h = cp->terms;
    tn_tensor *c = tn_tensor_create(ctx, TN_REAL, 1, &cp->out), *d;
    tn_status  s;
    if (!c || !cp->constant) return c;
    d = tn_tensor_2d(ctx, TN_REAL, h, 1);
    s = d ? tni_put_product(ctx, tni_view(d), tni_block_of(cp->f[0], 0, h, n, 1), tni_block_of(cp->f[1], 0, h, n, 1), false)
          : TN_ERR_MEMORY;
    if (s == TN_OK) s = tni_put_matmul(ctx, tni_column_view(c), tni_view(cp->p), tni_view(d), 1, 0);
    if (s == TN_OK) return c;
    tn_tensor_destroy(c);
    return NULL;
}

tn_status tn_cp_split(const tn_cp *cp, tn_cp **quadratic, tn_tensor **linear, tn_tensor **constant)
{
    tni_scope scope;
    bool      failed;
    if (quadratic) *quadratic = NULL;
    if (linear) *linear = NULL;
    if (constant) *constant = NULL;
    if (!tni_cp_is_bilinear(cp, "split")) return cp ? tn_ctx_status(cp->ctx) : TN_ERR_ARG;
    scope = tni_scope_begin(cp->ctx);
    failed = (quadratic && !(*quadratic = tni_cp_quadratic(cp)))
          || (linear && !(*linear = tni_cp_linear_part(cp)))
          || (constant && !(*constant = tni_cp_constant_part(cp)));
    tni_scope_end(cp->ctx, scope);
    if (!failed) return TN_OK;
    if (quadratic) { tn_cp_destroy(*quadratic); *quadratic = NULL; }
    if (linear) { tn_tensor_destroy(*linear); *linear = NULL; }
    return tn_ctx_status(cp->ctx);
}

/* P' = P diag(F_slot u) */
tn_cp *tn_cp_freeze(const tn_cp *cp, int slot, tn_tensor *u)
{
    int64_t    in[TN_CP_MAX_ORDER];
    tn_cp     *to = NULL;
    tn_tensor *s;
    tn_status  status;
    tni_scope  scope;
    int        k, at = 0;
    if (!cp) return NULL;
    if (slot < 0 || slot >= cp->order || cp->order < 2) {
        tni_fail(cp->ctx, TN_ERR_ARG, "freeze: slot %d of an operator of order %d", slot, cp->order);
        return NULL;
    }
    if (!tni_is_vector(cp->ctx, u, cp->in[slot], "freeze", "u")) return NULL;
    for (k = 0; k < cp->order; k++) if (k != slot) in[at++] = cp->in[k];
    scope = tni_scope_begin(cp->ctx);
    s = tn_tensor_2d(cp->ctx, TN_REAL, cp->terms, 1);
    if (s) to = tni_cp_make(cp->ctx, cp->order - 1, cp->out, cp->terms, in, cp->constant);
    if (to) {
        status = tni_put_matmul(cp->ctx, tni_view(s), tni_view(cp->f[slot]), tni_column_view(u), 1, 0);
        if (status == TN_OK)
            status = tni_put_product(cp->ctx, tni_view(to->p), tni_view(cp->p), tni_transposed_view(tni_view(s)), false);
        for (k = 0, at = 0; k < cp->order && status == TN_OK; k++)
            if (k != slot) status = tni_copy(to->f[at++], cp->f[k]);
        to = tni_cp_done(to, status);
    }
    tni_scope_end(cp->ctx, scope);
    return to;
}

/* ---- forms ------------------------------------------------------------------------- */

/* T[o] = (diag(P_o) K)^T F_last with K the Khatri-Rao product of the other factors, row by row. */
static tn_status tni_cp_dense_slices(const tn_cp *cp, tn_tensor *k, tn_tensor *t)
{
    tn_ctx    *ctx = cp->ctx;
    int64_t    o, rows = k->shape[1], columns = cp->in[cp->order - 1];
    tn_tensor *scaled = tn_tensor_2d(ctx, TN_REAL, cp->terms, rows);
    tn_status  s = scaled ? TN_OK : TN_ERR_MEMORY;
    for (o = 0; o < cp->out && s == TN_OK; o++) {
        tn_view slice = tni_view(t);
        slice.rank = 2;
        slice.data = (char *)slice.data + o * rows * columns * (int64_t)tni_dtype_size(slice.dtype);
        slice.shape[0] = rows; slice.shape[1] = columns;
        slice.strides[0] = columns; slice.strides[1] = 1;
        s = tni_put_product(ctx, tni_view(scaled), tni_view(k), tni_transposed_view(tni_block_of(cp->p, o, 1, 0, cp->terms)),
                            false);
        if (s == TN_OK)
            s = tni_put_matmul(ctx, slice, tni_transposed_view(tni_view(scaled)), tni_view(cp->f[cp->order - 1]), 1, 0);
    }
    return s;
}

/* Row-wise Khatri-Rao product of all factors but the last: [terms, in_0 .. in_(k-2)]. */
static tn_tensor *tni_cp_khatri_rao(const tn_cp *cp)
{
    tn_tensor *k = cp->f[0];
    int        i;
    for (i = 1; k && i + 1 < cp->order; i++) {
        int64_t a[3], b[3];
        a[0] = b[0] = cp->terms;
        a[1] = k->shape[1]; a[2] = 1;
        b[1] = 1; b[2] = cp->in[i];
        k = tn_mul(cp->ctx, tn_reshape(k, 3, a), tn_reshape(cp->f[i], 3, b));
        k = k ? tn_reshape_2d(k, cp->terms, k->shape[1] * k->shape[2]) : NULL;
    }
    return k;
}

static tn_status tni_put_symmetric(tn_ctx *ctx, tn_tensor *to, tn_tensor *t)      /* (t + t^T)/2 of the last two axes */
{
    tn_call c = tni_call(TN_KERNEL_ADD, 1, (const tn_tensor *const *)&t, 1, &to);
    c.in[c.n_in++] = tni_transposed_view(tni_view(t));
    c.f[0] = c.f[1] = 0.5;
    return tni_run(ctx, &c);
}

static tn_tensor *tni_symmetric_slices(tn_ctx *ctx, tn_tensor *t)
{
    tn_tensor *s = tni_tensor_create(ctx, "dense", TN_REAL, t->rank, t->shape);
    if (s && tni_put_symmetric(ctx, s, t) == TN_OK) return s;
    tn_tensor_destroy(s);
    return NULL;
}

tn_tensor *tn_cp_dense(const tn_cp *cp, bool symmetric)
{
    int64_t    shape[TN_CP_MAX_ORDER + 1];
    tn_tensor *t, *k;
    tni_scope  scope;
    tn_status  s;
    size_t     bytes;
    if (!cp || (symmetric && !tni_cp_is_bilinear(cp, "dense"))) return NULL;
    shape[0] = cp->out;
    memcpy(shape + 1, cp->in, sizeof *shape * (size_t)cp->order);
    if (!tni_extents_fit(cp->ctx->desc.dtype, cp->order + 1, shape, &bytes)) {
        tni_fail(cp->ctx, TN_ERR_MEMORY, "dense: %s %s does not fit the address space", tni_dtype_name(cp->ctx->desc.dtype),
                 tni_shape_of(cp->order + 1, shape).s);
        return NULL;
    }
    t = tni_tensor_create(cp->ctx, "dense", TN_REAL, cp->order + 1, shape);
    if (!t) return NULL;
    scope = tni_scope_begin(cp->ctx);
    if (cp->order == 1) s = tni_put_matmul(cp->ctx, tni_view(t), tni_view(cp->p), tni_view(cp->f[0]), 1, 0);
    else {
        k = tni_cp_khatri_rao(cp);
        s = k ? tni_cp_dense_slices(cp, k, t) : TN_ERR_MEMORY;
    }
    tni_scope_end(cp->ctx, scope);
    if (s == TN_OK && !symmetric) return t;
    k = s == TN_OK ? tni_symmetric_slices(cp->ctx, t) : NULL;
    tn_tensor_destroy(t);
    return k;
}

tn_tensor *tn_cp_interaction(const tn_cp *cp, tn_tensor *u)
{
    tn_tensor *d, *scaled, *g, *q = NULL;
    tni_scope  scope;
    if (!tni_cp_is_bilinear(cp, "interaction") || !tni_is_vector(cp->ctx, u, cp->out, "interaction", "u")) return NULL;
    scope = tni_scope_begin(cp->ctx);
    d = tn_tensor_2d(cp->ctx, TN_REAL, cp->terms, 1);
    scaled = d ? tn_tensor_2d(cp->ctx, TN_REAL, cp->terms, cp->in[0]) : NULL;
    g = scaled ? tn_tensor_2d(cp->ctx, TN_REAL, cp->in[0], cp->in[0]) : NULL;
    if (g && tni_put_matmul(cp->ctx, tni_view(d), tni_transposed_view(tni_view(cp->p)), tni_column_view(u), 1, 0) == TN_OK
        && tni_put_product(cp->ctx, tni_view(scaled), tni_view(cp->f[0]), tni_view(d), false) == TN_OK
        && tni_put_matmul(cp->ctx, tni_view(g), tni_transposed_view(tni_view(scaled)), tni_view(cp->f[1]), 1, 0) == TN_OK)
        q = tni_symmetric_slices(cp->ctx, g);
    tni_scope_end(cp->ctx, scope);
    return q;
}

tn_tensor *tn_cp_interaction_of(const tn_cp *cp, int64_t output)
{
    tn_tensor *u, *one, *q = NULL;
    tni_scope  scope;
    if (!cp) return NULL;
    if (output < 0 || output >= cp->out) {
        tni_fail(cp->ctx, TN_ERR_ARG, "interaction: output %lld of %lld", (long long)output, (long long)cp->out);
        return NULL;
    }
    scope = tni_scope_begin(cp->ctx);
    u = tn_full(cp->ctx, 1, &cp->out, 0);
    one = u ? tn_slice(u, 0, output, output + 1) : NULL;
    if (one && tni_put_value(cp->ctx, tni_view(one), 1) == TN_OK) q = tn_cp_interaction(cp, u);
    tni_scope_end(cp->ctx, scope);
    return q;
}

/* P (prod_k F_k x_k), by ops: so it can be recorded, and differentiated by x */
tn_tensor *tn_cp_apply_each(tn_ctx *ctx, const tn_cp *cp, tn_tensor *const *x)
{
    tn_tensor *h = NULL;
    int        k;
    if (!cp || !x) {
        tni_fail(ctx, TN_ERR_ARG, "apply: %s is NULL", cp ? "x" : "the operator");
        return NULL;
    }
    for (k = 0; k < cp->order; k++) {
        tn_tensor *input = x[k], *e;
        if (!tni_is_real(ctx, input, "apply", "x")) return NULL;
        if (cp->constant && input->rank > 0 && input->shape[input->rank - 1] == cp->in[k] - 1)
            input = tn_append_one(ctx, input);
        e = input ? tn_affine(ctx, input, cp->f[k], NULL) : NULL;
        h = k == 0 || !e ? e : tn_mul(ctx, h, e);
        if (!h) return NULL;
    }
    return tn_affine(ctx, h, cp->p, NULL);
}

tn_tensor *tn_cp_apply(tn_ctx *ctx, const tn_cp *cp, tn_tensor *x)
{
    tn_tensor *all[TN_CP_MAX_ORDER];
    int        k;
    if (!cp) tni_fail(ctx, TN_ERR_ARG, "apply: the operator is NULL");
    if (!tni_cp_one_input(cp, "apply") || !tni_is_real(ctx, x, "apply", "x")) return NULL;
    if (cp->constant && x->rank > 0 && x->shape[x->rank - 1] == cp->in[0] - 1) x = tn_append_one(ctx, x);
    for (k = 0; k < cp->order; k++) all[k] = x;
    return tn_cp_apply_each(ctx, cp, all);
}

/* ---- eigenpairs -----------------------------------------------------------------------
   Q_u = 1/2 (W^T D V + V^T D W),  D = diag(P^T u).
   With 2h < n:  [W^T V^T] = Q [R1 R2],  Q_u = Q T Q^T,  T = 1/2 (R1 D R2^T + R2 D R1^T): 2h x 2h.
   On the host in double, an output per task; every worker has its own workspace. */
typedef struct tni_eigen_job {
    int64_t  n, h, r, outputs, out, count, bytes_of_worker;      /* r: size of the matrix that is solved */
    double  *left, *right;          /* [r,h] both: R1 and R2, or W^T and V^T         */
    double  *q;                     /* [n,r], or NULL where r = n                   */
    double  *p, *u;                 /* [out,h], [outputs,out]                       */
    double  *values, *vectors;      /* [outputs,count], [outputs,count,n] or NULL   */
    double  *work;                  /* per worker                                   */
    tn_status *status;              /* [outputs]                                    */
    tn_simd  simd;
} tni_eigen_job;

static int64_t tni_eigen_extent(const tni_eigen_job *j)
{
    return tni_max(tni_max(j->n, 2 * j->h), tni_max(j->count, j->out));
}

static int64_t tni_eigen_work(const tni_eigen_job *j)
{
    return 3 * j->r * j->r + j->r * j->h + j->h + j->r + tni_eigh_work(j->r) + tni_host_work(tni_eigen_extent(j));
}

/* The i-th vector in input space, with the sign rule applied there. */
static void tni_eigen_vectors(const tni_eigen_job *j, const tni_host *host, double *z, double *to)
{
    int64_t i;
    if (j->q)
        host->by->gemm(host, j->count, j->n, j->r, 1, tni_rows(z, j->r), tni_turned(tni_rows(j->q, j->r)), 0,
                       tni_rows(to, j->n));
    else memcpy(to, z, sizeof *to * (size_t)(j->count * j->n));
    for (i = 0; i < j->count; i++)
        if (tni_points_down(j->n, to + i * j->n, 1)) host->by->scale(j->n, -1, to + i * j->n);
}

static void tni_eigen_task(void *arg, int64_t task, int worker)
{
    const tni_eigen_job *j = (const tni_eigen_job *)arg;
    int64_t r = j->r, h = j->h, i, k;
    double *t = j->work + worker * tni_eigen_work(j), *g = t + r * r, *z = g + r * r, *scaled = z + r * r;
    double *d = scaled + r * h, *values = d + h, *rest = values + r;
    tni_host host = tni_host_of(j->simd, &tni_alone, tni_eigen_extent(j), rest + tni_eigh_work(r));
    host.by->gemm(&host, 1, h, j->out, 1, tni_rows(j->u + task * j->out, j->out), tni_rows(j->p, h), 0, tni_rows(d, h));
    for (i = 0; i < r; i++) for (k = 0; k < h; k++) scaled[i * h + k] = j->left[i * h + k] * d[k];
    host.by->gemm(&host, r, r, h, 0.5, tni_rows(scaled, h), tni_turned(tni_rows(j->right, h)), 0, tni_rows(g, r));
    for (i = 0; i < r; i++) for (k = 0; k < r; k++) t[i * r + k] = g[i * r + k] + g[k * r + i];
    j->status[task] = tni_eigh(&host, r, t, values, j->vectors ? z : NULL, rest);
    if (j->status[task] != TN_OK) return;
    tni_sort_rows(r, values, tni_before_magnitude, r, j->vectors ? z : NULL, NULL);
    memcpy(j->values + task * j->count, values, sizeof *values * (size_t)j->count);
    if (j->vectors) tni_eigen_vectors(j, &host, z, j->vectors + task * j->count * j->n);
}

/* [W^T V^T] = Q [R1 R2], or the factors themselves. m: scratch for [n,2h], its R and the factorisation */
static tn_status tni_eigen_factor(tn_ctx *ctx, tni_eigen_job *j, double *const *f)
{
    int64_t   n = j->n, h = j->h, i, k, columns = 2 * h, work = tni_qr_work(n, columns) + tni_host_work(tni_max(n, columns));
    double   *m, *r, *scratch;
    tni_host  host;
    tn_status s = TN_ERR_MEMORY;
    if (!j->q) {
        for (i = 0; i < h; i++)
            for (k = 0; k < n; k++) { j->left[k * h + i] = f[0][i * n + k]; j->right[k * h + i] = f[1][i * n + k]; }
        return TN_OK;
    }
    m = tni_alloc_f64(ctx, n, columns, "eigen");
    r = tni_alloc_f64(ctx, columns, columns, "eigen");
    scratch = tni_alloc_f64(ctx, work, 1, "eigen");
    if (m && r && scratch) {
        for (i = 0; i < h; i++)
            for (k = 0; k < n; k++) { m[k * columns + i] = f[0][i * n + k]; m[k * columns + h + i] = f[1][i * n + k]; }
        host = tni_decomp_host(ctx, tni_max(n, columns), scratch + tni_qr_work(n, columns));
        s = tni_qr(&host, n, columns, tni_rows(m, columns), tni_rows(j->q, j->r), tni_rows(r, columns), scratch);
        for (i = 0; i < j->r; i++) {
            memcpy(j->left + i * h, r + i * columns, sizeof *r * (size_t)h);
            memcpy(j->right + i * h, r + i * columns + h, sizeof *r * (size_t)h);
        }
    }
    tni_free_f64(ctx, m, n, columns);
    tni_free_f64(ctx, r, columns, columns);
    tni_free_f64(ctx, scratch, work, 1);
    return s;
}

static tn_status tni_eigen_run(tn_ctx *ctx, tni_eigen_job *j, const tn_cp *cp)
{
    double   *f[2];
    int64_t   i;
    tn_status s = TN_ERR_MEMORY;
    f[0] = tni_alloc_f64(ctx, j->h, j->n, "eigen");
    f[1] = tni_alloc_f64(ctx, j->h, j->n, "eigen");
    if (f[0] && f[1]) {
        s = tn_read(cp->f[0], TN_F64, f[0], j->h * j->n);
        if (s == TN_OK) s = tn_read(cp->f[1], TN_F64, f[1], j->h * j->n);
        if (s == TN_OK) s = tn_read(cp->p, TN_F64, j->p, j->out * j->h);
        if (s == TN_OK) s = tni_eigen_factor(ctx, j, f);
    }
    tni_free_f64(ctx, f[0], j->h, j->n);
    tni_free_f64(ctx, f[1], j->h, j->n);
    if (s != TN_OK) return s;
    tni_parallel_for(tni_ctx_pool(ctx), j->outputs, tni_eigen_task, j);
    for (i = 0; i < j->outputs; i++) if (j->status[i] != TN_OK) return j->status[i];
    return TN_OK;
}

static tn_tensor *tni_owned_from(tn_ctx *ctx, int rank, const int64_t *shape, const double *values)
{
    tn_tensor *t = tn_tensor_create(ctx, TN_REAL, rank, shape);
    if (t && tn_write(t, TN_F64, values, tn_tensor_count(t)) == TN_OK) return t;
    tn_tensor_destroy(t);
    return NULL;
}

/* ---- some of many eigenpairs: by products, see >>lanczos -----------------------------------
   Q_u x = 1/2 (W^T (d (x) V x) + V^T (d (x) W x)),  d = P^T u:  8 h n flops. In double whatever the context's dtype,
   by its backend's kernels. Where n <= 2 h the matrix itself is smaller than its factors: forming it takes 2 h n^2
   flops, at the speed of a large matrix product, and then a product reads n^2 numbers instead of 2 h n. */
enum { TNI_EIGEN_LARGE = 1024, TNI_EIGEN_FEW = 32, TNI_EIGEN_FORMED = 12288, TNI_EIGEN_CHUNK = 1 << 17 };

typedef struct tni_eigen_product {
    tn_ctx    *ctx;
    int64_t    n, h, chunk;             /* chunk: terms at a time, so that their rows stay in the cache */
    bool       formed;
    tn_tensor *m;                       /* Q [n,n], or rows w_0, v_0, w_1, v_1 .. [2h,n]                 */
    tn_tensor *x, *y, *d;               /* [1,n] [1,n] [1,h]                                            */
    tn_tensor *z, *swapped;             /* [1,2 chunk]                                                  */
} tni_eigen_product;

static tn_tensor *tni_owned_f64(tn_ctx *ctx, int64_t n, int64_t m)
{
    int64_t shape[2];
    shape[0] = n; shape[1] = m;
    return tn_tensor_create(ctx, TN_F64, 2, shape);
}

static tn_view tni_every_second(tn_view v)              /* columns 0, 2, 4 .. */
{
    v.shape[1] /= 2;
    v.strides[1] *= 2;
    return v;
}

/* z = M x;  swapped: z's pairs the other way round, times d/2;  y += M^T swapped */
static tn_status tni_eigen_by_factors(tni_eigen_product *p)
{
    int64_t   at, k;
    tn_status s = TN_OK;
    for (at = 0; at < p->h && s == TN_OK; at += p->chunk) {
        int64_t rows = tni_min(p->chunk, p->h - at);
        tn_view m = tni_block_of(p->m, 2 * at, 2 * rows, 0, p->n);
        s = tni_put_matmul(p->ctx, tni_block_of(p->z, 0, 1, 0, 2 * rows), tni_view(p->x), tni_transposed_view(m), 0.5, 0);
        for (k = 0; k < 2 && s == TN_OK; k++)
            s = tni_put_product(p->ctx, tni_every_second(tni_block_of(p->swapped, 0, 1, k, 2 * rows)),
                                tni_every_second(tni_block_of(p->z, 0, 1, 1 - k, 2 * rows)),
                                tni_block_of(p->d, 0, 1, at, rows), false);
        if (s == TN_OK)
            s = tni_put_matmul(p->ctx, tni_view(p->y), tni_block_of(p->swapped, 0, 1, 0, 2 * rows), m, 1, at > 0 ? 1 : 0);
    }
    return s;
}

static tn_status tni_eigen_multiply(void *user, int64_t count, const double *x, double *y)
{
    tni_eigen_product *p = (tni_eigen_product *)user;
    int64_t   i;
    tn_status s = TN_OK;
    for (i = 0; i < count && s == TN_OK; i++) {
        s = tn_write(p->x, TN_F64, x + i * p->n, p->n);
        if (s == TN_OK)
            s = p->formed ? tni_put_matmul(p->ctx, tni_view(p->y), tni_view(p->x), tni_view(p->m), 1, 0)
                          : tni_eigen_by_factors(p);
        if (s == TN_OK) s = tn_read(p->y, TN_F64, y + i * p->n, p->n);
    }
    return s;
}

/* G = W^T diag(d) V in chunks of terms, Q = (G + G^T)/2 */
static tn_status tni_eigen_form(tni_eigen_product *p, const tn_cp *cp)
{
    tn_tensor *g = tni_owned_f64(p->ctx, p->n, p->n), *f[2], *scaled = tni_owned_f64(p->ctx, p->chunk, p->n);
    int64_t    at;
    int        k;
    tn_status  s;
    f[0] = tni_owned_f64(p->ctx, p->chunk, p->n);
    f[1] = tni_owned_f64(p->ctx, p->chunk, p->n);
    s = g && scaled && f[0] && f[1] ? TN_OK : TN_ERR_MEMORY;
    for (at = 0; at < p->h && s == TN_OK; at += p->chunk) {
        int64_t rows = tni_min(p->chunk, p->h - at);
        tn_view v = tni_block_of(f[1], 0, rows, 0, p->n), w = tni_block_of(scaled, 0, rows, 0, p->n);
        for (k = 0; k < 2 && s == TN_OK; k++)
            s = tni_put_copy(p->ctx, tni_block_of(f[k], 0, rows, 0, p->n), tni_block_of(cp->f[k], at, rows, 0, p->n));
        if (s == TN_OK)
            s = tni_put_product(p->ctx, w, tni_block_of(f[0], 0, rows, 0, p->n),
                                tni_transposed_view(tni_block_of(p->d, 0, 1, at, rows)), false);
        if (s == TN_OK) s = tni_put_matmul(p->ctx, tni_view(g), tni_transposed_view(w), v, 1, 1);
    }
    if (s == TN_OK) s = tni_put_symmetric(p->ctx, p->m, g);
    tn_tensor_destroy(g);
    tn_tensor_destroy(scaled);
    tn_tensor_destroy(f[0]);
    tn_tensor_destroy(f[1]);
    return s;
}

static void tni_eigen_product_end(tni_eigen_product *p)
{
    tn_tensor_destroy(p->m);
    tn_tensor_destroy(p->x);
    tn_tensor_destroy(p->y);
    tn_tensor_destroy(p->d);
    tn_tensor_destroy(p->z);
    tn_tensor_destroy(p->swapped);
}

static tn_status tni_eigen_product_begin(tni_eigen_product *p, const tn_cp *cp, bool formed)
{
    int64_t   n = cp->in[0], h = cp->terms, k;
    tn_status s = TN_OK;
    memset(p, 0, sizeof *p);
    p->ctx = cp->ctx;
    p->n = n;
    p->h = h;
    p->formed = formed;
    p->chunk = tni_min(h, tni_max(formed ? 256 : TNI_EIGEN_CHUNK / (2 * n), 1));
    p->m = formed ? tni_owned_f64(p->ctx, n, n) : tni_owned_f64(p->ctx, 2 * h, n);
    p->x = tni_owned_f64(p->ctx, 1, n);
    p->y = tni_owned_f64(p->ctx, 1, n);
    p->d = tni_owned_f64(p->ctx, 1, h);
    p->z = tni_owned_f64(p->ctx, 1, 2 * p->chunk);
    p->swapped = tni_owned_f64(p->ctx, 1, 2 * p->chunk);
    if (!p->m || !p->x || !p->y || !p->d || !p->z || !p->swapped) return TN_ERR_MEMORY;
    for (k = 0; k < 2 && !formed && s == TN_OK; k++) {
        tn_view rows = tni_block_of(p->m, k, h, 0, n);
        rows.strides[0] = 2 * n;
        s = tni_put_copy(p->ctx, rows, tni_view(cp->f[k]));
    }
    return s;
}

/* For each row of u [outputs,out]. */
static tn_status tni_eigen_each(tni_eigen_product *product, const tn_cp *cp, const double *u, int64_t outputs, int64_t count,
                                double *p, double *d, double *values, double *vectors)
{
    tn_ctx         *ctx = cp->ctx;
    tni_lanczos_job job;
    tn_lanczos_desc desc;
    double         *room;
    int64_t         o, n = cp->in[0], h = cp->terms, work;
    tn_status       s;
    memset(&desc, 0, sizeof desc);
    desc.top = count;
    if ((s = tni_lanczos_plan(ctx, &job, n, &desc)) != TN_OK) return s;
    work = tni_lanczos_work(&job);
    if (!(room = tni_alloc_f64(ctx, 1, work, "eigen"))) return TN_ERR_MEMORY;
    for (o = 0; o < outputs && s == TN_OK; o++) {
        if ((s = tni_lanczos_plan(ctx, &job, n, &desc)) != TN_OK) break;
        tni_lanczos_lay(&job, room);
        job.fn = tni_eigen_multiply;
        job.user = product;
        job.host.by->gemm(&job.host, 1, h, cp->out, 1, tni_rows((double *)u + o * cp->out, cp->out), tni_rows(p, h), 0,
                          tni_rows(d, h));
        s = tn_write(product->d, TN_F64, d, h);
        if (s == TN_OK && product->formed) s = tni_eigen_form(product, cp);
        if (s != TN_OK) break;
        if ((s = tni_lanczos(&job)) != TN_OK) break;
        memcpy(values + o * count, job.theta, sizeof *values * (size_t)count);
        memcpy(vectors + o * count * n, job.v, sizeof *vectors * (size_t)(count * n));
    }
    tni_free_f64(ctx, room, 1, work);
    return s;
}

static tn_status tni_eigen_store(tn_ctx *ctx, tn_eigen *e, int64_t outputs, int64_t count, int64_t n, const double *values,
                                 const double *vectors)
{
    int64_t shape[3];
    shape[0] = outputs; shape[1] = count; shape[2] = n;
    e->outputs = outputs; e->count = count; e->n = n;
    e->values = tni_owned_from(ctx, 2, shape, values);
    if (vectors) e->vectors = tni_owned_from(ctx, 3, shape, vectors);
    if (e->values && (e->vectors || !vectors)) return TN_OK;
    tn_eigen_destroy(e);
    return tn_ctx_status(ctx);
}

static tn_status tni_eigen_lanczos(const tn_cp *cp, const double *u, int64_t outputs, int64_t count, bool formed,
                                   tn_eigen *e)
{
    tn_ctx           *ctx = cp->ctx;
    int64_t           n = cp->in[0], h = cp->terms;
    double           *p = tni_alloc_f64(ctx, cp->out, h, "eigen"), *d = tni_alloc_f64(ctx, 1, h, "eigen");
    double           *values = tni_alloc_f64(ctx, outputs, count, "eigen");
    double           *vectors = tni_alloc_f64(ctx, outputs * count, n, "eigen");
    tni_eigen_product product;
    tn_status         s = tni_eigen_product_begin(&product, cp, formed);
    if (s == TN_OK && !(p && d && values && vectors)) s = TN_ERR_MEMORY;
    if (s == TN_OK) s = tn_read(cp->p, TN_F64, p, cp->out * h);
    if (s == TN_OK) s = tni_eigen_each(&product, cp, u, outputs, count, p, d, values, vectors);
    tni_eigen_product_end(&product);
    if (s == TN_OK) s = tni_eigen_store(ctx, e, outputs, count, n, values, vectors);
    tni_free_f64(ctx, p, cp->out, h);
    tni_free_f64(ctx, d, 1, h);
    tni_free_f64(ctx, values, outputs, count);
    tni_free_f64(ctx, vectors, outputs * count, n);
    return s;
}

/* Few pairs of a large problem, and is Q formed for them? Measured in seconds of one core, exact against products: size
   768, 10 pairs: 0.44, 0.08; 1024 (h = 2048), 10 pairs: 1.22, 0.21, 32 pairs: 1.22, 0.37; 1024 (n = 1600), 10 pairs: 1.63,
   0.15. The bounds keep well inside of that, since spectra differ. Formed against by factors: n 1024, h 2048: 0.21, 0.55;
   n 4096, h 16384: 17, 21; forming costs h n^2 and some 300 products 8 h n each, at an eighth of the speed. */
static bool tni_eigen_is_large(int64_t n, int64_t h, int64_t count)
{
    int64_t size = tni_min(n, 2 * h);
    return count > 0 && size >= TNI_EIGEN_LARGE && count <= size / TNI_EIGEN_FEW;
}

static bool tni_eigen_is_formed(int64_t n, int64_t h) { return n <= 2 * h && n <= TNI_EIGEN_FORMED; }

static void tni_eigen_say(tn_ctx *ctx, tn_status s)
{
    if (s == TN_ERR_CONVERGENCE) tni_fail(ctx, s, "eigen: the QL iteration did not converge");
    if (s == TN_ERR_NONFINITE) tni_fail(ctx, s, "eigen: the operator holds NaN or infinity");
}

/* u [outputs,out] on the host. Without vectors only values may be had, faster. */
static tn_status tni_eigen_solve(const tn_cp *cp, double *u, int64_t outputs, int64_t count, bool vectors, tn_eigen *e)
{
    tn_ctx       *ctx = cp->ctx;
    tni_eigen_job j;
    int64_t       threads = tni_min(ctx->pool.threads, tni_max(outputs, 1)), work;
    bool          small;
    tn_status     s = TN_ERR_MEMORY;
    if (tni_eigen_is_large(cp->in[0], cp->terms, count)) {
        s = tni_eigen_lanczos(cp, u, outputs, count, tni_eigen_is_formed(cp->in[0], cp->terms), e);
        if (s != TN_ERR_CONVERGENCE) { tni_eigen_say(ctx, s); return s; }
        s = TN_ERR_MEMORY;
    }
    memset(&j, 0, sizeof j);
    j.simd = ctx->desc.simd;
    j.n = cp->in[0]; j.h = cp->terms; j.out = cp->out; j.outputs = outputs; j.u = u;
    small = 2 * j.h < j.n;
    j.r = small ? 2 * j.h : j.n;
    j.count = count == 0 ? j.r : count;
    work = tni_eigen_work(&j);
    j.left = tni_alloc_f64(ctx, j.r, j.h, "eigen");
    j.right = tni_alloc_f64(ctx, j.r, j.h, "eigen");
    j.p = tni_alloc_f64(ctx, j.out, j.h, "eigen");
    j.values = tni_alloc_f64(ctx, outputs, j.count, "eigen");
    if (vectors) j.vectors = tni_alloc_f64(ctx, outputs * j.count, j.n, "eigen");
    j.work = tni_alloc_f64(ctx, threads, work, "eigen");
    j.status = (tn_status *)tni_alloc(ctx, sizeof *j.status * (size_t)outputs, "eigen");
    if (small) j.q = tni_alloc_f64(ctx, j.n, j.r, "eigen");
    if (j.left && j.right && j.p && j.values && (j.vectors || !vectors) && j.work && j.status && (!small || j.q))
        s = tni_eigen_run(ctx, &j, cp);
    tni_eigen_say(ctx, s);
    if (s == TN_OK) s = tni_eigen_store(ctx, e, outputs, j.count, j.n, j.values, j.vectors);
    tni_free_f64(ctx, j.left, j.r, j.h);
    tni_free_f64(ctx, j.right, j.r, j.h);
    tni_free_f64(ctx, j.p, j.out, j.h);
    tni_free_f64(ctx, j.values, outputs, j.count);
    tni_free_f64(ctx, j.vectors, outputs * j.count, j.n);
    tni_free_f64(ctx, j.work, threads, work);
    tni_free_f64(ctx, j.q, j.n, j.r);
    tni_free(ctx, j.status, sizeof *j.status * (size_t)outputs);
    return s;
}

/* What both entries check: order 2, a place for the result, no more pairs than can differ from zero. */
static tn_status tni_eigen_check(const tn_cp *cp, int64_t count, tn_eigen *e)
{
    int64_t most;
    if (!cp || !e) return TN_ERR_ARG;
    memset(e, 0, sizeof *e);
    if (!tni_cp_is_bilinear(cp, "eigen")) return TN_ERR_SHAPE;
    if (!tni_decomp_fits(cp->ctx, "eigen", cp->in[0], 2 * tni_min(cp->terms, INT32_MAX))) return TN_ERR_SHAPE;
    most = tni_min(cp->in[0], 2 * cp->terms);
    if (count >= 0 && count <= most) return TN_OK;
    return tni_fail(cp->ctx, TN_ERR_ARG, "eigen: %lld pairs of a matrix whose rank is at most %lld", (long long)count,
                    (long long)most);
}

tn_status tn_cp_eigen(const tn_cp *cp, tn_tensor *u, int64_t count, tn_eigen *e)
{
    tn_status s = tni_eigen_check(cp, count, e);
    double   *host;
    if (s != TN_OK) return s;
    if (!tni_is_vector(cp->ctx, u, cp->out, "eigen", "u")) return tn_ctx_status(cp->ctx);
    host = tni_alloc_f64(cp->ctx, 1, cp->out, "eigen");
    if (!host) return TN_ERR_MEMORY;
    s = tn_read(u, TN_F64, host, cp->out);
    if (s == TN_OK) s = tni_eigen_solve(cp, host, 1, count, true, e);
    tni_free_f64(cp->ctx, host, 1, cp->out);
    return s;
}

static tn_status tni_eigen_all(const tn_cp *cp, int64_t count, bool vectors, tn_eigen *e)
{
    tn_status s = tni_eigen_check(cp, count, e);
    double   *host;
    int64_t   o;
    if (s != TN_OK) return s;
    host = tni_alloc_f64(cp->ctx, cp->out, cp->out, "eigen");
    if (!host) return TN_ERR_MEMORY;
    for (o = 0; o < cp->out; o++) host[o * cp->out + o] = 1;
    s = tni_eigen_solve(cp, host, cp->out, count, vectors, e);
    tni_free_f64(cp->ctx, host, cp->out, cp->out);
    return s;
}

tn_status tn_cp_eigen_all(const tn_cp *cp, int64_t count, tn_eigen *e) { return tni_eigen_all(cp, count, true, e); }

void tn_eigen_destroy(tn_eigen *e)
{
    if (!e) return;
    tn_tensor_destroy(e->values);
    tn_tensor_destroy(e->vectors);
    memset(e, 0, sizeof *e);
}

/* P[o, o k + i] = value[o,i]; both factors are the vectors. */
tn_cp *tn_cp_from_eigen(tn_ctx *ctx, const tn_eigen *e, int64_t k, bool constant)
{
    int64_t   in[2], o;
    tn_cp    *cp;
    tn_status s = TN_OK;
    if (!e || !tni_usable(ctx, e->values, "from_eigen", "values") || !tni_usable(ctx, e->vectors, "from_eigen", "vectors"))
        return NULL;
    if (k < 0 || k > e->count) {
        tni_fail(ctx, TN_ERR_ARG, "from_eigen: %lld of %lld pairs", (long long)k, (long long)e->count);
        return NULL;
    }
    in[0] = in[1] = e->n;
    cp = tni_cp_make(ctx, 2, e->outputs, e->outputs * k, in, constant);
    if (!cp) return NULL;
    for (o = 0; o < e->outputs && s == TN_OK; o++) {
        tn_view v = tni_view(e->vectors);
        v.data = (char *)v.data + o * v.strides[0] * (int64_t)tni_dtype_size(v.dtype);
        v.rank = 2;
        v.shape[0] = k; v.shape[1] = e->n;
        v.strides[0] = e->n; v.strides[1] = 1;
        s = tni_put_copy(ctx, tni_block_of(cp->p, o, 1, o * k, k), tni_block_of(e->values, o, 1, 0, k));
        if (s == TN_OK) s = tni_put_copy(ctx, tni_block_of(cp->f[0], o * k, k, 0, e->n), v);
        if (s == TN_OK) s = tni_put_copy(ctx, tni_block_of(cp->f[1], o * k, k, 0, e->n), v);
    }
    return tni_cp_done(cp, s);
}

tn_cp *tn_cp_truncate(const tn_cp *cp, int64_t k)
{
    tn_eigen e;
    tn_cp   *to;
    if (tn_cp_eigen_all(cp, k, &e) != TN_OK) return NULL;
    to = tn_cp_from_eigen(cp->ctx, &e, k, cp->constant);
    tn_eigen_destroy(&e);
    return to;
}

/* ---- spectra ------------------------------------------------------------------------------
   |Q_o|^2 = sum_i l_i^2 without an eigenvalue: from Q_o itself, 2 h n^2 flops for each, or for all at once from K, see
   "comparing" below, 6 h^2 n. In double. */

static tn_status tni_square_norms_dense(const tn_cp *cp, double *squares)
{
    tni_eigen_product p;
    int64_t   n = cp->in[0], o;
    double   *q = tni_alloc_f64(cp->ctx, n, n, "spectrum"), *d = tni_alloc_f64(cp->ctx, cp->out, cp->terms, "spectrum");
    tn_status s = tni_eigen_product_begin(&p, cp, true);
    if (s == TN_OK && !(q && d)) s = TN_ERR_MEMORY;
    if (s == TN_OK) s = tn_read(cp->p, TN_F64, d, cp->out * cp->terms);
    for (o = 0; o < cp->out && s == TN_OK; o++) {
        double norm;
        s = tn_write(p.d, TN_F64, d + o * cp->terms, cp->terms);
        if (s == TN_OK) s = tni_eigen_form(&p, cp);
        if (s == TN_OK) s = tn_read(p.m, TN_F64, q, n * n);
        norm = tni_frobenius(n * n, q);
        squares[o] = norm * norm;
    }
    tni_eigen_product_end(&p);
    tni_free_f64(cp->ctx, q, n, n);
    tni_free_f64(cp->ctx, d, cp->out, cp->terms);
    return s;
}

/* K = 1/2 [(W W^T)(x)(V V^T) + (W V^T)(x)(V W^T)], |Q_o|^2 = (P K P^T)[o,o] */
static tn_status tni_square_norms_gram(const tn_cp *cp, double *squares)
{
    enum { W, V, P, WW, VV, WV, K, PK, COUNT };
    static const int left[3] = {W, V, W}, right[3] = {W, V, V};
    tn_ctx    *ctx = cp->ctx;
    int64_t    n = cp->in[0], h = cp->terms, out = cp->out, o;
    tn_tensor *t[COUNT];
    double    *p = tni_alloc_f64(ctx, out, h, "spectrum"), *pk = tni_alloc_f64(ctx, out, h, "spectrum");
    tn_status  s = p && pk ? TN_OK : TN_ERR_MEMORY;
    int        k;
    for (k = 0; k < COUNT; k++) {
        t[k] = tni_owned_f64(ctx, k == P || k == PK ? out : h, k == W || k == V ? n : h);
        if (!t[k]) s = TN_ERR_MEMORY;
    }
    for (k = 0; k < 3 && s == TN_OK; k++) s = tni_put_copy(ctx, tni_view(t[k]), tni_view(k == P ? cp->p : cp->f[k]));
    for (k = 0; k < 3 && s == TN_OK; k++)
        s = tni_put_matmul(ctx, tni_view(t[WW + k]), tni_view(t[left[k]]), tni_transposed_view(tni_view(t[right[k]])), 1, 0);
    if (s == TN_OK) s = tni_put_product(ctx, tni_view(t[K]), tni_view(t[WW]), tni_view(t[VV]), false);
    if (s == TN_OK) s = tni_put_product(ctx, tni_view(t[K]), tni_view(t[WV]), tni_transposed_view(tni_view(t[WV])), true);
    if (s == TN_OK) s = tni_put_matmul(ctx, tni_view(t[PK]), tni_view(t[P]), tni_view(t[K]), 0.5, 0);
    if (s == TN_OK) s = tn_read(t[P], TN_F64, p, out * h);
    if (s == TN_OK) s = tn_read(t[PK], TN_F64, pk, out * h);
    for (o = 0; o < out && s == TN_OK; o++)
        squares[o] = tni_max_f64(0, tni_algebra_of(ctx->desc.simd)->dot(h, p + o * h, pk + o * h));
    for (k = 0; k < COUNT; k++) tn_tensor_destroy(t[k]);
    tni_free_f64(ctx, p, out, h);
    tni_free_f64(ctx, pk, out, h);
    return s;
}

/* The interval of (sum |l|)^2 / sum l^2 for an output of which `count` of `all` values are known. What is left of the
   sum of squares, E, is that of all - count values of at most c = |last|:  E/c <= their sum <= sqrt((all - count) E),
   (all - count) c. `slack`: what rounding may have done to E. */
static void tni_rank_interval(const double *values, int64_t count, int64_t all, double square, double slack, double *low,
                              double *high)
{
    double  sum = 0, rest = square, c = count > 0 ? fabs(values[count - 1]) : HUGE_VAL, left = (double)(all - count), more;
    int64_t i;
    *low = *high = 0;
    if (!(square > 0)) return;
    if (count == all) {
        *low = *high = tn_effective_rank(values, count);
        return;
    }
    for (i = 0; i < count; i++) {
        sum += fabs(values[i]);
        rest -= values[i] * values[i];
    }
    more = sqrt(left * tni_max_f64(rest + slack * square, 0));
    if (left * c < more) more = left * c;
    *high = (sum + more) * (sum + more) / square;
    *low = sum + (c > 0 ? tni_max_f64(rest - slack * square, 0) / c : 0);
    *low = *low * *low / square;
}

static tn_status tni_spectrum_fill(const tn_cp *cp, const tn_eigen *e, tn_spectrum *out, double *values, double *numbers)
{
    tn_ctx   *ctx = cp->ctx;
    int64_t   n = cp->in[0], h = cp->terms, all = tni_min(n, 2 * h), k = e->count, o, i;
    double   *norm = numbers, *low = norm + cp->out, *high = low + cp->out;
    double    slack = ctx->desc.dtype == TN_F32 ? 1e-6 : 1e-13;
    tn_status s = tn_read(e->values, TN_F64, values, cp->out * k);
    if (s == TN_OK && k < all)
        s = (double)cp->out * (double)n > 3 * (double)h ? tni_square_norms_gram(cp, norm) : tni_square_norms_dense(cp, norm);
    for (o = 0; o < cp->out && s == TN_OK; o++) {
        for (i = 0; i < k && k == all; i++) norm[o] += values[o * k + i] * values[o * k + i];
        tni_rank_interval(values + o * k, k, all, norm[o], slack, low + o, high + o);
        norm[o] = sqrt(norm[o]);
    }
    if (s != TN_OK) return s;
    out->norm = tni_owned_from(ctx, 1, &cp->out, norm);
    out->rank_low = tni_owned_from(ctx, 1, &cp->out, low);
    out->rank_high = tni_owned_from(ctx, 1, &cp->out, high);
    return out->norm && out->rank_low && out->rank_high ? TN_OK : tn_ctx_status(ctx);
}

tn_status tn_cp_spectrum(const tn_cp *cp, int64_t count, tn_spectrum *out)
{
    tn_eigen  e;
    double   *values, *numbers;
    tn_status s = TN_ERR_MEMORY;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if ((s = tni_eigen_check(cp, count, &e)) != TN_OK || (s = tni_eigen_all(cp, count, false, &e)) != TN_OK) return s;
    values = tni_alloc_f64(cp->ctx, cp->out, e.count, "spectrum");
    numbers = tni_alloc_f64(cp->ctx, cp->out, 3, "spectrum");
    out->outputs = cp->out;
    out->count = e.count;
    s = values && numbers ? tni_spectrum_fill(cp, &e, out, values, numbers) : TN_ERR_MEMORY;
    out->values = e.values;
    e.values = NULL;
    tn_eigen_destroy(&e);                                    /* vectors, where they came along */
    tni_free_f64(cp->ctx, values, cp->out, out->count);
    tni_free_f64(cp->ctx, numbers, cp->out, 3);
    if (s != TN_OK) tn_spectrum_destroy(out);
    return s;
}

void tn_spectrum_destroy(tn_spectrum *s)
{
    if (!s) return;
    tn_tensor_destroy(s->values);
    tn_tensor_destroy(s->norm);
    tn_tensor_destroy(s->rank_low);
    tn_tensor_destroy(s->rank_high);
    memset(s, 0, sizeof *s);
}

/* R = diag(l^1/4) V, so that S^1/2 = R^T R. A value below zero by more than rounding: not semidefinite. */
static tn_status tni_quarter_root(tn_ctx *ctx, const tn_tensor *s, tn_tensor **root)
{
    tn_eigh_result e;
    int64_t   n = s->shape[0], i;
    double   *l;
    tn_status status = tn_eigh(ctx, &e, s, NULL);
    if (status != TN_OK) return status;
    l = tni_alloc_f64(ctx, n, 1, "data_metric");
    status = l ? tn_read(e.values, TN_F64, l, n) : TN_ERR_MEMORY;
    if (status == TN_OK && n > 0 && l[0] < -(ctx->desc.dtype == TN_F32 ? 1e-5 : 1e-10) * fabs(l[n - 1]))
        status = tni_fail(ctx, TN_ERR_ARG, "data_metric: s has the eigenvalues %g to %g, but E[x x^T] has none below zero",
                          l[0], l[n - 1]);
    for (i = 0; i < n && status == TN_OK; i++) l[i] = sqrt(sqrt(tni_max_f64(l[i], 0)));
    if (status == TN_OK) status = tn_write(e.values, TN_F64, l, n);
    *root = status == TN_OK ? tn_tensor_2d(ctx, TN_REAL, n, n) : NULL;
    if (*root) status = tni_put_product(ctx, tni_view(*root), tni_view(e.vectors), tni_column_view(e.values), false);
    else if (status == TN_OK) status = TN_ERR_MEMORY;
    tni_free_f64(ctx, l, n, 1);
    tn_eigh_destroy(&e);
    return status;
}

tn_cp *tn_cp_data_metric(const tn_cp *cp, tn_tensor *s)
{
    tn_ctx    *ctx;
    tn_cp     *to = NULL;
    tn_tensor *root, *half;
    tn_status  status;
    tni_scope  scope;
    int        k;
    if (!tni_cp_one_input(cp, "data_metric") || !tni_is_matrix(cp->ctx, s, "data_metric", "s")) return NULL;
    ctx = cp->ctx;
    if (s->shape[0] != cp->in[0] || s->shape[1] != cp->in[0]) {
        tni_fail(ctx, TN_ERR_SHAPE, "data_metric: s is %s, but the operator takes %lld inputs%s", TNI_SHAPE(s),
                 (long long)cp->in[0], cp->constant ? ", the one included" : "");
        return NULL;
    }
    scope = tni_scope_begin(ctx);
    status = tni_quarter_root(ctx, s, &root);
    half = status == TN_OK ? tn_tensor_2d(ctx, TN_REAL, cp->in[0], cp->in[0]) : NULL;
    if (half) status = tni_put_matmul(ctx, tni_view(half), tni_transposed_view(tni_view(root)), tni_view(root), 1, 0);
    if (half && status == TN_OK) to = tni_cp_make(ctx, cp->order, cp->out, cp->terms, cp->in, false);
    if (to) {
        status = tni_copy(to->p, cp->p);
        for (k = 0; k < cp->order && status == TN_OK; k++)
            status = tni_put_matmul(ctx, tni_view(to->f[k]), tni_view(cp->f[k]), tni_view(half), 1, 0);
        to = tni_cp_done(to, status);
    }
    tni_scope_end(ctx, scope);
    return to;
}

/* ---- comparing --------------------------------------------------------------------------
   K = 1/2 [(W1 W2^T)(x)(V1 V2^T) + (W1 V2^T)(x)(V1 W2^T)]      G = P1 K P2^T      <T1,T2> = tr G
   Order 1: K = W1 W2^T. */
static tn_tensor *tni_cp_term_gram(const tn_cp *a, const tn_cp *b)           /* K [ha,hb], arena */
{
    tn_ctx    *ctx = a->ctx;
    tn_tensor *w = tn_transpose(b->f[0], 0, 1), *v = a->order > 1 ? tn_transpose(b->f[1], 0, 1) : NULL, *k;
    if (a->order == 1) return tn_matmul(ctx, a->f[0], w);
    k = tn_mul(ctx, tn_matmul(ctx, a->f[0], w), tn_matmul(ctx, a->f[1], v));
    k = k ? tn_add(ctx, k, tn_mul(ctx, tn_matmul(ctx, a->f[0], v), tn_matmul(ctx, a->f[1], w))) : NULL;
    return k ? tn_scale(ctx, k, 0.5) : NULL;
}

static bool tni_cp_comparable(const tn_cp *a, const tn_cp *b, const char *op)
{
    if (!a) return false;
    if (!b) tni_fail(a->ctx, TN_ERR_ARG, "%s: the second operator is NULL", op);
    else if (b->ctx != a->ctx) tni_fail(a->ctx, TN_ERR_ARG, "%s: the operators belong to two contexts", op);
    else if (a->order > 2 || b->order != a->order)
        tni_fail(a->ctx, TN_ERR_SHAPE, "%s: the operators have orders %d and %d, but both must have 1, or both 2", op,
                 a->order, b->order);
    else if (a->in[0] != b->in[0] || a->in[a->order - 1] != a->in[0] || b->in[b->order - 1] != a->in[0])
        tni_fail(a->ctx, TN_ERR_SHAPE, "%s: the operators take %lld and %lld inputs", op, (long long)a->in[0],
                 (long long)b->in[0]);
    else if (a->constant != b->constant)
        tni_fail(a->ctx, TN_ERR_SHAPE, "%s: the last input of one operator is the constant one, of the other it is not", op);
    else return true;
    return false;
}

tn_tensor *tn_cp_gram(const tn_cp *a, const tn_cp *b)
{
    tn_tensor *k, *g = NULL;
    tni_scope  scope;
    if (!tni_cp_comparable(a, b, "gram")) return NULL;
    scope = tni_scope_begin(a->ctx);
    k = tni_cp_term_gram(a, b);
    k = k ? tn_matmul(a->ctx, a->p, k) : NULL;
    k = k ? tn_matmul(a->ctx, k, tn_transpose(b->p, 0, 1)) : NULL;
    if (k) g = tn_tensor_keep(k);
    tni_scope_end(a->ctx, scope);
    return g;
}

/* The diagonal of tn_cp_gram(a,a), its roots: norms[a->out] */
static tn_status tni_cp_norms(const tn_cp *a, double *norms)
{
    int64_t    o, n = a->out;
    double    *g = tni_alloc_f64(a->ctx, n, n, "cosines");
    tn_tensor *gram = g ? tn_cp_gram(a, a) : NULL;
    tn_status  s = gram ? tn_read(gram, TN_F64, g, n * n) : TN_ERR_MEMORY;
    for (o = 0; o < n && s == TN_OK; o++) norms[o] = sqrt(tni_max_f64(g[o * n + o], 0));
    tn_tensor_destroy(gram);
    tni_free_f64(a->ctx, g, n, n);
    return s;
}

tn_tensor *tn_cp_cosines(const tn_cp *a, const tn_cp *b)
{
    tn_tensor *gram = tn_cp_gram(a, b);
    double    *g, *na, *nb;
    int64_t    i, j;
    tn_status  s;
    if (!gram) return NULL;
    g = tni_alloc_f64(a->ctx, a->out, b->out, "cosines");
    na = tni_alloc_f64(a->ctx, a->out, 1, "cosines");
    nb = tni_alloc_f64(a->ctx, b->out, 1, "cosines");
    s = g && na && nb ? tn_read(gram, TN_F64, g, a->out * b->out) : TN_ERR_MEMORY;
    if (s == TN_OK) s = tni_cp_norms(a, na);
    if (s == TN_OK) s = tni_cp_norms(b, nb);
    for (i = 0; i < a->out && s == TN_OK; i++)
        for (j = 0; j < b->out; j++)
            g[i * b->out + j] = na[i] > 0 && nb[j] > 0 ? g[i * b->out + j] / na[i] / nb[j] : (double)NAN;
    if (s == TN_OK) s = tn_write(gram, TN_F64, g, a->out * b->out);
    tni_free_f64(a->ctx, g, a->out, b->out);
    tni_free_f64(a->ctx, na, a->out, 1);
    tni_free_f64(a->ctx, nb, b->out, 1);
    if (s == TN_OK) return gram;
    tn_tensor_destroy(gram);
    return NULL;
}

tn_status tn_cp_inner(const tn_cp *a, const tn_cp *b, double *inner)
{
    tn_tensor *k;
    tni_scope  scope;
    tn_status  s;
    if (!inner) return TN_ERR_ARG;
    *inner = (double)NAN;
    if (!tni_cp_comparable(a, b, "inner")) return a ? tn_ctx_status(a->ctx) : TN_ERR_ARG;
    if (a->out != b->out)
        return tni_fail(a->ctx, TN_ERR_SHAPE, "inner: the operators give %lld and %lld outputs", (long long)a->out,
                        (long long)b->out);
    scope = tni_scope_begin(a->ctx);
    k = tni_cp_term_gram(a, b);
    k = k ? tn_mul(a->ctx, k, tn_matmul(a->ctx, tn_transpose(a->p, 0, 1), b->p)) : NULL;
    k = k ? tn_sum(a->ctx, k) : NULL;
    s = k ? tn_read(k, TN_F64, inner, 1) : tn_ctx_status(a->ctx);
    tni_scope_end(a->ctx, scope);
    return s;
}

tn_status tn_cp_norm(const tn_cp *a, double *norm)
{
    tn_status s = tn_cp_inner(a, a, norm);
    if (s == TN_OK) *norm = sqrt(*norm > 0 ? *norm : 0);     /* rounding may leave a zero operator below zero */
    return s;
}

tn_status tn_cp_cosine(const tn_cp *a, const tn_cp *b, double *cosine)
{
    double    inner, na, nb;
    tn_status s;
    if (!cosine) return TN_ERR_ARG;
    *cosine = (double)NAN;
    s = tn_cp_inner(a, b, &inner);
    if (s == TN_OK) s = tn_cp_norm(a, &na);
    if (s == TN_OK) s = tn_cp_norm(b, &nb);
    if (s == TN_OK) *cosine = inner / (na * nb);
    return s;
}

/* ======================================================================
   >>optim-impl
   ====================================================================== */

double tn_schedule_at(const tn_schedule *s, int64_t step)
{
    double t;
    if (!s) return 1;
    if (step < s->warmup) return (double)(step + 1) / (double)s->warmup;
    if (s->kind == TN_SCHEDULE_CONSTANT) return 1;
    t = s->total > s->warmup ? (double)(step - s->warmup) / (double)(s->total - s->warmup) : 1;
    if (t > 1) t = 1;
    if (s->kind == TN_SCHEDULE_LINEAR) return 1 + (s->floor - 1) * t;
    return s->floor + (1 - s->floor) * 0.5 * (1 + cos(3.141592653589793 * t));
}

/* What a rule remembers of a parameter: m and v, and the count of updates when they were made. */
typedef struct tni_moments { tn_tensor *m[2]; double born; } tni_moments;

struct tn_optim {
    tni_owned     owned;
    tni_watcher   of;           /* of.params, or NULL when they were destroyed */
    tn_optim_desc desc;
    tni_moments  *state;        /* one per parameter, filled when its first gradient is there */
    int64_t       states;
    tn_tensor    *scalars;      /* on the device, see >>op-optim */
    int64_t       steps;
};

/* Turns the fault word of a gradient into the name of its parameter. */
static bool tni_optim_describe(tn_ctx *ctx, const int32_t f[4])
{
    tn_optim *o = (tn_optim *)ctx->describe_with;
    tn_param *p = tn_params_at(o->of.params, f[1]);
    if (p)
        tni_fail(ctx, TN_ERR_NONFINITE,
                 "step %d: the gradient of %s is not finite; the update was skipped, parameters are as before", (int)f[3],
                 p->name);
    return p != NULL;
}

static void tni_optim_destroy(tni_owned *owned)
{
    tn_optim *o = (tn_optim *)(void *)owned;
    tn_ctx   *ctx = owned->ctx;
    int64_t   i;
    if (ctx->describe_with == o) { ctx->describe = NULL; ctx->describe_with = NULL; }
    for (i = 0; i < o->states; i++) {
        tn_tensor_destroy(o->state[i].m[0]);
        tn_tensor_destroy(o->state[i].m[1]);
    }
    tni_free(ctx, o->state, sizeof *o->state * (size_t)o->states);
    tn_tensor_destroy(o->scalars);
    tni_params_unwatch(&o->of);
    tni_disown(owned);
    tni_free(ctx, o, sizeof *o);
}

void tn_optim_destroy(tn_optim *o) { if (o) tni_optim_destroy(&o->owned); }

static tn_status tni_schedule_check(tn_ctx *ctx, const tn_schedule *s)
{
    if ((unsigned)s->kind > TN_SCHEDULE_LINEAR)
        return tni_fail(ctx, TN_ERR_ARG, "optim: %d is no kind of schedule", (int)s->kind);
    if (s->warmup >= 0 && s->floor >= 0 && s->floor <= 1 && (s->kind == TN_SCHEDULE_CONSTANT || s->total > s->warmup))
        return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "optim: a schedule with warmup %lld, total %lld, floor %g", (long long)s->warmup,
                    (long long)s->total, s->floor);
}

static tn_status tni_optim_check(tn_ctx *ctx, tn_optim_desc *d)
{
    if (d->kind != TN_ADAMW && d->kind != TN_SGD) return tni_fail(ctx, TN_ERR_ARG, "optim: %d is no kind", (int)d->kind);
    if (d->lr == 0) d->lr = d->kind == TN_ADAMW ? 1e-3 : 1e-2;
    if (d->beta1 == 0) d->beta1 = 0.9;
    if (d->beta2 == 0) d->beta2 = 0.999;
    if (d->eps == 0) d->eps = 1e-8;
    if (!(d->lr > 0 && d->lr < HUGE_VAL) || !(d->beta1 > 0 && d->beta1 < 1) || !(d->beta2 > 0 && d->beta2 < 1)
        || !(d->eps > 0))
        return tni_fail(ctx, TN_ERR_ARG, "optim: lr %g, beta1 %g, beta2 %g, eps %g", d->lr, d->beta1, d->beta2, d->eps);
    if (!(d->weight_decay >= 0) || !(d->momentum >= 0 && d->momentum < 1) || !(d->clip_norm >= 0))
        return tni_fail(ctx, TN_ERR_ARG, "optim: weight_decay %g, momentum %g, clip_norm %g", d->weight_decay, d->momentum,
                        d->clip_norm);
    return tni_schedule_check(ctx, &d->schedule);
}

tn_optim *tn_optim_create(tn_params *ps, const tn_optim_desc *desc)
{
    tn_ctx       *ctx = tn_params_ctx(ps);
    tn_optim     *o;
    tn_optim_desc d;
    int64_t       n = TNI_SCALARS;
    if (!ctx) return NULL;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    if (tni_optim_check(ctx, &d) != TN_OK) return NULL;
    o = (tn_optim *)tni_alloc(ctx, sizeof *o, "optim");
    if (!o) return NULL;
    memset(o, 0, sizeof *o);
    tni_params_watch(ps, &o->of);
    o->desc = d;
    tni_own(ctx, &o->owned, tni_optim_destroy);
    o->scalars = tn_tensor_create(ctx, TN_REAL, 1, &n);
    if (!o->scalars) {
        tn_optim_destroy(o);
        return NULL;
    }
    return o;
}

/* Room for the moments of parameters added since the last step. */
static tn_status tni_optim_grow(tn_optim *o)
{
    tn_ctx      *ctx = o->owned.ctx;
    int64_t      want = o->of.params->count;
    tni_moments *state;
    if (o->states >= want) return TN_OK;
    state = (tni_moments *)tni_alloc(ctx, sizeof *state * (size_t)want, "optim");
    if (!state) return TN_ERR_MEMORY;
    memset(state, 0, sizeof *state * (size_t)want);
    if (o->states > 0) memcpy(state, o->state, sizeof *state * (size_t)o->states);
    tni_free(ctx, o->state, sizeof *state * (size_t)o->states);
    o->state = state;
    o->states = want;
    return TN_OK;
}

/* The moments of parameter i, made zero at first: m and v for AdamW, m unless SGD goes without. Their bias
   correction counts from here: a parameter that comes late, or thaws, starts as one of the first step does. */
static tn_status tni_optim_moments(tn_optim *o, int64_t i, const tn_tensor *value)
{
    int       k, wanted = o->desc.kind == TN_ADAMW ? 2 : o->desc.momentum > 0 ? 1 : 0;
    double    scalars[TNI_SCALARS];
    tn_status s;
    for (k = 0; k < wanted; k++) {
        tn_tensor **m = &o->state[i].m[k];
        if (*m) continue;
        *m = tn_tensor_create(o->owned.ctx, TN_REAL, value->rank, value->shape);
        if (!*m) return TN_ERR_MEMORY;
        if ((s = tn_read(o->scalars, TN_F64, scalars, TNI_SCALARS)) != TN_OK) return s;
        o->state[i].born = scalars[TNI_STEP];
    }
    return TN_OK;
}

static bool tni_optim_updates(const tn_param *p) { return !p->frozen && p->value->grad != NULL; }

/* Learning rate up, norm over all gradients, clip factor. */
static tn_status tni_optim_begin(tn_optim *o)
{
    tn_ctx   *ctx = o->owned.ctx;
    char      lr[8];
    tn_call   c;
    int64_t   i;
    tn_status s;
    tni_store(lr, o->scalars->dtype, 0, tn_optim_lr(o));
    s = ctx->backend->upload(ctx->state, o->scalars->data, lr, tni_dtype_size(o->scalars->dtype));
    if (s != TN_OK) return tni_fail(ctx, s, "optim: backend %s: upload failed", ctx->backend->name);
    for (i = 0; i < o->of.params->count && s == TN_OK; i++) {
        tn_param *p = o->of.params->item[i];
        if (!tni_optim_updates(p)) continue;
        c = tni_call(TN_KERNEL_SUMSQ, 0, NULL, 1, &o->scalars);
        c.in[c.n_in++] = tni_flat_view(p->value->grad);
        c.out[c.n_out++] = tni_view(ctx->fault);
        c.i[0] = i;
        c.i[1] = o->steps + 1;
        s = tni_run(ctx, &c);
    }
    if (s != TN_OK) return s;
    c = tni_call(TN_KERNEL_STEP_BEGIN, 0, NULL, 1, &o->scalars);
    c.out[c.n_out++] = tni_view(ctx->fault);
    c.f[0] = o->desc.clip_norm;
    c.i[1] = o->steps + 1;
    return tni_run(ctx, &c);
}

static tn_status tni_optim_update(tn_optim *o, int64_t i)
{
    const tn_optim_desc *d = &o->desc;
    const tn_param      *p = o->of.params->item[i];
    bool                 adamw = d->kind == TN_ADAMW;
    tn_call c = tni_call(adamw ? TN_KERNEL_ADAMW : TN_KERNEL_SGD, 1, (const tn_tensor *const *)&o->scalars, 0, NULL);
    int     k;
    tn_status s;
    c.out[c.n_out++] = tni_flat_view(p->value);
    c.out[c.n_out++] = tni_flat_view(p->value->grad);
    for (k = 0; k < 2; k++)
        if (o->state[i].m[k]) c.out[c.n_out++] = tni_flat_view(o->state[i].m[k]);
    c.f[0] = adamw ? d->beta1 : d->momentum;
    c.f[1] = adamw ? d->beta2 : d->nesterov && d->momentum > 0 ? 1 : 0;
    c.f[2] = d->eps;
    c.f[3] = d->weight_decay * p->decay_scale;
    c.f[4] = p->lr_scale;
    c.f[5] = o->state[i].born;
    s = tni_run(o->owned.ctx, &c);
    if (s == TN_OK) p->value->grad->flags |= TNI_ZEROED;
    return s;
}

/* All that can fail before the first parameter is touched. */
static tn_status tni_optim_prepare(tn_optim *o)
{
    tn_ctx   *ctx = o->owned.ctx;
    int64_t   i;
    tn_status s = ctx->status == TN_OK ? tni_optim_grow(o) : ctx->status;    /* what failed may have left half a gradient */
    for (i = 0; i < o->of.params->count && s == TN_OK; i++)
        if (tni_optim_updates(o->of.params->item[i])) s = tni_optim_moments(o, i, o->of.params->item[i]->value);
    ctx->describe = tni_optim_describe;
    ctx->describe_with = o;
    return s == TN_OK ? tni_optim_begin(o) : s;
}

tn_status tn_optim_step(tn_optim *o)
{
    tn_ctx   *ctx;
    int64_t   i;
    tn_status s;
    if (!o) return TN_ERR_ARG;
    ctx = o->owned.ctx;
    if (!o->of.params) return tni_fail(ctx, TN_ERR_ARG, "optim: its parameters were destroyed");
    s = tni_optim_prepare(o);
    if (s != TN_OK) {
        tn_params_zero_grad(o->of.params);
        return s;
    }
    for (i = 0; i < o->of.params->count && s == TN_OK; i++)
        if (tni_optim_updates(o->of.params->item[i])) s = tni_optim_update(o, i);
    o->steps++;
    if (s != TN_OK) tn_params_zero_grad(o->of.params);      /* a device that failed halfway: what is left is of this step */
    return s == TN_OK && ctx->backend->host ? tni_ctx_faults(ctx) : s;
}

int64_t tn_optim_steps(const tn_optim *o) { return o ? o->steps : 0; }
double  tn_optim_lr(const tn_optim *o)    { return o ? o->desc.lr * tn_schedule_at(&o->desc.schedule, o->steps) : 0; }

double tn_optim_grad_norm(const tn_optim *o)
{
    double s[TNI_SCALARS];
    if (!o || tn_read(o->scalars, TN_F64, s, TNI_SCALARS) != TN_OK) return (double)NAN;
    return s[TNI_NORM];
}

/* ======================================================================
   >>io-impl  safetensors, npy, idx
   Bytes come in through one call and go out through one call, whatever the source or sink is. In
   between stand a scanner for the two text headers and one loop that turns numbers of any kind and
   byte order into the context's. A number from a file is compared before it is added to anything.
   ====================================================================== */

#ifndef TN_NO_STDIO
#endif

/* What a message shows of a file's name: at most the end of it. */
typedef struct tni_file_name { char s[160]; } tni_file_name;

static tni_file_name tni_file_name_of(const char *name, const char *path, bool calls)
{
    tni_file_name out;
    const char   *s = name ? name : path ? path : calls ? "callback" : "memory";
    size_t        n = strlen(s), room = sizeof out.s - 4;
    tni_print(out.s, sizeof out.s, "%s%s", n > room ? "..." : "", n > room ? s + n - room : s);
    return out;
}

/* What a message shows of a name that a file or a caller gave: printable, and not much of it. */
typedef struct tni_quoted { char s[72]; } tni_quoted;

static tni_quoted tni_quote(const char *s)
{
    tni_quoted out;
    size_t     n = 0;
    for (; s[n] != 0 && n < sizeof out.s - 6; n++) out.s[n + 1] = (unsigned char)s[n] < 32 || s[n] == 127 ? '?' : s[n];
    if (s[n] != 0) while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80) n--;       /* not inside a character */
    out.s[0] = '"';
    tni_print(out.s + 1 + n, 5, "%s\"", s[n] != 0 ? "..." : "");
    return out;
}

static const char *tni_reason(const char *otherwise)
{
#ifndef TN_NO_STDIO
    if (errno) return strerror(errno);
#endif
    return otherwise;
}

/* ---- bytes in ------------------------------------------------------------ */

typedef struct tni_reader {
    tn_ctx       *ctx;
    tn_fetch_fn   fetch;
    void         *user;
    uint64_t      bytes;                /* of the whole file     */
    void         *stream;               /* of a path: its FILE * */
    tni_file_name name;
} tni_reader;

/* "w.safetensors: byte 8: reason" */
TNI_PRINTF(4, 5) static tn_status tni_reader_fail(const tni_reader *r, tn_status status, uint64_t at, const char *fmt, ...)
{
    char     reason[320];
    tni_text t;
    va_list  args;
    t.dst = reason; t.room = sizeof reason; t.length = 0;
    va_start(args, fmt);
    tni_text_v(&t, fmt, args);
    va_end(args);
    return tni_fail(r->ctx, status, "%s: byte %llu: %s", r->name.s, (unsigned long long)at, reason);
}

static bool tni_memory_fetch(void *user, uint64_t offset, void *dst, size_t bytes)
{
    memcpy(dst, (const char *)user + offset, bytes);
    return true;
}

#ifndef TN_NO_STDIO
/* A long is too short for files over 2 GiB on Windows and on 32-bit machines; only Windows has a way around it here. */
static bool tni_seek(FILE *f, uint64_t offset)
{
#ifdef _WIN32
    return _fseeki64(f, (long long)offset, SEEK_SET) == 0;
#else
    return offset <= LONG_MAX && fseek(f, (long)offset, SEEK_SET) == 0;
#endif
}

static bool tni_stream_size(FILE *f, uint64_t *bytes)
{
#ifdef _WIN32
    long long end = _fseeki64(f, 0, SEEK_END) == 0 ? _ftelli64(f) : -1;
#else
    long end = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
#endif
    *bytes = end < 0 ? 0 : (uint64_t)end;
    return end >= 0;
}

static bool tni_stream_fetch(void *user, uint64_t offset, void *dst, size_t bytes)
{
    FILE *f = (FILE *)user;
    errno = 0;
    return tni_seek(f, offset) && fread(dst, 1, bytes, f) == bytes;
}

static tn_status tni_reader_open_path(tni_reader *r, const char *path)
{
    FILE *f;
    errno = 0;
    f = fopen(path, "rb");
    if (!f) return tni_fail(r->ctx, TN_ERR_FILE, "%s: could not be opened: %s", r->name.s, tni_reason("no reason given"));
    if (!tni_stream_size(f, &r->bytes)) {
        tni_fail(r->ctx, TN_ERR_FILE, "%s: its size is not known: %s", r->name.s, tni_reason("no reason given"));
        fclose(f);
        return TN_ERR_FILE;
    }
    r->fetch = tni_stream_fetch;
    r->user = r->stream = f;
    return TN_OK;
}
#else
static tn_status tni_reader_open_path(tni_reader *r, const char *path)
{
    (void)path;
    return tni_fail(r->ctx, TN_ERR_FILE, "%s: TN_NO_STDIO was defined, there are no paths", r->name.s);
}
#endif

static tn_status tni_reader_open(tni_reader *r, tn_ctx *ctx, const tn_source *source)
{
    memset(r, 0, sizeof *r);
    r->ctx = ctx;
    r->name = tni_file_name_of(source->name, source->path, source->fetch != NULL);
    r->bytes = source->bytes;
    r->fetch = source->fetch ? source->fetch : tni_memory_fetch;
    r->user = source->fetch ? source->user : (void *)source->data;
    if (source->path && !source->fetch) return tni_reader_open_path(r, source->path);
    if (source->fetch || source->data || source->bytes == 0) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s: %llu bytes at NULL", r->name.s, (unsigned long long)source->bytes);
}

static void tni_reader_close(tni_reader *r)
{
#ifndef TN_NO_STDIO
    if (r->stream) fclose((FILE *)r->stream);
#endif
    r->stream = NULL;
}

static tn_status tni_reader_get(const tni_reader *r, uint64_t offset, void *dst, size_t bytes)
{
    if (offset > r->bytes || bytes > r->bytes - offset)
        return tni_reader_fail(r, TN_ERR_FORMAT, offset, "%zu bytes are wanted here, but the file has %llu", bytes,
                               (unsigned long long)r->bytes);
    if (bytes == 0 || r->fetch(r->user, offset, dst, bytes)) return TN_OK;
    return tni_reader_fail(r, TN_ERR_FILE, offset, "%zu bytes could not be read: %s", bytes,
                           r->stream ? tni_reason("it has become shorter") : "the fetch call said no");
}

tn_source tn_from_memory(const void *data, size_t bytes)
{
    tn_source s;
    memset(&s, 0, sizeof s);
    s.data = data;
    s.bytes = bytes;
    return s;
}

tn_source tn_from_calls(tn_fetch_fn fetch, void *user, uint64_t bytes)
{
    tn_source s;
    memset(&s, 0, sizeof s);
    s.fetch = fetch;
    s.user = user;
    s.bytes = bytes;
    return s;
}

/* ---- bytes out -----------------------------------------------------------
   The first failure stays; after it pieces are ignored, and the close says what it was. */

typedef struct tni_writer {
    tn_ctx       *ctx;
    tn_sink       sink;
    tn_status     status;
    uint64_t      at;
    void         *stream;               /* of a path: its FILE *                        */
    char         *temporary;            /* and what it is called until it is complete   */
    tni_file_name name;
} tni_writer;

static void tni_writer_fail(tni_writer *w, tn_status status, const char *what, const char *reason)
{
    if (w->status != TN_OK) return;
    w->status = status;
    tni_fail(w->ctx, status, "%s: byte %llu: %s%s%s", w->name.s, (unsigned long long)w->at, what, *reason ? ": " : "",
             reason);
}

#ifndef TN_NO_STDIO
static size_t tni_temporary_bytes(const tni_writer *w) { return strlen(w->sink.path) + sizeof ".tmp99"; }

/* A file that was not there. What is there is somebody's: another save at the same time, or the user. */
static FILE *tni_create_new(const char *path, bool *taken)
{
    FILE *f;
#ifdef _WIN32
    f = fopen(path, "rb");              /* its older C libraries do not know "x" */
    *taken = f != NULL;
    if (f) { fclose(f); return NULL; }
    errno = 0;
    return fopen(path, "wb");
#else
    errno = 0;
    f = fopen(path, "wbx");
    *taken = !f && errno == EEXIST;
    return f;
#endif
}

/* PATH.tmp, or the first of PATH.tmp2 to PATH.tmp99 that nobody has. */
static FILE *tni_temporary_open(const tni_writer *w)
{
    FILE *f = NULL;
    bool  taken = true;
    int   i;
    for (i = 1; i < 100 && taken; i++) {
        tni_print(w->temporary, tni_temporary_bytes(w), i == 1 ? "%s.tmp" : "%s.tmp%d", w->sink.path, i);
        f = tni_create_new(w->temporary, &taken);
    }
    return f;
}

/* A device is written as it is: it has no place beside it, and it must not be replaced. */
static bool tni_path_is_device(const char *path)
{
    return strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0;
}

static void tni_writer_open_path(tni_writer *w)
{
    const char *path = w->sink.path;
    if (!*path) { tni_writer_fail(w, TN_ERR_FILE, "the path is empty", ""); return; }
    if (!tni_path_is_device(path)) {
        w->temporary = (char *)tni_alloc(w->ctx, tni_temporary_bytes(w), "save");
        if (!w->temporary) { w->status = TN_ERR_MEMORY; return; }
        w->stream = tni_temporary_open(w);
    } else {
        errno = 0;
        w->stream = fopen(path, "wb");
    }
    if (w->stream) return;
    tni_writer_fail(w, TN_ERR_FILE, w->temporary ? "its .tmp could not be made" : "could not be opened",
                    tni_reason("no reason given"));
}

static bool tni_replace(const char *from, const char *to)
{
#ifdef _WIN32
    /* 1: MOVEFILE_REPLACE_EXISTING. rename replaces nothing there, and removing the old file first could lose both. */
    return MoveFileExA(from, to, 1) != 0;
#else
    return rename(from, to) == 0;
#endif
}

static void tni_writer_close_path(tni_writer *w)
{
    errno = 0;
    if (w->stream && fflush((FILE *)w->stream) != 0)
        tni_writer_fail(w, TN_ERR_FILE, "could not be written", tni_reason("no reason given"));
    if (w->stream && fclose((FILE *)w->stream) != 0)
        tni_writer_fail(w, TN_ERR_FILE, "could not be closed", tni_reason("no reason given"));
    if (w->temporary && w->status == TN_OK && !tni_replace(w->temporary, w->sink.path))
        tni_writer_fail(w, TN_ERR_FILE, "could not be replaced", tni_reason("a folder, read-only, or open in a program"));
    if (w->temporary && w->stream && w->status != TN_OK) remove(w->temporary);
    tni_free(w->ctx, w->temporary, tni_temporary_bytes(w));
}

static bool tni_stream_put(tni_writer *w, const void *src, size_t bytes)
{
    errno = 0;
    return fwrite(src, 1, bytes, (FILE *)w->stream) == bytes;
}

tn_source tn_from_path(const char *path)
{
    tn_source s = tn_from_memory(NULL, 0);
    s.path = path ? path : "";
    return s;
}

tn_sink tn_to_path(const char *path)
{
    tn_sink s = tn_to_memory(NULL, 0, NULL);
    s.path = path ? path : "";
    return s;
}
#else
static void tni_writer_open_path(tni_writer *w)
{
    tni_writer_fail(w, TN_ERR_FILE, "TN_NO_STDIO was defined", "there are no paths");
}
static void tni_writer_close_path(tni_writer *w) { (void)w; }
static bool tni_stream_put(tni_writer *w, const void *src, size_t bytes) { (void)w; (void)src; return bytes == 0; }
#endif

static void tni_writer_open(tni_writer *w, tn_ctx *ctx, const tn_sink *sink)
{
    memset(w, 0, sizeof *w);
    w->ctx = ctx;
    w->sink = *sink;
    w->name = tni_file_name_of(sink->name, sink->path, sink->store != NULL);
    if (sink->path && !sink->store) tni_writer_open_path(w);
}

/* Into memory goes what fits; the close compares. */
static void tni_memory_put(const tni_writer *w, const void *src, size_t bytes)
{
    size_t left = w->at < w->sink.room ? w->sink.room - (size_t)w->at : 0;
    if (w->sink.data && left > 0) memcpy((char *)w->sink.data + w->at, src, bytes < left ? bytes : left);
}

static void tni_put(tni_writer *w, const void *src, size_t bytes)
{
    if (w->status != TN_OK || bytes == 0) return;
    if (w->sink.store) {
        if (!w->sink.store(w->sink.user, src, bytes)) tni_writer_fail(w, TN_ERR_FILE, "could not be written", "");
    } else if (!w->sink.path) tni_memory_put(w, src, bytes);
    else if (!tni_stream_put(w, src, bytes))
        tni_writer_fail(w, TN_ERR_FILE, "could not be written", tni_reason("no reason given"));
    w->at += bytes;
}

static tn_status tni_writer_close(tni_writer *w)
{
    if (w->sink.store) return w->status;
    if (w->sink.path) tni_writer_close_path(w);
    else {
        if (w->sink.used) *w->sink.used = (size_t)w->at;
        if (w->sink.data && w->at > w->sink.room) tni_writer_fail(w, TN_ERR_FILE, "more than there is room for", "");
    }
    return w->status;
}

tn_sink tn_to_memory(void *data, size_t room, size_t *used)
{
    tn_sink s;
    memset(&s, 0, sizeof s);
    s.data = data;
    s.room = room;
    s.used = used;
    return s;
}

tn_sink tn_to_calls(tn_store_fn store, void *user)
{
    tn_sink s = tn_to_memory(NULL, 0, NULL);
    s.store = store;
    s.user = user;
    return s;
}

/* ---- numbers: any kind, width and byte order ------------------------------ */

typedef enum tni_number_kind { TNI_OTHER = 0, TNI_FLOAT, TNI_BFLOAT, TNI_SIGNED, TNI_UNSIGNED, TNI_BOOL } tni_number_kind;
typedef struct tni_number { tni_number_kind kind; unsigned bits; bool big_endian; } tni_number;

#define TNI_CHUNK 65536                  /* elements in flight between a file and the device */

static bool tni_host_is_big_endian(void)
{
    const uint16_t one = 1;
    uint8_t        first;
    memcpy(&first, &one, 1);
    return first == 0;
}

static uint64_t tni_load_bits(const uint8_t *p, unsigned bytes, bool big_endian)
{
    uint64_t v = 0;
    unsigned i;
    for (i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * (big_endian ? bytes - 1 - i : i);
    return v;
}

static void tni_store_bits(uint8_t *p, uint64_t v, unsigned bytes)       /* little-endian */
{
    unsigned i;
    for (i = 0; i < bytes; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static double tni_f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return (double)f;
}

static double tni_f64_from_bits(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, 8);
    return d;
}

/* IEEE 754 binary16, exactly: 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
static double tni_f16_from_bits(uint32_t bits)
{
    uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3FFu;
    if (exponent == 31) return tni_f32_from_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent > 0) return tni_f32_from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
    return (sign ? -(double)mantissa : (double)mantissa) * (1.0 / 16777216.0);
}

static double tni_number_value(tni_number n, const uint8_t *p)
{
    uint64_t bits = tni_load_bits(p, n.bits / 8, n.big_endian);
    if (n.kind == TNI_BFLOAT) return tni_f32_from_bits((uint32_t)bits << 16);
    if (n.kind == TNI_FLOAT && n.bits == 64) return tni_f64_from_bits(bits);
    if (n.kind == TNI_FLOAT) return n.bits == 32 ? tni_f32_from_bits((uint32_t)bits) : tni_f16_from_bits((uint32_t)bits);
    if (n.kind == TNI_SIGNED && bits >> (n.bits - 1) != 0) {            /* ~bits is |value| - 1 */
        uint64_t mask = n.bits == 64 ? UINT64_MAX : ((uint64_t)1 << n.bits) - 1;
        return -(double)(~bits & mask) - 1.0;
    }
    return (double)bits;
}

static bool tni_number_is_float(tni_number n) { return n.kind == TNI_FLOAT || n.kind == TNI_BFLOAT; }

/* Are the file's bytes those of the tensor? */
static bool tni_number_is_host(tni_number n, tn_dtype dtype)
{
    tni_number_kind kind = dtype == TN_I32 ? TNI_SIGNED : TNI_FLOAT;
    return n.kind == kind && n.bits == 8 * tni_dtype_size(dtype) && n.big_endian == tni_host_is_big_endian();
}

/* Does the value v of a file have a place in dtype? A double holds every integer of 53 bits and rounds no integer into
   the range of I32. From 2^128 - 2^103 on a finite number would be rounded to an infinite float. */
static bool tni_number_fits(tni_number from, double v, tn_dtype dtype)
{
    if (from.kind == TNI_BOOL && v > 1) return false;
    if (dtype == TN_I32) return !(v < -2147483648.0 || v > 2147483647.0);
    return dtype != TN_F32 || !(fabs(v) >= 340282356779733661637539395458142568448.0) || fabs(v) == HUGE_VAL;
}

/* One chunk, from a file's bytes at `at` to host elements. scale 0: none. */
static tn_status tni_convert(const tni_reader *r, uint64_t at, tni_number from, double scale, const uint8_t *raw, int64_t n,
                             tn_dtype dtype, void *out)
{
    unsigned width = from.bits / 8;
    int64_t  i;
    if (scale == 0 && tni_number_is_host(from, dtype)) {
        memcpy(out, raw, (size_t)n * width);
        return TN_OK;
    }
    for (i = 0; i < n; i++) {
        double v = tni_number_value(from, raw + (size_t)i * width), scaled = scale == 0 ? v : v * scale;
        if (!tni_number_fits(from, from.kind == TNI_BOOL ? v : scaled, dtype)) {
            char number[32];
            tni_format_double(number, scaled, 17);
            return tni_reader_fail(r, TN_ERR_DATA, at + (uint64_t)i * width, "%s does not fit %s", number,
                                   from.kind == TNI_BOOL ? "a truth value" : tni_dtype_name(dtype));
        }
        tni_store(out, dtype, i, scaled);
    }
    return TN_OK;
}

/* Fills a contiguous tensor. */
static tn_status tni_read_numbers(const tni_reader *r, uint64_t at, tni_number from, double scale, tn_tensor *to)
{
    tn_ctx   *ctx = to->ctx;
    int64_t   count = tn_tensor_count(to), chunk = tni_min(count, TNI_CHUNK), done, n;
    size_t    width = from.bits / 8, size = tni_dtype_size(to->dtype), bytes = (size_t)chunk * (8 + width);
    uint8_t  *host, *raw;
    tn_status s = TN_OK;
    if (count == 0) return TN_OK;
    host = (uint8_t *)tni_alloc(ctx, bytes, "reading a file");
    if (!host) return TN_ERR_MEMORY;
    raw = host + (size_t)chunk * 8;
    for (done = 0; done < count && s == TN_OK; done += n) {
        n = tni_min(chunk, count - done);
        s = tni_reader_get(r, at, raw, (size_t)n * width);
        if (s == TN_OK) s = tni_convert(r, at, from, scale, raw, n, to->dtype, host);
        if (s != TN_OK) break;
        s = ctx->backend->upload(ctx->state, (char *)to->data + (size_t)done * size, host, (size_t)n * size);
        if (s != TN_OK) tni_fail(ctx, s, "%s: backend %s: upload failed", r->name.s, ctx->backend->name);
        at += (uint64_t)n * width;
    }
    tni_free(ctx, host, bytes);
    return s;
}

/* An owned tensor from numbers at `at`: I32 for integers without scale, else the context's dtype. */
static tn_status tni_read_tensor(const tni_reader *r, uint64_t at, tni_number from, double scale, int rank,
                                 const int64_t *shape, tn_tensor **out)
{
    tn_dtype   dtype = scale == 0 && !tni_number_is_float(from) ? TN_I32 : TN_REAL;
    tn_tensor *t = tn_tensor_create(r->ctx, dtype, rank, shape);
    tn_status  s;
    *out = NULL;
    if (!t) return TN_ERR_MEMORY;
    s = tni_read_numbers(r, at, from, scale, t);
    if (s == TN_OK) *out = t;
    else tn_tensor_destroy(t);
    return s;
}

/* The elements of a shape from a file. An empty shape's other extents must be sane too: strides are made from them. */
static bool tni_count_extents(int rank, const int64_t *shape, size_t *count)
{
    size_t all = 1, limit = (size_t)PTRDIFF_MAX / 8;
    int    i;
    *count = 1;
    for (i = 0; i < rank; i++) {
        if (shape[i] < 0 || (uint64_t)shape[i] > limit) return false;
        if (!tni_mul_size(all, shape[i] > 0 ? (size_t)shape[i] : 1, &all) || all > limit) return false;
        *count *= (size_t)shape[i];
    }
    return true;
}

/* A header of n bytes at `at`, which is inside the file: does it fit in, and is it one to read at all? */
static tn_status tni_check_header(const tni_reader *r, uint64_t at, uint64_t n, uint64_t most)
{
    unsigned long long wants = n, has = r->bytes, may = most;
    if (n > r->bytes - at)
        return tni_reader_fail(r, TN_ERR_FORMAT, at, "header of %llu bytes, but the file has %llu", wants, has);
    if (n > most) return tni_reader_fail(r, TN_ERR_FORMAT, at, "header of %llu bytes, but %llu are the most", wants, may);
    return TN_OK;
}

/* npy and idx: what follows the header is the data and nothing else. */
static tn_status tni_check_rest(const tni_reader *r, uint64_t at, tni_number n, int rank, const int64_t *shape)
{
    uint64_t rest = r->bytes - at;
    size_t   count, bytes;
    if (!tni_count_extents(rank, shape, &count) || !tni_mul_size(count, n.bits / 8, &bytes))
        return tni_reader_fail(r, TN_ERR_FORMAT, at, "shape %s does not fit the address space", tni_shape_of(rank, shape).s);
    if (bytes == rest) return TN_OK;
    return tni_reader_fail(r, TN_ERR_FORMAT, at, "shape %s takes %zu bytes, but %llu follow", tni_shape_of(rank, shape).s,
                           bytes, (unsigned long long)rest);
}

/* One chunk of host elements as the file has them, little-endian. */
static void tni_to_file(const uint8_t *host, tn_dtype have, uint8_t *out, tn_dtype as, int64_t n)
{
    unsigned width = (unsigned)tni_dtype_size(as);
    size_t   at;
    int64_t  i;
    if (have == as) memcpy(out, host, (size_t)n * width);
    else for (i = 0; i < n; i++) tni_store(out, as, i, tni_load(host, have, i));
    if (!tni_host_is_big_endian()) return;
    for (at = 0; at < (size_t)n * width; at += width) tni_store_bits(out + at, tni_load_bits(out + at, width, true), width);
}

/* The elements of a contiguous tensor. */
static void tni_put_contiguous(tni_writer *w, const tn_tensor *t, tn_dtype as)
{
    tn_ctx  *ctx = w->ctx;
    int64_t  count = tn_tensor_count(t), chunk = tni_min(count, TNI_CHUNK), done, n;
    size_t   size = tni_dtype_size(t->dtype), bytes = (size_t)chunk * 16;
    uint8_t *host = (uint8_t *)tni_alloc(ctx, bytes, "writing a file"), *out = host ? host + bytes / 2 : NULL;
    if (!host) w->status = TN_ERR_MEMORY;
    for (done = 0; done < count && w->status == TN_OK; done += n) {
        n = tni_min(chunk, count - done);
        if (ctx->backend->download(ctx->state, host, (const char *)t->data + (size_t)done * size,
                                   (size_t)n * size) != TN_OK) {
            tni_writer_fail(w, TN_ERR_BACKEND, "download failed", ctx->backend->name);
            break;
        }
        tni_to_file(host, t->dtype, out, as, n);
        tni_put(w, out, (size_t)n * tni_dtype_size(as));
    }
    tni_free(ctx, host, bytes);
}

/* A tensor's elements, row-major. `as` is its own dtype or a wider one. */
static void tni_put_numbers(tni_writer *w, const tn_tensor *t, tn_dtype as)
{
    tn_tensor *flat;
    if (w->status != TN_OK) return;
    if (tn_tensor_contiguous(t)) {
        tni_put_contiguous(w, t, as);
        return;
    }
    flat = tn_tensor_keep(t);
    if (flat) tni_put_contiguous(w, flat, as);
    else w->status = TN_ERR_MEMORY;
    tn_tensor_destroy(flat);
}

/* ---- the scanner of text headers ------------------------------------------
   Both are flat: an object of objects at most, so that nothing recurses. Strings are decoded where they
   stand, since no escape is longer than what it stands for, and end with a zero on their closing quote. */

typedef struct tni_scan {
    const tni_reader *file;
    uint64_t          start;            /* the text's first byte in the file */
    char             *text;
    size_t            at, bytes;
    tn_status         status;
} tni_scan;

static bool tni_scan_fail(tni_scan *s, const char *reason)
{
    s->status = tni_reader_fail(s->file, TN_ERR_FORMAT, s->start + s->at, "%s", reason);
    return false;
}

static void tni_scan_space(tni_scan *s)
{
    for (; s->at < s->bytes; s->at++) {
        char c = s->text[s->at];
        if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return;
    }
}

static bool tni_scan_take(tni_scan *s, char c)
{
    tni_scan_space(s);
    if (s->at == s->bytes || s->text[s->at] != c) return false;
    s->at++;
    return true;
}

static bool tni_scan_expect(tni_scan *s, char c)
{
    char reason[] = "' ' is missing";
    reason[1] = c;
    return tni_scan_take(s, c) || tni_scan_fail(s, reason);
}

/* 0 or a number without leading zeros, sign, point or exponent. */
static bool tni_scan_natural(tni_scan *s, uint64_t *out)
{
    size_t first;
    tni_scan_space(s);
    first = s->at;
    for (*out = 0; s->at < s->bytes && s->text[s->at] >= '0' && s->text[s->at] <= '9'; s->at++) {
        unsigned digit = (unsigned)(s->text[s->at] - '0');
        if (*out > (UINT64_MAX - digit) / 10) return tni_scan_fail(s, "a number of more than 64 bits");
        *out = *out * 10 + digit;
    }
    if (s->at == first) return tni_scan_fail(s, "a natural number is missing");
    if (s->text[first] == '0' && s->at - first > 1) return tni_scan_fail(s, "a number with a leading zero");
    return true;
}

static bool tni_scan_extent(tni_scan *s, int *rank, int64_t *shape)
{
    uint64_t extent;
    if (!tni_scan_natural(s, &extent)) return false;
    if (*rank == TN_MAX_RANK) return tni_scan_fail(s, "a shape of more than 8 axes");
    if (extent > INT64_MAX) return tni_scan_fail(s, "an extent of more than 63 bits");
    shape[(*rank)++] = (int64_t)extent;
    return true;
}

/* JSON's [], [3], [3,4]; or Python's (), (3,), (3, 4), where Python 2 wrote (3L, 4L). */
static bool tni_scan_shape(tni_scan *s, bool tuple, int *rank, int64_t *shape)
{
    bool comma = false;
    *rank = 0;
    if (!tni_scan_expect(s, tuple ? '(' : '[')) return false;
    while (!tni_scan_take(s, tuple ? ')' : ']')) {
        if (*rank > 0 && !comma) return tni_scan_fail(s, "',' is missing");
        if (!tni_scan_extent(s, rank, shape)) return false;
        if (tuple) tni_scan_take(s, 'L');
        comma = tni_scan_take(s, ',');
    }
    if (tuple ? *rank == 1 && !comma : comma)
        return tni_scan_fail(s, tuple ? "a tuple of one needs a comma" : "a comma before ']'");
    return true;
}

/* The length of the UTF-8 character at p, 0 where there is none: no overlong forms, no surrogates. Unicode 15, table 3-7. */
static size_t tni_utf8_length(const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0, i;
    if (n > left) return 0;
    for (i = 1; i < n; i++) if ((p[i] & 0xC0) != 0x80) return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F)) return 0;
    if ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F)) return 0;
    return n;
}

static size_t tni_utf8_put(char *dst, uint32_t c)
{
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, i;
    for (i = n; i-- > 1; c >>= 6) dst[i] = (char)(0x80 | (c & 0x3F));
    dst[0] = (char)(first[n] | c);
    return n;
}

static bool tni_scan_hex4(tni_scan *s, uint32_t *out)
{
    int i;
    for (*out = 0, i = 0; i < 4; i++, s->at++) {
        char c = s->at < s->bytes ? s->text[s->at] : 'x';
        bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        if (!letter && (c < '0' || c > '9')) return tni_scan_fail(s, "\\u without four hexadecimal digits");
        *out = *out * 16 + (uint32_t)(letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    return true;
}

/* What stands behind a backslash. Characters outside the first plane come as a pair of surrogates. */
static bool tni_scan_escape(tni_scan *s, uint32_t *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char        c = s->at < s->bytes ? s->text[s->at] : 0;
    const char *known = c ? strchr(from, c) : NULL;
    uint32_t    low;
    if (c != 'u' && !known) return tni_scan_fail(s, "an unknown escape");
    s->at++;
    if (known) {
        *out = (uint32_t)to[known - from];
        return true;
    }
    if (!tni_scan_hex4(s, out)) return false;
    if (*out == 0) return tni_scan_fail(s, "a zero character");
    if (*out < 0xD800 || *out > 0xDFFF) return true;
    if (*out > 0xDBFF || s->bytes - s->at < 6 || memcmp(s->text + s->at, "\\u", 2) != 0)
        return tni_scan_fail(s, "half a surrogate pair");
    s->at += 2;
    if (!tni_scan_hex4(s, &low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return tni_scan_fail(s, "half a surrogate pair");
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

static bool tni_scan_string(tni_scan *s, const char **out)
{
    char *to;
    if (!tni_scan_take(s, '"')) return tni_scan_fail(s, "a string is missing");
    *out = to = s->text + s->at;
    while (s->at < s->bytes && s->text[s->at] != '"') {
        uint32_t code;
        size_t   n = tni_utf8_length(s->text + s->at, s->bytes - s->at);
        if (n == 0) return tni_scan_fail(s, "no UTF-8");
        if ((unsigned char)s->text[s->at] < 32) return tni_scan_fail(s, "a control character in a string");
        if (s->text[s->at] == '\\') {
            s->at++;
            if (!tni_scan_escape(s, &code)) return false;
            to += tni_utf8_put(to, code);
        } else {
            memmove(to, s->text + s->at, n);
            to += n;
            s->at += n;
        }
    }
    if (s->at == s->bytes) return tni_scan_fail(s, "a string without an end");
    s->at++;
    *to = 0;
    return true;
}

/* ---- lists and names -------------------------------------------------------
   Everything that has a name has it as its first member, so one sort and one search serve all. */

typedef struct tni_list { void *items; size_t count, room, each; } tni_list;

static void *tni_list_at(const tni_list *l, size_t i) { return (char *)l->items + i * l->each; }

static void *tni_list_add(tn_ctx *ctx, tni_list *l, const char *what)
{
    if (l->count == l->room) {
        size_t room = l->room * 2 + 8, bytes;
        void  *items = tni_mul_size(room, l->each, &bytes) ? tni_alloc(ctx, bytes, what) : NULL;
        if (!items) return NULL;
        if (l->count > 0) memcpy(items, l->items, l->count * l->each);
        tni_free(ctx, l->items, l->room * l->each);
        l->items = items;
        l->room = room;
    }
    return memset(tni_list_at(l, l->count++), 0, l->each);
}

typedef bool (*tni_before_fn)(const void *a, const void *b);

static void tni_sift(const void **p, size_t i, size_t n, tni_before_fn before)
{
    const void *moving = p[i];
    size_t      child;
    for (; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(p[child], p[child + 1])) child++;
        if (!before(moving, p[child])) break;
        p[i] = p[child];
    }
    p[i] = moving;
}

/* Heapsort: n log n for hostile input too, and no memory, which C's qsort does not promise. */
static void tni_sort(const void **p, size_t n, tni_before_fn before)
{
    size_t i;
    for (i = n / 2; i-- > 0;) tni_sift(p, i, n, before);
    for (i = n; i-- > 1;) {
        const void *last = p[0];
        p[0] = p[i];
        p[i] = last;
        tni_sift(p, 0, i, before);
    }
}

static const char *tni_name_of(const void *item)
{
    const char *name;
    memcpy(&name, item, sizeof name);
    return name;
}

static bool tni_by_name(const void *a, const void *b) { return strcmp(tni_name_of(a), tni_name_of(b)) < 0; }

/* Sorted pointers to the items, n of them, to be freed with tni_free_sorted. */
static const void **tni_sorted(tn_ctx *ctx, const void *items, size_t n, size_t each, tni_before_fn before)
{
    size_t       i, bytes;
    const void **p = tni_mul_size(n, sizeof *p, &bytes) ? (const void **)tni_alloc(ctx, bytes, "names") : NULL;
    if (!p) return NULL;
    for (i = 0; i < n; i++) p[i] = (const char *)items + i * each;
    tni_sort(p, n, before);
    return p;
}

static void tni_free_sorted(tn_ctx *ctx, const void **p, size_t n) { tni_free(ctx, (void *)p, n * sizeof *p); }

static const void *tni_find_name(const void *const *p, size_t n, const char *name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int    order = strcmp(tni_name_of(p[middle]), name);
        if (order == 0) return p[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* A name that two of the sorted items have, or NULL. */
static const char *tni_twice(const void *const *p, size_t n)
{
    size_t i;
    for (i = 1; i < n; i++) if (strcmp(tni_name_of(p[i - 1]), tni_name_of(p[i])) == 0) return tni_name_of(p[i]);
    return NULL;
}

/* ---- safetensors -----------------------------------------------------------
       u64        n, little-endian, at most 100 MB
       n bytes    {"__metadata__":{"key":"value",...},
                   "name":{"dtype":"F32","shape":[3,4],"data_offsets":[begin,end]},...}    spaces may follow
       data       offsets count from here; the tensors cover it without hole or overlap
   Little-endian, row-major. https://github.com/huggingface/safetensors */

#define TNI_SAFETENSORS_HEADER 100000000u

static const struct { const char *name; tni_number number; } tni_safetensors_dtype[] = {
    {"F64", {TNI_FLOAT, 64, false}},    {"F32", {TNI_FLOAT, 32, false}},    {"F16", {TNI_FLOAT, 16, false}},
    {"I64", {TNI_SIGNED, 64, false}},   {"I32", {TNI_SIGNED, 32, false}},   {"I16", {TNI_SIGNED, 16, false}},
    {"I8", {TNI_SIGNED, 8, false}},
    {"U64", {TNI_UNSIGNED, 64, false}}, {"U32", {TNI_UNSIGNED, 32, false}}, {"U16", {TNI_UNSIGNED, 16, false}},
    {"U8", {TNI_UNSIGNED, 8, false}},
    {"BF16", {TNI_BFLOAT, 16, false}},  {"BOOL", {TNI_BOOL, 8, false}},     {"C64", {TNI_OTHER, 64, false}},
    {"F8_E4M3", {TNI_OTHER, 8, false}}, {"F8_E5M2", {TNI_OTHER, 8, false}}, {"F8_E8M0", {TNI_OTHER, 8, false}},
    {"F8_E4M3FNUZ", {TNI_OTHER, 8, false}}, {"F8_E5M2FNUZ", {TNI_OTHER, 8, false}},
    {"F6_E2M3", {TNI_OTHER, 6, false}}, {"F6_E3M2", {TNI_OTHER, 6, false}}, {"F4", {TNI_OTHER, 4, false}}
};

static bool tni_safetensors_number(const char *dtype, tni_number *out)
{
    size_t i;
    for (i = 0; i < sizeof tni_safetensors_dtype / sizeof *tni_safetensors_dtype; i++) {
        *out = tni_safetensors_dtype[i].number;
        if (strcmp(dtype, tni_safetensors_dtype[i].name) == 0) return true;
    }
    return false;
}

struct tn_safetensors {
    tni_owned    owned;                  /* first: the context destroys it by this */
    tni_reader   file;
    char        *header;                 /* its strings are the names              */
    size_t       header_bytes;
    tni_list     entries, notes;
    const void **by_offset, **by_name, **notes_by_name;
};

static void tni_safetensors_destroy(tni_owned *owned)
{
    tn_safetensors *f = (tn_safetensors *)owned;
    tn_ctx         *ctx = f->file.ctx;
    tni_disown(owned);
    tni_reader_close(&f->file);
    tni_free(ctx, f->header, f->header_bytes);
    tni_free_sorted(ctx, f->by_offset, f->entries.count);
    tni_free_sorted(ctx, f->by_name, f->entries.count);
    tni_free_sorted(ctx, f->notes_by_name, f->notes.count);
    tni_free(ctx, f->entries.items, f->entries.room * f->entries.each);
    tni_free(ctx, f->notes.items, f->notes.room * f->notes.each);
    tni_free(ctx, f, sizeof *f);
}

static tn_status tni_entry_fail(const tn_safetensors *f, const char *name, const char *reason)
{
    return tni_reader_fail(&f->file, TN_ERR_FORMAT, 8 + (uint64_t)(name - f->header), "tensor %s: %s", tni_quote(name).s,
                           reason);
}

/* Is the span as long as the shape and the dtype say? */
static tn_status tni_entry_check(const tn_safetensors *f, const tn_safetensors_entry *e)
{
    tni_number n;
    size_t     count, bytes;
    if (!tni_safetensors_number(e->dtype, &n)) return tni_entry_fail(f, e->name, "its dtype is unknown");
    if (!tni_count_extents(e->rank, e->shape, &count) || !tni_mul_size(count / 8, n.bits, &bytes)
        || !tni_add_size(bytes, count % 8 * n.bits / 8, &bytes))
        return tni_entry_fail(f, e->name, "its shape does not fit the address space");
    if (count % 8 * n.bits % 8 != 0) return tni_entry_fail(f, e->name, "it ends inside a byte");
    if (bytes != e->bytes) return tni_entry_fail(f, e->name, "its data_offsets do not agree with shape and dtype");
    return TN_OK;
}

/* "data_offsets": counted from the header's end in the file, from the file's begin in the entry. */
static bool tni_parse_offsets(tni_scan *s, tn_safetensors_entry *e)
{
    uint64_t data = s->start + s->bytes, begin, end;
    if (!tni_scan_expect(s, '[') || !tni_scan_natural(s, &begin) || !tni_scan_expect(s, ',')
        || !tni_scan_natural(s, &end) || !tni_scan_expect(s, ']')) return false;
    if (begin > end) return tni_scan_fail(s, "data_offsets that end before they begin");
    if (end > s->file->bytes - data) return tni_scan_fail(s, "data_offsets past the end of the file");
    e->offset = data + begin;
    e->bytes = end - begin;
    return true;
}

static bool tni_parse_tensor(tni_scan *s, tn_safetensors_entry *e)
{
    static const char *const key[] = {"dtype", "shape", "data_offsets"};
    unsigned    seen = 0, k;
    const char *name;
    if (!tni_scan_expect(s, '{')) return false;
    do {
        if (!tni_scan_string(s, &name) || !tni_scan_expect(s, ':')) return false;
        for (k = 0; k < 3 && strcmp(name, key[k]) != 0; k++) {}
        if (k == 3) return tni_scan_fail(s, "a key that is not dtype, shape or data_offsets");
        if (seen >> k & 1) return tni_scan_fail(s, "a key for the second time");
        seen |= 1u << k;
        if (!(k == 0 ? tni_scan_string(s, &e->dtype)
              : k == 1 ? tni_scan_shape(s, false, &e->rank, e->shape) : tni_parse_offsets(s, e)))
            return false;
    } while (tni_scan_take(s, ','));
    if (!tni_scan_expect(s, '}')) return false;
    return seen == 7 || tni_scan_fail(s, "a tensor without dtype, shape or data_offsets");
}

static bool tni_parse_notes(tni_scan *s, tn_safetensors *f)
{
    if (!tni_scan_expect(s, '{')) return false;
    if (tni_scan_take(s, '}')) return true;
    do {
        tn_note *note = (tn_note *)tni_list_add(f->file.ctx, &f->notes, "safetensors metadata");
        if (!note) { s->status = TN_ERR_MEMORY; return false; }
        if (!tni_scan_string(s, &note->key) || !tni_scan_expect(s, ':') || !tni_scan_string(s, &note->value)) return false;
    } while (tni_scan_take(s, ','));
    return tni_scan_expect(s, '}');
}

static bool tni_parse_entry(tni_scan *s, tn_safetensors *f, bool *notes_seen)
{
    tn_safetensors_entry *e;
    const char           *name;
    if (!tni_scan_string(s, &name) || !tni_scan_expect(s, ':')) return false;
    if (strcmp(name, "__metadata__") == 0) {
        if (*notes_seen) return tni_scan_fail(s, "__metadata__ for the second time");
        *notes_seen = true;
        return tni_parse_notes(s, f);
    }
    e = (tn_safetensors_entry *)tni_list_add(f->file.ctx, &f->entries, "safetensors header");
    if (!e) { s->status = TN_ERR_MEMORY; return false; }
    e->name = name;
    return tni_parse_tensor(s, e) && (s->status = tni_entry_check(f, e)) == TN_OK;
}

static tn_status tni_parse_header(tn_safetensors *f)
{
    tni_scan s;
    bool     notes_seen = false;
    memset(&s, 0, sizeof s);
    s.file = &f->file;
    s.start = 8;
    s.text = f->header;
    s.bytes = f->header_bytes;
    if (s.bytes == 0 || s.text[0] != '{') {
        tni_scan_fail(&s, "a header that does not begin with '{'");
        return s.status;
    }
    s.at = 1;
    if (!tni_scan_take(&s, '}')) {
        do if (!tni_parse_entry(&s, f, &notes_seen)) return s.status; while (tni_scan_take(&s, ','));
        if (!tni_scan_expect(&s, '}')) return s.status;
    }
    tni_scan_space(&s);
    if (s.at < s.bytes) tni_scan_fail(&s, "text after the header's last '}'");
    return s.status;
}

/* In the order of the data; where nothing tells two empty tensors apart, their names do. */
static bool tni_by_offset(const void *a, const void *b)
{
    const tn_safetensors_entry *x = (const tn_safetensors_entry *)a, *y = (const tn_safetensors_entry *)b;
    if (x->offset != y->offset) return x->offset < y->offset;
    return x->bytes != y->bytes ? x->bytes < y->bytes : strcmp(x->name, y->name) < 0;
}

static tn_status tni_safetensors_sort(tn_safetensors *f)
{
    tn_ctx     *ctx = f->file.ctx;
    const char *twice;
    f->by_offset = tni_sorted(ctx, f->entries.items, f->entries.count, f->entries.each, tni_by_offset);
    f->by_name = f->by_offset ? tni_sorted(ctx, f->entries.items, f->entries.count, f->entries.each, tni_by_name) : NULL;
    f->notes_by_name = f->by_name ? tni_sorted(ctx, f->notes.items, f->notes.count, f->notes.each, tni_by_name) : NULL;
    if (!f->notes_by_name) return TN_ERR_MEMORY;
    twice = tni_twice(f->by_name, f->entries.count);
    if (!twice) twice = tni_twice(f->notes_by_name, f->notes.count);
    if (!twice) return TN_OK;
    return tni_reader_fail(&f->file, TN_ERR_FORMAT, 8 + (uint64_t)(twice - f->header), "%s is there twice",
                           tni_quote(twice).s);
}

/* Each tensor begins where the one before ends, and the last one ends with the file. */
static tn_status tni_safetensors_cover(const tn_safetensors *f)
{
    uint64_t at = 8 + (uint64_t)f->header_bytes;
    size_t   i;
    for (i = 0; i < f->entries.count; i++) {
        const tn_safetensors_entry *e = (const tn_safetensors_entry *)f->by_offset[i];
        if (e->offset > at) return tni_entry_fail(f, e->name, "there is a hole before its data");
        if (e->offset < at) return tni_entry_fail(f, e->name, "its data overlaps another's");
        at += e->bytes;
    }
    if (at == f->file.bytes) return TN_OK;
    return tni_reader_fail(&f->file, TN_ERR_FORMAT, at, "the last tensor ends here, but the file has %llu bytes",
                           (unsigned long long)f->file.bytes);
}

static tn_status tni_safetensors_start(tn_safetensors *f)
{
    uint8_t   length[8];
    uint64_t  n;
    tn_status s = tni_reader_get(&f->file, 0, length, 8);
    if (s != TN_OK) return s;
    n = tni_load_bits(length, 8, false);
    if ((s = tni_check_header(&f->file, 8, n, TNI_SAFETENSORS_HEADER)) != TN_OK) return s;
    f->header = (char *)tni_alloc(f->file.ctx, (size_t)n, "safetensors header");
    if (!f->header) return TN_ERR_MEMORY;
    f->header_bytes = (size_t)n;
    if ((s = tni_reader_get(&f->file, 8, f->header, f->header_bytes)) != TN_OK) return s;
    if ((s = tni_parse_header(f)) != TN_OK) return s;
    if ((s = tni_safetensors_sort(f)) != TN_OK) return s;
    return tni_safetensors_cover(f);
}

static tn_status tni_safetensors_open(tn_ctx *ctx, const tn_source *source, tn_safetensors **out)
{
    tn_safetensors *f = (tn_safetensors *)tni_alloc(ctx, sizeof *f, "safetensors");
    tn_status       s;
    *out = NULL;
    if (!f) return TN_ERR_MEMORY;
    memset(f, 0, sizeof *f);
    f->entries.each = sizeof(tn_safetensors_entry);
    f->notes.each = sizeof(tn_note);
    s = tni_reader_open(&f->file, ctx, source);
    tni_own(ctx, &f->owned, tni_safetensors_destroy);
    if (s == TN_OK) s = tni_safetensors_start(f);
    if (s == TN_OK) *out = f;
    else tni_safetensors_destroy(&f->owned);
    return s;
}

tn_safetensors *tn_safetensors_open(tn_ctx *ctx, tn_source source)
{
    tn_safetensors *f = NULL;
    if (ctx) tni_safetensors_open(ctx, &source, &f);
    return f;
}

void    tn_safetensors_close(tn_safetensors *f) { if (f) tni_safetensors_destroy(&f->owned); }
int64_t tn_safetensors_count(const tn_safetensors *f) { return f ? (int64_t)f->entries.count : 0; }

const tn_safetensors_entry *tn_safetensors_at(const tn_safetensors *f, int64_t i)
{
    return f && i >= 0 && (uint64_t)i < f->entries.count ? (const tn_safetensors_entry *)f->by_offset[i] : NULL;
}

const tn_safetensors_entry *tn_safetensors_find(const tn_safetensors *f, const char *name)
{
    return f && name ? (const tn_safetensors_entry *)tni_find_name(f->by_name, f->entries.count, name) : NULL;
}

const char *tn_safetensors_metadata(const tn_safetensors *f, const char *key)
{
    const tn_note *note = f && key ? (const tn_note *)tni_find_name(f->notes_by_name, f->notes.count, key) : NULL;
    return note ? note->value : NULL;
}

/* The entry, or an error that the file has none of this name. */
static const tn_safetensors_entry *tni_safetensors_want(tn_safetensors *f, const char *name)
{
    const tn_safetensors_entry *e = tn_safetensors_find(f, name);
    if (f && !e)
        tni_fail(f->file.ctx, TN_ERR_ARG, "%s: it has no tensor %s", f->file.name.s, name ? tni_quote(name).s : "NULL");
    return e;
}

static tn_status tni_entry_read(const tn_safetensors *f, const tn_safetensors_entry *e, tn_tensor **out)
{
    tni_number n;
    *out = NULL;
    if (tni_safetensors_number(e->dtype, &n) && n.kind != TNI_OTHER)
        return tni_read_tensor(&f->file, e->offset, n, 0, e->rank, e->shape, out);
    return tni_reader_fail(&f->file, TN_ERR_DTYPE, e->offset, "tensor %s: dtype %s is read as raw bytes only",
                           tni_quote(e->name).s, e->dtype);
}

tn_tensor *tn_safetensors_read(tn_safetensors *f, const char *name)
{
    const tn_safetensors_entry *e = tni_safetensors_want(f, name);
    tn_tensor                  *t = NULL;
    if (e) tni_entry_read(f, e, &t);
    return t;
}

tn_status tn_safetensors_read_bytes(tn_safetensors *f, const char *name, void *dst, size_t bytes)
{
    const tn_safetensors_entry *e = tni_safetensors_want(f, name);
    if (!e) return TN_ERR_ARG;
    if (bytes == e->bytes && (dst || bytes == 0)) return tni_reader_get(&f->file, e->offset, dst, bytes);
    return tni_fail(f->file.ctx, TN_ERR_ARG, "%s: tensor %s has %llu bytes, not %zu%s", f->file.name.s, tni_quote(e->name).s,
                    (unsigned long long)e->bytes, bytes, dst ? "" : ", and they cannot go to NULL");
}

/* ---- safetensors, written --------------------------------------------------- */

static void tni_text_json(tni_text *t, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    tni_text_add(t, "\"", 1);
    for (; *s; s++) {
        char escape[6] = {'\\', 'u', '0', '0', '0', '0'};
        escape[4] = hex[(unsigned char)*s >> 4];
        escape[5] = hex[(unsigned char)*s & 15];
        if ((unsigned char)*s < 32) tni_text_add(t, escape, 6);
        else {
            if (*s == '"' || *s == '\\') tni_text_add(t, "\\", 1);
            tni_text_add(t, s, 1);
        }
    }
    tni_text_add(t, "\"", 1);
}

static void tni_text_string(tni_text *t, const char *s) { tni_text_add(t, s, strlen(s)); }

static size_t tni_tensor_data_bytes(const tn_tensor *t) { return (size_t)tn_tensor_count(t) * tni_dtype_size(t->dtype); }

static void tni_text_notes(tni_text *t, const tn_note *notes, size_t n)
{
    size_t i;
    tni_text_string(t, "\"__metadata__\":{");
    for (i = 0; i < n; i++) {
        if (i > 0) tni_text_string(t, ",");
        tni_text_json(t, notes[i].key);
        tni_text_string(t, ":");
        tni_text_json(t, notes[i].value);
    }
    tni_text_string(t, "}");
}

/* The header, padded so that the data begins at a multiple of 8. */
static void tni_text_header(tni_text *t, const void *const *order, size_t n, const tn_note *notes, size_t note_count)
{
    uint64_t at = 0;
    size_t   i;
    tni_text_string(t, "{");
    if (note_count > 0) tni_text_notes(t, notes, note_count);
    for (i = 0; i < n; i++) {
        const tn_named *named = (const tn_named *)order[i];
        if (i > 0 || note_count > 0) tni_text_string(t, ",");
        tni_text_json(t, named->name);
        tni_text_string(t, ":{\"dtype\":\"");
        tni_text_string(t, tni_dtype_name(named->tensor->dtype));
        tni_text_string(t, "\",\"shape\":");
        tni_text_string(t, TNI_SHAPE(named->tensor));
        tni_text_string(t, ",\"data_offsets\":[");
        tni_text_integer(t, at, false);
        tni_text_string(t, ",");
        at += tni_tensor_data_bytes(named->tensor);
        tni_text_integer(t, at, false);
        tni_text_string(t, "]}");
    }
    tni_text_string(t, "}");
    while (t->length % 8 != 0) tni_text_string(t, " ");
}

/* Wide dtypes first, so that every tensor is aligned; else as the caller has them. */
static bool tni_by_width(const void *a, const void *b)
{
    size_t x = tni_dtype_size(((const tn_named *)a)->tensor->dtype);
    size_t y = tni_dtype_size(((const tn_named *)b)->tensor->dtype);
    return x != y ? x > y : a < b;
}

static bool tni_utf8_valid(const char *s)
{
    size_t left = strlen(s), n;
    for (; left > 0; s += n, left -= n) if ((n = tni_utf8_length(s, left)) == 0) return false;
    return true;
}

static bool tni_string_check(tn_ctx *ctx, const char *s, const char *what)
{
    if (s && tni_utf8_valid(s)) return true;
    tni_fail(ctx, TN_ERR_ARG, "safetensors: a %s is %s", what, s ? "no UTF-8" : "NULL");
    return false;
}

static bool tni_unique(tn_ctx *ctx, const void *items, size_t n, size_t each)
{
    const void **sorted = tni_sorted(ctx, items, n, each, tni_by_name);
    const char  *twice = sorted ? tni_twice(sorted, n) : NULL;
    if (twice) tni_fail(ctx, TN_ERR_ARG, "safetensors: the name %s is given twice", tni_quote(twice).s);
    tni_free_sorted(ctx, sorted, n);
    return sorted && !twice;
}

static bool tni_named_check(tn_ctx *ctx, const tn_named *tensors, int64_t n, const tn_note *notes, int64_t note_count)
{
    int64_t i;
    if (n < 0 || note_count < 0 || (n > 0 && !tensors) || (note_count > 0 && !notes)) {
        tni_fail(ctx, TN_ERR_ARG, "safetensors: a list is NULL or has a negative count");
        return false;
    }
    for (i = 0; i < n; i++) {
        if (!tni_string_check(ctx, tensors[i].name, "name")
            || !tni_usable(ctx, tensors[i].tensor, "safetensors", tensors[i].name)) return false;
        if (strcmp(tensors[i].name, "__metadata__") != 0) continue;
        tni_fail(ctx, TN_ERR_ARG, "safetensors: no tensor can be called __metadata__");
        return false;
    }
    for (i = 0; i < note_count; i++)
        if (!tni_string_check(ctx, notes[i].key, "metadata key") || !tni_string_check(ctx, notes[i].value, "metadata value"))
            return false;
    return tni_unique(ctx, tensors, (size_t)n, sizeof *tensors) && tni_unique(ctx, notes, (size_t)note_count, sizeof *notes);
}

/* The length word and the header, in *text; the header is made twice: once to measure it. */
static tn_status tni_header_text(tn_ctx *ctx, const void *const *order, size_t n, const tn_note *notes, size_t note_count,
                                 char **text, size_t *bytes)
{
    tni_text t;
    t.dst = NULL; t.room = 0; t.length = 0;
    tni_text_header(&t, order, n, notes, note_count);
    if (t.length > TNI_SAFETENSORS_HEADER) {
        return tni_fail(ctx, TN_ERR_ARG, "safetensors: a header of %zu bytes, but 100 MB is the most", t.length);
    }
    *bytes = 8 + t.length + 1;
    *text = (char *)tni_alloc(ctx, *bytes, "safetensors header");
    if (!*text) return TN_ERR_MEMORY;
    tni_store_bits((uint8_t *)*text, t.length, 8);
    t.dst = *text + 8; t.room = t.length + 1; t.length = 0;
    tni_text_header(&t, order, n, notes, note_count);
    return TN_OK;
}

tn_status tn_safetensors_write(tn_ctx *ctx, tn_sink sink, const tn_named *tensors, int64_t count, const tn_note *notes,
                               int64_t note_count)
{
    const void **order;
    char        *text = NULL;
    size_t       i, bytes = 0, n = (size_t)count;
    tni_writer   w;
    tn_status    s;
    if (!ctx || !tni_named_check(ctx, tensors, count, notes, note_count)) return TN_ERR_ARG;
    if ((s = tn_ctx_sync(ctx)) != TN_OK) return s;
    order = tni_sorted(ctx, tensors, n, sizeof *tensors, tni_by_width);
    s = order ? tni_header_text(ctx, order, n, notes, (size_t)note_count, &text, &bytes) : TN_ERR_MEMORY;
    if (s == TN_OK) {
        tni_writer_open(&w, ctx, &sink);
        tni_put(&w, text, bytes - 1);
        for (i = 0; i < n; i++) {
            const tn_tensor *t = ((const tn_named *)order[i])->tensor;
            tni_put_numbers(&w, t, t->dtype);
        }
        s = tni_writer_close(&w);
    }
    tni_free(ctx, text, bytes);
    tni_free_sorted(ctx, order, n);
    return s;
}

/* ---- parameters ------------------------------------------------------------- */

static tn_status tni_param_check(const tn_safetensors *f, const tn_param *p)
{
    const tn_safetensors_entry *e = tn_safetensors_find(f, p->name);
    const tn_tensor *t = p->value;
    tn_ctx          *ctx = f->file.ctx;
    tni_quoted       name = tni_quote(p->name);
    tni_number       n;
    if (!e) return tni_fail(ctx, TN_ERR_ARG, "%s: parameter %s %s is not in the file", f->file.name.s, name.s, TNI_SHAPE(t));
    if (e->rank != t->rank || memcmp(e->shape, t->shape, (size_t)e->rank * sizeof *e->shape) != 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: parameter %s is %s, but the file has %s", f->file.name.s, name.s,
                        TNI_SHAPE(t), TNI_SHAPE(e));
    if (!tni_safetensors_number(e->dtype, &n) || !tni_number_is_float(n))
        return tni_fail(ctx, TN_ERR_DTYPE, "%s: parameter %s: the file's %s is no float that can be read", f->file.name.s,
                        name.s, e->dtype);
    return TN_OK;
}

static tn_status tni_params_check(const tn_safetensors *f, tn_params *params, tn_params_match match)
{
    tn_status s = TN_OK;
    int64_t   i, n = tn_params_count(params);
    for (i = 0; i < n && s == TN_OK; i++) s = tni_param_check(f, tn_params_at(params, i));
    if (s != TN_OK || match == TN_MATCH_IGNORE_EXTRA) return s;
    for (i = 0; tn_safetensors_count(f) > n && i < tn_safetensors_count(f); i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(f, i);
        const tn_param *p = tn_params_find(params, e->name);
        if (p && strcmp(p->name, e->name) == 0) continue;        /* a tied parameter has one name in a file: its first */
        return tni_fail(f->file.ctx, TN_ERR_ARG, "%s: tensor %s %s is no parameter", f->file.name.s, tni_quote(e->name).s,
                        TNI_SHAPE(e));
    }
    return TN_OK;
}

/* The values of the file beside those of the parameters: through `host`, so that no kernel can ask for memory halfway. */
static tn_status tni_params_set(tn_params *params, tn_tensor *const *value, void *host)
{
    tn_ctx   *ctx = tn_params_ctx(params);
    int64_t   i;
    tn_status s = TN_OK;
    for (i = 0; i < tn_params_count(params) && s == TN_OK; i++) {
        if (value[i]->bytes == 0) continue;
        s = ctx->backend->download(ctx->state, host, value[i]->data, value[i]->bytes);
        if (s == TN_OK) s = ctx->backend->upload(ctx->state, tn_params_at(params, i)->value->data, host, value[i]->bytes);
    }
    return s == TN_OK ? s : tni_fail(ctx, s, "parameters: backend %s: a copy failed", ctx->backend->name);
}

/* All values are read, and all memory is there, before the first is changed. */
static tn_status tni_params_fill(const tn_safetensors *f, tn_params *params)
{
    tn_ctx     *ctx = f->file.ctx;
    int64_t     i, n = tn_params_count(params);
    size_t      bytes = (size_t)n * sizeof(tn_tensor *), widest = 0;
    tn_tensor **value = (tn_tensor **)tni_alloc(ctx, bytes, "parameters");
    void       *host;
    tn_status   s = TN_OK;
    if (!value) return TN_ERR_MEMORY;
    for (i = 0; i < n; i++) value[i] = NULL;
    for (i = 0; i < n && s == TN_OK; i++) {
        s = tni_entry_read(f, tn_safetensors_find(f, tn_params_at(params, i)->name), &value[i]);
        if (s == TN_OK && value[i]->bytes > widest) widest = value[i]->bytes;
    }
    host = s == TN_OK ? tni_alloc(ctx, widest, "parameters") : NULL;
    if (host) s = tni_params_set(params, value, host);
    else if (s == TN_OK) s = TN_ERR_MEMORY;
    tni_free(ctx, host, widest);
    for (i = 0; i < n; i++) tn_tensor_destroy(value[i]);
    tni_free(ctx, value, bytes);
    return s;
}

tn_status tn_params_read(tn_params *params, tn_source source, tn_params_match match)
{
    tn_safetensors *f;
    tn_status       s;
    if (!params) return TN_ERR_ARG;
    s = tni_safetensors_open(tn_params_ctx(params), &source, &f);
    if (s == TN_OK) s = tni_params_check(f, params, match);
    if (s == TN_OK) s = tni_params_fill(f, params);
    tn_safetensors_close(f);
    return s;
}

tn_status tn_params_write(tn_params *params, tn_sink sink, const tn_note *notes, int64_t note_count)
{
    tn_ctx   *ctx = params ? tn_params_ctx(params) : NULL;
    int64_t   i, n = params ? tn_params_count(params) : 0;
    size_t    bytes = (size_t)n * sizeof(tn_named);
    tn_named *named;
    tn_status s;
    if (!ctx) return TN_ERR_ARG;
    named = (tn_named *)tni_alloc(ctx, bytes, "parameters");
    if (!named) return TN_ERR_MEMORY;
    for (i = 0; i < n; i++) {
        named[i].name = tn_params_at(params, i)->name;
        named[i].tensor = tn_params_at(params, i)->value;
    }
    s = tn_safetensors_write(ctx, sink, named, n, notes, note_count);
    tni_free(ctx, named, bytes);
    return s;
}

/* ---- npy ---------------------------------------------------------------------
       "\x93NUMPY"  major 0  length (2 bytes; from version 2 on 4)
       {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      padded with spaces, newline
       data
   https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */

#define TNI_NPY_HEADER 65535u            /* more takes a structured dtype */

typedef struct tni_npy {
    tni_number number;
    bool       fortran;
    int        rank;
    int64_t    shape[TN_MAX_RANK];
} tni_npy;

/* A Python string, without escapes: no name that we know has one. It is cut off in place. */
static bool tni_scan_python(tni_scan *s, const char **out)
{
    char quote = tni_scan_take(s, '"') ? '"' : '\'';
    if (quote == '\'' && !tni_scan_take(s, quote)) return tni_scan_fail(s, "a string is missing");
    *out = s->text + s->at;
    while (s->at < s->bytes && s->text[s->at] != quote)
        if ((unsigned char)s->text[s->at++] < 32) return tni_scan_fail(s, "a control character in a string");
    if (s->at == s->bytes) return tni_scan_fail(s, "a string without an end");
    s->text[s->at++] = 0;
    return true;
}

static bool tni_scan_word(tni_scan *s, const char *word)
{
    size_t n = strlen(word);
    tni_scan_space(s);
    if (s->bytes - s->at < n || memcmp(s->text + s->at, word, n) != 0) return false;
    s->at += n;
    return true;
}

/* '<f4': byte order ('|' where a byte has none), kind, bytes. */
static bool tni_npy_number(const char *descr, tni_number *out)
{
    static const char letter[] = "fiub";
    static const tni_number_kind kind[] = {TNI_FLOAT, TNI_SIGNED, TNI_UNSIGNED, TNI_BOOL};
    const char *known = strlen(descr) == 3 ? strchr(letter, descr[1]) : NULL;
    unsigned    width = known ? (unsigned)(descr[2] - '0') : 0;
    if (!known || !strchr("<>|", descr[0])) return false;
    out->kind = kind[known - letter];
    out->bits = 8 * width;
    out->big_endian = descr[0] == '>';
    if (width == 1) return out->kind != TNI_FLOAT;
    return descr[0] != '|' && out->kind != TNI_BOOL && ((width == 2) | (width == 4) | (width == 8));
}

static bool tni_parse_descr(tni_scan *s, tni_npy *a)
{
    const char *descr;
    if (tni_scan_take(s, '[')) {
        s->status = tni_reader_fail(s->file, TN_ERR_DTYPE, s->start + s->at, "a structured dtype is not read");
        return false;
    }
    if (!tni_scan_python(s, &descr)) return false;
    if (tni_npy_number(descr, &a->number)) return true;
    s->status = tni_reader_fail(s->file, TN_ERR_DTYPE, s->start + (uint64_t)(descr - s->text), "dtype %s is not read",
                                tni_quote(descr).s);
    return false;
}

static bool tni_parse_order(tni_scan *s, tni_npy *a)
{
    a->fortran = tni_scan_word(s, "True");
    return a->fortran || tni_scan_word(s, "False") || tni_scan_fail(s, "True or False is missing");
}

static bool tni_parse_npy(tni_scan *s, tni_npy *a)
{
    static const char *const key[] = {"descr", "fortran_order", "shape"};
    unsigned    seen = 0, k;
    const char *name;
    if (!tni_scan_expect(s, '{')) return false;
    while (!tni_scan_take(s, '}')) {
        if (!tni_scan_python(s, &name) || !tni_scan_expect(s, ':')) return false;
        for (k = 0; k < 3 && strcmp(name, key[k]) != 0; k++) {}
        if (k == 3) return tni_scan_fail(s, "a key that is not descr, fortran_order or shape");
        if (seen >> k & 1) return tni_scan_fail(s, "a key for the second time");
        seen |= 1u << k;
        if (!(k == 0 ? tni_parse_descr(s, a) : k == 1 ? tni_parse_order(s, a) : tni_scan_shape(s, true, &a->rank, a->shape)))
            return false;
        if (!tni_scan_take(s, ',')) {
            if (!tni_scan_expect(s, '}')) return false;
            break;
        }
    }
    tni_scan_space(s);
    if (s->at < s->bytes) return tni_scan_fail(s, "text after the header's '}'");
    return seen == 7 || tni_scan_fail(s, "a header without descr, fortran_order or shape");
}

/* Magic, version and length: where the header begins and how long it is. */
static tn_status tni_npy_prefix(const tni_reader *r, uint64_t *at, size_t *bytes)
{
    uint8_t   head[12];
    unsigned  width;
    uint64_t  n;
    tn_status s = tni_reader_get(r, 0, head, 8);
    if (s != TN_OK) return s;
    if (memcmp(head, "\x93NUMPY", 6) != 0)
        return tni_reader_fail(r, TN_ERR_FORMAT, 0, "no npy file: it does not begin with \\x93NUMPY");
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return tni_reader_fail(r, TN_ERR_FORMAT, 6, "npy version %d.%d is unknown", (int)head[6], (int)head[7]);
    width = head[6] == 1 ? 2 : 4;
    if ((s = tni_reader_get(r, 8, head + 8, width)) != TN_OK) return s;
    n = tni_load_bits(head + 8, width, false);
    *at = 8 + width;
    *bytes = (size_t)n;
    return tni_check_header(r, *at, n, TNI_NPY_HEADER);
}

static tn_status tni_npy_header(const tni_reader *r, uint64_t *data, tni_npy *a)
{
    tni_scan  scan;
    tn_status s;
    memset(&scan, 0, sizeof scan);
    memset(a, 0, sizeof *a);
    if ((s = tni_npy_prefix(r, &scan.start, &scan.bytes)) != TN_OK) return s;
    scan.file = r;
    scan.text = (char *)tni_alloc(r->ctx, scan.bytes, "npy header");
    if (!scan.text) return TN_ERR_MEMORY;
    s = tni_reader_get(r, scan.start, scan.text, scan.bytes);
    if (s == TN_OK && !tni_parse_npy(&scan, a)) s = scan.status;
    tni_free(r->ctx, scan.text, scan.bytes);
    *data = scan.start + scan.bytes;
    return s == TN_OK ? tni_check_rest(r, *data, a->number, a->rank, a->shape) : s;
}

/* The same elements with the axes in the other order. The view needs no header in the arena: nobody keeps it. */
static tn_tensor *tni_keep_reversed(const tn_tensor *t)
{
    tn_tensor view = *t;
    int       i;
    for (i = 0; i < t->rank; i++) {
        view.shape[i] = t->shape[t->rank - 1 - i];
        view.strides[i] = t->strides[t->rank - 1 - i];
    }
    return tn_tensor_keep(&view);
}

/* Column-major data is row-major data of the reversed shape. */
static tn_tensor *tni_read_fortran(const tni_reader *r, uint64_t at, const tni_npy *a)
{
    tn_tensor *columns, *rows;
    int64_t    shape[TN_MAX_RANK];
    int        i;
    for (i = 0; i < a->rank; i++) shape[i] = a->shape[a->rank - 1 - i];
    if (tni_read_tensor(r, at, a->number, 0, a->rank, shape, &columns) != TN_OK) return NULL;
    rows = tni_keep_reversed(columns);
    tn_tensor_destroy(columns);
    return rows;
}

tn_tensor *tn_npy_read(tn_ctx *ctx, tn_source source)
{
    tni_reader r;
    tni_npy    a;
    uint64_t   at;
    tn_tensor *t = NULL;
    if (!ctx || tni_reader_open(&r, ctx, &source) != TN_OK) return NULL;
    if (tni_npy_header(&r, &at, &a) == TN_OK) {
        if (a.fortran && a.rank > 1) t = tni_read_fortran(&r, at, &a);
        else tni_read_tensor(&r, at, a.number, 0, a.rank, a.shape, &t);
    }
    tni_reader_close(&r);
    return t;
}

static void tni_text_npy(tni_text *t, const tn_tensor *of, tn_dtype as)
{
    int i;
    tni_text_string(t, as == TN_I32 ? "{'descr': '<i4'" : as == TN_F64 ? "{'descr': '<f8'" : "{'descr': '<f4'");
    tni_text_string(t, ", 'fortran_order': False, 'shape': (");
    for (i = 0; i < of->rank; i++) {
        tni_text_integer(t, (uint64_t)of->shape[i], false);
        tni_text_string(t, i + 1 < of->rank ? ", " : of->rank == 1 ? "," : "");
    }
    tni_text_string(t, "), }");
    while ((10 + t->length + 1) % 64 != 0) tni_text_string(t, " ");
    tni_text_string(t, "\n");
}

tn_status tn_npy_write(const tn_tensor *tensor, tn_sink sink)
{
    char       head[512];
    tni_text   t;
    tni_writer w;
    tn_dtype   as;
    tn_status  s;
    if (!tni_alive(tensor)) return TN_ERR_ARG;
    if ((s = tn_ctx_sync(tensor->ctx)) != TN_OK) return s;
    as = tensor->dtype == TN_BF16 ? TN_F32 : tensor->dtype;
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    t.dst = head + 10; t.room = sizeof head - 10; t.length = 0;
    tni_text_npy(&t, tensor, as);
    tni_store_bits((uint8_t *)head + 8, t.length, 2);
    tni_writer_open(&w, tensor->ctx, &sink);
    tni_put(&w, head, 10 + t.length);
    tni_put_numbers(&w, tensor, as);
    return tni_writer_close(&w);
}

/* ---- idx -----------------------------------------------------------------------
       0 0 type rank, rank extents as u32, data; all big-endian
   http://yann.lecun.com/exdb/mnist */

static bool tni_idx_number(uint8_t type, tni_number *out)
{
    static const struct { uint8_t type; tni_number number; } known[] = {
        {0x08, {TNI_UNSIGNED, 8, true}}, {0x09, {TNI_SIGNED, 8, true}}, {0x0B, {TNI_SIGNED, 16, true}},
        {0x0C, {TNI_SIGNED, 32, true}},  {0x0D, {TNI_FLOAT, 32, true}}, {0x0E, {TNI_FLOAT, 64, true}}
    };
    size_t i;
    for (i = 0; i < sizeof known / sizeof *known; i++) {
        *out = known[i].number;
        if (known[i].type == type) return true;
    }
    return false;
}

static tn_status tni_idx_header(const tni_reader *r, tni_number *number, int *rank, int64_t *shape)
{
    uint8_t   head[4 + 4 * TN_MAX_RANK];
    tn_status s = tni_reader_get(r, 0, head, 4);
    int       i;
    if (s != TN_OK) return s;
    if (head[0] == 0x1F && head[1] == 0x8B) return tni_reader_fail(r, TN_ERR_FORMAT, 0, "it is compressed: gunzip it first");
    if (head[0] != 0 || head[1] != 0)
        return tni_reader_fail(r, TN_ERR_FORMAT, 0, "no idx file: it does not begin with two zeros");
    if (!tni_idx_number(head[2], number))
        return tni_reader_fail(r, TN_ERR_FORMAT, 2, "idx type %d is unknown", (int)head[2]);
    if (head[3] > TN_MAX_RANK) return tni_reader_fail(r, TN_ERR_FORMAT, 3, "%d axes, but 8 are the most", (int)head[3]);
    *rank = head[3];
    if ((s = tni_reader_get(r, 4, head + 4, 4 * (size_t)head[3])) != TN_OK) return s;
    for (i = 0; i < *rank; i++) shape[i] = (int64_t)tni_load_bits(head + 4 + 4 * i, 4, true);
    return tni_check_rest(r, 4 + 4 * (uint64_t)*rank, *number, *rank, shape);
}

tn_tensor *tn_idx_read(tn_ctx *ctx, tn_source source, double scale)
{
    tni_reader r;
    tni_number number;
    tn_tensor *t = NULL;
    int64_t    shape[TN_MAX_RANK];
    int        rank = 0;
    if (!ctx || tni_reader_open(&r, ctx, &source) != TN_OK) return NULL;
    if (tni_idx_header(&r, &number, &rank, shape) == TN_OK)
        tni_read_tensor(&r, 4 + 4 * (uint64_t)rank, number, scale, rank, shape, &t);
    tni_reader_close(&r);
    return t;
}

/* ---- paths ----------------------------------------------------------------------- */

#ifndef TN_NO_STDIO
tn_status  tn_params_load(tn_params *ps, const char *path) { return tn_params_read(ps, tn_from_path(path), TN_MATCH_ALL); }
tn_status  tn_params_save(tn_params *ps, const char *path) { return tn_params_write(ps, tn_to_path(path), NULL, 0); }
tn_tensor *tn_npy_load(tn_ctx *ctx, const char *path) { return tn_npy_read(ctx, tn_from_path(path)); }
tn_status  tn_npy_save(const tn_tensor *t, const char *path) { return tn_npy_write(t, tn_to_path(path)); }
tn_tensor *tn_idx_load(tn_ctx *ctx, const char *path, double scale) { return tn_idx_read(ctx, tn_from_path(path), scale); }
#endif

#undef TNI_CHUNK
#undef TNI_SAFETENSORS_HEADER
#undef TNI_NPY_HEADER

/* ======================================================================
   >>image-impl matrices and curves as pixels
   A figure measures its text, makes a picture of the size that needs, and inks it shape by shape.
   One shape's coverage is collected in bytes, 255 for a pixel wholly inside; then its colour is mixed
   in by coverage. So strokes that cross within a shape do not darken each other.
   Lengths in the code are in pixels at scale 1, times the canvas' scale where they are used.
   ====================================================================== */

typedef struct tni_picture { tni_owned owned; tn_image image; } tni_picture;

static void tni_picture_free(tni_owned *owned)
{
    tni_picture *p = (tni_picture *)(void *)owned;
    tni_disown(owned);
    tni_free(owned->ctx, p->image.pixels, (size_t)p->image.height * (size_t)p->image.width * 3);
    tni_free(owned->ctx, p, sizeof *p);
}

tn_image *tn_image_create(tn_ctx *ctx, int64_t width, int64_t height)
{
    tni_picture *p;
    size_t       bytes;
    if (!ctx) return NULL;
    if (width < 1 || height < 1 || !tni_area_size(width, height, 3, &bytes)) {
        tni_fail(ctx, TN_ERR_SHAPE, "image: %lld x %lld pixels are none or do not fit a size", (long long)width,
                 (long long)height);
        return NULL;
    }
    p = (tni_picture *)tni_alloc(ctx, sizeof *p, "image");
    if (!p) return NULL;
    p->image.ctx = ctx;
    p->image.width = width;
    p->image.height = height;
    p->image.pixels = (uint8_t *)tni_alloc(ctx, bytes, "image");
    if (!p->image.pixels) {
        tni_free(ctx, p, sizeof *p);
        return NULL;
    }
    memset(p->image.pixels, 255, bytes);
    tni_own(ctx, &p->owned, tni_picture_free);
    return &p->image;
}

void tn_image_destroy(tn_image *image)
{
    if (image) tni_picture_free((tni_owned *)(void *)((char *)image - offsetof(tni_picture, image)));
}

/* ---- colour ----------------------------------------------------------------
   Maps are few points in Oklab, a space where equal distances look equal, with a smooth curve through
   them. Lightness falls evenly from white, and both arms of the diverging map have the same.
   Ottosson 2020 (Oklab), Catmull & Rom 1974 (the curve). */
enum { TNI_WHITE = 0xFFFFFF, TNI_TEXT_INK = 0x262626, TNI_LINE_INK = 0x4A4A4A, TNI_GRID_INK = 0xE4E4E4,
       TNI_NAN_INK = 0xA8A8A8 };
enum { TNI_KNOTS = 5 };

typedef struct tni_lch { double lightness, chroma, hue; } tni_lch;

static const tni_lch tni_red[TNI_KNOTS]  = {{1, 0, 0}, {.88, .072, 47}, {.72, .158, 38}, {.55, .188, 29}, {.38, .140, 22}};
static const tni_lch tni_blue[TNI_KNOTS] = {{1, 0, 0}, {.88, .058, 242}, {.72, .115, 248}, {.55, .142, 256},
                                            {.38, .125, 264}};
static const tni_lch tni_sea[TNI_KNOTS]  = {{1, 0, 0}, {.86, .100, 135}, {.68, .105, 180}, {.48, .105, 240},
                                            {.27, .095, 275}};

static void tni_lch_point(const tni_lch *map, int knot, double lab[3])
{
    double turn = map[knot].hue * 0.017453292519943295;
    lab[0] = map[knot].lightness;
    lab[1] = map[knot].chroma * cos(turn);
    lab[2] = map[knot].chroma * sin(turn);
}

static uint8_t tni_srgb(double linear)
{
    double v = linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1 / 2.4) - 0.055;
    return (uint8_t)(v <= 0 ? 0 : v >= 1 ? 255 : v * 255 + 0.5);
}

static void tni_oklab_to_rgb(const double lab[3], uint8_t rgb[3])
{
    double l = lab[0] + 0.3963377774 * lab[1] + 0.2158037573 * lab[2];
    double m = lab[0] - 0.1055613458 * lab[1] - 0.0638541728 * lab[2];
    double s = lab[0] - 0.0894841775 * lab[1] - 1.2914855480 * lab[2];
    l *= l * l; m *= m * m; s *= s * s;
    rgb[0] = tni_srgb(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s);
    rgb[1] = tni_srgb(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s);
    rgb[2] = tni_srgb(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s);
}

static void tni_map_colour(const tni_lch *map, double t, uint8_t rgb[3])     /* 0 <= t <= 1 */
{
    double p[4][3], lab[3], at = t * (TNI_KNOTS - 1);
    int    knot = (int)tni_min((int64_t)at, TNI_KNOTS - 2);
    double x = at - knot;
    for (int k = 0; k < 4; k++) tni_lch_point(map, (int)tni_max(0, tni_min(knot + k - 1, TNI_KNOTS - 1)), p[k]);
    for (int i = 0; i < 3; i++) {
        if (knot == 0) p[0][i] = 2 * p[1][i] - p[2][i];                        /* the ends go straight on */
        if (knot == TNI_KNOTS - 2) p[3][i] = 2 * p[2][i] - p[1][i];
        lab[i] = p[1][i] + x / 2 * (p[2][i] - p[0][i] + x * (2 * p[0][i] - 5 * p[1][i] + 4 * p[2][i] - p[3][i]
               + x * (3 * (p[1][i] - p[2][i]) + p[3][i] - p[0][i])));
    }
    tni_oklab_to_rgb(lab, rgb);
}

static void tni_unpack(uint32_t ink, uint8_t rgb[3])
{
    rgb[0] = (uint8_t)(ink >> 16);
    rgb[1] = (uint8_t)(ink >> 8 & 255);
    rgb[2] = (uint8_t)(ink & 255);
}

void tn_colour(tn_colours colours, double t, uint8_t rgb[3])
{
    double size = t < 0 ? -t : t;
    if (t != t) tni_unpack(TNI_NAN_INK, rgb);
    else if (colours == TN_COLOURS_SEQUENTIAL) tni_map_colour(tni_sea, t < 0 ? 0 : t > 1 ? 1 : t, rgb);
    else tni_map_colour(t < 0 ? tni_blue : tni_red, size > 1 ? 1 : size, rgb);
}

/* ---- ink ------------------------------------------------------------------ */
typedef struct tni_canvas {
    tn_image *image;
    uint8_t  *cover;                              /* [height,width] of the shape in hand; zero between shapes */
    int64_t   clip_x0, clip_y0, clip_x1, clip_y1; /* nothing outside is touched                               */
    int64_t   x0, y0, x1, y1;                     /* where cover may be other than zero                       */
    double    scale;
} tni_canvas;

static void tni_canvas_clip(tni_canvas *c, int64_t x0, int64_t y0, int64_t x1, int64_t y1)
{
    c->clip_x0 = tni_max(x0, 0);
    c->clip_y0 = tni_max(y0, 0);
    c->clip_x1 = tni_min(x1, c->image->width);
    c->clip_y1 = tni_min(y1, c->image->height);
}

static bool tni_canvas_open(tni_canvas *c, tn_ctx *ctx, double width, double height, double scale)
{
    memset(c, 0, sizeof *c);
    c->scale = scale;
    c->image = tn_image_create(ctx, (int64_t)ceil(width), (int64_t)ceil(height));
    if (!c->image) return false;
    c->cover = (uint8_t *)tni_alloc(ctx, (size_t)c->image->width * (size_t)c->image->height, "image");
    if (!c->cover) {
        tn_image_destroy(c->image);
        return false;
    }
    memset(c->cover, 0, (size_t)c->image->width * (size_t)c->image->height);
    tni_canvas_clip(c, 0, 0, c->image->width, c->image->height);
    c->x0 = c->y0 = INT64_MAX;
    return true;
}

static tn_image *tni_canvas_close(tni_canvas *c)
{
    tni_free(c->image->ctx, c->cover, (size_t)c->image->width * (size_t)c->image->height);
    return c->image;
}

static int64_t tni_pixel(double v, int64_t low, int64_t high)
{
    return v > (double)low ? v < (double)high ? (int64_t)v : high : low;
}

static void tni_cover_grow(tni_canvas *c, int64_t x0, int64_t y0, int64_t x1, int64_t y1)
{
    c->x0 = tni_min(c->x0, x0);
    c->y0 = tni_min(c->y0, y0);
    c->x1 = tni_max(c->x1, x1);
    c->y1 = tni_max(c->y1, y1);
}

/* A stroke with round ends: a pixel's share is radius + 1/2 - distance of its centre. a == b gives a dot. */
static void tni_cover_segment(tni_canvas *c, double ax, double ay, double bx, double by, double radius)
{
    double  dx = bx - ax, dy = by - ay, length2 = dx * dx + dy * dy, reach = radius + 0.5;
    int64_t top = tni_pixel(fmin(ay, by) - reach, c->clip_y0, c->clip_y1),
            bottom = tni_pixel(fmax(ay, by) + reach + 1, c->clip_y0, c->clip_y1);
    for (int64_t y = top; y < bottom; y++) {
        double  py = (double)y + 0.5 - ay, t0 = 0, t1 = 1;      /* the part of the segment that is near this row */
        int64_t left, right;
        if (dy != 0) {
            t0 = fmin((py - reach) / dy, (py + reach) / dy);
            t1 = fmax((py - reach) / dy, (py + reach) / dy);
            t0 = t0 < 0 ? 0 : t0 > 1 ? 1 : t0;
            t1 = t1 < 0 ? 0 : t1 > 1 ? 1 : t1;
        }
        left = tni_pixel(ax + fmin(t0 * dx, t1 * dx) - reach, c->clip_x0, c->clip_x1);
        right = tni_pixel(ax + fmax(t0 * dx, t1 * dx) + reach + 1, c->clip_x0, c->clip_x1);
        tni_cover_grow(c, left, y, right, y + 1);
        for (int64_t x = left; x < right; x++) {
            double   px = (double)x + 0.5 - ax, t = length2 > 0 ? (px * dx + py * dy) / length2 : 0, qx, qy, share;
            uint8_t *cover = c->cover + y * c->image->width + x;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            qx = px - t * dx;
            qy = py - t * dy;
            share = (reach - sqrt(qx * qx + qy * qy)) * 255;
            if (share > *cover) *cover = (uint8_t)(share > 255 ? 255 : share);
        }
    }
}

/* A rectangle: a pixel's share is the area inside. Neighbours that share a pixel add up. */
static void tni_cover_box(tni_canvas *c, double x0, double y0, double x1, double y1)
{
    int64_t left = tni_pixel(x0, c->clip_x0, c->clip_x1), right = tni_pixel(ceil(x1), c->clip_x0, c->clip_x1);
    int64_t top = tni_pixel(y0, c->clip_y0, c->clip_y1), bottom = tni_pixel(ceil(y1), c->clip_y0, c->clip_y1);
    tni_cover_grow(c, left, top, right, bottom);
    for (int64_t y = top; y < bottom; y++)
        for (int64_t x = left; x < right; x++) {
            double   w = fmin(x1, (double)x + 1) - fmax(x0, (double)x), h = fmin(y1, (double)y + 1) - fmax(y0, (double)y);
            uint8_t *cover = c->cover + y * c->image->width + x;
            if (w > 0 && h > 0) *cover = (uint8_t)fmin(*cover + w * h * 255 + 0.5, 255);
        }
}

/* Ends a shape: mixes its colour in and clears the coverage. */
static void tni_paint(tni_canvas *c, uint32_t ink, double strength)
{
    uint8_t rgb[3];
    int     most = (int)(strength * 256);
    tni_unpack(ink, rgb);
    for (int64_t y = c->y0; y < c->y1; y++)
        for (int64_t x = c->x0; x < c->x1; x++) {
            uint8_t *cover = c->cover + y * c->image->width + x, *pixel = c->image->pixels + 3 * (y * c->image->width + x);
            int      share = *cover * most / 256;
            if (*cover == 0) continue;
            for (int i = 0; i < 3; i++) pixel[i] = (uint8_t)((pixel[i] * (255 - share) + rgb[i] * share + 127) / 255);
            *cover = 0;
        }
    c->x0 = c->y0 = INT64_MAX;
    c->x1 = c->y1 = 0;
}

static void tni_draw_box(tni_canvas *c, double x0, double y0, double x1, double y1, uint32_t ink)
{
    tni_cover_box(c, x0, y0, x1, y1);
    tni_paint(c, ink, 1);
}

/* A frame of the given width around a box. */
static void tni_draw_frame(tni_canvas *c, double x0, double y0, double x1, double y1, double width, uint32_t ink)
{
    tni_cover_box(c, x0 - width, y0 - width, x1 + width, y0);
    tni_cover_box(c, x0 - width, y1, x1 + width, y1 + width);
    tni_cover_box(c, x0 - width, y0, x0, y1);
    tni_cover_box(c, x1, y0, x1 + width, y1);
    tni_paint(c, ink, 1);
}

/* ---- letters ----------------------------------------------------------------
   Glyphs are strokes. A glyph's first letter is the space it leaves at its sides; then come points of
   two letters, x and y: a..z = 0..25 in steps of 0.54 units to the right; units from the base line up,
   e = 0, so that o = 10 is the height of an x and s = 14 that of a capital. A blank lifts the pen. A
   point whose x is a capital is not passed through: it bends a parabola between its neighbours. */
#define TNI_GLYPH_STEP 0.54
#define TNI_FONT_UNITS 20.0                                /* of a font's size */
static const char *const tni_glyphs[] = {
    "l", "iasai aeaf", "iasap esep", "hisee qsme cnsn ajqj", "gppPsisBsbpBmilQkqiQeieAeah iuic",          /* space ! " # $ */
    "gfsKskpKmfmAmapAsfs ukZkzhZeuePephPkuk tsge", "gteenCodqDsisNsnpNnilAjahAeieQesk", "iasap",                /* % & ' */
    "ghuAqakAeha", "gauHqhkHeaa", "ggsgm armn anmr", "hakqk ioig", "hbfbeab", "gajij", "haeaf",           /* ( ) * + , - . */
    "emtad", "ihsOsolOeheAealAshs", "mbphshe", "iaoAshsOsooOmjjaeoe", "iapAshsNsnpNmhmOmoiOeheAeah emhm",     /* / 0 1 2 3 */
    "hksaipi kske", "inscsblDnhnOnoiOeheAeah", "inqMsisAsajAeheOeojOnhnAnaj", "iasosfe",                        /* 4 5 6 7 */
    "ihsNsnpNmhmBmbpBshs hmOmoiOeheAeaiAmhm", "ibgCegeOeonOshsAsanAjhjOjon", "haeaf anao", "hbfbeab bnbo",      /* 8 9 : ; */
    "hopakof", "haiqi amqm", "hapokaf", "gapAsgsNsnpNnjmGkgi gegf",                                             /* < = > ? */
    "gtcRbmbAbakAsmsZszlZgvgRgriro rkRomoHohkHgmgRgrk", "eaeksue diri", "iaeasjsPsppPljlQlqhQejeae aljl",       /* @ A B */
    "gspRsksAsalAekeResh", "haeasisSsslSeieae", "ipsasaepe alnl", "hpsasae alml", "gspRsksAsalAekeTetitlll",  /* C D E F G */
    "iasae ssse alsl", "iasae", "hmsmiMegeAeah", "hasae qsaj gmre", "gasaeoe", "iaeaslgwswe", "iaeassess",      /* H .. N */
    "gksUsulUekeAealAsks", "gaeasjsQsqoQkjkak", "gksUsulUekeAealAsks mhtd", "haeasjsQsqoQkjkak ikre",           /* O P Q R */
    "gppPsisBsbpBmilQkqiQeieAeah", "dasss jsje", "iasajAejeSesjss", "easkeus", "easgemsseys", "fasse ssae",     /* S .. X */
    "easjk ssjkje", "hasqsaeqe", "gguauaaga", "eatmd", "gaugugaaa", "gaogsmo", "bacqc", "gasep",        /* Y Z [ \ ] ^ _ ` */
    "hbmBohoOooloe okgkAkahAegeMeoh", "gatae ajAoioPopjPeieAeaj", "fomMoioAoajAeieMeog",                        /* a b c */
    "gptpe pjPohoAoajAehePepj", "fajpjPoioAoajAeieNeog", "ektEtepee aojo", "gpopePahaBabc pjPohoAoajAehePepj",  /* d e f g */
    "iatae akAohoOookoe", "haoae aras", "geoedEaaa eres", "gatae noai fkoe", "iatae",                           /* h .. l */
    "iaoae akAogoMomkme mkMosoYoykye", "iaoae akAohoOookoe", "fioQoqjQeieAeajAoio", "gaoaa ajAoioPopjPeieAeaj", /* m n o p */
    "gpopa pjPohoAoajAehePepj", "faoae akAoio", "fmmMohoBoblBkhjNinhNeheAeag", "eerehEeje aojo",                /* q r s t */
    "iaoaiAeheOeoi oooe", "daoheoo", "daogeloqewo", "eaooe ooae", "daohe ooheFaba", "gaonoaene",                /* u .. z */
    "giuEueremEkakEkegedEaia", "iauaa", "gauEueremEkikEkegedEaaa", "hajEnikMhql",                               /* { | } ~ */
    "hamqm iqii afqf", "haklk", "hanmh ahmn", "fatEtgqoe inae", "hakqk", "haeasosoeae" /* +- middle dot x lambda minus box */
};

static const char *tni_glyph(uint32_t code)
{
    static const uint32_t more[] = {0xB1, 0xB7, 0xD7, 0x3BB, 0x2212};
    int k = 0;
    if (code >= 32 && code < 127) return tni_glyphs[code - 32];
    while (k < 5 && more[k] != code) k++;
    return tni_glyphs[95 + k];
}

/* The next character of a text; a byte that begins none, and a sign without its end, counts as one unknown.
   A hyphen that begins a text, or a number within it, is a minus. */
static uint32_t tni_text_next(const char **at, const char *end, uint32_t before)
{
    const unsigned char *s = (const unsigned char *)*at;
    int      more = *s >= 0xF0 && *s < 0xF8 ? 3 : *s >= 0xE0 && *s < 0xF0 ? 2 : *s >= 0xC2 && *s < 0xE0 ? 1 : 0, k;
    uint32_t code = more ? *s & (0x3Fu >> more) : *s;
    *at += 1;
    if (*s == '-' && *at < end && (before == 0 || (before < '0' && ((**at >= '0' && **at <= '9') || **at == '.'))))
        return 0x2212;
    for (k = 1; k <= more && end - *at >= k && (s[k] & 0xC0) == 0x80; k++) code = code << 6 | (s[k] & 0x3Fu);
    if (more == 0 || k <= more) return *s < 128 ? *s : 0xFFFD;
    *at += more;
    return code;
}

static int tni_glyph_width(const char *glyph)            /* of the ink, in steps */
{
    int width = 0;
    for (const char *p = glyph + 1; *p; p += 2) {
        if (*p == ' ') p++;
        width = (int)tni_max(width, (*p | 32) - 'a');
    }
    return width;
}

/* The bytes of a text that fit into `room`, and their width. */
static size_t tni_text_fit(const char *s, size_t bytes, double size, double room, double *width)
{
    const char *at = s, *end = s + bytes, *next = s;
    uint32_t    code = 0;
    for (*width = 0; at < end; at = next) {
        const char *glyph = tni_glyph(code = tni_text_next(&next, end, code));
        double      advance = (glyph[0] - 'a' + tni_glyph_width(glyph)) * TNI_GLYPH_STEP * size / TNI_FONT_UNITS;
        if (*width + advance > room) break;
        *width += advance;
    }
    return (size_t)(at - s);
}

static double tni_text_width(const char *s, size_t bytes, double size)
{
    double width;
    tni_text_fit(s, bytes, size, HUGE_VAL, &width);
    return width;
}

/* Base line, the x's height and the capital's fall on whole pixels: small text is crisp. */
static double tni_hint(double y, double unit)
{
    static const double line[] = {-4, 0, 10, 14, 24};
    int    k = y < 0 ? 0 : y < 10 ? 1 : y < 14 ? 2 : 3;
    double low = floor(line[k] * unit + 0.5), high = floor(line[k + 1] * unit + 0.5);
    return low + (high - low) * (y - line[k]) / (line[k + 1] - line[k]);
}

typedef struct tni_pen { tni_canvas *canvas; double x, y, unit, radius; bool turned; } tni_pen;

static void tni_pen_line(const tni_pen *pen, const double a[2], const double b[2])
{
    double x = pen->x, y = pen->y;
    if (pen->turned) tni_cover_segment(pen->canvas, x - a[1], y - a[0], x - b[1], y - b[0], pen->radius);
    else tni_cover_segment(pen->canvas, x + a[0], y - a[1], x + b[0], y - b[1], pen->radius);
}

static void tni_pen_curve(const tni_pen *pen, const double a[2], const double b[2], const double c[2])
{
    double from[2], to[2];
    int    steps = 4 + (int)(pen->unit * 2);
    from[0] = a[0]; from[1] = a[1];
    for (int k = 1; k <= steps; k++) {
        double t = (double)k / steps;
        for (int i = 0; i < 2; i++) to[i] = (1 - t) * (1 - t) * a[i] + 2 * t * (1 - t) * b[i] + t * t * c[i];
        tni_pen_line(pen, from, to);
        from[0] = to[0]; from[1] = to[1];
    }
}

static void tni_pen_glyph(const tni_pen *pen, const char *glyph)
{
    double p[3][2] = {{0, 0}, {0, 0}, {0, 0}};            /* where the pen is, the bend, the new point */
    bool   down = false, bent = false;
    for (const char *s = glyph + 1; *s; s += 2) {
        if (*s == ' ') { s++; down = false; }
        p[2][0] = ((*s | 32) - 'a' + (glyph[0] - 'a') / 2.0) * TNI_GLYPH_STEP * pen->unit;
        p[2][1] = tni_hint(s[1] - 'e', pen->unit);
        if (*s < 'a') {
            memcpy(p[1], p[2], sizeof p[1]);
            bent = true;
            continue;
        }
        if (bent) tni_pen_curve(pen, p[0], p[1], p[2]);
        else if (down) tni_pen_line(pen, p[0], p[2]);
        memcpy(p[0], p[2], sizeof p[0]);
        down = true;
        bent = false;
    }
}

/* align: 0 begins at (x, base line y), 1/2 is centred there, 1 ends there. Turned text reads upwards. */
static void tni_cover_text(tni_canvas *c, const char *s, size_t bytes, double x, double y, double size, double align,
                           bool turned)
{
    const char *end = s + bytes;
    uint32_t    code = 0;
    tni_pen     pen;
    double      back = align * tni_text_width(s, bytes, size);
    pen.canvas = c;
    pen.unit = size / TNI_FONT_UNITS;
    pen.radius = fmax(0.86 * pen.unit, 0.5);
    pen.turned = turned;
    pen.x = turned ? floor(x) + 0.5 : x - back;
    pen.y = turned ? y + back : floor(y) + 0.5;
    while (s < end && fabs(pen.x) < 1e7 && fabs(pen.y) < 1e7) {
        const char *glyph = tni_glyph(code = tni_text_next(&s, end, code));
        double      advance = (glyph[0] - 'a' + tni_glyph_width(glyph)) * TNI_GLYPH_STEP * pen.unit;
        tni_pen_glyph(&pen, glyph);
        if (turned) pen.y -= advance;
        else pen.x += advance;
    }
}

/* ---- words ------------------------------------------------------------------ */
static const double tni_small = 12, tni_medium = 13, tni_large = 15;       /* font sizes          */
enum { TNI_LINES = 6 };                                                    /* of a paragraph      */

static double tni_label_width(const char *s, double size) { return s ? tni_text_width(s, strlen(s), size) : 0; }

/* One line of text. What does not fit into `room` is set smaller, down to 3/4, then cut and ended with "...". */
static void tni_draw_label(tni_canvas *c, const char *s, double x, double y, double size, double align, bool turned,
                           double room, uint32_t ink)
{
    double width = tni_label_width(s, size), dots, back;
    size_t bytes;
    if (!s) return;
    if (width > room) {
        size *= fmax(room / width * 0.999, 0.75);
        width = tni_label_width(s, size);
    }
    if (width > room) {
        dots = tni_label_width("...", size);
        bytes = tni_text_fit(s, strlen(s), size, room - dots, &width);
        if (dots > room) return;
        back = width - align * (width + dots);
        tni_cover_text(c, s, bytes, turned ? x : x + back, turned ? y - back : y, size, 1, turned);
        tni_cover_text(c, "...", 3, turned ? x : x + back, turned ? y - back : y, size, 0, turned);
    } else if (s) tni_cover_text(c, s, strlen(s), x, y, size, align, turned);
    tni_paint(c, ink, 1);
}

/* The bytes of the first line: up to a line's end, else up to the last blank that fits, else all that fit. */
static size_t tni_line_bytes(const char *s, double size, double room)
{
    size_t line = strcspn(s, "\n"), end, blank;
    double width;
    end = tni_text_fit(s, line, size, room, &width);
    if (end == line) return line;
    for (blank = end; blank > 0 && s[blank] != ' ';) blank--;
    return blank > 0 ? blank : (size_t)tni_max((int64_t)end, 1);
}

/* Lines centred at x below y, wrapped at `room`; returns their height. Without a canvas: only measures. */
static double tni_paragraph(tni_canvas *c, const char *s, double x, double y, double size, double room)
{
    double height = 0;
    for (int lines = 0; s && *s && lines < TNI_LINES; lines++) {
        size_t bytes = tni_line_bytes(s, size, room);
        if (c) {
            tni_cover_text(c, s, bytes, x, y + height + size, size, 0.5, false);
            tni_paint(c, TNI_TEXT_INK, 1);
        }
        height += ceil(size * 1.35);
        s += bytes;
        while (*s == ' ') s++;
        if (*s == '\n') s++;
    }
    return height;
}

/* ---- rulers: an axis and its round numbers ----------------------------------
   Steps are 1, 2 or 5 times a power of ten. On a logarithmic axis they are powers of ten, or 1, 2, 5
   between two of them, or round numbers where it spans less than that. */
enum { TNI_TICKS = 32 };

typedef struct tni_ruler {
    double low, high;                   /* on a logarithmic axis: their log10 */
    double from, to;                    /* the pixels of low and high         */
    bool   log;
    int    ticks;
    double at[TNI_TICKS];               /* as low and high                    */
    char   label[TNI_TICKS][32];
} tni_ruler;

static double tni_ruler_pixel(const tni_ruler *r, double v)
{
    double pixel = r->from + (v - r->low) / (r->high - r->low) * (r->to - r->from);
    return pixel > 1e6 ? 1e6 : pixel > -1e6 ? pixel : -1e6;
}

static double tni_round_step(double raw)
{
    double unit = pow(10, floor(log10(raw))), m = raw / unit;
    return unit * (m < 1.0001 ? 1 : m < 2.0001 ? 2 : m < 5.0001 ? 5 : 10);
}

/* As %.{digits}g, with at least `decimals` of them behind the point, and 1e5 for 1e+05. */
static void tni_tick_text(char dst[32], double v, int digits, int decimals)
{
    int   n = tni_format_double(dst, v, digits);
    char *e = strchr(dst, 'e'), *point = strchr(dst, '.'), *from;
    if (e) {
        from = e += e[1] == '-' ? 2 : 1;
        while (*from == '+' || *from == '0') from++;
        memmove(e, from, strlen(from) + 1);
    } else if (decimals > 0 && v - v == 0) {
        int have = point ? (int)(dst + n - point) - 1 : 0;
        if (!point) dst[n++] = '.';
        for (; have < decimals && n < 30; have++) dst[n++] = '0';
        dst[n] = 0;
    }
}

static void tni_tick(tni_ruler *r, double at, double value, int digits, int decimals)
{
    double slack = 1e-9 * (r->high - r->low);
    if (r->ticks == TNI_TICKS || at < r->low - slack || at > r->high + slack) return;
    r->at[r->ticks] = at;
    tni_tick_text(r->label[r->ticks++], value, digits, decimals);
}

static void tni_ticks_even(tni_ruler *r, double low, double high, double wanted, bool whole)
{
    double step = tni_round_step((high - low) / wanted), first, most;
    int    digits, decimals;
    if (whole && step < 1) step = 1;
    first = ceil(low / step - 1e-6);
    most = fmax(fabs(low), fabs(high));
    digits = (int)fmin(fmax(floor(log10(most / step) + 1e-6) + 2, 6), 15);
    decimals = (int)fmin(fmax(-floor(log10(step) + 1e-6), 0), 6);
    for (int k = 0; k < TNI_TICKS; k++) {
        double v = (first + k) * step;
        if (r->log && v <= 0) continue;
        tni_tick(r, r->log ? log10(v) : v, v, digits, v == 0 && step < 1e-4 ? 0 : decimals);
    }
}

static void tni_ticks_log(tni_ruler *r, double wanted)
{
    static const double digit[] = {1, 2, 5};
    double first = ceil(r->low - 1e-9), last = floor(r->high + 1e-9);
    if (last - first >= 2) {
        double step = ceil((last - first + 1) / fmax(wanted, 1));
        for (double e = first; e <= last; e += step) tni_tick(r, e, pow(10, e), 5, 0);
        return;
    }
    for (double e = first - 1; e <= last; e++)
        for (int k = 0; k < 3; k++) tni_tick(r, e + log10(digit[k]), digit[k] * pow(10, e), 5, 0);
    if (r->ticks >= 2) return;
    r->ticks = 0;
    tni_ticks_even(r, pow(10, r->low), pow(10, r->high), wanted, false);
}

static void tni_ruler_init(tni_ruler *r, double low, double high, bool log, double wanted, bool whole)
{
    memset(r, 0, sizeof *r);
    r->low = low;
    r->high = high;
    r->log = log;
    wanted = fmax(fmin(wanted, 16), 2);
    for (int tries = 0; r->ticks < 3 && tries < 6; tries++, wanted *= 1.5) {     /* two numbers do not show a scale */
        r->ticks = 0;
        if (log) tni_ticks_log(r, wanted);
        else tni_ticks_even(r, low, high, wanted, whole);
    }
}

static double tni_ruler_label_width(const tni_ruler *r, double size)
{
    double width = 0;
    for (int k = 0; k < r->ticks; k++) width = fmax(width, tni_label_width(r->label[k], size));
    return width;
}

/* ---- heat: a matrix as coloured cells ----------------------------------------- */
#define TNI_HUGE 1e300
enum { TNI_SHADES = 1025, TNI_SIDE_MAX = 1 << 24, TNI_CELL_MAX = 40, TNI_THIN = 12 };
static const double tni_area_most = 268435456;      /* pixels of a figure */

typedef struct tni_heat {
    int64_t rows, columns;              /* of the values                                       */
    int64_t block;                      /* block x block values make one cell, their mean      */
    int64_t down, across;               /* cells                                               */
    int64_t cell_h, cell_w;             /* of a cell, in pixels                                */
    int64_t height, width;              /* of all, in pixels                                   */
} tni_heat;

typedef struct tni_shades { double low, high; uint8_t rgb[TNI_SHADES][3]; } tni_shades;

/* How a matrix fills `size` pixels: whole pixels per cell, or, where there are more values, blocks of them. */
static bool tni_heat_plan(tn_ctx *ctx, tni_heat *h, int64_t rows, int64_t columns, int64_t cell, int64_t size, int64_t scale)
{
    int64_t longest = tni_max(rows, columns);
    size_t  bytes;
    memset(h, 0, sizeof *h);
    if (!tni_area_size(rows, columns, sizeof(double), &bytes)) {
        tni_fail(ctx, TN_ERR_SHAPE, "image: a matrix of %lld x %lld values does not fit a size", (long long)rows,
                 (long long)columns);
        return false;
    }
    h->rows = rows;
    h->columns = columns;
    h->block = 1;
    if (rows == 0 || columns == 0) {
        h->height = h->width = size * scale / 4;
        return true;
    }
    if (cell > 0) h->cell_h = cell * scale;
    else if (longest <= size) h->cell_h = tni_min(size / longest, TNI_CELL_MAX) * scale;
    else {
        h->block = longest / (size * scale) + (longest % (size * scale) != 0);
        h->cell_h = 1;
    }
    h->down = rows / h->block + (rows % h->block != 0);
    h->across = columns / h->block + (columns % h->block != 0);
    h->cell_w = h->cell_h;
    if (cell == 0) {                    /* a row or a column alone is made wide enough to be seen */
        h->cell_h = tni_max(h->cell_h, TNI_THIN * scale / h->down);
        h->cell_w = tni_max(h->cell_w, TNI_THIN * scale / h->across);
    }
    if (h->down > TNI_SIDE_MAX / h->cell_h || h->across > TNI_SIDE_MAX / h->cell_w) {
        tni_fail(ctx, TN_ERR_SHAPE, "image: %lld x %lld cells of %lld pixels are more than a picture of side %d holds",
                 (long long)h->down, (long long)h->across, (long long)h->cell_h, TNI_SIDE_MAX);
        return false;
    }
    h->height = h->down * h->cell_h;
    h->width = h->across * h->cell_w;
    return true;
}

/* The mean of a cell's values that are not NaN; NaN when there are none. */
static double tni_heat_value(const tni_heat *h, const double *values, int64_t i, int64_t j)
{
    int64_t i1 = tni_min((i + 1) * h->block, h->rows), j1 = tni_min((j + 1) * h->block, h->columns);
    double  sum = 0, count = 0;
    if (h->block == 1) return values[i * h->columns + j];
    for (int64_t r = i * h->block; r < i1; r++)
        for (int64_t k = j * h->block; k < j1; k++) {
            double v = values[r * h->columns + k];
            if (v == v) { sum += v; count++; }
        }
    return sum / count;
}

/* Widens [low,high] to the finite values shown. What is beyond 1e300 counts as infinite, so that no difference overflows. */
static void tni_heat_range(const tni_heat *h, const double *values, double *low, double *high)
{
    for (int64_t i = 0; i < h->down; i++)
        for (int64_t j = 0; j < h->across; j++) {
            double v = tni_heat_value(h, values, i, j);
            if (!(fabs(v) < TNI_HUGE)) continue;
            *low = fmin(*low, v);
            *high = fmax(*high, v);
        }
}

/* A diverging scale is symmetric about zero; none is empty. */
static void tni_shades_init(tni_shades *s, tn_colours colours, double low, double high)
{
    bool diverging = colours == TN_COLOURS_DIVERGING;
    if (diverging) {
        high = fmax(fabs(low), fabs(high));
        low = -high;
    }
    if (high - low < 1e-300) {
        low -= diverging;
        high += 1;
    }
    s->low = low;
    s->high = high;
    for (int k = 0; k < TNI_SHADES; k++) {
        double t = (double)k / (TNI_SHADES - 1);
        tn_colour(colours, diverging ? 2 * t - 1 : t, s->rgb[k]);
    }
}

/* The scale of `count` matrices: as asked for, or of the data and zero. */
static void tni_shades_of(tni_shades *s, tn_colours colours, double low, double high, const tni_heat *h,
                          const double *values, int64_t count)
{
    if (low == 0 && high == 0 && h->down > 0)
        for (int64_t k = 0; k < count; k++) tni_heat_range(h, values + k * h->rows * h->columns, &low, &high);
    tni_shades_init(s, colours, low, high);
}

static void tni_shade(const tni_shades *s, double v, uint8_t rgb[3])
{
    double t = (v / 2 - s->low / 2) / (s->high / 2 - s->low / 2);
    if (v != v) tni_unpack(TNI_NAN_INK, rgb);
    else memcpy(rgb, s->rgb[t <= 0 ? 0 : t >= 1 ? TNI_SHADES - 1 : (int)(t * (TNI_SHADES - 1) + 0.5)], 3);
}

/* Cells with their corner at (x,y), in a thin frame. */
static void tni_draw_heat(tni_canvas *c, const tni_heat *h, const tni_shades *s, const double *values, int64_t x, int64_t y)
{
    for (int64_t i = 0; i < h->down; i++) {
        uint8_t *line = c->image->pixels + 3 * ((y + i * h->cell_h) * c->image->width + x);
        for (int64_t j = 0; j < h->across; j++) {
            uint8_t rgb[3];
            tni_shade(s, tni_heat_value(h, values, i, j), rgb);
            for (int64_t k = 0; k < h->cell_w; k++) memcpy(line + 3 * (j * h->cell_w + k), rgb, 3);
        }
        for (int64_t k = 1; k < h->cell_h; k++) memcpy(line + 3 * k * c->image->width, line, (size_t)h->width * 3);
    }
    tni_draw_frame(c, (double)x, (double)y, (double)(x + h->width), (double)(y + h->height), c->scale, TNI_LINE_INK);
}

/* The value of each cell, where it has room. */
static void tni_draw_numbers(tni_canvas *c, const tni_heat *h, const tni_shades *s, const double *values, int64_t x,
                             int64_t y)
{
    double size = tni_small * c->scale;
    if ((double)h->cell_h < size * 1.2 || (double)h->cell_w < size * 2) return;
    for (int64_t i = 0; i < h->down; i++)
        for (int64_t j = 0; j < h->across; j++) {
            double  v = tni_heat_value(h, values, i, j);
            uint8_t rgb[3];
            char    number[32];
            tni_shade(s, v, rgb);
            tni_tick_text(number, v, 3, 0);
            tni_draw_label(c, number, (double)(x + j * h->cell_w) + (double)h->cell_w / 2,
                           (double)(y + i * h->cell_h) + (double)h->cell_h / 2 + size * 0.35, size, 0.5, false,
                           (double)h->cell_w - 4 * c->scale,
                           rgb[0] * 3 + rgb[1] * 6 + rgb[2] < 1250 ? TNI_WHITE : TNI_TEXT_INK);
        }
}

/* ---- the colour bar: 14 wide, its numbers at the right ------------------------- */
static const double tni_pad = 12, tni_tick_length = 4;
static const double tni_bar_width = 14, tni_bar_gap = 14, tni_bar_least = 64, tni_bar_most = 240;

/* returns the width it needs */
static double tni_bar_init(tni_ruler *r, const tni_shades *s, double height, double scale)
{
    tni_ruler_init(r, s->low, s->high, false, height / (36 * scale), false);
    return (tni_bar_gap + tni_bar_width + tni_tick_length + 4) * scale + tni_ruler_label_width(r, tni_small * scale);
}

static void tni_draw_bar(tni_canvas *c, tni_ruler *r, const tni_shades *s, double x, double y, double height)
{
    double u = c->scale, right = x + tni_bar_width * u;
    for (int64_t row = (int64_t)y; row < (int64_t)(y + height); row++)
        for (int64_t column = (int64_t)x; column < (int64_t)right; column++)
            tni_shade(s, s->high - (s->high - s->low) * (((double)row + 0.5 - y) / height),
                      c->image->pixels + 3 * (row * c->image->width + column));
    tni_draw_frame(c, x, y, right, y + height, u, TNI_LINE_INK);
    r->from = y + height;
    r->to = y;
    for (int k = 0; k < r->ticks; k++) {
        double at = floor(tni_ruler_pixel(r, r->at[k]) - u / 2 + 0.5);
        tni_draw_box(c, right + u, at, right + (tni_tick_length + 1) * u, at + u, TNI_LINE_INK);
        tni_draw_label(c, r->label[k], right + (tni_tick_length + 4) * u, at + u / 2 + tni_small * u * 0.35, tni_small * u,
                       0, false, 1e6, TNI_TEXT_INK);
    }
}

/* ---- one matrix ---------------------------------------------------------------- */
static const char *tni_desc_problem(int64_t cell, int64_t size, int scale, double low, double high, bool symmetric)
{
    if (cell < 0 || cell > 4096) return "cell is not in 0..4096";
    if (size < 0 || size > 65536) return "size is not in 0..65536";
    if (scale < 0 || scale > 16) return "scale is not in 0..16";
    if (!(fabs(low) < TNI_HUGE && fabs(high) < TNI_HUGE)) return "low or high is not finite";
    if ((low != 0 || high != 0) && !symmetric && !(high - low > 1e-9 * fmax(fabs(low), fabs(high))))
        return "low is not below high";
    return NULL;
}

static bool tni_figure_ok(tn_ctx *ctx, const char *what, const char *problem)
{
    if (problem && ctx) tni_fail(ctx, TN_ERR_ARG, "%s: %s", what, problem);
    return ctx && !problem;
}

/* The labels along one side: of value 0, step, 2 step ... */
typedef struct tni_side {
    const char *const *names;           /* or NULL: numbers */
    int64_t count, step;
    double  spacing;                    /* pixels from one value to the next */
    double  widest, room;
    bool    turned;
} tni_side;

static const char *tni_side_label(const tni_side *s, int64_t k, char number[32])
{
    if (s->names) return s->names[k] ? s->names[k] : "";
    tni_print(number, 32, "%lld", (long long)k);
    return number;
}

static void tni_side_init(tni_side *s, const char *const *names, int64_t count, double spacing, bool across, double scale)
{
    double size = tni_small * scale, room;
    char   number[32];
    s->names = names;
    s->count = spacing > 0 ? count : 0;
    s->step = 1;
    s->spacing = spacing;
    s->room = 110 * scale;
    s->widest = 0;
    if (spacing > 0 && names) s->step = (int64_t)ceil(size * 1.15 / spacing);
    else if (spacing > 0) {
        room = across ? tni_label_width(tni_side_label(s, count, number), size) + 18 * scale : 26 * scale;
        s->step = (int64_t)fmax(tni_round_step(room / spacing), 1);
    }
    for (int64_t k = 0; k < s->count; k += s->step)
        s->widest = fmax(s->widest, tni_label_width(tni_side_label(s, k, number), size));
    s->turned = across && names && s->widest + 6 * scale > spacing;
    s->widest = fmin(s->widest, s->room);
}

static void tni_draw_side(tni_canvas *c, const tni_side *s, double x, double y, bool across)
{
    double u = c->scale, size = tni_small * u;
    char   number[32];
    for (int64_t k = 0; k < s->count; k += s->step) {
        const char *label = tni_side_label(s, k, number);
        double      at = ((double)k + 0.5) * s->spacing, edge = floor((across ? x : y) + at - u / 2 + 0.5);
        if (across) {
            tni_draw_box(c, edge, y + u, edge + u, y + (tni_tick_length + 1) * u, TNI_LINE_INK);
            if (s->turned)
                tni_draw_label(c, label, x + at + size * 0.35, y + (tni_tick_length + 5) * u, size, 1, true, s->room,
                               TNI_TEXT_INK);
            else
                tni_draw_label(c, label, x + at, y + (tni_tick_length + 4) * u + size * 0.75, size, 0.5, false, s->room,
                               TNI_TEXT_INK);
        } else {
            tni_draw_box(c, x - (tni_tick_length + 1) * u, edge, x - u, edge + u, TNI_LINE_INK);
            tni_draw_label(c, label, x - (tni_tick_length + 4) * u, y + at + size * 0.35, size, 1, false, s->room,
                           TNI_TEXT_INK);
        }
    }
}

/* A figure: a body with room on its four sides, a title above and a caption below. */
typedef struct tni_figure {
    const char *title, *caption;
    double scale, body_width, body_height, left, top, right, bottom;    /* margins */
    double width, height, title_height, caption_height;
} tni_figure;

static double tni_figure_text(tni_canvas *c, const tni_figure *f, const char *s, double y, double size)
{
    double middle = f->left + f->body_width / 2, pad = tni_pad * f->scale,
           room = 2 * (fmin(middle, f->width - middle) - pad);
    if (tni_label_width(s, size) > room) {
        middle = f->width / 2;
        room = f->width - 2 * pad;
    }
    return tni_paragraph(c, s, middle, y, size, room);
}

/* Adds title and caption to the margins, and width where they need it; opens the picture and writes both. */
static bool tni_figure_open(tni_figure *f, tni_canvas *c, tn_ctx *ctx)
{
    double u = f->scale, wish = fmax(tni_label_width(f->title, tni_large * u), tni_label_width(f->caption, tni_medium * u)),
           more;
    f->width = f->left + f->body_width + f->right;
    more = fmax(fmin(wish, 360 * u) + 2 * tni_pad * u - f->width, 0);
    f->left = floor(f->left + more / 2);
    f->width += more;
    f->title_height = tni_figure_text(NULL, f, f->title, 0, tni_large * u);
    f->caption_height = tni_figure_text(NULL, f, f->caption, 0, tni_medium * u);
    f->top = ceil(f->top + tni_pad * u + f->title_height + (f->title_height > 0 ? 6 * u : 0));
    f->height = f->top + f->body_height + f->bottom + f->caption_height + (f->caption_height > 0 ? 6 * u : 0) + tni_pad * u;
    if (f->width * f->height > tni_area_most) {
        tni_fail(ctx, TN_ERR_SHAPE, "image: a picture of %g x %g pixels is too large", f->width, f->height);
        return false;
    }
    if (!tni_canvas_open(c, ctx, f->width, f->height, u)) return false;
    tni_figure_text(c, f, f->title, tni_pad * u, tni_large * u);
    tni_figure_text(c, f, f->caption, f->height - f->caption_height - tni_pad * u, tni_medium * u);
    return true;
}

static double tni_axis_title_room(const char *title, double scale) { return title && *title ? (tni_medium + 7) * scale : 0; }

/* The titles of both axes: centred below `bottom`, and at the left edge. */
static void tni_draw_axis_titles(tni_canvas *c, const tni_figure *f, const char *x_title, const char *y_title, double bottom,
                                 double left)
{
    double u = c->scale, size = tni_medium * u, x = f->left + f->body_width / 2, y = f->top + f->body_height / 2;
    tni_draw_label(c, x_title, x, bottom - 3 * u, size, 0.5, false, 2 * fmin(x, f->width - x), TNI_TEXT_INK);
    tni_draw_label(c, y_title, left + size * 0.8, y, size, 0.5, true, 2 * fmin(y, f->height - y), TNI_TEXT_INK);
}

tn_image *tn_image_matrix(tn_ctx *ctx, const double *values, int64_t rows, int64_t columns, const tn_matrix_desc *desc)
{
    tn_matrix_desc d;
    tni_heat       heat;
    tni_shades     shades;
    tni_side       across, down;
    tni_ruler      bar;
    tni_figure     f;
    tni_canvas     c;
    double         u, bar_height, left, below;
    int64_t        x, y;
    const char    *problem;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    problem = tni_desc_problem(d.cell, d.size, d.scale, d.low, d.high, d.colours == TN_COLOURS_DIVERGING);
    if (!tni_figure_ok(ctx, "image_matrix", problem)) return NULL;
    u = d.scale = (int)tni_max(d.scale, 1);
    if (!tni_heat_plan(ctx, &heat, rows, columns, d.cell, d.size ? d.size : 400, d.scale)) return NULL;
    if (!tni_figure_ok(ctx, "image_matrix", heat.down > 0 && !values ? "values is NULL" : NULL)) return NULL;
    tni_shades_of(&shades, d.colours, d.low, d.high, &heat, values, 1);
    tni_side_init(&across, d.x_names, columns, (double)heat.cell_w / (double)heat.block, true, u);
    tni_side_init(&down, d.y_names, rows, (double)heat.cell_h / (double)heat.block, false, u);

    memset(&f, 0, sizeof f);
    f.title = d.title;
    f.caption = d.caption;
    f.scale = u;
    bar_height = fmax((double)heat.height, tni_bar_least * u);
    f.body_width = (double)heat.width;
    f.body_height = d.no_bar ? (double)heat.height : bar_height;
    left = f.left = ceil(tni_pad * u + tni_axis_title_room(d.y_title, u)
                         + (d.no_ticks ? 2 * u : down.widest + (tni_tick_length + 4) * u));
    below = tni_axis_title_room(d.x_title, u)
          + (d.no_ticks ? 2 * u : (across.turned ? across.widest : tni_small * u * 0.75) + (tni_tick_length + 5) * u);
    f.bottom = fmax(below - (f.body_height - (double)heat.height) / 2, 2 * u);
    f.right = tni_pad * u + (d.no_bar ? 4 * u : tni_bar_init(&bar, &shades, bar_height, u));
    if (!tni_figure_open(&f, &c, ctx)) return NULL;

    x = (int64_t)f.left;
    y = (int64_t)(f.top + (f.body_height - (double)heat.height) / 2);
    tni_draw_heat(&c, &heat, &shades, values, x, y);
    if (d.numbers) tni_draw_numbers(&c, &heat, &shades, values, x, y);
    if (heat.down == 0)
        tni_draw_label(&c, "empty", (double)x + f.body_width / 2, (double)y + (double)heat.height / 2, tni_small * u, 0.5,
                       false, f.body_width, TNI_TEXT_INK);
    if (!d.no_ticks) {
        tni_draw_side(&c, &across, (double)x, (double)(y + heat.height), true);
        tni_draw_side(&c, &down, (double)x, (double)y, false);
    }
    tni_draw_axis_titles(&c, &f, d.x_title, d.y_title, (double)(y + heat.height) + below, f.left - left + tni_pad * u);
    if (!d.no_bar) tni_draw_bar(&c, &bar, &shades, f.left + f.body_width + tni_bar_gap * u, f.top, bar_height);
    return tni_canvas_close(&c);
}

/* ---- a grid of matrices ---------------------------------------------------------- */
static const double tni_tile_gap = 10, tni_tile_caption = 20;

static double tni_widest(const char *const *names, int64_t count, double size, double room)
{
    double widest = 0;
    for (int64_t k = 0; names && k < count; k++) widest = fmax(widest, tni_label_width(names[k], size));
    return fmin(widest, room);
}

/* Rows and columns of tiles where they are not given; what is wrong with those that are. */
static const char *tni_tiles_problem(tn_tiles_desc *d, int64_t count)
{
    if (count < 0 || d->rows < 0 || d->columns < 0) return "count, rows or columns is negative";
    if (d->columns == 0)
        d->columns = d->rows > 0 ? count / d->rows + (count % d->rows != 0) : (int64_t)ceil(sqrt((double)count));
    d->columns = tni_max(d->columns, 1);
    if (d->rows == 0) d->rows = tni_max(count / d->columns + (count % d->columns != 0), 1);
    if (d->rows > TNI_SIDE_MAX || d->columns > TNI_SIDE_MAX) return "too many rows or columns";
    if (d->rows * d->columns < count) return "more tiles than rows x columns";
    return NULL;
}

static void tni_draw_tiles(tni_canvas *c, const tn_tiles_desc *d, const tni_heat *heat, const tni_shades *shared,
                           const double *values, int64_t count, double left, double top, double step_x, double step_y)
{
    double u = c->scale, w = (double)heat->width, h = (double)heat->height;
    for (int64_t k = 0; k < count; k++) {
        const double *tile = values ? values + k * heat->rows * heat->columns : NULL;
        double        x = left + (double)(k % d->columns) * step_x, y = top + (double)(k / d->columns) * step_y;
        tni_shades    own;
        if (d->own_scales) tni_shades_of(&own, d->colours, d->low, d->high, heat, tile, 1);
        tni_draw_heat(c, heat, d->own_scales ? &own : shared, tile, (int64_t)x, (int64_t)y);
        if (d->captions)
            tni_draw_label(c, d->captions[k], x + w / 2, y + h + 15 * u, tni_small * u, 0.5, false, step_x - 4 * u,
                           TNI_TEXT_INK);
    }
    for (int64_t k = 0; d->row_names && k < d->rows; k++)
        tni_draw_label(c, d->row_names[k], left - 8 * u, top + (double)k * step_y + h / 2 + tni_medium * u * 0.35,
                       tni_medium * u, 1, false, 130 * u, TNI_TEXT_INK);
    for (int64_t k = 0; d->column_names && k < d->columns; k++)
        tni_draw_label(c, d->column_names[k], left + (double)k * step_x + w / 2, top - 7 * u, tni_medium * u, 0.5, false,
                       step_x - 6 * u, TNI_TEXT_INK);
}

tn_image *tn_image_tiles(tn_ctx *ctx, const double *values, int64_t count, int64_t height, int64_t width,
                         const tn_tiles_desc *desc)
{
    tn_tiles_desc d;
    tni_heat      heat;
    tni_shades    shades;
    tni_ruler     bar;
    tni_figure    f;
    tni_canvas    c;
    size_t        bytes;
    double        u, step_x, step_y, bar_height;
    const char   *problem;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    problem = tni_desc_problem(d.cell, d.size, d.scale, d.low, d.high, d.colours == TN_COLOURS_DIVERGING);
    if (!tni_figure_ok(ctx, "image_tiles", problem)) return NULL;
    if (!tni_figure_ok(ctx, "image_tiles", tni_tiles_problem(&d, count))) return NULL;
    u = d.scale = (int)tni_max(d.scale, 1);
    if (!tni_heat_plan(ctx, &heat, height, width, d.cell, d.size ? d.size : 84, d.scale)) return NULL;
    problem = !tni_area_size(count, height * width, sizeof(double), &bytes) ? "the values do not fit a size"
            : bytes > 0 && !values ? "values is NULL" : NULL;
    if (!tni_figure_ok(ctx, "image_tiles", problem)) return NULL;
    d.no_bar = d.no_bar || d.own_scales;
    tni_shades_of(&shades, d.colours, d.low, d.high, &heat, values, d.own_scales ? 0 : count);

    memset(&f, 0, sizeof f);
    f.title = d.title;
    f.caption = d.caption;
    f.scale = u;
    step_x = (double)heat.width + tni_tile_gap * u;
    step_y = (double)heat.height + (d.captions ? tni_tile_caption + 4 : tni_tile_gap) * u;
    f.body_width = (double)d.columns * step_x - tni_tile_gap * u;
    f.body_height = fmax((double)d.rows * step_y - (d.captions ? 4 : tni_tile_gap) * u, d.no_bar ? 0 : tni_bar_least * u);
    f.left = ceil((tni_pad + 2) * u + (d.row_names ? tni_widest(d.row_names, d.rows, tni_medium * u, 130 * u) + 8 * u : 0));
    f.top = d.column_names ? 20 * u : 2 * u;
    bar_height = fmin(f.body_height - (d.captions ? tni_tile_caption * u : 0), tni_bar_most * u);
    f.right = (tni_pad + 2) * u + (d.no_bar ? 0 : tni_bar_init(&bar, &shades, bar_height, u));
    if (!tni_figure_open(&f, &c, ctx)) return NULL;

    tni_draw_tiles(&c, &d, &heat, &shades, values, count, f.left, f.top, step_x, step_y);
    if (!d.no_bar) tni_draw_bar(&c, &bar, &shades, f.left + f.body_width + tni_bar_gap * u, f.top, bar_height);
    return tni_canvas_close(&c);
}

/* A tensor's values as doubles; freed by tni_free_f64(ctx, p, tn_tensor_count(t), 1). */
static double *tni_image_values(tn_ctx *ctx, const tn_tensor *t, int low, int high)
{
    double *p;
    if (!ctx || !t) return NULL;
    if (t->rank < low || t->rank > high) {
        tni_fail(ctx, TN_ERR_SHAPE, "image: a tensor %s has not the rank of the figure", TNI_SHAPE(t));
        return NULL;
    }
    p = tni_alloc_f64(ctx, tn_tensor_count(t), 1, "image");
    if (p && tn_read(t, TN_F64, p, tn_tensor_count(t)) == TN_OK) return p;
    tni_free_f64(ctx, p, tn_tensor_count(t), 1);
    return NULL;
}

tn_image *tn_image_matrix_of(tn_ctx *ctx, const tn_tensor *t, const tn_matrix_desc *desc)
{
    double   *p = tni_image_values(ctx, t, 0, 2);
    tn_image *image = NULL;
    if (p) image = tn_image_matrix(ctx, p, t->rank > 1 ? t->shape[0] : 1, t->rank > 0 ? t->shape[t->rank - 1] : 1, desc);
    if (p) tni_free_f64(ctx, p, tn_tensor_count(t), 1);
    return image;
}

tn_image *tn_image_tiles_of(tn_ctx *ctx, const tn_tensor *t, const tn_tiles_desc *desc)
{
    double   *p = tni_image_values(ctx, t, 3, 3);
    tn_image *image = p ? tn_image_tiles(ctx, p, t->shape[0], t->shape[1], t->shape[2], desc) : NULL;
    if (p) tni_free_f64(ctx, p, tn_tensor_count(t), 1);
    return image;
}

/* ---- curves and spectra ------------------------------------------------------------ */
static const double tni_legend_line = 18;
enum { TNI_FEW = 24, TNI_LEGEND_INSIDE = 5, TNI_SERIES_INKS = 7 };

typedef struct tni_plot {
    tn_plot_desc     d;
    const tn_series *series;
    int64_t          count;
    int64_t          bars;              /* how many of the series are bars                            */
    bool             upright;           /* there are bars or stems                                    */
    bool             two_colours;       /* a lone series of them: red above, blue below               */
    int64_t          lines;             /* of the legend; more than five stand outside, at the right  */
    double           legend_width;
    tni_figure       f;
    tni_canvas       c;
    tni_ruler        x, y;
} tni_plot;

static bool   tni_is_upright(const tn_series *s) { return s->kind == TN_SERIES_BARS || s->kind == TN_SERIES_STEMS; }
static double tni_series_x(const tn_series *s, int64_t i) { return s->x ? s->x[i] : (double)i; }
static bool   tni_is_dashed(const tn_series *s, int64_t k) { return s->dashed || (s->colour == 0 && k >= TNI_SERIES_INKS); }

/* Seven colours that stay apart for every kind of colour vision. Okabe & Ito 2008, without their yellow. */
static uint32_t tni_series_ink(const tn_series *s, int64_t k)
{
    static const uint32_t ink[TNI_SERIES_INKS] = {0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7, 0xE69F00, 0x56B4E9, 0x000000};
    return ink[s->colour > 0 ? s->colour - 1 : k % TNI_SERIES_INKS];
}

/* Point i where it belongs on the rulers; false where it is not shown. */
static bool tni_plot_point(const tni_plot *p, const tn_series *s, int64_t i, double *x, double *y)
{
    *x = tni_series_x(s, i);
    *y = s->y[i];
    if (!(fabs(*x) < TNI_HUGE && fabs(*y) < TNI_HUGE) || (p->d.log_x && *x <= 0) || (p->d.log_y && *y <= 0)) return false;
    if (p->d.log_x) *x = log10(*x);
    if (p->d.log_y) *y = log10(*y);
    return true;
}

/* The same in pixels. */
static bool tni_plot_pixel(const tni_plot *p, const tn_series *s, int64_t i, double *x, double *y)
{
    if (!tni_plot_point(p, s, i, x, y)) return false;
    *x = tni_ruler_pixel(&p->x, *x);
    *y = tni_ruler_pixel(&p->y, *y);
    return true;
}

/* The least distance of neighbours along x, on the ruler. */
static double tni_series_spacing(const tni_plot *p, const tn_series *s)
{
    double least = HUGE_VAL, before = 0, x, y;
    bool   any = false;
    for (int64_t i = 0; i < s->count; i++) {
        if (!tni_plot_point(p, s, i, &x, &y)) continue;
        if (any && x != before) least = fmin(least, fabs(x - before));
        before = x;
        any = true;
    }
    return least < HUGE_VAL ? least : 1;
}

/* The ends of one axis: of the data with a margin; bars and stems begin at zero and keep half a place at the sides. */
static void tni_plot_range(const tni_plot *p, bool across, bool log, double *low, double *high)
{
    double margin, x, y, side = 0, top = across ? 0.015 : 0.05;
    bool   from_zero = p->upright && !across && !log;
    *low = HUGE_VAL;
    *high = -HUGE_VAL;
    for (int64_t k = 0; k < p->count; k++) {
        for (int64_t i = 0; i < p->series[k].count; i++)
            if (tni_plot_point(p, &p->series[k], i, &x, &y)) {
                *low = fmin(*low, across ? x : y);
                *high = fmax(*high, across ? x : y);
            }
        if (across && tni_is_upright(&p->series[k])) side = fmax(side, 0.6 * tni_series_spacing(p, &p->series[k]));
    }
    if (*low > *high) *low = *high = 0;
    if (from_zero) { *low = fmin(*low, 0); *high = fmax(*high, 0); }
    if (*high - *low < 1e-9 * fmax(fabs(*low), fabs(*high)) || *high - *low < 1e-300) {
        margin = log ? 0.5 : *low != 0 ? fabs(*low) / 2 : 1;
        *low -= margin;
        *high += margin;
        return;
    }
    if (p->bars > 0 && !across && p->lines <= TNI_LEGEND_INSIDE)
        top += fmin((double)p->lines * tni_legend_line * p->f.scale / p->f.body_height, 0.4);
    margin = *high - *low;
    if (!(from_zero && *low == 0)) *low -= fmax(margin * (across ? 0.015 : 0.05), side);
    if (!(from_zero && *high == 0) || p->lines > 0) *high += fmax(margin * top, side);
}

static void tni_plot_ruler(const tni_plot *p, tni_ruler *r, bool across, double wanted)
{
    bool   log = across ? p->d.log_x : p->d.log_y, whole = across;
    double low = across ? p->d.x_low : p->d.y_low, high = across ? p->d.x_high : p->d.y_high;
    for (int64_t k = 0; k < p->count; k++) whole = whole && !p->series[k].x;
    if (low == 0 && high == 0) tni_plot_range(p, across, log, &low, &high);
    else if (log) { low = log10(low); high = log10(high); }
    tni_ruler_init(r, low, high, log, wanted, whole);
}

static void tni_draw_grid(tni_plot *p, double x0, double y0, double x1, double y1)
{
    tni_canvas *c = &p->c;
    double      u = c->scale, size = tni_small * u;
    for (int k = 0; k < p->x.ticks; k++) {
        double at = floor(tni_ruler_pixel(&p->x, p->x.at[k]) - u / 2 + 0.5);
        tni_draw_box(c, at, y0, at + u, y1, TNI_GRID_INK);
        tni_draw_box(c, at, y1, at + u, y1 + tni_tick_length * u, TNI_LINE_INK);
        tni_draw_label(c, p->x.label[k], at + u / 2, y1 + (tni_tick_length + 4) * u + size * 0.75, size, 0.5, false, 1e6,
                       TNI_TEXT_INK);
    }
    for (int k = 0; k < p->y.ticks; k++) {
        double at = floor(tni_ruler_pixel(&p->y, p->y.at[k]) - u / 2 + 0.5);
        tni_draw_box(c, x0, at, x1, at + u, p->upright && !p->d.log_y && p->y.at[k] == 0 ? TNI_LINE_INK : TNI_GRID_INK);
        tni_draw_box(c, x0 - tni_tick_length * u, at, x0, at + u, TNI_LINE_INK);
        tni_draw_label(c, p->y.label[k], x0 - (tni_tick_length + 4) * u, at + u / 2 + size * 0.35, size, 1, false, 1e6,
                       TNI_TEXT_INK);
    }
    tni_draw_box(c, x0 - u, y0, x0, y1 + u, TNI_LINE_INK);
    tni_draw_box(c, x0 - u, y1, x1, y1 + u, TNI_LINE_INK);
}

/* A segment, or its dashes; `phase` is how far into the pattern the line has come. */
static void tni_cover_line(tni_canvas *c, double ax, double ay, double bx, double by, double radius, bool dashed,
                           double *phase)
{
    double length = hypot(bx - ax, by - ay), on = 6 * c->scale, period = 10 * c->scale, from = 0;
    if (!dashed || length > 1e5) {
        tni_cover_segment(c, ax, ay, bx, by, radius);
        return;
    }
    while (from < length) {
        double at = fmod(*phase + from, period), to = fmin(length, from + (at < on ? on : period) - at);
        if (to <= from) break;
        if (at < on) tni_cover_segment(c, ax + (bx - ax) * from / length, ay + (by - ay) * from / length,
                                       ax + (bx - ax) * to / length, ay + (by - ay) * to / length, radius);
        from = to;
    }
    *phase = fmod(*phase + length, period);
}

static void tni_draw_markers(tni_plot *p, const tn_series *s, double radius, uint32_t ink)
{
    double x, y;
    for (int64_t i = 0; i < s->count; i++)
        if (tni_plot_pixel(p, s, i, &x, &y)) tni_cover_segment(&p->c, x, y, x, y, radius);
    tni_paint(&p->c, ink, 1);
}

/* A point without neighbours is a dot; few points are marked, with a white ring around each. */
static void tni_draw_curve(tni_plot *p, const tn_series *s, int64_t k)
{
    double u = p->c.scale, radius = 0.85 * u, phase = 0, ax = 0, ay = 0, x, y;
    bool   before = false, dot = false;
    for (int64_t i = 0; s->kind == TN_SERIES_LINE && i < s->count; i++) {
        bool shown = tni_plot_pixel(p, s, i, &x, &y);
        if (shown && before) tni_cover_line(&p->c, ax, ay, x, y, radius, tni_is_dashed(s, k), &phase);
        else if (dot) tni_cover_segment(&p->c, ax, ay, ax, ay, 2 * radius);
        dot = shown && !before;
        before = shown;
        ax = x;
        ay = y;
    }
    if (dot) tni_cover_segment(&p->c, ax, ay, ax, ay, 2 * radius);
    tni_paint(&p->c, tni_series_ink(s, k), 1);
    if (s->kind == TN_SERIES_LINE && s->count > TNI_FEW) return;
    if (s->count <= 4 * TNI_FEW) tni_draw_markers(p, s, 4 * u, TNI_WHITE);
    tni_draw_markers(p, s, 2.8 * u, tni_series_ink(s, k));
}

/* Bars or stems of one sign. Bars of several series stand side by side: these are number `place`. */
static void tni_cover_upright(tni_plot *p, const tn_series *s, bool negative, int64_t place)
{
    double u = p->c.scale, spacing = tni_series_spacing(p, s) * (p->x.to - p->x.from) / (p->x.high - p->x.low);
    double half = fmin(spacing * (spacing < 4 * u ? 0.5 : 0.4), 24 * u), width = 2 * half / (double)tni_max(p->bars, 1);
    double zero = p->d.log_y ? p->y.from : tni_ruler_pixel(&p->y, 0), x, y;
    for (int64_t i = 0; i < s->count; i++) {
        if (!tni_plot_pixel(p, s, i, &x, &y) || (!p->d.log_y && (s->y[i] < 0) != negative)) continue;
        if (s->kind == TN_SERIES_BARS)
            tni_cover_box(&p->c, x - half + (double)place * width, fmin(y, zero), x - half + (double)(place + 1) * width,
                          fmax(y, zero));
        else {
            tni_cover_segment(&p->c, x, zero, x, y, fmin(0.7 * u, spacing / 3));
            if (spacing > 5 * u) tni_cover_segment(&p->c, x, y, x, y, 2.8 * u);
        }
    }
}

static uint32_t tni_pack(tn_colours colours, double t)
{
    uint8_t rgb[3];
    tn_colour(colours, t, rgb);
    return (uint32_t)rgb[0] << 16 | (uint32_t)rgb[1] << 8 | rgb[2];
}

static void tni_draw_series(tni_plot *p)
{
    int64_t place = 0;
    for (int64_t k = 0; k < p->count; k++) {
        const tn_series *s = &p->series[k];
        if (!tni_is_upright(s)) {
            tni_draw_curve(p, s, k);
            continue;
        }
        for (int sign = 0; sign < 2; sign++) {
            if (sign == 1 && p->d.log_y) break;
            tni_cover_upright(p, s, sign == 1, place);
            tni_paint(&p->c, p->two_colours ? tni_pack(TN_COLOURS_DIVERGING, sign ? -0.7 : 0.7) : tni_series_ink(s, k), 1);
        }
        place += s->kind == TN_SERIES_BARS;
    }
}

/* How much is drawn in a box: the sum of how dark its pixels are, the grid's excepted. */
static double tni_darkness(const tn_image *image, double x0, double y0, double width, double height)
{
    double sum = 0;
    for (int64_t y = (int64_t)y0; y < (int64_t)(y0 + height); y++)
        for (int64_t x = (int64_t)x0; x < (int64_t)(x0 + width); x++) {
            const uint8_t *rgb = image->pixels + 3 * (y * image->width + x);
            int64_t        least = tni_min(rgb[0], tni_min(rgb[1], rgb[2]));
            if (least < (TNI_GRID_INK & 255)) sum += (double)(255 - least);
        }
    return sum;
}

static double tni_legend_height(const tni_plot *p) { return ((double)p->lines * tni_legend_line + 6) * p->f.scale; }

static void tni_legend_plan(tni_plot *p)
{
    double u = p->f.scale;
    if (p->two_colours) return;
    for (int64_t k = 0; k < p->count; k++) {
        if (!p->series[k].name) continue;
        p->legend_width = fmax(p->legend_width, fmin(tni_label_width(p->series[k].name, tni_small * u), 180 * u) + 44 * u);
        p->lines++;
    }
    p->lines = tni_min(p->lines, (int64_t)(p->f.body_height / (tni_legend_line * u)) - 1);
    if (p->lines > TNI_LEGEND_INSIDE) p->f.right += p->legend_width;
}

/* Inside, the legend stands in the corner with the least ink, and veils what is there. */
static void tni_legend_place(tni_plot *p, double x0, double y0, double x1, double y1, double *x, double *y)
{
    double u = p->c.scale, w = p->legend_width, h = tni_legend_height(p), least = HUGE_VAL;
    *x = x1 + 8 * u;
    *y = y0;
    if (p->lines > TNI_LEGEND_INSIDE) return;
    for (int corner = 0; corner < 4; corner++) {
        double cx = corner & 1 ? x0 + 8 * u : x1 - w - 4 * u, cy = corner & 2 ? y1 - h - 8 * u : y0 + 4 * u;
        double ink = tni_darkness(p->c.image, cx, cy, w, h);
        if (ink >= least * 0.98) continue;
        least = ink;
        *x = cx;
        *y = cy;
    }
    tni_cover_box(&p->c, *x, *y, *x + w, *y + h);
    tni_paint(&p->c, TNI_WHITE, 0.85);
}

static void tni_draw_legend(tni_plot *p, double x0, double y0, double x1, double y1)
{
    tni_canvas *c = &p->c;
    double      u = c->scale, size = tni_small * u, x, y, phase = 0;
    int64_t     lines = p->lines;
    if (lines < 1) return;
    tni_legend_place(p, x0, y0, x1, y1, &x, &y);
    y += (3 + tni_legend_line / 2) * u;
    for (int64_t k = 0; k < p->count && lines > 0; k++) {
        const tn_series *s = &p->series[k];
        if (!s->name) continue;
        if (s->kind == TN_SERIES_LINE) tni_cover_line(c, x + 6 * u, y, x + 28 * u, y, 0.85 * u, tni_is_dashed(s, k), &phase);
        if (s->kind == TN_SERIES_BARS) tni_cover_box(c, x + 11 * u, y - 5 * u, x + 23 * u, y + 5 * u);
        else if (s->kind != TN_SERIES_LINE || s->count <= TNI_FEW)
            tni_cover_segment(c, x + 17 * u, y, x + 17 * u, y, 2.8 * u);
        tni_paint(c, tni_series_ink(s, k), 1);
        tni_draw_label(c, s->name, x + 36 * u, y + size * 0.35, size, 0, false, p->legend_width - 40 * u, TNI_TEXT_INK);
        y += tni_legend_line * u;
        lines--;
    }
}

static const char *tni_plot_problem(const tn_plot_desc *d, const tn_series *series, int64_t count)
{
    const char *problem = tni_desc_problem(0, 0, d->scale, d->x_low, d->x_high, false);
    if (!problem) problem = tni_desc_problem(0, 0, d->scale, d->y_low, d->y_high, false);
    if (problem) return problem;
    if (count < 0 || (count > 0 && !series)) return "series is NULL or count negative";
    for (int64_t k = 0; k < count; k++) {
        if (series[k].count < 0 || (series[k].count > 0 && !series[k].y)) return "a series' y is NULL or its count negative";
        if (series[k].colour < 0 || series[k].colour > TNI_SERIES_INKS) return "a series' colour is not in 0..7";
    }
    if (d->width < 0 || d->width > 65536 || d->height < 0 || d->height > 65536) return "width or height is not in 0..65536";
    if ((d->log_x && d->x_low <= 0 && (d->x_low != 0 || d->x_high != 0))
        || (d->log_y && d->y_low <= 0 && (d->y_low != 0 || d->y_high != 0)))
        return "a logarithmic axis begins above zero";
    return NULL;
}

/* Everything but title and caption lies within width x height; each side leaves the other its room. */
static void tni_plot_plan(tni_plot *p)
{
    tni_figure *f = &p->f;
    double      u = f->scale;
    f->title = p->d.title;
    f->caption = p->d.caption;
    f->top = f->title ? 0 : 6 * u;
    f->bottom = tni_axis_title_room(p->d.x_title, u) + (tni_tick_length + 5 + tni_small * 0.75) * u;
    f->body_height = fmax((double)(p->d.height ? p->d.height : 360) * u - f->bottom
                          - (2 * tni_pad + (f->title ? 27 : 6)) * u, 60 * u);
    f->right = (tni_pad + 10) * u;
    tni_legend_plan(p);
    tni_plot_ruler(p, &p->y, false, f->body_height / (44 * u));
    f->left = ceil(tni_pad * u + tni_axis_title_room(p->d.y_title, u) + tni_ruler_label_width(&p->y, tni_small * u)
                   + (tni_tick_length + 5) * u);
    f->body_width = floor(fmax((double)(p->d.width ? p->d.width : 560) * u - f->left - f->right, 80 * u));
    if (p->lines <= TNI_LEGEND_INSIDE) p->legend_width = fmin(p->legend_width, f->body_width - 12 * u);
    tni_plot_ruler(p, &p->x, true, f->body_width / (70 * u));
}

tn_image *tn_image_plot(tn_ctx *ctx, const tn_series *series, int64_t count, const tn_plot_desc *desc)
{
    tni_plot p;
    double   u, x0, y0, x1, y1, left;
    memset(&p, 0, sizeof p);
    if (desc) p.d = *desc;
    if (!tni_figure_ok(ctx, "image_plot", tni_plot_problem(&p.d, series, count))) return NULL;
    p.series = series;
    p.count = count;
    for (int64_t k = 0; k < count; k++) {
        p.bars += series[k].kind == TN_SERIES_BARS;
        p.upright = p.upright || tni_is_upright(&series[k]);
    }
    p.two_colours = count == 1 && p.upright && series[0].colour == 0;
    u = p.f.scale = (double)tni_max(p.d.scale, 1);
    tni_plot_plan(&p);
    left = p.f.left;
    if (!tni_figure_open(&p.f, &p.c, ctx)) return NULL;

    x0 = p.x.from = p.f.left;
    x1 = p.x.to = p.f.left + p.f.body_width;
    y0 = p.y.to = p.f.top;
    y1 = p.y.from = floor(p.f.top + p.f.body_height);
    tni_draw_grid(&p, x0, y0, x1, y1);
    tni_draw_axis_titles(&p.c, &p.f, p.d.x_title, p.d.y_title, y1 + p.f.bottom, p.f.left - left + tni_pad * u);
    tni_canvas_clip(&p.c, (int64_t)x0, (int64_t)(y0 - 3 * u), (int64_t)(x1 + 3 * u), (int64_t)y1);
    tni_draw_series(&p);
    tni_canvas_clip(&p.c, 0, 0, p.c.image->width, p.c.image->height);
    tni_draw_legend(&p, x0, y0, x1, y1);
    return tni_canvas_close(&p.c);
}

/* ---- files: through the same writer as weights, so that a picture is replaced whole or not at all ---- */
static bool tni_is_image(const tn_image *image) { return image && image->ctx && image->pixels; }

#ifdef INCLUDE_STB_IMAGE_WRITE_H
static void tni_png_piece(void *writer, void *data, int bytes) { tni_put((tni_writer *)writer, data, (size_t)bytes); }

tn_status tn_image_write_png(const tn_image *image, tn_sink sink)
{
    tni_writer w;
    if (!tni_is_image(image)) return TN_ERR_ARG;
    if (image->width > 0x7FFFFFFF / 3 - 1 || image->height > 0x7FFFFFFF / (3 * image->width + 1))
        return tni_fail(image->ctx, TN_ERR_SHAPE, "image_write_png: %lld x %lld pixels are more than stb_image_write takes",
                        (long long)image->width, (long long)image->height);
    tni_writer_open(&w, image->ctx, &sink);
    if (w.status == TN_OK && !stbi_write_png_to_func(tni_png_piece, &w, (int)image->width, (int)image->height, 3,
                                                     image->pixels, (int)image->width * 3))
        tni_writer_fail(&w, TN_ERR_MEMORY, "stb_image_write could not compress the picture", "");
    return tni_writer_close(&w);
}
#else
tn_status tn_image_write_png(const tn_image *image, tn_sink sink)
{
    (void)sink;
    if (!tni_is_image(image)) return TN_ERR_ARG;
    return tni_fail(image->ctx, TN_ERR_FILE, "image_write_png: built without stb_image_write.h; "
                    "include it before the implementation, or write a PPM");
}
#endif

tn_status tn_image_write_ppm(const tn_image *image, tn_sink sink)
{
    tni_writer w;
    char       head[64];
    if (!tni_is_image(image)) return TN_ERR_ARG;
    tni_writer_open(&w, image->ctx, &sink);
    tni_put(&w, head, tni_print(head, sizeof head, "P6\n%lld %lld\n255\n", (long long)image->width,
                                (long long)image->height));
    tni_put(&w, image->pixels, (size_t)image->height * (size_t)image->width * 3);
    return tni_writer_close(&w);
}

#ifndef TN_NO_STDIO
tn_status tn_image_save_png(const tn_image *image, const char *path) { return tn_image_write_png(image, tn_to_path(path)); }
tn_status tn_image_save_ppm(const tn_image *image, const char *path) { return tn_image_write_ppm(image, tn_to_path(path)); }
#endif

#undef TNI_GLYPH_STEP
#undef TNI_FONT_UNITS
#undef TNI_HUGE

#undef TNI_ALIGN
#undef TNI_ALIVE
#undef TNI_BF16
#undef TNI_BLOCKS
#undef TNI_BLOCK_MOST
#undef TNI_DIGITS
#undef TNI_FORMAT_EDGE
#undef TNI_ISA512
#undef TNI_ISA_DOT
#undef TNI_ISA_TILE
#undef TNI_MLP_KINDS
#undef TNI_NEON
#undef TNI_PLAIN_BYTES
#undef TNI_PRINTF
#undef TNI_SHAPE
#undef TNI_TEXT
#undef TNI_TILE_BEGIN
#undef TNI_TILE_DOT
#undef TNI_TILE_END
#undef TNI_TILE_LOAD
#undef TNI_TILE_STORE
#undef TNI_TILE_ZERO
#undef TNI_UNUSED
#undef TNI_VALUE
#undef TNI_X86
#define TNI_IMPLEMENTED
#endif /* TENSORNET_IMPLEMENTATION */

/*
   tensornet.h and the files around it may be used under either of the two licences below. Take the one that suits you;
   nobody has to be told. The first asks you to keep its notice, the second asks for nothing.

   ------------------------------------------------------------------------------
   Choice A: the MIT License

   Copyright (c) 2026 the authors of tensornet.h

   Permission is hereby granted, free of charge, to any person obtaining a copy
   of this software and associated documentation files (the "Software"), to deal
   in the Software without restriction, including without limitation the rights
   to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
   copies of the Software, and to permit persons to whom the Software is
   furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all
   copies or substantial portions of the Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
   IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
   FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
   AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
   LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
   SOFTWARE.

   ------------------------------------------------------------------------------
   Choice B: public domain (the Unlicense, https://unlicense.org)

   This is free and unencumbered software released into the public domain.

   Anyone is free to copy, modify, publish, use, compile, sell, or distribute
   this software, either in source code form or as a compiled binary, for any
   purpose, commercial or non-commercial, and by any means.

   In jurisdictions that recognize copyright laws, the author or authors of this
   software dedicate any and all copyright interest in the software to the public
   domain. We make this dedication for the benefit of the public at large and to
   the detriment of our heirs and successors. We intend this dedication to be an
   overt act of relinquishment in perpetuity of all present and future rights to
   this software under copyright law.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
   IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
   FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
   AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
   ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
   WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
