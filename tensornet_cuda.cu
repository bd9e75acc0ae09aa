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
#define TNC_UNROLL
#define TNC_ROLLED
static inline int tnc_thread_anew(void) { return (int)threadIdx.x; }
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
#define TNC_UNROLL _Pragma("unroll")            /* before a loop over registers                                */
#define TNC_ROLLED _Pragma("unroll 1")          /* before one that would take registers for all its turns      */

/* threadIdx.x, asked for each time: what is made of it does not stay in registers that a loop needs for its sums. */
static __device__ __forceinline__ int tnc_thread_anew(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(x));
    return x;
}

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

/* ---- attention, quadratic ------------------------------------------------------------------------------------------------
   What is computed stands at tensornet.h's >>op-attention; the words here are its own: u_i = c_i do_i, w_i, P, ds.

   Two families of kernels, by fixed rules of dtype and shape:
   tnc_attend_plain, tnc_attend_plain_back     any dtype, any head size; products in the dtype's own precision
   tnc_attend_mma, tnc_attend_mma_back         BF16 operands, head sizes up to 128, on tensor cores with sums in F32
   tnc_attend_part                             few queries (decoding), any dtype: the keys are split

   Backwards is two kernels of one text: one whose blocks own keys and walk over the queries that see them (dk, dv), one whose
   blocks own queries and walk over their keys (dq). Both make the scores anew; nothing but the inputs, the row's statistic and
   one float4 a query is read, every sum has one owner and one order, and so no atomics and the same bits each time.

   Flops for a pair (query, key), s = 2 sets of q and k or 1: forward 2 s d + 2 dv, backward 8 s d + 6 dv - 2 (s == 1 ? d : 0)...
   see >>attend-counts below. Bytes: each operand once is the floor, far below the flops for more than some 100 keys. */

#define TNC_LOG2E 1.4426950408889634

/* An operand [B,T,n,d] whose last axis has stride 1: element 0 and the strides of the others. */
typedef struct tnc_heads { void *data; int64_t b, t, h; } tnc_heads;

typedef struct tnc_attend {
    tnc_heads q, k, v, o, dout, dq, dk, dv;
    void     *stat;                      /* [B,H,Tq]: l_i, or the row's eps + sum; NULL: nobody wants it */
    void     *rows;                      /* backwards [B,H,Tq,4]: c_i, w_i, l_i, 0 */
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
    if (p.row == TN_ROW_LENGTH) return n > R(p.length) ? sqrt(R(p.length) / n) : R(1);
    if (p.row == TN_ROW_MEAN) return n > R(0) ? R(1) / n : R(0);
    return R(1);
}

/* What o = factor sum_j P_ij v_j is multiplied by, and the sum of P as it is kept. `most` is the largest score, of softmax alone. */
template <typename R> static __device__ R tnc_attend_end(const tnc_attend &p, tnc_seen<int64_t> seen, R most, R *sum)
{
    const bool softmax = p.kind == TN_ATTEND_SOFTMAX;
    R          factor = tnc_attend_scale<R>(p, seen);
    if (p.sums) *sum += R(p.eps);
    if (softmax || p.sums) factor /= *sum;
    return seen.high == seen.low || (softmax && most == -R(INFINITY)) ? R(0) : factor;
}

/* e^(from - to) of largest scores: what turns sums of the one into sums of the other. */
template <typename R> static __device__ __forceinline__ R tnc_attend_shift(R from, R to)
{
    return from == -R(INFINITY) ? R(0) : exp(from - to);
}

/* The larger; a NaN stays. */
template <typename R> static __device__ __forceinline__ R tnc_attend_max(R a, R b) { return b > a || b != b ? b : a; }

/* ---- attention: what the backward pass asks of a query, one warp each: rows = c_i, w_i, l_i, 0 ------------------------- */

template <typename T> __global__ void tnc_attend_rows(tnc_attend p)
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
        row[2] = softmax && stat == -R(INFINITY) ? R(INFINITY) : stat * R(p.unit);     /* e^(s - l) is 0 where nothing is seen */
        row[3] = R(0);
    }
}

/* ---- attention: the plain kernels -------------------------------------------------------------------------------------
   A block has a tile of `side` own rows (queries, or keys backwards) and walks over tiles of `side` others. A thread has a cell
   of 4 x 4 (in double 2 x 2) of each tile: own rows 4 y .. 4 y + 3, others and columns x, x + lanes, ...: reads of one row are broadcasts, reads across
   rows of odd pitch fall into different banks. Outputs are made `side` columns at a time (a slab), each slab by its own block,
   which makes the scores anew. */

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
static __device__ void tnc_attend_product(tnc_attend_room<R> &m, R (&out)[tnc_attend_room<R>::cell][tnc_attend_room<R>::cell], const T *a, int64_t a_pitch, int64_t a_rows,
                                          const T *b, int64_t b_pitch, int64_t b_rows, int64_t n)
{
    enum { cell = tnc_attend_room<R>::cell, lanes = tnc_attend_room<R>::lanes, slice = tnc_attend_room<R>::slice, side = tnc_attend_room<R>::side };
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
   that an infinity or a NaN stays where it is; KEYS says whose the own rows are. The tile's others begin at `at`. */
template <bool KEYS, typename T, typename R>
static __device__ void tnc_attend_gather(tnc_attend_room<R> &m, R (&out)[tnc_attend_room<R>::cell][tnc_attend_room<R>::cell], const T *from, int64_t pitch, int64_t rows,
                                         int64_t first, int64_t n, int64_t own, int64_t at, bool edge)
{
    enum { cell = tnc_attend_room<R>::cell, lanes = tnc_attend_room<R>::lanes, side = tnc_attend_room<R>::side };
    const int x = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes;
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
            for (c = 0; c < cell; c++) out[r][c] = fma(m.p[cell * y + r][k], m.x[k][x + lanes * c], out[r][c]);
        }
    __syncthreads();
}

/* What the tile's queries see, and of the backward pass their row of numbers. Queries that there are not see nothing. */
template <typename R> static __device__ void tnc_attend_tile(const tnc_attend &p, tnc_attend_room<R> &m, int64_t head, int64_t i0)
{
    enum { side = tnc_attend_room<R>::side, threads = tnc_attend_room<R>::threads };
    int t, k;
    for (t = (int)threadIdx.x; t < side; t += threads) {
        const bool     there = i0 + t < p.Tq;
        const tnc_seen<int64_t> s = tnc_attend_seen(p, i0 + t);
        m.low[t] = there ? s.low : 0;
        m.high[t] = there ? s.high : 0;
        for (k = 0; k < 4 && p.rows; k++) m.row[t][k] = there ? ((const R *)p.rows)[4 * (head * p.Tq + i0 + t) + k] : R(0);
    }
    __syncthreads();
}

/* The sum, or the largest, of the lanes that have a row. */
template <int lanes, typename R> static __device__ R tnc_attend_row_sum(R v)
{
    int k;
    for (k = lanes / 2; k; k >>= 1) v += __shfl_xor_sync(0xffffffffu, v, k);
    return v;
}
template <int lanes, typename R> static __device__ R tnc_attend_row_max(R v)
{
    int k;
    for (k = lanes / 2; k; k >>= 1) v = tnc_attend_max(v, __shfl_xor_sync(0xffffffffu, v, k));
    return v;
}

/* Scores of both sets, the scale in them; with one set the second is the first. */
template <typename T, typename R>
static __device__ void tnc_attend_scores(const tnc_attend &p, tnc_attend_room<R> &m, R (&s)[2][tnc_attend_room<R>::cell][tnc_attend_room<R>::cell], const tnc_heads &a, int64_t a0,
                                         int64_t a_rows, const tnc_heads &b, int64_t b0, int64_t b_rows, int64_t batch, int64_t h)
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

template <typename T> __global__ void __launch_bounds__(256) tnc_attend_plain(tnc_attend p, int64_t slabs, int64_t blocks)
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
            const int64_t  i = i0 + cell * y + r;
            R             sum = tnc_attend_row_sum<lanes>(total[r]), factor;
            if (i >= p.Tq) continue;
            factor = tnc_attend_end(p, tnc_attend_seen(p, i), most[r], &sum);
            TNC_UNROLL
            for (c = 0; c < cell; c++)
                if (first + x + lanes * c < p.n_v)
                    tnc_head<T>(p.o, b, i, h)[first + x + lanes * c] = tnc_from<T>(factor * out[r][c]);
            if (p.stat && first == 0 && x == 0) ((R *)p.stat)[head * p.Tq + i] = softmax ? most[r] + log(sum) : sum;
        }
        __syncthreads();
    }
}

/* to += sum: the tile's rows at the slab's columns */
template <typename T, typename R>
static __device__ void tnc_attend_add(const tnc_heads &to, int64_t b, int64_t h, int64_t own, int64_t rows, int64_t first, int64_t n,
                                      const R (&sum)[tnc_attend_room<R>::cell][tnc_attend_room<R>::cell])
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
__global__ void __launch_bounds__(256) tnc_attend_plain_back(tnc_attend p, int64_t slabs, int64_t blocks)
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
    const int64_t    heads = p.B * p.H, T_own = KEYS ? p.Tk : p.Tq, T_other = KEYS ? p.Tq : p.Tk, tiles = (T_own + side - 1) / side;
    int64_t          n;
    int              r, c, set;
    for (n = blockIdx.x; n < blocks; n += gridDim.x) {
        const int64_t head = n / slabs % heads, b = head / p.H, h = head % p.H, first = n % slabs * side, tile = n / slabs / heads;
        const int64_t own = (KEYS ? tile : tiles - 1 - tile) * side;                 /* causal: the longest come first */
        const int64_t rows = T_own - own < side ? T_own - own : (int64_t)side;
        R             dx[2][cell][cell] = {}, dv[cell][cell] = {};
        tnc_seen<int64_t>      range;
        int64_t       at;
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
            tnc_attend_product(m, dp, tnc_head<const T>(own_y, b, own, h), own_y.t, rows, tnc_head<const T>(other_y, b, at, h),
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
                    m.p[cell * y + r][x + lanes * c] = pij * m.row[i][0];                             /* P_ij c_i, for do_i */
                }
            if (KEYS) tnc_attend_gather<KEYS>(m, dv, tnc_head<const T>(p.dout, b, at, h), p.dout.t, others, first, p.n_v, own, at, true);
            TNC_UNROLL
            for (set = 0; set < 2; set++) {
                if (set > two) break;
                TNC_UNROLL
                for (r = 0; r < cell; r++)
                    TNC_UNROLL
                    for (c = 0; c < cell; c++) m.p[cell * y + r][x + lanes * c] = dp[r][c] * s[1 - set][r][c];
                tnc_attend_gather<KEYS>(m, dx[set], tnc_head<const T>(other_x, b, at, h + set * p.H), other_x.t, others, first, p.n_qk,
                                        own, at, true);
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
   Decoding: a tile of queries would be nearly empty, and one block a head too few. So a head's keys are split into parts, a block
   each; what they found (the largest score, the sum of P, P v) is joined in the order of the parts. Floor: k and v once. */

enum { TNC_ATTEND_FEW = 4, TNC_ATTEND_PART = 256 };         /* queries at most; keys of a part */

template <typename T> __global__ void __launch_bounds__(128) tnc_attend_part(tnc_attend p, int64_t parts, int64_t blocks)
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
                s[set] = R(p.scale) * tnc_attend_row_sum<8>(s[set]);
            }
            if (lane % 8 == 0 && k < count) pattern[k] = softmax ? s[0] : s[0] * s[two];
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
        for (e = lane; e < (p.n_v + 31) / 32 * 32; e += 32) {                             /* each warp has a quarter of the keys */
            R sum = R(0);
            for (k = warp; k < count && e < p.n_v; k += 4) sum = fma(pattern[k], R(tnc_to(tnc_head<const T>(p.v, b, first + k, h)[e])), sum);
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
template <typename T> __global__ void tnc_attend_join(tnc_attend p, int64_t parts)
{
    typedef typename tnc_real<T>::type R;
    const bool    softmax = p.kind == TN_ATTEND_SOFTMAX;
    const int     lane = (int)threadIdx.x & 31;
    const int64_t warps = (int64_t)gridDim.x * blockDim.x / 32, width = 2 + p.n_v;
    int64_t       n, e, k;
    for (n = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; n < p.B * p.H * p.Tq; n += warps) {
        const int64_t i = n % p.Tq, h = n / p.Tq % p.H, b = n / p.Tq / p.H;
        const R      *from = (const R *)p.rows + n * parts * width;
        R             largest = -R(INFINITY), total = R(0), factor;
        for (k = 0; k < parts; k++) largest = tnc_attend_max(largest, from[k * width]);
        for (k = 0; k < parts; k++) total = fma(from[k * width + 1], softmax ? tnc_attend_shift(from[k * width], largest) : R(1), total);
        factor = tnc_attend_end(p, tnc_attend_seen(p, i), largest, &total);
        for (e = lane; e < p.n_v; e += 32) {
            R sum = R(0);
            for (k = 0; k < parts; k++)
                sum = fma(from[k * width + 2 + e], softmax ? tnc_attend_shift(from[k * width], largest) : R(1), sum);
            tnc_head<T>(p.o, b, i, h)[e] = tnc_from<T>(factor * sum);
        }
        if (p.stat && lane == 0) ((R *)p.stat)[n] = softmax ? largest + log(total) : total;
    }
}

/* ---- attention: tensor cores ---------------------------------------------------------------------------------------------
   mma m16n8k16 multiplies a 16 x 16 piece of a left matrix by a 16 x 8 piece of a right one. A lane (g = lane / 4,
   t = 2 (lane % 4)) holds of the result (g, t), (g, t+1), (g+8, t), (g+8, t+1), and of the left factor the pairs at (g, t),
   (g+8, t), (g, t+8), (g+8, t+8). So two neighbouring results, 16 x 16 together, rounded to BF16 pairs, are just what the lane
   must hold of a left factor: scores become P or ds and go on as the left factor of the next product, and never leave the
   registers.

   Tiles lie in shared memory row by row, D numbers in chunks of 8 (16 bytes, what ldmatrix reads at once). The 8 rows of an
   8 x 8 matrix are read together and should fall into different banks: the 8 places of 16 bytes in a line of 128. So chunk c
   of a row stands at c xor row where a row fills lines; where a line has several rows, at c xor line. */

/* Chunk first + more of a row; first is even and known to the compiler, so that what more and row make of it is found once. */
template <int D> static __device__ __forceinline__ int tnc_tile_at(int row, int first, int more)
{
    enum { chunks = D / 8, lines = chunks < 8 ? 8 / chunks : 1, mask = (chunks < 8 ? chunks : 8) - 1 };
    return row * D + ((first & ~mask) << 3) + (((first & mask) ^ (more ^ (row / lines & mask))) << 3);
}

/* ROWS rows of D numbers, of which `there` are; zeros for the others. They have arrived after a wait and a barrier. A thread's
   chunks are 8 rows or a multiple of it apart, where the order within a line is the same. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tnc_tile_load(tnc_bf16 *tile, const tnc_bf16 *from, int64_t pitch, int64_t there)
{
    enum { chunks = D / 8, step = THREADS / chunks };
    const int thread = tnc_thread_anew(), chunk = thread % chunks, rows = there < ROWS ? (int)there : (int)ROWS;
    int       row = thread / chunks;
    from += row * pitch + chunk * 8;
    tile += tnc_tile_at<D>(row, 0, chunk);
    TNC_ROLLED
    for (; row < ROWS; row += step, from += step * pitch, tile += step * D) {
        if (row < rows) tnc_cp_async16(tile, from);
        else *reinterpret_cast<uint4 *>(tile) = make_uint4(0, 0, 0, 0);
    }
}

/* The left factor at rows row .. row + 15, columns 16 k .. 16 k + 15. ldmatrix takes four 8 x 8 matrices in the order that mma
   wants them: above, below; then the same to the right. Lanes 0-7 point at the rows of the first, 8-15 of the second, ... */
template <int D> static __device__ __forceinline__ void tnc_frag_left(unsigned f[4], const tnc_bf16 *tile, int row, int k)
{
    const int lane = (int)threadIdx.x & 31;
    tnc_ldmatrix_x4(f, tile + tnc_tile_at<D>(row + (lane & 15), 2 * k, lane >> 4));
}

/* Two right factors, the transposes of rows row .. row + 7 and row + 8 .. row + 15 at columns 16 k ..: f[0], f[1] and f[2], f[3].
   A right factor goes down its columns, which are this tile's rows: no transposition is needed. */
template <int D> static __device__ __forceinline__ void tnc_frag_right(unsigned f[4], const tnc_bf16 *tile, int row, int k)
{
    const int lane = (int)threadIdx.x & 31;
    tnc_ldmatrix_x4(f, tile + tnc_tile_at<D>(row + (lane & 7) + (lane >> 4) * 8, 2 * k, lane >> 3 & 1));
}

/* Two right factors as they stand: rows row .. row + 15, columns 16 n .. 16 n + 7 and the next 8. Transposed on the way. */
template <int D> static __device__ __forceinline__ void tnc_frag_down(unsigned f[4], const tnc_bf16 *tile, int row, int n)
{
    const int lane = (int)threadIdx.x & 31;
    tnc_ldmatrix_x4_trans(f, tile + tnc_tile_at<D>(row + (lane & 15), 2 * n, lane >> 4));
}

/* s = a b^T: 16 M rows of a, N rows of b, D numbers each. A right factor serves all M. */
template <int M, int N, int D>
static __device__ __forceinline__ void tnc_mma_rows(float (&s)[M][N / 8][4], const tnc_bf16 *a, int a_row, const tnc_bf16 *b,
                                                    int b_row)
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
        for (m = 0; m < M; m++) tnc_frag_left<D>(left[m], a, a_row + 16 * m, k);
        TNC_UNROLL
        for (n = 0; n < N / 16; n++) {
            unsigned right[4];
            tnc_frag_right<D>(right, b, b_row + 16 * n, k);
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
static __device__ __forceinline__ void tnc_mma_step(float (&out)[M][C / 8][4], const unsigned (&p)[M][4], const tnc_bf16 *x, int row)
{
    int m, n;
    TNC_UNROLL
    for (n = 0; n < C / 16; n++) {
        unsigned right[4];
        tnc_frag_down<C>(right, x, row, n);
        TNC_UNROLL
        for (m = 0; m < M; m++) {
            tnc_mma_bf16(out[m][2 * n], p[m], right);
            tnc_mma_bf16(out[m][2 * n + 1], p[m], right + 2);
        }
    }
}

static __device__ __forceinline__ unsigned tnc_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    unsigned             bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* Do the queries [q0,q1] see the keys [k0,k1]: none 0, some 1, all 2? */
static __device__ __forceinline__ int tnc_attend_meet(const tnc_attend &p, int q0, int q1, int k0, int k1)
{
    const tnc_seen<int> first = tnc_attend_seen(p, q0), last = tnc_attend_seen(p, q1);
    if (q0 >= p.Tq || k1 < first.low || k0 >= last.high) return 0;
    return last.low <= k0 && k1 < first.high ? 2 : 1;
}

/* Two neighbouring numbers of a row of `to`, stored or added. */
static __device__ __forceinline__ void tnc_attend_put(const tnc_attend &p, const tnc_heads &to, int b, int t, int h, int col, int n,
                                                      float x0, float x1, bool add)
{
    if (p.wide) {
        float *at = tnc_head<float>(to, b, t, h) + col;
        if (col < n) at[0] = (add ? at[0] : 0.0f) + x0;
        if (col + 1 < n) at[1] = (add ? at[1] : 0.0f) + x1;
        return;
    }
    tnc_bf16 *at = tnc_head<tnc_bf16>(to, b, t, h) + col;
    if (col + 1 < n && ((size_t)at & 3) == 0) {
        __nv_bfloat162 *two = reinterpret_cast<__nv_bfloat162 *>(at);
        float2          old = add ? __bfloat1622float2(*two) : make_float2(0.0f, 0.0f);
        *two = __floats2bfloat162_rn(old.x + x0, old.y + x1);
        return;
    }
    if (col < n) at[0] = tnc_from<tnc_bf16>((add ? tnc_to(at[0]) : 0.0f) + x0);
    if (col + 1 < n) at[1] = tnc_from<tnc_bf16>((add ? tnc_to(at[1]) : 0.0f) + x1);
}

/* The same for a warp's 16 M rows from `row` on, each times its factor. */
template <int M, int C>
static __device__ __forceinline__ void tnc_attend_put_rows(const tnc_attend &p, const tnc_heads &to, int b, int h, int row, int rows,
                                                           int n, const float (&x)[M][C / 8][4],
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
            TNC_UNROLL
            for (c = 0; c < C / 8; c++)
                tnc_attend_put(p, to, b, t, h, 8 * c + 2 * (lane & 3), n, factor[m][half] * x[m][c][2 * half],
                               factor[m][half] * x[m][c][2 * half + 1], add);
        }
}

/* What registers and shared memory are used for. A thread may have 255 registers, and two blocks of 128 such threads then fill a
   multiprocessor's 64 K; two times 112 KiB is about its shared memory. A thread has C / 2 sums of C columns of 16 rows.

   Forward: 32 queries a warp, so that each right factor that is read serves two left ones; keys come in stages of 64, of 32 where
   both scores of 64 and o would be too much. */
template <int KIND, int D, int DV> struct tnc_attend_plan {
    enum {
        threads = 128, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1,
        queries = 128, keys = sets == 2 && DV > 64 ? 32 : 64,
        stage = keys * (sets * D + DV),
        bytes = 2 * (queries * sets * D + 2 * stage)
    };
};

/* Backward: `sums` a thread has all the time (for 16 rows), scores get what is left of 200 as columns; 32 rows a warp if then at
   least 16 columns remain. */
template <int KIND, int D, int DV, bool KEYS> struct tnc_attend_back_plan {
    enum {
        threads = 128, sets = KIND == TN_ATTEND_BILINEAR ? 2 : 1,
        sums = (sets * D + (KEYS ? DV : 0)) / 2,
        M = (100 - sums) / (sets + 1) * 2 >= 16 ? 2 : 1,                /* tiles of 16 own rows, a warp    */
        left = (200 / M - sums) / (sets + 1) * 2,
        N = left >= 64 ? 64 : left >= 32 ? 32 : 16,                     /* columns of scores at a time     */
        own = 64 * M, row = sets * D + DV,                              /* own rows of a block             */
        wide = 2 * (own + 2 * 64) * (row + 8),
        others = N < 64 && wide > 112 * 1024 ? 32 : 64,                 /* rows of a stage                 */
        stage = others * (row + (KEYS ? 8 : 0)),                        /* with a float4 of each query     */
        bytes = 2 * (own * (row + (KEYS ? 0 : 8)) + 2 * stage)
    };
};

/* Four warps of 32 queries each walk over the keys, two stages of which are in shared memory: one is being read while the next
   arrives. Nothing but o (and the statistic) is written. */
template <int KIND, int D, int DV> __global__ void __launch_bounds__(128, 2) tnc_attend_mma(tnc_attend p)
{
    typedef tnc_attend_plan<KIND, D, DV> plan;
    enum { sets = plan::sets, keys = plan::keys, stage = plan::stage, threads = plan::threads, queries = plan::queries };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16     *const q = shared, *const stages = shared + queries * sets * D;
    const bool    softmax = KIND == TN_ATTEND_SOFTMAX, sums = KIND == TN_ATTEND_SQUARED && p.sums;
    const int     lane = (int)threadIdx.x & 31, warp_row = (int)threadIdx.x / 32 * 32;
    const int     H = (int)p.H, heads = (int)p.B * H, Tq = (int)p.Tq, Tk = (int)p.Tk, tiles = (Tq + queries - 1) / queries;
    int           set, m, n, e, k;
    const int head = (int)blockIdx.x % heads, b = head / H, h = head % H;
    const int i0 = (tiles - 1 - (int)blockIdx.x / heads) * queries;                 /* those with most keys come first */
    const int last = i0 + queries < Tq ? i0 + queries - 1 : Tq - 1;
    const int from = tnc_attend_seen(p, i0).low, to = tnc_attend_seen(p, last).high;
    float         o[2][DV / 8][4], most[2][2], total[2][2];
    int           j0, turn = 0;
    auto load = [&](int which, int j) {
        tnc_bf16 *at = stages + which * stage;
        for (int x = 0; x < sets; x++)
            tnc_tile_load<D, keys, threads>(at + x * keys * D, tnc_head<const tnc_bf16>(p.k, b, j, h + x * H), p.k.t, Tk - j);
        tnc_tile_load<DV, keys, threads>(at + sets * keys * D, tnc_head<const tnc_bf16>(p.v, b, j, h), p.v.t, Tk - j);
    };
    for (set = 0; set < sets; set++)
        tnc_tile_load<D, queries, threads>(q + set * queries * D, tnc_head<const tnc_bf16>(p.q, b, i0, h + set * H), p.q.t,
                                           Tq - i0);
    if (from < to) load(0, from);
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
    for (j0 = from; j0 < to; j0 += keys, turn ^= 1) {
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
            tnc_mma_rows<2, keys, D>(s[set], q + set * queries * D, warp_row, kt + set * keys * D, 0);
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
        TNC_UNROLL
        for (k = 0; k < keys / 16; k++) {
            unsigned left[2][4];
            TNC_UNROLL
            for (m = 0; m < 2; m++)
                TNC_UNROLL
                for (e = 0; e < 4; e++) left[m][e] = tnc_pair(s[0][m][2 * k + e / 2][e % 2 * 2], s[0][m][2 * k + e / 2][e % 2 * 2 + 1]);
            tnc_mma_step<2, DV>(o, left, vt, 16 * k);
        }
    }
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
            if (seen.high == seen.low || (softmax && most[m][k] == -INFINITY)) factor = 0.0f;
            if (p.stat && (lane & 3) == 0 && i < Tq)
                ((float *)p.stat)[(int64_t)head * Tq + i] = softmax ? most[m][k] * 0.6931471805599453f + logf(sum) : sum;
            total[m][k] = factor;
        }
    tnc_attend_put_rows<2, DV>(p, p.o, b, h, i0 + warp_row, Tq, (int)p.n_v, o, total, false);
    tnc_cp_async_wait<0>();
}

/* Backwards, as the plain one: own rows are keys (to dk, dv) or queries (to dq), the others stream by in two stages. Scores have
   own rows and the others' columns, so that ds and P are left factors of the others' rows: no transposition anywhere. */
template <int KIND, int D, int DV, bool KEYS>
__global__ void __launch_bounds__(128, 2) tnc_attend_mma_back(tnc_attend p)
{
    typedef tnc_attend_back_plan<KIND, D, DV, KEYS> plan;
    enum { sets = plan::sets, M = plan::M, N = plan::N, own_rows = plan::own, others = plan::others, stage = plan::stage,
           threads = plan::threads };
    TNC_DYN_SHARED(tnc_bf16, shared);
    tnc_bf16 *const  own_x = shared, *const own_y = shared + own_rows * sets * D, *const stages = own_y + own_rows * (DV + (KEYS ? 0 : 8));
    const bool       softmax = KIND == TN_ATTEND_SOFTMAX;
    const int        lane = (int)threadIdx.x & 31, warp_row = (int)threadIdx.x / 32 * 16 * M;
    const tnc_heads &gx = KEYS ? p.k : p.q, &gy = KEYS ? p.v : p.dout, &hx = KEYS ? p.q : p.k, &hy = KEYS ? p.dout : p.v;
    const int        H = (int)p.H, heads = (int)p.B * H, T_own = (int)(KEYS ? p.Tk : p.Tq), T_other = (int)(KEYS ? p.Tq : p.Tk);
    const int        tiles = (T_own + own_rows - 1) / own_rows;
    int              set, m, n, e, k;
    const int head = (int)blockIdx.x % heads, b = head / H, h = head % H, tile = (int)blockIdx.x / heads;
    const int own = (KEYS ? tile : tiles - 1 - tile) * own_rows;                             /* causal: the longest first */
    const int last = own + own_rows < T_own ? own + own_rows - 1 : T_own - 1, mine = own + warp_row;
    const tnc_bf16 *const rows = (const tnc_bf16 *)p.rows + head * p.Tq * 8;      /* 16 bytes a query, too */
    float         dx[sets][M][D / 8][4], dv[M][DV / 8][4], factor[M][2];
    int           at, from, to, turn = 0, sub;
    auto load = [&](int which, int t) {
        tnc_bf16 *x = stages + which * stage;
        for (int y = 0; y < sets; y++)
            tnc_tile_load<D, others, threads>(x + y * others * D, tnc_head<const tnc_bf16>(hx, b, t, h + y * H), hx.t, T_other - t);
        tnc_tile_load<DV, others, threads>(x + sets * others * D, tnc_head<const tnc_bf16>(hy, b, t, h), hy.t, T_other - t);
        if (KEYS) tnc_tile_load<8, others, threads>(x + others * (sets * D + DV), rows + (int64_t)t * 8, 8, T_other - t);
    };
    if (KEYS) {
        from = tnc_attend_seeing(p, own, last).low;
        to = tnc_attend_seeing(p, own, last).high;
    } else {
        from = tnc_attend_seen(p, own).low;
        to = tnc_attend_seen(p, last).high;
    }
    for (set = 0; set < sets; set++)
        tnc_tile_load<D, own_rows, threads>(own_x + set * own_rows * D, tnc_head<const tnc_bf16>(gx, b, own, h + set * H), gx.t,
                                            T_own - own);
    tnc_tile_load<DV, own_rows, threads>(own_y, tnc_head<const tnc_bf16>(gy, b, own, h), gy.t, T_own - own);
    if (!KEYS) tnc_tile_load<8, own_rows, threads>(own_y + own_rows * DV, rows + (int64_t)own * 8, 8, T_own - own);
    if (from < to) load(0, from);
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
    for (at = from; at < to; at += others, turn ^= 1) {
        const tnc_bf16 *xt = stages + turn * stage, *yt = xt + sets * others * D;
        const float4   *queries = reinterpret_cast<const float4 *>(KEYS ? yt + others * DV : own_y + own_rows * DV);
        tnc_cp_async_wait<0>();
        __syncthreads();                        /* this stage is there, and nobody reads the other any more */
        if (at + others < to) load(turn ^ 1, at + others);
        tnc_cp_async_commit();
        for (sub = 0; sub < others; sub += N) {
            const int meet = KEYS ? tnc_attend_meet(p, at + sub, at + sub + N - 1, mine, mine + 16 * M - 1)
                                  : tnc_attend_meet(p, mine, mine + 16 * M - 1, at + sub, at + sub + N - 1);
            float     s[sets][M][N / 8][4], dp[M][N / 8][4];
            if (meet == 0) continue;
            TNC_UNROLL
            for (set = 0; set < sets; set++)
                tnc_mma_rows<M, N, D>(s[set], own_x + set * own_rows * D, warp_row, xt + set * others * D, sub);
            if (meet == 1) {
                TNC_UNROLL
                for (m = 0; m < M; m++)
                    TNC_UNROLL
                    for (n = 0; n < N / 8; n++)
                        TNC_UNROLL
                        for (e = 0; e < 4; e++) {
                            const int           row = mine + 16 * m + 8 * (e / 2) + lane / 4, col = at + sub + 8 * n + 2 * (lane & 3) + e % 2;
                            const tnc_seen<int> seen = tnc_attend_seen(p, KEYS ? col : row);
                            if ((KEYS ? row : col) >= seen.low && (KEYS ? row : col) < seen.high) continue;
                            s[0][m][n][e] = !softmax ? 0.0f : p.score < 0.0f ? INFINITY : -INFINITY;
                            if (sets == 2) s[sets - 1][m][n][e] = 0.0f;
                        }
            }
            tnc_mma_rows<M, N, DV>(dp, own_y, warp_row, yt, sub);
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
                        const float a0 = s[0][m][c][r], a1 = s[0][m][c][r + 1], b0 = s[sets - 1][m][c][r], b1 = s[sets - 1][m][c][r + 1];
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
                if (KEYS) tnc_mma_step<M, DV>(dv, left_p, yt, sub + 16 * k);
                TNC_UNROLL
                for (set = 0; set < sets; set++) tnc_mma_step<M, D>(dx[set], left_s[set], xt + set * others * D, sub + 16 * k);
            }
        }
    }
    TNC_UNROLL
    for (m = 0; m < M; m++)
        factor[m][0] = factor[m][1] = softmax ? p.score : sets == 2 ? p.square : 2.0f * p.square;
    TNC_UNROLL
    for (set = 0; set < sets; set++)
        if ((KEYS ? p.dk : p.dq).data)
            tnc_attend_put_rows<M, D>(p, KEYS ? p.dk : p.dq, b, h + set * H, mine, T_own, (int)p.n_qk, dx[set], factor, true);
    TNC_UNROLL
    for (m = 0; m < M; m++) factor[m][0] = factor[m][1] = softmax ? 1.0f : p.square;
    if (KEYS && p.dv.data) tnc_attend_put_rows<M, DV>(p, p.dv, b, h, mine, T_own, (int)p.n_v, dv, factor, true);
    tnc_cp_async_wait<0>();
}

/* An operand for the kernels above: BF16 [B,T,n,D], zeros behind d. A thread has 8 numbers. */
template <typename T> __global__ void tnc_attend_pack(tnc_heads x, int64_t time, int64_t n, int64_t d, int64_t D, int64_t chunks, uint4 *to)
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

/* ---- attention: which kernels ------------------------------------------------------------------------------------------- */

/* Head sizes of the tensor-core kernels, q's and k's, and v's: a call takes the first pair that holds its own, zeros behind. */
#define TNC_ATTEND_SIZES(X) X(16, 16) X(32, 32) X(32, 64) X(64, 64) X(32, 128) X(64, 128) X(128, 128)

static unsigned tnc_blocks(int64_t n) { return (unsigned)(n < 0x7fffffff ? n : 0x7fffffff); }

/* The forward kernel of a kind and a pair of sizes, or the two of the backward pass. */
template <int KIND, int D, int DV> static void tnc_attend_run_mma(tnc *s, const tnc_attend &p, bool back)
{
    typedef tnc_attend_plan<KIND, D, DV> plan;
    typedef tnc_attend_back_plan<KIND, D, DV, false> by_query;
    typedef tnc_attend_back_plan<KIND, D, DV, true> by_key;
    const int64_t heads = p.B * p.H, tiles = tnc_ceil(p.Tq, plan::queries) * heads, queries = tnc_ceil(p.Tq, by_query::own) * heads;
    const int64_t keys = tnc_ceil(p.Tk, by_key::own) * heads;
    if (!back) {
        cudaFuncSetAttribute(tnc_attend_mma<KIND, D, DV>, cudaFuncAttributeMaxDynamicSharedMemorySize, plan::bytes);
        TNC_LAUNCH((tnc_attend_mma<KIND, D, DV>), (unsigned)tiles, plan::threads, plan::bytes, s->stream, p);
        return;
    }
    if (p.dq.data) {
        cudaFuncSetAttribute(tnc_attend_mma_back<KIND, D, DV, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, by_query::bytes);
        TNC_LAUNCH((tnc_attend_mma_back<KIND, D, DV, false>), (unsigned)queries, by_query::threads, by_query::bytes, s->stream, p);
    }
    if (p.dk.data || p.dv.data) {
        cudaFuncSetAttribute(tnc_attend_mma_back<KIND, D, DV, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, by_key::bytes);
        TNC_LAUNCH((tnc_attend_mma_back<KIND, D, DV, true>), (unsigned)keys, by_key::threads, by_key::bytes, s->stream, p);
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
#define TNC_X(D, DV) { D, DV, { TNC_Y(TN_ATTEND_SOFTMAX, D, DV), TNC_Y(TN_ATTEND_SQUARED, D, DV), TNC_Y(TN_ATTEND_BILINEAR, D, DV) } },
    static const tnc_attend_size sizes[] = { TNC_ATTEND_SIZES(TNC_X) };
#undef TNC_X
#undef TNC_Y
    size_t i;
    if (dtype == TN_F64 || (dtype == TN_F32 && s->precision != TN_GEMM_BF16) || p.n_v == 0) return NULL;
    if (p.Tk < 128 || p.Tq + p.Tk > INT32_MAX / 2 || p.B * p.H * ((p.Tq + p.Tk) / 64 + 1) > INT32_MAX) return NULL;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (p.n_qk <= sizes[i].d && p.n_v <= sizes[i].dv)
            return (size_t)sizes[i].kind[p.kind].shared <= s->shared_max ? &sizes[i] : NULL;
    return NULL;
}

/* An operand [B,time,n,d] for those kernels: as it is, if it is BF16, of whole chunks, and aligned; else a copy. */
typedef struct tnc_attend_operand { tnc_heads *x; int64_t time, n, d, D; size_t bytes; } tnc_attend_operand;

static tnc_attend_operand tnc_attend_operand_of(const tnc_attend &p, tnc_heads *x, tn_dtype dtype, bool key, bool value, int D)
{
    tnc_attend_operand o = { x, key ? p.Tk : p.Tq, p.H * (!value && p.kind == TN_ATTEND_BILINEAR ? 2 : 1), value ? p.n_v : p.n_qk, D, 0 };
    const bool whole = o.d == D && x->b % 8 == 0 && x->t % 8 == 0 && x->h % 8 == 0 && (size_t)x->data % 16 == 0;
    if (dtype != TN_BF16 || !whole) o.bytes = (size_t)(p.B * o.time * o.n * D) * sizeof(tnc_bf16);
    return o;
}

static char *tnc_attend_copy(tnc *s, tnc_attend_operand o, tn_dtype dtype, char *to)
{
    const int64_t chunks = (int64_t)(o.bytes / 16);
    if (chunks == 0) return to;
    if (dtype == TN_F32)
        TNC_LAUNCH((tnc_attend_pack<float>), tnc_grid(s, chunks, 256), 256, 0, s->stream, *o.x, o.time, o.n, o.d, o.D, chunks, (uint4 *)to);
    else
        TNC_LAUNCH((tnc_attend_pack<tnc_bf16>), tnc_grid(s, chunks, 256), 256, 0, s->stream, *o.x, o.time, o.n, o.d, o.D, chunks, (uint4 *)to);
    *o.x = tnc_heads{ to, o.time * o.n * o.D, o.n * o.D, o.D };
    return to + o.bytes;
}

/* Operands as the tensor-core kernels want them, behind `taken` bytes of scratch that are the caller's. */
static tn_status tnc_attend_operands(tnc *s, tnc_attend *p, const tnc_attend_size *size, tn_dtype dtype, size_t taken, bool back, void **scratch)
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
    if (bytes == 0) return TN_OK;
    if (!(*scratch = tnc_scratch(s, bytes))) return TN_ERR_MEMORY;
    for (i = 0, to = (char *)*scratch + taken; i < n; i++) to = tnc_attend_copy(s, all[i], dtype, to);
    return TN_OK;
}

/* ---- attention: the rows ------------------------------------------------------------------------------------------------ */

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
    p.sums = p.row == TN_ROW_SUM;
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

template <typename T> static void tnc_attend_run_plain(tnc *s, const tnc_attend &p)
{
    typedef tnc_attend_room<typename tnc_real<T>::type> room;
    const int64_t slabs = p.n_v > 0 ? tnc_ceil(p.n_v, room::side) : 1, blocks = tnc_ceil(p.Tq, room::side) * p.B * p.H * slabs;
    TNC_LAUNCH((tnc_attend_plain<T>), tnc_blocks(blocks), room::threads, 0, s->stream, p, slabs, blocks);
}

/* Parts of the keys for the query that sees most. */
static int64_t tnc_attend_parts(const tnc_attend &p)
{
    const int64_t most = p.window > 0 ? (p.causal ? p.window : 2 * p.window - 1) : p.Tk, keys = most < p.Tk ? most : p.Tk;
    return keys > 0 ? tnc_ceil(keys, TNC_ATTEND_PART) : 1;
}

template <typename T> static void tnc_attend_run_few(tnc *s, const tnc_attend &p)
{
    const int64_t rows = p.B * p.H * p.Tq, parts = tnc_attend_parts(p);
    TNC_LAUNCH((tnc_attend_part<T>), tnc_blocks(rows * parts), 128, 0, s->stream, p, parts, rows * parts);
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
        if (tnc_attend_operands(s, &m, size, dtype, 0, false, &scratch) != TN_OK) return TN_ERR_MEMORY;
        size->kind[p.kind].run(s, m, false);
        return TN_OK;
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
        TNC_LAUNCH((tnc_attend_plain_back<T, false>), tnc_blocks(queries), room::threads, 0, s->stream, p, slabs, queries);
    if (p.dk.data || p.dv.data)
        TNC_LAUNCH((tnc_attend_plain_back<T, true>), tnc_blocks(keys), room::threads, 0, s->stream, p, wide, keys);
}

static tn_status tnc_attention_backward(tnc *s, const tn_call *c)
{
    const tn_view *all[] = { &c->in[0], &c->in[1], &c->in[2], &c->in[3], &c->in[5], &c->out[0], &c->out[1], &c->out[2] };
    tnc_attend     p = tnc_attend_of(c);
    const tn_dtype dtype = c->in[0].dtype;
    const int64_t  rows = p.B * p.H * p.Tq;
    const size_t   bytes = 4 * (size_t)rows * (dtype == TN_F64 ? 8 : 4);
    const tnc_attend_size *size = tnc_attend_size_of(s, p, dtype);
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
    if (size && tnc_attend_operands(s, &m, size, dtype, bytes, true, &m.rows) != TN_OK) return TN_ERR_MEMORY;
    p.rows = m.rows = size ? m.rows : tnc_scratch(s, bytes);
    if (!p.rows) return TN_ERR_MEMORY;
    TNC_TYPES(dtype, T, TNC_LAUNCH((tnc_attend_rows<T>), tnc_grid(s, rows, 8), 256, 0, s->stream, p);
              if (!size) tnc_attend_run_plain_back<T>(s, p))
    if (size) size->kind[p.kind].run(s, m, true);
    return TN_OK;
}

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
