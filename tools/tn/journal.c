/* journal.c - what `tn train` reports: log.jsonl, loss.png, the progress line */
#include "train.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static void curve_add(curve *c, double x, double y)
{
    if (c->count == c->capacity) {
        c->capacity = c->capacity * 2 + 256;
        c->x = (double *)resize(c->x, (size_t)c->capacity, sizeof *c->x);
        c->y = (double *)resize(c->y, (size_t)c->capacity, sizeof *c->y);
    }
    c->x[c->count] = x;
    c->y[c->count++] = y;
}

static void journal_init(journal *j, const char *folder)
{
    memset(j, 0, sizeof *j);
    j->path = join_path(folder, "log.jsonl");
    j->picture = join_path(folder, PICTURE);
    j->bar = isatty(STDOUT_FILENO) != 0;
    j->trigram = j->fivegram = j->last = j->smooth = j->norm = j->all = j->all_step = NAN;
}

static void open_temporary(journal *j)
{
    j->file = tmpfile();
    if (!j->file) fail("no temporary file can be made: %s", strerror(errno));
}

void journal_replay(journal *j)
{
    journal_init(j, "");
    open_temporary(j);
    j->silent = true;
}

/* The lock keeps two processes from writing the same run. It ends with the process, or when the process closes any
   descriptor of the file: nothing else may open it. */
void journal_lock(journal *j, const char *folder)
{
    journal_init(j, folder);
    if (!is_first()) {                                /* a log that nobody reads */
        open_temporary(j);
        return;
    }
    j->file = open_log(j->path);
    if (lockf(fileno(j->file), F_TLOCK, 0) != 0 && (errno == EAGAIN || errno == EACCES))
        fail("%s is locked: another process trains this run", j->path);
}

static void truncate_log(journal *j, size_t bytes)
{
    if (ftruncate(fileno(j->file), (off_t)bytes) != 0 || fseek(j->file, 0, SEEK_END) != 0)
        fail("cannot write %s: %s", j->path, strerror(errno));
}

void journal_start(journal *j)
{
    truncate_log(j, 0);
    j->started = now();
}

static void log_failed(journal *j)
{
    const char *why = strerror(errno);
    j->failed = true;
    clear_progress(j);
    warn("cannot write %s: %s", j->path, why);
}

void journal_sync(journal *j)
{
    if (!j->failed && !sync_file(fileno(j->file))) log_failed(j);
}

/* An exponential mean over about 20 steps. */
static double smoothed(double mean, double loss) { return isnan(mean) ? loss : mean + 0.05 * (loss - mean); }

static void read_log_line(journal *j, const char *line, const char *end)
{
    double step = json_number(line, end, "step"), loss = json_number(line, end, "loss"),
        held = json_number(line, end, "held");
    double seconds = json_number(line, end, "seconds"), three = json_number(line, end, "trigram"),
        five = json_number(line, end, "fivegram");
    const bool is_step = step >= 0 && step <= 1e18;   /* a log of others may hold any number */
    if (!isnan(loss) && is_step) {
        j->smooth = smoothed(j->smooth, loss);
        curve_add(&j->loss, step, j->smooth);
    }
    if (!isnan(held) && is_step) journal_held(j, (int64_t)step, held, json_true(line, end, "all"));
    if (seconds >= 0 && seconds <= 1e12) j->seconds_before = seconds;
    if (!isnan(three)) j->trigram = three;
    if (!isnan(five)) j->fivegram = five;
}

reached read_reached(const char *folder, double at)
{
    reached r = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    char   *path = join_path(folder, "log.jsonl"), *text;
    size_t  bytes;
    if (is_file(path)) {
        text = read_file(path, BY_NAME, &bytes);
        for (char *line = text, *stop; (stop = strchr(line, '\n')) != NULL; line = stop + 1) {
            const struct { const char *key; double *to; } numbers[] = {
                {"trigram", &r.trigram}, {"fivegram", &r.fivegram}, {"tokens", &r.tokens}, {"seconds", &r.seconds}
            };
            const double held = json_number(line, stop, "held"), step = json_number(line, stop, "step");
            for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
                const double v = json_number(line, stop, numbers[k].key);
                if (!isnan(v)) *numbers[k].to = v;
            }
            if (isnan(held) || (!isnan(at) && step != at)) continue;
            r.held = held, r.step = step;
            if (!json_true(line, stop, "all") && !(held >= r.best)) r.best = held, r.best_step = step;
        }
        free(text);
    }
    free(path);
    return r;
}

char *journal_text(journal *j, size_t *bytes)
{
    buffer b = {0};
    char   piece[1 << 16];
    size_t n;
    buffer_add(&b, "", 0);
    rewind(j->file);
    while ((n = fread(piece, 1, sizeof piece, j->file)) > 0) buffer_add(&b, piece, n);
    if (ferror(j->file)) fail("%s: %s", j->path, strerror(errno));
    *bytes = b.bytes;
    return b.data;
}

bool journal_has_steps(journal *j)
{
    size_t     bytes;
    char      *text = journal_text(j, &bytes);
    const bool has = find_text(text, bytes, "\"loss\":") != NULL;
    free(text);
    return has;
}

/* Whether the model after this step was evaluated on all held-out data. */
static bool was_evaluated(const char *text, size_t bytes, int64_t step)
{
    const char *end = text + bytes, *stop;
    for (const char *line = text; (stop = (const char *)memchr(line, '\n', (size_t)(end - line))) != NULL; line = stop + 1)
        if (json_true(line, stop, "all") && json_number(line, stop, "step") == (double)step) return true;
    return false;
}

/* Whether a line is the link that the checkpoint before it got: it names the processes that trained up to there. */
static bool is_next_link(const journal *j, const char *line, const char *stop)
{
    chain c = j->chain;
    return chain_add(&c, line, (size_t)(stop - line)) == GOOD_LINK;
}

void journal_resume(journal *j, int64_t step, int64_t lines, bool finished)
{
    size_t     all, at = 0;
    char      *text = journal_text(j, &all);
    const bool evaluated = finished && was_evaluated(text, all, step);
    int64_t    expected = lines;
    while (at < all) {
        const char *stop = (const char *)memchr(text + at, '\n', all - at);
        if (!stop || json_number(text + at, stop, "step") > (double)step) break;
        if (j->lines == expected && !evaluated && isnan(json_number(text + at, stop, "loss"))) {
            if (expected > lines || !is_next_link(j, text + at, stop)) break;
            expected++;
        }
        read_log_line(j, text + at, stop);
        chain_add(&j->chain, text + at, (size_t)(stop - text) - at);
        at = (size_t)(stop - text) + 1;
        j->lines++;
    }
    free(text);
    if (!is_first()) j->lines = lines;
    if (j->lines != expected && !evaluated)
        warn("%s was changed: it has %lld lines up to step %lld, expected %lld; new lines are added after them", j->path,
             (long long)j->lines, (long long)step, (long long)lines);
    truncate_log(j, at);
    j->started = now();
}

/* Whether the open file is still the one of that name. If it was removed, so was the lock that is on it. */
static bool log_is_there(const journal *j)
{
    struct stat own, named;
    return !is_first() || j->silent || fstat(fileno(j->file), &own) != 0
        || (lstat(j->path, &named) == 0 && own.st_ino == named.st_ino && own.st_dev == named.st_dev);
}

void journal_line(journal *j, const char *format, ...)
{
    buffer  line = {0};
    va_list list;
    va_start(list, format);
    buffer_add(&line, "{", 1);
    buffer_print_list(&line, format, list);
    va_end(list);
    buffer_add(&line, "}\n", 2);
    chain_add(&j->chain, line.data, line.bytes - 1);
    if (!j->failed && !log_is_there(j)) {
        j->failed = true;
        clear_progress(j);
        warn("%s was removed or replaced while it was written, expected that it stays: it has the lock of the run", j->path);
    }
    if (!j->failed) {
        fwrite(line.data, 1, line.bytes, j->file);
        if (fflush(j->file) != 0 || ferror(j->file)) log_failed(j);
    }
    free(line.data);
    j->lines++;
}

double journal_seconds(const journal *j) { return j->seconds_before + now() - j->started; }

void journal_step(journal *j, int64_t step, double loss, double lr, double norm, int64_t tokens, double rate)
{
    j->last = loss;
    j->norm = norm;
    j->smooth = smoothed(j->smooth, loss);
    curve_add(&j->loss, (double)step, j->smooth);
    journal_line(j, "\"step\":%lld,\"loss\":%.9g,\"lr\":%.6g,\"norm\":%.6g,\"tokens\":%lld,\"rate\":%.0f,\"seconds\":%.3f",
                 (long long)step, loss, lr, norm,
                 (long long)tokens, rate, journal_seconds(j));
}

void journal_held(journal *j, int64_t step, double nats, bool all)
{
    if (!all) curve_add(&j->held, (double)step, nats);
    else j->all_step = (double)step, j->all = nats;
}

void print_held_out_so_far(journal *j)
{
    const curve *c = &j->held;
    int64_t      best = 0;
    if (!c->count) return;
    for (int64_t i = 1; i < c->count; i++) if (c->y[i] < c->y[best]) best = i;
    journal_print(j, "held out so far: %.4f nats per token after step %.0f", c->y[c->count - 1], c->x[c->count - 1]);
    if (best < c->count - 1) journal_print(j, ", %.4f after step %.0f", c->y[best], c->x[best]);
    journal_print(j, "\n");
}

/* ---- the terminal ---------------------------------------------------------------- */

void clear_progress(journal *j)
{
    if (!j->shown) return;
    print("\r\033[K");
    fflush(stdout);
    j->shown = false;
}

void journal_print(journal *j, const char *format, ...)
{
    va_list list;
    if (j->silent) return;
    clear_progress(j);
    va_start(list, format);
    print_list(stdout, format, list);
    va_end(list);
    fflush(stdout);
}

/* Adds to a line of 200 bytes what fits into the columns that are left. */
static void line_add(char *line, int columns, const char *format, ...)
{
    const size_t used = strlen(line);
    char         part[100];
    va_list      list;
    va_start(list, format);
    vsnprintf(part, sizeof part, format, list);
    va_end(list);
    if ((int)(used + strlen(part)) <= columns) memcpy(line + used, part, strlen(part) + 1);
}

void show_progress(journal *j, int64_t step, int64_t steps, double rate, double share, bool always)
{
    double    every = j->bar ? 0.1 : 5;
    const int columns = j->bar ? 79 : 199;            /* a line that wraps could not be erased */
    char      line[200] = "";
    if (!always && now() - j->last_shown < every) return;
    long long left = step ? (long long)fmin((double)(steps - step) * (journal_seconds(j) / (double)step), 1e15) : 0;
    j->last_shown = now();
    line_add(line, columns, "step %lld/%lld  %lld:%02lld left  ", (long long)step, (long long)steps, left / 60,
             left % 60);
    if (j->bar) line_add(line, columns, "mean %.3f", j->smooth);
    else line_add(line, columns, "loss %.3f  mean loss %.3f", j->last, j->smooth);
    if (j->held.count) line_add(line, columns, j->bar ? " held %.3f" : "  held out %.3f", j->held.y[j->held.count - 1]);
    line_add(line, columns, j->bar ? "  %.1fk/s %.0f%% peak" : "  %.1fk tokens/s  %.0f%% of peak", rate / 1e3, 100 * share);
    if (j->bar) {                                     /* what leaves the bar at least eight columns */
        line_add(line, 68, "  loss %.3f", j->last);
        line_add(line, 68, "  norm %.2g", j->norm);
    } else line_add(line, columns, "  gradient norm %.2g", j->norm);
    if (j->bar) {
        int cells = 76 - (int)strlen(line);
        if (cells > 24) cells = 24;
        print("\r");
        if (cells >= 4) {
            print("[");
            for (int i = 0; i < cells; i++) print(i < cells * step / steps ? "#" : ".");
            print("] ");
        }
        print("%s\033[K", line);
        j->shown = true;
    } else print("%s\n", line);
    fflush(stdout);
}

void show_part(journal *j, const char *what, int64_t done, int64_t count)
{
    if (!j->bar || now() - j->last_shown < 0.1) return;
    j->last_shown = now();
    print("\r%s: %.0f%% evaluated\033[K", what, 100 * (double)done / (double)count);
    fflush(stdout);
    j->shown = true;
}

/* ---- the curve --------------------------------------------------------------------- */

static tn_status put_picture(void *image, tn_sink sink)
{
#ifdef HAVE_STB_IMAGE_WRITE
    return tn_image_write_png((const tn_image *)image, sink);
#else
    return tn_image_write_svg((const tn_image *)image, sink);
#endif
}

static tn_image_series curve_of(const char *name, const double *x, const double *y, int64_t count)
{
    tn_image_series s;
    memset(&s, 0, sizeof s);
    s.name = name;
    s.x = x;
    s.y = y;
    s.count = count;
    return s;
}

/* Writes and frees the picture. Training continues without it. */
static void save_curve(journal *j, tn_ctx *ctx, tn_image *image)
{
    char *why = image ? write_file_with(j->picture, BY_NAME, put_picture, image, ctx) : NULL;
    if (!image || why) {
        clear_progress(j);
        if (why) warn("%s", why);
        else warn("cannot draw %s: %s", j->picture, tn_ctx_error(ctx));
        tn_ctx_clear_error(ctx);
    }
    free(why);
    tn_image_destroy(image);
}

void draw_curve(journal *j, tn_ctx *ctx, const char *title, double tokens)
{
    tn_image_series    series[5];
    tn_image_plot_desc desc;
    int64_t      n = 0, every = j->loss.count / 1000 + 1, i, k;
    double       ends[2], gram[2][2], all_tokens = j->all_step * tokens, low = INFINITY, high = -INFINITY;
    if (j->loss.count < 2 || !is_first()) return;
    double *x = (double *)allocate((size_t)j->loss.count, sizeof *x);
    double *y = (double *)allocate((size_t)j->loss.count, sizeof *y);
    for (i = k = 0; i < j->loss.count; i += every, k++) {
        x[k] = j->loss.x[i] * tokens;
        y[k] = j->loss.y[i];
        if (i >= j->loss.count / 50 && y[k] > high) high = y[k];      /* cuts off the steep fall of the first steps */
        if (y[k] < low) low = y[k];
    }
    double *held = (double *)allocate((size_t)j->held.count, sizeof *held);
    for (i = 0; i < j->held.count; i++) held[i] = j->held.x[i] * tokens;
    memset(&desc, 0, sizeof desc);
    series[n++] = curve_of("training, mean of 20 steps", x, y, k);
    if (j->held.count > 1 || (j->held.count && j->held.x[0] != j->all_step)) {      /* else it is under the last point */
        for (i = 0; i < j->held.count; i++) if (j->held.y[i] < low) low = j->held.y[i];
        series[n++] = curve_of("held out", held, j->held.y, j->held.count);
    }
    if (isfinite(j->all)) {
        if (j->all < low) low = j->all;
        series[n] = curve_of("all of the held-out part", &all_tokens, &j->all, 1);
        series[n++].kind = TN_IMAGE_SERIES_POINTS;
    }
    ends[0] = j->loss.x[0] * tokens;
    ends[1] = j->loss.x[j->loss.count - 1] * tokens;
    for (i = 0; i < 2 && isfinite(j->trigram); i++) {
        const double loss = gram[i][0] = gram[i][1] = i ? j->fivegram : j->trigram;
        series[n] = curve_of(i ? "5-gram" : "trigram", ends, gram[i], 2);
        series[n++].dashed = true;
        if (loss < low) low = loss;
        if (loss > high) high = loss;
    }
    desc.title = title;
    desc.x_title = "tokens";
    desc.y_title = "nats per token";
    desc.scale = 2;
    if (high > low) {
        desc.y_low = low - 0.05 * (high - low);
        desc.y_high = high;
    }
    save_curve(j, ctx, tn_image_plot(ctx, series, n, &desc));
    free(held);
    free(x);
    free(y);
}

bool journal_close(journal *j)
{
    if (j->file && fclose(j->file) != 0 && !j->failed) log_failed(j);
    bool good = !j->failed;
    free(j->path);
    free(j->picture);
    free(j->loss.x);
    free(j->loss.y);
    free(j->held.x);
    free(j->held.y);
    memset(j, 0, sizeof *j);
    return good;
}
