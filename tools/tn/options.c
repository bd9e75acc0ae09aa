/* options.c - one table of options makes a subcommand's command line, its keys in config files and its help. manual.c and
   completions.c read the same tables. */
#include "tn.h"
#include <errno.h>
#include <float.h>
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
    for (int i = 0; *choice_word(hint, i, one, sizeof one); i++) if (!strcmp(one, word)) return i;
    return -1;
}

option *find_option(const usage *u, const char *name)
{
    for (int i = 0; i < u->count; i++) if (!strcmp(u->options[i].name, name)) return &u->options[i];
    return NULL;
}

void check_limited(const usage *u, const limited_option *list, int task, const char *words)
{
    buffer others = {0};
    char   name[64] = "", one[64];
    for (; list->name; list++) {
        if ((list->tasks & task) || !find_option(u, list->name)->given) continue;
        for (int i = 0; *choice_word(words, i, one, sizeof one); i++) {
            if (list->tasks >> i & 1) buffer_print(&others, "%s%s", others.bytes ? ", " : "", one);
            if (task >> i & 1) memcpy(name, one, sizeof name);
        }
        usage_error("--%s is given, expected none with %s: it is for %s", list->name, name, others.data);
    }
}

static const struct { char letter; const char *name; } short_names[] = {
    {'b', "batch"}, {'c', "config"}, {'j', "threads"}, {'l', "layers"}, {'n', "new"}, {'o', "out"}, {'p', "prompt"},
    {'r', "resume"}, {'s', "steps"}, {'t', "temperature"}, {'v', "vocab"}, {'w', "width"}
};

char short_name(const char *name)
{
    for (size_t i = 0; i < sizeof short_names / sizeof *short_names; i++)
        if (!strcmp(short_names[i].name, name)) return short_names[i].letter;
    return 0;
}

static option *short_option(const usage *u, char letter)
{
    for (int i = 0; i < u->count; i++) if (short_name(u->options[i].name) == letter) return &u->options[i];
    return NULL;
}

const char *group_title(const usage *u, const option *o)
{
    for (const option_group *g = u->groups; g && g->first; g++) if (!strcmp(g->first, o->name)) return g->title;
    return NULL;
}

void add_file(file_list *files, const char *path)
{
    files->path = (const char **)resize((void *)files->path, (size_t)(files->count + 1), sizeof *files->path);
    files->path[files->count++] = copy_text(path);
}

const char *decimal_text(double v, char *text, size_t bytes)
{
    int digits = 6;
    do snprintf(text, bytes, "%.*g", digits, v); while (strtod(text, NULL) != v && digits++ < 17);
    return text;
}

/* The same, but millions as "8M" and billions as "8G". */
static const char *number_text(double v, char *text, size_t bytes)
{
    if (fabs(v) < 1e6 || fabs(v) >= 1e12 || fmod(v, fabs(v) < 1e9 ? 1e6 : 1e9) != 0) return decimal_text(v, text, bytes);
    snprintf(text, bytes, fabs(v) < 1e9 ? "%gM" : "%gG", v / (fabs(v) < 1e9 ? 1e6 : 1e9));
    return text;
}

/* The value that stands for `auto`. */
static double auto_value(const option *o)
{
    return o->kind != OPTION_COUNT ? AUTO_NUMBER : o->low > 0 ? AUTO_COUNT : AUTO_COUNT_FROM_0;
}

bool number_from_text(const char *text, double *v)
{
    static const char units[] = "kKmMgG";
    char *end;
    errno = 0;
    *v = strtod(text, &end);
    const char *unit = end != text && *end ? strchr(units, *end) : NULL;
    if (unit) *v *= unit < units + 2 ? 1e3 : unit < units + 4 ? 1e6 : 1e9, end++;
    return end != text && !*end && (isfinite(*v) || errno == ERANGE);
}

/* Such a number, or auto. One that settings of 32 bits would turn into 0, or a double into infinity, is not what was meant. */
static double parse_number(const option *o, const char *where, const char *text)
{
    char   low[40], high[40];
    double v;
    if (o->automatic && !strcmp(text, "auto")) return auto_value(o);
    if (!number_from_text(text, &v))
        usage_error("%s%s is \"%s\", expected a number%s%s", where, o->name, text, o->automatic ? " or auto" : "",
                    o->kind != OPTION_NUMBER && o->high >= 1e6 ? "; 500K, 1.5M and 2G are numbers" : "");
    if (isfinite(v) && fabs(v) < FLT_MIN && (v != 0 || errno == ERANGE))
        usage_error("%s%s is %s, which is too small, expected 0 or at least %.3g", where, o->name, text, (double)FLT_MIN);
    if (v < o->low || v > o->high)
        usage_error("%s%s is %s, expected %s%s <= %s <= %s", where, o->name, text, o->automatic ? "auto, or " : "",
                    number_text(o->low, low, sizeof low), o->name, number_text(o->high, high, sizeof high));
    if ((o->kind == OPTION_COUNT || o->kind == OPTION_COUNTS) && v != floor(v))
        usage_error("%s%s is %s, expected a whole number", where, o->name, text);
    return v;
}

static int parse_choice(const option *o, const char *where, const char *text)
{
    const int place = choice_index(o->hint, text);
    if (place < 0) usage_error("%s%s is \"%s\", expected one of %s", where, o->name, text, o->hint);
    return place;
}

/* Values that are separated by commas. */
static void parse_cycle(const option *o, const char *where, const char *text)
{
    cycle *c = (cycle *)o->value;
    for (c->count = 0; ; text++) {
        char *one = format_text("%.*s", (int)strcspn(text, ","), text);
        if (c->count == TN_MAX_CYCLE)
            usage_error("%s%s has too many values, expected at most %d", where, o->name, TN_MAX_CYCLE);
        c->value[c->count++] = o->kind == OPTION_COUNTS ? (int64_t)parse_number(o, where, one) : parse_choice(o, where, one);
        free(one);
        text += strcspn(text, ",");
        if (!*text) return;
    }
}

/* The same as a text, a new string. */
static char *cycle_text(const option *o)
{
    const cycle *c = (const cycle *)o->value;
    buffer       b = {0};
    char         word[64];
    for (int64_t i = 0; i < c->count; i++) {
        if (o->kind == OPTION_CHOICES) choice_word(o->hint, (int)c->value[i], word, sizeof word);
        else snprintf(word, sizeof word, "%lld", (long long)c->value[i]);
        buffer_print(&b, i ? ",%s" : "%s", word);
    }
    return b.data ? b.data : copy_text("");
}

/* where: what precedes the name in a message, "--" or "FILE:LINE: " */
static void set_option(option *o, const char *where, const char *text)
{
    switch (o->kind) {
    case OPTION_FLAG:
        if (text && strcmp(text, "true") && strcmp(text, "false"))
            usage_error("%s%s is \"%s\", expected true or false", where, o->name, text);
        *(bool *)o->value = !text || !strcmp(text, "true");
        break;
    case OPTION_COUNT:  *(int64_t *)o->value = (int64_t)parse_number(o, where, text); break;
    case OPTION_NUMBER: *(double *)o->value = parse_number(o, where, text); break;
    case OPTION_TEXT:   *(const char **)o->value = copy_text(text); break;
    case OPTION_FILES:  add_file((file_list *)o->value, text); break;
    case OPTION_CHOICE:  *(int *)o->value = parse_choice(o, where, text); break;
    case OPTION_CHOICES:
    case OPTION_COUNTS:  parse_cycle(o, where, text); break;
    }
}

/* How much of a word is printed at once: up to its last | that fits into a line, if the whole does not. */
static int piece_of(const char *word, int room)
{
    const int n = (int)strcspn(word, " ");
    int       fits = room;
    if (n <= room) return n;
    while (fits > 0 && word[fits - 1] != '|') fits--;
    return fits > 0 ? fits : n;
}

void print_folded(const char *words, int at, int indent)
{
    bool cut = false;
    for (const char *word = words; *word; ) {
        const int n = piece_of(word, 80 - indent);
        if (cut || (word > words && at + 1 + n > 80)) {
            print("\n%*s", indent, "");
            at = indent;
        } else if (word > words) at += print(" ");
        at += print("%.*s", n, word);
        cut = word[n] && word[n] != ' ';
        word += n + (word[n] == ' ');
    }
    print("\n");
}

/* "" if the option has no default, or if it is zero, which its help explains */
static const char *default_text(const option *o, char *text, size_t bytes)
{
    double v = o->kind == OPTION_COUNT ? (double)*(int64_t *)o->value : o->kind == OPTION_NUMBER ? *(double *)o->value : 0;
    *text = 0;
    if (o->automatic && v == auto_value(o)) return strcpy(text, "auto");
    if (o->kind == OPTION_CHOICE) choice_word(o->hint, *(int *)o->value, text, bytes);
    else if (o->kind == OPTION_CHOICES) choice_word(o->hint, (int)((const cycle *)o->value)->value[0], text, bytes);
    else if (v != 0) number_text(v, text, bytes);
    if (!strcmp(text, "default")) *text = 0;            /* a word that the help explains, too */
    return text;
}

char *option_help(const option *o)
{
    char normal[64];
    if (!*default_text(o, normal, sizeof normal)) return copy_text(o->help);
    return format_text("%s (default %s)", o->help, normal);
}

void print_help(const usage *u)
{
    print_folded(u->arguments, print("usage: tn %s ", u->command), 10);
    print("\n");
    print_folded(u->about, 0, 0);
    if (u->count) print("\n");
    for (int i = 0; i < u->count; i++) {
        const option *o = &u->options[i];
        const char   *title = group_title(u, o), letter = short_name(o->name);
        char         *text = option_help(o);
        if (title) print(i ? "\n%s\n" : "%s\n", title);
        int left = letter ? print("  -%c, ", letter) : print("      ");
        left += print("--%s %s", o->name, o->kind == OPTION_FLAG ? "" : o->hint);
        print(left > 27 ? "\n%*s" : "%*s", left > 27 ? 28 : 28 - left, "");
        print_folded(text, 28, 28);
        free(text);
    }
    if (!u->more) return;
    print("\n");
    print_folded(u->more, 0, 0);
}

/* The option that an argument "--name", "--name=value" or "-n" means; NULL if there is none. The name goes to `name`. The
   folder that import and export write is --out, and --hf as well, as which export had it before. */
static option *named_option(const usage *u, const char *argument, char *name, size_t bytes)
{
    const bool exchange = u == &import_usage || u == &export_usage;
    if (argument[1] != '-') return argument[2] ? NULL : short_option(u, argument[1]);
    snprintf(name, bytes, "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    return find_option(u, exchange && !strcmp(name, "hf") ? "out" : name);
}

/* "-" is a file, and "->" an expression. */
static bool is_option(const char *argument)
{
    const char c = (char)(argument[1] | 0x20);
    return argument[0] == '-' && (argument[1] == '-' || (c >= 'a' && c <= 'z'));
}

static bool is_help(const char *argument) { return !strcmp(argument, "--help") || !strcmp(argument, "-h"); }

/* Looked for before any option is set: the help shows the defaults. */
static bool help_requested(const usage *u, int argc, char **argv)
{
    char name[64];
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
        const option *o = !is_option(argv[i]) ? NULL : named_option(u, argv[i], name, sizeof name);
        if (is_help(argv[i])) return true;
        if (o && o->kind != OPTION_FLAG && !strchr(argv[i], '=')) i++;
    }
    return false;
}

/* prefix: "--", or "" for a key of a config file */
static char *suggested_option(const usage *u, const char *name, const char *prefix)
{
    suggestion best = {NULL, 0};
    for (int i = 0; i < u->count; i++) if (*prefix || u->options[i].saved) consider_word(&best, name, u->options[i].name);
    return best.word ? format_text("; did you mean %s%s?", prefix, best.word) : copy_text("");
}

int read_options(const usage *u, int argc, char **argv)
{
    int  arguments = 0;
    bool only_arguments = false;
    if (help_requested(u, argc, argv)) {
        print_help(u);
        exit(0);
    }
    for (int i = 0; i < argc; i++) {
        char name[64];
        if (only_arguments || !is_option(argv[i])) {
            if (arguments == u->most_arguments)
                usage_error("unexpected argument \"%s\", expected tn %s%s%s (tn %s --help)", argv[i], u->command,
                            *u->arguments ? " " : "", u->arguments, u->command);
            argv[arguments++] = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--")) {
            only_arguments = true;
            continue;
        }
        option *o = named_option(u, argv[i], name, sizeof name);
        if (!o && argv[i][1] != '-' && short_option(u, argv[i][1]) && argv[i][2])
            usage_error("unknown option %s, expected -%c %s (tn %s --help)", argv[i], argv[i][1], argv[i] + 2, u->command);
        if (!o && argv[i][1] != '-') usage_error("unknown option %s (tn %s --help)", argv[i], u->command);
        if (!o) usage_error("unknown option --%s%s (tn %s --help)", name, suggested_option(u, name, "--"), u->command);
        const char *text = strchr(argv[i], '=') ? strchr(argv[i], '=') + 1 : NULL;
        if (!text && o->kind != OPTION_FLAG) {
            if (i + 1 >= argc) usage_error("--%s has no value, expected --%s %s", o->name, o->name, o->hint);
            text = argv[++i];
        }
        set_option(o, "--", text);
        o->given = true;
    }
    return arguments;
}

void read_options_and_files(const usage *u, int argc, char **argv, file_list *data)
{
    const int files = read_options(u, argc, argv);
    for (int i = 0; i < files; i++) add_file(data, argv[i]);
    if (files) find_option(u, "data")->given = true;
}

/* A text in a config file: plain if a line can hold it, otherwise in quotes with JSON's escapes. */
static void write_text(buffer *out, const char *name, const char *text)
{
    size_t n = strlen(text);
    bool   plain = *text != '"' && *text != ' ' && (n == 0 || text[n - 1] != ' ');
    for (size_t i = 0; i < n; i++) if ((unsigned char)text[i] < 0x20) plain = false;
    buffer_print(out, plain ? "%s = " : "%s = \"", name);
    for (size_t i = 0; i < n; i++) {
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
        usage_error("%sinvalid string %s, expected a closing quote and JSON's escapes", where, value);
    free(value);
    return b.data;
}

/* Whether a value is the 0 that earlier versions wrote for auto. */
static bool is_old_auto(const option *o, const char *value)
{
    char *end;
    return o->automatic == AUTO && strpbrk(value, "123456789") == NULL && strtod(value, &end) == 0 && end != value && !*end;
}

/* Whether a config file is of an earlier version, which had no mark or a lower number in it. One of a later version is an error. */
static bool is_old_config(const char *text, size_t bytes, const char *name)
{
    const char  *newline = (const char *)memchr(text, '\n', bytes);
    const size_t mark = strlen(CONFIG_MARK), first = newline ? (size_t)(newline - text) : bytes;
    const size_t n = first > 0 && text[first - 1] == '\r' ? first - 1 : first;
    if (n == mark && !memcmp(text, CONFIG_MARK, mark)) return false;
    if (n >= mark && !memcmp(text, CONFIG_MARK, mark - 1) && strtol(text + mark - 1, NULL, 10) > CONFIG_MARK[mark - 1] - '0')
        usage_error("%s:1: the file is of a later version of tn: \"%.*s\", expected \"%s\"", name, (int)n, text, CONFIG_MARK);
    return true;
}

void read_config(const usage *u, const char *text, size_t bytes, const char *name)
{
    const bool   old = is_old_config(text, bytes, name);
    bool         warned = false;
    const char *end = text + bytes;
    int         line = 0;
    bool       *from_flags = (bool *)allocate((size_t)u->count, sizeof *from_flags);
    for (int i = 0; i < u->count; i++) from_flags[i] = u->options[i].given;
    while (text < end) {
        const char *stop = (const char *)memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        line++;
        if (memchr(text, 0, (size_t)(stop - text))) usage_error("%s:%d: a zero byte, expected text", name, line);
        const char *last = stop;
        while (last > text && strchr(" \t\r", last[-1])) last--;
        while (text < last && strchr(" \t", *text)) text++;
        if (text == last || *text == '#') {
            text = stop + 1;
            continue;
        }
        const char *equal = (const char *)memchr(text, '=', (size_t)(last - text));
        if (!equal) usage_error("%s:%d: invalid line \"%.*s\", expected key = value", name, line, (int)(last - text), text);
        char *key = format_text("%.*s", (int)(equal - text), text);
        key[strcspn(key, " \t")] = 0;
        for (equal++; equal < last && strchr(" \t", *equal); ) equal++;
        char   *value = format_text("%.*s", (int)(last - equal), equal);
        char   *where = format_text("%s:%d: ", name, line);
        option *o = find_option(u, key);
        if (!o || !o->saved) usage_error("%s:%d: unknown key %s%s", name, line, key, suggested_option(u, key, ""));
        if (o->kind == OPTION_TEXT || o->kind == OPTION_FILES) value = unquoted(value, where);
        if (old && is_old_auto(o, value)) {
            if (o->low == 0 && !from_flags[o - u->options] && !warned)
                warn("%s%s is %s, which earlier versions wrote for auto, and is read as that. Write auto; or, for 0, let "
                     "the first line of the file be \"%s\"", where, o->name, value, CONFIG_MARK);
            if (o->low == 0) warned = true;
            free(value);
            value = copy_text("auto");
        }
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
    buffer_print(out, "%s\n", CONFIG_MARK);
    for (int i = 0; i < u->count; i++) {
        const option *o = &u->options[i];
        if (o->saved == NEVER || (o->saved == IF_GIVEN && !o->given)) continue;
        switch (o->kind) {
        case OPTION_FLAG:   buffer_print(out, "%s = %s\n", o->name, *(bool *)o->value ? "true" : "false"); break;
        case OPTION_COUNT:
            if (o->automatic && *(int64_t *)o->value == (int64_t)auto_value(o)) buffer_print(out, "%s = auto\n", o->name);
            else buffer_print(out, "%s = %lld\n", o->name, (long long)*(int64_t *)o->value);
            break;
        case OPTION_NUMBER:
            if (o->automatic && *(double *)o->value == AUTO_NUMBER) buffer_print(out, "%s = auto\n", o->name);
            else buffer_print(out, "%s = %s\n", o->name, decimal_text(*(double *)o->value, word, sizeof word));
            break;
        case OPTION_TEXT:
            if (*(const char **)o->value) write_text(out, o->name, *(const char **)o->value);
            break;
        case OPTION_CHOICE:
            buffer_print(out, "%s = %s\n", o->name, choice_word(o->hint, *(int *)o->value, word, sizeof word));
            break;
        case OPTION_CHOICES:
        case OPTION_COUNTS: {
            char *text = cycle_text(o);
            if (*text) buffer_print(out, "%s = %s\n", o->name, text);
            free(text);
            break;
        }
        case OPTION_FILES: {
            const file_list *list = (const file_list *)o->value;
            for (int64_t k = 0; k < list->count; k++) write_text(out, o->name, list->path[k]);
            break;
        }
        }
    }
}
