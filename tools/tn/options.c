/* options.c - the command line, config files, help: one table says it all */
#include "tn.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *choice_word(const char *hint, int place, char *word, size_t bytes)
{
    while (place-- > 0 && (hint = strchr(hint, '|')) != NULL) hint++;
    snprintf(word, bytes, "%.*s", hint ? (int)strcspn(hint, "|") : 0, hint ? hint : "");
    return word;
}

static int choice_index(const char *hint, const char *word)
{
    char one[64];
    int  i;
    for (i = 0; *choice_word(hint, i, one, sizeof one); i++) if (!strcmp(one, word)) return i;
    return -1;
}

option *find_option(const usage *u, const char *name)
{
    int i;
    for (i = 0; i < u->count; i++) if (!strcmp(u->options[i].name, name)) return &u->options[i];
    return NULL;
}

void add_file(file_list *files, const char *path)
{
    files->path = (const char **)need_memory(realloc((void *)files->path, sizeof *files->path * (size_t)(files->count + 1)));
    files->path[files->count++] = copy_text(path);
}

/* A number with k, M or G behind it. */
static double parse_number(const option *o, const char *where, const char *text)
{
    char  *end;
    double v = strtod(text, &end);
    if (end != text && *end == 'k') v *= 1e3, end++;
    else if (end != text && *end == 'M') v *= 1e6, end++;
    else if (end != text && *end == 'G') v *= 1e9, end++;
    if (end == text || *end || !isfinite(v)) usage_error("%s%s wants a number, not \"%s\"", where, o->name, text);
    if (v < o->low || v > o->high) usage_error("%s%s must lie in %g to %g, and is %s", where, o->name, o->low, o->high, text);
    if (o->kind == OPTION_COUNT && v != floor(v)) usage_error("%s%s wants a whole number, not %s", where, o->name, text);
    return v;
}

/* where: what stands before the name in a message, "--" or "FILE:LINE: " */
static void set_option(option *o, const char *where, const char *text)
{
    switch (o->kind) {
    case OPTION_FLAG:
        if (text && strcmp(text, "true") && strcmp(text, "false"))
            usage_error("%s%s is true or false, not \"%s\"", where, o->name, text);
        *(bool *)o->value = !text || !strcmp(text, "true");
        break;
    case OPTION_COUNT:  *(int64_t *)o->value = (int64_t)parse_number(o, where, text); break;
    case OPTION_NUMBER: *(double *)o->value = parse_number(o, where, text); break;
    case OPTION_TEXT:   *(const char **)o->value = copy_text(text); break;
    case OPTION_FILES:  add_file((file_list *)o->value, text); break;
    case OPTION_CHOICE: {
        int place = choice_index(o->hint, text);
        if (place < 0) usage_error("%s%s is one of %s, not \"%s\"", where, o->name, o->hint, text);
        *(int *)o->value = place;
        break;
    }
    }
}

/* Prints words from column `at` on, folded at 80; where the next line begins is `indent`. */
static void print_folded(const char *words, int at, int indent)
{
    const char *word;
    for (word = words; *word; ) {
        const int n = (int)strcspn(word, " ");
        if (word > words && at + 1 + n > 80) {
            printf("\n%*s", indent, "");
            at = indent;
        } else if (word > words) at += printf(" ");
        at += printf("%.*s", n, word);
        word += n + (word[n] == ' ');
    }
    printf("\n");
}

static void print_help(const usage *u)
{
    int i;
    print_folded(u->arguments, printf("usage: tn %s ", u->command), 10);
    printf("\n");
    print_folded(u->about, 0, 0);
    if (u->count) printf("\n");
    for (i = 0; i < u->count; i++) {
        const option *o = &u->options[i];
        const int     left = printf("  --%s %s", o->name, o->kind == OPTION_FLAG ? "" : o->hint);
        printf("%s%*s", left > 25 ? "\n" : "", left > 25 ? 26 : 26 - left, "");
        print_folded(o->help, 26, 26);
    }
    if (!u->more) return;
    printf("\n");
    print_folded(u->more, 0, 0);
}

int read_options(const usage *u, int argc, char **argv, int most_arguments)
{
    int  i, arguments = 0;
    bool only_arguments = false;
    for (i = 0; i < argc; i++) {
        char        name[64];
        const char *text = NULL;
        option     *o;
        if (only_arguments || argv[i][0] != '-' || !argv[i][1]) {
            if (arguments == most_arguments) usage_error("tn %s: \"%s\" is one argument too many (tn %s --help)", u->command,
                                                    argv[i], u->command);
            argv[arguments++] = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--")) {
            only_arguments = true;
            continue;
        }
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help(u);
            exit(0);
        }
        if (argv[i][1] != '-') usage_error("tn %s knows no %s (tn %s --help)", u->command, argv[i], u->command);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[i] + 2, "="), argv[i] + 2);
        if (strchr(argv[i], '=')) text = strchr(argv[i], '=') + 1;
        o = find_option(u, name);
        if (!o) usage_error("tn %s knows no --%s (tn %s --help)", u->command, name, u->command);
        if (!text && o->kind != OPTION_FLAG) {
            if (i + 1 >= argc) usage_error("--%s wants %s after it", o->name, o->hint);
            text = argv[++i];
        }
        set_option(o, "--", text);
        o->given = true;
    }
    return arguments;
}

void read_options_and_files(const usage *u, int argc, char **argv, file_list *data)
{
    const int files = read_options(u, argc, argv, INT_MAX);
    int       i;
    for (i = 0; i < files; i++) add_file(data, argv[i]);
    if (files) find_option(u, "data")->given = true;
}

/* A text in a config file: as it is where a line gives it back, else in quotes, with JSON's escapes. */
static void write_text(buffer *out, const char *name, const char *text)
{
    size_t n = strlen(text), i;
    bool   plain = *text != '"' && *text != ' ' && (n == 0 || text[n - 1] != ' ');
    for (i = 0; i < n; i++) if ((unsigned char)text[i] < 0x20) plain = false;
    buffer_print(out, plain ? "%s = " : "%s = \"", name);
    for (i = 0; i < n; i++) {
        if ((unsigned char)text[i] < 0x20) buffer_print(out, "\\u%04x", (unsigned)(unsigned char)text[i]);
        else buffer_print(out, !plain && (text[i] == '"' || text[i] == '\\') ? "\\%c" : "%c", text[i]);
    }
    buffer_print(out, plain ? "\n" : "\"\n");
}

static char *unquoted(char *value, const char *where)
{
    buffer b = {0};
    if (*value != '"') return value;
    if (!json_unquote(value, value + strlen(value), &b))
        usage_error("%s%s begins with a quote and is no quoted text", where, value);
    free(value);
    return b.data;
}

void read_config(const usage *u, const char *text, size_t bytes, const char *name)
{
    const char *end = text + bytes;
    int         line = 0, i;
    bool       *from_flags = (bool *)allocate((size_t)u->count, sizeof *from_flags);
    for (i = 0; i < u->count; i++) from_flags[i] = u->options[i].given;
    while (text < end) {
        const char *stop = (const char *)memchr(text, '\n', (size_t)(end - text)), *equal, *last;
        char       *key, *value, *where;
        option     *o;
        if (!stop) stop = end;
        line++;
        last = stop;
        while (last > text && strchr(" \t\r", last[-1])) last--;
        while (text < last && strchr(" \t", *text)) text++;
        if (text == last || *text == '#') {
            text = stop + 1;
            continue;
        }
        equal = (const char *)memchr(text, '=', (size_t)(last - text));
        if (!equal) usage_error("%s:%d: \"%.*s\" is no line of the form key = value", name, line, (int)(last - text), text);
        key = format_text("%.*s", (int)(equal - text), text);
        key[strcspn(key, " \t")] = 0;
        for (equal++; equal < last && strchr(" \t", *equal); ) equal++;
        value = format_text("%.*s", (int)(last - equal), equal);
        where = format_text("%s:%d: ", name, line);
        o = find_option(u, key);
        if (!o || !o->saved) usage_error("%s:%d: unknown key %s", name, line, key);
        if (o->kind == OPTION_TEXT || o->kind == OPTION_FILES) value = unquoted(value, where);
        if (!from_flags[o - u->options]) {
            set_option(o, where, value);
            o->given = true;
        }
        free(key);
        free(value);
        free(where);
        text = stop + 1;
    }
    free(from_flags);
}

void write_config(const usage *u, buffer *out)
{
    char word[64];
    int  i;
    for (i = 0; i < u->count; i++) {
        const option *o = &u->options[i];
        if (o->saved == NEVER || (o->saved == IF_GIVEN && !o->given)) continue;
        switch (o->kind) {
        case OPTION_FLAG:   buffer_print(out, "%s = %s\n", o->name, *(bool *)o->value ? "true" : "false"); break;
        case OPTION_COUNT:  buffer_print(out, "%s = %lld\n", o->name, (long long)*(int64_t *)o->value); break;
        case OPTION_NUMBER: {
            double v = *(double *)o->value;
            int    digits = 6;
            char   text[40];
            do snprintf(text, sizeof text, "%.*g", digits, v); while (strtod(text, NULL) != v && digits++ < 17);
            buffer_print(out, "%s = %s\n", o->name, text);
            break;
        }
        case OPTION_TEXT:
            if (*(const char **)o->value) write_text(out, o->name, *(const char **)o->value);
            break;
        case OPTION_CHOICE:
            buffer_print(out, "%s = %s\n", o->name, choice_word(o->hint, *(int *)o->value, word, sizeof word));
            break;
        case OPTION_FILES: {
            const file_list *list = (const file_list *)o->value;
            int64_t          k;
            for (k = 0; k < list->count; k++) write_text(out, o->name, list->path[k]);
            break;
        }
        }
    }
}
