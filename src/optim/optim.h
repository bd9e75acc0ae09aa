#pragma once
#include "core/core.h"

#ifndef TN_NO_TRAINING
/* ======================================================================
   >>optim    update rules and schedules
   ====================================================================== */

typedef enum tn_schedule_kind {
    TN_SCHEDULE_CONSTANT = 0, TN_SCHEDULE_COSINE, TN_SCHEDULE_LINEAR, TN_SCHEDULE_TRAPEZOID
} tn_schedule_kind;

/* The factor of the learning rate. It rises linearly over `warmup` steps and is then constant, or falls along half a cosine
   (Loshchilov & Hutter 2017) or a line to `floor` at step `total`. The trapezoid is constant until the last `decay` steps
   before `total`, and then falls along a line, or as 1 - sqrt (Haegele et al. 2024): such a run can be prolonged from a
   checkpoint of its constant part. */
typedef struct tn_schedule {
    tn_schedule_kind kind;
    int64_t          warmup, total;
    double           floor;
    int64_t          decay;             /* of the trapezoid, at most total - warmup; 0: a fifth of total, but at least
                                           1, and at most total - warmup                                                 */
    bool             one_minus_sqrt;    /* of the trapezoid: in place of the line                                        */
} tn_schedule;
TN_API double tn_schedule_at(const tn_schedule *schedule, int64_t step);    /* the factor at a step; below 0 as at 0; NULL: 1 */

typedef enum tn_optim_kind {
    TN_OPTIM_ADAMW = 0,         /* Loshchilov & Hutter 2019 */
    TN_OPTIM_SGD,               /* with momentum if it is set */
    TN_OPTIM_MUON               /* matrices: the nearest semi-orthogonal matrix to the momentum, Jordan et al. 2024; AdamW
                                   for vectors and for parameters marked adamw (tn_params_use_adamw) */
} tn_optim_kind;

/* The scale of Muon's update of a matrix [rows,cols], whose singular values are otherwise about 1. */
typedef enum tn_muon_scale {
    TN_MUON_SCALE_SHAPE = 0,    /* sqrt(max(1, rows/cols))      Jordan et al. 2024                                    */
    TN_MUON_SCALE_RMS           /* 0.2 sqrt(max(rows, cols)): as large as AdamW's, so its lr can be used   Liu et al. 2025 */
} tn_muon_scale;

/* lr, adam_lr, eps and a clip_norm other than 0 must be at least the smallest normal number of the context's dtype, in F32
   1.2e-38; lr and adam_lr at most 1e12. A step checks that the gradient is finite, not the parameters: a large one can
   make them infinite. AdamW in F32 bounds gradients by 2^63; squares overflow from 2^64 on. */
typedef struct tn_optim_desc {
    tn_optim_kind kind;
    double        lr;           /* 0: 1e-3 (AdamW, TN_MUON_SCALE_RMS), 1e-2 (SGD), 2e-2 (Muon)     */
    double        beta1, beta2; /* 0: 0.9, 0.999                                                   */
    double        eps;          /* 0: 1e-8                                                         */
    double        weight_decay; /* decoupled: p -= lr wd p, times each parameter's decay_scale     */
    double        momentum;     /* SGD; Muon, 0: 0.95                                              */
    bool          nesterov;     /* SGD; Muon always uses it                                        */
    double        clip_norm;    /* largest global norm: larger gradients are scaled to it; 0: no limit */
    tn_schedule   schedule;     /* of lr and adam_lr                                               */
    double        adam_lr;      /* Muon: for AdamW's parameters; 0: 3e-4, with TN_MUON_SCALE_RMS lr */
    tn_muon_scale muon_scale;
    int           newton_schulz;   /* Muon's iterations, up to 20; 0: 5                            */
    int64_t       momentum_warmup; /* Muon's momentum rises linearly over this number of steps; 0: none. F32 devices get
                                      it as an F32 number, also after the warm-up: last bits differ from those without */
    double        momentum_start;  /* initial momentum; 0: 0.85, or `momentum` if that is less     */
    bool          share_moments;   /* of N processes (>>comm) each keeps the moments of a part of the parameters, and updates
                                      that part: an N-th of the elements, for Muon whole matrices. Rajbhandari et al. 2020
                                      (ZeRO, stage 1). Parameters cannot be added after the first step                     */
    int64_t       bucket;          /* processes average gradients in messages of this many numbers; 0: 1048576             */
} tn_optim_desc;

/* Creates an optimiser of these parameters, and of those added later. A NULL desc means AdamW with all defaults. After the
   parameters were destroyed a step is an error (TN_ERR_ARG). Lives until tn_optim_destroy or the end of the context; NULL
   on error. */
TN_API tn_optim *tn_optim_create(tn_params *params, const tn_optim_desc *desc);
TN_API void      tn_optim_destroy(tn_optim *optim);               /* frees the optimiser                 */
/* Updates the parameters from the gradients of all backward passes since the last step. A batch that is too large for the
   memory can be divided into n parts, each with its loss divided by n: up to rounding the gradient is that of the whole.
       for (i = 0; i < n; i++) {
           tn_ctx_reset(ctx);
           tn_record(ctx);
           tn_backward(ctx, tn_scale(ctx, loss_of(part[i]), 1.0 / n));        mean losses, parts of equal size
       }
       tn_optim_step(optim);
   Afterwards the gradients count as zeros (tn_params_zero_grad). Nothing is updated while the context holds an error, nor if a
   label or an id was outside its table or a gradient is not finite, in whichever part. That error (TN_ERR_DATA; or
   TN_ERR_NONFINITE, with the step and the parameter's name) is returned here on a host backend, and by the next sync
   elsewhere. */
TN_API tn_status tn_optim_step(tn_optim *optim);
/* Announces to many processes (>>comm) that the next tn_backward is the last before tn_optim_step: it averages the gradients of
   a bucket as soon as nothing more is added to them, on a thread of its own (TN_USE_THREADS) where the backend is the host's
   and the carrier allows it, else in turn. Afterwards the gradients are those means, and another tn_backward before the step
   is an error. All processes have to call it. The result is bit-identical. It does nothing with one process, nor for
   gradients that do not exist before the pass, as in the first step. */
TN_API TN_EXPERIMENTAL tn_status tn_optim_overlap(tn_optim *optim);
TN_API int64_t   tn_optim_step_count(const tn_optim *optim);           /* number of steps so far, with skipped ones  */
TN_API double    tn_optim_lr(const tn_optim *optim);              /* learning rate of the next step             */
TN_API double    tn_optim_momentum(const tn_optim *optim);        /* momentum of the next step; 0 for AdamW     */
TN_API double    tn_optim_grad_norm(const tn_optim *optim);       /* gradient norm of the last step, unclipped  */
/* Returns that norm as an arena view [1] on the device, which tn_assign can copy without waiting. */
TN_API TN_EXPERIMENTAL tn_tensor *tn_optim_grad_norm_view(const tn_optim *optim);
/* Returns such a view of a number that is not 0 if the last step updated nothing. The cause is an error that a kernel found
   in this step, or in an earlier one since the last sync. */
TN_API TN_EXPERIMENTAL tn_tensor *tn_optim_skipped_view(const tn_optim *optim);

/* ---- graphs: a repeated step is captured once and replayed -------------- >>graphs
   A step of a small model is a thousand short kernels, and a fast device waits for the host to launch them. Where the
   backend can capture, a step whose shapes repeat is launched as one graph:

       ids = tn_tensor_create(ctx, TN_I32, 2, shape);      inputs and outputs are owned tensors
       loss = tn_tensor_create(ctx, TN_REAL, 0, NULL);
       for (each step) {
           tn_write(ids, TN_I32, batch, n);
           if (graph) tn_graph_run(graph);
           else if (warm && tn_graph_supported(ctx)) {     after an ordinary step, which has allocated all memory
               tn_graph_begin(ctx);
               step();                                     records, computes nothing
               if (tn_graph_end(ctx, &graph) == TN_OK) tn_graph_run(graph);
               else {                                      tn_ctx_error says why; clear it to go on
                   tn_ctx_clear_error(ctx);
                   warm = false;                           continue without a graph
                   step();
               }
           } else step();
       }
       void step(void)                                     the whole step: reset, forward, backward, update
       {
           tn_ctx_reset(ctx);
           tn_record(ctx);
           x = tn_transformer_loss(ctx, &model, ids, targets);
           tn_backward(ctx, x);
           tn_assign(loss, x);
           tn_optim_step(optim);
       }

   A replay is bit-identical to the step itself. What is on the device changes with it: parameters, moments, the random
   clock, and the numbers that the host sends an optimiser before each step (learning rate and momentum by their
   schedules, the step's number). What the host decided at the capture stays: shapes, addresses, numbers given to
   ops (a factor, p of dropout, clip_norm, decay, lr_scale, frozen flags, the set of parameters).
   A captured step must not need the host: tn_read, tn_item, tn_write, tn_ctx_sync, tn_ctx_seed, files, new memory, a cache
   (decoding, its reset), a kernel that the backend lacks. Each is an error that names it and that tn_graph_end returns;
   apart from that error the context is then as it was before tn_graph_begin. Arena tensors of the captured step are freed
   by tn_graph_end. */

/* Tells whether the backend can capture graphs; cpu and reference cannot. If not, tn_graph_begin is an error. */
TN_API TN_EXPERIMENTAL bool      tn_graph_supported(const tn_ctx *ctx);
/* Begins a capture: resets the arena, as tn_ctx_reset does, and from now on kernels are recorded instead of run.
   TN_ERR_BACKEND if the backend cannot capture. Not while another graph is captured. */
TN_API TN_EXPERIMENTAL tn_status tn_graph_begin(tn_ctx *ctx);
/* Ends a capture. *graph lives until tn_graph_destroy or the end of the context; NULL on error, also on one that was cleared
   since tn_graph_begin. An optimiser may step at most once in a graph. */
TN_API TN_EXPERIMENTAL tn_status tn_graph_end(tn_ctx *ctx, tn_graph **graph);
/* Replays a graph: resets the arena, sends the optimisers' numbers, runs the kernels. It does not wait: what a kernel finds
   (a bad id, a gradient that is not finite) is reported at the next sync. TN_ERR_ARG, and nothing is run, if a tensor of the
   graph was destroyed, a checkpoint was read, the context has another seed, or a gradient that was zero at the capture is
   not (or the reverse). */
TN_API TN_EXPERIMENTAL tn_status tn_graph_run(tn_graph *graph);
TN_API TN_EXPERIMENTAL void      tn_graph_destroy(tn_graph *graph);        /* frees the graph */
#endif /* TN_NO_TRAINING */
