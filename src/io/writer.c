#include "core/inner.h"
#include "io/inner.h"

/* ---- bytes out ---------------------------------------------------------- >>io-writer
   The first failure is kept: further pieces are ignored, and the close returns it. */

TNI_FN void tni_writer_fail(tni_writer *w, tn_status status, const char *what, const char *reason)
{
    if (w->status != TN_OK) return;
    w->status = status;
    tni_fail(w->ctx, status, "%s: byte %llu: %s%s%s", w->name.s, (unsigned long long)w->at, what, *reason ? ": " : "",
             reason);
}

#ifndef TN_NO_STDIO
#define TNI_TEMPORARIES 99
#define TNI_TEMPORARIES_SEEN 8

static size_t tni_temporary_bytes(const tni_writer *w) { return strlen(w->sink.path) + sizeof ".tn99.tmp"; }

static void tni_temporary_name(const tni_writer *w, int i)
{
    tni_print(w->temporary, tni_temporary_bytes(w), "%s.tn%d.tmp", w->sink.path, i);
}

#ifdef TNI_POSIX
/* Whether the path is a name of the open file. If not, errno is set: ENOENT if it names no file or another one. */
static bool tni_path_names(const char *path, int fd)
{
    struct stat file, named;
    if (fstat(fd, &file) != 0 || stat(path, &named) != 0) return false;
    errno = ENOENT;
    return file.st_ino == named.st_ino && file.st_dev == named.st_dev;
}

/* What replaces a file has its permissions, and where possible its owner and group: a private file stays private. Another
   group gets no more than everybody. more: permissions that are added while it is being written. The save fails if there is a
   file of which they cannot be read. */
static void tni_take_mode(tni_writer *w, int fd, mode_t more)
{
    struct stat old;
    errno = 0;
    if (stat(w->sink.path, &old) != 0) {
        if (errno != ENOENT && errno != ELOOP)                  /* ELOOP: links in a circle, which are replaced */
            tni_writer_fail(w, TN_ERR_FILE, "the permissions of the file there could not be read", tni_reason("no reason given"));
        return;
    }
    if (!S_ISREG(old.st_mode)) return;
    mode_t mode = old.st_mode & 0777;
    if (fchown(fd, old.st_uid, old.st_gid) != 0 && fchown(fd, (uid_t)-1, old.st_gid) != 0)
        mode = (mode_t)(mode & (~070u | (mode & 07u) << 3));
    fchmod(fd, (mode_t)(mode | more));                          /* fails only where files have no permissions */
}
#endif

/* A temporary file is locked as long as it is being written, and a lock ends with its process, which may run on this
   machine, or on any machine whose file system shares locks. So a temporary file that can be locked has no living writer.
   TNI_LOST: another save has the lock, or had it and renamed or removed the file, so that the name is no longer this
   file's. */
typedef enum tni_hold { TNI_HELD, TNI_LOST, TNI_NO_LOCKS } tni_hold;

static tni_hold tni_temporary_hold(FILE *f, const char *path)
{
#ifdef TNI_FLOCK
    if (flock(fileno(f), TNI_FLOCK) != 0) return errno == EWOULDBLOCK ? TNI_LOST : TNI_NO_LOCKS;
    if (tni_path_names(path, fileno(f))) return TNI_HELD;
    return errno == ENOENT ? TNI_LOST : TNI_NO_LOCKS;
#else
    (void)f;
    (void)path;
    return TNI_NO_LOCKS;
#endif
}

/* Removes the file if its writer is dead. false: no such file. */
static bool tni_temporary_clear(const char *path)
{
#ifdef _WIN32
    errno = 0;                          /* a file that a process has open cannot be removed there */
    return remove(path) == 0 || errno != ENOENT;
#else
    errno = 0;
    FILE *f = fopen(path, "rb+");
    if (!f) return errno != ENOENT;
    if (tni_temporary_hold(f, path) == TNI_HELD) remove(path);
    fclose(f);
    return true;
#endif
}

/* Removes the files of killed saves. A few names are checked even if those before them are free: of several saves at the
   same time, the last may have been killed. */
static void tni_temporaries_clear(const tni_writer *w)
{
    for (int i = 1; i <= TNI_TEMPORARIES; i++) {
        tni_temporary_name(w, i);
        if (!tni_temporary_clear(w->temporary) && i >= TNI_TEMPORARIES_SEEN) return;
    }
}

/* Creates a file that does not exist yet. An existing one belongs to another save. hidden: on POSIX only this user may open
   it, from the start: who has it open could read all that follows. */
static FILE *tni_create_new(const char *path, bool hidden, bool *taken)
{
    FILE *f;
#if defined(_WIN32) || defined(TNI_POSIX)
    int   fd;
#endif
    errno = 0;
#ifdef _WIN32                           /* whose older C libraries lack mode "x" */
    (void)hidden;
    fd = _open(path, _O_RDWR | _O_CREAT | _O_EXCL | _O_BINARY, 0600);
    f = fd < 0 ? NULL : _fdopen(fd, "wb");
    if (fd >= 0 && !f) {
        _close(fd);
        remove(path);
    }
    *taken = fd < 0 && errno == EEXIST;
#elif defined(TNI_POSIX)
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, hidden ? 0600 : 0666);
    *taken = fd < 0 && errno == EEXIST;
    f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (fd >= 0 && !f) {
        close(fd);
        remove(path);
    }
#else
    (void)hidden;
    f = fopen(path, "wbx");
    *taken = !f && errno == EEXIST;
#endif
    return f;
}

/* Creates the file under the first free name. NULL with *taken set: no name is free. */
static FILE *tni_temporary_open(const tni_writer *w, bool *taken)
{
    bool hidden = false;
#ifdef TNI_POSIX
    struct stat old;
    hidden = stat(w->sink.path, &old) == 0;                     /* then tni_take_mode gives it the permissions of that file */
#endif
    for (int i = 1; i <= TNI_TEMPORARIES; i++) {
        tni_temporary_name(w, i);
        FILE *f = tni_create_new(w->temporary, hidden, taken);
        if (!f && *taken) continue;
        if (!f || tni_temporary_hold(f, w->temporary) != TNI_LOST) return f;
        fclose(f);                      /* another save locked it first, took it for a leftover, and removes it */
        *taken = true;
    }
    return NULL;
}

/* A device or a pipe is written directly: it must not be replaced by a temporary file. */
static bool tni_path_is_device(const char *path)
{
    return tni_is_device(path) || (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0);
}

static void tni_writer_open_path(tni_writer *w)
{
    const char *path = w->sink.path;
    bool        taken = false;
    if (!*path) { w->status = tni_path_empty(w->ctx, "sink_path"); return; }
    if (!tni_path_is_device(path)) {
        w->temporary = (char *)tni_alloc(w->ctx, tni_temporary_bytes(w), "save");
        if (!w->temporary) { w->status = TN_ERR_MEMORY; return; }
        tni_temporaries_clear(w);
        w->stream = tni_temporary_open(w, &taken);
#ifdef TNI_POSIX
        if (w->stream) tni_take_mode(w, fileno((FILE *)w->stream), 0600);
#endif
    } else {
        errno = 0;
        w->stream = fopen(path, "wb");
    }
    if (w->stream) return;
    if (w->temporary)
        tni_writer_fail(w, TN_ERR_FILE, "its temporary file could not be created",
                        taken ? "all 99 names from .tn1.tmp to .tn99.tmp are taken; "
                                "remove the files that no program is writing" : tni_reason("no reason given"));
    else tni_writer_fail(w, TN_ERR_FILE, "could not be opened", tni_reason("no reason given"));
}

static bool tni_replace(const char *from, const char *to, bool sync)
{
#ifdef _WIN32
    /* MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH. rename replaces nothing there, and removing the old file first
       could lose both. */
    return MoveFileExA(from, to, sync ? 1 | 8 : 1) != 0;
#else
    (void)sync;
    return rename(from, to) == 0;
#endif
}

/* Also true on a file system that has no sync. */
static bool tni_sync(FILE *f)
{
#if defined(_WIN32)
    return _commit(_fileno(f)) == 0;
#elif defined(TNI_POSIX)
    int failed;
#ifdef __APPLE__
    /* F_FULLFSYNC, which _POSIX_C_SOURCE hides: fsync leaves the data in the drive's cache. Not all file systems have it. */
    do failed = fcntl(fileno(f), 51) == -1; while (failed && errno == EINTR);
    if (!failed) return true;
#endif
    do failed = fsync(fileno(f)); while (failed && errno == EINTR);
    return !failed || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOTSUP || errno == EROFS;
#else
    (void)f;
    return true;
#endif
}

/* Syncs the folder of the path; without this a power cut may lose the new name. Overwrites w->temporary. Also true where
   folders cannot be opened or this one is not readable. */
static bool tni_sync_folder(const tni_writer *w)
{
#ifdef TNI_POSIX
    char *slash = strrchr(w->temporary, '/'), *folder = w->temporary;
    if (slash) slash[slash == folder] = 0;
    else strcpy(folder, ".");
    errno = 0;
    FILE *f = fopen(folder, "rb");
    if (!f) return errno == EACCES || errno == EPERM || errno == EISDIR;
    bool synced = tni_sync(f);
    return fclose(f) == 0 && synced;
#else
    (void)w;
    return true;
#endif
}

/* Renames the closed file to its path, or removes it if the save has failed. */
static void tni_temporary_finish(tni_writer *w, bool sync)
{
    if (w->status == TN_OK && !tni_replace(w->temporary, w->sink.path, sync))
        tni_writer_fail(w, TN_ERR_FILE, "could not be replaced", tni_reason("a folder, read-only, or open in a program"));
    if (w->status != TN_OK) remove(w->temporary);
}

/* The lock is kept until the file has its name. Where locks are not shared, another save may have taken the file for a
   leftover. The name then belongs to a different file, which is neither renamed nor removed. On Windows an open file
   cannot be removed. */
static void tni_temporary_close(tni_writer *w, FILE *f, bool sync)
{
#ifdef TNI_POSIX
    int kept = dup(fileno(f));
    if (kept < 0) {
        tni_writer_fail(w, TN_ERR_FILE, "could not be kept open for the rename", tni_reason("no reason given"));
        if (tni_path_names(w->temporary, fileno(f))) remove(w->temporary);
        fclose(f);
        return;
    }
    if (fclose(f) != 0) tni_writer_fail(w, TN_ERR_FILE, "could not be closed", tni_reason("no reason given"));
    tni_take_mode(w, kept, 0);
    if (tni_path_names(w->temporary, kept)) tni_temporary_finish(w, sync);
    else if (errno == ENOENT)
        tni_writer_fail(w, TN_ERR_FILE, "its temporary file was removed or replaced by another program", "");
    else tni_writer_fail(w, TN_ERR_FILE, "its temporary file could not be looked up", tni_reason("no reason given"));
    close(kept);
#else
    if (fclose(f) != 0) tni_writer_fail(w, TN_ERR_FILE, "could not be closed", tni_reason("no reason given"));
    tni_temporary_finish(w, sync);
#endif
}

/* A full disk may be reported by the sync or not before the close. */
static void tni_writer_close_path(tni_writer *w)
{
    FILE      *f = (FILE *)w->stream;
    const bool sync = f && w->temporary && !w->sink.no_sync;
    errno = 0;
    if (f && fflush(f) != 0) tni_writer_fail(w, TN_ERR_FILE, "could not be written", tni_reason("no reason given"));
    if (sync && w->status == TN_OK && !tni_sync(f))
        tni_writer_fail(w, TN_ERR_FILE, "could not be synced to the disk", tni_reason("no reason given"));
    if (f && w->temporary) tni_temporary_close(w, f, sync);
    else if (f && fclose(f) != 0) tni_writer_fail(w, TN_ERR_FILE, "could not be closed", tni_reason("no reason given"));
    if (sync && w->status == TN_OK && !tni_sync_folder(w)) {
        w->status = TN_ERR_FILE;
        tni_fail(w->ctx, TN_ERR_FILE, "%s: the file was saved, but its folder could not be synced to the disk: %s",
                 w->name.s, tni_reason("no reason given"));
    }
    tni_free(w->ctx, w->temporary, tni_temporary_bytes(w));
}

static bool tni_stream_put(tni_writer *w, const void *src, size_t bytes)
{
    errno = 0;
    return fwrite(src, 1, bytes, (FILE *)w->stream) == bytes;
}

tn_source tn_source_path(const char *path)
{
    tn_source s = tn_source_memory(NULL, 0);
    s.path = path ? path : "";
    return s;
}

tn_sink tn_sink_path(const char *path)
{
    tn_sink s = tn_sink_memory(NULL, 0, NULL);
    s.path = path ? path : "";
    return s;
}
#else
static void tni_writer_open_path(tni_writer *w)
{
    tni_writer_fail(w, TN_ERR_FILE, "a path was given, expected memory or store with TN_NO_STDIO", "");
}
static void tni_writer_close_path(tni_writer *w) { (void)w; }
static bool tni_stream_put(tni_writer *w, const void *src, size_t bytes) { (void)w; (void)src; return bytes == 0; }
#endif

/* Instead of a function that is NULL: tni_writer_open refuses it. */
static bool tni_no_store(void *user, const void *src, size_t bytes) { (void)user; (void)src; return bytes == 0; }

TNI_COLD_FN void tni_writer_open(tni_writer *w, tn_ctx *ctx, const tn_sink *sink)
{
    memset(w, 0, sizeof *w);
    w->ctx = ctx;
    w->sink = *sink;
    w->name = tni_file_name_of(sink->name, sink->path, sink->store != NULL);
    if (sink->store == tni_no_store) w->status = tni_fail(ctx, TN_ERR_ARG, "sink_calls: store is NULL, expected a function");
    else if (sink->path && !sink->store) tni_writer_open_path(w);
}

/* Memory takes the bytes that fit; the close reports the rest. */
static void tni_memory_put(const tni_writer *w, const void *src, size_t bytes)
{
    size_t left = w->at < w->sink.bytes ? w->sink.bytes - (size_t)w->at : 0;
    if (w->sink.data && left > 0) memcpy((char *)w->sink.data + w->at, src, bytes < left ? bytes : left);
}

TNI_FN void tni_put(tni_writer *w, const void *src, size_t bytes)
{
    if (w->status != TN_OK || bytes == 0) return;
#ifndef TN_NO_TRAINING
    if (w->sum) tni_checksum_add(w->sum, src, bytes);
#endif
    if (w->sink.store) {
        if (!w->sink.store(w->sink.user, src, bytes)) tni_writer_fail(w, TN_ERR_FILE, "could not be written", "");
    } else if (!w->sink.path) tni_memory_put(w, src, bytes);
    else if (!tni_stream_put(w, src, bytes))
        tni_writer_fail(w, TN_ERR_FILE, "could not be written", tni_reason("no reason given"));
    w->at += bytes;
}

TNI_COLD_FN tn_status tni_writer_close(tni_writer *w)
{
    if (w->sink.store) return w->status;
    if (w->sink.path) tni_writer_close_path(w);
    else {
        if (w->sink.used) *w->sink.used = (size_t)w->at;
        if (w->sink.data && w->at > w->sink.bytes) {
            char size[40];
            tni_print(size, sizeof size, "%zu bytes", w->sink.bytes);
            tni_writer_fail(w, TN_ERR_FILE, "the file is larger than the memory", size);
        }
    }
    return w->status;
}

tn_sink tn_sink_memory(void *data, size_t bytes, size_t *used)
{
    tn_sink s = TNI_ZERO;
    s.data = data;
    s.bytes = bytes;
    s.used = used;
    return s;
}

tn_sink tn_sink_calls(tn_store_fn store, void *user)
{
    tn_sink s = tn_sink_memory(NULL, 0, NULL);
    s.store = store ? store : tni_no_store;
    s.user = user;
    return s;
}

/* ---- files in a program's own format ------------------------------------ >>io-file-impl */

#ifndef TN_NO_STDIO
struct tn_writer {
    tni_owned  owned;                   /* first: the context destroys it by this */
    tni_writer writer;
    size_t     bytes;                   /* of this struct and the path, which follows it */
};

static void tni_writer_abandon(tni_owned *owned) { tn_writer_close((tn_writer *)(void *)owned, false); }

tn_writer *tn_writer_open(tn_ctx *ctx, const char *path)
{
    const size_t bytes = sizeof(tn_writer) + strlen(path ? path : "") + 1;
    tn_writer     *f = ctx ? (tn_writer *)tni_alloc(ctx, bytes, "writer_open") : NULL;
    if (!f) return NULL;
    f->bytes = bytes;
    tn_sink sink = tn_sink_path(strcpy((char *)(f + 1), path ? path : ""));
    tni_writer_open(&f->writer, ctx, &sink);
    tni_own(ctx, &f->owned, tni_writer_abandon);
    if (f->writer.status == TN_OK) return f;
    tn_writer_close(f, false);
    return NULL;
}

tn_status tn_writer_write(tn_writer *f, const void *src, size_t bytes)
{
    if (!f) return TN_ERR_ARG;
    tni_put(&f->writer, src, bytes);
    return f->writer.status;
}

tn_status tn_writer_close(tn_writer *f, bool keep)
{
    if (!f) return TN_ERR_ARG;
    tn_ctx   *ctx = f->writer.ctx;
    tn_status s = f->writer.status;
    if (!keep) f->writer.status = TN_ERR_FILE;                  /* without a message: it is removed, as after an error */
    if (tni_writer_close(&f->writer) != TN_OK && keep) s = f->writer.status;
    tni_disown(&f->owned);
    tni_free(ctx, f, f->bytes);
    return s;
}
#endif
