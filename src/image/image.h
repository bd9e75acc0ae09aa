#pragma once
#include "core/core.h"
#include "io/io.h"

#ifndef TN_NO_IMAGE
/* ======================================================================
   >>image    matrices and curves as pixels
   A figure is an owned picture: save it, or give its pixels to a writer of your own. Values are doubles of the host;
   tn_image_*_of reads them from a tensor. Sizes are in pixels at scale 1; at scale 2 or 3 a figure has the same layout
   with finer pixels. Text is UTF-8: there are glyphs for ASCII, the letters of Latin-1, Greek letters, digits as
   subscripts and superscripts, and a few mathematical signs; other characters are drawn as a box. A hyphen that
   begins a text, or a number in it, is drawn as a minus sign. "\n" and "\r\n" break titles and captions. NaN is drawn
   grey. Strings are used during the call only.
   ====================================================================== */

typedef struct tn_image {
    tn_ctx  *ctx;
    int64_t  width, height;
    uint8_t *pixels;                /* [height,width,3]: sRGB bytes, top row first */
} tn_image;

/* Creates a white picture. Pictures, and all figures below, live until tn_image_destroy or the end of the context. All
   functions that return one return NULL on error: TN_ERR_SHAPE for sizes that are too large for the memory, TN_ERR_ARG
   for a desc with a field that is out of range. */
TN_API tn_image *tn_image_create(tn_ctx *ctx, int64_t width, int64_t height);
TN_API void      tn_image_destroy(tn_image *image);            /* frees a picture; NULL is allowed */
/* Writes a PNG with stb_image_write, which the file with the implementation has to include before tensornet.h; TN_ERR_FILE
   where it does not. */
TN_API tn_status tn_image_write_png(const tn_image *image, tn_sink sink);
/* Writes a binary PPM, which needs no library and which most viewers can show. */
TN_API tn_status tn_image_write_ppm(const tn_image *image, tn_sink sink);
/* Writes a figure as SVG: lines, rectangles and text that are sharp at any size, for papers and web pages. Text uses the
   viewer's own sans-serif font, fitted to the width that the figure has for it. A matrix of up to 4096 cells is made of
   rectangles, a larger one is an embedded PNG with one pixel per cell (two or more side by side where a row has more than
   21844 cells). No library is needed, and equal figures give equal bytes. The file repeats what the figure functions drew,
   without strokes that would change no pixel: a picture of tn_image_create is embedded as PNG, and pixels that were changed
   after drawing a figure are visible only within matrices. */
TN_API tn_status tn_image_write_svg(const tn_image *image, tn_sink sink);
#ifndef TN_NO_STDIO
TN_API tn_status tn_image_save_png(const tn_image *image, const char *path);       /* writes a file */
TN_API tn_status tn_image_save_ppm(const tn_image *image, const char *path);       /* writes a file */
TN_API tn_status tn_image_save_svg(const tn_image *image, const char *path);       /* writes a file */
#endif

typedef enum tn_image_colours {
    TN_IMAGE_COLOURS_DIVERGING = 0,       /* blue, white at exactly zero, red; equally dark on both sides */
    TN_IMAGE_COLOURS_SEQUENTIAL           /* white, green, dark blue                                      */
} tn_image_colours;

/* Computes the colour at t in [-1,1] (diverging) or [0,1] (sequential); NaN gives grey. */
TN_API void tn_image_colour(tn_image_colours colours, double t, uint8_t rgb[3]);

/* ---- one matrix --------------------------------------------------------- >>image-matrix-desc */
typedef struct tn_image_matrix_desc {
    const char *title, *caption;    /* above, below                                                   */
    const char *x_title, *y_title;  /* of the columns, of the rows                                    */
    const char *const *x_names, *const *y_names;  /* one per column, per row; NULL: their numbers     */
    tn_image_colours colours;
    double  low, high;              /* ends of the colour scale; both 0: from the data and zero.
                                       Diverging scales extend equally far below and above zero       */
    double  clip;                   /* with low = high = 0: the percentile of |value| at which the
                                       scale ends, such as 99.5, so that a few huge values do not
                                       leave the others white; 0: 100                                 */
    int64_t cell;                   /* pixels per cell; 0: as fits into size                          */
    int64_t size;                   /* of the longer side; 0: 400. Larger matrices show means of
                                       neighbours, whose range is then that of the scale              */
    bool    largest;                /* larger matrices show the value of largest magnitude instead    */
    bool    stretch;                /* both sides are about as long as size, so that a matrix with few
                                       columns is no thin line; not together with cell                */
    bool    numbers;                /* write the values into cells that have room, in one size: three
                                       digits, or as many decimals as fit into all cells              */
    bool    no_bar, no_ticks;
    int     scale;                  /* 0: 1                                                           */
} tn_image_matrix_desc;

/* Draws a matrix: values [rows,columns], row-major. A NULL desc means all defaults, here and below. */
TN_API tn_image *tn_image_matrix(tn_ctx *ctx, const double *values, int64_t rows, int64_t columns,
                                 const tn_image_matrix_desc *desc);
TN_API tn_image *tn_image_matrix_of(tn_ctx *ctx, const tn_tensor *t, const tn_image_matrix_desc *desc);   /* of rank 0, 1, 2 */

/* ---- a grid of matrices ------------------------------------------------- >>image-tiles-desc */
typedef struct tn_image_tiles_desc {
    int64_t rows, columns;          /* of tiles, filled row by row; both 0: nearly square             */
    const char *title, *caption;
    const char *const *captions;    /* one under each tile, such as "+3.21", or NULL                  */
    const char *const *row_names, *const *column_names;    /* of the grid                             */
    const char *x_title, *y_title;  /* of the columns, of the rows of every tile                      */
    const char *const *x_names, *const *y_names;  /* one per column, per row of a tile: above the first
                                       row of tiles, left of the first column                         */
    tn_image_colours colours;
    double  low, high;              /* of all tiles; both 0: from the data and zero                   */
    double  clip;                   /* as in tn_image_matrix_desc; of each tile if own_scales               */
    bool    own_scales;             /* each tile from its own data, and no bar                        */
    int64_t cell, size;             /* as above, of one tile; size 0: 84                              */
    bool    numbers;                /* write the value into each cell that has room                   */
    bool    no_bar;
    int     scale;                  /* 0: 1                                                           */
} tn_image_tiles_desc;

/* Draws a grid of matrices: values [count,height,width]. */
TN_API tn_image *tn_image_tiles(tn_ctx *ctx, const double *values, int64_t count, int64_t height, int64_t width,
                                const tn_image_tiles_desc *desc);
TN_API tn_image *tn_image_tiles_of(tn_ctx *ctx, const tn_tensor *t, const tn_image_tiles_desc *desc);     /* of rank 3 */

/* ---- curves and spectra ------------------------------------------------- >>image-plot-desc */
typedef enum tn_image_series_kind {
    TN_IMAGE_SERIES_LINE = 0,             /* with markers if the points are few and the line is not
                                       horizontal; NaN leaves a gap                                   */
    TN_IMAGE_SERIES_POINTS,
    TN_IMAGE_SERIES_BARS,                 /* from zero; a lone series is red above and blue below. Bars and
                                       stems of several series are placed side by side                */
    TN_IMAGE_SERIES_STEMS,
    TN_IMAGE_SERIES_BAND                  /* the area between low and y, translucent; NaN in either leaves
                                       a gap                                                          */
} tn_image_series_kind;

typedef struct tn_image_series {
    const char   *name;             /* in the legend, or NULL                                         */
    const double *x;                /* [count], or NULL: 0, 1, 2 ...                                  */
    const double *y;                /* [count]                                                        */
    const double *low;              /* [count]: the lower curve of a band                             */
    int64_t       count;
    tn_image_series_kind kind;
    bool          dashed;
    bool          show_last;        /* write the last value at the end of the line. Labels that would
                                       touch are moved apart; of many, the first that fit are shown   */
    int           colour;           /* 1..7 of the palette; 0: by the number of the series            */
} tn_image_series;

typedef struct tn_image_plot_desc {
    const char *title, *caption, *x_title, *y_title;
    const char *const *x_names;     /* labels at x = 0, 1, 2, ... in place of numbers, or NULL; an
                                       entry that is NULL has no tick; the first 32 others are shown,
                                       turned if they would touch. Not together with log_x            */
    int64_t x_name_count;           /* number of x_names                                              */
    bool    log_x, log_y;           /* logarithmic axes: points that are not positive are left out    */
    double  x_low, x_high;          /* both 0: from the data                                          */
    double  y_low, y_high;
    int64_t width, height;          /* of the picture; 0: 560 x 360                                   */
    int     scale;                  /* 0: 1                                                           */
} tn_image_plot_desc;

/* Draws series [count] in one pair of axes, the first at the bottom. */
TN_API tn_image *tn_image_plot(tn_ctx *ctx, const tn_image_series *series, int64_t count, const tn_image_plot_desc *desc);
#endif /* TN_NO_IMAGE */
