#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/tape.h"
#include "ops/inner.h"
#include "layers/inner.h"
#include "io/inner.h"
#include "models/inner.h"

#ifndef TN_NO_MODELS
/* ---- init --------------------------------------------------------------- >>model-init */

/* While the branches are small, a model with a tied table E reads norm(E[id]) at its end, where the logit of id itself is
   |E[id]|^2 / RMS = std dim, or std^2 dim without norms. (ln vocab)/2 leaves it vocab^-1/2 of the probability, so that the
   loss begins near ln vocab; with std 1 it would begin at dim. */
static tn_init tni_transformer_table(const tn_transformer_desc *d)
{
    const double tied = log((double)d->vocab + 1) / (2 * (double)d->dim);
    tn_init init = TNI_ZERO;
    init.rule = TN_INIT_NORMAL;
    if (d->embed_std > 0) init.std = d->embed_std;
    else if (d->init == TN_INIT_DEFAULT) init.std = 0.02;
    else init.std = !d->tied ? 1 : d->no_norm ? sqrt(tied) : tied;
    return init;
}

static tni_part tni_part_of(const char *name, const char *part)
{
    tni_part p;
    tni_print(p.s, sizeof p.s, "%s%s%s", name, name[0] ? "." : "", part);
    return p;
}

static bool tni_model_norm(tn_params *ps, const char *name, const char *part, tn_norm *norm, const tn_transformer_desc *d)
{
    if (d->no_norm) return true;
    tn_norm_desc n = TNI_ZERO;
    n.dim = d->dim;
    n.kind = d->norm;
    n.no_gain = d->no_norm_gain;
    n.bias = d->norm_bias;
    n.eps = d->norm_eps;
    return tn_norm_init(ps, tni_part_of(name, part).s, &n, norm) == TN_OK;
}

static bool tni_model_mlp(tn_params *ps, const char *name, tn_mlp *mlp, const tn_transformer_desc *d)
{
    tn_mlp_desc m = TNI_ZERO;
    m.in = d->dim;
    m.hidden = d->hidden;
    m.kind = d->mlp;
    m.order = d->mlp_order;
    m.bias = d->mlp_bias;
    m.out_bias = d->mlp_out_bias;
    m.no_projection = d->no_projection;
    m.init = tni_transformer_rule(d, false);
    m.init_out = tni_transformer_rule(d, true);
    return tn_mlp_init(ps, name, &m, mlp) == TN_OK;
}

/* [2] = (1, 0): at the start of training the block reads x alone. */
static bool tni_model_lambdas(tn_params *ps, const char *name, tn_tensor **lambdas)
{
    static const double start[2] = {1, 0};
    tn_init zero = TNI_ZERO;
    *lambdas = tni_layer_vector(ps, name, "lambdas", 2, zero);
    return *lambdas && tn_write(*lambdas, TN_F64, start, 2) == TN_OK;
}

static bool tni_model_block(tn_params *ps, const char *name, tn_transformer_block *b, const tn_transformer_desc *d,
                            int64_t l)
{
    const tn_transformer_desc own = tni_block_desc(d, l);
    const tn_attention_desc   a = tni_model_attention(&own, l);
    tni_part part;
    tni_print(part.s, sizeof part.s, "blocks.%lld", (long long)l);
    tni_part block = tni_part_of(name, part.s);
    bool     whole = tni_model_norm(ps, block.s, "norm1", &b->norm1, d)
             && tn_attention_init(ps, tni_part_of(block.s, "attn").s, &a, &b->attn) == TN_OK
             && tni_model_norm(ps, block.s, "norm2", &b->norm2, d);
    whole = whole && tni_model_mlp(ps, tni_part_of(block.s, "mlp").s, &b->mlp, &own);
    if (whole && d->norm_place == TN_PLACE_SANDWICH)
        whole = tni_model_norm(ps, block.s, "norm1_out", &b->norm1_out, d)
             && tni_model_norm(ps, block.s, "norm2_out", &b->norm2_out, d);
    return whole && (!d->x0_residual || tni_model_lambdas(ps, block.s, &b->lambdas));
}

/* Embedding, positions and the norm after them. */
static bool tni_model_begin(tn_params *ps, const char *name, tn_transformer *m, const tn_transformer_desc *d)
{
    const tn_init table = tni_transformer_table(d);
    tn_embedding_desc e = TNI_ZERO;
    e.count = d->vocab;
    e.dim = d->dim;
    e.init = table;
    if (tn_embedding_init(ps, tni_part_of(name, "embed").s, &e, &m->embed) != TN_OK) return false;
    if (d->positions == TN_POSITIONS_LEARNED) {
        m->position = tni_layer_matrix(ps, tni_part_of(name, "position").s, "w", d->context, d->dim, table);
        if (!m->position) return false;
        tni_layer_adamw(ps, m->position);
    }
    return !d->embed_norm || tni_model_norm(ps, name, "embed_norm", &m->embed_norm, d);
}

/* The last norm and the unembedding. */
static bool tni_model_end(tn_params *ps, const char *name, tn_transformer *m, const tn_transformer_desc *d)
{
    tn_linear_desc h = TNI_ZERO;
    h.in = d->dim;
    h.out = d->vocab;
    h.init = tni_transformer_rule(d, false);
    if (d->zero_head) h.init.rule = TN_INIT_ZERO;
    if (d->norm_place != TN_PLACE_POST && !tni_model_norm(ps, name, "norm", &m->norm, d)) return false;
    if (d->tied && tn_params_tie(ps, tni_part_of(name, "head.w").s, tni_part_of(name, "embed.w").s) != TN_OK) return false;
    if (tn_linear_init(ps, tni_part_of(name, "head").s, &h, &m->head) != TN_OK) return false;
    tni_layer_adamw(ps, m->head.w);
    return true;
}

TNI_COLD tn_status tn_transformer_init(tn_params *ps, const char *name, const tn_transformer_desc *desc, tn_transformer *model)
{
    int64_t          before = tn_params_count(ps);
    tn_ctx          *ctx = tn_params_ctx(ps);
    const tni_alias *tied = ps ? ps->aliases : NULL;
    size_t           bytes;
    tn_status        s;
    if (!model || !desc) return tni_fail(ctx, TN_ERR_ARG, "transformer: model or desc is NULL");
    tn_transformer_desc d = *desc;                          /* which may be the model's own */
    memset(model, 0, sizeof *model);
    if ((s = tn_transformer_check(ctx, &d, &d)) != TN_OK || !ps) return s != TN_OK ? s : TN_ERR_ARG;
    if (!name) name = "";
    if (strlen(name) > 160)
        return tni_fail(ctx, TN_ERR_ARG, "transformer: the name %s is too long, expected at most 160 bytes",
                        tni_quote(name).s);
    if (!tni_mul_size((size_t)d.layers, sizeof *model->blocks, &bytes))
        return tni_fail(ctx, TN_ERR_MEMORY, "transformer: %lld layers are larger than the address space",
                        (long long)d.layers);
    model->blocks = (tn_transformer_block *)tni_layers_add(ps, bytes);
    if (!model->blocks) return TN_ERR_MEMORY;
    model->desc = d;
    bool whole = tni_model_begin(ps, name, model, &d);
    for (int64_t l = 0; l < d.layers && whole; l++) whole = tni_model_block(ps, name, &model->blocks[l], &d, l);
    whole = whole && tni_model_end(ps, name, model, &d);
    if (!whole) {
        tni_aliases_drop(ps, tied);
        tni_layers_drop(ps);
    }
    return tni_layer_done(ps, before, whole, model, sizeof *model);
}

/* ---- forward ------------------------------------------------------------ >>model-forward */

TNI_FN bool tni_model_given(tn_ctx *ctx, const tn_transformer *m, const tn_tensor *ids, const char *what, const char *op)
{
    if (ctx && (!m || !m->blocks)) tni_fail(ctx, TN_ERR_ARG, "%s: the model is %s", op, m ? "not initialised" : "NULL");
    if (!ctx || !m || !m->blocks || !tni_is_ids(ctx, ids, op, what)) return false;
    if (ids->rank == 2) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, expected [texts,tokens]", op, what, TNI_SHAPE(ids)), false;
}

TNI_FN tn_tensor *tni_model_normed(tn_ctx *ctx, const tn_transformer *m, const tn_norm *norm, tn_tensor *x,
                                   const tni_taps *taps, const char *part)
{
    return m->desc.no_norm ? x : tni_shown(ctx, taps, part, "", tni_norm_tapped(ctx, norm, x, taps, part));
}

/* l0 x + l1 x0 */
TNI_FN tn_tensor *tni_model_mix(tn_ctx *ctx, tn_tensor *lambdas, tn_tensor *x, tn_tensor *x0)
{
    return tn_add(ctx, tn_mul(ctx, x, tn_slice(lambdas, 0, 0, 1)), tn_mul(ctx, x0, tn_slice(lambdas, 0, 1, 2)));
}

/* The norm, if the addition whose sum it reads can compute it as well, or NULL. With taps, points between may be asked for. */
static const tn_norm *tni_model_fused(const tn_transformer *m, const tn_norm *norm, const tni_taps *taps)
{
    return taps || m->desc.no_norm || m->desc.norm_place == TN_PLACE_POST || norm->desc.kind != TN_NORM_RMS ? NULL : norm;
}

/* Adds the result of a branch to the residual stream. next, or NULL: *normed becomes this norm of the sum, unless what is
   added is broadcast. */
TNI_FN tn_tensor *tni_model_join(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *b, tn_tensor *x,
                                 tn_tensor *y, int which, const tni_taps *taps, const tn_norm *next, tn_tensor **normed)
{
    const tni_branch *at = &tni_branches[which];
    const double      scale = tni_branch_scale(&m->desc, which);
    if (tni_branch_changed(&m->desc, which)) y = tni_shown(ctx, taps, at->name, ".out", y);
    if (m->desc.norm_place == TN_PLACE_SANDWICH)
        y = tni_model_normed(ctx, m, which ? &b->norm2_out : &b->norm1_out, y, taps, at->norm_out);
    if (m->desc.dropout > 0) y = tn_dropout(ctx, y, m->desc.dropout);
    if (scale != 1) y = tn_scale(ctx, y, scale);
    y = tni_shown(ctx, taps, at->name, "", y);
    if (next && x && y && tni_same_shape(x, y)) *normed = tn_residual_rmsnorm(ctx, x, y, next->gain, next->desc.eps, &x);
    else x = y ? tn_add(ctx, x, y) : NULL;
    if (m->desc.norm_place == TN_PLACE_POST) x = tni_norm_tapped(ctx, which ? &b->norm2 : &b->norm1, x, taps, at->norm);
    return tni_shown(ctx, taps, at->end, "", x);
}

/* What the attention of a block reads. *x: the residual stream at the block's beginning. */
TNI_FN tn_tensor *tni_model_attended(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *b, tn_tensor **x,
                                     tn_tensor *x0, const tni_taps *taps)
{
    if (b->lambdas) *x = tni_shown(ctx, taps, "input", "", tni_model_mix(ctx, b->lambdas, *x, x0));
    return m->desc.norm_place != TN_PLACE_POST ? tni_model_normed(ctx, m, &b->norm1, *x, taps, "norm1") : *x;
}

/* The rest of a block, from what its attention returns. next, normed: as tni_model_join takes them. */
TNI_FN tn_tensor *tni_model_after(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *b, tn_tensor *x,
                                  tn_tensor *y, const tni_taps *taps, const tn_norm *next, tn_tensor **normed)
{
    tn_tensor *z = NULL;
    x = tni_model_join(ctx, m, b, x, y, 0, taps, tni_model_fused(m, &b->norm2, taps), &z);
    if (!z) z = m->desc.norm_place != TN_PLACE_POST ? tni_model_normed(ctx, m, &b->norm2, x, taps, "norm2") : x;
    return tni_model_join(ctx, m, b, x, tni_mlp_tapped(ctx, &b->mlp, z, taps), 1, taps, next, normed);
}

/* One block. With a cache x holds the new tokens only, and there are no taps. *normed: the block's first norm of x, if the
   block before it has computed it, else NULL; becomes `next` of the result, if that is not NULL. */
static tn_tensor *tni_model_forward_block(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *b, tn_tensor *x,
                                          tn_tensor *x0, tn_tensor **values, tn_attention_cache *cache,
                                          const tni_taps *taps, const tn_norm *next, tn_tensor **normed)
{
    tn_tensor *y = *normed ? *normed : tni_model_attended(ctx, m, b, &x, x0, taps);
    *normed = NULL;
    y = cache ? tn_attention_decode(ctx, &b->attn, y, cache, values) : tni_attention_tapped(ctx, &b->attn, y, values, taps);
    return tni_model_after(ctx, m, b, x, y, taps, next, normed);
}

/* A block as a function for tn_recompute: its inputs are x, x0 and the first block's values. */
typedef struct tni_block_again { const tn_transformer *model; const tn_transformer_block *block; } tni_block_again;

static tn_tensor *tni_model_block_again(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    const tni_block_again *b = (const tni_block_again *)with;
    tn_tensor          *values = in[2], *normed = NULL;
    return tni_model_forward_block(ctx, b->model, b->block, in[0], in[1], values ? &values : NULL, NULL, NULL, NULL, &normed);
}

static tn_tensor *tni_model_recomputed(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *block, tn_tensor *x,
                                       tn_tensor *x0, tn_tensor *values)
{
    tni_block_again b;
    tn_tensor   *in[3];
    b.model = m;
    b.block = block;
    in[0] = x;
    in[1] = block->lambdas ? x0 : NULL;
    in[2] = values;
#ifndef TN_NO_TRAINING
    return tn_recompute(ctx, tni_model_block_again, &b, sizeof b, 3, in);
#else
    return tni_model_block_again(ctx, &b, in);
#endif
}

/* What the first block begins with: ids [B,T], which follow `past` others -> [B,T,dim] */
TNI_FN tn_tensor *tni_model_embedded(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, int64_t past,
                                     const tni_taps *taps)
{
    const int64_t end = m->position ? past + ids->shape[1] : 0;
    if (m->position && end > m->desc.context)
        return tni_fail(ctx, TN_ERR_SHAPE, "transformer: there are %lld tokens, expected at most %lld, the learned positions",
                        (long long)end, (long long)m->desc.context), (tn_tensor *)NULL;
    tn_tensor *x = tn_embedding_forward(ctx, &m->embed, ids);
    if (m->position) x = tn_add(ctx, x, tn_slice(m->position, 0, past, end));
    if (m->desc.embed_norm) x = tni_norm_tapped(ctx, &m->embed_norm, x, taps, "embed_norm");
    if (m->desc.embed_noise > 0) x = tn_noise(ctx, x, m->desc.embed_noise);
    if (m->desc.dropout > 0) x = tn_dropout(ctx, x, m->desc.dropout);
    return tni_shown(ctx, taps, "embed", "", x);
}

/* The norm that reads the residual stream after block l of the first n, if that block can compute it: the next block must not
   mix or recompute. The last of them computes the model's last norm. */
static const tn_norm *tni_model_next(const tn_transformer *m, int64_t l, int64_t n, bool recomputes, const tni_taps *taps)
{
    if (l + 1 < n) return m->blocks[l + 1].lambdas || recomputes ? NULL : tni_model_fused(m, &m->blocks[l + 1].norm1, taps);
    return tni_model_fused(m, &m->norm, taps);
}

/* The residual stream after the first n blocks. normed, or NULL: becomes the model's last norm of it, or NULL. */
TNI_FN tn_tensor *tni_model_blocks(tn_ctx *ctx, const tn_transformer *m, tn_tensor *x0, int64_t n,
                                   tn_transformer_cache *cache, tni_taps *taps, tn_tensor **normed)
{
    tn_tensor *x = x0, *values = NULL, *y = NULL;
    for (int64_t l = 0; l < n && x; l++) {
        const bool first = m->desc.value_residual && !values;      /* its values are a second result */
        const bool recomputes = m->desc.recompute && !cache;
        if (taps) taps->block = l;
        x = recomputes && !first && !tni_block_asked(m, taps)
            ? tni_model_recomputed(ctx, m, &m->blocks[l], x, x0, values)
            : tni_model_forward_block(ctx, m, &m->blocks[l], x, x0, m->desc.value_residual ? &values : NULL,
                                      cache ? cache->attn[l] : NULL, taps,
                                      l + 1 < n || normed ? tni_model_next(m, l, n, recomputes, taps) : NULL, &y);
    }
    if (normed) *normed = y;
    if (taps) taps->block = -1;
    return x;
}

/* The last norm, if there is one. */
TNI_FN tn_tensor *tni_model_ended(tn_ctx *ctx, const tn_transformer *m, tn_tensor *x, const tni_taps *taps)
{
    return m->desc.norm_place == TN_PLACE_POST ? x : tni_model_normed(ctx, m, &m->norm, x, taps, "norm");
}

/* ids [B,T], which follow `past` others -> [B,T,dim] */
TNI_FN tn_tensor *tni_model_run(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, int64_t past,
                                tn_transformer_cache *cache, tni_taps *taps)
{
    tn_tensor *y, *x = tni_model_embedded(ctx, m, ids, past, taps);
    x = tni_model_blocks(ctx, m, x, m->desc.layers, cache, taps, &y);
    return y ? y : tni_model_ended(ctx, m, x, taps);
}

tn_tensor *tn_transformer_hidden(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids)
{
    return tni_model_given(ctx, m, ids, "ids", "transformer") ? tni_model_run(ctx, m, ids, 0, NULL, NULL) : NULL;
}

tn_tensor *tn_transformer_pattern(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, int64_t l)
{
    if (!tni_model_given(ctx, m, ids, "ids", "transformer_pattern")) return NULL;
    if (l < 0 || l >= m->desc.layers)
        return tni_fail(ctx, TN_ERR_SHAPE, "transformer_pattern: block is %lld, expected 0 <= block < %lld, the number of "
                        "layers", (long long)l, (long long)m->desc.layers), (tn_tensor *)NULL;
    tn_tensor *x0 = tni_model_embedded(ctx, m, ids, 0, NULL);
    tn_tensor *x = tni_model_blocks(ctx, m, x0, l, NULL, NULL, NULL);
    tn_tensor *y = x ? tni_model_attended(ctx, m, &m->blocks[l], &x, x0, NULL) : NULL;
    return y ? tn_attention_pattern(ctx, &m->blocks[l].attn, y) : NULL;
}

/* The factor 1/c of the soft cap multiplies the unembedding's input, which is smaller than the logits. */
TNI_FN tn_tensor *tni_model_head(tn_ctx *ctx, const tn_transformer *m, tn_tensor *x, const tni_taps *taps)
{
    const double c = m->desc.softcap;
    if (c == 0) return tni_shown(ctx, taps, "logits", "", tn_linear_forward(ctx, &m->head, x));
    x = tn_linear_forward(ctx, &m->head, tn_scale(ctx, x, 1 / c));
    if (tni_asked(taps, "head", "")) {
        tn_tensor *logits = tn_scale(ctx, x, c);
        tn_tensor *shown = tni_shown(ctx, taps, "head", "", logits);
        if (shown != logits) x = shown ? tn_scale(ctx, shown, 1 / c) : NULL;
    }
    return tni_shown(ctx, taps, "logits", "", x ? tn_scale(ctx, tn_activation(ctx, x, TN_ACT_TANH), c) : NULL);
}

tn_tensor *tn_transformer_unembed(tn_ctx *ctx, const tn_transformer *m, tn_tensor *x)
{
    return tni_layer_given(ctx, m, "transformer") ? tni_model_head(ctx, m, x, NULL) : NULL;
}

tn_tensor *tn_transformer_forward(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids)
{
    tn_tensor *x = tn_transformer_hidden(ctx, m, ids);
    return x ? tn_transformer_unembed(ctx, m, x) : NULL;
}

tn_tensor *tn_transformer_loss(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, tn_tensor *targets)
{
    if (!tni_model_given(ctx, m, ids, "ids", "transformer") || !tni_model_given(ctx, m, targets, "targets", "transformer"))
        return NULL;
    if (!tni_same_shape(ids, targets))
        return tni_fail(ctx, TN_ERR_SHAPE, "transformer: targets are %s, expected %s as ids", TNI_SHAPE(targets),
                        TNI_SHAPE(ids)), (tn_tensor *)NULL;
    return tn_cross_entropy(ctx, tn_transformer_forward(ctx, m, ids), targets);
}

/* ---- compact weights ----------------------------------------------------- >>model-compact */
static bool tni_listed(tn_tensor *const *w, int64_t n, const tn_tensor *t)
{
    int64_t i;
    for (i = 0; i < n && w[i] != t; i++) {}
    return i < n;
}

tn_status tn_transformer_compact(const tn_transformer *m, tn_weight_kind kind, tn_compact_error *error)
{
    static const char *const part[] = {"attn.qk", "attn.v", "attn.o", "mlp.w", "mlp.p"};
    tn_tensor **w;
    char      (*name)[64];
    int64_t     n = 0;
    if (error) memset(error, 0, sizeof *error);
    if (!m || !m->blocks || !tni_alive(m->head.w)) return TN_ERR_ARG;
    tn_ctx *ctx = m->head.w->ctx;
    int64_t max = tni_plus(tni_area(5, m->desc.layers), 1);
    tni_scratch work = tni_scratch_begin(ctx, "transformer_compact");
    w = (tn_tensor **)tni_take(&work, max, sizeof *w);
    name = (char (*)[64])tni_take(&work, max, sizeof *name);
    if (work.failed) return tni_scratch_end(&work, TN_ERR_MEMORY);
    for (int64_t l = 0; l < m->desc.layers; l++) {
        const tn_transformer_block *b = &m->blocks[l];
        tn_tensor *const            of[5] = {b->attn.qk, b->attn.v, b->attn.o, b->mlp.w, b->mlp.p};
        for (int i = 0; i < 5; i++) {
            if (!of[i] || tni_listed(w, n, of[i])) continue;            /* tied ones are there */
            w[n] = of[i];
            tni_print(name[n++], sizeof *name, "blocks.%lld.%s", (long long)l, part[i]);
        }
    }
    if (!tni_listed(w, n, m->head.w)) {
        w[n] = m->head.w;
        tni_print(name[n++], sizeof *name, "head.w");
    }
    return tni_scratch_end(&work, tni_compact_some("transformer_compact", w, (const char (*)[64])name, n, kind, error));
}

#endif /* TN_NO_MODELS */
