#include "core/inner.h"
#include "algebra/inner.h"

#ifndef TN_NO_CONTRACTION
/* ---- layouts of nodes, and the kernel calls that change them ------------- >>plan-layout
   A buffer of the workspace is used once, and is free afterwards. */

TNI_FN int64_t tni_step_of(const tni_builder *b, int label) { return tni_max(b->extent[label], 1); }

/* Merges neighbouring labels that are one axis in all `views` operands. Returns the number of axes, at most
   TN_MAX_RANK + 1. */
TNI_FN int tni_fuse(const tni_builder *b, int n, const int *label, int views, int64_t *const *s, tn_view *v)
{
    int rank = 0;
    memset(v, 0, (size_t)views * sizeof *v);
    for (int i = 0; i < n; i++) {
        bool joined = i > 0;
        for (int k = 0; k < views && joined; k++)
            joined = s[k][label[i - 1]] == s[k][label[i]] * tni_step_of(b, label[i]);
        if (!joined && rank++ == TN_MAX_RANK) return rank;
        for (int k = 0; k < views; k++) {
            const int64_t stride = s[k][label[i]];
            v[k].shape[rank - 1] = stride == 0 ? 1 : (joined ? v[k].shape[rank - 1] : 1) * b->extent[label[i]];
            v[k].strides[rank - 1] = stride;
        }
    }
    for (int k = 0; k < views; k++) v[k].rank = rank;
    return rank;
}

TNI_FN int64_t tni_elements(const tni_builder *b, int n, const int *label)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= b->extent[label[i]];
    return count;
}

/* Gives labels the strides of a contiguous tensor in this order. */
TNI_FN void tni_plan_strides(const tni_builder *b, int n, const int *label, int64_t *s)
{
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        s[label[i]] = stride;
        stride *= tni_step_of(b, label[i]);
    }
}

TNI_FN void tni_strides_of(const tni_layout *q, int64_t *s)
{
    for (int i = 0; i < q->count; i++) s[q->label[i]] = q->stride[i];
}

TNI_FN bool tni_layout_begin(tni_builder *b, tni_layout *q, int most)
{
    q->count = 0;
    q->label = (int *)tni_take_zeroed(b->memory, most + 1, sizeof *q->label);
    q->stride = (int64_t *)tni_take_zeroed(b->memory, most + 1, sizeof *q->stride);
    return b->ok = b->ok && q->label && q->stride;
}

TNI_FN void tni_layout_set(tni_builder *b, tni_layout *q, tni_move *from, int n, const int *label)
{
    tni_plan_strides(b, n, label, b->s[2]);
    q->at.from = from;
    q->count = n;
    from->labels = (uint64_t *)tni_take_zeroed(b->memory, b->p->words, sizeof *from->labels);
    b->ok = b->ok && from->labels;
    for (int i = 0; i < n && b->ok; i++) tni_set_add(from->labels, label[i]);
    for (int i = 0; i < n; i++) {
        q->label[i] = label[i];
        q->stride[i] = b->s[2][label[i]];
    }
}

/* The first place in the workspace that is free. */
static void tni_buffer_place(tni_builder *b, tni_move *m)
{
    size_t at = 0;
    int    i;
    m->bytes = ((size_t)m->count * b->size + TNI_ALIGN - 1) / TNI_ALIGN * TNI_ALIGN;
    for (i = 0; i < b->lives && b->live[i]->offset - at < m->bytes; i++) at = b->live[i]->offset + b->live[i]->bytes;
    for (int k = b->lives++; k > i; k--) b->live[k] = b->live[k - 1];
    b->live[i] = m;
    m->offset = at;
    if (at + m->bytes > b->program->bytes) b->program->bytes = at + m->bytes;
}

static void tni_buffer_free(tni_builder *b, const tni_move *m)
{
    int n = 0;
    for (int i = 0; i < b->lives; i++) if (b->live[i] != m) b->live[n++] = b->live[i];
    b->lives = n;
}

/* Appends a kernel call: v[0], v[1] its operands, v[2] its result. A buffer is used once, and is free afterwards. */
TNI_FN tni_move *tni_emit(tni_builder *b, tn_kernel kernel, int node, bool last, const tni_layout *x, const tni_layout *y,
                          const tn_view *v, const tn_view *out, int64_t count)
{
    tni_move *m = b->ok ? (tni_move *)tni_take_zeroed(b->memory, 1, sizeof *m) : NULL;
    b->ok = m != NULL;
    if (!m) return NULL;
    m->kernel = kernel;
    m->node = node;
    m->last = last;
    m->n_in = y ? 2 : 1;
    m->in[0] = x->at;
    if (y) m->in[1] = y->at;
    for (int k = 0; k < m->n_in; k++) m->in[k].view = v[k];
    m->out = *out;
    m->count = count;
    if (!last) tni_buffer_place(b, m);
    for (int k = 0; k < m->n_in; k++) if (m->in[k].from) tni_buffer_free(b, m->in[k].from);
    *b->end = m;
    b->end = &m->next;
    return m;
}

/* Copies the numbers of q into this order of its labels. With more than 8 runs of labels it takes several copies, each of
   which brings the next three runs to their place. */
TNI_FN void tni_build_copy(tni_builder *b, tni_layout *q, int node, const int *order)
{
    const int n = q->count;
    int       done = 0, i, k;
    int64_t  *s[2] = {b->s[0], b->s[1]};
    while (b->ok && done < n) {
        tn_view v[2];
        int    *now = b->order, runs = 0, count = 0;
        tni_strides_of(q, s[0]);
        tni_plan_strides(b, n, order, s[1]);
        if (tni_fuse(b, n, order, 2, s, v) <= TN_MAX_RANK) done = n;
        else
            for (i = done; i < n; i++, done++) {
                for (k = 0; k + 1 < n && (i == 0 || q->label[k] != order[i - 1]); k++) {}
                if ((runs == 0 || k + 1 == n || q->label[k + 1] != order[i]) && runs++ == 3) break;
            }
        for (; count < done; count++) now[count] = order[count];
        for (k = 0; k < n; k++) {
            for (i = 0; i < done && order[i] != q->label[k]; i++) {}
            if (i == done) now[count++] = q->label[k];
        }
        tni_plan_strides(b, n, now, s[1]);
        tni_fuse(b, n, now, 2, s, v);
        tni_move *m = tni_emit(b, TN_KERNEL_COPY, node, false, q, NULL, v, &v[1], tni_elements(b, n, now));
        if (m) tni_layout_set(b, q, m, n, now);
    }
}

/* Appends the last call where the result is in a buffer: a copy to its place. */
TNI_FN void tni_build_result(tni_builder *b, const tni_layout *q, int node)
{
    tni_layout from = *q;
    tn_view   v[2];
    int64_t *s[2] = {b->s[0], b->s[1]};
    tni_strides_of(&from, s[0]);
    tni_strides_of(&b->result, s[1]);
    tni_fuse(b, from.count, b->result.label, 2, s, v);         /* at most 8 labels */
    tni_emit(b, TN_KERNEL_COPY, node, true, &from, NULL, v, &v[1], 0);
}

static void tni_sort_piece(tni_layout *q)
{
    for (int i = 1; i < q->count; i++)
        for (int k = i; k > 0 && tni_abs(q->stride[k]) > tni_abs(q->stride[k - 1]); k--) {
            const int64_t stride = q->stride[k];
            const int     label = q->label[k];
            q->stride[k] = q->stride[k - 1];
            q->label[k] = q->label[k - 1];
            q->stride[k - 1] = stride;
            q->label[k - 1] = label;
        }
}

/* An operand: axes of one label are a diagonal, private labels are summed. */
TNI_FN void tni_build_operand(tni_builder *b, int k)
{
    const tni_subscript *o = &b->p->operand[k];
    const uint64_t      *legs = tni_legs(b->p, k);
    const bool           last = b->p->n == 1;
    tni_layout            *q = &b->piece[k];
    tn_view              v[2];
    int                  j, n = 0;
    int64_t             *s[2] = {b->s[0], b->s[1]};
    if (q->label || !tni_layout_begin(b, q, o->rank)) return;     /* an earlier step asked for it */
    q->at.operand = k;
    for (int i = 0; i < o->rank; i++) {
        const int label = o->label[i];
        if (label < 0 || b->extent[label] == 1) continue;
        for (j = 0; j < q->count && q->label[j] != label; j++) {}
        if (j == q->count) {
            q->label[q->count] = label;
            q->stride[q->count++] = 0;
        }
        q->stride[j] += o->strides[i];
    }
    tni_sort_piece(q);
    for (int i = 0; i < q->count; i++) if (tni_set_has(legs, q->label[i])) b->order[n++] = q->label[i];
    if (n == q->count) {
        if (last) tni_build_result(b, q, k);
        return;
    }
    tni_layout all = *q;
    for (int i = 0; i < q->count; i++) s[1][q->label[i]] = 0;
    tni_strides_of(q, s[0]);
    if (last) tni_strides_of(&b->result, s[1]);
    else tni_plan_strides(b, n, b->order, s[1]);
    tni_fuse(b, q->count, q->label, 2, s, v);
    tni_move *m = tni_emit(b, TN_KERNEL_SUM, k, last, &all, NULL, v, &v[1], tni_elements(b, n, b->order));
    if (m) tni_layout_set(b, q, m, n, b->order);
}
#endif /* TN_NO_CONTRACTION */
