/* comm.h - carriers for desc.comm: what connects the processes of a training (>>comm in tensornet.h)

       int      rank, size;
       char     why[TN_WHY];
       tn_comm *comm = comm_launcher(&rank, &size, why) ? comm_socket(NULL, rank, size, why) : NULL;
       tn_desc  desc = {0};
       desc.comm = comm;                            NULL: one process
       ...
       tn_ctx_destroy(ctx);
       if (comm) comm->close(comm, false);

   A program compiles the file of the carrier that it uses: socket.c (POSIX), mpi.c (mpicc), nccl.c (dlopen, no library); what
   they share is in carrier.h and meeting.h. Each function returns NULL with the reason in why. A process that exits without
   close counts as one that failed. */
#ifndef COMM_H
#define COMM_H

#include "tensornet.h"
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { COMM_MOST = 1 << 20 };           /* processes */

/* A variable of the environment. NULL: it is not set, or empty. */
static inline const char *comm_variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* A whole number of the environment, low <= number <= high; one that is not set leaves *number. false: it is something else,
   and why says so. */
static inline bool comm_number(const char *name, int low, int high, int *number, char why[TN_WHY])
{
    const char *text = comm_variable(name);
    char       *end;
    if (!text) return true;
    long value = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < low || value > high) {
        snprintf(why, TN_WHY, "%s is \"%.80s\", expected a whole number from %d to %d", name, text, low, high);
        return false;
    }
    *number = (int)value;
    return true;
}

/* The place of this process among those that a launcher has started: RANK and WORLD_SIZE (torchrun), or the variables of
   mpirun and srun. false: there are none, or they cannot be, and why says which. */
static inline bool comm_launcher(int *rank, int *size, char why[TN_WHY])
{
    static const char *const names[][2] = {{"RANK", "WORLD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *rank = *size = -1;
        if (!comm_number(names[i][0], 0, COMM_MOST - 1, rank, why) || !comm_number(names[i][1], 1, COMM_MOST, size, why))
            return false;
        if (*rank < 0 || *size < 0) continue;
        if (*rank < *size) return true;
        snprintf(why, TN_WHY, "%s is %d, expected less than %s, which is %d", names[i][0], *rank, names[i][1], *size);
        return false;
    }
    snprintf(why, TN_WHY, "the environment has neither RANK and WORLD_SIZE nor the variables of mpirun or srun: start the "
             "processes by a launcher");
    return false;
}

/* The same among those of this machine, for example to choose a GPU; *number stays if the launcher does not say. */
static inline bool comm_local(bool size, int *number, char why[TN_WHY])
{
    static const char *const names[][2] = {{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                           {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};
    for (size_t i = sizeof names / sizeof *names; i-- > 0; )
        if (!comm_number(names[i][size], size, COMM_MOST, number, why)) return false;
    return true;
}

/* Sockets between processes of one machine. folder: a new or empty one, the same for all processes, in which they find each
   other, and which nobody but this user may enter (0700); NULL: one in TMPDIR or /tmp named by what the launcher calls the job
   and its step (MASTER_PORT, for example). They remove it when they have met. In one that is not empty they replace and
   remove sockets named like a rank, refuse another file of such a name, and keep the rest, and the folder.
   A process that ends closes its sockets, so the others know at once. One that sends or takes no byte for TN_COMM_SECONDS (600)
   counts as ended; there is no limit for a whole message, which may be large. */
tn_comm *comm_socket(const char *folder, int rank, int size, char why[TN_WHY]);

/* MPI, started by mpirun. device: the MPI library takes memory of GPUs. Call it before threads are started. */
tn_comm *comm_mpi(bool device, char why[TN_WHY]);

/* NCCL 2, for the backend cuda: GPUs of one or more machines. The processes meet by TCP: the first one listens at MASTER_PORT
   (29500) of MASTER_ADDR (127.0.0.1), or at one of the 15 ports after it if others use that one, as torchrun may; or, if
   TN_COMM_FILE is set, at any port, which it writes to the file of that name. A variable that is empty counts as not set.

   The first process listens at a loopback address (127.0.0.0/8, ::1) if MASTER_ADDR resolves to such addresses only on its
   machine, or if neither it nor TN_COMM_FILE is set; otherwise at all addresses. Where /etc/hosts gives the machine's own name a
   loopback address, MASTER_ADDR must be an address that other machines can reach.

   The file is new, for this user alone, and gets its name by a rename, which follows no link; it is removed when all have met.
   A process reads it only if it is a regular file of its own user or of root that nobody else can write. Others who can write to
   its folder can keep the processes from meeting, or put an older file of this user there; TN_COMM_SECRET is needed then.

   TN_COMM_SECRET, the same for all: each side proves to the other that it has it, by a keyed hash of random numbers. It has at
   least 16 characters and should be random and long, such as 32 hexadecimal digits: any caller gets a hash, with which it can
   try secrets by itself. Without a secret any program that can reach the port can take a process's place; what NCCL sends is
   neither encrypted nor authenticated in any case. What listens at a port with another secret, as another job may, is passed
   over. Link with -pthread. */
tn_comm *comm_nccl(int rank, int size, int device, char why[TN_WHY]);

#ifdef __cplusplus
}
#endif
#endif
