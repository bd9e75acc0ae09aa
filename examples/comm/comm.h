/* comm.h - carriers for desc.comm: what connects the processes of a training (>>comm in tensornet.h)

       int      rank, size;
       char     why[TN_WHY];
       tn_comm *comm = comm_launcher(&rank, &size) ? comm_socket(NULL, rank, size, why) : NULL;
       tn_desc  desc = {0};
       desc.comm = comm;                            NULL: one process
       ...
       tn_ctx_destroy(ctx);
       if (comm) comm->close(comm, false);

   A program compiles the file of the carrier that it uses: socket.c (POSIX), mpi.c (mpicc), nccl.c (dlopen, no library); what
   they share is in carrier.h. Each function returns NULL with the reason in why. A process that exits without close counts as
   one that failed. */
#ifndef COMM_H
#define COMM_H

#include "tensornet.h"
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A number of the environment. */
static inline int comm_setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

/* The place of this process among those that a launcher has started: RANK and WORLD_SIZE (torchrun), or the variables of
   mpirun and srun. false: there are none. */
static inline bool comm_launcher(int *rank, int *size)
{
    static const char *const names[][2] = {{"RANK", "WORLD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        *rank = comm_setting(names[i][0], -1);
        *size = comm_setting(names[i][1], 0);
        if (*rank >= 0 && *size > *rank) return true;
    }
    return false;
}

/* The same among those of this machine, for example to choose a GPU; `otherwise` if the launcher does not say. */
static inline int comm_local(bool size, int otherwise)
{
    static const char *const names[][2] = {{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                           {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};
    size_t i;
    for (i = sizeof names / sizeof *names; i-- > 0; ) otherwise = comm_setting(names[i][size], otherwise);
    return otherwise;
}

/* Sockets between processes of one machine. folder: a new or empty one, the same for all processes, in which they find each
   other; NULL: one in TMPDIR or /tmp named by the launcher's MASTER_PORT (or job). A process that ends closes its sockets,
   so the others know at once. One that does not answer for TN_COMM_SECONDS (600) counts as ended. */
tn_comm *comm_socket(const char *folder, int rank, int size, char why[TN_WHY]);

/* MPI, started by mpirun. device: the MPI library takes memory of GPUs. Call it before threads are started. */
tn_comm *comm_mpi(bool device, char why[TN_WHY]);

/* NCCL 2, for the backend cuda: GPUs of one or more machines. The processes meet by TCP: the first one listens at MASTER_PORT
   (29500) of MASTER_ADDR (127.0.0.1), or at one of the 15 ports after it if others use that one, as torchrun may; or, if
   TN_COMM_FILE is set, at any port, which it writes to the file of that name, where all can read it. Link with -pthread. */
tn_comm *comm_nccl(int rank, int size, int device, char why[TN_WHY]);

#ifdef __cplusplus
}
#endif
#endif
