/* nccl.c - a carrier over NCCL 2, between GPUs. Its library is opened when it is needed, and nothing of CUDA's is included.

   The first process makes an id and gives it to the others: through a file, or by TCP. Each call waits for the GPU, so the
   sums are there when it returns. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "comm.h"
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* What nccl.h declares. */
typedef struct nccl_id { char bytes[128]; } nccl_id;
typedef struct nccl_comm *nccl_handle;
enum { NCCL_BYTE = 0, NCCL_INT32 = 2, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_SUM = 0, NCCL_IN_PROGRESS = 7 };

typedef struct carrier {
    tn_comm     comm;
    nccl_handle nccl;
    void       *library, *cuda, *stream;
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
    int         (*query)(void *);                                            /* cuStreamQuery, cuStreamCreate: of the driver */
    int         (*make_stream)(void **, unsigned);
    int         seconds;
} carrier;

static tn_status breaks(carrier *c, const char *what, char why[TN_WHY])
{
    snprintf(c->broken, sizeof c->broken, "rank %d: %.200s", c->comm.rank, what);
    memcpy(why, c->broken, TN_WHY);
    if (c->nccl) c->abort(c->nccl);                  /* ends what waits on the GPU for a process that is gone */
    c->nccl = NULL;
    return TN_ERR_COMM;
}

static time_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Waits for the GPU. NCCL notices by itself that a connection ended; `seconds` is for what it does not notice. */
static tn_status wait_for(carrier *c, int status, char why[TN_WHY])
{
    enum { CUDA_NOT_READY = 600 };
    const time_t until = now() + c->seconds;
    int          error = 0, ready = CUDA_NOT_READY;
    while (status == 0 && (ready = c->query(c->stream)) == CUDA_NOT_READY) {
        if (c->error(c->nccl, &error) != 0 || (error != 0 && error != NCCL_IN_PROGRESS)) status = error;
        else if (now() > until) return breaks(c, "another process does not answer", why);
    }
    if (status != 0) return breaks(c, c->text(status), why);
    return ready == 0 ? TN_OK : breaks(c, "the GPU has failed", why);
}

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

static void close_nccl(tn_comm *comm, bool failed)
{
    carrier *c = (carrier *)comm->state;
    if (c->nccl) (void)(failed ? c->abort(c->nccl) : c->destroy(c->nccl));
    free(c);                            /* the libraries stay open: a driver does not like to go */
}

/* ---- the id ---- */

static void rest(void)
{
    const struct timespec pause = {0, 50000000};
    nanosleep(&pause, NULL);
}

/* The file appears whole, by a rename. */
static bool by_file(const carrier *c, const char *path, nccl_id *id)
{
    const time_t until = now() + c->seconds;
    char         part[1024];
    FILE        *f;
    bool         good;
    if (c->comm.rank == 0) {
        if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part || !(f = fopen(part, "wb"))) return false;
        good = fwrite(id, sizeof *id, 1, f) == 1;
        return fclose(f) == 0 && good && rename(part, path) == 0;
    }
    while (now() < until) {
        good = (f = fopen(path, "rb")) != NULL && fread(id, sizeof *id, 1, f) == 1;
        if (f) fclose(f);
        if (good) return true;
        rest();
    }
    return false;
}

/* The first process answers one call of each other one. */
static bool by_tcp(const carrier *c, const char *address, const char *port, nccl_id *id)
{
    const time_t     until = now() + c->seconds;
    const bool       first = c->comm.rank == 0;
    struct addrinfo  hints, *at = NULL;
    struct timeval   limit = {60, 0};
    const int        yes = 1;
    int              fd = -1, call, left = first ? c->comm.size - 1 : 1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = first ? AI_PASSIVE : 0;
    if (getaddrinfo(first ? NULL : address, port, &hints, &at) != 0) return false;
    while (left > 0 && now() < until) {
        if (fd < 0) {
            fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
            if (fd < 0) break;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
            if (first && (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, c->comm.size) != 0)) break;
        }
        if (first) {
            call = accept(fd, NULL, NULL);
            if (call >= 0 && send(call, id, sizeof *id, 0) == (ssize_t)sizeof *id) left--;
            if (call >= 0) close(call);
        } else if (connect(fd, at->ai_addr, at->ai_addrlen) == 0 && recv(fd, id, sizeof *id, MSG_WAITALL) == (ssize_t)sizeof *id)
            left--;
        else {
            close(fd);
            fd = -1;
            rest();
        }
    }
    if (fd >= 0) close(fd);
    freeaddrinfo(at);
    return left == 0;
}

/* A pointer to an object becomes one to a function, as POSIX allows and C does not say. */
#define FIND(library, field, name) (*(void **)(void *)&c->field = dlsym(library, name))

static const char *open_library(carrier *c)
{
    c->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    c->cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!c->library || !c->cuda) return c->cuda ? "libnccl.so.2 cannot be opened" : "libcuda.so.1 cannot be opened";
    if (!FIND(c->library, get_id, "ncclGetUniqueId") || !FIND(c->library, init, "ncclCommInitRank")
        || !FIND(c->library, destroy, "ncclCommDestroy") || !FIND(c->library, abort, "ncclCommAbort")
        || !FIND(c->library, error, "ncclCommGetAsyncError") || !FIND(c->library, text, "ncclGetErrorString")
        || !FIND(c->library, all_reduce, "ncclAllReduce") || !FIND(c->library, reduce_scatter, "ncclReduceScatter")
        || !FIND(c->library, all_gather, "ncclAllGather") || !FIND(c->library, broadcast, "ncclBroadcast"))
        return "libnccl.so.2 lacks a function of NCCL 2.4";
    if (!FIND(c->cuda, query, "cuStreamQuery") || !FIND(c->cuda, make_stream, "cuStreamCreate"))
        return "libcuda.so.1 lacks a function";
    return NULL;
}

/* Makes the GPU's primary context current, which the CUDA runtime shares. */
static const char *select_gpu(carrier *c, int device)
{
    int  (*init)(unsigned) = NULL, (*get)(int *, int) = NULL, (*retain)(void **, int) = NULL, (*set)(void *) = NULL, gpu;
    void  *context;
    *(void **)(void *)&init = dlsym(c->cuda, "cuInit");
    *(void **)(void *)&get = dlsym(c->cuda, "cuDeviceGet");
    *(void **)(void *)&retain = dlsym(c->cuda, "cuDevicePrimaryCtxRetain");
    *(void **)(void *)&set = dlsym(c->cuda, "cuCtxSetCurrent");
    if (!init || !get || !retain || !set || init(0) != 0 || get(&gpu, device) != 0 || retain(&context, gpu) != 0
        || set(context) != 0 || c->make_stream(&c->stream, 1) != 0) return "the GPU cannot be used";
    return NULL;
}

tn_comm *comm_nccl(int rank, int size, int device, char why[TN_WHY])
{
    const char *file = getenv("TN_COMM_FILE"), *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const char *seconds = getenv("TN_COMM_SECONDS"), *wrong;
    carrier    *c = (carrier *)calloc(1, sizeof *c);
    nccl_id     id = {{0}};
    int         status = 0;
    if (!c) {
        snprintf(why, TN_WHY, "no memory");
        return NULL;
    }
    c->seconds = seconds && *seconds ? atoi(seconds) : 600;
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
    if (!wrong && size > 1 &&
        !(file ? by_file(c, file, &id) : by_tcp(c, address ? address : "127.0.0.1", port ? port : "29500", &id)))
        wrong = file ? "the id cannot be passed on by TN_COMM_FILE" : "the id cannot be passed on to MASTER_ADDR, MASTER_PORT";
    if (!wrong && (status = c->init(&c->nccl, size, id, rank)) != 0) wrong = c->text(status);
    if (!wrong) return &c->comm;
    snprintf(why, TN_WHY, "rank %d of %d: %.200s", rank, size, wrong);
    free(c);
    return NULL;
}
