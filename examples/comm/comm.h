/* comm.h - carriers for desc.comm: what connects the processes of a training (>>comm in tensornet.h)

       int      rank, size;
       char     why[TN_WHY];
       tn_comm *comm = comm_launcher(&rank, &size) ? comm_socket(NULL, rank, size, why) : NULL;
       tn_desc  desc = {0};
       desc.comm = comm;                            NULL: one process
       ...
       tn_ctx_destroy(ctx);
       if (comm) comm->close(comm, false);

   A program compiles the file of the carrier that it uses: socket.c (POSIX), mpi.c (mpicc), nccl.c (dlopen, no library). Each
   function returns NULL with the reason in why. A process that exits without close counts as one that failed. */
#ifndef COMM_H
#define COMM_H

#include "tensornet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The place of this process among those that a launcher has started: RANK and WORLD_SIZE (torchrun), or the variables of
   mpirun and srun. false: there are none. */
bool comm_launcher(int *rank, int *size);

/* Sockets between processes of one machine. folder: a new or empty one, the same for all processes, in which they find each
   other; NULL: one in TMPDIR or /tmp named by the launcher's MASTER_PORT (or job). A process that ends closes its sockets,
   so the others know at once. One that does not answer for TN_COMM_SECONDS (600) counts as ended. */
tn_comm *comm_socket(const char *folder, int rank, int size, char why[TN_WHY]);

/* MPI, started by mpirun. device: the MPI library takes memory of GPUs. Call it before threads are started. */
tn_comm *comm_mpi(bool device, char why[TN_WHY]);

/* NCCL 2, for the backend cuda: GPUs of one or more machines. The first process gives the others an id through the file that
   TN_COMM_FILE names, which all of them can read, or else by TCP at MASTER_ADDR and MASTER_PORT. */
tn_comm *comm_nccl(int rank, int size, int device, char why[TN_WHY]);

#ifdef __cplusplus
}
#endif
#endif
