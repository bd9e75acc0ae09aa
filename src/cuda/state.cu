#include "cuda/state.h"

/* Records an error with its message, unless an earlier one is recorded. tnc_take_error reports it. Returns the status. */
TNC_FN tn_status tnc_error(tnc *s, tn_status status, const char *format, ...)
{
    va_list list;
    if (s->failed != TN_OK) return status;
    va_start(list, format);
    vsnprintf(s->why, sizeof s->why, format, list);
    va_end(list);
    return s->failed = status;
}

/* Records an error of CUDA. A sticky error, such as a fault of a kernel, makes the context lost: from then on it reports
   only that error. */
TNC_FN tn_status tnc_fail(tnc *s, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return TN_OK;
    (void)cudaGetLastError();
    if (!s->lost && (cudaPeekAtLastError() != cudaSuccess || (!s->capturing && cudaStreamQuery(s->stream) == e))) {
        s->lost = true;
        s->failed = TN_OK;
    }
    (void)cudaGetLastError();                                           /* clears the error of the query */
    return tnc_error(s, e == cudaErrorMemoryAllocation ? TN_ERR_MEMORY : TN_ERR_BACKEND, "%s: %s", what,
                     cudaGetErrorString(e));
}

/* Returns the recorded error with its message and clears it; without one it returns `status`. A lost context keeps
   its error. */
TNC_FN tn_status tnc_take_error(tnc *s, tn_status status, char why[TN_WHY])
{
    if (s->failed != TN_OK) status = s->failed;
    if (status != TN_OK) snprintf(why, 256, "%s", s->failed != TN_OK ? s->why : tn_status_name(status));
    if (!s->lost) s->failed = TN_OK;
    return status;
}

/* The begin of every call except sync: selects the device, and clears the error that was recorded before and any error that
   the program left in CUDA. Returns the error of a flush that could not report it. */
TNC_FN tn_status tnc_enter(tnc *s)
{
    const tn_status late = s->late;
    if (s->lost) return TN_ERR_BACKEND;
    s->late = TN_OK;
    if (late != TN_OK) return late;
    s->failed = TN_OK;
    cudaError_t e = cudaSetDevice(s->device);
    (void)cudaGetLastError();
    return tnc_fail(s, e, "cudaSetDevice");
}
