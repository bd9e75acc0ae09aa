#include "core/inner.h"
#include "image/inner.h"

#ifndef TN_NO_IMAGE
/* ---- curves and spectra ------------------------------------- >>image-plot */
static const double tni_legend_line = 18;
enum { TNI_FEW = 24, TNI_LEGEND_INSIDE = 5, TNI_SERIES_INKS = 7 };

typedef struct tni_plot {
    tn_image_plot_desc     d;
    const tn_image_series *series;
    int64_t          count;
    int64_t          upright;           /* number of series that are bars or stems                    */
    bool             two_colours;       /* a lone series of them: red above, blue below               */
    int64_t          lines;             /* of the legend                                              */
    bool             outside;           /* it is right of the axes: no corner is free, or many lines  */
    double           legend_width, legend_x, legend_y;
    double           above;             /* room above the data for the legend, as a share of their height */
    double           last_width;        /* room for the last values of lines                          */
    double           turned;            /* height of the names below the axis if they are turned, or 0 */
    tni_figure       f;
    tni_canvas       c;
    tni_ruler        x, y;
} tni_plot;

static bool tni_is_upright(const tn_image_series *s)
{
    return s->kind == TN_IMAGE_SERIES_BARS || s->kind == TN_IMAGE_SERIES_STEMS;
}

static double tni_series_low(const tn_image_series *s, int64_t i)
{
    return s->kind == TN_IMAGE_SERIES_BAND ? s->low[i] : s->y[i];
}
static bool   tni_is_dashed(const tn_image_series *s, int64_t k) { return s->dashed || (s->colour == 0 && k >= TNI_SERIES_INKS); }

/* Seven colours that can be told apart with every kind of colour vision. Okabe & Ito 2008, without their yellow. */
static uint32_t tni_series_ink(const tn_image_series *s, int64_t k)
{
    static const uint32_t ink[TNI_SERIES_INKS] = {0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7, 0xE69F00, 0x56B4E9, 0x000000};
    return ink[s->colour > 0 ? s->colour - 1 : k % TNI_SERIES_INKS];
}

/* The place of point i on the rulers; false where it is not shown. */
static bool tni_plot_point(const tni_plot *p, const tn_image_series *s, int64_t i, double *x, double *y)
{
    double low = tni_series_low(s, i);
    *x = s->x ? s->x[i] : (double)i;
    *y = s->y[i];
    if (!(fabs(*x) < TNI_HUGE && fabs(*y) < TNI_HUGE && fabs(low) < TNI_HUGE)) return false;
    if ((p->d.log_x && *x <= 0) || (p->d.log_y && (*y <= 0 || low <= 0))) return false;
    if (p->d.log_x) *x = log10(*x);
    if (p->d.log_y) *y = log10(*y);
    return true;
}

/* The place on the ruler of y of a band's lower curve, at a point that is shown; of other series the same as y. */
static double tni_plot_low(const tni_plot *p, const tn_image_series *s, int64_t i)
{
    double low = tni_series_low(s, i);
    return p->d.log_y ? log10(low) : low;
}

/* The same in pixels. */
static bool tni_plot_pixel(const tni_plot *p, const tn_image_series *s, int64_t i, double *x, double *y)
{
    if (!tni_plot_point(p, s, i, x, y)) return false;
    *x = tni_ruler_pixel(&p->x, *x);
    *y = tni_ruler_pixel(&p->y, *y);
    return true;
}

/* The least distance of neighbours along x, on the ruler. */
static double tni_series_spacing(const tni_plot *p, const tn_image_series *s)
{
    double least = HUGE_VAL, before = 0, x, y;
    bool   any = false;
    for (int64_t i = 0; i < s->count; i++) {
        if (!tni_plot_point(p, s, i, &x, &y)) continue;
        if (any && x != before) least = fmin(least, fabs(x - before));
        before = x;
        any = true;
    }
    return least < HUGE_VAL ? least : 1;
}

/* The ends of one axis: the data with a margin. Bars and stems begin at zero, with half a place at the sides. */
static void tni_plot_range(const tni_plot *p, bool across, bool log, double *low, double *high)
{
    double margin, x, y, side = 0, top = across ? 0.015 : 0.05 + p->above;
    bool   from_zero = p->upright > 0 && !across && !log;
    *low = HUGE_VAL;
    *high = -HUGE_VAL;
    for (int64_t k = 0; k < p->count; k++) {
        for (int64_t i = 0; i < p->series[k].count; i++)
            if (tni_plot_point(p, &p->series[k], i, &x, &y)) {
                double other = across ? x : tni_plot_low(p, &p->series[k], i);
                *low = fmin(*low, fmin(across ? x : y, other));
                *high = fmax(*high, fmax(across ? x : y, other));
            }
        if (across && tni_is_upright(&p->series[k])) side = fmax(side, 0.6 * tni_series_spacing(p, &p->series[k]));
    }
    if (*low > *high) *low = *high = 0;
    if (from_zero) { *low = fmin(*low, 0); *high = fmax(*high, 0); }
    if (*high - *low < 1e-9 * fmax(fabs(*low), fabs(*high)) || *high - *low < 1e-300) {
        margin = log ? 0.5 : *low != 0 ? fabs(*low) / 2 : 1;
        *low -= margin;
        *high += margin;
        return;
    }
    margin = *high - *low;
    if (!(from_zero && *low == 0)) *low -= fmax(margin * (across ? 0.015 : 0.05), side);
    if (!(from_zero && *high == 0) || (!across && p->above > 0)) *high += fmax(margin * top, side);
}

TNI_COLD static void tni_plot_ruler(const tni_plot *p, tni_ruler *r, bool across, double wanted)
{
    bool   log = across ? p->d.log_x : p->d.log_y, whole = across;
    double low = across ? p->d.x_low : p->d.y_low, high = across ? p->d.x_high : p->d.y_high;
    for (int64_t k = 0; k < p->count; k++) whole = whole && !p->series[k].x;
    if (low == 0 && high == 0) tni_plot_range(p, across, log, &low, &high);
    else if (log) { low = log10(low); high = log10(high); }
    tni_ruler_init(r, low, high, log, wanted, whole);
    if (!across || !p->d.x_names) return;
    r->ticks = 0;
    for (int64_t k = 0; k < p->d.x_name_count; k++)
        if (p->d.x_names[k] && r->ticks < TNI_TICKS) tni_tick(r, (double)k, (double)k, 6, 0);
}

/* The label of tick k: a name if names are given. */
static const char *tni_plot_label(const tni_plot *p, int k)
{
    return p->d.x_names ? p->d.x_names[(int64_t)p->x.value[k]] : p->x.label[k];
}

/* Small ticks at 2 to 9 times each power of ten, where decades are wide enough. */
static void tni_draw_minor_ticks(tni_plot *p, const tni_ruler *r, bool across, double edge)
{
    double u = p->c.scale, decade = fabs(r->to - r->from) / (r->high - r->low), slack = 1e-9 * (r->high - r->low);
    if (!r->log || decade < 28 * u || r->high - r->low < 0.3) return;
    for (double e = floor(r->low); e <= r->high; e++)
        for (int digit = 2; digit < 10; digit++) {
            double v = e + log10((double)digit), at = floor(tni_ruler_pixel(r, v) - u / 2 + 0.5);
            if (v < r->low - slack || v > r->high + slack) continue;
            if (across) tni_draw_box(&p->c, at, edge, at + u, edge + 2.5 * u, TNI_LINE_INK);
            else tni_draw_box(&p->c, edge - 2.5 * u, at, edge, at + u, TNI_LINE_INK);
        }
}

static void tni_draw_grid(tni_plot *p, double x0, double y0, double x1, double y1)
{
    tni_canvas *c = &p->c;
    double      u = c->scale, size = tni_small * u;
    for (int k = 0; k < p->x.ticks; k++) {
        double at = floor(tni_ruler_pixel(&p->x, p->x.at[k]) - u / 2 + 0.5);
        tni_draw_box(c, at, y0, at + u, y1, TNI_GRID_INK);
        tni_draw_box(c, at, y1, at + u, y1 + tni_tick_length * u, TNI_LINE_INK);
        if (p->turned > 0) tni_draw_label(c, tni_plot_label(p, k), at + u / 2 + size * 0.35, y1 + (tni_tick_length + 5) * u,
                                          size, 1, true, p->turned, TNI_TEXT_INK);
        else tni_draw_label(c, tni_plot_label(p, k), at + u / 2, y1 + (tni_tick_length + 4) * u + size * 0.75, size, 0.5,
                            false, 1e6, TNI_TEXT_INK);
    }
    for (int k = 0; k < p->y.ticks; k++) {
        double at = floor(tni_ruler_pixel(&p->y, p->y.at[k]) - u / 2 + 0.5);
        tni_draw_box(c, x0, at, x1, at + u, p->upright > 0 && !p->d.log_y && p->y.at[k] == 0 ? TNI_LINE_INK : TNI_GRID_INK);
        tni_draw_box(c, x0 - tni_tick_length * u, at, x0, at + u, TNI_LINE_INK);
        tni_draw_label(c, p->y.label[k], x0 - (tni_tick_length + 4) * u, at + u / 2 + size * 0.35, size, 1, false, 1e6,
                       TNI_TEXT_INK);
    }
    tni_draw_minor_ticks(p, &p->x, true, y1);
    tni_draw_minor_ticks(p, &p->y, false, x0);
    tni_draw_box(c, x0 - u, y0, x0, y1 + u, TNI_LINE_INK);
    tni_draw_box(c, x0 - u, y1, x1, y1 + u, TNI_LINE_INK);
}

/* ---- lines, markers, bars, bands ---------------------------- >>image-series */

/* A segment, or its dashes; `phase` is the position in the pattern. */
static void tni_cover_line(tni_canvas *c, double ax, double ay, double bx, double by, double radius, bool dashed,
                           double *phase)
{
    double length = hypot(bx - ax, by - ay), on = 6 * c->scale, period = 10 * c->scale, from = 0;
    if (!dashed || length > 1e5) {
        tni_cover_segment(c, ax, ay, bx, by, radius);
        return;
    }
    while (from < length) {
        double at = fmod(*phase + from, period), to = fmin(length, from + (at < on ? on : period) - at);
        if (to <= from) break;
        if (at < on) tni_cover_segment(c, ax + (bx - ax) * from / length, ay + (by - ay) * from / length,
                                       to < length ? ax + (bx - ax) * to / length : bx,
                                       to < length ? ay + (by - ay) * to / length : by, radius);
        from = to;
    }
    *phase = fmod(*phase + length, period);
}

static void tni_draw_markers(tni_plot *p, const tn_image_series *s, double radius, uint32_t ink)
{
    double x, y;
    for (int64_t i = 0; i < s->count; i++)
        if (tni_plot_pixel(p, s, i, &x, &y)) tni_cover_segment(&p->c, x, y, x, y, radius);
    tni_paint(&p->c, ink, 1);
}

/* Points always have markers; lines if they have few points and are not horizontal, where markers would add nothing. */
static bool tni_has_markers(const tn_image_series *s)
{
    double first = 0;
    bool   any = false, varies = false;
    if (s->kind == TN_IMAGE_SERIES_POINTS) return true;
    if (s->kind != TN_IMAGE_SERIES_LINE || s->count > TNI_FEW) return false;
    for (int64_t i = 0; i < s->count; i++) {
        if (s->y[i] != s->y[i]) continue;
        varies = varies || (any && s->y[i] != first);
        if (!any) first = s->y[i];
        any = true;
    }
    return varies;
}

/* A point without neighbours is a dot; few points are marked, with a white ring around each. */
static void tni_draw_curve(tni_plot *p, const tn_image_series *s, int64_t k)
{
    double u = p->c.scale, radius = 0.85 * u, phase = 0, ax = 0, ay = 0, x, y;
    bool   before = false, dot = false;
    for (int64_t i = 0; s->kind == TN_IMAGE_SERIES_LINE && i < s->count; i++) {
        bool shown = tni_plot_pixel(p, s, i, &x, &y);
        if (shown && before) tni_cover_line(&p->c, ax, ay, x, y, radius, tni_is_dashed(s, k), &phase);
        else if (dot) tni_cover_segment(&p->c, ax, ay, ax, ay, 2 * radius);
        dot = shown && !before;
        before = shown;
        ax = x;
        ay = y;
    }
    if (dot) tni_cover_segment(&p->c, ax, ay, ax, ay, 2 * radius);
    tni_paint(&p->c, tni_series_ink(s, k), 1);
    if (!tni_has_markers(s)) return;
    if (s->count <= 4 * TNI_FEW) tni_draw_markers(p, s, 4 * u, TNI_WHITE);
    tni_draw_markers(p, s, 2.8 * u, tni_series_ink(s, k));
}

/* Bars or stems of one sign. Those of several series are side by side: these are number `place`. */
static void tni_cover_upright(tni_plot *p, const tn_image_series *s, bool negative, int64_t place)
{
    double u = p->c.scale, spacing = tni_series_spacing(p, s) * (p->x.to - p->x.from) / (p->x.high - p->x.low);
    double half = fmin(spacing * (spacing < 4 * u ? 0.5 : 0.4), 24 * u);
    double zero = p->d.log_y ? p->y.from : tni_ruler_pixel(&p->y, 0), x, y;
    half = fmax(half, (double)tni_max(p->upright, 1) / 32);        /* coverage is rounded to bytes: 1/16 pixel or more */
    double width = 2 * half / (double)tni_max(p->upright, 1);
    for (int64_t i = 0; i < s->count; i++) {
        if (!tni_plot_pixel(p, s, i, &x, &y) || (!p->d.log_y && (s->y[i] < 0) != negative)) continue;
        if (s->kind == TN_IMAGE_SERIES_BARS)
            tni_cover_box(&p->c, x - half + (double)place * width, fmin(y, zero), x - half + (double)(place + 1) * width,
                          fmax(y, zero));
        else {
            x += ((double)place + 0.5) * width - half;
            tni_cover_segment(&p->c, x, zero, x, y, fmin(0.7 * u, width / 3));
            if (width > 3 * u) tni_cover_segment(&p->c, x, y, x, y, fmin(2.8 * u, width / 2));
        }
    }
}

/* Parts are at least 1/16 pixel wide, because the coverage of each is rounded to a byte. */
static void tni_draw_band(tni_plot *p, const tn_image_series *s, int64_t k)
{
    double ax = 0, a0 = 0, a1 = 0, x, y;
    bool   before = false;
    for (int64_t i = 0; i < s->count; i++) {
        bool shown = tni_plot_pixel(p, s, i, &x, &y);
        if (shown && before && i < s->count - 1 && x >= ax && x < ax + 0.0625) continue;
        double low = shown ? tni_ruler_pixel(&p->y, tni_plot_low(p, s, i)) : 0;
        if (shown && before) tni_cover_band(&p->c, ax, a0, a1, x, y, low);
        before = shown;
        if (!shown) continue;
        ax = x;
        a0 = y;
        a1 = low;
    }
    tni_paint(&p->c, tni_series_ink(s, k), 0.22);
}

static uint32_t tni_pack(tn_image_colours colours, double t)
{
    uint8_t rgb[3];
    tn_image_colour(colours, t, rgb);
    return (uint32_t)rgb[0] << 16 | (uint32_t)rgb[1] << 8 | rgb[2];
}

static void tni_draw_series(tni_plot *p)
{
    int64_t place = 0;
    for (int64_t k = 0; k < p->count; k++) {
        const tn_image_series *s = &p->series[k];
        if (!tni_is_upright(s)) {
            if (s->kind == TN_IMAGE_SERIES_BAND) tni_draw_band(p, s, k);
            else tni_draw_curve(p, s, k);
            continue;
        }
        for (int sign = 0; sign < 2; sign++) {
            if (sign == 1 && p->d.log_y) break;
            tni_cover_upright(p, s, sign == 1, place);
            tni_paint(&p->c, p->two_colours ? tni_pack(TN_IMAGE_COLOURS_DIVERGING, sign ? -0.7 : 0.7) : tni_series_ink(s, k), 1);
        }
        place++;
    }
}

/* The last value shown of a line, and its number; false without one. */
static bool tni_last_label(const tni_plot *p, const tn_image_series *s, char number[32], double *x, double *y)
{
    for (int64_t i = s->count; s->show_last && i-- > 0;) {
        if (!tni_plot_point(p, s, i, x, y)) continue;
        tni_tick_text(number, s->y[i], fabs(s->y[i]) < 1 ? 3 : 4, 0);
        return true;
    }
    return false;
}

enum { TNI_LAST_MOST = 32 };
typedef struct tni_last { char number[32]; double x, y; uint32_t ink; } tni_last;

/* Moves labels, sorted by y, to places at least `line` apart in [low,high], where n of them fit. The sum of the squared
   moves is minimal: y[i] - i line is replaced by the closest non-decreasing sequence, by pooling adjacent violators (Ayer et
   al. 1955). */
static void tni_last_spread(tni_last *l, int n, double line, double low, double high)
{
    double mean[TNI_LAST_MOST];
    int    size[TNI_LAST_MOST], pools = 0, i = 0;
    for (int k = 0; k < n; k++) {
        mean[pools] = l[k].y - k * line;
        size[pools++] = 1;
        for (; pools > 1 && mean[pools - 2] > mean[pools - 1]; pools--) {
            int both = size[pools - 2] + size[pools - 1];
            mean[pools - 2] += (mean[pools - 1] - mean[pools - 2]) * size[pools - 1] / both;
            size[pools - 2] = both;
        }
    }
    for (int k = 0; k < pools; k++)
        for (; size[k] > 0; size[k]--, i++) l[i].y = fmax(low, fmin(mean[k], high - (n - 1) * line)) + i * line;
}

/* The last values, sorted by y; at most as many as the axes are high enough for. Returns their number. */
static int tni_last_labels(const tni_plot *p, tni_last l[TNI_LAST_MOST])
{
    double low = p->f.top, high = p->f.top + p->f.body_height, line = tni_small * 1.1 * p->f.scale;
    int    most = (int)fmin((high - low) / line + 1, TNI_LAST_MOST), n = 0, i;
    for (int64_t k = 0; k < p->count && n < most; k++) {
        tni_last one;
        if (!tni_last_label(p, &p->series[k], one.number, &one.x, &one.y)) continue;
        one.x = tni_ruler_pixel(&p->x, one.x);
        one.y = tni_ruler_pixel(&p->y, one.y);
        one.ink = tni_series_ink(&p->series[k], k);
        if (one.y < low || one.y > high) continue;
        for (i = n++; i > 0 && l[i - 1].y > one.y; i--) l[i] = l[i - 1];
        l[i] = one;
    }
    tni_last_spread(l, n, line, low, high);
    return n;
}

/* They are right of the lines' ends. */
static void tni_draw_last(tni_plot *p)
{
    double   u = p->c.scale, size = tni_small * u;
    tni_last l[TNI_LAST_MOST];
    int      n = tni_last_labels(p, l);
    for (int k = 0; k < n; k++)
        tni_draw_label(&p->c, l[k].number, l[k].x + 7 * u, l[k].y + size * 0.35, size, 0, false, 1e6, l[k].ink);
}

/* ---- the legend --------------------------------------------- >>image-legend */
static double tni_legend_height(const tni_plot *p) { return ((double)p->lines * tni_legend_line + 6) * p->f.scale; }

/* Whether two strings are equal except for the case of ASCII letters. */
static bool tni_same_words(const char *a, const char *b)
{
    if (!a || !b) return false;
    for (; *a && *b; a++, b++)
        if (*a != *b && !((*a | 32) == (*b | 32) && (*a | 32) >= 'a' && (*a | 32) <= 'z')) return false;
    return *a == *b;
}

/* One series whose name is the title or that of the axis needs no legend. */
static void tni_legend_plan(tni_plot *p)
{
    double      u = p->f.scale;
    const char *name = NULL;
    if (p->two_colours) return;
    for (int64_t k = 0; k < p->count; k++) {
        if (!p->series[k].name) continue;
        name = p->series[k].name;
        p->legend_width = fmax(p->legend_width, fmin(tni_label_width(name, tni_small * u), 180 * u) + 44 * u);
        p->lines++;
    }
    if (p->lines == 1 && (tni_same_words(name, p->d.title) || tni_same_words(name, p->d.y_title))) p->lines = 0;
    p->lines = tni_min(p->lines, (int64_t)(p->f.body_height / (tni_legend_line * u)) - 1);
    p->outside = p->lines > TNI_LEGEND_INSIDE;
}

/* Whether a segment meets a box (Liang & Barsky 1984): the part of it on the inner side of each edge is kept. */
static bool tni_meets_box(const double a[2], const double b[2], const double low[2], const double high[2])
{
    double t0 = 0, t1 = 1;
    for (int i = 0; i < 2; i++) {
        double d = b[i] - a[i], in = (low[i] - a[i]), out = (high[i] - a[i]);
        if (d == 0 && (in > 0 || out < 0)) return false;
        if (d == 0) continue;
        t0 = fmax(t0, fmin(in / d, out / d));
        t1 = fmin(t1, fmax(in / d, out / d));
    }
    return t0 <= t1;
}

/* The number of parts of a series in a box: segments of a line, points, uprights, verticals of a band. */
static int64_t tni_series_in_box(const tni_plot *p, const tn_image_series *s, const double low[2], const double high[2])
{
    double  a[2] = {0, 0}, b[2];
    bool    before = false;
    int64_t n = 0;
    for (int64_t i = 0; i < s->count; i++) {
        bool shown = tni_plot_pixel(p, s, i, &b[0], &b[1]);
        if (!shown || !(before && s->kind == TN_IMAGE_SERIES_LINE)) memcpy(a, b, sizeof a);
        if (shown && tni_is_upright(s)) a[1] = p->y.from;
        if (shown && s->kind == TN_IMAGE_SERIES_BAND) a[1] = tni_ruler_pixel(&p->y, tni_plot_low(p, s, i));
        n += shown && tni_meets_box(a, b, low, high);
        before = shown;
        memcpy(a, b, sizeof a);
    }
    return n;
}

/* Chooses the corner with the fewest parts of the series, and returns their number. */
TNI_COLD static int64_t tni_legend_corner(tni_plot *p)
{
    double  u = p->f.scale, w = p->legend_width, h = tni_legend_height(p), x0 = p->x.from, x1 = p->x.to, y0 = p->y.to,
            y1 = p->y.from;
    int64_t least = INT64_MAX;
    for (int corner = 0; corner < 4; corner++) {
        double  low[2], high[2];
        int64_t n = 0;
        low[0] = corner & 1 ? x0 + 8 * u : x1 - w - 6 * u;
        low[1] = corner & 2 ? y1 - h - 8 * u : y0 + 6 * u;
        high[0] = low[0] + w;
        high[1] = low[1] + h;
        for (int64_t k = 0; k < p->count; k++) n += tni_series_in_box(p, &p->series[k], low, high);
        if (n >= least) continue;
        least = n;
        p->legend_x = low[0];
        p->legend_y = low[1];
    }
    return least;
}

static void tni_draw_legend_key(tni_plot *p, const tn_image_series *s, int64_t k, double x, double y)
{
    tni_canvas *c = &p->c;
    double      u = c->scale, phase = 0;
    if (s->kind == TN_IMAGE_SERIES_LINE) tni_cover_line(c, x + 6 * u, y, x + 28 * u, y, 0.85 * u, tni_is_dashed(s, k), &phase);
    if (s->kind == TN_IMAGE_SERIES_BARS) tni_cover_box(c, x + 11 * u, y - 5 * u, x + 23 * u, y + 5 * u);
    else if (s->kind == TN_IMAGE_SERIES_BAND) tni_cover_box(c, x + 6 * u, y - 5 * u, x + 28 * u, y + 5 * u);
    else if (s->kind == TN_IMAGE_SERIES_STEMS || tni_has_markers(s))
        tni_cover_segment(c, x + 17 * u, y, x + 17 * u, y, 2.8 * u);
    tni_paint(c, tni_series_ink(s, k), s->kind == TN_IMAGE_SERIES_BAND ? 0.22 : 1);
}

static void tni_draw_legend(tni_plot *p)
{
    tni_canvas *c = &p->c;
    double      u = c->scale, size = tni_small * u, x = p->legend_x, y = p->legend_y;
    int64_t     lines = p->lines;
    if (lines < 1) return;
    tni_draw_box(c, x, y, x + p->legend_width, y + tni_legend_height(p), TNI_WHITE);
    tni_draw_frame(c, x, y, x + p->legend_width, y + tni_legend_height(p), u, TNI_FRAME_INK);
    y += (3 + tni_legend_line / 2) * u;
    for (int64_t k = 0; k < p->count && lines > 0; k++) {
        const tn_image_series *s = &p->series[k];
        if (!s->name) continue;
        tni_draw_legend_key(p, s, k, x, y);
        tni_draw_label(c, s->name, x + 36 * u, y + size * 0.35, size, 0, false, p->legend_width - 40 * u, TNI_TEXT_INK);
        y += tni_legend_line * u;
        lines--;
    }
}

/* ---- the whole plot: checks, layout, drawing ---------------- >>image-plot-whole */
static bool tni_series_check(tn_ctx *ctx, const tn_image_series *s, int64_t k)
{
    char name[3][40];
    tni_print(name[0], sizeof name[0], "count of series %lld", (long long)k);
    tni_print(name[1], sizeof name[1], "y of series %lld", (long long)k);
    tni_print(name[2], sizeof name[2], "low of series %lld", (long long)k);
    if (!tni_within(ctx, "image_plot", name[0], s->count, 0, INT64_MAX)
        || !tni_figure_array(ctx, "image_plot", name[1], s->count > 0, s->y)
        || !tni_figure_array(ctx, "image_plot", name[2], s->count > 0 && s->kind == TN_IMAGE_SERIES_BAND, s->low)) return false;
    tni_print(name[0], sizeof name[0], "colour of series %lld", (long long)k);
    tni_print(name[1], sizeof name[1], "kind of series %lld", (long long)k);
    return tni_within(ctx, "image_plot", name[0], s->colour, 0, TNI_SERIES_INKS)
        && tni_within(ctx, "image_plot", name[1], (int64_t)s->kind, TN_IMAGE_SERIES_LINE, TN_IMAGE_SERIES_BAND);
}

/* Names of an axis and their number are given together, and not for a logarithmic axis, which has no place 0. */
static bool tni_plot_names(tn_ctx *ctx, const tn_image_plot_desc *d)
{
    if (d->x_names && d->log_x)
        return tni_fail(ctx, TN_ERR_ARG, "image_plot: x_names are given and log_x is true, expected one of them"), false;
    return tni_within(ctx, "image_plot", "x_name_count", d->x_name_count, d->x_names != NULL, INT64_MAX)
        && tni_figure_array(ctx, "image_plot", "x_names", d->x_name_count > 0, d->x_names);
}

/* The lower end of an axis, if one is given, is positive where the axis is logarithmic. */
static bool tni_plot_positive(tn_ctx *ctx, const char *axis, bool log, double low, double high)
{
    if (!log || low > 0 || (low == 0 && high == 0)) return true;
    return tni_fail(ctx, TN_ERR_ARG, "image_plot: %s_low is %g, expected more than 0 with log_%s", axis, low, axis), false;
}

static bool tni_plot_check(tn_ctx *ctx, const tn_image_plot_desc *d, const tn_image_series *series, int64_t count)
{
    if (!ctx || !tni_within(ctx, "image_plot", "scale", d->scale, 0, 16)
        || !tni_within(ctx, "image_plot", "width", d->width, 0, 65536)
        || !tni_within(ctx, "image_plot", "height", d->height, 0, 65536)
        || !tni_figure_ends(ctx, "image_plot", "x_", d->x_low, d->x_high, false)
        || !tni_figure_ends(ctx, "image_plot", "y_", d->y_low, d->y_high, false)
        || !tni_plot_positive(ctx, "x", d->log_x, d->x_low, d->x_high)
        || !tni_plot_positive(ctx, "y", d->log_y, d->y_low, d->y_high)
        || !tni_plot_names(ctx, d)
        || !tni_within(ctx, "image_plot", "count", count, 0, INT64_MAX)
        || !tni_figure_array(ctx, "image_plot", "series", count > 0, series)) return false;
    for (int64_t k = 0; k < count; k++) if (!tni_series_check(ctx, &series[k], k)) return false;
    return true;
}

static double tni_last_width(const tni_plot *p)
{
    double widest = 0, x, y;
    char   number[32];
    for (int64_t k = 0; k < p->count; k++)
        if (tni_last_label(p, &p->series[k], number, &x, &y))
            widest = fmax(widest, tni_label_width(number, tni_small * p->f.scale));
    return widest > 0 ? widest + 4 * p->f.scale : 0;
}

/* The rulers and the sides that they need; where the axes are. */
static void tni_plot_axes(tni_plot *p)
{
    tni_figure *f = &p->f;
    double      u = f->scale;
    f->right = (tni_pad + 10) * u + p->last_width + (p->outside ? p->legend_width + 4 * u : 0);
    tni_plot_ruler(p, &p->y, false, f->body_height / (44 * u));
    f->left = ceil(tni_pad * u + tni_axis_title_height(p->d.y_title, u) + tni_ruler_label_width(&p->y, tni_small * u)
                   + (tni_tick_length + 5) * u);
    f->body_width = floor(fmax((double)(p->d.width ? p->d.width : 560) * u - f->left - f->right, 80 * u));
    if (!p->outside) p->legend_width = fmin(p->legend_width, f->body_width - 12 * u);
    tni_plot_ruler(p, &p->x, true, f->body_width / (70 * u));
    p->x.from = f->left;
    p->x.to = f->left + f->body_width;
    p->y.to = f->top;
    p->y.from = floor(f->top + f->body_height);
}

/* Turns names that would touch side by side, and gives them the height that they need. */
static void tni_plot_rotate_names(tni_plot *p)
{
    double u = p->f.scale, widest = 0, before = -1e6;       /* before: where the last name ends */
    bool   touch = false;
    for (int k = 0; p->d.x_names && k < p->x.ticks; k++) {
        double width = tni_label_width(tni_plot_label(p, k), tni_small * u), at = tni_ruler_pixel(&p->x, p->x.at[k]);
        touch = touch || at - width / 2 < before + 4 * u;
        before = at + width / 2;
        widest = fmax(widest, width);
    }
    if (!touch || p->turned > 0) return;
    p->turned = fmin(widest, 110 * u);
    p->f.bottom += p->turned - tni_small * 0.75 * u;
    p->f.body_height = fmax(p->f.body_height - (p->turned - tni_small * 0.75 * u), 60 * u);
    tni_plot_axes(p);
}

/* Rulers and names for a legend in a corner; above: the room that it gets above the data. Returns whether it hides nothing. */
static bool tni_plot_with_legend(tni_plot *p, double above)
{
    p->above = above;
    tni_plot_axes(p);
    tni_plot_rotate_names(p);
    return p->lines < 1 || p->outside || tni_legend_corner(p) == 0;
}

/* Everything except title and caption is inside width x height; each side leaves the other its space. A legend that fits
   no corner gets room above bars and stems, or is put outside, if that leaves the axes most of the width. */
static void tni_plot_plan(tni_plot *p)
{
    tni_figure *f = &p->f;
    double      u = f->scale;
    f->what = "image_plot";
    f->title = p->d.title;
    f->caption = p->d.caption;
    f->top = f->title ? 0 : 6 * u;
    f->bottom = tni_axis_title_height(p->d.x_title, u) + (tni_tick_length + 5 + tni_small * 0.75) * u;
    f->body_height = fmax((double)(p->d.height ? p->d.height : 360) * u - f->bottom
                          - (2 * tni_pad + (f->title ? 27 : 6)) * u, 60 * u);
    tni_legend_plan(p);
    p->last_width = tni_last_width(p);
    if (tni_plot_with_legend(p, 0)) return;
    double room = (tni_legend_height(p) + 12 * u) / f->body_height;
    if (p->upright > 0 && room < 0.4 && tni_plot_with_legend(p, room / (1 - room))) return;
    p->outside = p->legend_width <= 0.4 * f->body_width;
    tni_plot_with_legend(p, 0);
}

/* Places the axes, when the space for title and caption is known. */
static void tni_plot_place(tni_plot *p)
{
    double u = p->f.scale;
    p->x.from = p->f.left;
    p->x.to = p->f.left + p->f.body_width;
    p->y.to = p->f.top;
    p->y.from = floor(p->f.top + p->f.body_height);
    if (!p->outside) tni_legend_corner(p);
    else {
        p->legend_x = p->x.to + 10 * u + p->last_width;
        p->legend_y = p->y.to;
    }
}

static void tni_plot_draw(tni_plot *p, double left)
{
    double      u = p->f.scale, x0 = p->x.from, x1 = p->x.to, y0 = p->y.to, y1 = p->y.from;
    tni_canvas *c = &p->c;
    tni_draw_grid(p, x0, y0, x1, y1);
    tni_draw_axis_titles(c, &p->f, p->d.x_title, p->d.y_title, y1 + p->f.bottom, p->f.left - left + tni_pad * u);
    tni_canvas_clip(c, (int64_t)x0, (int64_t)(y0 - 3 * u), (int64_t)(x1 + 3 * u), (int64_t)y1);
    tni_draw_series(p);
    tni_canvas_clip(c, 0, 0, c->image->width, c->image->height);
    tni_draw_last(p);
    tni_draw_legend(p);
}

tn_image *tn_image_plot(tn_ctx *ctx, const tn_image_series *series, int64_t count, const tn_image_plot_desc *desc)
{
    tni_plot p = TNI_ZERO;
    if (desc) p.d = *desc;
    if (!tni_plot_check(ctx, &p.d, series, count)) return NULL;
    p.series = series;
    p.count = count;
    for (int64_t k = 0; k < count; k++) p.upright += tni_is_upright(&series[k]);
    p.two_colours = count == 1 && p.upright > 0 && series[0].colour == 0;
    p.f.scale = (double)tni_max(p.d.scale, 1);
    tni_plot_plan(&p);
    double left = p.f.left;
    if (!tni_figure_open(&p.f, &p.c, ctx)) return NULL;
    tni_plot_place(&p);
    tni_plot_draw(&p, left);
    return tni_canvas_close(&p.c);
}

#endif /* TN_NO_IMAGE */
