#include "cuda/state.h"

/* ======================================================================
   >>cuda-memory      allocation, copies, scratch
   Uploads go through pinned staging buffers and are asynchronous; downloads wait for the stream. Scratch is one block of
   memory that every call may overwrite: since all kernels of a context run in order on one stream, calls cannot disturb
   each other.
   ====================================================================== */

TNC_FN void *tnc_alloc(void *state, size_t bytes)
{
    tnc  *s = (tnc *)state;
    void *p = NULL;
    if (s->capturing) {                                         /* cudaMalloc would make the capture invalid, too */
        tnc_error(s, TN_ERR_MEMORY, "a capture cannot allocate: %zu bytes were asked for; run the step once before it", bytes);
        return NULL;
    }
    if (s->lost || cudaSetDevice(s->device) != cudaSuccess) return NULL;
    if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
    (void)cudaGetLastError();                                   /* the caller reports that the memory is full */
    return NULL;
}

TNC_FN void tnc_release(void *state, void *p, size_t bytes)
{
    tnc            *s = (tnc *)state;
    const tn_status status = tnc_flush(s);
    (void)bytes;
    if (s->late == TN_OK) s->late = status;
    if (cudaSetDevice(s->device) == cudaSuccess && !(s->capturing && tnc_keep(s, p, false))) tnc_free(s, p);
    (void)cudaGetLastError();
}

/* Copies through pinned buffers, in the order of the stream: the function returns as soon as the bytes are in
   the buffers. */
TNC_FN tn_status tnc_upload(void *state, void *to, const void *from, size_t bytes)
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

TNC_FN tn_status tnc_download(void *state, void *to, const void *from, size_t bytes)
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

/* Reports the first error since the last sync. The stream is not synchronised during a capture, when that is
   not possible. */
TNC_FN tn_status tnc_sync(void *state, char why[TN_WHY])
{
    tnc      *s = (tnc *)state;
    tn_status status = s->late;
    s->late = TN_OK;
    if (!s->capturing) {
        const tn_status flushed = tnc_flush(s);
        cudaError_t     e = s->lost ? cudaErrorUnknown : cudaSetDevice(s->device);
        if (status == TN_OK) status = flushed;
        if (e == cudaSuccess) e = cudaStreamSynchronize(s->stream);
        (void)tnc_fail(s, e, "a kernel since the last sync failed (set TN_SYNC=1 to see which)");
    }
    return tnc_take_error(s, status, why);
}

/* Device memory for the calling entry until it returns: the kernels of the next entry run after its own. Its contents are
   undefined. Returns NULL if there is not enough memory, or if scratch would have to grow during a capture; the error with
   the numbers of bytes is recorded for sync. */
TNC_FN void *tnc_scratch(tnc *s, size_t bytes)
{
    void *p = NULL;
    if (bytes == 0) bytes = 1;                                  /* since NULL means an error */
    if (bytes <= s->scratch_bytes) {
        tnc_forget(s->scratch, bytes, s->stream);
        return s->scratch;
    }
    if (s->capturing) {
        tnc_error(s, TN_ERR_MEMORY, "%zu bytes of scratch are needed: it has %zu and cannot grow during a capture; "
                  "run the step once before it", bytes, s->scratch_bytes);
        return NULL;
    }
    if (s->graphs > 0 && s->scratch) {
        if (!tnc_keep(s, s->scratch, true)) return NULL;
    } else tnc_free(s, s->scratch);
    s->scratch = NULL;
    s->scratch_bytes = 0;
    size_t      more = bytes + bytes / 4;                       /* avoids many small steps of growth */
    cudaError_t e = cudaMalloc(&p, more);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        e = cudaMalloc(&p, more = bytes);
    }
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        tnc_error(s, TN_ERR_MEMORY, "%zu bytes of scratch are needed: the device of %zu bytes has too few free",
                  bytes, s->memory);
    } else (void)tnc_fail(s, e, "at or before an allocation of scratch");
    if (e != cudaSuccess) return NULL;
    s->scratch = (char *)p;
    s->scratch_bytes = more;
    return p;
}

/* ---- graphs ------------------------------------------------------------------------------------------------- >>cuda-graph
   A capture records the kernel launches of a step into a CUDA graph, which is instantiated once and replayed by one
   call. The memory that its kernels use must not move: scratch cannot grow during the capture and is not freed while a
   graph exists. */

static tn_status tnc_capture_fails(tnc *s, tn_status status, char why[TN_WHY])
{
    char words[256];
    status = tnc_take_error(s, status, words);
    snprintf(why, 256, "capture: %.240s", words);
    return status;
}

TNC_FN tn_status tnc_capture_begin(void *state, char why[TN_WHY])
{
    tnc      *s = (tnc *)state;
    tn_status status = tnc_enter(s);
    if (s->wait) {
        snprintf(why, 256, "TN_SYNC is 1, expected 0: a capture cannot wait for kernels");
        return TN_ERR_BACKEND;
    }
    if (status == TN_OK) status = tnc_flush(s);
    if (status != TN_OK) return tnc_capture_fails(s, status, why);
    cudaError_t e = cudaStreamSynchronize(s->stream); /* no graph that is released meanwhile is running */
    if (e == cudaSuccess) e = cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess) return tnc_capture_fails(s, tnc_fail(s, e, "the stream"), why);
    s->capturing = true;
    return TN_OK;
}

/* Ends the capture of the stream in every case, also after an error. */
TNC_FN tn_status tnc_capture_end(void *state, void **out, char why[TN_WHY])
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

TNC_FN tn_status tnc_replay(void *state, void *graph)
{
    tnc      *s = (tnc *)state;
    tn_status status = tnc_enter(s);
    if (status == TN_OK) status = tnc_flush(s);
    return status == TN_OK ? tnc_fail(s, cudaGraphLaunch((cudaGraphExec_t)graph, s->stream), "replay") : status;
}

TNC_FN void tnc_graph_release(void *state, void *graph)
{
    tnc *s = (tnc *)state;
    if (cudaSetDevice(s->device) == cudaSuccess) {
        if (!s->capturing) cudaStreamSynchronize(s->stream);        /* its last replay may still be running */
        cudaGraphExecDestroy((cudaGraphExec_t)graph);
    }
    s->graphs--;
    tnc_kept_free(s);
    (void)cudaGetLastError();
}
