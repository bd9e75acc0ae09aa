#include "core/inner.h"
#include "tensor/inner.h"
#include "kernels/inner.h"
#include "context/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_ANALYSIS
/* ---- HOSVD -------------------------------------------------------------- >>cp-modes-impl
   Sums over pairs of terms, see >>cp-pairs; C_sq leaves row s and column q out of A:
       G_out = P (mean over permutations of prod_s A_(s,p(s))) P^T
       G_in  = 1/k^2 sum_sq F_s^T (P^T P * C_sq) F_q,   order 2: C_00 = V V^T, C_01 = V W^T, C_10 = W V^T, C_11 = W W^T
   Unsymmetrised: products of A_ss only, and one Gram matrix per input. */
typedef struct tni_hosvd {
    const tn_cp *cp;
    bool     symmetric;
    int      modes;                                 /* of which Gram matrices are made: 1 + 1 or 1 + order */
    int64_t  n[TN_CP_MAX_ORDER + 1], keep[TN_CP_MAX_ORDER + 1];
    double  *gram[TN_CP_MAX_ORDER + 1];             /* [n,n]                                               */
    double  *values[TN_CP_MAX_ORDER + 1];           /* [n] without 2^shift, descending                     */
    double  *vectors[TN_CP_MAX_ORDER + 1];          /* [keep,n]                                            */
    int      shift;
} tni_hosvd;

static void tni_pairs_product(tni_pairs *g, int skip)        /* k = weight prod over s != skip of A_ss */
{
    for (int64_t i = 0; i < g->m * g->n; i++) g->k[i] = g->weight;
    for (int s = 0; s < g->order; s++)
        for (int64_t i = 0; s != skip && i < g->m; i++) {
            const double *a = tni_from(tni_pairs_gram(g, s, s), i, 0).p;
            for (int64_t j = 0; j < g->n; j++) g->k[i * g->n + j] *= a[j];
        }
}

/* u_q[n,in] += weight sum_s (C_sq * P^T P)^T F_s, which F_q of the columns is multiplied with when they are done. Symmetrised,
   it is one product for all s and q. */
static void tni_hosvd_inputs(const tni_hosvd *v, tni_pairs *g, bool first, double *u)
{
    const int64_t columns = g->order * g->n, rows = g->order * g->m;
    int64_t       n = g->a.cp->in[0];
    if (v->symmetric) {
        g->host.by->gemm(&g->host, columns, n, rows, 1, tni_transposed(tni_rows(g->gram, columns)), tni_pairs_factors(&g->a),
                         first ? 0 : 1, tni_rows(u, n));
        return;
    }
    for (int s = 0; s < g->order; s++, u += g->n * n) {
        n = g->a.cp->in[s];
        tni_pairs_product(g, s);
        for (int64_t i = 0; i < g->m * g->n; i++) g->k[i] *= g->pp[i];
        g->host.by->gemm(&g->host, g->n, n, g->m, 1, tni_transposed(tni_rows(g->k, g->n)), tni_terms_f(&g->a, s),
                         first ? 0 : 1, tni_rows(u, n));
    }
}

/* gram += sum_q u_q^T F_q, of a column of blocks; symmetrised, this is k^2 times G_in */
static void tni_hosvd_columns(const tni_hosvd *v, tni_pairs *g, double *u)
{
    int64_t n = g->a.cp->in[0];
    if (v->symmetric)
        g->host.by->gemm(&g->host, n, n, g->order * g->n, 1, tni_transposed(tni_rows(u, n)), tni_pairs_factors(&g->b), 1,
                         tni_rows(v->gram[1], n));
    for (int s = 0; s < g->order && !v->symmetric; s++, u += g->n * n) {
        n = g->a.cp->in[s];
        g->host.by->gemm(&g->host, n, n, g->n, 1, tni_transposed(tni_rows(u, n)), tni_terms_f(&g->b, s), 1,
                         tni_rows(v->gram[1 + s], n));
    }
}

/* The Gram matrices of all modes, by blocks of pairs. t [out,block] and u, [block,in] of each input, collect a column of
   blocks. */
static tn_status tni_hosvd_grams(tni_hosvd *v)
{
    const tn_cp *cp = v->cp;
    tni_scratch  w = tni_scratch_begin(cp->ctx, "hosvd");
    tni_pairs    g;
    tn_status    status = tni_pairs_begin(&g, &w, cp, cp, false);
    double      *t = tni_take_f64(&w, cp->out, g.block);
    double      *u = tni_take_f64(&w, tni_terms_width(cp) - cp->out, g.block);
    if (w.failed && status == TN_OK) status = TN_ERR_MEMORY;
    g.inputs = true;
    while (tni_pairs_next(&g, &status)) {
        const bool first = g.a.first == 0;
        tni_pairs_grams(&g, v->symmetric);
        tni_pairs_outputs(&g);
        if (v->symmetric) tni_pairs_symmetric(&g);
        else tni_pairs_product(&g, -1);
        g.host.by->gemm(&g.host, cp->out, g.n, g.m, 1, tni_terms_p(&g.a), tni_rows(g.k, g.n), first ? 0 : 1,
                        tni_rows(t, g.n));
        tni_hosvd_inputs(v, &g, first, u);
        if (!tni_pairs_column_done(&g)) continue;
        g.host.by->gemm(&g.host, cp->out, cp->out, g.n, 1, tni_rows(t, g.n), tni_transposed(tni_terms_p(&g.b)), 1,
                        tni_rows(v->gram[0], cp->out));
        tni_hosvd_columns(v, &g, u);
    }
    v->shift = 2 * g.a.shift;
    for (int m = 0; m < v->modes; m++)                       /* the other half of the blocks */
        for (int64_t i = 0; i < v->n[m]; i++)
            for (int64_t j = 0; j <= i; j++) {
                double *a = v->gram[m] + i * v->n[m] + j, *b = v->gram[m] + j * v->n[m] + i;
                *a = *b = (*a + *b) / (m > 0 && v->symmetric ? cp->order * cp->order : 1);
            }
    return tni_scratch_end(&w, status);
}

/* The eigenvalues of each Gram matrix are squares of the singular values. */
static tn_status tni_hosvd_by_grams(tni_hosvd *v)
{
    tni_scratch w = tni_scratch_begin(v->cp->ctx, "hosvd");
    tn_status   s = tni_hosvd_grams(v);
    for (int m = 0; m < v->modes && s == TN_OK; m++) {
        int64_t n = v->n[m];
        if (n == 0) continue;
        double  *z = tni_take_f64(&w, n, n), *work = tni_take_f64(&w, 1, tni_eigh_work(n));
        tni_host host = tni_take_host(&w, n);
        s = w.failed ? TN_ERR_MEMORY : tni_eigh(&host, n, v->gram[m], v->values[m], z, work);
        if (s == TN_ERR_CONVERGENCE) tni_fail(w.ctx, s, "hosvd: the QL iteration did not converge");
        for (int64_t i = 0; i < n / 2 && s == TN_OK; i++) tni_swap(1, v->values[m] + i, v->values[m] + n - 1 - i);
        for (int64_t i = 0; i < n && s == TN_OK; i++) {
            v->values[m][i] = sqrt(tni_max_f64(v->values[m][i], 0));
            if (i < v->keep[m]) memcpy(v->vectors[m] + i * n, z + (n - 1 - i) * n, sizeof *z * (size_t)n);
        }
        tni_scratch_release(&w, NULL);
    }
    v->shift /= 2;
    return s;
}

/* Rows at .. at + rows - 1 of the tensor unfolded to [product of the other extents, n], the last of the other modes fastest.
   product: [terms,rows] of the other modes' numbers. */
static void tni_unfold_rows(const tni_terms *t, const tni_host *host, int mode, int64_t at, int64_t rows, double *product,
                            double *to)
{
    const tn_cp *cp = t->cp;
    int64_t      h = cp->terms;
    for (int64_t r = 0; r < rows; r++) {
        int64_t rest = at + r;
        for (int64_t i = 0; i < h; i++) product[i * rows + r] = 1;
        for (int m = cp->order; m >= 0; m--) {
            int64_t extent = m ? cp->in[m - 1] : cp->out, index = m == mode ? 0 : rest % extent;
            if (m == mode) continue;
            rest /= extent;
            for (int64_t i = 0; i < h; i++)
                product[i * rows + r] *= m ? t->f[m - 1][i * cp->in[m - 1] + index] : t->p[index * h + i];
        }
    }
    host->by->gemm(host, rows, mode ? cp->in[mode - 1] : cp->out, h, 1, tni_transposed(tni_rows(product, rows)),
                   mode ? tni_rows(t->f[mode - 1], cp->in[mode - 1]) : tni_transposed(tni_rows(t->p, h)), 0,
                   tni_rows(to, mode ? cp->in[mode - 1] : cp->out));
}

/* R of the unfolded tensor, block after block: R' from [R; block]; then the singular values and right vectors of R. */
static tn_status tni_hosvd_accurate_mode(tni_hosvd *v, int m, const tni_terms *t)
{
    const tn_cp *cp = t->cp;
    int64_t      n = v->n[m], all = 1, at, rows = tni_max(64, n), tall = n + rows;
    tn_status    s = TN_ERR_MEMORY;
    for (int k = 0; k <= cp->order; k++) if (k != m) all *= k ? cp->in[k - 1] : cp->out;
    if (n == 0) return TN_OK;
    tni_scratch w = tni_scratch_begin(cp->ctx, "hosvd");
    double     *stack = tni_take_zeros(&w, tall, n), *q = tni_take_f64(&w, tall, n), *r = tni_take_f64(&w, n, n);
    double     *product = tni_take_f64(&w, cp->terms, rows);
    double     *work = tni_take_f64(&w, 1, tni_max(tni_qr_work(tall, n), tni_svd_work(n, n)));
    tni_host    host = tni_take_host(&w, tni_max(tall, cp->terms));
    if (!w.failed) {
        for (s = TN_OK, at = 0; at < all && s == TN_OK; at += rows) {
            int64_t now = tni_min(rows, all - at);
            tni_unfold_rows(t, &host, m, at, now, product, stack + n * n);
            memset(stack + (n + now) * n, 0, sizeof *stack * (size_t)((rows - now) * n));
            s = tni_qr(&host, tall, n, tni_rows(stack, n), tni_rows(q, n), tni_rows(r, n), work);
            memcpy(stack, r, sizeof *r * (size_t)(n * n));
        }
        if (s == TN_OK) s = tni_svd(&host, n, n, tni_rows(stack, n), tni_rows(q, n), v->values[m], tni_rows(r, n), work);
        if (s == TN_ERR_CONVERGENCE) tni_fail(cp->ctx, s, "hosvd: the iteration of the singular values did not converge");
        if (s == TN_OK) memcpy(v->vectors[m], r, sizeof *r * (size_t)(v->keep[m] * n));
    }
    return tni_scratch_end(&w, s);
}

static tn_status tni_hosvd_by_qr(tni_hosvd *v)
{
    tn_cp       *same = v->symmetric && v->cp->order > 1 ? tn_cp_symmetrise(v->cp) : NULL;
    const tn_cp *cp = same ? same : v->cp;
    tni_scratch  w = tni_scratch_begin(cp->ctx, "hosvd");
    tn_status    s = TN_OK;
    int64_t      groups = cp->terms / tni_max(1, v->cp->terms);
    tni_terms    t = TNI_ZERO;
    if (!same && v->symmetric && v->cp->order > 1) return TN_ERR_MEMORY;
    for (int64_t at = 0; same && at < cp->terms && s == TN_OK; at += v->cp->terms) /* P/6 would be rounded: divide later */
        s = tni_put_copy(cp->ctx, tni_block_of(same->p, 0, cp->out, at, v->cp->terms), tni_view(v->cp->p));
    if (s == TN_OK) s = tni_terms_begin(&t, &w, cp, tni_max(1, cp->terms));
    if (s == TN_OK && cp->terms > 0) s = tni_terms_load(&t, 0, cp->terms);
    for (int m = 0; m < v->modes && s == TN_OK; m++) {
        s = tni_hosvd_accurate_mode(v, m, &t);
        for (int64_t i = 0; i < v->n[m]; i++) v->values[m][i] /= (double)tni_max(1, groups);
    }
    v->shift = t.shift;
    tn_cp_destroy(same);
    return tni_scratch_end(&w, s);
}

/* The mean of a core over permutations of its inputs, all of extent n: [rows,n,..,n]. */
static void tni_core_symmetrise(int64_t rows, int64_t n, int order, const double *from, double *to)
{
    int64_t size = 1;
    double  count = 1;
    for (int k = 0; k < order; k++) { size *= n; count *= k + 1; }
    for (int64_t at = 0; at < rows * size; at++) {
        int64_t index[TN_CP_MAX_ORDER], rest = at % size;
        int     slot[TN_CP_MAX_ORDER];
        for (int k = order - 1; k >= 0; k--) { index[k] = rest % n; rest /= n; slot[k] = k; }
        to[at] = 0;
        do {
            int64_t other = 0;
            for (int k = 0; k < order; k++) other = other * n + index[slot[k]];
            to[at] += from[at - at % size + other] / count;
        } while (tni_next_permutation(order, slot));
    }
}

/* core = sum_h (U_out P)_h o (F_0 U_0^T)_h o ..:  a Khatri-Rao product of all but the last, times the last */
static tn_status tni_cp_hosvd_core(const tni_hosvd *v, double *core, int64_t rest, int64_t last)
{
    const tn_cp *cp = v->cp;
    int64_t      width = tni_max(1, tni_max(rest, tni_terms_width(cp)));
    int64_t      room = tni_max(1, tni_min(cp->terms, TNI_PAIRS_NUMBERS / width));
    tni_scratch  w = tni_scratch_begin(cp->ctx, "hosvd");
    double      *a = tni_take_f64(&w, room, width), *b = tni_take_f64(&w, room, width), *f = tni_take_f64(&w, room, width);
    tni_host     host = tni_take_host(&w, tni_max(room, width));
    tni_terms    t;
    tn_status    s = tni_terms_begin(&t, &w, cp, room);
    for (int64_t at = 0; at < cp->terms && s == TN_OK; at += room) {
        int64_t rows = tni_min(room, cp->terms - at), columns = v->keep[0];
        double *product = a, *next = b;
        if ((s = tni_terms_load(&t, at, rows)) != TN_OK) break;
        host.by->gemm(&host, rows, columns, cp->out, 1, tni_transposed(tni_terms_p(&t)),
                      tni_transposed(tni_rows(v->vectors[0], cp->out)), 0, tni_rows(product, columns));
        for (int k = 0; k < cp->order; k++) {
            const int     m = v->symmetric ? 1 : 1 + k;
            const int64_t keep = v->keep[m];
            host.by->gemm(&host, rows, keep, v->n[m], 1, tni_terms_f(&t, k), tni_transposed(tni_rows(v->vectors[m], v->n[m])), 0,
                          tni_rows(f, keep));
            if (k == cp->order - 1) break;
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns * keep; j++)
                    next[i * columns * keep + j] = product[i * columns + j / keep] * f[i * keep + j % keep];
            columns *= keep;
            double *swap = product; product = next; next = swap;
        }
        host.by->gemm(&host, rest, last, rows, 1, tni_transposed(tni_rows(product, rest)), tni_rows(f, last), at > 0 ? 1 : 0,
                      tni_rows(core, last));
    }
    for (int64_t i = 0; i < rest * last && s == TN_OK; i++) core[i] = ldexp(core[i], t.shift - v->shift);
    return tni_scratch_end(&w, s);
}

static tn_status tni_hosvd_make_core(tni_hosvd *v, tn_cp_hosvd_result *out)
{
    const tn_cp *cp = v->cp;
    int64_t   shape[TN_CP_MAX_ORDER + 1], rest = v->keep[0], last = 1;
    double   *symmetric = NULL, norm = tni_frobenius(v->n[0], v->values[0]);
    size_t    bytes;
    tn_status s = TN_ERR_MEMORY;
    shape[0] = rest;
    for (int k = 0; k < cp->order; k++) shape[k + 1] = v->keep[v->symmetric ? 1 : 1 + k];
    if (!tni_extents_fit(TN_F64, cp->order + 1, shape, &bytes))
        return tni_fail(cp->ctx, s, "hosvd: a core of %s doubles is larger than the address space",
                        tni_shape_of(cp->order + 1, shape).s);
    for (int k = 1; k < cp->order; k++) rest *= shape[k];
    last = shape[cp->order];
    tni_scratch w = tni_scratch_begin(cp->ctx, "hosvd: the core");
    double     *core = tni_take_zeros(&w, rest, last);
    if (v->symmetric && cp->order > 1) symmetric = tni_take_f64(&w, rest, last);
    if (!w.failed) s = tni_cp_hosvd_core(v, core, rest, last);
    if (s == TN_OK && symmetric) tni_core_symmetrise(v->keep[0], last, cp->order, core, symmetric);
    if (s == TN_OK) {
        double part = tni_frobenius(rest * last, symmetric ? symmetric : core);
        out->error = norm > 0 ? sqrt(tni_max_f64(0, (1 - part / norm) * (1 + part / norm))) : 0;
        out->core = tni_owned_scaled(cp->ctx, cp->order + 1, shape, symmetric ? symmetric : core, v->shift, "hosvd");
        if (!out->core) s = tn_ctx_status(cp->ctx);
    }
    return tni_scratch_end(&w, s);
}

static tn_status tni_cp_hosvd_run(tni_hosvd *v, const tn_cp_hosvd_desc *d, tn_cp_hosvd_result *out)
{
    tn_ctx     *ctx = v->cp->ctx;
    tni_scratch w = tni_scratch_begin(ctx, "hosvd");
    for (int m = 0; m < v->modes; m++) {
        v->gram[m] = d->accurate ? NULL : tni_take_zeros(&w, v->n[m], v->n[m]);
        v->values[m] = tni_take_zeros(&w, 1, v->n[m]);
        v->vectors[m] = tni_take_zeros(&w, v->keep[m], v->n[m]);
    }
    tn_status s = w.failed ? TN_ERR_MEMORY : d->accurate ? tni_hosvd_by_qr(v) : tni_hosvd_by_grams(v);
    if (s == TN_OK) out->norm = ldexp(tni_frobenius(v->n[0], v->values[0]), v->shift);
    for (int m = 0; m < v->modes && s == TN_OK; m++)
        for (int64_t i = 0; i < v->keep[m]; i++)
            if (tni_points_down(v->n[m], v->vectors[m] + i * v->n[m], 1))
                tni_algebra_of(ctx->desc.simd)->scale(v->n[m], -1, v->vectors[m] + i * v->n[m]);
    if (s == TN_OK && d->core) s = tni_hosvd_make_core(v, out);
    for (int m = 0; m < v->modes && s == TN_OK; m++) {
        tn_tensor **values = m ? &out->in_values[m - 1] : &out->out_values;
        tn_tensor **vectors = m ? &out->in_vectors[m - 1] : &out->out_vectors;
        *values = tni_owned_scaled(ctx, 1, &v->n[m], v->values[m], v->shift, "hosvd");
        if (*values) *vectors = tni_owned_from(ctx, 2, TNI_DIMS(v->keep[m], v->n[m]), v->vectors[m]);
        if (!*vectors) s = tn_ctx_status(ctx);
    }
    return tni_scratch_end(&w, s);
}

tn_status tn_cp_hosvd(const tn_cp *cp, const tn_cp_hosvd_desc *desc, tn_cp_hosvd_result *out)
{
    static const tn_cp_hosvd_desc usual = {0, 0, false, false, false};
    tn_status s;
    if (out) memset(out, 0, sizeof *out);
    if (!cp) return TN_ERR_ARG;
    if (!out) return tni_fail(cp->ctx, TN_ERR_ARG, "hosvd: out is NULL, expected a place for the result");
    out->error = (double)NAN;
    if (!desc) desc = &usual;
    if (!tni_within(cp->ctx, "hosvd", "rank_out", desc->rank_out, 0, INT64_MAX)
        || !tni_within(cp->ctx, "hosvd", "rank_in", desc->rank_in, 0, INT64_MAX)) return TN_ERR_ARG;
    if (!desc->unsymmetrised && !tni_cp_one_input(cp, "hosvd")) return TN_ERR_SHAPE;
    tni_hosvd v = TNI_ZERO;
    v.cp = cp;
    v.symmetric = !desc->unsymmetrised;
    v.modes = v.symmetric ? 2 : 1 + cp->order;
    for (int m = 0; m < v.modes; m++) {
        int64_t rank = m ? desc->rank_in : desc->rank_out;
        v.n[m] = m ? cp->in[m - 1] : cp->out;
        v.keep[m] = rank > 0 ? tni_min(rank, v.n[m]) : v.n[m];
        if (!tni_decomp_fits(cp->ctx, "hosvd", v.n[m], v.n[m])) return TN_ERR_SHAPE;
    }
    if ((s = tni_cp_hosvd_run(&v, desc, out)) == TN_OK) return s;
    tn_cp_hosvd_destroy(out);
    return s;
}

void tn_cp_hosvd_destroy(tn_cp_hosvd_result *r)
{
    if (!r) return;
    tni_drop(&r->out_values);
    tni_drop(&r->out_vectors);
    for (int k = 0; k < TN_CP_MAX_ORDER; k++) { tni_drop(&r->in_values[k]); tni_drop(&r->in_vectors[k]); }
    tni_drop(&r->core);
}

#endif /* TN_NO_ANALYSIS */
