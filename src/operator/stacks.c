#include "core/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- stacks ------------------------------------------------------------- >>cp-stacks-impl
   Layers as plain matrices: with `constant` each but the last has one output and one term more, 1 = 1 * 1, so that the stack
   is a homogeneous polynomial of [x;1]. Then, with f = a, g = b and G_0 = I,
       tree                G_l = P C P'^T,  C = (W G W'^T) * (V G V'^T);  layer-symmetrised: half of that and of
                           (W G V'^T) * (V G W'^T);  <a,b> = tr G
       two layers exactly  M_k = sum_p W2_kp S_p, N_k = sum_p V2_kp S_p, S_p the symmetric matrices of the first layer:
                           C_kl = I_0/3 + 2/3 tr(M_k N'_l N_k M'_l),  I_0 = 1/2 [<M_k,M'_l><N_k,N'_l> + <M_k,N'_l><N_k,M'_l>]
                           <a,b> = sum C * (P2^T P2')
       any depth           1/d! E[a(z) conj b(z)], d = 2^layers, z complex normal with E|z_i|^2 = 1; on the sphere |z| = 1
                           with binom(n + d - 1, d) in place of 1/d! */
typedef struct tni_layer { int64_t out, h, n; double *p, *w, *v; int shift; } tni_layer;  /* [out,h] 2^shift, [h,n], [h,n] */

enum { TNI_STACK_LAYERS = 16 };

typedef struct tni_stack {
    tn_ctx    *ctx;
    int        layers;
    tni_layer *layer[2];                /* of a and of b                    */
    int64_t    extent;                  /* the largest extent of any matrix */
    tni_host   host;
} tni_stack;

/* The layer in double, in memory of w, scaled as in >>cp-pairs; the one, if it is carried, is scaled like all outputs. */
TNI_COLD static tn_status tni_layer_read(tni_scratch *w, const tn_cp *cp, bool carry, tni_layer *l)
{
    tni_terms t;
    l->out = cp->out + carry;
    l->h = cp->terms + carry;
    l->n = cp->in[0];
    l->p = tni_take_zeros(w, l->out, l->h);
    l->w = tni_take_zeros(w, l->h, l->n);
    l->v = tni_take_zeros(w, l->h, l->n);
    const tni_taken *mark = w->newest;
    tn_status        s = tni_terms_begin(&t, w, cp, tni_max(1, cp->terms));
    if (s == TN_OK && cp->terms > 0) s = tni_terms_load(&t, 0, cp->terms);
    if (s == TN_OK) {
        l->shift = carry && t.shift < 0 ? 0 : t.shift;
        for (int64_t i = 0; i < cp->out; i++)
            for (int64_t j = 0; j < cp->terms; j++)
                l->p[i * l->h + j] = tni_times_power(t.p[i * cp->terms + j], t.shift - l->shift);
        memcpy(l->w, t.f[0], sizeof *l->w * (size_t)(cp->terms * l->n));
        memcpy(l->v, t.f[1], sizeof *l->v * (size_t)(cp->terms * l->n));
        if (carry) l->p[l->out * l->h - 1] = tni_times_power(1, -l->shift);
        if (carry) l->w[l->h * l->n - 1] = l->v[l->h * l->n - 1] = 1;
    }
    tni_scratch_release(w, mark);
    return s;
}

/* The exponent that the layers' shifts give to the outputs, which are squared from layer to layer. */
static int tni_stack_shift(const tni_stack *t, const tni_layer *l)
{
    int shift = 0;
    for (int i = 0; i < t->layers; i++) shift = 2 * shift + l[i].shift;
    return shift;
}

enum { TNI_STACK_BLOCK = 256 };         /* columns of C at a time */

/* <a,b> 2^-shift of the networks of tensors, by one of the two rules. shift is even if a is b. */
static tn_status tni_stack_tree(const tni_stack *t, const tni_layer *a, const tni_layer *b, bool symmetric, double *inner,
                                int *shift)
{
    const tni_host *h = &t->host;
    int64_t high = 1, wide = 1;
    int     l;
    for (l = 0; l < t->layers; l++) {
        high = tni_max(high, tni_max(a[l].h, b[l].h));
        wide = tni_max(wide, tni_max(a[l].out, b[l].out));
    }
    const int64_t deep = t->layers > 1, tall = tni_max(high, wide);
    tni_scratch   w = tni_scratch_begin(t->ctx, "stack_inner");
    double       *g = tni_take_f64(&w, tni_area(deep, wide), wide), *next = tni_take_f64(&w, tni_area(deep, wide), wide);
    double       *x = tni_take_f64(&w, tni_area(deep, high), wide), *y = tni_take_f64(&w, tni_area(deep, high), wide);
    double       *c = tni_take_f64(&w, tall, TNI_STACK_BLOCK), *d = tni_take_f64(&w, tall, TNI_STACK_BLOCK);
    double       *e = tni_take_f64(&w, tall, TNI_STACK_BLOCK);
    tn_status     s = w.failed ? TN_ERR_MEMORY : TN_OK;
    for (*inner = 0, *shift = 0, l = 0; s == TN_OK && l < t->layers; l++) {
        const tni_layer *p = a + l, *q = b + l;
        bool             last = l == t->layers - 1;
        const double    *left[2] = {l > 0 ? x : p->w, l > 0 ? y : p->v};   /* G is the identity at first */
        const double    *right[2] = {q->w, q->v};
        if (l > 0) {
            h->by->gemm(h, p->h, q->n, p->n, 1, tni_rows(p->w, p->n), tni_rows(g, q->n), 0, tni_rows(x, q->n));
            h->by->gemm(h, p->h, q->n, p->n, 1, tni_rows(p->v, p->n), tni_rows(g, q->n), 0, tni_rows(y, q->n));
        }
        for (int64_t j = 0; j < q->h; j += TNI_STACK_BLOCK) {
            int64_t n = tni_min(TNI_STACK_BLOCK, q->h - j);
            for (int pass = 0; pass <= symmetric; pass++) {
                h->by->gemm(h, p->h, n, q->n, symmetric ? 0.5 : 1, tni_rows((double *)left[0], q->n),
                            tni_transposed(tni_rows((double *)right[pass] + j * q->n, q->n)), 0, tni_rows(d, n));
                h->by->gemm(h, p->h, n, q->n, 1, tni_rows((double *)left[1], q->n),
                            tni_transposed(tni_rows((double *)right[1 - pass] + j * q->n, q->n)), 0, tni_rows(e, n));
                for (int64_t at = 0; at < p->h * n; at++) c[at] = (pass ? c[at] : 0) + d[at] * e[at];
            }
            h->by->gemm(h, p->out, n, p->h, 1, tni_rows(p->p, p->h), tni_rows(c, n), 0, tni_rows(d, n));
            if (!last)
                h->by->gemm(h, p->out, q->out, n, 1, tni_rows(d, n), tni_transposed(tni_rows(q->p + j, q->h)), j > 0 ? 1 : 0,
                            tni_rows(next, q->out));
            for (int64_t i = 0; last && i < p->out; i++) *inner += h->by->dot(n, d + i * n, q->p + i * q->h + j);
        }
        if (!last && q->h == 0) memset(next, 0, sizeof *next * (size_t)(p->out * q->out));
        *shift = 2 * *shift + p->shift + q->shift;
        if (last) break;
        int exponent = -tni_exponent(tni_unit_scale(tni_largest(p->out, q->out, tni_rows(next, q->out))));
        exponent -= exponent % 2;
        for (int64_t at = 0; at < p->out * q->out; at++) g[at] = ldexp(next[at], -exponent);
        *shift += exponent;
    }
    return tni_scratch_end(&w, s);
}

/* M_k [h2,n,n]: the symmetric matrices of the first layer in the combinations of the rows of f [h2,p] */
static void tni_stack_forms(const tni_stack *t, const tni_layer *first, const double *f, int64_t terms, double *d,
                            double *scaled, double *to)
{
    int64_t n = first->n, h = first->h;
    for (int64_t k = 0; k < terms; k++, to += n * n) {
        t->host.by->gemm(&t->host, 1, h, first->out, 1, tni_rows((double *)f + k * first->out, first->out),
                         tni_rows(first->p, h), 0, tni_rows(d, h));
        for (int64_t i = 0; i < h; i++) for (int64_t j = 0; j < n; j++) scaled[i * n + j] = d[i] * first->w[i * n + j];
        t->host.by->gemm(&t->host, n, n, h, 1, tni_transposed(tni_rows(scaled, n)), tni_rows(first->v, n), 0, tni_rows(to, n));
        tni_symmetrise(n, to);
    }
}

/* Two layers exactly. forms: M, N, M', N' */
static tn_status tni_stack_exact(const tni_stack *t, const tni_layer *a, const tni_layer *b, double *inner)
{
    int64_t     n = a->n, ha = a[1].h, hb = b[1].h, k;
    double     *form[4], *product[4];
    tni_scratch w = tni_scratch_begin(t->ctx, "stack_inner");
    double     *x = tni_take_f64(&w, tni_area(hb, n), n), *y = tni_take_f64(&w, tni_area(hb, n), n);
    double     *d = tni_take_f64(&w, 1, t->extent), *scaled = tni_take_f64(&w, t->extent, n);
    double     *pp = tni_take_f64(&w, ha, hb);
    for (int m = 0; m < 4; m++) {
        form[m] = tni_take_f64(&w, tni_area(m < 2 ? ha : hb, n), n);
        product[m] = tni_take_f64(&w, ha, hb);
    }
    if (!w.failed) {
        const tni_host *h = &t->host;
        for (int m = 0; m < 4; m++) {
            const tni_layer *two = m < 2 ? a : b;
            tni_stack_forms(t, two, m % 2 ? two[1].v : two[1].w, two[1].h, d, scaled, form[m]);
        }
        for (int m = 0; m < 4; m++)                          /* <M,M'>, <M,N'>, <N,M'>, <N,N'> */
            h->by->gemm(h, ha, hb, n * n, 1, tni_rows(form[m / 2], n * n), tni_transposed(tni_rows(form[2 + m % 2], n * n)), 0,
                        tni_rows(product[m], hb));
        h->by->gemm(h, ha, hb, a[1].out, 1, tni_transposed(tni_rows(a[1].p, ha)), tni_rows(b[1].p, hb), 0, tni_rows(pp, hb));
        for (*inner = 0, k = 0; k < ha; k++) {
            h->by->gemm(h, hb * n, n, n, 1, tni_rows(form[3], n), tni_rows(form[0] + k * n * n, n), 0, tni_rows(x, n));
            h->by->gemm(h, hb * n, n, n, 1, tni_rows(form[2], n), tni_rows(form[1] + k * n * n, n), 0, tni_rows(y, n));
            for (int64_t l = 0; l < hb; l++) {               /* tr(M_k N'_l N_k M'_l) = <(N'_l M_k)^T, M'_l N_k> */
                const double *xl = x + l * n * n, *yl = y + l * n * n;
                double trace = 0, i0 = 0.5 * (product[0][k * hb + l] * product[3][k * hb + l]
                                              + product[1][k * hb + l] * product[2][k * hb + l]);
                for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++) trace += xl[j * n + i] * yl[i * n + j];
                *inner += pp[k * hb + l] * (i0 + 2 * trace) / 3;
            }
        }
    }
    return tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : TN_OK);
}

enum { TNI_STACK_ROWS = 128 };          /* samples that pass through the layers together */

/* z [2,rows,n], real and imaginary parts: |z_i|^2 is exponential, its angle uniform; or scaled to the sphere. */
static void tni_stack_draw(uint64_t seed, int64_t first, int64_t rows, int64_t n, bool sphere, double *z)
{
    uint32_t word[4];
    for (int64_t r = 0; r < rows; r++) {
        double *re = z + r * n, *im = z + (rows + r) * n, size = 0;
        for (int64_t i = 0; i < n; i++) {
            tni_random_words(seed, 0, 0, (uint64_t)((first + r) * n + i), word);
            double u = ((double)word[0] * 2097152.0 + (double)(word[1] >> 11) + 0.5) * (1.0 / 9007199254740992.0);
            double angle = ((double)word[2] + (double)word[3] / 4294967296.0) * (6.283185307179586 / 4294967296.0);
            double radius = sqrt(-log(u));
            re[i] = radius * cos(angle);
            im[i] = radius * sin(angle);
            size += radius * radius;
        }
        for (int64_t i = 0; sphere && i < n; i++) { re[i] /= sqrt(size); im[i] /= sqrt(size); }
    }
}

/* y = P (W z * V z) for complex rows z [2,rows,n]; y [2,rows,out] replaces z. e: [4,rows,extent] */
static void tni_stack_layer(const tni_stack *t, const tni_layer *l, int64_t rows, double *z, double *e)
{
    const tni_host *h = &t->host;
    int64_t         size = rows * l->h;
    double   *w = e, *v = e + 2 * size;
    h->by->gemm(h, 2 * rows, l->h, l->n, 1, tni_rows(z, l->n), tni_transposed(tni_rows(l->w, l->n)), 0, tni_rows(w, l->h));
    h->by->gemm(h, 2 * rows, l->h, l->n, 1, tni_rows(z, l->n), tni_transposed(tni_rows(l->v, l->n)), 0, tni_rows(v, l->h));
    for (int64_t i = 0; i < size; i++) {
        double re = w[i] * v[i] - w[size + i] * v[size + i], im = w[i] * v[size + i] + w[size + i] * v[i];
        w[i] = re;
        w[size + i] = im;
    }
    h->by->gemm(h, 2 * rows, l->out, l->h, 1, tni_rows(w, l->h), tni_transposed(tni_rows(l->p, l->h)), 0, tni_rows(z, l->out));
}

/* numbers [3,samples]: Re <a(z),b(z)>, |a(z)|^2, |b(z)|^2 */
static tn_status tni_stack_sample(const tni_stack *t, int64_t samples, uint64_t seed, bool sphere, double *numbers)
{
    int64_t     e = t->extent;
    tni_scratch w = tni_scratch_begin(t->ctx, "stack_inner");
    double     *z = tni_take_f64(&w, tni_area(4, TNI_STACK_ROWS), e);
    double     *scratch = tni_take_f64(&w, tni_area(4, TNI_STACK_ROWS), e);
    for (int64_t first = 0; first < samples && !w.failed; first += TNI_STACK_ROWS) {
        int64_t rows = tni_min(TNI_STACK_ROWS, samples - first), n = t->layer[0]->n, out = t->layer[0][t->layers - 1].out;
        double *y[2] = {z, z + 2 * rows * e};
        tni_stack_draw(seed, first, rows, n, sphere, y[0]);
        memcpy(y[1], y[0], sizeof *z * (size_t)(2 * rows * n));
        for (int side = 0; side < 2; side++)
            for (int l = 0; l < t->layers; l++) tni_stack_layer(t, t->layer[side] + l, rows, y[side], scratch);
        for (int64_t r = 0; r < rows; r++) {
            double *to = numbers + first + r;
            to[0] = to[samples] = to[2 * samples] = 0;
            for (int64_t i = r * out; i < (r + 1) * out; i++) {
                double ar = y[0][i], ai = y[0][rows * out + i], br = y[1][i], bi = y[1][rows * out + i];
                to[0] += ar * br + ai * bi;
                to[samples] += ar * ar + ai * ai;
                to[2 * samples] += br * br + bi * bi;
            }
        }
    }
    return tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY : TN_OK);
}

static double tni_mean(int64_t n, const double *x)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

/* Means, and standard errors: of the mean of x; of x/sqrt(a b) by its derivatives. */
static void tni_stack_estimate(int64_t samples, const double *x, double factor, tn_cp_stack_result *out)
{
    const double *a = x + samples, *b = a + samples;
    double mx = tni_mean(samples, x), ma = tni_mean(samples, a), mb = tni_mean(samples, b), size = sqrt(ma) * sqrt(mb);
    double inner = 0, cosine = 0, rest = (double)samples * (double)(samples - 1);
    out->inner = factor * mx;
    out->norm_a = sqrt(factor) * sqrt(ma);
    out->norm_b = sqrt(factor) * sqrt(mb);
    if (size > 0) out->cosine = mx / size;
    for (int64_t i = 0; i < samples; i++) {
        double u = size > 0 ? x[i] / size - out->cosine / 2 * (a[i] / ma + b[i] / mb) : 0;
        inner += (x[i] - mx) * (x[i] - mx);
        cosine += u * u;
    }
    out->inner_error = factor * sqrt(inner / rest);
    out->cosine_error = sqrt(cosine / rest);
}

/* Inner product and norms from sums times powers of two. The cosine is right where these are out of range. */
TNI_COLD static tn_status tni_stack_store(const tni_stack *t, const double *sum, const int *shift, tn_cp_stack_result *out)
{
    tn_status s = TN_OK;
    out->inner = sum[0];
    out->norm_a = sqrt(sum[1] > 0 ? sum[1] : 0);             /* of a zero stack rounding may leave less than 0 */
    out->norm_b = sqrt(sum[2] > 0 ? sum[2] : 0);
    if (sum[1] > 0 && sum[2] > 0)
        out->cosine = ldexp(out->inner / out->norm_a / out->norm_b, shift[0] - shift[1] / 2 - shift[2] / 2);
    if ((s = tni_scale_result(t->ctx, &out->norm_a, shift[1] / 2, "stack_inner")) == TN_OK
        && (s = tni_scale_result(t->ctx, &out->norm_b, shift[2] / 2, "stack_inner")) == TN_OK)
        s = tni_scale_result(t->ctx, &out->inner, shift[0], "stack_inner");
    return s;
}

static tn_status tni_stack_run(const tni_stack *t, const tn_cp_stack_desc *d, const tn_cp *const *a, const tn_cp *const *b,
                               tn_cp_stack_result *out)
{
    double    degree = ldexp(1.0, t->layers), n = (double)t->layer[0]->n, sum[3];
    int       shift[3], own[2];
    tn_status s = TN_OK;
    for (int k = 0; k < 2; k++) own[k] = tni_stack_shift(t, t->layer[k]);
    if (out->method == TN_CP_STACK_SAMPLED) {
        tni_scratch w = tni_scratch_begin(t->ctx, "stack_inner");
        double     *numbers = tni_take_f64(&w, 3, out->samples);
        s = numbers ? tni_stack_sample(t, out->samples, d->seed, !d->gaussian, numbers) : TN_ERR_MEMORY;
        double factor = 0;
        for (double i = 0; i < degree; i++) factor += d->gaussian ? -log(i + 1) : log((n + i) / (i + 1));
        if (s == TN_OK) tni_stack_estimate(out->samples, numbers, exp(factor), out);
        tni_scratch_release(&w, NULL);
        if (s == TN_OK) s = tni_scale_result(t->ctx, &out->norm_a, own[0], "stack_inner");
        if (s == TN_OK) s = tni_scale_result(t->ctx, &out->norm_b, own[1], "stack_inner");
        if (s == TN_OK) s = tni_scale_result(t->ctx, &out->inner, own[0] + own[1], "stack_inner");
        if (s == TN_OK) out->inner_error = ldexp(out->inner_error, own[0] + own[1]);
        return s;
    }
    for (int k = 2; k >= 0 && s == TN_OK; k--) {             /* <b,b>, <a,a>, <a,b> */
        bool             same = t->layer[0] == t->layer[1];
        const tni_layer *layer[2] = {t->layer[k == 2], t->layer[k != 1]};
        if (k < 2 && same) { sum[k] = sum[2]; shift[k] = shift[2]; continue; }
        shift[k] = own[k == 2] + own[k != 1];
        if (out->method == TN_CP_STACK_TREE || t->layers > 2 || (t->layers == 2 && out->method == TN_CP_STACK_LAYER_SYMMETRISED))
            s = tni_stack_tree(t, layer[0], layer[1], out->method != TN_CP_STACK_TREE, &sum[k], &shift[k]);
        else if (t->layers == 2) s = tni_stack_exact(t, layer[0], layer[1], &sum[k]);
        else s = tni_cp_inner_host(k == 2 ? b[0] : a[0], k == 1 ? a[0] : b[0], &sum[k], &shift[k], "stack_inner");
    }
    return s == TN_OK ? tni_stack_store(t, sum, shift, out) : s;
}

/* Checks one stack: order 2, one context, extents that follow each other. */
TNI_COLD static tn_status tni_stack_takes(tn_ctx *ctx, const tn_cp *const *a, int layers, const char *name)
{
    for (int l = 0; l < layers; l++) {
        if (!a[l] || a[l]->ctx != ctx)
            return tni_fail(ctx, TN_ERR_ARG, "stack_inner: %s[%d] is %s", name, l, a[l] ? "of another context" : "NULL");
        if (!tni_cp_is_bilinear(a[l], "stack_inner")) return TN_ERR_SHAPE;
        if (a[l]->constant != a[0]->constant)
            return tni_fail(ctx, TN_ERR_SHAPE, "stack_inner: %s[%d] %s a constant input, expected the same as %s[0]", name,
                            l, a[l]->constant ? "has" : "lacks", name);
        if (l > 0 && a[l]->in[0] - a[l]->constant != a[l - 1]->out)
            return tni_fail(ctx, TN_ERR_SHAPE, "stack_inner: %s[%d] has %lld inputs%s, expected %lld as %s[%d] has outputs",
                            name, l, (long long)(a[l]->in[0] - a[l]->constant),
                            a[l]->constant ? " beside the constant one" : "", (long long)a[l - 1]->out, name, l - 1);
    }
    return TN_OK;
}

/* Checks everything, and fills in the defaults of the method and of the number of samples. */
TNI_COLD static tn_status tni_stack_check(tn_ctx *ctx, const tn_cp *const *a, const tn_cp *const *b, int layers,
                                 const tn_cp_stack_desc *desc, tn_cp_stack_result *out)
{
    tn_status s;
    if (!tni_within(ctx, "stack_inner", "layers", layers, 1, TNI_STACK_LAYERS)
        || !tni_within(ctx, "stack_inner", "method", (int)desc->method, 0, TN_CP_STACK_LAYER_SYMMETRISED)) return TN_ERR_ARG;
    out->method = desc->method != TN_CP_STACK_AUTO ? desc->method : layers <= 2 ? TN_CP_STACK_EXACT : TN_CP_STACK_SAMPLED;
    if (out->method == TN_CP_STACK_EXACT && layers > 2)
        return tni_fail(ctx, TN_ERR_ARG, "stack_inner: layers is %d, expected 1 or 2 for the exact method", layers);
    if (out->method == TN_CP_STACK_SAMPLED && (out->samples = desc->samples != 0 ? desc->samples : 4096) < 2)
        return tni_fail(ctx, TN_ERR_ARG, "stack_inner: samples is %lld, expected 2 or more, or 0", (long long)out->samples);
    if ((s = tni_stack_takes(ctx, a, layers, "a")) != TN_OK || (s = tni_stack_takes(ctx, b, layers, "b")) != TN_OK) return s;
    if (a[0]->constant != b[0]->constant)
        return tni_fail(ctx, TN_ERR_SHAPE, "stack_inner: a[0] %s a constant input, b[0] %s, expected the same",
                        a[0]->constant ? "has" : "lacks", b[0]->constant ? "has one" : "lacks it");
    if (a[0]->in[0] == b[0]->in[0] && a[layers - 1]->out == b[layers - 1]->out) return TN_OK;
    return tni_fail(ctx, TN_ERR_SHAPE, "stack_inner: a takes %lld inputs to %lld outputs, b %lld to %lld, expected the same",
                    (long long)a[0]->in[0], (long long)a[layers - 1]->out, (long long)b[0]->in[0],
                    (long long)b[layers - 1]->out);
}

tn_status tn_cp_stack_inner(const tn_cp *const *a, const tn_cp *const *b, int layers, const tn_cp_stack_desc *desc,
                            tn_cp_stack_result *out)
{
    static const tn_cp_stack_desc usual = {TN_CP_STACK_AUTO, 0, 0, false};
    const tn_cp *const *both[2] = {a, b};
    tni_layer all[2][TNI_STACK_LAYERS];
    bool      same = true;
    memset(all, 0, sizeof all);
    if (out) memset(out, 0, sizeof *out);
    if (!a || !b || !a[0]) return TN_ERR_ARG;
    tni_stack t = {a[0]->ctx, layers, {all[0], all[1]}, tni_max(2 * TNI_STACK_ROWS, TNI_STACK_BLOCK), TNI_ZERO};
    if (!out) return tni_fail(t.ctx, TN_ERR_ARG, "stack_inner: out is NULL, expected a place for the result");
    out->inner = out->norm_a = out->norm_b = out->cosine = (double)NAN;
    tn_status s = tni_stack_check(t.ctx, a, b, layers, desc ? desc : &usual, out);
    if (s != TN_OK) return s;
    for (int l = 0; l < layers; l++) same = same && a[l] == b[l];
    if (same) t.layer[1] = t.layer[0];
    tni_scratch w = tni_scratch_begin(t.ctx, "stack_inner");
    bool read = layers > 1 || out->method == TN_CP_STACK_TREE || out->method == TN_CP_STACK_SAMPLED;   /* else blocks are read */
    for (int l = 0; l < (same ? layers : 2 * layers) && s == TN_OK && read; l++) {
        const tn_cp *from = both[l / layers][l % layers];
        tni_layer   *to = &all[l / layers][l % layers];
        s = tni_layer_read(&w, from, from->constant && l % layers < layers - 1, to);
        t.extent = tni_max(tni_max(t.extent, to->out), tni_max(to->h, to->n));
    }
    t.host = tni_take_host(&w, t.extent);
    if (s == TN_OK) s = w.failed ? TN_ERR_MEMORY : tni_stack_run(&t, desc ? desc : &usual, a, b, out);
    if (tni_scratch_end(&w, s) == TN_OK) return TN_OK;
    double cosine = out->cosine;
    out->inner = out->norm_a = out->norm_b = out->cosine = out->inner_error = (double)NAN;
    if (s == TN_ERR_NONFINITE) out->cosine = cosine;
    return s;
}

#endif /* TN_NO_ANALYSIS */
