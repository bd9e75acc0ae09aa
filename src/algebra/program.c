#include "core/inner.h"
#include "ops/inner.h"
#include "algebra/inner.h"

#ifndef TN_NO_CONTRACTION
/* ---- kernel calls ------------------------------------------------------- >>plan-program
   A product whose labels are summed is a GEMM [b,m,k] [b,k,n] -> [b,m,n], each axis a run of labels whose elements have one
   stride; an operand of another layout is copied. A product without sums is MUL, private labels are SUM. */

/* Whether these labels are one axis with these strides. */
static bool tni_is_axis(const tni_builder *b, int n, const int *label, const int64_t *s)
{
    for (int i = 1; i < n; i++) if (s[label[i - 1]] != s[label[i]] * tni_step_of(b, label[i])) return false;
    return true;
}

/* Sorts the labels of an axis into their order in q. */
static void tni_axis_order(tni_builder *b, int axis, const tni_layout *q)
{
    int *list = b->list[axis], n = 0;
    for (int i = 0; i < q->count; i++)
        for (int k = n; k < b->count[axis]; k++)
            if (list[k] == q->label[i]) {
                list[k] = list[n];
                list[n++] = q->label[i];
                break;
            }
}

/* Chooses the order of an axis' labels: that of one of the operands or of the result, such that the fewest elements have to
   be copied. x: operands (0, 1) or the result (2). */
static void tni_axis_choose(tni_builder *b, int axis, const tni_layout *const *q, const double *size)
{
    double best = HUGE_VAL;
    int    choice = -1;
    if (b->count[axis] < 2) return;
    for (int x = 0; x < 3 && best > 0; x++) {
        double cost = 0;
        if (!q[x]) continue;
        tni_axis_order(b, axis, q[x]);
        for (int y = 0; y < 3; y++)
            if (q[y] && !tni_is_axis(b, b->count[axis], b->list[axis], b->s[y])) cost += size[y];
        if (cost < best) { best = cost; choice = x; }
    }
    if (choice >= 0) tni_axis_order(b, axis, q[choice]);
}

/* A view [..] of up to three axes, each a list of labels. */
static tn_view tni_axes_view(const tni_builder *b, const int *axis, const int64_t *s)
{
    tn_view v = TNI_ZERO;
    int64_t inner = 1;
    v.rank = 3;
    for (int i = 2; i >= 0; i--) {
        const int n = b->count[axis[i]], *list = b->list[axis[i]];
        v.shape[i] = tni_elements(b, n, list);
        v.strides[i] = n > 0 ? s[list[n - 1]] : inner;         /* without labels: as if contiguous */
        if (n > 0) inner = tni_max(inner, tni_abs(s[list[0]]) * tni_step_of(b, list[0]));
    }
    return v;
}

/* The labels of three axes, one after the other, into b->order. */
static int tni_axes_order(tni_builder *b, const int *axis)
{
    int n = 0;
    for (int i = 0; i < 3; i++) for (int k = 0; k < b->count[axis[i]]; k++) b->order[n++] = b->list[axis[i]][k];
    return n;
}

/* The labels of a batch are one axis of the kernel, or any few if it takes them. */
static bool tni_is_batch(const tni_builder *b, const int64_t *s)
{
    if (b->in_place && b->count[TNI_B] <= TN_MAX_RANK - 2) return true;
    return tni_is_axis(b, b->count[TNI_B], b->list[TNI_B], s);
}

/* Copies an operand if its labels are not the axes of the kernel. */
static void tni_build_axes(tni_builder *b, tni_layout *q, int node, const int *axis, int which)
{
    int n = 0;
    tni_strides_of(q, b->s[which]);
    bool fits = tni_is_batch(b, b->s[which]);
    for (int i = 1; i < 3; i++) fits = fits && tni_is_axis(b, b->count[axis[i]], b->list[axis[i]], b->s[which]);
    if (fits) return;
    int  all = tni_axes_order(b, axis);
    int *order = (int *)tni_take_zeroed(b->memory, all + 1, sizeof *order);
    if (!order) { b->ok = false; return; }
    for (int i = 0; i < all; i++)
        for (int k = 0; k < q->count; k++) if (q->label[k] == b->order[i]) order[n++] = b->order[i];
    tni_build_copy(b, q, node, order);
}

/* If rows or columns are not one axis, the last ones that are become the rows or columns of more products. That is faster
   than a copy unless these are small, or the other extent is so large that a copy is little. */
static void tni_build_split(tni_builder *b, int axis, int which, bool last)
{
    const int     other = axis == TNI_M ? TNI_N : TNI_M;
    const int64_t enough = tni_elements(b, b->count[other], b->list[other]) > 512 ? 256 : 32;
    int *list = b->list[axis], *batch = b->list[TNI_B], first = b->count[axis] - 1;
    if (first < 1 || tni_is_axis(b, first + 1, list, b->s[which])) return;
    while (first > 0 && tni_is_axis(b, b->count[axis] - first + 1, list + first - 1, b->s[which])
           && (!last || tni_is_axis(b, b->count[axis] - first + 1, list + first - 1, b->s[2]))) first--;
    if (b->count[TNI_B] + first > TN_MAX_RANK - 2 || tni_elements(b, b->count[axis] - first, list + first) < enough) return;
    for (int i = 0; i < first; i++) batch[b->count[TNI_B]++] = list[i];
    b->count[axis] -= first;
    for (int i = 0; i < b->count[axis]; i++) list[i] = list[i + first];
    b->program->in_place = true;         /* a factor is broadcast */
}

/* The views of a product: a batch of any number of axes (at least one), and those of the matrices. */
static void tni_gemm_views(const tni_builder *b, tn_view *v)
{
    static const int axes[3][3] = {{TNI_B, TNI_M, TNI_K}, {TNI_B, TNI_K, TNI_N}, {TNI_B, TNI_M, TNI_N}};
    tn_view batch[3];
    int     rank, k;
    for (k = 0; k < 3; k++) v[k] = tni_axes_view(b, axes[k], b->s[k]);
    for (k = 0; k < 3 && tni_is_axis(b, b->count[TNI_B], b->list[TNI_B], b->s[k]); k++) {}
    if (k == 3 || (rank = tni_fuse(b, b->count[TNI_B], b->list[TNI_B], 3, b->s, batch)) < 1) return;
    for (k = 0; k < 3; k++) {
        for (int i = 1; i < 3; i++) {
            batch[k].shape[rank - 1 + i] = v[k].shape[i];
            batch[k].strides[rank - 1 + i] = v[k].strides[i];
        }
        batch[k].rank = rank + 2;
        v[k] = batch[k];
    }
    b->program->in_place = true;
}

/* What a label is to the product with node `with`, whose result is node `to`. 0: a row or column; 1: batch; 2: summed */
static int tni_label_kind(const tni_builder *b, int label, int with, int to)
{
    return !tni_set_has(tni_legs(b->p, with), label) ? 0 : tni_set_has(tni_legs(b->p, to), label) ? 1 : 2;
}

/* Whether an order of these labels suits the next product, with node `with`, whose result is node `to`. 1: each axis is one
   run of labels; 2: they are in the order that they have in `with`, too; else 0. */
static int tni_suits(const tni_builder *b, int n, const int *label, int with, int to)
{
    const tni_layout *q = &b->piece[with];
    int             k, before[3] = {0, 0, 0}, was = -1, at = -1, suits = 2;
    for (int i = 0; i < n; i++) {
        const int kind = tni_label_kind(b, label[i], with, to);
        if (kind != was && before[kind]++) return 0;
        for (k = 0; k < q->count && q->label[k] != label[i]; k++) {}
        if (kind > 0 && kind == was && k < q->count && k < at) suits = 1;
        if (k < q->count) at = k;
        was = kind;
    }
    return suits;
}

/* Zeroes the strides of both operands' labels and of the result's, then sets those that they have. */
static void tni_set_strides(tni_builder *b, tni_layout *const *q, bool last)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < q[k]->count; i++) for (int x = 0; x < 3; x++) b->s[x][q[k]->label[i]] = 0;
    for (int k = 0; k < 2; k++) tni_strides_of(q[k], b->s[k]);
    if (last) tni_strides_of(&b->result, b->s[2]);
}

/* Copies an operand to the order of the result's labels. */
static void tni_build_ordered(tni_builder *b, tni_layout *q, int node, int n, const int *order)
{
    int *own = (int *)tni_take_zeroed(b->memory, n + 1, sizeof *own), count = 0;
    if (!own) { b->ok = false; return; }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < q->count; k++) if (q->label[k] == order[i]) own[count++] = order[i];
    tni_build_copy(b, q, node, own);
}

/* Where an order of a product's labels does not suit the next product, a GEMM: the labels of its batch, those of its rows or
   columns, then those that it sums, unless an operand that is not small would have to be copied for that. A product without
   sums takes any order. */
static void tni_mul_reorder(const tni_builder *b, tni_layout *const *q, int n, int *order, int with, int to)
{
    static const int kinds[3] = {1, 0, 2};
    int count = 0;
    if (tni_suits(b, n, order, with, to) > 0) return;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < n; i++) if (tni_label_kind(b, order[i], with, to) == kinds[k]) b->order[count++] = order[i];
    if (tni_label_kind(b, b->order[n - 1], with, to) != 2) return;
    for (int x = 0; x < 2; x++)
        for (int i = 0; i < q[x]->count; i++)
            if (q[x]->label[i] == b->order[n - 1] && q[x]->stride[i] != 1
                && 4 * tni_elements(b, q[x]->count, q[x]->label) > tni_elements(b, n, order)) return;
    memcpy(order, b->order, (size_t)n * sizeof *order);
}

/* A product without sums: in the order of the result; or first the labels that only the smaller operand has, then those of
   the larger in its own order, or an order that suits the next product, with node `with`. If that has too many axes it is
   [m,b] [b,n] -> [m,b,n], all contiguous. */
static void tni_build_mul(tni_builder *b, int node, tni_layout *const *q, int parent, int with)
{
    static const int axes[3] = {TNI_M, TNI_B, TNI_N};
    const bool       last = node == b->p->root;
    const int        large = tni_elements(b, q[1]->count, q[1]->label) > tni_elements(b, q[0]->count, q[0]->label);
    const int        alone = large ? TNI_M : TNI_N;
    tni_layout        *result = &b->piece[node];
    tn_view          v[3];
    bool             direct = last, copied = false;
    int              n = 0;
    int             *order = (int *)tni_take_zeroed(b->memory, tni_plus(tni_plus(q[0]->count, q[1]->count), 1), sizeof *order);
    if (!order || !tni_layout_begin(b, result, q[0]->count + q[1]->count)) { b->ok = false; return; }
    if (last) for (; n < b->result.count; n++) order[n] = b->result.label[n];
    for (int i = 0; !last && i < b->count[alone]; i++) order[n++] = b->list[alone][i];
    for (int i = 0; !last && i < q[large]->count; i++) order[n++] = q[large]->label[i];
    if (!last) tni_mul_reorder(b, q, n, order, with, parent);
    for (;;) {
        tni_set_strides(b, q, direct);
        if (!direct) tni_plan_strides(b, n, order, b->s[2]);
        int rank = tni_fuse(b, n, order, 3, b->s, v);
        if (rank <= TN_MAX_RANK && (copied || n == 0 || ((uint64_t)b->s[0][order[n - 1]] <= 1
                                                         && (uint64_t)b->s[1][order[n - 1]] <= 1))) break;
        if (rank > TN_MAX_RANK) {
            memcpy(order, b->order, (size_t)tni_axes_order(b, axes) * sizeof *order);
            direct = false;
        }
        for (int i = 0; i < 2; i++)
            if (rank > TN_MAX_RANK || (uint64_t)b->s[i][order[n - 1]] > 1) {
                tni_build_ordered(b, q[i], node, n, order);
                tni_set_strides(b, q, false);
            }
        copied = true;
        if (!b->ok) return;
    }
    tni_move *m = tni_emit(b, TN_KERNEL_MUL, node, direct, q[0], q[1], v, &v[2], tni_elements(b, n, order));
    if (!m || direct) return;
    tni_layout_set(b, result, m, n, order);
    if (last) tni_build_result(b, result, node);
}

/* A product that is a vector times a matrix, or a dot product, for each index of a batch whose last label is contiguous in
   the larger operand. A GEMM would read numbers that are far apart, so it is MUL, then SUM over the first axes. The other
   operand is copied if that is little work. */
static bool tni_build_dots(tni_builder *b, int node, tni_layout *const *q)
{
    const int       which = b->count[TNI_N] > 0;
    const tni_layout *large = q[which], *other = q[which ^ 1];
    const int       inner = large->label[large->count - 1];
    const bool      last = node == b->p->root, direct = last && b->result.count < TN_MAX_RANK;
    tni_layout       *result = &b->piece[node], product;
    tn_view         v[3];
    int             n, k;
    if ((b->count[TNI_M] && b->count[TNI_N]) || b->s[which][inner] != 1 || b->s[which ^ 1][inner] == 0
        || !tni_set_has(tni_legs(b->p, node), inner)) return false;
    if (b->s[which ^ 1][inner] != 1
        && 4 * tni_elements(b, other->count, other->label) > tni_elements(b, large->count, large->label)) return false;
    int *order = (int *)tni_take_zeroed(b->memory, large->count, sizeof *order);
    if (!order) b->ok = false;
    if (!b->ok || !tni_layout_begin(b, &product, large->count) || !tni_layout_begin(b, result, large->count)) return false;
    for (n = 0; n < b->count[TNI_K]; n++) order[n] = b->list[TNI_K][n];
    for (int i = 0; i < large->count; i++) {
        for (k = 0; k < b->count[TNI_K] && order[k] != large->label[i]; k++) {}
        if (k == b->count[TNI_K]) order[n++] = large->label[i];
    }
    if (b->s[which ^ 1][inner] != 1) {
        tni_build_ordered(b, q[which ^ 1], node, n, order);
        if (!b->ok) return false;
        tni_set_strides(b, q, last);
    }
    tni_plan_strides(b, n, order, b->s[2]);
    if (tni_fuse(b, n, order, 3, b->s, v) > TN_MAX_RANK) {
        tni_set_strides(b, q, last);
        return false;
    }
    product.at.operand = 0;
    tni_move *m = tni_emit(b, TN_KERNEL_MUL, node, false, q[0], q[1], v, &v[2], tni_elements(b, n, order));
    if (!m) return false;
    tni_layout_set(b, &product, m, n, order);
    int64_t *s[2] = {b->s[0], b->s[1]};
    k = b->count[TNI_K];
    tni_strides_of(&product, s[0]);
    for (int i = 0; i < k; i++) s[1][order[i]] = 0;
    if (direct) tni_strides_of(&b->result, s[1]);
    else tni_plan_strides(b, n - k, order + k, s[1]);
    tni_fuse(b, n, order, 2, s, v);
    m = tni_emit(b, TN_KERNEL_SUM, node, direct, &product, NULL, v, &v[1], tni_elements(b, n - k, order + k));
    if (!m || direct) return true;
    tni_layout_set(b, result, m, n - k, order + k);
    if (last) tni_build_result(b, result, node);
    return true;
}

/* Whether a GEMM can write its result directly to its place: each axis has one stride, rows or columns are contiguous. */
static bool tni_gemm_direct(const tni_builder *b)
{
    bool adjacent = b->count[TNI_M] + b->count[TNI_N] == 0;
    for (int i = 0; i < TNI_AXES; i++) {
        const int n = b->count[i], *list = b->list[i];
        if (i == TNI_K) continue;
        if (i == TNI_B ? !tni_is_batch(b, b->s[2]) : !tni_is_axis(b, n, list, b->s[2])) return false;
        if (i != TNI_B && n > 0 && b->s[2][list[n - 1]] == 1) adjacent = true;
    }
    return adjacent;
}

/* Where labels [first,end) of the result are one axis that operand `side` alone has: returns the first label, or end. */
static int tni_run_of_side(const tni_builder *b, const tni_layout *const *q, int side, int end)
{
    int first = end;
    for (; first > 0; first--) {
        const int label = b->result.label[first - 1];
        bool      has[2] = {false, false};
        for (int i = 0; i < 2; i++) for (int k = 0; k < q[i]->count; k++) has[i] = has[i] || q[i]->label[k] == label;
        if (!has[side] || has[side ^ 1] || !tni_is_axis(b, end - first + 1, b->result.label + first - 1, b->s[2])) break;
    }
    return first;
}

/* An operand of a product in place: its labels outside of the run, then the depth, which comes after the run in the left
   factor. True if it lies like that, or after it was copied. */
static bool tni_build_factor(tni_builder *b, tni_layout *q, int node, int which, const int *run, int n, bool left)
{
    const int *depth = b->list[TNI_K];
    const int  deep = b->count[TNI_K];
    int        count = 0;
    tni_strides_of(q, b->s[which]);             /* which a copy of the other operand has overwritten */
    if (tni_is_axis(b, deep, depth, b->s[which]) && tni_is_axis(b, n, run, b->s[which])
        && (left || b->s[which][run[n - 1]] == 1)) return true;
    int *order = (int *)tni_take_zeroed(b->memory, q->count + 1, sizeof *order);
    if (!order) return b->ok = false;
    for (int i = 0; i < b->result.count; i++)
        for (int k = 0; k < q->count; k++)
            if (q->label[k] == b->result.label[i] && (&b->result.label[i] < run || &b->result.label[i] >= run + n))
                order[count++] = q->label[k];
    for (int part = 0; part < 2; part++)
        if ((part == 0) == left) for (int i = 0; i < n; i++) order[count++] = run[i];
        else for (int i = 0; i < deep; i++) order[count++] = depth[i];
    tni_build_copy(b, q, node, order);
    return b->ok;
}

/* The last product, where its result would have to be permuted: it is written in place, as a batch of small products. Their
   columns are the last labels of the result, which one operand has, their rows the most that the other has in one run; all
   other labels number the products. False if that does not pay. */
static bool tni_build_in_place(tni_builder *b, int node, tni_layout *const *q)
{
    const tni_layout *const lies[2] = {q[0], q[1]};
    const int    *label = b->result.label;
    const int64_t all = tni_elements(b, b->result.count, label), depth = tni_elements(b, b->count[TNI_K], b->list[TNI_K]);
    int64_t       most = 0;
    int           side, first = b->result.count, rows = 0, rows_end = 0, n = 0;
    tn_view       v[3];
    for (side = 0; side < 2; side++)
        if ((first = tni_run_of_side(b, lies, side, b->result.count)) < b->result.count) break;
    if (side == 2 || b->s[2][label[b->result.count - 1]] != 1) return false;
    for (int end = first; end > 0; end--) {
        const int     begin = tni_run_of_side(b, lies, side ^ 1, end);
        const int64_t count = tni_elements(b, end - begin, label + begin);
        if (begin < end && count > most) { most = count; rows = begin; rows_end = end; }
    }
    int64_t columns = tni_elements(b, b->result.count - first, label + first);
    if (most * columns < 256 || (depth > 32 && (most < 32 || columns < 32))) return false;
    if (4 * (tni_elements(b, q[0]->count, q[0]->label) + tni_elements(b, q[1]->count, q[1]->label)) > all) return false;
    if (!tni_build_factor(b, q[side ^ 1], node, side ^ 1, label + rows, rows_end - rows, true)
        || !tni_build_factor(b, q[side], node, side, label + first, b->result.count - first, false)) return !b->ok;
    tni_set_strides(b, q, true);
    int *batch = b->order;
    for (int i = 0; i < first; i++) if (i < rows || i >= rows_end) batch[n++] = label[i];
    int64_t *s[3] = {b->s[side ^ 1], b->s[side], b->s[2]};
    n = tni_fuse(b, n, batch, 3, s, v);
    for (int k = 0; k < 3; k++) {
        const int last = b->list[TNI_K][b->count[TNI_K] - 1];
        v[k].shape[n] = k == 1 ? depth : most;
        v[k].strides[n] = s[k][k == 1 ? last : label[rows_end - 1]];
        v[k].shape[n + 1] = k == 0 ? depth : columns;
        v[k].strides[n + 1] = s[k][k == 0 ? last : label[b->result.count - 1]];
        v[k].rank = n + 2;
    }
    tni_emit(b, TN_KERNEL_GEMM, node, true, q[side ^ 1], q[side], v, &v[2], all);
    b->program->in_place = true;
    return true;
}

static void tni_build_gemm(tni_builder *b, int node, tni_layout *const *q, int parent, int with)
{
    static const int orders[4][3] = {{TNI_B, TNI_M, TNI_N}, {TNI_B, TNI_N, TNI_M},
                                     {TNI_M, TNI_B, TNI_N}, {TNI_N, TNI_B, TNI_M}};
    static const int a[3] = {TNI_B, TNI_M, TNI_K}, c[3] = {TNI_B, TNI_K, TNI_N};
    const bool       last = node == b->p->root;
    const tni_layout *lies[3] = {q[0], q[1], last ? &b->result : NULL};
    double           size[3] = {1, 1, 1};
    tni_layout        *result = &b->piece[node];
    tni_move        *m;
    tn_view          v[3];
    bool             direct = false;
    int              n = 0, use = 0;
    for (int i = 0; i < 3; i++) if (lies[i]) size[i] = (double)tni_elements(b, lies[i]->count, lies[i]->label);
    tni_set_strides(b, q, last);
    for (int i = 0; i < TNI_AXES; i++) {
        const tni_layout *of[3] = {i == TNI_N ? NULL : lies[0], i == TNI_M ? NULL : lies[1], i == TNI_K ? NULL : lies[2]};
        tni_axis_choose(b, i, of, size);
    }
    if (tni_build_dots(b, node, q) || !b->ok) return;
    if (last && b->in_place && !tni_gemm_direct(b) && tni_build_in_place(b, node, q)) return;
    if (b->in_place) for (int i = 0; i < 2; i++) tni_build_split(b, i == 0 ? TNI_M : TNI_N, i, last);
    tni_build_axes(b, q[0], node, a, 0);
    tni_build_axes(b, q[1], node, c, 1);
    if (!b->ok || !tni_layout_begin(b, result, q[0]->count + q[1]->count)) return;
    tni_set_strides(b, q, last);
    direct = last && tni_gemm_direct(b);
    if (!direct) {
        int best = -1;
        if (!last && with < b->p->n && memcmp(tni_legs(b->p, with), b->p->all + (size_t)with * (size_t)b->p->words,
                                              (size_t)b->p->words * sizeof *b->p->all) == 0) tni_build_operand(b, with);
        for (int i = 0; i < 4 && !last; i++) {
            n = tni_axes_order(b, orders[i]);
            int suits = tni_suits(b, n, b->order, with, parent);
            if (suits > best) { best = suits; use = i; }
        }
        n = tni_axes_order(b, orders[use]);
        tni_plan_strides(b, n, b->order, b->s[2]);
    }
    tni_gemm_views(b, v);
    int64_t count = tni_elements(b, tni_axes_order(b, orders[0]), b->order);
    if (v[2].strides[v[2].rank - 1] != 1 && v[2].strides[v[2].rank - 2] == 1) {   /* C^T = B^T A^T: contiguous rows */
        const tn_view t[2] = {tni_transposed_view(v[1]), tni_transposed_view(v[0])}, transposed = tni_transposed_view(v[2]);
        m = tni_emit(b, TN_KERNEL_GEMM, node, direct, q[1], q[0], t, &transposed, count);
    } else m = tni_emit(b, TN_KERNEL_GEMM, node, direct, q[0], q[1], v, &v[2], count);
    if (!m || direct) return;
    n = tni_axes_order(b, orders[use]);
    {
        int *order = (int *)tni_take_zeroed(b->memory, n + 1, sizeof *order);
        if (!order) { b->ok = false; return; }
        memcpy(order, b->order, (size_t)n * sizeof *order);
        tni_layout_set(b, result, m, n, order);
    }
    if (last) tni_build_result(b, result, node);
}

/* Sorts the labels of two operands into the axes of a product. */
static void tni_build_pair(tni_builder *b, int node, int parent, int with)
{
    const int      *child = b->p->child + 2 * node;
    tni_layout       *q[2] = {&b->piece[child[0]], &b->piece[child[1]]};
    const uint64_t *legs = tni_legs(b->p, node);
    int             j;
    for (int k = 0; k < 2; k++) if (child[k] < b->p->n) tni_build_operand(b, child[k]);
    memset(b->count, 0, sizeof b->count);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < q[k]->count; i++) {
            const int label = q[k]->label[i];
            int       axis;
            for (j = 0; j < q[k ^ 1]->count && q[k ^ 1]->label[j] != label; j++) {}
            if (j < q[k ^ 1]->count) axis = tni_set_has(legs, label) ? TNI_B : TNI_K;
            else axis = k == 0 ? TNI_M : TNI_N;
            if (k == 0 || axis == TNI_N) b->list[axis][b->count[axis]++] = label;
        }
    if (b->count[TNI_K] == 0) tni_build_mul(b, node, q, parent, with);
    else tni_build_gemm(b, node, q, parent, with);
}

/* Whether GEMM takes any number of batch axes. */
static bool tni_gemm_takes_axes(const tn_ctx *ctx)
{
    return ctx->backend == tn_cpu_backend() || ctx->backend == tn_reference_backend();
}

/* Makes the kernel calls for operands of these strides (in p->operand) and slices of these extents. */
TNI_FN tni_program *tni_plan_program(const tn_plan *p, tni_scratch *memory, const int64_t *extent, bool recorded)
{
    const int    n = p->n, labels = p->labels + 1;
    const int64_t nodes = 2 * n;
    tni_builder   b = TNI_ZERO;
    b.p = p;
    b.memory = memory;
    b.extent = extent;
    b.size = tni_dtype_size(p->ctx->desc.dtype);
    b.program = (tni_program *)tni_take_zeroed(memory, 1, sizeof *b.program);
    b.piece = (tni_layout *)tni_take_zeroed(memory, nodes, sizeof *b.piece);
    b.live = (tni_move **)tni_take_zeroed(memory, nodes + 8, sizeof *b.live);
    b.order = (int *)tni_take_zeroed(memory, tni_area(labels, TNI_AXES + 1), sizeof *b.order);
    b.s[0] = (int64_t *)tni_take_zeroed(memory, tni_area(labels, 3), sizeof *b.s[0]);
    int *parent = (int *)tni_take_zeroed(memory, tni_area(2, nodes), sizeof *parent);
    if (memory->failed) return NULL;
    int *with = parent + nodes;
    for (int i = 0; i < TNI_AXES; i++) b.list[i] = b.order + (size_t)labels * (size_t)(i + 1);
    for (int i = 1; i < 3; i++) b.s[i] = b.s[0] + (size_t)labels * (size_t)i;
    b.end = &b.program->first;
    b.ok = true;
    b.in_place = !recorded && tni_gemm_takes_axes(p->ctx);
    if (!tni_layout_begin(&b, &b.result, p->out.rank)) return NULL;
    for (int i = 0; i < p->out.rank; i++) {
        const int label = p->out.label[i];
        if (label < 0 || extent[label] == 1) continue;
        b.result.label[b.result.count] = label;
        b.result.stride[b.result.count++] = p->out.strides[i];
    }
    for (int i = 0; i + 1 < n; i++)
        for (int k = 0; k < 2; k++) {
            const int *child = p->child + 2 * p->order[i];
            parent[child[k]] = p->order[i];
            with[child[k]] = child[k ^ 1];
        }
    if (n == 1) tni_build_operand(&b, 0);
    for (int i = 0; i + 1 < n && b.ok; i++) tni_build_pair(&b, p->order[i], parent[p->order[i]], with[p->order[i]]);
    return b.ok ? b.program : NULL;
}

#endif /* TN_NO_CONTRACTION */
