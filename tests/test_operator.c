/* test_operator.c: the operator against plain loops over copies of its factors, and against the layers it came from.

   Every world below is one context with an allocator that counts: closing it checks that no error is left, and no byte.
   Errors are Frobenius-relative; a sum of parts is held against the sum of the parts' magnitudes. */

#include "sealed.h"
#include "kit.h"

static double bound_of(tn_dtype dtype)  { return dtype == TN_F64 ? 4e-14 : 1e-5; }

static void report(const char *what, tn_dtype dtype, double worst) { report_as(what, dtype, worst, 4e-14, 1e-5); }

/* ---- tensors ---------------------------------------------------------------- */

static tn_tensor *unit_vector(world *w, int64_t n, int64_t i)
{
    double *v = doubles(n);
    v[i] = 1;
    return vector(w, n, v);
}

/* |a - b| / |magnitude| */
static double off(const double *a, const double *b, const double *magnitude, int64_t n)
{
    double difference = 0, size = frobenius(magnitude, n);
    for (int64_t i = 0; i < n; i++) difference += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(difference) / (size > 0 ? size : 1);
}

/* ---- plain loops -------------------------------------------------------------- */

/* y[r,m] = x[r,n] a[m,n]^T + b */
static double *plain_affine(const double *x, int64_t r, int64_t n, const double *a, int64_t m, const double *b)
{
    double *y = doubles(r * m);
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < m; j++) y[i * m + j] = dot(x + i * n, a + j * n, n) + (b ? b[j] : 0);
    return y;
}

static double *plain_with_one(const double *x, int64_t rows, int64_t n)
{
    double *y = doubles(rows * (n + 1));
    for (int64_t r = 0; r < rows; r++) {
        memcpy(y + r * (n + 1), x + r * n, sizeof *x * (size_t)n);
        y[r * (n + 1) + n] = 1;
    }
    return y;
}

static double *plain_symmetric(const double *dense, int64_t out, int64_t n)
{
    double *s = doubles(out * n * n);
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) s[(o * n + i) * n + j] = (dense[(o * n + i) * n + j] + dense[(o * n + j) * n + i]) / 2;
    return s;
}

/* y[r,o] = sum_ij.. B[o,i,j..] x_0[r,i] x_1[r,j] ..   The last input goes first. */
static double *plain_contract_each(const double *dense, const tn_cp *cp, const double *const *x, int64_t rows)
{
    double *y = doubles(rows * cp->out);
    for (int64_t r = 0; r < rows; r++) {
        int64_t size = cp->out * inputs_of(cp);
        double *left = doubles(size);
        memcpy(left, dense, sizeof *left * (size_t)size);
        for (int k = cp->order - 1; k >= 0; k--) {
            size /= cp->in[k];
            for (int64_t i = 0; i < size; i++) left[i] = dot(left + i * cp->in[k], x[k] + r * cp->in[k], cp->in[k]);
        }
        memcpy(y + r * cp->out, left, sizeof *y * (size_t)cp->out);
    }
    return y;
}

static double *plain_contract(const double *dense, const tn_cp *cp, const double *x, int64_t rows)
{
    const double *each[TN_CP_MAX_ORDER];
    for (int k = 0; k < cp->order; k++) each[k] = x;
    return plain_contract_each(dense, cp, each, rows);
}

/* ---- operators ------------------------------------------------------------------ */

static tn_cp *any_cp_of(world *w, int order, int64_t out, int64_t terms, const int64_t *in, bool constant)
{
    tn_tensor *f[TN_CP_MAX_ORDER];
    for (int k = 0; k < order; k++) f[k] = any_matrix(w, terms, in[k]);
    return tn_cp_create(w->ctx, order, any_matrix(w, out, terms), f, constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
}

static tn_cp *cp_of(world *w, int64_t out, int64_t terms, int64_t n, const double *p, const double *f0, const double *f1)
{
    tn_tensor *f[2];
    f[0] = matrix(w, terms, n, f0);
    f[1] = matrix(w, terms, n, f1);
    return tn_cp_create(w->ctx, 2, matrix(w, out, terms, p), f, TN_CP_INPUT_PLAIN);
}

typedef struct shape { int64_t n, h, o; } shape;

/* ones, odd extents, h > n, h < n/2, h = n/2 */
static const shape shapes[] = {{1, 1, 1}, {1, 5, 3}, {5, 1, 2}, {2, 1, 3}, {3, 7, 4}, {7, 3, 5}, {8, 4, 8}, {9, 4, 1}, {9, 5, 2},
                               {13, 17, 11}, {17, 2, 6}, {6, 12, 6}, {33, 15, 4}, {31, 16, 3}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

enum { BIAS = 1, OUT_BIAS = 2, RESIDUAL = 4, AUGMENTED = 8, NO_PROJECTION = 16, COMBINATIONS = 32 };

static bool combination_exists(int flags)
{
    return !((flags & AUGMENTED) && (flags & (BIAS | OUT_BIAS))) && !((flags & NO_PROJECTION) && (flags & OUT_BIAS));
}

static bool any_mlp(world *w, tn_mlp *mlp, int flags, shape s)
{
    tn_mlp_desc d = ZERO;
    d.in = s.n;
    d.hidden = (flags & RESIDUAL) && (flags & NO_PROJECTION) ? s.n : s.h;
    d.out = flags & RESIDUAL ? s.n : flags & NO_PROJECTION ? d.hidden : s.o;
    d.bias = (flags & BIAS) != 0;
    d.out_bias = (flags & OUT_BIAS) != 0;
    d.residual = (flags & RESIDUAL) != 0;
    d.augmented = (flags & AUGMENTED) != 0;
    d.no_projection = (flags & NO_PROJECTION) != 0;
    return CHECK(tn_mlp_init(w->params, "mlp", &d, mlp) == TN_OK);
}

/* ---- the layer is its tensor ------------------------------------------------------ */

/* One layer by forward, by apply with and without the one, and by contraction of the dense tensor. */
static void layer_against_tensor(world *w, int flags, shape s, int64_t batch, double *apply, double *contract, double *dense)
{
    tn_mlp m;
    tn_cp *cp;
    bool   augmented = (flags & AUGMENTED) != 0;
    if (!any_mlp(w, &m, flags, s) || !CHECK(cp = tn_cp_from_mlp(w->ctx, &m))) return;
    int64_t n = m.desc.in;
    CHECK_INT(cp->constant, (flags & (BIAS | OUT_BIAS | RESIDUAL | AUGMENTED)) != 0);
    CHECK_INT(cp->in[0], n + cp->constant);
    CHECK_INT(cp->out, m.desc.out);
    CHECK_INT(cp->terms, m.desc.hidden + ((flags & OUT_BIAS) || (augmented && m.p)) + (flags & RESIDUAL ? n : 0));
    tn_tensor *x = any_matrix(w, batch, n);
    double *xs = cp->constant ? plain_with_one(host(x), batch, n) : host(x);
    tn_tensor *y = tn_mlp_forward(w->ctx, &m, augmented ? tn_append_one(w->ctx, x) : x);
    double *ys = host(augmented ? tn_slice(y, 1, 0, cp->out) : y);
    tn_tensor *full = tn_cp_dense(cp);
    double *plain = plain_dense(cp);
    test_raise(dense, error_from(full, plain, cp->out * cp->in[0] * cp->in[0]));
    test_raise(apply, error_from(tn_cp_apply(w->ctx, cp, x), ys, batch * cp->out));
    test_raise(apply, error_from(tn_cp_apply(w->ctx, cp, matrix(w, batch, cp->in[0], xs)), ys, batch * cp->out));
    test_raise(contract, test_frobenius(plain_contract(host(full), cp, xs, batch), ys, batch * cp->out));
    tn_cp_destroy(cp);
    tn_tensor_destroy(full);
}

static void layer_is_its_tensor_on(const tn_backend *backend, const char *name, uint64_t seeds, size_t shape_count)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double apply = 0, contract = 0, dense = 0;
        char   what[3][64];
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            if (!open_on(&w, f64_f32[d], seed, 1, backend)) return;
            for (int flags = 0; flags < COMBINATIONS; flags++)
                for (size_t i = 0; combination_exists(flags) && i < shape_count; i++) {
                    layer_against_tensor(&w, flags, shapes[i], 6, &apply, &contract, &dense);
                    fresh(&w);
                }
            close_world(&w);
        }
        snprintf(what[0], sizeof *what, "layer: apply%s", name);
        snprintf(what[1], sizeof *what, "layer: tensor contracted with the input%s", name);
        snprintf(what[2], sizeof *what, "layer: dense against loops%s", name);
        report(what[0], f64_f32[d], apply);
        report(what[1], f64_f32[d], contract);
        report(what[2], f64_f32[d], dense);
    }
}

TEST(layer_is_its_tensor)              { layer_is_its_tensor_on(NULL, "", 3, SHAPES); }
TEST(layer_is_its_tensor_on_reference) { layer_is_its_tensor_on(tn_reference_backend(), ", reference", 1, SHAPES); }

TEST(layer_is_its_tensor_on_sealed)
{
#if SEALED
    layer_is_its_tensor_on(sealed_cpu(), ", sealed", 1, 8);
    CHECK_INT(sealed_damaged(), 0);
#else
    SKIP("mmap", "this system has no mprotect");
#endif
}

TEST(batches_of_none_and_of_any_rank)
{
    world   w;
    tn_mlp  m;
    shape   s = {5, 4, 3};
    int64_t cube[3] = {2, 3, 5};
    if (!open_world(&w, TN_F64, 1) || !any_mlp(&w, &m, BIAS, s)) return;
    tn_cp *cp = tn_cp_from_mlp(w.ctx, &m);
    tn_tensor *y = tn_cp_apply(w.ctx, cp, any_matrix(&w, 0, 5));
    CHECK(y && y->rank == 2 && y->shape[0] == 0 && y->shape[1] == 3);
    y = tn_cp_apply(w.ctx, cp, any_vector(&w, 5));
    CHECK(y && y->rank == 1 && y->shape[0] == 3);
    tn_tensor *x = tn_normal(w.ctx, 3, cube, 0, 1);
    y = tn_cp_apply(w.ctx, cp, x);
    CHECK(y && y->rank == 3 && y->shape[0] == 2 && y->shape[1] == 3 && y->shape[2] == 3);
    WORST("apply on [2,3,5]", error_from(y, host(tn_mlp_forward(w.ctx, &m, x)), 18), 1e-14);
    x = tn_transpose(any_matrix(&w, 5, 7), 0, 1);
    WORST("apply on a strided view", error_from(tn_cp_apply(w.ctx, cp, x), host(tn_mlp_forward(w.ctx, &m, x)), 21), 1e-14);
    close_world(&w);
}

/* ---- dense ------------------------------------------------------------------------- */

TEST(dense_of_every_order)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0, apply = 0;
        if (!open_world(&w, f64_f32[d], 7)) return;
        for (int round = 0; round < 60; round++) {
            int        order = 1 + round % 4;
            int64_t    in[TN_CP_MAX_ORDER], out = test_random_int(&w.seed, 1, 5), terms = test_random_int(&w.seed, 0, 7), rows = 4;
            tn_tensor *x[TN_CP_MAX_ORDER];
            const double *xs[TN_CP_MAX_ORDER];
            for (int k = 0; k < order; k++) in[k] = test_random_int(&w.seed, 1, 6);
            tn_cp     *cp = any_cp_of(&w, order, out, terms, in, false);
            tn_tensor *full = tn_cp_dense(cp);
            if (!CHECK(full != NULL)) break;
            CHECK_INT(full->rank, order + 1);
            double *plain = plain_dense(cp);
            test_raise(&worst, error_from(full, plain, out * inputs_of(cp)));
            for (int k = 0; k < order; k++) xs[k] = host(x[k] = any_matrix(&w, rows, in[k]));
            test_raise(&apply, error_from(tn_cp_apply_each(w.ctx, cp, x), plain_contract_each(plain, cp, xs, rows),
                                          rows * out));
            tn_cp_destroy(cp);
            tn_tensor_destroy(full);
            fresh(&w);
        }
        report("dense, orders 1 to 4", f64_f32[d], worst);
        report("apply_each, orders 1 to 4", f64_f32[d], apply);
        close_world(&w);
    }
}

/* Every bit above the diagonal is below it. */
static void check_symmetric_bits(world *w, const tn_tensor *t)
{
    if (!CHECK(t != NULL)) return;
    int64_t n = t->shape[t->rank - 1];
    int64_t out = t->rank == 3 ? t->shape[0] : 1;
    double *v = host(t);
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i; j++)
                if (!CHECK(v[(o * n + i) * n + j] == v[(o * n + j) * n + i])) return;
    (void)w;
}

TEST(symmetric_forms)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double dense = 0, direction = 0, apply = 0, twice = 0;
        if (!open_world(&w, f64_f32[d], 11)) return;
        for (size_t i = 0; i < SHAPES; i++) {
            shape   s = shapes[i];
            tn_cp  *cp = any_cp(&w, 2, s.o, s.h, s.n, false), *symmetric = tn_cp_symmetrise(cp);
            double *plain = plain_symmetric(plain_dense(cp), s.o, s.n), *sum = doubles(s.n * s.n);
            tn_tensor *full = tn_cp_dense_symmetric(cp), *u = any_vector(&w, s.o), *q = tn_cp_interaction(cp, u),
                *x = any_matrix(&w, 6, s.n);
            if (!CHECK(symmetric != NULL)) break;
            CHECK_INT(symmetric->terms, 2 * s.h);
            test_raise(&dense, error_from(full, plain, s.o * s.n * s.n));
            check_symmetric_bits(&w, full);
            double *us = host(u);
            for (int64_t o = 0; o < s.o; o++)
                for (int64_t k = 0; k < s.n * s.n; k++) sum[k] += us[o] * plain[o * s.n * s.n + k];
            test_raise(&direction, off(host(q), sum, plain, s.n * s.n) * (frobenius(plain, s.n * s.n) > 0));
            check_symmetric_bits(&w, q);
            tn_tensor_destroy(q);
            q = tn_cp_interaction_of(cp, s.o - 1);
            test_raise(&direction, error_from(q, plain + (s.o - 1) * s.n * s.n, s.n * s.n));
            check_symmetric_bits(&w, q);
            double *y = plain_contract(plain, cp, host(x), 6);
            test_raise(&apply, error_from(tn_cp_apply(w.ctx, symmetric, x), y, 6 * s.o));
            tn_tensor_destroy(full);
            full = tn_cp_dense(symmetric);
            test_raise(&twice, error_from(full, plain, s.o * s.n * s.n));
            tn_tensor_destroy(full);
            tn_tensor_destroy(q);
            tn_cp_destroy(cp);
            tn_cp_destroy(symmetric);
            fresh(&w);
        }
        report("symmetric dense", f64_f32[d], dense);
        report("interaction of a direction", f64_f32[d], direction);
        report("symmetrise leaves apply as it was", f64_f32[d], apply);
        report("dense of the symmetrised", f64_f32[d], twice);
        close_world(&w);
    }
}

/* ---- folding ------------------------------------------------------------------------- */

/* All of cp.constant and a bias, orders 1 to 3, operands that are views. */
TEST(folding_in_and_out)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double in = 0, out = 0;
        if (!open_world(&w, f64_f32[d], 13)) return;
        for (int round = 0; round < 72; round++) {
            bool       constant = round & 1, bias = (round & 2) != 0, view = (round & 4) != 0;
            int        order = 1 + round % 3;
            int64_t    n = test_random_int(&w.seed, 1, 9), m = test_random_int(&w.seed, 1, 9), rows = 5;
            int64_t    outputs = test_random_int(&w.seed, 1, 5), terms = test_random_int(&w.seed, 1, 7);
            tn_cp     *cp = any_cp(&w, order, outputs, terms, n + constant, constant);
            tn_tensor *e = view ? tn_transpose(any_matrix(&w, m, n), 0, 1) : any_matrix(&w, n, m), *b = any_vector(&w, n);
            tn_tensor *x = any_matrix(&w, rows, m);
            tn_cp     *folded = tn_cp_fold_in(cp, e, bias ? b : NULL);
            double    *mid = plain_affine(host(x), rows, m, host(e), n, bias ? host(b) : NULL);
            if (!CHECK(folded != NULL)) break;
            CHECK_INT(folded->constant, constant || bias);
            CHECK_INT(folded->in[0], m + (constant || bias));
            CHECK_INT(folded->terms, cp->terms);
            double *y = plain_contract(plain_dense(cp), cp, constant ? plain_with_one(mid, rows, n) : mid, rows);
            test_raise(&in, error_from(tn_cp_apply(w.ctx, folded, x), y, rows * cp->out));
            tn_cp_destroy(folded);

            int64_t    from = cp->out;
            int64_t    to = test_random_int(&w.seed, 1, 6);
            tn_tensor *u = view ? tn_transpose(any_matrix(&w, from, to), 0, 1) : any_matrix(&w, to, from);
            tn_tensor *ub = any_vector(&w, to);
            folded = tn_cp_fold_out(cp, u, bias ? ub : NULL);
            if (!CHECK(folded != NULL)) break;
            CHECK_INT(folded->constant, constant || bias);
            CHECK_INT(folded->terms, cp->terms + bias);
            x = any_matrix(&w, rows, n);
            mid = plain_contract(plain_dense(cp), cp, constant ? plain_with_one(host(x), rows, n) : host(x), rows);
            y = plain_affine(mid, rows, from, host(u), to, bias ? host(ub) : NULL);
            test_raise(&out, error_from(tn_cp_apply(w.ctx, folded, x), y, rows * to));
            tn_cp_destroy(folded);
            tn_cp_destroy(cp);
            fresh(&w);
        }
        report("fold in", f64_f32[d], in);
        report("fold out", f64_f32[d], out);
        close_world(&w);
    }
}

/* U = [1,1], W = V = I, x = [1,1]: 2. Folded into W and V it would be 4. */
TEST(folding_out_does_not_fold_into_w_and_v)
{
    world  w;
    double one[] = {1, 1}, identity[] = {1, 0, 0, 1};
    if (!open_world(&w, TN_F64, 1)) return;
    tn_cp *cp = cp_of(&w, 2, 2, 2, identity, identity, identity);
    tn_cp *folded = tn_cp_fold_out(cp, matrix(&w, 1, 2, one), NULL);
    CHECK_NEAR(tn_item(tn_cp_apply(w.ctx, folded, vector(&w, 2, one))), 2, 0);
    close_world(&w);
}

enum { EMBED = 1, UNEMBED = 2, LINEAR_BIAS = 4, STACKS = 8 };

/* embed -> mlp -> unembed with all biases of the mlp, augmented or not */
static void stack_against_forward(world *w, int stack, int flags, double *worst)
{
    tn_linear_desc d = ZERO;
    tn_linear      embed, unembed, *e = stack & EMBED ? &embed : NULL, *u = stack & UNEMBED ? &unembed : NULL;
    tn_mlp         mlp;
    shape          s = {6, 4, 5};
    bool           augmented = (flags & AUGMENTED) != 0;
    int64_t        n = e ? 9 : s.n;
    if (!any_mlp(w, &mlp, flags, s)) return;
    d.augmented = augmented;
    d.bias = !augmented && (stack & LINEAR_BIAS) != 0;
    d.in = 9; d.out = s.n;
    CHECK(!e || tn_linear_init(w->params, "embed", &d, e) == TN_OK);
    d.in = mlp.desc.out; d.out = 3;
    CHECK(!u || tn_linear_init(w->params, "unembed", &d, u) == TN_OK);
    tn_cp *cp = tn_cp_from_stack(w->ctx, e, &mlp, u);
    if (!CHECK(cp != NULL)) return;
    CHECK_INT(cp->constant, augmented || (flags & (BIAS | OUT_BIAS | RESIDUAL)) || ((e || u) && (stack & LINEAR_BIAS)));
    tn_tensor *x = any_matrix(w, 5, n);
    tn_tensor *y = augmented ? tn_append_one(w->ctx, x) : x;
    if (e) y = tn_linear_forward(w->ctx, e, y);
    y = tn_mlp_forward(w->ctx, &mlp, y);
    if (u) y = tn_linear_forward(w->ctx, u, y);
    if (augmented) y = tn_slice(y, 1, 0, cp->out);
    test_raise(worst, error_from(tn_cp_apply(w->ctx, cp, x), host(y), 5 * cp->out));
    tn_cp_destroy(cp);
}

TEST(stack_is_one_operator)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[d], 17)) return;
        for (int stack = 0; stack < STACKS; stack++)
            for (int flags = 0; flags < COMBINATIONS; flags++)
                for (int seed = 0; combination_exists(flags) && seed < 3; seed++) {
                    stack_against_forward(&w, stack, flags, &worst);
                    fresh(&w);
                }
        report("stack", f64_f32[d], worst);
        close_world(&w);
    }
}

/* Hidden units that nobody trained: rows of zeros, and an encoder that is the constant one alone. */
TEST(operators_of_no_terms)
{
    world    w;
    int64_t  in[2] = {4, 4};
    tn_eigenpairs e;
    double   norm = 1, cosine = 0;
    if (!open_world(&w, TN_F64, 1)) return;
    tn_cp *cp = any_cp_of(&w, 2, 3, 0, in, false);
    if (!CHECK(cp != NULL)) return;
    CHECK_NEAR(frobenius(host(tn_cp_dense_symmetric(cp)), 48), 0, 0);
    CHECK_NEAR(frobenius(host(tn_cp_apply(w.ctx, cp, any_matrix(&w, 2, 4))), 6), 0, 0);
    CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK);
    CHECK(e.outputs == 3 && e.count == 0 && e.n == 4);
    tn_eigenpairs_destroy(&e);
    tn_cp *t = tn_cp_truncate(cp, 0);
    CHECK(t && t->terms == 0);
    CHECK_STATUS(tn_cp_norm(cp, &norm), TN_OK);
    CHECK_NEAR(norm, 0, 0);
    CHECK_STATUS(tn_cp_cosine(cp, cp, &cosine), TN_OK);
    CHECK(cosine != cosine);
    CHECK(tn_cp_residual(tn_cp_fold_out(cp, any_matrix(&w, 4, 3), NULL)) != NULL);
    CHECK(tn_cp_symmetrise(cp) != NULL);
    close_world(&w);
}

/* ---- residual, split --------------------------------------------------------------- */

/* B+ as a function, and what its dense slices hold: sym(B)_o and e_o/2 in the constant's row and column. */
TEST(residual_operator)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double function = 0, slices = 0;
        if (!open_world(&w, f64_f32[d], 19)) return;
        for (int round = 0; round < 24; round++) {
            bool       constant = round & 1;
            int64_t    n = 1 + round / 2, m = n + 1, rows = 5, h = test_random_int(&w.seed, 1, 9);
            tn_cp     *cp = any_cp(&w, 2, n, h, n + constant, constant), *plus = tn_cp_residual(cp);
            tn_tensor *x = any_matrix(&w, rows, n);
            double    *xs = host(x);
            int64_t    l = n + constant;
            if (!CHECK(plus != NULL)) break;
            CHECK_INT(plus->terms, h + n);
            CHECK_INT(plus->in[0], m);
            CHECK(plus->constant);
            tn_tensor *y = tn_cp_apply(w.ctx, cp, x);
            double    *sum = host(y), *magnitude = host(y);
            for (int64_t i = 0; i < rows * n; i++) { magnitude[i] = fabs(sum[i]) + fabs(xs[i]); sum[i] += xs[i]; }
            test_raise(&function, off(host(tn_cp_apply(w.ctx, plus, x)), sum, magnitude, rows * n));
            tn_tensor *full = tn_cp_dense_symmetric(plus);
            check_symmetric_bits(&w, full);
            double *small = plain_symmetric(plain_dense(cp), n, l);
            double *big = doubles(n * m * m);
            for (int64_t o = 0; o < n; o++) {
                for (int64_t i = 0; i < l; i++)
                    for (int64_t j = 0; j < l; j++) big[(o * m + i) * m + j] = small[(o * l + i) * l + j];
                big[(o * m + o) * m + n] += 0.5;
                big[(o * m + n) * m + o] += 0.5;
            }
            test_raise(&slices, error_from(full, big, n * m * m));
            for (int64_t o = 0; !constant && o < n; o++) CHECK(host(full)[(o * m + o) * m + n] == 0.5);
            tn_tensor_destroy(full);
            tn_cp_destroy(cp);
            tn_cp_destroy(plus);
            fresh(&w);
        }
        report("x + layer(x)", f64_f32[d], function);
        report("slices of B+", f64_f32[d], slices);
        close_world(&w);
    }
}

/* quadratic, linear and constant part of a layer: MATH's formulas, and their sum */
static void split_against_layer(world *w, int flags, shape s, double *whole, double *parts)
{
    tn_mlp     m;
    tn_cp     *cp, *quadratic;
    tn_tensor *l, *c;
    int64_t    rows = 5;
    if (!any_mlp(w, &m, flags, s) || !CHECK(cp = tn_cp_from_mlp(w->ctx, &m))) return;
    int64_t n = m.desc.in, h = m.desc.hidden, o = m.desc.out;
    if (!CHECK_STATUS(tn_cp_split(cp, &quadratic, &l, &c), TN_OK)) { tn_cp_destroy(cp); return; }
    CHECK(!quadratic->constant && quadratic->in[0] == n && quadratic->in[1] == n);
    CHECK_INT(quadratic->terms, h);
    CHECK(l->rank == 2 && l->shape[0] == o && l->shape[1] == n && c->rank == 1 && c->shape[0] == o);
    tn_tensor *x = any_matrix(w, rows, n);
    double    *xs = host(x);
    tn_tensor *y = tn_cp_apply(w->ctx, cp, x);
    double    *q = host(tn_cp_apply(w->ctx, quadratic, x));
    double    *lx = plain_affine(xs, rows, n, host(l), o, NULL);
    double    *cs = host(c), *sum = doubles(rows * o), *magnitude = doubles(rows * o);
    for (int64_t i = 0; i < rows * o; i++) {
        sum[i] = q[i] + lx[i] + cs[i % o];
        magnitude[i] = fabs(q[i]) + fabs(lx[i]) + fabs(cs[i % o]);
    }
    test_raise(whole, off(host(y), sum, magnitude, rows * o));
    if (!(flags & AUGMENTED) && m.p) {                /* L = P (diag(c) W + diag(b) V) + I of a residual, c = P (b (x) c) + p */
        double *ws = host(m.w), *p = host(m.p), *b = m.b ? host(m.b) : doubles(2 * h);
        double *lin = doubles(o * n);
        for (int64_t i = 0; i < o; i++)
            for (int64_t j = 0; j < n; j++) {
                lin[i * n + j] = (flags & RESIDUAL) && i == j;
                for (int64_t k = 0; k < h; k++) lin[i * n + j] += p[i * h + k] * (b[h + k] * ws[k * n + j] + b[k] * ws[(h + k) * n + j]);
            }
        test_raise(parts, test_frobenius(host(l), lin, o * n));
        for (int64_t i = 0; i < o; i++) {
            sum[i] = m.pb ? host(m.pb)[i] : 0;
            magnitude[i] = fabs(sum[i]);
            for (int64_t k = 0; k < h; k++) {
                sum[i] += p[i * h + k] * b[k] * b[h + k];
                magnitude[i] += fabs(p[i * h + k] * b[k] * b[h + k]);
            }
        }
        test_raise(parts, off(cs, sum, magnitude, o));
    }
    tn_cp_destroy(cp);
    tn_cp_destroy(quadratic);
    tn_tensor_destroy(l);
    tn_tensor_destroy(c);
}

TEST(split_into_quadratic_linear_constant)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double whole = 0, parts = 0;
        if (!open_world(&w, f64_f32[d], 23)) return;
        for (int flags = 0; flags < COMBINATIONS; flags++)
            for (size_t i = 0; combination_exists(flags) && i < SHAPES; i++) {
                split_against_layer(&w, flags, shapes[i], &whole, &parts);
                fresh(&w);
            }
        report("split: parts sum to the whole", f64_f32[d], whole);
        report("split: linear and constant part", f64_f32[d], parts);
        close_world(&w);
    }
}

TEST(split_gives_what_is_asked_for)
{
    world      w;
    tn_mlp     m;
    tn_cp     *q;
    tn_tensor *l, *c;
    shape      s = {4, 3, 4};
    if (!open_world(&w, TN_F64, 5) || !any_mlp(&w, &m, BIAS | OUT_BIAS | RESIDUAL, s)) return;
    tn_cp *cp = tn_cp_from_mlp(w.ctx, &m);
    CHECK_STATUS(tn_cp_split(cp, NULL, NULL, NULL), TN_OK);
    CHECK_STATUS(tn_cp_split(cp, NULL, &l, NULL), TN_OK);
    CHECK_STATUS(tn_cp_split(cp, NULL, NULL, &c), TN_OK);
    CHECK_STATUS(tn_cp_split(cp, &q, NULL, NULL), TN_OK);
    CHECK(l && c && q && q->terms == 3);
    double *once = noise(&w, 4);
    double *twice = doubles(4);
    for (int i = 0; i < 4; i++) twice[i] = 2 * once[i];
    once = host(tn_cp_apply(w.ctx, q, vector(&w, 4, once)));
    twice = host(tn_cp_apply(w.ctx, q, vector(&w, 4, twice)));
    for (int i = 0; i < 4; i++) CHECK(twice[i] == 4 * once[i]);
    CHECK_STATUS(tn_cp_split(q, NULL, &l, &c), TN_OK);                /* without a constant: zeros */
    CHECK(frobenius(host(l), 16) == 0 && frobenius(host(c), 4) == 0);
    close_world(&w);
}

/* ---- two inputs, one frozen ---------------------------------------------------------- */

static tn_tensor *mix(world *w, tn_tensor *a, tn_tensor *b, double factor) { return tn_add(w->ctx, a, tn_scale(w->ctx, b, factor)); }

TEST(on_two_inputs)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double linear = 0, steering = 0, swap = 0;
        if (!open_world(&w, f64_f32[d], 29)) return;
        for (size_t i = 0; i < SHAPES; i++) {
            shape      s = shapes[i];
            tn_cp     *cp = any_cp(&w, 2, s.o, s.h, s.n, false), *symmetric = tn_cp_symmetrise(cp);
            tn_tensor *u = any_matrix(&w, 5, s.n), *v = any_matrix(&w, 5, s.n), *z = any_matrix(&w, 5, s.n), *at[2];
            int64_t    n = 5 * s.o;
            double    *uv, *sum = doubles(n), *magnitude = doubles(n), *whole;
            for (int slot = 0; slot < 2; slot++) {                    /* b(u + z/2, v) = b(u,v) + b(z,v)/2, in either slot */
                at[1 - slot] = v;
                at[slot] = u; uv = host(tn_cp_apply_each(w.ctx, cp, at));
                at[slot] = z; double *zv = host(tn_cp_apply_each(w.ctx, cp, at));
                at[slot] = mix(&w, u, z, 0.5); whole = host(tn_cp_apply_each(w.ctx, cp, at));
                for (int64_t k = 0; k < n; k++) { sum[k] = uv[k] + zv[k] / 2; magnitude[k] = fabs(uv[k]) + fabs(zv[k]) / 2; }
                test_raise(&linear, off(whole, sum, magnitude, n));
            }
            at[0] = u; at[1] = v; uv = host(tn_cp_apply_each(w.ctx, symmetric, at));
            at[0] = v; at[1] = u;
            test_raise(&swap, error_from(tn_cp_apply_each(w.ctx, symmetric, at), uv, n));
            whole = host(tn_cp_apply(w.ctx, cp, mix(&w, u, z, 1)));   /* B(x+s,x+s) - B(x,x) = 2 B(x,s) + B(s,s) */
            double *xx = host(tn_cp_apply(w.ctx, cp, u));
            at[0] = u; at[1] = z; double *xs = host(tn_cp_apply_each(w.ctx, symmetric, at));
            double *ss = host(tn_cp_apply(w.ctx, cp, z));
            for (int64_t k = 0; k < n; k++) {
                sum[k] = xx[k] + 2 * xs[k] + ss[k];
                magnitude[k] = fabs(xx[k]) + 2 * fabs(xs[k]) + fabs(ss[k]);
            }
            test_raise(&steering, off(whole, sum, magnitude, n));
            tn_cp_destroy(cp);
            tn_cp_destroy(symmetric);
            fresh(&w);
        }
        report("b(u,v) is linear in each slot", f64_f32[d], linear);
        report("b(u,v) = b(v,u) when symmetrised", f64_f32[d], swap);
        report("steering identity", f64_f32[d], steering);
        close_world(&w);
    }
}

TEST(freezing_each_slot)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0, frozen_matrix = 0;
        if (!open_world(&w, f64_f32[d], 31)) return;
        for (int round = 0; round < 54; round++) {
            int        order = 2 + round % 3, slot = round % order;
            bool       constant = (round / 3) & 1;
            int64_t    in[TN_CP_MAX_ORDER], rows = 4, out = 3;
            tn_tensor *x[TN_CP_MAX_ORDER], *rest[TN_CP_MAX_ORDER];
            for (int k = 0; k < order; k++) in[k] = test_random_int(&w.seed, 1, 6) + constant;
            tn_cp     *cp = any_cp_of(&w, order, out, test_random_int(&w.seed, 1, 6), in, constant);
            tn_tensor *u = any_vector(&w, in[slot]);
            tn_cp     *frozen = tn_cp_fix(cp, slot, u);
            if (!CHECK(frozen != NULL)) break;
            CHECK_INT(frozen->order, order - 1);
            CHECK_INT(frozen->constant, constant);
            double *repeated = doubles(rows * in[slot]);
            for (int64_t r = 0; r < rows; r++) memcpy(repeated + r * in[slot], host(u), sizeof *repeated * (size_t)in[slot]);
            for (int k = 0, to = 0; k < order; k++) {
                x[k] = k == slot ? matrix(&w, rows, in[k], repeated) : any_matrix(&w, rows, in[k]);
                if (k != slot) rest[to++] = x[k];
            }
            test_raise(&worst, error_from(tn_cp_apply_each(w.ctx, frozen, rest), host(tn_cp_apply_each(w.ctx, cp, x)),
                                          rows * out));
            if (order == 2) {                                         /* a matrix */
                tn_tensor *dense = tn_cp_dense(frozen);
                CHECK(dense && dense->rank == 2 && dense->shape[0] == out && dense->shape[1] == in[1 - slot]);
                test_raise(&frozen_matrix, error_from(tn_cp_apply_each(w.ctx, cp, x),
                                              plain_affine(host(x[1 - slot]), rows, in[1 - slot], host(dense), out, NULL), rows * out));
                tn_tensor_destroy(dense);
            }
            tn_cp_destroy(cp);
            tn_cp_destroy(frozen);
            fresh(&w);
        }
        report("freeze", f64_f32[d], worst);
        report("one frozen input of two is a matrix", f64_f32[d], frozen_matrix);
        close_world(&w);
    }
}

/* ---- eigenpairs ------------------------------------------------------------------------ */

/* What every result owes to the symmetric slices s [outputs,n,n]: pairs, orthonormal, sorted, signed. */
static void check_pairs(const tn_eigenpairs *e, const double *s, double *residual, double *orthonormal)
{
    int64_t n = e->n, k = e->count;
    double *values = host(e->values), *vectors = host(e->vectors);
    for (int64_t o = 0; o < e->outputs; o++) {
        const double *q = s + o * n * n, *l = values + o * k;
        double        size = frobenius(q, n * n);
        for (int64_t i = 0; i < k; i++) {
            const double *v = vectors + (o * k + i) * n;
            double       *qv = plain_affine(v, 1, n, q, n, NULL), largest = 0, most = 0;
            for (int64_t j = 0; j < n; j++) qv[j] -= l[i] * v[j];
            test_raise(residual, frobenius(qv, n) / (size > 0 ? size : 1));
            for (int64_t j = 0; j <= i; j++)
                test_raise(orthonormal, fabs(dot(v, vectors + (o * k + j) * n, n) - (i == j)));
            CHECK(i == 0 || fabs(l[i]) <= fabs(l[i - 1]));
            for (int64_t j = 0; j < n; j++) {
                if (v[j] > most) most = v[j];
                if (fabs(v[j]) > largest) largest = fabs(v[j]);
            }
            CHECK(most >= largest * (1 - 1e-6));
        }
    }
}

/* sum_i l_i v_i v_i^T of the first k pairs */
static double *plain_from_pairs(const tn_eigenpairs *e, int64_t k)
{
    int64_t n = e->n;
    double *values = host(e->values), *vectors = host(e->vectors), *s = doubles(e->outputs * n * n);
    for (int64_t o = 0; o < e->outputs; o++)
        for (int64_t p = 0; p < k; p++) {
            const double *v = vectors + (o * e->count + p) * n;
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++) s[(o * n + i) * n + j] += values[o * e->count + p] * v[i] * v[j];
        }
    return s;
}

TEST(eigenpairs)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double residual = 0, orthonormal = 0, rebuilt = 0;
        if (!open_world(&w, f64_f32[d], 37)) return;
        for (size_t i = 0; i < SHAPES * 2; i++) {
            shape    s = shapes[i / 2];
            tn_cp   *cp = any_cp(&w, 2, s.o, s.h, s.n, i % 2 == 1);
            double  *plain = plain_symmetric(plain_dense(cp), s.o, s.n);
            tn_eigenpairs e;
            if (!CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK)) break;
            CHECK_INT(e.count, 2 * s.h < s.n ? 2 * s.h : s.n);
            CHECK(e.outputs == s.o && e.n == s.n);
            CHECK(e.values->rank == 2 && e.vectors->rank == 3 && e.vectors->shape[2] == s.n);
            check_pairs(&e, plain, &residual, &orthonormal);
            test_raise(&rebuilt, test_frobenius(plain_from_pairs(&e, e.count), plain, s.o * s.n * s.n));
            tn_eigenpairs_destroy(&e);
            CHECK(!e.values && !e.vectors);
            tn_cp_destroy(cp);
            fresh(&w);
        }
        report("Q v = l v", f64_f32[d], residual);
        report("eigenvectors orthonormal", f64_f32[d], orthonormal);
        report("eigenvectors rebuild Q", f64_f32[d], rebuilt);
        close_world(&w);
    }
}

/* The same operator with terms of zeros is solved as an n x n problem instead of a 2h x 2h one. */
TEST(small_problem_against_the_full_one)
{
    world  w;
    double values = 0, vectors = 0;
    if (!open_world(&w, TN_F64, 41)) return;
    for (int round = 0; round < 20; round++) {
        int64_t  n = test_random_int(&w.seed, 5, 40), h = test_random_int(&w.seed, 1, (n - 1) / 2), out = 2, all = n, k = 2 * h;
        tn_cp   *cp = any_cp(&w, 2, out, h, n, false);
        double  *p = doubles(out * all), *f0 = doubles(all * n), *f1 = doubles(all * n);
        tn_eigenpairs small, full;
        memcpy(f0, host(cp->f[0]), sizeof *f0 * (size_t)(h * n));
        memcpy(f1, host(cp->f[1]), sizeof *f1 * (size_t)(h * n));
        for (int64_t o = 0; o < out; o++) memcpy(p + o * all, host(cp->p) + o * h, sizeof *p * (size_t)h);
        tn_cp *padded = cp_of(&w, out, all, n, p, f0, f1);
        if (!CHECK_STATUS(tn_cp_eigen_all(cp, 0, &small), TN_OK) || !CHECK_STATUS(tn_cp_eigen_all(padded, 0, &full), TN_OK)) break;
        CHECK(small.count == k && full.count == n);
        double *a = host(small.values), *b = host(full.values);
        for (int64_t o = 0; o < out; o++) {
            test_raise(&values, test_frobenius(a + o * k, b + o * n, k));
            for (int64_t i = k; i < n; i++) CHECK(fabs(b[o * n + i]) <= 1e-13 * fabs(b[o * n]));
        }
        test_raise(&vectors, test_frobenius(plain_from_pairs(&small, k), plain_from_pairs(&full, n), out * n * n));
        tn_eigenpairs_destroy(&small);
        tn_eigenpairs_destroy(&full);
        tn_cp_destroy(cp);
        tn_cp_destroy(padded);
        fresh(&w);
    }
    WORST("small problem against the full one: values", values, 2e-14);
    WORST("small problem against the full one: vectors", vectors, 3e-14);
    close_world(&w);
}

/* sym(l r^T) has the eigenvalues (l.r +- |l||r|)/2 */
TEST(rank_one_neuron)
{
    world  w;
    double worst = 0;
    if (!open_world(&w, TN_F64, 43)) return;
    for (int64_t n = 1; n < 40; n++) {
        double   one = 1, *l = noise(&w, n), *r = noise(&w, n), lr = dot(l, r, n), size = frobenius(l, n) * frobenius(r, n);
        double   expected[2] = {(lr + size) / 2, (lr - size) / 2};
        tn_cp   *cp = cp_of(&w, 1, 1, n, &one, l, r);
        tn_eigenpairs e;
        if (lr < 0) { double t = expected[0]; expected[0] = expected[1]; expected[1] = t; }
        if (!CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK)) break;
        CHECK_INT(e.count, n < 2 ? n : 2);
        double *v = host(e.values);
        for (int64_t i = 0; i < e.count; i++) test_raise(&worst, fabs(v[i] - expected[i]) / size);
        tn_eigenpairs_destroy(&e);
        tn_cp_destroy(cp);
        fresh(&w);
    }
    WORST("eigenvalues of one neuron", worst, 3e-15);
    close_world(&w);
}

/* Equal encoders, equal neurons, an output of zeros, the smallest and largest of scales: the factors have no full rank,
   and the pairs are what they should be all the same. */
TEST(eigenpairs_of_the_degenerate)
{
    world  w;
    double residual = 0, orthonormal = 0, rebuilt = 0;
    if (!open_world(&w, TN_F64, 39)) return;
    for (int round = 0; round < 24; round++) {
        int64_t  n = round % 2 ? 6 : 23, h = 6, o = 3;
        double  *p = noise(&w, o * h), *f = noise(&w, h * n), *g = noise(&w, h * n), scale = 1;
        tn_eigenpairs e;
        switch (round / 2) {
        case 0: g = f; break;                                         /* all squares: eigenvalues of one sign per P */
        case 1: for (int64_t k = n; k < h * n; k++) f[k] = f[k % n]; break;
        case 2: for (int64_t k = n; k < h * n; k++) f[k] = g[k] = f[k % n]; break;
        case 3: memset(p + h, 0, sizeof *p * (size_t)h); break;
        case 4: memset(p, 0, sizeof *p * (size_t)(o * h)); break;
        case 5: memset(f, 0, sizeof *f * (size_t)(h * n)); break;
        case 6: scale = 1e100; break;
        case 7: scale = 1e-90; break;
        case 8: for (int64_t k = 0; k < h; k++) for (int64_t j = 2; j < n; j++) f[k * n + j] = g[k * n + j] = 0; break;
        default: for (int64_t k = 0; k < h * n; k++) f[k] = g[k] = k / n == k % n; break;     /* equal eigenvalues */
        }
        for (int64_t k = 0; k < h * n; k++) f[k] *= scale;
        tn_cp  *cp = cp_of(&w, o, h, n, p, f, g);
        double *plain = plain_symmetric(plain_dense(cp), o, n);
        if (!CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK)) break;
        for (int64_t k = 0; k < o * n * n; k++) plain[k] /= scale;
        for (int64_t k = 0; k < o * e.count; k++) {
            double value = host(e.values)[k] / scale;
            tn_write(tn_slice(tn_reshape_2d(e.values, 1, -1), 1, k, k + 1), TN_F64, &value, 1);
        }
        check_pairs(&e, plain, &residual, &orthonormal);
        test_raise(&rebuilt, test_frobenius(plain_from_pairs(&e, e.count), plain, o * n * n));
        tn_eigenpairs_destroy(&e);
        tn_cp_destroy(cp);
        fresh(&w);
    }
    WORST("degenerate: Q v = l v", residual, 1e-14);
    WORST("degenerate: orthonormal", orthonormal, 3e-14);
    WORST("degenerate: rebuilt", rebuilt, 2e-14);
    close_world(&w);
}

static bool same_bits(const tn_tensor *a, const tn_tensor *b)
{
    int64_t n = tn_tensor_count(a);
    return n == tn_tensor_count(b) && memcmp(host(a), host(b), sizeof(double) * (size_t)n) == 0;
}

/* Some pairs are the first of all pairs, and one direction is one output: to the bit. */
TEST(some_pairs_and_one_direction)
{
    world w;
    if (!open_world(&w, TN_F64, 47)) return;
    for (int branch = 0; branch < 2; branch++) {
        int64_t  n = branch ? 7 : 24, h = 5, out = 3, all = branch ? 7 : 10, k = 4;
        tn_cp   *cp = any_cp(&w, 2, out, h, n, false);
        tn_eigenpairs e, some, one;
        REQUIRE(CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK));
        REQUIRE(CHECK_STATUS(tn_cp_eigen_all(cp, k, &some), TN_OK));
        REQUIRE(e.count == all && some.count == k);
        for (int64_t o = 0; o < out; o++) {
            CHECK(memcmp(host(some.values) + o * k, host(e.values) + o * all, sizeof(double) * (size_t)k) == 0);
            CHECK(memcmp(host(some.vectors) + o * k * n, host(e.vectors) + o * all * n, sizeof(double) * (size_t)(k * n)) == 0);
            REQUIRE(CHECK_STATUS(tn_cp_eigen(cp, unit_vector(&w, out, o), 0, &one), TN_OK));
            REQUIRE(one.outputs == 1 && one.count == all);
            CHECK(memcmp(host(one.values), host(e.values) + o * all, sizeof(double) * (size_t)all) == 0);
            CHECK(memcmp(host(one.vectors), host(e.vectors) + o * all * n, sizeof(double) * (size_t)(all * n)) == 0);
            tn_eigenpairs_destroy(&one);
        }
    }
    close_world(&w);
}

/* Large enough to be divided: only the vectors that are asked for are computed, also where eigenvalues are equal, opposite or
   zero, so that pairs are finished early. */
TEST(some_pairs_of_large_ones)
{
    world  w;
    double residual = 0, orthonormal = 0;
    if (!open_world(&w, TN_F64, 48)) return;
    for (int round = 0; round < 30; round++) {
        int64_t  n = test_random_int(&w.seed, 33, 140), h = test_random_int(&w.seed, 20, 120), out = 1 + round / 3 % 2;
        double  *p = noise(&w, out * h), *f = noise(&w, h * n), *g = noise(&w, h * n);
        for (int64_t i = 0; round % 3 == 1 && i < h * n; i++) f[i] = g[i] = i / n == i % n;      /* Q is diagonal: values of p .. */
        for (int64_t i = 0; round % 3 == 1 && i < out * h; i++) p[i] = (double)(i % 4) - 1.5;    /* .. two of each sign         */
        for (int64_t i = 0; round % 3 == 2 && i < h * n; i++) if (i / n > 9) f[i] = 0;           /* rank 20 */
        tn_cp   *cp = cp_of(&w, out, h, n, p, f, g);
        double  *plain = plain_symmetric(plain_dense(cp), out, n);
        tn_eigenpairs e, some;
        REQUIRE(CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK));
        const int64_t k = round == 0 ? 1 : round == 3 ? e.count - 1 : test_random_int(&w.seed, 1, e.count);
        REQUIRE(CHECK_STATUS(tn_cp_eigen_all(cp, k, &some), TN_OK));
        REQUIRE(some.count == k);
        for (int64_t o = 0; o < out; o++)
            CHECK(memcmp(host(some.values) + o * k, host(e.values) + o * e.count, sizeof(double) * (size_t)k) == 0);
        check_pairs(&some, plain, &residual, &orthonormal);
        tn_eigenpairs_destroy(&e);
        tn_eigenpairs_destroy(&some);
        tn_cp_destroy(cp);
        fresh(&w);
    }
    WORST("some pairs: Q v = l v", residual, 1e-14);
    WORST("some pairs: orthonormal", orthonormal, 3e-14);
    close_world(&w);
}

/* Of a direction that is no output: the same as of the interaction matrix, by the solver for any matrix. */
TEST(pairs_of_a_direction)
{
    world  w;
    double worst = 0;
    if (!open_world(&w, TN_F64, 53)) return;
    for (int round = 0; round < 10; round++) {
        int64_t        n = test_random_int(&w.seed, 2, 30), h = test_random_int(&w.seed, 1, 12);
        tn_cp         *cp = any_cp(&w, 2, 4, h, n, false);
        tn_tensor     *u = any_vector(&w, 4), *q = tn_cp_interaction(cp, u);
        tn_eigenpairs       e;
        tn_eigh_desc   by_magnitude = ZERO;
        tn_eigh_result full;
        by_magnitude.order = TN_EIGH_MAGNITUDE;
        if (!CHECK_STATUS(tn_cp_eigen(cp, u, 0, &e), TN_OK) || !CHECK_STATUS(tn_eigh(w.ctx, q, &by_magnitude, &full), TN_OK))
            break;
        int64_t k = e.count;
        test_raise(&worst, test_frobenius(host(e.values), host(full.values), k));
        test_raise(&worst, test_frobenius(plain_from_pairs(&e, k), host(q), n * n));
        tn_eigenpairs_destroy(&e);
        tn_eigh_destroy(&full);
        tn_tensor_destroy(q);
        tn_cp_destroy(cp);
        fresh(&w);
    }
    WORST("pairs of a direction", worst, 2e-14);
    close_world(&w);
}

/* Both branches, an output per task: the same bits for one, two and three threads, and twice. */
TEST(eigen_has_the_same_bits_for_any_threads)
{
    double *first[4] = {NULL, NULL, NULL, NULL};
    world   w[4];
    for (int t = 0; t < 4; t++) {
        if (!open_on(&w[t], TN_F32, 3, t < 3 ? t + 1 : 1, NULL)) return;
        for (int branch = 0; branch < 2; branch++) {
            tn_cp   *cp = any_cp(&w[t], 2, 10, 8, branch ? 12 : 50, false), *cut = tn_cp_truncate(cp, 3);
            tn_eigenpairs e;
            REQUIRE(CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK) && cut != NULL);
            double *v = host(e.vectors);
            if (t == 0) first[branch] = v;
            else CHECK(memcmp(v, first[branch], sizeof *v * (size_t)tn_tensor_count(e.vectors)) == 0);
            v = host(cut->p);
            if (t == 0) first[2 + branch] = v;
            else CHECK(memcmp(v, first[2 + branch], sizeof *v * (size_t)tn_tensor_count(cut->p)) == 0);
            tn_eigenpairs_destroy(&e);
        }
    }
    for (int t = 0; t < 4; t++) close_world(&w[t]);
}

/* A single output, large enough that its products are divided. */
TEST(eigen_of_one_output_has_the_same_bits_for_any_threads)
{
    for (size_t d = 0; d < 2; d++) {
        double *first = NULL;
        world   w[3];
        for (int t = 0; t < 3; t++) {
            tn_eigenpairs e;
            if (!open_on(&w[t], f64_f32[d], 3, t + 1, NULL)) return;
            tn_cp *cp = any_cp(&w[t], 2, 2, 200, 150, false);
            REQUIRE(CHECK_STATUS(tn_cp_eigen(cp, unit_vector(&w[t], 2, 1), 0, &e), TN_OK));
            double *v = host(e.vectors);
            if (t == 0) first = v;
            else CHECK(memcmp(v, first, sizeof *v * (size_t)tn_tensor_count(e.vectors)) == 0);
            tn_eigenpairs_destroy(&e);
        }
        for (int t = 0; t < 3; t++) close_world(&w[t]);
    }
}

/* |S - S_k|^2 is the sum of the squares of the values that were left out, and k = all is the operator. */
TEST(truncation)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double lost = 0, all = 0;
        if (!open_world(&w, f64_f32[d], 59)) return;
        for (size_t i = 0; i < SHAPES; i++) {
            shape      s = shapes[i];
            tn_cp     *cp = any_cp(&w, 2, s.o, s.h, s.n, i % 2 == 0);
            double    *plain = plain_symmetric(plain_dense(cp), s.o, s.n), before = HUGE_VAL;
            double     size = frobenius(plain, s.o * s.n * s.n);
            tn_tensor *x = any_matrix(&w, 5, s.n);
            tn_eigenpairs   e;
            if (!CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK)) break;
            double *values = host(e.values);
            for (int64_t k = 0; k <= e.count; k++) {
                tn_cp *cut = tn_cp_truncate(cp, k);
                double left_out = 0;
                if (!CHECK(cut != NULL)) break;
                CHECK(cut->terms == s.o * k && cut->constant == cp->constant && cut->out == s.o);
                double *difference = plain_dense(cut);
                for (int64_t j = 0; j < s.o * s.n * s.n; j++) difference[j] -= plain[j];
                double error = frobenius(difference, s.o * s.n * s.n);
                for (int64_t o = 0; o < s.o; o++)
                    for (int64_t j = k; j < e.count; j++) left_out += values[o * e.count + j] * values[o * e.count + j];
                test_raise(&lost, fabs(error - sqrt(left_out)) / size);
                CHECK(error <= before * (1 + bound_of(f64_f32[d])));
                before = error;
                if (k == e.count) {
                    test_raise(&all, error / size);
                    test_raise(&all, error_from(tn_cp_apply(w.ctx, cut, x), host(tn_cp_apply(w.ctx, cp, x)), 5 * s.o));
                }
                tn_cp_destroy(cut);
            }
            tn_eigenpairs_destroy(&e);
            tn_cp_destroy(cp);
            fresh(&w);
        }
        report("truncation's error is what was left out", f64_f32[d], lost);
        report("truncation to all pairs", f64_f32[d], all);
        close_world(&w);
    }
}

/* embed' = M embed, W' = W M^-1, V' = V M^-1 is the same function: in the hidden space the eigenvalues change, in the
   input space they do not. M = [[2,1,0,0],[0,1/2,0,0],[0,0,1,3],[0,0,0,4]] */
TEST(gauge)
{
    world   w;
    double  m[] = {2, 1, 0, 0,  0, .5, 0, 0,  0, 0, 1, 3,  0, 0, 0, 4};
    double  inverse[] = {.5, -1, 0, 0,  0, 2, 0, 0,  0, 0, 1, -.75,  0, 0, 0, .25};
    tn_eigenpairs e[4];
    if (!open_world(&w, TN_F64, 61)) return;
    tn_tensor *to = matrix(&w, 4, 4, m);
    tn_tensor *back = matrix(&w, 4, 4, inverse);
    tn_cp *hidden = any_cp(&w, 2, 3, 4, 4, false);
    tn_tensor *embed = any_matrix(&w, 4, 7);
    tn_cp *moved = tn_cp_fold_in(hidden, back, NULL);
    tn_cp *input = tn_cp_fold_in(hidden, embed, NULL);
    tn_cp *moved_input = tn_cp_fold_in(moved, tn_matmul(w.ctx, to, embed), NULL);
    CHECK_STATUS(tn_cp_eigen_all(hidden, 4, &e[0]), TN_OK);
    CHECK_STATUS(tn_cp_eigen_all(moved, 4, &e[1]), TN_OK);
    CHECK_STATUS(tn_cp_eigen_all(input, 4, &e[2]), TN_OK);
    CHECK_STATUS(tn_cp_eigen_all(moved_input, 4, &e[3]), TN_OK);
    double change = test_frobenius(host(e[1].values), host(e[0].values), 12);
    double same = test_frobenius(host(e[3].values), host(e[2].values), 12);
    CHECK(change > 0.1);
    WORST("gauge: eigenvalues in the input space", same, 3e-15);
    for (int i = 0; i < 4; i++) tn_eigenpairs_destroy(&e[i]);
    close_world(&w);
}

TEST(effective_ranks)
{
    double equal[] = {3, -3, 3, 3}, single[] = {0, -7, 0}, zeros[] = {0, 0}, two[] = {1, 2};
    double huge[] = {1e200, -1e200}, tiny[] = {3e-200, 4e-200};
    CHECK_NEAR(tn_effective_rank(equal, 4), 4, 1e-15);
    CHECK_NEAR(tn_effective_rank(single, 3), 1, 0);
    CHECK_NEAR(tn_effective_rank(zeros, 2), 0, 0);
    CHECK_NEAR(tn_effective_rank(NULL, 0), 0, 0);
    CHECK_NEAR(tn_effective_rank(two, 2), 9.0 / 5, 1e-15);
    CHECK_NEAR(tn_effective_rank(huge, 2), 2, 1e-15);
    CHECK_NEAR(tn_effective_rank(tiny, 2), 49.0 / 25, 1e-14);
}

/* ---- comparing --------------------------------------------------------------------------- */

TEST(comparisons_against_dense)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double gram = 0, inner = 0, norm = 0, cosine = 0;
        if (!open_world(&w, f64_f32[d], 67)) return;
        for (int round = 0; round < 40; round++) {
            int     order = 1 + round % 2;
            int64_t n = test_random_int(&w.seed, 1, 13), size = order == 2 ? n * n : n;
            int64_t out = test_random_int(&w.seed, 1, 5), other = test_random_int(&w.seed, 1, 5);
            tn_cp  *a = any_cp(&w, order, out, test_random_int(&w.seed, 1, 9), n, round & 4);
            tn_cp  *b = any_cp(&w, order, out, test_random_int(&w.seed, 1, 9), n, round & 4);
            tn_cp  *c = any_cp(&w, order, other, 3, n, round & 4);
            double *s = plain_dense(a), *t = plain_dense(b), *v = plain_dense(c), *g = doubles(out * other), value;
            if (order == 2) { s = plain_symmetric(s, out, n); t = plain_symmetric(t, out, n); v = plain_symmetric(v, other, n); }
            for (int64_t o = 0; o < out; o++)
                for (int64_t p = 0; p < other; p++) g[o * other + p] = dot(s + o * size, v + p * size, size);
            tn_tensor *found = tn_cp_gram(a, c);
            CHECK(found && found->shape[0] == out && found->shape[1] == other);
            double sizes = frobenius(s, out * size) * frobenius(v, other * size); /* <s,v> may cancel: held against |s||v| */
            test_raise(&gram, test_frobenius(host(found), g, out * other) * frobenius(g, out * other) / sizes);
            sizes = frobenius(s, out * size) * frobenius(t, out * size);
            CHECK_STATUS(tn_cp_inner(a, b, &value), TN_OK);
            test_raise(&inner, fabs(value - dot(s, t, out * size)) / sizes);
            CHECK_STATUS(tn_cp_norm(a, &value), TN_OK);
            test_raise(&norm, fabs(value / frobenius(s, out * size) - 1));
            CHECK_STATUS(tn_cp_cosine(a, b, &value), TN_OK);
            test_raise(&cosine, fabs(value - dot(s, t, out * size) / sizes));
            tn_tensor_destroy(found);
            tn_cp_destroy(a);
            tn_cp_destroy(b);
            tn_cp_destroy(c);
            fresh(&w);
        }
        report("gram", f64_f32[d], gram);
        report("inner product", f64_f32[d], inner);
        report("norm", f64_f32[d], norm);
        report("cosine", f64_f32[d], cosine);
        close_world(&w);
    }
}

/* W and V swapped; hidden units permuted; (P/(ab), aW, bV): the same layer, so cosine one. */
TEST(invariances)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, f64_f32[d], 71)) return;
        for (size_t i = 0; i < SHAPES; i++) {
            shape   s = shapes[i];
            int64_t h = s.h, n = s.n, o = s.o;
            double *p = noise(&w, o * h), *f = noise(&w, h * n), *g = noise(&w, h * n), cosine;
            double *q = doubles(o * h), *f2 = doubles(h * n), *g2 = doubles(h * n);
            tn_cp  *cp = cp_of(&w, o, h, n, p, f, g), *other[3];
            other[0] = cp_of(&w, o, h, n, p, g, f);
            for (int64_t k = 0; k < h; k++) {                         /* unit k goes to h-1-k */
                for (int64_t r = 0; r < o; r++) q[r * h + h - 1 - k] = p[r * h + k];
                memcpy(f2 + (h - 1 - k) * n, f + k * n, sizeof *f * (size_t)n);
                memcpy(g2 + (h - 1 - k) * n, g + k * n, sizeof *g * (size_t)n);
            }
            other[1] = cp_of(&w, o, h, n, q, f2, g2);
            for (int64_t k = 0; k < o * h; k++) q[k] = p[k] / (3 * -0.7);
            for (int64_t k = 0; k < h * n; k++) { f2[k] = 3 * f[k]; g2[k] = -0.7 * g[k]; }
            other[2] = cp_of(&w, o, h, n, q, f2, g2);
            for (int k = 0; k < 3; k++) {
                CHECK_STATUS(tn_cp_cosine(cp, other[k], &cosine), TN_OK);
                test_raise(&worst, fabs(cosine - 1));
                tn_cp_destroy(other[k]);
            }
            tn_cp_destroy(cp);
            fresh(&w);
        }
        report("cosine under invariances", f64_f32[d], worst);
        close_world(&w);
    }
}

/* ---- as a function ---------------------------------------------------------------------- */

/* Without biases f(-x) = f(x) and J(x) x = 2 y; J by the tape, one output at a time. */
TEST(even_and_homogeneous)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double jacobian = 0;
        if (!open_world(&w, f64_f32[d], 73)) return;
        for (size_t i = 0; i < SHAPES; i++) {
            shape   s = shapes[i];
            tn_cp  *cp = any_cp(&w, 2, s.o, s.h, s.n, false);
            double *xs = noise(&w, s.n), *minus = doubles(s.n), *jx = doubles(s.o), *y = NULL;
            for (int64_t k = 0; k < s.n; k++) minus[k] = -xs[k];
            CHECK(same_bits(tn_cp_apply(w.ctx, cp, vector(&w, s.n, minus)), tn_cp_apply(w.ctx, cp, vector(&w, s.n, xs))));
            for (int64_t o = 0; o < s.o; o++) {
                tn_ctx_reset(w.ctx);
                tn_record(w.ctx);
                tn_tensor *x = vector(&w, s.n, xs);
                tn_watch(x);
                tn_tensor *out = tn_cp_apply(w.ctx, cp, x);
                if (!CHECK_STATUS(tn_backward(w.ctx, tn_slice(out, 0, o, o + 1)), TN_OK)) break;
                jx[o] = dot(host(x->grad), host(x), s.n) / 2;
                y = host(out);
            }
            test_raise(&jacobian, y ? test_frobenius(jx, y, s.o) : 1);
            tn_cp_destroy(cp);
            fresh(&w);
        }
        report("J(x) x = 2 y", f64_f32[d], jacobian);
        close_world(&w);
    }
}

/* Operators made and asked in the middle of a recording leave no trace in it. */
TEST(operators_are_not_recorded)
{
    world    w;
    tn_mlp   m;
    shape    s = {5, 4, 5};
    double  *without = NULL;
    tn_eigenpairs e;
    double   cosine;
    if (!open_world(&w, TN_F64, 79) || !any_mlp(&w, &m, BIAS | OUT_BIAS | RESIDUAL, s)) return;
    double *xs = noise(&w, 15);
    for (int pass = 0; pass < 2; pass++) {
        tn_ctx_reset(w.ctx);
        tn_record(w.ctx);
        tn_tensor *x = matrix(&w, 3, 5, xs);
        tn_tensor *y = tn_mlp_forward(w.ctx, &m, x);
        if (pass == 1) {
            tn_cp *cp = tn_cp_from_stack(w.ctx, NULL, &m, NULL), *more = tn_cp_symmetrise(cp), *q;
            tn_tensor *l, *c;
            CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK);
            CHECK_STATUS(tn_cp_cosine(cp, more, &cosine), TN_OK);
            CHECK_STATUS(tn_cp_split(cp, &q, &l, &c), TN_OK);
            CHECK(tn_cp_interaction_of(cp, 1) && tn_cp_dense_symmetric(cp) && tn_cp_gram(cp, cp) && tn_cp_truncate(cp, 2));
            CHECK(tn_cp_fix(cp, 0, any_vector(&w, 6)) && tn_cp_fold_in(cp, any_matrix(&w, 5, 2), any_vector(&w, 5)));
        }
        CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, y)), TN_OK);
        double *with = host(m.w->grad);
        if (pass == 0) without = with;
        CHECK(memcmp(with, without, sizeof *with * 40) == 0);
        tn_tensor_destroy(m.w->grad);
        m.w->grad = NULL;
    }
    close_world(&w);
}

/* The arena holds after each call what it held before. */
TEST(operators_leave_the_arena)
{
    world    w;
    tn_eigenpairs pairs;
    double   cosine;
    if (!open_world(&w, TN_F64, 83)) return;
    tn_cp *cp = any_cp(&w, 2, 4, 3, 5, true);
    tn_tensor *u = any_vector(&w, 4);
    tn_tensor *v = any_vector(&w, 5);
    tn_tensor *e = any_matrix(&w, 4, 3);
    tn_mark before = tn_arena_mark(w.ctx);
    CHECK(tn_cp_interaction(cp, u) && tn_cp_interaction_of(cp, 3) && tn_cp_dense(cp) && tn_cp_dense_symmetric(cp)
          && tn_cp_gram(cp, cp));
    CHECK(tn_cp_fix(cp, 1, v) && tn_cp_fold_in(cp, e, u) && tn_cp_fold_out(cp, e, NULL) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "fold_out: u is [4,3]");
    CHECK(tn_cp_residual(cp) && tn_cp_symmetrise(cp) && tn_cp_truncate(cp, 1));
    CHECK_STATUS(tn_cp_cosine(cp, cp, &cosine), TN_OK);
    CHECK_STATUS(tn_cp_split(cp, NULL, &u, &v), TN_OK);
    CHECK_STATUS(tn_cp_eigen_all(cp, 2, &pairs), TN_OK);
    tn_mark after = tn_arena_mark(w.ctx);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    close_world(&w);
}

/* ---- known numbers ---------------------------------------------------------------------- */

/* W = [[1,2],[3,4]], V = [[5,6],[7,8]], P = I: docs/math.md */
TEST(small_example)
{
    world    w;
    double   f[] = {1, 2, 3, 4}, g[] = {5, 6, 7, 8}, identity[] = {1, 0, 0, 1}, one[] = {1, 1};
    double   slices[] = {5, 8, 8, 12, 21, 26, 26, 32}, gram[] = {297, 905, 905, 2817};
    double   values[] = {17.232125, -.232125, 53.075365, -.075365};
    tn_eigenpairs e;
    double   cosine;
    if (!open_world(&w, TN_F64, 1)) return;
    tn_cp *cp = cp_of(&w, 2, 2, 2, identity, f, g);
    CHECK_NEAR(error_from(tn_cp_dense_symmetric(cp), slices, 8), 0, 0);
    double *y = host(tn_cp_apply(w.ctx, cp, vector(&w, 2, one)));
    CHECK(y[0] == 33 && y[1] == 105);
    CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK);
    double *v = host(e.values);
    for (int i = 0; i < 4; i++) CHECK_NEAR(v[i], values[i], 5e-7);
    CHECK_NEAR(error_from(tn_cp_gram(cp, cp), gram, 4), 0, 0);
    tn_cp *first = tn_cp_fold_out(cp, tn_slice(matrix(&w, 2, 2, identity), 0, 0, 1), NULL);
    tn_cp *second = tn_cp_fold_out(cp, tn_slice(matrix(&w, 2, 2, identity), 0, 1, 2), NULL);
    CHECK_STATUS(tn_cp_cosine(first, second, &cosine), TN_OK);
    CHECK_NEAR(cosine, .98941145, 5e-9);
    tn_eigenpairs_destroy(&e);
    close_world(&w);
}

/* value = g + A a + B b + C a b, as the constant, linear and quadratic part of one operator on (a, b, 1) */
TEST(gates)
{
    static const struct { const char *name; double g, a, b, c; int truth; } gate[] = {   /* truth: bit 2a + b */
        {"and", 0, 0, 0, 1, 8}, {"or", 0, 1, 1, -1, 14}, {"xor", 0, 1, 1, -2, 6},
        {"nand", 1, 0, 0, -1, 7}, {"nor", 1, -1, -1, 1, 1}, {"xnor", 1, -1, -1, 2, 9}};
    world w;
    if (!open_world(&w, TN_F32, 1)) return;
    for (int i = 0; i < 6; i++) {                    /* C a b + (A a + B b + g) 1 */
        double     p[] = {1, 1}, f[] = {gate[i].c, 0, 0, gate[i].a, gate[i].b, gate[i].g}, g[] = {0, 1, 0, 0, 0, 1};
        double     bits[] = {0, 0, 0, 1, 1, 0, 1, 1};
        tn_tensor *factor[2];
        factor[0] = matrix(&w, 2, 3, f);
        factor[1] = matrix(&w, 2, 3, g);
        tn_cp  *cp = tn_cp_create(w.ctx, 2, matrix(&w, 1, 2, p), factor, TN_CP_INPUT_CONSTANT);
        double *y = host(tn_cp_apply(w.ctx, cp, matrix(&w, 4, 2, bits)));
        for (int k = 0; k < 4; k++) CHECK_NEAR(y[k], gate[i].truth >> k & 1, 0);
    }
    close_world(&w);
}

/* ((a r + b k + c) mod m - m/2) / 4 */
static double *weights(int64_t rows, int64_t columns, int64_t a, int64_t b, int64_t c, int64_t m)
{
    double *v = doubles(rows * columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) v[r * columns + k] = (double)((a * r + b * k + c) % m - m / 2) / 4;
    return v;
}

static tn_cp *golden_cp(world *w, int64_t c)
{
    return cp_of(w, 3, 5, 13, weights(3, 5, 3, 5, c, 7), weights(5, 13, 2, 3, c, 11), weights(5, 13, 5, 4, c, 9));
}

/* NumPy's, from dense tensors: tools/golden_operator.py */
static const double golden_values[] = {
    -4.2651341257125708, 3.5381336085648334, 2.3107688763910788, -2.1109498064529175, -0.99251229713938016,
    -0.74902453474293307, 0.68703114726595571, 0.33168713182593573, 0, 0,
    -3.8142980543164011, 2.8229864506139823, 1.1954489465349063, -0.8243065942264739, 0.60177507654494544,
    0.48500956098295978, -0.38573450236453832, -0.19025588376938257, 0, 0,
    -3.7547059386989612, 3.1810614902557708, -2.2508961659501776, 2.0941219760912428, -1.4367853435281455,
    0.94366388719227634, -0.35634196820582692, 0.30906215027675377, -0.26767224947862678, 0.163492162045696
};
static const double golden_gram[] = {
    9.882568359375, -9.73388671875, 17.4954833984375, -4.4344482421875, 2.122802734375,
    -7.9278564453125, 8.61962890625, -7.3323974609375, 11.5634765625
};
static const double golden_norms_cosine[] = {
    10.246331279414111, 10.484584573166217, 0.21939096015115186
};
static const double golden_effective_rank[] = {
    5.267139317303168, 4.1913629647412929, 5.895120711002062
};
TEST(golden)
{
    world    w;
    tn_eigenpairs e;
    double   norm;
    if (!open_world(&w, TN_F64, 1)) return;
    tn_cp *a = golden_cp(&w, 0);
    tn_cp *b = golden_cp(&w, 1);
    CHECK_STATUS(tn_cp_eigen_all(a, 0, &e), TN_OK);
    double *v = host(e.values);
    WORST("NumPy's eigenvalues", test_max_error(v, golden_values, 30), 5e-15);
    WORST("NumPy's gram", error_from(tn_cp_gram(a, b), golden_gram, 9), 1e-15);
    CHECK_STATUS(tn_cp_norm(a, &norm), TN_OK);
    CHECK_NEAR(norm, golden_norms_cosine[0], 1e-13);
    CHECK_STATUS(tn_cp_norm(b, &norm), TN_OK);
    CHECK_NEAR(norm, golden_norms_cosine[1], 1e-13);
    CHECK_STATUS(tn_cp_cosine(a, b, &norm), TN_OK);
    CHECK_NEAR(norm, golden_norms_cosine[2], 1e-14);
    for (int64_t o = 0; o < 3; o++) CHECK_NEAR(tn_effective_rank(v + o * 10, 10), golden_effective_rank[o], 1e-12);
    tn_eigenpairs_destroy(&e);
    close_world(&w);
}

/* ---- bad calls --------------------------------------------------------------------------- */


TEST(bad_factors)
{
    world      w, other;
    tn_tensor *f[3];
    if (!open_world(&w, TN_F64, 1) || !open_world(&other, TN_F64, 1)) return;
    tn_tensor *p = any_matrix(&w, 3, 4);
    f[0] = any_matrix(&w, 4, 5);
    f[1] = any_matrix(&w, 6, 5);
    f[2] = NULL;
    tn_tensor *foreign = any_matrix(&other, 3, 4);
    CHECK(tn_cp_create(NULL, 2, p, f, TN_CP_INPUT_PLAIN) == NULL);
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, NULL, f, TN_CP_INPUT_PLAIN), TN_ERR_ARG, "p is NULL");
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, foreign, f, TN_CP_INPUT_PLAIN), TN_ERR_ARG, "another context");
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, any_vector(&w, 4), f, TN_CP_INPUT_PLAIN), TN_ERR_SHAPE, "p is [4]");
    REFUSED(w.ctx, tn_cp_create(w.ctx, 0, p, f, TN_CP_INPUT_PLAIN), TN_ERR_ARG, "cp: order is 0, expected 1 to 6");
    REFUSED(w.ctx, tn_cp_create(w.ctx, 7, p, f, TN_CP_INPUT_PLAIN), TN_ERR_ARG, "cp: order is 7, expected 1 to 6");
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, p, NULL, TN_CP_INPUT_PLAIN), TN_ERR_ARG, "cp:");
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN), TN_ERR_SHAPE, "factor 1 is [6,5], expected [4,in]: one row per term, as p, [3,4],");
    f[1] = any_matrix(&w, 4, 0);
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_CONSTANT), TN_ERR_SHAPE, "factor 1 is [4,0]");
    f[1] = f[0];
    REFUSED(w.ctx, tn_cp_create(w.ctx, 3, p, f, TN_CP_INPUT_PLAIN), TN_ERR_ARG, "factor is NULL");
    f[1] = tn_tensor_2d(w.ctx, TN_I32, 4, 5);
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN), TN_ERR_DTYPE, "I32");
    close_world(&other);
    close_world(&w);
}

TEST(bad_layers)
{
    world       w;
    tn_mlp      m;
    tn_mlp_desc d = ZERO;
    tn_linear   l;
    tn_linear_desc ld = ZERO;
    if (!open_world(&w, TN_F32, 1)) return;
    d.in = 4; d.hidden = 3; d.kind = TN_MLP_SWIGLU;
    CHECK_STATUS(tn_mlp_init(w.params, "m", &d, &m), TN_OK);
    REFUSED(w.ctx, tn_cp_from_mlp(w.ctx, &m), TN_ERR_ARG, "swiglu");
    REFUSED(w.ctx, tn_cp_from_mlp(w.ctx, NULL), TN_ERR_ARG, "mlp is NULL");
    REFUSED(w.ctx, tn_cp_from_stack(w.ctx, NULL, NULL, NULL), TN_ERR_ARG, "mlp is NULL");
    CHECK(tn_cp_from_mlp(NULL, &m) == NULL);
    d.kind = TN_MLP_BILINEAR;
    CHECK_STATUS(tn_mlp_init(w.params, "b", &d, &m), TN_OK);
    ld.bias = true;
    ld.in = 5; ld.out = 6;
    CHECK_STATUS(tn_linear_init(w.params, "l", &ld, &l), TN_OK);
    REFUSED(w.ctx, tn_cp_from_stack(w.ctx, &l, &m, NULL), TN_ERR_SHAPE, "fold_in: e is [6,5], expected 4 rows, the operator's inputs");
    REFUSED(w.ctx, tn_cp_from_stack(w.ctx, NULL, &m, &l), TN_ERR_SHAPE, "fold_out: u is [6,5], expected 4 columns, the operator's outputs");
    memset(&l, 0, sizeof l);
    REFUSED(w.ctx, tn_cp_from_stack(w.ctx, &l, &m, NULL), TN_ERR_ARG, "is NULL");
    close_world(&w);
}

TEST(bad_calls_of_an_operator)
{
    world    w, other;
    int64_t  in[3] = {3, 5, 4};
    tn_eigenpairs e;
    double   value;
    if (!open_world(&w, TN_F64, 1) || !open_world(&other, TN_F64, 1)) return;
    tn_cp     *cp = any_cp(&w, 2, 3, 4, 5, false);
    tn_cp     *narrow = any_cp_of(&w, 2, 3, 4, in, false);
    tn_cp     *cube = any_cp(&w, 3, 3, 4, 3, false);
    tn_cp     *foreign = any_cp(&other, 2, 3, 4, 5, false);
    tn_tensor *u = any_vector(&w, 3);

    REFUSED(w.ctx, tn_cp_fold_in(cp, any_matrix(&w, 4, 2), NULL), TN_ERR_SHAPE, "e is [4,2], expected 5 rows");
    REFUSED(w.ctx, tn_cp_fold_in(cp, any_matrix(&w, 5, 2), any_vector(&w, 4)), TN_ERR_SHAPE, "fold_in: b is [4], expected [5]");
    REFUSED(w.ctx, tn_cp_fold_in(cp, NULL, NULL), TN_ERR_ARG, "e is NULL");
    REFUSED(w.ctx, tn_cp_fold_in(narrow, any_matrix(&w, 3, 2), NULL), TN_ERR_SHAPE, "input 1 has 5 elements, expected 3 as input 0");
    REFUSED(w.ctx, tn_cp_fold_out(cp, any_matrix(&w, 2, 4), NULL), TN_ERR_SHAPE, "u is [2,4], expected 3 columns");
    REFUSED(w.ctx, tn_cp_fold_out(cp, any_matrix(&w, 2, 3), any_vector(&w, 3)), TN_ERR_SHAPE, "fold_out: b is [3], expected [2]");
    REFUSED(w.ctx, tn_cp_residual(cp), TN_ERR_SHAPE, "the operator has 3 outputs, expected 5 as inputs");
    REFUSED(w.ctx, tn_cp_symmetrise(narrow), TN_ERR_SHAPE, "symmetrise: input 1 has 5 elements, expected 3 as input 0");
    REFUSED(w.ctx, tn_cp_dense_symmetric(cube), TN_ERR_SHAPE, "dense: the operator has order 3");
    REFUSED(w.ctx, tn_cp_interaction(cube, u), TN_ERR_SHAPE, "interaction: the operator has order 3");
    REFUSED(w.ctx, tn_cp_interaction(cp, any_vector(&w, 4)), TN_ERR_SHAPE, "interaction: u is [4], expected [3]");
    REFUSED(w.ctx, tn_cp_interaction(cp, NULL), TN_ERR_ARG, "u is NULL");
    REFUSED(w.ctx, tn_cp_interaction(cp, any_vector(&other, 3)), TN_ERR_ARG, "another context");
    REFUSED(w.ctx, tn_cp_interaction_of(cp, 3), TN_ERR_ARG, "output is 3, expected 0 to 2");
    REFUSED(w.ctx, tn_cp_interaction_of(cp, -1), TN_ERR_ARG, "output is -1, expected 0 to 2");
    REFUSED(w.ctx, tn_cp_fix(cp, 2, any_vector(&w, 5)), TN_ERR_ARG, "freeze: slot is 2, expected 0 to 1");
    REFUSED(w.ctx, tn_cp_fix(cp, -1, any_vector(&w, 5)), TN_ERR_ARG, "freeze: slot is -1, expected 0 to 1");
    REFUSED(w.ctx, tn_cp_fix(cp, 0, any_vector(&w, 4)), TN_ERR_SHAPE, "freeze: u is [4], expected [5]");
    REFUSED(w.ctx, tn_cp_fix(tn_cp_fix(cp, 0, any_vector(&w, 5)), 0, any_vector(&w, 5)), TN_ERR_ARG, "order 1");
    REFUSED(w.ctx, tn_cp_truncate(cp, -1), TN_ERR_ARG, "truncate: count is -1, expected 0 or more");
    REFUSED(w.ctx, tn_cp_truncate(cube, 1), TN_ERR_SHAPE, "order 3");
    CHECK_STATUS(tn_cp_eigen_all(cp, 2, &e), TN_OK);
    REFUSED(w.ctx, tn_cp_from_eigen(w.ctx, &e, 3), TN_ERR_ARG, "k is 3, expected 0 to 2 pairs");
    REFUSED(w.ctx, tn_cp_from_eigen(w.ctx, &e, -1), TN_ERR_ARG, "k is -1, expected 0 to 2 pairs");
    REFUSED(other.ctx, tn_cp_from_eigen(other.ctx, &e, 1), TN_ERR_ARG, "another context");
    tn_eigenpairs_destroy(&e);
    REFUSED(w.ctx, tn_cp_from_eigen(w.ctx, &e, 0), TN_ERR_ARG, "values is NULL");
    REFUSED(w.ctx, tn_cp_gram(cp, foreign), TN_ERR_ARG, "two contexts");
    REFUSED(w.ctx, tn_cp_gram(cp, cube), TN_ERR_SHAPE, "orders 2 and 3");
    REFUSED(w.ctx, tn_cp_gram(cp, narrow), TN_ERR_SHAPE, "gram:");
    REFUSED(w.ctx, tn_cp_gram(cp, NULL), TN_ERR_ARG, "NULL");
    REFUSED(w.ctx, tn_cp_gram(cp, any_cp(&w, 2, 3, 4, 5, true)), TN_ERR_SHAPE, "gram: one operator has a constant");
    FAILS(w.ctx, tn_cp_inner(cp, tn_cp_fold_out(cp, any_matrix(&w, 2, 3), NULL), &value), TN_ERR_SHAPE, "3 and 2 outputs");
    CHECK(value != value);
    FAILS(w.ctx, tn_cp_inner(cp, NULL, &value), TN_ERR_ARG, "NULL");
    FAILS(w.ctx, tn_cp_cosine(cp, NULL, &value), TN_ERR_ARG, "NULL");
    CHECK(value != value);
    FAILS(w.ctx, tn_cp_split(cube, NULL, NULL, NULL), TN_ERR_SHAPE, "split: the operator has order 3");
    FAILS(w.ctx, tn_cp_eigen_all(cube, 0, &e), TN_ERR_SHAPE, "eigen_all: the operator has order 3");
    FAILS(w.ctx, tn_cp_eigen_all(cp, 0, NULL), TN_ERR_ARG, "eigen_all: out is NULL");
    FAILS(w.ctx, tn_cp_eigen(cp, u, 0, NULL), TN_ERR_ARG, "eigen: out is NULL");
    FAILS(w.ctx, tn_cp_spectrum(cp, 0, NULL), TN_ERR_ARG, "spectrum: out is NULL");
    FAILS(w.ctx, tn_cp_norm(cp, NULL), TN_ERR_ARG, "norm: norm is NULL");
    FAILS(w.ctx, tn_cp_eigen(cp, any_vector(&w, 2), 0, &e), TN_ERR_SHAPE, "u is [2]");
    FAILS(w.ctx, tn_cp_eigen(cp, NULL, 0, &e), TN_ERR_ARG, "u is NULL");
    CHECK(!e.values && !e.vectors);

    REFUSED(w.ctx, tn_cp_apply(w.ctx, cp, any_matrix(&w, 2, 4)), TN_ERR_SHAPE, "[2,4]");
    REFUSED(w.ctx, tn_cp_apply(w.ctx, cp, NULL), TN_ERR_ARG, "x is NULL");
    REFUSED(w.ctx, tn_cp_apply(w.ctx, narrow, any_matrix(&w, 2, 3)), TN_ERR_SHAPE, "input 1 has ");
    REFUSED(other.ctx, tn_cp_apply(other.ctx, cp, any_matrix(&other, 2, 5)), TN_ERR_ARG, "another context");
    tn_tensor *x[2] = {any_matrix(&w, 2, 3), NULL};
    REFUSED(w.ctx, tn_cp_apply_each(w.ctx, narrow, x), TN_ERR_ARG, "x is NULL");
    x[1] = any_matrix(&w, 3, 5);
    REFUSED(w.ctx, tn_cp_apply_each(w.ctx, narrow, x), TN_ERR_SHAPE, "[2,4]");

    CHECK(!tn_cp_fold_in(NULL, u, NULL) && !tn_cp_fold_out(NULL, u, NULL) && !tn_cp_residual(NULL) && !tn_cp_symmetrise(NULL));
    CHECK(!tn_cp_fix(NULL, 0, u) && !tn_cp_dense(NULL) && !tn_cp_interaction(NULL, u) && !tn_cp_interaction_of(NULL, 0));
    CHECK(!tn_cp_from_eigen(w.ctx, NULL, 0));
    CHECK(!tn_cp_apply(w.ctx, NULL, u) && !tn_cp_apply_each(w.ctx, NULL, x) && !tn_cp_truncate(NULL, 1) && !tn_cp_gram(NULL, cp));
    CHECK_STATUS(tn_cp_split(NULL, NULL, NULL, NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_cp_norm(NULL, &value), TN_ERR_ARG);
    CHECK_STATUS(tn_cp_inner(cp, cp, NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_cp_eigen_all(NULL, 0, &e), TN_ERR_ARG);
    CHECK_STATUS(tn_cp_eigen_all(cp, 0, NULL), TN_ERR_ARG);
    tn_cp_destroy(NULL);
    tn_eigenpairs_destroy(NULL);
    tn_ctx_clear_error(w.ctx);
    close_world(&other);
    close_world(&w);
}

/* What goes wrong is said by the status of this call, whatever error the context holds already. */
TEST(status_is_of_this_call)
{
    world    w;
    double   value;
    tn_eigenpairs e;
    if (!open_world(&w, TN_F64, 1)) return;
    tn_cp *cp = any_cp(&w, 2, 3, 4, 5, false);
    CHECK(tn_cp_interaction_of(cp, 9) == NULL);
    CHECK_STATUS(tn_cp_norm(cp, &value), TN_OK);
    CHECK_STATUS(tn_cp_split(cp, NULL, NULL, NULL), TN_OK);
    CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK);
    tn_eigenpairs_destroy(&e);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "output is 9, expected 0 to 2");
    close_world(&w);
}

/* NaN and infinity, in W, V and P, in either branch of the solver: an error and nothing made. */
TEST(eigen_of_what_is_not_finite)
{
    world w;
    if (!open_world(&w, TN_F32, 1)) return;
    for (int branch = 0; branch < 2; branch++)
        for (int where = 0; where < 3; where++)
            for (int kind = 0; kind < 2; kind++) {
                double   bad = kind ? HUGE_VAL : (double)NAN;
                tn_cp   *cp = any_cp(&w, 2, 3, 4, branch ? 5 : 12, false);
                tn_eigenpairs e;
                tn_tensor *t = where == 0 ? cp->p : cp->f[where - 1];
                tn_write(tn_slice(tn_slice(t, 0, 1, 2), 1, 1, 2), TN_F64, &bad, 1);
                CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_ERR_NONFINITE);
                CHECK(!e.values && !e.vectors);
                CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "NaN or infinity");
                CHECK(tn_cp_truncate(cp, 1) == NULL);
                tn_ctx_clear_error(w.ctx);
                tn_cp_destroy(cp);
                fresh(&w);
            }
    close_world(&w);
}

TEST(dense_that_does_not_fit)
{
    tn_desc    desc = ZERO;
    tn_ctx    *ctx;
    tn_tensor *f[6];
    int64_t    n = 200;
    desc.max_bytes = (size_t)16 << 20;
    desc.arena_bytes = 1 << 20;
    desc.threads = 1;
    REQUIRE(tn_ctx_create(&desc, &ctx, NULL) == TN_OK);
    tn_tensor *p = tn_tensor_2d(ctx, TN_REAL, n, 2);
    f[0] = tn_full(ctx, 2, p->shape, 1);
    f[0] = f[1] = tn_tensor_2d(ctx, TN_REAL, 2, n);
    tn_cp *cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    CHECK_CTX(ctx);
    REFUSED(ctx, tn_cp_dense(cp), TN_ERR_MEMORY, "32000000 bytes");      /* 200^3 floats */
            REFUSED(ctx, tn_cp_dense_symmetric(cp), TN_ERR_MEMORY, "max_bytes = 16777216");
    tn_cp_destroy(cp);
    for (int k = 0; k < 6; k++) f[k] = tn_tensor_2d(ctx, TN_REAL, 2, 5000);
    cp = tn_cp_create(ctx, 6, p, f, TN_CP_INPUT_PLAIN);
    CHECK_CTX(ctx);
    CHECK(tn_cp_dense(cp) == NULL);                                      /* 5000^6 does not fit a size */
    CHECK(strstr(tn_ctx_error(ctx), "5000,5000") != NULL);
    tn_ctx_destroy(ctx);
}

/* ---- no memory ---------------------------------------------------------------------------- */

/* A call during which an allocation failed has failed. */
#define FAILS_IF_MEMORY_DID(failed) do { \
    bool before_ = heap->count < heap->fail_at, failed_ = (failed); \
    if (before_ && heap->count >= heap->fail_at) CHECK(failed_); } while (0)

/* All that operators can do, each on what the ones before have made, or on NULL. */
static void all_of_it(tn_ctx *ctx, test_heap *heap)
{
    tn_params     *params = tn_params_create(ctx);
    tn_linear_desc ld = ZERO;
    tn_linear      embed, unembed;
    tn_mlp_desc    md = ZERO;
    tn_mlp         mlp;
    tn_cp         *cp, *cut, *other, *frozen, *quadratic;
    tn_eigenpairs       e, one;
    tn_tensor     *l, *c, *u, *x, *in;
    double         value;
    int64_t        n = 3, m = 11, square[2] = {3, 3}, wide[2] = {10, 3};
    ld.bias = true;
    ld.augmented = true;
    ld.bias = false;
    md.in = md.out = 6; md.hidden = 4; md.residual = md.augmented = true;
    ld.in = 10; ld.out = 6;
    if (!params || tn_linear_init(params, "embed", &ld, &embed) != TN_OK) return;
    ld.in = 6; ld.out = 3;
    if (tn_linear_init(params, "unembed", &ld, &unembed) != TN_OK || tn_mlp_init(params, "mlp", &md, &mlp) != TN_OK) return;
    FAILS_IF_MEMORY_DID(!(cp = tn_cp_from_stack(ctx, &embed, &mlp, &unembed)));
    FAILS_IF_MEMORY_DID(tn_cp_eigen_all(cp, 0, &e) != TN_OK);
    FAILS_IF_MEMORY_DID(!(cut = tn_cp_truncate(cp, 2)));
    FAILS_IF_MEMORY_DID(!tn_cp_gram(cp, cut));
    FAILS_IF_MEMORY_DID(tn_cp_cosine(cp, cut, &value) != TN_OK);
    FAILS_IF_MEMORY_DID(!(u = tn_full(ctx, 1, &n, 1)));
    FAILS_IF_MEMORY_DID(!(in = tn_full(ctx, 1, &m, 1)));
    FAILS_IF_MEMORY_DID(tn_cp_eigen(cut, u, 0, &one) != TN_OK);
    FAILS_IF_MEMORY_DID(!tn_cp_interaction(cp, u));
    FAILS_IF_MEMORY_DID(!tn_cp_interaction_of(cp, 1));
    FAILS_IF_MEMORY_DID(!tn_cp_dense_symmetric(cut));
    FAILS_IF_MEMORY_DID(!(other = tn_cp_symmetrise(cp)));
    FAILS_IF_MEMORY_DID(tn_cp_split(cp, &quadratic, &l, &c) != TN_OK);
    FAILS_IF_MEMORY_DID(!(x = tn_full(ctx, 2, square, 1)));
    FAILS_IF_MEMORY_DID(!tn_cp_fold_out(other, x, u));
    FAILS_IF_MEMORY_DID(!(frozen = tn_cp_fix(cp, 0, in)));
    FAILS_IF_MEMORY_DID(!tn_cp_dense(frozen));
    FAILS_IF_MEMORY_DID(!tn_cp_apply(ctx, cp, in));
    FAILS_IF_MEMORY_DID(!tn_cp_residual(tn_cp_fold_in(quadratic, tn_full(ctx, 2, wide, 1), NULL)));
}

static void memory_that_ends(const tn_backend *backend)
{
    uint64_t last = 0;
    for (int on = 0; on < 2; on++)
        for (uint64_t k = 1; k < 5000; k++) {
            test_heap heap = ZERO;
            tn_desc   desc = ZERO;
            tn_ctx   *ctx;
            char      why[256];
            heap.fail_at = k;
            heap.fail_on = on == 1;
            desc.allocator = test_heap_allocator(&heap);
            desc.dtype = TN_F64;
            desc.threads = 1;
            desc.backend = backend;
            desc.backend_required = true;
            desc.arena_bytes = 2048;
            if (tn_ctx_create(&desc, &ctx, why) != TN_OK) {
                CHECK(ctx == NULL && heap.count >= k);
            } else {
                all_of_it(ctx, &heap);
                bool reached = heap.count >= k;
                if (reached) CHECK_STATUS(tn_ctx_status(ctx), TN_ERR_MEMORY);
                tn_ctx_destroy(ctx);
                if (!reached) { last = k; k = 5000; }
            }
            if (!CHECK_INT(heap.live, 0) || !CHECK_INT(heap.blocks, 0)) return;
        }
    CHECK(last > 100);
}

TEST(no_memory)              { memory_that_ends(NULL); }
TEST(no_memory_on_reference) { memory_that_ends(tn_reference_backend()); }

/* ---- few pairs of a large operator, spectra, spaces ------------------------------------------------ */

/* The largest |Q v - l v| / |l_0| with the dense Q, or departure from orthonormal rows. */
static double worst_residual(world *w, const tn_cp *cp, const tn_eigenpairs *e)
{
    double *values = host(e->values), *vectors = host(e->vectors), worst = 0;
    for (int64_t o = 0; o < e->outputs; o++) {
        tn_tensor *q = tn_cp_interaction_of(cp, o), *v = tn_tensor_2d(w->ctx, TN_REAL, e->count, e->n);
        tn_write(v, TN_F64, vectors + o * e->count * e->n, e->count * e->n);
        double *qv = host(tn_matmul(w->ctx, v, q));
        for (int64_t i = 0; i < e->count; i++) {
            const double *vi = vectors + (o * e->count + i) * e->n;
            for (int64_t j = 0; j < e->n; j++) qv[i * e->n + j] -= values[o * e->count + i] * vi[j];
            test_raise(&worst, frobenius(qv + i * e->n, e->n) / fabs(values[o * e->count]));
            for (int64_t j = 0; j <= i; j++)
                test_raise(&worst, fabs(dot(vi, vectors + (o * e->count + j) * e->n, e->n) - (i == j)));
        }
        tn_tensor_destroy(q);
    }
    return worst;
}

/* By products with Q itself (n <= 2h), against the exact values. */
TEST(few_pairs_of_a_large_operator)
{
    world       w;
    double      worst = 0;
    int64_t     n = 1024, h = 515, k = 12;
    tn_eigenpairs    few, again;
    tn_spectrum all;
    if (!open_world(&w, TN_F64, 71)) return;
    tn_cp *cp = any_cp(&w, 2, 1, h, n, true);
    CHECK_STATUS(tn_cp_spectrum(cp, 0, &all), TN_OK);
    CHECK_STATUS(tn_cp_eigen_all(cp, k, &few), TN_OK);
    CHECK_STATUS(tn_cp_eigen(cp, unit_vector(&w, 1, 0), k, &again), TN_OK);
    CHECK(few.count == k && few.n == n && all.count == n);
    WORST("few pairs against all: values", test_frobenius(host(few.values), host(all.values), k), 4e-14);
    test_raise(&worst, worst_residual(&w, cp, &few));
    WORST("few pairs: Q v = l v, orthonormal", worst, 2e-12);
    CHECK(same_bits(few.values, again.values) && same_bits(few.vectors, again.vectors));
    tn_eigenpairs_destroy(&few);
    tn_eigenpairs_destroy(&again);
    tn_spectrum_destroy(&all);
    close_world(&w);
}

/* By products with the factors (2h < n). The encoders are the same h orthonormal rows, so that P holds the eigenvalues: clusters of
   1e-9, triple ones, both signs. */
TEST(few_clustered_pairs_by_factors)
{
    enum { OUT = 2, K = 10 };
    int64_t n = 1100, h = 513;
    for (size_t d = 0; d < 2; d++) {
        world    w;
        double   worst = 0;
        tn_eigenpairs e;
        if (!open_world(&w, f64_f32[d], 73)) return;
        double *p = doubles(OUT * h), *f = doubles(h * n), *v = noise(&w, n);
        for (int64_t i = 0; i < h; i++)                       /* rows of I - 2 v v^T / |v|^2 */
            for (int64_t j = 0; j < n; j++) f[i * n + j] = (i == j) - 2 * v[i] * v[j] / dot(v, v, n);
        for (int64_t i = 0; i < h; i++) {
            p[i] = i < 3 ? 2 : i < 6 ? -1.5 - 1e-9 * (double)i : i < 8 ? 1.25 : 1 - (double)i / (double)h;
            p[h + i] = (i % 2 ? -1 : 1) * pow(0.8, (double)i);
        }
        tn_cp *cp = cp_of(&w, OUT, h, n, p, f, f);
        if (!CHECK_STATUS(tn_cp_eigen_all(cp, K, &e), TN_OK)) return;
        double *values = host(e.values);
        for (int64_t i = 0; i < K; i++) {
            double a = i < 3 ? 2 : i < 6 ? -1.5 - 1e-9 * (double)(8 - i) : i < 8 ? 1.25 : p[i];
            test_raise(&worst, fabs(values[i] - a));
            test_raise(&worst, fabs(values[K + i] - p[h + i]));
        }
        test_raise(&worst, worst_residual(&w, cp, &e) / 2);
        WORST(d ? "clustered pairs by factors F32" : "clustered pairs by factors F64", worst,
              f64_f32[d] == TN_F64 ? 1e-12 : 1e-5);        /* the tolerance of the search itself */
        tn_eigenpairs_destroy(&e);
        close_world(&w);
    }
}

/* With all values the rank is exact; with some it lies in the interval, which closes; the norm is the dense one's, whether it comes
   from K (many outputs) or from Q. */
TEST(spectra_bound_the_effective_rank)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double norms = 0, ranks = 0, slack = f64_f32[d] == TN_F64 ? 1e-9 : 1e-3;
        if (!open_world(&w, f64_f32[d], 79)) return;
        for (size_t i = 0; i < SHAPES; i++) {
            shape       s = shapes[i];
            tn_cp      *cp = any_cp(&w, 2, s.o, s.h, s.n, i % 2 == 0);
            double     *plain = plain_symmetric(plain_dense(cp), s.o, s.n);
            tn_spectrum all, some;
            tn_eigenpairs    e;
            if (!CHECK_STATUS(tn_cp_spectrum(cp, 0, &all), TN_OK) || !CHECK_STATUS(tn_cp_eigen_all(cp, 0, &e), TN_OK)) break;
            int64_t most = all.count;
            double *exact = host(all.rank_low);
            CHECK(all.outputs == s.o && most == e.count);
            CHECK(test_frobenius(host(all.values), host(e.values), s.o * most) <= bound_of(f64_f32[d]));
            for (int64_t o = 0; o < s.o; o++) {
                CHECK(exact[o] == host(all.rank_high)[o]);
                test_raise(&ranks, fabs(exact[o] - tn_effective_rank(host(e.values) + o * most, most)) / exact[o]);
                test_raise(&norms, fabs(host(all.norm)[o] - frobenius(plain + o * s.n * s.n, s.n * s.n))
                                   / host(all.norm)[o]);
            }
            for (int64_t k = 1; k <= most; k++) {
                if (!CHECK_STATUS(tn_cp_spectrum(cp, k, &some), TN_OK)) break;
                CHECK(some.count == k);
                for (int64_t o = 0; o < s.o; o++) {
                    double low = host(some.rank_low)[o], high = host(some.rank_high)[o];
                    CHECK(low <= exact[o] * (1 + slack) && high >= exact[o] * (1 - slack) && low >= 0);
                    CHECK(k < most ? low <= high : low == high);
                    test_raise(&norms, fabs(host(some.norm)[o] - host(all.norm)[o]) / host(all.norm)[o]);
                }
                tn_spectrum_destroy(&some);
                CHECK(!some.values && !some.norm && !some.rank_low && !some.rank_high);
            }
            tn_spectrum_destroy(&all);
            tn_eigenpairs_destroy(&e);
            tn_cp_destroy(cp);
            fresh(&w);
        }
        report("norms of interaction matrices", f64_f32[d], norms);
        report("effective ranks", f64_f32[d], ranks);
        close_world(&w);
    }
}

/* `few`, of `out` outputs and h terms on n inputs, with more - h terms of zero besides */
static tn_cp *padded_to(world *w, tn_cp *few, int64_t out, int64_t h, int64_t more, int64_t n)
{
    double *p = doubles(out * more), *f0 = doubles(more * n), *f1 = doubles(more * n);
    for (int64_t o = 0; o < out; o++) memcpy(p + o * more, host(few->p) + o * h, sizeof *p * (size_t)h);
    memcpy(f0, host(few->f[0]), sizeof *f0 * (size_t)(h * n));
    memcpy(f1, host(few->f[1]), sizeof *f1 * (size_t)(h * n));
    return cp_of(w, out, more, n, p, f0, f1);
}

/* Both ways to the norms, whichever the shape would choose: terms of zeros change h, outputs of zeros change o. */
TEST(norms_by_terms_and_by_matrices)
{
    world       w;
    int64_t     n = 9, h = 5, more = 200;
    tn_spectrum a, b;
    if (!open_world(&w, TN_F64, 81)) return;
    tn_cp *few = any_cp(&w, 2, 3, h, n, false);
    tn_cp *many = padded_to(&w, few, 3, h, more, n);
    CHECK_STATUS(tn_cp_spectrum(few, 4, &a), TN_OK);
    CHECK_STATUS(tn_cp_spectrum(many, 4, &b), TN_OK);
    WORST("norms by terms and by matrices", test_frobenius(host(b.norm), host(a.norm), 3), 2e-15);
    tn_spectrum_destroy(&a);
    tn_spectrum_destroy(&b);
    close_world(&w);
}

/* The unknown values are at most as large as the smallest known one, c, so (sum + (all - k) c)^2 / sum l^2 bounds the rank,
   too. Here it is the tighter bound: 4 of 12 values are not zero, and once they are known the interval is a single number,
   while the rounding error of the sum of squares would allow eight more values. */
TEST(an_interval_closes_when_the_last_value_is_zero)
{
    for (size_t d = 0; d < 2; d++) {
        world       w;
        int64_t     n = 12, h = 2, more = 6, all = 12;
        double      width = 0, above = 0;
        tn_spectrum s;
        if (!open_world(&w, f64_f32[d], 83)) return;
        tn_cp *few = any_cp(&w, 2, 3, h, n, false);
        tn_cp *padded = padded_to(&w, few, 3, h, more, n);
        REQUIRE(CHECK_STATUS(tn_cp_spectrum(few, 0, &s), TN_OK) && s.count == 4);
        double *exact = host(s.rank_low);
        tn_spectrum_destroy(&s);
        for (int64_t k = 1; k < all; k++) {
            if (!CHECK_STATUS(tn_cp_spectrum(padded, k, &s), TN_OK)) break;
            for (int64_t o = 0; o < 3; o++) {
                const double *l = host(s.values) + o * k;
                double sum = (double)(all - k) * fabs(l[k - 1]), norm = host(s.norm)[o], high = host(s.rank_high)[o];
                for (int64_t i = 0; i < k; i++) sum += fabs(l[i]);
                test_raise(&above, high * norm * norm / (sum * sum) - 1);
                if (k > 4) test_raise(&width, (high - host(s.rank_low)[o]) / exact[o]);
                if (k > 4) test_raise(&width, fabs(high / exact[o] - 1));
            }
            tn_spectrum_destroy(&s);
        }
        report("rank_high over (sum + (all - k) c)^2 / square, less 1", f64_f32[d], above);
        report("the interval of a rank that is known", f64_f32[d], width);
        close_world(&w);
    }
}

/* S^1/2 Q S^1/2, and: x -> M x, S -> M S M^T leaves its spectrum, as that of any space with its data, as it is. */
TEST(data_metric)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double dense = 0, same = 0;
        if (!open_world(&w, f64_f32[d], 83)) return;
        for (int round = 0; round < 8; round++) {
            int64_t    n = test_random_int(&w.seed, 1, 9), h = test_random_int(&w.seed, 1, 9), rows = 3 * n + 2;
            double     m[81] = {0}, inverse[81] = {0};
            tn_tensor *x = any_matrix(&w, rows, n);
            tn_cp     *cp = any_cp(&w, 2, 3, h, n, round % 2 == 1);
            tn_eigenpairs   a, b;
            for (int64_t i = 0; i < n; i++) {                /* bidiagonal M = D (I + N), and its inverse */
                double v = 1;
                m[i * n + i] = 1 + (double)i / 4;
                if (i + 1 < n) m[i * n + i + 1] = 0.5 * m[i * n + i];
                for (int64_t j = i; j < n; j++, v *= -0.5) inverse[i * n + j] = v / (1 + (double)j / 4);
            }
            tn_tensor *to = matrix(&w, n, n, m);
            tn_tensor *back = matrix(&w, n, n, inverse);
            tn_tensor *moved = tn_matmul(w.ctx, x, tn_transpose(to, 0, 1));
            tn_tensor *s = tn_scale(w.ctx, tn_matmul(w.ctx, tn_transpose(x, 0, 1), x), 1 / (double)rows);
            tn_tensor *moved_s = tn_scale(w.ctx, tn_matmul(w.ctx, tn_transpose(moved, 0, 1), moved), 1 / (double)rows);
            tn_cp     *metric = tn_cp_data_metric(cp, s);
            tn_cp     *bare = cp_of(&w, 3, h, n, host(cp->p), host(cp->f[0]), host(cp->f[1]));
            tn_cp     *embedded = tn_cp_fold_in(bare, back, NULL); /* the same function of M x */
            tn_cp     *other = tn_cp_data_metric(embedded, moved_s);
            if (!CHECK(metric && other)) break;
            CHECK(!metric->constant && metric->order == 2 && metric->in[0] == n);
            if (!CHECK_STATUS(tn_cp_eigen_all(metric, 0, &a), TN_OK) || !CHECK_STATUS(tn_cp_eigen_all(other, 0, &b), TN_OK)) break;
            test_raise(&same, test_frobenius(host(b.values), host(a.values), 3 * a.count));
            tn_tensor *check_s = tn_cp_dense_symmetric(metric);  /* tr (S^1/2 Q S^1/2)^2 = tr (Q S Q S) */
            {
                tn_tensor *q = tn_cp_interaction_of(bare, 1), *qs = tn_matmul(w.ctx, q, s);
                double     t = frobenius(host(check_s) + n * n, n * n), u = dot(host(qs), host(tn_copy(w.ctx, tn_transpose(qs, 0, 1))), n * n);
                test_raise(&dense, fabs(t * t - u) / (t * t));
                tn_tensor_destroy(q);
            }
            tn_eigenpairs_destroy(&a);
            tn_eigenpairs_destroy(&b);
            fresh(&w);
        }
        report("data metric: any coordinates", f64_f32[d], same);
        report("data metric: trace", f64_f32[d], dense);
        close_world(&w);
    }
}

TEST(cosines_of_all_pairs)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0, one = 0;
        if (!open_world(&w, f64_f32[d], 89)) return;
        for (size_t i = 0; i < SHAPES; i++) {
            shape      s = shapes[i];
            tn_cp     *a = any_cp(&w, 2, s.o, s.h, s.n, false), *b = any_cp(&w, 2, s.o + 1, s.h + 2, s.n, false);
            double    *pa = plain_symmetric(plain_dense(a), s.o, s.n), *pb = plain_symmetric(plain_dense(b), s.o + 1, s.n);
            tn_tensor *t = tn_cp_cosines(a, b), *u = tn_cp_cosines(a, a);
            int64_t    size = s.n * s.n;
            if (!CHECK(t && u)) break;
            CHECK(t->shape[0] == s.o && t->shape[1] == s.o + 1);
            double *c = host(t), *self = host(u);
            for (int64_t o = 0; o < s.o; o++) {
                for (int64_t k = 0; k <= s.o; k++)
                    test_raise(&worst, fabs(c[o * (s.o + 1) + k] - dot(pa + o * size, pb + k * size, size)
                                            / frobenius(pa + o * size, size) / frobenius(pb + k * size, size)));
                test_raise(&one, fabs(self[o * s.o + o] - 1));
            }
            tn_tensor_destroy(t);
            tn_tensor_destroy(u);
            tn_cp_destroy(a);
            tn_cp_destroy(b);
            fresh(&w);
        }
        report("cosines of all pairs", f64_f32[d], worst);
        report("cosines with oneself", f64_f32[d], one);
        close_world(&w);
    }
}

TEST(bad_spectra_and_metrics)
{
    world       w;
    double      negative[] = {1, 0, 0, -1}, zeros[] = {0, 0}, f[] = {1, 2, 3, 4};
    tn_spectrum s;
    if (!open_world(&w, TN_F64, 97)) return;
    tn_cp *cp = any_cp(&w, 2, 1, 2, 2, false);
    tn_cp *three = any_cp(&w, 3, 1, 2, 2, false);
    CHECK_STATUS(tn_cp_spectrum(cp, 0, NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_cp_spectrum(NULL, 0, &s), TN_ERR_ARG);
    tn_ctx_clear_error(w.ctx);
    FAILS(w.ctx, tn_cp_spectrum(cp, -3, &s), TN_ERR_ARG, "spectrum: count is -3, expected 0 or more");
    CHECK_STATUS(tn_cp_spectrum(cp, 3, &s), TN_OK);
    CHECK_INT(s.count, 2);
    tn_spectrum_destroy(&s);
    FAILS(w.ctx, tn_cp_spectrum(three, 0, &s), TN_ERR_SHAPE, "order 3");
    REFUSED(w.ctx, tn_cp_data_metric(cp, matrix(&w, 2, 2, negative)), TN_ERR_ARG, "expected none below 0");
    CHECK(!tn_cp_data_metric(cp, any_matrix(&w, 3, 3)));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "s is [3,3], expected [2,2] as the operator's inputs");
    REFUSED(w.ctx, tn_cp_cosines(cp, three), TN_ERR_SHAPE, "orders 2 and 3");
    tn_cp *zero = cp_of(&w, 1, 2, 2, zeros, f, f);
    tn_tensor *c = tn_cp_cosines(cp, zero);
    CHECK(c && host(c)[0] != host(c)[0]);                    /* NaN: a zero has no direction */
    CHECK_STATUS(tn_cp_spectrum(zero, 1, &s), TN_OK);
    CHECK(host(s.norm)[0] == 0 && host(s.rank_low)[0] == 0 && host(s.rank_high)[0] == 0);
    tn_spectrum_destroy(&s);
    tn_spectrum_destroy(NULL);
    close_world(&w);
}

/* Both products, one to three threads, on the default backend; and on one whose memory cannot be touched. */
TEST(few_pairs_have_the_same_bits_for_any_threads)
{
    const int64_t n[2] = {1030, 1100}, h = 516, k = 4;
    double       *first[2] = {NULL, NULL};
    world         w[4];
    int           worlds = 3;
    const tn_backend *sealed = NULL;
    if (!test_leave_out(!SEALED, NO_SEALED)) {
        worlds = 4;
        sealed = sealed_cpu();
    }
    for (int t = 0; t < worlds; t++) {
        if (!open_on(&w[t], TN_F32, 91, t < 3 ? t + 1 : 1, t < 3 ? NULL : sealed)) return;
        for (int way = 0; way < 2; way++) {
            double  *p = doubles(h), *f = noise(&w[t], h * n[way]), *g = noise(&w[t], h * n[way]);
            tn_eigenpairs e;
            for (int64_t i = 0; i < h; i++) p[i] = (i % 2 ? -1 : 1) * pow(0.5, (double)i);
            tn_cp *cp = cp_of(&w[t], 1, h, n[way], p, f, g);
            if (!CHECK_STATUS(tn_cp_eigen_all(cp, k, &e), TN_OK)) return;
            double *v = host(e.vectors);
            if (t == 0) first[way] = v;
            else if (t < 3) CHECK(memcmp(v, first[way], sizeof *v * (size_t)(k * n[way])) == 0);
            else CHECK(test_frobenius(v, first[way], k * n[way]) <= 1e-5);
            tn_eigenpairs_destroy(&e);
        }
    }
    for (int t = 0; t < worlds; t++) close_world(&w[t]);
}

/* Vectors that came along with the values are not kept. */
TEST(spectra_keep_no_vectors)
{
    test_heap   heap = {0, 0, 0, 0, false};
    tn_desc     desc = ZERO;
    tn_ctx     *ctx;
    tn_tensor  *t[3];
    int64_t     extents[3][2] = {{1, 512}, {512, 1024}, {512, 1024}};
    tn_spectrum s;
    desc.threads = 1;
    desc.allocator = test_heap_allocator(&heap);
    if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK)) return;
    for (int i = 0; i < 3; i++) t[i] = tn_normal(ctx, 2, extents[i], 0, 1);
    tn_cp *cp = tn_cp_create(ctx, 2, t[0], t + 1, TN_CP_INPUT_PLAIN);
    tn_ctx_reset(ctx);
    size_t live = heap.live;
    CHECK_STATUS(tn_cp_spectrum(cp, 2, &s), TN_OK);
    tn_spectrum_destroy(&s);
    CHECK_INT(heap.live, live);
    tn_ctx_destroy(ctx);
}

/* Every allocation of a search by products fails once: an error, nothing lost. */
TEST(no_memory_for_few_pairs)
{
    test_heap heap = {0, 0, 0, 0, false};
    tn_desc   desc = ZERO;
    tn_ctx   *ctx;
    tn_tensor *f[2];
    int64_t   n = 1024, h = 512;
    int       failed = 0;
    desc.threads = 1;
    desc.allocator = test_heap_allocator(&heap);
    if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK)) return;
    tn_tensor *p = tn_tensor_2d(ctx, TN_REAL, 1, h);
    f[0] = tn_tensor_2d(ctx, TN_REAL, h, n);
    f[1] = tn_tensor_2d(ctx, TN_REAL, h, n);
    {                                                        /* one unit: Lanczos is done after its first basis */
        float *zeros = (float *)calloc((size_t)(h * n), sizeof *zeros);
        if (!CHECK(zeros != NULL)) return;
        zeros[0] = 1;
        tn_write(p, TN_F32, zeros, h);
        tn_write(f[0], TN_F32, zeros, h * n);
        tn_write(f[1], TN_F32, zeros, h * n);
        free(zeros);
    }
    tn_cp *cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    tn_ctx_reset(ctx);
    size_t live = heap.live;
    for (uint64_t k = 1; k < 100; k++) {
        tn_eigenpairs e;
        heap.fail_at = heap.count + k;
        if (tn_cp_eigen_all(cp, 1, &e) == TN_OK) { tn_eigenpairs_destroy(&e); heap.fail_at = 0; break; }
        heap.fail_at = 0;
        failed++;
        CHECK_ERROR(ctx, TN_ERR_MEMORY, "");
        CHECK(!e.values && !e.vectors);
        CHECK_INT(heap.live, live);
    }
    CHECK(failed > 8 && failed < 99);
    CHECK_INT(heap.live, live);
    tn_ctx_destroy(ctx);
    CHECK_INT(heap.live, 0);
}

/* Operators and layers that are not there: an error, not a crash. */
TEST(operators_of_nothing)
{
    world            w, elsewhere;
    tn_mlp_desc      md = ZERO;
    tn_mlp           mlp, relu;
    tn_modifier_desc d = ZERO;
    tn_modifier      modifier, foreign;
    tn_mlp           product;
    tn_quadratic     quadratic;
    tn_linear_desc   ld = ZERO;
    tn_linear        fc;
    ld.bias = true;
    md.in = md.out = d.in = d.out = ld.in = ld.out = 3;
    md.hidden = d.hidden = 4;
    REQUIRE(open_world(&w, TN_F64, 1) && open_world(&elsewhere, TN_F64, 1));
    REQUIRE(CHECK_STATUS(tn_mlp_init(w.params, "m", &md, &mlp), TN_OK));
    md.kind = TN_MLP_RELU;
    REQUIRE(CHECK_STATUS(tn_mlp_init(w.params, "relu", &md, &relu), TN_OK));
    REQUIRE(CHECK_STATUS(tn_modifier_init(w.params, "v", &d, &modifier), TN_OK));
    REQUIRE(CHECK_STATUS(tn_linear_init(w.params, "fc", &ld, &fc), TN_OK));
    REQUIRE(CHECK_STATUS(tn_modifier_init(elsewhere.params, "v", &d, &foreign), TN_OK));
    tn_cp *cp = tn_cp_from_mlp(w.ctx, &mlp);
    REQUIRE(CHECK(cp != NULL));
    CHECK(tn_mlp_from_cp(NULL, "p", cp, &product) != TN_OK);             /* no parameters, so no context to keep a message */
    CHECK(tn_quadratic_from_cp(NULL, "q", cp, &quadratic) != TN_OK);
    CHECK_CTX(w.ctx);
    REFUSED(w.ctx, tn_cp_from_modifier(w.ctx, NULL), TN_ERR_ARG, "cp_from_modifier: layer is NULL");
    REFUSED(w.ctx, tn_cp_from_modifier(w.ctx, &foreign), TN_ERR_ARG, "cp_from_modifier: layer belongs to another context");
    REFUSED(w.ctx, tn_cp_from_stack(w.ctx, &fc, &relu, &fc), TN_ERR_ARG, "relu");
    CHECK(tn_cp_from_stack(w.ctx, &fc, NULL, &fc) == NULL);
    tn_ctx_clear_error(w.ctx);
    tn_cp_destroy(cp);
    close_world(&elsewhere);
    close_world(&w);
}

TEST_MAIN(layer_is_its_tensor, layer_is_its_tensor_on_reference, layer_is_its_tensor_on_sealed, batches_of_none_and_of_any_rank,
          dense_of_every_order, symmetric_forms, folding_in_and_out, folding_out_does_not_fold_into_w_and_v, stack_is_one_operator,
          operators_of_no_terms, residual_operator, split_into_quadratic_linear_constant, split_gives_what_is_asked_for, on_two_inputs,
          freezing_each_slot, eigenpairs, eigenpairs_of_the_degenerate, small_problem_against_the_full_one, rank_one_neuron,
          some_pairs_and_one_direction, some_pairs_of_large_ones, pairs_of_a_direction,
          eigen_has_the_same_bits_for_any_threads,
          eigen_of_one_output_has_the_same_bits_for_any_threads, truncation, gauge, effective_ranks,
          comparisons_against_dense, invariances, even_and_homogeneous, operators_are_not_recorded, operators_leave_the_arena,
          small_example, gates, golden, bad_factors, bad_layers, bad_calls_of_an_operator, status_is_of_this_call,
          eigen_of_what_is_not_finite, dense_that_does_not_fit, no_memory, no_memory_on_reference,
          few_pairs_of_a_large_operator, few_clustered_pairs_by_factors, spectra_bound_the_effective_rank, norms_by_terms_and_by_matrices,
          an_interval_closes_when_the_last_value_is_zero, data_metric, cosines_of_all_pairs,
          bad_spectra_and_metrics, few_pairs_have_the_same_bits_for_any_threads, spectra_keep_no_vectors,
          no_memory_for_few_pairs, operators_of_nothing)

