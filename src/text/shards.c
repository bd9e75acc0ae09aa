#include "core/inner.h"
#include "io/inner.h"
#include "text/inner.h"

#ifndef TN_NO_TEXT
/* ---- token shards ------------------------------------------------------- >>text-shards-impl */

enum { TNI_SHARD_HEADER = 1024, TNI_SHARD_CHUNK = 4096 };
static const struct { uint32_t magic, version; unsigned width; } tni_shard_kind[2] = {{20240520, 1, 2}, {20240801, 7, 4}};

static void tni_shard_destroy(tni_owned *owned)
{
    tn_shard *s = (tn_shard *)(void *)owned;
    tni_reader_close(&s->file);
    tni_object_free(owned, sizeof *s);
}

void    tn_shard_close(tn_shard *s)       { if (s) tni_shard_destroy(&s->owned); }
int64_t tn_shard_count(const tn_shard *s) { return s ? s->count : 0; }

static tn_status tni_shard_header(tn_shard *s)
{
    const tni_reader *f = &s->file;
    uint8_t   head[12];
    int       k;
    tn_status status;
    if (f->bytes < TNI_SHARD_HEADER)
        return tni_reader_fail(f, TN_ERR_FORMAT, f->bytes, "unexpected end of file: the header of a shard has %d bytes",
                               TNI_SHARD_HEADER);
    if ((status = tni_reader_get(f, 0, head, sizeof head)) != TN_OK) return status;
    uint32_t magic = (uint32_t)tni_load_bits(head, 4, false);
    uint32_t version = (uint32_t)tni_load_bits(head + 4, 4, false);
    uint64_t count = tni_load_bits(head + 8, 4, false);
    for (k = 0; k < 2 && tni_shard_kind[k].magic != magic; k++) {}
    if (k == 2)
        return tni_reader_fail(f, TN_ERR_FORMAT, 0, "magic is %zu, expected %d or %d of a token shard", (size_t)magic,
                               (int)tni_shard_kind[0].magic, (int)tni_shard_kind[1].magic);
    if (tni_shard_kind[k].version != version)
        return tni_reader_fail(f, TN_ERR_FORMAT, 4, "version is %zu, expected %d for magic %d", (size_t)version,
                               (int)tni_shard_kind[k].version, (int)magic);
    if (count > INT32_MAX) return tni_reader_fail(f, TN_ERR_FORMAT, 8, "the count is negative, expected 0 or more");
    s->width = tni_shard_kind[k].width;
    uint64_t wants = TNI_SHARD_HEADER + count * s->width;
    if (f->bytes != wants)
        return tni_reader_fail(f, TN_ERR_FORMAT, 8, "the file has %llu bytes, expected %llu for %zu tokens of %d bytes",
                               (unsigned long long)f->bytes, (unsigned long long)wants, (size_t)count, (int)s->width);
    s->count = (int64_t)count;
    return TN_OK;
}

TNI_COLD tn_shard *tn_shard_open(tn_ctx *ctx, tn_source source, int64_t vocab)
{
    if (!ctx) return NULL;
    if (!tni_within(ctx, "token shard", "vocab", vocab, 1, INT64_MAX)) return NULL;
    tn_shard *s = (tn_shard *)tni_object(ctx, sizeof *s, "token shard", tni_shard_destroy);
    if (!s) return NULL;
    s->vocab = vocab;
    if (tni_reader_open(&s->file, ctx, &source) == TN_OK && tni_shard_header(s) == TN_OK) return s;
    return tn_shard_close(s), (tn_shard *)NULL;
}

tn_status tn_shard_read(const tn_shard *s, int64_t first, int64_t n, int32_t *ids)
{
    uint8_t chunk[TNI_SHARD_CHUNK];
    int64_t k;
    if (!s) return TN_ERR_ARG;
    if (!tni_within(s->owned.ctx, s->file.name.s, "first", first, 0, s->count)) return TN_ERR_ARG;
    if (n < 0 || n > s->count - first)
        return tni_fail(s->owned.ctx, TN_ERR_ARG, "%s: n is %lld, expected 0 to %lld from token %lld on", s->file.name.s,
                        (long long)n, (long long)(s->count - first), (long long)first);
    if (!ids && n > 0)
        return tni_fail(s->owned.ctx, TN_ERR_ARG, "%s: ids is NULL, expected memory for %lld", s->file.name.s, (long long)n);
    for (int64_t most = TNI_SHARD_CHUNK / (int64_t)s->width; n > 0; first += k, n -= k, ids += k) {
        uint64_t  at = TNI_SHARD_HEADER + (uint64_t)first * s->width;
        tn_status status;
        k = tni_min(n, most);
        if ((status = tni_reader_get(&s->file, at, chunk, (size_t)k * s->width)) != TN_OK) return status;
        for (int64_t i = 0; i < k; i++) {
            uint64_t id = tni_load_bits(chunk + (size_t)i * s->width, s->width, false);
            if (id >= (uint64_t)s->vocab || id > INT32_MAX)
                return tni_reader_fail(&s->file, TN_ERR_DATA, at + (uint64_t)i * s->width,
                                       "token %lld has id %llu, expected less than %lld", (long long)(first + i),
                                       (unsigned long long)id, (long long)s->vocab);
            ids[i] = (int32_t)id;
        }
    }
    return TN_OK;
}

TNI_COLD tn_status tn_shard_write(tn_ctx *ctx, tn_sink sink, const int32_t *ids, int64_t n, int64_t vocab)
{
    int        kind = vocab > 65536;
    unsigned   width = tni_shard_kind[kind].width;
    uint8_t    chunk[TNI_SHARD_CHUNK];
    size_t     used;
    int64_t    i;
    tni_writer w;
    if (!ctx) return TN_ERR_ARG;
    if (n < 0 || n > INT32_MAX || (!ids && n > 0) || vocab < 1)
        return tni_fail(ctx, TN_ERR_ARG, "token shard: %lld ids at %s, a vocabulary of %lld; a shard holds 2^31 - 1 at most",
                        (long long)n, ids ? "ids" : "NULL", (long long)vocab);
    for (i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return tni_fail(ctx, TN_ERR_DATA, "token shard: token %lld is id %d, but the vocabulary has %lld", (long long)i,
                            ids[i], (long long)vocab);
    memset(chunk, 0, TNI_SHARD_HEADER);
    tni_store_bits(chunk, tni_shard_kind[kind].magic, 4);
    tni_store_bits(chunk + 4, tni_shard_kind[kind].version, 4);
    tni_store_bits(chunk + 8, (uint64_t)n, 4);
    tni_writer_open(&w, ctx, &sink);
    for (used = TNI_SHARD_HEADER, i = 0; i <= n; i++) {
        if (i == n || used == sizeof chunk) { tni_put(&w, chunk, used); used = 0; }
        if (i < n) { tni_store_bits(chunk + used, (uint64_t)ids[i], width); used += width; }
    }
    return tni_writer_close(&w);
}

#undef TNI_LETTER_RUNS
#undef TNI_CATEGORY_RUNS
#endif /* TN_NO_TEXT */
