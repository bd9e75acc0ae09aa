/* circuits.c - tn circuits: what a trained transformer does, read from its weights. The options, the model and its text */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

circuit_options circuit_settings = { .position = -1, .budget = 1000, .tokens = 4096 };

#define OURS(field) (&circuit_settings.field)
static option options[] = {
    TEXT_ROW("token", OURS(token), "TOKEN", "paths, attribute: the token whose logit is asked for; the default is the most "
             "likely one", NEVER),
    TEXT_ROW("against", OURS(against), "TOKEN", "paths, attribute: its logit minus that of this token", NEVER),
    COUNT_ROW("position", OURS(position), "paths, attribute: the position that predicts, from 0; the default is the last",
              -1, 1e9, NEVER),
    COUNT_ROW("budget", OURS(budget), "paths: how many nodes of the search are expanded", 1, 1e9, NEVER),
    WORDS_ROW("by", OURS(by), "search|path|degree|mlps", "paths: search: tokens, heads and MLPs, each MLP linear in one input, the "
              "largest first; path: every path, MLPs with all their inputs; degree: by degree in the embeddings; mlps: by "
              "the set of MLPs that are passed", NEVER),
    FLAG_ROW("patterns", OURS(patterns), "paths --by: expand bilinear and squared patterns as well, instead of holding them "
             "constant", NEVER),
    COUNT_ROW("delete", OURS(remove), "paths: delete the first N paths one by one, and compare the change with what is "
              "predicted", 0, 1e6, NEVER),
    COUNT_ROW("block", OURS(block), "pairs: the block of the MLP", 0, 1e6, NEVER),
    COUNT_ROW("common", OURS(common), "pairs: only of the N commonest tokens (0, the default: of all); bigrams: of so many "
              "tokens (0: 400)", 0, 1e9, NEVER),
    COUNT_ROW("top", OURS(top), "most rows of a table; 0, the default: a number that suits it", 0, 1e9, NEVER),
    FLAG_ROW("mean", OURS(mean), "ablate: replace a part by its mean instead of zero", NEVER),
    COUNT_ROW("tokens", OURS(tokens), "ablate, diff, history: tokens of held-out text", 1, 1e9, NEVER),
    TEXT_ROW("text", OURS(text), "TEXT", "diff: a text to compare the logits on, instead of held-out text", NEVER),
    AUTO_COUNT_ROW("length", OURS(length), "most tokens of a text; auto: the model's context", 1, 1e9, NEVER),
    FLAG_ROW("json", OURS(json), "print one object of JSON instead of tables", NEVER),
    FLAG_ROW("f32", OURS(f32), "compute in F32 instead of F64: half the memory", NEVER),
    FLAG_ROW("no-data", OURS(no_data), "do not read the run's text", NEVER),
    TEXT_ROW("tokenizer", OURS(tokenizer), "FILE", "a tokenizer.json; the default is the one beside the weights", NEVER),
    AUTO_COUNT_ROW("threads", OURS(threads), "number of threads; auto: one per core", 1, 1024, NEVER),
};
#undef OURS

#define WHAT_WORDS "heads|pairs|bigrams|paths|attribute|ablate|diff|history"

const usage circuits_usage = {
    "circuits", "RUN|CHECKPOINT " WHAT_WORDS " [TOKEN|TEXT|RUN2]", "what a trained model does, read from its weights",
    "heads: norms, copying, distances and composition of each head. pairs TOKEN: the pairs of tokens that an MLP turns into the "
    "logit of TOKEN. bigrams [TOKEN]: what follows a token by the weights, and in the text. paths TEXT: the logit of the next "
    "token as a sum over paths. attribute TEXT: the same as a sum over the tokens of TEXT, and over heads and MLPs. ablate "
    "[TEXT]: the loss without each head and MLP. diff RUN2: how similar two models are. history: the heads at earlier steps of "
    "the training (tn train --weights-every N).",
    "A token is given as its text or its number. Numbers are computed in F64. Examples: tn circuits RUN heads. tn circuits RUN "
    "pairs dog --common 1000. tn circuits RUN paths \"once upon a\" --token time --delete 20.",
    options, sizeof options / sizeof *options, 3, NULL
};

typedef struct task {
    const char *name, *argument;        /* what is missing without it; NULL: none is possible */
    bool        needed, data;           /* whether it is needed; whether the run's text is    */
    void      (*run)(subject *s, const char *argument);
} task;

static void run_heads(subject *s, const char *argument) { (void)argument; heads_report(s); }
static void run_history(subject *s, const char *argument) { (void)argument; history_report(s); }

static const task tasks[] = {
    {"heads", NULL, false, true, run_heads},                {"pairs", "TOKEN", true, true, pairs_report},
    {"bigrams", "TOKEN", false, true, bigrams_report},      {"paths", "TEXT", true, false, paths_report},
    {"attribute", "TEXT", true, false, attribute_report},   {"ablate", "TEXT", false, true, ablate_report},
    {"diff", "RUN2", true, true, diff_report},              {"history", NULL, false, true, run_history},
};

static const task *find_task(const char *name)
{
    suggestion best = {NULL, 0};
    size_t     i;
    for (i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!strcmp(tasks[i].name, name)) return &tasks[i];
        consider_word(&best, name, tasks[i].name);
    }
    usage_error("\"%s\" is not known%s%s%s, expected one of " WHAT_WORDS, name, best.word ? "; did you mean " : "",
                best.word ? best.word : "", best.word ? "?" : "");
    return NULL;
}

/* ---- numbers and errors ----------------------------------------------------------------------------------------- */

char *taken_error(tn_ctx *ctx)
{
    char *why;
    if (tn_ctx_status(ctx) == TN_OK) return NULL;
    why = copy_text(tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
    return why;
}

double *numbers_in(const tn_tensor *t)
{
    double *v = (double *)allocate((size_t)tn_tensor_count(t), sizeof *v);
    if (tn_read(t, TN_F64, v, tn_tensor_count(t)) != TN_OK) check_ctx(t->ctx, "a result");
    return v;
}

void check_finite(const model *m, const char *path)
{
    int64_t i, k, bad;
    for (i = 0; i < tn_params_count(m->params); i++) {
        const tn_param *p = tn_params_at(m->params, i);
        const int64_t   n = tn_tensor_count(p->value);
        double         *v = numbers_in(p->value);
        for (bad = k = 0; k < n; k++) bad += !isfinite(v[k]);
        free(v);
        if (bad)
            fail("%s: %s has %lld numbers that are NaN or infinite, of %lld; expected none", path,
                 p->name, (long long)bad, (long long)n);
    }
}

/* ---- tokens --------------------------------------------------------------------------------------------------------- */

/* A text that cannot be one token. */
static void no_such_token(const subject *s, const char *text)
{
    suggestion best = {NULL, 0};
    int64_t    i;
    int32_t   *ids;
    int64_t    n;
    if (!s->m.tokenizer)
        fail("\"%s\" is not a token's number, expected 0 to %lld: the model has no tokenizer (--tokenizer FILE)", text,
             (long long)s->m.desc.vocab - 1);
    ids = (int32_t *)allocate(strlen(text) + 3, sizeof *ids);
    n = tn_tokenizer_encode(s->m.tokenizer, text, strlen(text), TN_BOS_NONE, ids, (int64_t)strlen(text) + 3, NULL);
    for (i = 0; i < s->m.desc.vocab; i++) consider_word(&best, text, s->names[i]);
    if (best.word) fail("\"%s\" is not a token of the vocabulary; did you mean %s?", text, best.word);
    fail("\"%s\" is not a token of the vocabulary: it has %lld tokens, expected 1, or a number from 0 to %lld", text,
         (long long)n, (long long)s->m.desc.vocab - 1);
}

int64_t token_id(const subject *s, const char *text)
{
    int64_t id = s->m.tokenizer ? token_of(s->m.tokenizer, text) : -1, i;
    char   *end;
    for (i = 0; id < 0 && s->m.tokenizer && i < s->m.desc.vocab; i++) if (!strcmp(s->names[i], text)) id = i;
    if (id >= 0) return id;
    id = strtoll(text, &end, 10);
    if (end == text || *end || id < 0 || id >= s->m.desc.vocab) no_such_token(s, text);
    return id;
}

int64_t text_tokens(const subject *s, const char *text, int32_t **ids)
{
    const int64_t most = circuit_settings.length ? circuit_settings.length : s->m.desc.context;
    int64_t       n;
    if (!s->m.tokenizer) fail("%s has no tokenizer: it was trained on token shards. Give --tokenizer FILE", s->path);
    report_unknown(&s->m, text);
    n = prompt_tokens(&s->m, text, 1, ids);
    if (n < 1) fail("the text has no tokens, expected 1 or more");
    if (n > most)
        fail("the text has %lld tokens, expected at most %lld, %s", (long long)n, (long long)most,
             circuit_settings.length ? "--length" : "the model's context: --length N allows more");
    return n;
}

tn_tensor *ids_tensor(tn_ctx *ctx, const int32_t *ids, int64_t count)
{
    const int64_t shape[2] = {1, count};
    return tn_tensor_from(ctx, 2, shape, TN_I32, ids);
}

/* ---- samples of text ------------------------------------------------------------------------------------------------- */

samples text_samples(const subject *s, const char *text)
{
    const int64_t context = s->m.desc.context, wanted = circuit_settings.tokens;
    samples       x = {NULL, 1, 0, NULL, false};
    int64_t       k;
    if (text) {
        int32_t *ids;
        x.length = text_tokens(s, text, &ids) - 1;
        x.ids = ids;
        if (x.length < 1) fail("the text has 1 token, expected 2 or more: a loss needs a token that follows");
    } else {
        if (!s->has_run) fail("%s has no held-out text here, expected a TEXT", s->path);
        if (s->run.held_count < 2)
            fail("the held-out text has %lld tokens, expected 2 or more", (long long)s->run.held_count);
        x.ids = s->run.held;
        x.held = true;
        x.length = context < s->run.held_count - 1 ? context : s->run.held_count - 1;
        x.count = (s->run.held_count - 1) / x.length;
        if (x.count > (wanted + x.length - 1) / x.length) x.count = (wanted + x.length - 1) / x.length;
    }
    x.start = (int64_t *)allocate((size_t)x.count, sizeof *x.start);
    for (k = 0; x.held && k < x.count; k++) x.start[k] = k * ((s->run.held_count - 1) / x.count);
    return x;
}

void free_samples(samples *x)
{
    if (!x->held) free((void *)x->ids);
    free(x->start);
}

double sample_loss(const model *m, const samples *x, int64_t k, const tn_tap *taps, int64_t count)
{
    const int32_t *ids = x->ids + x->start[k];
    tn_tensor     *logits;
    double         loss;
    tn_ctx_reset(m->ctx);
    logits = tn_transformer_run(m->ctx, &m->net, ids_tensor(m->ctx, ids, x->length), taps, count);
    loss = tn_item(tn_cross_entropy(m->ctx, logits, ids_tensor(m->ctx, ids + 1, x->length)));
    check_ctx(m->ctx, "the loss of a text");
    return loss;
}

/* ---- the command ------------------------------------------------------------------------------------------------------ */

typedef struct ranked { double count; int32_t id; } ranked;

static int more_frequent(const void *a, const void *b)
{
    const ranked *x = (const ranked *)a, *y = (const ranked *)b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Names, and the order of frequency. */
static void name_tokens(subject *s)
{
    const int64_t V = s->m.desc.vocab, known = s->m.tokenizer ? tn_tokenizer_count(s->m.tokenizer) : 0;
    ranked       *list = (ranked *)allocate((size_t)V, sizeof *list);
    int64_t       i;
    s->names = (const char **)allocate((size_t)V + 1, sizeof *s->names);
    s->common = (int32_t *)allocate((size_t)V, sizeof *s->common);
    for (i = 0; i < V; i++)
        s->names[i] = i < known ? token_name(s->m.tokenizer, i) : format_text("#%lld", (long long)i);
    s->names[V] = "1";
    if (s->has_run) s->frequency = (double *)allocate((size_t)V, sizeof *s->frequency);
    for (i = 0; s->has_run && i < s->run.train_count; i++) s->frequency[token_at(&s->run.train, i)]++;
    for (i = 0; i < V; i++) list[i].id = (int32_t)i, list[i].count = s->has_run ? s->frequency[i] : 0;
    qsort(list, (size_t)V, sizeof *list, more_frequent);
    for (i = 0; i < V; i++) s->common[i] = list[i].id;
    free(list);
}

static void open_subject(subject *s, const char *path, const task *t)
{
    tn_desc desc;
    char   *why;
    memset(s, 0, sizeof *s);
    memset(&desc, 0, sizeof desc);
    desc.threads = (int)circuit_settings.threads;
    desc.dtype = circuit_settings.f32 ? TN_F32 : TN_F64;
    desc.log = show_log;
    s->path = path;
    open_model(&s->m, path, circuit_settings.tokenizer, &desc, &s->file);
    check_finite(&s->m, path);
    if (t->data && !circuit_settings.no_data && read_run_settings(s->file)) {
        why = read_run_data(&s->m, s->file, &s->run);
        s->has_run = !why;
        if (why) report_note("The run's text is left out: %s.", why);
        free(why);
    }
    name_tokens(s);
}

static void close_subject(subject *s)
{
    int64_t i;
    for (i = 0; i < s->m.desc.vocab; i++) free((void *)s->names[i]);
    free((void *)s->names);
    free(s->common);
    free(s->frequency);
    free(s->file);
    if (s->has_run) free_corpus(&s->run);
    close_model(&s->m);
}

int circuits_main(int argc, char **argv)
{
    const int   arguments = read_options(&circuits_usage, argc, argv);
    const char *argument = arguments > 2 ? argv[2] : NULL;
    const task *t;
    subject     s;
    if (!arguments) usage_error("no model is given, expected tn circuits RUN %s", WHAT_WORDS);
    if (arguments < 2) usage_error("it is not said what is asked for, expected one of " WHAT_WORDS);
    t = find_task(argv[1]);
    if (t->needed && !argument) usage_error("no %s is given, expected tn circuits RUN %s %s", t->argument, t->name, t->argument);
    if (argument && !t->argument) usage_error("\"%s\" is given, expected tn circuits RUN %s", argument, t->name);
    report_begin(circuit_settings.json);
    open_subject(&s, argv[0], t);
    t->run(&s, argument);
    report_end();
    close_subject(&s);
    return 0;
}
