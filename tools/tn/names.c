/* names.c - models by the names of their checkpoints: names.h has their form */
#include "names.h"
#include <stdio.h>
#include <string.h>

/* How names spell a tn_attention_kind. */
static const char *const attention_words[] = {"", "sqrd", "bilinear", "diff", "plaindiff"};
enum { ATTENTION_WORDS = sizeof attention_words / sizeof *attention_words };

/* Reads `word` at *s. */
static bool read_word(const char **s, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*s, word, n) != 0) return false;
    *s += n;
    return true;
}

/* Reads a number without leading zeros, from 1 to 999999, and the word after it. */
static bool read_number(const char **s, const char *after, int64_t *out)
{
    const char *first = *s;
    for (*out = 0; **s >= '0' && **s <= '9' && *s - first < 6; (*s)++) *out = *out * 10 + (**s - '0');
    return *s > first && *first != '0' && read_word(s, after);
}

/* "bilinear-" and the like. */
static bool read_mlp(const char **s, tn_mlp_kind *kind)
{
    for (int k = 0; strcmp(tn_mlp_kind_name((tn_mlp_kind)k), "?") != 0; k++) {
        const char *at = *s;
        if (!read_word(&at, tn_mlp_kind_name((tn_mlp_kind)k)) || !read_word(&at, "-")) continue;
        *kind = (tn_mlp_kind)k;
        *s = at;
        return true;
    }
    return false;
}

static void read_attention(const char **s, tn_attention_kind *kind)
{
    for (int k = 1; k < ATTENTION_WORDS; k++) {
        const char *at = *s;
        if (!read_word(&at, attention_words[k]) || !read_word(&at, "-attn-")) continue;
        *kind = (tn_attention_kind)k;
        *s = at;
        return;
    }
}

static void complete_gpt2(tn_transformer_desc *d)
{
    d->vocab = 50304;
    d->context = 1024;
    d->hidden = 4 * d->dim;
    d->mlp_out_bias = d->no_norm_gain = d->embed_norm = d->qk_norm = d->x0_residual = d->value_residual = d->zero_out = true;
    d->softcap = 30;
    d->init = TN_INIT_UNIFORM;
}

static void complete_stories(tn_transformer_desc *d, int64_t layers, int64_t dim)
{
    memset(d, 0, sizeof *d);
    d->layers = layers;
    d->dim = dim;
    d->heads = dim / 64;
    d->vocab = 4096;
    d->context = 256;
    d->hidden = 4 * dim;
    d->no_norm_gain = true;
    d->norm_eps = 1e-8;
    d->attn_scale = TN_SCALE_DEPTH;
    d->init = TN_INIT_UNIFORM;
}

/* What is wrong with a name from *at on, or NULL: the desc is filled in. */
static const char *read_name(const char **at, tn_transformer_desc *d)
{
    if (read_word(at, "TinyStories-")) {
        int64_t layers, dim;
        if (!read_number(at, "-", &layers) || !read_number(at, "", &dim) || **at)
            return "expected layers and width, as in TinyStories-2-512,";
        if (dim % 64 != 0) return "expected a width that is a multiple of 64, the size of a head,";
        complete_stories(d, layers, dim);
        return NULL;
    }
    if (!read_word(at, "gpt2-")) return "expected a name like gpt2-MLP-12l-6h-768embd or TinyStories-2-512";
    if (!read_mlp(at, &d->mlp)) return "expected a kind of MLP";
    read_attention(at, &d->attention);
    if (!read_number(at, "l-", &d->layers) || !read_number(at, "h-", &d->heads) || !read_number(at, "embd", &d->dim) || **at)
        return "expected an end like 12l-6h-768embd";
    complete_gpt2(d);
    return NULL;
}

bool model_from_name(tn_ctx *ctx, const char *name, tn_transformer_desc *desc, char why[256])
{
    tn_transformer_desc d;
    const char         *at = name;
    memset(&d, 0, sizeof d);
    const char *wrong = read_name(&at, &d);
    if (wrong) snprintf(why, 256, "the name \"%.80s\": %s at \"%.40s\"", name, wrong, at);
    else if (tn_transformer_check(ctx, &d, desc) == TN_OK) return true;
    else snprintf(why, 256, "%s", tn_ctx_error(ctx));
    return false;
}

/* Do two complete descs say the same model? */
static bool same_model(const tn_transformer_desc *a, const tn_transformer_desc *b)
{
    enum { ROOM = 8192 };
    static char text[2][ROOM];
    size_t      bytes[2] = {0, 0};
    tn_ctx     *ctx;
    if (tn_ctx_create(NULL, &ctx, NULL) != TN_OK) return false;
    bool same = tn_transformer_config_write(ctx, a, tn_sink_memory(text[0], ROOM, &bytes[0])) == TN_OK
        && tn_transformer_config_write(ctx, b, tn_sink_memory(text[1], ROOM, &bytes[1])) == TN_OK
        && bytes[0] == bytes[1] && memcmp(text[0], text[1], bytes[0]) == 0;
    tn_ctx_destroy(ctx);
    return same;
}

int model_name(const tn_transformer_desc *desc, char *dst, size_t bytes)
{
    tn_transformer_desc d, stories;
    if (tn_transformer_check(NULL, desc, &d) != TN_OK) return -1;
    complete_stories(&stories, d.layers, d.dim);
    if (d.dim % 64 == 0 && tn_transformer_check(NULL, &stories, &stories) == TN_OK && same_model(&d, &stories))
        return snprintf(dst, bytes, "TinyStories-%lld-%lld", (long long)d.layers, (long long)d.dim);
    if (d.attention_count || d.mlp_count)
        return snprintf(dst, bytes, "mixed-%lldl-%lldh-%lldembd", (long long)d.layers, (long long)d.heads, (long long)d.dim);
    const char *attention = attention_words[d.attention];
    return snprintf(dst, bytes, "gpt2-%s-%s%s%lldl-%lldh-%lldembd", tn_mlp_kind_name(d.mlp), attention,
                    attention[0] ? "-attn-" : "", (long long)d.layers, (long long)d.heads, (long long)d.dim);
}
