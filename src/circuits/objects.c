#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "layers/inner.h"
#include "operator/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ======================================================================
   >>circuits-impl  what a transformer does, read from its weights
   A circuit is two or four matrices of factors; everything else is products of them.
   ====================================================================== */

/* ---- circuits ----------------------------------------------------------- >>circuits-objects-impl */

typedef struct tni_circuit_box { tni_owned owned; tn_circuit circuit; } tni_circuit_box;

static void tni_circuit_free(tni_owned *o)
{
    tni_circuit_box *box = (tni_circuit_box *)(void *)o;
    for (int s = 0; s < 2; s++) {
        tn_tensor_destroy(box->circuit.left[s]);
        tn_tensor_destroy(box->circuit.right[s]);
    }
    tni_object_free(o, sizeof *box);
}

void tn_circuit_destroy(tn_circuit *c)
{
    if (c) tni_circuit_free(&((tni_circuit_box *)(void *)((char *)c - offsetof(tni_circuit_box, circuit)))->owned);
}

TNI_COLD tn_circuit *tn_circuit_create(tn_ctx *ctx, int sets, tn_tensor *const *left, tn_tensor *const *right)
{
    tni_circuit_box *box;
    if (!ctx || !left || !right) return NULL;
    if (sets < 1 || sets > 2)
        return tni_fail(ctx, TN_ERR_ARG, "circuit: sets is %d, expected 1 or 2", sets), (tn_circuit *)NULL;
    for (int s = 0; s < sets; s++) {
        if (!tni_is_matrix(ctx, left[s], "circuit", "left")) return NULL;
        if (!tni_is_matrix(ctx, right[s], "circuit", "right")) return NULL;
        if (left[s]->shape[1] != right[s]->shape[1] || left[s]->shape[0] != left[0]->shape[0]
            || right[s]->shape[0] != right[0]->shape[0])
            return tni_fail(ctx, TN_ERR_SHAPE, "circuit: left %d is %s and right %d is %s, expected [%lld,rank] and "
                            "[%lld,rank]", s, TNI_SHAPE(left[s]), s, TNI_SHAPE(right[s]), (long long)left[0]->shape[0],
                            (long long)right[0]->shape[0]), (tn_circuit *)NULL;
    }
    if (!(box = (tni_circuit_box *)tni_object(ctx, sizeof *box, "circuit", tni_circuit_free))) return NULL;
    tn_circuit *c = &box->circuit;
    c->ctx = ctx;
    c->sets = sets;
    c->rows = left[0]->shape[0];
    c->columns = right[0]->shape[0];
    for (int s = 0; s < sets; s++) {
        c->left[s] = tn_tensor_keep(left[s]);
        c->right[s] = tn_tensor_keep(right[s]);
        if (!c->left[s] || !c->right[s]) return tn_circuit_destroy(c), (tn_circuit *)NULL;
    }
    return c;
}

tn_tensor *tn_circuit_rows(tn_ctx *ctx, const tn_circuit *c, int64_t first, int64_t count)
{
    tn_tensor *y = NULL;
    if (!ctx || !c) return NULL;
    if (first < 0 || count < 0 || first > c->rows - count)
        return tni_fail(ctx, TN_ERR_SHAPE, "circuit_rows: first is %lld and count %lld, expected rows from 0 to %lld",
                        (long long)first, (long long)count, (long long)c->rows - 1), (tn_tensor *)NULL;
    for (int s = 0; s < c->sets; s++) {
        tn_tensor *part = tn_affine(ctx, tn_slice(c->left[s], 0, first, first + count), c->right[s], NULL);
        y = s ? tn_mul(ctx, y, part) : part;
    }
    return y;
}

/* ---- what a circuit reads ----------------------------------------------- >>circuits-reading */

TNI_COLD_FN bool tni_circuit_given(tn_ctx *ctx, const tn_transformer *m, int64_t block, const char *op)
{
    if (!ctx) return false;
    if (!m || !m->blocks || !tni_alive(m->embed.w))
        return tni_fail(ctx, TN_ERR_ARG, "%s: the model is %s", op,
                        !m ? "NULL" : m->blocks ? "destroyed" : "not initialised"), false;
    return tni_within(ctx, op, "block", block, 0, m->desc.layers - 1);
}

static bool tni_circuit_head(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d, const char *op)
{
    if (!ctx) return false;
    if (!d) return tni_fail(ctx, TN_ERR_ARG, "%s: the desc is NULL", op), false;
    if (!tni_circuit_given(ctx, m, d->block, op) || !tni_within(ctx, op, "head", d->head, 0, m->desc.heads - 1)) return false;
    if (d->query >= 0 && d->key >= 0 && d->query <= INT32_MAX && d->key <= INT32_MAX) return true;
    return tni_fail(ctx, TN_ERR_ARG, "%s: query is %lld and key %lld, expected positions from 0 to %d", op,
                    (long long)d->query, (long long)d->key, INT32_MAX), false;
}

/* What a part of the model that the caller asked for cannot be. */
TNI_COLD_FN bool tni_circuit_refused(tn_ctx *ctx, const char *op, bool is, const char *what, const char *why)
{
    if (is) tni_fail(ctx, TN_ERR_ARG, "%s: the model has %s: %s", op, what, why);
    return is;
}

/* Whether what a branch adds to the stream is normed again. */
TNI_COLD_FN bool tni_circuit_normed_after(tn_ctx *ctx, const tn_transformer *m, const char *op)
{
    return tni_circuit_refused(ctx, op, m->desc.norm_place != TN_PLACE_PRE,
                               m->desc.norm_place == TN_PLACE_POST ? "post norms" : "sandwich norms",
                               "what is written to the residual stream is normed again, expected pre-norms or none");
}

/* The rows [diag(gain) C; bias], and with `constant` the column of the one: what is read per direction of the normed stream.
   [dim,dim] or [dim+1,dim+1]; the rows of directions times `factor`. C centres where the norm is a LayerNorm. */
TNI_COLD_FN tn_tensor *tni_circuit_basis(tn_ctx *ctx, const tn_transformer *m, const tn_norm *norm, bool constant, double factor)
{
    const int64_t dim = m->desc.dim, row[2] = {1, dim};
    const bool    normed = !m->desc.no_norm && m->desc.norm_place != TN_PLACE_POST;
    tn_tensor    *x = tn_eye(ctx, dim);
    if (normed && norm->desc.kind == TN_NORM_LAYER) x = tn_sub(ctx, x, tn_full(ctx, 2, row, 1 / (double)dim));
    if (normed && norm->gain) x = tn_mul(ctx, x, norm->gain);
    if (x && factor != 1) x = tn_scale(ctx, x, factor);
    if (!x || !constant) return x;
    tn_tensor *join[2] = {x, normed && norm->bias ? tn_reshape(norm->bias, 2, row) : tn_full(ctx, 2, row, 0)};
    join[0] = tn_concat(ctx, 2, join, 0);
    join[1] = tn_slice(tn_eye(ctx, dim + 1), 1, dim, dim + 1);
    return join[0] && join[1] ? tn_concat(ctx, 2, join, 1) : NULL;
}

/* The residual stream before block 0 of each token, alone at a position: [vocab,1,dim] */
TNI_COLD_FN tn_tensor *tni_circuit_stream(tn_ctx *ctx, const tn_transformer *m, int64_t position)
{
    const int64_t vocab = m->desc.vocab;
    tni_scratch   w = tni_scratch_begin(ctx, "circuit");
    tn_tensor    *ids = tn_tensor_2d(ctx, TN_I32, vocab, 1);
    int32_t      *all = (int32_t *)tni_take(&w, vocab, sizeof *all);
    for (int64_t i = 0; i < vocab && all; i++) all[i] = (int32_t)i;
    const tn_status s = tni_scratch_end(&w, ids && all ? tn_write(ids, TN_I32, all, vocab) : TN_ERR_MEMORY);
    return s == TN_OK ? tni_model_embedded(ctx, m, ids, position, NULL) : NULL;
}

/* What the attention of a block reads: rows of tokens, or of directions, ending with the one if `constant`. */
static tn_tensor *tni_circuit_input(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d, bool constant,
                                    int64_t position, const char *op)
{
    const tn_transformer_block *b = &m->blocks[d->block];
    const bool normed = !m->desc.no_norm && m->desc.norm_place != TN_PLACE_POST;
    tn_tensor *x, *x0;
    if (!d->tokens) return tni_circuit_basis(ctx, m, &b->norm1, constant, 1);
    if (d->block > 0) {
        if (tni_circuit_refused(ctx, op, b->lambdas != NULL, "x0_residual",
                                "tokens reach a later block in several ways, expected directions of the stream")
            || tni_circuit_refused(ctx, op, m->desc.norm_place == TN_PLACE_POST, "post norms",
                                   "tokens reach a later block through them, expected directions of the stream"))
            return NULL;
        if (normed && !(d->norm_scale > 0 && d->norm_scale < HUGE_VAL))
            return tni_fail(ctx, TN_ERR_ARG, "%s: norm_scale is %g, expected a number > 0: the denominator of norm1 in block "
                            "%lld depends on the text", op, d->norm_scale, (long long)d->block), (tn_tensor *)NULL;
    }
    x = x0 = tni_circuit_stream(ctx, m, position);
    if (x && d->block == 0) x = tni_model_attended(ctx, m, b, &x, x0, NULL);
    x = tn_reshape_2d(x, m->desc.vocab, m->desc.dim);
    if (x && constant) x = tn_append_one(ctx, x);
    if (!x || d->block == 0) return x;
    return tn_matmul(ctx, x, tni_circuit_basis(ctx, m, &b->norm1, constant, normed ? d->norm_scale : 1));
}

/* x w^T, and b times the last column of x where there is a bias */
static tn_tensor *tni_circuit_through(tn_ctx *ctx, tn_tensor *x, tn_tensor *w, tn_tensor *b)
{
    const int64_t n = w ? w->shape[1] : 0;
    if (!x || !w) return NULL;
    tn_tensor *y = tn_matmul(ctx, tn_slice(x, 1, 0, n), tn_transpose(w, 0, 1));
    return y && b ? tn_add(ctx, y, tn_mul(ctx, tn_slice(x, 1, n, n + 1), b)) : y;
}

/* Queries or keys of one head: [rows,d_qk], rotated to a position and, where it is exact, normed. */
static tn_tensor *tni_circuit_part(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d, tn_tensor *x,
                                   tn_head_part part, int64_t position)
{
    const tn_attention *a = &m->blocks[d->block].attn;
    const int64_t       s = a->qk->shape[0] / 2, dq = a->desc.d_qk;
    const int64_t       at = (part == TN_HEAD_K1 || part == TN_HEAD_K2 ? s : 0) + (part == TN_HEAD_Q2 || part == TN_HEAD_K2);
    tn_tensor *b = a->qkb && x && x->shape[1] > m->desc.dim ? tn_slice(a->qkb, 0, at, at + 1) : NULL;
    tn_tensor *gain = a->qk_gain ? tn_slice(a->qk_gain, 0, at * dq, (at + 1) * dq) : NULL;
    if (b) b = tn_slice(b, 1, d->head * dq, (d->head + 1) * dq);
    x = tni_circuit_through(ctx, x, tn_attention_head(a, d->head, part), b);
    x = x ? tn_reshape(x, 4, TNI_DIMS(x->shape[0], 1, 1, dq)) : NULL;
    return tn_reshape_2d(tni_attention_rotated(ctx, &a->desc, x, gain, position, a->desc.qk_norm && d->tokens && d->block == 0),
                         -1, dq);
}

/* ---- heads -------------------------------------------------------------- >>circuits-heads */

/* `plain` leaves out biases. */
TNI_COLD_FN tn_circuit *tni_circuit_qk(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d, bool plain, const char *op)
{
    static const tn_head_part parts[2][2] = {{TN_HEAD_Q1, TN_HEAD_K1}, {TN_HEAD_Q2, TN_HEAD_K2}};
    const tn_transformer_block *b = &m->blocks[d->block];
    const tn_attention_desc    *a = &b->attn.desc;
    const int  sets = (int)b->attn.qk->shape[0] / 2, factors = a->kind == TN_ATTENTION_SQUARED ? 2 : sets;
    const bool constant = !plain && (b->attn.qkb || (b->norm1.bias && m->desc.norm_place != TN_PLACE_POST));
    tn_circuit *c = NULL;
    tn_tensor  *side[2][2] = {{NULL, NULL}, {NULL, NULL}};
    double      scale = a->scale;
    int         n = 0;
    if (!tni_within(ctx, op, "set", d->set, 0, sets)) return NULL;
    if (tni_circuit_refused(ctx, op, d->set == 0 && tni_attention_kinds[a->kind].differential, "differential attention",
                            "its two sets are not multiplied, expected set 1 or 2")
        || tni_circuit_refused(ctx, op, a->qk_norm && d->tokens && d->block > 0, "QK-norm",
                               "in later blocks it depends on the text, expected directions of the stream")) return NULL;
    if (scale == 0) scale = tni_attention_kinds[a->kind].attend == TN_ATTEND_SOFTMAX ? 1 / sqrt((double)a->d_qk)
                                                                                     : 1 / (double)a->d_qk;
    tn_tensor *query = tni_circuit_input(ctx, m, d, constant, d->query, op);
    tn_tensor *key = query && m->position && d->tokens ? tni_circuit_input(ctx, m, d, constant, d->key, op) : query;
    for (int i = 0; i < factors && key; i++) {
        const int set = d->set > 0 ? d->set - 1 : sets == 2 ? i : 0;
        if (d->set > 0 && i > 0) break;
        side[0][i] = tni_circuit_part(ctx, m, d, query, parts[set][0], d->query);
        side[1][i] = tni_circuit_part(ctx, m, d, key, parts[set][1], d->key);
        side[0][i] = side[0][i] ? tn_scale(ctx, side[0][i], scale) : NULL;
        n++;
    }
    if (n > 0 && side[0][n - 1] && side[1][n - 1]) c = tn_circuit_create(ctx, n, side[0], side[1]);
    return c;
}

TNI_COLD tn_circuit *tn_circuit_qk(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d)
{
    if (!tni_circuit_head(ctx, m, d, "circuit_qk")) return NULL;
    tni_scope   scope = tni_scope_begin(ctx);
    tn_circuit *c = tni_circuit_qk(ctx, m, d, false, "circuit_qk");
    tni_scope_end(ctx, scope);
    return c;
}

/* Values of one head per row of x: [rows,d_v] */
TNI_COLD_FN tn_tensor *tni_circuit_values(tn_ctx *ctx, const tn_transformer *m, int64_t block, int64_t h, tn_tensor *x)
{
    const tn_attention *a = &m->blocks[block].attn;
    const int64_t       dv = a->desc.d_v;
    tn_tensor          *b = a->vb && x && x->shape[1] > m->desc.dim ? tn_slice(a->vb, 0, h * dv, (h + 1) * dv) : NULL;
    return tni_circuit_through(ctx, x, tn_attention_head(a, h, TN_HEAD_V), b);
}

/* Whether what a head writes is linear in the normed stream. */
TNI_COLD_FN bool tni_circuit_writes(tn_ctx *ctx, const tn_transformer *m, int64_t block, const char *op)
{
    const tn_attention *a = &m->blocks[block].attn;
    return !tni_circuit_normed_after(ctx, m, op)
           && !tni_circuit_refused(ctx, op, a->desc.head_norm || a->desc.kind == TN_ATTENTION_DIFFERENTIAL,
                                   a->desc.head_norm ? "head_norm" : "differential attention",
                                   "the norm of a head's output depends on all that it reads")
           && !tni_circuit_refused(ctx, op, a->mix && block > 0, "value_residual",
                                   "a head of a later block reads the first block's values as well");
}

TNI_COLD_FN tn_circuit *tni_circuit_ov(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d, bool plain, const char *op)
{
    const tn_transformer_block *b = &m->blocks[d->block];
    const bool constant = !plain && (b->attn.vb || b->norm1.bias);
    if (!tni_circuit_writes(ctx, m, d->block, op)) return NULL;
    tn_tensor *x = tni_circuit_input(ctx, m, d, constant, d->key, op);
    tn_tensor *right = tni_circuit_values(ctx, m, d->block, d->head, x);
    tn_tensor *left = right ? tn_attention_head(&b->attn, d->head, TN_HEAD_O) : NULL;
    if (left && d->tokens) left = tn_matmul(ctx, tn_circuit_unembedding(ctx, m), left);
    left = left ? tn_scale(ctx, left, m->desc.attn_scale) : NULL;
    return left ? tn_circuit_create(ctx, 1, &left, &right) : NULL;
}

TNI_COLD tn_circuit *tn_circuit_ov(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_desc *d)
{
    if (!tni_circuit_head(ctx, m, d, "circuit_ov")) return NULL;
    tni_scope   scope = tni_scope_begin(ctx);
    tn_circuit *c = tni_circuit_ov(ctx, m, d, false, "circuit_ov");
    tni_scope_end(ctx, scope);
    return c;
}

tn_tensor *tn_circuit_unembedding(tn_ctx *ctx, const tn_transformer *m)
{
    if (!tni_circuit_given(ctx, m, 0, "circuit_unembedding")) return NULL;
    return m->desc.no_norm || m->desc.norm_place == TN_PLACE_POST || (m->desc.norm == TN_NORM_RMS && !m->norm.gain)
        ? m->head.w : tn_matmul(ctx, m->head.w, tn_transpose(tni_circuit_basis(ctx, m, &m->norm, false, 1), 0, 1));
}

#endif /* TN_NO_CIRCUITS */
