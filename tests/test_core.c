/* test_core.c: numbers, text, random numbers, memory, errors, tensors, the tape's rules, threads. It looks inside. */

#include "comma.h"
#include "closing.h"                    /* before io/writer.c, whose files it closes */
#include "sealed.h"
#include "cases.h"
#include "kit.h"
#include "pool.h"
#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "core/rng.c"
#include "io/writer.c"
#include "text/letters.c"
#include <limits.h>
#if SEALED
#include <sys/stat.h>
#endif

/* ---- helpers -------------------------------------------------------------------------------------------------- */

static tn_desc desc_of(tn_dtype dtype)
{
    tn_desc d = ZERO;
    d.dtype = dtype;
    return d;
}

static tn_tensor *tensor_of(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape, const double *v)
{
    tn_tensor *t = tn_tensor_nd(ctx, dtype, rank, shape);
    CHECK_STATUS(tn_write(t, TN_F64, v, shape_count(rank, shape)), TN_OK);
    return t;
}

static tn_tensor *vector_of(tn_ctx *ctx, int64_t n, const double *v) { return tensor_of(ctx, TN_REAL, 1, &n, v); }

static tn_tensor *counting(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)      /* 0, 1, 2, .. */
{
    int64_t n = shape_count(rank, shape);
    double *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = (double)i;
    tn_tensor *t = tensor_of(ctx, dtype, rank, shape, v);
    return t;
}

static tn_tensor *counted(tn_ctx *ctx, int64_t n, int64_t m)
{
    int64_t shape[2] = {n, m};
    return counting(ctx, TN_REAL, 2, shape);
}

static tn_param *param_of(tn_params *ps, const char *name, int64_t n, int64_t m)
{
    tn_init init = ZERO;
    init.rule = TN_INIT_NORMAL;
    int64_t shape[2] = {n, m};
    return tn_params_add(ps, name, 2, shape, init);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static double double_of(uint64_t bits) { double v; memcpy(&v, &bits, 8); return v; }
static uint64_t bits_of(double v) { uint64_t bits; memcpy(&bits, &v, 8); return bits; }

static bool parses(const char *text)
{
    double mine = -1, theirs = strtod(text, NULL);
    size_t used = tni_parse_double(text, strlen(text), &mine);
    if (CHECK(used == strlen(text) && bits_of(mine) == bits_of(theirs))) return true;
    printf("     \"%.60s\": used %zu of %zu, got %.17g, not %.17g\n", text, used, strlen(text), mine, theirs);
    return false;
}

static bool formats(double v, int digits)
{
    char mine[32], theirs[64];
    int n = tni_format_double(mine, v, digits);
    snprintf(theirs, sizeof theirs, "%.*g", digits, v);
    return CHECK_STR(mine, theirs) && CHECK_INT(n, strlen(mine));
}

/* Any finite double: every exponent, and every fourth one subnormal or small. */
static double any_double(uint64_t *rng)
{
    uint64_t bits = test_random(rng), kind = test_random(rng) % 4;
    if (kind == 0) bits &= 0x803fffffffffffffu;
    if (kind == 1) bits = (bits & 0x800fffffffffffffu) | (uint64_t)(1023 + test_random_int(rng, -40, 70)) << 52;
    if ((bits >> 52 & 0x7ff) == 0x7ff) bits ^= (uint64_t)1 << 60;
    return double_of(bits);
}

TEST(numbers_parse)
{
    uint64_t rng = 1;
    char text[64];
    for (int i = 0; i < 100000; i++) {
        snprintf(text, sizeof text, "%.*e", (int)test_random_int(&rng, 0, 40), any_double(&rng));
        if (!parses(text)) break;
    }
    for (int i = 0; i < 20000; i++) {        /* short numbers, as people write them */
        snprintf(text, sizeof text, "%d.%de%d", (int)test_random_int(&rng, -999, 999), (int)test_random_int(&rng, 0, 99999), (int)test_random_int(&rng, -30, 30));
        if (!parses(text)) break;
    }
}

/* Decimal digits of m 2^e, exactly, with a digit behind them if it is not 0, as text. */
static void write_exactly(char *text, size_t bytes, uint64_t m, int e, char behind)
{
    static unsigned char d[1400];
    int n = 0, carry, exponent = 0;
    size_t at = 0;
    for (; m > 0; m /= 10) d[n++] = (unsigned char)(m % 10);             /* lowest first */
    for (int k = 0; k < (e < 0 ? -e : e); k++) {
        for (int i = carry = 0; i < n; i++) {
            carry += d[i] * (e < 0 ? 5 : 2);
            d[i] = (unsigned char)(carry % 10);
            carry /= 10;
        }
        if (carry > 0) d[n++] = (unsigned char)carry;
        if (e < 0) exponent--;
    }
    for (int i = n - 1; i >= 0 && at + 16 < bytes; i--) text[at++] = (char)('0' + d[i]);
    if (behind) { text[at++] = behind; exponent--; }
    snprintf(text + at, bytes - at, "e%d", exponent);
}

/* Exactly between two doubles, and a hair above. */
TEST(numbers_halfway)
{
    uint64_t rng = 2;
    char text[1500];
    for (int i = 0; i < (test_small() ? 600 : 3000); i++) {
        uint64_t m = (test_random(&rng) >> 11) | ((uint64_t)1 << 52);
        int e = (int)(i % 3 == 0 ? test_random_int(&rng, -1075, -1000) : i % 3 == 1 ? test_random_int(&rng, -80, 80) : test_random_int(&rng, -1075, 970));
        if (e < -1030) m >>= test_random_int(&rng, 0, 50);               /* subnormal: fewer bits */
        m = 2 * m + 1;
        write_exactly(text, sizeof text, m, e - 1 < -1075 ? -1075 : e - 1, 0);
        if (!parses(text)) break;
        write_exactly(text, sizeof text, m, e - 1 < -1075 ? -1075 : e - 1, '1');
        if (!parses(text)) break;
        write_exactly(text, sizeof text, m * 10 - 1, e - 1 < -1075 ? -1075 : e - 1, 0);
        if (!parses(text)) break;
    }
}

/* Halfway between two doubles by its first 767 digits or more, and above it by a digit that comes so late that no buffer of
   800 digits holds it. */
TEST(numbers_just_above_halfway)
{
    static const int zeros[] = {0, 20, 31, 32, 33, 40, 400, 1500};
    static char half[1500], text[3200];
    uint64_t rng = 5;
    for (int i = 0; i < 50; i++) {
        const uint64_t bits = (test_random(&rng) >> 12) | ((uint64_t)1 << 52);
        const uint64_t m = bits & ~(uint64_t)1;                          /* even, so that a tie goes down */
        double v = 0;
        write_exactly(half, sizeof half, 2 * m + 1, -1075, 0);           /* 53 bits from the smallest subnormal, 2^-1074 */
        size_t digits = strcspn(half, "e");
        int exponent = atoi(half + digits + 1);
        CHECK(digits >= 760);
        if (!CHECK(tni_parse_double(half, strlen(half), &v) == strlen(half) && v == ldexp((double)m, -1074))) break;
        for (size_t k = 0; k < sizeof zeros / sizeof *zeros; k++) {
            memcpy(text, half, digits);
            memset(text + digits, '0', (size_t)zeros[k]);
            snprintf(text + digits + zeros[k], 40, "1e%d", exponent - zeros[k] - 1);
            if (!CHECK(tni_parse_double(text, strlen(text), &v) == strlen(text) && v == ldexp((double)(m + 1), -1074))) {
                printf("     %d digits, %d zeros and a 1 were rounded down\n", (int)digits, zeros[k]);
                break;
            }
            parses(text);
        }
    }
}

TEST(numbers_long)
{
    uint64_t rng = 3;
    static char text[3000];
    for (int i = 0; i < 3000; i++) {
        int n = (int)test_random_int(&rng, 1, i % 10 == 0 ? 2000 : 60), point = (int)test_random_int(&rng, 0, n), zeros = i % 5 == 0 ? (int)test_random_int(&rng, 0, 400) : 0;
        size_t at = 0;
        for (int k = 0; k < zeros; k++) { text[at++] = '0'; if (k == 0) text[at++] = '.'; }
        for (int k = 0; k < n; k++) {
            if (zeros == 0 && k == point) text[at++] = '.';
            text[at++] = (char)('0' + test_random_int(&rng, i % 2 ? 8 : 0, 9));
        }
        snprintf(text + at, sizeof text - at, "e%d", (int)test_random_int(&rng, -n - 330, 330));
        if (!parses(text)) break;
    }
    parses("1e400"); parses("-1e400"); parses("1e-400"); parses("1e99999999999"); parses("1e-99999999999"); parses("0e99999999999");
    parses("1.7976931348623157e308"); parses("1.7976931348623158e308"); parses("1.7976931348623159e308"); parses("179769313486231580793e289");
    parses("2.2250738585072014e-308"); parses("2.2250738585072011e-308"); parses("4.9406564584124654e-324"); parses("2.4703282292062327e-324");
    parses("2.4703282292062328e-324"); parses("0"); parses("-0"); parses("0.000"); parses("-.5"); parses("5."); parses("+7"); parses("inf"); parses("-Infinity");
    parses("9007199254740993"); parses("9007199254740992.99999999999999999999999999999999");
    memset(text, '0', 2500);              /* zeros in front and behind change nothing */
    memcpy(text + 2100, "1e3", 4);
    parses(text);
    text[0] = '1';
    memset(text + 1, '0', 2099);
    memcpy(text + 2100, "e-2100", 7);
    parses(text);
}

static bool takes(const char *text, size_t len, size_t used, double value)
{
    double v = 77;
    bool ok = CHECK_INT(tni_parse_double(text, len, &v), used);
    return ok && (used == 0 || CHECK(bits_of(v) == bits_of(value)));
}

TEST(numbers_edges)
{
    double v;
    takes("12345", 3, 3, 123);
    takes("1e5", 2, 1, 1);
    takes("1e+", 3, 1, 1);
    takes("1e-5", 3, 1, 1);
    takes("1.5.2", 5, 3, 1.5);
    takes("0x10", 4, 1, 0);
    takes("2,5", 3, 1, 2);
    takes("infx", 4, 3, HUGE_VAL);
    takes("-INFINITY!", 10, 9, -HUGE_VAL);
    takes("1 2", 3, 1, 1);
    takes("", 0, 0, 0);
    takes("-", 1, 0, 0);
    takes(".", 1, 0, 0);
    takes("e5", 2, 0, 0);
    takes(" 1", 2, 0, 0);
    takes("in", 2, 0, 0);
    takes("--1", 3, 0, 0);
    CHECK(tni_parse_double("NaN", 3, &v) == 3 && v != v);
    CHECK(tni_parse_double("-nan", 4, &v) == 4 && v != v);
}

TEST(numbers_format)
{
    static const double some[] = {0, -0.0, 1, -1, 0.1, 0.5, 1.5, 2.5, 9.5, 99.5, 9.9999999, 0.00001, 0.0001, 0.00012345, 99999, 999999.5, 1e5, 1e6, 1e15, 1e16,
                                  1e17, 1e21, 1e22, 1e23, 5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, 123456789, 0.3, 1.0 / 3, 12345.678, 100, 1e100};
    uint64_t rng = 4;
    char text[32];
    double back;
    for (size_t k = 0; k < sizeof some / sizeof *some; k++)
        for (int digits = 1; digits <= 17; digits++) formats(some[k], digits);
    for (int i = 0; i < 60000; i++) {
        double v = any_double(&rng);
        if (!formats(v, (int)test_random_int(&rng, 1, 17))) break;
        if (i % 4) continue;
        tni_format_double(text, v, 17);          /* 17 digits come back as they were */
        if (!CHECK(tni_parse_double(text, strlen(text), &back) > 0 && bits_of(back) == bits_of(v))) break;
    }
    for (int i = 0; i < 40000; i++) {                /* numbers that end in 5: ties */
        if (!formats((double)test_random_int(&rng, -100000, 100000) / (double)(1 << test_random_int(&rng, 0, 12)), (int)test_random_int(&rng, 1, 8))) break;
    }
    CHECK_INT(tni_format_double(text, (double)NAN, 5), 3);
    CHECK_STR(text, "nan");
    CHECK_INT(tni_format_double(text, -HUGE_VAL, 5), 4);
    CHECK_STR(text, "-inf");
}

TEST(numbers_in_a_comma_locale)
{
    char text[64];
    double v;
    if (!comma_locale()) SKIP("locale", "one with a decimal comma");
    snprintf(text, sizeof text, "%g", 1.5);
    CHECK_STR(text, "1,5");
    CHECK(tni_parse_double("1.5", 3, &v) == 3 && v == 1.5);
    tni_format_double(text, 1.5, 6);
    CHECK_STR(text, "1.5");
    tni_print(text, sizeof text, "%g and %d", 2.25, 1000000);
    CHECK_STR(text, "2.25 and 1000000");
    setlocale(LC_NUMERIC, "C");
}

/* ---- text ----------------------------------------------------------------------------------------------------------- */

TEST(text)
{
    const char *volatile nothing = NULL;       /* the compiler is not to see it */
    int64_t big[8] = {INT64_MAX, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN};
    char s[256];
    size_t n = tni_print(s, sizeof s, "%s|%c|%d|%lld|%llu|%zu|%g|100%%", "word", 'x', -5, (long long)INT64_MIN, (unsigned long long)UINT64_MAX, (size_t)7, 0.25);
    CHECK_STR(s, "word|x|-5|-9223372036854775808|18446744073709551615|7|0.25|100%");
    CHECK_INT(n, strlen(s));
    CHECK_INT(tni_print(s, sizeof s, "%d %d", INT_MIN, INT_MAX), 22);
    CHECK_STR(s, "-2147483648 2147483647");
    memset(s, '#', sizeof s);
    CHECK_INT(tni_print(s, 5, "%s", "abcdefgh"), 8);          /* cut short, ended, and nothing behind touched */
    CHECK_STR(s, "abcd");
    CHECK(s[5] == '#');
    CHECK_INT(tni_print(s, 1, "abc"), 3);
    CHECK_STR(s, "");
    CHECK_INT(tni_print(NULL, 0, "abc"), 3);
    tni_print(s, sizeof s, "%s", nothing);
    CHECK_STR(s, "NULL");
    CHECK_STR(tni_shape_of(0, NULL).s, "[]");
    CHECK_STR(tni_shape_of(3, big).s, "[9223372036854775807,-9223372036854775808,-9223372036854775808]");
    CHECK_INT(strlen(tni_shape_of(8, big).s), 8 * 20 - 1 + 9);
    CHECK_STR(tn_status_name(TN_OK), "ok");
    CHECK_STR(tn_status_name((tn_status)15), "unknown status");
    CHECK_STR(tn_status_name(TN_ERR_CONVERGENCE), "no convergence");
    CHECK_STR(tn_kernel_name(TN_KERNEL_COPY), "copy");
    CHECK_STR(tn_kernel_name(TN_KERNEL_TICK), "tick");
    CHECK_STR(tn_kernel_name(TN_KERNEL_COUNT), "?");
    snprintf(s, sizeof s, "%d.%d.%d", TN_VERSION_MAJOR, TN_VERSION_MINOR, TN_VERSION_PATCH);
    CHECK_STR(tn_version(), s);
}

TEST(sizes)
{
    size_t out;
    CHECK(tni_mul_size(3, 4, &out) && out == 12);
    CHECK(tni_mul_size(SIZE_MAX, 1, &out) && out == SIZE_MAX);
    CHECK(tni_mul_size(0, SIZE_MAX, &out) && out == 0);
    CHECK(!tni_mul_size(SIZE_MAX / 2 + 1, 2, &out));
    CHECK(tni_add_size(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    CHECK(!tni_add_size(SIZE_MAX, 1, &out));
    CHECK(tni_area_size(3, 4, 5, &out) && out == 60);
    CHECK(tni_area_size(0, PTRDIFF_MAX, 8, &out) && out == 0);
    CHECK(!tni_area_size(-1, 0, 8, &out) && !tni_area_size(0, -1, 8, &out) && !tni_area_size(PTRDIFF_MAX, 1, 8, &out));
    CHECK(tni_area_size((int64_t)1 << 32, 1, 8, &out) == (sizeof(size_t) > 4));     /* not 0 bytes, where a size has 32 bits */
    CHECK(tni_area_size(1, ((int64_t)1 << 32) + 5, 3, &out) == (sizeof(size_t) > 4));
}

/* An allocation of 2^32 doubles is refused, whatever the size of a size. */
TEST(extents_beyond_a_size)
{
    tn_desc d = desc_of(TN_F64);
    d.max_bytes = 1 << 20;
    tn_ctx *ctx = ctx_new(&d);
    tni_scratch w = tni_scratch_begin(ctx, "test");
    REFUSED(ctx, tni_take_f64(&w, (int64_t)1 << 32, 1), TN_ERR_MEMORY, "test: ");
    CHECK_STATUS(tni_scratch_end(&w, TN_ERR_MEMORY), TN_ERR_MEMORY);
    CHECK(!tn_image_create(ctx, ((int64_t)1 << 32) + 5, 1));
    CHECK(tn_ctx_status(ctx) != TN_OK);
    tn_ctx_destroy(ctx);
}

/* Pieces that are taken, and released back to a mark, in any order: none overlaps another, whatever block it lies in, and all
   memory is returned. */
TEST(scratch_pieces)
{
    enum { PIECES = 40 };
    tn_ctx      *ctx = ctx_of(TN_F64);
    const size_t live = tn_ctx_memory(ctx).live;
    uint64_t     rng = 5;
    for (int round = 0; round < 50; round++) {
        tni_scratch      w = tni_scratch_begin(ctx, "test");
        unsigned char   *piece[PIECES];
        int64_t          bytes[PIECES];
        const tni_taken *mark[PIECES];
        int              n = 0;
        bool             overwritten = false;
        for (int step = 0; step < 100; step++) {
            const int to = n == PIECES || (n > 0 && test_random_int(&rng, 0, 3) == 0) ? (int)test_random_int(&rng, 0, n - 1) : n;
            if (to < n) {
                tni_scratch_release(&w, mark[to]);
                n = to;
                continue;
            }
            mark[n] = w.newest;
            bytes[n] = test_random_int(&rng, 0, 1) ? test_random_int(&rng, 0, 40) : test_random_int(&rng, 0, 3000);
            piece[n] = (unsigned char *)tni_take(&w, bytes[n], 1);
            if (!CHECK(piece[n] && (uintptr_t)piece[n] % 16 == 0)) break;
            memset(piece[n], n, (size_t)bytes[n]);
            n++;
            for (int i = 0; i < n; i++)
                for (int64_t b = 0; b < bytes[i]; b++) overwritten = overwritten || piece[i][b] != i;
            if (!CHECK(!overwritten)) break;
        }
        CHECK_STATUS(tni_scratch_end(&w, TN_OK), TN_OK);
        CHECK(tn_ctx_memory(ctx).live == live && w.all == 0);
    }
    tn_ctx_destroy(ctx);
}

/* ---- random ------------------------------------------------------------------------------------------------------------ */

TEST(philox)
{
    /* kat_vectors of Random123, philox4x32 with 10 rounds; the last is the digits of pi */
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}
    };
    uint64_t rng = 5;
    uint32_t out[4], other[4], counter[4], key[2];
    for (int i = 0; i < 3; i++) {
        tni_philox(known[i], known[i][4] | (uint64_t)known[i][5] << 32, out);
        for (int k = 0; k < 4; k++) CHECK_INT(out[k], known[i][6 + k]);
    }
    for (int i = 0; i < 10000; i++) {
        for (int k = 0; k < 4; k++) counter[k] = (uint32_t)test_random(&rng);
        for (int k = 0; k < 2; k++) key[k] = (uint32_t)test_random(&rng);
        tni_philox(counter, key[0] | (uint64_t)key[1] << 32, out);
        plain_philox(counter, key, other);
        if (!CHECK(memcmp(out, other, sizeof out) == 0)) break;
    }
    CHECK(tni_unit(0) > 0);
    CHECK(tni_unit(UINT32_MAX) < 1);
}

enum { MANY = 1 << 19 };

/* Moments within five standard errors. */
static void moments(tn_ctx *ctx)
{
    int64_t n = MANY, bin[64];
    double *u = host(tn_uniform(ctx, 1, &n, 0, 1)), *z = host(tn_normal(ctx, 1, &n, 0, 1)), *z2 = host(tn_normal(ctx, 1, &n, 0, 1));
    double sum[5] = {0, 0, 0, 0, 0}, chi = 0, low = 1, high = 0, together = 0, pairs = 0, three = 0, four = 0, largest = 0, root = sqrt((double)n);
    memset(bin, 0, sizeof bin);
    for (int64_t i = 0; i < n; i++) {
        double p = 1;
        if (u[i] < low) low = u[i];
        if (u[i] > high) high = u[i];
        if (u[i] > 0 && u[i] < 1) bin[(int)(u[i] * 64)]++;
        for (int k = 1; k < 5; k++) { p *= z[i]; sum[k] += p; }
        together += z[i] * z2[i];
        if (i > 0) pairs += z[i] * z[i - 1];
        three += fabs(z[i]) > 3;
        four += fabs(z[i]) > 4;
        if (fabs(z[i]) > largest) largest = fabs(z[i]);
    }
    for (int64_t i = 0; i < 64; i++)
        chi += ((double)bin[i] - (double)n / 64) * ((double)bin[i] - (double)n / 64) / ((double)n / 64);
    CHECK(low > 0 && low < 1e-4 && high < 1 && high > 1 - 1e-4);
    CHECK_NEAR(chi, 63, 5 * sqrt(2 * 63.0));
    CHECK_NEAR(sum[1] / (double)n, 0, 5 / root);
    CHECK_NEAR(sum[2] / (double)n, 1, 5 * sqrt(2.0) / root);
    CHECK_NEAR(sum[3] / (double)n, 0, 5 * sqrt(15.0) / root);
    CHECK_NEAR(sum[4] / (double)n, 3, 5 * sqrt(96.0) / root);
    CHECK_NEAR(together / (double)n, 0, 5 / root);
    CHECK_NEAR(pairs / (double)n, 0, 5 / root);
    CHECK_NEAR(three, 0.0026998 * (double)n, 5 * sqrt(0.0026998 * (double)n));
    CHECK_NEAR(four, 6.334e-5 * (double)n, 5 * sqrt(6.334e-5 * (double)n));
    CHECK(largest < 5.8);                 /* sqrt(-2 log 2^-24) */
}

TEST(random_moments)
{
    tn_ctx *slim = ctx_of(TN_F32), *wide = ctx_of(TN_F64);
    moments(slim);
    moments(wide);
    CHECK_CTX(slim);
    CHECK_CTX(wide);
    tn_ctx_destroy(slim);
    tn_ctx_destroy(wide);
}

static void random_two(tn_ctx *ctx, float v[2][64])
{
    int64_t n = 64;
    CHECK_STATUS(tn_read(tn_normal(ctx, 1, &n, 0, 1), TN_F32, v[0], n), TN_OK);
    CHECK_STATUS(tn_read(tn_uniform(ctx, 1, &n, 0, 1), TN_F32, v[1], n), TN_OK);
}

/* The stream is the seed's: again after the same seed, another after another; each call and each step has its own part. */
TEST(random_streams)
{
    tn_desc d = desc_of(TN_F32);
    float first[2][64], again[2][64], next[2][64], seeded[2][64];
    int64_t n = 64;
    float one[64], two[64];
    d.seed = 12345678901234567u;
    tn_ctx *ctx = ctx_new(&d);
    tn_ctx *other = ctx_new(NULL);
    random_two(ctx, first);
    tn_ctx_reset(ctx);
    random_two(ctx, next);
    CHECK(memcmp(first, next, sizeof first) != 0);
    tn_ctx_seed(ctx, d.seed);
    random_two(ctx, again);
    CHECK(memcmp(first, again, sizeof first) == 0);
    tn_ctx_reset(ctx);
    random_two(ctx, again);
    CHECK(memcmp(next, again, sizeof next) == 0);
    random_two(other, seeded);
    CHECK(memcmp(first, seeded, sizeof first) != 0);
    tn_ctx_seed(other, d.seed);
    random_two(other, seeded);
    CHECK(memcmp(first, seeded, sizeof first) == 0);
    tn_ctx_seed(other, d.seed ^ (uint64_t)1 << 40);        /* the upper half counts */
    random_two(other, seeded);
    CHECK(memcmp(first, seeded, sizeof first) != 0);
    CHECK_STATUS(tn_read(tn_normal(ctx, 1, &n, 0, 1), TN_F32, one, n), TN_OK);
    CHECK_STATUS(tn_read(tn_normal(ctx, 1, &n, 0, 1), TN_F32, two, n), TN_OK);
    CHECK(memcmp(one, two, sizeof one) != 0);
    tn_ctx_destroy(ctx);
    tn_ctx_destroy(other);
}

/* The number of a block has 64 bits, whose upper half matters from element 2^34 on. */
TEST(random_words_of_far_blocks)
{
    uint64_t rng = 6;
    for (int i = 0; i < 2000; i++) {
        const uint64_t block = i < 8 ? UINT32_MAX - 3 + (uint64_t)i : test_random(&rng) >> i % 33, seed = test_random(&rng);
        const uint32_t clock = (uint32_t)test_random(&rng);
        const int64_t  call = (int64_t)(test_random(&rng) >> 33);
        uint32_t       out[4], other[4];
        uint32_t       counter[4] = {(uint32_t)(block & UINT32_MAX), (uint32_t)(block >> 32), (uint32_t)call, clock};
        uint32_t       key[2] = {(uint32_t)(seed & UINT32_MAX), (uint32_t)(seed >> 32)};
        tni_random_words(seed, call, clock, block, out);
        plain_philox(counter, key, other);
        if (!CHECK(memcmp(out, other, sizeof out) == 0)) break;
    }
}

/* Element e of random call number `call` after the reset that set the clock to this value */
static double random_at(uint64_t seed, uint32_t clock, uint32_t call, uint32_t e)
{
    uint32_t out[4];
    uint32_t counter[4] = {e / 4, 0, call, clock};
    uint32_t key[2] = {(uint32_t)(seed & UINT32_MAX), (uint32_t)(seed >> 32)};
    plain_philox(counter, key, out);
    return (floor((double)out[e % 4] / 512) + 0.5) / 8388608;
}

/* Two random calls give the numbers of this clock. */
static void check_clock(tn_ctx *ctx, uint64_t seed, uint32_t clock)
{
    enum { N = 70 };
    const int64_t n = N;
    for (uint32_t call = 0; call < 2; call++) {
        double u[N], worst = 0;
        if (!CHECK_STATUS(tn_read(tn_uniform(ctx, 1, &n, 0, 1), TN_F64, u, n), TN_OK)) return;
        for (uint32_t e = 0; e < N; e++) test_raise(&worst, fabs(u[e] - random_at(seed, clock, call, e)));
        if (!CHECK(worst == 0)) printf("     clock %u, call %u\n", (unsigned)clock, (unsigned)call);
    }
}

/* A reset after random calls moves the clock by exactly one, so that a run that is resumed under another version of the
   library continues with the same numbers. A reset after no random call does not move it. */
TEST(random_clock)
{
    const tn_backend *backend[3];
    const int64_t     n = 5;
    backend[0] = tn_cpu_backend();
    backend[1] = tn_reference_backend();
    backend[2] = sealed_cpu();
    for (int k = 0; k < 6; k++) {
        tn_desc d = desc_of(k % 2 ? TN_F64 : TN_F32);
        if (test_leave_out(!backend[k / 2], NO_SEALED)) continue;
        d.backend = backend[k / 2];
        d.seed = 0x123456789ABCDEFu;
        tn_ctx *ctx = ctx_new(&d);
        for (uint32_t clock = 0; clock < 4; clock++) {
            check_clock(ctx, d.seed, clock);
            tn_ctx_reset(ctx);
        }
        tn_ctx_reset(ctx);
        tn_scale(ctx, tn_full(ctx, 1, &n, 1), 2);
        tn_ctx_reset(ctx);
        check_clock(ctx, d.seed, 4);
        tn_ctx_seed(ctx, 77);
        check_clock(ctx, 77, 0);
        tn_ctx_reset(ctx);
        check_clock(ctx, 77, 1);
        CLOSE_CTX(ctx);
    }
}

/* A longer tensor begins with the numbers of a shorter one, at any length and level. */
TEST(random_prefix)
{
    for (tn_simd level = TN_SIMD_PLAIN; level <= TN_SIMD_NEON; level = (tn_simd)(level + 1)) {
        tn_desc d = desc_of(TN_F32);
        float all[3][77], v[77];
        int64_t n = 77;
        d.simd = level;
        tn_ctx *ctx = ctx_new(&d);
        for (; n >= 0; n = n > 40 ? n - 9 : n - 1)
            for (int k = 0; k < 3; k++) {
                tn_ctx_seed(ctx, 9);
                tn_record(ctx);
                tn_tensor *t = k == 0 ? tn_uniform(ctx, 1, &n, 0, 1) : k == 1 ? tn_normal(ctx, 1, &n, 0, 1)
                               : tn_dropout(ctx, tn_full(ctx, 1, &n, 1), 0.5);
                CHECK_STATUS(tn_read(t, TN_F32, v, n), TN_OK);
                if (n == 77) memcpy(all[k], v, sizeof v);
                else CHECK(memcmp(all[k], v, sizeof *v * (size_t)n) == 0);
                tn_ctx_reset(ctx);
            }
        tn_ctx_destroy(ctx);
    }
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

typedef struct net { tn_params *params; tn_embedding table; tn_norm norm; tn_mlp mlp; tn_linear head; tn_optim *optim; } net;

static bool net_init(net *m, tn_ctx *ctx, int64_t width)
{
    tn_embedding_desc e = ZERO;
    tn_norm_desc n = ZERO;
    tn_mlp_desc d = ZERO;
    tn_linear_desc l = ZERO;
    tn_optim_desc o = ZERO;
    memset(m, 0, sizeof *m);
    l.bias = true;
    e.count = 11;
    e.dim = n.dim = d.in = l.in = width;
    d.hidden = 2 * width;
    d.bias = d.residual = true;
    l.out = 7;
    o.weight_decay = 0.01;
    o.clip_norm = 1;
    m->params = tn_params_create(ctx);
    return m->params && tn_embedding_init(m->params, "table", &e, &m->table) == TN_OK
        && tn_norm_init(m->params, "norm", &n, &m->norm) == TN_OK
        && tn_mlp_init(m->params, "mlp", &d, &m->mlp) == TN_OK && tn_linear_init(m->params, "head", &l, &m->head) == TN_OK
        && (m->optim = tn_optim_create(m->params, &o)) != NULL;
}

/* One step of training on `rows` tokens; the loss. */
static double net_step(net *m, tn_ctx *ctx, int64_t rows)
{
    tn_tensor *ids = tn_tensor_1d(ctx, TN_I32, rows), *labels = tn_tensor_1d(ctx, TN_I32, rows);
    int32_t *v = (int32_t *)malloc(sizeof(int32_t) * (size_t)rows);
    double value = (double)NAN;
    for (int64_t i = 0; i < rows; i++) v[i] = (int32_t)(i * i % 11);
    if (ids) tn_write(ids, TN_I32, v, rows);
    for (int64_t i = 0; i < rows; i++) v[i] = (int32_t)(i * 3 % 7);
    if (labels) tn_write(labels, TN_I32, v, rows);
    free(v);
    tn_record(ctx);
    tn_tensor *x = tn_embedding_forward(ctx, &m->table, ids);
    x = tn_dropout(ctx, tn_noise(ctx, tn_norm_forward(ctx, &m->norm, x), 0.1), 0.1);
    x = tn_linear_forward(ctx, &m->head, tn_mlp_forward(ctx, &m->mlp, x));
    tn_tensor *loss = tn_cross_entropy(ctx, x, labels);
    if (tn_backward(ctx, loss) == TN_OK && tn_optim_step(m->optim) == TN_OK) value = tn_item(loss);
    tn_ctx_reset(ctx);
    return value;
}

static tn_status train(const tn_desc *desc, int steps, double *loss)
{
    tn_ctx *ctx;
    net m;
    tn_status s = tn_ctx_create(desc, &ctx, NULL);
    *loss = (double)NAN;
    if (s != TN_OK) return s;
    if (net_init(&m, ctx, 6)) while (steps-- > 0) *loss = net_step(&m, ctx, 9);
    s = tn_ctx_status(ctx);
    if (s == TN_OK) CHECK(*loss == *loss);
    CHECK((s == TN_OK) == (tn_ctx_error(ctx)[0] == 0));
    tn_ctx_destroy(ctx);
    return s;
}

TEST(allocator)
{
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc d = desc_of(TN_F32);
    double loss;
    d.allocator = test_heap_allocator(&heap);
    d.arena_bytes = 512;                       /* grows often */
    CHECK_STATUS(train(&d, 3, &loss), TN_OK);
    CHECK(loss == loss);
    CHECK_INT(heap.live, 0);
    CHECK_INT(heap.blocks, 0);
    printf("a small training makes %" PRIu64 " allocations\n", heap.count);
}

/* The k-th allocation fails, alone or with all after it: an error, everything given back. */
static void fail_allocations(const tn_backend *backend)
{
    uint64_t failed = 0;
    for (int on = 0; on < 2; on++)
        for (uint64_t k = 1; ; k++) {
            test_heap heap = {0, 0, 0, 0, false};
            tn_desc d = desc_of(k % 2 ? TN_F32 : TN_F64);
            double loss;
            heap.fail_at = k;
            heap.fail_on = on != 0;
            d.allocator = test_heap_allocator(&heap);
            d.arena_bytes = 512;
            d.backend = backend;
            d.backend_required = true;
            tn_status s = train(&d, 2, &loss);
            CHECK_INT(heap.live, 0);
            CHECK_INT(heap.blocks, 0);
            if (heap.count < k) { CHECK_STATUS(s, TN_OK); break; }
            if (!CHECK_STATUS(s, TN_ERR_MEMORY)) printf("     allocation %" PRIu64 "\n", k);
            failed++;
        }
    printf("%" PRIu64 " failing allocations were survived on %s\n", failed, backend->name);
}

TEST(allocation_failures)
{
    fail_allocations(tn_cpu_backend());
    if (test_leave_out(!SEALED, NO_SEALED)) return;
    fail_allocations(sealed_sparse());               /* kernels on the host allocate, too */
    CHECK_INT(sealed_damaged(), 0);
}

TEST(max_bytes)
{
    tn_desc d = desc_of(TN_F32);
    size_t good = 0;
    for (size_t limit = 20000; limit < 80000 && good == 0; limit += 1000) {
        tn_ctx *ctx;
        net m;
        double loss = (double)NAN;
        d.max_bytes = limit;
        d.arena_bytes = 4096;
        if (tn_ctx_create(&d, &ctx, NULL) != TN_OK) continue;
        if (net_init(&m, ctx, 6)) loss = net_step(&m, ctx, 9);
        CHECK(tn_ctx_memory(ctx).peak <= limit);
        if (loss == loss) good = limit;
        else CHECK_ERROR(ctx, TN_ERR_MEMORY, "expected at most max_bytes = ");
        tn_ctx_destroy(ctx);
    }
    printf("a small training holds %zu bytes\n", good);
    CHECK(good > 20000);
    d.max_bytes = 100000;
    {
        tn_ctx *ctx = ctx_new(&d);
        REFUSED(ctx, tn_tensor_1d(ctx, TN_F32, 1000000), TN_ERR_MEMORY, "arena: 4000000 bytes");
        CHECK(tn_tensor_1d(ctx, TN_F32, 1000) != NULL);          /* the context goes on */
        CLOSE_CTX(ctx);
    }
}

/* A new block is usually larger than what is asked for. Where max_bytes does not allow that, it has the exact size. */
TEST(arena_near_its_limit)
{
    tn_desc d = desc_of(TN_F32);
    d.max_bytes = 200000;
    d.arena_bytes = 4096;
    tn_ctx *ctx = ctx_new(&d);
    for (int pass = 0; pass < 2; pass++) {              /* the second uses the blocks of the first again */
        CHECK(tn_tensor_1d(ctx, TN_F32, 80000 / 4) != NULL);
        CHECK(tn_tensor_1d(ctx, TN_F32, 64000 / 4) != NULL);            /* twice the last block would be too much */
        CHECK_CTX(ctx);
        size_t left = d.max_bytes - tn_ctx_memory(ctx).live;
        if (pass == 0) {
            CHECK(left > 10000 && left < 64000);
            REFUSED(ctx, tn_tensor_1d(ctx, TN_F32, (int64_t)(left / 4) + 1), TN_ERR_MEMORY, "expected at most max_bytes = 200000");
            CHECK(tn_tensor_1d(ctx, TN_F32, (int64_t)(left / 64 * 16)) != NULL);       /* all that is left */
            CHECK(d.max_bytes - tn_ctx_memory(ctx).live < 64);
            CHECK_INT(tn_ctx_memory(ctx).live, d.max_bytes - left % 64);
        }
        CHECK_CTX(ctx);
        tn_ctx_reset(ctx);
    }
    tn_ctx_destroy(ctx);
}

/* After the first steps a step allocates nothing, on every backend. */
TEST(no_allocation)
{
    const tn_backend *backend[4];
    backend[0] = tn_cpu_backend();
    backend[1] = tn_reference_backend();
    backend[2] = sealed_cpu();
    backend[3] = sealed_cpu();
    for (int b = 0; b < 4; b++) {
        test_heap heap = {0, 0, 0, 0, false};
        tn_desc d = desc_of(b == 3 ? TN_F64 : TN_F32);
        net m;
        if (test_leave_out(!backend[b], NO_SEALED)) continue;
        d.backend = backend[b];
        d.allocator = test_heap_allocator(&heap);
        d.arena_bytes = 1024;
        tn_ctx *ctx = ctx_new(&d);
        REQUIRE(net_init(&m, ctx, 6));
        for (int i = 0; i < 2; i++) net_step(&m, ctx, 9);
        tn_memory warm = tn_ctx_memory(ctx);
        uint64_t count = heap.count;
        for (int i = 0; i < 5; i++) CHECK(net_step(&m, ctx, 9) > 0);
        tn_memory now = tn_ctx_memory(ctx);
        CHECK_INT(now.allocations, warm.allocations);
        CHECK_INT(now.live, warm.live);
        CHECK_INT(now.peak, warm.peak);
        CHECK_INT(heap.count, count);
        CLOSE_CTX(ctx);
        CHECK_INT(heap.live, 0);
    }
}

/* The counts are of what is held: allocator and backend together, without what belongs to the context itself. */
TEST(memory_counts)
{
    tn_ctx   *ctx = ctx_of(TN_F32);
    tn_memory before = tn_ctx_memory(ctx);
    int64_t   n = 1000;
    tn_tensor *t = tn_tensor_create(ctx, TN_F32, 1, &n);
    tn_memory with = tn_ctx_memory(ctx);
    CHECK(with.live >= before.live + 4000 && with.live < before.live + 6000);
    CHECK_INT(with.arena, before.arena);
    tn_tensor_destroy(t);
    tn_memory after = tn_ctx_memory(ctx);
    CHECK_INT(after.live, before.live);
    CHECK(after.peak >= with.live);
    tn_tensor_nd(ctx, TN_F32, 1, &n);
    CHECK(tn_ctx_memory(ctx).arena > 0);
    tn_tensor_destroy(NULL);
    tn_tensor_destroy(tn_tensor_nd(ctx, TN_F32, 1, &n));             /* an arena tensor is not the caller's to free */
    CLOSE_CTX(ctx);
    tn_ctx_destroy(NULL);
}

TEST(marks)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_desc d = desc_of(TN_F32);
    tn_memory warm = tn_ctx_memory(ctx);
    double v[12];
    tn_tensor *kept = counted(ctx, 3, 4);
    tn_mark mark = tn_arena_mark(ctx);
    tn_tensor *gone = counted(ctx, 5, 6);
    CHECK_STATUS(tn_arena_release(ctx, mark), TN_OK);
    CHECK(tn_sum(ctx, gone) == NULL);                                 /* before another takes its place */
    CHECK_ERROR(ctx, TN_ERR_ARG, "sum: a is a tensor of an arena that was reset");
    CHECK(tn_item(tn_sum(ctx, kept)) == 66);
    tn_mark later = tn_arena_mark(ctx);
    CHECK_STATUS(tn_arena_release(ctx, mark), TN_OK);
    tn_ctx_reset(ctx);
    CHECK_STATUS(tn_arena_release(ctx, later), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "arena_release: the mark is not valid, expected one made since the last reset");
    CHECK_STATUS(tn_arena_release(NULL, mark), TN_ERR_ARG);

    tn_params *ps = tn_params_create(ctx);                                       /* not while the tape needs it */
    tn_tensor *w = param_of(ps, "w", 3, 3)->value;
    mark = tn_arena_mark(ctx);
    tn_record(ctx);
    kept = tn_sum(ctx, tn_mul(ctx, w, w));
    FAILS(ctx, tn_arena_release(ctx, mark), TN_ERR_ARG, "the tape still needs");
    CHECK_STATUS(tn_backward(ctx, kept), TN_OK);
    CHECK_STATUS(tn_arena_release(ctx, mark), TN_OK);
    CLOSE_CTX(ctx);

    d.arena_bytes = 256;                                              /* marks across many blocks; no growth in a loop */
    tn_ctx *small = ctx_new(&d);
    kept = counted(small, 3, 4);
    for (int i = 0; i < 50; i++) {
        mark = tn_arena_mark(small);
        for (int k = 0; k < 40; k++) gone = counted(small, k, 9);
        CHECK(tn_item(tn_sum(small, gone)) == 39 * 9 * (39 * 9 - 1) / 2);
        CHECK_STATUS(tn_arena_release(small, mark), TN_OK);
        if (i == 0) warm = tn_ctx_memory(small);
        CHECK_STATUS(tn_read(kept, TN_F64, v, 12), TN_OK);
        CHECK(v[11] == 11);
    }
    CHECK_INT(tn_ctx_memory(small).allocations, warm.allocations);
    CLOSE_CTX(small);
}

/* The gradient of a watched tensor that was made after a mark goes with its release: no dangling pointer stays. */
TEST(marks_and_gradients)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    tn_tensor *x = counted(ctx, 2, 2);
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_mark mark = tn_arena_mark(ctx);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, x, x))), TN_OK);
    REQUIRE(x->grad != NULL);
    CHECK(tn_item(tn_sum(ctx, x->grad)) == 12);
    CHECK_STATUS(tn_arena_release(ctx, mark), TN_OK);
    CHECK(x->grad == NULL);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, x)), TN_OK);
    REQUIRE(x->grad != NULL);
    CHECK(tn_item(tn_sum(ctx, x->grad)) == 4);
    CLOSE_CTX(ctx);
}

/* ---- contexts ----------------------------------------------------------------------------------------------------------------- */

static char last_log[600];
static int  logs;
static void remember(void *user, tn_log_level level, const char *message)
{
    CHECK(user == &logs);
    (void)level;
    logs++;
    snprintf(last_log, sizeof last_log, "%s", message);
}

static tn_status open_refuses(const tn_desc *d, void **state, char why[256])
{
    (void)d;
    (void)state;
    snprintf(why, 256, "no device");
    return TN_ERR_BACKEND;
}

TEST(contexts)
{
    tn_desc d = desc_of(TN_F32);
    char why[256];
    tn_ctx *ctx = ctx_new(NULL);
    CHECK_STR(tn_ctx_backend_name(ctx), "cpu");
    CHECK_INT(tn_ctx_dtype(ctx), TN_F32);
    CHECK(tn_ctx_threads(ctx) >= 1);
    CHECK(strlen(tn_ctx_simd_name(ctx)) > 3);
    tn_ctx_destroy(ctx);
    CHECK_STATUS(tn_ctx_create(NULL, NULL, NULL), TN_ERR_ARG);
    d.dtype = TN_BF16;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_DTYPE);
    CHECK(ctx == NULL && strstr(why, "BF16"));
    d = desc_of(TN_F64);
    d.allocator.alloc = test_heap_alloc;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_ARG);
    CHECK(ctx == NULL && strstr(why, "desc.allocator.release is NULL"));
    d = desc_of(TN_F32);
    d.max_bytes = 16;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_MEMORY);
    CHECK(ctx == NULL && strstr(why, "max_bytes"));

    tn_backend broken = *tn_cpu_backend();                      /* what does not open becomes cpu, unless it is required */
    broken.name = "broken";
    broken.open = open_refuses;
    d = desc_of(TN_F32);
    d.backend = &broken;
    d.log = remember;
    d.log_user = &logs;
    logs = 0;
    ctx = ctx_new(&d);
    CHECK_STR(tn_ctx_backend_name(ctx), "cpu");
    CHECK_INT(logs, 1);
    CHECK_STR(last_log, "backend broken: no device; running on cpu");
    CHECK(tn_add(ctx, NULL, NULL) == NULL);          /* errors are logged too */
    CHECK_INT(logs, 2);
    CHECK_STR(last_log, "add: a is NULL");
    tn_ctx_destroy(ctx);
    d.backend_required = true;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_BACKEND);
    CHECK(ctx == NULL);
    CHECK_STR(why, "no device");
    broken.abi = TN_BACKEND_ABI + 1;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_BACKEND);
    CHECK(strstr(why, "abi") != NULL);
}

/* ---- a backend that fails: what it says reaches the caller, and nothing is lost ---- */

typedef enum failure { FAILS_NOT, FAILS_GEMM, FAILS_UPLOAD, FAILS_DOWNLOAD, FAILS_SYNC, FAILS_ALLOC } failure;
static failure fails;                    /* of the one backend below */

static tn_status failing_gemm(void *state, const tn_call *c)
{
    return fails == FAILS_GEMM ? TN_ERR_BACKEND : tn_cpu_backend()->fn[TN_KERNEL_GEMM](state, c);
}

static tn_status failing_upload(void *state, void *dst, const void *src, size_t bytes)
{
    return fails == FAILS_UPLOAD ? TN_ERR_BACKEND : tn_cpu_backend()->upload(state, dst, src, bytes);
}

static tn_status failing_download(void *state, void *dst, const void *src, size_t bytes)
{
    return fails == FAILS_DOWNLOAD ? TN_ERR_BACKEND : tn_cpu_backend()->download(state, dst, src, bytes);
}

static tn_status failing_sync(void *state, char why[256])
{
    (void)state;
    snprintf(why, 256, "the device is gone");
    return fails == FAILS_SYNC ? TN_ERR_BACKEND : TN_OK;
}

static void *failing_alloc(void *state, size_t bytes)
{
    return fails == FAILS_ALLOC ? NULL : tn_cpu_backend()->alloc(state, bytes);
}

TEST(backend_failures)
{
    tn_backend flaky = *tn_cpu_backend();
    tn_desc d = desc_of(TN_F32);
    int64_t n = 4000000;
    float v[4] = {1, 2, 3, 4};
    flaky.name = "flaky";
    flaky.fn[TN_KERNEL_GEMM] = failing_gemm;
    flaky.upload = failing_upload;
    flaky.download = failing_download;
    flaky.sync = failing_sync;
    flaky.alloc = failing_alloc;
    d.backend = &flaky;
    fails = FAILS_NOT;
    tn_ctx *ctx = ctx_new(&d);
    tn_tensor *a = counted(ctx, 2, 2);
    fails = FAILS_GEMM;
    REFUSED(ctx, tn_matmul(ctx, a, a), TN_ERR_BACKEND, "gemm: backend flaky: the device is gone");
    fails = FAILS_UPLOAD;
    FAILS(ctx, tn_write(a, TN_F32, v, 4), TN_ERR_BACKEND, "write: backend flaky: the device is gone");
    fails = FAILS_DOWNLOAD;
    FAILS(ctx, tn_read(a, TN_F32, v, 4), TN_ERR_BACKEND, ": backend flaky: the device is gone");
    fails = FAILS_SYNC;
    FAILS(ctx, tn_ctx_sync(ctx), TN_ERR_BACKEND, "sync: backend flaky: the device is gone");
    fails = FAILS_ALLOC;
    REFUSED(ctx, tn_tensor_nd(ctx, TN_F32, 1, &n), TN_ERR_MEMORY, "arena: no memory for ");
    REFUSED(ctx, tn_tensor_create(ctx, TN_F32, 1, &n), TN_ERR_MEMORY, "tensor: no memory for 16000000 bytes");
    fails = FAILS_NOT;
    CHECK(tn_item(tn_sum(ctx, tn_matmul(ctx, a, a))) == 22);          /* and it goes on */
    CLOSE_CTX(ctx);
}

/* ---- a file that cannot be closed ----------------------------------------------------------------------------- */

enum { SAVES = 8 };

static tn_status save_something(tn_ctx *ctx, tn_params *ps, tn_optim *optim, const char *path, int which)
{
    static const int32_t ids[3] = {1, 2, 3};
    tn_transformer_desc  model;
    tn_tokenizer *t;
    tn_image     *image;
    tn_named_tensor      named;
    tn_status     s;
    named.name = "w";
    named.tensor = tn_params_at(ps, 0)->value;
    switch (which) {
    case 0: return tn_params_save(ps, path);
    case 1: return tn_npy_save(named.tensor, path);
    case 2: return tn_safetensors_write(ctx, tn_sink_path(path), &named, 1, NULL, 0);
    case 3: return tn_checkpoint_write(optim, tn_sink_path(path), NULL, 0);
    case 4: return tn_shard_write(ctx, tn_sink_path(path), ids, 3, 10);
    case 5:
        image = tn_image_create(ctx, 3, 2);
        s = tn_image_save_ppm(image, path);
        tn_image_destroy(image);
        return s;
    case 6:
        t = tn_tokenizer_train(ctx, "one two one two", 15, 20, NULL);
        s = tn_tokenizer_save(t, path);
        tn_tokenizer_destroy(t);
        return s;
    default:
        memset(&model, 0, sizeof model);
        model.vocab = 3; model.layers = 1; model.dim = model.heads = model.context = 2;
        return tn_transformer_config_write(ctx, &model, tn_sink_path(path));
    }
}

static bool holds_old(const char *path)
{
    char   text[8] = "";
    FILE  *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (f) fclose(f);
    return n == 3 && memcmp(text, "old", 3) == 0;
}

/* Some systems report only when a file is closed that bytes were lost: then the save has failed, the old file is unchanged,
   and no part of the new one is left beside it. */
TEST(files_that_cannot_be_closed)
{
    tn_ctx    *ctx = ctx_of(TN_F32);
    tn_params *ps = tn_params_create(ctx);
    tn_init    init = ZERO;
    int64_t    n = 3;
    char       folder[TEST_PATH], path[TEST_PATH + 16], part[256];
    CHECK(tn_params_add(ps, "w", 1, &n, init) != NULL);
    tn_optim *optim = tn_optim_create(ps, NULL);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_params_at(ps, 0)->value)), TN_OK);
    CHECK_STATUS(tn_optim_step(optim), TN_OK);
    snprintf(part, sizeof part, "could not be closed: %s", strerror(EIO));
    snprintf(folder, sizeof folder, "%s", test_folder());
#if SEALED                                              /* a folder of its own, which can be removed only when it is empty */
    snprintf(folder, sizeof folder, "%s/closing", test_folder());
    mkdir(folder, 0700);
#endif
    snprintf(path, sizeof path, "%s/saved.file", folder);
    for (int which = 0; which < SAVES; which++)
        for (int old = 0; old < 2; old++) {
            const int  failures = test_now.failures;
            const long calls = closing.calls;
            FILE      *f = old ? fopen(path, "wb") : NULL;
            if (old) CHECK(f && fwrite("old", 1, 3, f) == 3 && fclose(f) == 0);
            closing.error = EIO;
            tn_status s = save_something(ctx, ps, optim, path, which);
            closing.error = 0;
            FAILS(ctx, s, TN_ERR_FILE, part);
            CHECK(closing.calls > calls);
            if (old) CHECK(holds_old(path));
            else CHECK(!test_exists(path));
            remove(path);
#if SEALED
            CHECK_INT(rmdir(folder), 0);
            CHECK_INT(mkdir(folder, 0700), 0);
#endif
            CHECK_STATUS(save_something(ctx, ps, optim, path, which), TN_OK);
            CHECK(test_exists(path) && !holds_old(path));
            remove(path);
            if (test_now.failures > failures) printf("     save %d, %s\n", which, old ? "over a file" : "of a new file");
        }
#if SEALED
    CHECK_INT(rmdir(folder), 0);
#endif
    CLOSE_CTX(ctx);
}

#ifdef HAVE_PTHREADS
/* TN_SIMD forces a level, desc.simd takes precedence, and an unknown level is an error unless desc.simd is set. */
TEST(simd_of_the_environment)
{
    static const char *const word[] = {"plain", "avx2", "avx512", "tur\033bo", "neon", ""};
    const char *was = getenv("TN_SIMD");
    char kept[64], best[16], why[TN_WHY];
    snprintf(kept, sizeof kept, "%s", was ? was : "");
    unsetenv("TN_SIMD");
    tn_ctx *ctx = ctx_new(NULL);
    snprintf(best, sizeof best, "%s", tn_ctx_simd_name(ctx));
    tn_ctx_destroy(ctx);
    for (size_t k = 0; k < sizeof word / sizeof *word; k++) {
        tn_desc d = desc_of(TN_F32);
        setenv("TN_SIMD", word[k], 1);
        if (k == 3) CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_ARG);
        if (k == 3) CHECK_STR(why, "ctx_create: the environment variable TN_SIMD is \"tur?bo\", expected plain, avx2, avx512 "
                                   "or neon");
        ctx = k == 3 ? NULL : ctx_new(&d);
        if (k == 0) CHECK_STR(tn_ctx_simd_name(ctx), "plain");
        if (k == 5) CHECK_STR(tn_ctx_simd_name(ctx), best);
        if (k == 1) CHECK_STR(tn_ctx_simd_name(ctx), best[0] == 'a' ? "avx2" : "plain");
        if (k == 2) CHECK_STR(tn_ctx_simd_name(ctx), best[0] == 'a' ? best : "plain");      /* no more than there is */
        if (k == 4) CHECK_STR(tn_ctx_simd_name(ctx), best[0] == 'n' ? best : "plain");      /* of this kind of processor */
        tn_ctx_destroy(ctx);
        d.simd = TN_SIMD_PLAIN;
        ctx = ctx_new(&d);
        CHECK_STR(tn_ctx_simd_name(ctx), "plain");
        tn_ctx_destroy(ctx);
    }
    if (was) setenv("TN_SIMD", kept, 1);
    else unsetenv("TN_SIMD");
}
#else
TEST(simd_of_the_environment) { SKIP("setenv", "TN_SIMD"); }
#endif

/* A missing row is said once. */
TEST(fallback_is_logged)
{
    tn_desc d = desc_of(TN_F32);
    if (!SEALED) SKIP("mmap", "sealed memory");
    d.backend = sealed_sparse();
    d.log = remember;
    d.log_user = &logs;
    logs = 0;
    tn_ctx *ctx = ctx_new(&d);
    for (int i = 0; i < 3; i++) tn_sum(ctx, counted(ctx, 2, 2));
    CHECK_INT(logs, 1);
    CHECK_STR(last_log, "sum: backend sealed sparse has no such kernel; it runs on the host");
    CHECK_INT(tn_ctx_kernel_calls(ctx, TN_KERNEL_SUM), 3);
    tn_ctx_destroy(ctx);
}

/* ---- errors ---------------------------------------------------------------------------------------------------------------------- */

typedef struct operands { tn_ctx *ctx; tn_tensor *a /* [4,6] */, *ids /* [4] */; } operands;

/* op, operand, call with that operand bad */
#define BAD_CALLS(X) \
    X("copy", "a", tn_copy(o->ctx, bad)) \
    X("cast", "a", tn_cast(o->ctx, bad, TN_I32)) \
    X("add", "a", tn_add(o->ctx, bad, o->a)) \
    X("add", "b", tn_add(o->ctx, o->a, bad)) \
    X("sub", "a", tn_sub(o->ctx, bad, o->a)) \
    X("sub", "b", tn_sub(o->ctx, o->a, bad)) \
    X("mul", "a", tn_mul(o->ctx, bad, o->a)) \
    X("mul", "b", tn_mul(o->ctx, o->a, bad)) \
    X("div", "a", tn_div(o->ctx, bad, o->a)) \
    X("div", "b", tn_div(o->ctx, o->a, bad)) \
    X("sqrt", "a", tn_sqrt(o->ctx, bad)) \
    X("exp", "a", tn_exp(o->ctx, bad)) \
    X("log", "a", tn_log(o->ctx, bad)) \
    X("where", "condition", tn_where(o->ctx, bad, o->a, o->a)) \
    X("where", "a", tn_where(o->ctx, tn_slice(o->ids, 0, 0, 1), bad, o->a)) \
    X("where", "b", tn_where(o->ctx, tn_slice(o->ids, 0, 0, 1), o->a, bad)) \
    X("softmax", "x", tn_softmax(o->ctx, bad)) \
    X("log_softmax", "x", tn_log_softmax(o->ctx, bad)) \
    X("concat", "tensor 0", tn_concat(o->ctx, 1, &bad, 0)) \
    X("stack", "tensor 0", tn_stack(o->ctx, 1, &bad, 0)) \
    X("gather", "x", tn_gather(o->ctx, bad, 0, o->ids)) \
    X("gather", "ids", tn_gather(o->ctx, o->a, 0, bad)) \
    X("scale", "a", tn_scale(o->ctx, bad, 2)) \
    X("sum", "a", tn_sum(o->ctx, bad)) \
    X("mean", "a", tn_mean(o->ctx, bad)) \
    X("sum_axis", "a", tn_sum_axis(o->ctx, bad, 0)) \
    X("matmul", "a", tn_matmul(o->ctx, bad, o->a)) \
    X("matmul", "b", tn_matmul(o->ctx, o->a, bad)) \
    X("affine", "x", tn_affine(o->ctx, bad, o->a, NULL)) \
    X("affine", "w", tn_affine(o->ctx, o->a, bad, NULL)) \
    X("activation", "x", tn_activation(o->ctx, bad, TN_ACT_RELU)) \
    X("glu", "x", tn_glu(o->ctx, bad, TN_ACT_NONE)) \
    X("prod_parts", "x", tn_prod_parts(o->ctx, bad, 2)) \
    X("layernorm", "x", tn_layernorm(o->ctx, bad, NULL, NULL, 1e-5)) \
    X("append_one", "x", tn_append_one(o->ctx, bad)) \
    X("embed", "table", tn_embed(o->ctx, bad, o->ids)) \
    X("embed", "ids", tn_embed(o->ctx, o->a, bad)) \
    X("rmsnorm", "x", tn_rmsnorm(o->ctx, bad, NULL, 1e-5)) \
    X("residual_rmsnorm", "x", tn_residual_rmsnorm(o->ctx, bad, o->a, NULL, 1e-5, NULL)) \
    X("residual_rmsnorm", "branch", tn_residual_rmsnorm(o->ctx, o->a, bad, NULL, 1e-5, NULL)) \
    X("noise", "x", tn_noise(o->ctx, bad, 1)) \
    X("dropout", "x", tn_dropout(o->ctx, bad, 0.5)) \
    X("cross_entropy", "logits", tn_cross_entropy(o->ctx, bad, o->ids)) \
    X("cross_entropy", "labels", tn_cross_entropy(o->ctx, o->a, bad)) \
    X("mse", "a", tn_mse(o->ctx, bad, o->a)) \
    X("mse", "b", tn_mse(o->ctx, o->a, bad)) \
    X("argmax", "x", tn_argmax(o->ctx, bad)) \
    X("accuracy", "logits", tn_accuracy(o->ctx, bad, o->ids)) \
    X("accuracy", "labels", tn_accuracy(o->ctx, o->a, bad))

/* Optional operands: NULL is fine, but a dead or a foreign one is not. */
#define BAD_OPTIONS(X) \
    X("affine", "b", tn_affine(o->ctx, o->a, o->a, bad)) \
    X("rmsnorm", "gain", tn_rmsnorm(o->ctx, o->a, bad, 1e-5)) \
    X("residual_rmsnorm", "gain", tn_residual_rmsnorm(o->ctx, o->a, o->a, bad, 1e-5, NULL)) \
    X("layernorm", "gain", tn_layernorm(o->ctx, o->a, bad, NULL, 1e-5)) \
    X("layernorm", "bias", tn_layernorm(o->ctx, o->a, NULL, bad, 1e-5))

static void bad_calls(const operands *o, tn_tensor *bad, const char *reason, bool options)
{
    char message[128];
#define X(op, operand, call) \
    CHECK((call) == NULL); \
    snprintf(message, sizeof message, "%s: %s %s", op, operand, reason); \
    CHECK_ERROR(o->ctx, TN_ERR_ARG, message);
    BAD_CALLS(X)
    if (!options) return;
    BAD_OPTIONS(X)
#undef X
}

TEST(bad_operands)
{
    operands o;
    int64_t n = 6, rows = 4;
    o.ctx = ctx_of(TN_F32);
    tn_ctx *other = ctx_of(TN_F32);
    o.a = counted(o.ctx, 4, 6);
    o.ids = counting(o.ctx, TN_I32, 1, &rows);
    tn_tensor *foreign = counted(other, 4, 6);
    bad_calls(&o, NULL, "is NULL", false);
    bad_calls(&o, foreign, "belongs to another context", true);
    FAILS(o.ctx, tn_backward(o.ctx, NULL), TN_ERR_ARG, "backward: loss is NULL");
    FAILS(o.ctx, tn_backward(o.ctx, foreign), TN_ERR_ARG, "backward: loss belongs to another context");
    CHECK(tn_add(NULL, o.a, o.a) == NULL);
    CHECK(tn_copy(NULL, o.a) == NULL);
    CHECK(tn_tensor_1d(NULL, TN_F32, 3) == NULL);
    CHECK(tn_tensor_from(o.ctx, 1, &n, TN_F64, NULL) == NULL);
    CHECK_ERROR(o.ctx, TN_ERR_ARG, "tensor_from: numbers are NULL, expected the numbers of a tensor [6]");
    CHECK_INT(tn_tensor_count(NULL), 0);
    CHECK(!tn_tensor_is_contiguous(NULL));
    CHECK(tn_slice(NULL, 0, 0, 1) == NULL);
    CHECK(tn_transpose(NULL, 0, 1) == NULL);
    CHECK(tn_reshape_2d(NULL, 1, 1) == NULL);
    CHECK(tn_tensor_keep(NULL) == NULL);
    CHECK(tn_item(NULL) != tn_item(NULL));
    CHECK_STATUS(tn_read(NULL, TN_F32, &n, 1), TN_ERR_ARG);
    CHECK_STATUS(tn_write(NULL, TN_F32, &n, 1), TN_ERR_ARG);
    CHECK_INT(tn_tensor_format(NULL, NULL, 0), -1);
    CHECK_STATUS(tn_watch(NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_backward(NULL, o.a), TN_ERR_ARG);
    CHECK_STATUS(tn_ctx_status(NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_ctx_sync(NULL), TN_ERR_ARG);
    CHECK_STR(tn_ctx_error(NULL), "the context is NULL");
    CHECK_STR(tn_ctx_backend_name(NULL), "none");
    CHECK_STR(tn_ctx_simd_name(NULL), "none");
    CHECK_INT(tn_ctx_memory(NULL).live, 0);
    CHECK_INT(tn_ctx_threads(NULL), 0);
    CHECK_INT(tn_ctx_dtype(NULL), TN_REAL);
    CHECK_INT(tn_ctx_kernel_calls(NULL, TN_KERNEL_COPY), 0);
    tn_record(NULL);
    tn_ctx_reset(NULL);
    tn_ctx_seed(NULL, 1);
    tn_ctx_clear_error(NULL);
    CHECK_CTX(o.ctx);
    tn_ctx_destroy(other);
    tn_ctx_destroy(o.ctx);
}

/* Right after a reset every op says so; later another tensor may live in the old one's place. */
TEST(reset_tensors)
{
    operands o;
    tn_tensor *dead;
    int64_t n = 6, rows = 4;
    o.ctx = ctx_of(TN_F32);
    o.a = counted(o.ctx, 4, 6);
    o.ids = counting(o.ctx, TN_I32, 1, &rows);
    {
        tn_mark mark = tn_arena_mark(o.ctx);
        for (int k = 0; k < 300; k++) dead = counted(o.ctx, 4, 6);       /* the last one's header is not reached again below */
        CHECK_STATUS(tn_arena_release(o.ctx, mark), TN_OK);
    }
    bad_calls(&o, dead, "is a tensor of an arena that was reset", true);
    CHECK_INT(tn_tensor_count(dead), 0);
    CHECK_STATUS(tn_write(dead, TN_I32, &n, 1), TN_ERR_ARG);
    CHECK(tn_slice(dead, 0, 0, 1) == NULL);
    tn_ctx_clear_error(o.ctx);
    tn_ctx_destroy(o.ctx);
}


TEST(shape_errors)
{
    tn_ctx    *ctx = ctx_of(TN_F32);
    tn_tensor *a = counted(ctx, 3, 4), *b = counted(ctx, 5, 6), *empty = counted(ctx, 0, 4);
    int64_t    shape[9] = {2, 3, 4, 1, 1, 1, 1, 1, 1}, n = 3;
    tn_tensor *scalar = counting(ctx, TN_REAL, 0, NULL);
    tn_tensor *batch = counting(ctx, TN_REAL, 3, shape);
    tn_tensor *ids = counting(ctx, TN_I32, 1, &n);
    tn_tensor *wide = tn_cast(ctx, a, TN_F64);
    REFUSED(ctx, tn_add(ctx, a, b), TN_ERR_SHAPE, "add: a is [3,4] and b is [5,6], which do not broadcast");
    REFUSED(ctx, tn_sub(ctx, a, b), TN_ERR_SHAPE, "sub: a is [3,4] and b is [5,6], which do not broadcast");
    REFUSED(ctx, tn_mul(ctx, a, b), TN_ERR_SHAPE, "mul: a is [3,4] and b is [5,6], which do not broadcast");
    REFUSED(ctx, tn_matmul(ctx, a, b), TN_ERR_SHAPE, "matmul: a is [3,4] but b is [5,6], expected 4 rows of b");
    REFUSED(ctx, tn_matmul(ctx, batch, batch), TN_ERR_SHAPE, "matmul: a is [2,3,4] but b is [2,3,4], expected 4 rows of b");
    REFUSED(ctx, tn_matmul(ctx, a, scalar), TN_ERR_SHAPE, "matmul: b is [], expected rank 2 or more");
    REFUSED(ctx, tn_affine(ctx, a, b, NULL), TN_ERR_SHAPE, "affine: x is [3,4], expected a last extent of 6, for w is [5,6]");
    REFUSED(ctx, tn_affine(ctx, scalar, b, NULL), TN_ERR_SHAPE, "affine: x is [], expected a last extent of 6, for w is [5,6]");
    REFUSED(ctx, tn_affine(ctx, a, a, a), TN_ERR_SHAPE, "affine: b is [3,4], expected [3], for w is [3,4]");
    REFUSED(ctx, tn_mse(ctx, a, scalar), TN_ERR_SHAPE, "mse: b is [], expected [3,4] as a");
    REFUSED(ctx, tn_mean(ctx, empty), TN_ERR_SHAPE, "mean: a is [0,4], expected at least one element");
    REFUSED(ctx, tn_mse(ctx, empty, empty), TN_ERR_SHAPE, "expected at least one");
    REFUSED(ctx, tn_sum_axis(ctx, a, 2), TN_ERR_ARG, "sum_axis: axis is 2, expected an axis of [3,4]");
    REFUSED(ctx, tn_sum_axis(ctx, a, -3), TN_ERR_ARG, "sum_axis: axis is -3, expected an axis of [3,4]");
    REFUSED(ctx, tn_sum_axis(ctx, scalar, 0), TN_ERR_SHAPE, "sum_axis: a has rank 0, expected at least 1");
    REFUSED(ctx, tn_glu(ctx, tn_slice(a, 1, 0, 3), TN_ACT_NONE), TN_ERR_SHAPE, "glu: x is [3,3], expected an even last extent");
    REFUSED(ctx, tn_glu(ctx, scalar, TN_ACT_NONE), TN_ERR_SHAPE, "glu: x is []");
    REFUSED(ctx, tn_glu(ctx, a, (tn_act)12), TN_ERR_ARG, "glu: the activation is 12, expected 0 to ");
    REFUSED(ctx, tn_activation(ctx, a, (tn_act)13), TN_ERR_ARG, "activation: the activation is 13, expected 0 to ");
    REFUSED(ctx, tn_append_one(ctx, scalar), TN_ERR_SHAPE, "append_one: x has rank 0");
    REFUSED(ctx, tn_embed(ctx, scalar, ids), TN_ERR_SHAPE, "embed: table is [], expected rank 2");
    REFUSED(ctx, tn_embed(ctx, a, a), TN_ERR_DTYPE, "embed: ids is F32, expected I32");
    REFUSED(ctx, tn_rmsnorm(ctx, a, scalar, 1e-5), TN_ERR_SHAPE, "rmsnorm: gain is [], expected [4], for x is [3,4]");
    REFUSED(ctx, tn_rmsnorm(ctx, scalar, NULL, 1e-5), TN_ERR_SHAPE, "rmsnorm: x has rank 0, expected at least 1");
    REFUSED(ctx, tn_residual_rmsnorm(ctx, a, tn_transpose(a, 0, 1), NULL, 1e-5, NULL), TN_ERR_SHAPE,
            "residual_rmsnorm: branch is [4,3], expected [3,4] as x");
    REFUSED(ctx, tn_residual_rmsnorm(ctx, a, a, scalar, 1e-5, NULL), TN_ERR_SHAPE,
            "residual_rmsnorm: gain is [], expected [4], for x is [3,4]");
    REFUSED(ctx, tn_residual_rmsnorm(ctx, a, a, NULL, -1, NULL), TN_ERR_ARG, "residual_rmsnorm: eps is -1, expected 0, or from");
    REFUSED(ctx, tn_rmsnorm(ctx, a, NULL, 1e-60), TN_ERR_ARG, "rmsnorm: eps is 1e-60, expected 0, or from 1.17549e-38");
    REFUSED(ctx, tn_scale(ctx, a, 1e300), TN_ERR_ARG, "scale: factor is 1e+300, expected a number that F32 can hold");
    REFUSED(ctx, tn_full(ctx, 0, NULL, -1e300), TN_ERR_ARG, "full: value is -1e+300, expected a number that F32");
    REFUSED(ctx, tn_normal(ctx, 0, NULL, 0, 1e300), TN_ERR_ARG, "normal: std is 1e+300, expected");
    REFUSED(ctx, tn_residual_rmsnorm(ctx, scalar, scalar, NULL, 1e-5, NULL), TN_ERR_SHAPE,
            "residual_rmsnorm: x has rank 0, expected at least 1");
    REFUSED(ctx, tn_layernorm(ctx, a, scalar, NULL, 1e-5), TN_ERR_SHAPE, "layernorm: gain is [], expected [4], for x is [3,4]");
    REFUSED(ctx, tn_layernorm(ctx, a, NULL, a, 1e-5), TN_ERR_SHAPE, "layernorm: bias is [3,4], expected [4], for x is [3,4]");
    REFUSED(ctx, tn_layernorm(ctx, scalar, NULL, NULL, 1e-5), TN_ERR_SHAPE, "layernorm: x has rank 0, expected at least 1");
    REFUSED(ctx, tn_prod_parts(ctx, a, 3), TN_ERR_SHAPE,
            "prod_parts: x is [3,4], expected a last extent that is a multiple of k = 3");
    REFUSED(ctx, tn_prod_parts(ctx, a, 0), TN_ERR_SHAPE, "prod_parts: k is 0, expected at least 1");
    REFUSED(ctx, tn_prod_parts(ctx, scalar, 1), TN_ERR_SHAPE, "prod_parts: x is []");
    REFUSED(ctx, tn_dropout(ctx, a, 1), TN_ERR_ARG, "dropout: p is 1, expected 0 <= p < 1");
    REFUSED(ctx, tn_dropout(ctx, a, (double)NAN), TN_ERR_ARG, "dropout: p is nan");
    REFUSED(ctx, tn_noise(ctx, a, -1), TN_ERR_ARG, "noise: std is -1");
    REFUSED(ctx, tn_cross_entropy(ctx, b, ids), TN_ERR_SHAPE,
            "cross_entropy: labels are [3], expected the shape of logits [5,6] without");
    REFUSED(ctx, tn_cross_entropy(ctx, tn_slice(a, 1, 0, 0), ids), TN_ERR_SHAPE,
            "cross_entropy: logits are [3,0], expected at least one row");
    REFUSED(ctx, tn_accuracy(ctx, scalar, ids), TN_ERR_SHAPE, "accuracy: labels are [3], expected the shape of logits [] without");
    REFUSED(ctx, tn_argmax(ctx, tn_slice(a, 1, 0, 0)), TN_ERR_SHAPE, "argmax: x is [3,0]");
    REFUSED(ctx, tn_add(ctx, a, wide), TN_ERR_DTYPE, "add: b is F64, expected F32 as in this context");
    REFUSED(ctx, tn_sum(ctx, ids), TN_ERR_DTYPE, "sum: a is I32, expected F32 as in this context");
    REFUSED(ctx, tn_cast(ctx, a, (tn_dtype)7), TN_ERR_DTYPE, "cast: dtype is 7, expected 0 to 4");
    REFUSED(ctx, tn_tensor_nd(ctx, TN_F32, 9, shape), TN_ERR_SHAPE, "rank is 9, expected 0 to 8");
    REFUSED(ctx, tn_tensor_nd(ctx, TN_F32, -1, shape), TN_ERR_SHAPE, "rank is -1, expected 0 to 8");
    REFUSED(ctx, tn_tensor_nd(ctx, TN_F32, 2, NULL), TN_ERR_SHAPE, "shape is NULL, expected 2 extents");
    shape[1] = -3;
    REFUSED(ctx, tn_tensor_nd(ctx, TN_F32, 3, shape), TN_ERR_SHAPE, "extent 1 of [2,-3,4] is negative");
    shape[0] = shape[1] = INT64_MAX / 2;
    REFUSED(ctx, tn_tensor_nd(ctx, TN_F32, 2, shape), TN_ERR_SHAPE, "does not fit the address space");
    shape[2] = 0;                                        /* an empty tensor of absurd extents: no stride may overflow */
    REFUSED(ctx, tn_tensor_nd(ctx, TN_F32, 3, shape), TN_ERR_SHAPE, "does not fit the address space");
    REFUSED(ctx, tn_reshape(empty, 3, shape), TN_ERR_SHAPE,
            "reshape: [0,4] to [4611686018427387903,4611686018427387903,0], expected as many elements");
    shape[0] = INT64_MAX;
    REFUSED(ctx, tn_full(ctx, 1, shape, 1), TN_ERR_SHAPE, "does not fit the address space");
    CLOSE_CTX(ctx);
}

TEST(view_errors)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_tensor *a = counted(ctx, 3, 4);
    int64_t open[3] = {-1, -1, 2}, uneven[2] = {-1, 5}, nine[9] = {3, 4, 1, 1, 1, 1, 1, 1, 1};
    REFUSED(ctx, tn_slice(a, 2, 0, 1), TN_ERR_ARG, "slice: axis is 2, expected an axis of [3,4]");
    REFUSED(ctx, tn_slice(a, 0, 0, 4), TN_ERR_ARG, "slice: [0:4:1] is outside axis 0 of [3,4]");
    REFUSED(ctx, tn_slice(a, 0, 2, 1), TN_ERR_ARG, "slice: [2:1:1] is outside axis 0 of [3,4]");
    REFUSED(ctx, tn_slice(a, 0, -1, 1), TN_ERR_ARG, "slice: [-1:1:1] is outside axis 0 of [3,4]");
    REFUSED(ctx, tn_slice_step(a, 1, 0, 3, 0), TN_ERR_ARG, "slice: [0:3:0] is outside axis 1 of [3,4]");
    REFUSED(ctx, tn_slice_step(a, 1, 4, -1, -1), TN_ERR_ARG, "slice: [4:-1:-1] is outside axis 1 of [3,4]");
    REFUSED(ctx, tn_slice_step(a, 1, 1, 2, -1), TN_ERR_ARG, "slice: [1:2:-1] is outside axis 1 of [3,4]");
    REFUSED(ctx, tn_slice_step(a, 1, INT64_MIN, INT64_MAX, 1), TN_ERR_ARG, "slice: [");
    REFUSED(ctx, tn_transpose(a, 0, 2), TN_ERR_ARG, "transpose: axis is 2, expected an axis of [3,4]");
    REFUSED(ctx, tn_reshape(a, 3, open), TN_ERR_SHAPE, "reshape: [3,4] to [-1,-1,2]");
    REFUSED(ctx, tn_reshape(a, 2, uneven), TN_ERR_SHAPE, "reshape: [3,4] to [-1,5]");
    REFUSED(ctx, tn_reshape(a, 2, NULL), TN_ERR_SHAPE, "reshape: shape is NULL, expected 2 extents");
    REFUSED(ctx, tn_reshape(a, 9, nine), TN_ERR_SHAPE, "reshape: rank is 9, expected 0 to 8");
    REFUSED(ctx, tn_reshape_2d(tn_transpose(a, 0, 1), 3, 4), TN_ERR_SHAPE,
            "reshape: [4,3] is a strided view, expected a contiguous tensor: tn_copy makes one");
    tn_tensor *v = tn_slice_step(a, 1, 1, 3, INT64_MAX); /* steps beyond everything take the first alone */
    if (CHECK(v != NULL)) { CHECK_INT(v->shape[1], 1); CHECK(tn_item(tn_slice(v, 0, 1, 2)) == 5); }
    v = tn_slice_step(a, 1, 2, -1, INT64_MIN);
    if (CHECK(v != NULL)) { CHECK_INT(v->shape[1], 1); CHECK(tn_item(tn_slice(v, 0, 1, 2)) == 6); }
    v = tn_slice_step(tn_slice_step(a, 1, 1, 3, INT64_MAX), 1, 0, 1, INT64_MAX);
    if (CHECK(v != NULL)) CHECK(tn_item(tn_slice(v, 0, 2, 3)) == 9);
    CLOSE_CTX(ctx);
}

TEST(first_error_wins)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_tensor *a = counted(ctx, 3, 4), *b = counted(ctx, 5, 6);
    CHECK(tn_mul(ctx, tn_add(ctx, a, b), a) == NULL);
    CHECK(tn_matmul(ctx, a, b) == NULL);
    CHECK_STATUS(tn_ctx_status(ctx), TN_ERR_SHAPE);
    CHECK_STR(tn_ctx_error(ctx), "add: a is [3,4] and b is [5,6], which do not broadcast");
    CHECK_STATUS(tn_backward(ctx, a), TN_ERR_SHAPE);                   /* says no on its account */
    CHECK(tn_add(ctx, a, a) != NULL);                                  /* what is right still works */
    CHECK_STR(tn_ctx_error(ctx), "add: a is [3,4] and b is [5,6], which do not broadcast");
    tn_ctx_clear_error(ctx);
    CHECK_STATUS(tn_ctx_status(ctx), TN_OK);
    CHECK_STR(tn_ctx_error(ctx), "");
    tn_ctx_destroy(ctx);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------------ */

TEST(conversions)
{
    static const double some[] = {0, 1, -2.5, 1.00390625, 1.01171875, 1.001953125, 3.3895313892515355e38, 3.4e38, 1e-40, -1e-45, 65280.5};
    static const double good[] = {0, -1, 2147483647, -2147483648.0};
    static const double bad[] = {0.5, 2147483648.0, -2147483649.0, 1e300, HUGE_VAL};
    enum { SOME = sizeof some / sizeof *some };
    tn_ctx *ctx = ctx_of(TN_F32);
    double out[16], nan_and_inf[3];
    float f[16];
    int32_t i32[4];
    uint16_t raw[4] = {0x3f80, 0xc000, 0x7f80, 0x0001};
    int64_t n = SOME, four = 4, three = 3, one = 1;
    tn_tensor *wide = tn_tensor_nd(ctx, TN_F64, 1, &n);
    tn_tensor *slim = tn_tensor_nd(ctx, TN_F32, 1, &n);
    tn_tensor *brain = tn_tensor_nd(ctx, TN_BF16, 1, &n);
    CHECK_STATUS(tn_write(wide, TN_F64, some, n), TN_OK);
    CHECK_STATUS(tn_write(slim, TN_F64, some, n), TN_OK);
    CHECK_STATUS(tn_write(brain, TN_F64, some, n), TN_OK);
    CHECK_STATUS(tn_read(wide, TN_F64, out, n), TN_OK);
    CHECK(memcmp(out, some, sizeof some) == 0);
    CHECK_STATUS(tn_read(slim, TN_F64, out, n), TN_OK);
    for (int64_t i = 0; i < n; i++) CHECK(out[i] == (double)(float)some[i]);
    CHECK_STATUS(tn_read(brain, TN_F64, out, n), TN_OK);
    for (int64_t i = 0; i < n; i++)
        CHECK(out[i] == (some[i] > 3.39e38 ? HUGE_VAL : fabs(some[i]) < 1e-41 ? 0 : fabs(some[i]) < 1e-39
                         ? out[i] : plain_bf16((double)(float)some[i])));
    CHECK(fabs(out[8] - 1e-40) < 5e-41);                      /* subnormals round too */
    CHECK_STATUS(tn_read(slim, TN_REAL, f, n), TN_OK);        /* REAL is the context's */ CHECK(f[2] == -2.5f);
    brain = tn_tensor_nd(ctx, TN_BF16, 1, &four);
    CHECK_STATUS(tn_write(brain, TN_BF16, raw, 4), TN_OK);
    CHECK_STATUS(tn_read(brain, TN_F32, f, 4), TN_OK);
    CHECK(f[0] == 1 && f[1] == -2 && f[2] > 3.4e38f && f[3] > 0 && f[3] < 1e-38f);
    nan_and_inf[0] = (double)NAN;
    nan_and_inf[1] = HUGE_VAL;
    nan_and_inf[2] = -HUGE_VAL;
    brain = tn_tensor_nd(ctx, TN_BF16, 1, &three);
    CHECK_STATUS(tn_write(brain, TN_F64, nan_and_inf, 3), TN_OK);
    CHECK_STATUS(tn_read(brain, TN_F64, out, 3), TN_OK);
    CHECK(out[0] != out[0] && out[1] == HUGE_VAL && out[2] == -HUGE_VAL);
    slim = tn_cast(ctx, vector_of(ctx, 3, nan_and_inf), TN_I32);       /* the kernel saturates: NaN is 0 */
    CHECK_STATUS(tn_read(slim, TN_I32, i32, 3), TN_OK);
    CHECK(i32[0] == 0 && i32[1] == INT32_MAX && i32[2] == INT32_MIN);
    tn_tensor *whole = tn_tensor_nd(ctx, TN_I32, 1, &four);
    CHECK_STATUS(tn_write(whole, TN_F64, good, 4), TN_OK);
    CHECK_STATUS(tn_read(whole, TN_I32, i32, 4), TN_OK);
    CHECK(i32[0] == 0 && i32[1] == -1 && i32[2] == INT32_MAX && i32[3] == INT32_MIN);
    CHECK_STATUS(tn_read(whole, TN_F64, out, 4), TN_OK);
    CHECK(memcmp(out, good, sizeof good) == 0);
    whole = tn_tensor_nd(ctx, TN_I32, 1, &one);
    slim = tn_tensor_nd(ctx, TN_F64, 1, &one);
    i32[0] = 5;
    CHECK_STATUS(tn_write(whole, TN_I32, i32, 1), TN_OK);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        FAILS(ctx, tn_write(whole, TN_F64, &bad[k], 1), TN_ERR_DATA, "write: element 0 is ");
        CHECK(tn_item(whole) == 5);                           /* as it was */
        CHECK_STATUS(tn_write(slim, TN_F64, &bad[k], 1), TN_OK);
        i32[1] = 9;
        FAILS(ctx, tn_read(slim, TN_I32, &i32[1], 1), TN_ERR_DATA, "read: element 0 is ");
        CHECK_INT(i32[1], 9);
    }
    FAILS(ctx, tn_read(whole, TN_F32, f, 2), TN_ERR_SHAPE, "read: count is 2, expected the elements of [1]");
    FAILS(ctx, tn_write(whole, TN_F32, f, 0), TN_ERR_SHAPE, "write: count is 0, expected the elements of [1]");
    FAILS(ctx, tn_write(whole, TN_F32, NULL, 1), TN_ERR_ARG, "write: host memory is NULL");
    FAILS(ctx, tn_read(whole, (tn_dtype)7, f, 1), TN_ERR_DTYPE, "read: as is 7, expected 0 to 4");
    CHECK(tn_item(counted(ctx, 2, 2)) != 0);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "read: count is 1, expected the elements of [2,2]");
    CLOSE_CTX(ctx);
}

/* What is read from a view, and what is written through one, is what plain indices say. */
static void strided_io(tn_ctx *ctx, tn_dtype dtype)
{
    int64_t shape[3] = {3, 4, 5};
    tn_tensor *t = counting(ctx, dtype, 3, shape), *v;
    double out[60], in[60];
    v = tn_transpose(tn_slice_step(tn_slice_step(t, 1, 3, -1, -2), 2, 1, 5, 3), 0, 2);      /* [2,2,3] of (z,y,x): t[x, 3-2y, 1+3z] */
    REQUIRE(v != NULL);
    CHECK_INT(v->shape[0], 2);
    CHECK_INT(v->shape[1], 2);
    CHECK_INT(v->shape[2], 3);
    CHECK_STATUS(tn_read(v, TN_F64, out, 12), TN_OK);
    for (int64_t k = 0; k < 12; k++) CHECK(out[k] == (double)(k % 3 * 20 + (3 - k / 3 % 2 * 2) * 5 + 1 + k / 6 * 3));
    for (int64_t k = 0; k < 12; k++) in[k] = (double)(-1 - k);
    CHECK_STATUS(tn_write(v, TN_F64, in, 12), TN_OK);
    CHECK_STATUS(tn_read(v, TN_F64, out, 12), TN_OK);
    CHECK(memcmp(out, in, sizeof *in * 12) == 0);
    CHECK_STATUS(tn_read(t, TN_F64, out, 60), TN_OK);
    for (int64_t k = 0; k < 60; k++) {
        int64_t x = k / 20, y = k / 5 % 4, z = k % 5;
        CHECK(out[k] == (y % 2 == 1 && z % 3 == 1 ? (double)(-1 - (z / 3 * 6 + (3 - y) / 2 * 3 + x)) : (double)k));
    }
    CHECK_CTX(ctx);
}

TEST(strided_read_and_write)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    for (tn_dtype dtype = TN_F32; dtype <= TN_I32; dtype = (tn_dtype)(dtype + 1)) strided_io(ctx, dtype);
    tn_ctx_destroy(ctx);
}

TEST(keep_and_views)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    tn_tensor *t = counted(ctx, 3, 4), *kept = tn_tensor_keep(tn_transpose(t, 0, 1));
    int64_t shape[2] = {-1, 2}, n = 7;
    double out[12];
    REQUIRE(kept != NULL);
    CHECK(tn_tensor_is_contiguous(kept));
    CHECK(!tn_tensor_is_contiguous(tn_transpose(t, 0, 1)));
    CHECK(tn_tensor_is_contiguous(tn_slice(t, 0, 1, 3)));
    CHECK(!tn_tensor_is_contiguous(tn_slice(t, 1, 1, 3)));
    tn_ctx_reset(ctx);
    CHECK_STATUS(tn_read(kept, TN_F64, out, 12), TN_OK);
    CHECK(out[1] == 4 && out[11] == 11);
    tn_tensor *again = tn_reshape(kept, 2, shape);
    REQUIRE(again != NULL);
    CHECK_INT(again->shape[0], 6);
    CHECK(tn_item(tn_slice(tn_slice(again, 0, 5, 6), 1, 1, 2)) == 11);
    tn_tensor_destroy(kept);
    kept = tn_tensor_create(ctx, TN_F64, 1, &n);              /* zeroed */
    CHECK(tn_item(tn_sum(ctx, kept)) == 0);
    CLOSE_CTX(ctx);                                      /* the context frees what its user forgot */
}

/* Contiguous, but with a strange stride where the extent is 1: what batches and rows are made of must not believe it. */
TEST(strides_of_extent_one)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    int64_t shape[4] = {1, 3, 2, 2};
    tn_tensor *a = counting(ctx, TN_REAL, 4, shape), *b = tn_transpose(a, 0, 1), *y, *z;      /* [3,1,2,2] */
    double vy[12], vz[12];
    CHECK(tn_tensor_is_contiguous(b));
    y = tn_matmul(ctx, b, b);
    z = tn_matmul(ctx, a, a);
    REQUIRE(y && z);
    CHECK_STATUS(tn_read(y, TN_F64, vy, 12), TN_OK);
    CHECK_STATUS(tn_read(z, TN_F64, vz, 12), TN_OK);
    CHECK(memcmp(vy, vz, sizeof vy) == 0);
    CLOSE_CTX(ctx);
}

/* Casts between all dtypes, out of a view with negative and other steps. */
TEST(copies)
{
    const tn_backend *backend[3];
    backend[0] = tn_cpu_backend();
    backend[1] = tn_reference_backend();
    backend[2] = sealed_cpu();
    for (int b = 0; b < 3; b++) {
        tn_desc d = desc_of(TN_F32);
        int64_t shape[3] = {3, 4, 10};
        double out[36];
        if (test_leave_out(!backend[b], NO_SEALED)) continue;
        d.backend = backend[b];
        tn_ctx *ctx = ctx_new(&d);
        for (tn_dtype from = TN_F32; from <= TN_I32; from = (tn_dtype)(from + 1))
            for (tn_dtype to = TN_F32; to <= TN_I32; to = (tn_dtype)(to + 1)) {
                tn_tensor *t = counting(ctx, from, 3, shape);                              /* to 119: whole in all of them */
                t = tn_cast(ctx, tn_transpose(tn_slice_step(tn_slice_step(t, 2, 9, -1, -3), 1, 1, 4, 1), 0, 2), to);   /* [4,3,3]: t[z, 1+y, 9-3x] */
                REQUIRE(t != NULL);
                CHECK_INT(t->dtype, to);
                CHECK(tn_tensor_is_contiguous(t));
                CHECK_STATUS(tn_read(t, TN_F64, out, 36), TN_OK);
                for (int64_t k = 0; k < 36; k++) CHECK(out[k] == (double)(k % 3 * 40 + (1 + k / 3 % 3) * 10 + 9 - k / 9 * 3));
            }
        CLOSE_CTX(ctx);
    }
}

/* ---- the matrix product: any size, strides, alpha, beta, bias, against the reference ------------------------------------------------------ */

typedef struct layout { int64_t shape[3], strides[3], offset, count; } layout;       /* in a vector of `count` */

/* Axes lie in memory in any order, with gaps; a batch of inputs may be one matrix. Elements of an output never meet. */
static layout draw_layout(uint64_t *rng, int64_t batch, int64_t rows, int64_t columns, bool output)
{
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    layout l;
    int64_t stride = 1;
    int              which = (int)test_random_int(rng, 0, 9);
    if (which > 5) which = which % 2;                    /* plain and transposed more often than not */
    l.shape[0] = batch;
    l.shape[1] = rows;
    l.shape[2] = columns;
    l.offset = test_random_int(rng, 0, 3);
    if (test_random_int(rng, 0, 4) == 0) stride = test_random_int(rng, 1, 3);
    for (int k = 2; k >= 0; k--) {
        int axis = order[which][k];
        l.strides[axis] = stride;
        stride *= tni_max(l.shape[axis], 1);
        if (test_random_int(rng, 0, 2) == 0) stride += test_random_int(rng, 1, 5) * (axis == order[which][2] ? l.strides[axis] : 1);
    }
    if (!output && test_random_int(rng, 0, 3) == 0) l.strides[0] = 0;
    l.count = l.offset + stride + 4;
    return l;
}

static tn_view view_in(const tn_tensor *t, const layout *l)
{
    tn_view v = tni_view(t);
    v.data = (char *)v.data + (size_t)l->offset * tni_dtype_size(t->dtype);
    v.rank = 3;
    memcpy(v.shape, l->shape, sizeof l->shape);
    memcpy(v.strides, l->strides, sizeof l->strides);
    return v;
}

static tn_tensor *random_vector(tn_ctx *ctx, uint64_t rng, int64_t n)
{
    double *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = (double)(float)test_random_real(&rng);
    tn_tensor *t = vector_of(ctx, n, v);
    return t;
}

typedef struct any_gemm { layout a, b, c; int64_t n; bool bias; int64_t bias_step; double alpha, beta; uint64_t seed; } any_gemm;

static double *product_run(tn_ctx *ctx, const any_gemm *p)
{
    tn_tensor *a = random_vector(ctx, p->seed, p->a.count), *b = random_vector(ctx, p->seed + 1, p->b.count);
    tn_tensor *c = random_vector(ctx, p->seed + 2, p->c.count), *bias = NULL;
    if (p->bias) bias = tn_slice_step(random_vector(ctx, p->seed + 3, p->n * p->bias_step), 0, 0, p->n * p->bias_step, p->bias_step);
    CHECK_STATUS(tni_gemm(ctx, view_in(a, &p->a), view_in(b, &p->b), bias, view_in(c, &p->c), p->alpha, p->beta), TN_OK);
    double *all = host(c);                        /* with the gaps, where nothing may change */
    tn_ctx_reset(ctx);
    return all;
}

TEST(gemm)
{
    static const double factor[] = {1, 1, 0, -0.5, 2};
    static const int64_t edge[] = {1, 2, 5, 6, 7, 12, 14, 15, 16, 17, 28, 31, 32, 33, 48, 64, 65};
#ifdef __aarch64__
    static const tn_simd level[] = {TN_SIMD_PLAIN, TN_SIMD_NEON, TN_SIMD_NEON};
#else
    static const tn_simd level[] = {TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_AVX512};
#endif
    tn_ctx *oracle = NULL, *ctx[6];
    tn_desc d = desc_of(TN_F64);
    uint64_t rng = 11;
    double worst[2] = {0, 0};
    d.backend = tn_reference_backend();
    oracle = ctx_new(&d);
    d.backend = tn_cpu_backend();
    for (int k = 0; k < 6; k++) {
        d.dtype = k < 3 ? TN_F32 : TN_F64;
        d.simd = level[k % 3];
        d.threads = 1 + k % 2;
        ctx[k] = ctx_new(&d);
    }
    for (int i = 0; i < 400; i++) {
        int64_t batch = test_random_int(&rng, 0, 3) > 0 ? 1 : test_random_int(&rng, 0, 4), depth;
        any_gemm p;
        int64_t  m = i % 2 ? edge[test_random_int(&rng, 0, 16)] : test_random_int(&rng, 0, 40);
        int64_t  n = i % 2 ? edge[test_random_int(&rng, 0, 16)] : test_random_int(&rng, 0, 40);
        depth = i % 3 ? test_random_int(&rng, 0, 40) : test_random_int(&rng, 120, 300);      /* more than one block deep in double */
        if (i % 50 == 7) { batch = 1; m = 400; n = 70; depth = 600; }                          /* cut into tasks */
        if (i % 50 == 8) { batch = 1; m = 33; n = 1600; depth = 40; }                          /* wider than a block */
        if (i % 50 == 9) { batch = 9; m = 70; n = 50; depth = 33; }
        p.a = draw_layout(&rng, batch, m, depth, false);
        p.b = draw_layout(&rng, batch, depth, n, false);
        p.c = draw_layout(&rng, batch, m, n, true);
        p.n = n;
        p.bias = test_random_int(&rng, 0, 2) == 0;
        p.bias_step = test_random_int(&rng, 0, 2) == 0 ? 3 : 1;
        p.alpha = factor[test_random_int(&rng, 0, 4)];
        p.beta = factor[test_random_int(&rng, 0, 4)];
        p.seed = test_random(&rng);
        double *expected = product_run(oracle, &p);
        for (int k = 0; k < 6; k++) {
            double *got = product_run(ctx[k], &p), e = test_max_error(got, expected, p.c.count);
            test_raise(&worst[k / 3], e);
            if (!CHECK(e <= (k < 3 ? 2e-6 : 1e-14)))
                printf("     %s %s: [%d,%d,%d] [%d,%d,%d], alpha %g, beta %g, bias %d: off by %g\n", k < 3 ? "F32" : "F64", tn_ctx_simd_name(ctx[k]), (int)batch,
                       (int)m, (int)depth, (int)batch, (int)depth, (int)n, p.alpha, p.beta, p.bias, e);
        }
    }
    WORST("gemm against the reference, F32", worst[0], 2e-6);
    WORST("gemm against the reference, F64", worst[1], 1e-14);
    for (int k = 0; k < 6; k++) CLOSE_CTX(ctx[k]);
    tn_ctx_destroy(oracle);
}

/* ---- format ------------------------------------------------------------------------------------------------------------------------------ */

static void check_format(const tn_tensor *t, const char *expected)
{
    char text[4000], cut[8];
    int64_t n = tn_tensor_format(t, text, sizeof text);
    CHECK_STR(text, expected);
    CHECK_INT(n, strlen(expected));
    CHECK_INT(tn_tensor_format(t, NULL, 0), n);
    CHECK_INT(tn_tensor_format(t, cut, sizeof cut), n);
    CHECK(strlen(cut) == (n < 7 ? (size_t)n : 7) && strncmp(cut, expected, strlen(cut)) == 0);
}

TEST(format)
{
    static const double v[] = {1, -2.5, 0.125, 1e10, 3.14159265358979, 0}, odd[] = {(double)NAN, HUGE_VAL, -HUGE_VAL, 1};
    tn_ctx *ctx = ctx_of(TN_F64);
    int64_t cube[3] = {2, 2, 3}, long_cube[3] = {10, 2, 9}, empty[2] = {2, 0}, n = 20, zero = 0, shape[2] = {9, 9};
    check_format(counting(ctx, TN_REAL, 0, NULL), "0");
    check_format(vector_of(ctx, 6, v), "[     1   -2.5  0.125  1e+10 3.1416      0]");
    check_format(vector_of(ctx, 4, odd), "[ nan  inf -inf    1]");
    check_format(counted(ctx, 2, 3), "[[0 1 2]\n [3 4 5]]");
    check_format(tn_transpose(counted(ctx, 2, 6), 0, 1), "[[ 0  6]\n [ 1  7]\n [ 2  8]\n [ 3  9]\n [ 4 10]\n [ 5 11]]");
    check_format(counting(ctx, TN_I32, 3, cube), "[[[ 0  1  2]\n  [ 3  4  5]]\n\n [[ 6  7  8]\n  [ 9 10 11]]]");
    check_format(counting(ctx, TN_REAL, 1, &n), "[ 0  1  2 ... 17 18 19]");
    check_format(counting(ctx, TN_REAL, 1, &zero), "[]");
    check_format(counting(ctx, TN_REAL, 2, empty), "[[]\n []]");
    check_format(counting(ctx, TN_REAL, 2, shape),
                 "[[ 0  1  2 ...  6  7  8]\n [ 9 10 11 ... 15 16 17]\n [18 19 20 ... 24 25 26]\n ...\n"
                 " [54 55 56 ... 60 61 62]\n [63 64 65 ... 69 70 71]\n [72 73 74 ... 78 79 80]]");
    tn_tensor *t = counting(ctx, TN_BF16, 3, long_cube);
    check_format(tn_slice(tn_slice(t, 1, 0, 1), 2, 0, 2), "[[[  0   1]]\n\n [[ 18  19]]\n\n [[ 36  37]]\n\n ...\n\n [[126 127]]\n\n [[144 145]]\n\n [[162 163]]]");
    t = vector_of(ctx, 6, v);
    tn_ctx_reset(ctx);
    CHECK_INT(tn_tensor_format(t, NULL, 0), -1);
    CLOSE_CTX(ctx);
}

/* ---- faults and NaN -------------------------------------------------------------------------------------------------------------------------- */

TEST(faults)
{
    static const double ids[] = {0, 5, -1, 2}, labels[] = {0, 3, 9, 1};
    int64_t four = 4;
    const tn_backend *backend[3];
    backend[0] = tn_cpu_backend();
    backend[1] = tn_reference_backend();
    backend[2] = sealed_sparse();
    for (int b = 0; b < 3; b++) {
        tn_desc d = desc_of(TN_F32);
        float v[12];
        if (test_leave_out(!backend[b], NO_SEALED)) continue;
        d.backend = backend[b];
        tn_ctx *ctx = ctx_new(&d);
        tn_tensor *table = counted(ctx, 4, 3);
        tn_tensor *bad = tensor_of(ctx, TN_I32, 1, &four, ids);
        tn_tensor *wrong = tensor_of(ctx, TN_I32, 1, &four, labels);
        tn_tensor *y = tn_embed(ctx, table, bad);                                  /* runs; the word is read when somebody waits */
        CHECK(y != NULL);
        CHECK_CTX(ctx);
        tn_tensor *loss = tn_cross_entropy(ctx, table, wrong);
        CHECK(loss != NULL);
        CHECK_STATUS(tn_ctx_sync(ctx), TN_ERR_DATA);
        CHECK_ERROR(ctx, TN_ERR_DATA, "embed: element 1 of the ids is 5, which is outside the table");          /* the first one */
        CHECK_STATUS(tn_ctx_sync(ctx), TN_OK);                           /* and it is told once */
        CHECK_STATUS(tn_read(y, TN_F32, v, 12), TN_OK);
        CHECK(v[2] == 2 && v[3] == 0 && v[8] == 0 && v[9] == 6);         /* zeros for what is not there */
        loss = tn_cross_entropy(ctx, table, wrong);
        CHECK(tn_item(loss) != 0);                                       /* reading waits */
        CHECK_ERROR(ctx, TN_ERR_DATA, "cross_entropy: element 1 of the labels is 3, which is no column of the logits");
        CHECK_NEAR(tn_item(loss), ((log(exp(0.0) + exp(1.0) + exp(2.0)) - 0) + (log(exp(0.0) + exp(1.0) + exp(2.0)) - 1)) / 4, 1e-6);
        CLOSE_CTX(ctx);
    }
}

/* A bad id or label takes no part in the gradient. */
TEST(faults_and_gradients)
{
    static const double ids[] = {1, 7, 1, -3}, labels[] = {0, 1, 5, 2};
    tn_ctx *ctx = ctx_of(TN_F64);
    tn_params *ps = tn_params_create(ctx);
    tn_tensor *w = param_of(ps, "w", 3, 3)->value;
    int64_t four = 4;
    double g[9];
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_embed(ctx, w, tensor_of(ctx, TN_I32, 1, &four, ids)))), TN_OK);
    tn_ctx_sync(ctx);
    CHECK_ERROR(ctx, TN_ERR_DATA, "embed: element 1 of the ids is 7");
    CHECK_STATUS(tn_read(w->grad, TN_F64, g, 9), TN_OK);
    for (int i = 0; i < 9; i++) CHECK(g[i] == (i / 3 == 1 ? 2 : 0));
    tn_tensor *x = counted(ctx, 4, 3);
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_cross_entropy(ctx, x, tensor_of(ctx, TN_I32, 1, &four, labels))), TN_OK);
    tn_ctx_sync(ctx);
    CHECK_ERROR(ctx, TN_ERR_DATA, "cross_entropy: element 2 of the labels is 5");
    CHECK(tn_item(tn_slice(tn_slice(x->grad, 0, 2, 3), 1, 1, 2)) == 0);
    CHECK_NEAR(tn_item(tn_slice(tn_slice(x->grad, 0, 3, 4), 1, 2, 3)), (exp(2.0) / (1 + exp(1.0) + exp(2.0)) - 1) / 4, 1e-14);
    CLOSE_CTX(ctx);
}

/* NaN and infinity come out as the reference says, at each SIMD level. */
static void specials(tn_simd level, const tn_backend *backend)
{
    static const double x[] = {0, -0.0, (double)NAN, HUGE_VAL, -HUGE_VAL, 1e-40, -1e-40, 100, -100, 1000, -1000, 3e38, -3e38, 20, -20, 88.8, -88.8, 1e-20, 5, -5, 10, -10};
    enum { SPECIALS = sizeof x / sizeof *x };
    tn_desc d = desc_of(TN_F32), w = desc_of(TN_F64);
    d.simd = level;
    d.backend = backend;
    w.backend = tn_reference_backend();
    tn_ctx *ctx = ctx_new(&d);
    tn_ctx *wide = ctx_new(&w);
    for (int kind = TN_ACT_NONE; kind <= TN_ACT_LOG; kind++) {
        tn_tensor *t = vector_of(ctx, SPECIALS, x);
        double    *ga, *gb, back[SPECIALS];
        CHECK_STATUS(tn_read(t, TN_F64, back, SPECIALS), TN_OK);
        tn_tensor *tw = vector_of(wide, SPECIALS, back);      /* as rounded */
        tn_watch(t);
        tn_watch(tw);
        tn_record(ctx);
        tn_record(wide);
        t = tn_activation(ctx, t, (tn_act)kind);
        tw = tn_activation(wide, tw, (tn_act)kind);
        double *a = host(t), *b = host(tw);
        tn_backward(ctx, tn_sum(ctx, t));
        tn_backward(wide, tn_sum(wide, tw));
        ga = gb = NULL;
        if (ctx->arena_tensors && wide->arena_tensors) {
            for (tn_tensor *p = ctx->arena_tensors; p; p = p->prev) if ((p->flags & TNI_WATCHED) && p->grad) ga = host(p->grad);
            for (tn_tensor *p = wide->arena_tensors; p; p = p->prev) if ((p->flags & TNI_WATCHED) && p->grad) gb = host(p->grad);
        }
        REQUIRE(ga && gb);
        for (int i = 0; i < SPECIALS; i++) {
            bool same = (a[i] != a[i] && b[i] != b[i]) || a[i] == b[i] || (double)(float)b[i] == a[i] || fabs(a[i] - b[i]) <= 2e-6 * fmax(1, fabs(b[i]));
            bool slope = (ga[i] != ga[i] && gb[i] != gb[i]) || ga[i] == gb[i] || (double)(float)gb[i] == ga[i] || fabs(ga[i] - gb[i]) <= 4e-6 * fmax(1, fabs(gb[i]));
            if (!CHECK(same)) printf("     %s: activation %d of %g is %g, not %g\n", tn_ctx_simd_name(ctx), kind, x[i], a[i], b[i]);
            if (!CHECK(slope)) printf("     %s: slope of activation %d at %g is %g, not %g\n", tn_ctx_simd_name(ctx), kind, x[i], ga[i], gb[i]);
        }
        tn_ctx_reset(ctx);
        tn_ctx_reset(wide);
    }
    tn_ctx_destroy(ctx);
    tn_ctx_destroy(wide);
}

TEST(special_numbers)
{
    specials(TN_SIMD_AUTO, tn_reference_backend());
    specials(TN_SIMD_PLAIN, tn_cpu_backend());
    specials(TN_SIMD_AVX2, tn_cpu_backend());
    specials(TN_SIMD_AVX512, tn_cpu_backend());
    specials(TN_SIMD_NEON, tn_cpu_backend());
}

TEST(nan_is_seen)
{
    static const double rows[] = {1, (double)NAN, 3, (double)NAN, 5, (double)NAN, 7, 8, 8, -1, -2, -2}, few[] = {1, 2, 0, 0};
    int64_t shape[2] = {4, 3}, four = 4;
    const tn_backend *backend[2];
    backend[0] = tn_cpu_backend();
    backend[1] = tn_reference_backend();
    for (int b = 0; b < 2; b++) {
        tn_desc d = desc_of(TN_F32);
        int32_t best[4];
        float v[12];
        d.backend = backend[b];
        tn_ctx *ctx = ctx_new(&d);
        tn_tensor *x = tensor_of(ctx, TN_REAL, 2, shape, rows);
        CHECK_STATUS(tn_read(tn_argmax(ctx, x), TN_I32, best, 4), TN_OK);
        CHECK(best[0] == 1 && best[1] == 0 && best[2] == 1 && best[3] == 0);
        tn_tensor *labels = tensor_of(ctx, TN_I32, 1, &four, few);
        CHECK(tn_item(tn_accuracy(ctx, x, labels)) == 0.5);
        CHECK(tn_item(tn_cross_entropy(ctx, x, labels)) != tn_item(tn_cross_entropy(ctx, x, labels)));
        CHECK(tn_item(tn_sum(ctx, x)) != tn_item(tn_sum(ctx, x)));
        CHECK_STATUS(tn_read(tn_rmsnorm(ctx, x, NULL, 1e-5), TN_F32, v, 12), TN_OK);
        CHECK(v[0] != v[0] && v[6] == v[6]);
        tn_tensor *c = tn_full(ctx, 2, shape, (double)NAN);                         /* beta 0 does not read C */
        CHECK_STATUS(tni_gemm(ctx, tni_one_matrix(tni_view(counted(ctx, 4, 5))), tni_one_matrix(tni_view(counted(ctx, 5, 3))), NULL, tni_one_matrix(tni_view(c)), 1, 0), TN_OK);
        CHECK_STATUS(tn_read(c, TN_F32, v, 12), TN_OK);
        CHECK(v[0] == 90 && v[11] == 710);
        c = tn_full(ctx, 2, shape, (double)NAN);                         /* nor where there is nothing to add up */
        CHECK_STATUS(tni_gemm(ctx, tni_one_matrix(tni_view(counted(ctx, 4, 0))), tni_one_matrix(tni_view(counted(ctx, 0, 3))), NULL, tni_one_matrix(tni_view(c)), 1, 0), TN_OK);
        CHECK(tn_item(tn_sum(ctx, c)) == 0);
        CLOSE_CTX(ctx);
    }
}

/* A gradient that is not finite: nothing is updated, the error says where, and training goes on. */
static void nan_training(const tn_backend *backend)
{
    tn_desc d = desc_of(TN_F32);
    double before[4], after[4];
    d.backend = backend;
    tn_ctx *ctx = ctx_new(&d);
    tn_params *ps = tn_params_create(ctx);
    tn_tensor *good = param_of(ps, "good", 2, 2)->value;
    tn_tensor *bad = param_of(ps, "bad", 2, 2)->value;
    tn_optim *optim = tn_optim_create(ps, NULL);
    for (int step = 1; step <= 3; step++) {
        CHECK_STATUS(tn_read(good, TN_F64, before, 4), TN_OK);
        tn_record(ctx);
        tn_tensor *x = tn_scale(ctx, bad, step == 2 ? HUGE_VAL : 1);
        CHECK_STATUS(tn_backward(ctx, tn_add(ctx, tn_sum(ctx, tn_mul(ctx, good, good)), tn_sum(ctx, x))), TN_OK);
        CHECK_STATUS(tn_optim_step(optim), step == 2 && backend->host ? TN_ERR_NONFINITE : TN_OK);
        if (step == 2 && !backend->host) CHECK_STATUS(tn_ctx_sync(ctx), TN_ERR_NONFINITE);       /* a device tells when it is asked */
        if (step == 2) CHECK_ERROR(ctx, TN_ERR_NONFINITE, "step 2: the gradient of bad is not finite");
        CHECK_STATUS(tn_read(good, TN_F64, after, 4), TN_OK);
        CHECK((memcmp(before, after, sizeof before) == 0) == (step == 2));
        tn_ctx_reset(ctx);
    }
    CLOSE_CTX(ctx);
}

TEST(nan_in_training)
{
    nan_training(tn_cpu_backend());
    nan_training(tn_reference_backend());
    if (test_leave_out(!SEALED, NO_SEALED)) return;
    nan_training(sealed_cpu());
    nan_training(sealed_sparse());
}

/* The gradient of an intermediate gives its memory to the next one: a long chain needs a few, not one for each link. */
TEST(gradients_are_reused)
{
    enum { LINKS = 100, LENGTH = 1000 };
    tn_desc d = desc_of(TN_F32);
    int64_t n = LENGTH;
    d.arena_bytes = 4 << 20;             /* one block */
    tn_ctx    *ctx = ctx_new(&d);
    tn_tensor *x = counting(ctx, TN_REAL, 1, &n);
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_record(ctx);
    tn_tensor *y = x;
    for (int k = 0; k < LINKS; k++) y = tn_scale(ctx, y, 1.01);
    y = tn_sum(ctx, y);
    tn_mark before = tn_arena_mark(ctx);
    CHECK_STATUS(tn_backward(ctx, y), TN_OK);
    tn_mark after = tn_arena_mark(ctx);
    CHECK_INT(after.data_block, before.data_block);
    CHECK(after.data_used - before.data_used <= 4 * LENGTH * sizeof(float));
    CHECK_NEAR(tn_item(tn_slice(x->grad, 0, 5, 6)), pow(1.01, LINKS), 1e-5);
    CLOSE_CTX(ctx);
}

/* Looking at tensors, strided ones too, does not disturb a recording. */
TEST(reading_while_recording)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    tn_tensor *x = counted(ctx, 3, 2);
    double v[6];
    char text[100];
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_record(ctx);
    CHECK_STATUS(tn_read(tn_transpose(x, 0, 1), TN_F64, v, 6), TN_OK);
    tn_tensor *h = tn_mul(ctx, x, x);
    CHECK_STATUS(tn_read(tn_transpose(h, 0, 1), TN_F64, v, 6), TN_OK);
    CHECK(v[1] == 4);
    tn_tensor *y = tn_sum(ctx, h);
    CHECK_INT(tn_tensor_format(tn_transpose(h, 0, 1), text, sizeof text), 24);
    CHECK(tn_item(y) == 55);
    CHECK_STATUS(tn_backward(ctx, y), TN_OK);
    CHECK_STATUS(tn_read(x->grad, TN_F64, v, 6), TN_OK);
    CHECK(v[0] == 0 && v[1] == 2 && v[5] == 10);
    CLOSE_CTX(ctx);
}

/* ---- the tape's rules --------------------------------------------------------------------------------------------------------------------------- */

TEST(tape_rules)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    tn_params *ps = tn_params_create(ctx);
    tn_tensor *w = param_of(ps, "w", 2, 2)->value, *x = counted(ctx, 2, 2);
    static const double v[] = {1, 2, 3, 4};
    double g[4];
    CHECK_STATUS(tn_write(w, TN_F64, v, 4), TN_OK);
    CHECK(tn_dropout(ctx, x, 0.5) == x && tn_noise(ctx, x, 1) == x);          /* not recording: x itself */
    tn_tensor *y = tn_sum(ctx, tn_mul(ctx, w, w));
    FAILS(ctx, tn_backward(ctx, y), TN_ERR_ARG, "backward: loss leads to no parameter");
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, x)), TN_ERR_ARG);               /* leads to no parameter */
    CHECK_ERROR(ctx, TN_ERR_ARG, "backward: loss leads to no parameter");
    tn_record(ctx);
    y = tn_mul(ctx, w, w);
    FAILS(ctx, tn_backward(ctx, y), TN_ERR_SHAPE, "backward: loss is [2,2], expected one element");
    CHECK(!ctx->recording && ctx->tape == NULL);                              /* it ended the recording all the same */
    tn_record(ctx);
    tn_tensor *h = tn_mul(ctx, w, w);
    CHECK_STATUS(tn_watch(h), TN_OK);                                         /* an intermediate */
    y = tn_sum(ctx, tn_mul(ctx, h, x));
    CHECK_STATUS(tn_backward(ctx, y), TN_OK);
    CHECK_STATUS(tn_read(w->grad, TN_F64, g, 4), TN_OK);
    CHECK(g[0] == 0 && g[1] == 4 && g[2] == 12 && g[3] == 24);
    if (CHECK(h->grad != NULL)) CHECK_STATUS(tn_read(h->grad, TN_F64, g, 4), TN_OK);
    CHECK(g[0] == 0 && g[1] == 1 && g[2] == 2 && g[3] == 3);
    CHECK(y->grad == NULL);
    CHECK_STATUS(tn_backward(ctx, y), TN_ERR_ARG);                            /* once */
    CHECK_ERROR(ctx, TN_ERR_ARG, "backward: loss leads to no parameter");
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, w)), TN_OK);                    /* gradients add up until the optimiser's step */
    CHECK_STATUS(tn_read(w->grad, TN_F64, g, 4), TN_OK);
    CHECK(g[0] == 1 && g[1] == 5 && g[2] == 13 && g[3] == 25);
    FAILS(ctx, tn_watch(w), TN_ERR_ARG, "watch: [2,2] is an owned tensor of F64, expected an arena tensor");
    CHECK_INT(tn_params_freeze(ps, "w"), 1);
    CHECK(w->grad == NULL);                                                   /* a frozen parameter needs none */
    tn_record(ctx);
    FAILS(ctx, tn_backward(ctx, tn_sum(ctx, w)), TN_ERR_ARG, "backward: loss leads to no parameter");
    CHECK_INT(tn_params_thaw(ps, ""), 1);
    tn_record(ctx);
    y = tn_reshape_2d(tn_sum(ctx, w), 1, 1);                                  /* a view as the loss */
    CHECK_STATUS(tn_backward(ctx, y), TN_OK);
    CHECK_STATUS(tn_read(w->grad, TN_F64, g, 4), TN_OK);
    CHECK(g[0] == 1 && g[3] == 1);
    CLOSE_CTX(ctx);
}

/* A view knows what its base has become since: watched, frozen. */
TEST(views_follow_their_base)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    tn_params *ps = tn_params_create(ctx);
    tn_tensor *x = counted(ctx, 2, 3), *view = tn_transpose(x, 0, 1), *w = param_of(ps, "w", 2, 2)->value;
    double g[6];
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_scale(ctx, view, 3))), TN_OK);
    if (CHECK(x->grad != NULL)) {
        CHECK_STATUS(tn_read(x->grad, TN_F64, g, 6), TN_OK);
        for (int i = 0; i < 6; i++) CHECK(g[i] == 3);
    }
    tn_tensor *wt = tn_transpose(w, 0, 1);
    tn_params_freeze(ps, "");
    tn_record(ctx);
    FAILS(ctx, tn_backward(ctx, tn_sum(ctx, wt)), TN_ERR_ARG, "backward: loss leads to no parameter");
    CHECK(w->grad == NULL);
    tn_ctx_destroy(ctx);
}

TEST(writes_while_recording)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_tensor *x = counted(ctx, 2, 2);
    float v[4] = {1, 2, 3, 4};
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_record(ctx);
    tn_tensor *y = tn_mul(ctx, x, x);
    FAILS(ctx, tn_write(y, TN_F32, v, 4), TN_ERR_ARG, "write: [2,2] is needed by the backward pass");
    FAILS(ctx, tn_write(tn_slice(x, 0, 0, 1), TN_F32, v, 2), TN_ERR_ARG, "write: [1,2] is needed by the backward pass");
    CHECK_STATUS(tn_write(counted(ctx, 2, 2), TN_F32, v, 4), TN_OK);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, y)), TN_OK);
    CHECK_STATUS(tn_write(x, TN_F32, v, 4), TN_OK);
    CLOSE_CTX(ctx);
}

/* ---- threads --------------------------------------------------------------------------------------------------------------------------------------- */

enum { WIDE = 160, BATCH = 700, LESS = 90, NUMBERS = 3 };

typedef struct trained { double loss[NUMBERS]; float *weights; int64_t count; bool ok; } trained;

/* With BATCH, large enough that every kernel is cut into several tasks. Two threads run this at once, so it makes no
   checks: `ok` says whether all calls succeeded. */
static trained train_large(const tn_desc *desc)
{
    tn_ctx *ctx;
    trained t = ZERO;
    net m;
    int64_t at = 0;
    if (tn_ctx_create(desc, &ctx, NULL) != TN_OK) return t;
    if (!net_init(&m, ctx, WIDE)) { tn_ctx_destroy(ctx); return t; }
    t.ok = true;
    for (int k = 0; k < NUMBERS; k++) t.loss[k] = net_step(&m, ctx, test_small() ? LESS : BATCH);
    t.count = tn_params_elements(m.params);
    t.weights = (float *)malloc(sizeof(float) * (size_t)t.count);
    for (int64_t i = 0; i < tn_params_count(m.params); i++) {
        tn_tensor *p = tn_params_at(m.params, i)->value;
        t.ok = t.ok && tn_read(p, TN_F32, t.weights + at, tn_tensor_count(p)) == TN_OK;
        at += tn_tensor_count(p);
    }
    t.ok = t.ok && tn_ctx_status(ctx) == TN_OK;
    tn_ctx_destroy(ctx);
    return t;
}

static void same_bits(const trained *a, const trained *b)
{
    CHECK(a->ok && b->ok);
    CHECK_INT(a->count, b->count);
    CHECK(a->loss[NUMBERS - 1] < a->loss[0]);           /* or equal bits might be those of NaN */
    CHECK(memcmp(a->loss, b->loss, sizeof a->loss) == 0);
    CHECK(a->weights && b->weights && memcmp(a->weights, b->weights, sizeof(float) * (size_t)a->count) == 0);
}

TEST(threads_openmp)
{
    for (tn_dtype dtype = TN_F32; dtype <= TN_F64; dtype = (tn_dtype)(dtype + 1)) {
        tn_desc d = desc_of(dtype);
        int64_t used = 0;
        d.threads = 1;
        trained one = train_large(&d);
        trained again = train_large(&d);
        d.threads = 2;
        trained two = train_large(&d);
        d.threads = 3;
        trained three = train_large(&d);
        d.threads = 5;
        d.parallel_for = pool_backwards;
        d.parallel_user = &used;
        trained odd = train_large(&d);
        CHECK(one.loss[NUMBERS - 1] < one.loss[0]);
        same_bits(&one, &again);
        same_bits(&one, &two);
        same_bits(&one, &three);
        same_bits(&one, &odd);
        CHECK(used > 0);
        free(one.weights); free(again.weights); free(two.weights); free(three.weights); free(odd.weights);
    }
}

/* Random numbers, for any number of threads. */
TEST(threads_random)
{
    float *first = NULL;
    for (int threads = 1; threads <= 4; threads++) {
        tn_desc d = desc_of(TN_F32);
        int64_t n = 200003;
        float *v = (float *)malloc(sizeof(float) * 2 * (size_t)n);
        d.threads = threads;
        d.seed = 4;
        tn_ctx *ctx = ctx_new(&d);
        CHECK_STATUS(tn_read(tn_normal(ctx, 1, &n, 0, 1), TN_F32, v, n), TN_OK);
        CHECK_STATUS(tn_read(tn_uniform(ctx, 1, &n, 0, 1), TN_F32, v + n, n), TN_OK);
        if (!first) first = v;
        else {
            CHECK(memcmp(first, v, sizeof(float) * 2 * (size_t)n) == 0);
            free(v);
        }
        tn_ctx_destroy(ctx);
    }
    free(first);
}

#ifdef HAVE_PTHREADS
TEST(threads_pool)
{
    tn_desc d = desc_of(TN_F32);
    int used = 0;
    d.threads = 1;
    trained one = train_large(&d);
    d.threads = 2;
    d.parallel_for = pool_for;
    d.parallel_user = &used;
    trained two = train_large(&d);
    same_bits(&one, &two);
    CHECK(used > 0);
    free(one.weights);
    free(two.weights);
}

static void *train_beside(void *user)
{
    tn_desc d = desc_of(TN_F32);
    d.threads = 1;
    *(trained *)user = train_large(&d);
    return NULL;
}

/* Two contexts on two threads know nothing of each other. */
TEST(threads_two_contexts)
{
    tn_desc d = desc_of(TN_F32);
    trained   beside[2];
    pthread_t thread[2];
    d.threads = 1;
    trained alone = train_large(&d);
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&thread[i], NULL, train_beside, &beside[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) { same_bits(&alone, &beside[i]); free(beside[i].weights); }
    free(alone.weights);
}
#else
TEST(threads_pool)         { SKIP("pthreads", "a pool of our own"); }
TEST(threads_two_contexts) { SKIP("pthreads", "two threads"); }
#endif

/* ---- letters --------------------------------------------------------------------------------------------------- */

/* Every character's letter and class against Python's unicodedata; the hash is from tools/unicode_tables.py. */
TEST(letters_of_unicode)
{
    tni_letters *l = (tni_letters *)malloc(sizeof *l);
    uint64_t h = 0xCBF29CE484222325u;
    REQUIRE(l);
    tni_letters_unpack(l);
    CHECK_INT(l->run[0].first, 0);
    for (uint32_t c = 0; c < 0x110000; c++) {
        int kind;
        if (c >= 0xD800 && c < 0xE000) continue;
        uint32_t word = tni_letter_of(l, c, &kind);
        if (c < 128) CHECK(l->ascii[c] == word && l->ascii_kind[c] == kind);
        word |= (uint32_t)kind << 24;
        for (uint32_t i = 0; i < 32; i += 8) h = (h ^ (word >> i & 255)) * 0x100000001B3u;
    }
    CHECK(h == 0x28BC94D5225541EBu);
    for (size_t k = 1; k < sizeof l->run / sizeof *l->run; k++) CHECK(l->run[k - 1].first < l->run[k].first);
    free(l);
}

/* Every character's category of regular expressions; the hash is from the same program. */
TEST(categories_of_unicode)
{
    tni_categories *l = (tni_categories *)malloc(sizeof *l);
    uint64_t h = 0xCBF29CE484222325u;
    REQUIRE(l);
    tni_categories_unpack(l);
    for (uint32_t c = 0; c < 0x110000; c++) {
        const int category = tni_category_of(l, c);
        if (c < 128) CHECK_INT(l->ascii[c], category);
        h = (h ^ (category == 1 ? 0u : category == 2 ? 1u : category == 4 ? 2u : 3u)) * 0x100000001B3u;
    }
    CHECK(h == 0x48B1698009766D10u);
    for (size_t k = 1; k < sizeof l->run / sizeof *l->run; k++) CHECK(l->run[k - 1] >> 2 < l->run[k] >> 2);
    free(l);
}

/* Integers that float cannot hold come back from a view, too. */
TEST(strided_integers)
{
    static const int32_t v[6] = {16777217, -16777217, INT32_MAX, INT32_MIN, 33554431, 3};
    tn_ctx    *ctx = ctx_of(TN_F32);
    int64_t    shape[2] = {2, 3};
    int32_t    got[6];
    double     wide[6];
    tn_tensor *t = tn_tensor_nd(ctx, TN_I32, 2, shape);
    CHECK_STATUS(tn_write(t, TN_I32, v, 6), TN_OK);
    tn_tensor *turned = tn_transpose(t, 0, 1);
    CHECK_STATUS(tn_read(turned, TN_I32, got, 6), TN_OK);
    CHECK_STATUS(tn_read(turned, TN_F64, wide, 6), TN_OK);
    for (int i = 0; i < 6; i++) CHECK(got[i] == v[i % 2 * 3 + i / 2] && wide[i] == v[i % 2 * 3 + i / 2]);
    CLOSE_CTX(ctx);
}

/* A reshaped tensor has the strides of a new one, empty or not. */
TEST(strides_of_reshaped_tensors)
{
    static const int64_t from[3][2] = {{4, 6}, {0, 6}, {5, 0}}, to[3][3] = {{2, 3, 4}, {3, 0, 2}, {7, 2, 0}};
    tn_ctx *ctx = ctx_of(TN_F32);
    for (int k = 0; k < 3; k++) {
        tn_tensor *a = tn_reshape(tn_full(ctx, 2, from[k], 1), 3, to[k]), *b = tn_full(ctx, 3, to[k], 1);
        REQUIRE(a && b);
        CHECK(memcmp(a->shape, b->shape, 3 * sizeof *a->shape) == 0);
        CHECK(memcmp(a->strides, b->strides, 3 * sizeof *a->strides) == 0);
    }
    CLOSE_CTX(ctx);
}

/* What a terminal could obey, or what hides other text, becomes a question mark. */
TEST(printable)
{
    static const struct { const char *text, *word, *lines; } item[] = {
        {"plain, gr\xC3\xB6\xC3\x9F" "e, \xE6\x97\xA5, \xF0\x9F\x99\x82", NULL, NULL},
        {"\x1B]0;t\x07", "?]0;t?", "?]0;t?"}, {"a\tb\nc\rd\x7F", "a?b?c?d?", "a\tb\nc?d?"},
        {"\x9B" "31m", "?31m", "?31m"}, {"\xC2\x9B" "31m \xC2\xA0", "?31m \xC2\xA0", "?31m \xC2\xA0"},
        {"a\xE2\x80\xAE" "b\xE2\x80\xAC", "a?b?", "a?b?"}, {"\xE2\x81\xA6|\xE2\x81\xA9|\xD8\x9C|\xE2\x80\x8E", "?|?|?|?", "?|?|?|?"},
        {"\xE2\x80\xA8|\xE2\x80\xA9|\xE2\x80\x8B|\xEF\xBB\xBF", "?|?|?|?", "?|?|?|?"},
        {"\xF3\xA0\x81\x81|\xE2\x80\x8D", "?|?", "?|\xE2\x80\x8D"},
        {"\xE2\x80", "??", "??"}, {"\xC0\x9B|\xED\xA0\x80|\xF5", "??|???|?", "??|???|?"}, {"", NULL, NULL}
    };
    char name[40];
    for (size_t i = 0; i < 2 * sizeof item / sizeof *item; i++) {
        const char *text = item[i / 2].text, *expected = i % 2 ? item[i / 2].lines : item[i / 2].word;
        snprintf(name, sizeof name, "%s", text);
        size_t k = tn_printable(name, strlen(name), i % 2 == 1);
        CHECK_STR(name, expected ? expected : text);
        CHECK(k == strlen(name));
    }
    memcpy(name, "a\0b", 4);
    CHECK(tn_printable(name, 3, false) == 3 && strcmp(name, "a?b") == 0);
#ifndef TN_NO_STDIO
    {
        tn_ctx *ctx = ctx_of(TN_F32);
        CHECK(tn_npy_load(ctx, "no-such-\x1B[31m\xE2\x80\xAE\n.npy") == NULL);
        CHECK(strncmp(tn_ctx_error(ctx), "no-such-?[31m??.npy: ", 21) == 0);
        tn_ctx_destroy(ctx);
    }
#endif
}

/* Names in messages: letters of any alphabet as they are, control characters not, and never half of a character. */
TEST(names_in_messages)
{
    char   name[400];
    size_t i;
    CHECK_STR(tni_quote("gr\xC3\xB6\xC3\x9F" "e").s, "\"gr\xC3\xB6\xC3\x9F" "e\"");
    CHECK_STR(tni_quote("a\nb\x7F" "c\x1F").s, "\"a?b?c?\"");
    CHECK_STR(tni_quote("a b").s, "\"a b\"");
    for (size_t n = 0; n < 4; n++) {
        memset(name, 'x', n);
        for (i = n; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xC3\xB6", 2);
        name[i] = 0;
        tni_quoted q = tni_quote(name);
        i = strlen(q.s);
        CHECK(i < sizeof q.s && strcmp(q.s + i - 4, "...\"") == 0 && q.s[i - 5] == '\xB6');
    }
}

/* Nor does a device keep an error of its close to itself; it has no temporary file. */
TEST(a_device_that_cannot_be_closed)
{
#if SEALED
    tn_ctx    *ctx = ctx_of(TN_F32);
    tn_params *ps = tn_params_create(ctx);
    tn_init    init = ZERO;
    char       part[256];
    int64_t    n = 3;
    CHECK(tn_params_add(ps, "w", 1, &n, init) != NULL);
    CHECK_STATUS(tn_params_save(ps, "/dev/null"), TN_OK);
    snprintf(part, sizeof part, "could not be closed: %s", strerror(EIO));
    closing.error = EIO;
    CHECK_STATUS(tn_params_save(ps, "/dev/null"), TN_ERR_FILE);
    closing.error = 0;
    CHECK_ERROR(ctx, TN_ERR_FILE, part);
    CLOSE_CTX(ctx);
#else
    SKIP("mmap", "a system with /dev/null");
#endif
}

/* XXH64 of the bytes i^2 7 + 13 i + 5, by xxHash 0.8.4, in one piece and in pieces of every size. */
TEST(checksums)
{
    static const struct { size_t bytes; uint64_t sum; } known[] = {
        {0, UINT64_C(0xEF46DB3751D8E999)},   {1, UINT64_C(0x50FF15A81340970F)},  {3, UINT64_C(0x8FD1BF69A31A56F5)},
        {4, UINT64_C(0x56AD15C35C9774FD)},   {7, UINT64_C(0xEF764BC03DABFE4E)},  {8, UINT64_C(0x8E94D1FC5AE68313)},
        {12, UINT64_C(0xC28CA4C6E81EAB49)},  {31, UINT64_C(0x18E187606DDC662C)}, {32, UINT64_C(0xFB5A878E50332551)},
        {33, UINT64_C(0xA63616DA9F1BFC3D)},  {63, UINT64_C(0xB9A05DBDEC8770DE)}, {64, UINT64_C(0xA6833896820986E1)},
        {100, UINT64_C(0xF38896434BDCD7AC)}, {1000, UINT64_C(0x72B44FCE66106B6C)}
    };
    uint8_t text[1000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)(i * i * 7 + i * 13 + 5);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        for (size_t piece = 1; piece <= 100; piece++) {
            tni_checksum s;
            size_t       n;
            tni_checksum_open(&s);
            for (size_t at = 0; at < known[k].bytes; at += n) {
                n = known[k].bytes - at < piece ? known[k].bytes - at : piece;
                tni_checksum_add(&s, text + at, n);
            }
            CHECK(tni_checksum_value(&s) == known[k].sum);
        }
}

TEST_MAIN(numbers_parse, numbers_halfway, numbers_just_above_halfway, numbers_long, numbers_edges, numbers_format,
          numbers_in_a_comma_locale, text, sizes, extents_beyond_a_size, scratch_pieces, philox, random_words_of_far_blocks,
          random_moments, random_streams, random_clock, random_prefix, allocator, allocation_failures, max_bytes,
          arena_near_its_limit, no_allocation, memory_counts, marks, marks_and_gradients, contexts,
          backend_failures, files_that_cannot_be_closed, a_device_that_cannot_be_closed, simd_of_the_environment,
          fallback_is_logged, bad_operands,
          reset_tensors, shape_errors, view_errors, first_error_wins,
          conversions, strided_read_and_write, keep_and_views, strides_of_extent_one, copies, gemm, format,
          faults, faults_and_gradients, special_numbers, nan_is_seen, nan_in_training,
          tape_rules, views_follow_their_base, gradients_are_reused, reading_while_recording, writes_while_recording,
          threads_openmp, threads_random, threads_pool, threads_two_contexts,
          letters_of_unicode, categories_of_unicode, strided_integers, strides_of_reshaped_tensors, printable, names_in_messages,
          checksums)
