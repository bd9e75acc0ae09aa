/* audit.c - tn audit: whether a run was trained as its log says */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DIFFERENT = 3 };

static struct {
    const char *published;
    int64_t     segments, seed;
    file_list   data, val;
} settings_of_audit = { .segments = 5, .seed = AUTO_COUNT };

#define OURS(field) (&settings_of_audit.field)
static option options[] = {
    COUNT_ROW("segments", OURS(segments), "number of segments that are trained again, drawn at random", 0, 1e9, NEVER),
    AUTO_COUNT_ROW("seed", OURS(seed), "of the choice of segments; auto: random bytes of the system. Who trained the run "
                   "must not have known it", 1, 1e15, NEVER),
    TEXT_ROW("published", OURS(published), "HASH", "a hash of the chain that was published, which the log must have", NEVER),
    FILES_ROW("data", OURS(data), "the text, if it is not where it was trained on", NEVER),
    FILES_ROW("val", OURS(val), "the held-out text, likewise", NEVER),
    COUNT_ROW("device", &train_settings.device, "number of the GPU; 0, the first, is the default", 0, 1024, NEVER),
    AUTO_COUNT_ROW("threads", &train_settings.threads, "number of threads; auto: one per core", 1, 1024, NEVER),
};
#undef OURS

const usage audit_usage = {
    "audit", "RUN", "whether a run was trained as its log says",
    "Checks a run of tn train --audit: that its chain of hashes fits its log, settings, text and checkpoints, that its first "
    "checkpoint is the new model of its seed, and that random segments, from one checkpoint to the next, give the same bits when "
    "they are trained again: losses in the log, parameters and moments. It prints what that cost, and with which chance forged "
    "segments were missed. Nothing is written.",
    "Runs without --audit have no chain; segments between the checkpoints that are left are replayed. Bits agree on one kind "
    "of processor or GPU: what another one made, or several processes together, may differ and not be forged; the SIMD level is "
    "that of the run, unless the environment variable TN_SIMD is set. The exit status is 0 if all agrees, 3 if something "
    "differs, and 1 if it cannot be checked.",
    options, sizeof options / sizeof *options, 1, NULL
};

/* A checkpoint that segments begin and end with. */
typedef struct point {
    int64_t step, line;                 /* line: of its link, from 0; without a chain the number of lines before it */
    int64_t processes;
    char    hash[SHA256_TEXT];
} point;

typedef struct audit {
    run         r;
    char       *log;
    const char **line;                  /* [lines+1]: where they begin                                     */
    int64_t     lines, count, files, bytes, trained, replayed, segments;
    chain       links;
    point      *at;                     /* [count]                                                         */
    point       model;                  /* line 0: it has no link                                          */
    int64_t     published;              /* the line of the link with that hash, from 1; 0: none             */
    bool        chained;
    int         status;
    double      hashing, replaying;     /* seconds                                                         */
} audit;

/* What is wrong: a difference counts more than what cannot be checked. */
static void report(audit *a, int status, const char *format, ...) PRINTF_LIKE(3, 4);
static void report(audit *a, int status, const char *format, ...)
{
    buffer  text = {0};
    va_list list;
    va_start(list, format);
    buffer_print_list(&text, format, list);
    va_end(list);
    print("%s: %s\n", status == EXIT_DIFFERENT ? "differs" : "cannot be checked", text.data);
    fflush(stdout);
    free(text.data);
    if (status > a->status) a->status = status;
}

/* ---- the log and its links ------------------------------------------------------------------------------------ */

static void read_lines(audit *a)
{
    char  *path = join_path(a->r.folder, "log.jsonl");
    size_t bytes;
    if (!is_file(path)) fail("%s holds no run, expected %s", a->r.folder, path);
    a->log = read_file(path, BY_NAME, &bytes);
    for (size_t i = 0; i < bytes; i++) a->lines += a->log[i] == '\n';
    a->line = (const char **)allocate((size_t)a->lines + 1, sizeof *a->line);
    const char *start = a->log;
    for (int64_t i = 0; i < a->lines; i++, start = strchr(start, '\n') + 1) {
        a->line[i] = start;
        if (strlen(start) < (size_t)(strcspn(start, "\n") + 1)) fail("%s: line %lld has a zero byte", path, (long long)i + 1);
    }
    a->line[a->lines] = start;
    if ((size_t)(start - a->log) < bytes) report(a, EXIT_DIFFERENT, "the last line of %s is incomplete", path);
    free(path);
}

static size_t line_bytes(const audit *a, int64_t i) { return (size_t)(a->line[i + 1] - a->line[i]) - 1; }

/* Reads the text of a member of a line; false where the line lacks it. */
static bool line_text(const audit *a, int64_t i, const char *key, char *text, size_t bytes)
{
    const char *to, *bad, *end = a->line[i] + line_bytes(a, i), *from = json_find(a->line[i], end, key, &to, &bad);
    buffer      b = {0};
    const bool  good = from && json_unquote(from, to, &b) && b.bytes < bytes;
    snprintf(text, bytes, "%s", good ? b.data : "");
    free(b.data);
    return good;
}

static double line_number(const audit *a, int64_t i, const char *key)
{
    return json_number(a->line[i], a->line[i] + line_bytes(a, i), key);
}

/* The link has no more files of a kind than the settings. */
static void check_more_inputs(audit *a, int64_t line, const char *kind, int64_t count)
{
    char name[64], hash[SHA256_TEXT];
    snprintf(name, sizeof name, "%s.%lld", kind, (long long)count + 1);
    if (line_text(a, line, name, hash, sizeof hash))
        report(a, EXIT_DIFFERENT, "log.jsonl has a hash \"%s\", and there are %lld such files, expected more", name,
               (long long)count);
}

/* The files that the run began with: those outside its folder may be the wrong ones here. */
static void check_inputs(audit *a, int64_t line)
{
    hashed       *list;
    const int64_t count = hash_inputs(&train_settings, a->r.folder, &list);
    for (int64_t i = 0; i < count; i++) {
        const hashed *h = &list[i];
        const bool    own = !strcmp(h->name, "settings") || !strcmp(h->name, "model") || !strcmp(h->name, "tokenizer");
        char          hash[SHA256_TEXT];
        if (!line_text(a, line, h->name, hash, sizeof hash))
            report(a, EXIT_DIFFERENT, "log.jsonl has no hash \"%s\" of %s", h->name, h->path);
        else if (!*h->hash && *hash) report(a, EXIT_ERROR, "%s does not exist", h->path);
        else if (strcmp(h->hash, hash))
            report(a, own ? EXIT_DIFFERENT : EXIT_ERROR, "%s was changed: its SHA-256 is %.16s..., expected %.16s...", h->path,
                   h->hash, hash);
        a->files++;
        free(h->name);
        free(h->path);
    }
    free(list);
    check_more_inputs(a, line, "data", train_settings.data.count);
    check_more_inputs(a, line, "val", train_settings.val.count);
}

/* The step whose checkpoint has the link after that of a step; -1: none has, the run is done. */
static int64_t next_step(const settings *s, int64_t step)
{
    const int64_t next = s->save_every ? (step / s->save_every + 1) * s->save_every : s->steps;
    return step >= s->steps ? -1 : next < s->steps ? next : s->steps;
}

static void keep_point(audit *a, const point *p, bool last)
{
    if (last) {
        a->model = *p;
        return;
    }
    a->at = (point *)resize(a->at, (size_t)a->count + 1, sizeof *a->at);
    a->at[a->count++] = *p;
}

/* A link of a checkpoint, or of model.safetensors. */
static void read_link(audit *a, int64_t line, const char *file)
{
    const bool    last = !strcmp(file, "model.safetensors");
    const double  processes = line_number(a, line, "processes");
    const int64_t before = a->count ? a->at[a->count - 1].step : a->links.first;
    const int64_t due = a->model.line ? -1 : last ? a->r.s->steps : a->count ? next_step(a->r.s, before) : before;
    point         p = {0};
    char         *path = checkpoint_path(a->r.folder, a->links.step);
    p.step = a->links.step;
    p.line = line;
    p.processes = processes >= 1 && processes < 1e9 ? (int64_t)processes : 0;
    if (!last && strcmp(file, strrchr(path, '/') + 1))
        report(a, EXIT_DIFFERENT, "log.jsonl, line %lld: the link of step %lld is of %s", (long long)line + 1, (long long)p.step,
               file);
    else if (!line_text(a, line, "sha256", p.hash, sizeof p.hash))
        report(a, EXIT_DIFFERENT, "log.jsonl, line %lld has no \"sha256\"", (long long)line + 1);
    else if (due < 0)
        report(a, EXIT_DIFFERENT, "log.jsonl, line %lld: a link of step %lld follows that of the last step", (long long)line + 1,
               (long long)p.step);
    else {
        if (p.step != due)
            report(a, EXIT_DIFFERENT, "log.jsonl, line %lld: the link is of step %lld, expected step %lld", (long long)line + 1,
                   (long long)p.step, (long long)due);
        else if (last && before != due)
            report(a, EXIT_DIFFERENT, "log.jsonl, line %lld: the link of model.safetensors follows that of step %lld, expected "
                   "step %lld", (long long)line + 1, (long long)before, (long long)due);
        keep_point(a, &p, last);
    }
    free(path);
}

static void follow_chain(audit *a)
{
    int64_t before = 0;
    char    file[64];
    chain_start(&a->links);
    for (int64_t i = 0; i < a->lines; i++) {
        const link_kind kind = chain_add(&a->links, a->line[i], line_bytes(a, i));
        if (kind == NO_LINK) continue;
        if (kind == BAD_LINK)
            report(a, EXIT_DIFFERENT, "log.jsonl: the link of step %lld in line %lld does not follow from lines %lld to %lld",
                   (long long)a->links.step, (long long)i + 1, (long long)before + 1, (long long)i + 1);
        before = i + 1;
        if (settings_of_audit.published && !strcmp(a->links.last, settings_of_audit.published)) a->published = i + 1;
        if (a->links.links == 1) check_inputs(a, i);
        else if (line_text(a, i, "file", file, sizeof file)) read_link(a, i, file);
        else report(a, EXIT_DIFFERENT, "log.jsonl, line %lld is a link without a file", (long long)i + 1);
    }
    a->chained = a->links.links > 0;
    if (before == a->lines || !a->chained) return;
    if (a->model.line)
        report(a, EXIT_DIFFERENT, "log.jsonl has %lld lines, expected no more than %lld: the last one is the link of "
               "model.safetensors", (long long)a->lines, (long long)before);
    else print("not checked: lines %lld to %lld of log.jsonl, which no link has a hash of yet\n", (long long)before + 1,
               (long long)a->lines);
}

/* ---- the files of the links ------------------------------------------------------------------------------------ */

/* A file may be what was hashed, and still not one that a replay can begin with. */
static void check_whole(audit *a, const point *p, const char *path)
{
    tn_ctx *look;
    if (p == &a->model) return;
    tn_safetensors *st = open_checkpoint(path, &look);
    const int64_t   step = checkpoint_count(st, path, "tn.step");
    if (step != p->step) report(a, EXIT_DIFFERENT, "%s is of step %lld", path, (long long)step);
    if (tn_checkpoint_check(look, tn_source_path(path)) != TN_OK) report(a, EXIT_ERROR, "%s", tn_ctx_error(look));
    tn_ctx_destroy(look);
}

static void check_file(audit *a, const point *p, char *path)
{
    char hash[SHA256_TEXT];
    if (!is_file(path)) report(a, EXIT_ERROR, "%s is missing, of which log.jsonl has a link", path);
    else {
        int64_t other = 0;
        a->bytes += hash_file(path, BY_NAME, hash);
        a->files++;
        while (other < a->count && strcmp(a->at[other].hash, hash)) other++;
        if (!strcmp(hash, p->hash)) check_whole(a, p, path);
        else if (other < a->count)
            report(a, EXIT_DIFFERENT, "%s is the checkpoint of step %lld, by its hash", path, (long long)a->at[other].step);
        else
            report(a, EXIT_DIFFERENT, "%s was changed: its SHA-256 is %.16s..., expected %.16s...", path, hash, p->hash);
    }
    free(path);
}

/* A run that was killed after it saved a checkpoint has no link of it yet. Those of other steps, where a signal stopped it, have
   none. */
static void check_rest(audit *a)
{
    const settings *s = a->r.s;
    const int64_t   last = a->count ? a->at[a->count - 1].step : -1;
    char           *weights = join_path(a->r.folder, "model.safetensors");
    int64_t        *steps, count = list_checkpoints(a->r.folder, &steps), later = 0;
    for (int64_t i = 0; i < count; i++)
        later += steps[i] > last && (steps[i] == s->steps || (s->save_every && steps[i] % s->save_every == 0));
    if (later > 1)
        report(a, EXIT_DIFFERENT, "log.jsonl has no link after step %lld, but there are %lld later checkpoints: it was truncated",
               (long long)last, (long long)later);
    else if (count && steps[count - 1] > last)
        print("not checked: the checkpoint of step %lld, which has no link yet\n", (long long)steps[count - 1]);
    if (!a->model.line && is_file(weights))
        report(a, EXIT_DIFFERENT, "log.jsonl has no link of %s: it was truncated, or the run was killed at its end", weights);
    free(steps);
    free(weights);
}

/* What has a hash, all of it. */
static void check_chain(audit *a)
{
    const double start = now();
    follow_chain(a);
    if (settings_of_audit.published && !a->published)
        report(a, EXIT_DIFFERENT, "log.jsonl has no link %s, which was published", settings_of_audit.published);
    else if (a->published && a->published < a->lines)
        print("published: the link in line %lld of %lld; it says nothing about later lines\n", (long long)a->published,
              (long long)a->lines);
    if (!a->chained && train_settings.audit)
        report(a, EXIT_DIFFERENT, "log.jsonl has no links, but config.txt says that the run was trained with --audit");
    if (!a->chained) {
        print("chain: none, as the run was trained without --audit: nothing says when its files were written\n");
        return;
    }
    for (int64_t i = 0; i < a->count; i++) check_file(a, &a->at[i], checkpoint_path(a->r.folder, a->at[i].step));
    if (a->model.line) check_file(a, &a->model, join_path(a->r.folder, "model.safetensors"));
    check_rest(a);
    a->hashing = now() - start;
    if (!a->status)
        print("chain: holds, %lld links of %lld lines, the last is %s\n", (long long)a->links.links, (long long)a->lines,
              a->links.last);
}

/* Without a chain: the checkpoints that are left, each of which notes how many lines the log had. */
static void list_points(audit *a)
{
    int64_t *steps;
    a->count = list_checkpoints(a->r.folder, &steps);
    a->at = (point *)allocate((size_t)a->count + 1, sizeof *a->at);
    for (int64_t i = 0; i < a->count; i++) {
        tn_ctx         *look;
        char           *path = checkpoint_path(a->r.folder, steps[i]);
        tn_safetensors *st = open_checkpoint(path, &look);
        a->at[i].step = steps[i];
        a->at[i].line = checkpoint_count(st, path, "tn.log_lines");
        tn_ctx_destroy(look);
        free(path);
    }
    free(steps);
}

/* ---- checkpoints, bit for bit ------------------------------------------------------------------------------------ */

static void print_entry(buffer *b, const char *dtype, const unsigned char *p)
{
    float  f;
    double d;
    memcpy(&f, p, sizeof f);
    if (!strcmp(dtype, "F64")) {
        memcpy(&d, p, sizeof d);
        buffer_print(b, "%.17g", d);
    } else if (!strcmp(dtype, "F32")) buffer_print(b, "%.9g", (double)f);
    else buffer_print(b, "another one");
}

/* The first entry of a tensor in which a file differs from our data, a new string; NULL if all agree. where: what has these */
static char *entry_difference(tn_safetensors *file, const tn_safetensors_entry *ours, const unsigned char *data,
                              const char *where)
{
    const tn_safetensors_entry *e = tn_safetensors_find(file, ours->name);
    const size_t                bytes = (size_t)ours->bytes;
    buffer                      b = {0};
    if (!e || strcmp(e->dtype, ours->dtype) || e->bytes != ours->bytes || e->rank != ours->rank
        || memcmp(e->shape, ours->shape, (size_t)e->rank * sizeof *e->shape))
        return format_text("tensor %s is %s", ours->name, e ? "of another type or shape" : "missing");
    unsigned char *theirs = (unsigned char *)allocate(bytes + 8, 1);
    size_t         at = 0;
    const size_t   size = !strcmp(e->dtype, "F64") ? 8 : 4;
    if (tn_safetensors_read_bytes(file, e->name, theirs, bytes) == TN_OK) {
        while (at < bytes && theirs[at] == data[at]) at++;
        if (at < bytes) {
            buffer_print(&b, "tensor %s, entry %lld is ", e->name, (long long)(at / size));
            print_entry(&b, e->dtype, theirs + at / size * size);
            buffer_print(&b, " in the file and ");
            print_entry(&b, e->dtype, data + at / size * size);
            buffer_print(&b, " in %s", where);
        }
    }
    free(theirs);
    return b.data;
}

/* The notes of a file and of the replay, by their headers. */
static char *header_difference(tn_safetensors *file, tn_safetensors *ours, const char *path, const char *data, size_t bytes)
{
    static const char *const keys[] = {"tensornet.version", "tensornet.steps", "tensornet.calls", "tensornet.seed", "tn.machine",
                                       "tn.step", "tn.log_lines", "tn.data", "tn.model", "tn.begin"};
    FILE      *f = open_input(path, BY_NAME);
    char      *head = (char *)allocate(bytes, 1);
    const bool same = fread(head, 1, bytes, f) == bytes && !memcmp(head, data, bytes);
    fclose(f);
    free(head);
    for (size_t k = 0; k < sizeof keys / sizeof *keys && !same; k++) {
        const char *a = tn_safetensors_metadata(file, keys[k]), *b = tn_safetensors_metadata(ours, keys[k]);
        if ((a || b) && (!a || !b || strcmp(a, b)))
            return format_text("its note %s is %s and in the replay %s", keys[k], a ? a : "missing", b ? b : "missing");
    }
    return same ? NULL : copy_text("its notes are others");
}

/* In what a file differs from the one that the run would write now, a new string; NULL: in nothing. note: as of file_bytes */
static char *file_difference(audit *a, tn_ctx *look, tn_safetensors *file, const char *path, const char *note, const char *where)
{
    size_t          bytes;
    char           *data = file_bytes(&a->r, note, &bytes), *why = NULL;
    tn_safetensors *ours = tn_safetensors_open(look, tn_source_memory(data, bytes));
    check_ctx(look, path);
    const int64_t   count = tn_safetensors_count(ours);
    for (int64_t i = 0; i < count && !why; i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(ours, i);
        if (!strcmp(e->name, "optim.checksum")) continue;
        why = entry_difference(file, e, (const unsigned char *)data + e->offset, where);
        check_ctx(look, path);
    }
    if (!why && tn_safetensors_count(file) != count) why = copy_text("it has other tensors");
    if (!why) why = header_difference(file, ours, path, data, (size_t)tn_safetensors_at(ours, 0)->offset);
    free(data);
    return why;
}

/* In what the checkpoint of a file differs from the state of the run now. */
static char *state_difference(audit *a, const char *path)
{
    tn_ctx         *look;
    tn_safetensors *file = open_checkpoint(path, &look);
    const char     *note = checkpoint_note(file, path, "tn.config");
    const bool      same = same_settings(note, a->r.config.data);
    char           *why = same ? file_difference(a, look, file, path, note, "the replay")
                               : copy_text("its settings are not those of config.txt");
    tn_ctx_destroy(look);
    return why;
}

/* ---- replays ----------------------------------------------------------------------------------------------------- */

/* Reads a checkpoint of this run, or of the one that it continues. */
static void read_state(audit *a, const char *path)
{
    run            *r = &a->r;
    tn_ctx         *look;
    tn_safetensors *st = open_checkpoint(path, &look);
    r->step = checkpoint_count(st, path, "tn.step");
    tn_ctx_destroy(look);
    tn_checkpoint_read(r->optim, tn_source_path(path));
    check_ctx(r->m.ctx, "checkpoint");
    r->saved_step = -1;
    r->diverged = false;
    r->feed.graph = NULL;               /* it was lost */
    r->feed.steps_run = 0;
}

/* Why a difference of a checkpoint would prove nothing, a new string; NULL: it proves one. */
static char *other_machine(audit *a, const point *p, const char *path)
{
    char            machine[128];
    tn_ctx         *look;
    tn_safetensors *st = open_checkpoint(path, &look);
    const char     *theirs = checkpoint_note(st, path, "tn.machine"), *version = tn_safetensors_metadata(st, "tensornet.version");
    char           *why = NULL;
    machine_name(a->r.m.ctx, machine, sizeof machine);
    if (strcmp(theirs, machine)) why = format_text("it was made with %s, and this is %s", theirs, machine);
    else if (version && strcmp(version, tn_version())) why = format_text("it was made by tn %s, not %s", version, tn_version());
    else if (p->processes > 1) why = format_text("it was made by %lld processes together", (long long)p->processes);
    tn_ctx_destroy(look);
    return why;
}

/* Prints the result of a comparison. why: the difference, or NULL; it is freed. */
static void conclude(audit *a, const char *what, double seconds, const point *p, const char *path, char *why)
{
    char *excuse = why ? other_machine(a, p, path) : NULL;
    if (!why && seconds < 0) print("%s: same\n", what);
    else if (!why) print("%s: same, %.2f s\n", what, seconds);
    else if (excuse) report(a, EXIT_ERROR, "%s: %s, which proves nothing: %s", what, why, excuse);
    else report(a, EXIT_DIFFERENT, "%s: %s", what, why);
    fflush(stdout);
    free(excuse);
    free(why);
}

/* The first checkpoint is the new model, or the checkpoint of --from. */
static void check_start(audit *a)
{
    const char *from = train_settings.from;
    char       *path = checkpoint_path(a->r.folder, a->at[0].step), *what;
    if (from && !is_file(from)) {
        report(a, EXIT_ERROR, "the start, as %s does not exist", from);
        free(path);
        return;
    }
    if (from) read_state(a, from);
    else if (a->at[0].step) {
        if (a->chained)
            report(a, EXIT_DIFFERENT, "the chain begins with step %lld, expected 0, as the run continues no other one",
                   (long long)a->at[0].step);
        else print("start: not checked, as the checkpoint of step 0 is not there\n");
        free(path);
        return;
    }
    what = from ? format_text("start, step %lld of %s", (long long)a->r.step, from)
                : format_text("start, the new model of seed %lld", (long long)train_settings.seed);
    a->r.journal.lines = a->at[0].line;
    conclude(a, what, -1, &a->at[0], path, state_difference(a, path));
    free(what);
    free(path);
}

/* config.json, which the run began with, is the model of its settings. */
static void check_desc(audit *a)
{
    char  *path = join_path(a->r.folder, "config.json"), *first = checkpoint_path(a->r.folder, a->at[0].step);
    size_t bytes;
    char  *text = read_file(path, BY_NAME, &bytes);
    if (bytes != strlen(a->r.config_json) || memcmp(text, a->r.config_json, bytes))
        conclude(a, path, -1, &a->at[0], first, copy_text("it is not the model of config.txt"));
    free(text);
    free(first);
    free(path);
}

/* model.safetensors has the parameters of the last checkpoint, its notes and nothing else. */
static void check_model(audit *a)
{
    const point *last = &a->at[a->count - 1];
    char        *path = join_path(a->r.folder, "model.safetensors"), *newest = checkpoint_path(a->r.folder, last->step);
    if (is_file(path) && last->step < a->r.steps)
        print("%s: not checked, as the checkpoint of step %lld is not there\n", path, (long long)a->r.steps);
    else if (is_file(path)) {
        tn_ctx *look;
        char    problem[256];
        if (tn_ctx_create(NULL, &look, problem) != TN_OK) fail("%s", problem);
        tn_safetensors *file = tn_safetensors_open(look, tn_source_path(path));
        check_ctx(look, path);
        read_state(a, newest);
        char *why = file_difference(a, look, file, path, NULL, "the last checkpoint");
        if (why) conclude(a, path, -1, last, newest, why);
        else print("model.safetensors: the parameters of step %lld\n", (long long)last->step);
        tn_ctx_destroy(look);
    }
    free(newest);
    free(path);
}

/* The first line in which the log of a replay differs from that of the run from line `from` up to `to`, a new string, or NULL. */
static char *log_difference(audit *a, int64_t from, int64_t to)
{
    size_t bytes, n;
    char  *text = journal_text(&a->r.journal, &bytes), *why = NULL, *at = text;
    for (int64_t i = from; i < to && !why; i++, at += n + (at[n] != 0)) {
        const size_t length = untimed(a->line[i], line_bytes(a, i));
        n = strcspn(at, "\n");
        if (n && length == untimed(at, n) && !memcmp(at, a->line[i], length)) continue;
        const double step = line_number(a, i, "step"), loss = line_number(a, i, "loss"), ours = json_number(at, at + n, "loss");
        if (loss != ours && !isnan(loss + ours))
            why = format_text("step %.0f has the loss %.9g in the log and %.9g in the replay", step, loss, ours);
        else why = format_text("step %.0f: line %lld of the log is not that of the replay", step, (long long)i + 1);
    }
    if (!why && *at) why = format_text("the log lacks a line after line %lld, which the replay has", (long long)to);
    free(text);
    return why;
}

/* Trains from one checkpoint to the next. */
static void replay(audit *a, int64_t number)
{
    const point  *p = &a->at[number], *q = p + 1;
    const int64_t first = p->line + a->chained;           /* after its link */
    const double  start = now();
    char *from = checkpoint_path(a->r.folder, p->step), *to = checkpoint_path(a->r.folder, q->step), *why;
    char *what = format_text("steps %lld to %lld", (long long)p->step + 1, (long long)q->step), *state = NULL;
    a->r.diverged = false;
    show_stage("%s", what);
    read_state(a, from);
    journal_replay(&a->r.journal);
    a->r.journal.lines = first;
    if (q->line > a->lines) why = format_text("log.jsonl has %lld lines, expected %lld", (long long)a->lines, (long long)q->line);
    else {
        train_until(&a->r, q->step, NULL);
        why = log_difference(a, first, q->line);
        if (a->r.diverged) {
            free(why);
            why = format_text("the replay stops at step %lld, where its loss is NaN or too large", (long long)a->r.step + 1);
        } else state = state_difference(a, to);
    }
    if (why && state) {
        char *both = format_text("%s; after step %lld %s", why, (long long)q->step, state);
        free(why);
        why = both;
    } else if (state) why = format_text("after step %lld %s", (long long)q->step, state);
    journal_close(&a->r.journal);
    show_stage(NULL);
    a->replaying += now() - start;
    a->replayed += q->step - p->step;
    conclude(a, what, now() - start, q, to, why);
    free(state);
    free(what);
    free(from);
    free(to);
}

/* ---- the choice ---------------------------------------------------------------------------------------------------- */

static int64_t random_seed(void)
{
    uint64_t bits;
    FILE    *f = fopen("/dev/urandom", "rb");
    if (!f || fread(&bits, sizeof bits, 1, f) != 1) fail("/dev/urandom cannot be read: give a random --seed");
    fclose(f);
    return (int64_t)(bits >> 15) + 1;                     /* one that --seed accepts */
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* `count` of `all` segments without repetition, all sets with the same probability; a new list, ascending. */
static int64_t *choose(int64_t count, int64_t all, uint64_t seed)
{
    int64_t *list = (int64_t *)allocate((size_t)all + 1, sizeof *list);
    uint64_t state = splitmix64(seed);
    for (int64_t i = 0; i < all; i++) list[i] = i;
    for (int64_t i = 0; i < count; i++) {
        const int64_t other = i + (int64_t)(next_uniform(&state) * (double)(all - i)), taken = list[other];
        list[other] = list[i];
        list[i] = taken;
    }
    qsort(list, (size_t)count, sizeof *list, ascending);
    return list;
}

/* That none of `forged` segments is among `count` of `all`: C(all - forged, count) / C(all, count) */
static double missed(int64_t all, int64_t count, int64_t forged)
{
    double chance = 1;
    for (int64_t i = 0; i < count; i++) chance *= all - forged - i > 0 ? (double)(all - forged - i) / (double)(all - i) : 0;
    return chance;
}

static void print_chances(int64_t all, int64_t count)
{
    const int64_t forged[] = {1, (all + 9) / 10, (all + 1) / 2};
    for (int k = 0; k < 3; k++)
        if (!k || forged[k] > forged[k - 1])
            print("chance that %lld forged segment%s of %lld would be missed: %.4g\n", (long long)forged[k],
                  forged[k] == 1 ? "" : "s", (long long)all, missed(all, count, forged[k]));
}

static void print_cost(const audit *a)
{
    double trained = NAN;
    for (int64_t i = 0; i < a->lines; i++) if (!isnan(line_number(a, i, "loss"))) trained = line_number(a, i, "seconds");
    print("checked: %lld of %lld segments, %lld of %lld steps\n", (long long)a->segments, (long long)a->count - 1,
          (long long)a->replayed, (long long)a->trained);
    print("seconds: %.2f to replay", a->replaying);
    if (a->chained) print(", %.2f to hash %lld files", a->hashing, (long long)a->files);
    if (!isnan(trained)) print("; the log says that the training took %.2f", trained);
    print("\n");
}

int audit_main(int argc, char **argv)
{
    audit a;
    char  machine[128];
    memset(&a, 0, sizeof a);
    if (read_options(&audit_usage, argc, argv) < 1) usage_error("no run is given, expected tn audit RUN");
    a.r.folder = argv[0];
    a.r.s = &train_settings;
    if (!is_folder(a.r.folder)) fail("%s is not a run, expected a folder of tn train --audit", a.r.folder);
    char *config = join_path(a.r.folder, "config.txt");
    if (!is_file(config)) fail("%s holds no run, expected %s", a.r.folder, config);
    train_settings.resume = a.r.folder;                   /* its settings may be those of a stranger */
    train_settings.data = settings_of_audit.data;
    train_settings.val = settings_of_audit.val;
    find_option(&train_usage, "data")->given = a.r.data_named = train_settings.data.count > 0;
    find_option(&train_usage, "val")->given = a.r.val_named = train_settings.val.count > 0;
    read_run_config(&a.r, config);
    read_lines(&a);
    char *why = a.r.data_named ? NULL : unfit_data(&train_settings, a.r.folder, true);
    if (why) fail("%s; if it was moved: tn audit %s --data FILE", why, a.r.folder);
    check_chain(&a);
    if (a.status) return a.status;
    if (!a.chained) list_points(&a);
    if (a.count < 2)
        fail("%s has %lld checkpoint%s, expected at least two, between which steps can be trained again", a.r.folder,
             (long long)a.count, a.count == 1 ? "" : "s");
    char *first = checkpoint_path(a.r.folder, a.at[0].step);
    open_untrained(&a.r, first);
    machine_name(a.r.m.ctx, machine, sizeof machine);
    check_start(&a);
    check_desc(&a);
    check_model(&a);
    const int64_t all = a.count - 1, seed = settings_of_audit.seed ? settings_of_audit.seed : random_seed();
    a.segments = settings_of_audit.segments < all ? settings_of_audit.segments : all;
    a.trained = a.at[all].step - a.at[0].step;
    print("replay: %lld of %lld segments, seed %lld, %s\n", (long long)a.segments, (long long)all, (long long)seed, machine);
    int64_t *chosen = choose(a.segments, all, (uint64_t)seed);
    for (int64_t i = 0; i < a.segments; i++) replay(&a, chosen[i]);
    print_cost(&a);
    if (!a.status) print_chances(all, a.segments);
    print("not proved: that the text is what it is said to be, that no other run was tried first, and anything about segments "
          "that were not replayed\n");
    free(chosen);
    free(first);
    free(config);
    free(a.log);
    free(a.line);
    free(a.at);
    close_run(&a.r);
    return a.status;
}
