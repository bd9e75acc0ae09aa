/* similar.c - tn circuits similarity: how alike the functions of several models are, of every pair */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MODELS = 64, TABLE_MODELS = 9, USUAL_LENGTH = 128 };

typedef struct compared { model m; char *name; } compared;

/* Sums over the positions of each window: products[w][i][j] of the centred logits of models i and j. */
typedef struct similarity {
    compared     *model;
    int64_t       count, windows, length;
    double       *products;             /* [windows][count][count] */
} similarity;

/* ---- models ------------------------------------------------------------------------------------------------------------ */

/* The last part of a path, a new string. */
static char *last_part(const char *path)
{
    char  *all = copy_text(path);
    size_t n = strlen(all);
    while (n > 1 && all[n - 1] == '/') all[--n] = 0;
    char *slash = strrchr(all, '/'), *part = copy_text(slash && slash[1] ? slash + 1 : all);
    free(all);
    return part;
}

/* Adds the weights of a run; of one of its steps, if m is given. */
static void add_model(similarity *x, const subject *s, const char *path, const moment *m)
{
    if (x->count == MOST_MODELS)
        fail("%s: more than %d models, expected at most %d: name those to compare", path, MOST_MODELS, MOST_MODELS);
    x->model = (compared *)resize(x->model, (size_t)x->count + 1, sizeof *x->model);
    compared *c = &x->model[x->count++];
    open_model_in(s->m.ctx, &c->m, path, circuit_settings.tokenizer, NULL);
    if (c->m.desc.vocab != s->m.desc.vocab)
        fail("%s has a vocabulary of %lld tokens, expected %lld, that of %s", path, (long long)c->m.desc.vocab,
             (long long)s->m.desc.vocab, s->path);
    check_names(s, &c->m, path);
    if (m) tn_params_read(c->m.params, tn_source_path(m->path), TN_MATCH_IGNORE_EXTRA);
    check_ctx(s->m.ctx, m ? m->path : path);
    check_finite(&c->m, m ? m->path : path);
    char *base = last_part(path);
    if (!m) c->name = copy_text(base);
    else if (!circuit_settings.other_count) c->name = format_text("step %lld", (long long)m->step);
    else c->name = format_text("%s %lld", base, (long long)m->step);
    free(base);
}

/* The steps of a run. */
static void add_steps(similarity *x, const subject *s, const char *path, bool alone)
{
    char   *file = find_weights(path), *folder = folder_of(file);
    int64_t count;
    moment *list = list_moments(folder, &count);
    if (count < (alone ? 2 : 1))
        fail("%s has the weights of %lld step%s, expected %d or more (tn train --weights-every N)%s", folder, (long long)count,
             count == 1 ? "" : "s", alone ? 2 : 1, alone ? ", or other runs: tn circuits RUN similarity RUN2" : "");
    for (int64_t i = 0; i < count; i++) add_model(x, s, path, &list[i]);
    for (int64_t i = 0; i < count; i++) free(list[i].path);
    free(list);
    free(folder);
    free(file);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------ */

/* Coefficients of the tokens, [length,vocab]: p + (I - p 1^T) diag(sqrt p) z with z normal, so that their mean is p and their
   covariance diag(p) - p p^T, as those of one token that is drawn with the frequencies p. */
static double *gaussian_tokens(const subject *s, int64_t length, uint64_t seed)
{
    const int64_t V = s->m.desc.vocab, shape[2] = {length, V};
    double        all = 0;
    tn_ctx_reset(s->m.ctx);
    tn_ctx_seed(s->m.ctx, seed);
    double *z = numbers_in(tn_normal(s->m.ctx, 2, shape, 0, 1));
    check_ctx(s->m.ctx, "Gaussian inputs");
    for (int64_t i = 0; s->frequency && i < V; i++) all += s->frequency[i];
    for (int64_t t = 0; t < length; t++) {
        double *w = z + t * V, sum = 0;
        for (int64_t i = 0; i < V; i++) sum += w[i] *= sqrt(all > 0 ? s->frequency[i] / all : 1 / (double)V);
        for (int64_t i = 0; i < V; i++) w[i] += (1 - sum) * (all > 0 ? s->frequency[i] / all : 1 / (double)V);
    }
    return z;
}

/* The logits of a model after each position, less their mean over the vocabulary, [length,vocab], a new list. The inputs are
   tokens, or sums of the embeddings of all tokens with these coefficients: a table whose rows are used in order. */
static double *centred_logits(const model *m, const int32_t *ids, const double *coefficients, int64_t length)
{
    const int64_t  V = m->desc.vocab, shape[2] = {length, V};
    tn_transformer net = m->net;
    tn_ctx_reset(m->ctx);
    if (coefficients)
        net.embed.w = tn_matmul(m->ctx, tn_tensor_from(m->ctx, 2, shape, TN_F64, coefficients), m->net.embed.w);
    tn_tensor *logits = net.embed.w ? tn_transformer_forward(m->ctx, &net, ids_tensor(m->ctx, ids, length)) : NULL;
    check_ctx(m->ctx, "the logits of a text");
    double *v = numbers_in(logits);
    for (int64_t t = 0; t < length; t++) {
        double mean = 0;
        for (int64_t i = 0; i < V; i++) mean += v[t * V + i] / (double)V;
        for (int64_t i = 0; i < V; i++) v[t * V + i] -= mean;
    }
    return v;
}

static void measure_window(similarity *x, const subject *s, int64_t w, const int32_t *ids, const double *coefficients)
{
    const int64_t n = x->length * s->m.desc.vocab, M = x->count;
    double      **v = (double **)allocate((size_t)M, sizeof *v);
    for (int64_t i = 0; i < M; i++) {
        v[i] = centred_logits(&x->model[i].m, ids, coefficients, x->length);
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += v[i][k] * v[j][k];
            x->products[(w * M + i) * M + j] = x->products[(w * M + j) * M + i] = sum;
        }
    }
    for (int64_t i = 0; i < M; i++) free(v[i]);
    free(v);
}

/* Measures all windows, of text or Gaussian: of --length tokens, of USUAL_LENGTH without, and of a --text as many as it has. */
static void measure(similarity *x, const subject *s)
{
    int64_t length = circuit_settings.length >= 1 ? circuit_settings.length : circuit_settings.text ? INT64_MAX : USUAL_LENGTH;
    samples text;
    for (int64_t i = 0; i < x->count; i++) if (x->model[i].m.desc.context < length) length = x->model[i].m.desc.context;
    memset(&text, 0, sizeof text);
    if (circuit_settings.inputs == 0) {
        text = text_samples(s, circuit_settings.text, length, circuit_settings.tokens);
        if (text.length > length)
            fail("the text has %lld tokens, expected at most %lld", (long long)text.length + 1, (long long)length + 1);
        x->windows = text.count;
        x->length = text.length;
    } else {
        x->length = length;
        x->windows = (circuit_settings.tokens + length - 1) / length;
    }
    int32_t *order = (int32_t *)allocate((size_t)x->length, sizeof *order);
    for (int64_t t = 0; t < x->length; t++) order[t] = (int32_t)t;
    x->products = (double *)allocate((size_t)(x->windows * x->count * x->count), sizeof *x->products);
    for (int64_t w = 0; w < x->windows; w++) {
        double *drawn = circuit_settings.inputs ? gaussian_tokens(s, x->length, (uint64_t)w + 1) : NULL;
        measure_window(x, s, w, drawn ? order : text.ids + text.start[w], drawn);
        free(drawn);
    }
    if (circuit_settings.inputs == 0) free_samples(&text);
    free(order);
}

/* Leaves out models whose logits are all equal at every position, as before the first step of a training: they have no
   direction, and no cosine. */
static void leave_out_zeros(similarity *x)
{
    const int64_t M = x->count;
    int64_t      *kept = (int64_t *)allocate((size_t)M, sizeof *kept), n = 0, at = 0;
    for (int64_t i = 0; i < M; i++) {
        double sum = 0;
        for (int64_t w = 0; w < x->windows; w++) sum += x->products[(w * M + i) * M + i];
        if (sum != 0) kept[n++] = i;
        else report_note("Left out: %s, as its logits are all equal.", x->model[i].name);
    }
    for (int64_t w = 0; w < x->windows; w++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) x->products[at++] = x->products[(w * M + kept[i]) * M + kept[j]];
    for (int64_t i = 0; i < n; i++) {
        compared swapped = x->model[i];
        x->model[i] = x->model[kept[i]];
        x->model[kept[i]] = swapped;
    }
    x->count = n;
    free(kept);
    if (n < 2) fail("%lld of %lld models %s logits that are not all equal, expected 2 or more", (long long)n, (long long)M,
                    n == 1 ? "has" : "have");
}

/* ---- results ----------------------------------------------------------------------------------------------------------- */

/* The cosine, or the squared difference over the sum of both squares, of models i and j without window `without` (-1: of all). */
static double likeness(const similarity *x, int64_t i, int64_t j, int64_t without, bool difference)
{
    const int64_t M = x->count;
    double        ij = 0, ii = 0, jj = 0;
    for (int64_t w = 0; w < x->windows; w++) {
        const double *p = x->products + w * M * M;
        if (w == without) continue;
        ij += p[i * M + j], ii += p[i * M + i], jj += p[j * M + j];
    }
    return difference ? (ii + jj - 2 * ij) / (ii + jj) : ij / sqrt(ii) / sqrt(jj);
}

/* Its standard error, by leaving out one window after the other; NaN for one window. */
static double likeness_error(const similarity *x, int64_t i, int64_t j, bool difference)
{
    const double n = (double)x->windows;
    double       sum = 0, squares = 0;
    if (x->windows < 2) return NAN;
    const double all = likeness(x, i, j, -1, difference);
    for (int64_t w = 0; w < x->windows; w++) {
        const double d = likeness(x, i, j, w, difference) - all;
        sum += d, squares += d * d;
    }
    return isnan(all) ? NAN : sqrt(fmax(0, (n - 1) / n * (squares - sum * sum / n)));
}

static void report_pairs(const similarity *x)
{
    static const column columns[] = {
        {"model", NULL, 16, "%s"}, {"other", NULL, 16, "%s"}, {"cosine", NULL, 8, "%.5f"},
        {"cosine_error", "std error", 9, "%.1e"}, {"difference", NULL, 10, "%.5f"},
        {"difference_error", "std error", 9, "%.1e"}, {NULL, NULL, 0, NULL}
    };
    report_table("pairs", NULL, columns);
    for (int64_t i = 0; i < x->count; i++)
        for (int64_t j = 0; j < i; j++)
            report_row(columns, x->model[j].name, x->model[i].name, likeness(x, i, j, -1, false), likeness_error(x, i, j, false),
                       likeness(x, i, j, -1, true), likeness_error(x, i, j, true));
}

/* The matrix of cosines, of few models, whose columns are numbered. */
static void report_matrix(const similarity *x)
{
    static const char *const keys[TABLE_MODELS] = {"1", "2", "3", "4", "5", "6", "7", "8", "9"};
    column columns[TABLE_MODELS + 2];
    double v[TABLE_MODELS] = {0};
    memset(columns, 0, sizeof columns);
    if (x->count > TABLE_MODELS) return;
    columns[0].key = "model";
    columns[0].width = 14;
    columns[0].format = "%s";
    for (int64_t j = 0; j < x->count; j++) {
        columns[j + 1].key = keys[j];
        columns[j + 1].width = 5;
        columns[j + 1].format = "%.3f";
    }
    report_table("cosines", NULL, columns);
    for (int64_t i = 0; i < x->count; i++) {
        for (int64_t j = 0; j < x->count; j++) v[j] = likeness(x, i, j, -1, false);
        report_row(columns, x->model[i].name, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]);
    }
}

static void draw_matrix(const similarity *x, tn_ctx *ctx, const char *out)
{
    const int64_t        M = x->count;
    tn_image_matrix_desc d;
    double              *v = (double *)allocate((size_t)(M * M), sizeof *v);
    const char         **names = (const char **)allocate((size_t)M, sizeof *names);
    double               least = 1;
    for (int64_t i = 0; i < M; i++) names[i] = x->model[i].name;
    for (int64_t i = 0; i < M * M; i++) v[i] = floor(likeness(x, i / M, i % M, -1, false) * 100 + 0.5) / 100;
    memset(&d, 0, sizeof d);
    d.title = circuit_settings.inputs ? "Cosines of logits, Gaussian inputs" : "Cosines of logits on text";
    d.x_names = d.y_names = names;
    for (int64_t i = 0; i < M * M; i++) if (!(v[i] >= least)) least = v[i];
    d.colours = least < 0 ? TN_IMAGE_COLOURS_DIVERGING : TN_IMAGE_COLOURS_SEQUENTIAL;
    d.low = least < 0 ? -1 : fmin(0.9, floor(10 * least) / 10);
    d.high = 1;
    d.cell = M <= 20 ? 44 : 0;
    d.numbers = true;
    d.scale = 2;
    tn_image *image = tn_image_matrix(ctx, v, M, M, &d);
    check_ctx(ctx, "the picture");
    char *failed = write_file_with(out, BY_USER, picture_writer(out), image, ctx);
    if (failed) fail("%s", failed);
    tn_image_destroy(image);
    free(names);
    free(v);
}

void similarity_report(subject *s, const char *other)
{
    const double start = now();
    char        *out = circuit_settings.out ? copy_text(circuit_settings.out) : copy_text("similarity" PICTURE_ENDING);
    const bool   steps = circuit_settings.checkpoints || !circuit_settings.other_count;
    similarity   x;
    (void)other;
    memset(&x, 0, sizeof x);
    picture_writer(out);
    check_not_model("out", circuit_settings.out, "the model", s->path);
    if (circuit_settings.text && circuit_settings.inputs) usage_error("--text is given, expected none with --inputs gaussian");
    for (int64_t k = -1; k < circuit_settings.other_count; k++) {
        const char *path = k < 0 ? s->path : circuit_settings.others[k];
        if (steps) add_steps(&x, s, path, !circuit_settings.other_count);
        else add_model(&x, s, path, NULL);
    }
    measure(&x, s);
    leave_out_zeros(&x);
    report_matrix(&x);
    report_pairs(&x);
    draw_matrix(&x, s->m.ctx, out);
    report_note("Of the logits after each position, less their mean over the vocabulary: the cosine, and the mean squared "
                "difference over the sum of the mean squares (0: equal; 1: unrelated). Standard errors by leaving out one of the "
                "%lld windows of %lld positions after the other.", (long long)x.windows, (long long)x.length);
    if (circuit_settings.inputs)
        report_note("Inputs are Gaussian vectors in place of the embeddings, the same combination of tokens in all models, with "
                    "mean and covariance of a token that is drawn with %s.",
                    s->frequency ? "the frequencies of the run's text" : "equal frequencies");
    report_value("models", "%.0f", (double)x.count);
    report_value("positions", "%.0f", (double)(x.windows * x.length));
    report_value("seconds", "%.2f", now() - start);
    report_text("picture", out);
    free(x.model);                      /* names last as long as the program: some are of models that were left out */
    free(x.products);
    free(out);
}
