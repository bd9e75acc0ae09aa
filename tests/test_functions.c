/* test_functions.c: softmax, div, sqrt, log, where, concat, stack, gather and tensors made of numbers: known values, numbers that are
   not finite, messages. Values and gradients on random shapes are in cases.h. */

#include "test.h"

#define N ((double)NAN)
#define I HUGE_VAL

/* Level 0: the reference. */
static tn_ctx *ctx_of(tn_dtype dtype, int level)
{
    tn_desc d = ZERO;
    tn_ctx *ctx;
    d.dtype = dtype;
    d.backend = level == 0 ? tn_reference_backend() : NULL;
    d.simd = (tn_simd)level;
    d.threads = 1;
    return CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK) ? ctx : NULL;
}

static tn_tensor *row(tn_ctx *ctx, int64_t n, const double *v) { return tn_tensor_from(ctx, 1, &n, TN_F64, v); }
static tn_tensor *ids_of(tn_ctx *ctx, int64_t n, const int32_t *v) { return tn_tensor_from(ctx, 1, &n, TN_I32, v); }

static tn_tensor *matrix(tn_ctx *ctx, int64_t n, int64_t m, const double *v)
{
    int64_t shape[2] = {n, m};
    return tn_tensor_from(ctx, 2, shape, TN_F64, v);
}

/* The numbers of t are those of want; NaN where NaN is wanted, and zeros have their signs. */
static bool has(const tn_tensor *t, int64_t n, const double *want, double tolerance)
{
    double *v = doubles(n);
    bool    ok = CHECK(t != NULL) && CHECK_STATUS(tn_read(t, TN_F64, v, n), TN_OK);
    for (int64_t i = 0; ok && i < n; i++) {
        bool same = want[i] != want[i] ? v[i] != v[i] : v[i] == want[i] ? signbit(v[i]) == signbit(want[i])
                                                                       : fabs(v[i] - want[i]) <= tolerance * fabs(want[i]);
        if (!CHECK(same)) { printf("     element %d is %.17g, not %.17g\n", (int)i, v[i], want[i]); ok = false; }
    }
    return ok;
}

static bool refused(tn_ctx *ctx, const tn_tensor *t, tn_status status, const char *message)
{
    bool ok = CHECK(t == NULL);
    return CHECK_ERROR(ctx, status, message) && ok;
}

/* ---- softmax ------------------------------------------------------------------------------------------------------------ */

TEST(softmax_of_known_rows)
{
    static const double x[5][3] = {{0, 0.6931471805599453, 1.0986122886681098}, {1e4, 1e4, -1e4}, {-I, 2, -I}, {-I, -I, -I}, {-1e30, -1e30, -I}};
    static const double y[5][3] = {{1 / 6.0, 2 / 6.0, 3 / 6.0}, {0.5, 0.5, 0}, {0, 1, 0}, {0, 0, 0}, {0.5, 0.5, 0}};
    static const double bad[4][3] = {{0, N, 1}, {I, 0, 1}, {-I, N, -I}, {I, I, -I}}, all_nan[12] = {N, N, N, N, N, N, N, N, N, N, N, N};
    const double l2 = -0.6931471805599453, l3 = -1.0986122886681098;
    const double logs[5][3] = {{l2 + l3, l3, l2}, {l2, l2, -20000 + l2}, {-I, 0, -I}, {-I, -I, -I}, {l2, l2, -I}};
    for (int level = 0; level <= TN_SIMD_NEON; level++)
        for (int wide = 0; wide < 2; wide++) {
            tn_ctx    *ctx = ctx_of(wide ? TN_F64 : TN_F32, level);
            tn_tensor *a = matrix(ctx, 5, 3, x[0]), *b = matrix(ctx, 4, 3, bad[0]);
            has(tn_softmax(ctx, a), 15, y[0], wide ? 1e-15 : 2e-7);
            has(tn_log_softmax(ctx, a), 15, logs[0], wide ? 1e-15 : 2e-7);
            has(tn_softmax(ctx, b), 12, all_nan, 0);
            has(tn_log_softmax(ctx, b), 12, all_nan, 0);
            CLOSE_CTX(ctx);
        }
}

/* Rows of any length, the largest number and one of -inf at each place: the sum is 1, that number counts nothing, and so do gradients. */
TEST(softmax_of_rows_of_any_length)
{
    double worst = 0, worst_log = 0;
    for (int level = 0; level <= TN_SIMD_NEON; level++) {
        tn_ctx *ctx = ctx_of(TN_F32, level);
        for (int64_t n = 1; n <= 70; n++) {
            double x[70], y[70], z[70], g[70], weights[70], sum = 0, flow = 0;
            int64_t at = n * n % 11 % n;
            for (int64_t j = 0; j < n; j++) { x[j] = (double)(j * 5 % 7) - 3; weights[j] = (double)(j % 3) - 1; }
            x[(n * 3 + 1) % n] = -I;
            x[at] = n % 2 ? 90 : 4;
            tn_ctx_reset(ctx);
            tn_tensor *t = row(ctx, n, x);
            CHECK_STATUS(tn_watch(t), TN_OK);
            tn_record(ctx);
            {
                tn_tensor *p = tn_softmax(ctx, t), *q = tn_log_softmax(ctx, t);
                CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, p, row(ctx, n, weights)))), TN_OK);
                CHECK_STATUS(tn_read(p, TN_F64, y, n), TN_OK);
                CHECK_STATUS(tn_read(q, TN_F64, z, n), TN_OK);
            }
            CHECK_STATUS(tn_read(t->grad, TN_F64, g, n), TN_OK);
            for (int64_t j = 0; j < n; j++) {
                sum += y[j];
                flow += g[j];
                if (x[j] == -I) CHECK(y[j] == 0 && z[j] == -I && g[j] == 0);
                else if (n % 2) test_raise(&worst_log, fabs(z[j] - (x[j] - 90)));
            }
            test_raise(&worst, fabs(sum - 1));
            test_raise(&worst, fabs(flow));
        }
        CLOSE_CTX(ctx);
    }
    WORST("softmax: sum - 1, and the sum of its gradient, F32", worst, 1e-6);
    WORST("log_softmax of a row with one large number, F32", worst_log, 1e-5);
}

/* Probabilities from 1e-35 to 1e-53 of the largest, in whole vectors and after them. Normal ones are right; below, where a float loses
   digits, they may be 0, and are never larger than they should be. */
TEST(softmax_of_small_probabilities)
{
    enum { ROWS = 128, COLUMNS = 21 };
    static double x[ROWS * COLUMNS], y[ROWS * COLUMNS];
    double        worst = 0;
    for (int level = 0; level <= TN_SIMD_NEON; level++) {
        tn_ctx *ctx = ctx_of(TN_F32, level);
        for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = -80 - (double)i / 64;
        for (int r = 0; r < ROWS; r++) {
            x[r * COLUMNS + r % COLUMNS] = 0;
            x[r * COLUMNS + (r + 5) % COLUMNS] = r % 2 ? -1e30 : -3.4e38;
        }
        CHECK_STATUS(tn_read(tn_softmax(ctx, matrix(ctx, ROWS, COLUMNS, x)), TN_F64, y, ROWS * COLUMNS), TN_OK);
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            const double want = exp(x[i]);
            if (want > 1.2e-38) test_raise(&worst, fabs(y[i] / want - 1));
            else CHECK(y[i] >= 0 && y[i] <= want * 1.000001 + 2e-45);
        }
        CLOSE_CTX(ctx);
    }
    WORST("softmax: small probabilities, relative", worst, 1e-6);
}

/* ---- div, sqrt, log ------------------------------------------------------------------------------------------------------- */

TEST(quotients_and_roots_are_correctly_rounded)
{
    enum { COUNT = 3001 };
    static float a[COUNT], b[COUNT], y[COUNT], near_one[COUNT];
    static const double top[8] = {1, -1, 0, 0, I, N, 1, -0.0}, bottom[8] = {0, 0, 0, -0.0, I, 1, I, 5}, ratio[8] = {I, -I, N, N, N, N, 0, -0.0};
    const int64_t n = COUNT;
    uint64_t rng = 31;
    double   worst = 0;
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)(test_random_real(&rng) * pow(10, (double)test_random_int(&rng, -30, 30)));
        b[i] = (float)(test_random_real(&rng) * pow(10, (double)test_random_int(&rng, -30, 30)));
        near_one[i] = 1 + (float)(i - COUNT / 2) / 4096;
    }
    for (int level = 0; level <= TN_SIMD_NEON; level++) {
        tn_ctx    *ctx = ctx_of(TN_F32, level);
        tn_tensor *ta = tn_tensor_from(ctx, 1, &n, TN_F32, a), *tb = tn_tensor_from(ctx, 1, &n, TN_F32, b);
        CHECK_STATUS(tn_read(tn_div(ctx, ta, tb), TN_F32, y, n), TN_OK);
        for (int i = 0; i < COUNT; i++) CHECK(y[i] == (float)((double)a[i] / (double)b[i]));
        CHECK_STATUS(tn_read(tn_sqrt(ctx, tn_activation(ctx, ta, TN_ACT_ABS)), TN_F32, y, n), TN_OK);
        for (int i = 0; i < COUNT; i++) CHECK(y[i] == (float)sqrt(fabs((double)a[i])));
        CHECK_STATUS(tn_read(tn_log(ctx, tn_activation(ctx, ta, TN_ACT_ABS)), TN_F32, y, n), TN_OK);
        for (int i = 0; i < COUNT; i++) test_raise(&worst, fabs((double)y[i] / log(fabs((double)a[i])) - 1));
        CHECK_STATUS(tn_read(tn_log(ctx, tn_tensor_from(ctx, 1, &n, TN_F32, near_one)), TN_F32, y, n), TN_OK);
        for (int i = 0; i < COUNT; i++) if (i != COUNT / 2) test_raise(&worst, fabs((double)y[i] / log((double)near_one[i]) - 1));
        CHECK(y[COUNT / 2] == 0);
        has(tn_div(ctx, row(ctx, 8, top), row(ctx, 8, bottom)), 8, ratio, 0);
        CLOSE_CTX(ctx);
    }
    WORST("log, F32, relative", worst, 3e-7);
}

/* At 0, below it, and where nothing is finite: a table for both precisions. */
TEST(roots_and_logarithms_at_the_ends)
{
    static const double x[6] = {0, -0.0, -1, I, -I, N}, root[6] = {0, -0.0, N, I, N, N}, ln[6] = {-I, -I, N, I, N, N};
    for (int level = 0; level <= TN_SIMD_NEON; level++)
        for (int wide = 0; wide < 2; wide++) {
            tn_ctx *ctx = ctx_of(wide ? TN_F64 : TN_F32, level);
            has(tn_sqrt(ctx, row(ctx, 6, x)), 6, root, 0);
            has(tn_log(ctx, row(ctx, 6, x)), 6, ln, 0);
            has(tn_exp(ctx, tn_log(ctx, row(ctx, 2, root + 2))), 2, root + 2, 0);
            CLOSE_CTX(ctx);
        }
}

/* d(a/b) = (da - y db) / b, by hand: y = 6/4, dy = 2. And a divisor that is stretched over a row. */
TEST(gradients_of_a_quotient)
{
    static const double six[1] = {6}, four[1] = {4}, da[1] = {0.5}, db[1] = {-0.75}, tops[3] = {1, 2, 4}, three[3] = {0.25, 0.25, 0.25}, sum[1] = {-7 / 16.0};
    tn_ctx    *ctx = ctx_of(TN_F64, TN_SIMD_AUTO);
    tn_tensor *a = row(ctx, 1, six), *b = row(ctx, 1, four), *c = row(ctx, 3, tops), *d = tn_full(ctx, 0, NULL, 4);
    tn_watch(a);
    tn_watch(b);
    tn_watch(c);
    tn_watch(d);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_scale(ctx, tn_div(ctx, a, b), 2))), TN_OK);
    has(a->grad, 1, da, 0);
    has(b->grad, 1, db, 0);
    tn_record(ctx);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_div(ctx, c, d))), TN_OK);
    has(c->grad, 3, three, 0);
    has(d->grad, 1, sum, 0);
    CLOSE_CTX(ctx);
}

/* -dy a/b^2 is within the range of F32 where dy/b is not: it overflows, so that 0/b has the gradient 0 * infinity, or
   underflows. */
TEST(gradients_of_a_quotient_near_the_ends)
{
    enum { COUNT = 4 };
    static const float a[COUNT] = {0, 1e-42f, 1e38f, 6}, b[COUNT] = {1e-39f, 1e-39f, 1e30f, 4};
    static const float dy[COUNT] = {1, 1, 1e-10f, 2};
    const int64_t n = COUNT;
    for (int level = 0; level <= TN_SIMD_NEON; level++) {
        tn_ctx    *ctx = ctx_of(TN_F32, level);
        tn_tensor *ta = tn_tensor_from(ctx, 1, &n, TN_F32, a), *tb = tn_tensor_from(ctx, 1, &n, TN_F32, b);
        tn_tensor *tdy = tn_tensor_from(ctx, 1, &n, TN_F32, dy);
        double     want[COUNT];
        for (int i = 0; i < COUNT; i++) want[i] = -((double)dy[i] * (double)a[i] / (double)b[i] / (double)b[i]);
        tn_watch(tb);
        tn_record(ctx);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, tn_div(ctx, ta, tb), tdy))), TN_OK);
        has(tb->grad, COUNT, want, 1e-6);
        CLOSE_CTX(ctx);
    }
}

/* ---- where ------------------------------------------------------------------------------------------------------------------ */

TEST(what_is_not_chosen_plays_no_part)
{
    static const int32_t condition[6] = {1, 0, -5, 0, 1, 0};
    static const double  a[6] = {1, N, -0.0, I, I, -I}, b[6] = {N, 2, I, -0.0, N, N}, y[6] = {1, 2, -0.0, -0.0, I, N};
    static const double  da[6] = {1, 0, 1, 0, 1, 0}, db[6] = {0, 1, 0, 1, 0, 1};
    for (int level = 0; level <= TN_SIMD_NEON; level++)
        for (int wide = 0; wide < 2; wide++) {
            tn_ctx    *ctx = ctx_of(wide ? TN_F64 : TN_F32, level);
            tn_tensor *ta = row(ctx, 6, a), *tb = row(ctx, 6, b);
            tn_watch(ta);
            tn_watch(tb);
            tn_record(ctx);
            tn_tensor *ty = tn_where(ctx, ids_of(ctx, 6, condition), ta, tb);
            has(ty, 6, y, 0);
            CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, ty)), TN_OK);
            has(ta->grad, 6, da, 0);
            has(tb->grad, 6, db, 0);
            CLOSE_CTX(ctx);
        }
}

/* ---- concat, stack ------------------------------------------------------------------------------------------------------------ */

TEST(joined_by_hand)
{
    static const double  a[4] = {1, 2, 3, 4}, b[2] = {5, 6}, rows[6] = {1, 2, 3, 4, 5, 6}, columns[6] = {1, 2, 5, 3, 4, 6};
    static const double  front[4] = {1, 2, 3, 4}, last[4] = {1, 3, 2, 4}, numbers[5] = {7, 8, 9, -1, 7};
    static const int32_t i[3] = {7, 8, 9}, k[1] = {-1};
    tn_ctx    *ctx = ctx_of(TN_F32, TN_SIMD_AUTO);
    tn_tensor *part[3];
    part[0] = matrix(ctx, 2, 2, a);
    part[1] = matrix(ctx, 1, 2, b);
    has(tn_concat(ctx, 2, part, 0), 6, rows, 0);
    part[1] = matrix(ctx, 2, 1, b);
    tn_tensor *y = tn_concat(ctx, 2, part, -1);
    CHECK(y && y->rank == 2 && y->shape[0] == 2 && y->shape[1] == 3);
    has(y, 6, columns, 0);
    part[0] = row(ctx, 2, a);
    part[1] = row(ctx, 2, a + 2);
    y = tn_stack(ctx, 2, part, 0);
    CHECK(y && y->rank == 2 && y->shape[0] == 2);
    has(y, 4, front, 0);
    has(tn_stack(ctx, 2, part, -1), 4, last, 0);
    part[0] = part[2] = ids_of(ctx, 3, i);
    part[1] = ids_of(ctx, 1, k);
    part[2] = tn_slice(part[2], 0, 0, 1);
    y = tn_concat(ctx, 3, part, 0);
    CHECK(y && y->dtype == TN_I32);
    has(y, 5, numbers, 0);
    CLOSE_CTX(ctx);
}

/* The tape keeps a list of its own, and what stands in it cannot be written meanwhile. */
TEST(the_tape_knows_all_parts)
{
    static const double v[2] = {1, 2};
    tn_ctx    *ctx = ctx_of(TN_F32, TN_SIMD_AUTO);
    tn_tensor *part[5];
    for (int k = 0; k < 5; k++) part[k] = row(ctx, 2, v);
    tn_watch(part[4]);
    tn_record(ctx);
    tn_tensor *y = tn_concat(ctx, 5, part, 0);
    FAILS(ctx, tn_write(part[3], TN_F64, v, 2), TN_ERR_ARG, "needed by the backward pass");
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, y)), TN_OK);
    CHECK(part[4]->grad && !part[3]->grad);
    CHECK_STATUS(tn_write(part[3], TN_F64, v, 2), TN_OK);
    tn_ctx_destroy(ctx);
}

/* ---- gather --------------------------------------------------------------------------------------------------------------------- */

TEST(gathered_by_hand)
{
    static const double  x[6] = {1, 2, 3, 4, 5, 6}, columns[8] = {3, 1, 1, 0, 6, 4, 4, 0}, rows[6] = {4, 5, 6, 1, 2, 3}, dx[6] = {2, 0, 1, 2, 0, 1};
    static const int32_t id[4] = {2, 0, 0, 3}, swapped[2] = {1, 0};
    for (int level = 0; level <= TN_SIMD_NEON; level++) {
        tn_ctx    *ctx = ctx_of(TN_F32, level);
        tn_tensor *t = matrix(ctx, 2, 3, x), *ids = ids_of(ctx, 4, id);
        has(tn_gather(ctx, t, 0, ids_of(ctx, 2, swapped)), 6, rows, 0);
        tn_watch(t);
        tn_record(ctx);
        tn_tensor *y = tn_gather(ctx, t, -1, ids);
        CHECK(y && y->rank == 2 && y->shape[0] == 2 && y->shape[1] == 4);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, y)), TN_OK);
        CHECK_STATUS(tn_ctx_sync(ctx), TN_ERR_DATA);                   /* 3 is outside: zeros, and no gradient */
        CHECK_ERROR(ctx, TN_ERR_DATA, "gather: element 3 of the ids is 3, which is outside the table");
        has(y, 8, columns, 0);
        has(t->grad, 6, dx, 0);
        CLOSE_CTX(ctx);
    }
}

/* Rows of a table are gathered as tn_embed does, with the same bits, also of gradients that add up. */
TEST(gather_is_embed_along_any_axis)
{
    enum { V = 7, D = 19, ROWS = 40 };
    double   x[V * D], dy[ROWS * D], one[V * D], two[V * D];
    int32_t  id[ROWS];
    uint64_t rng = 8;
    tn_ctx  *ctx = ctx_of(TN_F32, TN_SIMD_AUTO);
    for (int i = 0; i < V * D; i++) x[i] = test_random_real(&rng);
    for (int i = 0; i < ROWS * D; i++) dy[i] = test_random_real(&rng);
    for (int i = 0; i < ROWS; i++) id[i] = (int32_t)test_random_int(&rng, 0, V - 1);
    for (int k = 0; k < 3; k++) {
        tn_tensor *t = matrix(ctx, V, D, x), *ids = ids_of(ctx, ROWS, id), *w = matrix(ctx, ROWS, D, dy), *y;
        tn_watch(t);
        tn_record(ctx);
        if (k == 0) y = tn_embed(ctx, t, ids);
        else if (k == 1) y = tn_gather(ctx, t, 0, ids);
        else y = tn_transpose(tn_gather(ctx, tn_transpose(t, 0, 1), 1, ids), 0, 1);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, w))), TN_OK);
        CHECK_STATUS(tn_read(t->grad, TN_F64, k ? two : one, V * D), TN_OK);
        if (k) CHECK(memcmp(one, two, sizeof one) == 0);
        tn_ctx_reset(ctx);
    }
    CLOSE_CTX(ctx);
}

/* ---- tensors of numbers, names, messages ------------------------------------------------------------------------------------------ */

TEST(tensors_of_numbers)
{
    static const float   f[6] = {1, 2.5f, -3, 4, 5, 6};
    static const double  d[6] = {1, 2.5, -3, 4, 5, 6};
    static const int32_t i[6] = {1, 2, -3, 4, 5, 6};
    static const double  whole[6] = {1, 2, -3, 4, 5, 6};
    static const int64_t shape[2] = {2, 3}, none[2] = {0, 3}, negative[2] = {2, -3};
    for (int wide = 0; wide < 2; wide++) {
        tn_ctx    *ctx = ctx_of(wide ? TN_F64 : TN_F32, TN_SIMD_AUTO);
        tn_tensor *t = tn_tensor_from(ctx, 2, shape, TN_F32, f);
        CHECK(t && t->dtype == tn_ctx_dtype(ctx) && t->rank == 2 && t->shape[1] == 3);
        has(t, 6, d, 0);
        has(tn_tensor_from(ctx, 2, shape, TN_F64, d), 6, d, 0);
        has(tn_tensor_from(ctx, 2, shape, TN_REAL, wide ? (const void *)d : (const void *)f), 6, d, 0);
        t = tn_tensor_from(ctx, 2, shape, TN_I32, i);
        CHECK(t && t->dtype == TN_I32);
        has(t, 6, whole, 0);
        t = tn_tensor_from(ctx, 0, NULL, TN_F64, d + 1);
        CHECK(t && t->rank == 0 && tn_item(t) == 2.5);
        t = tn_tensor_from(ctx, 2, none, TN_F64, NULL);                  /* nothing is read */
        CHECK(t && tn_tensor_count(t) == 0);
        CHECK_CTX(ctx);
        refused(ctx, tn_tensor_from(ctx, 2, shape, TN_F64, NULL), TN_ERR_ARG,
                "tensor_from: numbers are NULL, expected the numbers of a tensor [2,3]");
        refused(ctx, tn_tensor_from(ctx, 2, negative, TN_F64, d), TN_ERR_SHAPE,
                "tensor_from: extent 1 of [2,-3] is negative, expected 0 or more");
        refused(ctx, tn_tensor_from(ctx, 9, shape, TN_F64, d), TN_ERR_SHAPE, "tensor_from: rank is 9, expected 0 to 8");
        refused(ctx, tn_tensor_from(ctx, 2, shape, (tn_dtype)7, d), TN_ERR_DTYPE, "tensor_from: as is 7, expected 0 to 4");
        CHECK(tn_tensor_from(NULL, 2, shape, TN_F64, d) == NULL);
        tn_ctx_destroy(ctx);
    }
    CHECK_STR(tn_dtype_name(TN_REAL), "REAL");
    CHECK_STR(tn_dtype_name(TN_F32), "F32");
    CHECK_STR(tn_dtype_name(TN_F64), "F64");
    CHECK_STR(tn_dtype_name(TN_BF16), "BF16");
    CHECK_STR(tn_dtype_name(TN_I32), "I32");
}

/* An op that is used twice has twice the gradient: the second call of its kernel accumulates. */
TEST(gradients_accumulate)
{
    enum { COUNT = 3 * 37 };
    const int64_t shape[2] = {3, 37};
    uint64_t rng = 77;
    double   v[COUNT], weight[COUNT], once[COUNT], twice[COUNT];
    int32_t  choice[COUNT];
    for (int i = 0; i < COUNT; i++) {
        v[i] = test_random_real(&rng);
        weight[i] = 2 + test_random_real(&rng);
        choice[i] = i % 3 > 0;
    }
    for (int dtype = 0; dtype < 2; dtype++) {
        tn_desc d = ZERO;
        tn_ctx *ctx;
        d.dtype = dtype ? TN_F64 : TN_F32;
        REQUIRE(CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK));
        for (int k = 0; k < 4; k++)
            for (int uses = 1; uses <= 2; uses++) {
                tn_tensor *loss = NULL;
                tn_ctx_reset(ctx);
                tn_tensor *x = tn_tensor_from(ctx, 2, shape, TN_F64, v);
                tn_tensor *w = tn_tensor_from(ctx, 2, shape, TN_F64, weight);
                tn_tensor *c = tn_tensor_from(ctx, 2, shape, TN_I32, choice);
                tn_watch(x);
                tn_record(ctx);
                for (int i = 0; i < uses; i++) {
                    tn_tensor *y = k == 0 ? tn_softmax(ctx, x) : k == 1 ? tn_log_softmax(ctx, x) : k == 2 ? tn_div(ctx, x, w)
                      : tn_where(ctx, c, x, w);
                    y = tn_sum(ctx, tn_mul(ctx, y, w));
                    loss = loss ? tn_add(ctx, loss, y) : y;
                }
                CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
                CHECK_STATUS(tn_read(x->grad, TN_F64, uses == 1 ? once : twice, COUNT), TN_OK);
                for (int i = 0; uses == 2 && i < COUNT; i++) CHECK(twice[i] == 2 * once[i]);
            }
        CLOSE_CTX(ctx);
    }
}

TEST(messages_name_the_culprit)
{
    static const double  v[12] = {0};
    static const int32_t i[3] = {0, 1, 2};
    static const int64_t deep[8] = {1, 1, 1, 1, 1, 1, 1, 2};
    tn_ctx    *ctx = ctx_of(TN_F32, TN_SIMD_AUTO);
    tn_tensor *a = matrix(ctx, 3, 4, v), *b = matrix(ctx, 2, 4, v), *ids = ids_of(ctx, 3, i), *scalar = tn_full(ctx, 0, NULL, 1);
    tn_tensor *eight = tn_tensor_from(ctx, 8, deep, TN_F64, v);
    tn_tensor           *part[3] = {a, b, NULL};
    refused(ctx, tn_div(ctx, a, b), TN_ERR_SHAPE, "div: a is [3,4] and b is [2,4], which do not broadcast");
    refused(ctx, tn_div(ctx, a, ids), TN_ERR_DTYPE, "div: b is I32, expected F32 as in this context");
    refused(ctx, tn_sqrt(ctx, ids), TN_ERR_DTYPE, "sqrt: a is I32");
    refused(ctx, tn_exp(ctx, ids), TN_ERR_DTYPE, "exp: a is I32");
    refused(ctx, tn_log(ctx, ids), TN_ERR_DTYPE, "log: a is I32");
    refused(ctx, tn_softmax(ctx, scalar), TN_ERR_SHAPE, "softmax: x has rank 0, expected at least 1");
    refused(ctx, tn_log_softmax(ctx, scalar), TN_ERR_SHAPE, "log_softmax: x has rank 0, expected at least 1");
    refused(ctx, tn_where(ctx, a, a, a), TN_ERR_DTYPE, "where: condition is F32, expected I32");
    refused(ctx, tn_where(ctx, ids, a, ids), TN_ERR_DTYPE, "where: b is I32");
    refused(ctx, tn_where(ctx, ids, a, b), TN_ERR_SHAPE, "where: condition is [3], a is [3,4] and b is [2,4], which do not broadcast");
    refused(ctx, tn_concat(ctx, 0, part, 0), TN_ERR_ARG, "concat: the number of tensors is 0, expected at least 1");
    refused(ctx, tn_concat(ctx, 2, NULL, 0), TN_ERR_ARG, "concat: the array of 2 tensors is NULL");
    refused(ctx, tn_concat(ctx, 3, part, 0), TN_ERR_ARG, "concat: tensor 2 is NULL");
    refused(ctx, tn_concat(ctx, 2, part, 1), TN_ERR_SHAPE,
            "concat: tensor 0 is [3,4] but tensor 1 is [2,4], expected equal extents except along axis 1");
    refused(ctx, tn_concat(ctx, 2, part, 2), TN_ERR_ARG,
            "concat: axis is 2, expected an axis of a result of rank 2");
    refused(ctx, tn_concat(ctx, 2, part, -3), TN_ERR_ARG,
            "concat: axis is -3, expected an axis of a result of rank 2");
    refused(ctx, tn_concat(ctx, 1, &scalar, 0), TN_ERR_SHAPE,
            "concat: tensor 0 has rank 0, expected at least 1");
    refused(ctx, tn_stack(ctx, 2, part, 0), TN_ERR_SHAPE,
            "stack: tensor 0 is [3,4] but tensor 1 is [2,4], expected equal shapes");
    refused(ctx, tn_stack(ctx, 1, part, 3), TN_ERR_ARG,
            "stack: axis is 3, expected an axis of a result of rank 3");
    refused(ctx, tn_stack(ctx, 1, &eight, 0), TN_ERR_SHAPE, "stack: tensors have rank 8, expected at most 7");
    part[1] = ids;
    refused(ctx, tn_concat(ctx, 2, part, 0), TN_ERR_DTYPE, "concat: tensor 1 is I32, expected F32 as in this context");
    part[0] = ids;
    part[1] = a;
    refused(ctx, tn_concat(ctx, 2, part, 0), TN_ERR_DTYPE, "concat: tensor 1 is F32, expected I32");
    refused(ctx, tn_gather(ctx, a, 2, ids), TN_ERR_ARG, "gather: axis is 2, expected an axis of [3,4]");
    refused(ctx, tn_gather(ctx, scalar, 0, ids), TN_ERR_SHAPE, "gather: x has rank 0, expected at least 1");
    refused(ctx, tn_gather(ctx, a, 0, a), TN_ERR_DTYPE, "gather: ids is F32, expected I32");
    refused(ctx, tn_gather(ctx, eight, 0, tn_reshape_2d(ids, 3, 1)), TN_ERR_SHAPE,
            "gather: the result of x [1,1,1,1,1,1,1,2] and ids [3,1] has rank 9, expected at most 8");
    tn_ctx_destroy(ctx);
}

TEST_MAIN(softmax_of_known_rows, softmax_of_rows_of_any_length, softmax_of_small_probabilities, quotients_and_roots_are_correctly_rounded, roots_and_logarithms_at_the_ends,
          gradients_of_a_quotient, gradients_of_a_quotient_near_the_ends, what_is_not_chosen_plays_no_part, joined_by_hand,
          the_tape_knows_all_parts, gathered_by_hand, gather_is_embed_along_any_axis, tensors_of_numbers, gradients_accumulate,
          messages_name_the_culprit)
