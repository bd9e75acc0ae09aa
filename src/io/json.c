#include "core/inner.h"
#include "io/inner.h"

#if !defined(TN_NO_TEXT) || !defined(TN_NO_MODELS)
/* ---- JSON --------------------------------------------------------------- >>io-json
   A file as a tree. Values are numbered in the order in which they begin, so that nothing recurses, however deep a file is.
   Value 0 is not in the file: it is the parent of the root. Strings stay where they are in the text. */

#define TNI_JSON_MOST (64 << 20)

static bool tni_json_digits(tni_scan *s)
{
    size_t first = s->at;
    while (s->at < s->bytes && s->text[s->at] >= '0' && s->text[s->at] <= '9') s->at++;
    return s->at > first || tni_scan_unexpected(s, "a digit");
}

static bool tni_json_number(tni_scan *s, uint64_t *out)
{
    size_t first = s->at, i;
    bool   natural = true;
    if (s->text[s->at] == '-') { natural = false; s->at++; first++; }
    if (!tni_json_digits(s)) return false;
    if (s->text[first] == '0' && s->at - first > 1) return tni_scan_fail(s, "a number has a leading zero");
    for (*out = 0, i = first; natural && i < s->at; i++) {
        natural = *out <= UINT64_MAX / 100;
        *out = *out * 10 + (uint64_t)(s->text[i] - '0');
    }
    if (s->at < s->bytes && s->text[s->at] == '.') {
        natural = false;
        s->at++;
        if (!tni_json_digits(s)) return false;
    }
    if (s->at < s->bytes && (s->text[s->at] | 32) == 'e') {
        natural = false;
        s->at++;
        if (s->at < s->bytes && (s->text[s->at] == '+' || s->text[s->at] == '-')) s->at++;
        if (!tni_json_digits(s)) return false;
    }
    if (!natural) *out = UINT64_MAX;
    return true;
}

/* The value that begins here; only the bracket of an object or array. */
static bool tni_json_begin(tni_scan *s, tni_value *v)
{
    static const char *const word[] = {"null", "false", "true"};
    tni_scan_space(s);
    v->at = (uint32_t)s->at;
    if (s->at == s->bytes) return tni_scan_unexpected(s, "a value");
    for (int k = 0; k < 3; k++) {
        size_t n = strlen(word[k]);
        if (n > s->bytes - s->at || memcmp(s->text + s->at, word[k], n) != 0) continue;
        v->kind = (tni_json_kind)k;
        s->at += n;
        return true;
    }
    if (s->text[s->at] == '"') {
        const char *string;
        if (!tni_scan_string(s, &string)) return false;
        v->kind = TNI_JSON_STRING;
        v->string = (uint32_t)(string - s->text);
        return true;
    }
    if (s->text[s->at] == '-' || (s->text[s->at] >= '0' && s->text[s->at] <= '9')) {
        v->kind = TNI_JSON_NUMBER;
        return tni_json_number(s, &v->number);
    }
    v->kind = tni_scan_take(s, '{') ? TNI_JSON_OBJECT : TNI_JSON_ARRAY;
    return v->kind == TNI_JSON_OBJECT || tni_scan_take(s, '[') || tni_scan_unexpected(s, "a value");
}

/* Parses the next value inside value `up`. Returns its number, 0 on error. */
static uint32_t tni_json_add(tni_json *j, uint32_t up)
{
    const char *key = NULL;
    uint32_t    i = (uint32_t)j->values.count;
    if (tni_json_at(j, up)->kind == TNI_JSON_OBJECT
        && (!tni_scan_string(&j->scan, &key) || !tni_scan_expect(&j->scan, ':'))) return 0;
    tni_value *v = (tni_value *)tni_list_add(j->file.ctx, &j->values, "JSON");
    if (!v || !tni_json_begin(&j->scan, v)) return 0;
    v->key = key ? (uint32_t)(key - j->scan.text) : 0;
    v->up = up;
    v = tni_json_at(j, up);
    if (v->child == 0) v->child = i;
    else tni_json_at(j, v->last)->next = i;
    v->last = i;
    return i;
}

static bool tni_json_parse(tni_json *j)
{
    tni_scan *s = &j->scan;
    uint32_t  up = 0;
    if (!tni_list_add(j->file.ctx, &j->values, "JSON")) return false;
    tni_json_at(j, 0)->kind = TNI_JSON_ARRAY;
    do {
        uint32_t i;
        if ((i = tni_json_add(j, up)) == 0) return false;
        const tni_value *v = tni_json_at(j, i);
        if (v->kind >= TNI_JSON_ARRAY && !tni_scan_take(s, v->kind == TNI_JSON_ARRAY ? ']' : '}')) { up = i; continue; }
        while (up != 0 && !tni_scan_take(s, ',')) {
            v = tni_json_at(j, up);
            if (!tni_scan_expect(s, v->kind == TNI_JSON_ARRAY ? ']' : '}')) return false;
            up = v->up;
        }
    } while (up != 0);
    tni_scan_space(s);
    return s->at == s->bytes || tni_scan_unexpected(s, "the end of the file");
}

TNI_COLD_FN bool tni_json_open(tni_json *j, tn_ctx *ctx, const tn_source *source)
{
    memset(j, 0, sizeof *j);
    j->values.each = sizeof(tni_value);
    if (tni_reader_open(&j->file, ctx, source) != TN_OK) return false;
    if (j->file.bytes > (uint64_t)TNI_JSON_MOST) {
        tni_reader_fail(&j->file, TN_ERR_FORMAT, 0, "the file has %llu bytes, expected at most %d of JSON",
                        (unsigned long long)j->file.bytes, TNI_JSON_MOST);
        return false;
    }
    j->file.is_text = true;                                  /* what is wrong from here on has a line and a column */
    j->scan.file = &j->file;
    j->scan.text = (char *)tni_alloc(ctx, (size_t)j->file.bytes, "JSON");
    if (!j->scan.text) return false;
    j->scan.bytes = (size_t)j->file.bytes;
    return tni_reader_get(&j->file, 0, j->scan.text, j->scan.bytes) == TN_OK && tni_json_parse(j);
}

TNI_COLD_FN void tni_json_close(tni_json *j)
{
    tni_reader_close(&j->file);
    tni_free(j->file.ctx, j->scan.text, j->scan.bytes);
    tni_list_free(j->file.ctx, &j->values);
}

TNI_COLD_FN const tni_value *tni_json_child(const tni_json *j, const tni_value *v)
{
    return v && v->child != 0 ? tni_json_at(j, v->child) : NULL;
}

TNI_COLD_FN const tni_value *tni_json_next(const tni_json *j, const tni_value *v)
{
    return v->next != 0 ? tni_json_at(j, v->next) : NULL;
}

TNI_COLD_FN const char *tni_json_key(const tni_json *j, const tni_value *v) { return j->scan.text + v->key; }

TNI_COLD_FN bool tni_json_is(const tni_value *v, tni_json_kind kind) { return v && v->kind == kind; }

/* The value of a key; NULL if there is none or this is not an object. A duplicate key is an error. */
TNI_COLD_FN const tni_value *tni_json_get(tni_json *j, const tni_value *object, const char *key)
{
    const tni_value *found = NULL, *v = tni_json_is(object, TNI_JSON_OBJECT) ? tni_json_child(j, object) : NULL;
    for (; v; v = tni_json_next(j, v)) {
        if (strcmp(tni_json_key(j, v), key) != 0) continue;
        if (found) {
            j->twice = true;
            tni_reader_fail(&j->file, TN_ERR_FORMAT, v->at, "duplicate key %s", tni_quote(key).s);
        }
        found = v;
    }
    return found;
}
#endif

/* ---- paths -------------------------------------------------------------- >>io-paths */

#ifndef TN_NO_STDIO
tn_status  tn_params_load(tn_params *ps, const char *path) { return tn_params_read(ps, tn_source_path(path), TN_MATCH_ALL); }
tn_status  tn_params_save(const tn_params *ps, const char *path) { return tn_params_write(ps, tn_sink_path(path), NULL, 0); }
tn_tensor *tn_npy_load(tn_ctx *ctx, const char *path) { return tn_npy_read(ctx, tn_source_path(path)); }
tn_status  tn_npy_save(const tn_tensor *t, const char *path) { return tn_npy_write(t, tn_sink_path(path)); }
tn_tensor *tn_idx_load(tn_ctx *ctx, const char *path, double scale) { return tn_idx_read(ctx, tn_source_path(path), scale); }
#endif
