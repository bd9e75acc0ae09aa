#include "core/inner.h"
#include "tensor/inner.h"
#include "io/inner.h"

/* ---- numbers: any kind, width and byte order ---------------------------- >>io-numbers */

static bool tni_host_is_big_endian(void)
{
    const uint16_t one = 1;
    uint8_t        first;
    memcpy(&first, &one, 1);
    return first == 0;
}

TNI_FN uint64_t tni_load_bits(const uint8_t *p, unsigned bytes, bool big_endian)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * (big_endian ? bytes - 1 - i : i);
    return v;
}

TNI_FN void tni_store_bits(uint8_t *p, uint64_t v, unsigned bytes)       /* little-endian */
{
    for (unsigned i = 0; i < bytes; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static double tni_f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return (double)f;
}

/* IEEE 754 binary16, exactly: 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
static double tni_f16_from_bits(uint32_t bits)
{
    uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3FFu;
    if (exponent == 31) return tni_f32_from_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent > 0) return tni_f32_from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
    return (sign ? -(double)mantissa : (double)mantissa) * (1.0 / 16777216.0);
}

static double tni_number_value(tni_number n, const uint8_t *p)
{
    uint64_t bits = tni_load_bits(p, n.bits / 8, n.big_endian);
    double   wide;
    memcpy(&wide, &bits, 8);
    if (n.kind == TNI_BFLOAT) return tni_f32_from_bits((uint32_t)bits << 16);
    if (n.kind == TNI_FLOAT && n.bits == 64) return wide;
    if (n.kind == TNI_FLOAT) return n.bits == 32 ? tni_f32_from_bits((uint32_t)bits) : tni_f16_from_bits((uint32_t)bits);
    if (n.kind == TNI_SIGNED && bits >> (n.bits - 1) != 0) {            /* ~bits is |value| - 1 */
        uint64_t mask = n.bits == 64 ? UINT64_MAX : ((uint64_t)1 << n.bits) - 1;
        return -(double)(~bits & mask) - 1.0;
    }
    return (double)bits;
}

TNI_FN bool tni_number_is_float(tni_number n) { return n.kind == TNI_FLOAT || n.kind == TNI_BFLOAT; }

/* Whether the file's bytes are those of the tensor. */
static bool tni_number_is_host(tni_number n, tn_dtype dtype)
{
    tni_number_kind kind = dtype == TN_I32 ? TNI_SIGNED : TNI_FLOAT;
    return n.kind == kind && n.bits == 8 * tni_dtype_size(dtype) && n.big_endian == tni_host_is_big_endian();
}

/* Whether dtype can hold the value v of a file. A double holds every integer of 53 bits and rounds no integer into the
   range of I32. From 2^128 - 2^103 on a finite number would be rounded to an infinite float. */
static bool tni_number_fits(tni_number from, double v, tn_dtype dtype)
{
    if (from.kind == TNI_BOOL && v > 1) return false;
    if (dtype == TN_I32) return !(v < -2147483648.0 || v > 2147483647.0);
    return dtype != TN_F32 || !(fabs(v) >= 340282356779733661637539395458142568448.0) || fabs(v) == HUGE_VAL;
}

/* One chunk, from a file's bytes at `at` to host elements. scale 0: no scale. */
static tn_status tni_convert(const tni_reader *r, uint64_t at, tni_number from, double scale, const uint8_t *raw, int64_t n,
                             tn_dtype dtype, void *out)
{
    unsigned width = from.bits / 8;
    if (scale == 0 && tni_number_is_host(from, dtype)) {
        memcpy(out, raw, (size_t)n * width);
        return TN_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        double v = tni_number_value(from, raw + (size_t)i * width), scaled = scale == 0 ? v : v * scale;
        if (!tni_number_fits(from, from.kind == TNI_BOOL ? v : scaled, dtype)) {
            char number[32];
            tni_format_double(number, scaled, 17);
            return tni_reader_fail(r, TN_ERR_DATA, at + (uint64_t)i * width, "%s does not fit %s", number,
                                   from.kind == TNI_BOOL ? "a truth value" : tn_dtype_name(dtype));
        }
        tni_store(out, dtype, i, scaled);
    }
    return TN_OK;
}

/* Fills a contiguous tensor. */
TNI_FN tn_status tni_read_numbers(const tni_reader *r, uint64_t at, tni_number from, double scale, tn_tensor *to)
{
    tn_ctx   *ctx = to->ctx;
    int64_t   count = tn_tensor_count(to), chunk = tni_min(count, TNI_CHUNK), n;
    size_t    width = from.bits / 8, size = tni_dtype_size(to->dtype);
    if (count == 0) return TN_OK;
    tni_scratch w = tni_scratch_begin(ctx, "reading a file");
    uint8_t    *host = (uint8_t *)tni_take(&w, chunk, 8), *raw = (uint8_t *)tni_take(&w, chunk, width);
    tn_status   s = w.failed ? TN_ERR_MEMORY : TN_OK;
    for (int64_t done = 0; done < count && s == TN_OK; done += n) {
        n = tni_min(chunk, count - done);
        s = tni_reader_get(r, at, raw, (size_t)n * width);
        if (s == TN_OK) s = tni_convert(r, at, from, scale, raw, n, to->dtype, host);
        if (s != TN_OK) break;
        s = tni_to_device(ctx, (char *)to->data + (size_t)done * size, host, (size_t)n * size);
        if (s != TN_OK) s = tni_backend_fail(ctx, s, r->name.s);
        at += (uint64_t)n * width;
    }
    return tni_scratch_end(&w, s);
}

/* An owned tensor from numbers at `at`: I32 for integers without scale, else the context's dtype. */
TNI_FN tn_status tni_read_tensor(const tni_reader *r, uint64_t at, tni_number from, double scale, int rank,
                                 const int64_t *shape, tn_tensor **out)
{
    tn_dtype   dtype = scale == 0 && !tni_number_is_float(from) ? TN_I32 : TN_REAL;
    tn_tensor *t = tn_tensor_create(r->ctx, dtype, rank, shape);
    *out = NULL;
    if (!t) return TN_ERR_MEMORY;
    tn_status s = tni_read_numbers(r, at, from, scale, t);
    if (s == TN_OK) *out = t;
    else tn_tensor_destroy(t);
    return s;
}

/* The elements of a shape from a file. The other extents of an empty shape must fit too, as strides are made from them. */
TNI_FN bool tni_count_extents(int rank, const int64_t *shape, size_t *count)
{
    size_t all = 1, limit = (size_t)PTRDIFF_MAX / 8;
    *count = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0 || (uint64_t)shape[i] > limit) return false;
        if (!tni_mul_size(all, shape[i] > 0 ? (size_t)shape[i] : 1, &all) || all > limit) return false;
        *count *= (size_t)shape[i];
    }
    return true;
}

/* npy and idx: exactly the data follow the header. */
TNI_FN tn_status tni_check_rest(const tni_reader *r, uint64_t at, tni_number n, int rank, const int64_t *shape)
{
    uint64_t rest = r->bytes - at;
    size_t   count, bytes;
    if (!tni_count_extents(rank, shape, &count) || !tni_mul_size(count, n.bits / 8, &bytes))
        return tni_reader_fail(r, TN_ERR_FORMAT, at, "a tensor of shape %s is larger than the address space",
                               tni_shape_of(rank, shape).s);
    if (bytes == rest) return TN_OK;
    return tni_reader_fail(r, TN_ERR_FORMAT, at, "%llu bytes follow, expected %zu for shape %s", (unsigned long long)rest,
                           bytes, tni_shape_of(rank, shape).s);
}

/* Converts one chunk of host elements to the file's dtype, little-endian. */
TNI_FN void tni_to_file(const uint8_t *host, tn_dtype have, uint8_t *out, tn_dtype as, int64_t n)
{
    unsigned width = (unsigned)tni_dtype_size(as);
    if (have == as) memcpy(out, host, (size_t)n * width);
    else for (int64_t i = 0; i < n; i++) tni_store(out, as, i, tni_load(host, have, i));
    if (!tni_host_is_big_endian()) return;
    for (size_t at = 0; at < (size_t)n * width; at += width)
        tni_store_bits(out + at, tni_load_bits(out + at, width, true), width);
}

/* The elements of a contiguous tensor. */
static void tni_put_contiguous(tni_writer *w, const tn_tensor *t, tn_dtype as)
{
    tn_ctx  *ctx = w->ctx;
    int64_t  count = tn_tensor_count(t), chunk = tni_min(count, TNI_CHUNK), n;
    size_t   size = tni_dtype_size(t->dtype), bytes = (size_t)chunk * 16;
    uint8_t *host = (uint8_t *)tni_alloc(ctx, bytes, "writing a file"), *out = host ? host + bytes / 2 : NULL;
    if (!host) w->status = TN_ERR_MEMORY;
    for (int64_t done = 0; done < count && w->status == TN_OK; done += n) {
        n = tni_min(chunk, count - done);
        w->status = tni_to_host(ctx, host, (const char *)t->data + (size_t)done * size, (size_t)n * size);
        if (w->status != TN_OK) {
            w->status = tni_backend_fail(ctx, w->status, w->name.s);
            break;
        }
        tni_to_file(host, t->dtype, out, as, n);
        tni_put(w, out, (size_t)n * tni_dtype_size(as));
    }
    tni_free(ctx, host, bytes);
}

/* A tensor's elements, row-major. `as` is its own dtype or a wider one. */
TNI_FN void tni_put_numbers(tni_writer *w, const tn_tensor *t, tn_dtype as)
{
    if (w->status == TN_OK) w->status = tni_settle(t);
    if (w->status != TN_OK) return;
    if (tn_tensor_is_contiguous(t)) {
        tni_put_contiguous(w, t, as);
        return;
    }
    tn_tensor *flat = tn_tensor_keep(t);
    if (flat) tni_put_contiguous(w, flat, as);
    else w->status = TN_ERR_MEMORY;
    tn_tensor_destroy(flat);
}
