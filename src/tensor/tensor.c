#include "core/inner.h"
#include "tensor/inner.h"

/* ======================================================================
   >>tensor-impl  headers, views, copies to and from the host
   The header of a tensor is on the host, its bytes are memory of the backend. Arena tensors are linked newest first,
   so that a release can find those made after the mark; owned tensors have a list of their own. A view has a
   base and no bytes.
   ====================================================================== */

/* Writes the zeros that a marked gradient, or a view of one, counts as (TNI_ZEROED). The mark stays. */
TNI_FN tn_status tni_settle(const tn_tensor *t)
{
    const tn_tensor *root = tni_root(t);
    if (!(root->flags & TNI_ZEROED)) return TN_OK;
    tn_call c = TNI_ZERO;
    c.kernel = TN_KERNEL_FILL;
    c.n_out = 1;
    c.out[0].data = root->data;
    c.out[0].dtype = root->dtype;
    c.out[0].rank = 1;
    c.out[0].shape[0] = (int64_t)(root->bytes / tni_dtype_size(root->dtype));
    c.out[0].strides[0] = 1;
    return tni_run(t->ctx, &c);
}

/* Checks an operand of an op: it is alive and of this context. `what` is its name in the message. */
TNI_FN bool tni_usable(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what)
{
    if (!ctx) return false;
    if (!t) tni_fail(ctx, TN_ERR_ARG, "%s: %s is NULL", op, what);
    else if (t->alive != TNI_ALIVE) tni_fail(ctx, TN_ERR_ARG, "%s: %s is a tensor of an arena that was reset", op, what);
    else if (t->ctx != ctx) tni_fail(ctx, TN_ERR_ARG, "%s: %s belongs to another context", op, what);
    else return tni_settle(t) == TN_OK;
    return false;
}

TNI_FN bool tni_rank_fits(tn_ctx *ctx, const char *op, int rank, const int64_t *shape)
{
    if (rank < 0 || rank > TN_MAX_RANK)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: rank is %d, expected 0 to %d", op, rank, TN_MAX_RANK), false;
    if (rank == 0 || shape) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: shape is NULL, expected %d extents", op, rank), false;
}

/* The bytes of any shape; false with an error if it is not valid or does not fit the address space. */
TNI_FN bool tni_shape_bytes(tn_ctx *ctx, const char *op, tn_dtype dtype, int rank, const int64_t *shape, size_t *bytes)
{
    if (!tni_rank_fits(ctx, op, rank, shape)) return false;
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0)
            return tni_fail(ctx, TN_ERR_SHAPE, "%s: extent %d of %s is negative, expected 0 or more", op, i,
                            tni_shape_of(rank, shape).s), false;
    if (tni_extents_fit(dtype, rank, shape, bytes)) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s %s does not fit the address space", op, tn_dtype_name(dtype),
                    tni_shape_of(rank, shape).s), false;
}

/* Copies a shape, with the strides of contiguous elements. */
TNI_FN void tni_shape_to(int rank, const int64_t *shape, int64_t *to, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        to[i] = shape[i];
        strides[i] = stride;
        stride *= tni_max(shape[i], 1);
    }
}

TNI_FN void tni_fill_header(tn_tensor *t, tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    tni_clear(t, sizeof *t);
    t->ctx = ctx;
    t->alive = TNI_ALIVE;
    t->dtype = dtype;
    t->rank = rank;
    tni_shape_to(rank, shape, t->shape, t->strides);
}

TNI_FN bool tni_dtype_known(tn_ctx *ctx, const char *op, const char *what, tn_dtype *dtype)
{
    if (*dtype == TN_REAL) *dtype = ctx->desc.dtype;
    if (*dtype >= TN_F32 && *dtype <= TN_I32) return true;
    return tni_fail(ctx, TN_ERR_DTYPE, "%s: %s is %d, expected %d to %d", op, what, (int)*dtype, (int)TN_REAL, (int)TN_I32),
           false;
}

/* A header without bytes, in the arena. */
TNI_FN tn_tensor *tni_header(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    tn_tensor *t = (tn_tensor *)tni_arena_take(ctx, &ctx->heads[ctx->head], sizeof *t);
    if (!t) return NULL;
    tni_fill_header(t, ctx, dtype, rank, shape);
    t->prev = ctx->arena_tensors;
    ctx->arena_tensors = t;
    return t;
}

tn_tensor *tn_tensor_nd(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    size_t bytes;
    if (!ctx || !tni_dtype_known(ctx, "tensor", "dtype", &dtype)) return NULL;
    if (!tni_shape_bytes(ctx, "tensor", dtype, rank, shape, &bytes)) return NULL;
    void      *data = tni_arena_take(ctx, &ctx->data[ctx->aside], bytes ? bytes : 1);
    tn_tensor *t = data ? tni_header(ctx, dtype, rank, shape) : NULL;
    if (!t) return NULL;
    t->data = data;
    t->bytes = bytes;
    return t;
}

tn_tensor *tn_tensor_1d(tn_ctx *ctx, tn_dtype dtype, int64_t n) { return tn_tensor_nd(ctx, dtype, 1, &n); }

tn_tensor *tn_tensor_2d(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m)
{
    return tn_tensor_nd(ctx, dtype, 2, TNI_DIMS(n, m));
}

tn_tensor *tn_tensor_3d(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m, int64_t k)
{
    return tn_tensor_nd(ctx, dtype, 3, TNI_DIMS(n, m, k));
}

/* ---- views, and kernel calls with them ---------------------------------- >>tensor-calls */

/* Writes where the view is needed: a small prediction spends a third of its time on calls and views that are copied. */
TNI_NOINLINE TNI_FN void tni_view_to(tn_view *v, const tn_tensor *t)
{
    if (!t) { tni_clear(v, sizeof *v); return; }
    v->data = t->data;
    v->dtype = t->dtype;
    v->rank = t->rank;
    memcpy(v->shape, t->shape, sizeof v->shape);
    memcpy(v->strides, t->strides, sizeof v->strides);
}

/* A view of contiguous elements in another shape. */
TNI_FN void tni_view_shape(tn_view *v, int rank, const int64_t *shape)
{
    v->rank = rank;
    tni_shape_to(rank, shape, v->shape, v->strides);
}

TNI_FN tn_view tni_view(const tn_tensor *t)
{
    tn_view v;
    tni_view_to(&v, t);
    return v;
}

/* A contiguous tensor as rows x columns: all but the last axis are rows. */
static void tni_rows_to(tn_view *v, const tn_tensor *t)
{
    int64_t columns = t->rank > 0 ? t->shape[t->rank - 1] : 1, rows = 1;
    for (int i = 0; i + 1 < t->rank; i++) rows *= t->shape[i];
    tni_view_to(v, t);
    v->rank = 2;
    v->shape[0] = rows;
    v->shape[1] = columns;
    v->strides[0] = columns;
    v->strides[1] = 1;
}

TNI_FN tn_view tni_rows_view(const tn_tensor *t)
{
    tn_view v;
    tni_rows_to(&v, t);
    return v;
}

static void tni_flat_to(tn_view *v, const tn_tensor *t)         /* a contiguous tensor as one axis */
{
    tni_view_to(v, t);
    v->rank = 1;
    v->shape[0] = tn_tensor_count(t);
    v->strides[0] = 1;
}

TNI_FN tn_view tni_flat_view(const tn_tensor *t)
{
    tn_view v;
    tni_flat_to(&v, t);
    return v;
}

/* A call on tensors: of each a letter, "t" as it is, "r" as rows x columns, "f" as one axis; those after ":" are outputs. With
   "t" NULL is an absent operand. */
TNI_FN tn_call tni_call(tn_kernel kernel, const char *operands, ...)
{
    tn_call c;
    va_list args;
    bool    in = true;
    tni_call_begin(&c, kernel);
    va_start(args, operands);
    for (; *operands; operands++) {
        if (*operands == ':') { in = false; continue; }
        const tn_tensor *t = va_arg(args, const tn_tensor *);
        tn_view         *v = in ? &c.in[c.n_in++] : &c.out[c.n_out++];
        if (*operands == 't') tni_view_to(v, t);
        else if (*operands == 'r') tni_rows_to(v, t);
        else tni_flat_to(v, t);
    }
    va_end(args);
    return c;
}

/* Appends an operand; a NULL tensor is an absent one. */
TNI_FN void tni_in(tn_call *c, const tn_tensor *t)  { tni_view_to(&c->in[c->n_in++], t); }
TNI_FN void tni_out(tn_call *c, const tn_tensor *t) { tni_view_to(&c->out[c->n_out++], t); }
TNI_NOINLINE TNI_FN void tni_in_rows(tn_call *c, const tn_tensor *t)  { tni_rows_to(&c->in[c->n_in++], t); }
TNI_NOINLINE TNI_FN void tni_out_rows(tn_call *c, const tn_tensor *t) { tni_rows_to(&c->out[c->n_out++], t); }
TNI_NOINLINE TNI_FN void tni_in_flat(tn_call *c, const tn_tensor *t)  { tni_flat_to(&c->in[c->n_in++], t); }
TNI_NOINLINE TNI_FN void tni_out_flat(tn_call *c, const tn_tensor *t) { tni_flat_to(&c->out[c->n_out++], t); }

TNI_FN tn_status tni_fill(tn_tensor *t, double value)
{
    tn_call c = tni_call(TN_KERNEL_FILL, ":t", t);
    c.f[0] = value;
    return tni_run(t->ctx, &c);
}

TNI_FN tn_status tni_copy(tn_tensor *to, const tn_tensor *from)          /* same shape, any strides, any dtypes */
{
    tn_call c = tni_call(TN_KERNEL_COPY, "t:t", from, to);
    return tni_run(to->ctx, &c);
}

/* An owned tensor; `what` is its name in an out-of-memory message. */
TNI_FN tn_tensor *tni_tensor_create(tn_ctx *ctx, const char *what, tn_dtype dtype, int rank, const int64_t *shape)
{
    size_t bytes;
    if (!ctx || !tni_dtype_known(ctx, "tensor", "dtype", &dtype)) return NULL;
    if (!tni_shape_bytes(ctx, "tensor", dtype, rank, shape, &bytes)) return NULL;
    tn_tensor *t = (tn_tensor *)tni_alloc(ctx, sizeof *t, what);
    if (!t) return NULL;
    tni_fill_header(t, ctx, dtype, rank, shape);
    t->flags = TNI_OWNED;
    t->bytes = bytes;
    t->data = tni_device_alloc(ctx, bytes, what);
    if (!t->data) {
        tni_free(ctx, t, sizeof *t);
        return NULL;
    }
    t->next = ctx->owned_tensors;
    if (t->next) t->next->prev = t;
    ctx->owned_tensors = t;
    if (tni_fill(t, 0) != TN_OK) {
        tn_tensor_destroy(t);
        return NULL;
    }
    return t;
}

tn_tensor *tn_tensor_create(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    return tni_tensor_create(ctx, "tensor", dtype, rank, shape);
}

TNI_FN void tni_compact_drop(tn_ctx *ctx, tni_compact *c)
{
    if (!c) return;
    tni_device_free(ctx, c->data, c->bytes);
    tni_free(ctx, c, sizeof *c);
}

/* t's numbers are replaced: a gradient does not count as zeros any more, and a compact copy or a shadow is out of date. The
   memory of a shadow stays, since graphs may use it. */
TNI_FN void tni_rewritten(tn_tensor *t)
{
    tn_tensor *root = t->base ? t->base : t;
    root->flags &= ~(uint32_t)(TNI_ZEROED | TNI_SENT);
    if (root->compact && root->compact->shadow) root->compact->stale = true;
    else {
        tni_compact_drop(root->ctx, root->compact);
        root->compact = NULL;
    }
}

void tn_tensor_destroy(tn_tensor *t)
{
    tn_ctx *ctx;
    if (!tni_alive(t) || !(t->flags & TNI_OWNED)) return;
    ctx = t->ctx;
#ifndef TN_NO_TRAINING
    if (t->flags & TNI_GRAPHED) tni_graphs_lose(ctx, t, "was destroyed");
#endif
    if (ctx->tape || ctx->waiting) {
        if (!(t->flags & TNI_DOOMED)) ctx->doomed++;
        t->flags |= TNI_DOOMED;
        ctx->params_doomed = ctx->params_doomed || (t->flags & TNI_PARAM);
        return;
    }
    tn_tensor_destroy(t->grad);
    ctx->doomed -= (t->flags & TNI_DOOMED) != 0;
    if (t->prev) t->prev->next = t->next;
    else ctx->owned_tensors = t->next;
    if (t->next) t->next->prev = t->prev;
    tni_compact_drop(ctx, t->compact);
    tni_device_free(ctx, t->data, t->bytes);
    t->alive = 0;
    tni_free(ctx, t, sizeof *t);
}

/* Returns the finished tensor, or destroys it where s is an error. */
TNI_UNUSED TNI_FN tn_tensor *tni_tensor_done(tn_tensor *t, tn_status s)
{
    if (s == TN_OK) return t;
    return tn_tensor_destroy(t), (tn_tensor *)NULL;
}

/* Destroys the `count` tensors of a result, which lie side by side from byte `first` on, and clears it. */
TNI_UNUSED TNI_FN void tni_result_end(void *result, size_t bytes, size_t first, int count)
{
    tn_tensor *t;
    if (!result) return;
    for (int k = 0; k < count; k++) {
        memcpy(&t, (char *)result + first + (size_t)k * sizeof t, sizeof t);
        tn_tensor_destroy(t);
    }
    memset(result, 0, bytes);
}

tn_tensor *tn_tensor_keep(const tn_tensor *t)
{
    if (!tni_alive(t)) return NULL;
    tn_tensor *kept = tn_tensor_create(t->ctx, t->dtype, t->rank, t->shape);
    if (kept && (tni_settle(t) != TN_OK || tni_copy(kept, t) != TN_OK)) {
        tn_tensor_destroy(kept);
        return NULL;
    }
    return kept;
}

/* Removes all nodes, and frees what was destroyed meanwhile. Results are constants from now on, so their TNI_WANTS_GRAD is
   cleared. */
TNI_FN void tni_tape_clear(tn_ctx *ctx)
{
    tn_tensor *next;
    for (const tni_node *n = ctx->tape; n; n = n->before)
        if (!(n->out->flags & TNI_WATCHED)) n->out->flags &= ~(uint32_t)TNI_WANTS_GRAD;
    ctx->tape = ctx->waiting = NULL;
    ctx->idle = NULL;
    ctx->recording = false;
    ctx->params_doomed = false;
    for (tn_tensor *t = ctx->owned_tensors; ctx->doomed > 0; t = next) {
        if (t->flags & TNI_DOOMED) {                         /* before `next`, which its gradient might be */
            tn_tensor_destroy(t->grad);
            t->grad = NULL;
        }
        next = t->next;
        if (t->flags & TNI_DOOMED) tn_tensor_destroy(t);
    }
}

/* ---- reset and marks ---------------------------------------------------- >>tensor-reset */

/* Marks the removed headers as dead, so that later uses of them are reported. With TN_DEBUG they stay readable
   until the next reset, and their data is filled with NaN. */
static void tni_bury(tn_ctx *ctx, const tn_tensor *until)
{
    for (; ctx->arena_tensors && ctx->arena_tensors != until; ctx->arena_tensors = ctx->arena_tensors->prev) {
#ifdef TN_DEBUG
        tn_tensor *t = ctx->arena_tensors;
        if (t->bytes > 0 && t->dtype != TN_I32) tni_fill(t, (double)NAN);
#endif
        ctx->arena_tensors->alive = 0;
    }
}

void tn_ctx_reset(tn_ctx *ctx)
{
    if (!ctx || !tni_not_aside(ctx, "reset") || !TNI_ENTER(ctx, "reset")) return;
    tni_tape_clear(ctx);
    tni_bury(ctx, NULL);
    ctx->resets++;
#ifdef TN_DEBUG
    ctx->head ^= 1;
#endif
    ctx->heads[ctx->head].at = ctx->heads[ctx->head].used = 0;
    ctx->data[0].at = ctx->data[0].used = ctx->data[1].at = ctx->data[1].used = 0;
    if (ctx->calls > 0) {                /* advance the clock: the next step counts its random calls from zero */
        tn_call c = tni_call(TN_KERNEL_TICK, ":t", ctx->clock);
        c.i[0] = 1;
        tni_run(ctx, &c);
        ctx->calls = 0;
    }
    TNI_LEAVE(ctx);
}

void tn_ctx_seed(tn_ctx *ctx, uint64_t seed)
{
    if (!ctx || !tni_uncaptured(ctx, "the random seed is set")) return;
    ctx->desc.seed = seed;
    ctx->calls = 0;
    tni_fill(ctx->clock, 0);
}

/* A mark is valid until the next reset, and only inside or only outside a tn_recompute, where it was made. */
static uint64_t tni_mark_age(const tn_ctx *ctx) { return 2 * ctx->resets + (uint64_t)ctx->aside; }

tn_mark tn_arena_mark(const tn_ctx *ctx)
{
    tn_mark m = TNI_ZERO;
    if (!ctx) return m;
    m.head_block = ctx->heads[ctx->head].at;
    m.head_used = ctx->heads[ctx->head].used;
    m.data_block = ctx->data[ctx->aside].at;
    m.data_used = ctx->data[ctx->aside].used;
    m.resets = tni_mark_age(ctx);
    return m;
}

/* Releases all tensors made after the mark; `newest` is the last header before it. Older tensors lose gradients that were
   made after it: returns the last such tensor, or NULL. */
TNI_FN tn_tensor *tni_arena_back(tn_ctx *ctx, tn_mark m, tn_tensor *newest)
{
    tni_arena *heads = &ctx->heads[ctx->head], *data = &ctx->data[ctx->aside];
    tn_tensor *bereft = NULL;
    tni_bury(ctx, newest);
    for (tn_tensor *t = newest; t; t = t->prev)
        if (t->grad && !tni_alive(t->grad)) {
            t->grad = NULL;
            t->flags &= ~(uint32_t)TNI_GRAD_USED;
            bereft = t;
        }
    heads->at = m.head_block;
    heads->used = m.head_used;
    data->at = m.data_block;
    data->used = m.data_used;
    return bereft;
}

tn_status tn_arena_release(tn_ctx *ctx, tn_mark m)
{
    tn_tensor *t;
    if (!ctx) return TN_ERR_ARG;
    tni_arena *heads = &ctx->heads[ctx->head];
    if (ctx->tape) return tni_fail(ctx, TN_ERR_ARG, "arena_release: the tape still needs the tensors made after the mark");
    if (m.resets != tni_mark_age(ctx) || m.head_block > heads->at
        || (m.head_block == heads->at && m.head_used > heads->used))
        return tni_fail(ctx, TN_ERR_ARG, "arena_release: the mark is not valid, expected one made since the last reset, "
                        "on this side of tn_recompute");
    for (t = ctx->arena_tensors; t; t = t->prev) {          /* the newest header that the mark keeps */
        size_t b = m.head_block;
        bool   kept = false;
        if (b < heads->blocks) kept = (char *)t >= heads->block[b].p && (char *)t < heads->block[b].p + m.head_used;
        while (!kept && b-- > 0)
            kept = (char *)t >= heads->block[b].p && (char *)t < heads->block[b].p + heads->block[b].bytes;
        if (kept) break;
    }
    tni_arena_back(ctx, m, t);
    ctx->idle = NULL;
    return TN_OK;
}
