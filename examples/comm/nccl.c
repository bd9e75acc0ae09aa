/* nccl.c - a carrier over NCCL 2, between GPUs. Its library is opened when it is needed, and nothing of CUDA's is included.

   The first process makes an id and gives it to the others by TCP. These connections stay: what is heard by them ends every wait
   when a process has ended, which NCCL itself may not notice. Each call waits for the GPU, so the sums are there when it
   returns. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#ifndef _DARWIN_C_SOURCE
#define _DARWIN_C_SOURCE
#endif
#include "meeting.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>

/* What nccl.h declares. */
typedef struct nccl_id { char bytes[128]; } nccl_id;
typedef struct nccl_comm *nccl_handle;
enum { NCCL_BYTE = 0, NCCL_INT32 = 2, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_SUM = 0 };
enum { NCCL_CUDA = 1, NCCL_INTERNAL = 3, NCCL_IN_PROGRESS = 7 };

enum { FINISHED = -1, PORTS = 16, ADDRESSES = 8, ADDRESS = 256, LEAST_SECRET = 16 };

typedef struct carrier {
    tn_comm     comm;
    nccl_handle nccl;
    void       *library, *cuda, *stream, *context;
    int        *link;                   /* [size] of the first process; the others use link[0]. -1: none */
    int         finished, culprit;      /* a rank that is done with everything; that has ended; or -1   */
    int         seconds;
    uint64_t    key[2];                 /* of TN_COMM_SECRET; zeros without one */
    char        broken[TN_WHY];
    int         (*get_id)(nccl_id *);                                        /* NCCL's */
    int         (*init)(nccl_handle *, int, nccl_id, int);
    int         (*destroy)(nccl_handle);
    int         (*abort)(nccl_handle);
    int         (*error)(nccl_handle, int *);
    const char *(*text)(int);
    int         (*all_reduce)(const void *, void *, size_t, int, int, nccl_handle, void *);
    int         (*reduce_scatter)(const void *, void *, size_t, int, int, nccl_handle, void *);
    int         (*all_gather)(const void *, void *, size_t, int, nccl_handle, void *);
    int         (*broadcast)(const void *, void *, size_t, int, int, nccl_handle, void *);
    int         (*query)(void *);                                            /* the driver's */
    int         (*make_stream)(void **, unsigned);
    int         (*set_context)(void *);
} carrier;

/* ---- what processes hear of each other ---- */

static int links(const carrier *c) { return c->comm.rank == 0 ? c->comm.size : 1; }

/* Tells the first process, or it tells all others, which rank has failed, or that this one has finished. */
static void tell(const carrier *c, int news)
{
    for (int r = 0; r < links(c); r++)
        if (c->link[r] >= 0 && send(c->link[r], &news, sizeof news, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) continue;
}

static tn_status breaks(carrier *c, int culprit, const char *how, char why[TN_WHY])
{
    snprintf(c->broken, sizeof c->broken, "rank %d %.200s", culprit, how);
    memcpy(why, c->broken, TN_WHY);
    c->culprit = culprit;
    tell(c, culprit);
    if (c->nccl) c->abort(c->nccl);                  /* ends what waits on the GPU for a process that is gone */
    c->nccl = NULL;
    return TN_ERR_COMM;
}

/* Listens to those that this process has met. */
static tn_status hear(carrier *c, char why[TN_WHY])
{
    for (int r = 0; r < links(c); r++) {
        int news = 0;
        if (c->link[r] < 0) continue;
        ssize_t n = recv(c->link[r], &news, sizeof news, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
        if (n == (ssize_t)sizeof news && news == FINISHED) {
            c->finished = r;
            close(c->link[r]);
            c->link[r] = -1;
        } else if (n == (ssize_t)sizeof news) return breaks(c, news, news == r ? "has failed" : "has ended", why);
        else return breaks(c, r, "has ended", why);
    }
    return TN_OK;
}

/* Seconds for an answer that comes at once if it comes: 5, less where TN_COMM_SECONDS is below 100. */
static double moment(const carrier *c) { return c->seconds < 20 ? 1 : c->seconds > 100 ? 5 : c->seconds / 20.0; }

/* Waits for the GPU, if NCCL has begun (status 0). What NCCL says of an error has not the name of the process that has ended, so
   it is reported only if nothing is heard of one. */
static tn_status wait_for(carrier *c, int status, char why[TN_WHY])
{
    enum { CUDA_NOT_READY = 600 };
    const double last = moment(c) + (c->comm.rank == 0 ? 0 : 2);            /* the first one hears of all */
    double until = seconds_now() + c->seconds;
    int    error = status;
    bool   ending = false;
    for (long looks = 0; ; looks++) {
        const int ready = status == 0 ? c->query(c->stream) : CUDA_NOT_READY;
        if (ready == 0) return TN_OK;
        if (ready != CUDA_NOT_READY) return breaks(c, c->comm.rank, "has a GPU that has failed", why);
        if (hear(c, why) != TN_OK) return TN_ERR_COMM;
        if (!ending && error == 0 && c->error(c->nccl, &error) != 0) error = NCCL_INTERNAL;
        if (error == NCCL_IN_PROGRESS) error = 0;
        if (!ending && (error != 0 || c->finished >= 0)) {
            ending = true;
            if (until > seconds_now() + last) until = seconds_now() + last;
        }
        wait_a_little(looks);
        if (seconds_now() <= until) continue;
        if (c->finished >= 0) return breaks(c, c->finished, "has finished before this one", why);
        return breaks(c, c->comm.rank, error != 0 ? c->text(error) : "waits for another one, which does not answer", why);
    }
}

/* ---- collectives ---- */

static tn_status usable(const carrier *c, char why[TN_WHY])
{
    if (c->nccl) return TN_OK;
    memcpy(why, c->broken, TN_WHY);
    return TN_ERR_COMM;
}

static int type_of(tn_dtype dtype) { return dtype == TN_F64 ? NCCL_FLOAT64 : dtype == TN_F32 ? NCCL_FLOAT32 : NCCL_INT32; }

static tn_status all_reduce(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    carrier *c = (carrier *)state;
    if (usable(c, why) != TN_OK) return TN_ERR_COMM;
    return wait_for(c, c->all_reduce(data, data, (size_t)count, type_of(dtype), NCCL_SUM, c->nccl, c->stream), why);
}

/* In place means: a process's part of the data is the row of its rank. */
static char *row(const carrier *c, void *data, size_t bytes) { return (char *)data + (size_t)c->comm.rank * bytes; }

static tn_status reduce_scatter(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    carrier     *c = (carrier *)state;
    const size_t bytes = (size_t)count * (dtype == TN_F64 ? 8 : 4);
    if (usable(c, why) != TN_OK) return TN_ERR_COMM;
    return wait_for(c, c->reduce_scatter(data, row(c, data, bytes), (size_t)count, type_of(dtype), NCCL_SUM, c->nccl, c->stream),
                    why);
}

static tn_status all_gather(void *state, void *data, size_t bytes, char why[TN_WHY])
{
    carrier *c = (carrier *)state;
    if (usable(c, why) != TN_OK) return TN_ERR_COMM;
    return wait_for(c, c->all_gather(row(c, data, bytes), data, bytes, NCCL_BYTE, c->nccl, c->stream), why);
}

static tn_status broadcast(void *state, void *data, size_t bytes, int root, char why[TN_WHY])
{
    carrier *c = (carrier *)state;
    if (usable(c, why) != TN_OK) return TN_ERR_COMM;
    return wait_for(c, c->broadcast(data, data, bytes, NCCL_BYTE, root, c->nccl, c->stream), why);
}

static void close_links(carrier *c)
{
    for (int r = 0; c->link && r < links(c); r++) if (c->link[r] >= 0) close(c->link[r]);
    free(c->link);
}

static void close_nccl(tn_comm *comm, bool failed)
{
    carrier *c = (carrier *)comm->state;
    if (!c->broken[0]) tell(c, failed ? comm->rank : FINISHED);
    if (c->nccl) (void)(failed ? c->abort(c->nccl) : c->destroy(c->nccl));
    close_links(c);
    free(c);                            /* the libraries stay open: unloading a driver is not safe */
}

/* ---- how they meet: the first process listens, and answers each other one ---- */

/* The other one says hello, with a random number; the first one answers with another number and a proof that it has the secret;
   the other one proves the same, and gets the id. The secret is not sent, and a proof is good for these two numbers only.
   A process without the secret gets no id. */
typedef struct hello { uint64_t word, number; int rank, size; } hello;
typedef struct challenge { uint64_t word, number, proof; } challenge;
typedef struct reply { uint64_t word; nccl_id id; int culprit; } reply;     /* who has ended meanwhile, or -1 */

#define ROTATED(x, by) ((x) << (by) | (x) >> (64 - (by)))

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = ROTATED(v[1], 13) ^ v[0], v[0] = ROTATED(v[0], 32);
    v[2] += v[3], v[3] = ROTATED(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = ROTATED(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = ROTATED(v[1], 17) ^ v[2], v[2] = ROTATED(v[2], 32);
}

/* SipHash-2-4 (Aumasson and Bernstein 2012): a hash of the bytes that nobody can compute without the key. */
static uint64_t sip_hash(const uint64_t key[2], const void *bytes, size_t count)
{
    const unsigned char *at = (const unsigned char *)bytes;
    uint64_t v[4], word = 0;
    v[0] = key[0] ^ UINT64_C(0x736f6d6570736575);
    v[1] = key[1] ^ UINT64_C(0x646f72616e646f6d);
    v[2] = key[0] ^ UINT64_C(0x6c7967656e657261);
    v[3] = key[1] ^ UINT64_C(0x7465646279746573);
    for (size_t i = 0; i <= count + 7 - count % 8; i++) {    /* the last word has the length in its last byte */
        const uint64_t byte = i < count ? at[i] : i % 8 == 7 ? count & 255 : 0;
        word |= byte << (8 * (i % 8));
        if (i % 8 < 7) continue;
        v[3] ^= word;
        sip_round(v);
        sip_round(v);
        v[0] ^= word;
        word = 0;
    }
    v[2] ^= 255;
    for (int round = 0; round < 4; round++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* What only one with the secret can say to this hello and this number; first: whether it is the first process that says it. */
static uint64_t proof_of(const carrier *c, const hello *h, uint64_t number, bool first)
{
    uint64_t said[5];
    said[0] = h->word;
    said[1] = h->number;
    said[2] = number;
    said[3] = (uint64_t)h->rank << 32 | (uint64_t)h->size;
    said[4] = first;
    return sip_hash(c->key, said, sizeof said);
}

static bool random_number(uint64_t *number)
{
    FILE      *f = fopen("/dev/urandom", "rb");
    const bool good = f && fread(number, sizeof *number, 1, f) == 1;
    if (f) fclose(f);
    return good;
}

/* Where the first process is: by TCP, or as the file says, which appears whole, by a rename. */
typedef struct place {
    uint64_t word;                      /* of the file, so that one of an earlier run is known; else of the job */
    uint64_t number;                    /* random, of this process                                          */
    int      port, ports, count;        /* first port, and how many there are to try                      */
    bool     here;                      /* for processes of this machine alone: at these addresses         */
    char     address[ADDRESSES][ADDRESS];
} place;

#define MEET UINT64_C(0x746e2e6e63636c31)       /* "tn.nccl1" */

/* The addresses of this machine: those that are for itself alone come last. */
static void find_addresses(place *p)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return;
    for (int pass = 0; pass < 2; pass++)
        for (struct ifaddrs *a = all; a && p->count < ADDRESSES; a = a->ifa_next) {
            const int    family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;
            const size_t bytes = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            if ((family != AF_INET && family != AF_INET6) || !(a->ifa_flags & IFF_UP)) continue;
            if (((a->ifa_flags & IFF_LOOPBACK) != 0) != (pass == 1)) continue;
            if (getnameinfo(a->ifa_addr, (socklen_t)bytes, p->address[p->count], ADDRESS, NULL, 0, NI_NUMERICHOST) == 0
                && !strchr(p->address[p->count], '%')) p->count++;                       /* that is for one cable */
        }
    freeifaddrs(all);
}

/* Writes a new file of a random name beside it, for this user alone, and renames that: neither follows a link. */
static bool write_place(const place *p, const char *path)
{
    char part[1024];
    int  fd;
    errno = ENAMETOOLONG;
    if (snprintf(part, sizeof part, "%s.XXXXXX", path) >= (int)sizeof part || (fd = mkstemp(part)) < 0) return false;
    FILE *f = fdopen(fd, "wb");
    bool  good = f && fprintf(f, "%llu %d %d\n", (unsigned long long)p->word, p->port, p->count) > 0;
    for (int i = 0; i < p->count; i++) good = good && fprintf(f, "%s\n", p->address[i]) > 0;
    good = (f ? fclose(f) : close(fd)) == 0 && good && rename(part, path) == 0;
    if (!good) {
        const int wrong = errno;
        unlink(part);
        errno = wrong;
    }
    return good;
}

/* Another user may have made a link, a pipe or a file of that name: none is waited for or believed. */
static bool read_place(place *p, const char *path, char why[TN_WHY])
{
    const int          fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    struct stat        s;
    const bool         found = fd >= 0 || errno != ENOENT, regular = fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
    const bool         own = regular && (s.st_uid == geteuid() || s.st_uid == 0) && !(s.st_mode & 022);
    FILE              *f = own ? fdopen(fd, "rb") : NULL;
    unsigned long long word = 0;
    bool               good = f && fscanf(f, "%llu %d %d", &word, &p->port, &p->count) == 3 && p->count >= 0
                           && p->count <= ADDRESSES;
    for (int i = 0; good && i < p->count; i++) good = fscanf(f, "%255s", p->address[i]) == 1;
    if (f) fclose(f);
    else if (fd >= 0) close(fd);
    if (found && !own) snprintf(why, TN_WHY, "TN_COMM_FILE, %.160s, is not a regular file that only this user can write", path);
    p->word = word;
    p->ports = 1;
    return good;
}

/* Whether an address is for this machine alone: 127.0.0.0/8, also as an address of IPv6, or ::1. */
static bool is_loopback(const struct sockaddr *at)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
    if (at->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr) >> 24 == 127;
    return at->sa_family == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127));
}

/* Where all addresses of the name are for this machine alone, they replace it. false: nobody knows the name. */
static bool resolve(place *p)
{
    struct addrinfo hints, *all = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(p->address[0], NULL, &hints, &all) != 0) return false;
    p->here = true;
    for (struct addrinfo *at = all; at; at = at->ai_next) p->here = p->here && is_loopback(at->ai_addr);
    if (p->here) p->count = 0;
    for (struct addrinfo *at = p->here ? all : NULL; at && p->count < ADDRESSES; at = at->ai_next)
        if (getnameinfo(at->ai_addr, at->ai_addrlen, p->address[p->count], ADDRESS, NULL, 0, NI_NUMERICHOST) == 0) p->count++;
    freeaddrinfo(all);
    return true;
}

/* A socket that listens at this port of one address, or NULL: of all; -1 if there is none. One for IPv6 hears IPv4, too. */
static int listen_at(const char *address, int family, int port, int size)
{
    const int           yes = 1, no = 0, fd = socket(family, SOCK_STREAM, 0);
    struct sockaddr_in6 six;
    struct sockaddr_in  four;
    memset(&six, 0, sizeof six);
    memset(&four, 0, sizeof four);
    six.sin6_family = AF_INET6;
    four.sin_family = AF_INET;
    six.sin6_port = four.sin_port = htons((unsigned short)port);
    if (fd < 0) return -1;
    if (address && inet_pton(family, address, family == AF_INET6 ? (void *)&six.sin6_addr : (void *)&four.sin_addr) != 1) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four,
             family == AF_INET6 ? sizeof six : sizeof four) == 0 && listen(fd, size + CALLERS) == 0) return fd;
    close(fd);
    return -1;
}

/* At the first of these ports that is free, and the first address that can be used; port 0 is any. */
static int listen_for(place *p, int size)
{
    struct sockaddr_in6 own;
    socklen_t           bytes = sizeof own;
    int                 fd = -1;
    for (int i = 0; i < p->ports && fd < 0; i++)
        for (int k = 0; k < (p->here ? p->count : 1) && fd < 0; k++) {
            const char *address = p->here ? p->address[k] : NULL;
            fd = listen_at(address, AF_INET6, p->port + i, size);
            if (fd < 0) fd = listen_at(address, AF_INET, p->port + i, size);
        }
    memset(&own, 0, sizeof own);
    if (fd >= 0 && getsockname(fd, (struct sockaddr *)&own, &bytes) == 0) p->port = ntohs(own.sin6_port);  /* as of sockaddr_in */
    return fd;
}

/* Answers a message. true: the caller is one of the other processes, and has all that it needs. */
static bool answer(carrier *c, const place *p, caller *g, const nccl_id *id)
{
    const uint64_t key[2] = {p->number, p->word};
    hello    h;
    uint64_t       proof;
    memcpy(&h, g->message[0], sizeof h);
    if (h.word != p->word || h.size != c->comm.size || h.rank <= 0 || h.rank >= h.size || c->link[h.rank] >= 0) {
        drop_caller(g);
        return false;
    }
    uint64_t number = sip_hash(key, &g->until, sizeof g->until); /* random, of this caller: when it came */
    if (g->received == 1) {
        challenge answer;
        answer.word = p->word;
        answer.number = number;
        answer.proof = proof_of(c, &h, number, true);
        if (!sends(g->fd, &answer, sizeof answer)) drop_caller(g);
        return false;
    }
    memcpy(&proof, g->message[1], sizeof proof);
    if ((proof ^ proof_of(c, &h, number, false)) == 0) {     /* in one operation, so that its time says nothing */
        reply r;
        memset(&r, 0, sizeof r);
        r.word = p->word;
        r.id = *id;
        r.culprit = c->culprit;
        if (sends(g->fd, &r, sizeof r)) {
            c->link[h.rank] = g->fd;
            g->fd = -1;
            return true;
        }
    }
    drop_caller(g);
    return false;
}

/* The first process: answers until all are there. If one of them has ended it goes on for a while, so that those that come late
   learn of it. */
static bool answer_all(carrier *c, const place *p, int listener, const nccl_id *id, char why[TN_WHY])
{
    enum { LATE = 20 };
    double until = seconds_now() + c->seconds;
    int    left = c->comm.size - 1;
    entrance   d;
    open_entrance(&d, listener, sizeof(hello), sizeof(uint64_t));
    while (left > 0 && seconds_now() < until) {
        if (c->culprit < 0 && hear(c, why) != TN_OK && until > seconds_now() + LATE) until = seconds_now() + LATE;
        caller *g = poll_callers(&d);
        left -= g && answer(c, p, g, id);
    }
    close_entrance(&d);
    return left == 0 && c->culprit < 0;
}

/* One of the others: calls the first process at one address and port. What listens there may be another program, or another
   job with its own secret: why keeps a wrong proof, and the next port is tried. */
static bool call_at(carrier *c, const place *p, const char *address, int port, double until, nccl_id *id, char why[TN_WHY])
{
    struct addrinfo hints, *all = NULL;
    const double    left = until - seconds_now();
    struct timeval  limit = {0, 0};
    hello           h;
    challenge       first;
    reply           r;
    uint64_t        proof = 0;
    char            number[16];
    bool            good = false;
    memset(&hints, 0, sizeof hints);
    memset(&h, 0, sizeof h);
    hints.ai_socktype = SOCK_STREAM;
    limit.tv_sec = left > 10 ? 10 : left > 1 ? (time_t)left : 1;
    h.word = p->word;
    h.number = p->number;
    h.rank = c->comm.rank;
    h.size = c->comm.size;
    snprintf(number, sizeof number, "%d", port);
    if (getaddrinfo(address, number, &hints, &all) != 0) return false;
    for (struct addrinfo *at = all; at && !good; at = at->ai_next) {
        const int fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);      /* also of connect, on Linux */
        good = connect(fd, at->ai_addr, at->ai_addrlen) == 0 && sends(fd, &h, sizeof h)
            && receive(fd, &first, sizeof first, seconds_now() + moment(c)) && first.word == p->word;
        if (good && (first.proof ^ proof_of(c, &h, first.number, true)) != 0) {
            good = false;
            snprintf(why, TN_WHY, "rank %d of %d: the others were not found within %d s: what listens at %.60s, port %d, gives a "
                     "wrong proof, expected the same TN_COMM_SECRET for all, which is %s here", c->comm.rank, c->comm.size,
                     c->seconds, address, port, comm_variable("TN_COMM_SECRET") ? "set" : "not set");
        }
        if (good) proof = proof_of(c, &h, first.number, false);
        good = good && sends(fd, &proof, sizeof proof) && receive(fd, &r, sizeof r, until) && r.word == p->word;
        if (good) *id = r.id, c->link[0] = fd, c->culprit = r.culprit;
        else close(fd);
    }
    freeaddrinfo(all);
    return good;
}

static bool call_first(carrier *c, place *p, const char *file, nccl_id *id, char why[TN_WHY])
{
    const double until = seconds_now() + c->seconds;
    for (; seconds_now() < until; sleep_for(0.05)) {
        if (file && !read_place(p, file, why)) continue;
        for (int i = 0; i < p->count; i++)
            for (int k = 0; k < p->ports && seconds_now() < until; k++) {
                if (!call_at(c, p, p->address[i], p->port + k, until, id, why)) continue;
                return c->culprit < 0 || breaks(c, c->culprit, "has ended", why) == TN_OK;
            }
    }
    return false;
}

/* Where they meet, by the environment. */
static bool find_place(carrier *c, place *p, const char *file, char why[TN_WHY])
{
    const uint64_t keys[2][2] = {{1, 0}, {2, 0}};
    const char    *address = comm_variable("MASTER_ADDR"), *secret = comm_variable("TN_COMM_SECRET");
    const double   until = seconds_now() + c->seconds;
    memset(p, 0, sizeof *p);
    p->word = MEET ^ comm_job();
    p->port = 29500;
    if (!comm_number("MASTER_PORT", 1, 65535, &p->port, why)) return false;
    p->ports = p->port + PORTS <= 65536 ? PORTS : 65536 - p->port;
    p->count = 1;
    snprintf(p->address[0], sizeof p->address[0], "%s", address && strcmp(address, "localhost") ? address : "127.0.0.1");
    if (secret && strlen(secret) < LEAST_SECRET) {
        snprintf(why, TN_WHY, "TN_COMM_SECRET has %d characters, expected at least %d, and random ones", (int)strlen(secret),
                 LEAST_SECRET);
        return false;
    }
    bool listens = c->comm.rank == 0 && c->comm.size != 1 && (address || !file);
    for (; listens && !resolve(p); sleep_for(0.05)) {        /* a name server may know the name late */
        if (seconds_now() < until) continue;
        snprintf(why, TN_WHY, "MASTER_ADDR is \"%.100s\", which this machine cannot resolve", p->address[0]);
        return false;
    }
    for (int i = 0; i < 2; i++) c->key[i] = secret ? sip_hash(keys[i], secret, strlen(secret)) : 0;
    if (random_number(&p->number) || !secret) return true;
    snprintf(why, TN_WHY, "TN_COMM_SECRET needs random numbers, and /dev/urandom cannot be read");
    return false;
}

/* After this all have the id, and the first process is connected to each other one. */
static bool meet(carrier *c, nccl_id *id, char why[TN_WHY])
{
    const char *file = comm_variable("TN_COMM_FILE");
    place       p;
    if (!find_place(c, &p, file, why)) return false;
    if (c->comm.size == 1) return true;
    snprintf(why, TN_WHY, "rank %d of %d: the others were not found within %d s: %.100s", c->comm.rank, c->comm.size, c->seconds,
             file ? file : p.address[0]);
    if (c->comm.rank > 0) return call_first(c, &p, file, id, why);
    if (file) {
        memcpy(&p.word, id->bytes + 8, sizeof p.word);      /* differs from one run to the next */
        p.word ^= (uint64_t)getpid() << 32 ^ (uint64_t)time(NULL);
        p.port = 0;
        p.ports = 1;
        if (!p.here) p.count = 0, find_addresses(&p);
    }
    int listener = listen_for(&p, c->comm.size);
    if (listener < 0) {
        snprintf(why, TN_WHY, "rank 0 of %d: cannot listen at port %d or the %d after it", c->comm.size, p.port, p.ports - 1);
        return false;
    }
    if (!file) snprintf(why, TN_WHY, "rank 0 of %d: the others were not found within %d s, listening at %.100s, port %d",
                        c->comm.size, c->seconds, p.here ? p.address[0] : "all addresses", p.port);
    if (file && !write_place(&p, file)) {
        snprintf(why, TN_WHY, "TN_COMM_FILE, %.160s, cannot be written: %.60s", file, strerror(errno));
        close(listener);
        return false;
    }
    bool good = answer_all(c, &p, listener, id, why);
    if (file) unlink(file);
    return good;
}

/* ---- NCCL's beginning, which waits for all and cannot be broken off: on a thread of its own ---- */

typedef struct beginning { carrier *c; nccl_handle nccl; nccl_id id; int status; int done[2]; } beginning;

static void *begin(void *with)
{
    beginning *b = (beginning *)with;
    b->status = b->c->set_context(b->c->context) == 0 ? 0 : NCCL_CUDA;      /* which context is current is a thread's own */
    if (b->status == 0) b->status = b->c->init(&b->nccl, b->c->comm.size, b->id, b->c->comm.rank);
    if (write(b->done[1], "", 1) < 0) b->status = -1;
    return NULL;
}

/* false: another process has ended, or NCCL says why. The thread may then go on waiting, and what it uses is left to it. */
static bool begin_nccl(carrier *c, const nccl_id *id, bool *left, char why[TN_WHY])
{
    beginning *b = (beginning *)calloc(1, sizeof *b);
    const double until = seconds_now() + c->seconds;
    struct pollfd w;
    pthread_t  thread;
    *left = false;
    snprintf(why, TN_WHY, "rank %d of %d: no memory, or no thread", c->comm.rank, c->comm.size);
    if (!b) return false;
    b->c = c;
    b->id = *id;
    if (pipe(b->done) != 0) {
        free(b);
        return false;
    }
    if (pthread_create(&thread, NULL, begin, b) != 0) {
        close(b->done[0]);
        close(b->done[1]);
        free(b);
        return false;
    }
    w.fd = b->done[0];
    w.events = POLLIN;
    while (poll(&w, 1, 20) <= 0) {
        *left = hear(c, why) != TN_OK || seconds_now() > until;
        if (!*left) continue;
        if (!c->broken[0]) snprintf(why, TN_WHY, "rank %d of %d: NCCL has not begun within %d s", c->comm.rank, c->comm.size,
                                    c->seconds);
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    if (b->status != 0) snprintf(why, TN_WHY, "rank %d of %d: NCCL: %.200s", c->comm.rank, c->comm.size, c->text(b->status));
    close(b->done[0]);
    close(b->done[1]);
    if (b->status == 0) c->nccl = b->nccl;
    free(b);
    return c->nccl != NULL;
}

/* A pointer to an object becomes one to a function, as POSIX allows and C does not say. */
#define FIND(library, field, name) (*(void **)(void *)&field = dlsym(library, name))

static const char *open_library(carrier *c)
{
    c->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    c->cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!c->library || !c->cuda) return c->cuda ? "libnccl.so.2 cannot be opened" : "libcuda.so.1 cannot be opened";
    if (!FIND(c->library, c->get_id, "ncclGetUniqueId") || !FIND(c->library, c->init, "ncclCommInitRank")
        || !FIND(c->library, c->destroy, "ncclCommDestroy") || !FIND(c->library, c->abort, "ncclCommAbort")
        || !FIND(c->library, c->error, "ncclCommGetAsyncError") || !FIND(c->library, c->text, "ncclGetErrorString")
        || !FIND(c->library, c->all_reduce, "ncclAllReduce") || !FIND(c->library, c->reduce_scatter, "ncclReduceScatter")
        || !FIND(c->library, c->all_gather, "ncclAllGather") || !FIND(c->library, c->broadcast, "ncclBroadcast"))
        return "libnccl.so.2 lacks a function of NCCL 2.4";
    return NULL;
}

/* Makes the GPU's primary context current, which the CUDA runtime shares. */
static const char *select_gpu(carrier *c, int device)
{
    int (*init)(unsigned) = NULL, (*get)(int *, int) = NULL, (*retain)(void **, int) = NULL, gpu;
    if (!FIND(c->cuda, init, "cuInit") || !FIND(c->cuda, get, "cuDeviceGet")
        || !FIND(c->cuda, retain, "cuDevicePrimaryCtxRetain") || !FIND(c->cuda, c->set_context, "cuCtxSetCurrent")
        || !FIND(c->cuda, c->query, "cuStreamQuery") || !FIND(c->cuda, c->make_stream, "cuStreamCreate"))
        return "libcuda.so.1 lacks a function";
    if (init(0) != 0 || get(&gpu, device) != 0 || retain(&c->context, gpu) != 0 || c->set_context(c->context) != 0
        || c->make_stream(&c->stream, 1) != 0) return "the GPU cannot be used";
    return NULL;
}

tn_comm *comm_nccl(int rank, int size, int device, char why[TN_WHY])
{
    carrier    *c = rank >= 0 && rank < size ? (carrier *)calloc(1, sizeof *c) : NULL;
    const char *wrong = NULL;
    nccl_id     id;
    int         status = 0, seconds;
    bool        left = false;
    if (!comm_seconds(&seconds, why)) {
        free(c);
        return NULL;
    }
    memset(&id, 0, sizeof id);
    if (c) c->link = (int *)malloc((size_t)size * sizeof *c->link);
    if (!c || !c->link) {
        snprintf(why, TN_WHY, "rank %d of %d, expected 0 <= rank < size, and memory", rank, size);
        free(c);
        return NULL;
    }
    for (int r = 0; r < size; r++) c->link[r] = -1;
    c->finished = c->culprit = -1;
    c->seconds = seconds;
    c->comm.abi = TN_COMM_ABI;
    c->comm.name = "nccl";
    c->comm.rank = rank;
    c->comm.size = size;
    c->comm.state = c;
    c->comm.device = true;
    c->comm.all_reduce = all_reduce;
    c->comm.reduce_scatter = reduce_scatter;
    c->comm.all_gather = all_gather;
    c->comm.broadcast = broadcast;
    c->comm.close = close_nccl;
    wrong = open_library(c);
    if (!wrong) wrong = select_gpu(c, device);
    if (!wrong && rank == 0 && (status = c->get_id(&id)) != 0) wrong = c->text(status);
    if (wrong && c->seconds > 60) c->seconds = 60;          /* it meets the others all the same, so that they need not wait */
    bool good = meet(c, &id, why);
    if (good && !wrong && begin_nccl(c, &id, &left, why)) return &c->comm;
    if (wrong) snprintf(why, TN_WHY, "rank %d of %d: %.200s", rank, size, wrong);
    if (!c->broken[0]) tell(c, rank);
    if (left) return NULL;
    close_links(c);
    free(c);
    return NULL;
}
