/* tensornet_cuda.cu - the layers of tensornet.h on NVIDIA GPUs                                       C++17, CUDA 12 or later

   One file beside tensornet.h. Compile it, link it, name it:

       nvcc -O3 -arch=sm_90 -c tensornet_cuda.cu         (native: this machine's GPU; sm_80 is the least)
       cc -c program.c && nvcc program.o tensornet_cuda.o -o program

       tn_desc d = {0};
       d.backend = tn_cuda_backend();
       tn_ctx_create(&d, &ctx, why);

   Where there is no GPU the context runs on the cpu backend and its log says why; desc.backend_required makes it an error.
   A context has one stream of desc.device. Products are cuBLAS's, opened at run time; where it is absent a kernel of
   this file makes them.

   Environment, read when a context opens:
       TN_SYNC=1       waits after every call, so that an error names the very op; nothing can be captured then
       TN_CUBLAS=0     products by this file's own kernel
       CUDA_HOME       where cuBLAS is looked for when the loader does not find it; else /usr/local/cuda

   What to know
       Precision       F64 is F64. F32 is F32 but for __expf in cross_entropy; desc.gemm_precision lets products of F32 go to
                       tensor cores by TF32 or BF16. desc.activations = TN_BF16: what ops make is BF16, sums, statistics and
                       parameters are F32. Uniform numbers and masks are the CPU's to the bit, normal ones to 2 ulp.
       Same bits       on every run on one kind of GPU with one version of cuBLAS: no sum is made by atomics, no choice by
                       time. Another kind has other grids, and so other last bits.
       Devices         each call makes desc.device the current one of its thread; a context has one stream, uploads too.
       Errors          come late, as kernels run while the host goes on: at the next download or sync. A kernel's fault ends
                       its context.
       Optimisers      calls for parameters one after the other wait and run together, up to 48 in one launch; whatever
                       touches the device's memory runs them first.
       Graphs          tn_graph notes a step once and replays it with one call. Scratch may not grow meanwhile: take the step
                       once uncaptured before. What a graph may use stays until the last graph goes.
       Scratch         grows to what the hungriest call so far has asked for, and stays until the context closes.
       Limits          rows of norms and classes below 2^31, chains to 16384 x 16384, 2^32 ids a call, linear attention of
                       2^32 - 1 heads of 2^31 - 1 numbers; else TN_ERR_SHAPE. The states of linear attention and all scratch
                       have to fit the device; else TN_ERR_MEMORY. Quadratic attention that sums more than 2^20 terms is
                       not on tensor cores, and slow.
                       A call of other types than these rows take is made in F32 by the dispatcher.

   SECTIONS (a row's tag is that of its section in tensornet.h, which has the math)
       >>port      how CUDA is spelled, for nvcc and for the engine of tests/cuda_host that runs kernels on the CPU
       >>state     a context's stream, its cuBLAS, its first error          >>memory   alloc, copies, scratch, graphs
       >>device    what rows share: types, numbers, grids, sums, packs, walks, passes over elements, random numbers, faults
       >>rows      the kernel table, in its order
           >>op-copy copy, fill             >>op-random uniform, normal      >>op-add add, mul, div      >>op-sum sum
           >>op-where where                 >>op-softmax softmax and backward
           >>op-act act, >>op-glu glu and their backward                     >>op-prod prod and backward
           >>op-gemm gemm                   >>op-embed embed and backward    >>op-rmsnorm, >>op-layernorm and backward
           >>op-dropout dropout             >>op-cross_entropy               >>op-chain, >>op-rope and backward
           >>op-attention, >>op-attention_linear and backward                >>op-argmax argmax, accuracy
           >>op-optim sumsq, step_begin, adamw, sgd, muon_end, muon_begin; and tick, for >>op-random
       >>table     the backend                                                                                            */

#include "tensornet.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ======================================================================
   >>port     how CUDA is spelled
   Launches, shared memory and assembly stand behind these names and nowhere else.
   ====================================================================== */

#ifdef TN_CUDA_HOST
#include "cuda_host.h"
#define TNC_UNROLL
#define TNC_UNROLL_BY(n)
#define TNC_ROLLED
#define TNC_WHOLE(T, p) (*tnch_aligned<T>(p))
static inline int tnc_thread_anew(void) { return (int)threadIdx.x; }
static inline int tnc_block_anew(void) { return (int)blockIdx.x; }
#define tnc_forget tnch_forget                   /* what is in memory counts as written by nobody */

static inline unsigned tnc_mul_bf16x2(unsigned a, unsigned b)
{
    const float low = __uint_as_float(a << 16) * __uint_as_float(b << 16);
    const float high = __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
    return (unsigned)__bfloat16_as_ushort(__float2bfloat16(low))
         | (unsigned)__bfloat16_as_ushort(__float2bfloat16(high)) << 16;
}

/* sin and cos of pi x; x mod 2 is exact */
static inline void tnc_sincospi(double x, double *sine, double *cosine)
{
    const double angle = 3.141592653589793 * fmod(x, 2.0);
    *sine = sin(angle);
    *cosine = cos(angle);
}
#else
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>
#include <math.h>

#if CUDART_VERSION < 12000
#error tensornet_cuda.cu needs CUDA 12 or later
#endif

/* What is compiled for older ones beside (-arch=all-major) never runs: see tnc_choose. */
#ifdef __CUDA_ARCH_LIST__
template <class... N> static constexpr int tnc_last_of(N... arch) { int last = 0; ((last = arch), ...); return last; }
static_assert(tnc_last_of(__CUDA_ARCH_LIST__) >= 800, "tensornet_cuda.cu needs sm_80 or later: nvcc -arch=sm_90, or native");
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define TNC_ASM(...) __trap()
#else
#define TNC_ASM(...) asm volatile(__VA_ARGS__)
#endif

#define TNC_LAUNCH(kernel, grid, block, shared, stream, ...) (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define TNC_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define TNC_SHARED_ALIGN(A, T, name, ...) __shared__ __align__(A) T name __VA_ARGS__
#define TNC_DYN_SHARED(T, name) \
    extern __shared__ __align__(16) unsigned char tnc_dynamic[]; \
    T *name = reinterpret_cast<T *>(tnc_dynamic)
#define TNC_PRAGMA(x) _Pragma(#x)
#define TNC_UNROLL _Pragma("unroll")            /* before a loop over registers                                */
#define TNC_UNROLL_BY(n) TNC_PRAGMA(unroll n)   /* before one whose loads are to be under way together         */
#define TNC_ROLLED _Pragma("unroll 1")          /* before one that would take registers for all its turns      */
#define TNC_WHOLE(T, p) (*reinterpret_cast<T *>(p))     /* the T at p, moved by one instruction: p is aligned for it */

static inline void tnc_forget(void *, size_t, cudaStream_t) {}

/* threadIdx.x and blockIdx.x, asked for each time: what is made of them takes no registers from a loop's sums. */
static __device__ __forceinline__ int tnc_thread_anew(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}
static __device__ __forceinline__ int tnc_block_anew(void)
{
    int x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}
static __device__ __forceinline__ void tnc_sincospi(double x, double *sine, double *cosine) { sincospi(x, sine, cosine); }

/* 16 bytes from global to shared memory, behind the back of the registers. Both addresses are multiples of 16. */
static __device__ __forceinline__ void tnc_cp_async16(void *shared, const void *global)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    TNC_ASM("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(s), "l"(global) : "memory");
}

static __device__ __forceinline__ void tnc_cp_async_commit(void) { TNC_ASM("cp.async.commit_group;" : : : "memory"); }

/* Until at most N of this thread's groups are under way. */
template <int N> static __device__ __forceinline__ void tnc_cp_async_wait(void)
{
    TNC_ASM("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

/* Four 8 x 8 matrices of 16-bit numbers: lane l gives the address of row l % 8 of matrix l / 8, and gets of matrix i, in
   r[i], the two numbers at row l / 4, columns 2 (l % 4) and the next; _trans: of its transpose. */
static __device__ __forceinline__ void tnc_ldmatrix_x4(unsigned r[4], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    TNC_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s) : "memory");
}

static __device__ __forceinline__ void tnc_ldmatrix_x4_trans(unsigned r[4], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    TNC_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s) : "memory");
}

/* d[16,8] += a[16,16] b[16,8], sums in F32. Of lane l, with g = l / 4 and t = 2 (l % 4): d is (g, t), (g, t+1), (g+8, t),
   (g+8, t+1); a holds the pairs at (g, t), (g+8, t), (g, t+8), (g+8, t+8); b those down the column at (t, g), (t+8, g). */
static __device__ __forceinline__ void tnc_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2])
{
    TNC_ASM("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Two products of BF16 numbers at once, each rounded. */
static __device__ __forceinline__ unsigned tnc_mul_bf16x2(unsigned a, unsigned b)
{
    __nv_bfloat162 x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = __hmul2(x, y);
    memcpy(&a, &x, sizeof a);
    return a;
}
#endif

typedef __nv_bfloat16 tnc_bf16;

/* ======================================================================
   >>state    a context's stream, its cuBLAS, its first error
   ====================================================================== */

/* What of cuBLAS is used. The library is opened when a context is, so that a program runs where it is not installed. */
typedef struct tnc_blas {
    void           *library;
    cublasHandle_t  handle;
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*destroy)(cublasHandle_t);
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

/* Calls of one kind, each on a parameter of its own, that run together: see tnc_flush. It travels as a kernel's parameter,
   of which there are 4 KiB. */
enum { TNC_PENDING = 48 };

typedef struct tnc_part {
    void   *x[4];                       /* adamw, sgd: value, gradient, moments; muon_end: value, move; sumsq: gradient */
    int64_t n, first;                   /* elements, its first block */
    double  scale, decay, rate;
    int32_t index;                      /* of the parameter */
    bool    wide;                       /* all of x at multiples of 16 bytes */
} tnc_part;

typedef struct tnc_pending {
    tn_kernel   kernel;                 /* what they have in common ... */
    tn_dtype    dtype;
    const char *name;
    const void *scalars, *fault;
    double      f[4];                   /* adamw: beta1, beta2, eps, born; sgd: momentum, Nesterov */
    int         count;                  /* ... and how many there are */
    tnc_part    part[TNC_PENDING];
} tnc_pending;

enum { TNC_STAGE = 1 << 20, TNC_STAGES = 4, TNC_BLAS_ROOM = 32 << 20 };

/* Device memory that is still in use: by a graph, or by the work before a capture, within which nothing can be freed. */
typedef struct tnc_kept { struct tnc_kept *next; void *p; bool of_graph; } tnc_kept;

typedef struct tnc {
    tn_allocator      allocator;
    int               device, sms, capability;      /* device: -1 until one is chosen; capability: 80, 90     */
    size_t            shared_max;                   /* dynamic shared memory that a kernel may ask for        */
    size_t            memory;                       /* of the device, free or not                             */
    tn_gemm_precision precision;
    cudaStream_t      stream;
    tnc_blas          blas;
    void             *blas_room;
    char             *stage[TNC_STAGES];            /* pinned memory that uploads travel through, in turn ... */
    cudaEvent_t       staged[TNC_STAGES];           /* ... and when each has left it                          */
    int               next_stage;
    char             *scratch;
    size_t            scratch_bytes;
    tnc_pending       pending;
    tnc_kept         *kept;                         /* what is freed later                                    */
    int               graphs;                       /* that are alive                                         */
    bool              capturing;
    bool              wait;                         /* TN_SYNC=1                                              */
    bool              lost;                         /* after a kernel's fault nothing on the device works     */
    tn_status         late;                         /* of a flush whose caller had no status to return        */
    tn_status         failed;                       /* the first error, until it is told ...                  */
    char              why[256];                     /* ... and its words                                      */
} tnc;

typedef tn_status tnc_row(tnc *s, const tn_call *call);

/* Runs what is pending. Whatever touches device memory, or the stream, from outside calls it first. */
static tn_status tnc_flush(tnc *s);

/* Keeps the first error, which may be what a row answers with numbers, until tnc_tell hands it out. */
static tn_status tnc_refuse(tnc *s, tn_status status, const char *format, ...)
{
    va_list list;
    if (s->failed != TN_OK) return status;
    va_start(list, format);
    vsnprintf(s->why, sizeof s->why, format, list);
    va_end(list);
    return s->failed = status;
}

/* An error of CUDA. One that outlives the call - a kernel's fault - ends the context, which says nothing else from then. */
static tn_status tnc_fail(tnc *s, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return TN_OK;
    (void)cudaGetLastError();
    if (!s->lost && (cudaPeekAtLastError() != cudaSuccess || (!s->capturing && cudaStreamQuery(s->stream) == e))) {
        s->lost = true;
        s->failed = TN_OK;
    }
    (void)cudaGetLastError();                                           /* the query's */
    return tnc_refuse(s, e == cudaErrorMemoryAllocation ? TN_ERR_MEMORY : TN_ERR_BACKEND, "%s: %s", what,
                      cudaGetErrorString(e));
}

/* Hands out the first error, but where none is kept `status`, and forgets it. A lost context tells the same again. */
static tn_status tnc_tell(tnc *s, tn_status status, char why[TN_WHY])
{
    if (s->failed != TN_OK) status = s->failed;
    if (status != TN_OK) snprintf(why, 256, "%s", s->failed != TN_OK ? s->why : tn_status_name(status));
    if (!s->lost) s->failed = TN_OK;
    return status;
}

/* How all begins but sync: on the context's device; what was told is forgotten, and so is an error that the program left. */
static tn_status tnc_enter(tnc *s)
{
    const tn_status late = s->late;
    cudaError_t     e;
    if (s->lost) return TN_ERR_BACKEND;
    s->late = TN_OK;
    if (late != TN_OK) return late;
    s->failed = TN_OK;
    e = cudaSetDevice(s->device);
    (void)cudaGetLastError();
    return tnc_fail(s, e, "cudaSetDevice");
}

/* "gemm [1,64,128] [1,128,32] -> [1,64,32]" */
static void tnc_describe(char *text, size_t size, const tn_call *c)
{
#define TNC_X(ENUM, name) #name,
    static const char *const names[] = { TN_KERNELS(TNC_X) };       /* a static implementation would not lend its own */
#undef TNC_X
    int i, k, n = snprintf(text, size, "%s", names[c->kernel]);
    for (i = 0; i < c->n_in + c->n_out && n >= 0 && (size_t)n + 32 < size; i++) {
        const tn_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        n += snprintf(text + n, size - (size_t)n, i == c->n_in ? " -> [" : " [");
        for (k = 0; v->data && k < v->rank && (size_t)n + 24 < size; k++)
            n += snprintf(text + n, size - (size_t)n, k ? ",%lld" : "%lld", (long long)v->shape[k]);
        n += snprintf(text + n, size - (size_t)n, "]");
    }
}

/* What every row of the table goes through. After a launch CUDA may tell of a fault of any kernel before it. */
template <tnc_row *row> static tn_status tnc_run(void *state, const tn_call *call)
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_enter(s);
    cudaError_t e;
    char        what[200] = "at or before ";
    const int   from = s->wait ? 0 : 13;
    if (status == TN_OK && s->pending.count > 0 && s->pending.kernel != call->kernel) status = tnc_flush(s);
    if (status != TN_OK) return status;
    status = row(s, call);
    if (s->wait && status == TN_OK) status = tnc_flush(s);
    e = cudaGetLastError();
    if (e == cudaSuccess && s->wait && status == TN_OK) e = cudaStreamSynchronize(s->stream);
    if (e == cudaSuccess) return status;
    tnc_describe(what + from, sizeof what - (size_t)from, call);
    return tnc_fail(s, e, what);
}

template <tnc_row *row> static constexpr tn_kernel_fn tnc_entry(void)
{
    if constexpr (row == nullptr) return nullptr;
    else return tnc_run<row>;
}

/* ---- cuBLAS ---------------------------------------------------------------------------------------------------------- */

#define TNC_TEXT_(x) #x
#define TNC_TEXT(x) TNC_TEXT_(x)

#ifdef TN_CUDA_HOST
#define TNC_FIND(function) reinterpret_cast<void *>(tnc_blas_here ? &function : nullptr)
static const bool tnc_blas_here = true;
static void *tnc_library_open(void) { static char engine; return &engine; }
static void  tnc_library_close(void *) {}
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#define TNC_FIND(function) reinterpret_cast<void *>(GetProcAddress((HMODULE)b->library, TNC_TEXT(function)))
static void *tnc_library_open(void) { return (void *)LoadLibraryA("cublas64_" TNC_TEXT(CUBLAS_VER_MAJOR) ".dll"); }
static void  tnc_library_close(void *library) { FreeLibrary((HMODULE)library); }
#else
#include <dlfcn.h>
#define TNC_FIND(function) dlsym(b->library, TNC_TEXT(function))      /* cublasCreate is a macro for cublasCreate_v2 */
#define TNC_BLAS "libcublas.so." TNC_TEXT(CUBLAS_VER_MAJOR)
/* By the loader's paths, or where CUDA was installed, which not all tell the loader. */
static void *tnc_library_open(void)
{
    const char *home = getenv("CUDA_HOME");
    char        path[512];
    void       *library = dlopen(TNC_BLAS, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
    snprintf(path, sizeof path, "%s/lib64/" TNC_BLAS, home && home[0] ? home : "/usr/local/cuda");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}
static void tnc_library_close(void *) {}        /* it stays for the next context: it is large, and ends with the program */
#endif

static void tnc_blas_close(tnc_blas *b)
{
    if (b->handle) b->destroy(b->handle);
    if (b->library) tnc_library_close(b->library);
    memset(b, 0, sizeof *b);
}

/* Without it the context computes with the kernel of this file: slow, so the log is told. Sums of products stay in F32. */
static void tnc_blas_open(tnc *s, const tn_desc *desc)
{
    tnc_blas   *b = &s->blas;
    const char *wanted = getenv("TN_CUBLAS");
    const char *why = "cuBLAS is not found: products are slow";
    if (wanted && strcmp(wanted, "0") == 0) return;
    if ((b->library = tnc_library_open()) != NULL) {
        *(void **)&b->create = TNC_FIND(cublasCreate);
        *(void **)&b->destroy = TNC_FIND(cublasDestroy);
        *(void **)&b->set_stream = TNC_FIND(cublasSetStream);
        *(void **)&b->set_workspace = TNC_FIND(cublasSetWorkspace);
        *(void **)&b->set_math = TNC_FIND(cublasSetMathMode);
        *(void **)&b->text = TNC_FIND(cublasGetStatusString);
        *(void **)&b->gemm = TNC_FIND(cublasGemmEx);
        *(void **)&b->gemms = TNC_FIND(cublasGemmStridedBatchedEx);
        if (b->create && b->destroy && b->set_stream && b->set_workspace && b->set_math && b->text && b->gemm && b->gemms
            && b->create(&b->handle) == CUBLAS_STATUS_SUCCESS && b->set_stream(b->handle, s->stream) == CUBLAS_STATUS_SUCCESS
            && b->set_math(b->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == CUBLAS_STATUS_SUCCESS
            && cudaMalloc(&s->blas_room, TNC_BLAS_ROOM) == cudaSuccess
            && b->set_workspace(b->handle, s->blas_room, TNC_BLAS_ROOM) == CUBLAS_STATUS_SUCCESS) return;
        why = "cuBLAS does not open: products are slow";
    }
    (void)cudaGetLastError();
    tnc_blas_close(b);
    if (desc->log) desc->log(desc->log_user, TN_LOG_WARN, why);
}

/* ---- open and close -------------------------------------------------------------------------------------------------- */

static bool tnc_keep(tnc *s, void *p, bool of_graph)
{
    tnc_kept *k = (tnc_kept *)s->allocator.alloc(sizeof *k, s->allocator.user);
    if (!k) return false;
    k->next = s->kept;
    k->p = p;
    k->of_graph = of_graph;
    s->kept = k;
    return true;
}

/* Gives back what kernels may still use. cudaFree may wait for them, but is not bound to. */
static void tnc_free(tnc *s, void *p)
{
    if (p) cudaStreamSynchronize(s->stream);
    cudaFree(p);
}

/* Frees what nobody needs any more. */
static void tnc_kept_free(tnc *s)
{
    tnc_kept **link = &s->kept;
    while (!s->capturing && *link) {
        tnc_kept *k = *link;
        if (k->of_graph && s->graphs > 0) { link = &k->next; continue; }
        *link = k->next;
        tnc_free(s, k->p);
        s->allocator.release(k, sizeof *k, s->allocator.user);
    }
}

static void tnc_close(void *state)
{
    tnc *s = (tnc *)state;
    int  i;
    if (s->device >= 0) {
        (void)cudaSetDevice(s->device);                 /* a lost one says no to all, but handles hold the host's memory */
        if (s->stream) cudaStreamSynchronize(s->stream);
        tnc_blas_close(&s->blas);
        cudaFree(s->blas_room);
        cudaFree(s->scratch);
        s->graphs = 0;
        s->capturing = false;
        tnc_kept_free(s);
        for (i = 0; i < TNC_STAGES; i++) {
            if (s->stage[i]) cudaFreeHost(s->stage[i]);
            if (s->staged[i]) cudaEventDestroy(s->staged[i]);
        }
        if (s->stream) cudaStreamDestroy(s->stream);
    }
    (void)cudaGetLastError();
    s->allocator.release(s, sizeof *s, s->allocator.user);
}

static __global__ void tnc_nothing(void) {}

/* The device that desc names, if this file's kernels run on it. */
static cudaError_t tnc_choose(tnc *s, int device, char why[TN_WHY])
{
    int                   devices = 0, driver = 0, runtime = 0, major = 0, minor = 0;
    cudaFuncAttributes    attributes;
    cudaError_t           e = cudaGetDeviceCount(&devices);
    if (e == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        if (driver == 0) snprintf(why, 256, "no GPU: there is no NVIDIA driver");
        else snprintf(why, 256, "the driver is for CUDA %d.%d, this program needs %d.%d", driver / 1000, driver % 1000 / 10,
                      runtime / 1000, runtime % 1000 / 10);
        return e;
    }
    if (e != cudaSuccess || devices == 0) {
        snprintf(why, 256, "no GPU: %s", e != cudaSuccess ? cudaGetErrorString(e) : "CUDA sees none");
        return e != cudaSuccess ? e : cudaErrorNoDevice;
    }
    if (device < 0 || device >= devices) {
        snprintf(why, 256, "desc.device is %d, but there are %d GPUs", device, devices);
        return cudaErrorInvalidDevice;
    }
    if ((e = cudaSetDevice(device)) != cudaSuccess) {
        snprintf(why, 256, "GPU %d: %s", device, cudaGetErrorString(e));
        return e;
    }
    s->device = device;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    s->capability = 10 * major + minor;
    e = s->capability < 80 ? cudaErrorNoKernelImageForDevice : cudaFuncGetAttributes(&attributes, tnc_nothing);
    if (e == cudaSuccess && attributes.ptxVersion < 80) e = cudaErrorNoKernelImageForDevice;
    if (s->capability < 80) snprintf(why, 256, "GPU %d is sm_%d, the least is sm_80", device, s->capability);
    else if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction)
        snprintf(why, 256, "GPU %d is sm_%d: %s; nvcc -arch=sm_%d compiles tensornet_cuda.cu for it", device, s->capability,
                 cudaGetErrorString(e), s->capability);
    else if (e != cudaSuccess) snprintf(why, 256, "GPU %d is sm_%d: %s", device, s->capability, cudaGetErrorString(e));
    return e;
}

static tn_status tnc_open(const tn_desc *desc, void **state, char why[TN_WHY])
{
    tnc        *s = (tnc *)desc->allocator.alloc(sizeof *s, desc->allocator.user);
    const char *wait = getenv("TN_SYNC");
    cudaError_t e;
    size_t      left;
    int         i, shared = 0;
    if (!s) {
        snprintf(why, 256, "no memory for %zu bytes of state", sizeof *s);
        return TN_ERR_MEMORY;
    }
    memset(s, 0, sizeof *s);
    s->allocator = desc->allocator;
    s->device = -1;
    s->precision = desc->gemm_precision;
    s->wait = wait && strcmp(wait, "0") != 0;
    if ((e = tnc_choose(s, desc->device, why)) == cudaSuccess) {
        cudaDeviceGetAttribute(&s->sms, cudaDevAttrMultiProcessorCount, s->device);
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, s->device);
        s->shared_max = (size_t)shared;
        e = cudaMemGetInfo(&left, &s->memory);
        if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
        for (i = 0; i < TNC_STAGES && e == cudaSuccess; i++) {
            e = cudaMallocHost((void **)&s->stage[i], TNC_STAGE);
            if (e == cudaSuccess) e = cudaEventCreateWithFlags(&s->staged[i], cudaEventDisableTiming);
        }
        if (e != cudaSuccess) snprintf(why, 256, "GPU %d: %s", s->device, cudaGetErrorString(e));
    }
    if (e != cudaSuccess) {
        tnc_close(s);
        return e == cudaErrorMemoryAllocation ? TN_ERR_MEMORY : TN_ERR_BACKEND;
    }
    tnc_blas_open(s, desc);
    *state = s;
    return TN_OK;
}

static void tnc_device(void *state, char name[128])
{
    const tnc     *s = (const tnc *)state;
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, s->device) != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(name, 128, "sm_%d", s->capability);
    } else snprintf(name, 128, "%.100s, sm_%d", p.name, s->capability);
}

/* ======================================================================
   >>memory   alloc, copies, scratch
   ====================================================================== */

static void *tnc_alloc(void *state, size_t bytes)
{
    tnc  *s = (tnc *)state;
    void *p = NULL;
    if (s->lost || cudaSetDevice(s->device) != cudaSuccess) return NULL;
    if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
    (void)cudaGetLastError();                                   /* a full device is the caller's to tell */
    return NULL;
}

static void tnc_release(void *state, void *p, size_t bytes)
{
    tnc            *s = (tnc *)state;
    const tn_status status = tnc_flush(s);
    (void)bytes;
    if (s->late == TN_OK) s->late = status;
    if (cudaSetDevice(s->device) == cudaSuccess && !(s->capturing && tnc_keep(s, p, false))) tnc_free(s, p);
    (void)cudaGetLastError();
}

/* Through pinned memory, between the kernels of the one stream: the host goes on as soon as its bytes are there. */
static tn_status tnc_upload(void *state, void *to, const void *from, size_t bytes)
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_enter(s);
    cudaError_t e = cudaSuccess;
    if (status == TN_OK) status = tnc_flush(s);
    if (status != TN_OK) return status;
    while (bytes > 0 && e == cudaSuccess) {
        size_t n = bytes < TNC_STAGE ? bytes : (size_t)TNC_STAGE;
        int    i = s->next_stage;
        s->next_stage = (i + 1) % TNC_STAGES;
        if ((e = cudaEventSynchronize(s->staged[i])) != cudaSuccess) break;
        memcpy(s->stage[i], from, n);
        e = cudaMemcpyAsync(to, s->stage[i], n, cudaMemcpyHostToDevice, s->stream);
        if (e == cudaSuccess) e = cudaEventRecord(s->staged[i], s->stream);
        to = (char *)to + n;
        from = (const char *)from + n;
        bytes -= n;
    }
    return tnc_fail(s, e, "upload");
}

static tn_status tnc_download(void *state, void *to, const void *from, size_t bytes)
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_enter(s);
    cudaError_t e = cudaSuccess;
    if (status == TN_OK) status = tnc_flush(s);
    if (status != TN_OK) return status;
    if (bytes > 0) e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
    return tnc_fail(s, e, "download");
}

/* Tells the first error since the last sync, be the stream well by now or not. While it is captured it is left alone. */
static tn_status tnc_sync(void *state, char why[TN_WHY])
{
    tnc      *s = (tnc *)state;
    tn_status status = s->late;
    s->late = TN_OK;
    if (!s->capturing) {
        const tn_status flushed = tnc_flush(s);
        cudaError_t     e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
        if (status == TN_OK) status = flushed;
        if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
        (void)tnc_fail(s, e, "a kernel since the last sync (TN_SYNC=1 names it)");
    }
    return tnc_tell(s, status, why);
}

/* Device memory that is the calling row's until it returns: what it launches comes before the next row's. NULL: none left,
   or it would have to grow while a graph is captured; the numbers are kept for sync. What is in it, nobody wrote. */
static void *tnc_scratch(tnc *s, size_t bytes)
{
    void       *p = NULL;
    size_t      more;
    cudaError_t e;
    if (bytes == 0) bytes = 1;                                  /* NULL would be an error */
    if (bytes <= s->scratch_bytes) {
        tnc_forget(s->scratch, bytes, s->stream);
        return s->scratch;
    }
    if (s->capturing) {
        tnc_refuse(s, TN_ERR_MEMORY, "%zu bytes of scratch: there are %zu, which cannot grow while a graph is captured",
                   bytes, s->scratch_bytes);
        return NULL;
    }
    if (s->graphs > 0 && s->scratch) {
        if (!tnc_keep(s, s->scratch, true)) return NULL;
    } else tnc_free(s, s->scratch);
    s->scratch = NULL;
    s->scratch_bytes = 0;
    more = bytes + bytes / 4;                                   /* not each time by a little */
    e = cudaMalloc(&p, more);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        e = cudaMalloc(&p, more = bytes);
    }
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        tnc_refuse(s, TN_ERR_MEMORY, "%zu bytes of scratch: of the device's %zu so many are not left", bytes, s->memory);
    } else (void)tnc_fail(s, e, "at or before a call for scratch");
    if (e != cudaSuccess) return NULL;
    s->scratch = (char *)p;
    s->scratch_bytes = more;
    return p;
}

/* ---- graphs: what the stream would do, noted and instantiated once --------------------------------------------------- */

static tn_status tnc_capture_fails(tnc *s, tn_status status, char why[TN_WHY])
{
    char words[256];
    status = tnc_tell(s, status, words);
    snprintf(why, 256, "capture: %.240s", words);
    return status;
}

static tn_status tnc_capture_begin(void *state, char why[TN_WHY])
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_enter(s);
    cudaError_t e;
    if (s->wait) {
        snprintf(why, 256, "TN_SYNC=1 waits after every kernel, which no capture can");
        return TN_ERR_BACKEND;
    }
    if (status == TN_OK) status = tnc_flush(s);
    if (status != TN_OK) return tnc_capture_fails(s, status, why);
    e = cudaStreamSynchronize(s->stream);           /* a graph that goes while another is captured has run */
    if (e == cudaSuccess) e = cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess) return tnc_capture_fails(s, tnc_fail(s, e, "the stream"), why);
    s->capturing = true;
    return TN_OK;
}

/* Whatever happens, the stream is no longer captured after it. */
static tn_status tnc_capture_end(void *state, void **out, char why[TN_WHY])
{
    tnc            *s = (tnc *)state;
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t run = NULL;
    tn_status       status = tnc_flush(s);
    cudaError_t     e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (e == cudaSuccess) e = cudaStreamEndCapture(s->stream, &graph);
    s->capturing = false;
    if (status == TN_OK && e == cudaSuccess) e = cudaGraphInstantiate(&run, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (status == TN_OK) status = tnc_fail(s, e, "the graph");
    (void)cudaGetLastError();
    if (status == TN_OK) s->graphs++;
    tnc_kept_free(s);
    if (status != TN_OK) return tnc_capture_fails(s, status, why);
    *out = run;
    return TN_OK;
}

static tn_status tnc_replay(void *state, void *graph)
{
    tnc      *s = (tnc *)state;
    tn_status status = tnc_enter(s);
    if (status == TN_OK) status = tnc_flush(s);
    return status == TN_OK ? tnc_fail(s, cudaGraphLaunch((cudaGraphExec_t)graph, s->stream), "replay") : status;
}

static void tnc_graph_release(void *state, void *graph)
{
    tnc *s = (tnc *)state;
    if (cudaSetDevice(s->device) == cudaSuccess) {
        if (!s->capturing) cudaStreamSynchronize(s->stream);        /* for its last replay */
        cudaGraphExecDestroy((cudaGraphExec_t)graph);
    }
    s->graphs--;
    tnc_kept_free(s);
    (void)cudaGetLastError();
}

/* ======================================================================
   >>device   what kernels share
   ====================================================================== */

/* ---- types ----------------------------------------------------------------------------------------------------------- */

/* What parameters, statistics and sums are where activations are T. */
template <typename T> struct tnc_real { typedef T type; };
template <> struct tnc_real<tnc_bf16> { typedef float type; };

template <typename T> struct tnc_code;
template <> struct tnc_code<float> { enum { dtype = TN_F32 }; };
template <> struct tnc_code<double> { enum { dtype = TN_F64 }; };
template <> struct tnc_code<tnc_bf16> { enum { dtype = TN_BF16 }; };

/* `statement` with T = the type of dtype; a row that has no such kernel says so before anything is done. */
#define TNC_TYPES(code, T, ...) \
    switch (code) { \
    case TN_F32:  { typedef float T; __VA_ARGS__; break; } \
    case TN_F64:  { typedef double T; __VA_ARGS__; break; } \
    case TN_BF16: { typedef tnc_bf16 T; __VA_ARGS__; break; } \
    default: return TN_ERR_DTYPE; \
    }

/* The same where BF16 would lose too much: of it the dispatcher makes F32. */
#define TNC_REALS(code, R, ...) \
    switch (code) { \
    case TN_F32: { typedef float R; __VA_ARGS__; break; } \
    case TN_F64: { typedef double R; __VA_ARGS__; break; } \
    default: return TN_ERR_DTYPE; \
    }

/* A case of a switch over two or three dtypes */
#define TNC_MIX(y, a, b) ((int)(y) << 8 | (int)(a) << 4 | (int)(b))

static inline int64_t tnc_size_of(int dtype) { return dtype == TN_F64 ? 8 : dtype == TN_BF16 ? 2 : 4; }

/* An operand that is absent fits every type. */
static inline bool tnc_has(const tn_view *v, int dtype) { return !v->data || (int)v->dtype == dtype; }

/* Have all operands that there are the same type? */
static bool tnc_alike(const tn_call *c)
{
    int i;
    for (i = 0; i < c->n_in; i++)
        if (!tnc_has(&c->in[i], c->out[0].dtype)) return false;
    for (i = 1; i < c->n_out; i++)
        if (!tnc_has(&c->out[i], c->out[0].dtype)) return false;
    return true;
}

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float    tnc_to(float x) { return x; }
static __device__ __forceinline__ double   tnc_to(double x) { return x; }
static __device__ __forceinline__ float    tnc_to(tnc_bf16 x) { return __bfloat162float(x); }
static __device__ __forceinline__ uint16_t tnc_to(uint16_t x) { return x; }         /* bits of what is only moved */
static __device__ __forceinline__ uint32_t tnc_to(uint32_t x) { return x; }
static __device__ __forceinline__ uint64_t tnc_to(uint64_t x) { return x; }
template <typename T> static __device__ __forceinline__ T tnc_from(typename tnc_real<T>::type x) { return T(x); }
template <> __device__ __forceinline__ tnc_bf16 tnc_from<tnc_bf16>(float x) { return __float2bfloat16(x); }

/* Functions by one name for both types. FAST: to 2e-6, which is nothing beside BF16's 4e-3. */
static __device__ __forceinline__ float  tnc_fma(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ __forceinline__ double tnc_fma(double a, double b, double c) { return fma(a, b, c); }
static __device__ __forceinline__ float  tnc_sqrt(float x) { return sqrtf(x); }
static __device__ __forceinline__ double tnc_sqrt(double x) { return sqrt(x); }
static __device__ __forceinline__ float  tnc_abs(float x) { return fabsf(x); }
static __device__ __forceinline__ double tnc_abs(double x) { return fabs(x); }
static __device__ __forceinline__ float  tnc_rint(float x) { return rintf(x); }
static __device__ __forceinline__ double tnc_rint(double x) { return rint(x); }
static __device__ __forceinline__ float  tnc_log(float x) { return logf(x); }
static __device__ __forceinline__ double tnc_log(double x) { return log(x); }
static __device__ __forceinline__ float  tnc_tanh(float x) { return tanhf(x); }
static __device__ __forceinline__ double tnc_tanh(double x) { return tanh(x); }
template <bool FAST> static __device__ __forceinline__ float tnc_exp(float x) { return FAST ? __expf(x) : expf(x); }
template <bool FAST> static __device__ __forceinline__ double tnc_exp(double x) { return exp(x); }
template <bool FAST>
static __device__ __forceinline__ float tnc_quotient(float a, float b) { return FAST ? __fdividef(a, b) : a / b; }
template <bool FAST> static __device__ __forceinline__ double tnc_quotient(double a, double b) { return a / b; }

/* The larger; a NaN is passed over. */
template <typename R> static __device__ __forceinline__ R tnc_larger(R a, R b) { return a > b || b != b ? a : b; }

static __host__ __device__ inline int64_t tnc_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int tnc_bound(int64_t x, int low, int high) { return x < low ? low : x > high ? high : (int)x; }

/* ---- shared memory ---------------------------------------------------------------------------------------------------- */

/* Before a launch with more shared memory than the 48 KiB that all kernels may have. What is static counts as well: at most
   16 KiB beside dynamic memory in this file, so that below 32 nothing is asked. The limit is the kernel's, for all threads
   and graphs: so it becomes what the device has, and never less again. */
template <class... P> static void tnc_shared_for(const tnc *s, void (*kernel)(P...), size_t bytes)
{
    cudaFuncAttributes a;
    if (bytes > 32 << 10 && cudaFuncGetAttributes(&a, kernel) == cudaSuccess
        && (size_t)a.maxDynamicSharedSizeBytes + a.sharedSizeBytes < s->shared_max)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)(s->shared_max - a.sharedSizeBytes));
}

/* ---- grids: what falls to a block, to a thread ----------------------------------------------------------------------- */

enum { TNC_THREADS = 256 };              /* of most blocks */

/* A block for each part of the work: a kernel that only streams is fastest so. Beyond 2^30 blocks they loop. */
static inline unsigned tnc_blocks(int64_t n, int64_t each)
{
    const int64_t blocks = tnc_ceil(n, each);
    return (unsigned)(blocks < 1 ? 1 : blocks < (1 << 30) ? blocks : 1 << 30);
}

/* As many as the device has room for: where a block keeps something from part to part, or leaves a sum of its own. */
static inline unsigned tnc_grid(const tnc *s, int64_t n, int64_t each)
{
    return (unsigned)tnc_bound(tnc_ceil(n, each), 1, s->sms * 16);
}

/* A kernel of such blocks, on the stream of s */
#define TNC_START(kernel, blocks, ...) TNC_LAUNCH(kernel, blocks, TNC_THREADS, 0, s->stream, __VA_ARGS__)

/* What a thread has of n elements, among all blocks */
#define TNC_MINE(i, n) \
    int64_t i = (int64_t)blockIdx.x * TNC_THREADS + threadIdx.x; i < (n); i += (int64_t)gridDim.x * TNC_THREADS

/* Of a row of so many pieces: the power of two of threads that it keeps busy. */
static inline int tnc_lanes(int64_t pieces, int most)
{
    int lanes = 1;
    while (lanes < most && lanes < pieces) lanes *= 2;
    return lanes;
}

/* A row belongs to `lanes` threads: to a power of two up to a warp - then a block has several rows - or to the whole block.
   Which, is a rule of the shape alone. held: how many pieces a thread can keep; most: threads of the largest block. */
typedef struct tnc_rows { int lanes, threads; } tnc_rows;

static inline tnc_rows tnc_rows_of(int64_t pieces, int held, int most)
{
    tnc_rows r = { tnc_lanes(pieces, 32), TNC_THREADS };
    if (pieces > 32 * held) r.lanes = r.threads = 32 * tnc_bound(tnc_ceil(pieces, held * 32), 2, most / 32);
    return r;
}

static __device__ __forceinline__ int tnc_lane(int lanes) { return (int)threadIdx.x & (lanes > 32 ? 1023 : lanes - 1); }

/* ---- sums: the same tree each time, the result in every thread of it; every thread of the block comes here ----------- */

/* Over neighbours in a warp, a power of two of them */
template <typename R> static __device__ __forceinline__ R tnc_lanes_sum(R x, int lanes)
{
    for (int k = lanes >> 1; k; k >>= 1) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

template <typename R> static __device__ __forceinline__ R tnc_warp_sum(R x) { return tnc_lanes_sum(x, 32); }

/* Over a block of whole warps */
template <typename R> static __device__ __forceinline__ R tnc_block_sum(R x)
{
    TNC_SHARED(R, part, [32]);
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, warps = (int)blockDim.x >> 5;
    x = tnc_warp_sum(x);
    if (lane == 0) part[warp] = x;
    __syncthreads();
    x = tnc_warp_sum(lane < warps ? part[lane] : R(0));
    __syncthreads();                                            /* part may be used again at once */
    return x;
}

/* Over the threads of a row */
template <typename R> static __device__ __forceinline__ R tnc_row_sum(R x, int lanes)
{
    return lanes > 32 ? tnc_block_sum(x) : tnc_lanes_sum(x, lanes);
}

template <typename R> static __device__ __forceinline__ R tnc_row_largest(R x, int lanes)
{
    TNC_SHARED(R, part, [32]);
    const int warp = (int)threadIdx.x >> 5, warps = (int)blockDim.x >> 5;
    int k;
    for (k = lanes > 32 ? 16 : lanes >> 1; k; k >>= 1) x = tnc_larger(x, __shfl_xor_sync(0xffffffffu, x, k));
    if (lanes <= 32) return x;
    if ((threadIdx.x & 31) == 0) part[warp] = x;
    __syncthreads();
    for (k = 0; k < warps; k++) x = tnc_larger(x, part[k]);
    __syncthreads();
    return x;
}

/* to[C] += the sum over `parts` rows of part[parts,C]: eight threads a column, in a fixed order. */
template <typename R> static __global__ void __launch_bounds__(TNC_THREADS)
tnc_add_parts_kernel(const R *part, int64_t parts, int64_t C, R *to)
{
    TNC_SHARED(R, sums, [8][33]);
    const int     column = (int)threadIdx.x & 31, lane = (int)threadIdx.x >> 5;
    const int64_t c = (int64_t)blockIdx.x * 32 + column;
    int64_t i;
    R       sum = 0;
    int     k;
    TNC_UNROLL_BY(4)
    for (i = lane; c < C && i < parts; i += 8) sum += part[i * C + c];
    sums[lane][column] = sum;
    __syncthreads();
    if (lane > 0 || c >= C) return;
    for (sum = 0, k = 0; k < 8; k++) sum += sums[k][column];
    to[c] += sum;
}

template <typename R> static void tnc_add_parts(tnc *s, const R *part, int64_t parts, int64_t C, R *to)
{
    TNC_START((tnc_add_parts_kernel<R>), (unsigned)tnc_ceil(C, 32), part, parts, C, to);
}

/* to = sum of part[parts] / count */
template <typename N, typename R> static __global__ void __launch_bounds__(TNC_THREADS)
tnc_mean_kernel(const N *part, int64_t parts, double count, R *to)
{
    N       sum = 0;
    int64_t i;
    for (i = threadIdx.x; i < parts; i += TNC_THREADS) sum += part[i];
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) *to = (R)((double)sum / count);
}

/* ---- packs: V numbers that travel together ------------------------------------------------------------------------------
   16 bytes where rows begin at multiples of 16, else one number. A pack is a struct of the numbers themselves, so that it
   may alias them; nvcc moves it by one instruction. */

template <typename T, int V> struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) tnc_pack { T x[V]; };

template <typename T> struct tnc_wide { enum { count = 16 / sizeof(T) }; };          /* numbers of a pack */

/* A loop over a pack's numbers */
#define TNC_EACH TNC_UNROLL for (int k = 0; k < V; k++)

static inline bool tnc_aligned(const void *p, size_t bytes = 16) { return (uintptr_t)p % bytes == 0; }

template <int V, typename T> static __device__ __forceinline__ tnc_pack<T, V> tnc_fetch(const T *from)
{
    typedef const tnc_pack<T, V> P;
    return TNC_WHOLE(P, from);
}

template <int V, typename T>
static __device__ __forceinline__ void tnc_unpack(typename tnc_real<T>::type (&to)[V], const tnc_pack<T, V> &p)
{
    TNC_EACH to[k] = tnc_to(p.x[k]);
}

template <int V, typename T>
static __device__ __forceinline__ void tnc_load(typename tnc_real<T>::type (&to)[V], const T *from)
{
    tnc_unpack<V, T>(to, tnc_fetch<V>(from));
}

template <int V, typename T>
static __device__ __forceinline__ void tnc_store(T *to, const typename tnc_real<T>::type (&from)[V])
{
    typedef tnc_pack<T, V> P;
    P p;
    TNC_EACH p.x[k] = tnc_from<T>(from[k]);
    TNC_WHOLE(P, to) = p;
}

template <int V, typename T>
static __device__ __forceinline__ void tnc_add_to(T *to, const typename tnc_real<T>::type (&x)[V])
{
    typename tnc_real<T>::type sum[V];
    tnc_load(sum, to);
    TNC_EACH sum[k] += x[k];
    tnc_store(to, sum);
}

/* ---- tiles of BF16 numbers in shared memory, pairs in registers ------------------------------------------------------ */

/* Where piece first + more of a row stands, in numbers: a row is `pieces` (a power of 2) pieces of 8 numbers, 16 bytes, what
   ldmatrix reads at once of each of 8 rows, which should lie in different banks. So piece p of row r is found at p xor r % 8
   where a row fills lines of 128 bytes; where a line has several rows, at p xor the line, as far as a row has pieces.
   `first` is even and known to the compiler, so that what more and row make of it is found once; PIECES: what it knows of
   pieces, else 0. */
template <int PIECES = 0>
static __device__ __forceinline__ int tnc_piece_at(int row, int first, int more, int pieces = PIECES)
{
    const int n = PIECES ? PIECES : pieces, lines = n < 8 ? 8 / n : 1, mask = (n < 8 ? n : 8) - 1;
    const int key = PIECES ? row / lines & mask : (n >= 8 ? row : n == 4 ? row >> 1 : row >> 2) & mask;
    return row * (n * 8) + ((first & ~mask) << 3) + (((first & mask) ^ (more ^ key)) << 3);
}

static __device__ __forceinline__ unsigned tnc_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    unsigned             bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* Two neighbouring numbers of a row, from `column` on, stored or added; pairs: the row is aligned for them, its width
   even. */
static __device__ __forceinline__ void tnc_put_two(char *row, int column, int width, bool f32, bool pairs, bool add, float x,
                                                   float y)
{
    if (column >= width) return;
    if (f32 && pairs) {
        float2 *to = (float2 *)row + column / 2, old = add ? *to : make_float2(0, 0);
        *to = make_float2(old.x + x, old.y + y);
    } else if (pairs) {
        unsigned *to = (unsigned *)row + column / 2, old = add ? *to : 0u;
        *to = tnc_pair(__uint_as_float(old << 16) + x, __uint_as_float(old & 0xffff0000u) + y);
    } else {
        float    *to = (float *)row + column;
        tnc_bf16 *small = (tnc_bf16 *)row + column;
        int       i;
        for (i = 0; i < 2 && column + i < width; i++) {
            const float value = i ? y : x;
            if (f32) to[i] = add ? to[i] + value : value;
            else small[i] = __float2bfloat16(add ? __bfloat162float(small[i]) + value : value);
        }
    }
}

/* ---- views that are walked in step --------------------------------------------------------------------------------------
   What a kernel gets instead of views: the axes that are left once those that follow each other in every view have become
   one, those with the smallest steps of view 0 first. A thread finds its element's place in each view by division, which
   multiplies where numbers are below 2^31: q = (high(n m) + n) >> shift with m = 2^32 (2^shift - d) / d + 1 (Granlund &
   Montgomery 1994). A walk in pieces of V elements has them along the first axis, which each view steps along by 1, or by 0
   where it is one number for all. */

enum { TNC_VIEWS = 3 };

typedef struct tnc_divisor { int64_t by; uint32_t factor; int32_t shift; } tnc_divisor;

typedef struct tnc_axis { tnc_divisor extent; int64_t step[TNC_VIEWS]; } tnc_axis;

typedef struct tnc_walk {
    int64_t  count;                      /* elements, or pieces */
    int      rank;                       /* 1 at least          */
    bool     wide;                       /* beyond 2^31         */
    tnc_axis axis[TN_MAX_RANK];
} tnc_walk;

static tnc_divisor tnc_divisor_of(int64_t by)
{
    tnc_divisor d = { by, 1, 0 };
    if (by < 1 || by > INT32_MAX) return d;
    while (d.shift < 31 && ((int64_t)1 << d.shift) < by) d.shift++;
    d.factor = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - (uint64_t)by)) / (uint64_t)by + 1);
    return d;
}

static __device__ __forceinline__ int64_t tnc_divide(int64_t n, const tnc_divisor &d, bool wide)
{
    if (wide) return n / d.by;
    return (int64_t)((uint32_t)((uint64_t)(uint32_t)n * d.factor >> 32) + (uint32_t)n) >> d.shift;
}

template <int VIEWS> static __device__ __forceinline__ void tnc_at(const tnc_walk &w, int64_t i, int64_t (&at)[TNC_VIEWS])
{
    int k, v;
    for (v = 0; v < VIEWS; v++) at[v] = 0;
    for (k = 0; k + 1 < w.rank; k++) {
        const int64_t q = tnc_divide(i, w.axis[k].extent, w.wide), r = i - q * w.axis[k].extent.by;
        for (v = 0; v < VIEWS; v++) at[v] += r * w.axis[k].step[v];
        i = q;
    }
    for (v = 0; v < VIEWS; v++) at[v] += i * w.axis[k].step[v];
}

/* Views of one shape, that of the first; fewer than three end with NULL. */
static tnc_walk tnc_walk_of(const tn_view *a, const tn_view *b, const tn_view *c)
{
    const tn_view *view[TNC_VIEWS] = { a, b, c };
    tnc_walk w;
    int      i, k, v;
    memset(&w, 0, sizeof w);
    w.count = 1;
    for (i = a->rank - 1; i >= 0; i--) {
        tnc_axis axis = { tnc_divisor_of(a->shape[i]), { 0, 0, 0 } };
        w.count *= a->shape[i];
        if (a->shape[i] == 1) continue;
        for (v = 0; v < TNC_VIEWS; v++) axis.step[v] = view[v] ? view[v]->strides[i] : 0;
        for (k = w.rank++; k > 0 && llabs(w.axis[k - 1].step[0]) > llabs(axis.step[0]); k--) w.axis[k] = w.axis[k - 1];
        w.axis[k] = axis;
    }
    w.wide = w.count > INT32_MAX;
    for (i = 1, k = 0; i < w.rank; i++) {
        bool follows = true;
        for (v = 0; v < TNC_VIEWS; v++)
            follows = follows && w.axis[i].step[v] == w.axis[k].step[v] * w.axis[k].extent.by;
        if (follows) w.axis[k].extent = tnc_divisor_of(w.axis[k].extent.by * w.axis[i].extent.by);
        else w.axis[++k] = w.axis[i];
    }
    if (w.rank > 0) w.rank = k + 1;
    else {
        w.rank = 1;
        w.axis[0].extent = tnc_divisor_of(1);
    }
    return w;
}

/* In pieces of V elements, if they lie so in every view that has a size, and all begin at multiples of 16 bytes. */
static bool tnc_walk_widen(tnc_walk *w, int V, const void *const *p, const size_t *size)
{
    int k, v;
    if (w->axis[0].extent.by % V != 0) return false;
    for (v = 0; v < TNC_VIEWS; v++) {
        if (size[v] == 0 || (v > 0 && w->axis[0].step[v] == 0)) continue;
        if (w->axis[0].step[v] != 1 || !tnc_aligned(p[v])) return false;
        for (k = 1; k < w->rank; k++)
            if (w->axis[k].step[v] * (int64_t)size[v] % 16 != 0) return false;
    }
    w->axis[0].extent = tnc_divisor_of(w->axis[0].extent.by / V);
    for (v = 0; v < TNC_VIEWS; v++) w->axis[0].step[v] *= V;
    w->count /= V;
    w->wide = w->count > INT32_MAX;
    return true;
}

/* ---- passes over elements -----------------------------------------------------------------------------------------------
   y = op(a, b), or y += it, in one pass: each byte is read once and written once, 16 at a time; a thread has two pieces
   under way, which keeps 32 KiB and more of a multiprocessor's loads in flight. An op takes arrays, so that a switch in it
   is taken once for a whole piece. It says how many inputs it reads and whether it can be added to y. */

template <int V, typename T>
static __device__ __forceinline__ void tnc_load_or_spread(typename tnc_real<T>::type (&to)[V], const T *from, bool one)
{
    if (V == 1 || !one) tnc_load(to, from);
    else {
        const typename tnc_real<T>::type x = tnc_to(*from);
        TNC_EACH to[k] = x;
    }
}

template <class Op, int V, typename Y, typename A, typename B>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_map_kernel(const tnc_walk w, const Op op, Y *y, const A *a, const B *b, const bool add)
{
    typedef typename tnc_real<Y>::type R;
    enum { PIECES = 2 };
    const int64_t all = (int64_t)gridDim.x * (TNC_THREADS * PIECES);
    for (int64_t first = (int64_t)blockIdx.x * (TNC_THREADS * PIECES) + threadIdx.x; first < w.count; first += all) {
        int64_t at[PIECES][TNC_VIEWS];
        R va[PIECES][V], vb[PIECES][V], vy[PIECES][V];
        TNC_UNROLL
        for (int u = 0; u < PIECES; u++) {
            if (first + u * TNC_THREADS >= w.count) break;
            tnc_at<1 + Op::inputs>(w, first + u * TNC_THREADS, at[u]);
            if constexpr (Op::inputs > 0) {
                tnc_load_or_spread<V>(va[u], a + at[u][1], w.axis[0].step[1] == 0);
            }
            if constexpr (Op::inputs > 1) {
                tnc_load_or_spread<V>(vb[u], b + at[u][2], w.axis[0].step[2] == 0);
            }
            if constexpr (Op::adds) {
                if (add) tnc_load(vy[u], y + at[u][0]);
            }
        }
        TNC_UNROLL
        for (int u = 0; u < PIECES; u++) {
            R v[V];
            if (first + u * TNC_THREADS >= w.count) break;
            op(v, va[u], vb[u]);
            if constexpr (Op::adds) {
                TNC_EACH if (add) v[k] += vy[u][k];
            }
            tnc_store(y + at[u][0], v);
        }
    }
}

template <class Op, int V, typename Y, typename A, typename B>
static void tnc_map_launch(tnc *s, const tnc_walk &w, const Op &op, Y *y, const A *a, const B *b, bool add)
{
    TNC_START((tnc_map_kernel<Op, V, Y, A, B>), tnc_blocks(w.count, TNC_THREADS * 2), w, op, y, a, b, add);
}

/* w: of y, a, b. Pieces of 16 bytes of the smallest type; a flat walk that does not end with one has its last few apart. */
template <class Op, typename Y, typename A, typename B>
static void tnc_map(tnc *s, tnc_walk w, const Op &op, Y *y, const A *a, const B *b, bool add)
{
    constexpr size_t least = sizeof(Y) < sizeof(A) ? sizeof(Y) < sizeof(B) ? sizeof(Y) : sizeof(B)
                                                   : sizeof(A) < sizeof(B) ? sizeof(A) : sizeof(B);
    constexpr int    V = (int)(16 / least);
    const void      *p[TNC_VIEWS] = { y, a, b };
    const size_t     size[TNC_VIEWS] = { sizeof(Y), Op::inputs > 0 ? sizeof(A) : 0, Op::inputs > 1 ? sizeof(B) : 0 };
    tnc_walk         whole = w;
    int64_t          rest = w.rank == 1 ? w.count % V : 0;
    if (w.count == 0) return;
    if (rest > 0 && w.count > V) {
        whole.count -= rest;
        whole.axis[0].extent = tnc_divisor_of(whole.count);
    } else rest = 0;
    if (!tnc_walk_widen(&whole, V, p, size)) {
        tnc_map_launch<Op, 1>(s, w, op, y, a, b, add);
        return;
    }
    tnc_map_launch<Op, V>(s, whole, op, y, a, b, add);
    if (rest > 0) {
        const int64_t done = w.count - rest;
        w.count = rest;
        tnc_map_launch<Op, 1>(s, w, op, y + done * w.axis[0].step[0], Op::inputs > 0 ? a + done * w.axis[0].step[1] : a,
                              Op::inputs > 1 ? b + done * w.axis[0].step[2] : b, add);
    }
}

/* ---- views of [rows, parts h] ---------------------------------------------------------------------------------------- */

/* Columns [part h, (part + 1) h) of rows of `parts` times h. */
static tn_view tnc_part_view(tn_view x, int64_t parts, int64_t part)
{
    x.shape[1] /= parts;
    x.data = (char *)x.data + part * x.shape[1] * x.strides[1] * tnc_size_of(x.dtype);
    return x;
}

/* Of parts of x, of dx, of dy: in pieces, if the other parts lie as well as the first. */
static bool tnc_parts_widen(tnc_walk *w, int V, size_t size, int64_t h, const void *x, const void *dx, const void *dy)
{
    const void  *p[TNC_VIEWS] = { x, dy, NULL };
    const size_t sizes[TNC_VIEWS] = { size, size, 0 };
    return h % V == 0 && tnc_aligned(dx) && tnc_walk_widen(w, V, p, sizes);
}

/* ---- random numbers, see >>rng ------------------------------------------------------------------------------------------
   A thread has the four numbers of a Philox block, and with them elements 4 i .. 4 i + 3. */

typedef struct tnc_stream_of { uint64_t key; uint32_t call; double low, width; } tnc_stream_of;   /* mean, deviation; p */

static __device__ __forceinline__ void tnc_philox(const tnc_stream_of &g, uint32_t clock, uint64_t block, uint32_t (&c)[4])
{
    uint32_t key0 = (uint32_t)g.key, key1 = (uint32_t)(g.key >> 32);
    c[0] = (uint32_t)block;
    c[1] = (uint32_t)(block >> 32);
    c[2] = g.call;
    c[3] = clock;
    TNC_UNROLL
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[3] = (uint32_t)a;
    }
}

/* 23 bits in the middle of their interval, exact in float. */
static __device__ __forceinline__ float tnc_unit(uint32_t word) { return ((float)(word >> 9) + 0.5f) * (1.0f / 8388608.0f); }

/* Elements 4 block .. 4 block + 3 of n. */
template <typename T>
static __device__ __forceinline__ void tnc_store_four(T *y, int64_t block, int64_t n, bool aligned,
                                                      const typename tnc_real<T>::type (&v)[4])
{
    if (aligned && 4 * block + 4 <= n) {
        tnc_store(y + 4 * block, v);
        return;
    }
    TNC_UNROLL
    for (int k = 0; k < 4; k++)
        if (4 * block + k < n) y[4 * block + k] = tnc_from<T>(v[k]);
}

template <typename T>
static __device__ __forceinline__ void tnc_load_four(typename tnc_real<T>::type (&v)[4], const T *x, int64_t block,
                                                     int64_t n, bool aligned)
{
    if (aligned && 4 * block + 4 <= n) {
        tnc_load(v, x + 4 * block);
        return;
    }
    TNC_UNROLL
    for (int k = 0; k < 4; k++) v[k] = 4 * block + k < n ? tnc_to(x[4 * block + k]) : typename tnc_real<T>::type(0);
}

static tnc_stream_of tnc_stream_from(const tn_call *c, double low, double width)
{
    tnc_stream_of g = { (uint64_t)c->i[0], (uint32_t)c->i[1], low, width };
    return g;
}

/* ---- the fault word: the first of a step is kept --------------------------------------------------------------------- */

/* A bad id or label at `row`: the first of a call is kept, so who has it looks whether there is one before. */
static __device__ void tnc_blame(int32_t *fault, const int32_t *ids, int64_t row, int64_t end)
{
    int64_t i;
    for (i = 0; i < row; i++) if (ids[i] < 0 || ids[i] >= end) return;
    if (!fault || fault[0] != 0) return;
    fault[0] = 1;
    fault[1] = (int32_t)row;
    fault[2] = ids[row];
    fault[3] = 0;
}

static __device__ void tnc_not_finite(int32_t *fault, int32_t which, int32_t step)
{
    if (!fault || fault[0] != 0) return;
    fault[0] = 2;
    fault[1] = which;
    fault[2] = 0;
    fault[3] = step;
}

/* ======================================================================
   >>rows     the kernel table, row by row
   ====================================================================== */

/* ---- copy, fill ----------------------------------------------------------------------------------------------- >>op-copy
   Numbers of one type are moved as bits. Floor: the bytes read and written. */

template <typename T> struct tnc_same {
    enum { inputs = 1, adds = 0 };
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = a[k];
    }
};

template <typename T> struct tnc_value {
    enum { inputs = 0, adds = 0 };
    T value;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = value;
    }
};

/* Between any two types, by way of double, rounded once: to BF16, what only as a float looks like a tie is nudged off it. */
static __device__ __forceinline__ double tnc_read(const void *p, int dtype, int64_t i)
{
    switch (dtype) {
    case TN_F64:  return ((const double *)p)[i];
    case TN_I32:  return ((const int32_t *)p)[i];
    case TN_BF16: return tnc_to(((const tnc_bf16 *)p)[i]);
    default:      return ((const float *)p)[i];
    }
}

static __host__ __device__ inline uint16_t tnc_bits_of_bf16(double v)
{
    const float f = (float)v;
    uint32_t    bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40);
    if ((bits & 0xFFFF) == 0x8000 && (double)f != v) bits = fabs(v) > fabs((double)f) ? bits + 1 : bits - 1;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static __host__ __device__ inline int32_t tnc_to_int(double v)
{
    return v != v ? 0 : v >= 2147483647.0 ? INT32_MAX : v <= -2147483648.0 ? INT32_MIN : (int32_t)v;
}

static __device__ __forceinline__ void tnc_write(void *p, int dtype, int64_t i, double v)
{
    switch (dtype) {
    case TN_F64:  ((double *)p)[i] = v; break;
    case TN_I32:  ((int32_t *)p)[i] = tnc_to_int(v); break;
    case TN_BF16: ((uint16_t *)p)[i] = tnc_bits_of_bf16(v); break;
    default:      ((float *)p)[i] = (float)v; break;
    }
}

static __global__ void __launch_bounds__(TNC_THREADS)
tnc_cast_kernel(const tnc_walk w, void *y, int y_dtype, const void *x, int x_dtype)
{
    int64_t at[TNC_VIEWS];
    for (TNC_MINE(i, w.count)) {
        tnc_at<2>(w, i, at);
        tnc_write(y, y_dtype, at[0], tnc_read(x, x_dtype, at[1]));
    }
}

/* Where x lies along axis 1 of the walk and y along axis 0: squares go through shared memory, read along the one and
   written along the other. The odd width keeps a column's numbers in different banks. */
enum { TNC_SQUARE = 64 };

template <typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_turn_kernel(const tnc_walk w, Y *y, const X *x)
{
    TNC_SHARED(X, square, [TNC_SQUARE][TNC_SQUARE + (sizeof(X) == 2 ? 2 : 1)]);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t rows = w.axis[0].extent.by, columns = w.axis[1].extent.by;
    const int64_t down = tnc_ceil(rows, TNC_SQUARE), across = tnc_ceil(columns, TNC_SQUARE);
    const int64_t squares = w.count / (rows * columns) * down * across;
    for (int64_t i = blockIdx.x; i < squares; i += gridDim.x) {
        const int64_t r0 = i % down * TNC_SQUARE, c0 = i / down % across * TNC_SQUARE;
        int64_t rest = i / down / across, to = 0, from = 0;
        for (int k = 2; k < w.rank; k++) {
            const int64_t q = rest / w.axis[k].extent.by, r = rest - q * w.axis[k].extent.by;
            to += r * w.axis[k].step[0];
            from += r * w.axis[k].step[1];
            rest = q;
        }
        for (int r = warp; r < TNC_SQUARE && r0 + r < rows; r += TNC_THREADS / 32)
            for (int c = lane; c < TNC_SQUARE && c0 + c < columns; c += 32)
                square[r][c] = x[from + (r0 + r) * w.axis[0].step[1] + c0 + c];
        __syncthreads();
        for (int c = warp; c < TNC_SQUARE && c0 + c < columns; c += TNC_THREADS / 32)
            for (int r = lane; r < TNC_SQUARE && r0 + r < rows; r += 32)
                y[to + (c0 + c) * w.axis[1].step[0] + r0 + r] = tnc_from<Y>(tnc_to(square[r][c]));
        __syncthreads();
    }
}

template <typename Y, typename X> static void tnc_copy_as(tnc *s, const tn_view *from, const tn_view *to)
{
    tnc_walk w = tnc_walk_of(to, from, NULL);
    int      k;
    if (w.count == 0) return;
    for (k = 1; k < w.rank; k++)
        if (w.axis[k].step[1] == 1 && w.axis[k].extent.by >= 8) break;
    if (k < w.rank && w.axis[0].step[0] == 1 && w.axis[0].extent.by >= 8) {
        const tnc_axis along = w.axis[k];
        for (; k > 1; k--) w.axis[k] = w.axis[k - 1];
        w.axis[1] = along;
        TNC_START((tnc_turn_kernel<Y, X>), tnc_blocks(w.count, TNC_SQUARE * TNC_SQUARE), w, (Y *)to->data,
                  (const X *)from->data);
    } else tnc_map(s, w, tnc_same<Y>(), (Y *)to->data, (const X *)from->data, (const X *)NULL, false);
}

static void tnc_copy_views(tnc *s, const tn_view *x, const tn_view *y)
{
    if (x->dtype == TN_F32 && y->dtype == TN_BF16) tnc_copy_as<tnc_bf16, float>(s, x, y);
    else if (x->dtype == TN_BF16 && y->dtype == TN_F32) tnc_copy_as<float, tnc_bf16>(s, x, y);
    else if (x->dtype != y->dtype) {
        tnc_walk w = tnc_walk_of(y, x, NULL);
        if (w.count > 0)
            TNC_START(tnc_cast_kernel, tnc_blocks(w.count, TNC_THREADS), w, y->data, (int)y->dtype, (const void *)x->data,
                      (int)x->dtype);
    } else if (x->dtype == TN_F64) tnc_copy_as<uint64_t, uint64_t>(s, x, y);
    else if (x->dtype == TN_BF16) tnc_copy_as<uint16_t, uint16_t>(s, x, y);
    else tnc_copy_as<uint32_t, uint32_t>(s, x, y);
}

static tn_status tnc_copy(tnc *s, const tn_call *c)
{
    tnc_copy_views(s, &c->in[0], &c->out[0]);
    return TN_OK;
}

template <typename T> static void tnc_fill_as(tnc *s, const tn_view *y, T value)
{
    const tnc_value<T> op = { value };
    tnc_map(s, tnc_walk_of(y, NULL, NULL), op, (T *)y->data, (const T *)NULL, (const T *)NULL, false);
}

static tn_status tnc_fill(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const double   v = c->f[0];
    if (y->dtype == TN_F64) tnc_fill_as<double>(s, y, v);
    else if (y->dtype == TN_F32) tnc_fill_as<float>(s, y, (float)v);
    else if (y->dtype == TN_BF16) tnc_fill_as<uint16_t>(s, y, tnc_bits_of_bf16(v));
    else tnc_fill_as<uint32_t>(s, y, (uint32_t)tnc_to_int(v));
    return TN_OK;
}

/* ---- uniform, normal ---------------------------------------------------------------------------------------- >>op-random
   A thread has the four numbers of a Philox block. Uniform numbers and masks are the CPU's to the bit; normal ones in F32
   come from its polynomials. Floor: the bytes written, 20 instructions of Philox a number. */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_uniform_kernel(const tnc_stream_of g, const int32_t *clock, T *y, int64_t n, bool aligned)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    for (TNC_MINE(i, blocks)) {
        uint32_t word[4];
        R        v[4];
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k++)              /* rounded after the product and after the sum: as everywhere */
            v[k] = (R)__dadd_rn(g.low, __dmul_rn(g.width, (double)tnc_unit(word[k])));
        tnc_store_four(y, i, n, aligned, v);
    }
}

/* ln x for normal x > 0: x = 2^n (1+f), sqrt(1/2) <= 1+f < sqrt(2) */
static __device__ __forceinline__ double tnc_exact_log(float x)
{
    const uint32_t u = __float_as_uint(x) - 0x3f3504f3u;
    const float    f = __uint_as_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f, square = f * f;
    float p = fmaf(-0.0763748139f, f, 0.127667218f);
    p = fmaf(p, f, -0.131613255f);
    p = fmaf(p, f, 0.142010972f);
    p = fmaf(p, f, -0.166231945f);
    p = fmaf(p, f, 0.200012535f);
    p = fmaf(p, f, -0.250008255f);
    p = fmaf(p, f, 0.333333313f);
    p = fmaf(p * f, square, -0.5f * square);
    return (double)((int32_t)u >> 23) * 0.6931471805599453 + ((double)f + (double)p);
}

/* sin and cos of 2 pi u, 0 <= u <= 1: u = q/4 + r, |r| <= 1/8, exact. A sine is 2 pi r + tail, a cosine 1 + tail. */
static __device__ __forceinline__ void tnc_circle(float u, double *cosine, double *sine)
{
    const uint32_t q = __float_as_uint(fmaf(u, 4.0f, 12582912.0f));                   /* 1.5 2^23: rounds */
    const float    r = fmaf((float)(int32_t)(q - 0x4b400000u), -0.25f, u), z = r * r;
    float  s = fmaf(-75.434494f, z, 81.5935135f), c = fmaf(58.7673836f, z, -85.4282761f);
    double across, along;
    s = fmaf(s, z, -41.341671f);
    s = fmaf(s * z, r, -1.74845560e-7f * r);                                           /* 2 pi in two parts */
    c = fmaf(c, z, 64.9391708f);
    c = fmaf(c, z, -19.7392082f) * z;
    along = 1.0 + (double)c;
    across = (double)6.28318548f * (double)r + (double)s;
    *sine = q & 1 ? along : across;
    *cosine = q & 1 ? across : along;
    if (q & 2) *sine = -*sine;
    if ((q + 1) & 2) *cosine = -*cosine;
}

/* Box & Muller */
static __device__ __forceinline__ void tnc_gauss(float u, float v, double *first, double *second, float)
{
    const double radius = sqrt(-2 * tnc_exact_log(u));
    tnc_circle(v, first, second);
    *first *= radius;
    *second *= radius;
}

static __device__ __forceinline__ void tnc_gauss(float u, float v, double *first, double *second, double)
{
    const double radius = sqrt(-2 * log((double)u));
    tnc_sincospi(2 * (double)v, second, first);
    *first *= radius;
    *second *= radius;
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_normal_kernel(const tnc_stream_of g, const int32_t *clock, T *y, int64_t n, bool aligned)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    for (TNC_MINE(i, blocks)) {
        uint32_t word[4];
        R        v[4];
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k += 2) {
            double a, b;
            tnc_gauss(tnc_unit(word[k]), tnc_unit(word[k + 1]), &a, &b, R(0));
            v[k] = (R)(g.low + g.width * a);
            v[k + 1] = (R)(g.low + g.width * b);
        }
        tnc_store_four(y, i, n, aligned, v);
    }
}

static tn_status tnc_uniform(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const int64_t  n = y->shape[0];
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_uniform_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS),
                      tnc_stream_from(c, c->f[0], c->f[1] - c->f[0]), (const int32_t *)c->in[0].data, (T *)y->data, n,
                      tnc_aligned(y->data, alignof(tnc_pack<T, 4>))))
    return TN_OK;
}

static tn_status tnc_normal(tnc *s, const tn_call *c)
{
    const tn_view *y = &c->out[0];
    const int64_t  n = y->shape[0];
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_normal_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS), tnc_stream_from(c, c->f[0], c->f[1]),
                      (const int32_t *)c->in[0].data, (T *)y->data, n, tnc_aligned(y->data, alignof(tnc_pack<T, 4>))))
    return TN_OK;
}

/* ---- add, mul, div --------------------------------------------------------------------------------------------- >>op-add
   F32 and BF16 may meet, as where a parameter is added to activations. Floor: the bytes read and written. */

template <typename R> struct tnc_scaled {               /* f0 a */
    enum { inputs = 1, adds = 1 };
    R f0;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        TNC_EACH v[k] = f0 * a[k];
    }
};

template <typename R> struct tnc_pairs {                /* f0 a + f1 b, or f0 a b */
    enum { inputs = 2, adds = 1 };
    R    f0, f1;
    bool product;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        TNC_EACH v[k] = product ? f0 * a[k] * b[k] : tnc_fma(f0, a[k], f1 * b[k]);
    }
};

template <typename Y, typename A>
static tn_status tnc_scaled_run(tnc *s, const tn_view *y, const tn_view *a, double f0, bool add)
{
    typedef typename tnc_real<Y>::type R;
    const tnc_scaled<R> op = { (R)f0 };
    tnc_map(s, tnc_walk_of(y, a, NULL), op, (Y *)y->data, (const A *)a->data, (const A *)NULL, add);
    return TN_OK;
}

template <typename Y, typename A, typename B>
static tn_status tnc_pairs_run(tnc *s, const tn_call *c, const tn_view *a, const tn_view *b, double f0, double f1)
{
    typedef typename tnc_real<Y>::type R;
    const tnc_pairs<R> op = { (R)f0, (R)f1, c->kernel == TN_KERNEL_MUL };
    const tn_view *y = &c->out[0];
    tnc_map(s, tnc_walk_of(y, a, b), op, (Y *)y->data, (const A *)a->data, (const B *)b->data, c->accumulate);
    return TN_OK;
}

static tn_status tnc_add_one(tnc *s, const tn_view *y, const tn_view *a, double f0, bool add)
{
    switch (TNC_MIX(0, y->dtype, a->dtype)) {
    case TNC_MIX(0, TN_F32, TN_F32):   return tnc_scaled_run<float, float>(s, y, a, f0, add);
    case TNC_MIX(0, TN_F64, TN_F64):   return tnc_scaled_run<double, double>(s, y, a, f0, add);
    case TNC_MIX(0, TN_BF16, TN_BF16): return tnc_scaled_run<tnc_bf16, tnc_bf16>(s, y, a, f0, add);
    case TNC_MIX(0, TN_BF16, TN_F32):  return tnc_scaled_run<tnc_bf16, float>(s, y, a, f0, add);
    case TNC_MIX(0, TN_F32, TN_BF16):  return tnc_scaled_run<float, tnc_bf16>(s, y, a, f0, add);
    default:                           return TN_ERR_DTYPE;
    }
}

static tn_status tnc_add(tnc *s, const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    double         f0 = c->f[0], f1 = c->f[1];
    if (c->n_in < 2) return tnc_add_one(s, y, a, f0, c->accumulate);
    if (a->dtype == TN_F32 && b->dtype == TN_BF16) {    /* the sum's order is its reader's */
        const tn_view *t = a;
        a = b;
        b = t;
        f0 = c->f[1];
        f1 = c->f[0];
        if (c->kernel == TN_KERNEL_MUL) f0 = c->f[0];
    }
    switch (TNC_MIX(y->dtype, a->dtype, b->dtype)) {
    case TNC_MIX(TN_F32, TN_F32, TN_F32):    return tnc_pairs_run<float, float, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F64, TN_F64, TN_F64):    return tnc_pairs_run<double, double, double>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_BF16, TN_BF16): return tnc_pairs_run<tnc_bf16, tnc_bf16, tnc_bf16>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_BF16, TN_F32):  return tnc_pairs_run<tnc_bf16, tnc_bf16, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_BF16, TN_F32, TN_F32):   return tnc_pairs_run<tnc_bf16, float, float>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F32, TN_BF16, TN_BF16):  return tnc_pairs_run<float, tnc_bf16, tnc_bf16>(s, c, a, b, f0, f1);
    case TNC_MIX(TN_F32, TN_BF16, TN_F32):   return tnc_pairs_run<float, tnc_bf16, float>(s, c, a, b, f0, f1);
    default:                                 return TN_ERR_DTYPE;
    }
}

static tn_status tnc_mul(tnc *s, const tn_call *c) { return tnc_add(s, c); }

template <typename R> struct tnc_ratio {                /* f0 a / b, correctly rounded */
    enum { inputs = 2, adds = 1 };
    R f0;
    template <int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        TNC_EACH v[k] = f0 * a[k] / b[k];
    }
};

static tn_status tnc_div(tnc *s, const tn_call *c)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_ratio<typename tnc_real<T>::type> op = { (typename tnc_real<T>::type)c->f[0] };
        tnc_map(s, tnc_walk_of(y, a, b), op, (T *)y->data, (const T *)a->data, (const T *)b->data, c->accumulate))
    return TN_OK;
}

/* ---- where --------------------------------------------------------------------------------------------------- >>op-where
   A launch writes what was chosen, a second one the rest: a walk has three views. An operand that is absent is zeros.
   Floor: the bytes of y, of both operands where they are chosen, and twice the condition's */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_where_kernel(const tnc_walk w, T *y, const int32_t *condition, const T *x, const bool chosen, const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_MINE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       v;
        tnc_at<3>(w, i, at);
        if ((condition[at[1]] != 0) != chosen) continue;
        v = x ? tnc_to(x[at[2]]) : R(0);
        y[at[0]] = tnc_from<T>(add ? tnc_to(y[at[0]]) + v : v);
    }
}

template <typename T> static void tnc_where_side(tnc *s, const tn_call *c, bool chosen)
{
    const tn_view *x = &c->in[chosen ? 1 : 2], *y = &c->out[0];
    const tnc_walk w = tnc_walk_of(y, &c->in[0], x->data ? x : NULL);
    if (w.count == 0 || (!x->data && c->accumulate)) return;
    TNC_START((tnc_where_kernel<T>), tnc_blocks(w.count, TNC_THREADS), w, (T *)y->data, (const int32_t *)c->in[0].data,
              (const T *)x->data, chosen, c->accumulate);
}

static tn_status tnc_where(tnc *s, const tn_call *c)
{
    const int dtype = c->out[0].dtype;
    if (!tnc_has(&c->in[1], dtype) || !tnc_has(&c->in[2], dtype)) return TN_ERR_DTYPE;
    TNC_TYPES(dtype, T, tnc_where_side<T>(s, c, true); tnc_where_side<T>(s, c, false))
    return TN_OK;
}

/* ---- sum ------------------------------------------------------------------------------------------------------- >>op-sum
   For each element of y a part of x: its place is found by one walk, `kept`, what is summed by another, `gone`. Where what
   is summed lies in memory, a warp or a block has one element, and its lanes take turns along the part. Where elements lie
   side by side, a thread has one or a piece of them, and the block's eight warps take turns down the part. Parts are cut
   where there are few elements: pieces' sums go to scratch and are summed in the same way. Cuts and order follow from the
   shape.
   Floor: the bytes of x. */

/* Pieces of a part: how long, how many, how far apart their sums are in y; how far apart elements are there. */
typedef struct tnc_cut { int64_t length, pieces, step, along; bool block; } tnc_cut;

template <int V, typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_sum_along_kernel(const tnc_walk kept, const tnc_walk gone, const tnc_cut cut, Y *y, const X *x,
                     const typename tnc_real<Y>::type factor, const bool add)
{
    typedef typename tnc_real<X>::type R;
    enum { STEPS = 4 };
    const int     team = cut.block ? TNC_THREADS : 32, lane = (int)threadIdx.x & (team - 1);
    const int64_t tasks = kept.count * cut.pieces, teams = TNC_THREADS / team;
    for (int64_t base = (int64_t)blockIdx.x * teams; base < tasks; base += (int64_t)gridDim.x * teams) {
        const int64_t task = base + (int)threadIdx.x / team, piece = task % cut.pieces;
        const int64_t begin = piece * cut.length, end = begin + cut.length < gone.count ? begin + cut.length : gone.count;
        int64_t place[TNC_VIEWS] = {0};
        R       sums[STEPS][V], sum = 0;
        TNC_UNROLL
        for (int u = 0; u < STEPS; u++)
            TNC_EACH sums[u][k] = 0;
        if (task < tasks) {
            tnc_at<2>(kept, task / cut.pieces, place);
            for (int64_t i = begin + lane; i < end; i += STEPS * team) {
                R v[STEPS][V];
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    int64_t at[TNC_VIEWS];
                    if (i + u * team >= end) break;
                    tnc_at<1>(gone, i + u * team, at);
                    tnc_load(v[u], x + place[0] + at[0]);
                }
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    if (i + u * team >= end) break;
                    TNC_EACH sums[u][k] += v[u][k];
                }
            }
        }
        TNC_EACH sum += (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
        sum = cut.block ? tnc_block_sum(sum) : tnc_warp_sum(sum);
        if (task < tasks && lane == 0) {
            Y *to = y + place[1] + piece * cut.step;
            *to = tnc_from<Y>(factor * sum + (add ? tnc_to(*to) : 0));
        }
    }
}

template <int V, typename Y, typename X>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_sum_down_kernel(const tnc_walk kept, const tnc_walk gone, const tnc_cut cut, Y *y, const X *x,
                    const typename tnc_real<Y>::type factor, const bool add)
{
    typedef typename tnc_real<X>::type R;
    enum { STEPS = 4, WARPS = TNC_THREADS / 32 };
    TNC_SHARED(R, part, [WARPS][V][32]);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t across = (kept.count + 31) / 32, tasks = across * cut.pieces;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t piece = task / across, element = task % across * 32 + lane;
        const int64_t begin = piece * cut.length, end = begin + cut.length < gone.count ? begin + cut.length : gone.count;
        int64_t place[TNC_VIEWS] = {};
        R       sums[STEPS][V];
        TNC_UNROLL
        for (int u = 0; u < STEPS; u++)
            TNC_EACH sums[u][k] = 0;
        if (element < kept.count) {
            tnc_at<2>(kept, element, place);
            for (int64_t i = begin + warp; i < end; i += STEPS * WARPS) {
                R v[STEPS][V];
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    int64_t at[TNC_VIEWS];
                    if (i + u * WARPS >= end) break;
                    tnc_at<1>(gone, i + u * WARPS, at);
                    tnc_load(v[u], x + place[0] + at[0]);
                }
                TNC_UNROLL
                for (int u = 0; u < STEPS; u++) {
                    if (i + u * WARPS >= end) break;
                    TNC_EACH sums[u][k] += v[u][k];
                }
            }
        }
        TNC_EACH part[warp][k][lane] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
        __syncthreads();
        for (int k = warp; k < V; k += WARPS) {
            R sum = part[0][k][lane];
            TNC_UNROLL
            for (int j = 1; j < WARPS; j++) sum += part[j][k][lane];
            if (element < kept.count) {
                Y *to = y + place[1] + k * cut.along + piece * cut.step;
                *to = tnc_from<Y>(factor * sum + (add ? tnc_to(*to) : 0));
            }
        }
        __syncthreads();
    }
}

/* What is summed into what: x and y of the elements that stay, x of what goes. */
typedef struct tnc_sums { tn_view kept_x, kept_y, gone; bool down; } tnc_sums;

/* A thousand blocks, if there is that much. */
static tnc_cut tnc_sum_cut(const tnc_sums *j, int64_t kept, int64_t gone)
{
    tnc_cut cut = { gone, 1, 0, 0, !j->down && gone >= 1024 };
    int64_t pieces = 1024 / (j->down ? tnc_ceil(kept, 32) : kept);
    if (pieces > gone / (j->down ? 64 : 2048)) pieces = gone / (j->down ? 64 : 2048);
    if (pieces < 2) return cut;
    cut.length = tnc_ceil(tnc_ceil(gone, pieces), 64) * 64;                     /* whole pieces of 16 bytes */
    cut.pieces = tnc_ceil(gone, cut.length);
    return cut;
}

static bool tnc_steps_divide(const tnc_walk *w, int V)
{
    int k;
    for (k = 0; k < w->rank; k++)
        if (w->axis[k].step[0] % V != 0) return false;
    return true;
}

template <int V, typename Y, typename X>
static void tnc_sum_launch(tnc *s, const tnc_walk &kept, const tnc_walk &gone, const tnc_sums *j, const tnc_cut &cut,
                           double factor, bool add)
{
    typedef typename tnc_real<Y>::type R;
    const int64_t tasks = j->down ? tnc_ceil(kept.count, 32) : tnc_ceil(kept.count, cut.block ? 1 : TNC_THREADS / 32);
    const unsigned blocks = tnc_blocks(tasks * cut.pieces, 1);
    if (j->down)
        TNC_START((tnc_sum_down_kernel<V, Y, X>), blocks, kept, gone, cut, (Y *)j->kept_y.data, (const X *)j->kept_x.data,
                  (R)factor, add);
    else
        TNC_START((tnc_sum_along_kernel<V, Y, X>), blocks, kept, gone, cut, (Y *)j->kept_y.data, (const X *)j->kept_x.data,
                  (R)factor, add);
}

/* In pieces of 16 bytes where they lie so: of elements side by side, or of a part. */
template <typename Y, typename X>
static void tnc_sum_pass(tnc *s, const tnc_sums *j, tnc_cut cut, double factor, bool add)
{
    enum { V = (int)(16 / sizeof(X)) };
    const void  *p[TNC_VIEWS] = { j->kept_x.data, NULL, NULL };
    const size_t size[TNC_VIEWS] = { sizeof(X), 0, 0 };
    tnc_walk     kept = tnc_walk_of(&j->kept_x, &j->kept_y, NULL), gone = tnc_walk_of(&j->gone, NULL, NULL);
    cut.along = kept.axis[0].step[1];
    if (j->down ? tnc_steps_divide(&gone, V) && tnc_walk_widen(&kept, V, p, size)
                : tnc_steps_divide(&kept, V) && tnc_walk_widen(&gone, V, p, size)) {
        if (!j->down) cut.length = tnc_ceil(cut.length, V);
        tnc_sum_launch<V, Y, X>(s, kept, gone, j, cut, factor, add);
    } else tnc_sum_launch<1, Y, X>(s, kept, gone, j, cut, factor, add);
}

template <typename Y, typename X> static tn_status tnc_sum_run(tnc *s, tnc_sums *j, double factor, bool add)
{
    typedef typename tnc_real<X>::type R;
    const tnc_walk kept = tnc_walk_of(&j->kept_x, NULL, NULL), gone = tnc_walk_of(&j->gone, NULL, NULL);
    tnc_sums       first = *j, second = *j;
    tnc_cut        cut;
    int            i;
    int64_t        step;
    if (kept.count == 0) return TN_OK;
    first.down = second.down = kept.count > 1
        && (llabs(kept.axis[0].step[0]) < llabs(gone.axis[0].step[0]) || gone.count < 16);
    cut = tnc_sum_cut(&first, kept.count, gone.count);
    if (cut.pieces == 1) {
        tnc_sum_pass<Y, X>(s, &first, cut, factor, add);
        return TN_OK;
    }
    first.kept_y.data = tnc_scratch(s, (size_t)(kept.count * cut.pieces) * sizeof(R));
    if (!first.kept_y.data) return TN_ERR_MEMORY;
    step = first.down ? 1 : cut.pieces;
    for (i = first.kept_y.rank - 1; i >= 0; step *= first.kept_y.shape[i--]) first.kept_y.strides[i] = step;
    cut.step = first.down ? kept.count : 1;
    second.kept_x = first.kept_y;
    second.gone.rank = 1;
    second.gone.shape[0] = cut.pieces;
    second.gone.strides[0] = cut.step;
    tnc_sum_pass<R, X>(s, &first, cut, 1, false);
    cut.length = cut.pieces;
    cut.pieces = 1;
    cut.block = !second.down && cut.length >= 256;
    tnc_sum_pass<Y, R>(s, &second, cut, factor, add);
    return TN_OK;
}

static tn_status tnc_sum(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    tnc_sums       j = { *x, *y, *x, false };
    int            k;
    for (k = 0; k < x->rank; k++)
        if (y->shape[k] == 1 && x->shape[k] != 1) j.kept_x.shape[k] = 1;
        else j.gone.shape[k] = 1;
    switch (TNC_MIX(0, y->dtype, x->dtype)) {
    case TNC_MIX(0, TN_F32, TN_F32):   return tnc_sum_run<float, float>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_F64, TN_F64):   return tnc_sum_run<double, double>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_F32, TN_BF16):  return tnc_sum_run<float, tnc_bf16>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_BF16, TN_BF16): return tnc_sum_run<tnc_bf16, tnc_bf16>(s, &j, c->f[0], c->accumulate);
    case TNC_MIX(0, TN_BF16, TN_F32):  return tnc_sum_run<tnc_bf16, float>(s, &j, c->f[0], c->accumulate);
    default:                           return TN_ERR_DTYPE;
    }
}

/* ---- act, act_backward, glu, glu_backward ------------------------------------------------------------- >>op-act >>op-glu
   One pass each. glu's halves are two views of x: its kernel is that of a pair of operands. F32 takes the CPU's polynomials
   for Phi and what CUDA has for the others; BF16, which keeps 8 bits, the fast exponential and quotient. Floor: bytes. */

/* Phi(x) and phi(x). The tail Phi(-t) = e^(-t^2/2) g(t) has a smooth g, a polynomial in 1/(1 + 0.3 t). */
template <bool FAST> static __device__ __forceinline__ float tnc_normal_cdf(float x, float *density)
{
    const float t = fminf(15.0f, fabsf(x)), square = t * t, lost = fmaf(t, t, -square);
    const float z = tnc_quotient<FAST>(1.0f, fmaf(0.3f, t, 1.0f));
    float e = tnc_exp<FAST>(-0.5f * square), g;
    e = fmaf(e, -0.5f * lost, e);                                       /* what rounding took from the square */
    g = fmaf(-0.0206242893f, z, 0.112440139f);
    g = fmaf(g, z, -0.228224412f);
    g = fmaf(g, z, 0.191799164f);
    g = fmaf(g, z, -0.0794358179f);
    g = fmaf(g, z, 0.0961635262f);
    g = fmaf(g, z, 0.0783873126f);
    g = fmaf(g, z, 0.110235929f);
    g = fmaf(g, z, 0.119571753f);
    g = fmaf(g, z, 0.119686693f) * z * e;
    *density = 0.398942280f * e;
    return x > 0.0f ? 1.0f - g : g;
}

template <bool FAST> static __device__ __forceinline__ double tnc_normal_cdf(double x, double *density)
{
    *density = 0.3989422804014327 * exp(-0.5 * x * x);
    return 0.5 * erfc(-0.7071067811865476 * x);
}

/* act(x) and act'(x) of V numbers: the switch is taken once. What is not used of them is not computed. */
template <bool FAST, int V, typename R>
static __device__ __forceinline__ void tnc_activate(int kind, const R (&x)[V], R (&value)[V], R (&slope)[V])
{
    switch (kind) {
    case TN_ACT_RELU:
        TNC_EACH {
            value[k] = x[k] > 0 || x[k] != x[k] ? x[k] : R(0);
            slope[k] = x[k] > 0 ? R(1) : value[k];
        }
        break;
    case TN_ACT_RELU2:
        TNC_EACH {
            const R v = x[k] > 0 || x[k] != x[k] ? x[k] : R(0);
            value[k] = v * v;
            slope[k] = v + v;
        }
        break;
    case TN_ACT_GELU:
        TNC_EACH {
            R density, cdf = tnc_normal_cdf<FAST>(x[k], &density);
            value[k] = x[k] * cdf;
            slope[k] = tnc_fma(x[k], density, cdf);
        }
        break;
    case TN_ACT_SWISH:
        TNC_EACH {
            const R s = tnc_quotient<FAST>(R(1), R(1) + tnc_exp<FAST>(-x[k]));
            value[k] = x[k] * s;
            slope[k] = tnc_fma(x[k] * s, R(1) - s, s);
        }
        break;
    case TN_ACT_SIGMOID:
        TNC_EACH {
            value[k] = tnc_quotient<FAST>(R(1), R(1) + tnc_exp<FAST>(-x[k]));
            slope[k] = value[k] * (R(1) - value[k]);
        }
        break;
    case TN_ACT_ABS:
        TNC_EACH {
            value[k] = x[k] < 0 ? -x[k] : x[k] > 0 ? x[k] : x[k] + R(0);      /* -0 becomes 0 */
            slope[k] = x[k] > 0 ? R(1) : x[k] < 0 ? R(-1) : x[k];
        }
        break;
    case TN_ACT_ROUND:
        TNC_EACH {
            value[k] = tnc_rint(x[k]);
            slope[k] = 1;
        }
        break;
    case TN_ACT_EXP:
        TNC_EACH value[k] = slope[k] = tnc_exp<FAST>(x[k]);
        break;
    case TN_ACT_TANH:
        TNC_EACH {
            value[k] = tnc_tanh(x[k]);
            slope[k] = (R(1) - value[k]) * (R(1) + value[k]);
        }
        break;
    case TN_ACT_SQRT:
        TNC_EACH {
            value[k] = tnc_sqrt(x[k]);
            slope[k] = R(0.5) / value[k];
        }
        break;
    case TN_ACT_LOG:
        TNC_EACH {
            value[k] = tnc_log(x[k]);
            slope[k] = R(1) / x[k];
        }
        break;
    default:
        TNC_EACH {
            value[k] = x[k];
            slope[k] = 1;
        }
    }
}

template <typename T> struct tnc_act_of {               /* act(a) */
    enum { inputs = 1, adds = 0 };
    int kind;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&)[V]) const
    {
        R slope[V];
        tnc_activate<sizeof(T) == 2>(kind, a, v, slope);
    }
};

template <typename T> struct tnc_gate_of {              /* act(a) b, or its slope times b */
    enum { inputs = 2, adds = 1 };
    int  kind;
    bool slope;
    template <typename R, int V>
    __device__ __forceinline__ void operator()(R (&v)[V], const R (&a)[V], const R (&b)[V]) const
    {
        R value[V], slopes[V];
        tnc_activate<sizeof(T) == 2>(kind, a, value, slopes);
        TNC_EACH v[k] = (slope ? slopes[k] : value[k]) * b[k];
    }
};

static tn_status tnc_act(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_act_of<T> op = { (int)c->i[0] };
        tnc_map(s, tnc_walk_of(y, x, NULL), op, (T *)y->data, (const T *)x->data, (const T *)NULL, false))
    return TN_OK;
}

static tn_status tnc_gate(tnc *s, const tn_call *c, const tn_view *a, const tn_view *b, bool slope)
{
    const tn_view *y = &c->out[0];
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    TNC_TYPES(y->dtype, T,
        const tnc_gate_of<T> op = { (int)c->i[0], slope };
        tnc_map(s, tnc_walk_of(y, a, b), op, (T *)y->data, (const T *)a->data, (const T *)b->data, c->accumulate))
    return TN_OK;
}

static tn_status tnc_act_backward(tnc *s, const tn_call *c) { return tnc_gate(s, c, &c->in[0], &c->in[1], true); }

static tn_status tnc_glu(tnc *s, const tn_call *c)
{
    const tn_view a = tnc_part_view(c->in[0], 2, 0), b = tnc_part_view(c->in[0], 2, 1);
    return tnc_gate(s, c, &a, &b, false);
}

/* w: of x and dx, and of dy; the other half of x is `half` further on. */
template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_glu_backward_kernel(const tnc_walk w, const int64_t half, const int kind, T *dx, const T *x, const T *dy, const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_MINE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       a[V], b[V], d[V], old_a[V], old_b[V], value[V], slope[V];
        tnc_at<2>(w, i, at);
        tnc_load(a, x + at[0]);
        tnc_load(b, x + at[0] + half);
        tnc_load(d, dy + at[1]);
        if (add) {
            tnc_load(old_a, dx + at[0]);
            tnc_load(old_b, dx + at[0] + half);
        }
        tnc_activate<sizeof(T) == 2>(kind, a, value, slope);
        TNC_EACH {
            a[k] = d[k] * b[k] * slope[k];
            b[k] = d[k] * value[k];
            if (add) {
                a[k] += old_a[k];
                b[k] += old_b[k];
            }
        }
        tnc_store(dx + at[0], a);
        tnc_store(dx + at[0] + half, b);
    }
}

template <typename T> static void tnc_glu_backward_run(tnc *s, const tn_call *c)
{
    enum { V = (int)(16 / sizeof(T)) };
    const tn_view a = tnc_part_view(c->in[0], 2, 0);
    tnc_walk      w = tnc_walk_of(&a, &c->in[1], NULL);
    T            *dx = (T *)c->out[0].data;
    const T      *x = (const T *)c->in[0].data, *dy = (const T *)c->in[1].data;
    if (w.count == 0) return;
    if (tnc_parts_widen(&w, V, sizeof(T), a.shape[1], x, dx, dy))
        TNC_START((tnc_glu_backward_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, a.shape[1], (int)c->i[0], dx, x, dy,
                  c->accumulate);
    else
        TNC_START((tnc_glu_backward_kernel<1, T>), tnc_blocks(w.count, TNC_THREADS), w, a.shape[1], (int)c->i[0], dx, x, dy,
                  c->accumulate);
}

static tn_status tnc_glu_backward(tnc *s, const tn_call *c)
{
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_glu_backward_run<T>(s, c))
    return TN_OK;
}

/* ---- prod, prod_backward -------------------------------------------------------------------------------------- >>op-prod
   A thread has a piece of the product; going back, it meets each factor once for every other, the first time in memory.
   Floor: the bytes of x and y, back those of x, dy and dx */

template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_prod_kernel(const tnc_walk w, const int64_t half, const int64_t factors, T *y, const T *x)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_MINE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       v[V], f[V];
        tnc_at<2>(w, i, at);
        tnc_load(v, x + at[0]);
        for (int64_t e = 1; e < factors; e++) {
            tnc_load(f, x + at[0] + e * half);
            TNC_EACH v[k] *= f[k];
        }
        tnc_store(y + at[1], v);
    }
}

template <int V, typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_prod_backward_kernel(const tnc_walk w, const int64_t half, const int64_t factors, T *dx, const T *x, const T *dy,
                         const bool add)
{
    typedef typename tnc_real<T>::type R;
    for (TNC_MINE(i, w.count)) {
        int64_t at[TNC_VIEWS];
        R       d[V], v[V], f[V];
        tnc_at<2>(w, i, at);
        tnc_load(d, dy + at[1]);
        for (int64_t e = 0; e < factors; e++) {
            TNC_EACH v[k] = d[k];
            for (int64_t o = 0; o < factors; o++) {
                if (o == e) continue;
                tnc_load(f, x + at[0] + o * half);
                TNC_EACH v[k] *= f[k];
            }
            if (add) {
                tnc_load(f, dx + at[0] + e * half);
                TNC_EACH v[k] += f[k];
            }
            tnc_store(dx + at[0] + e * half, v);
        }
    }
}

/* y is NULL on the way back. */
template <int V, typename T>
static void tnc_prod_launch(tnc *s, const tn_call *c, const tnc_walk &w, int64_t h, T *y, T *dx, const T *x, const T *dy)
{
    if (y)
        TNC_START((tnc_prod_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, h, c->i[0], y, x);
    else
        TNC_START((tnc_prod_backward_kernel<V, T>), tnc_blocks(w.count, TNC_THREADS), w, h, c->i[0], dx, x, dy,
                  c->accumulate);
}

template <typename T> static void tnc_prod_run(tnc *s, const tn_call *c, bool back)
{
    enum { V = (int)(16 / sizeof(T)) };
    const tn_view  part = tnc_part_view(c->in[0], c->i[0], 0);
    const tn_view *y = back ? &c->in[1] : &c->out[0];
    tnc_walk       w = tnc_walk_of(&part, y, NULL);
    const int64_t  h = part.shape[1];
    T             *to = (T *)c->out[0].data;
    const T       *x = (const T *)c->in[0].data, *dy = back ? (const T *)c->in[1].data : NULL;
    if (w.count == 0) return;
    if (tnc_parts_widen(&w, V, sizeof(T), h, x, back ? (const void *)to : (const void *)x, y->data))
        tnc_prod_launch<V, T>(s, c, w, h, back ? NULL : to, to, x, dy);
    else
        tnc_prod_launch<1, T>(s, c, w, h, back ? NULL : to, to, x, dy);
}

static tn_status tnc_prod(tnc *s, const tn_call *c)
{
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_prod_run<T>(s, c, false))
    return TN_OK;
}

static tn_status tnc_prod_backward(tnc *s, const tn_call *c)
{
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_prod_run<T>(s, c, true))
    return TN_OK;
}

/* ---- gemm ----------------------------------------------------------------------------------------------------- >>op-gemm
   By cuBLAS where the strides allow: of the last two axes of A, B and C one each has stride 1, in either order, since a
   transposed operand is only a flag there, and C^T = B^T A^T. Where A or B is BF16, or by TN_GEMM_BF16, what is F32 of them
   is rounded to BF16 in scratch (packed, so that any strides will do); where the product is thin, what is BF16 is widened
   instead. Sums are F32. F32 alone: F32, or TF32 if desc says so. The bias is a pass of its own. All else by the kernel
   below, whose sums run along k in its order; what cuBLAS does on one kind of device is the same every time.
   Floor: 2 m n k flops */

typedef struct tnc_matrices {            /* [batch,m,k] [batch,k,n] [batch,m,n] */
    int64_t batch, m, n, k, a_step[3], b_step[3], c_step[3], bias_step;
    int     a_dtype, b_dtype, c_dtype, bias_dtype;
    const void *a, *b, *bias;            /* bias: NULL for none */
    void   *c;
    double  alpha, beta;
} tnc_matrices;

static __device__ __forceinline__ double tnc_number(const void *p, int, int64_t i, double) { return ((const double *)p)[i]; }
static __device__ __forceinline__ float  tnc_number(const void *p, int dtype, int64_t i, float)
{
    return dtype == TN_BF16 ? tnc_to(((const tnc_bf16 *)p)[i]) : ((const float *)p)[i];
}

static __device__ __forceinline__ void tnc_number_put(void *p, int, int64_t i, double v) { ((double *)p)[i] = v; }
static __device__ __forceinline__ void tnc_number_put(void *p, int dtype, int64_t i, float v)
{
    if (dtype == TN_BF16) ((tnc_bf16 *)p)[i] = tnc_from<tnc_bf16>(v);
    else ((float *)p)[i] = v;
}

/* A block of 256 threads makes BM x BN of C, a thread TM x TN of it: in squares of four, BN / (TN / 4) columns apart, so
   that a warp reads shared memory without two lanes in one bank. Slices of A and B, BK deep, are loaded while the ones
   before are multiplied: along k or across it, whichever lies in memory. */
template <typename R, int BM, int BN, int BK, int TM, int TN>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_gemm_kernel(const tnc_matrices g, const bool a_along, const bool b_along)
{
    enum { ACROSS = BN / TN, FAR_M = BM / (TM / 4), FAR_N = BN / (TN / 4) };
    enum { LA = BM * BK / TNC_THREADS, LB = BN * BK / TNC_THREADS };
    static_assert((BM / TM) * (BN / TN) == TNC_THREADS, "a thread for each part");
    TNC_SHARED_ALIGN(16, R, left, [2][BK][BM + 4]);
    TNC_SHARED_ALIGN(16, R, right, [2][BK][BN + 4]);
    const int     tid = (int)threadIdx.x, row = tid / ACROSS * 4, column = tid % ACROSS * 4;
    const int64_t down = (g.m + BM - 1) / BM, across = (g.n + BN - 1) / BN, tiles = g.batch * down * across;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t r0 = tile / across % down * BM, c0 = tile % across * BN, batch = tile / across / down;
        const int64_t a0 = batch * g.a_step[0], b0 = batch * g.b_step[0];
        R sum[TM][TN], next_a[LA], next_b[LB];
        TNC_UNROLL
        for (int i = 0; i < TM; i++)
            TNC_UNROLL
            for (int j = 0; j < TN; j++) sum[i][j] = 0;
        for (int64_t k0 = -BK; k0 < g.k; k0 += BK) {
            const int now = (int)(k0 / BK & 1);
            if (k0 + BK < g.k) {
                TNC_UNROLL
                for (int e = 0; e < LA; e++) {
                    const int     at = tid + e * TNC_THREADS;
                    const int64_t k = k0 + BK + (a_along ? at % BK : at / BM), r = r0 + (a_along ? at / BK : at % BM);
                    next_a[e] = k < g.k && r < g.m
                        ? tnc_number(g.a, g.a_dtype, a0 + r * g.a_step[1] + k * g.a_step[2], R(0)) : R(0);
                }
                TNC_UNROLL
                for (int e = 0; e < LB; e++) {
                    const int     at = tid + e * TNC_THREADS;
                    const int64_t k = k0 + BK + (b_along ? at % BK : at / BN), c = c0 + (b_along ? at / BK : at % BN);
                    next_b[e] = k < g.k && c < g.n
                        ? tnc_number(g.b, g.b_dtype, b0 + k * g.b_step[1] + c * g.b_step[2], R(0)) : R(0);
                }
            }
            if (k0 >= 0) {
                TNC_UNROLL
                for (int k = 0; k < BK; k++) {
                    R x[TM], y[TN];
                    TNC_UNROLL
                    for (int i = 0; i < TM; i++) x[i] = left[now][k][i / 4 * FAR_M + row + i % 4];
                    TNC_UNROLL
                    for (int j = 0; j < TN; j++) y[j] = right[now][k][j / 4 * FAR_N + column + j % 4];
                    TNC_UNROLL
                    for (int i = 0; i < TM; i++)
                        TNC_UNROLL
                        for (int j = 0; j < TN; j++) sum[i][j] = tnc_fma(x[i], y[j], sum[i][j]);
                }
            }
            if (k0 + BK < g.k) {
                TNC_UNROLL
                for (int e = 0; e < LA; e++) {
                    const int at = tid + e * TNC_THREADS;
                    left[1 - now][a_along ? at % BK : at / BM][a_along ? at / BK : at % BM] = next_a[e];
                }
                TNC_UNROLL
                for (int e = 0; e < LB; e++) {
                    const int at = tid + e * TNC_THREADS;
                    right[1 - now][b_along ? at % BK : at / BN][b_along ? at / BK : at % BN] = next_b[e];
                }
            }
            __syncthreads();
        }
        TNC_UNROLL
        for (int i = 0; i < TM; i++)
            TNC_UNROLL
            for (int j = 0; j < TN; j++) {
                const int64_t r = r0 + i / 4 * FAR_M + row + i % 4, c = c0 + j / 4 * FAR_N + column + j % 4;
                const int64_t to = batch * g.c_step[0] + r * g.c_step[1] + c * g.c_step[2];
                R v = (R)g.alpha * sum[i][j];
                if (r >= g.m || c >= g.n) continue;
                if (g.beta != 0) v = tnc_fma((R)g.beta, tnc_number(g.c, g.c_dtype, to, R(0)), v);
                if (g.bias) v += tnc_number(g.bias, g.bias_dtype, c * g.bias_step, R(0));
                tnc_number_put(g.c, g.c_dtype, to, v);
            }
    }
}

template <typename R, int BM, int BN, int BK, int TM, int TN> static void tnc_gemm_launch(tnc *s, const tnc_matrices &g)
{
    const int64_t tiles = g.batch * tnc_ceil(g.m, BM) * tnc_ceil(g.n, BN);
    TNC_START((tnc_gemm_kernel<R, BM, BN, BK, TM, TN>), tnc_blocks(tiles, 1), g, llabs(g.a_step[2]) < llabs(g.a_step[1]),
              llabs(g.b_step[1]) < llabs(g.b_step[2]));
}

/* Large tiles where they fill the device. */
static void tnc_gemm_own(tnc *s, const tnc_matrices &g)
{
    if (g.c_dtype == TN_F64) tnc_gemm_launch<double, 64, 64, 8, 4, 4>(s, g);
    else if (g.batch * tnc_ceil(g.m, 128) * tnc_ceil(g.n, 128) >= s->sms) tnc_gemm_launch<float, 128, 128, 8, 8, 8>(s, g);
    else tnc_gemm_launch<float, 64, 64, 16, 4, 4>(s, g);
}

/* Thin products gain little by tensor cores: there nothing is rounded for them. */
static bool tnc_gemm_thin(const tnc_matrices &g) { return g.m < 64 || g.n < 64 || g.k < 64; }

/* rows x columns for cuBLAS, whose matrices run down their columns: as it is, or as its transpose. */
typedef struct tnc_operand {
    const void       *data;
    cublasOperation_t op;
    cudaDataType      type;
    int               lead;
    int64_t           batch_step;
} tnc_operand;

static bool tnc_operand_of(tnc_operand *o, const void *data, int dtype, int64_t rows, int64_t columns, int64_t row_step,
                           int64_t column_step, int64_t batch_step)
{
    int64_t lead = columns == 1 ? rows : column_step;
    o->data = data;
    o->type = dtype == TN_F64 ? CUDA_R_64F : dtype == TN_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    o->batch_step = batch_step;
    o->op = CUBLAS_OP_N;
    o->lead = (int)lead;
    if ((rows == 1 || row_step == 1) && lead >= rows && lead <= INT32_MAX) return batch_step >= 0;
    lead = rows == 1 ? columns : row_step;
    o->op = CUBLAS_OP_T;
    o->lead = (int)lead;
    return (columns == 1 || column_step == 1) && lead >= columns && lead <= INT32_MAX && batch_step >= 0;
}

/* C down its columns is C; along its rows it is C^T, made of B^T and A^T. TN_ERR_SHAPE: cuBLAS does not take it. */
static tn_status tnc_gemm_blas(tnc *s, const tnc_matrices &g)
{
    cublasStatus_t status;
    tnc_operand  x, y, z;
    const float  alpha = (float)g.alpha, beta = (float)g.beta;
    const bool   wide = g.c_dtype == TN_F64;
    const bool   turned = tnc_operand_of(&z, g.c, g.c_dtype, g.n, g.m, g.c_step[2], g.c_step[1], g.c_step[0])
                       && z.op == CUBLAS_OP_N;
    const int64_t m = turned ? g.n : g.m, n = turned ? g.m : g.n;
    const bool   tf32 = g.a_dtype == TN_F32 && s->precision == TN_GEMM_TF32 && !tnc_gemm_thin(g);
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const void  *by_alpha = wide ? (const void *)&g.alpha : &alpha, *by_beta = wide ? (const void *)&g.beta : &beta;
    if (!s->blas.handle || g.k == 0) return TN_ERR_SHAPE;
    if (m > INT32_MAX || n > INT32_MAX || g.k > INT32_MAX || g.batch > INT32_MAX) return TN_ERR_SHAPE;
    if (turned) {
        if (!tnc_operand_of(&x, g.b, g.b_dtype, g.n, g.k, g.b_step[2], g.b_step[1], g.b_step[0])
            || !tnc_operand_of(&y, g.a, g.a_dtype, g.k, g.m, g.a_step[2], g.a_step[1], g.a_step[0])) return TN_ERR_SHAPE;
    } else if (!tnc_operand_of(&z, g.c, g.c_dtype, g.m, g.n, g.c_step[1], g.c_step[2], g.c_step[0]) || z.op != CUBLAS_OP_N
               || !tnc_operand_of(&x, g.a, g.a_dtype, g.m, g.k, g.a_step[1], g.a_step[2], g.a_step[0])
               || !tnc_operand_of(&y, g.b, g.b_dtype, g.k, g.n, g.b_step[1], g.b_step[2], g.b_step[0])) return TN_ERR_SHAPE;
    if (g.batch == 1)
        status = s->blas.gemm(s->blas.handle, x.op, y.op, (int)m, (int)n, (int)g.k, by_alpha, x.data, x.type, x.lead, y.data,
                              y.type, y.lead, by_beta, g.c, z.type, z.lead, compute, CUBLAS_GEMM_DEFAULT);
    else
        status = s->blas.gemms(s->blas.handle, x.op, y.op, (int)m, (int)n, (int)g.k, by_alpha, x.data, x.type, x.lead,
                               x.batch_step, y.data, y.type, y.lead, y.batch_step, by_beta, g.c, z.type, z.lead,
                               z.batch_step, (int)g.batch, compute, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS) return TN_OK;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return TN_ERR_SHAPE;
    return tnc_refuse(s, TN_ERR_BACKEND, "gemm: %s", s->blas.text(status));
}

/* Where an operand is to lie as another type: along the axis it lies along, lines 16 bytes apart or a multiple; one matrix
   of a batch that is one. Returns its bytes. */
static size_t tnc_gemm_place(const tn_view *x, tn_dtype dtype, tn_view *y)
{
    const bool    down = x->strides[1] == 1 && x->strides[2] != 1;
    const int64_t line = tnc_ceil(x->shape[down ? 1 : 2], 8) * 8;
    *y = *x;
    y->dtype = dtype;
    y->strides[1] = down ? 1 : line;
    y->strides[2] = down ? line : 1;
    y->strides[0] = x->strides[0] == 0 ? 0 : line * x->shape[down ? 2 : 1];
    return (size_t)(line * x->shape[down ? 2 : 1] * (x->strides[0] == 0 ? 1 : x->shape[0])) * (size_t)tnc_size_of(dtype);
}

static void tnc_gemm_convert(tnc *s, tn_view from, tn_view to)
{
    if (from.strides[0] == 0) from.shape[0] = to.shape[0] = 1;
    tnc_copy_views(s, &from, &to);
}

static tnc_matrices tnc_matrices_of(const tn_call *c)
{
    const tn_view *x = c->in, *bias = c->n_in > 2 && c->in[2].data ? &c->in[2] : NULL, *y = &c->out[0];
    tnc_matrices   g;
    int            i;
    g.batch = y->shape[0];
    g.m = y->shape[1];
    g.n = y->shape[2];
    g.k = x[0].shape[2];
    for (i = 0; i < 3; i++) {
        g.a_step[i] = x[0].strides[i];
        g.b_step[i] = x[1].strides[i];
        g.c_step[i] = y->strides[i];
    }
    g.a = x[0].data;
    g.b = x[1].data;
    g.c = y->data;
    g.bias = bias ? bias->data : NULL;
    g.a_dtype = x[0].dtype;
    g.b_dtype = x[1].dtype;
    g.c_dtype = y->dtype;
    g.bias_dtype = bias ? bias->dtype : y->dtype;
    g.bias_step = bias ? bias->strides[0] : 0;
    g.alpha = c->f[0];
    g.beta = c->f[1];
    return g;
}

static tn_status tnc_gemm_bias(tnc *s, const tn_call *c, const tn_view *y)
{
    tn_view bias = *y;
    if (c->n_in < 3 || !c->in[2].data) return TN_OK;
    bias.data = c->in[2].data;
    bias.dtype = c->in[2].dtype;
    bias.strides[0] = bias.strides[1] = 0;
    bias.strides[2] = c->in[2].strides[0];
    return tnc_add_one(s, y, &bias, 1, true);
}

/* A product of F32 that is kept as BF16 is made in scratch, with its bias, and rounded once. */
static tn_status tnc_gemm_keep(tnc *s, const tn_call *c, const tn_view *z)
{
    tn_call add;
    if (c->f[1] == 0) return tnc_add_one(s, &c->out[0], z, 1, false);
    memset(&add, 0, sizeof add);
    add.kernel = TN_KERNEL_ADD;
    add.out[0] = c->out[0];
    return tnc_pairs_run<tnc_bf16, tnc_bf16, float>(s, &add, &c->out[0], z, c->f[1], 1);
}

/* The type that A and B are multiplied as. */
static tn_dtype tnc_gemm_type(const tnc *s, const tnc_matrices &g)
{
    if (g.a_dtype == g.b_dtype && (g.a_dtype != TN_F32 || s->precision != TN_GEMM_BF16)) return (tn_dtype)g.a_dtype;
    return tnc_gemm_thin(g) ? TN_F32 : TN_BF16;
}

static tn_status tnc_gemm(tnc *s, const tn_call *c)
{
    tn_call            made = *c;
    tn_view           *z = &made.out[0];
    const tnc_matrices g = tnc_matrices_of(c);
    const int          dtypes[4] = { g.a_dtype, g.b_dtype, g.c_dtype, g.bias_dtype };
    const tn_dtype     type = tnc_gemm_type(s, g);
    const bool         keep = type == TN_F32 && g.c_dtype == TN_BF16;
    size_t             bytes[3] = { 0, 0, 0 };
    char              *room;
    tn_status          status;
    int                i;
    for (i = 0; i < 4; i++) {
        if (dtypes[i] != TN_F32 && dtypes[i] != TN_F64 && dtypes[i] != TN_BF16) return TN_ERR_DTYPE;
        if ((dtypes[i] == TN_F64) != (dtypes[0] == TN_F64)) return TN_ERR_DTYPE;
    }
    if (g.batch == 0 || g.m == 0 || g.n == 0) return TN_OK;
    if (!s->blas.handle || g.k == 0 || (g.a_dtype != g.b_dtype && type == TN_F32 && g.k <= 256)) {
        tnc_gemm_own(s, g);                             /* which converts what it reads, and has no other launches */
        return TN_OK;
    }
    for (i = 0; i < 2; i++)
        if (dtypes[i] != type) bytes[i] = tnc_gemm_place(&c->in[i], type, &made.in[i]);
    if (keep) {
        z->dtype = TN_F32;
        z->strides[2] = 1;
        z->strides[1] = z->shape[2];
        z->strides[0] = z->shape[1] * z->shape[2];
        bytes[2] = (size_t)(z->shape[0] * z->strides[0]) * sizeof(float);
        made.f[1] = 0;
    }
    if (bytes[0] + bytes[1] + bytes[2] > 0) {
        room = (char *)tnc_scratch(s, bytes[0] + bytes[1] + bytes[2]);
        if (!room) return TN_ERR_MEMORY;
        for (i = 0; i < 2; i++) {
            if (bytes[i] == 0) continue;
            made.in[i].data = room;
            room += bytes[i];
            tnc_gemm_convert(s, c->in[i], made.in[i]);
        }
        if (keep) z->data = room;
    }
    status = tnc_gemm_blas(s, tnc_matrices_of(&made));
    if (status == TN_ERR_SHAPE) {
        tnc_gemm_own(s, g);
        return TN_OK;
    }
    if (status == TN_OK) status = tnc_gemm_bias(s, c, z);
    return keep && status == TN_OK ? tnc_gemm_keep(s, c, z) : status;
}

/* ---- embed --------------------------------------------------------------------------------------------------- >>op-embed
   y[r] = table[ids[r]], one row of the table after the other in pieces. Floor: reads and writes R d numbers */

template <typename T, int V> static __global__ void __launch_bounds__(TNC_THREADS)
tnc_embed_kernel(const typename tnc_real<T>::type *table, const int32_t *ids, T *y, int32_t *fault, int64_t rows, int64_t d,
                 int64_t words, int lanes)
{
    typedef typename tnc_real<T>::type R;
    const int64_t n = d / V, step = (int64_t)gridDim.x * (TNC_THREADS / lanes);
    const int     lane = tnc_lane(lanes);
    int64_t row, i;
    for (row = (int64_t)blockIdx.x * (TNC_THREADS / lanes) + (int)threadIdx.x / lanes; row < rows; row += step) {
        const int32_t id = ids[row];
        const bool    good = id >= 0 && id < words;
        const R      *from = table + (good ? id : 0) * d;
        T            *to = y + row * d;
        TNC_UNROLL_BY(4)
        for (i = lane; i < n; i += lanes) {
            R v[V] = {};
            if (good) tnc_load(v, from + i * V);
            tnc_store(to + i * V, v);
        }
        if (!good && lane == 0) tnc_blame(fault, ids, row, words);
    }
}

template <typename T, int V> static void tnc_embed_launch(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const int64_t rows = c->out[0].shape[0], d = c->out[0].shape[1];
    const int     lanes = tnc_lanes(d / V, 32);
    TNC_START((tnc_embed_kernel<T, V>), tnc_grid(s, rows, TNC_THREADS / lanes), (const R *)c->in[0].data,
              (const int32_t *)c->in[1].data, (T *)c->out[0].data, (int32_t *)c->out[1].data, rows, d, c->in[0].shape[0],
              lanes);
}

template <typename T> static tn_status tnc_embed_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count };
    if (!tnc_has(&c->in[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (c->out[0].shape[0] == 0) return TN_OK;
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->out[0].data))
        tnc_embed_launch<T, V>(s, c);
    else tnc_embed_launch<T, 1>(s, c);
    return TN_OK;
}

static tn_status tnc_embed(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->out[0].dtype, T, return tnc_embed_of<T>(s, c))
}

/* ---- embed_backward ------------------------------------------------------------------------------------------ >>op-embed
   dtable[id] += the sum of dy[r] over ids[r] = id, in an order that is the same on every run: positions are sorted by id,
   equal ids by position (a stable radix sort of 8 bits a pass, whose counters are integers), then cut into tiles of as many
   each. A tile sums its runs of equal ids; a run that crosses tiles leaves a share in each, and they are added from the
   left.
   Floor: reads R d numbers, reads and writes the rows of dtable that occur */

enum { TNC_SORT_THREADS = 512, TNC_SORT_BLOCKS = 128, TNC_SORT_COUNTERS = 256 * TNC_SORT_BLOCKS };

typedef struct tnc_sort {
    const int32_t  *ids;                    /* of the first pass                                     */
    const uint32_t *key, *row;              /* of later ones                                         */
    uint32_t       *to_key, *to_row;
    uint32_t       *count, *next_count;     /* [blocks,256]: how often each digit is in each chunk   */
    int64_t         n, chunk, words;
    int             shift, blocks;
} tnc_sort;

/* Ids outside the table come last, where nobody looks. */
static __device__ __forceinline__ uint32_t tnc_sort_key(const tnc_sort &s, int64_t i)
{
    if (!s.ids) return s.key[i];
    return s.ids[i] >= 0 && s.ids[i] < s.words ? (uint32_t)s.ids[i] : (uint32_t)s.words;
}

static __global__ void __launch_bounds__(TNC_SORT_THREADS) tnc_sort_count_kernel(tnc_sort s)
{
    TNC_SHARED(uint32_t, count, [256]);
    const int64_t begin = (int64_t)blockIdx.x * s.chunk, end = begin + s.chunk < s.n ? begin + s.chunk : s.n;
    const int     me = (int)threadIdx.x;
    int64_t i;
    if (me < 256) count[me] = 0;
    __syncthreads();
    for (i = begin + me; i < end; i += TNC_SORT_THREADS) atomicAdd(&count[tnc_sort_key(s, i) >> s.shift & 255], 1u);
    __syncthreads();
    if (me < 256) {
        s.count[blockIdx.x * 256 + me] = count[me];
        s.next_count[blockIdx.x * 256 + me] = 0;
    }
}

/* Where each digit of this block's chunk begins in the sorted order, into start[256]. */
static __device__ void tnc_sort_begin(const tnc_sort &s, uint32_t *start, uint32_t *sums)
{
    const int me = (int)threadIdx.x;
    uint32_t  before = 0, total = 0;
    int       k;
    if (me < 256) {
        TNC_UNROLL_BY(8)
        for (k = 0; k < s.blocks; k++) {
            const uint32_t x = s.count[k * 256 + me];
            if (k < (int)blockIdx.x) before += x;
            total += x;
        }
        sums[me] = total;
    }
    __syncthreads();
    for (k = 1; k < 256; k *= 2) {
        const uint32_t left = me < 256 && me >= k ? sums[me - k] : 0;
        __syncthreads();
        if (me < 256) sums[me] += left;
        __syncthreads();
    }
    if (me < 256) start[me] = sums[me] - total + before;
    __syncthreads();
}

/* A warp ranks its 32 digits among each other by ballots, the block ranks its warps. Counts the digits of the next pass on
   the way, for the chunks that will hold them. */
static __global__ void __launch_bounds__(TNC_SORT_THREADS) tnc_sort_kernel(tnc_sort s)
{
    enum { WARPS = TNC_SORT_THREADS / 32 };
    TNC_SHARED(uint32_t, start, [256]);
    TNC_SHARED(uint32_t, count, [WARPS][256]);
    const int64_t begin = (int64_t)blockIdx.x * s.chunk, end = begin + s.chunk < s.n ? begin + s.chunk : s.n;
    const int     me = (int)threadIdx.x, lane = me & 31, warp = me >> 5;
    int64_t i;
    int     k;
    tnc_sort_begin(s, start, &count[0][0]);
    for (i = begin; i < end; i += TNC_SORT_THREADS) {
        const bool     live = i + me < end;
        const uint32_t key = live ? tnc_sort_key(s, i + me) : 0, digit = key >> s.shift & 255;
        unsigned       peers = __ballot_sync(0xffffffffu, live);
        int            rank;
        for (k = me; k < WARPS * 256; k += TNC_SORT_THREADS) (&count[0][0])[k] = 0;
        TNC_UNROLL
        for (k = 0; k < 8; k++) {
            const unsigned have = __ballot_sync(0xffffffffu, digit >> k & 1);
            peers &= digit >> k & 1 ? have : ~have;
        }
        rank = __popc(peers & ((1u << lane) - 1));
        __syncthreads();
        if (live && rank == 0) count[warp][digit] = (uint32_t)__popc(peers);
        __syncthreads();
        if (me < 256) {
            uint32_t at = start[me];
            for (k = 0; k < WARPS; k++) {
                const uint32_t x = count[k][me];
                count[k][me] = at;
                at += x;
            }
            start[me] = at;
        }
        __syncthreads();
        if (live) {
            const uint32_t to = count[warp][digit] + (uint32_t)rank;
            s.to_key[to] = key;
            s.to_row[to] = s.ids ? (uint32_t)(i + me) : s.row[i + me];
            if (s.next_count) atomicAdd(&s.next_count[to / s.chunk * 256 + (key >> s.shift >> 8 & 255)], 1u);
        }
        __syncthreads();
    }
}

typedef struct tnc_runs {
    const uint32_t *key, *row;              /* sorted                                                */
    int64_t         n, d, words, tile, tiles;
    int             lanes;                  /* threads of a tile                                     */
} tnc_runs;

/* Does the run at position i go on at i + 1? */
static __device__ __forceinline__ bool tnc_run_on(const tnc_runs &r, int64_t i)
{
    return i + 1 < r.n && r.key[i] == r.key[i + 1];
}

/* What a thread of both kernels stands for: a tile, and a piece of the columns. */
template <int V> static __device__ __forceinline__ bool tnc_runs_place(const tnc_runs &r, int64_t *tile, int64_t *column)
{
    *tile = (int64_t)blockIdx.x * ((int)blockDim.x / r.lanes) + (int)threadIdx.x / r.lanes;
    *column = ((int64_t)blockIdx.y * r.lanes + (int)threadIdx.x % r.lanes) * V;
    return *tile < r.tiles && *column < r.d;
}

/* share[tiles,2,d]: what a tile has of the run that comes in from the left; of the one that goes out and began here. */
template <typename T, int V> static __global__ void __launch_bounds__(128)
tnc_runs_kernel(tnc_runs r, const T *dy, typename tnc_real<T>::type *table, typename tnc_real<T>::type *share)
{
    typedef typename tnc_real<T>::type R;
    enum { AHEAD = 8 };
    int64_t tile, column, i, begin, end;
    R       sum[V] = {};
    bool    from_left;
    int     j;
    if (!tnc_runs_place<V>(r, &tile, &column)) return;
    begin = tile * r.tile;
    end = begin + r.tile < r.n ? begin + r.tile : r.n;
    from_left = begin > 0 && tnc_run_on(r, begin - 1);
    for (i = begin; i < end; i += AHEAD) {
        tnc_pack<T, V> piece[AHEAD];
        TNC_UNROLL
        for (j = 0; j < AHEAD; j++) {
            const int64_t at = i + j < end ? i + j : end - 1;
            piece[j] = tnc_fetch<V>(dy + (int64_t)r.row[at] * r.d + column);
        }
        TNC_UNROLL
        for (j = 0; j < AHEAD; j++) {
            R v[V];
            if (i + j >= end || r.key[i + j] >= r.words) break;
            tnc_unpack(v, piece[j]);
            TNC_EACH sum[k] += v[k];
            if (i + j + 1 < end && tnc_run_on(r, i + j)) continue;
            if (from_left) tnc_store(share + 2 * tile * r.d + column, sum);
            else if (tnc_run_on(r, i + j)) tnc_store(share + (2 * tile + 1) * r.d + column, sum);
            else tnc_add_to(table + (int64_t)r.key[i + j] * r.d + column, sum);
            from_left = false;
            TNC_EACH sum[k] = 0;
        }
    }
}

/* A tile from which a run goes out that began in it adds up the shares. */
template <typename R, int V> static __global__ void __launch_bounds__(128)
tnc_runs_join_kernel(tnc_runs r, R *table, const R *share)
{
    int64_t  tile, column, last, step, i;
    uint32_t key;
    R        sum[V];
    if (!tnc_runs_place<V>(r, &tile, &column) || tile + 1 >= r.tiles) return;
    last = (tile + 1) * r.tile - 1;
    key = r.key[last];
    if (key >= r.words || !tnc_run_on(r, last)) return;
    if (tile > 0 && r.key[tile * r.tile - 1] == key) return;                    /* began further left */
    for (last = tile + 1, step = 1; last + step < r.tiles && r.key[(last + step) * r.tile] == key; step *= 2) last += step;
    for (; step; step /= 2) if (last + step < r.tiles && r.key[(last + step) * r.tile] == key) last += step;
    tnc_load(sum, share + (2 * tile + 1) * r.d + column);
    TNC_UNROLL_BY(4)
    for (i = tile + 1; i <= last; i++) {
        R v[V];
        tnc_load(v, share + 2 * i * r.d + column);
        TNC_EACH sum[k] += v[k];
    }
    tnc_add_to(table + (int64_t)key * r.d + column, sum);
}

template <typename T, int V> static void tnc_runs_launch(tnc *s, const tn_call *c, tnc_runs r, void *share)
{
    typedef typename tnc_real<T>::type R;
    const int64_t pieces = r.d / V;
    dim3          grid;
    r.lanes = tnc_lanes(pieces, 128);
    if (pieces > 32 && pieces < 128) r.lanes = 32 * (int)tnc_ceil(pieces, 32);
    grid = dim3((unsigned)tnc_ceil(r.tiles, r.lanes > 64 ? 1 : 128 / r.lanes), (unsigned)tnc_ceil(pieces, r.lanes));
    TNC_LAUNCH((tnc_runs_kernel<T, V>), grid, r.lanes > 64 ? r.lanes : 128, 0, s->stream, r, (const T *)c->in[1].data,
               (R *)c->out[0].data, (R *)share);
    if (r.tiles > 1)
        TNC_LAUNCH((tnc_runs_join_kernel<R, V>), grid, r.lanes > 64 ? r.lanes : 128, 0, s->stream, r, (R *)c->out[0].data,
                   (const R *)share);
}

/* The sorted positions, in the scratch memory after which `rest` bytes stay free. */
static tn_status tnc_sort_ids(tnc *s, const int32_t *ids, int64_t n, int64_t words, size_t rest, tnc_runs *r, void **after)
{
    const size_t each = ((size_t)n * 4 + 15) / 16 * 16;
    tnc_sort     sort;
    uint32_t    *key[2], *row[2], *count[2];
    int          pass, passes = 1;
    char        *room = (char *)tnc_scratch(s, 4 * each + 2 * TNC_SORT_COUNTERS * sizeof(uint32_t) + rest);
    if (!room) return TN_ERR_MEMORY;
    for (pass = 0; pass < 2; pass++) {
        key[pass] = (uint32_t *)(void *)(room + 2 * (size_t)pass * each);
        row[pass] = (uint32_t *)(void *)(room + (2 * (size_t)pass + 1) * each);
        count[pass] = (uint32_t *)(void *)(room + 4 * each) + pass * TNC_SORT_COUNTERS;
    }
    *after = room + 4 * each + 2 * TNC_SORT_COUNTERS * sizeof(uint32_t);
    while (passes < 4 && words >> 8 * passes) passes++;
    memset(&sort, 0, sizeof sort);
    sort.n = n;
    sort.words = words;
    sort.chunk = tnc_ceil(tnc_ceil(n, TNC_SORT_BLOCKS), 4 * TNC_SORT_THREADS) * 4 * TNC_SORT_THREADS;
    sort.blocks = (int)tnc_ceil(n, sort.chunk);
    sort.ids = ids;
    for (pass = 0; pass < passes; pass++) {
        sort.shift = 8 * pass;
        sort.count = count[pass % 2];
        sort.next_count = count[1 - pass % 2];
        sort.to_key = key[pass % 2];
        sort.to_row = row[pass % 2];
        if (pass != 1) TNC_LAUNCH(tnc_sort_count_kernel, (unsigned)sort.blocks, TNC_SORT_THREADS, 0, s->stream, sort);
        if (pass + 1 >= passes || pass > 0) sort.next_count = NULL;
        TNC_LAUNCH(tnc_sort_kernel, (unsigned)sort.blocks, TNC_SORT_THREADS, 0, s->stream, sort);
        sort.ids = NULL;
        sort.key = sort.to_key;
        sort.row = sort.to_row;
    }
    r->key = sort.key;
    r->row = sort.row;
    return TN_OK;
}

template <typename T> static tn_status tnc_embed_backward_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count };
    tnc_runs  r;
    void     *share;
    tn_status status;
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    memset(&r, 0, sizeof r);
    r.n = c->in[1].shape[0];
    r.d = c->in[1].shape[1];
    r.words = c->out[0].shape[0];
    if (r.n == 0 || r.d == 0 || r.words == 0) return TN_OK;
    if (r.n > (int64_t)UINT32_MAX || r.words > (int64_t)INT32_MAX) return TN_ERR_SHAPE;
    for (r.tile = 16; r.tile * 1024 < r.n; r.tile *= 2) {}
    r.tiles = tnc_ceil(r.n, r.tile);
    status = tnc_sort_ids(s, (const int32_t *)c->in[0].data, r.n, r.words, (size_t)(2 * r.tiles * r.d) * sizeof(R), &r,
                          &share);
    if (status != TN_OK) return status;
    if (r.d % V == 0 && tnc_aligned(c->in[1].data) && tnc_aligned(c->out[0].data)) tnc_runs_launch<T, V>(s, c, r, share);
    else tnc_runs_launch<T, 1>(s, c, r, share);
    return TN_OK;
}

static tn_status tnc_embed_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[1].dtype, T, return tnc_embed_backward_of<T>(s, c))
}

/* ---- rmsnorm, layernorm --------------------------------------------------------------------- >>op-rmsnorm >>op-layernorm
   A row is read once and waits in registers (what does not fit there is read again): its mean, and the mean that rounding
   left, if it is centred; its mean square; then y. The largest and the smallest numbers have squares that no float has:
   such a row takes its sum in double.
   Floor: reads and writes R C numbers */

template <typename T, int V, bool CENTRED>
static __global__ void __launch_bounds__(TNC_THREADS, 3)
tnc_norm_kernel(const T *x, const typename tnc_real<T>::type *w, const typename tnc_real<T>::type *b, T *y,
                typename tnc_real<T>::type *r, int64_t rows, int C, double eps, int lanes)
{
    typedef typename tnc_real<T>::type R;
    enum { HELD = 4 };
    const int     lane = tnc_lane(lanes), each = (int)blockDim.x / lanes;
    const int     n = C / V;
    const double  whole = 1.0 / C;
    const R       part = (R)whole;
    int64_t       base;
    for (base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        const T      *from = x + row * C;
        tnc_pack<T, V> held[HELD];
        R    mean = 0, rest = 0, sum = 0, scale;
        int  k;
        auto pieces = [&](auto use) {
            int i, j;
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                R v[V];
                if (lane + j * lanes >= n) break;
                tnc_unpack(v, held[j]);
                use(v, lane + j * lanes);
            }
            for (i = lane + HELD * lanes; i < n; i += lanes) {
                R v[V];
                tnc_load(v, from + i * V);
                use(v, i);
            }
        };
        TNC_UNROLL
        for (k = 0; k < HELD; k++) if (lane + k * lanes < n) held[k] = tnc_fetch<V>(from + (lane + k * lanes) * V);
        if (CENTRED) {
            pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) mean += v[i] * part; });
            mean = tnc_row_sum(mean, lanes);
            pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) rest += (v[i] - mean) * part; });
            rest = tnc_row_sum(rest, lanes);
        }
        pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) { R z = v[i] - mean - rest; sum = tnc_fma(z, z, sum); } });
        sum = tnc_row_sum(sum, lanes);
        scale = (R)rsqrt((double)sum * whole + eps);
        if constexpr (sizeof(R) == sizeof(float)) {
            const bool far = !(sum > 1e-30f && sum < 1e30f);
            if (__any_sync(0xffffffffu, far)) {
                double wide = 0;
                pieces([&](R (&v)[V], int) {
                    for (int i = 0; i < V; i++) { double z = v[i] - mean - rest; wide = fma(z, z, wide); }
                });
                wide = tnc_row_sum(wide, lanes);
                if (far) scale = (R)rsqrt(wide * whole + eps);
            }
        }
        if (mine >= rows) continue;
        if (lane == 0) r[row] = scale;
        pieces([&](R (&v)[V], int i) {
            R gain[V] = {}, bias[V] = {};
            if (w) tnc_load(gain, w + i * V);
            if (b) tnc_load(bias, b + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                R z = (v[q] - mean - rest) * scale;
                if (w) z *= gain[q];
                v[q] = b ? z + bias[q] : z;
            }
            tnc_store(y + row * C + i * V, v);
        });
    }
}

template <typename T, int V, bool CENTRED> static void tnc_norm_launch(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const int64_t  rows = c->out[0].shape[0], C = c->out[0].shape[1];
    const tnc_rows at = tnc_rows_of(C / V, 4, TNC_THREADS);
    TNC_LAUNCH((tnc_norm_kernel<T, V, CENTRED>), tnc_grid(s, rows, at.threads / at.lanes), at.threads, 0, s->stream,
               (const T *)c->in[0].data, (const R *)c->in[1].data, CENTRED ? (const R *)c->in[2].data : (const R *)NULL,
               (T *)c->out[0].data, (R *)c->out[1].data, rows, (int)C, c->f[0], at.lanes);
}

template <typename T, bool CENTRED> static tn_status tnc_norm_of(tnc *s, const tn_call *c)
{
    enum { V = tnc_wide<T>::count, real = tnc_code<typename tnc_real<T>::type>::dtype };
    int i;
    if (!tnc_has(&c->out[0], c->in[0].dtype) || !tnc_has(&c->out[1], real)) return TN_ERR_DTYPE;
    for (i = 1; i < c->n_in; i++) if (!tnc_has(&c->in[i], real)) return TN_ERR_DTYPE;
    if (c->out[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (c->out[0].shape[0] == 0 || c->out[0].shape[1] == 0) return TN_OK;
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data)
        && tnc_aligned(c->out[0].data) && (!CENTRED || tnc_aligned(c->in[2].data))) tnc_norm_launch<T, V, CENTRED>(s, c);
    else tnc_norm_launch<T, 1, CENTRED>(s, c);
    return TN_OK;
}

static tn_status tnc_rmsnorm(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_of<T, false>(s, c))
}

static tn_status tnc_layernorm(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_of<T, true>(s, c))
}

/* ---- rmsnorm_backward, layernorm_backward --------------------------------------------------- >>op-rmsnorm >>op-layernorm
   dx row by row, with x and dy in registers. SUMS: a thread always has the same columns, so it adds up what its rows give
   dw and db; a block adds its threads in their order and leaves part[2,blocks,C], and a second kernel adds the blocks.
   Where a thread would have too many columns, the first kernel leaves the rows' means instead and a third reads x and dy
   again.
   Floor: reads 2 R C numbers (3 when dx is added to), writes R C */

template <int V, bool CENTRED>
struct tnc_norm_held { enum { count = CENTRED && V == 8 ? 2 : 4 }; };     /* what registers hold */

template <typename R> struct tnc_norm_more {
    R      *part;                       /* [2,blocks,C], or NULL          */
    R      *means;                      /* [2,rows]: mean, rest; or NULL  */
    int64_t rows;
    int     C, lanes;
    bool    accumulate;
};

template <typename T, int V, bool CENTRED, bool SUMS>
static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_norm_backward_kernel(const T *x, const typename tnc_real<T>::type *w, const typename tnc_real<T>::type *r, const T *dy,
                         T *dx, tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    enum { HELD = tnc_norm_held<V, CENTRED>::count, MINE = SUMS ? HELD * V : 1 };
    const int     lanes = more.lanes, each = (int)blockDim.x / lanes;
    const int     lane = tnc_lane(lanes);
    const int     C = more.C, n = C / V;
    const double  whole = 1.0 / C;
    const R       part = (R)whole;
    R             dw[MINE] = {}, db[MINE] = {};
    int64_t       base;
    for (base = (int64_t)blockIdx.x * each; base < more.rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < more.rows ? mine : more.rows - 1;
        const bool    live = mine < more.rows;
        const T      *from = x + row * C, *from_dy = dy + row * C;
        const R       scale = r[row];
        tnc_pack<T, V> held[HELD], held_dy[HELD];
        R    mean = 0, rest = 0, sum = 0, dot = 0, along = 0;
        bool far = false;
        int  k;
        auto pieces = [&](auto use) {               /* use(x, dy, which piece, how many of this thread came before) */
            R   v[V], d[V];
            int i, j;
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                if (lane + j * lanes >= n) break;
                tnc_unpack(v, held[j]);
                tnc_unpack(d, held_dy[j]);
                use(v, d, lane + j * lanes, j);
            }
            for (i = lane + HELD * lanes; !SUMS && i < n; i += lanes) {
                tnc_load(v, from + i * V);
                tnc_load(d, from_dy + i * V);
                use(v, d, i, 0);
            }
        };
        TNC_UNROLL
        for (k = 0; k < HELD; k++) {
            if (lane + k * lanes >= n) break;
            held[k] = tnc_fetch<V>(from + (lane + k * lanes) * V);
            held_dy[k] = tnc_fetch<V>(from_dy + (lane + k * lanes) * V);
        }
        if (CENTRED) {
            pieces([&](R (&v)[V], R (&)[V], int, int) { for (int q = 0; q < V; q++) mean += v[q] * part; });
            mean = tnc_row_sum(mean, lanes);
            pieces([&](R (&v)[V], R (&)[V], int, int) { for (int q = 0; q < V; q++) rest += (v[q] - mean) * part; });
            rest = tnc_row_sum(rest, lanes);
            if (more.means && live && lane == 0) {
                more.means[row] = mean;
                more.means[more.rows + row] = rest;
            }
        }
        pieces([&](R (&v)[V], R (&d)[V], int i, int j) {
            R gain[V] = {};
            if (w) tnc_load(gain, w + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                const R z = (v[q] - mean - rest) * scale, g = w ? d[q] * gain[q] : d[q];
                if (SUMS && live) {
                    dw[j * V + q] = tnc_fma(d[q], z, dw[j * V + q]);
                    if (CENTRED) db[j * V + q] += d[q];
                }
                if (CENTRED) sum += g;
                dot = tnc_fma(g, CENTRED ? z : v[q], dot);
            }
        });
        if (!dx) continue;
        if (CENTRED) sum = tnc_row_sum(sum, lanes) * part;
        dot = tnc_row_sum(dot, lanes);          /* x is taken times this: in double, for it nearly cancels dy */
        if constexpr (sizeof(R) == sizeof(float) && !CENTRED) {         /* scale^3 and dot may leave float's range: then z */
            const double factor = (double)scale * scale * scale * dot * whole, size = factor < 0 ? -factor : factor;
            far = !(scale > 1e-6f && scale < 1e6f) || size > 3.4e38 || (size != 0 && size < 1.2e-38);
            if (__any_sync(0xffffffffu, far)) {
                double wide = 0;
                pieces([&](R (&v)[V], R (&d)[V], int i, int) {
                    R gain[V] = {};
                    if (w) tnc_load(gain, w + i * V);
                    for (int q = 0; q < V; q++) {
                        const double g = w ? d[q] * gain[q] : d[q], z = v[q] * scale;
                        wide = fma(g, z, wide);
                    }
                });
                wide = tnc_row_sum(wide, lanes);
                if (far) along = (R)(-(double)scale * wide * whole);
            }
        }
        dot = (R)(CENTRED ? -(double)dot * whole : -(double)scale * scale * scale * dot * whole);
        if (!live) continue;
        pieces([&](R (&v)[V], R (&d)[V], int i, int) {
            T *to = dx + row * C + i * V;
            R  gain[V];
            if (w) tnc_load(gain, w + i * V);
            TNC_UNROLL
            for (int q = 0; q < V; q++) {
                const R g = w ? d[q] * gain[q] : d[q];
                if (CENTRED) v[q] = scale * tnc_fma((v[q] - mean - rest) * scale, dot, g - sum);
                else v[q] = far ? tnc_fma(v[q] * scale, along, g * scale) : tnc_fma(v[q], dot, g * scale);
            }
            if (more.accumulate) tnc_add_to(to, v);
            else tnc_store(to, v);
        });
    }
    if constexpr (SUMS) {
        TNC_SHARED(R, total, [2][32 * HELD * V]);
        const int group = (int)threadIdx.x / lanes;
        R        *to = more.part + (int64_t)blockIdx.x * C, *to_b = to + (int64_t)gridDim.x * C;
        int       g, j;
        auto leave = [&](R *at, const R *of, bool first) {
            TNC_UNROLL
            for (j = 0; j < HELD; j++) {
                if (lane + j * lanes >= n) break;
                for (int q = 0; q < V; q++) {
                    R *one = at + (lane + j * lanes) * V + q;
                    *one = first ? of[j * V + q] : *one + of[j * V + q];
                }
            }
        };
        for (g = 0; g < each; g++) {
            if (g == group) {
                leave(each > 1 ? total[0] : to, dw, g == 0);
                if (CENTRED) leave(each > 1 ? total[1] : to_b, db, g == 0);
            }
            __syncthreads();
        }
        for (j = (int)threadIdx.x; each > 1 && j < C; j += (int)blockDim.x) {
            to[j] = total[0][j];
            if (CENTRED) to_b[j] = total[1][j];
        }
    }
}

/* part[2,chunks,C] of what chunks of rows give dw and db: 32 columns a block, 8 rows at a time. */
template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_norm_columns_kernel(const T *x, const typename tnc_real<T>::type *r, const T *dy, int64_t chunk,
                        tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, sums, [2][8][33]);
    const int     column = (int)threadIdx.x & 31, lane = (int)threadIdx.x >> 5;
    const int64_t c = (int64_t)blockIdx.x * 32 + column, begin = (int64_t)blockIdx.y * chunk;
    const int64_t end = begin + chunk < more.rows ? begin + chunk : more.rows;
    int64_t i;
    R       dw = 0, db = 0;
    int     k;
    TNC_UNROLL_BY(4)
    for (i = begin + lane; c < more.C && i < end; i += 8) {
        const R mean = more.means ? more.means[i] : R(0), rest = more.means ? more.means[more.rows + i] : R(0);
        const R d = tnc_to(dy[i * more.C + c]);
        dw = tnc_fma(d, (tnc_to(x[i * more.C + c]) - mean - rest) * r[i], dw);
        db += d;
    }
    sums[0][lane][column] = dw;
    sums[1][lane][column] = db;
    __syncthreads();
    if (lane > 1 || c >= more.C) return;
    for (dw = 0, k = 0; k < 8; k++) dw += sums[lane][k][column];
    more.part[((int64_t)lane * gridDim.y + blockIdx.y) * more.C + c] = dw;
}

template <typename T, int V, bool CENTRED, bool SUMS>
static void tnc_norm_backward_launch(tnc *s, const tn_call *c, tnc_rows at, unsigned blocks,
                                     tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    TNC_LAUNCH((tnc_norm_backward_kernel<T, V, CENTRED, SUMS>), blocks, at.threads, 0, s->stream, (const T *)c->in[0].data,
               (const R *)c->in[1].data, (const R *)c->in[2].data, (const T *)c->in[3].data, (T *)c->out[0].data, more);
}

template <typename T, bool CENTRED> static tn_status tnc_norm_backward_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count, HELD = tnc_norm_held<V, CENTRED>::count, real = tnc_code<R>::dtype };
    const int        chunks = 64;
    const int64_t    rows = c->in[0].shape[0], C = c->in[0].shape[1];
    R               *dw = c->n_out > 1 ? (R *)c->out[1].data : NULL;
    R               *db = CENTRED && c->n_out > 2 ? (R *)c->out[2].data : NULL;
    const bool       wide = C % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data)
                         && tnc_aligned(c->in[3].data) && tnc_aligned(c->out[0].data);
    const tnc_rows   at = tnc_rows_of(wide ? C / V : C, HELD, TNC_THREADS);
    const bool       wanted = dw || db, sums = wanted && wide && C / V <= (int64_t)at.lanes * HELD;
    const int        each = at.threads / at.lanes;
    const unsigned   blocks = sums ? (unsigned)tnc_bound(tnc_ceil(rows, each), 1, s->sms * (512 / at.threads))
                                   : tnc_grid(s, rows, each);
    const int64_t    parts = sums ? (int64_t)blocks : chunks;
    tnc_norm_more<R> more = { NULL, NULL, rows, (int)C, at.lanes, c->accumulate };
    if (!tnc_has(&c->in[1], real) || !tnc_has(&c->in[2], real) || !tnc_has(&c->in[3], c->in[0].dtype)
        || !tnc_has(&c->out[0], c->in[0].dtype) || (dw && !tnc_has(&c->out[1], real)) || (db && !tnc_has(&c->out[2], real)))
        return TN_ERR_DTYPE;
    if (C > INT32_MAX) return TN_ERR_SHAPE;
    if (rows == 0 || C == 0) return TN_OK;
    if (wanted) {
        more.part = (R *)tnc_scratch(s, (size_t)(2 * parts * C + 2 * rows) * sizeof(R));
        if (!more.part) return TN_ERR_MEMORY;
        if (CENTRED && !sums) more.means = more.part + 2 * parts * C;
    }
    if (sums) tnc_norm_backward_launch<T, V, CENTRED, true>(s, c, at, blocks, more);
    else if (wide) tnc_norm_backward_launch<T, V, CENTRED, false>(s, c, at, blocks, more);
    else tnc_norm_backward_launch<T, 1, CENTRED, false>(s, c, at, blocks, more);
    if (wanted && !sums)
        TNC_START((tnc_norm_columns_kernel<T>), dim3((unsigned)tnc_ceil(C, 32), chunks), (const T *)c->in[0].data,
                  (const R *)c->in[2].data, (const T *)c->in[3].data, tnc_ceil(rows, chunks), more);
    if (dw) tnc_add_parts(s, more.part, parts, C, dw);
    if (db) tnc_add_parts(s, more.part + parts * C, parts, C, db);
    return TN_OK;
}

static tn_status tnc_rmsnorm_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_backward_of<T, false>(s, c))
}

static tn_status tnc_layernorm_backward(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_norm_backward_of<T, true>(s, c))
}

/* ---- dropout ----------------------------------------------------------------------------------------------- >>op-dropout
   Masks are the CPU's to the bit: p as a float lies between two neighbours of the 2^23 numbers that it is compared with just
   as p in double does. Kept numbers are multiplied by 1/(1-p), in F64 divided by 1-p as the reference does.
   Floor: the bytes of x and y, 20 instructions of Philox a number */

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_dropout_kernel(const tnc_stream_of g, const int32_t *clock, T *y, const T *x, int64_t n, bool aligned, bool add, float p)
{
    typedef typename tnc_real<T>::type R;
    const int64_t blocks = (n + 3) / 4;
    const R       scale = (R)(1 / g.width);
    for (TNC_MINE(i, blocks)) {
        uint32_t word[4];
        R        v[4], old[4];
        tnc_load_four(v, x, i, n, aligned);
        if (add) tnc_load_four(old, (const T *)y, i, n, aligned);
        tnc_philox(g, (uint32_t)*clock, (uint64_t)i, word);
        TNC_UNROLL
        for (int k = 0; k < 4; k++) {
            v[k] = tnc_unit(word[k]) < p ? R(0) : sizeof(R) == 8 ? v[k] / (R)g.width : v[k] * scale;
            if (add) v[k] += old[k];
        }
        tnc_store_four(y, i, n, aligned, v);
    }
}

static tn_status tnc_dropout(tnc *s, const tn_call *c)
{
    const tn_view *x = &c->in[0], *y = &c->out[0];
    const int64_t  n = y->shape[0];
    const float    p = ((float)ceil(c->f[0] * 8388608.0 - 0.5) + 0.5f) * (1.0f / 8388608.0f);
    if (x->dtype != y->dtype) return TN_ERR_DTYPE;
    if (n > 0)
        TNC_TYPES(y->dtype, T,
            TNC_START((tnc_dropout_kernel<T>), tnc_blocks(tnc_ceil(n, 4), TNC_THREADS), tnc_stream_from(c, 0, 1 - c->f[0]),
                      (const int32_t *)c->in[1].data, (T *)y->data, (const T *)x->data, n,
                      tnc_aligned(x->data, alignof(tnc_pack<T, 4>)) && tnc_aligned(y->data, alignof(tnc_pack<T, 4>)),
                      c->accumulate, p))
    return TN_OK;
}

/* ---- cross_entropy ----------------------------------------------------------------------------------- >>op-cross_entropy
   A row's largest logit m and sum of e^(z - m) grow together, thread by thread, the sum scaled when m does; pieces that fit
   stay in shared memory for the second pass, which writes the gradient. Rows need not begin at multiples of 16: V > 1 takes
   single elements at both ends. Each block adds the losses of its rows, a second kernel the blocks.
   Floor: reads R C numbers, and writes as many if the gradient is wanted */

template <typename T> struct tnc_entropy {
    typedef typename tnc_real<T>::type R;
    const T       *z;
    const int32_t *label;
    R             *loss, *lse;
    T             *dz;
    double        *part;
    int32_t       *fault;
    int64_t        rows;
    int            C, lanes, room;          /* room: pieces of a row that shared memory holds */
};

/* One more number of a running m, sum. Equal to the reference where m stays infinite: the sum is NaN there in the end. */
template <bool FAST, typename R, int V>
static __device__ __forceinline__ void tnc_entropy_add(const R (&v)[V], R *most, R *sum)
{
    R top = v[0], from;
    TNC_UNROLL
    for (int k = 1; k < V; k++) top = tnc_larger(v[k], top);
    if (top > *most) {
        *sum *= tnc_exp<FAST>(*most - top);
        *most = top;
    }
    from = *most > -R(INFINITY) ? *most : R(0);
    TNC_EACH *sum += tnc_exp<FAST>(v[k] - from);
}

template <typename T, int V> static __global__ void __launch_bounds__(512, sizeof(T) == 8 ? 1 : 2)
tnc_entropy_kernel(tnc_entropy<T> a)
{
    typedef typename tnc_real<T>::type R;
    typedef tnc_pack<T, V> P;
    enum { AHEAD = 4 };
    TNC_DYN_SHARED(P, shared);
    const int lanes = a.lanes, each = (int)blockDim.x / lanes, lane = tnc_lane(lanes);
    P        *held = shared + (int)threadIdx.x / lanes * a.room;
    double    loss = 0;
    int64_t   base;
    for (base = (int64_t)blockIdx.x * each; base < a.rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < a.rows ? mine : a.rows - 1;
        const T      *from = a.z + row * a.C;
        const int     head = V == 1 ? 0 : min((int)((16 - (uintptr_t)from % 16) % 16 / sizeof(T)), a.C);
        const int     n = (a.C - head) / V, ends = a.C - n * V;
        const int32_t label = a.label[row];
        const bool    good = label >= 0 && label < a.C;
        const T      *body = from + head;
        R       most = -R(INFINITY), sum = 0, top, scale;
        int     i;
        for (i = lane; i < ends; i += lanes) {
            const R v[1] = { tnc_to(from[i < head ? i : i + n * V]) };
            tnc_entropy_add<true>(v, &most, &sum);
        }
        for (i = lane; i < n; i += AHEAD * lanes) {
            P piece[AHEAD];
            TNC_UNROLL
            for (int k = 0; k < AHEAD; k++) if (i + k * lanes < n) piece[k] = tnc_fetch<V>(body + (i + k * lanes) * V);
            TNC_UNROLL
            for (int k = 0; k < AHEAD; k++) {
                R v[V];
                if (i + k * lanes >= n) break;
                if (i + k * lanes < a.room) held[i + k * lanes] = piece[k];
                tnc_unpack(v, piece[k]);
                tnc_entropy_add<true>(v, &most, &sum);
            }
        }
        top = tnc_row_largest(most, lanes);
        sum = tnc_row_sum(sum * tnc_exp<true>(most - (top > -R(INFINITY) ? top : R(0))), lanes);
        if (top == -R(INFINITY)) sum = R(NAN);                  /* all of them: nothing to compare with */
        if (mine >= a.rows) continue;
        if (lane == 0) {
            a.lse[row] = top + tnc_log(sum);
            if (good) loss += (double)(top - tnc_to(from[label]) + tnc_log(sum));
            else tnc_blame(a.fault, a.label, row, a.C);
        }
        if (!a.dz) continue;
        {
            const R share = R(1) / R(a.rows);
            T      *to = a.dz + row * a.C, *to_body = to + head;
            scale = share / sum;
            for (i = lane; i < ends; i += lanes) {
                const int at = i < head ? i : i + n * V;
                const R   v = tnc_exp<true>(tnc_to(from[at]) - top) * scale - (at == label ? share : R(0));
                to[at] = tnc_from<T>(good ? v : R(0));
            }
            TNC_UNROLL_BY(2)
            for (i = lane; i < n; i += lanes) {
                R v[V];
                tnc_unpack(v, i < a.room ? held[i] : tnc_fetch<V>(body + i * V));
                TNC_EACH {
                    v[k] = tnc_exp<true>(v[k] - top) * scale - (head + i * V + k == label ? share : R(0));
                    if (!good) v[k] = 0;
                }
                tnc_store(to_body + i * V, v);
            }
        }
    }
    loss = tnc_block_sum(loss);
    if (threadIdx.x == 0) a.part[blockIdx.x] = loss;
}

template <typename T, int V> static tn_status tnc_entropy_launch(tnc *s, tnc_entropy<T> a)
{
    typedef typename tnc_real<T>::type R;
    const int      pieces = a.C / V;
    const tnc_rows at = tnc_rows_of(pieces, 4, 512);
    const int64_t  whole = (int64_t)(s->shared_max - 4096) / 16, half = whole / 2;
    const unsigned blocks = tnc_grid(s, a.rows, at.threads / at.lanes);
    size_t         shared = 0;
    a.part = (double *)tnc_scratch(s, blocks * sizeof(double));
    if (!a.part) return TN_ERR_MEMORY;
    a.lanes = at.lanes;
    a.room = 0;
    if (V > 1 && a.dz) {
        a.room = pieces <= half || pieces > whole ? tnc_bound(pieces, 0, (int)half) : pieces;
        shared = (size_t)a.room * 16 * (size_t)(at.threads / at.lanes);
        tnc_shared_for(s, tnc_entropy_kernel<T, V>, shared);
    }
    TNC_LAUNCH((tnc_entropy_kernel<T, V>), blocks, at.threads, shared, s->stream, a);
    TNC_START((tnc_mean_kernel<double, R>), 1, (const double *)a.part, (int64_t)blocks, (double)a.rows, a.loss);
    return TN_OK;
}

template <typename T> static tn_status tnc_cross_entropy_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    tnc_entropy<T> a;
    memset(&a, 0, sizeof a);
    a.z = (const T *)c->in[0].data;
    a.label = (const int32_t *)c->in[1].data;
    a.loss = (R *)c->out[0].data;
    a.lse = (R *)c->out[1].data;
    a.fault = (int32_t *)c->out[2].data;
    a.dz = c->n_out > 3 ? (T *)c->out[3].data : NULL;
    a.rows = c->in[0].shape[0];
    a.C = (int)c->in[0].shape[1];
    if (c->in[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype) || !tnc_has(&c->out[1], tnc_code<R>::dtype)
        || (a.dz && !tnc_has(&c->out[3], c->in[0].dtype))) return TN_ERR_DTYPE;
    if (a.dz && ((uintptr_t)a.z - (uintptr_t)a.dz) % 16 != 0) return tnc_entropy_launch<T, 1>(s, a);
    return tnc_entropy_launch<T, tnc_wide<T>::count>(s, a);
}

static tn_status tnc_cross_entropy(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_cross_entropy_of<T>(s, c))
}

/* ---- softmax, softmax_backward ------------------------------------------------------------------------------ >>op-softmax
   A row's largest number and its sum grow together, as in cross_entropy; then it is read again. Back: the sum, then dx.
   Floor: reads R C numbers, back 2 R C (3 when dx is added to), and writes R C; what is read again is in the cache. */

template <typename T, int V>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_softmax_kernel(const T *x, T *y, const int64_t rows, const int C, const int lanes, const bool log_of)
{
    typedef typename tnc_real<T>::type R;
    enum { FAST = sizeof(T) == 2 };
    const int lane = tnc_lane(lanes), each = (int)blockDim.x / lanes, n = C / V;
    int64_t   base;
    for (base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        R   most = -R(INFINITY), sum = 0, top, scale, v[V];
        int i;
        for (i = lane; i < n; i += lanes) {
            tnc_load(v, x + row * C + i * V);
            tnc_entropy_add<FAST>(v, &most, &sum);
        }
        top = tnc_row_largest(most, lanes);
        if (top == -R(INFINITY)) top = 0;                       /* all of them: the sum is 0 */
        sum = tnc_row_sum(sum * tnc_exp<FAST>(most - top), lanes);
        scale = log_of ? tnc_log(sum) : sum == 0 ? R(0) : R(1) / sum;
        if (mine >= rows) continue;
        for (i = lane; i < n; i += lanes) {
            tnc_load(v, x + row * C + i * V);
            TNC_EACH {
                v[k] -= top;
                v[k] = log_of ? v[k] - scale : tnc_exp<FAST>(v[k]) * scale;
                if (log_of && sum == 0) v[k] = -R(INFINITY);
            }
            tnc_store(y + row * C + i * V, v);
        }
    }
}

template <typename T, int V>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_softmax_backward_kernel(const T *y, const T *dy, T *dx, const int64_t rows, const int C, const int lanes,
                            const bool log_of, const bool add)
{
    typedef typename tnc_real<T>::type R;
    enum { FAST = sizeof(T) == 2 };
    const int lane = tnc_lane(lanes), each = (int)blockDim.x / lanes, n = C / V;
    int64_t   base;
    for (base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        R   sum = 0, v[V], d[V];
        int i;
        for (i = lane; i < n; i += lanes) {
            tnc_load(v, y + row * C + i * V);
            tnc_load(d, dy + row * C + i * V);
            TNC_EACH sum = log_of ? sum + d[k] : tnc_fma(d[k], v[k], sum);
        }
        sum = tnc_row_sum(sum, lanes);
        if (mine >= rows) continue;
        for (i = lane; i < n; i += lanes) {
            T *to = dx + row * C + i * V;
            tnc_load(v, y + row * C + i * V);
            tnc_load(d, dy + row * C + i * V);
            TNC_EACH v[k] = log_of ? tnc_fma(-tnc_exp<FAST>(v[k]), sum, d[k]) : v[k] * (d[k] - sum);
            if (add) tnc_add_to(to, v);
            else tnc_store(to, v);
        }
    }
}

template <typename T, int V> static void tnc_softmax_launch(tnc *s, const tn_call *c)
{
    const int64_t  rows = c->out[0].shape[0], C = c->out[0].shape[1];
    const tnc_rows at = tnc_rows_of(C / V, 4, TNC_THREADS);
    const unsigned blocks = tnc_grid(s, rows, at.threads / at.lanes);
    const T       *x = (const T *)c->in[0].data, *dy = (const T *)c->in[1].data;
    T             *y = (T *)c->out[0].data;
    if (c->kernel == TN_KERNEL_SOFTMAX)
        TNC_LAUNCH((tnc_softmax_kernel<T, V>), blocks, at.threads, 0, s->stream, x, y, rows, (int)C, at.lanes, c->i[0] != 0);
    else
        TNC_LAUNCH((tnc_softmax_backward_kernel<T, V>), blocks, at.threads, 0, s->stream, x, dy, y, rows, (int)C, at.lanes,
                   c->i[0] != 0, c->accumulate);
}

template <typename T> static tn_status tnc_softmax_of(tnc *s, const tn_call *c)
{
    enum { V = tnc_wide<T>::count };
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    if (c->out[0].shape[1] > INT32_MAX) return TN_ERR_SHAPE;
    if (c->out[0].shape[0] == 0 || c->out[0].shape[1] == 0) return TN_OK;
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data)
        && tnc_aligned(c->out[0].data)) tnc_softmax_launch<T, V>(s, c);
    else tnc_softmax_launch<T, 1>(s, c);
    return TN_OK;
}

static tn_status tnc_softmax(tnc *s, const tn_call *c) { TNC_TYPES(c->out[0].dtype, T, return tnc_softmax_of<T>(s, c)) }

static tn_status tnc_softmax_backward(tnc *s, const tn_call *c) { return tnc_softmax(s, c); }

/* ---- chain, chain_backward ----------------------------------------------------------------------------------- >>op-chain
   A block per chain, whose products follow each other: the running product in shared memory, the next matrix on its way in
   registers while the present one is multiplied. A product is left as it is while its norm is within 2^+-16, the last is
   divided by it. Matrices too large for shared memory stay in the workspace. TILE: a thread computes TILE x TILE elements.
   Floor: 2 n d^3 flops a chain, forward; twice that backward; the chains side by side */

template <typename R> struct tnc_chains {
    R *m, *p, *v;                           /* [b,n,d,d], [b,n,d,d] or NULL, [b,n] or NULL */
    R *y;                                   /* [b,d*d+1]: the output, or its gradient      */
    R *dm, *work;                           /* [b,n,d,d]; [b,2 or 4,d,d]                   */
    int64_t batch, n;
    int     d;
    bool    shared, accumulate;
};

enum { TNC_CHAIN_AHEAD = 4 };

/* The next matrix: asked for by fetch, there after put. What is too large to wait in registers is read by put. */
template <typename R>
static __device__ __forceinline__ void tnc_chain_fetch(R (&next)[TNC_CHAIN_AHEAD], const R *from, int dd)
{
    int k;
    TNC_UNROLL
    for (k = 0; k < TNC_CHAIN_AHEAD; k++) {
        const int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < dd) next[k] = from[i];
    }
}

template <typename R>
static __device__ __forceinline__ void tnc_chain_put(R *to, const R (&next)[TNC_CHAIN_AHEAD], const R *from, int dd)
{
    int i, k;
    TNC_UNROLL
    for (k = 0; k < TNC_CHAIN_AHEAD; k++) {
        i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < dd) to[i] = next[k];
    }
    for (i = (int)threadIdx.x + TNC_CHAIN_AHEAD * (int)blockDim.x; i < dd; i += (int)blockDim.x) to[i] = from[i];
}

/* a b, or a^T b, or a b^T, element by element into keep(index, value). */
template <int TILE, bool TA, bool TB, typename R, typename K>
static __device__ __forceinline__ void tnc_chain_product(const R *a, const R *b, int d, K keep)
{
    const int side = (d + TILE - 1) / TILE;
    int       t, i, j, k;
    for (t = (int)threadIdx.x; t < side * side; t += (int)blockDim.x) {
        const int row = t / side, column = t % side;            /* and every side-th after them */
        R         sum[TILE][TILE] = {};
        int       at_row[TILE], at_column[TILE];
        TNC_UNROLL
        for (i = 0; i < TILE; i++) {
            at_row[i] = (row + i * side < d ? row + i * side : d - 1) * (TA ? 1 : d);
            at_column[i] = (column + i * side < d ? column + i * side : d - 1) * (TB ? d : 1);
        }
        for (k = 0; k < d; k++) {
            R left[TILE], right[TILE];
            TNC_UNROLL
            for (i = 0; i < TILE; i++) {
                left[i] = a[at_row[i] + (TA ? k * d : k)];
                right[i] = b[at_column[i] + (TB ? k : k * d)];
            }
            TNC_UNROLL
            for (i = 0; i < TILE; i++)
                TNC_UNROLL
                for (j = 0; j < TILE; j++) sum[i][j] = tnc_fma(left[i], right[j], sum[i][j]);
        }
        TNC_UNROLL
        for (i = 0; i < TILE; i++)
            TNC_UNROLL
            for (j = 0; j < TILE; j++)
                if (row + i * side < d && column + j * side < d) keep((row + i * side) * d + column + j * side, sum[i][j]);
    }
}

/* Divides x by what it returns, see above: squares is this thread's share of |x|^2. By a power of two first where squares
   overflow or vanish; zeros stay zeros, an infinity makes NaN. */
template <typename R> static __device__ __forceinline__ R tnc_chain_norm(R *x, int dd, R squares, bool must)
{
    const R limit = sizeof(R) == 4 ? R(1e30) : R(1e300), near_one = R(4294967296.0);
    R       total = tnc_block_sum(squares), most = 1, unit;
    int     i, power = 0;
    if (!must && total > 1 / near_one && total < near_one) return R(1);
    if (!(total > 1 / limit && total < limit)) {
        for (most = 0, i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) most = tnc_larger(tnc_abs(x[i]), most);
        most = tnc_row_largest(most, (int)blockDim.x);
        if (most == 0 && total == 0) return R(0);
        power = most == 0 || most == R(INFINITY) ? 0 : ilogb(most);
        for (squares = 0, i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) {
            x[i] = ldexp(x[i], -power);
            squares = tnc_fma(x[i], x[i], squares);
        }
        total = tnc_block_sum(squares);
        if (most == R(INFINITY)) total = R(NAN);
    }
    unit = rsqrt(total);
    for (i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) x[i] *= unit;
    __syncthreads();
    return ldexp(total * unit, power);
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2) tnc_chain_kernel(tnc_chains<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    int64_t   b, j;
    int       i;
    for (b = blockIdx.x; b < a.batch; b += gridDim.x) {
        R       *to = a.shared ? shared : a.work + b * 2 * dd, *from = to + dd, *swap;
        R       *keep = a.shared ? shared + 2 * dd : NULL;
        const R *m = a.m + b * a.n * dd;
        R        next[TNC_CHAIN_AHEAD], *y = a.y + b * (dd + 1);
        double   log_norm = 0;
        if (a.shared && a.n > 1) tnc_chain_fetch(next, m + dd, dd);
        for (j = 0; j < a.n; j++, m += dd) {
            R squares = 0, norm;
            swap = from; from = to; to = swap;
            if (j == 0) {
                for (i = me; i < dd; i += threads) {
                    to[i] = m[i];
                    squares = tnc_fma(to[i], to[i], squares);
                }
            } else {
                if (keep) {
                    tnc_chain_put(keep, next, m, dd);
                    if (j + 1 < a.n) tnc_chain_fetch(next, m + dd, dd);
                    __syncthreads();
                }
                tnc_chain_product<TILE, false, false>((const R *)from, keep ? (const R *)keep : m, d, [&](int at, R x) {
                    to[at] = x;
                    squares = tnc_fma(x, x, squares);
                });
            }
            norm = tnc_chain_norm(to, dd, squares, j == a.n - 1);
            if (norm != 1) log_norm += log((double)norm);
            if (me == 0 && a.v) a.v[b * a.n + j] = norm;
            for (i = me; a.p && i < dd; i += threads) a.p[(b * a.n + j) * dd + i] = to[i];
        }
        for (i = me; i < dd; i += threads) y[i] = to[i];
        if (me == 0) y[dd] = (R)log_norm;
        __syncthreads();
    }
}

template <typename R, int TILE> static __global__ void __launch_bounds__(TNC_THREADS, 2)
tnc_chain_backward_kernel(tnc_chains<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    int64_t   b, j;
    int       i;
    for (b = blockIdx.x; b < a.batch; b += gridDim.x) {
        const int64_t last = (b + 1) * a.n - 1;
        R       *g = a.shared ? shared : a.work + b * 4 * dd, *next = g + dd, *swap;
        R       *keep = a.shared ? shared + 2 * dd : NULL;
        const R *y = a.p + last * dd, *dy = a.y + b * (dd + 1);
        R        ahead[2][TNC_CHAIN_AHEAD];
        const R  last_v = a.v[last];
        double   scale = -log((double)last_v);
        R        dot = 0, factor = last_v == 0 ? R(0) : (R)exp(scale / 2);       /* twice: its square may have no float */
        for (i = me; i < dd; i += threads) dot = tnc_fma(y[i], dy[i], dot);
        dot = dy[dd] - tnc_block_sum(dot);
        for (i = me; i < dd; i += threads) g[i] = tnc_fma(dot, y[i], dy[i]);
        if (keep && a.n > 1) {
            tnc_chain_fetch(ahead[0], a.p + (last - 1) * dd, dd);
            tnc_chain_fetch(ahead[1], a.m + last * dd, dd);
        }
        __syncthreads();
        for (j = last; ; j--) {
            const R *p = a.p + (j - 1) * dd, *m = a.m + j * dd;
            R       *to = a.dm + j * dd, squares = 0, norm;
            double   before = scale;
            auto     give = [&](int at, R x) {
                x = factor == 0 ? R(0) : factor * (factor * x);
                to[at] = a.accumulate ? to[at] + x : x;
            };
            if (j == b * a.n) {
                for (i = me; i < dd; i += threads) give(i, g[i]);
                break;
            }
            if (keep) {
                tnc_chain_put(keep, ahead[0], p, dd);
                tnc_chain_put(keep + dd, ahead[1], m, dd);
                if (j - 1 > b * a.n) {
                    tnc_chain_fetch(ahead[0], p - dd, dd);
                    tnc_chain_fetch(ahead[1], m - dd, dd);
                }
                __syncthreads();
            }
            tnc_chain_product<TILE, true, false>(keep ? (const R *)keep : p, (const R *)g, d, give);
            tnc_chain_product<TILE, false, true>((const R *)g, keep ? (const R *)keep + dd : m, d, [&](int at, R x) {
                next[at] = x;
                squares = tnc_fma(x, x, squares);
            });
            norm = tnc_chain_norm(next, dd, squares, false);
            TNC_ROLLED
            for (i = 0; i < 2; i++) {
                const R by = i == 0 ? norm : a.v[j - 1];
                if (by != 1 && (by != 0 || i == 1)) scale += (i == 0 ? 1 : -1) * log((double)by);
            }
            if (scale != before && last_v != 0) factor = (R)exp(scale / 2);
            swap = g; g = next; next = swap;
        }
        __syncthreads();
    }
}

template <typename R> static tn_status tnc_chain_launch(tnc *s, tnc_chains<R> a, bool backward)
{
    const int    tile = a.d > 16 ? 4 : 1, side = (a.d + tile - 1) / tile;
    const int    threads = 32 * tnc_bound(tnc_ceil((int64_t)side * side, 32), 1, 8);
    const size_t room = (size_t)(backward ? 4 : 3) * (size_t)a.d * (size_t)a.d * sizeof(R);
    const unsigned blocks = (unsigned)tnc_bound(a.batch, 1, 1 << 30);
    void (*kernel)(tnc_chains<R>) = backward ? tile > 1 ? tnc_chain_backward_kernel<R, 4> : tnc_chain_backward_kernel<R, 1>
                                            : tile > 1 ? tnc_chain_kernel<R, 4> : tnc_chain_kernel<R, 1>;
    a.shared = room + 2048 <= s->shared_max;
    if (a.shared) tnc_shared_for(s, kernel, room);
    TNC_LAUNCH(kernel, blocks, threads, a.shared ? room : 0, s->stream, a);
    return TN_OK;
}

template <typename R> static tn_status tnc_chain_of(tnc *s, const tn_call *c, bool backward)
{
    tnc_chains<R> a;
    memset(&a, 0, sizeof a);
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    a.batch = c->in[0].shape[0];
    a.n = c->in[0].shape[1];
    a.accumulate = c->accumulate;
    if (a.batch == 0 || a.n == 0) return TN_OK;
    if (c->in[0].shape[2] > 16384) return TN_ERR_SHAPE;         /* d^2 is an int */
    a.d = (int)c->in[0].shape[2];
    a.m = (R *)c->in[0].data;
    a.p = (R *)(backward ? c->in[1].data : c->out[1].data);
    a.v = (R *)(backward ? c->in[2].data : c->out[2].data);
    a.y = (R *)(backward ? c->in[3].data : c->out[0].data);
    a.dm = backward ? (R *)c->out[0].data : NULL;
    a.work = (R *)(backward ? c->out[1].data : c->out[3].data);
    return tnc_chain_launch(s, a, backward);
}

/* Its results are divided by each other's norms: BF16 would lose them, the dispatcher makes F32 of it. */
static tn_status tnc_chain_call(tnc *s, const tn_call *c, bool backward)
{
    TNC_REALS(c->in[0].dtype, R, return tnc_chain_of<R>(s, c, backward))
}

static tn_status tnc_chain(tnc *s, const tn_call *c) { return tnc_chain_call(s, c, false); }
static tn_status tnc_chain_backward(tnc *s, const tn_call *c) { return tnc_chain_call(s, c, true); }

/* ---- rope, rope_backward -------------------------------------------------------------------------------------- >>op-rope
   A block has a position t and some of the rows [b,t,n] there: the cosines and sines of t are made once, in double, since t
   runs to a hundred thousand, and kept in shared memory; a team of lanes has a row, a lane a piece of its first half and of
   its second. A row is read once, also for its norm. What lies otherwise, or is longer than a warp's pieces, goes through a
   plain kernel: a warp a row. Floor: the bytes of x and y, back those of x, dy and dx. */

typedef struct tnc_turns {
    const void *x, *dy;                  /* dy: NULL on the way there */
    void   *y;                           /* or dx                     */
    int64_t x_step[3], dy_step[3], y_step[3];
    int64_t batch, length, heads, d, first;
    int64_t pieces, rows;                /* of a position, and how many rows each has */
    double  octaves;                     /* pair k turns by t 2^(-k octaves) */
    double  eps;                         /* below zero: no norm              */
    int     team;
    bool    still, add;
} tnc_turns;

static __device__ __forceinline__ void tnc_rope_angle(const tnc_turns &g, int64_t t, int64_t k, double *cosine, double *sine)
{
    *cosine = 1;
    *sine = 0;
    if (!g.still) tnc_sincospi((double)(g.first + t) * exp2(-(double)k * g.octaves) * 0.3183098861837907, sine, cosine);
}

/* The rest of the backward pass, when the team has |x|^2's sum and (g x)'s. Without the norm the pull is 0. */
template <typename R>
static __device__ __forceinline__ R tnc_rope_back(R g, R x, R norm, R pull) { return norm * (g - x * pull); }

template <typename T, bool BACK>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_rope_kernel(const tnc_turns g)
{
    typedef typename tnc_real<T>::type R;
    enum { V = (int)(16 / sizeof(T)) };
    TNC_DYN_SHARED(R, turn);
    const int  h = (int)(g.d / 2), lane = tnc_lane(g.team), teams = TNC_THREADS / g.team, mine = (int)threadIdx.x / g.team;
    const bool norms = g.eps >= 0;
    for (int64_t task = blockIdx.x; task < g.length * g.pieces; task += gridDim.x) {
        const int64_t t = task / g.pieces, begin = task % g.pieces * g.rows;
        const int64_t all = g.batch * g.heads, end = begin + g.rows < all ? begin + g.rows : all;
        for (int k = (int)threadIdx.x; k < h; k += TNC_THREADS) {
            double cosine, sine;
            tnc_rope_angle(g, t, k, &cosine, &sine);
            turn[k] = (R)cosine;
            turn[h + k] = (R)sine;
        }
        __syncthreads();
        for (int64_t base = begin; base < end; base += teams) {
            const int64_t row = base + mine, b = row / g.heads, n = row - b * g.heads;
            const bool    live = row < end && lane * V < h;
            T            *y = (T *)g.y + b * g.y_step[0] + t * g.y_step[1] + n * g.y_step[2] + lane * V;
            R x0[V], x1[V], d0[V], d1[V], old0[V], old1[V], squares = 0, dot = 0, norm = 1, pull = 0;
            if (live) {
                const T *x = (const T *)g.x + b * g.x_step[0] + t * g.x_step[1] + n * g.x_step[2] + lane * V;
                tnc_load(x0, x);
                tnc_load(x1, x + h);
                if (BACK) {
                    const T *dy = (const T *)g.dy + b * g.dy_step[0] + t * g.dy_step[1] + n * g.dy_step[2] + lane * V;
                    tnc_load(d0, dy);
                    tnc_load(d1, dy + h);
                }
                if (g.add) {
                    tnc_load(old0, y);
                    tnc_load(old1, y + h);
                }
                TNC_EACH {
                    const R cosine = turn[lane * V + k], sine = turn[h + lane * V + k];
                    if (BACK) {
                        const R back = tnc_fma(d0[k], cosine, d1[k] * sine);
                        d1[k] = tnc_fma(d1[k], cosine, -d0[k] * sine);
                        d0[k] = back;
                    }
                    if (norms) {
                        squares = tnc_fma(x0[k], x0[k], tnc_fma(x1[k], x1[k], squares));
                        if (BACK) dot = tnc_fma(x0[k], d0[k], tnc_fma(x1[k], d1[k], dot));
                    }
                }
            }
            if (norms) {
                squares = tnc_lanes_sum(squares, g.team);
                if (BACK) dot = tnc_lanes_sum(dot, g.team);
                norm = R(1) / (R)sqrt(squares / (R)g.d + (R)g.eps);
                pull = norm * norm * dot / (R)g.d;
            }
            if (!live) continue;
            TNC_EACH {
                if (BACK) {
                    d0[k] = tnc_rope_back(d0[k], x0[k], norm, pull);
                    d1[k] = tnc_rope_back(d1[k], x1[k], norm, pull);
                } else {
                    const R cosine = turn[lane * V + k], sine = turn[h + lane * V + k];
                    d0[k] = norm * tnc_fma(x0[k], cosine, -x1[k] * sine);
                    d1[k] = norm * tnc_fma(x1[k], cosine, x0[k] * sine);
                }
                if (g.add) {
                    d0[k] += old0[k];
                    d1[k] += old1[k];
                }
            }
            tnc_store(y, d0);
            tnc_store(y + h, d1);
        }
        __syncthreads();
    }
}

/* R_t^T dy of pair k, or of the last of an odd row. */
template <typename R, typename T>
static __device__ __forceinline__ void tnc_rope_pair(const tnc_turns &g, const T *x, int64_t t, int64_t k, R *first,
                                                     R *second)
{
    const int64_t h = g.d / 2;
    double        cosine, sine;
    const R       a = tnc_to(x[k < h ? k : g.d - 1]), b = k < h ? tnc_to(x[k + h]) : R(0);
    tnc_rope_angle(g, t, k, &cosine, &sine);
    if (k >= h) {
        *first = a;
        *second = 0;
        return;
    }
    if (g.dy) sine = -sine;
    *first = tnc_fma(a, (R)cosine, -b * (R)sine);
    *second = tnc_fma(b, (R)cosine, a * (R)sine);
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_rope_plain_kernel(const tnc_turns g)
{
    typedef typename tnc_real<T>::type R;
    const int     lane = (int)threadIdx.x & 31;
    const int64_t rows = g.batch * g.length * g.heads, all = (int64_t)gridDim.x * (TNC_THREADS / 32), h = g.d / 2;
    for (int64_t row = (int64_t)blockIdx.x * (TNC_THREADS / 32) + (threadIdx.x >> 5); row < rows; row += all) {
        const int64_t n = row % g.heads, t = row / g.heads % g.length, b = row / g.heads / g.length;
        const T      *x = (const T *)g.x + b * g.x_step[0] + t * g.x_step[1] + n * g.x_step[2];
        const T      *dy = (const T *)g.dy + b * g.dy_step[0] + t * g.dy_step[1] + n * g.dy_step[2];
        T            *y = (T *)g.y + b * g.y_step[0] + t * g.y_step[1] + n * g.y_step[2];
        R             squares = 0, dot = 0, norm = 1, pull = 0, first, second;
        if (g.eps >= 0) {
            for (int64_t k = lane; k < g.d; k += 32) squares = tnc_fma(tnc_to(x[k]), tnc_to(x[k]), squares);
            for (int64_t k = lane; g.dy && k < h + g.d % 2; k += 32) {
                tnc_rope_pair<R>(g, dy, t, k, &first, &second);
                dot += first * tnc_to(x[k < h ? k : g.d - 1]) + (k < h ? second * tnc_to(x[k + h]) : R(0));
            }
            norm = R(1) / (R)sqrt(tnc_warp_sum(squares) / (R)g.d + (R)g.eps);
            pull = norm * norm * tnc_warp_sum(dot) / (R)g.d;
        }
        for (int64_t k = lane; k < h + g.d % 2; k += 32) {
            T *to = y + (k < h ? k : g.d - 1);
            tnc_rope_pair<R>(g, g.dy ? dy : x, t, k, &first, &second);
            first = g.dy ? tnc_rope_back(first, tnc_to(x[k < h ? k : g.d - 1]), norm, pull) : norm * first;
            *to = tnc_from<T>(g.add ? tnc_to(*to) + first : first);
            if (k >= h) continue;
            to = y + k + h;
            second = g.dy ? tnc_rope_back(second, tnc_to(x[k + h]), norm, pull) : norm * second;
            *to = tnc_from<T>(g.add ? tnc_to(*to) + second : second);
        }
    }
}

static bool tnc_heads_aligned(const tn_view *v, int64_t bytes)
{
    int i;
    for (i = 0; i < 3; i++)
        if (v->shape[i] > 1 && v->strides[i] * bytes % 16 != 0) return false;
    return tnc_aligned(v->data);
}

template <typename T> static void tnc_rope_run(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const tn_view *x = &c->in[0], *dy = c->n_in > 1 ? &c->in[1] : NULL, *y = &c->out[0];
    const int64_t  d = x->shape[3], rows = x->shape[0] * x->shape[2], lanes = d / 2 * (int64_t)sizeof(T) / 16;
    tnc_turns      g;
    int            i;
    memset(&g, 0, sizeof g);
    g.x = x->data;
    g.dy = dy ? dy->data : NULL;
    g.y = y->data;
    for (i = 0; i < 3; i++) {
        g.x_step[i] = x->strides[i];
        g.dy_step[i] = dy ? dy->strides[i] : 0;
        g.y_step[i] = y->strides[i];
    }
    g.batch = x->shape[0];
    g.length = x->shape[1];
    g.heads = x->shape[2];
    g.d = d;
    g.first = c->i[0];
    g.octaves = 2 * log2(c->f[0]) / (double)(d > 0 ? d : 1);
    g.eps = c->f[1];
    g.still = c->i[1] != 0;
    g.add = c->accumulate;
    if (rows * g.length * d == 0) return;
    if (d * (int64_t)sizeof(T) % 32 == 0 && lanes <= 32 && tnc_heads_aligned(x, sizeof(T)) && tnc_heads_aligned(y, sizeof(T))
        && (!dy || tnc_heads_aligned(dy, sizeof(T)))) {
        const size_t shared = (size_t)d * sizeof(R);
        g.team = tnc_lanes(lanes, 32);
        g.pieces = tnc_ceil(2048, g.length);                    /* enough blocks, and no fewer than four rows for a team */
        if (g.pieces > rows * g.team / (4 * TNC_THREADS)) g.pieces = rows * g.team / (4 * TNC_THREADS);
        if (g.pieces < 1) g.pieces = 1;
        g.rows = tnc_ceil(rows, g.pieces);
        g.pieces = tnc_ceil(rows, g.rows);
        if (dy) TNC_LAUNCH((tnc_rope_kernel<T, true>), tnc_blocks(g.length * g.pieces, 1), TNC_THREADS, shared, s->stream,
                           g);
        else TNC_LAUNCH((tnc_rope_kernel<T, false>), tnc_blocks(g.length * g.pieces, 1), TNC_THREADS, shared, s->stream, g);
    } else TNC_START((tnc_rope_plain_kernel<T>), tnc_blocks(rows * g.length, TNC_THREADS / 32), g);
}

static tn_status tnc_rope(tnc *s, const tn_call *c)
{
    if (!tnc_alike(c)) return TN_ERR_DTYPE;
    TNC_TYPES(c->out[0].dtype, T, tnc_rope_run<T>(s, c))
    return TN_OK;
}

static tn_status tnc_rope_backward(tnc *s, const tn_call *c) { return tnc_rope(s, c); }

/* ---- attention, quadratic -----------------------------------------------------------------------------------------------
   What is computed stands at tensornet.h's >>op-attention; the words here are its own: u_i = c_i do_i, w_i, P, ds.

   By fixed rules of dtype and shape (see "which kernels"):
   tnc_attend_part, _join          up to 4 queries (decoding), any dtype, forward: the keys are split
   tnc_attend_mma, _mma_back       BF16 operands, or F32 ones that TN_GEMM_BF16 lets be rounded; 128 keys or more; head sizes
                                   up to 128: tensor cores, sums in F32
   tnc_attend_plain, _plain_back   all else: any dtype, head size and length, in the dtype's own precision; and what was not
                                   finite on tensor cores

   Backwards is two kernels of one text: one whose blocks own keys and walk over the queries that see them (dk, dv), one
   whose blocks own queries and walk over their keys (dq). Both make the scores anew; nothing but the inputs, the row's
   statistic and one float4 a query is read, every sum has one owner and one order, and so no atomics and the same bits each
   time.

   Flops of a pair (query, key) with s sets of q and k, 2 for bilinear: forward 2 s d + 2 dv; backward, where both kernels
   make scores and u.v: keys 4 s d + 4 dv, queries 4 s d + 2 dv, together 8 s d + 6 dv. Bytes: each operand once is the
   floor, far below the flops for more than some 100 keys. */

#define TNC_LOG2E 1.4426950408889634

/* An operand [B,T,n,d] whose last axis has stride 1: element 0 and the strides of the others. */
typedef struct tnc_heads { void *data; int64_t b, t, h; } tnc_heads;

typedef struct tnc_attend {
    tnc_heads q, k, v, o, dout, dq, dk, dv;
    void     *stat;                      /* [B,H,Tq]: l_i, or the row's eps + sum; NULL: nobody wants it */
    void     *rows;                      /* backwards [B,H,Tq,4]: c_i, w_i, l_i, 0 */
    int      *odd;                       /* [heads,tiles of 64 own rows]: 1 where tensor cores made what is not finite */
    int64_t   B, H, Tq, Tk, n_qk, n_v;   /* n_qk, n_v: numbers of a head */
    int64_t   window, past;
    int       kind, row;
    bool      causal, sums;
    bool      wide;                      /* tensor cores: outputs are F32, not BF16 */
    double    scale, length, eps, unit;  /* unit: rows have l_i times this          */
    float     score, power, square;      /* scale; for exponentials of 2; squared   */
} tnc_attend;

template <typename T> static __device__ __forceinline__ T *tnc_head(const tnc_heads &x, int64_t b, int64_t t, int64_t h)
{
    return (T *)x.data + b * x.b + t * x.t + h * x.h;
}

/* The keys [low,high) that query i sees. Both ends never fall as i grows. I: int where registers are dear. */
template <typename I> struct tnc_seen { I low, high; };

template <typename I> static __device__ __forceinline__ tnc_seen<I> tnc_attend_seen(const tnc_attend &p, I i)
{
    const I     Tk = (I)p.Tk, own = Tk - (I)p.Tq + i, window = (I)p.window;
    tnc_seen<I> s = { 0, Tk };
    if (window > 0 && own - window + 1 > 0) s.low = own - window + 1;
    if (p.causal) s.high = own + 1;
    else if (window > 0 && own + window < Tk) s.high = own + window;
    if (s.high < s.low) s.high = s.low;
    return s;
}

/* The queries [low,high) that see some key of [first,last], of which some may not: what the above says, solved for i. */
template <typename I> static __device__ __forceinline__ tnc_seen<I> tnc_attend_seeing(const tnc_attend &p, I first, I last)
{
    const I     Tq = (I)p.Tq, ahead = (I)p.Tk - Tq, window = (I)p.window;
    tnc_seen<I> s = { 0, Tq };
    if (p.causal) s.low = first - ahead;
    else if (window > 0) s.low = first - ahead - window + 1;
    if (window > 0 && last - ahead + window < Tq) s.high = last - ahead + window;
    if (s.low < 0) s.low = 0;
    return s;
}

/* c_i, where it depends on the number of keys alone */
template <typename R, typename I> static __device__ R tnc_attend_scale(const tnc_attend &p, tnc_seen<I> s)
{
    const R n = R((int64_t)(s.high - s.low) + p.past);
    if (p.row == TN_ROW_SCALE_LENGTH) return n > R(p.length) ? sqrt(R(p.length) / n) : R(1);
    if (p.row == TN_ROW_SCALE_MEAN) return n > R(0) ? R(1) / n : R(0);
    return R(1);
}

/* Is o_i 0, whatever the values are? `most` is the largest score, of softmax alone. */
template <typename R>
static __device__ __forceinline__ bool tnc_attend_none(const tnc_attend &p, tnc_seen<int64_t> seen, R most)
{
    return seen.high == seen.low || (p.kind == TN_ATTEND_SOFTMAX && most == -R(INFINITY));
}

/* Else it is factor sum_j P_ij v_j: this factor, and the sum of P as it is kept. */
template <typename R> static __device__ R tnc_attend_end(const tnc_attend &p, tnc_seen<int64_t> seen, R *sum)
{
    R factor = tnc_attend_scale<R>(p, seen);
    if (p.sums) *sum += R(p.eps);
    return p.kind == TN_ATTEND_SOFTMAX || p.sums ? factor / *sum : factor;
}

/* e^(from - to) of largest scores: what turns sums of the one into sums of the other. */
template <typename R> static __device__ __forceinline__ R tnc_attend_shift(R from, R to)
{
    return from == -R(INFINITY) ? R(0) : exp(from - to);
}

/* The larger; a NaN stays. */
template <typename R> static __device__ __forceinline__ R tnc_attend_max(R a, R b) { return b > a || b != b ? b : a; }

/* ---- attention: what the backward pass asks of a query, one warp each: rows = c_i, w_i, l_i, 0 ----------------------- */

template <typename T> static __global__ void tnc_attend_rows(tnc_attend p)
{
    typedef typename tnc_real<T>::type R;
    const int     lane = (int)threadIdx.x & 31;
    const int64_t warps = (int64_t)gridDim.x * blockDim.x / 32;
    int64_t       n, e;
    for (n = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; n < p.B * p.H * p.Tq; n += warps) {
        const int64_t i = n % p.Tq, h = n / p.Tq % p.H, b = n / p.Tq / p.H;
        const bool    softmax = p.kind == TN_ATTEND_SOFTMAX;
        const R       stat = p.stat ? ((const R *)p.stat)[n] : R(0);
        R             c = p.sums ? R(1) / stat : tnc_attend_scale<R>(p, tnc_attend_seen(p, i)), dot = R(0);
        R            *row = (R *)p.rows + 4 * n;
        if (softmax || p.sums) {
            const T *o = tnc_head<T>(p.o, b, i, h), *dout = tnc_head<T>(p.dout, b, i, h);
            for (e = lane; e < p.n_v; e += 32) dot = fma(R(tnc_to(dout[e])), R(tnc_to(o[e])), dot);
        }
        dot = tnc_warp_sum(dot);
        if (lane > 0) continue;
        row[0] = c;
        row[1] = p.sums ? -dot * c : -dot;
        /* e^(s - l) is 0 where nothing is seen */
        row[2] = softmax && stat == -R(INFINITY) ? R(INFINITY) : stat * R(p.unit);
        row[3] = R(0);
    }
}

/* ---- attention: the plain kernels ---------------------------------------------------------------------------------------
   After the tensor cores they do again what did not become finite there (odd: those tiles alone).
   A block has a tile of `side` own rows (queries, or keys backwards) and walks over tiles of `side` others. A thread has a
   cell of 4 x 4 (in double 2 x 2) of each tile: own rows 4 y .. 4 y + 3, others and columns x, x + lanes, ...: reads of one
   row are broadcasts, reads across rows of odd pitch fall into different banks. Outputs are made `side` columns at a time
   (a slab), each slab by its own block, which makes the scores anew. */

template <typename R> struct tnc_attend_room {
    enum { cell = sizeof(R) == 8 ? 2 : 4, lanes = 16, threads = lanes * lanes, side = cell * lanes, slice = 16 };
    R       a[side][slice + 1], b[side][slice + 1];     /* of two operands of a product, `slice` numbers of each row */
    R       p[side][side + 1];                          /* P or ds: own rows, others                                 */
    R       x[side][side + 1];                          /* what it is multiplied by: others, columns of the slab     */
    R       row[side][4];                               /* of the queries: c, w, l                                   */
    int64_t low[side], high[side];
};

/* out = a b^T of two tiles of rows of n numbers */
template <typename T, typename R>
static __device__ void tnc_attend_product(tnc_attend_room<R> &m,
                                          R (&out)[tnc_attend_room<R>::cell][tnc_attend_room<R>::cell], const T *a,
                                          int64_t a_pitch, int64_t a_rows,
                                          const T *b, int64_t b_pitch, int64_t b_rows, int64_t n)
{
    enum { cell = tnc_attend_room<R>::cell, lanes = tnc_attend_room<R>::lanes, slice = tnc_attend_room<R>::slice,
        side = tnc_attend_room<R>::side };
    const int x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    int64_t   k0;
    int       r, c, k, t;
    TNC_UNROLL
    for (r = 0; r < cell; r++)
        TNC_UNROLL
        for (c = 0; c < cell; c++) out[r][c] = R(0);
    for (k0 = 0; k0 < n; k0 += slice) {
        for (t = (int)threadIdx.x; t < side * slice; t += lanes * lanes) {
            const int row = t / slice, at = t % slice;
            m.a[row][at] = row < a_rows && k0 + at < n ? R(tnc_to(a[row * a_pitch + k0 + at])) : R(0);
            m.b[row][at] = row < b_rows && k0 + at < n ? R(tnc_to(b[row * b_pitch + k0 + at])) : R(0);
        }
        __syncthreads();
        TNC_UNROLL
        for (k = 0; k < slice; k++)
            TNC_UNROLL
            for (r = 0; r < cell; r++)
                TNC_UNROLL
                for (c = 0; c < cell; c++) out[r][c] = fma(m.a[cell * y + r][k], m.b[x + lanes * c][k], out[r][c]);
        __syncthreads();
    }
}

/* out += p x, x the rows of `from` at columns [first, first + side) of n. Pairs that do not see each other are left out, so
   that an infinity or a NaN stays where it is; KEYS says whose the own rows are. The tile's others begin at `at`. A tile is
   summed up by itself: the error of n terms is that of n / 64 + 64. */
template <bool KEYS, typename T, typename R>
static __device__ void tnc_attend_gather(tnc_attend_room<R> &m,
                                         R (&out)[tnc_attend_room<R>::cell][tnc_attend_room<R>::cell], const T *from,
                                         int64_t pitch, int64_t rows,
                                         int64_t first, int64_t n, int64_t own, int64_t at, bool edge)
{
    enum { cell = tnc_attend_room<R>::cell, lanes = tnc_attend_room<R>::lanes, side = tnc_attend_room<R>::side };
    const int x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    R         sum[cell][cell] = {};
    int       r, c, k, t;
    for (t = (int)threadIdx.x; t < side * side; t += lanes * lanes) {
        const int row = t / side, col = t % side;
        m.x[row][col] = row < rows && first + col < n ? R(tnc_to(from[row * pitch + first + col])) : R(0);
    }
    __syncthreads();                                                            /* of p as well */
    for (k = 0; k < rows; k++)
        TNC_UNROLL
        for (r = 0; r < cell; r++) {
            const int     i = KEYS ? k : cell * y + r;
            const int64_t j = KEYS ? own + cell * y + r : at + k;
            if (edge && (j < m.low[i] || j >= m.high[i])) continue;
            TNC_UNROLL
            for (c = 0; c < cell; c++) sum[r][c] = fma(m.p[cell * y + r][k], m.x[k][x + lanes * c], sum[r][c]);
        }
    TNC_UNROLL
    for (r = 0; r < cell; r++)
        TNC_UNROLL
        for (c = 0; c < cell; c++) out[r][c] += sum[r][c];
    __syncthreads();
}

/* What the tile's queries see, and of the backward pass their row of numbers. Queries that there are not see nothing. */
template <typename R>
static __device__ void tnc_attend_tile(const tnc_attend &p, tnc_attend_room<R> &m, int64_t head, int64_t i0)
{
    enum { side = tnc_attend_room<R>::side, threads = tnc_attend_room<R>::threads };
    int t, k;
    for (t = (int)threadIdx.x; t < side; t += threads) {
        const bool     there = i0 + t < p.Tq;
        const tnc_seen<int64_t> s = tnc_attend_seen(p, i0 + t);
        m.low[t] = there ? s.low : 0;
        m.high[t] = there ? s.high : 0;
        for (k = 0; k < 4 && p.rows; k++) m.row[t][k] = there ? ((const R *)p.rows)[4 * (head * p.Tq + i0 + t) + k] : R(0);
        if (p.rows) m.row[t][2] /= R(p.unit);
    }
    __syncthreads();
}

/* The largest, of the lanes that have a row. */
template <int lanes, typename R> static __device__ R tnc_attend_row_max(R v)
{
    int k;
    for (k = lanes / 2; k; k >>= 1) v = tnc_attend_max(v, __shfl_xor_sync(0xffffffffu, v, k));
    return v;
}

/* Scores of both sets, the scale in them; with one set the second is the first. */
template <typename T, typename R>
static __device__ void tnc_attend_scores(const tnc_attend &p, tnc_attend_room<R> &m,
                                         R (&s)[2][tnc_attend_room<R>::cell][tnc_attend_room<R>::cell], const tnc_heads &a,
                                         int64_t a0,
                                         int64_t a_rows, const tnc_heads &b, int64_t b0, int64_t b_rows, int64_t batch,
                                         int64_t h)
{
    enum { cell = tnc_attend_room<R>::cell };
    const int sets = p.kind == TN_ATTEND_BILINEAR ? 2 : 1;
    int       set, r, c;
    TNC_UNROLL
    for (set = 0; set < 2; set++) {
        if (set < sets)
            tnc_attend_product(m, s[set], tnc_head<const T>(a, batch, a0, h + set * p.H), a.t, a_rows,
                               tnc_head<const T>(b, batch, b0, h + set * p.H), b.t, b_rows, p.n_qk);
        TNC_UNROLL
        for (r = 0; r < cell; r++)
            TNC_UNROLL
            for (c = 0; c < cell; c++) s[set][r][c] = set < sets ? s[set][r][c] * R(p.scale) : s[0][r][c];
    }
}

template <typename T>
static __global__ void __launch_bounds__(256) tnc_attend_plain(tnc_attend p, int64_t slabs, int64_t blocks)
{
    typedef typename tnc_real<T>::type R;
    typedef tnc_attend_room<R> room;
    enum { cell = room::cell, lanes = room::lanes, side = room::side };
    TNC_SHARED(room, shared, [1]);
    room         &m = shared[0];
    const bool    softmax = p.kind == TN_ATTEND_SOFTMAX;
    const int     x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    const int64_t heads = p.B * p.H, tiles = (p.Tq + side - 1) / side;
    int64_t       n;
    int           r, c;
    for (n = blockIdx.x; n < blocks; n += gridDim.x) {
        const int64_t head = n / slabs % heads, b = head / p.H, h = head % p.H, first = n % slabs * side;
        const int64_t i0 = (tiles - 1 - n / slabs / heads) * side;                   /* those with most keys come first */
        const int64_t rows = p.Tq - i0 < side ? p.Tq - i0 : (int64_t)side;
        const int64_t from = tnc_attend_seen(p, i0).low, full = tnc_attend_seen(p, i0).high;
        const int64_t to = tnc_attend_seen(p, i0 + rows - 1).high, all = tnc_attend_seen(p, i0 + rows - 1).low;
        R             out[cell][cell] = {}, most[cell], total[cell];
        int64_t       j0;
        if (p.odd && !p.odd[head * tiles + i0 / side]) continue;
        tnc_attend_tile(p, m, head, i0);
        TNC_UNROLL
        for (r = 0; r < cell; r++) {
            most[r] = -R(INFINITY);
            total[r] = R(0);
        }
        for (j0 = from; j0 < to; j0 += side) {
            const int64_t keys = p.Tk - j0 < side ? p.Tk - j0 : (int64_t)side;
            const bool    edge = j0 < all || j0 + side > full;
            R             s[2][cell][cell];
            tnc_attend_scores<T>(p, m, s, p.q, i0, rows, p.k, j0, keys, b, h);
            TNC_UNROLL
            for (r = 0; r < cell; r++) {
                const int64_t low = m.low[cell * y + r] - j0, high = m.high[cell * y + r] - j0;
                R             largest = most[r], factor = R(1), sum = R(0);
                if (softmax) {
                    TNC_UNROLL
                    for (c = 0; c < cell; c++)
                        if (x + lanes * c >= low && x + lanes * c < high) largest = tnc_attend_max(largest, s[0][r][c]);
                    largest = tnc_attend_row_max<lanes>(largest);
                    factor = tnc_attend_shift(most[r], largest);
                    most[r] = largest;
                }
                TNC_UNROLL
                for (c = 0; c < cell; c++) {
                    R pij = softmax ? exp(s[0][r][c] - largest) : s[0][r][c] * s[1][r][c];
                    if (x + lanes * c < low || x + lanes * c >= high || (softmax && largest == -R(INFINITY))) pij = R(0);
                    m.p[cell * y + r][x + lanes * c] = pij;
                    sum += pij;
                    out[r][c] *= factor;
                }
                total[r] = fma(total[r], factor, sum);
            }
            tnc_attend_gather<false>(m, out, tnc_head<const T>(p.v, b, j0, h), p.v.t, keys, first, p.n_v, i0, j0, edge);
        }
        TNC_UNROLL
        for (r = 0; r < cell; r++) {
            const int64_t           i = i0 + cell * y + r;
            const tnc_seen<int64_t> seen = tnc_attend_seen(p, i);
            const bool              none = tnc_attend_none(p, seen, most[r]);
            R                       sum = tnc_lanes_sum(total[r], lanes), factor;
            if (i >= p.Tq) continue;
            factor = tnc_attend_end(p, seen, &sum);
            TNC_UNROLL
            for (c = 0; c < cell; c++)
                if (first + x + lanes * c < p.n_v)
                    tnc_head<T>(p.o, b, i, h)[first + x + lanes * c] = tnc_from<T>(none ? R(0) : factor * out[r][c]);
            if (p.stat && first == 0 && x == 0) ((R *)p.stat)[head * p.Tq + i] = softmax ? most[r] + log(sum) : sum;
        }
        __syncthreads();
    }
}

/* to += sum: the tile's rows at the slab's columns */
template <typename T, typename R>
static __device__ void tnc_attend_add(const tnc_heads &to, int64_t b, int64_t h, int64_t own, int64_t rows, int64_t first,
                                      int64_t n, const R (&sum)[tnc_attend_room<R>::cell][tnc_attend_room<R>::cell])
{
    enum { cell = tnc_attend_room<R>::cell, lanes = tnc_attend_room<R>::lanes };
    const int x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    int       r, c;
    if (!to.data) return;
    TNC_UNROLL
    for (r = 0; r < cell; r++)
        TNC_UNROLL
        for (c = 0; c < cell; c++) {
            T *at = tnc_head<T>(to, b, own + cell * y + r, h) + first + x + lanes * c;
            if (cell * y + r < rows && first + x + lanes * c < n) *at = tnc_from<T>(R(tnc_to(*at)) + sum[r][c]);
        }
}

/* KEYS: own rows are keys, to dk and dv. Else they are queries, to dq. */
template <typename T, bool KEYS>
static __global__ void __launch_bounds__(256) tnc_attend_plain_back(tnc_attend p, int64_t slabs, int64_t blocks)
{
    typedef typename tnc_real<T>::type R;
    typedef tnc_attend_room<R> room;
    enum { cell = room::cell, lanes = room::lanes, side = room::side };
    TNC_SHARED(room, shared, [1]);
    room            &m = shared[0];
    const bool       softmax = p.kind == TN_ATTEND_SOFTMAX, two = p.kind == TN_ATTEND_BILINEAR;
    const int        x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
    const tnc_heads &own_x = KEYS ? p.k : p.q, &own_y = KEYS ? p.v : p.dout, &other_x = KEYS ? p.q : p.k;
    const tnc_heads &other_y = KEYS ? p.dout : p.v, &to = KEYS ? p.dk : p.dq;
    const int64_t    heads = p.B * p.H, T_own = KEYS ? p.Tk : p.Tq, T_other = KEYS ? p.Tq : p.Tk,
        tiles = (T_own + side - 1) / side;
    int64_t          n;
    int              r, c, set;
    for (n = blockIdx.x; n < blocks; n += gridDim.x) {
        const int64_t head = n / slabs % heads, b = head / p.H, h = head % p.H, first = n % slabs * side,
            tile = n / slabs / heads;
        const int64_t own = (KEYS ? tile : tiles - 1 - tile) * side;                 /* causal: the longest come first */
        const int64_t rows = T_own - own < side ? T_own - own : (int64_t)side;
        R             dx[2][cell][cell] = {}, dv[cell][cell] = {};
        tnc_seen<int64_t>      range;
        int64_t       at;
        if (p.odd && !p.odd[head * tiles + own / side]) continue;
        if (KEYS) range = tnc_attend_seeing(p, own, own + rows - 1);
        else {
            range.low = tnc_attend_seen(p, own).low;
            range.high = tnc_attend_seen(p, own + rows - 1).high;
            tnc_attend_tile(p, m, head, own);
        }
        for (at = range.low; at < range.high; at += side) {
            const int64_t others = T_other - at < side ? T_other - at : (int64_t)side;
            R             s[2][cell][cell], dp[cell][cell];
            if (KEYS) tnc_attend_tile(p, m, head, at);
            tnc_attend_scores<T>(p, m, s, own_x, own, rows, other_x, at, others, b, h);
            tnc_attend_product(m, dp, tnc_head<const T>(own_y, b, own, h), own_y.t, rows,
                               tnc_head<const T>(other_y, b, at, h),
                               other_y.t, others, p.n_v);
            TNC_UNROLL
            for (r = 0; r < cell; r++)
                TNC_UNROLL
                for (c = 0; c < cell; c++) {
                    const int i = KEYS ? x + lanes * c : cell * y + r;
                    const R   pij = softmax ? exp(s[0][r][c] - m.row[i][2]) : s[0][r][c] * s[1][r][c];
                    dp[r][c] = R(p.scale) * fma(m.row[i][0], dp[r][c], m.row[i][1]);               /* u_i.v_j + w_i */
                    if (softmax) s[1][r][c] = pij;                                                 /* ds is dp times this */
                    else if (!two) s[1][r][c] = R(2) * s[0][r][c];
                    /* P_ij c_i, for do_i */
                    m.p[cell * y + r][x + lanes * c] = pij * m.row[i][0];
                }
            if (KEYS)
                tnc_attend_gather<KEYS>(m, dv, tnc_head<const T>(p.dout, b, at, h), p.dout.t, others, first, p.n_v, own, at,
                                        true);
            TNC_UNROLL
            for (set = 0; set < 2; set++) {
                if (set > two) break;
                TNC_UNROLL
                for (r = 0; r < cell; r++)
                    TNC_UNROLL
                    for (c = 0; c < cell; c++) m.p[cell * y + r][x + lanes * c] = dp[r][c] * s[1 - set][r][c];
                tnc_attend_gather<KEYS>(m, dx[set], tnc_head<const T>(other_x, b, at, h + set * p.H), other_x.t, others,
                                        first, p.n_qk, own, at, true);
            }
        }
        TNC_UNROLL
        for (set = 0; set < 2; set++)
            if (set <= two) tnc_attend_add<T>(to, b, h + set * p.H, own, rows, first, p.n_qk, dx[set]);
        if (KEYS) tnc_attend_add<T>(p.dv, b, h, own, rows, first, p.n_v, dv);
        __syncthreads();
    }
}

/* ---- attention: few queries of many keys --------------------------------------------------------------------------------
   Decoding: a tile of queries would be nearly empty, and one block a head too few. So a head's keys are split into parts, a
   block each; what they found (the largest score, the sum of P, P v) is joined in the order of the parts. Floor: k and v
   once. */

enum { TNC_ATTEND_FEW = 4, TNC_ATTEND_PART = 256 };         /* queries at most; keys of a part */

template <typename T>
static __global__ void __launch_bounds__(128) tnc_attend_part(tnc_attend p, int64_t parts, int64_t blocks)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, pattern, [TNC_ATTEND_PART]);
    TNC_SHARED(R, sums, [4][32]);
    const bool softmax = p.kind == TN_ATTEND_SOFTMAX, two = p.kind == TN_ATTEND_BILINEAR;
    const int  lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    int64_t    n, e, a;
    int        k;
    for (n = blockIdx.x; n < blocks; n += gridDim.x) {
        const int64_t row = n / parts, i = row % p.Tq, h = row / p.Tq % p.H, b = row / p.Tq / p.H;
        const tnc_seen<int64_t> seen = tnc_attend_seen(p, i);
        const int64_t first = seen.low + n % parts * TNC_ATTEND_PART, rest = seen.high - first;
        const int     count = rest < 0 ? 0 : rest < TNC_ATTEND_PART ? (int)rest : (int)TNC_ATTEND_PART;
        R            *to = (R *)p.rows + n * (2 + p.n_v), largest = -R(INFINITY), total = R(0);
        for (k = (int)threadIdx.x / 8; k < (count + 15) / 16 * 16; k += 16) {             /* scores: 8 lanes a key */
            const int64_t j = first + (k < count ? k : 0);
            R             s[2] = { R(0), R(0) };
            int           set;
            TNC_UNROLL
            for (set = 0; set < 2; set++) {
                if (set > 0 && !two) continue;
                const T *q = tnc_head<const T>(p.q, b, i, h + set * p.H), *key = tnc_head<const T>(p.k, b, j, h + set * p.H);
                for (a = lane % 8; a < p.n_qk; a += 8) s[set] = fma(R(tnc_to(q[a])), R(tnc_to(key[a])), s[set]);
                s[set] = R(p.scale) * tnc_lanes_sum(s[set], 8);
            }
            if (lane % 8 == 0 && k < count) pattern[k] = softmax ? s[0] : s[0] * (two ? s[1] : s[0]);
        }
        __syncthreads();
        for (k = lane; k < count; k += 32) largest = tnc_attend_max(largest, pattern[k]);
        largest = tnc_attend_row_max<32>(largest);
        __syncthreads();
        for (k = (int)threadIdx.x; k < count && softmax; k += 128)
            pattern[k] = largest == -R(INFINITY) ? R(0) : exp(pattern[k] - largest);
        __syncthreads();
        for (k = lane; k < count; k += 32) total += pattern[k];
        total = tnc_warp_sum(total);
        /* each warp has a quarter of the keys */
        for (e = lane; e < (p.n_v + 31) / 32 * 32; e += 32) {
            R sum = R(0);
            for (k = warp; k < count && e < p.n_v; k += 4)
                sum = fma(pattern[k], R(tnc_to(tnc_head<const T>(p.v, b, first + k, h)[e])), sum);
            sums[warp][lane] = sum;
            __syncthreads();
            if (warp == 0 && e < p.n_v) to[2 + e] = (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]);
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            to[0] = largest;
            to[1] = total;
        }
        __syncthreads();
    }
}

/* A warp for each query. */
template <typename T> static __global__ void tnc_attend_join(tnc_attend p, int64_t parts)
{
    typedef typename tnc_real<T>::type R;
    const bool    softmax = p.kind == TN_ATTEND_SOFTMAX;
    const int     lane = (int)threadIdx.x & 31;
    const int64_t warps = (int64_t)gridDim.x * blockDim.x / 32, width = 2 + p.n_v;
    int64_t       n, e, k;
    for (n = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; n < p.B * p.H * p.Tq; n += warps) {
        const int64_t i = n % p.Tq, h = n / p.Tq % p.H, b = n / p.Tq / p.H;
        const R      *from = (const R *)p.rows + n * parts * width;
        const tnc_seen<int64_t> seen = tnc_attend_seen(p, i);
        R             largest = -R(INFINITY), total = R(0), factor;
        for (k = 0; k < parts; k++) largest = tnc_attend_max(largest, from[k * width]);
        for (k = 0; k < parts; k++)
            total = fma(from[k * width + 1], softmax ? tnc_attend_shift(from[k * width], largest) : R(1), total);
        factor = tnc_attend_end(p, seen, &total);
        for (e = lane; e < p.n_v; e += 32) {
            R sum = R(0);
            for (k = 0; k < parts; k++)
                sum = fma(from[k * width + 2 + e], softmax ? tnc_attend_shift(from[k * width], largest) : R(1), sum);
            tnc_head<T>(p.o, b, i, h)[e] = tnc_from<T>(tnc_attend_none(p, seen, largest) ? R(0) : factor * sum);
        }
        if (p.stat && lane == 0) ((R *)p.stat)[n] = softmax ? largest + log(total) : total;
    }
}

/* ---- attention: tensor cores --------------------------------------------------------------------------------------------
   mma m16n8k16 multiplies a 16 x 16 piece of a left matrix by a 16 x 8 piece of a right one. A lane (g = lane / 4, t = 2
   (lane % 4)) holds of the result (g, t), (g, t+1), (g+8, t), (g+8, t+1), and of the left factor the pairs at (g, t), (g+8,
   t), (g, t+8), (g+8, t+8). So two neighbouring results, 16 x 16 together, rounded to BF16 pairs, are just what the lane
   must hold of a left factor: scores become P or ds and go on as the left factor of the next product, and never leave the
   registers.

   A pair that does not see each other has P = 0 and ds = 0 here, and is multiplied all the same: an infinity or a NaN of
   what is hidden would make a NaN. But then a result of the block is not finite, and so the block says (odd) whether one is;
   what it says is done again by the plain kernels, which leave out what is hidden, and nothing is added to a gradient
   before. That costs an addition a result and, where all is finite, a launch that ends at once, backwards two.

   An mma adds 16 products to an F32 sum and cuts off what lies below its last bit, at most 2^-23 of it: sums of n terms
   are within n / 16 2^-23 of the sum of magnitudes, 2^-7 for TNC_ATTEND_TERMS, and of growing sums half of that, beside
   2^-9 for each P as BF16. What sums more goes to the plain kernels.

   Tiles lie in shared memory row by row, D numbers in pieces of 8, see tnc_piece_at. */

/* ROWS rows of D numbers, of which `there` are; zeros for the others. They have arrived after a wait and a barrier. A
   thread's chunks are 8 rows or a multiple of it apart, where the order within a line is the same. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tnc_tile_load(tnc_bf16 *tile, const tnc_bf16 *from, int64_t pitch, int64_t there)
{
    enum { chunks = D / 8, step = THREADS / chunks };
    const int thread = tnc_thread_anew(), chunk = thread % chunks, rows = there < ROWS ? (int)there : (int)ROWS;
    int       row = thread / chunks;
    from += row * pitch + chunk * 8;
    tile += tnc_piece_at<D / 8>(row, 0, chunk);
    TNC_ROLLED
    for (; row < ROWS; row += step, from += step * pitch, tile += step * D) {
        if (row < rows) tnc_cp_async16(tile, from);
        else *reinterpret_cast<uint4 *>(tile) = make_uint4(0, 0, 0, 0);
    }
}

/* The left factor at rows row .. row + 15, columns 16 k .. 16 k + 15. ldmatrix takes four 8 x 8 matrices in the order that
   mma wants them: above, below; then the same to the right. Lanes 0-7 point at the rows of the first, 8-15 of the second,
   ... */
template <int D>
static __device__ __forceinline__ void tnc_frag_left(unsigned f[4], const tnc_bf16 *tile, int row, int k, int lane)
{
    tnc_ldmatrix_x4(f, tile + tnc_piece_at<D / 8>(row + (lane & 15), 2 * k, lane >> 4));
}

/* Two right factors, the transposes of rows row .. row + 7 and row + 8 .. row + 15 at columns 16 k ..: f[0], f[1] and f[2],
   f[3]. A right factor goes down its columns, which are this tile's rows: no transposition is needed. */
template <int D>
static __device__ __forceinline__ void tnc_frag_right(unsigned f[4], const tnc_bf16 *tile, int row, int k, int lane)
{
    tnc_ldmatrix_x4(f, tile + tnc_piece_at<D / 8>(row + (lane & 7) + (lane >> 4) * 8, 2 * k, lane >> 3 & 1));
}

/* Two right factors as they stand: rows row .. row + 15, columns 16 n .. 16 n + 7 and the next 8. Transposed on the way. */
template <int D>
static __device__ __forceinline__ void tnc_frag_down(unsigned f[4], const tnc_bf16 *tile, int row, int n, int lane)
{
    tnc_ldmatrix_x4_trans(f, tile + tnc_piece_at<D / 8>(row + (lane & 15), 2 * n, lane >> 4));
}

/* s = a b^T: 16 M rows of a, N rows of b, D numbers each. A right factor serves all M. */
template <int M, int N, int D>
static __device__ __forceinline__ void tnc_mma_rows(float (&s)[M][N / 8][4], const tnc_bf16 *a, int a_row, const tnc_bf16 *b,
                                                    int b_row, int lane)
{
    int m, n, k, e;
    TNC_UNROLL
    for (m = 0; m < M; m++)
        TNC_UNROLL
        for (n = 0; n < N / 8; n++)
            TNC_UNROLL
            for (e = 0; e < 4; e++) s[m][n][e] = 0.0f;
    TNC_UNROLL
    for (k = 0; k < D / 16; k++) {
        unsigned left[M][4];
        TNC_UNROLL
        for (m = 0; m < M; m++) tnc_frag_left<D>(left[m], a, a_row + 16 * m, k, lane);
        TNC_UNROLL
        for (n = 0; n < N / 16; n++) {
            unsigned right[4];
            tnc_frag_right<D>(right, b, b_row + 16 * n, k, lane);
            TNC_UNROLL
            for (m = 0; m < M; m++) {
                tnc_mma_bf16(s[m][2 * n], left[m], right);
                tnc_mma_bf16(s[m][2 * n + 1], left[m], right + 2);
            }
        }
    }
}

/* out += p x: p of 16 M rows and 16 columns in registers, x the tile's rows row .. row + 15 of C numbers. */
template <int M, int C>
static __device__ __forceinline__ void tnc_mma_step(float (&out)[M][C / 8][4], const unsigned (&p)[M][4], const tnc_bf16 *x,
                                                    int row, int lane)
{
    int m, n;
    TNC_UNROLL
    for (n = 0; n < C / 16; n++) {
        unsigned right[4];
        tnc_frag_down<C>(right, x, row, n, lane);
        TNC_UNROLL
        for (m = 0; m < M; m++) {
            tnc_mma_bf16(out[m][2 * n], p[m], right);
            tnc_mma_bf16(out[m][2 * n + 1], p[m], right + 2);
        }
    }
}

/* The batch's item b and head h of a block: heads go before tiles. */
typedef struct tnc_attend_place { int b, h, head; } tnc_attend_place;

static __device__ __forceinline__ tnc_attend_place tnc_attend_place_of(const tnc_attend &p)
{
    const int H = (int)p.H, head = tnc_block_anew() % ((int)p.B * H);
    return tnc_attend_place{ head / H, head % H, head };
}

/* The first of a block's own rows: keys, or queries, of which those that may see most come first. */
template <bool KEYS> static __device__ __forceinline__ int tnc_attend_first(const tnc_attend &p, int rows)
{
    const int tile = tnc_block_anew() / ((int)p.B * (int)p.H);
    return (KEYS ? tile : ((int)p.Tq + rows - 1) / rows - 1 - tile) * rows;
}

/* Do the queries [q0,q1] see the keys [k0,k1]: none 0, some 1, all 2? */
static __device__ __forceinline__ int tnc_attend_meet(const tnc_attend &p, int q0, int q1, int k0, int k1)
{
    const tnc_seen<int> first = tnc_attend_seen(p, q0), last = tnc_attend_seen(p, q1);
    if (q0 >= p.Tq || k1 < first.low || k0 >= last.high) return 0;
    return last.low <= k0 && k1 < first.high ? 2 : 1;
}

/* Is any of these infinite or NaN? */
template <int M, int C> static __device__ __forceinline__ bool tnc_attend_odd(const float (&x)[M][C / 8][4])
{
    float sum = 0.0f;
    int   m, n, e;
    TNC_UNROLL
    for (m = 0; m < M; m++)
        TNC_UNROLL
        for (n = 0; n < C / 8; n++)
            TNC_UNROLL
            for (e = 0; e < 4; e++) sum = fmaf(x[m][n][e], 0.0f, sum);
    return sum != 0.0f;                                         /* NaN */
}

/* A block's word about its `own` rows from `first` on, for the plain kernels: tiles of 64. */
static __device__ __forceinline__ bool tnc_attend_say_odd(const tnc_attend &p, int head, int first, int own, int64_t T,
                                                          bool odd)
{
    const int64_t tiles = (T + 63) / 64;
    int           i;
    odd = __syncthreads_or(odd) != 0;
    for (i = (int)threadIdx.x; i < own / 64; i += (int)blockDim.x)
        if (first / 64 + i < tiles) p.odd[head * tiles + first / 64 + i] = odd;
    return odd;
}

/* A warp's 16 M rows from `row` on, each times its factor. */
template <int M, int C>
static __device__ __forceinline__ void tnc_attend_put_rows(const tnc_attend &p, const tnc_heads &to, int b, int h, int row,
                                                           int rows, int n, const float (&x)[M][C / 8][4],
                                                           const float (&factor)[M][2], bool add)
{
    const int lane = (int)threadIdx.x & 31;
    int       m, half, c;
    TNC_UNROLL
    for (m = 0; m < M; m++)
        TNC_UNROLL
        for (half = 0; half < 2; half++) {
            const int t = row + 16 * m + 8 * half + lane / 4;
            if (t >= rows) continue;
            char      *line = p.wide ? (char *)tnc_head<float>(to, b, t, h) : (char *)tnc_head<tnc_bf16>(to, b, t, h);
            const bool pairs = n % 2 == 0 && (size_t)line % (p.wide ? 8 : 4) == 0;
            TNC_UNROLL
            for (c = 0; c < C / 8; c++)
                tnc_put_two(line, 8 * c + 2 * (lane & 3), n, p.wide, pairs, add, factor[m][half] * x[m][c][2 * half],
                            factor[m][half] * x[m][c][2 * half + 1]);
        }
}

/* What registers and shared memory are used for. A thread may have 255 registers, and two blocks of 128 such threads then
   fill a multiprocessor's 64 K; two times 112 KiB is about its shared memory. A thread has C / 2 sums of C columns of 16
   rows.

   Forward: 32 queries a warp, so that each right factor that is read serves two left ones; keys come in stages of 64, of 32
   where scores of 64 and o would be too much. */
template <int KIND, int D, int DV> struct tnc_attend_plan {
    enum {
        threads = 128, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1,
        queries = 128, keys = DV > 64 ? 32 : 64,
        stage = keys * (sets * D + DV),
        bytes = 2 * (queries * sets * D + 2 * stage)
    };
};

/* Backward: `sums` a thread has all the time (for 16 rows), scores get what is left of 200 as columns; 32 rows a warp if
   then at least 16 columns remain. Values wider than keys take some more. */
template <int KIND, int D, int DV, bool KEYS> struct tnc_attend_back_plan {
    enum {
        threads = 128, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1,
        sums = (sets * D + (KEYS ? DV : 0)) / 2,
        M = (100 - sums) / (sets + 1) * 2 >= 16 ? 2 : 1,                /* tiles of 16 own rows, a warp    */
        left = (200 / M - sums) / (sets + 1) * 2,
        N = left >= (DV > D ? 72 : 64) ? 64 : left >= 32 ? 32 : 16,     /* columns of scores at a time     */
        own = 64 * M, row = sets * D + DV,                              /* own rows of a block             */
        wide = 2 * (own + 2 * 64) * (row + 8),
        others = N < 64 && wide > 112 * 1024 ? 32 : 64,                 /* rows of a stage                 */
        stage = others * (row + (KEYS ? 8 : 0)),                        /* with a float4 of each query     */
        bytes = 2 * (own * (row + (KEYS ? 0 : 8)) + 2 * stage)
    };
};

/* Four warps of 32 queries each walk over the keys, two stages of which are in shared memory: one is being read while the
   next arrives. Nothing but o (and the statistic) is written. */
template <int KIND, int D, int DV> static __global__ void __launch_bounds__(128, 2) tnc_attend_mma(tnc_attend p)
{
    typedef tnc_attend_plan<KIND, D, DV> plan;
    enum { sets = plan::sets, keys = plan::keys, stage = plan::stage, threads = plan::threads, queries = plan::queries };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16     *const q = shared, *const stages = shared + queries * sets * D;
    const bool    softmax = KIND == TN_ATTEND_SOFTMAX, sums = KIND == TN_ATTEND_SQUARED && p.sums;
    const int     H = (int)p.H, Tq = (int)p.Tq, Tk = (int)p.Tk, i0 = tnc_attend_first<false>(p, queries);
    int           set, m, n, e, k;
    const tnc_attend_place begin = tnc_attend_place_of(p);
    const int last = i0 + queries < Tq ? i0 + queries - 1 : Tq - 1;
    const int to = tnc_attend_seen(p, last).high;
    float         o[2][DV / 8][4], most[2][2], total[2][2];
    int           j0 = tnc_attend_seen(p, i0).low / keys * keys;
    auto load = [&](int which, int j) {
        const tnc_attend_place at = tnc_attend_place_of(p);
        tnc_bf16 *to_x = stages + which * stage;
        for (int x = 0; x < sets; x++)
            tnc_tile_load<D, keys, threads>(to_x + x * keys * D, tnc_head<const tnc_bf16>(p.k, at.b, j, at.h + x * H),
                                            p.k.t, Tk - j);
        tnc_tile_load<DV, keys, threads>(to_x + sets * keys * D, tnc_head<const tnc_bf16>(p.v, at.b, j, at.h), p.v.t,
                                         Tk - j);
    };
    for (set = 0; set < sets; set++)
        tnc_tile_load<D, queries, threads>(q + set * queries * D,
                                           tnc_head<const tnc_bf16>(p.q, begin.b, i0, begin.h + set * H), p.q.t, Tq - i0);
    if (j0 < to) load(j0 / keys % 2, j0);
    tnc_cp_async_commit();
    TNC_UNROLL
    for (m = 0; m < 2; m++) {
        TNC_UNROLL
        for (n = 0; n < DV / 8; n++)
            TNC_UNROLL
            for (e = 0; e < 4; e++) o[m][n][e] = 0.0f;
        most[m][0] = most[m][1] = -INFINITY;
        total[m][0] = total[m][1] = 0.0f;
    }
    /* Whatever can be found anew is, so that nothing but sums stays in registers from stage to stage. */
    for (; j0 < to; j0 += keys) {
        const int       thread = tnc_thread_anew(), lane = thread & 31, warp_row = thread / 32 * 32, turn = j0 / keys % 2;
        const tnc_bf16 *kt = stages + turn * stage, *vt = kt + sets * keys * D;
        const int       meet = tnc_attend_meet(p, i0 + warp_row, i0 + warp_row + 31, j0, j0 + keys - 1);
        float           s[sets][2][keys / 8][4];
        tnc_cp_async_wait<0>();
        __syncthreads();                        /* this stage is there, and nobody reads the other any more */
        if (j0 + keys < to) load(turn ^ 1, j0 + keys);
        tnc_cp_async_commit();
        if (meet == 0) continue;
        TNC_UNROLL
        for (set = 0; set < sets; set++)
            tnc_mma_rows<2, keys, D>(s[set], q + set * queries * D, warp_row, kt + set * keys * D, 0, lane);
        /* P in place of the first scores */
        TNC_UNROLL
        for (m = 0; m < 2; m++)
            TNC_UNROLL
            for (n = 0; n < keys / 8; n++)
                TNC_UNROLL
                for (e = 0; e < 4; e++) s[0][m][n][e] *= softmax ? p.power : s[sets - 1][m][n][e];
        if (meet == 1) {
            TNC_UNROLL
            for (m = 0; m < 2; m++)
                TNC_UNROLL
                for (k = 0; k < 2; k++) {
                    const tnc_seen<int> seen = tnc_attend_seen(p, i0 + warp_row + 16 * m + 8 * k + lane / 4);
                    const int           at = j0 + 2 * (lane & 3);
                    TNC_UNROLL
                    for (n = 0; n < keys / 8; n++)
                        TNC_UNROLL
                        for (e = 0; e < 2; e++)
                            if (at + 8 * n + e < seen.low || at + 8 * n + e >= seen.high)
                                s[0][m][n][2 * k + e] = softmax ? -INFINITY : 0.0f;
                }
        }
        TNC_UNROLL
        for (m = 0; m < 2; m++)
            TNC_UNROLL
            for (k = 0; k < 2; k++) {
                if (softmax) {
                    float largest = most[m][k], factor;
                    TNC_UNROLL
                    for (n = 0; n < keys / 8; n++) largest = fmaxf(largest, fmaxf(s[0][m][n][2 * k], s[0][m][n][2 * k + 1]));
                    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
                    factor = largest == -INFINITY ? 1.0f : exp2f(most[m][k] - largest);
                    most[m][k] = largest;
                    if (largest == -INFINITY) largest = 0.0f;                   /* nothing seen: e^-inf is 0 */
                    TNC_UNROLL
                    for (n = 0; n < keys / 8; n++)
                        TNC_UNROLL
                        for (e = 2 * k; e < 2 * k + 2; e++) s[0][m][n][e] = exp2f(s[0][m][n][e] - largest);
                    TNC_UNROLL
                    for (n = 0; n < DV / 8; n++) {
                        o[m][n][2 * k] *= factor;
                        o[m][n][2 * k + 1] *= factor;
                    }
                    total[m][k] *= factor;
                }
                if (softmax || sums)
                    TNC_UNROLL
                    for (n = 0; n < keys / 8; n++) total[m][k] += s[0][m][n][2 * k] + s[0][m][n][2 * k + 1];
            }
        const int again = tnc_thread_anew() & 31;
        TNC_UNROLL
        for (k = 0; k < keys / 16; k++) {
            unsigned left[2][4];
            TNC_UNROLL
            for (m = 0; m < 2; m++)
                TNC_UNROLL
                for (e = 0; e < 4; e++)
                    left[m][e] = tnc_pair(s[0][m][2 * k + e / 2][e % 2 * 2], s[0][m][2 * k + e / 2][e % 2 * 2 + 1]);
            tnc_mma_step<2, DV>(o, left, vt, 16 * k, again);
        }
    }
    const tnc_attend_place end = tnc_attend_place_of(p);
    const int thread = tnc_thread_anew(), lane = thread & 31, warp_row = thread / 32 * 32;
    TNC_UNROLL
    for (m = 0; m < 2; m++)
        TNC_UNROLL
        for (k = 0; k < 2; k++) {
            const int           i = i0 + warp_row + 16 * m + 8 * k + lane / 4;
            const tnc_seen<int> seen = tnc_attend_seen(p, i);
            float          sum = total[m][k], factor = tnc_attend_scale<float>(p, seen);
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (sums) sum = fmaf(sum, p.square, (float)p.eps);
            if (softmax || sums) factor /= sum;
            if (!softmax) factor *= p.square;
            if (seen.high == seen.low || (softmax && most[m][k] == -INFINITY)) factor = 0.0f;   /* NaN stays: odd */
            if (p.stat && (lane & 3) == 0 && i < Tq)
                ((float *)p.stat)[(int64_t)end.head * Tq + i] = softmax ? most[m][k] * 0.6931471805599453f + logf(sum) : sum;
            total[m][k] = factor;
        }
    tnc_attend_put_rows<2, DV>(p, p.o, end.b, end.h, i0 + warp_row, Tq, (int)p.n_v, o, total, false);
    tnc_attend_say_odd(p, tnc_attend_place_of(p).head, tnc_attend_first<false>(p, queries), queries, p.Tq,
                       tnc_attend_odd<2, DV>(o));
    tnc_cp_async_wait<0>();
}

/* Backwards, as the plain one: own rows are keys (to dk, dv) or queries (to dq), the others stream by in two stages. Scores
   have own rows and the others' columns, so that ds and P are left factors of the others' rows: no transposition
   anywhere. */
template <int KIND, int D, int DV, bool KEYS>
static __global__ void __launch_bounds__(128, 2) tnc_attend_mma_back(tnc_attend p)
{
    typedef tnc_attend_back_plan<KIND, D, DV, KEYS> plan;
    enum { sets = plan::sets, M = plan::M, N = plan::N, own_rows = plan::own, others = plan::others, stage = plan::stage,
           threads = plan::threads };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const  own_x = shared, *const own_y = shared + own_rows * sets * D,
        *const stages = own_y + own_rows * (DV + (KEYS ? 0 : 8));
    const bool       softmax = KIND == TN_ATTEND_SOFTMAX;
    const tnc_heads &gx = KEYS ? p.k : p.q, &gy = KEYS ? p.v : p.dout, &hx = KEYS ? p.q : p.k, &hy = KEYS ? p.dout : p.v;
    const int        H = (int)p.H, T_own = (int)(KEYS ? p.Tk : p.Tq), T_other = (int)(KEYS ? p.Tq : p.Tk);
    const int        own = tnc_attend_first<KEYS>(p, own_rows);
    int              set, m, n, e, k;
    const tnc_attend_place begin = tnc_attend_place_of(p);
    const int last = own + own_rows < T_own ? own + own_rows - 1 : T_own - 1;
    /* a float4 for each query: 16 bytes, too */
    const tnc_heads rows = { p.rows, 0, 8, p.Tq * 8 };
    float         dx[sets][M][D / 8][4], dv[M][DV / 8][4], factor[M][2];
    int           at, to;
    auto load = [&](int which, int t) {
        const tnc_attend_place here = tnc_attend_place_of(p);
        tnc_bf16 *x = stages + which * stage;
        for (int y = 0; y < sets; y++)
            tnc_tile_load<D, others, threads>(x + y * others * D, tnc_head<const tnc_bf16>(hx, here.b, t, here.h + y * H),
                                              hx.t, T_other - t);
        tnc_tile_load<DV, others, threads>(x + sets * others * D, tnc_head<const tnc_bf16>(hy, here.b, t, here.h), hy.t,
                                           T_other - t);
        if (KEYS)
            tnc_tile_load<8, others, threads>(x + others * (sets * D + DV), tnc_head<const tnc_bf16>(rows, 0, t, here.head),
                                              8, T_other - t);
    };
    if (KEYS) {
        at = tnc_attend_seeing(p, own, last).low;
        to = tnc_attend_seeing(p, own, last).high;
    } else {
        at = tnc_attend_seen(p, own).low;
        to = tnc_attend_seen(p, last).high;
    }
    for (set = 0; set < sets; set++)
        tnc_tile_load<D, own_rows, threads>(own_x + set * own_rows * D,
                                            tnc_head<const tnc_bf16>(gx, begin.b, own, begin.h + set * H),
                                            gx.t, T_own - own);
    tnc_tile_load<DV, own_rows, threads>(own_y, tnc_head<const tnc_bf16>(gy, begin.b, own, begin.h), gy.t, T_own - own);
    if (!KEYS)
        tnc_tile_load<8, own_rows, threads>(own_y + own_rows * DV, tnc_head<const tnc_bf16>(rows, 0, own, begin.head), 8,
                                            T_own - own);
    at = at / others * others;
    if (at < to) load(at / others % 2, at);
    tnc_cp_async_commit();
    TNC_UNROLL
    for (m = 0; m < M; m++)
        TNC_UNROLL
        for (e = 0; e < 4; e++) {
            TNC_UNROLL
            for (n = 0; n < DV / 8; n++) dv[m][n][e] = 0.0f;
            TNC_UNROLL
            for (set = 0; set < sets; set++)
                TNC_UNROLL
                for (n = 0; n < D / 8; n++) dx[set][m][n][e] = 0.0f;
        }
    /* N others at a time. Whatever can be found anew is, so that nothing but sums stays in registers from turn to turn. */
    for (; at < to; at += N) {
        const int       sub = at % others, turn = at / others % 2;
        const int       thread = tnc_thread_anew(), lane = thread & 31;
        const int       warp_row = thread / 32 * 16 * M, mine = own + warp_row;
        const tnc_bf16 *xt = stages + turn * stage, *yt = xt + sets * others * D;
        const float4   *queries = reinterpret_cast<const float4 *>(KEYS ? yt + others * DV : own_y + own_rows * DV);
        if (sub == 0) {
            tnc_cp_async_wait<0>();
            __syncthreads();                    /* this stage is there, and nobody reads the other any more */
            if (at + others < to) load(turn ^ 1, at + others);
            tnc_cp_async_commit();
        }
        const int meet = KEYS ? tnc_attend_meet(p, at, at + N - 1, mine, mine + 16 * M - 1)
                              : tnc_attend_meet(p, mine, mine + 16 * M - 1, at, at + N - 1);
        float     s[sets][M][N / 8][4], dp[M][N / 8][4];
        if (meet == 0) continue;
        TNC_UNROLL
        for (set = 0; set < sets; set++)
            tnc_mma_rows<M, N, D>(s[set], own_x + set * own_rows * D, warp_row, xt + set * others * D, sub, lane);
        if (meet == 1) {
            TNC_UNROLL
            for (m = 0; m < M; m++)
                TNC_UNROLL
                for (n = 0; n < N / 8; n++)
                    TNC_UNROLL
                    for (e = 0; e < 4; e++) {
                        const int           row = mine + 16 * m + 8 * (e / 2) + lane / 4;
                        const int           col = at + 8 * n + 2 * (lane & 3) + e % 2;
                        const tnc_seen<int> seen = tnc_attend_seen(p, KEYS ? col : row);
                        if ((KEYS ? row : col) >= seen.low && (KEYS ? row : col) < seen.high) continue;
                        s[0][m][n][e] = !softmax ? 0.0f : p.score < 0.0f ? INFINITY : -INFINITY;
                        if (sets == 2) s[sets - 1][m][n][e] = 0.0f;
                    }
        }
        tnc_mma_rows<M, N, DV>(dp, own_y, warp_row, yt, sub, lane);
        TNC_UNROLL
        for (k = 0; k < N / 16; k++) {                  /* 16 others: left factors, and their products */
            unsigned left_p[M][4], left_s[sets][M][4];
            TNC_UNROLL
            for (e = 0; e < 4; e++) {                   /* e / 2: the 8 columns, e % 2: the 8 rows */
                float4 q0 = make_float4(0.0f, 0.0f, 0.0f, 0.0f), q1 = q0;
                if (KEYS) {
                    q0 = queries[sub + 16 * k + 8 * (e / 2) + 2 * (lane & 3)];
                    q1 = queries[sub + 16 * k + 8 * (e / 2) + 2 * (lane & 3) + 1];
                }
                TNC_UNROLL
                for (m = 0; m < M; m++) {
                    const int   c = 2 * k + e / 2, r = e % 2 * 2;
                    const float a0 = s[0][m][c][r], a1 = s[0][m][c][r + 1];
                    const float b0 = s[sets - 1][m][c][r], b1 = s[sets - 1][m][c][r + 1];
                    float       p0, p1, slope0, slope1;
                    if (!KEYS) q0 = q1 = queries[warp_row + 16 * m + 8 * (e % 2) + lane / 4];
                    slope0 = fmaf(q0.x, dp[m][c][r], q0.y);
                    slope1 = fmaf(q1.x, dp[m][c][r + 1], q1.y);
                    p0 = softmax ? exp2f(fmaf(a0, p.power, -q0.z)) : a0 * b0;
                    p1 = softmax ? exp2f(fmaf(a1, p.power, -q1.z)) : a1 * b1;
                    left_p[m][e] = tnc_pair(q0.x * p0, q1.x * p1);
                    left_s[0][m][e] = softmax ? tnc_pair(p0 * slope0, p1 * slope1) : tnc_pair(b0 * slope0, b1 * slope1);
                    if (sets == 2) left_s[sets - 1][m][e] = tnc_pair(a0 * slope0, a1 * slope1);
                }
            }
            if (KEYS) tnc_mma_step<M, DV>(dv, left_p, yt, sub + 16 * k, lane);
            TNC_UNROLL
            for (set = 0; set < sets; set++)
                tnc_mma_step<M, D>(dx[set], left_s[set], xt + set * others * D, sub + 16 * k, lane);
        }
    }
    const tnc_attend_place end = tnc_attend_place_of(p);
    const int first = tnc_attend_first<KEYS>(p, own_rows), mine = first + tnc_thread_anew() / 32 * 16 * M;
    bool      odd = false;
    TNC_UNROLL
    for (set = 0; set < sets; set++) odd = tnc_attend_odd<M, D>(dx[set]) || odd;
    if (KEYS) odd = tnc_attend_odd<M, DV>(dv) || odd;
    odd = tnc_attend_say_odd(p, end.head, first, own_rows, KEYS ? p.Tk : p.Tq, odd);
    TNC_UNROLL
    for (m = 0; m < M; m++)
        factor[m][0] = factor[m][1] = softmax ? p.score : sets == 2 ? p.square : 2.0f * p.square;
    TNC_UNROLL
    for (set = 0; set < sets; set++)
        if ((KEYS ? p.dk : p.dq).data && !odd)
            tnc_attend_put_rows<M, D>(p, KEYS ? p.dk : p.dq, end.b, end.h + set * H, mine, T_own, (int)p.n_qk, dx[set],
                                      factor, true);
    TNC_UNROLL
    for (m = 0; m < M; m++) factor[m][0] = factor[m][1] = softmax ? 1.0f : p.square;
    if (KEYS && p.dv.data && !odd)
        tnc_attend_put_rows<M, DV>(p, p.dv, end.b, end.h, mine, T_own, (int)p.n_v, dv, factor, true);
    tnc_cp_async_wait<0>();
}

/* An operand for the kernels above: BF16 [B,T,n,D], zeros behind d. A thread has 8 numbers. */
template <typename T>
static __global__ void tnc_attend_pack(tnc_heads x, int64_t time, int64_t n, int64_t d, int64_t D, int64_t chunks, uint4 *to)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t       at;
    int           e;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < chunks; at += step) {
        const int64_t col = at % (D / 8) * 8, row = at / (D / 8);
        const T      *from = tnc_head<const T>(x, row / n / time, row / n % time, row % n) + col;
        float         v[8];
        TNC_UNROLL
        for (e = 0; e < 8; e++) v[e] = col + e < d ? (float)tnc_to(from[e]) : 0.0f;
        to[at] = make_uint4(tnc_pair(v[0], v[1]), tnc_pair(v[2], v[3]), tnc_pair(v[4], v[5]), tnc_pair(v[6], v[7]));
    }
}

/* ---- attention: which kernels ---------------------------------------------------------------------------------------- */

/* Most terms of a sum on tensor cores */
static const int64_t TNC_ATTEND_TERMS = (int64_t)1 << 20;

/* Keys that a query sees, at most; and never more queries see a key than there are, or than that. */
static int64_t tnc_attend_most(const tnc_attend &p, int64_t T)
{
    const int64_t most = p.window > 0 ? (p.causal ? p.window : 2 * p.window - 1) : T;
    return most < T ? most : T;
}

/* Tiles of 64 rows of all heads */
static int64_t tnc_attend_tiles(const tnc_attend &p, int64_t T) { return tnc_ceil(T, 64) * p.B * p.H; }

/* The forward kernel of a kind and a pair of sizes, or the two of the backward pass. */
template <int KIND, int D, int DV> static void tnc_attend_run_mma(tnc *s, const tnc_attend &p, bool back)
{
    typedef tnc_attend_plan<KIND, D, DV> plan;
    typedef tnc_attend_back_plan<KIND, D, DV, false> by_query;
    typedef tnc_attend_back_plan<KIND, D, DV, true> by_key;
    const int64_t heads = p.B * p.H, tiles = tnc_ceil(p.Tq, plan::queries) * heads,
        queries = tnc_ceil(p.Tq, by_query::own) * heads;
    const int64_t keys = tnc_ceil(p.Tk, by_key::own) * heads;
    if (!back) {
        tnc_shared_for(s, tnc_attend_mma<KIND, D, DV>, plan::bytes);
        TNC_LAUNCH((tnc_attend_mma<KIND, D, DV>), (unsigned)tiles, plan::threads, plan::bytes, s->stream, p);
        return;
    }
    if (p.dq.data) {
        tnc_shared_for(s, tnc_attend_mma_back<KIND, D, DV, false>, by_query::bytes);
        TNC_LAUNCH((tnc_attend_mma_back<KIND, D, DV, false>), (unsigned)queries, by_query::threads, by_query::bytes,
                   s->stream, p);
    }
    if (p.dk.data || p.dv.data) {
        tnc_shared_for(s, tnc_attend_mma_back<KIND, D, DV, true>, by_key::bytes);
        tnc_attend own = p;
        own.odd += tnc_attend_tiles(p, p.Tq);
        TNC_LAUNCH((tnc_attend_mma_back<KIND, D, DV, true>), (unsigned)keys, by_key::threads, by_key::bytes, s->stream, own);
    }
}

/* The shared memory of the one that needs most. */
template <int KIND, int D, int DV> static constexpr int tnc_attend_shared(void)
{
    constexpr int a = tnc_attend_plan<KIND, D, DV>::bytes, b = tnc_attend_back_plan<KIND, D, DV, false>::bytes;
    constexpr int c = tnc_attend_back_plan<KIND, D, DV, true>::bytes, d = a > b ? a : b;
    return c > d ? c : d;
}

typedef struct tnc_attend_size {
    int  d, dv;
    struct { int shared; void (*run)(tnc *, const tnc_attend &, bool); } kind[3];           /* by tn_attend_kind */
} tnc_attend_size;

/* The tensor-core kernels for this call, or NULL: BF16 operands, or F32 ones that may be rounded to it. */
static const tnc_attend_size *tnc_attend_size_of(const tnc *s, const tnc_attend &p, tn_dtype dtype)
{
#define TNC_Y(KIND, D, DV) { tnc_attend_shared<KIND, D, DV>(), tnc_attend_run_mma<KIND, D, DV> }
#define TNC_ALL(D, DV) \
    { D, DV, { TNC_Y(TN_ATTEND_SOFTMAX, D, DV), TNC_Y(TN_ATTEND_SQUARED, D, DV), TNC_Y(TN_ATTEND_BILINEAR, D, DV) } }
#define TNC_SOFTMAX(D, DV) { D, DV, { TNC_Y(TN_ATTEND_SOFTMAX, D, DV), { 0, NULL }, { 0, NULL } } }
    /* q's and k's size, and v's: a call takes the first pair that holds its own, zeros behind. An instance costs whoever
       compiles a second: so few pairs. Those of differential attention, whose q and k are half as wide, are of softmax
       alone. */
    static const tnc_attend_size sizes[] = {
        TNC_ALL(16, 16), TNC_ALL(32, 32), TNC_SOFTMAX(32, 64), TNC_ALL(64, 64), TNC_SOFTMAX(64, 128), TNC_ALL(128, 128)
    };
#undef TNC_SOFTMAX
#undef TNC_ALL
#undef TNC_Y
    size_t i;
    if (dtype == TN_F64 || (dtype == TN_F32 && s->precision != TN_GEMM_BF16) || p.n_v == 0) return NULL;
    if (tnc_attend_most(p, p.Tq > p.Tk ? p.Tq : p.Tk) > TNC_ATTEND_TERMS) return NULL;
    if (p.Tk < 128 || p.Tq + p.Tk > INT32_MAX / 2 || p.B * p.H * ((p.Tq + p.Tk) / 64 + 1) > INT32_MAX) return NULL;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (p.n_qk <= sizes[i].d && p.n_v <= sizes[i].dv && sizes[i].kind[p.kind].run)
            return (size_t)sizes[i].kind[p.kind].shared <= s->shared_max ? &sizes[i] : NULL;
    return NULL;
}

/* An operand [B,time,n,d] for those kernels: as it is, if it is BF16, of whole chunks, and aligned; else a copy. */
typedef struct tnc_attend_operand { tnc_heads *x; int64_t time, n, d, D; size_t bytes; } tnc_attend_operand;

static tnc_attend_operand tnc_attend_operand_of(const tnc_attend &p, tnc_heads *x, tn_dtype dtype, bool key, bool value,
                                                int D)
{
    tnc_attend_operand o = { x, key ? p.Tk : p.Tq, p.H * (!value && p.kind == TN_ATTEND_BILINEAR ? 2 : 1),
        value ? p.n_v : p.n_qk, D, 0 };
    const bool whole = o.d == D && x->b % 8 == 0 && x->t % 8 == 0 && x->h % 8 == 0 && (size_t)x->data % 16 == 0;
    if (dtype != TN_BF16 || !whole) o.bytes = (size_t)(p.B * o.time * o.n * D) * sizeof(tnc_bf16);
    return o;
}

static char *tnc_attend_copy(tnc *s, tnc_attend_operand o, tn_dtype dtype, char *to)
{
    const int64_t chunks = (int64_t)(o.bytes / 16);
    if (chunks == 0) return to;
    if (dtype == TN_F32)
        TNC_LAUNCH((tnc_attend_pack<float>), tnc_grid(s, chunks, 256), 256, 0, s->stream, *o.x, o.time, o.n, o.d, o.D,
                   chunks, (uint4 *)to);
    else
        TNC_LAUNCH((tnc_attend_pack<tnc_bf16>), tnc_grid(s, chunks, 256), 256, 0, s->stream, *o.x, o.time, o.n, o.d, o.D,
                   chunks, (uint4 *)to);
    *o.x = tnc_heads{ to, o.time * o.n * o.D, o.n * o.D, o.D };
    return to + o.bytes;
}

/* Bytes for `odd`: of queries; backwards of keys behind. */
static size_t tnc_attend_marks(const tnc_attend &p, bool back)
{
    return (size_t)tnc_ceil(tnc_attend_tiles(p, p.Tq) + (back ? tnc_attend_tiles(p, p.Tk) : 0), 4) * 16;
}

/* Operands as the tensor-core kernels want them, behind `taken` bytes of scratch that are the caller's. */
static tn_status tnc_attend_operands(tnc *s, tnc_attend *p, const tnc_attend_size *size, tn_dtype dtype, size_t taken,
                                     bool back, void **scratch)
{
    const tnc_attend_operand all[] = { tnc_attend_operand_of(*p, &p->q, dtype, false, false, size->d),
                                       tnc_attend_operand_of(*p, &p->k, dtype, true, false, size->d),
                                       tnc_attend_operand_of(*p, &p->v, dtype, true, true, size->dv),
                                       tnc_attend_operand_of(*p, &p->dout, dtype, false, true, size->dv) };
    const int n = back ? 4 : 3;
    size_t    bytes = taken;
    char     *to;
    int       i;
    for (i = 0; i < n; i++) bytes += all[i].bytes;
    if (!(*scratch = tnc_scratch(s, bytes))) return TN_ERR_MEMORY;
    for (i = 0, to = (char *)*scratch + taken; i < n; i++) to = tnc_attend_copy(s, all[i], dtype, to);
    return TN_OK;
}

/* ---- attention: the rows --------------------------------------------------------------------------------------------- */

static tnc_heads tnc_heads_of(const tn_view *v)
{
    tnc_heads h = { v->data, 0, 0, 0 };
    if (!v->data) return h;
    h.b = v->strides[0];
    h.t = v->strides[1];
    h.h = v->strides[2];
    return h;
}

static tnc_attend tnc_attend_of(const tn_call *c)
{
    tnc_attend p;
    memset(&p, 0, sizeof p);
    p.q = tnc_heads_of(&c->in[0]);
    p.k = tnc_heads_of(&c->in[1]);
    p.v = tnc_heads_of(&c->in[2]);
    p.B = c->in[2].shape[0];
    p.H = c->in[2].shape[2];
    p.Tq = c->in[0].shape[1];
    p.Tk = c->in[2].shape[1];
    p.n_qk = c->in[0].shape[3];
    p.n_v = c->in[2].shape[3];
    p.kind = (int)c->i[0];
    p.causal = c->i[1] != 0;
    p.window = c->i[2];
    p.past = c->i[3];
    p.scale = c->f[0];
    p.score = (float)p.scale;
    p.power = (float)(p.scale * TNC_LOG2E);
    p.square = (float)(p.scale * p.scale);
    p.length = c->f[1];
    p.row = (int)c->f[2];
    p.sums = p.row == TN_ROW_SCALE_SUM;
    p.eps = c->f[3];
    return p;
}

/* Do the operands that are there share one dtype, and has the statistic that of its real? */
static bool tnc_attend_dtypes(const tn_view *const *v, int n, const tn_view *stat)
{
    const tn_dtype t = v[0]->dtype;
    int            i;
    for (i = 1; i < n; i++)
        if (v[i]->data && v[i]->dtype != t) return false;
    return !stat->data || stat->dtype == (t == TN_F64 ? TN_F64 : TN_F32);
}

/* All tiles; or the odd ones, among blocks that mostly find none. */
static unsigned tnc_attend_grid(const tnc *s, const tnc_attend &p, int64_t blocks)
{
    return p.odd ? tnc_grid(s, blocks, 1) : tnc_blocks(blocks, 1);
}

template <typename T> static void tnc_attend_run_plain(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_room<typename tnc_real<T>::type> room;
    const int64_t slabs = p.n_v > 0 ? tnc_ceil(p.n_v, room::side) : 1,
        blocks = tnc_ceil(p.Tq, room::side) * p.B * p.H * slabs;
    TNC_LAUNCH((tnc_attend_plain<T>), tnc_attend_grid(s, p, blocks), room::threads, 0, s->stream, p, slabs, blocks);
}

/* Parts of the keys for the query that sees most. */
static int64_t tnc_attend_parts(const tnc_attend &p)
{
    const int64_t keys = tnc_attend_most(p, p.Tk);
    return keys > 0 ? tnc_ceil(keys, TNC_ATTEND_PART) : 1;
}

template <typename T> static void tnc_attend_run_few(tnc *s, const tnc_attend &p)
{
    const int64_t rows = p.B * p.H * p.Tq, parts = tnc_attend_parts(p);
    TNC_LAUNCH((tnc_attend_part<T>), tnc_blocks(rows * parts, 1), 128, 0, s->stream, p, parts, rows * parts);
    TNC_LAUNCH((tnc_attend_join<T>), tnc_grid(s, rows, 8), 256, 0, s->stream, p, parts);
}

static tn_status tnc_attention(tnc *s, const tn_call *c)
{
    const tn_view *all[] = { &c->in[0], &c->in[1], &c->in[2], &c->out[0] };
    const tn_dtype dtype = c->in[0].dtype;
    const tnc_attend_size *size;
    tnc_attend     p = tnc_attend_of(c);
    void          *scratch = NULL;
    p.o = tnc_heads_of(&c->out[0]);
    p.stat = c->out[1].data;
    if (!tnc_attend_dtypes(all, 4, &c->out[1])) return TN_ERR_DTYPE;
    if (p.B * p.H * p.Tq == 0) return TN_OK;
    if (p.Tq <= TNC_ATTEND_FEW) {
        p.rows = tnc_scratch(s, (size_t)(p.B * p.H * p.Tq * tnc_attend_parts(p) * (2 + p.n_v)) * (dtype == TN_F64 ? 8 : 4));
        if (!p.rows) return TN_ERR_MEMORY;
        TNC_TYPES(dtype, T, tnc_attend_run_few<T>(s, p))
        return TN_OK;
    }
    if ((size = tnc_attend_size_of(s, p, dtype)) != NULL) {
        tnc_attend m = p;
        m.wide = dtype == TN_F32;
        if (tnc_attend_operands(s, &m, size, dtype, tnc_attend_marks(p, false), false, &scratch) != TN_OK)
            return TN_ERR_MEMORY;
        p.odd = m.odd = (int *)scratch;
        size->kind[p.kind].run(s, m, false);
    }
    TNC_TYPES(dtype, T, tnc_attend_run_plain<T>(s, p))
    return TN_OK;
}

template <typename T> static void tnc_attend_run_plain_back(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_room<typename tnc_real<T>::type> room;
    const int64_t heads = p.B * p.H, slabs = tnc_ceil(p.n_qk, room::side), both = tnc_ceil(p.n_v, room::side);
    const int64_t wide = slabs > both ? slabs : both;
    const int64_t queries = tnc_ceil(p.Tq, room::side) * heads * slabs, keys = tnc_ceil(p.Tk, room::side) * heads * wide;
    if (p.dq.data)
        TNC_LAUNCH((tnc_attend_plain_back<T, false>), tnc_attend_grid(s, p, queries), room::threads, 0, s->stream, p, slabs,
                   queries);
    if (p.dk.data || p.dv.data) {
        tnc_attend own = p;
        if (p.odd) own.odd += tnc_attend_tiles(p, p.Tq);
        TNC_LAUNCH((tnc_attend_plain_back<T, true>), tnc_attend_grid(s, p, keys), room::threads, 0, s->stream, own, wide,
                   keys);
    }
}

static tn_status tnc_attention_backward(tnc *s, const tn_call *c)
{
    const tn_view *all[] = { &c->in[0], &c->in[1], &c->in[2], &c->in[3], &c->in[5], &c->out[0], &c->out[1], &c->out[2] };
    tnc_attend     p = tnc_attend_of(c);
    const tn_dtype dtype = c->in[0].dtype;
    const int64_t  rows = p.B * p.H * p.Tq;
    const size_t   bytes = 4 * (size_t)rows * (dtype == TN_F64 ? 8 : 4);
    /* What forwards took unrounded operands for a few queries has their l: so have they backwards. */
    const tnc_attend_size *size = p.Tq <= TNC_ATTEND_FEW && dtype == TN_F32 ? NULL : tnc_attend_size_of(s, p, dtype);
    tnc_attend     m;
    p.o = tnc_heads_of(&c->in[3]);
    p.stat = c->in[4].data;
    p.dout = tnc_heads_of(&c->in[5]);
    p.dq = tnc_heads_of(&c->out[0]);
    p.dk = tnc_heads_of(&c->out[1]);
    p.dv = tnc_heads_of(&c->out[2]);
    p.unit = size ? TNC_LOG2E : 1;                     /* of those on tensor cores exponentials are of 2 */
    p.wide = dtype == TN_F32;
    if (!tnc_attend_dtypes(all, 8, &c->in[4])) return TN_ERR_DTYPE;
    if (rows == 0 || p.Tk == 0) return TN_OK;
    m = p;
    if (size && tnc_attend_operands(s, &m, size, dtype, bytes + tnc_attend_marks(p, true), true, &m.rows) != TN_OK)
        return TN_ERR_MEMORY;
    p.rows = m.rows = size ? m.rows : tnc_scratch(s, bytes);
    if (!p.rows) return TN_ERR_MEMORY;
    if (size) p.odd = m.odd = (int *)((char *)p.rows + bytes);
    TNC_TYPES(dtype, T, TNC_LAUNCH((tnc_attend_rows<T>), tnc_grid(s, rows, 8), 256, 0, s->stream, p);
              if (size) size->kind[p.kind].run(s, m, true);
              tnc_attend_run_plain_back<T>(s, p))
    return TN_OK;
}

/* ---- attention in linear time ------------------------------------------------------------- >>attention_linear
   All of it is one trilinear sum over the pairs that see each other, L = sum_ij (q1_i.k1_j)(q2_i.k2_j)(u_i.v_j): the
   output is dL/du, its gradients are dL/dq1, dL/dq2, dL/dk1, dL/dk2 and dL/dv. So there is one formula. Rows x (queries,
   or keys) have three vectors each, as have the rows y of the other side, and of {a,b,m} = {0,1,2}, a < b,

       out_r = sum_s (x_a.y_a)(x_b.y_b) y_m = sum_{i,k} x_a[i] x_b[k] S[..]      S[i0,i1,i2] = sum_s y_0[i0] y_1[i1] y_2[i2]

   Positions go in chunks. What rows of a chunk see of other chunks is in the state S, an exclusive sum over the chunks
   (from the first on for queries, from the last for keys); what they see of their own chunk goes by pairs. phi(x) =
   x_a (x) x_b is made where it is used, and never stored. u_i = c_i do_i; with a row sum u and v have one number more,
   see >>op-attention_linear of tensornet.h. Squared attention has x_0 = x_1, y_0 = y_1, and one gradient for both.

   A state has d d n numbers (n = dv, or dv + 1): 8 MiB at d = dv = 128. As many chunks of as many heads go at once as
   fit into TNC_LINEAR_ROOM, or a sixteenth of the device's memory (a power of 2, so that what a driver keeps changes
   nothing); the sums travel on between them. It depends on nothing else, and so the order of the sums does not either:
   where the device has less left, that is an error. A single state of a head may take more.                            */

enum { TNC_LINEAR_FEW = 8 };                            /* queries, and keys, that go through a state one by one */
static const size_t TNC_LINEAR_ROOM = (size_t)1 << 30;  /* bytes of scratch for states, at most */

/* Row t of head h, item b of the batch: p + b batch + t row + h head, its numbers side by side. */
typedef struct tnc_linear_set { void *p; int64_t batch, row, head; } tnc_linear_set;

/* Row t stands at position t + shift. */
typedef struct tnc_linear_side { tnc_linear_set set[3]; int64_t T, shift; } tnc_linear_side;

typedef struct tnc_linear {
    tnc_linear_side x, y;                               /* the rows that get, the rows that give               */
    int64_t         w[3];                               /* extents of the three vectors: d, d, n               */
    int             wide[3];                            /* tensor cores: numbers that can be read, whole pieces of 8 */
    int             D, NE;                              /* extents of a state [D,D,NE]: d and n, or padded     */
    int64_t         stride[3];                          /* of the state: what one step along each means        */
    int64_t         H, heads;                           /* of one item of the batch, of all                    */
    int64_t         length, chunk, chunks;              /* positions; of a chunk; how many chunks              */
    int64_t         low, high;                          /* chunks [low,high) see a state that has taken something in */
    bool            causal, back;                       /* back: a row sees positions >= its own, else <=      */
    bool            squared;
} tnc_linear;

/* c_i of query i */
template <typename R> struct tnc_linear_scale {
    int      kind;
    bool     causal;
    int64_t  Tk, ahead, past;
    R        length;
    const R *stat;
};

/* One gradient, or the output: out = or += factor c_i dL/d(set m of x). */
template <typename R> struct tnc_linear_pass {
    tnc_linear_set   out;
    int              m;
    int64_t          width;                             /* columns that are wanted */
    bool             add, scaled;
    bool             f32, pairs;                        /* tensor cores: out is F32, not BF16; can be written by twos */
    R                factor;
    tnc_linear_scale<R> scale;
};

template <typename R>
static __device__ __forceinline__ R tnc_linear_row_scale(const tnc_linear_scale<R> &c, int64_t head, int64_t T, int64_t i)
{
    int64_t n = c.causal ? c.ahead + i + 1 : c.Tk;
    n = (n < 0 ? 0 : n) + c.past;
    switch (c.kind) {
    case TN_ROW_SCALE_SUM:    return R(1) / c.stat[head * T + i];
    case TN_ROW_SCALE_LENGTH: return R(n) > c.length ? sqrt(c.length / R(n)) : R(1);
    case TN_ROW_SCALE_MEAN:   return n > 0 ? R(1) / R(n) : R(0);
    default:            return R(1);
    }
}

/* Has a chunk's state anything? What has nothing is not read: an infinity or a NaN times its zeros would be NaN. */
static __device__ __forceinline__ bool tnc_linear_given(const tnc_linear &t, int64_t chunk)
{
    return chunk >= t.low && chunk < t.high;
}

template <typename T>
static __device__ __forceinline__ T *tnc_linear_row(const tnc_linear_set &s, int64_t H, int64_t head, int64_t t)
{
    const unsigned item = (unsigned)head / (unsigned)H;         /* fewer heads than 2^32: quick to divide */
    return (T *)s.p + item * s.batch + t * s.row + (head - item * H) * s.head;
}

/* A vector per row, side by side for the kernels: [heads,T,pitch] of P, what is behind `width` and what it gets are zeros.
   ONE: v' = [v 1]. SLOPE: u' = c [do, -do.o].   One warp a row; floor: the bytes read and written, once. */
enum { TNC_LINEAR_COPY, TNC_LINEAR_ONE, TNC_LINEAR_SLOPE };

template <typename T, typename P>
static __global__ void tnc_linear_pack(tnc_linear_set from, tnc_linear_set o, int mode,
                                       tnc_linear_scale<typename tnc_real<T>::type> c, int64_t H, int64_t heads,
                                int64_t rows, int64_t width, int64_t pitch, P *to)
{
    typedef typename tnc_real<T>::type R;
    const int64_t lane = threadIdx.x & 31, step = (int64_t)gridDim.x * (blockDim.x >> 5);
    int64_t       at, e;
    for (at = (int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); at < heads * rows; at += step) {
        const int64_t head = at / rows, t = at % rows;
        const T *x = tnc_linear_row<const T>(from, H, head, t);
        R        scale = mode == TNC_LINEAR_SLOPE ? tnc_linear_row_scale(c, head, rows, t) : R(1), extra = R(0);
        if (mode == TNC_LINEAR_SLOPE && c.kind == TN_ROW_SCALE_SUM) {
            const T *y = tnc_linear_row<const T>(o, H, head, t);
            for (e = lane; e < width; e += 32) extra -= tnc_to(x[e]) * tnc_to(y[e]);
            extra = tnc_warp_sum(extra);
        }
        if (mode == TNC_LINEAR_ONE) extra = R(1);
        for (e = lane; e < pitch; e += 32) {
            const R value = e < width ? tnc_to(x[e]) : e == width ? extra : R(0);
            to[at * pitch + e] = tnc_from<P>(typename tnc_real<P>::type(scale * value));
        }
    }
}

/* ---- any extents, F32 and F64: tiles of 64 x 64, 256 threads with 4 x 4 sums each */

enum { TNC_LINEAR_TILE = 64, TNC_LINEAR_DEPTH = 16 };

/* sum += A^T B, of those k that row i sees: what is hidden may be infinite. */
template <typename R, typename Sees>
static __device__ __forceinline__ void tnc_linear_product(const R (*A)[TNC_LINEAR_TILE + 4],
                                                          const R (*B)[TNC_LINEAR_TILE + 4], R sum[4][4], Sees sees)
{
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    int k, i, j;
    TNC_UNROLL_BY(4)
    for (k = 0; k < TNC_LINEAR_DEPTH; k++)
        TNC_UNROLL
        for (i = 0; i < 4; i++) {
            if (!sees(k, row + i)) continue;
            TNC_UNROLL
            for (j = 0; j < 4; j++) sum[i][j] = tnc_fma(A[k][row + i], B[k][column + j], sum[i][j]);
        }
}

/* The rows of a side that stand in chunk c: [first,end) */
static __device__ __forceinline__ void tnc_linear_range(const tnc_linear &t, const tnc_linear_side &s, int64_t c,
                                                        int64_t *first, int64_t *end)
{
    const int64_t low = c * t.chunk - s.shift, high = low + t.chunk;
    *first = low < 0 ? 0 : low;
    *end = high < s.T ? high : s.T;
}

/* S [heads,chunks,F,n] of this launch: what the y of each chunk give, sum_s phi(y)_f y_2[e]. Block: 64 features, 64
   columns of one chunk of one head. Floor: 2 C F n flops a chunk. */
template <typename R>
static __global__ void __launch_bounds__(256) tnc_linear_states(tnc_linear t, int64_t head0, int64_t chunk0, R *S)
{
    TNC_SHARED(R, A, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    TNC_SHARED(R, B, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    const int64_t F = t.w[0] * t.w[1], n = t.w[2], tiles = tnc_ceil(F, TNC_LINEAR_TILE), head = head0 + blockIdx.z;
    const int64_t f0 = (int64_t)blockIdx.x % tiles * TNC_LINEAR_TILE, e0 = (int64_t)blockIdx.x / tiles * TNC_LINEAR_TILE;
    const int     column = (int)threadIdx.x % TNC_LINEAR_TILE, line = (int)threadIdx.x / TNC_LINEAR_TILE;
    const int64_t a = (f0 + column) / t.w[1], b = (f0 + column) % t.w[1];
    R             sum[4][4] = {};
    int64_t       first, end, from;
    int           i, j, k;
    tnc_linear_range(t, t.y, chunk0 + blockIdx.y, &first, &end);
    for (from = first; from < end; from += TNC_LINEAR_DEPTH) {
        for (k = line; k < TNC_LINEAR_DEPTH; k += 4) {
            const bool here = from + k < end;
            const R   *ya = tnc_linear_row<const R>(t.y.set[0], t.H, head, from + k);
            const R   *yb = tnc_linear_row<const R>(t.y.set[1], t.H, head, from + k);
            const R   *ym = tnc_linear_row<const R>(t.y.set[2], t.H, head, from + k);
            A[k][column] = here && f0 + column < F ? ya[a] * yb[b] : R(0);
            B[k][column] = here && e0 + column < n ? ym[e0 + column] : R(0);
        }
        __syncthreads();
        tnc_linear_product<R>(A, B, sum, [](int, int) { return true; });
        __syncthreads();
    }
    S += ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * F * n;
    TNC_UNROLL
    for (i = 0; i < 4; i++)
        TNC_UNROLL
        for (j = 0; j < 4; j++) {
            const int64_t f = f0 + threadIdx.x / 16 * 4 + i, e = e0 + threadIdx.x % 16 * 4 + j;
            if (f < F && e < n) S[f * n + e] = sum[i][j];
        }
}

/* S [heads,chunks,size]: in place the sum of what stands before each chunk (back: behind), carry [heads,size] included,
   which then has all. In double: a launch's chunks may be many, and memory is what it waits for. Floor: S read and written
   once. */
template <typename R>
static __global__ void tnc_linear_prefix(R *S, R *carry, int64_t heads, int64_t chunks, int64_t size, bool back)
{
    int64_t at, c;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * size; at += (int64_t)gridDim.x * blockDim.x) {
        R     *p = S + at / size * chunks * size + at % size;
        double sum = (double)carry[at];
        for (c = 0; c < chunks; c++) {
            R           *here = p + (back ? chunks - 1 - c : c) * size;
            const double own = (double)*here;
            *here = (R)sum;
            sum += own;
        }
        carry[at] = (R)sum;
    }
}

/* A state operand [F',n] to the carry [D,D,NE] of every head, or back; squared: F' = d(d+1)/2, a <= b. */
template <typename R>
static __global__ void tnc_linear_carry(R *carry, R *state, tnc_linear t, int64_t head0, int64_t heads, bool back)
{
    const int64_t size = (int64_t)t.D * t.D * t.NE, d = t.w[0], n = t.w[2], features = t.squared ? d * (d + 1) / 2 : d * d;
    int64_t       at;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * size; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t e = at % t.NE, b = at / t.NE % t.D, a = at / t.NE / t.D % t.D;
        const int64_t low = a < b ? a : b, high = a < b ? b : a;
        const bool    inside = a < d && b < d && e < n;
        const int64_t f = t.squared ? low * d - low * (low - 1) / 2 + high - low : a * d + b;
        R            *own = state + ((head0 + at / size) * features + f) * n + e;
        if (!back) carry[at] = inside ? *own : R(0);
        else if (inside && (!t.squared || a <= b)) *own = carry[at];
    }
}

/* The output, or one gradient, of 64 rows x 64 columns; t: turned for it, {a,b,m} = {0,1,2}. S: as above, one state a
   chunk (each = 1), or one for all (each = 0); NULL: nothing to be seen but the own chunk. Floor: 2 F n flops a row, and
   half a chunk's pairs. */
template <typename R>
static __global__ void __launch_bounds__(256, 1)
tnc_linear_read(tnc_linear t, tnc_linear_pass<R> p, int64_t head0, int64_t chunk0,
                                                       const R *S, int64_t each)
{
    TNC_SHARED(R, A, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    TNC_SHARED(R, B, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    const int     tid = (int)threadIdx.x;
    const int64_t tiles = t.chunk / TNC_LINEAR_TILE, c = blockIdx.y / tiles, chunk = chunk0 + c, head = head0 + blockIdx.z;
    const int64_t r0 = chunk * t.chunk + blockIdx.y % tiles * TNC_LINEAR_TILE, c0 = (int64_t)blockIdx.x * TNC_LINEAR_TILE;
    R             sum[4][4] = {};
    int64_t       i, k0, s, first, end;
    int           k, n, m;
    if (S && tnc_linear_given(t, chunk)) {
        S += (blockIdx.z * (each ? gridDim.y / tiles : 1) + c * each) * t.w[0] * t.w[1] * t.w[2];
        for (i = 0; i < t.w[0]; i++)
            for (k0 = 0; k0 < t.w[1]; k0 += TNC_LINEAR_DEPTH) {
                for (n = 0; n < 4; n++) {
                    const int     row = tid / 16 + 16 * n;
                    const int64_t r = r0 + row - t.x.shift;
                    const R      *xa = tnc_linear_row<const R>(t.x.set[0], t.H, head, r);
                    const R      *xb = tnc_linear_row<const R>(t.x.set[1], t.H, head, r) + k0;
                    const R      *from = S + i * t.stride[0] + k0 * t.stride[1] + c0 * t.stride[2];
                    k = tid % 16;
                    A[k][row] = r >= 0 && r < t.x.T && k0 + k < t.w[1] ? xa[i] * xb[k] : R(0);
                    if (t.stride[2] == 1) { k = tid / 64 + 4 * n; m = tid % 64; }   /* in the order of memory */
                    else { k = tid % 16; m = tid / 16 + 16 * n; }
                    B[k][m] = k0 + k < t.w[1] && c0 + m < t.w[2] ? from[k * t.stride[1] + m * t.stride[2]] : R(0);
                }
                __syncthreads();
                tnc_linear_product<R>(A, B, sum, [](int, int) { return true; });
                __syncthreads();
            }
    }
    tnc_linear_range(t, t.y, chunk, &first, &end);
    if (!t.causal) end = first;                                                     /* all is in the state */
    for (s = first; s < end; s += TNC_LINEAR_DEPTH) {
        const int64_t low = s + t.y.shift, high = low + TNC_LINEAR_DEPTH;           /* positions */
        if (t.back ? high <= r0 : low >= r0 + TNC_LINEAR_TILE) continue;
        const int  ahead = (int)(low - r0);
        const auto sees = [&](int key, int row) { return t.back ? key + ahead >= row : key + ahead <= row; };
        for (n = 0; n < 4; n++) {
            const int     row = tid % 64;
            const int64_t r = r0 + row - t.x.shift;
            R             one = R(0), two = R(0);
            k = tid / 64 + 4 * n;
            if (s + k < end && r >= 0 && r < t.x.T && sees(k, row)) {
                const R *xa = tnc_linear_row<const R>(t.x.set[0], t.H, head, r);
                const R *xb = tnc_linear_row<const R>(t.x.set[1], t.H, head, r);
                const R *ya = tnc_linear_row<const R>(t.y.set[0], t.H, head, s + k);
                const R *yb = tnc_linear_row<const R>(t.y.set[1], t.H, head, s + k);
                for (i = 0; i < t.w[0]; i++) one = tnc_fma(xa[i], ya[i], one);
                for (i = 0; i < t.w[1]; i++) two = tnc_fma(xb[i], yb[i], two);
            }
            A[k][row] = one * two;
            B[k][row] = R(0);
            if (s + k < end && c0 + row < t.w[2])
                B[k][row] = tnc_linear_row<const R>(t.y.set[2], t.H, head, s + k)[c0 + row];
        }
        __syncthreads();
        tnc_linear_product<R>(A, B, sum, sees);
        __syncthreads();
    }
    TNC_UNROLL
    for (n = 0; n < 4; n++) {
        const int64_t r = r0 + tid / 16 * 4 + n - t.x.shift, column = c0 + tid % 16 * 4;
        if (r < 0 || r >= t.x.T) continue;
        const R scale = p.scaled ? tnc_linear_row_scale(p.scale, head, t.x.T, r) : R(1);
        R      *to = tnc_linear_row<R>(p.out, t.H, head, r) + column;
        TNC_UNROLL
        for (m = 0; m < 4; m++) {
            const R value = sum[n][m] * p.factor * scale;
            if (column + m < p.width) to[m] = p.add ? to[m] + value : value;
        }
    }
}

/* raw [heads,T,n], scaled: what is in its last column divides the others. */
template <typename T>
static __global__ void tnc_linear_divide(const typename tnc_real<T>::type *raw, int64_t H, int64_t heads, int64_t rows,
                                         int64_t n,
                                  typename tnc_real<T>::type eps, tnc_linear_set out, typename tnc_real<T>::type *stat)
{
    typedef typename tnc_real<T>::type R;
    int64_t at;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * rows * n; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = at / n, e = at % n;
        const R       total = raw[row * n + n - 1] + eps;
        if (e < n - 1) tnc_linear_row<T>(out, H, row / rows, row % rows)[e] = tnc_from<T>(raw[at] / total);
        else stat[row] = total;
    }
}

/* How much goes at once: states of `chunks` chunks of `heads` heads, in `bytes`. */
typedef struct tnc_linear_group { int64_t heads, chunks, segments; size_t bytes; bool states; } tnc_linear_group;

static int64_t tnc_linear_clamp(double x, int64_t most) { return x < 1 ? 1 : x < (double)most ? (int64_t)x : most; }

/* t with its vectors in the order a, b, m, and the strides of its state. */
static tnc_linear tnc_linear_turned(const tnc_linear *t, int m)
{
    const int64_t stride[3] = { (int64_t)t->D * t->NE, t->NE, 1 };
    const int     order[3] = { m == 0 ? 1 : 0, m == 2 ? 1 : 2, m };
    tnc_linear    r = *t;
    int           i;
    for (i = 0; i < 3; i++) {
        r.x.set[i] = t->x.set[order[i]];
        r.y.set[i] = t->y.set[order[i]];
        r.w[i] = t->w[order[i]];
        r.wide[i] = t->wide[order[i]];
        r.stride[i] = stride[order[i]];
    }
    return r;
}

/* One state a head of F32 (F64) numbers, and one a chunk. */
template <typename R> static tnc_linear_group tnc_linear_groups(const tnc_linear *t, size_t room, bool kept, R)
{
    tnc_linear_group g;
    const int64_t    most = 65535 / (t->chunk / TNC_LINEAR_TILE);                   /* of a grid's second extent */
    const double     state = (double)t->D * t->D * t->NE * (double)sizeof(R);
    g.states = kept || t->chunks > 1 || !t->causal;
    g.segments = 1;
    g.heads = tnc_linear_clamp(g.states ? (double)room / 4 / state : 65535, t->heads < 65535 ? t->heads : 65535);
    g.chunks = tnc_linear_clamp((double)room / state / (double)g.heads - 1, t->chunks < most ? t->chunks : most);
    g.bytes = g.states ? (size_t)(state * (double)g.heads * (double)(g.chunks + 1)) : 0;
    return g;
}

/* All passes over the rows x. room: as the group says. state: the operand of the call, which then holds its keys too, or
   NULL. */
template <typename R> static void tnc_linear_sweep(tnc *s, const tnc_linear &t, const tnc_linear_pass<R> *pass, int passes,
                                                   tnc_linear_group g, R *room, R *state)
{
    const int64_t size = (int64_t)t.D * t.D * t.NE, tile = TNC_LINEAR_TILE;
    int64_t       head, done, chunk;
    int           i;
    for (head = 0; head < t.heads; head += g.heads) {
        const int64_t  heads = t.heads - head < g.heads ? t.heads - head : g.heads;
        const unsigned wide = tnc_grid(s, heads * size, 256);
        R             *carry = room, *S = room + g.heads * size;
        auto read = [&](int64_t from, int64_t chunks, const R *states, int64_t each) {
            for (i = 0; i < passes; i++) {
                const dim3 grid((unsigned)tnc_ceil(t.w[pass[i].m], tile), (unsigned)(chunks * t.chunk / tile),
                                (unsigned)heads);
                TNC_LAUNCH((tnc_linear_read<R>), grid, 256, 0, s->stream, tnc_linear_turned(&t, pass[i].m), pass[i], head,
                           from, states, each);
            }
        };
        if (state) TNC_LAUNCH((tnc_linear_carry<R>), wide, 256, 0, s->stream, carry, state, t, head, heads, false);
        else if (g.states) cudaMemsetAsync(carry, 0, (size_t)(heads * size) * sizeof(R), s->stream);
        for (done = 0; done < t.chunks; done += g.chunks) {
            const int64_t chunks = t.chunks - done < g.chunks ? t.chunks - done : g.chunks;
            chunk = t.back ? t.chunks - done - chunks : done;
            if (g.states) {
                const int64_t tiles = tnc_ceil(t.w[0] * t.w[1], tile) * tnc_ceil(t.w[2], tile);
                TNC_LAUNCH((tnc_linear_states<R>), dim3((unsigned)tiles, (unsigned)chunks, (unsigned)heads), 256, 0,
                           s->stream, t, head, chunk, S);
                TNC_LAUNCH((tnc_linear_prefix<R>), wide, 256, 0, s->stream, S, carry, heads, chunks, size, t.back);
            }
            if (t.causal) read(chunk, chunks, g.states ? S : (R *)NULL, 1);
        }
        for (chunk = 0; chunk < t.chunks && !t.causal; chunk += g.chunks)
            read(chunk, t.chunks - chunk < g.chunks ? t.chunks - chunk : g.chunks, carry, 0);
        if (state) TNC_LAUNCH((tnc_linear_carry<R>), wide, 256, 0, s->stream, carry, state, t, head, heads, true);
    }
}

/* ---- tensor cores: BF16 operands, d and n up to 128; two kernels, one that makes states and one that reads them.

   Sums are F32, also those of states; a state is rounded to BF16 where it is an operand of a product, as are phi and the
   pairs. A sum takes in TNC_SCAN_TERMS positions at most, and is then added to those before, as is each call's to the
   state that it is given: it is within 2^-7 of the sum of magnitudes, as in the quadratic form, and each further sum adds
   2^-24. Where the chunks of a head are walked through
   one after the other, the state never leaves the registers: what is written is its BF16 copy at each chunk's begin, 2 bytes
   a number, that the rows of the chunk read. A state in memory is [D,D,NE]: d and n padded to a power of 2 with zeros.
   Squared: of the 16 x 16 blocks of (a,b) those with b's block >= a's are kept; what is off the diagonal counts twice,
   d(d+16)/2 features instead of d d.

   Flops, forwards and backwards, a position: 18 d d n (three states, six reads) where a fused pass that sums dphi by
   lanes would have 14, and 36 d a pair of the own chunk, C/2 of them. Bytes: d = n = 64, C = 512: 14 a number of a state
   (two written, five more reads), 7 KiB a position against 4.7 Mflop: 650 flops a byte, three times what an H200 needs.

   Tiles lie in shared memory as tnc_piece_at says: the eight rows, too, that a warp reads four numbers of are in different
   banks. */

enum {
    TNC_LINEAR_ROWS   = 256,                            /* rows of a block that reads states: 32 a warp                  */
    TNC_LINEAR_KEYS   = 32,                             /* of a tile of pairs                                            */
    TNC_LINEAR_STAGES = 4,                              /* tiles of states on their way or in use                        */
    TNC_SCAN_STEP     = 64,                             /* rows that a state takes in between two barriers               */
    TNC_SCAN_STAGES   = 3,
    TNC_SCAN_TERMS    = 1 << 20                         /* positions that one sum of F32 takes in                        */
};

typedef struct tnc_linear_tiles {
    int64_t  head0, chunk0, chunks, each;               /* this launch: heads from, chunks from, how many; of a segment  */
    int      step;                                      /* 1: a state a chunk; 0: one for all                            */
    bool     states;
    bool     last;                                      /* nobody sees what the last of these chunks would add           */
    bool     apart;                                     /* sums begin at 0; what the carry holds is added where they go  */
} tnc_linear_tiles;

static __device__ __forceinline__ unsigned tnc_linear_lows(unsigned a, unsigned b) { return (a & 0xffffu) | b << 16; }
static __device__ __forceinline__ unsigned tnc_linear_highs(unsigned a, unsigned b) { return a >> 16 | (b & 0xffff0000u); }

/* `rows` rows from row t0 of a set, `pieces` pieces of each from number e0 on, to shared memory; zeros where nothing is. */
static __device__ __forceinline__ void tnc_linear_fetch(tnc_bf16 *to, int rows, int pieces, const tnc_linear_set &s,
                                                        int64_t H, int64_t head, int64_t t0, int64_t T, int e0, int wide)
{
    const tnc_bf16 *from = tnc_linear_row<const tnc_bf16>(s, H, head, 0);
    int             at;
    for (at = (int)threadIdx.x; at < rows * pieces; at += (int)blockDim.x) {
        const int     row = at / pieces, piece = at % pieces, e = e0 + piece * 8;
        const int64_t t = t0 + row;
        tnc_bf16     *here = to + tnc_piece_at(row, 0, piece, pieces);
        if (t >= 0 && t < T && e < wide) tnc_cp_async16(here, from + t * s.row + e);
        else *(uint4 *)here = make_uint4(0, 0, 0, 0);
    }
}

/* A block of tnc_linear_scan has X a's and 16 b's of a state. */
static __host__ __device__ __forceinline__ int tnc_scan_x(const tnc_linear &t) { return t.D < 32 ? 16 : 32; }

/* Is the number at (a,b) of a state kept? Squared, blocks below the diagonal are not. */
static __device__ __forceinline__ bool tnc_scan_has(const tnc_linear &t, int a, int b)
{
    const int X = tnc_scan_x(t);
    return !t.squared || a / X * X <= b / 16 * 16;
}

/* What X a's, 16 b's and N columns of the state of one head sum up, over the chunks of a segment. Warp: 4 a's x 16 b's x N
   in registers; phi^T [b,t] = x_b^T is loaded once and scaled by x_a[t] for each of the 4. S: the state before each chunk
   is written there; else to totals, when the segment is done. The last segment leaves the whole sum in `left`.
   16 t of a warp, N = 64: 32 mma of 4096 flops, 16 products of 2 numbers, 28 cycles of shared memory (4 + 16 by ldmatrix,
   8 for x_a), so that shared memory is busy half of the time that mma.sync takes at 600 TF/s. Floor: 2 F n flops a row. */
template <int X, int N>
static __global__ void __launch_bounds__(X * 8, 1)
tnc_linear_scan(tnc_linear t, tnc_linear_tiles p, const float *carry, float *left,
                                                            float *totals, tnc_bf16 *S)
{
    TNC_SHARED_ALIGN(16, tnc_bf16, shared, [TNC_SCAN_STAGES][TNC_SCAN_STEP * (16 + X + N)]);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, g = lane / 4, two = lane % 4 * 2;
    const int     slices = t.NE / N, e0 = (int)blockIdx.x % slices * N, xs = t.D / X;
    const int     x0 = (int)blockIdx.x / slices % xs * X, y0 = (int)blockIdx.x / slices / xs * 16;
    const int     per = (int)(t.chunk / TNC_SCAN_STEP);
    const int64_t head = p.head0 + blockIdx.z, size = (int64_t)t.D * t.D * t.NE, first = (int64_t)blockIdx.y * p.each;
    const int64_t count = first + p.each < p.chunks ? p.each : p.chunks - first;
    const bool    last = p.last && first + count == p.chunks;
    const int64_t steps = (last ? count - 1 : count) * per;
    const int64_t corner = ((int64_t)(x0 + 4 * warp) * t.D + y0 + g) * t.NE + e0 + two;      /* of this lane */
    const float  *begin = carry && S ? carry + blockIdx.z * size : NULL;
    float         sum[4][N / 8][4];
    int64_t       step, segment;
    int           x, j, i, half;
    if (!tnc_scan_has(t, x0, y0)) return;

    TNC_UNROLL
    for (x = 0; x < 4; x++)
        TNC_UNROLL
        for (half = 0; half < 2; half++)
            TNC_UNROLL
            for (j = 0; j < N / 8; j++) {
                const int64_t at = corner + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j;
                const float2  value = begin && !p.apart ? *(const float2 *)(begin + at) : make_float2(0, 0);
                sum[x][j][2 * half] = value.x;
                sum[x][j][2 * half + 1] = value.y;
            }
    TNC_ROLLED
    for (segment = 0; segment < (int64_t)blockIdx.y && S; segment++) {
        const float *more = totals + (segment * gridDim.z + blockIdx.z) * size + corner;
        TNC_UNROLL
        for (x = 0; x < 4; x++)
            TNC_UNROLL
            for (half = 0; half < 2; half++)
                TNC_UNROLL
                for (j = 0; j < N / 8; j++) {
                    const float2 value = *(const float2 *)(more + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j);
                    sum[x][j][2 * half] += value.x;
                    sum[x][j][2 * half + 1] += value.y;
                }
    }

    /* step s of the segment: 64 rows of chunk s / per, in the order of the walk */
    auto chunk_of = [&](int64_t s) { return t.back ? p.chunks - 1 - first - s / per : first + s / per; };
    auto fetch = [&](int64_t s) {
        tnc_bf16     *to = shared[s % TNC_SCAN_STAGES];
        const int64_t row = (p.chunk0 + chunk_of(s)) * t.chunk + s % per * TNC_SCAN_STEP - t.y.shift;
        tnc_linear_fetch(to, TNC_SCAN_STEP, 2, t.y.set[1], t.H, head, row, t.y.T, y0, t.wide[1]);
        tnc_linear_fetch(to + TNC_SCAN_STEP * 16, TNC_SCAN_STEP, X / 8, t.y.set[0], t.H, head, row, t.y.T, x0, t.wide[0]);
        tnc_linear_fetch(to + TNC_SCAN_STEP * (16 + X), TNC_SCAN_STEP, N / 8, t.y.set[2], t.H, head, row, t.y.T, e0,
                         t.wide[2]);
    };
    auto keep = [&](int64_t chunk) {
        tnc_bf16 *to = S + (blockIdx.z * p.chunks + chunk) * size + corner;
        if (!tnc_linear_given(t, p.chunk0 + chunk)) return;
        TNC_UNROLL
        for (int x = 0; x < 4; x++)
            TNC_UNROLL
            for (int half = 0; half < 2; half++)
                TNC_UNROLL
                for (int j = 0; j < N / 8; j++) {
                    const int64_t at = ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j;
                    const float2  more = p.apart ? *(const float2 *)(begin + corner + at) : make_float2(0, 0);
                    *(unsigned *)(to + at) = tnc_pair(sum[x][j][2 * half] + more.x, sum[x][j][2 * half + 1] + more.y);
                }
    };
    for (i = 0; i < TNC_SCAN_STAGES - 1; i++) {
        if (i < steps) fetch(i);
        tnc_cp_async_commit();
    }
    for (step = 0; step < steps; step++) {
        const tnc_bf16 *b = shared[step % TNC_SCAN_STAGES], *a = b + TNC_SCAN_STEP * 16, *y = a + TNC_SCAN_STEP * X;
        int             k;
        tnc_cp_async_wait<TNC_SCAN_STAGES - 2>();
        __syncthreads();
        if (step + TNC_SCAN_STAGES - 1 < steps) fetch(step + TNC_SCAN_STAGES - 1);
        tnc_cp_async_commit();
        if (S && step % per == 0) keep(chunk_of(step));
        TNC_UNROLL
        for (k = 0; k < TNC_SCAN_STEP; k += 16) {
            unsigned phi[4], scaled[4], v[N / 8][2], pair[4][2], r[4];
            /* rows t of x_b and y are rows of k: both operands are turned. a: matrix 1 is 8 b's on, 2 is 8 t's on; b: 1 is
               8 t's on, 2 the next 8 columns. */
            tnc_ldmatrix_x4_trans(phi, b + tnc_piece_at(k + lane % 8 + lane / 16 * 8, 0, lane / 8 % 2, 2));
            TNC_UNROLL
            for (j = 0; j < N / 16; j++) {
                tnc_ldmatrix_x4_trans(r, y + tnc_piece_at(k + lane % 16, 0, 2 * j + lane / 16, N / 8));
                v[2 * j][0] = r[0]; v[2 * j][1] = r[1]; v[2 * j + 1][0] = r[2]; v[2 * j + 1][1] = r[3];
            }
            /* x_a of this lane's t, t+1 and t+8, t+9, four a's side by side */
            TNC_UNROLL
            for (half = 0; half < 2; half++) {
                const int   at = k + 8 * half + two, piece = warp / 2, rest = warp % 2 * 4;
                const uint2 even = *(const uint2 *)(a + tnc_piece_at(at, 0, piece, X / 8) + rest);
                const uint2 odd = *(const uint2 *)(a + tnc_piece_at(at + 1, 0, piece, X / 8) + rest);
                pair[0][half] = tnc_linear_lows(even.x, odd.x);
                pair[1][half] = tnc_linear_highs(even.x, odd.x);
                pair[2][half] = tnc_linear_lows(even.y, odd.y);
                pair[3][half] = tnc_linear_highs(even.y, odd.y);
            }
            TNC_UNROLL
            for (x = 0; x < 4; x++) {
                TNC_UNROLL
                for (i = 0; i < 4; i++) scaled[i] = tnc_mul_bf16x2(phi[i], pair[x][i / 2]);
                TNC_UNROLL
                for (j = 0; j < N / 8; j++) tnc_mma_bf16(sum[x][j], scaled, v[j]);
            }
        }
    }
    tnc_cp_async_wait<0>();
    if (S && last) keep(chunk_of(steps));
    if (S && !(left && blockIdx.y == gridDim.y - 1)) return;
    left = S ? left + blockIdx.z * size : totals + ((int64_t)blockIdx.y * gridDim.z + blockIdx.z) * size;
    TNC_UNROLL
    for (x = 0; x < 4; x++)
        TNC_UNROLL
        for (half = 0; half < 2; half++)
            TNC_UNROLL
            for (j = 0; j < N / 8; j++) {
                const int64_t at = corner + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j;
                const float2  more = begin && p.apart ? *(const float2 *)(begin + at) : make_float2(0, 0);
                *(float2 *)(left + at) = make_float2(sum[x][j][2 * half] + more.x, sum[x][j][2 * half + 1] + more.y);
            }
}

/* left = carry + totals of all segments [segments,numbers], in their order, and S is that in BF16: of what is kept. */
static __global__ void tnc_linear_total(tnc_linear t, const float *carry, const float *totals, int64_t segments,
                                        int64_t numbers, float *left, tnc_bf16 *S)
{
    int64_t at, s;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < numbers; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t line = at / t.NE;
        float         sum;
        if (!tnc_scan_has(t, (int)(line / t.D % t.D), (int)(line % t.D))) continue;
        sum = carry[at];
        for (s = 0; s < segments; s++) sum += totals[s * numbers + at];
        left[at] = sum;
        S[at] = __float2bfloat16(sum);
    }
}

/* Is one of these BF16 numbers, two a word, infinite or NaN? */
static __device__ __forceinline__ bool tnc_linear_odd(const unsigned (&v)[4])
{
    bool odd = false;
    TNC_UNROLL
    for (int i = 0; i < 4; i++) odd = odd || (v[i] & 0x7f80u) == 0x7f80u || (v[i] & 0x7f800000u) == 0x7f800000u;
    return odd;
}

/* out [2 x 16 rows, 16] += p y, as two products of mma would, of the pairs alone that see each other: key 0 of the 16 stands
   `ahead` of row 0. p as mma gives it: key k of a lane's row is with a neighbour. y: keys side by side, 16 columns of pieces
   `piece` and the next. What is infinite is rare: this is short, not fast. */
static __device__ __forceinline__ void tnc_linear_visible(float (&out)[2][2][4], const float (&p)[2][2][4],
                                                          const tnc_bf16 *y, int key0, int piece, int pieces, int ahead,
                                                          bool back)
{
    const int lane = (int)threadIdx.x & 31;
    TNC_ROLLED
    for (int k = 0; k < 16; k++)
        TNC_UNROLL
        for (int m = 0; m < 2; m++)
            TNC_UNROLL
            for (int h = 0; h < 2; h++) {
                const float even = k < 8 ? p[m][0][2 * h] : p[m][1][2 * h];
                const float odd = k < 8 ? p[m][0][2 * h + 1] : p[m][1][2 * h + 1];
                const float one = __shfl_sync(0xffffffffu, k % 2 ? odd : even, (lane & ~3) + k % 8 / 2);
                const int   row = 16 * m + 8 * h + lane / 4;
                if (back ? k + ahead < row : k + ahead > row) continue;
                TNC_UNROLL
                for (int c = 0; c < 2; c++) {
                    const tnc_bf16 *at = y + tnc_piece_at(key0 + k, 0, piece + c, pieces) + lane % 4 * 2;
                    out[m][c][2 * h] = fmaf(one, tnc_to(at[0]), out[m][c][2 * h]);
                    out[m][c][2 * h + 1] = fmaf(one, tnc_to(at[1]), out[m][c][2 * h + 1]);
                }
            }
}

/* The output, or one gradient, of 256 rows x N columns; t is turned for it: sum_i x_a[i] (x_b [32,K] S_i [K,N]) of a
   warp's 32 rows, x_b's fragments in registers for good, scaled by x_a[:,i] as i goes on; S_i is a tile that all warps
   read. TURNED: k are rows of S_i in memory, else its columns are.
   Of a warp, 16 k, N = 64: 16 mma, 8 products of 2 numbers, 16 cycles of shared memory: at 600 TF/s busy 60% of the time.
   Then the pairs of the own chunk, 32 keys at a time: two score tiles, whose product is the next product's operand as it
   stands in the registers. */
template <int K, int N, bool TURNED>
static __global__ void __launch_bounds__(256, 1) tnc_linear_mma(tnc_linear t, tnc_linear_pass<float> p, tnc_linear_tiles q,
                                                              const tnc_bf16 *S)
{
    enum { GROUP = K < 64 ? 64 / K : 1, ROWS = TURNED ? K : N, PIECES = (TURNED ? N : K) / 8 };
    enum { SLAB = K * N, STAGE = GROUP * SLAB };
    TNC_DYN_SHARED(tnc_bf16, shared);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, g = lane / 4, two = lane % 4 * 2;
    const int     n0 = (int)blockIdx.x * N, D8 = t.D / 8, loops = t.wide[0];
    const int64_t tiles = t.chunk / TNC_LINEAR_ROWS, c = blockIdx.y / tiles, chunk = q.chunk0 + c;
    const int64_t head = q.head0 + blockIdx.z;
    const int64_t p0 = chunk * t.chunk + blockIdx.y % tiles * TNC_LINEAR_ROWS, r0 = p0 - t.x.shift;     /* position, row */
    tnc_bf16     *xa = shared, *ring = shared + TNC_LINEAR_ROWS * t.D;
    float         sum[2][N / 8][4] = {};
    unsigned      xb[2][K / 16][4];
    int           i, j, k, m, n, h;

    if (r0 >= t.x.T || r0 + TNC_LINEAR_ROWS <= 0) return;
    tnc_linear_fetch(xa, TNC_LINEAR_ROWS, D8, t.x.set[0], t.H, head, r0, t.x.T, 0, t.wide[0]);
    tnc_cp_async_commit();
    TNC_UNROLL
    for (m = 0; m < 2; m++)
        TNC_UNROLL
        for (h = 0; h < 2; h++) {
            const int64_t   r = r0 + 32 * warp + 16 * m + 8 * h + g;
            const bool      here = r >= 0 && r < t.x.T;
            const tnc_bf16 *from = tnc_linear_row<const tnc_bf16>(t.x.set[1], t.H, head, here ? r : 0) + two;
            TNC_UNROLL
            for (k = 0; k < K / 16; k++) {
                xb[m][k][h] = here && 16 * k < t.wide[1] ? *(const unsigned *)(from + 16 * k) : 0u;
                xb[m][k][h + 2] = here && 16 * k + 8 < t.wide[1] ? *(const unsigned *)(from + 16 * k + 8) : 0u;
            }
        }

    if (q.states && tnc_linear_given(t, chunk)) {
        const int       stages = (loops + GROUP - 1) / GROUP;
        const tnc_bf16 *from = S + (blockIdx.z * (q.step ? gridDim.y / tiles : 1) + c * q.step) * (int64_t)t.D * t.D * t.NE;
        auto fetch = [&](int stage) {
            tnc_bf16 *to = ring + stage % TNC_LINEAR_STAGES * STAGE;
            int       at;
            for (at = (int)threadIdx.x; at < GROUP * ROWS * PIECES; at += 256) {
                const int slab = at / (ROWS * PIECES), row = at / PIECES % ROWS, piece = at % PIECES;
                const int one = stage * GROUP + slab, other = TURNED ? row : n0 + row;
                int       line;                                     /* of the state: (a,b) of its D x D */
                if (TURNED && t.squared && row / 16 < one / 16) continue;           /* not kept, not read */
                if (TURNED) line = one * t.D + other;
                else if (t.squared) line = one < other ? one * t.D + other : other * t.D + one;
                else line = p.m == 0 ? other * t.D + one : one * t.D + other;
                tnc_cp_async16(to + slab * SLAB + tnc_piece_at(row, 0, piece, PIECES),
                               from + line * t.NE + (TURNED ? n0 : 0) + 8 * piece);
            }
        };
        for (i = 0; i < TNC_LINEAR_STAGES - 1; i++) {
            if (i < stages) fetch(i);
            tnc_cp_async_commit();
        }
        for (i = 0; i < loops; i += 4) {
            uint2 scale[4];                                         /* four i's of rows g, g + 8, g + 16, g + 24 */
            TNC_UNROLL
            for (j = 0; j < 4; j++) {
                if (j % GROUP == 0) {
                    const int stage = (i + j) / GROUP;
                    tnc_cp_async_wait<TNC_LINEAR_STAGES - 2>();
                    __syncthreads();
                    if (stage + TNC_LINEAR_STAGES - 1 < stages) fetch(stage + TNC_LINEAR_STAGES - 1);
                    tnc_cp_async_commit();
                }
                if (j == 0) {
                    TNC_UNROLL
                    for (h = 0; h < 4; h++)
                        scale[h] = *(const uint2 *)(xa + tnc_piece_at(32 * warp + 8 * h + g, 0, i / 8, D8) + i % 8);
                }
                const tnc_bf16 *slab = ring + ((i + j) / GROUP % TNC_LINEAR_STAGES * GROUP + j % GROUP) * SLAB;
                unsigned        once[4], factor[4];
                TNC_UNROLL
                for (h = 0; h < 4; h++) {
                    const unsigned word = j < 2 ? scale[h].x : scale[h].y;
                    once[h] = factor[h] = j % 2 ? tnc_linear_highs(word, word) : tnc_linear_lows(word, word);
                }
                TNC_UNROLL
                for (k = 0; k < K / 16; k++) {
                    unsigned a[2][4], r[4];
                    if (TURNED && t.squared) {
                        if (16 * k + 15 < i) continue;
                        if (16 * k > i + j)                                             /* off the diagonal: twice, exact */
                            for (h = 0; h < 4; h++) factor[h] = tnc_mul_bf16x2(once[h], 0x40004000u);
                    }
                    TNC_UNROLL
                    for (m = 0; m < 2; m++)
                        TNC_UNROLL
                        for (h = 0; h < 4; h++)                                     /* rows g, g + 8, g, g + 8 */
                            a[m][h] = tnc_mul_bf16x2(xb[m][k][h], factor[2 * m + h % 2]);
                    TNC_UNROLL
                    for (n = 0; n < N / 16; n++) {
                        const int down = lane % 16, right = lane % 8 + lane / 16 * 8;
                        if (TURNED) tnc_ldmatrix_x4_trans(r, slab + tnc_piece_at(16 * k + down, 2 * n, lane / 16, PIECES));
                        else tnc_ldmatrix_x4(r, slab + tnc_piece_at(16 * n + right, 2 * k, lane / 8 % 2, PIECES));
                        TNC_UNROLL
                        for (m = 0; m < 2; m++) {
                            tnc_mma_bf16(sum[m][2 * n], a[m], r);
                            tnc_mma_bf16(sum[m][2 * n + 1], a[m], r + 2);
                        }
                    }
                }
            }
        }
    }

    /* The pairs of the own chunk */
    if (t.causal) {
        enum { SIZE = TNC_LINEAR_KEYS };
        const int     stage = SIZE * (t.D + K + N);
        const int64_t begin = chunk * t.chunk, end = begin + t.chunk < t.length ? begin + t.chunk : t.length;
        const int64_t first = begin < t.y.shift ? t.y.shift : begin;                 /* before it is nothing to see */
        const int64_t low = t.back ? p0 : first, own = p0 + TNC_LINEAR_ROWS, high = t.back || end < own ? end : own;
        const int     count = (int)((high - low + SIZE - 1) / SIZE);
        const int64_t mine = p0 + 32 * warp;                                        /* position of the warp's first row */
        auto fetch = [&](int tile) {
            tnc_bf16     *to = ring + tile % 2 * stage;
            const int64_t row = low + tile * SIZE - t.y.shift;
            tnc_linear_fetch(to, SIZE, D8, t.y.set[0], t.H, head, row, t.y.T, 0, t.wide[0]);
            tnc_linear_fetch(to + SIZE * t.D, SIZE, K / 8, t.y.set[1], t.H, head, row, t.y.T, 0, t.wide[1]);
            tnc_linear_fetch(to + SIZE * (t.D + K), SIZE, N / 8, t.y.set[2], t.H, head, row, t.y.T, n0, t.wide[2]);
        };
        tnc_cp_async_wait<0>();
        __syncthreads();                                                                /* the ring is free, x_a is there */
        if (count > 0) fetch(0);
        tnc_cp_async_commit();
        for (i = 0; i < count; i++) {
            const tnc_bf16 *ya = ring + i % 2 * stage, *yb = ya + SIZE * t.D, *ym = yb + SIZE * K;
            tnc_cp_async_wait<0>();
            __syncthreads();
            if (i + 1 < count) fetch(i + 1);
            tnc_cp_async_commit();
            for (h = 0; h < SIZE / 16; h++) {
                const int64_t key = low + i * SIZE + 16 * h;
                float         one[2][2][4] = {}, other[2][2][4] = {};
                unsigned      a[4], b[4], v[4];
                if (t.back ? key + 15 < mine : key > mine + 31) continue;               /* the same for the warp */
                for (k = 0; k < t.D / 16; k++) {
                    tnc_ldmatrix_x4(b, ya + tnc_piece_at(16 * h + lane % 8 + lane / 16 * 8, 0, 2 * k + lane / 8 % 2, D8));
                    TNC_UNROLL
                    for (m = 0; m < 2; m++) {
                        tnc_ldmatrix_x4(a, xa + tnc_piece_at(32 * warp + 16 * m + lane % 16, 0, 2 * k + lane / 16, D8));
                        tnc_mma_bf16(one[m][0], a, b);
                        tnc_mma_bf16(one[m][1], a, b + 2);
                    }
                }
                TNC_UNROLL
                for (k = 0; k < K / 16; k++) {
                    tnc_ldmatrix_x4(b, yb + tnc_piece_at(16 * h + lane % 8 + lane / 16 * 8, 0, 2 * k + lane / 8 % 2, K / 8));
                    TNC_UNROLL
                    for (m = 0; m < 2; m++) {
                        tnc_mma_bf16(other[m][0], xb[m][k], b);
                        tnc_mma_bf16(other[m][1], xb[m][k], b + 2);
                    }
                }
                /* the product at (row, key) of a lane is what the next product's first operand has there */
                TNC_UNROLL
                for (m = 0; m < 2; m++)
                    TNC_UNROLL
                    for (j = 0; j < 4; j++) {
                        const int64_t row = mine + 16 * m + 8 * (j % 2) + g, at = key + 8 * (j / 2) + two;
                        const int     e = 2 * (j % 2);
                        const bool    sees0 = t.back ? at >= row : at <= row, sees1 = t.back ? at + 1 >= row : at + 1 <= row;
                        const float   p0_ = sees0 ? one[m][j / 2][e] * other[m][j / 2][e] : 0.0f;
                        const float   p1_ = sees1 ? one[m][j / 2][e + 1] * other[m][j / 2][e + 1] : 0.0f;
                        one[m][j / 2][e] = p0_;
                        one[m][j / 2][e + 1] = p1_;
                    }
                TNC_UNROLL
                for (n = 0; n < N / 16; n++) {
                    tnc_ldmatrix_x4_trans(v, ym + tnc_piece_at(16 * h + lane % 16, 2 * n, lane / 16, N / 8));
                    /* some pair is hidden: what it is multiplied by 0 with must be finite */
                    if ((t.back ? key < mine + 31 : key + 15 > mine) && __any_sync(0xffffffffu, tnc_linear_odd(v))) {
                        float out[2][2][4];
                        TNC_UNROLL
                        for (m = 0; m < 2; m++)
                            TNC_UNROLL
                            for (j = 0; j < 8; j++) out[m][j / 4][j % 4] = sum[m][2 * n + j / 4][j % 4];
                        tnc_linear_visible(out, one, ym, 16 * h, 2 * n, N / 8, (int)(key - mine), t.back);
                        TNC_UNROLL
                        for (m = 0; m < 2; m++)
                            TNC_UNROLL
                            for (j = 0; j < 8; j++) sum[m][2 * n + j / 4][j % 4] = out[m][j / 4][j % 4];
                        continue;
                    }
                    TNC_UNROLL
                    for (m = 0; m < 2; m++) {
                        TNC_UNROLL
                        for (j = 0; j < 4; j++)
                            a[j] = tnc_pair(one[m][j / 2][2 * (j % 2)], one[m][j / 2][2 * (j % 2) + 1]);
                        tnc_mma_bf16(sum[m][2 * n], a, v);
                        tnc_mma_bf16(sum[m][2 * n + 1], a, v + 2);
                    }
                }
            }
        }
    }
    tnc_cp_async_wait<0>();

    TNC_UNROLL
    for (m = 0; m < 2; m++)
        TNC_UNROLL
        for (h = 0; h < 2; h++) {
            const int64_t r = r0 + 32 * warp + 16 * m + 8 * h + g;
            if (r >= 0 && r < t.x.T) {
                const float scale = p.scaled ? tnc_linear_row_scale(p.scale, head, t.x.T, r) : 1.0f;
                const float factor = p.factor * scale;
                char       *to = p.f32 ? (char *)tnc_linear_row<float>(p.out, t.H, head, r)
                                       : (char *)tnc_linear_row<tnc_bf16>(p.out, t.H, head, r);
                TNC_UNROLL
                for (n = 0; n < N / 8; n++)
                    tnc_put_two(to, n0 + 8 * n + two, (int)p.width, p.f32, p.pairs, p.add, factor * sum[m][n][2 * h],
                                factor * sum[m][n][2 * h + 1]);
            }
        }
}

/* Copies of 2 bytes a number; twice the carry, since its last segment is done while others still read it; totals of
   segments. Where the heads' tiles do not fill a GPU, chunks go in segments, at once: each is summed up twice, first for
   those behind it. 264: twice an H200's processors; a constant, so that the bits do not depend on the device. */
static tnc_linear_group tnc_linear_groups(const tnc_linear *t, size_t room, bool kept, tnc_bf16)
{
    tnc_linear_group g;
    const int64_t    most = 65535 / (t->chunk / TNC_LINEAR_ROWS), X = tnc_scan_x(*t), N = t->NE < 64 ? t->NE : 64;
    const double     state = (double)t->D * t->D * t->NE;
    double           each;
    int64_t          blocks;
    g.states = kept || t->chunks > 1 || !t->causal;
    g.heads = tnc_linear_clamp(g.states ? (double)room / 32 / state : 65535, t->heads < 65535 ? t->heads : 65535);
    blocks = g.heads * (t->D / 16) * (t->D / X) * (t->NE / N);
    g.segments = tnc_linear_clamp(264 / (double)blocks, 32);
    if (t->causal && g.segments < 4) g.segments = 1;                                /* twice the work: no gain */
    g.segments = g.segments < t->chunks ? g.segments : t->chunks;
    /* bytes of a number, but for the copies */
    each = 8 + 4 * (double)g.segments;
    g.chunks = tnc_linear_clamp((double)(TNC_SCAN_TERMS / t->chunk), t->chunks < most ? t->chunks : most);
    if (t->causal) g.chunks = tnc_linear_clamp(((double)room / state / (double)g.heads - each) / 2, g.chunks);
    each += 2 * (double)(t->causal ? g.chunks : 1);                                 /* else one state for all */
    g.bytes = g.states ? (size_t)(state * (double)g.heads * each) : 0;
    return g;
}

static size_t tnc_linear_shared(int64_t D, int64_t K, int64_t N)
{
    const int64_t ring = TNC_LINEAR_STAGES * (K < 64 ? 64 : K) * N, pairs = 2 * TNC_LINEAR_KEYS * (D + K + N);
    return (size_t)(TNC_LINEAR_ROWS * D + (ring > pairs ? ring : pairs)) * 2;
}

template <int K, int N, bool TURNED>
static void tnc_linear_mma_launch(tnc *s, dim3 grid, const tnc_linear &t, const tnc_linear_pass<float> &p,
                                  const tnc_linear_tiles &q, const tnc_bf16 *S)
{
    const size_t bytes = tnc_linear_shared(t.D, K, N);
    tnc_shared_for(s, tnc_linear_mma<K, N, TURNED>, bytes);
    TNC_LAUNCH((tnc_linear_mma<K, N, TURNED>), grid, 256, bytes, s->stream, t, p, q, S);
}

/* Rows of `chunks` chunks: one kernel for each depth of the products (d; or n for gradients of q and k), and each width. */
static void tnc_linear_mma_rows(tnc *s, const tnc_linear &whole, const tnc_linear_pass<float> &p,
                                const tnc_linear_tiles &q, int64_t chunks, int64_t heads, const tnc_bf16 *S)
{
    const tnc_linear t = tnc_linear_turned(&whole, p.m);
    const int        K = p.m == 2 ? t.D : t.NE, all = p.m == 2 ? t.NE : t.D, N = all < 64 ? all : 64;
    const dim3       grid((unsigned)(all / N), (unsigned)(chunks * t.chunk / TNC_LINEAR_ROWS), (unsigned)heads);
#define TNC_CASE(k, n, turned) \
    if (K == k && N == n && (p.m == 2) == turned) tnc_linear_mma_launch<k, n, turned>(s, grid, t, p, q, S)
    TNC_CASE(16, 32, true);   TNC_CASE(32, 32, true);
    TNC_CASE(16, 64, true);   TNC_CASE(32, 64, true);   TNC_CASE(64, 64, true);   TNC_CASE(128, 64, true);
    TNC_CASE(32, 16, false);  TNC_CASE(64, 16, false);  TNC_CASE(128, 16, false);
    TNC_CASE(32, 32, false);  TNC_CASE(64, 32, false);  TNC_CASE(128, 32, false);
                              TNC_CASE(64, 64, false);  TNC_CASE(128, 64, false);
#undef TNC_CASE
}

static void tnc_linear_scan_rows(tnc *s, const tnc_linear &t, const tnc_linear_tiles &q, int64_t segments, int64_t heads,
                                 const float *carry, float *left, float *totals, tnc_bf16 *S)
{
    const int  X = tnc_scan_x(t), N = t.NE < 64 ? 32 : 64;
    const dim3 grid((unsigned)(t.D / 16 * (t.D / X) * (t.NE / N)), (unsigned)segments, (unsigned)heads);
#define TNC_CASE(x, n) \
    if (X == x && N == n) TNC_LAUNCH((tnc_linear_scan<x, n>), grid, x * 8, 0, s->stream, t, q, carry, left, totals, S)
    TNC_CASE(16, 32);  TNC_CASE(16, 64);  TNC_CASE(32, 32);  TNC_CASE(32, 64);
#undef TNC_CASE
}

/* The same for tensor cores; room: two carries, totals, snapshots. */
static void tnc_linear_sweep(tnc *s, const tnc_linear &t, const tnc_linear_pass<float> *pass, int passes, tnc_linear_group g,
                             tnc_bf16 *room, float *state)
{
    const int64_t size = (int64_t)t.D * t.D * t.NE;
    int64_t       head, done;
    int           i;
    for (head = 0; head < t.heads; head += g.heads) {
        const int64_t    heads = t.heads - head < g.heads ? t.heads - head : g.heads;
        const unsigned   wide = tnc_grid(s, heads * size, 256);
        float           *carry = (float *)room, *left = carry + g.heads * size, *totals = left + g.heads * size, *other;
        tnc_bf16        *S = (tnc_bf16 *)(totals + g.segments * g.heads * size);
        tnc_linear_tiles q;
        memset(&q, 0, sizeof q);
        q.head0 = head;
        q.states = g.states;
        q.step = t.causal;
        q.apart = state || t.length > TNC_SCAN_TERMS;
        if (state) TNC_LAUNCH((tnc_linear_carry<float>), wide, 256, 0, s->stream, carry, state, t, head, heads, false);
        else if (g.states) cudaMemsetAsync(carry, 0, (size_t)(heads * size) * sizeof(float), s->stream);
        for (done = 0; done < t.chunks; done += g.chunks) {
            const int64_t chunks = t.chunks - done < g.chunks ? t.chunks - done : g.chunks;
            int64_t       segments;
            q.chunks = chunks;
            q.chunk0 = t.back ? t.chunks - done - chunks : done;
            q.each = tnc_ceil(chunks, g.segments);
            q.last = t.causal && done + chunks == t.chunks && !state;
            segments = tnc_ceil(chunks, q.each);
            if (g.states && (segments > 1 || !t.causal))
                tnc_linear_scan_rows(s, t, q, t.causal ? segments - 1 : segments, heads, NULL, NULL, totals, NULL);
            if (g.states && t.causal) tnc_linear_scan_rows(s, t, q, segments, heads, carry, left, totals, S);
            if (!t.causal)
                TNC_LAUNCH(tnc_linear_total, wide, 256, 0, s->stream, t, carry, totals, segments, heads * size, left, S);
            other = carry; carry = left; left = other;
            for (i = 0; i < passes && t.causal; i++) tnc_linear_mma_rows(s, t, pass[i], q, chunks, heads, S);
        }
        for (q.chunk0 = 0; q.chunk0 < t.chunks && !t.causal; q.chunk0 += g.chunks)
            for (i = 0; i < passes; i++) {
                const int64_t left_over = t.chunks - q.chunk0;
                tnc_linear_mma_rows(s, t, pass[i], q, left_over < g.chunks ? left_over : g.chunks, heads, S);
            }
        if (state) TNC_LAUNCH((tnc_linear_carry<float>), wide, 256, 0, s->stream, carry, state, t, head, heads, true);
    }
}

/* ---- a few tokens with a running state: the state is read and written once, nothing grows with the tokens before */

typedef struct tnc_linear_new {
    tnc_linear_set q[2], k[2], v, out;
    int64_t        H, Tq, Tk, d, dv, n;
    bool           squared, causal;
} tnc_linear_new;

/* Number e of v' of key j */
template <typename T>
static __device__ __forceinline__ typename tnc_real<T>::type tnc_linear_value(const tnc_linear_new &t, int64_t head,
                                                                              int64_t j, int64_t e)
{
    typedef typename tnc_real<T>::type R;
    return e < t.dv ? tnc_to(tnc_linear_row<const T>(t.v, t.H, head, j)[e]) : R(1);
}

/* phi_ab of row i of q or k */
template <typename T>
static __device__ __forceinline__ typename tnc_real<T>::type tnc_linear_phi(const tnc_linear_new &t,
                                                                            const tnc_linear_set x[2],
                                                                            int64_t head, int64_t i, unsigned a, unsigned b)
{
    return tnc_to(tnc_linear_row<const T>(x[0], t.H, head, i)[a]) * tnc_to(tnc_linear_row<const T>(x[1], t.H, head, i)[b]);
}

/* part [parts,heads,Tq,n]: what the state gave to each query, of 64 features a block; then the state takes in the keys.
   Floor: 2 F n numbers. Thread: every 8th feature, every 32nd column. */
template <typename T>
static __global__ void __launch_bounds__(256) tnc_linear_step(tnc_linear_new t, typename tnc_real<T>::type *state,
                                                       typename tnc_real<T>::type *part)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, partial, [8][TNC_LINEAR_FEW][32]);
    const int64_t features = t.squared ? t.d * (t.d + 1) / 2 : t.d * t.d, head = blockIdx.y;
    const unsigned first = blockIdx.x * 64u;
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int64_t before = t.causal ? 0 : t.Tk;         /* keys that a query may see in the state */
    const unsigned d = (unsigned)t.d, all = (unsigned)features;
    unsigned      f, a, b;
    int64_t       e0, j;
    int           i;
    state += head * features * t.n;
    for (e0 = 0; e0 < t.n; e0 += 32) {
        const int64_t e = e0 + lane;
        R             sum[TNC_LINEAR_FEW] = {};
        for (f = first + (unsigned)warp; f < first + 64 && f < all && e < t.n; f += 8) {
            R S = state[f * t.n + e], now = S;
            a = f / d; b = f % d;
            if (t.squared)
                for (a = 0, b = f; b >= d - a; a++) b -= d - a;
            if (t.squared) b += a;
            for (j = 0; j < t.Tk; j++)
                now = tnc_fma(tnc_linear_phi<T>(t, t.k, head, j, a, b), tnc_linear_value<T>(t, head, j, e), now);
            state[f * t.n + e] = now;
            if (before > 0) S = now;
            TNC_UNROLL
            for (i = 0; i < TNC_LINEAR_FEW; i++)
                if (i < t.Tq)
                    sum[i] = tnc_fma(tnc_linear_phi<T>(t, t.q, head, i, a, b) * R(t.squared && a != b ? 2 : 1), S, sum[i]);
        }
        TNC_UNROLL
        for (i = 0; i < TNC_LINEAR_FEW; i++) partial[warp][i][lane] = sum[i];
        __syncthreads();
        if (warp < t.Tq && e < t.n) {
            R total = R(0);
            for (i = 0; i < 8; i++) total += partial[i][warp][lane];
            part[(((int64_t)blockIdx.x * gridDim.y + head) * t.Tq + warp) * t.n + e] = total;
        }
        __syncthreads();
    }
}

/* raw [heads,Tq,n] = f0^2 c (the parts' sum, and causal the pairs of this call) */
template <typename T>
static __global__ void tnc_linear_step_end(tnc_linear_new t, const typename tnc_real<T>::type *part, int64_t parts,
                                           int64_t heads,
                                    typename tnc_real<T>::type factor, tnc_linear_scale<typename tnc_real<T>::type> scale,
                                    typename tnc_real<T>::type *raw)
{
    typedef typename tnc_real<T>::type R;
    const int64_t all = heads * t.Tq * t.n;
    int64_t       at, i, j, p;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t head = at / (t.Tq * t.n), row = at / t.n % t.Tq, e = at % t.n;
        R             sum = R(0), value;
        for (p = 0; p < parts; p++) sum += part[p * all + at];
        for (j = 0; t.causal && j <= t.Tk - t.Tq + row; j++) {
            const T *q1 = tnc_linear_row<const T>(t.q[0], t.H, head, row),
                *k1 = tnc_linear_row<const T>(t.k[0], t.H, head, j);
            const T *q2 = tnc_linear_row<const T>(t.q[1], t.H, head, row),
                *k2 = tnc_linear_row<const T>(t.k[1], t.H, head, j);
            R        one = R(0), two = R(0);
            for (i = 0; i < t.d; i++) {
                one = tnc_fma(tnc_to(q1[i]), tnc_to(k1[i]), one);
                two = tnc_fma(tnc_to(q2[i]), tnc_to(k2[i]), two);
            }
            sum = tnc_fma(one * two, tnc_linear_value<T>(t, head, j, e), sum);
        }
        value = sum * factor * (scale.kind == TN_ROW_SCALE_SUM ? R(1) : tnc_linear_row_scale(scale, head, t.Tq, row));
        if (raw) raw[at] = value;
        else tnc_linear_row<T>(t.out, t.H, head, row)[e] = tnc_from<T>(value);
    }
}

/* ---- the rows of the table */

/* Set `set` of a view [B,T,sets H,d]; size: bytes of a number */
static tnc_linear_set tnc_linear_view(const tn_view *v, int64_t H, int set, size_t size)
{
    tnc_linear_set s;
    s.p = v->data ? (char *)v->data + (size_t)(set * H * v->strides[2]) * size : NULL;
    s.batch = v->strides[0];
    s.row = v->strides[1];
    s.head = v->strides[2];
    return s;
}

/* [heads,T,pitch] */
static tnc_linear_set tnc_linear_packed(void *p, int64_t H, int64_t T, int64_t pitch)
{
    tnc_linear_set s;
    s.p = p;
    s.batch = H * T * pitch;
    s.row = pitch;
    s.head = T * pitch;
    return s;
}

template <typename R> static tnc_linear_scale<R> tnc_linear_scale_of(const tn_call *c, bool backward)
{
    tnc_linear_scale<R> r;
    r.kind = (int)c->f[2];
    r.causal = c->i[1] != 0;
    r.Tk = c->in[1].shape[1];
    r.ahead = r.Tk - c->in[0].shape[1];
    r.past = c->i[3];
    r.length = (R)c->f[1];
    r.stat = backward ? (const R *)c->in[4].data : NULL;
    return r;
}

/* The problem of a call: rows x are queries, or (back) keys. The vectors are set by the caller. */
static tnc_linear tnc_linear_of(const tn_call *c, bool back, bool tensor)
{
    const tn_view *Q = &c->in[0], *V = &c->in[2];
    tnc_linear     t;
    memset(&t, 0, sizeof t);
    t.H = V->shape[2];
    t.heads = V->shape[0] * t.H;
    t.w[0] = t.w[1] = Q->shape[3];
    t.w[2] = V->shape[3] + ((int)c->f[2] == TN_ROW_SCALE_SUM);
    t.causal = c->i[1] != 0;
    t.back = back;
    t.squared = c->i[0] == TN_ATTEND_SQUARED;
    t.x.T = Q->shape[1];
    t.y.T = V->shape[1];
    if (t.causal) {                                     /* the last query stands where the last key does */
        t.x.shift = t.y.T > t.x.T ? t.y.T - t.x.T : 0;
        t.y.shift = t.x.T > t.y.T ? t.x.T - t.y.T : 0;
    }
    t.length = t.x.T > t.y.T ? t.x.T : t.y.T;
    t.D = (int)t.w[0];
    t.NE = (int)t.w[2];
    t.chunk = t.D <= 16 ? 64 : t.D <= 32 ? 128 : t.D <= 64 ? 256 : 512;
    if (tensor) {
        t.D = t.D <= 16 ? 16 : t.D <= 32 ? 32 : t.D <= 64 ? 64 : 128;
        t.NE = t.NE <= 32 && t.D <= 32 ? 32 : t.NE <= 64 ? 64 : 128;                /* few values of wide heads: rare */
        t.chunk = t.D <= 32 ? 256 : t.D <= 64 ? 512 : 1024;                         /* pairs: a tenth of the work */
    }
    t.chunks = tnc_ceil(t.length, t.chunk);
    t.high = t.chunks;
    if (back) { const tnc_linear_side x = t.x; t.x = t.y; t.y = x; }
    if (c->kernel == TN_KERNEL_ATTENTION_LINEAR && c->out[2].data) return t;        /* given a state: all see it */
    if (t.y.T == 0) t.high = 0;
    else if (t.causal && back) t.high--;
    else if (t.causal) t.low = t.y.shift / t.chunk + 1;
    return t;
}

static bool tnc_linear_types(const tn_call *c, tn_dtype activations, tn_dtype real, bool backward)
{
    int i;
    for (i = 0; i < c->n_in; i++)
        if (c->in[i].data && c->in[i].dtype != (backward && i == 4 ? real : activations)) return false;
    for (i = 0; i < (backward ? 3 : 1); i++)
        if (c->out[i].data && c->out[i].dtype != activations) return false;
    for (i = 1; i < 3 && !backward; i++)
        if (c->out[i].data && c->out[i].dtype != real) return false;
    return true;
}

/* One of the six vectors of a call, as the kernels read it: in place, or packed. */
typedef struct tnc_linear_item {
    tnc_linear_set set;
    int64_t        T, width, pitch;
    int            mode;
    bool           pack;
    size_t         offset;
} tnc_linear_item;

/* Scratch for `fixed` bytes and the states. */
template <typename E> static char *tnc_linear_room(tnc *s, const tnc_linear *t, bool kept, size_t fixed, tnc_linear_group *g)
{
    const double state = (double)t->D * t->D * t->NE * (double)sizeof(double);
    size_t       room = TNC_LINEAR_ROOM;
    while (room > s->memory / 16) room /= 2;
    if (state * 64 > 9e18) {                                                        /* no such number of bytes */
        tnc_refuse(s, TN_ERR_MEMORY, "a state of %d x %d x %d numbers", t->D, t->D, t->NE);
        return NULL;
    }
    *g = tnc_linear_groups(t, room, kept, E());
    return (char *)tnc_scratch(s, fixed + g->bytes + 256);
}

static size_t tnc_linear_bytes(int64_t n, size_t size) { return ((size_t)n * size + 255) / 256 * 256; }

static bool tnc_linear_aligned(const tnc_linear_set &s, size_t bytes, size_t size)
{
    const int64_t numbers = (int64_t)(bytes / size);
    return (uintptr_t)s.p % bytes == 0 && s.batch % numbers == 0 && s.row % numbers == 0 && s.head % numbers == 0;
}

/* Forwards or backwards with activations T, and kernels that read E: BF16 for tensor cores, else T itself. */
template <typename T, typename E> static tn_status tnc_linear_run(tnc *s, const tn_call *c, bool backward)
{
    typedef typename tnc_real<T>::type R;
    const bool       tensor = (int)tnc_code<E>::dtype == TN_BF16, sums = (int)c->f[2] == TN_ROW_SCALE_SUM;
    const int64_t    dv = c->in[2].shape[3];
    tnc_linear       q = tnc_linear_of(c, false, tensor), k = tnc_linear_of(c, true, tensor);
    tnc_linear_item  items[6], *item;                   /* q1, q2, u, k1, k2, v */
    tnc_linear_pass<R> pass[3];
    tnc_linear_group g;
    size_t           fixed = sums && !backward ? tnc_linear_bytes(q.heads * q.x.T * q.w[2], sizeof(R)) : 0;
    char            *room;
    int              i, n, side;
    for (i = 0; i < 6; i++) {
        const tn_view *from = i % 3 < 2 ? &c->in[i / 3] : i == 2 ? &c->in[5] : &c->in[2];
        item = &items[i];
        memset(item, 0, sizeof *item);
        if (i == 2 && !backward) continue;
        item->set = tnc_linear_view(from, q.H, q.squared ? 0 : i % 3 % 2, sizeof(T));
        item->T = i < 3 ? q.x.T : q.y.T;
        item->width = i % 3 < 2 ? q.w[0] : dv;
        item->mode = i == 2 ? TNC_LINEAR_SLOPE : i == 5 && sums ? TNC_LINEAR_ONE : TNC_LINEAR_COPY;
        item->pitch = i % 3 < 2 ? q.w[0] : q.w[2];
        if (tensor) item->pitch = (item->pitch + 7) / 8 * 8;
        item->pack = item->mode != TNC_LINEAR_COPY || sizeof(T) != sizeof(E)
                     || (tensor && (item->pitch != item->width || !tnc_linear_aligned(item->set, 16, sizeof(E))));
        if (q.squared && i % 3 == 1) item->pack = false;                            /* it is the first */
        item->offset = fixed;
        if (item->pack) fixed += tnc_linear_bytes(q.heads * item->T * item->pitch, sizeof(E));
    }
    if (!(room = tnc_linear_room<E>(s, &q, c->out[2].data && !backward, fixed, &g))) return TN_ERR_MEMORY;
    for (i = 0; i < 6; i++) {
        item = &items[i];
        if (item->pack) {
            E *to = (E *)(room + item->offset);
            TNC_LAUNCH((tnc_linear_pack<T, E>), tnc_grid(s, q.heads * item->T, 8), 256, 0, s->stream, item->set,
                       tnc_linear_view(&c->in[3], q.H, 0, sizeof(T)), item->mode, tnc_linear_scale_of<R>(c, backward), q.H,
                       q.heads, item->T, item->width, item->pitch, to);
            item->set = tnc_linear_packed(to, q.H, item->T, item->pitch);
        }
        if (q.squared && i % 3 == 1) item->set = items[i - 1].set;
        q.wide[i % 3] = k.wide[i % 3] = (int)items[3 + i % 3].pitch;
        if (i < 3) q.x.set[i] = k.y.set[i] = item->set;
        else q.y.set[i - 3] = k.x.set[i - 3] = item->set;
    }
    for (side = 0; side < 1 + backward; side++) {                                   /* o; or dq, then dk and dv */
        memset(pass, 0, sizeof pass);
        for (n = 0, i = backward ? 0 : 2; i < (backward ? 2 + side : 3); i++) {
            const tn_view *out = &c->out[!backward ? 0 : i < 2 ? side : 2];
            tnc_linear_pass<R> *p = &pass[n];
            if (!out->data || (i == 1 && q.squared)) continue;
            p->out = tnc_linear_view(out, q.H, i % 2, sizeof(T));
            p->m = i;
            p->width = i < 2 ? q.w[i] : dv;
            p->add = backward;
            p->factor = (R)(c->f[0] * c->f[0] * (i < 2 && q.squared ? 2 : 1));
            p->f32 = (int)tnc_code<T>::dtype == TN_F32;
            if (!backward) {
                p->scaled = !sums;
                p->scale = tnc_linear_scale_of<R>(c, false);
                if (sums) {
                    p->out = tnc_linear_packed(room, q.H, q.x.T, q.w[2]);
                    p->width = q.w[2];
                    p->f32 = true;
                }
            }
            p->pairs = p->width % 2 == 0 && tnc_linear_aligned(p->out, p->f32 ? 8 : 4, p->f32 ? 4 : 2);
            n++;
        }
        if (n > 0)
            tnc_linear_sweep(s, side ? k : q, pass, n, g, (E *)(room + fixed), (R *)(backward ? NULL : c->out[2].data));
    }
    if (sums && !backward)
        TNC_LAUNCH((tnc_linear_divide<T>), tnc_grid(s, q.heads * q.x.T * q.w[2], 256), 256, 0, s->stream, (const R *)room,
                   q.H,
                   q.heads, q.x.T, q.w[2], (R)c->f[3], tnc_linear_view(&c->out[0], q.H, 0, sizeof(T)), (R *)c->out[1].data);
    return TN_OK;
}

template <typename T> static tn_status tnc_linear_decode(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const tnc_linear p = tnc_linear_of(c, false, false);
    tnc_linear_new   t;
    const bool       sums = (int)c->f[2] == TN_ROW_SCALE_SUM;
    const int64_t    parts = tnc_ceil(p.squared ? p.w[0] * (p.w[0] + 1) / 2 : p.w[0] * p.w[0], 64);
    const int64_t    numbers = p.heads * p.x.T * p.w[2];
    R               *part = (R *)tnc_scratch(s, (size_t)(parts + 1) * (size_t)numbers * sizeof(R));
    R               *raw = sums ? part + parts * numbers : NULL;
    int              i;
    if (!part) return TN_ERR_MEMORY;
    for (i = 0; i < 2; i++) {
        t.q[i] = tnc_linear_view(&c->in[0], p.H, p.squared ? 0 : i, sizeof(T));
        t.k[i] = tnc_linear_view(&c->in[1], p.H, p.squared ? 0 : i, sizeof(T));
    }
    t.v = tnc_linear_view(&c->in[2], p.H, 0, sizeof(T));
    t.out = tnc_linear_view(&c->out[0], p.H, 0, sizeof(T));
    t.H = p.H; t.Tq = p.x.T; t.Tk = p.y.T; t.d = p.w[0]; t.dv = c->in[2].shape[3]; t.n = p.w[2];
    t.squared = p.squared;
    t.causal = p.causal;
    TNC_LAUNCH((tnc_linear_step<T>), dim3((unsigned)parts, (unsigned)p.heads), 256, 0, s->stream, t, (R *)c->out[2].data,
               part);
    TNC_LAUNCH((tnc_linear_step_end<T>), tnc_grid(s, numbers, 256), 256, 0, s->stream, t, (const R *)part, parts, p.heads,
               (R)(c->f[0] * c->f[0]), tnc_linear_scale_of<R>(c, false), raw);
    if (sums)
        TNC_LAUNCH((tnc_linear_divide<T>), tnc_grid(s, numbers, 256), 256, 0, s->stream, (const R *)raw, t.H, p.heads, t.Tq,
                   t.n, (R)c->f[3], t.out, (R *)c->out[1].data);
    return TN_OK;
}

/* Tensor cores take d and n up to 128, in BF16; F32 where the context wants products in BF16. */
static tn_status tnc_linear_choose(tnc *s, const tn_call *c, bool backward)
{
    const tn_dtype   dtype = c->in[0].dtype, real = dtype == TN_F64 ? TN_F64 : TN_F32;
    const tnc_linear t = tnc_linear_of(c, false, true);
    const bool       tensor = t.w[0] <= 128 && t.w[2] <= 128 && tnc_linear_shared(t.D, 128, 64) <= s->shared_max;
    if (t.w[0] > INT32_MAX || t.w[2] > INT32_MAX || t.heads > UINT32_MAX)
        return tnc_refuse(s, TN_ERR_SHAPE, "%lld heads of %lld and %lld numbers: 2^32 - 1 of 2^31 - 1 are the most",
                          (long long)t.heads, (long long)t.w[0], (long long)t.w[2]);
    if (!tnc_linear_types(c, dtype, real, backward) || (dtype == TN_BF16 && !tensor)) return TN_ERR_DTYPE;
    if (t.heads * t.length * t.w[2] == 0 || (backward && t.x.T * t.y.T == 0)) return TN_OK;
    if (!backward && c->out[2].data && t.x.T <= TNC_LINEAR_FEW && t.y.T <= TNC_LINEAR_FEW && t.heads <= 65535
        && t.w[0] * t.w[1] <= INT32_MAX)
        TNC_TYPES(dtype, T, return tnc_linear_decode<T>(s, c))
    if (dtype == TN_BF16) return tnc_linear_run<tnc_bf16, tnc_bf16>(s, c, backward);
    if (dtype == TN_F64) return tnc_linear_run<double, double>(s, c, backward);
    if (tensor && s->precision == TN_GEMM_BF16) return tnc_linear_run<float, tnc_bf16>(s, c, backward);
    return tnc_linear_run<float, float>(s, c, backward);
}

static tn_status tnc_attention_linear(tnc *s, const tn_call *c) { return tnc_linear_choose(s, c, false); }
static tn_status tnc_attention_linear_backward(tnc *s, const tn_call *c) { return tnc_linear_choose(s, c, true); }

/* ---- argmax, accuracy --------------------------------------------------------------------------------------- >>op-argmax
   The first of the largest, a NaN being largest: of two numbers the better is decided alone by what and where they are, so
   any tree finds the same one. Accuracy counts rows in whole numbers. Floor: reads R C numbers */

template <typename R> static __device__ __forceinline__ bool tnc_better(R x, int64_t i, R y, int64_t j)
{
    if ((x != x) != (y != y)) return x != x;
    if (x == x && x != y) return x > y;
    return i < j;
}

template <typename T>
static __global__ void __launch_bounds__(TNC_THREADS)
tnc_argmax_kernel(const T *x, const int32_t *label, int32_t *to, int64_t rows, int64_t C, int lanes)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, value, [8]);
    TNC_SHARED(int64_t, place, [8]);
    const int each = TNC_THREADS / lanes, lane = tnc_lane(lanes), warp = (int)threadIdx.x >> 5;
    int       right = 0;
    int64_t   base;
    for (base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        const T      *from = x + row * C;
        int64_t best = 0, i;
        R       most = tnc_to(from[0]);
        int     k;
        TNC_UNROLL_BY(4)
        for (i = lane; i < C; i += lanes) {
            const R v = tnc_to(from[i]);
            if (tnc_better(v, i, most, best)) { most = v; best = i; }
        }
        for (k = lanes > 32 ? 16 : lanes >> 1; k; k >>= 1) {
            const R       v = __shfl_xor_sync(0xffffffffu, most, k);
            const int64_t j = __shfl_xor_sync(0xffffffffu, best, k);
            if (tnc_better(v, j, most, best)) { most = v; best = j; }
        }
        if (lanes > 32) {
            if ((threadIdx.x & 31) == 0) { value[warp] = most; place[warp] = best; }
            __syncthreads();
            for (k = 0; k < 8; k++) if (tnc_better(value[k], place[k], most, best)) { most = value[k]; best = place[k]; }
            __syncthreads();
        }
        if (lane > 0 || mine >= rows) continue;
        if (label) right += best == label[row];
        else to[row] = (int32_t)best;
    }
    if (!label) return;
    right = tnc_block_sum(right);
    if (threadIdx.x == 0) to[blockIdx.x] = right;
}

/* With labels: how often the rows of each block are right. */
template <typename T> static unsigned tnc_argmax_launch(tnc *s, const tn_view *x, const int32_t *label, int32_t *to)
{
    const int      lanes = x->shape[1] > 1024 ? TNC_THREADS : tnc_lanes(x->shape[1], 32);
    const unsigned blocks = tnc_grid(s, x->shape[0], TNC_THREADS / lanes);
    TNC_START((tnc_argmax_kernel<T>), blocks, (const T *)x->data, label, to, x->shape[0], x->shape[1], lanes);
    return blocks;
}

static tn_status tnc_argmax(tnc *s, const tn_call *c)
{
    if (c->in[0].shape[0] == 0) return TN_OK;
    TNC_TYPES(c->in[0].dtype, T, tnc_argmax_launch<T>(s, &c->in[0], NULL, (int32_t *)c->out[0].data));
    return TN_OK;
}

template <typename T> static tn_status tnc_accuracy_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    int32_t *right = (int32_t *)tnc_scratch(s, (size_t)s->sms * 16 * sizeof(int32_t));
    unsigned blocks;
    if (!tnc_has(&c->out[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (!right) return TN_ERR_MEMORY;
    blocks = tnc_argmax_launch<T>(s, &c->in[0], (const int32_t *)c->in[1].data, right);
    TNC_START((tnc_mean_kernel<int32_t, R>), 1, (const int32_t *)right, (int64_t)blocks, (double)c->in[0].shape[0],
              (R *)c->out[0].data);
    return TN_OK;
}

static tn_status tnc_accuracy(tnc *s, const tn_call *c)
{
    TNC_TYPES(c->in[0].dtype, T, return tnc_accuracy_of<T>(s, c))
}

/* ---- optimisers: calls that wait for each other -------------------------------------------------------------- >>op-optim
   The header calls once per parameter. Calls of one kind that follow each other wait in s->pending until another kind of
   call comes, or somebody looks (tnc_flush), and then run together: a block takes TNC_SHARE elements of whatever parameter
   it falls on. Waiting changes nothing that can be seen, since whoever touches device memory flushes first. */

enum { TNC_SHARE = 8192 };
enum { TNC_LR, TNC_STEP, TNC_SIZE, TNC_FACTOR, TNC_SKIP, TNC_NORM, TNC_MOMENTUM, TNC_TAKEN };        /* the scalars */

#define TNC_FINITE 1.7976931348623157e308

/* Which parameter does the block work on? */
static __device__ __forceinline__ int tnc_part_of(const tnc_pending &a, int64_t block)
{
    int low = 0, high = a.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (a.part[middle].first <= block) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* Of a block: elements [begin,end) of its parameter, whole packs up to `wide`. */
typedef struct tnc_range { int64_t begin, wide, end; } tnc_range;

static __device__ __forceinline__ tnc_range tnc_range_of(int64_t block, int64_t n, bool packs, int V)
{
    tnc_range r = { block * TNC_SHARE, block * TNC_SHARE, block * TNC_SHARE + TNC_SHARE };
    if (r.end > n) r.end = n;
    if (packs) r.wide = r.end - (r.end - r.begin) % V;
    return r;
}

/* Must those that are pending run first? Yes, too, where they have this parameter: its two steps follow each other. */
static bool tnc_pend_not(const tnc_pending *a, const tnc_pending *like, const void *parameter)
{
    int k;
    if (a->count == TNC_PENDING || (a->count > 0 && memcmp(a, like, offsetof(tnc_pending, count)) != 0)) return true;
    for (k = 0; k < a->count; k++)
        if (a->part[k].x[0] == parameter) return true;
    return false;
}

/* One more call for the pending ones. What they will want of scratch is asked for here, where an error has its own call. */
static tn_status tnc_pend(tnc *s, const tn_call *c, const char *name, const tn_view *const x[4], int64_t n,
                          const void *scalars, const void *fault)
{
    tnc_pending  *a = &s->pending, like;
    tnc_part     *part;
    const tn_dtype dtype = x[0]->dtype;
    tn_status     status;
    int           k;
    if (dtype != TN_F32 && dtype != TN_F64) return TN_ERR_DTYPE;
    for (k = 0; k < 4; k++) if (x[k] && !tnc_has(x[k], dtype)) return TN_ERR_DTYPE;
    memset(&like, 0, sizeof like);
    like.kernel = c->kernel;
    like.dtype = dtype;
    like.name = name;
    like.scalars = scalars;
    like.fault = fault;
    if (c->kernel == TN_KERNEL_ADAMW || c->kernel == TN_KERNEL_SGD) {
        memcpy(like.f, c->f, 3 * sizeof *c->f);
        like.f[3] = c->f[5];
    }
    if (tnc_pend_not(a, &like, x[0]->data) && (status = tnc_flush(s)) != TN_OK) return status;
    if (a->count == 0) memcpy(a, &like, offsetof(tnc_pending, count));
    part = &a->part[a->count];
    memset(part, 0, sizeof *part);
    part->wide = true;
    for (k = 0; k < 4; k++) {
        part->x[k] = x[k] ? x[k]->data : NULL;
        part->wide = part->wide && tnc_aligned(part->x[k]);
    }
    part->n = n;
    part->first = a->count ? part[-1].first + tnc_ceil(part[-1].n, TNC_SHARE) : 0;
    part->index = (int32_t)c->i[0];
    part->scale = c->f[0];
    part->decay = c->f[3];
    part->rate = c->f[4];
    if (part->first + tnc_ceil(n, TNC_SHARE) > INT32_MAX) return TN_ERR_SHAPE;
    if (c->kernel == TN_KERNEL_SUMSQ && !tnc_scratch(s, (size_t)(part->first + tnc_ceil(n, TNC_SHARE)) * sizeof(double)))
        return TN_ERR_MEMORY;
    a->count++;
    return TN_OK;
}
/* ---- sumsq --------------------------------------------------------------------------------------------------- >>op-optim
   In double, as few GPUs are too slow for: a square may have no float. Floor: reads every gradient */

/* The sum of squares of each block's elements. */
template <typename R>
static __global__ void __launch_bounds__(TNC_THREADS) tnc_squares_kernel(const __grid_constant__ tnc_pending a, double *sums)
{
    enum { V = tnc_wide<R>::count };
    const tnc_part &part = a.part[tnc_part_of(a, blockIdx.x)];
    const R        *g = (const R *)part.x[0];
    const tnc_range at = tnc_range_of(blockIdx.x - part.first, part.n, part.wide, V);
    double          sum = 0;
    int64_t         i;
    TNC_UNROLL_BY(4)
    for (i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V) {
        R v[V];
        tnc_load(v, g + i);
        TNC_EACH sum = fma((double)v[k], (double)v[k], sum);
    }
    for (i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS) sum = fma((double)g[i], (double)g[i], sum);
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* One block: a warp sums what the blocks of a parameter left, then one thread goes through the parameters in their order. */
template <typename R>
static __global__ void __launch_bounds__(1024)
tnc_squares_end_kernel(const __grid_constant__ tnc_pending a, const double *sums, int64_t blocks)
{
    TNC_SHARED(double, total, [TNC_PENDING]);
    R      *s = (R *)a.scalars;
    int64_t i;
    int     k;
    for (k = (int)threadIdx.x >> 5; k < a.count; k += 32) {
        const int64_t end = k + 1 < a.count ? a.part[k + 1].first : blocks;
        double        sum = 0;
        TNC_UNROLL_BY(4)
        for (i = a.part[k].first + (threadIdx.x & 31); i < end; i += 32) sum += sums[i];
        sum = tnc_warp_sum(sum);
        if ((threadIdx.x & 31) == 0) total[k] = sum;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (k = 0; k < a.count; k++) {
        s[TNC_SIZE] = (R)hypot((double)s[TNC_SIZE], sqrt(total[k]));
        if (!(total[k] <= TNC_FINITE)) tnc_not_finite((int32_t *)a.fault, a.part[k].index, (int32_t)s[TNC_TAKEN]);
    }
}

template <typename R> static tn_status tnc_sumsq_flush(tnc *s, const tnc_pending &a, int64_t blocks)
{
    double *sums = (double *)tnc_scratch(s, (size_t)blocks * sizeof *sums);
    if (!sums) return TN_ERR_MEMORY;
    if (blocks > 0) TNC_START((tnc_squares_kernel<R>), (unsigned)blocks, a, sums);
    TNC_LAUNCH((tnc_squares_end_kernel<R>), 1, 1024, 0, s->stream, a, (const double *)sums, blocks);
    return TN_OK;
}

static tn_status tnc_sumsq(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->in[0], NULL, NULL, NULL };
    return tnc_pend(s, c, "sumsq", x, c->in[0].shape[0], c->out[0].data, c->out[1].data);
}

/* ---- step_begin ---------------------------------------------------------------------------------------------- >>op-optim
   What the optimisers ask of a step, by one thread, from what sumsq left. Floor: a launch */

template <typename R> static __global__ void tnc_step_begin_kernel(R *s, int32_t *fault, double clip)
{
    const double norm = (double)s[TNC_SIZE];
    bool         skip;
    if (threadIdx.x > 0) return;
    if (!(norm <= TNC_FINITE)) tnc_not_finite(fault, -1, (int32_t)s[TNC_TAKEN]);    /* finite gradients, whose norm is not */
    skip = fault[0] != 0;
    s[TNC_NORM] = (R)norm;
    s[TNC_SKIP] = R(skip ? 1 : 0);
    s[TNC_FACTOR] = (R)(clip > 0 && norm > clip ? clip / norm : 1);
    s[TNC_STEP] = (R)((double)s[TNC_STEP] + (skip ? 0 : 1));
    s[TNC_SIZE] = 0;
}

static tn_status tnc_step_begin(tnc *s, const tn_call *c)
{
    int32_t *fault = (int32_t *)c->out[1].data;
    TNC_REALS(c->out[0].dtype, R,
        TNC_LAUNCH((tnc_step_begin_kernel<R>), 1, 32, 0, s->stream, (R *)c->out[0].data, fault, c->f[0]))
    return TN_OK;
}

/* ---- adamw, sgd, muon_end ------------------------------------------------------------------------------------ >>op-optim
   Floor: adamw reads and writes 4 arrays, sgd 3 (2 without momentum); muon_end reads 2 and writes 1 */

/* What a rule needs of the scalars and of its call; one thread finds it for its block. */
template <typename R> struct tnc_rule {
    R    keep1, take1, keep2, take2, unbias1, unbias2, eps, decay, down, factor, scale;
    bool skip, nesterov;
};

template <typename R> static __device__ void tnc_rule_of(tnc_rule<R> *r, const tnc_pending &a, const tnc_part &part)
{
    const R     *s = (const R *)a.scalars;
    const double t = (double)s[TNC_STEP] - a.f[3];
    r->skip = s[TNC_SKIP] != 0;
    r->keep1 = (R)a.f[0];
    r->take1 = (R)(1 - a.f[0]);
    r->keep2 = (R)a.f[1];
    r->take2 = (R)(1 - a.f[1]);
    r->nesterov = a.f[1] != 0;
    r->scale = (R)part.scale;
    r->eps = (R)a.f[2];
    r->decay = (R)part.decay;
    r->down = (R)(-(double)s[TNC_LR] * part.rate);
    r->factor = s[TNC_FACTOR];
    if (a.kernel != TN_KERNEL_ADAMW) return;
    r->unbias1 = (R)(1 / (1 - pow(a.f[0], t)));
    r->unbias2 = (R)(1 / (1 - pow(a.f[1], t)));
}

/* One element of each array, V of them. */
template <typename R, int V, int KERNEL>
static __device__ __forceinline__ void tnc_update(const tnc_rule<R> &r, const tnc_part &part, int64_t i)
{
    R  *p = (R *)part.x[0] + i, *g = (R *)part.x[1] + i, *m = NULL, *v = NULL;
    R   p_[V], g_[V], m_[V] = {}, v_[V] = {}, zero[V] = {};
    tnc_load(g_, g);
    tnc_load(p_, p);
    if (part.x[2]) m = (R *)part.x[2] + i;
    if (part.x[3]) v = (R *)part.x[3] + i;
    if (KERNEL == TN_KERNEL_ADAMW) {
        tnc_load(m_, m);
        tnc_load(v_, v);
        TNC_EACH {
            R d = g_[k] * r.factor;
            m_[k] = tnc_fma(r.take1, d, r.keep1 * m_[k]);
            v_[k] = tnc_fma(r.take2 * d, d, r.keep2 * v_[k]);
            d = m_[k] * r.unbias1 / (tnc_sqrt(v_[k] * r.unbias2) + r.eps);
            p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], d), p_[k]);
        }
        tnc_store(m, m_);
        tnc_store(v, v_);
    } else if (KERNEL == TN_KERNEL_SGD) {
        if (m) tnc_load(m_, m);
        TNC_EACH {
            const R d = g_[k] * r.factor;
            R       to = d;
            if (m) to = m_[k] = tnc_fma(r.keep1, m_[k], d);
            if (r.nesterov) to = tnc_fma(r.keep1, to, d);
            p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], to), p_[k]);
        }
        if (m) tnc_store(m, m_);
    } else {
        TNC_EACH p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], r.scale * g_[k]), p_[k]);
    }
    tnc_store(p, p_);
    if (KERNEL != TN_KERNEL_MUON_END) tnc_store(g, zero);
}

template <typename R, int KERNEL> static __global__ void __launch_bounds__(TNC_THREADS, sizeof(R) == 8 ? 2 : 4)
tnc_update_kernel(const __grid_constant__ tnc_pending a)
{
    enum { V = tnc_wide<R>::count };
    TNC_SHARED(tnc_rule<R>, shared, [1]);
    const int       which = tnc_part_of(a, blockIdx.x);
    const tnc_part &part = a.part[which];
    const tnc_range at = tnc_range_of(blockIdx.x - part.first, part.n, part.wide, V);
    const R         zero[V] = {};
    tnc_rule<R>     r;
    int64_t         i;
    if (threadIdx.x == 0) tnc_rule_of(&shared[0], a, part);
    __syncthreads();
    r = shared[0];
    if (r.skip) {
        if constexpr (KERNEL != TN_KERNEL_MUON_END) {
            R *g = (R *)part.x[1];
            for (i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V) tnc_store(g + i, zero);
            for (i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS) g[i] = 0;
        }
        return;
    }
    TNC_UNROLL_BY(2)
    for (i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V) tnc_update<R, V, KERNEL>(r, part, i);
    for (i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS) tnc_update<R, 1, KERNEL>(r, part, i);
}

static tn_status tnc_adamw(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->out[1], &c->out[2], &c->out[3] };
    return tnc_pend(s, c, "adamw", x, c->out[0].shape[0], c->in[0].data, NULL);
}

static tn_status tnc_sgd(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->out[1], c->n_out > 2 ? &c->out[2] : NULL, NULL };
    return tnc_pend(s, c, "sgd", x, c->out[0].shape[0], c->in[0].data, NULL);
}

static tn_status tnc_muon_end(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = { &c->out[0], &c->in[1], NULL, NULL };
    return tnc_pend(s, c, "muon_end", x, c->out[0].shape[0], c->in[0].data, NULL);
}

template <typename R> static tn_status tnc_flush_of(tnc *s, const tnc_pending &a)
{
    const tnc_part *last = &a.part[a.count - 1];
    const int64_t   blocks = last->first + tnc_ceil(last->n, TNC_SHARE);
    if (a.kernel == TN_KERNEL_SUMSQ) return tnc_sumsq_flush<R>(s, a, blocks);
    if (blocks == 0) return TN_OK;
    if (a.kernel == TN_KERNEL_ADAMW)
        TNC_START((tnc_update_kernel<R, TN_KERNEL_ADAMW>), (unsigned)blocks, a);
    else if (a.kernel == TN_KERNEL_SGD)
        TNC_START((tnc_update_kernel<R, TN_KERNEL_SGD>), (unsigned)blocks, a);
    else
        TNC_START((tnc_update_kernel<R, TN_KERNEL_MUON_END>), (unsigned)blocks, a);
    return TN_OK;
}

static tn_status tnc_flush(tnc *s)
{
    tnc_pending *a = &s->pending;
    tn_status    status = TN_ERR_BACKEND;
    cudaError_t  e;
    char         what[96];
    if (a->count == 0) return TN_OK;
    snprintf(what, sizeof what, "%s of %d parameters", a->name, a->count);
    e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (e == cudaSuccess) {
        status = a->dtype == TN_F64 ? tnc_flush_of<double>(s, *a) : tnc_flush_of<float>(s, *a);
        e = cudaGetLastError();
        if (e == cudaSuccess && s->wait) e = cudaStreamSynchronize(s->stream);
    }
    a->count = 0;
    return e == cudaSuccess ? status : tnc_fail(s, e, what);
}

/* ---- muon_begin ---------------------------------------------------------------------------------------------- >>op-optim
   The momentum and the unscaled x in a first pass, with the sum of squares of each block; the second divides x by its
   matrix's norm, which every block adds up for itself, in one order. Floor: reads 3 arrays and writes 4 */

template <typename R> struct tnc_muon {
    const R *scalars;
    R       *x, *g, *m;                     /* [batch,n] */
    double  *sums;                          /* [batch,blocks] */
    int64_t  n;
    unsigned blocks;                        /* of a matrix */
    double   momentum;
    bool     nesterov, wide;
};

template <typename R, int V>
static __device__ __forceinline__ double tnc_muon_move(const tnc_muon<R> &a, int64_t at, R keep, R take, R factor)
{
    R      g[V], m[V], x[V], zero[V] = {};
    double squares = 0;
    tnc_load(g, a.g + at);
    tnc_load(m, a.m + at);
    TNC_EACH {
        const R d = take * (g[k] * factor);
        m[k] = tnc_fma(keep, m[k], d);
        x[k] = a.nesterov ? tnc_fma(keep, m[k], d) : m[k];
        squares = fma((double)x[k], (double)x[k], squares);
    }
    tnc_store(a.m + at, m);
    tnc_store(a.x + at, x);
    tnc_store(a.g + at, zero);
    return squares;
}

/* A step that is skipped leaves the momentum and makes x zero: what comes next multiplies matrices and is not asked. */
template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_muon_begin_kernel(tnc_muon<R> a)
{
    enum { V = tnc_wide<R>::count };
    const int64_t   first = blockIdx.x / a.blocks * a.n;
    const tnc_range at = tnc_range_of(blockIdx.x % a.blocks, a.n, a.wide, V);
    const double    momentum = a.momentum < 0 ? (double)a.scalars[TNC_MOMENTUM] : a.momentum;
    const R         keep = (R)momentum, take = (R)(1 - momentum), factor = a.scalars[TNC_FACTOR];
    double          sum = 0;
    int64_t         i;
    if (a.scalars[TNC_SKIP] != 0) {
        for (i = at.begin + (int)threadIdx.x; i < at.end; i += TNC_THREADS) a.x[first + i] = a.g[first + i] = 0;
    } else {
        TNC_UNROLL_BY(2)
        for (i = at.begin + (int)threadIdx.x * V; i < at.wide; i += TNC_THREADS * V)
            sum += tnc_muon_move<R, V>(a, first + i, keep, take, factor);
        for (i = at.wide + (int)threadIdx.x; i < at.end; i += TNC_THREADS)
            sum += tnc_muon_move<R, 1>(a, first + i, keep, take, factor);
    }
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

template <typename R> static __global__ void __launch_bounds__(TNC_THREADS) tnc_muon_unit_kernel(tnc_muon<R> a)
{
    const int64_t   matrix = blockIdx.x / a.blocks;
    const tnc_range at = tnc_range_of(blockIdx.x % a.blocks, a.n, false, 1);
    R              *x = a.x + matrix * a.n;
    double          sum = 0;
    R               unit;
    int64_t         i;
    for (i = threadIdx.x; i < a.blocks; i += TNC_THREADS) sum += a.sums[matrix * a.blocks + i];
    sum = tnc_block_sum(sum);
    unit = sum > 1e-60 ? (R)(1 / sqrt(sum)) : R(0);             /* below 1e-30 there may be no such float */
    for (i = at.begin + (int)threadIdx.x; i < at.end; i += TNC_THREADS) x[i] *= unit;
}

template <typename R> static tn_status tnc_muon_begin_of(tnc *s, const tn_call *c)
{
    const int64_t batch = c->out[0].shape[0];
    tnc_muon<R>   a;
    int           k;
    for (k = 0; k < 3; k++) if (!tnc_has(&c->out[k], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    memset(&a, 0, sizeof a);
    a.scalars = (const R *)c->in[0].data;
    a.x = (R *)c->out[0].data;
    a.g = (R *)c->out[1].data;
    a.m = (R *)c->out[2].data;
    a.n = c->out[0].shape[1];
    if (batch == 0 || a.n == 0) return TN_OK;
    a.wide = tnc_aligned(a.x) && tnc_aligned(a.g) && tnc_aligned(a.m) && a.n % tnc_wide<R>::count == 0;
    a.momentum = c->f[0];
    a.nesterov = c->f[1] != 0;
    a.blocks = (unsigned)tnc_ceil(a.n, TNC_SHARE);
    if (batch > INT32_MAX / a.blocks) return TN_ERR_SHAPE;
    a.sums = (double *)tnc_scratch(s, (size_t)(batch * a.blocks) * sizeof *a.sums);
    if (!a.sums) return TN_ERR_MEMORY;
    TNC_START((tnc_muon_begin_kernel<R>), (unsigned)(batch * a.blocks), a);
    TNC_START((tnc_muon_unit_kernel<R>), (unsigned)(batch * a.blocks), a);
    return TN_OK;
}

static tn_status tnc_muon_begin(tnc *s, const tn_call *c)
{
    TNC_REALS(c->in[0].dtype, R, return tnc_muon_begin_of<R>(s, c))
}

/* ---- tick --------------------------------------------------------------------------------------------------- >>op-random
   The clock of the random numbers. Floor: a launch */

static __global__ void tnc_tick_kernel(uint32_t *clock, uint32_t by) { if (threadIdx.x == 0) *clock += by; }

static tn_status tnc_tick(tnc *s, const tn_call *c)
{
    TNC_LAUNCH(tnc_tick_kernel, 1, 32, 0, s->stream, (uint32_t *)c->out[0].data, (uint32_t)c->i[0]);
    return TN_OK;
}

/* ======================================================================
   >>table    the backend
   ====================================================================== */

extern "C" const tn_backend *tn_cuda_backend(void)
{
#define TNC_X(ENUM, name) tnc_entry<tnc_##name>(),
    static const tn_backend cuda = {
        TN_BACKEND_ABI, "cuda", false, true, true, tnc_open, tnc_close, tnc_alloc, tnc_release, tnc_upload, tnc_download,
        tnc_sync, tnc_capture_begin, tnc_capture_end, tnc_replay, tnc_graph_release, tnc_device, { TN_KERNELS(TNC_X) }
    };
#undef TNC_X
    return &cuda;
}
