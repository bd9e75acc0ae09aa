#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "algebra/algebra.h"
#include "decomp/inner.h"
#include "layers/layers.h"
#include "operator/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- tables ------------------------------------------------------------- >>circuits-tables-impl */

/* The stream of each token after some blocks whose patterns are 0: [vocab,1,dim], owned. b_O is all that attention adds. What
   a block needs meanwhile, some times vocab hidden units, is released before the next one. */
static tn_tensor *tni_circuit_alone(tn_ctx *ctx, const tn_transformer *m, int64_t blocks, int64_t position)
{
    tn_tensor *x0 = tni_circuit_stream(ctx, m, position), *x = tn_tensor_keep(x0);
    for (int64_t l = 0; l < blocks && x; l++) {
        const tn_transformer_block *b = &m->blocks[l];
        const tni_scope scope = tni_scope_begin(ctx);
        tn_tensor                  *y = b->lambdas ? tni_model_mix(ctx, b->lambdas, x, x0) : x;
        y = tni_model_after(ctx, m, b, y, b->attn.ob ? b->attn.ob : tn_full(ctx, 1, &m->desc.dim, 0), NULL, NULL, NULL);
        if (y) y = tn_tensor_keep(y);
        tni_scope_end(ctx, scope);
        tn_tensor_destroy(x);
        x = y;
    }
    return x;
}

tn_circuit *tn_circuit_bigrams(tn_ctx *ctx, const tn_transformer *m, int64_t blocks, int64_t position)
{
    tn_tensor  *stream, *x;
    tn_circuit *c = NULL;
    if (!tni_circuit_given(ctx, m, 0, "circuit_bigrams")) return NULL;
    if (blocks < 0 || blocks > m->desc.layers || position < 0 || position > INT32_MAX)
        return tni_fail(ctx, TN_ERR_ARG, "circuit_bigrams: blocks is %lld and position %lld, expected 0 to %lld and 0 to %d",
                        (long long)blocks, (long long)position, (long long)m->desc.layers, INT32_MAX), (tn_circuit *)NULL;
    tni_scope scope = tni_scope_begin(ctx);
    x = stream = tni_circuit_alone(ctx, m, blocks, position);
    if (x && m->desc.norm_place != TN_PLACE_POST) x = tni_model_normed(ctx, m, &m->norm, x, NULL, "");
    x = tn_reshape_2d(x, m->desc.vocab, m->desc.dim);
    tn_tensor *head = m->head.w;
    if (x) c = tn_circuit_create(ctx, 1, &x, &head);
    tni_scope_end(ctx, scope);
    tn_tensor_destroy(stream);
    return c;
}

static bool tni_circuit_vectors(tn_ctx *ctx, const tn_cp *cp, const tn_tensor *x, const char *what)
{
    if (!tni_is_matrix(ctx, x, "circuit_interactions", what)) return false;
    if (x->shape[1] == cp->in[0]) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "circuit_interactions: %s is %s, expected [vectors,%lld], the operator's inputs%s", what,
                    TNI_SHAPE(x), (long long)cp->in[0], cp->constant ? " with the one" : ""), false;
}

tn_circuit *tn_circuit_interactions(tn_ctx *ctx, const tn_cp *cp, const tn_tensor *u, tn_tensor *x, tn_tensor *y)
{
    tn_tensor  *q;
    tn_circuit *c = NULL;
    if (!ctx || !cp || !u) return NULL;
    if (x && !tni_circuit_vectors(ctx, cp, x, "x")) return NULL;
    if (y && !tni_circuit_vectors(ctx, cp, y, "y")) return NULL;
    if (!(q = tn_cp_interaction(cp, u))) return NULL;
    tni_scope  scope = tni_scope_begin(ctx);
    tn_tensor *left = x ? tn_matmul(ctx, x, q) : q;
    if (!y) y = tn_eye(ctx, q->shape[0]);
    if (left && y) c = tn_circuit_create(ctx, 1, &left, &y);
    tni_scope_end(ctx, scope);
    tn_tensor_destroy(q);
    return c;
}

/* Each token alone, as the MLP's operator reads it: normed without gain and bias, which are in the operator. [vocab,dim] */
TNI_COLD_FN tn_tensor *tni_circuit_tokens(tn_ctx *ctx, const tn_transformer *m, int64_t block)
{
    tn_tensor *x = tni_circuit_stream(ctx, m, 0);
    tn_norm    norm = m->blocks[block].norm2;
    norm.gain = norm.bias = NULL;
    if (x && !m->desc.no_norm) x = tn_norm_forward(ctx, &norm, x);
    return tn_reshape_2d(x, m->desc.vocab, m->desc.dim);
}

tn_circuit *tn_circuit_pairs(tn_ctx *ctx, const tn_transformer *m, int64_t block, int64_t out)
{
    tn_cp      *cp;
    tn_circuit *c = NULL;
    if (!tni_circuit_given(ctx, m, block, "circuit_pairs")) return NULL;
    if (!tni_within(ctx, "circuit_pairs", "out", out, 0, m->desc.vocab - 1)) return NULL;
    if (tni_circuit_refused(ctx, "circuit_pairs", m->blocks[block].lambdas != NULL, "x0_residual",
                            "tokens reach the MLP in several ways")
        || !(cp = tn_circuit_mlp(ctx, m, block))) return NULL;
    tni_scope  scope = tni_scope_begin(ctx);
    tn_tensor *x = tni_circuit_tokens(ctx, m, block);
    if (x && cp->constant) x = tn_append_one(ctx, x);
    tn_tensor *u = tn_reshape(tn_slice(tn_circuit_unembedding(ctx, m), 0, out, out + 1), 1, &m->desc.dim);
    if (x && u) c = tn_circuit_interactions(ctx, cp, u, x, x);
    tni_scope_end(ctx, scope);
    tn_cp_destroy(cp);
    return c;
}

tn_circuit *tn_circuit_select(const tn_circuit *c, tn_tensor *rows, tn_tensor *columns)
{
    tn_tensor  *l[2], *r[2];
    tn_circuit *to = NULL;
    bool        whole = true;
    if (!c) return NULL;
    tni_scope scope = tni_scope_begin(c->ctx);
    for (int s = 0; s < c->sets && whole; s++) {
        l[s] = rows ? tn_embed(c->ctx, c->left[s], rows) : c->left[s];
        r[s] = columns ? tn_embed(c->ctx, c->right[s], columns) : c->right[s];
        whole = l[s] && r[s];
    }
    if (whole && tn_ctx_sync(c->ctx) == TN_OK) to = tn_circuit_create(c->ctx, c->sets, l, r);
    tni_scope_end(c->ctx, scope);
    return to;
}

/* mean_i prod_s (a_s[i].b_s[j]) for all j: with the matrix mean_i a_1 a_2^T if there are two sets */
static tn_tensor *tni_circuit_mean(const tn_circuit *c, tn_tensor *const *a, tn_tensor *const *b)
{
    tn_tensor *in[4];
    if (c->sets == 1) {
        in[0] = a[0]; in[1] = b[0];
        in[0] = tn_einsum(c->ctx, "ik,jk->j", 2, in);
    } else {
        in[0] = a[0]; in[1] = a[1]; in[2] = b[0]; in[3] = b[1];
        in[0] = tn_einsum(c->ctx, "ik,il,jk,jl->j", 4, in);
    }
    return in[0] ? tn_tensor_keep(tn_scale(c->ctx, in[0], 1 / (double)a[0]->shape[0])) : NULL;
}

tn_status tn_circuit_means(const tn_circuit *c, tn_tensor **columns, tn_tensor **rows)
{
    if (columns) *columns = NULL;
    if (rows) *rows = NULL;
    if (!c) return TN_ERR_ARG;
    tni_scope scope = tni_scope_begin(c->ctx);
    if (columns) *columns = tni_circuit_mean(c, c->left, c->right);
    if (rows) *rows = tni_circuit_mean(c, c->right, c->left);
    tni_scope_end(c->ctx, scope);
    if ((!columns || *columns) && (!rows || *rows)) return TN_OK;
    if (columns) tni_drop(columns);
    if (rows) tni_drop(rows);
    return tn_ctx_status(c->ctx);
}

/* ---- the first entries --------------------------------------------------- >>circuits-best */

typedef struct tni_circuit_search {
    const tn_circuit *c;
    tn_circuit_top_desc desc;
    tni_heap best;
    double   squares;
} tni_circuit_search;

static tn_status tni_circuit_offer(void *user, int64_t first, int64_t count, const double *v)
{
    tni_circuit_search *t = (tni_circuit_search *)user;
    const int64_t       n = t->c->columns;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = t->desc.pairs ? first + i : 0; j < n; j++) {
            const double x = t->desc.pairs && j > first + i ? 2 * v[i * n + j] : v[i * n + j];
            t->squares += x * x;
            tni_heap_offer(&t->best, x, (first + i) * n + j);
        }
    return TN_OK;
}

enum { TNI_CIRCUIT_LISTS = 4 };
typedef struct tni_circuit_searches { int count; tni_circuit_search list[TNI_CIRCUIT_LISTS]; } tni_circuit_searches;

static tn_status tni_circuit_offer_all(void *user, int64_t first, int64_t count, const double *v)
{
    tni_circuit_searches *t = (tni_circuit_searches *)user;
    tn_status s = TN_OK;
    for (int k = 0; k < t->count && s == TN_OK; k++) s = tni_circuit_offer(&t->list[k], first, count, v);
    return s;
}

static tn_status tni_circuit_found(tni_circuit_search *t, tn_circuit_entries *out)
{
    tn_ctx       *ctx = t->c->ctx;
    const int64_t n = t->best.held;
    tni_scratch   w = tni_scratch_begin(ctx, "circuit_top");
    double       *v = tni_take_f64(&w, n, 1);
    int32_t      *index = (int32_t *)tni_take(&w, tni_area(2, n), sizeof *index);
    for (int64_t i = 0; i < n && index; i++) {
        v[i] = t->best.found[i].value;
        index[2 * i] = (int32_t)(t->best.found[i].at / t->c->columns);
        index[2 * i + 1] = (int32_t)(t->best.found[i].at % t->c->columns);
    }
    out->count = n;
    out->norm = sqrt(t->squares);
    if (index) out->values = tni_owned_from(ctx, 1, &n, v);
    if (out->values) out->index = tn_tensor_create(ctx, TN_I32, 2, TNI_DIMS(n, 2));
    tn_status s = out->index ? tn_write(out->index, TN_I32, index, 2 * n) : tn_ctx_status(ctx);
    for (int64_t i = 0; i < n && s == TN_OK; i++) v[i] = t->squares > 0 ? v[i] * v[i] / t->squares : 0;
    if (s == TN_OK && !(out->share = tni_owned_from(ctx, 1, &n, v))) s = tn_ctx_status(ctx);
    return tni_scratch_end(&w, s);
}

static tn_status tni_circuit_search_begin(tni_circuit_search *t, tni_scratch *w, const tn_circuit *c,
                                          const tn_circuit_top_desc *desc)
{
    if (!desc || desc->top < 1 || desc->top > INT32_MAX / 8 || (unsigned)desc->order > TN_ORDER_MAGNITUDE)
        return tni_fail(c->ctx, TN_ERR_ARG, "circuit_top: top is %lld and order %d, expected at least 1 and a tn_order",
                        desc ? (long long)desc->top : 0, desc ? (int)desc->order : 0);
    if (desc->pairs && c->rows != c->columns)
        return tni_fail(c->ctx, TN_ERR_SHAPE, "circuit_top: the circuit is [%lld,%lld], expected a square one for pairs",
                        (long long)c->rows, (long long)c->columns);
    t->c = c;
    t->desc = *desc;
    if (c->columns == 0 || c->rows <= desc->top / c->columns) t->desc.top = c->rows * c->columns;
    t->best = tni_take_heap(w, desc->order, t->desc.top);
    return w->failed ? TN_ERR_MEMORY : TN_OK;
}

tn_status tn_circuit_top_many(const tn_circuit *c, int count, const tn_circuit_top_desc *desc, tn_circuit_entries *out)
{
    tn_status s = TN_OK;
    if (out && count > 0) memset(out, 0, (size_t)count * sizeof *out);
    if (!c || !out) return TN_ERR_ARG;
    if (!tni_within(c->ctx, "circuit_top_many", "count", count, 1, TNI_CIRCUIT_LISTS)) return TN_ERR_ARG;
    tni_circuit_searches t = TNI_ZERO;
    tni_scratch w = tni_scratch_begin(c->ctx, "circuit_top");
    t.count = count;
    for (int k = 0; k < count && s == TN_OK; k++) s = tni_circuit_search_begin(&t.list[k], &w, c, desc ? &desc[k] : NULL);
    if (s == TN_OK) s = tni_circuit_each(c, "circuit_top", tni_circuit_offer_all, &t);
    for (int k = 0; k < count && s == TN_OK; k++) {
        tni_heap_sort(&t.list[k].best);
        s = tni_circuit_found(&t.list[k], &out[k]);
    }
    for (int k = 0; k < count && s != TN_OK; k++) tn_circuit_entries_destroy(&out[k]);
    return tni_scratch_end(&w, s);
}

tn_status tn_circuit_top(const tn_circuit *c, const tn_circuit_top_desc *desc, tn_circuit_entries *out)
{
    return tn_circuit_top_many(c, 1, desc, out);
}

void tn_circuit_entries_destroy(tn_circuit_entries *e)
{
    tni_result_end(e, sizeof *e, offsetof(tn_circuit_entries, values), 3);
}

typedef struct tni_circuit_rows_top {
    const tn_circuit *c;
    int64_t   top;
    tn_tensor *values, *ids;
    tni_heap  best;
    double   *v;
    int32_t  *id;
} tni_circuit_rows_top;

static tn_status tni_circuit_select_rows(void *user, int64_t first, int64_t count, const double *v)
{
    tni_circuit_rows_top *t = (tni_circuit_rows_top *)user;
    for (int64_t i = 0; i < count; i++) {
        const double *row = v + i * t->c->columns;
        tni_heap_select(&t->best, row, t->c->columns);
        for (int64_t j = 0; j < t->top; j++) {
            t->v[(first + i) * t->top + j] = t->best.found[j].value;
            t->id[(first + i) * t->top + j] = (int32_t)t->best.found[j].at;
        }
    }
    return TN_OK;
}

tn_status tn_circuit_top_rows(const tn_circuit *c, int64_t top, tn_order order, tn_tensor **values, tn_tensor **ids)
{
    if (values) *values = NULL;
    if (ids) *ids = NULL;
    if (!c || !values || !ids) return TN_ERR_ARG;
    if (top < 1 || top > c->columns || (unsigned)order > TN_ORDER_MAGNITUDE)
        return tni_fail(c->ctx, TN_ERR_ARG, "circuit_top_rows: top is %lld and order %d, expected 1 to %lld and a tn_order",
                        (long long)top, (int)order, (long long)c->columns);
    tni_circuit_rows_top t = TNI_ZERO;
    t.c = c; t.top = top;
    int64_t     n = c->rows * top;
    tni_scratch w = tni_scratch_begin(c->ctx, "circuit_top_rows");
    t.best = tni_take_heap(&w, order, top);
    t.v = tni_take_f64(&w, n, 1);
    t.id = (int32_t *)tni_take(&w, n, sizeof *t.id);
    tn_status s = t.id ? tni_circuit_each(c, "circuit_top_rows", tni_circuit_select_rows, &t) : TN_ERR_MEMORY;
    if (s == TN_OK) *values = tni_owned_from(c->ctx, 2, TNI_DIMS(c->rows, top), t.v);
    if (*values) *ids = tn_tensor_create(c->ctx, TN_I32, 2, TNI_DIMS(c->rows, top));
    if (s == TN_OK) s = *ids ? tn_write(*ids, TN_I32, t.id, n) : tn_ctx_status(c->ctx);
    if (s != TN_OK) { tni_drop(values); tni_drop(ids); }
    return tni_scratch_end(&w, s);
}

#endif /* TN_NO_CIRCUITS */
