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
    more.room = tni_max(2 * p->room, 8);
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

/* The value [width] of the term with the powers a + b (b NULL: a), which begins at 0; with `apart` of a new one in any case */
static double *tni_poly_term(tni_poly *p, const uint16_t *a, const uint16_t *b, bool apart)
{
    if (p->count == p->room && !tni_poly_grow(p)) return NULL;
    uint16_t *power = p->power + p->count * p->symbols;
    for (int64_t i = 0; i < p->symbols; i++) power[i] = (uint16_t)(a[i] + (b ? b[i] : 0));
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
        double       *to = tni_poly_term(out, a->power + i * a->symbols, b->power + j * b->symbols, false);
        if (!to) return false;
        for (int64_t g = 0; g < groups; g++) {
            if (dot) to[g] += factor * tni_dot_f64(x + g * n, y + g * n, n);
            else for (int64_t k = 0; k < n; k++) to[g * n + k] += factor * x[g] * y[g * n + k];
        }
    }
    return true;
}

/* Adds w z + bias to x, as new terms.   w [n,width of z], NULL: the identity   bias [n] or NULL   none: powers of 0 */
static bool tni_poly_append(const tni_poly *z, int64_t count, const double *w, const double *bias, const uint16_t *none, tni_poly *x)
{
    for (int64_t i = 0; i < count; i++) {
        const double *from = z->value + i * z->width;
        double       *to = tni_poly_term(x, z->power + i * z->symbols, NULL, true);
        if (!to) return false;
        for (int64_t r = 0; r < x->width; r++) to[r] = w ? tni_dot_f64(w + r * z->width, from, z->width) : from[r];
    }
    double *to = bias ? tni_poly_term(x, none, NULL, true) : NULL;
    if (to) memcpy(to, bias, (size_t)x->width * sizeof *to);
    return to || !bias;
}

typedef struct tni_ratio_job {
    tn_ctx                  *ctx;
    tn_circuit_ratio        *r;
    const tn_circuit_frozen *f;
    int64_t   T, n;
    uint16_t *none, *unit;      /* [symbols] zeros; the power of one symbol                                      */
    tni_scratch w;
} tni_ratio_job;

static bool tni_ratio_begin(tni_ratio_job *j, const tn_circuit_frozen *f, tn_circuit_ratio *r)
{
    j->ctx = f->ctx;
    j->r = r;
    j->f = f;
    j->T = f->tokens;
    j->n = f->model->desc.dim;
    j->w = tni_scratch_begin(f->ctx, "circuit_ratio");
    j->none = (uint16_t *)tni_take_zeroed(&j->w, r->symbols, sizeof *j->none);
    j->unit = (uint16_t *)tni_take_zeroed(&j->w, r->symbols, sizeof *j->unit);
    return !j->w.failed;
}

/* The powers of a symbol alone; of none, where it is negative */
static const uint16_t *tni_ratio_unit(const tni_ratio_job *j, int64_t symbol)
{
    memset(j->unit, 0, (size_t)j->r->symbols * sizeof *j->unit);
    if (symbol >= 0) j->unit[symbol] = 1;
    return j->unit;
}

/* Those of the scale of norm i at position t */
static const uint16_t *tni_ratio_scale(const tni_ratio_job *j, int64_t i, int64_t t)
{
    return tni_ratio_unit(j, j->f->model->desc.no_norm ? -1 : j->r->variables + i * j->T + t);
}

/* out = w [scale x; 1], with the scale of norm i at position t.   x [n]  w [rows,n+1], out of that width */
static bool tni_ratio_read(const tni_ratio_job *j, const tni_poly *x, int64_t i, int64_t t, const double *w, int64_t rows,
                           tni_poly *out)
{
    const int64_t   n = j->n;
    const uint16_t *scale = tni_ratio_scale(j, i, t);
    bool            constant = false;
    *out = tni_poly_begin(j->ctx, j->r->symbols, rows);
    for (int64_t k = 0; k < x->count; k++) {
        double *to = tni_poly_term(out, x->power + k * x->symbols, scale, false);
        if (!to) return false;
        for (int64_t r = 0; r < rows; r++) to[r] += tni_dot_f64(w + r * (n + 1), x->value + k * n, n);
    }
    for (int64_t r = 0; r < rows; r++) constant |= w[r * (n + 1) + n] != 0;
    double *to = constant ? tni_poly_term(out, j->none, NULL, false) : NULL;
    for (int64_t r = 0; r < rows && to; r++) to[r] += w[r * (n + 1) + n];
    return to || !constant;
}

/* The matrices of queries and keys of block l at position t, rotated: [2s heads d,n+1] */
static double *tni_ratio_rotated(tni_ratio_job *j, int64_t l, int64_t t)
{
    const tn_attention_desc *d = &j->f->model->blocks[l].attn.desc;
    const tn_rope_desc       rope = tni_attention_rope(d, t, false);
    tn_tensor    *w = j->f->block[l].qk;
    const int64_t rows = w->shape[0], columns = w->shape[1];
    w = tn_reshape(tn_copy(j->ctx, tn_transpose(w, 0, 1)), 4, TNI_DIMS(columns, 1, rows / d->d_qk, d->d_qk));
    w = w ? tn_reshape_2d(tn_rope(j->ctx, w, &rope), columns, rows) : NULL;
    w = w ? tn_copy(j->ctx, tn_transpose(w, 0, 1)) : NULL;
    return w ? tni_take_numbers(&j->w, w) : NULL;
}

/* Adds what position t reads from s to z. q: queries of t, k: keys of s, one of each set */
static bool tni_ratio_pair(int64_t heads, int sets, const tni_poly *q, const tni_poly *k, const tni_poly *v, double mask, tni_poly *z)
{
    tni_poly s[2], p = tni_poly_begin(z->ctx, z->symbols, heads);
    s[0] = s[1] = p;
    bool done = tni_poly_product(&q[0], &k[0], heads, true, 1, &s[0])
             && (sets == 1 || tni_poly_product(&q[1], &k[1], heads, true, 1, &s[1]))
             && tni_poly_product(&s[0], &s[sets - 1], heads, false, mask, &p)
             && tni_poly_product(&p, v, heads, false, 1, z);
    tni_poly_end(&s[0]);
    tni_poly_end(&s[1]);
    tni_poly_end(&p);
    return done;
}

/* The attention of block l. At each position `all` has its queries, keys (of each set) and values. */
static bool tni_ratio_attention(tni_ratio_job *j, int64_t l)
{
    const tn_circuit_frozen_block *b = &j->f->block[l];
    const tn_attention_desc       *d = &j->f->model->blocks[l].attn.desc;
    const int     sets = d->kind == TN_ATTENTION_BILINEAR ? 2 : 1, each = 2 * sets + 1;
    const int64_t T = j->T, rows = d->heads * d->d_qk, width = d->heads * d->d_v;
    tni_taken    *mark = j->w.newest;
    double       *v = tni_take_numbers(&j->w, b->v), *o = tni_take_numbers(&j->w, b->o), *mask = tni_take_numbers(&j->w, b->mask);
    double       *ob = b->ob ? tni_take_numbers(&j->w, b->ob) : NULL;
    tni_poly     *all = (tni_poly *)tni_take(&j->w, tni_area(T, each), sizeof *all);
    bool          done = !j->w.failed;
    for (int64_t i = 0; i < T * each && done; i++) all[i] = tni_poly_begin(j->ctx, j->r->symbols, rows);
    for (int64_t t = 0; t < T && done; t++) {
        tni_taken *here = j->w.newest;
        double    *w = tni_ratio_rotated(j, l, t);
        done = w && tni_ratio_read(j, &j->r->x[t], 2 * l, t, v, width, &all[t * each + 2 * sets]);
        for (int i = 0; i < 2 * sets && done; i++)
            done = tni_ratio_read(j, &j->r->x[t], 2 * l, t, w + i * rows * (j->n + 1), rows, &all[t * each + i]);
        tni_scratch_release(&j->w, here);
    }
    for (int64_t t = 0; t < T && done; t++) {
        tni_poly z = tni_poly_begin(j->ctx, j->r->symbols, width);
        for (int64_t s = 0; s < T && done; s++)
            if (mask[t * T + s] != 0)
                done = tni_ratio_pair(d->heads, sets, &all[t * each], &all[s * each + sets], &all[s * each + 2 * sets],
                                      mask[t * T + s], &z);
        done = done && tni_poly_append(&z, z.count, o, ob ? ob + t * j->n : NULL, j->none, &j->r->x[t]);
        tni_poly_end(&z);
    }
    for (int64_t i = 0; i < T * each && !j->w.failed; i++) tni_poly_end(&all[i]);
    tni_scratch_release(&j->w, mark);
    return done;
}

/* Adds what the MLP of block l adds at position t to x. */
static bool tni_ratio_mlp(tni_ratio_job *j, int64_t l, int64_t t, tni_poly *x)
{
    const tn_circuit_frozen_block *b = &j->f->block[l];
    const int64_t k = b->w->shape[0], h = b->w->shape[1] - 1;
    tni_taken    *mark = j->w.newest;
    double       *w = tni_take_numbers(&j->w, b->w), *p = tni_take_numbers(&j->w, b->p);
    double       *pb = b->pb ? tni_take_numbers(&j->w, b->pb) : NULL;
    tni_poly      y = tni_poly_begin(j->ctx, j->r->symbols, h), z = y, made = y;
    bool          done = !j->w.failed && tni_ratio_read(j, x, 2 * l + 1, t, w, h, &y);
    for (int64_t e = 1; e < k && done; e++) {
        done = tni_ratio_read(j, x, 2 * l + 1, t, w + e * (h + 1) * (j->n + 1), h, &z)
            && tni_poly_product(&y, &z, h, false, 1, &made);
        tni_poly_end(&y);
        tni_poly_end(&z);
        y = made;
        made = z;
    }
    done = done && tni_poly_append(&y, y.count, p, pb ? pb + t * j->n : NULL, j->none, x);
    tni_poly_end(&y);
    tni_poly_end(&z);
    tni_scratch_release(&j->w, mark);
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
static bool tni_ratio_bound(tni_ratio_job *j, double *c)
{
    const tn_transformer_desc *d = &j->f->model->desc;
    tn_circuit_ratio *r = j->r;
    const int64_t T = j->T;
    const double  m = (double)r->variables;
    for (int64_t t = 0; t < T; t++) { c[t] = (double)r->x[t].count; c[T + t] = 1; }
    for (int64_t stage = 0; stage < 2 * j->f->layers - 1; stage++) {
        const tn_circuit_frozen_block *b = &j->f->block[stage / 2];
        const bool   mlp = stage % 2 != 0;
        const double k = mlp ? (double)b->w->shape[0] : 5, bias = mlp ? b->pb != NULL : b->ob != NULL;
        tni_taken   *mark = j->w.newest;
        double      *mask = tni_take_numbers(&j->w, b->mask), sum[2];
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
        tni_scratch_release(&j->w, mark);
    }
    for (int64_t t = 0; t < T; t++) r->terms += c[t];
    r->bytes = 2 * r->terms * (double)(8 * j->n + 2 * r->symbols + 16);
    return !j->w.failed;
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

static bool tni_ratio_given(const tn_circuit_frozen *f, const tn_tensor *x, const char *what, int rank)
{
    if (!x) return true;
    if (!tni_usable(f->ctx, x, "circuit_ratio", what)) return false;
    if (x->rank == rank && x->shape[rank - 2] == f->tokens && x->shape[rank - 1] == f->model->desc.dim) return true;
    return tni_fail(f->ctx, TN_ERR_SHAPE, "circuit_ratio: %s is %s, expected [%s%lld,%lld]", what, TNI_SHAPE(x), rank == 3 ? "m," : "",
                    (long long)f->tokens, (long long)f->model->desc.dim), false;
}

/* The residual stream before the first block, in the variables: each of the vectors that are not 0 is a term. */
static bool tni_ratio_sources(tni_ratio_job *j, const tn_tensor *moves, const tn_tensor *base)
{
    const int64_t T = j->T, n = j->n;
    double       *from = tni_take_numbers(&j->w, base ? base : j->f->block[0].run1), *by = moves ? tni_take_numbers(&j->w, moves) : from;
    for (int64_t t = 0; t < T && by && from; t++) for (int64_t i = moves ? -1 : t; i < (moves ? j->r->variables : t + 1); i++) {
        const double *v = i < 0 || !moves ? from + t * n : by + (i * T + t) * n;
        if (tni_dot_f64(v, v, n) == 0 && moves) continue;
        double *to = tni_poly_term(&j->r->x[t], tni_ratio_unit(j, i), NULL, true);
        if (!to) return false;
        memcpy(to, v, (size_t)n * sizeof *to);
    }
    return !j->w.failed;
}

static bool tni_ratio_make(tni_ratio_job *j, const tn_circuit_ratio_desc *d)
{
    tn_circuit_ratio *r = j->r;
    const int64_t T = j->T, L = j->f->layers;
    double       *c = tni_take_f64(&j->w, T, 4);
    if (!c || !(r->count = (int64_t *)tni_array(j->ctx, tni_area(2 * L, T), sizeof *r->count, "circuit_ratio"))
        || !(r->x = (tni_poly *)tni_array(j->ctx, T, sizeof *r->x, "circuit_ratio"))) return false;
    for (int64_t t = 0; t < T; t++) r->x[t] = tni_poly_begin(j->ctx, r->symbols, j->n);
    if (!tni_ratio_sources(j, d ? d->directions : NULL, d ? d->base : NULL) || !tni_ratio_bound(j, c)) return false;
    if (d && d->size_only) return true;
    if (!tni_ratio_fits(r, "numerators", r->terms, (double)j->n, r->bytes)) return false;
    const double degree = r->degree * (double)j->f->block[L - 1].w->shape[0];
    if (degree > UINT16_MAX)
        return tni_fail(j->ctx, TN_ERR_ARG, "circuit_ratio: the degree is %g, expected at most %d", degree, UINT16_MAX), false;
    for (int64_t i = 0; i < 2 * L; i++) {
        if (i % 2 && !tni_ratio_attention(j, i / 2)) return false;
        for (int64_t t = 0; t < T; t++) {
            if (i > 0 && i % 2 == 0 && !tni_ratio_mlp(j, i / 2 - 1, t, &r->x[t])) return false;
            r->count[i * T + t] = r->x[t].count;
        }
    }
    return true;
}

tn_status tn_circuit_ratio_of(const tn_circuit_frozen *f, const tn_circuit_ratio_desc *d, tn_circuit_ratio *out)
{
    tni_ratio_job j;
    if (out) memset(out, 0, sizeof *out);
    if (!f || !f->ctx) return TN_ERR_ARG;
    if (!out) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: out is NULL");
    if (tni_ratio_refuses(f) || !tni_frozen_whole(f, "circuit_ratio")
        || (d && (!tni_ratio_given(f, d->directions, "directions", 3) || !tni_ratio_given(f, d->base, "base", 2))))
        return tni_analysis_status(f->ctx);
    if (d && d->base && !d->directions)
        return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: base is given without directions, expected both");
    out->frozen = f;
    out->moved = d && d->directions;
    out->variables = out->moved ? d->directions->shape[0] : f->tokens;
    out->symbols = out->variables + (2 * f->layers + 1) * f->tokens;
    out->degree = 1;
    out->max_bytes = d && d->max_bytes ? d->max_bytes : (size_t)1 << 30;
    tni_scope scope = tni_scope_begin(f->ctx);
    bool      done = tni_ratio_begin(&j, f, out) && tni_ratio_make(&j, d);
    tni_scratch_release(&j.w, NULL);
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

static const tn_norm *tni_ratio_norm(const tn_transformer *m, int64_t i)
{
    return i == 2 * m->desc.layers ? &m->norm : i % 2 ? &m->blocks[i / 2].norm2 : &m->blocks[i / 2].norm1;
}

/* The logits [T,vocab], an arena tensor. symbol [symbols] begins with z, and the scales are filled in; x [T,n] is spare. */
static tn_tensor *tni_ratio_run(const tn_circuit_ratio *r, bool held, double *symbol, double *x)
{
    const tn_circuit_frozen *f = r->frozen;
    const tn_transformer    *m = f->model;
    const int64_t T = f->tokens, n = m->desc.dim, V = r->symbols;
    tn_circuit_frozen_block *b = f->block;
    tn_ctx       *ctx = f->ctx;
    double       *scale = symbol + r->variables;
    held |= m->desc.no_norm;
    memset(x, 0, (size_t)(T * n) * sizeof *x);
    for (int64_t i = 0; i < 2 * f->layers; i++, scale += T) {
        b = &f->block[i / 2];
        for (int64_t t = 0; t < T; t++) {
            double *to = x + t * n;
            for (int64_t k = i ? r->count[(i - 1) * T + t] : 0; k < r->count[i * T + t]; k++) {
                const double c = tni_ratio_monomial(r->x[t].power + k * V, symbol, V);
                for (int64_t a = 0; a < n; a++) to[a] += c * r->x[t].value[k * n + a];
            }
            scale[t] = 1 / sqrt(tni_dot_f64(to, to, n) / (double)n + tni_ratio_norm(m, i)->desc.eps);
        }
        if (held && tn_read(i % 2 ? b->norm2_scale : b->norm1_scale, TN_F64, scale, T) != TN_OK) return NULL;
    }
    tn_tensor *stream = tni_frozen_with(ctx, tn_tensor_from(ctx, 2, TNI_DIMS(T, n), TN_F64, x), 1), *h = NULL;
    tn_tensor *y = tni_frozen_read(ctx, stream, tn_tensor_from(ctx, 2, TNI_DIMS(T, 1), TN_F64, scale - T));
    for (int64_t e = 0; e < b->w->shape[0] && y; e++) {
        tn_tensor *u = tn_affine(ctx, y, tni_layer_part(b->w, e), NULL);
        h = e ? tn_mul(ctx, h, u) : u;
    }
    h = h ? tni_frozen_added(ctx, b, h) : NULL;
    stream = h ? tn_add(ctx, stream, tni_frozen_with(ctx, h, 0)) : NULL;
    h = held || !stream ? f->norm_scale : tni_frozen_scale(ctx, &m->norm, tn_slice(stream, -1, 0, n));
    if (!stream || !h || tn_read(h, TN_F64, scale, T) != TN_OK) return NULL;
    return tn_affine(ctx, tni_frozen_read(ctx, stream, h), f->u, NULL);
}

/* The symbols and logits at z, in scratch; NULL on error. */
static double *tni_ratio_at(const tn_circuit_ratio *r, const tn_tensor *z, bool held, tni_scratch *w, double **logits)
{
    const tn_circuit_frozen *f = r->frozen;
    if (z && !tni_usable(f->ctx, z, "circuit_ratio", "z")) return NULL;
    if (z && tn_tensor_count(z) != r->variables)
        return tni_fail(f->ctx, TN_ERR_SHAPE, "circuit_ratio: z is %s, expected [%lld]", TNI_SHAPE(z), (long long)r->variables),
               (double *)NULL;
    double   *symbol = tni_take_zeros(w, r->symbols, 1), *x = tni_take_f64(w, f->tokens, f->model->desc.dim);
    tni_scope scope = tni_scope_begin(f->ctx);
    for (int64_t i = 0; i < r->variables && !w->failed; i++) symbol[i] = !r->moved;
    bool       done = !w->failed && (!z || tn_read(z, TN_F64, symbol, r->variables) == TN_OK);
    tn_tensor *y = done ? tni_ratio_run(r, held, symbol, x) : NULL;
    *logits = y ? tni_take_numbers(w, y) : NULL;
    tni_scope_end(f->ctx, scope);
    return *logits ? symbol : NULL;
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
    out->terms = tni_poly_begin(p->ctx, p->symbols, 2);
    for (int64_t i = 0; i < p->count && !w->failed; i++)
        value[i] = p->value[i] * tni_ratio_monomial(p->power + i * p->symbols, symbol, p->symbols);
    if (!w->failed) tni_heap_select(&order, value, p->count);
    for (int64_t i = 0; i < p->count && !w->failed; i++) {
        const int64_t at = order.found[i].at;
        double       *to = tni_poly_term(&out->terms, p->power + at * p->symbols, NULL, true);
        if (!to) return false;
        to[0] = p->value[at];
        out->whole += to[1] = value[at];
    }
    return !w->failed;
}

/* The terms of u . x, u [n], for what norm i reads at position t, times its scale; u NULL: of the mean square of x, plus eps */
static bool tni_ratio_terms(tni_ratio_job *j, const double *u, int64_t i, int64_t t, const double *symbol, tn_circuit_terms *out)
{
    const tn_circuit_ratio *r = j->r;
    const int64_t  last = 2 * j->f->layers - 1, h = j->f->block[last / 2].p->shape[1];
    const double   M = (double)r->count[tni_min(i, last) * j->T + t], k = (double)j->f->block[last / 2].w->shape[0];
    const double   all = i > last ? M + 1 + tni_binomial(M + j->f->model->desc.mlp_bias + k - 1, k) : M;
    const double   terms = u ? all : tni_binomial(all + 1, 2) + 1;
    const double   bytes = 2 * (terms * (double)(2 * r->symbols + 32) + all * (double)(2 * r->symbols + 8 * (j->n + h) + 16));
    if (!tni_ratio_fits(r, "terms", terms, 1, bytes)) return false;
    tni_poly x = tni_poly_begin(j->ctx, r->symbols, j->n), p = tni_poly_begin(j->ctx, r->symbols, 1), c = x;
    bool     done = tni_poly_append(&r->x[t], (int64_t)M, NULL, NULL, j->none, &x) && (i <= last || tni_ratio_mlp(j, last / 2, t, &x));
    if (u) {
        double *to = tni_poly_term(&c, tni_ratio_scale(j, i, t), NULL, false);
        if (to) memcpy(to, u, (size_t)j->n * sizeof *to);
        done = done && to && tni_poly_product(&c, &x, 1, true, 1, &p);
    } else {
        done = done && tni_poly_product(&x, &x, 1, true, 1 / (double)j->n, &p);
        double *to = tni_poly_term(&p, j->none, NULL, false);
        if (to) *to += tni_ratio_norm(j->f->model, i)->desc.eps;
        done = done && to;
    }
    done = done && tni_ratio_order(&p, symbol, &j->w, out);
    tni_poly_end(&x);
    tni_poly_end(&p);
    tni_poly_end(&c);
    return done;
}

tn_status tn_circuit_ratio_terms(const tn_circuit_ratio *r, const tn_circuit_target *target, int64_t symbol, const tn_tensor *z,
                                 tn_circuit_terms *out)
{
    tni_ratio_job j;
    if (out) memset(out, 0, sizeof *out);
    if (!r || !r->frozen) return TN_ERR_ARG;
    const tn_circuit_frozen *f = r->frozen;
    if (!out) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: out is NULL");
    if (!target && f->model->desc.no_norm) return tni_fail(f->ctx, TN_ERR_ARG, "circuit_ratio: target is NULL and there are no norms");
    if (!target && !tni_within(f->ctx, "circuit_ratio", "symbol", symbol, r->variables, r->symbols - 1)) return TN_ERR_ARG;
    const int64_t at = target ? 2 * f->layers * f->tokens + target->position : symbol - r->variables;
    out->ratio = r;
    tni_scope  scope = tni_scope_begin(f->ctx);
    bool       done = tni_ratio_begin(&j, f, (tn_circuit_ratio *)r);
    tn_tensor *w = done && target ? tni_target_weights(f, target, "circuit_ratio") : NULL;
    double    *y, *u = w ? tni_take_numbers(&j.w, tn_slice(tn_matmul(f->ctx, w, f->u), 1, 0, j.n)) : NULL;
    double    *values = done && (u || !target) ? tni_ratio_at(r, z, false, &j.w, &y) : NULL;
    done = values && tni_ratio_terms(&j, u, at / f->tokens, at % f->tokens, values, out);
    tni_scratch_release(&j.w, NULL);
    tni_scope_end(f->ctx, scope);
    if (done) return TN_OK;
    tn_circuit_terms_destroy(out);
    return tni_analysis_status(f->ctx);
}

void tn_circuit_terms_destroy(tn_circuit_terms *t)
{
    if (!t || !t->ratio) return;
    if (t->terms.ctx) tni_poly_end(&t->terms);
    memset(t, 0, sizeof *t);
}

int64_t tn_circuit_term_name(const tn_circuit_terms *terms, int64_t i, char *dst, size_t bytes)
{
    tni_text t = {dst, bytes, 0};
    if (!terms || !terms->ratio || i < 0 || i >= terms->terms.count || (!dst && bytes > 0)) return -1;
    const tn_circuit_ratio *r = terms->ratio;
    const int64_t T = r->frozen->tokens;
    for (int64_t v = 0; v < r->symbols; v++) {
        const int p = terms->terms.power[i * r->symbols + v], n = (int)((v - r->variables) / T), at = (int)((v - r->variables) % T);
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
