/* util.c - messages, memory, strings, UTF-8, the clock */
#include "tn.h"
#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- printing ---------------------------------------------------------------
   Names, settings and texts come from files, and a terminal obeys what is in them. So nothing else in the command prints
   (tests/idioms.sh), and every conversion of a text is made printable here, where no caller can forget it. */

/* Adds what vsprintf would write, where the texts that are converted, not the format, are made printable. */
static void add_printable(buffer *b, const char *format, va_list list)
{
    const char *next;
    for (; (next = strchr(format, '%')) != NULL; format = next + 1) {
        char         spec[48] = "%";
        size_t       n = 1;
        int          longs = 0;
        buffer_add(b, format, (size_t)(next - format));
        size_t at = b->bytes;
        for (next++; *next && strchr("-+ #0123456789.*", *next); next++)
            if (*next == '*') n += (size_t)snprintf(spec + n, sizeof spec - n, "%d", va_arg(list, int));
            else spec[n++] = *next;
        for (; *next == 'l' || *next == 'z'; next++) longs += *next == 'l', spec[n++] = *next;
        spec[n] = *next;
        if (*next == '%') buffer_add(b, "%", 1);
        else if (*next == 's') buffer_print(b, spec, va_arg(list, const char *));
        else if (strchr("aefgAEFG", *next)) buffer_print(b, spec, va_arg(list, double));
        else if (spec[n - 1] == 'z') buffer_print(b, spec, va_arg(list, size_t));
        else if (longs == 2) buffer_print(b, spec, va_arg(list, long long));
        else if (longs == 1) buffer_print(b, spec, va_arg(list, long));
        else buffer_print(b, spec, va_arg(list, int));
        if (*next == 's' || *next == 'c') b->bytes = at + tn_printable(b->data + at, b->bytes - at, false);
    }
    buffer_add(b, format, strlen(format));
}

/* The line of a terminal that is being written: its columns so far, its last word, and the column where that begins. */
typedef struct line { bool open, folds; int column, start; buffer word; } line;
static line lines[2];                                 /* of stdout and of stderr */

/* The last word goes to a line of its own: it was shown as it came, and reaches beyond the last column. */
static void move_word(FILE *to, line *l)
{
    char back[48];
    fwrite(back, 1, (size_t)snprintf(back, sizeof back, "\r\033[%dC\033[K\n", l->start), to);
    fwrite(l->word.data, 1, l->word.bytes, to);
    l->column -= l->start;
    l->start = 0;
}

/* A character more for a terminal. A word that is longer than a line is left to the terminal. */
static void put_byte(FILE *to, line *l, char c)
{
    enum { COLUMNS = 80 };
    const bool space = c == ' ', first = ((unsigned char)c & 0xC0) != 0x80;
    if (c == '\n' || c == '\r') l->column = l->start = 0;
    else if (space && l->column >= COLUMNS) c = '\n', l->column = l->start = 0;
    else {
        if (!space && first && l->column == COLUMNS && l->start) move_word(to, l);
        l->column += first;
        if (space) l->start = l->column;
    }
    if (!l->column || space) l->word.bytes = 0;
    else buffer_add(&l->word, &c, 1);
    fwrite(&c, 1, 1, to);
}

static int put(FILE *to, const char *text, size_t bytes)
{
    line  *l = &lines[to == stderr];
    if (bytes) l->open = text[bytes - 1] != '\n';
    if (!l->folds) return (int)fwrite(text, 1, bytes, to);
    for (size_t i = 0, n; i < bytes; i += n) {
        for (n = 1; text[i] == '\033' && i + n < bytes && !isalpha((unsigned char)text[i + n - 1]); n++) continue;
        if (text[i] == '\033') fwrite(text + i, 1, n, to);         /* it moves the cursor, and takes no column */
        else put_byte(to, l, text[i]);
    }
    return (int)bytes;
}

static void fold_lines(FILE *to)
{
    line *l = &lines[to == stderr];
    l->folds = isatty(fileno(to)) != 0;
    l->column = l->start = 0;
    l->word.bytes = 0;
}

void fold_output(void) { fold_lines(stdout); }

int print_list(FILE *to, const char *format, va_list list)
{
    buffer b = {0};
    add_printable(&b, format, list);
    int n = put(to, b.data, b.bytes);
    free(b.data);
    return n;
}

int print_to(FILE *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = print_list(to, format, list);
    va_end(list);
    return n;
}

void print_text(const char *text, size_t bytes)
{
    buffer b = {0};
    buffer_add(&b, text, bytes);
    put(stdout, b.data, tn_printable(b.data, bytes, true));
    free(b.data);
}

void print_raw(const char *text, size_t bytes) { put(stdout, text, bytes); }

void buffer_show(buffer *b, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    add_printable(b, format, list);
    va_end(list);
}

/* ---- messages --------------------------------------------------------------- */

static bool stage_shown;

void show_stage(const char *format, ...)
{
    va_list list;
    if (!isatty(STDERR_FILENO)) return;
    char *text = NULL;
    if (format) {
        va_start(list, format);
        buffer b = {0};
        add_printable(&b, format, list);
        text = b.data;
        va_end(list);
    }
    if (format || stage_shown) print_to(stderr, format ? "\r%.70s ...\033[K" : "\r\033[K", text);
    stage_shown = format != NULL;
    free(text);
}

static const char *command_name;

void set_command_name(const char *name) { command_name = name; }

static void print_message(const char *format, va_list list)
{
    fflush(stdout);
    show_stage(NULL);
    fold_lines(stderr);
    print_to(stderr, command_name ? "tn %s: " : "tn: ", command_name);
    print_list(stderr, format, list);
    print_to(stderr, "\n");
}

#define PRINT(format) do { va_list list_; va_start(list_, format); print_message(format, list_); va_end(list_); } while (0)

/* A message has a line of its own. Where there is no memory to print it, these words have to do. */
void fail(const char *format, ...)
{
    static const char no_memory[] = "out of memory\n";
    static bool       failing;
    if (failing) {
        put(stderr, no_memory, sizeof no_memory - 1);
        exit(EXIT_ERROR);
    }
    failing = true;
    if (lines[0].open) print_raw("\n", 1);
    PRINT(format);
    exit(EXIT_ERROR);
}

void usage_error(const char *format, ...) { PRINT(format); exit(EXIT_USAGE); }
void warn(const char *format, ...)        { PRINT(format); }

/* ---- stopping, which tn train does after a signal ---------------------------- */

static volatile sig_atomic_t stopped_by;

void ask_to_stop(int signal) { stopped_by = signal; }
int  stop_signal(void)       { return (int)stopped_by; }

void end_if_stopped(void)
{
    if (!stopped_by) return;
    warn("stopped before the first step, nothing was written");
    exit(128 + (int)stopped_by);
}

/* ---- suggestions -------------------------------------------------------------- */

/* The number of letters to insert, remove, replace or swap with a neighbour that make b of a (optimal string alignment). */
static int edit_distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    int       d[MOST + 1][MOST + 1];
    const int n = (int)strlen(a), m = (int)strlen(b);
    if (n > MOST || m > MOST) return n + m;
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int k = 0; k <= m; k++) d[0][k] = k;
    for (int i = 1; i <= n; i++)
        for (int k = 1; k <= m; k++) {
            int least = d[i - 1][k - 1] + (a[i - 1] != b[k - 1]);
            if (d[i - 1][k] + 1 < least) least = d[i - 1][k] + 1;
            if (d[i][k - 1] + 1 < least) least = d[i][k - 1] + 1;
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] && d[i - 2][k - 2] + 1 < least)
                least = d[i - 2][k - 2] + 1;
            d[i][k] = least;
        }
    return d[n][m];
}

/* One letter in five may be wrong, and one more. An abbreviation counts as one wrong letter. */
void consider_word(suggestion *best, const char *written, const char *word)
{
    const size_t n = strlen(written);
    const int    distance = n > 2 && !strncmp(written, word, n) ? 1 : edit_distance(written, word);
    if (distance > 1 + (int)n / 5 || (best->word && distance >= best->distance)) return;
    best->word = word;
    best->distance = distance;
}

/* ---- the library's messages ---------------------------------------------------- */

void check_ctx(const tn_ctx *ctx, const char *what)
{
    const char *why = tn_ctx_error(ctx);
    if (tn_ctx_status(ctx) == TN_OK) return;
    if (!strncmp(why, what, strlen(what))) fail("%s", why);         /* the library names the file, too */
    fail("%s: %s", what, why);
}

char *taken_error(tn_ctx *ctx)
{
    if (tn_ctx_status(ctx) == TN_OK) return NULL;
    char *why = copy_text(tn_ctx_error(ctx));
    tn_ctx_clear_error(ctx);
    return why;
}

double *numbers_in(const tn_tensor *t)
{
    double *v = (double *)allocate((size_t)tn_tensor_count(t), sizeof *v);
    if (tn_read(t, TN_F64, v, tn_tensor_count(t)) != TN_OK) check_ctx(t->ctx, "a result");
    return v;
}

void show_log(void *user, tn_log_level level, const char *message)
{
    (void)user;
    if (level == TN_LOG_WARN) warn("%s", message);      /* errors are returned to the caller, who reports them */
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- memory ------------------------------------------------------------------- */

/* Compared by division: the product may be larger than a size_t. */
static void out_of_memory(size_t count, size_t bytes)
{
    if (count > SIZE_MAX / bytes) fail("out of memory: %zu x %zu bytes were needed, more than there can be", count, bytes);
    fail("out of memory: %zu bytes (%.3g GB) were needed at once", count * bytes, (double)(count * bytes) / 1e9);
}

void *allocate(size_t count, size_t bytes)
{
    void *p = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!p) out_of_memory(count ? count : 1, bytes ? bytes : 1);
    return p;
}

void *resize(void *p, size_t count, size_t bytes)
{
    if (count <= SIZE_MAX / bytes && count) p = realloc(p, count * bytes);
    if (!p || !count || count > SIZE_MAX / bytes) out_of_memory(count, bytes);
    return p;
}

char *copy_text(const char *text)
{
    size_t n = strlen(text) + 1;
    return (char *)memcpy(allocate(n, 1), text, n);
}

bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

char *format_text(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *s = (char *)allocate((size_t)n + 1, 1);
    va_start(list, format);
    vsnprintf(s, (size_t)n + 1, format, list);
    va_end(list);
    return s;
}

/* A zero always follows the bytes; it is not counted. */
void buffer_add(buffer *b, const void *src, size_t bytes)
{
    if (b->capacity - b->bytes <= bytes) {
        b->capacity = b->capacity * 2 + bytes + 64;
        b->data = (char *)resize(b->data, b->capacity, 1);
    }
    if (bytes) memcpy(b->data + b->bytes, src, bytes);
    b->bytes += bytes;
    b->data[b->bytes] = 0;
}

void buffer_print_list(buffer *b, const char *format, va_list list)
{
    va_list again;
    char    text[512], *s = text;
    va_copy(again, list);
    int n = vsnprintf(text, sizeof text, format, list);
    if ((size_t)n >= sizeof text) {
        s = (char *)allocate((size_t)n + 1, 1);
        vsnprintf(s, (size_t)n + 1, format, again);
    }
    va_end(again);
    buffer_add(b, s, (size_t)n);
    if (s != text) free(s);
}

void buffer_print(buffer *b, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    buffer_print_list(b, format, list);
    va_end(list);
}

/* ---- UTF-8 --------------------------------------------------------------------- */

int utf8_length(const char *text, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if ((size_t)n > bytes) return 0;
    for (int i = 1; i < n; i++) if ((s[i] & 0xC0) != 0x80) return 0;
    if (n == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0))) return 0;   /* overlong; surrogate */
    if (n == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90))) return 0;   /* overlong; too large */
    return n;
}

int64_t utf8_errors(const char *text, size_t bytes, size_t *first)
{
    int64_t faults = 0;
    size_t  i = 0;
    *first = 0;
    for (int64_t k = 0; i < bytes; k++) {
        int n = utf8_length(text + i, bytes - i);
        if (k % 65536 == 0) end_if_stopped();
        if (n == 0 && faults++ == 0) *first = i;
        i += n ? (size_t)n : 1;
    }
    return faults;
}
