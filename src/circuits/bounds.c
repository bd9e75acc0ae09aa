#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "algebra/algebra.h"
#include "decomp/inner.h"
#include "layers/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- bounds for all texts ----------------------------------------------- >>circuits-bounds-impl */

typedef struct tni_bound {
    tn_ctx               *ctx;
    const tn_transformer *m;
    tni_scratch w;              /* has all arrays                                               */
    int64_t  V, n, heads, hidden, c, unknown;
    uint64_t dropped;
    bool     softmax;
    tn_tensor *keys;            /* [V,sets heads,d] at position 0, owned                        */
    double   scale;             /* of scores: of both sets together, with attn_scale, unless softmax */
    double  *moved;             /* [heads,V,V] logit v of what head h adds for token j          */
    double  *vector;            /* [heads,V,n] that vector                                      */
    double  *length;            /* [heads] the longest of these                                 */
    double  *form;              /* [V,hidden] a_v, with |a_u - a_v| = |Q_u - Q_v|               */
    tn_tensor *up;              /* [V,hidden] U P, owned                                        */
} tni_bound;

/* The larger and the smaller of two. A NaN, where finite numbers overflow, remains: it is no bound of anything. */
static void tni_raise(double *most, double x) { if (x > *most || x != x) *most = x; }
static void tni_lower(double *least, double x) { if (x < *least || x != x) *least = x; }

static bool tni_bound_refuses(tn_ctx *ctx, const tn_transformer *m, int64_t seen)
{
    const tn_transformer_desc *d = &m->desc;
    const tn_attention_desc   *a = &m->blocks[0].attn.desc;
    const tn_mlp_desc         *mlp = &m->blocks[0].mlp.desc;
    const bool    softmax = a->kind == TN_ATTENTION_SOFTMAX;
    const int64_t length = a->row_length > 0 ? a->row_length : 512;
    const char   *what = d->layers != 1 ? "the model has more than one block"
        : d->bidirectional ? "bidirectional is true"
        : d->norm_place != TN_PLACE_PRE || d->norm != TN_NORM_RMS ? "norms are not RMS norms before the block"
        : mlp->kind != TN_MLP_BILINEAR || mlp->order != 2 ? "the MLP is not bilinear of order 2"
        : d->positions == TN_POSITIONS_LEARNED ? "positions are learned"
        : a->head_norm || (!softmax && !tni_takes_form(a->kind)) ? "heads have norms, or are differential"
        : !softmax && (a->row_scale == TN_ROW_SCALE_MEAN || a->row_scale == TN_ROW_SCALE_SUM) ? "rows are scaled by mean or sum"
        : !softmax && a->row_scale != TN_ROW_SCALE_NONE && seen > length ? "there are more tokens than the row scale's length"
        : NULL;
    if (what) tni_fail(ctx, TN_ERR_ARG, "circuit_bound: %s, expected what the function's comment lists", what);
    return what != NULL;
}

/* Coordinates a_v of the forms Q_v of the logits, up to a rotation: a = U P R, where R R^T are the inner products of the
   forms of hidden units. |Q_u - Q_v| from the inner products of Q_u and Q_v would be rounding where both are almost equal.
   f: both encoders [hidden,n] -> [V,hidden] */
static tn_tensor *tni_bound_forms(const tni_bound *b, tn_tensor *f[2])
{
    tn_ctx        *ctx = b->ctx;
    tn_cp         *units = f[0] && f[1] ? tn_cp_create(ctx, 2, tn_eye(ctx, b->hidden), f, TN_CP_INPUT_PLAIN) : NULL;
    tn_tensor     *gram = units ? tn_cp_gram(units, units) : NULL, *a = NULL;
    tn_eigh_result e;
    tn_cp_destroy(units);
    tn_eigh_desc d = TNI_ZERO;
    d.symmetrise = true;
    if (gram && tn_eigh(ctx, gram, &d, &e) == TN_OK) {
        a = tn_affine(ctx, b->up, e.vectors, NULL);
        a = tn_mul(ctx, a, tn_sqrt(ctx, tn_activation(ctx, e.values, TN_ACT_RELU)));
        tn_eigh_destroy(&e);
    }
    tn_tensor_destroy(gram);
    return a;
}

/* Whether all that unknown tokens can add is finite: else a bound would leave out the token that is not. */
static bool tni_bound_finite(const tni_bound *b)
{
    const int64_t tokens = b->heads * b->V, keys = tn_tensor_count(b->keys);
    tni_scratch   w = tni_scratch_begin(b->ctx, "circuit_bound");
    double       *key = tni_take_numbers(&w, b->keys);
    if (!key) return tni_scratch_end(&w, TN_ERR_MEMORY), false;
    double most = tni_max_f64(tni_largest_of(keys, key), tni_largest_of(tokens * b->V, b->moved));
    most = tni_max_f64(most, tni_largest_of(tokens * b->n, b->vector));
    most = tni_max_f64(most, tni_largest_of(b->V * b->hidden, b->form));
    tni_scratch_release(&w, NULL);
    if (most < HUGE_VAL) return true;
    return tni_fail(b->ctx, TN_ERR_NONFINITE, "circuit_bound: what a token adds is not finite, expected finite weights"), false;
}

/* What depends on the weights alone. f: any frozen text, for its folded weights */
static bool tni_bound_tables(tni_bound *b, const tn_circuit_frozen *f)
{
    const tn_transformer_block    *block = &b->m->blocks[0];
    const tn_circuit_frozen_block *z = &f->block[0];
    const int64_t V = b->V, n = b->n;
    tn_ctx    *ctx = b->ctx;
    tn_tensor *x = tni_circuit_stream(ctx, b->m, 0), *u = tn_slice(f->u, 1, 0, n);
    tn_tensor *y = x ? tni_model_attended(ctx, b->m, block, &x, x, NULL) : NULL;      /* [V,1,n]: each token alone */
    tn_tensor *vector = y ? tni_attention_qk(ctx, &block->attn, y, 0) : NULL;
    b->keys = vector ? tn_tensor_keep(tn_slice(vector, 2, vector->shape[2] / 2, vector->shape[2])) : NULL;
    tn_tensor *in[2] = {y ? tni_attention_v(ctx, &block->attn, y, NULL) : NULL, z->o};
    vector = tn_einsum(ctx, "jbhv,ohv->hjo", 2, in);
    if (vector && b->softmax) vector = tn_scale(ctx, vector, b->m->desc.attn_scale);
    in[0] = vector; in[1] = u;
    x = tn_einsum(ctx, "hjo,vo->hjv", 2, in);
    b->up = tn_tensor_keep(tn_matmul(ctx, u, z->p));
    if (!x || !b->up || !b->keys) return false;
    in[0] = tn_copy(ctx, tn_slice(tn_slice(tni_layer_part(z->w, 0), 0, 0, b->hidden), 1, 0, n));
    in[1] = tn_copy(ctx, tn_slice(tn_slice(tni_layer_part(z->w, 1), 0, 0, b->hidden), 1, 0, n));
    tn_tensor *form = tni_bound_forms(b, in);
    b->form = form ? tni_take_numbers(&b->w, form) : NULL;
    b->moved = tni_take_numbers(&b->w, x);
    b->vector = tni_take_numbers(&b->w, vector);
    b->length = tni_take_zeros(&b->w, b->heads, 1);
    if (!form || b->w.failed) return false;
    for (int64_t h = 0; h < b->heads; h++) for (int64_t i = 0; i < V; i++) {
        const double *v = b->vector + (h * V + i) * n;
        tni_raise(&b->length[h], sqrt(tni_dot_f64(v, v, n)));
    }
    return tni_bound_finite(b);
}

/* The weight that head h can give to unknown tokens: softmax at most beta, others at most the sum of |pattern|.
   y [1,1,n]: what the last known token is read as; known: log of the sum of exp(scores) of the known end */
static bool tni_bound_mass(const tni_bound *b, tn_tensor *y, const double *known, double *mass)
{
    const tn_attention *layer = &b->m->blocks[0].attn;
    const int64_t window = layer->desc.window, sets = layer->desc.kind == TN_ATTENTION_BILINEAR ? 2 : 1;
    const int64_t all = b->c + b->unknown, end = window > 0 ? tni_min(window, all) : all;
    tn_ctx       *ctx = b->ctx;
    tni_scratch   w = tni_scratch_begin(ctx, "circuit_bound");
    for (int64_t h = 0; h < b->heads; h++) mass[h] = 0;
    if (end <= 0) return true;
    tn_tensor *s = tn_full(ctx, 3, TNI_DIMS(1, end, b->n), 0);   /* the query at each distance from a key at position 0 */
    tn_tensor *q = s ? tni_attention_qk(ctx, layer, tn_add(ctx, s, y), 0) : NULL;
    tn_tensor *in[2] = {q ? tn_slice(q, 2, 0, sets * b->heads) : NULL, b->keys};
    s = tn_einsum(ctx, "bthd,jbhd->htj", 2, in);
    double *v = s ? tni_take_numbers(&w, s) : NULL;
    for (int64_t h = 0; v && h < b->heads; h++) {
        const bool dropped = b->dropped >> h & 1;
        double     sum = 0;
        int64_t    first = dropped ? 0 : b->c;
        for (int64_t o = first; o < end; o++) {
            const double *a = v + (h * end + o) * b->V, *a2 = v + (((sets - 1) * b->heads + h) * end + o) * b->V;
            double        most = b->softmax ? -HUGE_VAL : 0;
            for (int64_t j = 0; j < b->V; j++)
                tni_raise(&most, b->softmax ? b->scale * a[j] - known[h] : fabs(b->scale * a[j] * a2[j]));
            sum += b->softmax ? exp(most) : most;
        }
        mass[h] = !b->softmax ? sum : dropped ? 1 : sum < HUGE_VAL ? sum / (1 + sum) : sum != sum ? sum : 1;
    }
    tni_scratch_release(&w, NULL);
    return v != NULL;
}

/* log of the sum of exp(scores) over the known end, of the last position */
static bool tni_bound_known(const tni_bound *b, tn_tensor *y, double *known)
{
    const tn_attention_desc *d = &b->m->blocks[0].attn.desc;
    const int64_t c = b->c, first = d->window > 0 && d->window < c ? c - d->window : 0;
    tn_ctx    *ctx = b->ctx;
    tn_tensor *in[2];
    if (!b->softmax) return true;
    tn_tensor *qk = tni_attention_qk(ctx, &b->m->blocks[0].attn, y, 0);
    in[0] = tn_slice(tn_slice(qk, 1, c - 1, c), 2, 0, b->heads);
    in[1] = tn_slice(tn_slice(qk, 1, first, c), 2, b->heads, 2 * b->heads);
    tni_scratch w = tni_scratch_begin(ctx, "circuit_bound");
    tn_tensor  *s = tn_einsum(ctx, "bthd,bshd->hs", 2, in);
    double     *v = s ? tni_take_numbers(&w, s) : NULL;
    for (int64_t h = 0; v && h < b->heads; h++) {
        const double *at = v + h * (c - first);
        double        most = at[0];
        for (int64_t o = 1; o < c - first; o++) most = at[o] > most ? at[o] : most;
        double sum = 0;
        for (int64_t o = 0; o < c - first; o++) sum += exp(b->scale * (at[o] - most));
        known[h] = b->scale * most + log(sum);
    }
    tni_scratch_release(&w, NULL);
    return v != NULL;
}

/* One end of texts: arrays of the host */
typedef struct tni_bound_end {
    int64_t best, next;
    bool    certain, possible;  /* every text predicts next; some text may                      */
    double *logit;              /* [V] of the circuit, before the last norm                     */
    double *gradient;           /* [V,n] of logit v in what the MLP reads, by the MLP           */
    double *out;                /* [heads,V] what the known end adds to logit v by head h       */
    double *margin, *change, *least, *most;     /* [V]                                          */
    double  eta;                /* largest change of what the MLP reads                         */
} tni_bound_end;

/* margin[v]: lower bound of logit best - logit v; change[v]: by how much that difference can change */
static void tni_bound_pairs(const tni_bound *b, tni_bound_end *e, const double *mass)
{
    const int64_t V = b->V, n = b->n, best = e->best;
    for (int64_t v = 0; v < V; v++) {
        const double slope = tni_distance_f64(e->gradient + best * n, e->gradient + v * n, n);
        const double curve = tni_distance_f64(b->form + best * b->hidden, b->form + v * b->hidden, b->hidden);
        e->change[v] = e->eta != 0 ? slope * e->eta + curve * e->eta * e->eta : 0;
        e->margin[v] = e->logit[best] - e->logit[v] - e->change[v];
    }
    for (int64_t h = 0; h < b->heads; h++) {
        const double *moved = b->moved + h * V * V;
        const bool    dropped = b->dropped >> h & 1;
        if (mass[h] == 0) continue;
        for (int64_t v = 0; v < V; v++) { e->least[v] = HUGE_VAL; e->most[v] = -HUGE_VAL; }
        for (int64_t j = 0; j < V; j++) for (int64_t v = 0; v < V; v++) {
            const double w = moved[j * V + best] - moved[j * V + v];
            tni_lower(&e->least[v], w);
            tni_raise(&e->most[v], w);
        }
        for (int64_t v = 0; v < V; v++) {
            const double known = b->softmax && !dropped ? e->out[h * V + best] - e->out[h * V + v] : 0;
            double       low = e->least[v] - known, high = e->most[v] - known;  /* low <= 0 <= high */
            if (!b->softmax) { high = high > -low ? high : -low; low = -high; }
            e->margin[v] += mass[h] * low;
            e->change[v] += mass[h] * (fabs(low) > fabs(high) ? fabs(low) : fabs(high));
        }
    }
}

/* Narrows margin and change to what the texts id [count,length] give, and tells which of them predict next. */
static bool tni_bound_texts(const tni_bound *b, const tn_circuit_frozen *f, tni_bound_end *e, int64_t count, int64_t length,
                            const int32_t *id)
{
    const int64_t V = b->V, best = e->best;
    tn_ctx    *ctx = b->ctx;
    tn_tensor *x = tn_tensor_from(ctx, 2, TNI_DIMS(count, length), TN_I32, id);
    x = x ? tni_model_embedded(ctx, b->m, x, 0, NULL) : NULL;
    x = x ? tni_model_blocks(ctx, b->m, x, 1, NULL, NULL, NULL) : NULL;
    x = x ? tn_copy(ctx, tn_slice(x, 1, length - 1, length)) : NULL;
    x = x ? tn_affine(ctx, tn_reshape_2d(x, count, b->n), tn_slice(f->u, 1, 0, b->n), NULL) : NULL;
    tni_scratch w = tni_scratch_begin(ctx, "circuit_bound");
    double     *logit = x ? tni_take_numbers(&w, x) : NULL;
    for (int64_t r = 0; logit && r < count; r++) {
        const double *to = logit + r * V;
        bool          most = true, alone = true;        /* where two logits tie, either token is predicted */
        for (int64_t v = 0; v < V; v++) {
            const double gap = to[best] - to[v];
            tni_lower(&e->margin[v], gap);
            tni_raise(&e->change[v], fabs(gap - (e->logit[best] - e->logit[v])));
            if (to[v] > to[e->next]) most = false;
            if (v != e->next && !(to[v] < to[e->next])) alone = false;
        }
        if (most) e->possible = true;
        if (!alone) e->certain = false;
    }
    tni_scratch_release(&w, NULL);
    return logit != NULL;
}

/* At most one unknown token that the end can see: none is tried and, with `one`, all of them. */
static bool tni_bound_exact(const tni_bound *b, const tn_circuit_frozen *f, tni_bound_end *e, bool one)
{
    const int64_t V = b->V, c = b->c;
    tni_scratch   w = tni_scratch_begin(b->ctx, "circuit_bound");
    int32_t      *id = (int32_t *)tni_take(&w, tni_area(V, c + 1), sizeof *id);
    if (!id) return false;
    e->certain = true;
    e->possible = false;
    for (int64_t v = 0; v < V; v++) {
        e->margin[v] = HUGE_VAL;
        e->change[v] = 0;
        id[v * (c + 1)] = (int32_t)v;
        memcpy(id + v * (c + 1) + 1, f->id, (size_t)c * sizeof *id);
    }
    bool done = tni_bound_texts(b, f, e, 1, c, f->id) && (!one || tni_bound_texts(b, f, e, V, c + 1, id));
    tni_scratch_release(&w, NULL);
    return done;
}

/* How far the vectors of all tokens are from the head's known output [n], or from 0 */
static double tni_bound_reach(const tni_bound *b, int64_t h, const double *out)
{
    double most = 0;
    if (!b->softmax || b->dropped >> h & 1) return b->length[h];
    for (int64_t j = 0; j < b->V; j++) tni_raise(&most, tni_distance_f64(b->vector + (h * b->V + j) * b->n, out, b->n));
    return most;
}

/* The largest change of what the MLP reads, for a change of at most `shift` of the stream x [n] */
static double tni_bound_eta(const tni_bound *b, const double *x, double shift)
{
    const double n = (double)b->n, eps = b->m->blocks[0].norm2.desc.eps;
    double       least = sqrt(tni_dot_f64(x, x, b->n)) - shift;
    if (b->m->desc.no_norm || shift == 0) return shift;
    if (least < 0) least = 0;
    double eta = sqrt(n) * shift / sqrt(least * least + n * eps);
    return eta < 2 * sqrt(n) ? eta : 2 * sqrt(n);
}

/* Removes what is dropped from a frozen end, and gives the MLP's norm the denominators of what is left. */
static bool tni_bound_prune(const tni_bound *b, tn_circuit_frozen *f)
{
    tn_circuit_frozen_block *z = &f->block[0];
    const tn_norm           *norm = b->m->desc.no_norm ? NULL : &b->m->blocks[0].norm2;
    if (!b->dropped) return true;
    for (int64_t h = 0; h < b->heads; h++)
        if ((b->dropped >> h & 1) && tni_fill(tn_slice(z->pattern, 0, h, h + 1), 0) != TN_OK) return false;
    return tn_circuit_frozen_update(f) == TN_OK
        && tni_frozen_set(&z->norm2_scale, tni_frozen_scale(b->ctx, norm, tn_slice(z->x2, 1, 0, b->n)))
        && tn_circuit_frozen_update(f) == TN_OK;
}

/* Bounds one end, ids [1,c]. e has space for its arrays; mass, known [heads] */
static bool tni_bound_one(tni_bound *b, tn_circuit_frozen *f, tni_bound_end *e, double *mass, double *known)
{
    const tn_circuit_frozen_block *z = &f->block[0];
    const int64_t V = b->V, n = b->n, c = b->c, last = c - 1;
    const int64_t window = b->m->blocks[0].attn.desc.window, all = c + b->unknown;
    const int64_t seen = window > 0 ? tni_min(window, all) : all;
    int64_t    v;
    tn_ctx    *ctx = b->ctx;
    tn_tensor *y = tn_slice(z->run1, 0, 0, c), *u = tn_slice(f->u, 1, 0, n);
    double    *o = NULL, *x = NULL, shift = 0;
    tni_scratch scratch = tni_scratch_begin(ctx, "circuit_bound");
    y = y ? tni_model_normed(ctx, b->m, &b->m->blocks[0].norm1, tn_reshape(y, 3, TNI_DIMS(1, c, n)), NULL, "") : NULL;
    bool       done = y && tni_bound_known(b, y, known) && tni_bound_mass(b, tn_slice(y, 1, last, c), known, mass);
    tn_tensor *in[3] = {tn_slice(z->pattern, 1, last, c), z->values, z->o};
    tn_tensor *out = done ? tn_einsum(ctx, "hts,shv,ohv->ho", 3, in) : NULL;
    in[0] = out; in[1] = u;
    tn_tensor *w = tn_einsum(ctx, "ho,vo->hv", 2, in);
    done = w && tn_read(w, TN_F64, e->out, b->heads * V) == TN_OK && (o = tni_take_numbers(&scratch, out)) != NULL;
    w = done ? tn_affine(ctx, tn_slice(f->x, 0, last, c), f->u, NULL) : NULL;
    done = w && tn_read(w, TN_F64, e->logit, V) == TN_OK;
    in[0] = done ? tni_frozen_read(ctx, tn_slice(z->x2, 0, last, c), tn_slice(z->norm2_scale, 0, last, c)) : NULL;
    in[1] = tn_slice(z->w, 1, 0, b->hidden);
    y = in[0] ? tn_einsum(ctx, "tn,ehn->eth", 2, in) : NULL;
    tn_tensor *other[2] = {y ? tni_layer_part(y, 1) : NULL, y ? tni_layer_part(y, 0) : NULL};
    in[0] = tn_stack(ctx, 2, other, 0);
    in[1] = tn_slice(in[1], 2, 0, n);
    w = y ? tn_einsum(ctx, "eth,ehn->hn", 2, in) : NULL;
    w = w ? tn_matmul(ctx, b->up, w) : NULL;
    done = w && tn_read(w, TN_F64, e->gradient, V * n) == TN_OK;
    x = done ? tni_take_numbers(&scratch, z->x2) : NULL;
    if (x) {
        for (int64_t h = 0; h < b->heads; h++) if (mass[h] != 0) shift += mass[h] * tni_bound_reach(b, h, o + h * n);
        e->eta = tni_bound_eta(b, x + last * (n + 1), shift);
        for (e->best = 0, v = 1; v < V; v++) if (e->logit[v] > e->logit[e->best]) e->best = v;
        if (seen <= c + 1) done = tni_bound_exact(b, f, e, seen > c);
        else {
            tni_bound_pairs(b, e, mass);
            e->possible = !(e->margin[e->next] > 0);
            e->certain = e->best == e->next;
            for (v = 0; v < V; v++) if (v != e->next && !(e->margin[v] > 0)) e->certain = false;
        }
    }
    tni_scratch_release(&scratch, NULL);
    return x && done;
}

/* The share of the ends for which this holds, by weight or all alike. */
static double tni_bound_share(int64_t n, const bool *holds, const double *weight)
{
    double all = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        all += weight ? weight[i] : 1;
        sum += !holds[i] ? 0 : weight ? weight[i] : 1;
    }
    return sum / all;
}

/* next, weight [N]; weight may be NULL */
static bool tni_bound_counted(const tni_bound *b, int64_t N, const int32_t *next, const double *weight)
{
    const char *op = "circuit_bound";
    double      all = 0;
    for (int64_t i = 0; i < N; i++) {
        if (next[i] < 0 || next[i] >= b->V)
            return tni_fail(b->ctx, TN_ERR_ARG, "%s: next[%lld] is %d, expected 0 to %lld", op, (long long)i, (int)next[i],
                            (long long)b->V - 1), false;
        if (weight && !(weight[i] >= 0 && weight[i] < HUGE_VAL))
            return tni_fail(b->ctx, TN_ERR_ARG, "%s: weights[%lld] is %g, expected finite numbers >= 0", op, (long long)i,
                            weight[i]), false;
        all += weight ? weight[i] : 1;
    }
    if (all > 0) return true;
    return tni_fail(b->ctx, TN_ERR_ARG, "%s: the sum of the weights is 0, expected more", op), false;
}

static bool tni_bound_ends(tni_bound *b, tn_tensor *ends, tn_tensor *next, const tn_tensor *weights, tn_circuit_bound *out)
{
    const int64_t N = ends->shape[0], V = b->V;
    tn_ctx       *ctx = b->ctx;
    tni_scratch  *w = &b->w;
    double       *mass = tni_take_zeros(w, b->heads, 1), *known = tni_take_zeros(w, b->heads, 1);
    double       *margin = tni_take_f64(w, N, 1), *change = tni_take_f64(w, N, 1), *weight = NULL;
    bool         *holds = (bool *)tni_take(w, tni_area(4, N), sizeof *holds);      /* [4,N]: of each end, what is counted */
    int32_t      *id = (int32_t *)tni_take(w, N, sizeof *id), *to = (int32_t *)tni_take(w, N, sizeof *to);
    tn_circuit_frozen f;
    tni_bound_end     e = TNI_ZERO;
    e.logit = tni_take_zeros(w, V, 1); e.out = tni_take_zeros(w, b->heads, V); e.gradient = tni_take_zeros(w, V, b->n);
    e.margin = tni_take_zeros(w, V, 1); e.change = tni_take_zeros(w, V, 1);
    e.least = tni_take_zeros(w, V, 1); e.most = tni_take_zeros(w, V, 1);
    if (weights) weight = tni_take_numbers(w, weights);
    bool done = !w->failed && tn_read(next, TN_I32, to, N) == TN_OK && tni_bound_counted(b, N, to, weight);
    for (int64_t i = 0; i < N && done; i++) {
        const tni_scope scope = tni_scope_begin(ctx);
        e.next = to[i];
        done = tn_circuit_freeze(ctx, b->m, tn_slice(ends, 0, i, i + 1), &f) == TN_OK && tni_bound_prune(b, &f)
            && (b->moved || tni_bound_tables(b, &f)) && tni_bound_one(b, &f, &e, mass, known);
        tn_circuit_frozen_destroy(&f);
        tni_scope_end(ctx, scope);
        if (!done) break;
        id[i] = (int32_t)e.best;
        margin[i] = HUGE_VAL;
        change[i] = 0;
        for (int64_t v = 0; v < V; v++) {
            if (v == e.best) continue;
            tni_lower(&margin[i], e.margin[v]);
            tni_raise(&change[i], e.change[v]);
        }
        holds[i] = margin[i] > 0;
        holds[N + i] = id[i] == to[i];
        holds[2 * N + i] = e.certain;
        holds[3 * N + i] = e.possible;
    }
    if (!done) return false;
    out->count = N;
    out->certified = tni_bound_share(N, holds, weight);
    out->accuracy = tni_bound_share(N, holds + N, weight);
    out->lower = tni_bound_share(N, holds + 2 * N, weight);
    out->upper = tni_bound_share(N, holds + 3 * N, weight);
    out->best = tni_owned_counts(ctx, N, id);
    out->margin = tni_owned_from(ctx, 1, &N, margin);
    out->change = tni_owned_from(ctx, 1, &N, change);
    return out->best && out->margin && out->change;
}

tn_status tn_circuit_bound_of(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ends, tn_tensor *next,
                              const tn_tensor *weights, const tn_circuit_bound_desc *desc, tn_circuit_bound *out)
{
    if (!ctx || !out) return tni_fail(ctx, TN_ERR_ARG, "circuit_bound: %s is NULL", ctx ? "out" : "ctx");
    memset(out, 0, sizeof *out);
    tni_bound b = TNI_ZERO;
    if (!tni_model_given(ctx, m, ends, "ends", "circuit_bound") || !tni_is_ids(ctx, next, "circuit_bound", "next")
        || (weights && !tni_usable(ctx, weights, "circuit_bound", "weights"))) return tni_analysis_status(ctx);
    if (ends->shape[0] < 1 || ends->shape[1] < 1 || next->rank != 1 || next->shape[0] != ends->shape[0]
        || (weights && tn_tensor_count(weights) != ends->shape[0]))
        return tni_fail(ctx, TN_ERR_SHAPE, "circuit_bound: ends are %s and next is %s, expected [N,c], [N] and as many "
                        "weights", TNI_SHAPE(ends), TNI_SHAPE(next));
    b.ctx = ctx;
    b.m = m;
    b.V = m->desc.vocab; b.n = m->desc.dim; b.heads = m->desc.heads; b.hidden = m->blocks[0].mlp.desc.hidden;
    b.c = ends->shape[1];
    b.unknown = desc ? desc->unknown : 0;
    b.dropped = desc ? desc->dropped : 0;
    if (!tni_within(ctx, "circuit_bound", "unknown", b.unknown, 0, INT32_MAX)) return TN_ERR_ARG;
    if (b.heads > 64)
        return tni_fail(ctx, TN_ERR_ARG, "circuit_bound: there are %lld heads, expected at most 64", (long long)b.heads);
    if (b.heads < 64 && b.dropped >> b.heads)
        return tni_fail(ctx, TN_ERR_ARG, "circuit_bound: dropped is 0x%llx, expected bits of %lld heads",
                        (unsigned long long)b.dropped, (long long)b.heads);
    if (tni_bound_refuses(ctx, m, b.c + b.unknown)) return TN_ERR_ARG;
    const tn_attention_desc *a = &m->blocks[0].attn.desc;
    b.softmax = a->kind == TN_ATTENTION_SOFTMAX;
    b.scale = a->scale > 0 ? a->scale : b.softmax ? 1 / sqrt((double)a->d_qk) : 1 / (double)a->d_qk;
    if (!b.softmax) b.scale *= b.scale * m->desc.attn_scale;
    b.w = tni_scratch_begin(ctx, "circuit_bound");
    tni_scope scope = tni_scope_begin(ctx);
    bool      done = tni_bound_ends(&b, ends, next, weights, out);
    tni_scope_end(ctx, scope);
    tn_tensor_destroy(b.keys);
    tn_tensor_destroy(b.up);
    tni_scratch_release(&b.w, NULL);
    if (done) return TN_OK;
    tn_circuit_bound_destroy(out);
    return tni_analysis_status(ctx);
}

void tn_circuit_bound_destroy(tn_circuit_bound *b) { tni_result_end(b, sizeof *b, offsetof(tn_circuit_bound, best), 3); }

#endif /* TN_NO_CIRCUITS */
