/* merge.c - tn merge: two language models become one, their MLPs merged as functions */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *out, *tokenizer;
    file_list   data, fit;
    int64_t     hidden, tokens, threads;
    double      share;
    bool        json;
} merging = { .tokens = 8192, .share = 0.5 };

#define OURS(field) (&merging.field)
static option options[] = {
    TEXT_ROW("out", OURS(out), "RUN", "the folder to write, which all commands accept", NEVER),
    COUNT_ROW("hidden", OURS(hidden), "hidden units of each MLP; 0, the default: as many as the models have; twice as many are "
              "exact", 0, 1e9, NEVER),
    NUMBER_ROW("share", OURS(share), "weight of the first model in all means", 0, 1, NEVER),
    FILES_ROW("data", OURS(data), "a text or a token shard to compare losses on; without one, the held-out parts of both runs",
              NEVER),
    FILES_ROW("fit", OURS(fit), "a text or a token shard to fit to; without one, the training texts of both runs", NEVER),
    COUNT_ROW("tokens", OURS(tokens), "tokens to fit to", 1, 1e9, NEVER),
    TEXT_ROW("tokenizer", OURS(tokenizer), "FILE", "a tokenizer.json; the default is the one beside the weights", NEVER),
    COUNT_ROW("threads", OURS(threads), "number of threads; 0, the default: one per core", 0, 1024, NEVER),
    FLAG_ROW("json", OURS(json), "print JSON", NEVER),
};
#undef OURS

const usage merge_usage = {
    "merge", "RUN|CHECKPOINT RUN|CHECKPOINT --out RUN", "merge two language models as functions",
    "Makes one model of two with the same settings and vocabulary, whose MLPs are bilinear. The mean of two such MLPs is "
    "exactly one with the hidden units of both; it is refitted to fewer, by its outputs in a text, and the error of each block "
    "is printed. All other weights are averaged, which suits models that were trained further from the same checkpoint.",
    "Prints the losses of both models, of the average of all weights, of the exact merge, and of the one that is written.",
    options, sizeof options / sizeof *options, 2, NULL
};

/* ---- models that can be merged -------------------------------------------------------------------------------------------- */

static void check_mlps(const model *m, const char *path)
{
    for (int64_t l = 0; l < m->desc.layers; l++) {
        const tn_mlp_desc *d = &m->net.blocks[l].mlp.desc;
        if (d->kind != TN_MLP_BILINEAR)
            fail("%s: the MLP of block %lld is %s, expected bilinear: the mean of two of its kind is not of this kind", path,
                 (long long)l, tn_mlp_kind_name(d->kind));
        if (d->order != 2)
            fail("%s: the MLP of block %lld has %lld encoders, expected two", path, (long long)l, (long long)d->order);
        if (d->no_projection)
            fail("%s: the MLP of block %lld has no output projection, expected one: hidden units of two models have no place",
                 path, (long long)l);
    }
    check_finite(m, path);
}

/* Fails at the first line in which the settings of the two models differ. */
static void check_same_settings(const model *a, const char *path, const model *b, const char *other)
{
    char *x = config_json(a), *y = config_json(b), *p = x, *q = y;
    while (*p && *q) {
        const size_t n = strcspn(p, "\n"), m = strcspn(q, "\n");
        if (n != m || memcmp(p, q, n))
            fail("%s and %s differ in their settings, expected the same:%.*s in the first,%.*s in the second", path, other,
                 (int)n, p, (int)m, q);
        p += n + (p[n] != 0);
        q += m + (q[m] != 0);
    }
    free(x);
    free(y);
    if (a->tokenizer && b->tokenizer) check_same_tokens(a->tokenizer, path, b->tokenizer, other);
}

/* ---- texts ---------------------------------------------------------------------------------------------------------------- */

/* A text to compare losses on. */
typedef struct compared_text { char *name; int32_t *ids; int64_t count; } compared_text;

typedef struct merge {
    subject       s;                    /* the first model                     */
    model         b;
    corpus        run[2];               /* of the runs that have one           */
    bool          has_run[2];
    compared_text text[8];
    int64_t       texts;
} merge;

enum { MOST_TEXTS = (int)(sizeof ((merge *)0)->text / sizeof (compared_text)) };

/* The settings of the first run, whose texts live as long as the program. */
static settings first_settings;

/* The text of the second run. The settings of a run are read once in a program, so that those of the first make room. */
static void read_second_run(merge *x, const char *file, const settings *before)
{
    first_settings = train_settings;
    train_settings = *before;
    for (int i = 0; i < train_usage.count; i++) train_usage.options[i].given = false;
    if (!read_run_settings(file)) return;
    char *why = read_run_data(&x->b, file, &x->run[1]);
    x->has_run[1] = !why;
    if (why) report_note("The second run's text is left out: %s.", why);
    free(why);
}

static void add_text(merge *x, const char *name, const corpus *c)
{
    compared_text *t = &x->text[x->texts];
    if (c->held_count < 2) fail("%s has %lld tokens, expected at least 2", name, (long long)c->held_count);
    if (x->texts == MOST_TEXTS) usage_error("--data: more than %d files, expected at most %d", MOST_TEXTS, MOST_TEXTS);
    t->name = copy_text(name);
    t->count = c->held_count;
    t->ids = (int32_t *)allocate((size_t)t->count, sizeof *t->ids);
    memcpy(t->ids, c->held, sizeof *t->ids * (size_t)t->count);
    x->texts++;
}

static void list_texts(merge *x, const char *second)
{
    const model *m = &x->s.m;
    for (int64_t i = 0; i < merging.data.count; i++) {
        file_list one = {&merging.data.path[i], 1};
        corpus    c;
        load_files(&c, m->ctx, m->tokenizer, m->desc.vocab, &one, "--data", (split_kind)0, 1);
        add_text(x, merging.data.path[i], &c);
        free_corpus(&c);
    }
    if (merging.data.count) return;
    for (int k = 0; k < 2; k++) {
        char *name = format_text("held-out part of %s", k ? second : x->s.path);
        if (x->has_run[k] && (!k || !x->has_run[0] || x->run[0].hash != x->run[1].hash)) add_text(x, name, &x->run[k]);
        free(name);
    }
}

/* Windows to fit to: [count,length] ids. */
typedef struct windows { int32_t *ids; int64_t count, length; } windows;

static void add_windows(windows *w, const corpus *c, int64_t tokens)
{
    const int64_t n = w->length, all = c->train_count / n;
    int64_t       count = (tokens + n - 1) / n;
    if (count > all) count = all;
    w->ids = (int32_t *)resize(w->ids, (size_t)((w->count + count) * n + 1), sizeof *w->ids);
    for (int64_t k = 0; k < count; k++) copy_tokens(&c->train, k * (c->train_count / count), n, w->ids + (w->count + k) * n);
    w->count += count;
}

static windows windows_to_fit(const merge *x)
{
    const model *m = &x->s.m;
    windows      w = {NULL, 0, m->desc.context};
    corpus       c;
    if (merging.fit.count) {
        load_files(&c, m->ctx, m->tokenizer, m->desc.vocab, &merging.fit, "--fit", (split_kind)0, 0);
        if (c.train_count < w.length) w.length = c.train_count;
        if (w.length > 0) add_windows(&w, &c, merging.tokens);
        free_corpus(&c);
        return w;
    }
    for (int k = 0; k < 2; k++) if (x->has_run[k] && x->run[k].train_count < w.length) w.length = x->run[k].train_count;
    for (int k = 0, runs = x->has_run[0] + x->has_run[1]; k < 2 && w.length > 0; k++)
        if (x->has_run[k]) add_windows(&w, &x->run[k], (merging.tokens + runs - 1) / runs);
    return w;
}

/* Windows of the texts that losses are compared on, as many tokens as there are to fit to, and one window or more. */
static windows windows_to_check(const merge *x, int64_t length)
{
    windows w = {NULL, 0, length};
    for (int64_t i = 0; i < x->texts && length > 0; i++) {
        const int64_t all = x->text[i].count / length;
        int64_t       count = (merging.tokens + x->texts * length - 1) / (x->texts * length);
        if (count > all) count = all;
        w.ids = (int32_t *)resize(w.ids, (size_t)((w.count + count) * length + 1), sizeof *w.ids);
        for (int64_t k = 0; k < count; k++)
            memcpy(w.ids + (w.count + k) * length, x->text[i].ids + k * (x->text[i].count / count),
                   sizeof *w.ids * (size_t)length);
        w.count += count;
    }
    return w;
}

/* ---- models --------------------------------------------------------------------------------------------------------------- */

static bool is_of_mlp(const char *name)
{
    const char *at = strstr(name, ".mlp.");
    return at && (!strcmp(at, ".mlp.w") || !strcmp(at, ".mlp.b") || !strcmp(at, ".mlp.p"));
}

/* A model of so many hidden units whose weights are averages; those of its MLPs, but output biases, only with `all`. */
static model average_of(const merge *x, int64_t hidden, bool all)
{
    model m = x->s.m;
    m.desc.hidden = hidden;
    m.params = tn_params_create(m.ctx);
    tn_transformer_init(m.params, "", &m.desc, &m.net);
    check_ctx(m.ctx, "the merged model");
    for (int64_t i = 0; i < tn_params_count(m.params); i++) {
        const tn_param *to = tn_params_at(m.params, i);
        if (!all && is_of_mlp(to->name)) continue;
        double *v = numbers_in(tn_params_find(x->s.m.params, to->name)->value);
        double *w = numbers_in(tn_params_find(x->b.params, to->name)->value);
        for (int64_t k = 0; k < tn_tensor_count(to->value); k++) v[k] = merging.share * v[k] + (1 - merging.share) * w[k];
        tn_write(to->value, TN_F64, v, tn_tensor_count(to->value));
        check_ctx(m.ctx, to->name);
        free(v);
        free(w);
    }
    return m;
}

/* The mean of the two MLPs of a block, without their output biases. */
static tn_cp *mean_of_mlps(const merge *x, int64_t l)
{
    const double weights[2] = {merging.share, 1 - merging.share};
    tn_mlp       mlp[2] = {x->s.m.net.blocks[l].mlp, x->b.net.blocks[l].mlp};
    const tn_cp *cp[2];
    for (int k = 0; k < 2; k++) {
        mlp[k].pb = NULL;
        mlp[k].desc.out_bias = false;
        cp[k] = tn_cp_from_mlp(x->s.m.ctx, &mlp[k]);
        check_ctx(x->s.m.ctx, "the operator of an MLP");
    }
    tn_cp *mean = tn_cp_mean(2, cp, weights);
    check_ctx(x->s.m.ctx, "the mean of two MLPs");
    for (int k = 0; k < 2; k++) tn_cp_destroy((tn_cp *)cp[k]);
    return mean;
}

/* Writes a parameter of a block's MLP. */
static void set_mlp(const model *m, int64_t l, char part, const double *v)
{
    char name[48];
    snprintf(name, sizeof name, "blocks.%lld.mlp.%c", (long long)l, part);
    tn_tensor *t = tn_params_find(m->params, name)->value;
    tn_write(t, TN_F64, v, tn_tensor_count(t));
    check_ctx(m->ctx, name);
}

/* The MLP of a block becomes that of an operator; units beyond its terms are 0. */
static void put_mlp(const model *m, int64_t l, const tn_cp *cp)
{
    const int64_t h = m->net.blocks[l].mlp.desc.hidden, n = m->desc.dim, in = cp->in[0], r = cp->terms;
    double *w = (double *)allocate((size_t)(2 * h * n), sizeof *w), *b = (double *)allocate((size_t)(2 * h), sizeof *b);
    double *p = (double *)allocate((size_t)(n * h), sizeof *p), *from = numbers_in(cp->p);
    for (int64_t i = 0; i < n; i++) memcpy(p + i * h, from + i * r, (size_t)r * sizeof *p);
    free(from);
    for (int k = 0; k < 2; k++) {
        from = numbers_in(cp->f[k]);
        for (int64_t t = 0; t < r; t++) {
            memcpy(w + (k * h + t) * n, from + t * in, (size_t)n * sizeof *w);
            b[k * h + t] = cp->constant ? from[t * in + n] : 0;
        }
        free(from);
    }
    set_mlp(m, l, 'w', w);
    set_mlp(m, l, 'p', p);
    if (cp->constant) set_mlp(m, l, 'b', b);
    free(w);
    free(b);
    free(p);
}

/* ---- what the MLPs read --------------------------------------------------------------------------------------------------- */

/* Rows that a tap has seen. */
typedef struct seen_rows { double *v; int64_t count; } seen_rows;

static tn_tensor *keep_rows(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    seen_rows    *r = (seen_rows *)user;
    const int64_t n = tn_tensor_count(x);
    double       *v = numbers_in(x);
    (void)ctx;
    (void)name;
    r->v = (double *)resize(r->v, (size_t)(r->count + n), sizeof *v);
    memcpy(r->v + r->count, v, (size_t)n * sizeof *v);
    r->count += n;
    free(v);
    return x;
}

/* The inputs of all MLPs of a model in some windows, a new list of [tokens,dim] tensors; NULL without windows. */
static tn_tensor **inputs_of_mlps(const model *m, const windows *w)
{
    const int64_t L = m->desc.layers;
    const bool    normed = !m->desc.no_norm && m->desc.norm_place != TN_PLACE_POST;
    if (!w->count) return NULL;
    seen_rows  *rows = (seen_rows *)allocate((size_t)L, sizeof *rows);
    tn_tap     *taps = (tn_tap *)allocate((size_t)L, sizeof *taps);
    tn_tensor **to = (tn_tensor **)allocate((size_t)L, sizeof *to);
    for (int64_t l = 0; l < L; l++) {
        taps[l].points = format_text("blocks.%lld.%s", (long long)l, normed ? "norm2" : "middle");
        taps[l].fn = keep_rows;
        taps[l].user = &rows[l];
    }
    for (int64_t k = 0; k < w->count; k++) {
        tn_ctx_reset(m->ctx);
        tn_transformer_run(m->ctx, &m->net, ids_tensor(m->ctx, w->ids + k * w->length, w->length), taps, L);
        check_ctx(m->ctx, "a run of the merged model");
    }
    for (int64_t l = 0; l < L; l++) {
        const int64_t shape[2] = {rows[l].count / m->desc.dim, m->desc.dim};
        to[l] = tn_tensor_create(m->ctx, TN_REAL, 2, shape);
        tn_write(to[l], TN_F64, rows[l].v, rows[l].count);
        check_ctx(m->ctx, "the inputs of an MLP");
        free(rows[l].v);
        free((void *)taps[l].points);
    }
    free(rows);
    free(taps);
    return to;
}

/* |y - y'| / |y| of the outputs for some inputs; NaN without any, or where all are 0. */
static double output_error(tn_ctx *ctx, const tn_cp *a, const tn_cp *b, tn_tensor *x)
{
    double difference = 0, size = 0;
    if (!x) return NAN;
    tn_ctx_reset(ctx);
    double       *y = numbers_in(tn_cp_apply(ctx, a, x)), *z = numbers_in(tn_cp_apply(ctx, b, x));
    const int64_t n = x->shape[0] * a->out;
    for (int64_t i = 0; i < n; i++) difference += (y[i] - z[i]) * (y[i] - z[i]), size += y[i] * y[i];
    free(y);
    free(z);
    return size > 0 ? sqrt(difference / size) : NAN;
}

/* ---- merging -------------------------------------------------------------------------------------------------------------- */

/* Refits the MLPs of the exact merge to the hidden units of `to`, by what they read in text. */
static void refit_mlps(const merge *x, const model *exact, const model *to)
{
    static const column columns[] = {
        {"block", NULL, 6, "%.0f"}, {"units", NULL, 6, "%.0f"}, {"error", NULL, 10, "%.6f"},
        {"error_elsewhere", "held out", 10, "%.6f"}, {"error_of_tensor", "of the tensor", 14, "%.6f"}, {NULL, NULL, 0, NULL}
    };
    tn_ctx     *ctx = x->s.m.ctx;
    windows     fit = windows_to_fit(x), other = windows_to_check(x, fit.length);
    tn_tensor **in = inputs_of_mlps(exact, &fit), **out = inputs_of_mlps(exact, &other);
    if (!in)
        report_note("There is no text to fit to (--fit FILE): the fit is that of the tensor, where all directions count alike.");
    report_table("per_block", "Refits of the MLPs: errors relative to the exact mean", columns);
    for (int64_t l = 0; l < to->desc.layers; l++) {
        tn_cp_refit_desc d;
        double           error, difference = 0, size = 0;
        tn_cp           *mean = mean_of_mlps(x, l);
        memset(&d, 0, sizeof d);
        d.terms = to->net.blocks[l].mlp.desc.hidden;
        d.inputs = in ? in[l] : NULL;
        d.tol = 1e-5;
        d.sweeps = in ? 30 : 0;
        show_stage("block %lld of %lld", (long long)l + 1, (long long)to->desc.layers);
        tn_cp *cp = tn_cp_refit(mean, &d, &error);
        show_stage(NULL);
        check_ctx(ctx, "a refit");
        const double weights[2] = {1, -1};
        const tn_cp *pair[2] = {mean, cp};
        tn_cp       *rest = tn_cp_mean(2, pair, weights);
        if (tn_cp_norm(rest, &difference) == TN_OK) tn_cp_norm(mean, &size);
        check_ctx(ctx, "the norm of an MLP");
        report_row(columns, (double)l, (double)cp->terms, in ? error : NAN, output_error(ctx, mean, cp, out ? out[l] : NULL),
                   size > 0 ? difference / size : NAN);
        put_mlp(to, l, cp);
        tn_cp_destroy(rest);
        tn_cp_destroy(mean);
        tn_cp_destroy(cp);
        if (in) tn_tensor_destroy(in[l]);
        if (out) tn_tensor_destroy(out[l]);
    }
    report_value("fitted_to", "%.0f", (double)(fit.count * fit.length));
    free(in);
    free(out);
    free(fit.ids);
    free(other.ids);
}

/* The losses of all models on all texts. */
static void report_losses(const merge *x, const char *const *names, const model *const *models, int count)
{
    static const column columns[] = {
        {"model", NULL, 34, "%s"}, {"text", NULL, 5, "%.0f"}, {"loss", "nats per token", 15, "%.6f"}, {NULL, NULL, 0, NULL}
    };
    if (!x->texts) {
        report_note("Losses are not compared: there is no held-out text, and no --data FILE.");
        return;
    }
    report_table("losses", NULL, columns);
    for (int64_t i = 0; i < x->texts; i++)
        for (int k = 0; k < count; k++) {
            scoring s = {0};
            s.m = models[k];
            s.name = x->text[i].name;
            s.ids = x->text[i].ids;
            s.count = x->text[i].count;
            s.batch = train_settings.batch > 0 ? train_settings.batch : 1;
            show_stage("the loss of %s", names[k]);
            const double loss = whole_loss(&s);
            show_stage(NULL);
            if (!isfinite(loss)) fail("the loss of %s on %s is %g, expected a finite number", names[k], s.name, loss);
            report_row(columns, names[k], (double)i + 1, loss);
        }
    for (int64_t i = 0; i < x->texts; i++) report_note("Text %lld: %s.", (long long)i + 1, x->text[i].name);
}

/* Makes all models, reports, and writes the one of --hidden units. */
static void merge_models(const merge *x, const char *second)
{
    const int64_t h = x->s.m.net.blocks[0].mlp.desc.hidden, hidden = merging.hidden ? merging.hidden : h;
    const bool    refitted = hidden < 2 * h;
    if (hidden > 2 * h)
        fail("--hidden is %lld, expected at most %lld: with those of both models the merge is exact", (long long)hidden,
             (long long)(2 * h));
    char        *merged_name = format_text("merged, %lld hidden units", (long long)hidden);
    char        *exact_name = format_text("merged, %lld hidden units, exact", (long long)(2 * h));
    model        average = average_of(x, h, true), exact = average_of(x, 2 * h, false), merged = exact;
    const char  *names[5] = {x->s.path, second, "average of the weights", exact_name, merged_name};
    const model *models[5] = {&x->s.m, &x->b, &average, &exact, &merged};
    for (int64_t l = 0; l < exact.desc.layers; l++) {
        tn_cp *mean = mean_of_mlps(x, l);
        put_mlp(&exact, l, mean);
        tn_cp_destroy(mean);
    }
    if (refitted) {
        merged = average_of(x, hidden, false);
        refit_mlps(x, &exact, &merged);
    }
    report_losses(x, names, models, refitted ? 5 : 4);
    write_model(&x->s, &merged, merging.out);
    report_note("MLPs are merged as functions, all other weights are averaged.");
    report_value("hidden", "%.0f", (double)hidden);
    report_value("share", "%g", merging.share);
    report_text("written", merging.out);
    free(merged_name);
    free(exact_name);
}

int merge_main(int argc, char **argv)
{
    const int      arguments = read_options(&merge_usage, argc, argv);
    const settings before = train_settings;
    char          *file;
    merge          x;
    memset(&x, 0, sizeof x);
    if (arguments < 2) usage_error("%s is given, expected tn merge RUN RUN --out RUN", arguments ? "one model" : "no model");
    if (!merging.out) usage_error("no --out is given, expected tn merge RUN RUN --out RUN");
    check_new_folder("--out", merging.out);
    circuit_settings.f32 = true;
    circuit_settings.threads = merging.threads;
    circuit_settings.tokenizer = merging.tokenizer;
    report_begin(merging.json);
    const double start = now();
    open_subject(&x.s, argv[0], true);
    check_mlps(&x.s.m, argv[0]);
    open_model_in(x.s.m.ctx, &x.b, argv[1], merging.tokenizer, &file);
    check_same_settings(&x.s.m, argv[0], &x.b, argv[1]);
    check_mlps(&x.b, argv[1]);
    x.run[0] = x.s.run;
    x.has_run[0] = x.s.has_run;
    read_second_run(&x, file, &before);
    train_settings.batch = first_settings.batch;
    list_texts(&x, argv[1]);
    merge_models(&x, argv[1]);
    report_value("seconds", "%.1f", now() - start);
    report_end();
    for (int64_t i = 0; i < x.texts; i++) {
        free(x.text[i].name);
        free(x.text[i].ids);
    }
    if (x.has_run[1]) free_corpus(&x.run[1]);
    free(file);
    close_subject(&x.s);
    return 0;
}
