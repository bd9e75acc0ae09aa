/* Questions about a layer, answered from its weights alone. */
#include <math.h>
#include <stdio.h>
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

enum { IN = 4, HIDDEN = 6, OUT = 3 };

static tn_tensor *cube(tn_ctx *ctx, const void *user, tn_tensor *x)
{
    (void)user;
    return tn_mul(ctx, tn_mul(ctx, x, x), x);
}

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .threads = 1, .seed = 4}, &ctx, NULL) != TN_OK) return 1;
    tn_params *ps = tn_params_create(ctx);
    tn_mlp     layer, copy;
    tn_linear  embed, head;
    const int64_t out = OUT, row[2] = {1, IN};
    const double  numbers[IN] = {0.5, -1, 2, 0.25};
    tn_linear_init(ps, "embed", &(tn_linear_desc){.in = IN, .out = IN}, &embed);
    tn_mlp_init(ps, "layer", &(tn_mlp_desc){.in = IN, .hidden = HIDDEN, .out = IN, .residual = true, .bias = true}, &layer);
    tn_linear_init(ps, "head", &(tn_linear_desc){.in = IN, .out = OUT, .bias = true}, &head);
    tn_tensor *x = tn_tensor_from(ctx, 2, row, TN_F64, numbers), *u = tn_full(ctx, 1, &out, 1);
    tn_tensor *y = tn_linear_forward(ctx, &head, tn_mlp_forward(ctx, &layer, tn_linear_forward(ctx, &embed, x)));

    /* The whole stack as one operator, in two ways. */
    const uint64_t mark = tn_cp_mark(ctx);
    tn_cp *cp = tn_cp_from_stack(ctx, &embed, &layer, &head);
    tn_cp *folded = tn_cp_release(ctx, mark, NULL);
    check("released", folded == NULL, 1, 0);
    cp = tn_cp_from_stack(ctx, &embed, &layer, &head);
    folded = tn_cp_fold_out(tn_cp_fold_in(tn_cp_from_mlp(ctx, &layer), embed.w, NULL), head.w, head.b);
    check("a stack as an operator", at(tn_cp_apply(ctx, cp, x), 2), at(y, 2), 1e-12);
    check("folded step by step", at(tn_cp_apply(ctx, folded, x), 2), at(y, 2), 1e-12);
    check("biases: a constant input", cp->constant && cp->in[0] == IN + 1, 1, 0);
    double cosine = 0, norm = 0, inner = 0;
    check("one function", tn_cp_cosine(cp, folded, &cosine) == TN_OK ? cosine : 0, 1, 1e-12);
    check("norm and inner product", tn_cp_norm(cp, &norm) == TN_OK && tn_cp_inner(cp, cp, &inner) == TN_OK, 1, 0);
    check("norm^2 = <a,a>", norm * norm, inner, 1e-10);
    check("the Gram matrix adds up to it", at(tn_cp_gram(cp, cp), 0) + at(tn_cp_gram(cp, cp), 4) + at(tn_cp_gram(cp, cp), 8), inner, 1e-10);
    check("cosines of outputs", at(tn_cp_cosines(cp, cp), 4), 1, 1e-12);

    /* Forms. */
    tn_tensor *dense = tn_cp_dense_symmetric(cp), *q = tn_cp_interaction(cp, u), *q1 = tn_cp_interaction_of(cp, 1);
    check("its tensor", at(dense, 25 + 7), at(q1, 7), 1e-13);
    check("the other form has the same function", (double)tn_cp_dense(cp)->rank, 3, 0);
    tn_tensor *one = tn_append_one(ctx, x);
    tn_tensor *z = tn_matmul(ctx, tn_matmul(ctx, one, q), tn_transpose(one, 0, 1));
    check("x^T Q x is the sum of the outputs", tn_item(z), at(y, 0) + at(y, 1) + at(y, 2), 1e-12);
    tn_cp     *quadratic = NULL;
    tn_tensor *linear = NULL, *constant = NULL;
    check("split", tn_cp_split(cp, &quadratic, &linear, &constant), TN_OK, 0);
    check("its parts", at(tn_cp_apply(ctx, quadratic, x), 0) + at(tn_affine(ctx, x, linear, constant), 0), at(y, 0), 1e-12);
    tn_tensor *vector = tn_reshape(one, 1, (const int64_t[1]){IN + 1});
    check("one input fixed", tn_cp_fix(cp, 1, vector)->order, 1, 0);
    check("two inputs", at(tn_cp_apply_each(ctx, cp, (tn_tensor *[2]){one, one}), 0), at(y, 0), 1e-12);
    check("symmetrised", at(tn_cp_apply(ctx, tn_cp_symmetrise(cp), x), 1), at(y, 1), 1e-12);
    tn_params *trained = tn_params_create(ctx);
    check("a layer from an operator", tn_mlp_from_cp(trained, "again", cp, &copy), TN_OK, 0);
    check("computes the same", at(tn_mlp_forward(ctx, &copy, x), 1), at(y, 1), 1e-12);

    /* Eigenpairs and spectra. */
    tn_eigenpairs e;
    tn_spectrum   s;
    check("eigenpairs", tn_cp_eigen(cp, u, 0, &e), TN_OK, 0);
    double trace = 0, sum = 0;
    for (int64_t i = 0; i < e.count; i++) sum += at(e.values, i);
    for (int i = 0; i < IN + 1; i++) trace += at(q, i * (IN + 2));
    check("their sum is the trace", sum, trace, 1e-11);
    tn_eigenpairs_destroy(&e);
    check("of every output", tn_cp_eigen_all(cp, 0, &e), TN_OK, 0);
    check("an operator of all pairs", at(tn_cp_apply(ctx, tn_cp_from_eigen(ctx, &e, e.count), x), 2), at(y, 2), 1e-11);
    check("truncated to two", (double)tn_cp_truncate(cp, 2)->terms, 2 * OUT, 0);
    tn_eigenpairs_destroy(&e);
    check("spectrum", tn_cp_spectrum(cp, 0, &s), TN_OK, 0);
    check("bounds of the effective rank meet", at(s.rank_high, 1), at(s.rank_low, 1), 1e-9);
    tn_spectrum_destroy(&s);
    tn_tensor *moment = tn_eye(ctx, IN + 1);
    check("the data metric of the identity", at(tn_cp_interaction(tn_cp_data_metric(cp, moment), u), 3), at(q, 3), 1e-11);
    check("a Gaussian moment", (double)tn_cp_gaussian_moment(quadratic, quadratic, tn_eye(ctx, IN))->shape[0], OUT, 0);

    /* The whole tensor. */
    tn_cp_hosvd_result h;
    tn_coefficients    c;
    check("modes", tn_cp_hosvd(cp, &(tn_cp_hosvd_desc){.core = true}, &h), TN_OK, 0);
    check("norm", h.norm, norm, 1e-9);
    tn_cp_hosvd_destroy(&h);
    check("largest coefficients", tn_cp_top(cp, 4, false, &c), TN_OK, 0);
    check("four", (double)c.count, 4, 0);
    check("in descending order", fabs(at(c.values, 0)) >= fabs(at(c.values, 3)), 1, 0);
    tn_coefficients_destroy(&c);
    const tn_cp *a[1] = {cp}, *b[1] = {folded};
    tn_cp_stack_result stacks;
    check("stacks of one layer", tn_cp_stack_inner(a, b, 1, NULL, &stacks) == TN_OK ? stacks.cosine : 0, 1, 1e-10);

    /* Comparisons, fewer terms, and how much is signal. */
    tn_cp     *aligned = NULL;
    tn_tensor *cosines = NULL;
    check("aligned", tn_cp_align(cp, tn_cp_canonical(cp), &aligned, &cosines), TN_OK, 0);
    check("every term has its pair", at(cosines, 0), 1, 1e-9);
    double error = -1;
    check("fewer terms", tn_cp_refit(cp, &(tn_cp_refit_desc){.terms = 3}, &error) != NULL && error >= 0 && error < 1, 1, 0);
    tn_certificate proof;
    check("a certificate", tn_cp_certify(quadratic, 0.3, 1, NULL, &proof), TN_OK, 0);
    check("error as asked for", at(proof.error, 0) <= 0.3 && at(proof.bound, 0) > 0, 1, 0);
    tn_certificate_destroy(&proof);
    tn_signal signal;
    check("signal", tn_cp_signal(quadratic, &(tn_signal_desc){.null = TN_NULL_MODEL_PAIRS, .draws = 3}, &signal), TN_OK, 0);
    check("values beyond the edge", at(signal.signal, 0) >= 0, 1, 0);
    tn_signal_destroy(&signal);
    tn_tensor *dictionary = tn_eye(ctx, IN);
    check("features of the identity: the interaction matrix", at(tn_cp_feature_interactions(quadratic, u, dictionary, NULL), 1),
          at(tn_cp_interaction(quadratic, u), 1), 1e-12);
    tn_tensor *w = tn_eye(ctx, IN);
    check("what a feature changes: |u - (W d) * u|", at(tn_feature_modification(ctx, w, dictionary, w), 0), 0, 1e-12);
    tn_tensor *features = NULL, *m = tn_mlp_modifier(ctx, &layer, x, &features);
    check("a modifier", m != NULL && features != NULL && m->shape[1] == HIDDEN, 1, 0);
    tn_tensor *step = tn_full(ctx, 2, row, 1), *steps[3] = {step, step, step};
    check("third difference of x^3", at(tn_mixed_difference(ctx, cube, NULL, x, 3, steps), 0), -6 * -1, 1e-9);
    check("no error is left", tn_ctx_status(ctx), TN_OK, 0);
    if (tn_ctx_status(ctx) != TN_OK) puts(tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return failures != 0;
}
