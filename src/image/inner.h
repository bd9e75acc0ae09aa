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
typedef struct tni_scale { tn_colours colours; double low, high, clip; } tni_scale;

static const double tni_pad = 12, tni_tick_length = 4;
static const double tni_bar_width = 14, tni_bar_gap = 14, tni_bar_least = 64;

/* A figure: a body with room on its four sides, a title above and a caption below. */
typedef struct tni_figure {
    const char *what, *title, *caption;                                 /* what: the function that was called */
    double scale, body_width, body_height, left, top, right, bottom;    /* margins */
    double width, height, title_height, caption_height;
} tni_figure;
#endif /* TN_NO_IMAGE */
