#pragma once
#include "core/inner.h"
#include "io/inner.h"
#include "image/image.h"

#ifndef TN_NO_IMAGE
/* The marks that were drawn, in order, for tn_image_write_svg. A shape is several marks, ended by a TNI_MARK_INK. */
typedef enum tni_mark_kind { TNI_MARK_LINE, TNI_MARK_BOX, TNI_MARK_TEXT, TNI_MARK_BAND, TNI_MARK_CELLS, TNI_MARK_BAR,
                             TNI_MARK_CLIP, TNI_MARK_INK } tni_mark_kind;

typedef struct tni_mark {
    tni_mark_kind kind;
    uint32_t      ink;
    double        v[6];                 /* see tni_svg_mark */
    size_t        text, bytes;          /* in the picture's letters */
} tni_mark;

typedef struct tni_picture {
    tni_owned owned;
    tn_image  image;
    double    scale;
    tni_list  marks, letters;
} tni_picture;

enum { TNI_WHITE = 0xFFFFFF, TNI_TEXT_INK = 0x262626, TNI_LINE_INK = 0x4A4A4A, TNI_GRID_INK = 0xE4E4E4,
       TNI_FRAME_INK = 0xC4C4C4, TNI_NAN_INK = 0xA8A8A8 };

typedef struct tni_canvas {
    tn_image *image;
    uint8_t  *cover;                              /* [height,width] of the current shape; zero between shapes */
    uint8_t  *marked;                             /* [height,width]: the same of the strokes that have a mark */
    int64_t   clip_x0, clip_y0, clip_x1, clip_y1; /* nothing outside is changed                               */
    int64_t   x0, y0, x1, y1;                     /* where cover may be other than zero                       */
    double    scale;
    bool      failed;                             /* there was no memory for a mark                           */
} tni_canvas;

static const double tni_small = 12, tni_medium = 13, tni_large = 15;       /* font sizes          */

enum { TNI_TICKS = 32 };

typedef struct tni_ruler {
    double low, high;                   /* on a logarithmic axis: their log10 */
    double from, to;                    /* the pixels of low and high         */
    bool   log;
    int    ticks, decimals;
    double at[TNI_TICKS];               /* as low and high                    */
    double value[TNI_TICKS];            /* the number of the label            */
    char   label[TNI_TICKS][32];
} tni_ruler;

#define TNI_HUGE 1e300
enum { TNI_SHADES = 1025, TNI_SIDE_MAX = 1 << 24, TNI_CELL_MAX = 40, TNI_THIN = 12 };
static const double tni_area_most = 268435456;      /* pixels of a figure */

typedef struct tni_heat {
    int64_t rows, columns;              /* of the values                                       */
    int64_t block_h, block_w;           /* so many values make one cell: their mean, or         */
    bool    largest;                    /* the one of largest magnitude                        */
    int64_t down, across;               /* cells                                               */
    int64_t cell_h, cell_w;             /* of a cell, in pixels                                */
    int64_t height, width;              /* of all, in pixels                                   */
} tni_heat;

typedef struct tni_shades { double low, high; uint8_t rgb[TNI_SHADES][3]; } tni_shades;

/* The part of a figure's desc about its colours. */
typedef struct tni_scale { tn_image_colours colours; double low, high, clip; } tni_scale;

static const double tni_pad = 12, tni_tick_length = 4;
static const double tni_bar_width = 14, tni_bar_gap = 14, tni_bar_least = 64;

/* A figure: a body with margins on its four sides, a title above and a caption below. */
typedef struct tni_figure {
    const char *what, *title, *caption;                                 /* what: the function that was called */
    double scale, body_width, body_height, left, top, right, bottom;    /* margins */
    double width, height, title_height, caption_height;
} tni_figure;
#endif /* TN_NO_IMAGE */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_IMAGE
/* colour.c */
TNI_FN tni_picture *tni_picture_of(const tn_image *image);
TNI_FN void tni_unpack(uint32_t ink, uint8_t rgb[3]);

/* ink.c */
TNI_FN tni_mark *tni_mark_add(tni_canvas *c, tni_mark_kind kind, double v0, double v1, double v2, double v3, double v4);
TNI_FN void tni_canvas_clip(tni_canvas *c, int64_t x0, int64_t y0, int64_t x1, int64_t y1);
TNI_FN bool tni_canvas_open(tni_canvas *c, tn_ctx *ctx, double width, double height, double scale);
TNI_FN tn_image *tni_canvas_close(tni_canvas *c);
TNI_FN bool tni_cover_stroke(tni_canvas *c, double ax, double ay, double bx, double by, double radius);
TNI_FN void tni_cover_segment(tni_canvas *c, double ax, double ay, double bx, double by, double radius);
TNI_FN void tni_cover_box(tni_canvas *c, double x0, double y0, double x1, double y1);
TNI_FN void tni_cover_band(tni_canvas *c, double a, double a0, double a1, double b, double b0, double b1);
TNI_FN void tni_paint(tni_canvas *c, uint32_t ink, double strength);
TNI_FN void tni_draw_box(tni_canvas *c, double x0, double y0, double x1, double y1, uint32_t ink);
TNI_FN void tni_draw_frame(tni_canvas *c, double x0, double y0, double x1, double y1, double width, uint32_t ink);

/* letters.c */
TNI_FN uint32_t tni_text_next(const char **at, const char *end, uint32_t before);
TNI_FN double tni_label_width(const char *s, double size);
TNI_FN void tni_draw_label(tni_canvas *c, const char *s, double x, double y, double size, double align, bool upwards,
                           double max_width, uint32_t ink);
TNI_FN double tni_paragraph(tni_canvas *c, const char *s, double x, double y, double size, double max_width);

/* heat.c */
TNI_FN double tni_ruler_pixel(const tni_ruler *r, double v);
TNI_FN double tni_round_step(double raw);
TNI_FN void tni_tick_text(char dst[32], double v, int digits, int decimals);
TNI_FN void tni_tick(tni_ruler *r, double at, double value, int digits, int decimals);
TNI_FN void tni_ruler_init(tni_ruler *r, double low, double high, bool log, double wanted, bool whole);
TNI_FN double tni_ruler_label_width(const tni_ruler *r, double size);
TNI_FN bool tni_heat_plan(tn_ctx *ctx, const char *what, tni_heat *h, int64_t rows, int64_t columns, int64_t cell,
                          int64_t size, int64_t scale, bool stretch);
TNI_FN bool tni_shades_of(tn_ctx *ctx, tni_shades *s, const tni_scale *scale, const tni_heat *h, const double *values,
                          int64_t count);
TNI_FN void tni_draw_heat(tni_canvas *c, const tni_heat *h, const tni_shades *s, const double *values, int64_t x, int64_t y);
TNI_FN void tni_draw_numbers(tni_canvas *c, const tni_heat *h, const tni_shades *s, const double *values, int64_t x,
                             int64_t y);
TNI_FN double tni_bar_init(tni_ruler *r, const tni_shades *s, double height, double scale);
TNI_FN void tni_draw_bar(tni_canvas *c, tni_ruler *r, const tni_shades *s, double x, double y, double height);

/* matrix.c */
TNI_FN bool tni_figure_array(tn_ctx *ctx, const char *what, const char *name, bool needed, const void *array);
TNI_FN bool tni_figure_ends(tn_ctx *ctx, const char *what, const char *axis, double low, double high, bool symmetric);
TNI_FN bool tni_figure_open(tni_figure *f, tni_canvas *c, tn_ctx *ctx);
TNI_FN double tni_axis_title_height(const char *title, double scale);
TNI_FN void tni_draw_axis_titles(tni_canvas *c, const tni_figure *f, const char *x_title, const char *y_title, double bottom,
                                 double left);
#endif /* TN_NO_IMAGE */

#endif
