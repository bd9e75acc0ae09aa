/* fake.h: a driver and an NCCL for tests of examples/comm/nccl.c without GPUs, as two shared libraries: driver.c (libcuda.so.1)
   and nccl.c (libnccl.so.2). The memory of a device is that of tests/cuda_host, which all threads of the process can use.

   What they check themselves ends the program with a message: that is a test that fails.

       TNFN_DIES=RANK:WHERE     this process is killed: init (in ncclCommInitRank), call:N (in its N-th collective)
       TNFN_SILENT=1            NCCL does not notice that another process has ended, and waits for ever
       TNFN_TMP=/tmp            where its sockets are
       TNFN_WRONG=RANK:WHAT     of this rank: gpu (cannot be used), id, init (return an error), call (the GPU reports one) */
#ifndef TNFN_FAKE_H
#define TNFN_FAKE_H

#ifdef __cplusplus
extern "C" {
#endif

/* What a stream does next, on its own thread: not zero is the stream's error from then on. */
typedef int (*tnfn_work)(void *with);
void tnfn_add(void *stream, tnfn_work work, void *with);
int  tnfn_is_current(void);             /* whether this thread has a context */

#ifdef __cplusplus
}
#endif
#endif
