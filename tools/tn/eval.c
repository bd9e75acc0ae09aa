/* eval.c - tn eval: the loss of a model on texts, and on the held-out part of its run */
#include "train.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    file_list   files;
    const char *tokenizer, *logits;
    int64_t     threads, device, batch, context;
    int         backend, weights;
    bool        by_position, by_frequency, no_baseline;
} settings_of_eval = { .batch = AUTO_COUNT, .context = AUTO_COUNT };

#define OURS(field) (&settings_of_eval.field)
static option options[] = {
    FILES_ROW("data", OURS(files), "a text or a token shard; without one, the held-out part of the run", NEVER),
    FLAG_ROW("by-position", OURS(by_position), "also print the loss by the length of the context", NEVER),
    FLAG_ROW("by-frequency", OURS(by_frequency), "also print the loss by how frequent a token is in the training text",
             NEVER),
    TEXT_ROW("logits", OURS(logits), "FILE.npy", "write the logits of all predicted tokens, F32 [tokens-1,vocabulary]",
             NEVER),
    FLAG_ROW("no-baseline", OURS(no_baseline), "do not compute the n-gram baseline", NEVER),
    TEXT_ROW("tokenizer", OURS(tokenizer), "FILE", "a tokenizer.json; the default is the one beside the weights", NEVER),
    AUTO_COUNT_ROW("batch", OURS(batch), "windows per forward pass; auto: as in the run's training", 1, 1e9, NEVER),
    AUTO_COUNT_ROW("context", OURS(context), "tokens of a window; auto: the model's context, or for a file fewer if the "
                   "logits of one window need more than 1 GiB", 1, 1e9, NEVER),
    WORDS_ROW("weights", OURS(weights), WEIGHTS_WORDS, "round the weights, as tn generate --weights does", NEVER),
    WORDS_ROW("backend", OURS(backend), "auto|" BACKEND_WORDS, "auto: that of the run; reference: plain loops, slow; cuda: "
              "a GPU", NEVER),
    COUNT_ROW("device", OURS(device), "number of the GPU; 0, the first, is the default", 0, 1024, NEVER),
    AUTO_COUNT_ROW("threads", OURS(threads), "number of threads; auto: one per core", 1, 1024, NEVER),
};
#undef OURS

const usage eval_usage = {
    "eval", "RUN|CHECKPOINT [FILE...]", "the loss of a model on texts",
    "Prints the loss of a model on each file, and on all of them together: nats per token and per byte, and the perplexity "
    "e^(nats per token). Beside them is the loss of n-grams of the run's training text. Without a file it evaluates the "
    "held-out part of the run as the end of its training does, to the same digit.",
    "Every token has at least half a context before it, except at the beginning of a file. Bytes that [UNK] replaces cost "
    "ln 256 each; nats per byte of a token shard are unknown.",
    options, sizeof options / sizeof *options, INT_MAX, NULL
};

/* ---- the run of the model ------------------------------------------------------------------------------------- */

bool read_run_settings(const char *file)
{
    char *folder = folder_of(file), *config = join_path(folder, "config.txt");
    bool  found = is_file(config);
    if (found) {
        size_t bytes;
        char  *text = read_file(config, BY_NAME, &bytes);
        read_settings(text, bytes, config);
        free(text);
    }
    free(config);
    free(folder);
    return found;
}

/* The hash of the tokens that weights were trained on, a new string; NULL: the file has none. */
static char *trained_hash(const model *m, const char *file)
{
    tn_safetensors *st = tn_safetensors_open(m->ctx, tn_source_path(file));
    const char     *note = st ? tn_safetensors_metadata(st, "tn.data") : NULL;
    char           *hash = note ? copy_text(note) : NULL;
    check_ctx(m->ctx, "weights");
    tn_safetensors_close(st);
    return hash;
}

char *read_run_data(const model *m, const char *file, corpus *c)
{
    const file_list *lists[2];
    char             hash[32], *expected = trained_hash(m, file), *why = NULL;
    if (!expected) return format_text("%s does not say what it was trained on, so the text that its config.txt names is not read",
                                      file);
    lists[0] = &train_settings.data, lists[1] = &train_settings.val;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < lists[k]->count; i++)
            if (!why && !is_file(lists[k]->path[i])) why = format_text("the run's text %s no longer exists", lists[k]->path[i]);
    if (!train_settings.data.count) why = format_text("the config.txt of %s names no data", file);
    if (!why) why = unfit_data(&train_settings, file, true);
    if (!why) load_corpus(c, m->ctx, m->tokenizer, m->desc.vocab, &train_settings);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)c->hash);
    if (!why && strcmp(hash, expected)) {
        why = format_text("the tokens of the run's text %s differ, expected those that %s was trained on",
                          train_settings.data.path[0], file);
        free_corpus(c);
    }
    free(expected);
    return why;
}

/* ---- tables ------------------------------------------------------------------------------------------------------
   80 columns wide. A name that is longer than its column has a line of its own. */

enum { NAME_COLUMN = 27, NAME_BESIDE_GRAMS = 13 };

static void print_number(double v, const char *format, int width)
{
    char text[64];
    snprintf(text, sizeof text, format, v);
    print(" %*s", width, isnan(v) ? "-" : text);
}

static void print_heading(int name, bool grams)
{
    print("%-*s %8s %10s %10s %10s %9s", name, "", "tokens", "bytes", "nats/token", "perplexity", "nats/byte");
    print(grams ? " %7s %6s\n" : "\n", "trigram", "5-gram");
}

/* c: the file's tokens, as a held-out part; grams: nats per token of n-grams, or NULL. */
static void print_row(const char *name, int width, const corpus *c, double nats, const double *grams)
{
    if ((int)strlen(name) > width) print("%s\n", name), name = "";
    print("%-*s %8lld", width, name, (long long)(c->held_count - 1));
    print_number(c->held_bytes > 0 ? c->held_bytes : NAN, "%.0f", 10);
    print_number(nats, "%.6f", 10);                   /* enough digits to compare programs */
    print_number(exp(nats), "%.2f", 10);
    print_number(nats_per_byte(c, nats), "%.4f", 9);
    if (grams) print_number(grams[3], "%.4f", 7), print_number(grams[5], "%.4f", 6);
    print("\n");
    fflush(stdout);
}

/* Sums over all files: [context], by the number of tokens before the predicted one, less 1. */
typedef struct positions { double *nats; int64_t *tokens, context; } positions;

static void add_positions(positions *p, const scoring *s)
{
    double  *nats = (double *)allocate((size_t)p->context, sizeof *nats);
    int64_t *tokens = (int64_t *)allocate((size_t)p->context, sizeof *tokens), n = loss_by_position(s, nats, tokens);
    for (int64_t i = 0; i < n; i++) p->nats[i] += nats[i], p->tokens[i] += tokens[i];
    free(nats);
    free(tokens);
}

/* In classes of 1, 2, 3-4, 5-8, ... tokens. */
static void print_by_position(const positions *p)
{
    int64_t to;
    print("\n%-24s  %9s  %10s\n", "context", "tokens", "nats/token");
    for (int64_t from = 1; from <= p->context; from = to + 1) {
        double  nats = 0;
        int64_t count = 0;
        char    name[64];
        to = from == 1 ? 1 : 2 * (from - 1);
        if (to > p->context) to = p->context;
        for (int64_t i = from; i <= to; i++) nats += p->nats[i - 1], count += p->tokens[i - 1];
        snprintf(name, sizeof name, from == to ? "%lld" : "%lld-%lld", (long long)from, (long long)to);
        if (count) print("%-24s  %9lld  %10.4f\n", name, (long long)count, nats / (double)count);
    }
}

typedef struct ranked { int32_t id; int64_t count; } ranked;

static int more_frequent(const void *a, const void *b)
{
    const ranked *x = (const ranked *)a, *y = (const ranked *)b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The rank of each token by its frequency in the training text, from 0; -1: it does not occur there. */
static int32_t *frequency_ranks(const corpus *c, int64_t vocab)
{
    ranked  *list = (ranked *)allocate((size_t)vocab, sizeof *list);
    int32_t *rank = (int32_t *)allocate((size_t)vocab, sizeof *rank);
    for (int64_t i = 0; i < vocab; i++) list[i].id = (int32_t)i;
    for (int64_t i = 0; i < c->train_count; i++) list[token_at(&c->train, i)].count++;
    qsort(list, (size_t)vocab, sizeof *list, more_frequent);
    for (int64_t i = 0; i < vocab; i++) rank[list[i].id] = list[i].count ? (int32_t)i : -1;
    free(list);
    return rank;
}

enum { FREQUENCIES = 6 };               /* ranks 1-10, 11-100, ..., beyond 10000, and tokens that never occurred */
typedef struct frequencies { double nats[FREQUENCIES]; int64_t tokens[FREQUENCIES]; } frequencies;

static void add_frequencies(frequencies *f, const int32_t *rank, const scoring *s)
{
    for (int64_t i = 0; i + 1 < s->count; i++) {
        const int32_t r = rank[s->ids[i + 1]];
        const int     k = r < 0 ? 5 : r < 10 ? 0 : r < 100 ? 1 : r < 1000 ? 2 : r < 10000 ? 3 : 4;
        f->nats[k] += s->nats[i];
        f->tokens[k]++;
    }
}

static void print_by_frequency(const frequencies *f)
{
    static const char *const names[FREQUENCIES] = {
        "1-10", "11-100", "101-1000", "1001-10000", "above 10000", "not in the text"
    };
    int64_t all = 0;
    for (int k = 0; k < FREQUENCIES; k++) all += f->tokens[k];
    print("\n%-24s  %9s  %10s  %7s\n", "rank in training text", "tokens", "nats/token", "share");
    for (int k = 0; k < FREQUENCIES; k++)
        if (f->tokens[k])
            print("%-24s  %9lld  %10.4f  %6.2f%%\n", names[k], (long long)f->tokens[k], f->nats[k] / (double)f->tokens[k],
                  100 * (double)f->tokens[k] / (double)all);
}

/* ---- logits as .npy --------------------------------------------------------------------------------------------- */

typedef struct logit_file { atomic_file file; int64_t vocab; } logit_file;

static void store(logit_file *f, const void *src, size_t bytes)
{
    if (!atomic_store(&f->file, src, bytes)) fail("%s", f->file.why);
}

/* Says how large the file will be, and fails if the disk has less space. */
static logit_file *open_logits(const char *path, int64_t rows, int64_t vocab)
{
    logit_file   *f = (logit_file *)allocate(1, sizeof *f);
    const int64_t shape[2] = {rows, vocab};
    const double  bytes = 128 + 4 * (double)rows * (double)vocab;
    char         *folder = folder_of(path), *name = format_text("--logits %s", path);
    check_space(name, folder, bytes);
    print_to(stderr, "writing %lld x %lld logits, %.1f MB, to %s\n", (long long)rows, (long long)vocab, bytes / 1e6, path);
    f->vocab = vocab;
    if (!atomic_open(&f->file, path, BY_USER) || !store_npy_header(&f->file, "f4", 2, shape)) fail("%s", f->file.why);
    free(folder);
    free(name);
    return f;
}

static void store_logits(void *user, const float *rows, int64_t first, int64_t count)
{
    logit_file *f = (logit_file *)user;
    (void)first;                                      /* whole_loss goes from front to back */
    store(f, rows, sizeof *rows * (size_t)(count * f->vocab));
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

typedef struct evaluation {
    model        m;
    corpus       run;                   /* the run's tokens, if has_run             */
    bool         has_run, has_heading;
    int32_t     *rank;                  /* or NULL                                  */
    frequencies  frequency;
    positions    position;
    int64_t      context;               /* of a window                              */
    int          width;                 /* of the column of names                   */
    double       nats, grams[2];        /* sums over all files                      */
    corpus       all;                   /* their counts                             */
} evaluation;

static void evaluate(evaluation *e, const char *name, const corpus *c)
{
    double  grams[NGRAM_MAX + 1];
    bool    counted = false;
    scoring s = {0};
    if (c->held_count < 2) fail("%s has %lld tokens, expected at least 2", name, (long long)c->held_count);
    s.m = &e->m;
    s.name = name;
    s.ids = c->held;
    s.count = c->held_count;
    s.context = e->context;
    s.batch = settings_of_eval.batch ? settings_of_eval.batch : train_settings.batch;
    if (e->rank) s.nats = (double *)allocate((size_t)s.count, sizeof *s.nats);
    if (settings_of_eval.logits) {
        s.logits = store_logits;
        s.user = open_logits(settings_of_eval.logits, s.count - 1, e->m.desc.vocab);
    }
    double nats = whole_loss(&s);
    if (!isfinite(nats)) fail("%s: the loss is %g, expected a finite number", name, nats);
    if (s.user) {
        logit_file *f = (logit_file *)s.user;
        if (!atomic_commit(&f->file)) fail("%s", f->file.why);
        free(f);
    }
    if (e->has_run && !settings_of_eval.no_baseline)
        counted = baseline_losses(&e->run, c->held, c->held_count, 0, e->m.desc.vocab, grams);
    if (!e->has_heading) print_heading(e->width, e->has_run && !settings_of_eval.no_baseline);
    e->has_heading = true;
    print_row(name, e->width, c, nats, counted ? grams : NULL);
    if (e->rank) add_frequencies(&e->frequency, e->rank, &s);
    free(s.nats);
    s.nats = NULL;
    if (settings_of_eval.by_position) add_positions(&e->position, &s);
    e->nats += nats * (double)(c->held_count - 1);
    e->grams[0] += counted ? grams[3] * (double)(c->held_count - 1) : NAN;
    e->grams[1] += counted ? grams[5] * (double)(c->held_count - 1) : NAN;
    e->all.held_bytes += c->held_bytes > 0 ? c->held_bytes : NAN;
    e->all.held_unknown += c->held_unknown;
    e->all.held_count += c->held_count - 1;
}

/* An imported model may have learned without a [BOS] at the start: then a text begins with its own first token. */
static void drop_bos(const model *m, corpus *c)
{
    size_t bytes;
    if (!m->plain_prompt || !m->tokenizer || !(c->held_bytes > 0) || c->held_count < 2) return;
    if (c->held[0] != (int32_t)tn_tokenizer_bos(m->tokenizer)) return;
    c->held_count--;
    memmove(c->held, c->held + 1, sizeof *c->held * (size_t)c->held_count);
    free(decode_tokens(m->tokenizer, c->held, 1, &bytes));
    c->held_bytes -= (double)bytes;                   /* the first token is not predicted */
}

static void evaluate_file(evaluation *e, const char *path)
{
    corpus    c;
    file_list one = {&path, 1};
    load_files(&c, e->m.ctx, e->m.tokenizer, e->m.desc.vocab, &one, path, (split_kind)train_settings.split, 1);
    drop_bos(&e->m, &c);
    evaluate(e, path, &c);
    free_corpus(&c);
}

static void print_sum(evaluation *e)
{
    const double n = (double)e->all.held_count;
    double       grams[NGRAM_MAX + 1];
    grams[3] = e->grams[0] / n;
    grams[5] = e->grams[1] / n;
    e->all.held_count++;                              /* a corpus counts its first token, too */
    print_row("all", e->width, &e->all, e->nats / n, isnan(grams[3]) ? NULL : grams);
}

/* The tokens of a window. The held-out part of a run is read as the training reads it. */
static int64_t window_length(const model *m, bool files)
{
    const int64_t most = m->desc.context, fit = ((int64_t)1 << 28) / m->desc.vocab;      /* logits of 4 bytes in 1 GiB */
    const int64_t n = settings_of_eval.context;
    if (n > most) fail("--context is %lld, expected at most %lld, the model's context", (long long)n, (long long)most);
    if (n) return n;
    if (!files || most <= fit) return most;
    warn("windows of %lld tokens: the logits of the model's context, %lld tokens, need more than 1 GiB; --context sets "
         "another length", (long long)fit, (long long)most);
    return fit;
}

int eval_main(int argc, char **argv)
{
    evaluation e = {0};
    tn_desc    desc;
    char      *why = NULL;
    const int  arguments = read_options(&eval_usage, argc, argv);
    file_list *files = &settings_of_eval.files;
    if (!arguments) usage_error("no model is given, expected tn eval RUN [FILE...]");
    for (int64_t i = 1; i < arguments; i++) add_file(files, argv[i]);
    if (settings_of_eval.logits && files->count > 1)
        usage_error("--logits is given with %lld files, expected one", (long long)files->count);
    check_not_model("logits", settings_of_eval.logits, "the model", argv[0]);
    check_not_input("logits", settings_of_eval.logits, "the tokenizer", settings_of_eval.tokenizer);
    check_not_inputs("logits", settings_of_eval.logits, "the text", files);
    char *file = find_weights(argv[0]);
    bool  known = read_run_settings(file);
    if (!known && !files->count)
        fail("%s is not part of a run, so it has no held-out part: expected tn eval %s FILE", file, argv[0]);
    if (settings_of_eval.by_frequency && !known)
        fail("%s is not part of a run, whose text --by-frequency needs", file);
    for (int64_t i = 0; i < files->count; i++) is_shard(files->path[i]); /* all can be read, before the first is evaluated */
    if (settings_of_eval.backend) train_settings.backend = settings_of_eval.backend - 1;
    train_settings.device = settings_of_eval.device;
    train_settings.threads = settings_of_eval.threads;
    train_settings.log_layers = 0;
    set_ctx_desc(&train_settings, &desc);
    open_model(&e.m, file, settings_of_eval.tokenizer, &desc, NULL);
    compact_model(&e.m, settings_of_eval.weights);
    bool needed = !files->count || settings_of_eval.by_frequency;
    check_not_inputs("logits", settings_of_eval.logits, "the text of the run", &train_settings.data);
    check_not_inputs("logits", settings_of_eval.logits, "the text of the run", &train_settings.val);
    if (known && (needed || !settings_of_eval.no_baseline)) {
        why = read_run_data(&e.m, file, &e.run);
        if (why && needed) fail("%s", why);
        if (why) warn("%s; n-grams are left out", why);
        e.has_run = !why;
        free(why);
    }
    e.context = window_length(&e.m, files->count > 0);
    if (settings_of_eval.by_frequency) e.rank = frequency_ranks(&e.run, e.m.desc.vocab);
    e.position.context = e.m.desc.context;
    e.position.nats = (double *)allocate((size_t)e.m.desc.context, sizeof *e.position.nats);
    e.position.tokens = (int64_t *)allocate((size_t)e.m.desc.context, sizeof *e.position.tokens);
    e.width = e.has_run && !settings_of_eval.no_baseline ? NAME_BESIDE_GRAMS : NAME_COLUMN;
    if (!files->count) evaluate(&e, "held-out part", &e.run);
    for (int64_t i = 0; i < files->count; i++) evaluate_file(&e, files->path[i]);
    if (files->count > 1) print_sum(&e);
    if (settings_of_eval.by_position) print_by_position(&e.position);
    if (e.rank) print_by_frequency(&e.frequency);
    free(e.position.nats);
    free(e.position.tokens);
    free(e.rank);
    if (e.has_run) free_corpus(&e.run);
    free(file);
    close_model(&e.m);
    return 0;
}
