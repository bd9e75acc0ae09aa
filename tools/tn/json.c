/* json.c - strings as JSON, and the values in a line that is a JSON object */
#include "tn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_printable(const char *character, size_t bytes)
{
    char copy[4];
    memcpy(copy, character, bytes);
    return tn_printable(copy, bytes, false) == bytes && !memcmp(copy, character, bytes);
}

/* Adds a character as its units of UTF-16. */
static void quote_units(buffer *b, const char *character, int bytes)
{
    unsigned c = (unsigned char)character[0];
    int      i;
    if (bytes > 1) for (c &= 0x7Fu >> bytes, i = 1; i < bytes; i++) c = c << 6 | ((unsigned char)character[i] & 0x3F);
    if (c >= 0x10000) buffer_print(b, "\\u%04x", 0xD7C0 + (c >> 10));
    buffer_print(b, "\\u%04x", c < 0x10000 ? c : 0xDC00 + (c & 0x3FF));
}

/* What a terminal could obey is escaped: lines of JSON are printed, too. */
void json_quote(buffer *b, const char *text, size_t bytes)
{
    size_t i = 0;
    buffer_add(b, "\"", 1);
    while (i < bytes) {
        unsigned char c = (unsigned char)text[i];
        int           n = utf8_length(text + i, bytes - i);
        if (n == 0) buffer_add(b, "\xEF\xBF\xBD", 3);
        else if (c == '"' || c == '\\') buffer_print(b, "\\%c", c);
        else if (c == '\n') buffer_add(b, "\\n", 2);
        else if (is_printable(text + i, (size_t)n)) buffer_add(b, text + i, (size_t)n);
        else quote_units(b, text + i, n);
        i += n ? (size_t)n : 1;
    }
    buffer_add(b, "\"", 1);
}

typedef struct scan { const char *at, *end; } scan;

static void skip_space(scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')) s->at++;
}

static bool take(scan *s, char c)
{
    skip_space(s);
    if (s->at >= s->end || *s->at != c) return false;
    s->at++;
    return true;
}

/* Skips a string. */
static bool skip_string(scan *s)
{
    if (!take(s, '"')) return false;
    while (s->at < s->end && *s->at != '"') {
        if ((unsigned char)*s->at < 0x20) return false;
        s->at += *s->at == '\\' && s->end - s->at > 1 ? 2 : 1;
    }
    return take(s, '"');
}

/* Skips a value. Nesting is counted, not checked. */
static bool skip_value(scan *s)
{
    int64_t depth = 0;
    do {
        skip_space(s);
        if (s->at >= s->end) return false;
        if (*s->at == '"') {
            if (!skip_string(s)) return false;
        } else if (*s->at == '{' || *s->at == '[') {
            depth++;
            s->at++;
        } else if (*s->at == '}' || *s->at == ']') {
            if (depth == 0) return false;
            depth--;
            s->at++;
        } else if (*s->at == ',' || *s->at == ':') {
            if (depth == 0) return false;
            s->at++;
        } else {
            const char *from = s->at;
            while (s->at < s->end && *s->at && !strchr(" \t\r\n,:]}[{\"", *s->at)) s->at++;
            if (s->at == from) return false;             /* a zero byte */
        }
    } while (depth > 0);
    return true;
}

const char *json_find(const char *line, const char *end, const char *key, const char **to, const char **bad)
{
    scan        s = {line, end};
    const char *found = NULL;
    buffer      name = {0};
    *bad = NULL;
    *to = NULL;
    if (!take(&s, '{')) *bad = "expected {";
    if (!*bad && !take(&s, '}')) {
        do {
            skip_space(&s);
            const char *from = s.at;
            name.bytes = 0;
            if (!skip_string(&s) || !json_unquote(from, s.at, &name) || !take(&s, ':'))
                { *bad = "expected a key in quotes and a colon"; break; }
            skip_space(&s);
            from = s.at;
            if (!skip_value(&s)) { *bad = "incomplete value"; break; }
            if (!strcmp(name.data, key)) {            /* of duplicate keys the last one counts */
                found = from;
                *to = s.at;
            }
        } while (take(&s, ','));
        if (!*bad && !take(&s, '}')) *bad = "expected a comma or }";
    }
    skip_space(&s);
    if (!*bad && s.at < s.end) *bad = "unexpected text after }";
    free(name.data);
    if (*bad) *to = s.at;
    return *bad ? NULL : found;
}

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int  d = c >= '0' && c <= '9' ? c - '0' : -1;
        if (c >= 'a' && c <= 'f') d = c - 'a' + 10;
        if (c >= 'A' && c <= 'F') d = c - 'A' + 10;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static void add_character(buffer *b, int c)
{
    char u[4];
    if (c < 0x80) {
        u[0] = (char)c;
        buffer_add(b, u, 1);
    } else if (c < 0x800) {
        u[0] = (char)(0xC0 | c >> 6);
        u[1] = (char)(0x80 | (c & 63));
        buffer_add(b, u, 2);
    } else if (c < 0x10000) {
        u[0] = (char)(0xE0 | c >> 12);
        u[1] = (char)(0x80 | (c >> 6 & 63));
        u[2] = (char)(0x80 | (c & 63));
        buffer_add(b, u, 3);
    } else {
        u[0] = (char)(0xF0 | c >> 18);
        u[1] = (char)(0x80 | (c >> 12 & 63));
        u[2] = (char)(0x80 | (c >> 6 & 63));
        u[3] = (char)(0x80 | (c & 63));
        buffer_add(b, u, 4);
    }
}

bool json_unquote(const char *from, const char *to, buffer *out)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    buffer_add(out, "", 0);
    if (to - from < 2 || *from != '"' || to[-1] != '"') return false;
    for (from++, to--; from < to; from++) {
        int c, low;
        if (*from != '\\') {
            buffer_add(out, from, 1);
            continue;
        }
        if (++from >= to) return false;
        const char *letter = strchr(letters, *from);
        if (*from && letter) {
            buffer_add(out, values + (letter - letters), 1);
            continue;
        }
        if (*from != 'u' || to - from < 5 || (c = hex4(from + 1)) < 0) return false;
        from += 4;
        if (c >= 0xD800 && c < 0xDC00 && to - from > 6 && from[1] == '\\' && from[2] == 'u' &&
            (low = hex4(from + 3)) >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
            from += 6;
        } else if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;              /* unpaired surrogate */
        add_character(out, c);
    }
    return true;
}

double json_number(const char *line, const char *end, const char *key)
{
    const char *to, *bad, *from = json_find(line, end, key, &to, &bad);
    char        text[64];
    if (!from || to - from >= (ptrdiff_t)sizeof text || !strchr("-0123456789", *from)) return NAN;
    memcpy(text, from, (size_t)(to - from));
    text[to - from] = 0;
    return strtod(text, NULL);
}

bool json_true(const char *line, const char *end, const char *key)
{
    const char *to, *bad, *from = json_find(line, end, key, &to, &bad);
    return from && *from == 't';
}
