/* score.c - the loss of a model on tokens that it does not train on

   A sequence is read in windows that overlap by half. Only the second half of each is scored (of the first window
   everything), so that every token has at least half a context before it, except at the beginning of the sequence. */
#include "tn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Passes on the logits of `scored` tokens of each window. first[k]: the number of window k's first scored token. */
static void pass_logits(const scoring *s, tn_tensor *logits, const int64_t *first, int64_t count, int64_t scored)
{
    const int64_t vocab = s->m->desc.vocab;
    float        *v = (float *)allocate((size_t)(count * scored * vocab), sizeof *v);
    tn_read(logits, TN_F32, v, count * scored * vocab);
    check_ctx(s->m->ctx, "logits");
    for (int64_t k = 0; k < count; k++) s->logits(s->user, v + k * scored * vocab, first[k], scored);
    free(v);
}

/* The number of logits of a forward pass, which the ids of tn_gather must be able to number. */
static int64_t index_limit(const scoring *s, int64_t logits)
{
    if (logits > INT32_MAX)
        fail("%s: a window has %lld logits, expected at most %d: use a smaller --context", s->name, (long long)logits,
             (int)INT32_MAX);
    return logits;
}

/* The -log p of each scored token. */
static void pass_nats(const scoring *s, tn_tensor *logits, const int32_t *targets, const int64_t *first, int64_t count,
                      int64_t scored)
{
    tn_ctx       *ctx = s->m->ctx;
    const int64_t vocab = s->m->desc.vocab, n = count * scored, all = index_limit(s, n * vocab);
    int32_t      *index = (int32_t *)allocate((size_t)n, sizeof *index);
    double       *v = (double *)allocate((size_t)n, sizeof *v);
    tn_tensor    *ids = tn_tensor_1d(ctx, TN_I32, n), *p = tn_log_softmax(ctx, logits);
    for (int64_t i = 0; i < n; i++) index[i] = (int32_t)(i * vocab + targets[i]);
    tn_write(ids, TN_I32, index, n);
    p = p ? tn_gather(ctx, tn_reshape(p, 1, &all), 0, ids) : NULL;
    tn_read(p, TN_F64, v, n);
    check_ctx(ctx, "the loss of each token");
    for (int64_t k = 0; k < count; k++) for (int64_t i = 0; i < scored; i++) s->nats[first[k] + i] = -v[k * scored + i];
    free(index);
    free(v);
}

/* The sum of -log p over the last `scored` tokens of `count` windows of `length` tokens; window k begins at start[k]. */
static double window_nats(const scoring *s, const int64_t *start, int64_t count, int64_t length, int64_t scored)
{
    tn_ctx  *ctx = s->m->ctx;
    int32_t *ids = (int32_t *)allocate((size_t)(count * length), sizeof *ids);
    int32_t *targets = (int32_t *)allocate((size_t)(count * scored), sizeof *targets);
    int64_t *first = (int64_t *)allocate((size_t)count, sizeof *first);
    for (int64_t b = 0; b < count; b++) {
        const int32_t *from = s->ids + start[b];
        memcpy(ids + b * length, from, sizeof *ids * (size_t)length);
        memcpy(targets + b * scored, from + 1 + length - scored, sizeof *ids * (size_t)scored);
        first[b] = start[b] + length - scored;
    }
    tn_ctx_reset(ctx);
    tn_tensor *x = tn_tensor_2d(ctx, TN_I32, count, length);
    tn_tensor *y = tn_tensor_2d(ctx, TN_I32, count, scored);
    tn_write(x, TN_I32, ids, count * length);
    tn_write(y, TN_I32, targets, count * scored);
    tn_tensor *logits = tn_transformer_forward(ctx, &s->m->net, x);
    if (logits && scored < length) logits = tn_copy(ctx, tn_slice(logits, 1, length - scored, length));
    double nats = tn_item(tn_cross_entropy(ctx, logits, y)) * (double)(count * scored);
    check_ctx(ctx, s->name);
    if (s->nats) pass_nats(s, logits, targets, first, count, scored);
    if (s->logits) pass_logits(s, logits, first, count, scored);
    free(ids);
    free(targets);
    free(first);
    return nats;
}

typedef struct windows {
    int64_t tokens;                     /* predicted tokens                           */
    int64_t length, half, count;        /* window k begins at k half, 0 <= k < count  */
    int64_t group;                      /* windows per forward pass                   */
} windows;

static windows windows_of(const scoring *s)
{
    const int64_t context = s->context ? s->context : s->m->desc.context;
    windows       w;
    w.tokens = s->count - 1;
    w.length = context < w.tokens ? context : w.tokens;
    w.half = w.length > 1 ? w.length / 2 : 1;
    w.count = (w.tokens - w.length) / w.half + 1;
    w.group = ((int64_t)1 << 24) / (w.length * s->m->desc.vocab);
    if (w.group > s->batch) w.group = s->batch;
    if (w.group < 1) w.group = 1;
    return w;
}

/* Processes that train together evaluate groups of windows in turn. */
static bool is_turn(const scoring *s, int64_t turn) { return turn % tn_comm_size(s->m->ctx) == tn_comm_rank(s->m->ctx); }

static double sum_of_all(const scoring *s, double nats)
{
    tn_comm_sum(s->m->ctx, &nats, 1);
    check_ctx(s->m->ctx, s->name);
    return nats;
}

double whole_loss(const scoring *s)
{
    const windows w = windows_of(s);
    int64_t      *start = (int64_t *)allocate((size_t)w.group, sizeof *start), zero = 0, end = w.tokens - w.length, k, n;
    int64_t       turn = 0;
    double        nats = is_turn(s, turn++) ? window_nats(s, &zero, 1, w.length, w.length) : 0;
    bool          goes_on = true;
    for (k = 1; k < w.count && goes_on; k += n) {
        for (n = 0; n < w.group && k + n < w.count; n++) start[n] = (k + n) * w.half;
        if (!is_turn(s, turn++)) continue;
        nats += window_nats(s, start, n, w.length, w.half);
        goes_on = !s->proceed || s->proceed(s->user, k + n, w.count);
    }
    k = end - (w.count - 1) * w.half;                 /* tokens after the last window, fewer than a half */
    if (k > 0 && goes_on && is_turn(s, turn)) nats += window_nats(s, &end, 1, w.length, k);
    free(start);
    return sum_of_all(s, goes_on ? nats : NAN) / (double)w.tokens;
}

bool samples_all(const scoring *s, int64_t tokens)
{
    const windows w = windows_of(s);
    return tokens / w.half >= w.count;
}

double sampled_loss(const scoring *s, int64_t tokens)
{
    const windows w = windows_of(s);
    int64_t       m = tokens / w.half, n, turn = 0;
    double        nats = 0;
    if (m < 1) m = 1;
    if (m >= w.count) return whole_loss(s);
    int64_t *start = (int64_t *)allocate((size_t)w.group, sizeof *start);
    for (int64_t i = 0; i < m; i += n) {
        for (n = 0; n < w.group && i + n < m; n++) start[n] = w.half * (((i + n) * w.count + w.count / 2) / m);
        if (is_turn(s, turn++)) nats += window_nats(s, start, n, w.length, w.half);
    }
    free(start);
    return sum_of_all(s, nats) / (double)(m * w.half);
}

int64_t loss_by_position(const scoring *s, double *sum, int64_t *tokens)
{
    const windows w = windows_of(s);
    scoring       one = *s;
    int64_t      *start = (int64_t *)allocate((size_t)w.group, sizeof *start), whole = w.tokens / w.length, n;
    one.nats = (double *)allocate((size_t)w.tokens, sizeof *one.nats);
    one.logits = NULL;
    for (int64_t k = 0; k < whole; k += n) {
        for (n = 0; n < w.group && k + n < whole; n++) start[n] = (k + n) * w.length;
        window_nats(&one, start, n, w.length, w.length);
    }
    for (int64_t i = 0; i < w.length; i++) sum[i] = 0, tokens[i] = whole;
    for (int64_t i = 0; i < whole * w.length; i++) sum[i % w.length] += one.nats[i];
    free(one.nats);
    free(start);
    return w.length;
}

double nats_per_byte(const corpus *c, double nats)
{
    if (!(c->held_bytes > 0)) return NAN;
    return (nats * (double)(c->held_count - 1) + c->held_unknown * log(256.0)) / c->held_bytes;
}

const char *per_byte_text(const corpus *c, double nats, char *text, size_t bytes)
{
    double v = nats_per_byte(c, nats);
    if (isnan(v)) *text = 0;
    else snprintf(text, bytes, ", %.4f nats per byte", v);
    return text;
}
