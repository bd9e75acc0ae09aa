#pragma once
#include "core/inner.h"
#include "tape/tape.h"

/* Does the next writer overwrite the gradient of t, which is not a view? */
static inline bool tni_grad_is_new(const tn_tensor *t)
{
    if (!t->grad) return true;
    return t->flags & TNI_PARAM ? (t->grad->flags & TNI_ZEROED) != 0 : (t->flags & TNI_GRAD_USED) == 0;
}

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* tape.c */
TNI_FN bool tni_recording(const tn_ctx *ctx);
TNI_FN tni_node *tni_note_all(tn_ctx *ctx, tni_backward_fn backward, tn_tensor *out, tn_tensor *a, tn_tensor *b,
                              tn_tensor *c);
TNI_FN tni_node *tni_note(tn_ctx *ctx, tni_backward_fn backward, tn_tensor *out, tn_tensor *a, tn_tensor *b, tn_tensor *c);
TNI_FN tn_tensor *tni_grad_new(tn_tensor *t);
TNI_FN bool tni_grad_pass(const tni_node *n, tn_tensor *t);
TNI_FN bool tni_grad_part(tn_tensor *t);
TNI_FN tn_tensor *tni_grad_view(tn_tensor *t, tn_tensor *g);
TNI_FN tn_tensor *tni_grad(tn_tensor *t, bool *add);
TNI_FN tn_tensor *tni_grad_to_add(tn_tensor *t);
TNI_FN void tni_run_grad(tn_ctx *ctx, tn_call *call, tn_tensor *t, char as);
#ifndef TN_NO_TRAINING
TNI_FN void tni_grad_done(tn_ctx *ctx, tn_tensor *t);
TNI_FN void tni_tape_back(tn_ctx *ctx);
#endif /* TN_NO_TRAINING */

#endif
