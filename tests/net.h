/* net.h: a small network with one of every layer, and a way to train it: for tests of what surrounds a training run. */

#ifndef TN_NET_H
#define TN_NET_H

#include "test.h"

typedef struct net { tn_embedding embed; tn_norm norm; tn_mlp mlp; tn_linear head; } net;

static inline bool net_make(tn_params *params, net *m)
{
    tn_embedding_desc ed = ZERO;
    tn_norm_desc      nd = ZERO;
    tn_mlp_desc       md = ZERO;
    tn_linear_desc    ld = ZERO;
    ld.bias = true;
    ed.count = 5; ed.dim = nd.dim = md.in = ld.in = 6;
    md.hidden = 7; md.bias = md.out_bias = md.residual = true;
    ld.out = 5;
    return tn_embedding_init(params, "embed", &ed, &m->embed) == TN_OK
        && tn_norm_init(params, "norm", &nd, &m->norm) == TN_OK
        && tn_mlp_init(params, "mlp", &md, &m->mlp) == TN_OK && tn_linear_init(params, "head", &ld, &m->head) == TN_OK;
}

/* AdamW with all it can do: clipping that bites, decay, a schedule. */
static inline tn_optim *net_optim(tn_params *params)
{
    tn_optim_desc d = ZERO;
    d.clip_norm = 0.1;
    d.weight_decay = 0.1;
    d.schedule.kind = TN_SCHEDULE_COSINE;
    d.schedule.warmup = 1;
    d.schedule.total = 100;
    return tn_optim_create(params, &d);
}

/* One step with noise and dropout. true: the parameters were updated, and *loss is that before it. */
static inline bool net_train(tn_ctx *ctx, const net *m, tn_optim *optim, double *loss)
{
    static const int32_t id[9] = {0, 1, 2, 3, 4, 0, 2, 4, 1}, label[9] = {1, 2, 3, 4, 0, 1, 3, 0, 2};
    tn_ctx_reset(ctx);
    tn_tensor *ids = tn_tensor_1d(ctx, TN_I32, 9);
    tn_tensor *labels = tn_tensor_1d(ctx, TN_I32, 9);
    if (tn_write(ids, TN_I32, id, 9) != TN_OK || tn_write(labels, TN_I32, label, 9) != TN_OK) return false;
    tn_record(ctx);
    tn_tensor *x = tn_dropout(ctx, tn_noise(ctx, tn_embedding_forward(ctx, &m->embed, ids), 0.1), 0.1);
    x = tn_mlp_forward(ctx, &m->mlp, tn_norm_forward(ctx, &m->norm, x));
    x = tn_cross_entropy(ctx, tn_linear_forward(ctx, &m->head, x), labels);
    *loss = tn_item(x);
    return *loss == *loss && tn_backward(ctx, x) == TN_OK && tn_optim_step(optim) == TN_OK;
}

#endif
