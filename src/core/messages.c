#include "core/inner.h"

/* ---- text --------------------------------------------------------------- >>messages
   The conversions that messages need, %s %c %d %lld %llu %llx %zu %g, the same in every locale and without stdio. */

TNI_NOINLINE TNI_FN void tni_text_add(tni_text *t, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++, t->length++)
        if (t->length + 1 < t->bytes) t->dst[t->length] = s[i];
    if (t->bytes > 0) t->dst[t->length < t->bytes ? t->length : t->bytes - 1] = 0;
}

TNI_FN void tni_text_integer(tni_text *t, uint64_t v, bool negative)
{
    char digits[24];
    int  n = 24;
    do digits[--n] = (char)('0' + v % 10); while ((v /= 10) > 0);
    if (negative) digits[--n] = '-';
    tni_text_add(t, digits + n, (size_t)(24 - n));
}

static void tni_text_hex(tni_text *t, uint64_t v)              /* 16 digits */
{
    char digits[16];
    for (int n = 16; n-- > 0; v >>= 4) digits[n] = "0123456789abcdef"[v & 15];
    tni_text_add(t, digits, sizeof digits);
}

TNI_FN void tni_text_signed(tni_text *t, int64_t v)
{
    tni_text_integer(t, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v, v < 0);
}

TNI_FN void tni_text_double(tni_text *t, double v, int digits)
{
    char number[32];
    int  n = tni_format_double(number, v, digits);
    tni_text_add(t, number, (size_t)n);
}

TNI_COLD_FN void tni_text_v(tni_text *t, const char *fmt, va_list args)
{
    tni_text_add(t, "", 0);
    for (; *fmt; fmt++) {
        if (*fmt != '%') { tni_text_add(t, fmt, 1); continue; }
        fmt++;
        if (*fmt == 's') { const char *s = va_arg(args, const char *); tni_text_add(t, s ? s : "NULL", s ? strlen(s) : 4); }
        else if (*fmt == 'c') { char c = (char)va_arg(args, int); tni_text_add(t, &c, 1); }
        else if (*fmt == 'd') tni_text_signed(t, va_arg(args, int));
        else if (*fmt == 'g') tni_text_double(t, va_arg(args, double), 6);
        else if (*fmt == 'z') { fmt++; tni_text_integer(t, va_arg(args, size_t), false); }
        else if (*fmt == 'l') {
            fmt += 2;
            if (*fmt == 'u') tni_text_integer(t, va_arg(args, unsigned long long), false);
            else if (*fmt == 'x') tni_text_hex(t, va_arg(args, unsigned long long));
            else tni_text_signed(t, va_arg(args, long long));
        } else tni_text_add(t, fmt, 1);
    }
}

TNI_PRINTF(3, 4) TNI_FN size_t tni_print(char *dst, size_t bytes, const char *fmt, ...)
{
    tni_text t = {dst, bytes, 0};
    va_list  args;
    va_start(args, fmt);
    tni_text_v(&t, fmt, args);
    va_end(args);
    return t.length;
}

TNI_FN tni_shape_text tni_shape_of(int rank, const int64_t *shape)      /* "[3,4]" */
{
    tni_shape_text out;
    tni_text       t = {out.s, sizeof out.s, 0};
    tni_text_add(&t, "[", 1);
    for (int i = 0; i < rank && i < TN_MAX_RANK; i++) {
        if (i > 0) tni_text_add(&t, ",", 1);
        tni_text_signed(&t, shape[i]);
    }
    tni_text_add(&t, "]", 1);
    return out;
}

const char *tn_dtype_name(tn_dtype d)
{
    static const char *const name[] = {"REAL", "F32", "F64", "BF16", "I32"};
    return (unsigned)d < 5 ? name[d] : "?";
}

/* The bytes of a shape without negative extents; false if they do not fit the address space. An empty shape has to fit
   without its zeros, so that its strides fit. */
TNI_FN bool tni_extents_fit(tn_dtype dtype, int rank, const int64_t *shape, size_t *bytes)
{
    *bytes = tni_dtype_size(dtype);
    for (int i = 0; i < rank; i++) {
        if (shape[i] > PTRDIFF_MAX || !tni_mul_size(*bytes, (size_t)tni_max(shape[i], 1), bytes)) return false;
        if (*bytes > (size_t)PTRDIFF_MAX) return false;
    }
    for (int i = 0; i < rank; i++) if (shape[i] == 0) *bytes = 0;
    return true;
}

const char *tn_status_name(tn_status s)
{
    static const char *const name[] = {"ok", "bad argument", "shape", "dtype", "out of memory", "file", "file format",
                                       "backend", "data", "not finite", "no convergence", "communication"};
    return (unsigned)s < sizeof name / sizeof *name ? name[s] : "unknown status";
}

#define TNI_TEXT(x)  #x
#define TNI_VALUE(x) TNI_TEXT(x)
const char *tn_version(void)
{
    return TNI_VALUE(TN_VERSION_MAJOR) "." TNI_VALUE(TN_VERSION_MINOR) "." TNI_VALUE(TN_VERSION_PATCH);
}

/* ---- text of others ------------------------------------------------------ >>printable */

/* The length of the UTF-8 character that text begins with, or 0 for invalid UTF-8, which includes overlong forms and
   surrogates. Unicode 15, table 3-7. */
TNI_FN size_t tni_utf8_length(const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    if (n > left) return 0;
    for (size_t i = 1; i < n; i++) if ((p[i] & 0xC0) != 0x80) return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F)) return 0;
    if ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F)) return 0;
    return n;
}

static bool tni_is_hidden(uint32_t c, bool lines)
{
    static const uint32_t range[][2] = {{0, 31}, {127, 159}, {0xAD, 0xAD}, {0x34F, 0x34F}, {0x61C, 0x61C}, {0x180B, 0x180F},
                                        {0x200B, 0x200F}, {0x2028, 0x202E}, {0x1D173, 0x1D17A},
                                        {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
    if (lines && (c == '\n' || c == '\t' || c == 0x200C || c == 0x200D)) return false;
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) if (c >= range[i][0] && c <= range[i][1]) return true;
    return false;
}

size_t tn_printable(char *text, size_t bytes, bool lines)
{
    size_t to = 0, n, i;
    for (size_t at = 0; at < bytes; at += n) {
        uint32_t c = (unsigned char)text[at];
        size_t   length = tni_utf8_length(text + at, bytes - at);
        n = length ? length : 1;
        if (n > 1) for (c &= 0x7Fu >> n, i = 1; i < n; i++) c = c << 6 | ((unsigned char)text[at + i] & 0x3F);
        if (length == 0 || tni_is_hidden(c, lines)) text[to++] = '?';
        else for (i = 0; i < n; i++) text[to++] = text[at + i];
    }
    if (to < bytes) text[to] = 0;
    return to;
}

/* A message. Its names and values may come from files, and whoever gets it may print it. */
static void tni_message(char *dst, size_t bytes, const char *fmt, va_list args)
{
    tni_text t = {dst, bytes, 0};
    tni_text_v(&t, fmt, args);
    tn_printable(dst, strlen(dst), false);
}

#ifdef TN_DEBUG
/* ---- two threads in one context ----------------------------------------- >>one-thread
   A context belongs to one thread at a time. Under TN_DEBUG each kernel call, copy, allocation in an arena, reset, and search,
   freeze or thaw of parameters notes the thread that is in it, known by the address of its errno. A thread that comes meanwhile
   touches nothing, and its call fails; the first one reports both calls when it leaves. */
#if defined(__GNUC__)
#define TNI_SEE(p)           __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define TNI_SWAP(p, old, v)  (*(old) = __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST))
#define TNI_CLAIM(p, old, v) __atomic_compare_exchange_n(p, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#else                                   /* most overlaps are seen */
#define TNI_SEE(p)           (*(p))
#define TNI_SWAP(p, old, v)  (*(old) = *(p), *(p) = (v))
#define TNI_CLAIM(p, old, v) ((*(old) = *(p)) == NULL ? (*(p) = (v), true) : false)
#endif

static bool tni_intrudes(tn_ctx *ctx)
{
    void *user = TNI_SEE(&ctx->user);
    return user != NULL && user != (void *)&errno;
}
#else
static inline bool tni_intrudes(tn_ctx *ctx) { (void)ctx; return false; }
#endif

/* The context keeps the first error; every failure is logged. */
TNI_PRINTF(3, 4) TNI_FN tn_status tni_fail(tn_ctx *ctx, tn_status s, const char *fmt, ...)
{
    char    message[sizeof ctx->error];
    va_list args;
    va_start(args, fmt);
    tni_message(message, sizeof message, fmt, args);
    va_end(args);
    if (!ctx || tni_intrudes(ctx)) return s;
    if (ctx->status == TN_OK) {
        ctx->status = s;
        memcpy(ctx->error, message, sizeof message);
    }
    if (ctx->capture && ctx->spoilt == TN_OK) {
        ctx->spoilt = s;
        memcpy(ctx->spoilt_by, message, sizeof message);
    }
    tni_say(&ctx->desc, TN_LOG_ERROR, message);
    return s;
}

/* Whether low <= v <= high, INT64_MAX for no limit; if not, an error says so of `name`, an argument of `what`. */
TNI_UNUSED TNI_NOINLINE TNI_FN bool tni_within(tn_ctx *ctx, const char *what, const char *name, int64_t v, int64_t low,
                                               int64_t high)
{
    if (v >= low && v <= high) return true;
    if (high == INT64_MAX)
        return tni_fail(ctx, TN_ERR_ARG, "%s: %s is %lld, expected %lld or more", what, name, (long long)v,
                        (long long)low), false;
    return tni_fail(ctx, TN_ERR_ARG, "%s: %s is %lld, expected %lld to %lld", what, name, (long long)v, (long long)low,
                    (long long)high), false;
}

TNI_UNUSED TNI_PRINTF(3, 4) TNI_FN void tni_log(tn_ctx *ctx, tn_log_level level, const char *fmt, ...)
{
    char    message[512];
    va_list args;
    va_start(args, fmt);
    tni_message(message, sizeof message, fmt, args);
    va_end(args);
    tni_say(&ctx->desc, level, message);
}

#ifdef TN_DEBUG
TNI_FN bool tni_enter(tn_ctx *ctx, const char *call)
{
    void *user = NULL;
    if (TNI_CLAIM(&ctx->user, &user, (void *)&errno)) ctx->user_call = call;
    else if (user != (void *)&errno) {
        const char *other;
        TNI_SWAP(&ctx->intruder, &other, call);
        return false;
    }
    ctx->user_depth++;
    return true;
}

TNI_FN void tni_leave(tn_ctx *ctx)
{
    void       *user;
    const char *other;
    if (--ctx->user_depth > 0) return;
    TNI_SWAP(&ctx->intruder, &other, (const char *)NULL);
    if (other)
        tni_fail(ctx, TN_ERR_ARG, "%s: another thread used the context meanwhile, in %s; expected one thread at a time",
                 ctx->user_call, other);
    TNI_SWAP(&ctx->user, &user, (void *)NULL);
}
#undef TNI_SWAP
#undef TNI_SEE
#undef TNI_CLAIM
#endif

tn_status   tn_ctx_status(const tn_ctx *ctx) { return ctx ? ctx->status : TN_ERR_ARG; }
const char *tn_ctx_error(const tn_ctx *ctx)  { return ctx ? ctx->error : "the context is NULL"; }

void tn_ctx_clear_error(tn_ctx *ctx)
{
    if (!ctx) return;
    ctx->status = TN_OK;
    ctx->error[0] = 0;
}
