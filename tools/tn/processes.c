/* processes.c - tn train: the other processes that train the same run, see --comm

   A process that ends by fail or exit has not said goodbye, so the others learn at once that it has failed. */
#include "train.h"
#include "examples/comm/comm.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tn_comm *others;                 /* NULL: this process is alone */

const tn_comm *other_processes(void) { return others; }

static void leave(void)
{
    tn_comm *comm = others;
    others = NULL;
    if (comm) comm->close(comm, true);
}

void close_processes(void)
{
    tn_comm *comm = others;
    others = NULL;
    if (comm) comm->close(comm, false);
}

static int here, place_here;            /* the processes of this machine, and which of them this is */

int processes_here(void) { return others ? here : 1; }
int rank_here(void)      { return others ? place_here : 0; }

void open_processes(const char *kind, int64_t device)
{
    char why[TN_WHY] = "", *name;
    int  rank = 0, size = 1;
    (void)device;                       /* only NCCL's carrier has one */
    if (!strcmp(kind, "none")) return;
    if (!strcmp(kind, "mpi")) {
#ifdef TN_TOOL_MPI
        others = comm_mpi(false, why);
#else
        usage_error("--comm is mpi, expected another: this tn was built without MPI (make tn-mpi builds one with it)");
#endif
    } else {
        if (!comm_launcher(&rank, &size, why)) usage_error("--comm is %s, but %s", kind, why);
        place_here = rank;
        if (!comm_local(false, &place_here, why)) usage_error("--comm is %s, but %s", kind, why);
        if (!strcmp(kind, "socket")) others = comm_socket(NULL, rank, size, why);
#ifdef TN_TOOL_CUDA
        else others = comm_nccl(rank, size, (int)device + place_here, why);
#else
        else usage_error("--comm is %s, expected another: this tn was built without CUDA (make tn-cuda builds one with it)",
                         kind);
#endif
    }
    if (!others) fail("--comm %s: %s", kind, why);
    atexit(leave);
    here = others->size;
    place_here = others->rank;
    if (!comm_local(true, &here, why) || !comm_local(false, &place_here, why)) usage_error("--comm is %s, but %s", kind, why);
    if (others->size == 1) return;
    name = format_text("train, rank %d", others->rank);
    set_command_name(name);
    if (others->rank > 0 && !freopen("/dev/null", "w", stdout)) fail("/dev/null cannot be written");
}

bool is_first(void) { return !others || others->rank == 0; }

/* ---- numbers that all have to know ---- */

double of_first(tn_ctx *ctx, double number)
{
    if (!is_first()) number = 0;
    tn_comm_sum(ctx, &number, 1);
    return number;
}

void check_alike(tn_ctx *ctx, const char *text, size_t bytes, const char *what)
{
    const int size = tn_comm_size(ctx), own = 2 * tn_comm_rank(ctx);
    uint64_t  hash = UINT64_C(14695981039346656037);
    double   *half = (double *)allocate((size_t)size, 2 * sizeof *half);   /* of each: numbers that a double holds */
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    memset(half, 0, (size_t)size * 2 * sizeof *half);
    half[own] = (double)(uint32_t)hash;
    half[own + 1] = (double)(uint32_t)(hash >> 32);
    tn_comm_sum(ctx, half, 2 * size);
    check_ctx(ctx, "the other processes");
    for (int r = 1; r < size; r++)
        if (half[2 * r] != half[0] || half[2 * r + 1] != half[1])
            fail("rank %d has other %s than rank 0, expected the same for all processes", r, what);
    free(half);
}

bool any_of_all(tn_ctx *ctx, bool here_too)
{
    double count = here_too;
    tn_comm_sum(ctx, &count, 1);
    return count != 0;
}
