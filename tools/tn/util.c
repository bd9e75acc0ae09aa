/* util.c - messages, memory, files, JSON */
#include "tn.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- messages --------------------------------------------------------------- */

static void speak(const char *format, va_list list)
{
    fflush(stdout);
    fputs("tn: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
}

#define SPEAK(format) do { va_list list_; va_start(list_, format); speak(format, list_); va_end(list_); } while (0)

void fail(const char *format, ...)   { SPEAK(format); exit(EXIT_WORLD); }
void misuse(const char *format, ...) { SPEAK(format); exit(EXIT_USE); }
void warn(const char *format, ...)   { SPEAK(format); }

void check(const tn_ctx *ctx, const char *what)
{
    if (tn_ctx_status(ctx) != TN_OK) fail("%s: %s", what, tn_ctx_error(ctx));
}

void show_log(void *user, tn_log_level level, const char *message)
{
    (void)user;
    if (level == TN_LOG_WARN) warn("%s", message);      /* errors come back to the caller, who tells them */
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- memory ------------------------------------------------------------------- */

void *need(void *p)
{
    if (!p) fail("out of memory");
    return p;
}

void *room(size_t count, size_t bytes)
{
    return need(calloc(count ? count : 1, bytes ? bytes : 1));
}

char *copy_text(const char *text)
{
    size_t n = strlen(text) + 1;
    return (char *)memcpy(room(n, 1), text, n);
}

char *text_of(const char *format, ...)
{
    va_list list;
    int     n;
    char   *s;
    va_start(list, format);
    n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    s = (char *)room((size_t)n + 1, 1);
    va_start(list, format);
    vsnprintf(s, (size_t)n + 1, format, list);
    va_end(list);
    return s;
}

/* There is always a zero after the bytes, which is not counted. */
void buffer_add(buffer *b, const void *src, size_t bytes)
{
    if (b->room - b->bytes <= bytes) {
        b->room = b->room * 2 + bytes + 64;
        b->data = (char *)need(realloc(b->data, b->room));
    }
    if (bytes) memcpy(b->data + b->bytes, src, bytes);
    b->bytes += bytes;
    b->data[b->bytes] = 0;
}

void buffer_print(buffer *b, const char *format, ...)
{
    va_list list;
    int     n;
    char    text[512], *s = text;
    va_start(list, format);
    n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if ((size_t)n >= sizeof text) {
        s = (char *)room((size_t)n + 1, 1);
        va_start(list, format);
        vsnprintf(s, (size_t)n + 1, format, list);
        va_end(list);
    }
    buffer_add(b, s, (size_t)n);
    if (s != text) free(s);
}

/* ---- files ---------------------------------------------------------------------- */

char *read_file(const char *path, size_t *bytes)
{
    buffer b = {0};
    char   piece[1 << 16];
    FILE  *f = !strcmp(path, "-") ? stdin : fopen(path, "rb");
    size_t n;
    if (!f) fail("%s: %s", path, strerror(errno));
    buffer_add(&b, "", 0);
    while ((n = fread(piece, 1, sizeof piece, f)) > 0) buffer_add(&b, piece, n);
    if (ferror(f)) fail("%s: %s", path, strerror(errno));
    if (f != stdin) fclose(f);
    *bytes = b.bytes;
    return b.data;
}

bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && !(errno == EEXIST && is_folder(path)))
        fail("cannot make the folder %s: %s", path, strerror(errno));
}

/* A link is followed to its file. What is there and is no file, a device or a pipe, is written as it is. */
bool atomic_open(atomic_file *f, const char *path)
{
    struct stat there;
    const bool  exists = stat(path, &there) == 0, in_place = exists && !S_ISREG(there.st_mode);
    char       *real = exists && !in_place ? realpath(path, NULL) : NULL;
    f->error = 0;
    f->used = 0;
    f->fd = -1;
    f->in_place = false;
    f->tmp[0] = 0;
    if (real) path = real;
    if (strlen(path) >= PATH_ROOM) errno = ENAMETOOLONG;
    else {
        snprintf(f->path, sizeof f->path, "%s", path);
        if (!in_place) snprintf(f->tmp, sizeof f->tmp, "%s.tmp", path);
        f->fd = in_place ? open(path, O_WRONLY) : open(f->tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    }
    if (f->fd < 0) f->error = errno;
    free(real);
    return f->fd >= 0;
}

static bool flush_bytes(atomic_file *f, const char *src, size_t bytes)
{
    while (bytes > 0 && !f->error) {
        ssize_t n = write(f->fd, src, bytes);
        if (n >= 0) {
            src += n;
            bytes -= (size_t)n;
        } else if (errno != EINTR) f->error = errno;
    }
    return !f->error;
}

bool atomic_store(void *file, const void *src, size_t bytes)
{
    atomic_file *f = (atomic_file *)file;
    if (f->error) return false;
    if (bytes > sizeof f->bytes - f->used) {
        if (!flush_bytes(f, f->bytes, f->used)) return false;
        f->used = 0;
        if (bytes >= sizeof f->bytes) return flush_bytes(f, (const char *)src, bytes);
    }
    memcpy(f->bytes + f->used, src, bytes);
    f->used += bytes;
    return true;
}

/* Also true where a file system knows no sync. */
bool sync_file(int fd)
{
    int failed;
#ifdef __APPLE__
    /* F_FULLFSYNC, which _XOPEN_SOURCE hides: fsync leaves the data in the drive's cache. Not all file systems know it. */
    do failed = fcntl(fd, 51) == -1; while (failed && errno == EINTR);
    if (!failed) return true;
#endif
    do failed = fsync(fd); while (failed && errno == EINTR);
    return !failed || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOTSUP || errno == EROFS;
}

/* A folder must be synced, too, or a power cut may lose the new name. A folder that is writable but not readable cannot be
   synced. */
static bool sync_folder_of(const char *path)
{
    char  folder[PATH_ROOM];
    char *slash;
    int   fd;
    bool  synced;
    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (!slash) snprintf(folder, sizeof folder, ".");
    else if (slash == folder) folder[1] = 0;
    else *slash = 0;
    fd = open(folder, O_RDONLY);
    if (fd < 0) return errno == EACCES || errno == EPERM || errno == EISDIR;
    synced = sync_file(fd);
    return close(fd) == 0 && synced;
}

void atomic_abandon(atomic_file *f)
{
    int error = f->error ? f->error : errno;
    if (f->fd >= 0) {
        close(f->fd);
        if (f->tmp[0]) unlink(f->tmp);
    }
    f->fd = -1;
    errno = error;
}

bool atomic_commit(atomic_file *f)
{
    if (!f->error) flush_bytes(f, f->bytes, f->used);
    if (!f->error && !sync_file(f->fd)) f->error = errno;
    if (f->fd >= 0 && close(f->fd) != 0 && !f->error) f->error = errno;
    f->fd = -1;                                       /* gone, even if close failed */
    if (!f->error && f->tmp[0]) {
        f->in_place = rename(f->tmp, f->path) == 0;
        if (!f->in_place || !sync_folder_of(f->path)) f->error = errno;
    }
    if (f->error) {
        if (f->tmp[0] && !f->in_place) unlink(f->tmp);
        errno = f->error;
        return false;
    }
    return true;
}

char *why_not_written(const atomic_file *f, const char *path, const char *why)
{
    if (f->in_place) return text_of("%s was written, but its folder could not be synced to the disk: %s", path, why);
    return text_of("cannot write %s: %s", path, why);
}

char *write_by(const char *path, writer_fn writer, void *user, const tn_ctx *ctx)
{
    atomic_file *f = (atomic_file *)room(1, sizeof *f);
    char        *why = NULL;
    bool         good = atomic_open(f, path) && writer(user, tn_to_calls(atomic_store, f)) == TN_OK;
    if (good) good = atomic_commit(f);
    else atomic_abandon(f);
    if (!good) why = why_not_written(f, path, f->error ? strerror(f->error) : tn_ctx_error(ctx));
    free(f);
    return why;
}

void write_whole(const char *path, const void *src, size_t bytes)
{
    atomic_file *f = (atomic_file *)room(1, sizeof *f);
    bool         good = atomic_open(f, path) && atomic_store(f, src, bytes);
    if (good) good = atomic_commit(f);
    else atomic_abandon(f);
    if (!good) fail("%s", why_not_written(f, path, strerror(errno)));
    free(f);
}

/* ---- JSON ----------------------------------------------------------------------------- */

void json_text(buffer *b, const char *text, size_t bytes)
{
    size_t i = 0;
    buffer_add(b, "\"", 1);
    while (i < bytes) {
        unsigned char c = (unsigned char)text[i];
        int           n = utf8_length(text + i, bytes - i);
        if (n == 0) buffer_add(b, "\xEF\xBF\xBD", 3);
        else if (c == '"' || c == '\\') buffer_print(b, "\\%c", c);
        else if (c == '\n') buffer_add(b, "\\n", 2);
        else if (c < 0x20 || c == 0x7F) buffer_print(b, "\\u%04x", c);
        else buffer_add(b, text + i, (size_t)n);
        i += n ? (size_t)n : 1;
    }
    buffer_add(b, "\"", 1);
}

typedef struct scan { const char *at, *end; } scan;

static void skip_space(scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')) s->at++;
}

static bool take(scan *s, char c)
{
    skip_space(s);
    if (s->at >= s->end || *s->at != c) return false;
    s->at++;
    return true;
}

/* Past one string whose quote is next. */
static bool skip_string(scan *s)
{
    if (!take(s, '"')) return false;
    while (s->at < s->end && *s->at != '"') {
        if ((unsigned char)*s->at < 0x20) return false;
        s->at += *s->at == '\\' && s->end - s->at > 1 ? 2 : 1;
    }
    return take(s, '"');
}

/* Past one value: nesting is counted, not checked; what lies inside is nobody's business here. */
static bool skip_value(scan *s)
{
    int64_t depth = 0;
    do {
        skip_space(s);
        if (s->at >= s->end) return false;
        if (*s->at == '"') {
            if (!skip_string(s)) return false;
        } else if (*s->at == '{' || *s->at == '[') {
            depth++;
            s->at++;
        } else if (*s->at == '}' || *s->at == ']') {
            if (depth == 0) return false;
            depth--;
            s->at++;
        } else if (*s->at == ',' || *s->at == ':') {
            if (depth == 0) return false;
            s->at++;
        } else while (s->at < s->end && !strchr(" \t\r\n,:]}[{\"", *s->at)) s->at++;
    } while (depth > 0);
    return true;
}

const char *json_find(const char *line, const char *end, const char *key, const char **to, const char **bad)
{
    scan        s = {line, end};
    const char *found = NULL;
    buffer      name = {0};
    *bad = NULL;
    *to = NULL;
    if (!take(&s, '{')) *bad = "it does not begin with {";
    if (!*bad && !take(&s, '}')) {
        do {
            const char *from;
            skip_space(&s);
            from = s.at;
            name.bytes = 0;
            if (!skip_string(&s) || !json_string(from, s.at, &name) || !take(&s, ':'))
                { *bad = "a key in quotes and a colon are missing"; break; }
            skip_space(&s);
            from = s.at;
            if (!skip_value(&s)) { *bad = "a value is cut off"; break; }
            if (!strcmp(name.data, key)) {            /* of two the last counts, as elsewhere */
                found = from;
                *to = s.at;
            }
        } while (take(&s, ','));
        if (!*bad && !take(&s, '}')) *bad = "a comma or } is missing";
    }
    skip_space(&s);
    if (!*bad && s.at < s.end) *bad = "something follows the }";
    free(name.data);
    return *bad ? NULL : found;
}

static int hex4(const char *p)
{
    int v = 0, i;
    for (i = 0; i < 4; i++) {
        char c = p[i];
        int  d = c >= '0' && c <= '9' ? c - '0' : -1;
        if (c >= 'a' && c <= 'f') d = c - 'a' + 10;
        if (c >= 'A' && c <= 'F') d = c - 'A' + 10;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static void add_character(buffer *b, int c)
{
    char u[4];
    if (c < 0x80) {
        u[0] = (char)c;
        buffer_add(b, u, 1);
    } else if (c < 0x800) {
        u[0] = (char)(0xC0 | c >> 6);
        u[1] = (char)(0x80 | (c & 63));
        buffer_add(b, u, 2);
    } else if (c < 0x10000) {
        u[0] = (char)(0xE0 | c >> 12);
        u[1] = (char)(0x80 | (c >> 6 & 63));
        u[2] = (char)(0x80 | (c & 63));
        buffer_add(b, u, 3);
    } else {
        u[0] = (char)(0xF0 | c >> 18);
        u[1] = (char)(0x80 | (c >> 12 & 63));
        u[2] = (char)(0x80 | (c >> 6 & 63));
        u[3] = (char)(0x80 | (c & 63));
        buffer_add(b, u, 4);
    }
}

bool json_string(const char *from, const char *to, buffer *out)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    buffer_add(out, "", 0);
    if (to - from < 2 || *from != '"' || to[-1] != '"') return false;
    for (from++, to--; from < to; from++) {
        const char *letter;
        int         c, low;
        if (*from != '\\') {
            buffer_add(out, from, 1);
            continue;
        }
        if (++from >= to) return false;
        letter = strchr(letters, *from);
        if (*from && letter) {
            buffer_add(out, values + (letter - letters), 1);
            continue;
        }
        if (*from != 'u' || to - from < 5 || (c = hex4(from + 1)) < 0) return false;
        from += 4;
        if (c >= 0xD800 && c < 0xDC00 && to - from > 6 && from[1] == '\\' && from[2] == 'u' &&
            (low = hex4(from + 3)) >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
            from += 6;
        } else if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;              /* half a pair */
        add_character(out, c);
    }
    return true;
}

double json_number(const char *line, const char *end, const char *key)
{
    const char *to, *bad, *from = json_find(line, end, key, &to, &bad);
    char        text[64];
    if (!from || to - from >= (ptrdiff_t)sizeof text || !strchr("-0123456789", *from)) return NAN;
    memcpy(text, from, (size_t)(to - from));
    text[to - from] = 0;
    return strtod(text, NULL);
}
