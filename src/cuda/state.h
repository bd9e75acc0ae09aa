#pragma once
#include "cuda/port.h"

/* ======================================================================
   >>cuda-state       the state of a context and its first error
   A context owns one stream, one cuBLAS handle, pinned staging buffers, scratch and a list of collected optimiser calls.
   The first error is kept with its message until the caller asks for it. Every entry runs through tnc_run (>>cuda-table),
   which selects the device and checks for errors of CUDA afterwards.
   ====================================================================== */

/* What is computed by cublasLt: extents and types of a product, layouts of its matrices, whether a bias is added. */
typedef struct tnc_plan_key {
    int64_t m, n, k, batch, lead[3], batch_step[3];     /* of A, B and C                                          */
    int32_t op[2], type, c_type, compute, bias;
    int32_t alignment[3];                               /* of the addresses of A, B, C in bytes, a power of 2 up to 16 */
    int32_t unused;                                     /* keys are compared as bytes                             */
} tnc_plan_key;

/* The descriptors of such a product, and the algorithm for it; without one it is computed in another way. */
typedef struct tnc_plan {
    tnc_plan_key           key;
    cublasLtMatmulDesc_t   product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t   algo;
    bool                   usable;
    int64_t                used;                        /* number of the product that used it last */
} tnc_plan;

enum { TNC_PLANS = 128 };

/* The functions of cublasLt that are used, and the plans of the latest products. */
typedef struct tnc_lt {
    void                      *library;
    cublasLtHandle_t           handle;
    cublasLtMatmulPreference_t preference;
    tnc_plan                   plan[TNC_PLANS];
    int                        plans;
    int64_t                    products;
    cublasStatus_t (*create)(cublasLtHandle_t *);
    cublasStatus_t (*destroy)(cublasLtHandle_t);
    size_t         (*version)(void);
    cublasStatus_t (*product_create)(cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t);
    cublasStatus_t (*product_destroy)(cublasLtMatmulDesc_t);
    cublasStatus_t (*product_set)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t);
    cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t);
    cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t);
    cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t);
    cublasStatus_t (*preference_create)(cublasLtMatmulPreference_t *);
    cublasStatus_t (*preference_destroy)(cublasLtMatmulPreference_t);
    cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t);
    cublasStatus_t (*heuristic)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                cublasLtMatmulHeuristicResult_t *, int *);
    cublasStatus_t (*matmul)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t,
                             const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,
                             void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t);
} tnc_lt;

/* The functions of cuBLAS that are used. */
typedef struct tnc_blas {
    void           *library;
    cublasHandle_t  handle;
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*destroy)(cublasHandle_t);
    cublasStatus_t (*version)(cublasHandle_t, int *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    cublasStatus_t (*set_math)(cublasHandle_t, cublasMath_t);
    const char    *(*text)(cublasStatus_t);
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, cudaDataType, int, const void *, cudaDataType, int,
                           const void *, void *, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
    cublasStatus_t (*gemms)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                            const void *, cudaDataType, int, long long, const void *, cudaDataType, int, long long,
                            const void *, void *, cudaDataType, int, long long, int, cublasComputeType_t, cublasGemmAlgo_t);
} tnc_blas;

/* Collected calls of one kind, each for another parameter, that run together: see >>cuda-optim. The struct is passed by
   value as a parameter of a kernel, which may take 4 KiB. */
enum { TNC_PENDING = 45 };

typedef struct tnc_part {
    void   *x[4];                       /* adamw, sgd: value, gradient, moments; muon_end: value, move; sumsq: gradient */
    void   *shadow;                     /* the value in BF16, or NULL                                                   */
    int64_t n, first;                   /* number of elements; index of its first block */
    double  scale, decay, rate;
    int32_t index;                      /* which parameter */
    bool    wide;                       /* all of x are 16-byte aligned, and shadow is 8-byte aligned */
} tnc_part;

typedef struct tnc_pending {
    tn_kernel   kernel;                 /* what the calls have in common */
    tn_dtype    dtype;
    const char *name;
    const void *scalars, *fault;
    double      f[4];                   /* adamw: beta1, beta2, eps, born; sgd: momentum, Nesterov */
    int         count;                  /* number of calls */
    tnc_part    part[TNC_PENDING];
} tnc_pending;

enum { TNC_GEMM_THIN = 64 };             /* a smaller extent makes a product thin */
enum { TNC_STAGE = 1 << 20, TNC_STAGES = 4, TNC_BLAS_WORKSPACE = 32 << 20, TNC_SHARED_RAISED = 64 };

/* Device memory that cannot be freed yet: a graph may use it, or it was released during a capture, when nothing can
   be freed. */
typedef struct tnc_kept { struct tnc_kept *next; void *p; bool of_graph; } tnc_kept;

typedef struct tnc {
    tn_allocator      allocator;
    int               device, sms, capability;      /* device: -1 until one is chosen; capability: 80, 90 */
    size_t            shared_max;                   /* dynamic shared memory that a kernel may ask for    */
    size_t            memory, l2;                   /* bytes of device memory, and of its L2 cache        */
    tn_gemm_precision precision;
    cudaStream_t      stream;
    tnc_blas          blas;
    tnc_lt            lt;
    void             *blas_workspace;               /* of both; their work is in the order of the stream      */
    char             *stage[TNC_STAGES];            /* pinned staging buffers of uploads, used in turn    */
    cudaEvent_t       staged[TNC_STAGES];           /* when the copy from each buffer is done             */
    int               next_stage;
    char             *scratch;
    size_t            scratch_bytes;
    tnc_pending       pending;
    tnc_kept         *kept;                         /* memory to be freed later                           */
    int               graphs;                       /* number of graphs that exist                        */
    const void       *shared_raised[TNC_SHARED_RAISED]; /* kernels whose limit of shared memory is raised */
    int               raised_count;
    bool              capturing;
    bool              wait;                         /* TN_SYNC=1                                          */
    bool              wgmma;                        /* attention by the kernels for sm_90a                */
    decltype(&cuTensorMapEncodeTiled) tma_encode;   /* of the driver; NULL: without TMA                   */
    tn_log_fn         log;                          /* desc.log                                           */
    void             *log_user;
    bool              said_wgmma, said_tma, said_lt;    /* whether the log has heard of the first of each */
    bool              said_lt_fails;
    bool              lost;                         /* a kernel faulted: CUDA accepts no more work        */
    tn_status         late;                         /* of a flush whose caller could not return a status  */
    tn_status         failed;                       /* the first error that was not yet reported          */
    char              why[256];                     /* and its message                                    */
} tnc;

typedef tn_status tnc_entry_fn(tnc *s, const tn_call *call);

/* Runs the collected optimiser calls. Every function that touches device memory or the stream calls it first. */
TNC_FN tn_status tnc_flush(tnc *s);

#ifndef TNC_ONE_FILE                     /* in the one file each of these is defined before it is used */
/* state.cu */
TNC_FN tn_status tnc_error(tnc *s, tn_status status, const char *format, ...);
TNC_FN tn_status tnc_fail(tnc *s, cudaError_t e, const char *what);
TNC_FN tn_status tnc_take_error(tnc *s, tn_status status, char why[TN_WHY]);
TNC_FN tn_status tnc_enter(tnc *s);

/* blas.cu */
TNC_FN void tnc_plan_destroy(const tnc_lt *b, tnc_plan *p);
TNC_FN void tnc_lt_close(tnc_lt *b);
TNC_FN void tnc_blas_close(tnc_blas *b);
TNC_FN void tnc_blas_open(tnc *s, const tn_desc *desc);

/* open.cu */
TNC_FN bool tnc_keep(tnc *s, void *p, bool of_graph);
TNC_FN void tnc_free(tnc *s, void *p);
TNC_FN void tnc_kept_free(tnc *s);
TNC_FN void tnc_close(void *state);
TNC_FN void tnc_say_once(const tnc *s, bool *said, tn_log_level level, const char *text);
TNC_FN void tnc_wgmma_launched(tnc *s, bool tma);
TNC_FN tn_status tnc_open(const tn_desc *desc, void **state, char why[TN_WHY]);
TNC_FN void tnc_device(void *state, char name[128]);

/* memory.cu */
TNC_FN void *tnc_alloc(void *state, size_t bytes);
TNC_FN void tnc_release(void *state, void *p, size_t bytes);
TNC_FN tn_status tnc_upload(void *state, void *to, const void *from, size_t bytes);
TNC_FN tn_status tnc_download(void *state, void *to, const void *from, size_t bytes);
TNC_FN tn_status tnc_sync(void *state, char why[TN_WHY]);
TNC_FN void *tnc_scratch(tnc *s, size_t bytes);
TNC_FN tn_status tnc_capture_begin(void *state, char why[TN_WHY]);
TNC_FN tn_status tnc_capture_end(void *state, void **out, char why[TN_WHY]);
TNC_FN tn_status tnc_replay(void *state, void *graph);
TNC_FN void tnc_graph_release(void *state, void *graph);
#endif
