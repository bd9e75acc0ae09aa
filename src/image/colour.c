#include "core/inner.h"
#include "image/inner.h"

#ifndef TN_NO_IMAGE
/* ======================================================================
   >>image-impl matrices and curves as pixels
   A figure measures its text, creates a picture of the size that it needs, and draws it shape by shape.
   One shape's coverage is collected in bytes, 255 for a pixel wholly inside; then its colour is mixed
   in by coverage. So strokes that cross within a shape do not darken each other.
   Lengths in the code are in pixels at scale 1, times the canvas' scale where they are used.
   ====================================================================== */

TNI_FN tni_picture *tni_picture_of(const tn_image *image)
{
    return (tni_picture *)(void *)((char *)(uintptr_t)image - offsetof(tni_picture, image));
}

static void tni_picture_free(tni_owned *owned)
{
    tni_picture *p = (tni_picture *)(void *)owned;
    tni_list_free(owned->ctx, &p->marks);
    tni_list_free(owned->ctx, &p->letters);
    tni_free(owned->ctx, p->image.pixels, (size_t)p->image.height * (size_t)p->image.width * 3);
    tni_object_free(owned, sizeof *p);
}

tn_image *tn_image_create(tn_ctx *ctx, int64_t width, int64_t height)
{
    size_t bytes;
    if (!ctx) return NULL;
    if (width < 1 || height < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "image_create: %s is %lld, expected 1 or more", width < 1 ? "width" : "height",
                        (long long)(width < 1 ? width : height)), (tn_image *)NULL;
    if (!tni_area_size(width, height, 3, &bytes))
        return tni_fail(ctx, TN_ERR_SHAPE, "image_create: %lld x %lld pixels are larger than the address space",
                        (long long)width, (long long)height), (tn_image *)NULL;
    tni_picture *p = (tni_picture *)tni_object(ctx, sizeof *p, "image", tni_picture_free);
    if (!p) return NULL;
    p->scale = 1;
    p->marks.each = sizeof(tni_mark);
    p->letters.each = 1;
    p->image.ctx = ctx;
    p->image.width = width;
    p->image.height = height;
    p->image.pixels = (uint8_t *)tni_alloc(ctx, bytes, "image");
    if (!p->image.pixels) return tni_picture_free(&p->owned), (tn_image *)NULL;
    memset(p->image.pixels, 255, bytes);
    return &p->image;
}

void tn_image_destroy(tn_image *image) { if (image) tni_picture_free(&tni_picture_of(image)->owned); }

/* ---- colour ------------------------------------------------- >>image-colour
   A map is a smooth curve through a few points in Oklab, a space in which equal distances look equal.
   Lightness decreases evenly from white, equally on both arms of the diverging map.
   Ottosson 2020 (Oklab), Catmull & Rom 1974 (the curve). */
enum { TNI_KNOTS = 5 };

typedef struct tni_lch { double lightness, chroma, hue; } tni_lch;

static const tni_lch tni_red[TNI_KNOTS]  = {{1, 0, 0}, {.88, .072, 47}, {.72, .158, 38}, {.55, .188, 29}, {.38, .140, 22}};
static const tni_lch tni_blue[TNI_KNOTS] = {{1, 0, 0}, {.88, .058, 242}, {.72, .115, 248}, {.55, .142, 256},
                                            {.38, .125, 264}};
static const tni_lch tni_sea[TNI_KNOTS]  = {{1, 0, 0}, {.86, .100, 135}, {.68, .105, 180}, {.48, .105, 240},
                                            {.27, .095, 275}};

static void tni_lch_point(const tni_lch *map, int knot, double lab[3])
{
    double turn = map[knot].hue * 0.017453292519943295;
    lab[0] = map[knot].lightness;
    lab[1] = map[knot].chroma * cos(turn);
    lab[2] = map[knot].chroma * sin(turn);
}

static uint8_t tni_srgb(double linear)
{
    double v = linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1 / 2.4) - 0.055;
    return (uint8_t)(v <= 0 ? 0 : v >= 1 ? 255 : v * 255 + 0.5);
}

static void tni_oklab_to_rgb(const double lab[3], uint8_t rgb[3])
{
    double l = lab[0] + 0.3963377774 * lab[1] + 0.2158037573 * lab[2];
    double m = lab[0] - 0.1055613458 * lab[1] - 0.0638541728 * lab[2];
    double s = lab[0] - 0.0894841775 * lab[1] - 1.2914855480 * lab[2];
    l *= l * l; m *= m * m; s *= s * s;
    rgb[0] = tni_srgb(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s);
    rgb[1] = tni_srgb(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s);
    rgb[2] = tni_srgb(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s);
}

static void tni_map_colour(const tni_lch *map, double t, uint8_t rgb[3])     /* 0 <= t <= 1 */
{
    double p[4][3], lab[3], at = t * (TNI_KNOTS - 1);
    int    knot = (int)tni_min((int64_t)at, TNI_KNOTS - 2);
    double x = at - knot;
    for (int k = 0; k < 4; k++) tni_lch_point(map, (int)tni_max(0, tni_min(knot + k - 1, TNI_KNOTS - 1)), p[k]);
    for (int i = 0; i < 3; i++) {
        if (knot == 0) p[0][i] = 2 * p[1][i] - p[2][i];                        /* straight on at the ends */
        if (knot == TNI_KNOTS - 2) p[3][i] = 2 * p[2][i] - p[1][i];
        lab[i] = p[1][i] + x / 2 * (p[2][i] - p[0][i] + x * (2 * p[0][i] - 5 * p[1][i] + 4 * p[2][i] - p[3][i]
               + x * (3 * (p[1][i] - p[2][i]) + p[3][i] - p[0][i])));
    }
    tni_oklab_to_rgb(lab, rgb);
}

TNI_FN void tni_unpack(uint32_t ink, uint8_t rgb[3])
{
    rgb[0] = (uint8_t)(ink >> 16);
    rgb[1] = (uint8_t)(ink >> 8 & 255);
    rgb[2] = (uint8_t)(ink & 255);
}

void tn_image_colour(tn_image_colours colours, double t, uint8_t rgb[3])
{
    double size = t < 0 ? -t : t;
    if (t != t) tni_unpack(TNI_NAN_INK, rgb);
    else if (colours == TN_IMAGE_COLOURS_SEQUENTIAL) tni_map_colour(tni_sea, t < 0 ? 0 : t > 1 ? 1 : t, rgb);
    else tni_map_colour(t < 0 ? tni_blue : tni_red, size > 1 ? 1 : size, rgb);
}

#endif /* TN_NO_IMAGE */
