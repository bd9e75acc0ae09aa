#include "core/inner.h"
#include "image/inner.h"

#ifndef TN_NO_IMAGE
/* ---- rulers: an axis and its round numbers ------------------ >>image-rulers
   Steps are 1, 2 or 5 times a power of ten. On a logarithmic axis they are powers of ten, or 1, 2, 5
   between two of them, or round numbers where it spans less than that. All labels of an axis are
   written in one style: with exponents if one of them needs an exponent. */

TNI_FN double tni_ruler_pixel(const tni_ruler *r, double v)
{
    double pixel = r->from + (v - r->low) / (r->high - r->low) * (r->to - r->from);
    return pixel > 1e6 ? 1e6 : pixel > -1e6 ? pixel : -1e6;
}

TNI_FN double tni_round_step(double raw)
{
    double unit = pow(10, floor(log10(raw))), m = raw / unit;
    return unit * (m < 1.0001 ? 1 : m < 2.0001 ? 2 : m < 5.0001 ? 5 : 10);
}

/* Like %.{digits}g, with at least `decimals` digits after the point, and 1e5 for 1e+05. */
TNI_FN void tni_tick_text(char dst[32], double v, int digits, int decimals)
{
    int   n = tni_format_double(dst, v, digits);
    char *e = strchr(dst, 'e'), *point = strchr(dst, '.');
    if (e) {
        char *from;
        from = e += e[1] == '-' ? 2 : 1;
        while (*from == '+' || *from == '0') from++;
        memmove(e, from, strlen(from) + 1);
    } else if (decimals > 0 && v - v == 0) {
        int have = point ? (int)(dst + n - point) - 1 : 0;
        if (!point) dst[n++] = '.';
        for (; have < decimals && n < 30; have++) dst[n++] = '0';
        dst[n] = 0;
    }
}

/* A mantissa of at most `digits` digits and an exponent, such as -2.5e3. */
static void tni_tick_exponent(char dst[32], double v, int digits)
{
    char   mantissa[32];
    double e = v == 0 ? 0 : floor(log10(fabs(v)) + 1e-9);
    tni_format_double(mantissa, v / pow(10, e), digits);
    if (v == 0) tni_print(dst, 32, "0");
    else tni_print(dst, 32, "%se%d", mantissa, (int)e);
}

TNI_FN void tni_tick(tni_ruler *r, double at, double value, int digits, int decimals)
{
    double slack = 1e-9 * (r->high - r->low);                /* infinite for an axis of all doubles */
    if (r->ticks == TNI_TICKS || at < r->low - slack || at > r->high + slack || value - value != 0) return;
    r->at[r->ticks] = at;
    r->value[r->ticks] = value;
    r->decimals = decimals;
    tni_tick_text(r->label[r->ticks++], value, digits, decimals);
}

static void tni_ticks_even(tni_ruler *r, double low, double high, double wanted, bool whole)
{
    double step = tni_round_step((high - low) / wanted);
    if (whole && step < 1) step = 1;
    double first = ceil(low / step - 1e-6), most = fmax(fabs(low), fabs(high));
    int    digits = (int)fmin(fmax(floor(log10(most / step) + 1e-6) + 2, 6), 15);
    int    decimals = (int)fmin(fmax(-floor(log10(step) + 1e-6), 0), 6);
    for (int k = 0; k < TNI_TICKS; k++) {
        double v = (first + k) * step;
        if (r->log && v <= 0) continue;
        tni_tick(r, r->log ? log10(v) : v, v, digits, v == 0 && step < 1e-4 ? 0 : decimals);
    }
}

static void tni_ticks_log(tni_ruler *r, double wanted)
{
    static const double digit[] = {1, 2, 5};
    double first = ceil(r->low - 1e-9), last = floor(r->high + 1e-9);
    if (last - first >= 2) {
        double step = ceil((last - first + 1) / fmax(wanted, 1));
        for (double e = first; e <= last; e += step) tni_tick(r, e, pow(10, e), 5, 0);
        return;
    }
    for (double e = first - 1; e <= last; e++)
        for (int k = 0; k < 3; k++) tni_tick(r, e + log10(digit[k]), digit[k] * pow(10, e), 5, 0);
    if (r->ticks >= 2) return;
    r->ticks = 0;
    tni_ticks_even(r, pow(10, r->low), pow(10, r->high), wanted, false);
}

/* If one label has an exponent, all get one. */
static void tni_ticks_one_style(tni_ruler *r, int digits)
{
    int with = 0;
    for (int k = 0; k < r->ticks; k++) with += strchr(r->label[k], 'e') != NULL;
    for (int k = 0; with > 0 && k < r->ticks; k++)
        if (!strchr(r->label[k], 'e')) tni_tick_exponent(r->label[k], r->value[k], digits);
}

TNI_FN void tni_ruler_init(tni_ruler *r, double low, double high, bool log, double wanted, bool whole)
{
    memset(r, 0, sizeof *r);
    r->low = low;
    r->high = high;
    r->log = log;
    wanted = fmax(fmin(wanted, 16), 2);
    for (int tries = 0; r->ticks < 3 && tries < 6; tries++, wanted *= 1.5) { /* two numbers do not show a scale */
        r->ticks = 0;
        if (log) tni_ticks_log(r, wanted);
        else tni_ticks_even(r, low, high, wanted, whole);
    }
    tni_ticks_one_style(r, 12);
}

TNI_FN double tni_ruler_label_width(const tni_ruler *r, double size)
{
    double width = 0;
    for (int k = 0; k < r->ticks; k++) width = fmax(width, tni_label_width(r->label[k], size));
    return width;
}

/* ---- heat: a matrix as coloured cells ----------------------- >>image-heat */

/* How n values fill a side of `size` pixels at scale 1: pixels per cell, where a cell has `block` values. */
static int64_t tni_heat_side(int64_t n, int64_t size, int64_t scale, int64_t *block)
{
    *block = 1;
    if (n <= size) return tni_min(size / n, TNI_CELL_MAX) * scale;
    *block = n / (size * scale) + (n % (size * scale) != 0);
    return 1;
}

/* How a matrix fills `size` pixels: whole pixels per cell, or, where there are more values, blocks of them. */
TNI_FN bool tni_heat_plan(tn_ctx *ctx, const char *what, tni_heat *h, int64_t rows, int64_t columns, int64_t cell,
                          int64_t size, int64_t scale, bool stretch)
{
    size_t bytes;
    memset(h, 0, sizeof *h);
    if (!tni_area_size(rows, columns, sizeof(double), &bytes))
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: %lld x %lld values are larger than the address space", what, (long long)rows,
                        (long long)columns), false;
    h->rows = rows;
    h->columns = columns;
    h->block_h = h->block_w = 1;
    if (rows == 0 || columns == 0) {
        h->height = h->width = size * scale / 4;
        return true;
    }
    if (cell > 0) h->cell_h = h->cell_w = cell * scale;
    else if (stretch) {
        h->cell_h = tni_heat_side(rows, size, scale, &h->block_h);
        h->cell_w = tni_heat_side(columns, size, scale, &h->block_w);
    } else {
        h->cell_h = h->cell_w = tni_heat_side(tni_max(rows, columns), size, scale, &h->block_h);
        h->block_w = h->block_h;
    }
    h->down = rows / h->block_h + (rows % h->block_h != 0);
    h->across = columns / h->block_w + (columns % h->block_w != 0);
    if (cell == 0) {                    /* a row or a column alone is made wide enough to be seen */
        h->cell_h = tni_max(h->cell_h, TNI_THIN * scale / h->down);
        h->cell_w = tni_max(h->cell_w, TNI_THIN * scale / h->across);
    }
    if (h->down > TNI_SIDE_MAX / h->cell_h || h->across > TNI_SIDE_MAX / h->cell_w)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: there are %lld x %lld cells of %lld pixels, expected at most %d pixels per "
                        "side", what, (long long)h->down, (long long)h->across, (long long)h->cell_h, TNI_SIDE_MAX), false;
    h->height = h->down * h->cell_h;
    h->width = h->across * h->cell_w;
    return true;
}

/* The mean of a cell's values that are not NaN, or the one of largest magnitude; NaN when there are none. */
static double tni_heat_value(const tni_heat *h, const double *values, int64_t i, int64_t j)
{
    int64_t i1 = tni_min((i + 1) * h->block_h, h->rows), j1 = tni_min((j + 1) * h->block_w, h->columns);
    double  sum = 0, count = 0, most = 0;
    if (h->block_h == 1 && h->block_w == 1) return values[i * h->columns + j];
    for (int64_t r = i * h->block_h; r < i1; r++)
        for (int64_t k = j * h->block_w; k < j1; k++) {
            double v = values[r * h->columns + k];
            if (v == v) { sum += v; count++; }
            if (fabs(v) > fabs(most)) most = v;
        }
    return h->largest && count > 0 ? most : sum / count;
}

/* Widens [low,high] to the finite values shown. Values beyond 1e300 count as infinite, so that no difference overflows. */
static void tni_heat_range(const tni_heat *h, const double *values, double *low, double *high)
{
    for (int64_t i = 0; i < h->down; i++)
        for (int64_t j = 0; j < h->across; j++) {
            double v = tni_heat_value(h, values, i, j);
            if (!(fabs(v) < TNI_HUGE)) continue;
            *low = fmin(*low, v);
            *high = fmax(*high, v);
        }
}

/* A diverging scale is symmetric about zero; no scale is empty. */
static void tni_shades_init(tni_shades *s, tn_image_colours colours, double low, double high)
{
    bool diverging = colours == TN_IMAGE_COLOURS_DIVERGING;
    if (diverging) {
        high = fmax(fabs(low), fabs(high));
        low = -high;
    }
    if (high - low < 1e-300) {
        low -= diverging;
        high += 1;
    }
    s->low = low;
    s->high = high;
    for (int k = 0; k < TNI_SHADES; k++) {
        double t = (double)k / (TNI_SHADES - 1);
        tn_image_colour(colours, diverging ? 2 * t - 1 : t, s->rgb[k]);
    }
}

/* The k-th smallest of n numbers, in place (Hoare 1961, FIND): those before it are not larger, those
   after it not smaller. */
static double tni_kth_smallest(double *v, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        double  pivot = v[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (v[i] < pivot) i++;
            while (v[j] > pivot) j--;
            if (i > j) break;
            double other = v[i];
            v[i++] = v[j];
            v[j--] = other;
        }
        if (k <= j) high = j;
        else if (k >= i) low = i;
        else break;
    }
    return v[k];
}

/* The index of a percentile in n sorted values. Rounding must not raise it: 99.9 % of 1000 values are the first 999. */
static int64_t tni_percentile_index(double percent, int64_t n)
{
    int64_t rank = (int64_t)ceil(percent * (double)n / 100 * (1 - 1e-12));
    return tni_max(tni_min(rank, n), 1) - 1;
}

/* A percentile of the absolute values of all finite values; 0 if most are zero, -1 when out of memory. */
static double tni_heat_percentile(tn_ctx *ctx, const tni_heat *h, const double *values, int64_t count, double percent)
{
    int64_t cells = h->down * h->across, n = 0;
    tni_scratch w = tni_scratch_begin(ctx, "image");
    double  *sizes = tni_take_f64(&w, count, cells), end = 0;
    if (!sizes) return -1;
    for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < cells; i++) {
            double v = fabs(tni_heat_value(h, values + k * h->rows * h->columns, i / h->across, i % h->across));
            if (v < TNI_HUGE) sizes[n++] = v;
        }
    if (n > 0) end = tni_kth_smallest(sizes, n, tni_percentile_index(percent, n));
    tni_scratch_end(&w, TN_OK);
    return end;
}

/* The scale of `count` matrices: as the desc says, or of the data and zero. A clip at zero is ignored, since the picture
   would be blank. */
TNI_FN bool tni_shades_of(tn_ctx *ctx, tni_shades *s, const tni_scale *scale, const tni_heat *h, const double *values,
                          int64_t count)
{
    double low = scale->low, high = scale->high;
    if (low == 0 && high == 0 && h->down > 0) {
        for (int64_t k = 0; k < count; k++) tni_heat_range(h, values + k * h->rows * h->columns, &low, &high);
        if (scale->clip > 0 && scale->clip < 100 && count > 0) {
            double end = tni_heat_percentile(ctx, h, values, count, scale->clip);
            if (end < 0) return false;
            if (end > 0) { low = fmax(low, -end); high = fmin(high, end); }
        }
    }
    tni_shades_init(s, scale->colours, low, high);
    return true;
}

static void tni_shade(const tni_shades *s, double v, uint8_t rgb[3])
{
    double t = (v / 2 - s->low / 2) / (s->high / 2 - s->low / 2);
    if (v != v) tni_unpack(TNI_NAN_INK, rgb);
    else memcpy(rgb, s->rgb[t <= 0 ? 0 : t >= 1 ? TNI_SHADES - 1 : (int)(t * (TNI_SHADES - 1) + 0.5)], 3);
}

/* Cells for the SVG, which takes each one's colour from the pixel in its corner. */
static void tni_mark_cells(tni_canvas *c, tni_mark_kind kind, int64_t x, int64_t y, int64_t width, int64_t height,
                           int64_t cell_w, int64_t cell_h)
{
    tni_mark *m = tni_mark_add(c, kind, (double)x, (double)y, (double)width, (double)height, (double)cell_w);
    if (m) m->v[5] = (double)cell_h;
}

/* Cells with their corner at (x,y), in a thin frame. */
TNI_FN void tni_draw_heat(tni_canvas *c, const tni_heat *h, const tni_shades *s, const double *values, int64_t x, int64_t y)
{
    tni_mark_cells(c, TNI_MARK_CELLS, x, y, h->width, h->height, h->cell_w, h->cell_h);
    for (int64_t i = 0; i < h->down; i++) {
        uint8_t *line = c->image->pixels + 3 * ((y + i * h->cell_h) * c->image->width + x);
        for (int64_t j = 0; j < h->across; j++) {
            uint8_t rgb[3];
            tni_shade(s, tni_heat_value(h, values, i, j), rgb);
            for (int64_t k = 0; k < h->cell_w; k++) memcpy(line + 3 * (j * h->cell_w + k), rgb, 3);
        }
        for (int64_t k = 1; k < h->cell_h; k++) memcpy(line + 3 * k * c->image->width, line, (size_t)h->width * 3);
    }
    tni_draw_frame(c, (double)x, (double)y, (double)(x + h->width), (double)(y + h->height), c->scale, TNI_LINE_INK);
}

/* The number of a cell. Values below a millionth of the scale are rounding errors, written as 0. decimals below 0: three
   digits; else decimals as given, without zeros at the end. */
static double tni_number_text(char dst[32], const tni_heat *h, const tni_shades *s, const double *values, int64_t i,
                              int64_t j, int decimals)
{
    double v = tni_heat_value(h, values, i, j), unit = pow(10, decimals);
    double shown = fabs(v) < 1e-6 * (s->high - s->low) ? 0 : v;
    if (decimals < 0) tni_tick_text(dst, shown, 3, 0);
    else tni_tick_text(dst, floor(shown * unit + 0.5) / unit, 15, 0);
    return v;
}

/* The size in which all numbers fit into their cells, `size` or down to 3/4 of it. *decimals: as many as that allows, the
   same in all cells if three digits of each number are too wide. */
static double tni_numbers_fit(const tni_heat *h, const tni_shades *s, const double *values, double size, double room,
                              int *decimals)
{
    double  high = fmax(fabs(s->low), fabs(s->high)), widest = 0;
    int     whole = high > 0 && high < TNI_HUGE ? (int)floor(log10(high)) + 1 : 1, most = 3 - whole, least = 1 - whole;
    char    number[32];
    int64_t i;
    if (least < 0) least = 0;
    if (most < least) most = least;
    for (*decimals = -1; ; *decimals = *decimals < 0 ? most : *decimals - 1) {
        for (widest = 0, i = 0; i < h->down; i++)
            for (int64_t j = 0; j < h->across; j++) {
                tni_number_text(number, h, s, values, i, j, *decimals);
                widest = fmax(widest, tni_label_width(number, size));
            }
        if (widest * 0.75 <= room || *decimals == least) break;
    }
    return widest > room ? size * fmax(room / widest * 0.999, 0.75) : size;
}

/* The value of each cell that has room for it. */
TNI_FN void tni_draw_numbers(tni_canvas *c, const tni_heat *h, const tni_shades *s, const double *values, int64_t x,
                             int64_t y)
{
    double size = tni_small * c->scale, room = (double)h->cell_w - 4 * c->scale;
    int    decimals;
    if ((double)h->cell_h < size * 1.2 || (double)h->cell_w < size * 2) return;
    size = tni_numbers_fit(h, s, values, size, room, &decimals);
    for (int64_t i = 0; i < h->down; i++)
        for (int64_t j = 0; j < h->across; j++) {
            uint8_t rgb[3];
            char    number[32];
            tni_shade(s, tni_number_text(number, h, s, values, i, j, decimals), rgb);
            tni_draw_label(c, number, (double)(x + j * h->cell_w) + (double)h->cell_w / 2,
                           (double)(y + i * h->cell_h) + (double)h->cell_h / 2 + size * 0.35, size, 0.5, false, room,
                           rgb[0] * 3 + rgb[1] * 6 + rgb[2] < 1250 ? TNI_WHITE : TNI_TEXT_INK);
        }
}

/* ---- the colour bar: 14 wide, its numbers at the right ------ >>image-bar
   Both ends have a number; round numbers too close to an end are left out. */

static void tni_bar_end(tni_ruler *r, double v)
{
    int k = r->ticks;
    if (k == TNI_TICKS) return;
    r->at[k] = r->value[k] = v;
    tni_tick_text(r->label[k], v, 3, r->decimals);
    r->ticks++;
}

/* Returns the width that the bar needs. */
TNI_FN double tni_bar_init(tni_ruler *r, const tni_shades *s, double height, double scale)
{
    double least = 16 * scale / height * (s->high - s->low);
    int    kept = 0;
    tni_ruler_init(r, s->low, s->high, false, height / (36 * scale), false);
    for (int k = 0; k < r->ticks; k++) {
        if (r->at[k] - s->low < least || s->high - r->at[k] < least) continue;
        r->at[kept] = r->at[k];
        r->value[kept] = r->value[k];
        memmove(r->label[kept++], r->label[k], sizeof r->label[k]);
    }
    r->ticks = kept;
    tni_bar_end(r, s->low);
    tni_bar_end(r, s->high);
    tni_ticks_one_style(r, 3);
    return (tni_bar_gap + tni_bar_width + tni_tick_length + 4) * scale + tni_ruler_label_width(r, tni_small * scale);
}

TNI_FN void tni_draw_bar(tni_canvas *c, tni_ruler *r, const tni_shades *s, double x, double y, double height)
{
    double u = c->scale, right = x + tni_bar_width * u;
    tni_mark_cells(c, TNI_MARK_BAR, (int64_t)x, (int64_t)y, (int64_t)right - (int64_t)x,
                   (int64_t)(y + height) - (int64_t)y, (int64_t)right - (int64_t)x, 1);
    for (int64_t row = (int64_t)y; row < (int64_t)(y + height); row++)
        for (int64_t column = (int64_t)x; column < (int64_t)right; column++)
            tni_shade(s, s->high - (s->high - s->low) * (((double)row + 0.5 - y) / height),
                      c->image->pixels + 3 * (row * c->image->width + column));
    tni_draw_frame(c, x, y, right, y + height, u, TNI_LINE_INK);
    r->from = y + height;
    r->to = y;
    for (int k = 0; k < r->ticks; k++) {
        double at = floor(tni_ruler_pixel(r, r->at[k]) - u / 2 + 0.5);
        tni_draw_box(c, right + u, at, right + (tni_tick_length + 1) * u, at + u, TNI_LINE_INK);
        tni_draw_label(c, r->label[k], right + (tni_tick_length + 4) * u, at + u / 2 + tni_small * u * 0.35, tni_small * u,
                       0, false, 1e6, TNI_TEXT_INK);
    }
}

#endif /* TN_NO_IMAGE */
