/* nccl.c: libnccl.so.2 between processes of this machine: the functions that examples/comm/nccl.c uses. An id is the path of a
   Unix socket. A collective begins at once or not at all, and is done by the stream's thread: when it is at its turn, process
   r sends to the k-th after it and receives from the k-th before it what each has, and adds in the order of ranks. */
#define _DEFAULT_SOURCE
#include "fake.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR };
enum { INT8 = 0, INT32 = 2, FLOAT32 = 7, FLOAT64 = 8, SUM = 0, MOST = 8 };
enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST };

typedef struct id { char bytes[128]; } id;

typedef struct comm {
    int           rank, size, fd[MOST];
    char          path[128];
    volatile int  error, aborted, working, calls;
} comm;

typedef struct call { int what, type, root; size_t count; } call;
typedef struct job { comm *c; call call; const char *in; char *out; } job;

static void demand(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "nccl: %s\n", what);
    abort();
}

/* "RANK:WHERE" of a variable: WHERE if this is the rank. */
static const char *asked(const char *name, int rank)
{
    const char *text = getenv(name);
    return text && atoi(text) == rank ? strchr(text, ':') + 1 : "";
}

const char *ncclGetErrorString(int error)
{
    static const char *const text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                       "invalid argument", "invalid usage", "remote process exited or there was a network error"};
    return error >= 0 && error <= REMOTE_ERROR ? text[error] : "unknown result code";
}

int ncclGetUniqueId(id *out)
{
    const char *tmp = getenv("TNFN_TMP");
    if (!strcmp(asked("TNFN_WRONG", 0), "id")) return SYSTEM_ERROR;
    memset(out, 0, sizeof *out);
    snprintf(out->bytes, 90, "%s/nccl-%d", tmp ? tmp : "/tmp", (int)getpid());
    return SUCCESS;
}

static void address_of(const comm *c, int rank, struct sockaddr_un *at)
{
    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    snprintf(at->sun_path, sizeof at->sun_path, "%.90s.%d", c->path, rank);
}

/* Waits for all, as long as it takes. */
int ncclCommInitRank(comm **out, int size, id name, int rank)
{
    comm              *c = (comm *)calloc(1, sizeof *c);
    struct sockaddr_un at;
    int                other, listener = socket(AF_UNIX, SOCK_STREAM, 0);
    demand(tnfn_is_current(), "ncclCommInitRank: no context is current");
    demand(c && size >= 1 && size <= MOST && rank >= 0 && rank < size && memchr(name.bytes, 0, sizeof name.bytes), "InitRank");
    if (!strcmp(asked("TNFN_DIES", rank), "init")) raise(SIGKILL);
    if (!strcmp(asked("TNFN_WRONG", rank), "init")) return SYSTEM_ERROR;
    c->rank = rank;
    c->size = size;
    memcpy(c->path, name.bytes, sizeof c->path);
    for (int r = 0; r < size; r++) c->fd[r] = -1;
    address_of(c, rank, &at);
    unlink(at.sun_path);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, size) != 0)
        return SYSTEM_ERROR;
    for (int r = 0; r < rank; r++) {
        struct sockaddr_un there;
        address_of(c, r, &there);
        for (;;) {
            c->fd[r] = socket(AF_UNIX, SOCK_STREAM, 0);
            if (connect(c->fd[r], (struct sockaddr *)&there, sizeof there) == 0
                && send(c->fd[r], &rank, sizeof rank, MSG_NOSIGNAL) == (ssize_t)sizeof rank) break;
            close(c->fd[r]);
            usleep(2000);
        }
    }
    for (int r = rank + 1; r < size; r++) {
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0 || recv(fd, &other, sizeof other, MSG_WAITALL) != (ssize_t)sizeof other) { r--; continue; }
        c->fd[other] = fd;
    }
    close(listener);
    unlink(at.sun_path);
    *out = c;
    return SUCCESS;
}

/* Sends to one while it receives from another; false: one has ended, or the communicator was aborted. */
static int trade(comm *c, int to, const char *out, int from, char *in, size_t bytes)
{
    const int silent = getenv("TNFN_SILENT") != NULL;
    size_t    sent = 0, got = 0;
    while (sent < bytes || got < bytes) {
        struct pollfd w[2] = {{c->fd[to], (short)(sent < bytes ? POLLOUT : 0), 0},
                              {c->fd[from], (short)(got < bytes ? POLLIN : 0), 0}};
        ssize_t       m = 1;
        if (c->aborted) return 0;
        poll(w, 2, 20);
        ssize_t n = sent < bytes ? send(c->fd[to], out + sent, bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        if (n > 0) sent += (size_t)n;
        else if (n < 0 && errno != EAGAIN) m = 0;
        if (got < bytes) {
            const ssize_t k = recv(c->fd[from], in + got, bytes - got, MSG_DONTWAIT);
            if (k > 0) got += (size_t)k;
            else if (k == 0 || errno != EAGAIN) m = 0;
        }
        if (m > 0) continue;
        if (!silent) c->error = REMOTE_ERROR;
        while (!c->aborted) usleep(2000);           /* as a kernel on the GPU */
        return 0;
    }
    return 1;
}

static size_t size_of(int type) { return type == FLOAT64 ? 8 : type == INT8 ? 1 : 4; }

static void add(char *to, const char *from, size_t n, int type)
{
    if (type == FLOAT64) for (size_t i = 0; i < n; i++) ((double *)(void *)to)[i] += ((const double *)(const void *)from)[i];
    else if (type == FLOAT32) for (size_t i = 0; i < n; i++) ((float *)(void *)to)[i] += ((const float *)(const void *)from)[i];
    else if (type == INT32) for (size_t i = 0; i < n; i++) ((int32_t *)(void *)to)[i] += ((const int32_t *)(const void *)from)[i];
    else demand(0, "a sum of bytes");
}

/* What each process has: in this call `bytes`, of which all get all. */
static int collect(comm *c, const char *own, char *all, size_t bytes)
{
    memcpy(all + (size_t)c->rank * bytes, own, bytes);
    for (int k = 1; k < c->size; k++) {
        const int to = (c->rank + k) % c->size, from = (c->rank + c->size - k) % c->size;
        if (!trade(c, to, own, from, all + (size_t)from * bytes, bytes)) return 0;
    }
    return 1;
}

static int perform(job *j)
{
    comm        *c = j->c;
    const call   mine = j->call;
    const size_t each = size_of(mine.type) * mine.count, n = (size_t)c->size;
    const size_t bytes = mine.what == REDUCE_SCATTER ? n * each : each;
    call         others[MOST];
    char        *all = (char *)malloc(n * bytes + 1);
    demand(all != NULL, "no memory");
    int good = collect(c, (const char *)&mine, (char *)others, sizeof mine);
    for (int r = 0; good && r < c->size; r++) demand(!memcmp(&others[r], &mine, sizeof mine), "the processes make different calls");
    good = good && collect(c, j->in, all, bytes);
    if (good && mine.what == ALL_GATHER) memcpy(j->out, all, n * bytes);
    if (good && mine.what == BROADCAST) memcpy(j->out, all + (size_t)mine.root * bytes, bytes);
    if (good && (mine.what == ALL_REDUCE || mine.what == REDUCE_SCATTER)) {
        const size_t skip = mine.what == REDUCE_SCATTER ? (size_t)c->rank * each : 0;
        for (int r = 1; r < c->size; r++) add(all + skip, all + (size_t)r * bytes + skip, mine.count, mine.type);
        memcpy(j->out, all + skip, each);
    }
    free(all);
    return good;
}

static int work(void *with)
{
    job  *j = (job *)with;
    comm *c = j->c;
    int   error = 0;
    usleep(300);                                    /* the caller is back before it begins */
    if (!strcmp(asked("TNFN_WRONG", c->rank), "call") && c->calls > 3) error = 700;
    else if (!c->aborted) perform(j);
    free(j);
    c->working = 0;
    return error;
}

static int begin(int what, const void *in, void *out, size_t count, int type, int root, comm *c, void *stream)
{
    job        *j = (job *)calloc(1, sizeof *j);
    const char *dies = j && c ? asked("TNFN_DIES", c->rank) : "";
    if (!j || !c || c->aborted || !stream || !in || !out || root < 0 || root >= c->size) {
        free(j);
        return INVALID_ARGUMENT;
    }
    if (c->error) {
        free(j);
        return c->error;
    }
    c->calls++;
    if (!strncmp(dies, "call:", 5) && c->calls == atoi(dies + 5)) raise(SIGKILL);
    demand(!c->working, "the carrier did not wait for the GPU");
    c->working = 1;
    j->c = c;
    j->in = (const char *)in;
    j->out = (char *)out;
    j->call.what = what;
    j->call.type = type;
    j->call.root = root;
    j->call.count = count;
    tnfn_add(stream, work, j);
    return SUCCESS;
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, comm *c, void *stream)
{
    demand(op == SUM && in == out, "ncclAllReduce: expected a sum in place");
    return begin(ALL_REDUCE, in, out, count, type, 0, c, stream);
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, comm *c, void *stream)
{
    demand(op == SUM && c && (const char *)out == (const char *)in + (size_t)c->rank * count * size_of(type),
           "ncclReduceScatter: in place is the row of the rank");
    return begin(REDUCE_SCATTER, in, out, count, type, 0, c, stream);
}

int ncclAllGather(const void *in, void *out, size_t count, int type, comm *c, void *stream)
{
    demand(c && (const char *)in == (const char *)out + (size_t)c->rank * count * size_of(type),
           "ncclAllGather: in place is the row of the rank");
    return begin(ALL_GATHER, in, out, count, type, 0, c, stream);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, comm *c, void *stream)
{
    return begin(BROADCAST, in, out, count, type, root, c, stream);
}

int ncclCommGetAsyncError(comm *c, int *error)
{
    *error = c->error;
    return SUCCESS;
}

/* Both wait until the GPU does no more; only the second one stops it. */
static int end(comm *c)
{
    while (c->working) usleep(1000);
    for (int r = 0; r < c->size; r++) if (c->fd[r] >= 0) close(c->fd[r]);
    free(c);
    return SUCCESS;
}

int ncclCommDestroy(comm *c) { return end(c); }

int ncclCommAbort(comm *c)
{
    c->aborted = 1;
    return end(c);
}
