/* test_scale.c: operators of any scale, order and size: inner products from the factors against loops over dense tensors, in
   ordinary ranges and far outside of them; composition and folding of one slot; marks. */

#include "pool.h"
#include "kit.h"

/* Ends the operators of one round, too. */
static void fresh_round(world *w)
{
    tn_cp_release(w->ctx, 0, NULL);
    fresh(w);
}

static void report(const char *what, tn_dtype dtype, double worst) { report_as(what, dtype, worst, 4e-14, 2e-6); }

/* p_scale[o], f_scale[k]: what the random entries of P and of factor k are multiplied with */
static tn_cp *scaled_cp(world *w, int order, int64_t out, int64_t terms, int64_t n, bool constant, double p_scale,
                        const double *f_scale)
{
    tn_tensor *f[TN_CP_MAX_ORDER];
    double    *v = noise(w, out * terms);
    for (int64_t i = 0; i < out * terms; i++) v[i] *= p_scale;
    tn_tensor *p = tensor(w, 2, out, terms, v);
    for (int k = 0; k < order; k++) {
        v = noise(w, terms * n);
        for (int64_t i = 0; i < terms * n; i++) v[i] *= f_scale ? f_scale[k] : 1;
        f[k] = tensor(w, 2, terms, n, v);
    }
    return tn_cp_create(w->ctx, order, p, f, constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
}

/* The mean over all orders of the indices, by visiting each pair of an index tuple and one of its permutations. */
static void add_permutations(double *to, const double *dense, int64_t n, int order, int at, int64_t *index, int *slot, double scale)
{
    if (at == order) {
        int64_t from = 0, into = 0;
        for (int k = 0; k < order; k++) { from = from * n + index[k]; into = into * n + index[slot[k]]; }
        to[into] += scale * dense[from];
        return;
    }
    for (int k = at; k < order; k++) {
        int t = slot[at]; slot[at] = slot[k]; slot[k] = t;
        add_permutations(to, dense, n, order, at + 1, index, slot, scale / (order - at));
        t = slot[at]; slot[at] = slot[k]; slot[k] = t;
    }
}

static double *plain_symmetric(const tn_cp *cp)
{
    int64_t inputs = inputs_of(cp), n = cp->in[0];
    double *dense = plain_dense(cp), *s = doubles(cp->out * inputs);
    for (int64_t o = 0; o < cp->out; o++)
        for (int64_t at = 0; at < inputs; at++) {
            int64_t index[TN_CP_MAX_ORDER], rest = at;
            int     slot[TN_CP_MAX_ORDER];
            for (int k = cp->order - 1; k >= 0; rest /= n) { index[k] = rest % n; slot[k] = k; k--; }
            add_permutations(s + o * inputs, dense + o * inputs, n, cp->order, 0, index, slot, 1);
        }
    return s;
}

/* ---- inner products of every order --------------------------------------------------------- */

TEST(comparisons_of_every_order)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double gram = 0, inner = 0, norm = 0, cosine = 0, symmetric = 0;
        if (!open_world(&w, f64_f32[d], 11)) return;
        for (int round = 0; round < 24; round++) {
            int     order = 1 + round % 4;
            int64_t n = test_random_int(&w.seed, 1, order < 3 ? 9 : 4), out = test_random_int(&w.seed, 1, 4);
            tn_cp  *a = any_cp(&w, order, out, test_random_int(&w.seed, 0, 9), n, round & 4);
            tn_cp  *b = any_cp(&w, order, out, test_random_int(&w.seed, 1, 9), n, round & 4), *sym = tn_cp_symmetrise(a);
            double *s = plain_symmetric(a), *t = plain_symmetric(b), value, *g = doubles(out * out);
            int64_t size = inputs_of(a);
            tn_tensor *found = tn_cp_gram(a, b);
            double  aa = dot(s, s, out * size);
            double  bb = dot(t, t, out * size);
            for (int64_t o = 0; o < out; o++)
                for (int64_t q = 0; q < out; q++) g[o * out + q] = dot(s + o * size, t + q * size, size);
            if (!CHECK(found != NULL) || !CHECK(sym != NULL)) break;
            CHECK_INT(sym->terms, a->terms * (order == 1 ? 1 : order == 2 ? 2 : order == 3 ? 6 : 24));
            test_raise(&symmetric, test_max_error(plain_dense(sym), s, out * size));
            for (int64_t i = 0; i < out * out; i++)
                test_raise(&gram, fabs(host(found)[i] - g[i]) / sqrt(aa > 0 ? aa * bb : bb * bb));
            CHECK_STATUS(tn_cp_inner(a, b, &value), TN_OK);
            test_raise(&inner, fabs(value - dot(s, t, out * size)) / sqrt(aa > 0 ? aa * bb : bb * bb));
            CHECK_STATUS(tn_cp_norm(a, &value), TN_OK);
            test_raise(&norm, fabs(value - sqrt(aa)) / (aa > 0 ? sqrt(aa) : 1));
            CHECK_STATUS(tn_cp_cosine(a, b, &value), TN_OK);
            if (aa > 0) test_raise(&cosine, fabs(value - dot(s, t, out * size) / sqrt(aa * bb)));
            else CHECK(value != value);
            tn_tensor_destroy(found);
            fresh_round(&w);
        }
        report("gram, orders 1 to 4", f64_f32[d], gram);
        report("inner, orders 1 to 4", f64_f32[d], inner);
        report("norm, orders 1 to 4", f64_f32[d], norm);
        report("cosine, orders 1 to 4", f64_f32[d], cosine);
        report("symmetrise, orders 1 to 4", f64_f32[d], symmetric);
        close_world(&w);
    }
}

/* More terms than a block has, and blocks of an operator that is not held as a whole. */
TEST(more_terms_than_a_block)
{
    world   w;
    double  worst = 0;
    int64_t terms[2] = {301, 2100}, n[2] = {3, 1600};           /* the second does not fit as a whole */
    if (!open_world(&w, TN_F64, 13)) return;
    for (int i = 0; i < 2; i++) {
        tn_cp *cp = any_cp(&w, 2, 2, terms[i], n[i], false), *same = tn_cp_symmetrise(cp);
        double norm, other, inner, mixed;
        if (test_leave_out(i == 1 && test_small(), "an operator of many terms")) continue;
        CHECK_STATUS(tn_cp_norm(cp, &norm), TN_OK);
        CHECK_STATUS(tn_cp_inner(same, cp, &mixed), TN_OK);      /* two operators: all blocks, not half of them */
        if (i == 0) { other = sqrt(dot(plain_symmetric(cp), plain_symmetric(cp), 2 * 9)); inner = norm * norm; }
        else {
            tn_tensor *gram = tn_cp_gram(cp, cp);
            other = sqrt(host(gram)[0] + host(gram)[3]);
            CHECK_STATUS(tn_cp_inner(cp, cp, &inner), TN_OK);
            tn_tensor_destroy(gram);
        }
        test_raise(&worst, fabs(other / norm - 1));
        test_raise(&worst, fabs(inner / (norm * norm) - 1));
        test_raise(&worst, fabs(mixed / (norm * norm) - 1));
        fresh_round(&w);
    }
    WORST("norm of many terms", worst, 1e-12);
    close_world(&w);
}

/* Entries whose products leave the range of the dtype, and of a double; the norm itself does not. */
TEST(norms_at_any_scale)
{
    static const struct { tn_dtype dtype; double p, w, v; } scales[] = {
        {TN_F32, 1e-10, 1e10, 1}, {TN_F32, 1e-30, 1e30, 1}, {TN_F32, 1e30, 1e-30, 1}, {TN_F32, 1, 1e10, 1e10},
        {TN_F32, 1, 1e30, 1e30}, {TN_F32, 1, 1e-12, 1e-12}, {TN_F32, 1e-30, 1e-30, 1e-30}, {TN_F32, 1, 1e-10, 1e-10},
        {TN_F64, 1e-300, 1e200, 1e100}, {TN_F64, 1e200, 1e-200, 1}, {TN_F64, 1e-100, 1e-100, 1e-100}, {TN_F64, 1e300, 1e-300, 1e300}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        world  w;
        double factors[2], norm, plain, inner, cosine, self;
        factors[0] = scales[i].w; factors[1] = scales[i].v;
        if (!open_world(&w, scales[i].dtype, 17)) return;
        tn_cp *small = any_cp(&w, 2, 3, 5, 4, false);
        w.seed = 17;
        tn_cp *cp = scaled_cp(&w, 2, 3, 5, 4, false, scales[i].p, factors);
        tn_cp *other = any_cp(&w, 2, 3, 5, 4, false);
        CHECK_STATUS(tn_cp_norm(small, &plain), TN_OK);
        CHECK_STATUS(tn_cp_norm(cp, &norm), TN_OK);
        plain = log(plain) + log(scales[i].p) + log(scales[i].w) + log(scales[i].v);
        CHECK_NEAR(log(norm), plain, scales[i].dtype == TN_F32 ? 1e-6 : 1e-12);
        CHECK_STATUS(tn_cp_cosine(cp, small, &self), TN_OK);
        CHECK_NEAR(self, 1, 1e-6);
        CHECK_STATUS(tn_cp_cosine(cp, other, &cosine), TN_OK);
        CHECK_STATUS(tn_cp_cosine(small, other, &self), TN_OK);
        CHECK_NEAR(cosine, self, 1e-6);
        CHECK_STATUS(tn_cp_inner(cp, small, &inner), TN_OK);
        CHECK(inner > 0);
        tn_tensor *c = tn_cp_cosines(cp, cp);
        CHECK_NEAR(host(c)[4], 1, 1e-6);
        tn_tensor_destroy(c);
        close_world(&w);
    }
}

/* Outputs of very different sizes are compared as if they were alike, and what is too small for a result is an error. */
TEST(outputs_of_different_sizes)
{
    static const double sizes[2][4] = {{1, 1e-170, 1e250, 1e-290}, {1, 1e-18, 1e36, 1e-36}};
    for (size_t d = 0; d < 2; d++) {
        world      w;
        double      value;
        tn_spectrum s[2];
        if (!open_world(&w, f64_f32[d], 23)) return;
        tn_cp  *plain = any_cp(&w, 2, 4, 7, 5, false);
        double *v = host(plain->p);
        for (int i = 0; i < 28; i++) v[i] *= sizes[d][i / 7];
        tn_tensor *p = tensor(&w, 2, 4, 7, v);
        tn_cp *cp = tn_cp_create(w.ctx, 2, p, plain->f, TN_CP_INPUT_PLAIN);
        tn_tensor *a = tn_cp_cosines(plain, plain), *b = tn_cp_cosines(cp, cp), *c = tn_cp_cosines(cp, plain);
        for (int i = 0; i < 16; i++) {
            CHECK_NEAR(host(b)[i], host(a)[i], f64_f32[d] == TN_F32 ? 1e-6 : 1e-14);
            CHECK_NEAR(host(c)[i], host(a)[i], f64_f32[d] == TN_F32 ? 1e-6 : 1e-14);
        }
        tn_tensor_destroy(a); tn_tensor_destroy(b); tn_tensor_destroy(c);
        for (int64_t count = 0; count <= 2; count += 2) {
            CHECK_STATUS(tn_cp_spectrum(plain, count, &s[0]), TN_OK);
            CHECK_STATUS(tn_cp_spectrum(cp, count, &s[1]), TN_OK);
            for (int o = 0; o < 4; o++) {
                CHECK_NEAR(host(s[1].norm)[o] / sizes[d][o], host(s[0].norm)[o], f64_f32[d] == TN_F32 ? 2e-6 : 1e-13);
                CHECK_NEAR(host(s[1].rank_low)[o], host(s[0].rank_low)[o], 1e-5);
                CHECK_NEAR(host(s[1].rank_high)[o], host(s[0].rank_high)[o], 1e-5);
            }
            tn_spectrum_destroy(&s[0]);
            tn_spectrum_destroy(&s[1]);
        }
        double tiny[2] = {1e-30, 1e-30};
        if (f64_f32[d] == TN_F64) tiny[0] = tiny[1] = 1e-200;
        cp = scaled_cp(&w, 2, 2, 3, 4, false, 1, tiny);
        REFUSED(w.ctx, tn_cp_gram(cp, cp), TN_ERR_NONFINITE, "gram: a result is about 1e-");
        CHECK_STATUS(tn_cp_norm(cp, &value), f64_f32[d] == TN_F64 ? TN_ERR_NONFINITE : TN_OK);
        if (f64_f32[d] == TN_F64) CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "norm: a result is about 1e-400, beyond the range of F64");
        close_world(&w);
    }
}

/* Products with factors of a term are finite where the term is: compared with the same operators in an ordinary range. */
TEST(folds_at_any_scale)
{
    static const struct { tn_dtype dtype; double p, w, v, e; } scales[] = {
        {TN_F32, 1e-36, 1e30, 1e-30, 1e20}, {TN_F32, 1e20, 1e-30, 1, 1e-15}, {TN_F32, 1e-25, 1e18, 1, 1e10}, {TN_F32, 1, 1e30, 1e-30, 1},
        {TN_F32, 1e-15, 1, 1, 1e25},
        {TN_F64, 1e-300, 1e200, 1e-100, 1e150}, {TN_F64, 1e200, 1e-200, 1e200, 1e-120}, {TN_F64, 1e-150, 1e140, 1e-200, 1e200}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (int c = 0; c < 2; c++) {
            const double tol = scales[i].dtype == TN_F32 ? 2e-6 : 1e-12;
            world      w;
            double     f[2], scale = scales[i].e, norm[2], cosine;
            tn_cp     *cp[2], *to[2];
            tn_tensor *e[2], *b[2], *m[2];
            const char *what[] = {"fold_in", "fold_slot", "data_metric", "compose", "fold_out"};
            f[0] = scales[i].w; f[1] = scales[i].v;
            for (int which = 0; which < 5; which++) {
                if (!open_world(&w, scales[i].dtype, 29)) return;
                if (c && which != 2) { close_world(&w); continue; }
                cp[0] = any_cp(&w, 2, 3, 6, 4, false);
                w.seed = 29;
                cp[1] = scaled_cp(&w, 2, 3, 6, 4, false, scales[i].p, f);
                double *v = noise(&w, 16), *s = doubles(16);
                for (int k = 0; k < 4; k++)                                   /* s = v v^T, v a triangle */
                    for (int l = 0; l < 4; l++) for (int q = 0; q < 4; q++) s[k * 4 + l] += v[k * 4 + q] * v[l * 4 + q];
                for (int t = 0; t < 2; t++) {
                    for (int k = 0; k < 16 && t; k++) { v[k] *= scale; s[k] *= scale; }
                    e[t] = tensor(&w, 2, 4, 4, v);
                    m[t] = tensor(&w, 2, 4, 4, s);
                    b[t] = tensor(&w, 1, 4, 0, v);
                    to[t] = which == 0 ? tn_cp_fold_in(cp[t], e[t], b[t]) : which == 1 ? tn_cp_fold_slot(cp[t], 1, e[t], NULL)
                            : which == 2 ? tn_cp_data_metric(cp[t], m[t])
                            : which == 3 ? tn_cp_compose(cp[t], tn_cp_create(w.ctx, 1, e[t], &e[0], TN_CP_INPUT_PLAIN))
                            : tn_cp_fold_out(cp[t], tn_slice(e[t], 1, 0, 3), NULL);
                }
                if (!CHECK(to[0] && to[1])) { printf("%s of scales %d: %s\n", what[which], (int)i, tn_ctx_error(w.ctx)); close_world(&w); continue; }
                CHECK_STATUS(tn_cp_norm(to[0], &norm[0]), TN_OK);
                CHECK_STATUS(tn_cp_norm(to[1], &norm[1]), TN_OK);
                double expected = log(norm[0]) + log(scales[i].p) + log(f[0]) + log(f[1])
                                  + log(scale) * (which == 0 || which == 3 ? 2 : 1);
                if (!CHECK_NEAR(log(norm[1]), expected, 100 * tol)) printf("%s of scales %d\n", what[which], (int)i);
                CHECK_STATUS(tn_cp_cosine(to[0], to[1], &cosine), TN_OK);
                CHECK_NEAR(cosine, 1, tol);
                close_world(&w);
            }
        }
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double most[2];
        if (!open_world(&w, f64_f32[d], 31)) return;
        most[0] = most[1] = f64_f32[d] == TN_F32 ? 1e36 : 1e300;
        double *v = noise(&w, 16);
        for (int k = 0; k < 16; k++) v[k] *= most[0];
        CHECK(!tn_cp_fold_in(scaled_cp(&w, 2, 3, 6, 4, false, 1, most), tensor(&w, 2, 4, 4, v), NULL));
        CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "fold_in: term 0 is about 1e");
        close_world(&w);
    }
}

/* NaN and infinity, in any factor: an error, never a number. What is too large for its type is one, too. */
TEST(comparisons_of_what_is_not_finite)
{
    for (size_t d = 0; d < 2; d++)
        for (int where = 0; where < 3; where++)
            for (int kind = 0; kind < 2; kind++) {
                world  w;
                double bad = kind ? -HUGE_VAL : (double)NAN, value = 0;
                if (!open_world(&w, f64_f32[d], 19)) return;
                tn_cp *cp = any_cp(&w, 2, 2, 3, 4, false);
                tn_cp *good = any_cp(&w, 2, 2, 3, 4, false);
                tn_write(tn_slice(tn_slice(where ? cp->f[where - 1] : cp->p, 0, 1, 2), 1, 1, 2), TN_F64, &bad, 1);
                CHECK_STATUS(tn_cp_norm(cp, &value), TN_ERR_NONFINITE);
                CHECK(value != value);
                CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "norm: the operator holds NaN or infinity");
                CHECK_STATUS(tn_cp_inner(good, cp, &value), TN_ERR_NONFINITE);
                CHECK_STATUS(tn_cp_cosine(good, cp, &value), TN_ERR_NONFINITE);
                CHECK(value != value);
                CHECK(!tn_cp_gram(cp, good) && !tn_cp_cosines(cp, good));
                tn_ctx_clear_error(w.ctx);
                close_world(&w);
            }
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double huge[2];
        if (!open_world(&w, f64_f32[d], 19)) return;
        huge[0] = huge[1] = f64_f32[d] == TN_F32 ? 1e30 : 1e200;
        if (f64_f32[d] == TN_F64) {
            double value;
            CHECK_STATUS(tn_cp_norm(scaled_cp(&w, 2, 2, 3, 4, false, 1, huge), &value), TN_ERR_NONFINITE);
            CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "norm: a result is about 1e400, beyond the range of F64");
        }
        CHECK(!tn_cp_gram(scaled_cp(&w, 2, 2, 3, 4, false, 1, huge), any_cp(&w, 2, 2, 3, 4, false)));
        CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "beyond the range of");
        close_world(&w);
    }
}

/* Blocks of the term Gram, and no h x h' matrix: a limit that holds the operator and little more. */
TEST(memory_of_a_norm)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F32, (size_t)32 << 20);            /* 6000 x 6000 floats are 144 MB */
    double     norm;
    tn_tensor *f[2];
    int64_t    shape[2] = {6000, 4};
    tn_cp_hosvd_desc   d = ZERO;
    tn_cp_hosvd_result r;
    f[0] = tn_normal(ctx, 2, shape, 0, 1);
    f[1] = tn_normal(ctx, 2, shape, 0, 1);
    tn_tensor *p = tn_copy(ctx, tn_transpose(f[0], 0, 1));
    tn_cp     *cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    CHECK_STATUS(tn_cp_norm(cp, &norm), TN_OK);
    CHECK_STATUS(tn_cp_cosine(cp, cp, &norm), TN_OK);
    CHECK_NEAR(norm, 1, 1e-12);
    d.core = true;
    CHECK_STATUS(tn_cp_hosvd(cp, &d, &r), TN_OK);
    CHECK(r.error < 1e-6);
    tn_cp_hosvd_destroy(&r);
    CLOSE_CTX(ctx);
}

/* ---- more pairs than there are, and marks -------------------------------------------------- */

TEST(counts_above_the_rank)
{
    world w;
    if (!open_world(&w, TN_F64, 23)) return;
    for (int i = 0; i < 2; i++) {
        int64_t     n = i ? 9 : 3, most = i ? 4 : 3;                   /* min(n, 2 h) */
        tn_cp      *cp = any_cp(&w, 2, 3, 2, n, false);
        tn_eigenpairs    e;
        tn_spectrum s;
        double      norm, before;
        CHECK_STATUS(tn_cp_norm(cp, &before), TN_OK);
        for (int64_t k = most - 1; k <= most + 17; k += 6) {
            CHECK_STATUS(tn_cp_eigen_all(cp, k, &e), TN_OK);
            CHECK_INT(e.count, k < most ? k : most);
            CHECK_INT(e.values->shape[1], e.count);
            tn_eigenpairs_destroy(&e);
            CHECK_STATUS(tn_cp_eigen(cp, any_vector(&w, 3), k, &e), TN_OK);
            CHECK_INT(e.count, k < most ? k : most);
            tn_eigenpairs_destroy(&e);
            CHECK_STATUS(tn_cp_spectrum(cp, k, &s), TN_OK);
            CHECK_INT(s.count, k < most ? k : most);
            tn_spectrum_destroy(&s);
            tn_cp *cut = tn_cp_truncate(cp, k);
            REQUIRE(cut != NULL);
            CHECK_STATUS(tn_cp_norm(cut, &norm), TN_OK);
            if (k >= most) CHECK_NEAR(norm / before, 1, 1e-13);
        }
        fresh_round(&w);
    }
    close_world(&w);
}

TEST(marks_of_operators)
{
    world  w;
    double a;
    if (!open_world(&w, TN_F64, 29)) return;
    tn_cp *first = any_cp(&w, 2, 3, 4, 5, false);
    tn_tensor *e = any_matrix(&w, 5, 2);
    uint64_t mark = tn_cp_mark(w.ctx);
    tn_cp *kept = tn_cp_release(w.ctx, mark, tn_cp_fold_in(first, e, NULL));
    size_t blocks = (size_t)w.heap.blocks;
    for (int i = 0; i < 5; i++) {
        uint64_t inner = tn_cp_mark(w.ctx);
        CHECK(tn_cp_fold_out(tn_cp_fold_in(first, e, NULL), any_matrix(&w, 2, 3), NULL) != NULL);
        CHECK(tn_cp_release(w.ctx, inner, NULL) == NULL);
        CHECK_INT(w.heap.blocks, blocks);
    }
    CHECK_STATUS(tn_cp_norm(kept, &a), TN_OK);                 /* older operators and the kept one are alive */
    CHECK_STATUS(tn_cp_norm(first, &a), TN_OK);
    tn_tensor *t = tn_cp_gram(first, first);
    CHECK(tn_cp_release(w.ctx, 0, NULL) == NULL);              /* all operators, and no tensor */
    CHECK_NEAR(host(t)[0] + host(t)[4] + host(t)[8], a * a, 1e-12 * a * a);
    CHECK(tn_cp_mark(NULL) == 0 && tn_cp_release(NULL, 0, NULL) == NULL);
    double b = 0;
    CHECK_STATUS(tn_cp_norm(any_cp(&w, 2, 1, 1, 1, false), &b), TN_OK);
    CHECK(b > 0);
    close_world(&w);
}

/* ---- folding one slot ------------------------------------------------------------------------ */

TEST(folding_one_slot)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[d], 31)) return;
        for (int round = 0; round < 24; round++) {
            int        order = 1 + round % 3, slot = (int)test_random_int(&w.seed, 0, order - 1);
            bool       constant = round & 4, bias = round & 8;
            int64_t    n = test_random_int(&w.seed, 1, 5), m = test_random_int(&w.seed, 1, 5), out = 2;
            tn_cp     *cp = any_cp(&w, order, out, 3, n + constant, constant);
            tn_tensor *e = any_matrix(&w, n, m), *b = bias ? any_vector(&w, n) : NULL, *x[3], *y[3];
            for (int k = 0; k < order; k++) x[k] = y[k] = any_matrix(&w, 4, k == slot ? m : n);
            x[slot] = tn_affine(w.ctx, y[slot], e, b);
            tn_cp *folded = tn_cp_fold_slot(cp, slot, e, b);
            if (!CHECK(folded != NULL)) break;
            CHECK(folded->constant == (constant || bias) && folded->in[slot] == m + (constant || bias));
            test_raise(&worst, test_max_error(host(tn_cp_apply_each(w.ctx, folded, y)), host(tn_cp_apply_each(w.ctx, cp, x)), 4 * out));
            fresh_round(&w);
        }
        report("folding one slot", f64_f32[d], worst);
        close_world(&w);
    }
}

/* ---- composition ----------------------------------------------------------------------------- */

TEST(compositions)
{
    static const int orders[][2] = {{2, 2}, {1, 2}, {2, 1}, {3, 2}, {2, 3}, {1, 1}};
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0, each = 0;
        if (!open_world(&w, f64_f32[d], 41)) return;
        for (int round = 0; round < 36; round++) {
            const int  *k = orders[round % 6];
            bool       outside = round / 6 & 1, inside = round / 12 & 1;         /* which has a constant */
            int64_t    m = test_random_int(&w.seed, 1, 4), n = test_random_int(&w.seed, 1, 4);
            tn_cp     *inner = any_cp(&w, k[1], m, test_random_int(&w.seed, 1, 4), n + inside, inside);
            tn_cp     *outer = any_cp(&w, k[0], 2, test_random_int(&w.seed, 1, 5), m + outside, outside);
            tn_tensor *x = any_matrix(&w, 5, n), *v[6], *u[3];
            tn_cp     *both_of = tn_cp_compose(outer, inner);
            if (!CHECK(both_of != NULL)) break;
            CHECK(both_of->order == k[0] * k[1] && both_of->constant == (outside || inside));
            test_raise(&worst, test_max_error(host(tn_cp_apply(w.ctx, both_of, x)),
                                              host(tn_cp_apply(w.ctx, outer, tn_cp_apply(w.ctx, inner, x))), 10));
            for (int i = 0; i < k[0] * k[1]; i++) v[i] = any_matrix(&w, 5, n);
            for (int i = 0; i < k[0]; i++) u[i] = tn_cp_apply_each(w.ctx, inner, v + i * k[1]);
            test_raise(&each, test_max_error(host(tn_cp_apply_each(w.ctx, both_of, v)), host(tn_cp_apply_each(w.ctx, outer, u)), 10));
            fresh_round(&w);
        }
        report("composition", f64_f32[d], worst);
        report("composition, input by input", f64_f32[d], each);
        close_world(&w);
    }
}

/* ---- modes ------------------------------------------------------------------------------------- */

/* W = [[1,2],[3,4]], V = [[5,6],[7,8]], P = I */
static tn_cp *small_example(world *w)
{
    static const double p[] = {1, 0, 0, 1}, a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
    tn_tensor *f[2];
    f[0] = tensor(w, 2, 2, 2, a);
    f[1] = tensor(w, 2, 2, 2, b);
    return tn_cp_create(w->ctx, 2, tensor(w, 2, 2, 2, p), f, TN_CP_INPUT_PLAIN);
}

TEST(modes_of_the_small_example)
{
    world w;
    if (!open_world(&w, TN_F64, 1)) return;
    for (int accurate = 0; accurate < 2; accurate++) {
        tn_cp_hosvd_desc   d = ZERO;
        tn_cp_hosvd_result r;
        d.accurate = accurate;
        d.core = true;
        if (!CHECK_STATUS(tn_cp_hosvd(small_example(&w), &d, &r), TN_OK)) break;
        CHECK_NEAR(host(r.out_values)[0], 55.752400, 5e-7);
        CHECK_NEAR(host(r.out_values)[1], 2.381161, 5e-7);
        CHECK_NEAR(host(r.in_values[0])[0], 55.777726, 5e-7);
        CHECK_NEAR(host(r.in_values[0])[1], 1.686786, 5e-7);
        CHECK_NEAR(r.norm, sqrt(3114), 1e-12);
        CHECK_NEAR(r.error, 0, 3e-8);
        CHECK(r.in_values[1] == NULL);
        tn_cp_hosvd_destroy(&r);
    }
    close_world(&w);
}

/* to[.., j, ..] = sum_i from[.., i, ..] u[i,j] along one axis: [before,keep,after] -> [before,n,after] */
static double *along(const double *from, int64_t before, int64_t keep, int64_t after, const double *u, int64_t n)
{
    double *to = doubles(before * n * after);
    for (int64_t b = 0; b < before; b++)
        for (int64_t i = 0; i < keep; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t a = 0; a < after; a++) to[(b * n + j) * after + a] += u[i * n + j] * from[(b * keep + i) * after + a];
    return to;
}

/* The core in its directions, as a dense tensor. */
static double *rebuilt(const tn_cp_hosvd_result *r, const tn_cp *cp)
{
    double *t = host(r->core);
    int64_t after = 1, before = tn_tensor_count(r->core);
    for (int m = cp->order; m >= 0; m--) {
        const tn_tensor *u = m == 0 ? r->out_vectors : r->in_vectors[m - 1] ? r->in_vectors[m - 1] : r->in_vectors[0];
        before /= u->shape[0];
        t = along(t, before, u->shape[0], after, host(u), u->shape[1]);
        after *= u->shape[1];
    }
    return t;
}

TEST(modes_against_dense)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double whole = 0, error = 0, values = 0, orthogonal = 0;
        int    truncated = 0;
        if (!open_world(&w, f64_f32[d], 43)) return;
        for (int round = 0; round < 32; round++) {
            int       order = 1 + round % 3;
            bool      plain = round & 4, accurate = round & 8;
            int64_t   n = test_random_int(&w.seed, 1, 5), out = test_random_int(&w.seed, 1, 5), h = test_random_int(&w.seed, 0, 7);
            tn_cp    *cp = any_cp(&w, order, out, h, n, false);
            double   *dense = plain ? plain_dense(cp) : plain_symmetric(cp), left = 0;
            int64_t   size = out * inputs_of(cp);
            tn_cp_hosvd_desc   desc = ZERO;
            tn_cp_hosvd_result r;
            desc.unsymmetrised = plain;
            desc.accurate = accurate;
            desc.core = true;
            if (!CHECK_STATUS(tn_cp_hosvd(cp, &desc, &r), TN_OK)) break;
            double  norm = sqrt(dot(dense, dense, size));
            double *again = rebuilt(&r, cp);
            for (int64_t i = 0; i < size; i++) left += (again[i] - dense[i]) * (again[i] - dense[i]);
            test_raise(&whole, sqrt(left) / (norm > 0 ? norm : 1));
            test_raise(&whole, fabs(r.norm - norm) / (norm > 0 ? norm : 1));
            for (int64_t i = 0; i < out; i++)                       /* sum_i u_i s_i^2 u_i^T = the Gram matrix of the outputs */
                for (int64_t j = 0; j < out; j++) {
                    double sum = 0, unit = 0;
                    for (int64_t k = 0; k < out; k++) {
                        double s = host(r.out_values)[k];
                        sum += s * s * host(r.out_vectors)[k * out + i] * host(r.out_vectors)[k * out + j];
                        unit += host(r.out_vectors)[i * out + k] * host(r.out_vectors)[j * out + k];
                    }
                    sum -= dot(dense + i * size / out, dense + j * size / out, size / out);
                    test_raise(&values, fabs(sum) / (norm > 0 ? norm * norm : 1));
                    test_raise(&orthogonal, fabs(unit - (i == j)));
                }
            tn_cp_hosvd_destroy(&r);
            desc.rank_out = 2;
            desc.rank_in = 2;
            if (!CHECK_STATUS(tn_cp_hosvd(cp, &desc, &r), TN_OK)) break;
            again = rebuilt(&r, cp);
            for (left = 0, size--; size >= 0; size--) left += (again[size] - dense[size]) * (again[size] - dense[size]);
            if (norm > 0) test_raise(&error, fabs(r.error * r.error - left / (norm * norm)));    /* a difference of squares */
            truncated += r.error > 0.1;
            tn_cp_hosvd_destroy(&r);
            fresh_round(&w);
        }
        report("core in its directions", f64_f32[d], whole);
        report("values of the output mode", f64_f32[d], values);
        report("orthogonality of the output mode", f64_f32[d], orthogonal);
        report("squared error of truncation", f64_f32[d], error);
        CHECK(truncated > 10);
        close_world(&w);
    }
}

/* B_o = s_o q_o q_o^T: singular values s of both modes, down to 1e-13 of the largest; and two hidden units that differ by 1e-9. */
TEST(small_singular_values)
{
    world  w;
    double p[36] = {0}, f[36] = {0}, twin_p[] = {1, -1, 1, 1}, worst = 0;
    tn_tensor *factor[2];
    tn_cp_hosvd_desc   d = ZERO;
    tn_cp_hosvd_result r;
    d.accurate = true;
    if (!open_world(&w, TN_F64, 47)) return;
    for (int i = 0; i < 6; i++) { p[i * 7] = pow(10, -2.6 * i); f[i * 7] = 1; }
    factor[0] = factor[1] = tensor(&w, 2, 6, 6, f);
    tn_cp *cp = tn_cp_create(w.ctx, 2, tensor(&w, 2, 6, 6, p), factor, TN_CP_INPUT_PLAIN);
    REQUIRE(CHECK_STATUS(tn_cp_hosvd(cp, &d, &r), TN_OK));
    for (int i = 0; i < 6; i++) {
        test_raise(&worst, fabs(host(r.out_values)[i] / p[i * 7] - 1));
        test_raise(&worst, fabs(host(r.in_values[0])[i] / p[i * 7] - 1));
    }
    WORST("small singular values, 1e-13 of the largest", worst, 1e-3);
    tn_cp_hosvd_destroy(&r);
    double twin_f[4] = {1, 0, 1, 1e-9};       /* x0^2 and (x0 + 1e-9 x1)^2 */
    factor[0] = factor[1] = tensor(&w, 2, 2, 2, twin_f);
    cp = tn_cp_create(w.ctx, 2, tensor(&w, 2, 2, 2, twin_p), factor, TN_CP_INPUT_PLAIN);
    REQUIRE(CHECK_STATUS(tn_cp_hosvd(cp, &d, &r), TN_OK));
    CHECK_NEAR(host(r.out_values)[0], 2, 1e-8);                          /* the sum; the difference is -2e-9 x0 x1: norm sqrt 2 1e-9 */
    CHECK_NEAR(host(r.out_values)[1] / (sqrt(2.0) * 1e-9), 1, 1e-6);
    tn_cp_hosvd_destroy(&r);
    close_world(&w);
}

/* Gram matrices of several blocks of pairs, against the QR decompositions, which have no blocks of terms. */
TEST(modes_of_many_terms)
{
    double worst = 0;
    for (int order = 1; order <= 3; order++)
        for (int plain = 0; plain < 2; plain++) {
            world  w;
            tn_cp_hosvd_desc   d = ZERO;
            tn_cp_hosvd_result by_grams, by_qr;
            if (!open_world(&w, TN_F64, 47)) return;
            tn_cp *cp = any_cp(&w, order, 2, 300, 3, order == 2);
            d.unsymmetrised = plain;
            CHECK_STATUS(tn_cp_hosvd(cp, &d, &by_grams), TN_OK);
            d.accurate = true;
            CHECK_STATUS(tn_cp_hosvd(cp, &d, &by_qr), TN_OK);
            for (int m = 0; m <= (plain ? order : 1); m++) {
                double *a = host(m ? by_grams.in_values[m - 1] : by_grams.out_values);
                double *b = host(m ? by_qr.in_values[m - 1] : by_qr.out_values);
                for (int i = 0; i < (m ? 3 : 2); i++) test_raise(&worst, fabs(a[i] - b[i]) / b[0]);
            }
            tn_cp_hosvd_destroy(&by_grams);
            tn_cp_hosvd_destroy(&by_qr);
            close_world(&w);
        }
    WORST("modes of 300 terms, two ways", worst, 1e-12);
}

/* ---- largest coefficients ------------------------------------------------------------------------ */

TEST(largest_coefficients)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[d], 53)) return;
        for (int round = 0; round < 24; round++) {
            int      order = 1 + round % 3;
            bool     plain = round & 4;
            int64_t  n = test_random_int(&w.seed, 1, order < 3 ? 9 : 4), out = test_random_int(&w.seed, 1, 3), k = test_random_int(&w.seed, 0, 12);
            tn_cp   *cp = any_cp(&w, order, out, test_random_int(&w.seed, 0, 6), n, false);
            double  *dense = plain ? plain_dense(cp) : plain_symmetric(cp), largest = 1;
            int64_t  size = out * inputs_of(cp), left = 0;
            tn_coefficients r;
            if (!CHECK_STATUS(tn_cp_top(cp, k, plain, &r), TN_OK)) break;
            for (int64_t i = 0; i < size; i++) {                /* only i <= j <= .. of a symmetric tensor */
                int64_t rest = i, last = n;
                bool    ascending = true;
                for (int s = 0; s < order; s++, rest /= n) { ascending = ascending && rest % n <= last; last = rest % n; }
                if (!plain && !ascending) dense[i] = 0;
                else left++;
            }
            CHECK_INT(r.count, k < left ? k : left);
            for (int64_t i = 0; i < r.count; i++) {
                int32_t index[4];
                int64_t at = 0, best = 0;
                CHECK_STATUS(tn_read(tn_slice(r.index, 0, i, i + 1), TN_I32, index, order + 1), TN_OK);
                for (int s = 0; s <= order; s++) at = s ? at * n + index[s] : index[s];
                for (int64_t j = 0; j < size; j++) if (fabs(dense[j]) > fabs(dense[best])) best = j;
                if (i == 0 && fabs(dense[best]) > 0) largest = fabs(dense[best]);
                test_raise(&worst, fabs(host(r.values)[i] - dense[at]) / largest);
                test_raise(&worst, (fabs(dense[best]) - fabs(dense[at])) / largest);
                dense[at] = 0;
            }
            tn_coefficients_destroy(&r);
            fresh_round(&w);
        }
        report("largest coefficients", f64_f32[d], worst);
        close_world(&w);
    }
}

/* Norms over all outputs, more of which than terms at times, against sums over a full tensor. */
TEST(largest_pairs_of_all_outputs)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[d], 57)) return;
        for (int round = 0; round < 24; round++) {
            int      order = 1 + round % 3;
            bool     plain = round & 4;
            int64_t  n = test_random_int(&w.seed, 1, order < 3 ? 9 : 4), out = test_random_int(&w.seed, 0, 8), k = test_random_int(&w.seed, 0, 12);
            tn_cp   *cp = any_cp(&w, order, out, test_random_int(&w.seed, 0, 6), n, false);
            double  *dense = plain ? plain_dense(cp) : plain_symmetric(cp), largest = 1;
            int64_t  size = inputs_of(cp), left = 0;
            double  *norm = doubles(size);
            tn_coefficients r;
            if (!CHECK_STATUS(tn_cp_top_inputs(cp, k, plain, &r), TN_OK)) break;
            for (int64_t i = 0; i < size && out > 0; i++) {
                int64_t rest = i, last = n;
                bool    ascending = true;
                for (int s = 0; s < order; s++, rest /= n) { ascending = ascending && rest % n <= last; last = rest % n; }
                norm[i] = -1;
                if (!plain && !ascending) continue;
                for (norm[i] = 0, rest = 0; rest < out; rest++) norm[i] += dense[rest * size + i] * dense[rest * size + i];
                norm[i] = sqrt(norm[i]);
                left++;
            }
            CHECK_INT(r.count, k < left ? k : left);
            for (int64_t i = 0; i < r.count; i++) {
                int32_t index[4];
                int64_t at = 0, best = 0;
                CHECK_STATUS(tn_read(tn_slice(r.index, 0, i, i + 1), TN_I32, index, order), TN_OK);
                for (int s = 0; s < order; s++) at = at * n + index[s];
                for (int64_t j = 0; j < size; j++) if (norm[j] > norm[best]) best = j;
                if (i == 0 && norm[best] > 0) largest = norm[best];
                test_raise(&worst, fabs(host(r.values)[i] - norm[at]) / largest);
                test_raise(&worst, (norm[best] - norm[at]) / largest);
                norm[at] = -1;
            }
            tn_coefficients_destroy(&r);
            fresh_round(&w);
        }
        report("largest pairs of all outputs", f64_f32[d], worst);
        close_world(&w);
    }
}

/* Columns that decay: most blocks are skipped, and what is found is the same as with all. */
TEST(largest_coefficients_by_their_bound)
{
    world      w;
    int64_t    n = 400, h = 8;
    double     best = 0, joined = 0;
    tn_tensor *f[2];
    tn_coefficients r;
    if (!open_world(&w, TN_F64, 59)) return;
    for (int k = 0; k < 2; k++) {
        double *v = noise(&w, h * n);
        for (int64_t i = 0; i < h * n; i++) v[i] /= 1 + (double)(i % n);
        f[k] = tensor(&w, 2, h, n, v);
    }
    tn_cp  *cp = tn_cp_create(w.ctx, 2, any_matrix(&w, 2, h), f, TN_CP_INPUT_PLAIN);
    double *dense = plain_dense(cp);
    REQUIRE(CHECK_STATUS(tn_cp_top(cp, 5, true, &r), TN_OK));
    for (int64_t i = 0; i < 2 * n * n; i++) test_raise(&best, fabs(dense[i]));
    CHECK_NEAR(fabs(host(r.values)[0]), best, 1e-14);
    CHECK(r.visited < 0.2 && r.visited > 0);
    tn_coefficients_destroy(&r);
    REQUIRE(CHECK_STATUS(tn_cp_top_inputs(cp, 5, true, &r), TN_OK));
    for (int64_t i = 0; i < n * n; i++) test_raise(&joined, hypot(dense[i], dense[n * n + i]));
    CHECK_NEAR(host(r.values)[0], joined, 1e-14);
    CHECK(r.visited < 0.2 && r.visited > 0);
    tn_coefficients_destroy(&r);
    close_world(&w);
}

/* ---- Gaussian inputs --------------------------------------------------------------------------------- */

/* E[f g^T] over x = mean + L z by Gauss-Hermite quadrature: 3 points per axis are exact for degree 5. */
static void quadrature(world *w, const tn_cp *a, const tn_cp *b, int64_t n, const double *mean, const double *l, double *moment)
{
    int64_t points = 1, o;
    for (int64_t i = 0; i < n; i++) points *= 3;
    for (int64_t at = 0; at < points; at++) {
        double  z[4], x[4], weight = 1;
        int64_t rest = at;
        for (int64_t i = 0; i < n; i++, rest /= 3) {
            z[i] = (double)(rest % 3 - 1) * sqrt(3.0);
            weight *= rest % 3 == 1 ? 2.0 / 3 : 1.0 / 6;
        }
        for (int64_t i = 0; i < n; i++) for (x[i] = mean[i], o = 0; o < n; o++) x[i] += l[i * n + o] * z[o];
        double *f = host(tn_cp_apply(w->ctx, a, tensor(w, 2, 1, n, x)));
        double *g = host(tn_cp_apply(w->ctx, b, tensor(w, 2, 1, n, x)));
        for (o = 0; o < a->out; o++) for (int64_t q = 0; q < b->out; q++) moment[o * b->out + q] += weight * f[o] * g[q];
    }
}

TEST(gaussian_moments)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[d], 61)) return;
        for (int round = 0; round < 16; round++) {
            int     order = 1 + round % 2;
            bool    constant = round & 2;
            int64_t n = test_random_int(&w.seed, 1, 4), m = n + constant;
            tn_cp  *a = any_cp(&w, order, 3, 4, m, constant), *b = any_cp(&w, order, 2, 5, m, constant);
            double *l = noise(&w, n * n), *mean = constant ? noise(&w, n) : doubles(n), *s = doubles(m * m), *want = doubles(6);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < m; j++) {
                    double mi = i < n ? mean[i] : 1, mj = j < n ? mean[j] : 1;
                    s[i * m + j] = mi * mj + (i < n && j < n ? dot(l + i * n, l + j * n, n) : 0);
                }
            tn_tensor *found = tn_cp_gaussian_moment(a, b, tensor(&w, 2, m, m, s));
            if (!CHECK(found != NULL)) break;
            quadrature(&w, a, b, n, mean, l, want);
            test_raise(&worst, test_max_error(host(found), want, 6));
            tn_tensor_destroy(found);
            fresh_round(&w);
        }
        report("Gaussian moments against quadrature", f64_f32[d], worst);
        close_world(&w);
    }
}

/* ---- stacks -------------------------------------------------------------------------------------------- */

/* A second moment of any magnitude: in F32 the products F S lose digits, or leave the range, before they meet P. */
TEST(gaussian_moments_at_any_scale)
{
    static const struct { double p, f, s; } scales[] = {{1e30, 1e-6, 1e-36}, {1e-38, 1e18, 1e21}, {1, 1, 1e-15}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        world  w;
        double factors[2], eye[9] = {0};
        if (!open_world(&w, TN_F32, 67)) return;
        for (int k = 0; k < 9; k += 4) eye[k] = 1;
        tn_tensor *t = tn_cp_gaussian_moment(any_cp(&w, 2, 2, 3, 3, false), any_cp(&w, 2, 2, 3, 3, false),
                                             tensor(&w, 2, 3, 3, eye));
        double     plain = host(t)[0];
        tn_tensor_destroy(t);
        w.seed = 67;
        factors[0] = factors[1] = scales[i].f;
        for (int k = 0; k < 9; k += 4) eye[k] = scales[i].s;
        t = tn_cp_gaussian_moment(scaled_cp(&w, 2, 2, 3, 3, false, scales[i].p, factors),
                                  scaled_cp(&w, 2, 2, 3, 3, false, scales[i].p, factors), tensor(&w, 2, 3, 3, eye));
        double all = scales[i].p * scales[i].f * scales[i].f * scales[i].s;
        if (CHECK(t != NULL)) CHECK_NEAR(host(t)[0] / all / all / plain, 1, 1e-5);
        tn_tensor_destroy(t);
        close_world(&w);
    }
}

TEST(two_layers_exactly)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[d], 67)) return;
        for (int round = 0; round < 12; round++) {
            bool    c = round & 1;
            int64_t n = test_random_int(&w.seed, 1, 4) + c, m = test_random_int(&w.seed, 1, 4), k = test_random_int(&w.seed, 1, 4);
            const tn_cp *a[2], *b[2];
            double  inner, na, nb;
            tn_cp_stack_result r;
            a[0] = any_cp(&w, 2, m, 3, n, c);
            a[1] = any_cp(&w, 2, 2, 4, m + c, c);
            b[0] = any_cp(&w, 2, k, 4, n, c);
            b[1] = any_cp(&w, 2, 2, 3, k + c, c);
            tn_cp *fa = tn_cp_compose(a[1], a[0]);
            tn_cp *fb = tn_cp_compose(b[1], b[0]);
            CHECK_STATUS(tn_cp_inner(fa, fb, &inner), TN_OK);
            CHECK_STATUS(tn_cp_norm(fa, &na), TN_OK);
            CHECK_STATUS(tn_cp_norm(fb, &nb), TN_OK);
            CHECK_STATUS(tn_cp_stack_inner(a, b, 2, NULL, &r), TN_OK);
            CHECK(r.method == TN_CP_STACK_EXACT && r.inner_error == 0);
            test_raise(&worst, fabs(r.inner - inner) / (na * nb));
            test_raise(&worst, fabs(r.norm_a / na - 1));
            test_raise(&worst, fabs(r.norm_b / nb - 1));
            test_raise(&worst, fabs(r.cosine - inner / (na * nb)));
            CHECK_STATUS(tn_cp_stack_inner(a, b, 1, NULL, &r), c || m != k ? TN_ERR_SHAPE : TN_OK);      /* outputs differ */
            tn_ctx_clear_error(w.ctx);
            fresh_round(&w);
        }
        report("two layers against their composition", f64_f32[d], worst);
        close_world(&w);
    }
}

/* x0 x1 x2 x3 as (x0 x1)(x2 x3) and as (x0 x2)(x1 x3) */
static tn_cp *products(world *w, int64_t n, const int *pair, int64_t terms)
{
    double *p = doubles(terms * terms), *a = doubles(terms * n), *b = doubles(terms * n);
    tn_tensor *f[2];
    for (int64_t i = 0; i < terms; i++) p[i * terms + i] = a[i * n + pair[2 * i]] = b[i * n + pair[2 * i + 1]] = 1;
    f[0] = tensor(w, 2, terms, n, a);
    f[1] = tensor(w, 2, terms, n, b);
    return tn_cp_create(w->ctx, 2, tensor(w, 2, terms, terms, p), f, TN_CP_INPUT_PLAIN);
}

/* The same stacks with other sizes of weights: all methods give the same cosine, and numbers or an error. */
TEST(stacks_at_any_scale)
{
    static const struct { tn_dtype dtype; double p, f; } scales[] = {
        {TN_F32, 1e-30, 1e-30}, {TN_F32, 1e30, 1e-15}, {TN_F32, 1e30, 1e30}, {TN_F32, 1e-8, 1e-8}, {TN_F64, 1e-200, 1e-200},
        {TN_F64, 1e200, 1e-100}, {TN_F64, 1e200, 1e200}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (int layers = 1; layers <= 3; layers++)
            for (int method = TN_CP_STACK_EXACT; method <= TN_CP_STACK_LAYER_SYMMETRISED; method++) {
                const tn_cp *a[3], *b[3], *c[3];
                const double f[2] = {scales[i].f, scales[i].f}, degree = (double)((1 << layers) - 1);
                tn_cp_stack_desc   desc = ZERO;
                tn_cp_stack_result r, plain;
                world           w;
                if (method == TN_CP_STACK_EXACT && layers > 2) continue;
                if (!open_world(&w, scales[i].dtype, 37)) return;
                desc.method = (tn_cp_stack_method)method;
                desc.samples = 64;
                for (int l = 0; l < layers; l++) b[l] = any_cp(&w, 2, 3, 4, 3, false);
                w.seed = 37 + 1;
                for (int l = 0; l < layers; l++) a[l] = any_cp(&w, 2, 3, 5, 3, false);
                w.seed = 37 + 1;
                for (int l = 0; l < layers; l++) c[l] = scaled_cp(&w, 2, 3, 5, 3, false, scales[i].p, f);
                CHECK_STATUS(tn_cp_stack_inner(a, b, layers, &desc, &plain), TN_OK);
                for (int k = 1; k <= 2; k++) {                                /* c with b, c with itself */
                    const double size = degree * (log10(scales[i].p) + 2 * log10(scales[i].f));
                    const tn_status s = tn_cp_stack_inner(c, k == 1 ? b : c, layers, &desc, &r);
                    if (fabs(k * size) < 290) CHECK_STATUS(s, TN_OK);
                    if (fabs(k * size) > 340) CHECK_STATUS(s, TN_ERR_NONFINITE);
                    CHECK_NEAR(r.cosine, k == 1 ? plain.cosine : 1, scales[i].dtype == TN_F32 ? 1e-5 : 1e-12);
                    if (s == TN_OK) CHECK_NEAR(log10(r.norm_a), log10(plain.norm_a) + size, scales[i].dtype == TN_F32 ? 1e-5 : 1e-11);
                    else {
                        CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "stack_inner: a result is about 1e");
                        CHECK(isnan(r.inner) && isnan(r.norm_a) && isnan(r.norm_b));
                    }
                }
                close_world(&w);
            }
}

TEST(one_function_as_two_stacks)
{
    static const int near[] = {0, 1, 2, 3}, cross[] = {0, 2, 1, 3}, last[] = {0, 1};
    world w;
    const tn_cp *a[2], *b[2];
    tn_cp_stack_result r;
    tn_cp_stack_desc   d = ZERO;
    if (!open_world(&w, TN_F64, 71)) return;
    a[0] = products(&w, 4, near, 2);
    b[0] = products(&w, 4, cross, 2);
    a[1] = b[1] = products(&w, 2, last, 1);
    CHECK_STATUS(tn_cp_stack_inner(a, b, 2, NULL, &r), TN_OK);
    CHECK_NEAR(r.cosine, 1, 1e-14);
    CHECK_NEAR(r.inner, 1.0 / 24, 1e-15);                        /* |sym(e0 e1 e2 e3)|^2 = 1/4! */
    for (int k = 0; k < 2; k++) {
        d.method = k ? TN_CP_STACK_TREE : TN_CP_STACK_LAYER_SYMMETRISED;
        CHECK_STATUS(tn_cp_stack_inner(a, b, 2, &d, &r), TN_OK);
        CHECK(r.method == d.method && r.cosine == 0 && r.norm_a > 0);
    }
    d.method = TN_CP_STACK_SAMPLED;
    d.samples = 3000;
    CHECK_STATUS(tn_cp_stack_inner(a, b, 2, &d, &r), TN_OK);
    CHECK_NEAR(r.cosine, 1, 1e-12);
    CHECK(fabs(r.inner - 1.0 / 24) < 5 * r.inner_error && r.inner_error < 0.1 / 24 && r.samples == 3000);
    close_world(&w);
}

/* A tensor of size 1e210, whose squares no double holds: its core is as large, and nothing of it is lost. */
TEST(cores_at_any_scale)
{
    double worst = 0;
    world  w;
    if (!open_world(&w, TN_F64, 79)) return;
    for (int k = 0; k < 4; k++) {
        const double       size = k / 2 ? 1e-70 : 1e70;
        tn_cp             *plain = any_cp(&w, 2, 4, 5, 4, false);
        tn_tensor         *f[2] = {tn_scale(w.ctx, plain->f[0], size), tn_scale(w.ctx, plain->f[1], size)};
        tn_cp_hosvd_desc   d = ZERO;
        tn_cp_hosvd_result r, own;
        d.core = true;
        d.accurate = k % 2;
        tn_cp *cp = tn_cp_create(w.ctx, 2, tn_scale(w.ctx, plain->p, size), f, TN_CP_INPUT_PLAIN);
        if (!CHECK_STATUS(tn_cp_hosvd(cp, &d, &r), TN_OK) || !CHECK_STATUS(tn_cp_hosvd(plain, &d, &own), TN_OK)) break;
        CHECK(r.error < 1e-6);
        test_raise(&worst, fabs(r.norm / (size * size * size) / own.norm - 1));
        for (int64_t i = 0; i < tn_tensor_count(r.core); i++)
            test_raise(&worst, fabs(fabs(host(r.core)[i] / (size * size * size)) - fabs(host(own.core)[i])) / own.norm);
        tn_cp_hosvd_destroy(&r);
        tn_cp_hosvd_destroy(&own);
        fresh_round(&w);
    }
    WORST("cores of tensors of size 1e210 and 1e-210", worst, 1e-9);
    close_world(&w);
}

/* Samples against the exact inner product of two layers, on the sphere and with less certainty from the normal distribution. */
TEST(sampled_stacks)
{
    world w;
    int   outside = 0, larger = 0, count = 0;
    if (!open_world(&w, TN_F64, 73)) return;
    for (int round = 0; round < 8; round++) {
        bool    c = round & 1;
        int64_t n = 3 + c;
        const tn_cp *a[2], *b[2];
        tn_cp_stack_result exact, r, again, wide;
        tn_cp_stack_desc   d = ZERO;
        d.method = TN_CP_STACK_SAMPLED;
        d.seed = (uint64_t)round + 1;
        d.samples = 2000;
        a[0] = any_cp(&w, 2, 3, 3, n, c);
        a[1] = any_cp(&w, 2, 2, 4, 3 + c, c);
        b[0] = any_cp(&w, 2, 3, 4, n, c);
        b[1] = any_cp(&w, 2, 2, 3, 3 + c, c);
        CHECK_STATUS(tn_cp_stack_inner(a, b, 2, NULL, &exact), TN_OK);
        CHECK_STATUS(tn_cp_stack_inner(a, b, 2, &d, &r), TN_OK);
        CHECK_STATUS(tn_cp_stack_inner(a, b, 2, &d, &again), TN_OK);
        CHECK(r.inner == again.inner && r.cosine_error == again.cosine_error);
        d.gaussian = true;
        CHECK_STATUS(tn_cp_stack_inner(a, b, 2, &d, &wide), TN_OK);
        count += 4;
        outside += (fabs(r.inner - exact.inner) > 3 * r.inner_error) + (fabs(r.cosine - exact.cosine) > 3 * r.cosine_error);
        outside += (fabs(wide.inner - exact.inner) > 4 * wide.inner_error) + (fabs(wide.cosine - exact.cosine) > 4 * wide.cosine_error);
        larger += wide.inner_error > 1.2 * r.inner_error;
        CHECK(wide.norm_a > exact.norm_a / 2 && wide.norm_a < exact.norm_a * 2);
        CHECK(r.cosine_error > 0 && fabs(r.cosine - exact.cosine) < 0.1);
        fresh_round(&w);
    }
    CHECK(outside <= 2 && count == 32);
    CHECK_INT(larger, 8);
    close_world(&w);
}

/* Three layers of one unit: x0^8, and (x0 + x1)^8/2^4 of norm 1, whose inner product is (1/sqrt 2)^8. */
TEST(three_layers)
{
    world  w;
    double one = 1, plain[] = {1, 0}, slant[] = {sqrt(0.5), sqrt(0.5)};
    const tn_cp *a[3], *b[3], *c[3];
    tn_cp_stack_result r;
    tn_cp_stack_desc   d = ZERO;
    if (!open_world(&w, TN_F64, 79)) return;
    tn_tensor *p = tensor(&w, 2, 1, 1, &one);
    tn_tensor *f[2] = {p, p};
    a[1] = a[2] = b[1] = b[2] = tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    f[0] = f[1] = tensor(&w, 2, 1, 2, plain);
    a[0] = tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    f[0] = f[1] = tensor(&w, 2, 1, 2, slant);
    b[0] = tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    CHECK_STATUS(tn_cp_stack_inner(a, b, 3, NULL, &r), TN_OK);
    CHECK(r.method == TN_CP_STACK_SAMPLED && r.samples == 4096);
    CHECK(fabs(r.inner - 1.0 / 16) < 4 * r.inner_error && r.inner_error < 0.02);
    CHECK(fabs(r.norm_a - 1) < 0.1 && fabs(r.norm_b - 1) < 0.1);
    c[0] = c[1] = c[2] = a[1];
    CHECK_STATUS(tn_cp_stack_inner(c, c, 3, NULL, &r), TN_OK);      /* x0^8 of one input: its modulus is 1 in every sample */
    CHECK_NEAR(r.inner, 1, 1e-12);
    CHECK_NEAR(r.inner_error, 0, 1e-12);
    d.method = TN_CP_STACK_LAYER_SYMMETRISED;                       /* one unit: here the layers' rule is the true one */
    CHECK_STATUS(tn_cp_stack_inner(a, b, 3, &d, &r), TN_OK);
    CHECK_NEAR(r.cosine, 1.0 / 16, 1e-14);
    d.method = TN_CP_STACK_EXACT;
    CHECK_STATUS(tn_cp_stack_inner(a, b, 3, &d, &r), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "stack_inner: layers is 3, expected 1 or 2 for the exact method");
    close_world(&w);
}

/* Swapped encoders, permuted and rescaled units: the same function, so the same modes, moments and coefficients. */
TEST(invariances_of_modes)
{
    world      w;
    int64_t    n = 5, h = 4, out = 3;
    double     worst = 0;
    tn_tensor *f[2], *m[2];
    tn_cp_hosvd_result r[2];
    tn_coefficients    t[2];
    if (!open_world(&w, TN_F64, 83)) return;
    double *p = noise(&w, out * h), *a = noise(&w, h * n), *b = noise(&w, h * n);
    double *q = doubles(out * h), *fa = doubles(h * n), *fb = doubles(h * n);
    for (int64_t k = 0; k < h; k++) {                             /* unit k becomes h-1-k, with W and V exchanged */
        for (int64_t o = 0; o < out; o++) q[o * h + h - 1 - k] = p[o * h + k] / (4 * -0.5);
        for (int64_t j = 0; j < n; j++) { fa[(h - 1 - k) * n + j] = 4 * b[k * n + j]; fb[(h - 1 - k) * n + j] = -0.5 * a[k * n + j]; }
    }
    f[0] = tensor(&w, 2, h, n, a); f[1] = tensor(&w, 2, h, n, b);
    tn_cp *one = tn_cp_create(w.ctx, 2, tensor(&w, 2, out, h, p), f, TN_CP_INPUT_PLAIN);
    f[0] = tensor(&w, 2, h, n, fa); f[1] = tensor(&w, 2, h, n, fb);
    tn_cp     *two = tn_cp_create(w.ctx, 2, tensor(&w, 2, out, h, q), f, TN_CP_INPUT_PLAIN);
    tn_tensor *e = any_matrix(&w, n, n);
    e = tn_matmul(w.ctx, e, tn_transpose(e, 0, 1));
    for (int k = 0; k < 2; k++) {
        CHECK_STATUS(tn_cp_hosvd(k ? two : one, NULL, &r[k]), TN_OK);
        CHECK_STATUS(tn_cp_top(k ? two : one, 6, false, &t[k]), TN_OK);
        m[k] = tn_cp_gaussian_moment(k ? two : one, one, e);
    }
    test_raise(&worst, test_frobenius(host(r[1].out_values), host(r[0].out_values), out));
    test_raise(&worst, test_frobenius(host(r[1].in_values[0]), host(r[0].in_values[0]), n));
    test_raise(&worst, test_frobenius(host(r[1].in_vectors[0]), host(r[0].in_vectors[0]), n * n));
    test_raise(&worst, test_frobenius(host(t[1].values), host(t[0].values), 6));
    test_raise(&worst, test_frobenius(host(m[1]), host(m[0]), out * out));
    CHECK(isnan(r[0].error));
    double *s = host(r[0].in_vectors[0]);
    for (int64_t i = 0; i < n; i++) {
        double largest = 0;
        for (int64_t j = 0; j < n; j++) if (fabs(s[i * n + j]) > fabs(largest)) largest = s[i * n + j];
        CHECK(largest > 0);
    }
    WORST("invariances of modes, moments and coefficients", worst, 1e-12);
    for (int k = 0; k < 2; k++) { tn_cp_hosvd_destroy(&r[k]); tn_coefficients_destroy(&t[k]); tn_tensor_destroy(m[k]); }
    close_world(&w);
}

/* ---- what is refused ------------------------------------------------------------------------- */

TEST(bad_calls)
{
    world  w;
    double skew[] = {2, 1, 0, 2}, nan[] = {(double)NAN, 0, 0, 1};
    if (!open_world(&w, TN_F64, 37)) return;
    tn_cp     *cp = any_cp(&w, 2, 2, 3, 2, false);
    tn_cp     *one = any_cp(&w, 2, 2, 3, 4, true);
    tn_tensor *x = any_matrix(&w, 2, 3);
    REFUSED(w.ctx, tn_cp_apply(w.ctx, cp, x), TN_ERR_SHAPE, "apply: x is [2,3], expected a last extent of 2");
    REFUSED(w.ctx, tn_cp_apply(w.ctx, one, any_matrix(&w, 2, 2)), TN_ERR_SHAPE, "expected a last extent of 4, the operator's inputs, or one less");
    REFUSED(w.ctx, tn_cp_data_metric(cp, tensor(&w, 2, 2, 2, skew)), TN_ERR_ARG, "data_metric: s is not symmetric: |s[1,0] - s[0,1]| is 0.5 of the largest element, expected at most");
    REFUSED(w.ctx, tn_cp_data_metric(cp, tensor(&w, 2, 2, 2, nan)), TN_ERR_NONFINITE, "data_metric: s, [2,2], has NaN or infinity");
    tn_tensor *p = any_matrix(&w, 2, 4);
    tn_tensor *f[2] = {any_matrix(&w, 4, 3), p};
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN), TN_ERR_SHAPE,
            "factor 1 is [2,4], expected [4,in]: one row per term, as p, [2,4], has one column per term");
    REFUSED(w.ctx, tn_cp_fold_slot(cp, 2, x, NULL), TN_ERR_ARG, "fold_slot: slot is 2, expected 0 to 1");
    REFUSED(w.ctx, tn_cp_fold_slot(cp, 1, any_matrix(&w, 3, 2), NULL), TN_ERR_SHAPE, "fold_slot: e is [3,2], expected 2 rows");
    REFUSED(w.ctx, tn_cp_fold_slot(cp, 1, any_matrix(&w, 2, 2), any_vector(&w, 3)), TN_ERR_SHAPE, "fold_slot: b is [3]");
    REFUSED(w.ctx, tn_cp_gram(cp, any_cp(&w, 3, 2, 2, 2, false)), TN_ERR_SHAPE, "gram: the operators have orders 2 and 3");
    CHECK(!tn_cp_fold_slot(NULL, 0, x, NULL));
    close_world(&w);
}

TEST(bad_calls_of_modes_and_stacks)
{
    world      w;
    double     rough[] = {2, 1, 0, 2}, lone[] = {1, 0, 0, 3}, bad = HUGE_VAL;
    tn_tensor *f[2];
    tn_cp_hosvd_desc   d = ZERO;
    tn_cp_hosvd_result r;
    tn_coefficients    t;
    tn_cp_stack_result    s;
    tn_cp_stack_desc      sd = ZERO;
    if (!open_world(&w, TN_F64, 89)) return;
    tn_cp *cp = any_cp(&w, 2, 2, 3, 2, false);
    tn_cp *one = any_cp(&w, 2, 2, 3, 2, true);
    f[0] = any_matrix(&w, 3, 4);
    f[1] = any_matrix(&w, 3, 5);
    tn_cp *narrow = tn_cp_create(w.ctx, 2, any_matrix(&w, 2, 3), f, TN_CP_INPUT_PLAIN);
    FAILS(w.ctx, tn_cp_hosvd(narrow, NULL, &r), TN_ERR_SHAPE, "hosvd: input 1 has 5 elements, expected 4 as input 0");
    d.unsymmetrised = true;
    CHECK_STATUS(tn_cp_hosvd(narrow, &d, &r), TN_OK);
    CHECK(r.in_values[1]->shape[0] == 5 && r.core == NULL);
    tn_cp_hosvd_destroy(&r);
    d.rank_in = -2;
    FAILS(w.ctx, tn_cp_hosvd(cp, &d, &r), TN_ERR_ARG, "hosvd: rank_in is -2, expected 0 or more");
    FAILS(w.ctx, tn_cp_hosvd(cp, NULL, NULL), TN_ERR_ARG, "hosvd: out is NULL");
    FAILS(w.ctx, tn_cp_top(cp, -1, false, &t), TN_ERR_ARG, "top: k is -1, expected 0 or more");
    FAILS(w.ctx, tn_cp_top(narrow, 1, false, &t), TN_ERR_SHAPE, "top: input 1 has 5 elements");
    FAILS(w.ctx, tn_cp_top_inputs(narrow, 1, false, &t), TN_ERR_SHAPE, "top_inputs: input 1 has 5 elements");
    FAILS(w.ctx, tn_cp_top_inputs(cp, -1, false, &t), TN_ERR_ARG, "top_inputs: k is -1, expected 0 or more");
    FAILS(w.ctx, tn_cp_top_inputs(cp, 1, false, NULL), TN_ERR_ARG, "top_inputs: out is NULL");
    REFUSED(w.ctx, tn_cp_gaussian_moment(cp, cp, tensor(&w, 2, 2, 2, rough)), TN_ERR_ARG, "gaussian_moment: s is not symmetric: |s[1,0] - s[0,1]| is 0.5 of");
    REFUSED(w.ctx, tn_cp_gaussian_moment(one, one, tensor(&w, 2, 2, 2, lone)), TN_ERR_ARG, "the last element of s is 3, expected 1");
    REFUSED(w.ctx, tn_cp_gaussian_moment(cp, cp, any_matrix(&w, 3, 3)), TN_ERR_SHAPE, "gaussian_moment: s is [3,3], expected [2,2]");
    REFUSED(w.ctx, tn_cp_gaussian_moment(any_cp(&w, 3, 1, 1, 2, false), any_cp(&w, 3, 1, 1, 2, false), any_matrix(&w, 2, 2)), TN_ERR_SHAPE,
            "have order 3, expected 1 or 2");
    REFUSED(w.ctx, tn_cp_compose(any_cp(&w, 3, 2, 3, 2, false), any_cp(&w, 3, 2, 3, 2, false)), TN_ERR_SHAPE, "compose: the operators have orders 3 and 3");
    REFUSED(w.ctx, tn_cp_compose(one, cp), TN_ERR_SHAPE, "compose: the outer operator has 1 inputs beside the constant one, expected 2");
    REFUSED(w.ctx, tn_cp_compose(cp, NULL), TN_ERR_ARG, "compose: the inner operator is NULL");
    const tn_cp *a[2] = {cp, one};
    CHECK_STATUS(tn_cp_stack_inner(a, a, 2, NULL, &s), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "stack_inner: a[1] has a constant input, expected the same as a[0]");
    CHECK_STATUS(tn_cp_stack_inner(a, a + 1, 1, NULL, &s), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "stack_inner: a[0] lacks a constant input, b[0] has one, expected the same");
    CHECK_STATUS(tn_cp_stack_inner(a, a, 0, NULL, &s), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "stack_inner: layers is 0, expected 1 to 16");
    sd.method = TN_CP_STACK_SAMPLED;
    sd.samples = 1;
    CHECK_STATUS(tn_cp_stack_inner(a, a, 1, &sd, &s), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "stack_inner: samples is 1, expected 2 or more");
    CHECK_STATUS(tn_cp_stack_inner(a, a, 1, NULL, NULL), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "stack_inner: out is NULL");
    tn_write(tn_slice(tn_slice(cp->p, 0, 0, 1), 1, 0, 1), TN_F64, &bad, 1);
    CHECK_STATUS(tn_cp_stack_inner(a, a, 1, NULL, &s), TN_ERR_NONFINITE);
    CHECK(isnan(s.inner) && isnan(s.cosine));
    CHECK_STATUS(tn_cp_hosvd(cp, NULL, &r), TN_ERR_NONFINITE);
    CHECK_STATUS(tn_cp_top(cp, 1, false, &t), TN_ERR_NONFINITE);
    CHECK_STATUS(tn_cp_top_inputs(cp, 1, false, &t), TN_ERR_NONFINITE);
    CHECK(r.out_values == NULL && t.values == NULL);
    tn_ctx_clear_error(w.ctx);
    close_world(&w);
}

/* Searches of many outputs side by side, some of which are done before others, so that the last one takes their place,
   against one output at a time; with three workers in reverse order and with one. */
TEST(eigenpairs_side_by_side)
{
    enum { N = 1100, H = 512, OUT = 18, COUNT = 3 };
    double  *v[2], worst = 0;
    tn_eigenpairs all[2];
    for (int c = 0; c < 2; c++) {
        int64_t    f_shape[2] = {H, N}, u_shape[1] = {OUT};
        double    *p = doubles(OUT * H), u[OUT];
        tn_ctx    *ctx;
        tn_desc    desc = ZERO;
        tn_tensor *f[2];
        desc.dtype = TN_F64;
        desc.threads = c ? 3 : 1;
        desc.parallel_for = c ? pool_backwards : NULL;
        CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK);
        for (int64_t o = 0; o < OUT; o++)
            for (int64_t i = 0; i < H; i++)                  /* the spectra of odd outputs are dense and take longer */
                p[o * H + i] = o % 2 ? (i % (o + 2) ? 1 : -1) : i % OUT <= o ? 1.0 / (double)(1 + i) : 0;
        tn_tensor *t = tn_tensor_2d(ctx, TN_F64, OUT, H);
        CHECK_STATUS(tn_write(t, TN_F64, p, OUT * H), TN_OK);
        for (int k = 0; k < 2; k++) f[k] = tn_normal(ctx, 2, f_shape, 0, 1);
        tn_cp *cp = tn_cp_create(ctx, 2, t, f, TN_CP_INPUT_PLAIN);
        CHECK_STATUS(tn_cp_eigen_all(cp, COUNT, &all[c]), TN_OK);
        v[c] = doubles(OUT * COUNT);
        CHECK_STATUS(tn_read(all[c].values, TN_F64, v[c], OUT * COUNT), TN_OK);
        for (int64_t o = OUT - 1; o >= 0 && c == 0; o -= 5) {
            tn_eigenpairs one;
            double   value[COUNT], *x = doubles(COUNT * N), *y = doubles(OUT * COUNT * N);
            for (int64_t i = 0; i < OUT; i++) u[i] = i == o;
            t = tn_tensor_nd(ctx, TN_F64, 1, u_shape);
            CHECK_STATUS(tn_write(t, TN_F64, u, OUT), TN_OK);
            CHECK_STATUS(tn_cp_eigen(cp, t, COUNT, &one), TN_OK);
            CHECK_STATUS(tn_read(one.values, TN_F64, value, COUNT), TN_OK);
            CHECK_STATUS(tn_read(one.vectors, TN_F64, x, COUNT * N), TN_OK);
            CHECK_STATUS(tn_read(all[c].vectors, TN_F64, y, OUT * COUNT * N), TN_OK);
            for (int i = 0; i < COUNT; i++) {
                double dot = 0;
                for (int64_t j = 0; j < N; j++) dot += x[i * N + j] * y[(o * COUNT + i) * N + j];
                test_raise(&worst, fabs(value[i] - v[0][o * COUNT + i]) / fabs(value[0]));
                test_raise(&worst, fabs(dot - 1));
            }
            tn_eigenpairs_destroy(&one);
        }
        tn_eigenpairs_destroy(&all[c]);
        tn_cp_destroy(cp);
        tn_ctx_destroy(ctx);
    }
    for (int i = 0; i < OUT * COUNT; i++) CHECK(v[0][i] == v[1][i]);
    WORST("eigenpairs side by side against one output", worst, 1e-11);
    tidy();
}

/* What does not fit is refused with its size, before anything is made. */
TEST(what_does_not_fit)
{
    tn_ctx *ctx = ctx_in(NULL, TN_F32, (size_t)30 << 20);
    tn_tensor *f[2];
    int64_t shape[2] = {300, 300};
    tn_cp_hosvd_desc   d = ZERO;
    tn_cp_hosvd_result r;
    f[0] = tn_normal(ctx, 2, shape, 0, 1);
    f[1] = tn_normal(ctx, 2, shape, 0, 1);
    tn_cp *cp = tn_cp_create(ctx, 2, f[0], f, TN_CP_INPUT_PLAIN);
    REFUSED(ctx, tn_cp_compose(cp, cp), TN_ERR_MEMORY, "compose: the composition has 300^2 terms of 1500 numbers");
    d.core = true;
    FAILS(ctx, tn_cp_hosvd(cp, &d, &r), TN_ERR_MEMORY, "hosvd: the core: 216000016 bytes");
    d.rank_in = d.rank_out = 3;
    CHECK_STATUS(tn_cp_hosvd(cp, &d, &r), TN_OK);
    tn_cp_hosvd_destroy(&r);
    CLOSE_CTX(ctx);
}

TEST_MAIN(comparisons_of_every_order, more_terms_than_a_block, norms_at_any_scale, outputs_of_different_sizes, folds_at_any_scale,
          stacks_at_any_scale, comparisons_of_what_is_not_finite, memory_of_a_norm,
          counts_above_the_rank, marks_of_operators, folding_one_slot, compositions, modes_of_the_small_example, modes_against_dense, modes_of_many_terms,
          small_singular_values, largest_coefficients, largest_pairs_of_all_outputs, largest_coefficients_by_their_bound, gaussian_moments, gaussian_moments_at_any_scale,
          two_layers_exactly, cores_at_any_scale,
          one_function_as_two_stacks, sampled_stacks, three_layers, invariances_of_modes, bad_calls, bad_calls_of_modes_and_stacks,
          eigenpairs_side_by_side, what_does_not_fit)
