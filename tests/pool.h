/* pool.h: a host's own pool for desc.parallel_for: a thread for each worker, tasks taken from a counter.

       pool_for(&calls, ...)             counts its calls; NULL does not
       pool_backwards(&calls, ...)       no threads: the tasks in reverse, by workers in turn, so that whoever counts on an order is found
                                         out. It counts as well, in an int64_t */

#ifndef TN_POOL_H
#define TN_POOL_H

#include "tensornet.h"

static inline void pool_backwards(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    if (user) ++*(int64_t *)user;
    while (tasks-- > 0) fn(arg, tasks, (int)(tasks % workers));
}

#if defined(__unix__) || defined(__APPLE__)
#define HAVE_PTHREADS 1
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct pool_run { int64_t tasks, next; tn_task_fn fn; void *arg; pthread_mutex_t lock; } pool_run;
typedef struct pool_worker { pool_run *run; int worker; pthread_t thread; } pool_worker;

static inline void *pool_work(void *user)
{
    pool_worker *w = (pool_worker *)user;
    for (;;) {
        pthread_mutex_lock(&w->run->lock);
        int64_t task = w->run->next++;
        pthread_mutex_unlock(&w->run->lock);
        if (task >= w->run->tasks) return NULL;
        w->run->fn(w->run->arg, task, w->worker);
    }
}

static inline void pool_for(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    pool_run run;
    pool_worker *w = (pool_worker *)malloc(sizeof *w * (size_t)workers);
    int i;
    run.tasks = tasks;
    run.next = 0;
    run.fn = fn;
    run.arg = arg;
    pthread_mutex_init(&run.lock, NULL);
    if (user) (*(int *)user)++;
    for (i = 0; w && i < workers; i++) {
        w[i].run = &run;
        w[i].worker = i;
        if (pthread_create(&w[i].thread, NULL, pool_work, &w[i]) != 0) break;
    }
    if (!w || i < workers) { printf("FAIL the pool has no memory, or no thread\n"); abort(); }
    for (i = 0; i < workers; i++) pthread_join(w[i].thread, NULL);
    pthread_mutex_destroy(&run.lock);
    free(w);
}
#endif
#endif
