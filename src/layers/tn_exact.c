#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"

#ifndef TN_NO_MPS
/* ---- exact layers ------------------------------------------------------- >>tn-attention-exact */

/* Zeroed numbers of A, B, vL and vR, one after the other, to be written by tni_tna_write. */
static double *tni_tna_numbers(tni_scratch *w, const tn_tn_attention *layer)
{
    return tni_take_zeros(w, 1, tni_plus(tni_plus(tn_tensor_count(layer->a), tn_tensor_count(layer->b)),
                                         tni_area(2, layer->desc.bond)));
}

/* Writes and frees the numbers. On failure, or if v is NULL, removes the layer, whose parameters began at `before`. */
static tn_status tni_tna_write(tni_scratch *w, tn_params *ps, int64_t before, tn_tn_attention *layer, double *v)
{
    const int64_t a = v ? tn_tensor_count(layer->a) : 0, b = v ? tn_tensor_count(layer->b) : 0, D = layer->desc.bond;
    bool          done = v && tn_write(layer->a, TN_F64, v, a) == TN_OK && tn_write(layer->b, TN_F64, v + a, b) == TN_OK;
    if (done && layer->left)
        done = tn_write(layer->left, TN_F64, v + a + b, D) == TN_OK
               && tn_write(layer->right, TN_F64, v + a + b + D, D) == TN_OK;
    return tni_scratch_end(w, tni_layer_done(ps, before, done, layer, sizeof *layer));
}

/* Bond 2p + s: p is the state of the last cell, s the guess of the next one, which that one has to confirm. */
tn_status tn_tn_attention_from_rules(tn_params *ps, const char *name, const int *rules, int64_t count, tn_boundary boundary,
                                     tn_tn_attention *layer)
{
    const int64_t before = tn_params_count(ps);
    tn_status     s;
    if (!rules) return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "tn_attention_from_rules: rules are NULL");
    if (!tni_is_extent(count))
        return tni_fail(tn_params_ctx(ps), TN_ERR_SHAPE, "tn_attention_from_rules: count is %lld, expected 1 to 2^31 - 2",
                        (long long)count);
    if (boundary != TN_BOUNDARY_VECTORS && boundary != TN_BOUNDARY_CLOSED)
        return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "tn_attention_from_rules: boundary is %d, expected "
                        "TN_BOUNDARY_CLOSED or TN_BOUNDARY_VECTORS", (int)boundary);
    for (int64_t o = 0; o < count; o++)
        if (rules[o] < 0 || rules[o] > 255)
            return tni_fail(tn_params_ctx(ps), TN_ERR_ARG, "tn_attention_from_rules: rule %lld is %d, expected 0 to 255",
                            (long long)o, rules[o]);
    tn_tn_attention_desc d = TNI_ZERO;
    d.in = 2;
    d.bond = 4;
    d.out = count;
    d.boundary = boundary;
    if ((s = tn_tn_attention_init(ps, name, &d, layer)) != TN_OK) return s;
    tni_scratch w = tni_scratch_begin(tn_params_ctx(ps), "tn_attention");
    double     *a = tni_tna_numbers(&w, layer), *b = a ? a + 4 * 4 * 2 : NULL;
    for (int p = 0; a && p < 2; p++)
        for (int c = 0; c < 2; c++)
            for (int r = 0; r < 2; r++) {
                a[((2 * p + c) * 4 + 2 * c + r) * 2 + c] = 1;
                for (int64_t o = 0; o < count; o++)
                    b[((2 * p * 4 + r) * count + o) * 2 + c] = rules[o] >> (4 * p + 2 * c + r) & 1 ? 1 : -1;
            }
    if (a) {                                    /* cells outside are 0: vL is (1,1,0,0), vR is (1,0,1,0) */
        double *ends = b + 4 * 4 * 2 * count;
        ends[0] = ends[1] = ends[4] = ends[6] = 1;
    }
    return tni_tna_write(&w, ps, before, layer, a);
}

static bool tni_tna_numbers_of(tn_ctx *ctx, const tn_tensor *t, const char *what, int64_t rows, int64_t columns, double *v)
{
    if (!tni_is_real(ctx, t, "tn_attention_from_linear_attention", what)) return false;
    if (t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns) return tn_read(t, TN_F64, v, rows * columns) == TN_OK;
    return tni_fail(ctx, TN_ERR_SHAPE, "tn_attention_from_linear_attention: %s is %s, expected [%lld,%lld]", what, TNI_SHAPE(t),
                    (long long)rows, (long long)columns), false;
}

/* Bond 0 until the pair (v[a],k[b]) of one site is taken, then 1 + a m + b until q meets it. With a ring, or with both
   ends at 0, each product has exactly one of these pairs; unit vectors make all other sites count 1. */
TNI_COLD tn_status tn_tn_attention_from_linear_attention(tn_params *ps, const char *name, const tn_tensor *q, const tn_tensor *k,
                                                const tn_tensor *v, bool causal, tn_tn_attention *layer)
{
    tn_ctx       *ctx = tn_params_ctx(ps);
    const int64_t m = q && q->rank == 2 ? q->shape[0] : 1, in = q && q->rank == 2 ? q->shape[1] : 1;
    const int64_t out = v && v->rank == 2 ? v->shape[0] : 1;
    const int64_t before = tn_params_count(ps);
    const int64_t D = out * m + 1;
    tni_scratch   w = tni_scratch_begin(ctx, "tn_attention_from_linear_attention");
    tn_tn_attention_desc d = TNI_ZERO;
    d.in = in;
    d.out = out;
    d.bond = D;
    d.square = d.unit_inputs = true;
    d.boundary = causal ? TN_BOUNDARY_FIRST : TN_BOUNDARY_CLOSED;
    d.causal = causal;
    if (!layer) return tni_fail(ctx, TN_ERR_ARG, "tn_attention_from_linear_attention: layer is NULL");
    if (!tni_usable(ctx, q, "tn_attention_from_linear_attention", "q")) return tn_ctx_status(ctx);
    double   *wq = tni_take_f64(&w, m, in), *wk = tni_take_f64(&w, m, in), *wv = tni_take_f64(&w, out, in);
    if (w.failed) return tni_scratch_end(&w, TN_ERR_MEMORY);
    bool      read = tni_tna_numbers_of(ctx, q, "q", m, in, wq) && tni_tna_numbers_of(ctx, k, "k", m, in, wk)
                     && tni_tna_numbers_of(ctx, v, "v", out, in, wv);
    tn_status status = read ? tn_tn_attention_init(ps, name, &d, layer) : tn_ctx_status(ctx);
    if (status != TN_OK) return tni_scratch_end(&w, status);
    double *a = tni_tna_numbers(&w, layer), *b = a ? a + D * D * in * in : NULL;
    for (int64_t i = 0; a && i < D; i++) for (int64_t t = 0; t < in; t++) a[((i * D + i) * in + t) * in + t] = 1;
    for (int64_t i = 0; a && i < out; i++)
        for (int64_t j = 0; j < m; j++)
            for (int64_t s = 0; s < in; s++) {
                const int64_t pair = 1 + i * m + j;
                for (int64_t t = 0; t < in; t++) a[(pair * in + t) * in + s] += wv[i * in + t] * wk[j * in + s];
                b[(pair * D * out + i) * in + s] = wq[j * in + s];
            }
    return tni_tna_write(&w, ps, before, layer, a);
}

/* Bond 0 before the first of the two sites, 1 + d t + s between them: t and s have changed places there; d^2 + 1 after. */
tn_status tn_tn_attention_from_permutations(tn_params *ps, const char *name, int64_t in, tn_tn_attention *layer)
{
    const int64_t before = tn_params_count(ps);
    int64_t       D;
    tn_status     status;
    if (in < 1 || in > 46339)                                    /* D is an extent, too */
        return tni_fail(tn_params_ctx(ps), TN_ERR_SHAPE, "tn_attention_from_permutations: in is %lld, expected 1 to 46339",
                        (long long)in);
    tn_tn_attention_desc d = TNI_ZERO;
    d.in = in;
    d.bond = D = in * in + 2;
    d.square = d.unit_inputs = true;
    d.boundary = TN_BOUNDARY_VECTORS;
    if ((status = tn_tn_attention_init(ps, name, &d, layer)) != TN_OK) return status;
    tni_scratch w = tni_scratch_begin(tn_params_ctx(ps), "tn_attention");
    double     *a = tni_tna_numbers(&w, layer);
    for (int64_t t = 0; a && t < in; t++) {
        for (int64_t i = 0; i < D; i++) a[((i * D + i) * in + t) * in + t] = 1;
        for (int64_t s = 0; s < in; s++) {
            a[((1 + in * t + s) * in + t) * in + s] = 1;
            a[(((1 + in * t + s) * D + D - 1) * in + s) * in + t] = 1;
        }
    }
    if (a) {
        const int64_t count = D * D * in * in;
        memcpy(a + count, a, (size_t)count * sizeof(double));
        a[2 * count] = a[2 * count + 2 * D - 1] = 1;            /* vL is e_0, vR the last unit vector */
    }
    return tni_tna_write(&w, ps, before, layer, a);
}

/* ---- its rule ----------------------------------------------------------- >>tn-attention-rule */

/* Outputs z [2^n,n] of all strings, scaled to about one; cell j of string i is bit j of i. */
static bool tni_rule_outputs(tn_ctx *ctx, const tn_tn_attention *layer, int64_t n, double *bits, double *z)
{
    const int64_t strings = (int64_t)1 << n;
    double        largest = 0;
    for (int64_t i = 0; i < strings; i++)
        for (int64_t j = 0; j < n; j++) {
            bits[2 * (i * n + j)] = !(i >> j & 1);
            bits[2 * (i * n + j) + 1] = (double)(i >> j & 1);
        }
    tn_tensor *y = tn_tn_attention_forward(ctx, layer, tn_tensor_from(ctx, 3, TNI_DIMS(strings, n, 2), TN_F64, bits));
    if (y && layer->desc.out == 2) y = tn_sub(ctx, tn_slice(y, 2, 1, 2), tn_slice(y, 2, 0, 1));
    y = tn_reshape(y, 2, TNI_DIMS(strings, n));
    if (!y || tn_read(y, TN_F64, z, strings * n) != TN_OK) return false;
    for (int64_t i = 0; i < strings * n; i++) {
        largest = fmax(largest, fabs(z[i]));
        if (fabs(z[i]) < HUGE_VAL) continue;
        return tni_fail(ctx, TN_ERR_NONFINITE, "tn_attention_rule: an output of the layer is %g, expected finite numbers",
                        z[i]), false;
    }
    for (int64_t i = 0; i < strings * n && largest > 0; i++) z[i] /= largest;
    return true;
}

/* The neighbourhood 4 l + 2 c + r of cell j of string i. */
static int tni_rule_around(int64_t i, int64_t j, int64_t n, bool ring)
{
    const int l = j > 0 ? (int)(i >> (j - 1) & 1) : ring ? (int)(i >> (n - 1) & 1) : 0;
    const int r = j + 1 < n ? (int)(i >> (j + 1) & 1) : ring ? (int)(i & 1) : 0;
    return 4 * l + 2 * (int)(i >> j & 1) + r;
}

static void tni_rule_read(const double *z, int64_t n, bool ring, tn_rule_reading *out)
{
    const int64_t strings = (int64_t)1 << n;
    double        square = 0, count[8] = {0, 0, 0, 0, 0, 0, 0, 0}, agree = 0, apart = 0;
    for (int64_t i = 0; i < strings; i++)
        for (int64_t j = 0; j < n; j++) {
            int k = tni_rule_around(i, j, n, ring);
            out->mean[k] += z[i * n + j];
            count[k]++;
            square += z[i * n + j] * z[i * n + j];
        }
    double size = sqrt(square / (double)(strings * n));
    if (size == 0) size = 1;
    for (int k = 0; k < 8; k++) {
        out->mean[k] /= count[k] * size;
        out->rule |= (out->mean[k] > 0) << k;
    }
    out->margin = HUGE_VAL;
    for (int64_t i = 0; i < strings; i++)
        for (int64_t j = 0; j < n; j++) {
            const int64_t other = i ^ (int64_t)1 << j;
            const int     c = (int)(i >> j & 1), at = tni_rule_around(i, j, n, ring);
            const double  goal = out->rule >> at & 1 ? 1 : -1, next = out->rule >> (at ^ 2) & 1 ? 1 : -1;
            const double  here = z[i * n + j], there = z[other * n + j], length = hypot(here, there);
            const double  dot = length > 0 ? (here * goal + there * next) / (length * sqrt(2.0)) : 0;
            agree += here * goal > 0;
            out->margin = fmin(out->margin, here * goal / size);
            if (c == 0) apart += 2 - 2 * dot;
        }
    out->agree = agree / (double)(strings * n);
    out->distance = apart > 0 ? sqrt(apart / (double)(strings / 2 * n)) : 0;
}

tn_status tn_tn_attention_rule(tn_ctx *ctx, const tn_tn_attention *layer, int64_t n, tn_rule_reading *out)
{
    const int64_t cells = n >= 3 && n <= 14 ? n << n : 0;
    tni_scratch   w = tni_scratch_begin(ctx, "tn_attention_rule");
    if (!out) return tni_fail(ctx, TN_ERR_ARG, "tn_attention_rule: out is NULL");
    memset(out, 0, sizeof *out);
    if (!tni_layer_given(ctx, layer, "tn_attention_rule")) return TN_ERR_ARG;
    if (!tni_within(ctx, "tn_attention_rule", "n", n, 3, 14)) return TN_ERR_ARG;
    if (layer->desc.in != 2 || layer->desc.out > 2)
        return tni_fail(ctx, TN_ERR_SHAPE, "tn_attention_rule: in is %lld and out %lld, expected 2, and 1 or 2",
                        (long long)layer->desc.in, (long long)layer->desc.out);
    double *bits = tni_take_f64(&w, 2, cells), *z = tni_take_f64(&w, 1, cells);
    tn_mark mark = tn_arena_mark(ctx);
    bool    done = !w.failed && tni_rule_outputs(ctx, layer, n, bits, z);
    if (done) tni_rule_read(z, n, layer->desc.boundary == TN_BOUNDARY_CLOSED, out);
    if (!tni_recording(ctx)) tn_arena_release(ctx, mark);
    return tni_scratch_end(&w, done ? TN_OK : tn_ctx_status(ctx));
}
#endif /* TN_NO_MPS */
