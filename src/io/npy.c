#include "core/inner.h"
#include "tensor/inner.h"
#include "io/inner.h"

/* ---- npy ---------------------------------------------------------------- >>io-npy-impl
       "\x93NUMPY"  major 0  length (2 bytes; from version 2 on 4)
       {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      padded with spaces, newline
       data
   https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */

#define TNI_NPY_HEADER 65535u            /* only structured dtypes need more */

typedef struct tni_npy {
    tni_number number;
    bool       fortran;
    int        rank;
    int64_t    axes, shape[TN_MAX_RANK];
} tni_npy;

/* A Python string without escapes, which none of the known names has. It is terminated in place. */
static bool tni_scan_python(tni_scan *s, const char **out)
{
    char quote = tni_scan_take(s, '"') ? '"' : '\'';
    if (quote == '\'' && !tni_scan_take(s, quote)) return tni_scan_unexpected(s, "a string");
    *out = s->text + s->at;
    while (s->at < s->bytes && s->text[s->at] != quote)
        if ((unsigned char)s->text[s->at++] < 32) return tni_scan_fail(s, "control character in a string");
    if (s->at == s->bytes) return tni_scan_fail(s, "unterminated string");
    s->text[s->at++] = 0;
    return true;
}

static bool tni_scan_word(tni_scan *s, const char *word)
{
    size_t n = strlen(word);
    tni_scan_space(s);
    if (s->bytes - s->at < n || memcmp(s->text + s->at, word, n) != 0) return false;
    s->at += n;
    return true;
}

/* '<f4': byte order ('|' where a byte has none), kind, bytes. */
static bool tni_npy_number(const char *descr, tni_number *out)
{
    static const char letter[] = "fiub";
    static const tni_number_kind kind[] = {TNI_FLOAT, TNI_SIGNED, TNI_UNSIGNED, TNI_BOOL};
    const char *known = strlen(descr) == 3 ? strchr(letter, descr[1]) : NULL;
    unsigned    width = known ? (unsigned)(descr[2] - '0') : 0;
    if (!known || !strchr("<>|", descr[0])) return false;
    out->kind = kind[known - letter];
    out->bits = 8 * width;
    out->big_endian = descr[0] == '>';
    if (width == 1) return out->kind != TNI_FLOAT;
    return descr[0] != '|' && out->kind != TNI_BOOL && ((width == 2) | (width == 4) | (width == 8));
}

static bool tni_parse_descr(tni_scan *s, tni_npy *a)
{
    const char *descr;
    if (tni_scan_take(s, '[')) {
        s->status = tni_reader_fail(s->file, TN_ERR_DTYPE, s->start + s->at, "the dtype is structured, expected a number");
        return false;
    }
    if (!tni_scan_python(s, &descr)) return false;
    if (tni_npy_number(descr, &a->number)) return true;
    s->status = tni_reader_fail(s->file, TN_ERR_DTYPE, s->start + (uint64_t)(descr - s->text),
                                "dtype is %s, expected a number", tni_quote(descr).s);
    return false;
}

static bool tni_parse_order(tni_scan *s, tni_npy *a)
{
    a->fortran = tni_scan_word(s, "True");
    return a->fortran || tni_scan_word(s, "False") || tni_scan_unexpected(s, "True or False");
}

static bool tni_parse_npy(tni_scan *s, tni_npy *a)
{
    static const char *const key[] = {"descr", "fortran_order", "shape"};
    unsigned    seen = 0, k;
    const char *name;
    if (!tni_scan_expect(s, '{')) return false;
    while (!tni_scan_take(s, '}')) {
        if (!tni_scan_python(s, &name) || !tni_scan_expect(s, ':')) return false;
        for (k = 0; k < 3 && strcmp(name, key[k]) != 0; k++) {}
        if (k == 3) return tni_scan_fail(s, "unknown key, expected descr, fortran_order or shape");
        if (seen >> k & 1) return tni_scan_fail(s, "duplicate key");
        seen |= 1u << k;
        if (!(k == 0 ? tni_parse_descr(s, a) : k == 1 ? tni_parse_order(s, a)
                                             : tni_scan_shape(s, true, &a->axes, &a->rank, a->shape)))
            return false;
        if (!tni_scan_take(s, ',')) {
            if (!tni_scan_expect(s, '}')) return false;
            break;
        }
    }
    tni_scan_space(s);
    if (s->at < s->bytes) return tni_scan_unexpected(s, "the end of the header after its '}'");
    return seen == 7 || tni_scan_fail(s, seen & 1 ? seen & 2 ? "missing key shape" : "missing key fortran_order"
                                                  : "missing key descr");
}

/* Magic, version and length: where the header begins and how long it is. */
static tn_status tni_npy_prefix(const tni_reader *r, uint64_t *at, size_t *bytes)
{
    uint8_t   head[12];
    tn_status s = tni_reader_get(r, 0, head, 8);
    if (s != TN_OK) return s;
    if (memcmp(head, "\x93NUMPY", 6) != 0)
        return tni_reader_fail(r, TN_ERR_FORMAT, 0, "not an npy file: it does not begin with \\x93NUMPY");
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return tni_reader_fail(r, TN_ERR_FORMAT, 6, "npy version is %d.%d, expected 1.0 to 3.0", (int)head[6], (int)head[7]);
    unsigned width = head[6] == 1 ? 2 : 4;
    if ((s = tni_reader_get(r, 8, head + 8, width)) != TN_OK) return s;
    uint64_t n = tni_load_bits(head + 8, width, false);
    *at = 8 + width;
    *bytes = (size_t)n;
    return tni_check_header(r, *at, n, TNI_NPY_HEADER);
}

static tn_status tni_npy_header(const tni_reader *r, uint64_t *data, tni_npy *a)
{
    tn_status s;
    tni_scan scan = TNI_ZERO;
    tni_scratch w = tni_scratch_begin(r->ctx, "npy header");
    memset(a, 0, sizeof *a);
    if ((s = tni_npy_prefix(r, &scan.start, &scan.bytes)) != TN_OK) return s;
    scan.file = r;
    scan.text = (char *)tni_take(&w, 1, scan.bytes);
    s = scan.text ? tni_reader_get(r, scan.start, scan.text, scan.bytes) : TN_ERR_MEMORY;
    if (s == TN_OK && !tni_parse_npy(&scan, a)) s = scan.status;
    tni_scratch_end(&w, s);
    *data = scan.start + scan.bytes;
    return s == TN_OK ? tni_check_rest(r, *data, a->number, a->rank, a->shape) : s;
}

/* The same elements with the axes in reverse order. The view is used only here, so its header is not in the arena. */
static tn_tensor *tni_keep_reversed(const tn_tensor *t)
{
    tn_tensor view = *t;
    for (int i = 0; i < t->rank; i++) {
        view.shape[i] = t->shape[t->rank - 1 - i];
        view.strides[i] = t->strides[t->rank - 1 - i];
    }
    return tn_tensor_keep(&view);
}

/* Column-major data is row-major data of the reversed shape. */
static tn_tensor *tni_read_fortran(const tni_reader *r, uint64_t at, const tni_npy *a)
{
    tn_tensor *columns;
    int64_t    shape[TN_MAX_RANK];
    for (int i = 0; i < a->rank; i++) shape[i] = a->shape[a->rank - 1 - i];
    if (tni_read_tensor(r, at, a->number, 0, a->rank, shape, &columns) != TN_OK) return NULL;
    tn_tensor *rows = tni_keep_reversed(columns);
    tn_tensor_destroy(columns);
    return rows;
}

static tn_tensor *tni_npy_read(tn_ctx *ctx, tn_source source, bool flat)
{
    tni_reader r;
    tni_npy    a;
    uint64_t   at;
    tn_tensor *t = NULL;
    if (!ctx || tni_reader_open(&r, ctx, &source) != TN_OK) return NULL;
    if (tni_npy_header(&r, &at, &a) == TN_OK) {
        if (a.axes > TN_MAX_RANK && (a.fortran || !flat))
            tni_reader_fail(&r, TN_ERR_SHAPE, 0, "the array has %lld axes%s, expected at most %d%s", (long long)a.axes,
                            a.fortran ? " in Fortran's order" : "", TN_MAX_RANK,
                            a.fortran ? "" : ": tn_npy_read_flat reads its numbers");
        else if (a.fortran && a.rank > 1) t = tni_read_fortran(&r, at, &a);
        else tni_read_tensor(&r, at, a.number, 0, a.rank, a.shape, &t);
    }
    tni_reader_close(&r);
    if (!t || !flat) return t;
    t->shape[0] = tn_tensor_count(t);       /* it is owned and compact */
    t->strides[0] = t->rank = 1;
    return t;
}

tn_tensor *tn_npy_read(tn_ctx *ctx, tn_source source)      { return tni_npy_read(ctx, source, false); }
tn_tensor *tn_npy_read_flat(tn_ctx *ctx, tn_source source) { return tni_npy_read(ctx, source, true); }

static void tni_text_npy(tni_text *t, const tn_tensor *of, tn_dtype as)
{
    tni_text_string(t, as == TN_I32 ? "{'descr': '<i4'" : as == TN_F64 ? "{'descr': '<f8'" : "{'descr': '<f4'");
    tni_text_string(t, ", 'fortran_order': False, 'shape': (");
    for (int i = 0; i < of->rank; i++) {
        tni_text_integer(t, (uint64_t)of->shape[i], false);
        tni_text_string(t, i + 1 < of->rank ? ", " : of->rank == 1 ? "," : "");
    }
    tni_text_string(t, "), }");
    while ((10 + t->length + 1) % 64 != 0) tni_text_string(t, " ");
    tni_text_string(t, "\n");
}

tn_status tn_npy_write(const tn_tensor *tensor, tn_sink sink)
{
    char       head[512];
    tni_text   t = {head + 10, sizeof head - 10, 0};
    tni_writer w;
    tn_status  s;
    if (!tni_alive(tensor)) return TN_ERR_ARG;
    if ((s = tn_ctx_sync(tensor->ctx)) != TN_OK) return s;
    tn_dtype as = tensor->dtype == TN_BF16 ? TN_F32 : tensor->dtype;
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    tni_text_npy(&t, tensor, as);
    tni_store_bits((uint8_t *)head + 8, t.length, 2);
    tni_writer_open(&w, tensor->ctx, &sink);
    tni_put(&w, head, 10 + t.length);
    tni_put_numbers(&w, tensor, as);
    return tni_writer_close(&w);
}

/* ---- idx ---------------------------------------------------------------- >>io-idx-impl
       0 0 type rank, rank extents as u32, data; all big-endian
   http://yann.lecun.com/exdb/mnist */

static bool tni_idx_number(uint8_t type, tni_number *out)
{
    static const struct { uint8_t type; tni_number number; } known[] = {
        {0x08, {TNI_UNSIGNED, 8, true}}, {0x09, {TNI_SIGNED, 8, true}}, {0x0B, {TNI_SIGNED, 16, true}},
        {0x0C, {TNI_SIGNED, 32, true}},  {0x0D, {TNI_FLOAT, 32, true}}, {0x0E, {TNI_FLOAT, 64, true}}
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *out = known[i].number;
        if (known[i].type == type) return true;
    }
    return false;
}

static tn_status tni_idx_header(const tni_reader *r, tni_number *number, int *rank, int64_t *shape)
{
    uint8_t   head[4 + 4 * TN_MAX_RANK];
    tn_status s = tni_reader_get(r, 0, head, 4);
    if (s != TN_OK) return s;
    if (head[0] != 0 || head[1] != 0)
        return tni_reader_fail(r, TN_ERR_FORMAT, 0, "not an idx file: it does not begin with two zeros");
    if (!tni_idx_number(head[2], number))
        return tni_reader_fail(r, TN_ERR_FORMAT, 2, "idx type %d is unknown", (int)head[2]);
    if (head[3] > TN_MAX_RANK)
        return tni_reader_fail(r, TN_ERR_FORMAT, 3, "the file has %d axes, expected at most 8", (int)head[3]);
    *rank = head[3];
    if ((s = tni_reader_get(r, 4, head + 4, 4 * (size_t)head[3])) != TN_OK) return s;
    for (int i = 0; i < *rank; i++) shape[i] = (int64_t)tni_load_bits(head + 4 + 4 * i, 4, true);
    return tni_check_rest(r, 4 + 4 * (uint64_t)*rank, *number, *rank, shape);
}

TNI_COLD tn_tensor *tn_idx_read(tn_ctx *ctx, tn_source source, double scale)
{
    tni_reader r;
    tni_number number;
    tn_tensor *t = NULL;
    int64_t    shape[TN_MAX_RANK];
    int        rank = 0;
    if (!ctx || tni_reader_open(&r, ctx, &source) != TN_OK) return NULL;
    if (tni_idx_header(&r, &number, &rank, shape) == TN_OK)
        tni_read_tensor(&r, 4 + 4 * (uint64_t)rank, number, scale, rank, shape, &t);
    tni_reader_close(&r);
    return t;
}
