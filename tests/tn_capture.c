/* tn_capture.c: the command's "GPU" is the backend of capture.h, so that a machine without one shows what a device does to a run: losses
   that are read late, a step that is a graph, faults. The environment says which:
       TN_CAPTURE=says            prints at the end how many replays there were, kernels after the last of them, and products of BF16
                                  before the first step
       TN_CAPTURE_MEMORY=N        there are so many bytes
       TN_CAPTURE_PRODUCT=N       the N-th product fails
       TN_CAPTURE_FAIL=N,K        the K-th kernel after the N-th replay fails
       TN_CAPTURE_BEGIN=no        no capture begins
       TN_CAPTURE_REPLAYS=N       the replay after so many is refused
       TN_CAPTURE_ID=N            in the N-th replay a text has an id that is no token's */

#include "capture.h"

static int64_t replays, since, products, bf16_products, live, memory = INT64_MAX, product = -1, fail_replays = -1, fail_kernel,
               replays_max = INT64_MAX, bad_id = -1;
static bool    stepped;

static int64_t wanted(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static void *alloc_counted(void *state, size_t bytes)
{
    void *p = (int64_t)bytes > memory - live ? NULL : capture_alloc(state, bytes);
    if (p) live += (int64_t)bytes;
    return p;
}

static void release_counted(void *state, void *p, size_t bytes)
{
    live -= (int64_t)bytes;
    capture_release(state, p, bytes);
}

static bool has_bf16(const tn_call *c)
{
    for (int k = 0; k < c->n_in; k++) if (c->in[k].data && c->in[k].dtype == TN_BF16) return true;
    for (int k = 0; k < c->n_out; k++) if (c->out[k].data && c->out[k].dtype == TN_BF16) return true;
    return false;
}

static tn_status run_counted(void *state, const tn_call *c)
{
    stepped = stepped || c->kernel == TN_KERNEL_EMBED;
    if (c->kernel != TN_KERNEL_COPY && c->kernel != TN_KERNEL_FILL && has_bf16(c)) {
        bf16_products += c->kernel == TN_KERNEL_GEMM && !stepped;
        return TN_ERR_DTYPE;
    }
    if (((capture_state *)state)->now) return capture_run(state, c);
    if (c->kernel == TN_KERNEL_GEMM && ++products == product) return TN_ERR_BACKEND;
    if (++since == fail_kernel && replays == fail_replays) return TN_ERR_BACKEND;
    return capture_run(state, c);
}

static tn_status begin_if(void *state, char why[256])
{
    ((capture_state *)state)->refuse_begin = getenv("TN_CAPTURE_BEGIN") != NULL;
    return capture_begin(state, why);
}

static tn_status replay_counted(void *state, void *graph)
{
    captured *g = (captured *)graph;
    int64_t   i = 0;
    if (replays == replays_max) return TN_ERR_BACKEND;
    since = 0;
    if (++replays == bad_id) {
        while (i < g->count && g->call[i].kernel != TN_KERNEL_EMBED) i++;
        for (int k = 0; k < g->call[i].n_in; k++)
            if (g->call[i].in[k].dtype == TN_I32) *(int32_t *)g->call[i].in[k].data = 1 << 20;
    }
    return capture_replay(state, graph);
}

static void say(void)
{
    printf("replays: %lld\nkernels after the last: %lld\nproducts of BF16: %s\n", (long long)replays, (long long)since,
           bf16_products ? "yes" : "no");
}

const tn_backend *tn_cuda_backend(void)
{
    static tn_backend b;
    const char       *comma = getenv("TN_CAPTURE_FAIL");
    if (b.abi) return &b;
    b = *capture_backend();
    b.name = "cuda";
    b.bf16 = true;
    b.alloc = alloc_counted;
    b.release = release_counted;
    b.capture_begin = begin_if;
    b.replay = replay_counted;
    for (int k = 0; k < TN_KERNEL_COUNT; k++) b.fn[k] = run_counted;
    memory = wanted("TN_CAPTURE_MEMORY", memory);
    product = wanted("TN_CAPTURE_PRODUCT", product);
    replays_max = wanted("TN_CAPTURE_REPLAYS", replays_max);
    bad_id = wanted("TN_CAPTURE_ID", bad_id);
    fail_replays = wanted("TN_CAPTURE_FAIL", fail_replays);
    comma = comma ? strchr(comma, ',') : NULL;
    fail_kernel = comma ? strtoll(comma + 1, NULL, 10) : -1;
    if (getenv("TN_CAPTURE")) atexit(say);
    return &b;
}
