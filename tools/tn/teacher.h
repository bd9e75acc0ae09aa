/* teacher.h - the loss of `tn train --teacher`, which another program can include as well

   Distillation: the model learns the probabilities that another one gives to all tokens, not only which token came next.
   Hinton, Vinyals & Dean 2015, section 2 */
#ifndef TN_TEACHER_H
#define TN_TEACHER_H

#include "tensornet.h"

/* The teacher's probabilities at that temperature: softmax(z / T).   z [..,vocab] */
static inline tn_tensor *teacher_probabilities(tn_ctx *ctx, tn_tensor *z, double temperature)
{
    return tn_softmax(ctx, tn_scale(ctx, tn_cast(ctx, z, TN_REAL), 1 / temperature));
}

/* -T^2 mean_r sum_c p[r,c] log softmax(z / T)[r,c]: its gradient is T/R (softmax(z / T) - p), of about the same size
   at any large T.
   z, p [..,vocab] -> [] */
static inline tn_tensor *distillation_loss(tn_ctx *ctx, tn_tensor *z, tn_tensor *p, double temperature)
{
    const double rows = (double)tn_tensor_count(p) / (double)p->shape[p->rank - 1];
    tn_tensor   *q = tn_log_softmax(ctx, tn_scale(ctx, tn_cast(ctx, z, TN_REAL), 1 / temperature));
    return tn_scale(ctx, tn_sum(ctx, tn_mul(ctx, p, q)), -temperature * temperature / rows);
}

#endif
