/* test_image.c: colours, letters, ticks, and the pixels of every kind of figure */
#ifdef HAVE_STB_IMAGE                   /* some have only the writer */
#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_PNG
#include "stb_image.h"
#endif
#include "kit.h"
#include "image/inner.h"
#include "image/heat.c"
#include "image/letters.c"
#include "image/plot.c"
#ifdef HAVE_STB_IMAGE_WRITE
#define STB_IMAGE_WRITE_IMPLEMENTATION  /* of the writer of PNG that svg.c includes */
#endif
#include "image/svg.c"

static uint64_t hash(const tn_image *image)
{
    uint64_t h = 0xCBF29CE484222325u;
    if (!image) return 0;
    for (int64_t i = 0; i < image->width * image->height * 3; i++) h = (h ^ image->pixels[i]) * 0x100000001B3u;
    return h;
}

static int64_t count_colour(const tn_image *image, const uint8_t rgb[3])
{
    int64_t n = 0;
    for (int64_t i = 0; image && i < image->width * image->height; i++) n += memcmp(image->pixels + 3 * i, rgb, 3) == 0;
    return n;
}

static int64_t count_ink(const tn_image *image, uint32_t ink)
{
    uint8_t rgb[3];
    tni_unpack(ink, rgb);
    return count_colour(image, rgb);
}

/* A figure that should be there, and goes. */
static void made(tn_ctx *ctx, tn_image *image)
{
    CHECK(image != NULL);
    CHECK_CTX(ctx);
    if (image) CHECK(image->width > 0 && image->height > 0 && count_ink(image, TNI_WHITE) > 0);
    tn_image_destroy(image);
}

static void refused(tn_ctx *ctx, tn_image *image, tn_status status, const char *part)
{
    CHECK(image == NULL);
    CHECK_ERROR(ctx, status, part);
}

/* ---- colours */

static double linear(uint8_t byte) { return byte <= 10 ? byte / 255.0 / 12.92 : pow((byte / 255.0 + 0.055) / 1.055, 2.4); }

static double lightness(tn_image_colours colours, double t)      /* Oklab's L */
{
    uint8_t rgb[3];
    tn_image_colour(colours, t, rgb);
    double r = linear(rgb[0]), g = linear(rgb[1]), b = linear(rgb[2]);
    return 0.2104542553 * cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
         + 0.7936177850 * cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
         - 0.0040720468 * cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
}

TEST(colours_are_white_at_zero_symmetric_and_monotone)
{
    uint8_t rgb[3], grey[3];
    double  asymmetry = 0, step = 0, before[3] = {2, 2, 2};
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 0, rgb);
    CHECK(rgb[0] == 255 && rgb[1] == 255 && rgb[2] == 255);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, -0.0, rgb);
    CHECK(rgb[0] == 255 && rgb[1] == 255 && rgb[2] == 255);
    tn_image_colour(TN_IMAGE_COLOURS_SEQUENTIAL, 0, rgb);
    CHECK(rgb[0] == 255 && rgb[1] == 255 && rgb[2] == 255);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1, rgb);
    CHECK(rgb[0] > 100 && rgb[0] > 3 * rgb[2]);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, -1, rgb);
    CHECK(rgb[2] > 100 && rgb[2] > 3 * rgb[0]);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, (double)NAN, grey);
    CHECK(grey[0] == grey[1] && grey[1] == grey[2] && grey[0] > 100 && grey[0] < 220);
    for (int k = 0; k <= 200; k++) {
        double t = k / 200.0, l[3];
        l[0] = lightness(TN_IMAGE_COLOURS_DIVERGING, t);
        l[1] = lightness(TN_IMAGE_COLOURS_DIVERGING, -t);
        l[2] = lightness(TN_IMAGE_COLOURS_SEQUENTIAL, t);
        test_raise(&asymmetry, fabs(l[0] - l[1]));
        for (int m = 0; m < 3; m++) {
            CHECK(l[m] <= before[m]);
            if (k > 0) test_raise(&step, before[m] - l[m]);
            before[m] = l[m];
        }
        for (int sign = -1; sign <= 1; sign += 2) {
            tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, sign * t, rgb);
            CHECK(memcmp(rgb, grey, 3) != 0);
        }
    }
    WORST("lightness of +t against -t", asymmetry, 0.01);
    WORST("lightness between 200 steps", step, 0.01);
}

TEST(colours_beyond_the_ends_are_those_of_the_ends)
{
    uint8_t a[3], b[3];
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, -HUGE_VAL, a);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, -1, b);
    CHECK(memcmp(a, b, 3) == 0);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1e308, a);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1, b);
    CHECK(memcmp(a, b, 3) == 0);
    tn_image_colour(TN_IMAGE_COLOURS_SEQUENTIAL, -3, a);
    tn_image_colour(TN_IMAGE_COLOURS_SEQUENTIAL, 0, b);
    CHECK(memcmp(a, b, 3) == 0);
}

/* ---- letters */

static void check_glyph(const char *s, char highest)
{
    bool bend = false, first = true;
    CHECK(*s >= 'a' && *s <= 'z');
    for (s++; *s; s += 2, first = false) {
        if (*s == ' ') { CHECK(!bend); s++; first = true; }
        CHECK(((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z')) && s[1] >= 'a' && s[1] <= highest);
        if (*s < 'a') CHECK(!bend && !first);              /* a bend is between two points */
        bend = *s < 'a';
    }
    CHECK(!bend);
}

TEST(glyphs_are_well_formed)
{
    for (size_t g = 0; g < sizeof tni_glyphs / sizeof *tni_glyphs; g++) check_glyph(tni_glyphs[g], 'u');
    for (int g = 0; g < 50; g++)
        if (tni_greek[g / 25][g % 25] && tni_greek[g / 25][g % 25][1]) check_glyph(tni_greek[g / 25][g % 25], 'u');
    for (size_t g = 0; g < sizeof tni_latin_own / sizeof *tni_latin_own; g++) check_glyph(tni_latin_own[g], 'u');
    for (size_t g = 0; g < sizeof tni_mark_strokes / sizeof *tni_mark_strokes; g++) check_glyph(tni_mark_strokes[g], 'u');
    CHECK_INT(sizeof tni_glyphs / sizeof *tni_glyphs, TNI_GLYPH_BOX + 1);
    CHECK_INT(strlen(tni_latin_base), 64);
    CHECK_INT(strlen(tni_latin_mark), 64);
    CHECK_INT(strlen(tni_latin_marks), sizeof tni_mark_strokes / sizeof *tni_mark_strokes);
}

static tni_canvas open_canvas(tn_ctx *ctx, double width, double height)
{
    tni_canvas c;
    CHECK(tni_canvas_open(&c, ctx, width, height, 1));
    return c;
}

TEST(every_character_looks_different_and_stays_in_its_place)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_REAL, 0);
    uint64_t seen[96];
    for (int code = 32; code < 128; code++) {
        tni_canvas c = open_canvas(ctx, 64, 64);
        char       text[1] = {(char)code};
        double     width = tni_text_width(text, 1, 32);
        tni_cover_text(&c, text, 1, 16, 40, 32, 0, false);
        tni_paint(&c, 0, 1);
        for (int64_t y = 0; y < 64; y++)
            for (int64_t x = 0; x < 64; x++)
                if (x < 15 || (double)x > 17 + width || y < 10 || y > 49) CHECK(c.image->pixels[3 * (y * 64 + x)] == 255);
        seen[code - 32] = hash(tni_canvas_close(&c));
        for (int k = 0; k < code - 32; k++) CHECK(seen[k] != seen[code - 32]);
        tn_image_destroy(c.image);
    }
    tn_ctx_destroy(ctx);
}

/* The picture of one character, as its hash. */
static uint64_t picture_of(tn_ctx *ctx, uint32_t code)
{
    tni_canvas c = open_canvas(ctx, 64, 64);
    char       text[4];
    tni_cover_text(&c, text, tni_utf8_put(text, code), 16, 40, 32, 0, false);
    tni_paint(&c, 0, 1);
    uint64_t h = hash(tni_canvas_close(&c));
    tn_image_destroy(c.image);
    return h;
}

/* Latin-1, Greek, scripts: no box, and no two alike but for the Greek letters that have a Latin form. */
TEST(letters_beyond_ascii_are_drawn_and_differ)
{
    static const uint32_t ranges[][2] = {{'!', '~'}, {0xC0, 0xFF}, {0x391, 0x3A9}, {0x3B1, 0x3C9}, {0x2080, 0x2089}, {0x2074, 0x2079},
                                         {0xB2, 0xB3}, {0xB9, 0xB9}, {0x2070, 0x2070}, {0xB0, 0xB1}, {0xAB, 0xAB}, {0xBB, 0xBB}};
    tn_ctx  *ctx = ctx_in(NULL, TN_REAL, 0);
    uint64_t seen[300], box = picture_of(ctx, 0x4E00);
    uint32_t code[300];
    int      n = 0, alike = 0;
    CHECK(box == picture_of(ctx, 0x3A2));                  /* no letter has this number */
    CHECK(box == picture_of(ctx, 0x1F600));
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
        for (uint32_t c = ranges[r][0]; c <= ranges[r][1]; c++) {
            if (c == 0x3A2) continue;
            if (!CHECK(n < 300)) break;
            code[n] = c;
            seen[n] = picture_of(ctx, c);
            CHECK(seen[n] != box);
            for (int k = 0; k < n; k++) {
                bool same = seen[k] == seen[n];
                alike += same;
                if (same && !CHECK(code[k] < 128 && c >= 0x391 && c <= 0x3C9)) printf("     U+%04X is like U+%04X\n", c, code[k]);
            }
            n++;
        }
    CHECK_INT(alike, 15);                                   /* 14 capitals from Alpha to Chi, and omicron */
    tn_ctx_destroy(ctx);
}

static uint32_t only_character(const char *s, size_t bytes, size_t *used)
{
    char       *copy = (char *)malloc(bytes);              /* of exact size: a read beyond it is seen by ASan */
    const char *at = copy;
    if (!CHECK(copy != NULL)) return 0;
    memcpy(copy, s, bytes);
    uint32_t code = tni_text_next(&at, copy + bytes, 'a');
    *used = (size_t)(at - copy);
    free(copy);
    return code;
}

TEST(characters_are_read_as_utf8)
{
    size_t used;
    CHECK_INT(only_character("A", 1, &used), 'A');
    CHECK_INT(only_character("\xCE\xBB", 2, &used), 0x3BB);
    CHECK_INT(used, 2);
    CHECK_INT(only_character("\xC2\xB1", 2, &used), 0xB1);
    CHECK_INT(only_character("\xE2\x88\x92", 3, &used), 0x2212);
    CHECK_INT(used, 3);
    CHECK_INT(only_character("\xF0\x9F\x98\x80", 4, &used), 0x1F600);
    CHECK_INT(used, 4);
    CHECK_INT(only_character("\xE2\x88", 2, &used), 0xFFFD);        /* cut off */
    CHECK_INT(used, 1);                                              /* one of two unknown characters */
    CHECK_INT(only_character("\xFF", 1, &used), 0xFFFD);
    CHECK_INT(only_character("\x80", 1, &used), 0xFFFD);
    CHECK_STR(tni_glyph(0xFFFD), tni_glyph(0x4E00));                /* a box for both */
    CHECK(strcmp(tni_glyph(0x3BB), tni_glyph(0xFFFD)) != 0);
    CHECK_STR(tni_glyph(7), tni_glyph(0xFFFD));
}

TEST(labels_shrink_and_are_cut_but_stay_in_their_room)
{
    tn_ctx *ctx = ctx_in(NULL, TN_REAL, 0);
    for (int turned = 0; turned < 2; turned++)
        for (int place = 0; place < 3; place++) {
            tni_canvas c = open_canvas(ctx, 200, 200);
            int64_t    dark = 0;
            double     align = place / 2.0;
            tni_draw_label(&c, "a label that is much too long for where it should stand \xCE\xBB\xCE\xBB\xCE\xBB", 100, 100, 13, align, turned, 60, 0);
            int64_t low = (int64_t)(100 - (turned ? 1 - align : align) * 60);
            for (int64_t i = 0; i < 200 * 200; i++) {
                int64_t along = turned ? i / 200 : i % 200, across = turned ? i % 200 : i / 200;
                if (c.image->pixels[3 * i] == 255) continue;
                dark++;
                CHECK(along >= low - 1 && along <= low + 61 && across > 85 && across < 106);
            }
            CHECK(dark > 100);
            tn_image_destroy(tni_canvas_close(&c));
        }
    tn_ctx_destroy(ctx);
}

/* ---- ticks */

static bool is_round(double v)                              /* 1, 2 or 5 times a power of ten */
{
    double m = v / pow(10, floor(log10(v) + 1e-9));
    return fabs(m - 1) < 1e-6 || fabs(m - 2) < 1e-6 || fabs(m - 5) < 1e-6 || fabs(m - 10) < 1e-6;
}

TEST(ticks_are_round_and_their_labels_say_so)
{
    uint64_t state = 1;
    for (int k = 0; k < 2000; k++) {
        tni_ruler r;
        double    a = test_random_real(&state) * pow(10, (double)test_random_int(&state, -12, 12)), size = pow(10, (double)test_random_int(&state, -3, 12));
        double    b = a + fmax(1e-12, fabs(a) * 1e-5) * size, wanted = (double)test_random_int(&state, 2, 12);
        tni_ruler_init(&r, a, b, false, wanted, false);
        CHECK(r.ticks >= 3 && r.ticks <= 2.6 * wanted + 3);
        CHECK(is_round(r.at[1] - r.at[0]) || b - a < 1e-8 * fabs(a));
        for (int i = 0; i < r.ticks; i++) {
            double said = 0;
            CHECK(r.at[i] >= a - 1e-6 * (b - a) && r.at[i] <= b + 1e-6 * (b - a));
            CHECK_INT(tni_parse_double(r.label[i], strlen(r.label[i]), &said), strlen(r.label[i]));
            CHECK_NEAR(said, r.at[i], 1e-6 * (b - a));
            if (i > 1) CHECK_NEAR(r.at[i] - r.at[i - 1], r.at[1] - r.at[0], 1e-6 * (b - a));
        }
    }
}

TEST(ticks_of_logarithmic_axes)
{
    tni_ruler r;
    tni_ruler_init(&r, -3.2, 4.1, true, 8, false);
    CHECK_INT(r.ticks, 8);
    CHECK_STR(r.label[0], "0.001");
    CHECK_STR(r.label[3], "1");
    CHECK_STR(r.label[7], "10000");
    tni_ruler_init(&r, -0.9, 0.9, true, 8, false);          /* 0.2 0.5 1 2 5 */
    CHECK_INT(r.ticks, 5);
    CHECK_STR(r.label[0], "0.2");
    tni_ruler_init(&r, 0.5, 0.51, true, 8, false);          /* less than a step: round numbers between */
    CHECK(r.ticks >= 3);
    for (int i = 0; i < r.ticks; i++) CHECK(r.at[i] >= 0.5 - 1e-9 && r.at[i] <= 0.51 + 1e-9);
    tni_ruler_init(&r, 0, 6, true, 8, false);               /* one needs an exponent, so all have one */
    CHECK_STR(r.label[0], "1e0");
    CHECK_STR(r.label[6], "1e6");
    tni_ruler_init(&r, 0, 1.2e6, false, 6, false);
    for (int i = 1; i < r.ticks; i++) CHECK(strchr(r.label[i], 'e') != NULL);
    CHECK_STR(r.label[0], "0");
    tni_ruler_init(&r, -290, 290, true, 8, false);
    CHECK(r.ticks >= 3 && r.ticks <= 20);
}

TEST(numbers_are_short)
{
    char s[32];
    tni_tick_text(s, 1e5 * 10, 6, 0);
    CHECK_STR(s, "1e6");
    tni_tick_text(s, -2.5e-7, 6, 2);
    CHECK_STR(s, "-2.5e-7");
    tni_tick_text(s, 0.5, 6, 2);
    CHECK_STR(s, "0.50");
    tni_tick_text(s, -3, 6, 1);
    CHECK_STR(s, "-3.0");
    tni_tick_text(s, (double)NAN, 6, 2);
    CHECK_STR(s, "nan");
    tni_tick_text(s, 1e300, 6, 0);
    CHECK_STR(s, "1e300");
}

/* ---- matrices */

TEST(matrix_shows_each_value_in_its_colour)
{
    static const double values[6] = {0, 2, -2, 1, -0.5, (double)NAN};
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    uint8_t        rgb[3];
    d.cell = 9;
    d.no_bar = d.no_ticks = true;
    tn_image *image = tn_image_matrix(ctx, values, 2, 3, &d);
    REQUIRE(image != NULL);
    for (int k = 1; k < 6; k++) {
        tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, values[k] / 2, rgb);
        CHECK_INT(count_colour(image, rgb), 81);
    }
    tn_image_destroy(image);
    d.high = 8;                                                      /* a shared scale */
    image = tn_image_matrix(ctx, values, 2, 3, &d);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 0.25, rgb);
    CHECK_INT(count_colour(image, rgb), 81);
    tn_image_destroy(image);
    d.colours = TN_IMAGE_COLOURS_SEQUENTIAL;
    d.low = -2;
    d.high = 2;
    image = tn_image_matrix(ctx, values, 2, 3, &d);
    tn_image_colour(TN_IMAGE_COLOURS_SEQUENTIAL, 0.75, rgb);
    CHECK_INT(count_colour(image, rgb), 81);
    CLOSE_CTX(ctx);                                             /* frees the image too */
}

TEST(large_matrices_show_means)
{
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    uint8_t        rgb[3];
    double        *v = (double *)malloc(801 * 801 * sizeof *v);
    REQUIRE(v != NULL);
    d.no_bar = d.no_ticks = true;
    for (int i = 0; i < 801 * 801; i++) v[i] = (i / 801 / 3 + i % 801 / 3) % 2 ? -3 : (i / 801 % 3 == 1 ? 3 : 0);
    tn_image *image = tn_image_matrix(ctx, v, 801, 801, &d);                   /* blocks of 3 x 3: -3 and 1 */
    REQUIRE(image != NULL);
    CHECK(image->width < 330);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1 / 3.0, rgb);
    CHECK_INT(count_colour(image, rgb), (267 * 267 + 1) / 2);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, -1, rgb);
    CHECK_INT(count_colour(image, rgb), (267 * 267 - 1) / 2);
    tn_image_destroy(image);
    for (int i = 0; i < 801 * 801; i++) v[i] = i % 801 % 3 == 0 ? (double)NAN : 1;   /* what is no number does not count */
    image = tn_image_matrix(ctx, v, 801, 801, &d);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1, rgb);
    CHECK_INT(count_colour(image, rgb), 267 * 267);
    tn_image_destroy(image);
    for (int i = 0; i < 801 * 801; i++) v[i] = i / 801 % 3 == 1 && i % 801 % 3 == 2 ? -2 : 1;  /* one of nine */
    d.largest = true;
    image = tn_image_matrix(ctx, v, 801, 801, &d);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, -1, rgb);
    CHECK_INT(count_colour(image, rgb), 267 * 267);
    tn_image_destroy(image);
    d.stretch = true;                                                /* 801 x 1: cells of 3 values x 40 pixels; 8 x 801 */
    image = tn_image_matrix(ctx, v, 801, 1, &d);
    CHECK(image && image->height > 267 && image->width > 40 && image->width < 100);
    tn_image_destroy(image);
    image = tn_image_matrix(ctx, v, 8, 801, &d);
    CHECK(image && image->height > 8 * 40 && image->width > 267 && image->width < 330);
    tn_image_destroy(image);
    free(v);
    CLOSE_CTX(ctx);
}

/* The scale is given, so that it cannot make up for a mean of fewer values. */
TEST(a_mean_ignores_nan)
{
    enum { SIDE = 801, BLOCKS = 267 };
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    uint8_t        mean[3], none[3];
    double        *v = (double *)malloc(SIDE * SIDE * sizeof *v);
    int64_t        empty = 0;
    REQUIRE(v != NULL);
    d.no_bar = d.no_ticks = true;
    d.low = -2;
    d.high = 2;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {                             /* 1 to 9 numbers of a block are missing, others 1 */
            const int block = i / 3 * BLOCKS + j / 3, missing = block % 10 == 0 ? 9 : block % 9 + 1;
            v[i * SIDE + j] = i % 3 * 3 + j % 3 < missing ? (double)NAN : 1;
            if (i % 3 == 0 && j % 3 == 0) empty += missing == 9;
        }
    tn_image *image = tn_image_matrix(ctx, v, SIDE, SIDE, &d);
    REQUIRE(image != NULL);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 0.5, mean);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, (double)NAN, none);
    CHECK_INT(count_colour(image, mean), (int64_t)BLOCKS * BLOCKS - empty);
    CHECK_INT(count_colour(image, none), empty);
    free(v);
    CLOSE_CTX(ctx);
}

/* Relative luminance of an sRGB colour, and the contrast of two, from 1 to 21: W3C, WCAG 2.1 */
static double luminance(const uint8_t rgb[3])
{
    static const double weight[3] = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (int k = 0; k < 3; k++) {
        const double c = rgb[k] / 255.0;
        sum += weight[k] * (c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
}

static double contrast(const uint8_t a[3], const uint8_t b[3])
{
    const double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
    return x > y ? x / y : y / x;
}

/* The numbers in cells of both ends of a scale, and of its middle, can be read: the ink stands out from its cell. */
TEST(numbers_can_be_read_in_dark_cells)
{
    enum { CELLS = 9, CELL = 40, SCALE = 3, SIDE = CELL * SCALE };
    static const tn_image_colours colours[] = {TN_IMAGE_COLOURS_DIVERGING, TN_IMAGE_COLOURS_SEQUENTIAL};
    tn_ctx *ctx = ctx_in(NULL, TN_REAL, 0);
    double  least = 21;
    for (int k = 0; k < 2; k++) {
        tn_image_matrix_desc d = ZERO;
        double         v[CELLS];
        d.colours = colours[k];
        d.no_bar = d.no_ticks = d.numbers = true;
        d.cell = CELL;
        d.scale = SCALE;
        d.low = k ? 0 : -1;
        d.high = 1;
        for (int i = 0; i < CELLS; i++) v[i] = d.low + (d.high - d.low) * i / (CELLS - 1);
        tn_image *image = tn_image_matrix(ctx, v, 1, CELLS, &d);
        REQUIRE(image != NULL && image->width >= CELLS * SIDE && image->height >= SIDE);
        for (int i = 0; i < CELLS; i++) {
            const int64_t left = (image->width - CELLS * SIDE) / 2 + i * SIDE, top = (image->height - SIDE) / 2;
            const uint8_t black[3] = {0, 0, 0}, white[3] = {255, 255, 255};
            uint8_t       cell[3];
            double        most = 1;
            int64_t       plain = 0;
            tn_image_colour(colours[k], v[i], cell);
            for (int64_t y = 9; y < SIDE - 9; y++)
                for (int64_t x = 9; x < SIDE - 9; x++) {
                    const uint8_t *rgb = image->pixels + 3 * ((top + y) * image->width + left + x);
                    if (contrast(rgb, cell) > most) most = contrast(rgb, cell);
                    plain += memcmp(rgb, cell, 3) == 0;
                }
            CHECK(plain > SIDE * SIDE / 4);                          /* this is the cell */
            CHECK(most >= 0.6 * contrast(cell, black) && most >= 0.6 * contrast(cell, white));
            CHECK(most >= (i == 0 || i == CELLS - 1 ? 4.5 : 3));      /* what WCAG asks of text, and of large text */
            if (most < least) least = most;
            if (test_now.failures) printf("     %g: %.3g\n", v[i], most);
        }
        tn_image_destroy(image);
    }
    printf("the ink of numbers has a contrast of %.2f or more\n", least);
    CLOSE_CTX(ctx);
}

TEST(matrices_of_every_odd_kind)
{
    static const double same[4] = {5, 5, 5, 5}, zero[4] = {0, 0, 0, 0}, nothing[2] = {(double)NAN, (double)NAN};
    static const double wild[6] = {HUGE_VAL, -HUGE_VAL, 1e308, -1e308, 5e-324, (double)NAN};
    static const char *const names[4] = {"", NULL, "a name so long that it must be cut, because nobody gave it that much room", "\xFF\n\x01"};
    test_heap      heap = {0, 0, 0, 0, false};
    tn_ctx        *ctx = ctx_in(&heap, TN_REAL, 0);
    tn_image_matrix_desc d;
    double        *big = (double *)calloc(4096 * 4096, sizeof *big);
    char          *text = (char *)malloc(100001);
    REQUIRE(big != NULL && text != NULL);
    for (int colours = 0; colours < 2; colours++) {
        memset(&d, 0, sizeof d);
        d.colours = (tn_image_colours)colours;
        d.numbers = true;
        made(ctx, tn_image_matrix(ctx, NULL, 0, 0, &d));
        made(ctx, tn_image_matrix(ctx, NULL, 0, 7, &d));
        made(ctx, tn_image_matrix(ctx, NULL, INT64_MAX, 0, &d));
        made(ctx, tn_image_matrix(ctx, same, 1, 1, NULL));
        made(ctx, tn_image_matrix(ctx, same, 2, 2, &d));
        made(ctx, tn_image_matrix(ctx, zero, 2, 2, &d));
        made(ctx, tn_image_matrix(ctx, nothing, 1, 2, &d));
        made(ctx, tn_image_matrix(ctx, wild, 2, 3, &d));
        made(ctx, tn_image_matrix(ctx, wild + 4, 1, 1, &d));
        made(ctx, tn_image_matrix(ctx, big, 785, 785, &d));
        made(ctx, tn_image_matrix(ctx, big, 1, 4096 * 4096, &d));
        made(ctx, tn_image_matrix(ctx, big, 4096 * 4096, 1, &d));
        made(ctx, tn_image_matrix(ctx, big, 4096, 4096, &d));
        d.x_names = d.y_names = names;
        made(ctx, tn_image_matrix(ctx, same, 2, 2, &d));
        d.cell = 1;
        made(ctx, tn_image_matrix(ctx, same, 1, 4, &d));
        memset(text, 'x', 100000);
        text[100000] = 0;
        d.title = d.caption = d.x_title = d.y_title = text;
        made(ctx, tn_image_matrix(ctx, same, 2, 2, &d));
        memset(text, '\n', 100000);
        made(ctx, tn_image_matrix(ctx, same, 2, 2, &d));
        memset(text, 0xCE, 100000);
        made(ctx, tn_image_matrix(ctx, same, 2, 2, &d));
        d.scale = 16;
        made(ctx, tn_image_matrix(ctx, same, 2, 2, &d));
    }
    free(big);
    free(text);
    tn_ctx_destroy(ctx);
    CHECK_INT(heap.live, 0);
    CHECK_INT(heap.blocks, 0);
}

/* A refusal whose message is exactly this. */
static void says(tn_ctx *ctx, tn_image *image, tn_status status, const char *message)
{
    CHECK(image == NULL);
    CHECK_STATUS(tn_ctx_status(ctx), status);
    CHECK_STR(tn_ctx_error(ctx), message);
    tn_ctx_clear_error(ctx);
}

TEST(refusals_say_why)
{
    static const double one[1] = {1};
    const int64_t far = (int64_t)1 << 62;
    tn_ctx *ctx = ctx_in(NULL, TN_REAL, 0);
    CHECK(tn_image_create(NULL, 1, 1) == NULL);
    CHECK(tn_image_matrix(NULL, one, 1, 1, NULL) == NULL);
    CHECK(tn_image_tiles(NULL, one, 1, 1, 1, NULL) == NULL);
    CHECK(tn_image_plot(NULL, NULL, 0, NULL) == NULL);
    CHECK(tn_image_matrix_of(NULL, NULL, NULL) == NULL);
    CHECK(tn_image_tiles_of(NULL, NULL, NULL) == NULL);
    tn_image_destroy(NULL);
    tn_image *least = tn_image_create(ctx, 1, 1);
    CHECK(least && least->width == 1);
    tn_image_destroy(least);
    says(ctx, tn_image_create(ctx, 0, 5), TN_ERR_SHAPE, "image_create: width is 0, expected 1 or more");
    says(ctx, tn_image_create(ctx, far, far), TN_ERR_SHAPE,
         "image_create: 4611686018427387904 x 4611686018427387904 pixels are larger than the address space");
    says(ctx, tn_image_matrix(ctx, NULL, 2, 2, NULL), TN_ERR_ARG, "image_matrix: values is NULL, expected an array");
    says(ctx, tn_image_matrix(ctx, one, -1, 2, NULL), TN_ERR_SHAPE, "image_matrix: rows is -1, expected 0 or more");
    says(ctx, tn_image_matrix(ctx, one, 1, -2, NULL), TN_ERR_SHAPE, "image_matrix: columns is -2, expected 0 or more");
    says(ctx, tn_image_matrix(ctx, one, far, far, NULL), TN_ERR_SHAPE,
         "image_matrix: 4611686018427387904 x 4611686018427387904 values are larger than the address space");
    says(ctx, tn_image_tiles(ctx, one, -1, 1, 1, NULL), TN_ERR_ARG, "image_tiles: count is -1, expected 0 or more");
    says(ctx, tn_image_tiles(ctx, one, 1, -3, 1, NULL), TN_ERR_SHAPE, "image_tiles: height is -3, expected 0 or more");
    says(ctx, tn_image_tiles(ctx, one, 1, 1, -3, NULL), TN_ERR_SHAPE, "image_tiles: width is -3, expected 0 or more");
    says(ctx, tn_image_tiles(ctx, one, far, 1, 1, NULL), TN_ERR_ARG,
         "image_tiles: count is 4611686018427387904, expected at most 281474976710656, in 16777216 rows of 16777216");
    says(ctx, tn_image_plot(ctx, NULL, 1, NULL), TN_ERR_ARG, "image_plot: series is NULL, expected an array");
    says(ctx, tn_image_plot(ctx, NULL, -1, NULL), TN_ERR_ARG, "image_plot: count is -1, expected 0 or more");
    CHECK_STATUS(tn_image_save_ppm(NULL, "x"), TN_ERR_ARG);
    tn_ctx_destroy(ctx);
}

TEST(a_refused_matrix_says_why)
{
    static const double one[1] = {1};
    static tn_image_matrix_desc none;                             /* zeros */
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc m = none;
    m.cell = 5000;
    says(ctx, tn_image_matrix(ctx, one, 1, 1, &m), TN_ERR_ARG, "image_matrix: cell is 5000, expected 0 to 4096");
    m.cell = 4096;
    says(ctx, tn_image_matrix(ctx, one, (int64_t)1 << 26, 1, &m), TN_ERR_SHAPE,
         "image_matrix: there are 67108864 x 1 cells of 4096 pixels, expected at most 16777216 pixels per side");
    m = none;
    m.size = -1;
    says(ctx, tn_image_matrix(ctx, one, 1, 1, &m), TN_ERR_ARG, "image_matrix: size is -1, expected 0 to 65536");
    m = none;
    m.scale = 17;
    says(ctx, tn_image_matrix(ctx, one, 1, 1, &m), TN_ERR_ARG, "image_matrix: scale is 17, expected 0 to 16");
    m = none;
    m.clip = 100.5;
    says(ctx, tn_image_matrix(ctx, one, 1, 1, &m), TN_ERR_ARG, "image_matrix: clip is 100.5, expected 0 to 100");
    m = none;
    m.colours = (tn_image_colours)2;
    says(ctx, tn_image_matrix(ctx, one, 1, 1, &m), TN_ERR_ARG, "image_matrix: colours is 2, expected 0 to 1");
    m = none;
    m.high = (double)NAN;
    says(ctx, tn_image_matrix(ctx, one, 1, 1, &m), TN_ERR_ARG, "image_matrix: high is nan, expected -1e+300 to 1e+300");
    m.high = 1;
    m.low = 5e300;
    says(ctx, tn_image_matrix(ctx, one, 1, 1, &m), TN_ERR_ARG, "image_matrix: low is 5e+300, expected -1e+300 to 1e+300");
    m.colours = TN_IMAGE_COLOURS_SEQUENTIAL;
    m.low = 2;
    says(ctx, tn_image_matrix(ctx, one, 1, 1, &m), TN_ERR_ARG, "image_matrix: low is 2 and high is 1, expected low < high");
    tn_ctx_destroy(ctx);
}

TEST(refused_tiles_say_why)
{
    static const double one[1] = {1};
    static tn_image_tiles_desc none;                              /* zeros */
    tn_ctx       *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_tiles_desc t = none;
    t.rows = t.columns = 2;
    says(ctx, tn_image_tiles(ctx, one, 5, 1, 1, &t), TN_ERR_ARG, "image_tiles: count is 5, expected at most 4, in 2 rows of 2");
    t.rows = 1 << 25;
    says(ctx, tn_image_tiles(ctx, one, 5, 1, 1, &t), TN_ERR_ARG, "image_tiles: rows is 33554432, expected 0 to 16777216");
    t.rows = 0;
    t.columns = -1;
    says(ctx, tn_image_tiles(ctx, one, 5, 1, 1, &t), TN_ERR_ARG, "image_tiles: columns is -1, expected 0 to 16777216");
    t.columns = 1;
    says(ctx, tn_image_tiles(ctx, one, (int64_t)1 << 30, 1, 1, &t), TN_ERR_ARG,
         "image_tiles: count is 1073741824, expected at most 16777216, in 16777216 rows of 1");
    t.rows = 1 << 24;
    t.columns = 1 << 20;
    t.cell = 1;
    t.no_bar = true;
    says(ctx, tn_image_tiles(ctx, one, 1, 1, 1, &t), TN_ERR_SHAPE,
         "image_tiles: the picture has 11534354 x 184549392 pixels, expected at most 268435456 in all");
    tn_ctx_destroy(ctx);
}

TEST(a_refused_plot_says_why)
{
    static const double one[1] = {1};
    static const char *const names[1] = {"one"};
    static tn_image_plot_desc none;
    static tn_image_series    empty;
    tn_ctx      *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_plot_desc p = none;
    tn_image_series    s = empty;
    s.count = -5;
    says(ctx, tn_image_plot(ctx, &s, 1, NULL), TN_ERR_ARG, "image_plot: count of series 0 is -5, expected 0 or more");
    s.count = 1;
    says(ctx, tn_image_plot(ctx, &s, 1, NULL), TN_ERR_ARG, "image_plot: y of series 0 is NULL, expected an array");
    s.y = one;
    s.colour = 8;
    says(ctx, tn_image_plot(ctx, &s, 1, NULL), TN_ERR_ARG, "image_plot: colour of series 0 is 8, expected 0 to 7");
    s.colour = 0;
    s.kind = (tn_image_series_kind)5;
    says(ctx, tn_image_plot(ctx, &s, 1, NULL), TN_ERR_ARG, "image_plot: kind of series 0 is 5, expected 0 to 4");
    s.kind = TN_IMAGE_SERIES_BAND;
    says(ctx, tn_image_plot(ctx, &s, 1, NULL), TN_ERR_ARG, "image_plot: low of series 0 is NULL, expected an array");
    s.kind = TN_IMAGE_SERIES_LINE;
    p.scale = 17;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_ARG, "image_plot: scale is 17, expected 0 to 16");
    p.scale = 0;
    p.width = -1;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_ARG, "image_plot: width is -1, expected 0 to 65536");
    p.width = p.height = 65536;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_SHAPE,
         "image_plot: the picture has 65536 x 65536 pixels, expected at most 268435456 in all");
    p = none;
    p.x_name_count = 1;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_ARG, "image_plot: x_names is NULL, expected an array");
    p.x_name_count = 0;
    p.x_names = names;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_ARG, "image_plot: x_name_count is 0, expected 1 or more");
    p.x_name_count = 1;
    p.log_x = true;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_ARG,
         "image_plot: x_names are given and log_x is true, expected one of them");
    p = none;
    p.x_low = 3;
    p.x_high = 1;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_ARG, "image_plot: x_low is 3 and x_high is 1, expected x_low < x_high");
    p = none;
    p.log_y = true;
    p.y_high = 1;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_ARG, "image_plot: y_low is 0, expected more than 0 with log_y");
    p.y_low = 2;
    says(ctx, tn_image_plot(ctx, &s, 1, &p), TN_ERR_ARG, "image_plot: y_low is 2 and y_high is 1, expected y_low < y_high");
    tn_ctx_destroy(ctx);
}

/* ---- tiles */

TEST(tiles_share_a_scale_or_have_their_own)
{
    static const double values[4 * 4] = {1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, -4, -4, -4, -4};
    static const char *const captions[4] = {"+1", NULL, "+4", "-4"}, *const names[2] = {"first", "second"};
    tn_ctx       *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_tiles_desc d = ZERO;
    uint8_t       rgb[3];
    d.cell = 8;
    d.no_bar = true;
    d.captions = captions;
    d.row_names = d.column_names = names;
    tn_image *image = tn_image_tiles(ctx, values, 4, 2, 2, &d);
    for (int k = 0; k < 4; k++) {
        tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, values[4 * k] / 4, rgb);
        CHECK_INT(count_colour(image, rgb), 256);
    }
    tn_image_destroy(image);
    d.own_scales = true;
    image = tn_image_tiles(ctx, values, 4, 2, 2, &d);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1, rgb);
    CHECK_INT(count_colour(image, rgb), 3 * 256);
    tn_image_destroy(image);
    made(ctx, tn_image_tiles(ctx, NULL, 0, 28, 28, NULL));
    made(ctx, tn_image_tiles(ctx, NULL, 3, 0, 28, NULL));
    made(ctx, tn_image_tiles(ctx, values, 1, 1, 1, NULL));
    memset(&d, 0, sizeof d);
    d.rows = 3;                                             /* with places that stay empty */
    made(ctx, tn_image_tiles(ctx, values, 4, 1, 4, &d));
    d.rows = 0;
    d.columns = 3;
    d.scale = 3;
    made(ctx, tn_image_tiles(ctx, values, 4, 4, 1, &d));
    tn_ctx_destroy(ctx);
}

TEST(a_clip_ends_the_scale_at_a_percentile)
{
    enum { N = 40 };
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    tn_image_tiles_desc  t = ZERO;
    double         v[N * N], zero[4] = {0, 0, 0, 7};
    uint8_t        rgb[3];
    for (int i = 0; i < N * N; i++) v[i] = (i % 2 ? -1 : 1) * (double)(i * 7 % (N * N) + 1);     /* 1 ... 1600, each once */
    v[0] = (double)NAN;                                              /* was 1: 1599 numbers are left */
    d.cell = 3;
    d.no_bar = d.no_ticks = true;
    d.clip = 50;
    tn_image *image = tn_image_matrix(ctx, v, N, N, &d);
    REQUIRE(image != NULL);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1, rgb);                         /* the middle, 801, and all larger ones, by sign */
    {
        uint8_t blue[3];
        int64_t shown = 0;
        tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, -1, blue);
        shown = count_colour(image, rgb) + count_colour(image, blue);
        CHECK(shown >= 800 * 9 && shown <= 802 * 9);                  /* 1025 shades: the neighbour may share the last */
    }
    tn_image_destroy(image);
    d.clip = 0;
    image = tn_image_matrix(ctx, v, N, N, &d);
    CHECK(count_colour(image, rgb) <= 9);
    tn_image_destroy(image);
    d.clip = 50;                                                     /* most are zero: a clip there would show nothing */
    image = tn_image_matrix(ctx, zero, 2, 2, &d);
    CHECK_INT(count_colour(image, rgb), 9);
    tn_image_destroy(image);
    d.clip = 99;
    d.high = 1600;                                                   /* given ends are kept */
    image = tn_image_matrix(ctx, v, N, N, &d);
    CHECK(count_colour(image, rgb) <= 9);
    tn_image_destroy(image);
    d.clip = -1;
    refused(ctx, tn_image_matrix(ctx, v, N, N, &d), TN_ERR_ARG, "clip");
    t.clip = (double)NAN;
    refused(ctx, tn_image_tiles(ctx, v, 1, N, N, &t), TN_ERR_ARG, "clip");
    CLOSE_CTX(ctx);
}

/* The rank of percents from 0.1 to 99.9 in whole numbers: ceil(tenths n / 1000). */
TEST(percentiles_have_the_exact_rank)
{
    static const int64_t counts[] = {1, 7, 10, 100, 784, 1000, 10000, 100000};
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    double         v[1000];
    uint8_t        rgb[3];
    int            wrong = 0;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int64_t tenths = 1; tenths <= 1000; tenths++)
            wrong += tni_percentile_index((double)tenths / 10, counts[c]) != (tenths * counts[c] + 999) / 1000 - 1;
    CHECK_INT(wrong, 0);
    d.cell = 4;
    d.no_bar = d.no_ticks = true;
    d.clip = 99.9;
    for (int i = 0; i < 1000; i++) v[i] = i == 500 ? 1000 : 1;       /* one huge value of 1000 is beyond the scale */
    tn_image *image = tn_image_matrix(ctx, v, 25, 40, &d);
    REQUIRE(image != NULL);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1, rgb);
    CHECK_INT(count_colour(image, rgb), 1000 * 16);
    CLOSE_CTX(ctx);
}

/* Names and numbers make a grid larger and darker, and leave its cells as they are. */
TEST(tiles_have_names_and_numbers)
{
    static const double values[2 * 4] = {1, 2, 3, 4, -1, -2, -3, -4};
    static const char *const names[2] = {"a", "a name that is turned because it is wide"};
    tn_ctx       *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_tiles_desc d = ZERO;
    uint8_t       rgb[3];
    d.cell = 30;
    tn_image *plain = tn_image_tiles(ctx, values, 2, 2, 2, &d);
    d.x_names = d.y_names = names;
    d.x_title = d.y_title = "title";
    tn_image *named = tn_image_tiles(ctx, values, 2, 2, 2, &d);
    REQUIRE(plain && named);
    CHECK(named->width > plain->width + 60 && named->height > plain->height + 60);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 0.25, rgb);
    CHECK(count_colour(named, rgb) >= 900 && count_colour(plain, rgb) >= 900);
    CHECK(count_ink(named, TNI_TEXT_INK) > count_ink(plain, TNI_TEXT_INK));
    tn_image_destroy(plain);
    d.numbers = true;
    plain = tn_image_tiles(ctx, values, 2, 2, 2, &d);
    CHECK(plain->width == named->width && plain->height == named->height);
    CHECK(count_colour(plain, rgb) < count_colour(named, rgb));
    CLOSE_CTX(ctx);
}

/* ---- plots */

static tn_image_series series_of(const double *x, const double *y, int64_t count, tn_image_series_kind kind)
{
    tn_image_series s = ZERO;
    s.x = x;
    s.y = y;
    s.count = count;
    s.kind = kind;
    return s;
}

TEST(plots_of_every_odd_kind)
{
    static const double huge[6] = {1e308, -1e308, HUGE_VAL, (double)NAN, 1, 2}, same[3] = {7, 7, 7}, tiny[3] = {5e-324, 1e-310, 0};
    static const double close[3] = {1e15, 1e15 + 1, 1e15 + 2}, nothing[2] = {(double)NAN, (double)NAN}, wide[3] = {1e-290, 1, 1e290}, below[3] = {-1, 0, -2};
    static const double *const data[] = {huge, same, tiny, close, nothing, wide, below};
    static const int64_t       count[] = {6, 3, 3, 3, 2, 3, 3};
    test_heap    heap = {0, 0, 0, 0, false};
    tn_ctx      *ctx = ctx_in(&heap, TN_REAL, 0);
    tn_image_plot_desc d;
    char         text[3000];
    memset(text, 'w', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (int log = 0; log < 4; log++)
        for (int k = 0; k < 7; k++)
            for (int kind = 0; kind < 5; kind++) {
                tn_image_series s[2];
                memset(&d, 0, sizeof d);
                d.log_x = log & 1;
                d.log_y = log & 2;
                s[0] = series_of(NULL, data[k], count[k], (tn_image_series_kind)kind);
                s[0].low = below;
                if (kind == TN_IMAGE_SERIES_BAND && s[0].count > 3) s[0].count = 3;
                s[0].show_last = true;
                s[1] = series_of(data[k], data[k], count[k], TN_IMAGE_SERIES_LINE);
                s[1].dashed = true;
                s[1].name = text;
                made(ctx, tn_image_plot(ctx, s, 1, &d));
                made(ctx, tn_image_plot(ctx, s, 2, &d));
                s[0].count = 1;
                made(ctx, tn_image_plot(ctx, s, 1, &d));
                d.title = d.caption = d.x_title = d.y_title = text;
                d.width = d.height = 1;
                made(ctx, tn_image_plot(ctx, s, 2, &d));
            }
    made(ctx, tn_image_plot(ctx, NULL, 0, NULL));
    tn_ctx_destroy(ctx);
    CHECK_INT(heap.live, 0);
    CHECK_INT(heap.blocks, 0);
}

TEST(plots_draw_lines_bars_and_gaps)
{
    static const double y[5] = {1, 2, (double)NAN, 4, 3}, flat[2] = {1, 1}, signs[2] = {3, -3};
    tn_ctx      *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_plot_desc d = ZERO;
    tn_image_series    s[2];
    s[0] = series_of(NULL, y, 5, TN_IMAGE_SERIES_LINE);
    tn_image *image = tn_image_plot(ctx, s, 1, &d);
    CHECK_INT(image->width, 560);
    CHECK_INT(image->height, 360);
    int64_t with_gap = count_ink(image, 0x0072B2);
    CHECK(with_gap > 100);
    tn_image_destroy(image);
    {
        static const double whole[5] = {1, 2, 3, 4, 3};
        s[0] = series_of(NULL, whole, 5, TN_IMAGE_SERIES_LINE);
        image = tn_image_plot(ctx, s, 1, &d);
        int64_t all = count_ink(image, 0x0072B2);
        CHECK(all > with_gap);
        tn_image_destroy(image);
    }
    s[0] = series_of(NULL, signs, 2, TN_IMAGE_SERIES_BARS);                /* as much red as blue */
    image = tn_image_plot(ctx, s, 1, &d);
    CHECK(count_ink(image, tni_pack(TN_IMAGE_COLOURS_DIVERGING, 0.7)) > 1000);
    CHECK(llabs((long long)(count_ink(image, tni_pack(TN_IMAGE_COLOURS_DIVERGING, 0.7)) - count_ink(image, tni_pack(TN_IMAGE_COLOURS_DIVERGING, -0.7)))) < 200);
    tn_image_destroy(image);
    s[0] = series_of(NULL, flat, 2, TN_IMAGE_SERIES_LINE);                 /* a range that was asked for cuts what lies outside */
    d.y_low = 5;
    d.y_high = 6;
    image = tn_image_plot(ctx, s, 1, &d);
    CHECK_INT(count_ink(image, 0x0072B2), 0);
    tn_image_destroy(image);
    CLOSE_CTX(ctx);
}

static int64_t dark_right_of(const tn_image *image, int64_t x)
{
    int64_t n = 0;
    for (int64_t i = 0; i < image->width * image->height; i++) n += i % image->width >= x && image->pixels[3 * i] < 128;
    return n;
}

TEST(bands_markers_and_last_values)
{
    static const double y[3] = {4, 4, 4}, low[3] = {2, 2, 2}, rising[3] = {1, 2, 3};
    static const char *const names[3] = {"one", NULL, "three"};
    tn_ctx      *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_plot_desc d = ZERO;
    tn_image_series    s[2];
    d.y_low = 1;
    d.y_high = 5;
    s[0] = series_of(NULL, y, 3, TN_IMAGE_SERIES_BAND);
    s[0].low = low;
    tn_image *image = tn_image_plot(ctx, s, 1, &d);
    REQUIRE(image != NULL);
    uint8_t rgb[3] = {255 - 255 * 56 / 256, 0, 0};           /* strength 0.22: all pixels have one colour */
    memcpy(rgb, image->pixels + 3 * (image->width * (image->height / 2 - 12) + image->width / 2 + 21), 3);
    int64_t area = count_colour(image, rgb);
    CHECK(rgb[0] < 255 && rgb[0] > 150 && rgb[2] > rgb[0]);
    CHECK(area > image->width * image->height / 4 && area < image->width * image->height / 2);
    tn_image_destroy(image);
    s[0] = series_of(NULL, y, 3, TN_IMAGE_SERIES_LINE);                    /* a horizontal line has no markers */
    image = tn_image_plot(ctx, s, 1, &d);
    CHECK(dark_right_of(image, image->width - 20) == 0);
    tn_image_destroy(image);
    s[0] = series_of(NULL, rising, 3, TN_IMAGE_SERIES_LINE);
    CHECK(tni_has_markers(&s[0]));
    s[0] = series_of(NULL, y, 3, TN_IMAGE_SERIES_LINE);
    CHECK(!tni_has_markers(&s[0]));
    s[0].show_last = true;
    image = tn_image_plot(ctx, s, 1, &d);
    CHECK(dark_right_of(image, image->width - 31) > 5);              /* the 4 */
    tn_image_destroy(image);
    d.x_names = names;
    d.x_name_count = 3;
    {
        tni_plot p = ZERO;
        p.d = d;
        p.series = s;
        p.count = 1;
        p.f.scale = 1;
        tni_plot_plan(&p);
        CHECK_INT(p.x.ticks, 2);
        CHECK_STR(tni_plot_label(&p, 0), "one");
        CHECK_STR(tni_plot_label(&p, 1), "three");
    }
    CLOSE_CTX(ctx);
}

/* Four lines that end at one place, at the bottom: their labels are above each other within the axes, and all are whole. */
TEST(last_values_stay_within_the_axes)
{
    enum { MOST = 40 };
    static const uint8_t white[3] = {255, 255, 255};
    tn_ctx   *ctx = ctx_in(NULL, TN_REAL, 0);
    double    y[MOST][2];
    tn_image_series s[MOST];
    for (int k = 0; k < MOST; k++) {
        y[k][0] = k + 1;
        y[k][1] = k % 2 * 4;
        s[k] = series_of(NULL, y[k], 2, TN_IMAGE_SERIES_LINE);
        s[k].show_last = true;
    }
    for (int count = 1; count <= MOST; count++) {
        tni_plot p = ZERO;
        tni_last l[TNI_LAST_MOST];
        double   line = 1.1 * tni_small;
        p.d.y_high = 5;
        p.series = s;
        p.count = count;
        p.f.scale = 1;
        tni_plot_plan(&p);
        int n = tni_last_labels(&p, l);
        CHECK_INT(n, count < 24 ? count : 24);
        for (int k = 0; k < n; k++) {
            CHECK(l[k].y >= p.f.top && l[k].y <= p.f.top + p.f.body_height + 1e-9);
            if (k > 0) CHECK(l[k].y - l[k - 1].y >= line * (1 - 1e-9));
        }
        if (count > 4) continue;
        tn_image *image = tn_image_plot(ctx, s, count, &p.d);                  /* below the axes there are only their labels */
        for (int64_t i = image ? (image->height - 11) * image->width : 0; image && i < image->height * image->width; i++)
            CHECK(memcmp(image->pixels + 3 * i, white, 3) == 0);
        tn_image_destroy(image);
    }
    {
        static const double from[5] = {10, 10, 10, 50, 51}, to[5] = {5, 15, 25, 45.5, 55.5};
        tni_last l[5];
        for (int k = 0; k < 5; k++) l[k].y = from[k];
        tni_last_spread(l, 5, 10, 5, 100);
        for (int k = 0; k < 5; k++) CHECK_NEAR(l[k].y, to[k], 1e-12);
        for (int k = 0; k < 5; k++) l[k].y = from[k];
        tni_last_spread(l, 5, 10, 0, 100);
        CHECK_NEAR(l[0].y, 0, 1e-12);
        tni_last_spread(l, 5, 10, 0, 40);                            /* no place to spare */
        for (int k = 0; k < 5; k++) CHECK_NEAR(l[k].y, 10 * k, 1e-12);
    }
    CLOSE_CTX(ctx);
}

/* Both curves of a band are within the axes, whichever is higher, and points without one of them do not count. */
TEST(bands_fit_their_axes)
{
    static const double y[4] = {1, 2, 3, 900}, low[4] = {5, 7, 9, (double)NAN}, x[4] = {0, 1, 2, 1000};
    for (int k = 0; k < 4; k++) {
        const bool log = k % 2 != 0;
        tni_plot   p = ZERO;
        tn_image_series  s = series_of(x, k < 2 ? y : low, 4, TN_IMAGE_SERIES_BAND);
        s.low = k < 2 ? low : y;
        p.d.log_y = log;
        p.series = &s;
        p.count = 1;
        p.f.scale = 1;
        tni_plot_plan(&p);
        CHECK(p.y.low < (log ? 0 : 1) && p.y.low > (log ? -0.2 : 0));
        CHECK(p.y.high > (log ? log10(9) : 9) && p.y.high < (log ? 1.1 : 10));
        CHECK(p.x.high < 3);
    }
}

/* A legend is where no series is; where every corner is taken it is outside, or above bars; it does not repeat the title. Bars
   that leave a corner free give it no room above them. */
TEST(legends_hide_nothing)
{
    double    free_corner[40], busy[40];
    tn_image_series s[1];
    for (int kind = 0; kind < 5; kind++) {
        tni_plot p = ZERO;
        for (int i = 0; i < 40; i++) { free_corner[i] = kind == 3 ? 40 - i : -i; busy[i] = i % 2; }
        s[0] = series_of(NULL, kind == 1 || kind == 4 ? busy : free_corner, 40, kind > 2 ? TN_IMAGE_SERIES_BARS : TN_IMAGE_SERIES_LINE);
        s[0].name = "Loss";
        p.series = s;
        p.count = 1;
        p.upright = kind > 2;
        p.f.scale = 1;
        if (kind == 2) p.d.title = "loss";
        tni_plot_plan(&p);
        CHECK_INT(p.lines, kind == 2 ? 0 : 1);
        CHECK_INT(p.outside, kind == 1);
        CHECK_INT(p.above > 0, kind == 4);
        if (kind == 3) CHECK(p.y.high < 45);
        if (kind == 0 || kind > 2) {
            double low[2], high[2];
            low[0] = p.legend_x; low[1] = p.legend_y;
            high[0] = low[0] + p.legend_width; high[1] = low[1] + tni_legend_height(&p);
            CHECK_INT(tni_series_in_box(&p, s, low, high), 0);
            CHECK(low[0] >= p.x.from && high[0] <= p.x.to && low[1] >= p.y.to && high[1] <= p.y.from);
        }
    }
}

TEST(a_long_curve_is_drawn_in_time)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_REAL, 0);
    uint64_t state = 3;
    double  *y = (double *)malloc(300000 * sizeof *y);
    REQUIRE(y != NULL);
    for (int i = 0; i < 300000; i++) y[i] = test_random_real(&state);
    tn_image_series s = series_of(NULL, y, 300000, TN_IMAGE_SERIES_LINE);
    made(ctx, tn_image_plot(ctx, &s, 1, NULL));
    free(y);
    tn_ctx_destroy(ctx);
}

/* What a figure keeps for the SVG is bounded by its pixels, not by its data, and no kind of series vanishes. */
TEST(long_series_keep_little)
{
    enum { N = 200000 };
    tn_ctx  *ctx = ctx_in(NULL, TN_REAL, 0);
    uint64_t state = 3;
    double  *y = (double *)malloc(2 * N * sizeof *y);
    REQUIRE(y != NULL);
    for (int i = 0; i < N; i++) {
        y[i] = 2 + sin(1e-4 * i) + 0.1 * test_random_real(&state);
        y[N + i] = y[i] - 1;
    }
    for (int kind = 0; kind < 6; kind++) {                           /* 5: a dashed line */
        tn_image_series s = series_of(NULL, y, N, kind < 5 ? (tn_image_series_kind)kind : TN_IMAGE_SERIES_LINE);
        size_t    before = tn_ctx_memory(ctx).live, bytes = 0;
        s.dashed = kind == 5;
        s.low = y + N;
        tn_image *image = tn_image_plot(ctx, &s, 1, NULL);
        if (!CHECK(image != NULL)) continue;
        bool tight = kind == TN_IMAGE_SERIES_LINE || kind == TN_IMAGE_SERIES_BAND;
        CHECK(tn_ctx_memory(ctx).live - before < 560 * 360 * 3 + (size_t)(tight ? 2 : 10) * 1000000);
        CHECK_STATUS(tn_image_write_svg(image, tn_sink_memory(NULL, 0, &bytes)), TN_OK);
        CHECK(bytes < (size_t)(tight ? 250000 : 8000000));
        CHECK(count_ink(image, TNI_WHITE) < 560 * 360 * 9 / 10);     /* lines and grid alone leave more white */
        if (test_now.failures) printf("     kind %d: %zu bytes of SVG\n", kind, bytes);
        tn_image_destroy(image);
    }
    free(y);
    CLOSE_CTX(ctx);
}

/* A column of pixels keeps the first, the highest, the lowest and the last point of a line, in their order. */
TEST(curves_in_one_column_keep_four_points)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_REAL, 0);
    uint64_t state = 7;
    for (int turn = 0; turn < 50; turn++) {
        tni_canvas c = open_canvas(ctx, 40, 40);
        double     x = 10, y = 20, low = 20, high = 20, first = 20;
        bool       lowest = false, highest = false;
        size_t     from = tni_picture_of(c.image)->marks.count;
        for (int k = 0; k < 30; k++) {
            double next = k < 3 ? 23 + 3 * k : 5 + 30 * test_random_real(&state);
            tni_cover_segment(&c, x, y, x + 0.03, next, 0.85);
            x += 0.03;
            y = next;
            if (y < low) low = y;
            if (y > high) high = y;
        }
        const tni_mark *m = (const tni_mark *)tni_list_at(&tni_picture_of(c.image)->marks, from);
        if (!CHECK_INT(tni_picture_of(c.image)->marks.count - from, 3)) break;
        for (int k = 0; k < 3; k++) {
            if (k > 0) CHECK(m[k].v[0] == m[k - 1].v[2] && m[k].v[1] == m[k - 1].v[3] && m[k].v[0] > m[k - 1].v[0]);
            for (int end = 1; end < 4; end += 2) {
                lowest = lowest || m[k].v[end] == low;
                highest = highest || m[k].v[end] == high;
            }
        }
        CHECK(m[0].v[0] == 10 && m[0].v[1] == first && m[2].v[2] == x && m[2].v[3] == y);
        CHECK(lowest && highest);
        tn_image_destroy(tni_canvas_close(&c));
    }
    tn_ctx_destroy(ctx);
}

/* ---- all figures: same pixels, sizes at scale, memory */

enum { FIGURES = 5 };

static tn_image *figure(tn_ctx *ctx, int which, int scale)
{
    static const char *const names[4] = {"one", "two", "three", "four"};
    double         v[12 * 12];
    uint64_t       state = 11;
    tn_image_matrix_desc m = ZERO;
    tn_image_tiles_desc  t = ZERO;
    tn_image_plot_desc   p = ZERO;
    tn_image_series      s[2];
    for (int i = 0; i < 144; i++) v[i] = test_random_real(&state);
    m.scale = t.scale = p.scale = scale;
    m.title = t.title = p.title = "Title";
    m.caption = t.caption = p.caption = "A caption";
    m.x_title = m.y_title = p.x_title = p.y_title = "axis";
    t.row_names = t.column_names = t.captions = names;
    t.columns = 3;
    if (which == 0) return tn_image_matrix(ctx, v, 12, 12, &m);
    if (which == 1) return tn_image_tiles(ctx, v, 3, 6, 8, &t);
    if (which == 4) {                                       /* a percentile, names, numbers, a band */
        t.clip = 90;
        t.own_scales = t.numbers = true;
        t.x_names = t.y_names = names;
        return tn_image_tiles(ctx, v, 4, 3, 3, &t);
    }
    s[0] = series_of(NULL, v, 24, which == 2 ? TN_IMAGE_SERIES_LINE : TN_IMAGE_SERIES_BARS);
    s[1] = series_of(NULL, v + 24, 40, which == 2 ? TN_IMAGE_SERIES_POINTS : TN_IMAGE_SERIES_STEMS);
    s[0].name = s[1].name = "series";
    return tn_image_plot(ctx, s, 2, &p);
}

TEST(pixels_are_the_same_every_time)
{
    tn_ctx *a = ctx_in(NULL, TN_REAL, 0), *b = ctx_in(NULL, TN_REAL, 0);
    for (int which = 0; which < FIGURES; which++) {
        uint64_t first = hash(figure(a, which, 1));
        CHECK(first != 0);
        CHECK(first == hash(figure(a, which, 1)));
        CHECK(first == hash(figure(b, which, 1)));
        CHECK(first != hash(figure(b, (which + 1) % FIGURES, 1)));
    }
    tn_ctx_destroy(a);
    tn_ctx_destroy(b);
}

TEST(scale_makes_the_same_figure_finer)
{
    tn_ctx *ctx = ctx_in(NULL, TN_REAL, 0);
    for (int which = 0; which < FIGURES; which++) {
        tn_image *small = figure(ctx, which, 1), *large = figure(ctx, which, 3);
        REQUIRE(small && large);
        CHECK(llabs((long long)(small->width * 3 - large->width)) <= 12 && llabs((long long)(small->height * 3 - large->height)) <= 12);
    }
    tn_ctx_destroy(ctx);
}

TEST(failing_memory_is_an_error_without_a_leak)
{
    for (int which = 0; which < FIGURES; which++)
        for (uint64_t k = 1;; k++) {
            test_heap heap = {0, 0, 0, 0, false};
            tn_ctx   *ctx = ctx_in(&heap, TN_REAL, 0);
            size_t    live = heap.live;
            heap.fail_at = heap.count + k;
            tn_image *image = figure(ctx, which, 1);
            if (!image) {
                CHECK_INT(heap.live, live);
                CHECK_ERROR(ctx, TN_ERR_MEMORY, "image");
            }
            tn_ctx_destroy(ctx);
            CHECK_INT(heap.live, 0);
            if (image) { CHECK(k > 2); break; }
        }
}

TEST(a_memory_limit_is_kept)
{
    tn_ctx *ctx = NULL;
    tn_desc desc = ZERO;
    desc.max_bytes = 400000;
    tn_ctx_create(&desc, &ctx, NULL);
    REQUIRE(ctx != NULL);
    refused(ctx, figure(ctx, 2, 4), TN_ERR_MEMORY, "max_bytes");
    tn_ctx_destroy(ctx);
}

TEST(tensors_look_like_their_values)
{
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    const int64_t  all = 24;
    double         v[24];
    tn_tensor     *t = tn_tensor_3d(ctx, TN_F32, 2, 3, 4);
    tn_image_matrix_desc m = ZERO;
    for (int i = 0; i < 24; i++) v[i] = i - 11.5;
    CHECK_STATUS(tn_write(t, TN_F64, v, 24), TN_OK);
    tn_tensor *flat = tn_reshape_2d(t, 6, 4);
    CHECK(hash(tn_image_tiles_of(ctx, t, NULL)) == hash(tn_image_tiles(ctx, v, 2, 3, 4, NULL)));
    CHECK(hash(tn_image_matrix_of(ctx, flat, &m)) == hash(tn_image_matrix(ctx, v, 6, 4, &m)));
    CHECK(hash(tn_image_matrix_of(ctx, tn_transpose(flat, 0, 1), &m)) != hash(tn_image_matrix(ctx, v, 6, 4, &m)));
    CHECK(tn_image_matrix_of(ctx, tn_reshape(t, 1, &all), NULL) != NULL);
    CHECK_CTX(ctx);
    says(ctx, tn_image_matrix_of(ctx, t, NULL), TN_ERR_SHAPE, "image_matrix_of: t is [2,3,4], expected rank 0 to 2");
    says(ctx, tn_image_tiles_of(ctx, flat, NULL), TN_ERR_SHAPE, "image_tiles_of: t is [6,4], expected rank 3");
    says(ctx, tn_image_matrix_of(ctx, NULL, NULL), TN_ERR_ARG, "image_matrix_of: t is NULL");
    says(ctx, tn_image_tiles_of(ctx, NULL, NULL), TN_ERR_ARG, "image_tiles_of: t is NULL");
    tn_tensor *dead = tn_scale(ctx, flat, 2);
    tn_ctx_reset(ctx);
    says(ctx, tn_image_matrix_of(ctx, dead, NULL), TN_ERR_ARG, "image_matrix_of: t is a tensor of an arena that was reset");
    says(ctx, tn_image_tiles_of(ctx, dead, NULL), TN_ERR_ARG, "image_tiles_of: t is a tensor of an arena that was reset");
    tn_ctx_destroy(ctx);
}

/* ---- files */

TEST(ppm_holds_the_pixels)
{
    tn_ctx   *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image *image = figure(ctx, 0, 1);
    size_t    bytes = (size_t)(image->width * image->height * 3), used = 0;
    char      head[64], *file = (char *)malloc(bytes + 64);
    int       n = snprintf(head, sizeof head, "P6\n%d %d\n255\n", (int)image->width, (int)image->height);
    REQUIRE(file != NULL);
    CHECK_STATUS(tn_image_write_ppm(image, tn_sink_memory(file, bytes + 64, &used)), TN_OK);
    CHECK_INT(used, bytes + (size_t)n);
    CHECK(memcmp(file, head, (size_t)n) == 0 && memcmp(file + n, image->pixels, bytes) == 0);
    FAILS(ctx, tn_image_save_ppm(image, "no/such/folder/figure.ppm"), TN_ERR_FILE, "no/such/folder/figure.ppm");
    free(file);
    tn_ctx_destroy(ctx);
}

TEST(png_reads_back)
{
#ifdef HAVE_STB_IMAGE
    tn_ctx *ctx = ctx_in(NULL, TN_REAL, 0);
    for (int which = 0; which < FIGURES; which++) {
        tn_image *image = figure(ctx, which, 1);
        size_t    room = (size_t)(image->width * image->height * 4) + 4096, used = 0;
        uint8_t  *file = (uint8_t *)malloc(room);
        int       width = 0, height = 0, channels = 0;
        REQUIRE(file != NULL);
        CHECK_STATUS(tn_image_write_png(image, tn_sink_memory(file, room, &used)), TN_OK);
        uint8_t *back = stbi_load_from_memory(file, (int)used, &width, &height, &channels, 3);
        REQUIRE(back != NULL);
        CHECK(width == image->width && height == image->height && channels == 3);
        CHECK(memcmp(back, image->pixels, (size_t)(width * height * 3)) == 0);
        stbi_image_free(back);
        free(file);
    }
    FAILS(ctx, tn_image_save_png(figure(ctx, 0, 1), "no/such/folder/figure.png"), TN_ERR_FILE, "no/such/folder/figure.png");
    tn_ctx_destroy(ctx);
#else
#ifndef HAVE_STB_IMAGE_WRITE
    tn_ctx *ctx = ctx_in(NULL, TN_REAL, 0);
    FAILS(ctx, tn_image_save_png(figure(ctx, 0, 1), "figure.png"), TN_ERR_FILE, "image_write_png: stb_image_write.h is missing");
    tn_ctx_destroy(ctx);
#endif
    SKIP("stb", "stb_image_write.h and stb_image.h (libstb-dev)");
#endif
}

/* ---- SVG */

static char *svg_of(const tn_image *image, size_t *bytes)
{
    size_t again = 0;
    *bytes = 0;
    CHECK_STATUS(tn_image_write_svg(image, tn_sink_memory(NULL, 0, bytes)), TN_OK);
    char *file = (char *)malloc(*bytes + 1);
    if (!CHECK(file != NULL)) return NULL;
    CHECK_STATUS(tn_image_write_svg(image, tn_sink_memory(file, *bytes, &again)), TN_OK);
    CHECK_INT(again, *bytes);
    file[*bytes] = 0;
    return file;
}

static int64_t count_text(const char *s, const char *part)
{
    int64_t n = 0;
    for (; (s = strstr(s, part)) != NULL; s += strlen(part)) n++;
    return n;
}

static void hex_of(tn_image_colours colours, double t, char text[32])
{
    uint8_t rgb[3];
    tn_image_colour(colours, t, rgb);
    snprintf(text, 32, "fill=\"#%02x%02x%02x\"", rgb[0], rgb[1], rgb[2]);
}

TEST(svg_has_every_cell_and_escapes_text)
{
    static const double values[6] = {0, 2, -2, 1, -0.5, (double)NAN};
    static const char   odd[] = "a<b & \"c\" > d \x01\xFF \xCE\xBB -1";
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    char           colour[32];
    size_t         bytes;
    d.cell = 9;
    d.scale = 2;
    d.no_bar = true;
    d.title = odd;
    tn_image *image = tn_image_matrix(ctx, values, 2, 3, &d);
    REQUIRE(image != NULL);
    char *svg = svg_of(image, &bytes);
    REQUIRE(svg != NULL);
    CHECK(strncmp(svg, "<svg ", 5) == 0 && bytes > 7 && strcmp(svg + bytes - 7, "</svg>\n") == 0);
    for (int k = 0; k < 6; k++) {
        hex_of(TN_IMAGE_COLOURS_DIVERGING, values[k] / 2, colour);
        CHECK(count_text(svg, colour) >= 1);
    }
    CHECK_INT(count_text(svg, "width=\"18\" height=\"18\""), 6);    /* cells, in pixels of scale 2 */
    CHECK(strstr(svg, "a&lt;b &amp; \"c\" &gt; d \xEF\xBF\xBD\xEF\xBF\xBD \xCE\xBB \xE2\x88\x92" "1</text>") != NULL);
    for (size_t i = 0; i < bytes; i++) CHECK((unsigned char)svg[i] >= 32 || svg[i] == '\n');
    free(svg);
    tn_image_destroy(image);
    CHECK_STATUS(tn_image_write_svg(NULL, tn_sink_memory(NULL, 0, NULL)), TN_ERR_ARG);
    FAILS(ctx, tn_image_save_svg(figure(ctx, 0, 1), "no/such/folder/figure.svg"), TN_ERR_FILE, "no/such/folder/figure.svg");
    tn_ctx_destroy(ctx);
}

/* Base64 back to bytes; returns their number. */
static size_t decode(const char *s, uint8_t *to)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t   n = 0;
    uint32_t bits = 0;
    int      have = 0;
    for (const char *at; *s && (at = strchr(digit, *s)) != NULL; s++) {
        bits = bits << 6 | (uint32_t)(at - digit);
        have += 6;
        if (have >= 8) to[n++] = (uint8_t)(bits >> (have -= 8));
    }
    return n;
}

/* Many cells are a PNG, whose stored rows are those colours; a picture without marks is one as well. */
/* Names that would touch are turned; those that have room are not. */
TEST(names_below_a_plot_are_turned)
{
    static const char *const narrow[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    static const char *const wide[] = {"a", "fifteen letters", "fifteen letters", "d", "e", "f", "g", "h"};
    static const char *const alone[] = {"a", "b", "fifteen letters", "d", "e", "f", "g", "h"};
    static const double      y[8] = {1, 2, 3, 2, 4, 5, 4, 3};
    tn_ctx      *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_series    s = ZERO;
    tn_image_plot_desc p = ZERO;
    s.y = y;
    p.x_name_count = s.count = 8;
    for (int k = 0; k < 3; k++) {
        size_t bytes;
        p.x_names = k == 0 ? narrow : k == 1 ? wide : alone;
        tn_image *image = tn_image_plot(ctx, &s, 1, &p);
        REQUIRE(image != NULL);
        CHECK(image->width == 560 && image->height > 350 && image->height < 370);
        char *file = svg_of(image, &bytes);
        CHECK_INT(count_text(file, "rotate("), k == 1 ? 8 : 0);
        free(file);
    }
    CLOSE_CTX(ctx);
}

/* All numbers of a matrix have one size, and none is cut: 0.0123 would be, so all have three decimals. */
TEST(numbers_fit_their_cells)
{
    static const double values[4] = {-0.0123456, 0.654321, -0.3219, 0};
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    size_t         bytes;
    d.numbers = d.no_bar = d.no_ticks = true;
    d.cell = 34;
    tn_image *image = tn_image_matrix(ctx, values, 2, 2, &d);
    REQUIRE(image != NULL);
    char *file = svg_of(image, &bytes);
    CHECK(strstr(file, "0.012</text>") && strstr(file, ">0.654</text>") && strstr(file, "0.322</text>") && strstr(file, ">0</text>"));
    CHECK_INT(count_text(file, "..."), 0);
    free(file);
    tn_image_destroy(image);
    d.cell = 60;                                                     /* enough for three digits of each */
    image = tn_image_matrix(ctx, values, 2, 2, &d);
    REQUIRE(image != NULL);
    file = svg_of(image, &bytes);
    CHECK(strstr(file, "0.0123</text>") && strstr(file, "font-size=\"12\""));
    free(file);
    CLOSE_CTX(ctx);
}

TEST(svg_embeds_large_matrices)
{
    enum { N = 70 };
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    double         v[N * N];
    uint8_t       *png, rgb[3];
    size_t         bytes, n;
    uint64_t       state = 5;
    d.no_bar = d.no_ticks = true;
    d.low = -1;
    d.high = 1;
    for (int i = 0; i < N * N; i++) v[i] = (double)test_random_int(&state, -4, 4) / 4;
    tn_image *image = tn_image_matrix(ctx, v, N, N, &d);
    REQUIRE(image != NULL);
    char *svg = svg_of(image, &bytes);
    REQUIRE(svg != NULL);
    char *data = strstr(svg, "data:image/png;base64,");
    REQUIRE(data != NULL);
    png = (uint8_t *)malloc(bytes);
    REQUIRE(png != NULL);
    n = decode(data + strlen("data:image/png;base64,"), png);
    CHECK_INT(n, 8 + 25 + 12 + 2 + 4 + N * (3 * N + 6) + 12);
    size_t at = 8;                                                   /* the lengths of its pieces lead to the end */
    while (at + 12 <= n) at += 12 + ((size_t)png[at] << 24 | (size_t)png[at + 1] << 16 | (size_t)png[at + 2] << 8 | (size_t)png[at + 3]);
    CHECK_INT(at, n);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, v[i * N + j], rgb);
            CHECK(memcmp(png + 8 + 25 + 8 + 2 + i * (3 * N + 6) + 6 + 3 * j, rgb, 3) == 0);
        }
#ifdef HAVE_STB_IMAGE                   /* lengths and sums are right, too */
    {
        int      width = 0, height = 0, channels = 0;
        uint8_t *back = stbi_load_from_memory(png, (int)n, &width, &height, &channels, 3);
        CHECK(back != NULL && width == N && height == N && channels == 3);
        tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, v[N * N - 1], rgb);
        if (back) CHECK(memcmp(back + 3 * (N * N - 1), rgb, 3) == 0);
        stbi_image_free(back);
    }
#endif
    free(svg);
    free(png);
    tn_image_destroy(image);
    image = tn_image_create(ctx, 30000, 2);                          /* wider than a block: two strips */
    REQUIRE(image != NULL);
    svg = svg_of(image, &bytes);
    if (svg) CHECK_INT(count_text(svg, "<image "), 2);
    free(svg);
    CLOSE_CTX(ctx);
}

/* The exception of the colour bar is not one for matrices of one column. */
TEST(svg_embeds_large_columns)
{
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    size_t         bytes;
    double         v[5000];
    for (int i = 0; i < 5000; i++) v[i] = i;
    d.cell = 1;
    d.no_ticks = true;
    for (int across = 0; across < 2; across++) {
        tn_image *image = tn_image_matrix(ctx, v, across ? 1 : 5000, across ? 5000 : 1, &d);
        REQUIRE(image != NULL);
        char *svg = svg_of(image, &bytes);
        REQUIRE(svg != NULL);
        CHECK_INT(count_text(svg, "<image "), 1);
        CHECK(count_text(svg, "<rect ") < 1500);
        free(svg);
        tn_image_destroy(image);
    }
    CLOSE_CTX(ctx);
}

/* Every text has the width that the layout reserved for it, and keeps its blanks. */
TEST(svg_text_has_its_measured_width)
{
    static const double value[1] = {1};
    tn_ctx        *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc d = ZERO;
    size_t         bytes;
    d.title = "a  title";
    tn_image *image = tn_image_matrix(ctx, value, 1, 1, &d);
    REQUIRE(image != NULL);
    char *svg = svg_of(image, &bytes);
    REQUIRE(svg != NULL);
    CHECK_INT(count_text(svg, " textLength=\""), count_text(svg, "<text "));
    CHECK_INT(count_text(svg, " lengthAdjust=\"spacingAndGlyphs\""), count_text(svg, "<text "));
    char *text = strstr(svg, " textLength=\"");                            /* the title is the first text */
    REQUIRE(text != NULL);
    CHECK_NEAR(atof(text + strlen(" textLength=\"")), tni_label_width(d.title, tni_large), 0.005001);
    CHECK(strstr(svg, ">a  title</text>") != NULL);
    CHECK_INT(count_text(svg, "xml:space=\"preserve\""), 1);
    free(svg);
    tn_ctx_destroy(ctx);
}

/* The SVG has each shape, also where it hides an earlier one: a marker and the white ring around it. */
TEST(svg_has_markers_and_their_rings)
{
    static const double y[3] = {1, 3, 2};
    tn_ctx   *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_series s = series_of(NULL, y, 3, TN_IMAGE_SERIES_LINE);
    tn_image *image = tn_image_plot(ctx, &s, 1, NULL);
    size_t    bytes;
    REQUIRE(image != NULL);
    char *svg = svg_of(image, &bytes);
    REQUIRE(svg != NULL);
    CHECK_INT(count_text(svg, "r=\"4\" fill=\"#ffffff\""), 3);
    CHECK_INT(count_text(svg, "r=\"2.8\" fill=\"#0072b2\""), 3);
    CHECK_INT(count_text(svg, "<path "), 1);
    free(svg);
    tn_ctx_destroy(ctx);
}

/* Titles with the line ends of Windows look like those with "\n". */
TEST(titles_with_crlf)
{
    static const double value[1] = {1};
    static const char *const title[] = {"one\ntwo\n\nthree", "one\r\ntwo\r\n\r\nthree", "one\rtwo"};
    tn_ctx  *ctx = ctx_in(NULL, TN_REAL, 0);
    uint64_t seen[3];
    for (int k = 0; k < 3; k++) {
        tn_image_matrix_desc d = ZERO;
        d.title = d.caption = title[k];
        d.size = 400;
        d.cell = 300;
        seen[k] = hash(tn_image_matrix(ctx, value, 1, 1, &d));
    }
    CHECK(seen[0] == seen[1] && seen[0] != 0 && seen[0] != seen[2]);
    CLOSE_CTX(ctx);
}

/* Figures of every kind, read by another parser of XML. */
TEST(svg_is_well_formed)
{
    tn_ctx *ctx = ctx_in(NULL, TN_REAL, 0);
    char    path[64], command[256];
    bool    parser = system("xmllint --version >/dev/null 2>&1") == 0;
    snprintf(path, sizeof path, "test_image_%llu.svg", (unsigned long long)(uintptr_t)ctx);
    for (int which = 0; which < FIGURES; which++) {
        tn_image *image = figure(ctx, which, 1);
        size_t    bytes;
        char     *svg = svg_of(image, &bytes);
        REQUIRE(svg != NULL);
        CHECK_INT(count_text(svg, "<g"), count_text(svg, "</g>"));
        CHECK_INT(count_text(svg, "<svg"), count_text(svg, "</svg>"));
        CHECK(count_text(svg, "<text") >= 4);
        CHECK_INT(count_text(svg, "<text"), count_text(svg, "</text>"));
        free(svg);
        if (!parser) continue;
        CHECK_STATUS(tn_image_save_svg(image, path), TN_OK);
        snprintf(command, sizeof command, "xmllint --noout %s", path);
        CHECK_INT(system(command), 0);
        remove(path);
    }
    tn_ctx_destroy(ctx);
    if (!parser) SKIP("xmllint", "xmllint (libxml2-utils)");
}

/* A title that has no room above the body is centred on the picture; none comes near its sides. */
TEST(titles_keep_their_margin)
{
    static const double y[2] = {1, 2};
    static const char   name[] = "a series with a long name";
    tn_ctx      *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_plot_desc d = ZERO;
    tn_image_series    s[7];
    char         title[90];
    for (int k = 0; k < 7; k++) {                   /* a legend at the right: the body is left of the middle */
        s[k] = series_of(NULL, y, 2, TN_IMAGE_SERIES_LINE);
        s[k].name = name;
    }
    for (int n = 1; n < 80; n += 3) {
        int64_t ink = 0, inside = 0;
        memset(title, 'H', (size_t)n);
        title[n] = 0;
        d.title = title;
        tn_image *image = tn_image_plot(ctx, s, 7, &d);
        if (!CHECK(image != NULL)) break;
        for (int64_t i = 0; i < 30; i++)
            for (int64_t j = 0; j < image->width; j++) {
                const uint8_t *rgb = image->pixels + 3 * (i * image->width + j);
                bool           dark = rgb[0] + rgb[1] + rgb[2] < 3 * 255;
                if (j < 11 || j >= image->width - 11) ink += dark;
                else inside += dark;
            }
        CHECK_INT(ink, 0);
        CHECK(inside > 0);
        tn_image_destroy(image);
    }
    CLOSE_CTX(ctx);
}

/* What a logarithmic axis shows is above zero: bars of one colour. */
TEST(bars_of_logarithmic_axes)
{
    static const double y[3] = {1, 100, 10};
    tn_ctx      *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_plot_desc d = ZERO;
    d.log_y = true;
    tn_image_series s = series_of(NULL, y, 3, TN_IMAGE_SERIES_BARS);
    tn_image *image = tn_image_plot(ctx, &s, 1, &d);
    REQUIRE(image != NULL);
    CHECK(count_ink(image, tni_pack(TN_IMAGE_COLOURS_DIVERGING, 0.7)) > 1000);
    CHECK_INT(count_ink(image, tni_pack(TN_IMAGE_COLOURS_DIVERGING, -0.7)), 0);
    tn_image_destroy(image);
    tn_ctx_destroy(ctx);
}

/* A legend inside the body is no wider than that. */
TEST(legends_of_narrow_plots)
{
    static const double y[2] = {1, 2};
    static const char   name[] = "a series with a name that is much too long for this";
    for (int lines = 1; lines <= 8; lines++) {
        tni_plot  p = ZERO;
        tn_image_series s[8];
        for (int k = 0; k < lines; k++) {
            s[k] = series_of(NULL, y, 2, TN_IMAGE_SERIES_LINE);
            s[k].name = name;
        }
        p.series = s;
        p.count = lines;
        p.d.width = 150;
        p.f.scale = 1;
        tni_plot_plan(&p);
        CHECK_INT(p.lines, lines);
        if (!p.outside) CHECK(p.legend_width <= p.f.body_width - 12);
        else CHECK(p.f.right > p.legend_width);
        if (lines > TNI_LEGEND_INSIDE) CHECK(p.outside);
    }
}

/* A bar is 64 pixels high, and reaches 12 below a matrix of 40, into the room of its numbers; a row of tiles is followed by its
   captions and a gap. */
TEST(bars_and_captions_keep_their_margin)
{
    static const char *const captions[] = {"one", "two"};
    const double  v[2 * 64] = {0};
    tn_ctx       *ctx = ctx_in(NULL, TN_REAL, 0);
    tn_image_matrix_desc m = ZERO;
    tn_image_tiles_desc  t = ZERO;
    m.cell = t.cell = 10;
    t.no_bar = true;
    t.captions = captions;
    t.columns = 1;
    tn_image *flat = tn_image_matrix(ctx, v, 4, 8, &m), *high = tn_image_matrix(ctx, v, 8, 8, &m);
    tn_image *one = tn_image_tiles(ctx, v, 1, 8, 8, &t), *two = tn_image_tiles(ctx, v, 2, 8, 8, &t);
    REQUIRE(flat && high && one && two);
    CHECK_INT(high->height - flat->height, 80 - 64 + 12);
    CHECK_INT(two->height - one->height, 80 + 20 + 4);
    CLOSE_CTX(ctx);
}

TEST_MAIN(colours_are_white_at_zero_symmetric_and_monotone, colours_beyond_the_ends_are_those_of_the_ends, glyphs_are_well_formed,
          every_character_looks_different_and_stays_in_its_place, letters_beyond_ascii_are_drawn_and_differ, a_clip_ends_the_scale_at_a_percentile,
          percentiles_have_the_exact_rank, tiles_have_names_and_numbers, bands_markers_and_last_values, legends_hide_nothing, svg_has_every_cell_and_escapes_text,
          svg_embeds_large_matrices, svg_is_well_formed, characters_are_read_as_utf8, labels_shrink_and_are_cut_but_stay_in_their_room,
          ticks_are_round_and_their_labels_say_so, ticks_of_logarithmic_axes, numbers_are_short, matrix_shows_each_value_in_its_colour,
          large_matrices_show_means, a_mean_ignores_nan, numbers_can_be_read_in_dark_cells,
          matrices_of_every_odd_kind, refusals_say_why, tiles_share_a_scale_or_have_their_own, plots_of_every_odd_kind,
          plots_draw_lines_bars_and_gaps, a_long_curve_is_drawn_in_time, pixels_are_the_same_every_time, scale_makes_the_same_figure_finer,
          failing_memory_is_an_error_without_a_leak, a_memory_limit_is_kept, tensors_look_like_their_values, ppm_holds_the_pixels, png_reads_back,
          last_values_stay_within_the_axes, bands_fit_their_axes, long_series_keep_little, curves_in_one_column_keep_four_points,
          svg_embeds_large_columns, svg_text_has_its_measured_width, svg_has_markers_and_their_rings, titles_with_crlf, a_refused_matrix_says_why,
          refused_tiles_say_why, a_refused_plot_says_why, titles_keep_their_margin, bars_of_logarithmic_axes, legends_of_narrow_plots,
          names_below_a_plot_are_turned, numbers_fit_their_cells, bars_and_captions_keep_their_margin)
