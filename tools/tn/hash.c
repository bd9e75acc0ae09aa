/* hash.c - SHA-256 (NIST FIPS 180-4, sections 4.1.2, 5.1.1 and 6.2) */
#include "hash.h"
#include <string.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

static void add_block(uint32_t h[8], const unsigned char *block)
{
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++, block += 4)
        w[t] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    for (int t = 16; t < 64; t++)
        w[t] = w[t - 16] + (turned(w[t - 15], 7) ^ turned(w[t - 15], 18) ^ w[t - 15] >> 3) + w[t - 7]
             + (turned(w[t - 2], 17) ^ turned(w[t - 2], 19) ^ w[t - 2] >> 10);
    memcpy(v, h, sizeof v);
    /* Each round moves a..h on by one place: after eight rounds they are where they were. */
#define ROUND(a, b, c, d, e, f, g, h, t) \
    h += (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + (g ^ (e & (f ^ g))) + round_constants[t] + w[t]; \
    d += h; \
    h += (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) | (c & (a | b)));
    for (int t = 0; t < 64; t += 8) {
        ROUND(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], t)
        ROUND(v[7], v[0], v[1], v[2], v[3], v[4], v[5], v[6], t + 1)
        ROUND(v[6], v[7], v[0], v[1], v[2], v[3], v[4], v[5], t + 2)
        ROUND(v[5], v[6], v[7], v[0], v[1], v[2], v[3], v[4], t + 3)
        ROUND(v[4], v[5], v[6], v[7], v[0], v[1], v[2], v[3], t + 4)
        ROUND(v[3], v[4], v[5], v[6], v[7], v[0], v[1], v[2], t + 5)
        ROUND(v[2], v[3], v[4], v[5], v[6], v[7], v[0], v[1], t + 6)
        ROUND(v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[0], t + 7)
    }
#undef ROUND
    for (int k = 0; k < 8; k++) h[k] += v[k];
}

void sha256_open(sha256 *s)
{
    static const uint32_t start[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19
    };
    memcpy(s->h, start, sizeof s->h);
    s->bytes = 0;
}

void sha256_add(sha256 *s, const void *src, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)src;
    const size_t         have = (size_t)(s->bytes % 64);
    s->bytes += bytes;
    if (have + bytes < 64) {
        if (bytes) memcpy(s->block + have, p, bytes);
        return;
    }
    if (have) {
        memcpy(s->block + have, p, 64 - have);
        add_block(s->h, s->block);
        p += 64 - have;
        bytes -= 64 - have;
    }
    for (; bytes >= 64; p += 64, bytes -= 64) add_block(s->h, p);
    if (bytes) memcpy(s->block, p, bytes);
}

void sha256_text(const sha256 *s, char text[SHA256_TEXT])
{
    static const unsigned char end[64] = {0x80};
    static const char          digits[] = "0123456789abcdef";
    sha256        last = *s;
    unsigned char length[8];
    for (int k = 0; k < 8; k++) length[k] = (unsigned char)(s->bytes * 8 >> (56 - 8 * k));
    sha256_add(&last, end, (size_t)((55 - s->bytes) % 64 + 1));       /* up to 8 bytes before the end of a block */
    sha256_add(&last, length, sizeof length);
    for (int k = 0; k < 64; k++) text[k] = digits[last.h[k / 8] >> (28 - 4 * (k % 8)) & 15];
    text[64] = 0;
}
