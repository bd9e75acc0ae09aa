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

static void tnc_close(void *state)
{
    tnc *s = (tnc *)state;
    int  i;
    if (cudaSetDevice(s->device) == cudaSuccess) {
        if (s->stream) cudaStreamSynchronize(s->stream);
        tnc_blas_close(&s->blas);
        cudaFree(s->blas_room);
        cudaFree(s->scratch);
        for (i = 0; i < TNC_STAGES; i++) {
            if (s->stage[i]) cudaFreeHost(s->stage[i]);
            if (s->staged[i]) cudaEventDestroy(s->staged[i]);
        }
        if (s->stream) cudaStreamDestroy(s->stream);
    }
    (void)cudaGetLastError();
    s->allocator.release(s, sizeof *s, s->allocator.user);
}

__global__ void tnc_nothing(void) {}

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
    cudaFree(s->scratch);                                       /* waits for what still uses it */
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

/* ---- attention in linear time ----------------------------------------------------------------- >>attention_linear
   All of it is one trilinear sum over the pairs that see each other, L = sum_ij (q1_i.k1_j)(q2_i.k2_j)(u_i.v_j): the output is
   dL/du, its gradients are dL/dq1, dL/dq2, dL/dk1, dL/dk2 and dL/dv. So there is one formula. Rows x (queries, or keys) have
   three vectors each, as have the rows y of the other side, and of {a,b,m} = {0,1,2}, a < b,

       out_r = sum_s (x_a.y_a)(x_b.y_b) y_m = sum_{i,k} x_a[i] x_b[k] S[..]      S[i0,i1,i2] = sum_s y_0[i0] y_1[i1] y_2[i2]

   Positions go in chunks. What rows of a chunk see of other chunks is in the state S, an exclusive sum over the chunks (from the
   first on for queries, from the last for keys); what they see of their own chunk goes by pairs. phi(x) = x_a (x) x_b is made
   where it is used, from shared memory, and never stored. u_i = c_i do_i; with a row sum u and v have one number more, see
   >>op-attention_linear of tensornet.h. Squared attention has x_0 = x_1 and y_0 = y_1, and one gradient for both.

   A state has d d n numbers (n = dv, or dv + 1): 8 MiB at d = dv = 128. As many chunks of as many heads go at once as fit into
   TNC_LINEAR_ROOM, the sums travel on between them; that changes no bit of the result.                                      */

enum { TNC_LINEAR_FEW = 8 };                            /* keys of a call that are put into a state one by one */
static const size_t TNC_LINEAR_ROOM = (size_t)1 << 30;

/* Row t of head h, item b of the batch: p + b batch + t row + h head, its numbers side by side. */
typedef struct tnc_linear_set { void *p; int64_t batch, row, head; } tnc_linear_set;

/* Row t stands at position t + shift. */
typedef struct tnc_linear_side { tnc_linear_set set[3]; int64_t T, shift; } tnc_linear_side;

typedef struct tnc_linear {
    tnc_linear_side x, y;                               /* the rows that get, the rows that give               */
    int64_t         w[3];                               /* extents of the three vectors: d, d, n               */
    int64_t         stride[3];                          /* of the state: what one step along each means        */
    int64_t         H, heads;                           /* of one item of the batch, of all                    */
    int64_t         length, chunk, chunks;              /* positions; of a chunk; how many chunks              */
    bool            causal, back;                       /* back: a row sees positions >= its own, else <=      */
    bool            squared;
} tnc_linear;

/* c_i of query i */
typedef struct tnc_linear_scale { int kind; bool causal; int64_t Tk, ahead, past; double length; const void *stat; } tnc_linear_scale;

/* One gradient, or the output: out = or += factor c_i dL/d(set m of x). */
typedef struct tnc_linear_pass {
    tnc_linear_set   out;
    int              m;
    int64_t          width;                             /* columns that are wanted */
    bool             add, scaled;
    double           factor;
    tnc_linear_scale scale;
} tnc_linear_pass;

template <typename R> static __device__ __forceinline__ R tnc_linear_row_scale(const tnc_linear_scale &c, int64_t head, int64_t T, int64_t i)
{
    int64_t n = c.causal ? c.ahead + i + 1 : c.Tk;
    n = (n < 0 ? 0 : n) + c.past;
    switch (c.kind) {
    case TN_ROW_SUM:    return R(1) / ((const R *)c.stat)[head * T + i];
    case TN_ROW_LENGTH: return R(n) > R(c.length) ? sqrt(R(c.length) / R(n)) : R(1);
    case TN_ROW_MEAN:   return n > 0 ? R(1) / R(n) : R(0);
    default:            return R(1);
    }
}

template <typename T> static __device__ __forceinline__ T *tnc_linear_row(const tnc_linear_set &s, int64_t H, int64_t head, int64_t t)
{
    return (T *)s.p + head / H * s.batch + t * s.row + head % H * s.head;
}

/* A vector per row, side by side for the kernels: [heads,T,pitch] of P, what is behind `width` and what it gets are zeros.
   ONE: v' = [v 1]. SLOPE: u' = c [do, -do.o].   One warp a row; floor: the bytes read and written, once. */
enum { TNC_LINEAR_COPY, TNC_LINEAR_ONE, TNC_LINEAR_SLOPE };

template <typename T, typename P> __global__ void tnc_linear_pack(tnc_linear_set from, tnc_linear_set o, int mode, tnc_linear_scale c,
                                                                  int64_t H, int64_t heads, int64_t rows, int64_t width,
                                                                  int64_t pitch, P *to)
{
    typedef typename tnc_real<T>::type R;
    const int64_t lane = threadIdx.x & 31, step = (int64_t)gridDim.x * (blockDim.x >> 5);
    int64_t       at, e;
    for (at = (int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); at < heads * rows; at += step) {
        const int64_t head = at / rows, t = at % rows;
        const T *x = tnc_linear_row<const T>(from, H, head, t);
        R        scale = mode == TNC_LINEAR_SLOPE ? tnc_linear_row_scale<R>(c, head, rows, t) : R(1), extra = R(0);
        if (mode == TNC_LINEAR_SLOPE && c.kind == TN_ROW_SUM) {
            const T *y = tnc_linear_row<const T>(o, H, head, t);
            for (e = lane; e < width; e += 32) extra -= tnc_to(x[e]) * tnc_to(y[e]);
            extra = tnc_warp_sum(extra);
        }
        if (mode == TNC_LINEAR_ONE) extra = R(1);
        for (e = lane; e < pitch; e += 32)
            to[at * pitch + e] = tnc_from<P>(typename tnc_real<P>::type(scale * (e < width ? tnc_to(x[e]) : e == width ? extra : R(0))));
    }
}

/* ---- any extents, F32 and F64: tiles of 64 x 64, 256 threads with 4 x 4 sums each */

enum { TNC_LINEAR_TILE = 64, TNC_LINEAR_DEPTH = 16 };

template <typename R> static __device__ __forceinline__ void tnc_linear_product(const R (*A)[TNC_LINEAR_TILE + 4], const R (*B)[TNC_LINEAR_TILE + 4],
                                                                                R sum[4][4])
{
    const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
    int k, i, j;
    for (k = 0; k < TNC_LINEAR_DEPTH; k++)
        for (i = 0; i < 4; i++)
            for (j = 0; j < 4; j++) sum[i][j] = fma(A[k][row + i], B[k][column + j], sum[i][j]);
}

/* The rows of a side that stand in chunk c: [first,end) */
static __device__ __forceinline__ void tnc_linear_range(const tnc_linear &t, const tnc_linear_side &s, int64_t c, int64_t *first, int64_t *end)
{
    const int64_t low = c * t.chunk - s.shift, high = low + t.chunk;
    *first = low < 0 ? 0 : low;
    *end = high < s.T ? high : s.T;
}

/* S [heads,chunks,F,n] of this launch: what the y of each chunk give, sum_s phi(y)_f y_2[e]. Block: 64 features, 64 columns of
   one chunk of one head. Floor: 2 C F n flops a chunk. */
template <typename R> __global__ void __launch_bounds__(256) tnc_linear_states(tnc_linear t, int64_t head0, int64_t chunk0, R *S)
{
    TNC_SHARED(R, A, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    TNC_SHARED(R, B, [TNC_LINEAR_DEPTH][TNC_LINEAR_TILE + 4]);
    const int64_t F = t.w[0] * t.w[1], n = t.w[2], tiles = (F + TNC_LINEAR_TILE - 1) / TNC_LINEAR_TILE, head = head0 + blockIdx.z;
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
            A[k][column] = here && f0 + column < F ? tnc_linear_row<const R>(t.y.set[0], t.H, head, from + k)[a]
                                                     * tnc_linear_row<const R>(t.y.set[1], t.H, head, from + k)[b] : R(0);
            B[k][column] = here && e0 + column < n ? tnc_linear_row<const R>(t.y.set[2], t.H, head, from + k)[e0 + column] : R(0);
        }
        __syncthreads();
        tnc_linear_product<R>(A, B, sum);
        __syncthreads();
    }
    S += ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * F * n;
    for (i = 0; i < 4; i++)
        for (j = 0; j < 4; j++) {
            const int64_t f = f0 + threadIdx.x / 16 * 4 + i, e = e0 + threadIdx.x % 16 * 4 + j;
            if (f < F && e < n) S[f * n + e] = sum[i][j];
        }
}

/* S [heads,chunks,size]: in place the sum of what stands before each chunk (back: behind), carry [heads,size] included, which
   then has all. Floor: S read and written once. */
template <typename R> __global__ void tnc_linear_prefix(R *S, R *carry, int64_t heads, int64_t chunks, int64_t size, bool back)
{
    int64_t at, c;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * size; at += (int64_t)gridDim.x * blockDim.x) {
        R *p = S + at / size * chunks * size + at % size, sum = carry[at];
        for (c = 0; c < chunks; c++) {
            R *here = p + (back ? chunks - 1 - c : c) * size, own = *here;
            *here = sum;
            sum += own;
        }
        carry[at] = sum;
    }
}

/* A state operand [F',n] to a carry [d,d,n] of every head, or back; squared: F' = d(d+1)/2, a <= b. */
template <typename R> __global__ void tnc_linear_carry(R *carry, R *state, int64_t heads, int64_t d, int64_t n, bool squared, bool back)
{
    const int64_t size = d * d * n, features = squared ? d * (d + 1) / 2 : d * d;
    int64_t       at;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * size; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t e = at % n, b = at / n % d, a = at / n / d % d, low = a < b ? a : b, high = a < b ? b : a;
        R *own = state + (at / size * features + (squared ? low * d - low * (low - 1) / 2 + high - low : a * d + b)) * n + e;
        if (!back) carry[at] = *own;
        else if (!squared || a <= b) *own = carry[at];
    }
}

/* The output, or one gradient, of 64 rows x 64 columns; t: turned for it, {a,b,m} = {0,1,2}. S: as above, one state a chunk (each = 1), or one for all (each = 0);
   NULL: nothing to be seen but the own chunk. Floor: 2 F n flops a row, and half a chunk's pairs. */
template <typename R> __global__ void __launch_bounds__(256) tnc_linear_read(tnc_linear t, tnc_linear_pass p, int64_t head0, int64_t chunk0,
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
    if (S) {
        S += (blockIdx.z * (each ? gridDim.y / tiles : 1) + c * each) * t.w[0] * t.w[1] * t.w[2];
        for (i = 0; i < t.w[0]; i++)
            for (k0 = 0; k0 < t.w[1]; k0 += TNC_LINEAR_DEPTH) {
                for (n = 0; n < 4; n++) {
                    const int     row = tid / 16 + 16 * n;
                    const int64_t r = r0 + row - t.x.shift;
                    k = tid % 16;
                    A[k][row] = r >= 0 && r < t.x.T && k0 + k < t.w[1] ? tnc_linear_row<const R>(t.x.set[0], t.H, head, r)[i]
                                                                          * tnc_linear_row<const R>(t.x.set[1], t.H, head, r)[k0 + k] : R(0);
                    if (t.stride[2] == 1) { k = tid / 64 + 4 * n; m = tid % 64; }           /* in the order of memory */
                    else          { k = tid % 16; m = tid / 16 + 16 * n; }
                    B[k][m] = k0 + k < t.w[1] && c0 + m < t.w[2] ? S[i * t.stride[0] + (k0 + k) * t.stride[1] + (c0 + m) * t.stride[2]] : R(0);
                }
                __syncthreads();
                tnc_linear_product<R>(A, B, sum);
                __syncthreads();
            }
    }
    tnc_linear_range(t, t.y, chunk, &first, &end);
    if (!t.causal) end = first;                                                     /* all is in the state */
    for (s = first; s < end; s += TNC_LINEAR_DEPTH) {
        const int64_t low = s + t.y.shift, high = low + TNC_LINEAR_DEPTH;           /* positions */
        if (t.back ? high <= r0 : low >= r0 + TNC_LINEAR_TILE) continue;
        for (n = 0; n < 4; n++) {
            const int64_t row = tid % 64, r = r0 + row - t.x.shift;
            R             one = R(0), two = R(0);
            k = tid / 64 + 4 * n;
            if (s + k < end && r >= 0 && r < t.x.T && (t.back ? low + k >= r0 + row : low + k <= r0 + row)) {
                const R *xa = tnc_linear_row<const R>(t.x.set[0], t.H, head, r), *ya = tnc_linear_row<const R>(t.y.set[0], t.H, head, s + k);
                const R *xb = tnc_linear_row<const R>(t.x.set[1], t.H, head, r), *yb = tnc_linear_row<const R>(t.y.set[1], t.H, head, s + k);
                for (i = 0; i < t.w[0]; i++) one = fma(xa[i], ya[i], one);
                for (i = 0; i < t.w[1]; i++) two = fma(xb[i], yb[i], two);
            }
            A[k][row] = one * two;
            B[k][row] = s + k < end && c0 + row < t.w[2] ? tnc_linear_row<const R>(t.y.set[2], t.H, head, s + k)[c0 + row] : R(0);
        }
        __syncthreads();
        tnc_linear_product<R>(A, B, sum);
        __syncthreads();
    }
    for (n = 0; n < 4; n++)
        for (m = 0; m < 4; m++) {
            const int64_t r = r0 + tid / 16 * 4 + n - t.x.shift, column = c0 + tid % 16 * 4 + m;
            if (r >= 0 && r < t.x.T && column < p.width) {
                R *to = tnc_linear_row<R>(p.out, t.H, head, r) + column;
                R  value = sum[n][m] * R(p.factor) * (p.scaled ? tnc_linear_row_scale<R>(p.scale, head, t.x.T, r) : R(1));
                *to = p.add ? *to + value : value;
            }
        }
}

/* raw [heads,T,n], scaled: what is in its last column divides the others. */
template <typename T> __global__ void tnc_linear_divide(const typename tnc_real<T>::type *raw, int64_t H, int64_t heads, int64_t rows, int64_t n, double eps,
                                                        tnc_linear_set out, typename tnc_real<T>::type *stat)
{
    typedef typename tnc_real<T>::type R;
    int64_t at;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * rows * n; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = at / n, e = at % n;
        const R       total = raw[row * n + n - 1] + R(eps);
        if (e < n - 1) tnc_linear_row<T>(out, H, row / rows, row % rows)[e] = tnc_from<T>(raw[at] / total);
        else stat[row] = total;
    }
}

/* How much goes at once: `heads` x `chunks` states of `bytes` each, and one more a head. */
typedef struct tnc_linear_group { int64_t heads, chunks; size_t bytes; bool states; } tnc_linear_group;

static int64_t tnc_linear_clamp(double x, int64_t most) { return x < 1 ? 1 : x < (double)most ? (int64_t)x : most; }

static tnc_linear_group tnc_linear_groups(const tnc_linear *t, size_t state, size_t room, bool kept)
{
    tnc_linear_group g;
    const int64_t    most = 65535 / (t->chunk / TNC_LINEAR_TILE);                   /* of a grid's second extent */
    g.states = kept || t->chunks > 1 || !t->causal;
    g.heads = tnc_linear_clamp((double)room / 4 / (double)state, t->heads < 65535 ? t->heads : 65535);
    g.chunks = tnc_linear_clamp((double)room / (double)state / (double)g.heads - 1, t->chunks < most ? t->chunks : most);
    if (!g.states) { g.heads = t->heads < 65535 ? t->heads : 65535; g.chunks = 1; }
    g.bytes = g.states ? state * (size_t)g.heads * (size_t)(g.chunks + 1) : 0;
    return g;
}

/* t with its vectors in the order a, b, m, and the strides of its state. */
static tnc_linear tnc_linear_turned(const tnc_linear *t, int m)
{
    const int64_t stride[3] = { t->w[1] * t->w[2], t->w[2], 1 };
    const int     order[3] = { m == 0 ? 1 : 0, m == 2 ? 1 : 2, m };
    tnc_linear    r = *t;
    int           i;
    for (i = 0; i < 3; i++) {
        r.x.set[i] = t->x.set[order[i]];
        r.y.set[i] = t->y.set[order[i]];
        r.w[i] = t->w[order[i]];
        r.stride[i] = stride[order[i]];
    }
    return r;
}

/* All passes over the rows x. room: as the group says. state: the operand of the call or NULL, with what it holds after it. */
template <typename R> static void tnc_linear_sweep(tnc *s, const tnc_linear &t, const tnc_linear_pass *pass, int passes,
                                                   tnc_linear_group g, R *room, R *state)
{
    const int64_t size = t.w[0] * t.w[1] * t.w[2], tile = TNC_LINEAR_TILE;
    const int64_t features = t.squared ? t.w[0] * (t.w[0] + 1) / 2 : t.w[0] * t.w[1];
    int64_t       head, done, chunk;
    int           i;
    for (head = 0; head < t.heads; head += g.heads) {
        const int64_t heads = t.heads - head < g.heads ? t.heads - head : g.heads;
        R            *carry = room, *S = room + g.heads * size;
        const unsigned wide = tnc_grid(s, heads * size, 256);
        if (state) TNC_LAUNCH((tnc_linear_carry<R>), wide, 256, 0, s->stream, carry, state + head * features * t.w[2], heads, t.w[0], t.w[2], t.squared, false);
        else if (g.states) cudaMemsetAsync(carry, 0, (size_t)(heads * size) * sizeof(R), s->stream);
        for (done = 0; done < t.chunks; done += g.chunks) {
            const int64_t chunks = t.chunks - done < g.chunks ? t.chunks - done : g.chunks;
            chunk = t.back ? t.chunks - done - chunks : done;
            if (g.states) {
                TNC_LAUNCH((tnc_linear_states<R>), dim3((unsigned)(tnc_ceil(t.w[0] * t.w[1], tile) * tnc_ceil(t.w[2], tile)), (unsigned)chunks, (unsigned)heads),
                           256, 0, s->stream, t, head, chunk, S);
                TNC_LAUNCH((tnc_linear_prefix<R>), wide, 256, 0, s->stream, S, carry, heads, chunks, size, t.back);
            }
            for (i = 0; i < passes && t.causal; i++)
                TNC_LAUNCH((tnc_linear_read<R>), dim3((unsigned)tnc_ceil(t.w[pass[i].m], tile), (unsigned)(chunks * t.chunk / tile), (unsigned)heads),
                           256, 0, s->stream, tnc_linear_turned(&t, pass[i].m), pass[i], head, chunk, (const R *)(g.states ? S : NULL), (int64_t)1);
        }
        for (chunk = 0; chunk < t.chunks && !t.causal; chunk += g.chunks)
            for (i = 0; i < passes; i++) {
                const int64_t chunks = t.chunks - chunk < g.chunks ? t.chunks - chunk : g.chunks;
                TNC_LAUNCH((tnc_linear_read<R>), dim3((unsigned)tnc_ceil(t.w[pass[i].m], tile), (unsigned)(chunks * t.chunk / tile), (unsigned)heads),
                           256, 0, s->stream, tnc_linear_turned(&t, pass[i].m), pass[i], head, chunk, (const R *)carry, (int64_t)0);
            }
        if (state) TNC_LAUNCH((tnc_linear_carry<R>), wide, 256, 0, s->stream, carry, state + head * features * t.w[2], heads, t.w[0], t.w[2], t.squared, true);
    }
}

/* ---- a few tokens with a running state: the state is read and written once, nothing grows with the tokens before */

typedef struct tnc_linear_new { tnc_linear_set q[2], k[2], v, out; int64_t H, Tq, Tk, d, dv, n; bool squared, causal; } tnc_linear_new;

/* part [parts,heads,Tq,n]: what the state gave to each query, of 64 features a block; then the state takes in the keys.
   Floor: 2 F n numbers. Thread: every 8th feature, every 32nd column. */
template <typename T> __global__ void __launch_bounds__(256) tnc_linear_step(tnc_linear_new t, typename tnc_real<T>::type *state,
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
                now = fma(tnc_to(tnc_linear_row<const T>(t.k[0], t.H, head, j)[a]) * tnc_to(tnc_linear_row<const T>(t.k[1], t.H, head, j)[b]),
                          e < t.dv ? tnc_to(tnc_linear_row<const T>(t.v, t.H, head, j)[e]) : R(1), now);
            state[f * t.n + e] = now;
            if (before > 0) S = now;
            for (i = 0; i < TNC_LINEAR_FEW; i++)
                if (i < t.Tq)
                    sum[i] = fma(tnc_to(tnc_linear_row<const T>(t.q[0], t.H, head, i)[a]) * tnc_to(tnc_linear_row<const T>(t.q[1], t.H, head, i)[b])
                                 * R(t.squared && a != b ? 2 : 1), S, sum[i]);
        }
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
template <typename T> __global__ void tnc_linear_step_end(tnc_linear_new t, const typename tnc_real<T>::type *part, int64_t parts, int64_t heads,
                                                          double factor, tnc_linear_scale scale, typename tnc_real<T>::type *raw)
{
    typedef typename tnc_real<T>::type R;
    int64_t at, i, j, p;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * t.Tq * t.n; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t head = at / (t.Tq * t.n), row = at / t.n % t.Tq, e = at % t.n;
        R             sum = R(0), value;
        for (p = 0; p < parts; p++) sum += part[p * heads * t.Tq * t.n + at];
        for (j = 0; t.causal && j <= t.Tk - t.Tq + row; j++) {
            R one = R(0), two = R(0);
            for (i = 0; i < t.d; i++) {
                one = fma(tnc_to(tnc_linear_row<const T>(t.q[0], t.H, head, row)[i]), tnc_to(tnc_linear_row<const T>(t.k[0], t.H, head, j)[i]), one);
                two = fma(tnc_to(tnc_linear_row<const T>(t.q[1], t.H, head, row)[i]), tnc_to(tnc_linear_row<const T>(t.k[1], t.H, head, j)[i]), two);
            }
            sum = fma(one * two, e < t.dv ? tnc_to(tnc_linear_row<const T>(t.v, t.H, head, j)[e]) : R(1), sum);
        }
        value = sum * R(factor) * (scale.kind == TN_ROW_SUM ? R(1) : tnc_linear_row_scale<R>(scale, head, t.Tq, row));
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

static tnc_linear_scale tnc_linear_scale_of(const tn_call *c, bool backward)
{
    tnc_linear_scale r;
    r.kind = (int)c->f[2];
    r.causal = c->i[1] != 0;
    r.Tk = c->in[1].shape[1];
    r.ahead = r.Tk - c->in[0].shape[1];
    r.past = c->i[3];
    r.length = c->f[1];
    r.stat = backward ? c->in[4].data : NULL;
    return r;
}

/* The problem of a call: rows x are queries, or (back) keys. The vectors are set by the caller. */
static tnc_linear tnc_linear_of(const tn_call *c, bool back)
{
    const tn_view *Q = &c->in[0], *V = &c->in[2];
    tnc_linear     t;
    memset(&t, 0, sizeof t);
    t.H = V->shape[2];
    t.heads = V->shape[0] * t.H;
    t.w[0] = t.w[1] = Q->shape[3];
    t.w[2] = V->shape[3] + ((int)c->f[2] == TN_ROW_SUM);
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
    t.chunk = Q->shape[3] <= 16 ? 64 : Q->shape[3] <= 32 ? 128 : Q->shape[3] <= 64 ? 256 : 512;
    t.chunks = tnc_ceil(t.length, t.chunk);
    if (back) { const tnc_linear_side x = t.x; t.x = t.y; t.y = x; }
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

/* Scratch for `fixed` bytes and the states; where there is no room for TNC_LINEAR_ROOM of them, for fewer. */
static char *tnc_linear_room(tnc *s, const tnc_linear *t, size_t state, bool kept, size_t fixed, tnc_linear_group *g)
{
    size_t room;
    char  *p;
    for (room = TNC_LINEAR_ROOM; ; room /= 4) {
        *g = tnc_linear_groups(t, state, room, kept);
        p = (char *)tnc_scratch(s, fixed + g->bytes + 256);
        if (p || room / 4 < state) return p;
    }
}

static size_t tnc_linear_bytes(int64_t n, size_t size) { return ((size_t)n * size + 255) / 256 * 256; }

template <typename R> static tn_status tnc_linear_plain(tnc *s, const tn_call *c)
{
    tnc_linear       t = tnc_linear_of(c, false);
    tnc_linear_pass  pass;
    tnc_linear_group g;
    const bool       sums = (int)c->f[2] == TN_ROW_SUM;
    const size_t     raw_bytes = sums ? tnc_linear_bytes(t.heads * t.x.T * t.w[2], sizeof(R)) : 0;
    const size_t     v_bytes = sums ? tnc_linear_bytes(t.heads * t.y.T * t.w[2], sizeof(R)) : 0;
    char            *room = tnc_linear_room(s, &t, (size_t)(t.w[0] * t.w[1] * t.w[2]) * sizeof(R), c->out[2].data != NULL, raw_bytes + v_bytes, &g);
    int              i;
    if (!room) return TN_ERR_MEMORY;
    for (i = 0; i < 2; i++) {
        t.x.set[i] = tnc_linear_view(&c->in[0], t.H, t.squared ? 0 : i, sizeof(R));
        t.y.set[i] = tnc_linear_view(&c->in[1], t.H, t.squared ? 0 : i, sizeof(R));
    }
    t.y.set[2] = tnc_linear_view(&c->in[2], t.H, 0, sizeof(R));
    memset(&pass, 0, sizeof pass);
    pass.m = 2;
    pass.width = t.w[2];
    pass.factor = c->f[0] * c->f[0];
    pass.scaled = !sums;
    pass.scale = tnc_linear_scale_of(c, false);
    pass.out = tnc_linear_view(&c->out[0], t.H, 0, sizeof(R));
    if (sums) {
        pass.out = tnc_linear_packed(room, t.H, t.x.T, t.w[2]);
        TNC_LAUNCH((tnc_linear_pack<R, R>), tnc_grid(s, t.heads * t.y.T, 8), 256, 0, s->stream, t.y.set[2], t.y.set[2], (int)TNC_LINEAR_ONE, pass.scale,
                   t.H, t.heads, t.y.T, t.w[2] - 1, t.w[2], (R *)(room + raw_bytes));
        t.y.set[2] = tnc_linear_packed(room + raw_bytes, t.H, t.y.T, t.w[2]);
    }
    tnc_linear_sweep<R>(s, t, &pass, 1, g, (R *)(room + raw_bytes + v_bytes), (R *)c->out[2].data);
    if (sums)
        TNC_LAUNCH((tnc_linear_divide<R>), tnc_grid(s, t.heads * t.x.T * t.w[2], 256), 256, 0, s->stream, (const R *)room, t.H, t.heads, t.x.T, t.w[2], c->f[3],
                   tnc_linear_view(&c->out[0], t.H, 0, sizeof(R)), (R *)c->out[1].data);
    return TN_OK;
}

template <typename T> static tn_status tnc_linear_decode(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const tnc_linear p = tnc_linear_of(c, false);
    tnc_linear_new   t;
    const bool       sums = (int)c->f[2] == TN_ROW_SUM;
    const int64_t    parts = tnc_ceil(p.squared ? p.w[0] * (p.w[0] + 1) / 2 : p.w[0] * p.w[0], 64), numbers = p.heads * p.x.T * p.w[2];
    R               *part = (R *)tnc_scratch(s, (size_t)(parts + 1) * (size_t)numbers * sizeof(R));
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
    TNC_LAUNCH((tnc_linear_step<T>), dim3((unsigned)parts, (unsigned)p.heads), 256, 0, s->stream, t, (R *)c->out[2].data, part);
    TNC_LAUNCH((tnc_linear_step_end<T>), tnc_grid(s, numbers, 256), 256, 0, s->stream, t, (const R *)part, parts, p.heads, c->f[0] * c->f[0],
               tnc_linear_scale_of(c, false), sums ? part + parts * numbers : (R *)NULL);
    if (sums)
        TNC_LAUNCH((tnc_linear_divide<T>), tnc_grid(s, numbers, 256), 256, 0, s->stream, (const R *)(part + parts * numbers), t.H, p.heads, t.Tq, t.n, c->f[3],
                   t.out, (R *)c->out[1].data);
    return TN_OK;
}

static tn_status tnc_attention_linear(tnc *s, const tn_call *c)
{
    const tn_dtype   real = c->in[0].dtype == TN_F64 ? TN_F64 : TN_F32;
    const tnc_linear t = tnc_linear_of(c, false);
    if (!tnc_linear_types(c, c->in[0].dtype, real, false)) return TN_ERR_DTYPE;
    if (c->in[0].dtype == TN_BF16) return TN_ERR_DTYPE;
    if (t.heads * t.length * t.w[2] == 0) return TN_OK;
    if (t.w[0] > 65535) return TN_ERR_MEMORY;                                       /* 16 GiB for a state of one column */
    if (c->out[2].data && t.y.T <= TNC_LINEAR_FEW && t.heads <= 65535)
        TNC_TYPES(c->in[0].dtype, T, return tnc_linear_decode<T>(s, c))
    if (c->in[0].dtype == TN_F64) return tnc_linear_plain<double>(s, c);
    return tnc_linear_plain<float>(s, c);
}

template <typename R> static tn_status tnc_linear_plain_backward(tnc *s, const tn_call *c)
{
    tnc_linear       q = tnc_linear_of(c, false), k = tnc_linear_of(c, true);
    tnc_linear_pass  pass[3];
    tnc_linear_group g;
    const bool       sums = (int)c->f[2] == TN_ROW_SUM;
    const size_t     u_bytes = tnc_linear_bytes(q.heads * q.x.T * q.w[2], sizeof(R));
    const size_t     v_bytes = sums ? tnc_linear_bytes(q.heads * q.y.T * q.w[2], sizeof(R)) : 0;
    char            *room = tnc_linear_room(s, &q, (size_t)(q.w[0] * q.w[1] * q.w[2]) * sizeof(R), false, u_bytes + v_bytes, &g);
    R               *states = (R *)(room + u_bytes + v_bytes);
    int              i, n, side;
    if (!room) return TN_ERR_MEMORY;
    for (i = 0; i < 2; i++) {
        q.x.set[i] = tnc_linear_view(&c->in[0], q.H, q.squared ? 0 : i, sizeof(R));
        q.y.set[i] = tnc_linear_view(&c->in[1], q.H, q.squared ? 0 : i, sizeof(R));
    }
    TNC_LAUNCH((tnc_linear_pack<R, R>), tnc_grid(s, q.heads * q.x.T, 8), 256, 0, s->stream, tnc_linear_view(&c->in[5], q.H, 0, sizeof(R)),
               tnc_linear_view(&c->in[3], q.H, 0, sizeof(R)), (int)TNC_LINEAR_SLOPE, tnc_linear_scale_of(c, true), q.H, q.heads, q.x.T, c->in[2].shape[3],
               q.w[2], (R *)room);
    q.x.set[2] = tnc_linear_packed(room, q.H, q.x.T, q.w[2]);
    q.y.set[2] = tnc_linear_view(&c->in[2], q.H, 0, sizeof(R));
    if (sums) {
        TNC_LAUNCH((tnc_linear_pack<R, R>), tnc_grid(s, q.heads * q.y.T, 8), 256, 0, s->stream, q.y.set[2], q.y.set[2], (int)TNC_LINEAR_ONE,
                   tnc_linear_scale_of(c, true), q.H, q.heads, q.y.T, q.w[2] - 1, q.w[2], (R *)(room + u_bytes));
        q.y.set[2] = tnc_linear_packed(room + u_bytes, q.H, q.y.T, q.w[2]);
    }
    for (i = 0; i < 3; i++) { k.x.set[i] = q.y.set[i]; k.y.set[i] = q.x.set[i]; }
    for (side = 0; side < 2; side++) {                                              /* dq; then dk and dv */
        memset(pass, 0, sizeof pass);
        for (n = 0, i = 0; i < 2 + side; i++) {
            if (!c->out[i < 2 ? side : 2].data || (i == 1 && q.squared)) continue;
            pass[n].out = tnc_linear_view(&c->out[i < 2 ? side : 2], q.H, i % 2, sizeof(R));
            pass[n].m = i;
            pass[n].width = i < 2 ? q.w[i] : c->in[2].shape[3];
            pass[n].add = true;
            pass[n++].factor = c->f[0] * c->f[0] * (i < 2 && q.squared ? 2 : 1);
        }
        if (n > 0) tnc_linear_sweep<R>(s, side ? k : q, pass, n, g, states, NULL);
    }
    return TN_OK;
}

static tn_status tnc_attention_linear_backward(tnc *s, const tn_call *c)
{
    const tn_dtype   real = c->in[0].dtype == TN_F64 ? TN_F64 : TN_F32;
    const tnc_linear t = tnc_linear_of(c, false);
    if (!tnc_linear_types(c, c->in[0].dtype, real, true)) return TN_ERR_DTYPE;
    if (c->in[0].dtype == TN_BF16) return TN_ERR_DTYPE;
    if (t.heads * t.length * t.w[2] == 0) return TN_OK;
    if (c->in[0].dtype == TN_F64) return tnc_linear_plain_backward<double>(s, c);
    return tnc_linear_plain_backward<float>(s, c);
}

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
        TN_BACKEND_ABI, "cuda", false, tnc_open, tnc_close, tnc_alloc, tnc_release, tnc_upload, tnc_download, tnc_sync,
        { TN_KERNELS(TNC_X) }
    };
#undef TNC_X
    return &cuda;
}
