/* carrier.h - what the carriers share: time, waiting, how long to wait, and which job a process is part of. */
#ifndef CARRIER_H
#define CARRIER_H

#include "comm.h"
#include <stdlib.h>
#include <time.h>

static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void sleep_for(double seconds)
{
    const struct timespec pause = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&pause, NULL);
}

/* Between two looks at what another process does. After the first of them it sleeps, since another thread, or process, may be
   computing on this processor. */
static inline void wait_a_little(long looks)
{
    if (looks > 2000) sleep_for(50e-6);
}

/* A process that does not answer for so long counts as ended. */
static inline bool comm_seconds(int *seconds, char why[TN_WHY])
{
    *seconds = 600;
    return comm_number("TN_COMM_SECONDS", 1, 1 << 24, seconds, why);
}

/* A number of what the launchers call the job, its step and its restart, so that processes of two of them do not mix. */
static inline uint64_t comm_job(void)
{
    static const char *const names[] = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID",
                                        "SLURM_STEP_ID", "PMIX_NAMESPACE"};
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        for (; text && *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
        hash = (hash ^ 256) * UINT64_C(1099511628211);          /* between two variables */
    }
    return hash;
}

#endif
