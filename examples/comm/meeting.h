/* meeting.h - what those carriers share whose processes connect to each other: a door that many come to at once, and messages
   that have to be whole within a time. Whoever connects may be something else altogether. */
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

enum { GUESTS = 64, GUEST_SECONDS = 10, GUEST_MESSAGES = 2, GUEST_BYTES = 64 };

/* One that has connected, and has not yet said everything. */
typedef struct guest {
    int    fd, said;                    /* -1: none; how many of its messages were whole */
    size_t have;                        /* bytes of the next one                         */
    double until;
    char   message[GUEST_MESSAGES][GUEST_BYTES];
} guest;

/* They are heard together, so that a silent one delays nobody. */
typedef struct door {
    int    listener;
    size_t bytes[GUEST_MESSAGES];       /* of each message; 0: there is none */
    guest  guests[GUESTS];
} door;

static inline void open_door(door *d, int listener, size_t first, size_t second)
{
    int i;
    memset(d, 0, sizeof *d);
    d->listener = listener;
    d->bytes[0] = first;
    d->bytes[1] = second;
    for (i = 0; i < GUESTS; i++) d->guests[i].fd = -1;
}

static inline void dismiss(guest *g)
{
    if (g->fd >= 0) close(g->fd);
    g->fd = -1;
}

static inline void close_door(door *d)
{
    int i;
    for (i = 0; i < GUESTS; i++) dismiss(&d->guests[i]);
    close(d->listener);
}

/* If there are too many, the one that has come first makes room: those who belong here are quick. */
static inline void admit(door *d, int fd)
{
    guest *g = d->guests;
    int    i;
    if (fd < 0) return;
    for (i = 0; i < GUESTS && g->fd >= 0; i++)
        if (d->guests[i].fd < 0 || d->guests[i].until < g->until) g = &d->guests[i];
    dismiss(g);
    g->fd = fd;
    g->said = 0;
    g->have = 0;
    g->until = seconds_now() + GUEST_SECONDS;
}

/* Looks for a tenth of a second. Returns a guest whose message number `said` - 1 has just become whole, or NULL. */
static inline guest *hear_guests(door *d)
{
    struct pollfd w[GUESTS + 1];
    int           i;
    for (i = 0; i < GUESTS; i++) {
        if (d->guests[i].fd >= 0 && seconds_now() > d->guests[i].until) dismiss(&d->guests[i]);
        w[i].fd = d->guests[i].fd;      /* poll passes over -1 */
        w[i].events = POLLIN;
        w[i].revents = 0;
    }
    w[GUESTS].fd = d->listener;
    w[GUESTS].events = POLLIN;
    w[GUESTS].revents = 0;
    if (poll(w, GUESTS + 1, 100) <= 0) return NULL;
    for (i = 0; i < GUESTS; i++) {
        guest       *g = &d->guests[i];
        const size_t left = g->said < GUEST_MESSAGES ? d->bytes[g->said] - g->have : 0;
        const ssize_t n = w[i].revents && left ? recv(g->fd, g->message[g->said] + g->have, left, MSG_DONTWAIT) : -1;
        if (!w[i].revents || (left && n < 0 && (errno == EAGAIN || errno == EINTR))) continue;
        if (n <= 0) dismiss(g);         /* has gone, or says more than there is to say */
        else if ((size_t)n < left) g->have += (size_t)n;
        else {
            g->have = 0;
            g->said++;
            return g;
        }
    }
    if (w[GUESTS].revents) admit(d, accept(d->listener, NULL, NULL));
    return NULL;
}

/* A message of one that was called. */
static inline bool receive(int fd, void *bytes, size_t count, double until)
{
    struct pollfd w;
    char         *at = (char *)bytes;
    w.fd = fd;
    w.events = POLLIN;
    while (count > 0 && seconds_now() < until) {
        ssize_t n;
        if (poll(&w, 1, 100) <= 0) continue;
        n = recv(fd, at, count, MSG_DONTWAIT);
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
