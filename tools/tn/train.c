/* train.c - tn train: from text to a model, in a folder of its own

   The order of the data is a function of the seed and the step alone, and a checkpoint holds all else that a later step
   depends on: so a run that was killed and resumed has the bits of one that was not. Whatever happens in a step happens in
   one order: train, log, look at the held-out part, write a sample, save. */
#include "train.h"
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
    int64_t     step, steps;
    double      flops;              /* of training, a token                       */
    double      peak;               /* floating-point operations a second, of a matrix product */
    double      rate;               /* tokens a second, of late                   */
    int32_t    *ids, *targets;      /* [batch,context]                            */
} run;

/* ---- signals: the step is finished, then all is saved. A second one ends at once. ---- */

static volatile sig_atomic_t stopped_by;

static void stop_later(int number) { stopped_by = number; }

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

/* The loss of the batch; gradients are left for the optimiser. */
static double gradients(run *r, model *m)
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
        tn_record(m->ctx);
        loss = tn_transformer_loss(m->ctx, &m->net, x, y);
        scaled = parts > 1 ? tn_scale(m->ctx, loss, 1 / (double)parts) : loss;
        tn_backward(m->ctx, scaled);
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

static void stop_exploded(run *r, double loss)
{
    double      size;
    const char *name, *last = r->saved ? r->saved : "none";
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
    fail("stopped before that step's update; the last good checkpoint is %s. A lower --lr or --clip may help", last);
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
    journal_held(&r->journal, r->step, nats);
    if (isnan(bytes)) *text = 0;
    else snprintf(text, sizeof text, ",\"held_byte\":%.9g", bytes);
    journal_line(&r->journal, "\"step\":%lld,\"held\":%.9g%s,\"all\":%s", (long long)r->step, nats, text,
                 all ? "true" : "false");
    say(&r->journal, "step %lld: held out %.4f nats a token%s%s\n", (long long)r->step, nats,
        bytes_text(&r->data, nats, text, sizeof text),
        all ? " (all of it)" : "");
}

static void write_sample(run *r)
{
    const tn_tokenizer *t = r->m.tokenizer;
    sampling  s = {0.8, 0.95, 0, r->s->sample_length, mix((uint64_t)r->s->seed) ^ (uint64_t)r->step, false, NULL, NULL};
    int64_t   prompt = (int64_t)strlen(r->s->prompt) + 2, n;
    int32_t  *ids;
    size_t    bytes, k;
    char     *text;
    buffer    quoted = {0};
    if (s.length < prompt) s.length = prompt;
    if (!t) return;
    ids = (int32_t *)room((size_t)s.length, sizeof *ids);
    n = tn_encode(t, r->s->prompt, strlen(r->s->prompt), tn_tokenizer_bos(t) >= 0, ids, prompt, NULL);
    if (n > 0) {
        s.length = r->s->sample_length > n ? r->s->sample_length : n + 1;
        if (s.length > r->m.desc.context) s.length = r->m.desc.context;
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

static bool save(run *r)
{
    char         step[32], lines[32], hash[32], machine[128];
    tn_note      notes[7];
    int64_t      i, count, *steps;
    char        *path = checkpoint_path(r->folder, r->step);
    atomic_file *f = (atomic_file *)room(1, sizeof *f);
    bool         good;
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
    notes[6].key = "tn.model", notes[6].value = r->config_json;
    if (fsync(fileno(r->journal.file)) != 0 && errno != EINVAL) r->journal.failed = true;
    good = atomic_open(f, path) && tn_checkpoint_write(r->optim, tn_to_calls(atomic_store, f), notes, 7) == TN_OK;
    if (good) good = atomic_commit(f);
    else atomic_abandon(f);
    if (!good) {
        clear_progress(&r->journal);
        warn("step %lld: the checkpoint %s could not be written: %s", (long long)r->step, path,
             f->error ? strerror(f->error) : tn_ctx_error(r->m.ctx));
        free(path);
        free(f);
        return false;
    }
    free(f);
    free(r->saved);
    r->saved = path;
    count = list_checkpoints(r->folder, &steps);
    for (i = 0; i < count - r->s->keep; i++) {
        char *old = checkpoint_path(r->folder, steps[i]);
        if (steps[i] < r->step) unlink(old);
        free(old);
    }
    free(steps);
    return true;
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
        gradients(r, &m);
        tn_optim_step(optim);
        check(ctx, "a look at the speed");
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
        load_shards(&r->data, ctx, r->m.tokenizer, vocab, &s->data, s->held_out);
    } else {
        size_t            bytes;
        char             *text = read_texts(&s->data, &bytes);
        tn_tokenizer_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.separator = STORY_MARK;
        if (!tokenizer && s->vocab) {
            say(&r->journal, "training a tokenizer of %lld tokens\n", (long long)s->vocab);
            r->m.tokenizer = tn_tokenizer_train(ctx, text, split_text(text, bytes, s->held_out), s->vocab, &desc);
            check(ctx, "training the tokenizer");
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
                 "\"train_bytes\":%.0f,\"held_bytes\":%.0f,\"held_unknown\":%.0f,\"vocab\":%lld",
                 (long long)tn_params_elements(r->m.params), r->flops, (long long)c->train_count, (long long)c->held_count,
                 c->train_bytes, c->held_bytes, c->held_unknown,
                 (long long)r->m.desc.vocab);
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

static void write_tokenizer(const run *r)
{
    size_t used = 0;
    char  *text, *path = join(r->folder, "tokenizer.json");
    tn_tokenizer_write(r->m.tokenizer, tn_to_memory(NULL, 0, &used));
    text = (char *)room(used + 1, 1);
    tn_tokenizer_write(r->m.tokenizer, tn_to_memory(text, used, &used));
    check(r->m.ctx, "tokenizer.json");
    write_whole(path, text, used);
    free(text);
    free(path);
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
    r->ids = (int32_t *)room((size_t)(r->s->batch * r->m.desc.context), sizeof *r->ids);
    r->targets = (int32_t *)room((size_t)(r->s->batch * r->m.desc.context), sizeof *r->targets);
}

static void start_run(run *r)
{
    settings *s = &asked;
    tn_desc   desc;
    char     *config = join(r->folder, "config.txt");
    int64_t   i, per_step;
    if (is_file(config)) fail("%s holds a run already: tn train --resume %s goes on with it", r->folder, r->folder);
    for (i = 0; i < s->data.count; i++) make_absolute(&s->data.path[i]);
    if (s->tokenizer) make_absolute(&s->tokenizer);
    context_of(s, &desc);
    r->peak = measure_peak(&desc);
    build(r, &desc, s->tokenizer);
    make_folder(r->folder);
    per_step = s->batch * s->accumulate * r->m.desc.context;
    if (s->minutes > 0) {
        s->steps = steps_in(r, s->minutes, &desc);
        say(&r->journal, "%g minutes are about %lld steps here; that number stands from now on\n", s->minutes,
            (long long)s->steps);
        s->minutes = 0;
    } else if (!s->steps) s->steps = (s->tokens + per_step - 1) / per_step;
    s->tokens = 0;
    r->steps = s->steps;
    make_model(r, r->m.ctx, &r->m, &r->optim);
    r->config_json = config_json(&r->m);
    write_config(&train_usage, &r->config);
    r->flops = tn_transformer_cost_of(&r->m.desc, r->m.desc.context).training;
    if (r->m.tokenizer && !tn_tokenizer_is_bytes(r->m.tokenizer)) write_tokenizer(r);
    {
        char *path = join(r->folder, "config.json");
        write_whole(path, r->config_json, strlen(r->config_json));
        free(path);
    }
    write_whole(config, r->config.data, r->config.bytes);             /* the last: what makes the folder a run */
    free(config);
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

static void resume_run(run *r)
{
    settings       *s = &asked;
    char           *config = join(r->folder, "config.txt"), *tokenizer = join(r->folder, "tokenizer.json"), *text;
    char            machine[128], hash[32], why[256];
    int64_t         count, *steps, lines, i;
    size_t          bytes;
    tn_desc         desc;
    tn_ctx         *look;
    tn_safetensors *st;
    for (i = 0; i < train_usage.count; i++) {
        const option *o = &train_usage.options[i];
        if (o->given && o->saved)
            misuse("--%s cannot be changed by --resume: a resumed run is the same run. tn train --config %s --out NEW "
                   "begins another", o->name, config);
    }
    if (!is_file(config)) fail("%s holds no run: there is no %s", r->folder, config);
    text = read_file(config, &bytes);
    read_config(&train_usage, text, bytes, config);
    buffer_add(&r->config, text, bytes);
    free(text);
    count = list_checkpoints(r->folder, &steps);
    if (!count) {                                     /* killed before its first one: from the beginning, then */
        if (remove(config) != 0) fail("cannot remove %s: %s", config, strerror(errno));
        r->config.bytes = 0;
        free(config);
        free(tokenizer);
        start_run(r);
        return;
    }
    r->saved = checkpoint_path(r->folder, steps[count - 1]);
    free(steps);
    context_of(s, &desc);
    r->peak = measure_peak(&desc);
    if (tn_ctx_create(&look, &desc, why) != TN_OK) fail("%s", why);
    st = tn_safetensors_open(look, tn_from_path(r->saved));
    if (!st) fail("%s (remove that file, and --resume takes the one before it)", tn_ctx_error(look));
    if (strcmp(note_of(st, r->saved, "tn.format"), RUN_FORMAT))
        fail("%s is of format %s, this is tn %s, which reads format %s", r->saved, note_of(st, r->saved, "tn.format"),
             tn_version(), RUN_FORMAT);
    if (strcmp(note_of(st, r->saved, "tn.config"), r->config.data))
        fail("%s was changed since %s was written", config, r->saved);
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
    journal_resume(&r->journal, r->folder, lines);
    remove_halves(r->folder);                         /* after the lock: nobody is writing one */
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
    double        start = now(), loss = gradients(r, &r->m), lr = tn_optim_lr(r->optim), rate;
    double        most = r->s->max_loss > 0 ? r->s->max_loss : 2 * log((double)r->m.desc.vocab) + 5;
    if (!(loss <= most) || tn_ctx_status(r->m.ctx) != TN_OK || tn_optim_step(r->optim) != TN_OK) stop_exploded(r, loss);
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

static void finish(run *r)
{
    char        *path = join(r->folder, "model.safetensors");
    tn_note      note;
    atomic_file *f = (atomic_file *)room(1, sizeof *f);
    bool         good;
    note.key = "tn.model";
    note.value = r->config_json;
    good = atomic_open(f, path) && tn_params_write(r->m.params, tn_to_calls(atomic_store, f), &note, 1) == TN_OK;
    if (good) good = atomic_commit(f);
    else atomic_abandon(f);
    if (!good)
        fail("cannot write %s: %s; the last checkpoint is %s", path, f->error ? strerror(f->error) : tn_ctx_error(r->m.ctx),
             r->saved);
    free(f);
    free(path);
}

int train_main(int argc, char **argv)
{
    run    r;
    char   title[256];
    int    arguments = read_options(&train_usage, argc, argv, 1), i;
    memset(&r, 0, sizeof r);
    r.s = &asked;
    if (arguments) {
        add_file(&asked.data, argv[0]);
        find_option(&train_usage, "data")->given = true;
    }
    catch_signals();
    r.folder = asked.resume;
    if (asked.resume) {
        if (asked.out || asked.config)
            misuse("--resume takes everything from the run: no --%s beside it", asked.out ? "out" : "config");
        resume_run(&r);
    } else {
        if (asked.config) {
            size_t bytes;
            char  *text = read_file(asked.config, &bytes);
            read_config(&train_usage, text, bytes, asked.config);
            free(text);
        }
        if (!asked.data.count) misuse("tn train wants data: tn train FILE --out RUN");
        if (!asked.out) misuse("tn train wants a folder for the run: --out RUN");
        r.folder = asked.out;
        start_run(&r);
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
