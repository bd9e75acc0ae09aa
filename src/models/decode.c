#include "core/inner.h"
#include "tape/inner.h"
#include "layers/layers.h"
#include "models/inner.h"

#ifndef TN_NO_MODELS
/* ---- decoding ----------------------------------------------------------- >>model-decode */

static void tni_transformer_cache_destroy(tni_owned *owned)
{
    tn_transformer_cache *c = (tn_transformer_cache *)(void *)owned;
    for (int64_t l = 0; l < c->layers; l++) tn_attention_cache_destroy(c->attn[l]);
    tni_free(owned->ctx, c->attn, (size_t)c->layers * sizeof *c->attn);
    tni_object_free(owned, sizeof *c);
}

static bool tni_cache_check(tn_ctx *ctx, const tn_transformer *m, int64_t batch, int64_t length)
{
    if (!ctx) return false;
    if (!m || !m->blocks)
        return tni_fail(ctx, TN_ERR_ARG, "transformer cache: the model is %s", m ? "not initialised" : "NULL"), false;
    if (m->desc.bidirectional)
        return tni_fail(ctx, TN_ERR_ARG, "transformer cache: the model is bidirectional, expected a causal one to "
                        "decode"), false;
    if (batch < 1 || length < 1)
        return tni_fail(ctx, TN_ERR_SHAPE, "transformer cache: %s is %lld, expected 1 or more", batch < 1 ? "batch" : "length",
                        (long long)(batch < 1 ? batch : length)), false;
    if (!m->position || length <= m->desc.context) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "transformer cache: length is %lld, expected at most %lld, the learned positions",
                    (long long)length, (long long)m->desc.context), false;
}

TNI_COLD tn_transformer_cache *tn_transformer_cache_create(tn_ctx *ctx, const tn_transformer *m, int64_t batch, int64_t length)
{
    if (!tni_cache_check(ctx, m, batch, length)) return NULL;
    tn_transformer_cache *c = (tn_transformer_cache *)tni_alloc(ctx, sizeof *c, "transformer cache");
    if (!c) return NULL;
    memset(c, 0, sizeof *c);
    c->attn = (tn_attention_cache **)tni_array(ctx, m->desc.layers, sizeof *c->attn, "transformer cache");
    bool whole = c->attn != NULL;
    if (whole) c->layers = m->desc.layers;
    for (int64_t l = 0; l < c->layers; l++) {
        c->attn[l] = whole ? tn_attention_cache_create(ctx, &m->blocks[l].attn, batch, length) : NULL;
        whole = c->attn[l] != NULL;
    }
    c->batch = batch;
    c->length = length;
    tni_own(ctx, &c->owned, tni_transformer_cache_destroy);     /* after its parts: the context destroys it before them */
    if (whole) return c;
    return tni_transformer_cache_destroy(&c->owned), (tn_transformer_cache *)NULL;
}

void tn_transformer_cache_destroy(tn_transformer_cache *c) { if (c) tni_transformer_cache_destroy(&c->owned); }

void tn_transformer_cache_reset(tn_transformer_cache *c)
{
    if (!c || !tni_uncaptured(c->owned.ctx, "a transformer's cache is reset")) return;
    for (int64_t l = 0; l < c->layers; l++) tn_attention_cache_reset(c->attn[l]);
    c->past = 0;
    c->broken = false;
}

tn_status tn_transformer_cache_rewind(tn_transformer_cache *c, int64_t tokens)
{
    if (!c || !tni_uncaptured(c->owned.ctx, "a transformer's cache is rewound")
        || !tni_within(c->owned.ctx, "transformer cache", "tokens", tokens, 0, c->past)) return TN_ERR_ARG;
    if (tokens == 0) return tn_transformer_cache_reset(c), TN_OK;
    for (int64_t l = 0; l < c->layers; l++)
        if (c->attn[l]->state && (c->broken || tokens < c->past))
            return tni_fail(c->owned.ctx, TN_ERR_ARG, "transformer cache: block %lld keeps a state, expected 0 tokens, or "
                            "TN_ATTEND_FORM_QUADRATIC, which keeps keys and values", (long long)l);
    for (int64_t l = 0; l < c->layers; l++) c->attn[l]->past = tokens;
    c->past = tokens;
    c->broken = false;
    return TN_OK;
}

int64_t tn_transformer_cache_past(const tn_transformer_cache *c) { return c ? c->past : 0; }

size_t tn_transformer_cache_bytes(const tn_transformer_cache *c)
{
    size_t bytes = 0;
    for (int64_t l = 0; c && l < c->layers; l++) bytes += tn_attention_cache_bytes(c->attn[l]);
    return bytes;
}

static bool tni_decode_check(tn_ctx *ctx, const tn_transformer *m, const tn_tensor *ids, const tn_transformer_cache *c)
{
    if (!tni_model_given(ctx, m, ids, "ids", "transformer")) return false;
    if (!c || c->owned.ctx != ctx || c->layers != m->desc.layers)
        return tni_fail(ctx, TN_ERR_ARG, "transformer: the cache is %s",
                        !c ? "NULL" : c->owned.ctx != ctx ? "of another context" : "of another model"), false;
    if (c->broken)
        return tni_fail(ctx, TN_ERR_ARG, "transformer: an earlier call failed while it updated the cache, so reset it "
                        "first"), false;
    if (tni_recording(ctx))
        return tni_fail(ctx, TN_ERR_ARG, "transformer: the context is recording, expected decoding without it"), false;
    if (!tni_uncaptured(ctx, "a transformer's cache is updated")) return false;
    if (ids->shape[0] == c->batch && ids->shape[1] > 0 && ids->shape[1] <= c->length - c->past) return true;
    if (ids->shape[0] != c->batch || ids->shape[1] < 1)
        tni_fail(ctx, TN_ERR_SHAPE, "transformer: ids are %s, expected %lld texts as in the cache, of 1 token or more",
                 TNI_SHAPE(ids), (long long)c->batch);
    else tni_fail(ctx, TN_ERR_SHAPE, "transformer: ids have %lld tokens after %lld in the cache, expected at most %lld in "
                  "all", (long long)ids->shape[1], (long long)c->past, (long long)c->length);
    return false;
}

tn_tensor *tn_transformer_decode(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, tn_transformer_cache *c)
{
    if (!tni_decode_check(ctx, m, ids, c)) return NULL;
    tn_tensor *x = tni_model_run(ctx, m, ids, c->past, c, NULL);
    x = x ? tn_transformer_unembed(ctx, m, x) : NULL;
    c->broken = !x;
    if (x) c->past += ids->shape[1];
    return x;
}

/* ---- sampling ----------------------------------------------------------- >>model-sample
   The bits of a logit give an unsigned key with the same order. Kept are all logits above a cut: those with a larger key,
   and of those with the cut's key the ones up to its index. A cut is found in three passes, each of which finds 11 bits of
   the key: amounts (1 each, or their mass) are summed in 2^11 buckets, from the top, until the goal is reached. */

typedef struct tni_cut { uint32_t key; int64_t last; } tni_cut;

typedef struct tni_draw {
    const float *logits;
    int64_t      n;
    double       largest, temperature;
    tni_cut      cut;
} tni_draw;

static uint32_t tni_sample_key(float logit)
{
    uint32_t bits;
    logit += 0.0f;                                          /* -0 and 0 are equal and must have one key */
    memcpy(&bits, &logit, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The mass of logit i, 0 below the cut. */
static double tni_sample_mass(const tni_draw *d, int64_t i)
{
    uint32_t key = tni_sample_key(d->logits[i]);
    if (key < d->cut.key || (key == d->cut.key && i > d->cut.last)) return 0;
    return exp(((double)d->logits[i] - d->largest) / d->temperature);
}

static double tni_sample_amount(const tni_draw *d, int64_t i, bool mass)
{
    double m = tni_sample_mass(d, i);
    return mass ? m : m > 0;
}

/* The bucket, counted from the top, in which the goal is reached, or the last that is not empty. */
static uint32_t tni_sample_bucket(const double *amount, uint32_t buckets, double goal, double *sum)
{
    uint32_t last = buckets;
    for (uint32_t b = buckets; b-- > 0;) {
        if (amount[b] == 0) continue;
        if (last < buckets) *sum += amount[last];
        last = b;
        if (*sum + amount[b] >= goal) break;
    }
    return last < buckets ? last : 0;
}

/* The fewest of the kept logits, largest first, that reach the goal. */
static tni_cut tni_sample_cut(const tni_draw *d, bool mass, double goal)
{
    static const unsigned shift[] = {21, 10, 0};
    double   amount[2048], sum = 0;
    tni_cut  cut;
    uint32_t known = 0;
    for (int pass = 0; pass < 3; pass++) {
        unsigned above = pass == 0 ? 32 : shift[pass - 1];
        uint32_t buckets = 1u << (above - shift[pass]);
        memset(amount, 0, sizeof amount);
        for (int64_t i = 0; i < d->n; i++) {
            uint32_t key = tni_sample_key(d->logits[i]);
            if (pass > 0 && key >> above != known >> above) continue;
            amount[key >> shift[pass] & (buckets - 1)] += tni_sample_amount(d, i, mass);
        }
        known |= tni_sample_bucket(amount, buckets, goal, &sum) << shift[pass];
    }
    cut.key = known;
    cut.last = d->n;
    for (int64_t i = 0; i < d->n && cut.last == d->n; i++) {
        if (tni_sample_key(d->logits[i]) != known) continue;
        sum += tni_sample_amount(d, i, mass);
        if (sum >= goal) cut.last = i;
    }
    return cut;
}

static double tni_sample_sum(const tni_draw *d)
{
    double sum = 0;
    for (int64_t i = 0; i < d->n; i++) sum += tni_sample_mass(d, i);
    return sum;
}

/* The first of the largest; -1 where a logit is NaN or +inf, or there is none above -inf. */
static int64_t tni_sample_best(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!((double)logits[i] < HUGE_VAL)) return -1;
        if (logits[i] > logits[best]) best = i;
    }
    return n > 0 && (double)logits[best] > -HUGE_VAL ? best : -1;
}

int64_t tn_sample(const float *logits, int64_t n, double temperature, int64_t top_k, double top_p, double u)
{
    int64_t i, best = logits ? tni_sample_best(logits, n) : -1;
    double  sum;
    if (best < 0 || !(temperature >= 0 && temperature < HUGE_VAL) || top_k < 0 || !(top_p >= 0 && top_p <= 1)
        || !(u >= 0 && u < 1)) return -1;
    if (temperature == 0 || top_k == 1) return best;
    tni_draw d = TNI_ZERO;
    d.logits = logits;
    d.n = n;
    d.largest = (double)logits[best];
    d.temperature = temperature;
    d.cut.last = n;
    if (top_k > 0 && top_k < n) d.cut = tni_sample_cut(&d, false, (double)top_k);
    if (top_p > 0 && top_p < 1) d.cut = tni_sample_cut(&d, true, top_p * tni_sample_sum(&d));
    double  goal = u * tni_sample_sum(&d);
    int64_t chosen = best;
    for (i = 0, sum = 0; i < n && sum <= goal; i++) {
        double mass = tni_sample_mass(&d, i);
        sum += mass;
        if (mass > 0) chosen = i;
    }
    return chosen;
}

#endif /* TN_NO_MODELS */
