/* train.c - tn train: from text to a model, in a folder of its own

   The order of the data is a function of the seed and the step alone, and a checkpoint holds all else that a later step
   depends on: so a run that was killed and resumed has the bits of one that was not. Whatever happens in a step happens in
   one order: train, log, look at the held-out part, write a sample, save. */
#include "train.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct run {
    const settings *s;
    const char *folder;
    model       m;
    tn_optim   *optim;
    corpus      data;
    journal     journal;
    buffer      config;             /* as config.txt has it                       */
    char       *config_json;
    char       *saved;              /* the newest checkpoint                      */
    int64_t     saved_step;
    int64_t     step, steps;
    double      flops;              /* of training, a token                       */
    double      peak;               /* floating-point operations a second, of a matrix product */
    double      rate;               /* tokens a second, of late                   */
    int32_t    *ids, *targets;      /* [batch,context]                            */
} run;

/* ---- signals: the step is finished, then all is saved. A second one ends at once. ---- */

static volatile sig_atomic_t stopped_by;

static void stop_later(int number)
{
    static const char words[] = "\ntn: stopping; a second time stops at once\n";
    int before = errno;
    if (write(STDERR_FILENO, words, sizeof words - 1) < 0) errno = 0;      /* no one reads it: stopping all the same */
    errno = before;
    stopped_by = number;
}

/* Between the parts of a start, which may take minutes. */
static void end_if_stopped(void)
{
    if (!stopped_by) return;
    warn("stopped before the first step: nothing was written");
    exit(128 + (int)stopped_by);
}

static void catch_signals(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = stop_later;
    a.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    a.sa_handler = SIG_IGN;                           /* a full disk or limit is an error of write, which is spoken of */
    a.sa_flags = 0;
    sigaction(SIGXFSZ, &a, NULL);
    sigaction(SIGPIPE, &a, NULL);
}

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
static double batch_loss(run *r, model *m, bool learn)
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
static void stop_and_advise(run *r)
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

static void stop_exploded(run *r, double loss)
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

static double most_loss(const run *r)
{
    return r->s->max_loss > 0 ? r->s->max_loss : 2 * log((double)r->m.desc.vocab) + 5;
}

/* ---- the held-out part --------------------------------------------------------------------------- */

/* The sum of -log p over the last `scored` of each window; windows begin every `stride` tokens from `first`. */
static double window_nats(run *r, int64_t first, int64_t stride, int64_t count, int64_t length, int64_t scored)
{
    tn_ctx    *ctx = r->m.ctx;
    int32_t   *ids = (int32_t *)room((size_t)(count * length), sizeof *ids);
    int32_t   *targets = (int32_t *)room((size_t)(count * scored), sizeof *targets);
    tn_tensor *x, *y, *logits;
    double     nats;
    int64_t    b;
    for (b = 0; b < count; b++) {
        const int32_t *from = r->data.held + first + b * stride;
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
    check(ctx, "the held-out part");
    free(ids);
    free(targets);
    return nats;
}

/* nats a token over the first `most` predicted tokens of the held-out part. Windows overlap by half, and of each the second
   half counts (of the first one all): so every token has half a context before it, but for the first ones of the text. */
static double held_out_loss(run *r, int64_t most)
{
    const int64_t n = r->data.held_count - 1 < most ? r->data.held_count - 1 : most;
    const int64_t T = r->m.desc.context < n ? r->m.desc.context : n;
    const int64_t half = T > 1 ? T / 2 : 1;
    int64_t       at = T, group = ((int64_t)1 << 24) / (T * r->m.desc.vocab);
    double        nats = window_nats(r, 0, 1, 1, T, T);
    if (group > r->s->batch) group = r->s->batch;
    if (group < 1) group = 1;
    while (n - at >= half) {
        int64_t count = (n - at) / half < group ? (n - at) / half : group;
        nats += window_nats(r, at + half - T, half, count, T, half);
        at += count * half;
    }
    if (at < n) nats += window_nats(r, n - T, 1, 1, T, n - at);
    return nats / (double)n;
}

/* nats a token to nats a byte: [UNK] hides bytes, each of which is charged ln 256 besides. */
static double per_byte(const corpus *c, double nats)
{
    if (!(c->held_bytes > 0)) return NAN;
    return (nats * (double)(c->held_count - 1) + c->held_unknown * log(256.0)) / c->held_bytes;
}

static const char *bytes_text(const corpus *c, double nats, char *text, size_t room_for)
{
    double v = per_byte(c, nats);
    if (isnan(v)) *text = 0;
    else snprintf(text, room_for, ", %.4f nats a byte", v);
    return text;
}

static void look_at_held_out(run *r, bool all)
{
    double nats = held_out_loss(r, all ? INT64_MAX : r->s->val_tokens), bytes = per_byte(&r->data, nats);
    char   text[64];
    if (!isfinite(nats)) {
        clear_progress(&r->journal);
        warn("after step %lld the held-out loss is %.4g", (long long)r->step, nats);
        stop_and_advise(r);
    }
    journal_held(&r->journal, r->step, nats);
    if (isnan(bytes)) *text = 0;
    else snprintf(text, sizeof text, ",\"held_byte\":%.9g", bytes);
    journal_line(&r->journal, "\"step\":%lld,\"held\":%.9g%s,\"all\":%s", (long long)r->step, nats, text,
                 all ? "true" : "false");
    say(&r->journal, "step %lld: held out %.4f nats a token%s%s", (long long)r->step, nats,
        bytes_text(&r->data, nats, text, sizeof text), all ? " (all of it)" : "");
    if (isfinite(r->journal.trigram))
        say(&r->journal, "; trigram %.4f, 5-gram %.4f", r->journal.trigram, r->journal.fivegram);
    say(&r->journal, "\n");
}

static void write_sample(run *r)
{
    const tn_tokenizer *t = r->m.tokenizer;
    sampling  s = {0.8, 0.95, 0, r->s->sample_length, mix((uint64_t)r->s->seed) ^ (uint64_t)r->step, false, NULL, NULL};
    int64_t   n;
    int32_t  *ids;
    size_t    bytes, k;
    char     *text;
    buffer    quoted = {0};
    if (!t) return;
    n = first_tokens(&r->m, r->s->prompt, s.seed, &ids);
    if (n > 0) {
        s.length = r->s->sample_length > n ? r->s->sample_length : n + 1;
        if (s.length > r->m.desc.context) s.length = r->m.desc.context;
        ids = (int32_t *)need(realloc(ids, sizeof *ids * (size_t)(s.length > n ? s.length : n)));
        if (n < s.length) n = write_tokens(&r->m, ids, n, &s);
        text = decode_tokens(t, ids, n, &bytes);
        json_text(&quoted, text, bytes);
        journal_line(&r->journal, "\"step\":%lld,\"sample\":%s", (long long)r->step, quoted.data);
        for (k = 0; k < bytes; k++)                   /* nothing for the terminal to obey */
            if ((unsigned char)text[k] < ' ' && text[k] != '\n') text[k] = '?';
        say(&r->journal, "  %.*s\n", (int)bytes, text);
        free(text);
        free(quoted.data);
    }
    free(ids);
}

/* ---- checkpoints ------------------------------------------------------------------------------------- */

/* The notes of a file of weights: its model, and what its texts begin with. */
static int64_t model_notes(const run *r, tn_note *notes, buffer *begin)
{
    int i;
    buffer_add(begin, "", 0);
    for (i = 0; i < r->m.begin_count; i++) buffer_print(begin, i ? " %d" : "%d", (int)r->m.begin[i]);
    notes[0].key = "tn.model", notes[0].value = r->config_json;
    notes[1].key = "tn.begin", notes[1].value = begin->data;
    return r->m.begin_count ? 2 : 1;
}

typedef struct weights { run *r; const tn_note *notes; int64_t count; } weights;

static tn_status put_checkpoint(void *user, tn_sink sink)
{
    const weights *w = (const weights *)user;
    return tn_checkpoint_write(w->r->optim, sink, w->notes, w->count);
}

static tn_status put_weights(void *user, tn_sink sink)
{
    const weights *w = (const weights *)user;
    return tn_params_write(w->r->m.params, sink, w->notes, w->count);
}

static bool save(run *r)
{
    char    step[32], lines[32], hash[32], machine[128];
    tn_note notes[8];
    weights w;
    buffer  begin = {0};
    char   *path = checkpoint_path(r->folder, r->step), *why;
    snprintf(step, sizeof step, "%lld", (long long)r->step);
    snprintf(lines, sizeof lines, "%lld", (long long)r->journal.lines);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->data.hash);
    snprintf(machine, sizeof machine, "%s %s", tn_ctx_backend_name(r->m.ctx), tn_ctx_simd_name(r->m.ctx));
    notes[0].key = "tn.format", notes[0].value = RUN_FORMAT;
    notes[1].key = "tn.step", notes[1].value = step;
    notes[2].key = "tn.log_lines", notes[2].value = lines;
    notes[3].key = "tn.data", notes[3].value = hash;
    notes[4].key = "tn.machine", notes[4].value = machine;
    notes[5].key = "tn.config", notes[5].value = r->config.data;
    journal_sync(&r->journal);
    w.r = r;
    w.notes = notes;
    w.count = 6 + model_notes(r, notes + 6, &begin);
    why = write_by(path, put_checkpoint, &w, r->m.ctx);
    free(begin.data);
    if (why) {
        clear_progress(&r->journal);
        warn("step %lld: the checkpoint %s could not be written: %s", (long long)r->step, path, why);
        free(why);
        free(path);
        return false;
    }
    free(r->saved);
    r->saved = path;
    r->saved_step = r->step;
    return true;
}

/* Once the newest checkpoint is known to be good, those before it may go. */
static void remove_old(const run *r)
{
    int64_t *steps, count = list_checkpoints(r->folder, &steps), i;
    for (i = 0; i < count - r->s->keep; i++) {
        char *old = checkpoint_path(r->folder, steps[i]);
        if (steps[i] < r->saved_step) unlink(old);
        free(old);
    }
    free(steps);
}

static void save_or_stop(run *r)
{
    char *before = r->saved ? copy_text(r->saved) : NULL;
    if (!save(r)) {
        if (!before) fail("stopped: nothing is saved");
        fail("stopped; the checkpoint before it is whole: %s. When there is room, tn train --resume %s goes on", before,
             r->folder);
    }
    free(before);
}

/* What a checkpoint says under a key; fails where it says nothing. */
static const char *note_of(const tn_safetensors *st, const char *path, const char *key)
{
    const char *value = tn_safetensors_metadata(st, key);
    if (!value) fail("%s is no checkpoint of tn train: it has no \"%s\"", path, key);
    return value;
}

/* ---- a run's beginning --------------------------------------------------------------------------------- */

/* The best rate of a large product, with the run's threads and numbers. */
static double measure_peak(const tn_desc *desc)
{
    const int64_t n = 512;
    tn_ctx *ctx;
    double  best = INFINITY, start = now();
    int     turns;
    if (tn_ctx_create(&ctx, desc, NULL) != TN_OK) return NAN;
    for (turns = 0; turns < 3 || now() - start < 0.05; turns++) {
        tn_tensor *a, *b;
        double     from;
        int64_t    shape[2];
        shape[0] = shape[1] = n;
        tn_ctx_reset(ctx);
        a = tn_full(ctx, 2, shape, 0.5);
        b = tn_full(ctx, 2, shape, 0.25);
        tn_ctx_sync(ctx);
        from = now();
        tn_matmul(ctx, a, b);
        tn_ctx_sync(ctx);
        if (now() - from < best) best = now() - from;
    }
    tn_ctx_destroy(ctx);
    return 2.0 * (double)(n * n * n) / best;
}

/* The embedding's learning rate over AdamW's. A row has gradients in few steps, so it takes longer ones: 15 times as long,
   for a table of numbers of size 1. (nats a byte after 1M tokens, 489 steps: 0.968 with 1 and twice the tokens, 0.929 with
   10, 0.909 with 15 and 2.5 times AdamW's.) A tied table is the unembedding, too, and takes AdamW's. */
static double embedding_scale(const run *r, const model *m, double adam_lr)
{
    int64_t n = tn_tensor_count(m->net.embed.w), i;
    double *w, sum = 0;
    if (!(adam_lr > 0)) return 1;
    if (r->s->embed_lr > 0) return r->s->embed_lr / adam_lr;
    if (m->desc.tied) return 1;
    w = (double *)room((size_t)n, sizeof *w);
    if (tn_read(m->net.embed.w, TN_F64, w, n) == TN_OK) for (i = 0; i < n; i++) sum += w[i] * w[i];
    free(w);
    return 15 * sqrt(sum / (double)n);
}

static void make_model(run *r, tn_ctx *ctx, model *m, tn_optim **optim)
{
    tn_optim_desc desc;
    m->ctx = ctx;
    m->params = tn_params_create(ctx);
    tn_transformer_init(m->params, "", &m->net, &m->desc);
    optimiser_of(r->s, &desc);
    tn_params_group(m->params, "embed.w", embedding_scale(r, m, desc.kind == TN_ADAMW ? desc.lr : desc.adam_lr), 1);
    *optim = tn_optim_create(m->params, &desc);
    check(ctx, "the model");
}

/* Steps that fit into so many minutes: a copy of the model trains a few to see. */
static int64_t steps_in(run *r, double minutes, const tn_desc *desc)
{
    model     m;
    tn_optim *optim;
    tn_ctx   *ctx;
    int64_t   done = 0, steps, unit = 1;
    double    start = 0;
    memset(&m, 0, sizeof m);
    m.desc = r->m.desc;
    if (tn_ctx_create(&ctx, desc, NULL) != TN_OK) fail("no context for a look at the speed");
    make_model(r, ctx, &m, &optim);
    while (done < 4 || now() - start < 2) {           /* the first two steps find their memory */
        if (done == 2) start = now();
        batch_loss(r, &m, true);
        tn_optim_step(optim);
        check(ctx, "a look at the speed");
        end_if_stopped();
        done++;
    }
    steps = (int64_t)(minutes * 60 * (double)(done - 2) / (now() - start) * 0.95);
    tn_ctx_destroy(ctx);
    while (steps / unit >= 100) unit *= 10;           /* two digits: the estimate has no more */
    return steps / unit * unit > 0 ? steps / unit * unit : 1;
}

static void read_data(run *r, const char *tokenizer)
{
    const settings *s = r->s;
    tn_ctx         *ctx = r->m.ctx;
    int64_t         i, shards = 0;
    for (i = 0; i < s->data.count; i++) shards += is_shard(s->data.path[i]);
    if (shards && shards < s->data.count) fail("--data has texts and token shards; one kind at a time");
    if (shards) {
        int64_t vocab = s->vocab;
        if (tokenizer) {
            r->m.tokenizer = open_tokenizer(ctx, tokenizer);
            if (vocab && vocab != tn_tokenizer_count(r->m.tokenizer))
                fail("--vocab is %lld, and %s has %lld tokens", (long long)vocab, tokenizer,
                     (long long)tn_tokenizer_count(r->m.tokenizer));
            vocab = tn_tokenizer_count(r->m.tokenizer);
        }
        if (!vocab) misuse("token shards want their --tokenizer, or the size of its vocabulary: --vocab N");
        r->m.desc.vocab = vocab;
        load_shards(&r->data, ctx, vocab, &s->data, s->held_out);
    } else {
        size_t            bytes;
        char             *text = read_texts(&s->data, &bytes);
        tn_tokenizer_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.separator = STORY_MARK;
        end_if_stopped();
        if (!tokenizer && s->vocab) {
            say(&r->journal, "training a tokenizer of %lld tokens\n", (long long)s->vocab);
            r->m.tokenizer = tn_tokenizer_train(ctx, text, split_text(text, bytes, s->held_out), s->vocab, &desc);
            check(ctx, "training the tokenizer");
            end_if_stopped();
        } else r->m.tokenizer = open_tokenizer(ctx, tokenizer);
        if (s->vocab && tn_tokenizer_count(r->m.tokenizer) != s->vocab)
            fail("--vocab is %lld, and %s has %lld tokens", (long long)s->vocab,
                 tokenizer ? tokenizer : "the trained tokenizer", (long long)tn_tokenizer_count(r->m.tokenizer));
        r->m.desc.vocab = tn_tokenizer_count(r->m.tokenizer);
        load_text(&r->data, r->m.tokenizer, text, bytes, s->held_out);
        free(text);
    }
}

static void check_data(const run *r)
{
    const int64_t T = r->m.desc.context;
    const char   *others = r->s->data.count > 1 ? " and the others" : "";
    if (r->data.train_count < T + 1)
        fail("%s%s: %lld tokens to train on (%.0f%% of the text), fewer than one context of %lld and "
             "its last target: more text, or a smaller --context",
             r->s->data.path[0], others, (long long)r->data.train_count, 100 * (1 - r->s->held_out), (long long)T);
    if (r->data.held_count < 2)
        fail("%s%s: %lld tokens are held out, too few for a loss: more text, or a larger --held-out", r->s->data.path[0],
             others, (long long)r->data.held_count);
}

static void print_facts(run *r)
{
    const corpus *c = &r->data;
    char          name[128];
    journal      *j = &r->journal;
    tn_transformer_name(&r->m.desc, name, sizeof name);
    say(j, "model: %s, %lld parameters, %.3g Mflop a token forward, %.3g with backward\n", name,
        (long long)tn_params_elements(r->m.params), r->flops / 3e6, r->flops / 1e6);
    say(j, "data: %lld tokens to train on, %lld held out, vocabulary %lld", (long long)c->train_count,
        (long long)c->held_count, (long long)r->m.desc.vocab);
    if (c->train_bytes > 0)
        say(j, "; %.0f and %.0f bytes, %.2f bytes a token, %.0f held-out bytes behind [UNK]", c->train_bytes,
            c->held_bytes, c->train_bytes / (double)c->train_count, c->held_unknown);
    else say(j, "; nats a byte are not known, for a shard does not tell its text's bytes");
    if (r->s->sample_every && !*r->s->prompt && r->m.begin_count)
        say(j, "\nsamples: each begins with a word of the text; without " STORY_MARK " [BOS] stands in front of it once");
    say(j, "\nmachine: %s (%s), %d thread%s, %.0f Gflop/s in a matrix product\n", tn_ctx_backend_name(r->m.ctx),
        tn_ctx_simd_name(r->m.ctx),
        tn_ctx_threads(r->m.ctx), tn_ctx_threads(r->m.ctx) == 1 ? "" : "s", r->peak / 1e9);
    say(j, "steps: %lld of %lld x %lld x %lld tokens, %.3g in all\n", (long long)r->steps, (long long)r->s->accumulate,
        (long long)r->s->batch,
        (long long)r->m.desc.context, (double)r->steps * (double)(r->s->accumulate * r->s->batch * r->m.desc.context));
}

/* More than this many tokens would take a gigabyte of tables. */
enum { NGRAM_TOKENS = 4000000 };

static void print_baseline(run *r)
{
    const corpus *c = &r->data;
    double        nats[NGRAM_MAX + 1];
    char          three[64], five[64];
    int64_t       n = c->train_count < NGRAM_TOKENS ? c->train_count : NGRAM_TOKENS;
    if (!ngram_losses(c->train, n, c->held, c->held_count, r->m.desc.vocab, nats)) {
        warn("no memory for the n-grams");
        return;
    }
    r->journal.trigram = nats[3];
    r->journal.fivegram = nats[5];
    say(&r->journal, "n-grams (interpolated Kneser-Ney%s): trigram %.4f nats a token%s; 5-gram %.4f nats a token%s\n",
        n < c->train_count ? ", first 4M tokens" : "",
        nats[3], bytes_text(c, nats[3], three, sizeof three), nats[5], bytes_text(c, nats[5], five, sizeof five));
}

static void log_start(run *r)
{
    const corpus *c = &r->data;
    buffer        b = {0};
    buffer_print(&b, "\"parameters\":%lld,\"flops_token\":%.6g,\"train_tokens\":%lld,\"held_tokens\":%lld,"
                 "\"vocab\":%lld", (long long)tn_params_elements(r->m.params), r->flops, (long long)c->train_count,
                 (long long)c->held_count, (long long)r->m.desc.vocab);
    if (c->train_bytes > 0)
        buffer_print(&b, ",\"train_bytes\":%.0f,\"held_bytes\":%.0f,\"held_unknown\":%.0f", c->train_bytes,
                     c->held_bytes, c->held_unknown);
    if (isfinite(r->journal.trigram))
        buffer_print(&b, ",\"trigram\":%.9g,\"fivegram\":%.9g", r->journal.trigram, r->journal.fivegram);
    journal_line(&r->journal, "%s", b.data);
    free(b.data);
}

/* config.json's text, which the checkpoints hold, too */
static char *config_json(const model *m)
{
    size_t used = 0;
    char  *text;
    tn_transformer_config_write(m->ctx, &m->desc, tn_to_memory(NULL, 0, &used));
    text = (char *)room(used + 1, 1);
    tn_transformer_config_write(m->ctx, &m->desc, tn_to_memory(text, used, &used));
    check(m->ctx, "config.json");
    return text;
}

static tn_status put_tokenizer(void *t, tn_sink sink) { return tn_tokenizer_write((const tn_tokenizer *)t, sink); }

static void write_tokenizer(const run *r)
{
    char *path = join(r->folder, "tokenizer.json"), *why = write_by(path, put_tokenizer, r->m.tokenizer, r->m.ctx);
    if (why) fail("cannot write %s: %s", path, why);
    free(path);
}

/* Without marks [BOS] stands in front of the text once, and no model learns what follows it. Words of the text, drawn by
   the seed, are how samples begin then. */
static void draw_beginnings(run *r)
{
    const corpus       *c = &r->data;
    const tn_tokenizer *t = r->m.tokenizer;
    const bool          bytes = t && tn_tokenizer_is_bytes(t);
    int64_t             i, begun = 0;
    uint64_t            state = (uint64_t)r->s->seed;
    if (!t) return;
    for (i = 0; i < c->train_count; i++) begun += c->train[i] == tn_tokenizer_bos(t);
    for (i = 0; begun < 2 && i < 100 * BEGINNINGS && r->m.begin_count < BEGINNINGS; i++) {
        int64_t at = 1 + (int64_t)(next_uniform(&state) * (double)(c->train_count - 1));
        int32_t id = c->train[at], before = c->train[at - 1];
        bool    word = bytes ? (before == ' ' || before == '\n') && id > ' ' && id < 0xF5
                             : strncmp(tn_tokenizer_token(t, id), "##", 2) != 0;
        if (word && id != tn_tokenizer_bos(t) && id != tn_tokenizer_eos(t) && id != tn_tokenizer_unk(t))
            r->m.begin[r->m.begin_count++] = id;
    }
}

/* The path, which an option made, becomes one that holds from any folder. */
static void make_absolute(const char **path)
{
    char full[PATH_ROOM + 1];
    if (!realpath(*path, full)) return;
    free((void *)*path);
    *path = copy_text(full);
}

/* What both kinds of start share, once the settings stand: data, model, optimiser. */
static void build(run *r, const tn_desc *desc, const char *tokenizer)
{
    char why[256];
    if (tn_ctx_create(&r->m.ctx, desc, why) != TN_OK) fail("%s", why);
    read_data(r, tokenizer);
    model_of(r->m.ctx, r->m.desc.vocab, &r->m.desc);
    check_data(r);
    draw_beginnings(r);
    end_if_stopped();
    r->ids = (int32_t *)room((size_t)(r->s->batch * r->m.desc.context), sizeof *r->ids);
    r->targets = (int32_t *)room((size_t)(r->s->batch * r->m.desc.context), sizeof *r->targets);
}

/* The notes of a checkpoint of this format. *look: a context of its own, which closes it. */
static tn_safetensors *open_checkpoint(const char *path, tn_ctx **look)
{
    char            why[256];
    tn_safetensors *st;
    if (tn_ctx_create(look, NULL, why) != TN_OK) fail("%s", why);
    st = tn_safetensors_open(*look, tn_from_path(path));
    if (!st) fail("%s", tn_ctx_error(*look));
    if (strcmp(note_of(st, path, "tn.format"), RUN_FORMAT))
        fail("%s is of format %s, this is tn %s, which reads format %s", path, note_of(st, path, "tn.format"), tn_version(),
             RUN_FORMAT);
    return st;
}

/* --out is a new folder, an empty one, or one where a run was killed before it had its settings. */
static void check_folder(const char *folder)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    if (!d && errno != ENOENT) fail("%s: %s", folder, strerror(errno));
    while (d && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "config.txt.tmp"))
            fail("%s is not empty (%s) and holds no run: --out wants a new folder", folder, e->d_name);
    if (d) closedir(d);
}

/* The tokenizer of a new run: what is asked for, or the one beside the checkpoint that it goes on from. */
static char *tokenizer_of(const settings *s)
{
    char *folder, *path;
    if (!s->from) return s->tokenizer ? copy_text(s->tokenizer) : NULL;
    folder = folder_of(s->from);
    path = join(folder, "tokenizer.json");
    free(folder);
    if (is_file(path)) return path;
    free(path);
    return NULL;
}

/* Weights, moments and step of another run's checkpoint. */
static void go_on_from(run *r, const char *path)
{
    tn_checkpoint_read(r->optim, tn_from_path(path));
    check(r->m.ctx, path);
    if (r->step >= r->steps)
        fail("%s is of step %lld already, of %lld: more --steps", path, (long long)r->step, (long long)r->steps);
    say(&r->journal, "goes on from %s\n", path);
}

/* again: config.txt is there, but nothing was saved before the run was killed. */
static void start_run(run *r, bool again)
{
    settings *s = &asked;
    tn_desc   desc;
    char     *config = join(r->folder, "config.txt"), *path = join(r->folder, "config.json"), *tokenizer;
    int64_t   i, per_step;
    if (!again && is_file(config))
        fail("%s holds a run already: tn train --resume %s goes on with it", r->folder, r->folder);
    if (!again) check_folder(r->folder);
    for (i = 0; i < s->data.count; i++) make_absolute(&s->data.path[i]);
    if (s->tokenizer) make_absolute(&s->tokenizer);
    if (s->from) make_absolute(&s->from);
    tokenizer = tokenizer_of(s);
    context_of(s, &desc);
    r->peak = measure_peak(&desc);
    build(r, &desc, tokenizer);
    free(tokenizer);
    per_step = s->batch * s->accumulate * r->m.desc.context;
    if (s->from) {
        tn_ctx *look;
        r->step = strtoll(note_of(open_checkpoint(s->from, &look), s->from, "tn.step"), NULL, 10);
        tn_ctx_destroy(look);
    }
    if (s->minutes > 0) {
        s->steps = r->step + steps_in(r, s->minutes, &desc);
        say(&r->journal, "%g minutes are about %lld steps here; that number stands from now on\n", s->minutes,
            (long long)(s->steps - r->step));
        s->minutes = 0;
    } else if (!s->steps) s->steps = (s->tokens + per_step - 1) / per_step;
    s->tokens = 0;
    r->steps = s->steps;
    make_model(r, r->m.ctx, &r->m, &r->optim);
    if (s->from) go_on_from(r, s->from);
    r->config_json = config_json(&r->m);
    write_config(&train_usage, &r->config);
    r->flops = tn_transformer_cost_of(&r->m.desc, r->m.desc.context).training;
    end_if_stopped();
    make_folder(r->folder);
    write_whole(config, r->config.data, r->config.bytes);     /* first: what makes the folder a run, which --resume begins */
    if (r->m.tokenizer && !tn_tokenizer_is_bytes(r->m.tokenizer)) write_tokenizer(r);
    write_whole(path, r->config_json, strlen(r->config_json));
    free(config);
    free(path);
    print_facts(r);
    if (!s->no_baseline) print_baseline(r);
    {
        journal said = r->journal;
        journal_open(&r->journal, r->folder);
        r->journal.trigram = said.trigram;
        r->journal.fivegram = said.fivegram;
    }
    log_start(r);
    save_or_stop(r);
}

/* Settings as they were, but for where the data lies. */
static bool same_settings(const char *a, const char *b)
{
    for (;;) {
        size_t n, m;
        while (!strncmp(a, "data = ", 7)) a += strcspn(a, "\n") + (a[strcspn(a, "\n")] != 0);
        while (!strncmp(b, "data = ", 7)) b += strcspn(b, "\n") + (b[strcspn(b, "\n")] != 0);
        n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n)) return false;
        if (!a[n] || !b[n]) return a[n] == b[n];
        a += n + 1, b += n + 1;
    }
}

static void resume_run(run *r)
{
    static const char *const allowed[] = {"resume", "data", "threads", "stop-at"};
    settings       *s = &asked;
    char           *config = join(r->folder, "config.txt"), *tokenizer = join(r->folder, "tokenizer.json"), *text;
    char            machine[128], hash[32];
    int64_t         count, *steps, lines, i;
    size_t          bytes, k;
    const bool      moved = s->data.count > 0;
    tn_desc         desc;
    tn_ctx         *look;
    tn_safetensors *st;
    for (i = 0; i < train_usage.count; i++) {
        const option *o = &train_usage.options[i];
        bool          fine = !o->given;
        for (k = 0; k < sizeof allowed / sizeof *allowed; k++) fine = fine || !strcmp(o->name, allowed[k]);
        if (!fine)
            misuse("--%s cannot be changed by --resume: a resumed run is the same run. tn train --config %s --out NEW "
                   "begins another, --from CHECKPOINT --out NEW goes on as another", o->name, config);
    }
    if (!is_file(config)) fail("%s holds no run: there is no %s", r->folder, config);
    text = read_file(config, &bytes);
    read_config(&train_usage, text, bytes, config);
    buffer_add(&r->config, text, bytes);
    free(text);
    count = list_checkpoints(r->folder, &steps);
    if (!count) {                                     /* killed before its first one: from the beginning, then */
        r->config.bytes = 0;
        free(config);
        free(tokenizer);
        start_run(r, true);
        return;
    }
    r->saved_step = steps[count - 1];
    r->saved = checkpoint_path(r->folder, r->saved_step);
    free(steps);
    st = open_checkpoint(r->saved, &look);
    if (!same_settings(note_of(st, r->saved, "tn.config"), r->config.data))
        fail("%s was changed since %s was written", config, r->saved);
    for (i = 0; i < s->data.count; i++)
        if (access(s->data.path[i], F_OK) != 0)
            fail("%s: %s. If it was moved: tn train --resume %s --data FILE", s->data.path[i], strerror(errno), r->folder);
    context_of(s, &desc);
    r->peak = measure_peak(&desc);
    build(r, &desc, is_file(tokenizer) ? tokenizer : NULL);
    r->steps = s->steps;
    make_model(r, r->m.ctx, &r->m, &r->optim);
    r->flops = tn_transformer_cost_of(&r->m.desc, r->m.desc.context).training;
    r->config_json = config_json(&r->m);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->data.hash);
    if (strcmp(hash, note_of(st, r->saved, "tn.data")))
        fail("the tokens of %s are not those that %s was trained on", s->data.path[0], r->saved);
    snprintf(machine, sizeof machine, "%s %s", tn_ctx_backend_name(r->m.ctx), tn_ctx_simd_name(r->m.ctx));
    if (strcmp(machine, note_of(st, r->saved, "tn.machine")))
        warn("%s was made with %s, this is %s: the numbers will differ in their last bits", r->saved,
             note_of(st, r->saved, "tn.machine"), machine);
    r->step = strtoll(note_of(st, r->saved, "tn.step"), NULL, 10);
    lines = strtoll(note_of(st, r->saved, "tn.log_lines"), NULL, 10);
    tn_checkpoint_read(r->optim, tn_from_path(r->saved));
    check(r->m.ctx, "checkpoint");
    tn_ctx_destroy(look);
    journal_resume(&r->journal, r->folder, r->step, lines);
    remove_halves(r->folder);                         /* after the lock: nobody is writing one */
    if (moved) {
        for (i = 0; i < s->data.count; i++) make_absolute(&s->data.path[i]);
        r->config.bytes = 0;
        write_config(&train_usage, &r->config);
        write_whole(config, r->config.data, r->config.bytes);
    }
    say(&r->journal, "resumed from %s\n", r->saved);
    print_facts(r);
    free(config);
    free(tokenizer);
}

/* ---- the loop ----------------------------------------------------------------------------------------------- */

static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static void train_step(run *r)
{
    const int64_t tokens = r->s->accumulate * r->s->batch * r->m.desc.context;
    double        start = now(), loss = batch_loss(r, &r->m, true), lr = tn_optim_lr(r->optim), rate;
    if (!(loss <= most_loss(r)) || tn_ctx_status(r->m.ctx) != TN_OK || tn_optim_step(r->optim) != TN_OK)
        stop_exploded(r, loss);
    if (r->saved_step == r->step) remove_old(r);
    rate = (double)tokens / (now() - start);
    r->rate = r->rate > 0 ? r->rate + 0.1 * (rate - r->rate) : rate;
    r->step++;
    journal_step(&r->journal, r->step, loss, lr, tn_optim_grad_norm(r->optim), r->step * tokens, r->rate);
}

static void train(run *r, const char *title)
{
    const settings *s = r->s;
    int64_t         until = s->stop_at && s->stop_at < r->steps ? s->stop_at : r->steps;
    while (r->step < until && !stopped_by) {
        bool last;
        train_step(r);
        last = r->step == r->steps;
        show_progress(&r->journal, r->step, r->steps, r->rate, r->rate * r->flops / r->peak, last);
        if (due(s->val_every, r->step) && !last) {
            look_at_held_out(r, false);
            draw_curve(&r->journal, r->m.ctx, title);
        }
        if (due(s->sample_every, r->step) && !last) write_sample(r);
        if (last) {
            look_at_held_out(r, true);
            if (s->sample_every) write_sample(r);
            draw_curve(&r->journal, r->m.ctx, title);
        }
        if (r->journal.failed) fail("stopped, for the log; the last checkpoint is %s", r->saved);
        if (last || due(s->save_every, r->step)) save_or_stop(r);
    }
}

/* The last step has no next one, whose loss would tell that it was a good one. */
static void finish(run *r)
{
    char   *path = join(r->folder, "model.safetensors"), *why;
    double  loss = batch_loss(r, &r->m, false);
    tn_note notes[2];
    weights w;
    buffer  begin = {0};
    if (!(loss <= most_loss(r)) || tn_ctx_status(r->m.ctx) != TN_OK) stop_exploded(r, loss);
    remove_old(r);
    w.r = r;
    w.notes = notes;
    w.count = model_notes(r, notes, &begin);
    why = write_by(path, put_weights, &w, r->m.ctx);
    if (why) fail("cannot write %s: %s; the last checkpoint is %s", path, why, r->saved);
    free(begin.data);
    free(path);
}

/* Settings that a file or a checkpoint holds. What the command line says about the length goes before them. */
static void take_settings(const char *text, size_t bytes, const char *name)
{
    option *steps = find_option(&train_usage, "steps");
    steps->given = steps->given || find_option(&train_usage, "tokens")->given || find_option(&train_usage, "minutes")->given;
    read_config(&train_usage, text, bytes, name);
}

/* The settings of the run that a checkpoint is of. */
static void take_settings_of(const char *path)
{
    tn_ctx         *look;
    tn_safetensors *st;
    const char     *text;
    if (find_option(&train_usage, "tokenizer")->given || find_option(&train_usage, "vocab")->given)
        misuse("--from keeps the tokenizer of its run: no --tokenizer or --vocab beside it");
    st = open_checkpoint(path, &look);
    text = note_of(st, path, "tn.config");
    take_settings(text, strlen(text), path);
    tn_ctx_destroy(look);
}

int train_main(int argc, char **argv)
{
    run    r;
    char   title[256];
    int    arguments = read_options(&train_usage, argc, argv, 1), i, lengths;
    memset(&r, 0, sizeof r);
    r.s = &asked;
    if (arguments) {
        add_file(&asked.data, argv[0]);
        find_option(&train_usage, "data")->given = true;
    }
    lengths = find_option(&train_usage, "steps")->given + find_option(&train_usage, "tokens")->given +
              find_option(&train_usage, "minutes")->given;
    if (lengths > 1) misuse("one of --steps, --tokens and --minutes says how long it trains, not %d", lengths);
    r.journal.trigram = r.journal.fivegram = NAN;     /* until they are known */
    catch_signals();
    r.folder = asked.resume;
    if (asked.resume) {
        if (asked.out || asked.config || asked.from)
            misuse("--resume takes everything from the run: no --%s beside it",
                   asked.out ? "out" : asked.config ? "config" : "from");
        resume_run(&r);
    } else {
        if (asked.config && asked.from) misuse("--from brings its own settings: no --config beside it");
        if (asked.config) {
            size_t bytes;
            char  *text = read_file(asked.config, &bytes);
            take_settings(text, bytes, asked.config);
            free(text);
        } else if (asked.from) take_settings_of(asked.from);
        if (!asked.data.count) misuse("tn train wants data: tn train FILE --out RUN");
        if (!asked.out) misuse("tn train wants a folder for the run: --out RUN");
        r.folder = asked.out;
        start_run(&r, false);
    }
    snprintf(title, sizeof title, "%.200s", r.folder);
    train(&r, title);
    clear_progress(&r.journal);
    if (r.step < r.steps) {
        save_or_stop(&r);
        printf("stopped after step %lld of %lld, saved in %s\ntn train --resume %s goes on\n", (long long)r.step,
               (long long)r.steps, r.saved, r.folder);
    } else {
        finish(&r);
        printf("done: %s/model.safetensors after %.1f s; tn generate %s writes with it\n", r.folder,
               journal_seconds(&r.journal), r.folder);
    }
    i = r.step < r.steps && stopped_by ? 128 + (int)stopped_by : 0;
    journal_close(&r.journal);
    free_corpus(&r.data);
    free(r.ids);
    free(r.targets);
    free(r.config.data);
    free(r.config_json);
    free(r.saved);
    close_model(&r.m);
    return i;
}
