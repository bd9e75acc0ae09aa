#include "core/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "cpu/vectors.h"

/* ---- lines -------------------------------------------------------------- >>cpu-lines
   Views of one shape with as few axes as possible: neighbouring axes that are contiguous in all views are merged.
   A kernel runs along the last axis, the line; long lines are divided into pieces. */

static void tni_lines_push(tni_lines *l, const tn_view *const *v, int axis)
{
    int  last = l->rank - 1;
    bool joins = last >= 0;
    for (int k = 0; k < l->views && joins; k++)
        joins = l->strides[k][last] == v[k]->strides[axis] * v[k]->shape[axis];
    if (joins) l->shape[last] *= v[0]->shape[axis];
    else l->shape[++last] = v[0]->shape[axis];
    for (int k = 0; k < l->views; k++) l->strides[k][last] = v[k]->strides[axis];
    l->rank = last + 1;
}

TNI_FN tni_lines tni_lines_of(const tn_view *a, const tn_view *b, const tn_view *c)
{
    tni_lines l = TNI_ZERO;
    const tn_view *v[3] = {a, b, c};
    while (l.views < 3 && v[l.views]) l.views++;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != 1) tni_lines_push(&l, v, i);
    l.length = 1;
    if (l.rank > 0) {
        l.length = l.shape[--l.rank];
        for (int k = 0; k < l.views; k++) l.step[k] = l.strides[k][l.rank];
    }
    l.piece = tni_min(tni_max(l.length, 1), TNI_CPU_SHARE);
    l.pieces = tni_ceil_div(l.length, l.piece);
    l.count = l.pieces;
    for (int i = 0; i < l.rank; i++) l.count *= l.shape[i];
    return l;
}

/* The start of piece `index` in each view; returns its length. */
TNI_FN int64_t tni_lines_at(const tni_lines *l, int64_t index, int64_t offset[3])
{
    int64_t start = index % l->pieces * l->piece;
    index /= l->pieces;
    for (int k = 0; k < l->views; k++) offset[k] = start * l->step[k];
    for (int i = l->rank - 1; i >= 0; i--) {
        int64_t at = index % l->shape[i];
        index /= l->shape[i];
        for (int k = 0; k < l->views; k++) offset[k] += at * l->strides[k][i];
    }
    return tni_min(l->piece, l->length - start);
}

/* Does operand k, counted over inputs and outputs, have a row for each item of the pass? */
TNI_FN bool tni_rows_of(const tn_call *c, int k)
{
    const int out = k - c->n_in;
    switch (c->kernel) {
    case TN_KERNEL_RMSNORM:
    case TN_KERNEL_LAYERNORM:          return k == 0 || out >= 0;
    case TN_KERNEL_RESIDUAL_RMSNORM:   return k != 2;
    case TN_KERNEL_RMSNORM_BACKWARD:
    case TN_KERNEL_LAYERNORM_BACKWARD: return k == 0 || k == 2 || k == 3 || out == 0;
    case TN_KERNEL_CROSS_ENTROPY:      return k == 0 || k == 1 || out == 3 || (out == 1 && c->out[1].dtype != TN_BF16);
    default:                           return true;
    }
}

/* Do the passes take the call's BF16 operands as they are? Those that do not belong to items, such as gains, are F32. */
TNI_FN bool tni_takes_bf16(const tn_call *c)
{
    switch (c->kernel) {
    case TN_KERNEL_ADD:     case TN_KERNEL_MUL:              case TN_KERNEL_DIV:
    case TN_KERNEL_ACT:     case TN_KERNEL_ACT_BACKWARD:     case TN_KERNEL_GLU:          case TN_KERNEL_GLU_BACKWARD:
    case TN_KERNEL_PROD:    case TN_KERNEL_PROD_BACKWARD:    case TN_KERNEL_CROSS_ENTROPY:
    case TN_KERNEL_SOFTMAX: case TN_KERNEL_SOFTMAX_BACKWARD: case TN_KERNEL_ROPE:         case TN_KERNEL_ROPE_BACKWARD:
    case TN_KERNEL_RMSNORM: case TN_KERNEL_RMSNORM_BACKWARD: case TN_KERNEL_LAYERNORM:    case TN_KERNEL_LAYERNORM_BACKWARD:
    case TN_KERNEL_RESIDUAL_RMSNORM:
        break;
    case TN_KERNEL_ATTENTION:
    case TN_KERNEL_ATTENTION_BACKWARD: return true;
    default: return false;
    }
    for (int k = 0; k < c->n_in + c->n_out; k++)
        if (tni_is_bf16(k < c->n_in ? &c->in[k] : &c->out[k - c->n_in]) && !tni_rows_of(c, k)) return false;
    return true;
}

TNI_FN tn_status tni_line_pass_run(tni_cpu *cpu, const tn_call *c, const tni_lines *l, tn_task_fn fn)
{
    tni_line_pass p;
    p.pass.cpu = cpu;
    p.pass.call = c;
    p.lines = *l;
    tni_pass_run(&p.pass, l->count, l->piece, INT64_MAX, fn);
    return TN_OK;
}

/* ---- copy and fill: by the size of an element, whatever it means -------- >>cpu-copy
   A copy is a list of axes, each with a stride in the result and one in the operand; what is one axis in both is merged. The
   columns are the axis with the smallest stride in the result. If another axis has the smallest stride in the operand, these
   are the rows, and blocks of rows and columns are transposed. The number of blocks along either and all other axes make the
   outer axes; the innermost one moves least in the result or in the operand, so that a cache line that was touched is used
   soon in both. */
enum { TNI_COPY_SIDE = 32, TNI_COPY_SHORT = 256 };      /* rows and columns of a block; bytes from which memcpy pays */

typedef enum tni_copy_part { TNI_COPY_WHOLE, TNI_COPY_ROWS, TNI_COPY_COLUMNS } tni_copy_part;   /* all of an axis, or blocks */
typedef struct tni_copy_axis { int64_t n, to, from; tni_copy_part part; } tni_copy_axis;        /* strides in bytes */

typedef struct tni_copies {
    tni_pass      pass;
    tni_copy_axis axis[TN_MAX_RANK + 2], row, column;   /* the outer axes; those of a block */
    int           rank, at[3];                          /* number of outer axes; those that count blocks, by their part */
    int64_t       size, row_block, column_block;        /* bytes of an element; extents of a block */
    bool          transposed;                           /* blocks are transposed */
    char         *to;
    const char   *from;
} tni_copies;

/* Short runs by 16 bytes, of which the last ones overlap. */
static void tni_copy_bytes(char *to, const char *from, int64_t n)
{
    if (n < 16 || n > TNI_COPY_SHORT) {
        memcpy(to, from, (size_t)n);
        return;
    }
    for (int64_t i = 0; i + 16 < n; i += 16) memcpy(to + i, from + i, 16);
    memcpy(to + n - 16, from + n - 16, 16);
}

/* Strides in bytes. */
static void tni_copy_line(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, int64_t size)
{
    if (to_step == size && from_step == size) tni_copy_bytes(to, from, n * size);
    else if (to_step == size && from_step == 0 && n > 0) {          /* one element for all: the filled part doubles */
        int64_t have = 1;
        memcpy(to, from, (size_t)size);
        for (; have < n; have *= 2) memcpy(to + have * size, to, (size_t)(tni_min(have, n - have) * size));
    } else if (size == 8) for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 8);
    else if (size == 4) for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 4);
    else for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 2);
}

/* to[c + r to_row] = from[c from_column + r]: rows lie contiguously in the operand, columns in the result. */
#if TNI_TURN
#define TNI_SQUARES(T, SIDE, turn) \
    for (; r + SIDE <= rows; r += SIDE) { \
        for (c = 0; c + SIDE <= columns; c += SIDE) \
            turn((T *)(void *)(to + r * to_row) + c, to_row / (int64_t)sizeof(T), \
                 (const T *)(const void *)(from + c * from_column) + r, from_column / (int64_t)sizeof(T)); \
        for (; c < columns; c++) \
            for (k = 0; k < SIDE; k++) \
                memcpy(to + (r + k) * to_row + c * size, from + c * from_column + (r + k) * size, sizeof(T)); \
    }
#endif
TNI_FN void tni_copy_transposed(char *to, int64_t to_row, const char *from, int64_t from_column, int64_t rows, int64_t columns,
                                int64_t size)
{
    int64_t r = 0;
#if TNI_TURN
    int64_t c;
    int     k;
    if (size == 4) { TNI_SQUARES(float, 4, tni_float_transpose) }
    if (size == 8) { TNI_SQUARES(double, 2, tni_double_transpose) }
#undef TNI_SQUARES
#endif
    to += r * to_row;
    from += r * size;
    for (; r < rows; r++) {
        tni_copy_line(to, size, from, from_column, columns, size);
        if (r + 1 == rows) break;       /* no pointer leaves the array */
        to += to_row;
        from += size;
    }
}

static void tni_copy_block(const tni_copies *p, char *to, const char *from, int64_t rows, int64_t columns)
{
    const tni_copy_axis *row = &p->row, *column = &p->column;
    const int64_t        size = p->size;
    char    square[TNI_COPY_SIDE * TNI_COPY_SIDE * sizeof(double)];
    if (!p->transposed)
        for (int64_t r = 0; r < rows; r++)
            tni_copy_line(to + r * row->to, column->to, from + r * row->from, column->from, columns, size);
    else if (rows < TNI_COPY_SIDE || row->to % 1024 != 0)
        tni_copy_transposed(to, row->to, from, column->from, rows, columns, size);
    else {                              /* rows of the result would evict each other from the first cache */
        tni_copy_transposed(square, TNI_COPY_SIDE * size, from, column->from, rows, columns, size);
        for (int64_t r = 0; r < rows; r++) tni_copy_bytes(to + r * row->to, square + r * TNI_COPY_SIDE * size, columns * size);
    }
}

static void tni_copy_task(void *arg, int64_t task, int worker)
{
    const tni_copies    *p = (const tni_copies *)arg;
    const tni_copy_axis *axis = p->axis;
    int64_t i = tni_pass_begin(&p->pass, task), end = tni_pass_end(&p->pass, task), at = i, to = 0, from = 0;
    int64_t index[TN_MAX_RANK + 2];
    (void)worker;
    for (int k = p->rank - 1; k >= 0; k--) {
        index[k] = at % axis[k].n;
        at /= axis[k].n;
        to += index[k] * axis[k].to;
        from += index[k] * axis[k].from;
    }
    for (; i < end; i++) {
        const int64_t row = index[p->at[TNI_COPY_ROWS]] * p->row_block;
        const int64_t column = index[p->at[TNI_COPY_COLUMNS]] * p->column_block;
        tni_copy_block(p, p->to + to, p->from + from, tni_min(p->row_block, p->row.n - row),
                       tni_min(p->column_block, p->column.n - column));
        for (int k = p->rank - 1; k >= 0; k--) {
            to += axis[k].to;
            from += axis[k].from;
            if (++index[k] < axis[k].n) break;
            to -= axis[k].n * axis[k].to;
            from -= axis[k].n * axis[k].from;
            index[k] = 0;
        }
    }
}

/* The least distance that a step along an axis covers; an operand that is broadcast does not count. */
static int64_t tni_copy_reach(const tni_copy_axis *x, bool in_result)
{
    return in_result || x->from == 0 ? tni_abs(x->to) : tni_min(tni_abs(x->to), tni_abs(x->from));
}

/* The longest reach first; equal ones keep their order. */
static void tni_copy_sort(tni_copy_axis *axis, int rank, bool in_result)
{
    for (int i = 1; i < rank; i++)
        for (int k = i; k > 0 && tni_copy_reach(&axis[k], in_result) > tni_copy_reach(&axis[k - 1], in_result); k--) {
            const tni_copy_axis x = axis[k];
            axis[k] = axis[k - 1];
            axis[k - 1] = x;
        }
}

static void tni_copy_reverse(tni_copies *p, tni_copy_axis *x)
{
    p->to += (x->n - 1) * x->to;
    p->from += (x->n - 1) * x->from;
    x->to = -x->to;
    x->from = -x->from;
}

/* The axes longer than 1, with positive strides in the result, sorted by these and merged. */
static void tni_copy_axes(tni_copies *p, const tn_view *y, const tn_view *x)
{
    tni_copy_axis *axis = p->axis;
    int            rank = 0;
    for (int i = 0; i < y->rank; i++) {
        if (y->shape[i] == 1) continue;
        axis[rank].n = y->shape[i];
        axis[rank].to = y->strides[i] * p->size;
        axis[rank].from = x->strides[i] * p->size;
        if (axis[rank].to < 0) tni_copy_reverse(p, &axis[rank]);
        rank++;
    }
    tni_copy_sort(axis, rank, true);
    for (int i = 0; i < rank; i++) {
        tni_copy_axis *last = &axis[p->rank - 1];
        if (p->rank > 0 && last->to == axis[i].to * axis[i].n && last->from == axis[i].from * axis[i].n) {
            last->n *= axis[i].n;
            last->to = axis[i].to;
            last->from = axis[i].from;
        } else axis[p->rank++] = axis[i];
    }
}

/* Takes an axis out of the list, or one element if there is none. */
static tni_copy_axis tni_copy_take(tni_copies *p, int at)
{
    tni_copy_axis x = {1, 0, 0, TNI_COPY_WHOLE};
    if (p->rank == 0) return x;
    x = p->axis[at];
    for (int i = at; i + 1 < p->rank; i++) p->axis[i] = p->axis[i + 1];
    p->rank--;
    return x;
}

/* Chooses rows and columns. */
static void tni_copy_choose(tni_copies *p)
{
    p->column = tni_copy_take(p, p->rank - 1);
    tni_copy_sort(p->axis, p->rank, false);
    int rows = p->rank - 1;
    if (p->column.from != 0 && tni_abs(p->column.from) != p->size)
        for (int i = rows; i >= 0; i--)
            if (p->axis[i].from != 0 && tni_abs(p->axis[i].from) < tni_abs(p->axis[rows].from)) rows = i;
    p->row = tni_copy_take(p, rows);
    if (p->row.from < 0) tni_copy_reverse(p, &p->row);
    p->transposed = p->column.to == p->size && p->row.from == p->size && p->column.from != p->size && p->column.from != 0;
    p->column_block = tni_min(p->column.n, p->transposed ? (int64_t)TNI_COPY_SIDE : (int64_t)TNI_CPU_SHARE);
    p->row_block = tni_min(p->row.n, p->transposed ? (int64_t)TNI_COPY_SIDE : tni_max(1024 / p->column_block, 1));
}

/* Divides rows or columns into blocks, which are one more outer axis. */
static void tni_copy_divide(tni_copies *p, const tni_copy_axis *x, int64_t block, tni_copy_part part)
{
    tni_copy_axis *all = &p->axis[p->rank++];
    all->n = tni_ceil_div(x->n, block);
    all->to = x->to * block;
    all->from = x->from * block;
    all->part = part;
}

/* y = x, elements of the same size. */
static void tni_copy_elements(tni_cpu *cpu, const tn_view *y, const tn_view *x)
{
    tni_copies p = TNI_ZERO;
    int64_t    blocks = 1;
    for (int i = 0; i < y->rank; i++) if (y->shape[i] == 0) return;
    p.pass.cpu = cpu;
    p.to = (char *)y->data;
    p.from = (const char *)x->data;
    p.size = (int)tni_dtype_size(y->dtype);
    tni_copy_axes(&p, y, x);
    tni_copy_choose(&p);
    tni_copy_divide(&p, &p.row, p.row_block, TNI_COPY_ROWS);
    tni_copy_divide(&p, &p.column, p.column_block, TNI_COPY_COLUMNS);
    tni_copy_sort(p.axis, p.rank, false);
    for (int i = 0; i < p.rank; i++) {
        p.at[p.axis[i].part] = i;
        blocks *= p.axis[i].n;
    }
    tni_pass_run(&p.pass, blocks, p.row_block * p.column_block, INT64_MAX, tni_copy_task);
}

/* F32 to BF16, and back. */
static void tni_cast_task(void *arg, int64_t task, int worker)
{
    const tni_line_pass *p = (const tni_line_pass *)arg;
    const tn_call       *c = p->pass.call;
    const int64_t        to_step = p->lines.step[0], from_step = p->lines.step[1];
    int64_t              at[3];
    (void)worker;
    for (int64_t i = tni_pass_begin(&p->pass, task); i < tni_pass_end(&p->pass, task); i++) {
        int64_t n = tni_lines_at(&p->lines, i, at);
        if (c->out[0].dtype == TN_BF16) {
            uint16_t    *to = (uint16_t *)c->out[0].data + at[0];
            const float *from = (const float *)c->in[0].data + at[1];
            for (int64_t k = 0; k < n; k++) to[k * to_step] = tni_bf16_bits(from[k * from_step]);
        } else {
            float          *to = (float *)c->out[0].data + at[0];
            const uint16_t *from = (const uint16_t *)c->in[0].data + at[1];
            for (int64_t k = 0; k < n; k++) to[k * to_step] = tni_bf16_value(from[k * from_step]);
        }
    }
}

static void tni_swap_axes(tn_view *v, int i, int k)
{
    const int64_t shape = v->shape[i], stride = v->strides[i];
    v->shape[i] = v->shape[k];
    v->strides[i] = v->strides[k];
    v->shape[k] = shape;
    v->strides[k] = stride;
}

/* fn: casts lines whose steps are 1. The axis whose elements are contiguous in the result becomes the last one. */
TNI_FN tn_status tni_cast_run(tni_cpu *cpu, const tn_call *c, tn_task_fn fn)
{
    tn_view to = c->out[0], from = c->in[0];
    for (int i = 1; i < to.rank; i++)
        for (int k = i; k > 0 && tni_abs(to.strides[k]) > tni_abs(to.strides[k - 1]); k--) {
            tni_swap_axes(&to, k, k - 1);
            tni_swap_axes(&from, k, k - 1);
        }
    tni_lines l = tni_lines_of(&to, &from, NULL);
    return tni_line_pass_run(cpu, c, &l, l.length < 2 || (l.step[0] == 1 && l.step[1] == 1) ? fn : tni_cast_task);
}

static bool tni_is_cast(tn_dtype a, tn_dtype b) { return (a == TN_F32 && b == TN_BF16) || (a == TN_BF16 && b == TN_F32); }

TNI_FN tn_status tni_cpu_copy_run(tni_cpu *cpu, const tn_call *c)
{
    if (tni_is_cast(c->in[0].dtype, c->out[0].dtype))
        return cpu->run[0] ? cpu->run[0](cpu, c) : tni_cast_run(cpu, c, tni_cast_task);
    if (c->in[0].dtype != c->out[0].dtype) return tni_reference_run(cpu, c);
    tni_copy_elements(cpu, &c->out[0], &c->in[0]);
    return TN_OK;
}

/* One element, copied to all places. */
TNI_FN tn_status tni_cpu_fill_run(tni_cpu *cpu, const tn_call *c)
{
    const tn_dtype dtype = c->out[0].dtype;
    tn_call  copy = *c;
    double   wide = c->f[0];
    float    narrow = (float)wide;
    uint16_t half = tni_bf16_of(wide);
    if (dtype == TN_I32) return tni_reference_run(cpu, c);
    copy.in[0] = c->out[0];
    copy.in[0].data = dtype == TN_F64 ? (void *)&wide : dtype == TN_BF16 ? (void *)&half : (void *)&narrow;
    memset(copy.in[0].strides, 0, sizeof copy.in[0].strides);
    return tni_cpu_copy_run(cpu, &copy);
}
