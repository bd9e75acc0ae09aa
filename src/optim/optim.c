#include "core/inner.h"
#include "tensor/tensor.h"
#include "comm/inner.h"
#include "layers/inner.h"
#include "optim/inner.h"

#ifndef TN_NO_TRAINING
/* ======================================================================
   >>optim-impl   schedules, update rules, graphs
   A step is a few kernels per parameter. Learning rate, clip factor and the count of updates are numbers on
   the device, so that nothing waits for the host and a captured step repeats with other ones.
   ====================================================================== */

/* In double, as all differences of steps: the caller's numbers may be any. */
static double tni_schedule_decay(const tn_schedule *s)
{
    return s->decay > 0 ? (double)s->decay : fmin((double)tni_max(s->total / 5, 1), (double)s->total - (double)s->warmup);
}

double tn_schedule_at(const tn_schedule *s, int64_t step)
{
    if (!s) return 1;
    step = tni_max(step, 0);
    if (step < s->warmup) return ((double)step + 1) / (double)s->warmup;
    if (s->kind == TN_SCHEDULE_CONSTANT) return 1;
    double t = s->total > s->warmup ? ((double)step - (double)s->warmup) / ((double)s->total - (double)s->warmup) : 1;
    if (t > 1) t = 1;
    if (s->kind == TN_SCHEDULE_LINEAR) return 1 + (s->floor - 1) * t;
    if (s->kind == TN_SCHEDULE_COSINE) return s->floor + (1 - s->floor) * 0.5 * (1 + cos(3.141592653589793 * t));
    t = tni_schedule_decay(s) > 0 ? 1 - ((double)s->total - (double)step) / tni_schedule_decay(s) : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return 1 + (s->floor - 1) * (s->one_minus_sqrt ? sqrt(t) : t);
}

TNI_FN tn_status tni_graph_steps(tn_graph *g, tn_optim *o)
{
    for (int i = 0; i < g->optims; i++)
        if (g->optim[i] == o)
            return tni_fail(g->owned.ctx, TN_ERR_ARG, "graph: an optimiser steps twice, expected once per graph");
    if (g->optims == TNI_GRAPH_OPTIMS)
        return tni_fail(g->owned.ctx, TN_ERR_ARG, "graph: one optimiser too many steps, expected at most %d",
                        TNI_GRAPH_OPTIMS);
    g->steps[g->optims] = o->steps;
    g->optim[g->optims++] = o;
    return TN_OK;
}

/* For an optimiser that is destroyed while its step is captured. Releasing its memory has reported the error. */
static void tni_graph_forget(tn_graph *g, const tn_optim *o)
{
    for (int i = 0; g && i < g->optims; i++)
        if (g->optim[i] == o) {
            g->optim[i] = g->optim[--g->optims];
            g->steps[i] = g->steps[g->optims];
        }
}

/* Reports the fault word of a gradient with the name of its parameter. */
TNI_FN bool tni_optim_describe(tn_ctx *ctx, const int32_t f[4])
{
    tn_optim *o = (tn_optim *)ctx->describe_with;
    tn_param *p = tn_params_at(o->of.params, f[1]);
    if (p)
        tni_fail(ctx, TN_ERR_NONFINITE,
                 "step %d: the gradient of %s is not finite; the update was skipped, parameters are unchanged", (int)f[3],
                 p->name);
    return p != NULL;
}

TNI_FN void tni_optim_forget(tni_moments *m)
{
    for (int k = 0; k < 2; k++) {
        tn_tensor_destroy(m->m[k]);
        m->m[k] = NULL;
    }
    m->made = false;
}

static void tni_optim_destroy(tni_owned *owned)
{
    tn_optim *o = (tn_optim *)(void *)owned;
    tn_ctx   *ctx = owned->ctx;
    if (ctx->describe_with == o) { ctx->describe = NULL; ctx->describe_with = NULL; }
    if (ctx->sender == o) { ctx->on_node = NULL; ctx->sender = NULL; }
    tni_graph_forget(ctx->capture, o);
    for (int64_t i = 0; i < o->states; i++) tni_optim_forget(&o->state[i]);
    tni_free(ctx, o->state, sizeof *o->state * (size_t)o->states);
    for (int64_t i = 0; i < 4; i++) tn_tensor_destroy(o->work[i]);
    tn_tensor_destroy(o->bucket);
    tni_free(ctx, o->reports, TNI_REPORT_BYTES(ctx));
    tn_tensor_destroy(o->scalars);
    tni_params_unwatch(&o->of);
    tni_disown(owned);
    tni_free(ctx, o, sizeof *o);
}

void tn_optim_destroy(tn_optim *o) { if (o) tni_optim_destroy(&o->owned); }

static tn_status tni_schedule_check(tn_ctx *ctx, const tn_schedule *s)
{
    if ((unsigned)s->kind > TN_SCHEDULE_TRAPEZOID)
        return tni_fail(ctx, TN_ERR_ARG, "optim: schedule.kind is %d, not a valid tn_schedule_kind", (int)s->kind);
    if (!tni_within(ctx, "optim", "schedule.warmup", s->warmup, 0, INT64_MAX)) return TN_ERR_ARG;
    if (!(s->floor >= 0 && s->floor <= 1))
        return tni_fail(ctx, TN_ERR_ARG, "optim: schedule.floor is %g, expected 0 to 1", s->floor);
    if (s->kind != TN_SCHEDULE_CONSTANT && s->total <= s->warmup)
        return tni_fail(ctx, TN_ERR_ARG, "optim: schedule.total is %lld, expected more than warmup = %lld",
                        (long long)s->total, (long long)s->warmup);
    if (s->kind == TN_SCHEDULE_TRAPEZOID && (s->decay < 0 || s->decay > s->total - s->warmup))
        return tni_fail(ctx, TN_ERR_ARG, "optim: schedule.decay is %lld, expected 0 to total - warmup = %lld",
                        (long long)s->decay, (long long)(s->total - s->warmup));
    return TN_OK;
}

static tn_status tni_optim_fail(tn_ctx *ctx, const char *field, double value, const char *expected)
{
    return tni_fail(ctx, TN_ERR_ARG, "optim: %s is %g, expected a number %s", field, value, expected);
}

/* Settings that must not vanish or overflow as numbers of the context's dtype. */
static bool tni_optim_positive(tn_ctx *ctx, const char *field, double value, double most)
{
    const tn_dtype dtype = ctx->desc.dtype;
    most = fmin(most, tni_dtype_most(dtype));
    if (value >= tni_dtype_least(dtype) && value <= most) return true;
    return tni_fail(ctx, TN_ERR_ARG, "optim: %s is %g, expected a number > 0, in %s from %g to %g", field, value,
                    tn_dtype_name(dtype), tni_dtype_least(dtype), most), false;
}

static const double tni_lr_most = 1e12;

static tn_status tni_muon_check(tn_ctx *ctx, tn_optim_desc *d)
{
    if (d->adam_lr == 0) d->adam_lr = d->muon_scale == TN_MUON_SCALE_RMS ? d->lr : 3e-4;
    if (d->momentum == 0) d->momentum = 0.95;
    if (d->momentum_start == 0) d->momentum_start = d->momentum < 0.85 ? d->momentum : 0.85;
    if (d->newton_schulz == 0) d->newton_schulz = 5;
    if ((unsigned)d->muon_scale > TN_MUON_SCALE_RMS)
        return tni_fail(ctx, TN_ERR_ARG, "optim: muon_scale is %d, not a valid tn_muon_scale", (int)d->muon_scale);
    if (!tni_within(ctx, "optim", "newton_schulz", d->newton_schulz, 1, 20)) return TN_ERR_ARG;
    if (!tni_optim_positive(ctx, "adam_lr", d->adam_lr, tni_lr_most)) return TN_ERR_ARG;
    if (!(d->momentum_start >= 0 && d->momentum_start < 1))
        return tni_optim_fail(ctx, "momentum_start", d->momentum_start, ">= 0 and < 1");
    return tni_within(ctx, "optim", "momentum_warmup", d->momentum_warmup, 0, INT64_MAX) ? TN_OK : TN_ERR_ARG;
}

static tn_status tni_optim_check(tn_ctx *ctx, tn_optim_desc *d)
{
    if ((unsigned)d->kind > TN_OPTIM_MUON)
        return tni_fail(ctx, TN_ERR_ARG, "optim: kind is %d, not a valid tn_optim_kind", (int)d->kind);
    if (d->lr == 0 && d->kind == TN_OPTIM_MUON && d->muon_scale == TN_MUON_SCALE_SHAPE) d->lr = 2e-2;
    if (d->lr == 0) d->lr = d->kind == TN_OPTIM_SGD ? 1e-2 : 1e-3;
    if (d->beta1 == 0) d->beta1 = 0.9;
    if (d->beta2 == 0) d->beta2 = 0.999;
    if (d->eps == 0) d->eps = 1e-8;
    if (!tni_optim_positive(ctx, "lr", d->lr, tni_lr_most) || !tni_optim_positive(ctx, "eps", d->eps, HUGE_VAL))
        return TN_ERR_ARG;
    if (!(d->clip_norm == 0 || d->clip_norm >= tni_dtype_least(ctx->desc.dtype)))
        return tni_fail(ctx, TN_ERR_ARG, "optim: clip_norm is %g, expected 0 or a number >= %g", d->clip_norm,
                        tni_dtype_least(ctx->desc.dtype));
    if (!(d->beta1 > 0 && d->beta1 < 1)) return tni_optim_fail(ctx, "beta1", d->beta1, "> 0 and < 1");
    if (!(d->beta2 > 0 && d->beta2 < 1)) return tni_optim_fail(ctx, "beta2", d->beta2, "> 0 and < 1");
    if (!(d->weight_decay >= 0 && d->weight_decay <= tni_dtype_most(ctx->desc.dtype)))
        return tni_optim_fail(ctx, "weight_decay", d->weight_decay, ">= 0 and finite");
    if (!(d->momentum >= 0 && d->momentum < 1)) return tni_optim_fail(ctx, "momentum", d->momentum, ">= 0 and < 1");
    if (d->kind == TN_OPTIM_MUON && tni_muon_check(ctx, d) != TN_OK) return TN_ERR_ARG;
    if (d->bucket == 0) d->bucket = 1 << 20;
    if (!tni_within(ctx, "optim", "bucket", d->bucket, 0, INT64_MAX)) return TN_ERR_ARG;
    return tni_schedule_check(ctx, &d->schedule);
}

TNI_COLD tn_optim *tn_optim_create(tn_params *ps, const tn_optim_desc *desc)
{
    tn_ctx       *ctx = tn_params_ctx(ps);
    tn_optim_desc d;
    int64_t       n = TNI_SCALARS;
    if (!ctx) return NULL;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    if (tni_optim_check(ctx, &d) != TN_OK) return NULL;
    tn_optim *o = (tn_optim *)tni_alloc(ctx, sizeof *o, "optim");
    if (!o) return NULL;
    memset(o, 0, sizeof *o);
    tni_params_watch(ps, &o->of);
    o->desc = d;
    tni_own(ctx, &o->owned, tni_optim_destroy);
    o->scalars = tn_tensor_create(ctx, TN_REAL, 1, &n);
    if (tni_comm(ctx)) o->reports = (int32_t *)tni_alloc(ctx, TNI_REPORT_BYTES(ctx), "optim");
    if (!o->scalars || (tni_comm(ctx) && !o->reports) || !tni_comm_ready(ctx)) {   /* to report errors to others */
        tn_optim_destroy(o);
        return NULL;
    }
    return o;
}

/* Makes entries for the moments of parameters that were added since the last step. */
TNI_FN tn_status tni_optim_grow(tn_optim *o)
{
    tn_ctx *ctx = o->owned.ctx;
    int64_t want = o->of.params->count;
    if (o->states >= want) return TN_OK;
    tni_moments *state = (tni_moments *)tni_array(ctx, want, sizeof *state, "optim");
    if (!state) return TN_ERR_MEMORY;
    memset(state, 0, sizeof *state * (size_t)want);
    if (o->states > 0) memcpy(state, o->state, sizeof *state * (size_t)o->states);
    tni_free(ctx, o->state, sizeof *state * (size_t)o->states);
    o->state = state;
    o->states = want;
    return TN_OK;
}

/* The rule by which a parameter is updated. */
TNI_FN tn_optim_kind tni_optim_rule(const tn_optim *o, const tn_param *p)
{
    return o->desc.kind == TN_OPTIM_MUON && (p->adamw || p->value->rank < 2) ? TN_OPTIM_ADAMW : o->desc.kind;
}

/* The factor of the learning rate, and the weight decay, of a parameter. */
TNI_FN double tni_optim_rate(const tn_optim *o, const tn_param *p)
{
    const bool beside = o->desc.kind == TN_OPTIM_MUON && tni_optim_rule(o, p) == TN_OPTIM_ADAMW;
    return beside ? p->lr_scale * (o->desc.adam_lr / o->desc.lr) : p->lr_scale;
}

TNI_FN double tni_optim_decay(const tn_optim *o, const tn_param *p) { return o->desc.weight_decay * p->decay_scale; }

/* The number of moments that a rule keeps, and that of a parameter. */
TNI_FN int tni_rule_wants(const tn_optim *o, tn_optim_kind rule)
{
    return rule == TN_OPTIM_ADAMW ? 2 : rule == TN_OPTIM_MUON || o->desc.momentum > 0 ? 1 : 0;
}

TNI_FN int tni_optim_wants(const tn_optim *o, const tn_param *p) { return tni_rule_wants(o, tni_optim_rule(o, p)); }

double tn_optim_lr(const tn_optim *o) { return o ? o->desc.lr * tn_schedule_at(&o->desc.schedule, o->steps) : 0; }

double tn_optim_momentum(const tn_optim *o)
{
    if (!o || o->desc.kind == TN_OPTIM_ADAMW) return 0;
    if (o->desc.kind == TN_OPTIM_SGD || o->steps >= o->desc.momentum_warmup) return o->desc.momentum;
    double start = o->desc.momentum_start;
    double t = (double)o->steps / (double)o->desc.momentum_warmup;
    return start + (o->desc.momentum - start) * t;
}
#endif /* TN_NO_TRAINING */
