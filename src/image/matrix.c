#include "core/inner.h"
#include "tensor/inner.h"
#include "image/inner.h"

#ifndef TN_NO_IMAGE
/* ---- one matrix --------------------------------------------- >>image-matrix */
/* Checks of a desc, as tni_within. The extents of an array, of which both are 0 or more. */
static bool tni_figure_shape(tn_ctx *ctx, const char *what, const char *down, int64_t rows, const char *across,
                             int64_t columns)
{
    if (rows >= 0 && columns >= 0) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %lld, expected 0 or more", what, rows < 0 ? down : across,
                    (long long)(rows < 0 ? rows : columns)), false;
}

static bool tni_figure_number(tn_ctx *ctx, const char *what, const char *name, double v, double low, double high)
{
    if (v >= low && v <= high) return true;
    return tni_fail(ctx, TN_ERR_ARG, "%s: %s is %g, expected %g to %g", what, name, v, low, high), false;
}

TNI_FN bool tni_figure_array(tn_ctx *ctx, const char *what, const char *name, bool needed, const void *array)
{
    if (!needed || array) return true;
    return tni_fail(ctx, TN_ERR_ARG, "%s: %s is NULL, expected an array", what, name), false;
}

/* The ends of a scale: both 0, low < high, or, on a scale that is symmetric about zero, any two numbers. */
TNI_FN bool tni_figure_ends(tn_ctx *ctx, const char *what, const char *axis, double low, double high, bool symmetric)
{
    char name[2][8];
    tni_print(name[0], sizeof name[0], "%slow", axis);
    tni_print(name[1], sizeof name[1], "%shigh", axis);
    if (!tni_figure_number(ctx, what, name[0], low, -TNI_HUGE, TNI_HUGE)
        || !tni_figure_number(ctx, what, name[1], high, -TNI_HUGE, TNI_HUGE)) return false;
    if ((low == 0 && high == 0) || symmetric || high - low > 1e-9 * fmax(fabs(low), fabs(high))) return true;
    return tni_fail(ctx, TN_ERR_ARG, "%s: %s is %g and %s is %g, expected %s < %s", what, name[0], low, name[1], high, name[0],
                    name[1]), false;
}

static bool tni_figure_cells(tn_ctx *ctx, const char *what, int64_t cell, int64_t size, int scale, const tni_scale *colours)
{
    return ctx && tni_within(ctx, what, "cell", cell, 0, 4096) && tni_within(ctx, what, "size", size, 0, 65536)
        && tni_within(ctx, what, "scale", scale, 0, 16) && tni_figure_number(ctx, what, "clip", colours->clip, 0, 100)
        && tni_within(ctx, what, "colours", (int64_t)colours->colours, TN_IMAGE_COLOURS_DIVERGING,
                            TN_IMAGE_COLOURS_SEQUENTIAL)
        && tni_figure_ends(ctx, what, "", colours->low, colours->high, colours->colours == TN_IMAGE_COLOURS_DIVERGING);
}

/* The labels along one side: of value 0, step, 2 step ... */
typedef struct tni_side {
    const char *const *names;           /* or NULL: numbers */
    int64_t count, step;
    double  spacing;                    /* pixels from one value to the next */
    double  widest, room;
    bool    turned;
} tni_side;

static const char *tni_side_label(const tni_side *s, int64_t k, char number[32])
{
    if (s->names) return s->names[k] ? s->names[k] : "";
    tni_print(number, 32, "%lld", (long long)k);
    return number;
}

static void tni_side_init(tni_side *s, const char *const *names, int64_t count, double spacing, bool across, double scale)
{
    double size = tni_small * scale;
    char   number[32];
    s->names = names;
    s->count = spacing > 0 ? count : 0;
    s->step = 1;
    s->spacing = spacing;
    s->room = 110 * scale;
    s->widest = 0;
    if (spacing > 0 && names) s->step = (int64_t)ceil(size * 1.15 / spacing);
    else if (spacing > 0) {
        double room = across ? tni_label_width(tni_side_label(s, count, number), size) + 18 * scale : 26 * scale;
        s->step = (int64_t)fmax(tni_round_step(room / spacing), 1);
    }
    for (int64_t k = 0; k < s->count; k += s->step)
        s->widest = fmax(s->widest, tni_label_width(tni_side_label(s, k, number), size));
    s->turned = across && names && s->widest + 6 * scale > spacing;
    s->widest = fmin(s->widest, s->room);
}

/* Where the labels of a side are: below and left with tick marks, above without. */
typedef enum tni_side_place { TNI_BELOW, TNI_LEFT, TNI_ABOVE } tni_side_place;

static void tni_draw_side_label(tni_canvas *c, const tni_side *s, const char *label, double at, double y, bool above)
{
    double u = c->scale, size = tni_small * u, away = (tni_tick_length + 4) * u;
    if (s->turned) tni_draw_label(c, label, at + size * 0.35, above ? y - away : y + away + u, size, above ? 0 : 1, true,
                                  s->room, TNI_TEXT_INK);
    else tni_draw_label(c, label, at, above ? y - 6 * u : y + away + size * 0.75, size, 0.5, false, s->room, TNI_TEXT_INK);
}

static void tni_draw_side(tni_canvas *c, const tni_side *s, double x, double y, tni_side_place place)
{
    double u = c->scale, size = tni_small * u;
    char   number[32];
    for (int64_t k = 0; k < s->count; k += s->step) {
        const char *label = tni_side_label(s, k, number);
        double      at = ((double)k + 0.5) * s->spacing, edge = floor((place == TNI_LEFT ? y : x) + at - u / 2 + 0.5);
        if (place == TNI_BELOW) tni_draw_box(c, edge, y + u, edge + u, y + (tni_tick_length + 1) * u, TNI_LINE_INK);
        if (place != TNI_LEFT) tni_draw_side_label(c, s, label, x + at, y, place == TNI_ABOVE);
        else {
            tni_draw_box(c, x - (tni_tick_length + 1) * u, edge, x - u, edge + u, TNI_LINE_INK);
            tni_draw_label(c, label, x - (tni_tick_length + 4) * u, y + at + size * 0.35, size, 1, false, s->room,
                           TNI_TEXT_INK);
        }
    }
}

static double tni_figure_text(tni_canvas *c, const tni_figure *f, const char *s, double y, double size)
{
    double middle = f->left + f->body_width / 2, pad = tni_pad * f->scale,
           room = 2 * (fmin(middle, f->width - middle) - pad);
    if (tni_label_width(s, size) > room) {
        middle = f->width / 2;
        room = f->width - 2 * pad;
    }
    return tni_paragraph(c, s, middle, y, size, room);
}

/* Adds title and caption to the margins, and width where they need it; opens the picture and writes both. */
TNI_FN bool tni_figure_open(tni_figure *f, tni_canvas *c, tn_ctx *ctx)
{
    double u = f->scale, wish = fmax(tni_label_width(f->title, tni_large * u), tni_label_width(f->caption, tni_medium * u));
    f->width = f->left + f->body_width + f->right;
    double more = fmax(fmin(wish, 360 * u) + 2 * tni_pad * u - f->width, 0);
    f->left = floor(f->left + more / 2);
    f->width += more;
    f->title_height = tni_figure_text(NULL, f, f->title, 0, tni_large * u);
    f->caption_height = tni_figure_text(NULL, f, f->caption, 0, tni_medium * u);
    f->top = ceil(f->top + tni_pad * u + f->title_height + (f->title_height > 0 ? 6 * u : 0));
    f->height = f->top + f->body_height + f->bottom + f->caption_height + (f->caption_height > 0 ? 6 * u : 0) + tni_pad * u;
    if (f->width * f->height > tni_area_most)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: the picture has %lld x %lld pixels, expected at most %lld in all", f->what,
                        (long long)ceil(f->width), (long long)ceil(f->height), (long long)tni_area_most), false;
    if (!tni_canvas_open(c, ctx, f->width, f->height, u)) return false;
    tni_figure_text(c, f, f->title, tni_pad * u, tni_large * u);
    tni_figure_text(c, f, f->caption, f->height - f->caption_height - tni_pad * u, tni_medium * u);
    return true;
}

TNI_FN double tni_axis_title_height(const char *title, double scale) { return title && *title ? (tni_medium + 7) * scale : 0; }

/* The titles of both axes: centred below `bottom`, and at the left edge. */
TNI_FN void tni_draw_axis_titles(tni_canvas *c, const tni_figure *f, const char *x_title, const char *y_title, double bottom,
                                 double left)
{
    double u = c->scale, size = tni_medium * u, x = f->left + f->body_width / 2, y = f->top + f->body_height / 2;
    tni_draw_label(c, x_title, x, bottom - 3 * u, size, 0.5, false, 2 * fmin(x, f->width - x), TNI_TEXT_INK);
    tni_draw_label(c, y_title, left + size * 0.8, y, size, 0.5, true, 2 * fmin(y, f->height - y), TNI_TEXT_INK);
}

typedef struct tni_matrix {
    tn_image_matrix_desc d;
    tni_scale  scale;
    tni_heat   heat;
    tni_shades shades;
    tni_side   across, down;
    tni_ruler  bar;
    tni_figure f;
    tni_canvas c;
    double     bar_height, left, below;     /* left, below: the room of the labels at those sides */
} tni_matrix;

static bool tni_matrix_check(tni_matrix *m, tn_ctx *ctx, const double *values, int64_t rows, int64_t columns)
{
    tn_image_matrix_desc *d = &m->d;
    m->scale.colours = d->colours;
    m->scale.low = d->low;
    m->scale.high = d->high;
    m->scale.clip = d->clip;
    if (!tni_figure_cells(ctx, "image_matrix", d->cell, d->size, d->scale, &m->scale)
        || !tni_figure_shape(ctx, "image_matrix", "rows", rows, "columns", columns)) return false;
    d->scale = (int)tni_max(d->scale, 1);
    if (!tni_heat_plan(ctx, "image_matrix", &m->heat, rows, columns, d->cell, d->size ? d->size : 400, d->scale, d->stretch))
        return false;
    m->heat.largest = d->largest;
    return tni_figure_array(ctx, "image_matrix", "values", m->heat.down > 0, values);
}

static void tni_matrix_plan(tni_matrix *m)
{
    const tn_image_matrix_desc *d = &m->d;
    tni_figure *f = &m->f;
    double      u = f->scale = d->scale, height = (double)m->heat.height;
    tni_side_init(&m->across, d->x_names, m->heat.columns, (double)m->heat.cell_w / (double)m->heat.block_w, true, u);
    tni_side_init(&m->down, d->y_names, m->heat.rows, (double)m->heat.cell_h / (double)m->heat.block_h, false, u);
    f->what = "image_matrix";
    f->title = d->title;
    f->caption = d->caption;
    m->bar_height = fmax(height, tni_bar_least * u);
    f->body_width = (double)m->heat.width;
    f->body_height = d->no_bar ? height : m->bar_height;
    m->left = f->left = ceil(tni_pad * u + tni_axis_title_height(d->y_title, u)
                             + (d->no_ticks ? 2 * u : m->down.widest + (tni_tick_length + 4) * u));
    m->below = tni_axis_title_height(d->x_title, u)
             + (d->no_ticks ? 2 * u
                : (m->across.turned ? m->across.widest : tni_small * u * 0.75) + (tni_tick_length + 5) * u);
    f->bottom = fmax(m->below - (f->body_height - height) / 2, 2 * u);
    f->right = tni_pad * u + (d->no_bar ? 4 * u : tni_bar_init(&m->bar, &m->shades, m->bar_height, u));
}

static void tni_matrix_draw(tni_matrix *m, const double *values)
{
    tni_canvas *c = &m->c;
    tni_figure *f = &m->f;
    double      u = c->scale, height = (double)m->heat.height;
    int64_t     x = (int64_t)f->left, y = (int64_t)(f->top + (f->body_height - height) / 2);
    tni_draw_heat(c, &m->heat, &m->shades, values, x, y);
    if (m->d.numbers) tni_draw_numbers(c, &m->heat, &m->shades, values, x, y);
    if (m->heat.down == 0)
        tni_draw_label(c, "empty", (double)x + f->body_width / 2, (double)y + height / 2, tni_small * u, 0.5, false,
                       f->body_width, TNI_TEXT_INK);
    if (!m->d.no_ticks) {
        tni_draw_side(c, &m->across, (double)x, (double)y + height, TNI_BELOW);
        tni_draw_side(c, &m->down, (double)x, (double)y, TNI_LEFT);
    }
    tni_draw_axis_titles(c, f, m->d.x_title, m->d.y_title, (double)y + height + m->below, f->left - m->left + tni_pad * u);
    if (!m->d.no_bar) tni_draw_bar(c, &m->bar, &m->shades, f->left + f->body_width + tni_bar_gap * u, f->top, m->bar_height);
}

tn_image *tn_image_matrix(tn_ctx *ctx, const double *values, int64_t rows, int64_t columns, const tn_image_matrix_desc *desc)
{
    tni_matrix m = TNI_ZERO;
    if (desc) m.d = *desc;
    if (!tni_matrix_check(&m, ctx, values, rows, columns)) return NULL;
    if (!tni_shades_of(ctx, &m.shades, &m.scale, &m.heat, values, 1)) return NULL;
    tni_matrix_plan(&m);
    if (!tni_figure_open(&m.f, &m.c, ctx)) return NULL;
    tni_matrix_draw(&m, values);
    return tni_canvas_close(&m.c);
}

/* ---- a grid of matrices ------------------------------------- >>image-tiles */
static const double tni_tile_gap = 10, tni_tile_caption = 20;

static double tni_widest(const char *const *names, int64_t count, double size, double room)
{
    double widest = 0;
    for (int64_t k = 0; names && k < count; k++) widest = fmax(widest, tni_label_width(names[k], size));
    return fmin(widest, room);
}

/* Fills in rows and columns of tiles where they are not given. */
static bool tni_tiles_grid(tn_ctx *ctx, tn_image_tiles_desc *d, int64_t count)
{
    const int64_t most = TNI_SIDE_MAX;
    if (!tni_within(ctx, "image_tiles", "rows", d->rows, 0, most)
        || !tni_within(ctx, "image_tiles", "columns", d->columns, 0, most)
        || !tni_within(ctx, "image_tiles", "count", count, 0, INT64_MAX)) return false;
    int64_t rows = d->rows > 0 ? d->rows : most;
    int64_t columns = d->columns > 0 ? d->columns : most;
    if (count > rows * columns)
        return tni_fail(ctx, TN_ERR_ARG, "image_tiles: count is %lld, expected at most %lld, in %lld rows of %lld",
                        (long long)count, (long long)(rows * columns), (long long)rows, (long long)columns), false;
    if (d->columns == 0) d->columns = d->rows > 0 ? tni_ceil_div(count, d->rows) : (int64_t)ceil(sqrt((double)count));
    d->columns = tni_max(d->columns, 1);
    if (d->rows == 0) d->rows = tni_max(tni_ceil_div(count, d->columns), 1);
    return true;
}

typedef struct tni_tiles {
    tn_image_tiles_desc d;
    int64_t    count;
    tni_scale  scale;
    tni_heat   heat;                        /* of one tile                                                     */
    tni_shades shades;                      /* shared by all tiles, unless each has its own                    */
    tni_side   across, down;
    tni_ruler  bar;
    tni_figure f;
    tni_canvas c;
    double     step_x, step_y, bar_height, left;    /* left: the figure's before titles widened it             */
} tni_tiles;

static bool tni_tiles_check(tni_tiles *t, tn_ctx *ctx, const double *values, int64_t height, int64_t width)
{
    tn_image_tiles_desc *d = &t->d;
    size_t bytes;
    t->scale.colours = d->colours;
    t->scale.low = d->low;
    t->scale.high = d->high;
    t->scale.clip = d->clip;
    if (!tni_figure_cells(ctx, "image_tiles", d->cell, d->size, d->scale, &t->scale)
        || !tni_figure_shape(ctx, "image_tiles", "height", height, "width", width)
        || !tni_tiles_grid(ctx, d, t->count)) return false;
    d->scale = (int)tni_max(d->scale, 1);
    d->no_bar = d->no_bar || d->own_scales;
    if (!tni_heat_plan(ctx, "image_tiles", &t->heat, height, width, d->cell, d->size ? d->size : 84, d->scale, false))
        return false;
    if (tni_area_size(t->count, height * width, sizeof(double), &bytes))
        return tni_figure_array(ctx, "image_tiles", "values", bytes > 0, values);
    return tni_fail(ctx, TN_ERR_SHAPE, "image_tiles: %lld x %lld x %lld values are larger than the address space",
                    (long long)t->count, (long long)height, (long long)width), false;
}

/* From the left: y title, names of the grid's rows, names of a tile's rows. From above: names of the grid's columns, those
   of a tile's. */
static void tni_tiles_plan(tni_tiles *t)
{
    const tn_image_tiles_desc *d = &t->d;
    const tni_heat *h = &t->heat;
    tni_figure *f = &t->f;
    double      u = f->scale = d->scale;
    tni_side_init(&t->across, d->x_names, d->x_names ? h->columns : 0, (double)h->cell_w / (double)h->block_w, true, u);
    tni_side_init(&t->down, d->y_names, d->y_names ? h->rows : 0, (double)h->cell_h / (double)h->block_h, false, u);
    f->what = "image_tiles";
    f->title = d->title;
    f->caption = d->caption;
    t->step_x = (double)h->width + tni_tile_gap * u;
    t->step_y = (double)h->height + (d->captions ? tni_tile_caption + 4 : tni_tile_gap) * u;
    f->body_width = (double)d->columns * t->step_x - tni_tile_gap * u;
    f->body_height = fmax((double)d->rows * t->step_y - (d->captions ? 4 : tni_tile_gap) * u,
                          d->no_bar ? 0 : tni_bar_least * u);
    f->left = ceil((tni_pad + 2) * u + tni_axis_title_height(d->y_title, u)
                   + (d->row_names ? tni_widest(d->row_names, d->rows, tni_medium * u, 130 * u) + 8 * u : 0)
                   + (d->y_names ? t->down.widest + (tni_tick_length + 6) * u : 0));
    t->left = f->left;
    f->top = (d->column_names ? 20 * u : 2 * u)
           + (d->x_names ? (t->across.turned ? t->across.widest + 10 * u : 18 * u) : 0);
    f->bottom = tni_axis_title_height(d->x_title, u);
    t->bar_height = f->body_height - (d->captions ? tni_tile_caption * u : 0);
    f->right = (tni_pad + 2) * u + (d->no_bar ? 0 : tni_bar_init(&t->bar, &t->shades, t->bar_height, u));
}

static bool tni_draw_tile(tni_tiles *t, const double *tile, int64_t k)
{
    tni_canvas *c = &t->c;
    double      u = c->scale, w = (double)t->heat.width, h = (double)t->heat.height;
    double      x = t->f.left + (double)(k % t->d.columns) * t->step_x,
                y = t->f.top + (double)(k / t->d.columns) * t->step_y;
    if (t->d.own_scales && !tni_shades_of(c->image->ctx, &t->shades, &t->scale, &t->heat, tile, 1)) return false;
    tni_draw_heat(c, &t->heat, &t->shades, tile, (int64_t)x, (int64_t)y);
    if (t->d.numbers) tni_draw_numbers(c, &t->heat, &t->shades, tile, (int64_t)x, (int64_t)y);
    if (t->d.captions)
        tni_draw_label(c, t->d.captions[k], x + w / 2, y + h + 15 * u, tni_small * u, 0.5, false, t->step_x - 4 * u,
                       TNI_TEXT_INK);
    if (t->d.x_names && k < t->d.columns) tni_draw_side(c, &t->across, x, y, TNI_ABOVE);
    if (t->d.y_names && k % t->d.columns == 0) tni_draw_side(c, &t->down, x, y, TNI_LEFT);
    return true;
}

static void tni_draw_grid_names(tni_tiles *t)
{
    const tn_image_tiles_desc *d = &t->d;
    tni_canvas *c = &t->c;
    double      u = c->scale, size = tni_medium * u, x = t->f.left, y = t->f.top;
    double      side = d->y_names ? t->down.widest + (tni_tick_length + 6) * u : 0, above = t->f.top - 7 * u;
    if (d->x_names) above -= t->across.turned ? t->across.widest + 10 * u : 18 * u;
    for (int64_t k = 0; d->row_names && k < d->rows; k++)
        tni_draw_label(c, d->row_names[k], x - 8 * u - side,
                       y + (double)k * t->step_y + (double)t->heat.height / 2 + size * 0.35, size, 1, false, 130 * u,
                       TNI_TEXT_INK);
    for (int64_t k = 0; d->column_names && k < d->columns; k++)
        tni_draw_label(c, d->column_names[k], x + (double)k * t->step_x + (double)t->heat.width / 2, above, size, 0.5, false,
                       t->step_x - 6 * u, TNI_TEXT_INK);
    tni_draw_axis_titles(c, &t->f, d->x_title, d->y_title, t->f.top + t->f.body_height + t->f.bottom,
                         t->f.left - t->left + tni_pad * u);
}

tn_image *tn_image_tiles(tn_ctx *ctx, const double *values, int64_t count, int64_t height, int64_t width,
                         const tn_image_tiles_desc *desc)
{
    bool ok = true;
    tni_tiles t = TNI_ZERO;
    if (desc) t.d = *desc;
    t.count = count;
    if (!tni_tiles_check(&t, ctx, values, height, width)) return NULL;
    if (!tni_shades_of(ctx, &t.shades, &t.scale, &t.heat, values, t.d.own_scales ? 0 : count)) return NULL;
    tni_tiles_plan(&t);
    if (!tni_figure_open(&t.f, &t.c, ctx)) return NULL;
    for (int64_t k = 0; k < count && ok; k++) ok = tni_draw_tile(&t, values ? values + k * height * width : NULL, k);
    tni_draw_grid_names(&t);
    if (!t.d.no_bar)
        tni_draw_bar(&t.c, &t.bar, &t.shades, t.f.left + t.f.body_width + tni_bar_gap * t.c.scale, t.f.top, t.bar_height);
    tn_image *image = tni_canvas_close(&t.c);
    if (!ok) tn_image_destroy(image);
    return ok ? image : NULL;
}

tn_image *tn_image_matrix_of(tn_ctx *ctx, const tn_tensor *t, const tn_image_matrix_desc *desc)
{
    if (!tni_usable(ctx, t, "image_matrix_of", "t")) return NULL;
    if (t->rank > 2)
        return tni_fail(ctx, TN_ERR_SHAPE, "image_matrix_of: t is %s, expected rank 0 to 2", TNI_SHAPE(t)), (tn_image *)NULL;
    tni_scratch w = tni_scratch_begin(ctx, "image");
    double     *p = tni_take_numbers(&w, t);
    const int64_t rows = t->rank > 1 ? t->shape[0] : 1, columns = t->rank > 0 ? t->shape[t->rank - 1] : 1;
    tn_image   *image = p ? tn_image_matrix(ctx, p, rows, columns, desc) : NULL;
    tni_scratch_release(&w, NULL);
    return image;
}

tn_image *tn_image_tiles_of(tn_ctx *ctx, const tn_tensor *t, const tn_image_tiles_desc *desc)
{
    if (!tni_usable(ctx, t, "image_tiles_of", "t")) return NULL;
    if (t->rank != 3)
        return tni_fail(ctx, TN_ERR_SHAPE, "image_tiles_of: t is %s, expected rank 3", TNI_SHAPE(t)), (tn_image *)NULL;
    tni_scratch w = tni_scratch_begin(ctx, "image");
    double     *p = tni_take_numbers(&w, t);
    tn_image   *image = p ? tn_image_tiles(ctx, p, t->shape[0], t->shape[1], t->shape[2], desc) : NULL;
    tni_scratch_release(&w, NULL);
    return image;
}

#endif /* TN_NO_IMAGE */
