/* clean.c - tn clean: finds stories with mojibake (names.h defines it), and writes the others */
#include "tn.h"
#include "names.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A sequence of bytes that are not ASCII, and how often it was found. */
typedef struct damage { char text[24]; int64_t count; } damage;
typedef struct kinds { damage *list; int64_t count, all; } kinds;

static void count_kind(kinds *k, const char *text, size_t length)
{
    if (length > sizeof k->list->text - 1) length = sizeof k->list->text - 1;
    k->all++;
    for (int64_t i = 0; i < k->count; i++)
        if (strlen(k->list[i].text) == length && !memcmp(k->list[i].text, text, length)) {
            k->list[i].count++;
            return;
        }
    if (k->count == 1000) return;                     /* more than are printed */
    k->list = (damage *)resize(k->list, (size_t)(k->count + 1), sizeof *k->list);
    memset(&k->list[k->count], 0, sizeof *k->list);
    memcpy(k->list[k->count].text, text, length);
    k->list[k->count++].count = 1;
}

static int more_often(const void *a, const void *b)
{
    int64_t x = ((const damage *)a)->count, y = ((const damage *)b)->count;
    return x != y ? (x < y) - (x > y) : strcmp(((const damage *)a)->text, ((const damage *)b)->text);
}

/* The number of damaged places in a story: runs of bytes that are not ASCII and are mojibake. */
static int64_t count_damage(const char *text, size_t bytes, kinds *k)
{
    int64_t found = 0, at;
    while ((at = find_mojibake(text, bytes)) >= 0) {
        size_t from = (size_t)at, to = from + 1;
        while (to < bytes && (unsigned char)text[to] >= 0x80) to++;
        count_kind(k, text + from, to - from);
        found++;
        text += to;
        bytes -= to;
    }
    return found;
}

/* As bytes, and as they are if a terminal can show them. */
static void print_kinds(kinds *k)
{
    size_t first;
    if (k->count) qsort(k->list, (size_t)k->count, sizeof *k->list, more_often);
    for (int64_t i = 0; i < k->count && i < 12; i++) {
        const char *s = k->list[i].text;
        print("  %6lld x", (long long)k->list[i].count);
        for (; *s; s++) print(" %02X", (unsigned)(unsigned char)*s);
        s = k->list[i].text;
        print(utf8_errors(s, strlen(s), &first) || (unsigned char)s[0] == 0xC2 ? "\n" : "  %s\n", s);
    }
    if (k->count > 12) print("  and %lld other kinds\n", (long long)k->count - 12);
}

static struct { file_list files; const char *out; int split; } settings;

static option options[] = {
    FILES_ROW("data", &settings.files, "a text; several are joined", NEVER),
    TEXT_ROW("out", &settings.out, "FILE", "where to write the other stories; without it they are only counted", NEVER),
    WORDS_ROW("split", &settings.split, SPLIT_WORDS, "what separates two stories: marks (" STORY_MARK "), blank lines, or "
              "line ends; auto: marks if the text has any, otherwise blank lines", NEVER),
};

const usage clean_usage = {
    "clean", "FILE... [--out FILE]", "find stories with wrongly decoded letters, write the others",
    "Counts stories with mojibake (letters that were encoded as UTF-8 and decoded as Windows-1252), and with --out writes "
    "all other stories to a file.", NULL,
    options, sizeof options / sizeof *options, INT_MAX, NULL
};

int clean_main(int argc, char **argv)
{
    size_t      bytes, at = 0, start = 0, length = 0;
    int64_t     stories = 0, dropped = 0;
    double      dropped_bytes = 0;
    kinds       k = {0};
    atomic_file f = {0};
    read_options_and_files(&clean_usage, argc, argv, &settings.files);
    const char *out = settings.out;
    if (!settings.files.count) usage_error("no text is given, expected tn clean FILE... [--out FILE]");
    check_not_inputs("out", out, "the text", &settings.files);
    char      *text = read_texts(&settings.files, &bytes);
    split_kind how = resolve_split((split_kind)settings.split, text, bytes);
    if (out && !atomic_open(&f, out, BY_USER)) fail("%s", f.why);
    while (next_story(text, bytes, how, &at, &start, &length)) {
        stories++;
        if (count_damage(text + start, length, &k)) {
            dropped++;
            dropped_bytes += (double)length;
        } else if (out) {
            if (stories > dropped + 1) atomic_store(&f, how == SPLIT_BLANK ? "\n" : "", how == SPLIT_BLANK ? 1 : 0);
            atomic_store(&f, text + start, length);
            atomic_store(&f, "\n", 1);
            if (how == SPLIT_MARKS) atomic_store(&f, STORY_MARK "\n", strlen(STORY_MARK) + 1);
        }
    }
    print("%lld places with mojibake%s\n", (long long)k.all, k.all ? ":" : "");
    print_kinds(&k);
    print("stories: %lld\ndropped: %lld\ndropped_bytes: %.0f\nkept: %lld\n", (long long)stories, (long long)dropped,
          dropped_bytes, (long long)(stories - dropped));
    if (out) {
        if (!atomic_commit(&f)) fail("%s", f.why);
        print("written: %s\n", out);
    }
    free(k.list);
    free(text);
    return 0;
}
