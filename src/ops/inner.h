#pragma once
#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"

static inline tn_tensor *tni_like(tn_ctx *ctx, const tn_tensor *t) { return tn_tensor_nd(ctx, t->dtype, t->rank, t->shape); }

/* The result of an op, with the dtype of activations. A single number (rank 0: a loss, a mean) has the context's dtype, as
   have tensors made with TN_REAL: norms, log-sum-exps, states, workspaces. */
static inline tn_tensor *tni_made(tn_ctx *ctx, int rank, const int64_t *shape)
{
    return tn_tensor_nd(ctx, rank == 0 ? ctx->desc.dtype : ctx->made, rank, shape);
}

/* The result of an op that moves numbers of this dtype without rounding: F32 stays F32, and I32 stays I32. */
static inline tn_tensor *tni_made_of(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape)
{
    return dtype == TN_BF16 ? tni_made(ctx, rank, shape) : tn_tensor_nd(ctx, dtype, rank, shape);
}

/* Visits views of one shape row by row: the offsets of up to four operands, and their strides along a row. */
typedef struct tni_walk {
    int     rank, views;
    int64_t inner, shape[TN_MAX_RANK], at[TN_MAX_RANK];
    int64_t strides[4][TN_MAX_RANK], offset[4], step[4];
} tni_walk;

static inline bool tni_shadows(const tn_ctx *ctx)
{
    return ctx->backend->shadow > 0 && ctx->backend->fn[TN_KERNEL_GEMM]
           && (ctx->desc.activations == TN_BF16 || ctx->desc.gemm_precision == TN_GEMM_BF16);
}

/* Whether a CROSS_ENTROPY leaves out the rows with this label. */
static inline bool tni_is_ignored(const tn_call *c, int32_t label) { return c->i[0] && label == c->i[1]; }

/* Whether t has a shadow with the elements of t. */
static inline bool tni_shadow_holds(const tn_tensor *t) { return t->compact && t->compact->shadow && !t->compact->stale; }

/* Copies the numbers of a call to a node, and back. */
static inline void tni_node_keep(tni_node *n, const tn_call *c)
{
    memcpy(n->i, c->i, sizeof n->i);
    memcpy(n->f, c->f, sizeof n->f);
}

static inline void tni_node_give(const tni_node *n, tn_call *c)
{
    memcpy(c->i, n->i, sizeof n->i);
    memcpy(c->f, n->f, sizeof n->f);
}

#ifndef TN_NO_SEQUENCES
typedef struct tni_prefixes {
    int64_t batch, n, d, states, size;          /* sites, extent of a matrix; states and elements of a state of a chain */
    bool    open, reverse;                      /* open: begins with a vector                                           */
} tni_prefixes;

enum { TNI_SCAN_LANES = 16 };                   /* groups of chains whose numbers lie side by side have at most as many */

/* Where state k of chain b is stored, and the matrix that leads to it. */
static inline int64_t tni_prefix_place(const tni_prefixes *s, int64_t b, int64_t k)
{
    return b * s->states + (s->reverse ? s->states - 1 - k : k);
}

static inline int64_t tni_prefix_site(const tni_prefixes *s, int64_t b, int64_t k)
{
    return b * s->n + (s->reverse ? s->states - 1 - k : k - s->open);
}

/* The row of head n of x [B,T,n,d]: the last axis has stride 1. */
#define TNI_ROW(x, b, t, n) ((TNI_REAL *)(x)->data + (b) * (x)->strides[0] + (t) * (x)->strides[1] + (n) * (x)->strides[2])

/* The keys [low,high) of this call that are visible to query i, and their number including the past. */
typedef struct tni_seen { int64_t low, high, n; } tni_seen;

static inline bool tni_attend_sums(const tn_call *c) { return (int)c->f[2] == TN_ROW_SCALE_SUM; }

static inline int64_t tni_attend_features(int64_t kind, int64_t d) { return kind == TN_ATTEND_SQUARED ? d * (d + 1) / 2 : d * d; }

/* Keys before this one are in the state when query i's chunk begins with i. */
static inline int64_t tni_attend_before(const tn_call *c, int64_t i)
{
    const int64_t Tq = c->in[0].shape[1], Tk = c->in[1].shape[1];
    return c->i[1] ? tni_max(Tk - Tq + i, 0) : Tk;
}
#endif /* TN_NO_SEQUENCES */

/* The factor that scales a matrix to norm 1; 0 for norms below 1e-30, where it would overflow a float. */
static inline double tni_muon_unit(double squares) { return squares > 1e-60 ? 1 / sqrt(squares) : 0; }

/* 2^63: AdamW takes larger gradients of F32 as this, because a square that overflows would stop its parameter for ever. The
   update is the same: m and sqrt(v) are proportional to a gradient that is so much larger than all others. */
#define TNI_ADAMW_LARGEST 9223372036854775808.0f

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* operands.c */
TNI_FN tn_view tni_expand_view(tn_view v, int rank, const int64_t *shape);
TNI_FN tn_view tni_pad_view(tn_view v, int rank);
TNI_FN bool tni_is_real(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what);
TNI_FN bool tni_is_ids(tn_ctx *ctx, const tn_tensor *t, const char *op, const char *what);
TNI_FN bool tni_has_columns(tn_ctx *ctx, const tn_tensor *x, const char *op);
TNI_FN bool tni_fits_columns(tn_ctx *ctx, const tn_tensor *x, const tn_tensor *t, const char *op, const char *what);
TNI_FN void tni_random_call(tn_ctx *ctx, tn_call *c, int clock_in);
TNI_FN tn_status tni_run_at_position(tn_ctx *ctx, tn_call *c);
TNI_FN tn_tensor *tni_recorded(tn_ctx *ctx, const tn_call *c, tni_backward_fn backward, tn_tensor *y, tn_tensor *a,
                               tn_tensor *b, tn_tensor *d, tn_tensor *saved);
TNI_FN bool tni_walk_begin(tni_walk *w, const tn_view *a, const tn_view *b, const tn_view *c);
TNI_FN bool tni_walk_next(tni_walk *w);

/* copy.c */
TNI_NOINLINE TNI_FN tn_tensor *tni_contiguous(tn_ctx *ctx, tn_tensor *t, const char *op, const char *what);
TNI_FN tn_tensor *tni_random(tn_ctx *ctx, tn_kernel kernel, int rank, const int64_t *shape, double f0, double f1,
                             bool of_batch);

/* elementwise.c */
TNI_FN void tni_grad_sum(tn_ctx *ctx, tn_tensor *t, const tn_tensor *dy, double factor);
TNI_FN void tni_add_backward(tn_ctx *ctx, const tni_node *n);
TNI_FN void tni_mul_grad(tn_ctx *ctx, tn_kernel kernel, tn_tensor *t, const tn_tensor *other, const tn_tensor *dy,
                         double factor);

/* act.c */
TNI_FN int64_t tni_gemm_batch(const tn_view *C);
TNI_FN int64_t tni_gemm_offset(const tn_view *C, const tn_view *v, int64_t index);

/* gemm.c */
TNI_FN tn_view tni_transposed_view(tn_view v);
TNI_FN tn_view tni_one_matrix(tn_view v);
TNI_FN tn_status tni_gemm(tn_ctx *ctx, tn_view a, tn_view b, const tn_tensor *bias, tn_view out, double alpha, double beta);
TNI_FN tn_view tni_batch_view(const tn_tensor *t);
TNI_FN tn_view tni_shadow_view(const tn_tensor *t);
TNI_FN tn_status tni_shadow_renew(tn_tensor *t);

/* index.c */
TNI_FN void tni_fault(const tn_view *word, int32_t code, int64_t which, int64_t value, int32_t step);

/* norm.c */
TNI_FN void tni_f32_rmsnorm_dx(const tn_call *c, int64_t n);
TNI_FN void tni_f64_rmsnorm_dx(const tn_call *c, int64_t n);
TNI_FN bool tni_is_eps(tn_ctx *ctx, double eps, const char *op);

#ifndef TN_NO_SEQUENCES
/* chain.c */
TNI_FN double tni_f32_chain_normalise(float *x, int64_t n);
TNI_FN double tni_f64_chain_normalise(double *x, int64_t n);
TNI_FN void tni_f32_chain_product(const float *a, bool ta, const float *b, bool tb, float *out, int64_t rows,
                                  int64_t depth, int64_t columns);
TNI_FN void tni_f64_chain_product(const double *a, bool ta, const double *b, bool tb, double *out, int64_t rows,
                                  int64_t depth, int64_t columns);

/* scan.c */
TNI_FN tni_prefixes tni_prefixes_of(const tn_call *c, int64_t n, int64_t d, const tn_view *y);
TNI_UNUSED TNI_FN tn_tensor *tni_scan_last(tn_ctx *ctx, tn_tensor *v, tn_tensor *cores, tn_tensor *phi, bool reverse,
                                           tn_tensor **logs);

/* rope.c */
TNI_FN double tni_rope_rate(const tn_call *c, int64_t k, int64_t d);
TNI_FN tn_tensor *tni_heads(tn_ctx *ctx, tn_tensor *t, const char *op, const char *what);
TNI_FN bool tni_rope_number(tn_ctx *ctx, const char *op, const char *what, double x);
TNI_FN bool tni_rope_scaling_fits(tn_ctx *ctx, const char *op, const tn_rope_scaling *s);

/* attention.c */
TNI_FN tni_seen tni_attend_seen(const tn_call *c, int64_t i);
TNI_FN double tni_attend_row_scale(const tn_call *c, int64_t n);
TNI_FN void tni_f32_attend_scores(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, double s[2]);
TNI_FN void tni_f64_attend_scores(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, double s[2]);
TNI_FN void tni_f32_attend_upstream(const tn_call *c, int64_t b, int64_t h, int64_t i, double *u);
TNI_FN void tni_f64_attend_upstream(const tn_call *c, int64_t b, int64_t h, int64_t i, double *u);
TNI_FN void tni_f32_attend_store(const tn_call *c, const tn_view *dx, int64_t b, int64_t h, int64_t t, const double *sum);
TNI_FN void tni_f64_attend_store(const tn_call *c, const tn_view *dx, int64_t b, int64_t h, int64_t t, const double *sum);
TNI_FN void tni_f32_attend_store_v(const tn_call *c, int64_t b, int64_t h, int64_t j, const double *sum);
TNI_FN void tni_f64_attend_store_v(const tn_call *c, int64_t b, int64_t h, int64_t j, const double *sum);
TNI_FN void tni_f32_attend_pair(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, const double *u, double *dq,
                                double *dk);
TNI_FN void tni_f64_attend_pair(const tn_call *c, int64_t b, int64_t h, int64_t i, int64_t j, const double *u, double *dq,
                                double *dk);

/* attention_linear.c */
TNI_FN bool tni_attend_numbers(tn_ctx *ctx, tn_attend_desc *a, int64_t d);
TNI_FN tn_status tni_attend_possible(tn_ctx *ctx, const tn_attend_desc *a, int64_t d, int64_t dv);
#endif /* TN_NO_SEQUENCES */

/* loss.c */
TNI_FN int64_t tni_rows_counted(const tn_call *c);
TNI_FN bool tni_labels_fit(tn_ctx *ctx, const char *op, const tn_tensor *z, const tn_tensor *labels);

/* select.c */

/* optim.c */

/* reference.c */
TNI_FN tn_status tni_reference_run(void *state, const tn_call *c);
TNI_FN tn_status tni_run_views(tn_ctx *ctx, tn_kernel kernel, const tn_view *a, const tn_view *b, const tn_view *out,
                               int64_t i0, bool add);
TNI_FN bool tni_compose(tn_ctx *ctx, const tn_call *call, tn_status *s);

/* The reference kernels, in both precisions. */
#define TNI_X(ENUM, name) \
    TNI_FN void tni_f32_##name(const tn_call *c); \
    TNI_FN void tni_f64_##name(const tn_call *c);
TN_KERNELS(TNI_X)
#undef TNI_X

#endif
