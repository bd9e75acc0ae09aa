#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "algebra/algebra.h"
#include "layers/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- every path at once ------------------------------------------------- >>circuits-parts-impl
   The residual stream is a list of vectors, one for each part. Linear maps act on each of them, a product on all pairs, and
   the pair (a,b) adds to the part that `by` says: to one of its own, to degree a + b, or to the union of two sets of MLPs.
   NULL is a zero. The first parts of a list by path are always the sources. */

typedef struct tni_part_list { int64_t count; tn_tensor **at; } tni_part_list;

typedef struct tni_expansion {
    tn_ctx                  *ctx;
    const tn_circuit_frozen *f;
    tn_circuit_by            by;
    bool                     patterns;
    int64_t                  most;      /* by degree: higher ones are left out */
} tni_expansion;

static bool tni_parts_make(tn_ctx *ctx, tni_part_list *t, int64_t count)
{
    t->count = count;
    t->at = tni_arena_list(ctx, count);
    if (t->at) memset((void *)t->at, 0, (size_t)count * sizeof *t->at);
    return t->at != NULL;
}

static bool tni_parts_add(tn_ctx *ctx, tni_part_list *t, int64_t i, tn_tensor *x)
{
    if (!x) return false;
    t->at[i] = t->at[i] ? tn_add(ctx, t->at[i], x) : x;
    return t->at[i] != NULL;
}

/* All products of two lists; without an expression elementwise. What has been added is freed at once. */
static bool tni_parts_product(const tni_expansion *e, const char *expression, const tni_part_list *a, const tni_part_list *b,
                              tni_part_list *out)
{
    tni_part_list made;
    const int64_t count = e->by == TN_CIRCUIT_BY_PATH ? a->count * b->count : e->by == TN_CIRCUIT_BY_MLPS ? a->count
                          : tni_min(a->count + b->count - 1, tni_plus(e->most, 1));
    if (!tni_parts_make(e->ctx, &made, count)) return false;
    for (int64_t i = 0; i < a->count; i++) for (int64_t j = 0; j < b->count; j++) {
        tn_tensor *in[2] = {a->at[i], b->at[j]};
        int64_t    to = e->by == TN_CIRCUIT_BY_PATH ? i * b->count + j : e->by == TN_CIRCUIT_BY_MLPS ? (i | j) : i + j;
        if (!in[0] || !in[1] || to >= count) continue;
        const tni_scope scope = tni_scope_begin(e->ctx);
        const bool      first = !made.at[to];
        tn_tensor      *x = expression ? tn_einsum(e->ctx, expression, 2, in) : tn_mul(e->ctx, in[0], in[1]);
        if (!x || (!first && tn_assign(made.at[to], tn_add(e->ctx, made.at[to], x)) != TN_OK)) return false;
        if (first) made.at[to] = x;
        else tni_scope_end(e->ctx, scope);
    }
    *out = made;
    return true;
}

/* Adds factor * each source to its part; the one only the first time. */
static bool tni_expand_sources(const tni_expansion *e, double factor, double one, tni_part_list *x)
{
    const tn_circuit_frozen *f = e->f;
    tn_tensor *by = tni_frozen_factors(e->ctx, f->model->desc.dim, factor, one);
    for (int64_t s = 0; s < f->sources; s++) {
        int64_t    to = e->by == TN_CIRCUIT_BY_PATH ? s : e->by == TN_CIRCUIT_BY_DEGREE && !(f->constant && s == f->sources - 1);
        tn_tensor *source = tni_layer_part(f->source, s);
        if (!by || !tni_parts_add(e->ctx, x, to, tn_mul(e->ctx, source, by))) return false;
    }
    return true;
}

/* [r x; c] of each part */
static bool tni_expand_read(const tni_expansion *e, const tni_part_list *x, tn_tensor *r, tni_part_list *y)
{
    if (!tni_parts_make(e->ctx, y, x->count)) return false;
    for (int64_t i = 0; i < x->count; i++)
        if (x->at[i] && !(y->at[i] = tni_frozen_read(e->ctx, x->at[i], r))) return false;
    return true;
}

/* Queries and keys of each part, rotated: list j of sets queries, then of sets keys, each [1,T,heads,d] */
static bool tni_expand_qk(const tni_expansion *e, const tn_attention_desc *d, const tn_circuit_frozen_block *b,
                          const tni_part_list *y, int sets, tni_part_list qk[4])
{
    const int64_t      heads = d->heads;
    const tn_rope_desc rope = tni_attention_rope(d, 0, false);
    for (int j = 0; j < 2 * sets; j++) if (!tni_parts_make(e->ctx, &qk[j], y->count)) return false;
    for (int64_t i = 0; i < y->count; i++) {
        if (!y->at[i]) continue;
        tn_tensor *all = tn_affine(e->ctx, y->at[i], b->qk, NULL);
        all = all ? tn_rope(e->ctx, tn_reshape(all, 4, TNI_DIMS(1, e->f->tokens, 2 * sets * heads, d->d_qk)), &rope) : NULL;
        for (int j = 0; j < 2 * sets; j++)
            if (!all || !(qk[j].at[i] = tn_slice(all, 2, j * heads, (j + 1) * heads))) return false;
    }
    return true;
}

/* Patterns times values: [heads,T,d_v] each */
static bool tni_expand_heads(const tni_expansion *e, int64_t l, const tni_part_list *y, tni_part_list *z)
{
    const tn_circuit_frozen_block *b = &e->f->block[l];
    const tn_attention_desc       *d = &e->f->model->blocks[l].attn.desc;
    const int sets = d->kind == TN_ATTENTION_BILINEAR ? 2 : 1;
    tni_part_list qk[4], s[2], p, v;
    if (!tni_parts_make(e->ctx, z, y->count) || !tni_parts_make(e->ctx, &v, y->count)) return false;
    for (int64_t i = 0; i < y->count; i++) {
        if (!y->at[i]) continue;
        tn_tensor *in[3] = {y->at[i], b->v, b->pattern};
        if (e->patterns) v.at[i] = tn_einsum(e->ctx, "sn,hvn->hsv", 2, in);
        else z->at[i] = tn_einsum(e->ctx, "sn,hvn,hts->htv", 3, in);
        if (!(e->patterns ? v.at[i] : z->at[i])) return false;
    }
    if (!e->patterns) return true;
    if (!tni_expand_qk(e, d, b, y, sets, qk)) return false;
    for (int j = 0; j < sets; j++)
        if (!tni_parts_product(e, "bthd,bshd->hts", &qk[j], &qk[sets + j], &s[j])) return false;
    if (!tni_parts_product(e, NULL, &s[0], &s[sets - 1], &p)) return false;
    for (int64_t i = 0; i < p.count; i++)
        if (p.at[i] && !(p.at[i] = tn_mul(e->ctx, p.at[i], b->mask))) return false;
    return tni_parts_product(e, "hts,hsv->htv", &p, &v, z);
}

/* Attention: the parts that pass it by, then those that pass each head. */
static bool tni_expand_attention(const tni_expansion *e, int64_t l, tni_part_list *x)
{
    const tn_circuit_frozen_block *b = &e->f->block[l];
    const bool    path = e->by == TN_CIRCUIT_BY_PATH;
    const int64_t n = e->f->model->desc.dim, heads = e->f->model->desc.heads;
    tni_part_list     y, z, out;
    if (!tni_expand_read(e, x, b->norm1_scale, &y) || !tni_expand_heads(e, l, &y, &z)
        || !tni_parts_make(e->ctx, &out, path ? x->count + heads * z.count : z.count)) return false;
    for (int64_t i = 0; i < x->count; i++) {
        if (!x->at[i]) continue;
        out.at[i] = x->at[i];
        if (b->ob) {
            tn_tensor *a = tn_mul(e->ctx, tn_slice(x->at[i], -1, n, n + 1), b->ob);
            if (!tni_parts_add(e->ctx, &out, i, tni_frozen_with(e->ctx, a, 0))) return false;
        }
    }
    for (int64_t i = 0; i < z.count; i++) {
        if (!z.at[i]) continue;
        tn_tensor *in[2] = {z.at[i], b->o};
        tn_tensor *a = tni_frozen_with(e->ctx, tn_einsum(e->ctx, path ? "htv,ohv->hto" : "htv,ohv->to", 2, in), 0);
        if (!a || (!path && !tni_parts_add(e->ctx, &out, i, a))) return false;
        for (int64_t h = 0; h < heads && path; h++) out.at[x->count + h * z.count + i] = tni_layer_part(a, h);
    }
    *x = out;
    return true;
}

static bool tni_expand_hidden(const tni_expansion *e, const tn_circuit_frozen_block *b, const tni_part_list *y, int64_t k,
                              tni_part_list *z)
{
    if (!tni_parts_make(e->ctx, z, y->count)) return false;
    for (int64_t i = 0; i < y->count; i++)
        if (y->at[i] && !(z->at[i] = tn_affine(e->ctx, y->at[i], tni_layer_part(b->w, k), NULL))) return false;
    return true;
}

/* The MLP: the parts that pass it by, then those of its products. */
static bool tni_expand_mlp(const tni_expansion *e, int64_t l, tni_part_list *x)
{
    const tn_circuit_frozen_block *b = &e->f->block[l];
    const bool path = e->by == TN_CIRCUIT_BY_PATH;
    tni_part_list  y, z, h, out;
    if (!tni_expand_read(e, x, b->norm2_scale, &y) || !tni_expand_hidden(e, b, &y, 0, &h)) return false;
    for (int64_t k = 1; k < b->w->shape[0]; k++)
        if (!tni_expand_hidden(e, b, &y, k, &z) || !tni_parts_product(e, NULL, &h, &z, &h)) return false;
    if (!tni_parts_make(e->ctx, &out, path ? x->count + h.count : h.count)) return false;
    for (int64_t i = 0; i < x->count; i++) out.at[i] = x->at[i];
    for (int64_t i = 0; i < h.count; i++) {
        if (!h.at[i]) continue;
        tn_tensor *t = b->m ? tn_mul(e->ctx, h.at[i], tni_frozen_with(e->ctx, b->m, 1)) : h.at[i];
        t = tni_frozen_with(e->ctx, tni_frozen_added(e->ctx, b, t), 0);
        if (!tni_parts_add(e->ctx, &out, path ? x->count + i : e->by == TN_CIRCUIT_BY_MLPS ? i | (int64_t)1 << l : i, t))
            return false;
    }
    *x = out;
    return true;
}

TNI_COLD_FN bool tni_frozen_whole(const tn_circuit_frozen *f, const char *op)
{
    if (f->logits) return true;
    return tni_fail(f->ctx, TN_ERR_ARG, "%s: the frozen network has no logits, expected one whose last update did not fail",
                    op), false;
}

/* weights [1,vocab] of the logits, and their covector [n+1] on the last residual stream at the target's position */
TNI_COLD_FN tn_tensor *tni_target_weights(const tn_circuit_frozen *f, const tn_circuit_target *target, const char *op)
{
    const int64_t V = f->u->shape[0];
    const bool    two = target->aim == TN_CIRCUIT_AIM_DIFFERENCE;
    tn_ctx       *ctx = f->ctx;
    tn_tensor    *t = NULL;
    if (!tni_frozen_whole(f, op)) return NULL;
    if ((unsigned)target->aim > TN_CIRCUIT_AIM_LOSS || target->position < 0 || target->position >= f->tokens || target->token < 0
        || target->token >= V || (two && (target->other < 0 || target->other >= V)))
        return tni_fail(ctx, TN_ERR_ARG, "%s: the target is aim %d, position %lld, token %lld, other %lld, expected an aim "
                        "from 0 to 2, a position below %lld and tokens below %lld", op, (int)target->aim,
                        (long long)target->position, (long long)target->token, (long long)target->other, (long long)f->tokens,
                        (long long)V), (tn_tensor *)NULL;
    const bool  loss = target->aim == TN_CIRCUIT_AIM_LOSS;
    tni_scratch w = tni_scratch_begin(ctx, op);
    if (loss) t = tn_softmax(ctx, tn_slice(f->logits, 0, target->position, target->position + 1));
    double *v = !loss ? tni_take_zeros(&w, V, 1) : t ? tni_take_numbers(&w, t) : NULL;
    if (v) v[target->token] += loss ? -1 : 1;
    if (v && two) v[target->other] -= 1;
    t = v ? tn_tensor_from(ctx, 2, TNI_DIMS(1, V), TN_F64, v) : NULL;
    tni_scratch_release(&w, NULL);
    return t;
}

TNI_COLD_FN tn_tensor *tni_target_covector(const tn_circuit_frozen *f, const tn_circuit_target *target, const char *op,
                                           double *whole)
{
    const int64_t t = target->position;
    tn_ctx       *ctx = f->ctx;
    tn_tensor    *w = tni_target_weights(f, target, op);
    tn_tensor    *y = w ? tn_sum(ctx, tn_mul(ctx, w, tn_slice(f->logits, 0, t, t + 1))) : NULL;
    if (!y) return NULL;
    *whole = tn_item(y);
    if (f->cap) w = tn_mul(ctx, w, tn_slice(f->cap, 0, t, t + 1));
    return tn_reshape(tni_frozen_read(ctx, tn_matmul(ctx, w, f->u), tn_slice(f->norm_scale, 0, t, t + 1)), 1, TNI_DIMS(-1));
}

/* Row i of a matrix, as a vector */
static tn_tensor *tni_row_of(tn_tensor *x, int64_t i)
{
    const int64_t n = x ? x->shape[1] : 0;
    return tn_reshape(tn_slice(x, 0, i, i + 1), 1, &n);
}

/* Row t of each part, as one matrix [parts,n+1]; zeros where a part is NULL */
static tn_tensor *tni_parts_rows(const tni_expansion *e, const tni_part_list *x, int64_t t)
{
    const int64_t n = e->f->model->desc.dim + 1;
    tn_tensor    *zero = tn_full(e->ctx, 1, &n, 0);
    tni_part_list     row;
    if (!zero || !tni_parts_make(e->ctx, &row, x->count)) return NULL;
    for (int64_t i = 0; i < x->count; i++)
        row.at[i] = x->at[i] ? tni_row_of(x->at[i], t) : zero;
    return tn_stack(e->ctx, row.count, row.at, 0);
}

/* The last MLP, by path, at one position: M values of the parts x [M,n+1] that pass it by, and M^k of its products, whose
   vectors are never formed: value (a,b,..) = sum_h g_h prod_e (F_e x_a)_h,  g = m P^T u */
static tn_tensor *tni_expand_last(const tni_expansion *e, tn_tensor *x, tn_tensor *u, int64_t t)
{
    const tn_circuit_frozen_block *b = &e->f->block[e->f->layers - 1];
    const int64_t n = e->f->model->desc.dim, encoders = b->w->shape[0];
    tn_ctx       *ctx = e->ctx;
    tn_tensor    *y = tni_frozen_read(ctx, x, tn_slice(b->norm2_scale, 0, t, t + 1)), *un = tn_slice(u, 0, 0, n);
    tn_tensor    *part[2], *in[3];
    in[0] = un; in[1] = b->p;
    part[0] = tn_einsum(ctx, "o,oh->h", 2, in);
    if (b->m) part[0] = tn_mul(ctx, part[0], tni_row_of(b->m, t));
    part[1] = b->pb ? tn_sum(ctx, tn_mul(ctx, tni_row_of(b->pb, t), un)) : tn_full(ctx, 0, NULL, 0);
    part[1] = tn_reshape(part[1], 1, TNI_DIMS(1));
    tn_tensor *g = tn_concat(ctx, 2, part, 0);
    tn_tensor *h = tn_affine(ctx, y, tni_layer_part(b->w, 0), NULL);
    for (int64_t k = 1; k < encoders - 1 && h; k++) {
        in[0] = h; in[1] = tn_affine(ctx, y, tni_layer_part(b->w, k), NULL);
        h = tn_reshape_2d(tn_einsum(ctx, "ah,bh->abh", 2, in), -1, b->w->shape[1]);
    }
    in[0] = h; in[1] = g;
    if (encoders > 1) in[2] = tn_affine(ctx, y, tni_layer_part(b->w, encoders - 1), NULL);
    part[1] = encoders > 1 ? tn_einsum(ctx, "ah,h,bh->ab", 3, in) : tn_einsum(ctx, "ah,h->a", 2, in);
    part[1] = tn_reshape(part[1], 1, TNI_DIMS(-1));
    in[0] = x; in[1] = u;
    part[0] = tn_einsum(ctx, "an,n->a", 2, in);
    return tn_concat(ctx, 2, part, 0);
}

/* Runs the expansion: x are the parts of the stream that the last norm reads; by path, of the one that the last MLP reads. */
static bool tni_expand_stream(const tni_expansion *e, tni_part_list *x)
{
    const tn_circuit_frozen *f = e->f;
    const bool path = e->by == TN_CIRCUIT_BY_PATH;
    if (!tni_parts_make(e->ctx, x, path ? f->sources : e->by == TN_CIRCUIT_BY_DEGREE ? 2 : (int64_t)1 << f->layers)
        || !tni_expand_sources(e, 1, 1, x)) return false;
    for (int64_t l = 0; l < f->layers; l++) {
        const tn_circuit_frozen_block *b = &f->block[l];
        if (b->keep != 1 || b->again != 0) {
            tn_tensor *by = tni_frozen_factors(e->ctx, f->model->desc.dim, b->keep, 1);
            for (int64_t i = 0; i < x->count; i++) if (x->at[i] && !(x->at[i] = tn_mul(e->ctx, x->at[i], by))) return false;
            if (!tni_expand_sources(e, b->again, 0, x)) return false;
        }
        if (!tni_expand_attention(e, l, x)) return false;
        if (path && l == f->layers - 1) break;
        if (!tni_expand_mlp(e, l, x)) return false;
    }
    return true;
}

/* The values [count] of the target u at position t */
static tn_tensor *tni_expand(const tni_expansion *e, tn_tensor *u, int64_t t)
{
    tni_part_list x;
    if (!tni_expand_stream(e, &x)) return NULL;
    if (e->by == TN_CIRCUIT_BY_PATH) return tni_expand_last(e, tni_parts_rows(e, &x, t), u, t);
    tn_tensor *in[2] = {tni_parts_rows(e, &x, t), u};
    return tn_einsum(e->ctx, "an,n->a", 2, in);
}

/* Whether a pattern that is to be expanded is not a polynomial: an error. setting: what asks for it */
static bool tni_patterns_refused(const tn_circuit_frozen *f, const char *op, const char *setting)
{
    for (int64_t l = 0; l < f->layers; l++)
        if (!f->block[l].qk)
            return tni_fail(f->ctx, TN_ERR_ARG, "%s: %s, but block %lld has %s patterns%s, "
                            "expected squared or bilinear ones without norms and TN_ROW_SCALE_SUM", op, setting, (long long)l,
                            tn_attention_kind_name(f->model->blocks[l].attn.desc.kind),
                            tni_takes_form(f->model->blocks[l].attn.desc.kind) ? " with a norm" : ""), true;
    return false;
}

double tn_circuit_path_count(const tn_circuit_frozen *f, bool patterns)
{
    if (!f || !f->block) return 0;
    double N = f->sources;
    for (int64_t l = 0; l < f->layers; l++) {
        double M = N + (double)f->model->blocks[l].attn.desc.heads * (patterns ? pow(N, 5) : N);
        N = M + pow(M, (double)f->block[l].w->shape[0]);
    }
    return N;
}

/* The number of parts, as it would be. */
static double tni_parts_count(const tn_circuit_frozen *f, tn_circuit_by by, bool patterns)
{
    double degree = 1;
    if (by == TN_CIRCUIT_BY_PATH) return tn_circuit_path_count(f, patterns);
    if (by == TN_CIRCUIT_BY_MLPS) return ldexp(1, (int)tni_min(f->layers, 1000));
    for (int64_t l = 0; l < f->layers; l++) degree *= (patterns ? 5 : 1) * (double)f->block[l].w->shape[0];
    return degree + 1;
}

TNI_COLD_FN double tni_values_sum(const tn_tensor *t)
{
    tni_scratch w = tni_scratch_begin(t->ctx, "circuit_parts");
    double     *v = tni_take_numbers(&w, t), sum = v ? 0 : (double)NAN;
    for (int64_t i = 0; v && i < tn_tensor_count(t); i++) sum += v[i];
    tni_scratch_release(&w, NULL);
    return sum;
}

tn_status tn_circuit_parts_of(const tn_circuit_frozen *f, const tn_circuit_target *target, const tn_circuit_parts_desc *desc,
                              tn_circuit_parts *out)
{
    const double  most = desc && desc->max_parts > 0 ? (double)desc->max_parts : 1e6;
    if (out) memset(out, 0, sizeof *out);
    if (!f || !f->ctx) return TN_ERR_ARG;
    if (!target || !out) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_parts: %s is NULL", out ? "target" : "out");
    tni_expansion e = {f->ctx, f, desc ? desc->by : TN_CIRCUIT_BY_PATH, desc && desc->patterns, INT64_MAX};
    if (!tni_within(f->ctx, "circuit_parts", "by", (int)e.by, 0, TN_CIRCUIT_BY_MLPS)) return TN_ERR_ARG;
    if (e.patterns && tni_patterns_refused(f, "circuit_parts", "patterns is true")) return TN_ERR_ARG;
    double count = tni_parts_count(f, e.by, e.patterns);
    if (!(count <= most))
        return tni_fail(f->ctx, TN_ERR_MEMORY, "circuit_parts: there are %g parts, expected at most %g, desc.max_parts", count,
                        most);
    tni_scope  scope = tni_scope_begin(f->ctx);
    tn_tensor *u = tni_target_covector(f, target, "circuit_parts", &out->whole);
    u = u ? tni_expand(&e, u, target->position) : NULL;
    out->values = tn_tensor_keep(u);
    tni_scope_end(f->ctx, scope);
    if (!out->values) return tni_analysis_status(f->ctx);
    out->by = e.by;
    out->patterns = e.patterns;
    out->frozen = f;
    out->count = tn_tensor_count(out->values);
    out->error = tni_values_sum(out->values) - out->whole;
    return TN_OK;
}

void tn_circuit_parts_destroy(tn_circuit_parts *p) { tni_result_end(p, sizeof *p, offsetof(tn_circuit_parts, values), 1); }

TNI_PRINTF(2, 3) TNI_FN void tni_text_print(tni_text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    tni_text_v(t, fmt, args);
    va_end(args);
}

TNI_COLD_FN const char *tni_source_name(const tn_circuit_frozen *f, int64_t s)
{
    return f->constant && s == f->sources - 1 ? "1" : s == 0 ? "E" : "P";
}

static int64_t tni_power(int64_t n, int64_t k)
{
    int64_t p = 1;
    while (k-- > 0) p *= n;
    return p;
}

/* The name of path i after `blocks` blocks. N: paths that enter the last of them, M: paths that reach its MLP. */
static void tni_part_text(tni_text *t, const tn_circuit_parts *p, int64_t blocks, int64_t i)
{
    const tn_circuit_frozen *f = p->frozen;
    const int64_t l = blocks - 1;
    int64_t       N = f->sources, M, j;
    if (blocks == 0) { tni_text_print(t, "%s", tni_source_name(f, i)); return; }
    for (j = 0; j < l; j++) {
        M = N + f->model->blocks[j].attn.desc.heads * (p->patterns ? tni_power(N, 5) : N);
        N = M + tni_power(M, f->block[j].w->shape[0]);
    }
    int64_t k = p->patterns ? 5 : 1;
    int64_t each = tni_power(N, k);
    M = N + f->model->blocks[l].attn.desc.heads * each;
    int64_t c = f->block[l].w->shape[0];
    if (i >= M) {                                   /* paths that reach this MLP, each named as if it passed it by */
        for (i -= M, j = 0; j < c; j++) {
            tni_text_print(t, j ? " * " : "(");
            tni_part_text(t, p, blocks, i / tni_power(M, c - 1 - j) % M);
        }
        tni_text_print(t, ") -> %lld.mlp", (long long)l);
    } else if (i >= N) {
        int64_t h = (i - N) / each;
        i = (i - N) % each;
        for (j = 0; j < k; j++) {
            if (k > 1) tni_text_print(t, j ? " * " : "(");
            tni_part_text(t, p, l, i / tni_power(N, k - 1 - j) % N);
        }
        tni_text_print(t, "%s -> %lld.head%lld", k > 1 ? ")" : "", (long long)l, (long long)h);
    } else tni_part_text(t, p, l, i);
}

int64_t tn_circuit_part_name(const tn_circuit_parts *p, int64_t i, char *dst, size_t bytes)
{
    tni_text t = {dst, bytes, 0};
    if (!p || !p->frozen || i < 0 || i >= p->count || (!dst && bytes > 0)) return -1;
    if (p->by == TN_CIRCUIT_BY_DEGREE) tni_text_print(&t, "degree %lld", (long long)i);
    else if (p->by == TN_CIRCUIT_BY_PATH) {
        tni_part_text(&t, p, p->frozen->layers, i);
        tni_text_print(&t, " -> U");
    } else {
        tni_text_print(&t, i ? "mlps" : "no mlp");
        for (int64_t l = 0; l < p->frozen->layers; l++) if (i >> l & 1) tni_text_print(&t, " %lld", (long long)l);
    }
    return (int64_t)t.length;
}

/* ---- all logits by degree ------------------------------------------------ >>circuits-degrees-impl */

enum { TNI_DEGREES_USUAL = 100, TNI_DEGREES_MOST = 10000 };

/* The first part of the model that is held constant, NULL if its logits are a polynomial. */
static const char *tni_degrees_held(const tn_circuit_frozen *f, bool patterns)
{
    const tn_transformer_desc *d = &f->model->desc;
    if (!d->no_norm || d->embed_norm) return "norms";
    if (d->softcap > 0) return "a soft cap";
    for (int64_t l = 0; l < f->layers; l++) {
        if (patterns) return "patterns";
        if (f->block[l].m) return tn_mlp_kind_name(f->model->blocks[l].mlp.desc.kind);
    }
    return NULL;
}

/* The logits of each part of the stream, into out->logits */
static bool tni_degrees_read(const tn_circuit_frozen *f, const tni_part_list *x, tn_circuit_degrees *out)
{
    const int64_t T = f->tokens, V = f->u->shape[0];
    for (int64_t i = 0; i < x->count && i < out->count; i++) {
        if (!x->at[i]) continue;
        const tni_scope scope = tni_scope_begin(f->ctx);
        tn_tensor *z = tn_affine(f->ctx, tni_frozen_read(f->ctx, x->at[i], f->norm_scale), f->u, NULL);
        if (z && f->cap) z = tn_mul(f->ctx, z, f->cap);
        z = z ? tn_reshape(z, 3, TNI_DIMS(1, T, V)) : NULL;
        if (!z || tn_assign(tn_slice(out->logits, 0, i, i + 1), z) != TN_OK) return false;
        tni_scope_end(f->ctx, scope);
    }
    tn_tensor *sum = tn_sum_axis(f->ctx, out->logits, 0);
    if (sum) out->rest = tni_frozen_differ(tn_reshape_2d(sum, T, V), f->logits);
    return sum != NULL;
}

tn_status tn_circuit_degrees_of(const tn_circuit_frozen *f, const tn_circuit_degrees_desc *desc, tn_circuit_degrees *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!f || !f->ctx) return TN_ERR_ARG;
    if (!out) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_degrees: out is NULL");
    const bool hold = desc && desc->hold_patterns;
    if (!tni_within(f->ctx, "circuit_degrees", "max_degree", desc ? desc->max_degree : 0, 0, TNI_DEGREES_MOST)
        || !tni_frozen_whole(f, "circuit_degrees")
        || (!hold && tni_patterns_refused(f, "circuit_degrees", "hold_patterns is false"))) return tni_analysis_status(f->ctx);
    out->highest = tni_parts_count(f, TN_CIRCUIT_BY_DEGREE, !hold) - 1;
    const double most = desc && desc->max_degree > 0 ? (double)desc->max_degree : (double)TNI_DEGREES_USUAL;
    out->count = (int64_t)(out->highest < most ? out->highest : most) + 1;
    out->held = tni_degrees_held(f, hold);
    tni_expansion e = {f->ctx, f, TN_CIRCUIT_BY_DEGREE, !hold, out->count - 1};
    tni_part_list x;
    out->logits = tn_tensor_create(f->ctx, f->logits->dtype, 3, TNI_DIMS(out->count, f->tokens, f->u->shape[0]));
    tni_scope  scope = tni_scope_begin(f->ctx);
    const bool done = out->logits && tni_expand_stream(&e, &x) && tni_degrees_read(f, &x, out);
    tni_scope_end(f->ctx, scope);
    if (done && out->rest < HUGE_VAL) return TN_OK;
    tn_circuit_degrees_destroy(out);
    if (!done || tn_ctx_status(f->ctx) != TN_OK) return tni_analysis_status(f->ctx);
    return tni_fail(f->ctx, TN_ERR_NONFINITE, "circuit_degrees: a part of a logit is not finite, expected smaller weights");
}

void tn_circuit_degrees_destroy(tn_circuit_degrees *d)
{
    tni_result_end(d, sizeof *d, offsetof(tn_circuit_degrees, logits), 1);
}

#endif /* TN_NO_CIRCUITS */
