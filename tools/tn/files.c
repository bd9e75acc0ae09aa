/* files.c - reading, and files that appear whole or not at all */
#include "tn.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

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
        fail("cannot create the folder %s: %s", path, strerror(errno));
}

/* A link is followed to its file. A device or a pipe is opened and written directly. */
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

/* The folder must be synced as well, or a power loss may remove the new name. A folder that is writable but not readable
   cannot be synced. */
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
    f->fd = -1;                                       /* closed, even if close failed */
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

char *write_failure(const atomic_file *f, const char *path, const char *why)
{
    if (f->in_place) return format_text("%s was written, but its folder could not be synced to the disk: %s", path, why);
    return format_text("cannot write %s: %s", path, why);
}

char *write_file_with(const char *path, writer_fn writer, void *user, const tn_ctx *ctx)
{
    atomic_file *f = (atomic_file *)allocate(1, sizeof *f);
    char        *why = NULL;
    bool         good = atomic_open(f, path) && writer(user, tn_sink_calls(atomic_store, f)) == TN_OK;
    if (good) good = atomic_commit(f);
    else atomic_abandon(f);
    if (!good) why = write_failure(f, path, f->error ? strerror(f->error) : tn_ctx_error(ctx));
    free(f);
    return why;
}

void write_file(const char *path, const void *src, size_t bytes)
{
    atomic_file *f = (atomic_file *)allocate(1, sizeof *f);
    bool         good = atomic_open(f, path) && atomic_store(f, src, bytes);
    if (good) good = atomic_commit(f);
    else atomic_abandon(f);
    if (!good) fail("%s", write_failure(f, path, strerror(errno)));
    free(f);
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
    size_t n = 10, whole;
    int    k;
    memset(head, ' ', sizeof head);
    n += (size_t)snprintf(head + n, sizeof head - n, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                          *(const unsigned char *)&one ? '<' : '>', type);
    for (k = 0; k < rank; k++)
        n += (size_t)snprintf(head + n, sizeof head - n, k + 1 < rank ? "%lld, " : rank == 1 ? "%lld," : "%lld",
                              (long long)shape[k]);
    n += (size_t)snprintf(head + n, sizeof head - n, "), }");
    head[n] = ' ';
    whole = n < 128 ? 128 : (n + 64) / 64 * 64;
    head[whole - 1] = '\n';
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)((whole - 10) % 256);
    head[9] = (char)((whole - 10) / 256);
    return atomic_store(f, head, whole);
}
