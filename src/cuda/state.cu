/* Records an error with its message, unless an earlier one is recorded. tnc_take_error reports it. Returns the status. */
static tn_status tnc_error(tnc *s, tn_status status, const char *format, ...)
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
static tn_status tnc_fail(tnc *s, cudaError_t e, const char *what)
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
static tn_status tnc_take_error(tnc *s, tn_status status, char why[TN_WHY])
{
    if (s->failed != TN_OK) status = s->failed;
    if (status != TN_OK) snprintf(why, 256, "%s", s->failed != TN_OK ? s->why : tn_status_name(status));
    if (!s->lost) s->failed = TN_OK;
    return status;
}

/* The begin of every call except sync: selects the device, and clears the error that was recorded before and any error that
   the program left in CUDA. Returns the error of a flush that could not report it. */
static tn_status tnc_enter(tnc *s)
{
    const tn_status late = s->late;
    cudaError_t     e;
    if (s->lost) return TN_ERR_BACKEND;
    s->late = TN_OK;
    if (late != TN_OK) return late;
    s->failed = TN_OK;
    e = cudaSetDevice(s->device);
    (void)cudaGetLastError();
    return tnc_fail(s, e, "cudaSetDevice");
}

/* "gemm [1,64,128] [1,128,32] -> [1,64,32]" */
static void tnc_describe(char *text, size_t size, const tn_call *c)
{
#define TNC_X(ENUM, name) #name,
    static const char *const names[] = { TN_KERNELS(TNC_X) };       /* tn_kernel_name may be static in another unit */
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

/* Runs one entry of the kernel table. After a launch CUDA may report a fault of any earlier kernel: hence "at or before". */
template <tnc_entry_fn *entry> static tn_status tnc_run(void *state, const tn_call *call)
{
    tnc        *s = (tnc *)state;
    tn_status   status = tnc_enter(s);
    cudaError_t e;
    char        what[200] = "at or before ";
    const int   from = s->wait ? 0 : 13;
    if (status == TN_OK && s->pending.count > 0 && s->pending.kernel != call->kernel) status = tnc_flush(s);
    if (status != TN_OK) return status;
    status = entry(s, call);
    if (s->wait && status == TN_OK) status = tnc_flush(s);
    e = cudaGetLastError();
    if (e == cudaSuccess && s->wait && status == TN_OK) e = cudaStreamSynchronize(s->stream);
    if (e == cudaSuccess) return status;
    tnc_describe(what + from, sizeof what - (size_t)from, call);
    return tnc_fail(s, e, what);
}

template <tnc_entry_fn *entry> static constexpr tn_kernel_fn tnc_entry(void)
{
    if constexpr (entry == nullptr) return nullptr;
    else return tnc_run<entry>;
}
