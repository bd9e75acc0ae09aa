/* step.c - tn train: what a step trains on, its loss and gradients, and what is said when they explode */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the order of the data ------------------------------------------------------------------
   Each epoch cuts the tokens into windows of one context from a start of its own, and takes them in an order of its own. */

/* A permutation of 0..n-1 without a table: four Feistel rounds over the next power of four, again until the result lies
   inside. Black & Rogaway 2002 */
static int64_t permuted(int64_t i, int64_t n, uint64_t key)
{
    int      half = 1, r;
    uint64_t mask, x = (uint64_t)i;
    while ((int64_t)1 << (2 * half) < n) half++;
    mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (r = 0; r < 4; r++) {
            uint64_t next = left ^ (mix(key ^ mix(right * 4 + (uint64_t)r)) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

static int64_t window_start(const corpus *c, int64_t context, uint64_t seed, int64_t number)
{
    int64_t  windows = (c->train_count - 1) / context, epoch, slack;
    uint64_t key;
    if (windows > 1) windows--;                       /* room for the start to move */
    epoch = number / windows;
    key = mix(mix(seed) ^ (uint64_t)epoch);
    slack = c->train_count - windows * context;       /* the last window needs one token more, its target */
    return (int64_t)(mix(key) % (uint64_t)slack) + permuted(number % windows, windows, key) * context;
}

static void fill_batch(run *r, int64_t part, int32_t *ids, int32_t *targets)
{
    const int64_t B = r->s->batch, T = r->m.desc.context;
    int64_t       b;
    for (b = 0; b < B; b++) {
        const int32_t *from = r->data.train + window_start(&r->data, T, (uint64_t)r->s->seed,
                                                           (r->step * r->s->accumulate + part) * B + b);
        memcpy(ids + b * T, from, sizeof *ids * (size_t)T);
        memcpy(targets + b * T, from + 1, sizeof *ids * (size_t)T);
    }
}

/* ---- one step --------------------------------------------------------------------------------- */

/* The loss of the next batch. learn: gradients are left for the optimiser. */
double batch_loss(run *r, model *m, bool learn)
{
    const int64_t B = r->s->batch, T = m->desc.context, parts = r->s->accumulate;
    double        sum = 0;
    int64_t       k;
    for (k = 0; k < parts; k++) {
        tn_tensor *x, *y, *loss, *scaled;
        fill_batch(r, k, r->ids, r->targets);
        tn_ctx_reset(m->ctx);
        x = tn_tensor_2d(m->ctx, TN_I32, B, T);
        y = tn_tensor_2d(m->ctx, TN_I32, B, T);
        tn_write(x, TN_I32, r->ids, B * T);
        tn_write(y, TN_I32, r->targets, B * T);
        if (learn) tn_record(m->ctx);
        loss = tn_transformer_loss(m->ctx, &m->net, x, y);
        scaled = learn && parts > 1 ? tn_scale(m->ctx, loss, 1 / (double)parts) : loss;
        if (learn) tn_backward(m->ctx, scaled);
        sum += tn_item(loss) / (double)parts;
    }
    return sum;
}

/* The parameter whose gradient is not finite, else the one with the largest gradient for its size. */
static const char *worst_tensor(tn_params *params, double *size)
{
    const char *name = "?";
    int64_t     i, k;
    *size = -1;
    for (i = 0; i < tn_params_count(params); i++) {
        tn_param *p = tn_params_at(params, i);
        int64_t   n = tn_tensor_count(p->value);
        double   *g, sum = 0;
        if (!p->value->grad || n == 0) continue;
        g = (double *)room((size_t)n, sizeof *g);
        if (tn_read(p->value->grad, TN_F64, g, n) == TN_OK) for (k = 0; k < n; k++) sum += g[k] * g[k] / (double)n;
        free(g);
        sum = sqrt(sum);
        if (sum <= *size) continue;                   /* NaN is not, either */
        name = p->name;
        *size = sum;
        if (!isfinite(sum)) break;
    }
    return name;
}

/* A checkpoint is good if the step after it had a loss that was: the newest may be the one that exploded. */
void stop_and_advise(run *r)
{
    tn_optim_desc desc;
    int64_t      *steps, count = list_checkpoints(r->folder, &steps);
    char         *path;
    while (count > 0 && steps[count - 1] >= r->step) count--;
    if (!count) fail("stopped; no checkpoint is known to be good: begin again with a lower --lr or --clip");
    path = checkpoint_path(r->folder, steps[count - 1]);
    optimiser_of(r->s, &desc);
    fail("stopped; the last good checkpoint is %s\nA lower --lr or --clip may help: tn train --from %s --lr %g --out NEW",
         path, path, desc.lr / 2);
}

void stop_exploded(run *r, double loss)
{
    double      size;
    const char *name;
    char        error[512];
    snprintf(error, sizeof error, "%s", tn_ctx_error(r->m.ctx));
    tn_ctx_clear_error(r->m.ctx);
    name = worst_tensor(r->m.params, &size);
    clear_progress(&r->journal);
    if (*error && isfinite(loss)) warn("step %lld: %s", (long long)r->step + 1, error);
    else if (isfinite(size))
        warn("step %lld: the loss is %.4g; the largest gradient for its size is that of %s (RMS %.3g)",
             (long long)r->step + 1, loss, name, size);
    else warn("step %lld: the loss is %.4g; the gradient of %s is not finite", (long long)r->step + 1, loss, name);
    stop_and_advise(r);
}

double most_loss(const run *r)
{
    return r->s->max_loss > 0 ? r->s->max_loss : 2 * log((double)r->m.desc.vocab) + 5;
}
