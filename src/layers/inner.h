#pragma once
#include "core/inner.h"
#include "tensor/tensor.h"
#include "ops/ops.h"
#include "layers/layers.h"

typedef struct tni_alias { struct tni_alias *next; tn_param *param; } tni_alias;        /* followed by its name */

/* The head of an array of layers that a model keeps outside its struct. It is destroyed together with the parameters that
   the layers point to. */
typedef struct tni_layers { struct tni_layers *next; size_t bytes; const void *copy_of; } tni_layers;

/* An optimiser, which must know when its parameters are destroyed. */
typedef struct tni_watcher { tn_params *params; struct tni_watcher *next; } tni_watcher;

struct tn_params {
    tni_owned    owned;
    tn_param   **item;
    int64_t      count, max;
    tni_alias   *aliases;
    tni_layers  *layers;
    tni_watcher *watchers;
};

/* The name of a layer for "mlp%s%s: ..."; a layer may have none. */
#define TNI_NAMED(name) ((name) && *(name) ? " " : ""), ((name) ? (name) : "")

typedef struct tni_taps tni_taps;
struct tni_taps {
    tn_tensor *(*show)(tn_ctx *ctx, const tni_taps *taps, const char *name, tn_tensor *x);
    bool       (*asks)(const tni_taps *taps, const char *name);
    const void *list;           /* [count] */
    int64_t     count, block;   /* block: -1 outside of all */
};

/* A name such as "blocks.0" "." "attn" ".q1" */
typedef struct tni_point_name { char s[56]; } tni_point_name;

#define TNI_MLP_LIST(X) /* tn_mlp_kind, name, encoders, tn_act */ \
    X(BILINEAR, "bilinear", 2, NONE) X(RELU, "relu", 1, RELU) X(RELU2, "relu2", 1, RELU2) X(GELU, "gelu", 1, GELU) \
    X(SWISH, "swish", 1, SWISH) X(GLU, "glu", 2, SIGMOID) X(REGLU, "reglu", 2, RELU) X(GEGLU, "geglu", 2, GELU) \
    X(SWIGLU, "swiglu", 2, SWISH) X(GELU_TANH, "gelu_tanh", 1, NONE) X(GEGLU_TANH, "geglu_tanh", 2, NONE)
#define TNI_KIND(kind, name, encoders, act) {name, encoders, TN_ACT_##act},
static const struct { const char *name; int encoders; tn_act act; } tni_mlp_kinds[] = { TNI_MLP_LIST(TNI_KIND) };
#undef TNI_KIND
#define TNI_MLP_KINDS (sizeof tni_mlp_kinds / sizeof *tni_mlp_kinds)

#ifndef TN_NO_SEQUENCES
#define TNI_ATTENTION_LIST(X) /* tn_attention_kind, name, tn_attend_kind, sets, differential */ \
    X(SOFTMAX, "softmax", SOFTMAX, 1, false) X(SQUARED, "squared", SQUARED, 1, false) \
    X(BILINEAR, "bilinear", BILINEAR, 2, false) X(DIFFERENTIAL, "differential", SOFTMAX, 2, true) \
    X(DIFFERENTIAL_PLAIN, "differential_plain", SOFTMAX, 2, true)
#define TNI_KIND(kind, name, attend, sets, differential) {name, TN_ATTEND_##attend, sets, differential},
static const struct {
    const char *name; tn_attend_kind attend; int sets; bool differential;
} tni_attention_kinds[] = { TNI_ATTENTION_LIST(TNI_KIND) };
#undef TNI_KIND
#define TNI_ATTENTION_KINDS (sizeof tni_attention_kinds / sizeof *tni_attention_kinds)

struct tn_attention_cache {
    tni_owned         owned;
    tn_attention_desc desc;             /* of the layer it was made for             */
    int64_t           batch, length, past;
    bool              broken;           /* a call failed while it updated the cache */
    tn_tensor        *k, *v;            /* [batch,length,s heads,d_qk], [batch,length,heads,d_v]; or NULL */
    tn_tensor        *state;            /* in tn_attend's format; or NULL           */
};
#endif /* TN_NO_SEQUENCES */

#ifndef TENSORNET_IMPLEMENTATION        /* in the one header each function is defined before it is used */

/* params.c */
TNI_FN void tni_aliases_drop(tn_params *ps, const tni_alias *before);
TNI_FN void tni_layers_drop(tn_params *ps);
TNI_UNUSED TNI_FN void tni_params_watch(tn_params *ps, tni_watcher *w);
TNI_UNUSED TNI_FN void tni_params_unwatch(tni_watcher *w);
TNI_FN void *tni_layers_add(tn_params *ps, size_t bytes);
TNI_FN tn_tensor *tni_layer_param(tn_params *ps, const char *name, const char *part, int rank, const int64_t *shape,
                                  tn_init init, bool decays);
TNI_FN tn_tensor *tni_layer_matrix(tn_params *ps, const char *name, const char *part, int64_t n, int64_t m, tn_init init);
TNI_FN void tni_layer_adamw(tn_params *ps, const tn_tensor *w);
TNI_FN tn_tensor *tni_layer_vector(tn_params *ps, const char *name, const char *part, int64_t n, tn_init init);
TNI_FN tn_init tni_init_or(tn_init init, tn_init_rule usual, int64_t fan_in);
TNI_FN tn_init tni_init_bias(tn_init of_weights);
TNI_FN bool tni_is_extent(int64_t n);
TNI_FN tn_status tni_layer_extents(tn_params *ps, const char *layer, const char *name, const char *what_a, int64_t a,
                                   const char *what_b, int64_t b);
TNI_FN tn_status tni_layer_projection(tn_ctx *ctx, const char *layer, const char *name, int64_t in, int64_t hidden,
                                      int64_t *out, bool none, bool bias);
TNI_FN tn_status tni_layer_augmented(tn_ctx *ctx, const char *layer, const char *name, bool augmented, bool biased);
TNI_FN tn_status tni_layer_done(tn_params *ps, int64_t before, bool whole, void *layer, size_t bytes);
TNI_FN bool tni_layer_given(tn_ctx *ctx, const void *layer, const char *what);

/* compact.c */
TNI_FN tn_status tni_compact_some(const char *what, tn_tensor *const *w, const char (*name)[64], int64_t n, tn_weight_kind kind,
                                  tn_compact_error *error);

/* linear.c */
TNI_FN tni_point_name tni_point_named(int64_t block, const char *part, const char *point);
TNI_FN bool tni_asked(const tni_taps *taps, const char *part, const char *point);
TNI_FN tn_tensor *tni_shown(tn_ctx *ctx, const tni_taps *taps, const char *part, const char *point, tn_tensor *x);
TNI_FN tn_tensor *tni_mean_of_rows(tn_ctx *ctx, tn_tensor *x);
TNI_FN tn_tensor *tni_norm_tapped(tn_ctx *ctx, const tn_norm *layer, tn_tensor *x, const tni_taps *taps, const char *part);

/* mlp.c */
TNI_FN tn_tensor *tni_mlp_act(tn_ctx *ctx, tn_mlp_kind kind, tn_tensor *x);
TNI_FN tn_tensor *tni_mlp_hidden(tn_ctx *ctx, tn_mlp_kind kind, int64_t encoders, tn_tensor *y);
TNI_FN tn_tensor *tni_mlp_tapped(tn_ctx *ctx, const tn_mlp *layer, tn_tensor *x, const tni_taps *taps);
TNI_FN tn_tensor *tni_layer_part(tn_tensor *stack, int64_t i);

#ifndef TN_NO_SEQUENCES
/* attention.c */
TNI_FN tn_attend_desc tni_attention_attend(const tn_attention_desc *d);
TNI_FN tn_status tni_attention_check(tn_ctx *ctx, const char *name, tn_attention_desc *d);
TNI_FN tn_tensor *tni_attention_constant(tn_params *ps, const char *name, const char *part, int64_t n, double value);
TNI_FN tn_rope_desc tni_attention_rope(const tn_attention_desc *d, int64_t first, bool norm);
TNI_FN tn_tensor *tni_attention_rotated(tn_ctx *ctx, const tn_attention_desc *d, tn_tensor *x, tn_tensor *gain, int64_t first,
                                       bool norm);
TNI_FN tn_tensor *tni_attention_qk(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, int64_t first);
TNI_FN tn_tensor *tni_attention_v(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor *earlier);
TNI_FN bool tni_attention_normed(const tn_attention_desc *d);
TNI_FN tn_tensor *tni_attention_tapped(tn_ctx *ctx, const tn_attention *layer, tn_tensor *x, tn_tensor **values,
                                       const tni_taps *taps);
#endif /* TN_NO_SEQUENCES */

/* tn_attention.c */
#ifndef TN_NO_MPS
TNI_FN tn_tensor *tni_tna_boundary(tn_ctx *ctx, const tn_tn_attention *layer, bool right);
#endif /* TN_NO_MPS */

#endif
