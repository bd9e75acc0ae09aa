/* files.c - reading, and files that appear whole or not at all */
#include "tn.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static volatile sig_atomic_t waiting;

bool waits_for_input(void) { return waiting != 0; }

static bool is_standard_input(const struct stat *file)
{
    struct stat in;
    return fstat(STDIN_FILENO, &in) == 0 && in.st_dev == file->st_dev && in.st_ino == file->st_ino;
}

FILE *open_input(const char *path, path_kind kind)
{
    struct stat s;
    const bool  pipe = kind == BY_USER && stat(path, &s) == 0 && S_ISFIFO(s.st_mode);
    waiting = pipe;
    end_if_stopped();                                         /* by a signal that came before `waiting` was set */
    int fd = open(path, O_RDONLY | (pipe ? 0 : O_NONBLOCK));  /* anything else does not wait for another program */
    if (fd < 0 || fstat(fd, &s) != 0) fail("%s: %s", path, strerror(errno));
    if (S_ISDIR(s.st_mode)) fail("%s: %s", path, strerror(EISDIR));
    if (!S_ISREG(s.st_mode) && !(kind == BY_USER && (S_ISFIFO(s.st_mode) || isatty(fd) || is_standard_input(&s))))
        fail("%s is a pipe or a device, expected a file", path);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    waiting = !S_ISREG(s.st_mode);
    FILE *f = fdopen(fd, "rb");
    if (!f) fail("%s: %s", path, strerror(errno));
    return f;
}

char *read_file(const char *path, path_kind kind, size_t *bytes)
{
    buffer b = {0};
    char   piece[1 << 13];
    FILE  *f = !strcmp(path, "-") ? stdin : open_input(path, kind);
    size_t n;
    if (f == stdin) waiting = true;
    end_if_stopped();
    buffer_add(&b, "", 0);
    while ((n = fread(piece, 1, sizeof piece, f)) > 0) {
        buffer_add(&b, piece, n);
        end_if_stopped();
    }
    if (ferror(f)) fail("%s: %s", path, strerror(errno));
    waiting = false;
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
        fail("cannot create the folder %s: %s", path, strerror(errno));
}

/* Where the library, which replaces a link, shall write; NULL: nowhere, and *why is a new string. A link that the user named
   is followed, but not those of /dev, which lead to what is no path. */
static char *target_of(const char *path, path_kind kind, char **why)
{
    struct stat s;
    const bool  link = kind == BY_USER && lstat(path, &s) == 0 && S_ISLNK(s.st_mode) && strncmp(path, "/dev/", 5);
    char       *real = link ? realpath(path, NULL) : NULL;
    *why = NULL;
    if (kind == BY_USER || stat(path, &s) != 0 || S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))
        return real ? real : copy_text(path);
    *why = format_text("cannot write %s: it is a pipe or a device, expected a file", path);
    return NULL;
}

FILE *open_log(const char *path)
{
    struct stat s;
    const int   fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0666);
    const bool  opened = fd >= 0 && fstat(fd, &s) == 0;
    if (opened ? !S_ISREG(s.st_mode) : lstat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode))
        fail("%s is a link, a pipe or a device, expected a file", path);
    FILE *f = opened ? fdopen(fd, "a+b") : NULL;
    if (!f) fail("cannot write %s: %s", path, strerror(errno));
    return f;
}

void check_not_input(const char *name, const char *out, const char *what, const char *input)
{
    struct stat a, b;
    if (out && input && stat(out, &a) == 0 && S_ISREG(a.st_mode) && stat(input, &b) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino)
        usage_error("--%s is %s, which is %s, expected another file", name, out, what);
}

void check_not_inputs(const char *name, const char *out, const char *what, const file_list *inputs)
{
    for (int64_t i = 0; i < inputs->count; i++) check_not_input(name, out, what, inputs->path[i]);
}

/* A context of their own: the failure of one file is not the end of the others, nor of a run. */
static tn_ctx *files;

/* The message for a file that a context could not write, a new string; it may be in place all the same. */
static char *write_failure(const tn_ctx *ctx)
{
    const char *why = tn_ctx_error(ctx);
    return format_text(strstr(why, ": the file was saved, but") ? "%s" : "cannot write %s", why);
}

/* Keeps the first failure of a file, and removes what was written of it. */
static bool went_well(atomic_file *f, bool good)
{
    if (!good && !f->why) {
        f->why = write_failure(files);
        tn_writer_close(f->file, false);
        f->file = NULL;
    }
    tn_ctx_clear_error(files);
    return good;
}

/* At the exit: a failure elsewhere is the end of the files that are open, too. */
static void remove_unfinished(void) { tn_ctx_destroy(files); }

bool atomic_open(atomic_file *f, const char *path, path_kind kind)
{
    tn_desc desc;
    char    why[TN_WHY] = "out of memory", *target = target_of(path, kind, &f->why);
    f->file = NULL;
    if (!target) return false;
    memset(&desc, 0, sizeof desc);
    desc.threads = 1;
    if (!files && (tn_ctx_create(&desc, &files, why) != TN_OK || atexit(remove_unfinished) != 0)) fail("%s", why);
    f->file = tn_writer_open(files, target);
    free(target);
    return went_well(f, f->file != NULL);
}

bool atomic_store(void *file, const void *src, size_t bytes)
{
    atomic_file *f = (atomic_file *)file;
    return went_well(f, tn_writer_write(f->file, src, bytes) == TN_OK);
}

bool atomic_commit(atomic_file *f)
{
    tn_writer *file = f->file;
    f->file = NULL;
    return went_well(f, tn_writer_close(file, true) == TN_OK);
}

char *write_file_with(const char *path, path_kind kind, writer_fn writer, void *user, tn_ctx *ctx)
{
    char *why, *target = target_of(path, kind, &why);
    if (!target) return why;
    if (writer(user, tn_sink_path(target)) != TN_OK) why = write_failure(ctx);
    if (tn_ctx_status(ctx) == TN_ERR_FILE) tn_ctx_clear_error(ctx);
    free(target);
    return why;
}

void write_file(const char *path, const void *src, size_t bytes)
{
    atomic_file f;
    if (!atomic_open(&f, path, BY_NAME) || !atomic_store(&f, src, bytes) || !atomic_commit(&f)) fail("%s", f.why);
}

/* Also true if the file system does not support it. */
bool sync_file(int fd)
{
    int failed;
#ifdef __APPLE__
    /* F_FULLFSYNC, which _XOPEN_SOURCE hides: fsync leaves the data in the drive's cache. Not all file systems support it.
       */
    do failed = fcntl(fd, 51) == -1; while (failed && errno == EINTR);
    if (!failed) return true;
#endif
    do failed = fsync(fd); while (failed && errno == EINTR);
    return !failed || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOTSUP || errno == EROFS;
}

void check_space(const char *name, const char *folder, double bytes)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) == 0 && bytes > (double)disk.f_bavail * (double)disk.f_frsize)
        fail("%s needs %.1f MB, and its disk has %.1f MB free", name, bytes / 1e6,
             (double)disk.f_bavail * (double)disk.f_frsize / 1e6);
}

/* NumPy's format 1.0: the magic, the version, the length of the rest, a Python dict, spaces up to a multiple of 64 bytes. */
bool store_npy_header(atomic_file *f, const char *type, int rank, const int64_t *shape)
{
    const unsigned short one = 1;
    char   head[320];
    size_t n = 10;
    memset(head, ' ', sizeof head);
    n += (size_t)snprintf(head + n, sizeof head - n, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                          *(const unsigned char *)&one ? '<' : '>', type);
    for (int k = 0; k < rank; k++)
        n += (size_t)snprintf(head + n, sizeof head - n, k + 1 < rank ? "%lld, " : rank == 1 ? "%lld," : "%lld",
                              (long long)shape[k]);
    n += (size_t)snprintf(head + n, sizeof head - n, "), }");
    head[n] = ' ';
    size_t whole = n < 128 ? 128 : (n + 64) / 64 * 64;
    head[whole - 1] = '\n';
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)((whole - 10) % 256);
    head[9] = (char)((whole - 10) / 256);
    return atomic_store(f, head, whole);
}
