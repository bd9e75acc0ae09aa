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
    tnc_kept         *kept;                         /* scratch of before, for graphs that have it in mind     */
    int               graphs;                       /* that are alive                                         */
    bool              wait;                         /* TN_SYNC=1                                              */
    bool              lost;                         /* after a kernel's fault nothing on the device works     */
    char              why[256];                     /* the first error                                        */
} tnc;

typedef tn_status tnc_row(tnc *s, const tn_call *call);

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
    status = row(s, call);
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
    if (cudaSetDevice(((tnc *)state)->device) == cudaSuccess) cudaFree(p);      /* waits for what still uses it */
    (void)cudaGetLastError();
}

/* Through pinned memory: the host goes on as soon as its bytes are there. */
static tn_status tnc_upload(void *state, void *to, const void *from, size_t bytes)
{
    tnc        *s = (tnc *)state;
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
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
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    if (e == cudaSuccess && bytes > 0) e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
    return tnc_fail(s, e, "download");
}

static tn_status tnc_sync(void *state, char why[256])
{
    tnc        *s = (tnc *)state;
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
    tn_status   status;
    if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
    status = tnc_fail(s, e, "a kernel since the last sync (TN_SYNC=1 names it)");
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
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
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
    cudaError_t     e = cudaStreamEndCapture(s->stream, &graph);
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
    cudaError_t e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
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
template <typename R> static __device__ R tnc_block_sum(R x)
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
static constexpr tnc_row *tnc_embed = nullptr;
static constexpr tnc_row *tnc_embed_backward = nullptr;
static constexpr tnc_row *tnc_rmsnorm = nullptr;
static constexpr tnc_row *tnc_rmsnorm_backward = nullptr;
static constexpr tnc_row *tnc_layernorm = nullptr;
static constexpr tnc_row *tnc_layernorm_backward = nullptr;
static constexpr tnc_row *tnc_dropout = nullptr;
static constexpr tnc_row *tnc_cross_entropy = nullptr;
static constexpr tnc_row *tnc_chain = nullptr;
static constexpr tnc_row *tnc_chain_backward = nullptr;
static constexpr tnc_row *tnc_rope = nullptr;
static constexpr tnc_row *tnc_rope_backward = nullptr;
static constexpr tnc_row *tnc_attention = nullptr;
static constexpr tnc_row *tnc_attention_backward = nullptr;
static constexpr tnc_row *tnc_attention_linear = nullptr;
static constexpr tnc_row *tnc_attention_linear_backward = nullptr;
static constexpr tnc_row *tnc_argmax = nullptr;
static constexpr tnc_row *tnc_accuracy = nullptr;
static constexpr tnc_row *tnc_sumsq = nullptr;
static constexpr tnc_row *tnc_step_begin = nullptr;
static constexpr tnc_row *tnc_adamw = nullptr;
static constexpr tnc_row *tnc_sgd = nullptr;
static constexpr tnc_row *tnc_muon_begin = nullptr;
static constexpr tnc_row *tnc_muon_end = nullptr;
static constexpr tnc_row *tnc_tick = nullptr;

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
