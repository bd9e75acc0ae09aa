/* test_merge.c: means of operators, and refits to fewer terms by the outputs for data, against plain loops and NumPy. */
#include "kit.h"

/* Outputs [rows,out] of a bilinear operator for inputs without the constant one, by plain loops. */
static double *outputs_of(const tn_cp *cp, const double *x, int64_t rows)
{
    const int64_t in = cp->in[0], n = in - cp->constant;
    double       *p = host(cp->p), *f[2] = {host(cp->f[0]), host(cp->f[1])}, *y = doubles(rows * cp->out);
    for (int64_t s = 0; s < rows; s++)
        for (int64_t t = 0; t < cp->terms; t++) {
            double product = 1;
            for (int k = 0; k < 2; k++)
                product *= dot(f[k] + t * in, x + s * n, n) + (cp->constant ? f[k][t * in + n] : 0);
            for (int64_t o = 0; o < cp->out; o++) y[s * cp->out + o] += p[o * cp->terms + t] * product;
        }
    return y;
}

/* |y - y'| / |y| */
static double relative(const double *y, const double *other, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (y[i] - other[i]) * (y[i] - other[i]);
    return sqrt(sum) / frobenius(y, n);
}

TEST(means_are_sums_of_tensors)
{
    static const double weights[3] = {0.25, -2, 1.5};
    double worst = 0;
    for (int round = 0; round < 12; round++) {
        const int order = 1 + round % 3, count = 1 + round % 4 % 3;
        world     w;
        tn_cp    *cp[3];
        REQUIRE(open_world(&w, TN_F64, 30 + (uint64_t)round));
        for (int i = 0; i < count; i++) cp[i] = any_cp(&w, order, 3, (round + 2 * i) % 5, 4, round % 2);
        for (int k = 0; k < 2; k++) {
            tn_cp *to = tn_cp_mean(count, (const tn_cp *const *)cp, k ? weights : NULL);
            REQUIRE(to);
            int64_t terms = 0, size = 3 * inputs_of(to);
            double *want = doubles(size), *got = plain_dense(to);
            for (int i = 0; i < count; i++) {
                double *one = plain_dense(cp[i]);
                terms += cp[i]->terms;
                for (int64_t j = 0; j < size; j++) want[j] += one[j] * (k ? weights[i] : 1.0 / count);
            }
            CHECK_INT(to->terms, terms);
            CHECK_INT(to->constant, cp[0]->constant);
            for (int64_t j = 0; j < size; j++) test_raise(&worst, fabs(got[j] - want[j]));
            tn_cp_destroy(to);
        }
        for (int i = 0; i < count; i++) tn_cp_destroy(cp[i]);
        close_world(&w);
    }
    WORST("means against dense tensors", worst, 1e-14);
}

/* The error that is returned is that of the outputs, falls with the sweeps, and is below that of a refit of the tensor. */
TEST(refits_of_outputs)
{
    static const int64_t shapes[][5] = {{5, 3, 6, 4, 60}, {1, 1, 3, 2, 9}, {9, 4, 8, 5, 7}, {6, 1, 7, 3, 80}, {4, 2, 1, 1, 30}};
    double worst = 0, single = 0;
    for (int round = 0; round < 20; round++) {
        const int64_t *shape = shapes[round / 4], n = shape[0], out = shape[1], h = shape[2], rows = shape[4];
        const bool     constant = round % 2, f32 = round / 2 % 2;
        world          w;
        double         error, last = 2, of_tensor;
        REQUIRE(open_world(&w, f32 ? TN_F32 : TN_F64, 60 + (uint64_t)round));
        tn_cp           *cp = any_cp(&w, 2, out, h, n + constant, constant);
        tn_cp_refit_desc d = ZERO;
        double          *x = noise(&w, rows * n);
        for (int64_t i = 0; i < rows * n; i++) x[i] = f32 ? (double)(float)x[i] : x[i];
        for (int64_t i = 0; i < rows; i++) x[i * n] *= 20;                  /* far from the metric of the tensor */
        tn_tensor *inputs = matrix(&w, rows, n, x);
        double    *y = outputs_of(cp, x, rows);
        d.terms = shape[3];
        tn_cp *plain = tn_cp_refit(cp, &d, NULL);
        of_tensor = relative(y, outputs_of(plain, x, rows), rows * out);
        tn_cp_destroy(plain);
        d.inputs = inputs;
        d.tol = 1e-12;
        for (d.sweeps = 1; d.sweeps <= 256; d.sweeps *= 4) {
            tn_cp *c = tn_cp_refit(cp, &d, &error);
            REQUIRE(c && c->constant == constant && c->in[0] == cp->in[0] && c->terms <= d.terms);
            const double want = relative(y, outputs_of(c, x, rows), rows * out);
            test_raise(f32 ? &single : &worst, fabs(want - error));
            CHECK(error <= last * (1 + 1e-9) + 1e-9);
            last = error;
            tn_cp_destroy(c);
        }
        CHECK(last <= (out > 1 ? of_tensor * (1 + 1e-6) + (f32 ? 1e-5 : 1e-8) : 0.01));     /* one output: both are near 0 */
        if (constant) {                                     /* the same with the one */
            tn_cp *c = (d.sweeps /= 4, d.inputs = tn_append_one(w.ctx, inputs), tn_cp_refit(cp, &d, &of_tensor));
            CHECK(c && fabs(of_tensor - error) < 1e-6);
            tn_cp_destroy(c);
        }
        tn_cp_destroy(cp);
        close_world(&w);
    }
    WORST("errors of refits against their outputs", worst, 1e-9);
    WORST("the same in F32", single, 1e-4);
}

/* With a moment the error is that of the tensor in the data metric, also where the data or the encoders span fewer directions. */
TEST(refits_in_the_data_metric)
{
    static const int64_t shapes[][5] = {{6, 3, 7, 4, 30}, {9, 2, 3, 2, 30}, {8, 2, 6, 4, 5}, {7, 3, 2, 1, 4}, {1, 1, 2, 1, 2}};
    double worst = 0;
    for (int round = 0; round < 10; round++) {
        const int64_t *shape = shapes[round / 2], n = shape[0] + round % 2, rows = shape[4];
        world          w;
        double         error, of_tensor;
        REQUIRE(open_world(&w, TN_F64, 90 + (uint64_t)round));
        tn_cp           *cp = any_cp(&w, 2, shape[1], shape[2], n, round % 2);
        tn_tensor       *x = any_matrix(&w, rows, shape[0]);
        tn_cp_refit_desc d = ZERO;
        if (round % 2) x = tn_append_one(w.ctx, x);
        tn_tensor *s = tn_scale(w.ctx, tn_matmul(w.ctx, tn_transpose(x, 0, 1), x), 1 / (double)rows);
        d.terms = shape[3];
        d.tol = 1e-12;
        tn_cp *plain = tn_cp_refit(cp, &d, NULL);
        d.moment = s;
        tn_cp  *c = tn_cp_refit(cp, &d, &error);
        REQUIRE(plain && c && c->constant == cp->constant);
        double *want = host(tn_cp_dense_symmetric(tn_cp_data_metric(cp, s)));
        double *got = host(tn_cp_dense_symmetric(tn_cp_data_metric(c, s)));
        of_tensor = relative(want, host(tn_cp_dense_symmetric(tn_cp_data_metric(plain, s))), shape[1] * n * n);
        test_raise(&worst, fabs(error - relative(want, got, shape[1] * n * n)));
        CHECK(error <= of_tensor * (1 + 1e-6) + 1e-6);
        tn_cp_release(w.ctx, 0, NULL);
        close_world(&w);
    }
    WORST("errors of refits in the data metric", worst, 1e-6);
}

/* The mean of a model with a copy of itself whose units have another order and other scales has the error 0 in its own terms,
   and with as many terms as the mean any operator does. On inputs of a subspace fewer terms are enough. */
TEST(refits_that_are_exact)
{
    enum { N = 6, H = 5, OUT = 3, ROWS = 200 };
    double error;
    world  w;
    REQUIRE(open_world(&w, TN_F64, 5));
    tn_cp *a = any_cp(&w, 2, OUT, H, N + 1, true), *other = any_cp(&w, 2, OUT, H, N + 1, true);
    double *p = host(a->p), *f[2] = {host(a->f[0]), host(a->f[1])}, q[OUT * H], g[2][H * (N + 1)];
    for (int t = 0; t < H; t++) {
        const int    from = (2 * t + 1) % H;
        const double s = 0.5 + t, r = t % 2 ? -3 : 2;
        for (int o = 0; o < OUT; o++) q[o * H + t] = p[o * H + from] / (s * r);
        for (int i = 0; i <= N; i++) {
            g[t % 2][t * (N + 1) + i] = s * f[0][from * (N + 1) + i];
            g[1 - t % 2][t * (N + 1) + i] = r * f[1][from * (N + 1) + i];
        }
    }
    tn_tensor       *factors[2] = {matrix(&w, H, N + 1, g[0]), matrix(&w, H, N + 1, g[1])}, *x = any_matrix(&w, ROWS, N);
    const tn_cp     *pair[2] = {a, tn_cp_create(w.ctx, 2, matrix(&w, OUT, H, q), factors, TN_CP_INPUT_CONSTANT)};
    const tn_cp     *two[2] = {a, other};
    tn_cp_refit_desc d = ZERO;
    d.terms = H;
    d.inputs = x;
    tn_cp *mean = tn_cp_mean(2, pair, NULL), *c = tn_cp_refit(mean, &d, &error);
    CHECK(c && c->terms == H && error < 1e-7);
    tn_cp *apart = tn_cp_mean(2, two, NULL);
    d.terms = 2 * H;
    c = tn_cp_refit(apart, &d, &error);
    CHECK(c && error < 1e-7);
    /* inputs of one direction and the one: the outputs have degree 2 in one variable, three numbers for each output */
    double line[ROWS * N];
    for (int s = 0; s < ROWS; s++) for (int i = 0; i < N; i++) line[s * N + i] = (s - 90) * 0.1 * (i - 2);
    d.inputs = matrix(&w, ROWS, N, line);
    d.terms = 3;
    c = tn_cp_refit(apart, &d, &error);
    CHECK(c && error < 1e-7);
    d.terms = 1;
    c = tn_cp_refit(apart, &d, &error);
    CHECK(c && c->terms == 1 && error > 1e-3);
    d.inputs = tn_full(w.ctx, 2, x->shape, 0);              /* constant 1 is all there is */
    c = tn_cp_refit(apart, &d, &error);
    CHECK(c && c->terms == 1 && error < 1e-7);
    tn_cp_release(w.ctx, 0, NULL);
    close_world(&w);
}

/* A zero operator has no terms, and one row or rows of 0 leave few: the error is 0 then, and no number is NaN. */
TEST(refits_of_next_to_nothing)
{
    static const double zeros[2] = {0, 0};
    for (int constant = 0; constant < 2; constant++) {
        world w;
        REQUIRE(open_world(&w, TN_F64, 8));
        tn_cp        *a = any_cp(&w, 2, 3, 4, 5 + constant, constant), *none = any_cp(&w, 2, 3, 0, 5 + constant, constant);
        const tn_cp  *two[2] = {a, a};
        tn_cp        *zero = tn_cp_mean(2, two, zeros);
        const int64_t shape[2] = {7, 5};
        tn_tensor    *data[4] = {NULL, any_matrix(&w, 7, 5), any_matrix(&w, 1, 5), tn_full(w.ctx, 2, shape, 0)};
        for (int i = 0; i < 4; i++) {
            tn_cp_refit_desc d = ZERO;
            double           error = -1;
            tn_cp           *c;
            d.terms = 1000000;
            d.inputs = data[i];
            CHECK((c = tn_cp_refit(zero, &d, &error)) && c->terms == 0 && error == 0);
            CHECK((c = tn_cp_refit(none, &d, &error)) && c->terms == 0 && error == 0);
            CHECK((c = tn_cp_refit(a, &d, &error)) && c->terms <= 4 && error < 1e-7);
            if (!c) continue;
            const double size = frobenius(host(c->p), tn_tensor_count(c->p));
            CHECK(size < 1e6);
            CHECK((size == 0) == (i == 3 && !constant));
        }
        tn_cp_release(w.ctx, 0, NULL);
        close_world(&w);
    }
}

/* Number i of all is ((7 i^2 + 5 i) mod 23 - 11)/8. */
static tn_tensor *eighths(world *w, int64_t n, int64_t m, int64_t *count)
{
    double v[32];
    for (int64_t i = 0; i < n * m; i++, ++*count) v[i] = (double)((7 * *count * *count + 5 * *count) % 23 - 11) / 8;
    return matrix(w, n, m, v);
}

/* What tools/golden_merge.py prints: dense tensors and the least errors of fewer terms by another method. */
TEST(merges_as_numpy_finds_them)
{
    static const double first[25] = {
        0.1748046875, 0.416015625, -0.560546875, 0.0078125, 0.4365234375, 1.0947265625, 0.447265625, -0.2587890625, 0.4365234375,
        -0.4765625, 0.0771484375, -0.3310546875, 0.5888671875, 0.1416015625, -0.2353515625, -0.474609375, -0.279296875,
        0.5224609375, -0.0234375, 0.44140625, 0.427734375, 0.041015625, -0.0537109375, 0.2109375, -0.4453125
    };
    static const double least[3][2] = {{0.771169391, 0.534122300}, {0.411854888, 0.321142524}, {0.171911834, 0.094434285}};
    enum { OUT = 3, TERMS = 4, N = 5, ROWS = 40 };
    double       x[ROWS * N], above = 0;
    int64_t      count = 0;
    const tn_cp *cp[2];
    world        w;
    REQUIRE(open_world(&w, TN_F64, 1));
    for (int i = 0; i < 2; i++) {
        tn_tensor *p = eighths(&w, OUT, TERMS, &count), *f[2];
        f[0] = eighths(&w, TERMS, N, &count);
        f[1] = eighths(&w, TERMS, N, &count);
        cp[i] = tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    }
    for (int64_t i = 0; i < ROWS * N; i++) x[i] = (double)((3 * i * i + i) % 29 - 14) / 8;
    tn_cp  *mean = tn_cp_mean(2, cp, NULL);
    double *dense = plain_dense(mean);
    for (int i = 0; i < N * N; i++) CHECK_NEAR(dense[i], first[i], 1e-15);
    for (int r = 1; r <= 3; r++)
        for (int by_rows = 0; by_rows < 2; by_rows++) {
            tn_cp_refit_desc d = ZERO;
            double           error;
            d.terms = r;
            d.sweeps = 4000;
            d.starts = 20;
            d.tol = 1e-13;
            d.inputs = by_rows ? matrix(&w, ROWS, N, x) : NULL;
            tn_cp *c = tn_cp_refit(mean, &d, &error);
            if (!CHECK(c)) continue;
            CHECK(error > least[r - 1][by_rows] - 1e-8);
            test_raise(&above, error / least[r - 1][by_rows] - 1);
        }
    WORST("errors above the least", above, 5e-3);
    tn_cp_release(w.ctx, 0, NULL);
    close_world(&w);
}

TEST(merges_refuse)
{
    world w;
    REQUIRE(open_world(&w, TN_F64, 1));
    tn_cp       *cp = any_cp(&w, 2, 3, 4, 6, true), *wide = any_cp(&w, 2, 2, 4, 6, true), *plain = any_cp(&w, 2, 3, 4, 6, false);
    const tn_cp *one[2] = {cp, NULL}, *unlike[2] = {cp, plain}, *outputs[2] = {cp, wide};
    const double bad[2] = {1, (double)NAN};
    tn_cp_refit_desc d = ZERO;
    double           error, below[36] = {0};
    for (int i = 0; i < 6; i++) below[7 * i] = -1;
    CHECK(!tn_cp_mean(0, one, NULL) && !tn_cp_mean(1, NULL, NULL) && !tn_cp_mean(1, one + 1, NULL));
    REFUSED(w.ctx, tn_cp_mean(2, one, NULL), TN_ERR_ARG, "mean: the second operator is NULL");
    REFUSED(w.ctx, tn_cp_mean(2, unlike, NULL), TN_ERR_SHAPE, "mean: one operator has a constant input");
    REFUSED(w.ctx, tn_cp_mean(2, outputs, NULL), TN_ERR_SHAPE, "mean: the operators have 3 and 2 outputs, expected the same");
    one[1] = cp;
    REFUSED(w.ctx, tn_cp_mean(2, one, bad), TN_ERR_NONFINITE, "mean: weight 1 is nan, expected a finite number");
    d.terms = 2;
    d.inputs = any_matrix(&w, 7, 4);
    REFUSED(w.ctx, tn_cp_refit(cp, &d, &error), TN_ERR_SHAPE,
            "refit: inputs are [7,4], expected one row or more of 5 numbers, or one more for the constant one");
    d.inputs = any_matrix(&w, 0, 5);
    REFUSED(w.ctx, tn_cp_refit(cp, &d, &error), TN_ERR_SHAPE, "refit: inputs are [0,5], expected one row or more of 5 numbers");
    d.inputs = any_matrix(&w, 7, 5);
    d.sparsity = 0.5;
    REFUSED(w.ctx, tn_cp_refit(cp, &d, &error), TN_ERR_ARG, "refit: inputs, moment and sparsity exclude each other");
    d.sparsity = 0;
    d.moment = any_matrix(&w, 6, 6);
    REFUSED(w.ctx, tn_cp_refit(cp, &d, &error), TN_ERR_ARG, "refit: inputs, moment and sparsity exclude each other");
    d.inputs = NULL;
    REFUSED(w.ctx, tn_cp_refit(cp, &d, &error), TN_ERR_ARG, "refit: moment is not symmetric");
    d.moment = matrix(&w, 6, 6, below);
    REFUSED(w.ctx, tn_cp_refit(cp, &d, &error), TN_ERR_ARG, "refit: moment has an eigenvalue of -1 beside -1, expected none");
    d.moment = any_matrix(&w, 5, 5);
    REFUSED(w.ctx, tn_cp_refit(cp, &d, &error), TN_ERR_SHAPE,
            "refit: moment is [5,5], expected [6,6] as the operator's inputs, including the constant one");
    d.moment = NULL;
    tn_tensor *broken = any_matrix(&w, 7, 5);
    tn_write(tn_slice(tn_slice(broken, 0, 3, 4), 1, 2, 3), TN_F64, bad + 1, 1);
    d.inputs = broken;
    REFUSED(w.ctx, tn_cp_refit(cp, &d, &error), TN_ERR_NONFINITE, "refit: inputs hold NaN or infinity");
    CHECK(error != error);
    tn_cp_release(w.ctx, 0, NULL);
    close_world(&w);
}

TEST(merges_without_memory)
{
    world w;
    REQUIRE(open_world(&w, TN_F64, 4));
    tn_cp           *cp = any_cp(&w, 2, 3, 4, 6, true), *to = NULL;
    const tn_cp     *two[2] = {cp, cp};
    tn_cp_refit_desc d = ZERO;
    tn_tensor       *x = tn_tensor_keep(any_matrix(&w, 9, 5));
    d.terms = 2;
    d.inputs = x;
    for (int k = 0; k < 2; k++)
        for (uint64_t fail = 1; fail < 100; fail++) {
            const size_t held = w.heap.live;
            w.heap.fail_at = w.heap.count + fail;
            to = k ? tn_cp_refit(cp, &d, NULL) : tn_cp_mean(2, two, NULL);
            w.heap.fail_at = 0;
            if (to) {
                CHECK(fail > 1);
                tn_cp_destroy(to);
                break;
            }
            CHECK_STATUS(tn_ctx_status(w.ctx), TN_ERR_MEMORY);
            CHECK_INT(w.heap.live, held);
            tn_ctx_clear_error(w.ctx);
        }
    CHECK(to);
    tn_tensor_destroy(x);
    tn_cp_destroy(cp);
    close_world(&w);
}

TEST_MAIN(means_are_sums_of_tensors, refits_of_outputs, refits_in_the_data_metric, refits_that_are_exact,
          refits_of_next_to_nothing, merges_as_numpy_finds_them, merges_refuse, merges_without_memory)
