#pragma once
#include "core/core.h"

/* ======================================================================
   >>comm     processes that train together
   N processes train one model on batches that are divided among them: each has all parameters, and the N-th part of every
   batch, in the order of ranks. desc.comm connects them:

       tn_comm *comm = comm_socket(folder, rank, size, why);         examples/comm/ has this one, MPI and NCCL
       desc.comm = comm;
       desc.seed = ...;                                 the same in each process: parameters begin bit-identical
       tn_ctx_create(&desc, &ctx, why);
       ...                                              as with one process: each records its own part of the batch
       tn_optim_overlap(optim);                         optional: gradients are averaged while tn_backward goes on
       tn_backward(ctx, loss);                          mean loss of this part
       tn_optim_step(optim);                            waits for all: the update is that of the whole batch
       ...
       tn_ctx_destroy(ctx);
       comm->close(comm, false);

   tn_optim_step replaces the gradients by their mean over all processes. So losses are means, and parts have equal size.
   The clip norm is that of this mean. If one process has an error, an id outside its table or a gradient that is not
   finite, all skip the update and report it; if settings, seeds, parameters or numbers of random calls differ, that is such
   an error. Noise and dropout draw the numbers that one process with the whole batch would draw: the first axis of their x
   is the batch. All else is drawn alike in all processes (tn_uniform, tn_normal, parameters). A graph cannot be captured.
   Sums are made in the order of ranks, element by element, in double: the result is bit-identical in all processes, and
   depends neither on timing nor on how elements are grouped. (Carriers with collectives of their own have their own order.)
   Every process has to make the same calls of this section, of tn_optim_step and, with share_moments, of tn_checkpoint_write,
   in the same order. TN_ERR_COMM: a process ended or does not answer; the message names its rank. No call can succeed
   afterwards: end, and resume from a checkpoint.
   ====================================================================== */

#define TN_COMM_ABI 1

/* A carrier: what connects the processes. A program may fill in its own: `exchange`, or all four collectives, which `device`
   asks for. Functions return TN_OK, or TN_ERR_COMM with a message in why that names a rank, and then fail at
   once each time. They are called by one thread at a time. */
struct tn_comm {
    int         abi;                    /* TN_COMM_ABI                                                        */
    const char *name;                   /* for messages: "mpi"                                                */
    int         rank, size;             /* this process, 0 <= rank < size; the number of processes            */
    void       *state;                  /* the carrier's own, passed to its functions                         */
    bool        device;                 /* the collectives take handles of the context's backend, else host memory */
    bool        any_thread;             /* functions may be called by another thread than the program's             */
    /* Sends out_bytes to rank `to` while it receives in_bytes from rank `from`; returns when both are done. A rank of -1:
       nothing is sent, or received. What `to` sends back may be for another call. */
    tn_status (*exchange)(void *state, int to, const void *out, size_t out_bytes, int from, void *in, size_t in_bytes,
                          char why[TN_WHY]);
    /* In place. NULL: made from exchange. dtype is TN_F32, TN_F64 or TN_I32. */
    tn_status (*all_reduce)(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY]);   /* sums, to all */
    tn_status (*reduce_scatter)(void *state, void *data, int64_t count, tn_dtype dtype, char why[TN_WHY]);  /* data [size,
                                           count]: row `rank` becomes the sum of these rows; the others are undefined      */
    tn_status (*all_gather)(void *state, void *data, size_t bytes, char why[TN_WHY]);   /* row `rank` of [size,bytes], to all */
    tn_status (*broadcast)(void *state, void *data, size_t bytes, int root, char why[TN_WHY]);
    /* Frees the carrier and its state. failed: tells the other processes that this one ends. */
    void      (*close)(tn_comm *comm, bool failed);
};

TN_API TN_EXPERIMENTAL int tn_comm_rank(const tn_ctx *ctx);     /* number of this process, from 0; 0 without desc.comm */
TN_API TN_EXPERIMENTAL int tn_comm_size(const tn_ctx *ctx);     /* number of processes; 1 without desc.comm            */
#ifndef TN_NO_COMM
/* Collectives on a contiguous tensor t of F32, F64 or I32, in place. With one process they do nothing. So each process may
   compute k rows of a table that all then have:
       tn_assign(tn_slice(table, 0, rank * k, (rank + 1) * k), rows_of(rank));
       tn_comm_all_gather(table);
   TN_ERR_SHAPE if the first axis of t has to be divided among the processes and cannot be; TN_ERR_DATA where a sum of I32 is
   above 2147483647 or below -2147483647, unless the carrier sums by itself: then it may wrap around. */
TN_API TN_EXPERIMENTAL tn_status tn_comm_all_reduce(tn_tensor *t);               /* t becomes the sum over all processes */
/* t [size*k,..]: rows rank*k to rank*k + k - 1 become the sum over all processes; the others are undefined. */
TN_API TN_EXPERIMENTAL tn_status tn_comm_reduce_scatter(tn_tensor *t);
TN_API TN_EXPERIMENTAL tn_status tn_comm_all_gather(tn_tensor *t);               /* these rows of each process, to all */
TN_API TN_EXPERIMENTAL tn_status tn_comm_broadcast(tn_tensor *t, int root);      /* that of process `root`, to all     */
/* Replaces each of `count` numbers of the host by its sum over all processes: a mean loss, a wish to stop, a time. */
TN_API TN_EXPERIMENTAL tn_status tn_comm_sum(tn_ctx *ctx, double *numbers, int64_t count);
#endif /* TN_NO_COMM */
