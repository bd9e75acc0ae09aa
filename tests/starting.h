/* starting.h: a system that refuses to start threads.

       #include "starting.h"             (before core/threads.c, whose calls it takes)

       starting.allowed = 2;             two more threads start, every later one is refused
       starting.allowed = -1;            threads start as they do
       starting.begun, starting.refused  so many so far */

#ifndef TN_STARTING_H
#define TN_STARTING_H

#if defined(TN_USE_THREADS) && !defined(TN_NO_THREADS)
#include <errno.h>
#include <stdbool.h>

static struct { int allowed, begun, refused; } starting = {-1, 0, 0};

/* Contexts of several threads may start some at once, while nothing is refused. */
static inline bool starting_refuses(void)
{
    if (starting.allowed == 0) { starting.refused++; return true; }
    if (starting.allowed > 0) starting.allowed--;
    __atomic_fetch_add(&starting.begun, 1, __ATOMIC_RELAXED);
    return false;
}

#if defined(_WIN32)
#include <process.h>
#define _beginthreadex(safety, stack, fn, arg, flags, id) \
    (starting_refuses() ? 0 : _beginthreadex(safety, stack, fn, arg, flags, id))
#else
#include <pthread.h>
#define pthread_create(thread, how, fn, arg) (starting_refuses() ? EAGAIN : pthread_create(thread, how, fn, arg))
#endif
#endif

#endif
