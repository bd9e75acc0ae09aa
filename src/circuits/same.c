#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"
#include "decomp/inner.h"
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

   Of the other functions g (1/sqrt of norms, activations, softmax) nothing is used but that equal arguments have equal
   values: each value is a random number that belongs to g and to the argument, as if it were one more variable. What agrees
   for such numbers agrees for the functions. Softmax depends on differences of scores alone, so these are its arguments.

   With r and the primes of >>circuits-modular, point k has prime k of the seed, key = r(seed,k,0), and modulo the prime

       token v at position t:   r(key, 1+t, v)            u of a rate:   r(key, 2^32, the bits of the double)
       g at an argument a:      r(key, 2^34 + g, a), g a tn_act, or as the enum below has it
       softmax of the scores z_0 .. z_n:   d_i = z_i - z_0,   c_0 = r(key, 2^34 + TNI_SAME_SOFTMAX, n + 1),
                                c_(i+1) = r(c_i, 0, d_i),   weight i = r(c_(n+1), 1, d_i) */

enum { TNI_SAME_TEXTS = 64, TNI_SAME_NUMBERS = 1 << 16, TNI_SAME_LOWEST = 1127, TNI_SAME_POWERS = 2099 };
enum { TNI_SAME_GELU_TANH = 100, TNI_SAME_ROOT, TNI_SAME_INVERSE, TNI_SAME_SOFTMAX };     /* 1/sqrt(a), 1/a */

/* ---- one model at one point ---------------------------------------------- >>circuits-same-run */
typedef struct tni_same {
    tn_ctx        *ctx;
    tni_scratch   *w;
    uint64_t       p, key;
    int64_t        T;
    const int32_t *text;                /* [T], or NULL: random vectors in place of tokens         */
    double        *numbers;             /* [room] rows of a matrix as they are read                */
    uint64_t      *power;               /* [TNI_SAME_POWERS] 2^(k - TNI_SAME_LOWEST)               */
    uint64_t      *row;                 /* [3,room] rows in the field, and what tni_same_random needs */
    int64_t        room;
    uint64_t      *score;               /* [2,T] the scores of a query                             */
    double         values;              /* of functions that are no polynomials, so far            */
    int            low, high;           /* all numbers, and 1, are multiples of 2^low below 2^high */
} tni_same;

/* The value of a function of which nothing is known, at an argument. */
static uint64_t tni_same_value(tni_same *f, int function, uint64_t argument)
{
    f->values++;
    return tni_hash_at(f->key, (UINT64_C(1) << 34) + (uint64_t)function, argument) % f->p;
}

/* x = m 2^e as a number of the field; x is finite. */
static uint64_t tni_number_mod(tni_same *f, double x)
{
    int            e;
    const uint64_t m = (uint64_t)ldexp(frexp(fabs(x), &e), 53);
    if (m == 0) return 0;
    f->high = e > f->high ? e : f->high;
    for (e -= 53; e < f->low && (f->low - e > 60 || m & ((UINT64_C(1) << (f->low - e)) - 1)); ) f->low--;
    const uint64_t y = tni_times_mod(f->p, m % f->p, f->power[e + TNI_SAME_LOWEST]);
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

/* Reads all n numbers of a small tensor into f->row. */
static tn_status tni_same_vector(tni_same *f, tn_tensor *t, int64_t n)
{
    tn_tensor *row = tn_reshape_2d(t, 1, n);
    return row ? tni_same_rows(f, row, 0, 1) : tni_analysis_status(f->ctx);
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
static void tni_same_add(tni_same *f, int64_t n, double by, const uint64_t *y, uint64_t *x)
{
    const uint64_t factor = tni_number_mod(f, by);
    for (int64_t i = 0; i < f->T * n; i++) x[i] = (x[i] + (factor == 1 ? y[i] : tni_times_mod(f->p, factor, y[i]))) % f->p;
}

/* x [T,n] = m[0] x + m[1] other */
static tn_status tni_same_mix(tni_same *f, tn_tensor *m, int64_t n, const uint64_t *other, uint64_t *x)
{
    tn_status s = tni_same_vector(f, m, 2);
    for (int64_t i = 0; i < f->T * n && s == TN_OK; i++)
        x[i] = (tni_times_mod(f->p, f->row[0], x[i]) + tni_times_mod(f->p, f->row[1], other[i])) % f->p;
    return s;
}

/* Divides each of `count` vectors [n] by its root mean square. */
static void tni_same_unit(tni_same *f, double eps, int64_t n, int64_t count, uint64_t *x)
{
    const uint64_t p = f->p, each = tni_inverse_mod(p, (uint64_t)n % p), more = tni_number_mod(f, eps);
    for (int64_t i = 0; i < count; i++, x += n) {
        const uint64_t scale = tni_same_value(f, TNI_SAME_ROOT, (tni_times_mod(p, each, tni_dot_mod(p, n, x, x)) + more) % p);
        for (int64_t k = 0; k < n; k++) x[k] = tni_times_mod(p, scale, x[k]);
    }
}

/* y [T,dim] = norm(x), which may be y */
static tn_status tni_same_norm(tni_same *f, const tn_norm *norm, const uint64_t *x, uint64_t *y)
{
    const int64_t  n = norm->desc.dim, count = f->T * n;
    const uint64_t p = f->p, each = tni_inverse_mod(p, (uint64_t)n % p);
    tn_status      s = TN_OK;
    if (x != y) memcpy(y, x, (size_t)count * sizeof *y);
    for (int64_t t = 0; t < f->T && norm->desc.kind == TN_NORM_LAYER; t++) {
        uint64_t *row = y + t * n, sum = 0;
        for (int64_t i = 0; i < n; i++) sum = (sum + row[i]) % p;
        for (int64_t i = 0; i < n; i++) row[i] = (row[i] + p - tni_times_mod(p, each, sum)) % p;
    }
    tni_same_unit(f, norm->desc.eps, n, f->T, y);
    if (norm->gain) s = tni_same_vector(f, norm->gain, n);
    for (int64_t i = 0; i < count && norm->gain && s == TN_OK; i++) y[i] = tni_times_mod(p, y[i], f->row[i % n]);
    if (norm->bias && s == TN_OK) s = tni_same_vector(f, norm->bias, n);
    for (int64_t i = 0; i < count && norm->bias && s == TN_OK; i++) y[i] = (y[i] + f->row[i % n]) % p;
    return s;
}

/* x [T,n] += the random vectors of the tokens [first,first+count) times their embeddings, f->row [count,n] */
static void tni_same_random(tni_same *f, int64_t n, int64_t first, int64_t count, uint64_t *x)
{
    uint64_t *transposed = f->row + f->room, *z = f->row + 2 * f->room;
    for (int64_t v = 0; v < count; v++)
        for (int64_t i = 0; i < n; i++) transposed[i * count + v] = f->row[v * n + i];
    for (int64_t t = 0; t < f->T; t++, x += n) {
        for (int64_t v = 0; v < count; v++) z[v] = tni_hash_at(f->key, 1 + (uint64_t)t, (uint64_t)(first + v)) % f->p;
        for (int64_t i = 0; i < n; i++) x[i] = (x[i] + tni_dot_mod(f->p, count, z, transposed + i * count)) % f->p;
    }
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
        if ((s = tni_same_rows(f, m->embed.w, first, count)) == TN_OK) tni_same_random(f, n, first, count, x);
    }
    for (int64_t t = 0; t < f->T && m->position && s == TN_OK; t++) {
        s = tni_same_rows(f, m->position, t, 1);
        for (int64_t i = 0; i < n; i++) x[t * n + i] = (x[t * n + i] + f->row[i]) % f->p;
    }
    return s == TN_OK && m->desc.embed_norm ? tni_same_norm(f, &m->embed_norm, x, x) : s;
}

/* Norms and gains of all q and k [T,heads,d_qk], before they are rotated. */
static tn_status tni_same_qk_norm(tni_same *f, const tn_attention *layer, int64_t heads, uint64_t *q)
{
    const tn_attention_desc *a = &layer->desc;
    const int64_t            d = a->d_qk, n = layer->qk_gain ? tn_tensor_count(layer->qk_gain) : 0;
    if (a->qk_norm) tni_same_unit(f, a->qk_norm_eps == 0 ? 1e-6 : a->qk_norm_eps, d, f->T * heads, q);
    const tn_status s = n > 0 ? tni_same_vector(f, layer->qk_gain, n) : TN_OK;
    for (int64_t i = 0; i < f->T * heads * d && n > 0 && s == TN_OK; i++)
        q[i] = tni_times_mod(f->p, q[i], f->row[i / d % heads / a->heads * d + i % d]);
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

/* Turns n scores into the weights of their softmax. */
static void tni_same_softmax(tni_same *f, int64_t n, uint64_t *z)
{
    const uint64_t first = n > 0 ? z[0] : 0;
    uint64_t       row = tni_hash_at(f->key, (UINT64_C(1) << 34) + TNI_SAME_SOFTMAX, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) row = tni_hash_at(row, 0, z[i] = (z[i] + f->p - first) % f->p);
    for (int64_t i = 0; i < n; i++) z[i] = tni_hash_at(row, 1, z[i]) % f->p;
    f->values += (double)n;
}

/* lambda of the differential kinds */
static tn_status tni_same_lambda(tni_same *f, const tn_attention *layer, uint64_t *lambda)
{
    const int64_t   d = layer->desc.d_qk;
    const bool      plain = layer->desc.kind == TN_ATTENTION_DIFFERENTIAL_PLAIN;
    const tn_status s = tni_same_vector(f, layer->lambda, plain ? 1 : 4 * d);
    if (s != TN_OK) return s;
    *lambda = f->row[0];
    if (plain) return s;
    *lambda = (tni_same_value(f, TN_ACT_EXP, tni_dot_mod(f->p, d, f->row, f->row + d)) + f->p
               - tni_same_value(f, TN_ACT_EXP, tni_dot_mod(f->p, d, f->row + 2 * d, f->row + 3 * d))
               + tni_number_mod(f, layer->desc.lambda_init)) % f->p;
    return s;
}

/* f->score [n]: the pattern of a query from the scores [2,T] that f->score has; scale: of the scores */
static void tni_same_pattern(tni_same *f, const tn_attention_desc *a, uint64_t scale, uint64_t lambda, int64_t n)
{
    const uint64_t p = f->p;
    uint64_t      *z = f->score, *other = z + (tni_attention_kinds[a->kind].sets - 1) * f->T, by = 1, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (other != z) other[i] = tni_times_mod(p, scale, other[i]);
        z[i] = tni_times_mod(p, scale, z[i]);
    }
    if (tni_attention_kinds[a->kind].attend == TN_ATTEND_SOFTMAX) {
        tni_same_softmax(f, n, z);
        if (other != z) tni_same_softmax(f, n, other);
        for (int64_t i = 0; i < n && other != z; i++) z[i] = (z[i] + p - tni_times_mod(p, lambda, other[i])) % p;
    } else {
        for (int64_t i = 0; i < n; i++) sum = (sum + (z[i] = tni_times_mod(p, z[i], other[i]))) % p;
    }
    if (a->row_scale == TN_ROW_SCALE_MEAN) by = tni_inverse_mod(p, (uint64_t)n);
    if (a->row_scale == TN_ROW_SCALE_SUM) by = tni_same_value(f, TNI_SAME_INVERSE, (sum + tni_number_mod(f, 1e-6)) % p);
    for (int64_t i = 0; i < n && by != 1; i++) z[i] = tni_times_mod(p, by, z[i]);
}

/* z [T,heads,d_v]: the patterns times v */
static void tni_same_attend(tni_same *f, const tn_attention_desc *a, uint64_t lambda, const uint64_t *qk, const uint64_t *v,
                            uint64_t *z)
{
    const uint64_t p = f->p;
    const int64_t  H = a->heads, d = a->d_qk, sets = tni_attention_kinds[a->kind].sets, heads = 2 * sets * H, T = f->T;
    const int64_t  window = a->window > 0 ? tni_min(a->window, T) : T;
    uint64_t       scale = tni_number_mod(f, a->scale);
    if (a->scale == 0 && tni_attention_kinds[a->kind].attend == TN_ATTEND_SOFTMAX)
        scale = tni_number_mod(f, 1 / sqrt((double)d));
    else if (a->scale == 0) scale = tni_inverse_mod(p, (uint64_t)d % p);
    for (int64_t t = 0; t < T; t++) {
        const int64_t first = tni_max(0, t - window + 1), end = a->bidirectional ? tni_min(T, t + window) : t + 1;
        for (int64_t h = 0; h < H; h++) {
            for (int64_t i = 0; i < sets; i++)
                for (int64_t s = first; s < end; s++)
                    f->score[i * T + s - first]
                        = tni_dot_mod(p, d, qk + (t * heads + i * H + h) * d, qk + (s * heads + (sets + i) * H + h) * d);
            tni_same_pattern(f, a, scale, lambda, end - first);
            for (int64_t s = first; s < end; s++)
                for (int64_t e = 0; e < a->d_v; e++) {
                    uint64_t *to = z + (t * H + h) * a->d_v + e;
                    *to = (*to + tni_times_mod(p, f->score[s - first], v[(s * H + h) * a->d_v + e])) % p;
                }
        }
    }
}

/* y [T,dim] of attention. values: those of the first block, which the first block sets, where they are mixed; else NULL. */
static tn_status tni_same_attention(tni_same *f, const tn_attention *layer, const uint64_t *x, uint64_t **values, uint64_t *y)
{
    const tn_attention_desc *a = &layer->desc;
    const int64_t heads = 2 * tni_attention_kinds[a->kind].sets * a->heads, width = a->heads * a->d_v;
    uint64_t     *qk = tni_take_mod(f, f->T, heads * a->d_qk), *v = tni_take_mod(f, f->T, width), lambda = 0;
    uint64_t     *z = tni_take_mod(f, f->T, width);
    if (f->w->failed) return TN_ERR_MEMORY;
    tn_status s = tni_same_affine(f, layer->qk, layer->qkb, heads * a->d_qk, a->dim, x, qk);
    if (s == TN_OK) s = tni_same_qk_norm(f, layer, heads, qk);
    if (s == TN_OK) s = tni_same_affine(f, layer->v, layer->vb, width, a->dim, x, v);
    if (s == TN_OK && *values && layer->mix) s = tni_same_mix(f, layer->mix, width, *values, v);
    if (s == TN_OK && layer->lambda) s = tni_same_lambda(f, layer, &lambda);
    if (s != TN_OK) return s;
    if (!*values) *values = v;
    tni_same_rope(f, a, heads, qk);
    tni_same_attend(f, a, lambda, qk, v, z);
    if (tni_attention_normed(a)) tni_same_unit(f, 1e-5, a->d_v, f->T * a->heads, z);
    const uint64_t rest = a->kind == TN_ATTENTION_DIFFERENTIAL ? tni_number_mod(f, 1 - a->lambda_init) : 1;
    for (int64_t i = 0; i < f->T * width && rest != 1; i++) z[i] = tni_times_mod(f->p, rest, z[i]);
    return tni_same_affine(f, layer->o, layer->ob, a->out, width, z, y);
}

/* The activation of a kind of MLP */
static uint64_t tni_same_act(tni_same *f, tn_mlp_kind kind, uint64_t x)
{
    const bool tanh = kind == TN_MLP_GELU_TANH || kind == TN_MLP_GEGLU_TANH;
    if (kind == TN_MLP_BILINEAR) return x;
    return tni_same_value(f, tanh ? (int)TNI_SAME_GELU_TANH : (int)tni_mlp_kinds[kind].act, x);
}

/* y [T,dim] of an MLP */
static tn_status tni_same_mlp(tni_same *f, const tn_mlp *layer, const uint64_t *x, uint64_t *y)
{
    const tn_mlp_desc *d = &layer->desc;
    const int64_t      h = d->hidden, encoders = d->kind == TN_MLP_BILINEAR ? d->order : tni_mlp_kinds[d->kind].encoders;
    const int64_t      wide = encoders * h;
    uint64_t          *each = tni_take_mod(f, f->T, wide), *product = tni_take_mod(f, f->T, h);
    if (f->w->failed) return TN_ERR_MEMORY;
    tn_status s = tni_same_affine(f, layer->w, layer->b, wide, d->in, x, each);
    for (int64_t i = 0; i < f->T * h; i++) {
        const uint64_t *from = each + i / h * wide + i % h;
        product[i] = tni_same_act(f, d->kind, from[0]);
        for (int64_t e = 1; e < encoders; e++) product[i] = tni_times_mod(f->p, product[i], from[e * h]);
    }
    if (s != TN_OK) return s;
    if (layer->p) return tni_same_affine(f, layer->p, layer->pb, d->out, h, product, y);
    memcpy(y, product, (size_t)(f->T * h) * sizeof *y);
    return TN_OK;
}

/* x [T,dim] += one branch, which: 0 attention, 1 MLP. y, z: room for as much; values: as tni_same_attention takes them. */
static tn_status tni_same_branch(tni_same *f, const tn_transformer *m, const tn_transformer_block *b, int which,
                                 uint64_t **values, uint64_t *x, uint64_t *y, uint64_t *z)
{
    const tn_norm *norm = which ? &b->norm2 : &b->norm1;
    const bool     before = !m->desc.no_norm && m->desc.norm_place != TN_PLACE_POST;
    tn_status      s = before ? tni_same_norm(f, norm, x, z) : TN_OK;
    if (s == TN_OK && which) s = tni_same_mlp(f, &b->mlp, before ? z : x, y);
    else if (s == TN_OK) s = tni_same_attention(f, &b->attn, before ? z : x, values, y);
    if (s == TN_OK && m->desc.norm_place == TN_PLACE_SANDWICH)
        s = tni_same_norm(f, which ? &b->norm2_out : &b->norm1_out, y, y);
    if (s != TN_OK) return s;
    tni_same_add(f, m->desc.dim, tni_branch_scale(&m->desc, which), y, x);
    return m->desc.norm_place == TN_PLACE_POST ? tni_same_norm(f, norm, x, x) : s;
}

/* c tanh(z/c) of all logits */
static void tni_same_cap(tni_same *f, double softcap, int64_t count, uint64_t *logits)
{
    const uint64_t cap = tni_number_mod(f, softcap), inverse = softcap == 0 ? 0 : tni_inverse_mod(f->p, cap);
    for (int64_t i = 0; i < count && softcap != 0; i++)
        logits[i] = tni_times_mod(f->p, cap, tni_same_value(f, TN_ACT_TANH, tni_times_mod(f->p, inverse, logits[i])));
}

/* logits [T,vocab] */
static tn_status tni_same_run(tni_same *f, const tn_transformer *m, uint64_t *logits)
{
    const int64_t    n = m->desc.dim, bytes = f->T * n * (int64_t)sizeof(uint64_t);
    const tni_taken *mark = f->w->newest;
    uint64_t *x = tni_take_mod(f, f->T, n), *x0 = tni_take_mod(f, f->T, n), *y = tni_take_mod(f, f->T, n);
    uint64_t *z = tni_take_mod(f, f->T, n), *values = NULL;
    uint64_t *first = tni_take_mod(f, f->T, m->blocks[0].attn.desc.heads * m->blocks[0].attn.desc.d_v);
    if (f->w->failed) return TN_ERR_MEMORY;
    tn_status s = tni_same_embed(f, m, x);
    memcpy(x0, x, (size_t)bytes);
    for (int64_t l = 0; l < m->desc.layers && s == TN_OK; l++) {
        const tn_transformer_block *b = &m->blocks[l];
        const tni_taken            *piece = f->w->newest;
        if (b->lambdas) s = tni_same_mix(f, b->lambdas, n, x0, x);
        if (s == TN_OK) s = tni_same_branch(f, m, b, 0, &values, x, y, z);
        if (s != TN_OK) break;
        if (l == 0) memcpy(first, values, (size_t)(f->T * b->attn.desc.heads * b->attn.desc.d_v) * sizeof *first);
        values = first;
        s = tni_same_branch(f, m, b, 1, NULL, x, y, z);
        tni_scratch_release(f->w, piece);
    }
    if (s == TN_OK && !m->desc.no_norm && m->desc.norm_place != TN_PLACE_POST) s = tni_same_norm(f, &m->norm, x, x);
    if (s == TN_OK) s = tni_same_affine(f, m->head.w, m->head.b, m->desc.vocab, n, x, logits);
    if (s == TN_OK) tni_same_cap(f, m->desc.softcap, f->T * m->desc.vocab, logits);
    tni_scratch_release(f->w, mark);
    return s;
}

/* ---- what is compared ------------------------------------------------------ >>circuits-same-fits */

/* The most keys that a query of so many tokens sees. */
static int64_t tni_same_most(const tn_attention_desc *a, int64_t tokens)
{
    const int64_t window = a->window > 0 ? tni_min(a->window, tokens) : tokens;
    return a->bidirectional ? tni_min(tokens, 2 * window - 1) : window;
}

/* Whether the model can be evaluated at a point; else an error names the part that cannot. */
static bool tni_same_fits(tn_ctx *ctx, const tn_transformer *m, int64_t tokens, const char *which)
{
    const tn_transformer_desc *d = &m->desc;
    for (int64_t l = 0; l < d->layers; l++) {
        tn_attend_desc a = tni_attention_attend(&m->blocks[l].attn.desc);
        if (!tni_attend_numbers(ctx, &a, m->blocks[l].attn.desc.d_qk)) return false;
        if (a.row_scale == TN_ROW_SCALE_LENGTH && tni_same_most(&m->blocks[l].attn.desc, tokens) > a.row_length)
            return tni_fail(ctx, TN_ERR_ARG, "transformer_same: block %lld of %s scales rows of more than %lld tokens by their "
                            "length, expected tokens <= that", (long long)l, which, (long long)a.row_length), false;
    }
    if (d->positions == TN_POSITIONS_LEARNED && tokens > d->context)
        return tni_fail(ctx, TN_ERR_ARG, "transformer_same: %s has %lld learned positions, expected at least tokens, %lld", which,
                        (long long)d->context, (long long)tokens), false;
    return true;
}

/* ---- the comparison -------------------------------------------------------- >>circuits-same-compare */

static bool tni_same_logits(tni_same *f, const tn_transformer *m, tn_tensor *text, double *logits)
{
    tn_tensor *y = tn_transformer_forward(f->ctx, m, text);
    return y && tn_read(y, TN_F64, logits, tn_tensor_count(y)) == TN_OK;
}

/* Whether the logits of both models for a text, as the library computes them, differ by more than rounding: then *at is the
   one that differs most. */
static tn_status tni_same_computed(tni_same *f, const tn_transformer *a, const tn_transformer *b, int64_t *at,
                                   tn_transformer_same_result *out)
{
    const int64_t n = f->T * a->desc.vocab;
    tni_scope     scope = tni_scope_begin(f->ctx);
    double       *x = tni_take_f64(f->w, n, 2), most = 0, size = 0;
    tn_tensor    *text = tn_tensor_from(f->ctx, 2, TNI_DIMS(1, f->T), TN_I32, f->text);
    const bool    done = !f->w->failed && text && tni_same_logits(f, a, text, x) && tni_same_logits(f, b, text, x + n);
    tni_scope_end(f->ctx, scope);
    if (!done) return tni_analysis_status(f->ctx);
    for (int64_t i = 0; i < n; i++) {
        const double off = fabs(x[i] - x[n + i]);
        size = tni_max_f64(size, fabs(x[i]));
        if (off > most) most = off, *at = i;
    }
    out->difference = tni_max_f64(out->difference, most);
    if (most <= 1e4 * tni_dtype_eps(f->ctx->desc.dtype) * size) *at = -1;
    return TN_OK;
}

/* A text for which a logit differs, if some are tried: exactly, or, with functions, as the library computes it. */
static tn_status tni_same_text(tni_same *f, const tn_transformer *a, const tn_transformer *b, uint64_t *x, uint64_t *y,
                               tn_transformer_same_result *out)
{
    const int64_t V = a->desc.vocab;
    int32_t      *text = (int32_t *)tni_take(f->w, f->T, sizeof *text);
    tn_status     s = text ? TN_OK : TN_ERR_MEMORY;
    f->text = text;
    for (uint64_t k = 0; k < TNI_SAME_TEXTS && s == TN_OK && !out->text; k++) {
        const tni_taken *mark = f->w->newest;
        int64_t          at = -1;
        for (int64_t t = 0; t < f->T; t++)
            text[t] = (int32_t)(tni_hash_at(f->key, UINT64_C(1) << 33, k * 1024 + (uint64_t)t) % (uint64_t)V);
        if (out->values > 0) s = tni_same_computed(f, a, b, &at, out);
        else if ((s = tni_same_run(f, a, x)) == TN_OK && (s = tni_same_run(f, b, y)) == TN_OK)
            for (int64_t i = 0; i < f->T * V && at < 0; i++) if (x[i] != y[i]) at = i;
        tni_scratch_release(f->w, mark);
        if (s != TN_OK || at < 0) continue;
        out->position = at / V;
        out->token = at % V;
        out->text = tn_tensor_create(f->ctx, TN_I32, 2, TNI_DIMS(1, f->T));
        s = out->text ? tn_write(out->text, TN_I32, text, f->T) : tni_analysis_status(f->ctx);
    }
    f->text = NULL;
    return s;
}

/* The most numbers of a row that is read at once. */
static int64_t tni_same_widest(const tn_transformer *m)
{
    int64_t widest = tni_max(m->desc.dim, TNI_SAME_NUMBERS);
    for (int64_t l = 0; l < m->desc.layers; l++) {
        const tn_attention_desc *a = &m->blocks[l].attn.desc;
        widest = tni_max(tni_max(widest, m->blocks[l].mlp.desc.hidden), tni_max(a->heads * a->d_v, 4 * a->d_qk));
    }
    return widest;
}

static tn_status tni_same_compare(tni_same *f, const tn_transformer *a, const tn_transformer *b, uint64_t seed,
                                  tn_transformer_same_result *out)
{
    const int64_t V = a->desc.vocab;
    f->room = tni_max(tni_same_widest(a), tni_same_widest(b));
    f->numbers = tni_take_f64(f->w, f->room, 1);
    f->row = tni_take_mod(f, f->room, 3);
    f->power = tni_take_mod(f, TNI_SAME_POWERS, 1);
    f->score = tni_take_mod(f, f->T, 2);
    uint64_t *x = tni_take_mod(f, f->T, V), *y = tni_take_mod(f, f->T, V);
    tn_status s = f->w->failed ? TN_ERR_MEMORY : TN_OK;
    out->equal = true;
    f->high = 1;                        /* 1 is one of the numbers: terms with fewer weights are added to others */
    for (int64_t k = 0; k < out->points && s == TN_OK && out->equal; k++) {
        f->values = 0;
        tni_same_point(f, seed, (uint64_t)k);
        if ((s = tni_same_run(f, a, x)) != TN_OK || (s = tni_same_run(f, b, y)) != TN_OK) return s;
        out->equal = memcmp(x, y, (size_t)(f->T * V) * sizeof *x) == 0;
        out->values = f->values;
        for (int64_t i = 0; i < f->T * V && k == 0; i++)
            out->residue = (out->residue + tni_times_mod(f->p, (uint64_t)i + 1, x[i])) % f->p;
        if (k == 0) out->prime = f->p;
    }
    const double once = tni_same_chance(a, b, f->T, (double)f->high - f->low, f->values, &out->degree);
    out->chance = once < 1 ? pow(once, (double)out->points) : 1;
    return s == TN_OK && !out->equal ? tni_same_text(f, a, b, x, y, out) : s;
}

TNI_COLD tn_status tn_transformer_same(const tn_transformer *a, const tn_transformer *b, const tn_transformer_same_desc *desc,
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
