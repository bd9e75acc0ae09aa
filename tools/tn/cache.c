/* cache.c - tn cache: what a model computes on the way, as .npy files */
#include "tn.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *points, *lines, *out, *tokenizer;
    int64_t     length, max_bytes, threads, device;
    int         backend;
    bool        list, f64;
} settings = { .max_bytes = 4000000000 };

static option options[] = {
    TEXT_ROW("points", &settings.points, "PATTERN[,...]", "which points: names, where * is any text, as in "
             "\"embed,blocks.*.attn.pattern\"; the default is all with --list", NEVER),
    TEXT_ROW("out", &settings.out, "DIR", "a folder for the files, one per point; it must be new or empty", NEVER),
    FLAG_ROW("list", &settings.list, "print the points and the shapes of their files, and write nothing", NEVER),
    TEXT_ROW("lines", &settings.lines, "FILE", "instead of TEXT: each line of a file is a text, or with - of the standard "
             "input", NEVER),
    AUTO_COUNT_ROW("length", &settings.length, "most tokens per text; auto: the model's context", 1, 1e9, NEVER),
    COUNT_ROW("max-bytes", &settings.max_bytes, "most bytes of all files together", 1, 9e15, NEVER),
    FLAG_ROW("f64", &settings.f64, "compute and write in F64 instead of F32", NEVER),
    TEXT_ROW("tokenizer", &settings.tokenizer, "FILE", "a tokenizer.json; the default is the one beside the weights",
             NEVER),
    WORDS_ROW("backend", &settings.backend, BACKEND_WORDS, "reference: plain loops, slow; cuda: a GPU", NEVER),
    COUNT_ROW("device", &settings.device, "number of the GPU; 0, the first, is the default", 0, 1024, NEVER),
    AUTO_COUNT_ROW("threads", &settings.threads, "number of threads; auto: one per core", 1, 1024, NEVER),
};

const usage cache_usage = {
    "cache", "RUN|CHECKPOINT [TEXT] --points PATTERN --out DIR", "write a model's activations to .npy files",
    "Runs a model over a text, or over each line of a file, and writes what it computes on the way: a file POINT.npy for "
    "each point, whose first axis is of the tokens of all texts. texts.npy has the first token and the number "
    "of tokens of each text, ids.npy the tokens.",
    "The rows of a pattern are the queries, [tokens,heads,keys]; keys are those of the query's own text, and 0 follows "
    "after a shorter text than the longest. A text begins as a prompt of tn generate does, with [BOS] where the model has "
    "learned that. Without a tokenizer a text is token ids, \"1 2 3\".", options, sizeof options / sizeof *options, 2, NULL
};

/* ---- texts ---------------------------------------------------------------------------------- */

static struct { int32_t *ids; int64_t *first; int64_t count, tokens, longest; } texts;

static void add_text(const model *m, const char *text)
{
    int32_t      *ids;
    char         *name = format_text("text %lld", (long long)texts.count + 1);
    const int64_t n = text_ids(m, text, settings.length, name, &ids);
    free(name);
    texts.ids = (int32_t *)resize(texts.ids, (size_t)(texts.tokens + n), sizeof *ids);
    texts.first = (int64_t *)resize(texts.first, (size_t)texts.count + 2, sizeof *texts.first);
    memcpy(texts.ids + texts.tokens, ids, (size_t)n * sizeof *ids);
    texts.first[texts.count++] = texts.tokens;
    texts.first[texts.count] = texts.tokens += n;
    if (n > texts.longest) texts.longest = n;
    free(ids);
}

/* Each line that is not empty. */
static void add_lines(const model *m, const char *path)
{
    size_t bytes, at = 0, start, length;
    char  *all = read_file(path, BY_USER, &bytes);
    if (strlen(all) != bytes) fail("%s: byte %zu is zero, expected text", path, strlen(all));
    while (next_story(all, bytes, SPLIT_LINES, &at, &start, &length)) {
        char *line = format_text("%.*s", (int)length, all + start);
        add_text(m, line);
        free(line);
    }
    if (!texts.count) fail("%s has no text", path);
    free(all);
}

/* ---- points --------------------------------------------------------------------------------- */

/* A point of the model and its file, whose first axis is of the tokens of all texts. */
typedef struct item {
    tn_point     point;
    atomic_file *file;
    char        *path;
    bool         pattern;               /* [tokens,heads,keys] in the file */
    int          rank;
    int64_t      shape[4];
    double       count;                 /* of numbers in the file */
} item;

static struct { item *list; int64_t count; } items;

/* As the library does: where the rest fails, the last * takes one more character, so that many stars cost no more. */
static bool matches(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    for (;;)
        if (*pattern == '*') { star = ++pattern; from = name; }
        else if (*pattern == *name) {
            if (!*name++) return true;
            pattern++;
        } else if (star && *from) { pattern = star; name = ++from; }
        else return false;
}

static void add_item(const tn_point *p, int64_t tokens)
{
    int k;
    for (int64_t i = 0; i < items.count; i++) if (!strcmp(items.list[i].point.name, p->name)) return;
    items.list = (item *)resize(items.list, (size_t)items.count + 1, sizeof *items.list);
    item *to = &items.list[items.count++];
    memset(to, 0, sizeof *to);
    to->point = *p;
    to->pattern = ends_with(p->name, ".pattern");
    to->rank = p->rank - 1;                                 /* one text at a time */
    memcpy(to->shape, p->shape + 1, sizeof p->shape - sizeof *p->shape);
    if (to->pattern) to->shape[1] = p->shape[1];
    to->shape[0] = tokens;
    for (to->count = 1, k = 0; k < to->rank; k++) to->count *= (double)to->shape[k];
}

/* The library proposes the nearest point. */
static void unknown_point(model *m, const char *pattern)
{
    const int64_t shape[2] = {1, 1};
    const int32_t id = 0;
    tn_tap        tap;
    tap.points = pattern;
    tap.fn = tn_tap_read;
    tap.user = NULL;
    tn_transformer_run(m->ctx, &m->net, tn_tensor_from(m->ctx, 2, shape, TN_I32, &id), &tap, 1);
    check_ctx(m->ctx, "--points");
}

/* All points of the model that --points names, for texts of at most T tokens. */
static void choose_points(model *m, int64_t T, int64_t tokens)
{
    const int64_t count = tn_transformer_points(&m->net, 1, T, NULL, 0);
    tn_point     *all = (tn_point *)allocate((size_t)count, sizeof *all);
    char         *patterns = copy_text(settings.points ? settings.points : "*"), *at = patterns, *end;
    int64_t       i, found;
    tn_transformer_points(&m->net, 1, T, all, count);
    do {
        end = at + strcspn(at, ",");
        if (*end) *end++ = 0;
        else end = NULL;
        if (!*at) usage_error("--points is \"%s\", expected names, separated by commas", settings.points);
        for (found = i = 0; i < count; i++) {
            if (!matches(at, all[i].name)) continue;
            add_item(&all[i], tokens);
            found++;
        }
        if (!found) unknown_point(m, at);
    } while ((at = end) != NULL);
    free(patterns);
    free(all);
}

static void list_points(void)
{
    for (int64_t i = 0; i < items.count; i++) {
        print("%-32s [", items.list[i].point.name);
        for (int k = 0; k < items.list[i].rank; k++) print(k ? ",%lld" : "%lld", (long long)items.list[i].shape[k]);
        print("]\n");
    }
}

/* ---- files ---------------------------------------------------------------------------------- */

static void open_file(item *p, const char *name, const char *type, int rank, const int64_t *shape)
{
    char *file = format_text("%s.npy", name);
    p->path = join_path(settings.out, file);
    p->file = (atomic_file *)allocate(1, sizeof *p->file);
    if (!atomic_open(p->file, p->path, BY_NAME) || !store_npy_header(p->file, type, rank, shape))
        fail("%s", p->file->why);
    free(file);
}

static void close_file(item *p)
{
    if (!atomic_commit(p->file)) fail("%s", p->file->why);
    free(p->file);
    free(p->path);
}

/* The tap of a point: appends its numbers of one text. */
static tn_tensor *append(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    item         *p = (item *)user;
    const size_t  size = settings.f64 ? sizeof(double) : sizeof(float);
    const int64_t count = tn_tensor_count(x), T = p->pattern ? x->shape[2] : x->shape[1], longest = p->point.shape[3];
    char         *numbers = (char *)allocate((size_t)count, size);
    (void)ctx;
    (void)name;
    tn_read(p->pattern ? tn_transpose(x, 1, 2) : x, settings.f64 ? TN_F64 : TN_F32, numbers, count);
    if (!p->pattern || T == longest) atomic_store(p->file, numbers, (size_t)count * size);
    else {
        char *zeros = (char *)allocate((size_t)(longest - T), size);
        for (int64_t i = 0; i < count; i += T) {
            atomic_store(p->file, numbers + (size_t)i * size, (size_t)T * size);
            atomic_store(p->file, zeros, (size_t)(longest - T) * size);
        }
        free(zeros);
    }
    free(numbers);
    if (p->file->why) fail("%s", p->file->why);
    return x;
}

/* Two small files: ids.npy I32 [tokens], texts.npy I64 [texts,2] */
static void write_texts(void)
{
    const int64_t shape[2] = {texts.count, 2};
    item          p;
    open_file(&p, "ids", "i4", 1, &texts.tokens);
    atomic_store(p.file, texts.ids, (size_t)texts.tokens * sizeof *texts.ids);
    close_file(&p);
    open_file(&p, "texts", "i8", 2, shape);
    for (int64_t i = 0; i < texts.count; i++) {
        const int64_t row[2] = {texts.first[i], texts.first[i + 1] - texts.first[i]};
        atomic_store(p.file, row, sizeof row);
    }
    close_file(&p);
}

static void write_points(model *m)
{
    tn_tap *taps = (tn_tap *)allocate((size_t)items.count, sizeof *taps);
    for (int64_t i = 0; i < items.count; i++) {
        item *p = &items.list[i];
        open_file(p, p->point.name, settings.f64 ? "f8" : "f4", p->rank, p->shape);
        taps[i].points = items.list[i].point.name;
        taps[i].fn = append;
        taps[i].user = &items.list[i];
    }
    for (int64_t i = 0; i < texts.count; i++) {
        const int64_t ids[2] = {1, texts.first[i + 1] - texts.first[i]};
        tn_ctx_reset(m->ctx);
        tn_transformer_run(m->ctx, &m->net, tn_tensor_from(m->ctx, 2, ids, TN_I32, texts.ids + texts.first[i]), taps,
                           items.count);
        check_ctx(m->ctx, "the run");
    }
    for (int64_t i = 0; i < items.count; i++) close_file(&items.list[i]);
    free(taps);
}

static void check_usage(int arguments)
{
    if (arguments < 1) usage_error("no model is given, expected tn cache %s", cache_usage.arguments);
    if (settings.list && settings.out) usage_error("--out is given with --list, expected one of them");
    if (settings.lines && arguments > 1) usage_error("--lines is given with a TEXT, expected one of them");
    if (settings.list) return;
    if (arguments < 2 && !settings.lines) usage_error("no text is given, expected tn cache RUN TEXT, or --lines FILE");
    if (!settings.points) usage_error("no --points are given, expected names as tn cache RUN --list prints them");
    if (!settings.out) usage_error("no --out is given, expected a folder for the files");
    check_new_folder("--out", settings.out);
}

int cache_main(int argc, char **argv)
{
    const int arguments = read_options(&cache_usage, argc, argv);
    tn_desc   desc;
    model     m;
    double    bytes = 0;
    memset(&desc, 0, sizeof desc);
    desc.threads = (int)settings.threads;
    desc.dtype = settings.f64 ? TN_F64 : TN_F32;
    desc.log = show_log;
    check_usage(arguments);
    use_backend(&desc, settings.backend, settings.device);
    open_model(&m, argv[0], settings.tokenizer, &desc, NULL);
    if (settings.lines) add_lines(&m, settings.lines);
    else if (arguments > 1) {
        if (m.tokenizer) report_unknown(&m, argv[1]);
        add_text(&m, argv[1]);
    }
    choose_points(&m, texts.count ? texts.longest : m.desc.context, texts.count ? texts.tokens : m.desc.context);
    if (settings.list) list_points();
    else {
        for (int64_t i = 0; i < items.count; i++)
            bytes += items.list[i].count * (settings.f64 ? 8 : 4);
        if (bytes > (double)settings.max_bytes)
            fail("%lld points of %lld tokens are %.0f bytes, expected at most %lld, --max-bytes", (long long)items.count,
                 (long long)texts.tokens, bytes, (long long)settings.max_bytes);
        make_folder(settings.out);
        check_space("--out", settings.out, bytes);
        write_texts();
        write_points(&m);
        print("texts: %lld\ntokens: %lld\npoints: %lld\nbytes: %.0f\nwritten: %s\n", (long long)texts.count,
              (long long)texts.tokens, (long long)items.count, bytes, settings.out);
    }
    close_model(&m);
    return 0;
}
