/* begin.c - tn train: how a run begins: anew, again after a stop, or from another run's checkpoint */
#include "train.h"
#include "names.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The fastest of several turns of `runs` products n x n x n, in seconds a product. The numbers are drawn: a GPU that
   multiplies equal ones needs less power, and is faster than it ever is with a model's. */
static double time_products(tn_ctx *ctx, int64_t n, int runs)
{
    double best = INFINITY, start = now();
    int    turns, k;
    for (turns = 0; turns < 3 || now() - start < 0.05; turns++) {
        const int64_t shape[2] = {n, n};
        tn_tensor    *a, *b;
        double        from;
        tn_ctx_reset(ctx);
        a = tn_cast(ctx, tn_uniform(ctx, 2, shape, -1, 1), tn_ctx_activations(ctx));
        b = tn_cast(ctx, tn_uniform(ctx, 2, shape, -1, 1), tn_ctx_activations(ctx));
        tn_ctx_sync(ctx);
        from = now();
        for (k = 0; k < runs; k++) {
            tn_mark mark = tn_arena_mark(ctx);
            tn_matmul(ctx, a, b);
            tn_arena_release(ctx, mark);
        }
        tn_ctx_sync(ctx);
        if ((now() - from) / runs < best) best = (now() - from) / runs;
    }
    return best;
}

/* The best rate of a large product, with the run's threads and numbers. How large a device wants it, one sees by trying.
   One that fails is not fast: NaN if there is no other. */
static double measure_peak(const tn_desc *desc)
{
    const bool host = desc->backend->host;
    int64_t    n;
    tn_ctx    *ctx;
    double     rate = NAN, seconds = 0;
    char       why[256];
    tn_status  status = tn_ctx_create(&ctx, desc, why);
    const char *what = host ? "processor" : "device";
    if (status != TN_OK) {                            /* for want of the device: the run's own context will say so */
        if (status == TN_ERR_MEMORY) warn("the speed of the %s could not be measured: %s", what, why);
        return NAN;
    }
    for (n = host ? 512 : 64; n <= (host ? 512 : 8192) && seconds < 2e-3; n *= 2) {
        seconds = time_products(ctx, n, host ? 1 : 8);
        if (tn_ctx_status(ctx) != TN_OK) break;
        rate = 2.0 * (double)n * (double)n * (double)n / seconds;
    }
    if (isnan(rate)) warn("the speed of the %s could not be measured: %s", what, tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return rate;
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
    feed      f;
    const int64_t warm = r->device ? 3 : 2;           /* the first two find their memory, the third may become a graph */
    int64_t   done = 0, steps, unit = 1;
    double    start = 0;
    memset(&m, 0, sizeof m);
    m.desc = r->m.desc;
    if (tn_ctx_create(&ctx, desc, NULL) != TN_OK) fail("no context for a look at the speed");
    make_model(r, ctx, &m, &optim);
    open_feed(r, &m, optim, &f);
    while (done < warm + 2 || now() - start < 2) {
        if (done == warm) start = now();
        launch_step(r, &f);
        drop_steps(&f);
        tn_ctx_sync(ctx);
        check(ctx, "a look at the speed");
        end_if_stopped();
        done++;
    }
    close_feed(&f);
    steps = (int64_t)(minutes * 60 * (double)(done - warm) / (now() - start) * 0.95);
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
    model_name(&r->m.desc, name, sizeof name);
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
    if (r->device) say(j, "\nmachine: %s, GPU %lld, %.0f Gflop/s in a matrix product\n",
                       machine_name(r->m.ctx, name, sizeof name), (long long)r->s->device, r->peak / 1e9);
    else say(j, "\nmachine: %s (%s), %d thread%s, %.0f Gflop/s in a matrix product\n", tn_ctx_backend_name(r->m.ctx),
             tn_ctx_simd_name(r->m.ctx), tn_ctx_threads(r->m.ctx), tn_ctx_threads(r->m.ctx) == 1 ? "" : "s", r->peak / 1e9);
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
    if (why) fail("%s", why);
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
    if (tn_ctx_create(&r->m.ctx, desc, why) != TN_OK) fail("--backend %s: %s", desc->backend->name, why);
    r->device = !desc->backend->host;
    read_data(r, tokenizer);
    model_of(r->m.ctx, r->m.desc.vocab, &r->m.desc);
    check_data(r);
    draw_beginnings(r);
    end_if_stopped();
    r->ids = (int32_t *)room((size_t)(r->s->batch * r->m.desc.context), sizeof *r->ids);
    r->targets = (int32_t *)room((size_t)(r->s->batch * r->m.desc.context), sizeof *r->targets);
}

/* The notes of a checkpoint of this format. *look: a context of its own, which closes it. */
tn_safetensors *open_checkpoint(const char *path, tn_ctx **look)
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
void start_run(run *r, bool again)
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
    open_feed(r, &r->m, r->optim, &r->feed);
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

void resume_run(run *r)
{
    static const char *const allowed[] = {"resume", "data", "threads", "device", "recompute", "stop-at"};
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
    open_feed(r, &r->m, r->optim, &r->feed);
    r->flops = tn_transformer_cost_of(&r->m.desc, r->m.desc.context).training;
    r->config_json = config_json(&r->m);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->data.hash);
    if (strcmp(hash, note_of(st, r->saved, "tn.data")))
        fail("the tokens of %s are not those that %s was trained on", s->data.path[0], r->saved);
    machine_name(r->m.ctx, machine, sizeof machine);
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
