#include "core/inner.h"
#include "tensor/inner.h"
#include "decomp/inner.h"
#include "layers/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- the chance that models which differ agree ------------------------------ >>circuits-same-chance
   A polynomial of degree d that is not zero is zero at a random point modulo p with a probability of at most d/p, and a
   coefficient of B bits is zero modulo a random one of the 2^53 primes between 2^59 and 2^60 with one of at most (B/59)/2^53.
   Two arguments of functions that differ as polynomials must not agree by chance either, of all pairs.
   Sizes of polynomials in the tokens' vectors, the points of the circle and the values of functions. Bits are those of a
   coefficient when all weights are integers, `each` of a weight and of a sum over its index. */

typedef struct tni_same_size { double degree, weights, turns; } tni_same_size;      /* turns: of the denominator of rotations */
typedef struct tni_same_sizes {
    double        each, fixed;          /* fixed: scales of scores and branches, eps, lcm(1 .. T): in weights */
    tni_same_size x;                    /* the residual stream                                                */
    double        degree, bits;         /* the largest of an argument                                         */
} tni_same_sizes;

/* That of a sum, over the common denominator. */
static tni_same_size tni_same_larger(tni_same_size a, tni_same_size b)
{
    const double turns = tni_max_f64(a.turns, b.turns);
    a.degree += turns - a.turns;
    b.degree += turns - b.turns;
    a.degree = tni_max_f64(a.degree, b.degree);
    a.weights = tni_max_f64(a.weights, b.weights);
    a.turns = turns;
    return a;
}

/* A function of `power` times `of`: its value is a variable. */
static tni_same_size tni_same_function(tni_same_sizes *s, tni_same_size of, double power)
{
    const tni_same_size value = {1, 0, 0};
    s->degree = tni_max_f64(s->degree, power * of.degree);
    s->bits = tni_max_f64(s->bits, (power * of.weights + s->fixed) * s->each + 2 * power * of.turns);
    return value;
}

static tni_same_size tni_same_size_of_norm(tni_same_sizes *s, tni_same_size x)
{
    const double root = tni_same_function(s, x, 2).degree;
    x.degree += root;
    x.weights += 2;
    return x;
}

static tni_same_size tni_same_size_of_heads(tni_same_sizes *s, const tn_attention_desc *a, int64_t tokens, tni_same_size z)
{
    const bool    softmax = tni_attention_kinds[a->kind].attend == TN_ATTEND_SOFTMAX;
    tni_same_size q = z, out = z, score;
    q.weights++;
    if (a->qk_norm) q = tni_same_size_of_norm(s, q);
    score.turns = a->no_rope ? 0 : 4 * (double)(tokens - 1) * (double)(a->d_qk / 2);
    score.degree = 2 * q.degree + score.turns;
    score.weights = 2 * q.weights + 5 + s->fixed / 2;
    score.turns += 2 * q.turns;
    tni_same_size pattern = score;
    if (softmax) pattern = tni_same_function(s, score, 1);
    else pattern.degree *= 2, pattern.weights *= 2, pattern.turns *= 2;
    if (tni_attention_kinds[a->kind].differential) pattern.degree++, pattern.weights += 1 + s->fixed;
    if (a->row_scale == TN_ROW_SCALE_SUM) pattern.degree += tni_same_function(s, pattern, 1).degree;
    out.degree += pattern.degree;
    out.weights += pattern.weights + 1;
    out.turns += pattern.turns;
    if (tni_attention_normed(a)) out = tni_same_size_of_norm(s, out);
    out.weights++;
    return out;
}

static tni_same_size tni_same_size_of_mlp(tni_same_sizes *s, const tn_mlp_desc *d, tni_same_size z)
{
    const double  order = d->kind == TN_MLP_BILINEAR ? (double)d->order : (double)tni_mlp_kinds[d->kind].encoders;
    const double  factors = d->kind == TN_MLP_BILINEAR ? order : order - 1;    /* the rest is a function's value */
    tni_same_size first = z, out = {0, order + 3 + s->fixed, 0};
    first.weights++;
    if (factors < order) out.degree += tni_same_function(s, first, 1).degree;
    out.degree += factors * z.degree;
    out.weights += factors * z.weights;
    out.turns += factors * z.turns;
    return out;
}

/* Adds the size of the model's logits to *degree and *bits, and that of its functions' arguments to *degrees and *lengths.
   each: bits of a weight */
static void tni_same_degree(const tn_transformer *m, int64_t tokens, double each, double *degree, double *bits,
                            double *degrees, double *lengths)
{
    const tn_transformer_desc *d = &m->desc;
    const bool     before = !d->no_norm && d->norm_place != TN_PLACE_POST;
    tni_same_sizes s = {each, 4 + 1.5 * (double)tokens / each, {1, 1, 0}, 0, 0};
    if (d->embed_norm) s.x = tni_same_size_of_norm(&s, s.x);
    for (int64_t l = 0; l < d->layers; l++)
        for (int which = 0; which < 2; which++) {
            const tni_same_size z = before ? tni_same_size_of_norm(&s, s.x) : s.x;
            tni_same_size       y = which ? tni_same_size_of_mlp(&s, &m->blocks[l].mlp.desc, z)
                                          : tni_same_size_of_heads(&s, &m->blocks[l].attn.desc, tokens, z);
            if (d->norm_place == TN_PLACE_SANDWICH) y = tni_same_size_of_norm(&s, y);
            s.x.weights++;
            s.x = tni_same_larger(s.x, y);
            if (d->norm_place == TN_PLACE_POST) s.x = tni_same_size_of_norm(&s, s.x);
        }
    if (before) s.x = tni_same_size_of_norm(&s, s.x);
    s.x.weights++;
    if (d->softcap != 0) s.x = tni_same_function(&s, s.x, 1);
    *degree += s.x.degree;
    *bits += s.x.weights * each + 2 * s.x.turns;
    *degrees += s.degree;
    *lengths += s.bits;
}

/* The probability of a failure at one point: two arguments that differ, of all pairs of `values`, agree by chance, or the logits
   do. bits: of a weight, all being multiples of one power of two */
TNI_COLD_FN double tni_same_chance(const tn_transformer *a, const tn_transformer *b, int64_t tokens, double bits, double values,
                                   double *degree)
{
    const double each = bits + 40;      /* of a sum over an index and of a division by its extent, too */
    double       logits = 0, degrees = 0, lengths = 0;
    *degree = 0;
    tni_same_degree(a, tokens, each, degree, &logits, &degrees, &lengths);
    tni_same_degree(b, tokens, each, degree, &logits, &degrees, &lengths);
    return ldexp(*degree, -59) + ldexp(logits / 59, -53)
           + values * (values - 1) / 2 * (ldexp(degrees, -59) + ldexp(lengths / 59, -53));
}

#endif /* TN_NO_CIRCUITS */
