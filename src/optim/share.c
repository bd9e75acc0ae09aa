#include "core/inner.h"
#include "tensor/inner.h"
#include "comm/inner.h"
#include "ops/inner.h"
#include "layers/layers.h"
#include "optim/inner.h"

#ifndef TN_NO_TRAINING
/* ---- which part of a parameter a process updates ------------------------ >>optim-share */

/* Whether processes share moments. */
TNI_FN bool tni_optim_shares(const tn_optim *o) { return o->desc.share_moments && tn_comm_size(o->owned.ctx) > 1; }

/* Gives each parameter its place. From the last to the first, those of AdamW and SGD form groups of a bucket's size or more, of
   which each process gets an equal range: so a group is complete early in the backward pass. A matrix of Muon goes to the process
   that has the fewest elements of matrices so far. */
TNI_FN tn_status tni_optim_places(tn_optim *o)
{
    tn_ctx   *ctx = o->owned.ctx;
    const int size = tn_comm_size(ctx);
    int64_t   group = 0, from = o->of.params->count - 1;
    if (!tni_optim_shares(o)) return TN_OK;
    for (int64_t i = 0; i < o->placed; i++)
        if (o->state[i].placed != tni_optim_rule(o, o->of.params->item[i]))
            return tni_fail(ctx, TN_ERR_ARG, "optim: the rule of %s was changed after the first step, expected none to be with "
                            "share_moments", o->of.params->item[i]->name);
    if (o->placed == o->of.params->count) return TN_OK;
    if (o->placed > 0)
        return tni_fail(ctx, TN_ERR_ARG, "optim: parameters were added after the first step, expected none with share_moments");
    int64_t *load = (int64_t *)tni_comm_scratch(ctx, (size_t)size * sizeof *load);
    if (!load) return TN_ERR_MEMORY;
    memset(load, 0, (size_t)size * sizeof *load);
    for (int64_t i = o->of.params->count - 1; i >= 0; i--) {
        const tn_param *p = o->of.params->item[i];
        const bool      muon = tni_optim_rule(o, p) == TN_OPTIM_MUON;
        int             least = 0;
        for (int r = 1; r < size; r++) if (load[r] < load[least]) least = r;
        o->state[i].placed = tni_optim_rule(o, p);
        o->state[i].at = muon ? least : group;
        if (muon) load[least] += tn_tensor_count(p->value);
        else group += tn_tensor_count(p->value);
        if (group < o->desc.bucket && i > 0) continue;
        for (int64_t k = i; k <= from; k++) o->state[k].group = group;
        from = i - 1;
        group = 0;
    }
    o->placed = o->of.params->count;
    return TN_OK;
}

/* The elements of parameter i that process r updates; r < 0, or without shared moments: all. */
TNI_FN tni_span tni_optim_part(const tn_optim *o, int64_t i, int r)
{
    const tn_param *p = o->of.params->item[i];
    const int64_t   n = tn_tensor_count(p->value), at = tni_optim_shares(o) ? o->state[i].at : 0;
    tni_span        part;
    part.begin = 0;
    part.count = n;
    if (r < 0 || !tni_optim_shares(o)) return part;
    if (o->state[i].placed == TN_OPTIM_MUON) part.count = at == r ? n : 0;      /* a rule that has changed is refused later */
    else {
        const int64_t  all = o->state[i].group;
        const tni_span own = tni_comm_span(all, tn_comm_size(o->owned.ctx), r, 0, all);
        part.begin = tni_min(n, tni_max(0, own.begin - at));
        part.count = tni_max(0, tni_min(n, own.begin + own.count - at) - part.begin);
    }
    return part;
}

TNI_FN tni_span tni_optim_own(const tn_optim *o, int64_t i) { return tni_optim_part(o, i, tn_comm_rank(o->owned.ctx)); }

/* Elements [begin,begin + count) of a contiguous tensor. */
TNI_FN tn_view tni_span_view(const tn_tensor *t, int64_t begin, int64_t count)
{
    tn_view v = tni_flat_view(t);
    v.data = (char *)v.data + (size_t)begin * tni_dtype_size(t->dtype);
    v.shape[0] = count;
    return v;
}

/* Makes the moments of parameter i, which start as zeros: m and v for AdamW, m for Muon and for SGD with momentum. Their
   bias correction counts from here, so a parameter that was added or unfrozen later, or whose rule has changed, starts like
   one of the first step. */
TNI_FN tn_status tni_optim_moments(tn_optim *o, int64_t i, const tn_tensor *value)
{
    const tn_param *p = o->of.params->item[i];
    const tni_span  own = tni_optim_own(o, i);
    const bool      part = own.count < tn_tensor_count(value);
    const int       wanted = tni_optim_wants(o, p);
    int       k;
    double    scalars[TNI_SCALARS];
    tn_status s;
    if (o->state[i].rule != tni_optim_rule(o, p) && !tni_uncaptured(o->owned.ctx, "moments of another kind are made"))
        return TN_ERR_ARG;
    if (o->state[i].rule != tni_optim_rule(o, p)) tni_optim_forget(&o->state[i]);
    o->state[i].rule = tni_optim_rule(o, p);
    if (wanted == 0 || o->state[i].made) return TN_OK;
    for (k = 0; k < wanted && (!part || own.count > 0); k++) {
        tn_tensor **m = &o->state[i].m[k];
        if (!*m) *m = tn_tensor_create(o->owned.ctx, TN_REAL, part ? 1 : value->rank, part ? &own.count : value->shape);
        if (!*m) return TN_ERR_MEMORY;
    }
    if ((s = tn_read(o->scalars, TN_F64, scalars, TNI_SCALARS)) != TN_OK) return s;
    o->state[i].born = scalars[TNI_STEP];
    o->state[i].made = true;
    return TN_OK;
}

TNI_FN bool tni_optim_updates(const tn_param *p) { return !p->frozen && p->value->grad != NULL; }

/* Uploads the host's numbers that change from one step to the next. */
TNI_FN tn_status tni_optim_tell(tn_optim *o)
{
    tn_ctx        *ctx = o->owned.ctx;
    const tn_dtype dtype = o->scalars->dtype;
    const size_t   size = tni_dtype_size(dtype);
    char           lr[8], more[16];
    tni_store(lr, dtype, 0, tn_optim_lr(o));
    tni_store(more, dtype, 0, tn_optim_momentum(o));
    tni_store(more, dtype, 1, (double)(o->steps + 1));
    tn_status s = tni_to_device(ctx, o->scalars->data, lr, size);
    if (s == TN_OK) s = tni_to_device(ctx, (char *)o->scalars->data + TNI_MOMENTUM * size, more, 2 * size);
    return s == TN_OK ? s : tni_backend_fail(ctx, s, "optim");
}

/* The call's place in a series: only where operands are memory that a backend may use until the last call. */
TNI_FN void tni_series_place(const tn_ctx *ctx, tn_call *c, int64_t before, int64_t after)
{
    c->i[1] = ctx->backend->host ? before : 0;
    c->i[2] = ctx->backend->host ? after : 0;
}

/* A parameter with a gradient that does not count as zeros has a share of the norm. */
static bool tni_optim_sums(const tn_optim *o, int64_t i)
{
    const tn_param *p = o->of.params->item[i];
    if (tni_optim_shares(o) && tni_optim_own(o, i).count == 0) return false;
    return tni_optim_updates(p) && !(p->value->grad->flags & TNI_ZEROED);
}

static tn_status tni_optim_norm(tn_optim *o, tn_status s);

/* Norm over all gradients and clip factor. In a graph the host's numbers are uploaded before each replay. */
TNI_FN tn_status tni_optim_begin(tn_optim *o)
{
    tn_ctx   *ctx = o->owned.ctx;
    tn_call   c;
    int64_t   before = 0, after = 0;
    tn_status s = ctx->capture ? tni_graph_steps(ctx->capture, o) : tni_optim_tell(o);
    for (int64_t i = 0; i < o->of.params->count; i++) after += tni_optim_sums(o, i);
    for (int64_t i = 0; i < o->of.params->count && s == TN_OK; i++) {
        const tn_param *p = o->of.params->item[i];
        const tni_span  own = tni_optim_own(o, i);
        if (!tni_optim_sums(o, i)) continue;
        c = tni_call(TN_KERNEL_SUMSQ, ":t", o->scalars);
        c.in[c.n_in++] = tni_span_view(p->value->grad, own.begin, own.count);
        tni_out(&c, ctx->fault);
        c.i[0] = i;
        tni_series_place(ctx, &c, before++, --after);
        s = tni_run(ctx, &c);
    }
    if (tni_optim_shares(o)) s = tni_optim_norm(o, s);
    if (s != TN_OK) return s;
    c = tni_call(TN_KERNEL_STEP_BEGIN, ":tt", o->scalars, ctx->fault);
    c.f[0] = fmin(o->desc.clip_norm, tni_dtype_most(o->scalars->dtype));
    return tni_run(ctx, &c);
}

/* ---- gradients of many processes ---------------------------------------- >>optim-comm
   The gradients of all parameters, one after the other from the last parameter's, which the backward pass completes first,
   are one vector. It is summed in pieces, the buckets, so that many small gradients are one message and large ones need no
   second copy of themselves. A bucket is sent when the backward pass has passed the last node that adds to it (tn_optim_overlap),
   or in tn_optim_step. Up to four are on their way: copied from the gradients, summed by the thread beside, and copied back. */

enum { TNI_SLOTS = 4 };

static uint64_t tni_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t tni_mix_real(uint64_t h, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return tni_mix(h, bits);
}

static uint64_t tni_mix_desc(uint64_t h, const tn_optim_desc *d)
{
    const double  real[] = {d->lr, d->beta1, d->beta2, d->eps, d->weight_decay, d->momentum, d->clip_norm, d->schedule.floor,
                            d->adam_lr, d->momentum_start};
    const int64_t whole[] = {d->kind, d->nesterov, d->schedule.kind, d->schedule.warmup, d->schedule.total, d->schedule.decay,
                             d->schedule.one_minus_sqrt, d->muon_scale, d->newton_schulz, d->momentum_warmup, d->share_moments,
                             d->bucket};
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) h = tni_mix_real(h, real[i]);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) h = tni_mix(h, (uint64_t)whole[i]);
    return h;
}

/* A hash of what has to be alike in all processes. A step that has failed may leave one with moments that others lack, and the
   next step makes these; a checkpoint does not. */
static void tni_optim_hash(const tn_optim *o, tni_meeting in, int32_t out[2])
{
    const tn_ctx *ctx = o->owned.ctx;
    uint64_t      h = tni_mix(tni_mix_desc((uint64_t)o->steps + 1, &o->desc), (uint64_t)in);
    h = tni_mix(tni_mix(h, ctx->desc.seed), (uint64_t)ctx->calls);
    h = tni_mix(tni_mix(h, (uint64_t)ctx->desc.dtype), (uint64_t)ctx->desc.activations);
    for (int64_t i = 0; i < o->of.params->count; i++) {
        const tn_param *p = o->of.params->item[i];
        h = tni_mix(tni_mix(h, (uint64_t)tn_tensor_count(p->value)), (uint64_t)tni_optim_updates(p));
        h = tni_mix_real(tni_mix_real(tni_mix(h, (uint64_t)tni_optim_rule(o, p)), p->lr_scale), p->decay_scale);
        if (in == TNI_MEET_CHECKPOINT) h = tni_mix(h, i < o->states && o->state[i].made ? 1 + (uint64_t)o->state[i].rule : 0);
    }
    out[0] = (int32_t)(uint32_t)h;
    out[1] = (int32_t)(uint32_t)(h >> 32);
}

/* The reports of all: an error of one process is everybody's, and so is a fault. */
static tn_status tni_optim_judge(tn_optim *o, tni_meeting in, tn_status s)
{
    tn_ctx     *ctx = o->owned.ctx;
    const char *call = in == TNI_MEET_CHECKPOINT ? "checkpoint" : "optim";
    const int   size = tn_comm_size(ctx);
    for (int r = 0; r < size && s == TN_OK; r++) {
        const int32_t *report = o->reports + TNI_REPORT * r;
        if (report[TNI_REPORT_STATUS] != TN_OK)
            s = tni_fail(ctx, (tn_status)report[TNI_REPORT_STATUS], "%s: rank %d has an error: %s; %s", call, r,
                         tn_status_name((tn_status)report[TNI_REPORT_STATUS]), in == TNI_MEET_CHECKPOINT
                         ? "see its message" : "no process has updated its parameters");
        else if (memcmp(report + TNI_REPORT_HASH, o->reports + TNI_REPORT_HASH, 2 * sizeof *report) != 0)
            s = tni_fail(ctx, TN_ERR_ARG, "%s: rank %d has another number of steps, other settings, parameters, gradients, "
                         "moments or random calls than rank 0, or is in another call", call, r);
    }
    for (int r = 0; r < size && s == TN_OK && !o->faulted; r++)
        if (o->reports[TNI_REPORT * r + TNI_REPORT_FAULT] != 0) {
            o->faulted = true;
            ctx->fault_rank = r;
            return tni_to_device(ctx, ctx->fault->data, o->reports + TNI_REPORT * r + TNI_REPORT_FAULT, 4 * sizeof *o->reports);
        }
    return s;
}

static int32_t *tni_optim_tells(tn_optim *o, tni_meeting in, tn_status s)
{
    tn_ctx  *ctx = o->owned.ctx;
    int32_t *own = o->reports + TNI_REPORT * tn_comm_rank(ctx);
    memset(o->reports, 0, TNI_REPORT_BYTES(ctx));
    own[TNI_REPORT_STATUS] = (int32_t)s;
    tni_optim_hash(o, in, own + TNI_REPORT_HASH);
    return own;
}

/* All processes agree whether they can go on: s is the status of this one. */
TNI_FN tn_status tni_optim_agree(tn_optim *o, tni_meeting in, tn_status s)
{
    tn_ctx *ctx = o->owned.ctx;
    if (!tni_comm(ctx) || s == TN_ERR_COMM) return s;
    if (o->refused) {                                       /* reports were exchanged before the backward pass */
        o->refused = false;
        return tni_optim_judge(o, in, s);
    }
    if (!o->faulted) ctx->fault_rank = tn_comm_rank(ctx);
    int32_t *own = tni_optim_tells(o, in, s);
    if (s == TN_OK) s = tni_to_host(ctx, own + TNI_REPORT_FAULT, ctx->fault->data, 4 * sizeof *own);
    tn_status all = tni_comm_numbers(ctx, TNI_ALL_GATHER, o->reports, (int64_t)TNI_REPORT * tn_comm_size(ctx), TN_I32);
    return all == TN_OK ? tni_optim_judge(o, in, s) : all;
}

/* A parameter's part of elements [from,from + n) of the vector of what process r updates (r < 0: of all): elements [begin,begin +
   count) of the parameter are at `to`. */
typedef struct tni_stretch { int64_t i, at, begin, count, to; } tni_stretch;

static tni_stretch tni_stretch_begin(const tn_optim *o)
{
    tni_stretch p = TNI_ZERO;
    p.i = o->of.params->count;
    return p;
}

static bool tni_stretch_next(const tn_optim *o, int r, int64_t from, int64_t n, tni_stretch *p)
{
    while (--p->i >= 0 && p->at < from + n) {
        const tni_span part = tni_optim_part(o, p->i, r);
        const int64_t  count = o->state[p->i].leaves ? part.count : 0;
        const int64_t  begin = tni_max(from, p->at), end = tni_min(from + n, p->at + count);
        p->begin = part.begin + begin - p->at;
        p->count = end - begin;
        p->to = begin - from;
        p->at += count;
        if (p->count > 0) return true;
    }
    return false;
}

/* Copies these elements to the bucket's element `to`, or from there, times f: of gradients, or of values. */
static tn_status tni_bucket_move(tn_optim *o, int r, bool values, int64_t from, int64_t n, int64_t to, bool out, double f)
{
    tni_stretch piece = tni_stretch_begin(o);
    tn_status   s = TN_OK;
    while (s == TN_OK && tni_stretch_next(o, r, from, n, &piece)) {
        const tn_tensor *value = o->of.params->item[piece.i]->value;
        const tn_view    a = tni_span_view(values ? value : value->grad, piece.begin, piece.count);
        const tn_view    b = tni_span_view(o->bucket, to + piece.to, piece.count);
        tn_call          c = tni_call(TN_KERNEL_ADD, "");
        c.in[c.n_in++] = out ? b : a;
        c.out[c.n_out++] = out ? a : b;
        c.f[0] = f;
        s = tni_run(o->owned.ctx, &c);
    }
    return s;
}

/* The rows of a bucket: those of each process, or the one of all. */
static int tni_bucket_rows(const tn_optim *o) { return tni_optim_shares(o) ? tn_comm_size(o->owned.ctx) : 1; }
static int tni_bucket_rank(const tn_optim *o, int row) { return tni_optim_shares(o) ? row : -1; }

/* The number of elements that process r updates; r < 0: of all. */
static int64_t tni_optim_length(const tn_optim *o, int r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < o->of.params->count; i++) if (o->state[i].leaves) n += tni_optim_part(o, i, r).count;
    return n;
}

/* Begins with the parameters that leave: the length of the longest vector, and of its part in a bucket. */
static void tni_mail_begin(tn_optim *o)
{
    tni_mail *m = &o->mail;
    memset(m, 0, sizeof *m);
    for (int r = 0; r < tni_bucket_rows(o); r++) m->length = tni_max(m->length, tni_optim_length(o, tni_bucket_rank(o, r)));
    m->row = tni_max(tni_min(m->length, o->desc.bucket / tni_bucket_rows(o)), 1);
}

/* Which gradients, or values, leave: of parameters that are updated, with `all` also those that processes have averaged. */
static void tni_mail_choose(tn_optim *o, bool all)
{
    for (int64_t i = 0; i < o->of.params->count; i++) {
        const tn_param *p = o->of.params->item[i];
        o->state[i].leaves = tni_optim_updates(p) && (all || (p->value->grad->flags & (TNI_SENT | TNI_ZEROED)) != TNI_SENT);
    }
    tni_mail_begin(o);
}

/* Memory for what follows, before processes agree: afterwards one alone must not fail. */
static tn_status tni_bucket_grow(tn_optim *o)
{
    tn_ctx       *ctx = o->owned.ctx;
    const int64_t each = o->mail.row * tni_bucket_rows(o), buckets = tni_ceil_div(o->mail.length, o->mail.row);
    const int64_t all = each * tni_min(buckets, TNI_SLOTS);
    const size_t  needs = tni_comm_needs(tni_comm(ctx), TNI_ALL_REDUCE, each, ctx->desc.dtype);
    if (all == 0) return TN_OK;
    if (!o->bucket || tn_tensor_count(o->bucket) < all) {
        tn_tensor_destroy(o->bucket);
        o->bucket = tn_tensor_create(ctx, TN_REAL, 1, &all);
    }
    return o->bucket && (needs == 0 || tni_comm_scratch(ctx, needs)) ? TN_OK : TN_ERR_MEMORY;
}

/* The place of the bucket that begins at element `at` of the vectors. */
static int64_t tni_bucket_place(const tn_optim *o, int64_t at)
{
    return at / o->mail.row % TNI_SLOTS * o->mail.row * tni_bucket_rows(o);
}

/* Whether a node adds to the gradient of a tensor with TNI_SOUGHT. */
static bool tni_node_sought(const tni_node *n)
{
    for (int64_t i = 0; i < 3; i++) if (n->in[i] && (tni_root(n->in[i])->flags & TNI_SOUGHT)) return true;
    for (int64_t i = 0; i < 2; i++) if (n->saved[i] && (tni_root(n->saved[i])->flags & TNI_SOUGHT)) return true;
    for (int64_t i = 0; i < n->n_list; i++) if (tni_root(n->list[i])->flags & TNI_SOUGHT) return true;
    return false;
}

/* The elements of its rows: the last bucket is shorter. */
static int64_t tni_bucket_width(const tni_mail *m, int64_t at) { return tni_min(m->row, m->length - at); }

/* The oldest node, from n on, that adds to a gradient of the next bucket. */
static const tni_node *tni_bucket_last(const tn_optim *o, const tni_node *n)
{
    const tni_mail *m = &o->mail;
    const tni_node *last = NULL;
    tni_stretch     piece;
    for (int seek = 1; seek >= 0; seek--) {
        for (int r = 0; r < tni_bucket_rows(o); r++)
            for (piece = tni_stretch_begin(o); tni_stretch_next(o, tni_bucket_rank(o, r), m->sent, m->row, &piece); ) {
                uint32_t *flags = &o->of.params->item[piece.i]->value->flags;
                *flags = seek ? *flags | TNI_SOUGHT : *flags & ~(uint32_t)TNI_SOUGHT;
            }
        for (; seek && n; n = n->before) if (tni_node_sought(n)) last = n;
    }
    return last;
}

/* The gradients of the next bucket: all of them, also those that are zeros in this process alone. */
static tn_status tni_bucket_fill(tn_optim *o)
{
    const tni_mail *m = &o->mail;
    const int64_t   place = tni_bucket_place(o, m->sent), width = tni_bucket_width(m, m->sent);
    tni_stretch     piece;
    tn_status       s = o->owned.ctx->status;
    for (int r = 0; r < tni_bucket_rows(o) && s == TN_OK; r++) {
        const int rank = tni_bucket_rank(o, r);
        for (piece = tni_stretch_begin(o); s == TN_OK && tni_stretch_next(o, rank, m->sent, width, &piece); ) {
            tn_tensor *g = o->of.params->item[piece.i]->value->grad;
            s = tni_settle(g);
            g->flags = (g->flags & ~(uint32_t)TNI_ZEROED) | TNI_SENT;
        }
        if (s == TN_OK) s = tni_bucket_move(o, rank, false, m->sent, width, place + r * width, false, 1);
    }
    return s;
}

/* What processes tell each other before an announced pass has to be alike. */
static bool tni_reports_alike(const tn_optim *o)
{
    for (int r = 1; r < tn_comm_size(o->owned.ctx); r++)
        if (memcmp(o->reports, o->reports + TNI_REPORT * r, sizeof *o->reports * TNI_REPORT) != 0) return false;
    return true;
}

/* Call number k of a mail: the reports, if they were announced, and then the buckets. The thread beside uses only the link of the
   context. */
static void tni_mail_carry(void *user, int64_t number)
{
    tn_optim            *o = (tn_optim *)user;
    tn_ctx              *ctx = o->owned.ctx;
    tni_mail            *m = &o->mail;
    const int            rows = tni_bucket_rows(o);
    const tni_collective what = rows > 1 ? TNI_REDUCE_SCATTER : TNI_ALL_REDUCE;
    const int64_t        at = (number - m->first - m->announced) * m->row;
    if (m->status != TN_OK) return;
    if (at < 0) {
        const int64_t n = (int64_t)TNI_REPORT * tn_comm_size(ctx);
        m->status = m->beside ? tni_link_run(&ctx->link, TNI_ALL_GATHER, o->reports, n, TN_I32, 0)
                              : tni_comm_numbers(ctx, TNI_ALL_GATHER, o->reports, n, TN_I32);
        m->refused = m->status == TN_OK && !tni_reports_alike(o);
        if (m->refused) m->status = TN_ERR_ARG;
    } else {
        const tn_dtype dtype = o->bucket->dtype;
        const int64_t  n = rows * tni_bucket_width(m, at);
        char          *data = (char *)o->bucket->data + (size_t)tni_bucket_place(o, at) * tni_dtype_size(dtype);
        m->status = m->beside ? tni_link_run(&ctx->link, what, data, n, dtype, 0) : tni_comm_run(ctx, what, data, n, dtype, 0);
    }
}

static void tni_mail_give(tn_optim *o)
{
#if defined(TNI_OWN_THREADS)
    if (o->mail.beside) {
        tni_comm_thread_give(o->mail.beside);
        return;
    }
#endif
    tni_mail_carry(o, o->mail.first + (o->mail.on ? tni_ceil_div(o->mail.sent, o->mail.row) + o->mail.announced : 0));
}

/* Begins to send, by the thread beside if there can be one. */
static void tni_mail_open(tn_optim *o, bool announced)
{
    tni_mail *m = &o->mail;
    m->announced = announced;
#if defined(TNI_OWN_THREADS)
    if (o->owned.ctx->backend->host && o->owned.ctx->desc.comm->any_thread) m->beside = tni_comm_thread_of(o->owned.ctx);
    if (m->beside) m->first = tni_comm_thread_begin(m->beside, tni_mail_carry, o);
#endif
    if (announced) {
        tni_optim_tells(o, TNI_MEET_BACKWARD, TN_OK);
        tni_mail_give(o);
    }
    m->on = true;
}

/* Takes the oldest bucket back, if it has returned or the caller can wait for it. */
static bool tni_mail_take(tn_optim *o, bool wait)
{
    tni_mail    *m = &o->mail;
    tn_ctx      *ctx = o->owned.ctx;
    const double mean = 1 / (double)tn_comm_size(ctx);
    const int    row = tni_optim_shares(o) ? tn_comm_rank(ctx) : 0;
#if defined(TNI_OWN_THREADS)
    if (m->beside && !tni_comm_thread_done(m->beside, m->first + m->announced + m->back / m->row, wait)) return false;
#endif
    (void)wait;
    int64_t width = tni_bucket_width(m, m->back);
    int64_t place = tni_bucket_place(o, m->back) + row * width;
    if (m->status == TN_OK && ctx->status == TN_OK)
        tni_bucket_move(o, tni_bucket_rank(o, row), false, m->back, width, place, true, mean);
    m->back += m->row;
    return true;
}

/* Sends the buckets to which no node adds that the backward pass has not passed yet. */
static void tni_mail_send(tn_optim *o)
{
    tni_mail *m = &o->mail;
    for (; m->sent < m->length; m->sent += m->row, m->known = false) {
        if (m->reached && !m->known) m->last = tni_bucket_last(o, m->reached);
        m->known = true;
        if (m->reached && m->last) return;
        if (m->sent - m->back == TNI_SLOTS * m->row && !tni_mail_take(o, m->reached == NULL)) return;
        tni_bucket_fill(o);                                 /* after an error: whatever is there, for the others wait for it */
        tni_mail_give(o);
    }
}

static tn_status tni_mail_finish(tn_optim *o)
{
    tni_mail *m = &o->mail;
    tn_ctx   *ctx = o->owned.ctx;
    m->reached = NULL;
    tni_mail_send(o);
    while (m->back < m->length) tni_mail_take(o, true);
    m->on = false;
    o->refused = m->refused;                                /* tn_optim_step reports it */
    if (m->beside && m->status != TN_OK && !m->refused) tni_comm_failed(ctx, m->status);
    return ctx->status;
}

static void tni_optim_on_node(tn_ctx *ctx, const struct tni_node *n)
{
    tn_optim *o = ctx->sender;
    tni_mail *m = &o->mail;
    if (!o->of.params) {
        tni_fail(ctx, TN_ERR_ARG, "optim: the optimiser's parameters were destroyed");
        ctx->on_node = NULL;
        return;
    }
    if (n && !m->on) tni_mail_open(o, true);
    if (m->known && m->last == m->reached) m->last = NULL;
    m->reached = n;
    if (n) tni_mail_send(o);
    else {
        if (m->on) tni_mail_finish(o);
        ctx->on_node = NULL;
    }
}

/* Shared moments: rows of the bucket are pieces of what each process updates. Each gives the updated values to all. */
TNI_FN tn_status tni_optim_publish(tn_optim *o)
{
    tn_ctx   *ctx = o->owned.ctx;
    tni_mail *m = &o->mail;
    const int size = tn_comm_size(ctx), rank = tn_comm_rank(ctx);
    tn_status s = TN_OK;
    for (tni_mail_choose(o, true); m->sent < m->length && s == TN_OK; m->sent += m->row) {
        const int64_t width = tni_bucket_width(m, m->sent);
        s = tni_bucket_move(o, rank, true, m->sent, width, rank * width, false, 1);
        if (s == TN_OK) s = tni_comm_run(ctx, TNI_ALL_GATHER, o->bucket->data, width * size, o->bucket->dtype, 0);
        for (int r = 0; r < size && s == TN_OK; r++)
            if (r != rank) s = tni_bucket_move(o, r, true, m->sent, width, r * width, true, 1);
    }
    return s;
}

/* The norm of all parts, and a fault that only the process of a part has found. */
static tn_status tni_optim_norm(tn_optim *o, tn_status s)
{
    tn_ctx   *ctx = o->owned.ctx;
    const int size = tn_comm_size(ctx);
    double    scalars[TNI_SCALARS], norm = 0;
    char      stored[8];
    if (s == TN_OK) s = tni_to_host(ctx, scalars, o->scalars->data, o->scalars->bytes);
    s = tni_optim_agree(o, TNI_MEET_STEP, s);
    if (s != TN_OK) return s;
    double *each = (double *)(void *)o->reports;        /* larger, and read */
    memset(each, 0, (size_t)size * sizeof *each);
    each[tn_comm_rank(ctx)] = tni_load(scalars, o->scalars->dtype, TNI_SIZE);
    s = tni_comm_numbers(ctx, TNI_ALL_GATHER, each, size, TN_F64);
    for (int r = 0; r < size; r++) norm = hypot(norm, each[r]);
    tni_store(stored, o->scalars->dtype, 0, norm);
    if (s != TN_OK) return s;
    return tni_to_device(ctx, (char *)o->scalars->data + TNI_SIZE * tni_dtype_size(o->scalars->dtype), stored,
                         tni_dtype_size(o->scalars->dtype));
}

/* Replaces the gradients by their mean over all processes, with shared moments only those of this process's part. */
TNI_FN tn_status tni_optim_mean(tn_optim *o)
{
    tni_mail_choose(o, false);
    if (o->mail.length == 0) return TN_OK;
    tni_mail_open(o, false);
    return tni_mail_finish(o);
}

/* Everything but the gradients that a step of many processes needs. */
TNI_FN tn_status tni_optim_ready(tn_optim *o)
{
    tn_status s = tni_optim_grow(o);
    if (s == TN_OK) s = tni_optim_places(o);
    if (s == TN_OK) tni_mail_choose(o, true);
    return s == TN_OK && tni_comm(o->owned.ctx) ? tni_bucket_grow(o) : s;
}

tn_status tn_optim_overlap(tn_optim *o)
{
    tn_ctx   *ctx = o ? o->owned.ctx : NULL;
    tn_status s;
    if (!o) return TN_ERR_ARG;
    if (!o->of.params) return tni_fail(ctx, TN_ERR_ARG, "optim: the optimiser's parameters were destroyed");
    if (ctx->status != TN_OK || !tni_comm(ctx)) return ctx->status;
    if ((s = tni_optim_ready(o)) != TN_OK) return s;
    if (o->mail.length > 0) {
        ctx->on_node = tni_optim_on_node;
        ctx->sender = o;
    }
    return TN_OK;
}

#endif /* TN_NO_TRAINING */
