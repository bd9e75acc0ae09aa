#include "core/inner.h"
#include "io/inner.h"

/* ======================================================================
   >>io-impl  safetensors, npy, idx
   Bytes come in through one call and go out through one call, whatever the source or sink is. Between
   these are a scanner for text headers and one loop that converts numbers of any kind and byte order
   to the context's. A number from a file is compared before it is added to anything.
   ====================================================================== */

TNI_FN tni_file_name tni_file_name_of(const char *name, const char *path, bool calls)
{
    tni_file_name out;
    const char   *s = name ? name : path ? path : calls ? "callback" : "memory";
    size_t        n = strlen(s), max = sizeof out.s - 4;
    tni_print(out.s, sizeof out.s, "%s%s", n > max ? "..." : "", n > max ? s + n - max : s);
    return out;
}

TNI_FN tni_quoted tni_quote(const char *s)
{
    tni_quoted out;
    size_t     n = 0;
    for (; s[n] != 0 && n < sizeof out.s - 6; n++) out.s[n + 1] = s[n];
    bool cut = s[n] != 0;
    if (cut) while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80) n--;             /* not inside a character */
    out.s[0] = '"';
    n = tn_printable(out.s + 1, n, false);
    tni_print(out.s + 1 + n, 5, "%s\"", cut ? "..." : "");
    return out;
}

TNI_FN const char *tni_reason(const char *otherwise)
{
#ifndef TN_NO_STDIO
    if (errno) return strerror(errno);
#endif
    return otherwise;
}

/* ---- bytes in ----------------------------------------------------------- >>io-reader */

/* Of a zip archive, by the name of its first entry: torch.save puts NAME/data.pkl first, numpy.savez an array. */
static const char *tni_zip_format(const char *head, size_t bytes)
{
    static const char other[] = "a zip archive, expected what it holds: unpack it first";
    const size_t      length = bytes > 30 ? (unsigned char)head[26] | (size_t)(unsigned char)head[27] << 8 : 0;
    char              name[64];
    if (length < 4 || length >= sizeof name || length > bytes - 30) return other;
    memcpy(name, head + 30, length);
    name[length] = 0;
    if (strcmp(name + length - 4, ".npy") == 0) return "a zip archive of numpy.savez: in Python, numpy.save writes one array";
    if (strcmp(name + length - 4, ".pkl") != 0 && !strstr(name, "/.")) return other;
    return "a zip archive of torch.save: in Python, safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW_FILE) "
           "converts it; tensors that share memory or are not contiguous need .clone().contiguous() first";
}

const char *tn_foreign_format(const void *first, size_t bytes)
{
    static const struct { const char *begin, *is; } known[] = {
        {"version https://git-lfs", "a Git LFS pointer, not the file itself: run git lfs pull"},
        {"<!doc", "an HTML page"}, {"<html", "an HTML page"}, {"<head", "an HTML page"}, {"<?xml", "an XML page"},
        {"entry not found", "the answer of a server that had no such file"}, {"access to model", "the answer of a server that "
         "refused the file: request access to the model"},
        {"gguf", "a GGUF file, expected the safetensors that it was made of"},
        {"\x89hdf", "an HDF5 file: in Python, h5py reads it and safetensors.numpy.save_file writes its arrays"},
        {"\x1F\x8B\x08", "compressed, expected the result of gunzip"}, {"\xFD" "7zxz", "compressed, expected the result of unxz"},
        {"\x28\xB5\x2F\xFD", "compressed, expected the result of unzstd"}, {"bzh", "compressed, expected the result of bunzip2"}
    };
    const char *head = (const char *)first;
    size_t      from = bytes >= 3 && memcmp(head, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0, n;
    if (bytes >= 9 && memcmp(head + 4, "\0\0\0\0{", 5) == 0) return NULL;        /* the beginning of safetensors */
    if (bytes >= 4 && memcmp(head, "PK\3\4", 4) == 0) return tni_zip_format(head, bytes);
    if (bytes >= 3 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5 && head[2] != 0)
        return "a Python pickle, which is never run: in PyTorch, safetensors.torch.save_file writes weights";
    while (from < bytes && head[from] && strchr(" \t\r\n", head[from])) from++;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        for (n = 0; known[k].begin[n] && n < bytes - from; n++) {
            const char c = head[from + n];
            if ((c >= 'A' && c <= 'Z' ? c + 32 : c) != known[k].begin[n]) break;
        }
        if (!known[k].begin[n]) return known[k].is;
    }
    return NULL;
}

/* What a file is instead of any that is read here, or NULL. */
static const char *tni_other_format(const tni_reader *r)
{
    char         head[128];
    const size_t n = r->bytes < sizeof head ? (size_t)r->bytes : sizeof head;
    return n > 0 && r->fetch(r->user, 0, head, n) ? tn_foreign_format(head, n) : NULL;
}

/* The line and the column of a byte of a text, both from 1. The text is read again, as strings were decoded in place. */
static bool tni_reader_place(const tni_reader *r, uint64_t at, uint64_t *line, uint64_t *column)
{
    char     chunk[256];
    uint64_t from = 0;
    size_t   n;
    *line = *column = 1;
    for (; from < at && from < r->bytes; from += n) {
        n = (size_t)tni_min((int64_t)sizeof chunk, (int64_t)((at < r->bytes ? at : r->bytes) - from));
        if (!r->fetch(r->user, from, chunk, n)) return false;
        for (size_t i = 0; i < n; i++) {
            if (chunk[i] == '\n') { ++*line; *column = 1; }
            else if (((unsigned char)chunk[i] & 0xC0) != 0x80) ++*column;
        }
    }
    return true;
}

/* "w.safetensors: byte 8: reason", of a text "config.json: byte 30: reason (line 2, column 5)" */
TNI_PRINTF(4, 5) TNI_FN tn_status tni_reader_fail(const tni_reader *r, tn_status status, uint64_t at, const char *fmt, ...)
{
    const char *other = status == TN_ERR_FORMAT ? tni_other_format(r) : NULL;
    char        reason[320], place[64];
    uint64_t    line, column;
    tni_text    t = {reason, sizeof reason, 0};
    va_list     args;
    if (other) return tni_fail(r->ctx, status, "%s: byte 0: the file is %s", r->name.s, other);
    va_start(args, fmt);
    tni_text_v(&t, fmt, args);
    va_end(args);
    place[0] = 0;
    if (r->is_text && status != TN_ERR_FILE && tni_reader_place(r, at, &line, &column))
        tni_print(place, sizeof place, " (line %llu, column %llu)", (unsigned long long)line, (unsigned long long)column);
    return tni_fail(r->ctx, status, "%s: byte %llu: %s%s", r->name.s, (unsigned long long)at, reason, place);
}

static bool tni_memory_fetch(void *user, uint64_t offset, void *dst, size_t bytes)
{
    memcpy(dst, (const char *)user + offset, bytes);
    return true;
}

#ifndef TN_NO_STDIO
/* A long is too short for files over 2 GiB on Windows and on 32-bit machines; of these, Windows has a wider function. */
static bool tni_seek(FILE *f, uint64_t offset)
{
#ifdef _WIN32
    return _fseeki64(f, (long long)offset, SEEK_SET) == 0;
#else
    return offset <= LONG_MAX && fseek(f, (long)offset, SEEK_SET) == 0;
#endif
}

static bool tni_stream_size(FILE *f, uint64_t *bytes)
{
#ifdef _WIN32
    long long end = _fseeki64(f, 0, SEEK_END) == 0 ? _ftelli64(f) : -1;
#else
    long end = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
#endif
    *bytes = end < 0 ? 0 : (uint64_t)end;
    return end >= 0;
}

static bool tni_stream_fetch(void *user, uint64_t offset, void *dst, size_t bytes)
{
    FILE *f = (FILE *)user;
    errno = 0;
    return tni_seek(f, offset) && fread(dst, 1, bytes, f) == bytes;
}

/* Whether the path names a pipe or a device: opening a pipe with a name would wait for a writer. Folders are left to fopen. */
TNI_FN bool tni_is_device(const char *path)
{
#ifdef TNI_POSIX
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
#else
    (void)path;
    return false;
#endif
}

/* tn_sink_path and tn_source_path make an empty path of NULL. */
TNI_FN tn_status tni_path_empty(tn_ctx *ctx, const char *op)
{
    return tni_fail(ctx, TN_ERR_FILE, "%s: the path is empty or NULL, expected the name of a file", op);
}

static tn_status tni_reader_open_path(tni_reader *r, const char *path)
{
    if (!*path) return tni_path_empty(r->ctx, "source_path");
    if (tni_is_device(path))
        return tni_fail(r->ctx, TN_ERR_FILE, "%s: it is a pipe or a device, expected a file", r->name.s);
    errno = 0;
    FILE *f = fopen(path, "rb");
    if (!f) return tni_fail(r->ctx, TN_ERR_FILE, "%s: could not be opened: %s", r->name.s, tni_reason("no reason given"));
    if (!tni_stream_size(f, &r->bytes)) {
        tni_fail(r->ctx, TN_ERR_FILE, "%s: its size could not be found: %s", r->name.s, tni_reason("no reason given"));
        fclose(f);
        return TN_ERR_FILE;
    }
    r->fetch = tni_stream_fetch;
    r->user = r->stream = f;
    return TN_OK;
}
#else
static tn_status tni_reader_open_path(tni_reader *r, const char *path)
{
    (void)path;
    return tni_fail(r->ctx, TN_ERR_FILE, "%s: a path was given, expected memory or fetch with TN_NO_STDIO", r->name.s);
}
#endif

/* Instead of a function that is NULL: tni_reader_open refuses it. */
static bool tni_no_fetch(void *user, uint64_t offset, void *dst, size_t bytes)
{
    (void)user; (void)offset; (void)dst;
    return bytes == 0;
}

TNI_FN tn_status tni_reader_open(tni_reader *r, tn_ctx *ctx, const tn_source *source)
{
    memset(r, 0, sizeof *r);
    r->ctx = ctx;
    r->name = tni_file_name_of(source->name, source->path, source->fetch != NULL);
    r->bytes = source->bytes;
    r->fetch = source->fetch ? source->fetch : tni_memory_fetch;
    r->user = source->fetch ? source->user : (void *)source->data;
    if (source->fetch == tni_no_fetch)
        return tni_fail(ctx, TN_ERR_ARG, "source_calls: fetch is NULL, expected a function");
    if (source->path && !source->fetch) return tni_reader_open_path(r, source->path);
    if (source->fetch || source->data || source->bytes == 0) return TN_OK;
    return tni_fail(ctx, TN_ERR_ARG, "%s: data is NULL, expected %llu bytes", r->name.s, (unsigned long long)source->bytes);
}

TNI_FN void tni_reader_close(tni_reader *r)
{
#ifndef TN_NO_STDIO
    if (r->stream) fclose((FILE *)r->stream);
#endif
    r->stream = NULL;
}

TNI_FN tn_status tni_reader_get(const tni_reader *r, uint64_t offset, void *dst, size_t bytes)
{
    if (offset > r->bytes || bytes > r->bytes - offset)
        return tni_reader_fail(r, TN_ERR_FORMAT, offset, "unexpected end of file: expected %zu bytes here, there are %llu",
                               bytes, (unsigned long long)r->bytes);
    if (bytes == 0 || r->fetch(r->user, offset, dst, bytes)) return TN_OK;
    return tni_reader_fail(r, TN_ERR_FILE, offset, "%zu bytes could not be read: %s", bytes,
                           r->stream ? tni_reason("it has become shorter") : "fetch returned false");
}

tn_source tn_source_memory(const void *data, size_t bytes)
{
    tn_source s = TNI_ZERO;
    s.data = data;
    s.bytes = bytes;
    return s;
}

tn_source tn_source_calls(tn_fetch_fn fetch, void *user, uint64_t bytes)
{
    tn_source s = TNI_ZERO;
    s.fetch = fetch ? fetch : tni_no_fetch;
    s.user = user;
    s.bytes = bytes;
    return s;
}

/* Checks that a header of n bytes at `at`, which is inside the file, is neither cut off nor larger than `most`. */
TNI_FN tn_status tni_check_header(const tni_reader *r, uint64_t at, uint64_t n, uint64_t most)
{
    unsigned long long wants = n, has = r->bytes, may = most;
    if (n > r->bytes - at)
        return tni_reader_fail(r, TN_ERR_FORMAT, at, "the header has %llu bytes, but the file only %llu", wants, has);
    if (n > most)
        return tni_reader_fail(r, TN_ERR_FORMAT, at, "the header has %llu bytes, expected at most %llu", wants, may);
    return TN_OK;
}

#ifndef TN_NO_TRAINING
/* ---- checksum ----------------------------------------------------------- >>io-checksum
   XXH64 with seed 0 of bytes that come in pieces: four lanes take 8 bytes each of a block of 32, and a block costs four
   independent multiplications. Collet, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md */

#define TNI_CHECKSUM_P1 UINT64_C(0x9E3779B185EBCA87)
#define TNI_CHECKSUM_P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define TNI_CHECKSUM_P3 UINT64_C(0x165667B19E3779F9)
#define TNI_CHECKSUM_P4 UINT64_C(0x85EBCA77C2B2AE63)
#define TNI_CHECKSUM_P5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t tni_rotated(uint64_t v, int bits) { return v << bits | v >> (64 - bits); }

static uint64_t tni_checksum_word(const uint8_t *p)      /* little-endian, in one load where the compiler sees it */
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 | (uint64_t)p[4] << 32
         | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

static uint64_t tni_checksum_round(uint64_t lane, uint64_t word)
{
    return tni_rotated(lane + word * TNI_CHECKSUM_P2, 31) * TNI_CHECKSUM_P1;
}

TNI_FN void tni_checksum_open(tni_checksum *s)
{
    memset(s, 0, sizeof *s);
    s->lane[0] = TNI_CHECKSUM_P1 + TNI_CHECKSUM_P2;
    s->lane[1] = TNI_CHECKSUM_P2;
    s->lane[3] = 0 - TNI_CHECKSUM_P1;
}

static void tni_checksum_blocks(tni_checksum *s, const uint8_t *p, size_t blocks)
{
    uint64_t a = s->lane[0], b = s->lane[1], c = s->lane[2], d = s->lane[3];
    for (; blocks > 0; blocks--, p += 32) {
        a = tni_checksum_round(a, tni_checksum_word(p));
        b = tni_checksum_round(b, tni_checksum_word(p + 8));
        c = tni_checksum_round(c, tni_checksum_word(p + 16));
        d = tni_checksum_round(d, tni_checksum_word(p + 24));
    }
    s->lane[0] = a; s->lane[1] = b; s->lane[2] = c; s->lane[3] = d;
}

TNI_FN void tni_checksum_add(tni_checksum *s, const void *src, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)src;
    const size_t   held = (size_t)(s->bytes % 32);
    size_t         n = held == 0 ? 0 : bytes < 32 - held ? bytes : 32 - held;
    memcpy(s->rest + held, p, n);
    if (n > 0 && held + n == 32) tni_checksum_blocks(s, s->rest, 1);
    s->bytes += bytes;
    p += n;
    bytes -= n;
    tni_checksum_blocks(s, p, bytes / 32);
    if (bytes > 0) memcpy(s->rest, p + bytes / 32 * 32, bytes % 32);
}

TNI_FN uint64_t tni_checksum_value(const tni_checksum *s)
{
    const uint8_t *p = s->rest, *end = s->rest + s->bytes % 32;
    uint64_t       h = TNI_CHECKSUM_P5;
    int            k;
    if (s->bytes >= 32) {
        static const int turn[4] = {1, 7, 12, 18};
        for (k = 0, h = 0; k < 4; k++) h += tni_rotated(s->lane[k], turn[k]);
        for (k = 0; k < 4; k++) h = (h ^ tni_checksum_round(0, s->lane[k])) * TNI_CHECKSUM_P1 + TNI_CHECKSUM_P4;
    }
    h += s->bytes;
    for (; end - p >= 8; p += 8)
        h = tni_rotated(h ^ tni_checksum_round(0, tni_checksum_word(p)), 27) * TNI_CHECKSUM_P1 + TNI_CHECKSUM_P4;
    if (end - p >= 4) {
        const uint64_t half = (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
        h = tni_rotated(h ^ half * TNI_CHECKSUM_P1, 23) * TNI_CHECKSUM_P2 + TNI_CHECKSUM_P3;
        p += 4;
    }
    for (; p < end; p++) h = tni_rotated(h ^ *p * TNI_CHECKSUM_P5, 11) * TNI_CHECKSUM_P1;
    h = (h ^ h >> 33) * TNI_CHECKSUM_P2;
    h = (h ^ h >> 29) * TNI_CHECKSUM_P3;
    return h ^ h >> 32;
}
#endif /* TN_NO_TRAINING */
