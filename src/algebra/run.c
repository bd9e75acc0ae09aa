#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "algebra/inner.h"

#ifndef TN_NO_CONTRACTION
/* ---- running a plan ----------------------------------------------------- >>plan-run */

/* The gradient of a call's result, in the axes of the kernel. */
static tn_tensor *tni_move_grad(const tni_node *n)
{
    tn_tensor *dy = tni_view_of(n->saved[0]);
    if (dy) {
        dy->data = n->out->grad->data;
        dy->dtype = n->out->grad->dtype;
    }
    return dy;
}

static void tni_copy_move_backward(tn_ctx *ctx, const tni_node *n)
{
    const tn_tensor *dy = tni_move_grad(n);
    if (!dy) return;
    tn_call c = tni_call(TN_KERNEL_ADD, "");
    c.in[c.n_in++] = tni_expand_view(tni_view(dy), dy->rank, n->in[0]->shape);     /* of a sum: repeated */
    c.f[0] = 1;
    tni_run_grad(ctx, &c, n->in[0], 't');
}

static void tni_mul_move_backward(tn_ctx *ctx, const tni_node *n)
{
    const tn_tensor *dy = tni_move_grad(n);
    if (!dy) return;
    tni_mul_grad(ctx, TN_KERNEL_MUL, n->in[0], n->in[1], dy, 1);
    tni_mul_grad(ctx, TN_KERNEL_MUL, n->in[1], n->in[0], dy, 1);
}

static void tni_gemm_move_backward(tn_ctx *ctx, const tni_node *n)
{
    const tn_tensor *dy = tni_move_grad(n);
    for (int k = 0; dy && k < 2; k++) {
        bool       add;
        tn_tensor *g = tni_grad(n->in[k], &add);
        if (!g) continue;
        tn_view other = tni_transposed_view(tni_view(n->in[k ^ 1]));
        tni_gemm(ctx, k == 0 ? tni_view(dy) : other, k == 0 ? other : tni_view(dy), NULL, tni_view(g), 1, add ? 1 : 0);
    }
}

/* The tensors of a run. */
typedef struct tni_run_of {
    const tn_plan *p;
    tn_tensor *const *operand;
    tn_tensor     *y, *workspace;       /* one for all slices; none while recording */
    size_t         room;                /* bytes of the workspace */
    int64_t       *at;                  /* elements before the slice, in each operand; then in the result */
    bool           add;                 /* to what earlier slices have written */
} tni_run_of;

static tn_view tni_source_view(const tni_run_of *r, const tni_source *s)
{
    tn_view          v = s->view;
    const tn_tensor *t = !s->from ? r->operand[s->operand] : r->workspace ? r->workspace : s->from->made;
    const int64_t    bytes = !s->from ? r->at[s->operand] * (int64_t)tni_dtype_size(t->dtype)
                             : r->workspace ? (int64_t)s->from->offset : 0;
    v.dtype = t->dtype;
    v.data = (char *)t->data + bytes;
    return v;
}

/* A header with the axes of the kernel, for the tape. */
static tn_tensor *tni_source_header(tn_tensor *t, const tn_view *v)
{
    tn_tensor *h = tni_view_of(t);
    if (!h) return NULL;
    h->rank = v->rank;
    memcpy(h->shape, v->shape, sizeof h->shape);
    memcpy(h->strides, v->strides, sizeof h->strides);
    h->data = v->data;
    return h;
}

static bool tni_move_note(const tni_run_of *r, tni_move *m, const tn_call *c, tn_tensor *y)
{
    tn_ctx         *ctx = r->p->ctx;
    tni_backward_fn back = m->kernel == TN_KERNEL_GEMM ? tni_gemm_move_backward
                           : m->kernel == TN_KERNEL_MUL ? tni_mul_move_backward : tni_copy_move_backward;
    tn_tensor      *in[2] = {NULL, NULL};
    tn_view         view[2];
    bool            wants = false;
    for (int k = 0; k < m->n_in; k++) {
        in[k] = m->in[k].from ? m->in[k].from->made : r->operand[m->in[k].operand];
        wants = wants || tni_wants_grad(in[k]);
        view[k] = tni_source_view(r, &m->in[k]);
    }
    if (!wants) return true;
    for (int k = 0; k < m->n_in; k++) if (!(in[k] = tni_source_header(in[k], &view[k]))) return false;
    tni_node *node = tni_note(ctx, back, y, in[0], in[1], NULL);
    if (!node) return false;
    return (node->saved[0] = tni_source_header(y, &c->out[0])) != NULL;
}

static tn_status tni_move_run(const tni_run_of *r, tni_move *m)
{
    tn_ctx    *ctx = r->p->ctx;
    tn_call    c = tni_call(m->kernel, "");
    tn_tensor *y = m->last ? r->y : r->workspace;
    int64_t    bytes = r->workspace ? (int64_t)m->offset : 0;
    if (!m->last && !y) y = m->made = tn_tensor_1d(ctx, TN_REAL, m->count);
    if (!y) return TN_ERR_MEMORY;
    if (m->last) bytes = r->at[r->p->n] * (int64_t)tni_dtype_size(y->dtype);
    c.out[c.n_out++] = m->out;
    c.out[0].dtype = y->dtype;
    c.out[0].data = (char *)y->data + bytes;
    for (int k = 0; k < m->n_in; k++) {
        c.in[k] = tni_source_view(r, &m->in[k]);
        if (m->kernel == TN_KERNEL_MUL) c.in[k] = tni_expand_view(c.in[k], m->out.rank, m->out.shape);
    }
    c.n_in = m->n_in;
    c.f[0] = 1;
    if (m->last && r->add) {
        if (m->kernel == TN_KERNEL_COPY) c.kernel = TN_KERNEL_ADD;
        if (m->kernel == TN_KERNEL_GEMM) c.f[1] = 1;
        else c.accumulate = true;
    }
    tn_status s = tni_run(ctx, &c);
    if (s == TN_OK && tni_recording(ctx) && !r->workspace && !tni_move_note(r, m, &c, y)) s = TN_ERR_MEMORY;
    return s;
}

/* Runs the calls of a slice. */
static tn_status tni_program_run(tni_run_of *r, const tni_program *g, bool recorded)
{
    const tn_plan *p = r->p;
    tn_ctx        *ctx = p->ctx;
    tn_status      s = TN_OK;
    const tn_mark  mark = tn_arena_mark(ctx);
    for (tni_move *m = g->first; m && s == TN_OK; m = m->next) {
        double began = 0;
        if (p->desc.clock) {
            tn_ctx_sync(ctx);
            began = p->desc.clock();
        }
        s = tni_move_run(r, m);
        if (p->desc.clock) {
            tn_ctx_sync(ctx);
            p->seconds[m->node] += p->desc.clock() - began;
        }
    }
    if (!recorded && !ctx->tape) tn_arena_release(ctx, mark);
    return s;
}

/* The first index of the slice along each label; false after the last slice. */
static bool tni_slice_next(const tn_plan *p, int64_t *from)
{
    for (int i = p->labels - 1; i >= 0; i--) {
        if (p->part[i] == p->extent[i]) continue;
        from[i] += p->part[i];
        if (from[i] < p->extent[i]) return true;
        from[i] = 0;
    }
    return false;
}

static int64_t tni_slice_offset(const tni_subscript *o, const int64_t *from)
{
    int64_t at = 0;
    for (int i = 0; i < o->rank; i++) if (o->label[i] >= 0) at += from[o->label[i]] * o->strides[i];
    return at;
}

/* The labels of the largest buffer; NULL without any. */
TNI_FN const uint64_t *tni_program_largest(const tni_program *g)
{
    const tni_move *most = NULL;
    for (const tni_move *m = g->first; m; m = m->next) if (m->labels && (!most || m->bytes > most->bytes)) most = m;
    return most ? most->labels : NULL;
}

TNI_FN tn_status tni_plan_too_large(const tn_plan *p, const tni_program *g)
{
    return tni_fail(p->ctx, TN_ERR_MEMORY, "%s: intermediate results of %zu bytes, the least that slicing gives, expected "
                    "at most max_bytes = %zu", p->op, g->bytes, p->desc.max_bytes);
}

/* Runs the slice that begins at `from` by the program g, or if that is NULL by one that is made for its extents. If this
   needs more than the workspace, because operands that are not contiguous are copied or because of its extents, its two
   halves along the longest label of the largest buffer are run instead. */
static tn_status tni_plan_slice(tn_plan *p, tni_run_of *r, tni_scratch *room, const tni_program *g, int64_t *from,
                                int64_t *extent)
{
    const tn_mark mark = tn_arena_mark(p->ctx);
    const bool    made = !g;
    tn_status     s = TN_ERR_MEMORY;
    int           longest = -1;
    if (made) g = tni_plan_program(p, room, extent, false);
    if (g && g->bytes > r->room) {
        const uint64_t *largest = tni_program_largest(g);
        for (int i = 0; i < p->labels; i++)
            if (largest && tni_set_has(largest, i) && extent[i] > (longest < 0 ? 1 : extent[longest])) longest = i;
        if (longest < 0) s = tni_plan_too_large(p, g);
        else {
            const int64_t whole = extent[longest], half = whole / 2;
            extent[longest] = half;
            s = tni_plan_slice(p, r, room, NULL, from, extent);
            from[longest] += half;
            extent[longest] = whole - half;
            if (s == TN_OK) s = tni_plan_slice(p, r, room, NULL, from, extent);
            from[longest] -= half;
            extent[longest] = whole;
        }
    } else if (g) {
        r->add = false;
        for (int i = 0; i < p->labels; i++) if (from[i] > 0 && !tni_set_has(p->keep, i)) r->add = true;
        for (int i = 0; i <= p->n; i++) r->at[i] = tni_slice_offset(i < p->n ? &p->operand[i] : &p->out, from);
        s = tni_program_run(r, g, false);
    }
    if (made && !p->ctx->tape) tn_arena_release(p->ctx, mark);    /* the program is not kept */
    return s;
}

/* Runs all slices; y has the plan's shape. Slices at the ends of labels are smaller: the program of the last one is kept. */
static tn_status tni_plan_slices(tn_plan *p, tni_run_of *r, tni_scratch *room, const tni_program *g)
{
    const int64_t      labels = p->labels + 1;
    int64_t           *from = (int64_t *)tni_take_zeroed(room, labels, sizeof *from);
    int64_t           *extent = (int64_t *)tni_take_zeroed(room, labels, sizeof *extent);
    int64_t           *last = (int64_t *)tni_take_zeroed(room, labels, sizeof *last);
    const tni_program *kept = NULL;
    const tn_mark      mark = tn_arena_mark(p->ctx);
    tn_status          s = TN_OK;
    if (room->failed) return TN_ERR_MEMORY;
    do {
        bool whole = true;
        for (int i = 0; i < p->labels; i++) {
            extent[i] = tni_min(p->part[i], p->extent[i] - from[i]);
            whole = whole && extent[i] == p->part[i];
        }
        if (!whole && (!kept || memcmp(last, extent, (size_t)labels * sizeof *last) != 0)) {
            if (!p->ctx->tape) tn_arena_release(p->ctx, mark);
            memcpy(last, extent, (size_t)labels * sizeof *last);
            if (!(kept = tni_plan_program(p, room, extent, false))) return TN_ERR_MEMORY;
        }
        s = tni_plan_slice(p, r, room, whole ? g : kept, from, extent);
    } while (s == TN_OK && tni_slice_next(p, from));
    return s;
}

/* Checks the operands and stores their strides; *same: all are contiguous, as in the plan's program. */
TNI_FN bool tni_plan_takes(tn_plan *p, tn_tensor *const *t, bool *same)
{
    char what[32];
    *same = true;
    for (int k = 0; k < p->n; k++) {
        tni_subscript *o = &p->operand[k];
        tni_shape_to(o->rank, o->shape, o->shape, o->strides);
        tni_print(what, sizeof what, "operand %d", k);
        if (!tni_is_real(p->ctx, t[k], p->op, what)) return false;
        if (t[k]->rank != o->rank || memcmp(t[k]->shape, o->shape, sizeof *o->shape * (size_t)o->rank) != 0)
            return tni_fail(p->ctx, TN_ERR_SHAPE, "%s: operand %d is %s, expected %s as in the plan", p->op, k, TNI_SHAPE(t[k]),
                            tni_shape_of(o->rank, o->shape).s), false;
        for (int i = 0; i < o->rank; i++) {
            if (o->label[i] >= 0 && o->strides[i] != t[k]->strides[i]) *same = false;
            o->strides[i] = t[k]->strides[i];
        }
    }
    return true;
}

TNI_FN tn_tensor *tni_plan_result(tn_plan *p, tn_tensor *const *t, const tni_program *g)
{
    tn_ctx    *ctx = p->ctx;
    bool       recorded = false, sliced = false;
    tn_tensor *y = tni_made(ctx, p->out.rank, p->out.shape), *wide = NULL;
    tn_mark    mark = tn_arena_mark(ctx);
    tni_scratch room = tni_scratch_begin(ctx, p->op);
    tni_run_of r = TNI_ZERO;
    tn_status  s = TN_ERR_MEMORY;
    if (!y) return NULL;
    room.arena = true;
    r.p = p;
    r.operand = t;
    r.y = y;
    r.at = (int64_t *)tni_take_zeroed(&room, p->n + 1, sizeof *r.at);
    for (int k = 0; k < p->n; k++) recorded = recorded || (tni_recording(ctx) && tni_wants_grad(t[k]));
    for (int k = 0; k < p->labels; k++) sliced = sliced || p->part[k] != p->extent[k];
    if (!g || (recorded && (sliced || g->in_place)))
        g = tni_plan_program(p, &room, recorded ? p->extent : p->part, recorded);
    r.room = g ? g->bytes : 0;
    if (p->desc.max_bytes > 0 && r.room > p->desc.max_bytes) {                 /* copies that the plan does not have */
        r.room = p->desc.max_bytes;
        sliced = true;
    }
    if (sliced && !recorded && y->dtype != ctx->desc.dtype) r.y = wide = tn_tensor_nd(ctx, TN_REAL, y->rank, y->shape);
    if (!recorded) r.workspace = tn_tensor_1d(ctx, TN_REAL, (int64_t)(r.room / tni_dtype_size(ctx->desc.dtype)));
    if (g && r.at && r.y && (recorded || r.workspace))
        s = recorded ? tni_program_run(&r, g, true) : tni_plan_slices(p, &r, &room, g);
    if (s == TN_OK && wide) s = tni_copy(y, wide);
    if (!recorded && !ctx->tape) tn_arena_release(ctx, mark);
    if (p->desc.clock) p->runs++;
    return s == TN_OK ? y : NULL;
}

#endif /* TN_NO_CONTRACTION */
