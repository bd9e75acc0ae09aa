/* socket.c - a carrier for processes of one machine: two Unix sockets between each two of them

   One socket carries data. The other one is silent until its process ends: then a byte says that it has finished, a number
   which rank has failed, and the end of the stream alone that it was killed. Whoever waits for data watches all of the
   latter, so that the end of one process ends the waiting of every other. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "meeting.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { DATA, NEWS, KINDS, FINISHED = -1 };

typedef struct carrier {
    tn_comm comm;
    int    *fd[KINDS];                  /* [size] each; -1: none */
    struct pollfd *watched;             /* [size + 2] */
    int     seconds;
    uint64_t job;
    char    broken[TN_WHY];             /* why nothing works any more, or "" */
    char    folder[96];                 /* the path of a socket has at most about 104 bytes */
} carrier;

/* Tells all others which rank has failed, or that this process has finished. */
static void tell(carrier *c, int news)
{
    for (int r = 0; r < c->comm.size; r++)
        if (c->fd[NEWS][r] >= 0 && send(c->fd[NEWS][r], &news, sizeof news, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) continue;
}

static tn_status breaks(carrier *c, int culprit, const char *how, char why[TN_WHY])
{
    snprintf(c->broken, sizeof c->broken, "rank %d %s", culprit, how);
    memcpy(why, c->broken, TN_WHY);
    tell(c, culprit);
    return TN_ERR_COMM;
}

/* What the socket for news of rank r says. TN_OK: it has finished, which is no error unless it is needed. */
static tn_status hear(carrier *c, int r, char why[TN_WHY])
{
    int           news = 0;
    const ssize_t n = recv(c->fd[NEWS][r], &news, sizeof news, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return TN_OK;
    if (n != (ssize_t)sizeof news) return breaks(c, r, "has ended", why);
    if (news != FINISHED) return breaks(c, news, news == r ? "has failed" : "has ended", why);
    close(c->fd[NEWS][r]);
    c->fd[NEWS][r] = -1;
    return TN_OK;
}

/* Whether one of those that have met has ended. */
static bool anybody_ended(carrier *c, char why[TN_WHY])
{
    for (int r = 0; r < c->comm.size; r++) if (c->fd[NEWS][r] >= 0 && hear(c, r, why) != TN_OK) return true;
    return false;
}

/* The socket for data of rank r is closed. Whoever ends because of another one has told its rank before. */
static tn_status lost(carrier *c, int r, char why[TN_WHY])
{
    return anybody_ended(c, why) ? TN_ERR_COMM : breaks(c, r, "has ended", why);
}

/* Moves what can be moved at once. false: the socket is closed. */
static bool move(int fd, short events, const char **out, size_t *out_left, char **in, size_t *in_left)
{
    if (out && events) {
        ssize_t n = send(fd, *out, *out_left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (n > 0) *out += n, *out_left -= (size_t)n;
    }
    if (in && events) {
        ssize_t n = recv(fd, *in, *in_left, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (n > 0) *in += n, *in_left -= (size_t)n;
    }
    return true;
}

static tn_status exchange(void *state, int to, const void *out, size_t out_left, int from, void *in, size_t in_left,
                          char why[TN_WHY])
{
    carrier    *c = (carrier *)state;
    const char *o = (const char *)out;
    char       *i = (char *)in;
    double      last = seconds_now();
    if (to < 0) out_left = 0;
    if (from < 0) in_left = 0;
    if (c->broken[0]) memcpy(why, c->broken, TN_WHY);
    while (!c->broken[0] && (out_left > 0 || in_left > 0)) {
        struct pollfd *w = c->watched;
        const size_t   before = out_left + in_left;
        int            n = 0, sends = -1, receives = -1;
        if (out_left > 0) sends = n, w[n].fd = c->fd[DATA][to], w[n++].events = POLLOUT;
        if (in_left > 0) receives = n, w[n].fd = c->fd[DATA][from], w[n++].events = POLLIN;
        for (int r = 0; r < c->comm.size; r++)
            if (c->fd[NEWS][r] >= 0) w[n].fd = c->fd[NEWS][r], w[n++].events = POLLIN;
        int ready = poll(w, (nfds_t)n, 1000);
        if (ready < 0 && errno != EINTR) return breaks(c, c->comm.rank, strerror(errno), why);
        for (int r = 0; ready > 0 && r < c->comm.size; r++)      /* first: who has ended the others */
            if (c->fd[NEWS][r] >= 0 && hear(c, r, why) != TN_OK) return TN_ERR_COMM;
        if (ready > 0 && sends >= 0 && !move(w[sends].fd, w[sends].revents, &o, &out_left, NULL, NULL))
            return lost(c, to, why);
        if (ready > 0 && receives >= 0 && !move(w[receives].fd, w[receives].revents, NULL, NULL, &i, &in_left))
            return lost(c, from, why);
        if (out_left + in_left < before) last = seconds_now();
        else if (seconds_now() - last > c->seconds)
            return breaks(c, in_left > 0 ? from : to, "does not answer", why);
    }
    return c->broken[0] ? TN_ERR_COMM : TN_OK;
}

static void close_all(tn_comm *comm, bool failed)
{
    carrier *c = (carrier *)comm->state;
    if (!c->broken[0]) tell(c, failed ? comm->rank : FINISHED);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int r = 0; c->fd[kind] && r < comm->size; r++) if (c->fd[kind][r] >= 0) close(c->fd[kind][r]);
        free(c->fd[kind]);
    }
    free(c->watched);
    free(c);
}

/* ---- how they find each other: rank r listens at FOLDER/r and connects to those before it ---- */

typedef struct hello { uint64_t job; int rank, size, kind, unused; } hello;

/* What the other one answers: one int. */
enum { WELCOME = 1, TAKEN, OTHER_JOB };

static bool place_of(const carrier *c, int rank, struct sockaddr_un *at)
{
    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    return snprintf(at->sun_path, sizeof at->sun_path, "%s/%d", c->folder, rank) < (int)sizeof at->sun_path;
}

/* Whether one of those that this process has met has ended. One that has finished may be far ahead: its news stay. */
static bool ended_early(carrier *c, char why[TN_WHY])
{
    int news;
    for (int r = 0; r < c->comm.size; r++) {
        const int fd = c->fd[NEWS][r];
        if (fd < 0) continue;
        if (recv(fd, &news, sizeof news, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof news && news == FINISHED) continue;
        if (hear(c, r, why) != TN_OK) return true;
    }
    return false;
}

/* Does not wait: -1 with EAGAIN in errno if too many wait for that process. */
static int connect_to(const struct sockaddr_un *at)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) == 0) return fd;
    int before = errno;
    if (fd >= 0) close(fd);
    errno = before;
    return -1;
}

static int call(carrier *c, int rank, int kind, double until, char why[TN_WHY])
{
    struct sockaddr_un at;
    hello              h;
    memset(&h, 0, sizeof h);
    h.job = c->job;
    h.rank = c->comm.rank;
    h.size = c->comm.size;
    h.kind = kind;
    if (!place_of(c, rank, &at)) return -1;
    for (; !c->broken[0] && seconds_now() < until && !ended_early(c, why); sleep_for(0.01)) {
        int fd;
        if ((fd = connect_to(&at)) < 0) continue;
        int word = 0;
        if (sends(fd, &h, sizeof h) && receive(fd, &word, sizeof word, until) && word == WELCOME) return fd;
        close(fd);
        if (word == 0) continue;
        snprintf(c->broken, sizeof c->broken, "rank %d %s, expected a folder, or MASTER_PORT, of its own for each job", rank,
                 word == TAKEN ? "is connected to another process of this rank" : "is part of another job");
        memcpy(why, c->broken, TN_WHY);
    }
    return -1;
}

/* Lets in those of the processes after this one that have called. */
static bool answer(carrier *c, entrance *d, double until, char why[TN_WHY])
{
    caller *g = poll_callers(d);
    hello  h;
    if (seconds_now() > until || ended_early(c, why)) return false;
    if (!g) return true;
    memcpy(&h, g->message[0], sizeof h);
    int word = h.job != c->job || h.size != c->comm.size || h.rank <= c->comm.rank || h.rank >= h.size || h.kind < 0
         || h.kind >= KINDS ? OTHER_JOB : c->fd[h.kind][h.rank] >= 0 ? TAKEN : WELCOME;
    if (sends(g->fd, &word, sizeof word) && word == WELCOME) {
        c->fd[h.kind][h.rank] = g->fd;
        g->fd = -1;
    }
    drop_caller(g);
    return true;
}

static int first_missing(const carrier *c)
{
    for (int r = 0; r < c->comm.size; r++) if (r != c->comm.rank && (c->fd[DATA][r] < 0 || c->fd[NEWS][r] < 0)) return r;
    return -1;
}

/* A socket that listens at this process's place; -1 with the reason. */
static int listen_here(const carrier *c, struct sockaddr_un *at, char why[TN_WHY])
{
    struct stat s;
    if ((mkdir(c->folder, 0700) != 0 && errno != EEXIST) || !place_of(c, c->comm.rank, at) || lstat(c->folder, &s) != 0 ||
        !S_ISDIR(s.st_mode) || s.st_uid != geteuid()) {
        snprintf(why, TN_WHY, "%.80s: not a folder of this user in which sockets can be made", c->folder);
        return -1;
    }
    if (s.st_mode & 077) {
        snprintf(why, TN_WHY, "%.80s: its mode is %04o, expected 0700, a folder that nobody else can enter", c->folder,
                 (unsigned)s.st_mode & 07777);
        return -1;
    }
    if (lstat(at->sun_path, &s) == 0 && !S_ISSOCK(s.st_mode)) {
        snprintf(why, TN_WHY, "%.100s is not a socket, expected a new or empty folder", at->sun_path);
        return -1;
    }
    int fd = connect_to(at);
    if (fd >= 0 || errno == EAGAIN) {
        if (fd >= 0) close(fd);
        snprintf(why, TN_WHY, "%.80s: another process of this rank listens there, expected a folder, or MASTER_PORT, of its own "
                 "for each job", at->sun_path);
        return -1;
    }
    unlink(at->sun_path);               /* left by a process that was killed */
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && listen(fd, KINDS * c->comm.size + CALLERS) == 0) return fd;
    snprintf(why, TN_WHY, "%.80s: %s", at->sun_path, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static bool connect_all(carrier *c, char why[TN_WHY])
{
    const double       until = seconds_now() + (c->seconds < 60 ? c->seconds : 60);
    struct sockaddr_un at;
    const int          listener = listen_here(c, &at, why);
    entrance               d;
    int                r;
    if (listener < 0) return false;
    open_entrance(&d, listener, sizeof(hello), 0);
    for (r = 0; r < c->comm.rank && !c->broken[0]; r++)
        for (int kind = 0; kind < KINDS && !c->broken[0]; kind++) c->fd[kind][r] = call(c, r, kind, until, why);
    while (!c->broken[0] && first_missing(c) > c->comm.rank && answer(c, &d, until, why)) { }
    close_entrance(&d);
    unlink(at.sun_path);
    rmdir(c->folder);                   /* the last one succeeds, if nothing else is there */
    r = first_missing(c);
    if (r >= 0 && !c->broken[0])
        snprintf(why, TN_WHY, "rank %d of %d did not connect within %d s", r, c->comm.size, c->seconds < 60 ? c->seconds : 60);
    return r < 0;
}

tn_comm *comm_socket(const char *folder, int rank, int size, char why[TN_WHY])
{
    const char *tmp = comm_variable("TMPDIR");
    carrier    *c;
    int         seconds;
    if (!comm_seconds(&seconds, why)) return NULL;
    if (size < 1 || rank < 0 || rank >= size || !(c = (carrier *)calloc(1, sizeof *c))) {
        snprintf(why, TN_WHY, "rank %d of %d, expected 0 <= rank < size, and memory", rank, size);
        return NULL;
    }
    c->comm.abi = TN_COMM_ABI;
    c->comm.name = "socket";
    c->comm.rank = rank;
    c->comm.size = size;
    c->comm.state = c;
    c->comm.any_thread = true;
    c->comm.exchange = exchange;
    c->comm.close = close_all;
    c->seconds = seconds;
    c->job = comm_job();
    int r = folder ? snprintf(c->folder, sizeof c->folder, "%s", folder)
               : snprintf(c->folder, sizeof c->folder, "%s/tn-%d-%016llx", tmp ? tmp : "/tmp", (int)geteuid(),
                          (unsigned long long)c->job);
    if (r >= (int)sizeof c->folder) {
        snprintf(why, TN_WHY, "%.80s...: the path is too long for sockets, expected at most %d bytes", c->folder,
                 (int)sizeof c->folder - 1);
        free(c);
        return NULL;
    }
    c->watched = (struct pollfd *)calloc((size_t)size + 2, sizeof *c->watched);
    for (int kind = 0; kind < KINDS; kind++) {
        c->fd[kind] = (int *)malloc((size_t)size * sizeof **c->fd);
        for (r = 0; c->fd[kind] && r < size; r++) c->fd[kind][r] = -1;
    }
    if (c->watched && c->fd[DATA] && c->fd[NEWS] && connect_all(c, why)) return &c->comm;
    if (!c->watched || !c->fd[DATA] || !c->fd[NEWS]) snprintf(why, TN_WHY, "no memory for %d processes", size);
    if (!c->broken[0]) c->broken[0] = 1;        /* nobody is told; the end of the sockets says enough */
    if (c->fd[DATA] && c->fd[NEWS]) close_all(&c->comm, true);
    return NULL;
}
