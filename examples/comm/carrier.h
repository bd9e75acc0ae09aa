/* carrier.h - what the carriers share: time, waiting, and how long to wait. */
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
static inline int comm_seconds(void) { return comm_setting("TN_COMM_SECONDS", 600); }

#endif
