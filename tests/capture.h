/* capture.h: a backend that can capture. Its rows are those of cpu; while it captures they are copied into a list instead of run,
   and a replay runs the list. So a graph is what it says: kernels, numbers and addresses, by value, and nothing else. Memory is the
   host's, but the library is told that it is not. */

#ifndef TN_CAPTURE_H
#define TN_CAPTURE_H

#include "tensornet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct captured { tn_call *call; int64_t count, max; } captured;

typedef struct capture_state {
    void     *cpu;
    captured *now;                  /* what is being captured, or NULL                                            */
    int64_t   graphs, replays;      /* that are alive; so far                                                     */
    int64_t   touched;              /* allocations, releases and copies while capturing: a device would break off */
    bool      refuse_begin, refuse_end, refuse_replay;
    tn_status refuse_row;           /* what the next row answers; but for TN_ERR_DTYPE with words                 */
    tn_status failed;               /* of the words that nobody has asked for yet                                 */
} capture_state;

static const tn_backend *capture_rows;              /* NULL: the cpu backend; else one that has its state */

static inline tn_kernel_fn capture_row(tn_kernel k) { return (capture_rows ? capture_rows : tn_cpu_backend())->fn[k]; }

/* The state of the last context that was opened: tests have one at a time. */
static capture_state *capture_last;

static inline tn_status capture_open(const tn_desc *desc, void **state, char why[256])
{
    capture_state *s = (capture_state *)calloc(1, sizeof *s);
    if (!s) return TN_ERR_MEMORY;
    tn_status status = tn_cpu_backend()->open(desc, &s->cpu, why);
    if (status != TN_OK) { free(s); return status; }
    *state = capture_last = s;
    return TN_OK;
}

static inline void capture_close(void *state)
{
    capture_state *s = (capture_state *)state;
    tn_cpu_backend()->close(s->cpu);
    capture_last = NULL;
    free(s);
}

static inline void *capture_alloc(void *state, size_t bytes)
{
    capture_state *s = (capture_state *)state;
    s->touched += s->now != NULL;
    return tn_cpu_backend()->alloc(s->cpu, bytes);
}

static inline void capture_release(void *state, void *p, size_t bytes)
{
    capture_state *s = (capture_state *)state;
    s->touched += s->now != NULL;
    tn_cpu_backend()->release(s->cpu, p, bytes);
}

static inline tn_status capture_copy(void *state, void *dst, const void *src, size_t bytes)
{
    capture_state *s = (capture_state *)state;
    s->touched += s->now != NULL;
    if (bytes) memcpy(dst, src, bytes);
    return TN_OK;
}

static inline tn_status capture_sync(void *state, char why[256])
{
    capture_state  *s = (capture_state *)state;
    const tn_status failed = s->refuse_replay ? TN_ERR_BACKEND : s->failed;
    s->failed = TN_OK;
    if (failed != TN_OK) strcpy(why, s->refuse_replay ? "the list is burnt" : "7 rows are too many");
    return failed;
}

static inline tn_status capture_run(void *state, const tn_call *call)
{
    capture_state *s = (capture_state *)state;
    captured      *g = s->now;
    if (s->refuse_row != TN_OK) {
        const tn_status refused = s->refuse_row;
        s->refuse_row = TN_OK;
        if (refused != TN_ERR_DTYPE) s->failed = refused;
        return refused;
    }
    if (!g) return capture_row(call->kernel)(s->cpu, call);
    if (g->count == g->max) {
        tn_call *more = (tn_call *)realloc(g->call, sizeof *more * (size_t)(g->max * 2 + 64));
        if (!more) return TN_ERR_MEMORY;
        g->call = more;
        g->max = g->max * 2 + 64;
    }
    g->call[g->count++] = *call;
    return TN_OK;
}

static inline tn_status capture_begin(void *state, char why[256])
{
    capture_state *s = (capture_state *)state;
    if (s->refuse_begin) { strcpy(why, "no capture today"); return TN_ERR_BACKEND; }
    s->now = (captured *)calloc(1, sizeof *s->now);
    return s->now ? TN_OK : TN_ERR_MEMORY;
}

static inline tn_status capture_end(void *state, void **graph, char why[256])
{
    capture_state *s = (capture_state *)state;
    captured      *g = s->now;
    s->now = NULL;
    if (s->refuse_end) {
        strcpy(why, "the capture was broken off");
        free(g->call);
        free(g);
        return TN_ERR_BACKEND;
    }
    *graph = g;
    s->graphs++;
    return TN_OK;
}

static inline tn_status capture_replay(void *state, void *graph)
{
    capture_state *s = (capture_state *)state;
    captured      *g = (captured *)graph;
    tn_status      status = s->refuse_replay ? TN_ERR_BACKEND : TN_OK;
    for (int64_t i = 0; i < g->count && status == TN_OK; i++) {
        tn_call c = g->call[i];                       /* a row may scribble in its own copy only */
        status = capture_row(c.kernel)(s->cpu, &c);
    }
    s->replays++;
    return status;
}

static inline void capture_graph_release(void *state, void *graph)
{
    captured *g = (captured *)graph;
    ((capture_state *)state)->graphs--;
    free(g->call);
    free(g);
}

static inline void capture_device(void *state, char name[128])
{
    const char *wanted = getenv("TN_CAPTURE_DEVICE");
    (void)state;
    snprintf(name, 128, "%s", wanted ? wanted : "lists of calls");
}

static inline const tn_backend *capture_backend(void)
{
    static tn_backend b;
    if (b.abi) return &b;
    b.name = "capture";
    b.open = capture_open;
    b.close = capture_close;
    b.alloc = capture_alloc;
    b.release = capture_release;
    b.upload = b.download = capture_copy;
    b.sync = capture_sync;
    b.capture_begin = capture_begin;
    b.capture_end = capture_end;
    b.replay = capture_replay;
    b.graph_release = capture_graph_release;
    b.device = capture_device;
    for (int k = 0; k < TN_KERNEL_COUNT; k++) b.fn[k] = capture_run;
    b.abi = TN_BACKEND_ABI;
    return &b;
}

#endif
