/* begin.c - tn train: a run begins, resumes, or continues from another run's checkpoint */
#include "train.h"
#include "names.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The embedding's learning rate divided by AdamW's. A row has a gradient in few steps only, so it takes longer ones: 15
   times as long for a table whose entries have RMS 1. (nats per byte after 1M tokens, 489 steps: 0.968 with factor 1 and
   twice the tokens, 0.929 with 10, 0.909 with 15 and AdamW's rate times 2.5.) A tied table, which is also the unembedding,
   takes 4 times as long ones (docs/measurements.md). rate: whether AdamW's is above 0. */
static double embedding_scale(const run *r, const model *m, double adam_lr, bool rate)
{
    tn_tensor    *table = m->net.embed.w;
    const int64_t width = table->shape[1], rows = 65536 / width + 1;    /* read at a time */
    const int64_t all = r->planned ? 1 : table->shape[0];               /* of a plan only the memory counts */
    double        sum = 0;
    if (r->s->embed_lr >= 0) return r->s->embed_lr / adam_lr;
    if (!rate || m->desc.tied) return rate ? 4 : 0;
    double *w = (double *)allocate((size_t)(rows * width), sizeof *w);
    for (int64_t from = 0; from < all; from += rows) {
        const int64_t to = from + rows < all ? from + rows : all, n = (to - from) * width;
        if (tn_read(tn_slice(table, 0, from, to), TN_F64, w, n) == TN_OK) for (int64_t i = 0; i < n; i++) sum += w[i] * w[i];
    }
    free(w);
    return 15 * sqrt(sum / (double)tn_tensor_count(table));
}

/* The embedding's weight decay divided by that of the rest. Of a model without norms only the matrices decay: rows of rare
   tokens would shrink to nothing between the steps that have a gradient for them. */
static double embedding_decay(const settings *s, bool no_norm, double decay)
{
    if (s->embed_decay < 0) return no_norm ? 0 : 1;
    if (s->embed_decay > 0 && decay == 0)
        usage_error("--embed-decay is %g, expected 0 or auto: --weight-decay is 0", s->embed_decay);
    return decay > 0 ? s->embed_decay / decay : 0;
}

/* The rates of the parameters, as multiples of those of the desc, none of which is 0. */
static void set_rates(run *r, const model *m, const tn_optim_desc *desc)
{
    const bool muon = desc->kind == TN_OPTIM_MUON, rate = r->s->lr != 0, adam_rate = muon ? r->s->adam_lr > 0 : rate;
    for (int64_t i = 0; i < tn_params_count(m->params); i++) {
        tn_param *p = tn_params_at(m->params, i);
        if (p->adamw || p->value->rank < 2 ? !adam_rate : !rate) p->lr_scale = 0;
    }
    tn_params_set_scales(m->params, "embed.w", embedding_scale(r, m, muon ? desc->adam_lr : desc->lr, adam_rate),
                         embedding_decay(r->s, m->desc.no_norm, desc->weight_decay));
}

enum { BUCKETS = 8 };               /* about as many as a plan sends; in a training they have 2^20 numbers */

int64_t planned_bucket(const settings *s, tn_params *params)
{
    double all = 0, matrix = 0;                             /* the largest one of Muon, which one process gets */
    for (int64_t i = 0; i < tn_params_count(params); i++) {
        const tn_param *p = tn_params_at(params, i);
        const double    n = (double)tn_tensor_count(p->value);
        all += n;
        if (!s->optimiser && !p->adamw && p->value->rank >= 2) matrix = fmax(matrix, n);
    }
    if (s->share_moments) all += matrix * (double)tn_comm_size(tn_params_ctx(params));
    return (int64_t)fmin(fmax(all / BUCKETS, 1 << 20), 1e18);
}

void make_model(run *r, tn_ctx *ctx, model *m, tn_optim **optim)
{
    tn_optim_desc desc;
    m->ctx = ctx;
    m->params = tn_params_create(ctx);
    tn_transformer_init(m->params, "", &m->desc, &m->net);
    check_ctx(ctx, "the model");
    set_optim_desc(r->s, m->desc.no_norm, &desc);
    if (r->planned) desc.bucket = planned_bucket(r->s, m->params);
    set_rates(r, m, &desc);
    *optim = tn_optim_create(m->params, &desc);
    check_ctx(ctx, "the model");
}

/* The number of steps that fit into so many minutes, estimated by training a copy of the model for two seconds, or for as
   long as the training takes if that is shorter. */
static int64_t steps_in_minutes(run *r, double minutes, const tn_desc *desc)
{
    model     m;
    tn_desc   silent = *desc;
    tn_optim *optim;
    tn_ctx   *ctx;
    feed      f;
    const int64_t warm = r->device ? 3 : 2;           /* the first two allocate, the third may be captured */
    int64_t   done = 0, unit = 1;
    double    start = 0;
    memset(&m, 0, sizeof m);
    m.desc = r->m.desc;
    silent.log = NULL;
    if (tn_ctx_create(&silent, &ctx, NULL) != TN_OK) fail("a context for measuring the speed cannot be created");
    make_model(r, ctx, &m, &optim);
    open_feed(r, &m, optim, &f);
    while (done < warm + 2 || now() - start < fmin(2, 60 * minutes)) {
        if (done == warm) start = now();
        launch_step(r, &f);
        forget_steps(&f);
        tn_ctx_sync(ctx);
        check_ctx(ctx, "measuring the speed");
        end_if_stopped();
        done++;
    }
    close_feed(&f);
    int64_t steps = (int64_t)(minutes * 60 * (double)(done - warm) / (now() - start) * 0.95);
    tn_ctx_destroy(ctx);
    while (steps / unit >= 100) unit *= 10;           /* to two digits: the estimate has no more */
    return steps / unit * unit > 0 ? steps / unit * unit : 1;
}

/* With --val all of the text is trained on. */
static double held_out_share(const settings *s) { return s->val.count ? 0 : s->held_out; }

void load_corpus(corpus *c, tn_ctx *ctx, const tn_tokenizer *t, int64_t vocab, const settings *s)
{
    corpus held;
    load_files(c, ctx, t, vocab, &s->data, "--data", (split_kind)s->split, held_out_share(s));
    if (!s->val.count) return;
    load_files(&held, ctx, t, vocab, &s->val, "--val", (split_kind)s->split, 1);
    replace_held_out(c, &held);
}

/* Of the files that do not exist 0. */
static int64_t data_bytes(const settings *s)
{
    const file_list *lists[2];
    struct stat      f;
    int64_t          bytes = 0;
    lists[0] = &s->data, lists[1] = &s->val;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < lists[k]->count; i++) if (stat(lists[k]->path[i], &f) == 0) bytes += (int64_t)f.st_size;
    return bytes;
}

/* Whether a file is on a disk: not a pipe, not a device, and not one that a system makes up while it is read. */
static bool is_on_disk(const char *path)
{
    static const char *const made_up[] = {"/proc/", "/sys/", "/dev/"};
    struct stat s;
    char        full[PATH_ROOM + 1];
    if (stat(path, &s) != 0 || !S_ISREG(s.st_mode) || !realpath(path, full)) return false;
    for (int k = 0; k < 3; k++) if (!strncmp(full, made_up[k], strlen(made_up[k])) && strncmp(full, "/dev/shm/", 9)) return false;
    return true;
}

char *unfit_data(const settings *s, const char *from, bool of_run)
{
    enum { UNNOTED = 256000000 };
    const int64_t bytes = data_bytes(s), files = s->data.count + s->val.count;
    for (int64_t i = 0; i < files; i++) {
        const char *path = i < s->data.count ? s->data.path[i] : s->val.path[i - s->data.count];
        if (!is_on_disk(path)) return format_text("%s, which %s names, is not a file on a disk", path, from);
    }
    if (s->data_bytes && bytes != s->data_bytes)
        return format_text("%s%s %lld bytes, expected %lld: the text is not that which %s was made from", s->data.path[0],
                           files > 1 ? " and the others have" : " has", (long long)bytes, (long long)s->data_bytes, from);
    if (!s->data_bytes && of_run && bytes > UNNOTED)
        return format_text("%s%s %lld bytes, expected at most 256 MB, as %s does not note how large its text is",
                           s->data.path[0], files > 1 ? " and the others have" : " has", (long long)bytes, from);
    return NULL;
}

/* Whether all of the data are on the command line. */
static bool all_named(const run *r) { return r->data_named && (r->val_named || !r->s->val.count); }

static void read_data(run *r, const char *tokenizer)
{
    const settings *s = r->s;
    tn_ctx         *ctx = r->m.ctx;
    if (are_shards(&s->data, "--data")) {
        int64_t vocab = s->vocab;
        if (tokenizer) {
            r->m.tokenizer = open_tokenizer(ctx, tokenizer);
            if (vocab && vocab != tn_tokenizer_count(r->m.tokenizer))
                fail("--vocab is %lld, expected %lld, the number of tokens of %s", (long long)vocab,
                     (long long)tn_tokenizer_count(r->m.tokenizer), tokenizer);
            vocab = tn_tokenizer_count(r->m.tokenizer);
        }
        if (!vocab) usage_error("no vocabulary is given for the token shards, expected --tokenizer FILE or --vocab N");
        r->m.desc.vocab = vocab;
    } else {
        size_t            bytes;
        char             *text = read_texts(&s->data, &bytes);
        tn_tokenizer_train_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.separator = STORY_MARK;
        end_if_stopped();
        if (!tokenizer && s->vocab) {
            journal_print(&r->journal, "training a tokenizer of %lld tokens\n", (long long)s->vocab);
            r->m.tokenizer = tn_tokenizer_train(ctx, text, held_out_start(text, bytes, held_out_share(s)), s->vocab, &desc);
            check_ctx(ctx, "training the tokenizer");
            end_if_stopped();
        } else r->m.tokenizer = open_tokenizer(ctx, tokenizer);
        r->m.desc.vocab = tn_tokenizer_count(r->m.tokenizer);
        if (s->vocab && r->m.desc.vocab != s->vocab && tokenizer)
            fail("--vocab is %lld, expected %lld, the number of tokens of %s", (long long)s->vocab,
                 (long long)r->m.desc.vocab, tokenizer);
        if (s->vocab && r->m.desc.vocab != s->vocab)
            fail("--vocab is %lld, but the text gives only %lld tokens: use --vocab %lld, or more text", (long long)s->vocab,
                 (long long)r->m.desc.vocab, (long long)r->m.desc.vocab);
        free(text);
    }
    load_corpus(&r->data, ctx, r->m.tokenizer, r->m.desc.vocab, s);
}

static void check_data(const run *r)
{
    const int64_t T = r->m.desc.context;
    const char   *others = r->s->data.count > 1 ? " and the others" : "";
    if (r->data.train_count < T + 1)
        fail("%s%s: %lld tokens to train on (%.0f%% of the text), expected at least --context + 1 = %lld: use more text, or "
             "a smaller --context", r->s->data.path[0], others, (long long)r->data.train_count,
             100 * (1 - held_out_share(r->s)), (long long)T + 1);
    if (r->data.held_count < 2)
        fail("%s%s: %lld tokens are held out, expected at least 2: use more text%s",
             r->s->val.count ? r->s->val.path[0] : r->s->data.path[0], r->s->val.count ? "" : others,
             (long long)r->data.held_count, r->s->val.count ? "" : ", or a larger --held-out");
}

static void print_facts(run *r)
{
    const corpus *c = &r->data;
    char          name[128];
    journal      *j = &r->journal;
    model_name(&r->m.desc, name, sizeof name);
    journal_print(j, "model: %s, %lld parameters, %.3g Mflop per token forward, %.3g with backward\n", name,
                  (long long)tn_params_elements(r->m.params), r->flops / 3e6, r->flops / 1e6);
    journal_print(j, "data: %lld tokens to train on, %lld held out, vocabulary %lld", (long long)c->train_count,
                  (long long)c->held_count, (long long)r->m.desc.vocab);
    if (c->train_bytes > 0 && c->held_bytes > 0)
        journal_print(j, "; %.0f and %.0f bytes, %.2f bytes per token, %.0f held-out bytes replaced by [UNK]",
                      c->train_bytes, c->held_bytes, c->train_bytes / (double)c->train_count, c->held_unknown);
    else if (c->train_bytes > 0)
        journal_print(j, "; %.0f bytes to train on, %.2f bytes per token", c->train_bytes,
                      c->train_bytes / (double)c->train_count);
    else if (c->held_bytes > 0)
        journal_print(j, "; %.0f held-out bytes, %.0f of them replaced by [UNK]", c->held_bytes, c->held_unknown);
    if (!(c->held_bytes > 0))
        journal_print(j, "; nats per byte are unknown: a shard does not contain the bytes of its text");
    if (r->feed.teacher) {
        model_name(&r->feed.teacher->desc, name, sizeof name);
        journal_print(j, "\nteacher: %s, %s, %lld parameters", r->s->teacher, name,
                      (long long)tn_params_elements(r->feed.teacher->params));
    }
    if (r->s->sample_every && !*r->s->prompt && r->m.start_count)
        journal_print(j, "\nsamples: each begins with a word of the text, which has no " STORY_MARK
                      ": one [BOS] was put at its start");
    if (r->device)
        journal_print(j, "\nmachine: %s, GPU %lld, %.0f Gflop/s in matrix products\n",
                      machine_name(r->m.ctx, name, sizeof name), (long long)r->s->device, r->peak / 1e9);
    else
        journal_print(j, "\nmachine: %s (%s), %d thread%s, %.0f Gflop/s in matrix products\n", tn_ctx_backend_name(r->m.ctx),
                      tn_ctx_simd_name(r->m.ctx), tn_ctx_threads(r->m.ctx), tn_ctx_threads(r->m.ctx) == 1 ? "" : "s",
                      r->peak / 1e9);
    journal_print(j, "steps: %lld of %lld x %lld x %lld tokens, %.3g in total\n", (long long)r->steps,
                  (long long)r->s->accumulate, (long long)r->s->batch, (long long)r->m.desc.context,
                  (double)r->steps * (double)(r->s->accumulate * r->s->batch * r->m.desc.context));
    if (r->s->sample_every && *r->s->prompt && r->m.tokenizer) report_unknown(&r->m, r->s->prompt);
}

/* Counting more tokens would take more than a gigabyte of tables. */
enum { NGRAM_TOKENS = 4000000 };

bool baseline_losses(const corpus *c, const corpus *on, int64_t vocab, double nats[NGRAM_MAX + 1])
{
    const int64_t n = c->train_count < NGRAM_TOKENS ? c->train_count : NGRAM_TOKENS;
    int32_t      *some = (int32_t *)allocate((size_t)n, sizeof *some);
    copy_tokens(&c->train, 0, n, some);
    bool fits = ngram_losses(some, n, on->held, on->held_count, vocab, nats, stop_signal);
    free(some);
    if (!fits) warn("out of memory: the n-gram baseline is left out");
    return fits && !stop_signal();
}

static void print_baseline(run *r)
{
    const corpus *c = &r->data;
    double        nats[NGRAM_MAX + 1];
    char          three[64], five[64];
    if (!baseline_losses(c, c, r->m.desc.vocab, nats)) return;
    r->journal.trigram = nats[3];
    r->journal.fivegram = nats[5];
    per_byte_text(c, nats[3], three, sizeof three);
    per_byte_text(c, nats[5], five, sizeof five);
    journal_print(&r->journal, "n-grams (interpolated Kneser-Ney%s): trigram %.4f nats per token%s; 5-gram %.4f nats per "
                  "token%s\n", c->train_count > NGRAM_TOKENS ? ", first 4M tokens" : "", nats[3], three, nats[5], five);
}

static void log_start(run *r)
{
    const corpus *c = &r->data;
    buffer        b = {0};
    buffer_print(&b, "\"parameters\":%lld,\"flops_token\":%.6g,\"train_tokens\":%lld,\"held_tokens\":%lld,"
                 "\"vocab\":%lld", (long long)tn_params_elements(r->m.params), r->flops, (long long)c->train_count,
                 (long long)c->held_count, (long long)r->m.desc.vocab);
    if (c->train_bytes > 0) buffer_print(&b, ",\"train_bytes\":%.0f", c->train_bytes);
    if (c->held_bytes > 0)
        buffer_print(&b, ",\"held_bytes\":%.0f,\"held_unknown\":%.0f", c->held_bytes, c->held_unknown);
    if (isfinite(r->journal.trigram))
        buffer_print(&b, ",\"trigram\":%.9g,\"fivegram\":%.9g", r->journal.trigram, r->journal.fivegram);
    journal_line(&r->journal, "%s", b.data);
    free(b.data);
}

/* In a text without marks there is one [BOS], at its start, and no model learns what follows it. Samples then begin with
   words of the text, drawn by the seed. */
static void draw_start_tokens(run *r)
{
    const corpus       *c = &r->data;
    const tn_tokenizer *t = r->m.tokenizer;
    const bool          bytes = t && tn_tokenizer_is_bytes(t);
    int64_t             begun = 0;
    uint64_t            state = (uint64_t)r->s->seed;
    if (!t) return;
    for (int64_t i = 0; i < c->train_count && begun < 2; i++) begun += token_at(&c->train, i) == tn_tokenizer_bos(t);
    for (int64_t i = 0; begun < 2 && i < 100 * START_TOKENS && r->m.start_count < START_TOKENS; i++) {
        int64_t at = 1 + (int64_t)(next_uniform(&state) * (double)(c->train_count - 1));
        int32_t id = token_at(&c->train, at), before = token_at(&c->train, at - 1);
        bool    word = bytes ? (before == ' ' || before == '\n') && id > ' ' && id < 0xF5
                             : strncmp(tn_tokenizer_token(t, id), "##", 2) != 0;
        if (word && id != tn_tokenizer_bos(t) && id != tn_tokenizer_eos(t) && id != tn_tokenizer_unk(t))
            r->m.start[r->m.start_count++] = id;
    }
}

/* Makes the path of an option independent of the current folder. */
static void make_absolute(const char **path)
{
    char full[PATH_ROOM + 1];
    if (!realpath(*path, full)) return;
    free((void *)*path);
    *path = copy_text(full);
}

static void make_all_absolute(const file_list *files)
{
    for (int64_t i = 0; i < files->count; i++) make_absolute(&files->path[i]);
}

/* The files of a run that is resumed. */
static void check_files_exist(const file_list *files, const char *name, const char *folder)
{
    for (int64_t i = 0; i < files->count; i++)
        if (access(files->path[i], F_OK) != 0)
            fail("%s: %s; if it was moved: tn train --resume %s --%s FILE", files->path[i], strerror(errno), folder, name);
}

/* The data of settings that others may have written. */
static void check_named(const run *r)
{
    const settings *s = r->s;
    const bool      of_run = s->resume || s->from;
    char           *why = all_named(r) || !(of_run || s->config) ? NULL
                        : unfit_data(s, s->resume ? r->folder : s->from ? s->from : s->config, of_run);
    if (why) fail("%s; to train on it, name it: %s", why, s->val.count ? "--data FILE --val FILE" : "--data FILE");
}

/* What a new and a resumed run have in common once the settings are known: data and the desc of the model. */
static void build_run(run *r, const tn_desc *desc, const char *tokenizer)
{
    tn_desc with = *desc;
    char    why[256];
    with.comm = other_processes();
    if (with.comm && r->s->batch % with.comm->size)
        usage_error("--batch is %lld, expected a multiple of %d, the number of processes", (long long)r->s->batch,
                    with.comm->size);
    if (tn_ctx_create(&with, &r->m.ctx, why) != TN_OK) fail("--backend %s: %s", desc->backend->name, why);
    r->device = !desc->backend->host;
    check_named(r);
    read_data(r, tokenizer);
    set_model_desc(r->m.ctx, r->m.desc.vocab, &r->m.desc);
    check_data(r);
    draw_start_tokens(r);
    end_if_stopped();
    r->texts = r->s->batch / tn_comm_size(r->m.ctx);
    r->ids = (int32_t *)allocate((size_t)(r->texts * r->m.desc.context), sizeof *r->ids);
    r->targets = (int32_t *)allocate((size_t)(r->texts * r->m.desc.context), sizeof *r->targets);
}

static void check_no_run(const char *folder, const char *config)
{
    if (is_file(config))
        fail("--out: %s already holds a run, expected a new folder; to continue that run: tn train --resume %s", folder,
             folder);
}

/* Whether a run that was killed before it wrote its settings may have left this. */
static bool is_left_over(const char *folder, const char *name)
{
    struct stat s;
    if (!strcmp(name, "config.txt.tn1.tmp")) return true;
    if (strcmp(name, "log.jsonl")) return false;
    char *path = join_path(folder, name);
    bool  empty = lstat(path, &s) == 0 && S_ISREG(s.st_mode) && s.st_size == 0;
    free(path);
    return empty;
}

/* --out must be a new folder, an empty one, or one in which a run was killed before it wrote its settings. */
static void check_folder(const char *folder)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    if (!d && errno != ENOENT) fail("%s: %s", folder, strerror(errno));
    while (d && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !is_left_over(folder, e->d_name))
            fail("--out: %s contains %s, expected a new or empty folder", folder, e->d_name);
    if (d) closedir(d);
}

/* The tokenizer of a new run: --tokenizer, or the one beside the checkpoint that it continues from, or beside the teacher. */
static char *find_tokenizer(const settings *s)
{
    if (!s->from && !s->teacher) return s->tokenizer ? copy_text(s->tokenizer) : NULL;
    char *file = s->from ? copy_text(s->from) : find_weights(s->teacher);
    char *folder = folder_of(file), *path = join_path(folder, "tokenizer.json");
    free(folder);
    free(file);
    if (is_file(path)) return path;
    free(path);
    return NULL;
}

/* Reads weights, moments and step of another run's checkpoint. */
static void continue_from(run *r, const char *path)
{
    tn_checkpoint_read(r->optim, tn_source_path(path));
    check_ctx(r->m.ctx, "checkpoint");
    if (r->step >= r->steps)
        fail("--steps is %lld, and %s is of step %lld already, expected a larger --steps", (long long)r->steps, path,
             (long long)r->step);
    journal_print(&r->journal, "continuing from %s\n", path);
}

/* The parameters of the first process: machines that differ may have drawn others in the last bits. */
static void share_parameters(run *r)
{
    for (int64_t i = 0; i < tn_params_count(r->m.params); i++) tn_comm_broadcast(tn_params_at(r->m.params, i)->value, 0);
    check_ctx(r->m.ctx, "the model");
}

/* The settings, the tokenizer and the model of a new run. */
static void write_folder(run *r, const char *config, const char *config_json_file)
{
    write_file(config, r->config.data, r->config.bytes);     /* first: it makes the folder a run, which --resume starts */
    if (r->m.tokenizer && !tn_tokenizer_is_bytes(r->m.tokenizer)) {
        char *file = join_path(r->folder, "tokenizer.json");
        save_tokenizer(file, BY_NAME, r->m.tokenizer, r->m.ctx);
        free(file);
    }
    write_file(config_json_file, r->config_json, strlen(r->config_json));
}

/* The settings and the data of a run are the same in all its processes. */
static void check_same_run(const run *r)
{
    char more[96];
    check_alike(r->m.ctx, r->config.data, r->config.bytes, "settings");
    snprintf(more, sizeof more, "%d %lld", r->s->share_moments, (long long)r->s->stop_at);
    check_alike(r->m.ctx, more, strlen(more), "--share-moments or --stop-at");
    snprintf(more, sizeof more, "%016llx", (unsigned long long)r->data.hash);
    check_alike(r->m.ctx, more, strlen(more), "data");
}

/* Fails unless the command line names the data, or their tokens have the hash of a checkpoint or of config.txt: the author of
   these settings may never have had the files that they name. hash: NULL: there is none */
static void check_trained(const run *r, const char *hash, const char *path)
{
    const char *name_it = r->s->val.count ? "--data FILE --val FILE" : "--data FILE";
    char        ours[32];
    if (all_named(r)) return;
    snprintf(ours, sizeof ours, "%016llx", (unsigned long long)r->data.hash);
    if (!hash) fail("%s has no hash of its data; to train on %s, name it: %s", path, r->s->data.path[0], name_it);
    if (strncmp(hash, ours, 16))
        fail("the tokens of %s%s differ from those that %s was made from; to train on them, name them: %s", r->s->data.path[0],
             r->s->val.count ? " or of the held-out file" : "", path, name_it);
}

/* config.txt, and its note of the data: a run that is killed before its first checkpoint has it nowhere else. */
static void make_config(run *r)
{
    r->config.bytes = 0;
    write_config(&train_usage, &r->config);
    r->config.bytes--;                                /* DATA_MARK has the newline */
    buffer_print(&r->config, DATA_MARK "%016llx %lld\n", (unsigned long long)r->data.hash, (long long)data_bytes(r->s));
}

/* Whether the checkpoint of --from fits the model and the data. Sets the step. */
static void check_from(run *r)
{
    const char     *from = r->s->from;
    tn_ctx         *look;
    tn_safetensors *st = open_checkpoint(from, &look);
    check_size(&r->m.desc, st, from);
    check_trained(r, checkpoint_note(st, from, "tn.data"), from);
    r->step = checkpoint_count(st, from, "tn.step");
    tn_ctx_destroy(look);
}

/* again: the run was killed after it wrote config.txt and before its first checkpoint. */
void start_run(run *r, bool again)
{
    settings *s = &train_settings;
    tn_desc   desc;
    char     *config = join_path(r->folder, "config.txt"), *path = join_path(r->folder, "config.json");
    if (!again && is_first()) {
        check_no_run(r->folder, config);
        check_folder(r->folder);
    }
    make_all_absolute(&s->data);
    make_all_absolute(&s->val);
    if (s->tokenizer) make_absolute(&s->tokenizer);
    if (s->from) make_absolute(&s->from);
    if (s->teacher) make_absolute(&s->teacher);
    char *tokenizer = find_tokenizer(s);
    set_ctx_desc(s, &desc);
    r->peak = is_first() ? measure_peak(&desc) : NAN;
    build_run(r, &desc, tokenizer);
    free(tokenizer);
    if (*s->prompt && !r->m.tokenizer)
        usage_error("--prompt is given, expected --tokenizer FILE as well: without it, runs of token shards have no samples");
    int64_t per_step = s->batch * s->accumulate * r->m.desc.context;
    if (s->from) check_from(r);
    if (again) check_trained(r, *s->data_hash ? s->data_hash : NULL, config);
    else if (s->config && *s->data_hash) check_trained(r, s->data_hash, s->config);
    if (s->minutes > 0) {
        const int64_t steps = is_first() ? steps_in_minutes(r, s->minutes, &desc) : 0;
        s->steps = r->step + (int64_t)of_first(r->m.ctx, (double)steps);
        journal_print(&r->journal, "%g minutes are about %lld steps; from now on that number is the setting\n", s->minutes,
                      (long long)(s->steps - r->step));
        s->minutes = 0;
    } else if (!s->steps) s->steps = (s->tokens + per_step - 1) / per_step;
    s->tokens = 0;
    r->steps = s->steps;
    make_model(r, r->m.ctx, &r->m, &r->optim);
    open_feed(r, &r->m, r->optim, &r->feed);
    if (s->from) continue_from(r, s->from);
    else share_parameters(r);
    r->config_json = config_json(&r->m);
    make_config(r);
    check_same_run(r);
    r->flops = tn_transformer_cost_of(&r->m.desc, r->m.desc.context).training;
    end_if_stopped();
    if (is_first()) make_folder(r->folder);
    if (!again) {                                     /* another process may have begun a run there in the meantime */
        journal_lock(&r->journal, r->folder);
        if (is_first()) check_no_run(r->folder, config);
    }
    if (is_first()) write_folder(r, config, path);
    free(config);
    free(path);
    print_facts(r);
    if (!s->no_baseline && is_first()) print_baseline(r);
    journal_start(&r->journal);
    if (s->audit && is_first()) chain_start(&r->journal.chain);
    log_start(r);
    link_start(r);
    save_or_stop(r);
    link_checkpoint(r);
}

static bool has_weights(const run *r)
{
    char      *file = join_path(r->folder, "model.safetensors");
    const bool there = is_file(file);
    free(file);
    return there;
}

/* A run has a checkpoint before its first step: without one, a run that has trained has lost it. */
static void check_not_trained(run *r, const char *config)
{
    const bool done = has_weights(r);
    if (done || journal_has_steps(&r->journal))
        fail("--resume: %s holds no checkpoint, expected step-NNNNNNNN.safetensors, but %s: nothing was changed. To train "
             "it again from the beginning: tn train --config %s --out NEW", r->folder,
             done ? "model.safetensors, so the run is done" : "its log.jsonl has steps", config);
}

static void check_resume_options(const char *config)
{
    static const char *const allowed[] = {"resume", "data", "val", "threads", "device", "recompute", "stop-at",
                                          "comm", "share-moments"};
    for (int64_t i = 0; i < train_usage.count; i++) {
        const option *o = &train_usage.options[i];
        bool          fine = !o->given;
        for (size_t k = 0; k < sizeof allowed / sizeof *allowed; k++) fine = fine || !strcmp(o->name, allowed[k]);
        if (!fine)
            usage_error("--%s cannot be changed by --resume, which continues the same run. To start another one: tn train "
                        "--config %s --out NEW, or tn train --from CHECKPOINT --out NEW", o->name, config);
    }
}

static void check_tokens(const run *r, const tn_safetensors *st, const char *path)
{
    char hash[32];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->data.hash);
    if (strcmp(hash, checkpoint_note(st, path, "tn.data")))
        fail("--data: the tokens of %s differ, expected those that %s was trained on", r->s->data.path[0], path);
}

/* A resumed run has the tokens of its checkpoint; another machine's results differ in their last bits. */
static void check_resumed(run *r, const tn_safetensors *st)
{
    char machine[128];
    check_tokens(r, st, r->saved);
    machine_name(r->m.ctx, machine, sizeof machine);
    if (strcmp(machine, checkpoint_note(st, r->saved, "tn.machine")))
        warn("%s was made with %s, and this is %s: results will differ in their last bits", r->saved,
             checkpoint_note(st, r->saved, "tn.machine"), machine);
}

/* Sets the step, which is the same in all processes; returns the number of lines that the log had then. */
static int64_t read_progress(run *r, const tn_safetensors *st)
{
    r->step = checkpoint_count(st, r->saved, "tn.step");
    if (r->step > r->steps) fail("%s is of step %lld, expected at most %lld", r->saved, (long long)r->step, (long long)r->steps);
    if (any_of_all(r->m.ctx, of_first(r->m.ctx, (double)r->saved_step) != (double)r->saved_step))
        fail("%s: the first process, or another, resumes from another checkpoint, expected one folder for all", r->saved);
    return checkpoint_count(st, r->saved, "tn.log_lines");
}

void read_run_config(run *r, const char *config)
{
    size_t bytes;
    char  *text = read_file(config, BY_NAME, &bytes);
    read_settings(text, bytes, config);
    buffer_add(&r->config, text, bytes);
    free(text);
}

/* The model and the optimiser of a run as they were before its first step, of the size of a checkpoint. */
static void rebuild(run *r, const tn_desc *desc, const tn_safetensors *st, const char *path)
{
    char *tokenizer = join_path(r->folder, "tokenizer.json");
    build_run(r, desc, is_file(tokenizer) ? tokenizer : NULL);
    r->steps = r->s->steps;
    check_size(&r->m.desc, st, path);
    make_model(r, r->m.ctx, &r->m, &r->optim);
    open_feed(r, &r->m, r->optim, &r->feed);
    r->flops = tn_transformer_cost_of(&r->m.desc, r->m.desc.context).training;
    r->config_json = config_json(&r->m);
    free(tokenizer);
}

/* The SIMD level in the name of a machine, such as "cpu avx2"; of a GPU none. */
static tn_simd simd_of(const char *machine)
{
    static const char *const names[] = {"cpu plain", "cpu avx2", "cpu avx512", "cpu neon"};
    for (int k = 0; k < 4; k++) if (!strcmp(machine, names[k])) return (tn_simd)(TN_SIMD_PLAIN + k);
    return TN_SIMD_AUTO;
}

void open_untrained(run *r, const char *like)
{
    settings       *s = &train_settings;
    tn_desc         desc;
    tn_ctx         *look;
    tn_safetensors *st = open_checkpoint(like, &look);
    s->keep_best = false;
    set_ctx_desc(s, &desc);
    if (!getenv("TN_SIMD")) desc.simd = simd_of(checkpoint_note(st, like, "tn.machine"));
    rebuild(r, &desc, st, like);
    check_tokens(r, st, like);
    r->peak = NAN;
    tn_ctx_destroy(look);
}

void close_run(run *r)
{
    free_corpus(&r->data);
    close_feed(&r->feed);
    free(r->ids);
    free(r->targets);
    free(r->config.data);
    free(r->config_json);
    free(r->saved);
    close_model(&r->m);
}

void resume_run(run *r)
{
    settings  *s = &train_settings;
    char      *config = join_path(r->folder, "config.txt");
    int64_t   *steps;
    const bool moved = s->data.count > 0 || s->val.count > 0;
    tn_desc    desc;
    tn_ctx    *look;
    check_resume_options(config);
    if (!is_file(config)) fail("--resume: %s holds no run, expected %s", r->folder, config);
    journal_lock(&r->journal, r->folder);
    read_run_config(r, config);
    int64_t count = list_checkpoints(r->folder, &steps);
    free(steps);
    r->saved = newest_checkpoint(r->folder, &r->saved_step);
    if (!count) {                                     /* killed before the first one: starts from the beginning */
        check_not_trained(r, config);
        free(config);
        start_run(r, true);
        return;
    }
    tn_safetensors *st = open_checkpoint(r->saved, &look);
    if (!same_settings(checkpoint_note(st, r->saved, "tn.config"), r->config.data))
        fail("%s was changed after %s was written, expected the same settings", config, r->saved);
    check_files_exist(&s->data, "data", r->folder);
    check_files_exist(&s->val, "val", r->folder);
    set_ctx_desc(s, &desc);
    r->peak = is_first() ? measure_peak(&desc) : NAN;
    rebuild(r, &desc, st, r->saved);
    check_resumed(r, st);
    int64_t lines = read_progress(r, st);
    check_same_run(r);
    tn_checkpoint_read(r->optim, tn_source_path(r->saved));
    check_ctx(r->m.ctx, "checkpoint");
    tn_ctx_destroy(look);
    if (s->audit && is_first()) chain_start(&r->journal.chain);
    journal_resume(&r->journal, r->step, lines, r->step == r->steps && has_weights(r));
    if (is_first()) remove_partial_files(r->folder);         /* after locking: no process is writing one */
    if (moved && is_first()) {
        make_all_absolute(&s->data);
        make_all_absolute(&s->val);
        make_config(r);
        write_file(config, r->config.data, r->config.bytes);
    }
    journal_print(&r->journal, "resumed from %s\n", r->saved);
    print_facts(r);
    print_held_out_so_far(&r->journal);
    link_checkpoint(r);
    free(config);
}
