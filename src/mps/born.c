#include "core/inner.h"
#include "decomp/inner.h"
#include "mps/inner.h"

#ifndef TN_NO_MPS
#ifndef TN_NO_OPERATOR
/* ---- Born machines ------------------------------------------------------------ >>tt-born-impl
   v is the product of the cores of the indices so far, of norm 1; w_i = v A_k[i]. All later cores have orthonormal rows, so
   that p(i | before) = |w_i|^2. */

typedef struct tni_born {
    const tn_tt     *tt;
    tni_tt_round_job j;
    double          *v, *w;
    tni_scratch      memory;
} tni_born;

static tn_status tni_born_begin(tni_born *b, const tn_tt *tt, const char *op)
{
    double    norm = 0;
    int64_t   most = 1;
    tn_status s;
    memset(b, 0, sizeof *b);
    b->tt = tt;
    b->memory = tni_scratch_begin(tt->ctx, op);
    if ((s = tni_tt_canonical(&b->memory, tt, 0, &b->j, &norm)) != TN_OK) return s;
    if (!(norm > 0)) return tni_fail(tt->ctx, TN_ERR_NONFINITE, "%s: the train is zero, expected probabilities", op);
    for (int64_t k = 0; k < tt->count; k++) most = tni_max(most, tni_max(b->j.r[k], tt->core[k]->shape[1] * b->j.r[k + 1]));
    int64_t n = tt->core[0]->shape[1] * b->j.r[1];
    for (int64_t i = 0; i < n; i++) b->j.cores[i] /= norm;
    b->v = tni_take_f64(&b->memory, most, 1);
    b->w = tni_take_f64(&b->memory, most, 1);
    return b->memory.failed ? TN_ERR_MEMORY : TN_OK;
}

/* w_i of axis k and its length, the root of the probability of element i, for the elements first .. stop-1 */
static void tni_born_row(tni_born *b, int64_t k, int64_t first, int64_t stop, double *length)
{
    const int64_t r = b->j.r[k], n = b->tt->core[k]->shape[1], s = b->j.r[k + 1];
    const double *core = b->j.cores + b->j.at[k];
    for (int64_t i = first; i < stop; i++) {
        double *w = b->w + (i - first) * s, sum = 0;
        for (int64_t c = 0; c < s; c++) w[c] = 0;
        for (int64_t a = 0; a < r; a++)
            for (int64_t c = 0; c < s; c++) w[c] += b->v[a] * core[(a * n + i) * s + c];
        for (int64_t c = 0; c < s; c++) sum += w[c] * w[c];
        length[i - first] = sum > 1e-280 ? sqrt(sum) : tni_frobenius(s, w);      /* the squares may have vanished */
    }
}

/* Goes on with element i, whose row is w. */
static void tni_born_take(tni_born *b, int64_t k, const double *w, double length)
{
    for (int64_t c = 0; c < b->j.r[k + 1]; c++) b->v[c] = w[c] / length;
}

static bool tni_born_index(const tn_tt *tt, const char *op, int64_t k, int64_t i)
{
    const int64_t n = tt->core[k]->shape[1];
    if (i >= 0 && i < n) return true;
    return tni_fail(tt->ctx, TN_ERR_DATA, "%s: index %lld is %lld, expected 0 to %lld", op, (long long)k, (long long)i,
                    (long long)n - 1), false;
}

/* Goes along `known` given indices. */
static tn_status tni_born_follow(tni_born *b, const char *op, int64_t known, const int64_t *index)
{
    double length;
    b->v[0] = 1;
    for (int64_t k = 0; k < known; k++) {
        if (!tni_born_index(b->tt, op, k, index[k])) return TN_ERR_DATA;
        tni_born_row(b, k, index[k], index[k] + 1, &length);
        if (!(length > 0))
            return tni_fail(b->tt->ctx, TN_ERR_DATA, "%s: the first %lld indices have probability 0, expected a possible "
                            "condition", op, (long long)k + 1);
        tni_born_take(b, k, b->w, length);
    }
    return TN_OK;
}

static tn_status tni_born_known(const tn_tt *tt, const char *op, int64_t known, int64_t most, const void *index,
                                const void *out)
{
    if (!tt) return TN_ERR_ARG;
    if (!tni_within(tt->ctx, op, "known", known, 0, most)) return TN_ERR_ARG;
    if (out && (index || known == 0)) return TN_OK;
    return tni_fail(tt->ctx, TN_ERR_ARG, "%s: %s is NULL, expected numbers", op, out ? "index" : "the result");
}

tn_status tn_tt_conditional(const tn_tt *tt, int64_t known, const int64_t *index, double *p)
{
    tni_born  b;
    tn_status s = tni_born_known(tt, "tt_conditional", known, tt ? tt->count - 1 : 0, index, p);
    if (s != TN_OK) return s;
    s = tni_born_begin(&b, tt, "tt_conditional");
    if (s == TN_OK) s = tni_born_follow(&b, "tt_conditional", known, index);
    if (s == TN_OK) tni_born_row(&b, known, 0, tt->core[known]->shape[1], p);
    for (int64_t i = 0; s == TN_OK && i < tt->core[known]->shape[1]; i++) p[i] *= p[i];
    return tni_scratch_end(&b.memory, s);
}

tn_status tn_tt_log_conditionals(const tn_tt *tt, int64_t count, const int64_t *index, double *log_p)
{
    tni_born  b;
    tn_status s;
    if (tt && (s = tni_count_check(tt->ctx, "tt_log_conditionals", "count", count)) != TN_OK) return s;
    if (tt && count == 0) return TN_OK;
    if (tt && !index) return tni_fail(tt->ctx, TN_ERR_ARG, "tt_log_conditionals: index is NULL, expected numbers");
    if ((s = tni_born_known(tt, "tt_log_conditionals", 0, 0, index, log_p)) != TN_OK) return s;
    s = tni_born_begin(&b, tt, "tt_log_conditionals");
    for (int64_t e = 0; e < count && s == TN_OK; e++) {
        double length = 1;
        b.v[0] = 1;
        for (int64_t k = 0; k < tt->count && s == TN_OK; k++) {
            const int64_t i = index[e * tt->count + k];
            if (!tni_born_index(tt, "tt_log_conditionals", k, i)) s = TN_ERR_DATA;
            else if (length > 0) {
                tni_born_row(&b, k, i, i + 1, &length);
                if (length > 0) tni_born_take(&b, k, b.w, length);
            }
            log_p[e * tt->count + k] = length > 0 ? 2 * log(length) : -HUGE_VAL;
        }
    }
    return tni_scratch_end(&b.memory, s);
}

tn_status tn_tt_sample(const tn_tt *tt, int64_t count, int64_t known, uint64_t seed, int64_t *index)
{
    tni_born  b;
    int64_t   i;
    tn_status s = tni_born_known(tt, "tt_sample", known, tt ? tt->count : 0, index, index);
    if (s != TN_OK || (s = tni_count_check(tt->ctx, "tt_sample", "count", count)) != TN_OK) return s;
    tni_rng rng = TNI_ZERO;
    rng.key = seed;
    s = tni_born_begin(&b, tt, "tt_sample");
    for (int64_t e = 0; e < count && s == TN_OK; e++) {
        int64_t *row = index + e * tt->count;
        if ((s = tni_born_follow(&b, "tt_sample", known, row)) != TN_OK) break;
        for (int64_t k = known; k < tt->count; k++) {
            double u = (double)tni_rng_word(&rng), length = 0, sum = 0;
            u = (u * 4294967296.0 + (double)tni_rng_word(&rng) + 0.5) / 18446744073709551616.0;
            int64_t n = tt->core[k]->shape[1];
            for (row[k] = -1, i = 0; i < n && sum <= u; i++) {       /* rounding errors leave the last possible element */
                tni_born_row(&b, k, i, i + 1, &length);
                if (!(length > 0)) continue;
                sum += length * length;
                row[k] = i;
            }
            tni_born_row(&b, k, row[k], row[k] + 1, &length);
            tni_born_take(&b, k, b.w, length);
        }
    }
    return tni_scratch_end(&b.memory, s);
}
#endif /* TN_NO_OPERATOR */
#endif /* TN_NO_MPS */
