#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- tensor trains ------------------------------------------------------ >>tt-impl
   A core [r,n,s] is, without moving a number, the matrix [r n,s] or [r,n s]. The bonds of a train whose part to the right
   is orthonormal have the singular values of the whole tensor's unfoldings, so that what an SVD drops is the error, and the
   squares of all bonds' errors sum up. */

typedef struct tni_tt_box { tni_owned owned; tn_tt tt; } tni_tt_box;

static void tni_tt_free(tni_owned *o)
{
    tni_tt_box *box = (tni_tt_box *)(void *)o;
    for (int64_t k = 0; box->tt.core && k < box->tt.count; k++) tni_drop(&box->tt.core[k]);
    tni_disown(o);
    tni_free(o->ctx, box->tt.core, (size_t)box->tt.count * sizeof *box->tt.core);
    tni_free(o->ctx, box, sizeof *box);
}

void tn_tt_destroy(tn_tt *tt)
{
    if (tt) tni_tt_free(&((tni_tt_box *)(void *)((char *)tt - offsetof(tni_tt_box, tt)))->owned);
}

/* A train without its cores. */
TNI_COLD_FN tn_tt *tni_tt_make(tn_ctx *ctx, const char *op, int64_t count)
{
    tni_tt_box *box = (tni_tt_box *)tni_alloc(ctx, sizeof *box, op);
    if (!box) return NULL;
    memset(box, 0, sizeof *box);
    tni_own(ctx, &box->owned, tni_tt_free);
    box->tt.ctx = ctx;
    box->tt.gap = 1;
    box->tt.core = (tn_tensor **)tni_array(ctx, count, sizeof *box->tt.core, op);
    if (!box->tt.core) {
        tn_tt_destroy(&box->tt);
        return NULL;
    }
    box->tt.count = count;
    memset(box->tt.core, 0, (size_t)count * sizeof *box->tt.core);
    return &box->tt;
}

TNI_COLD_FN tn_tt *tni_tt_done(tn_tt *tt, tn_status s)
{
    if (s == TN_OK) return tt;
    tn_tt_destroy(tt);
    return NULL;
}

TNI_COLD_FN tn_status tni_tt_put(tn_tt *tt, const char *op, int64_t k, int64_t r, int64_t n, int64_t s, const double *p)
{
    return tni_write_new(tt->ctx, op, &tt->core[k], 3, TNI_DIMS(r, n, s), p);
}

TNI_COLD_FN tn_status tni_tt_options(tn_ctx *ctx, const char *op, const tn_tt_desc *desc, double *eps, tni_tt_job *j)
{
    *eps = desc && desc->eps != 0 ? desc->eps : ctx->desc.dtype == TN_F32 ? 1e-6 : 1e-12;
    j->limit = desc && desc->max_bond != 0 ? desc->max_bond : INT64_MAX;
    j->relative = desc ? desc->relative : 0;
    if (j->limit < 1) return tni_fail(ctx, TN_ERR_ARG, "%s: max_bond is %lld, expected 0 or more", op, (long long)j->limit);
    if (!(j->relative >= 0 && j->relative < 1))
        return tni_fail(ctx, TN_ERR_ARG, "%s: relative is %g, expected 0 or more and below 1, which would keep nothing", op,
                        j->relative);
    return tni_eps_check(ctx, op, "eps", *eps);
}

TNI_COLD_FN tn_status tni_tt_cut(tni_tt_job *j, int64_t m, int64_t n, int64_t *rank)
{
    int64_t   k = tni_min(m, n);
    tn_status s = tni_svd(&j->host, m, n, tni_rows(j->c, n), tni_rows(j->u, k), j->s, tni_rows(j->vt, n), j->work);
    if (s != TN_OK) return s;
    int64_t r = tni_min(tni_tail_rank(k, j->s, j->delta), j->limit);
    while (r > 0 && j->s[r - 1] <= j->relative * j->s[0]) r--;
    j->dropped += tni_tail_squares(k, j->s, r);
    j->gap = fmin(j->gap, tni_gap(k, j->s, r));
    tni_keep_columns(m, k, r, j->u, j->u);
    for (int64_t i = 0; i < r; i++)
        for (int64_t l = 0; l < n; l++) j->c[i * n + l] = j->s[i] * j->vt[i * n + l];
    *rank = tni_max(r, 1);
    if (r > 0) return TN_OK;
    memset(j->u, 0, (size_t)m * sizeof *j->u);               /* a tensor of zeros keeps bonds of one */
    memset(j->c, 0, (size_t)n * sizeof *j->c);
    return TN_OK;
}

/* The numbers of each array for bonds of C [m,n], at most, and the extent of its products. */
TNI_COLD_FN void tni_tt_take(tni_scratch *w, tni_tt_job *j, int64_t c, int64_t u, int64_t s, int64_t vt, int64_t work,
                             int64_t extent)
{
    j->c = tni_take_f64(w, c, 1);
    j->u = tni_take_f64(w, u, 1);
    j->s = tni_take_f64(w, s, 1);
    j->vt = tni_take_f64(w, vt, 1);
    j->work = tni_take_f64(w, work, 1);
    j->host = tni_take_host(w, extent);
}

static void tni_tt_svd_take(tni_scratch *w, tni_tt_job *j, int64_t count, const int64_t *n, int64_t all)
{
    int64_t r = 1, rest = all, u = 1, vt = 1, s = 1, work = 1, extent = 1;
    for (int64_t k = 0; k + 1 < count; k++) {
        int64_t m = r * n[k];
        rest = n[k] > 0 ? rest / n[k] : 0;
        int64_t least = tni_min(m, rest);
        u = tni_max(u, m * tni_max(least, 1));
        vt = tni_max(vt, rest * tni_max(least, 1));
        s = tni_max(s, least);
        extent = tni_max(extent, tni_max(m, rest));
        work = tni_max(work, tni_svd_work(m, rest));
        r = tni_max(tni_min(least, j->limit), 1);
    }
    tni_tt_take(w, j, tni_max(tni_max(all, r * n[count - 1]), vt), u, s, vt, work, extent);     /* the last core, also of none */
}

static tn_status tni_tt_svd(tn_tt *tt, tni_tt_job *j, const tn_tensor *a, const int64_t *n, double eps)
{
    int64_t   k, r = 1, next, rest = tn_tensor_count(a);
    double    scale;
    tn_status s = tni_read_scaled(tt->ctx, "tt_svd", "a", a, j->c, &scale);
    if (s != TN_OK) return s;
    double norm = tni_frobenius(rest, j->c);
    j->delta = eps * norm / sqrt((double)tni_max(tt->count - 1, 1));
    for (k = 0; k + 1 < tt->count; k++, r = next) {
        rest = n[k] > 0 ? rest / n[k] : 0;
        if ((s = tni_tt_cut(j, r * n[k], rest, &next)) != TN_OK)
            return tni_fail(tt->ctx, s, "tt_svd: the SVD of bond %lld did not converge", (long long)k);
        if ((s = tni_tt_put(tt, "tt_svd", k, r, n[k], next, j->u)) != TN_OK) return s;
    }
    for (int64_t i = 0; i < r * n[k]; i++) j->c[i] /= scale;
    tt->error = norm > 0 ? sqrt(j->dropped) / norm : 0;
    tt->discarded = tt->error * tt->error;
    tt->gap = j->gap;
    return tni_tt_put(tt, "tt_svd", k, r, n[k], 1, j->c);
}

tn_tt *tn_tt_svd(tn_ctx *ctx, const tn_tensor *a, int64_t count, const int64_t *extents, const tn_tt_desc *desc)
{
    static const int64_t one = 1;
    int64_t    all = 1;
    size_t     bytes;
    double     eps;
    tni_tt_job j = TNI_ZERO;
    tn_tt     *tt = NULL;
    if (!tni_usable(ctx, a, "tt_svd", "a")) return NULL;
    j.gap = 1;
    if (tni_tt_options(ctx, "tt_svd", desc, &eps, &j) != TN_OK) return NULL;
    int64_t elements = tn_tensor_count(a);
    if (!extents) {
        count = a->rank > 0 ? a->rank : 1;
        extents = a->rank > 0 ? a->shape : &one;
    }
    if (!tni_within(ctx, "tt_svd", "count", count, 1, INT64_MAX)) return NULL;
    for (int64_t k = 0; k < count && all >= 0; k++) all = tni_area_size(all, extents[k], 1, &bytes) ? (int64_t)bytes : -1;
    if (all != elements)
        return tni_fail(ctx, TN_ERR_SHAPE, "tt_svd: the product of the %lld extents differs from the %lld elements of a, %s",
                        (long long)count, (long long)elements, TNI_SHAPE(a)), (tn_tt *)NULL;
    tni_scratch w = tni_scratch_begin(ctx, "tt_svd");
    tni_tt_svd_take(&w, &j, count, extents, all);
    if (!w.failed && (tt = tni_tt_make(ctx, "tt_svd", count)) != NULL)
        tt = tni_tt_done(tt, tni_tt_svd(tt, &j, a, extents, eps));
    tni_scratch_end(&w, TN_OK);
    return tt;
}

/* Are these [1,n,r], [r,m,s], .., [t,o,1]? */
static bool tni_tt_fits(tn_ctx *ctx, int64_t count, tn_tensor *const *cores)
{
    int64_t r = 1;
    for (int64_t k = 0; k < count; k++) {
        if (!tni_usable(ctx, cores[k], "tt_create", "a core")) return false;
        if (cores[k]->rank != 3 || cores[k]->shape[0] != r || (k + 1 == count && cores[k]->shape[2] != 1))
            return tni_fail(ctx, TN_ERR_SHAPE, "tt_create: core %lld is %s, expected [%lld,n,%s]", (long long)k,
                            TNI_SHAPE(cores[k]), (long long)r, k + 1 == count ? "1" : "r"), false;
        r = cores[k]->shape[2];
    }
    return true;
}

TNI_COLD tn_tt *tn_tt_create(tn_ctx *ctx, int64_t count, tn_tensor *const *cores)
{
    tn_tt    *tt;
    tn_status s = TN_OK;
    if (!ctx) return NULL;
    if (!cores)
        return tni_fail(ctx, TN_ERR_ARG, "tt_create: cores is NULL, expected %lld of them", (long long)count), (tn_tt *)NULL;
    if (!tni_within(ctx, "tt_create", "count", count, 1, INT64_MAX)) return NULL;
    if (!tni_tt_fits(ctx, count, cores) || !(tt = tni_tt_make(ctx, "tt_create", count))) return NULL;
    for (int64_t k = 0; k < count && s == TN_OK; k++) {
        tt->core[k] = tn_tensor_create(ctx, TN_REAL, 3, cores[k]->shape);
        s = tt->core[k] ? tn_assign(tt->core[k], cores[k]) : TN_ERR_MEMORY;
    }
    return tni_tt_done(tt, s);
}

/* A power of two brings x to about one; its exponent is added to *exponent. */
TNI_COLD_FN void tni_tt_rescale(const tni_host *h, int64_t n, double *x, int64_t *exponent)
{
    const double scale = tni_unit_scale(tni_largest_of(n, x));
    h->by->scale(n, scale, x);
    *exponent -= tni_exponent(scale);
}

/* The workspace of tni_tt_orthonormal and tni_tt_round. */
TNI_COLD_FN void tni_tt_round_take(tni_scratch *w, const tn_tt *tt, tni_tt_round_job *j)
{
    int64_t all = 0, c = 1, u = 1, s = 1, vt = 1, work = 1, extent = 1, left = 1;
    j->at = (int64_t *)tni_take(w, tt->count, sizeof *j->at);
    j->r = (int64_t *)tni_take(w, tt->count + 1, sizeof *j->r);
    for (int64_t k = 0; !w->failed && k < tt->count; k++) {
        const int64_t *n = tt->core[k]->shape, m = n[0] * n[1];
        j->at[k] = all;
        j->r[k] = n[0];
        j->r[k + 1] = n[2];
        all += m * n[2];
        c = tni_max(c, tni_max(m, n[2]) * n[2]);
        c = tni_max(c, n[1] * n[2] * n[0]);
        u = tni_max(u, tni_max(m * tni_max(tni_min(m, n[2]), 1), n[1] * n[2] * tni_min(n[1] * n[2], n[0])));
        vt = tni_max(vt, n[2] * tni_max(tni_min(m, n[2]), 1));
        s = tni_max(s, tni_min(m, n[2]));
        left = tni_max(left, n[0] * n[0]);
        extent = tni_max(extent, tni_max(m, n[1] * n[2]));
        work = tni_max(work, tni_max(tni_svd_work(m, n[2]), tni_max(tni_qr_work(m, n[2]), tni_qr_work(n[1] * n[2], n[0]))));
    }
    j->cores = tni_take_f64(w, all, 1);
    j->left = tni_take_f64(w, left, 1);
    tni_tt_take(w, &j->cut, c, u, s, vt, work, extent);
}

/* Core k [r,n s] = L Q with orthonormal rows of Q, which replaces it; L moves into core k - 1. */
static tn_status tni_tt_orthogonal(const tn_tt *tt, tni_tt_round_job *j, int64_t k)
{
    const tni_host *h = &j->cut.host;
    double *core = j->cores + j->at[k], *before = j->cores + j->at[k - 1];
    int64_t r = j->r[k], ns = tt->core[k]->shape[1] * j->r[k + 1], m = j->r[k - 1] * tt->core[k - 1]->shape[1];
    int64_t least = tni_min(r, ns);
    tn_status s = tni_qr(h, ns, r, tni_transposed(tni_rows(core, ns)), tni_rows(j->cut.u, least), tni_rows(j->left, r),
                         j->cut.work);
    if (s != TN_OK) return s;
    if (least == 0) memset(before, 0, (size_t)(m * r) * sizeof *before);     /* an extent of zero */
    if (least == 0) return TN_OK;
    for (int64_t i = 0; i < least; i++)
        for (int64_t l = 0; l < ns; l++) core[i * ns + l] = j->cut.u[l * least + i];
    tni_tt_rescale(h, least * r, j->left, &j->exponent);
    h->by->gemm(h, m, least, r, 1, tni_rows(before, r), tni_transposed(tni_rows(j->left, r)), 0, tni_rows(j->cut.c, least));
    memcpy(before, j->cut.c, (size_t)(m * least) * sizeof *before);
    j->r[k] = least;
    return TN_OK;
}

static tn_status tni_tt_sweep(tn_tt *tt, const tn_tt *from, tni_tt_round_job *j)
{
    tni_tt_job     *cut = &j->cut;
    const tni_host *h = &cut->host;
    int64_t         r = 1, next, last = from->count - 1;
    double          most = tt->ctx->desc.dtype == TN_F32 ? 120 : 1000;
    int             power;
    tn_status       s;
    memcpy(cut->c, j->cores, (size_t)(from->core[0]->shape[1] * j->r[1]) * sizeof *cut->c);
    for (int64_t k = 0; k < last; k++, r = next) {
        int64_t n = from->core[k]->shape[1], after = from->core[k + 1]->shape[1] * j->r[k + 2];
        if ((s = tni_tt_cut(cut, r * n, j->r[k + 1], &next)) != TN_OK)
            return tni_fail(tt->ctx, s, "tt_round: the SVD of bond %lld did not converge", (long long)k);
        if ((s = tni_tt_put(tt, "tt_round", k, r, n, next, cut->u)) != TN_OK) return s;
        h->by->gemm(h, next, after, j->r[k + 1], 1, tni_rows(cut->c, j->r[k + 1]),
                    tni_rows(j->cores + j->at[k + 1], after), 0, tni_rows(cut->u, after));
        memcpy(cut->c, cut->u, (size_t)(next * after) * sizeof *cut->c);
    }
    int64_t size = r * from->core[last]->shape[1];
    double  largest = tni_largest_of(size, cut->c);
    frexp(largest, &power);
    for (int64_t k = 0; largest > 0 && fabs((double)(j->exponent + power)) > most && k < last; k++) { /* too much for one core */
        const int64_t each = j->exponent / (from->count - k), n = tn_tensor_count(tt->core[k]);
        if ((s = tn_read(tt->core[k], TN_F64, cut->u, n)) != TN_OK) return s;
        for (int64_t i = 0; i < n; i++) cut->u[i] = tni_ldexp(cut->u[i], each);
        if ((s = tn_write(tt->core[k], TN_F64, cut->u, n)) != TN_OK) return s;
        j->exponent -= each;
    }
    for (int64_t i = 0; i < size; i++) cut->c[i] = tni_ldexp(cut->c[i], j->exponent);
    return tni_tt_put(tt, "tt_round", last, r, from->core[last]->shape[1], 1, cut->c);
}

/* Reads the train and makes all of its cores but the first orthonormal: the norm of that one is the train's. */
TNI_COLD_FN tn_status tni_tt_orthonormal(const tn_tt *from, const char *op, tni_tt_round_job *j, double *norm)
{
    double    scale;
    tn_status s;
    for (int64_t k = 0; k < from->count; k++) {
        s = tni_read_scaled(from->ctx, op, "a core", from->core[k], j->cores + j->at[k], &scale);
        if (s != TN_OK) return s;
        j->exponent -= tni_exponent(scale);
    }
    for (int64_t k = from->count - 1; k > 0; k--)
        if ((s = tni_tt_orthogonal(from, j, k)) != TN_OK) return s;
    *norm = tni_frobenius(from->core[0]->shape[1] * j->r[1], j->cores);
    return TN_OK;
}

static tn_status tni_tt_round(tn_tt *tt, const tn_tt *from, tni_tt_round_job *j, double eps)
{
    double    norm;
    tn_status s = tni_tt_orthonormal(from, "tt_round", j, &norm);
    if (s != TN_OK) return s;
    j->cut.delta = eps * norm / sqrt((double)tni_max(from->count - 1, 1));
    s = tni_tt_sweep(tt, from, j);
    tt->error = norm > 0 ? sqrt(j->cut.dropped) / norm : 0;
    tt->discarded = tt->error * tt->error;
    tt->gap = j->cut.gap;
    return s;
}

tn_tt *tn_tt_round(const tn_tt *from, const tn_tt_desc *desc)
{
    tni_tt_round_job j = TNI_ZERO;
    double eps;
    tn_tt *tt = NULL;
    if (!from) return NULL;
    j.cut.gap = 1;
    if (tni_tt_options(from->ctx, "tt_round", desc, &eps, &j.cut) != TN_OK) return NULL;
    tni_scratch w = tni_scratch_begin(from->ctx, "tt_round");
    tni_tt_round_take(&w, from, &j);
    if (!w.failed && (tt = tni_tt_make(from->ctx, "tt_round", from->count)) != NULL)
        tt = tni_tt_done(tt, tni_tt_round(tt, from, &j, eps));
    tni_scratch_end(&w, TN_OK);
    return tt;
}

/* Is there a train, and the argument that messages call `what`? */
TNI_COLD_FN bool tni_tt_given(const tn_tt *tt, const char *op, const char *what, const void *p)
{
    if (tt && !p) tni_fail(tt->ctx, TN_ERR_ARG, "%s: %s is NULL, expected a place for numbers", op, what);
    return tt && p;
}

/* Have two trains one context and equal extents? */
static bool tni_tt_match(const tn_tt *a, const tn_tt *b, const char *op)
{
    if (!a || !b)
        tni_fail(a ? a->ctx : b ? b->ctx : NULL, TN_ERR_ARG, "%s: %s is NULL, expected a train", op, a ? "b" : "a");
    else if (a->ctx != b->ctx) tni_fail(a->ctx, TN_ERR_ARG, "%s: the trains belong to different contexts", op);
    else if (a->count != b->count)
        tni_fail(a->ctx, TN_ERR_SHAPE, "%s: b has %lld axes, expected %lld as a", op, (long long)b->count,
                 (long long)a->count);
    else {
        int64_t k;
        for (k = 0; k < a->count && a->core[k]->shape[1] == b->core[k]->shape[1]; k++) {}
        if (k == a->count) return true;
        tni_fail(a->ctx, TN_ERR_SHAPE, "%s: axis %lld of b has %lld elements, expected %lld as a", op, (long long)k,
                 (long long)b->core[k]->shape[1], (long long)a->core[k]->shape[1]);
    }
    return false;
}

/* Elements of a core, for all of a train: the largest. */
TNI_COLD_FN int64_t tni_tt_largest_core(const tn_tt *tt)
{
    int64_t most = 1;
    for (int64_t k = 0; k < tt->count; k++) most = tni_max(most, tn_tensor_count(tt->core[k]));
    return most;
}

static int64_t tni_tt_largest_rank(const tn_tt *tt)
{
    int64_t most = 1;
    for (int64_t k = 0; k < tt->count; k++) most = tni_max(most, tt->core[k]->shape[2]);
    return most;
}

/* Block k of the sum: from's core at row `row`, column `column` of [r,n,s]. */
static tn_status tni_tt_block(const tn_tensor *from, double *numbers, double *to, int64_t s, int64_t row, int64_t column)
{
    const int64_t *n = from->shape;
    tn_status      status = tn_read(from, TN_F64, numbers, tn_tensor_count(from));
    for (int64_t i = 0; status == TN_OK && i < n[0] * n[1]; i++) {
        double *p = to + (row * n[1] + i) * s + column;
        for (int64_t l = 0; l < n[2]; l++) p[l] += numbers[i * n[2] + l];
    }
    return status;
}

tn_tt *tn_tt_add(const tn_tt *a, const tn_tt *b)
{
    int64_t   size = 1;
    tn_status s = TN_OK;
    if (!tni_tt_match(a, b, "tt_add")) return NULL;
    int64_t last = a->count - 1;
    int64_t most = tni_max(tni_tt_largest_core(a), tni_tt_largest_core(b));
    for (int64_t k = 0; k <= last; k++) {
        const int64_t *n = a->core[k]->shape, *m = b->core[k]->shape;
        size = tni_max(size, (n[0] + m[0]) * n[1] * (n[2] + m[2]));
    }
    tni_scratch w = tni_scratch_begin(a->ctx, "tt_add");
    double *numbers = tni_take_f64(&w, most, 1), *sum = tni_take_f64(&w, size, 1);
    tn_tt  *tt = w.failed ? NULL : tni_tt_make(a->ctx, "tt_add", a->count);
    for (int64_t k = 0; tt && k <= last && s == TN_OK; k++) {
        const int64_t *n = a->core[k]->shape, *m = b->core[k]->shape;
        const int64_t  r = k == 0 ? 1 : n[0] + m[0], c = k == last ? 1 : n[2] + m[2];
        memset(sum, 0, (size_t)(r * n[1] * c) * sizeof *sum);
        s = tni_tt_block(a->core[k], numbers, sum, c, 0, 0);
        if (s == TN_OK) s = tni_tt_block(b->core[k], numbers, sum, c, k == 0 ? 0 : n[0], k == last ? 0 : n[2]);
        if (s == TN_OK) s = tni_tt_put(tt, "tt_add", k, r, n[1], c, sum);
    }
    tni_scratch_end(&w, s);
    return tt ? tni_tt_done(tt, s) : NULL;
}

tn_tt *tn_tt_scale(const tn_tt *from, double factor)
{
    tn_tt *tt;
    if (!from) return NULL;
    if (!(fabs(factor) < HUGE_VAL))
        return tni_fail(from->ctx, TN_ERR_ARG, "tt_scale: factor is %g, expected a finite number", factor), (tn_tt *)NULL;
    if (!(tt = tn_tt_create(from->ctx, from->count, from->core))) return NULL;
    int64_t    k = tt->count - 1;
    tn_tensor *t = tt->core[k];
    int64_t    n = tn_tensor_count(t);
    tni_scratch w = tni_scratch_begin(tt->ctx, "tt_scale");
    double    *numbers = tni_take_f64(&w, n, 1);
    tn_status  s = numbers ? tn_read(t, TN_F64, numbers, n) : TN_ERR_MEMORY;
    for (int64_t i = 0; s == TN_OK && i < n; i++) numbers[i] *= factor;
    tni_drop(&tt->core[k]);
    if (s == TN_OK) s = tni_tt_put(tt, "tt_scale", k, from->core[k]->shape[0], from->core[k]->shape[1], 1, numbers);
    return tni_tt_done(tt, tni_scratch_end(&w, s));
}

/* V [ra,rb] = sum over i of A_k[i]^T V B_k[i], from left to right: the inner product is *inner 2^*exponent. */
TNI_COLD_FN tn_status tni_tt_inner(const tn_tt *a, const tn_tt *b, const char *op, double *inner, int64_t *exponent)
{
    int64_t most = 1;
    double  scale;
    *exponent = 0;
    if (!tni_tt_match(a, b, op) || !tni_tt_given(a, op, "inner", inner)) return tn_ctx_status(a ? a->ctx : NULL);
    for (int64_t k = 0; k < a->count; k++)
        most = tni_max(most, b->core[k]->shape[0] * a->core[k]->shape[1] * a->core[k]->shape[2]);
    tni_scratch w = tni_scratch_begin(a->ctx, op);
    double   *ca = tni_take_f64(&w, tni_tt_largest_core(a), 1), *cb = tni_take_f64(&w, tni_tt_largest_core(b), 1);
    double   *v = tni_take_f64(&w, tni_tt_largest_rank(a), tni_tt_largest_rank(b)), *product = tni_take_f64(&w, most, 1);
    tni_host  h = tni_take_host(&w, most);
    tn_status s = w.failed ? TN_ERR_MEMORY : TN_OK;
    if (s == TN_OK) v[0] = 1;
    for (int64_t k = 0; k < a->count && s == TN_OK; k++) {
        const int64_t *n = a->core[k]->shape, *m = b->core[k]->shape, na = n[1] * n[2];
        if ((s = tni_read_scaled(a->ctx, op, "a core", a->core[k], ca, &scale)) != TN_OK) break;
        *exponent -= tni_exponent(scale);
        if ((s = tni_read_scaled(a->ctx, op, "a core", b->core[k], cb, &scale)) != TN_OK) break;
        *exponent -= tni_exponent(scale);
        h.by->gemm(&h, m[0], na, n[0], 1, tni_transposed(tni_rows(v, m[0])), tni_rows(ca, na), 0, tni_rows(product, na));
        h.by->gemm(&h, n[2], m[2], m[0] * n[1], 1, tni_transposed(tni_rows(product, n[2])), tni_rows(cb, m[2]), 0,
                   tni_rows(v, m[2]));
        tni_tt_rescale(&h, n[2] * m[2], v, exponent);
    }
    if (s == TN_OK) *inner = v[0];
    return tni_scratch_end(&w, s);
}

tn_status tn_tt_inner(const tn_tt *a, const tn_tt *b, double *inner)
{
    int64_t   exponent;
    tn_status s;
    if (inner) *inner = (double)NAN;
    if ((s = tni_tt_inner(a, b, "tt_inner", inner, &exponent)) != TN_OK) return s;
    *inner = tni_ldexp(*inner, exponent);
    if (fabs(*inner) < HUGE_VAL) return TN_OK;
    return tni_fail(a->ctx, TN_ERR_NONFINITE, "tt_inner: the result is above 1e308");
}

/* The norm is *norm 2^*exponent. */
TNI_COLD_FN tn_status tni_tt_norm(const tn_tt *tt, const char *op, double *norm, int64_t *exponent)
{
    tni_tt_round_job j = TNI_ZERO;
    *exponent = 0;
    if (!tni_tt_given(tt, op, "norm", norm)) return TN_ERR_ARG;
    j.cut.limit = INT64_MAX;
    tni_scratch w = tni_scratch_begin(tt->ctx, op);
    tni_tt_round_take(&w, tt, &j);
    tn_status s = w.failed ? TN_ERR_MEMORY : tni_tt_orthonormal(tt, op, &j, norm);
    *exponent = j.exponent;
    return tni_scratch_end(&w, s);
}

tn_status tn_tt_norm(const tn_tt *tt, double *norm)
{
    int64_t   exponent;
    tn_status s;
    if (norm) *norm = (double)NAN;
    if ((s = tni_tt_norm(tt, "tt_norm", norm, &exponent)) == TN_OK) *norm = tni_ldexp(*norm, exponent);
    if (s != TN_OK || *norm < HUGE_VAL) return s;
    return tni_fail(tt->ctx, TN_ERR_NONFINITE, "tt_norm: the result is above 1e308");
}

/* The row vector of each element times the matrix of its index. */
static tn_status tni_tt_evaluate(const tn_tt *tt, int64_t count, const int64_t *index, double *core, double *v, double *next,
                                 int64_t stride, int64_t *exponent, double *values)
{
    double scale;
    for (int64_t e = 0; e < count; e++) { v[e * stride] = 1; exponent[e] = 0; }
    for (int64_t k = 0; k < tt->count; k++) {
        const int64_t *n = tt->core[k]->shape;
        tn_status      s;
        if ((s = tni_read_scaled(tt->ctx, "tt_elements", "a core", tt->core[k], core, &scale)) != TN_OK) return s;
        for (int64_t e = 0; e < count; e++) {
            const double *g = core + index[e * tt->count + k] * n[2];
            double       *row = v + e * stride;
            memset(next, 0, (size_t)n[2] * sizeof *next);
            for (int64_t i = 0; i < n[0]; i++)
                for (int64_t l = 0; l < n[2]; l++) next[l] += row[i] * g[i * n[1] * n[2] + l];
            double shrink = tni_unit_scale(tni_largest_of(n[2], next));
            for (int64_t l = 0; l < n[2]; l++) row[l] = next[l] * shrink;
            exponent[e] -= tni_exponent(shrink) + tni_exponent(scale);
        }
    }
    for (int64_t e = 0; e < count; e++) values[e] = tni_ldexp(v[e * stride], exponent[e]);
    return TN_OK;
}

tn_status tn_tt_elements(const tn_tt *tt, int64_t count, const int64_t *index, double *values)
{
    if (!tt || count == 0) return tt ? TN_OK : TN_ERR_ARG;
    if (tni_count_check(tt->ctx, "tt_elements", "count", count) != TN_OK) return TN_ERR_ARG;
    if (!tni_tt_given(tt, "tt_elements", "index", index) || !tni_tt_given(tt, "tt_elements", "values", values))
        return TN_ERR_ARG;
    for (int64_t e = 0; e < count; e++)
        for (int64_t k = 0; k < tt->count; k++) {
            int64_t i = index[e * tt->count + k], n = tt->core[k]->shape[1];
            if (i < 0 || i >= n)
                return tni_fail(tt->ctx, TN_ERR_DATA, "tt_elements: index %lld of element %lld is %lld, expected 0 to %lld",
                                (long long)k, (long long)e, (long long)i, (long long)n - 1);
        }
    tni_scratch w = tni_scratch_begin(tt->ctx, "tt_elements");
    int64_t  stride = tni_tt_largest_rank(tt), *exponent = (int64_t *)tni_take(&w, count, sizeof *exponent);
    double  *core = tni_take_f64(&w, tni_tt_largest_core(tt), 1), *v = tni_take_f64(&w, count, stride);
    double  *next = tni_take_f64(&w, stride, 1);
    return tni_scratch_end(&w, w.failed ? TN_ERR_MEMORY
                               : tni_tt_evaluate(tt, count, index, core, v, next, stride, exponent, values));
}

static tn_tensor *tni_tt_expand(const tn_tt *tt, const tni_host *h, double *core, double *now, double *next, int64_t all)
{
    int64_t    rows = 1, exponent = 0, shape[TN_MAX_RANK];
    double     scale;
    tn_tensor *out = NULL;
    now[0] = 1;
    for (int64_t k = 0; k < tt->count; k++) {
        const int64_t *n = tt->core[k]->shape;
        double        *spare = now;
        if (tni_read_scaled(tt->ctx, "tt_dense", "a core", tt->core[k], core, &scale) != TN_OK) return NULL;
        exponent -= tni_exponent(scale);
        h->by->gemm(h, rows, n[1] * n[2], n[0], 1, tni_rows(now, n[0]), tni_rows(core, n[1] * n[2]), 0,
                    tni_rows(next, n[1] * n[2]));
        rows *= n[1];
        now = next;
        next = spare;
        tni_tt_rescale(h, rows * n[2], now, &exponent);
        shape[tni_min(k, TN_MAX_RANK - 1)] = n[1];
    }
    for (int64_t k = 0; k < all; k++) now[k] = tni_ldexp(now[k], exponent);
    if (tt->count > TN_MAX_RANK) shape[0] = all;
    if (tni_write_new(tt->ctx, "tt_dense", &out, tt->count > TN_MAX_RANK ? 1 : (int)tt->count, shape, now) != TN_OK)
        tni_drop(&out);
    return out;
}

tn_tensor *tn_tt_dense(const tn_tt *tt)
{
    int64_t most = 1, extent = 1, rows = 1;
    size_t  bytes;
    if (!tt) return NULL;
    for (int64_t k = 0; k < tt->count; k++) {
        const int64_t *n = tt->core[k]->shape;
        if (!tni_area_size(rows, n[1], 8, &bytes) || !tni_area_size(rows * n[1], n[2], 8, &bytes))
            return tni_fail(tt->ctx, TN_ERR_MEMORY, "tt_dense: the dense tensor of %lld axes does not fit the address space",
                            (long long)tt->count), (tn_tensor *)NULL;
        rows *= n[1];
        most = tni_max(most, rows * n[2]);
        extent = tni_max(extent, tni_max(rows, n[1] * n[2]));
    }
    tni_scratch w = tni_scratch_begin(tt->ctx, "tt_dense");
    double     *core = tni_take_f64(&w, tni_tt_largest_core(tt), 1);
    double     *now = tni_take_f64(&w, most, 1), *next = tni_take_f64(&w, most, 1);
    tni_host    h = tni_take_host(&w, extent);
    tn_tensor  *out = w.failed ? NULL : tni_tt_expand(tt, &h, core, now, next, rows);
    tni_scratch_end(&w, TN_OK);
    return out;
}

#endif /* TN_NO_ANALYSIS */
