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
   The one exported symbol. Entries are in the order of TN_KERNELS.
   ====================================================================== */

extern "C" const tn_backend *tn_cuda_backend(void)
{
#define TNC_X(ENUM, name) tnc_entry<tnc_##name>(),
    static const tn_backend cuda = {
        TN_BACKEND_ABI, "cuda", false, true, true, TNC_GEMM_THIN, tnc_open, tnc_close, tnc_alloc, tnc_release, tnc_upload,
        tnc_download, tnc_sync, tnc_capture_begin, tnc_capture_end, tnc_replay, tnc_graph_release, tnc_device,
        { TN_KERNELS(TNC_X) }
    };
#undef TNC_X
    return &cuda;
}
