#include "cuda/state.h"

/* ---- creating and destroying the state ----------------------------------------------------------------------- >>cuda-open
   tnc_open selects the device, creates the stream and the staging buffers, and loads cuBLAS. If a step fails, tnc_close
   frees what exists by then. */

TNC_FN bool tnc_keep(tnc *s, void *p, bool of_graph)
{
    tnc_kept *k = (tnc_kept *)s->allocator.alloc(sizeof *k, s->allocator.user);
    if (!k) return false;
    k->next = s->kept;
    k->p = p;
    k->of_graph = of_graph;
    s->kept = k;
    return true;
}

/* Frees memory that kernels may still use. cudaFree usually waits for them, but does not guarantee it. */
TNC_FN void tnc_free(tnc *s, void *p)
{
    if (p) cudaStreamSynchronize(s->stream);
    cudaFree(p);
}

/* Frees the memory that no graph uses any more. */
TNC_FN void tnc_kept_free(tnc *s)
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

TNC_FN void tnc_close(void *state)
{
    tnc *s = (tnc *)state;
    if (s->device >= 0) {
        (void)cudaSetDevice(s->device);                 /* a lost context fails, but its handles hold host memory */
        if (s->stream) cudaStreamSynchronize(s->stream);
        tnc_lt_close(&s->lt);
        tnc_blas_close(&s->blas);
        cudaFree(s->blas_workspace);
        cudaFree(s->scratch);
        s->graphs = 0;
        s->capturing = false;
        tnc_kept_free(s);
        for (int i = 0; i < TNC_STAGES; i++) {
            if (s->stage[i]) cudaFreeHost(s->stage[i]);
            if (s->staged[i]) cudaEventDestroy(s->staged[i]);
        }
        if (s->stream) cudaStreamDestroy(s->stream);
    }
    (void)cudaGetLastError();
    s->allocator.release(s, sizeof *s, s->allocator.user);
}

static __global__ void tnc_nothing(void) {}

/* Selects the device with this number, if it can run the kernels of this file. */
static cudaError_t tnc_choose(tnc *s, int device, char why[TN_WHY])
{
    int                   devices = 0, driver = 0, runtime = 0, major = 0, minor = 0;
    cudaFuncAttributes    attributes;
    cudaError_t           e = cudaGetDeviceCount(&devices);
    if (e == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        if (driver == 0) snprintf(why, 256, "no GPU: no NVIDIA driver is installed");
        else snprintf(why, 256, "the NVIDIA driver supports CUDA %d.%d, expected %d.%d or later", driver / 1000,
                      driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
        return e;
    }
    if (e != cudaSuccess || devices == 0) {
        snprintf(why, 256, "no GPU: %s", e != cudaSuccess ? cudaGetErrorString(e) : "CUDA reports no device");
        return e != cudaSuccess ? e : cudaErrorNoDevice;
    }
    if (device < 0 || device >= devices) {
        snprintf(why, 256, "desc.device is %d, expected a number from 0 to %d", device, devices - 1);
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
    if (s->capability < 80) snprintf(why, 256, "GPU %d is sm_%d, expected sm_80 or later", device, s->capability);
    else if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction)
        snprintf(why, 256, "GPU %d is sm_%d: %s; compile tensornet_cuda.cu with nvcc -arch=sm_%d", device, s->capability,
                 cudaGetErrorString(e), s->capability);
    else if (e != cudaSuccess) snprintf(why, 256, "GPU %d is sm_%d: %s", device, s->capability, cudaGetErrorString(e));
    return e;
}

/* What makes tensor maps for TMA, from the driver, which this file is not linked with */
static decltype(&cuTensorMapEncodeTiled) tnc_tma_open(void)
{
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void                           *f = NULL;
#if CUDART_VERSION >= 12050
    const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &found);
#endif
    (void)cudaGetLastError();
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? (decltype(&cuTensorMapEncodeTiled))f : NULL;
}

/* The kernels for Hopper's tensor cores are used on request only, since no GPU has run them yet. */
static void tnc_wgmma_open(tnc *s, const tn_desc *desc)
{
    const char *wanted = getenv("TN_WGMMA"), *tma = getenv("TN_TMA"), *why = NULL;
    s->wgmma = wanted && *wanted ? strcmp(wanted, "0") != 0 : desc->wgmma;
    if (!s->wgmma) return;
    if (s->capability != 90) why = "desc.wgmma: ignored, the GPU is not of capability 9.0";
    else if (!tnc_wgmma_compiled(tnc_nothing))
        why = "desc.wgmma: ignored; compile tensornet_cuda.cu with nvcc -gencode arch=compute_90a,code=sm_90a";
    if (why) s->wgmma = false;
    if (desc->log) desc->log(desc->log_user, why ? TN_LOG_WARN : TN_LOG_INFO, why ? why : "desc.wgmma: attention uses wgmma");
    if (why || (tma && strcmp(tma, "0") == 0)) return;
    s->tma_encode = tnc_tma_open();
    if (!s->tma_encode && desc->log)
        desc->log(desc->log_user, TN_LOG_WARN, "desc.wgmma: without TMA, the driver has no cuTensorMapEncodeTiled");
}

/* A line of the log that comes once. So a test knows, on a GPU too, that these kernels have run and not others. */
TNC_FN void tnc_say_once(const tnc *s, bool *said, tn_log_level level, const char *text)
{
    if (s->log && !*said) s->log(s->log_user, level, text);
    *said = true;
}

TNC_FN void tnc_wgmma_launched(tnc *s, bool tma)
{
    tnc_say_once(s, &s->said_wgmma, TN_LOG_INFO, "desc.wgmma: the first launch with wgmma");
    if (tma) tnc_say_once(s, &s->said_tma, TN_LOG_INFO, "desc.wgmma: the first launch with TMA");
}

TNC_FN tn_status tnc_open(const tn_desc *desc, void **state, char why[TN_WHY])
{
    tnc        *s = (tnc *)desc->allocator.alloc(sizeof *s, desc->allocator.user);
    const char *wait = getenv("TN_SYNC");
    cudaError_t e;
    int         shared = 0, l2 = 0;
    if (!s) {
        snprintf(why, 256, "out of memory: %zu bytes for the state of the backend", sizeof *s);
        return TN_ERR_MEMORY;
    }
    memset(s, 0, sizeof *s);
    s->allocator = desc->allocator;
    s->log = desc->log;
    s->log_user = desc->log_user;
    s->device = -1;
    s->precision = desc->gemm_precision;
    s->wait = wait && strcmp(wait, "0") != 0;
    if ((e = tnc_choose(s, desc->device, why)) == cudaSuccess) {
        size_t left;
        cudaDeviceGetAttribute(&s->sms, cudaDevAttrMultiProcessorCount, s->device);
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, s->device);
        cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, s->device);
        s->shared_max = (size_t)shared;
        s->l2 = (size_t)l2;
        e = cudaMemGetInfo(&left, &s->memory);
        if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
        for (int i = 0; i < TNC_STAGES && e == cudaSuccess; i++) {
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
    tnc_wgmma_open(s, desc);
    *state = s;
    return TN_OK;
}

TNC_FN void tnc_device(void *state, char name[128])
{
    const tnc     *s = (const tnc *)state;
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, s->device) != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(name, 128, "sm_%d", s->capability);
    } else snprintf(name, 128, "%.100s, sm_%d", p.name, s->capability);
}
