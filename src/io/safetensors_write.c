#include "core/inner.h"
#include "tensor/inner.h"
#include "layers/inner.h"
#include "io/inner.h"

/* ---- writing safetensors ------------------------------------------------ >>io-safetensors-write */

TNI_COLD_FN void tni_text_escaped(tni_text *t, const char *s)
{
    static const char hex[] = "0123456789abcdef", known[] = "\b\t\n\f\r", letters[] = "btnfr";
    for (; *s; s++) {
        const char *k = strchr(known, *s);
        char        escape[6] = {'\\', 'u', '0', '0', '0', '0'};
        escape[4] = hex[(unsigned char)*s >> 4];
        escape[5] = hex[(unsigned char)*s & 15];
        if (k) escape[1] = letters[k - known];
        if ((unsigned char)*s < 32) tni_text_add(t, escape, k ? 2 : 6);
        else {
            if (*s == '"' || *s == '\\') tni_text_add(t, "\\", 1);
            tni_text_add(t, s, 1);
        }
    }
}

TNI_COLD_FN void tni_text_json(tni_text *t, const char *s)
{
    tni_text_add(t, "\"", 1);
    tni_text_escaped(t, s);
    tni_text_add(t, "\"", 1);
}

TNI_COLD_FN void tni_text_string(tni_text *t, const char *s) { tni_text_add(t, s, strlen(s)); }

static void tni_text_notes(tni_text *t, const tn_metadata *notes, size_t n)
{
    tni_text_string(t, "\"__metadata__\":{");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) tni_text_string(t, ",");
        tni_text_json(t, notes[i].key);
        tni_text_string(t, ":");
        tni_text_json(t, notes[i].value);
    }
    tni_text_string(t, "}");
}

/* The header, padded so that the data begins at a multiple of 8. sealed: a checksum follows the data, as a tensor. */
static void tni_text_header(tni_text *t, const void *const *order, size_t n, const tn_metadata *notes, size_t note_count,
                            bool sealed)
{
    uint64_t at = 0;
    tni_text_string(t, "{");
    if (note_count > 0) tni_text_notes(t, notes, note_count);
    for (size_t i = 0; i < n; i++) {
        const tn_named_tensor *named = (const tn_named_tensor *)order[i];
        if (i > 0 || note_count > 0) tni_text_string(t, ",");
        tni_text_json(t, named->name);
        tni_text_string(t, ":{\"dtype\":\"");
        tni_text_string(t, tn_dtype_name(named->tensor->dtype));
        tni_text_string(t, "\",\"shape\":");
        tni_text_string(t, TNI_SHAPE(named->tensor));
        tni_text_string(t, ",\"data_offsets\":[");
        tni_text_integer(t, at, false);
        tni_text_string(t, ",");
        at += (size_t)tn_tensor_count(named->tensor) * tni_dtype_size(named->tensor->dtype);
        tni_text_integer(t, at, false);
        tni_text_string(t, "]}");
    }
    if (sealed) {
        tni_text_string(t, ",\"" TNI_CHECKSUM_NAME "\":{\"dtype\":\"U32\",\"shape\":[2],\"data_offsets\":[");
        tni_text_integer(t, at, false);
        tni_text_string(t, ",");
        tni_text_integer(t, at + 8, false);
        tni_text_string(t, "]}");
    }
    tni_text_string(t, "}");
    while (t->length % 8 != 0) tni_text_string(t, " ");
}

/* Wide dtypes first, so that every tensor is aligned; otherwise in the caller's order. */
static bool tni_by_width(const void *a, const void *b)
{
    size_t x = tni_dtype_size(((const tn_named_tensor *)a)->tensor->dtype);
    size_t y = tni_dtype_size(((const tn_named_tensor *)b)->tensor->dtype);
    return x != y ? x > y : a < b;
}

static bool tni_utf8_valid(const char *s)
{
    size_t left = strlen(s), n;
    for (; left > 0; s += n, left -= n) if ((n = tni_utf8_length(s, left)) == 0) return false;
    return true;
}

static bool tni_string_check(tn_ctx *ctx, const char *s, const char *what)
{
    if (s && tni_utf8_valid(s)) return true;
    return tni_fail(ctx, TN_ERR_ARG, "safetensors: a %s is %s, expected a string in UTF-8", what,
                    s ? "invalid UTF-8" : "NULL"), false;
}

static tn_status tni_unique(tn_ctx *ctx, const void *items, size_t n, size_t each)
{
    tni_scratch  w = tni_scratch_begin(ctx, "safetensors");
    const void **sorted = tni_sorted(&w, items, n, each, tni_by_name);
    const char  *twice = sorted ? tni_twice(sorted, n) : NULL;
    tn_status    s = sorted ? TN_OK : TN_ERR_MEMORY;
    if (twice) s = tni_fail(ctx, TN_ERR_ARG, "safetensors: the name %s occurs twice, expected unique names",
                            tni_quote(twice).s);
    return tni_scratch_end(&w, s);
}

static bool tni_named_check(tn_ctx *ctx, const tn_named_tensor *tensors, int64_t n, const tn_metadata *notes, int64_t note_count)
{
    if (n < 0 || note_count < 0 || (n > 0 && !tensors) || (note_count > 0 && !notes)) {
        const bool named = n < 0 || (n > 0 && !tensors);
        return tni_fail(ctx, TN_ERR_ARG, "safetensors: %lld %s at %s, expected a list of 0 or more",
                        (long long)(named ? n : note_count), named ? "tensors" : "notes",
                        (named ? (const void *)tensors : (const void *)notes) ? "an address" : "NULL"), false;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!tni_string_check(ctx, tensors[i].name, "name")
            || !tni_usable(ctx, tensors[i].tensor, "safetensors", tensors[i].name)) return false;
        if (strcmp(tensors[i].name, "__metadata__") != 0) continue;
        return tni_fail(ctx, TN_ERR_ARG, "safetensors: a tensor is named __metadata__, expected another name"), false;
    }
    for (int64_t i = 0; i < note_count; i++)
        if (!tni_string_check(ctx, notes[i].key, "metadata key") || !tni_string_check(ctx, notes[i].value, "metadata value"))
            return false;
    return true;
}

/* The length word and the header, in *text; the header is made twice, the first time to measure it. */
static tn_status tni_header_text(tni_scratch *w, const void *const *order, size_t n, const tn_metadata *notes, size_t note_count,
                                 bool sealed, char **text, size_t *bytes)
{
    tni_text t = {NULL, 0, 0};
    tni_text_header(&t, order, n, notes, note_count, sealed);
    if (t.length > TNI_SAFETENSORS_HEADER)
        return tni_fail(w->ctx, TN_ERR_ARG, "safetensors: the header has %zu bytes, expected at most 100 MB", t.length);
    *bytes = 8 + t.length + 1;
    if (!(*text = (char *)tni_take(w, 1, *bytes))) return TN_ERR_MEMORY;
    tni_store_bits((uint8_t *)*text, t.length, 8);
    t.dst = *text + 8; t.bytes = t.length + 1; t.length = 0;
    tni_text_header(&t, order, n, notes, note_count, sealed);
    return TN_OK;
}

/* The last 8 bytes of a sealed file are the checksum of all bytes before them. */
static void tni_put_sum(tni_writer *w)
{
#ifndef TN_NO_TRAINING
    uint8_t word[8];
    tni_store_bits(word, tni_checksum_value(w->sum), 8);
    tni_put(w, word, 8);
#else
    (void)w;
#endif
}

/* seal: NULL, or the file is a checkpoint. */
TNI_COLD_FN tn_status tni_safetensors_put(tn_ctx *ctx, tn_sink sink, const tn_named_tensor *tensors, int64_t count,
                                          const tn_metadata *notes, int64_t note_count, const tni_seal *seal)
{
    char       *text = NULL;
    size_t      bytes = 0, n = (size_t)count;
    tni_writer  w;
    tn_status   s;
    if (!ctx || !tni_named_check(ctx, tensors, count, notes, note_count)) return TN_ERR_ARG;
    if ((s = tni_unique(ctx, tensors, n, sizeof *tensors)) != TN_OK) return s;
    if ((s = tni_unique(ctx, notes, (size_t)note_count, sizeof *notes)) != TN_OK) return s;
    if ((s = tn_ctx_sync(ctx)) != TN_OK) return s;
    tni_scratch  memory = tni_scratch_begin(ctx, "safetensors");
    const void **order = tni_sorted(&memory, tensors, n, sizeof *tensors, tni_by_width);
    s = order ? tni_header_text(&memory, order, n, notes, (size_t)note_count, seal != NULL, &text, &bytes) : TN_ERR_MEMORY;
    if (seal && seal->begin) s = seal->begin(seal->user, s);
    if (s == TN_OK) {
        tni_writer_open(&w, ctx, &sink);
        w.sum = seal ? seal->sum : NULL;
        tni_put(&w, text, bytes - 1);
        for (size_t i = 0; i < n; i++) {
            const tn_named_tensor *named = (const tn_named_tensor *)order[i];
            if (seal && seal->put && seal->put(seal->user, &w, named - tensors)) continue;
            tni_put_numbers(&w, named->tensor, named->tensor->dtype);
        }
        if (seal) tni_put_sum(&w);
        if (seal && seal->end) w.status = seal->end(seal->user, w.status);
        s = tni_writer_close(&w);
    }
    return tni_scratch_end(&memory, s);
}

tn_status tn_safetensors_write(tn_ctx *ctx, tn_sink sink, const tn_named_tensor *tensors, int64_t count, const tn_metadata *notes,
                               int64_t note_count)
{
    return tni_safetensors_put(ctx, sink, tensors, count, notes, note_count, NULL);
}

/* ---- parameters --------------------------------------------------------- >>io-params */

TNI_COLD_FN tn_status tni_entry_real(const tn_safetensors *f, const tn_safetensors_entry *e)
{
    tni_number n;
    if (tni_safetensors_number(e->dtype, &n) && tni_number_is_float(n)) return TN_OK;
    return tni_fail(f->file.ctx, TN_ERR_DTYPE, "%s: tensor %s: dtype is %s, expected F64, F32, F16 or BF16", f->file.name.s,
                    tni_quote(e->name).s, e->dtype);
}

TNI_COLD_FN tn_status tni_param_check(const tn_safetensors *f, const tn_param *p)
{
    const tn_safetensors_entry *e = tn_safetensors_find(f, p->name);
    const tn_tensor *t = p->value;
    tn_ctx          *ctx = f->file.ctx;
    tni_quoted       name = tni_quote(p->name);
    if (!e) return tni_fail(ctx, TN_ERR_ARG, "%s: parameter %s %s is not in the file", f->file.name.s, name.s, TNI_SHAPE(t));
    if (e->rank != t->rank || memcmp(e->shape, t->shape, (size_t)e->rank * sizeof *e->shape) != 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: tensor %s is %s, expected %s as the parameter", f->file.name.s, name.s,
                        TNI_SHAPE(e), TNI_SHAPE(t));
    return tni_entry_real(f, e);
}

static tn_status tni_params_check(const tn_safetensors *f, tn_params *params, tn_params_match match)
{
    tn_status s = TN_OK;
    int64_t   n = tn_params_count(params);
    for (int64_t i = 0; i < n && s == TN_OK; i++) s = tni_param_check(f, tn_params_at(params, i));
    if (s != TN_OK || match == TN_MATCH_IGNORE_EXTRA) return s;
    for (int64_t i = 0; tn_safetensors_count(f) > n && i < tn_safetensors_count(f); i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(f, i);
        const tn_param *p = tn_params_find(params, e->name);
        if (p && strcmp(p->name, e->name) == 0) continue;        /* a tied parameter has one name in a file: its first */
        return tni_fail(f->file.ctx, TN_ERR_ARG, "%s: tensor %s %s is not a parameter", f->file.name.s, tni_quote(e->name).s,
                        TNI_SHAPE(e));
    }
    return TN_OK;
}

/* Sets the parameters to the values of the file, through the host, so that no kernel needs memory halfway. */
TNI_COLD_FN tn_status tni_params_set(tn_params *params, tn_tensor *const *value)
{
    tn_ctx     *ctx = tn_params_ctx(params);
    tni_scratch w = tni_scratch_begin(ctx, "parameters");
    size_t      widest = 0;
    for (int64_t i = 0; i < tn_params_count(params); i++)
        if (value[i] && value[i]->bytes > widest) widest = value[i]->bytes;
    void *host = tni_take(&w, 1, widest);
    if (!host) return TN_ERR_MEMORY;
    tn_status s = TN_OK;
    for (int64_t i = 0; i < tn_params_count(params) && s == TN_OK; i++) {
        if (!value[i] || value[i]->bytes == 0) continue;           /* nothing to set */
        tni_rewritten(tn_params_at(params, i)->value);
        s = tni_to_host(ctx, host, value[i]->data, value[i]->bytes);
        if (s == TN_OK) s = tni_to_device(ctx, tn_params_at(params, i)->value->data, host, value[i]->bytes);
    }
    return tni_scratch_end(&w, s == TN_OK ? s : tni_backend_fail(ctx, s, "parameters"));
}

/* All values are read, and all memory is there, before the first is changed. */
static tn_status tni_params_fill(const tn_safetensors *f, tn_params *params)
{
    int64_t     n = tn_params_count(params);
    tni_scratch w = tni_scratch_begin(f->file.ctx, "parameters");
    tn_tensor **value = (tn_tensor **)tni_take_zeroed(&w, n, sizeof *value);
    tn_status   s = TN_OK;
    if (!value) return TN_ERR_MEMORY;
    for (int64_t i = 0; i < n && s == TN_OK; i++)
        s = tni_entry_read(f, tn_safetensors_find(f, tn_params_at(params, i)->name), &value[i]);
    if (s == TN_OK) s = tni_params_set(params, value);
    for (int64_t i = 0; i < n; i++) tn_tensor_destroy(value[i]);
    return tni_scratch_end(&w, s);
}

tn_status tn_params_read(tn_params *params, tn_source source, tn_params_match match)
{
    tn_safetensors *f;
    if (!params) return TN_ERR_ARG;
    tn_status s = tni_safetensors_open(tn_params_ctx(params), &source, &f);
    if (s == TN_OK) s = tni_params_check(f, params, match);
    if (s == TN_OK) s = tni_params_fill(f, params);
    tn_safetensors_close(f);
    return s;
}

TNI_COLD tn_status tn_params_write(const tn_params *params, tn_sink sink, const tn_metadata *notes, int64_t note_count)
{
    tn_ctx *ctx = params ? tn_params_ctx(params) : NULL;
    int64_t n = params ? tn_params_count(params) : 0;
    if (!ctx) return TN_ERR_ARG;
    tni_scratch      w = tni_scratch_begin(ctx, "parameters");
    tn_named_tensor *named = (tn_named_tensor *)tni_take(&w, n, sizeof *named);
    if (!named) return TN_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        named[i].name = params->item[i]->name;
        named[i].tensor = params->item[i]->value;
    }
    return tni_scratch_end(&w, tn_safetensors_write(ctx, sink, named, n, notes, note_count));
}

/* The fewest digits that give exactly this number. */
TNI_UNUSED TNI_COLD_FN void tni_exact_text(char number[32], double v)
{
    double back = v;
    for (int digits = 15; digits <= 17; digits++) {
        int n = tni_format_double(number, v, digits);
        if (tni_parse_double(number, (size_t)n, &back) == (size_t)n && memcmp(&back, &v, sizeof v) == 0) return;
    }
}
