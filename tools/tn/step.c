/* step.c - tn train: one training step, and what happens when it fails */
#include "train.h"
#include "teacher.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The texts of this process in the next step, after those that were launched. */
static void fill_batch(run *r, int64_t part, int32_t *ids, int32_t *targets)
{
    const int64_t first = tn_comm_rank(r->m.ctx) * r->texts, T = r->m.desc.context;
    for (int64_t b = 0; b < r->texts; b++) {
        const int64_t from = window_start(r->data.train_count, T, (uint64_t)r->s->seed,
                                          (r->step * r->s->accumulate + part) * r->s->batch + first + b);
        copy_tokens(&r->data.train, from, T, ids + b * T);
        copy_tokens(&r->data.train, from + 1, T, targets + b * T);
    }
}

/* ---- one step ---------------------------------------------------------------------------------
   On the host the loss is checked before the update. A device gets the next step while it computes this one: losses and
   norms stay there, and are read for several steps at once. An error in between does no harm: after a gradient that is not
   finite, every update is skipped until the host has read the reason. An error of the device itself ends the run. */

/* After the losses of the parts of a step. */
enum { NORM, SKIPPED, EXTRA_NUMBERS };

/* Fails unless each token of the run is the same one of its teacher. */
static void check_teacher_tokens(const run *r, const tn_tokenizer *its)
{
    const tn_tokenizer *mine = r->m.tokenizer;
    if (!mine) return;                                          /* token shards: ids alone */
    if (!its) fail("--teacher: %s has no tokenizer, expected a tokenizer.json beside its weights", r->s->teacher);
    check_same_tokens(mine, "this run", its, r->s->teacher);
    if (tn_tokenizer_count(its) < tn_tokenizer_count(mine))
        fail("--teacher: the tokenizer of %s has %lld tokens, expected %lld, as in this run", r->s->teacher,
             (long long)tn_tokenizer_count(its), (long long)tn_tokenizer_count(mine));
}

/* The model whose probabilities are learnt. Its weights are frozen, so that it is not recorded. */
static void open_teacher(const run *r, feed *f)
{
    const tn_transformer_desc *mine = &f->m->desc, *its;
    const int64_t shape[3] = {r->texts, mine->context, mine->vocab};
    f->teacher = (model *)allocate(1, sizeof *f->teacher);
    f->weight = r->s->teacher_weight;
    f->temperature = r->s->temperature;
    open_model_in(f->m->ctx, f->teacher, r->s->teacher, NULL, NULL);
    its = &f->teacher->desc;
    check_teacher_tokens(r, f->teacher->tokenizer);
    if (its->vocab < mine->vocab)
        fail("--teacher: %s has a vocabulary of %lld tokens, expected %lld", r->s->teacher, (long long)its->vocab,
             (long long)mine->vocab);
    if (its->context < mine->context)
        fail("--teacher: %s has a context of %lld tokens, expected at least --context, which is %lld", r->s->teacher,
             (long long)its->context, (long long)mine->context);
    f->said = tn_tensor_create(f->m->ctx, TN_REAL, 3, shape);
    check_ctx(f->m->ctx, "memory for the teacher's probabilities");
}

void open_feed(run *r, model *m, tn_optim *optim, feed *f)
{
    const int64_t batch[2] = {r->texts, m->desc.context}, parts = r->s->accumulate;
    const int64_t now_shape[2] = {1, parts + EXTRA_NUMBERS}, kept_shape[2] = {MAX_PENDING, parts + EXTRA_NUMBERS};
    memset(f, 0, sizeof *f);
    f->m = m;
    f->optim = optim;
    f->parts = parts;
    f->x = (tn_tensor **)allocate((size_t)parts, sizeof *f->x);
    f->y = (tn_tensor **)allocate((size_t)parts, sizeof *f->y);
    f->numbers = (double *)allocate((size_t)(MAX_PENDING * (parts + EXTRA_NUMBERS)), sizeof *f->numbers);
    for (int64_t k = 0; k < parts; k++) {
        f->x[k] = tn_tensor_create(m->ctx, TN_I32, 2, batch);
        f->y[k] = tn_tensor_create(m->ctx, TN_I32, 2, batch);
    }
    if (r->s->teacher) open_teacher(r, f);
    f->current = tn_tensor_create(m->ctx, TN_REAL, 2, now_shape);
    f->pending = tn_tensor_create(m->ctx, TN_REAL, 2, kept_shape);
    check_ctx(m->ctx, "memory for the texts of a step");
}

void close_feed(feed *f)
{
    free(f->x);
    free(f->y);
    free(f->teacher);
    free(f->numbers);
}

/* Of a step that is broken off only the random numbers remain, which count its parts: with them a step is finished, unless
   what would be saved is saved already. */
static bool may_break_off(const run *r)
{
    return r->saved_step == r->step || (r->s->dropout == 0 && r->s->embed_noise == 0);
}

static void upload_batch(run *r, feed *f, bool breaks)
{
    const int64_t n = r->texts * f->m->desc.context;
    for (int64_t k = 0; k < f->parts && !(breaks && stop_signal()); k++) {
        fill_batch(r, k, r->ids, r->targets);
        tn_write(f->x[k], TN_I32, r->ids, n);
        tn_write(f->y[k], TN_I32, r->targets, n);
    }
}

/* Stores the only element of t as number k of the step. */
static void store_number(feed *f, int64_t k, tn_tensor *t)
{
    if (t) tn_assign(tn_slice(f->current, 1, k, k + 1), tn_reshape_2d(t, 1, 1));
}

/* What the teacher says about a part, in f->said. */
static void ask_teacher(feed *f, int64_t k)
{
    tn_ctx       *ctx = f->m->ctx;
    const tn_mark mark = tn_arena_mark(ctx);
    tn_tensor    *z = tn_transformer_forward(ctx, &f->teacher->net, f->x[k]);
    tn_assign(f->said, teacher_probabilities(ctx, tn_slice(z, 2, 0, f->m->desc.vocab), f->temperature));
    tn_arena_release(ctx, mark);
}

/* The loss of part k, in nats per token of the text; *learnt: what is minimised, which a teacher makes another one. */
static tn_tensor *part_loss(feed *f, int64_t k, bool learn, tn_tensor **learnt)
{
    tn_ctx *ctx = f->m->ctx;
    if (!f->teacher || !learn) return *learnt = tn_transformer_loss(ctx, &f->m->net, f->x[k], f->y[k]);
    tn_tensor *z = tn_transformer_forward(ctx, &f->m->net, f->x[k]), *loss = tn_cross_entropy(ctx, z, f->y[k]);
    *learnt = tn_add(ctx, tn_scale(ctx, loss, 1 - f->weight),
                     tn_scale(ctx, distillation_loss(ctx, z, f->said, f->temperature), f->weight));
    return loss;
}

/* Computes the losses of all parts, and with `learn` their gradients. breaks: a signal to any of the processes ends it between
   two parts, and false is returned. */
static bool compute_parts(feed *f, bool learn, bool breaks)
{
    tn_ctx *ctx = f->m->ctx;
    for (int64_t k = 0; k < f->parts; k++) {
        if (breaks && any_of_all(ctx, stop_signal() != 0)) return false;
        tn_ctx_reset(ctx);
        if (f->teacher && learn) ask_teacher(f, k);
        if (learn) tn_record(ctx);
        tn_tensor *learnt, *loss = part_loss(f, k, learn, &learnt);
        if (learn && k + 1 == f->parts) tn_optim_overlap(f->optim);
        if (learn) tn_backward(ctx, f->parts > 1 ? tn_scale(ctx, learnt, 1 / (double)f->parts) : learnt);
        store_number(f, k, loss);
    }
    return true;
}

static double mean_loss(const double *losses, int64_t parts)
{
    double sum = 0;
    for (int64_t k = 0; k < parts; k++) sum += losses[k] / (double)parts;
    return sum;
}

double batch_loss(run *r, feed *f, bool learn)
{
    enum { LOSS = STOP_SIGNALS, SAVES, COUNT };
    const bool breaks = learn && f->parts > 1 && may_break_off(r);
    double     shared[COUNT];
    upload_batch(r, f, breaks);
    r->broken_off = !compute_parts(f, learn, breaks);
    shared[LOSS] = NAN;
    if (tn_read(f->current, TN_F64, f->numbers, f->parts + EXTRA_NUMBERS) == TN_OK) shared[LOSS] = mean_loss(f->numbers, f->parts);
    for (int i = 0; i < STOP_SIGNALS; i++) shared[i] = stop_signal() == stop_signals[i];
    shared[SAVES] = save_signal(true);
    if (tn_comm_sum(r->m.ctx, shared, COUNT) != TN_OK) return NAN;
    for (int i = STOP_SIGNALS; i-- > 0; ) if (shared[i] != 0) r->stops = stop_signals[i];
    r->saves = r->saves || shared[SAVES] != 0;
    return shared[LOSS] / tn_comm_size(r->m.ctx);
}

void compute_step(feed *f)
{
    compute_parts(f, true, false);
    tn_optim_step(f->optim);
    store_number(f, f->parts + NORM, tn_optim_grad_norm_view(f->optim));
    store_number(f, f->parts + SKIPPED, tn_optim_skipped_view(f->optim));
}

/* After two steps all memory is allocated and gradients are as in every later step; then a step can be captured. */
static void capture_step(feed *f)
{
    tn_ctx *ctx = f->m->ctx;
    if (f->steps_run != 2 || !tn_graph_supported(ctx) || tn_ctx_status(ctx) != TN_OK) return;
    if (tn_graph_begin(ctx) == TN_OK) {
        compute_step(f);
        if (tn_graph_end(ctx, &f->graph) == TN_OK) return;
    }
    warn("a step cannot be captured as a graph: %s; its kernels are launched one by one", tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
}

double current_rate(const run *r) { return r->s->lr == 0 ? 0 : tn_optim_lr(r->optim); }

void launch_step(run *r, feed *f)
{
    if (!f->waiting) f->since = now();
    f->lr[f->waiting] = current_rate(r);
    upload_batch(r, f, false);
    capture_step(f);
    if (f->graph) tn_graph_run(f->graph);
    else compute_step(f);
    tn_assign(tn_slice(f->pending, 0, f->waiting, f->waiting + 1), f->current);
    f->waiting++;
    f->steps_run++;
}

void forget_steps(feed *f) { f->waiting = 0; }

void log_step(run *r, double loss, double lr, double norm, double seconds, int64_t steps)
{
    const int64_t tokens = r->s->accumulate * r->s->batch * r->m.desc.context;
    const double  rate = (double)(tokens * steps) / seconds;
    if (r->saved_step == r->step) remove_old_checkpoints(r);
    r->rate = r->rate > 0 ? r->rate + 0.1 * (rate - r->rate) : rate;
    r->step++;
    journal_step(&r->journal, r->step, loss, lr, norm, r->step * tokens, r->rate);
}

fault take_error(tn_ctx *ctx)
{
    fault f;
    f.status = tn_ctx_status(ctx);
    snprintf(f.text, sizeof f.text, "%s", tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
    return f;
}

/* An error that a kernel finds in its data: other tensors are still valid. */
static bool is_data_fault(const fault *f) { return f->status == TN_ERR_NONFINITE || f->status == TN_ERR_DATA; }

/* Out of memory, or an error of the device: a lower learning rate would not help. Pending steps were not checked and are not
   logged. */
static void stop_on_fault(run *r, const fault *f)
{
    const int64_t waiting = r->feed.waiting, last = waiting ? r->step : r->step + 1;
    clear_progress(&r->journal);
    if (waiting > 1) warn("in one of steps %lld to %lld: %s", (long long)(last - waiting + 1), (long long)last, f->text);
    else warn("step %lld: %s", (long long)last, f->text);
    fail("stopped; the last checkpoint is %s", r->saved);
}

void finish_steps(run *r)
{
    feed         *f = &r->feed;
    const int64_t width = f->parts + EXTRA_NUMBERS, steps = f->waiting;
    if (!steps) return;
    fault found = take_error(r->m.ctx);
    if (found.status != TN_OK) stop_on_fault(r, &found);           /* of a call: pending numbers may be of any step */
    if (tn_read(f->pending, TN_F64, f->numbers, MAX_PENDING * width) != TN_OK) {      /* of the data of a step: which one? */
        found = take_error(r->m.ctx);
        if (!is_data_fault(&found) || tn_read(f->pending, TN_F64, f->numbers, MAX_PENDING * width) != TN_OK)
            stop_on_fault(r, &found);
    }
    double seconds = now() - f->since;
    forget_steps(f);
    r->step -= steps;
    for (int64_t i = 0; i < steps; i++) {
        const double *row = f->numbers + i * width, loss = mean_loss(row, f->parts);
        if (!(loss <= loss_limit(r)) || row[f->parts + SKIPPED] != 0 || (found.status != TN_OK && i + 1 == steps))
            { stop_diverged(r, loss, &found); return; }
        log_step(r, loss, f->lr[i], row[f->parts + NORM], seconds, steps);
    }
}

/* The parameter whose gradient is not finite, otherwise the one whose gradient has the largest RMS. */
static const char *largest_gradient(tn_params *params, double *size)
{
    const char *name = "?";
    *size = -1;
    for (int64_t i = 0; i < tn_params_count(params); i++) {
        tn_param *p = tn_params_at(params, i);
        int64_t   n = tn_tensor_count(p->value);
        double    sum = 0;
        if (!p->value->grad || n == 0) continue;
        double *g = (double *)allocate((size_t)n, sizeof *g);
        if (tn_read(p->value->grad, TN_F64, g, n) == TN_OK) for (int64_t k = 0; k < n; k++) sum += g[k] * g[k] / (double)n;
        free(g);
        sum = sqrt(sum);
        if (sum <= *size) continue;                   /* false for a NaN, which is found */
        name = p->name;
        *size = sum;
        if (!isfinite(sum)) break;
    }
    return name;
}

/* A checkpoint is good if the step after it had a finite loss within the limit: the newest one may have diverged. */
void stop_and_advise(run *r)
{
    r->diverged = true;
    if (r->journal.silent) return;
    tn_optim_desc desc;
    int64_t      *steps, count = list_checkpoints(r->folder, &steps);
    while (count > 0 && steps[count - 1] >= r->step) count--;
    if (!count) fail("stopped; no checkpoint is known to be good. Start again with a lower --lr or --clip");
    char *path = checkpoint_path(r->folder, steps[count - 1]);
    set_optim_desc(r->s, r->m.desc.no_norm, &desc);
    fail("stopped; the last good checkpoint is %s\nA lower --lr or --clip may help: tn train --from %s --lr %g --out NEW",
         path, path, desc.lr / 2);
}

void stop_diverged(run *r, double loss, const fault *found)
{
    double size;
    if (found->status != TN_OK && !is_data_fault(found)) stop_on_fault(r, found);
    const char *name = largest_gradient(r->m.params, &size);
    clear_progress(&r->journal);
    if (found->status != TN_OK && isfinite(loss)) warn("step %lld: %s", (long long)r->step + 1, found->text);
    else if (r->device)                               /* where its gradient was overwritten */
        warn("step %lld: the loss is %.4g", (long long)r->step + 1, loss);
    else if (isfinite(size))
        warn("step %lld: the loss is %.4g; the gradient with the largest RMS is that of %s (%.3g)",
             (long long)r->step + 1, loss, name, size);
    else warn("step %lld: the loss is %.4g; the gradient of %s is not finite", (long long)r->step + 1, loss, name);
    stop_and_advise(r);
}

double loss_limit(const run *r)
{
    return r->s->max_loss > 0 ? r->s->max_loss : 2 * log((double)r->m.desc.vocab) + 5;
}
