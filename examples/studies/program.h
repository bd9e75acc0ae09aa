/* program.h - what every example with a command line shares: the clock, giving up, folders, pictures, flags

   One file of the program defines PROGRAM (its name, for messages) and includes this after the implementation of
   tensornet.h, with _POSIX_C_SOURCE 200809L defined before everything for the clock and isatty. */
#ifndef EXAMPLES_PROGRAM_H
#define EXAMPLES_PROGRAM_H

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#ifdef _WIN32
#include <direct.h>
#include <io.h>
#define mkdir(path, mode) _mkdir(path)
#define isatty(file) _isatty(file)
#else
#include <unistd.h>
#endif

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Neither NaN nor infinite. isfinite is a macro that some compilers warn of. */
static inline bool is_number(double x) { return x - x == 0; }

/* Keeps the largest error so far. A NaN counts as infinite, so that no later error hides it. */
static inline void keep_largest(double *worst, double error)
{
    if (error != error) error = HUGE_VAL;
    if (error > *worst) *worst = error;
}

static inline void stop(const char *what)
{
    fprintf(stderr, PROGRAM ": %s\n", what);
    exit(1);
}

/* Memory of zeros. */
static inline void *zeros(int64_t count, size_t each)
{
    void *p = calloc((size_t)(count > 0 ? count : 1), each);
    if (!p) stop("out of memory");
    return p;
}

/* The context keeps the first error; a program may look whenever it suits. */
static inline void check(tn_ctx *ctx)
{
    if (tn_ctx_status(ctx) != TN_OK) stop(tn_ctx_error(ctx));
}

/* And those it lies in. */
static inline void make_folder(const char *path)
{
    char  part[512];
    char *slash = part;
    if (snprintf(part, sizeof part, "%s/", path) >= (int)sizeof part) stop("the output folder's name is too long");
    while ((slash = strchr(slash + 1, '/')) != NULL) {
        *slash = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST) stop("cannot make the output folder");
        *slash = '/';
    }
}

/* Saves a picture as FOLDER/FILE.png, or as FILE.svg where the program was built without stb_image_write, prints the name
   of the file, and destroys the picture. A file that cannot be written is reported; the program continues. */
static inline void save_image(tn_ctx *ctx, tn_image *image, const char *folder, const char *file)
{
    char path[600];
    bool saved;
    check(ctx);
#ifdef HAVE_STB_IMAGE_WRITE
    snprintf(path, sizeof path, "%s/%s.png", folder, file);
    saved = tn_image_save_png(image, path) == TN_OK;
#else
    snprintf(path, sizeof path, "%s/%s.svg", folder, file);
    saved = tn_image_save_svg(image, path) == TN_OK;
#endif
    if (saved) printf("  %s\n", path);
    else {
        fprintf(stderr, PROGRAM ": %s\n", tn_ctx_error(ctx));
        tn_ctx_clear_error(ctx);
    }
    tn_image_destroy(image);
}

/* ---- random numbers of a generator that does not depend on the library's calls (linear congruential, Knuth's factor) -------- */

static inline uint64_t next_random(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

/* One of 0 .. n - 1 */
static inline int64_t random_below(uint64_t *state, int64_t n) { return (int64_t)((next_random(state) >> 33) % (uint64_t)n); }

/* Fisher-Yates */
static inline void shuffle(int32_t *order, int64_t n, uint64_t *state)
{
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = random_below(state, i + 1);
        const int32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

/* ---- flags: a table says what there is, where it goes and what it may be; the usage text comes from the same table -------- */

typedef enum flag_kind { FLAG_COUNT, FLAG_REAL, FLAG_TEXT, FLAG_CHOICE, FLAG_SWITCH } flag_kind;
typedef struct flag {
    const char *name;               /* "--epochs"; NULL ends the table                     */
    flag_kind   kind;
    void       *to;                 /* int64_t, double, const char *, const char *, bool   */
    double      least, most;        /* of a number                                         */
    const char *what;               /* of a text: what it is; of a choice: "fashion|mnist" */
} flag;

/* The flags of most programs. The struct at s has the field. */
#define SEED_FLAG(s)    {"--seed", FLAG_COUNT, &(s)->seed, 0, 1e15, NULL}
#define THREADS_FLAG(s) {"--threads", FLAG_COUNT, &(s)->threads, 0, 1024, NULL}
#define OUT_FLAG(s)     {"--out", FLAG_TEXT, &(s)->out, 0, 0, "a folder"}

static inline bool flag_allows(const char *choices, const char *v)
{
    size_t n = strlen(v);
    for (; choices; choices = strchr(choices, '|') ? strchr(choices, '|') + 1 : NULL)
        if (n > 0 && strncmp(choices, v, n) == 0 && (choices[n] == 0 || choices[n] == '|')) return true;
    return false;
}

static inline void flags_usage(const flag *f, FILE *out)
{
    fprintf(out, "usage: " PROGRAM " [FLAG VALUE]...   the flags, what they are now, what they may be\n");
    for (; f->name; f++) {
        fprintf(out, "  %-16s ", f->name);
        if (f->kind == FLAG_COUNT) fprintf(out, "%lld  (%.0f to %.0f)\n", (long long)*(int64_t *)f->to, f->least, f->most);
        else if (f->kind == FLAG_REAL) fprintf(out, "%g  (%g to %g)\n", *(double *)f->to, f->least, f->most);
        else if (f->kind == FLAG_SWITCH) fprintf(out, "%s\n", f->what);
        else fprintf(out, "%s  (%s)\n", *(const char **)f->to, f->what);
    }
}

static inline void flag_set(const flag *f, const char *v)
{
    char  *end;
    double number = strtod(v, &end);
    bool   good = end != v && *end == 0 && number >= f->least && number <= f->most;
    if (f->kind == FLAG_COUNT) good = good && floor(number) == number;
    if (f->kind == FLAG_TEXT) good = *v != 0;
    if (f->kind == FLAG_CHOICE) good = flag_allows(f->what, v);
    if (!good) {
        fprintf(stderr, PROGRAM ": %s is \"%s\", expected ", f->name, v);
        if (f->kind >= FLAG_TEXT) fprintf(stderr, "%s\n", f->what);
        else fprintf(stderr, "%s from %g to %g\n", f->kind == FLAG_COUNT ? "an integer" : "a number", f->least, f->most);
        exit(2);
    }
    if (f->kind == FLAG_COUNT) *(int64_t *)f->to = (int64_t)number;
    else if (f->kind == FLAG_REAL) *(double *)f->to = number;
    else *(const char **)f->to = v;
}

/* The values that the variables have before are the defaults of the flags. */
static inline void read_flags(int argc, char **argv, const flag *table)
{
    for (int i = 1; i < argc; i++) {
        const flag *f = table;
        while (f->name && strcmp(f->name, argv[i])) f++;
        if (!f->name) {
            bool help = !strcmp(argv[i], "--help");
            if (!help) fprintf(stderr, PROGRAM ": unknown flag %s\n", argv[i]);
            flags_usage(table, help ? stdout : stderr);
            exit(help ? 0 : 2);
        }
        if (f->kind == FLAG_SWITCH) *(bool *)f->to = true;
        else flag_set(f, ++i < argc ? argv[i] : "");
    }
}

#endif
