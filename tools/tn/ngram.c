/* ngram.c - interpolated modified Kneser-Ney over token ids: the baseline of a model. Chen & Goodman 1999

   Each n-gram that occurs has a number. Its key is (number of its first n-1 words, last word), so one hash table per order
   finds it, and the n-gram that ends at a position is found from the one of order n-1 that ends one position before. With
   the adjusted count a (highest order: occurrences; lower orders: number of different words before it), a context h, and h'
   the same without its first word:

       p_k(w | h) = max(a(h w) - D(a(h w)), 0) / a(h .) + g(h) p_{k-1}(w | h')        p_0 = 1 / V
       g(h)       = (D1 N1(h .) + D2 N2(h .) + D3 N3+(h .)) / a(h .)
       Y = n1 / (n1 + 2 n2)     D1 = 1 - 2 Y n2 / n1     D2 = 2 - 3 Y n3 / n2     D3+ = 3 - 4 Y n4 / n3
   where n1..n4 are the numbers of n-grams with a = 1..4. */
#include "tn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct order {
    uint64_t *key;                  /* [count] context << 24 | word                     */
    int32_t  *slot;                 /* [mask + 1] number + 1, or 0                      */
    uint64_t  mask;
    int64_t   count;
    int32_t  *seen, *before;        /* [count] occurrences; different words before it     */
    double    discount[4];
    double   *total, *left;         /* [contexts] a(h .); its mass for shorter contexts */
} order;

static uint64_t spread(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    return x ^ x >> 29;
}

/* The number of an n-gram; if it has none, a new one with `add`, otherwise -1. */
static int32_t ngram_number(order *o, int32_t context, int32_t word, bool add)
{
    uint64_t key = (uint64_t)context << 24 | (uint64_t)word, i = spread(key) & o->mask;
    while (o->slot[i]) {
        if (o->key[o->slot[i] - 1] == key) return o->slot[i] - 1;
        i = (i + 1) & o->mask;
    }
    if (!add) return -1;
    o->key[o->count] = key;
    o->slot[i] = (int32_t)++o->count;
    return (int32_t)o->count - 1;
}

static bool order_init(order *o, int64_t n)
{
    uint64_t slots = 16;
    if ((uint64_t)n > SIZE_MAX / 16) return false;      /* at most 4 n slots of 4 bytes */
    while (slots < (uint64_t)n * 2) slots *= 2;
    o->mask = slots - 1;
    o->key = (uint64_t *)malloc(sizeof *o->key * (size_t)n);
    o->slot = (int32_t *)calloc((size_t)slots, sizeof *o->slot);
    o->seen = (int32_t *)calloc((size_t)n, sizeof *o->seen);
    o->before = (int32_t *)calloc((size_t)n, sizeof *o->before);
    o->total = (double *)malloc(sizeof *o->total * (size_t)n);
    o->left = (double *)malloc(sizeof *o->left * (size_t)n);
    return o->key && o->slot && o->seen && o->before && o->total && o->left;
}

static void order_free(order *o)
{
    free(o->key); free(o->slot); free(o->seen); free(o->before); free(o->total); free(o->left);
}

/* The discounts, then the sums per context. Context numbers are those of order k - 1, of which there are `contexts`. */
static void order_sums(order *o, const int32_t *a, int64_t contexts)
{
    double n[5] = {0};
    for (int64_t i = 0; i < o->count; i++) if (a[i] >= 1 && a[i] <= 4) n[a[i]]++;
    double y = n[1] + 2 * n[2] > 0 ? n[1] / (n[1] + 2 * n[2]) : 0.5;
    o->discount[0] = 0;
    /* If a short text has none of the n-grams of a formula, the discount is 1/2, 1 or 3/2. Estimates from few n-grams may
       be out of range, too, and a discount of 0 would leave no probability for new words. */
    for (int64_t d = 1; d <= 3; d++) {
        double v = n[d] > 0 ? (double)d - (double)(d + 1) * y * n[d + 1] / n[d] : (double)d / 2;
        o->discount[d] = v < 0.1 ? 0.1 : v > (double)d ? (double)d : v;
    }
    for (int64_t i = 0; i < contexts; i++) o->total[i] = o->left[i] = 0;
    for (int64_t i = 0; i < o->count; i++) {
        int64_t h = (int64_t)(o->key[i] >> 24);
        o->total[h] += a[i];
        o->left[h] += o->discount[a[i] < 3 ? a[i] : 3];
    }
    for (int64_t i = 0; i < contexts; i++) if (o->total[i] > 0) o->left[i] /= o->total[i];
}

/* Whether to go on with token i: asked now and then. */
static bool goes_on(int64_t i, int (*stopped)(void)) { return i % 65536 || !stopped || !stopped(); }

/* The mean of -log p of order n. at [n+1]: the numbers of the n-grams that end at the previous word, -1: unknown. */
static double score(order *orders, int n, const int32_t *held, int64_t count, int64_t window, int64_t vocab,
                    int (*stopped)(void))
{
    double  nats = 0;
    int64_t predicted = 0;
    int32_t at[NGRAM_MAX + 1], next[NGRAM_MAX + 1];
    for (int k = 1; k <= n; k++) {
        order *o = &orders[k];
        order_sums(o, k == n ? o->seen : o->before, k == 1 ? 1 : orders[k - 1].count);
        at[k] = -1;
    }
    at[0] = next[0] = 0;
    for (int64_t i = 0; i < count && goes_on(i, stopped); i++) {
        double p = 1 / (double)vocab;
        bool   known = true;
        for (int k = 1; k <= n && i % window == 0; k++) at[k] = -1;
        for (int k = 1; k <= n; k++) {
            order  *o = &orders[k];
            int32_t h = at[k - 1], g = h < 0 ? -1 : ngram_number(o, h, held[i], false);
            next[k] = g;
            known = known && h >= 0 && o->total[h] > 0;
            if (known) {
                int32_t a = g < 0 ? 0 : k == n ? o->seen[g] : o->before[g];
                p = (a > 0 ? (double)a - o->discount[a < 3 ? a : 3] : 0) / o->total[h] + o->left[h] * p;
            }
        }
        if (i % window) nats -= log(p), predicted++;
        memcpy(at, next, sizeof at);
    }
    return predicted > 0 ? nats / (double)predicted : 0;
}

bool ngram_losses(const int32_t *train, int64_t train_count, const int32_t *held, int64_t held_count, int64_t window,
                  int64_t vocab, double nats[NGRAM_MAX + 1], int (*stopped)(void))
{
    order   orders[NGRAM_MAX + 1];
    bool    fits = true;
    int32_t at[NGRAM_MAX + 1], next[NGRAM_MAX + 1];
    memset(orders, 0, sizeof orders);
    for (int k = 1; k <= NGRAM_MAX && fits; k++) fits = order_init(&orders[k], train_count > 0 ? train_count : 1);
    for (int k = 0; k <= NGRAM_MAX; k++) at[k] = k ? -1 : 0;
    next[0] = 0;
    for (int64_t i = 0; i < train_count && fits && goes_on(i, stopped); i++) {
        for (int k = 1; k <= NGRAM_MAX; k++) {
            int64_t old = orders[k].count;
            next[k] = at[k - 1] < 0 ? -1 : ngram_number(&orders[k], at[k - 1], train[i], true);
            if (next[k] < 0) continue;
            orders[k].seen[next[k]]++;
            /* A new n-gram is one more different word before its last n-1 words. The beginning of the text, which no word
               precedes, counts as a word, too. */
            if (orders[k].count > old && k > 1) orders[k - 1].before[next[k - 1]]++;
            if (i + 1 == k) orders[k].before[next[k]]++;
        }
        memcpy(at, next, sizeof at);
    }
    for (int k = 1; k <= NGRAM_MAX && fits && goes_on(0, stopped); k++)
        nats[k] = score(orders, k, held, held_count, window > 0 ? window : INT64_MAX, vocab, stopped);
    for (int k = 1; k <= NGRAM_MAX; k++) order_free(&orders[k]);
    return fits;
}
