#include "core/inner.h"
#include "circuits/inner.h"

#ifndef TN_NO_CIRCUITS
/* ---- whole numbers modulo a prime ---------------------------------------- >>circuits-modular
   Everything random is a hash of a seed, so that another program can repeat it: with h = splitmix64 (Steele, Lea & Flood 2014)
   and r(s,i,j) = h(h(h(s) ^ i) ^ j), prime k of a seed is the first prime of 2^59 + (r(seed,k,n) mod 2^59), n = 1, 2, .. */

static uint64_t tni_hash_of(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

TNI_FN uint64_t tni_hash_at(uint64_t seed, uint64_t i, uint64_t j)
{
    return tni_hash_of(tni_hash_of(tni_hash_of(seed) ^ i) ^ j);
}

/* a b mod p for a, b < p < 2^60 */
TNI_FN uint64_t tni_times_mod(uint64_t p, uint64_t a, uint64_t b)
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
TNI_FN uint64_t tni_dot_mod(uint64_t p, int64_t n, const uint64_t *a, const uint64_t *b)
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

TNI_FN uint64_t tni_power_mod(uint64_t p, uint64_t a, uint64_t e)
{
    uint64_t y = 1;
    for (; e > 0; e >>= 1, a = tni_times_mod(p, a, a)) if (e & 1) y = tni_times_mod(p, y, a);
    return y;
}

TNI_FN uint64_t tni_inverse_mod(uint64_t p, uint64_t a) { return tni_power_mod(p, a, p - 2); }

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

TNI_COLD_FN uint64_t tni_prime_of(uint64_t seed, uint64_t point)
{
    for (uint64_t n = 1; ; n++) {
        const uint64_t p = (UINT64_C(1) << 59) + tni_hash_at(seed, point, n) % (UINT64_C(1) << 59);
        if (p & 1 && tni_is_prime(p)) return p;
    }
}

#endif /* TN_NO_CIRCUITS */
