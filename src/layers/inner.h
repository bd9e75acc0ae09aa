typedef struct tni_alias { struct tni_alias *next; tn_param *param; } tni_alias;        /* followed by its name */

/* The head of an array of layers that a model keeps outside its struct. It is destroyed together with the parameters that
   the layers point to. */
typedef struct tni_layers { struct tni_layers *next; size_t bytes; const void *copy_of; } tni_layers;

/* An optimiser, which must know when its parameters are destroyed. */
typedef struct tni_watcher { tn_params *params; struct tni_watcher *next; } tni_watcher;

struct tn_params {
    tni_owned    owned;
    tn_param   **item;
    int64_t      count, room;
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
    X(SWIGLU, "swiglu", 2, SWISH) X(GELU_TANH, "gelu_tanh", 1, NONE)
#define TNI_KIND(kind, name, encoders, act) {name, encoders, TN_ACT_##act},
static const struct { const char *name; int encoders; tn_act act; } tni_mlp_kinds[] = { TNI_MLP_LIST(TNI_KIND) };
#undef TNI_KIND
#define TNI_MLP_KINDS (sizeof tni_mlp_kinds / sizeof *tni_mlp_kinds)

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
