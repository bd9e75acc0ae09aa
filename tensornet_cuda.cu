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

static inline unsigned tnc_mul_bf16x2(unsigned a, unsigned b)
{
    const float low = __uint_as_float(a << 16) * __uint_as_float(b << 16);
    const float high = __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
    return (unsigned)__bfloat16_as_ushort(__float2bfloat16(low)) | (unsigned)__bfloat16_as_ushort(__float2bfloat16(high)) << 16;
}
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
#define TNC_UNROLL _Pragma("unroll")            /* before a loop over registers */

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
    int             wide[3];                            /* tensor cores: numbers that can be read, whole pieces of 8 */
    int             D, NE;                              /* extents of a state [D,D,NE]: d and n, or padded     */
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
    bool             f32, pairs;                        /* tensor cores: out is F32, not BF16; can be written by twos */
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

/* A state operand [F',n] to the carry [D,D,NE] of every head, or back; squared: F' = d(d+1)/2, a <= b. */
template <typename R> __global__ void tnc_linear_carry(R *carry, R *state, tnc_linear t, int64_t head0, int64_t heads, bool back)
{
    const int64_t size = (int64_t)t.D * t.D * t.NE, d = t.w[0], n = t.w[2], features = t.squared ? d * (d + 1) / 2 : d * d;
    int64_t       at;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < heads * size; at += (int64_t)gridDim.x * blockDim.x) {
        const int64_t e = at % t.NE, b = at / t.NE % t.D, a = at / t.NE / t.D % t.D, low = a < b ? a : b, high = a < b ? b : a;
        const bool    inside = a < d && b < d && e < n;
        const int64_t f = t.squared ? low * d - low * (low - 1) / 2 + high - low : a * d + b;
        R            *own = state + ((head0 + at / size) * features + f) * n + e;
        if (!back) carry[at] = inside ? *own : R(0);
        else if (inside && (!t.squared || a <= b)) *own = carry[at];
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
    g.heads = g.states ? tnc_linear_clamp((double)room / 4 / state, t->heads < 65535 ? t->heads : 65535) : t->heads < 65535 ? t->heads : 65535;
    g.chunks = tnc_linear_clamp((double)room / state / (double)g.heads - 1, t->chunks < most ? t->chunks : most);
    g.bytes = g.states ? (size_t)(state * (double)g.heads * (double)(g.chunks + 1)) : 0;
    return g;
}

/* All passes over the rows x. room: as the group says. state: the operand of the call or NULL, with what it holds after it. */
template <typename R> static void tnc_linear_sweep(tnc *s, const tnc_linear &t, const tnc_linear_pass *pass, int passes,
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
            for (i = 0; i < passes; i++)
                TNC_LAUNCH((tnc_linear_read<R>),
                           dim3((unsigned)tnc_ceil(t.w[pass[i].m], tile), (unsigned)(chunks * t.chunk / tile), (unsigned)heads), 256, 0,
                           s->stream, tnc_linear_turned(&t, pass[i].m), pass[i], head, from, states, each);
        };
        if (state) TNC_LAUNCH((tnc_linear_carry<R>), wide, 256, 0, s->stream, carry, state, t, head, heads, false);
        else if (g.states) cudaMemsetAsync(carry, 0, (size_t)(heads * size) * sizeof(R), s->stream);
        for (done = 0; done < t.chunks; done += g.chunks) {
            const int64_t chunks = t.chunks - done < g.chunks ? t.chunks - done : g.chunks;
            chunk = t.back ? t.chunks - done - chunks : done;
            if (g.states) {
                TNC_LAUNCH((tnc_linear_states<R>),
                           dim3((unsigned)(tnc_ceil(t.w[0] * t.w[1], tile) * tnc_ceil(t.w[2], tile)), (unsigned)chunks, (unsigned)heads),
                           256, 0, s->stream, t, head, chunk, S);
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

   Sums are F32, also those of states; a state is rounded to BF16 where it is an operand of a product, as are phi and the pairs.
   Where the chunks of a head are walked through one after the other, the state never leaves the registers: what is written is
   its BF16 copy at each chunk's begin, 2 bytes a number, that the rows of the chunk read. A state in memory is [D,D,NE]: d and n
   padded to a power of 2 with zeros. Squared: of the 16 x 16 blocks of (a,b) those with b's block >= a's are kept; what is off the
   diagonal counts twice, d(d+16)/2 features instead of d d.

   Shared memory: a row of a tile is a row of 16-byte pieces, and piece p of row r stands at p ^ key(r), so that the eight rows an
   ldmatrix reads at one p, and the eight rows that a warp reads four numbers of, lie in different banks. Rows of 128 bytes or
   more: key = r % 8. Of 64 bytes two rows share the 32 banks, of 32 bytes four: key = r/2 % 4, and r/4 % 2. */

enum {
    TNC_LINEAR_ROWS   = 256,                            /* rows of a block that reads states: 32 a warp                  */
    TNC_LINEAR_KEYS   = 32,                             /* of a tile of pairs                                            */
    TNC_LINEAR_STAGES = 4,                              /* tiles of states on their way or in use                        */
    TNC_SCAN_STEP     = 64,                             /* rows that a state takes in between two barriers               */
    TNC_SCAN_STAGES   = 3
};

typedef struct tnc_linear_tiles {
    int64_t  head0, chunk0, chunks, each;               /* this launch: heads from, chunks from, how many; of a segment  */
    int      start;                                     /* this chunk sees no state; -1: all do                          */
    int      step;                                      /* 1: a state a chunk; 0: one for all                            */
    bool     states;
    bool     last;                                      /* nobody sees what the last of these chunks would add           */
} tnc_linear_tiles;

static __device__ __forceinline__ int tnc_linear_key(int row, int pieces)
{
    return pieces >= 8 ? row & 7 : pieces == 4 ? row >> 1 & 3 : row >> 2 & 1;
}

/* Where piece p of row r stands, in numbers of 2 bytes. */
static __device__ __forceinline__ int tnc_linear_at(int row, int piece, int pieces)
{
    return (row * pieces + (piece ^ tnc_linear_key(row, pieces))) * 8;
}

static __device__ __forceinline__ unsigned tnc_linear_lows(unsigned a, unsigned b) { return (a & 0xffffu) | b << 16; }
static __device__ __forceinline__ unsigned tnc_linear_highs(unsigned a, unsigned b) { return a >> 16 | (b & 0xffff0000u); }

static __device__ __forceinline__ unsigned tnc_linear_two(float x, float y)
{
    const __nv_bfloat162 two = __floats2bfloat162_rn(x, y);
    unsigned             bits;
    memcpy(&bits, &two, sizeof bits);
    return bits;
}

/* `rows` rows from row t0 of a set, `pieces` pieces of each from number e0 on, to shared memory; zeros where there is nothing. */
static __device__ __forceinline__ void tnc_linear_fetch(tnc_bf16 *to, int rows, int pieces, const tnc_linear_set &s, int64_t H, int64_t head,
                                                        int64_t t0, int64_t T, int e0, int wide)
{
    const tnc_bf16 *from = tnc_linear_row<const tnc_bf16>(s, H, head, 0);
    int             at;
    for (at = (int)threadIdx.x; at < rows * pieces; at += (int)blockDim.x) {
        const int     row = at / pieces, piece = at % pieces, e = e0 + piece * 8;
        const int64_t t = t0 + row;
        tnc_bf16     *here = to + tnc_linear_at(row, piece, pieces);
        if (t >= 0 && t < T && e < wide) tnc_cp_async16(here, from + t * s.row + e);
        else *(uint4 *)here = make_uint4(0, 0, 0, 0);
    }
}

/* What X a's, 16 b's and N columns of the state of one head sum up, over the chunks of a segment. Warp: 4 a's x 16 b's x N in
   registers; phi^T [b,t] = x_b^T is loaded once and scaled by x_a[t] for each of the 4.
   S: the state before each chunk is written there; else to totals, when the segment is done. The last segment leaves to carry.
   16 t of a warp, N = 64: 32 mma of 4096 flops, 16 products of 2 numbers, 28 cycles of shared memory (4 + 16 by ldmatrix, 8 for
   x_a); 4 warps a cycle of 4 x 32 mma: shared memory is busy half of the time that mma.sync takes at 600 TF/s.
   Floor: 2 F n flops a row. */
template <int X, int N> __global__ void __launch_bounds__(X * 8, 1) tnc_linear_scan(tnc_linear t, tnc_linear_tiles p, const float *carry, float *left,
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
    const int64_t corner = ((int64_t)(x0 + 4 * warp) * t.D + y0 + g) * t.NE + e0 + two;      /* of this lane; + x, half, tile */
    float         sum[4][N / 8][4];
    int64_t       step, segment;
    int           x, j, i, half;
    if (t.squared && x0 > y0) return;                                       /* X >= 16: no block of it is kept */

    TNC_UNROLL
    for (x = 0; x < 4; x++)
        TNC_UNROLL
        for (half = 0; half < 2; half++)
            TNC_UNROLL
            for (j = 0; j < N / 8; j++) {
                const int64_t at = corner + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j;
                float2        value = carry && S ? *(const float2 *)(carry + blockIdx.z * size + at) : make_float2(0, 0);
                for (segment = 0; segment < (int64_t)blockIdx.y && S; segment++) {
                    const float2 more = *(const float2 *)(totals + (segment * gridDim.z + blockIdx.z) * size + at);
                    value.x += more.x;
                    value.y += more.y;
                }
                sum[x][j][2 * half] = value.x;
                sum[x][j][2 * half + 1] = value.y;
            }

    /* step s of the segment: 64 rows of chunk s / per, in the order of the walk */
    auto chunk_of = [&](int64_t s) { return t.back ? p.chunks - 1 - first - s / per : first + s / per; };
    auto fetch = [&](int64_t s) {
        tnc_bf16     *to = shared[s % TNC_SCAN_STAGES];
        const int64_t row = (p.chunk0 + chunk_of(s)) * t.chunk + s % per * TNC_SCAN_STEP - t.y.shift;
        tnc_linear_fetch(to, TNC_SCAN_STEP, 2, t.y.set[1], t.H, head, row, t.y.T, y0, t.wide[1]);
        tnc_linear_fetch(to + TNC_SCAN_STEP * 16, TNC_SCAN_STEP, X / 8, t.y.set[0], t.H, head, row, t.y.T, x0, t.wide[0]);
        tnc_linear_fetch(to + TNC_SCAN_STEP * (16 + X), TNC_SCAN_STEP, N / 8, t.y.set[2], t.H, head, row, t.y.T, e0, t.wide[2]);
    };
    auto keep = [&](int64_t chunk) {
        tnc_bf16 *to = S + (blockIdx.z * p.chunks + chunk) * size + corner;
        if (p.chunk0 + chunk == p.start) return;
        TNC_UNROLL
        for (int x = 0; x < 4; x++)
            TNC_UNROLL
            for (int half = 0; half < 2; half++)
                TNC_UNROLL
                for (int j = 0; j < N / 8; j++)
                    *(unsigned *)(to + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j) = tnc_linear_two(sum[x][j][2 * half], sum[x][j][2 * half + 1]);
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
            tnc_ldmatrix_x4_trans(phi, b + tnc_linear_at(k + lane % 8 + lane / 16 * 8, lane / 8 % 2, 2));
            TNC_UNROLL
            for (j = 0; j < N / 16; j++) {
                tnc_ldmatrix_x4_trans(r, y + tnc_linear_at(k + lane % 8 + lane / 8 % 2 * 8, 2 * j + lane / 16, N / 8));
                v[2 * j][0] = r[0]; v[2 * j][1] = r[1]; v[2 * j + 1][0] = r[2]; v[2 * j + 1][1] = r[3];
            }
            /* x_a of this lane's t, t+1 and t+8, t+9, four a's side by side */
            TNC_UNROLL
            for (half = 0; half < 2; half++) {
                const int   at = k + 8 * half + two, piece = warp / 2, rest = warp % 2 * 4;
                const uint2 even = *(const uint2 *)(a + tnc_linear_at(at, piece, X / 8) + rest);
                const uint2 odd = *(const uint2 *)(a + tnc_linear_at(at + 1, piece, X / 8) + rest);
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
    if (S && !(left && (int64_t)blockIdx.y == (int64_t)gridDim.y - 1)) return;
    TNC_UNROLL
    for (x = 0; x < 4; x++)
        TNC_UNROLL
        for (half = 0; half < 2; half++)
            TNC_UNROLL
            for (j = 0; j < N / 8; j++)
                *(float2 *)((S ? left + blockIdx.z * size : totals + (blockIdx.y * (int64_t)gridDim.z + blockIdx.z) * size)
                            + corner + ((int64_t)x * t.D + 8 * half) * t.NE + 8 * j) = make_float2(sum[x][j][2 * half], sum[x][j][2 * half + 1]);
}

/* left = carry + totals of all segments [segments,numbers], in their order; S, if any, is that in BF16. */
static __global__ void tnc_linear_total(const float *carry, const float *totals, int64_t segments, int64_t numbers, float *left, tnc_bf16 *S)
{
    int64_t at, s;
    for (at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < numbers; at += (int64_t)gridDim.x * blockDim.x) {
        float sum = carry[at];
        for (s = 0; s < segments; s++) sum += totals[s * numbers + at];
        left[at] = sum;
        S[at] = __float2bfloat16(sum);
    }
}

/* Two numbers of a row of the output, from `column` on. */
static __device__ __forceinline__ void tnc_linear_store(char *row, int column, const tnc_linear_pass &p, float x, float y)
{
    if (column >= p.width) return;
    if (p.f32 && p.pairs) {
        float2 *to = (float2 *)row + column / 2, old = p.add ? *to : make_float2(0, 0);
        *to = make_float2(old.x + x, old.y + y);
    } else if (p.pairs) {
        unsigned *to = (unsigned *)row + column / 2, old = p.add ? *to : 0u;
        *to = tnc_linear_two(__uint_as_float(old << 16) + x, __uint_as_float(old & 0xffff0000u) + y);
    } else {
        float    *to = (float *)row + column;
        tnc_bf16 *small = (tnc_bf16 *)row + column;
        int       i;
        for (i = 0; i < 2 && column + i < p.width; i++) {
            const float value = i ? y : x;
            if (p.f32) to[i] = p.add ? to[i] + value : value;
            else small[i] = __float2bfloat16(p.add ? __bfloat162float(small[i]) + value : value);
        }
    }
}

/* The output, or one gradient, of 256 rows x N columns; t is turned for it: sum_i x_a[i] (x_b [32,K] S_i [K,N]) of a warp's 32 rows,
   x_b's fragments in registers for good, scaled by x_a[:,i] as often as i goes on; S_i is a tile that all warps read.
   TURNED: k are rows of S_i in memory, else its columns are.
   Of a warp, 16 k, N = 64: 16 mma, 8 products of 2 numbers, 16 cycles of shared memory: at 600 TF/s busy 60% of the time.
   Then the pairs of the own chunk, 32 keys at a time: two score tiles, their product is the next product's operand as it stands. */
template <int K, int N, bool TURNED> __global__ void __launch_bounds__(256, 1) tnc_linear_mma(tnc_linear t, tnc_linear_pass p, tnc_linear_tiles q,
                                                                                           const tnc_bf16 *S)
{
    enum { GROUP = K < 64 ? 64 / K : 1, ROWS = TURNED ? K : N, PIECES = (TURNED ? N : K) / 8, SLAB = K * N, STAGE = GROUP * SLAB };
    TNC_DYN_SHARED(tnc_bf16, shared);
    const int     lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, g = lane / 4, two = lane % 4 * 2;
    const int     n0 = (int)blockIdx.x * N, D8 = t.D / 8, loops = t.wide[0];
    const int64_t tiles = t.chunk / TNC_LINEAR_ROWS, c = blockIdx.y / tiles, chunk = q.chunk0 + c, head = q.head0 + blockIdx.z;
    const int64_t p0 = chunk * t.chunk + blockIdx.y % tiles * TNC_LINEAR_ROWS, r0 = p0 - t.x.shift;         /* position, row */
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

    if (q.states && chunk != q.start) {
        const int       stages = (loops + GROUP - 1) / GROUP;
        const tnc_bf16 *from = S + (blockIdx.z * (q.step ? gridDim.y / tiles : 1) + c * q.step) * (int64_t)t.D * t.D * t.NE;
        auto fetch = [&](int stage) {
            tnc_bf16 *to = ring + stage % TNC_LINEAR_STAGES * STAGE;
            int       at;
            for (at = (int)threadIdx.x; at < GROUP * ROWS * PIECES; at += 256) {
                const int slab = at / (ROWS * PIECES), row = at / PIECES % ROWS, piece = at % PIECES, one = stage * GROUP + slab;
                int64_t   line;                                     /* of the state: (a,b) of its D x D */
                if (TURNED) line = (int64_t)one * t.D + row;
                else if (t.squared) line = (int64_t)(one < n0 + row ? one : n0 + row) * t.D + (one < n0 + row ? n0 + row : one);
                else line = p.m == 0 ? (int64_t)(n0 + row) * t.D + one : (int64_t)one * t.D + n0 + row;
                if (TURNED && t.squared && row / 16 < one / 16) continue;               /* not kept, not read */
                tnc_cp_async16(to + slab * SLAB + tnc_linear_at(row, piece, PIECES), from + line * t.NE + (TURNED ? n0 : 0) + 8 * piece);
            }
        };
        for (i = 0; i < TNC_LINEAR_STAGES - 1; i++) {
            if (i < stages) fetch(i);
            tnc_cp_async_commit();
        }
        for (i = 0; i < loops; i += 4) {
            uint2 scale[4];                                                             /* four i's of rows g, g + 8, g + 16, g + 24 */
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
                    for (h = 0; h < 4; h++) scale[h] = *(const uint2 *)(xa + tnc_linear_at(32 * warp + 8 * h + g, i / 8, D8) + i % 8);
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
                    unsigned b[N / 8][2], a[4], r[4];
                    if (TURNED && t.squared) {
                        if (16 * k + 15 < i) continue;
                        if (16 * k > i + j)                                             /* off the diagonal: twice, exact */
                            for (h = 0; h < 4; h++) factor[h] = tnc_mul_bf16x2(once[h], 0x40004000u);
                    }
                    TNC_UNROLL
                    for (n = 0; n < N / 16; n++) {
                        if (TURNED) tnc_ldmatrix_x4_trans(r, slab + tnc_linear_at(16 * k + lane % 8 + lane / 8 % 2 * 8, 2 * n + lane / 16, PIECES));
                        else tnc_ldmatrix_x4(r, slab + tnc_linear_at(16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2, PIECES));
                        b[2 * n][0] = r[0]; b[2 * n][1] = r[1]; b[2 * n + 1][0] = r[2]; b[2 * n + 1][1] = r[3];
                    }
                    TNC_UNROLL
                    for (m = 0; m < 2; m++) {
                        TNC_UNROLL
                        for (h = 0; h < 4; h++) a[h] = tnc_mul_bf16x2(xb[m][k][h], factor[2 * m + h % 2]);      /* rows g, g + 8, g, g + 8 */
                        TNC_UNROLL
                        for (n = 0; n < N / 8; n++) tnc_mma_bf16(sum[m][n], a, b[n]);
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
        const int64_t low = t.back ? p0 : begin, high = t.back ? end : end < p0 + TNC_LINEAR_ROWS ? end : p0 + TNC_LINEAR_ROWS;
        const int     count = (int)((high - low + SIZE - 1) / SIZE);
        const int64_t mine = p0 + 32 * warp;                                            /* position of the warp's first row */
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
                    tnc_ldmatrix_x4(b, ya + tnc_linear_at(16 * h + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2, D8));
                    TNC_UNROLL
                    for (m = 0; m < 2; m++) {
                        tnc_ldmatrix_x4(a, xa + tnc_linear_at(32 * warp + 16 * m + lane % 16, 2 * k + lane / 16, D8));
                        tnc_mma_bf16(one[m][0], a, b);
                        tnc_mma_bf16(one[m][1], a, b + 2);
                    }
                }
                TNC_UNROLL
                for (k = 0; k < K / 16; k++) {
                    tnc_ldmatrix_x4(b, yb + tnc_linear_at(16 * h + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2, K / 8));
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
                    tnc_ldmatrix_x4_trans(v, ym + tnc_linear_at(16 * h + lane % 8 + lane / 8 % 2 * 8, 2 * n + lane / 16, N / 8));
                    TNC_UNROLL
                    for (m = 0; m < 2; m++) {
                        TNC_UNROLL
                        for (j = 0; j < 4; j++) a[j] = tnc_linear_two(one[m][j / 2][2 * (j % 2)], one[m][j / 2][2 * (j % 2) + 1]);
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
                const float factor = float(p.factor) * (p.scaled ? tnc_linear_row_scale<float>(p.scale, head, t.x.T, r) : 1.0f);
                char       *to = (char *)p.out.p + (head / t.H * p.out.batch + r * p.out.row + head % t.H * p.out.head) * (p.f32 ? 4 : 2);
                TNC_UNROLL
                for (n = 0; n < N / 8; n++) 
                    tnc_linear_store(to, n0 + 8 * n + two, p, factor * sum[m][n][2 * h], factor * sum[m][n][2 * h + 1]);
            }
        }
}

/* Snapshots of 2 bytes a number; twice the carry, since its last segment is done while others still read it; totals of segments.
   Where the heads' tiles do not fill a GPU, the chunks go in segments at once: each is summed up twice, first for those behind it.
   264: twice an H200's processors; a constant, so that the bits do not depend on the device. */
static tnc_linear_group tnc_linear_groups(const tnc_linear *t, size_t room, bool kept, tnc_bf16)
{
    tnc_linear_group g;
    const int64_t    most = 65535 / (t->chunk / TNC_LINEAR_ROWS), X = t->D < 32 ? t->D : 32, N = t->NE < 64 ? t->NE : 64;
    const double     state = (double)t->D * t->D * t->NE;
    int64_t          blocks;
    g.states = kept || t->chunks > 1 || !t->causal;
    g.heads = g.states ? tnc_linear_clamp((double)room / 32 / state, t->heads < 65535 ? t->heads : 65535) : t->heads < 65535 ? t->heads : 65535;
    blocks = g.heads * (t->D / 16) * (t->D / X) * (t->NE / N);
    g.segments = tnc_linear_clamp(264 / (double)blocks, 32);
    if (t->causal && g.segments < 4) g.segments = 1;                                /* twice the work by 2 or 3 at once: no gain */
    g.segments = g.segments < t->chunks ? g.segments : t->chunks;
    g.chunks = tnc_linear_clamp(((double)room / state / (double)g.heads - 8 - 4 * (double)g.segments) / 2, t->chunks < most ? t->chunks : most);
    if (!t->causal) g.chunks = t->chunks < most ? t->chunks : most;                 /* one state for all */
    g.bytes = g.states ? (size_t)(state * (double)g.heads * (8 + 4 * (double)g.segments + 2 * (double)(t->causal ? g.chunks : 1))) : 0;
    return g;
}

static size_t tnc_linear_shared(int64_t D, int64_t K, int64_t N)
{
    const int64_t ring = TNC_LINEAR_STAGES * (K < 64 ? 64 : K) * N, pairs = 2 * TNC_LINEAR_KEYS * (D + K + N);
    return (size_t)(TNC_LINEAR_ROWS * D + (ring > pairs ? ring : pairs)) * 2;
}

template <int K, int N, bool TURNED> static void tnc_linear_mma_launch(tnc *s, dim3 grid, const tnc_linear &t, const tnc_linear_pass &p,
                                                                       const tnc_linear_tiles &q, const tnc_bf16 *S)
{
    const size_t bytes = tnc_linear_shared(t.D, K, N);
    cudaFuncSetAttribute(tnc_linear_mma<K, N, TURNED>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    TNC_LAUNCH((tnc_linear_mma<K, N, TURNED>), grid, 256, bytes, s->stream, t, p, q, S);
}

/* Rows of `chunks` chunks: one kernel for each depth of the products (d; or n for gradients of q and k), and each width. */
static void tnc_linear_mma_rows(tnc *s, const tnc_linear &whole, const tnc_linear_pass &p, const tnc_linear_tiles &q, int64_t chunks, int64_t heads,
                                const tnc_bf16 *S)
{
    const tnc_linear t = tnc_linear_turned(&whole, p.m);
    const int        K = p.m == 2 ? t.D : t.NE, all = p.m == 2 ? t.NE : t.D, N = all < 64 ? all : 64;
    const dim3       grid((unsigned)(all / N), (unsigned)(chunks * t.chunk / TNC_LINEAR_ROWS), (unsigned)heads);
#define TNC_CASE(k, n, turned) if (K == k && N == n && (p.m == 2) == turned) tnc_linear_mma_launch<k, n, turned>(s, grid, t, p, q, S)
    TNC_CASE(16, 32, true);   TNC_CASE(32, 32, true);   TNC_CASE(64, 32, true);   TNC_CASE(128, 32, true);
    TNC_CASE(16, 64, true);   TNC_CASE(32, 64, true);   TNC_CASE(64, 64, true);   TNC_CASE(128, 64, true);
    TNC_CASE(32, 16, false);  TNC_CASE(64, 16, false);  TNC_CASE(128, 16, false);
    TNC_CASE(32, 32, false);  TNC_CASE(64, 32, false);  TNC_CASE(128, 32, false);
    TNC_CASE(32, 64, false);  TNC_CASE(64, 64, false);  TNC_CASE(128, 64, false);
#undef TNC_CASE
}

static void tnc_linear_scan_rows(tnc *s, const tnc_linear &t, const tnc_linear_tiles &q, int64_t segments, int64_t heads, const float *carry,
                                 float *left, float *totals, tnc_bf16 *S)
{
    const int  X = t.D < 32 ? 16 : 32, N = t.NE < 64 ? 32 : 64;
    const dim3 grid((unsigned)(t.D / 16 * (t.D / X) * (t.NE / N)), (unsigned)segments, (unsigned)heads);
#define TNC_CASE(x, n) \
    if (X == x && N == n) TNC_LAUNCH((tnc_linear_scan<x, n>), grid, x * 8, 0, s->stream, t, q, carry, left, totals, S)
    TNC_CASE(16, 32);  TNC_CASE(16, 64);  TNC_CASE(32, 32);  TNC_CASE(32, 64);
#undef TNC_CASE
}

/* The same for tensor cores; room: two carries, totals, snapshots. */
static void tnc_linear_sweep(tnc *s, const tnc_linear &t, const tnc_linear_pass *pass, int passes, tnc_linear_group g, tnc_bf16 *room, float *state)
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
        q.start = state || !t.causal ? -1 : t.back ? t.chunks - 1 : 0;
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
            if (!t.causal) TNC_LAUNCH(tnc_linear_total, wide, 256, 0, s->stream, carry, totals, segments, heads * size, left, S);
            other = carry; carry = left; left = other;
            for (i = 0; i < passes && t.causal; i++) tnc_linear_mma_rows(s, t, pass[i], q, chunks, heads, S);
        }
        for (q.chunk0 = 0; q.chunk0 < t.chunks && !t.causal; q.chunk0 += g.chunks)
            for (i = 0; i < passes; i++)
                tnc_linear_mma_rows(s, t, pass[i], q, t.chunks - q.chunk0 < g.chunks ? t.chunks - q.chunk0 : g.chunks, heads, S);
        if (state) TNC_LAUNCH((tnc_linear_carry<float>), wide, 256, 0, s->stream, carry, state, t, head, heads, true);
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
static tnc_linear tnc_linear_of(const tn_call *c, bool back, bool tensor)
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
    t.D = (int)t.w[0];
    t.NE = (int)t.w[2];
    t.chunk = t.D <= 16 ? 64 : t.D <= 32 ? 128 : t.D <= 64 ? 256 : 512;
    if (tensor) {
        t.D = t.D <= 16 ? 16 : t.D <= 32 ? 32 : t.D <= 64 ? 64 : 128;
        t.NE = t.NE <= 32 ? 32 : t.NE <= 64 ? 64 : 128;
        t.chunk = t.D <= 32 ? 256 : t.D <= 64 ? 512 : 1024;                         /* pairs: a tenth of the work, and less */
    }
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

/* One of the six vectors of a call, as the kernels read it: in place, or packed. */
typedef struct tnc_linear_item { tnc_linear_set set; int64_t T, width, pitch; int mode; bool pack; size_t offset; } tnc_linear_item;

/* Scratch for `fixed` bytes and the states; where there is no room for TNC_LINEAR_ROOM of them, for fewer. */
template <typename E> static char *tnc_linear_room(tnc *s, const tnc_linear *t, bool kept, size_t fixed, tnc_linear_group *g)
{
    const size_t least = (size_t)t->D * (size_t)t->D * (size_t)t->NE * 16;
    size_t       room;
    char        *p;
    for (room = TNC_LINEAR_ROOM; ; room /= 4) {
        *g = tnc_linear_groups(t, room, kept, E());
        p = (char *)tnc_scratch(s, fixed + g->bytes + 256);
        if (p || room < least) return p;
    }
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
    const bool       tensor = (int)tnc_code<E>::dtype == TN_BF16, sums = (int)c->f[2] == TN_ROW_SUM;
    const int64_t    dv = c->in[2].shape[3];
    tnc_linear       q = tnc_linear_of(c, false, tensor), k = tnc_linear_of(c, true, tensor);
    tnc_linear_item  items[6], *item;                   /* q1, q2, u, k1, k2, v */
    tnc_linear_pass  pass[3];
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
                       tnc_linear_view(&c->in[3], q.H, 0, sizeof(T)), item->mode, tnc_linear_scale_of(c, backward), q.H, q.heads, item->T,
                       item->width, item->pitch, to);
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
            tnc_linear_pass *p = &pass[n];
            if (!out->data || (i == 1 && q.squared)) continue;
            p->out = tnc_linear_view(out, q.H, i % 2, sizeof(T));
            p->m = i;
            p->width = i < 2 ? q.w[i] : dv;
            p->add = backward;
            p->factor = c->f[0] * c->f[0] * (i < 2 && q.squared ? 2 : 1);
            p->f32 = (int)tnc_code<T>::dtype == TN_F32;
            if (!backward) {
                p->scaled = !sums;
                p->scale = tnc_linear_scale_of(c, false);
                if (sums) {
                    p->out = tnc_linear_packed(room, q.H, q.x.T, q.w[2]);
                    p->width = q.w[2];
                    p->f32 = true;
                }
            }
            p->pairs = p->width % 2 == 0 && tnc_linear_aligned(p->out, p->f32 ? 8 : 4, p->f32 ? 4 : 2);
            n++;
        }
        if (n > 0) tnc_linear_sweep(s, side ? k : q, pass, n, g, (E *)(room + fixed), backward ? (R *)NULL : (R *)c->out[2].data);
    }
    if (sums && !backward)
        TNC_LAUNCH((tnc_linear_divide<T>), tnc_grid(s, q.heads * q.x.T * q.w[2], 256), 256, 0, s->stream, (const R *)room, q.H, q.heads, q.x.T,
                   q.w[2], c->f[3], tnc_linear_view(&c->out[0], q.H, 0, sizeof(T)), (R *)c->out[1].data);
    return TN_OK;
}

template <typename T> static tn_status tnc_linear_decode(tnc *s, const tn_call *c)
{
    typedef typename tnc_real<T>::type R;
    const tnc_linear p = tnc_linear_of(c, false, false);
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

/* Tensor cores take d and n up to 128, in BF16; F32 where the context wants products in BF16. */
static tn_status tnc_linear_choose(tnc *s, const tn_call *c, bool backward)
{
    const tn_dtype   dtype = c->in[0].dtype, real = dtype == TN_F64 ? TN_F64 : TN_F32;
    const tnc_linear t = tnc_linear_of(c, false, true);
    const bool       tensor = t.w[0] <= 128 && t.w[2] <= 128 && tnc_linear_shared(t.D, 128, 64) <= s->shared_max;
    if (!tnc_linear_types(c, dtype, real, backward) || (dtype == TN_BF16 && !tensor)) return TN_ERR_DTYPE;
    if (t.heads * t.length * t.w[2] == 0) return TN_OK;
    if (t.w[0] > 32767) return TN_ERR_MEMORY;                                       /* 4 GiB for a state of one column */
    if (!backward && c->out[2].data && t.y.T <= TNC_LINEAR_FEW && t.heads <= 65535)
        TNC_TYPES(dtype, T, return tnc_linear_decode<T>(s, c))
    if (dtype == TN_BF16) return tnc_linear_run<tnc_bf16, tnc_bf16>(s, c, backward);
    if (dtype == TN_F64) return tnc_linear_run<double, double>(s, c, backward);
    if (tensor && s->precision == TN_GEMM_BF16) return tnc_linear_run<float, tnc_bf16>(s, c, backward);
    return tnc_linear_run<float, float>(s, c, backward);
}

static tn_status tnc_attention_linear(tnc *s, const tn_call *c) { return tnc_linear_choose(s, c, false); }
static tn_status tnc_attention_linear_backward(tnc *s, const tn_call *c) { return tnc_linear_choose(s, c, true); }

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
