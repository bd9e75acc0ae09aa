/* hook.c: faults planted in the system calls of a program, on Linux

       gcc PROGRAM.c tests/hook.c @tests/hook.wrap ...       the linker sends the calls named in hook.wrap through this file
       TN_FAULT=write:3:ENOSPC ./program                     the third write fails
       TN_FAULT=rename:1:kill:.tmp ./program                 SIGKILL before the first rename of a path that contains ".tmp"
       TN_FAULT=write:/2:EINTR ./program                     every second write is interrupted

   A test can also plan its faults itself: hook.h.

   TN_FAULT is CALL:N:WHAT or CALL:N:WHAT:PART. Only calls made by the program's own objects count, not those inside of
   the C library: the write in which an fflush ends is not seen, the fflush is. With PART only calls on a path that contains
   it count; the path of a descriptor or stream is the one it was opened by. WHAT is

       EIO ENOSPC ENOLCK ...      the call fails with this errno, one of those in read_plan; close and fclose still close
       NULL                       malloc, calloc and realloc return NULL
       short                      write and fwrite take half of the bytes, and say so
       kill, after                SIGKILL before the call, or after it; not after malloc, calloc, realloc
       half                       write and fwrite take half of the bytes, which reach the file; then SIGKILL

   TN_FAULT_TOLD names a file that gets a line for each fault that happened: without it a test could pass because its fault
   never came. */
#define _XOPEN_SOURCE 700
#include "hook.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __cplusplus
#error "C only"
#endif

#define HOOK_CALLS(X) X(open) X(write) X(fsync) X(close) X(rename) X(unlink) X(remove) X(ftruncate) \
    X(fopen) X(fwrite) X(fflush) X(fclose) X(malloc) X(calloc) X(realloc) X(flock) X(dup) \
    X(stat) X(fstat)
#define HOOK_ENUM(name) HOOK_##name,
#define HOOK_NAME(name) #name,
enum { HOOK_CALLS(HOOK_ENUM) HOOK_COUNT };
static const char *const call_names[HOOK_COUNT] = {HOOK_CALLS(HOOK_NAME)};

enum { DESCRIPTORS = 256, NAME_ROOM = 256 };
static char     opened[DESCRIPTORS][NAME_ROOM];       /* the end of the path that each descriptor was opened by */
static unsigned matches;                              /* calls so far that the fault could have been planted in */
static unsigned happened;

typedef enum fault { NO_FAULT, FAIL, SHORT, KILL, AFTER, HALF } fault;
static struct {
    bool     read, every;
    int      call, error;
    unsigned n;
    fault    what;
    char     part[NAME_ROOM];
} plan;

/* ---- the calls themselves ---- */

int     __real_open(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *src, size_t bytes);
int     __real_fsync(int fd);
int     __real_close(int fd);
int     __real_rename(const char *from, const char *to);
int     __real_unlink(const char *path);
int     __real_remove(const char *path);
int     __real_ftruncate(int fd, off_t bytes);
FILE   *__real_fopen(const char *path, const char *mode);
size_t  __real_fwrite(const void *src, size_t bytes, size_t count, FILE *f);
int     __real_fflush(FILE *f);
int     __real_fclose(FILE *f);
void   *__real_malloc(size_t bytes);
void   *__real_calloc(size_t count, size_t bytes);
void   *__real_realloc(void *p, size_t bytes);
int     __real_flock(int fd, int operation);
int     __real_dup(int fd);
int     __real_stat(const char *path, struct stat *s);
int     __real_fstat(int fd, struct stat *s);

int     __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *src, size_t bytes);
int     __wrap_fsync(int fd);
int     __wrap_close(int fd);
int     __wrap_rename(const char *from, const char *to);
int     __wrap_unlink(const char *path);
int     __wrap_remove(const char *path);
int     __wrap_ftruncate(int fd, off_t bytes);
FILE   *__wrap_fopen(const char *path, const char *mode);
size_t  __wrap_fwrite(const void *src, size_t bytes, size_t count, FILE *f);
int     __wrap_fflush(FILE *f);
int     __wrap_fclose(FILE *f);
void   *__wrap_malloc(size_t bytes);
void   *__wrap_calloc(size_t count, size_t bytes);
void   *__wrap_realloc(void *p, size_t bytes);
int     __wrap_flock(int fd, int operation);
int     __wrap_dup(int fd);
int     __wrap_stat(const char *path, struct stat *s);
int     __wrap_fstat(int fd, struct stat *s);

/* ---- what is planned ---- */

static void bad_plan(const char *text)
{
    static const char words[] = "hook.c: TN_FAULT is CALL:N:WHAT or CALL:N:WHAT:PART, not ";
    if (__real_write(2, words, sizeof words - 1) < 0 || __real_write(2, text, strlen(text)) < 0) {}
    if (__real_write(2, "\n", 1) < 0) {}
    _exit(97);
}

static bool word_is(const char *from, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(from, word, n) == 0 && (from[n] == ':' || from[n] == 0);
}

static bool is_memory(int call) { return call == HOOK_malloc || call == HOOK_calloc || call == HOOK_realloc; }

static void read_plan(const char *text)
{
    static const struct { const char *word; fault what; int error; } kinds[] = {{"EIO", FAIL, EIO}, {"ENOSPC", FAIL, ENOSPC},
        {"EINTR", FAIL, EINTR}, {"EMFILE", FAIL, EMFILE},
        {"EDQUOT", FAIL, EDQUOT}, {"ENOLCK", FAIL, ENOLCK}, {"NULL", FAIL, ENOMEM}, {"short", SHORT, 0}, {"kill", KILL, 0},
        {"after", AFTER, 0}, {"half", HALF, 0}};
    const char *at = text;
    char       *end;
    memset(&plan, 0, sizeof plan);
    plan.read = true;
    plan.call = HOOK_COUNT;
    matches = happened = 0;
    if (!text || !*text) return;
    for (size_t i = 0; i < HOOK_COUNT; i++) if (word_is(at, call_names[i])) plan.call = (int)i;
    if (plan.call == HOOK_COUNT) bad_plan(text);
    at += strlen(call_names[plan.call]);
    if (*at++ != ':') bad_plan(text);
    plan.every = *at == '/';
    plan.n = (unsigned)strtoul(at + plan.every, &end, 10);
    if (plan.n == 0 || *end != ':') bad_plan(text);
    at = end + 1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (word_is(at, kinds[i].word)) {
            plan.what = kinds[i].what;
            plan.error = kinds[i].error;
        }
    if (plan.what == NO_FAULT || (plan.what == AFTER && is_memory(plan.call))) bad_plan(text);
    if ((plan.what == SHORT || plan.what == HALF) && plan.call != HOOK_write && plan.call != HOOK_fwrite) bad_plan(text);
    at += strcspn(at, ":");
    if (strlen(at) > sizeof plan.part) bad_plan(text);
    if (*at) strcpy(plan.part, at + 1);
}

void     hook_plan(const char *text) { read_plan(text); }
unsigned hook_happened(void) { return happened; }

/* Without stdio, whose calls come through here; and without malloc. */
static void tell(const char *file, const char *a, unsigned number, const char *b)
{
    char line[2 * NAME_ROOM + 32];
    int  fd = __real_open(file, O_WRONLY | O_CREAT | O_APPEND, 0666);
    int  n = snprintf(line, sizeof line, "%s %u %.*s\n", a, number, NAME_ROOM, b);
    if (fd < 0 || __real_write(fd, line, (size_t)n) != n) bad_plan("a file that cannot be written");
    __real_close(fd);
}

/* The fault that this call is to have. */
static fault fault_of(int call, const char *path)
{
    if (!plan.read) read_plan(getenv("TN_FAULT"));    /* by the first call of all, before there is a second thread */
    if (call != plan.call || (*plan.part && !(path && strstr(path, plan.part)))) return NO_FAULT;
    unsigned match = __atomic_add_fetch(&matches, 1, __ATOMIC_RELAXED);
    if (plan.every ? match % plan.n : match != plan.n) return NO_FAULT;
    happened++;
    const char *told = getenv("TN_FAULT_TOLD");
    if (told) tell(told, call_names[call], match, path ? path : "");
    if (plan.what == KILL) raise(SIGKILL);
    return plan.what;
}

static bool fails(fault f)
{
    if (f != FAIL) return false;
    errno = plan.error;
    return true;
}

static void end_after(fault f) { if (f == AFTER) raise(SIGKILL); }

static void remember(int fd, const char *path)
{
    size_t n = strlen(path), room = NAME_ROOM - 1;
    if (fd >= 0 && fd < DESCRIPTORS) strcpy(opened[fd], n > room ? path + n - room : path);
}

static void forget(int fd) { if (fd >= 0 && fd < DESCRIPTORS) opened[fd][0] = 0; }

static const char *name_of(int fd) { return fd >= 0 && fd < DESCRIPTORS ? opened[fd] : ""; }

/* ---- the wrappers ---- */

int __wrap_open(const char *path, int flags, ...)
{
    fault   f = fault_of(HOOK_open, path);
    va_list list;
    int     mode = 0;
    va_start(list, flags);
    if (flags & O_CREAT) mode = va_arg(list, int);
    va_end(list);
    if (fails(f)) return -1;
    int fd = __real_open(path, flags, mode);
    remember(fd, path);
    end_after(f);
    return fd;
}

ssize_t __wrap_write(int fd, const void *src, size_t bytes)
{
    fault f = fault_of(HOOK_write, name_of(fd));
    if (fails(f)) return -1;
    ssize_t n = __real_write(fd, src, (f == SHORT || f == HALF) && bytes > 1 ? bytes / 2 : bytes);
    if (f == HALF) raise(SIGKILL);
    end_after(f);
    return n;
}

int __wrap_fsync(int fd)
{
    fault f = fault_of(HOOK_fsync, name_of(fd));
    if (fails(f)) return -1;
    int result = __real_fsync(fd);
    end_after(f);
    return result;
}

int __wrap_close(int fd)
{
    fault f = fault_of(HOOK_close, name_of(fd));
    int   result = __real_close(fd);
    forget(fd);
    end_after(f);
    return fails(f) ? -1 : result;
}

int __wrap_rename(const char *from, const char *to)
{
    fault f = fault_of(HOOK_rename, from);
    if (fails(f)) return -1;
    int result = __real_rename(from, to);
    end_after(f);
    return result;
}

int __wrap_unlink(const char *path)
{
    fault f = fault_of(HOOK_unlink, path);
    if (fails(f)) return -1;
    int result = __real_unlink(path);
    end_after(f);
    return result;
}

int __wrap_remove(const char *path)
{
    fault f = fault_of(HOOK_remove, path);
    if (fails(f)) return -1;
    int result = __real_remove(path);
    end_after(f);
    return result;
}

int __wrap_ftruncate(int fd, off_t bytes)
{
    fault f = fault_of(HOOK_ftruncate, name_of(fd));
    if (fails(f)) return -1;
    int result = __real_ftruncate(fd, bytes);
    end_after(f);
    return result;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
    fault f = fault_of(HOOK_fopen, path);
    if (fails(f)) return NULL;
    FILE *stream = __real_fopen(path, mode);
    if (stream) remember(fileno(stream), path);
    end_after(f);
    return stream;
}

size_t __wrap_fwrite(const void *src, size_t bytes, size_t count, FILE *stream)
{
    fault  f = fault_of(HOOK_fwrite, name_of(fileno(stream)));
    size_t n;
    if (fails(f)) return 0;
    if (f == SHORT || f == HALF) {
        n = __real_fwrite(src, 1, bytes * count / 2, stream) / (bytes ? bytes : 1);
        if (f == HALF) {
            __real_fflush(stream);
            raise(SIGKILL);
        }
        errno = ENOSPC;
        return n;
    }
    n = __real_fwrite(src, bytes, count, stream);
    end_after(f);
    return n;
}

int __wrap_fflush(FILE *stream)
{
    fault f = fault_of(HOOK_fflush, stream ? name_of(fileno(stream)) : NULL);
    if (fails(f)) return EOF;
    int result = __real_fflush(stream);
    end_after(f);
    return result;
}

int __wrap_fclose(FILE *stream)
{
    int   fd = fileno(stream);
    fault f = fault_of(HOOK_fclose, name_of(fd));
    int   result = __real_fclose(stream);
    forget(fd);
    end_after(f);
    return fails(f) ? EOF : result;
}

void *__wrap_malloc(size_t bytes) { return fails(fault_of(HOOK_malloc, NULL)) ? NULL : __real_malloc(bytes); }

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails(fault_of(HOOK_calloc, NULL)) ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *p, size_t bytes) { return fails(fault_of(HOOK_realloc, NULL)) ? NULL : __real_realloc(p, bytes); }

int __wrap_flock(int fd, int operation)
{
    fault f = fault_of(HOOK_flock, name_of(fd));
    if (fails(f)) return -1;
    int result = __real_flock(fd, operation);
    end_after(f);
    return result;
}

/* The copy has the name of the original. */
int __wrap_dup(int fd)
{
    fault f = fault_of(HOOK_dup, name_of(fd));
    if (fails(f)) return -1;
    int copy = __real_dup(fd);
    remember(copy, name_of(fd));
    end_after(f);
    return copy;
}

int __wrap_stat(const char *path, struct stat *s)
{
    fault f = fault_of(HOOK_stat, path);
    if (fails(f)) return -1;
    int result = __real_stat(path, s);
    end_after(f);
    return result;
}

int __wrap_fstat(int fd, struct stat *s)
{
    fault f = fault_of(HOOK_fstat, name_of(fd));
    if (fails(f)) return -1;
    int result = __real_fstat(fd, s);
    end_after(f);
    return result;
}
