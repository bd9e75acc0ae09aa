/* draw.c - tn draw: a picture of a matrix, a vector, an interaction matrix or a spectrum of a file */
#include "tn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 400, SCALE = 2,                   /* of a matrix's longer side, in pixels at scale 1; and that scale */
       NAME_HEIGHT = 14, MOST_NAMES = 64 };     /* a side of few names gets space for all of them                  */
static const double most_numbers = 268435456;   /* 2 GiB as doubles */

static struct {
    const char *slice, *interaction, *tokenizer, *out;
    bool        tokens, spectrum, numbers;
    int         reduce;
    int64_t     top;
    double      clip;
} settings = { .clip = 100 };

static option options[] = {
    TEXT_ROW("slice", &settings.slice, "I,J,...", "which part: for each axis an index (from the end, if negative), a "
             "range such as 2:5, or a colon for all of it", NEVER),
    TEXT_ROW("interaction", &settings.interaction, "N", "of a bilinear MLP: the interaction matrix of its output N, whose "
             "element i,j is the coefficient of the inputs i and j; with --tokens of the logit of token N, a number or a "
             "text", NEVER),
    FLAG_ROW("tokens", &settings.tokens, "--interaction between tokens, each from its embedding with its own norm, in nats",
             NEVER),
    FLAG_ROW("spectrum", &settings.spectrum, "the singular values of the matrix; with --interaction its eigenvalues",
             NEVER),
    COUNT_ROW("top", &settings.top, "only the N tokens, or without a tokenizer the N rows and columns, of largest norm, "
              "the largest first; 0: all", 0, 1e6, NEVER),
    WORDS_ROW("reduce", &settings.reduce, "mean|largest", "what a cell shows if there are more values than pixels: their "
              "mean, or the one of largest magnitude", NEVER),
    NUMBER_ROW("clip", &settings.clip, "the percentile of |value| at which the colours end", 1, 100, NEVER),
    FLAG_ROW("numbers", &settings.numbers, "write the values into the cells, where they fit", NEVER),
    TEXT_ROW("tokenizer", &settings.tokenizer, "RUN|FILE", "names an axis that has one element per token; the default is "
             "the tokenizer.json beside the file", NEVER),
    TEXT_ROW("out", &settings.out, "FILE", "the picture, .png, .svg or .ppm; the default is NAME" PICTURE_ENDING, NEVER),
};

const usage draw_usage = {
    "draw", "RUN|FILE [NAME]", "draw a matrix, an interaction matrix or a spectrum",
    "Draws a tensor of a run, of a safetensors file or of a .npy file: a matrix as coloured cells, a vector as a plot. NAME "
    "is its name (tn info lists the names), or with --interaction that of an MLP, such as blocks.0.mlp. Red is positive, "
    "blue negative, NaN grey.",
    "Examples: tn draw RUN embed.w --top 30. tn draw model.safetensors blocks.0.mlp.w --slice 0,:,: --out w.png. tn draw "
    "RUN blocks.0.mlp --interaction the --tokens --top 20. tn draw x.npy --spectrum.",
    options, sizeof options / sizeof *options, 2, NULL
};

/* One axis of the picture. */
typedef struct axis {
    int64_t      count, first, all;             /* elements shown; the first one's index; the elements that the axis has */
    int64_t     *at;                            /* indices, if --top chose them; or NULL   */
    char         title[48];
    const char **names;                         /* [count], or NULL: indices from 0        */
    bool         tokens;                        /* one element per token                   */
    bool         constant;                      /* and a last one, that of the constant 1  */
} axis;

typedef struct drawing {
    tn_ctx       *ctx;
    tn_tokenizer *tokenizer;
    char         *file, *folder;                /* of the numbers                          */
    char         *title, *base;                 /* what is drawn; what its file is called  */
    int           rank;                         /* 1: a vector, with one row               */
    axis          axis[2];                      /* rows, columns                           */
    double       *v;                            /* [rows,columns]                          */
    buffer        notes;                        /* lines to print                          */
} drawing;

static drawing drawn;

static void set_text(char **to, char *text)
{
    free(*to);
    *to = text;
}

/* ---- a part of a tensor --------------------------------------------------------------------------- */

/* An index of --slice: from the end if it is negative. */
static int64_t slice_index(const char *text, char **end, int64_t extent)
{
    const long long i = strtoll(text, end, 10);
    return i < 0 ? i + extent : i;
}

/* One entry of --slice. Returns whether it is an index, which removes the axis. */
static bool slice_entry(const char *text, int k, int64_t extent, int64_t *first, int64_t *end)
{
    const char *colon = strchr(text, ':');
    char       *rest = (char *)text;
    *first = 0, *end = extent;
    if (text != colon) *first = slice_index(text, &rest, extent);
    bool valid = colon ? rest == colon : *text && !*rest;
    if (valid && colon && colon[1]) {
        *end = slice_index(colon + 1, &rest, extent);
        valid = !*rest;
    }
    if (!colon) *end = *first + 1;
    if (!valid) usage_error("--slice: \"%s\" is not valid, expected an index, a range such as 2:5, or a colon", text);
    if (*first < 0 || *end > extent || *first >= *end)
        fail("--slice: %s is outside of axis %d, which has %lld elements", text, k, (long long)extent);
    return !colon;
}

/* The part of a tensor that --slice names becomes d->v and its axes. */
static void take_part(drawing *d, tn_tensor *t)
{
    const char *text = settings.slice ? settings.slice : "";
    const char *given = text;
    int         axes = 0;
    for (int k = 0; k < t->rank; k++) {
        char   *one = format_text("%.*s", (int)strcspn(text, ","), text);
        int64_t first = 0, all = t->shape[k], end = all;
        const bool index = *one ? slice_entry(one, k, all, &first, &end) : false;
        t = tn_slice(t, k, first, end);
        check_ctx(d->ctx, "--slice");
        if (!index) {
            if (axes < 2) {
                d->axis[axes].count = end - first;
                d->axis[axes].first = first;
                d->axis[axes].all = all;
                snprintf(d->axis[axes].title, sizeof d->axis[axes].title, "axis %d", k);
            }
            axes++;
        }
        free(one);
        text += strcspn(text, ",");
        if (*text) text++;
    }
    if (*text) usage_error("--slice is \"%s\", expected at most %d entries, one per axis", given, t->rank);
    if (axes > 2) {
        buffer shape = {0}, example = {0};
        for (int k = 0; k < t->rank; k++) {
            buffer_print(&shape, k ? ",%lld" : "%lld", (long long)t->shape[k]);
            buffer_print(&example, k ? k < t->rank - 2 ? ",0" : ",:" : "0");
        }
        usage_error("%s is [%s], expected a matrix or a vector: choose one, such as --slice %s", d->title, shape.data,
                    example.data);
    }
    if (axes < 2) {                             /* a vector is one row; a number a vector of one element */
        d->axis[1] = d->axis[0];
        memset(&d->axis[0], 0, sizeof d->axis[0]);
        d->axis[0].count = d->axis[0].all = 1;
        if (!axes) d->axis[1].count = d->axis[1].all = 1;
    }
    if (!tn_tensor_count(t)) fail("%s has no elements", d->title);
    d->rank = axes < 2 ? 1 : 2;
    d->v = numbers_in(t);
    if (settings.slice) set_text(&d->title, format_text("%s[%s]", d->title, settings.slice));
}

/* ---- interaction matrices -------------------------------------------------------------------------- */

/* The desc of the model, from the file or from the config.json beside it; false if there is none. */
static bool model_desc(const drawing *d, const tn_safetensors *file, tn_transformer_desc *desc)
{
    const char *text = tn_safetensors_metadata(file, "tn.model");
    char       *beside = join_path(d->folder, "config.json");
    const bool  there = text || is_file(beside);
    if (text) tn_transformer_config_read(d->ctx, tn_source_memory(text, strlen(text)), desc);
    else if (there) tn_transformer_config_read(d->ctx, tn_source_path(beside), desc);
    check_ctx(d->ctx, "the model");
    free(beside);
    return there;
}

static const tn_safetensors_entry *find_part(const tn_safetensors *file, const char *name, const char *part)
{
    char                       *whole = format_text("%s.%s", name, part);
    const tn_safetensors_entry *found = tn_safetensors_find(file, whole);
    free(whole);
    return found;
}

/* The shape of an MLP's parameters says all that its desc has, except for the kind. */
static tn_mlp_desc mlp_desc(const drawing *d, const tn_safetensors *file, const char *name)
{
    const tn_safetensors_entry *encoders = find_part(file, name, "w"), *projection = find_part(file, name, "p");
    tn_mlp_desc                 desc;
    memset(&desc, 0, sizeof desc);
    if (!encoders) no_such_tensor(file, d->file, name, ".w", "bilinear MLP");
    if (encoders->rank != 3 || encoders->shape[0] != 2)
        fail("%s is not a bilinear MLP of two encoders: %s has rank %d, and extent %lld of axis 0", name, encoders->name,
             encoders->rank, (long long)(encoders->rank ? encoders->shape[0] : 1));
    desc.kind = TN_MLP_BILINEAR;
    desc.hidden = encoders->shape[1];
    desc.in = encoders->shape[2];
    desc.no_projection = !projection;
    desc.out = projection ? projection->shape[0] : desc.hidden;
    desc.bias = find_part(file, name, "b") != NULL;
    desc.out_bias = find_part(file, name, "pb") != NULL;
    return desc;
}

static void check_kind(const tn_transformer_desc *desc, const char *name)
{
    int         block;
    tn_mlp_kind kind = desc->mlp;
    if (desc->mlp_count > 0 && sscanf(name, "blocks.%d.", &block) == 1 && block >= 0)
        kind = desc->mlp_cycle[block % desc->mlp_count];
    if (kind != TN_MLP_BILINEAR)
        fail("%s is %s, expected bilinear: only that is a tensor", name, tn_mlp_kind_name(kind));
}

/* From tokens to logits, as `tn circuits pairs` has it: each token's embedding with its own norm, the outputs in nats for a
   typical denominator of the last norm. */
static tn_cp *between_tokens(drawing *d, const tn_safetensors *file, const char *name)
{
    model    m;
    int      block;
    if (!tn_safetensors_find(file, "embed.w") || sscanf(name, "blocks.%d.", &block) != 1)
        fail("%s has no embed.w, expected a language model and blocks.N.mlp with --tokens", d->file);
    open_model_in(d->ctx, &m, d->file, settings.tokenizer, NULL);
    int32_t *ids = (int32_t *)allocate((size_t)m.desc.vocab, sizeof *ids);
    for (int64_t i = 0; i < m.desc.vocab; i++) ids[i] = (int32_t)i;
    const double unit = typical_unit_of(d->ctx, &m.net);
    tn_tensor   *x = token_vectors(d->ctx, &m.net, ids, m.desc.vocab);
    tn_cp       *cp = tn_circuit_mlp(d->ctx, &m.net, block);
    check_ctx(d->ctx, name);
    cp = tn_cp_fold_out(cp, tn_scale(d->ctx, tn_circuit_unembedding(d->ctx, &m.net), unit), NULL);
    cp = tn_cp_fold_in(cp, tn_transpose(x, 0, 1), NULL);
    check_ctx(d->ctx, "--tokens");
    buffer_print(&d->notes, "unit: nats, for a typical denominator of the last norm\n");
    free(ids);
    return cp;
}

/* The number of an output, which with --tokens is a token. */
static int64_t output_index(const drawing *d, int64_t outputs)
{
    char *end;
    if (settings.tokens) return find_token(d->tokenizer, outputs, settings.interaction);
    int64_t n = strtoll(settings.interaction, &end, 10);
    if (end == settings.interaction || *end)
        usage_error("--interaction is \"%s\", expected a number, or with --tokens a token", settings.interaction);
    if (n < 0 || n >= outputs) fail("--interaction is %lld, expected 0 to %lld", (long long)n, (long long)outputs - 1);
    return n;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The eigenvalues of one output, from the largest to the smallest; no matrix is formed. */
static void take_eigenvalues(drawing *d, const tn_cp *cp, int64_t output)
{
    tn_tensor *u = tn_full(d->ctx, 1, &cp->out, 0);
    double     one = 1;
    tn_eigenpairs   e;
    int64_t    n;
    tn_write(tn_slice(u, 0, output, output + 1), TN_F64, &one, 1);
    if (tn_cp_eigen(cp, u, 0, &e) != TN_OK) check_ctx(d->ctx, "--spectrum");
    d->rank = 1;
    d->axis[0].count = 1;
    d->axis[1].first = 1;
    strcpy(d->axis[1].title, "number");
    d->v = numbers_in(e.values);
    for (n = e.count; n > 1 && fabs(d->v[n - 1]) < 1e-12 * fabs(d->v[0]); n--) {}       /* by magnitude */
    if (n < e.count) buffer_print(&d->notes, "zero: %lld more\n", (long long)(e.count - n));
    d->axis[1].count = n;
    qsort(d->v, (size_t)n, sizeof *d->v, by_value);
}

static void take_interaction(drawing *d, const char *name)
{
    tn_safetensors     *file = tn_safetensors_open(d->ctx, tn_source_path(d->file));
    tn_params          *params = tn_params_create(d->ctx);
    tn_transformer_desc whole;
    tn_mlp              mlp;
    check_ctx(d->ctx, d->file);
    tn_mlp_desc desc = mlp_desc(d, file, name);
    if (!model_desc(d, file, &whole)) buffer_print(&d->notes, "kind: not in the file; taken to be bilinear\n");
    else {
        check_kind(&whole, name);
        if (!settings.tokens && whole.mlp_scale != 0 && whole.mlp_scale != 1)
            buffer_print(&d->notes, "scale: the factor of the branch is left out\n");
    }
    tn_mlp_init(params, name, &desc, &mlp);
    tn_params_read(params, tn_source_path(d->file), TN_MATCH_IGNORE_EXTRA);
    tn_cp *cp = tn_cp_from_mlp(d->ctx, &mlp);
    check_ctx(d->ctx, name);
    if (settings.tokens) cp = between_tokens(d, file, name);
    tn_safetensors_close(file);
    int64_t output = output_index(d, cp->out);
    char   *token = settings.tokens && d->tokenizer ? token_name(d->tokenizer, output) : NULL;
    char   *of = token ? format_text("token \"%s\"", token)
                 : format_text("%s %lld", settings.tokens ? "token" : "output", (long long)output);
    d->title = format_text("%s, %s of %s", name, settings.spectrum ? "eigenvalues" : "interaction matrix", of);
    free(token);
    free(of);
    d->base = format_text("%s.interaction.%lld%s", name, (long long)output, settings.tokens ? ".tokens" : "");
    if (settings.spectrum) {
        take_eigenvalues(d, cp, output);
        return;
    }
    if ((double)cp->in[0] * (double)cp->in[0] > most_numbers)
        fail("the interaction matrix is [%lld,%lld], expected at most %.0f numbers; --spectrum does not need it",
             (long long)cp->in[0], (long long)cp->in[0], most_numbers);
    tn_tensor *t = tn_cp_interaction_of(cp, output);
    check_ctx(d->ctx, name);
    d->rank = 2;
    for (int64_t k = 0; k < 2; k++) {
        d->axis[k].count = d->axis[k].all = t->shape[k];
        d->axis[k].constant = cp->constant;
        snprintf(d->axis[k].title, sizeof d->axis[k].title, "%s%s", settings.tokens ? "token" : "input",
                 cp->constant ? ", or 1 (the last)" : "");
    }
    d->v = numbers_in(t);
}

/* ---- singular values ------------------------------------------------------------------------------- */

static double *values_of_svd(drawing *d, int64_t *count)
{
    const int64_t shape[2] = {d->axis[0].count, d->axis[1].count};
    tn_svd_result r;
    if (d->rank != 2) usage_error("%s is a vector, expected a matrix with --spectrum", d->title);
    tn_svd(d->ctx, tn_tensor_from(d->ctx, 2, shape, TN_F64, d->v), NULL, &r);
    check_ctx(d->ctx, "--spectrum");
    *count = tn_tensor_count(r.s);
    return numbers_in(r.s);
}

static void take_singular_values(drawing *d)
{
    int64_t count;
    double *s = values_of_svd(d, &count);
    free(d->v);
    d->v = s;
    d->rank = 1;
    memset(d->axis, 0, sizeof d->axis);
    d->axis[0].count = 1;
    d->axis[1].count = count;
    d->axis[1].first = 1;
    strcpy(d->axis[1].title, "number");
    set_text(&d->title, format_text("Singular values of %s", d->title));
}

/* ---- rows and columns ------------------------------------------------------------------------------- */

typedef struct norm_of { double norm; int64_t at; } norm_of;

static int by_norm(const void *a, const void *b)
{
    const norm_of *x = (const norm_of *)a, *y = (const norm_of *)b;
    return x->norm != y->norm ? (x->norm < y->norm) - (x->norm > y->norm) : (x->at > y->at) - (x->at < y->at);
}

/* The indices of the --top rows (k = 0) or columns (k = 1); NULL if that is all of them, or if only the other axis has
   tokens. */
static int64_t *top_of(const drawing *d, int k)
{
    const int64_t rows = d->axis[0].count, columns = d->axis[1].count, n = d->axis[k].count;
    if (!settings.top || settings.top >= n || (d->axis[1 - k].tokens && !d->axis[k].tokens)) return NULL;
    norm_of *all = (norm_of *)allocate((size_t)n, sizeof *all);
    for (int64_t i = 0; i < n; i++) all[i].at = i;
    for (int64_t i = 0; i < rows * columns; i++) {
        norm_of *one = &all[k ? i % columns : i / columns];
        if (isfinite(d->v[i])) one->norm = hypot(one->norm, d->v[i]);
    }
    qsort(all, (size_t)n, sizeof *all, by_norm);
    int64_t *at = (int64_t *)allocate((size_t)settings.top, sizeof *at);
    for (int64_t i = 0; i < settings.top; i++) at[i] = all[i].at;
    free(all);
    return at;
}

static void take_top(drawing *d)
{
    axis   *a = d->axis;
    const int64_t columns = a[1].count;
    for (int k = d->rank == 1; k < 2; k++) a[k].at = top_of(d, k);
    if (!a[0].at && !a[1].at) return;
    for (int k = 0; k < 2; k++) if (a[k].at) a[k].count = settings.top;
    double *v = (double *)allocate((size_t)(a[0].count * a[1].count), sizeof *v);
    for (int64_t i = 0; i < a[0].count; i++)
        for (int64_t j = 0; j < a[1].count; j++)
            v[i * a[1].count + j] = d->v[(a[0].at ? a[0].at[i] : i) * columns + (a[1].at ? a[1].at[j] : j)];
    free(d->v);
    d->v = v;
    for (int k = 0; k < 2; k++)
        if (a[k].at)
            buffer_print(&d->notes, "%s: the %lld of largest norm\n", d->rank == 1 ? "elements" : k ? "columns" : "rows",
                         (long long)a[k].count);
}

/* Finds the axes that have one element per token. */
static void find_tokens(drawing *d)
{
    bool found = false;
    for (int k = 0; k < 2; k++) {
        axis *a = &d->axis[k];
        a->tokens = d->tokenizer && a->all == tn_tokenizer_count(d->tokenizer) + a->constant;
        found = found || a->tokens;
        if (a->tokens && !settings.interaction) strcpy(a->title, "token");
    }
    if (settings.tokenizer && !found && !settings.spectrum)
        fail("--tokenizer has %lld tokens, expected an axis of as many elements: %s has %lld x %lld",
             (long long)tn_tokenizer_count(d->tokenizer), d->title, (long long)d->axis[0].all,
             (long long)d->axis[1].all);
}

static void name_axes(drawing *d)
{
    for (int k = 0; k < 2; k++) {
        axis *a = &d->axis[k];
        if (!a->tokens && !a->at && !a->first) continue;
        a->names = (const char **)allocate((size_t)a->count, sizeof *a->names);
        for (int64_t i = 0; i < a->count; i++) {
            const int64_t at = a->first + (a->at ? a->at[i] : i);
            a->names[i] = a->constant && at == a->all - 1 ? copy_text("1")
                        : a->tokens ? token_name(d->tokenizer, at) : format_text("%lld", (long long)at);
        }
    }
}

/* The tokenizer that is given, or the one beside the file; the bytes have none that could name an axis. */
static void find_tokenizer(drawing *d)
{
    const char *given = settings.tokenizer;
    const char *folder = !given ? d->folder : is_folder(given) ? given : NULL;
    char       *path = folder ? join_path(folder, "tokenizer.json") : copy_text(given);
    if (given && !is_file(path)) fail("%s: no such file", path);
    if (is_file(path)) d->tokenizer = open_tokenizer(d->ctx, path);
    free(path);
}

/* ---- drawing --------------------------------------------------------------------------------------- */

static void print_numbers(const drawing *d)
{
    const int64_t n = d->axis[0].count * d->axis[1].count;
    double        low = NAN, high = NAN, norm = 0, sum = 0;
    int64_t       nans = 0, infinite = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = d->v[i];
        nans += isnan(v) != 0;
        infinite += isinf(v) != 0;
        if (!isfinite(v)) continue;
        if (!(v >= low)) low = v;
        if (!(v <= high)) high = v;
        norm = hypot(norm, v);
        sum += fabs(v);
    }
    print("drawn: %s\n", d->title);
    if (d->rank == 2) print("shape: [%lld,%lld]\n", (long long)d->axis[0].count, (long long)d->axis[1].count);
    else print("shape: [%lld]\n", (long long)d->axis[1].count);
    print("smallest: %.6g\nlargest: %.6g\nnorm: %.6g\n", low, high, norm);
    if (settings.spectrum && norm > 0) print("effective_rank: %.4g\n", sum / norm * (sum / norm));
    if (nans) print("nan: %lld\n", (long long)nans);
    if (infinite) print("infinite: %lld\n", (long long)infinite);
    if (d->notes.data) print_text(d->notes.data, d->notes.bytes);
}

/* How many values of an axis a cell shows: as tn_image_matrix does it. */
static int64_t block_of(int64_t n) { return n <= SIZE * SCALE ? 1 : (n - 1) / (SIZE * SCALE) + 1; }

static int64_t picture_size(const drawing *d)
{
    int64_t size = SIZE;
    for (int k = 0; k < 2; k++) {
        const int64_t n = d->axis[k].count;
        if (d->axis[k].names && n <= MOST_NAMES && NAME_HEIGHT * n > size) size = NAME_HEIGHT * n;
    }
    return size;
}

/* Whether square cells would make the picture too thin, or leave no space for the names of an axis. */
static bool stretched(const drawing *d)
{
    const int64_t rows = d->axis[0].count, columns = d->axis[1].count, most = rows > columns ? rows : columns;
    if (most > 3 * (rows < columns ? rows : columns)) return true;
    for (int k = 0; k < 2; k++)
        if (d->axis[k].names && d->axis[k].count <= MOST_NAMES && picture_size(d) < NAME_HEIGHT * most) return true;
    return false;
}

static tn_image *draw_matrix(drawing *d)
{
    const int64_t  rows = d->axis[0].count, columns = d->axis[1].count, most = rows > columns ? rows : columns;
    const bool     stretch = stretched(d);
    const int64_t  down = block_of(stretch ? rows : most), across = block_of(stretch ? columns : most);
    static const char *const words[] = {"mean", "value of largest magnitude"};
    buffer         caption = {0};
    tn_image_matrix_desc m;
    memset(&m, 0, sizeof m);
    m.title = d->title;
    m.x_title = d->axis[1].title;
    m.y_title = d->axis[0].title;
    m.x_names = d->axis[1].names;
    m.y_names = d->axis[0].names;
    m.clip = settings.clip;
    m.size = picture_size(d);
    m.scale = SCALE;
    m.stretch = stretch;
    m.largest = settings.reduce == 1;
    m.numbers = settings.numbers;
    if (down > 1 || across > 1) {
        print("reduced: blocks of %lld x %lld, their %s\n", (long long)down, (long long)across, words[settings.reduce]);
        buffer_print(&caption, "each cell: the %s of %lld x %lld", words[settings.reduce], (long long)down,
                     (long long)across);
    }
    if (settings.clip < 100)
        buffer_print(&caption, "%scolours end at percentile %g of |value|", caption.data ? "; " : "", settings.clip);
    m.caption = caption.data;
    tn_image *image = tn_image_matrix(d->ctx, d->v, rows, columns, &m);
    free(caption.data);
    return image;
}

/* A vector, or a spectrum: stems if they are few, else points or a line. Singular values that differ much get a logarithmic
   axis, which leaves out those that are zero. */
static tn_image *draw_vector(drawing *d)
{
    const axis  *a = &d->axis[1];
    double      *x = (double *)allocate((size_t)a->count + 1, sizeof *x), low = INFINITY, high = 0;
    tn_image_series    s;
    tn_image_plot_desc p;
    memset(&s, 0, sizeof s);
    memset(&p, 0, sizeof p);
    for (int64_t i = 0; i < a->count; i++) {
        x[i] = (double)(a->first + i);
        if (d->v[i] > high) high = d->v[i];
        if (d->v[i] > 1e-16 * high && d->v[i] < low) low = d->v[i];     /* they descend: high is the first */
    }
    s.x = a->count <= 32 || (!a->first && !a->at) ? NULL : x;         /* whole numbers, or names */
    s.y = d->v;
    s.count = a->count;
    p.title = d->title;
    p.x_title = a->at && s.x ? "place, by magnitude" : a->title;
    p.y_title = settings.spectrum ? settings.interaction ? "eigenvalue" : "singular value" : "value";
    p.log_y = settings.spectrum && !settings.interaction && high > 50 * low;
    p.scale = SCALE;
    s.kind = p.log_y ? a->count <= 100 ? TN_IMAGE_SERIES_POINTS : TN_IMAGE_SERIES_LINE
           : a->count <= 200 ? TN_IMAGE_SERIES_STEMS : settings.spectrum ? TN_IMAGE_SERIES_LINE : TN_IMAGE_SERIES_POINTS;
    if (a->names && a->count <= 32) {
        p.x_names = a->names;
        p.x_name_count = a->count;
    }
    tn_image *image = tn_image_plot(d->ctx, &s, 1, &p);
    free(x);
    return image;
}

static tn_status put_png(void *image, tn_sink sink) { return tn_image_write_png((const tn_image *)image, sink); }
static tn_status put_svg(void *image, tn_sink sink) { return tn_image_write_svg((const tn_image *)image, sink); }
static tn_status put_ppm(void *image, tn_sink sink) { return tn_image_write_ppm((const tn_image *)image, sink); }

writer_fn picture_writer(const char *path)
{
    if (ends_with(path, ".svg")) return put_svg;
    if (ends_with(path, ".ppm")) return put_ppm;
    if (!ends_with(path, ".png")) usage_error("--out is %s, expected a name that ends with .png, .svg or .ppm", path);
#ifndef HAVE_STB_IMAGE_WRITE
    usage_error("--out is %s, expected .svg or .ppm: this tn was built without stb_image_write", path);
#endif
    return put_png;
}

/* The name of a tensor as that of a file in this folder, which is no option and is not hidden. */
static char *default_out(const drawing *d)
{
    char  *path = format_text("%s%s" PICTURE_ENDING, d->base, settings.spectrum ? ".spectrum" : "");
    size_t n = tn_printable(path, strlen(path), false);
    for (size_t i = 0; i < n; i++) if (strchr("/\\?", path[i]) || (i == 0 && strchr("-.", path[i]))) path[i] = '_';
    return path;
}

/* What is drawn, as bits */
enum { MATRIX = 1, PLOT = 2 };
static const limited_option limited[] = {{"reduce", MATRIX}, {"clip", MATRIX}, {"numbers", MATRIX}, {NULL, 0}};

static void check_settings(bool npy, const char *name)
{
    if (settings.interaction && npy) usage_error("--interaction is given, expected a run or a safetensors file");
    if (settings.interaction && settings.slice) usage_error("--slice is given, expected none with --interaction");
    if (settings.interaction && !name)
        usage_error("--interaction is given, expected the NAME of an MLP, such as blocks.0.mlp");
    if (settings.tokens && !settings.interaction) usage_error("--tokens is given, expected --interaction as well");
    if (npy && name) usage_error("a NAME is given, expected none with a .npy file, which has one array");
}

int draw_main(int argc, char **argv)
{
    const int   arguments = read_options(&draw_usage, argc, argv);
    const char *name = arguments > 1 ? argv[1] : NULL;
    drawing    *d = &drawn;
    tn_desc     desc;
    char        why[TN_WHY];
    memset(&desc, 0, sizeof desc);
    if (!arguments) usage_error("no file is given, expected tn draw %s", draw_usage.arguments);
    if (settings.out) picture_writer(settings.out);
    check_settings(is_npy(argv[0]), name);
    check_not_model("out", settings.out, "the model", argv[0]);
    check_not_model("out", settings.out, "the tokenizer", settings.tokenizer);
    d->file = array_file(argv[0]);
    d->folder = folder_of(d->file);
    desc.dtype = TN_F64;
    desc.log = show_log;
    if (tn_ctx_create(&desc, &d->ctx, why) != TN_OK) fail("%s", why);
    find_tokenizer(d);
    if (settings.interaction) take_interaction(d, name);
    else {
        tn_tensor *t = read_array(d->ctx, d->file, name, "the NAME of one", false, &d->title);
        d->base = copy_text(d->title);
        take_part(d, t);
        if (settings.spectrum) take_singular_values(d);
    }
    find_tokens(d);
    if (!settings.spectrum) take_top(d);
    name_axes(d);
    print_numbers(d);
    check_limited(&draw_usage, limited, d->rank == 2 ? MATRIX : PLOT, "a matrix|a plot");
    tn_image *image = d->rank == 2 ? draw_matrix(d) : draw_vector(d);
    check_ctx(d->ctx, "the picture");
    char *out = settings.out ? copy_text(settings.out) : default_out(d);
    char *failed = write_file_with(out, settings.out ? BY_USER : BY_NAME, picture_writer(out), image, d->ctx);
    if (failed) fail("%s", failed);
    print("picture: %s\n", out);
    free(out);
    tn_ctx_destroy(d->ctx);
    return 0;
}
