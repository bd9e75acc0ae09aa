#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "algebra/algebra.h"
#include "decomp/inner.h"
#include "layers/layers.h"
#include "operator/inner.h"
#include "network/network.h"
#include "models/models.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- composition, norms, eigenvalues ------------------------------------ >>circuits-composition */

tn_circuit *tn_circuit_compose(const tn_circuit *outer, tn_circuit_side side, const tn_circuit *inner)
{
    const tn_circuit *o = outer;
    tn_tensor  *l[2], *r[2];
    tn_circuit *c = NULL;
    if (!outer || !inner) return NULL;
    int64_t n = side == TN_CIRCUIT_ROWS ? o->rows : o->columns;
    if (inner->ctx != o->ctx)
        return tni_fail(o->ctx, TN_ERR_ARG, "circuit_compose: the circuits have different contexts"), (tn_circuit *)NULL;
    if (inner->sets != 1)
        return tni_fail(o->ctx, TN_ERR_ARG, "circuit_compose: inner has %d sets, expected 1", inner->sets), (tn_circuit *)NULL;
    if (inner->rows != n && inner->rows != n - 1)
        return tni_fail(o->ctx, TN_ERR_SHAPE, "circuit_compose: inner has %lld rows, expected %lld, the %s of outer",
                        (long long)inner->rows, (long long)n, side == TN_CIRCUIT_ROWS ? "rows" : "columns"), (tn_circuit *)NULL;
    tni_scope  scope = tni_scope_begin(o->ctx);
    tn_tensor *to = o->left[0];
    for (int s = 0; s < o->sets && to; s++) {
        l[s] = o->left[s];
        r[s] = o->right[s];
        to = tn_slice(side == TN_CIRCUIT_ROWS ? l[s] : r[s], 0, 0, inner->rows);
        to = to ? tn_matmul(o->ctx, tn_transpose(inner->left[0], 0, 1), to) : NULL;         /* [inner's rank,outer's] */
        to = to ? tn_matmul(o->ctx, inner->right[0], to) : NULL;
        *(side == TN_CIRCUIT_ROWS ? &l[s] : &r[s]) = to;
    }
    if (to) c = tn_circuit_create(o->ctx, o->sets, l, r);
    tni_scope_end(o->ctx, scope);
    return c;
}

/* Calls fn for all rows, in blocks that need at most an eighth of max_bytes, or 32 MiB without a limit. */
TNI_COLD_FN tn_status tni_circuit_each(const tn_circuit *c, const char *op, tni_circuit_fn fn, void *user)
{
    const int64_t most = c->ctx->desc.max_bytes > 0 ? (int64_t)(c->ctx->desc.max_bytes / 8) : (int64_t)1 << 25;
    const int64_t block = tni_max(1, tni_min(c->rows, most / (24 * tni_max(1, c->columns))));
    tni_scratch   w = tni_scratch_begin(c->ctx, op);
    double       *v = tni_take_f64(&w, block, c->columns);
    tn_status     s = v ? TN_OK : TN_ERR_MEMORY;
    for (int64_t at = 0; at < c->rows && s == TN_OK; at += block) {
        const int64_t   n = tni_min(block, c->rows - at);
        const tni_scope scope = tni_scope_begin(c->ctx);
        double          sum = 0;
        tn_tensor      *y = tn_circuit_rows(c->ctx, c, at, n);
        s = y ? tn_read(y, TN_F64, v, n * c->columns) : tn_ctx_status(c->ctx);
        tni_scope_end(c->ctx, scope);
        for (int64_t i = 0; i < n * c->columns && s == TN_OK; i++) sum += v[i] - v[i];
        if (sum != 0) s = tni_fail(c->ctx, TN_ERR_NONFINITE, "%s: an entry in rows %lld to %lld is not finite", op,
                                   (long long)at, (long long)(at + n - 1));
        if (s == TN_OK) s = fn(user, at, n, v);
    }
    return tni_scratch_end(&w, s);
}

typedef struct tni_circuit_sum { double squares; int64_t columns; } tni_circuit_sum;

static tn_status tni_circuit_squares(void *user, int64_t first, int64_t count, const double *v)
{
    tni_circuit_sum *sum = (tni_circuit_sum *)user;
    (void)first;
    for (int64_t i = 0; i < count * sum->columns; i++) sum->squares += v[i] * v[i];
    return TN_OK;
}

/* Of one set: <left^T left, right^T right> */
tn_status tn_circuit_norm(const tn_circuit *c, double *norm)
{
    tni_circuit_sum sum;
    tn_status       s;
    if (!c || !norm) return TN_ERR_ARG;
    *norm = 0;
    sum.squares = 0;
    sum.columns = c->columns;
    if (c->sets == 1) {
        tni_scope  scope = tni_scope_begin(c->ctx);
        tn_tensor *l = tn_matmul(c->ctx, tn_transpose(c->left[0], 0, 1), c->left[0]);
        tn_tensor *r = tn_matmul(c->ctx, tn_transpose(c->right[0], 0, 1), c->right[0]);
        l = l && r ? tn_sum(c->ctx, tn_mul(c->ctx, l, r)) : NULL;
        s = l ? tn_read(l, TN_F64, &sum.squares, 1) : tn_ctx_status(c->ctx);
        tni_scope_end(c->ctx, scope);
    } else s = tni_circuit_each(c, "circuit_norm", tni_circuit_squares, &sum);
    if (s == TN_OK && !(sum.squares < HUGE_VAL))
        s = tni_fail(c->ctx, TN_ERR_NONFINITE, "circuit_norm: the norm is not finite");
    if (s == TN_OK) *norm = sqrt(sum.squares > 0 ? sum.squares : 0);
    return s;
}

tn_status tn_circuit_copying(const tn_circuit *c, tn_tensor **values, double *score)
{
    double sum = 0, size = 0;
    if (values) *values = NULL;
    if (score) *score = 0;
    if (!c) return TN_ERR_ARG;
    if (c->sets != 1)
        return tni_fail(c->ctx, TN_ERR_ARG, "circuit_copying: the circuit has %d sets, expected 1", c->sets);
    if (c->columns != c->rows && c->columns != c->rows + 1)
        return tni_fail(c->ctx, TN_ERR_SHAPE, "circuit_copying: the circuit is [%lld,%lld], expected a square one",
                        (long long)c->rows, (long long)c->columns);
    tn_eig_desc desc = TNI_ZERO;
    tn_eig_result e = TNI_ZERO;
    desc.no_vectors = true;
    int64_t    rank = c->left[0]->shape[1];
    tni_scope  scope = tni_scope_begin(c->ctx);
    tn_tensor *a = tn_matmul(c->ctx, tn_transpose(tn_slice(c->right[0], 0, 0, c->rows), 0, 1), c->left[0]);
    tn_status  s = a ? tn_eig(c->ctx, a, &desc, &e) : tn_ctx_status(c->ctx);
    tni_scope_end(c->ctx, scope);
    tni_scratch w = tni_scratch_begin(c->ctx, "circuit_copying");
    double     *v = s == TN_OK ? tni_take_f64(&w, rank, 2) : NULL;
    if (s == TN_OK) s = v ? tn_read(e.values, TN_F64, v, 2 * rank) : TN_ERR_MEMORY;
    for (int64_t i = 0; i < rank && s == TN_OK; i++) {
        sum += v[2 * i];
        size += hypot(v[2 * i], v[2 * i + 1]);
    }
    if (s == TN_OK && score) *score = sum / size;
    if (s == TN_OK && values) { *values = e.values; e.values = NULL; }
    tn_eig_destroy(&e);
    return tni_scratch_end(&w, s);
}

/* What reads in block `to`: OV, or the scores of one set */
static tn_circuit *tni_circuit_reader(tn_ctx *ctx, const tn_transformer *m, int64_t block, int64_t head, tn_head_part part,
                                      const char *op)
{
    tn_circuit_desc d = TNI_ZERO;
    d.block = block;
    d.head = head;
    if (part == TN_HEAD_V) return tni_circuit_ov(ctx, m, &d, true, op);
    d.set = part == TN_HEAD_Q2 || part == TN_HEAD_K2 ? 2 : 1;
    return tni_circuit_qk(ctx, m, &d, true, op);
}

/* Column a of the scores v [H,H]: |outer inner| / (|outer| |inner|), NaN where one of them is 0 */
static tn_status tni_circuit_scores(tn_circuit *const *outer, const tn_circuit *inner, tn_circuit_side side, int64_t H,
                                    double *v)
{
    double    norm[3] = {0, 0, 0};
    tn_status s = tn_circuit_norm(inner, &norm[0]);
    for (int64_t b = 0; b < H && s == TN_OK; b++) {
        tn_circuit *both = tn_circuit_compose(outer[b], side, inner);
        s = both ? tn_circuit_norm(both, &norm[1]) : tn_ctx_status(inner->ctx);
        if (s == TN_OK) s = tn_circuit_norm(outer[b], &norm[2]);
        v[b * H] = norm[1] / (norm[0] * norm[2]);
        tn_circuit_destroy(both);
    }
    return s;
}

TNI_COLD tn_tensor *tn_circuit_composition(tn_ctx *ctx, const tn_transformer *m, int64_t from, int64_t to, tn_head_part part)
{
    const char *op = "circuit_composition";
    const tn_circuit_side side = part == TN_HEAD_Q1 || part == TN_HEAD_Q2 ? TN_CIRCUIT_ROWS : TN_CIRCUIT_COLUMNS;
    tn_tensor  *out = NULL;
    if (!tni_circuit_given(ctx, m, from, op) || !tni_circuit_given(ctx, m, to, op)) return NULL;
    if (from >= to)
        return tni_fail(ctx, TN_ERR_ARG, "%s: from is %lld and to is %lld, expected from < to", op, (long long)from,
                        (long long)to), (tn_tensor *)NULL;
    if ((unsigned)part > TN_HEAD_V)
        return tni_fail(ctx, TN_ERR_ARG, "%s: part is %d, expected a query, a key or V", op, (int)part), (tn_tensor *)NULL;
    int64_t      H = m->desc.heads;
    tni_scratch  w = tni_scratch_begin(ctx, op);
    tn_circuit **outer = (tn_circuit **)tni_take_zeroed(&w, H, sizeof *outer);
    double      *v = tni_take_f64(&w, H, H);
    bool         whole = !w.failed;
    tni_scope    scope = tni_scope_begin(ctx);
    for (int64_t a = 0; a < H && whole; a++) whole = (outer[a] = tni_circuit_reader(ctx, m, to, a, part, op)) != NULL;
    for (int64_t a = 0; a < H && whole; a++) {
        tn_circuit *inner = tni_circuit_reader(ctx, m, from, a, TN_HEAD_V, op);
        whole = inner && tni_circuit_scores(outer, inner, side, H, v + a) == TN_OK;
        tn_circuit_destroy(inner);
    }
    tni_scope_end(ctx, scope);
    if (whole) out = tni_owned_from(ctx, 2, TNI_DIMS(H, H), v);
    for (int64_t a = 0; a < H && outer; a++) tn_circuit_destroy(outer[a]);
    tni_scratch_release(&w, NULL);
    return out;
}

/* ---- blocks as tensors -------------------------------------------------- >>circuits-blocks */

static bool tni_circuit_bilinear(tn_ctx *ctx, const tn_transformer *m, int64_t block, const char *op)
{
    const tn_mlp_kind kind = m->blocks[block].mlp.desc.kind;
    if (kind == TN_MLP_BILINEAR) return !tni_circuit_normed_after(ctx, m, op);
    return tni_fail(ctx, TN_ERR_ARG, "%s: the MLP of block %lld is %s, expected bilinear: of other kinds the modifier has to "
                    "be held constant, see tn_mlp_modifier", op, (long long)block, tn_mlp_kind_name(kind)), false;
}

/* The norm as a map E x + b; b only where it is not 0 */
static bool tni_circuit_map(tn_ctx *ctx, const tn_transformer *m, const tn_norm *norm, tn_tensor **e, tn_tensor **b)
{
    *e = tni_circuit_basis(ctx, m, norm, false, 1);
    *e = *e ? tn_transpose(*e, 0, 1) : NULL;
    *b = m->desc.no_norm ? NULL : norm->bias;
    return *e != NULL;
}

tn_cp *tn_circuit_mlp(tn_ctx *ctx, const tn_transformer *m, int64_t block)
{
    tn_tensor *e, *b;
    tn_cp     *cp = NULL;
    if (!tni_circuit_given(ctx, m, block, "circuit_mlp") || !tni_circuit_bilinear(ctx, m, block, "circuit_mlp")) return NULL;
    tni_scope scope = tni_scope_begin(ctx);
    if (tni_circuit_map(ctx, m, &m->blocks[block].norm2, &e, &b)) cp = tn_cp_from_mlp(ctx, &m->blocks[block].mlp);
    if (cp && !m->desc.no_norm) cp = tni_cp_next(cp, tn_cp_fold_in(cp, e, b));
    if (cp && m->desc.mlp_scale != 1)
        cp = tni_cp_done(cp, tn_assign(cp->p, tn_scale(ctx, tn_copy(ctx, cp->p), m->desc.mlp_scale)));
    tni_scope_end(ctx, scope);
    return cp;
}

static tn_net *tni_net_next(tn_net *net, tn_net *next)
{
    tn_net_destroy(net);
    return next;
}

tn_net *tn_circuit_attention(tn_ctx *ctx, const tn_transformer *m, int64_t block, int64_t distance)
{
    const char *op = "circuit_attention";
    tn_tensor  *e, *b;
    tn_net     *net = NULL;
    if (!tni_circuit_given(ctx, m, block, op) || tni_circuit_normed_after(ctx, m, op)) return NULL;
    tni_scope scope = tni_scope_begin(ctx);
    if (tni_circuit_map(ctx, m, &m->blocks[block].norm1, &e, &b))
        net = tn_net_from_attention(ctx, &m->blocks[block].attn, distance);
    if (net && !m->desc.no_norm) net = tni_net_next(net, tn_net_fold_in(net, TN_NET_ALL, e, b));
    if (net && m->desc.attn_scale != 1)
        net = tni_net_next(net, tn_net_fold_out(net, tn_scale(ctx, tn_eye(ctx, m->desc.dim), m->desc.attn_scale)));
    tni_scope_end(ctx, scope);
    return net;
}

void tn_circuit_block_destroy(tn_circuit_block *o)
{
    if (o) { tn_cp_destroy(o->b); tn_cp_destroy(o->doubled); }
    tni_result_end(o, sizeof *o, offsetof(tn_circuit_block, m), 3);
}

/* diag(a, b) */
static tn_tensor *tni_circuit_diag(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    tn_tensor *rows[2][2];
    if (!a || !b) return NULL;
    rows[0][0] = a;
    rows[0][1] = tn_full(ctx, 2, TNI_DIMS(a->shape[0], b->shape[1]), 0);
    rows[1][0] = tn_full(ctx, 2, TNI_DIMS(b->shape[0], a->shape[1]), 0);
    rows[1][1] = b;
    rows[0][0] = tn_concat(ctx, 2, rows[0], 1);
    rows[0][1] = tn_concat(ctx, 2, rows[1], 1);
    return rows[0][0] && rows[0][1] ? tn_concat(ctx, 2, rows[0], 0) : NULL;
}

/* M^0 .. M^H, V~ and, with v, O: stacked */
static bool tni_circuit_writers(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_block_desc *d, double factor,
                                tn_tensor **maps, tn_tensor **v, tn_tensor **o)
{
    const tn_attention *a = &m->blocks[d->block].attn;
    const int64_t dim = m->desc.dim, H = m->desc.heads, shape[2] = {1, dim + 1};
    tn_tensor    *x = tni_circuit_basis(ctx, m, &m->blocks[d->block].norm1, true, factor);
    tni_scratch   w = tni_scratch_begin(ctx, "circuit_block_of");
    tn_tensor   **list = (tn_tensor **)tni_take(&w, tni_plus(tni_area(3, H), 1), sizeof *list), *join[2];
    bool          whole = list && x;
    if (whole) {
        list[0] = tn_eye(ctx, dim + 1);
        if (a->ob) {                                    /* [I b; 0 1] = [I 0; 0 1] + (b,0) (x) (0,1) */
            join[0] = tn_scale(ctx, tn_reshape_2d(a->ob, dim, 1), m->desc.attn_scale);
            join[1] = tn_slice(tn_full(ctx, 2, shape, 0), 1, 0, 1);
            join[0] = tn_concat(ctx, 2, join, 0);
            join[0] = tn_matmul(ctx, join[0], tn_slice(tn_eye(ctx, dim + 1), 0, dim, dim + 1));
            list[0] = tn_add(ctx, list[0], join[0]);
        }
    }
    for (int64_t h = 0; h < H && whole; h++) {
        tn_tensor **at = list + 1 + h;
        at[H] = tn_transpose(tni_circuit_values(ctx, m, d->block, h, x), 0, 1);
        at[2 * H] = tn_scale(ctx, tn_attention_head(a, h, TN_HEAD_O), m->desc.attn_scale);
        join[0] = at[H] && at[2 * H] ? tn_matmul(ctx, at[2 * H], at[H]) : NULL;
        join[1] = tn_full(ctx, 2, shape, 0);
        at[0] = join[0] && join[1] ? tn_concat(ctx, 2, join, 0) : NULL;
        whole = at[0] != NULL;
    }
    *maps = whole ? tn_stack(ctx, H + 1, list, 0) : NULL;
    *v = whole ? tn_stack(ctx, H, list + H + 1, 0) : NULL;
    *o = whole ? tn_stack(ctx, H, list + 2 * H + 1, 0) : NULL;
    tni_scratch_release(&w, NULL);
    return *maps && *v && *o;
}

static tn_status tni_circuit_block(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_block_desc *d, double f1, double f2,
                                   tn_circuit_block *out)
{
    const int64_t dim = m->desc.dim;
    tn_tensor *maps, *v, *o, *zero = tn_full(ctx, 1, &dim, 0), *eye = tn_eye(ctx, dim), *f[2], *p[4];
    tn_cp     *cp = tn_circuit_mlp(ctx, m, d->block);
    tn_status  s = TN_ERR_ARG;
    if (cp && cp->order != 2)
        s = tni_fail(ctx, TN_ERR_ARG, "circuit_block_of: the MLP of block %lld has order %d, expected 2", (long long)d->block,
                     cp->order);
    else if (cp) cp = tni_cp_next(cp, tn_cp_fold_in(cp, tn_scale(ctx, eye, f2), zero));     /* on [x;1] in any case */
    if (cp && cp->order == 2 && tni_circuit_writers(ctx, m, d, f1, &maps, &v, &o)) {
        out->heads = m->desc.heads;
        out->b = tn_cp_residual(cp);
        out->m = tn_tensor_keep(maps);
        out->v = tn_tensor_keep(v);
        p[0] = cp->p;
        p[1] = eye;
        p[0] = tn_concat(ctx, 2, p, 1);
        f[0] = tni_circuit_diag(ctx, cp->f[0], eye);
        f[1] = tni_circuit_diag(ctx, cp->f[1], eye);
        out->doubled = p[0] && f[0] && f[1] ? tn_cp_create(ctx, 2, p[0], f, TN_CP_INPUT_PLAIN) : NULL;
        if (d->compact) {
            p[0] = cp->p;
            p[1] = tn_matmul(ctx, tn_slice(cp->f[0], 1, 0, dim), o);                        /* [H,h,d_v] */
            p[2] = tn_matmul(ctx, tn_slice(cp->f[1], 1, 0, dim), o);
            p[3] = tn_einsum(ctx, "oh,gha,khb->gkoab", 3, p);
            out->compact = tn_tensor_keep(p[3]);
        }
        s = out->b && out->m && out->v && out->doubled && (out->compact || !d->compact) ? TN_OK : tn_ctx_status(ctx);
    }
    tn_cp_destroy(cp);
    return s;
}

tn_status tn_circuit_block_of(tn_ctx *ctx, const tn_transformer *m, const tn_circuit_block_desc *d, tn_circuit_block *out)
{
    const char *op = "circuit_block_of";
    if (!out) return TN_ERR_ARG;
    memset(out, 0, sizeof *out);
    if (!ctx) return TN_ERR_ARG;
    if (!d) return tni_fail(ctx, TN_ERR_ARG, "%s: the desc is NULL", op);
    if (!tni_circuit_given(ctx, m, d->block, op) || !tni_circuit_writes(ctx, m, d->block, op)
        || !tni_circuit_bilinear(ctx, m, d->block, op)) return TN_ERR_ARG;
    double f1 = m->desc.no_norm ? 1 : d->norm1_scale;
    double f2 = m->desc.no_norm ? 1 : d->norm2_scale;
    if (!(f1 > 0 && f1 < HUGE_VAL && f2 > 0 && f2 < HUGE_VAL))
        return tni_fail(ctx, TN_ERR_ARG, "%s: norm1_scale is %g and norm2_scale %g, expected numbers > 0: the model has norms, "
                        "whose denominators have to be held constant", op, f1, f2);
    tni_scope scope = tni_scope_begin(ctx);
    tn_status s = tni_circuit_block(ctx, m, d, f1, f2, out);
    tni_scope_end(ctx, scope);
    if (s != TN_OK) tn_circuit_block_destroy(out);
    return s;
}

tn_cp *tn_circuit_block_term(const tn_circuit_block *o, int64_t g, int64_t k)
{
    tn_tensor *f[2];
    if (!o || !o->b) return NULL;
    tn_ctx *ctx = o->b->ctx;
    int64_t pair[2] = {g, k};
    if (!tni_within(ctx, "circuit_block_term", "g", g, 0, o->heads)
        || !tni_within(ctx, "circuit_block_term", "k", k, 0, o->heads)) return NULL;
    tni_scope scope = tni_scope_begin(ctx);
    for (int i = 0; i < 2; i++) {
        f[i] = tn_slice(o->m, 0, pair[i], pair[i] + 1);
        f[i] = f[i] ? tn_matmul(ctx, o->b->f[i], tn_reshape_2d(f[i], o->m->shape[1], -1)) : NULL;
    }
    tn_cp *cp = f[0] && f[1] ? tn_cp_create(ctx, 2, o->b->p, f, TN_CP_INPUT_CONSTANT) : NULL;
    tni_scope_end(ctx, scope);
    return cp;
}

#endif /* TN_NO_CIRCUITS */
