/* test_compact.c: compact weights: what rounding changes, products that read the copy, what drops it, models, errors. */

#include "test.h"

#define EACH_LEVEL(level) for (level = TN_SIMD_PLAIN; level <= TN_SIMD_AVX512; level = (tn_simd)(level + 1))
#define EACH_KIND(kind)   for (kind = TN_WEIGHT_BF16; kind <= TN_WEIGHT_INT8; kind = (tn_weight_kind)(kind + 1))

/* ---- a backend like cpu that shows no matrix of float32 to products which get a compact copy ----------------------- */
static struct { int compact, all; } seen;
enum { HIDDEN_COUNT = 1 << 18 };
static float hidden_numbers[HIDDEN_COUNT];      /* NaN */

static tn_status gemm_seen(void *state, const tn_call *call)
{
    tn_call c = *call;
    seen.all++;
    if (c.n_in > 3 && c.in[3].data) {
        seen.compact++;
        c.in[1].data = hidden_numbers;
    }
    return tn_cpu_backend()->fn[TN_KERNEL_GEMM](state, &c);
}

static const tn_backend *hiding_backend(void)
{
    static tn_backend b;
    b = *tn_cpu_backend();
    b.name = "hiding";
    b.fn[TN_KERNEL_GEMM] = gemm_seen;
    for (int i = 0; i < HIDDEN_COUNT; i++) hidden_numbers[i] = (float)NAN;
    return &b;
}

static tn_ctx *ctx_of(const tn_backend *backend, tn_simd simd, int threads, test_heap *heap)
{
    tn_desc d = ZERO;
    tn_ctx *ctx;
    d.backend = backend;
    d.simd = simd;
    d.threads = threads;
    d.seed = 17;
    if (heap) d.allocator = test_heap_allocator(heap);
    return CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK) ? ctx : NULL;
}

static float *numbers_of(const tn_tensor *t)
{
    const int64_t n = tn_tensor_count(t);
    float        *v = (float *)malloc((size_t)(n + 1) * sizeof *v);
    CHECK_STATUS(tn_read(t, TN_F32, v, n), TN_OK);
    return v;
}

/* An owned tensor of normal numbers. */
static tn_tensor *matrix_of(tn_ctx *ctx, int rank, int64_t a, int64_t b, int64_t c)
{
    int64_t shape[3] = {a, b, c};
    tn_tensor *t = tn_tensor_create(ctx, TN_F32, rank, shape);
    if (t && tn_tensor_count(t) > 0) CHECK_STATUS(tn_assign(t, tn_normal(ctx, rank, shape, 0, 1)), TN_OK);
    return t;
}

/* ---- rounding ------------------------------------------------------------------------------------------------------ */

/* The nearest number with 8 significant bits, by arithmetic instead of bits; not for numbers below 2^-126. */
static double nearest_bf16(double x)
{
    int    e;
    double m = frexp(x, &e);
    return ldexp(nearbyint(m * 256), e - 8);
}

/* s: 17 bits of the largest over 127 */
static double int8_scale(const float *row, int64_t n)
{
    double most = 0;
    int    e;
    for (int64_t i = 0; i < n; i++) test_raise(&most, fabs((double)row[i]));
    most = frexp((double)(float)(most / 127), &e);
    return ldexp(floor(most * 131072), e - 17);
}

static double nearest_int8(double x, const float *row, int64_t n)
{
    const double s = int8_scale(row, n);
    return s > 0 ? s * nearbyint((double)((float)x / (float)s)) : 0;
}

TEST(rounds_to_the_nearest)
{
    static const int64_t shape[][3] = {{1, 1, 1}, {7, 33, 1}, {1, 5, 1}, {5, 1, 1}, {2, 3, 47}, {0, 4, 1}, {4, 0, 1}};
    tn_ctx    *ctx = ctx_of(NULL, TN_SIMD_AUTO, 1, NULL);
    tn_weight_kind kind;
    EACH_KIND(kind)
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
            const int        rank = shape[s][2] > 1 ? 3 : 2;
            tn_tensor       *w = matrix_of(ctx, rank, shape[s][0], shape[s][1], shape[s][2]);
            const int64_t    columns = w->shape[rank - 1], count = tn_tensor_count(w);
            float           *before = numbers_of(w);
            double           most = 0, largest = 0, sum = 0, of = 0, worst = 0;
            tn_compact_error error, second;
            CHECK_STATUS(tn_compact(w, kind, &error), TN_OK);
            float *after = numbers_of(w);
            for (int64_t i = 0; i < count; i++) {
                const double x = (double)before[i], y = (double)after[i];
                const float *row = before + i / columns * columns;
                const double half = kind == TN_WEIGHT_BF16 ? fabs(x) / 256 : int8_scale(row, columns) / 2 * (1 + 1e-6);
                const double expected = kind == TN_WEIGHT_BF16 ? nearest_bf16(x) : nearest_int8(x, row, columns);
                test_raise(&worst, fabs(y - expected));
                CHECK(fabs(y - x) <= half);
                test_raise(&most, fabs(x));
                test_raise(&largest, fabs(y - x));
                sum += (y - x) * (y - x);
                of += x * x;
            }
            CHECK(worst == 0);
            CHECK_NEAR(error.largest, count ? largest / most : 0, 1e-12);
            CHECK_NEAR(error.rms, count ? sqrt(sum / of) : 0, 1e-12);
            CHECK(error.rms < (kind == TN_WEIGHT_INT8 ? 0.013 : count < 100 ? 0.00391 : 0.0025));
            CHECK_INT(error.count, count);
            CHECK_STR(error.worst, "");
            CHECK(count == 0 || columns < 40 || error.bytes <= (size_t)(count * 3));
            CHECK_INT(tn_compact_kind(w), count ? kind : TN_WEIGHT_F32);
            CHECK_STATUS(tn_compact(w, kind, &second), TN_OK);                   /* nothing is left to round */
            float *again = numbers_of(w);
            CHECK(memcmp(after, again, (size_t)count * sizeof *after) == 0 && second.largest == 0 && second.rms == 0);
            free(before);
            free(after);
            free(again);
        }
    CLOSE_CTX(ctx);
}

TEST(rows_of_extremes)
{
    static const float row[5][4] = {{0, 0, 0, 0}, {-0.0f, 1e-40f, 0, -1e-40f}, {3e38f, -3.2e38f, 1, 0}, {127, -127, 63.5f, 0.4f},
                                    {1e-30f, -1e-30f, 1e-33f, 5e-31f}};
    tn_ctx       *ctx = ctx_of(NULL, TN_SIMD_AUTO, 1, NULL);
    const int64_t shape[2] = {5, 4};
    tn_weight_kind    kind;
    EACH_KIND(kind) {
        tn_tensor *w = tn_tensor_create(ctx, TN_F32, 2, shape);
        CHECK_STATUS(tn_write(w, TN_F32, row, 20), TN_OK);
        CHECK_STATUS(tn_compact(w, kind, NULL), TN_OK);
        float *v = numbers_of(w);
        for (int i = 0; i < 20; i++) {
            const double x = (double)row[i / 4][i % 4];
            CHECK(isfinite(v[i]) && fabs((double)v[i] - x) <= fabs(x) / 127 + fabs((double)row[i / 4][0]) / 200 + 2e-36);
        }
        CHECK(v[12] == 127 && v[13] == -127);
        free(v);
    }
    CLOSE_CTX(ctx);
}

/* ---- products ------------------------------------------------------------------------------------------------------ */

/* Is one row rounded before it is multiplied with INT8? */
static bool rounds(const tn_ctx *ctx) { return strncmp(tn_ctx_simd_name(ctx), "avx", 3) == 0; }

/* The most that a product of one row with INT8 may be wrong because x is rounded: 2^-16 of the largest number of each block of
   64, in slabs of 800 numbers, times the weights of the block. 0 where x is not rounded. */
static double rounding_bound(const tn_ctx *ctx, const float *x, const float *w, int64_t k)
{
    double bound = 0;
    for (int64_t slab = 0; rounds(ctx) && slab < k; slab += 800)
        for (int64_t d = slab; d < k && d < slab + 800; d += 64) {
            double most = 0, sum = 0;
            for (int64_t i = d; i < d + 64 && i < k && i < slab + 800; i++) {
                test_raise(&most, fabs((double)x[i]));
                sum += fabs((double)w[i]);
            }
            bound += most * sum / 65000;
        }
    return bound;
}

/* x w^T + b in double, and the bound: the sum of the parts' magnitudes. */
static double plain_product(const float *x, const float *w, const float *b, int64_t k, double *size)
{
    double  sum = b ? (double)*b : 0;
    int64_t i;
    for (*size = fabs(sum) + 1e-30, i = 0; i < k; i++) {
        sum += (double)x[i] * (double)w[i];
        *size += fabs((double)x[i] * (double)w[i]);
    }
    return sum;
}

static double product_error(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_tensor *y)
{
    const int64_t m = x->shape[0], n = w->shape[0], k = w->shape[1];
    float        *xs = numbers_of(x), *ws = numbers_of(w), *bs = b ? numbers_of(b) : NULL, *ys = numbers_of(y);
    const bool    rounded = m == 1 && tn_compact_kind(w) == TN_WEIGHT_INT8;
    double        worst = 0, size;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            const double right = plain_product(xs + i * k, ws + j * k, bs ? bs + j : NULL, k, &size);
            const double allowed = rounded ? rounding_bound(x->ctx, xs + i * k, ws + j * k, k) : 0;
            const double error = fabs((double)ys[i * n + j] - right) - allowed;
            test_raise(&worst, error < 0 ? 0 : error / size);
        }
    free(xs);
    free(ws);
    free(bs);
    free(ys);
    return worst;
}

/* Is the copy in use for m rows, by the rules of few rows? Matrices with little depth or few rows may be read in float32. */
static bool reads_copy(int64_t m, int64_t n, int64_t k) { return m == 1 ? k > 1 : n >= m && m <= 32 && k >= 64; }

static void check_products(tn_simd level, tn_weight_kind kind, int64_t n, int64_t k, double *worst, int *equal)
{
    static const int64_t rows[] = {1, 2, 3, 5, 8, 31, 32, 33, 40};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int64_t m = rows[r];
        float        *first = NULL;
        for (int threads = 1; threads <= 3; threads++) {
            tn_ctx    *ctx = ctx_of(reads_copy(m, n, k) ? hiding_backend() : NULL, level, threads, NULL);
            tn_tensor *w = matrix_of(ctx, 2, n, k, 0), *x = tn_tensor_2d(ctx, TN_F32, m, k), *b = tn_tensor_1d(ctx, TN_F32, n);
            CHECK_STATUS(tn_assign(x, tn_normal(ctx, 2, x->shape, 0, 1)), TN_OK);
            CHECK_STATUS(tn_assign(b, tn_normal(ctx, 1, b->shape, 0, 1)), TN_OK);
            CHECK_STATUS(tn_compact(w, kind, NULL), TN_OK);
            seen.compact = seen.all = 0;
            tn_tensor *y = tn_affine(ctx, x, w, m % 2 ? b : NULL);
            CHECK_INT(seen.compact, reads_copy(m, n, k));
            test_raise(worst, product_error(x, w, m % 2 ? b : NULL, y));
            tn_tensor *plain = tn_tensor_keep(w);                                          /* the same numbers without a copy */
            CHECK_INT(tn_compact_kind(plain), TN_WEIGHT_F32);
            tn_tensor *z = tn_affine(ctx, x, plain, m % 2 ? b : NULL);
            float *v = numbers_of(y);
            float *u = numbers_of(z);
            if (kind == TN_WEIGHT_BF16 || m > 1) CHECK(memcmp(v, u, (size_t)(m * n) * sizeof *v) == 0), ++*equal;
            if (first) CHECK(memcmp(v, first, (size_t)(m * n) * sizeof *v) == 0);
            free(threads == 1 ? NULL : first);
            first = v;
            free(u);
            CLOSE_CTX(ctx);
            if (threads < 3) continue;
            free(first);
        }
    }
}

TEST(products_read_the_copy)
{
    static const int64_t shape[][2] = {{1, 1}, {3, 1}, {70, 1}, {1, 64}, {4, 15}, {40, 31}, {34, 64}, {37, 65}, {45, 100}, {33, 95}, {40, 801},
                                       {35, 1637}, {513, 96}};
    const size_t n = sizeof shape / sizeof *shape;
    tn_weight_kind   kind;
    tn_simd      level;
    double       worst = 0;
    int          equal = 0;
    EACH_LEVEL(level)
        EACH_KIND(kind)
            for (size_t s = 0; s < n; s++)
                if (!test_small() || s % 3 == 0) check_products(level, kind, shape[s][0], shape[s][1], &worst, &equal);
    WORST("x W^T of compact W, beside sums in double over the sum of magnitudes", worst, 4e-7);
    printf("%d products equal in every bit to those of the rounded float32 matrix\n", equal);
}

/* One row of x with what `which` says, by matrices of n rows; the product in y, of the first rows alone in part. */
static double one_row(tn_simd level, int which, int64_t n, int64_t k, int threads, float *y, float *part)
{
    tn_ctx    *ctx = ctx_of(hiding_backend(), level, threads, NULL);
    tn_tensor *w = matrix_of(ctx, 2, n, k, 0), *x = tn_tensor_2d(ctx, TN_F32, 1, k);
    CHECK_STATUS(tn_assign(x, tn_normal(ctx, 2, x->shape, 0, 1)), TN_OK);
    CHECK_STATUS(tn_compact(w, TN_WEIGHT_INT8, NULL), TN_OK);
    float *xs = numbers_of(x), *ws = numbers_of(w);
    double worst = 0, size;
    for (int64_t i = 0; i < k; i++)
        switch (which) {
        case 0: xs[i] *= i % 97 == 5 ? 3000.0f : 1.0f; break;                   /* outliers */
        case 1: xs[i] *= i / 64 % 2 ? 0.0f : 1.0f; break;                       /* blocks of zeros */
        case 2: xs[i] *= i < 64 ? 1e-33f : 1.0f; break;                         /* too small for a unit: in float32 */
        case 3: xs[i] *= i < 64 ? 1e-8f : i < 128 ? 1e25f : 1.0f; break;
        case 4: xs[i] = i == k / 2 ? -2.5f : 0.0f; break;
        default: xs[i] = i % 3 ? -1.0f : 1.0f; break;                           /* all at the limit of 16 bits */
        }
    CHECK_STATUS(tn_write(x, TN_F32, xs, k), TN_OK);
    float *v = numbers_of(tn_affine(ctx, x, w, NULL)), *u = numbers_of(tn_affine(ctx, x, tn_slice(w, 0, 1, 6), NULL));
    for (int64_t j = 0; j < n; j++) {
        const double right = plain_product(xs, ws + j * k, NULL, k, &size), allowed = rounding_bound(ctx, xs, ws + j * k, k);
        test_raise(&worst, fabs((double)v[j] - right) / (allowed + 4e-7 * size));
    }
    memcpy(y, v, (size_t)n * sizeof *v);
    memcpy(part, u, 5 * sizeof *u);
    free(xs);
    free(ws);
    free(u);
    free(v);
    CLOSE_CTX(ctx);
    return worst;
}

TEST(one_row_of_int8_is_within_the_bound)
{
    static const int64_t depth[] = {63, 64, 65, 80, 97, 128, 256, 800, 863, 864, 1637};
    enum { ROWS = 531 };
    static float y[2][ROWS], part[5];
    tn_simd      level;
    double       worst = 0;
    EACH_LEVEL(level)
        for (size_t s = 0; s < sizeof depth / sizeof *depth; s++)
            for (int which = 0; which < 6; which++) {
                test_raise(&worst, one_row(level, which, ROWS, depth[s], 1, y[0], part));
                CHECK(memcmp(part, y[0] + 1, sizeof part) == 0);                /* columns do not depend on each other */
                one_row(level, which, ROWS, depth[s], 3, y[1], part);
                CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
            }
    WORST("one row with INT8, beside its bound", worst, 1);
}

TEST(infinities_and_nan_are_as_in_float32)
{
    static const float special[] = {(float)INFINITY, -(float)INFINITY, (float)NAN};
    tn_simd   level;
    EACH_LEVEL(level)
        for (int which = 0; which < 3; which++) {
            tn_ctx    *ctx = ctx_of(hiding_backend(), level, 1, NULL);
            tn_tensor *w = matrix_of(ctx, 2, 41, 200, 0), *x = tn_tensor_2d(ctx, TN_F32, 1, 200);
            CHECK_STATUS(tn_assign(x, tn_normal(ctx, 2, x->shape, 0, 1)), TN_OK);
            CHECK_STATUS(tn_write(tn_slice(x, 1, 131, 132), TN_F32, special + which, 1), TN_OK);
            CHECK_STATUS(tn_compact(w, TN_WEIGHT_INT8, NULL), TN_OK);
            tn_tensor *y = tn_affine(ctx, x, w, NULL), *z = tn_affine(ctx, x, tn_tensor_keep(w), NULL);
            float *v = numbers_of(y), *u = numbers_of(z);
            for (int j = 0; j < 41; j++) CHECK(isnan(u[j]) ? isnan(v[j]) : v[j] == u[j] && isinf(v[j]));
            free(v);
            free(u);
            CLOSE_CTX(ctx);
        }
}

TEST(views_of_rows_read_the_copy)
{
    tn_ctx    *ctx = ctx_of(hiding_backend(), TN_SIMD_AUTO, 1, NULL);
    tn_weight_kind kind;
    EACH_KIND(kind) {
        tn_tensor *w = matrix_of(ctx, 3, 2, 40, 96), *x = tn_tensor_2d(ctx, TN_F32, 2, 96);
        CHECK_STATUS(tn_assign(x, tn_normal(ctx, 2, x->shape, 0, 1)), TN_OK);
        CHECK_STATUS(tn_compact(w, kind, NULL), TN_OK);
        seen.compact = 0;
        tn_tensor *all = tn_reshape_2d(w, 80, 96);
        CHECK_INT(tn_compact_kind(all), kind);
        tn_tensor *part = tn_slice(all, 0, 37, 78);
        tn_tensor *some = tn_slice(tn_slice(all, 0, 37, 78), 1, 32, 96);         /* columns: read in float32 */
        WORST("all rows", product_error(x, all, NULL, tn_affine(ctx, x, all, NULL)), 4e-7);
        WORST("some rows", product_error(x, part, NULL, tn_affine(ctx, x, part, NULL)), 4e-7);
        CHECK_INT(seen.compact, 2);
        tn_affine(ctx, tn_slice(x, 1, 0, 64), some, NULL);
        tn_affine(ctx, tn_tensor_2d(ctx, TN_F32, 2, 40), tn_transpose(tn_slice(all, 0, 0, 40), 0, 1), NULL);
        CHECK_INT(seen.compact, 2);
    }
    CLOSE_CTX(ctx);
}

/* Views whose rows are not those of the matrix */
static tn_tensor *part_of_rows(tn_tensor *w, int which)
{
    const int64_t rows = w->shape[0], columns = w->shape[1], count = rows * columns;
    switch (which) {
    case 0: return tn_transpose(w, 0, 1);                                       /* of [n,1]: the numbers of one row are neighbours */
    case 1: return tn_reshape_2d(w, 1, rows * columns);
    case 2: return tn_reshape_2d(w, rows / 2, 2 * columns);
    case 3: return tn_reshape_2d(w, 2 * rows, columns / 2);
    case 4: return tn_slice(w, 1, 0, columns / 2);
    case 5: return tn_slice(w, 1, 32, columns);
    case 6: return tn_slice(tn_slice(w, 0, 1, 2), 1, 0, 32);
    case 7: return tn_slice(tn_slice(w, 0, 1, 2), 1, 32, 64);
    case 8: return tn_transpose(tn_slice(w, 0, 3, 40), 0, 1);
    case 9: return tn_slice_step(w, 0, 0, rows, 2);                             /* whole rows, but not one after the other */
    default:                                                                    /* rows of the right length that begin elsewhere */
        w = tn_reshape(w, 1, &count);
        return tn_reshape_2d(tn_slice(w, 0, 3, 3 + 2 * columns), 2, columns);
    }
}

TEST(views_of_parts_of_rows_read_float32)
{
    static const int one[][3] = {                                               /* rows and columns of a matrix, the view */
        {5, 1, 0}, {70, 1, 0}, {5, 1, 1}, {64, 1, 1}, {2, 3, 1}, {2, 64, 1}, {7, 32, 1}, {4, 64, 2}, {6, 32, 2}, {1, 64, 3}, {6, 128, 3},
        {1, 2, 4}, {1, 128, 4}, {40, 96, 4}, {40, 128, 4}, {1, 128, 5}, {40, 33, 5}, {40, 96, 5}, {40, 96, 6}, {40, 96, 7}, {41, 1, 8},
        {40, 96, 9}, {40, 96, 10}};
    tn_ctx    *ctx = ctx_of(hiding_backend(), TN_SIMD_AUTO, 1, NULL);
    tn_weight_kind kind;
    int64_t    shape[2];
    double     worst = 0;
    EACH_KIND(kind)
        for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
            tn_tensor *w = matrix_of(ctx, 2, one[i][0], one[i][1], 0);
            CHECK_STATUS(tn_compact(w, kind, NULL), TN_OK);
            tn_tensor *kept = tn_tensor_keep(w);                                /* the same numbers without a copy */
            tn_tensor *view = part_of_rows(w, one[i][2]), *same = part_of_rows(kept, one[i][2]);
            REQUIRE(view != NULL && same != NULL);
            seen.compact = 0;
            for (shape[0] = 1; shape[0] <= 4; shape[0]++) {
                shape[1] = view->shape[1];
                tn_tensor *x = tn_normal(ctx, 2, shape, 0, 1);
                tn_tensor *y = tn_affine(ctx, x, view, NULL);
                test_raise(&worst, product_error(x, view, NULL, y));
                float *v = numbers_of(y);
                float *u = numbers_of(tn_affine(ctx, x, same, NULL));
                CHECK(memcmp(v, u, (size_t)tn_tensor_count(y) * sizeof *v) == 0);
                free(v);
                free(u);
            }
            CHECK_INT(seen.compact, 0);
        }
    WORST("views of parts of rows", worst, 4e-7);
    CLOSE_CTX(ctx);
}

/* ---- what drops the copy -------------------------------------------------------------------------------------------- */

TEST(writing_drops_the_copy)
{
    tn_ctx        *ctx = ctx_of(hiding_backend(), TN_SIMD_AUTO, 1, NULL);
    tn_params     *ps = tn_params_create(ctx);
    const int64_t  shape[2] = {40, 64};
    tn_init        init = ZERO;
    tn_optim_desc  d = ZERO;
    const char    *path = "build/test_compact.safetensors";
    float          one[64] = {0};
    tn_memory      before;
    tn_tensor *w = tn_params_add(ps, "w", 2, shape, init)->value;
    d.lr = 0.1;
    tn_optim *o = tn_optim_create(ps, &d);
    tn_tensor *x = tn_tensor_create(ctx, TN_F32, 2, shape);
    tn_tensor *part = tn_slice(w, 0, 3, 4);
#define COMPACT before = tn_ctx_memory(ctx), CHECK_STATUS(tn_compact(w, TN_WEIGHT_INT8, NULL), TN_OK), CHECK_INT(tn_compact_kind(w), TN_WEIGHT_INT8)
#define DROPPED CHECK_INT(tn_compact_kind(w), TN_WEIGHT_F32), CHECK_INT(tn_ctx_memory(ctx).live, before.live)
    COMPACT;
    CHECK(tn_ctx_memory(ctx).live > before.live + 40 * 64);
    CHECK_STATUS(tn_compact(w, TN_WEIGHT_F32, NULL), TN_OK);
    DROPPED;
    COMPACT;
    CHECK_STATUS(tn_write(part, TN_F32, one, 64), TN_OK);
    DROPPED;
    COMPACT;
    CHECK_STATUS(tn_assign(w, x), TN_OK);
    DROPPED;
    COMPACT;
    CHECK_STATUS(tn_params_save(ps, path), TN_OK);
    CHECK_INT(tn_compact_kind(w), TN_WEIGHT_INT8);
    CHECK_STATUS(tn_params_load(ps, path), TN_OK);
    DROPPED;
    remove(path);
    COMPACT;
    tn_record(ctx);
    seen.compact = seen.all = 0;
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_affine(ctx, x, w, NULL))), TN_OK);      /* in float32, and keeps the copy */
    CHECK(seen.all > 0);
    CHECK_INT(seen.compact, 0);
    CHECK_INT(tn_compact_kind(w), TN_WEIGHT_INT8);
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    CHECK_INT(tn_compact_kind(w), TN_WEIGHT_F32);
    COMPACT;
    tn_params_destroy(ps);
    CLOSE_CTX(ctx);
#undef COMPACT
#undef DROPPED
}

/* ---- models --------------------------------------------------------------------------------------------------------- */

static void model_init(tn_params *ps, tn_transformer *m, bool tied, tn_mlp_kind mlp)
{
    tn_transformer_desc d = ZERO;
    d.vocab = 131;
    d.layers = 2;
    d.dim = 64;
    d.heads = 4;
    d.context = 16;
    d.mlp = mlp;
    d.tied = tied;
    d.mlp_bias = true;
    CHECK_STATUS(tn_transformer_init(ps, "", &d, m), TN_OK);
}

static tn_params *model_of(tn_ctx *ctx, tn_transformer *m, bool tied, tn_mlp_kind mlp)
{
    tn_params *ps = tn_params_create(ctx);
    model_init(ps, m, tied, mlp);
    return ps;
}

static float *logits_of(tn_ctx *ctx, const tn_transformer *m, int64_t texts, int64_t tokens, bool decoded)
{
    tn_transformer_cache *cache = tn_transformer_cache_create(ctx, m, texts, tokens);
    tn_tensor            *ids = tn_tensor_2d(ctx, TN_I32, texts, tokens), *last = NULL;
    int32_t               id[64];
    for (int64_t i = 0; i < texts * tokens; i++) id[i] = (int32_t)(i * 37 % 131);
    CHECK_STATUS(tn_write(ids, TN_I32, id, texts * tokens), TN_OK);
    for (int64_t i = 0; i < tokens && decoded; i++) last = tn_transformer_decode(ctx, m, tn_slice(ids, 1, i, i + 1), cache);
    if (!decoded) last = tn_slice(tn_transformer_forward(ctx, m, ids), 1, tokens - 1, tokens);
    float *v = numbers_of(last);
    tn_transformer_cache_destroy(cache);
    return v;
}

TEST(models_are_the_same_everywhere)
{
    const char *path = "build/test_compact_model.safetensors";
    tn_weight_kind  kind;
    EACH_KIND(kind)
        for (int tied = 0; tied < 2; tied++) {
            tn_ctx          *ctx = ctx_of(hiding_backend(), TN_SIMD_AUTO, 2, NULL);
            tn_ctx          *plain = ctx_of(tn_reference_backend(), TN_SIMD_AUTO, 1, NULL);
            tn_transformer   m;
            tn_params       *ps = model_of(ctx, &m, tied, TN_MLP_BILINEAR), *rs = tn_params_clone(plain, ps);
            tn_tensor       *embed = tn_tensor_keep(m.embed.w), *gain = tn_tensor_keep(m.norm.gain);
            tn_compact_error error, other;
            float           *x, *y;
            tn_transformer   r = m;
            CHECK(tn_params_rebind(rs, ps, &r, sizeof r) > 0);
            CHECK_STATUS(tn_transformer_compact(&m, kind, &error), TN_OK);
            CHECK_STATUS(tn_transformer_compact(&r, kind, &other), TN_OK);
            CHECK(error.largest == other.largest && error.rms == other.rms && error.rms > 0 && strcmp(error.worst, other.worst) == 0);
            CHECK_STR(error.worst[0] ? "named" : "", "named");
            CHECK_INT(error.count, tn_params_elements(ps) - (tied ? 0 : 131 * 64) - 64 * 5 - 2 * 2 * m.desc.hidden);
            CHECK(error.bytes < (size_t)error.count * (kind == TN_WEIGHT_BF16 ? 5 : 3) / 2);
            CHECK_INT(tn_compact_kind(m.embed.w), tied ? kind : TN_WEIGHT_F32);
            CHECK_INT(tn_compact_kind(m.head.w), kind);
            for (int64_t i = 0; i < tn_params_count(ps); i++) {                  /* every backend has the same rounded numbers */
                x = numbers_of(tn_params_at(ps, i)->value);
                y = numbers_of(tn_params_at(rs, i)->value);
                CHECK(memcmp(x, y, (size_t)tn_tensor_count(tn_params_at(ps, i)->value) * sizeof *x) == 0);
                free(x);
                free(y);
            }
            x = numbers_of(embed);
            y = numbers_of(m.embed.w);
            float *u = numbers_of(gain), *v = numbers_of(m.norm.gain);
            CHECK((memcmp(x, y, 131 * 64 * sizeof *x) == 0) == !tied);
            CHECK(memcmp(u, v, 64 * sizeof *u) == 0);
            free(x);
            free(y);
            free(u);
            free(v);
            CHECK_STATUS(tn_params_save(ps, path), TN_OK);
            for (int64_t texts = 1; texts <= 3; texts++) {
                const bool rounded = kind == TN_WEIGHT_INT8 && texts == 1 && rounds(ctx);
                double error_of = 0, size = 0, bound = rounded ? 1e-4 : 2e-6;
                seen.compact = 0;
                x = logits_of(ctx, &m, texts, 5, true);
                CHECK_INT(seen.compact, 5 * (2 * 5 + 1));
                y = logits_of(plain, &r, texts, 5, false);
                for (int64_t i = 0; i < texts * 131; i++)
                    test_raise(&error_of, fabs((double)x[i] - (double)y[i])), test_raise(&size, fabs((double)y[i]));
                WORST("decoded logits beside a forward pass of the reference", error_of / size, bound);
                CHECK_STATUS(tn_transformer_compact(&m, TN_WEIGHT_F32, NULL), TN_OK);
                CHECK_STATUS(tn_params_load(ps, path), TN_OK);                   /* the rounded model is what a file holds */
                float *z = logits_of(ctx, &m, texts, 5, true);
                error_of = 0;
                for (int64_t i = 0; i < texts * 131; i++) test_raise(&error_of, fabs((double)x[i] - (double)z[i]));
                WORST("the same from a file, in float32", error_of / size, bound);
                CHECK_STATUS(tn_transformer_compact(&m, kind, &other), TN_OK);
                CHECK(other.largest == 0 && other.rms == 0);
                free(x);
                free(y);
                free(z);
            }
            remove(path);
            CHECK_CTX(ctx);
            CHECK_CTX(plain);
            tn_ctx_destroy(ctx);
            tn_ctx_destroy(plain);
        }
}

TEST(a_matrix_of_several_blocks_counts_once)
{
    tn_ctx          *ctx = ctx_of(NULL, TN_SIMD_AUTO, 1, NULL);
    tn_transformer   m, tied;
    tn_params       *ps = tn_params_create(ctx);
    tn_compact_error all, once;
    tn_init          init = ZERO;
    model_of(ctx, &m, false, TN_MLP_GELU);
    tn_tensor *qk = m.blocks[0].attn.qk;
    CHECK(tn_params_add(ps, "shared", qk->rank, qk->shape, init) != NULL);
    CHECK_STATUS(tn_params_tie(ps, "blocks.0.attn.qk", "shared"), TN_OK);
    CHECK_STATUS(tn_params_tie(ps, "blocks.1.attn.qk", "shared"), TN_OK);
    model_init(ps, &tied, true, TN_MLP_GELU);
    CHECK(tied.blocks[0].attn.qk == tied.blocks[1].attn.qk);
    CHECK_STATUS(tn_transformer_compact(&m, TN_WEIGHT_INT8, &all), TN_OK);
    CHECK_STATUS(tn_transformer_compact(&tied, TN_WEIGHT_INT8, &once), TN_OK);
    CHECK_INT(all.count - once.count, tn_tensor_count(qk));
    CHECK_INT(all.bytes - once.bytes, tn_tensor_count(qk) + tn_tensor_count(qk) / 64 * 4);
    CHECK_INT(tn_compact_kind(tied.blocks[1].attn.qk), TN_WEIGHT_INT8);
    CLOSE_CTX(ctx);
}

TEST(a_model_that_fails_is_unchanged)
{
    test_heap        heap = {0, 0, 0, 0, false};
    tn_ctx          *ctx = ctx_of(NULL, TN_SIMD_AUTO, 1, &heap);
    tn_transformer   m;
    tn_params       *ps = model_of(ctx, &m, false, TN_MLP_GELU);
    float           *before = numbers_of(m.blocks[0].attn.qk), *after, bad = (float)INFINITY;
    const size_t     bytes = (size_t)tn_tensor_count(m.blocks[0].attn.qk) * sizeof *before;
    tn_compact_error error;
    uint64_t         fail;
    for (fail = 1; fail < 200; fail++) {
        uint64_t blocks = heap.blocks;
        heap.count = 0;
        heap.fail_at = fail;
        if (tn_transformer_compact(&m, TN_WEIGHT_INT8, &error) == TN_OK) break;
        heap.fail_at = 0;
        CHECK_INT(heap.blocks, blocks);
        CHECK_ERROR(ctx, TN_ERR_MEMORY, "");
        after = numbers_of(m.blocks[0].attn.qk);
        CHECK(memcmp(before, after, bytes) == 0);
        free(after);
    }
    heap.fail_at = 0;
    printf("%d allocations failed\n", (int)fail - 1);
    CHECK(fail > 20 && fail < 200);
    CHECK_STATUS(tn_assign(m.blocks[0].attn.qk, tn_scale(ctx, m.blocks[0].attn.qk, 1.01)), TN_OK);
    free(before);
    before = numbers_of(m.blocks[0].attn.qk);
    CHECK_STATUS(tn_write(tn_slice(tn_slice(m.head.w, 0, 7, 8), 1, 5, 6), TN_F32, &bad, 1), TN_OK);
    CHECK_STATUS(tn_transformer_compact(&m, TN_WEIGHT_BF16, &error), TN_ERR_DATA);
    CHECK_ERROR(ctx, TN_ERR_DATA, "transformer_compact: head.w has inf in row 7, column 5, expected finite numbers up to 3.38e38");
    after = numbers_of(m.blocks[0].attn.qk);
    CHECK(memcmp(before, after, bytes) == 0 && tn_compact_kind(m.blocks[0].attn.qk) == TN_WEIGHT_F32);
    free(before);
    free(after);
    CHECK_INT(tn_params_count(ps) > 0, 1);
    tn_ctx_destroy(ctx);
    CHECK_INT(heap.blocks, 0);
}

/* ---- errors --------------------------------------------------------------------------------------------------------- */

TEST(refusals_name_what_is_wrong)
{
    tn_ctx       *ctx = ctx_of(NULL, TN_SIMD_AUTO, 1, NULL), *other;
    const int64_t shape[2] = {3, 4};
    tn_tensor    *w = matrix_of(ctx, 2, 3, 4, 0), *vector = tn_tensor_create(ctx, TN_F32, 1, shape);
    tn_tensor    *ids = tn_tensor_create(ctx, TN_I32, 2, shape);
    tn_desc       d = ZERO;
    float         bad = (float)NAN;
    CHECK_STATUS(tn_compact(NULL, TN_WEIGHT_BF16, NULL), TN_ERR_ARG);
    CHECK_STATUS(tn_transformer_compact(NULL, TN_WEIGHT_BF16, NULL), TN_ERR_ARG);
    FAILS(ctx, tn_compact(w, (tn_weight_kind)3, NULL), TN_ERR_ARG, "compact: kind is 3, expected 0 to 2");
    FAILS(ctx, tn_compact(vector, TN_WEIGHT_BF16, NULL), TN_ERR_SHAPE, "compact: w is [3], expected rank 2 or more");
    CHECK_STATUS(tn_compact(ids, TN_WEIGHT_BF16, NULL), TN_ERR_DTYPE);
    CHECK_ERROR(ctx, TN_ERR_DTYPE, "compact: w is I32 and the context's activations are F32, expected F32 for both");
    CHECK_STATUS(tn_compact(tn_transpose(w, 0, 1), TN_WEIGHT_BF16, NULL), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "compact: w is a view, expected a parameter or a tensor of tn_tensor_create");
    FAILS(ctx, tn_compact(tn_tensor_2d(ctx, TN_F32, 3, 4), TN_WEIGHT_INT8, NULL), TN_ERR_ARG, "compact: w is an arena tensor");
    CHECK_STATUS(tn_write(tn_slice(tn_slice(w, 0, 2, 3), 1, 1, 2), TN_F32, &bad, 1), TN_OK);
    CHECK_STATUS(tn_compact(w, TN_WEIGHT_INT8, NULL), TN_ERR_DATA);
    CHECK_ERROR(ctx, TN_ERR_DATA, "compact: w has nan in row 2, column 1, expected finite numbers up to 3.38e38");
    bad = 3.4e38f;                                                              /* would be rounded to infinity */
    CHECK_STATUS(tn_write(tn_slice(tn_slice(w, 0, 2, 3), 1, 1, 2), TN_F32, &bad, 1), TN_OK);
    FAILS(ctx, tn_compact(w, TN_WEIGHT_BF16, NULL), TN_ERR_DATA, "3.4e+38 in row 2, column 1");
    bad = 1;
    CHECK_STATUS(tn_write(tn_slice(tn_slice(w, 0, 2, 3), 1, 1, 2), TN_F32, &bad, 1), TN_OK);
    tn_record(ctx);
    tn_tensor *x = tn_tensor_2d(ctx, TN_F32, 2, 4);
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_affine(ctx, x, w, NULL);
    FAILS(ctx, tn_compact(w, TN_WEIGHT_BF16, NULL), TN_ERR_ARG, "compact: w [3,4] is needed by the backward pass");
    tn_ctx_reset(ctx);
    CHECK_STATUS(tn_compact(w, TN_WEIGHT_BF16, NULL), TN_OK);
    CHECK_STR(tn_weight_kind_name(TN_WEIGHT_F32), "f32");
    CHECK_STR(tn_weight_kind_name(TN_WEIGHT_BF16), "bf16");
    CHECK_STR(tn_weight_kind_name(TN_WEIGHT_INT8), "int8");
    CHECK_STR(tn_weight_kind_name((tn_weight_kind)3), "?");
    CHECK_INT(tn_compact_kind(NULL), TN_WEIGHT_F32);
    CLOSE_CTX(ctx);
    d.activations = TN_BF16;
    REQUIRE(tn_ctx_create(&d, &other, NULL) == TN_OK);
    w = tn_tensor_create(other, TN_F32, 2, shape);
    CHECK_STATUS(tn_compact(w, TN_WEIGHT_BF16, NULL), TN_ERR_DTYPE);
    CHECK_ERROR(other, TN_ERR_DTYPE, "compact: w is F32 and the context's activations are BF16, expected F32 for both");
    tn_ctx_destroy(other);
    d.dtype = d.activations = TN_F64;
    REQUIRE(tn_ctx_create(&d, &other, NULL) == TN_OK);
    w = tn_tensor_create(other, TN_REAL, 2, shape);
    CHECK_STATUS(tn_compact(w, TN_WEIGHT_BF16, NULL), TN_ERR_DTYPE);
    CHECK_ERROR(other, TN_ERR_DTYPE, "compact: w is F64 and the context's activations are F64, expected F32 for both");
    tn_ctx_destroy(other);
}

TEST_MAIN(rounds_to_the_nearest, rows_of_extremes, products_read_the_copy, one_row_of_int8_is_within_the_bound,
          infinities_and_nan_are_as_in_float32, views_of_rows_read_the_copy,
          views_of_parts_of_rows_read_float32, writing_drops_the_copy, models_are_the_same_everywhere,
          a_matrix_of_several_blocks_counts_once, a_model_that_fails_is_unchanged, refusals_name_what_is_wrong)
