/* tensornet_cuda.cu - the layers of tensornet.h on NVIDIA GPUs                                       C++17, CUDA 12 or later

   One file beside tensornet.h. Compile it, link it, name it:

       nvcc -O3 -c tensornet_cuda.cu                     (-arch=sm_90, or whatever GPU there is; sm_80 is the least)
       cc -c program.c && nvcc program.o tensornet_cuda.o -o program

       tn_desc d = {0};
       d.backend = tn_cuda_backend();
       tn_ctx_create(&ctx, &d, why);

   Where there is no GPU the context runs on the cpu backend and its log says why; desc.backend_required makes it an error.
   Products are cuBLAS's, which is opened at run time; where it is absent a kernel of this file does them.

   Environment, read when a context opens:
       TN_SYNC=1       waits after every kernel, so that an error names the very op
       TN_CUBLAS=0     products by this file's own kernels

   SECTIONS
       >>port      how CUDA is spelled, for nvcc and for the engine of tests/cuda_host that runs kernels on the CPU
       >>state     a context's stream, its cuBLAS, its first error          >>memory   alloc, copies, scratch
       >>device    what kernels share: conversions, sums over a warp and a block
       >>rows      one section for each row of the kernel table, in its order
       >>table     the backend                                                                                            */

#include "tensornet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ======================================================================
   >>port     how CUDA is spelled
   Launches, shared memory and assembly stand behind these names and nowhere else.
   ====================================================================== */

#ifdef TN_CUDA_HOST
#include "cuda_host.h"
#else
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>
#include <math.h>

#define TNC_LAUNCH(kernel, grid, block, shared, stream, ...) (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define TNC_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define TNC_SHARED_ALIGN(A, T, name, ...) __shared__ __align__(A) T name __VA_ARGS__
#define TNC_DYN_SHARED(T, name) \
    extern __shared__ __align__(16) unsigned char tnc_dynamic[]; \
    T *name = reinterpret_cast<T *>(tnc_dynamic)
#define TNC_CONSTANT __constant__

/* 16 bytes from global to shared memory, behind the back of the registers. Both addresses are multiples of 16. */
static __device__ __forceinline__ void tnc_cp_async16(void *shared, const void *global)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" :: "r"(s), "l"(global) : "memory");
}

static __device__ __forceinline__ void tnc_cp_async_commit(void) { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

/* Until at most N of this thread's groups are under way. */
template <int N> static __device__ __forceinline__ void tnc_cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;\n" :: "n"(N) : "memory");
}

/* Four 8 x 8 matrices of 16-bit numbers: lane l gives the address of row l % 8 of matrix l / 8, and gets of matrix i, in
   r[i], the two numbers at row l / 4, columns 2 (l % 4) and the next; _trans: of its transpose. */
static __device__ __forceinline__ void tnc_ldmatrix_x4(unsigned r[4], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s) : "memory");
}

static __device__ __forceinline__ void tnc_ldmatrix_x4_trans(unsigned r[4], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s) : "memory");
}

/* d[16,8] += a[16,16] b[16,8], sums in F32. Of lane l, with g = l / 4 and t = 2 (l % 4): d is (g, t), (g, t+1), (g+8, t),
   (g+8, t+1); a holds the pairs at (g, t), (g+8, t), (g, t+8), (g+8, t+8); b the pairs down the column at (t, g), (t+8, g). */
static __device__ __forceinline__ void tnc_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
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
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, cudaDataType, int, long long, const void *, cudaDataType, int, long long, const void *,
                           void *, cudaDataType, int, long long, int, cublasComputeType_t, cublasGemmAlgo_t);
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

typedef struct tnc_kept { struct tnc_kept *next; void *p; } tnc_kept;

typedef struct tnc {
    tn_allocator      allocator;
    int               device, sms, capability;      /* capability: 80, 90: the GPU's sm_ number               */
    size_t            shared_max;                   /* dynamic shared memory that a kernel may ask for        */
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
    tnc_kept         *kept;                         /* scratch of before, for graphs that have it in mind     */
    int               graphs;                       /* that are alive                                         */
    bool              wait;                         /* TN_SYNC=1                                              */
    bool              lost;                         /* after a kernel's fault nothing on the device works     */
    char              why[256];                     /* the first error                                        */
} tnc;

typedef tn_status tnc_row(tnc *s, const tn_call *call);

/* Runs what is pending. Whatever touches device memory, or the stream, from outside calls it first. */
static tn_status tnc_flush(tnc *s);

/* Keeps the first error. One that outlives the call - a fault of a kernel - ends the context: CUDA then answers every call with it. */
static tn_status tnc_fail(tnc *s, cudaError_t e, const char *what)
{
    cudaError_t sticky;
    if (e == cudaSuccess) return TN_OK;
    (void)cudaGetLastError();
    sticky = cudaPeekAtLastError();
    if (!s->why[0]) snprintf(s->why, sizeof s->why, "%s: %s", what, cudaGetErrorString(e));
    if (sticky != cudaSuccess || cudaStreamQuery(s->stream) == e) s->lost = true;
    return e == cudaErrorMemoryAllocation ? TN_ERR_MEMORY : TN_ERR_BACKEND;
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

/* What every row of the table goes through: the right device, and the first error with its op and shapes. */
template <tnc_row *row> static tn_status tnc_run(void *state, const tn_call *call)
{
    tnc        *s = (tnc *)state;
    cudaError_t e = cudaSuccess;
    char        what[200];
    tn_status   status;
    if (s->lost) return TN_ERR_BACKEND;
    if (cudaSetDevice(s->device) != cudaSuccess) return tnc_fail(s, cudaGetLastError(), "cudaSetDevice");
    if (s->pending.count > 0 && s->pending.kernel != call->kernel && (status = tnc_flush(s)) != TN_OK) return status;
    status = row(s, call);
    if (s->wait && status == TN_OK) status = tnc_flush(s);
    e = cudaGetLastError();
    if (e == cudaSuccess && s->wait && status == TN_OK) e = cudaStreamSynchronize(s->stream);
    if (e == cudaSuccess) return status;
    tnc_describe(what, sizeof what, call);
    return tnc_fail(s, e, what);
}

template <tnc_row *row> static constexpr tn_kernel_fn tnc_entry(void)
{
    if constexpr (row == nullptr) return nullptr;
    else return tnc_run<row>;
}

/* ---- cuBLAS ----------------------------------------------------------------------------------------------------------- */

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
static void *tnc_library_open(void) { return dlopen("libcublas.so." TNC_TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL); }
static void  tnc_library_close(void *library) { dlclose(library); }
#endif

static void tnc_blas_close(tnc_blas *b)
{
    if (b->handle) b->destroy(b->handle);
    if (b->library) tnc_library_close(b->library);
    memset(b, 0, sizeof *b);
}

/* Without it the context computes with the kernels of this file. */
static void tnc_blas_open(tnc *s)
{
    tnc_blas   *b = &s->blas;
    const char *wanted = getenv("TN_CUBLAS");
    if ((wanted && strcmp(wanted, "0") == 0) || !(b->library = tnc_library_open())) return;
    *(void **)&b->create = TNC_FIND(cublasCreate);
    *(void **)&b->destroy = TNC_FIND(cublasDestroy);
    *(void **)&b->set_stream = TNC_FIND(cublasSetStream);
    *(void **)&b->set_workspace = TNC_FIND(cublasSetWorkspace);
    *(void **)&b->gemm = TNC_FIND(cublasGemmStridedBatchedEx);
    if (b->create && b->destroy && b->set_stream && b->set_workspace && b->gemm
        && b->create(&b->handle) == CUBLAS_STATUS_SUCCESS && b->set_stream(b->handle, s->stream) == CUBLAS_STATUS_SUCCESS
        && cudaMalloc(&s->blas_room, TNC_BLAS_ROOM) == cudaSuccess
        && b->set_workspace(b->handle, s->blas_room, TNC_BLAS_ROOM) == CUBLAS_STATUS_SUCCESS) return;
    (void)cudaGetLastError();
    tnc_blas_close(b);
}

/* ---- open and close --------------------------------------------------------------------------------------------------- */

static void tnc_kept_free(tnc *s)
{
    while (s->kept) {
        tnc_kept *k = s->kept;
        s->kept = k->next;
        cudaFree(k->p);
        s->allocator.release(k, sizeof *k, s->allocator.user);
    }
}

static void tnc_close(void *state)
{
    tnc *s = (tnc *)state;
    int  i;
    if (cudaSetDevice(s->device) == cudaSuccess) {
        if (s->stream) cudaStreamSynchronize(s->stream);
        tnc_blas_close(&s->blas);
        cudaFree(s->blas_room);
        cudaFree(s->scratch);
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
static cudaError_t tnc_choose(tnc *s, int device, char why[256])
{
    int                   devices = 0, driver = 0, runtime = 0, major = 0, minor = 0;
    cudaFuncAttributes    attributes;
    cudaError_t           e = cudaGetDeviceCount(&devices);
    if (e == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        snprintf(why, 256, "the driver is for CUDA %d.%d, this program needs %d.%d", driver / 1000, driver % 1000 / 10,
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
    s->device = device;
    if ((e = cudaSetDevice(device)) != cudaSuccess) {
        snprintf(why, 256, "GPU %d: %s", device, cudaGetErrorString(e));
        return e;
    }
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    s->capability = 10 * major + minor;
    e = s->capability < 80 ? cudaErrorNoKernelImageForDevice : cudaFuncGetAttributes(&attributes, tnc_nothing);
    if (e != cudaSuccess) snprintf(why, 256, "GPU %d is sm_%d, this program has no kernels for it", device, s->capability);
    return e;
}

static tn_status tnc_open(const tn_desc *desc, void **state, char why[256])
{
    tnc        *s = (tnc *)desc->allocator.alloc(sizeof *s, desc->allocator.user);
    const char *wait = getenv("TN_SYNC");
    cudaError_t e;
    int         i, shared = 0;
    if (!s) {
        snprintf(why, 256, "no memory for %zu bytes of state", sizeof *s);
        return TN_ERR_MEMORY;
    }
    memset(s, 0, sizeof *s);
    s->allocator = desc->allocator;
    s->precision = desc->gemm_precision;
    s->wait = wait && strcmp(wait, "0") != 0;
    if ((e = tnc_choose(s, desc->device, why)) == cudaSuccess) {
        cudaDeviceGetAttribute(&s->sms, cudaDevAttrMultiProcessorCount, s->device);
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, s->device);
        s->shared_max = (size_t)shared;
        e = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
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
    tnc_blas_open(s);
    *state = s;
    return TN_OK;
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
    (void)bytes;
    (void)tnc_flush((tnc *)state);
    if (cudaSetDevice(((tnc *)state)->device) == cudaSuccess) cudaFree(p);      /* waits for what still uses it */
    (void)cudaGetLastError();
}

/* Through pinned memory: the host goes on as soon as its bytes are there. */
static tn_status tnc_upload(void *state, void *to, const void *from, size_t bytes)
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_flush(s);
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
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
    tn_status   status = tnc_flush(s);
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (status != TN_OK) return status;
    if (e == cudaSuccess && bytes > 0) e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
    return tnc_fail(s, e, "download");
}

static tn_status tnc_sync(void *state, char why[256])
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_flush(s);
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
    if (status == TN_OK) status = tnc_fail(s, e, "a kernel since the last sync (TN_SYNC=1 names it)");
    if (status == TN_OK) return TN_OK;
    memcpy(why, s->why, sizeof s->why);
    if (!s->lost) s->why[0] = 0;
    return status;
}

/* Device memory that is the calling row's until it returns: what it launches comes before the next row's. NULL: none left, or it
   would have to grow while a graph is captured. */
static void *tnc_scratch(tnc *s, size_t bytes)
{
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    void *p = NULL;
    if (bytes <= s->scratch_bytes) return s->scratch;
    if (cudaStreamIsCapturing(s->stream, &capture) != cudaSuccess || capture != cudaStreamCaptureStatusNone) return NULL;
    bytes += bytes / 4;
    if (s->graphs > 0 && s->scratch) {
        tnc_kept *k = (tnc_kept *)s->allocator.alloc(sizeof *k, s->allocator.user);
        if (!k) return NULL;
        k->p = s->scratch;
        k->next = s->kept;
        s->kept = k;
    } else cudaFree(s->scratch);                                /* waits for what still uses it */
    s->scratch = NULL;
    s->scratch_bytes = 0;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    s->scratch = (char *)p;
    s->scratch_bytes = bytes;
    return p;
}

/* ---- graphs: what the stream would do, noted and instantiated once ---------------------------------------------------- */

static tn_status tnc_capture_begin(void *state, char why[256])
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_flush(s);
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (status != TN_OK) {
        snprintf(why, 256, "capture: %.240s", s->why[0] ? s->why : tn_status_name(status));
        return status;
    }
    if (s->wait) {
        snprintf(why, 256, "TN_SYNC=1 waits after every kernel, which no capture can");
        return TN_ERR_BACKEND;
    }
    if (e == cudaSuccess) e = cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess) snprintf(why, 256, "capture: %s", cudaGetErrorString(e));
    return e == cudaSuccess ? TN_OK : tnc_fail(s, e, "capture");
}

static tn_status tnc_capture_end(void *state, void **out, char why[256])
{
    tnc            *s = (tnc *)state;
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t run = NULL;
    tn_status       status = tnc_flush(s);
    cudaError_t     e = cudaStreamEndCapture(s->stream, &graph);
    if (status != TN_OK) {
        if (graph) cudaGraphDestroy(graph);
        snprintf(why, 256, "capture: %.240s", s->why[0] ? s->why : tn_status_name(status));
        return status;
    }
    if (e == cudaSuccess) e = cudaGraphInstantiate(&run, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (e != cudaSuccess) {
        snprintf(why, 256, "capture: %s", cudaGetErrorString(e));
        return tnc_fail(s, e, "capture");
    }
    s->graphs++;
    *out = run;
    return TN_OK;
}

static tn_status tnc_replay(void *state, void *graph)
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_flush(s);
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (status != TN_OK) return status;
    if (e == cudaSuccess) e = cudaGraphLaunch((cudaGraphExec_t)graph, s->stream);
    return tnc_fail(s, e, "replay");
}

static void tnc_graph_release(void *state, void *graph)
{
    tnc *s = (tnc *)state;
    if (cudaSetDevice(s->device) == cudaSuccess) cudaGraphExecDestroy((cudaGraphExec_t)graph);
    (void)cudaGetLastError();
    if (--s->graphs == 0) {
        cudaStreamSynchronize(s->stream);
        tnc_kept_free(s);
    }
}

/* ======================================================================
   >>device   what kernels share
   ====================================================================== */

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

static __device__ __forceinline__ float    tnc_to(float x) { return x; }
static __device__ __forceinline__ double   tnc_to(double x) { return x; }
static __device__ __forceinline__ float    tnc_to(tnc_bf16 x) { return __bfloat162float(x); }
template <typename T> static __device__ __forceinline__ T tnc_from(typename tnc_real<T>::type x) { return T(x); }
template <> __device__ __forceinline__ tnc_bf16 tnc_from<tnc_bf16>(float x) { return __float2bfloat16(x); }

/* The sum over a warp, in every lane; the same tree each time. */
template <typename R> static __device__ __forceinline__ R tnc_warp_sum(R x)
{
    int k;
    for (k = 16; k; k >>= 1) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

/* The sum over a block of whole warps, in every thread. */
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

static inline int64_t tnc_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Blocks for n pieces of work of a kernel that loops over the rest. */
static inline unsigned tnc_grid(const tnc *s, int64_t n, int64_t each)
{
    int64_t blocks = tnc_ceil(n, each), most = (int64_t)s->sms * 16;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* ======================================================================
   >>rows     the kernel table, row by row
   ====================================================================== */

/* ---- rows of numbers: what norms, softmax, embeddings and the optimisers share ----------------------------------------
   A piece is what travels at once: 16 bytes where rows begin at multiples of 16, else one element. A row belongs to `lanes`
   threads: a power of two up to a warp - then a block of 256 has several rows - or the whole block. Which, is a rule of the
   shape alone. */

template <typename T, int V> struct tnc_piece { typedef uint4 type; };
template <typename T> struct tnc_piece<T, 1> { typedef T type; };

template <typename T> struct tnc_wide { enum { count = 16 / sizeof(T) }; };      /* elements of a piece */

template <typename T, int V> static __device__ __forceinline__ typename tnc_piece<T, V>::type tnc_fetch(const T *from)
{
    return *reinterpret_cast<const typename tnc_piece<T, V>::type *>(from);
}

template <typename T, int V, typename R>
static __device__ __forceinline__ void tnc_unpack(R (&to)[V], const typename tnc_piece<T, V>::type &piece)
{
    T   part[V];
    int k;
    memcpy(part, &piece, sizeof part);
#pragma unroll
    for (k = 0; k < V; k++) to[k] = tnc_to(part[k]);
}

/* V numbers, in as many pieces as they take: parameters may be wider than the activations they stand beside. */
template <typename T, int V, typename R> static __device__ __forceinline__ void tnc_load(R (&to)[V], const T *from)
{
    enum { N = V * sizeof(T) >= 16 ? tnc_wide<T>::count : 1 };
    int i, k;
#pragma unroll
    for (i = 0; i < V; i += N) {
        R some[N];
        tnc_unpack<T, N>(some, tnc_fetch<T, N>(from + i));
#pragma unroll
        for (k = 0; k < N; k++) to[i + k] = some[k];
    }
}

template <typename T, int V, typename R> static __device__ __forceinline__ void tnc_store(T *to, const R (&from)[V])
{
    enum { N = V * sizeof(T) >= 16 ? tnc_wide<T>::count : 1 };
    int i, k;
#pragma unroll
    for (i = 0; i < V; i += N) {
        typename tnc_piece<T, N>::type piece;
        T some[N];
#pragma unroll
        for (k = 0; k < N; k++) some[k] = tnc_from<T>(from[i + k]);
        memcpy(&piece, some, sizeof some);
        *reinterpret_cast<typename tnc_piece<T, N>::type *>(to + i) = piece;
    }
}

static inline bool tnc_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* An operand that is absent fits every type. */
static inline bool tnc_has(const tn_view *v, int dtype) { return !v->data || (int)v->dtype == dtype; }

static inline int tnc_bound(int64_t x, int low, int high) { return x < low ? low : x > high ? high : (int)x; }

static __device__ __forceinline__ float  tnc_fma(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ __forceinline__ double tnc_fma(double a, double b, double c) { return fma(a, b, c); }
static __device__ __forceinline__ float  tnc_sqrt(float x) { return sqrtf(x); }
static __device__ __forceinline__ double tnc_sqrt(double x) { return sqrt(x); }
static __device__ __forceinline__ float  tnc_abs(float x) { return fabsf(x); }
static __device__ __forceinline__ double tnc_abs(double x) { return fabs(x); }
static __device__ __forceinline__ float  tnc_exp(float x) { return __expf(x); }          /* to 2e-6 of what softmax has */
static __device__ __forceinline__ double tnc_exp(double x) { return exp(x); }
static __device__ __forceinline__ float  tnc_log(float x) { return logf(x); }
static __device__ __forceinline__ double tnc_log(double x) { return log(x); }

/* Lanes of a warp that a row of so many pieces keeps busy. */
static inline int tnc_lanes(int64_t pieces)
{
    int lanes = 1;
    while (lanes < 32 && lanes < pieces) lanes *= 2;
    return lanes;
}

struct tnc_rows { int lanes, threads; };

/* held: how many pieces a thread can keep; most: threads of the largest block. */
static inline tnc_rows tnc_rows_of(int64_t pieces, int held, int most)
{
    tnc_rows r = {tnc_lanes(pieces), 256};
    if (pieces > 32 * held) r.lanes = r.threads = 32 * tnc_bound(tnc_ceil(pieces, held * 32), 2, most / 32);
    return r;
}

/* The largest number of a row; a NaN is passed over. */
template <typename R> static __device__ __forceinline__ R tnc_larger(R a, R b) { return a > b || b != b ? a : b; }

/* Sums and largest numbers over the lanes of a row, in each of them. Every thread of the block comes here. */
template <typename R> static __device__ __forceinline__ R tnc_row_sum(R x, int lanes)
{
    int k;
    if (lanes > 32) return tnc_block_sum(x);
    for (k = lanes >> 1; k; k >>= 1) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
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

/* A bad id or label at `row`: the first of a call is the one that is kept, so who has it looks whether there is one before. */
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

/* to[C] += the sum over `parts` rows of part[parts,C]: eight threads a column, in a fixed order. */
template <typename R> __global__ void __launch_bounds__(256) tnc_add_parts_kernel(const R *part, int64_t parts, int64_t C, R *to)
{
    TNC_SHARED(R, sums, [8][33]);
    const int     column = (int)threadIdx.x & 31, lane = (int)threadIdx.x >> 5;
    const int64_t c = (int64_t)blockIdx.x * 32 + column;
    int64_t i;
    R       sum = 0;
    int     k;
#pragma unroll 4
    for (i = lane; c < C && i < parts; i += 8) sum += part[i * C + c];
    sums[lane][column] = sum;
    __syncthreads();
    if (lane > 0 || c >= C) return;
    for (sum = 0, k = 0; k < 8; k++) sum += sums[k][column];
    to[c] += sum;
}

template <typename R> static void tnc_add_parts(tnc *s, const R *part, int64_t parts, int64_t C, R *to)
{
    TNC_LAUNCH((tnc_add_parts_kernel<R>), (unsigned)tnc_ceil(C, 32), 256, 0, s->stream, part, parts, C, to);
}

/* ---- embed -------------------------------------------------------------------------------------------------------------
   y[r] = table[ids[r]], one row of the table after the other in pieces.    floor: reads and writes R d numbers */
template <typename T, int V>
__global__ void __launch_bounds__(256) tnc_embed_kernel(const typename tnc_real<T>::type *table, const int32_t *ids, T *y, int32_t *fault,
                                                        int64_t rows, int64_t d, int64_t words, int lanes)
{
    typedef typename tnc_real<T>::type R;
    const int64_t n = d / V, step = (int64_t)gridDim.x * (256 / lanes);
    const int     lane = (int)threadIdx.x & (lanes - 1);
    int64_t row, i;
    for (row = (int64_t)blockIdx.x * (256 / lanes) + (int)threadIdx.x / lanes; row < rows; row += step) {
        const int32_t id = ids[row];
        const bool    good = id >= 0 && id < words;
        const R      *from = table + (good ? id : 0) * d;
        T            *to = y + row * d;
#pragma unroll 4
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
    const int     lanes = tnc_lanes(d / V);
    TNC_LAUNCH((tnc_embed_kernel<T, V>), tnc_grid(s, rows, 256 / lanes), 256, 0, s->stream,
               (const R *)c->in[0].data, (const int32_t *)c->in[1].data, (T *)c->out[0].data, (int32_t *)c->out[1].data, rows, d,
               c->in[0].shape[0], lanes);
}

template <typename T> static tn_status tnc_embed_of(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    enum { V = tnc_wide<T>::count };
    if (!tnc_has(&c->in[0], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    if (c->out[0].shape[0] == 0) return TN_OK;
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->out[0].data)) tnc_embed_launch<T, V>(s, c);
    else tnc_embed_launch<T, 1>(s, c);
    return TN_OK;
}

static tn_status tnc_embed(tnc *s, const tn_call *c)
{
    tn_status status;
    TNC_TYPES(c->out[0].dtype, T, status = tnc_embed_of<T>(s, c));
    return status;
}

/* ---- embed_backward -----------------------------------------------------------------------------------------------------
   dtable[id] += the sum of dy[r] over ids[r] = id, in an order that is the same on every run: positions are sorted by id, equal
   ids by position (a stable radix sort of 8 bits a pass, whose counters are integers), then cut into tiles of as many each. A
   tile sums its runs of equal ids; a run that crosses tiles leaves a share in each, and they are added from the left.
   floor: reads R d numbers, reads and writes the rows of dtable that occur */
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

__global__ void __launch_bounds__(TNC_SORT_THREADS) tnc_sort_count_kernel(tnc_sort s)
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
#pragma unroll 8
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

/* A warp ranks its 32 digits among each other by ballots, the block ranks its warps. Counts the digits of the next pass on the
   way, for the chunks that will hold them. */
__global__ void __launch_bounds__(TNC_SORT_THREADS) tnc_sort_kernel(tnc_sort s)
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
#pragma unroll
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
static __device__ __forceinline__ bool tnc_run_on(const tnc_runs &r, int64_t i) { return i + 1 < r.n && r.key[i] == r.key[i + 1]; }

/* What a thread of both kernels stands for: a tile, and a piece of the columns. */
template <int V> static __device__ __forceinline__ bool tnc_runs_place(const tnc_runs &r, int64_t *tile, int64_t *column)
{
    *tile = (int64_t)blockIdx.x * ((int)blockDim.x / r.lanes) + (int)threadIdx.x / r.lanes;
    *column = ((int64_t)blockIdx.y * r.lanes + (int)threadIdx.x % r.lanes) * V;
    return *tile < r.tiles && *column < r.d;
}

template <int V, typename T, typename R> static __device__ __forceinline__ void tnc_add_to(T *to, const R (&x)[V])
{
    R   old[V];
    int k;
    tnc_load(old, to);
#pragma unroll
    for (k = 0; k < V; k++) old[k] += x[k];
    tnc_store(to, old);
}

/* share[tiles,2,d]: what a tile has of the run that comes in from the left; of the one that goes out and began here. */
template <typename T, int V>
__global__ void __launch_bounds__(128) tnc_runs_kernel(tnc_runs r, const T *dy, typename tnc_real<T>::type *table,
                                                       typename tnc_real<T>::type *share)
{
    typedef typename tnc_real<T>::type R;
    enum { AHEAD = 8 };
    int64_t tile, column, i, begin, end;
    R       sum[V] = {};
    bool    from_left;
    int     j, k;
    if (!tnc_runs_place<V>(r, &tile, &column)) return;
    begin = tile * r.tile;
    end = begin + r.tile < r.n ? begin + r.tile : r.n;
    from_left = begin > 0 && tnc_run_on(r, begin - 1);
    for (i = begin; i < end; i += AHEAD) {
        typename tnc_piece<T, V>::type piece[AHEAD];
#pragma unroll
        for (j = 0; j < AHEAD; j++) {
            const int64_t at = i + j < end ? i + j : end - 1;
            piece[j] = tnc_fetch<T, V>(dy + (int64_t)r.row[at] * r.d + column);
        }
#pragma unroll
        for (j = 0; j < AHEAD; j++) {
            R v[V];
            if (i + j >= end || r.key[i + j] >= r.words) break;
            tnc_unpack<T, V>(v, piece[j]);
#pragma unroll
            for (k = 0; k < V; k++) sum[k] += v[k];
            if (i + j + 1 < end && tnc_run_on(r, i + j)) continue;
            if (from_left) tnc_store(share + 2 * tile * r.d + column, sum);
            else if (tnc_run_on(r, i + j)) tnc_store(share + (2 * tile + 1) * r.d + column, sum);
            else tnc_add_to<V>(table + (int64_t)r.key[i + j] * r.d + column, sum);
            from_left = false;
#pragma unroll
            for (k = 0; k < V; k++) sum[k] = 0;
        }
    }
}

/* A tile from which a run goes out that began in it adds up the shares. */
template <typename R, int V> __global__ void __launch_bounds__(128) tnc_runs_join_kernel(tnc_runs r, R *table, const R *share)
{
    int64_t  tile, column, last, step, i;
    uint32_t key;
    R        sum[V];
    int      k;
    if (!tnc_runs_place<V>(r, &tile, &column) || tile + 1 >= r.tiles) return;
    last = (tile + 1) * r.tile - 1;
    key = r.key[last];
    if (key >= r.words || !tnc_run_on(r, last)) return;
    if (tile > 0 && r.key[tile * r.tile - 1] == key) return;                    /* began further left */
    for (last = tile + 1, step = 1; last + step < r.tiles && r.key[(last + step) * r.tile] == key; step *= 2) last += step;
    for (; step; step /= 2) if (last + step < r.tiles && r.key[(last + step) * r.tile] == key) last += step;
    tnc_load(sum, share + (2 * tile + 1) * r.d + column);
#pragma unroll 4
    for (i = tile + 1; i <= last; i++) {
        R v[V];
        tnc_load(v, share + 2 * i * r.d + column);
#pragma unroll
        for (k = 0; k < V; k++) sum[k] += v[k];
    }
    tnc_add_to<V>(table + (int64_t)key * r.d + column, sum);
}

template <typename T, int V> static void tnc_runs_launch(tnc *s, const tn_call *c, tnc_runs r, void *share)
{
    typedef typename tnc_real<T>::type R;
    const int64_t pieces = r.d / V;
    dim3          grid;
    for (r.lanes = 1; r.lanes < 128 && r.lanes < pieces; r.lanes *= 2) {}
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
    status = tnc_sort_ids(s, (const int32_t *)c->in[0].data, r.n, r.words, (size_t)(2 * r.tiles * r.d) * sizeof(R), &r, &share);
    if (status != TN_OK) return status;
    if (r.d % V == 0 && tnc_aligned(c->in[1].data) && tnc_aligned(c->out[0].data)) tnc_runs_launch<T, V>(s, c, r, share);
    else tnc_runs_launch<T, 1>(s, c, r, share);
    return TN_OK;
}

static tn_status tnc_embed_backward(tnc *s, const tn_call *c)
{
    tn_status status;
    TNC_TYPES(c->in[1].dtype, T, status = tnc_embed_backward_of<T>(s, c));
    return status;
}

/* ---- rmsnorm, layernorm ---------------------------------------------------------------------------------------------------
   A row is read once and waits in registers (what does not fit there is read again): its mean, and the mean that rounding left,
   if it is centred; its mean square; then y.    floor: reads and writes R C numbers
   The largest and the smallest numbers have squares that no float has: such a row takes its sum in double. */
template <typename T, int V, bool CENTRED>
__global__ void __launch_bounds__(256) tnc_norm_kernel(const T *x, const typename tnc_real<T>::type *w,
                                                       const typename tnc_real<T>::type *b, T *y, typename tnc_real<T>::type *r,
                                                       int64_t rows, int C, double eps, int lanes)
{
    typedef typename tnc_real<T>::type R;
    enum { HELD = 4 };
    const int     lane = (int)threadIdx.x & (lanes > 32 ? 1023 : lanes - 1), each = (int)blockDim.x / lanes;
    const int     n = C / V;
    const double  whole = 1.0 / C;
    const R       part = (R)whole;
    int64_t       base;
    for (base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        const T      *from = x + row * C;
        typename tnc_piece<T, V>::type held[HELD];
        R    mean = 0, rest = 0, sum = 0, scale;
        int  k;
        auto pieces = [&](auto use) {
            int i, j;
#pragma unroll
            for (j = 0; j < HELD; j++) {
                R v[V];
                if (lane + j * lanes >= n) break;
                tnc_unpack<T, V>(v, held[j]);
                use(v, lane + j * lanes);
            }
            for (i = lane + HELD * lanes; i < n; i += lanes) {
                R v[V];
                tnc_load(v, from + i * V);
                use(v, i);
            }
        };
#pragma unroll
        for (k = 0; k < HELD; k++) if (lane + k * lanes < n) held[k] = tnc_fetch<T, V>(from + (lane + k * lanes) * V);
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
                pieces([&](R (&v)[V], int) { for (int i = 0; i < V; i++) { double z = v[i] - mean - rest; wide = fma(z, z, wide); } });
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
#pragma unroll
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
    const tnc_rows at = tnc_rows_of(C / V, 4, 256);
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
    if (c->out[0].shape[1] % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data) && tnc_aligned(c->out[0].data)
        && (!CENTRED || tnc_aligned(c->in[2].data))) tnc_norm_launch<T, V, CENTRED>(s, c);
    else tnc_norm_launch<T, 1, CENTRED>(s, c);
    return TN_OK;
}

static tn_status tnc_rmsnorm(tnc *s, const tn_call *c)
{
    tn_status status;
    TNC_TYPES(c->in[0].dtype, T, status = tnc_norm_of<T, false>(s, c));
    return status;
}

static tn_status tnc_layernorm(tnc *s, const tn_call *c)
{
    tn_status status;
    TNC_TYPES(c->in[0].dtype, T, status = tnc_norm_of<T, true>(s, c));
    return status;
}

/* ---- rmsnorm_backward, layernorm_backward -----------------------------------------------------------------------------------
   dx row by row, with x and dy in registers. SUMS: a thread always has the same columns, so it adds up what its rows give dw and
   db; a block adds its threads in their order and leaves part[2,blocks,C], and a second kernel adds the blocks. Where a thread
   would have too many columns, the first kernel leaves the rows' means instead and a third reads x and dy again.
   floor: reads 2 R C numbers (3 when dx is added to), writes R C */
template <int V, bool CENTRED> struct tnc_norm_held { enum { count = CENTRED && V == 8 ? 2 : 4 }; };     /* what registers hold */

template <typename R> struct tnc_norm_more {
    R      *part;                       /* [2,blocks,C], or NULL          */
    R      *means;                      /* [2,rows]: mean, rest; or NULL  */
    int64_t rows;
    int     C, lanes;
    bool    accumulate;
};

template <typename T, int V, bool CENTRED, bool SUMS>
__global__ void __launch_bounds__(256, 2)
tnc_norm_backward_kernel(const T *x, const typename tnc_real<T>::type *w, const typename tnc_real<T>::type *r, const T *dy, T *dx,
                         tnc_norm_more<typename tnc_real<T>::type> more)
{
    typedef typename tnc_real<T>::type R;
    enum { HELD = tnc_norm_held<V, CENTRED>::count, MINE = SUMS ? HELD * V : 1 };
    const int     lanes = more.lanes, each = (int)blockDim.x / lanes;
    const int     lane = (int)threadIdx.x & (lanes > 32 ? 1023 : lanes - 1);
    const int     C = more.C, n = C / V;
    const R       part = R(1) / R(C);
    R             dw[MINE] = {}, db[MINE] = {};
    int64_t       base;
    for (base = (int64_t)blockIdx.x * each; base < more.rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < more.rows ? mine : more.rows - 1;
        const bool    live = mine < more.rows;
        const T      *from = x + row * C, *from_dy = dy + row * C;
        const R       scale = r[row];
        typename tnc_piece<T, V>::type held[HELD], held_dy[HELD];
        R    mean = 0, rest = 0, sum = 0, dot = 0;
        int  k;
        auto pieces = [&](auto use) {               /* use(x, dy, which piece, how many of this thread came before) */
            R   v[V], d[V];
            int i, j;
#pragma unroll
            for (j = 0; j < HELD; j++) {
                if (lane + j * lanes >= n) break;
                tnc_unpack<T, V>(v, held[j]);
                tnc_unpack<T, V>(d, held_dy[j]);
                use(v, d, lane + j * lanes, j);
            }
            for (i = lane + HELD * lanes; !SUMS && i < n; i += lanes) {
                tnc_load(v, from + i * V);
                tnc_load(d, from_dy + i * V);
                use(v, d, i, 0);
            }
        };
#pragma unroll
        for (k = 0; k < HELD; k++) {
            if (lane + k * lanes >= n) break;
            held[k] = tnc_fetch<T, V>(from + (lane + k * lanes) * V);
            held_dy[k] = tnc_fetch<T, V>(from_dy + (lane + k * lanes) * V);
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
#pragma unroll
            for (int q = 0; q < V; q++) {
                const R z = (v[q] - mean - rest) * scale, g = w ? d[q] * gain[q] : d[q];
                if (SUMS && live) {
                    dw[j * V + q] = tnc_fma(d[q], z, dw[j * V + q]);
                    if (CENTRED) db[j * V + q] += d[q];
                }
                if (CENTRED) sum += g;
                dot = tnc_fma(g, z, dot);
            }
        });
        if (!dx) continue;
        if (CENTRED) sum = tnc_row_sum(sum, lanes) * part;
        dot = tnc_row_sum(dot, lanes) * part;
        if (!live) continue;
        pieces([&](R (&v)[V], R (&d)[V], int i, int) {
            T *to = dx + row * C + i * V;
            R  gain[V];
            if (w) tnc_load(gain, w + i * V);
#pragma unroll
            for (int q = 0; q < V; q++) {
                const R z = (v[q] - mean - rest) * scale;
                v[q] = scale * tnc_fma(-z, dot, (w ? d[q] * gain[q] : d[q]) - sum);
            }
            if (more.accumulate) tnc_add_to<V>(to, v);
            else tnc_store(to, v);
        });
    }
    if constexpr (SUMS) {
        TNC_SHARED(R, total, [2][32 * HELD * V]);
        const int group = (int)threadIdx.x / lanes;
        R        *to = more.part + (int64_t)blockIdx.x * C, *to_b = to + (int64_t)gridDim.x * C;
        int       g, j;
        auto leave = [&](R *at, const R *of, bool first) {
#pragma unroll
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
__global__ void __launch_bounds__(256) tnc_norm_columns_kernel(const T *x, const typename tnc_real<T>::type *r, const T *dy, int64_t chunk,
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
#pragma unroll 4
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
static void tnc_norm_backward_launch(tnc *s, const tn_call *c, tnc_rows at, unsigned blocks, tnc_norm_more<typename tnc_real<T>::type> more)
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
    R               *dw = c->n_out > 1 ? (R *)c->out[1].data : NULL, *db = CENTRED && c->n_out > 2 ? (R *)c->out[2].data : NULL;
    const bool       wide = C % V == 0 && tnc_aligned(c->in[0].data) && tnc_aligned(c->in[1].data) && tnc_aligned(c->in[3].data)
                         && tnc_aligned(c->out[0].data);
    const tnc_rows   at = tnc_rows_of(wide ? C / V : C, HELD, 256);
    const bool       wanted = dw || db, sums = wanted && wide && C / V <= (int64_t)at.lanes * HELD;
    const unsigned   blocks = sums ? (unsigned)tnc_bound(tnc_ceil(rows, at.threads / at.lanes), 1, s->sms * (512 / at.threads))
                                   : tnc_grid(s, rows, at.threads / at.lanes);
    const int64_t    parts = sums ? (int64_t)blocks : chunks;
    tnc_norm_more<R> more = {NULL, NULL, rows, (int)C, at.lanes, c->accumulate};
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
        TNC_LAUNCH((tnc_norm_columns_kernel<T>), dim3((unsigned)tnc_ceil(C, 32), chunks), 256, 0, s->stream,
                   (const T *)c->in[0].data, (const R *)c->in[2].data, (const T *)c->in[3].data, tnc_ceil(rows, chunks), more);
    if (dw) tnc_add_parts(s, more.part, parts, C, dw);
    if (db) tnc_add_parts(s, more.part + parts * C, parts, C, db);
    return TN_OK;
}

static tn_status tnc_rmsnorm_backward(tnc *s, const tn_call *c)
{
    tn_status status;
    TNC_TYPES(c->in[0].dtype, T, status = tnc_norm_backward_of<T, false>(s, c));
    return status;
}

static tn_status tnc_layernorm_backward(tnc *s, const tn_call *c)
{
    tn_status status;
    TNC_TYPES(c->in[0].dtype, T, status = tnc_norm_backward_of<T, true>(s, c));
    return status;
}

/* ---- cross_entropy ----------------------------------------------------------------------------------------------------------
   A row's largest logit m and sum of e^(z - m) grow together, thread by thread, the sum scaled when m does; pieces that fit stay
   in shared memory for the second pass, which writes the gradient. Rows need not begin at multiples of 16: V > 1 takes single
   elements at both ends. Each block adds the losses of its rows, a second kernel the blocks.
   floor: reads R C numbers, and writes as many if the gradient is wanted */
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
template <typename R, int V> static __device__ __forceinline__ void tnc_entropy_add(const R (&v)[V], R *most, R *sum)
{
    R   top = v[0], from;
    int k;
#pragma unroll
    for (k = 1; k < V; k++) top = tnc_larger(v[k], top);
    if (top > *most) {
        *sum *= tnc_exp(*most - top);
        *most = top;
    }
    from = *most > -R(INFINITY) ? *most : R(0);
#pragma unroll
    for (k = 0; k < V; k++) *sum += tnc_exp(v[k] - from);
}

template <typename T, int V> __global__ void __launch_bounds__(512, sizeof(T) == 8 ? 1 : 2) tnc_entropy_kernel(tnc_entropy<T> a)
{
    typedef typename tnc_real<T>::type R;
    typedef typename tnc_piece<T, V>::type P;
    enum { AHEAD = 4 };
    TNC_DYN_SHARED(P, shared);
    const int lanes = a.lanes, each = (int)blockDim.x / lanes, lane = (int)threadIdx.x & (lanes > 32 ? 1023 : lanes - 1);
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
        int     i, k;
        for (i = lane; i < ends; i += lanes) {
            const R v[1] = {tnc_to(from[i < head ? i : i + n * V])};
            tnc_entropy_add(v, &most, &sum);
        }
        for (i = lane; i < n; i += AHEAD * lanes) {
            P piece[AHEAD];
#pragma unroll
            for (k = 0; k < AHEAD; k++) if (i + k * lanes < n) piece[k] = tnc_fetch<T, V>(body + (i + k * lanes) * V);
#pragma unroll
            for (k = 0; k < AHEAD; k++) {
                R v[V];
                if (i + k * lanes >= n) break;
                if (i + k * lanes < a.room) held[i + k * lanes] = piece[k];
                tnc_unpack<T, V>(v, piece[k]);
                tnc_entropy_add(v, &most, &sum);
            }
        }
        top = tnc_row_largest(most, lanes);
        sum = tnc_row_sum(sum * tnc_exp(most - (top > -R(INFINITY) ? top : R(0))), lanes);
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
                const R   v = tnc_exp(tnc_to(from[at]) - top) * scale - (at == label ? share : R(0));
                to[at] = tnc_from<T>(good ? v : R(0));
            }
#pragma unroll 2
            for (i = lane; i < n; i += lanes) {
                R v[V];
                tnc_unpack<T, V>(v, i < a.room ? held[i] : tnc_fetch<T, V>(body + i * V));
#pragma unroll
                for (k = 0; k < V; k++) {
                    v[k] = tnc_exp(v[k] - top) * scale - (head + i * V + k == label ? share : R(0));
                    if (!good) v[k] = 0;
                }
                tnc_store(to_body + i * V, v);
            }
        }
    }
    loss = tnc_block_sum(loss);
    if (threadIdx.x == 0) a.part[blockIdx.x] = loss;
}

/* to = sum of part[parts] / count */
template <typename N, typename R> __global__ void __launch_bounds__(256) tnc_mean_kernel(const N *part, int64_t parts, double count, R *to)
{
    N       sum = 0;
    int64_t i;
    for (i = threadIdx.x; i < parts; i += 256) sum += part[i];
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) *to = (R)((double)sum / count);
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
        cudaFuncSetAttribute(tnc_entropy_kernel<T, V>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    }
    TNC_LAUNCH((tnc_entropy_kernel<T, V>), blocks, at.threads, shared, s->stream, a);
    TNC_LAUNCH((tnc_mean_kernel<double, R>), 1, 256, 0, s->stream, (const double *)a.part, (int64_t)blocks, (double)a.rows, a.loss);
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
    tn_status status;
    TNC_TYPES(c->in[0].dtype, T, status = tnc_cross_entropy_of<T>(s, c));
    return status;
}

/* ---- argmax, accuracy --------------------------------------------------------------------------------------------------------
   The first of the largest, a NaN being largest: of two numbers the better is decided alone by what and where they are, so any
   tree finds the same one. Accuracy counts rows in whole numbers.    floor: reads R C numbers */
template <typename R> static __device__ __forceinline__ bool tnc_better(R x, int64_t i, R y, int64_t j)
{
    if ((x != x) != (y != y)) return x != x;
    if (x == x && x != y) return x > y;
    return i < j;
}

template <typename T>
__global__ void __launch_bounds__(256) tnc_argmax_kernel(const T *x, const int32_t *label, int32_t *to, int64_t rows, int64_t C, int lanes)
{
    typedef typename tnc_real<T>::type R;
    TNC_SHARED(R, value, [8]);
    TNC_SHARED(int64_t, place, [8]);
    const int each = 256 / lanes, lane = (int)threadIdx.x & (lanes - 1), warp = (int)threadIdx.x >> 5;
    int       right = 0;
    int64_t   base;
    for (base = (int64_t)blockIdx.x * each; base < rows; base += (int64_t)gridDim.x * each) {
        const int64_t mine = base + (int)threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
        const T      *from = x + row * C;
        int64_t best = 0, i;
        R       most = tnc_to(from[0]);
        int     k;
#pragma unroll 4
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
    const int      lanes = x->shape[1] > 1024 ? 256 : tnc_lanes(x->shape[1]);
    const unsigned blocks = tnc_grid(s, x->shape[0], 256 / lanes);
    TNC_LAUNCH((tnc_argmax_kernel<T>), blocks, 256, 0, s->stream, (const T *)x->data, label, to, x->shape[0], x->shape[1], lanes);
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
    TNC_LAUNCH((tnc_mean_kernel<int32_t, R>), 1, 256, 0, s->stream, (const int32_t *)right, (int64_t)blocks,
               (double)c->in[0].shape[0], (R *)c->out[0].data);
    return TN_OK;
}

static tn_status tnc_accuracy(tnc *s, const tn_call *c)
{
    tn_status status;
    TNC_TYPES(c->in[0].dtype, T, status = tnc_accuracy_of<T>(s, c));
    return status;
}

/* ---- chain, chain_backward ---------------------------------------------------------------------------------------------------
   A block per chain, whose products follow each other: the running product in shared memory, the next matrix on its way in
   registers while the present one is multiplied. A product is left as it is while its norm is within 2^+-16, the last is divided
   by it. Matrices too large for shared memory stay in the workspace. TILE: a thread computes TILE x TILE elements.
   floor: 2 n d^3 flops a chain, forward; twice that backward; the chains side by side */
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
template <typename R> static __device__ __forceinline__ void tnc_chain_fetch(R (&next)[TNC_CHAIN_AHEAD], const R *from, int dd)
{
    int k;
#pragma unroll
    for (k = 0; k < TNC_CHAIN_AHEAD; k++) {
        const int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < dd) next[k] = from[i];
    }
}

template <typename R> static __device__ __forceinline__ void tnc_chain_put(R *to, const R (&next)[TNC_CHAIN_AHEAD], const R *from, int dd)
{
    int i, k;
#pragma unroll
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
#pragma unroll
        for (i = 0; i < TILE; i++) {
            at_row[i] = (row + i * side < d ? row + i * side : d - 1) * (TA ? 1 : d);
            at_column[i] = (column + i * side < d ? column + i * side : d - 1) * (TB ? d : 1);
        }
        for (k = 0; k < d; k++) {
            R left[TILE], right[TILE];
#pragma unroll
            for (i = 0; i < TILE; i++) {
                left[i] = a[at_row[i] + (TA ? k * d : k)];
                right[i] = b[at_column[i] + (TB ? k : k * d)];
            }
#pragma unroll
            for (i = 0; i < TILE; i++)
#pragma unroll
                for (j = 0; j < TILE; j++) sum[i][j] = tnc_fma(left[i], right[j], sum[i][j]);
        }
#pragma unroll
        for (i = 0; i < TILE; i++)
#pragma unroll
            for (j = 0; j < TILE; j++)
                if (row + i * side < d && column + j * side < d) keep((row + i * side) * d + column + j * side, sum[i][j]);
    }
}

/* Divides x by what it returns, see above: squares is this thread's share of |x|^2. By the largest element first where squares
   overflow or vanish; zeros stay zeros, an infinity makes NaN. */
template <typename R> static __device__ __forceinline__ R tnc_chain_norm(R *x, int dd, R squares, bool must)
{
    const R limit = sizeof(R) == 4 ? R(1e30) : R(1e300), near_one = R(4294967296.0);
    R       total = tnc_block_sum(squares), most = 1;
    int     i;
    if (!must && total > 1 / near_one && total < near_one) return R(1);
    if (!(total > 1 / limit && total < limit)) {
        for (most = 0, i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) most = tnc_larger(tnc_abs(x[i]), most);
        most = tnc_row_largest(most, (int)blockDim.x > 32 ? (int)blockDim.x : 32);
        if (most == 0 && total == 0) return R(0);
        for (squares = 0, i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) {
            x[i] /= most;
            squares = tnc_fma(x[i], x[i], squares);
        }
        total = tnc_block_sum(squares);
    }
    total = tnc_sqrt(total);
    squares = 1 / total;
    for (i = (int)threadIdx.x; i < dd; i += (int)blockDim.x) x[i] *= squares;
    __syncthreads();
    return most * total;
}

template <typename R, int TILE> __global__ void __launch_bounds__(256) tnc_chain_kernel(tnc_chains<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    int64_t   b, j;
    int       i;
    for (b = blockIdx.x; b < a.batch; b += gridDim.x) {
        R       *to = a.shared ? shared : a.work + b * 2 * dd, *from = to + dd, *keep = a.shared ? shared + 2 * dd : NULL, *swap;
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

template <typename R, int TILE> __global__ void __launch_bounds__(256) tnc_chain_backward_kernel(tnc_chains<R> a)
{
    TNC_DYN_SHARED(R, shared);
    const int d = a.d, dd = d * d, me = (int)threadIdx.x, threads = (int)blockDim.x;
    int64_t   b, j;
    int       i;
    for (b = blockIdx.x; b < a.batch; b += gridDim.x) {
        const int64_t last = (b + 1) * a.n - 1;
        R       *g = a.shared ? shared : a.work + b * 4 * dd, *next = g + dd, *keep = a.shared ? shared + 2 * dd : NULL, *swap;
        const R *y = a.p + last * dd, *dy = a.y + b * (dd + 1);
        R        ahead[2][TNC_CHAIN_AHEAD];
        const R  last_v = a.v[last];
        double   scale = -log((double)last_v);
        R        dot = 0, factor = last_v == 0 ? R(0) : (R)exp(scale);
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
                x = factor == 0 ? R(0) : factor * x;
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
#pragma unroll 1
            for (i = 0; i < 2; i++) {
                const R by = i == 0 ? norm : a.v[j - 1];
                if (by != 1 && (by != 0 || i == 1)) scale += (i == 0 ? 1 : -1) * log((double)by);
            }
            if (scale != before && last_v != 0) factor = (R)exp(scale);
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
    if (a.shared) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room);
    TNC_LAUNCH(kernel, blocks, threads, a.shared ? room : 0, s->stream, a);
    return TN_OK;
}

template <typename R> static tn_status tnc_chain_of(tnc *s, const tn_call *c, bool backward)
{
    tnc_chains<R> a;
    int          i;
    memset(&a, 0, sizeof a);
    for (i = 0; i < c->n_in; i++) if (!tnc_has(&c->in[i], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
    for (i = 0; i < c->n_out; i++) if (!tnc_has(&c->out[i], tnc_code<R>::dtype)) return TN_ERR_DTYPE;
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
    if (c->in[0].dtype == TN_F32) return tnc_chain_of<float>(s, c, backward);
    return c->in[0].dtype == TN_F64 ? tnc_chain_of<double>(s, c, backward) : TN_ERR_DTYPE;
}

static tn_status tnc_chain(tnc *s, const tn_call *c) { return tnc_chain_call(s, c, false); }
static tn_status tnc_chain_backward(tnc *s, const tn_call *c) { return tnc_chain_call(s, c, true); }

/* ---- the optimisers: sumsq, adamw, sgd, muon_end ------------------------------------------------------------------------------
   The header calls once per parameter. Calls of one kind that follow each other wait in s->pending until another kind of call
   comes, or somebody looks (tnc_flush), and then run together: a block takes TNC_SHARE elements of whatever parameter it falls
   on. Waiting changes nothing that can be seen, since whoever touches device memory flushes first.
   floor: adamw reads and writes 4 arrays, sgd 3 (2 without momentum), muon_end reads 2, writes 1; sumsq reads 1 */
enum { TNC_SHARE = 8192 };
enum { TNC_LR, TNC_STEP, TNC_SIZE, TNC_FACTOR, TNC_SKIP, TNC_NORM, TNC_MOMENTUM, TNC_TAKEN };        /* the scalars of >>op-optim */

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
    R  *p = (R *)part.x[0] + i, *g = (R *)part.x[1] + i, *m = (R *)part.x[2] + i, *v = (R *)part.x[3] + i;
    R   p_[V], g_[V], m_[V] = {}, v_[V] = {}, zero[V] = {};
    int k;
    tnc_load(g_, g);
    tnc_load(p_, p);
    if (KERNEL == TN_KERNEL_ADAMW) {
        tnc_load(m_, m);
        tnc_load(v_, v);
#pragma unroll
        for (k = 0; k < V; k++) {
            const R d = g_[k] * r.factor;
            m_[k] = tnc_fma(r.take1, d, r.keep1 * m_[k]);
            v_[k] = tnc_fma(r.take2 * d, d, r.keep2 * v_[k]);
            p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], m_[k] * r.unbias1 / (tnc_sqrt(v_[k] * r.unbias2) + r.eps)), p_[k]);
        }
        tnc_store(m, m_);
        tnc_store(v, v_);
    } else if (KERNEL == TN_KERNEL_SGD) {
        if (part.x[2]) tnc_load(m_, m);
#pragma unroll
        for (k = 0; k < V; k++) {
            const R d = g_[k] * r.factor;
            R       to = d;
            if (part.x[2]) to = m_[k] = tnc_fma(r.keep1, m_[k], d);
            if (r.nesterov) to = tnc_fma(r.keep1, to, d);
            p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], to), p_[k]);
        }
        if (part.x[2]) tnc_store(m, m_);
    } else {
#pragma unroll
        for (k = 0; k < V; k++) p_[k] = tnc_fma(r.down, tnc_fma(r.decay, p_[k], r.scale * g_[k]), p_[k]);
    }
    tnc_store(p, p_);
    if (KERNEL != TN_KERNEL_MUON_END) tnc_store(g, zero);
}

template <typename R, int KERNEL> __global__ void __launch_bounds__(256) tnc_update_kernel(const __grid_constant__ tnc_pending a)
{
    enum { V = tnc_wide<R>::count };
    TNC_SHARED(tnc_rule<R>, shared, [1]);
    const int       which = tnc_part_of(a, blockIdx.x);
    const tnc_part &part = a.part[which];
    const int64_t   begin = (blockIdx.x - part.first) * (int64_t)TNC_SHARE;
    const int64_t   end = begin + TNC_SHARE < part.n ? begin + TNC_SHARE : part.n, wide = part.wide ? end - (end - begin) % V : begin;
    const R         zero[V] = {};
    tnc_rule<R>     r;
    int64_t         i;
    if (threadIdx.x == 0) tnc_rule_of(&shared[0], a, part);
    __syncthreads();
    r = shared[0];
    if (r.skip) {
        R *g = (R *)part.x[1];
        for (i = begin + (int)threadIdx.x * V; KERNEL != TN_KERNEL_MUON_END && i < wide; i += 256 * V) tnc_store(g + i, zero);
        for (i = wide + (int)threadIdx.x; KERNEL != TN_KERNEL_MUON_END && i < end; i += 256) g[i] = 0;
        return;
    }
#pragma unroll 2
    for (i = begin + (int)threadIdx.x * V; i < wide; i += 256 * V) tnc_update<R, V, KERNEL>(r, part, i);
    for (i = wide + (int)threadIdx.x; i < end; i += 256) tnc_update<R, 1, KERNEL>(r, part, i);
}

/* The sum of squares of each block's elements. In double, as few GPUs are too slow for: a square may have no float. */
template <typename R> __global__ void __launch_bounds__(256) tnc_squares_kernel(const __grid_constant__ tnc_pending a, double *sums)
{
    enum { V = tnc_wide<R>::count };
    const tnc_part &part = a.part[tnc_part_of(a, blockIdx.x)];
    const R        *g = (const R *)part.x[0];
    const int64_t   begin = (blockIdx.x - part.first) * (int64_t)TNC_SHARE;
    const int64_t   end = begin + TNC_SHARE < part.n ? begin + TNC_SHARE : part.n, wide = part.wide ? end - (end - begin) % V : begin;
    double          sum = 0;
    int64_t         i;
#pragma unroll 4
    for (i = begin + (int)threadIdx.x * V; i < wide; i += 256 * V) {
        R v[V];
        tnc_load(v, g + i);
#pragma unroll
        for (int k = 0; k < V; k++) sum = fma((double)v[k], (double)v[k], sum);
    }
    for (i = wide + (int)threadIdx.x; i < end; i += 256) sum = fma((double)g[i], (double)g[i], sum);
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

static __device__ void tnc_not_finite(int32_t *fault, int32_t which, int32_t step)
{
    if (!fault || fault[0] != 0) return;
    fault[0] = 2;
    fault[1] = which;
    fault[2] = 0;
    fault[3] = step;
}

/* One block: a warp sums what the blocks of a parameter left, then one thread goes through the parameters in their order. */
template <typename R>
__global__ void __launch_bounds__(1024) tnc_squares_end_kernel(const __grid_constant__ tnc_pending a, const double *sums, int64_t blocks)
{
    TNC_SHARED(double, total, [TNC_PENDING]);
    R      *s = (R *)a.scalars;
    int64_t i;
    int     k;
    for (k = (int)threadIdx.x >> 5; k < a.count; k += 32) {
        const int64_t end = k + 1 < a.count ? a.part[k + 1].first : blocks;
        double        sum = 0;
#pragma unroll 4
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

template <typename R> static tn_status tnc_flush_of(tnc *s, const tnc_pending &a)
{
    const tnc_part *last = &a.part[a.count - 1];
    const int64_t   blocks = last->first + tnc_ceil(last->n, TNC_SHARE);
    double         *sums;
    if (a.kernel == TN_KERNEL_SUMSQ) {
        sums = (double *)tnc_scratch(s, (size_t)blocks * sizeof *sums);
        if (!sums) return TN_ERR_MEMORY;
        if (blocks > 0) TNC_LAUNCH((tnc_squares_kernel<R>), (unsigned)blocks, 256, 0, s->stream, a, sums);
        TNC_LAUNCH((tnc_squares_end_kernel<R>), 1, 1024, 0, s->stream, a, (const double *)sums, blocks);
        return TN_OK;
    }
    if (blocks == 0) return TN_OK;
    switch ((int)a.kernel) {
    case TN_KERNEL_ADAMW: TNC_LAUNCH((tnc_update_kernel<R, TN_KERNEL_ADAMW>), (unsigned)blocks, 256, 0, s->stream, a); break;
    case TN_KERNEL_SGD:   TNC_LAUNCH((tnc_update_kernel<R, TN_KERNEL_SGD>), (unsigned)blocks, 256, 0, s->stream, a); break;
    default:              TNC_LAUNCH((tnc_update_kernel<R, TN_KERNEL_MUON_END>), (unsigned)blocks, 256, 0, s->stream, a); break;
    }
    return TN_OK;
}

static tn_status tnc_flush(tnc *s)
{
    tnc_pending *a = &s->pending;
    tn_status    status;
    cudaError_t  e;
    char         what[96];
    int          count = a->count;
    if (count == 0) return TN_OK;
    if (s->lost || cudaSetDevice(s->device) != cudaSuccess) {
        a->count = 0;
        return s->lost ? TN_ERR_BACKEND : tnc_fail(s, cudaGetLastError(), "cudaSetDevice");
    }
    status = a->dtype == TN_F64 ? tnc_flush_of<double>(s, *a) : tnc_flush_of<float>(s, *a);
    a->count = 0;
    e = cudaGetLastError();
    if (e == cudaSuccess && s->wait) e = cudaStreamSynchronize(s->stream);
    if (e == cudaSuccess) return status;
    snprintf(what, sizeof what, "%s of %d parameters", a->name, count);
    return tnc_fail(s, e, what);
}

/* One more call for the pending ones, which run first where it does not fit in. */
static tn_status tnc_pend(tnc *s, const tn_call *c, const char *name, const tn_view *const x[4], int64_t n, const void *scalars,
                          const void *fault)
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
    if (a->count == TNC_PENDING || (a->count > 0 && memcmp(a, &like, offsetof(tnc_pending, count)) != 0))
        if ((status = tnc_flush(s)) != TN_OK) return status;
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
    a->count++;
    return TN_OK;
}

static tn_status tnc_sumsq(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = {&c->in[0], NULL, NULL, NULL};
    return tnc_pend(s, c, "sumsq", x, c->in[0].shape[0], c->out[0].data, c->out[1].data);
}

static tn_status tnc_adamw(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = {&c->out[0], &c->out[1], &c->out[2], &c->out[3]};
    return tnc_pend(s, c, "adamw", x, c->out[0].shape[0], c->in[0].data, NULL);
}

static tn_status tnc_sgd(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = {&c->out[0], &c->out[1], c->n_out > 2 ? &c->out[2] : NULL, NULL};
    return tnc_pend(s, c, "sgd", x, c->out[0].shape[0], c->in[0].data, NULL);
}

static tn_status tnc_muon_end(tnc *s, const tn_call *c)
{
    const tn_view *const x[4] = {&c->out[0], &c->in[1], NULL, NULL};
    return tnc_pend(s, c, "muon_end", x, c->out[0].shape[0], c->in[0].data, NULL);
}

/* ---- step_begin, tick: single numbers ------------------------------------------------------------------------------------------ */
template <typename R> __global__ void tnc_step_begin_kernel(R *s, int32_t *fault, double clip)
{
    const double norm = (double)s[TNC_SIZE];
    bool         skip;
    if (threadIdx.x > 0) return;
    if (!(norm <= TNC_FINITE)) tnc_not_finite(fault, -1, (int32_t)s[TNC_TAKEN]);        /* each gradient is finite, their norm is not */
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
    if (c->out[0].dtype == TN_F64)
        TNC_LAUNCH((tnc_step_begin_kernel<double>), 1, 32, 0, s->stream, (double *)c->out[0].data, fault, c->f[0]);
    else if (c->out[0].dtype == TN_F32)
        TNC_LAUNCH((tnc_step_begin_kernel<float>), 1, 32, 0, s->stream, (float *)c->out[0].data, fault, c->f[0]);
    else return TN_ERR_DTYPE;
    return TN_OK;
}

__global__ void tnc_tick_kernel(uint32_t *clock, uint32_t by) { if (threadIdx.x == 0) *clock += by; }

static tn_status tnc_tick(tnc *s, const tn_call *c)
{
    TNC_LAUNCH(tnc_tick_kernel, 1, 32, 0, s->stream, (uint32_t *)c->out[0].data, (uint32_t)c->i[0]);
    return TN_OK;
}

/* ---- muon_begin --------------------------------------------------------------------------------------------------------------
   The momentum and the unscaled x in a first pass, with the sum of squares of each block; the second divides x by its matrix's
   norm, which every block adds up for itself, in one order.    floor: reads 3 arrays, writes 4 */
template <typename R> struct tnc_muon {
    const R *scalars;
    R       *x, *g, *m;                     /* [batch,n] */
    double  *sums;                          /* [batch,blocks] */
    int64_t  n;
    unsigned blocks;                        /* of a matrix */
    double   momentum;
    bool     nesterov, wide;
};

template <typename R, int V> static __device__ __forceinline__ double tnc_muon_move(const tnc_muon<R> &a, int64_t at, R keep, R take, R factor)
{
    R      g[V], m[V], x[V], zero[V] = {};
    double squares = 0;
    int    k;
    tnc_load(g, a.g + at);
    tnc_load(m, a.m + at);
#pragma unroll
    for (k = 0; k < V; k++) {
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
template <typename R> __global__ void __launch_bounds__(256) tnc_muon_begin_kernel(tnc_muon<R> a)
{
    enum { V = tnc_wide<R>::count };
    const int64_t matrix = blockIdx.x / a.blocks, begin = blockIdx.x % a.blocks * (int64_t)TNC_SHARE, first = matrix * a.n;
    const int64_t end = begin + TNC_SHARE < a.n ? begin + TNC_SHARE : a.n, wide = a.wide ? end - (end - begin) % V : begin;
    const double  momentum = a.momentum < 0 ? (double)a.scalars[TNC_MOMENTUM] : a.momentum;
    const R       keep = (R)momentum, take = (R)(1 - momentum), factor = a.scalars[TNC_FACTOR];
    double        sum = 0;
    int64_t       i;
    if (a.scalars[TNC_SKIP] != 0) {
        for (i = begin + (int)threadIdx.x; i < end; i += 256) a.x[first + i] = a.g[first + i] = 0;
    } else {
#pragma unroll 2
        for (i = begin + (int)threadIdx.x * V; i < wide; i += 256 * V) sum += tnc_muon_move<R, V>(a, first + i, keep, take, factor);
        for (i = wide + (int)threadIdx.x; i < end; i += 256) sum += tnc_muon_move<R, 1>(a, first + i, keep, take, factor);
    }
    sum = tnc_block_sum(sum);
    if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

template <typename R> __global__ void __launch_bounds__(256) tnc_muon_unit_kernel(tnc_muon<R> a)
{
    const int64_t matrix = blockIdx.x / a.blocks, begin = blockIdx.x % a.blocks * (int64_t)TNC_SHARE;
    const int64_t end = begin + TNC_SHARE < a.n ? begin + TNC_SHARE : a.n;
    R            *x = a.x + matrix * a.n;
    double        sum = 0;
    R             unit;
    int64_t       i;
    for (i = threadIdx.x; i < a.blocks; i += 256) sum += a.sums[matrix * a.blocks + i];
    sum = tnc_block_sum(sum);
    unit = sum > 1e-60 ? (R)(1 / sqrt(sum)) : R(0);             /* below 1e-30 there may be no such float */
    for (i = begin + (int)threadIdx.x; i < end; i += 256) x[i] *= unit;
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
    TNC_LAUNCH((tnc_muon_begin_kernel<R>), (unsigned)(batch * a.blocks), 256, 0, s->stream, a);
    TNC_LAUNCH((tnc_muon_unit_kernel<R>), (unsigned)(batch * a.blocks), 256, 0, s->stream, a);
    return TN_OK;
}

static tn_status tnc_muon_begin(tnc *s, const tn_call *c)
{
    if (c->in[0].dtype == TN_F32) return tnc_muon_begin_of<float>(s, c);
    return c->in[0].dtype == TN_F64 ? tnc_muon_begin_of<double>(s, c) : TN_ERR_DTYPE;
}

/* A missing row runs on the host: slow, never wrong. */
static constexpr tnc_row *tnc_copy = nullptr;
static constexpr tnc_row *tnc_fill = nullptr;
static constexpr tnc_row *tnc_uniform = nullptr;
static constexpr tnc_row *tnc_normal = nullptr;
static constexpr tnc_row *tnc_add = nullptr;
static constexpr tnc_row *tnc_mul = nullptr;
static constexpr tnc_row *tnc_sum = nullptr;
static constexpr tnc_row *tnc_act = nullptr;
static constexpr tnc_row *tnc_act_backward = nullptr;
static constexpr tnc_row *tnc_glu = nullptr;
static constexpr tnc_row *tnc_glu_backward = nullptr;
static constexpr tnc_row *tnc_prod = nullptr;
static constexpr tnc_row *tnc_prod_backward = nullptr;
static constexpr tnc_row *tnc_gemm = nullptr;
static constexpr tnc_row *tnc_dropout = nullptr;
static constexpr tnc_row *tnc_rope = nullptr;
static constexpr tnc_row *tnc_rope_backward = nullptr;
static constexpr tnc_row *tnc_attention = nullptr;
static constexpr tnc_row *tnc_attention_backward = nullptr;
static constexpr tnc_row *tnc_attention_linear = nullptr;
static constexpr tnc_row *tnc_attention_linear_backward = nullptr;

/* ======================================================================
   >>table    the backend
   ====================================================================== */

extern "C" const tn_backend *tn_cuda_backend(void)
{
#define TNC_X(ENUM, name) tnc_entry<tnc_##name>(),
    static const tn_backend cuda = {
        TN_BACKEND_ABI, "cuda", false, true, tnc_open, tnc_close, tnc_alloc, tnc_release, tnc_upload, tnc_download, tnc_sync,
        tnc_capture_begin, tnc_capture_end, tnc_replay, tnc_graph_release, { TN_KERNELS(TNC_X) }
    };
#undef TNC_X
    return &cuda;
}
