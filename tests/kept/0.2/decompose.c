/* Decomposes matrices and tensors whose answers are known. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensornet.h"

static int failures;

static void check(const char *what, double value, double expected, double within)
{
    const bool right = fabs(value - expected) <= within;
    printf("%-48s %.6g%s\n", what, value, right ? "" : "   FAIL");
    failures += !right;
}

static double at(const tn_tensor *t, int64_t i)
{
    double v[512] = {0};
    if (!t || tn_tensor_count(t) > 512 || tn_read(t, TN_F64, v, tn_tensor_count(t)) != TN_OK) return NAN;
    return v[i];
}

static tn_tensor *matrix(tn_ctx *ctx, int64_t n, int64_t m, const double *v)
{
    const int64_t shape[2] = {n, m};
    return tn_tensor_from(ctx, 2, shape, TN_F64, v);
}

static const double symmetric[9] = {2, 1, 0, 1, 2, 0, 0, 0, -5};       /* eigenvalues 3, 1, -5 */
static const double rectangle[6] = {3, 0, 0, 0, 4, 0};                 /* singular values 4, 3 */

static tn_status times(void *user, int64_t count, const double *x, double *y)
{
    for (int64_t k = 0; k < count; k++)
        for (int i = 0; i < 3; i++) {
            y[k * 3 + i] = 0;
            for (int j = 0; j < 3; j++) y[k * 3 + i] += ((const double *)user)[i * 3 + j] * x[k * 3 + j];
        }
    return TN_OK;
}

static void matrices(tn_ctx *ctx)
{
    tn_tensor     *a = matrix(ctx, 3, 3, symmetric), *b = matrix(ctx, 2, 3, rectangle);
    tn_eigh_result e;
    tn_eigh_desc   by = {.order = TN_EIGH_MAGNITUDE, .top = 2, .measure = true};
    check("eigh", tn_eigh(ctx, a, NULL, &e), TN_OK, 0);
    check("smallest value first", at(e.values, 0), -5, 1e-12);
    check("largest value last", at(e.values, 2), 3, 1e-12);
    check("its vector is a row", at(e.vectors, 6), sqrt(0.5), 1e-12);
    tn_eigh_destroy(&e);
    check("by magnitude", tn_eigh(ctx, a, &by, &e), TN_OK, 0);
    check("largest magnitude", at(e.values, 0), -5, 1e-12);
    check("second", at(e.values, 1), 3, 1e-12);
    check("what is left out: 1 of 35", e.error, sqrt(1 / 35.0), 1e-12);
    tn_eigh_destroy(&e);

    tn_svd_result s;
    check("svd", tn_svd(ctx, b, &(tn_svd_desc){.measure = true}, &s), TN_OK, 0);
    check("first singular value", at(s.s, 0), 4, 1e-12);
    check("second", at(s.s, 1), 3, 1e-12);
    check("u is [2,2], vt [2,3]", (double)(s.u->shape[0] * 10 + s.vt->shape[1]), 23, 0);
    check("error", s.error, 0, 1e-14);
    tn_svd_destroy(&s);
    tn_truncation rule = {.rank = 1};
    const double  values[3] = {4, 3, 0};
    double        dropped = 0;
    check("values to keep", (double)tn_truncation_count(&rule, 3, values, &dropped), 1, 0);
    check("dropped", dropped, 9 / 25.0, 1e-15);
    check("effective rank", tn_effective_rank(values, 3), 49 / 25.0, 1e-12);

    tn_qr_result q;
    check("qr", tn_qr(ctx, a, &(tn_qr_desc){.pivot = true}, &q), TN_OK, 0);
    check("rank", (double)q.rank, 3, 0);
    check("longest column first", at(q.order, 0), 2, 0);
    check("r[0,0]", at(q.r, 0), 5, 1e-12);
    tn_qr_destroy(&q);

    const double    y[2] = {6, 8};
    const int64_t   two[1] = {2};
    tn_lstsq_result l;
    check("lstsq", tn_lstsq(ctx, b, tn_tensor_from(ctx, 1, two, TN_F64, y), NULL, &l), TN_OK, 0);
    check("x[0]", at(l.x, 0), 2, 1e-12);
    check("x[2], the shortest", at(l.x, 2), 0, 1e-12);
    check("rank of a", (double)l.rank, 2, 0);
    tn_lstsq_destroy(&l);

    const double  rotation[4] = {0, -1, 1, 0};
    tn_eig_result g;
    check("eig", tn_eig(ctx, matrix(ctx, 2, 2, rotation), &(tn_eig_desc){.left = true}, &g), TN_OK, 0);
    check("i", at(g.values, 1), 1, 1e-12);
    check("-i", at(g.values, 3), -1, 1e-12);
    check("condition", at(g.condition, 0), 1, 1e-10);
    tn_eig_destroy(&g);

    tn_lanczos_result z;
    tn_lanczos_desc   few = {.which = TN_LANCZOS_SMALLEST, .top = 1};
    check("lanczos", tn_lanczos(ctx, 3, times, (void *)symmetric, &few, &z), TN_OK, 0);
    check("smallest", at(z.values, 0), -5, 1e-9);
    tn_lanczos_destroy(&z);

    double        both[18];
    const int64_t three[3] = {2, 3, 3};
    memcpy(both, symmetric, sizeof symmetric);
    for (int i = 0; i < 9; i++) both[9 + i] = i % 4 == 0 ? 1 : 0;
    tn_joint_eigh_result j;
    check("joint", tn_joint_eigh(ctx, tn_tensor_from(ctx, 3, three, TN_F64, both), NULL, &j), TN_OK, 0);
    check("they commute", j.error, 0, 1e-10);
    check("converged", j.converged, 1, 0);
    tn_joint_eigh_destroy(&j);
}

static void tensors(tn_ctx *ctx)
{
    /* a_i b_j c_k + d_i e_j f_k */
    double        v[4 * 3 * 5];
    const int64_t shape[3] = {4, 3, 5};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 5; k++) v[(i * 3 + j) * 5 + k] = (1 + i) * (1 - j) * 0.5 * k + (i == 2 ? 3 : 0) * (j + 1) * (k == 1);
    tn_tensor *t = tn_tensor_from(ctx, 3, shape, TN_F64, v);

    tn_tt *tt = tn_tt_svd(ctx, t, 3, NULL, NULL), *one = tn_tt_round(tt, &(tn_tt_desc){.max_bond = 1});
    check("axes of the train", (double)tt->count, 3, 0);
    check("bonds", (double)(tt->core[0]->shape[2] * 10 + tt->core[1]->shape[2]), 22, 0);
    check("rounded", (double)one->core[0]->shape[2], 1, 0);
    check("with an error", one->error > 0.01 && one->error < 1, 1, 0);
    double norm = 0, inner = 0, element = 0, log_norm = 0, sign = 0;
    const int64_t index[3] = {2, 1, 1};
    tn_tt_norm(tt, &norm);
    tn_tt_inner(tt, tt, &inner);
    check("norm^2 - <t,t>", norm * norm - inner, 0, 1e-9 * inner);
    check("an element", tn_tt_elements(tt, 1, index, &element), TN_OK, 0);
    check("t[2,1,1]", element, 6, 1e-10);
    tn_tt *twice = tn_tt_add(tt, tn_tt_scale(tt, 1));
    check("twice t, dense", at(tn_tt_dense(twice), (2 * 3 + 1) * 5 + 1), 12, 1e-10);
    tn_tt *left = tn_tt_canonical(tt, 2, &log_norm);
    check("log of the norm", log_norm, log(norm), 1e-12);
    check("singular values of cuts", (double)tn_tt_singular_values(tt)->shape[0], 2, 0);
    check("entropies are not negative", at(tn_tt_entropies(left), 0) >= 0, 1, 0);
    check("ln |<t,t>|", tn_tt_log_inner(tt, tt, &inner, &sign) == TN_OK ? inner : NAN, 2 * log(norm), 1e-10);
    check("its sign", sign, 1, 0);
    double p[4], sum = 0;
    check("conditional", tn_tt_conditional(tt, 0, NULL, p), TN_OK, 0);
    for (int i = 0; i < 4; i++) sum += p[i];
    check("adds up to", sum, 1, 1e-12);
    int64_t sample[6];
    check("samples", tn_tt_sample(tt, 2, 0, 7, sample), TN_OK, 0);
    check("in range", sample[0] >= 0 && sample[0] < 4 && sample[2] < 5, 1, 0);
    const int64_t extents[3] = {2, 2, 2};
    tn_tt_norm(tn_tt_random(ctx, 3, extents, 2, 1), &norm);
    check("norm of a random train", norm, 1, 1e-12);
    tn_tt *swapped = tn_tt_swap(tt, 0, NULL);
    check("axes exchanged", (double)swapped->core[0]->shape[1], 3, 0);

    tn_hosvd_result h;
    check("hosvd", tn_hosvd(ctx, t, &(tn_hosvd_desc){.eps = 1e-8, .sweeps = 2}, &h), TN_OK, 0);
    check("core", (double)(h.core->shape[0] * 100 + h.core->shape[1] * 10 + h.core->shape[2]), 222, 0);
    check("error", h.error, 0, 1e-8);
    tn_hosvd_destroy(&h);

    tn_cp_als_result c;
    check("cp", tn_cp_als(ctx, t, &(tn_cp_als_desc){.terms = 2, .seed = 1}, &c), TN_OK, 0);
    check("error", c.error, 0, 1e-4);
    check("axes", c.rank, 3, 0);
    check("not degenerate", c.degenerate, 0, 0);
    tn_cp_als_destroy(&c);

    double        x[400][2];
    const int64_t rows[2] = {400, 2};
    for (int i = 0; i < 400; i++) {
        const double s = (i * 37 % 400) / 200.0 - 1, u = (i * 91 % 400) / 200.0 - 1;
        x[i][0] = s + 0.5 * u;
        x[i][1] = u - 0.3 * s;
    }
    tn_ica_result r;
    check("ica", tn_ica(ctx, tn_tensor_from(ctx, 2, rows, TN_F64, x), NULL, &r), TN_OK, 0);
    check("components", (double)r.components->shape[0], 2, 0);
    check("sweeps", r.sweeps > 0 && r.sweeps <= 200, 1, 0);
    tn_ica_destroy(&r);
}

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .threads = 1}, &ctx, NULL) != TN_OK) return 1;
    matrices(ctx);
    tensors(ctx);
    check("no error is left", tn_ctx_status(ctx), TN_OK, 0);
    if (tn_ctx_status(ctx) != TN_OK) puts(tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return failures != 0;
}
