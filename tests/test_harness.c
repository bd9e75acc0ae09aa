/* The harness itself, test.h: how its error measures treat NaN and infinity, and what test_run reports of tests that
   fail, check nothing, are skipped or leave something out. Such tests run inside of a test here, and what they print is
   compared. */

#include "test.h"

/* ---- errors ------------------------------------------------------------------------------ */

static const double nan_now = (double)NAN;

/* The worst of four errors, of which number `at` is replaced by `e`. */
static double worst_with(double e, int at)
{
    const double error[] = {0.5, 0.25, 1, 0.125};
    double       worst = 0;
    for (int i = 0; i < 4; i++) test_raise(&worst, i == at ? e : error[i]);
    return worst;
}

TEST(raise_keeps_the_largest)
{
    double worst = 0;
    CHECK(!test_raise(&worst, 0) && worst == 0);
    CHECK(test_raise(&worst, 2) && worst == 2);
    CHECK(!test_raise(&worst, 2) && !test_raise(&worst, 1) && !test_raise(&worst, -3) && worst == 2);
    CHECK(test_raise(&worst, nan_now) && worst == HUGE_VAL);
    CHECK(!test_raise(&worst, 1) && !test_raise(&worst, HUGE_VAL) && !test_raise(&worst, nan_now) && worst == HUGE_VAL);
    worst = nan_now;                            /* as where the first error is the variable's initial value */
    CHECK(!test_raise(&worst, 1) && worst != worst);
    for (int at = 0; at < 4; at++) {
        CHECK(worst_with(nan_now, at) == HUGE_VAL);
        CHECK(worst_with(-nan_now, at) == HUGE_VAL);
        CHECK(worst_with(HUGE_VAL, at) == HUGE_VAL);
        CHECK(worst_with(3, at) == 3);
        CHECK(worst_with(-HUGE_VAL, at) == (at == 2 ? 0.5 : 1));
    }
}

/* Neither <= nor > may hold of a NaN, since some tests ask that two results differ. */
static bool is_nan(double e) { return e != e; }

TEST(measures_of_what_is_not_finite)
{
    const double bad[] = {nan_now, HUGE_VAL, -HUGE_VAL}, right[] = {3, -4, 0, 12};
    for (int at = 0; at < 4; at++)
        for (int k = 0; k < 3; k++)
            for (int which = 0; which < 3; which++) {           /* in the result, in the expected value, in both */
                double a[] = {3, -4, 0, 12}, b[] = {3, -4, 0, 12};
                if (which != 1) a[at] = bad[k];
                if (which != 0) b[at] = bad[k];
                CHECK(is_nan(test_max_error(a, b, 4)));
                CHECK(is_nan(test_frobenius(a, b, 4)));
            }
    CHECK(test_max_error(right, right, 4) == 0 && test_frobenius(right, right, 4) == 0);
    CHECK(test_max_error(NULL, NULL, 0) == 0 && test_frobenius(NULL, NULL, 0) == 0);
}

TEST(measures_of_numbers)
{
    const double a[] = {3, -4, 0, 12}, b[] = {3, -4, 1, 12}, zero[] = {0, 0, 0, 0};
    double       large[4], other[4];
    CHECK_NEAR(test_max_error(a, b, 4), 1 / 12.0, 1e-16);
    CHECK_NEAR(test_max_error(b, a, 4), 1 / 12.0, 1e-16);
    CHECK(test_max_error(a, zero, 4) == 12);            /* never divided by less than 1 */
    CHECK_NEAR(test_frobenius(b, a, 4), 1 / 13.0, 1e-16);
    CHECK_NEAR(test_frobenius(a, zero, 4), 13, 0);
    for (int k = 0; k < 2; k++) {                       /* their squares are infinite, or zero, except in long double */
        for (int i = 0; i < 4; i++) { large[i] = ldexp(a[i], k ? -700 : 700); other[i] = -large[i]; }
        double e = test_frobenius(other, large, 4);
        CHECK(is_nan(e) || e == 2);
    }
}

/* ---- tests inside of a test ------------------------------------------------------------------ */

typedef struct outer { struct test_state now; struct test_reasons left; } outer;
static char said[4096];

/* What follows prints into a file, and its failures are its own. */
static bool go_inside(outer *o)
{
    char path[TEST_PATH];
    o->now = test_now;
    o->left = test_left;
    snprintf(path, sizeof path, "%s/harness.txt", test_folder());
    if (!CHECK((test_file = fopen(path, "w+")) != NULL)) return false;
    memset(&test_now, 0, sizeof test_now);
    memset(&test_left, 0, sizeof test_left);
    test_now.name = "inner";
    return true;
}

static void go_outside(const outer *o)
{
    char path[TEST_PATH];
    rewind(test_file);
    size_t n = fread(said, 1, sizeof said - 1, test_file);
    said[n] = 0;
    fclose(test_file);
    test_file = NULL;
    test_now = o->now;
    test_left = o->left;
    snprintf(path, sizeof path, "%s/harness.txt", test_folder());
    remove(path);
}

typedef enum question { NEAR_TO, WORST_OF, SAME_STRING, SAME_INT, STATUS_OF_NULL } question;

/* Does this check pass? */
static bool passes(question q, double a, double b, double tol)
{
    outer o;
    bool  ok = false;
    if (!go_inside(&o)) return false;
    switch (q) {
    case NEAR_TO:        ok = CHECK_NEAR(a, b, tol); break;
    case WORST_OF:       ok = WORST("inner", a, b); break;
    case SAME_STRING:    ok = CHECK_STR(a > 0 ? "a" : NULL, b > 0 ? "a" : NULL); break;
    case SAME_INT:       ok = CHECK_INT(a, b); break;
    case STATUS_OF_NULL: ok = CHECK_STATUS((tn_status)(int)a, (tn_status)(int)b); break;
    }
    bool counted = test_now.checks > 0 && test_now.failures == !ok;
    go_outside(&o);
    CHECK(counted);
    return ok;
}

TEST(near_and_worst)
{
    CHECK(passes(NEAR_TO, 1, 1.5, 0.5) && passes(NEAR_TO, 1, 1, 0) && passes(NEAR_TO, HUGE_VAL, HUGE_VAL, 0));
    CHECK(!passes(NEAR_TO, 1, 1.5, 0.25) && !passes(NEAR_TO, HUGE_VAL, -HUGE_VAL, 1) && !passes(NEAR_TO, HUGE_VAL, 1, 1));
    CHECK(!passes(NEAR_TO, nan_now, 1, 1) && !passes(NEAR_TO, 1, nan_now, 1) && !passes(NEAR_TO, nan_now, nan_now, 1));
    CHECK(!passes(NEAR_TO, 1, 2, nan_now));
    CHECK(passes(WORST_OF, 1, 1, 0) && passes(WORST_OF, 0, 1, 0) && !passes(WORST_OF, 1.5, 1, 0));
    CHECK(!passes(WORST_OF, nan_now, 1, 0) && !passes(WORST_OF, HUGE_VAL, 1, 0) && !passes(WORST_OF, 0, nan_now, 0));
    CHECK(strstr(said, "worst inner: 0 (bound ") != NULL);
    for (int at = 0; at < 4; at++) {
        CHECK(!passes(WORST_OF, worst_with(nan_now, at), 1, 0));
        CHECK(passes(WORST_OF, worst_with(0.5, at), 1, 0));
    }
}

TEST(other_checks)
{
    CHECK(passes(SAME_STRING, 1, 1, 0) && passes(SAME_STRING, 0, 0, 0));
    CHECK(!passes(SAME_STRING, 1, 0, 0) && !passes(SAME_STRING, 0, 1, 0));
    CHECK(passes(SAME_INT, 3, 3, 0) && !passes(SAME_INT, 3, -3, 0));
    CHECK(passes(STATUS_OF_NULL, TN_OK, TN_OK, 0) && !passes(STATUS_OF_NULL, TN_ERR_ARG, TN_OK, 0));
}

/* What test_run prints of a list of tests, and what it returns. */
static int run_inside(const char *names, void (*const *list)(void), size_t count, const char *filter)
{
    outer o;
    if (!go_inside(&o)) return -1;
    int result = test_run(names, list, count, filter);
    go_outside(&o);
    return result;
}
#define RUN(filter, ...) run_inside(#__VA_ARGS__, list, sizeof list / sizeof *list, filter)

TEST(good)     { CHECK(true); }
TEST(bad)      { for (int i = 0; i < 14; i++) CHECK_INT(i, -1); }
TEST(required) { REQUIRE(1 > 2); CHECK_INT(1, 2); }
TEST(nothing)  { }
TEST(skipped)  { SKIP("nonesuch", "there is no such thing"); }
TEST(partly)   { for (int i = 0; i < 7; i++) if (!test_leave_out(i % 3 == 0, "every third")) CHECK(i % 3 > 0); }

TEST(largely)
{
    test_left_out("all but one", 99, 100);
    test_left_out("none", 0, 5);
    CHECK(!test_leave_out(false, "every third"));
}

TEST(only_its_heap)
{
    test_heap    heap = {0, 0, 0, 0, false};
    tn_allocator a = test_heap_allocator(&heap);
    a.release(a.alloc(16, a.user), 16, a.user);
}

TEST(results_are_counted)
{
    static void (*const list[])(void) = {good, bad, required, skipped, good};
    CHECK_INT(RUN("", good, bad, required, skipped, again), 1);
    CHECK(strstr(said, "FAIL bad: ") == said && strstr(said, "got 9\n     not -1\n") && !strstr(said, "got 10\n"));
    CHECK(strstr(said, "FAIL required: ") != NULL && strstr(said, ": 1 > 2\n") && !strstr(said, "got 1\n     not 2"));
    CHECK(strstr(said, "\nSKIP skipped: needs nonesuch: there is no such thing\n2 passed, 2 failed, 1 skipped\n") != NULL);
    CHECK_INT(RUN("go", good, bad, required, skipped, again), 0);
    CHECK_STR(said, "1 passed, 0 failed, 0 skipped\n");
}

TEST(a_test_that_checks_nothing_fails)
{
    static void (*const list[])(void) = {good, nothing, only_its_heap, skipped};
    CHECK_INT(RUN("", good, nothing, only_its_heap, skipped), 1);
    CHECK_STR(said, "FAIL nothing: it checks nothing\nFAIL only_its_heap: it checks nothing\n"
                    "SKIP skipped: needs nonesuch: there is no such thing\n1 passed, 2 failed, 1 skipped\n");
}

TEST(what_is_left_out_is_counted)
{
    static void (*const list[])(void) = {partly, largely};
    CHECK_INT(RUN("", partly, largely), 0);
    CHECK_STR(said, "LEFT OUT 3 of 8: every third\nLEFT OUT 99 of 100: all but one\n2 passed, 0 failed, 0 skipped\n");
    CHECK_INT(RUN("largely", partly, largely), 0);
    CHECK_STR(said, "LEFT OUT 99 of 100: all but one\n1 passed, 0 failed, 0 skipped\n");
}

TEST_MAIN(raise_keeps_the_largest, measures_of_what_is_not_finite, measures_of_numbers, near_and_worst, other_checks,
          results_are_counted, a_test_that_checks_nothing_fails, what_is_left_out_is_counted)
