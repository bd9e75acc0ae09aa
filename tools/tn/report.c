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

/* Prints a cell of `width` columns; a text is cut if it is longer. A character is a column. LAST: left, nothing follows. */
static void print_cell(const char *text, int width, int place)
{
    size_t bytes = strlen(text), at = 0, cut = 0;
    int    columns = 0;
    while (at < bytes) {
        const int n = utf8_length(text + at, bytes - at);
        if (++columns == width) cut = at;
        at += n ? (size_t)n : 1;
    }
    if (columns > width && place != RIGHT) printf("%.*s\xE2\x80\xA6", (int)cut, text);
    else if (place == RIGHT) printf("%*s%s", columns < width ? width - columns : 0, "", text);
    else printf("%s%*s", text, place == LAST ? 0 : width - columns, "");
}

static bool is_text(const column *c) { return !strcmp(c->format, "%s"); }
static int  place_of(const column *c) { return !is_text(c) ? RIGHT : c[1].key ? LEFT : LAST; }

void report_table(const char *key, const char *title, const column *columns)
{
    int i;
    end_table();
    if (!report.json && report.tables++) printf("\n");
    report.in_table = report.first_row = true;
    if (report.json) {
        json_key(key);
        buffer_print(&report.out, "[");
        return;
    }
    if (title) print_folded(title, 0, 0);
    for (i = 0; columns[i].key; i++) {
        printf("  ");
        print_cell(columns[i].title ? columns[i].title : columns[i].key, columns[i].width, place_of(&columns[i]));
    }
    printf("\n");
}

void report_row(const column *columns, ...)
{
    va_list list;
    int     i;
    char    text[64];
    va_start(list, columns);
    if (report.json) buffer_print(&report.out, report.first_row ? "\n    {" : ",\n    {");
    report.first_row = false;
    for (i = 0; columns[i].key; i++) {
        const bool  words = is_text(&columns[i]);
        const char *s = words ? va_arg(list, const char *) : NULL;
        double      v = words ? 0 : va_arg(list, double);
        if (report.json) {
            buffer_print(&report.out, "%s\"%s\": ", i ? ", " : "", columns[i].key);
            if (words) json_quote(&report.out, s, strlen(s));
            else json_double(v);
            continue;
        }
        printf("  ");
        if (!words && isnan(v)) s = "-";
        else if (!words) snprintf(text, sizeof text, columns[i].format, v), s = text;
        print_cell(s, columns[i].width, place_of(&columns[i]));
    }
    va_end(list);
    if (report.json) buffer_print(&report.out, "}");
    else printf("\n");
}

void report_note(const char *format, ...)
{
    va_list list;
    char    text[2048];
    int     i;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (i = 0; i < report.note_count; i++) if (!strcmp(report.note[i], text)) return;
    report.note = (char **)resize(report.note, (size_t)report.note_count + 1, sizeof *report.note);
    report.note[report.note_count++] = copy_text(text);
}

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
    } else buffer_print(&report.values, "%s: %s\n", name, text);
}

void report_end(void)
{
    int i;
    end_table();
    if (report.json) {
        json_key("notes");
        buffer_print(&report.out, "[");
        for (i = 0; i < report.note_count; i++) {
            buffer_print(&report.out, i ? ", " : "");
            json_quote(&report.out, report.note[i], strlen(report.note[i]));
        }
        buffer_print(&report.out, "]\n}\n");
        fwrite(report.out.data, 1, report.out.bytes, stdout);
    } else {
        for (i = 0; i < report.note_count; i++) {
            printf("\n");
            print_folded(report.note[i], 0, 0);
        }
        printf("\n%s", report.values.data ? report.values.data : "");
    }
    for (i = 0; i < report.note_count; i++) free(report.note[i]);
    free(report.note);
    free(report.out.data);
    free(report.values.data);
}
