/* meeting.h - what carriers share whose processes connect to each other: accepting many connections at once, and messages that
   must arrive completely within a time limit. A connection may come from any other program. */
#ifndef MEETING_H
#define MEETING_H

#include "carrier.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0                  /* where it is missing, the program ignores SIGPIPE */
#endif

enum { CALLERS = 64, CALLER_SECONDS = 10, CALLER_MESSAGES = 2, CALLER_BYTES = 64 };

/* A connection whose messages are not complete yet. */
typedef struct caller {
    int    fd, received;                /* -1: none; number of complete messages */
    size_t have;                        /* bytes of the next one                 */
    double until;
    char   message[CALLER_MESSAGES][CALLER_BYTES];
} caller;

/* All are read together, so that one that sends nothing does not delay the others. */
typedef struct entrance {
    int    listener;
    size_t bytes[CALLER_MESSAGES];       /* of each message; 0: there is none */
    caller  callers[CALLERS];
} entrance;

static inline void open_entrance(entrance *d, int listener, size_t first, size_t second)
{
    memset(d, 0, sizeof *d);
    d->listener = listener;
    d->bytes[0] = first;
    d->bytes[1] = second;
    for (int i = 0; i < CALLERS; i++) d->callers[i].fd = -1;
}

static inline void drop_caller(caller *g)
{
    if (g->fd >= 0) close(g->fd);
    g->fd = -1;
}

static inline void close_entrance(entrance *d)
{
    for (int i = 0; i < CALLERS; i++) drop_caller(&d->callers[i]);
    close(d->listener);
}

/* If there are too many, the oldest one is dropped: the processes of the job send at once. */
static inline void add_caller(entrance *d, int fd)
{
    caller *g = d->callers;
    if (fd < 0) return;
    for (int i = 0; i < CALLERS && g->fd >= 0; i++)
        if (d->callers[i].fd < 0 || d->callers[i].until < g->until) g = &d->callers[i];
    drop_caller(g);
    g->fd = fd;
    g->received = 0;
    g->have = 0;
    g->until = seconds_now() + CALLER_SECONDS;
}

/* Looks for a tenth of a second. Returns a caller whose message number `received` - 1 is now complete, or NULL. */
static inline caller *poll_callers(entrance *d)
{
    struct pollfd w[CALLERS + 1];
    for (int i = 0; i < CALLERS; i++) {
        if (d->callers[i].fd >= 0 && seconds_now() > d->callers[i].until) drop_caller(&d->callers[i]);
        w[i].fd = d->callers[i].fd;      /* poll passes over -1 */
        w[i].events = POLLIN;
        w[i].revents = 0;
    }
    w[CALLERS].fd = d->listener;
    w[CALLERS].events = POLLIN;
    w[CALLERS].revents = 0;
    if (poll(w, CALLERS + 1, 100) <= 0) return NULL;
    for (int i = 0; i < CALLERS; i++) {
        caller       *g = &d->callers[i];
        const size_t left = g->received < CALLER_MESSAGES ? d->bytes[g->received] - g->have : 0;
        const ssize_t n = w[i].revents && left ? recv(g->fd, g->message[g->received] + g->have, left, MSG_DONTWAIT) : -1;
        if (!w[i].revents || (left && n < 0 && (errno == EAGAIN || errno == EINTR))) continue;
        if (n <= 0) drop_caller(g);         /* closed, or sent too much */
        else if ((size_t)n < left) g->have += (size_t)n;
        else {
            g->have = 0;
            g->received++;
            return g;
        }
    }
    if (w[CALLERS].revents) add_caller(d, accept(d->listener, NULL, NULL));
    return NULL;
}

/* Receives a message from a process that this one has connected to. */
static inline bool receive(int fd, void *bytes, size_t count, double until)
{
    struct pollfd w;
    char         *at = (char *)bytes;
    w.fd = fd;
    w.events = POLLIN;
    while (count > 0 && seconds_now() < until) {
        if (poll(&w, 1, 100) <= 0) continue;
        ssize_t n = recv(fd, at, count, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (n > 0) at += n, count -= (size_t)n;
    }
    return count == 0;
}

/* Sends a message that is small enough for any socket's buffer. */
static inline bool sends(int fd, const void *bytes, size_t count)
{
    return send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)count;
}

#endif
