/* driver.c: the functions of libcuda.so.1 that examples/comm/nccl.c uses. A stream is a thread that does its work in order. */
#define _DEFAULT_SOURCE
#include "fake.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID = 1, NOT_INITIALISED = 3, NO_DEVICE = 101, NOT_READY = 600, GPUS = 8 };

typedef struct item { tnfn_work work; void *with; struct item *next; } item;

typedef struct stream {
    pthread_mutex_t lock;
    pthread_cond_t  more;
    item           *first, **last;
    int             busy, error;
} stream;

static int           initialised, retained[GPUS];
static __thread void *current;

static void demand(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "driver: %s\n", what);
    abort();
}

int cuInit(unsigned flags)
{
    initialised = flags == 0;
    return initialised ? 0 : INVALID;
}

int cuDeviceGet(int *device, int ordinal)
{
    const char *wrong = getenv("TNFN_WRONG"), *rank = getenv("RANK");
    if (!initialised) return NOT_INITIALISED;
    if (wrong && rank && strcmp(strchr(wrong, ':'), ":gpu") == 0 && atoi(wrong) == atoi(rank)) return NO_DEVICE;
    *device = ordinal;
    return ordinal >= 0 && ordinal < GPUS ? 0 : NO_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    retained[device] = 1;
    *context = &retained[device];
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    demand(context != NULL, "cuCtxSetCurrent: a context that was not retained");
    current = context;
    return 0;
}

int tnfn_is_current(void) { return current != NULL; }

static void *run(void *with)
{
    stream *s = (stream *)with;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        s->busy = 0;
        while (!s->first) pthread_cond_wait(&s->more, &s->lock);
        item *now = s->first;
        s->first = now->next;
        if (!s->first) s->last = &s->first;
        s->busy = 1;
        pthread_mutex_unlock(&s->lock);
        int error = now->work(now->with);
        pthread_mutex_lock(&s->lock);
        if (error && !s->error) s->error = error;
        pthread_mutex_unlock(&s->lock);
        free(now);
    }
    return NULL;
}

int cuStreamCreate(void **out, unsigned flags)
{
    stream   *s = (stream *)calloc(1, sizeof *s);
    pthread_t thread;
    demand(current != NULL, "cuStreamCreate: no context is current");
    demand(flags == 1, "cuStreamCreate: expected a stream that does not wait for the default stream");
    if (!s) return INVALID;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    s->last = &s->first;
    s->busy = 1;
    if (pthread_create(&thread, NULL, run, s) != 0) return INVALID;
    pthread_detach(thread);
    *out = s;
    return 0;
}

void tnfn_add(void *to, tnfn_work work, void *with)
{
    stream *s = (stream *)to;
    item   *more = (item *)calloc(1, sizeof *more);
    demand(s && more, "work for no stream");
    more->work = work;
    more->with = with;
    pthread_mutex_lock(&s->lock);
    *s->last = more;
    s->last = &more->next;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
}

int cuStreamQuery(void *which)
{
    stream *s = (stream *)which;
    pthread_mutex_lock(&s->lock);
    int answer = s->error ? s->error : s->busy || s->first ? NOT_READY : 0;
    pthread_mutex_unlock(&s->lock);
    return answer;
}
