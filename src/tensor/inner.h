#pragma once
#include "core/inner.h"
#include "tensor/tensor.h"

static inline bool tni_alive(const tn_tensor *t) { return t && t->alive == TNI_ALIVE; }

/* Ops take the context's dtype and that of its activations. */
static inline bool tni_computes(const tn_ctx *ctx, tn_dtype dtype)
{
    return dtype == ctx->desc.dtype || dtype == ctx->desc.activations;
}

/* A view asks its base, which may have been watched or frozen after the view was made. */
static inline bool tni_wants_grad(const tn_tensor *t) { return t && (tni_root(t)->flags & TNI_WANTS_GRAD) != 0; }

/* A call without operands */
static inline void tni_call_begin(tn_call *c, tn_kernel kernel)
{
    tni_clear(c, sizeof *c);
    c->kernel = kernel;
}

/* The compact copy of a matrix, see >>compact: words of 32 bits, `words` per row, and then, for INT8, a scale per row. Or its
   shadow, see >>shadow: the same elements in BF16; kind is then TN_WEIGHT_F32. */
typedef struct tni_compact {
    tn_weight_kind kind;
    int64_t    rows, words;
    void      *data;
    size_t     bytes;
    bool       shadow, stale;           /* stale: the elements are not those of the matrix */
    bool       was_stale;               /* when the capture began                          */
} tni_compact;

typedef struct tni_found { double value; int64_t at; } tni_found;
typedef struct tni_heap { tn_order order; int64_t held, k; tni_found *found; } tni_heap;

static inline bool tni_same_shape(const tn_tensor *a, const tn_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->rank) == 0;
}

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* tensor.c */
TNI_FN tn_status tni_settle(const tn_tensor *t);
TNI_FN bool tni_usable(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what);
TNI_FN bool tni_rank_fits(tn_ctx *ctx, const char *op, int rank, const int64_t *shape);
TNI_FN bool tni_shape_bytes(tn_ctx *ctx, const char *op, tn_dtype dtype, int rank, const int64_t *shape, size_t *bytes);
TNI_FN void tni_shape_to(int rank, const int64_t *shape, int64_t *to, int64_t *strides);
TNI_FN void tni_view_shape(tn_view *v, int rank, const int64_t *shape);
TNI_FN void tni_fill_header(tn_tensor *t, tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape);
TNI_FN bool tni_dtype_known(tn_ctx *ctx, const char *op, const char *what, tn_dtype *dtype);
TNI_FN tn_tensor *tni_header(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape);
TNI_NOINLINE TNI_FN void tni_view_to(tn_view *v, const tn_tensor *t);
TNI_FN tn_view tni_view(const tn_tensor *t);
TNI_FN tn_view tni_rows_view(const tn_tensor *t);
TNI_FN tn_view tni_flat_view(const tn_tensor *t);
TNI_FN tn_call tni_call(tn_kernel kernel, const char *operands, ...);
TNI_FN void tni_in(tn_call *c, const tn_tensor *t);
TNI_FN void tni_out(tn_call *c, const tn_tensor *t);
TNI_NOINLINE TNI_FN void tni_in_rows(tn_call *c, const tn_tensor *t);
TNI_NOINLINE TNI_FN void tni_out_rows(tn_call *c, const tn_tensor *t);
TNI_NOINLINE TNI_FN void tni_in_flat(tn_call *c, const tn_tensor *t);
TNI_NOINLINE TNI_FN void tni_out_flat(tn_call *c, const tn_tensor *t);
TNI_FN tn_status tni_fill(tn_tensor *t, double value);
TNI_FN tn_status tni_copy(tn_tensor *to, const tn_tensor *from);
TNI_FN tn_tensor *tni_tensor_create(tn_ctx *ctx, const char *what, tn_dtype dtype, int rank, const int64_t *shape);
TNI_UNUSED TNI_FN tn_tensor *tni_tensor_done(tn_tensor *t, tn_status s);
TNI_UNUSED TNI_FN void tni_result_end(void *result, size_t bytes, size_t first, int count);
TNI_FN void tni_compact_drop(tn_ctx *ctx, tni_compact *c);
TNI_FN void tni_rewritten(tn_tensor *t);
TNI_FN void tni_tape_clear(tn_ctx *ctx);
TNI_FN tn_tensor *tni_arena_back(tn_ctx *ctx, tn_mark m, tn_tensor *newest);

/* views.c */
TNI_FN tn_tensor *tni_view_of(tn_tensor *t);
TNI_FN bool tni_axis(const tn_tensor *t, int *axis, const char *op, const char *what);
TNI_FN tni_heap tni_take_heap(tni_scratch *w, tn_order order, int64_t k);
TNI_FN void tni_heap_offer(tni_heap *h, double value, int64_t at);
TNI_FN void tni_heap_sort(tni_heap *h);
TNI_FN void tni_heap_select(tni_heap *h, const double *v, int64_t n);

/* copies.c */
TNI_FN double tni_load(const void *p, tn_dtype dtype, int64_t i);
TNI_FN void tni_store(void *p, tn_dtype dtype, int64_t i, double v);
TNI_UNUSED TNI_NOINLINE TNI_FN double *tni_take_numbers(tni_scratch *w, const tn_tensor *t);

#endif
