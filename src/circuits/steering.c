#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "decomp/inner.h"
#include "layers/layers.h"
#include "operator/inner.h"
#include "analysis/analysis.h"
#include "io/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- steering ----------------------------------------------------------- >>circuits-steering-impl
   The frozen network is affine but for the products of MLPs, so a batch of copies of the texts carries the polynomial in s:
   copy 0 is the run without s, copy i (1 <= i <= K) the coefficient of s^i, K + 1 what passes no MLP, K + 2 zero, K + 3 the
   frozen network with s. All but 0 and K + 3 hold what they stand for plus the constants that biases cause, which copy K + 2
   holds alone. A tap of all points gives every copy the scales and patterns of copy 0, and multiplies the encoders. */

enum { TNI_STEERING_MOST = 16 };

tn_circuit *tn_circuit_steer(tn_ctx *ctx, const tn_cp *cp, tn_tensor *s, tn_tensor **square)
{
    const char *op = "circuit_steer";
    tn_tensor  *z[2], *left[2], *right[2], *y = NULL;
    tn_circuit *c = NULL;
    if (square) *square = NULL;
    if (!ctx || !cp) return NULL;
    if (!tni_cp_is_bilinear(cp, op) || !tni_is_vector(ctx, s, cp->in[0] - cp->constant, op, "s")) return NULL;
    tni_scope scope = tni_scope_begin(ctx);
    s = tn_reshape_2d(tn_copy(ctx, s), 1, -1);
    for (int k = 0; k < 2 && s; k++) {                      /* P diag(W s) V + P diag(V s) W */
        z[k] = tn_affine(ctx, s, tn_slice(cp->f[k], 1, 0, s->shape[1]), NULL);
        left[k] = z[k] ? tn_mul(ctx, cp->p, z[k]) : NULL;
        right[k] = tn_transpose(cp->f[1 - k], 0, 1);
        if (!left[k] || !right[k]) s = NULL;
    }
    if (s && square) y = tn_affine(ctx, tn_mul(ctx, z[0], z[1]), cp->p, NULL);
    if (y && (y = tn_reshape(y, 1, &cp->out)) != NULL) *square = tn_tensor_keep(y);
    if (s && (!square || *square)) {
        left[0] = tn_concat(ctx, 2, left, 1);
        right[0] = tn_concat(ctx, 2, right, 1);
        c = left[0] && right[0] ? tn_circuit_create(ctx, 1, left, right) : NULL;
    }
    tni_scope_end(ctx, scope);
    if (!c && square) tni_drop(square);
    return c;
}

typedef struct tni_steering {
    const tn_circuit_steering_desc *desc;
    int64_t    orders, texts;
    tn_tensor *encoders;                /* of the block that runs */
    tn_tensor *logits;
} tni_steering;

static tn_tensor *tni_steering_copy(const tni_steering *t, tn_tensor *x, int64_t copy)
{
    return tn_slice(x, 0, copy * t->texts, (copy + 1) * t->texts);
}

/* The copies, listed, as one tensor */
static tn_tensor *tni_steering_joined(tn_ctx *ctx, const tni_steering *t, tn_tensor **copies)
{
    return tn_concat(ctx, t->orders + 4, copies, 0);
}

/* Encoder e of a coefficient, [texts,T,1,hidden] */
static tn_tensor *tni_steering_encoder(tn_ctx *ctx, const tni_steering *t, int64_t e, int64_t order)
{
    tn_tensor *x = tn_slice(t->encoders, 2, e, e + 1), *own = tni_steering_copy(t, x, order);
    return own && order ? tn_sub(ctx, own, tni_steering_copy(t, x, t->orders + 2)) : own;
}

/* The product of the encoders: polynomials of s that are cut after s^K */
static tn_tensor *tni_steering_hidden(tn_ctx *ctx, const tni_steering *t, tn_tensor *x, tn_tensor **c)
{
    const int64_t K = t->orders;
    tn_tensor    *zero = tni_steering_copy(t, x, 0);
    if (!t->encoders || !zero) return NULL;
    zero = tn_full(ctx, zero->rank, zero->shape, 0);
    for (int64_t i = 0; i <= K; i++) c[i] = tni_steering_encoder(ctx, t, 0, i);
    for (int64_t e = 1; e < t->encoders->shape[2]; e++)
        for (int64_t i = K; i >= 0; i--) {                  /* c[0..i] are still those of the encoders so far */
            tn_tensor *sum = NULL;
            for (int64_t j = 0; j <= i; j++) {
                tn_tensor *of = tn_mul(ctx, c[j], tni_steering_encoder(ctx, t, e, i - j));
                sum = sum ? tn_add(ctx, sum, of) : of;
            }
            c[i] = sum;
        }
    for (int64_t i = 1; i <= K && zero; i++) {
        c[i] = tn_reshape(tn_copy(ctx, c[i]), zero->rank, zero->shape);
    }
    c[0] = tni_steering_copy(t, x, 0);
    c[K + 1] = c[K + 2] = zero;
    c[K + 3] = tni_steering_copy(t, x, K + 3);
    return tni_steering_joined(ctx, t, c);
}

/* The copies of a point, with s added to the coefficient 1, to what passes no MLP, and to the frozen network */
static tn_tensor *tni_steering_added(tn_ctx *ctx, const tni_steering *t, const char *name, tn_tensor *x, tn_tensor **c)
{
    const int64_t K = t->orders;
    tn_tensor    *base = tni_steering_copy(t, x, 0);
    tn_tensor    *s = base ? tn_tap_edit(ctx, (void *)(uintptr_t)&t->desc->edit, name, base) : NULL;
    s = s ? tn_sub(ctx, s, base) : NULL;
    for (int64_t i = 0; i < K + 4 && s; i++) {
        c[i] = tni_steering_copy(t, x, i);
        if (i == 1 || i == K + 1 || i == K + 3) c[i] = tn_add(ctx, c[i], s);
    }
    return s ? tni_steering_joined(ctx, t, c) : NULL;
}

static bool tni_steering_held(const char *name)
{
    return tni_name_matches("*.scale", name) || tni_name_matches("*.pattern", name);
}

static tn_tensor *tni_steering_tap(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    tni_steering *t = (tni_steering *)user;
    const int64_t K = t->orders;
    tn_tensor    *c[TNI_STEERING_MOST + 4], *base = tni_steering_copy(t, x, 0);
    const bool    embed = strcmp(name, "embed") == 0;
    if (!base) return NULL;
    if (embed || tni_steering_held(name)) {
        tn_tensor *other = embed ? tn_full(ctx, base->rank, base->shape, 0) : base;
        for (int64_t i = 0; i < K + 4; i++) c[i] = i == 0 || i == K + 3 ? base : other;
        x = other ? tni_steering_joined(ctx, t, c) : NULL;
    }
    if (x && tni_name_matches("*.mlp.hidden", name)) x = tni_steering_hidden(ctx, t, x, c);
    if (x && strcmp(name, t->desc->point) == 0) x = tni_steering_added(ctx, t, name, x, c);
    if (tni_name_matches("*.mlp.encoders", name)) t->encoders = x;
    if (strcmp(name, "head") == 0 || (strcmp(name, "logits") == 0 && !t->logits)) t->logits = x;
    return x;
}

/* The logits before softcap, [B,T,vocab], with the edit or without it */
static tn_tensor *tni_steering_run(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, const tn_circuit_steering_desc *d)
{
    tn_tensor *logits = NULL;
    tn_tap     taps[2];
    taps[0].points = m->desc.softcap > 0 ? "head" : "logits";
    taps[0].fn = tn_tap_read;
    taps[0].user = &logits;
    taps[1].fn = tn_tap_edit;
    if (d) {
        taps[1].points = d->point;
        taps[1].user = (void *)(uintptr_t)&d->edit;
    }
    tn_tensor *y = tn_transformer_run(ctx, m, ids, taps, d ? 2 : 1);
    return y ? logits : NULL;
}

/* The first block whose MLP comes after a point */
static int64_t tni_steering_first(const tn_transformer *m, const char *point)
{
    static const char *const late[] = {".mlp.hidden", ".mlp.out", ".norm2_out", ".mlp", ""};
    const char   *rest = "";
    const int64_t l = tni_name_block(point, &rest);
    if (l < 0) return tni_name_matches("norm*", point) ? m->desc.layers : 0;
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) if (strcmp(rest, late[i]) == 0) return l + 1;
    return l;
}

static bool tni_steering_given(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, const tn_circuit_steering_desc *d)
{
    const char *op = "circuit_steering";
    if (!tni_circuit_given(ctx, m, 0, op) || !tni_model_given(ctx, m, ids, "ids", op)) return false;
    if (!d || !d->point) return tni_fail(ctx, TN_ERR_ARG, "%s: %s is NULL", op, d ? "point" : "the desc"), false;
    if (strchr(d->point, '*') || tni_steering_held(d->point) || strcmp(d->point, "head") == 0
        || strcmp(d->point, "logits") == 0)
        return tni_fail(ctx, TN_ERR_ARG, "%s: point is %s, expected one point before the logits that is no pattern and no "
                        "scale", op, tni_quote(d->point).s), false;
    if (!tni_within(ctx, op, "orders", d->orders, 0, TNI_STEERING_MOST)) return false;
    if (ids->shape[0] < 1 || ids->shape[1] < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: ids is %s, expected at least one text and one token", op, TNI_SHAPE(ids)), false;
    for (int64_t l = tni_steering_first(m, d->point); l < m->desc.layers; l++) {
        const tn_mlp_kind kind = m->blocks[l].mlp.desc.kind;
        if (kind == TN_MLP_BILINEAR) continue;
        return tni_fail(ctx, TN_ERR_ARG, "%s: the MLP of block %lld is %s, expected bilinear MLPs after the point: others "
                        "are no polynomial", op, (long long)l, tn_mlp_kind_name(kind)), false;
    }
    return true;
}

static double tni_steering_norm(tn_ctx *ctx, tn_tensor *x)
{
    x = x ? tn_sum(ctx, tn_mul(ctx, x, x)) : NULL;
    return x ? sqrt(tn_item(x)) : HUGE_VAL;
}

static bool tni_steering_parts(tn_ctx *ctx, const tni_steering *t, tn_tensor *y, tn_circuit_steering *out)
{
    const int64_t K = t->orders;
    tn_tensor    *c[TNI_STEERING_MOST + 4] = {NULL}, *sum, *frozen, *zero = tni_steering_copy(t, y, K + 2);
    for (int64_t i = 1; i <= K + 1; i++) c[i] = tn_sub(ctx, tni_steering_copy(t, y, i), zero);
    c[0] = c[K + 1];
    c[1] = tn_sub(ctx, c[1], c[0]);
    frozen = sum = tn_sub(ctx, tni_steering_copy(t, y, K + 3), tni_steering_copy(t, y, 0));
    for (int64_t i = 0; i <= K; i++) sum = tn_sub(ctx, sum, c[i]);
    if (!sum || !(sum = tn_copy(ctx, sum))) return false;
    out->logits = tn_tensor_keep(tni_steering_copy(t, y, 0));
    out->frozen = tn_tensor_keep(frozen);
    out->parts = tn_tensor_keep(tn_stack(ctx, K + 1, c, 0));
    double size = tni_steering_norm(ctx, frozen);
    out->rest = tni_steering_norm(ctx, sum);
    if (size > 0) out->rest /= size;
    return out->logits && out->frozen && out->parts;
}

tn_status tn_circuit_steering_of(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, const tn_circuit_steering_desc *desc,
                                 tn_circuit_steering *out)
{
    tn_tensor *c[TNI_STEERING_MOST + 4];
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if (!ctx || !tni_steering_given(ctx, m, ids, desc)) return ctx ? tn_ctx_status(ctx) : TN_ERR_ARG;
    tni_scope scope = tni_scope_begin(ctx);
    tni_steering t = TNI_ZERO;
    t.desc = desc;
    t.orders = out->orders = desc->orders ? desc->orders : 2;
    t.texts = ids->shape[0];
    const tn_tap tap = {"*", tni_steering_tap, &t};
    tn_tensor *without = tni_steering_run(ctx, m, ids, NULL);
    tn_tensor *with = without ? tni_steering_run(ctx, m, ids, desc) : NULL;
    for (int64_t i = 0; i < t.orders + 4; i++) c[i] = ids;
    tn_tensor *all = with ? tni_steering_joined(ctx, &t, c) : NULL;
    bool       whole = all && tn_transformer_run(ctx, m, all, &tap, 1) && tni_steering_parts(ctx, &t, t.logits, out);
    if (whole) out->measured = tn_tensor_keep(tn_sub(ctx, with, without));
    whole = whole && out->measured && tn_ctx_sync(ctx) == TN_OK;
    tni_scope_end(ctx, scope);
    if (whole) return TN_OK;
    tn_circuit_steering_destroy(out);
    return tn_ctx_status(ctx);
}

void tn_circuit_steering_destroy(tn_circuit_steering *o)
{
    tni_result_end(o, sizeof *o, offsetof(tn_circuit_steering, logits), 4);
}

/* ---- two models --------------------------------------------------------- >>circuits-alignment-impl */

/* The MLP of a block, from tokens to logits if these are asked for */
static tn_cp *tni_align_mlp(tn_ctx *ctx, const tn_transformer *m, int64_t block, bool tokens)
{
    tn_cp *cp = tn_circuit_mlp(ctx, m, block);
    if (!cp || !tokens) return cp;
    tni_scope  scope = tni_scope_begin(ctx);
    tn_tensor *x = tni_circuit_tokens(ctx, m, block);
    tn_tensor *u = tn_circuit_unembedding(ctx, m);
    cp = tni_cp_next(cp, x && u ? tn_cp_fold_in(cp, tn_transpose(x, 0, 1), NULL) : NULL);
    if (cp) cp = tni_cp_next(cp, tn_cp_fold_out(cp, u, NULL));
    tni_scope_end(ctx, scope);
    return cp;
}

/* The OV circuit of a head as an operator of order 1 */
static tn_cp *tni_align_ov(tn_ctx *ctx, const tn_transformer *m, int64_t block, int64_t head, bool tokens)
{
    tn_circuit_desc d = TNI_ZERO;
    d.block = block;
    d.head = head;
    d.tokens = tokens;
    d.factor = 1;                                           /* has no influence on a cosine */
    tn_circuit *c = tn_circuit_ov(ctx, m, &d);
    tn_tensor  *f = c ? tn_transpose(c->right[0], 0, 1) : NULL;
    tn_cp      *cp = f ? tn_cp_create(ctx, 1, c->left[0], &f, TN_CP_INPUT_PLAIN) : NULL;
    tn_circuit_destroy(c);
    return cp;
}

static bool tni_align_heads(tn_ctx *ctx, const tn_transformer *a, const tn_transformer *b, int64_t block, bool tokens,
                            double *cosine)
{
    const int64_t Ha = a->desc.heads, Hb = b->desc.heads;
    bool          whole = true;
    for (int64_t i = 0; i < Ha && whole; i++) {
        tn_cp *x = tni_align_ov(ctx, a, block, i, tokens);
        for (int64_t j = 0; j < Hb && whole; j++) {
            tn_cp *y = x ? tni_align_ov(ctx, b, block, j, tokens) : NULL;
            whole = y && tn_cp_cosine(x, y, &cosine[i * Hb + j]) == TN_OK;
            tn_cp_destroy(y);
        }
        tn_cp_destroy(x);
    }
    return whole;
}

tn_status tn_circuit_align(tn_ctx *ctx, const tn_transformer *a, const tn_transformer *b, int64_t block, bool tokens,
                           tn_circuit_alignment *out)
{
    const char *op = "circuit_align";
    tn_cp      *unaligned = NULL;
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if (!tni_circuit_given(ctx, a, block, op) || !tni_circuit_given(ctx, b, block, op))
        return ctx ? tn_ctx_status(ctx) : TN_ERR_ARG;
    tni_scratch w = tni_scratch_begin(ctx, op);
    double     *cosine = tni_take_zeros(&w, a->desc.heads, b->desc.heads);
    if (cosine) out->a = tni_align_mlp(ctx, a, block, tokens);
    if (out->a) unaligned = tni_align_mlp(ctx, b, block, tokens);
    bool whole = unaligned && tn_cp_align(out->a, unaligned, &out->b, &out->cosines) == TN_OK
                 && tn_cp_cosine(out->a, out->b, &out->cosine) == TN_OK && tni_align_heads(ctx, a, b, block, tokens, cosine)
                 && (out->heads = tni_owned_from(ctx, 2, TNI_DIMS(a->desc.heads, b->desc.heads), cosine)) != NULL;
    tn_cp_destroy(unaligned);
    tni_scratch_release(&w, NULL);
    if (whole) return TN_OK;
    tn_circuit_alignment_destroy(out);
    return tn_ctx_status(ctx);
}

void tn_circuit_alignment_destroy(tn_circuit_alignment *o)
{
    if (!o) return;
    tn_cp_destroy(o->a);
    tn_cp_destroy(o->b);
    tni_drop(&o->cosines);
    tni_drop(&o->heads);
    memset(o, 0, sizeof *o);
}
#endif /* TN_NO_CIRCUITS */
