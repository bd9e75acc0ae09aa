/* Lanczos: against the dense solver, against SciPy, and on what a start vector cannot see. */
#include "kit.h"

/* ---- matrices as products ------------------------------------------------------- */

typedef struct dense { int64_t n; const double *a; int64_t calls; } dense;      /* a [n,n] */

static tn_status times_dense(void *user, int64_t count, const double *x, double *y)
{
    dense *d = (dense *)user;
    for (int64_t c = 0; c < count; c++)
        for (int64_t i = 0; i < d->n; i++) {
            double sum = 0;
            for (int64_t j = 0; j < d->n; j++) sum += d->a[i * d->n + j] * x[c * d->n + j];
            y[c * d->n + i] = sum;
        }
    d->calls += count;
    return TN_OK;
}

static tn_status times_diagonal(void *user, int64_t count, const double *x, double *y)     /* a [n] */
{
    dense *d = (dense *)user;
    for (int64_t i = 0; i < count * d->n; i++) y[i] = d->a[i % d->n] * x[i];
    d->calls += count;
    return TN_OK;
}

/* The matrix of tools/golden_lanczos.py. */
static tn_status times_banded(void *user, int64_t count, const double *x, double *y)
{
    int64_t n = *(const int64_t *)user;
    for (int64_t c = 0; c < count; c++, x += n, y += n)
        for (int64_t i = 0; i < n; i++) {
            double sum = (double)(7 * i % 23 - 11) / 4 * x[i];
            if (i + 1 < n) sum += (double)(3 * i % 5 - 2) / 2 * x[i + 1];
            if (i > 0) sum += (double)(3 * (i - 1) % 5 - 2) / 2 * x[i - 1];
            if (i + 31 < n) sum += (double)(i % 7 - 3) / 8 * x[i + 31];
            if (i >= 31) sum += (double)((i - 31) % 7 - 3) / 8 * x[i - 31];
            y[i] = sum;
        }
    return TN_OK;
}

/* ---- what every result owes ------------------------------------------------------- */

static double key(tn_lanczos_which end, double x) { return end == TN_LANCZOS_MAGNITUDE ? fabs(x) : end == TN_LANCZOS_LARGEST ? x : -x; }

static tn_lanczos_which sort_end;
static int by_key(const void *a, const void *b)
{
    double x = key(sort_end, *(const double *)a), y = key(sort_end, *(const double *)b);
    return (x < y) - (x > y);
}

typedef struct worsts { double values, residual, orthonormal; } worsts;

/* Order, signs, and the three errors, relative to the largest of `all` [n], the values that A has. */
static void check_result(const tn_lanczos_result *r, int64_t n, int64_t top, tn_lanczos_which end, const double *all, tn_matvec_fn fn, void *user, worsts *w)
{
    double *values = host(r->values), *vectors = host(r->vectors), *right = doubles(n), *y = doubles(n), size = 0;
    CHECK(r->values->rank == 1 && r->values->shape[0] == top);
    CHECK(r->vectors->rank == 2 && r->vectors->shape[0] == top && r->vectors->shape[1] == n);
    memcpy(right, all, sizeof *right * (size_t)n);
    sort_end = end;
    qsort(right, (size_t)n, sizeof *right, by_key);
    for (int64_t i = 0; i < n; i++) if (fabs(all[i]) > size) size = fabs(all[i]);
    if (size == 0) size = 1;
    for (int64_t i = 0; i < top; i++) {
        const double *v = vectors + i * n;
        double        most = 0, largest = 0;
        test_raise(&w->values, fabs(key(end, values[i]) - key(end, right[i])) / size);
        fn(user, 1, v, y);
        for (int64_t j = 0; j < n; j++) {
            y[j] -= values[i] * v[j];
            if (fabs(v[j]) > largest) largest = fabs(v[j]);
            if (v[j] > most) most = v[j];
        }
        test_raise(&w->residual, sqrt(dot(y, y, n)) / size);
        CHECK(most >= largest * (1 - 1e-6));
        CHECK(i == 0 || key(end, values[i]) <= key(end, values[i - 1]));
        for (int64_t j = 0; j <= i; j++) test_raise(&w->orthonormal, fabs(dot(v, vectors + j * n, n) - (i == j)));
    }
}

static void report(const char *what, const worsts *w, double values, double residual, double orthonormal)
{
    char line[128];
    snprintf(line, sizeof line, "%s: values", what);
    WORST(line, w->values, values);
    snprintf(line, sizeof line, "%s: A v = l v", what);
    WORST(line, w->residual, residual);
    snprintf(line, sizeof line, "%s: orthonormal", what);
    WORST(line, w->orthonormal, orthonormal);
}

/* ---- against the dense solver ------------------------------------------------------ */

static double *symmetric(uint64_t *seed, int64_t n)
{
    double *a = doubles(n * n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) a[i * n + j] = a[j * n + i] = test_random_real(seed);
    return a;
}

/* NULL where tn_eigh fails. */
static double *dense_values(tn_ctx *ctx, const double *a, int64_t n)
{
    tn_tensor     *t = tn_tensor_2d(ctx, TN_REAL, n, n);
    tn_eigh_result e;
    double        *values = NULL;
    tn_write(t, TN_F64, a, n * n);
    if (CHECK_STATUS(tn_eigh(ctx, t, NULL, &e), TN_OK)) values = host(e.values);
    tn_ctx_clear_error(ctx);
    tn_eigh_destroy(&e);
    tn_ctx_reset(ctx);
    return values;
}

static void against_dense(tn_ctx *ctx, uint64_t *seed, int64_t n, int64_t top, int64_t block, worsts *w)
{
    double *a = symmetric(seed, n), *all = dense_values(ctx, a, n);
    dense   d = {n, a, 0};
    for (int end = TN_LANCZOS_MAGNITUDE; all && end <= TN_LANCZOS_SMALLEST; end++) {
        tn_lanczos_desc   desc = ZERO;
        tn_lanczos_result r;
        desc.which = (tn_lanczos_which)end;
        desc.top = top;
        desc.block = block;
        d.calls = 0;
        if (!CHECK_STATUS(tn_lanczos(ctx, n, times_dense, &d, &desc, &r), TN_OK)) break;
        CHECK_INT(r.products, d.calls);
        check_result(&r, n, top ? top : n, desc.which, all, times_dense, &d, w);
        tn_lanczos_destroy(&r);
        CHECK(!r.values && !r.vectors);
    }
}

TEST(any_shape)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t seed = 5;
    worsts   w = {0, 0, 0};
    for (int64_t n = 0; n <= 9; n++)
        for (int64_t top = 0; top <= n; top++)
            for (int64_t block = 0; block <= 3; block++) against_dense(ctx, &seed, n, top, block, &w);
    report("small", &w, 2e-14, 2e-14, 3e-14);
    tn_ctx_destroy(ctx);
}

TEST(more_than_the_basis_holds)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t seed = 6;
    worsts   w = {0, 0, 0};
    for (int round = 0; round < 8; round++) {
        int64_t block = test_random_int(&seed, 1, 5), top = test_random_int(&seed, 1, 9);
        against_dense(ctx, &seed, test_random_int(&seed, 150, 260), top, block, &w);
    }
    report("restarted", &w, 3e-14, 1.1e-12, 1e-13);
    tn_ctx_destroy(ctx);
}

TEST(in_float)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_F32, 0);
    uint64_t seed = 7;
    worsts   w = {0, 0, 0};
    for (int round = 0; round < 4; round++) against_dense(ctx, &seed, test_random_int(&seed, 40, 200), 6, round, &w);
    report("float", &w, 1e-6, 1e-6, 3e-7);
    tn_ctx_destroy(ctx);
}

/* ---- what breaks the recurrence ------------------------------------------------------ */

/* Diagonal matrices: invariant subspaces, values of any multiplicity, one sign, both signs, all zero. */
TEST(multiple_values_and_breakdown)
{
    enum { N = 300, KINDS = 9 };
    tn_ctx *ctx = ctx_in(NULL, TN_F64, 0);
    worsts  w = {0, 0, 0};
    double *a = doubles(N);
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t top = 1; top <= 13; top += 6)
            for (int64_t block = 1; block <= 4; block += 3)
                for (int end = TN_LANCZOS_MAGNITUDE; end <= TN_LANCZOS_SMALLEST; end++) {
                    dense             d = {N, a, 0};
                    tn_lanczos_desc   desc = ZERO;
                    tn_lanczos_result r;
                    for (int64_t i = 0; i < N; i++) {
                        double u = (double)i / (int)N;
                        a[i] = kind == 0 ? 0 : kind == 1 ? 1 : kind == 2 ? (i < 12 ? 5 : u) : kind == 3 ? (i % 2 ? -1 : 1)
                             : kind == 4 ? (i < 3 ? 7 : 0) : kind == 5 ? (double)(i % 5) : kind == 6 ? (i < 6 ? 3 + 1e-9 * (double)i : u)
                             : kind == 7 ? (i < 7 ? -2 : i < 20 ? 1.5 : -u) : (i % 2 ? -1 : 1) * pow(0.7, (double)i);
                    }
                    desc.which = (tn_lanczos_which)end;
                    desc.top = top;
                    desc.block = block;
                    if (!CHECK_STATUS(tn_lanczos(ctx, N, times_diagonal, &d, &desc, &r), TN_OK)) {
                        printf("     kind %d, top %d, block %d, end %d: %s\n", kind, (int)top, (int)block, end, tn_ctx_error(ctx));
                        tn_ctx_clear_error(ctx);
                        continue;
                    }
                    check_result(&r, N, top, desc.which, a, times_diagonal, &d, &w);
                    tn_lanczos_destroy(&r);
                }
    report("multiple values", &w, 3e-14, 1.1e-12, 1e-13);
    tn_ctx_destroy(ctx);
}

TEST(any_scale)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t seed = 9;
    int64_t  n = 120;
    double  *a = symmetric(&seed, n), *all = dense_values(ctx, a, n), *b = doubles(n * n), worst = 0;
    double   scales[] = {1e200, 1e-200, 1e300, 1e-300};
    REQUIRE(all != NULL);
    sort_end = TN_LANCZOS_MAGNITUDE;
    qsort(all, (size_t)n, sizeof *all, by_key);
    for (int k = 0; k < 4; k++) {
        dense             d = {n, b, 0};
        tn_lanczos_desc   desc = ZERO;
        tn_lanczos_result r;
        for (int64_t i = 0; i < n * n; i++) b[i] = a[i] * scales[k];
        desc.top = 3;
        desc.measure = true;
        if (!CHECK_STATUS(tn_lanczos(ctx, n, times_dense, &d, &desc, &r), TN_OK)) break;
        double *values = host(r.values);
        for (int i = 0; i < 3; i++) test_raise(&worst, fabs(values[i] / scales[k] - all[i]) / fabs(all[0]));
        CHECK(r.residual <= 1.1e-12);
        tn_lanczos_destroy(&r);
    }
    WORST("any scale", worst, 3e-14);
    tn_ctx_destroy(ctx);
}

/* ---- SciPy's numbers. The first four are two values that are double to 1e-14 ------------------- */

static const double golden_magnitude[] = {
    3.3216728379436251, -3.3216728379436171, 3.3216728379435865, -3.321672837943582,
    -3.3052584945840855, -3.3052584945840722, 3.305258494584058, 3.3052584945840544
};
static const double golden_largest[] = {
    3.3216728379436029, 3.321672837943602, 3.3052584945841126, 3.3052584945840744,
    3.3046750006723213, 3.2948566538176109, 3.2948566538176052, 3.2948566518459668
};
static const double golden_smallest[] = {
    -3.3216728379436393, -3.3216728379436069, -3.3052584945841237, -3.3052584945840895,
    -3.2948566538176167, -3.2948566538176145, -3.2877809195896455, -3.2877809195896206
};

static const double *const golden_of[] = {golden_magnitude, golden_largest, golden_smallest};

TEST(golden)
{
    tn_ctx *ctx = ctx_in(NULL, TN_F64, 0);
    int64_t n = 2000;
    double  worst = 0;
    for (int end = TN_LANCZOS_MAGNITUDE; end <= TN_LANCZOS_SMALLEST; end++)
        for (int64_t block = 1; block <= 4; block += 3) {
            tn_lanczos_desc   desc = ZERO;
            tn_lanczos_result r;
            desc.which = (tn_lanczos_which)end;
            desc.top = 8;
            desc.block = block;
            if (!CHECK_STATUS(tn_lanczos(ctx, n, times_banded, &n, &desc, &r), TN_OK)) continue;
            double *values = host(r.values);
            for (int i = 0; i < 8; i++)
                test_raise(&worst, fabs(key(desc.which, values[i]) - key(desc.which, golden_of[end][i])));
            tn_lanczos_destroy(&r);
        }
    WORST("SciPy's eigenvalues", worst, 5e-13);
    tn_ctx_destroy(ctx);
}

/* ---- promises ------------------------------------------------------------------------ */

TEST(same_bits_and_any_seed)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t seed = 11;
    int64_t  n = 180;
    double  *a = symmetric(&seed, n), *first = NULL, *first_vectors = NULL;
    dense    d = {n, a, 0};
    for (int round = 0; round < 3; round++) {
        tn_lanczos_desc   desc = ZERO;
        tn_lanczos_result r;
        desc.top = 4;
        desc.seed = round == 2;
        CHECK_STATUS(tn_lanczos(ctx, n, times_dense, &d, &desc, &r), TN_OK);
        double *values = host(r.values);
        double *vectors = host(r.vectors);
        if (round == 0) {
            first = values;
            first_vectors = vectors;
        } else {
            bool same = memcmp(vectors, first_vectors, sizeof *vectors * (size_t)(4 * n)) == 0;
            CHECK(same == (round == 1));
            CHECK(test_frobenius(values, first, 4) <= 1e-13);
        }
        tn_lanczos_destroy(&r);
        tn_ctx_reset(ctx);
        tn_ctx_seed(ctx, 99);                 /* the context's own numbers have no part in it */
    }
    tn_ctx_destroy(ctx);
}

static tn_status gives_nan(void *user, int64_t count, const double *x, double *y)
{
    times_diagonal(user, count, x, y);
    y[count * ((dense *)user)->n - 1] = (double)NAN;
    return TN_OK;
}

static tn_status gives_up(void *user, int64_t count, const double *x, double *y)
{
    (void)user; (void)count; (void)x; (void)y;
    return TN_ERR_BACKEND;
}

/* Not symmetric: y = A x moves every element up by one. */
static tn_status shifts(void *user, int64_t count, const double *x, double *y)
{
    int64_t n = ((dense *)user)->n;
    for (int64_t i = 0; i < count * n; i++) y[i] = i % n + 1 < n ? x[i + 1] : 0;
    return TN_OK;
}

TEST(bad_calls)
{
    enum { N = 300 };
    test_heap         heap = {0, 0, 0, 0, false};
    tn_ctx           *ctx = ctx_in(&heap, TN_F64, 0);
    size_t            live = heap.live;
    double           *a = doubles(N);
    dense             d = {N, a, 0};
    tn_lanczos_desc   desc = ZERO;
    tn_lanczos_result r;
    for (int64_t i = 0; i < N; i++) a[i] = (double)i;
    FAILS(ctx, tn_lanczos(ctx, N, times_diagonal, &d, NULL, NULL), TN_ERR_ARG, "lanczos: out is NULL");
    CHECK_STATUS(tn_lanczos(NULL, N, times_diagonal, &d, NULL, &r), TN_ERR_ARG);
    CHECK(!r.values && !r.vectors);
    FAILS(ctx, tn_lanczos(ctx, N, NULL, &d, NULL, &r), TN_ERR_ARG, "lanczos: fn is NULL");
    FAILS(ctx, tn_lanczos(ctx, -1, times_diagonal, &d, NULL, &r), TN_ERR_ARG, "lanczos: n is -1, expected 0 to 2^31 - 1");
    FAILS(ctx, tn_lanczos(ctx, (int64_t)1 << 40, times_diagonal, &d, NULL, &r), TN_ERR_ARG, "1099511627776");
    FAILS(ctx, tn_lanczos(ctx, INT32_MAX, times_diagonal, &d, NULL, &r), TN_ERR_MEMORY, "2147483647");
    desc.top = N + 1;
    FAILS(ctx, tn_lanczos(ctx, N, times_diagonal, &d, &desc, &r), TN_ERR_ARG, "top is 301, expected 0 to 300");
    desc.top = 5;
    desc.tol = -1;
    FAILS(ctx, tn_lanczos(ctx, N, times_diagonal, &d, &desc, &r), TN_ERR_ARG, "lanczos: tol is -1, expected 0 <= tol < 1");
    desc.tol = 0;
    desc.block = 4;
    desc.basis = 12;
    CHECK_STATUS(tn_lanczos(ctx, N, times_diagonal, &d, &desc, &r), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "lanczos: basis is 12, expected at least top + 2 block = 13");
    desc.basis = 13;
    CHECK_STATUS(tn_lanczos(ctx, N, times_diagonal, &d, &desc, &r), TN_OK);
    tn_lanczos_destroy(&r);
    desc.products = 30;
    CHECK_STATUS(tn_lanczos(ctx, N, times_diagonal, &d, &desc, &r), TN_ERR_CONVERGENCE);
    CHECK(!r.values && !r.vectors && r.residual > 1e-12 && r.residual < 1 && r.products >= 30 && r.products < 60);
    CHECK_ERROR(ctx, TN_ERR_CONVERGENCE, "products the residual is");
    desc.products = 0;
    FAILS(ctx, tn_lanczos(ctx, N, gives_nan, &d, &desc, &r), TN_ERR_NONFINITE, "lanczos: a product has NaN");
    FAILS(ctx, tn_lanczos(ctx, N, gives_up, &d, &desc, &r), TN_ERR_BACKEND, "lanczos: fn failed: backend");
    FAILS(ctx, tn_lanczos(ctx, N, shifts, &d, &desc, &r), TN_ERR_ARG, "not symmetric");
    CHECK_INT(heap.live, live);
    for (uint64_t k = 1; k < 40; k++) {                  /* the k-th allocation fails */
        heap.fail_at = heap.count + k;
        if (tn_lanczos(ctx, N, times_diagonal, &d, NULL, &r) == TN_OK) {
            tn_lanczos_destroy(&r);
            CHECK(k > 2);
            k = 40;
        } else CHECK_ERROR(ctx, TN_ERR_MEMORY, "");
        CHECK_INT(heap.live, live);
        heap.fail_at = 0;
    }
    tn_ctx_destroy(ctx);
    CHECK_INT(heap.live, 0);
}

TEST_MAIN(any_shape, more_than_the_basis_holds, in_float, multiple_values_and_breakdown, any_scale, golden, same_bits_and_any_seed, bad_calls)
