/* test_names.c: of the command tn, the names of models and the search for text that was encoded twice. */

#include "kit.h"
#include "../tools/tn/names.c"
#include "../tools/tn/mojibake.c"

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void named(tn_ctx *ctx, const char *name)
{
    tn_transformer_desc d = ZERO;
    char                again[80], why[256];
    if (!CHECK(model_from_name(ctx, name, &d, why))) { printf("     %s\n", name); return; }
    CHECK_INT(model_name(&d, again, sizeof again), strlen(name));
    CHECK_STR(again, name);
}

static void misnamed(tn_ctx *ctx, const char *name, const char *part)
{
    tn_transformer_desc d;
    char                why[256];
    memset(&d, 0x5A, sizeof d);
    CHECK(!model_from_name(ctx, name, &d, why));
    if (!CHECK(strstr(why, part) != NULL)) printf("     %s: %s\n", name, why);
    CHECK(d.vocab == 0x5A5A5A5A5A5A5A5A);                    /* as it was */
}

TEST(names)
{
    tn_transformer_desc d;
    tn_ctx *ctx;
    char    name[80], why[256];
    REQUIRE(CHECK_STATUS(tn_ctx_create(NULL, &ctx, NULL), TN_OK));
    for (int k = 0; k <= TN_MLP_GEGLU_TANH; k++) {
        snprintf(name, sizeof name, "gpt2-%s-12l-6h-768embd", tn_mlp_kind_name((tn_mlp_kind)k));
        named(ctx, name);
        CHECK(model_from_name(ctx, name, &d, why));
        CHECK(d.mlp == (tn_mlp_kind)k && d.layers == 12 && d.heads == 6 && d.dim == 768 && d.vocab == 50304);
        snprintf(name, sizeof name, "gpt2-%s-plaindiff-attn-1l-3h-12embd", tn_mlp_kind_name((tn_mlp_kind)k));
        named(ctx, name);
    }
    named(ctx, "gpt2-bilinear-sqrd-attn-18l-9h-1152embd");
    named(ctx, "gpt2-bilinear-bilinear-attn-1l-1h-1embd");
    named(ctx, "gpt2-swiglu-diff-attn-2l-2h-8embd");
    named(ctx, "TinyStories-1-512");
    named(ctx, "TinyStories-12-64");
    CHECK(model_from_name(ctx, "TinyStories-4-256", &d, why));
    CHECK(d.layers == 4 && d.dim == 256 && d.heads == 4 && d.hidden == 1024 && d.vocab == 4096 && d.context == 256);
    CHECK_NEAR(d.attn_scale, 1 / sqrt(8.0), 1e-15);
    CHECK(d.mlp_scale == 1);
    d.context = 512;                                         /* no longer what the name says */
    CHECK_INT(model_name(&d, name, sizeof name), strlen("gpt2-bilinear-4l-4h-256embd"));
    CHECK_STR(name, "gpt2-bilinear-4l-4h-256embd");
    CHECK_INT(model_name(&d, name, 5), strlen("gpt2-bilinear-4l-4h-256embd"));
    CHECK_STR(name, "gpt2");
    misnamed(ctx, "gpt3-relu-1l-1h-4embd", "a name like gpt2-MLP-12l-6h-768embd or TinyStories-2-512 at \"gpt3-relu");
    misnamed(ctx, "", "\"\": expected a name like");
    misnamed(ctx, "gpt2-maxout-1l-1h-4embd", "expected a kind of MLP at \"maxout-1l-1h-4embd\"");
    misnamed(ctx, "gpt2-relu", "expected a kind of MLP at \"relu\"");
    misnamed(ctx, "gpt2-relu-1l-1h-4", "expected an end like 12l-6h-768embd at");
    misnamed(ctx, "gpt2-relu-1l-1h-4embd2", "at \"2\"");
    misnamed(ctx, "gpt2-relu-01l-1h-4embd", "expected an end like");
    misnamed(ctx, "gpt2-relu-0l-1h-4embd", "expected an end like");
    misnamed(ctx, "gpt2-relu-odd-attn-1l-1h-4embd", "at \"odd-attn-1l-1h-4embd\"");
    misnamed(ctx, "gpt2-relu-12345678l-1h-4embd", "at \"78l-1h-4embd\"");
    misnamed(ctx, "TinyStories-2", "expected layers and width");
    misnamed(ctx, "TinyStories-2-512x", "at \"x\"");
    misnamed(ctx, "TinyStories-2-100", "multiple of 64");
    CHECK(!model_from_name(ctx, "gpt2-relu-1l-3h-4embd", &d, why));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "dim is 4, expected a multiple of 3 for 3 heads");
    CHECK(strstr(why, "dim is 4, expected a multiple of 3 for 3 heads") != NULL);
    memset(&d, 0, sizeof d);
    CHECK_INT(model_name(&d, NULL, 0), -1);
    tn_ctx_destroy(ctx);
}

/* ---- damaged encodings ---------------------------------------------------------------- */

TEST(mojibake)
{
    static const char *const clean[] = {
        "", "plain \x7F\t text.", "caf\xC3\xA9, na\xC3\xAFve, \xC3\x85ngstr\xC3\xB6m \xC3\x9F \xC2\xA3" "5 \xC2\xBD \xC2\xA1no! \xC2\xABoui\xC2\xBB",
        "\xE2\x80\x9CHi,\xE2\x80\x9D she said\xE2\x80\xA6 \xE2\x80\x98ok\xE2\x80\x99 \xE2\x80\x94 \xE2\x82\xAC" "5 \xE2\x84\xA2",
        "caf\xC3\xA9\xE2\x80\xA6 caf\xC3\xA9\xE2\x80\x99s \xE2\x80\x9C" "caf\xC3\xA9\xE2\x80\x9D CAF\xC3\x89\xE2\x80\xA6 voil\xC3\xA0\xE2\x80\x94",
        "manh\xC3\xA3\xE2\x80\xA6 \xC2\xABmanh\xC3\xA3\xC2\xBB irm\xC3\xA3\xE2\x80\x99s caf\xC3\xA9\xC2\xA0! Nestl\xC3\xA9\xC2\xAE 3\xC3\x97\xC2\xBC",
        "fianc\xC3\xA9\xE2\x80\x99\xE2\x80\x9D", "\xD0\xBF\xD1\x80\xD0\xB8 \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x98\x80 \xEF\xBB\xBF \xCE\xA3",
    };
    static const struct { const char *text; int at; } broken[] = {
        {"don\xC3\xA2\xE2\x82\xAC\xE2\x84\xA2t", 3},              /* the apostrophe of don't */
        {"\xC3\xA2\xE2\x82\xAC\xC5\x93Hi", 0},                    /* “ */
        {"Hi\xC3\xA2\xE2\x82\xAC", 2},                            /* ” without its last byte, at the end */
        {"Hi\xC3\xA2\xE2\x82\xAC she", 2},
        {"caf\xC3\x83\xC2\xA9", 3}, {"caf\xC3\xA3\xC2\xA9", 3},   /* é, and lower-cased */
        {"\xC3\x82\xC2\xA3" "5", 0}, {"\xC3\xA2\xC2\xA3" "5", 0}, /* £ */
        {"ma\xC3\xA3\xC2\xB1" "ana", 2}, {"\xC3\x83\xE2\x80\x9C", 0},
        {"\xC3\xB0\xC5\xB8\xCB\x9C\xE2\x82\xAC", 0}, {"\xC3\xB0\xC3\xBF\xCB\x9C\xE2\x82\xAC", 0},     /* a face */
        {"\xC3\xAF\xC2\xBB\xC2\xBF" "Text", 0}, {"\xC3\xAF\xC2\xBF\xC2\xBD", 0},                      /* U+FEFF, U+FFFD */
        {"\xC3\xA4\xC2\xBD\xC2\xA5", 0}, {"x \xC3\x90\xC2\xBF", 2},                                   /* Chinese, Russian */
        {"a\xC3\xA2\xC2\x80\xC2\x99", 1}, {"a\xC2\x80", 1},       /* Latin-1: C1 controls */
        {"ab\xEF\xBF\xBD", 2}, {"ab\xFF", 2}, {"ab\xC3", 2}, {"\xED\xA0\x80", 0}, {"a\xE2\x80 b", 1},
    };
    for (size_t k = 0; k < sizeof clean / sizeof *clean; k++) {
        char *p = exact_copy(clean[k], strlen(clean[k]));
        if (!CHECK_INT(find_mojibake(p, strlen(clean[k])), -1)) printf("     %s\n", clean[k]);
        free(p);
    }
    for (size_t k = 0; k < sizeof broken / sizeof *broken; k++) {
        char *p = exact_copy(broken[k].text, strlen(broken[k].text));
        if (!CHECK_INT(find_mojibake(p, strlen(broken[k].text)), broken[k].at)) printf("     %s\n", broken[k].text);
        free(p);
    }
    CHECK_INT(find_mojibake(NULL, 0), -1);
}

/* Every character of Latin-1 but the C1 controls and of general punctuation, encoded twice, is found: that is, both of its signs. */
TEST(mojibake_of_every_letter)
{
    static const unsigned sign[32] = {0x20AC, 0x81, 0x201A, 0x192, 0x201E, 0x2026, 0x2020, 0x2021, 0x2C6, 0x2030, 0x160, 0x2039, 0x152, 0x8D, 0x17D, 0x8F,
                                      0x90, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x2DC, 0x2122, 0x161, 0x203A, 0x153, 0x9D, 0x17E, 0x178};
    int found = 0;
    for (unsigned c = 0xA0; c < 0x2040; c = c == 0xFF ? 0x2000 : c + 1) {
        char   once[4], twice[16] = "xy ";
        size_t n = put_utf8(once, c), m = 3;
        for (size_t k = 0; k < n; k++) {
            unsigned b = (unsigned char)once[k];
            m += put_utf8(twice + m, b >= 0x80 && b < 0xA0 ? sign[b - 0x80] : b);
        }
        CHECK_INT(find_mojibake(once, n), -1);
        found += CHECK_INT(find_mojibake(twice, m), 3);
    }
    CHECK_INT(found, 96 + 64);
}

/* Whole stories have no damage. In a file of lower-cased lines, all that is not ASCII is damage; true where it was found in
   more than `least` lines. */
static bool check_damage(const char *whole, const char *damaged, int least)
{
    char  *text;
    size_t n;
    int    bad = 0, signs = 0;
    if (!CHECK(text = test_read_file(whole, &n))) return false;
    CHECK_INT(find_mojibake(text, n), -1);
    free(text);
    if (!CHECK(text = test_read_file(damaged, &n))) return false;
    for (char *s = text, *e; s; s = e ? e + 1 : NULL) {                    /* by lines */
        size_t bytes = (e = strchr(s, '\n')) != NULL ? (size_t)(e - s) : strlen(s);
        int64_t at = find_mojibake(s, bytes);
        bool    any = false;
        for (size_t i = 0; i < bytes; i++) any = any || (unsigned char)s[i] >= 128;
        CHECK((at >= 0) == any);
        bad += at >= 0;
        if (at >= 0) CHECK((unsigned char)s[at] == 0xC3);
        signs += any;
    }
    CHECK_INT(bad, signs);
    printf("damaged_lines: %d\n", bad);
    free(text);
    return bad > least;
}

TEST(mojibake_of_stories)
{
    char whole[TEST_PATH], damaged[TEST_PATH];
    REQUIRE(test_data("stories/stories.txt", whole));
    REQUIRE(test_data("stories/damaged.txt", damaged));
    CHECK(check_damage(whole, damaged, 150));
    if (test_optional_data("stories", "tinystories/train-first2MiB.txt", whole)) {
        REQUIRE(test_data("tinystories/train-first4MB-lowercase-mojibake.txt", damaged));
        CHECK(check_damage(whole, damaged, 500));
    }
}

TEST_MAIN(names, mojibake, mojibake_of_every_letter, mojibake_of_stories)
