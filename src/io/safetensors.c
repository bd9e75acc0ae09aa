#include "core/inner.h"
#include "io/inner.h"

/* ---- safetensors -------------------------------------------------------- >>io-safetensors-impl
       u64        n, little-endian, at most 100 MB
       n bytes    {"__metadata__":{"key":"value",...},
                   "name":{"dtype":"F32","shape":[3,4],"data_offsets":[begin,end]},...}    spaces may follow
       data       offsets count from here; the tensors cover it without gap or overlap
   Little-endian, row-major. https://github.com/huggingface/safetensors */

static const struct { const char *name; tni_number number; } tni_safetensors_dtype[] = {
    {"F64", {TNI_FLOAT, 64, false}},    {"F32", {TNI_FLOAT, 32, false}},    {"F16", {TNI_FLOAT, 16, false}},
    {"I64", {TNI_SIGNED, 64, false}},   {"I32", {TNI_SIGNED, 32, false}},   {"I16", {TNI_SIGNED, 16, false}},
    {"I8", {TNI_SIGNED, 8, false}},
    {"U64", {TNI_UNSIGNED, 64, false}}, {"U32", {TNI_UNSIGNED, 32, false}}, {"U16", {TNI_UNSIGNED, 16, false}},
    {"U8", {TNI_UNSIGNED, 8, false}},
    {"BF16", {TNI_BFLOAT, 16, false}},  {"BOOL", {TNI_BOOL, 8, false}},     {"C64", {TNI_OTHER, 64, false}},
    {"F8_E4M3", {TNI_OTHER, 8, false}}, {"F8_E5M2", {TNI_OTHER, 8, false}}, {"F8_E8M0", {TNI_OTHER, 8, false}},
    {"F8_E4M3FNUZ", {TNI_OTHER, 8, false}}, {"F8_E5M2FNUZ", {TNI_OTHER, 8, false}},
    {"F6_E2M3", {TNI_OTHER, 6, false}}, {"F6_E3M2", {TNI_OTHER, 6, false}}, {"F4", {TNI_OTHER, 4, false}}
};

TNI_COLD_FN bool tni_safetensors_number(const char *dtype, tni_number *out)
{
    for (size_t i = 0; i < sizeof tni_safetensors_dtype / sizeof *tni_safetensors_dtype; i++) {
        *out = tni_safetensors_dtype[i].number;
        if (strcmp(dtype, tni_safetensors_dtype[i].name) == 0) return true;
    }
    return false;
}

/* One of the files of an index. */
typedef struct tni_part_file { tn_safetensors *file; const char *name; } tni_part_file;

static tni_part_file *tni_part_at(const tn_safetensors *f, size_t k) { return (tni_part_file *)tni_list_at(&f->parts, k); }

static void tni_safetensors_free(tn_safetensors *f)
{
    tn_ctx *ctx = f->file.ctx;
    for (size_t k = 0; k < f->parts.count; k++) if (tni_part_at(f, k)->file) tni_safetensors_free(tni_part_at(f, k)->file);
    tni_reader_close(&f->file);
    tni_scratch_release(&f->w, NULL);
    tni_list_free(ctx, &f->parts);
    tni_list_free(ctx, &f->entries);
    tni_list_free(ctx, &f->notes);
    tni_free(ctx, f, sizeof *f);
}

static void tni_safetensors_destroy(tni_owned *owned)
{
    tni_disown(owned);
    tni_safetensors_free((tn_safetensors *)(void *)owned);
}

/* The file that has the data of a tensor. */
TNI_COLD_FN const tni_reader *tni_entry_file(const tn_safetensors *f, const tn_safetensors_entry *e)
{
    return f->parts.count > 0 ? &tni_part_at(f, (size_t)e->part)->file->file : &f->file;
}

static tn_status tni_entry_fail(const tn_safetensors *f, const char *name, const char *reason)
{
    return tni_reader_fail(&f->file, TN_ERR_FORMAT, 8 + (uint64_t)(name - f->header), "tensor %s: %s", tni_quote(name).s,
                           reason);
}

/* Checks the length of the data against shape and dtype. */
static tn_status tni_entry_check(const tn_safetensors *f, const tn_safetensors_entry *e)
{
    tni_number n;
    size_t     count, bytes;
    if (!tni_safetensors_number(e->dtype, &n)) return tni_entry_fail(f, e->name, "unknown dtype");
    if (!tni_count_extents(e->rank, e->shape, &count) || !tni_mul_size(count / 8, n.bits, &bytes)
        || !tni_add_size(bytes, count % 8 * n.bits / 8, &bytes))
        return tni_entry_fail(f, e->name, "it is larger than the address space");
    if (count % 8 * n.bits % 8 != 0) return tni_entry_fail(f, e->name, "its data end inside a byte");
    if (bytes != e->bytes)
        return tni_reader_fail(&f->file, TN_ERR_FORMAT, 8 + (uint64_t)(e->name - f->header),
                               "tensor %s: data_offsets give %llu bytes, expected %zu for its shape and dtype",
                               tni_quote(e->name).s, (unsigned long long)e->bytes, bytes);
    return TN_OK;
}

/* "data_offsets": from the end of the header in the file, from the beginning of the file in the entry. */
static bool tni_parse_offsets(tni_scan *s, tn_safetensors_entry *e)
{
    uint64_t data = s->start + s->bytes, begin, end;
    if (!tni_scan_expect(s, '[') || !tni_scan_natural(s, &begin) || !tni_scan_expect(s, ',')
        || !tni_scan_natural(s, &end) || !tni_scan_expect(s, ']')) return false;
    if (begin > end) return tni_scan_fail(s, "data_offsets end before they begin");
    if (end > s->file->bytes - data) return tni_scan_fail(s, "data_offsets are past the end of the file");
    e->offset = data + begin;
    e->bytes = end - begin;
    return true;
}

static bool tni_parse_tensor(tni_scan *s, tn_safetensors_entry *e)
{
    static const char *const key[] = {"dtype", "shape", "data_offsets"};
    unsigned    seen = 0, k;
    const char *name;
    if (!tni_scan_expect(s, '{')) return false;
    do {
        if (!tni_scan_string(s, &name) || !tni_scan_expect(s, ':')) return false;
        for (k = 0; k < 3 && strcmp(name, key[k]) != 0; k++) {}
        if (k == 3) return tni_scan_fail(s, "unknown key, expected dtype, shape or data_offsets");
        if (seen >> k & 1) return tni_scan_fail(s, "duplicate key");
        seen |= 1u << k;
        if (!(k == 0 ? tni_scan_string(s, &e->dtype)
              : k == 1 ? tni_scan_shape(s, false, &e->axes, &e->rank, e->shape) : tni_parse_offsets(s, e)))
            return false;
    } while (tni_scan_take(s, ','));
    if (!tni_scan_expect(s, '}')) return false;
    return seen == 7 || tni_scan_fail(s, seen & 1 ? seen & 2 ? "missing key data_offsets" : "missing key shape"
                                                  : "missing key dtype");
}

static bool tni_parse_notes(tni_scan *s, tn_safetensors *f)
{
    if (!tni_scan_expect(s, '{')) return false;
    if (tni_scan_take(s, '}')) return true;
    do {
        tn_metadata *note = (tn_metadata *)tni_list_add(f->file.ctx, &f->notes, "safetensors metadata");
        if (!note) { s->status = TN_ERR_MEMORY; return false; }
        if (!tni_scan_string(s, &note->key) || !tni_scan_expect(s, ':') || !tni_scan_string(s, &note->value)) return false;
    } while (tni_scan_take(s, ','));
    return tni_scan_expect(s, '}');
}

static bool tni_parse_entry(tni_scan *s, tn_safetensors *f, bool *notes_seen)
{
    const char *name;
    if (!tni_scan_string(s, &name) || !tni_scan_expect(s, ':')) return false;
    if (strcmp(name, "__metadata__") == 0) {
        if (*notes_seen) return tni_scan_fail(s, "duplicate key __metadata__");
        *notes_seen = true;
        return tni_parse_notes(s, f);
    }
    tn_safetensors_entry *e = (tn_safetensors_entry *)tni_list_add(f->file.ctx, &f->entries, "safetensors header");
    if (!e) { s->status = TN_ERR_MEMORY; return false; }
    e->name = name;
    return tni_parse_tensor(s, e) && (s->status = tni_entry_check(f, e)) == TN_OK;
}

static tn_status tni_parse_header(tn_safetensors *f)
{
    bool notes_seen = false;
    tni_scan s = TNI_ZERO;
    s.file = &f->file;
    s.start = 8;
    s.text = f->header;
    s.bytes = f->header_bytes;
    if (s.bytes == 0 || s.text[0] != '{') {
        tni_scan_unexpected(&s, "'{' at the beginning of the header");
        return s.status;
    }
    s.at = 1;
    if (!tni_scan_take(&s, '}')) {
        do if (!tni_parse_entry(&s, f, &notes_seen)) return s.status; while (tni_scan_take(&s, ','));
        if (!tni_scan_expect(&s, '}')) return s.status;
    }
    tni_scan_space(&s);
    if (s.at < s.bytes) tni_scan_unexpected(&s, "the end of the header after its last '}'");
    return s.status;
}

/* In the order of the data; empty tensors at one place are in the order of their names. */
static bool tni_by_offset(const void *a, const void *b)
{
    const tn_safetensors_entry *x = (const tn_safetensors_entry *)a, *y = (const tn_safetensors_entry *)b;
    if (x->part != y->part) return x->part < y->part;
    if (x->offset != y->offset) return x->offset < y->offset;
    return x->bytes != y->bytes ? x->bytes < y->bytes : strcmp(x->name, y->name) < 0;
}

static tn_status tni_safetensors_order(tn_safetensors *f)
{
    f->by_offset = tni_sorted(&f->w, f->entries.items, f->entries.count, f->entries.each, tni_by_offset);
    f->by_name = tni_sorted(&f->w, f->entries.items, f->entries.count, f->entries.each, tni_by_name);
    f->notes_by_name = tni_sorted(&f->w, f->notes.items, f->notes.count, f->notes.each, tni_by_name);
    return f->notes_by_name ? TN_OK : TN_ERR_MEMORY;
}

static tn_status tni_safetensors_sort(tn_safetensors *f)
{
    tn_status s = tni_safetensors_order(f);
    if (s != TN_OK) return s;
    const char *twice = tni_twice(f->by_name, f->entries.count);
    if (!twice) twice = tni_twice(f->notes_by_name, f->notes.count);
    if (!twice) return TN_OK;
    return tni_reader_fail(&f->file, TN_ERR_FORMAT, 8 + (uint64_t)(twice - f->header), "duplicate key %s",
                           tni_quote(twice).s);
}

/* Each tensor begins where the one before ends, and the last one ends with the file. */
static tn_status tni_safetensors_cover(const tn_safetensors *f)
{
    uint64_t at = 8 + (uint64_t)f->header_bytes;
    for (size_t i = 0; i < f->entries.count; i++) {
        const tn_safetensors_entry *e = (const tn_safetensors_entry *)f->by_offset[i];
        if (e->offset > at)
            return tni_reader_fail(&f->file, TN_ERR_FORMAT, at, "a gap of %llu bytes before the data of tensor %s",
                                   (unsigned long long)(e->offset - at), tni_quote(e->name).s);
        if (e->offset < at) return tni_entry_fail(f, e->name, "its data overlap those of another tensor");
        at += e->bytes;
    }
    if (at == f->file.bytes) return TN_OK;
    return tni_reader_fail(&f->file, TN_ERR_FORMAT, at, "%llu unused bytes after the last tensor",
                           (unsigned long long)(f->file.bytes - at));
}

TNI_COLD static tn_status tni_safetensors_start(tn_safetensors *f)
{
    uint8_t   length[8];
    tn_status s = tni_reader_get(&f->file, 0, length, 8);
    if (s != TN_OK) return s;
    uint64_t n = tni_load_bits(length, 8, false);
    if ((s = tni_check_header(&f->file, 8, n, TNI_SAFETENSORS_HEADER)) != TN_OK) return s;
    if (!(f->header = (char *)tni_take(&f->w, (int64_t)n, 1))) return TN_ERR_MEMORY;
    f->header_bytes = (size_t)n;
    if ((s = tni_reader_get(&f->file, 8, f->header, f->header_bytes)) != TN_OK) return s;
    if ((s = tni_parse_header(f)) != TN_OK) return s;
    if ((s = tni_safetensors_sort(f)) != TN_OK) return s;
    return tni_safetensors_cover(f);
}

/* A file without the context's care. *out is NULL after an error. */
static tn_status tni_safetensors_one(tn_ctx *ctx, const tn_source *source, tn_safetensors **out)
{
    tn_safetensors *f = *out = (tn_safetensors *)tni_alloc(ctx, sizeof *f, "safetensors");
    if (!f) return TN_ERR_MEMORY;
    memset(f, 0, sizeof *f);
    f->w = tni_scratch_begin(ctx, "safetensors");
    f->entries.each = sizeof(tn_safetensors_entry);
    f->notes.each = sizeof(tn_metadata);
    f->parts.each = sizeof(tni_part_file);
    return tni_reader_open(&f->file, ctx, source);
}

/* ---- several files of one model ----------------------------------------- >>io-safetensors-index
   {"metadata":{...},"weight_map":{"name":"model-00001-of-00002.safetensors",...}}   The files lie beside the index. */

/* Passes over a value of any kind, without recursion. */
static bool tni_scan_skip(tni_scan *s)
{
    size_t      depth = 0;
    const char *string;
    do {
        tni_scan_space(s);
        char c = s->at < s->bytes ? s->text[s->at] : (char)0;
        if (c == '"') {
            if (!tni_scan_string(s, &string)) return false;
        } else if (c == '{' || c == '[') {
            depth++;
            s->at++;
        } else if (depth > 0 && (c == '}' || c == ']')) {
            depth--;
            s->at++;
        } else if (depth > 0 && (c == ',' || c == ':')) s->at++;
        else if (c == 0 || !strchr("-0123456789tfn", c)) return tni_scan_unexpected(s, "a value");
        else while (s->at < s->bytes && s->text[s->at] != 0 && strchr("+-.0123456789eEtrufalsn", s->text[s->at])) s->at++;
    } while (depth > 0);
    return true;
}

/* Reads the lines of weight_map as notes: the name of a tensor, that of its file. */
static bool tni_parse_index(tni_scan *s, tn_safetensors *f)
{
    const char *key;
    bool        seen = false;
    if (!tni_scan_expect(s, '{')) return false;
    do {
        if (!tni_scan_string(s, &key) || !tni_scan_expect(s, ':')) return false;
        if (strcmp(key, "weight_map") != 0) { if (!tni_scan_skip(s)) return false; continue; }
        if (seen) return tni_scan_fail(s, "duplicate key weight_map");
        seen = true;
        if (!tni_parse_notes(s, f)) return false;
    } while (tni_scan_take(s, ','));
    if (!tni_scan_expect(s, '}')) return false;
    tni_scan_space(s);
    if (s->at < s->bytes) return tni_scan_unexpected(s, "the end of the file");
    return seen || tni_scan_fail(s, "missing key weight_map");
}

/* Sets *number to that of the file which a line names; it is opened and checked if it is not yet. */
static tn_status tni_index_part(tn_safetensors *f, const char *index, const tn_metadata *line, size_t *number)
{
    tn_ctx      *ctx = f->file.ctx;
    const char  *slash = strrchr(index, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - index) : 0, bytes = folder + strlen(line->value) + 1;
    for (*number = 0; *number < f->parts.count; ++*number)
        if (strcmp(tni_part_at(f, *number)->name, line->value) == 0) return TN_OK;
    if (!*line->value || strpbrk(line->value, "/\\:") || strcmp(line->value, "..") == 0)
        return tni_reader_fail(&f->file, TN_ERR_FORMAT, (uint64_t)(line->value - f->header),
                               "the file of tensor %s is %s, expected a name without folders", tni_quote(line->key).s,
                               tni_quote(line->value).s);
    tni_part_file *part = (tni_part_file *)tni_list_add(ctx, &f->parts, "safetensors index");
    char          *path = part ? (char *)tni_alloc(ctx, bytes, "safetensors index") : NULL;
    if (!path) return TN_ERR_MEMORY;
    memcpy(path, index, folder);
    memcpy(path + folder, line->value, bytes - folder);
    tn_source source = TNI_ZERO;
    source.path = path;
    part->name = line->value;
    tn_status s = tni_safetensors_one(ctx, &source, &part->file);
    if (s == TN_OK) s = tni_safetensors_start(part->file);
    tni_free(ctx, path, bytes);
    return s;
}

/* The tensors of all parts, each once, and each line's in the file that it names. */
static tn_status tni_index_join(tn_safetensors *f, const char *index)
{
    const tn_metadata *lines = (const tn_metadata *)f->notes.items;
    size_t         k;
    tn_status      s;
    for (size_t i = 0; i < f->notes.count; i++) {
        if ((s = tni_index_part(f, index, &lines[i], &k)) != TN_OK) return s;
        if (!tn_safetensors_find(tni_part_at(f, k)->file, lines[i].key))
            return tni_reader_fail(&f->file, TN_ERR_FORMAT, (uint64_t)(lines[i].key - f->header),
                                   "tensor %s is not in %s, where the index has it", tni_quote(lines[i].key).s,
                                   tni_quote(lines[i].value).s);
    }
    for (k = 0; k < f->parts.count; k++) {
        const tn_safetensors *part = tni_part_at(f, k)->file;
        for (size_t i = 0; i < part->entries.count; i++) {
            tn_safetensors_entry *to = (tn_safetensors_entry *)tni_list_add(f->file.ctx, &f->entries, "safetensors index");
            if (!to) return TN_ERR_MEMORY;
            *to = *(const tn_safetensors_entry *)tni_list_at(&part->entries, i);
            to->part = (int64_t)k;
        }
    }
    f->notes.count = 0;                                      /* an index has no metadata */
    f->file.is_text = false;                                 /* what is wrong now has no place in it */
    if ((s = tni_safetensors_order(f)) != TN_OK) return s;
    for (size_t i = 1; i < f->entries.count; i++) {
        const tn_safetensors_entry *a = (const tn_safetensors_entry *)f->by_name[i - 1];
        const tn_safetensors_entry *b = (const tn_safetensors_entry *)f->by_name[i];
        if (strcmp(a->name, b->name) == 0)
            return tni_reader_fail(&f->file, TN_ERR_FORMAT, 0, "tensor %s is in %s and in %s", tni_quote(a->name).s,
                                   tni_entry_file(f, a)->name.s, tni_entry_file(f, b)->name.s);
    }
    return TN_OK;
}

static tn_status tni_safetensors_index(tn_safetensors *f, const char *path)
{
    tn_status s = tni_check_header(&f->file, 0, f->file.bytes, TNI_SAFETENSORS_HEADER);
    if (s != TN_OK) return s;
    f->file.is_text = true;
    if (!(f->header = (char *)tni_take(&f->w, (int64_t)f->file.bytes, 1))) return TN_ERR_MEMORY;
    f->header_bytes = (size_t)f->file.bytes;
    if ((s = tni_reader_get(&f->file, 0, f->header, f->header_bytes)) != TN_OK) return s;
    tni_scan scan = TNI_ZERO;
    scan.file = &f->file;
    scan.text = f->header;
    scan.bytes = f->header_bytes;
    if (!tni_parse_index(&scan, f)) return scan.status;
    const void **sorted = tni_sorted(&f->w, f->notes.items, f->notes.count, f->notes.each, tni_by_name);
    if (!sorted) return TN_ERR_MEMORY;
    const char *twice = tni_twice(sorted, f->notes.count);
    if (twice)
        return tni_reader_fail(&f->file, TN_ERR_FORMAT, (uint64_t)(twice - f->header), "duplicate key %s",
                               tni_quote(twice).s);
    return tni_index_join(f, path);
}

TNI_COLD_FN tn_status tni_safetensors_open(tn_ctx *ctx, const tn_source *source, tn_safetensors **out)
{
    const size_t n = source->path && !source->fetch ? strlen(source->path) : 0;
    tn_status    s = tni_safetensors_one(ctx, source, out);
    if (!*out) return s;
    if (s == TN_OK)
        s = n > 5 && strcmp(source->path + n - 5, ".json") == 0 ? tni_safetensors_index(*out, source->path)
                                                                : tni_safetensors_start(*out);
    if (s == TN_OK) tni_own(ctx, &(*out)->owned, tni_safetensors_destroy);
    else {
        tni_safetensors_free(*out);
        *out = NULL;
    }
    return s;
}

tn_safetensors *tn_safetensors_open(tn_ctx *ctx, tn_source source)
{
    tn_safetensors *f = NULL;
    if (ctx) tni_safetensors_open(ctx, &source, &f);
    return f;
}

void    tn_safetensors_close(tn_safetensors *f) { if (f) tni_safetensors_destroy(&f->owned); }
int64_t tn_safetensors_count(const tn_safetensors *f) { return f ? (int64_t)f->entries.count : 0; }

const tn_safetensors_entry *tn_safetensors_at(const tn_safetensors *f, int64_t i)
{
    return f && i >= 0 && (uint64_t)i < f->entries.count ? (const tn_safetensors_entry *)f->by_offset[i] : NULL;
}

/* The name under which a file has a tensor of two names: a note {"left out": "kept"}, as safetensors' save_model writes it. */
static const char *tni_kept_name(const tn_safetensors *f, const char *name)
{
    const char *kept = tn_safetensors_metadata(f, name);
    for (size_t k = 0; !kept && k < f->parts.count; k++) kept = tn_safetensors_metadata(tni_part_at(f, k)->file, name);
    return kept;
}

const tn_safetensors_entry *tn_safetensors_find(const tn_safetensors *f, const char *name)
{
    const void *e = f && name ? tni_find_name(f->by_name, f->entries.count, name) : NULL;
    const char *kept = f && name && !e ? tni_kept_name(f, name) : NULL;
    return (const tn_safetensors_entry *)(kept ? tni_find_name(f->by_name, f->entries.count, kept) : e);
}

const char *tn_safetensors_metadata(const tn_safetensors *f, const char *key)
{
    const tn_metadata *note = f && key ? (const tn_metadata *)tni_find_name(f->notes_by_name, f->notes.count, key) : NULL;
    return note ? note->value : NULL;
}

/* The entry of this name; none is an error. */
static const tn_safetensors_entry *tni_safetensors_want(tn_safetensors *f, const char *name)
{
    const tn_safetensors_entry *e = tn_safetensors_find(f, name);
    if (f && !e)
        tni_fail(f->file.ctx, TN_ERR_ARG, "%s: there is no tensor %s", f->file.name.s, name ? tni_quote(name).s : "NULL");
    return e;
}

TNI_COLD_FN tn_status tni_entry_read(const tn_safetensors *f, const tn_safetensors_entry *e, tn_tensor **out)
{
    tni_number n;
    *out = NULL;
    if (e->axes > TN_MAX_RANK)
        return tni_reader_fail(tni_entry_file(f, e), TN_ERR_SHAPE, e->offset,
                               "tensor %s has %lld axes, expected at most %d: tn_safetensors_read_flat reads its numbers",
                               tni_quote(e->name).s, (long long)e->axes, TN_MAX_RANK);
    if (tni_safetensors_number(e->dtype, &n) && n.kind != TNI_OTHER)
        return tni_read_tensor(tni_entry_file(f, e), e->offset, n, 0, e->rank, e->shape, out);
    return tni_reader_fail(tni_entry_file(f, e), TN_ERR_DTYPE, e->offset,
                           "tensor %s: dtype is %s, for tn_safetensors_read_bytes only", tni_quote(e->name).s, e->dtype);
}

tn_tensor *tn_safetensors_read(tn_safetensors *f, const char *name)
{
    const tn_safetensors_entry *e = tni_safetensors_want(f, name);
    tn_tensor                  *t = NULL;
    if (e) tni_entry_read(f, e, &t);
    return t;
}

bool tn_safetensors_equal(tn_safetensors *f, const char *a, const char *b)
{
    const tn_safetensors_entry *x = tni_safetensors_want(f, a), *y = tni_safetensors_want(f, b);
    uint8_t                     left[1024], right[1024];
    size_t                      n;
    if (!x || !y || strcmp(x->dtype, y->dtype) != 0 || x->axes != y->axes || x->rank != y->rank
        || memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape) != 0) return false;
    for (uint64_t at = 0; x != y && at < x->bytes; at += n) {
        n = x->bytes - at < sizeof left ? (size_t)(x->bytes - at) : sizeof left;
        if (tni_reader_get(tni_entry_file(f, x), x->offset + at, left, n) != TN_OK
            || tni_reader_get(tni_entry_file(f, y), y->offset + at, right, n) != TN_OK
            || memcmp(left, right, n) != 0) return false;
    }
    return true;
}

tn_tensor *tn_safetensors_read_flat(tn_safetensors *f, const char *name)
{
    const tn_safetensors_entry *e = tni_safetensors_want(f, name);
    tn_tensor                  *t = NULL;
    size_t                      count;
    if (!e) return NULL;
    tn_safetensors_entry flat = *e;
    tni_count_extents(e->rank, e->shape, &count);
    flat.axes = flat.rank = 1;
    flat.shape[0] = (int64_t)count;
    tni_entry_read(f, &flat, &t);
    return t;
}

tn_status tn_safetensors_read_bytes(tn_safetensors *f, const char *name, void *dst, size_t bytes)
{
    const tn_safetensors_entry *e = tni_safetensors_want(f, name);
    if (!e) return TN_ERR_ARG;
    if (bytes == e->bytes && (dst || bytes == 0)) return tni_reader_get(tni_entry_file(f, e), e->offset, dst, bytes);
    if (bytes == e->bytes)
        return tni_fail(f->file.ctx, TN_ERR_ARG, "%s: tensor %s: dst is NULL, expected %zu bytes", f->file.name.s,
                        tni_quote(e->name).s, bytes);
    return tni_fail(f->file.ctx, TN_ERR_ARG, "%s: tensor %s: bytes is %zu, expected %llu", f->file.name.s,
                    tni_quote(e->name).s, bytes, (unsigned long long)e->bytes);
}
