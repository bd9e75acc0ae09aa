/* hash.h - SHA-256, a hash for which no two texts are known that agree. NIST FIPS 180-4 */
#ifndef TN_TOOL_HASH_H
#define TN_TOOL_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_TEXT = 65 };              /* 64 hexadecimal digits and a zero */

typedef struct sha256 {
    uint32_t      h[8];
    uint64_t      bytes;                /* so far; those that fill no block yet are in `block` */
    unsigned char block[64];
} sha256;

void sha256_open(sha256 *s);
void sha256_add(sha256 *s, const void *src, size_t bytes);
/* The hash of the bytes so far, to which more can be added. */
void sha256_text(const sha256 *s, char text[SHA256_TEXT]);

#endif
