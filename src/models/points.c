#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"
#include "io/inner.h"
#include "models/inner.h"

#ifndef TN_NO_MODELS
/* ---- points of a forward pass, and the taps that are shown them ---------- >>model-points */

TNI_FN double tni_branch_scale(const tn_transformer_desc *d, int which) { return which ? d->mlp_scale : d->attn_scale; }

/* Whether what the attention or the MLP returns is a point of its own: it is not what is added. */
TNI_FN bool tni_branch_changed(const tn_transformer_desc *d, int which)
{
    return d->norm_place == TN_PLACE_SANDWICH || tni_branch_scale(d, which) != 1;
}

/* Lists a point whose shape is the first `rank` of four extents. */
TNI_FN void tni_point_add(tni_points *p, int64_t block, const char *part, const char *point, int rank, int64_t B, int64_t T,
                          int64_t n, int64_t d)
{
    tn_point *to = p->count < p->max ? &p->to[p->count] : NULL;
    p->count++;
    if (!to) return;
    memset(to, 0, sizeof *to);
    memcpy(to->name, tni_point_named(block, part, point).s, sizeof to->name);
    to->rank = rank;
    to->shape[0] = B; to->shape[1] = T; to->shape[2] = n; to->shape[3] = rank > 3 ? d : 0;
}

static void tni_point_norm(tni_points *p, const tn_transformer *m, int64_t block, const char *part, bool result, int64_t B,
                           int64_t T)
{
    if (m->desc.no_norm) return;
    tni_point_add(p, block, part, ".scale", 3, B, T, 1, 0);
    if (result) tni_point_add(p, block, part, "", 3, B, T, m->desc.dim, 0);
}

/* The points of tni_model_join */
static void tni_points_join(tni_points *p, const tn_transformer *m, int64_t l, int which, int64_t B, int64_t T)
{
    const tni_branch *at = &tni_branches[which];
    const int64_t     n = m->desc.dim;
    if (tni_branch_changed(&m->desc, which)) tni_point_add(p, l, at->name, ".out", 3, B, T, n, 0);
    if (m->desc.norm_place == TN_PLACE_SANDWICH) tni_point_norm(p, m, l, at->norm_out, true, B, T);
    tni_point_add(p, l, at->name, "", 3, B, T, n, 0);
    if (m->desc.norm_place == TN_PLACE_POST) tni_point_norm(p, m, l, at->norm, false, B, T);
    tni_point_add(p, l, at->end, "", 3, B, T, n, 0);
}

static void tni_points_block(tni_points *p, const tn_transformer *m, int64_t l, int64_t B, int64_t T)
{
    static const char *const names[4] = {".q1", ".q2", ".k1", ".k2"};
    const tn_transformer_block *b = &m->blocks[l];
    const tn_attention_desc    *a = &b->attn.desc;
    const int  sets = tni_attention_kinds[a->kind].sets;
    const bool post = m->desc.norm_place == TN_PLACE_POST;
    if (b->lambdas) tni_point_add(p, l, "input", "", 3, B, T, m->desc.dim, 0);
    if (!post) tni_point_norm(p, m, l, "norm1", true, B, T);
    for (int i = 0; i < 4; i++) if (i % 2 < sets) tni_point_add(p, l, "attn", names[i], 4, B, T, a->heads, a->d_qk);
    tni_point_add(p, l, "attn", ".v", 4, B, T, a->heads, a->d_v);
    tni_point_add(p, l, "attn", ".pattern", 4, B, a->heads, T, T);
    if (tni_attention_normed(a)) tni_point_add(p, l, "attn", ".z.scale", 4, B, T, a->heads, 1);
    tni_point_add(p, l, "attn", ".z", 4, B, T, a->heads, a->d_v);
    tni_points_join(p, m, l, 0, B, T);
    if (!post) tni_point_norm(p, m, l, "norm2", true, B, T);
    tni_point_add(p, l, "mlp", ".encoders", 4, B, T, b->mlp.w->shape[0], b->mlp.desc.hidden);
    tni_point_add(p, l, "mlp", ".hidden", 3, B, T, b->mlp.desc.hidden, 0);
    tni_points_join(p, m, l, 1, B, T);
}

static void tni_points_before(tni_points *p, const tn_transformer *m, int64_t B, int64_t T)
{
    if (m->desc.embed_norm) tni_point_norm(p, m, -1, "embed_norm", false, B, T);
    tni_point_add(p, -1, "embed", "", 3, B, T, m->desc.dim, 0);
}

static void tni_points_after(tni_points *p, const tn_transformer *m, int64_t B, int64_t T)
{
    if (m->desc.norm_place != TN_PLACE_POST) tni_point_norm(p, m, -1, "norm", true, B, T);
    if (m->desc.softcap != 0) tni_point_add(p, -1, "head", "", 3, B, T, m->desc.vocab, 0);
    tni_point_add(p, -1, "logits", "", 3, B, T, m->desc.vocab, 0);
}

int64_t tn_transformer_points(const tn_transformer *m, int64_t B, int64_t T, tn_point *points, int64_t max)
{
    tni_points p = {0, points ? max : 0, points};
    if (!m || !m->blocks) return 0;
    tni_points_before(&p, m, B, T);
    for (int64_t l = 0; l < m->desc.layers; l++) tni_points_block(&p, m, l, B, T);
    tni_points_after(&p, m, B, T);
    return p.count;
}

/* The points of block l, or with -1 those outside of all blocks. Needs no memory, for a step that allocates none. */
TNI_FN int64_t tni_points_at(const tn_transformer *m, int64_t l, tn_point *points)
{
    tni_points p = {0, TNI_BLOCK_POINTS, points};
    if (l >= 0) tni_points_block(&p, m, l, 1, 1);
    else {
        tni_points_before(&p, m, 1, 1);
        tni_points_after(&p, m, 1, 1);
    }
    return p.count;
}

/* Whether the name is the pattern with a text for each *. The last * takes more where that fails: no recursion. */
TNI_FN bool tni_name_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*') { star = ++pattern; from = name; }
        else if (*pattern == *name) { pattern++; name++; }
        else if (star) { pattern = star; name = ++from; }
        else return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

TNI_FN bool tni_taps_ask(const tni_taps *taps, const char *name)
{
    const tn_tap *list = (const tn_tap *)taps->list;
    for (int64_t i = 0; i < taps->count; i++) if (tni_name_matches(list[i].points, name)) return true;
    return false;
}

TNI_FN tn_tensor *tni_taps_show(tn_ctx *ctx, const tni_taps *taps, const char *name, tn_tensor *x)
{
    const tn_tap *list = (const tn_tap *)taps->list;
    for (int64_t i = 0; i < taps->count; i++) {
        if (!tni_name_matches(list[i].points, name)) continue;
        tn_tensor *y = list[i].fn(ctx, list[i].user, name, x);
        if (!y && ctx->status == TN_OK) tni_fail(ctx, TN_ERR_ARG, "transformer_run: the tap of %s returned NULL", name);
        if (!y || !tni_is_real(ctx, y, "transformer_run", name)) return NULL;
        if (y == x) continue;
        if (!tni_same_shape(y, x))
            return tni_fail(ctx, TN_ERR_SHAPE, "transformer_run: the tap of %s returned %s, expected %s", name, TNI_SHAPE(y),
                            TNI_SHAPE(x)), (tn_tensor *)NULL;
        if (y->dtype != x->dtype) y = tn_cast(ctx, y, x->dtype);
        if (!(y = tni_contiguous(ctx, y, "transformer_run", name))) return NULL;
        x = y;
    }
    return x;
}

/* Whether a point of the block taps->block is asked for. */
TNI_FN bool tni_block_asked(const tn_transformer *m, const tni_taps *taps)
{
    tn_point points[TNI_BLOCK_POINTS];
    if (!taps) return false;
    int64_t n = tni_points_at(m, taps->block, points);
    for (int64_t i = 0; i < n; i++) if (tni_taps_ask(taps, points[i].name)) return true;
    return false;
}
#endif /* TN_NO_MODELS */
