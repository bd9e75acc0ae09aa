#include "cuda/inner.h"

/* ---- tick ---------------------------------------------------------------------------------------------------- >>cuda-tick
   Advances the clock of the random numbers. Floor: one launch. */

static __global__ void tnc_tick_kernel(uint32_t *clock, uint32_t by) { if (threadIdx.x == 0) *clock += by; }

static tn_status tnc_tick(tnc *s, const tn_call *c)
{
    TNC_LAUNCH(tnc_tick_kernel, 1, 32, 0, s->stream, (uint32_t *)c->out[0].data, (uint32_t)c->i[0]);
    return TN_OK;
}

/* ======================================================================
   >>cuda-table       the backend
   The one exported symbol. Entries are in the order of TN_KERNELS, and each runs through tnc_run.
   ====================================================================== */

/* "gemm [1,64,128] [1,128,32] -> [1,64,32]" */
static void tnc_describe(char *text, size_t size, const tn_call *c)
{
#define TNC_X(ENUM, name) #name,
    static const char *const names[] = { TN_KERNELS(TNC_X) };       /* tn_kernel_name may be static in another unit */
#undef TNC_X
    int n = snprintf(text, size, "%s", names[c->kernel]);
    for (int i = 0; i < c->n_in + c->n_out && n >= 0 && (size_t)n + 32 < size; i++) {
        const tn_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        n += snprintf(text + n, size - (size_t)n, i == c->n_in ? " -> [" : " [");
        for (int k = 0; v->data && k < v->rank && (size_t)n + 24 < size; k++)
            n += snprintf(text + n, size - (size_t)n, k ? ",%lld" : "%lld", (long long)v->shape[k]);
        n += snprintf(text + n, size - (size_t)n, "]");
    }
}

/* Runs one entry of the kernel table. After a launch CUDA may report a fault of any earlier kernel: hence "at or before". */
template <tnc_entry_fn *entry> static tn_status tnc_run(void *state, const tn_call *call)
{
    tnc      *s = (tnc *)state;
    tn_status status = tnc_enter(s);
    char      what[200] = "at or before ";
    const int from = s->wait ? 0 : 13;
    if (status == TN_OK && s->pending.count > 0 && s->pending.kernel != call->kernel) status = tnc_flush(s);
    if (status != TN_OK) return status;
    status = entry(s, call);
    if (s->wait && status == TN_OK) status = tnc_flush(s);
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess && s->wait && status == TN_OK) e = cudaStreamSynchronize(s->stream);
    if (e == cudaSuccess) return status;
    tnc_describe(what + from, sizeof what - (size_t)from, call);
    return tnc_fail(s, e, what);
}

template <tnc_entry_fn *entry> static constexpr tn_kernel_fn tnc_entry(void) { return tnc_run<entry>; }
template <> constexpr tn_kernel_fn tnc_entry<nullptr>(void) { return nullptr; }

/* No entry: composed of products, which the device computes in parallel over sites, chains and numbers. */
static constexpr tnc_entry_fn *tnc_scan_cores = nullptr;

extern "C" const tn_backend *tn_cuda_backend(void)
{
#define TNC_X(ENUM, name) tnc_entry<tnc_##name>(),
    static const tn_backend cuda = {
        TN_BACKEND_ABI, "cuda", false, true, true, TNC_GEMM_THIN, tnc_open, tnc_close, tnc_alloc, tnc_release, tnc_upload,
        tnc_download, tnc_sync, tnc_capture_begin, tnc_capture_end, tnc_replay, tnc_graph_release, tnc_device,
        { TN_KERNELS(TNC_X) }, false
    };
#undef TNC_X
    return &cuda;
}
