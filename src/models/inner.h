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
#endif /* TN_NO_MODELS */
