/* control.h: what a test can set and ask of the engine that runs tensornet_cuda.cu on the processor (cuda_host.h). C99 and C++17.

   Each setting also has an environment variable, which is read once, at the first CUDA call:

       TNCH_DEVICE=90           the device: 90, 86 or 80, its compute capability; 70, too old for tensornet_cuda.cu; none: no device;
                                driver: no driver, or one that is too old
       TNCH_PTX=0               the PTX version of the kernels, such as 75; 0: that of the device; -1: the query fails
       TNCH_ORDER=forward       the order of the threads of a block, and of blocks: forward, reversed, random:SEED
       TNCH_LAZY=0              1: work in a stream runs only when something waits for it
       TNCH_PROTECT=0           1: the program is killed if the host touches device memory
       TNCH_MEMORY=BYTES        memory of the device; default 1 GiB
       TNCH_FAIL_MALLOC=N       the N-th allocation fails: out of memory
       TNCH_FAIL_LAUNCH=N       the N-th kernel faults; every later call returns cudaErrorIllegalAddress
       TNCH_NO_CUBLAS=0         1: cublasCreate fails
       TNCH_NO_TMA=0            1: the driver does not have cuTensorMapEncodeTiled
       TNCH_TRACE=0             1: prints one line per kernel

   A program that ends with uncleared faults or unfreed device memory exits with status 1, whatever main returned. */

#ifndef TNCH_CONTROL_H
#define TNCH_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tnch_order { TNCH_FORWARD, TNCH_REVERSED, TNCH_RANDOM } tnch_order;
enum { TNCH_NO_DEVICE = 0, TNCH_NO_DRIVER = 1 };

void     tnch_set_device(int capability);              /* 90, 86, 80, 70, TNCH_NO_DEVICE, TNCH_NO_DRIVER                 */
void     tnch_set_order(tnch_order order, unsigned seed);
void     tnch_set_lazy(int on);
void     tnch_set_memory(size_t bytes);                /* 1 GiB at most                                                  */
void     tnch_set_l2(int bytes);                       /* of the L2 cache that the device shows; default 40 MiB           */
void     tnch_set_ptx(int version);                    /* as TNCH_PTX                                                    */
void     tnch_set_cublas(int on);
void     tnch_set_cublas_lt(int how);                  /* 1: works; 0: cublasLtCreate fails; 2: no layouts; 3: no products */
void     tnch_set_tma(int on);
void     tnch_set_first_block(uint64_t block);         /* kernels skip earlier blocks, to test huge indices; 0: none     */
void     tnch_fail_malloc(long n);                     /* the n-th from now; 0: none                                     */
void     tnch_fail_launch(long n);                     /* the n-th from now; 0: none                                     */

int      tnch_faults(void);                            /* number found since the start or the last clear                 */
const char *tnch_fault_text(void);                     /* the first of them, or ""                                       */
void     tnch_clear(void);                             /* also CUDA's error and a lost device: close its contexts before */
size_t   tnch_memory_in_use(void);                     /* device bytes                                                   */
uint64_t tnch_launches(void);                          /* kernels run so far                                             */
uint64_t tnch_questions(void);                         /* calls of cudaFuncGetAttributes so far                          */
uint64_t tnch_lt_questions(void);                      /* calls of cublasLtMatmulAlgoGetHeuristic so far                 */
uint64_t tnch_lt_products(void);                       /* of cublasLtMatmul                                              */
uint64_t tnch_launches_of(const char *part);           /* of those whose name contains this                              */
double   tnch_switch_ns(long count);                   /* measured: one thread through one __syncwarp                    */
size_t   tnch_wgmma_address(uint64_t desc, int mn_major, int row, int k);   /* in shared memory, of a number of an operand */
size_t   tnch_bulk_address(size_t byte, int pieces);   /* where a bulk copy puts this byte of a box whose swizzle has so many pieces
                                                          of 16 bytes (1: none), in a tile at address 0 */

#ifdef __cplusplus
}
#endif
#endif
