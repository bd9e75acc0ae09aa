/* tensornet_cuda.cu - the CUDA backend of tensornet.h                                                C++17, CUDA 12 or later

   One file beside tensornet.h. Compile it, link it and pass it to a context:

       nvcc -O3 -arch=sm_90 -c tensornet_cuda.cu         (or -arch=native: this machine's GPU; sm_80 or later)
       cc -c program.c && nvcc program.o tensornet_cuda.o -o program

       tn_desc d = {0};
       d.backend = tn_cuda_backend();
       tn_ctx_create(&d, &ctx, why);

   Without a usable GPU the context runs on the cpu backend, and its log says why; desc.backend_required turns that into an
   error. Each context has one stream on the GPU desc.device. Matrix products are computed by cuBLAS, which is opened at run
   time; where it is not installed, a kernel of this file computes them.

   Environment variables, read when a context is created:
       TN_SYNC=1       synchronises after every call, so that an error names the op that caused it; disables graph capture
       TN_CUBLAS=0     computes matrix products with this file's own kernel
       TN_CUBLASLT=0   computes them by cublasGemmEx only, without plans of cublasLt
       TN_WGMMA=1      attention by the kernels for sm_90a, on GPUs of capability 9.0; 0: without them. Overrides desc.wgmma
       TN_TMA=0        these kernels load by cp.async, not by TMA
       CUDA_HOME       where to look for cuBLAS if the loader does not find it; default /usr/local/cuda. After it come the
                       packages of Python (pip install nvidia-cublas). The log says which file was opened, or that none was.

   What to know
       Precision       F64 is computed in F64. F32 is computed in F32, except that cross_entropy uses __expf;
                       desc.gemm_precision allows products of F32 to run on tensor cores as TF32 or BF16. With
                       desc.activations = TN_BF16 the results of ops are BF16; sums, statistics and parameters are F32,
                       but cublasLt rounds the bias of a BF16 product to BF16.
                       Uniform random numbers and masks are bit-identical to the CPU's, normal ones agree to 2 ulp.
       Reproducibility Results are bit-identical in every run on one model of GPU with one version of cuBLAS: no sum uses
                       floating-point atomics, and nothing is chosen by timing. Another model has other grid sizes, and so
                       its results may differ in the last bits.
       Devices         Each call makes desc.device the current device of the calling thread. All work of a context, uploads
                       included, goes to its one stream.
       Errors          Kernels run asynchronously, so an error is reported late: by the next download or sync. After a fault
                       of a kernel the context cannot be used any more.
       Optimisers      Consecutive calls for different parameters are collected and run together, up to 45 in one launch.
                       Every call that touches device memory runs them first.
       Graphs          tn_graph captures a step once and replays it with one call. Scratch cannot grow during the capture,
                       so run the step once before it. Memory that a graph may use is kept until the last graph is released.
       Scratch         grows to the largest size that any call has needed, and is kept until the context is destroyed.
       Limits          Rows of norms and numbers of classes below 2^31; chains of matrices up to 16384 x 16384; 2^32 ids per
                       call; linear attention with up to 2^32 - 1 heads of 2^31 - 1 numbers; else TN_ERR_SHAPE. States of
                       linear attention and all scratch must fit into device memory; else TN_ERR_MEMORY. Quadratic attention
                       with sums of more than 2^20 terms does not use tensor cores and is slow.
                       Calls with dtypes that no entry takes are computed in F32 by the dispatcher.

   Words. A kernel is a CUDA kernel (__global__). An entry is the host function that serves one kernel of tensornet.h's table
   (TN_KERNELS): it checks the call and launches CUDA kernels. "Floor" is the least traffic or arithmetic that the operation
   needs. A pack or piece is 16 bytes that are loaded at once. The section on quadratic attention begins with a glossary.

   CONTENTS (search for a tag; the mathematics of an op is at its tag in tensornet.h, such as >>op-rmsnorm)
       >>cuda-port         CUDA's extensions of C++ under other names, for nvcc and for the host engine of tests/cuda_host
           >>cuda-hopper       those of sm_90a
       >>cuda-state        the state of a context and its first error
           >>cuda-blas         loading cuBLAS
           >>cuda-open         choosing a device, creating and destroying the state
       >>cuda-memory       allocation, copies, scratch
           >>cuda-graph        capture and replay
       >>cuda-device       what the kernels share
           >>cuda-types        dtypes and C++ types                  >>cuda-numbers      conversion and elementary functions
           >>cuda-shared       limits of shared memory               >>cuda-grid         grid sizes, threads per row
           >>cuda-reduce       sums of a warp, a block, a row        >>cuda-packs        vectors of 16 bytes
           >>cuda-swizzle      BF16 tiles in shared memory           >>cuda-walk         indices of strided views
           >>cuda-map          elementwise kernels                   >>cuda-parts        views of column ranges
           >>cuda-philox       random numbers                        >>cuda-fault        the fault word
       >>cuda-kernels      the entries of the kernel table, each with its CUDA kernels
           >>cuda-copy         copy, fill                            >>cuda-random       uniform, normal
           >>cuda-add          add, mul, div                         >>cuda-where        where
           >>cuda-sum          sum                                   >>cuda-act          act, glu and their backward passes
           >>cuda-prod         prod and backward                     >>cuda-gemm         gemm
           >>cuda-embed        embed                                 >>cuda-embed-back   embed_backward
           >>cuda-norm         rmsnorm, layernorm                    >>cuda-norm-back    their backward passes
           >>cuda-dropout      dropout                               >>cuda-entropy      cross_entropy
           >>cuda-softmax      softmax and backward                  >>cuda-chain        chain and backward
           >>cuda-scan         scans and their backward passes       >>cuda-rope         rope and backward
           >>cuda-attention    quadratic attention: glossary, masks, row scales
               >>cuda-attention-delta    what the backward pass needs of each query
               >>cuda-attention-plain    any dtype and head size     >>cuda-attention-split    split-K for decoding
               >>cuda-attention-mma      tensor cores                >>cuda-attention-wgmma    those of Hopper
               >>cuda-attention-choose   which kernels a call takes  >>cuda-attention-entry    the entries
           >>cuda-linear       linear attention: the formula, chunks and states
               >>cuda-linear-plain       any extents, F32 and F64    >>cuda-linear-mma         tensor cores
               >>cuda-linear-decode      a few tokens with a state   >>cuda-linear-entry       the entries
           >>cuda-argmax       argmax, accuracy
           >>cuda-optim        collecting the calls of optimisers
               >>cuda-sumsq              sumsq                       >>cuda-step               step_begin
               >>cuda-adamw              adamw, sgd, muon_end        >>cuda-muon               muon_begin
           >>cuda-tick         the clock of the random numbers
       >>cuda-table        the backend                                                                                     */
