/* mpi.c - a carrier over MPI (mpicc). Large messages go in pieces, because MPI counts in int.

   MPI has collectives of its own, but their order of sums is theirs; the library's are used, whose bits do not depend on the
   number of machines. When a process ends, mpirun ends the others. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "carrier.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { PIECE = 1 << 30 };

typedef struct carrier {
    tn_comm  comm;
    MPI_Comm world;                     /* a communicator of its own: the program's messages and errors are another matter */
    bool     began;
    char     broken[TN_WHY];
} carrier;

static tn_status breaks(carrier *c, int error, int other, char why[TN_WHY])
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int  length = 0;
    MPI_Error_string(error, text, &length);
    snprintf(c->broken, sizeof c->broken, "with rank %d: %.200s", other, text);
    memcpy(why, c->broken, TN_WHY);
    return TN_ERR_COMM;
}

/* Sends and receives. */
static int both(const carrier *c, const char *out, int sends, int to, char *in, int receives, int from)
{
    MPI_Request request[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status  status[2];
    int         done = 0, count, error = MPI_SUCCESS;
    if (receives) error = MPI_Irecv(in, receives, MPI_BYTE, from, 0, c->world, &request[0]);
    if (sends && error == MPI_SUCCESS) error = MPI_Isend(out, sends, MPI_BYTE, to, 0, c->world, &request[1]);
    for (long looks = 0; error == MPI_SUCCESS && !done; looks++) {
        wait_a_little(looks);
        error = MPI_Testall(2, request, &done, status);
    }
    if (receives && error == MPI_SUCCESS) error = MPI_Get_count(&status[0], MPI_BYTE, &count);
    return receives && error == MPI_SUCCESS && count != receives ? MPI_ERR_COUNT : error;
}

static tn_status exchange(void *state, int to, const void *out, size_t out_left, int from, void *in, size_t in_left,
                          char why[TN_WHY])
{
    carrier    *c = (carrier *)state;
    const char *o = (const char *)out;
    char       *i = (char *)in;
    if (to < 0) out_left = 0;
    if (from < 0) in_left = 0;
    if (c->broken[0]) memcpy(why, c->broken, TN_WHY);
    while (!c->broken[0] && (out_left > 0 || in_left > 0)) {
        const int sends = out_left < PIECE ? (int)out_left : PIECE, receives = in_left < PIECE ? (int)in_left : PIECE;
        const int error = both(c, o, sends, to, i, receives, from);
        if (error != MPI_SUCCESS) return breaks(c, error, receives ? from : to, why);
        if (sends) o += sends;
        if (receives) i += receives;
        out_left -= (size_t)sends;
        in_left -= (size_t)receives;
    }
    return c->broken[0] ? TN_ERR_COMM : TN_OK;
}

static tn_status done(carrier *c, int error, char why[TN_WHY])
{
    return error == MPI_SUCCESS ? TN_OK : breaks(c, error, c->comm.rank, why);
}

static MPI_Datatype type_of(tn_dtype dtype) { return dtype == TN_F64 ? MPI_DOUBLE : dtype == TN_F32 ? MPI_FLOAT : MPI_INT32_T; }

/* With memory of a device only MPI itself can add. */
static tn_status all_reduce(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    for (int64_t at = 0; at < count; at += PIECE / 8) {
        const int n = count - at < PIECE / 8 ? (int)(count - at) : PIECE / 8;
        char     *p = (char *)data + (size_t)at * (dtype == TN_F64 ? 8 : 4);
        const int error = MPI_Allreduce(MPI_IN_PLACE, p, n, type_of(dtype), MPI_SUM, ((carrier *)state)->world);
        if (error != MPI_SUCCESS) return breaks((carrier *)state, error, ((carrier *)state)->comm.rank, why);
    }
    return TN_OK;
}

static tn_status reduce_scatter(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY])
{
    return all_reduce(state, data, count * ((carrier *)state)->comm.size, dtype, why);
}

static tn_status all_gather(void *state, void *data, size_t bytes, char why[TN_WHY])
{
    carrier *c = (carrier *)state;
    if (bytes < PIECE)
        return done(c, MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, data, (int)bytes, MPI_BYTE, ((carrier *)state)->world), why);
    for (int r = 0; r < c->comm.size; r++)
        for (size_t at = 0; at < bytes; at += PIECE) {
            const int n = bytes - at < PIECE ? (int)(bytes - at) : PIECE;
            const int error = MPI_Bcast((char *)data + (size_t)r * bytes + at, n, MPI_BYTE, r, ((carrier *)state)->world);
            if (error != MPI_SUCCESS) return breaks(c, error, r, why);
        }
    return TN_OK;
}

static tn_status broadcast(void *state, void *data, size_t bytes, int root, char why[TN_WHY])
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        const int n = bytes - at < PIECE ? (int)(bytes - at) : PIECE;
        const int error = MPI_Bcast((char *)data + at, n, MPI_BYTE, root, ((carrier *)state)->world);
        if (error != MPI_SUCCESS) return breaks((carrier *)state, error, root, why);
    }
    return TN_OK;
}

/* MPI_Abort ends the other processes, which may wait in MPI for this one. */
static void close_mpi(tn_comm *comm, bool failed)
{
    carrier *c = (carrier *)comm->state;
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_free(&c->world);
    if (c->began) MPI_Finalize();
    free(c);
}

tn_comm *comm_mpi(bool device, char why[TN_WHY])
{
    carrier *c = (carrier *)calloc(1, sizeof *c);
    int      already = 0, level = MPI_THREAD_SINGLE;
    if (!c) {
        snprintf(why, TN_WHY, "no memory");
        return NULL;
    }
    MPI_Initialized(&already);
    c->began = !already;
    if ((already ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level)) != MPI_SUCCESS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &c->world) != MPI_SUCCESS) {
        snprintf(why, TN_WHY, "MPI cannot be started");
        free(c);
        return NULL;
    }
    MPI_Comm_set_errhandler(c->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(c->world, &c->comm.rank);
    MPI_Comm_size(c->world, &c->comm.size);
    c->comm.any_thread = level >= MPI_THREAD_SERIALIZED;
    c->comm.abi = TN_COMM_ABI;
    c->comm.name = "mpi";
    c->comm.state = c;
    c->comm.exchange = exchange;
    c->comm.close = close_mpi;
    c->comm.device = device;
    if (!device) return &c->comm;
    c->comm.all_reduce = all_reduce;
    c->comm.reduce_scatter = reduce_scatter;
    c->comm.all_gather = all_gather;
    c->comm.broadcast = broadcast;
    return &c->comm;
}
