#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"
#include "layers/inner.h"
#include "operator/operator.h"
#include "mps/inner.h"

#ifndef TN_NO_MPS
#ifndef TN_NO_OPERATOR
/* ---- trains and layers ---------------------------------------------------- >>mps-trains-impl */

/* Cores of one train, which are filled in as doubles: core(k, p) writes [r,n,s]. */
typedef struct tni_mps_cores {
    const tn_mps *m;
    double       *cores, *label, *left, *right;
    int64_t       place;
} tni_mps_cores;

static bool tni_mps_read(tni_scratch *w, const tn_mps *m, tni_mps_cores *c)
{
    c->m = m;
    c->place = m->label ? tni_mps_place(&m->desc, m->desc.sites) : -1;
    c->cores = tni_take_numbers(w, m->cores);
    c->label = m->label ? tni_take_numbers(w, m->label) : NULL;
    c->left = m->left ? tni_take_numbers(w, m->left) : tni_take_zeros(w, m->desc.bond, 1);
    c->right = m->right ? tni_take_numbers(w, m->right) : tni_take_zeros(w, m->desc.bond, 1);
    if (!w->failed && !m->left) c->left[0] = 1;
    if (!w->failed && !m->right) c->right[0] = 1;
    return !w->failed;
}

/* The numbers of axis k of the train, [D,n,D] */
static const double *tni_mps_axis(const tni_mps_cores *c, int64_t k, int64_t *n)
{
    const tn_mps_desc *d = &c->m->desc;
    *n = k == c->place ? d->out : d->dim;
    if (k == c->place) return c->label;
    return d->uniform ? c->cores : c->cores + (k - (c->place >= 0 && k > c->place)) * d->bond * d->dim * d->bond;
}

/* Core k of the train. Periodic: bonds (a, start), and A (x) 1 between; the first has row (., start) of start itself. */
static void tni_mps_fill(const tni_mps_cores *c, int64_t k, int64_t last, double *to)
{
    const int64_t bond = c->m->desc.bond, wide = c->m->desc.periodic ? bond : 1;
    const int64_t r = k == 0 ? 1 : bond * wide, s = k == last ? 1 : bond * wide;
    int64_t       n;
    const double *from = tni_mps_axis(c, k, &n);
    memset(to, 0, (size_t)(r * n * s) * sizeof *to);
    for (int64_t a = 0; a < bond; a++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t b = 0; b < bond; b++) {
                const double x = from[(a * n + i) * bond + b];
                for (int64_t w = 0; w < wide; w++) {
                    const int64_t row = k == 0 ? 0 : a * wide + w, column = k == last ? 0 : b * wide + w;
                    double factor = 1;
                    if (wide > 1 || c->m->desc.periodic) factor = (k > 0 || a == w) && (k < last || b == w);
                    else factor = (k > 0 ? 1 : c->left[a]) * (k < last ? 1 : c->right[b]);
                    to[(row * n + i) * s + column] += factor * x;
                }
            }
}

tn_tt *tn_tt_from_mps(const tn_mps *m)
{
    tni_mps_cores c;
    int64_t       n;
    tn_tt        *tt = NULL;
    if (!m || !tni_alive(m->cores)) return NULL;
    tn_ctx *ctx = m->cores->ctx;
    if (m->desc.sites == 0)
        return tni_fail(ctx, TN_ERR_ARG, "tt_from_mps: sites is 0, expected a number of sites in the layer's "
                        "desc"), (tn_tt *)NULL;
    int64_t   count = m->desc.sites + (m->label != NULL);
    int64_t   wide = m->desc.periodic ? m->desc.bond : 1;
    int64_t   most = tni_max(m->desc.dim, m->desc.out) * m->desc.bond * wide;
    tn_status s = TN_OK;
    tni_scratch w = tni_scratch_begin(ctx, "tt_from_mps");
    double     *core = tni_mps_read(&w, m, &c) ? tni_take_f64(&w, most, tni_area(m->desc.bond, wide)) : NULL;
    if (core) tt = tni_tt_make(ctx, "tt_from_mps", count);
    for (int64_t k = 0; tt && s == TN_OK && k < count; k++) {
        const int64_t bond = m->desc.bond * wide;
        tni_mps_axis(&c, k, &n);
        tni_mps_fill(&c, k, count - 1, core);
        s = tni_tt_put(tt, "tt_from_mps", k, k == 0 ? 1 : bond, n, k == count - 1 ? 1 : bond, core);
    }
    tni_scratch_release(&w, NULL);
    return tt ? tni_tt_done(tt, s) : NULL;
}

static tn_status tni_mps_fits(const tn_mps *m, const tn_tt *tt, int64_t place)
{
    tn_ctx *ctx = m->cores->ctx;
    int64_t count = m->desc.sites + (m->label != NULL);
    if (m->desc.uniform || m->desc.periodic)
        return tni_fail(ctx, TN_ERR_ARG, "mps_assign_tt: the layer is %s, expected an open one with a core for each site",
                        m->desc.uniform ? "uniform" : "periodic");
    if (tt->count != count)
        return tni_fail(ctx, TN_ERR_SHAPE, "mps_assign_tt: the train has %lld axes, expected %lld", (long long)tt->count,
                        (long long)count);
    for (int64_t k = 0; k < count; k++) {
        const int64_t *n = tt->core[k]->shape, want = k == place ? m->desc.out : m->desc.dim;
        if (n[1] != want || n[2] > m->desc.bond)
            return tni_fail(ctx, TN_ERR_SHAPE, "mps_assign_tt: core %lld is %s, expected %lld elements and bonds up to %lld",
                            (long long)k, TNI_SHAPE(tt->core[k]), (long long)want, (long long)m->desc.bond);
    }
    return TN_OK;
}

/* Whether there are a train, and a layer with this core. */
TNI_FN bool tni_from_tt_given(const char *op, const tn_tensor *core, const tn_tt *tt)
{
    if (tt) return tni_usable(tt->ctx, core, op, "the layer's core");
    if (tni_alive(core)) tni_fail(core->ctx, TN_ERR_ARG, "%s: the train is NULL", op);
    return false;
}

tn_status tn_mps_assign_tt(const tn_mps *m, const tn_tt *tt)
{
    const int64_t place = m && m->label ? tni_mps_place(&m->desc, m->desc.sites) : -1;
    tn_status     s;
    if (!tni_from_tt_given("mps_assign_tt", m ? m->cores : NULL, tt)) return TN_ERR_ARG;
    if ((s = tni_mps_fits(m, tt, place)) != TN_OK) return s;
    int64_t     bond = m->desc.bond, core = bond * m->desc.dim * bond, size = bond * m->desc.out * bond;
    tni_scratch w = tni_scratch_begin(tt->ctx, "mps_assign_tt");
    double     *cores = tni_take_zeros(&w, m->desc.sites, core), *label = tni_take_zeros(&w, size, 1), *to = cores;
    double     *numbers = tni_take_f64(&w, tni_max(core, size), 1);
    if (w.failed) s = TN_ERR_MEMORY;
    for (int64_t k = 0; k < tt->count && s == TN_OK; k++) {
        const int64_t *n = tt->core[k]->shape;
        double        *at = k == place ? label : to;
        s = tni_read_scaled(tt->ctx, "mps_assign_tt", "a core", tt->core[k], numbers, NULL);
        for (int64_t i = 0; s == TN_OK && i < n[0]; i++)
            for (int64_t j = 0; j < n[1]; j++)
                memcpy(at + (i * n[1] + j) * bond, numbers + (i * n[1] + j) * n[2], (size_t)n[2] * sizeof *at);
        if (k != place) to += core;
    }
    if (s == TN_OK) s = tn_write(m->cores, TN_F64, cores, m->desc.sites * core);
    if (s == TN_OK && m->label) s = tn_write(m->label, TN_F64, label, size);
    return tni_scratch_end(&w, s);
}

tn_tt *tn_tt_random(tn_ctx *ctx, int64_t count, const int64_t *extents, int64_t rank, uint64_t seed)
{
    int64_t   k, size = 1;
    double    unused;
    tn_status s = TN_OK;
    if (!ctx) return NULL;
    if (!tni_within(ctx, "tt_random", "count", count, 1, INT64_MAX)
        || !tni_within(ctx, "tt_random", "rank", rank, 1, INT64_MAX)) return NULL;
    if (!extents) return tni_fail(ctx, TN_ERR_ARG, "tt_random: extents is NULL, expected an array"), (tn_tt *)NULL;
    for (k = 0; k < count; k++)
        if (!tni_is_extent(extents[k]))
            return tni_fail(ctx, TN_ERR_SHAPE, "tt_random: extent %lld is %lld, expected 1 or more", (long long)k,
                            (long long)extents[k]), (tn_tt *)NULL;
    tni_scratch w = tni_scratch_begin(ctx, "tt_random");
    int64_t    *bond = (int64_t *)tni_take(&w, tni_plus(count, 1), sizeof *bond);
    if (!bond) return NULL;
    bond[count] = 1;
    for (k = count; k-- > 0;) bond[k] = bond[k + 1] > rank / extents[k] ? rank : bond[k + 1] * extents[k];
    for (bond[0] = 1, k = 0; k < count; k++) {
        bond[k + 1] = tni_min(bond[k + 1], bond[k] > rank / extents[k] ? rank : bond[k] * extents[k]);
        size = tni_max(size, tni_area(tni_area(bond[k], extents[k]), bond[k + 1]));
    }
    double *numbers = tni_take_f64(&w, 1, size);
    tn_tt  *tt = numbers ? tni_tt_make(ctx, "tt_random", count) : NULL;
    for (k = 0; tt && s == TN_OK && k < count; k++) {
        const int64_t r = bond[k], n = extents[k], next = bond[k + 1];
        tni_random_signed(seed, k, 0, r * n * next, numbers);
        for (int64_t i = 0; i < r * n * next; i++) numbers[i] *= sqrt(3 / (double)(n * next));
        s = tni_tt_put(tt, "tt_random", k, r, n, next, numbers);
    }
    tni_scratch_release(&w, NULL);
    if (!tt || !(tt = tni_tt_done(tt, s))) return NULL;
    tn_tt *made = tn_tt_canonical(tt, 0, &unused);
    tn_tt_destroy(tt);
    return made;
}

/* Numbers [r,n,s] of the train of a CP form: factor f [terms,n] (or P [n,terms]) on the diagonal of its bonds. */
tn_tt *tn_tt_from_cp(const tn_cp *cp, int64_t place)
{
    tn_status s = TN_OK;
    if (!cp || !tni_alive(cp->p)) return NULL;
    if (!tni_within(cp->ctx, "tt_from_cp", "the number of terms", cp->terms, 1, INT64_MAX)
        || !tni_within(cp->ctx, "tt_from_cp", "place", place, 0, cp->order)) return NULL;
    int64_t most = cp->out;
    for (int64_t k = 0; k < cp->order; k++) most = tni_max(most, cp->in[k]);
    tni_scratch w = tni_scratch_begin(cp->ctx, "tt_from_cp");
    double     *f = tni_take_f64(&w, most, cp->terms), *core = tni_take_f64(&w, tni_area(most, cp->terms), cp->terms);
    tn_tt      *tt = w.failed ? NULL : tni_tt_make(cp->ctx, "tt_from_cp", cp->order + 1);
    for (int64_t k = 0; tt && s == TN_OK && k <= cp->order; k++) {
        const bool       out = k == place;
        const int64_t    e = k - (k > place), n = out ? cp->out : cp->in[e];
        const int64_t    r = k == 0 ? 1 : cp->terms, c = k == cp->order ? 1 : cp->terms;
        if ((s = tn_read(out ? cp->p : cp->f[e], TN_F64, f, n * cp->terms)) != TN_OK) break;
        memset(core, 0, (size_t)(r * n * c) * sizeof *core);
        for (int64_t t = 0; t < cp->terms; t++)
            for (int64_t i = 0; i < n; i++)
                core[((r > 1 ? t : 0) * n + i) * c + (c > 1 ? t : 0)] += out ? f[i * cp->terms + t] : f[t * n + i];
        s = tni_tt_put(tt, "tt_from_cp", k, r, n, c, core);
    }
    tni_scratch_release(&w, NULL);
    return tt ? tni_tt_done(tt, s) : NULL;
}

/* Core (R r, m, R' r') from W [R,m n,R'] and X [r,n,r'] */
static void tni_tt_times(const int64_t *w, const int64_t *x, const double *a, const double *b, double *to)
{
    const int64_t n = x[1], m = w[1] / n, columns = w[2] * x[2];
    memset(to, 0, (size_t)(w[0] * x[0] * m * columns) * sizeof *to);
    for (int64_t i = 0; i < w[0]; i++)
        for (int64_t j = 0; j < x[0]; j++)
            for (int64_t k = 0; k < m; k++) {
                double *row = to + ((i * x[0] + j) * m + k) * columns;
                for (int64_t l = 0; l < n; l++)
                    for (int64_t c = 0; c < w[2]; c++) {
                        const double f = a[((i * m + k) * n + l) * w[2] + c];
                        for (int64_t d = 0; d < x[2]; d++) row[c * x[2] + d] += f * b[(j * n + l) * x[2] + d];
                    }
            }
}

tn_tt *tn_tt_apply(const tn_tt *w, const tn_tt *x)
{
    int64_t   most = 1;
    tn_status s = TN_OK;
    if (!w || !x)
        return tni_fail(w ? w->ctx : x ? x->ctx : NULL, TN_ERR_ARG, "tt_apply: %s is NULL, expected a train",
                        w ? "x" : "the operator"), (tn_tt *)NULL;
    if (w->ctx != x->ctx || w->count != x->count)
        return tni_fail(w->ctx, TN_ERR_SHAPE, "tt_apply: x has %lld axes, expected %lld as the operator, in one context",
                        (long long)x->count, (long long)w->count), (tn_tt *)NULL;
    for (int64_t k = 0; k < x->count; k++) {
        const int64_t *n = w->core[k]->shape, *m = x->core[k]->shape;
        size_t         bytes;
        if (m[1] < 1 || n[1] % m[1] != 0)
            return tni_fail(x->ctx, TN_ERR_SHAPE, "tt_apply: axis %lld of the matrix has %lld elements, expected a multiple of "
                            "the %lld of x", (long long)k, (long long)n[1], (long long)m[1]), (tn_tt *)NULL;
        int64_t size = tni_area_size(tni_area(tni_area(n[0], m[0]), n[1] / m[1]), tni_area(n[2], m[2]), 8, &bytes)
                   ? (int64_t)(bytes / 8) : INT64_MAX / 8;
        most = tni_max(most, size);
    }
    tni_scratch scratch = tni_scratch_begin(x->ctx, "tt_apply");
    double     *a = tni_take_f64(&scratch, tni_tt_largest_core(w), 1), *b = tni_take_f64(&scratch, tni_tt_largest_core(x), 1);
    double     *to = tni_take_f64(&scratch, most, 1);
    tn_tt      *tt = to ? tni_tt_make(x->ctx, "tt_apply", x->count) : NULL;
    for (int64_t k = 0; tt && s == TN_OK && k < x->count; k++) {
        const int64_t *n = w->core[k]->shape, *m = x->core[k]->shape;
        s = tni_read_scaled(x->ctx, "tt_apply", "a core", w->core[k], a, NULL);
        if (s == TN_OK) s = tni_read_scaled(x->ctx, "tt_apply", "a core", x->core[k], b, NULL);
        if (s != TN_OK) break;
        tni_tt_times(n, m, a, b, to);
        s = tni_tt_put(tt, "tt_apply", k, n[0] * m[0], n[1] / m[1], n[2] * m[2], to);
    }
    tni_scratch_release(&scratch, NULL);
    return tt ? tni_tt_done(tt, s) : NULL;
}

/* ---- canonical forms, entropies --------------------------------------------- >>tt-canonical-impl */

/* Core k [r n,s] = Q L with orthonormal columns of Q, which replaces it; L moves into core k + 1. */
static tn_status tni_tt_orthogonal_left(const tn_tt *tt, tni_tt_round_job *j, int64_t k)
{
    const tni_host *h = &j->cut.host;
    double   *core = j->cores + j->at[k], *after = j->cores + j->at[k + 1];
    int64_t   m = j->r[k] * tt->core[k]->shape[1], s = j->r[k + 1], rest = tt->core[k + 1]->shape[1] * j->r[k + 2];
    int64_t   least = tni_min(m, s);
    tn_status status = tni_qr(h, m, s, tni_rows(core, s), tni_rows(j->cut.u, least), tni_rows(j->left, s), j->cut.work);
    if (status != TN_OK || least == 0) return status;
    memcpy(core, j->cut.u, (size_t)(m * least) * sizeof *core);
    tni_tt_rescale(h, least * s, j->left, &j->exponent);
    h->by->gemm(h, least, rest, s, 1, tni_rows(j->left, s), tni_rows(after, rest), 0, tni_rows(j->cut.c, rest));
    memcpy(after, j->cut.c, (size_t)(least * rest) * sizeof *after);
    j->r[k + 1] = least;
    return TN_OK;
}

/* All cores in the canonical form of a site, in *j; the core of the site has the norm *norm, times 2^exponent. */
TNI_FN tn_status tni_tt_canonical(tni_scratch *w, const tn_tt *tt, int64_t site, tni_tt_round_job *j, double *norm)
{
    memset(j, 0, sizeof *j);
    j->cut.limit = INT64_MAX;
    tni_tt_round_take(w, tt, j);
    if (w->failed) return TN_ERR_MEMORY;
    for (int64_t k = 0; k < tt->count; k++)
        if (tt->core[k]->shape[1] < 1)
            return tni_fail(tt->ctx, TN_ERR_SHAPE, "%s: core %lld is %s, expected elements", w->what, (long long)k,
                            TNI_SHAPE(tt->core[k]));
    tn_status s = tni_tt_orthonormal(tt, w->what, j, norm);
    for (int64_t k = 0; k < site && s == TN_OK; k++) s = tni_tt_orthogonal_left(tt, j, k);
    if (s == TN_OK && site > 0)
        *norm = tni_frobenius(j->r[site] * tt->core[site]->shape[1] * j->r[site + 1], j->cores + j->at[site]);
    return s;
}

tn_tt *tn_tt_canonical(const tn_tt *from, int64_t site, double *log_norm)
{
    tni_tt_round_job j;
    double norm = 0;
    tn_tt *tt = NULL;
    if (log_norm) *log_norm = (double)NAN;
    if (!from) return NULL;
    if (!tni_within(from->ctx, "tt_canonical", "site", site, 0, from->count - 1)) return NULL;
    tni_scratch w = tni_scratch_begin(from->ctx, "tt_canonical");
    tn_status   s = tni_tt_canonical(&w, from, site, &j, &norm);
    if (s == TN_OK && !(tt = tni_tt_make(from->ctx, "tt_canonical", from->count))) s = TN_ERR_MEMORY;
    for (int64_t k = 0; s == TN_OK && k < from->count; k++) {
        const int64_t n = from->core[k]->shape[1];
        double       *core = j.cores + j.at[k];
        for (int64_t i = 0; k == site && i < j.r[k] * n * j.r[k + 1]; i++)
            core[i] = log_norm ? (norm > 0 ? core[i] / norm : 0) : tni_ldexp(core[i], j.exponent);
        s = tni_tt_put(tt, "tt_canonical", k, j.r[k], n, j.r[k + 1], core);
    }
    if (s == TN_OK && log_norm) *log_norm = norm > 0 ? log(norm) + (double)j.exponent * 0.6931471805599453 : -HUGE_VAL;
    tni_scratch_end(&w, s);
    return tt ? tni_tt_done(tt, s) : NULL;
}

/* The Schmidt values of all cuts, [d-1,*most], as an owned tensor (spectra) or only their entropies [d-1]. */
static tn_tensor *tni_tt_cuts(const tn_tt *tt, const char *op, bool spectra)
{
    tni_tt_round_job j;
    double    *values = NULL, norm = 0;
    int64_t    r = 1, next, most = 1, shape[2];
    tn_tensor *out = NULL;
    if (!tt) return NULL;
    tni_scratch w = tni_scratch_begin(tt->ctx, op);
    tn_status   s = tni_tt_canonical(&w, tt, 0, &j, &norm);
    for (int64_t k = 1; s == TN_OK && k < tt->count; k++) most = tni_max(most, j.r[k]);
    shape[0] = tt->count - 1; shape[1] = spectra ? most : 1;
    if (s == TN_OK && !(values = tni_take_zeros(&w, tt->count, shape[1]))) s = TN_ERR_MEMORY;
    if (s == TN_OK) memcpy(j.cut.c, j.cores, (size_t)(tt->core[0]->shape[1] * j.r[1]) * sizeof *j.cut.c);
    for (int64_t k = 0; s == TN_OK && k + 1 < tt->count; k++, r = next) {
        const tni_host *h = &j.cut.host;
        const int64_t   m = r * tt->core[k]->shape[1], n = j.r[k + 1], after = tt->core[k + 1]->shape[1] * j.r[k + 2];
        if ((s = tni_tt_cut(&j.cut, m, n, &next)) != TN_OK) {
            tni_fail(tt->ctx, s, "%s: the SVD of cut %lld did not converge", op, (long long)k);
            break;
        }
        for (int64_t i = 0; i < tni_min(m, n) && norm > 0; i++) {
            const double x = fmin(j.cut.s[i] / norm, 1), p = x * x;
            if (spectra && i < most) values[k * most + i] = x;
            else if (!spectra && p > 0) values[k] -= p * log(p);
        }
        h->by->gemm(h, next, after, n, 1, tni_rows(j.cut.c, n), tni_rows(j.cores + j.at[k + 1], after), 0,
                    tni_rows(j.cut.u, after));
        memcpy(j.cut.c, j.cut.u, (size_t)(next * after) * sizeof *j.cut.c);
    }
    if (s == TN_OK) s = tni_write_new(tt->ctx, op, &out, spectra ? 2 : 1, shape, values);
    if (tni_scratch_end(&w, s) != TN_OK) tni_drop(&out);
    return out;
}

tn_tensor *tn_tt_singular_values(const tn_tt *tt)   { return tni_tt_cuts(tt, "tt_singular_values", true); }
tn_tensor *tn_tt_entropies(const tn_tt *tt) { return tni_tt_cuts(tt, "tt_entropies", false); }

tn_status tn_tt_log_norm(const tn_tt *tt, double *log_norm)
{
    int64_t   exponent;
    double    norm;
    tn_status s;
    if (log_norm) *log_norm = (double)NAN;
    if (!tni_tt_given(tt, "tt_log_norm", "log_norm", log_norm)) return TN_ERR_ARG;
    if ((s = tni_tt_norm(tt, "tt_log_norm", &norm, &exponent)) == TN_OK)
        *log_norm = norm > 0 ? log(norm) + (double)exponent * 0.6931471805599453 : -HUGE_VAL;
    return s;
}

tn_status tn_tt_log_inner(const tn_tt *a, const tn_tt *b, double *log_inner, double *sign)
{
    int64_t   exponent;
    double    inner;
    tn_status s;
    if (log_inner) *log_inner = (double)NAN;
    if (sign) *sign = (double)NAN;
    if (a && (!tni_tt_given(a, "tt_log_inner", "log_inner", log_inner) || !tni_tt_given(a, "tt_log_inner", "sign", sign)))
        return TN_ERR_ARG;
    if ((s = tni_tt_inner(a, b, "tt_log_inner", &inner, &exponent)) != TN_OK) return s;
    *sign = inner > 0 ? 1 : inner < 0 ? -1 : 0;
    *log_inner = inner != 0 ? log(fabs(inner)) + (double)exponent * 0.6931471805599453 : -HUGE_VAL;
    return TN_OK;
}

#endif /* TN_NO_OPERATOR */
#endif /* TN_NO_MPS */
