#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/ops.h"
#include "layers/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- a model with its norms as a ratio ---------------------------------- >>circuits-ratio-impl
   The residual stream at a position is a polynomial whose coefficients are vectors, in the variables z and in one symbol for
   the scale of each norm at each position: what reads the normed stream multiplies each term by the symbol. A stage, attention
   or MLP, appends its terms, each with a new symbol, and changes none of the earlier ones: the first count[i,t] terms of
   position t are what norm i reads, and its scale follows from their values. In double on the host. docs/math.md 21 */

typedef tn_circuit_polynomial tni_poly;

static tni_poly tni_poly_begin(tn_ctx *ctx, int64_t symbols, int64_t width)
{
    tni_poly p = {ctx, symbols, width, 0, NULL, NULL, 0, NULL};
    return p;
}

static void tni_poly_end(tni_poly *p)
{
    const size_t room = (size_t)p->room;
    tni_free(p->ctx, p->power, room * (size_t)p->symbols * sizeof *p->power);
    tni_free(p->ctx, p->value, room * (size_t)p->width * sizeof *p->value);
    tni_free(p->ctx, p->slot, 2 * room * sizeof *p->slot);
    *p = tni_poly_begin(p->ctx, p->symbols, p->width);
}

/* The slot of these powers, which is free if no term has them. */
static int64_t *tni_poly_slot(const tni_poly *p, const uint16_t *power)
{
    const int64_t last = 2 * p->room - 1;
    uint64_t      h = 14695981039346656037u;
    for (int64_t i = 0; i < p->symbols; i++) h = (h ^ power[i]) * 1099511628211u;
    int64_t i = (int64_t)((h ^ h >> 29) & (uint64_t)last);
    while (p->slot[i]
           && memcmp(p->power + (p->slot[i] - 1) * p->symbols, power, (size_t)p->symbols * sizeof *power) != 0)
        i = (i + 1) & last;
    return &p->slot[i];
}

static bool tni_poly_grow(tni_poly *p)
{
    tni_poly more = *p;
    more.room = tni_max(2 * p->room, 1);
    more.power = (uint16_t *)tni_array(p->ctx, tni_area(more.room, p->symbols), sizeof *more.power, "circuit_ratio");
    more.value = (double *)tni_array(p->ctx, tni_area(more.room, p->width), sizeof *more.value, "circuit_ratio");
    more.slot = (int64_t *)tni_array(p->ctx, tni_area(more.room, 2), sizeof *more.slot, "circuit_ratio");
    if (!more.power || !more.value || !more.slot) return tni_poly_end(&more), false;
    memset(more.slot, 0, 2 * (size_t)more.room * sizeof *more.slot);
    if (p->count > 0) {
        memcpy(more.power, p->power, (size_t)(p->count * p->symbols) * sizeof *more.power);
        memcpy(more.value, p->value, (size_t)(p->count * p->width) * sizeof *more.value);
    }
    for (int64_t i = 0; i < p->count; i++) *tni_poly_slot(&more, more.power + i * p->symbols) = i + 1;
    tni_poly_end(p);
    *p = more;
    return true;
}

/* The value [width] of the term with the powers of a and b (NULL: none) and of a symbol (< 0: none), which begins at 0; with
   `apart` of a new one in any case. */
static double *tni_poly_term(tni_poly *p, const uint16_t *a, const uint16_t *b, int64_t symbol, bool apart)
{
    if (p->count == p->room && !tni_poly_grow(p)) return NULL;
    uint16_t *power = p->power + p->count * p->symbols;
    for (int64_t i = 0; i < p->symbols; i++) power[i] = (uint16_t)((a ? a[i] : 0) + (b ? b[i] : 0) + (i == symbol));
    int64_t *slot = tni_poly_slot(p, power);
    if (*slot && !apart) return p->value + (*slot - 1) * p->width;
    double *value = p->value + p->count++ * p->width;
    *slot = p->count;
    memset(value, 0, (size_t)p->width * sizeof *value);
    return value;
}

/* Adds factor * a * b to `out`. Values are arrays of `groups` rows: of two equally long rows the scalar product is one number
   of out; else a has one number for each row of b. */
static bool tni_poly_product(const tni_poly *a, const tni_poly *b, int64_t groups, bool dot, double factor, tni_poly *out)
{
    const int64_t n = b->width / groups;
    for (int64_t i = 0; i < a->count; i++) for (int64_t j = 0; j < b->count; j++) {
        const double *x = a->value + i * a->width, *y = b->value + j * b->width;
        double       *to = tni_poly_term(out, a->power + i * a->symbols, b->power + j * b->symbols, -1, false);
        if (!to) return false;
        for (int64_t g = 0; g < groups; g++) {
            if (dot) to[g] += factor * tni_dot_f64(x + g * n, y + g * n, n);
            else for (int64_t k = 0; k < n; k++) to[g * n + k] += factor * x[g] * y[g * n + k];
        }
    }
    return true;
}

/* Adds w z + bias to x, as new terms, of the first `count` terms of z.   w [n,width of z], NULL: identity   bias [n] or NULL */
static bool tni_poly_append(const tni_poly *z, int64_t count, const double *w, const double *bias, tni_poly *x)
{
    for (int64_t i = 0; i < count; i++) {
        const double *from = z->value + i * z->width;
        double       *to = tni_poly_term(x, z->power + i * z->symbols, NULL, -1, true);
        for (int64_t r = 0; r < x->width && to; r++) to[r] = w ? tni_dot_f64(w + r * z->width, from, z->width) : from[r];
        if (!to) return false;
    }
    double *to = bias ? tni_poly_term(x, NULL, NULL, -1, true) : NULL;
    if (to) memcpy(to, bias, (size_t)x->width * sizeof *to);
    return to || !bias;
}

/* The symbol of the scale of norm i at position t, -1 without norms */
static int64_t tni_ratio_scale(const tn_circuit_ratio *r, int64_t i, int64_t t)
{
    return r->frozen->model->desc.no_norm ? -1 : r->variables + i * r->frozen->tokens + t;
}

/* out = w [scale x; 1], of the width `rows`.   w [rows,n+1] */
static bool tni_ratio_read(const tni_poly *x, int64_t scale, const double *w, int64_t rows, tni_poly *out)
{
    const int64_t n = x->width;
    bool          constant = false;
    *out = tni_poly_begin(x->ctx, x->symbols, rows);
    for (int64_t k = 0; k < x->count; k++) {
        double *to = tni_poly_term(out, x->power + k * x->symbols, NULL, scale, false);
        for (int64_t i = 0; i < rows && to; i++) to[i] += tni_dot_f64(w + i * (n + 1), x->value + k * n, n);
        if (!to) return false;
    }
    for (int64_t i = 0; i < rows; i++) constant |= w[i * (n + 1) + n] != 0;
    double *to = constant ? tni_poly_term(out, NULL, NULL, -1, false) : NULL;
    for (int64_t i = 0; i < rows && to; i++) to[i] += w[i * (n + 1) + n];
    return to || !constant;
}

/* The matrices of queries and keys of block l at position t, rotated: [2s heads d,n+1] */
static double *tni_ratio_rotated(const tn_circuit_frozen *f, int64_t l, int64_t t, tni_scratch *scratch)
{
    const tn_attention_desc *d = &f->model->blocks[l].attn.desc;
    const tn_rope_desc       rope = tni_attention_rope(d, t, false);
    tn_tensor    *w = f->block[l].qk;
    const int64_t rows = w->shape[0], columns = w->shape[1];
    w = tn_reshape(tn_copy(f->ctx, tn_transpose(w, 0, 1)), 4, TNI_DIMS(columns, 1, rows / d->d_qk, d->d_qk));
    w = w ? tn_reshape_2d(tn_rope(f->ctx, w, &rope), columns, rows) : NULL;
    w = w ? tn_copy(f->ctx, tn_transpose(w, 0, 1)) : NULL;
    return w ? tni_take_numbers(scratch, w) : NULL;
}

/* Adds what a position reads from another one to z. q: its queries, k: keys of the other, one of each set */
static bool tni_ratio_pair(int64_t heads, int sets, const tni_poly *q, const tni_poly *k, const tni_poly *v, double mask,
                           tni_poly *z)
{
    tni_poly s[2], p = tni_poly_begin(z->ctx, z->symbols, heads);
    s[0] = s[1] = p;
    bool done = tni_poly_product(&q[0], &k[0], heads, true, 1, &s[0])
             && (sets == 1 || tni_poly_product(&q[1], &k[1], heads, true, 1, &s[1]))
             && tni_poly_product(&s[0], &s[sets - 1], heads, false, mask, &p) && tni_poly_product(&p, v, heads, false, 1, z);
    tni_poly_end(&s[0]);
    tni_poly_end(&s[1]);
    tni_poly_end(&p);
    return done;
}

/* The attention of block l. At each position `all` has its queries, keys (of each set) and values. */
static bool tni_ratio_attention(tn_circuit_ratio *r, int64_t l)
{
    const tn_circuit_frozen       *f = r->frozen;
    const tn_circuit_frozen_block *b = &f->block[l];
    const tn_attention_desc       *d = &f->model->blocks[l].attn.desc;
    const int     sets = d->kind == TN_ATTENTION_BILINEAR ? 2 : 1, each = 2 * sets + 1;
    const int64_t T = f->tokens, n = d->dim, rows = d->heads * d->d_qk, width = d->heads * d->d_v;
    tni_scratch   w = tni_scratch_begin(f->ctx, "circuit_ratio");
    double       *v = tni_take_numbers(&w, b->v), *o = tni_take_numbers(&w, b->o), *mask = tni_take_numbers(&w, b->mask);
    double       *ob = b->ob ? tni_take_numbers(&w, b->ob) : NULL, *qk;
    tni_poly     *all = (tni_poly *)tni_take(&w, tni_area(T, each), sizeof *all);
    bool          done = !w.failed;
    const int64_t polynomials = done ? T * each : 0;
    for (int64_t i = 0; i < polynomials; i++) all[i] = tni_poly_begin(f->ctx, r->symbols, rows);
    for (int64_t t = 0; t < T && done; t++) {
        tni_taken    *mark = w.newest;
        const int64_t scale = tni_ratio_scale(r, 2 * l, t);
        done = (qk = tni_ratio_rotated(f, l, t, &w)) && tni_ratio_read(&r->x[t], scale, v, width, &all[t * each + 2 * sets]);
        for (int i = 0; i < 2 * sets && done; i++)
            done = tni_ratio_read(&r->x[t], scale, qk + i * rows * (n + 1), rows, &all[t * each + i]);
        tni_scratch_release(&w, mark);
    }
    for (int64_t t = 0; t < T && done; t++) {
        tni_poly z = tni_poly_begin(f->ctx, r->symbols, width);
        for (int64_t s = 0; s < T && done; s++)
            if (mask[t * T + s] != 0)
                done = tni_ratio_pair(d->heads, sets, &all[t * each], &all[s * each + sets], &all[s * each + 2 * sets],
                                      mask[t * T + s], &z);
        done = done && tni_poly_append(&z, z.count, o, ob ? ob + t * n : NULL, &r->x[t]);
        tni_poly_end(&z);
    }
    for (int64_t i = 0; i < polynomials; i++) tni_poly_end(&all[i]);
    tni_scratch_release(&w, NULL);
    return done;
}

/* Adds what the MLP of block l adds at position t to x. */
static bool tni_ratio_mlp(const tn_circuit_ratio *r, int64_t l, int64_t t, tni_poly *x)
{
    const tn_circuit_frozen_block *b = &r->frozen->block[l];
    const int64_t k = b->w->shape[0], h = b->w->shape[1] - 1, scale = tni_ratio_scale(r, 2 * l + 1, t);
    tni_scratch   scratch = tni_scratch_begin(x->ctx, "circuit_ratio");
    double       *w = tni_take_numbers(&scratch, b->w), *p = tni_take_numbers(&scratch, b->p);
    double       *pb = b->pb ? tni_take_numbers(&scratch, b->pb) : NULL;
    tni_poly      y = tni_poly_begin(x->ctx, x->symbols, h), z = y, made = y;
    bool          done = !scratch.failed && tni_ratio_read(x, scale, w, h, &y);
    for (int64_t e = 1; e < k && done; e++) {
        done = tni_ratio_read(x, scale, w + e * (h + 1) * (x->width + 1), h, &z) && tni_poly_product(&y, &z, h, false, 1, &made);
        tni_poly_end(&y);
        tni_poly_end(&z);
        y = made;
        made = z;
    }
    done = done && tni_poly_append(&y, y.count, p, pb ? pb + t * x->width : NULL, x);
    tni_poly_end(&y);
    tni_poly_end(&z);
    tni_scratch_release(&scratch, NULL);
    return done;
}

/* ---- making it ---------------------------------------------------------- >>circuits-ratio-make */

static double tni_binomial(double n, double k)
{
    double c = 1;
    for (double i = 1; i <= k && c < HUGE_VAL; i++) c *= (n - k + i) / i;
    return c;
}

/* The largest numbers of terms that the blocks can make of those of x: c [4T], of which c[0..T) are these numbers, and the
   next T those of their products of scales, each of which has at most all monomials of the variables up to a degree. */
static bool tni_ratio_bound(tn_circuit_ratio *r, double *c)
{
    const tn_circuit_frozen   *f = r->frozen;
    const tn_transformer_desc *d = &f->model->desc;
    const int64_t T = f->tokens;
    const double  m = (double)r->variables;
    tni_scratch   w = tni_scratch_begin(f->ctx, "circuit_ratio");
    for (int64_t t = 0; t < T; t++) { c[t] = (double)r->x[t].count; c[T + t] = 1; }
    for (int64_t stage = 0; stage < 2 * f->layers - 1; stage++) {
        const tn_circuit_frozen_block *b = &f->block[stage / 2];
        const bool   mlp = stage % 2 != 0;
        const double k = mlp ? (double)b->w->shape[0] : 5, bias = mlp ? b->pb != NULL : b->ob != NULL;
        double      *mask = tni_take_numbers(&w, b->mask), sum[2];
        r->degree *= k;
        const double each = tni_binomial(m + r->degree, m < r->degree ? m : r->degree);
        for (int64_t t = 0; t < T && mask; t++) {
            for (int i = 0; i < 2; i++) {
                const double *from = c + i * T, one = mlp ? d->mlp_bias : d->attn_bias;
                sum[i] = 0;
                for (int64_t s = 0; s < T; s++) {
                    if (mlp ? s != t : mask[t * T + s] == 0) continue;
                    if (s == t) sum[i] += tni_binomial(from[t] + one + k - 1, k);
                    else sum[i] += tni_binomial(from[t] + one + 1, 2) * tni_binomial(from[s] + one + 2, 3);
                }
            }
            const double most = (d->no_norm ? 1 : sum[1]) * each;
            c[2 * T + t] = c[t] + bias + (sum[0] < most ? sum[0] : most);
            c[3 * T + t] = c[T + t] + bias + sum[1];
        }
        memcpy(c, c + 2 * T, 2 * (size_t)T * sizeof *c);
    }
    for (int64_t t = 0; t < T; t++) r->terms_bound += c[t];
    r->bytes_bound = 2 * r->terms_bound * (double)(8 * d->dim + 2 * r->symbols + 16);
    r->bytes_bound += (double)T * (double)(sizeof *r->x + 16 * (size_t)f->layers);
    return tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : TN_OK) == TN_OK;
}

static bool tni_ratio_fits(const tn_circuit_ratio *r, const char *what, double terms, double width, double bytes)
{
    if (bytes <= (double)r->max_bytes) return true;
    return tni_fail(r->frozen->ctx, TN_ERR_MEMORY, "circuit_ratio: the %s have up to %g coefficients in %g terms, together "
                    "%g bytes, expected at most max_bytes = %zu", what, terms * width, terms, bytes, r->max_bytes), false;
}

/* Whether the network is refused, with a message that names the part. */
static bool tni_ratio_refuses(const tn_circuit_frozen *f)
{
    const tn_transformer_desc *d = &f->model->desc;
    const char *what = d->norm_place != TN_PLACE_PRE ? "norm_place TN_PLACE_SANDWICH"
        : !d->no_norm && d->norm != TN_NORM_RMS ? "norm TN_NORM_LAYER" : d->x0_residual ? "x0_residual"
        : d->softcap > 0 ? "softcap" : NULL;
    int64_t l = 0;
    for (; l < f->layers && !what; l++) {
        const tn_attention_desc *a = &f->model->blocks[l].attn.desc;
        what = a->qk_norm ? "qk_norm" : a->head_norm ? "head_norm"
            : !tni_takes_form(a->kind) ? tn_attention_kind_name(a->kind) : !f->block[l].qk ? "row_scale TN_ROW_SCALE_SUM"
            : f->block[l].m ? tn_mlp_kind_name(f->model->blocks[l].mlp.desc.kind) : NULL;
    }
    if (what && l == 0)
        tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: the model has %s, expected RMSNorm before the blocks or no norms", what);
    else if (what)
        tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: block %lld has %s, expected squared or bilinear attention, without norms or "
                 "sums of rows, and a bilinear MLP", (long long)(l - 1), what);
    return what != NULL;
}

/* The residual stream before the first block, in the variables: each of the vectors that are not 0 is a term. */
static bool tni_ratio_sources(tn_circuit_ratio *r, const tn_tensor *moves, const tn_tensor *base, tni_scratch *w)
{
    const int64_t T = r->frozen->tokens, n = r->frozen->model->desc.dim;
    double       *from = tni_take_numbers(w, base ? base : r->frozen->block[0].run1);
    double       *by = moves ? tni_take_numbers(w, moves) : from;
    for (int64_t t = 0; t < T && by && from; t++) for (int64_t i = moves ? -1 : t; i < (moves ? r->variables : t + 1); i++) {
        const double *v = i < 0 || !moves ? from + t * n : by + (i * T + t) * n;
        double       *to;
        if (tni_dot_f64(v, v, n) == 0 && moves) continue;
        if (!(to = tni_poly_term(&r->x[t], NULL, NULL, i, true))) return false;
        memcpy(to, v, (size_t)n * sizeof *to);
    }
    return !w->failed;
}

static bool tni_ratio_make(tn_circuit_ratio *r, const tn_tensor *moves, const tn_tensor *base, bool size_only)
{
    const tn_circuit_frozen *f = r->frozen;
    const int64_t T = f->tokens, L = f->layers, stages = 2 * L;
    tni_scratch   w = tni_scratch_begin(f->ctx, "circuit_ratio");
    double       *c = tni_take_f64(&w, T, 4);
    r->x = (tni_poly *)tni_array(f->ctx, T, sizeof *r->x, "circuit_ratio");
    for (int64_t t = 0; t < T && r->x; t++) r->x[t] = tni_poly_begin(f->ctx, r->symbols, f->model->desc.dim);
    bool done = c && r->x && tni_ratio_sources(r, moves, base, &w) && tni_ratio_bound(r, c);
    tni_scratch_release(&w, NULL);
    if (!done || size_only) return done;
    if (!tni_ratio_fits(r, "numerators", r->terms_bound, (double)f->model->desc.dim, r->bytes_bound)) return false;
    const double degree = r->degree * (double)f->block[L - 1].w->shape[0];
    if (degree > UINT16_MAX)
        return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: the degree is %g, expected at most %d", degree, UINT16_MAX), false;
    r->count = (int64_t *)tni_array(f->ctx, tni_area(stages, T), sizeof *r->count, "circuit_ratio");
    for (int64_t i = 0; i < stages && r->count; i++) {
        if (i % 2 && !tni_ratio_attention(r, i / 2)) return false;
        for (int64_t t = 0; t < T; t++) {
            if (i > 0 && i % 2 == 0 && !tni_ratio_mlp(r, i / 2 - 1, t, &r->x[t])) return false;
            r->count[i * T + t] = r->x[t].count;
        }
    }
    return r->count != NULL;
}

tn_status tn_circuit_ratio_of(const tn_circuit_frozen *f, const tn_circuit_ratio_desc *d, tn_circuit_ratio *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!f || !f->ctx) return TN_ERR_ARG;
    if (!out) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: out is NULL");
    const tn_tensor *moves = d ? d->directions : NULL, *base = d ? d->base : NULL;
    const int64_t    T = f->tokens, n = f->model->desc.dim;
    if (tni_ratio_refuses(f) || !tni_frozen_whole(f, "circuit_ratio")
        || (moves && !tni_usable(f->ctx, moves, "circuit_ratio", "directions"))
        || (base && !tni_usable(f->ctx, base, "circuit_ratio", "base"))) return tni_analysis_status(f->ctx);
    if (moves && (moves->rank != 3 || moves->shape[1] != T || moves->shape[2] != n))
        return tni_fail(f->ctx, TN_ERR_SHAPE, "circuit_ratio: directions are %s, expected [m,%lld,%lld]", TNI_SHAPE(moves),
                        (long long)T, (long long)n);
    if (base && (!moves || base->rank != 2 || base->shape[0] != T || base->shape[1] != n))
        return tni_fail(f->ctx, TN_ERR_SHAPE, "circuit_ratio: base is %s, expected [%lld,%lld] and directions", TNI_SHAPE(base),
                        (long long)T, (long long)n);
    out->frozen = f;
    out->moved = moves != NULL;
    out->variables = moves ? moves->shape[0] : T;
    out->symbols = out->variables + (2 * f->layers + 1) * T;
    out->degree = 1;
    out->max_bytes = d && d->max_bytes ? d->max_bytes : (size_t)1 << 30;
    tni_scope scope = tni_scope_begin(f->ctx);
    bool      done = tni_ratio_make(out, moves, base, d && d->size_only);
    tni_scope_end(f->ctx, scope);
    if (done) return TN_OK;
    tn_circuit_ratio_destroy(out);
    return tni_analysis_status(f->ctx);
}

void tn_circuit_ratio_destroy(tn_circuit_ratio *r)
{
    if (!r || !r->frozen) return;
    tn_ctx       *ctx = r->frozen->ctx;
    const int64_t T = r->frozen->tokens;
    for (int64_t t = 0; t < T && r->x; t++) tni_poly_end(&r->x[t]);
    tni_free(ctx, r->x, (size_t)T * sizeof *r->x);
    tni_free(ctx, r->count, (size_t)(2 * r->frozen->layers * T) * sizeof *r->count);
    memset(r, 0, sizeof *r);
}

/* ---- values ------------------------------------------------------------- >>circuits-ratio-values */

/* The product of powers of the symbols, whose factors may be far outside of the range of doubles */
static double tni_ratio_monomial(const uint16_t *power, const double *symbol, int64_t symbols)
{
    double p = 1;
    int    e, exponent = 0;
    for (int64_t i = 0; i < symbols; i++) {
        if (power[i] == 0) continue;
        p *= pow(frexp(symbol[i], &e), power[i]);
        exponent += e * power[i];
        p = frexp(p, &e);
        exponent += e;
    }
    return ldexp(p, exponent);
}

static double tni_ratio_eps(const tn_transformer *m, int64_t i)
{
    return (i == 2 * m->desc.layers ? &m->norm : i % 2 ? &m->blocks[i / 2].norm2 : &m->blocks[i / 2].norm1)->desc.eps;
}

/* Adds the values of terms [from,to) of p to x. */
static void tni_poly_add(const tni_poly *p, int64_t from, int64_t to, const double *symbol, double *x)
{
    for (int64_t k = from; k < to; k++) {
        const double c = tni_ratio_monomial(p->power + k * p->symbols, symbol, p->symbols);
        for (int64_t a = 0; a < p->width; a++) x[a] += c * p->value[k * p->width + a];
    }
}

/* Adds what the last MLP adds to its input x [n] at position t. */
static bool tni_ratio_last(const tn_circuit_ratio *r, int64_t t, const double *symbol, double *x)
{
    tni_poly p = tni_poly_begin(r->frozen->ctx, r->symbols, r->frozen->model->desc.dim);
    double  *to = tni_poly_term(&p, NULL, NULL, -1, true);
    if (to) memcpy(to, x, (size_t)p.width * sizeof *to);
    const bool done = to && tni_ratio_mlp(r, r->frozen->layers - 1, t, &p);
    if (done) tni_poly_add(&p, 1, p.count, symbol, x);
    tni_poly_end(&p);
    return done;
}

/* The symbols at z, in scratch, and *logits [T,vocab] unless it is NULL. With `held` the scales are those of the run. */
static double *tni_ratio_at(const tn_circuit_ratio *r, const tn_tensor *z, bool held, tni_scratch *w, double **logits)
{
    const tn_circuit_frozen *f = r->frozen;
    const int64_t T = f->tokens, n = f->model->desc.dim, vocab = f->u->shape[0], stages = 2 * f->layers;
    if (!r->count) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: there are sizes alone, expected terms"), (double *)NULL;
    if (z && !tni_usable(f->ctx, z, "circuit_ratio", "z")) return NULL;
    if (z && tn_tensor_count(z) != r->variables)
        return tni_fail(f->ctx, TN_ERR_SHAPE, "circuit_ratio: z is %s, expected [%lld]", TNI_SHAPE(z), (long long)r->variables),
               (double *)NULL;
    double *symbol = tni_take_zeros(w, r->symbols, 1), *x = tni_take_zeros(w, T, n), *u = tni_take_numbers(w, f->u);
    double *y = logits ? tni_take_f64(w, T, vocab) : NULL, *scale = w->failed ? NULL : symbol + r->variables;
    if (!scale || (z && tn_read(z, TN_F64, symbol, r->variables) != TN_OK)) return NULL;
    for (int64_t i = 0; i < r->variables && !z; i++) symbol[i] = !r->moved;
    for (int64_t i = 0; i <= stages; i++, scale += T) {
        const tn_circuit_frozen_block *b = &f->block[tni_min(i / 2, f->layers - 1)];
        for (int64_t t = 0; t < T; t++) {
            double *to = x + t * n;
            if (i == stages && !tni_ratio_last(r, t, symbol, to)) return NULL;
            if (i < stages) tni_poly_add(&r->x[t], i ? r->count[(i - 1) * T + t] : 0, r->count[i * T + t], symbol, to);
            scale[t] = 1 / sqrt(tni_dot_f64(to, to, n) / (double)n + tni_ratio_eps(f->model, i));
        }
        if ((held || f->model->desc.no_norm) && tn_read(i == stages ? f->norm_scale : i % 2 ? b->norm2_scale : b->norm1_scale,
                                                        TN_F64, scale, T) != TN_OK) return NULL;
    }
    for (int64_t k = 0; k < T * vocab && y; k++)
        y[k] = scale[k / vocab - T] * tni_dot_f64(u + k % vocab * (n + 1), x + k / vocab * n, n);
    if (logits) *logits = y;
    return symbol;
}

tn_tensor *tn_circuit_ratio_logits(const tn_circuit_ratio *r, const tn_tensor *z, bool held, tn_tensor **symbols)
{
    if (!r || !r->frozen) return NULL;
    tn_ctx     *ctx = r->frozen->ctx;
    tni_scratch w = tni_scratch_begin(ctx, "circuit_ratio");
    double     *y = NULL, *symbol = tni_ratio_at(r, z, held, &w, &y);
    tn_tensor  *made = symbol ? tn_tensor_from(ctx, 2, TNI_DIMS(r->frozen->tokens, r->frozen->u->shape[0]), TN_F64, y) : NULL;
    if (symbols) *symbols = made ? tn_tensor_from(ctx, 1, &r->symbols, TN_F64, symbol) : NULL;
    tni_scratch_release(&w, NULL);
    return symbols && !*symbols ? NULL : made;
}

/* ---- terms -------------------------------------------------------------- >>circuits-ratio-terms */

/* p: coefficients alone. The terms with their values, the largest first */
static bool tni_ratio_order(const tni_poly *p, const double *symbol, tni_scratch *w, tn_circuit_terms *out)
{
    double  *value = tni_take_f64(w, p->count, 1);
    tni_heap order = tni_take_heap(w, TN_ORDER_MAGNITUDE, p->count);
    out->list = tni_poly_begin(p->ctx, p->symbols, 2);
    if (w->failed) return false;
    for (int64_t i = 0; i < p->count; i++)
        value[i] = p->value[i] * tni_ratio_monomial(p->power + i * p->symbols, symbol, p->symbols);
    tni_heap_select(&order, value, p->count);
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t at = order.found[i].at;
        double       *to = tni_poly_term(&out->list, p->power + at * p->symbols, NULL, -1, true);
        if (!to) return false;
        to[0] = p->value[at];
        out->whole += to[1] = value[at];
    }
    return true;
}

/* p = the terms of u . x, u [n+1], for what norm i reads at position t, times its scale; u NULL: of the mean square of x, plus
   eps */
static bool tni_ratio_multiply(const tn_circuit_ratio *r, const double *u, int64_t i, int64_t t, tni_poly *p)
{
    const tn_circuit_frozen *f = r->frozen;
    const int64_t last = 2 * f->layers - 1, n = f->model->desc.dim, h = f->block[last / 2].p->shape[1];
    const double  M = (double)r->count[tni_min(i, last) * f->tokens + t], k = (double)f->block[last / 2].w->shape[0];
    const double  all = i > last ? M + 1 + tni_binomial(M + f->model->desc.mlp_bias + k - 1, k) : M;
    const double  terms = u ? all : tni_binomial(all + 1, 2) + 1;
    const double  bytes = 2 * (terms * (double)(2 * r->symbols + 32) + all * (double)(2 * r->symbols + 8 * (n + h) + 16));
    if (!tni_ratio_fits(r, "terms", terms, 1, bytes)) return false;
    tni_poly x = tni_poly_begin(f->ctx, r->symbols, n);
    bool     done = tni_poly_append(&r->x[t], (int64_t)M, NULL, NULL, &x) && (i <= last || tni_ratio_mlp(r, last / 2, t, &x))
                 && (u ? tni_ratio_read(&x, tni_ratio_scale(r, i, t), u, 1, p)
                       : tni_poly_product(&x, &x, 1, true, 1 / (double)n, p));
    double  *eps = done && !u ? tni_poly_term(p, NULL, NULL, -1, false) : NULL;
    if (eps) *eps += tni_ratio_eps(f->model, i);
    done = done && (u || eps);
    tni_poly_end(&x);
    return done;
}

tn_status tn_circuit_ratio_terms(const tn_circuit_ratio *r, const tn_circuit_target *target, int64_t symbol, const tn_tensor *z,
                                 tn_circuit_terms *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!r || !r->frozen) return TN_ERR_ARG;
    const tn_circuit_frozen *f = r->frozen;
    if (!out) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: out is NULL");
    if (!target && f->model->desc.no_norm)
        return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: target is NULL and there are no norms, expected one of them");
    if (!target && !tni_within(f->ctx, "circuit_ratio", "symbol", symbol, r->variables, r->symbols - 1)) return TN_ERR_ARG;
    out->ratio = r;
    tni_scratch s = tni_scratch_begin(f->ctx, "circuit_ratio");
    tni_scope   scope = tni_scope_begin(f->ctx);
    tn_tensor  *w = target ? tni_target_weights(f, target, "circuit_ratio") : NULL;
    double     *u = w ? tni_take_numbers(&s, tn_matmul(f->ctx, w, f->u)) : NULL;
    double     *values = u || !target ? tni_ratio_at(r, z, false, &s, NULL) : NULL;
    tni_poly    p = tni_poly_begin(f->ctx, r->symbols, 1);
    symbol = target ? tni_plus(2 * f->layers * f->tokens, target->position) : symbol - r->variables;
    const bool done = values && tni_ratio_multiply(r, u, symbol / f->tokens, symbol % f->tokens, &p)
                   && tni_ratio_order(&p, values, &s, out);
    tni_poly_end(&p);
    tni_scope_end(f->ctx, scope);
    tni_scratch_release(&s, NULL);
    if (done) return TN_OK;
    tn_circuit_terms_destroy(out);
    return tni_analysis_status(f->ctx);
}

void tn_circuit_terms_destroy(tn_circuit_terms *t)
{
    if (!t || !t->ratio) return;
    if (t->list.ctx) tni_poly_end(&t->list);
    memset(t, 0, sizeof *t);
}

int64_t tn_circuit_term_name(const tn_circuit_terms *terms, int64_t i, char *dst, size_t bytes)
{
    tni_text t = {dst, bytes, 0};
    if (!terms || !terms->ratio || i < 0 || i >= terms->list.count || (!dst && bytes > 0)) return -1;
    const tn_circuit_ratio *r = terms->ratio;
    const int64_t T = r->frozen->tokens;
    for (int64_t v = 0; v < r->symbols; v++) {
        const int p = terms->list.power[i * r->symbols + v], n = (int)((v - r->variables) / T);
        const int at = (int)((v - r->variables) % T);
        if (p == 0) continue;
        if (t.length) tni_text_print(&t, " ");
        if (v < r->variables) tni_text_print(&t, "z%d", (int)v);
        else if (n == 2 * r->frozen->layers) tni_text_print(&t, "norm@%d", at);
        else tni_text_print(&t, "%d.norm%d@%d", n / 2, n % 2 + 1, at);
        if (p > 1) tni_text_print(&t, "^%d", p);
    }
    if (t.length == 0) tni_text_print(&t, "1");
    return (int64_t)t.length;
}

#endif /* TN_NO_CIRCUITS */
