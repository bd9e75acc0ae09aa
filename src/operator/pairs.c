#include "core/inner.h"
#include "kernels/inner.h"
#include "decomp/inner.h"
#include "operator/inner.h"

#ifndef TN_NO_OPERATOR
/* ---- inner products of terms -------------------------------------------- >>cp-pairs
   Everything that compares, measures or decomposes operators without their dense tensors is a sum over pairs of terms h, h'
   products of A_st[h,h'] = F_s[h] . F'_t[h'] and of (P^T P')[h,h']. The pairs come in blocks, so that no h x h' matrix is
   stored. The A_st of a block are one matrix, the product of all factors of m terms and those of n terms: where inputs are
   equal, the factors of a block lie one after the other. On the host in double, scaled as in >>cp-terms. */

TNI_FN tni_mat tni_pairs_gram(const tni_pairs *g, int s, int t)
{
    return tni_rows(g->gram + (s * g->m * g->order + t) * g->n, g->order * g->n);
}

/* Prepares the pairs of two operators, in memory of w. */
TNI_FN tn_status tni_pairs_begin(tni_pairs *g, tni_scratch *w, const tn_cp *a, const tn_cp *b, bool by_row)
{
    int64_t width = tni_max(1, tni_max(tni_terms_width(a), tni_terms_width(b))), most = tni_max(a->terms, b->terms);
    int64_t room = tni_max(TNI_PAIRS_LEAST, TNI_PAIRS_NUMBERS / width / TNI_PAIRS_LEAST * TNI_PAIRS_LEAST);
    memset(g, 0, sizeof *g);
    g->order = a->order;
    g->same = a == b;
    if (most <= room) room = tni_max(1, most);               /* all terms are held, and blocks may be small */
    else room = tni_min(room, TNI_PAIRS_LARGE / tni_max(1, g->order - 1));
    g->block = most <= room ? tni_min(room, tni_max(TNI_PAIRS_BLOCK, tni_min(most / 8, TNI_PAIRS_LARGE / 2))) : room;
    g->gram = tni_take_f64(w, tni_area(g->order, g->order), tni_area(g->block, g->block));
    g->k = tni_take_f64(w, g->block, g->block);
    g->pp = tni_take_f64(w, g->block, g->block);
    g->host = tni_take_host(w, tni_max(g->order * g->block, width));
    tn_status s = w->failed ? TN_ERR_MEMORY : tni_terms_begin_groups(&g->a, w, a, room, g->block, by_row, NULL);
    if (!g->same || most > room) return s == TN_OK ? tni_terms_begin_groups(&g->b, w, b, room, g->block, by_row, &g->a) : s;
    g->b = g->a;                                             /* the same numbers, with a block of its own */
    if (s == TN_OK && most > 0) s = tni_terms_load(&g->a, 0, most);
    g->b.scaled = true;
    return s;
}

/* Loads the next block, columns outside, rows inside; false at the end and where a read fails. */
TNI_FN bool tni_pairs_next(tni_pairs *g, tn_status *s)
{
    int64_t ha = g->a.cp ? g->a.cp->terms : 0, hb = g->b.cp ? g->b.cp->terms : 0;
    if (*s != TN_OK) return false;
    if (g->i >= ha || (g->same && g->i > g->j)) { g->i = 0; g->j += g->block; }
    if (g->j >= hb || ha == 0) return false;
    g->m = tni_min(g->block, ha - g->i);
    g->n = tni_min(g->block, hb - g->j);
    g->weight = g->same && g->i == g->j ? 0.5 : 1;
    *s = tni_terms_load(&g->b, g->j, g->n);
    if (*s == TN_OK) *s = tni_terms_load(&g->a, g->i, g->m);
    g->i += g->block;
    return *s == TN_OK;
}

/* Whether this was the last block of its columns. */
TNI_FN bool tni_pairs_column_done(const tni_pairs *g) { return g->i >= g->a.cp->terms || (g->same && g->i > g->j); }

/* The factors of a block, one after the other. */
TNI_FN tni_mat tni_pairs_factors(const tni_terms *t) { return tni_rows(tni_terms_f(t, 0).p, t->cp->in[0]); }

/* A_st for all s and t, or for s = t only. On the diagonal of one operator A_ts is A_st transposed. */
TNI_FN void tni_pairs_grams(tni_pairs *g, bool all)
{
    const bool diagonal = g->same && g->a.first == g->b.first;
    if (all && !diagonal)
        g->host.by->gemm(&g->host, g->order * g->m, g->order * g->n, g->a.cp->in[0], 1, tni_pairs_factors(&g->a),
                         tni_transposed(tni_pairs_factors(&g->b)), 0, tni_pairs_gram(g, 0, 0));
    else
        for (int s = 0; s < g->order; s++)
            g->host.by->gemm(&g->host, g->m, all ? (g->order - s) * g->n : g->n, g->a.cp->in[s], 1, tni_terms_f(&g->a, s),
                             tni_transposed(tni_terms_f(&g->b, s)), 0, tni_pairs_gram(g, s, s));
    for (int s = 0; s < g->order && all && diagonal; s++)
        for (int t = 0; t < s; t++) {
            const tni_mat to = tni_pairs_gram(g, s, t), from = tni_pairs_gram(g, t, s);
            for (int64_t i = 0; i < g->m; i++)
                for (int64_t j = 0; j < g->n; j++) to.p[i * to.row + j] = from.p[j * from.row + i];
        }
}

TNI_FN void tni_pairs_outputs(tni_pairs *g)          /* pp = P^T P' */
{
    g->host.by->gemm(&g->host, g->m, g->n, g->a.cp->out, 1, tni_transposed(tni_terms_p(&g->a)), tni_terms_p(&g->b), 0,
                     tni_rows(g->pp, g->n));
}

/* sum over permutations of prod_s m[s][permutation(s)], by subsets of columns: row s joins those of s columns */
static double tni_permanent(int n, const double *m)
{
    double sums[1 << TN_CP_MAX_ORDER];
    int    s, t;
    sums[0] = 1;
    for (unsigned set = 1; set < 1u << n; set++) {
        for (sums[set] = 0, s = -1, t = 0; t < n; t++) s += (int)(set >> t & 1);
        for (t = 0; t < n; t++) if (set >> t & 1) sums[set] += m[s * n + t] * sums[set ^ 1u << t];
    }
    return sums[(1u << n) - 1];
}

/* Element j of row i of tni_pairs_symmetric. */
static void tni_pairs_permute(const tni_pairs *g, int64_t i, int64_t j)
{
    double a[TN_CP_MAX_ORDER * TN_CP_MAX_ORDER], m[TN_CP_MAX_ORDER * TN_CP_MAX_ORDER], scale = 1;
    int    n = g->order, s, at;
    for (a[0] = 0, s = 0; s < n; s++)                   /* gcc does not know that n > 2, and would warn of a */
        for (int t = 0; t < n; t++) a[s * n + t] = g->gram[((s * g->m + i) * n + t) * g->n + j];
    for (s = 2; s < n; s++) scale /= s;
    g->k[i * g->n + j] = scale * g->weight / n * tni_permanent(n, a);
    for (int row = 0; row < n && g->inputs; row++)
        for (int column = 0; column < n; column++) {
            for (at = 0, s = 0; s < n; s++)
                for (int t = 0; t < n; t++) if (s != row && t != column) m[at++] = a[s * n + t];
            g->gram[((row * g->m + i) * n + column) * g->n + j] = scale * tni_permanent(n - 1, m) * g->weight
                                                                  * g->pp[i * g->n + j];
        }
}

/* Task: some rows of the block. */
static void tni_pairs_symmetric_rows(void *arg, int64_t task, int worker)
{
    const tni_pairs *g = (const tni_pairs *)arg;
    const int64_t    share = tni_ceil_div(TNI_PAIRS_SHARE, g->n), end = tni_min(g->m, (task + 1) * share);
    (void)worker;
    for (int64_t i = task * share; i < end; i++) {
        double *k = g->k + i * g->n, *pp = g->pp + i * g->n, *row = g->gram + i * 2 * g->n;
        if (g->order == 2) g->host.by->pair_products(g->n, g->weight, row, row + g->m * 2 * g->n, g->inputs ? pp : NULL, k);
        else for (int64_t j = 0; j < g->n; j++) tni_pairs_permute(g, i, j);
        if (g->sums) g->sums[i] = g->host.by->dot(g->n, k, pp);
    }
}

/* k = weight times the mean over permutations of prod A_(s,permutation(s)). With g->inputs, A_sq is replaced by the same
   without row s and column q, times P^T P'. */
TNI_FN void tni_pairs_symmetric(tni_pairs *g)
{
    if (g->n == 0) return;
    tni_parallel_for(g->host.pool, tni_ceil_div(g->m, tni_ceil_div(TNI_PAIRS_SHARE, g->n)), tni_pairs_symmetric_rows, g);
}

/* [out_a,out_b], or the diagonal: sum over h, h' of P[o,h] K[h,h'] P'[o',h'], times 2^(row[o] + column[o']) for the true
   value. column may be NULL if a is b. */
TNI_FN tn_status tni_cp_gram_host(const tn_cp *a, const tn_cp *b, bool diagonal, double *sum, int *row, int *column,
                                  const char *op)
{
    tni_scratch w = tni_scratch_begin(a->ctx, op);
    tni_pairs   g;
    tn_status   s = tni_pairs_begin(&g, &w, a, b, true);
    double     *t = tni_take_f64(&w, a->out, g.block);
    memset(sum, 0, sizeof *sum * (size_t)(diagonal ? a->out : a->out * b->out));
    if (s == TN_OK && !t) s = TN_ERR_MEMORY;
    while (tni_pairs_next(&g, &s)) {
        tni_pairs_grams(&g, true);
        tni_pairs_symmetric(&g);
        g.host.by->gemm(&g.host, a->out, g.n, g.m, 1, tni_terms_p(&g.a), tni_rows(g.k, g.n), g.a.first > 0 ? 1 : 0,
                        tni_rows(t, g.n));
        if (!tni_pairs_column_done(&g)) continue;
        if (!diagonal)
            g.host.by->gemm(&g.host, a->out, b->out, g.n, 1, tni_rows(t, g.n), tni_transposed(tni_terms_p(&g.b)), 1,
                            tni_rows(sum, b->out));
        for (int64_t o = 0; diagonal && o < a->out; o++)
            sum[o] += g.host.by->dot(g.n, t + o * g.n, tni_from(tni_terms_p(&g.b), o, 0).p);
    }
    for (int64_t o = 0; o < a->out && s == TN_OK; o++) row[o] = g.a.row[o];
    for (int64_t o = 0; o < b->out && s == TN_OK && column; o++) column[o] = g.b.row[o];
    for (int64_t o = 0; g.same && o < a->out; o++) {         /* the lower half of the blocks is the upper one, transposed */
        if (diagonal) sum[o] *= 2;
        for (int64_t q = 0; !diagonal && q <= o; q++)
            sum[o * a->out + q] = sum[q * a->out + o] = sum[o * a->out + q] + sum[q * a->out + o];
    }
    return tni_scratch_end(&w, s);
}

/* <S,S'> without 2^shift */
TNI_FN tn_status tni_cp_inner_host(const tn_cp *a, const tn_cp *b, double *sum, int *shift, const char *op)
{
    tni_scratch w = tni_scratch_begin(a->ctx, op);
    tni_pairs   g;
    tn_status   s = tni_pairs_begin(&g, &w, a, b, false);
    *sum = 0;
    g.sums = tni_take_f64(&w, 1, g.block);
    if (s == TN_OK && !g.sums) s = TN_ERR_MEMORY;
    while (tni_pairs_next(&g, &s)) {
        tni_pairs_grams(&g, true);
        tni_pairs_outputs(&g);
        tni_pairs_symmetric(&g);
        for (int64_t i = 0; i < g.m; i++) *sum += (g.same ? 2 : 1) * g.sums[i];
    }
    *shift = g.a.shift + g.b.shift;
    return tni_scratch_end(&w, s);
}

static tn_status tni_out_of_range(tn_ctx *ctx, double number, int shift, const char *type, const char *op)
{
    if (!(fabs(number) < HUGE_VAL)) return tni_fail(ctx, TN_ERR_NONFINITE, "%s: a result is not finite", op);
    return tni_fail(ctx, TN_ERR_NONFINITE, "%s: a result is about 1e%d, beyond the range of %s", op,
                    (int)floor(log10(fabs(number)) + shift * 0.30102999566398120 + 0.5), type);
}

/* *number times 2^shift, unless this is neither 0 nor a double. */
TNI_FN tn_status tni_scale_result(tn_ctx *ctx, double *number, int shift, const char *op)
{
    const double x = ldexp(*number, shift);
    if (!(fabs(x) < HUGE_VAL) || (x == 0 && *number != 0))
        return tni_out_of_range(ctx, *number, shift, tn_dtype_name(TN_F64), op);
    *number = x;
    return TN_OK;
}

/* An owned tensor of numbers times 2^shift, for a matrix 2^(row[i] + column[j]), which may lie beyond the range of the
   context's dtype. Numbers that are too large are refused; small ones become 0, unless all of them do. */
TNI_FN tn_tensor *tni_owned_by_rows(tn_ctx *ctx, int rank, const int64_t *shape, double *numbers, int shift, const int *row,
                                    const int *column, const char *op)
{
    const bool   single = ctx->desc.dtype == TN_F32;
    const double most = single ? 3.4028235677973366e38 : HUGE_VAL, least = single ? 7.006492321624085e-46 : 0;
    double       lost = 0;
    int64_t      n = 1;
    int          lost_shift = 0;
    bool         kept = false;
    for (int k = 0; k < rank; k++) n *= shape[k];
    for (int64_t i = 0; i < n; i++) {
        const int    by = row ? row[i / shape[1]] + column[i % shape[1]] : shift;
        const double x = ldexp(numbers[i], by);
        if (!(fabs(x) < most)) {
            tni_out_of_range(ctx, numbers[i], by, tn_dtype_name(ctx->desc.dtype), op);
            return NULL;
        }
        if (fabs(x) > least) kept = true;
        else if (!kept && numbers[i] != 0) { lost = numbers[i]; lost_shift = by; }
        numbers[i] = x;
    }
    if (kept || lost == 0) return tni_owned_from(ctx, rank, shape, numbers);
    tni_out_of_range(ctx, lost, lost_shift, tn_dtype_name(ctx->desc.dtype), op);
    return NULL;
}

TNI_FN tn_tensor *tni_owned_scaled(tn_ctx *ctx, int rank, const int64_t *shape, double *numbers, int shift, const char *op)
{
    return tni_owned_by_rows(ctx, rank, shape, numbers, shift, NULL, NULL, op);
}

#endif /* TN_NO_OPERATOR */
