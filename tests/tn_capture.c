/* tn_capture.c: the command's "GPU" is the backend of capture.h, so that a machine without one shows what a device does to a run: losses
   that are read late, a step that is a graph. TN_CAPTURE=says prints at the end how many replays there were. */

#include "capture.h"
#include <stdio.h>

static int64_t replays;

static tn_status replay_counted(void *state, void *graph)
{
    replays++;
    return capture_replay(state, graph);
}

static void say(void) { printf("replays: %lld\n", (long long)replays); }

const tn_backend *tn_cuda_backend(void)
{
    static tn_backend b;
    if (!b.abi) {
        b = *capture_backend();
        b.name = "cuda";
        b.replay = replay_counted;
        if (getenv("TN_CAPTURE")) atexit(say);
    }
    return &b;
}
