#include "core/inner.h"
#include "tensor/inner.h"

/* ---- format: as NumPy prints -------------------------------------------- >>tensor-format */

#define TNI_FORMAT_EDGE 3                /* elements shown at both ends of an axis longer than 8 */

typedef struct tni_format { const tn_tensor *t; const double *v; tni_text *to; int *width; } tni_format;

static bool tni_format_skips(int64_t i, int64_t n) { return n > 8 && i >= TNI_FORMAT_EDGE && i < n - TNI_FORMAT_EDGE; }

/* Between two members of an axis: rows begin a new line, matrices are separated by an empty line. */
static void tni_format_break(const tni_format *f, int axis)
{
    for (int k = axis + 1; k < f->t->rank; k++) tni_text_add(f->to, "\n", 1);
    for (int k = 0; k <= axis; k++) tni_text_add(f->to, " ", 1);
}

static void tni_format_axis(const tni_format *f, int axis, int64_t at)
{
    char number[32];
    if (axis == f->t->rank) {
        int length = tni_format_double(number, f->v[at], 5);
        for (int k = length; k < *f->width; k++) tni_text_add(f->to, " ", 1);
        if (length > *f->width) *f->width = length;
        tni_text_add(f->to, number, (size_t)length);
        return;
    }
    int64_t n = f->t->shape[axis];
    tni_text_add(f->to, "[", 1);
    for (int64_t i = 0; i < n; i++) {
        if (tni_format_skips(i, n)) {
            tni_text_add(f->to, "...", 3);
            if (axis + 1 == f->t->rank) tni_text_add(f->to, " ", 1);
            else tni_format_break(f, axis);
            i = n - TNI_FORMAT_EDGE;
        }
        tni_format_axis(f, axis + 1, at * n + i);
        if (i + 1 == n) break;
        if (axis + 1 == f->t->rank) tni_text_add(f->to, " ", 1);
        else tni_format_break(f, axis);
    }
    tni_text_add(f->to, "]", 1);
}

TNI_COLD int64_t tn_tensor_format(const tn_tensor *t, char *dst, size_t bytes)
{
    tni_text out = {dst, bytes, 0}, nowhere = {NULL, 0, 0};
    int      width = 0;
    if (!tni_alive(t)) return -1;
    int64_t     n = tn_tensor_count(t);
    tni_scratch w = tni_scratch_begin(t->ctx, "format");
    double     *v = tni_take_f64(&w, n, 1);
    tni_format  f = {t, v, &nowhere, &width};
    const bool  whole = v && tn_read(t, TN_F64, v, n) == TN_OK;
    if (whole) {
        tni_format_axis(&f, 0, 0);                   /* only to find the width of the numbers */
        f.to = &out;
        tni_text_add(&out, "", 0);
        tni_format_axis(&f, 0, 0);
    }
    tni_scratch_end(&w, TN_OK);
    return whole ? (int64_t)out.length : -1;
}

/* ---- a table with names ------------------------------------------------- >>tensor-table */

typedef struct tni_table {
    const tn_tensor_table_desc *desc;
    const double        *v;
    int64_t              rows, columns;
    int                  digits;
    tni_text            *to;
} tni_table;

/* Writes a name, or the number of its row or column, and returns its width in characters. */
static int tni_table_name(tni_text *to, const char *const *names, int64_t i)
{
    const char *s = names ? names[i] : NULL;
    size_t      before = to->length;
    int         hidden = 0;
    if (!s) tni_text_signed(to, i);
    for (; s && *s; s++) {
        const unsigned char c = (unsigned char)*s;
        char escaped[4] = {'\\', c == '\n' ? 'n' : c == '\t' ? 't' : 'x', "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
        if (c < 32 || c == 127) tni_text_add(to, escaped, escaped[1] == 'x' ? 4 : 2);
        else tni_text_add(to, s, 1);
        hidden += (c & 0xC0) == 0x80;                        /* the later bytes of a UTF-8 sequence */
    }
    return (int)(to->length - before) - hidden;
}

static int tni_table_number(const tni_table *t, tni_text *to, double v)
{
    size_t before = to->length;
    tni_text_double(to, v, t->digits);
    return (int)(to->length - before);
}

static void tni_table_pad(tni_text *to, int width, int used)
{
    for (; used < width; used++) tni_text_add(to, " ", 1);
}

/* The width that the widest of the names, or of the numbers of a column, needs. */
static int tni_table_names_width(const char *const *names, int64_t n)
{
    tni_text nowhere = {NULL, 0, 0};
    int      width = 0, w;
    for (int64_t i = 0; i < n; i++) if ((w = tni_table_name(&nowhere, names, i)) > width) width = w;
    return width;
}

static int tni_table_column_width(const tni_table *t, int64_t column)
{
    tni_text nowhere = {NULL, 0, 0};
    int      width = 0, w;
    for (int64_t i = 0; i < t->rows; i++)
        if ((w = tni_table_number(t, &nowhere, t->v[i * t->columns + column])) > width) width = w;
    return width;
}

/* Right-aligned: what is written has to be measured first. */
static void tni_table_right(const tni_table *t, int width, double v)
{
    tni_text nowhere = {NULL, 0, 0};
    tni_table_pad(t->to, width, tni_table_number(t, &nowhere, v));
    tni_table_number(t, t->to, v);
}

static void tni_table_whole(const tni_table *t, bool vector, int *widths)
{
    const int left = tni_table_names_width(t->desc->row_names, t->rows);
    tni_text  nowhere = {NULL, 0, 0};
    for (int64_t j = 0; j < t->columns; j++) {
        int w = vector ? 0 : tni_table_name(&nowhere, t->desc->column_names, j);
        widths[j] = tni_table_column_width(t, j);
        if (w > widths[j]) widths[j] = w;
    }
    if (!vector) tni_table_pad(t->to, left, 0);
    for (int64_t j = 0; j < t->columns && !vector; j++) {
        tni_table_pad(t->to, widths[j] + 2, tni_table_name(&nowhere, t->desc->column_names, j));
        tni_table_name(t->to, t->desc->column_names, j);
    }
    for (int64_t i = 0; i < t->rows; i++) {
        if (i > 0 || !vector) tni_text_add(t->to, "\n", 1);
        tni_table_pad(t->to, left, tni_table_name(t->to, t->desc->row_names, i));
        for (int64_t j = 0; j < t->columns; j++) tni_table_right(t, widths[j] + 2, t->v[i * t->columns + j]);
    }
}

/* The entries that the heap found, a line each. */
static void tni_table_entries(const tni_table *t, bool vector, const tni_heap *best)
{
    tni_text nowhere = {NULL, 0, 0};
    int      width[3] = {0, 0, 0};
    for (int pass = 0; pass < 2; pass++)                     /* measure, then write */
        for (int64_t e = 0; e < best->held; e++) {
            tni_text *to = pass ? t->to : &nowhere;
            int64_t   row = best->found[e].at / t->columns, column = best->found[e].at % t->columns;
            if (e > 0) tni_text_add(to, "\n", 1);
            int w = tni_table_name(to, t->desc->row_names, row);
            if (pass) tni_table_pad(to, width[0] + 2, w);
            else if (w > width[0]) width[0] = w;
            w = vector ? 0 : tni_table_name(to, t->desc->column_names, column);
            if (pass && !vector) tni_table_pad(to, width[1] + 2, w);
            else if (w > width[1]) width[1] = w;
            if (pass) tni_table_right(t, width[2], best->found[e].value);
            else if ((w = tni_table_number(t, to, best->found[e].value)) > width[2]) width[2] = w;
        }
}

static void tni_table_rows(const tni_table *t, tni_heap *best)
{
    const int left = tni_table_names_width(t->desc->row_names, t->rows);
    for (int64_t i = 0; i < t->rows; i++) {
        int64_t first = t->desc->symmetric ? tni_min(i, t->columns) : 0, n = t->columns - first;
        if (i > 0) tni_text_add(t->to, "\n", 1);
        tni_table_pad(t->to, left, tni_table_name(t->to, t->desc->row_names, i));
        tni_heap_select(best, t->v + i * t->columns + first, n);
        for (int64_t j = 0; j < best->held; j++) {
            tni_text_add(t->to, "  ", 2);
            tni_table_name(t->to, t->desc->column_names, first + best->found[j].at);
            tni_text_add(t->to, " ", 1);
            tni_table_number(t, t->to, best->found[j].value);
        }
    }
}

TNI_COLD int64_t tn_tensor_table(const tn_tensor *t, const tn_tensor_table_desc *desc, char *dst, size_t bytes)
{
    tn_tensor_table_desc all = TNI_ZERO;
    tni_text  out = {dst, bytes, 0};
    tni_table table;
    if (!tni_alive(t)) return -1;
    table.desc = desc = desc ? desc : &all;
    if ((unsigned)desc->order > TN_ORDER_MAGNITUDE)
        return tni_fail(t->ctx, TN_ERR_ARG, "table: order is %d, not a valid tn_order", (int)desc->order), -1;
    if (!tni_within(t->ctx, "table", "top", desc->top, 0, INT64_MAX)) return -1;
    if (t->rank != 1 && t->rank != 2)
        return tni_fail(t->ctx, TN_ERR_SHAPE, "table: t is %s, expected rank 1 or 2", TNI_SHAPE(t)), -1;
    if (!tni_within(t->ctx, "table", "digits", desc->digits, 0, 17)) return -1;
    tni_text_add(&out, "", 0);
    bool    vector = t->rank == 1;
    int64_t n = tn_tensor_count(t);
    table.rows = t->shape[0]; table.columns = vector ? 1 : t->shape[1];
    table.digits = desc->digits ? desc->digits : 4;
    table.to = &out;
    tni_scratch w = tni_scratch_begin(t->ctx, "table");
    double     *v = tni_take_f64(&w, n, 1);
    tni_heap    best = tni_take_heap(&w, desc->order, tni_min(desc->top, desc->each_row ? table.columns : n));
    int        *widths = (int *)tni_take(&w, table.columns, sizeof *widths);
    if (w.failed || tn_read(t, TN_F64, v, n) != TN_OK) out.length = (size_t)-1;
    else {
        table.v = v;
        if (desc->top == 0) tni_table_whole(&table, vector, widths);
        else if (desc->each_row) tni_table_rows(&table, &best);
        else {
            for (int64_t i = 0; i < table.rows; i++)
                for (int64_t j = desc->symmetric ? i : 0; j < table.columns; j++)
                    tni_heap_offer(&best, v[i * table.columns + j], i * table.columns + j);
            tni_heap_sort(&best);
            tni_table_entries(&table, vector, &best);
        }
    }
    tni_scratch_end(&w, TN_OK);
    return (int64_t)out.length;
}
