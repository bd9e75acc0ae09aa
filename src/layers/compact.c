#include "core/inner.h"
#include "tensor/inner.h"
#include "layers/inner.h"

/* ---- compact weights ----------------------------------------------------- >>compact
   A row of BF16 is in blocks of 32 weights, 16 words: word i holds weight i in its lower half and weight i + 16 in its upper
   half, so that one shift, or one mask, makes a vector of float32 of neighbouring weights. A row of INT8 is its bytes in
   order. Both are filled up with zeros to whole blocks of 32. Scales have 17 significant bits, so that s q is exact in
   float32, the rounded matrix has the same scales, and rounding it again changes nothing. */

const char *tn_weight_kind_name(tn_weight_kind kind)
{
    static const char *const name[] = {"f32", "bf16", "int8", "?"};
    return name[(unsigned)kind <= TN_WEIGHT_INT8 ? (int)kind : 3];
}

tn_weight_kind tn_compact_kind(const tn_tensor *w)
{
    return tni_alive(w) && tni_root(w)->compact ? tni_root(w)->compact->kind : TN_WEIGHT_F32;
}

/* The scale of a row of INT8; 0 for a row of zeros and of numbers below 1.49e-36, which become zeros. */
static float tni_compact_scale(const float *row, int64_t n)
{
    float    most = 0;
    uint32_t bits;
    for (int64_t i = 0; i < n; i++) most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
    float scale = most / 127;
    memcpy(&bits, &scale, sizeof bits);
    bits &= ~(uint32_t)0x7f;
    memcpy(&scale, &bits, sizeof bits);
    return scale < 1.17549435e-38f ? 0 : scale;
}

/* Rounds a row, and writes it to `codes`, which are zeros; NULL: there is no copy. Returns its scale. */
static float tni_compact_row(tn_weight_kind kind, float *row, int64_t n, uint32_t *codes)
{
    const float scale = kind == TN_WEIGHT_INT8 ? tni_compact_scale(row, n) : 1;
    for (int64_t i = 0; i < n; i++)
        if (kind == TN_WEIGHT_BF16) {
            const uint16_t half = tni_bf16_bits(row[i]);
            row[i] = tni_bf16_value(half);
            if (codes) codes[i / 32 * 16 + i % 16] |= (uint32_t)half << (i & 16);
        } else {
            const int q = scale > 0 ? (int)lrintf(row[i] / scale) : 0;
            row[i] = scale * (float)q;
            if (codes) ((int8_t *)codes)[i] = (int8_t)q;
        }
    return scale;
}

/* What a matrix is rounded with. */
typedef struct tni_compacting {
    const char  *what, *name;           /* the function, and the matrix, in messages */
    tn_weight_kind   kind;
    float       *host;                  /* the matrix, on the host, and then a row */
    double       largest, most, sum, of;/* of the errors, of the weights; their squares */
} tni_compacting;

static tn_status tni_compact_check(const tni_compacting *k, const tn_tensor *w)
{
    tn_ctx *ctx = w->ctx;
    if (!tni_within(ctx, k->what, "kind", (int)k->kind, 0, TN_WEIGHT_INT8)) return TN_ERR_ARG;
    if (w->base || !(w->flags & TNI_OWNED))
        return tni_fail(ctx, TN_ERR_ARG, "%s: %s is %s, expected a parameter or a tensor of tn_tensor_create", k->what, k->name,
                        w->base ? "a view" : "an arena tensor");
    if (w->rank < 2)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s is %s, expected rank 2 or more", k->what, k->name, TNI_SHAPE(w));
    if (w->dtype != TN_F32 || ctx->desc.activations != TN_F32)
        return tni_fail(ctx, TN_ERR_DTYPE, "%s: %s is %s and the context's activations are %s, expected F32 for both", k->what,
                        k->name, tn_dtype_name(w->dtype), tn_dtype_name(ctx->desc.activations));
    if (tni_tape_reads(ctx, w))
        return tni_fail(ctx, TN_ERR_ARG, "%s: %s %s is needed by the backward pass", k->what, k->name, TNI_SHAPE(w));
    return tni_uncaptured(ctx, "a matrix is made compact") ? TN_OK : TN_ERR_ARG;
}

/* The copy's headers and memory, on backends whose kernels could read it; others need none. */
static tni_compact *tni_compact_new(tn_ctx *ctx, tn_weight_kind kind, int64_t rows, int64_t columns)
{
    tni_compact *c = (tni_compact *)tni_alloc(ctx, sizeof *c, "compact weights");
    size_t       bytes;
    if (!c) return NULL;
    memset(c, 0, sizeof *c);
    c->kind = kind;
    c->rows = rows;
    c->words = tni_ceil_div(columns, 32) * (kind == TN_WEIGHT_BF16 ? 16 : 8);
    if (tni_mul_size((size_t)rows, ((size_t)c->words + (kind == TN_WEIGHT_INT8)) * 4, &bytes))
        c->data = tni_device_alloc(ctx, bytes, "compact weights");
    if (!c->data) return tni_free(ctx, c, sizeof *c), (tni_compact *)NULL;
    c->bytes = bytes;
    memset(c->data, 0, bytes);
    return c;
}

/* Reads w to k->host, rounds it there, and fills the copy, if there is one. */
static tn_status tni_compact_round(tni_compacting *k, const tn_tensor *w, tni_compact *c)
{
    const int64_t columns = w->shape[w->rank - 1], count = tn_tensor_count(w), rows = columns ? count / columns : 0;
    float        *before = k->host + count, *scales = c ? (float *)c->data + c->rows * c->words : NULL;
    tn_status     s = tn_read(w, TN_F32, k->host, count);
    int64_t       i;
    for (int64_t r = 0; r < rows && s == TN_OK; r++) {
        float *row = k->host + r * columns;
        memcpy(before, row, (size_t)columns * sizeof *row);
        for (i = 0; i < columns && fabsf(row[i]) <= 3.38953139e38f; i++) {}     /* the largest of BF16 */
        if (i < columns)
            return tni_fail(w->ctx, TN_ERR_DATA, "%s: %s has %g in row %lld, column %lld, expected finite numbers up to 3.38e38",
                            k->what, k->name, (double)row[i], (long long)r, (long long)i);
        float scale = tni_compact_row(k->kind, row, columns, c ? (uint32_t *)c->data + r * c->words : NULL);
        if (c && k->kind == TN_WEIGHT_INT8) scales[r] = scale;
        for (i = 0; i < columns; i++) {
            const double x = (double)before[i], e = (double)row[i] - x;
            k->most = fmax(k->most, fabs(x));
            k->largest = fmax(k->largest, fabs(e));
            k->of += x * x;
            k->sum += e * e;
        }
    }
    return s;
}

static double tni_quotient(double part, double of) { return of > 0 ? part / of : 0; }

/* Some matrices at once: what can fail on a device that works is done for all of them before the first one changes. */
static tn_status tni_compact_all(tni_compacting *k, tn_tensor *const *w, const char (*name)[64], int64_t n, tni_compact **copy,
                                 tn_compact_error *error)
{
    tn_ctx   *ctx = w[0]->ctx;
    double    sum = 0, of = 0, worst = 0;
    tn_status s = TN_OK;
    tn_compact_error all = TNI_ZERO;
    for (int64_t i = 0; i < n && s == TN_OK; i++) {
        const int64_t columns = w[i]->shape[w[i]->rank - 1], count = tn_tensor_count(w[i]);
        const int     none = k->kind == TN_WEIGHT_F32 || count == 0;
        k->name = name[i];
        k->largest = k->most = k->sum = k->of = 0;
        if (!none && ctx->backend->host && !(copy[i] = tni_compact_new(ctx, k->kind, count / columns, columns)))
            s = TN_ERR_MEMORY;
        if (s == TN_OK && !none) s = tni_compact_round(k, w[i], copy[i]);
        double rms = sqrt(tni_quotient(k->sum, k->of));
        if (n > 1 && rms > worst) tni_print(all.worst, sizeof all.worst, "%s", name[i]);
        worst = fmax(worst, rms);
        all.largest = fmax(all.largest, tni_quotient(k->largest, k->most));
        all.count += count;
        all.bytes += copy[i] ? copy[i]->bytes : (size_t)count * 4;
        sum += k->sum;
        of += k->of;
    }
    all.rms = sqrt(tni_quotient(sum, of));
    for (int64_t i = 0; i < n && s == TN_OK; i++) {
        if (k->kind != TN_WEIGHT_F32 && tn_tensor_count(w[i]) > 0) {
            s = tni_compact_round(k, w[i], NULL);
            if (s == TN_OK) s = tn_write(w[i], TN_F32, k->host, tn_tensor_count(w[i]));
        } else tni_rewritten(w[i]);
        if (s != TN_OK) break;
        if (copy[i]) {                                      /* else it may keep a shadow */
            tni_compact_drop(ctx, w[i]->compact);
            w[i]->compact = copy[i];
        }
        copy[i] = NULL;
    }
    for (int64_t i = 0; i < n; i++) tni_compact_drop(ctx, copy[i]);
    if (s == TN_OK && error) *error = all;
    return s;
}

/* Checks the matrices, and provides the memory of a call; w and name have n entries. */
TNI_COLD_FN tn_status tni_compact_some(const char *what, tn_tensor *const *w, const char (*name)[64], int64_t n,
                                       tn_weight_kind kind, tn_compact_error *error)
{
    tni_scratch work = tni_scratch_begin(w[0]->ctx, what);
    size_t      most = 0;
    tn_status   s = TN_OK;
    tni_compacting k = TNI_ZERO;
    k.what = what;
    k.kind = kind;
    for (int64_t i = 0; i < n && s == TN_OK; i++) {
        k.name = name[i];
        s = tni_compact_check(&k, w[i]);
        size_t host = w[i]->bytes + (size_t)(w[i]->rank > 0 ? w[i]->shape[w[i]->rank - 1] + 1 : 1) * 4;
        most = host > most ? host : most;
    }
    if (s != TN_OK) return s;
    tni_compact **copy = (tni_compact **)tni_take_zeroed(&work, n, sizeof *copy);
    k.host = (float *)tni_take(&work, 1, most);
    return tni_scratch_end(&work, work.failed ? TN_ERR_MEMORY : tni_compact_all(&k, w, name, n, copy, error));
}

tn_status tn_compact(tn_tensor *w, tn_weight_kind kind, tn_compact_error *error)
{
    static const char name[1][64] = {"w"};
    if (error) memset(error, 0, sizeof *error);
    return tni_alive(w) ? tni_compact_some("compact", &w, name, 1, kind, error) : TN_ERR_ARG;
}
