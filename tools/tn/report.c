/* report.c - tables of numbers for a terminal of 80 columns, or everything as one object of JSON */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool   json, in_table, first_row, first_key;
    buffer out, values;                 /* out: JSON so far; the others wait for the end */
    char **note;
    int    note_count, tables;
} report;

void report_begin(bool json)
{
    memset(&report, 0, sizeof report);
    report.json = json;
    report.first_key = true;
    if (json) buffer_print(&report.out, "{");
}

static void json_key(const char *key)
{
    buffer_print(&report.out, report.first_key ? "\n  " : ",\n  ");
    report.first_key = false;
    json_quote(&report.out, key, strlen(key));
    buffer_print(&report.out, ": ");
}

static void json_double(double v)
{
    char text[40];
    buffer_print(&report.out, "%s", isfinite(v) ? decimal_text(v, text, sizeof text) : "null");
}

static void end_table(void)
{
    if (report.json && report.in_table) buffer_print(&report.out, report.first_row ? "]" : "\n  ]");
    report.in_table = false;
}

enum { LEFT, RIGHT, LAST };

/* The bytes of the first `width` columns of a text, all of it if it is shorter; *columns: how many those are. A character is
   a column. */
static size_t columns_of(const char *text, int width, int *columns)
{
    const size_t bytes = strlen(text);
    size_t       at = 0;
    for (*columns = 0; at < bytes && *columns < width; ++*columns) {
        const int n = utf8_length(text + at, bytes - at);
        at += n ? (size_t)n : 1;
    }
    return at;
}

/* Prints the last cell of a row, which begins at column `indent`: a text that is too long goes on below, from its last space
   that fits. */
static void print_last(const char *text, int width, int indent)
{
    int columns;
    for (;;) {
        const size_t bytes = columns_of(text, width, &columns);
        size_t       end = bytes;
        if (text[bytes]) {
            while (end && text[end] != ' ') end--;
            if (!end) end = bytes;
        }
        print("%.*s", (int)end, text);
        text += end;
        while (*text == ' ') text++;
        if (!*text) return;
        print("\n%*s", indent, "");
    }
}

/* Prints a cell of `width` columns. */
static void print_cell(const char *text, int width, int place)
{
    int          columns;
    const size_t bytes = columns_of(text, width, &columns);
    if (place == RIGHT) print("%*s%s", text[bytes] ? 0 : width - columns, "", text);
    else if (text[bytes]) print("%.*s\xE2\x80\xA6", (int)columns_of(text, width - 1, &columns), text);
    else print("%s%*s", text, place == LAST ? 0 : width - columns, "");
}

static bool is_text(const column *c) { return !strcmp(c->format, "%s"); }
static int  place_of(const column *c) { return !is_text(c) ? RIGHT : c[1].key ? LEFT : LAST; }

void report_table(const char *key, const char *title, const column *columns)
{
    end_table();
    if (!report.json && report.tables++) print("\n");
    report.in_table = report.first_row = true;
    if (report.json) {
        json_key(key);
        buffer_print(&report.out, "[");
        return;
    }
    if (title) print_folded(title, 0, 0);
    for (int i = 0; columns[i].key; i++) {
        print("  ");
        print_cell(columns[i].title ? columns[i].title : columns[i].key, columns[i].width, place_of(&columns[i]));
    }
    print("\n");
}

void report_row(const column *columns, ...)
{
    va_list list;
    int     at = 0;
    char    text[64];
    va_start(list, columns);
    if (report.json) buffer_print(&report.out, report.first_row ? "\n    {" : ",\n    {");
    report.first_row = false;
    for (int i = 0; columns[i].key; i++) {
        const bool  words = is_text(&columns[i]);
        const char *s = words ? va_arg(list, const char *) : NULL;
        double      v = words ? 0 : va_arg(list, double);
        if (report.json) {
            buffer_print(&report.out, "%s\"%s\": ", i ? ", " : "", columns[i].key);
            if (words) json_quote(&report.out, s, strlen(s));
            else json_double(v);
            continue;
        }
        print("  ");
        if (!words && isnan(v)) s = "-";
        else if (!words) snprintf(text, sizeof text, columns[i].format, v), s = text;
        at += 2;
        if (place_of(&columns[i]) == LAST) print_last(s, columns[i].width, at);
        else print_cell(s, columns[i].width, place_of(&columns[i]));
        at += columns[i].width;
    }
    va_end(list);
    if (report.json) buffer_print(&report.out, "}");
    else print("\n");
}

void report_note(const char *format, ...)
{
    va_list list;
    char    text[2048];
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (int i = 0; i < report.note_count; i++) if (!strcmp(report.note[i], text)) return;
    report.note = (char **)resize(report.note, (size_t)report.note_count + 1, sizeof *report.note);
    report.note[report.note_count++] = copy_text(text);
}

const char *report_note_at(int i) { return i < report.note_count ? report.note[i] : NULL; }

void report_value(const char *name, const char *format, double v)
{
    char text[64];
    if (report.json) {
        end_table();
        json_key(name);
        json_double(v);
        return;
    }
    snprintf(text, sizeof text, format, v);
    buffer_print(&report.values, "%s: %s\n", name, isnan(v) ? "-" : text);
}

void report_text(const char *name, const char *text)
{
    if (report.json) {
        end_table();
        json_key(name);
        json_quote(&report.out, text, strlen(text));
    } else buffer_show(&report.values, "%s: %s\n", name, text);
}

void report_end(void)
{
    end_table();
    if (report.json) {
        json_key("notes");
        buffer_print(&report.out, "[");
        for (int i = 0; i < report.note_count; i++) {
            buffer_print(&report.out, i ? ", " : "");
            json_quote(&report.out, report.note[i], strlen(report.note[i]));
        }
        buffer_print(&report.out, "]\n}\n");
        print_text(report.out.data, report.out.bytes);
    } else {
        for (int i = 0; i < report.note_count; i++) {
            print("\n");
            print_folded(report.note[i], 0, 0);
        }
        print("\n");
        print_text(report.values.data, report.values.bytes);
    }
    for (int i = 0; i < report.note_count; i++) free(report.note[i]);
    free(report.note);
    free(report.out.data);
    free(report.values.data);
}
