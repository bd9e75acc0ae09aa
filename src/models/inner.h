#pragma once
#include "core/inner.h"
#include "layers/inner.h"
#include "models/models.h"

#ifndef TN_NO_MODELS
/* "NAME.part", or "part" where NAME is empty, with space for the longest name of a parameter. */
typedef struct tni_part { char s[256]; } tni_part;

/* Attention or MLP of a block: the names of its points, and of those of its norms. */
typedef struct tni_branch { const char *name, *norm, *norm_out, *end; } tni_branch;
static const tni_branch tni_branches[2] = {{"attn", "norm1", "norm1_out", "middle"}, {"mlp", "norm2", "norm2_out", ""}};

struct tn_transformer_cache {
    tni_owned            owned;         /* first: the context destroys it by this */
    int64_t              layers, batch, length, past;
    bool                 broken;        /* a call failed, some layers may hold its tokens */
    tn_attention_cache **attn;          /* [layers] */
};

enum { TNI_BLOCK_POINTS = 32 };         /* most points of a block */

/* A list of points: the first `max` are stored in `to`, all are counted. */
typedef struct tni_points { int64_t count, max; tn_point *to; } tni_points;
#endif /* TN_NO_MODELS */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

#ifndef TN_NO_MODELS
/* desc.c */
TNI_FN bool tni_contradiction(tn_ctx *ctx, bool is, const char *what);
TNI_FN bool tni_takes_form(tn_attention_kind k);
TNI_FN tn_transformer_desc tni_block_desc(const tn_transformer_desc *d, int64_t l);
TNI_FN tn_init tni_transformer_rule(const tn_transformer_desc *d, bool out);
TNI_FN tn_attention_desc tni_model_attention(const tn_transformer_desc *d, int64_t depth);

/* points.c */
TNI_FN double tni_branch_scale(const tn_transformer_desc *d, int which);
TNI_FN bool tni_branch_changed(const tn_transformer_desc *d, int which);
TNI_FN void tni_point_add(tni_points *p, int64_t block, const char *part, const char *point, int rank, int64_t B, int64_t T,
                          int64_t n, int64_t d);
TNI_FN int64_t tni_points_at(const tn_transformer *m, int64_t l, tn_point *points);
TNI_FN bool tni_name_matches(const char *pattern, const char *name);
TNI_FN bool tni_taps_ask(const tni_taps *taps, const char *name);
TNI_FN tn_tensor *tni_taps_show(tn_ctx *ctx, const tni_taps *taps, const char *name, tn_tensor *x);
TNI_FN bool tni_block_asked(const tn_transformer *m, const tni_taps *taps);

/* forward.c */
TNI_FN bool tni_model_given(tn_ctx *ctx, const tn_transformer *m, const tn_tensor *ids, const char *what, const char *op);
TNI_FN tn_tensor *tni_model_normed(tn_ctx *ctx, const tn_transformer *m, const tn_norm *norm, tn_tensor *x,
                                   const tni_taps *taps, const char *part);
TNI_FN tn_tensor *tni_model_mix(tn_ctx *ctx, tn_tensor *lambdas, tn_tensor *x, tn_tensor *x0);
TNI_FN tn_tensor *tni_model_join(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *b, tn_tensor *x,
                                 tn_tensor *y, int which, const tni_taps *taps, const tn_norm *next, tn_tensor **normed);
TNI_FN tn_tensor *tni_model_attended(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *b, tn_tensor **x,
                                     tn_tensor *x0, const tni_taps *taps);
TNI_FN tn_tensor *tni_model_after(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *b, tn_tensor *x,
                                  tn_tensor *y, const tni_taps *taps, const tn_norm *next, tn_tensor **normed);
TNI_FN tn_tensor *tni_model_embedded(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, int64_t past,
                                     const tni_taps *taps);
TNI_FN tn_tensor *tni_model_blocks(tn_ctx *ctx, const tn_transformer *m, tn_tensor *x0, int64_t n,
                                   tn_transformer_cache *cache, tni_taps *taps, tn_tensor **normed);
TNI_FN tn_tensor *tni_model_ended(tn_ctx *ctx, const tn_transformer *m, tn_tensor *x, const tni_taps *taps);
TNI_FN tn_tensor *tni_model_run(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, int64_t past,
                                tn_transformer_cache *cache, tni_taps *taps);
TNI_FN tn_tensor *tni_model_head(tn_ctx *ctx, const tn_transformer *m, tn_tensor *x, const tni_taps *taps);

/* run.c */
TNI_FN int64_t tni_name_block(const char *name, const char **rest);
#endif /* TN_NO_MODELS */

#endif
