#include "core/inner.h"
#include "io/inner.h"
#include "image/inner.h"

#ifndef TN_NO_IMAGE
/* ---- ink ---------------------------------------------------- >>image-ink
   Each function that covers pixels also records a mark for the SVG, if it changes them. */

TNI_FN tni_mark *tni_mark_add(tni_canvas *c, tni_mark_kind kind, double v0, double v1, double v2, double v3, double v4)
{
    tni_mark *m = c->failed ? NULL : (tni_mark *)tni_list_add(c->image->ctx, &tni_picture_of(c->image)->marks, "image");
    if (!m) {
        c->failed = true;
        return NULL;
    }
    m->kind = kind;
    m->v[0] = v0; m->v[1] = v1; m->v[2] = v2; m->v[3] = v3; m->v[4] = v4;
    return m;
}

TNI_FN void tni_canvas_clip(tni_canvas *c, int64_t x0, int64_t y0, int64_t x1, int64_t y1)
{
    c->clip_x0 = tni_max(x0, 0);
    c->clip_y0 = tni_max(y0, 0);
    c->clip_x1 = tni_min(x1, c->image->width);
    c->clip_y1 = tni_min(y1, c->image->height);
    tni_mark_add(c, TNI_MARK_CLIP, (double)c->clip_x0, (double)c->clip_y0, (double)c->clip_x1, (double)c->clip_y1, 0);
}

static size_t tni_canvas_bytes(const tni_canvas *c) { return 2 * (size_t)c->image->width * (size_t)c->image->height; }

TNI_FN bool tni_canvas_open(tni_canvas *c, tn_ctx *ctx, double width, double height, double scale)
{
    memset(c, 0, sizeof *c);
    c->scale = scale;
    c->image = tn_image_create(ctx, (int64_t)ceil(width), (int64_t)ceil(height));
    if (!c->image) return false;
    tni_picture_of(c->image)->scale = scale;
    c->cover = (uint8_t *)tni_alloc(ctx, tni_canvas_bytes(c), "image");
    if (!c->cover) return tn_image_destroy(c->image), false;
    memset(c->cover, 0, tni_canvas_bytes(c));
    c->marked = c->cover + tni_canvas_bytes(c) / 2;
    tni_canvas_clip(c, 0, 0, c->image->width, c->image->height);
    c->x0 = c->y0 = INT64_MAX;
    return true;
}

TNI_FN tn_image *tni_canvas_close(tni_canvas *c)
{
    tni_free(c->image->ctx, c->cover, tni_canvas_bytes(c));
    if (c->failed) return tn_image_destroy(c->image), (tn_image *)NULL;
    return c->image;
}

static int64_t tni_pixel(double v, int64_t low, int64_t high)
{
    return v > (double)low ? v < (double)high ? (int64_t)v : high : low;
}

static void tni_cover_grow(tni_canvas *c, int64_t x0, int64_t y0, int64_t x1, int64_t y1)
{
    c->x0 = tni_min(c->x0, x0);
    c->y0 = tni_min(c->y0, y0);
    c->x1 = tni_max(c->x1, x1);
    c->y1 = tni_max(c->y1, y1);
}

/* A stroke with round ends: a pixel's share is radius + 1/2 - distance of its centre. a == b gives a dot. Returns whether
   a pixel's share is larger than that of all strokes with a mark by 1/8 or more: only then the SVG needs another one. */
TNI_FN bool tni_cover_stroke(tni_canvas *c, double ax, double ay, double bx, double by, double radius)
{
    double  dx = bx - ax, dy = by - ay, length2 = dx * dx + dy * dy, reach = radius + 0.5;
    int64_t top = tni_pixel(fmin(ay, by) - reach, c->clip_y0, c->clip_y1),
            bottom = tni_pixel(fmax(ay, by) + reach + 1, c->clip_y0, c->clip_y1);
    bool    changed = false;
    for (int64_t y = top; y < bottom; y++) {
        double py = (double)y + 0.5 - ay, t0 = 0, t1 = 1;       /* the part of the segment that is near this row */
        if (dy != 0) {
            t0 = fmin((py - reach) / dy, (py + reach) / dy);
            t1 = fmax((py - reach) / dy, (py + reach) / dy);
            t0 = t0 < 0 ? 0 : t0 > 1 ? 1 : t0;
            t1 = t1 < 0 ? 0 : t1 > 1 ? 1 : t1;
        }
        int64_t left = tni_pixel(ax + fmin(t0 * dx, t1 * dx) - reach, c->clip_x0, c->clip_x1);
        int64_t right = tni_pixel(ax + fmax(t0 * dx, t1 * dx) + reach + 1, c->clip_x0, c->clip_x1);
        tni_cover_grow(c, left, y, right, y + 1);
        for (int64_t x = left; x < right; x++) {
            double   px = (double)x + 0.5 - ax, t = length2 > 0 ? (px * dx + py * dy) / length2 : 0;
            uint8_t *cover = c->cover + y * c->image->width + x, *marked = c->marked + y * c->image->width + x;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            double qx = px - t * dx, qy = py - t * dy;
            double share = fmin((reach - sqrt(qx * qx + qy * qy)) * 255, 255);
            if (share < *cover + 1.0) continue;
            *cover = (uint8_t)share;
            if (*cover < *marked + 32) continue;
            *marked = *cover;
            changed = true;
        }
    }
    return changed;
}

/* Adds a segment to the marks of a curve whose last three are in the same column of pixels, by dropping one of the points
   between the first and the last: neither the lowest nor the highest. So a column has at most four points, which draw the
   same pixels (Jugel et al. 2014, M4). Returns false where there is no such curve. */
static bool tni_mark_extend(tni_canvas *c, double ax, double ay, double bx, double by, double radius)
{
    tni_list *marks = &tni_picture_of(c->image)->marks;
    double    column = floor(bx);
    if (c->failed || marks->count < 3 || floor(ax) != column) return false;
    tni_mark *m = (tni_mark *)tni_list_at(marks, marks->count - 3);
    for (int k = 0; k < 3; k++) {
        double x = k < 2 ? m[k + 1].v[0] : ax, y = k < 2 ? m[k + 1].v[1] : ay;
        if (m[k].kind != TNI_MARK_LINE || m[k].v[4] != radius || floor(m[k].v[0]) != column || m[k].v[2] != x
            || m[k].v[3] != y) return false;
    }
    double y1 = m[1].v[1], y2 = m[2].v[1];
    if ((y1 <= y2) == (y1 >= ay)) memmove(m[1].v, m[2].v, 2 * sizeof *m->v);         /* the first has the middle height */
    if ((y1 <= y2) == (y1 >= ay) || (y2 <= y1) == (y2 >= ay)) {                      /* the first or the second */
        m[2].v[0] = ax;
        m[2].v[1] = ay;
    }
    for (int k = 0; k < 2; k++) memcpy(m[k].v + 2, m[k + 1].v, 2 * sizeof *m->v);
    m[2].v[2] = bx;
    m[2].v[3] = by;
    return true;
}

/* Whether a segment inside the clip begins where the last mark ends: without it a path of the SVG would become two. */
static bool tni_mark_continues(const tni_canvas *c, double ax, double ay, double bx, double by)
{
    const tni_list *marks = &tni_picture_of(c->image)->marks;
    if (marks->count == 0 || bx < (double)c->clip_x0 || bx > (double)c->clip_x1 || (ax == bx && ay == by)) return false;
    const tni_mark *m = (const tni_mark *)tni_list_at(marks, marks->count - 1);
    return m->kind == TNI_MARK_LINE && m->v[2] == ax && m->v[3] == ay;
}

TNI_FN void tni_cover_segment(tni_canvas *c, double ax, double ay, double bx, double by, double radius)
{
    bool changed = tni_cover_stroke(c, ax, ay, bx, by, radius);
    if (tni_mark_extend(c, ax, ay, bx, by, radius)) return;
    if (changed || tni_mark_continues(c, ax, ay, bx, by)) tni_mark_add(c, TNI_MARK_LINE, ax, ay, bx, by, radius);
}

/* A rectangle: a pixel's share is the area inside. The shares of neighbours in one pixel are added. Returns whether the
   coverage of a pixel has changed. */
static bool tni_cover_area(tni_canvas *c, double x0, double y0, double x1, double y1)
{
    int64_t left = tni_pixel(x0, c->clip_x0, c->clip_x1), right = tni_pixel(ceil(x1), c->clip_x0, c->clip_x1);
    int64_t top = tni_pixel(y0, c->clip_y0, c->clip_y1), bottom = tni_pixel(ceil(y1), c->clip_y0, c->clip_y1);
    bool    changed = false;
    tni_cover_grow(c, left, top, right, bottom);
    for (int64_t y = top; y < bottom; y++)
        for (int64_t x = left; x < right; x++) {
            double   w = fmin(x1, (double)x + 1) - fmax(x0, (double)x), h = fmin(y1, (double)y + 1) - fmax(y0, (double)y);
            uint8_t *cover = c->cover + y * c->image->width + x, before = *cover;
            if (w > 0 && h > 0) *cover = (uint8_t)fmin(before + w * h * 255 + 0.5, 255);
            changed = changed || *cover != before;
        }
    return changed;
}

TNI_FN void tni_cover_box(tni_canvas *c, double x0, double y0, double x1, double y1)
{
    if (tni_cover_area(c, x0, y0, x1, y1)) tni_mark_add(c, TNI_MARK_BOX, x0, y0, x1, y1, 0);
}

/* The area between two lines from x = a to x = b: from (a,a0) to (b,b0) and from (a,a1) to (b,b1), by columns of pixels. */
TNI_FN void tni_cover_band(tni_canvas *c, double a, double a0, double a1, double b, double b0, double b1)
{
    tni_mark *m = tni_mark_add(c, TNI_MARK_BAND, a, a0, a1, b, b0);
    double    from = fmax(a, (double)c->clip_x0), to = fmin(b, (double)c->clip_x1);
    if (m) m->v[5] = b1;
    for (double x = from; x < to && b > a;) {
        double end = fmin(floor(x) + 1, to), t = ((x + end) / 2 - a) / (b - a);
        double y0 = a0 + t * (b0 - a0), y1 = a1 + t * (b1 - a1);
        tni_cover_area(c, x, fmin(y0, y1), end, fmax(y0, y1));
        x = end;
    }
}

/* Ends a shape: blends its colour and clears the coverage. */
TNI_FN void tni_paint(tni_canvas *c, uint32_t ink, double strength)
{
    uint8_t   rgb[3];
    int       most = (int)(strength * 256);
    tni_mark *m = tni_mark_add(c, TNI_MARK_INK, strength, 0, 0, 0, 0);
    if (m) m->ink = ink;
    tni_unpack(ink, rgb);
    for (int64_t y = c->y0; y < c->y1; y++)
        for (int64_t x = c->x0; x < c->x1; x++) {
            uint8_t *cover = c->cover + y * c->image->width + x, *pixel = c->image->pixels + 3 * (y * c->image->width + x);
            int      share = *cover * most / 256;
            if (*cover == 0) continue;
            for (int i = 0; i < 3; i++) pixel[i] = (uint8_t)((pixel[i] * (255 - share) + rgb[i] * share + 127) / 255);
            *cover = c->marked[y * c->image->width + x] = 0;
        }
    c->x0 = c->y0 = INT64_MAX;
    c->x1 = c->y1 = 0;
}

TNI_FN void tni_draw_box(tni_canvas *c, double x0, double y0, double x1, double y1, uint32_t ink)
{
    tni_cover_box(c, x0, y0, x1, y1);
    tni_paint(c, ink, 1);
}

/* A frame of the given width around a box. */
TNI_FN void tni_draw_frame(tni_canvas *c, double x0, double y0, double x1, double y1, double width, uint32_t ink)
{
    tni_cover_box(c, x0 - width, y0 - width, x1 + width, y0);
    tni_cover_box(c, x0 - width, y1, x1 + width, y1 + width);
    tni_cover_box(c, x0 - width, y0, x0, y1);
    tni_cover_box(c, x1, y0, x1 + width, y1);
    tni_paint(c, ink, 1);
}

#endif /* TN_NO_IMAGE */
