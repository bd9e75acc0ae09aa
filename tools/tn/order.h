/* order.h - the order in which training reads its tokens: a function of the seed and the step alone

   Each epoch cuts the tokens into windows of one context, from an offset of its own, and visits them in an order of its own:
   every token is trained on as often as any other. Nothing here depends on the rest of the command, so that another program
   can include this file and read the same windows. */
#ifndef TN_ORDER_H
#define TN_ORDER_H

#include <stdint.h>

/* A hash of 64 bits to 64 bits, which is also a step of the generator splitmix64. Steele, Lea & Flood 2014 */
static inline uint64_t splitmix64(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* The next uniform number in [0,1) of a generator's state. */
static inline double next_uniform(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    return (double)(splitmix64(*state) >> 11) / 9007199254740992.0;
}

/* A permutation of 0..n-1 without a table: four Feistel rounds on the next power of four, repeated until the result is below
   n (cycle walking). Black & Rogaway 2002 */
static inline int64_t permuted_index(int64_t i, int64_t n, uint64_t key)
{
    int      half = 1;
    uint64_t x = (uint64_t)i;
    while ((int64_t)1 << (2 * half) < n) half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (int r = 0; r < 4; r++) {
            uint64_t next = left ^ (splitmix64(key ^ splitmix64(right * 4 + (uint64_t)r)) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* Where the window with this number begins, among `tokens` tokens. */
static inline int64_t window_start(int64_t tokens, int64_t context, uint64_t seed, int64_t number)
{
    int64_t windows = (tokens - 1) / context;
    if (windows > 1) windows--;                       /* leaves room for the offset */
    int64_t  epoch = number / windows;
    uint64_t key = splitmix64(splitmix64(seed) ^ (uint64_t)epoch);
    int64_t  slack = tokens - windows * context;      /* the last window needs one more token, its last target */
    return (int64_t)(splitmix64(key) % (uint64_t)slack) + permuted_index(number % windows, windows, key) * context;
}

#endif
