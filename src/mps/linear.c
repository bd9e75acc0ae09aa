#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "decomp/inner.h"
#include "layers/inner.h"
#include "mps/inner.h"

#ifndef TN_NO_MPS
/* ---- a linear layer as a train ------------------------------------------------ >>tt-linear-impl
   x is [P, r_k in_k, Q]: P outputs so far and all rows, Q the inputs that are left. One core turns it into
   [P, out_k r_k+1, Q], which is [P out_k, r_k+1 in_k+1, Q/in_k+1] without moving a number. */

static int64_t tni_tt_linear_size(const tn_tt_linear_desc *d, const int64_t *extent)
{
    int64_t n = 1;
    for (int64_t k = 0; k < d->count; k++) n = tni_is_extent(extent[k]) && n < INT32_MAX ? n * extent[k] : INT32_MAX;
    return n;
}

TNI_COLD tn_status tn_tt_linear_init(tn_params *ps, const char *name, const tn_tt_linear_desc *desc, tn_tt_linear *layer)
{
    const int64_t before = tn_params_count(ps);
    char          part[16];
    bool          whole = true;
    if (!layer || !desc) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "tt_linear: layer or desc is NULL");
    tn_tt_linear_desc d = *desc;                            /* which may be the layer's own */
    memset(layer, 0, sizeof *layer);
    if (!ps) return TN_ERR_ARG;
    if (d.count < 1 || d.count > TN_MAX_RANK)
        return tni_fail(ps->owned.ctx, TN_ERR_ARG, "tt_linear%s%s: count is %lld, expected 1 to %d", TNI_NAMED(name),
                        (long long)d.count, TN_MAX_RANK);
    if (!(d.std >= 0 && d.std < HUGE_VAL))
        return tni_fail(ps->owned.ctx, TN_ERR_ARG, "tt_linear%s%s: std is %g, expected 0 or more", TNI_NAMED(name),
                        d.std);
    for (int64_t k = 0; k < d.count; k++) {
        const bool good = tni_is_extent(d.in[k]);
        if (good && tni_is_extent(d.out[k])) continue;
        return tni_fail(ps->owned.ctx, TN_ERR_SHAPE, "tt_linear%s%s: %s[%lld] is %lld, expected 1 to 2^31 - 2",
                        TNI_NAMED(name), good ? "out" : "in", (long long)k, (long long)(good ? d.out : d.in)[k]);
    }
    tn_status s = tni_layer_extents(ps, "tt_linear", name, "the product of in", tni_tt_linear_size(&d, d.in),
                                    "the product of out", tni_tt_linear_size(&d, d.out));
    if (s == TN_OK) s = tni_layer_extents(ps, "tt_linear", name, "bond", d.bond, "bond", d.bond);
    if (s != TN_OK) return s;
    layer->desc = d;
    tn_init init = TNI_ZERO;
    init.rule = TN_INIT_NORMAL;
    init.std = d.std > 0 ? d.std : 1 / sqrt((double)tni_tt_linear_size(&d, d.in));
    double variance = init.std * init.std / pow((double)d.bond, (double)(d.count - 1)); /* a sum over all bonds */
    init.std = pow(variance, 0.5 / (double)d.count);
    for (int64_t k = 0; whole && k < d.count; k++) {
        int64_t shape[4] = {d.out[k], k + 1 == d.count ? 1 : d.bond, k == 0 ? 1 : d.bond, d.in[k]};
        tni_print(part, sizeof part, "core%d", (int)k);
        layer->core[k] = tni_layer_param(ps, name, part, 4, shape, init, true);
        whole = layer->core[k] != NULL;
        tni_layer_adamw(ps, layer->core[k]);
    }
    init.rule = TN_INIT_ZERO;
    if (whole && d.bias) {
        layer->b = tni_layer_vector(ps, name, "b", tni_tt_linear_size(&d, d.out), init);
        whole = layer->b != NULL;
    }
    return tni_layer_done(ps, before, whole, layer, sizeof *layer);
}

tn_tensor *tn_tt_linear_forward(tn_ctx *ctx, const tn_tt_linear *layer, tn_tensor *x)
{
    const tn_tt_linear_desc *d = layer ? &layer->desc : NULL;
    int64_t    shape[TN_MAX_RANK];
    if (!tni_layer_given(ctx, layer, "tt_linear") || !tni_usable(ctx, layer->core[0], "tt_linear", "core 0")) return NULL;
    int64_t in = tni_tt_linear_size(d, d->in);
    if (!(x = tni_contiguous(ctx, x, "tt_linear", "x"))) return NULL;
    if (x->rank < 1 || x->shape[x->rank - 1] != in)
        return tni_fail(ctx, TN_ERR_SHAPE, "tt_linear: x is %s, expected %lld numbers on its last axis", TNI_SHAPE(x),
                        (long long)in), (tn_tensor *)NULL;
    int rank = x->rank;
    memcpy(shape, x->shape, sizeof shape);
    shape[rank - 1] = tni_tt_linear_size(d, d->out);
    int64_t p = tni_rows_view(x).shape[0];
    for (int64_t k = 0, left = in; x && k < d->count; k++) {
        tn_tensor *g = layer->core[k];
        left /= d->in[k];
        const int64_t n = g->shape[2] * d->in[k];
        x = tn_reshape(x, 3, TNI_DIMS(p, n, left));
        if (x && left > 1) x = tn_copy(ctx, tn_transpose(x, 1, 2));
        g = tn_reshape_2d(g, g->shape[0] * g->shape[1], n);
        x = x ? tn_affine(ctx, tn_reshape(x, 3, TNI_DIMS(p, left, n)), g, NULL) : NULL;      /* [P,Q,out r] */
        if (x && left > 1) x = tn_copy(ctx, tn_transpose(x, 1, 2));
        p *= d->out[k];
    }
    x = tn_reshape(x, rank, shape);
    return layer->b ? tn_add(ctx, x, layer->b) : x;
}

#ifndef TN_NO_OPERATOR
/* Copies w [outputs,inputs] to or from the order of the digits (o_0,i_0,o_1,i_1,..). */
static void tni_tt_digits(int64_t count, const int64_t *out, const int64_t *in, int64_t rows, int64_t columns, double *w,
                          double *digits, bool back)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = 0, step = 1, a = i, b = j;
            for (int64_t k = count; k-- > 0;) {
                at += (a % out[k] * in[k] + b % in[k]) * step;
                step *= out[k] * in[k];
                a /= out[k];
                b /= in[k];
            }
            if (back) w[i * columns + j] = digits[at];
            else digits[at] = w[i * columns + j];
        }
}

/* Checks extents of digits, and computes their products. */
static bool tni_tt_extents(tn_ctx *ctx, const char *op, int64_t count, const int64_t *out, const int64_t *in, int64_t *rows,
                           int64_t *columns)
{
    *rows = *columns = 1;
    if (count < 1 || !out || !in)
        return tni_fail(ctx, TN_ERR_ARG, "%s: %s, expected extents of rows and columns", op,
                        count < 1 ? "count is below 1" : out ? "in is NULL" : "out is NULL"), false;
    for (int64_t k = 0; k < count; k++) {
        if (tni_is_extent(out[k]) && tni_is_extent(in[k]) && *rows < INT32_MAX / out[k] && *columns < INT32_MAX / in[k]) {
            *rows *= out[k];
            *columns *= in[k];
            continue;
        }
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: the extents of axis %lld are %lld and %lld, expected 1 or more, and products "
                        "below 2^31 - 1", op, (long long)k, (long long)out[k], (long long)in[k]), false;
    }
    return true;
}

tn_tt *tn_tt_from_matrix(tn_ctx *ctx, const tn_tensor *w, int64_t count, const int64_t *out, const int64_t *in,
                         const tn_tt_desc *desc)
{
    int64_t    rows, columns;
    tn_tensor *digits = NULL;
    tn_tt     *tt = NULL;
    if (!tni_usable(ctx, w, "tt_from_matrix", "w")
        || !tni_tt_extents(ctx, "tt_from_matrix", count, out, in, &rows, &columns)) return NULL;
    if (w->rank != 2 || w->shape[0] != rows || w->shape[1] != columns)
        return tni_fail(ctx, TN_ERR_SHAPE, "tt_from_matrix: w is %s, expected [%lld,%lld], the products of the extents",
                        TNI_SHAPE(w), (long long)rows, (long long)columns), (tn_tt *)NULL;
    int64_t     size = rows * columns;
    tni_scratch scratch = tni_scratch_begin(ctx, "tt_from_matrix");
    double     *numbers = tni_take_numbers(&scratch, w), *sorted = tni_take_f64(&scratch, size, 1);
    int64_t    *both = (int64_t *)tni_take(&scratch, count, sizeof *both);
    if (both) {
        for (int64_t k = 0; k < count; k++) both[k] = out[k] * in[k];
        tni_tt_digits(count, out, in, rows, columns, numbers, sorted, false);
        digits = tn_tensor_create(ctx, TN_F64, 1, &size);
        if (digits && tn_write(digits, TN_F64, sorted, size) == TN_OK) tt = tn_tt_svd(ctx, digits, count, both, desc);
    }
    tni_drop(&digits);
    tni_scratch_release(&scratch, NULL);
    return tt;
}

/* Are the axes of a train those of digits? */
static bool tni_tt_is_matrix(const tn_tt *tt, const char *op, const int64_t *out, const int64_t *in)
{
    for (int64_t k = 0; k < tt->count; k++)
        if (tt->core[k]->shape[1] != out[k] * in[k])
            return tni_fail(tt->ctx, TN_ERR_SHAPE, "%s: core %lld is %s, expected %lld x %lld elements", op, (long long)k,
                            TNI_SHAPE(tt->core[k]), (long long)out[k], (long long)in[k]), false;
    return true;
}

tn_tensor *tn_tt_matrix(const tn_tt *tt, const int64_t *out, const int64_t *in)
{
    int64_t    rows, columns;
    tn_tensor *dense, *w = NULL;
    if (!tt || !tni_tt_extents(tt->ctx, "tt_matrix", tt->count, out, in, &rows, &columns)
        || !tni_tt_is_matrix(tt, "tt_matrix", out, in) || !(dense = tn_tt_dense(tt))) return NULL;
    tni_scratch scratch = tni_scratch_begin(tt->ctx, "tt_matrix");
    double     *digits = tni_take_numbers(&scratch, dense), *numbers = tni_take_f64(&scratch, rows, columns);
    if (numbers) {
        tni_tt_digits(tt->count, out, in, rows, columns, numbers, digits, true);
        if (tni_write_new(tt->ctx, "tt_matrix", &w, 2, TNI_DIMS(rows, columns), numbers) != TN_OK) tni_drop(&w);
    }
    tni_scratch_release(&scratch, NULL);
    tn_tensor_destroy(dense);
    return w;
}

/* Numbers of a core between the order of a train [r,o,i,s] and that of the layer [o,s,r,i], whose bonds are R and S. */
static void tni_tt_linear_order(const int64_t *train, const int64_t *core, double *a, double *b, bool back)
{
    const int64_t r = train[0], s = train[2], in = core[3], out = core[0];
    for (int64_t x = 0; x < r; x++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++)
                for (int64_t y = 0; y < s; y++) {
                    double *p = a + ((x * out + o) * in + i) * s + y, *q = b + ((o * core[1] + y) * core[2] + x) * in + i;
                    if (back) *p = *q;
                    else *q = *p;
                }
}

static int64_t tni_tt_linear_most(const tn_tt_linear *m)
{
    int64_t most = 0;
    for (int64_t k = 0; k < m->desc.count; k++) most = tni_max(most, tn_tensor_count(m->core[k]));
    return most;
}

tn_status tn_tt_linear_assign_tt(const tn_tt_linear *m, const tn_tt *tt)
{
    if (!tni_from_tt_given("tt_linear_assign_tt", m ? m->core[0] : NULL, tt)) return TN_ERR_ARG;
    if (tt->count != m->desc.count)
        return tni_fail(tt->ctx, TN_ERR_SHAPE, "tt_linear_assign_tt: the train has %lld axes, expected %lld",
                        (long long)tt->count, (long long)m->desc.count);
    if (!tni_tt_is_matrix(tt, "tt_linear_assign_tt", m->desc.out, m->desc.in)) return TN_ERR_SHAPE;
    for (int64_t k = 0; k < tt->count; k++)
        if (tt->core[k]->shape[2] > m->desc.bond)
            return tni_fail(tt->ctx, TN_ERR_SHAPE, "tt_linear_assign_tt: core %lld is %s, expected bonds up to %lld",
                            (long long)k, TNI_SHAPE(tt->core[k]), (long long)m->desc.bond);
    tni_scratch w = tni_scratch_begin(tt->ctx, "tt_linear_assign_tt");
    double     *core = tni_take_f64(&w, tni_tt_linear_most(m), 1), *scratch = tni_take_f64(&w, tni_tt_largest_core(tt), 1);
    tn_status   s = w.failed ? TN_ERR_MEMORY : TN_OK;
    for (int64_t k = 0; k < tt->count && s == TN_OK; k++)    /* all are checked before the first is written */
        s = tni_read_scaled(tt->ctx, "tt_linear_assign_tt", "a core", tt->core[k], scratch, NULL);
    for (int64_t k = 0; k < tt->count && s == TN_OK; k++) {
        const int64_t n = tn_tensor_count(m->core[k]);
        if ((s = tn_read(tt->core[k], TN_F64, scratch, tn_tensor_count(tt->core[k]))) != TN_OK) break;
        memset(core, 0, (size_t)n * sizeof *core);
        tni_tt_linear_order(tt->core[k]->shape, m->core[k]->shape, scratch, core, false);
        s = tn_write(m->core[k], TN_F64, core, n);
    }
    return tni_scratch_end(&w, s);
}

tn_tt *tn_tt_from_tt_linear(tn_ctx *ctx, const tn_tt_linear *m)
{
    if (!tni_usable(ctx, m ? m->core[0] : NULL, "tt_from_tt_linear", "the layer")) return NULL;
    const int64_t most = tni_tt_linear_most(m);
    tni_scratch   w = tni_scratch_begin(ctx, "tt_from_tt_linear");
    double       *core = tni_take_f64(&w, most, 1), *scratch = tni_take_f64(&w, most, 1);
    tn_status     s = TN_OK;
    tn_tt        *tt = w.failed ? NULL : tni_tt_make(w.ctx, "tt_from_tt_linear", m->desc.count);
    for (int64_t k = 0; tt && s == TN_OK && k < tt->count; k++) {
        const int64_t *n = m->core[k]->shape;
        int64_t train[3] = {n[2], n[0] * n[3], n[1]};
        if ((s = tn_read(m->core[k], TN_F64, scratch, tn_tensor_count(m->core[k]))) != TN_OK) break;
        tni_tt_linear_order(train, n, core, scratch, true);
        s = tni_tt_put(tt, "tt_from_tt_linear", k, train[0], train[1], train[2], core);
    }
    tni_scratch_release(&w, NULL);
    return tt ? tni_tt_done(tt, s) : NULL;
}
#endif /* TN_NO_OPERATOR */

#endif /* TN_NO_MPS */
