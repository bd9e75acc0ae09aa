/* heldout.c - tn train: the loss on held-out data, and samples */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The sum of -log p over the last `scored` tokens of `count` windows of `length` tokens; window k begins at start[k]. */
static double window_nats(run *r, const int64_t *start, int64_t count, int64_t length, int64_t scored)
{
    tn_ctx    *ctx = r->m.ctx;
    int32_t   *ids = (int32_t *)allocate((size_t)(count * length), sizeof *ids);
    int32_t   *targets = (int32_t *)allocate((size_t)(count * scored), sizeof *targets);
    tn_tensor *x, *y, *logits;
    double     nats;
    int64_t    b;
    for (b = 0; b < count; b++) {
        const int32_t *from = r->data.held + start[b];
        memcpy(ids + b * length, from, sizeof *ids * (size_t)length);
        memcpy(targets + b * scored, from + 1 + length - scored, sizeof *ids * (size_t)scored);
    }
    tn_ctx_reset(ctx);
    x = tn_tensor_2d(ctx, TN_I32, count, length);
    y = tn_tensor_2d(ctx, TN_I32, count, scored);
    tn_write(x, TN_I32, ids, count * length);
    tn_write(y, TN_I32, targets, count * scored);
    logits = tn_transformer_forward(ctx, &r->m.net, x);
    if (logits && scored < length) logits = tn_copy(ctx, tn_slice(logits, 1, length - scored, length));
    nats = tn_item(tn_cross_entropy(ctx, logits, y)) * (double)(count * scored);
    check_ctx(ctx, "the held-out part");
    free(ids);
    free(targets);
    return nats;
}

/* The held-out part in windows that overlap by half. Only the second half of each is scored (of the first window
   everything), so that every token has at least half a context before it, except at the beginning of the text. */
typedef struct windows {
    int64_t tokens;                     /* predicted tokens of the held-out part      */
    int64_t length, half, count;        /* window k begins at k half, 0 <= k < count  */
    int64_t group;                      /* windows per forward pass                   */
} windows;

static windows held_out_windows(const run *r)
{
    windows w;
    w.tokens = r->data.held_count - 1;
    w.length = r->m.desc.context < w.tokens ? r->m.desc.context : w.tokens;
    w.half = w.length > 1 ? w.length / 2 : 1;
    w.count = (w.tokens - w.length) / w.half + 1;
    w.group = ((int64_t)1 << 24) / (w.length * r->m.desc.vocab);
    if (w.group > r->s->batch) w.group = r->s->batch;
    if (w.group < 1) w.group = 1;
    return w;
}

/* nats per token over all of the held-out part */
static double whole_loss(run *r)
{
    const windows w = held_out_windows(r);
    int64_t      *start = (int64_t *)allocate((size_t)w.group, sizeof *start), zero = 0, end = w.tokens - w.length, k, n;
    double        nats = window_nats(r, &zero, 1, w.length, w.length);
    for (k = 1; k < w.count; k += n) {
        for (n = 0; n < w.group && k + n < w.count; n++) start[n] = (k + n) * w.half;
        nats += window_nats(r, start, n, w.length, w.half);
    }
    k = end - (w.count - 1) * w.half;                 /* tokens after the last window, fewer than a half */
    if (k > 0) nats += window_nats(r, &end, 1, w.length, k);
    free(start);
    return nats / (double)w.tokens;
}

/* nats per token over about --val-tokens tokens. They are those of m windows that are spread evenly over the held-out part:
   number i is window floor((2i + 1) count / (2m)), the same ones at each step. */
static double sampled_loss(run *r)
{
    const windows w = held_out_windows(r);
    int64_t       m = r->s->val_tokens / w.half, *start, i, n;
    double        nats = 0;
    if (m < 1) m = 1;
    if (m >= w.count) return whole_loss(r);
    start = (int64_t *)allocate((size_t)w.group, sizeof *start);
    for (i = 0; i < m; i += n) {
        for (n = 0; n < w.group && i + n < m; n++) start[n] = w.half * (((i + n) * w.count + w.count / 2) / m);
        nats += window_nats(r, start, n, w.length, w.half);
    }
    free(start);
    return nats / (double)(m * w.half);
}

/* nats per token to nats per byte. Every byte that an [UNK] replaces costs ln 256. */
static double per_byte(const corpus *c, double nats)
{
    if (!(c->held_bytes > 0)) return NAN;
    return (nats * (double)(c->held_count - 1) + c->held_unknown * log(256.0)) / c->held_bytes;
}

const char *per_byte_text(const corpus *c, double nats, char *text, size_t bytes)
{
    double v = per_byte(c, nats);
    if (isnan(v)) *text = 0;
    else snprintf(text, bytes, ", %.4f nats per byte", v);
    return text;
}

static void report_held_out(run *r, double nats, bool all)
{
    double bytes = per_byte(&r->data, nats);
    char   text[64];
    if (!isfinite(nats)) {
        clear_progress(&r->journal);
        warn("after step %lld the held-out loss is %.4g, expected a finite number", (long long)r->step, nats);
        stop_and_advise(r);
    }
    journal_held(&r->journal, r->step, nats, all);
    if (isnan(bytes)) *text = 0;
    else snprintf(text, sizeof text, ",\"held_byte\":%.9g", bytes);
    journal_line(&r->journal, "\"step\":%lld,\"held\":%.9g%s,\"all\":%s", (long long)r->step, nats, text,
                 all ? "true" : "false");
    journal_print(&r->journal, "step %lld: held out %.4f nats per token%s%s", (long long)r->step, nats,
                  per_byte_text(&r->data, nats, text, sizeof text), all ? " (all of it)" : "");
    if (isfinite(r->journal.trigram))
        journal_print(&r->journal, "; trigram %.4f, 5-gram %.4f", r->journal.trigram, r->journal.fivegram);
    journal_print(&r->journal, "\n");
}

void evaluate_held_out(run *r, bool last)
{
    if (r->s->val_every) report_held_out(r, sampled_loss(r), false);
    if (last) report_held_out(r, whole_loss(r), true);
}

void write_sample(run *r)
{
    const tn_tokenizer *t = r->m.tokenizer;
    const uint64_t seed = splitmix64((uint64_t)r->s->seed) ^ (uint64_t)r->step;
    sampling  s = { .temperature = 0.8, .top_p = 0.95, .length = r->s->sample_length, .seed = seed };
    int64_t   n;
    int32_t  *ids;
    size_t    bytes;
    char     *text;
    buffer    quoted = {0};
    if (!t) return;
    n = prompt_tokens(&r->m, r->s->prompt, s.seed, &ids);
    if (n > 0) {
        s.length = r->s->sample_length > n ? r->s->sample_length : n + 1;
        if (s.length > r->m.desc.context) s.length = r->m.desc.context;
        ids = (int32_t *)resize(ids, (size_t)(s.length > n ? s.length : n), sizeof *ids);
        if (n < s.length) n = generate_tokens(&r->m, ids, n, &s);
        text = decode_tokens(t, ids, n, &bytes);
        json_quote(&quoted, text, bytes);
        journal_line(&r->journal, "\"step\":%lld,\"sample\":%s", (long long)r->step, quoted.data);
        hide_controls(text, bytes);
        journal_print(&r->journal, "  %.*s\n", (int)bytes, text);
        free(text);
        free(quoted.data);
    }
    free(ids);
}
