/* look_images.c - tn look: networks of bilinear layers in files of tensors: image classifiers, and matrices named by options

   The names that are known, with or without the ending ".weight" of PyTorch, biases with ".bias" or ".b":
       X.w [2,h,d]                      both encoders of a layer, as this library writes them; X.p [out,h], X.b, X.pb
       X.w [h,d], X.v [h,d]             X.p [out,h] if there is one
       blocks.K.weight [2h,d]           both stacked: github.com/tdooms/bilinear-decomposition; "residual" of its config.json
       embed, head or unembed           before the first layer, after the last one */
#include "look.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer { char *name; tn_tensor *w, *v, *p, *wb, *vb, *pb; } layer;

typedef struct network {
    tn_ctx         *ctx;
    char           *path;
    tn_safetensors *file;
    tn_tensor      *embed, *embed_bias, *head, *head_bias;
    layer          *layers;
    int64_t         count, numbers;             /* layers; numbers of all that is used */
    bool            residual, said, broken;     /* said: a config.json or --residual says so; broken: has NaN or infinity */
} network;

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

/* A tensor of the network, NULL if there is none. Its numbers are counted and looked at. */
static tn_tensor *take(network *n, const char *name)
{
    if (!name || !tn_safetensors_find(n->file, name)) return NULL;
    tn_tensor *t = tn_safetensors_read(n->file, name);
    check_ctx(n->ctx, n->path);
    int64_t bad = count_nonfinite(t);
    if (bad) page_nonfinite(name, t, bad, "what would follow from it is left out");
    n->broken = n->broken || bad;
    n->numbers += tn_tensor_count(t);
    return t;
}

static tn_tensor *take_any(network *n, const char *name, const char *const *ends)
{
    tn_tensor *t = NULL;
    for (; !t && *ends; ends++) {
        char *whole = format_text("%s%s", name, *ends);
        t = take(n, whole);
        free(whole);
    }
    return t;
}

static const char *const weight_ends[] = {".w", ".weight", ".w.weight", "", NULL}, *const bias_ends[] = {".b", ".bias", NULL};

/* The rows [half rows, ..) of a matrix that has two, one above the other; or of [2,h,d]. */
static tn_tensor *half_of(tn_tensor *t, int64_t half)
{
    const int64_t h = t->rank == 3 ? t->shape[1] : t->shape[0] / 2;
    if (t->rank == 3) return tn_reshape_2d(tn_slice(t, 0, half, half + 1), h, t->shape[2]);
    return tn_slice(t, 0, half * h, (half + 1) * h);
}

static layer *new_layer(network *n, char *name)
{
    n->layers = (layer *)resize(n->layers, (size_t)n->count + 1, sizeof *n->layers);
    memset(&n->layers[n->count], 0, sizeof *n->layers);
    n->layers[n->count].name = name;
    return &n->layers[n->count++];
}

/* The bias of both encoders: [2,h], or [2h]. */
static void take_bias(layer *l, tn_tensor *b)
{
    int64_t h = l->w->shape[0];
    if (!b || tn_tensor_count(b) != 2 * h) return;
    b = tn_reshape_2d(b, 2, h);
    l->wb = tn_slice(b, 0, 0, 1);
    l->vb = tn_slice(b, 0, 1, 2);
}

static void take_pair(network *n, char *name, tn_tensor *both, const char *bias)
{
    layer *l = new_layer(n, name);
    l->w = half_of(both, 0);
    l->v = half_of(both, 1);
    take_bias(l, take(n, bias));
}

/* Whether an entry is a layer's first tensor, by its name and shape; `end` is what follows the layer's name in it. */
static bool begins_layer(const network *n, const tn_safetensors_entry *e, const char **end)
{
    static const char *const ends[] = {".w.weight", ".w", NULL};
    const char *const       *w;
    for (w = ends; *w; w++) {
        if (!ends_with(e->name, *w)) continue;
        *end = *w;
        if (e->rank == 3) return e->shape[0] == 2;
        char *other = copy_text(e->name);
        other[strlen(other) - strlen(*w) + 1] = 'v';
        const tn_safetensors_entry *v = tn_safetensors_find(n->file, other);
        free(other);
        return e->rank == 2 && v && v->rank == 2 && v->shape[0] == e->shape[0] && v->shape[1] == e->shape[1];
    }
    *end = ".weight";
    return !strncmp(e->name, "blocks.", 7) && ends_with(e->name, ".weight") && e->rank == 2 && e->shape[0] % 2 == 0
        && strspn(e->name + 7, "0123456789") + 7 + strlen(".weight") == strlen(e->name);
}

static void find_layer(network *n, const tn_safetensors_entry *e)
{
    static const char *const p_ends[] = {".p", ".p.weight", NULL}, *const pb_ends[] = {".pb", ".p.bias", NULL};
    const char *end;
    layer      *l;
    if (!begins_layer(n, e, &end)) return;
    char *name = format_text("%.*s", (int)(strlen(e->name) - strlen(end)), e->name);
    char *bias = format_text("%s%s", name, e->rank == 3 ? ".b" : ".bias");
    if (e->rank == 3 || !strcmp(end, ".weight")) take_pair(n, name, take(n, e->name), bias);
    else {
        char *other = format_text("%s.v%s", name, end + 2);
        l = new_layer(n, name);
        l->w = take(n, e->name);
        l->v = take(n, other);
        free(other);
    }
    l = &n->layers[n->count - 1];
    l->p = take_any(n, name, p_ends);
    l->pb = take_any(n, name, pb_ends);
    free(bias);
}

/* blocks.2 before blocks.10 */
static int by_name(const void *a, const void *b)
{
    const char  *x = ((const layer *)a)->name, *y = ((const layer *)b)->name;
    const size_t n = strlen(x), m = strlen(y);
    return n != m ? (n > m) - (n < m) : strcmp(x, y);
}

static tn_tensor *take_option(network *n, const char *name, const char *flag)
{
    if (!name) return NULL;
    if (!tn_safetensors_find(n->file, name)) no_such_tensor(n->file, n->path, name, "", "tensor");
    tn_tensor *t = take(n, name);
    if (t->rank != 2 && !(t->rank == 3 && t->shape[0] == 2 && !strcmp(flag, "w")))
        fail("--%s: %s has rank %d, expected a matrix", flag, name, t->rank);
    return t;
}

/* The layer that options name. */
static void take_options(network *n)
{
    const look_options *o = &look_settings;
    tn_tensor          *w = take_option(n, o->w, "w"), *v = take_option(n, o->v, "v");
    layer              *l = new_layer(n, copy_text(o->w));
    if (!v && w->rank == 2 && w->shape[0] % 2) usage_error("--w is given without --v, and has an odd number of rows");
    l->w = v ? w : half_of(w, 0);
    l->v = v ? v : half_of(w, 1);
    if (l->w->rank != 2) fail("--w: %s has rank %d, expected a matrix with --v", o->w, w->rank);
    l->p = take_option(n, o->p, "p");
    n->embed = take_option(n, o->embed, "embed");
    n->head = take_option(n, o->head, "head");
}

/* Whether x + layer(x) is meant. A config.json of bilinear-decomposition says so; without one nothing does, except for a note
   in words. */
static bool is_residual(network *n)
{
    const char *words = tn_safetensors_metadata(n->file, "model"), *to, *bad;
    char       *folder = folder_of(n->path), *path = join_path(folder, "config.json");
    size_t      bytes = 0;
    char       *config = is_file(path) ? read_file(path, BY_NAME, &bytes) : NULL;
    const bool  yes = config && json_true(config, config + bytes, "residual");
    n->said = look_settings.residual || (config && json_find(config, config + bytes, "residual", &to, &bad));
    free(config);
    free(path);
    free(folder);
    if (look_settings.residual) return look_settings.residual == 1;
    return n->said ? yes : words && find_text(words, strlen(words), "residual") && !find_text(words, strlen(words), "no residual");
}

static void check_pair(const network *n, const char *a, const tn_tensor *x, int64_t given, const char *b, int64_t expected)
{
    if (given != expected)
        fail("%s: %s has shape [%lld,%lld], which does not fit %s: %lld, expected %lld", n->path, a, (long long)x->shape[0],
             (long long)x->shape[1], b, (long long)given, (long long)expected);
}

static void check_shapes(const network *n)
{
    const layer *last = &n->layers[n->count - 1];
    int64_t      width = n->embed ? n->embed->shape[0] : n->layers[0].w->shape[1];
    for (int64_t k = 0; k < n->count; k++) {
        const layer *l = &n->layers[k];
        check_pair(n, "v", l->v, l->v->shape[0], "w", l->w->shape[0]);
        check_pair(n, "v", l->v, l->v->shape[1], "w", l->w->shape[1]);
        check_pair(n, l->name, l->w, l->w->shape[1], "what is before it", width);
        if (l->p) check_pair(n, "p", l->p, l->p->shape[1], "w", l->w->shape[0]);
        width = l->p ? l->p->shape[0] : l->w->shape[0];
    }
    if (n->head) check_pair(n, "head", n->head, n->head->shape[1], last->name, width);
}

/* False: the file has no bilinear layer. */
static bool read_network(network *n, tn_ctx *ctx, const char *path)
{
    memset(n, 0, sizeof *n);
    n->ctx = ctx;
    n->path = copy_text(path);
    n->file = tn_safetensors_open(ctx, tn_source_path(path));
    check_ctx(ctx, path);
    if (look_settings.w) take_options(n);
    else {
        for (int64_t i = 0; i < tn_safetensors_count(n->file); i++) find_layer(n, tn_safetensors_at(n->file, i));
        if (!n->count) return false;
        qsort(n->layers, (size_t)n->count, sizeof *n->layers, by_name);
        n->embed = take_any(n, "embed", weight_ends);
        n->embed_bias = take_any(n, "embed", bias_ends);
        n->head = take_any(n, "head", weight_ends);
        n->head_bias = take_any(n, "head", bias_ends);
        if (!n->head) n->head = take_any(n, "unembed", weight_ends);
        if (!n->head_bias) n->head_bias = take_any(n, "unembed", bias_ends);
    }
    n->residual = is_residual(n);
    check_shapes(n);
    return true;
}

static void close_network(network *n)
{
    for (int64_t k = 0; k < n->count; k++) free(n->layers[k].name);
    free(n->layers);
    free(n->path);
    tn_safetensors_close(n->file);
}

/* ---- operators --------------------------------------------------------------------------------------------------------- */

/* A matrix with a vector as its last column; NULL: zeros. */
static tn_tensor *with_column(tn_ctx *ctx, tn_tensor *m, tn_tensor *last)
{
    const int64_t shape[2] = {m->shape[0], 1};
    tn_tensor *both[2] = {m, last ? tn_reshape(last, 2, shape) : tn_full(ctx, 2, shape, 0)};
    return tn_concat(ctx, 2, both, 1);
}

static tn_cp *operator_of_layer(const network *n, const layer *l)
{
    tn_ctx    *ctx = n->ctx;
    tn_tensor *f[2] = {l->w, l->v};
    if (l->wb || l->vb) {
        f[0] = with_column(ctx, l->w, l->wb);
        f[1] = with_column(ctx, l->v, l->vb);
    }
    tn_cp *cp = tn_cp_create(ctx, 2, tn_eye(ctx, l->w->shape[0]), f, l->wb || l->vb ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
    if (l->p) cp = tn_cp_fold_out(cp, l->p, l->pb);
    return cp;
}

/* Layer k from the inputs to the outputs: all of the network if it is its only layer. */
static tn_cp *operator_of(const network *n, int64_t k)
{
    uint64_t mark = tn_cp_mark(n->ctx);
    tn_cp   *cp = operator_of_layer(n, &n->layers[k]);
    if (n->residual && n->count == 1) cp = tn_cp_residual(cp);
    if (n->embed && (k == 0 || n->residual)) cp = tn_cp_fold_in(cp, n->embed, n->embed_bias);
    if (n->head && (k + 1 == n->count || n->residual))
        cp = tn_cp_fold_out(cp, n->head, n->count == 1 ? n->head_bias : NULL);
    check_ctx(n->ctx, n->layers[k].name);
    return tn_cp_release(n->ctx, mark, cp);
}

/* ---- names ------------------------------------------------------------------------------------------------------------- */

/* The words of a text that commas separate, a new list. */
static const char **split_words(const char *text, int64_t *count)
{
    const char **words = NULL;
    for (*count = 0;; text++) {
        const size_t n = strcspn(text, ",");
        words = (const char **)resize((void *)words, (size_t)*count + 1, sizeof *words);
        words[(*count)++] = format_text("%.*s", (int)n, text);
        text += n;
        if (!*text) return words;
    }
}

static void free_words(const char **words, int64_t count)
{
    for (int64_t i = 0; i < count; i++) free((void *)words[i]);
    free((void *)words);
}

/* Of all outputs: given, noted in the file, or numbers. */
static const char **output_names(const network *n, int64_t outputs)
{
    const char  *text = look_settings.names ? look_settings.names : tn_safetensors_metadata(n->file, "tn.outputs");
    const char **names;
    int64_t      count = 0;
    if (text) {
        names = split_words(text, &count);
        if (count == outputs) return names;
        if (look_settings.names)
            usage_error("--names has %lld names, expected %lld, one per output", (long long)count, (long long)outputs);
        free_words(names, count);
    }
    names = (const char **)allocate((size_t)outputs, sizeof *names);
    for (int64_t i = 0; i < outputs; i++) names[i] = format_text("%lld", (long long)i);
    return names;
}

static bool find_pixels(int64_t n, int64_t *width, int64_t *height)
{
    if (look_settings.pixels) {
        long long w, h;
        char      rest;
        if (sscanf(look_settings.pixels, "%lldx%lld%c", &w, &h, &rest) != 2 || w < 1 || h < 1 || n % w || n / w != h)
            usage_error("--pixels is \"%s\", expected WIDTHxHEIGHT with a product of %lld, the inputs", look_settings.pixels,
                        (long long)n);
        *width = w, *height = h;
        return true;
    }
    *width = *height = (int64_t)(sqrt((double)n) + 0.5);
    return n >= 16 && *width * *width == n;
}

/* ---- data: pictures, and what they show -------------------------------------------------------------------------------- */

typedef struct pictures { tn_tensor *x /* [count,n] */; int32_t *label /* [count], or NULL */; int64_t count; } pictures;

static tn_tensor *read_file_of_data(tn_ctx *ctx, const char *path, double scale)
{
    tn_tensor *t = is_npy(path) ? tn_npy_load(ctx, path) : tn_idx_load(ctx, path, scale);
    check_ctx(ctx, path);
    return t;
}

/* Whether numbers are bytes, which become 0 to 1. */
static bool are_bytes(const double *v, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (v[i] < 0 || v[i] > 255 || v[i] != rint(v[i])) return false;
        most = fmax(most, v[i]);
    }
    return most > 1;
}

static pictures read_pictures(tn_ctx *ctx, int64_t n)
{
    pictures s;
    memset(&s, 0, sizeof s);
    if (!look_settings.data) return s;
    tn_tensor *t = read_file_of_data(ctx, look_settings.data, 1 / 255.0);
    int64_t    all = tn_tensor_count(t);
    if (!all || all % n || t->rank < 1 || (t->rank > 1 && t->shape[0] * n != all))
        fail("--data: %s has %lld numbers, expected rows of %lld, the inputs", look_settings.data, (long long)all, (long long)n);
    double *v = numbers_in(t);
    for (int64_t i = 0; i < all; i++)
        if (!isfinite(v[i]))
            fail("--data: %s has %g in picture %lld, expected finite numbers", look_settings.data, v[i], (long long)(i / n));
    bool bytes = is_npy(look_settings.data) && are_bytes(v, all);
    for (int64_t i = 0; bytes && i < all; i++) v[i] /= 255;
    s.count = all / n;
    s.x = tn_tensor_2d(ctx, TN_REAL, s.count, n);
    tn_write(s.x, TN_F64, v, all);
    s.x = tn_tensor_keep(s.x);
    check_ctx(ctx, look_settings.data);
    free(v);
    if (!look_settings.labels) return s;
    tn_tensor *labels = read_file_of_data(ctx, look_settings.labels, 0);
    if (tn_tensor_count(labels) != s.count)
        fail("--labels: %s has %lld labels, expected %lld, one per picture", look_settings.labels,
             (long long)tn_tensor_count(labels), (long long)s.count);
    s.label = (int32_t *)allocate((size_t)s.count, sizeof *s.label);
    tn_read(labels, TN_I32, s.label, s.count);
    check_ctx(ctx, look_settings.labels);
    return s;
}

/* Outputs [count,outputs] of the first pictures. */
static double *outputs_of(const tn_cp *cp, tn_tensor *x, int64_t first, int64_t count)
{
    tn_mark    mark = tn_arena_mark(cp->ctx);
    tn_tensor *y = tn_cp_apply(cp->ctx, cp, tn_slice(x, 0, first, first + count));
    check_ctx(cp->ctx, "outputs");
    double *v = numbers_in(y);
    tn_arena_release(cp->ctx, mark);
    for (int64_t i = 0; i < count * cp->out; i++)
        if (!isfinite(v[i]))
            fail("--data: %s: picture %lld has the output %g, expected a finite one", look_settings.data,
                 (long long)(first + i / cp->out), v[i]);
    return v;
}

static double accuracy_of(const tn_cp *cp, const pictures *s)
{
    const int64_t step = 500;
    int64_t       right = 0;
    for (int64_t first = 0; first < s->count; first += step) {
        const int64_t n = first + step < s->count ? step : s->count - first;
        double       *y = outputs_of(cp, s->x, first, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t best = 0;
            if (s->label[first + i] < 0 || s->label[first + i] >= cp->out)
                fail("--labels: %s has %d for picture %lld, expected 0 to %lld, the number of an output", look_settings.labels,
                     (int)s->label[first + i], (long long)(first + i), (long long)cp->out - 1);
            for (int64_t o = 1; o < cp->out; o++) if (y[i * cp->out + o] > y[i * cp->out + best]) best = o;
            right += best == s->label[first + i];
        }
        free(y);
    }
    return (double)right / (double)s->count;
}

/* The pictures to show, a new list: the first ones, or as many of each label. */
static int64_t *chosen_pictures(const pictures *s, int64_t outputs, int64_t *count)
{
    const int64_t most = look_settings.examples < s->count ? look_settings.examples : s->count;
    int64_t      *at = (int64_t *)allocate((size_t)most, sizeof *at), i;
    *count = 0;
    for (int64_t turn = 0; s->label && *count < most && turn < most; turn++)
        for (int64_t k = 0; k < outputs && *count < most; k++) {
            int64_t seen = 0;
            for (i = 0; i < s->count; i++)
                if (s->label[i] == k && seen++ == turn) break;
            if (i < s->count) at[(*count)++] = i;
        }
    for (i = 0; !s->label && i < most; i++) at[(*count)++] = i;
    return at;
}

/* ---- sections ---------------------------------------------------------------------------------------------------------- */

/* What is left of an operator for the page: the form of degree 2 of some outputs, and the rest. */
typedef struct seen {
    tn_cp       *whole, *quadratic;     /* of all outputs; of those that are shown */
    tn_tensor   *linear, *constant;     /* [all,n], [all], or NULL                 */
    const char **names, **every;        /* [quadratic->out]; [all]                 */
    int64_t     *at;                    /* which outputs these are                 */
    double      *edge;                  /* of the null of these, or NULL           */
    double       right;                 /* share of right answers, NaN: not known  */
    int64_t      all, layers;           /* outputs, and layers of the network      */
} seen;

/* The outputs that --outputs names. */
static int64_t *named_outputs(const char *const *every, int64_t all, int64_t *count)
{
    const char **words = split_words(look_settings.outputs_given, count);
    int64_t     *at = (int64_t *)allocate((size_t)*count, sizeof *at);
    for (int64_t i = 0; i < *count; i++) {
        for (at[i] = 0; at[i] < all && strcmp(words[i], every[at[i]]); at[i]++) continue;
        if (at[i] == all) usage_error("--outputs names %s, expected names of outputs, such as %s", words[i], every[0]);
    }
    free_words(words, *count);
    return at;
}

static seen see(const network *n, int64_t k)
{
    const int64_t most = look_settings.outputs == AUTO_COUNT ? 32 : look_settings.outputs;
    seen          s;
    memset(&s, 0, sizeof s);
    s.right = NAN;
    s.layers = n->count;
    s.whole = operator_of(n, k);
    s.all = s.whole->out;
    tn_cp *quadratic = s.whole;
    if (s.whole->constant) tn_cp_split(s.whole, &quadratic, &s.linear, &s.constant);
    check_ctx(n->ctx, n->layers[k].name);
    s.every = output_names(n, s.all);
    telling t = {NULL, NULL, 0, 0, 0};
    if (look_settings.outputs_given) t.at = named_outputs(s.every, s.all, &t.count);
    else t = telling_outputs(quadratic, NULL, s.all, most);
    const int64_t count = t.count;
    s.at = t.at;
    s.edge = t.edge;
    s.quadratic = some_outputs(quadratic, s.at, count);
    s.names = (const char **)allocate((size_t)count, sizeof *s.names);
    for (int64_t i = 0; i < count; i++) s.names[i] = s.every[s.at[i]];
    if (count < t.among) {
        char *rule = telling_rule(&t), *all = grouped(s.all), *shown = grouped(count);
        page_note("Of %s outputs the %s with %s are shown (--outputs chooses others).", all, shown, rule);
        free(shown);
        free(all);
        free(rule);
    }
    return s;
}

static void free_seen(seen *s)
{
    if (s->every) free_words(s->every, s->all);
    free((void *)s->names);
    free(s->at);
    free(s->edge);
}

static void shape_row(page *p, const char *label, const tn_tensor *t)
{
    if (t) page_row(p, label, "%lld \xE2\x86\x92 %lld", (long long)t->shape[t->rank - 1], (long long)t->shape[0]);
}

static void card_rows(page *p, const network *n, const seen *s, const pictures *data)
{
    double operations = 0;
    page_open(p, "rows", '[');
    page_row(p, "file", "%s", file_name(n->path));
    page_row(p, "parameters", "%lld", (long long)n->numbers);
    shape_row(p, "embedding", n->embed);
    for (int64_t k = 0; k < n->count; k++) {
        const layer *l = &n->layers[k];
        page_row(p, "bilinear layer", "%s: %lld \xE2\x86\x92 %lld, %lld hidden units%s", l->name, (long long)l->w->shape[1],
                 (long long)(l->p ? l->p->shape[0] : l->w->shape[0]), (long long)l->w->shape[0],
                 n->residual ? ", added to its input" : "");
        operations += 2.0 * (double)tn_tensor_count(l->w) + (double)l->w->shape[0]
                    + (l->p ? (double)tn_tensor_count(l->p) : 0);
    }
    shape_row(p, "unembedding", n->head);
    operations += (n->embed ? (double)tn_tensor_count(n->embed) : 0) + (n->head ? (double)tn_tensor_count(n->head) : 0);
    page_row(p, "multiplications per input", "%.0f", operations);
    if (s) page_row(p, "outputs", "%lld", (long long)s->all);
    if (s && isfinite(s->right)) page_row(p, "share of right answers", "%.4f of %lld", s->right, (long long)data->count);
    page_close(p, ']');
}

/* s [2], names [2]: of both networks, or of the first one, and names are NULL. */
static void card_section(page *p, const network *const n[2], const seen *const s[2], const pictures *data, char *const names[2])
{
    page_section(p, "card", "card", names ? "The models" : "The model", names ? "What the files hold." : "What the file holds.");
    if (!names) card_rows(p, n[0], s[0], data);
    else page_open(p, "models", '[');
    for (int k = 0; names && k < 2; k++) {
        page_open(p, NULL, '{');
        page_text(p, "name", names[k]);
        card_rows(p, n[k], s[k], data);
        page_close(p, '}');
    }
    if (names) page_close(p, ']');
    page_close(p, '}');
}

/* edge: of each output's null, or NULL. */
static void eigen_section(page *p, const char *id, const char *title, const seen *s, const double *edge, bool picture)
{
    const tn_cp *cp = s->quadratic;
    tn_eigenpairs     e;
    show_stage("%s", title);
    if (tn_cp_eigen_all(cp, look_settings.vectors, &e) != TN_OK) check_ctx(cp->ctx, "eigenvectors");
    double *values = numbers_in(e.values), *vectors = numbers_in(e.vectors);
    int64_t shape[2] = {e.count, e.n};
    page_section(p, "eigen", id, title, picture
        ? "The score of an output is a sum over its eigenvectors, each a picture of length one. An eigenvector contributes its "
          "eigenvalue times the square of its match, which is its inner product with the input. A positive eigenvalue raises the "
          "score and a negative one lowers it, whether the input looks like the eigenvector or like its negative."
        : "An output is a sum over its eigenvectors. An eigenvector contributes its eigenvalue times the square of its inner "
          "product with the input.");
    page_flag(p, "within_null", look_settings.within_null);
    page_open(p, "outputs", '[');
    for (int64_t o = 0; o < cp->out; o++) {
        page_open(p, NULL, '{');
        page_text(p, "name", s->names[o]);
        page_vector(p, "values", ARRAY_F64, e.count, values + o * e.count);
        page_number(p, "null_edge", edge ? edge[o] : NAN);
        page_numbers(p, "vectors", ARRAY_F32, 2, shape, vectors + o * e.count * e.n);
        page_close(p, '}');
    }
    page_close(p, ']');
    page_close(p, '}');
    free(values);
    free(vectors);
    tn_eigenpairs_destroy(&e);
}

static void matrix_section(page *p, const char *id, const char *title, const seen *s)
{
    page_section(p, "matrix", id, title, "Element i,j of an output's interaction matrix says by how much the inputs i and j "
                 "together raise it. The matrices are symmetric.");
    put_interactions(p, s->quadratic, true);
    page_names(p, "outputs", s->names, s->quadratic->out);
    page_text(p, "row_label", "input");
    page_text(p, "column_label", "input");
    page_close(p, '}');
}

static void linear_section(page *p, const seen *s)
{
    const int64_t n = s->quadratic->in[0], count = s->quadratic->out;
    double       *all = numbers_in(s->linear), *v = (double *)allocate((size_t)(count * n), sizeof *v);
    int64_t       shape[2] = {count, n};
    for (int64_t o = 0; o < count; o++) memcpy(v + o * n, all + s->at[o] * n, (size_t)n * sizeof *v);
    page_section(p, "matrix", "linear", "The linear part", "A residual or biases add a part that is linear in the inputs: one "
                 "row of weights for each output. It is not in the eigenvectors above.");
    page_text(p, "of", "dense");
    page_numbers(p, "values", ARRAY_F64, 2, shape, v);
    page_names(p, "rownames", s->names, count);
    page_text(p, "row_label", "output");
    page_text(p, "column_label", "input");
    page_close(p, '}');
    free(all);
    free(v);
}

/* Of the pictures that are shown, the nearest inputs with another answer: zeros where that would take more than some seconds. */
static tn_radius nearest_inputs(const seen *s, const pictures *data, const int64_t *at, int64_t count)
{
    const tn_cp  *cp = s->whole;
    const double  size = (double)(cp->in[0] < 2 * cp->terms ? cp->in[0] : 2 * cp->terms);
    tn_radius     r;
    memset(&r, 0, sizeof r);
    if (cp->order != 2 || cp->out < 2 || count == 0 || (double)cp->out * (double)(cp->out - 1) / 2 * size * size * size > 2.5e10)
        return r;
    tn_mark    mark = tn_arena_mark(cp->ctx);
    tn_tensor *ids = tn_tensor_1d(cp->ctx, TN_I32, count);
    int32_t   *rows = (int32_t *)allocate((size_t)count, sizeof *rows);
    for (int64_t k = 0; k < count; k++) rows[k] = (int32_t)at[k];
    if (ids) tn_write(ids, TN_I32, rows, count);
    free(rows);
    tn_cp_radius(1, &cp, tn_embed(cp->ctx, data->x, ids), &r);
    check_ctx(cp->ctx, "the nearest inputs");
    tn_arena_release(cp->ctx, mark);
    return r;
}

/* What the section says about the nearest input of picture k. radii: [count,outputs] */
static void put_nearest(page *p, const seen *s, const tn_radius *r, const double *radii, int64_t k)
{
    const int64_t n = r->nearest->shape[1];
    double *rival = numbers_in(r->rival), *nearest = numbers_in(tn_slice(r->nearest, 0, k, k + 1));
    const int64_t to = (int64_t)rival[k];
    if (isfinite(radii[k * s->all + to])) {
        page_number(p, "radius", radii[k * s->all + to]);
        page_text(p, "rival", s->every[to]);
        page_vector(p, "nearest", ARRAY_F32, n, nearest);
    }
    free(rival);
    free(nearest);
}

static void spoke_section(page *p, const seen *s, const pictures *data)
{
    const int64_t n = s->quadratic->in[0], outputs = s->quadratic->out;
    int64_t       count, *at = chosen_pictures(data, s->all, &count);
    double       *logits = (double *)allocate((size_t)(count * outputs), sizeof *logits);
    tn_radius     r = nearest_inputs(s, data, at, count);
    double       *radii = r.radius ? numbers_in(r.radius) : NULL;
    page_section(p, "spoke", "spoke", "Contributions to a score", "For an input, each eigenvector contributes its eigenvalue "
                 "times the square of its match, the inner product with the input. The sum over all of them, and a linear part "
                 "if there is one, is the score.");
    page_text(p, "eigen", "eigen");
    page_open(p, "examples", '[');
    for (int64_t k = 0; k < count; k++) {
        double *x = numbers_in(tn_slice(data->x, 0, at[k], at[k] + 1)), *y = outputs_of(s->whole, data->x, at[k], 1);
        char   *name = format_text("%lld", (long long)at[k]);
        page_open(p, NULL, '{');
        page_text(p, "name", name);
        page_vector(p, "input", ARRAY_F32, n, x);
        if (data->label && data->label[at[k]] >= 0 && data->label[at[k]] < s->all && outputs == s->all)
            page_text(p, "label", s->names[data->label[at[k]]]);
        if (radii) put_nearest(p, s, &r, radii, k);
        page_close(p, '}');
        for (int64_t o = 0; o < outputs; o++) logits[k * outputs + o] = y[s->at[o]];
        free(x);
        free(y);
        free(name);
    }
    page_close(p, ']');
    int64_t shape[2] = {count, outputs};
    page_numbers(p, "logits", ARRAY_F64, 2, shape, logits);
    page_close(p, '}');
    tn_radius_destroy(&r);
    free(radii);
    free(logits);
    free(at);
}

/* What a model that runs in the page needs: a safetensors file of logits = p ((f0 x) * (f1 x)) + linear x + constant. name: that
   of one of two models, or NULL. */
static void put_model(page *p, const seen *s, const char *name)
{
    const tn_cp *cp = s->quadratic;
    tn_named_tensor     list[5];
    tn_ctx      *ctx = cp->ctx;
    tn_tensor   *from[5];
    static const char *const names[] = {"f0", "f1", "p", "linear", "constant"};
    size_t       used = 0;
    int          count = s->linear ? 5 : 3;
    from[0] = cp->f[0], from[1] = cp->f[1], from[2] = cp->p, from[3] = s->linear, from[4] = s->constant;
    size_t size = 4096;
    for (int k = 0; k < count; k++) {
        tn_tensor *f32 = tn_tensor_create(ctx, TN_F32, from[k]->rank, from[k]->shape);
        if (f32) tn_assign(f32, from[k]);
        check_ctx(ctx, "the part that computes");
        list[k].name = names[k];
        list[k].tensor = f32;
        size += (size_t)tn_tensor_count(f32) * 4;
    }
    char *bytes = (char *)allocate(size, 1);
    if (tn_safetensors_write(ctx, tn_sink_memory(bytes, size, &used), list, count, NULL, 0) != TN_OK)
        check_ctx(ctx, "the part that computes");
    stored a = page_store_bytes(p, bytes, used);
    if (name) page_text(p, "name", name);
    page_array(p, "weights", &a);
    for (int k = 0; k < count; k++) tn_tensor_destroy((tn_tensor *)list[k].tensor);
    free(bytes);
}

/* other: the second model, or NULL. */
static void live_part(page *p, const seen *s, const seen *other, char *const names[2])
{
    page_open_live(p);
    page_text(p, "kind", other ? "two images" : "images");
    if (!other) put_model(p, s, NULL);
    else {
        page_open(p, "models", '[');
        for (int k = 0; k < 2; k++) {
            page_open(p, NULL, '{');
            put_model(p, k ? other : s, names[k]);
            page_close(p, '}');
        }
        page_close(p, ']');
    }
    page_close(p, '}');
}

/* ---- the page ---------------------------------------------------------------------------------------------------------- */

/* other: the second model, whose eigenvectors follow those of the first, or NULL; names: of the models, if there are two. */
static void layer_sections(page *p, const network *n, int64_t k, const seen *s, const seen *other, char *const names[2],
                           bool picture)
{
    const bool  one = n->count == 1;
    const char *name = !one ? n->layers[k].name : names ? names[0] : NULL;
    char       *id[3], *title[3];
    static const char *const ids[] = {"spectra", "eigen", "interactions"}, *const titles[] = {"Spectra", "Eigenvectors",
                                                                                              "Interaction matrices"};
    for (int i = 0; i < 3; i++) {
        id[i] = one ? copy_text(ids[i]) : format_text("%s-%lld", ids[i], (long long)k);
        title[i] = name ? format_text("%s of %s", titles[i], name) : copy_text(titles[i]);
    }
    show_stage("%s", title[0]);
    double *own = s->edge ? NULL : null_edges(s->quadratic);
    spectra_section(p, id[0], title[0], s->quadratic, s->names, s->edge ? s->edge : own, -1);
    eigen_section(p, id[1], title[1], s, s->edge ? s->edge : own, picture && (k == 0 || n->residual));
    free(own);
    if (other) {
        double *edge = null_edges(other->quadratic);
        char   *of_other = format_text("Eigenvectors of %s", names[1]);
        eigen_section(p, "eigen-b", of_other, other, edge, picture);
        free(of_other);
        free(edge);
    }
    matrix_section(p, id[2], title[2], s);
    for (int i = 0; i < 3; i++) {
        free(id[i]);
        free(title[i]);
    }
}

/* The operators of two networks, output by output: cosines of the interaction matrices, and the spectra. */
static void compare_section(page *p, const seen *a, const seen *b, const char *path, char *const names[2])
{
    char        *heads[2];
    const tn_cp *x = a->quadratic, *y = b->quadratic;
    tn_tensor   *t = tn_cp_cosines(x, y);
    tn_spectrum  mine, theirs;
    double      *norm[2], *v[2], all = 0;
    for (int k = 0; k < 2; k++) heads[k] = format_text("norm, %s", names[k]);
    const char *const columns[][3] = {
        {"similarity", "cosine", "of the interaction matrices: 1 if they are equal up to a factor, 0 if they are unrelated"},
        {"norm_a", heads[0], "root of the sum of the squared eigenvalues"},
        {"norm_b", heads[1], "root of the sum of the squared eigenvalues"}
    };
    tn_cp_cosine(x, y, &all);
    check_ctx(x->ctx, "--against");
    if (tn_cp_spectrum(x, 0, &mine) != TN_OK || tn_cp_spectrum(y, 0, &theirs) != TN_OK) check_ctx(x->ctx, "--against");
    double *cosine = numbers_in(t);
    norm[0] = numbers_in(mine.norm), norm[1] = numbers_in(theirs.norm);
    v[0] = numbers_in(mine.values), v[1] = numbers_in(theirs.values);
    page_section(p, "compare", "compare", "Both models", "How similar the interaction matrices of the two models are, output by "
                 "output, and their eigenvalues.");
    page_two(p, path, look_settings.against, columns, sizeof columns / sizeof *columns);
    page_number(p, "cosine", all);
    page_number(p, "unrelated", largest_null_cosine(x, y));
    page_open(p, "rows", '[');
    for (int64_t o = 0; o < x->out; o++) {
        page_open(p, NULL, '{');
        page_text(p, "name", a->names[o]);
        page_number(p, "similarity", cosine[o * y->out + o]);
        page_number(p, "norm_a", norm[0][o]);
        page_number(p, "norm_b", norm[1][o]);
        page_close(p, '}');
    }
    page_close(p, ']');
    page_open(p, "spectra", '[');
    for (int64_t o = 0; o < x->out; o++) {
        page_open(p, NULL, '{');
        page_text(p, "name", a->names[o]);
        page_vector(p, "a", ARRAY_F64, mine.count, v[0] + o * mine.count);
        page_vector(p, "b", ARRAY_F64, theirs.count, v[1] + o * theirs.count);
        page_close(p, '}');
    }
    page_close(p, ']');
    page_close(p, '}');
    tn_tensor_destroy(t);
    tn_spectrum_destroy(&mine);
    tn_spectrum_destroy(&theirs);
    for (size_t k = 0; k < 2; k++) {
        free(norm[k]);
        free(heads[k]);
        free(v[k]);
    }
    free(cosine);
}

/* The network m of --against, as far as it can be compared with n, and the names of both. */
static seen see_other(network *m, const network *n, const seen *mine, const pictures *data, char *names[2])
{
    const char *path = look_settings.against;
    char       *file = array_file(path);
    if (n->broken) fail("%s has numbers that are NaN or infinite, expected none with --against", n->path);
    if (!read_network(m, n->ctx, file)) fail("%s has no bilinear layer whose names are known", path);
    if (m->broken) fail("%s has numbers that are NaN or infinite, expected none", path);
    free(file);
    seen s = see(m, 0);
    if (s.quadratic->out != mine->quadratic->out || s.quadratic->in[0] != mine->quadratic->in[0])
        fail("%s has %lld inputs and %lld outputs, expected %lld and %lld, those of the first model", path,
             (long long)s.quadratic->in[0], (long long)s.all, (long long)mine->quadratic->in[0], (long long)mine->all);
    names_of_two(n->path, path, names);
    if (data->label && m->count == 1 && s.all == mine->all) s.right = accuracy_of(s.whole, data);
    page_note("Spectra, matrices and the linear part are of %s.", names[0]);
    return s;
}

static void note_what_is_exact(const network *n)
{
    if (n->count > 1)
        page_note("The network has %lld bilinear layers, one after the other: a polynomial of degree 2^%lld in the inputs. "
                  "Each layer is shown alone%s.", (long long)n->count, (long long)n->count,
                  n->residual ? ", on the direct path: from the embedding to the outputs, past the others" : "");
    else if (n->residual)
        page_note("Nothing is approximated. The layer is added to its input (a residual), so that the outputs have a linear "
                  "part beside the eigenvectors.");
    else page_note("Nothing is approximated: the network is one bilinear layer, and its eigenvectors are all of it.");
    if (!n->said && !look_settings.w && n->layers[0].w->shape[0] == n->layers[0].w->shape[1])
        page_note("Weights alone do not tell whether a layer is added to its input. %s If that is wrong, make the page with "
                  "--residual %s.", n->residual ? "A note in the file says that it is."
                  : "The page takes it that it is not, as the file does not say so.", n->residual ? "no" : "yes");
}

static char *layers_of(const network *n)
{
    return n->count == 1 ? format_text("one bilinear layer of %lld hidden units", (long long)n->layers[0].w->shape[0])
                         : format_text("%lld bilinear layers", (long long)n->count);
}

/* What the model is, or both, in two sentences. other: the second one, or NULL. */
static void about_network(page *p, const network *n, const network *other, const seen *s, bool picture, int64_t width,
                          int64_t height)
{
    char *first = layers_of(n), *second = other ? layers_of(other) : NULL;
    char *inputs = picture ? format_text("a picture of %lld \xC3\x97 %lld pixels", (long long)width, (long long)height)
                           : format_text("%lld numbers", (long long)s->quadratic->in[0]);
    char *what = !other ? format_text("A network with %s. It", first) : !strcmp(first, second)
               ? format_text("Two networks, each with %s. Each", first)
               : format_text("Two networks, with %s and with %s. Each", first, second);
    char *text = format_text("%s gives %s a score for each of %lld outputs%s.", what, inputs, (long long)s->all,
                             picture && s->all > 1 ? "; the largest score is its answer" : "");
    page_text(p, "about", text);
    free(text);
    free(what);
    free(inputs);
    free(second);
    free(first);
}

/* other: the second model, or NULL. */
static void learnt_classes(page *p, const seen *s, const seen *other, int64_t count, bool picture)
{
    page_section(p, "learnt", "learnt", other ? "What both have learnt" : "What it has learnt", picture
        ? "Each picture is an eigenvector of an output, of length one. Its match with an input is their inner product: the sum "
          "of products, pixel by pixel. It contributes the number below it, its eigenvalue, times the square of the match to "
          "the score of the output. A positive eigenvalue raises the score and a negative one lowers it, for an input like the "
          "picture and for one like its negative."
        : "The eigenvalues of each output's matrix: few large ones mean that few eigenvectors decide the output.");
    page_text(p, "of", other ? "two" : picture ? "classes" : "tensors");
    page_open(p, "right", '[');
    page_number(p, NULL, s->right);
    if (other) page_number(p, NULL, other->right);
    page_close(p, ']');
    page_open(p, "layers", '[');
    page_number(p, NULL, (double)s->layers);
    if (other) page_number(p, NULL, (double)other->layers);
    page_close(p, ']');
    page_number(p, "pictures", (double)count);
    page_close(p, '}');
}

static void page_pixels(page *p, int64_t width, int64_t height)
{
    page_open(p, "pixels", '{');
    page_number(p, "width", (double)width);
    page_number(p, "height", (double)height);
    page_close(p, '}');
}

/* The sections of the network n, and of the network m of --against; without --against m, t and names are NULL. */
static void network_sections(page *p, const network *n, const network *m, const seen *s, const seen *t, char *const names[2],
                             const pictures *data, bool picture)
{
    const network *const both[2] = {n, m};
    const seen *const    both_seen[2] = {n->broken ? NULL : s, t};
    page_open(p, "sections", '[');
    if (!n->broken && (!m || picture)) learnt_classes(p, s, t, data->count, picture);
    card_section(p, both, both_seen, data, names);
    if (m) compare_section(p, s, t, n->path, names);
    for (int64_t k = 0; !n->broken && k < n->count; k++) {
        seen other = k ? see(n, k) : *s;
        layer_sections(p, n, k, &other, k + 1 == n->count ? t : NULL, names, picture);
        if (k) free_seen(&other);
    }
    if (s->linear) linear_section(p, s);
    if (data->x && n->count == 1) spoke_section(p, s, data);
    page_close(p, ']');
}

bool look_at_layers(tn_ctx *ctx, const char *path, const char *title, const char *out)
{
    network  n, m;
    seen     s, t;
    page     p;
    pictures data;
    int64_t  width = 0, height = 0;
    char    *names[2] = {NULL, NULL};           /* of two models */
    const bool two = look_settings.against != NULL;
    if (!read_network(&n, ctx, path)) {
        close_network(&n);
        return false;
    }
    look_is_of(LOOK_LAYERS);
    memset(&s, 0, sizeof s);
    memset(&data, 0, sizeof data);
    if (!n.broken) {
        s = see(&n, 0);
        data = read_pictures(ctx, s.quadratic->in[0]);
        note_what_is_exact(&n);
        if (data.label && n.count == 1) s.right = accuracy_of(s.whole, &data);
    }
    if (two) t = see_other(&m, &n, &s, &data, names);
    bool picture = !n.broken && find_pixels(s.quadratic->in[0], &width, &height);
    page_begin(&p, "look", two ? "comparison" : picture ? "images" : "tensor", title);
    if (picture) page_pixels(&p, width, height);
    if (!n.broken) {
        page_open(&p, "names", '{');
        page_names(&p, "outputs", s.names, s.quadratic->out);
        page_close(&p, '}');
        about_network(&p, &n, two ? &m : NULL, &s, picture, width, height);
    }
    network_sections(&p, &n, two ? &m : NULL, &s, two ? &t : NULL, two ? names : NULL, &data, picture);
    if (picture && n.count == 1 && s.quadratic->out == s.all && look_settings.live)
        live_part(&p, &s, two ? &t : NULL, names);
    page_write(&p, out, look_settings.out ? BY_USER : BY_NAME);
    free_seen(&s);
    if (two) {
        free_seen(&t);
        close_network(&m);
        free(names[0]);
        free(names[1]);
    }
    free(data.label);
    close_network(&n);
    return true;
}
