#pragma once
#include "core/inner.h"
#include "ops/inner.h"

/* gcc for Windows aligns its stack to 16 bytes only, which is too little for wider vectors (GCC PR 54412). */
#if defined(__GNUC__) && defined(__x86_64__) && (!defined(_WIN32) || defined(__clang__))
#define TNI_X86 1
#else
#define TNI_X86 0
#endif
#if defined(__GNUC__) && defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__) && TN_SIMD_MAX >= 1
#define TNI_NEON 1                      /* every such processor has it */
#else
#define TNI_NEON 0
#endif
/* Vectors of plain C are WebAssembly's; it has instructions for what C cannot say of them. */
#ifdef __wasm_simd128__
#define TNI_WASM 1
#else
#define TNI_WASM 0
#endif
#define TNI_TURN (TNI_X86 || TNI_NEON || TNI_WASM)      /* squares are transposed in registers */
#define TNI_AVX2   (TNI_X86 && TN_SIMD_MAX >= 1)
#define TNI_AVX512 (TNI_X86 && TN_SIMD_MAX >= 2)
/* Does plain C have all kernels? With TN_SMALL it has products alone, wherever a level with vectors is compiled, and with
   TN_SIMD_MAX -1 none: the reference has the rest, for which calls of attention bring a workspace. */
#if TN_SIMD_MAX < 0 || (defined(TN_SMALL) && (TNI_AVX2 || TNI_NEON))
#define TNI_PLAIN_ALL 0
#else
#define TNI_PLAIN_ALL 1
#endif
/* Vectors cannot be mixed with the x87. */
#if defined(__GNUC__) && (defined(__SSE2__) || defined(__aarch64__) || TNI_WASM) && __FLT_EVAL_METHOD__ != 2
#define TNI_PLAIN_BYTES 16              /* of a vector in plain C */
#else
#define TNI_PLAIN_BYTES 0               /* none: one number at a time */
#endif

/* Requests what lies n elements after p for this level of the caches. It may be past the array, where no pointer may point. */
#ifdef __GNUC__
#define TNI_REQUEST(p, n, cache) \
    __builtin_prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(n) * sizeof *(p)), 0, 4 - (cache))
#else
#define TNI_REQUEST(p, n, cache) (void)0
#endif

#ifdef TN_USE_BLAS
/* The Fortran names are in every library and need no header. Integers are int. A Fortran compiler passes the lengths of
   strings after all other arguments. */
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
#define TNI_LAPACK_MOST 16384           /* rows and columns, because the size of its workspace is an int */
#define TNI_BLAS_WORK (1 << 21)         /* products of fewer multiplications are faster here */

#endif

enum {
    TNI_GEMM_LARGE = 3 << 20,
    TNI_GEMM_SMALL = 1 << 18,
    TNI_GEMM_DEPTH = 3200,              /* bytes of a row of A in a block, at most: 784 floats are one */
    TNI_GEMM_SHALLOW = 16,              /* depth up to which packing does not pay */
    TNI_GEMM_ROWS  = 256,               /* rows up to which tasks take columns of C */
    TNI_GEMM_SHARE = 1 << 17,           /* bytes of B that a task with few rows of A takes */
    TNI_GEMM_FEW   = 1 << 18,           /* bytes of B from which such a product is divided */
    TNI_GEMM_CUT   = 1 << 25,           /* operations from which a product is divided    */
    TNI_CPU_SHARE  = 16384,             /* elements that a task of a simple pass takes */
    TNI_CPU_ALONE  = 65536,             /* elements that are processed before a second thread is awake */
    TNI_CPU_PARTS  = 1024,              /* most tasks of a pass that leave a partial sum each */
    TNI_CPU_ROWS   = 6144,              /* numbers of BF16 operands that are widened at a time, or one row */
    TNI_CPU_SERIES = 64,                /* most calls of an optimiser's series that are run together */
    TNI_PROD_MOST  = 16                 /* most factors of a product whose gradient is computed in registers */
};

/* A parameter in a call of sumsq, adamw or sgd. */
typedef struct tni_update {
    float  *scalars, *x[4];             /* value, gradient, moments; sumsq: gradient */
    int64_t n, share, first, index;     /* elements, how many a task takes, number of the first task; the parameter's index */
    double  f[6];
} tni_update;

/* sums[32,32] of two strips of each factor, `blocks` of 32 deep; a_next, b_next: bytes from one to the other, see >>gemm-bf16 */
typedef void (*tni_bf16_products_fn)(int parts, int64_t blocks, const char *a, int64_t a_next, const char *b, int64_t b_next,
                                     float *sums);

typedef struct tni_cpu {
    tn_allocator mem;
    tni_pool     pool, little;          /* for regions that take less time than to wake a thread */
    tn_kernel_fn run[2];                /* in float, in double */
    char        *blocks;                /* for gemm; scratch for others */
    size_t       block_bytes;
    char        *scratch;               /* larger scratch, see tni_cpu_scratch */
    size_t       scratch_bytes;
    tn_ctx      *ctx;                   /* counts this memory; NULL inside another backend */
    struct tni_reserve *reserves;       /* newest first, see >>cpu-memory */
    bool         large;                 /* whether memory is asked for in large pages */
    double       part[TNI_CPU_PARTS];
    tni_update   update[TNI_CPU_SERIES]; /* calls that wait for the rest of their series, see >>pass-optim */
    int          updates;
    tn_kernel    update_kernel;
    int          gemm_parts;            /* bfloat16 parts of a float, if the next is not NULL */
    tni_bf16_products_fn gemm_products;
} tni_cpu;

static inline void tni_cpu_counts(void *state, tn_ctx *ctx) { ((tni_cpu *)state)->ctx = ctx; }

typedef struct tni_reserve {
    struct tni_reserve *next;
    size_t bytes, left, first;          /* left: of free blocks; first: a place before which there is no free block */
} tni_reserve;

typedef struct tni_pass {
    tni_cpu       *cpu;
    const tn_call *call;
    int64_t        n, share;            /* items, and how many of them one task takes */
    float         *sums;                /* of a part of a task: where it adds its share of a sum over rows; else NULL */
} tni_pass;

static inline int64_t tni_pass_begin(const tni_pass *p, int64_t task) { return task * p->share; }
static inline int64_t tni_pass_end(const tni_pass *p, int64_t task)   { return tni_min(p->n, (task + 1) * p->share); }

typedef struct tni_lines {
    int     views, rank;                /* rank: axes before the line */
    int64_t shape[TN_MAX_RANK];
    int64_t strides[3][TN_MAX_RANK];
    int64_t length, step[3];            /* of the line */
    int64_t piece, pieces, count;       /* pieces of a line, all pieces */
} tni_lines;

typedef struct tni_line_pass { tni_pass pass; tni_lines lines; } tni_line_pass;   /* a tni_pass comes first */

#ifndef TN_NO_SEQUENCES
enum { TNI_SCAN_GROUP = 16 };           /* most chains of a task, of those that have the same cores */

typedef struct tni_scans {
    tni_cpu       *cpu;
    const tn_call *call;
    tni_prefixes   s;
    int64_t        features, group;     /* s of tn_scan_states, else 1; chains of a task      */
    bool           transposed;          /* the steps multiply by transposed cores             */
    const tn_view *cores, *phi;         /* phi NULL: matrices, of each chain its own          */
    char          *scratch, *shared;    /* `each` bytes per worker; transposed cores          */
    size_t         each;
} tni_scans;

enum {
    TNI_ATTEND_KEYS  = 128,             /* most keys of a tile of scores */
    TNI_ATTEND_PARTS = 4,               /* if heads are few: parts of the keys, or of v's columns */
    TNI_ATTEND_FEW   = 8,               /* fewer heads are few */
    TNI_ATTEND_LEAST = 2,               /* queries up to which each is processed by itself, */
    TNI_ATTEND_LONG  = 256,             /* and its keys that are processed at a time */
    TNI_ATTEND_SLAB  = 256              /* features that are computed at a time */
};

typedef struct tni_attention {
    tni_cpu       *cpu;
    const tn_call *call;
    char          *scratch;             /* `each` bytes per worker, then `partial` for all */
    size_t         each;
    char          *partial;             /* dq of every part */
    int64_t        heads, all_heads;    /* of one batch element, of all */
    int64_t        sets, d, dv, queries, keys;
    int64_t        side, blocks;        /* queries per block, number of blocks */
    int64_t        parts, columns;      /* parts of the keys, or of v's columns, `columns` each */
    bool           softmax, squared, sums;
    bool           local;               /* keys of the block only: the state holds the earlier ones */
} tni_attention;

/* Tasks per head of the linear form's backward pass: one for dq, one for dk and dv, if they are needed. */
TNI_UNUSED static inline int tni_attend_sweeps(const tn_call *c) { return (c->out[0].data != NULL) + (c->out[1].data || c->out[2].data); }
#endif /* TN_NO_SEQUENCES */

#ifndef TN_NO_OPERATOR
enum {
    TNI_HOST_CUT  = 1 << 21,            /* operations from which a product uses several threads */
    TNI_HOST_MOST = TNI_GEMM_LARGE / 8, /* doubles of a block of gemm, */
    TNI_HOST_LEAST = TNI_GEMM_DEPTH / 8 * 16    /* and the fewest that hold a panel */
};

/* The size in doubles of a block of gemm, for matrices with extents up to `extent`. */
static inline int64_t tni_host_block(int64_t extent)
{
    return tni_max(TNI_HOST_LEAST, tni_min(TNI_HOST_MOST, (extent + 16) * tni_min(extent, TNI_GEMM_DEPTH / 8)));
}
#endif /* TN_NO_OPERATOR */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* state.c */
TNI_FN tn_simd tni_cpu_simd(tn_simd wanted);
TNI_FN tn_status tni_cpu_move(void *state, void *dst, const void *src, size_t bytes);
TNI_FN void *tni_cpu_alloc(void *state, size_t bytes);
TNI_FN void tni_cpu_release(void *state, void *p, size_t bytes);
TNI_FN void tni_cpu_close(void *state);
TNI_FN tni_cpu *tni_cpu_new(const tn_desc *desc, int threads);
TNI_FN int64_t tni_pass_run(tni_pass *p, int64_t n, int64_t width, int64_t most, tn_task_fn fn);
TNI_FN double tni_parts_sum(const tni_cpu *cpu, int64_t parts);

/* copy.c */
TNI_FN tni_lines tni_lines_of(const tn_view *a, const tn_view *b, const tn_view *c);
TNI_FN int64_t tni_lines_at(const tni_lines *l, int64_t index, int64_t offset[3]);
TNI_FN bool tni_rows_of(const tn_call *c, int k);
TNI_FN bool tni_takes_bf16(const tn_call *c);
TNI_FN tn_status tni_line_pass_run(tni_cpu *cpu, const tn_call *c, const tni_lines *l, tn_task_fn fn);
TNI_FN void tni_copy_transposed(char *to, int64_t to_row, const char *from, int64_t from_column, int64_t rows, int64_t columns,
                                int64_t size);
TNI_FN tn_status tni_cast_run(tni_cpu *cpu, const tn_call *c, tn_task_fn fn);
TNI_FN tn_status tni_cpu_copy_run(tni_cpu *cpu, const tn_call *c);
TNI_FN tn_status tni_cpu_fill_run(tni_cpu *cpu, const tn_call *c);

/* tasks.c */
#ifdef TN_USE_BLAS
TNI_FN bool tni_blas_gemm(tn_dtype dtype, int64_t m, int64_t n, int64_t k, double alpha, const void *a, int64_t a_row,
                          int64_t a_col, const void *b, int64_t b_row, int64_t b_col, double beta, void *c,
                          int64_t c_row, int64_t c_col);
#endif
TNI_FN tn_status tni_cpu_embed_run(tni_cpu *cpu, const tn_call *c);
TNI_FN char *tni_cpu_scratch(tni_cpu *cpu, size_t bytes);
#ifndef TN_NO_SEQUENCES
TNI_FN bool tni_scans_scratch(tni_scans *p, int64_t numbers, int64_t shared, size_t size);
TNI_FN bool tni_attention_scratch(tni_attention *t, int64_t numbers, double shared, size_t size);
TNI_FN tni_attention tni_attention_of(tni_cpu *cpu, const tn_call *c, int64_t side);
#endif

#endif
