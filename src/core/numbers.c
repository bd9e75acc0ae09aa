#include "core/inner.h"

/* Sums and products of extents that become sizes. What overflows is INT64_MAX, and what has a negative part -1: no allocation
   grants either. */
TNI_UNUSED TNI_NOINLINE TNI_FN int64_t tni_plus(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? -1 : b > INT64_MAX - a ? INT64_MAX : a + b;
}

TNI_UNUSED TNI_NOINLINE TNI_FN int64_t tni_area(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? -1 : a > 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

/* The bytes of a * b elements. An extent has 64 bits even where a size_t has 32. */
TNI_FN bool tni_area_size(int64_t a, int64_t b, size_t each, size_t *bytes)
{
    *bytes = 0;
    if (a < 0 || b < 0) return false;
    if (a == 0 || b == 0) return true;
    if (a > PTRDIFF_MAX || b > PTRDIFF_MAX) return false;
    return tni_mul_size((size_t)a, (size_t)b, bytes) && tni_mul_size(*bytes, each, bytes);
}

/* ---- BF16 ---------------------------------------------------------------- >>bf16 */

/* A float rounded to its upper 16 bits: to nearest, ties to even; NaN stays NaN. */
TNI_FN uint16_t tni_bf16_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

TNI_FN float tni_bf16_value(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float    f;
    memcpy(&f, &bits, 4);
    return f;
}

/* The same for a double, without double rounding: a float that is a tie only by its own rounding is moved off it. */
TNI_FN uint16_t tni_bf16_of(double v)
{
    float    f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((bits & 0xFFFF) == 0x8000 && (double)f != v && f == f) {
        bits = fabs(v) > fabs((double)f) ? bits + 1 : bits - 1;
        memcpy(&f, &bits, 4);
    }
    return tni_bf16_bits(f);
}

/* ---- decimal numbers, whatever the locale ------------------------------- >>decimal
   A double is an integer times a power of two, so both directions shift a long decimal by bits: this is
   exact, and is rounded once, half to even. 800 digits hold any double (at most 767 are needed); further
   digits of a text only decide whether it is exactly half. */
#define TNI_DIGITS 800

typedef struct tni_decimal {          /* 0.d[0]d[1]..d[n-1] x 10^point */
    int     n, point;
    uint8_t d[TNI_DIGITS + 24];
} tni_decimal;

static void tni_decimal_trim(tni_decimal *a)
{
    int lead = 0;
    while (lead < a->n && a->d[lead] == 0) lead++;
    if (lead > 0) {
        memmove(a->d, a->d + lead, (size_t)(a->n - lead));
        a->n -= lead;
        a->point -= lead;
    }
    while (a->n > 0 && a->d[a->n - 1] == 0) a->n--;
    if (a->n == 0) a->point = 0;
}

/* A nonzero digit that does not fit changes a last digit of 0 or 5, the only ones that could make the number look
   exact. */
static void tni_decimal_push(tni_decimal *a, unsigned digit)
{
    if (a->n < TNI_DIGITS) a->d[a->n++] = (uint8_t)digit;
    else if (digit != 0 && a->d[TNI_DIGITS - 1] % 5 == 0) a->d[TNI_DIGITS - 1]++;
}

static void tni_decimal_double_up(tni_decimal *a, int bits)      /* a *= 2^bits, bits <= 50 */
{
    uint64_t carry = 0;
    int      extra = 20;
    memmove(a->d + extra, a->d, (size_t)a->n);
    for (int i = a->n - 1; i >= 0; i--) {
        carry += (uint64_t)a->d[extra + i] << bits;
        a->d[extra + i] = (uint8_t)(carry % 10);
        carry /= 10;
    }
    for (int i = extra - 1; i >= 0; i--) {
        a->d[i] = (uint8_t)(carry % 10);
        carry /= 10;
    }
    a->n += extra;
    a->point += extra;
    tni_decimal_trim(a);
    while (a->n > TNI_DIGITS) {
        unsigned last = a->d[--a->n];
        if (last != 0 && a->d[a->n - 1] % 5 == 0) a->d[a->n - 1]++;
    }
}

static void tni_decimal_halve(tni_decimal *a, int bits)          /* a /= 2^bits, bits <= 50 */
{
    tni_decimal from = *a;
    uint64_t    rest = 0, mask = ((uint64_t)1 << bits) - 1;
    a->n = 0;
    for (int i = 0; i < from.n || rest != 0; i++) {
        rest = rest * 10 + (i < from.n ? from.d[i] : 0u);
        tni_decimal_push(a, (unsigned)(rest >> bits));
        rest &= mask;
    }
    tni_decimal_trim(a);
}

static void tni_decimal_shift(tni_decimal *a, int bits)          /* a *= 2^bits */
{
    while (bits != 0 && a->n > 0) {
        int step = (int)tni_min(bits > 0 ? bits : -bits, 50);
        if (bits > 0) tni_decimal_double_up(a, step);
        else tni_decimal_halve(a, step);
        bits -= bits > 0 ? step : -step;
    }
}

/* Does the part after the first `keep` digits round up? Half rounds to even. */
static bool tni_decimal_rounds_up(const tni_decimal *a, int keep)
{
    if (keep < 0 || keep >= a->n) return false;
    if (a->d[keep] == 5 && keep + 1 == a->n) return keep > 0 && a->d[keep - 1] % 2 == 1;
    return a->d[keep] >= 5;
}

static void tni_decimal_round(tni_decimal *a, int keep)
{
    bool up = tni_decimal_rounds_up(a, keep);
    if (keep < a->n) a->n = keep;
    for (int i = a->n - 1; up && i >= 0; i--) {
        up = a->d[i] == 9;
        a->d[i] = (uint8_t)(up ? 0 : a->d[i] + 1);
    }
    if (up) {
        a->d[0] = 1;
        a->n = 1;
        a->point++;
    }
    tni_decimal_trim(a);
}

static double tni_decimal_to_double(tni_decimal *a)
{
    int      exponent = 0;
    uint64_t mantissa = 0;
    if (a->n == 0 || a->point < -330) return 0.0;
    if (a->point > 310) return HUGE_VAL;
    while (a->point > 0) {                                       /* down to a < 1 */
        int step = (int)tni_min(3 * a->point, 50);
        tni_decimal_shift(a, -step);
        exponent += step;
    }
    while (a->point < 0 || a->d[0] < 5) {                        /* up to 0.5 <= a */
        int step = (int)tni_min(tni_max(-3 * a->point, 1), 50);
        tni_decimal_shift(a, step);
        exponent -= step;
    }
    int bits = exponent < -1021 ? 53 + 1021 + exponent : 53;     /* subnormals keep fewer */
    if (bits < 0) return 0.0;
    tni_decimal_shift(a, bits);
    for (int i = 0; i < a->point; i++) mantissa = mantissa * 10 + (i < a->n ? a->d[i] : 0u);
    if (tni_decimal_rounds_up(a, a->point)) mantissa++;
    return ldexp((double)mantissa, exponent - bits);
}

static size_t tni_parse_nonfinite(const char *s, size_t len, double *out)
{
    static const char *const word[] = {"infinity", "inf", "nan"};
    size_t                   i;
    for (size_t w = 0; w < 3; w++) {
        for (i = 0; word[w][i] != 0; i++)
            if (i >= len || (s[i] | 0x20) != word[w][i]) break;
        if (word[w][i] == 0) {
            *out = w == 2 ? (double)NAN : HUGE_VAL;
            return i;
        }
    }
    return 0;
}

/* Reads [+-]digits[.digits][e[+-]digits], inf or nan from the first `len` bytes. Correctly rounded.
   Returns the bytes used, 0 when there is no number. */
TNI_UNUSED TNI_FN size_t tni_parse_double(const char *s, size_t len, double *out)
{
    tni_decimal a;
    size_t      i = 0, used;
    bool        negative = false, any = false, after_point = false;
    a.n = a.point = 0;
    if (i < len && (s[i] == '+' || s[i] == '-')) negative = s[i++] == '-';
    if ((used = tni_parse_nonfinite(s + i, len - i, out)) > 0) {
        if (negative) *out = -*out;
        return i + used;
    }
    for (; i < len; i++) {
        if (s[i] == '.' && !after_point) { after_point = true; continue; }
        if (s[i] < '0' || s[i] > '9') break;
        any = true;
        if (a.n > 0 || s[i] != '0') {
            tni_decimal_push(&a, (unsigned)(s[i] - '0'));
            if (!after_point) a.point++;
        } else if (after_point) a.point--;
    }
    if (!any) return 0;
    if (i < len && (s[i] == 'e' || s[i] == 'E')) {
        size_t j = i + 1;
        int    exponent = 0;
        bool   down = false;
        if (j < len && (s[j] == '+' || s[j] == '-')) down = s[j++] == '-';
        if (j < len && s[j] >= '0' && s[j] <= '9') {
            for (; j < len && s[j] >= '0' && s[j] <= '9'; j++)
                if (exponent < 100000) exponent = exponent * 10 + (s[j] - '0');
            a.point += down ? -exponent : exponent;
            i = j;
        }
    }
    while (a.n > 0 && a.d[a.n - 1] == 0) a.n--;
    *out = tni_decimal_to_double(&a);
    if (negative) *out = -*out;
    return i;
}

/* Writes v as C's %.{digits}g does, 1 <= digits <= 17, with a point in every locale. Returns the length. */
TNI_FN int tni_format_double(char dst[32], double v, int digits)
{
    tni_decimal a;
    int         exponent, n = 0;
    if (v != v) { memcpy(dst, "nan", 4); return 3; }
    if (v < 0 || (v == 0 && 1 / v < 0)) { dst[n++] = '-'; v = -v; }
    if (v == HUGE_VAL) { memcpy(dst + n, "inf", 4); return n + 3; }
    uint64_t mantissa = (uint64_t)ldexp(frexp(v, &exponent), 53);
    for (a.n = a.point = 0; mantissa > 0; mantissa /= 10) a.d[a.n++] = (uint8_t)(mantissa % 10);
    for (int i = 0; i < a.n / 2; i++) { uint8_t t = a.d[i]; a.d[i] = a.d[a.n - 1 - i]; a.d[a.n - 1 - i] = t; }
    a.point = a.n;
    tni_decimal_trim(&a);
    tni_decimal_shift(&a, exponent - 53);
    tni_decimal_round(&a, digits);
    exponent = a.n > 0 ? a.point - 1 : 0;
    if (a.n == 0) dst[n++] = '0';
    else if (exponent < -4 || exponent >= digits) {              /* d.ddde+xx */
        dst[n++] = (char)('0' + a.d[0]);
        if (a.n > 1) dst[n++] = '.';
        for (int i = 1; i < a.n; i++) dst[n++] = (char)('0' + a.d[i]);
        dst[n++] = 'e';
        dst[n++] = exponent < 0 ? '-' : '+';
        if (exponent < 0) exponent = -exponent;
        if (exponent >= 100) dst[n++] = (char)('0' + exponent / 100);
        dst[n++] = (char)('0' + exponent / 10 % 10);
        dst[n++] = (char)('0' + exponent % 10);
    } else {
        if (a.point <= 0) { dst[n++] = '0'; dst[n++] = '.'; }
        for (int i = a.point; i < 0; i++) dst[n++] = '0';
        for (int i = 0; i < a.n || i < a.point; i++) {
            if (i == a.point && i > 0) dst[n++] = '.';
            dst[n++] = (char)('0' + (i < a.n ? a.d[i] : 0));
        }
    }
    dst[n] = 0;
    return n;
}
