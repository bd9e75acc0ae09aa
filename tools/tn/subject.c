/* subject.c - tn circuits: the model that is looked into, its tokens and its text */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

circuit_options circuit_settings = { .position = AUTO_COUNT_FROM_0, .budget = 1000, .tokens = 4096, .degree = 4 };

/* ---- numbers and errors ----------------------------------------------------------------------------------------------- */

int64_t count_nonfinite(const tn_tensor *t)
{
    double *v = numbers_in(t);
    int64_t bad = 0;
    for (int64_t i = 0; i < tn_tensor_count(t); i++) bad += !isfinite(v[i]);
    free(v);
    return bad;
}

void check_finite(const model *m, const char *path)
{
    for (int64_t i = 0; i < tn_params_count(m->params); i++) {
        const tn_param *p = tn_params_at(m->params, i);
        const int64_t   bad = count_nonfinite(p->value);
        if (bad)
            fail("%s: %s has %lld numbers that are NaN or infinite, of %lld; expected none", path,
                 p->name, (long long)bad, (long long)tn_tensor_count(p->value));
    }
}

/* ---- tokens ----------------------------------------------------------------------------------------------------------- */

int64_t token_id(const subject *s, const char *text) { return find_token(s->m.tokenizer, s->m.desc.vocab, text); }

char *head_name(int64_t block, int64_t head, char name[HEAD_NAME])
{
    snprintf(name, HEAD_NAME, "%lld.head%lld", (long long)block, (long long)head);
    return name;
}

int64_t text_tokens(const subject *s, const char *text, int32_t **ids)
{
    if (s->m.tokenizer) report_unknown(&s->m, text);
    return text_ids(&s->m, text, circuit_settings.length, "the text", ids);
}

tn_tensor *ids_tensor(tn_ctx *ctx, const int32_t *ids, int64_t count)
{
    const int64_t shape[2] = {1, count};
    return tn_tensor_from(ctx, 2, shape, TN_I32, ids);
}

/* ---- samples of text -------------------------------------------------------------------------------------------------- */

samples text_samples(const subject *s, const char *text, int64_t context, int64_t tokens)
{
    samples x = {NULL, 1, 0, NULL, false};
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
        if (x.count > (tokens + x.length - 1) / x.length) x.count = (tokens + x.length - 1) / x.length;
    }
    x.start = (int64_t *)allocate((size_t)x.count, sizeof *x.start);
    for (int64_t k = 0; x.held && k < x.count; k++) x.start[k] = k * ((s->run.held_count - 1) / x.count);
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
    tn_ctx_reset(m->ctx);
    tn_tensor *logits = tn_transformer_run(m->ctx, &m->net, ids_tensor(m->ctx, ids, x->length), taps, count);
    double     loss = tn_item(tn_cross_entropy(m->ctx, logits, ids_tensor(m->ctx, ids + 1, x->length)));
    check_ctx(m->ctx, "the loss of a text");
    return loss;
}

/* ---- opening and closing ---------------------------------------------------------------------------------------------- */

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
    s->names = (const char **)allocate((size_t)V + 1, sizeof *s->names);
    s->common = (int32_t *)allocate((size_t)V, sizeof *s->common);
    for (int64_t i = 0; i < V; i++)
        s->names[i] = i < known ? token_name(s->m.tokenizer, i) : format_text("#%lld", (long long)i);
    s->names[V] = "1";
    if (s->has_run) s->frequency = (double *)allocate((size_t)V, sizeof *s->frequency);
    for (int64_t i = 0; s->has_run && i < s->run.train_count; i++) s->frequency[token_at(&s->run.train, i)]++;
    for (int64_t i = 0; i < V; i++) list[i].id = (int32_t)i, list[i].count = s->has_run ? s->frequency[i] : 0;
    qsort(list, (size_t)V, sizeof *list, more_frequent);
    for (int64_t i = 0; i < V; i++) s->common[i] = list[i].id;
    free(list);
}

/* The text of its run, where that is asked for and there, and names. */
static void complete_subject(subject *s, bool data)
{
    if (data && !circuit_settings.no_data && read_run_settings(s->file)) {
        char *why = read_run_data(&s->m, s->file, &s->run);
        s->has_run = !why;
        if (why) report_note("The run's text is left out: %s.", why);
        free(why);
    }
    name_tokens(s);
}

void open_subject(subject *s, const char *path, bool data)
{
    tn_desc desc;
    memset(s, 0, sizeof *s);
    memset(&desc, 0, sizeof desc);
    desc.threads = (int)circuit_settings.threads;
    desc.dtype = circuit_settings.f32 ? TN_F32 : TN_F64;
    desc.log = show_log;
    s->path = path;
    open_model(&s->m, path, circuit_settings.tokenizer, &desc, &s->file);
    complete_subject(s, data);
}

void adopt_subject(subject *s, const char *path, const model *m, char *file)
{
    memset(s, 0, sizeof *s);
    s->path = path;
    s->m = *m;
    s->file = file;
    complete_subject(s, false);
}

void close_subject(subject *s)
{
    for (int64_t i = 0; i < s->m.desc.vocab; i++) free((void *)s->names[i]);
    free((void *)s->names);
    free(s->common);
    free(s->frequency);
    free(s->file);
    if (s->has_run) free_corpus(&s->run);
    close_model(&s->m);
}
