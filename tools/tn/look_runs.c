/* look_runs.c - tn look: several runs in one page: their losses over the training, and the settings in which they differ */
#include "look.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_POINTS = 2000, ALL_POINTS = 40000, MOST_RUNS = 100 };

/* Rows of numbers of one step each, [count][4]: step, tokens, seconds, loss. */
typedef struct curve_rows { double (*row)[4]; int64_t count; } curve_rows;
typedef struct setting { char *key, *value; } setting;
typedef struct one_run {
    const char *path;
    char       *name;
    curve_rows  training, held;
    double      parameters, grams[2], best, whole, last[4];   /* best: the lowest held-out loss; whole: that of all held-out text */
    setting    *settings;
    int64_t     count;
} one_run;

static void add_point(curve_rows *c, const double at[3], double loss)
{
    c->row = (double (*)[4])resize(c->row, (size_t)c->count + 1, sizeof *c->row);
    memcpy(c->row[c->count], at, 3 * sizeof *at);
    c->row[c->count++][3] = loss;
}

static void read_log_line(one_run *r, const char *line, const char *end)
{
    static const char *const keys[] = {"step", "tokens", "seconds"}, *const grams[] = {"trigram", "fivegram"};
    const double loss = json_number(line, end, "loss"), held = json_number(line, end, "held"),
                 parameters = json_number(line, end, "parameters");
    for (int k = 0; k < 3; k++) {
        const double v = json_number(line, end, keys[k]);
        if (v >= 0 && v <= 1e18) r->last[k] = v;      /* a log of others may hold any number */
    }
    for (int k = 0; k < 2; k++) {
        const double v = json_number(line, end, grams[k]);
        if (!isnan(v)) r->grams[k] = v;
    }
    if (!isnan(parameters)) r->parameters = parameters;
    if (!isnan(loss)) add_point(&r->training, r->last, r->last[3] = loss);
    if (isnan(held)) return;
    if (json_true(line, end, "all")) r->whole = held;
    else {
        add_point(&r->held, r->last, held);
        r->best = fmin(r->best, held);
    }
}

static void read_log(one_run *r, const char *path)
{
    size_t      bytes;
    char       *text = read_file(path, BY_NAME, &bytes);
    const char *end = text + bytes, *stop;
    for (const char *at = text; at < end; at = stop + 1) {
        stop = (const char *)memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        read_log_line(r, at, stop);
    }
    free(text);
}

/* The lines `key = value` of config.txt; of a path the last part. */
static void read_own_settings(one_run *r, const char *path)
{
    size_t bytes;
    char  *text = is_file(path) ? read_file(path, BY_NAME, &bytes) : NULL;
    for (char *line = text, *next, *value; line && *line; line = next) {
        if ((next = strchr(line, '\n')) != NULL) *next++ = 0;
        if (*line == '#' || !(value = strstr(line, " = "))) continue;
        *value = 0;
        r->settings = (setting *)resize(r->settings, (size_t)r->count + 1, sizeof *r->settings);
        r->settings[r->count].key = copy_text(line);
        r->settings[r->count++].value = copy_text(file_name(value + 3));
    }
    free(text);
}

static const char *value_of(const one_run *r, const char *key)
{
    for (int64_t i = 0; i < r->count; i++) if (!strcmp(r->settings[i].key, key)) return r->settings[i].value;
    return "";
}

/* Whether one of the first `count` runs has a setting: a run that was made before an option existed lacks it. */
static bool has_before(const one_run *runs, int64_t count, const char *key)
{
    for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < runs[k].count; i++) if (!strcmp(runs[k].settings[i].key, key)) return true;
    return false;
}

static bool differ_in(const one_run *runs, int64_t count, const char *key)
{
    for (int64_t k = 1; k < count; k++) if (strcmp(value_of(&runs[0], key), value_of(&runs[k], key))) return true;
    return false;
}

/* ---- which runs ------------------------------------------------------------------------------------------------------- */

static bool has_log(const char *folder)
{
    char *log = join_path(folder, "log.jsonl");
    bool  has = is_file(log);
    free(log);
    return has;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int64_t runs_below(const char *folder, char ***list)
{
    DIR           *d = is_folder(folder) && !has_log(folder) ? opendir(folder) : NULL;
    struct dirent *e;
    int64_t        count = 0;
    *list = NULL;
    while (d && (e = readdir(d)) != NULL) {
        char *path = *e->d_name == '.' ? NULL : join_path(folder, e->d_name);
        if (path && is_folder(path) && has_log(path)) {
            *list = (char **)resize(*list, (size_t)count + 1, sizeof **list);
            (*list)[count++] = path;
        } else free(path);
    }
    if (d) closedir(d);
    if (count) qsort(*list, (size_t)count, sizeof **list, by_text);
    return count;
}

/* Names that tell the runs apart: their paths without the folders that all have. */
static void name_runs(one_run *runs, int64_t count)
{
    size_t same = strlen(runs[0].path);
    for (int64_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < same && runs[0].path[k] == runs[i].path[k]) k++;
        if (i || count == 1) same = k;
    }
    while (same && runs[0].path[same - 1] != '/') same--;
    for (int64_t i = 0; i < count; i++) {
        size_t n = strlen(runs[i].path + same);
        while (n > 1 && runs[i].path[same + n - 1] == '/') n--;
        runs[i].name = format_text("%.*s", (int)n, runs[i].path + same);
        for (int64_t k = 0; k < i; k++)
            if (!strcmp(runs[k].name, runs[i].name)) usage_error("the run %s is given twice", runs[i].path);
    }
}

static void read_run(one_run *r, const char *path)
{
    char *log = join_path(path, "log.jsonl"), *config = join_path(path, "config.txt");
    memset(r, 0, sizeof *r);
    r->path = path;
    r->parameters = r->grams[0] = r->grams[1] = r->best = r->whole = r->last[3] = NAN;
    if (!is_folder(path) && !is_file(path)) fail("%s: no such run or file", path);
    if (!is_file(log))
        fail("%s has no log.jsonl, expected a run of tn train: the losses of several runs are shown in one picture; of two "
             "models, tn look RUN --against RUN|FILE compares what they have learnt", path);
    read_log(r, log);
    read_own_settings(r, config);
    if (!r->training.count && !r->held.count) fail("%s has no step in its log.jsonl, expected at least one", path);
    free(log);
    free(config);
}

/* ---- the page --------------------------------------------------------------------------------------------------------- */

/* Means of bins: of `most` rows at most. What a row is at, is where its bin ends. */
static void put_curve(page *p, const char *key, const curve_rows *c, int64_t most)
{
    const int64_t bin = c->count ? (c->count - 1) / most + 1 : 1, n = (c->count + bin - 1) / bin, shape[2] = {4, n};
    double       *v = (double *)allocate((size_t)(4 * n) + 1, sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = i * bin, end = first + bin < c->count ? first + bin : c->count;
        for (int k = 0; k < 3; k++) v[k * n + i] = c->row[end - 1][k];
        for (int64_t j = first; j < end; j++) v[3 * n + i] += c->row[j][3] / (double)(end - first);
    }
    page_numbers(p, key, ARRAY_F64, 2, shape, v);
    if (bin > 1) page_number(p, "bin", (double)bin);
    free(v);
}

static void put_run(page *p, const one_run *r, const one_run *runs, int64_t count)
{
    static const char *const keys[] = {"steps", "tokens", "seconds", "training"};
    const int64_t most = ALL_POINTS / count < CURVE_POINTS ? ALL_POINTS / count : CURVE_POINTS;
    page_open(p, NULL, '{');
    page_text(p, "name", r->name);
    page_number(p, "parameters", r->parameters);
    for (int k = 0; k < 4; k++) page_number(p, keys[k], r->last[k]);
    page_number(p, "best", r->best);
    page_number(p, "whole", r->whole);
    page_number(p, "trigrams", r->grams[0]);
    page_number(p, "fivegrams", r->grams[1]);
    put_curve(p, "curve", &r->training, most);
    put_curve(p, "held", &r->held, most);
    page_open(p, "settings", '[');
    for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < runs[k].count; i++) {
            const char *key = runs[k].settings[i].key;
            if (!has_before(runs, k, key) && differ_in(runs, count, key)) page_row(p, key, "%s", value_of(r, key));
        }
    page_close(p, ']');
    page_close(p, '}');
}

static const one_run *best_run(const one_run *runs, int64_t count)
{
    const one_run *best = NULL;
    for (int64_t i = 0; i < count; i++) if (!isnan(runs[i].best) && (!best || runs[i].best < best->best)) best = &runs[i];
    return best;
}

void look_at_runs(const char *const *paths, int64_t count, const char *title, const char *out)
{
    page     p;
    one_run *runs = (one_run *)allocate((size_t)count, sizeof *runs);
    look_is_of(LOOK_RUNS);
    if (count > MOST_RUNS) fail("%lld runs are given, expected at most %d in one picture", (long long)count, MOST_RUNS);
    for (int64_t i = 0; i < count; i++) read_run(&runs[i], paths[i]);
    name_runs(runs, count);
    const one_run *best = best_run(runs, count);
    char          *about = best ? format_text("The run %s has reached the lowest held-out loss, %.4g nats per token.",
                                              best->name, best->best)
                                : copy_text("No run has measured a held-out loss yet.");
    page_begin(&p, "look", "runs", title);
    page_text(&p, "about", about);
    page_open(&p, "sections", '[');
    page_section(&p, "runs", "runs", "Losses", "The loss of each run over its training, in nats per token. A click on a name "
                 "switches its run off and on.");
    page_open(&p, "runs", '[');
    for (int64_t i = 0; i < count; i++) put_run(&p, &runs[i], runs, count);
    page_close(&p, ']');
    page_close(&p, '}');
    page_close(&p, ']');
    page_write(&p, out, look_settings.out ? BY_USER : BY_NAME);
    free(about);
    free(runs);
}
