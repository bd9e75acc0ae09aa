#include "core/inner.h"
#include "tensor/inner.h"
#include "decomp/inner.h"
#include "layers/inner.h"
#include "models/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- the chance that models which differ agree ------------------------------ >>circuits-same-chance
   A polynomial of degree d that is not zero is zero at a random point modulo p with a probability of at most d/2^59: modulo p a
   hash has no value with more than 2^-59. A coefficient of B bits is zero modulo a random one of the 2^53 primes between 2^59
   and 2^60 with one of at most (B/59)/2^53. Two arguments of functions that differ as polynomials must not agree by chance
   either, of all pairs. Sizes are those of polynomials in the tokens' vectors, the points of the circle and the values of
   functions. Bits are those of the sum of all absolute coefficients, made integers: `each` for a weight with the sum over its
   index, a division by its extent and the sum with something else, where extents are below 2^31. */

typedef struct tni_same_size { double degree, weights, turns; } tni_same_size;      /* turns: of the denominator of rotations */
typedef struct tni_same_sizes {
    double        each, rows;           /* rows: the least common multiple of 1 .. T, in weights              */
    tni_same_size x;                    /* the residual stream, and at last the logits                        */
    tni_same_size argument;             /* the largest degree, weights and turns of arguments                 */
} tni_same_sizes;

/* That of a sum, over the common denominator. All rotations of one stream have the same rates. */
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

/* A function of `power` times `of`: its value is a variable. Four weights are for means, eps and the scales of arguments. */
static tni_same_size tni_same_function(tni_same_sizes *s, tni_same_size of, double power)
{
    const tni_same_size value = {1, 0, 0};
    s->argument.degree = tni_max_f64(s->argument.degree, power * of.degree);
    s->argument.weights = tni_max_f64(s->argument.weights, power * of.weights + 4);
    s->argument.turns = tni_max_f64(s->argument.turns, power * of.turns);
    return value;
}

/* Two weights: the mean and the gain. */
static tni_same_size tni_same_size_of_norm(tni_same_sizes *s, tni_same_size x)
{
    const double root = tni_same_function(s, x, 2).degree;
    x.degree += root;
    x.weights += 2;
    return x;
}

static tni_same_size tni_same_size_of_heads(tni_same_sizes *s, const tn_attention_desc *a, int64_t tokens, tni_same_size z)
{
    tni_same_size q = z, out = z, pattern;
    q.weights++;
    if (a->qk_norm) q = tni_same_size_of_norm(s, q);
    const double turns = a->no_rope ? 0 : 4 * (double)(tokens - 1) * (double)(a->d_qk / 2);
    pattern.degree = 2 * q.degree + turns;
    pattern.weights = 2 * q.weights + 2;                                            /* the scale of scores, the sum over d_qk */
    pattern.turns = 2 * q.turns + turns;
    if (tni_attention_kinds[a->kind].attend == TN_ATTEND_SOFTMAX) pattern = tni_same_function(s, pattern, 1);
    else pattern.degree *= 2, pattern.weights *= 2, pattern.turns *= 2;
    if (tni_attention_kinds[a->kind].differential) pattern.degree++, pattern.weights += 2;      /* lambda, 1 - lambda_init */
    if (a->row_scale == TN_ROW_SCALE_SUM) pattern.degree += tni_same_function(s, pattern, 1).degree;
    if (a->row_scale == TN_ROW_SCALE_MEAN) pattern.weights += s->rows;
    out.degree += pattern.degree;
    out.weights += pattern.weights + 2;                                             /* v, and how it is mixed */
    out.turns += pattern.turns;
    if (tni_attention_normed(a)) out = tni_same_size_of_norm(s, out);
    out.weights++;
    return out;
}

static tni_same_size tni_same_size_of_mlp(tni_same_sizes *s, const tn_mlp_desc *d, tni_same_size z)
{
    const double  order = d->kind == TN_MLP_BILINEAR ? (double)d->order : (double)tni_mlp_kinds[d->kind].encoders;
    const double  factors = d->kind == TN_MLP_BILINEAR ? order : order - 1;    /* the rest is a function's value */
    tni_same_size first = z, out = {0, 1, 0};
    first.weights++;
    if (factors < order) out.degree += tni_same_function(s, first, 1).degree;
    out.degree += factors * first.degree;
    out.weights += factors * first.weights;
    out.turns += factors * first.turns;
    return out;
}

/* The sizes of a model's logits and of its functions' arguments. each: bits of a weight */
TNI_COLD static tni_same_sizes tni_same_sizes_of(const tn_transformer *m, int64_t tokens, double each)
{
    const tn_transformer_desc *d = &m->desc;
    const bool     before = !d->no_norm && d->norm_place != TN_PLACE_POST;
    tni_same_sizes s = {each, 1.5 * (double)tokens / each, {1, 1, 0}, {0, 0, 0}};
    if (d->embed_norm) s.x = tni_same_size_of_norm(&s, s.x);
    for (int64_t l = 0; l < d->layers; l++) {
        if (m->blocks[l].lambdas) s.x.weights++;
        for (int which = 0; which < 2; which++) {
            const tni_same_size z = before ? tni_same_size_of_norm(&s, s.x) : s.x;
            tni_same_size       y = which ? tni_same_size_of_mlp(&s, &m->blocks[l].mlp.desc, z)
                                          : tni_same_size_of_heads(&s, &m->blocks[l].attn.desc, tokens, z);
            if (d->norm_place == TN_PLACE_SANDWICH) y = tni_same_size_of_norm(&s, y);
            y.weights++;                                                            /* the scale of the branch */
            s.x = tni_same_larger(s.x, y);
            if (d->norm_place == TN_PLACE_POST) s.x = tni_same_size_of_norm(&s, s.x);
        }
    }
    if (before) s.x = tni_same_size_of_norm(&s, s.x);
    s.x.weights++;
    if (d->softcap == 0) return s;
    s.x = tni_same_function(&s, s.x, 1);
    s.x.weights++;
    return s;
}

/* That a polynomial which is not zero, of a degree of the sum of both, is zero at a point */
static double tni_same_zero(tni_same_size a, tni_same_size b, double more, double each)
{
    const double bits = (a.weights + b.weights) * each + 2 * (a.turns + b.turns);
    return ldexp(a.degree + b.degree + more, -59) + ldexp(bits / 59, -53);
}

/* The probability of a failure at one point: two arguments that differ, of all pairs of `values`, agree by chance, or the logits
   do. Arguments of one model may have different denominators. bits: of a weight, all being multiples of one power of two */
TNI_COLD_FN double tni_same_chance(const tn_transformer *a, const tn_transformer *b, int64_t tokens, double bits, double values,
                                   double *degree)
{
    const double         each = bits + 64;
    const tni_same_sizes x = tni_same_sizes_of(a, tokens, each), y = tni_same_sizes_of(b, tokens, each);
    *degree = x.x.degree + y.x.degree;
    return tni_same_zero(x.x, y.x, 0, each)
           + values * (values - 1) / 2 * tni_same_zero(x.argument, y.argument, x.argument.turns + y.argument.turns, each);
}

#endif /* TN_NO_CIRCUITS */
