/* mojibake.c - finds text that was encoded twice

   A character of two to four bytes whose bytes were read as Windows-1252 (or Latin-1) is a letter with an accent, for the
   first byte, and signs. Such letters before such signs are rare in sound text, but for closing quotation marks, dashes and
   the like, which follow letters: so these count only where the letter is one that few texts have there. Windows-1252 has
   nothing at five places: what was there is a C1 control, or lost. Lower-casing adds 32 to the first byte of most, and
   makes 0xFF of 0x9F. */
#include "names.h"
#include <string.h>

/* The character at text and its bytes; 0 bytes where the text is not UTF-8. */
static size_t read_character(const char *text, size_t left, uint32_t *c)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char  *p = (const unsigned char *)text;
    const size_t          n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    if (n == 0 || n > left) return 0;
    *c = n == 1 ? p[0] : p[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        *c = *c << 6 | (p[i] & 0x3Fu);
    }
    return *c < least[n] || (*c >= 0xD800 && *c < 0xE000) || *c > 0x10FFFF ? 0 : n;
}

/* The byte that Windows-1252, or Latin-1, has for a character; 0 for ASCII and all that has none. */
static unsigned single_byte(uint32_t c)
{
    static const uint16_t sign[32] = {
        0x20AC, 0, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0, 0x017D, 0,
        0, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0, 0x017E, 0x0178
    };
    if (c >= 0x80 && c < 0x100) return c;
    for (unsigned k = 0; c >= 0x80 && k < 32; k++) if (sign[k] == c) return 0x80 + k;
    return 0;
}

/* Signs among the bytes 0x80 to 0xBF that may well follow a letter: quotation marks, dashes, no-break space, (R) ... */
static bool may_follow(unsigned byte)
{
    static const uint8_t follow[] = {0x82, 0x84, 0x85, 0x8B, 0x91, 0x92, 0x93, 0x94, 0x96, 0x97, 0x99, 0x9B,
                                     0xA0, 0xAA, 0xAB, 0xAE, 0xB0, 0xB2, 0xB3, 0xB9, 0xBA, 0xBB};
    return memchr(follow, (int)byte, sizeof follow) != NULL;
}

/* Do these three begin UTF-8 read as single bytes? 0: no such byte. */
static bool is_mojibake(unsigned first, unsigned second, unsigned third)
{
    bool signs = second >= 0x80 && second < 0xC0, more = third >= 0x80 && third < 0xC0;
    if (first == 0xF0 && (second == 0x9F || second == 0xFF)) return more;                    /* most of the emoji */
    if (!signs) return false;
    if (first == 0xC2 || first == 0xC3 || (first == 0xE2 && second == 0x80)) return true;
    if (first == 0xE2 || first == 0xEF) return more || second > 0xA0;               /* arrows ...; U+FEFF, U+FFFD */
    if (may_follow(second)) return false;
    if (first == 0xE3 || (first >= 0xC4 && first <= 0xDE && first != 0xD7)) return true;
    return first >= 0xE0 && first <= 0xEF && more && !may_follow(third);
}

int64_t find_mojibake(const char *text, size_t bytes)
{
    size_t at = 0, n;
    for (; text && at < bytes; at += n) {
        unsigned byte[3];
        uint32_t c, other;
        size_t   used, next = at;
        n = 1;
        if ((unsigned char)text[at] < 128) continue;
        if ((n = read_character(text + at, bytes - at, &c)) == 0) return (int64_t)at;
        if (c == 0xFFFD || (c >= 0x80 && c < 0xA0)) return (int64_t)at;
        if (c < 0xC2 || c > 0xF0) continue;
        for (size_t k = 0; k < 3; k++, next += used) {
            used = next < bytes ? read_character(text + next, bytes - next, &other) : 0;
            byte[k] = used > 0 ? single_byte(other) : 0;
        }
        if (is_mojibake(byte[0], byte[1], byte[2])) return (int64_t)at;
    }
    return -1;
}
