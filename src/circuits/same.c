#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"
#include "operator/inner.h"
#include "analysis/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- are two models the same function? ----------------------------------- >>circuits-same-impl
   A polynomial that is not zero is zero at few points of a field (Schwartz 1980; Zippel 1979), so that two polynomials are
   compared by their values at random points, exactly, in whole numbers modulo a prime. A weight is m 2^e, a number of the
   field. One-hot tokens become random vectors, the cosine and sine of each rate of RoPE a random point of the circle,

       c = (1 - u^2)/(1 + u^2)   s = 2u/(1 + u^2)        and at position t the power (c + i s)^t.

   Everything random is a hash of the seed, so that another program can repeat it: with h = splitmix64 (Steele, Lea & Flood
   2014) and r(s,i,j) = h(h(h(s) ^ i) ^ j),

       prime of point k:   the first prime of 2^59 + (r(seed,k,n) mod 2^59), n = 1, 2, ..        key = r(seed,k,0)
       token v at t:       r(key,1+t,v) mod prime          u of a rate: r(key,2^32,the bits of the double) mod prime */

enum { TNI_SAME_TEXTS = 64, TNI_SAME_NUMBERS = 1 << 16, TNI_SAME_LOWEST = 1127, TNI_SAME_POWERS = 2099 };

static uint64_t tni_hash_of(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static uint64_t tni_hash_at(uint64_t seed, uint64_t i, uint64_t j)
{
    return tni_hash_of(tni_hash_of(tni_hash_of(seed) ^ i) ^ j);
}

/* a b mod p for a, b < p < 2^60 */
static uint64_t tni_times_mod(uint64_t p, uint64_t a, uint64_t b)
{
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)a * b % p);
#else
    uint64_t sum = 0;
    for (; b > 0; b >>= 1, a = 2 * a % p) if (b & 1) sum = (sum + a) % p;
    return sum;
#endif
}

/* sum_i a[i] b[i] mod p. Products are below 2^120: some of them fit into 128 bits. */
static uint64_t tni_dot_mod(uint64_t p, int64_t n, const uint64_t *a, const uint64_t *b)
{
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 wide;
    wide sum = 0;
    for (int64_t i = 0; i < n; ) {
        const int64_t end = tni_min(n, i + 128);
        for (; i < end; i++) sum += (wide)a[i] * b[i];
        sum %= p;
    }
    return (uint64_t)sum;
#else
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum = (sum + tni_times_mod(p, a[i], b[i])) % p;
    return sum;
#endif
}

static uint64_t tni_power_mod(uint64_t p, uint64_t a, uint64_t e)
{
    uint64_t y = 1;
    for (; e > 0; e >>= 1, a = tni_times_mod(p, a, a)) if (e & 1) y = tni_times_mod(p, y, a);
    return y;
}

static uint64_t tni_inverse_mod(uint64_t p, uint64_t a) { return tni_power_mod(p, a, p - 2); }

/* Miller & Rabin with bases that are enough below 2^64 (Sorenson & Webster 2015); p is odd. */
static bool tni_is_prime(uint64_t p)
{
    static const uint64_t bases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    int twos = 0;
    while (((p - 1) >> twos & 1) == 0) twos++;
    for (int i = 0; i < 12; i++) {
        uint64_t y = tni_power_mod(p, bases[i], (p - 1) >> twos);
        bool     probable = y == 1 || y == p - 1;
        for (int k = 1; k < twos && !probable; k++) {
            y = tni_times_mod(p, y, y);
            probable = y == p - 1;
        }
        if (!probable) return false;
    }
    return true;
}

static uint64_t tni_prime_of(uint64_t seed, uint64_t point)
{
    for (uint64_t n = 1; ; n++) {
        const uint64_t p = (UINT64_C(1) << 59) + tni_hash_at(seed, point, n) % (UINT64_C(1) << 59);
        if (p & 1 && tni_is_prime(p)) return p;
    }
}

/* ---- one model at one point ---------------------------------------------- >>circuits-same-run */
typedef struct tni_same {
    tn_ctx        *ctx;
    tni_scratch   *w;
    uint64_t       p, key;
    int64_t        T;
    const int32_t *text;                /* [T], or NULL: random vectors in place of tokens   */
    double        *numbers;             /* rows of a matrix as they are read, and in the field */
    uint64_t      *power;               /* [TNI_SAME_POWERS] 2^(k - TNI_SAME_LOWEST)          */
    uint64_t      *row;
    int64_t        room;
} tni_same;

/* x = m 2^e as a number of the field; x is finite. */
static uint64_t tni_number_mod(const tni_same *f, double x)
{
    int            e;
    const double   m = ldexp(frexp(fabs(x), &e), 53);
    const uint64_t y = m > 0 ? tni_times_mod(f->p, (uint64_t)m % f->p, f->power[e - 53 + TNI_SAME_LOWEST]) : 0;
    return x < 0 && y > 0 ? f->p - y : y;
}

/* The prime and the random numbers of a point, and the powers of two that doubles have. */
static void tni_same_point(tni_same *f, uint64_t seed, uint64_t point)
{
    f->p = tni_prime_of(seed, point);
    f->key = tni_hash_at(seed, point, 0);
    f->power[0] = tni_power_mod(f->p, (f->p + 1) / 2, TNI_SAME_LOWEST);
    for (int k = 1; k < TNI_SAME_POWERS; k++) f->power[k] = 2 * f->power[k - 1] % f->p;
}

static uint64_t *tni_take_mod(tni_same *f, int64_t n, int64_t m)
{
    return (uint64_t *)tni_take_zeroed(f->w, tni_area(n, m), sizeof(uint64_t));
}

/* Reads rows [first,first+count) of a matrix into f->row. */
static tn_status tni_same_rows(tni_same *f, tn_tensor *w, int64_t first, int64_t count)
{
    const int64_t n = count * w->shape[1];
    tn_tensor    *rows = tn_slice(w, 0, first, first + count);
    tn_status     s = rows ? tn_read(rows, TN_F64, f->numbers, n) : tni_analysis_status(f->ctx);
    for (int64_t i = 0; i < n && s == TN_OK; i++) {
        if (!(fabs(f->numbers[i]) < HUGE_VAL))
            return tni_fail(f->ctx, TN_ERR_NONFINITE, "transformer_same: a weight is %g, expected finite numbers", f->numbers[i]);
        f->row[i] = tni_number_mod(f, f->numbers[i]);
    }
    return s;
}

/* y [T,rows] = x W^T + b; w: any tensor of rows x cols numbers, b of rows, or NULL */
static tn_status tni_same_affine(tni_same *f, tn_tensor *w, tn_tensor *b, int64_t rows, int64_t cols, const uint64_t *x,
                                 uint64_t *y)
{
    const int64_t step = tni_max(1, f->room / tni_max(cols, 1));
    tn_status     s = TN_OK;
    tn_tensor    *bias = b ? tn_reshape_2d(b, rows, 1) : NULL;
    tn_tensor    *matrix = tn_reshape_2d(w, rows, cols);
    if (!matrix || (b && !bias)) return tni_analysis_status(f->ctx);
    for (int64_t first = 0; first < rows && s == TN_OK; first += step) {
        const int64_t count = tni_min(step, rows - first);
        if (bias && (s = tni_same_rows(f, bias, first, count)) != TN_OK) break;
        for (int64_t t = 0; t < f->T; t++)
            for (int64_t i = 0; i < count; i++) y[t * rows + first + i] = bias ? f->row[i] : 0;
        if ((s = tni_same_rows(f, matrix, first, count)) != TN_OK) break;
        for (int64_t t = 0; t < f->T; t++)
            for (int64_t i = 0; i < count; i++)
                y[t * rows + first + i] = (y[t * rows + first + i]
                                           + tni_dot_mod(f->p, cols, x + t * cols, f->row + i * cols)) % f->p;
    }
    return s;
}

/* x [T,n] += by y */
static void tni_same_add(const tni_same *f, int64_t n, double by, const uint64_t *y, uint64_t *x)
{
    const uint64_t factor = tni_number_mod(f, by);
    for (int64_t i = 0; i < f->T * n; i++) x[i] = (x[i] + (factor == 1 ? y[i] : tni_times_mod(f->p, factor, y[i]))) % f->p;
}

/* x [T,n] = m[0] x + m[1] other */
static tn_status tni_same_mix(tni_same *f, tn_tensor *m, int64_t n, const uint64_t *other, uint64_t *x)
{
    tn_tensor *two = tn_reshape_2d(m, 2, 1);
    tn_status  s = two ? tni_same_rows(f, two, 0, 2) : tni_analysis_status(f->ctx);
    for (int64_t i = 0; i < f->T * n && s == TN_OK; i++)
        x[i] = (tni_times_mod(f->p, f->row[0], x[i]) + tni_times_mod(f->p, f->row[1], other[i])) % f->p;
    return s;
}

/* x [T,n]: the embedding of the text, or of the random vectors; and the learned positions */
static tn_status tni_same_embed(tni_same *f, const tn_transformer *m, uint64_t *x)
{
    const int64_t n = m->desc.dim, V = m->desc.vocab, step = tni_max(1, f->room / n);
    tn_status     s = TN_OK;
    for (int64_t t = 0; t < f->T && f->text && s == TN_OK; t++) {
        s = tni_same_rows(f, m->embed.w, f->text[t], 1);
        memcpy(x + t * n, f->row, (size_t)n * sizeof *x);
    }
    for (int64_t first = 0; first < V && !f->text && s == TN_OK; first += step) {
        const int64_t count = tni_min(step, V - first);
        s = tni_same_rows(f, m->embed.w, first, count);
        for (int64_t v = first; v < first + count && s == TN_OK; v++)
            for (int64_t t = 0; t < f->T; t++) {
                const uint64_t z = tni_hash_at(f->key, 1 + (uint64_t)t, (uint64_t)v) % f->p;
                for (int64_t i = 0; i < n; i++)
                    x[t * n + i] = (x[t * n + i] + tni_times_mod(f->p, z, f->row[(v - first) * n + i])) % f->p;
            }
    }
    for (int64_t t = 0; t < f->T && m->position && s == TN_OK; t++) {
        s = tni_same_rows(f, m->position, t, 1);
        for (int64_t i = 0; i < n; i++) x[t * n + i] = (x[t * n + i] + f->row[i]) % f->p;
    }
    return s;
}

/* Rotates all q and k [T,heads,d]. */
static void tni_same_rope(const tni_same *f, const tn_attention_desc *a, int64_t heads, uint64_t *q)
{
    const uint64_t p = f->p;
    const int64_t  d = a->d_qk, half = d / 2;
    tn_call        call = TNI_ZERO;
    call.f[0] = a->rope_base > 0 ? a->rope_base : 10000;
    call.f[2] = a->rope_scaling.factor, call.f[3] = a->rope_scaling.low;
    call.f[4] = a->rope_scaling.high, call.f[5] = a->rope_scaling.context;
    for (int64_t k = 0; k < half && !a->no_rope; k++) {
        const double rate = tni_rope_rate(&call, k, d);
        uint64_t     bits, u, c = 1, s = 0;
        memcpy(&bits, &rate, sizeof bits);
        u = tni_hash_at(f->key, UINT64_C(1) << 32, bits) % p;
        const uint64_t square = tni_times_mod(p, u, u), below = tni_inverse_mod(p, (1 + square) % p);
        const uint64_t c1 = tni_times_mod(p, (1 + p - square) % p, below), s1 = tni_times_mod(p, 2 * u % p, below);
        for (int64_t t = 0; t < f->T; t++) {
            for (int64_t h = 0; h < heads; h++) {
                uint64_t *x = q + (t * heads + h) * d + k, *y = x + half;
                const uint64_t was = *x;
                *x = (tni_times_mod(p, c, was) + p - tni_times_mod(p, s, *y)) % p;
                *y = (tni_times_mod(p, c, *y) + tni_times_mod(p, s, was)) % p;
            }
            const uint64_t next = (tni_times_mod(p, c, c1) + p - tni_times_mod(p, s, s1)) % p;
            s = (tni_times_mod(p, s, c1) + tni_times_mod(p, c, s1)) % p;
            c = next;
        }
    }
}

/* z [T,heads,d_v]: the patterns times v */
static void tni_same_attend(const tni_same *f, const tn_attention_desc *a, const uint64_t *qk, const uint64_t *v, uint64_t *z)
{
    const uint64_t p = f->p;
    const int64_t  H = a->heads, d = a->d_qk, sets = tni_attention_kinds[a->kind].sets, heads = 2 * sets * H, T = f->T;
    const int64_t  window = a->window > 0 ? tni_min(a->window, T) : T;
    uint64_t       scale = a->scale == 0 ? tni_inverse_mod(p, (uint64_t)d % p) : tni_number_mod(f, a->scale);
    scale = tni_times_mod(p, scale, scale);
    for (int64_t t = 0; t < T; t++) {
        const int64_t first = tni_max(0, t - window + 1), end = a->bidirectional ? tni_min(T, t + window) : t + 1;
        const uint64_t by = a->row_scale != TN_ROW_SCALE_MEAN ? scale
                            : tni_times_mod(p, scale, tni_inverse_mod(p, (uint64_t)(end - first)));
        for (int64_t s = first; s < end; s++)
            for (int64_t h = 0; h < H; h++) {
                uint64_t score[2];
                for (int64_t i = 0; i < sets; i++)
                    score[i] = tni_dot_mod(p, d, qk + (t * heads + i * H + h) * d, qk + (s * heads + (sets + i) * H + h) * d);
                const uint64_t pattern = tni_times_mod(p, by, tni_times_mod(p, score[0], score[sets - 1]));
                for (int64_t e = 0; e < a->d_v; e++) {
                    uint64_t *to = z + (t * H + h) * a->d_v + e;
                    *to = (*to + tni_times_mod(p, pattern, v[(s * H + h) * a->d_v + e])) % p;
                }
            }
    }
}

/* y [T,dim] of attention. values: those of the first block, which the first block sets, where they are mixed; else NULL. */
static tn_status tni_same_attention(tni_same *f, const tn_attention *layer, const uint64_t *x, uint64_t **values, uint64_t *y)
{
    const tn_attention_desc *a = &layer->desc;
    const int64_t heads = 2 * tni_attention_kinds[a->kind].sets * a->heads, width = a->heads * a->d_v;
    uint64_t     *qk = tni_take_mod(f, f->T, heads * a->d_qk), *v = tni_take_mod(f, f->T, width);
    uint64_t     *z = tni_take_mod(f, f->T, width);
    if (f->w->failed) return TN_ERR_MEMORY;
    tn_status s = tni_same_affine(f, layer->qk, layer->qkb, heads * a->d_qk, a->dim, x, qk);
    if (s == TN_OK) s = tni_same_affine(f, layer->v, layer->vb, width, a->dim, x, v);
    if (s == TN_OK && *values && layer->mix) s = tni_same_mix(f, layer->mix, width, *values, v);
    if (s != TN_OK) return s;
    if (!*values) *values = v;
    tni_same_rope(f, a, heads, qk);
    tni_same_attend(f, a, qk, v, z);
    return tni_same_affine(f, layer->o, layer->ob, a->out, width, z, y);
}

/* y [T,dim] of a bilinear MLP of any order */
static tn_status tni_same_mlp(tni_same *f, const tn_mlp *layer, const uint64_t *x, uint64_t *y)
{
    const tn_mlp_desc *d = &layer->desc;
    const int64_t      h = d->hidden, wide = d->order * h;
    uint64_t          *each = tni_take_mod(f, f->T, wide), *product = tni_take_mod(f, f->T, h);
    if (f->w->failed) return TN_ERR_MEMORY;
    tn_status s = tni_same_affine(f, layer->w, layer->b, wide, d->in, x, each);
    for (int64_t i = 0; i < f->T * h; i++) {
        const uint64_t *from = each + i / h * wide + i % h;
        product[i] = from[0];
        for (int64_t e = 1; e < d->order; e++) product[i] = tni_times_mod(f->p, product[i], from[e * h]);
    }
    if (s != TN_OK) return s;
    if (layer->p) return tni_same_affine(f, layer->p, layer->pb, d->out, h, product, y);
    memcpy(y, product, (size_t)(f->T * h) * sizeof *y);
    return TN_OK;
}

/* logits [T,vocab] */
static tn_status tni_same_run(tni_same *f, const tn_transformer *m, uint64_t *logits)
{
    const int64_t    n = m->desc.dim, bytes = f->T * n * (int64_t)sizeof(uint64_t);
    const tni_taken *mark = f->w->newest;
    uint64_t *x = tni_take_mod(f, f->T, n), *x0 = tni_take_mod(f, f->T, n), *y = tni_take_mod(f, f->T, n), *values = NULL;
    uint64_t *first = tni_take_mod(f, f->T, m->blocks[0].attn.desc.heads * m->blocks[0].attn.desc.d_v);
    if (f->w->failed) return TN_ERR_MEMORY;
    tn_status s = tni_same_embed(f, m, x);
    memcpy(x0, x, (size_t)bytes);
    for (int64_t l = 0; l < m->desc.layers && s == TN_OK; l++) {
        const tn_transformer_block *b = &m->blocks[l];
        const tni_taken            *piece = f->w->newest;
        if (b->lambdas) s = tni_same_mix(f, b->lambdas, n, x0, x);
        if (s == TN_OK) s = tni_same_attention(f, &b->attn, x, &values, y);
        if (s != TN_OK) break;
        if (l == 0) memcpy(first, values, (size_t)(f->T * b->attn.desc.heads * b->attn.desc.d_v) * sizeof *first);
        values = first;
        tni_same_add(f, n, tni_branch_scale(&m->desc, 0), y, x);
        s = tni_same_mlp(f, &b->mlp, x, y);
        if (s == TN_OK) tni_same_add(f, n, tni_branch_scale(&m->desc, 1), y, x);
        tni_scratch_release(f->w, piece);
    }
    if (s == TN_OK) s = tni_same_affine(f, m->head.w, m->head.b, m->desc.vocab, n, x, logits);
    tni_scratch_release(f->w, mark);
    return s;
}

/* ---- two models ------------------------------------------------------------ >>circuits-same-compare */

/* The most keys that a query of so many tokens sees. */
static int64_t tni_same_most(const tn_attention_desc *a, int64_t tokens)
{
    const int64_t window = a->window > 0 ? tni_min(a->window, tokens) : tokens;
    return a->bidirectional ? tni_min(tokens, 2 * window - 1) : window;
}

/* Whether every logit of the model is a polynomial of its tokens' vectors; else an error names the part that is not. */
static bool tni_same_fits(tn_ctx *ctx, const tn_transformer *m, int64_t tokens, const char *which)
{
    const tn_transformer_desc *d = &m->desc;
    const char *part = !d->no_norm || d->embed_norm ? "norms" : d->softcap != 0 ? "a soft cap" : NULL;
    int64_t     at = -1;
    for (int64_t l = 0; l < d->layers && !part; l++) {
        const tn_attention_desc *a = &m->blocks[l].attn.desc;
        const tn_attend_kind     kind = tni_attention_kinds[a->kind].attend;
        const int64_t            length = a->row_length > 0 ? a->row_length : 512;
        if (kind != TN_ATTEND_SQUARED && kind != TN_ATTEND_BILINEAR) part = tn_attention_kind_name(a->kind);
        else if (a->qk_norm) part = "QK-norm";
        else if (a->head_norm) part = "head_norm";
        else if (a->row_scale == TN_ROW_SCALE_SUM) part = "rows divided by their sum";
        else if (m->blocks[l].mlp.desc.kind != TN_MLP_BILINEAR) part = tn_mlp_kind_name(m->blocks[l].mlp.desc.kind);
        else if ((a->row_scale == TN_ROW_SCALE_DEFAULT || a->row_scale == TN_ROW_SCALE_LENGTH)
                 && tni_same_most(a, tokens) > length)
            return tni_fail(ctx, TN_ERR_ARG, "transformer_same: block %lld of %s scales rows of more than %lld tokens by their "
                            "length, expected tokens <= that", (long long)l, which, (long long)length), false;
        if (part) at = l;
    }
    if (!part && d->positions == TN_POSITIONS_LEARNED && tokens > d->context)
        return tni_fail(ctx, TN_ERR_ARG, "transformer_same: %s has %lld learned positions, expected at least tokens, %lld", which,
                        (long long)d->context, (long long)tokens), false;
    if (!part) return true;
    if (at < 0) tni_fail(ctx, TN_ERR_ARG, "transformer_same: %s has %s, expected a polynomial of %lld tokens", which, part,
                         (long long)tokens);
    else tni_fail(ctx, TN_ERR_ARG, "transformer_same: block %lld of %s has %s, expected a polynomial of %lld tokens",
                  (long long)at, which, part, (long long)tokens);
    return false;
}

/* Adds to *degree that of the model's logits as polynomials, with the common denominator of its rotations, and to *bits a
   bound of the logarithm of a coefficient, all weights as integers. */
static void tni_same_degree(const tn_transformer *m, int64_t tokens, double *degree, double *bits)
{
    const double each = m->embed.w->dtype == TN_F64 ? 2150 : 330;           /* of a weight, and of a sum over its index */
    const double fixed = (3 * 2150 + 1.5 * (double)tokens) / each;          /* scales of scores and branches; lcm(1 .. T) */
    double       d = 1, w = 1, turns = 0;
    for (int64_t l = 0; l < m->desc.layers; l++) {
        const tn_attention_desc *a = &m->blocks[l].attn.desc;
        const double rotations = a->no_rope ? 0 : 8 * (double)(tokens - 1) * (double)(a->d_qk / 2);
        const double order = (double)m->blocks[l].mlp.desc.order;
        d = 5 * d + rotations;
        w = 5 * (w + 1) + 11 + fixed;
        turns = 5 * turns + rotations;
        d *= order;
        w = order * w + order + 3 + fixed;
        turns *= order;
    }
    *degree += d;
    *bits += (w + 1) * each + 2 * turns;
}

/* A text of tokens for which a logit differs, if some are tried. */
static tn_status tni_same_text(tni_same *f, const tn_transformer *a, const tn_transformer *b, uint64_t *x, uint64_t *y,
                               tn_transformer_same_result *out)
{
    const int64_t V = a->desc.vocab;
    int32_t      *text = (int32_t *)tni_take(f->w, f->T, sizeof *text);
    tn_status     s = text ? TN_OK : TN_ERR_MEMORY;
    f->text = text;
    for (uint64_t k = 0; k < TNI_SAME_TEXTS && s == TN_OK; k++) {
        for (int64_t t = 0; t < f->T; t++)
            text[t] = (int32_t)(tni_hash_at(f->key, UINT64_C(1) << 33, k * 1024 + (uint64_t)t) % (uint64_t)V);
        if ((s = tni_same_run(f, a, x)) != TN_OK || (s = tni_same_run(f, b, y)) != TN_OK) break;
        for (int64_t i = 0; i < f->T * V; i++) {
            if (x[i] == y[i]) continue;
            out->position = i / V;
            out->token = i % V;
            out->text = tn_tensor_create(f->ctx, TN_I32, 2, TNI_DIMS(1, f->T));
            return out->text ? tn_write(out->text, TN_I32, text, f->T) : tni_analysis_status(f->ctx);
        }
    }
    f->text = NULL;
    return s;
}

static tn_status tni_same_compare(tni_same *f, const tn_transformer *a, const tn_transformer *b, uint64_t seed,
                                  tn_transformer_same_result *out)
{
    const int64_t V = a->desc.vocab, n = tni_max(tni_max(a->desc.dim, b->desc.dim), 2);
    int64_t       widest = n;
    for (int64_t l = 0; l < a->desc.layers + b->desc.layers; l++) {
        const tn_transformer_block *block = l < a->desc.layers ? &a->blocks[l] : &b->blocks[l - a->desc.layers];
        widest = tni_max(widest, tni_max(block->mlp.desc.hidden, block->attn.desc.heads * block->attn.desc.d_v));
    }
    f->room = tni_max(widest, TNI_SAME_NUMBERS);
    f->numbers = tni_take_f64(f->w, f->room, 1);
    f->row = tni_take_mod(f, f->room, 1);
    f->power = tni_take_mod(f, TNI_SAME_POWERS, 1);
    uint64_t *x = tni_take_mod(f, f->T, V), *y = tni_take_mod(f, f->T, V);
    tn_status s = f->w->failed ? TN_ERR_MEMORY : TN_OK;
    out->equal = true;
    for (int64_t k = 0; k < out->points && s == TN_OK && out->equal; k++) {
        tni_same_point(f, seed, (uint64_t)k);
        if ((s = tni_same_run(f, a, x)) != TN_OK || (s = tni_same_run(f, b, y)) != TN_OK) return s;
        out->equal = memcmp(x, y, (size_t)(f->T * V) * sizeof *x) == 0;
        for (int64_t i = 0; i < f->T * V && k == 0; i++)
            out->residue = (out->residue + tni_times_mod(f->p, (uint64_t)i + 1, x[i])) % f->p;
        if (k == 0) out->prime = f->p;
    }
    return s == TN_OK && !out->equal ? tni_same_text(f, a, b, x, y, out) : s;
}

tn_status tn_transformer_same(const tn_transformer *a, const tn_transformer *b, const tn_transformer_same_desc *desc,
                              tn_transformer_same_result *out)
{
    if (out) memset(out, 0, sizeof *out);
    if (!a || !a->blocks || !tni_alive(a->embed.w)) return TN_ERR_ARG;
    tn_ctx *ctx = a->embed.w->ctx;
    if (!out || !b || !b->blocks) return tni_fail(ctx, TN_ERR_ARG, "transformer_same: %s is NULL", out ? "b" : "out");
    if (!tni_alive(b->embed.w) || b->embed.w->ctx != ctx)
        return tni_fail(ctx, TN_ERR_ARG, "transformer_same: b is of another context, expected that of a");
    tni_same f = TNI_ZERO;
    f.ctx = ctx;
    f.T = desc && desc->tokens != 0 ? desc->tokens : 4;
    out->points = desc && desc->points != 0 ? desc->points : 3;
    if (!tni_within(ctx, "transformer_same", "tokens", f.T, 1, 1024)
        || !tni_within(ctx, "transformer_same", "points", out->points, 1, 1000)) return TN_ERR_ARG;
    if (a->desc.vocab != b->desc.vocab)
        return tni_fail(ctx, TN_ERR_SHAPE, "transformer_same: b has %lld tokens, expected %lld as a", (long long)b->desc.vocab,
                        (long long)a->desc.vocab);
    if (!tni_same_fits(ctx, a, f.T, "a") || !tni_same_fits(ctx, b, f.T, "b")) return TN_ERR_ARG;
    double bits = 0;
    tni_same_degree(a, f.T, &out->degree, &bits);
    tni_same_degree(b, f.T, &out->degree, &bits);
    const double one = ldexp(out->degree, -59) + ldexp(bits / 59, -53);
    out->chance = one < 1 ? pow(one, (double)out->points) : 1;
    tni_scratch w = tni_scratch_begin(ctx, "transformer_same");
    f.w = &w;
    tni_scope scope = tni_scope_begin(ctx);
    tn_status s = tni_same_compare(&f, a, b, desc ? desc->seed : 0, out);
    tni_scope_end(ctx, scope);
    if (s != TN_OK) tn_transformer_same_destroy(out);
    return tni_scratch_end(&w, s);
}

void tn_transformer_same_destroy(tn_transformer_same_result *r)
{
    tni_result_end(r, sizeof *r, offsetof(tn_transformer_same_result, text), 1);
}

#endif /* TN_NO_CIRCUITS */
