/* tensornet.h - tensor-network neural layers in one C file, generated from src/. v0.2.0. No warranty; licence at the end.

   >>readme

   Layers that are tensors: train them, fold a bilinear layer and the linear layers around it into one tensor, and
   read from its weights which inputs interact, along which eigenvectors.

   USE
       In ONE .c or .cpp file                        everywhere else
           #define TENSORNET_IMPLEMENTATION              #include "tensornet.h"
           #include "tensornet.h"
       cc -O2 program.c -lm         C99 or C++17, no other library. -O0 is seven to ten times slower.
                                    Threads: -DTN_USE_THREADS -pthread, or -fopenmp.

       tn_ctx *ctx;                                        holds memory, backend, first error
       if (tn_ctx_create(NULL, &ctx, NULL) != TN_OK) return 1;
       tn_params *params = tn_params_create(ctx);          y = P ((W x + b) * (V x + c)) + p
       tn_mlp_desc desc = { .in = 784, .hidden = 256, .out = 10, .bias = true, .out_bias = true };
       tn_mlp layer;                                       C++17: tn_mlp_desc desc = {}; desc.in = 784; ...
       tn_mlp_init(params, "mlp", &desc, &layer);
       tn_optim *optim = tn_optim_create(params, NULL);    AdamW
       for (each batch) {
           tn_ctx_reset(ctx);                              frees the last step's tensors, keeps their memory
           tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, n, 784), *y = tn_tensor_1d(ctx, TN_I32, n);
           tn_write(x, TN_F32, pixels, n * 784);
           tn_write(y, TN_I32, labels, n);
           tn_record(ctx);
           tn_tensor *loss = tn_cross_entropy(ctx, tn_mlp_forward(ctx, &layer, x), y);
           if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) puts(tn_ctx_error(ctx));
       }
       tn_cp *cp = tn_cp_from_mlp(ctx, &layer);            the layer as one tensor on [x;1]
       tn_tensor *q = tn_cp_interaction_of(cp, 3);         the interaction matrix of output 3
       tn_ctx_destroy(ctx);                                frees everything

   CONTENTS: search for a tag; both halves have the same order, lowest level first
       DECLARATIONS                                IMPLEMENTATION
       >>readme   use, macros, limits
       >>types    status, context, memory          >>platform  numbers, text, errors
       >>backend  the kernel table                 >>memory  >>rng  >>threads
                                                   >>graph  >>nodes  >>dispatch
       >>tensor   make, view, read, format         >>tensor-impl
       >>comm     processes that train together    >>comm-impl
       >>grad     gradients                        >>tape
       >>ops      functions of tensors             >>ops-impl  shape, forward, backward together
                                                   >>cpu  >>cpu-pass   packed GEMM, SIMD kernels
                                                   >>blas  >>context
       >>contraction  einsum, plans                >>contraction-impl
       >>products Khatri-Rao, Kronecker, unfold    >>products-impl
       >>decomp   QR, symmetric eigen, SVD,        >>decomp-impl
                  Lanczos; HOSVD, CP, trains
       >>layers   parameters, linear, norm, mlp,   >>layers-impl
                  quadratic, modifier, attention
       >>operator tn_cp: fold, split, eigen        >>operator-impl
       >>analysis signal, certificates, features,  >>analysis-impl
                  alignment of two models
       >>network  tn_net: compose, apply, inner    >>network-impl
       >>mps      matrix product states, trains    >>mps-impl
       >>optim    AdamW, SGD, Muon, schedules      >>optim-impl
       >>io       safetensors, npy, idx            >>io-impl
       >>text     tokenizers, token shards         >>tables  >>text-impl
       >>models   transformer, config.json, names  >>models-impl
       >>circuits heads, tables and paths          >>circuits-impl
       >>image    pictures of matrices and curves  >>image-impl

   FAMILIES: the places of one subject
       attention   >>op-attention >>op-attention_linear >>pass-attention >>pass-attention_linear
                   >>attention-bf16 >>layer-attention >>layer-attention-cache >>model-decode
       product     >>op-gemm >>pass-gemm >>pass-gemm-few >>gemm-bf16 >>gemm-amx >>blas
       norms       >>op-rmsnorm >>op-residual_rmsnorm >>op-layernorm >>pass-rmsnorm >>pass-layernorm >>layer-norm
       eigenpairs  >>eigh >>eigh-divide >>lanczos >>pass-algebra >>cp-eigen >>cp-eigen-some
       trains      >>tt >>tt-canonical >>tt-born >>tt-fit >>mps-layer >>op-scan >>tn-attention >>mps-deep
       training    >>tape >>recompute >>op-optim >>pass-optim >>optim-step >>optim-muon >>optim-share >>optim-comm
                   >>shadow >>graph >>graph-run
       files       >>io-reader >>io-writer >>io-safetensors >>io-checkpoints >>io-json >>model-config >>model-weights
       text        >>text-tokenizer >>text-encode >>text-bpe >>text-bpe-read >>text-train >>text-shards >>letter-table
       errors      >>messages >>memory >>arenas >>dispatch
       backends    >>backend >>dispatch >>compose >>reference >>cpu-state >>cpu-memory >>pass-run >>host-backends

   MACROS, defined before the include; none of them changes a struct
       TENSORNET_IMPLEMENTATION  compiles the implementation into this file
       TN_STATIC                 makes every function static; the implementation must be in the same file
       TN_API                    begins every public declaration (for example a dllexport); default: extern
       TN_ASSERT(condition)      default: nothing
       TN_NO_STDIO               no paths and no stdio; memory and callbacks remain
       TN_USE_THREADS            each context has a thread pool of its own: POSIX threads (-pthread) or those of Windows
       TN_NO_THREADS             one thread: neither OpenMP nor TN_USE_THREADS, even if they are switched on
       TN_USE_BLAS               BLAS and LAPACK (link them) for large products, eigh, SVD; results may vary with threads
       TN_DEBUG                  detects tensors that a reset has freed, and fills them with NaN; two threads in one context
       TN_ALLOW_FAST_MATH        permits -ffast-math and its parts, without any promise about bit-identical results and NaN
       TN_HEADER_NAME            the name of this file, which includes itself; default: "tensornet.h"
     These leave parts out, with their declarations. Files that define other ones than the file with the implementation still
     fit it; if they call what it leaves out, the linker says which function is missing.
       TN_SMALL                  the set for a small network inside a program: layers, training, files, folding, eigenpairs and
                                 pictures. It is TN_NO_TEXT, TN_NO_SEQUENCES, TN_NO_ANALYSIS, TN_NO_COMM, TN_NO_F64, and TN_SIMD_MAX
                                 1 unless you define it; without AVX2 or NEON only products are fast
       TN_NO_TEXT                no tokenizers and token shards (>>text)
       TN_NO_SEQUENCES           nothing that reads along a sequence: attention, RoPE, chains and scans, and what needs
                                 these: transformers, MPS
       TN_NO_MODELS              no transformers (>>models, >>circuits)
       TN_NO_CIRCUITS            no circuits of transformers (>>circuits)
       TN_NO_IMAGE               no pictures (>>image)
       TN_NO_CONTRACTION         no products of tensors, plans, networks and circuits (>>contraction, >>products, >>network,
                                 >>circuits)
       TN_NO_OPERATOR            no operators, decompositions, networks and circuits (>>decomp, >>operator, >>analysis,
                                 >>network, >>circuits)
       TN_NO_ANALYSIS            no decompositions of tensors (HOSVD, CP, trains, joint, ICA), eigenpairs of matrices that are
                                 not symmetric, inner products of stacks, >>analysis, and what needs these: contraction, MPS
       TN_NO_COMM                no processes that train together (>>comm): a desc.comm is an error
       TN_NO_MPS                 no matrix product states and tensor-network attention (>>mps, >>tn-attention)
       TN_NO_TRAINING            inference only: no recording, backward pass, optimisers, graphs and checkpoints
       TN_NO_F64                 F64 contexts are an error; decompositions still compute in double, in plain C
       TN_SIMD_MAX               2: all levels; 1: up to AVX2 or NEON; 0: plain C; -1: no fast kernels at all, for networks of a
                                 few weights. A context uses the best available

   LIMITS
       Ranks are at most 8. One thread at a time may use a context; two contexts need no lock. A context computes in F32
       or in F64. Ops are recorded only between tn_record and tn_backward. The library never prints and never exits: a
       failed call returns NULL or a status, the context keeps the first message, and ops given NULL return NULL.
       Of OpenMP and TN_USE_THREADS prefer the latter: its waiting threads sleep, where OpenMP's spin by default, which
       on a busy machine is many times slower.
       Calls need up to 64 KB of stack (gcc -O2 on x86-64).

   ARGUMENTS
       The object or the context comes first, then the inputs, last the outputs (only `why`, a buffer for a message,
       follows them). Calls that copy a number of elements or bytes, such as tn_read, have memcpy's and snprintf's order.

   docs/guide.md is a first course, howto.md answers questions, api.md lists every function, language.md is about
   language models, math.md has the formulas.

   This file is made from src/ by `make header`: change it there. src/README.md and docs/internals.md explain how.
*/
