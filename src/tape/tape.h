#pragma once
#include "core/core.h"

#ifndef TN_NO_TRAINING
/* ======================================================================
   >>grad     recording and the backward pass
   ====================================================================== */

TN_API void       tn_record(tn_ctx *ctx);          /* starts the recording of ops; noise and dropout act      */
/* Adds d loss / d t to t->grad of every recorded t that needs it, and ends the recording; loss has one element.
   Gradients of intermediate results are freed as soon as they are used, unless tn_watch keeps one. */
TN_API tn_status  tn_backward(tn_ctx *ctx, tn_tensor *loss);
/* Asks for the gradient of an arena tensor, such as an input: t->grad exists after tn_backward. */
TN_API tn_status  tn_watch(tn_tensor *t);

/* Records fn(ctx, with, in) but keeps only its inputs and its result (Chen et al. 2016). What fn computes is freed when
   it returns, and computed again in the backward pass by a second call. This takes the memory of one such part instead
   of all, for one more forward pass. Results and gradients are bit-identical: random calls are repeated, too.
       fn returns one tensor, made from in[0..n), parameters and other owned tensors by ops only; tn_record, tn_backward,
       tn_ctx_reset and graphs are errors in it. Arena tensors that need a gradient must be among the inputs. An error
       names one that is not, unless later ops have given it a gradient already (then its gradient is right, too).
       fn may be called at any time until tn_backward, with a copy of the `bytes` bytes at `with`, and must do the same
       each time. What it reads must still be there: tn_backward is an error if parameters were destroyed meanwhile.
   0 <= n <= 3; an input may be NULL. While not recording, or inside another tn_recompute, it only calls fn. A tensor that
   fn watches has no gradient afterwards. Returns NULL where fn does; the context has the error. */
typedef tn_tensor *(*tn_recompute_fn)(tn_ctx *ctx, const void *with, tn_tensor *const in[3]);
TN_API TN_EXPERIMENTAL tn_tensor *tn_recompute(tn_ctx *ctx, tn_recompute_fn fn, const void *with, size_t bytes, int n,
                                               tn_tensor *const *in);
#endif /* TN_NO_TRAINING */
