/* look_page.c - tn look, tn demo: the page, from a template, one object of JSON and one block of bytes */
#include "look.h"
#include "build/look_assets.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON within HTML --------------------------------------------------------------------------------------------------
   A script element ends at the first </script, whatever is quoted around it, and some readers of JavaScript take U+2028 and
   U+2029 for ends of lines: these characters, and controls that a person would not see, are written as numbers. */

static void add_json_text(buffer *b, const char *text)
{
    buffer q = {0};
    json_quote(&q, text, strlen(text));
    for (size_t i = 0; i < q.bytes; i++) {
        const unsigned char *s = (const unsigned char *)q.data + i;
        if (*s == '<' || *s == '>' || *s == '&') buffer_print(b, "\\u%04x", *s);
        else if (s[0] == 0xE2 && s[1] == 0x80 && (s[2] == 0xA8 || s[2] == 0xA9)) {
            buffer_print(b, "\\u20%02x", s[2] - 0x80);
            i += 2;
        } else if (s[0] == 0xC2 && s[1] < 0xA0) {               /* U+0080 to U+009F */
            buffer_print(b, "\\u00%02x", s[1]);
            i++;
        } else buffer_add(b, s, 1);
    }
    free(q.data);
}

/* What stands before a value: a comma, unless it is the first, and its key. */
static void add_key(page *p, const char *key)
{
    const char last = p->json.bytes ? p->json.data[p->json.bytes - 1] : '{';
    if (last != '{' && last != '[') buffer_add(&p->json, ",\n", 2);
    if (key) {
        add_json_text(&p->json, key);
        buffer_add(&p->json, ":", 1);
    }
}

static void add_number(buffer *b, double v)
{
    char text[40];
    if (!isfinite(v)) buffer_print(b, "null");
    else if (v == rint(v) && fabs(v) < 1e15) buffer_print(b, "%.0f", v);
    else buffer_print(b, "%s", decimal_text(v, text, sizeof text));
}

void page_open(page *p, const char *key, char bracket)
{
    add_key(p, key);
    buffer_add(&p->json, &bracket, 1);
}

void page_close(page *p, char bracket) { buffer_add(&p->json, &bracket, 1); }

void page_text(page *p, const char *key, const char *text)
{
    add_key(p, key);
    add_json_text(&p->json, text);
}

void page_number(page *p, const char *key, double v)
{
    add_key(p, key);
    add_number(&p->json, v);
}

void page_flag(page *p, const char *key, bool v)
{
    add_key(p, key);
    buffer_print(&p->json, v ? "true" : "false");
}

void page_names(page *p, const char *key, const char *const *names, int64_t count)
{
    page_open(p, key, '[');
    for (int64_t i = 0; i < count; i++) page_text(p, NULL, names[i]);
    page_close(p, ']');
}

void page_nonfinite(const char *name, const tn_tensor *t, int64_t bad, const char *left)
{
    static bool warned;
    char       *text = format_text("%s has %lld numbers that are NaN or infinite, of %lld: %s", name, (long long)bad,
                                   (long long)tn_tensor_count(t), left);
    page_note("%s.", text);
    if (!warned) warn("%s", text);
    warned = true;
    free(text);
}

void page_section(page *p, const char *type, const char *id, const char *title, const char *text)
{
    show_stage("%s", title);
    page_open(p, NULL, '{');
    page_text(p, "type", type);
    page_text(p, "id", id);
    page_text(p, "title", title);
    if (text) page_text(p, "text", text);
}

static char  **notes;
static int64_t note_count;

void page_note(const char *format, ...)
{
    va_list list;
    char    text[1024];
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (int64_t i = 0; i < note_count; i++) if (!strcmp(notes[i], text)) return;
    notes = (char **)resize(notes, (size_t)note_count + 1, sizeof *notes);
    notes[note_count++] = copy_text(text);
}

char *plain_reason(const char *why)
{
    const char *from = why + strspn(why, "abcdefghijklmnopqrstuvwxyz0123456789_"), *end = strstr(why, ", expected");
    from = from > why && !strncmp(from, ": ", 2) && memchr(why, '_', (size_t)(from - why)) ? from + 2 : why;
    return format_text("%.*s", (int)((end && end > from ? end : why + strlen(why)) - from), from);
}

const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* The last parts of a path, without a slash at its end and the ending of the file. */
static char *last_parts(const char *path, int count)
{
    size_t      n = strlen(path);
    const char *name, *dot;
    while (n > 1 && path[n - 1] == '/') n--;
    name = path + n;
    do {
        if (name > path) name--;
        while (name > path && name[-1] != '/') name--;
    } while (--count && name > path + 1);
    n -= (size_t)(name - path);
    for (dot = name + n; dot > name && *dot != '.' && *dot != '/'; ) dot--;
    if (dot > name && (!strncmp(dot, ".safetensors", 12) || !strncmp(dot, ".npy", 4))) n = (size_t)(dot - name);
    if (!n || *name == '.' || *name == '/') return copy_text("look");
    return format_text("%.*s", (int)n, name);
}

char *base_name(const char *path) { return last_parts(path, 1); }

void names_of_two(const char *a, const char *b, char *names[2])
{
    names[0] = base_name(a);
    names[1] = base_name(b);
    if (!strcmp(names[0], names[1])) {
        free(names[0]);
        free(names[1]);
        names[0] = last_parts(a, 2);
        names[1] = last_parts(b, 2);
    }
    if (!strcmp(names[0], names[1])) {
        free(names[1]);
        names[1] = format_text("%s (the other)", names[0]);
    }
}

void page_two(page *p, const char *a, const char *b, const char *const columns[][3], size_t count)
{
    char *pair[2];
    names_of_two(a, b, pair);
    page_text(p, "a", pair[0]);
    page_text(p, "b", pair[1]);
    free(pair[0]);
    free(pair[1]);
    page_open(p, "columns", '[');
    for (size_t k = 0; k < count; k++) page_names(p, NULL, columns[k], 3);
    page_close(p, ']');
}

/* A text without the folders of the absolute paths in it: a page is sent to others. */
static char *without_folders(const char *text)
{
    buffer b = {0};
    for (const char *at = text; *at; ) {
        const bool   begins = *at == '/' && (at == text || strchr(" \"'(", at[-1]));
        const size_t n = begins ? strcspn(at, " \"'(),;") : 1;
        size_t       skip = 0;
        for (size_t k = 0; begins && k + 1 < n; k++) if (at[k] == '/') skip = k + 1;
        buffer_add(&b, at + skip, n - skip);
        at += n;
    }
    buffer_add(&b, "", 1);
    return b.data;
}

char *grouped(int64_t n)
{
    char *text = format_text("%lld", (long long)n);
    for (size_t at = strlen(text); at > 3; ) {
        at -= 3;
        char *more = format_text("%.*s,%s", (int)at, text, text + at);
        free(text);
        text = more;
    }
    return text;
}

void page_row(page *p, const char *label, const char *format, ...)
{
    va_list list;
    char    text[1024];
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    page_open(p, NULL, '[');
    page_text(p, NULL, label);
    page_text(p, NULL, text);
    page_close(p, ']');
}

/* ---- arrays, in the order of bytes of most machines -------------------------------------------------------------------- */

static size_t align_blob(page *p)
{
    while (p->blob.bytes % 8) buffer_add(&p->blob, "", 1);
    return p->blob.bytes;
}

static void add_little(buffer *b, const void *number, size_t bytes)
{
    const unsigned short one = 1;
    unsigned char        own[8], turned[8];
    memcpy(own, number, bytes);
    for (size_t i = 0; i < bytes; i++) turned[i] = own[*(const unsigned char *)&one ? i : bytes - 1 - i];
    buffer_add(b, turned, bytes);
}

static void add_f32(buffer *b, double v)
{
    const float f = (float)v;
    add_little(b, &f, sizeof f);
}

/* The scale of a row, and a number of it in this scale. */
static double scale_of(const double *row, int64_t n)
{
    double high = 0;
    for (int64_t i = 0; i < n; i++) high = fmax(high, fabs(row[i]));
    return (double)(float)(high / 127);
}

static double in_scale(double v, double scale)
{
    const double q = scale > 0 ? rint(v / scale) : 0;
    return isnan(q) ? 0 : q > 127 ? 127 : q < -127 ? -127 : q;
}

void round_to_q8(int64_t rows, int64_t n, double *v)
{
    for (int64_t r = 0; r < rows; r++) {
        const double scale = scale_of(v + r * n, n);
        for (int64_t i = 0; i < n; i++) v[r * n + i] = scale * in_scale(v[r * n + i], scale);
    }
}

/* The numbers of rows [rows,n] as bytes; then the scales of the rows. */
static void store_q8(page *p, stored *a, int64_t rows, int64_t n, const double *v)
{
    double most = 0, worst = 0, *scale = (double *)allocate((size_t)rows, sizeof *scale);
    for (int64_t r = 0; r < rows; r++) {
        scale[r] = scale_of(v + r * n, n);
        most = fmax(most, 127 * scale[r]);
        for (int64_t i = 0; i < n; i++) {
            const signed char byte = (signed char)in_scale(v[r * n + i], scale[r]);
            worst = fmax(worst, fabs(v[r * n + i] - byte * scale[r]));
            buffer_add(&p->blob, &byte, 1);
        }
    }
    a->error = most > 0 ? worst / most : 0;
    a->scales = align_blob(p);
    for (int64_t r = 0; r < rows; r++) add_f32(&p->blob, scale[r]);
    free(scale);
}

stored page_store(page *p, array_type type, int rank, const int64_t *shape, const double *v)
{
    stored  a;
    int64_t n = 1;
    memset(&a, 0, sizeof a);
    a.type = type;
    a.rank = rank;
    for (int k = 0; k < rank; k++) n *= a.shape[k] = shape[k];
    a.at = align_blob(p);
    if (type == ARRAY_Q8) {
        const int64_t last = rank ? shape[rank - 1] : 1;
        store_q8(p, &a, last ? n / last : 0, last, v);
        return a;
    }
    for (int64_t i = 0; i < n; i++) {
        if (type == ARRAY_F32) add_f32(&p->blob, v[i]);
        else add_little(&p->blob, &v[i], sizeof v[i]);
    }
    return a;
}

stored page_store_bytes(page *p, const void *bytes, size_t count)
{
    stored a;
    memset(&a, 0, sizeof a);
    a.type = ARRAY_U8;
    a.rank = 1;
    a.shape[0] = (int64_t)count;
    a.at = align_blob(p);
    buffer_add(&p->blob, bytes, count);
    return a;
}

void page_array(page *p, const char *key, const stored *a)
{
    static const char *const words[] = {"f32", "f64", "u8", "q8"};
    page_open(p, key, '{');
    page_number(p, "at", (double)a->at);
    page_open(p, "shape", '[');
    for (int k = 0; k < a->rank; k++) page_number(p, NULL, (double)a->shape[k]);
    page_close(p, ']');
    page_text(p, "type", words[a->type]);
    if (a->type == ARRAY_Q8) {
        page_number(p, "scales", (double)a->scales);
        page_number(p, "error", a->error);
    }
    page_close(p, '}');
}

void page_numbers(page *p, const char *key, array_type type, int rank, const int64_t *shape, const double *v)
{
    const stored a = page_store(p, type, rank, shape, v);
    page_array(p, key, &a);
}

void page_vector(page *p, const char *key, array_type type, int64_t n, const double *v)
{
    page_numbers(p, key, type, 1, &n, v);
}

void page_open_live(page *p)
{
    if (!p->wasm.bytes)
        warn("the page has no live part: this tn was built without a compiler for WebAssembly (sh tools/setup.sh --look "
             "installs one; then build tn again)");
    page_open(p, "live", '{');
}

/* ---- what a page is of ------------------------------------------------------------------------------------------------- */

static const limited_option limited[] = {
    {"vectors", LOOK_LANGUAGE | LOOK_LAYERS}, {"within-null", LOOK_LANGUAGE | LOOK_LAYERS},
    {"outputs", LOOK_LANGUAGE | LOOK_LAYERS}, {"against", LOOK_LANGUAGE | LOOK_LAYERS},
    {"data", LOOK_LAYERS}, {"labels", LOOK_LAYERS}, {"examples", LOOK_LAYERS}, {"names", LOOK_LAYERS}, {"pixels", LOOK_LAYERS},
    {"residual", LOOK_LAYERS}, {"w", LOOK_LAYERS}, {"text", LOOK_LANGUAGE}, {"token", LOOK_LANGUAGE},
    {"tokenizer", LOOK_LANGUAGE}, {NULL, 0}
};

void look_is_of(int what)
{
    check_limited(&look_usage, limited, what, "a .npy file|a language model|a network of bilinear layers|a file of other tensors|"
                  "several runs");
}

/* ---- the whole --------------------------------------------------------------------------------------------------------- */

void page_begin(page *p, const char *made_by, const char *kind, const char *title)
{
    memset(p, 0, sizeof *p);
    p->title = copy_text(title);
    p->title[tn_printable(p->title, strlen(title), false)] = 0;       /* of the window, not within JSON */
    p->wasm.data = look_wasm;
    p->wasm.bytes = look_wasm_size;
    page_open(p, NULL, '{');
    page_number(p, "format", 1);
    page_text(p, "kind", kind);
    page_text(p, "title", title);
    char *made = format_text("tensornet.h %s, tn %s", tn_version(), made_by);
    page_text(p, "made", made);
    free(made);
}

static bool store_text(atomic_file *f, const char *text) { return atomic_store(f, text, strlen(text)); }

static bool store_html(atomic_file *f, const char *text)
{
    bool good = true;
    for (; good && *text; text++)
        good = *text == '<' ? store_text(f, "&lt;") : *text == '&' ? store_text(f, "&amp;") : *text == '"'
             ? store_text(f, "&quot;") : atomic_store(f, text, 1);
    return good;
}

/* RFC 4648 */
static bool store_base64(atomic_file *f, const unsigned char *s, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bool   good = true;
    for (size_t i = 0; good && i < bytes; i += 3) {
        const unsigned second = i + 1 < bytes ? s[i + 1] : 0, third = i + 2 < bytes ? s[i + 2] : 0;
        const unsigned b = (unsigned)s[i] << 16 | second << 8 | third;
        char           four[4];
        four[0] = digits[b >> 18];
        four[1] = digits[b >> 12 & 63];
        four[2] = i + 1 < bytes ? digits[b >> 6 & 63] : '=';
        four[3] = i + 2 < bytes ? digits[b & 63] : '=';
        good = atomic_store(f, four, 4);
    }
    return good;
}

/* Whether {{name}} is at `at`. Other braces of the template are those of its scripts. */
static bool is_place(const char *at, const char *end, const char *name)
{
    const size_t n = strlen(name);
    return (size_t)(end - at) >= n + 4 && !memcmp(at + 2, name, n) && !memcmp(at + 2 + n, "}}", 2);
}

/* Texts that go into the template as they are. */
static bool store_parts(atomic_file *f, const page_part *part, int count)
{
    bool good = true;
    for (int k = 0; good && k < count; k++) good = !part[k].bytes || atomic_store(f, part[k].data, part[k].bytes);
    return good;
}

static bool store_page(page *p, atomic_file *f)
{
    enum { PLACES = 6 };
    static const char *const names[PLACES] = {"title", "data", "blob", "wasm", "style", "script"};
    const char *at = (const char *)look_template, *end = at + look_template_size, *place;
    bool        good = true;
    int         k;
    while (good && (place = find_text(at, (size_t)(end - at), "{{")) != NULL) {
        good = atomic_store(f, at, (size_t)(place - at));
        for (k = 0; k < PLACES && !is_place(place, end, names[k]); k++) continue;
        at = place + (k < PLACES ? strlen(names[k]) + 4 : 2);
        if (k == PLACES) good = good && store_text(f, "{{");
        if (k == 0) good = good && store_html(f, p->title);
        if (k == 1) good = good && atomic_store(f, p->json.data, p->json.bytes);
        if (k == 2) good = good && store_base64(f, (const unsigned char *)p->blob.data, p->blob.bytes);
        if (k == 3) good = good && store_base64(f, p->wasm.data, p->wasm.bytes);
        if (k == 4) good = good && store_parts(f, &p->style, 1);
        if (k == 5) good = good && store_parts(f, p->script, 2);
    }
    return good && atomic_store(f, at, (size_t)(end - at));
}

void page_write(page *p, const char *path, path_kind kind)
{
    atomic_file f;
    const char *note;
    for (int i = 0; (note = report_note_at(i)) != NULL; i++) if (strstr(note, "is left out")) page_note("%s", note);
    page_open(p, "notes", '[');
    for (int64_t i = 0; i < note_count; i++) {
        char *text = without_folders(notes[i]);
        page_text(p, NULL, text);
        free(text);
    }
    page_close(p, ']');
    page_close(p, '}');
    if (!atomic_open(&f, path, kind) || !store_page(p, &f) || !atomic_commit(&f)) fail("%s", f.why);
    free(p->json.data);
    free(p->blob.data);
    free(p->title);
}
