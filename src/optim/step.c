#include "core/inner.h"
#include "tensor/inner.h"
#include "comm/inner.h"
#include "ops/inner.h"
#include "layers/layers.h"
#include "optim/inner.h"

#ifndef TN_NO_TRAINING
/* ---- a step ------------------------------------------------------------- >>optim-step */

/* Parameters that are updated one after the other by the same kernel, the last first. */
typedef struct tni_series { tn_optim_kind rule; int64_t before, after; } tni_series;

/* Whether both are finite and not negative, and the first is finite also times the learning rate. */
static tn_status tni_optim_scales_fit(const tn_optim *o, const tn_param *p)
{
    const double most = tni_dtype_most(o->scalars->dtype), larger = fmax(1, o->desc.lr);
    if (!(p->lr_scale >= 0 && p->decay_scale >= 0))
        return tni_fail(o->owned.ctx, TN_ERR_ARG, "optim: the scales of %s are %g of lr and %g of weight_decay, expected numbers "
                        ">= 0", p->name, p->lr_scale, p->decay_scale);
    if (tni_optim_rate(o, p) <= most / larger && tni_optim_decay(o, p) <= most) return TN_OK;
    return tni_fail(o->owned.ctx, TN_ERR_ARG, "optim: the scales of %s are %g of lr %g and %g of weight_decay %g, expected "
                    "products that %s can hold", p->name, p->lr_scale, o->desc.lr, p->decay_scale, o->desc.weight_decay,
                    tn_dtype_name(o->scalars->dtype));
}

static tn_status tni_optim_elementwise(tn_optim *o, int64_t i, const tni_series *at)
{
    const tn_optim_desc *d = &o->desc;
    const tn_param      *p = o->of.params->item[i];
    bool                 adamw = tni_optim_rule(o, p) == TN_OPTIM_ADAMW;
    tn_call c = tni_call(adamw ? TN_KERNEL_ADAMW : TN_KERNEL_SGD, "t", o->scalars);
    const tni_span own = tni_optim_own(o, i);
    c.out[c.n_out++] = tni_span_view(p->value, own.begin, own.count);
    c.out[c.n_out++] = tni_span_view(p->value->grad, own.begin, own.count);
    for (int k = 0; k < 2; k++)
        if (o->state[i].m[k]) tni_out_flat(&c, o->state[i].m[k]);
    if (tni_shadow_holds(p->value)) {
        c.n_out = adamw ? 5 : 4;
        c.out[c.n_out - 1] = tni_shadow_view(p->value);
    }
    c.f[0] = adamw ? d->beta1 : d->momentum;
    c.f[1] = adamw ? d->beta2 : d->nesterov && d->momentum > 0 ? 1 : 0;
    c.f[2] = d->eps;
    c.f[3] = tni_optim_decay(o, p);
    c.f[4] = tni_optim_rate(o, p);
    c.f[5] = o->state[i].born;
    tni_series_place(o->owned.ctx, &c, at->before, at->after);
    return tni_run(o->owned.ctx, &c);
}

/* Updates the parameters from i down that have i's rule; returns the index of the next parameter. */
static int64_t tni_optim_series(tn_optim *o, int64_t i, tn_status *s)
{
    tn_param *const*item = o->of.params->item;
    const bool      shares = tni_optim_shares(o);
    tni_series      at;
    int64_t         last = i;
    at.rule = tni_optim_rule(o, item[i]);
    at.before = 0;
    at.after = -1;
    for (int64_t k = i; k >= 0 && *s == TN_OK; k--) {
        if (!tni_optim_updates(item[k])) continue;
        if (tni_optim_rule(o, item[k]) != at.rule) break;
        *s = tni_settle(item[k]->value->grad);
        if (shares || !tni_shadow_holds(item[k]->value)) tni_rewritten(item[k]->value);     /* else both are written */
        last = k;
        at.after += !shares || tni_optim_own(o, k).count > 0;
    }
    for (int64_t k = i; k >= last && *s == TN_OK; k--) {
        if (!tni_optim_updates(item[k]) || (shares && tni_optim_own(o, k).count == 0)) continue;
        *s = at.rule == TN_OPTIM_MUON ? tni_muon_update(o, k) : tni_optim_elementwise(o, k, &at);
        at.before++;
        at.after--;
    }
    for (int64_t k = i; k >= last && *s == TN_OK; k--)
        if (tni_optim_updates(item[k])) item[k]->value->grad->flags |= TNI_ZEROED;
    for (int64_t k = i; k >= last && *s != TN_OK; k--) tni_rewritten(item[k]->value);
    return last - 1;
}

/* Memory for the shadow of a parameter, if a product has asked for it. A capture allocates nothing. */
static tn_status tni_shadow_make(tn_tensor *t)
{
    tn_ctx      *ctx = t->ctx;
    const size_t bytes = t->bytes / 2;
    if (!(t->flags & TNI_SHADOW) || t->compact || ctx->capture || !tni_shadows(ctx)) return TN_OK;
    tni_compact *c = (tni_compact *)tni_alloc(ctx, sizeof *c, "weights in BF16");
    if (!c) return TN_ERR_MEMORY;
    memset(c, 0, sizeof *c);
    c->data = tni_device_alloc(ctx, bytes, "weights in BF16");
    c->bytes = bytes;
    c->shadow = c->stale = true;
    if (c->data) t->compact = c;
    else tni_free(ctx, c, sizeof *c);
    return t->compact ? TN_OK : TN_ERR_MEMORY;
}

/* Does everything that can fail, before the first parameter is changed. */
static tn_status tni_optim_prepare(tn_optim *o)
{
    tn_ctx   *ctx = o->owned.ctx;
    tn_status s = ctx->status;                              /* a failed op may leave part of a gradient */
    if (ctx->sender == o) ctx->on_node = NULL;
    o->faulted = false;
    if (s == TN_OK) s = tni_optim_ready(o);
    for (int64_t i = 0; i < o->of.params->count && s == TN_OK; i++) s = tni_optim_scales_fit(o, o->of.params->item[i]);
    for (int64_t i = 0; i < o->of.params->count && s == TN_OK; i++)
        if (tni_optim_updates(o->of.params->item[i])) s = tni_optim_moments(o, i, o->of.params->item[i]->value);
    for (int64_t i = 0; i < o->of.params->count && s == TN_OK; i++) s = tni_shadow_make(o->of.params->item[i]->value);
    if (s == TN_OK && o->desc.kind == TN_OPTIM_MUON) s = tni_muon_alloc(o);
    ctx->describe = tni_optim_describe;
    ctx->describe_with = o;
    if (tni_comm(ctx)) {
        s = tni_optim_agree(o, TNI_MEET_STEP, s);
        if (s == TN_OK) s = tni_optim_mean(o);
    }
    return s == TN_OK ? tni_optim_begin(o) : s;
}

tn_status tn_optim_step(tn_optim *o)
{
    if (!o) return TN_ERR_ARG;
    tn_ctx *ctx = o->owned.ctx;
    if (!o->of.params) return tni_fail(ctx, TN_ERR_ARG, "optim: the optimiser's parameters were destroyed");
    tn_status s = tni_optim_prepare(o);
    if (s != TN_OK) {
        tn_params_zero_grad(o->of.params);
        return s;
    }
    for (int64_t i = o->of.params->count - 1; i >= 0 && s == TN_OK; ) /* the last first: the norm has just read its gradient */
        if (tni_optim_updates(o->of.params->item[i])) i = tni_optim_series(o, i, &s);
        else i--;
    if (s == TN_OK && tni_optim_shares(o)) s = tni_optim_publish(o);
    o->steps++;
    if (s != TN_OK) tn_params_zero_grad(o->of.params);      /* after a failure halfway: these gradients were of this step */
    return s == TN_OK && ctx->backend->host ? tni_ctx_faults(ctx) : s;
}

int64_t tn_optim_step_count(const tn_optim *o) { return o ? o->steps : 0; }

double tn_optim_grad_norm(const tn_optim *o)
{
    double s[TNI_SCALARS];
    if (!o || tn_read(o->scalars, TN_F64, s, TNI_SCALARS) != TN_OK) return (double)NAN;
    return s[TNI_NORM];
}

tn_tensor *tn_optim_skipped_view(const tn_optim *o) { return o ? tn_slice(o->scalars, 0, TNI_SKIP, TNI_SKIP + 1) : NULL; }
tn_tensor *tn_optim_grad_norm_view(const tn_optim *o) { return o ? tn_slice(o->scalars, 0, TNI_NORM, TNI_NORM + 1) : NULL; }

#endif /* TN_NO_TRAINING */
