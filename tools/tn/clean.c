/* clean.c - tn clean: finds stories with mojibake, and leaves them out

   Mojibake is UTF-8 that was read as Windows-1252 and written as UTF-8 again: the three bytes of a right quote, E2 80 99, become the three
   characters U+00E2 U+20AC U+2122. So: a run of characters whose Windows-1252 bytes are a character of UTF-8 again, one of two bytes
   or more. Text may have been lower-cased since, so a lead byte is also looked for in lower case (C3, A-tilde, becomes E3), and the same
   goes for the letters among the continuations. Bytes that are no UTF-8, U+FFFD, and the control characters U+0080 to U+009F count as well. */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

/* Windows-1252, 80 to 9F; 0: the character of the same number */
static const int cp1252[32] = {
    0x20AC, 0, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0, 0x017D, 0,
    0, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0, 0x017E, 0x0178 };

static int character_at(const char *text, int length)
{
    const unsigned char *s = (const unsigned char *)text;
    switch (length) {
    case 1:  return s[0];
    case 2:  return (s[0] & 31) << 6 | (s[1] & 63);
    case 3:  return (s[0] & 15) << 12 | (s[1] & 63) << 6 | (s[2] & 63);
    default: return (s[0] & 7) << 18 | (s[1] & 63) << 12 | (s[2] & 63) << 6 | (s[3] & 63);
    }
}

/* The Windows-1252 byte of a character, -1: it has none. */
static int byte_of(int c)
{
    int i;
    if (c < 0x100) return c;
    for (i = 0; i < 32; i++) if (cp1252[i] == c) return 0x80 + i;
    return -1;
}

static int continuation_of(int c)
{
    int b = c == 0xFF ? 0x9F : byte_of(c);            /* y with two dots: its capital is 9F */
    return b >= 0x80 && b < 0xC0 ? b : -1;
}

/* How many bytes at text are mojibake, and what they were, [5]; 0: none. */
static int mojibake_at(const char *text, size_t bytes, char *was)
{
    int n = utf8_length(text, bytes), lead = n ? character_at(text, n) : 0, lower;
    if (n == 0) {
        strcpy(was, "");
        return 1;
    }
    if (n == 1) return 0;
    if (lead == 0xFFFD || (lead >= 0x80 && lead < 0xA0)) {
        strcpy(was, "");
        return n;
    }
    if (lead > 0xFF) return 0;
    for (lower = 0; lower < 2; lower++) {
        int first = lower ? lead - 0x20 : lead, more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1, used = n, k;
        if (first < 0xC2 || first > 0xF4 || (lower && lead < 0xE0)) continue;
        was[0] = (char)first;
        for (k = 1; k <= more; k++) {
            int length = (size_t)used < bytes ? utf8_length(text + used, bytes - (size_t)used) : 0, b;
            b = length ? continuation_of(character_at(text + used, length)) : -1;
            if (b < 0) break;
            was[k] = (char)b;
            used += length;
        }
        was[k] = 0;
        if (k > more && utf8_length(was, (size_t)k) == k) return used;
        /* the last byte of a closing quote, 9D, stands for nothing in Windows-1252, so it was lost */
        if (k == 2 && !strcmp(was, "\xE2\x80")) {
            strcpy(was, "\xE2\x80\x9D");
            return used;
        }
    }
    return 0;
}

typedef struct kind { char text[16], was[8]; int64_t count; } kind;
typedef struct kinds { kind *list; int64_t count, all; } kinds;

static void note(kinds *k, const char *text, int length, const char *was)
{
    int64_t i;
    k->all++;
    for (i = 0; i < k->count; i++)
        if (strlen(k->list[i].text) == (size_t)length && !memcmp(k->list[i].text, text, (size_t)length)) {
            k->list[i].count++;
            return;
        }
    if (k->count == 1000) return;                     /* enough to print */
    k->list = (kind *)need(realloc(k->list, sizeof *k->list * (size_t)(k->count + 1)));
    memset(&k->list[k->count], 0, sizeof *k->list);
    memcpy(k->list[k->count].text, text, (size_t)length);
    strcpy(k->list[k->count].was, was);
    k->list[k->count++].count = 1;
}

static int more_often(const void *a, const void *b)
{
    int64_t x = ((const kind *)a)->count, y = ((const kind *)b)->count;
    return x != y ? (x < y) - (x > y) : strcmp(((const kind *)a)->text, ((const kind *)b)->text);
}

/* How much mojibake a story has. */
static int64_t look(const char *text, size_t bytes, kinds *k)
{
    int64_t found = 0;
    size_t  i = 0;
    char    was[8];
    while (i < bytes) {
        int n = (unsigned char)text[i] < 0x80 ? 0 : mojibake_at(text + i, bytes - i, was), one;
        if (n) {
            note(k, text + i, n, was);
            found++;
        }
        one = n ? n : utf8_length(text + i, bytes - i);
        i += one ? (size_t)one : 1;
    }
    return found;
}

static void print_kinds(kinds *k)
{
    int64_t i;
    if (k->count) qsort(k->list, (size_t)k->count, sizeof *k->list, more_often);
    for (i = 0; i < k->count && i < 12; i++) {
        const unsigned char *s = (const unsigned char *)k->list[i].text;
        char                 hex[64] = "";
        size_t               n = 0;
        for (; *s; s++) n += (size_t)snprintf(hex + n, sizeof hex - n, n ? " %02X" : "%02X", *s);
        printf("  %6lld x %s%s%s\n", (long long)k->list[i].count, hex, *k->list[i].was ? ", was " : "", k->list[i].was);
    }
    if (k->count > 12) printf("  and %lld other kinds\n", (long long)k->count - 12);
}

int clean_main(int argc, char **argv)
{
    static file_list   files;
    static const char *out;
    static int         split;
    static option      options[] = {
        {"data", OPTION_FILES, &files, "FILE", "a text; several are joined", 0, 0, 0, false},
        {"out", OPTION_TEXT, &out, "FILE", "where the clean stories go; without it they are only counted", 0, 0, 0, false},
        {"split", OPTION_CHOICE, &split, SPLIT_WORDS, "what stands between two stories: " STORY_MARK ", blank lines, line ends;\n"
         "auto: marks where there are any, else blank lines", 0, 0, 0, false},
    };
    static const usage u = {"clean", " [FILE] --out FILE", "Reports stories with mojibake (UTF-8 that was read as Windows-1252), and writes all others.",
                            NULL, options, sizeof options / sizeof *options};
    int         arguments = read_options(&u, argc, argv, 1);
    char       *text;
    size_t      bytes, at = 0, start = 0, length = 0;
    int64_t     stories = 0, dropped = 0;
    double      dropped_bytes = 0;
    kinds       k = {0};
    split_kind  how;
    atomic_file *f = (atomic_file *)room(1, sizeof *f);
    if (arguments) {
        files.path = (const char **)need(realloc((void *)files.path, sizeof *files.path * (size_t)(files.count + 1)));
        files.path[files.count++] = argv[0];
    }
    if (!files.count) misuse("tn clean wants a text: tn clean FILE --out FILE");
    text = read_texts(&files, &bytes);
    how = how_to_split((split_kind)split, text, bytes);
    if (out && !atomic_open(f, out)) fail("cannot write %s.tmp: %s", out, strerror(f->error));
    while (next_story(text, bytes, how, &at, &start, &length)) {
        stories++;
        if (look(text + start, length, &k)) {
            dropped++;
            dropped_bytes += (double)length;
        } else if (out) {
            if (stories > dropped + 1) atomic_store(f, how == SPLIT_BLANK ? "\n" : "", how == SPLIT_BLANK ? 1 : 0);
            atomic_store(f, text + start, length);
            atomic_store(f, "\n", 1);
            if (how == SPLIT_MARKS) atomic_store(f, STORY_MARK "\n", strlen(STORY_MARK) + 1);
        }
    }
    printf("%lld places with mojibake%s\n", (long long)k.all, k.all ? ":" : "");
    print_kinds(&k);
    printf("stories: %lld\ndropped: %lld\ndropped_bytes: %.0f\nkept: %lld\n", (long long)stories, (long long)dropped, dropped_bytes, (long long)(stories - dropped));
    if (out) {
        if (!atomic_commit(f)) fail("cannot write %s: %s", out, strerror(f->error));
        printf("written: %s\n", out);
    }
    free(f);
    free(k.list);
    free(text);
    return 0;
}
