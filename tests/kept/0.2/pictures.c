/* Draws a matrix, tiles and curves, and looks at the pixels and the files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tensornet.h"

static int failures;

static void check(const char *what, double value, double expected, double within)
{
    const bool right = fabs(value - expected) <= within;
    printf("%-48s %.6g%s\n", what, value, right ? "" : "   FAIL");
    failures += !right;
}

/* Pixels of a colour. */
static long count(const tn_image *image, const uint8_t rgb[3])
{
    long n = 0;
    for (int64_t i = 0; image && i < image->width * image->height; i++) n += memcmp(image->pixels + 3 * i, rgb, 3) == 0;
    return n;
}

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(NULL, &ctx, NULL) != TN_OK) return 1;
    uint8_t red[3], white[3], blue[3], grey[3];
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 1, red);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, 0, white);
    tn_image_colour(TN_IMAGE_COLOURS_DIVERGING, -1, blue);
    tn_image_colour(TN_IMAGE_COLOURS_SEQUENTIAL, NAN, grey);
    check("positive is red, negative blue", red[0] > red[2] && blue[2] > blue[0], 1, 0);
    check("zero is white", white[0] + white[1] + white[2], 765, 0);
    check("NaN is grey", grey[0] == grey[1] && grey[1] == grey[2] && grey[0] < 255, 1, 0);

    const double values[4] = {1, -1, 0, 0.5};
    tn_image_matrix_desc d = {.title = "four numbers", .cell = 20, .no_bar = true, .no_ticks = true};
    tn_image *image = tn_image_matrix(ctx, values, 2, 2, &d);
    check("a cell of 20 pixels is red", (double)count(image, red), 400, 60);
    check("one is blue", (double)count(image, blue), 400, 60);
    const int64_t shape[2] = {2, 2};
    tn_image *same = tn_image_matrix_of(ctx, tn_tensor_from(ctx, 2, shape, TN_F64, values), &d);
    check("drawn from a tensor", same && image && memcmp(same->pixels, image->pixels, (size_t)(3 * image->width * image->height)), 0, 0);
    d.scale = 2;
    check("twice as large", (double)tn_image_matrix(ctx, values, 2, 2, &d)->width, 2 * (double)image->width, 1);

    const char *captions[2] = {"+1", "-1"};
    tn_image_tiles_desc t = {.columns = 2, .rows = 1, .captions = captions, .own_scales = true};
    tn_image *tiles = tn_image_tiles(ctx, values, 2, 1, 2, &t);
    check("tiles side by side", tiles && tiles->width > tiles->height, 1, 0);
    const int64_t three[3] = {2, 1, 2};
    check("from a tensor", tn_image_tiles_of(ctx, tn_tensor_from(ctx, 3, three, TN_F64, values), NULL) != NULL, 1, 0);

    tn_image_series series[2] = {{.name = "a line", .y = values, .count = 4},
                                 {.name = "bars", .y = values, .count = 4, .kind = TN_IMAGE_SERIES_BARS}};
    tn_image *plot = tn_image_plot(ctx, series, 2, &(tn_image_plot_desc){.title = "curves", .x_title = "x"});
    check("a plot has the default size", plot ? (double)(plot->width * 1000 + plot->height) : 0, 560360, 0);

    char  *file = (char *)malloc(1 << 20);
    size_t used = 0;
    check("as SVG", tn_image_write_svg(plot, tn_sink_memory(file, (1 << 20) - 1, &used)), TN_OK, 0);
    file[used] = 0;
    check("with its words", strstr(file, "<svg") && strstr(file, "curves") && strstr(file, "a line"), 1, 0);
    check("as PPM", tn_image_write_ppm(plot, tn_sink_memory(file, 1 << 20, &used)), TN_OK, 0);
    check("magic of a PPM", file[0] == 'P' && file[1] == '6', 1, 0);
    check("bytes", (double)used, 560 * 360 * 3, 40);
    free(file);
    check("a file", tn_image_save_svg(image, "picture.svg") == TN_OK && tn_image_save_ppm(image, "picture.ppm") == TN_OK, 1, 0);
    check("no writer of PNG was included", tn_image_save_png(image, "picture.png"), TN_ERR_FILE, 0);
    tn_ctx_clear_error(ctx);
    tn_image *blank = tn_image_create(ctx, 7, 5);
    check("a white picture", (double)count(blank, white), 35, 0);
    tn_image_destroy(blank);
    check("no error is left", tn_ctx_status(ctx), TN_OK, 0);
    tn_ctx_destroy(ctx);
    return failures != 0;
}
