#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "kernels/inner.h"
#include "context/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- terms in double ---------------------------------------------------- >>cp-terms
   Each row of a factor is divided by a power of two, which is exact; the product of a term's is a factor of its column of P.
   Rows of P are divided by 2^shift, so that the largest element is about 1, and where outputs are compared one by one by a
   power of each row: neither squares of large numbers nor those of small ones leave the range of a double. */

TNI_FN int64_t tni_terms_width(const tn_cp *cp)
{
    int64_t n = cp->out;
    for (int k = 0; k < cp->order; k++) n += cp->in[k];
    return n;
}

/* Terms are held in groups of `group` (by default all of them), each [out,rows] of P and then [rows,in] of every factor,
   so that the factors of a whole group are one matrix if their inputs are equal. */
static int64_t tni_terms_start(const tni_terms *t, int64_t term) { return term - (term - t->base) % t->group; }
static int64_t tni_terms_rows(const tni_terms *t, int64_t start) { return tni_min(t->group, t->base + t->held - start); }

static double *tni_terms_group_p(const tni_terms *t, int64_t start) { return t->p + (start - t->base) * t->cp->out; }

static double *tni_terms_group_f(const tni_terms *t, int64_t start, int k)
{
    double *f = t->f[0] + (start - t->base) * (tni_terms_width(t->cp) - t->cp->out);
    for (int s = 0; s < k; s++) f += tni_terms_rows(t, start) * t->cp->in[s];
    return f;
}

TNI_FN tni_mat tni_terms_p(const tni_terms *t)
{
    const int64_t start = tni_terms_start(t, t->first);
    return tni_rows(tni_terms_group_p(t, start) + t->first - start, tni_terms_rows(t, start));
}

TNI_FN tni_mat tni_terms_f(const tni_terms *t, int k)
{
    const int64_t start = tni_terms_start(t, t->first), n = t->cp->in[k];
    return tni_rows(tni_terms_group_f(t, start, k) + (t->first - start) * n, n);
}

static tn_status tni_read_block(const tn_tensor *t, int64_t row, int64_t rows, int64_t column, int64_t columns, double *to)
{
    const tn_tensor *v = tn_slice(tn_slice((tn_tensor *)t, 0, row, row + rows), 1, column, column + columns);
    return v ? tn_read(v, TN_F64, to, rows * columns) : TN_ERR_MEMORY;
}

/* x 2^exponent, in two steps, as this power may be too large where x is small */
TNI_FN double tni_times_power(double x, int exponent)
{
    const int e = (int)tni_max(-2000, tni_min(2000, exponent));
    uint64_t  bits[2];
    double    power[2];
    bits[0] = (uint64_t)(1023 + e / 2) << 52;
    bits[1] = (uint64_t)(1023 + e - e / 2) << 52;
    memcpy(power, bits, sizeof power);
    return x * power[0] * power[1];
}

/* Holds `rows` terms from `first` on, as they are. */
static tn_status tni_terms_read(tni_terms *t, int64_t first, int64_t rows)
{
    const tn_cp *cp = t->cp;
    tni_scope    scope = tni_scope_begin(cp->ctx);
    tn_status    s = TN_OK;
    t->base = first;
    t->held = rows;
    t->scaled = false;
    for (int64_t start = first; start < first + rows && s == TN_OK; start += t->group) {
        const int64_t now = tni_terms_rows(t, start);
        s = tni_read_block(cp->p, 0, cp->out, start, now, tni_terms_group_p(t, start));
        for (int k = 0; k < cp->order && s == TN_OK; k++)
            s = tni_read_block(cp->f[k], start, now, 0, cp->in[k], tni_terms_group_f(t, start, k));
    }
    for (int k = 1; k < cp->order; k++) t->f[k] = tni_terms_group_f(t, first, k);
    tni_scope_end(cp->ctx, scope);
    return s;
}

enum { TNI_TERMS_SHARE = 16 };
typedef struct tni_terms_lines { const tni_terms *t; int64_t start, rows; } tni_terms_lines;

/* Task: some rows of a group's P and factors are scaled. */
static void tni_terms_scale_lines(void *arg, int64_t task, int worker)
{
    const tni_terms_lines *l = (const tni_terms_lines *)arg;
    const tni_terms *t = l->t;
    const int64_t    h = t->cp->terms, lines = t->cp->out + t->cp->order * l->rows;
    const double    *scale = t->scale + t->cp->order * h + l->start;
    (void)worker;
    for (int64_t i = task * TNI_TERMS_SHARE; i < tni_min(lines, (task + 1) * TNI_TERMS_SHARE); i++)
        if (i < t->cp->out) {
            double *p = tni_terms_group_p(t, l->start) + i * l->rows;
            for (int64_t j = 0; j < l->rows; j++) p[j] = tni_times_power(p[j], (int)scale[j] - t->row[i]);
        } else {
            const int64_t row = (i - t->cp->out) % l->rows;
            const int     k = (int)((i - t->cp->out) / l->rows);
            tni_algebra_of(t->cp->ctx->desc.simd)->scale(t->cp->in[k], t->scale[k * h + l->start + row],
                                                         tni_terms_group_f(t, l->start, k) + row * t->cp->in[k]);
        }
}

/* Makes terms first .. first + rows - 1 the block, and reads and scales as many as fit if they are not held yet. */
TNI_FN tn_status tni_terms_load(tni_terms *t, int64_t first, int64_t rows)
{
    const tn_cp *cp = t->cp;
    const int64_t h = cp->terms;
    bool         held = t->held > 0 && first >= t->base && first + rows <= t->base + t->held;
    tn_status    s = held ? TN_OK : tni_terms_read(t, first, tni_min(t->room, h - first));
    tni_terms_lines l;
    t->first = first;
    t->rows = rows;
    if (s != TN_OK || t->scaled) return s;
    l.t = t;
    for (l.start = t->base; l.start < t->base + t->held; l.start += t->group) {
        l.rows = tni_terms_rows(t, l.start);
        tni_parallel_for(tni_ctx_pool(cp->ctx), tni_ceil_div(cp->out + cp->order * l.rows, TNI_TERMS_SHARE),
                         tni_terms_scale_lines, &l);
    }
    t->scaled = true;
    return TN_OK;
}

/* The scales of all terms, and the exponents of rows of P if each has its own. */
static tn_status tni_terms_scale(tni_terms *t, bool by_row, const char *op)
{
    const tn_cp *cp = t->cp;
    const int64_t h = cp->terms;
    const int    order = cp->order;
    const int    none = -INT32_MAX;
    int          exponent, shift = none;                  /* t->shift stays 0 in an operator that is refused */
    for (int64_t o = 0; o < cp->out; o++) t->row[o] = none;
    for (int64_t at = 0; at < h; at += t->room) {
        int64_t   rows = tni_min(t->room, h - at);
        tn_status s = tni_terms_read(t, at, rows);
        if (s != TN_OK) return s;
        for (int64_t i = 0; i < rows; i++) {
            double sum = 0, zero = 1;
            t->first = at + i;
            tni_mat p = tni_terms_p(t);
            for (int k = 0; k <= order; k++) {
                tni_mat m = k < order ? tni_terms_f(t, k) : p;
                double  largest = k < order ? tni_largest(1, cp->in[k], m) : tni_largest(cp->out, 1, m);
                if (!(largest < HUGE_VAL))
                    return tni_fail(cp->ctx, TN_ERR_NONFINITE, "%s: the operator holds NaN or infinity, expected finite "
                                    "numbers", op);
                zero *= largest > 0;
                if (k < order) {
                    t->scale[k * h + at + i] = tni_unit_scale(largest);
                    sum -= tni_exponent(t->scale[k * h + at + i]);
                    continue;
                }
                t->scale[k * h + at + i] = zero > 0 ? sum : (double)TNI_TERM_ZERO;
                frexp(largest, &exponent);
                t->scale[(k + 1) * h + at + i] = exponent;
                if (zero > 0 && sum + exponent > shift) shift = (int)sum + exponent;
            }
            for (int64_t o = 0; o < cp->out && by_row && zero > 0; o++) {
                frexp(p.p[o * p.row], &exponent);
                if (fabs(p.p[o * p.row]) > 0) t->row[o] = (int)tni_max(t->row[o], (int)sum + exponent);
            }
        }
    }
    t->shift = shift == none ? 0 : shift;                    /* no term but zeros */
    for (int64_t o = 0; o < cp->out; o++) if (t->row[o] == none) t->row[o] = t->shift;
    return TN_OK;
}

/* Prepares groups of up to `group` terms, `room` of them in all, in memory of w; `like` has the scales already if it is of the
   same operator. */
TNI_FN tn_status tni_terms_begin_groups(tni_terms *t, tni_scratch *w, const tn_cp *cp, int64_t room, int64_t group, bool by_row,
                                        const tni_terms *like)
{
    memset(t, 0, sizeof *t);
    t->cp = cp;
    t->room = room;
    t->group = group;
    t->scale = tni_take_zeros(w, cp->order + 2, cp->terms);
    t->row = (int *)tni_take(w, cp->out, sizeof *t->row);
    t->p = tni_take_f64(w, cp->out, room);
    t->f[0] = tni_take_f64(w, room, tni_terms_width(cp) - cp->out);
    if (w->failed) return TN_ERR_MEMORY;
    if (!like || like->cp != cp) return tni_terms_scale(t, by_row, w->what);
    t->shift = like->shift;
    memcpy(t->scale, like->scale, sizeof *t->scale * (size_t)((cp->order + 2) * cp->terms));
    memcpy(t->row, like->row, sizeof *t->row * (size_t)cp->out);
    return TN_OK;
}

/* Prepares blocks of up to `room` terms, which are one group. */
TNI_FN tn_status tni_terms_begin(tni_terms *t, tni_scratch *w, const tn_cp *cp, int64_t room)
{
    return tni_terms_begin_groups(t, w, cp, room, room, false, NULL);
}

/* ---- range -------------------------------------------------------------- >>cp-range
   A power of two can move from one factor of a term to another. Where a product may leave the range of the dtype it is made
   of factors near 1, and the exponents of each term are divided among the factors of the result. */

/* Multiplies rows of factor k, or columns of P for k = order, by powers of two, in two steps. */
TNI_FN tn_status tni_cp_shift(tn_cp *cp, int k, const int *by)
{
    tn_view     to = tni_view(k < cp->order ? cp->f[k] : cp->p);
    tn_tensor  *power = tni_owned_2d(cp->ctx, cp->terms, 1);
    tni_scratch w = tni_scratch_begin(cp->ctx, "operator");
    double     *v = tni_take_f64(&w, cp->terms, 1);
    tn_status   s = power && v ? TN_OK : TN_ERR_MEMORY;
    for (int step = 0; step < 2 && s == TN_OK; step++) {
        for (int64_t h = 0; h < cp->terms; h++) v[h] = ldexp(1.0, step ? by[h] - by[h] / 2 : by[h] / 2);
        s = tn_write(power, TN_F64, v, cp->terms);
        if (s == TN_OK)
            s = tni_put_product(cp->ctx, to, to, k < cp->order ? tni_view(power) : tni_transposed_view(tni_view(power)),
                                false);
    }
    tn_tensor_destroy(power);
    return tni_scratch_end(&w, s);
}

/* The exponents of rows of factors and columns of P: [order + 1,terms]; all TNI_TERM_ZERO in a term that is 0. */
TNI_FN tn_status tni_cp_exponents(const tn_cp *cp, int *e, const char *op)
{
    const int64_t h = cp->terms, room = tni_max(1, (1 << 20) / tni_max(1, tni_terms_width(cp)));
    const int     order = cp->order;
    tni_scratch   w = tni_scratch_begin(cp->ctx, op);
    tni_terms     t;
    tn_status     s = tni_terms_begin(&t, &w, cp, tni_min(room, tni_max(1, h)));
    for (int k = 0; k <= order; k++)
        for (int64_t i = 0; i < h && s == TN_OK; i++)
            e[k * h + i] = t.scale[order * h + i] <= (double)TNI_TERM_ZERO ? TNI_TERM_ZERO
                           : k == order ? (int)t.scale[(order + 1) * h + i] : -tni_exponent(t.scale[k * h + i]);
    return tni_scratch_end(&w, s);
}

/* A copy with factors near 1; by [terms] becomes the sum of a term's exponents e [order + 1,terms]. */
TNI_FN tn_cp *tni_cp_near_one(const tn_cp *cp, int *e, int *by)
{
    tn_cp    *to = tni_cp_make(cp->ctx, cp->order, cp->out, cp->terms, cp->in, cp->constant);
    tn_status s = to ? tni_copy(to->p, cp->p) : TN_ERR_MEMORY;
    for (int64_t h = 0; h < cp->terms; h++) by[h] = 0;
    for (int k = 0; k <= cp->order && s == TN_OK; k++) {
        if (k < cp->order) s = tni_copy(to->f[k], cp->f[k]);
        for (int64_t h = 0; h < cp->terms; h++) {
            int *exponent = e + k * cp->terms + h;
            if (*exponent == TNI_TERM_ZERO) *exponent = 0;
            by[h] += *exponent;
            *exponent = -*exponent;
        }
        if (s == TN_OK) s = tni_cp_shift(to, k, e + k * cp->terms);
    }
    return to ? tni_cp_done(to, s) : NULL;
}

/* Multiplies terms by 2^by[h], in equal parts to their factors, or destroys the operator where they do not fit. */
TNI_FN tn_cp *tni_cp_spread(tn_cp *cp, const int *by, const char *op)
{
    const int64_t h = cp->terms;
    const int     most = cp->ctx->desc.dtype == TN_F32 ? 120 : 1000, parts = cp->order + 1;
    tni_scratch   w = tni_scratch_begin(cp->ctx, op);
    int          *e = (int *)tni_take(&w, tni_area(parts, h), sizeof *e);
    tn_status     s = e ? tni_cp_exponents(cp, e, op) : TN_ERR_MEMORY;
    for (int64_t i = 0; i < h && s == TN_OK; i++) {
        int total = by[i];
        bool zero = e[i] == TNI_TERM_ZERO;
        for (int k = 0; k < parts && !zero; k++) total += e[k * h + i];
        int each = total / parts;
        if (!zero && (each > most || each < -most))
            s = tni_fail(cp->ctx, TN_ERR_NONFINITE, "%s: term %lld is about 1e%d: its %d factors are beyond the range of %s",
                         op, (long long)i, (int)(total * 0.30102999566398120), parts, tn_dtype_name(cp->ctx->desc.dtype));
        for (int k = 0; k < parts; k++)
            e[k * h + i] = zero ? 0 : (k < cp->order ? each : total - cp->order * each) - e[k * h + i];
    }
    for (int k = 0; k < parts && s == TN_OK; k++) s = tni_cp_shift(cp, k, e + k * h);
    return tni_cp_done(cp, tni_scratch_end(&w, s));
}

TNI_FN int tni_range_limit(const tn_ctx *ctx) { return ctx->desc.dtype == TN_F32 ? 60 : 500; }

/* The least and the greatest of n exponents, except those of zeros. */
TNI_FN void tni_exponent_range(int64_t n, const int *e, int *least, int *most)
{
    for (int64_t i = 0; i < n; i++) {
        if (e[i] == TNI_TERM_ZERO) continue;
        if (e[i] < *least) *least = e[i];
        if (e[i] > *most) *most = e[i];
    }
}

#endif /* TN_NO_OPERATOR */
