/* test.h: the harness of one test program, in C99 and C++17.

       #include "test.h"                 (a test that looks inside the library includes core/inner.h and others, too)

       TEST(adds) { CHECK_INT(1 + 1, 2); }
       TEST(reads_npy) {
           char path[TEST_PATH];
           REQUIRE(test_data("npy/ok_f4_v1.npy", path));
           CHECK_CTX(ctx);
           WORST("npy round trip", error, 1e-12);
       }
       TEST_MAIN(adds, reads_npy)        (a test that is not listed is an unused function: a warning, so an error)

   A check that fails prints its line and the test goes on; REQUIRE ends the test. Checks are expressions: if (!CHECK(p)) return 0;
   A test that makes no check fails, unless it is skipped. What a test leaves unchecked is counted by test_leave_out.
   Do not make checks in threads that a test starts: the counters are not atomic. tests/test_harness.c tests all of
   this.
   `build/gcc/test_io npy` runs the tests whose name contains npy. The last line is `N passed, N failed, N skipped`. */

#ifndef TN_TEST_H
#define TN_TEST_H

#include "tensornet.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void)
#ifdef __cplusplus
#define ZERO {}                         /* tn_desc d = ZERO;  all of it is zero */
#else
#define ZERO {0}
#endif
#ifndef TEST_PROGRAM                    /* a program of several tests renames this one's main */
#define TEST_PROGRAM main
#endif
#define TEST_MAIN(...) \
    int TEST_PROGRAM(int argc, char **argv) \
    { \
        static void (*const list[])(void) = { __VA_ARGS__ }; \
        return test_run(#__VA_ARGS__, list, sizeof list / sizeof *list, argc > 1 ? argv[1] : ""); \
    }

#define CHECK(cond)             test_check((cond), __FILE__, __LINE__, #cond)
#define REQUIRE(cond)           do { if (!CHECK(cond)) return; } while (0)
#define CHECK_INT(a, b)         test_check_int((int64_t)(a), (int64_t)(b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_STR(a, b)         test_check_str(a, b, __FILE__, __LINE__, #a " == " #b)
#define CHECK_NEAR(a, b, tol)   test_check_near((double)(a), (double)(b), (double)(tol), __FILE__, __LINE__, #a " ~ " #b)
/* A status as expected; a context without error; a context whose error has this status and says `part`, which is then cleared; the end
   of a context without error. */
#define CHECK_STATUS(s, expected)    test_check_str(tn_status_name(s), tn_status_name(expected), __FILE__, __LINE__, #s " == " #expected)
#define CHECK_CTX(ctx)               test_check_str(tn_ctx_error(ctx), "", __FILE__, __LINE__, "no error in " #ctx)
#define CHECK_ERROR(ctx, status, part) test_check_error(ctx, status, part, __FILE__, __LINE__)
/* A call that fails with this error: one that returns NULL or false, and one that returns the status. */
#define REFUSED(ctx, call, status, part) do { CHECK(!(call)); CHECK_ERROR(ctx, status, part); } while (0)
#define FAILS(ctx, call, status, part) do { CHECK_STATUS(call, status); CHECK_ERROR(ctx, status, part); } while (0)
#define CLOSE_CTX(ctx)               do { CHECK_CTX(ctx); tn_ctx_destroy(ctx); } while (0)
/* The largest error of a whole test, printed with its bound, and checked. NaN fails. */
#define WORST(what, value, bound)    test_worst(what, (double)(value), (double)(bound), __FILE__, __LINE__)
/* Ends the test as skipped for want of `need` (fashion, locale, ...); fails it where TN_REQUIRE lists the need. */
#define SKIP(need, why)              do { test_skip(need, why); return; } while (0)
/* Ends the test for want of a device: NO_GPU because of `why`; NEED_GPU where tn_cuda_backend does not open. Skipped;
   on the engine, which has a device, failed. */
#ifdef TN_CUDA_HOST
#define NO_GPU(why)  do { test_fail(__FILE__, __LINE__, "no device", why, "the engine's"); return; } while (0)
#else
#define NO_GPU(why)  SKIP("gpu", why)
#endif
#define NEED_GPU() \
    do { char why_[256] = ""; if (!test_opens(tn_cuda_backend(), why_)) NO_GPU(why_); } while (0)

static struct test_state { const char *name; int failures; bool skipped, less; int64_t checks; } test_now;
static FILE *test_file;                 /* what is printed goes there instead of to stdout */

static inline FILE *test_out(void) { return test_file ? test_file : stdout; }

static inline bool test_fail(const char *file, int line, const char *what, const char *got, const char *expected)
{
    test_now.checks++;
    if (++test_now.failures > 10) return false;   /* one broken loop should not bury the others */
    fprintf(test_out(), "FAIL %s: %s:%d: %s", test_now.name, file, line, what);
    if (got) fprintf(test_out(), "\n     got %s\n     not %s", got, expected);
    fprintf(test_out(), "\n");
    return false;
}

static inline bool test_check(bool ok, const char *file, int line, const char *what)
{
    test_now.checks++;
    return ok || test_fail(file, line, what, NULL, NULL);
}

static inline bool test_check_int(int64_t a, int64_t b, const char *file, int line, const char *what)
{
    char got[32], expected[32];
    test_now.checks++;
    if (a == b) return true;
    snprintf(got, sizeof got, "%" PRId64, a);
    snprintf(expected, sizeof expected, "%" PRId64, b);
    return test_fail(file, line, what, got, expected);
}

static inline bool test_check_str(const char *a, const char *b, const char *file, int line, const char *what)
{
    test_now.checks++;
    if (a && b && strcmp(a, b) == 0) return true;
    return (!a && !b) || test_fail(file, line, what, a ? a : "(null)", b ? b : "(null)");
}

static inline bool test_check_near(double a, double b, double tol, const char *file, int line, const char *what)
{
    char got[64], expected[96];
    test_now.checks++;
    if (fabs(a - b) <= tol || a == b) return true;
    snprintf(got, sizeof got, "%.17g", a);
    snprintf(expected, sizeof expected, "%.17g (they differ by %.3g, allowed %.3g)", b, fabs(a - b), tol);
    return test_fail(file, line, what, got, expected);
}

static inline bool test_check_error(tn_ctx *ctx, tn_status status, const char *part, const char *file, int line)
{
    bool ok = test_check_str(tn_status_name(tn_ctx_status(ctx)), tn_status_name(status), file, line, "the context's status");
    if (!strstr(tn_ctx_error(ctx), part)) ok = test_fail(file, line, "the context's message", tn_ctx_error(ctx), part);
    tn_ctx_clear_error(ctx);
    return ok;
}

/* Keeps the largest error so far; returns true if this error is the new largest. A NaN counts as infinite, and so is never
   forgotten. */
static inline bool test_raise(double *worst, double error)
{
    if (error != error) error = HUGE_VAL;
    if (!(error > *worst)) return false;
    *worst = error;
    return true;
}

static inline bool test_worst(const char *what, double value, double bound, const char *file, int line)
{
    fprintf(test_out(), "worst %s: %.3g (bound %.3g)\n", what, value, bound);
    return test_check(value <= bound, file, line, what);
}

/* Is `need` in TN_REQUIRE, a list such as fashion,kjv,stories? */
static inline bool test_required(const char *need)
{
    const char *list = getenv("TN_REQUIRE");
    size_t n = strlen(need);
    for (; list && *list; list += strcspn(list, ","), list += *list == ',')
        if (strncmp(list, need, n) == 0 && (list[n] == ',' || list[n] == 0)) return true;
    return false;
}

static inline void test_skip(const char *need, const char *why)
{
    if (test_required(need)) { test_fail("TN_REQUIRE", 0, need, why, "to be skipped"); return; }
    fprintf(test_out(), "SKIP %s: needs %s: %s\n", test_now.name, need, why);
    test_now.skipped = true;
}

static inline bool test_opens(const tn_backend *backend, char why[256])
{
    tn_desc desc = ZERO;
    tn_ctx *ctx = NULL;
    desc.backend = backend;
    desc.backend_required = true;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) return false;
    tn_ctx_destroy(ctx);
    return true;
}

/* What the tests of a program left unchecked, by reason: test_run prints `LEFT OUT 14 of 320: gradients near a kink`. */
enum { TEST_REASONS = 32 };
static struct test_reasons { struct { const char *what; int64_t left, of; } at[TEST_REASONS]; } test_left;

/* `left` of `of` things, because of `what`, a literal. */
static inline void test_left_out(const char *what, int64_t left, int64_t of)
{
    int k = 0;
    while (k < TEST_REASONS && test_left.at[k].what && strcmp(test_left.at[k].what, what) != 0) k++;
    if (k == TEST_REASONS) {
        test_fail(__FILE__, __LINE__, "too many reasons to leave something out", what, "one of TEST_REASONS");
        return;
    }
    test_left.at[k].what = what;
    test_left.at[k].left += left;
    test_left.at[k].of += of;
}

/* For each thing that could be checked: if (test_leave_out(s->kink, "gradients near a kink")) continue; */
static inline bool test_leave_out(bool leave, const char *what)
{
    test_left_out(what, leave, 1);
    return leave;
}

/* ---- numbers that live until the end of a test, in a list that threads may lengthen at the same time */

typedef struct test_block { struct test_block *next; void *unused; } test_block;     /* before them, as large as malloc aligns */
static test_block *test_blocks;

static inline double *doubles(int64_t n)        /* n zeros */
{
    test_block *b = (test_block *)calloc((size_t)n * sizeof(double) + sizeof *b, 1);
    if (!b) abort();
    do b->next = test_blocks; while (!__sync_bool_compare_and_swap(&test_blocks, b->next, b));
    return (double *)(void *)(b + 1);
}

static inline void tidy(void)
{
    for (test_block *b; (b = test_blocks) != NULL; free(b)) test_blocks = b->next;
}

/* The names of the tests are the list's own spelling, "a, b, c". */
static inline int test_run(const char *names, void (*const *list)(void), size_t count, const char *filter)
{
    int  passed = 0, failed = 0, skipped = 0;
    char less[4096] = "";
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);   /* a crash keeps the lines before it */
    for (size_t k = 0; k < count; k++) {
        char name[128];
        size_t n = strcspn(names, ", ");
        snprintf(name, sizeof name, "%.*s", (int)n, names);
        names += n;
        names += strspn(names, ", ");
        if (!strstr(name, filter)) continue;
        test_now.name = name;
        test_now.failures = 0;
        test_now.skipped = test_now.less = false;
        test_now.checks = 0;
        list[k]();
        tidy();
        if (test_now.checks == 0 && !test_now.skipped) {
            test_now.failures++;
            fprintf(test_out(), "FAIL %s: it checks nothing\n", name);
        }
        if (test_now.less && strlen(less) + strlen(name) + 3 < sizeof less) strcat(strcat(less, less[0] ? ", " : ""), name);
        if (test_now.failures) failed++; else if (test_now.skipped) skipped++; else passed++;
    }
    if (less[0]) fprintf(test_out(), "LESS data: %s\n", less);
    for (int k = 0; k < TEST_REASONS; k++)
        if (test_left.at[k].left > 0)
            fprintf(test_out(), "LEFT OUT %" PRId64 " of %" PRId64 ": %s\n", test_left.at[k].left, test_left.at[k].of,
                    test_left.at[k].what);
    fprintf(test_out(), "%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}

/* ---- files. Tests run in the root folder of the repository, whose tests/data has all the files that they need. More
        of them, which are too large for it or state no licence, may lie in the folder that TN_TEST_DATA names: see
        tests/data/README.md. */

#define TEST_PATH 1024

static inline bool test_exists(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f) fclose(f);
    return f != NULL;
}

/* Where a test writes: TN_TEST_TMP, for programs of several ways run side by side. */
static inline const char *test_folder(void)
{
    const char *folder = getenv("TN_TEST_TMP");
    return folder ? folder : test_exists("build") ? "build" : ".";
}

/* `path` gets the name of the file: tests/data/suffix, else $TN_TEST_DATA/suffix. */
static inline bool test_find(const char *suffix, char path[TEST_PATH])
{
    const char *more = getenv("TN_TEST_DATA");
    snprintf(path, TEST_PATH, "tests/data/%s", suffix);
    if (test_exists(path)) return true;
    snprintf(path, TEST_PATH, "%s/%s", more && *more ? more : "tests/data", suffix);
    return test_exists(path);
}

/* All bytes of a file, with a zero after them, to be freed by the caller. NULL, and a failed check, if it cannot be read. */
static inline char *test_read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *p = NULL;
    *n = 0;
    if (!CHECK(f)) return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    p = (char *)malloc(*n + 1);
    if (!CHECK(p) || !CHECK(fread(p, 1, *n, f) == *n)) {
        free(p);
        p = NULL;
    } else p[*n] = 0;
    fclose(f);
    return p;
}

/* A file of the repository. If it is missing, the test fails: REQUIRE(test_data("npy/ok_f2.npy", path)). */
static inline bool test_data(const char *suffix, char path[TEST_PATH])
{
    if (test_find(suffix, path)) return true;
    printf("     tests/data/%s was not found: tests run in the root folder of the repository\n", suffix);
    return false;
}

/* A file that the repository does not have. If it is missing, the test uses less data and the line LESS names it; where
   TN_REQUIRE lists `need`, the test fails. */
static inline bool test_optional_data(const char *need, const char *suffix, char path[TEST_PATH])
{
    if (test_find(suffix, path)) return true;
    if (test_required(need)) test_fail("TN_REQUIRE", 0, need, "no such file in $TN_TEST_DATA", suffix);
    else printf("     without %s (%s), which is optional: see tests/data/README.md\n", suffix, need);
    test_now.less = true;
    return false;
}

/* Is each operation slow here, under a sanitizer or in an emulator, or does a longer suite take all of the data? A test that asks
   takes less then, and a line that begins with LESS names it. test_least: where operations are very slow, as on the CUDA engine
   under a sanitizer. */
static inline bool test_small(void)
{
    const char *s = getenv("TN_TEST_SMALL");
    if (s && *s) test_now.less = true;
    return s && *s;
}
static inline bool test_least(void) { return test_small() && strcmp(getenv("TN_TEST_SMALL"), "least") == 0; }

/* ---- numbers: the same on every machine. Start with any state. SplitMix64, Steele, Lea & Flood 2014 */

static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* low <= result <= high */
static inline int64_t test_random_int(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(test_random(state) % (uint64_t)(high - low + 1));
}

/* -1 <= result < 1 */
static inline double test_random_real(uint64_t *state)
{
    return (double)(int64_t)(test_random(state) >> 11) * 0x1p-52 - 1.0;
}

/* |a - b|_F / |b|_F, the measure of identities; |a - b| where b is zero. NaN, which fails every comparison, where a or b is
   not finite, and where the squares leave the range of a double. */
static inline double test_frobenius(const double *a, const double *b, int64_t n)
{
    double difference = 0, size = 0;
    bool   zero = true;
    for (int64_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
        zero = zero && b[i] == 0;
    }
    if (!(difference < HUGE_VAL) || !(size < HUGE_VAL) || (size == 0 && !zero)) return (double)NAN;
    return sqrt(size > 0 ? difference / size : difference);
}

/* max|a - b| / max(1, max|b|), the measure of gradients. NaN, which fails every comparison, where a or b is not finite. */
static inline double test_max_error(const double *a, const double *b, int64_t n)
{
    double difference = 0, size = 1;
    for (int64_t i = 0; i < n; i++) {
        test_raise(&difference, fabs(a[i] - b[i]));
        if (fabs(b[i]) > size) size = fabs(b[i]);
    }
    return difference < HUGE_VAL ? difference / size : (double)NAN;
}

/* ---- memory: counts, checks that release gets the size that alloc got and that nothing was written after the block,
        and fails the fail_at-th call (0: none)
        test_heap heap = {0, 0, 0, 0, false};  desc.allocator = test_heap_allocator(&heap); */

typedef struct test_heap {
    size_t   live;      /* bytes now held             */
    uint64_t blocks;    /* now held                   */
    uint64_t count;     /* calls of alloc so far      */
    uint64_t fail_at;   /* this call of alloc fails   */
    bool     fail_on;   /* and so do all after it     */
} test_heap;

enum { TEST_HEAP_HEAD = 64, TEST_HEAP_TAIL = 16, TEST_HEAP_FILL = 0x5C };   /* the head keeps malloc's alignment */

static inline void *test_heap_alloc(size_t bytes, void *user)
{
    test_heap *h = (test_heap *)user;
    uint64_t call = ++h->count;
    bool fail = h->fail_at && (call == h->fail_at || (h->fail_on && call > h->fail_at));
    char *p = fail || bytes > SIZE_MAX - TEST_HEAP_HEAD - TEST_HEAP_TAIL ? NULL : (char *)malloc(TEST_HEAP_HEAD + bytes + TEST_HEAP_TAIL);
    if (!p) return NULL;
    memcpy(p, &bytes, sizeof bytes);
    memset(p + sizeof bytes, TEST_HEAP_FILL, TEST_HEAP_HEAD - sizeof bytes);
    memset(p + TEST_HEAP_HEAD + bytes, TEST_HEAP_FILL, TEST_HEAP_TAIL);
    memset(p + TEST_HEAP_HEAD, 0xA5, bytes < 65536 ? bytes : 65536);   /* nobody may count on zeros; touching megabytes takes long */
    h->live += bytes;
    h->blocks++;
    return p + TEST_HEAP_HEAD;
}

static inline bool test_heap_intact(const char *p, size_t n)
{
    while (n > 0 && p[n - 1] == TEST_HEAP_FILL) n--;
    return n == 0;
}

static inline void test_heap_release(void *p, size_t bytes, void *user)
{
    test_heap *h = (test_heap *)user;
    const int64_t checks = test_now.checks;     /* a test that checks nothing but this checks nothing */
    size_t asked;
    if (!p) return;
    char *head = (char *)p - TEST_HEAP_HEAD;
    memcpy(&asked, head, sizeof asked);
    CHECK_INT(bytes, asked);
    CHECK(test_heap_intact(head + sizeof asked, TEST_HEAP_HEAD - sizeof asked));
    CHECK(test_heap_intact(head + TEST_HEAP_HEAD + asked, TEST_HEAP_TAIL));
    h->live -= asked;
    h->blocks--;
    free(head);
    test_now.checks = checks;
}

static inline tn_allocator test_heap_allocator(test_heap *heap)
{
    tn_allocator a;
    a.alloc = test_heap_alloc;
    a.release = test_heap_release;
    a.user = heap;
    return a;
}

#endif
