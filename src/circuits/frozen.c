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
/* ---- the frozen network ------------------------------------------------- >>circuits-frozen-impl
   N(x) = r x gain + bias and f(x) = W N(x) + b become [W gain, W bias + b] [r x; 1] with the constant r. A layer norm also
   subtracts the mean of x, which is linear: each row of W gain loses its mean. A norm after a block is folded likewise into
   the rows of O and P, its denominators into the pattern and into the hidden units. */

static tn_tensor *tni_row_means(tn_ctx *ctx, tn_tensor *x)                      /* [..,n] -> [rows,1] */
{
    x = x ? tn_scale(ctx, tn_sum_axis(ctx, x, -1), 1 / (double)tni_max(x->shape[x->rank - 1], 1)) : NULL;
    return tn_reshape_2d(x, -1, 1);
}

/* 1/denominator of a norm: x [..,n] -> [rows,1]; a NULL norm gives ones */
TNI_COLD_FN tn_tensor *tni_frozen_scale(tn_ctx *ctx, const tn_norm *norm, tn_tensor *x)
{
    if (!x) return NULL;
    tn_tensor *ones = tn_full(ctx, 2, TNI_DIMS(tn_tensor_count(x) / tni_max(x->shape[x->rank - 1], 1), 1), 1);
    if (!norm) return ones;
    if (norm->desc.kind == TN_NORM_LAYER) x = tn_sub(ctx, x, tni_row_means(ctx, x));
    x = tni_row_means(ctx, tn_mul(ctx, x, x));
    return tn_div(ctx, ones, tn_sqrt(ctx, tn_add(ctx, x, tn_full(ctx, 0, NULL, norm->desc.eps))));
}

/* w [r,n], b of r numbers or NULL, with the norm before them: [r,n+1] */
static tn_tensor *tni_frozen_in(tn_ctx *ctx, const tn_norm *norm, tn_tensor *w, tn_tensor *b)
{
    tn_tensor *part[2];
    if (!w) return NULL;
    part[0] = norm->gain ? tn_mul(ctx, w, norm->gain) : w;
    part[1] = b ? tn_reshape_2d(b, -1, 1) : tn_full(ctx, 2, TNI_DIMS(w->shape[0], 1), 0);
    if (norm->bias) part[1] = tn_add(ctx, part[1], tn_matmul(ctx, w, tn_reshape_2d(norm->bias, -1, 1)));
    if (norm->desc.kind == TN_NORM_LAYER) part[0] = tn_sub(ctx, part[0], tni_row_means(ctx, part[0]));
    return tn_concat(ctx, 2, part, 1);
}

/* p [n,c] with the norm after it, which is NULL where there is none */
static tn_tensor *tni_frozen_out(tn_ctx *ctx, const tn_norm *norm, tn_tensor *p)
{
    if (!p || !norm) return p;
    if (norm->desc.kind == TN_NORM_LAYER)
        p = tn_sub(ctx, p, tn_scale(ctx, tn_sum_axis(ctx, p, 0), 1 / (double)norm->desc.dim));
    return p && norm->gain ? tn_mul(ctx, p, tn_reshape_2d(norm->gain, -1, 1)) : p;
}

/* factor (scale * fold(b) + the norm's bias) [T,n], kept; *kept is NULL where all of it is zero */
static bool tni_frozen_bias(tn_ctx *ctx, const tn_norm *norm, tn_tensor *scale, tn_tensor *b, double factor, int64_t T,
                            int64_t n, tn_tensor **kept)
{
    *kept = NULL;
    if (!b && !(norm && norm->bias)) return true;
    tn_tensor *c = tn_full(ctx, 2, TNI_DIMS(T, n), 0);
    if (b) {
        tn_tensor *row = tn_reshape_2d(tni_frozen_out(ctx, norm, tn_reshape_2d(b, -1, 1)), 1, -1);
        c = tn_add(ctx, c, norm ? tn_mul(ctx, scale, row) : row);
    }
    if (norm && norm->bias) c = tn_add(ctx, c, norm->bias);
    *kept = tn_tensor_keep(tn_scale(ctx, c, factor));
    return *kept != NULL;
}

/* The factor of each head's norm, [heads,T,1], from the values y gives. pattern [1,heads,T,T] */
static tn_tensor *tni_frozen_head_norm(tn_ctx *ctx, const tn_attention *layer, tn_tensor *pattern, tn_tensor *y)
{
    tn_norm norm = TNI_ZERO;
    norm.desc.eps = 1e-5;
    tn_tensor *in[2] = {pattern, tni_attention_v(ctx, layer, y, NULL)};
    tn_tensor *s = tni_frozen_scale(ctx, &norm, tn_einsum(ctx, "bhts,bshv->htv", 2, in));
    if (s && layer->desc.kind == TN_ATTENTION_DIFFERENTIAL) s = tn_scale(ctx, s, 1 - layer->desc.lambda_init);
    return tn_reshape(s, 3, TNI_DIMS(layer->desc.heads, y->shape[1], 1));
}

/* What multiplies q.k (squared) or both products (bilinear): scale^2 c_t where t sees s. [T,T] */
static tn_tensor *tni_frozen_mask(tn_ctx *ctx, const tn_attention_desc *d, int64_t T)
{
    tn_attend_desc a = tni_attention_attend(d);
    tn_tensor     *units = tn_eye(ctx, T);
    a.kind = TN_ATTEND_SQUARED;
    a.form = TN_ATTEND_FORM_QUADRATIC;
    if (a.scale == 0) a.scale = 1 / (double)d->d_qk;
    tn_tensor *ones = tn_full(ctx, 4, TNI_DIMS(1, T, 1, 1), 1);
    return tn_reshape_2d(units ? tn_attend(ctx, ones, ones, tn_reshape(units, 4, TNI_DIMS(1, T, 1, T)), &a) : NULL, T, T);
}

static bool tni_frozen_attention(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *block, tn_tensor *y,
                                 tn_tensor *out, tn_circuit_frozen_block *b)
{
    const tn_attention *layer = &block->attn;
    const tn_attention_desc *d = &layer->desc;
    const tn_norm *norm = m->desc.norm_place == TN_PLACE_SANDWICH ? &block->norm1_out : NULL;
    const bool     normed = d->head_norm || d->kind == TN_ATTENTION_DIFFERENTIAL;
    tn_tensor     *scale = norm ? tni_frozen_scale(ctx, norm, out) : NULL, *pattern = tn_attention_pattern(ctx, layer, y);
    tn_tensor     *v = tni_frozen_in(ctx, &block->norm1, layer->v, layer->vb), *qkb = NULL;
    if (!pattern || !v || (norm && !scale)) return false;
    if (normed) pattern = tn_mul(ctx, pattern, tni_frozen_head_norm(ctx, layer, pattern, y));
    if (norm) pattern = tn_mul(ctx, pattern, scale);
    pattern = tn_scale(ctx, pattern, m->desc.attn_scale);
    b->pattern = tn_tensor_keep(tn_reshape(pattern, 3, TNI_DIMS(d->heads, y->shape[1], y->shape[1])));
    b->v = tn_tensor_keep(tn_reshape(v, 3, TNI_DIMS(d->heads, d->d_v, d->dim + 1)));
    tn_tensor *o = tni_frozen_out(ctx, norm, layer->o);
    b->o = tn_tensor_keep(tn_reshape(o, 3, TNI_DIMS(d->dim, d->heads, d->d_v)));
    if (tni_takes_form(d->kind) && !d->qk_norm && !normed && d->row_scale != TN_ROW_SCALE_SUM) {
        if (layer->qkb) qkb = tn_reshape(layer->qkb, 1, TNI_DIMS(-1));
        b->qk = tn_tensor_keep(tni_frozen_in(ctx, &block->norm1, tn_reshape_2d(layer->qk, -1, d->dim), qkb));
        o = tni_frozen_mask(ctx, d, y->shape[1]);
        if (o && norm) o = tn_mul(ctx, o, scale);
        b->mask = o ? tn_tensor_keep(tn_scale(ctx, o, m->desc.attn_scale)) : NULL;
        if (!b->qk || !b->mask) return false;
    }
    return tni_frozen_bias(ctx, norm, scale, layer->ob, m->desc.attn_scale, y->shape[1], d->dim, &b->ob)
        && b->pattern && b->v && b->o;
}

/* The encoders that are multiplied, [k,h+1,n+1]: all of a bilinear MLP, else the one whose modifier is frozen. */
static tn_tensor *tni_frozen_encoders(tn_ctx *ctx, const tn_norm *norm, const tn_mlp *mlp)
{
    const int64_t all = mlp->w->shape[0], h = mlp->desc.hidden, n = mlp->desc.in;
    const int64_t first = mlp->desc.kind == TN_MLP_BILINEAR ? 0 : all - 1;
    tn_tensor    *w = tn_slice(mlp->w, 0, first, all), *b = tn_slice(mlp->b, 0, first, all), *part[2];
    w = w ? tni_frozen_in(ctx, norm, tn_reshape_2d(w, -1, n), b) : NULL;
    part[0] = tn_reshape(w, 3, TNI_DIMS(all - first, h, n + 1));
    part[1] = tn_add(ctx, tn_full(ctx, 3, TNI_DIMS(all - first, 1, n + 1), 0), tn_slice(tn_eye(ctx, n + 1), 0, n, n + 1));
    return tn_concat(ctx, 2, part, 1);
}

static bool tni_frozen_mlp(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *block, tn_tensor *y,
                           tn_tensor *out, tn_circuit_frozen_block *b)
{
    const tn_mlp  *mlp = &block->mlp;
    const tn_norm *norm = m->desc.norm_place == TN_PLACE_SANDWICH ? &block->norm2_out : NULL;
    const int64_t  T = y->shape[1];
    tn_tensor     *scale = norm ? tni_frozen_scale(ctx, norm, out) : NULL, *factor = NULL;
    if (norm && !scale) return false;
    if (mlp->desc.kind != TN_MLP_BILINEAR) factor = tn_mlp_modifier(ctx, mlp, y, NULL);
    else if (norm) factor = tn_full(ctx, 2, TNI_DIMS(T, mlp->desc.hidden), 1);
    if (factor && norm) factor = tn_mul(ctx, factor, scale);
    if (mlp->desc.kind != TN_MLP_BILINEAR || norm) {
        b->m = tn_tensor_keep(tn_reshape_2d(factor, T, -1));
        if (!b->m) return false;
    }
    tn_tensor *p = tni_frozen_out(ctx, norm, mlp->p ? mlp->p : tn_eye(ctx, m->desc.dim));
    b->p = p ? tn_tensor_keep(tn_scale(ctx, p, m->desc.mlp_scale)) : NULL;
    b->w = tn_tensor_keep(tni_frozen_encoders(ctx, &block->norm2, mlp));
    return tni_frozen_bias(ctx, norm, scale, mlp->pb, m->desc.mlp_scale, T, m->desc.dim, &b->pb) && b->p && b->w;
}

/* Runs block l of the model and freezes it. *x [1,T,n] becomes its result. */
static bool tni_frozen_block(tn_circuit_frozen *f, int64_t l, tn_tensor **x, tn_tensor *x0)
{
    const tn_transformer       *m = f->model;
    const tn_transformer_block *block = &m->blocks[l];
    tn_circuit_frozen_block    *b = &f->block[l];
    tn_ctx    *ctx = f->ctx;
    double     mix[2] = {1, 0};
    tn_tensor *y = tni_model_attended(ctx, m, block, x, x0, NULL);
    if (block->lambdas && tn_read(block->lambdas, TN_F64, mix, 2) != TN_OK) return false;
    b->keep = mix[0];
    b->again = mix[1];
    tn_tensor *out = y ? tn_attention_forward(ctx, &block->attn, y, NULL) : NULL;
    if (!out || !tni_frozen_attention(ctx, m, block, y, out, b)) return false;
    b->run1 = tn_tensor_keep(tn_reshape_2d(*x, f->tokens, -1));
    b->norm1_scale = tn_tensor_keep(tni_frozen_scale(ctx, m->desc.no_norm ? NULL : &block->norm1, *x));
    *x = tni_model_join(ctx, m, block, *x, out, 0, NULL, NULL, NULL);
    y = *x ? tni_model_normed(ctx, m, &block->norm2, *x, NULL, "") : NULL;
    out = y ? tn_mlp_forward(ctx, &block->mlp, y) : NULL;
    if (!out || !tni_frozen_mlp(ctx, m, block, y, out, b)) return false;
    b->run2 = tn_tensor_keep(tn_reshape_2d(*x, f->tokens, -1));
    b->norm2_scale = tn_tensor_keep(tni_frozen_scale(ctx, m->desc.no_norm ? NULL : &block->norm2, *x));
    *x = tni_model_join(ctx, m, block, *x, out, 1, NULL, NULL, NULL);
    return *x && b->run1 && b->norm1_scale && b->run2 && b->norm2_scale;
}

/* x [..,n], with c as its last column: [..,n+1] */
TNI_COLD_FN tn_tensor *tni_frozen_with(tn_ctx *ctx, tn_tensor *x, double c)
{
    int64_t shape[TN_MAX_RANK];
    if (!x) return NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = 1;
    tn_tensor *part[2] = {x, tn_full(ctx, x->rank, shape, c)};
    return tn_concat(ctx, 2, part, -1);
}

/* The sources [S,T,n+1]: tokens, positions, and the one, each as the norm of the embedding leaves it. */
static bool tni_frozen_sources(tn_circuit_frozen *f, tn_tensor *ids)
{
    const tn_transformer *m = f->model;
    const int64_t T = f->tokens, n = m->desc.dim;
    tn_ctx    *ctx = f->ctx;
    tn_tensor *part[3];
    int64_t    s = 0;
    part[s++] = tn_reshape_2d(tn_embedding_forward(ctx, &m->embed, ids), T, n);
    if (m->position) part[s++] = tn_slice(m->position, 0, 0, T);
    tn_tensor *x = m->position ? tn_add(ctx, part[0], part[1]) : part[0];
    if (m->desc.embed_norm) {
        tn_tensor *scale = tni_frozen_scale(ctx, &m->embed_norm, x);
        for (int64_t i = 0; i < s; i++) {
            if (part[i] && m->embed_norm.desc.kind == TN_NORM_LAYER)
                part[i] = tn_sub(ctx, part[i], tni_row_means(ctx, part[i]));
            part[i] = tn_mul(ctx, part[i], scale);
            if (m->embed_norm.gain) part[i] = tn_mul(ctx, part[i], m->embed_norm.gain);
        }
    }
    for (int64_t i = 0; i < s; i++) part[i] = tni_frozen_with(ctx, part[i], 0);
    if (f->constant) {
        x = tn_full(ctx, 2, TNI_DIMS(T, n), 0);
        if (m->desc.embed_norm && m->embed_norm.bias) x = tn_add(ctx, x, m->embed_norm.bias);
        part[s++] = tni_frozen_with(ctx, x, 1);
    }
    f->positions = m->position != NULL;
    f->sources = (int)s;
    f->source = tn_tensor_keep(tn_stack(ctx, s, part, 0));
    return f->source != NULL;
}

/* Runs the model, keeping what is constant. */
static bool tni_frozen_run(tn_circuit_frozen *f, tn_tensor *ids)
{
    const tn_transformer *m = f->model;
    tn_ctx    *ctx = f->ctx;
    tn_tensor *x0 = tni_model_embedded(ctx, m, ids, 0, NULL), *x = x0;
    if (!x0 || !tni_frozen_sources(f, ids)) return false;
    for (int64_t l = 0; l < m->desc.layers; l++) if (!tni_frozen_block(f, l, &x, x0)) return false;
    f->run = tn_tensor_keep(tn_reshape_2d(x, f->tokens, -1));
    f->norm_scale = tn_tensor_keep(tni_frozen_scale(ctx, m->desc.no_norm ? NULL : &m->norm, x));
    f->u = tn_tensor_keep(tni_frozen_in(ctx, &m->norm, m->head.w, NULL));
    if (m->desc.softcap > 0) {
        x = f->run ? tni_model_normed(ctx, m, &m->norm, f->run, NULL, "") : NULL;
        tn_tensor *raw = x ? tn_linear_forward(ctx, &m->head, x) : NULL;
        x = x ? tn_transformer_unembed(ctx, m, x) : NULL;
        f->cap = raw && x ? tn_tensor_keep(tni_quotient_of_act(ctx, x, raw, 1)) : NULL;
        if (!f->cap) return false;
    }
    return f->run && f->norm_scale && f->u;
}

/* [r x; c] for x with c as its last column.   x [..,n+1]  r [T,1] */
TNI_COLD_FN tn_tensor *tni_frozen_read(tn_ctx *ctx, tn_tensor *x, tn_tensor *r)
{
    const int64_t n = x ? x->shape[x->rank - 1] - 1 : 0;
    tn_tensor    *part[2];
    if (!x) return NULL;
    part[0] = tn_mul(ctx, tn_slice(x, -1, 0, n), r);
    part[1] = tn_slice(x, -1, n, n + 1);
    return tn_concat(ctx, 2, part, -1);
}

/* What is multiplied with x [..,n+1]: `factor` n times, then `last`. */
TNI_COLD_FN tn_tensor *tni_frozen_factors(tn_ctx *ctx, int64_t n, double factor, double last)
{
    return tni_frozen_with(ctx, tn_full(ctx, 1, &n, factor), last);
}

/* What an MLP adds, for its products h [T,h+1] of encoders times m. */
TNI_COLD_FN tn_tensor *tni_frozen_added(tn_ctx *ctx, const tn_circuit_frozen_block *b, tn_tensor *h)
{
    const int64_t hidden = b->p->shape[1];
    tn_tensor    *y = h ? tn_affine(ctx, tn_slice(h, -1, 0, hidden), b->p, NULL) : NULL;
    return y && b->pb ? tn_add(ctx, y, tn_mul(ctx, tn_slice(h, -1, hidden, hidden + 1), b->pb)) : y;
}

TNI_COLD_FN bool tni_frozen_set(tn_tensor **slot, tn_tensor *t)
{
    tn_tensor_destroy(*slot);
    *slot = tn_tensor_keep(t);
    return *slot != NULL;
}

/* 1/k [1,1,1]; or, where encoders of a unit are constant, [k,1,h+1]: a unit is divided among those that read x, as a power
   among its factors that are not the one. Those of a unit that is constant keep 1/k. */
static tn_tensor *tni_frozen_shares(tn_ctx *ctx, const tn_tensor *w)
{
    const int64_t k = w->shape[0], h = w->shape[1], n = w->shape[2] - 1;
    tni_scratch   s = tni_scratch_begin(ctx, "circuit");
    double       *v = k > 1 ? tni_take_numbers(&s, w) : NULL, *share = v ? tni_take_f64(&s, k, h) : NULL;
    bool          some = false;
    for (int64_t i = 0; share && i < h; i++) {
        int64_t readers = 0;
        for (int64_t e = 0; e < k; e++) {
            const double *row = v + (e * h + i) * (n + 1);
            share[e * h + i] = 0;
            for (int64_t j = 0; j < n && share[e * h + i] == 0; j++) share[e * h + i] = row[j] != 0;
            readers += share[e * h + i] != 0;
        }
        some = some || (readers > 0 && readers < k);
        for (int64_t e = 0; e < k; e++) share[e * h + i] = readers ? share[e * h + i] / (double)readers : 1 / (double)k;
    }
    tn_tensor *t = k > 1 && !share ? NULL : some ? tn_tensor_from(ctx, 3, TNI_DIMS(k, 1, h), TN_F64, share)
                                                 : tn_full(ctx, 3, TNI_DIMS(1, 1, 1), 1 / (double)k);
    tni_scratch_release(&s, NULL);
    return t;
}

/* gate[e] = m/k * product of the other encoders, and what the MLP adds */
static bool tni_frozen_gates(tn_ctx *ctx, tn_circuit_frozen_block *b, tn_tensor *y)
{
    const int64_t k = b->w->shape[0];
    tn_tensor    *gate[64];
    tn_tensor    *in[2] = {y, b->w};
    tn_tensor    *z = tn_einsum(ctx, "tn,ehn->eth", 2, in);
    for (int64_t e = 0; e < k && z; e++) {
        gate[e] = NULL;
        for (int64_t i = 0; i < k; i++)
            if (i != e) gate[e] = gate[e] ? tn_mul(ctx, gate[e], tni_layer_part(z, i)) : tni_layer_part(z, i);
        if (k == 1) gate[e] = tn_full(ctx, 2, z->shape + 1, 1);
    }
    tn_tensor *share = z ? tni_frozen_shares(ctx, b->w) : NULL;
    tn_tensor *all = share ? tn_mul(ctx, tn_stack(ctx, k, gate, 0), share) : NULL;
    if (all && b->m) all = tn_mul(ctx, all, tni_frozen_with(ctx, b->m, 1));
    if (!all || !tni_frozen_set(&b->gate, all)) return false;
    return tni_frozen_set(&b->added, tni_frozen_added(ctx, b, tn_sum_axis(ctx, tn_mul(ctx, all, z), 0)));
}

/* The residual stream x [T,n+1] at the beginning of block b -> at its end */
static tn_tensor *tni_frozen_forward(tn_ctx *ctx, tn_circuit_frozen_block *b, tn_tensor *x)
{
    tn_tensor *in[4], *y = tni_frozen_read(ctx, x, b->norm1_scale);
    if (!y || !tni_frozen_set(&b->x1, x)) return NULL;
    in[0] = y; in[1] = b->v;
    if (!tni_frozen_set(&b->values, tn_einsum(ctx, "sn,hvn->shv", 2, in))) return NULL;
    in[0] = b->pattern; in[1] = b->values; in[2] = b->o;
    tn_tensor *a = tn_einsum(ctx, "hts,shv,ohv->to", 3, in);
    if (a && b->ob) a = tn_add(ctx, a, b->ob);
    x = tn_add(ctx, x, tni_frozen_with(ctx, a, 0));
    y = tni_frozen_read(ctx, x, b->norm2_scale);
    if (!y || !tni_frozen_set(&b->x2, x) || !tni_frozen_gates(ctx, b, y)) return NULL;
    return tn_add(ctx, x, tni_frozen_with(ctx, b->added, 0));
}

/* Largest |a - b| over the largest |b|, NaN if one is not finite. */
TNI_COLD_FN double tni_frozen_differ(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t n = tn_tensor_count(a);
    tni_scratch   w = tni_scratch_begin(a->ctx, "circuit");
    double       *p = tni_take_numbers(&w, a), *q = p ? tni_take_numbers(&w, b) : NULL;
    double        most = 0, size = 0;
    for (int64_t i = 0; q && i < n; i++) {
        if (!(fabs(p[i] - q[i]) <= most)) most = fabs(p[i] - q[i]);
        if (fabs(q[i]) > size) size = fabs(q[i]);
        if (most != most) break;
    }
    most = !q ? (double)NAN : size > 0 ? most / size : most;
    tni_scratch_release(&w, NULL);
    return most;
}

static bool tni_frozen_states(tn_circuit_frozen *f)
{
    const tn_transformer *m = f->model;
    const int64_t n = m->desc.dim;
    tn_ctx    *ctx = f->ctx;
    tn_tensor *x0 = tn_sum_axis(ctx, f->source, 0);
    if (x0 && !f->constant) x0 = tni_frozen_with(ctx, tn_slice(x0, -1, 0, n), 1);
    tn_tensor *x = x0;
    for (int64_t l = 0; l < m->desc.layers && x; l++) {
        tn_circuit_frozen_block *b = &f->block[l];
        if (b->keep != 1 || b->again != 0)
            x = tn_add(ctx, tn_mul(ctx, x, tni_frozen_factors(ctx, n, b->keep, 1)),
                       tn_mul(ctx, x0, tni_frozen_factors(ctx, n, b->again, 0)));
        x = tni_frozen_forward(ctx, b, x);
    }
    if (!x || !tni_frozen_set(&f->x, x)) return false;
    tn_tensor *z = tn_affine(ctx, tni_frozen_read(ctx, x, f->norm_scale), f->u, NULL);
    if (z && f->cap) z = tn_mul(ctx, z, f->cap);
    if (!z || !tni_frozen_set(&f->logits, z)) return false;
    x = tni_model_normed(ctx, m, &m->norm, f->run, NULL, "");
    z = x ? tn_transformer_unembed(ctx, m, x) : NULL;
    f->error = z ? tni_frozen_differ(f->logits, z) : (double)NAN;
    return z != NULL;
}

tn_status tn_circuit_frozen_update(tn_circuit_frozen *f)
{
    if (!f || !f->ctx) return TN_ERR_ARG;
    tni_scope scope = tni_scope_begin(f->ctx);
    bool      done = tni_frozen_states(f);
    tni_scope_end(f->ctx, scope);
    if (done && f->error < HUGE_VAL) return TN_OK;
    tn_tensor_destroy(f->logits);                       /* a mixture of old and new states is not used */
    f->logits = NULL;
    if (!done) return tni_analysis_status(f->ctx);
    return tni_fail(f->ctx, TN_ERR_NONFINITE, "circuit_freeze: a logit is not finite, expected finite weights");
}

tn_status tn_circuit_freeze(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, tn_circuit_frozen *out)
{
    if (!ctx || !out) return tni_fail(ctx, TN_ERR_ARG, "circuit_freeze: %s is NULL", ctx ? "out" : "ctx");
    memset(out, 0, sizeof *out);
    if (!tni_model_given(ctx, m, ids, "ids", "circuit_freeze")) return tni_analysis_status(ctx);
    if (m->desc.norm_place == TN_PLACE_POST)
        return tni_fail(ctx, TN_ERR_ARG, "circuit_freeze: norm_place is TN_PLACE_POST, expected norms before the blocks: the "
                        "residual stream itself would be normed");
    if (m->desc.value_residual)
        return tni_fail(ctx, TN_ERR_ARG, "circuit_freeze: value_residual is true, expected false: heads would have two sources "
                        "of values");
    if (ids->shape[0] != 1 || ids->shape[1] < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "circuit_freeze: ids are %s, expected [1,T], one text", TNI_SHAPE(ids));
    const tn_transformer_desc *d = &m->desc;
    out->ctx = ctx;
    out->model = m;
    out->layers = d->layers;
    out->tokens = ids->shape[1];
    out->constant = d->attn_bias || d->attn_out_bias || d->mlp_bias || d->mlp_out_bias || d->norm_bias;
    out->block = (tn_circuit_frozen_block *)tni_array(ctx, d->layers, sizeof *out->block, "circuit_freeze");
    if (out->block) memset(out->block, 0, (size_t)d->layers * sizeof *out->block);
    out->id = (int32_t *)tni_array(ctx, out->tokens, sizeof *out->id, "circuit_freeze");
    tni_scope scope = tni_scope_begin(ctx);
    bool      done = out->block && out->id && tn_read(ids, TN_I32, out->id, out->tokens) == TN_OK && tni_frozen_run(out, ids);
    tni_scope_end(ctx, scope);
    if (done && tn_circuit_frozen_update(out) == TN_OK) return TN_OK;
    tn_circuit_frozen_destroy(out);
    return tni_analysis_status(ctx);
}

/* sum [2 layers + 1,T] += factor * what the norms of one text multiply by; taps: `count` that read them into x */
static bool tni_norm_scales_of(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, const tn_tap *taps, tn_tensor **x,
                               int64_t count, double factor, double *sum, double *one)
{
    const int64_t T = ids ? ids->shape[1] : 0;
    if (!ids || !tn_transformer_run(ctx, m, ids, taps, count)) return false;
    for (int64_t i = 0; i < count; i++) {
        if (tn_read(x[i], TN_F64, one, T) != TN_OK) return false;
        for (int64_t t = 0; t < T; t++) sum[i * T + t] += factor * one[t];
    }
    return true;
}

tn_tensor *tn_circuit_norm_scales(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids)
{
    if (!tni_model_given(ctx, m, ids, "ids", "circuit_norm_scales")) return NULL;
    const int64_t N = ids->shape[0], T = ids->shape[1], rows = 2 * m->desc.layers + 1;
    const int64_t count = m->desc.no_norm ? 0 : rows - (m->desc.norm_place == TN_PLACE_POST);
    if (N < 1 || T < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "circuit_norm_scales: ids are %s, expected [texts,tokens], at least one of each",
                        TNI_SHAPE(ids)), (tn_tensor *)NULL;
    tni_scratch     w = tni_scratch_begin(ctx, "circuit_norm_scales");
    tn_tensor     **x = (tn_tensor **)tni_take(&w, rows, sizeof *x), *t = NULL;
    tn_tap         *taps = (tn_tap *)tni_take(&w, rows, sizeof *taps);
    tni_point_name *names = (tni_point_name *)tni_take(&w, rows, sizeof *names);
    double         *sum = tni_take_zeros(&w, rows, T), *one = tni_take_f64(&w, 1, T);
    bool            done = !w.failed;
    for (int64_t i = 0; done && i < rows; i++) {
        names[i] = tni_point_named(i + 1 < rows ? i / 2 : -1, i + 1 == rows ? "norm" : i % 2 ? "norm2" : "norm1", ".scale");
        taps[i].points = names[i].s;
        taps[i].fn = tn_tap_read;
        taps[i].user = &x[i];
    }
    for (int64_t k = 0; done && k < N && count > 0; k++) {
        const tni_scope scope = tni_scope_begin(ctx);
        done = tni_norm_scales_of(ctx, m, tn_slice(ids, 0, k, k + 1), taps, x, count, 1 / (double)N, sum, one);
        tni_scope_end(ctx, scope);
    }
    for (int64_t i = count * T; done && i < rows * T; i++) sum[i] = 1;
    if (done) t = tni_owned_from(ctx, 2, TNI_DIMS(rows, T), sum);
    tni_scratch_release(&w, NULL);
    return t;
}

void tn_circuit_frozen_destroy(tn_circuit_frozen *f)
{
    if (!f || !f->ctx) return;
    for (int64_t l = 0; f->block && l < f->layers; l++) {
        tn_circuit_frozen_block *b = &f->block[l];
        tni_result_end(b, offsetof(tn_circuit_frozen_block, keep), 0, 12);
        tni_result_end(&b->run1, sizeof *b - offsetof(tn_circuit_frozen_block, run1), 0, 7);
    }
    tn_tensor_destroy(f->source);
    if (f->block) tni_free(f->ctx, f->block, (size_t)f->layers * sizeof *f->block);
    tni_free(f->ctx, f->id, (size_t)f->tokens * sizeof *f->id);
    tni_result_end(f, sizeof *f, offsetof(tn_circuit_frozen, norm_scale), 6);
}

#endif /* TN_NO_CIRCUITS */
