/* test_io.c: safetensors, npy and idx, good files and hostile ones. */

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "kit.h"
#ifdef __linux__
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
#endif

/* ---- helpers ---------------------------------------------------------------- */

/* A file in memory. Readers get a copy of its exact size, so that a sanitizer sees the first byte too many. */
typedef struct bytes { unsigned char p[4096]; size_t n; } bytes;

static void add(bytes *b, const void *p, size_t n)
{
    if (n > sizeof b->p - b->n) n = sizeof b->p - b->n;
    if (n > 0) memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void add_word(bytes *b, uint64_t v, int width, bool big_endian)
{
    for (int i = 0; i < width; i++) {
        unsigned char c = (unsigned char)(v >> 8 * (big_endian ? width - 1 - i : i));
        add(b, &c, 1);
    }
}

static void add_zeros(bytes *b, size_t n)
{
    for (; n > 0; n--) add(b, "", 1);
}

static bytes safetensors_of(const char *header, const void *data, size_t n)
{
    bytes b;
    b.n = 0;
    add_word(&b, strlen(header), 8, false);
    add(&b, header, strlen(header));
    if (data) add(&b, data, n);
    else add_zeros(&b, n);
    return b;
}

static bytes npy_of(int version, const char *header, const void *data, size_t n)
{
    bytes b;
    unsigned char head[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', 0, 0};
    head[6] = (unsigned char)version;
    b.n = 0;
    add(&b, head, 8);
    add_word(&b, strlen(header), version == 1 ? 2 : 4, false);
    add(&b, header, strlen(header));
    if (data) add(&b, data, n);
    else add_zeros(&b, n);
    return b;
}

static bytes idx_of(int type, int rank, const int *shape, const void *data, size_t n)
{
    bytes b;
    b.n = 0;
    add_word(&b, (uint64_t)type << 8 | (uint64_t)rank, 4, true);
    for (int i = 0; i < rank; i++) add_word(&b, (uint64_t)shape[i], 4, true);
    add(&b, data, n);
    return b;
}

typedef enum format { SAFETENSORS, NPY, IDX } format;

/* Opens the source and reads all that is in it. True: all of it could be read. Nothing stays behind. */
static bool reads(tn_ctx *ctx, format f, tn_source source)
{
    size_t live = tn_ctx_memory(ctx).live;
    bool   ok = false;
    if (f == SAFETENSORS) {
        tn_safetensors *file = tn_safetensors_open(ctx, source);
        ok = file != NULL;
        for (int64_t i = 0; i < tn_safetensors_count(file); i++) {
            tn_tensor *t = tn_safetensors_read(file, tn_safetensors_at(file, i)->name);
            ok = ok && t;
            tn_tensor_destroy(t);
        }
        tn_safetensors_close(file);
    } else {
        tn_tensor *t = f == NPY ? tn_npy_read(ctx, source) : tn_idx_read(ctx, source, 0);
        ok = t != NULL;
        tn_tensor_destroy(t);
    }
    CHECK((tn_ctx_status(ctx) == TN_OK) == ok);
    CHECK_INT(tn_ctx_memory(ctx).live, live);
    return ok;
}

static bool reads_bytes(tn_ctx *ctx, format f, const void *p, size_t n)
{
    void *exact = malloc(n ? n : 1);
    if (!CHECK(exact)) return false;
    memcpy(exact, p, n);
    bool ok = reads(ctx, f, tn_source_memory(exact, n));
    free(exact);
    return ok;
}

static void refuses(tn_ctx *ctx, format f, const bytes *b, tn_status status, const char *part)
{
    if (reads_bytes(ctx, f, b->p, b->n)) printf("     accepted, expected: %s\n", part);
    CHECK_ERROR(ctx, status, part);
}

static tn_tensor *read_npy(tn_ctx *ctx, const bytes *b) { return tn_npy_read(ctx, tn_source_memory(b->p, b->n)); }
static tn_tensor *read_idx(tn_ctx *ctx, const bytes *b, double scale)
{
    return tn_idx_read(ctx, tn_source_memory(b->p, b->n), scale);
}

/* The tensor has this dtype and these values; it is destroyed. */
static void check_values(tn_tensor *t, tn_dtype dtype, int64_t n, const double *expected)
{
    double v[64];
    if (!CHECK(t) || !CHECK_INT(t->dtype, dtype) || !CHECK_INT(tn_tensor_count(t), n) || !CHECK(n <= 64)) return;
    CHECK_STATUS(tn_read(t, TN_F64, v, n), TN_OK);
    for (int64_t i = 0; i < n; i++) CHECK(v[i] == expected[i] || (v[i] != v[i] && expected[i] != expected[i]));
    tn_tensor_destroy(t);
}

static tn_tensor *make_random(tn_ctx *ctx, uint64_t *state, tn_dtype dtype, int rank, const int64_t *shape)
{
    tn_tensor *t = tn_tensor_create(ctx, dtype, rank, shape);
    int64_t    n = tn_tensor_count(t);
    double    *v = (double *)malloc((size_t)(n + 1) * sizeof *v);
    for (int64_t i = 0; v && i < n; i++) v[i] = dtype == TN_I32 ? (double)test_random_int(state, INT32_MIN, INT32_MAX) : test_random_real(state);
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
    free(v);
    return t;
}

/* Same shape, same values. */
static bool same(const tn_tensor *a, const tn_tensor *b)
{
    int64_t n = tn_tensor_count(a);
    bool    equal;
    if (!CHECK(a && b) || !CHECK_INT(a->rank, b->rank)) return false;
    for (int i = 0; i < a->rank; i++) if (!CHECK_INT(a->shape[i], b->shape[i])) return false;
    double *x = (double *)malloc((size_t)(n + 1) * sizeof *x);
    double *y = (double *)malloc((size_t)(n + 1) * sizeof *y);
    equal = x && y && tn_read(a, TN_F64, x, n) == TN_OK && tn_read(b, TN_F64, y, n) == TN_OK && (n == 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0);
    free(x);
    free(y);
    return CHECK(equal);
}

static bool negative(double v) { return copysign(1, v) < 0; }

static void scratch(char path[TEST_PATH], const char *name)
{
    snprintf(path, TEST_PATH, "%s/test_io_%s", test_folder(), name);
}

static unsigned char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    unsigned char *p = NULL;
    *n = 0;
    if (!f) return NULL;
    if (fseek(f, 0, SEEK_END) == 0) *n = (size_t)ftell(f);
    rewind(f);
    p = (unsigned char *)malloc(*n + 1);
    if (p && fread(p, 1, *n, f) != *n) *n = 0;
    fclose(f);
    return p;
}

/* ---- the conformance files ---------------------------------------------------- */

static bool memory_fetch(void *user, uint64_t offset, void *dst, size_t n)
{
    memcpy(dst, (const unsigned char *)user + offset, n);
    return true;
}

/* A file of which nothing exists but its first bytes; then each byte says which GB it is in. */
static bool vast_fetch(void *user, uint64_t offset, void *dst, size_t n)
{
    const bytes *b = (const bytes *)user;
    unsigned char *p = (unsigned char *)dst;
    for (size_t i = 0; i < n; i++, offset++) p[i] = offset < b->n ? b->p[offset] : (unsigned char)((offset - b->n) >> 30);
    return true;
}

/* One file, from its path, from memory and through a call: the verdict is the same. */
static void check_verdict(tn_ctx *ctx, format f, const char *path, bool accept)
{
    size_t n;
    unsigned char *p = read_file(path, &n);
    bool ok = reads(ctx, f, tn_source_path(path));
    if (ok != accept) printf("     %s: %s\n", path, tn_ctx_error(ctx));
    CHECK(ok == accept);
    if (!accept) {
        CHECK(strncmp(tn_ctx_error(ctx), path, strlen(path)) == 0 && strstr(tn_ctx_error(ctx), ": byte "));
        printf("refused: %s\n", strrchr(tn_ctx_error(ctx), '/') + 1);
    }
    tn_ctx_clear_error(ctx);
    CHECK(p && reads_bytes(ctx, f, p, n) == accept);
    tn_ctx_clear_error(ctx);
    CHECK(reads(ctx, f, tn_source_calls(memory_fetch, p, n)) == accept);
    tn_ctx_clear_error(ctx);
    free(p);
}

static int check_folder(format f, const char *folder, const char *verdict_format)
{
    char    path[TEST_PATH], suffix[160], line[512], name[128], verdict[32];
    tn_ctx *ctx = ctx_of(TN_F32);
    int     count = 0;
    snprintf(suffix, sizeof suffix, "%s/EXPECTED.tsv", folder);
    if (!CHECK(test_data(suffix, path))) return 0;
    FILE *expected = fopen(path, "r");
    if (!CHECK(ctx && expected)) return 0;
    while (fgets(line, sizeof line, expected)) {
        if (sscanf(line, verdict_format, name, verdict) != 2 || strcmp(name, "name") == 0) continue;
        snprintf(suffix, sizeof suffix, "%s/%s.%s", folder, name, folder);
        if (!CHECK(test_data(suffix, path))) continue;
        /* text is no number: read by nobody, refused by its name */
        check_verdict(ctx, f, path, strcmp(verdict, "accept") == 0 && strncmp(name, "unsupported", 11) != 0);
        count++;
    }
    fclose(expected);
    tn_ctx_destroy(ctx);
    return count;
}

TEST(safetensors_conformance)
{
    CHECK_INT(check_folder(SAFETENSORS, "safetensors", "%63[^\t]\t%*[^\t]\t%31[^\t]"), 18);
}

TEST(npy_conformance)
{
    CHECK_INT(check_folder(NPY, "npy", "%63[^\t]\t%31[^\t]"), 17);
}

TEST(safetensors_values)
{
    static const double zero[] = {0}, one[] = {1}, two[] = {2};
    char path[TEST_PATH];
    REQUIRE(test_data("safetensors/ok_scalar_rank0.safetensors", path));
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_path(path));
    check_values(tn_safetensors_read(f, "test"), TN_I32, 1, zero);
    CHECK_INT(tn_safetensors_find(f, "test")->rank, 0);
    REFUSED(ctx, tn_safetensors_read(f, "tes"), TN_ERR_ARG, "there is no tensor \"tes\"");

    REQUIRE(test_data("safetensors/ok_zero_sized.safetensors", path));
    f = tn_safetensors_open(ctx, tn_source_path(path));
    CHECK_INT(tn_safetensors_at(f, 0)->shape[0], 2);
    CHECK_INT(tn_safetensors_at(f, 0)->shape[1], 0);
    CHECK(!tn_safetensors_at(f, 1) && !tn_safetensors_at(f, -1));

    REQUIRE(test_data("safetensors/ok_metadata_only.safetensors", path));
    f = tn_safetensors_open(ctx, tn_source_path(path));
    CHECK_INT(tn_safetensors_count(f), 0);
    CHECK_STR(tn_safetensors_metadata(f, "format"), "pt");
    CHECK_STR(tn_safetensors_metadata(f, "note"), "h\xC3\xA9llo");
    CHECK(!tn_safetensors_metadata(f, "other"));

    REQUIRE(test_data("safetensors/ok_out_of_order_keys.safetensors", path));
    f = tn_safetensors_open(ctx, tn_source_path(path));
    CHECK_STR(tn_safetensors_at(f, 0)->name, "a");
    check_values(tn_safetensors_read(f, "a"), TN_I32, 1, one);
    check_values(tn_safetensors_read(f, "b"), TN_I32, 1, two);
    CLOSE_CTX(ctx);                /* closes the four files */
}

static tn_tensor *load_case(tn_ctx *ctx, const char *name)
{
    char path[TEST_PATH];
    return CHECK(test_data(name, path)) ? tn_npy_load(ctx, path) : NULL;
}

TEST(npy_values)
{
    static const double count[] = {0, 1, 2, 3, 4, 5}, truth[] = {0, 1, 1, 1, 1, 1};
    static const double odd[] = {(double)NAN, HUGE_VAL, -HUGE_VAL, -0.0};
    double v[12];
    tn_ctx *ctx = ctx_of(TN_F64);
    check_values(load_case(ctx, "npy/ok_f2.npy"), TN_F64, 6, count);
    check_values(load_case(ctx, "npy/ok_u1.npy"), TN_I32, 6, count);
    check_values(load_case(ctx, "npy/ok_u2.npy"), TN_I32, 6, count);
    check_values(load_case(ctx, "npy/ok_i8.npy"), TN_I32, 6, count);
    check_values(load_case(ctx, "npy/ok_bool.npy"), TN_I32, 6, truth);
    tn_tensor *a = load_case(ctx, "npy/ok_nan_inf.npy");
    REQUIRE(a);
    CHECK_STATUS(tn_read(a, TN_F64, v, 4), TN_OK);
    CHECK(negative(v[3]));
    check_values(a, TN_F64, 4, odd);
    a = load_case(ctx, "npy/ok_f4_v1.npy");
    tn_tensor *b = load_case(ctx, "npy/ok_f4_fortran.npy");
    REQUIRE(a && b);
    CHECK_INT(b->shape[0], 3);
    same(a, b);
    CHECK_STATUS(tn_read(a, TN_F64, v, 12), TN_OK);
    CHECK_NEAR(v[0], 0.34558, 1e-5);
    b = load_case(ctx, "npy/ok_f8_v2.npy");
    REQUIRE(b);
    CHECK_NEAR(tn_item(tn_slice(tn_slice(b, 0, 2, 3), 1, 3, 4)), 0.54671298661244694, 1e-16);
    a = load_case(ctx, "npy/ok_empty_0x3.npy");
    REQUIRE(a);
    CHECK_INT(a->shape[0], 0);
    CHECK_INT(a->shape[1], 3);
    a = load_case(ctx, "npy/IL2_Response_Tensor.npy");
    REQUIRE(a);
    CHECK_INT(a->rank, 4);
    CHECK_NEAR(tn_item(tn_slice(tn_reshape_2d(a, 1, -1), 1, 0, 1)), 0.40661204058969541, 1e-16);
    CLOSE_CTX(ctx);
}

/* The numbers of `key` in a file of JSON that has each on a line of its own. */
static int numbers_of(const char *path, const char *key, double *v, int most)
{
    char  line[256], quoted[64];
    int   n = 0;
    bool  inside = false;
    FILE *f = fopen(path, "r");
    if (!CHECK(f)) return 0;
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    while (n < most && fgets(line, sizeof line, f)) {
        if (strchr(line, '"')) inside = strstr(line, quoted) != NULL;
        else if (inside && sscanf(line, "%lf", &v[n]) == 1) n++;
    }
    fclose(f);
    return n;
}

/* The largest error of a model's logits for three images: x = E v, x += (W x) * (V x), logits = H x, in plain loops. */
static double error_of_model(tn_ctx *ctx, const char *model, const char *images, const char *reference,
                             const char *note, int d)
{
    static double e[512 * 784], w[1024 * 512], h[10 * 512], v[3 * 784], expected[30], x[512], y[512];
    double     worst = 0;
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_path(model));
    tn_tensor *t = tn_npy_load(ctx, images);
    CHECK_CTX(ctx);
    if (!CHECK(f && t)) return HUGE_VAL;
    CHECK_INT(tn_safetensors_count(f), 3);
    CHECK(strstr(tn_safetensors_metadata(f, "model"), note));
    CHECK_STATUS(tn_read(tn_safetensors_read(f, "embed.weight"), TN_F64, e, d * 784), TN_OK);
    CHECK_STATUS(tn_read(tn_safetensors_read(f, "blocks.0.weight"), TN_F64, w, 2 * d * d), TN_OK);
    CHECK_STATUS(tn_read(tn_safetensors_read(f, "head.weight"), TN_F64, h, 10 * d), TN_OK);
    CHECK_STATUS(tn_read(t, TN_F64, v, 3 * 784), TN_OK);
    if (!CHECK_INT(numbers_of(reference, "logits_first3_images", expected, 30), 30)) return HUGE_VAL;
    for (int image = 0; image < 3; image++) {
        for (int i = 0; i < d; i++) {
            x[i] = 0;
            for (int k = 0; k < 784; k++) x[i] += e[i * 784 + k] * v[image * 784 + k] / 255;
        }
        for (int i = 0; i < d; i++) {
            double left = 0, right = 0;
            for (int k = 0; k < d; k++) { left += w[i * d + k] * x[k]; right += w[(d + i) * d + k] * x[k]; }
            y[i] = x[i] + left * right;
        }
        for (int c = 0; c < 10; c++) {
            double logit = 0;
            for (int k = 0; k < d; k++) logit += h[c * d + k] * y[k];
            test_raise(&worst, fabs(logit - expected[image * 10 + c]));
        }
    }
    return worst;
}

TEST(trained_models)
{
    char    model[TEST_PATH], images[TEST_PATH], reference[TEST_PATH];
    tn_ctx *ctx = ctx_of(TN_F32);
    REQUIRE(test_data("bilinear/model.safetensors", model));
    REQUIRE(test_data("bilinear/first3_test_images.npy", images));
    REQUIRE(test_data("bilinear/reference.json", reference));
    WORST("logits of a trained model", error_of_model(ctx, model, images, reference, "bilinear Fashion-MNIST", 24), 1e-11);
    if (test_optional_data("published", "bilinear-mnist-model/bilinear_mnist_noise0.15.safetensors", model)) {
        REQUIRE(test_data("bilinear-mnist-model/first3_test_images.npy", images));
        REQUIRE(test_data("bilinear-mnist-model/reference_float64.json", reference));
        WORST("logits of the published model",
              error_of_model(ctx, model, images, reference, "1-layer bilinear MNIST", 512), 1e-5);
    }
    CLOSE_CTX(ctx);
}

/* ---- numbers ---------------------------------------------------------------- */

static double half_value(unsigned bits)
{
    int    exponent = (int)(bits >> 10 & 31);
    double m = bits & 1023, v = exponent == 31 ? (m > 0 ? (double)NAN : HUGE_VAL) : exponent == 0 ? ldexp(m, -24) : ldexp(m + 1024, exponent - 25);
    return bits >> 15 ? -v : v;
}

static double bfloat_value(unsigned bits)
{
    int    exponent = (int)(bits >> 7 & 255);
    double m = bits & 127, v = exponent == 255 ? (m > 0 ? (double)NAN : HUGE_VAL) : exponent == 0 ? ldexp(m, -133) : ldexp(m + 128, exponent - 134);
    return bits >> 15 ? -v : v;
}

/* All 65536 values of both 16-bit floats; they come in more than one piece with the ones before them. */
TEST(sixteen_bit_floats)
{
    static const char header[] = "{\"pad\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                                 "\"f\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[3,131075]},"
                                 "\"b\":{\"dtype\":\"BF16\",\"shape\":[65536],\"data_offsets\":[131075,262147]}}";
    static unsigned char file[8 + sizeof header - 1 + 262147];
    static double v[65536];
    size_t n = sizeof header - 1;
    tn_ctx *ctx = ctx_of(TN_F32);
    bytes head = safetensors_of(header, NULL, 3);
    memcpy(file, head.p, head.n);
    for (size_t i = 0; i < 2 * 65536; i++) {
        file[8 + n + 3 + 2 * i] = (unsigned char)i;
        file[8 + n + 4 + 2 * i] = (unsigned char)(i >> 8);
    }
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_memory(file, sizeof file));
    REQUIRE(f);
    for (int kind = 0; kind < 2; kind++) {
        tn_tensor *t = tn_safetensors_read(f, kind ? "b" : "f");
        CHECK_STATUS(tn_read(t, TN_F64, v, 65536), TN_OK);
        for (unsigned i = 0; i < 65536; i++) {
            double expected = kind ? bfloat_value(i) : half_value(i);
            CHECK(expected != expected ? v[i] != v[i] : v[i] == expected && negative(v[i]) == negative(expected));
        }
    }
    tn_ctx_destroy(ctx);
}

/* The last value of each integer dtype is the largest or smallest it has; in I32 or refused. */
TEST(integers)
{
    static const struct { const char *dtype; int width; uint64_t bits; double value; bool fits; } row[] = {
        {"I8", 1, 0x80, -128, true},                      {"I8", 1, 0xFF, -1, true},              {"U8", 1, 0xFF, 255, true},
        {"I16", 2, 0x8000, -32768, true},                 {"U16", 2, 0xFFFF, 65535, true},        {"I16", 2, 0x7FFF, 32767, true},
        {"I32", 4, 0x80000000u, -2147483648.0, true},     {"I32", 4, 0x7FFFFFFF, 2147483647, true},
        {"U32", 4, 0x7FFFFFFF, 2147483647, true},         {"U32", 4, 0x80000000u, 0, false},
        {"I64", 8, 0x7FFFFFFF, 2147483647, true},         {"I64", 8, 0x80000000u, 0, false},
        {"I64", 8, 0xFFFFFFFF80000000u, -2147483648.0, true}, {"I64", 8, 0xFFFFFFFF7FFFFFFFu, 0, false},
        {"I64", 8, 0x8000000000000000u, 0, false},        {"U64", 8, 0xFFFFFFFFFFFFFFFFu, 0, false},
        {"U64", 8, 7, 7, true},                           {"BOOL", 1, 1, 1, true},                {"BOOL", 1, 2, 0, false}
    };
    tn_ctx *ctx = ctx_of(TN_F32);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char  header[128];
        double expected[2] = {0, 0};
        expected[1] = row[i].value;
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%d]}}", row[i].dtype, 2 * row[i].width);
        bytes b = safetensors_of(header, NULL, (size_t)row[i].width);
        add_word(&b, row[i].bits, row[i].width, false);
        tn_safetensors *f = tn_safetensors_open(ctx, tn_source_memory(b.p, b.n));
        tn_tensor *t = tn_safetensors_read(f, "a");
        if (row[i].fits) check_values(t, TN_I32, 2, expected);
        else CHECK_ERROR(ctx, TN_ERR_DATA, row[i].width == 1 ? "2 does not fit a truth value" : "does not fit I32");
        CHECK_CTX(ctx);
    }
    tn_ctx_destroy(ctx);
}

TEST(raw_bytes)
{
    static const char header[] = "{\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                 "\"p\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[4,7]}}";
    unsigned char got[4];
    tn_ctx *ctx = ctx_of(TN_F32);
    bytes b = safetensors_of(header, "\1\2\3\4\5\6\7", 7);
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_memory(b.p, b.n));
    CHECK_STR(tn_safetensors_find(f, "q")->dtype, "F8_E4M3");
    CHECK_STATUS(tn_safetensors_read_bytes(f, "p", got, 3), TN_OK);
    CHECK(memcmp(got, "\5\6\7", 3) == 0);
    REFUSED(ctx, tn_safetensors_read(f, "q"), TN_ERR_DTYPE, "tensor \"q\": dtype is F8_E4M3, for tn_safetensors_read_bytes only");
    FAILS(ctx, tn_safetensors_read_bytes(f, "p", got, 4), TN_ERR_ARG, "\"p\": bytes is 4, expected 3");
    FAILS(ctx, tn_safetensors_read_bytes(f, "q", NULL, 4), TN_ERR_ARG, "NULL");
    tn_ctx_destroy(ctx);
}

/* ---- damage ------------------------------------------------------------------- */

static const char good_header[] = "{\"__metadata__\":{\"k\":\"v\\u00e9\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                                  "\"a\\n\":{\"shape\":[3],\"data_offsets\":[8,14],\"dtype\":\"I16\"}} ";

/* Cut at every byte, one byte too many, and every byte of the header in turn replaced by every other. */
static void damage(format f, const bytes *good, size_t header_end)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    bytes   b = *good;
    int     accepted = 0;
    CHECK(reads_bytes(ctx, f, b.p, b.n));
    CHECK_CTX(ctx);
    for (size_t n = 0; n < b.n; n++) {
        CHECK(!reads_bytes(ctx, f, b.p, n));
        tn_ctx_clear_error(ctx);
    }
    add(&b, "", 1);
    CHECK(!reads_bytes(ctx, f, b.p, b.n));
    tn_ctx_clear_error(ctx);
    for (size_t i = 0; i < header_end; i++)
        for (int change = 1; change < 256; change++) {
            b = *good;
            b.p[i] = (unsigned char)(b.p[i] ^ change);
            accepted += reads_bytes(ctx, f, b.p, b.n);
            CHECK(tn_ctx_status(ctx) == TN_OK || strstr(tn_ctx_error(ctx), ": byte "));
            tn_ctx_clear_error(ctx);
        }
    printf("%d of %d changed headers are still good ones\n", accepted, (int)header_end * 255);
    CHECK(accepted < (int)header_end * 255 / 20);
    tn_ctx_destroy(ctx);
}

TEST(damaged_safetensors)
{
    bytes b = safetensors_of(good_header, NULL, 14);
    damage(SAFETENSORS, &b, b.n - 14);
}

TEST(damaged_npy)
{
    bytes b = npy_of(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", NULL, 24);
    damage(NPY, &b, b.n - 24);
}

TEST(damaged_idx)
{
    static const int shape[] = {2, 3};
    bytes b = idx_of(8, 2, shape, "\1\2\3\4\5\6", 6);
    damage(IDX, &b, b.n - 6);
}

#define ONE(rest) "{\"a\":{" rest "}}"
#define F32(rest) ONE("\"dtype\":\"F32\"," rest)
#define TWO(name, shape, offsets) \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}," \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

TEST(hostile_safetensors)
{
    static const struct { const char *header; size_t data; const char *part; } row[] = {
        {"", 0, "byte 8: unexpected end of file, expected '{' at the beginning of the header"},
        {" {}", 0, "unexpected character, expected '{' at the beginning"},
        {"{", 0, "byte 9: unexpected end of file, expected a string"},
        {"{", 4, "byte 9: unexpected end of header, expected a string"},
        {"{}x", 0, "byte 10: unexpected character, expected the end of the header"},
        {"{},", 0, "unexpected character, expected the end of the header"},
        {"{\"a\":{}}", 0, "unexpected character, expected a string"},
        {"{\"a\":1}", 0, "unexpected character, expected '{'"},
        {"{\"a\" 1}", 0, "unexpected character, expected ':'"},
        {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "unexpected character, expected a string"},
        {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, "duplicate key \"a\""},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate key __metadata__"},
        {"{\"__metadata__\":null}", 0, "unexpected character, expected '{'"},
        {F32("\"shape\":[1],\"data_offsets\":[0,4]") ",", 4, "unexpected character, expected the end of the header"},
        {TWO("\\u0061", "[1]", "[4,8]"), 8, "duplicate key \"a\""},
        {TWO("b", "[1]", "[0,4]"), 4, "its data overlap those of another tensor"},
        {TWO("b", "[0]", "[2,2]"), 4, "its data overlap those of another tensor"},
        {TWO("b", "[1]", "[5,9]"), 9, "a gap of 1 bytes before the data of tensor \"b\""},
        {F32("\"shape\":[1],\"data_offsets\":[4,8]"), 8, "a gap of 4 bytes before the data of tensor \"a\""},
        {F32("\"shape\":[1],\"data_offsets\":[0,4]"), 5, "1 unused bytes after the last tensor"},
        {F32("\"shape\":[1],\"data_offsets\":[0,4],\"x\":1"), 4, "unknown key, expected "},
        {F32("\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]"), 4, "duplicate key"},
        {F32("\"shape\":[1]"), 0, "missing key data_offsets"},
        {F32("\"shape\":[01],\"data_offsets\":[0,4]"), 4, "leading zero"},
        {F32("\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "unexpected character, expected ','"},
        {F32("\"shape\":[1e0],\"data_offsets\":[0,4]"), 4, "unexpected character, expected ','"},
        {F32("\"shape\":[+1],\"data_offsets\":[0,4]"), 4, "unexpected character, expected a non-negative integer"},
        {F32("\"shape\":[1,],\"data_offsets\":[0,4]"), 4, "comma before"},
        {F32("\"shape\":[,1],\"data_offsets\":[0,4]"), 4, "unexpected character, expected a non-negative integer"},
        {F32("\"shape\":[[1]],\"data_offsets\":[0,4]"), 4, "unexpected character, expected a non-negative integer"},
        {F32("\"shape\":[1,1,1,1,1,1,1,1,9223372036854775808],\"data_offsets\":[0,4]"), 4, "more than 63 bits"},
        {F32("\"shape\":[1,1,1,1,1,1,1,4294967296,4294967296],\"data_offsets\":[0,0]"), 0, "address space"},
        {F32("\"shape\":[9223372036854775808],\"data_offsets\":[0,4]"), 4, "more than 63 bits"},
        {F32("\"shape\":[18446744073709551616],\"data_offsets\":[0,4]"), 4, "more than 64 bits"},
        {F32("\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0, "address space"},
        {F32("\"shape\":[0,4611686018427387904,4],\"data_offsets\":[0,0]"), 0, "address space"},
        {F32("\"shape\":[4611686018427387905],\"data_offsets\":[0,4]"), 4, "address space"},
        {F32("\"shape\":[1],\"data_offsets\":[0,18446744073709551615]"), 4, "past the end"},
        {F32("\"shape\":[1],\"data_offsets\":[18446744073709551612,0]"), 4, "before they begin"},
        {F32("\"shape\":[1],\"data_offsets\":[0,5]"), 5, "data_offsets give 5 bytes, expected 4 for its shape and dtype"},
        {ONE("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "unknown dtype"},
        {ONE("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, "inside a byte"},
        {ONE("\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "unexpected character, expected a string"}
    };
    tn_ctx *ctx = ctx_of(TN_F32);
    bytes   b;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        b = safetensors_of(row[i].header, NULL, row[i].data);
        refuses(ctx, SAFETENSORS, &b, TN_ERR_FORMAT, row[i].part);
    }
    b.n = 0;
    refuses(ctx, SAFETENSORS, &b, TN_ERR_FORMAT, "memory: byte 0: unexpected end of file: expected 8 bytes here, there are 0");
    REFUSED(ctx, reads(ctx, SAFETENSORS, tn_source_memory(NULL, 100)), TN_ERR_ARG, "data is NULL, expected 100 bytes");
    b.n = 0;
    add_word(&b, 100000001, 8, false);
    CHECK(!tn_safetensors_open(ctx, tn_source_calls(vast_fetch, &b, 200000000)));
    CHECK_ERROR(ctx, TN_ERR_FORMAT, "callback: byte 8: the header has 100000001 bytes, expected at most 100000000");
    tn_ctx_destroy(ctx);
}

/* What people give in the place of a file is named, by every reader. */
TEST(other_formats)
{
    #define BEGINS(text) text, sizeof text - 1
    static const struct { const char *begin; size_t bytes; const char *is; } row[] = {
        {BEGINS("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 497774208\n"), "a Git LFS pointer, not the file"},
        {BEGINS("<!DOCTYPE html><html>"), "an HTML page"}, {BEGINS("<!doctype html>"), "an HTML page"}, {BEGINS("<html><head>"), "an HTML page"},
        {BEGINS("<HTML>"), "an HTML page"}, {BEGINS("\xEF\xBB\xBF\n <!DocType html>"), "an HTML page"}, {BEGINS("<?xml version="), "an XML page"},
        {BEGINS("Entry not found"), "a server that had no such file"}, {BEGINS("Access to model a/b is restricted"), "request access"},
        {BEGINS("PK\3\4\x14\0\0\0\0\0"), "a zip archive, expected what it holds"},
        {BEGINS("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0E\0\0\0model/data.pkl"),
         "a zip archive of torch.save: in Python, safetensors.torch.save_file(torch.load("},
        {BEGINS("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0x.npy"), "a zip archive of numpy.savez"},
        {BEGINS("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0x.txt"), "a zip archive, expected what it holds"},
        {BEGINS("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xFF\xFF\0\0x.npy"), "a zip archive, expected what it holds"},
        {BEGINS("\xFD" "7zXZ\0"), "unxz"}, {BEGINS("\x28\xB5\x2F\xFD"), "unzstd"}, {BEGINS("BZh91AY"), "bunzip2"},
        {BEGINS("\x80\2\x8A\x0Al\xFC\x9C"), "a Python pickle"},
        {BEGINS("\x80\4\x95\x10\0\0\0\0\0\0\0"), "a Python pickle"}, {BEGINS("GGUF\3\0\0\0\0\0\0\0"), "a GGUF file"},
        {BEGINS("\x89HDF\r\n\x1A\n"), "an HDF5 file"}, {BEGINS("\x1F\x8B\x08\0\0\0\0\0\0\3"), "compressed, expected the result of gunzip"}
    };
    tn_ctx             *ctx = ctx_of(TN_F32);
    tn_transformer_desc desc;
    unsigned char       zeros[2048];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        memset(zeros, 0, sizeof zeros);
        memcpy(zeros, row[i].begin, row[i].bytes);
        tn_source source = tn_source_memory(zeros, sizeof zeros);
        for (int f = 0; f < 6; f++) {
            if (f < 3) CHECK(!reads(ctx, (format)f, source));
            else if (f == 3) CHECK(!tn_tokenizer_read(ctx, source));
            else if (f == 4) CHECK(!tn_shard_open(ctx, source, 9));
            else CHECK(tn_transformer_config_read(ctx, source, &desc) != TN_OK);
            CHECK_ERROR(ctx, TN_ERR_FORMAT, row[i].is);
        }
    }
    CHECK(!tn_foreign_format("", 0) && !tn_foreign_format("{\"a\":1}", 7) && !tn_foreign_format("<htm", 4));
    /* Cut off anywhere, nothing beyond the end is read (the sanitizers look on), and what is named has no other name. */
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (size_t n = 0; n <= row[i].bytes; n++) {
            char *copy = (char *)malloc(n ? n : 1);
            REQUIRE(copy);
            memcpy(copy, row[i].begin, n);
            const char *is = tn_foreign_format(copy, n);
            CHECK(!is || strstr(is, row[i].is) || strstr(is, "a zip archive, expected what it holds"));
            free(copy);
        }
    /* Damaged safetensors files whose length has the first bytes of gzip's and of pickle's are what they are. */
    for (int k = 0; k < 2; k++) {
        memset(zeros, ' ', sizeof zeros);
        memcpy(zeros, k ? "\x80\2\0\0\0\0\0\0{" : "\x1F\x8B\x08\0\0\0\0\0{", 9);
        CHECK(!reads(ctx, SAFETENSORS, tn_source_memory(zeros, sizeof zeros)));
        CHECK_ERROR(ctx, TN_ERR_FORMAT, k ? "expected a string" : "the header has 559903 bytes, but the file only 2048");
    }
    tn_ctx_destroy(ctx);
}

TEST(json_places)
{
    static const struct { const char *json, *place; } row[] = {
        {"", "byte 0: unexpected end of file, expected a value (line 1, column 1)"},
        {"{\n  \"n_layer\": 1,\n}", "byte 18: unexpected character, expected a string (line 3, column 1)"},
        {"{\"\\n\\n\": 1,\r\n \"\u00e9\u00e9\": x}", "unexpected character, expected a value (line 2, column 8)"},
        {"{\n\n\"n_layer\": 0}", "n_layer is 0, expected an integer from 1 to 2147483646 (line 3, column 12)"}
    };
    tn_ctx             *ctx = ctx_of(TN_F32);
    tn_transformer_desc desc;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        CHECK(tn_transformer_config_read(ctx, tn_source_memory(row[i].json, strlen(row[i].json)), &desc) != TN_OK);
        CHECK_ERROR(ctx, TN_ERR_FORMAT, row[i].place);
    }
    tn_ctx_destroy(ctx);
}

/* Numbers of more axes than a tensor has can be read in a row; the other tensors of the file are as they would be without. */
TEST(nine_axes)
{
    static const float  numbers[6] = {1, 2, 3, 4, 5, 6};
    static const double first[4] = {1, 2, 3, 4}, last[2] = {5, 6};
    const bytes b = safetensors_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,2,1,1,1,1,2,1],\"data_offsets\":[0,16]},"
                                   "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[16,24]}}", numbers, 24);
    const bytes n[2] = {npy_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2, 1, 1, 1, 1, 2, 1)}", numbers, 16),
                        npy_of(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1, 2, 1, 1, 1, 1, 2, 1)}", numbers, 16)};
    tn_ctx         *ctx = ctx_of(TN_F64);
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_memory(b.p, b.n));
    const tn_safetensors_entry *e = tn_safetensors_find(f, "a");
    REQUIRE(f && e);
    CHECK(e->axes == 9 && e->rank == 1 && e->shape[0] == 4 && tn_safetensors_find(f, "b")->axes == 1);
    CHECK(!tn_safetensors_read(f, "a"));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tensor \"a\" has 9 axes, expected at most 8: tn_safetensors_read_flat reads its numbers");
    check_values(tn_safetensors_read_flat(f, "a"), TN_F64, 4, first);
    check_values(tn_safetensors_read_flat(f, "b"), TN_F64, 2, last);
    REFUSED(ctx, tn_safetensors_read_flat(f, "c"), TN_ERR_ARG, "there is no tensor \"c\"");
    CHECK(!read_npy(ctx, &n[0]));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "the array has 9 axes, expected at most 8: tn_npy_read_flat reads its numbers");
    check_values(tn_npy_read_flat(ctx, tn_source_memory(n[0].p, n[0].n)), TN_F64, 4, first);
    CHECK(!tn_npy_read_flat(ctx, tn_source_memory(n[1].p, n[1].n)));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "the array has 9 axes in Fortran's order, expected at most 8");
    tn_ctx_destroy(ctx);
}

/* safetensors' save_model writes a tensor of two names once, and notes the other name. */
TEST(other_names)
{
    static const float numbers[2] = {1, 2};
    static const double same[1] = {1};
    const bytes b = safetensors_of("{\"__metadata__\":{\"x\":\"a\",\"y\":\"x\",\"b\":\"a\"},"
                                   "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                                   "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", numbers, 8);
    tn_ctx         *ctx = ctx_of(TN_F32);
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_memory(b.p, b.n));
    REQUIRE(f);
    CHECK(tn_safetensors_find(f, "x") == tn_safetensors_find(f, "a") && tn_safetensors_find(f, "x"));
    CHECK(!tn_safetensors_find(f, "y"));                     /* the name of no tensor */
    CHECK(tn_safetensors_find(f, "b") != tn_safetensors_find(f, "a"));
    check_values(tn_safetensors_read(f, "x"), TN_F32, 1, same);
    CHECK(tn_safetensors_equal(f, "a", "x") && !tn_safetensors_equal(f, "a", "b"));
    CHECK_CTX(ctx);
    REFUSED(ctx, tn_safetensors_equal(f, "a", "y"), TN_ERR_ARG, "there is no tensor \"y\"");
    tn_ctx_destroy(ctx);
}

TEST(json_strings)
{
    static const struct { const char *json, *name; } good[] = {
        {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"}, {"\\u00e9\\u20AC", "\xC3\xA9\xE2\x82\xAC"}, {"\\ud83d\\udE00", "\xF0\x9F\x98\x80"},
        {"\xED\x9F\xBF\xEE\x80\x80", "\xED\x9F\xBF\xEE\x80\x80"}, {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"}, {"\xC2\x80\x7F", "\xC2\x80\x7F"}, {"", ""}
    };
    static const char *const bad[] = {
        "\\u0000", "\\u12g4", "\\u12", "\\x41", "\\", "\\ud800", "\\ud800x", "\\ud800\\n", "\\ud800\\u0041", "\\udc00", "\\uDBFF\\uD800",
        "\n", "\x01", "\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82"
    };
    char    header[256];
    tn_ctx *ctx = ctx_of(TN_F32);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", good[i].json);
        bytes b = safetensors_of(header, NULL, 0);
        tn_safetensors *f = tn_safetensors_open(ctx, tn_source_memory(b.p, b.n));
        if (CHECK(f)) CHECK_STR(tn_safetensors_at(f, 0)->name, good[i].name);
        tn_safetensors_close(f);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", bad[i]);
        bytes b = safetensors_of(header, NULL, 0);
        refuses(ctx, SAFETENSORS, &b, TN_ERR_FORMAT, "memory: byte ");
    }
    tn_ctx_destroy(ctx);
}

#define NPY(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}\n"

TEST(hostile_npy)
{
    static const struct { int version; const char *header; size_t data; tn_status status; const char *part; } row[] = {
        {1, NPY("'|O'", "False", "()"), 8, TN_ERR_DTYPE, "dtype is \"|O\", expected a number"},
        {1, NPY("'<c8'", "False", "()"), 8, TN_ERR_DTYPE, "dtype is \"<c8\", expected a number"},
        {1, NPY("'=f4'", "False", "()"), 4, TN_ERR_DTYPE, "\"=f4\""},
        {1, NPY("'|f4'", "False", "()"), 4, TN_ERR_DTYPE, "\"|f4\""},
        {1, NPY("'<f1'", "False", "()"), 1, TN_ERR_DTYPE, "\"<f1\""},
        {1, NPY("'<b4'", "False", "()"), 4, TN_ERR_DTYPE, "\"<b4\""},
        {1, NPY("'<i3'", "False", "()"), 3, TN_ERR_DTYPE, "\"<i3\""},
        {1, NPY("'<f16'", "False", "()"), 16, TN_ERR_DTYPE, "\"<f16\""},
        {1, NPY("[('a', '<f4')]", "False", "()"), 4, TN_ERR_DTYPE, "structured"},
        {1, NPY("'<f4'", "Maybe", "()"), 4, TN_ERR_FORMAT, "True or False"},
        {1, NPY("'<f4'", "Falsey", "()"), 4, TN_ERR_FORMAT, "unexpected character, expected '}'"},
        {1, NPY("'<f4'", "False", "(1)"), 4, TN_ERR_FORMAT, "expected ',' in a tuple of one"},
        {1, NPY("'<f4'", "False", "(,)"), 4, TN_ERR_FORMAT, "unexpected character, expected a non-negative integer"},
        {1, NPY("'<f4'", "False", "(1,,)"), 4, TN_ERR_FORMAT, "unexpected character, expected a non-negative integer"},
        {1, NPY("'<f4'", "False", "(-1,)"), 4, TN_ERR_FORMAT, "unexpected character, expected a non-negative integer"},
        {1, NPY("'<f4'", "False", "[1]"), 4, TN_ERR_FORMAT, "unexpected character, expected '('"},
        {1, NPY("'<f4'", "False", "(1,)") "x", 4, TN_ERR_FORMAT, "unexpected character, expected the end of the header"},
        {1, NPY("'<f4'", "False", "(0, 9223372036854775807, 9223372036854775807)"), 0, TN_ERR_FORMAT, "address space"},
        {1, NPY("'<f4'", "False", "(), 'shape': ()"), 4, TN_ERR_FORMAT, "duplicate key"},
        {1, NPY("'<f4'", "False", "(), 'x': ()"), 4, TN_ERR_FORMAT, "unknown key, expected "},
        {1, NPY("'<f4'", "False", "(2,)"), 4, TN_ERR_FORMAT, "4 bytes follow, expected 8 for shape [2]"},
        {1, NPY("'<f4'", "False", "(1,)"), 5, TN_ERR_FORMAT, "5 bytes follow, expected 4 for shape [1]"},
        {1, "{'descr': '<f4", 4, TN_ERR_FORMAT, "unterminated string"},
        {1, NPY("'|b1'", "False", "(1,)") " ", 0, TN_ERR_FORMAT, "0 bytes follow, expected 1"},
        {0, NPY("'<f4'", "False", "(1,)"), 4, TN_ERR_FORMAT, "npy version is 0.0, expected 1.0 to 3.0"},
        {4, NPY("'<f4'", "False", "(1,)"), 4, TN_ERR_FORMAT, "npy version is 4.0, expected 1.0 to 3.0"}
    };
    tn_ctx *ctx = ctx_of(TN_F32);
    bytes   b;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        b = npy_of(row[i].version, row[i].header, NULL, row[i].data);
        refuses(ctx, NPY, &b, row[i].status, row[i].part);
    }
    b.n = 0;
    add(&b, "\x93NUMPY\2\0\xFF\xFF\xFF\xFF{", 13);
    refuses(ctx, NPY, &b, TN_ERR_FORMAT, "memory: byte 12: the header has 4294967295 bytes, but the file only 13");
    b = npy_of(1, NPY("'|b1'", "False", "(2,)"), "\1\2", 2);
    refuses(ctx, NPY, &b, TN_ERR_DATA, "2 does not fit a truth value");
    tn_ctx_destroy(ctx);
}

/* ---- npy and idx that are good --------------------------------------------------- */

TEST(npy_orders)
{
    static const double v[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
    static const double first[] = {-2}, wide[] = {258, -2};
    unsigned char columns[24];
    tn_ctx *ctx = ctx_of(TN_F32);
    bytes   b = npy_of(1, "{\"shape\":(2L,),\"descr\":\">i8\",\"fortran_order\":False}", "\0\0\0\0\0\0\1\2\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFE", 16);
    check_values(read_npy(ctx, &b), TN_I32, 2, wide);
    b = npy_of(2, NPY("'>f2'", "True", "()"), "\xC0\0", 2);
    check_values(read_npy(ctx, &b), TN_F32, 1, first);
    b = npy_of(3, NPY("'>f4'", "False", "(1,)"), "\xC0\0\0\0", 4);
    check_values(read_npy(ctx, &b), TN_F32, 1, first);
    b = npy_of(3, NPY("'>f8'", "True", "(1, 1)"), "\xC0\0\0\0\0\0\0\0", 8);
    check_values(read_npy(ctx, &b), TN_F32, 1, first);
    for (int e = 0; e < 24; e++) columns[e / 12 + 2 * (e / 4 % 3) + 6 * (e % 4)] = (unsigned char)e;
    b = npy_of(1, NPY("'|u1'", "True", "(2, 3, 4)"), columns, 24);
    tn_tensor *t = read_npy(ctx, &b);
    REQUIRE(t);
    CHECK(t->shape[0] == 2 && t->shape[1] == 3 && t->shape[2] == 4 && tn_tensor_is_contiguous(t));
    check_values(t, TN_I32, 24, v);
    b = npy_of(1, NPY("'|i1'", "True", "(5, 0, 3)"), NULL, 0);
    t = read_npy(ctx, &b);
    CHECK(t && t->shape[0] == 5 && t->shape[1] == 0 && t->shape[2] == 3);
    CLOSE_CTX(ctx);
}

TEST(idx_files)
{
    static const int three[] = {3}, image[] = {2, 1, 2}, huge[] = {0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 1, 1, 1, 1, 1, 1};
    static const double labels[] = {0, 9, 255}, pixels[] = {0, 1, 51 / 255.0, 102 / 255.0}, shorts[] = {-1, 256, 2}, singles[] = {1, -2, 0.5};
    tn_ctx *ctx = ctx_of(TN_F64);
    bytes   b = idx_of(8, 1, three, "\0\x09\xFF", 3);
    check_values(read_idx(ctx, &b, 0), TN_I32, 3, labels);
    check_values(read_idx(ctx, &b, 1), TN_F64, 3, labels);
    b = idx_of(8, 3, image, "\0\xFF\x33\x66", 4);
    tn_tensor *t = read_idx(ctx, &b, 1 / 255.0);
    CHECK(t && t->rank == 3 && t->shape[0] == 2 && t->shape[1] == 1 && t->shape[2] == 2);
    check_values(t, TN_F64, 4, pixels);
    b = idx_of(0x0B, 1, three, "\xFF\xFF\1\0\0\2", 6);
    check_values(read_idx(ctx, &b, 0), TN_I32, 3, shorts);
    b = idx_of(0x0D, 1, three, "\x3F\x80\0\0\xC0\0\0\0\x3F\0\0\0", 12);
    check_values(read_idx(ctx, &b, 0), TN_F64, 3, singles);
    b = idx_of(0x0A, 1, three, "\1\2\3", 3);
    refuses(ctx, IDX, &b, TN_ERR_FORMAT, "byte 2: idx type 10 is unknown");
    b = idx_of(8, 9, huge, "", 0);
    refuses(ctx, IDX, &b, TN_ERR_FORMAT, "byte 3: the file has 9 axes");
    b = idx_of(0x0E, 3, huge, "", 0);
    refuses(ctx, IDX, &b, TN_ERR_FORMAT, "is larger than the address space");
    b = idx_of(0x1F8B0800, 0, NULL, "", 0);
    b.p[0] = 0x1F; b.p[1] = 0x8B; b.p[2] = 8;
    refuses(ctx, IDX, &b, TN_ERR_FORMAT, "gunzip");
    tn_ctx_destroy(ctx);
}

/* ---- round trips ------------------------------------------------------------------ */

typedef struct growing { unsigned char *p; size_t n, pieces, fail_at; } growing;

static bool grow(void *user, const void *src, size_t n)
{
    growing *g = (growing *)user;
    if (++g->pieces == g->fail_at) return false;
    unsigned char *p = (unsigned char *)realloc(g->p, g->n + n);
    if (!p) return false;
    memcpy(p + g->n, src, n);
    g->p = p;
    g->n += n;
    return true;
}

static const char *const odd_names[] = {
    "", "quote \" and \\", "blocks.0.w", "\xE2\x82\xAC \xF0\x9F\x98\x80", "line\nbreak\x01\x1F\x7F", "__metadata", "{}:,[]"
};
enum { ODD_NAMES = sizeof odd_names / sizeof *odd_names };

/* Shapes of rank 0 to 4, empty ones among them, names of every kind, all dtypes. */
TEST(safetensors_round_trip)
{
    uint64_t state = 1;
    for (int trial = 0; trial < 40; trial++) {
        tn_ctx *ctx = ctx_of(trial % 2 ? TN_F64 : TN_F32);
        tn_dtype real = tn_ctx_dtype(ctx);
        tn_named_tensor named[ODD_NAMES];
        tn_metadata  notes[2] = {{"a", "plain"}, {"\"", "\n\\\xC3\xA9"}};
        growing  g = {NULL, 0, 0, 0};
        for (int i = 0; i < ODD_NAMES; i++) {
            int64_t  shape[4];
            int      rank = (int)test_random_int(&state, 0, 4);
            tn_dtype dtype = test_random_int(&state, 0, 2) ? real : test_random_int(&state, 0, 1) ? TN_BF16 : TN_I32;
            for (int k = 0; k < rank; k++) shape[k] = test_random_int(&state, 0, 5);
            named[i].name = odd_names[i];
            named[i].tensor = make_random(ctx, &state, dtype, rank, shape);
        }
        CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_calls(grow, &g), named, ODD_NAMES, notes, trial % 3), TN_OK);
        tn_safetensors *f = tn_safetensors_open(ctx, tn_source_memory(g.p, g.n));
        CHECK_CTX(ctx);
        REQUIRE(f);
        CHECK_INT(tn_safetensors_count(f), ODD_NAMES);
        CHECK_STR(tn_safetensors_metadata(f, "\""), trial % 3 == 2 ? "\n\\\xC3\xA9" : NULL);
        for (int i = 0; i < ODD_NAMES; i++) {
            const tn_safetensors_entry *e = tn_safetensors_find(f, odd_names[i]);
            if (!CHECK(e)) continue;
            CHECK(e->bytes == 0 || e->offset % (e->bytes / (uint64_t)tn_tensor_count(named[i].tensor)) == 0);
            same(named[i].tensor, tn_safetensors_read(f, odd_names[i]));
        }
        free(g.p);
        tn_ctx_destroy(ctx);
    }
}

/* More than one piece in flight; a view with strides; the whole way over a path. */
TEST(large_and_strided)
{
    static const int64_t shape[] = {3, 70001};
    uint64_t state = 2;
    char     path[TEST_PATH], other[TEST_PATH];
    tn_ctx  *ctx = ctx_of(TN_F32);
    tn_named_tensor named[2];
    tn_tensor *t = make_random(ctx, &state, TN_F32, 2, shape);
    scratch(path, "large.safetensors");
    scratch(other, "large.npy");
    named[0].name = "rows";
    named[0].tensor = t;
    named[1].name = "columns";
    named[1].tensor = tn_slice_step(tn_transpose(t, 0, 1), 0, 70000, -1, -2);
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_path(path), named, 2, NULL, 0), TN_OK);
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_path(path));
    same(t, tn_safetensors_read(f, "rows"));
    same(named[1].tensor, tn_safetensors_read(f, "columns"));
    tn_safetensors_close(f);
    CHECK_STATUS(tn_npy_save(named[1].tensor, other), TN_OK);
    same(named[1].tensor, tn_npy_load(ctx, other));
    tn_tensor *half = tn_cast(ctx, t, TN_BF16);
    CHECK_STATUS(tn_npy_save(half, other), TN_OK);
    same(half, tn_npy_load(ctx, other));
    CHECK_CTX(ctx);
    remove(path);
    remove(other);
    tn_ctx_destroy(ctx);
}

TEST(npy_round_trip)
{
    static const char head[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }          "
                               "                                                  \n";
    uint64_t state = 3;
    for (int trial = 0; trial < 40; trial++) {
        tn_ctx  *ctx = ctx_of(trial % 2 ? TN_F64 : TN_F32);
        int64_t  shape[TN_MAX_RANK];
        int      rank = trial % 9;
        unsigned char file[4096];
        size_t   n;
        for (int k = 0; k < rank; k++) shape[k] = test_random_int(&state, trial % 5 == 0 ? 0 : 1, 2);
        tn_tensor *t = make_random(ctx, &state, trial % 3 ? TN_REAL : TN_I32, rank, shape);
        CHECK_STATUS(tn_npy_write(t, tn_sink_memory(file, sizeof file, &n)), TN_OK);
        CHECK_INT((n - (t->dtype == TN_F64 ? 8u : 4u) * (size_t)tn_tensor_count(t)) % 64, 0);
        same(t, tn_npy_read(ctx, tn_source_memory(file, n)));
        if (trial == 0) {
            static const int64_t two[] = {2};
            bytes b = npy_of(1, head, NULL, 8);
            CHECK_STATUS(tn_npy_write(tn_tensor_create(ctx, TN_I32, 1, two), tn_sink_memory(file, sizeof file, &n)), TN_OK);
            CHECK(n == b.n && memcmp(file, b.p, n) == 0);
        }
        CLOSE_CTX(ctx);
    }
}

TEST(bad_writes)
{
    static const int64_t two[] = {2};
    tn_ctx  *ctx = ctx_of(TN_F32), *other = ctx_of(TN_F32);
    tn_named_tensor named[2];
    tn_metadata  note[1] = {{"k", "\xFF"}};
    char     room[64];
    size_t   used = 0, need;
    named[0].name = named[1].name = "w";
    named[0].tensor = named[1].tensor = tn_tensor_create(ctx, TN_F32, 1, two);
    FAILS(ctx, tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, 2, NULL, 0), TN_ERR_ARG, "\"w\" occurs twice");
    named[1].name = NULL;
    tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, 2, NULL, 0);
    CHECK_ERROR(ctx, TN_ERR_ARG, "a name is NULL");
    named[1].name = "\xC0\x80";
    tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, 2, NULL, 0);
    CHECK_ERROR(ctx, TN_ERR_ARG, "a name is invalid UTF-8");
    named[1].name = "__metadata__";
    tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, 2, NULL, 0);
    CHECK_ERROR(ctx, TN_ERR_ARG, "__metadata__");
    named[1].name = "v";
    tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, 2, note, 1);
    CHECK_ERROR(ctx, TN_ERR_ARG, "a metadata value is invalid UTF-8");
    named[1].tensor = NULL;
    tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, 2, NULL, 0);
    CHECK_ERROR(ctx, TN_ERR_ARG, "v is NULL");
    named[1].tensor = tn_tensor_create(other, TN_F32, 1, two);
    tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, 2, NULL, 0);
    CHECK_ERROR(ctx, TN_ERR_ARG, "another context");
    tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, -1, NULL, 0);
    CHECK_ERROR(ctx, TN_ERR_ARG, "safetensors: -1 tensors at an address, expected a list of 0 or more");
    CHECK_STATUS(tn_safetensors_write(NULL, tn_sink_memory(NULL, 0, &need), named, 1, NULL, 0), TN_ERR_ARG);

    /* measured, too small, and none at all */
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_memory(NULL, 0, &need), named, 1, NULL, 0), TN_OK);
    CHECK_INT(need, 8 + 56 + 8);
    memset(room, '~', sizeof room);
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_memory(room, 60, &used), named, 1, NULL, 0), TN_ERR_FILE);
    CHECK_ERROR(ctx, TN_ERR_FILE, "the file is larger than the memory: ");
    CHECK_INT(used, need);
    CHECK(room[59] != '~' && room[60] == '~');
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_memory(room, sizeof room, &used), NULL, 0, NULL, 0), TN_OK);
    CHECK(used == 16 && memcmp(room, "\x08\0\0\0\0\0\0\0{}      ", 16) == 0);
    CHECK_STATUS(tn_npy_write(NULL, tn_sink_memory(room, sizeof room, &used)), TN_ERR_ARG);
    CHECK_CTX(ctx);
    tn_ctx_destroy(other);
    tn_ctx_destroy(ctx);
}

/* ---- parameters ---------------------------------------------------------------------- */

static tn_params *make_params(tn_ctx *ctx, int64_t rows)
{
    tn_params *params = tn_params_create(ctx);
    int64_t    w[2] = {0, 4}, b[1] = {3};
    tn_init    init = ZERO;
    init.rule = TN_INIT_NORMAL;
    w[0] = rows;
    CHECK(tn_params_add(params, "blocks.0.w", 2, w, init));
    CHECK(tn_params_add(params, "b", 1, b, init));
    return params;
}

/* All values of all parameters. */
static void values_of(tn_params *params, double v[64])
{
    int64_t at = 0;
    memset(v, 0, 64 * sizeof *v);
    for (int64_t i = 0; i < tn_params_count(params); i++) {
        tn_tensor *t = tn_params_at(params, i)->value;
        CHECK_STATUS(tn_read(t, TN_F64, v + at, tn_tensor_count(t)), TN_OK);
        at += tn_tensor_count(t);
    }
}

static bytes params_bytes(tn_params *params)
{
    bytes b;
    CHECK_STATUS(tn_params_write(params, tn_sink_memory(b.p, sizeof b.p, &b.n), NULL, 0), TN_OK);
    return b;
}

/* This file is not for these parameters: so it says, and nothing has changed. */
static void check_untouched(tn_ctx *ctx, tn_params *params, const bytes *b, tn_status status, const char *part)
{
    double before[64], after[64];
    size_t live = tn_ctx_memory(ctx).live;
    values_of(params, before);
    CHECK_STATUS(tn_params_read(params, tn_source_memory(b->p, b->n), TN_MATCH_ALL), status);
    CHECK_ERROR(ctx, status, part);
    values_of(params, after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    CHECK_INT(tn_ctx_memory(ctx).live, live);
}

TEST(params_round_trip)
{
    char    path[TEST_PATH];
    double  v[64], w[64];
    tn_ctx *ctx = ctx_of(TN_F32), *wide = ctx_of(TN_F64);
    tn_params *a = make_params(ctx, 2), *b = make_params(ctx, 2), *c = make_params(wide, 2);
    tn_metadata note[1] = {{"step", "12"}};
    scratch(path, "params.safetensors");
    CHECK_STATUS(tn_params_save(a, path), TN_OK);
    CHECK_STATUS(tn_params_load(b, path), TN_OK);
    CHECK_STATUS(tn_params_load(c, path), TN_OK);       /* from F32 to F64 */ values_of(a, v);
    values_of(b, w);
    CHECK(memcmp(v, w, sizeof v) == 0);
    values_of(c, w);
    CHECK(memcmp(v, w, sizeof v) == 0);
    CHECK_STATUS(tn_params_write(a, tn_sink_path(path), note, 1), TN_OK);    /* over the old one */
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_path(path));
    CHECK_STR(tn_safetensors_metadata(f, "step"), "12");
    CHECK_STATUS(tn_params_load(NULL, path), TN_ERR_ARG);
    CHECK_STATUS(tn_params_save(NULL, path), TN_ERR_ARG);
    CHECK_CTX(ctx);
    CLOSE_CTX(wide);
    tn_ctx_destroy(ctx);
    remove(path);
}

TEST(params_that_do_not_fit)
{
    static const int64_t three[] = {3};
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *params = make_params(ctx, 2), *other = make_params(ctx, 3);
    tn_init   zero = ZERO;
    bytes     b = params_bytes(other);
    tn_named_tensor  integer[2];
    zero.rule = TN_INIT_ZERO;
    check_untouched(ctx, params, &b, TN_ERR_SHAPE, "memory: tensor \"blocks.0.w\" is [3,4], expected [2,4] as the parameter");
    b = params_bytes(params);
    tn_params_add(params, "extra", 1, three, zero);
    check_untouched(ctx, params, &b, TN_ERR_ARG, "parameter \"extra\" [3] is not in the file");
    b = params_bytes(params);
    tn_params_destroy(other);
    other = make_params(ctx, 2);
    check_untouched(ctx, other, &b, TN_ERR_ARG, "tensor \"extra\" [3] is not a parameter");
    CHECK_STATUS(tn_params_read(other, tn_source_memory(b.p, b.n), TN_MATCH_IGNORE_EXTRA), TN_OK);
    same(tn_params_at(params, 0)->value, tn_params_at(other, 0)->value);
    integer[0].name = "blocks.0.w";
    integer[0].tensor = tn_params_at(other, 0)->value;
    integer[1].name = "b";
    integer[1].tensor = tn_tensor_create(ctx, TN_I32, 1, three);
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_memory(b.p, sizeof b.p, &b.n), integer, 2, NULL, 0), TN_OK);
    check_untouched(ctx, other, &b, TN_ERR_DTYPE, "tensor \"b\": dtype is I32, expected F64, F32, F16 or BF16");
    tn_ctx_destroy(ctx);
}

typedef struct failing { const bytes *b; int left; } failing;

static bool failing_fetch(void *user, uint64_t offset, void *dst, size_t n)
{
    failing *f = (failing *)user;
    if (f->left-- == 0) return false;
    memcpy(dst, f->b->p + offset, n);
    return true;
}

/* A source that gives up at its first, second, ... fetch. */
TEST(failing_source)
{
    double before[64], after[64];
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *params = make_params(ctx, 2);
    bytes   b = params_bytes(params);
    failing f;
    int     calls = 0;
    tn_status s;
    tn_params_destroy(params);
    params = make_params(ctx, 2);       /* other values */
    values_of(params, before);
    do {
        f.b = &b;
        f.left = calls++;
        s = tn_params_read(params, tn_source_calls(failing_fetch, &f, b.n), TN_MATCH_ALL);
        values_of(params, after);
        CHECK((memcmp(before, after, sizeof before) == 0) == (s != TN_OK));
        if (s != TN_OK) CHECK_ERROR(ctx, TN_ERR_FILE, "bytes could not be read");
    } while (s != TN_OK && calls < 20);
    CHECK_INT(calls, 5);                /* length, header, two tensors, and then none */
    tn_ctx_destroy(ctx);
}

/* Each allocation in turn fails: an error, nothing changed, nothing lost. */
TEST(no_memory)
{
    double  before[64], after[64];
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc desc = ZERO;
    tn_ctx *ctx;
    bytes   out;
    tn_status s = TN_ERR_MEMORY;
    desc.allocator = test_heap_allocator(&heap);
    REQUIRE(tn_ctx_create(&desc, &ctx, NULL) == TN_OK);
    tn_params *params = make_params(ctx, 2);
    bytes      b = params_bytes(params);
    tn_params_destroy(params);
    params = make_params(ctx, 2);
    values_of(params, before);
    size_t live = heap.live;
    for (uint64_t k = 1; s != TN_OK && k < 100; k++) {
        heap.fail_at = heap.count + k;
        s = tn_params_read(params, tn_source_memory(b.p, b.n), TN_MATCH_ALL);
        heap.fail_at = 0;
        values_of(params, after);
        CHECK((memcmp(before, after, sizeof before) == 0) == (s != TN_OK));
        CHECK_INT(heap.live, live);
        if (s != TN_OK) CHECK_ERROR(ctx, TN_ERR_MEMORY, "no memory");
    }
    CHECK_STATUS(s, TN_OK);
    s = TN_ERR_MEMORY;
    for (uint64_t k = 1; s != TN_OK && k < 100; k++) {
        heap.fail_at = heap.count + k;
        s = tn_params_write(params, tn_sink_memory(out.p, sizeof out.p, &out.n), NULL, 0);
        heap.fail_at = 0;
        CHECK_INT(heap.live, live);
        if (s != TN_OK) CHECK_ERROR(ctx, TN_ERR_MEMORY, "no memory");
    }
    CHECK(out.n == b.n && memcmp(out.p, b.p, b.n) == 0);
    CLOSE_CTX(ctx);
    CHECK_INT(heap.live, 0);
}

/* ---- paths that fail --------------------------------------------------------------------- */

TEST(paths_that_fail)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *params = make_params(ctx, 2);
    CHECK(!tn_safetensors_open(ctx, tn_source_path("no/such/w.safetensors")));
    CHECK_ERROR(ctx, TN_ERR_FILE, "no/such/w.safetensors: could not be opened: ");
    REFUSED(ctx, tn_npy_load(ctx, "no/such.npy"), TN_ERR_FILE, "no/such.npy: could not be opened: ");
    REFUSED(ctx, tn_idx_load(ctx, NULL, 0), TN_ERR_FILE, "source_path: the path is empty or NULL, expected the name of a file");
    FAILS(ctx, tn_params_load(params, "no/such"), TN_ERR_FILE, "no/such: could not be opened: ");
    CHECK_STATUS(tn_params_save(params, "no/such/w.safetensors"), TN_ERR_FILE);
    CHECK_ERROR(ctx, TN_ERR_FILE, "no/such/w.safetensors: byte 0: its temporary file could not be created: ");
    CHECK_STATUS(tn_npy_save(tn_params_at(params, 0)->value, "no/such/w.npy"), TN_ERR_FILE);
    CHECK_ERROR(ctx, TN_ERR_FILE, "no/such/w.npy: byte 0: its temporary file could not be created: ");
    CHECK(!tn_npy_load(ctx, "tests"));       /* a folder: opened by some systems, read by none */
    CHECK_ERROR(ctx, TN_ERR_FILE, "tests: ");
#ifdef __linux__
    {
        char path[TEST_PATH];
        scratch(path, "pipe");
        CHECK(mkfifo(path, 0600) == 0);      /* opening it would wait for somebody who writes */
        REFUSED(ctx, tn_npy_load(ctx, path), TN_ERR_FILE, "pipe: it is a pipe or a device, expected a file");
        remove(path);
        REFUSED(ctx, tn_npy_load(ctx, "/dev/zero"), TN_ERR_FILE, "/dev/zero: it is a pipe or a device, expected a file");
    }
#endif
    tn_ctx_destroy(ctx);
}

#ifdef __linux__

static bool write_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool  ok = f && fwrite(p, 1, n, f) == n;
    return CHECK(f && fclose(f) == 0 && ok);
}

/* A disk that is full: the old file stays, a leftover of a killed save goes, and nothing else is left beside it. */
static void check_disk_full(tn_ctx *ctx, tn_params *params, size_t room)
{
    char path[TEST_PATH], temporary[TEST_PATH + 16];
    struct rlimit old;
    scratch(path, "full.safetensors");
    snprintf(temporary, sizeof temporary, "%s.tn1.tmp", path);
    if (!write_file(path, "old", 3) || !write_file(temporary, "cut off", 7)) return;
    getrlimit(RLIMIT_FSIZE, &old);
    struct rlimit small = old;
    small.rlim_cur = room;
    setrlimit(RLIMIT_FSIZE, &small);
    tn_status s = tn_params_save(params, path);
    setrlimit(RLIMIT_FSIZE, &old);
    FAILS(ctx, s, TN_ERR_FILE, "full.safetensors: byte ");
    CHECK(file_is(path, "old"));
    CHECK(!test_exists(temporary));
    remove(path);
}

/* The library's calls come here. A lock is the first thing that happens to a temporary file: its permissions then are those of
   its creation. */
static mode_t mode_when_locked;
static bool   nothing_is_given_away;

int flock(int fd, int operation)
{
    struct stat st;
    if (fstat(fd, &st) == 0) mode_when_locked = st.st_mode & 07777;
    return (int)syscall(SYS_flock, fd, operation);
}

int fchown(int fd, uid_t owner, gid_t group)
{
    if (!nothing_is_given_away) return fchownat(fd, "", owner, group, AT_EMPTY_PATH);
    errno = EPERM;
    return -1;
}

/* What a save leaves of these permissions, where the owner and the group cannot be kept. */
static mode_t mode_after(tn_params *params, const char *path, mode_t before)
{
    struct stat st;
    if (!CHECK(chmod(path, before) == 0)) return 0;
    nothing_is_given_away = true;
    CHECK_STATUS(tn_params_save(params, path), TN_OK);
    nothing_is_given_away = false;
    if (!CHECK(stat(path, &st) == 0)) return 0;
    return st.st_mode & 07777;
}

/* A file that is written again keeps its permissions: what was private stays so. A new one has those of the umask. */
TEST(permissions)
{
    static const mode_t modes[] = {0600, 0640, 0444, 0755};
    tn_ctx     *ctx = ctx_of(TN_F32);
    tn_params  *params = make_params(ctx, 2);
    const mode_t umask_before = umask(022);
    char        path[TEST_PATH], beside[TEST_PATH + 8];
    struct stat st;
    scratch(path, "kept.safetensors");
    snprintf(beside, sizeof beside, "%s.tn1.tmp", path);
    CHECK_STATUS(tn_params_save(params, path), TN_OK);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0644);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (!CHECK(chmod(path, modes[i]) == 0)) break;
        CHECK_STATUS(tn_params_save(params, path), TN_OK);
        CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == modes[i]);
    }
    CHECK_INT(mode_after(params, path, 0660), 0600);        /* another group gets no more than everybody */
    CHECK_INT(mode_after(params, path, 0674), 0644);
    CHECK(chmod(path, 0600) == 0);                  /* nor can others open what is not complete yet */
    CHECK_STATUS(tn_params_save(params, path), TN_OK);
    CHECK_INT(mode_when_locked, 0600);
    tn_writer *f = tn_writer_open(ctx, path);
    CHECK(f && stat(beside, &st) == 0 && (st.st_mode & 07777) == 0600);
    CHECK_STATUS(tn_writer_write(f, "new", 3), TN_OK);
    CHECK_STATUS(tn_writer_close(f, true), TN_OK);
    CHECK(file_is(path, "new") && stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    if (geteuid() == 0) {                           /* the owner and the group, where that is possible */
        CHECK(chown(path, 12, 34) == 0);
        CHECK_STATUS(tn_params_save(params, path), TN_OK);
        CHECK(stat(path, &st) == 0 && st.st_uid == 12 && st.st_gid == 34 && (st.st_mode & 07777) == 0600);
    }
    remove(path);
    CHECK(symlink(strrchr(path, '/') ? strrchr(path, '/') + 1 : path, path) == 0);     /* to itself: replaced, as any link */
    CHECK_STATUS(tn_params_save(params, path), TN_OK);
    CHECK(lstat(path, &st) == 0 && st.st_mode == (S_IFREG | 0644));
    umask(umask_before);
    remove(path);
    CHECK(symlink("/dev/null/below", path) == 0);   /* it cannot even be known whether there is a file */
    FAILS(ctx, tn_params_save(params, path), TN_ERR_FILE, "the permissions of the file there could not be read");
    remove(path);
    tn_ctx_destroy(ctx);
}

TEST(full_disk)
{
    static const int64_t shape[] = {300, 300};
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *params = make_params(ctx, 2), *large = tn_params_create(ctx);
    char    path[TEST_PATH];
    struct stat st;
    tn_init init = ZERO;
    tn_params_add(large, "w", 2, shape, init);
    signal(SIGXFSZ, SIG_IGN);
    check_disk_full(ctx, params, 10);               /* found when the buffer is flushed     */
    check_disk_full(ctx, large, 100000);            /* found while writing                  */
    if (stat("/dev/full", &st) == 0) {
        FAILS(ctx, tn_params_save(params, "/dev/full"), TN_ERR_FILE, "/dev/full: byte ");
        CHECK(stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode) && !test_exists("/dev/full.tn1.tmp"));
    }
    scratch(path, "folder");                        /* a folder cannot be replaced by a file */
    mkdir(path, 0700);
    FAILS(ctx, tn_params_save(params, path), TN_ERR_FILE, "could not be replaced: ");
    strcat(path, ".tn1.tmp");
    CHECK(!test_exists(path));
    scratch(path, "folder");
    remove(path);
    tn_ctx_destroy(ctx);
}
#else
TEST(permissions) { SKIP("linux", "permissions of files"); }
TEST(full_disk) { SKIP("linux", "RLIMIT_FSIZE and /dev/full"); }
#endif

/* A call that refuses its first, second, ... piece. */
TEST(failing_sink)
{
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_params *params = make_params(ctx, 2);
    tn_status s = TN_ERR_FILE;
    size_t fail_at;
    for (fail_at = 1; s != TN_OK && fail_at < 20; fail_at++) {
        growing g = {NULL, 0, 0, 0};
        g.fail_at = fail_at;
        s = tn_params_write(params, tn_sink_calls(grow, &g), NULL, 0);
        if (s != TN_OK) CHECK_ERROR(ctx, TN_ERR_FILE, "callback: byte ");
        free(g.p);
    }
    CHECK_INT(fail_at, 5);              /* the header, two tensors, and then none */
    tn_ctx_destroy(ctx);
}

/* ---- more than 4 GB ----------------------------------------------------------------------------- */

TEST(vast_file)
{
    static const double zero[] = {0}, seven[] = {0x07070707};
    bytes   b = safetensors_of("{\"vast\":{\"dtype\":\"U8\",\"shape\":[7,1073741824],\"data_offsets\":[4,7516192772]},"
                               "\"last\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[7516192772,7516192776]},"
                               "\"first\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]}}", NULL, 0);
    unsigned char row[4];
    if (sizeof(size_t) < 8) SKIP("64 bits", "a tensor of 7 GB");
    tn_ctx *ctx = ctx_of(TN_F32);
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_calls(vast_fetch, &b, b.n + 7516192776u));
    CHECK_CTX(ctx);
    REQUIRE(f);
    CHECK_STR(tn_safetensors_at(f, 1)->name, "vast");
    CHECK(tn_safetensors_at(f, 1)->bytes == 7516192768u);
    check_values(tn_safetensors_read(f, "first"), TN_I32, 1, zero);
    check_values(tn_safetensors_read(f, "last"), TN_I32, 1, seven);
    CHECK_STATUS(tn_safetensors_read_bytes(f, "vast", row, 4), TN_ERR_ARG);
    tn_ctx_clear_error(ctx);
    /* the same modulo 2^32 */
    CHECK(!tn_safetensors_open(ctx, tn_source_calls(vast_fetch, &b, b.n + 7516192776u - 4294967296u)));
    CHECK_ERROR(ctx, TN_ERR_FORMAT, "past the end");
    tn_ctx_destroy(ctx);
}

/* tn_params_load takes a file of just these parameters. */
TEST(a_file_with_more)
{
    static const int64_t three[] = {3};
    char       path[TEST_PATH];
    tn_ctx    *ctx = ctx_of(TN_F32);
    tn_params *more = make_params(ctx, 2), *params = make_params(ctx, 2);
    tn_init    zero = ZERO;
    zero.rule = TN_INIT_ZERO;
    tn_params_add(more, "extra", 1, three, zero);
    snprintf(path, sizeof path, "%s/more.safetensors", test_folder());
    CHECK_STATUS(tn_params_save(more, path), TN_OK);
    FAILS(ctx, tn_params_load(params, path), TN_ERR_ARG, "more.safetensors: tensor \"extra\" [3] is not a parameter");
    CHECK_STATUS(tn_params_save(params, path), TN_OK);
    CHECK_STATUS(tn_params_load(params, path), TN_OK);
    CLOSE_CTX(ctx);
    remove(path);
}

/* A header that ends inside of an escape, at the end of its memory: what lies behind it is not read, be it digits or not. */
static void *digits_behind(size_t n, void *user)
{
    char *p = (char *)malloc(n + 16);
    (void)user;
    if (p) memset(p, '0', n + 16);
    return p;
}

static void digits_release(void *p, size_t n, void *user)
{
    (void)n;
    (void)user;
    free(p);
}

TEST(escapes_at_the_end)
{
    static const char *const header[] = {"{\"\\u", "{\"\\u1", "{\"\\u12", "{\"\\u123"};
    tn_desc desc = ZERO;
    tn_ctx *ctx = NULL;
    desc.allocator.alloc = digits_behind;
    desc.allocator.release = digits_release;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        bytes b = safetensors_of(header[i], NULL, 0);
        char  place[64];
        CHECK(tn_safetensors_open(ctx, tn_source_memory(b.p, b.n)) == NULL);
        snprintf(place, sizeof place, "byte %d: expected four hexadecimal digits after \\u", (int)(8 + strlen(header[i])));
        CHECK_ERROR(ctx, TN_ERR_FORMAT, place);
    }
    tn_ctx_destroy(ctx);
}

TEST_MAIN(other_formats, json_places, nine_axes, other_names, safetensors_conformance, npy_conformance, safetensors_values, npy_values, trained_models, sixteen_bit_floats,
          integers, raw_bytes, damaged_safetensors, damaged_npy, damaged_idx, hostile_safetensors, json_strings,
          hostile_npy, npy_orders, idx_files, safetensors_round_trip, large_and_strided, npy_round_trip,
          bad_writes, params_round_trip, params_that_do_not_fit, failing_source, no_memory, paths_that_fail,
          permissions, full_disk, failing_sink, vast_file, a_file_with_more, escapes_at_the_end)
