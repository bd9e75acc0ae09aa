/* tokens.c - tokens in memory: 32 bits each, or of token shards, whose files are mapped and not copied */
#include "tn.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef _WIN32
#include <io.h>
#include <windows.h>
#elif !defined(TN_TOOL_NO_MMAP)
#include <sys/mman.h>
#endif

enum { SHARD_HEADER = 1024 };

/* A file as the system shows it in memory; NULL: it cannot. The pages that are read come from the disk, and leave memory
   again when others need it. */
static void *map_file(int file, size_t bytes)
{
#ifdef _WIN32
    HANDLE view = CreateFileMapping((HANDLE)_get_osfhandle(file), NULL, PAGE_READONLY, 0, 0, NULL);
    void  *p = view ? MapViewOfFile(view, FILE_MAP_READ, 0, 0, bytes) : NULL;
    if (view) CloseHandle(view);
    return p;
#elif defined(TN_TOOL_NO_MMAP)
    (void)file;
    (void)bytes;
    return NULL;
#else
    void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? NULL : p;
#endif
}

static void unmap_file(void *p, size_t bytes)
{
#ifdef _WIN32
    (void)bytes;
    UnmapViewOfFile(p);
#elif defined(TN_TOOL_NO_MMAP)
    (void)p;
    (void)bytes;
#else
    munmap(p, bytes);
#endif
}

/* Where a file cannot be mapped, its bytes are read. */
static void *read_whole(int file, const char *path, size_t bytes)
{
    char  *p = (char *)allocate(bytes, 1);
    size_t at = 0;
    while (at < bytes) {
        const size_t  most = (size_t)1 << 30;
        const ssize_t n = read(file, p + at, bytes - at < most ? bytes - at : most);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("%s: byte %zu: %s", path, at, n < 0 ? strerror(errno) : "unexpected end of file");
        at += (size_t)n;
    }
    return p;
}

void add_shard(token_store *t, const char *path, int64_t count)
{
    struct stat s;
    if (count == 0) return;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &s) != 0) fail("%s: %s", path, strerror(errno));
    t->parts = (token_part *)resize(t->parts, (size_t)(t->part_count + 1), sizeof *t->parts);
    token_part *p = &t->parts[t->part_count++];
    p->first = t->count;
    p->bytes = (size_t)s.st_size;
    p->width = ((int64_t)s.st_size - SHARD_HEADER) / count == 2 ? 2 : 4;
    if ((int64_t)s.st_size != SHARD_HEADER + count * p->width) fail("%s: its length has changed while it was opened", path);
    p->memory = map_file(file, p->bytes);
    p->mapped = p->memory != NULL;
    if (!p->mapped) p->memory = read_whole(file, path, p->bytes);
    close(file);
    t->count += count;
}

/* The last part that begins at or before a token. */
static int64_t part_of(const token_store *t, int64_t at)
{
    int64_t low = 0, high = t->part_count;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (t->parts[middle].first <= at) low = middle;
        else high = middle;
    }
    return low;
}

void copy_tokens(const token_store *t, int64_t first, int64_t n, int32_t *out)
{
    int64_t end;
    if (t->ids) {
        if (n > 0) memcpy(out, t->ids + first, sizeof *out * (size_t)n);
        return;
    }
    for (int64_t k = part_of(t, first); n > 0; k++, n -= end) {
        const token_part    *p = &t->parts[k];
        const unsigned char *from = (const unsigned char *)p->memory + SHARD_HEADER;
        from += (size_t)(first - p->first) * (size_t)p->width;
        end = (k + 1 < t->part_count ? t->parts[k + 1].first : t->count) - first;
        if (end > n) end = n;
        for (int64_t i = 0; p->width == 2 && i < end; i++, from += 2) *out++ = (int32_t)(from[0] | from[1] << 8);
        for (int64_t i = 0; p->width == 4 && i < end; i++, from += 4)
            *out++ = (int32_t)(from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24);
        first += end;
    }
}

int32_t token_at(const token_store *t, int64_t i)
{
    int32_t id;
    copy_tokens(t, i, 1, &id);
    return id;
}

void free_tokens(token_store *t)
{
    for (int64_t k = 0; k < t->part_count; k++) {
        if (t->parts[k].mapped) unmap_file(t->parts[k].memory, t->parts[k].bytes);
        else free(t->parts[k].memory);
    }
    free(t->parts);
    free(t->ids);
    memset(t, 0, sizeof *t);
}
