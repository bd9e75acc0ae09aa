#include "core/inner.h"
#include "io/inner.h"
#include "image/inner.h"

#ifndef TENSORNET_IMPLEMENTATION        /* the one header has it if it is included before the implementation */
#ifdef HAVE_STB_IMAGE_WRITE
#include <stb_image_write.h>
#endif
#endif

#ifndef TN_NO_IMAGE
/* ---- files -------------------------------------------------- >>image-files
   The writer is the one of weights, so that a picture is replaced completely or not at all. */
static bool tni_is_image(const tn_image *image) { return image && image->ctx && image->pixels; }

#ifdef INCLUDE_STB_IMAGE_WRITE_H
static void tni_png_piece(void *writer, void *data, int bytes) { tni_put((tni_writer *)writer, data, (size_t)bytes); }

tn_status tn_image_write_png(const tn_image *image, tn_sink sink)
{
    tni_writer w;
    if (!tni_is_image(image)) return TN_ERR_ARG;
    if (image->width > 0x7FFFFFFF / 3 - 1 || image->height > 0x7FFFFFFF / (3 * image->width + 1))
        return tni_fail(image->ctx, TN_ERR_SHAPE, "image_write_png: %lld x %lld pixels are too many for stb_image_write",
                        (long long)image->width, (long long)image->height);
    tni_writer_open(&w, image->ctx, &sink);
    if (w.status == TN_OK && !stbi_write_png_to_func(tni_png_piece, &w, (int)image->width, (int)image->height, 3,
                                                     image->pixels, (int)image->width * 3))
        tni_writer_fail(&w, TN_ERR_MEMORY, "stb_image_write could not compress the picture", "");
    return tni_writer_close(&w);
}
#else
tn_status tn_image_write_png(const tn_image *image, tn_sink sink)
{
    (void)sink;
    if (!tni_is_image(image)) return TN_ERR_ARG;
    return tni_fail(image->ctx, TN_ERR_FILE, "image_write_png: stb_image_write.h is missing: include it before the "
                    "implementation, or write an SVG or a PPM");
}
#endif

tn_status tn_image_write_ppm(const tn_image *image, tn_sink sink)
{
    tni_writer w;
    char       head[64];
    if (!tni_is_image(image)) return TN_ERR_ARG;
    tni_writer_open(&w, image->ctx, &sink);
    tni_put(&w, head, tni_print(head, sizeof head, "P6\n%lld %lld\n255\n", (long long)image->width,
                                (long long)image->height));
    tni_put(&w, image->pixels, (size_t)image->height * (size_t)image->width * 3);
    return tni_writer_close(&w);
}

/* ---- SVG ---------------------------------------------------- >>image-svg
   The marks of a picture, printed in their order. Coordinates are pixels with two decimals, written by integers, so that
   the bytes depend neither on locale nor on a C library. Lines that continue each other become one path. */
enum { TNI_SVG_CELLS = 4096 };          /* more cells than this are one embedded PNG */

typedef struct tni_svg { tni_writer w; const tni_picture *p; const uint8_t *ink; bool clipped; } tni_svg;

static void tni_svg_put(tni_svg *s, const char *text) { tni_put(&s->w, text, strlen(text)); }

static void tni_svg_number(tni_svg *s, const char *before, double v)
{
    char      text[32];
    long long n = (long long)floor(fmin(fmax(v, -1e9), 1e9) * 100 + 0.5), size = n < 0 ? -n : n;
    size_t    bytes = tni_print(text, sizeof text, "%s%lld.%d%d", n < 0 ? "-" : "", size / 100, (int)(size / 10 % 10),
                                (int)(size % 10));
    while (text[bytes - 1] == '0') bytes--;
    if (text[bytes - 1] == '.') bytes--;
    tni_svg_put(s, before);
    tni_put(&s->w, text, bytes);
}

static void tni_svg_colour(tni_svg *s, const char *before, const uint8_t rgb[3])
{
    static const char hex[] = "0123456789abcdef";
    char text[8];
    text[0] = '#';
    for (int k = 0; k < 6; k++) text[k + 1] = hex[rgb[k / 2] >> (k % 2 ? 0 : 4) & 15];
    tni_svg_put(s, before);
    tni_svg_put(s, "\"");
    tni_put(&s->w, text, 7);
    tni_svg_put(s, "\"");
}

static void tni_svg_box(tni_svg *s, double x, double y, double width, double height)
{
    tni_svg_number(s, "<rect x=\"", x);
    tni_svg_number(s, "\" y=\"", y);
    tni_svg_number(s, "\" width=\"", width);
    tni_svg_number(s, "\" height=\"", height);
    tni_svg_put(s, "\"");
}

/* Escaped text as it is drawn: with minus signs, and U+FFFD for invalid UTF-8 and control characters. */
static void tni_svg_text(tni_svg *s, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    uint32_t    code = 0;
    while (text < end) {
        char utf8[4];
        code = tni_text_next(&text, end, code);
        if (code == '&') tni_svg_put(s, "&amp;");
        else if (code == '<') tni_svg_put(s, "&lt;");
        else if (code == '>') tni_svg_put(s, "&gt;");
        else {
            bool fits = code >= 32 && code < 0x110000 && (code < 0x7F || code > 0x9F) && (code < 0xD800 || code > 0xDFFF)
                     && (code & 0xFFFE) != 0xFFFE;
            tni_put(&s->w, utf8, tni_utf8_put(utf8, fits ? code : 0xFFFD));
        }
    }
}

/* Text gets the width that the layout measured, whatever font the viewer has. */
static void tni_svg_label(tni_svg *s, const tni_mark *m)
{
    static const char *const anchor[] = {"\"", "\" text-anchor=\"middle\"", "\" text-anchor=\"end\""};
    tni_svg_number(s, "<text x=\"", m->v[0]);
    tni_svg_number(s, "\" y=\"", m->v[1]);
    if (m->v[4] != 0) {
        tni_svg_number(s, "\" transform=\"rotate(-90 ", m->v[0]);
        tni_svg_number(s, " ", m->v[1]);
        tni_svg_put(s, ")");
    }
    tni_svg_number(s, "\" font-size=\"", m->v[2]);
    tni_svg_number(s, "\" textLength=\"", m->v[5]);
    tni_svg_put(s, "\" lengthAdjust=\"spacingAndGlyphs");
    tni_svg_put(s, anchor[(int)(2 * m->v[3])]);
    tni_svg_colour(s, " fill=", s->ink);
    tni_svg_put(s, ">");
    tni_svg_text(s, (const char *)s->p->letters.items + m->text, m->bytes);
    tni_svg_put(s, "</text>\n");
}

static void tni_svg_point(tni_svg *s, const char *before, double x, double y)
{
    tni_svg_number(s, before, x);
    tni_svg_number(s, " ", y);
}

/* Lines from mark i on that continue each other, or a dot; returns the number of marks. */
static size_t tni_svg_lines(tni_svg *s, const tni_mark *m, size_t count)
{
    size_t n = 1;
    if (m->v[0] == m->v[2] && m->v[1] == m->v[3]) {
        tni_svg_number(s, "<circle cx=\"", m->v[0]);
        tni_svg_number(s, "\" cy=\"", m->v[1]);
        tni_svg_number(s, "\" r=\"", m->v[4]);
        tni_svg_colour(s, "\" fill=", s->ink);
        tni_svg_put(s, "/>\n");
        return 1;
    }
    tni_svg_point(s, "<path d=\"M", m->v[0], m->v[1]);
    tni_svg_point(s, "L", m->v[2], m->v[3]);
    for (; n < count && m[n].kind == TNI_MARK_LINE && m[n].v[4] == m->v[4] && m[n].v[0] == m[n - 1].v[2]
           && m[n].v[1] == m[n - 1].v[3]; n++)
        tni_svg_point(s, " ", m[n].v[2], m[n].v[3]);
    tni_svg_number(s, "\" stroke-width=\"", 2 * m->v[4]);
    tni_svg_colour(s, "\" fill=\"none\" stroke-linecap=\"round\" stroke-linejoin=\"round\" stroke=", s->ink);
    tni_svg_put(s, "/>\n");
    return n;
}

/* The parts of a band from mark i on: along its upper curve, then along the lower one in reverse. */
static size_t tni_svg_band(tni_svg *s, const tni_mark *m, size_t count)
{
    size_t n = 1;
    while (n < count && m[n].kind == TNI_MARK_BAND && m[n].v[0] == m[n - 1].v[3]) n++;
    tni_svg_point(s, "<path d=\"M", m->v[0], m->v[1]);
    for (size_t i = 0; i < n; i++) tni_svg_point(s, i ? " " : "L", m[i].v[3], m[i].v[4]);
    for (size_t i = n; i-- > 0;) tni_svg_point(s, " ", m[i].v[3], m[i].v[5]);
    tni_svg_point(s, " ", m->v[0], m->v[2]);
    tni_svg_colour(s, "Z\" fill=", s->ink);
    tni_svg_put(s, "/>\n");
    return n;
}

/* ---- an embedded PNG: deflate's stored blocks, in base64 (RFC 1950, 1951, 2083, 4648) ---- >>image-svg-png */
typedef struct tni_png { tni_svg *s; uint32_t crc, a, b; uint8_t left[3]; int have; } tni_png;

static void tni_base64(tni_svg *s, const uint8_t *three, int have)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = (uint32_t)three[0] << 16 | (uint32_t)three[1] << 8 | three[2];
    char     four[4];
    for (int k = 0; k < 4; k++) four[k] = digit[bits >> (18 - 6 * k) & 63];
    for (int k = have + 1; k < 4; k++) four[k] = '=';
    tni_put(&s->w, four, 4);
}

static void tni_png_put(tni_png *p, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        p->crc ^= data[i];
        for (int k = 0; k < 8; k++) p->crc = p->crc >> 1 ^ (p->crc & 1 ? 0xEDB88320u : 0);
        p->left[p->have++] = data[i];
        if (p->have < 3) continue;
        tni_base64(p->s, p->left, 3);
        p->have = 0;
    }
}

static void tni_png_u32(tni_png *p, uint32_t v)
{
    uint8_t four[4];
    for (int k = 0; k < 4; k++) four[k] = (uint8_t)(v >> (24 - 8 * k));
    tni_png_put(p, four, 4);
}

static void tni_png_open(tni_png *p, size_t bytes, const char *name)
{
    tni_png_u32(p, (uint32_t)bytes);
    p->crc = 0xFFFFFFFFu;
    tni_png_put(p, (const uint8_t *)name, 4);
}

static void tni_png_close(tni_png *p) { tni_png_u32(p, ~p->crc); }

/* One row of pixels as a stored block: final, length, its complement, then filter 0 and the pixels; counts Adler-32. */
static void tni_png_row(tni_png *p, const uint8_t *from, size_t step, size_t width, bool last)
{
    size_t  bytes = 3 * width + 1;
    const uint8_t low = (uint8_t)(bytes & 255), high = (uint8_t)(bytes >> 8);
    const uint8_t head[6] = {last, low, high, (uint8_t)~low, (uint8_t)~high, 0};
    tni_png_put(p, head, 6);
    p->b = (p->b + p->a) % 65521;
    for (size_t i = 0; i < width; i++, from += step) {
        tni_png_put(p, from, 3);
        for (int k = 0; k < 3; k++) {
            p->a = (p->a + from[k]) % 65521;
            p->b = (p->b + p->a) % 65521;
        }
    }
}

enum { TNI_PNG_WIDEST = 21844 };        /* a row of 3 width + 1 bytes fits the 65535 of a block */

/* Pixels at (x,y) and from there in steps, as one picture of across x down. */
static void tni_svg_png(tni_svg *s, int64_t x, int64_t y, int64_t step_x, int64_t step_y, int64_t across, int64_t down)
{
    static const uint8_t signature[] = {137, 'P', 'N', 'G', 13, 10, 26, 10}, kind[] = {8, 2, 0, 0, 0}, zlib[] = {0x78, 0x01};
    const tn_image *image = &s->p->image;
    tni_png p = TNI_ZERO;
    p.s = s;
    p.a = 1;
    tni_png_put(&p, signature, sizeof signature);
    tni_png_open(&p, 13, "IHDR");
    tni_png_u32(&p, (uint32_t)across);
    tni_png_u32(&p, (uint32_t)down);
    tni_png_put(&p, kind, sizeof kind);
    tni_png_close(&p);
    tni_png_open(&p, (size_t)down * (size_t)(3 * across + 6) + 6, "IDAT");
    tni_png_put(&p, zlib, sizeof zlib);
    for (int64_t i = 0; i < down; i++)
        tni_png_row(&p, image->pixels + 3 * ((y + i * step_y) * image->width + x), (size_t)(3 * step_x), (size_t)across,
                    i == down - 1);
    tni_png_u32(&p, p.b << 16 | p.a);
    tni_png_close(&p);
    tni_png_open(&p, 0, "IEND");
    tni_png_close(&p);
    if (p.have > 0) {
        memset(p.left + p.have, 0, (size_t)(3 - p.have));
        tni_base64(s, p.left, p.have);
    }
}

/* Cells as one picture, in strips that a block can hold. */
static void tni_svg_raster(tni_svg *s, int64_t x, int64_t y, int64_t cell_w, int64_t cell_h, int64_t across, int64_t down)
{
    for (int64_t first = 0; first < across; first += TNI_PNG_WIDEST) {
        int64_t n = tni_min(across - first, TNI_PNG_WIDEST);
        tni_svg_number(s, "<image x=\"", (double)(x + first * cell_w));
        tni_svg_number(s, "\" y=\"", (double)y);
        tni_svg_number(s, "\" width=\"", (double)(n * cell_w));
        tni_svg_number(s, "\" height=\"", (double)(down * cell_h));
        tni_svg_put(s, "\" preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" "
                    "xlink:href=\"data:image/png;base64,");
        tni_svg_png(s, x + first * cell_w, y, cell_w, cell_h, n, down);
        tni_svg_put(s, "\"/>\n");
    }
}

/* Few cells, and a colour bar, are rectangles, neighbours of one colour in a row or a column a single one. */
static void tni_svg_cells(tni_svg *s, const tni_mark *m)
{
    const tn_image *image = &s->p->image;
    int64_t         x = (int64_t)m->v[0], y = (int64_t)m->v[1], w = (int64_t)m->v[4], h = (int64_t)m->v[5];
    int64_t         across = w > 0 ? (int64_t)m->v[2] / w : 0, down = h > 0 ? (int64_t)m->v[3] / h : 0, j, n;
    if (across < 1 || down < 1) return;
    if (m->kind != TNI_MARK_BAR && across > TNI_SVG_CELLS / down) {
        tni_svg_raster(s, x, y, w, h, across, down);
        return;
    }
    tni_svg_put(s, "<g shape-rendering=\"crispEdges\">\n");
    for (int64_t i = 0; i < down; i += across == 1 ? n : 1)
        for (j = 0, n = 1; j < across; j += across == 1 ? 1 : n) {
            const uint8_t *rgb = image->pixels + 3 * ((y + i * h) * image->width + x + j * w);
            int64_t        next = across == 1 ? 3 * h * image->width : 3 * w, most = across == 1 ? down - i : across - j;
            for (n = 1; n < most && memcmp(rgb + n * next, rgb, 3) == 0;) n++;
            tni_svg_box(s, (double)(x + j * w), (double)(y + i * h), (double)(across == 1 ? w : n * w),
                        (double)(across == 1 ? n * h : h));
            tni_svg_colour(s, " fill=", rgb);
            tni_svg_put(s, "/>\n");
        }
    tni_svg_put(s, "</g>\n");
}

/* A clip is an inner SVG, which needs no id that could occur twice on a page. */
static void tni_svg_clip(tni_svg *s, const tni_mark *m)
{
    const tn_image *image = &s->p->image;
    if (s->clipped) tni_svg_put(s, "</svg>\n");
    s->clipped = m->v[0] > 0 || m->v[1] > 0 || m->v[2] < (double)image->width || m->v[3] < (double)image->height;
    if (!s->clipped) return;
    tni_svg_number(s, "<svg x=\"", m->v[0]);
    tni_svg_number(s, "\" y=\"", m->v[1]);
    tni_svg_number(s, "\" width=\"", m->v[2] - m->v[0]);
    tni_svg_number(s, "\" height=\"", m->v[3] - m->v[1]);
    tni_svg_point(s, "\" viewBox=\"", m->v[0], m->v[1]);
    tni_svg_point(s, " ", m->v[2] - m->v[0], m->v[3] - m->v[1]);
    tni_svg_put(s, "\">\n");
}

/* v of a line: both ends and the radius; of a box: two corners; of a text: its anchor, size, alignment, upwards, width; of
   a band: x, y and low of both ends; of cells and of a bar: corner, width, height, and width and height of one; of ink: its
   strength. Returns the number of marks. */
TNI_COLD static size_t tni_svg_mark(tni_svg *s, const tni_mark *m, size_t count)
{
    if (m->kind == TNI_MARK_LINE) return tni_svg_lines(s, m, count);
    if (m->kind == TNI_MARK_BAND) return tni_svg_band(s, m, count);
    if (m->kind == TNI_MARK_TEXT) tni_svg_label(s, m);
    if (m->kind == TNI_MARK_CELLS || m->kind == TNI_MARK_BAR) tni_svg_cells(s, m);
    if (m->kind == TNI_MARK_CLIP) tni_svg_clip(s, m);
    if (m->kind == TNI_MARK_BOX && m->v[2] > m->v[0] && m->v[3] > m->v[1]) {
        tni_svg_box(s, m->v[0], m->v[1], m->v[2] - m->v[0], m->v[3] - m->v[1]);
        tni_svg_colour(s, " fill=", s->ink);
        tni_svg_put(s, "/>\n");
    }
    return 1;
}

/* A shape: the marks up to the ink that ends it. */
static size_t tni_svg_shape(tni_svg *s, const tni_mark *m, size_t count)
{
    uint8_t rgb[3] = {0, 0, 0};
    size_t  n = 0, i = 0;
    while (n < count && m[n].kind != TNI_MARK_INK && m[n].kind != TNI_MARK_CLIP && m[n].kind != TNI_MARK_CELLS
           && m[n].kind != TNI_MARK_BAR) n++;
    if (n == 0 && count > 0 && m->kind != TNI_MARK_INK) return tni_svg_mark(s, m, count);
    if (n < count) tni_unpack(m[n].ink, rgb);
    s->ink = rgb;
    bool translucent = n < count && n > 0 && m[n].v[0] < 1;
    if (translucent) tni_svg_number(s, "<g opacity=\"", m[n].v[0]);
    if (translucent) tni_svg_put(s, "\">\n");
    while (i < n) i += tni_svg_mark(s, m + i, n - i);
    if (translucent) tni_svg_put(s, "</g>\n");
    return n + (n < count && m[n].kind == TNI_MARK_INK);
}

TNI_COLD tn_status tn_image_write_svg(const tn_image *image, tn_sink sink)
{
    size_t i = 0;
    if (!tni_is_image(image)) return TN_ERR_ARG;
    tni_svg s = TNI_ZERO;
    s.p = tni_picture_of(image);
    size_t count = s.p->marks.count;
    if (count == 0 && (double)image->width * (double)image->height > tni_area_most)     /* 2^31 bytes in a PNG's block */
        return tni_fail(image->ctx, TN_ERR_SHAPE, "image_write_svg: the picture has %lld x %lld pixels to embed, expected "
                        "at most %lld in all", (long long)image->width, (long long)image->height, (long long)tni_area_most);
    tni_writer_open(&s.w, image->ctx, &sink);
    tni_svg_number(&s, "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"",
                   (double)image->width / s.p->scale);
    tni_svg_number(&s, "\" height=\"", (double)image->height / s.p->scale);
    tni_svg_point(&s, "\" viewBox=\"0 0 ", (double)image->width, (double)image->height);
    tni_svg_put(&s, "\" xml:space=\"preserve\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n");
    if (count > 0) tni_svg_put(&s, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    else tni_svg_raster(&s, 0, 0, 1, 1, image->width, image->height);
    while (i < count && s.w.status == TN_OK)
        i += tni_svg_shape(&s, (const tni_mark *)s.p->marks.items + i, count - i);
    tni_svg_put(&s, s.clipped ? "</svg>\n</svg>\n" : "</svg>\n");
    return tni_writer_close(&s.w);
}

#ifndef TN_NO_STDIO
tn_status tn_image_save_png(const tn_image *image, const char *path) { return tn_image_write_png(image, tn_sink_path(path)); }
tn_status tn_image_save_ppm(const tn_image *image, const char *path) { return tn_image_write_ppm(image, tn_sink_path(path)); }
tn_status tn_image_save_svg(const tn_image *image, const char *path) { return tn_image_write_svg(image, tn_sink_path(path)); }
#endif

#undef TNI_GLYPH_STEP
#undef TNI_FONT_UNITS
#undef TNI_HUGE
#endif /* TN_NO_IMAGE */
