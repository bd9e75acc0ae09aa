#include "core/inner.h"

/* ======================================================================
   >>rng      Philox 4x32-10: a counter and a key give four words
   The same numbers on every backend and for any number of threads, since element e of random call c
   is a pure function of (seed, clock, c, e). Salmon, Moraes, Dror & Shaw 2011.
   ====================================================================== */

static void tni_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

/* The four words for elements 4 block .. 4 block + 3 of a random call. */
TNI_FN void tni_random_words(uint64_t key, int64_t call, uint32_t clock, uint64_t block, uint32_t out[4])
{
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)call, clock};
    tni_philox(counter, key, out);
}

#if !defined(TN_NO_CONTRACTION) || !defined(TN_NO_OPERATOR)

TNI_FN uint32_t tni_rng_word(tni_rng *d)
{
    if (d->at % 4 == 0) tni_random_words(d->key, d->call, 0, d->at / 4, d->words);
    return d->words[d->at++ % 4];
}

TNI_FN int64_t tni_rng_below(tni_rng *d, int64_t n) { return (int64_t)((uint64_t)tni_rng_word(d) * (uint64_t)n >> 32); }
#endif
