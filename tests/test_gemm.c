/* The matrix product of the fast host backend against sums in double: every path of its choice, by shape and by how the operands lie. */

#include "pool.h"
#include "test.h"

enum { LAYOUTS_OUT = 5, LAYOUTS = 8, EDGE = 8 };

/* One matrix in an allocation of the exact size, so that a sanitizer sees one element too many. */
typedef struct matrix { int64_t rows, cols, row, col, n; tn_dtype dtype; void *p; } matrix;

static double get(const matrix *m, int64_t at)
{
    return m->dtype == TN_F64 ? ((const double *)m->p)[at] : (double)((const float *)m->p)[at];
}

static void set(const matrix *m, int64_t at, double v)
{
    if (m->dtype == TN_F64) ((double *)m->p)[at] = v;
    else ((float *)m->p)[at] = (float)v;
}

static size_t size_of(const matrix *m) { return (size_t)m->n * (m->dtype == TN_F64 ? 8 : 4); }

static matrix make(uint64_t *seed, tn_dtype dtype, int64_t rows, int64_t cols, int layout)
{
    matrix m;
    m.rows = rows;
    m.cols = cols;
    m.dtype = dtype;
    m.row = cols;
    m.col = 1;
    switch (layout) {
    case 0: break;                                           /* by rows */
    case 1: m.row = 1; m.col = rows; break;                  /* by columns */
    case 2: m.row = cols + 3; break;                         /* part of longer rows */
    case 3: m.row = 1; m.col = rows + 2; break;              /* part of longer columns */
    case 4: m.row = 2 * cols + 1; m.col = 2; break;          /* every second */
    case 5: m.row = 0; break;                                /* one row for all */
    case 6: m.row = 1; m.col = 0; break;                     /* one column for all */
    default: m.row = m.col = 0; break;                       /* one number */
    }
    m.n = rows > 0 && cols > 0 ? (rows - 1) * m.row + (cols - 1) * m.col + 1 : 0;
    m.p = malloc(size_of(&m) + (m.n == 0));
    for (int64_t i = 0; i < m.n; i++) set(&m, i, test_random_real(seed));
    return m;
}

static matrix copy(const matrix *from)
{
    matrix m = *from;
    m.p = malloc(size_of(&m) + (m.n == 0));
    memcpy(m.p, from->p, size_of(&m));
    return m;
}

static tn_view view(const matrix *m)
{
    tn_view v = ZERO;
    v.data = m->p;
    v.dtype = m->dtype;
    v.rank = 3;
    v.shape[0] = 1;
    v.shape[1] = m->rows;
    v.shape[2] = m->cols;
    v.strides[0] = m->n;
    v.strides[1] = m->row;
    v.strides[2] = m->col;
    return v;
}

static void *open_cpu(test_heap *heap, tn_simd simd, int threads)
{
    tn_desc d = ZERO;
    void   *state = NULL;
    char    why[256];
    d.threads = threads;
    d.parallel_for = threads > 1 ? pool_backwards : NULL;
    d.simd = simd;
    d.allocator = test_heap_allocator(heap);
    CHECK(tn_cpu_backend()->open(&d, &state, why) == TN_OK);
    return state;
}

/* One level, with one worker and with three. */
typedef struct bench { test_heap heap; void *one, *three; } bench;

static void bench_open(bench *b, tn_simd simd)
{
    memset(b, 0, sizeof *b);
    b->one = open_cpu(&b->heap, simd, 1);
    b->three = open_cpu(&b->heap, simd, 3);
}

static void bench_close(bench *b)
{
    tn_cpu_backend()->close(b->one);
    tn_cpu_backend()->close(b->three);
    CHECK_INT(b->heap.blocks, 0);
}

/* The largest error of got = alpha A B + beta C + bias, in units of what rounding may do: (k + EDGE) eps (|alpha| |A| |B| + |beta C| + |bias|). */
static double error_of(const tn_call *c, const matrix *a, const matrix *b, const matrix *bias, const matrix *before, const matrix *got)
{
    const double unit = got->dtype == TN_F64 ? 0x1p-53 : 0x1p-24;
    double       worst = 0;
    for (int64_t i = 0; i < got->rows; i++)
        for (int64_t j = 0; j < got->cols; j++) {
            const int64_t at = i * got->row + j * got->col;
            double        sum = 0, size = 0, e;
            for (int64_t d = 0; d < a->cols; d++) {
                const double x = get(a, i * a->row + d * a->col) * get(b, d * b->row + j * b->col);
                sum += x;
                size += fabs(x);
            }
            sum *= c->f[0];
            size *= fabs(c->f[0]);
            if (c->f[1] != 0) { e = c->f[1] * get(before, at); sum += e; size += fabs(e); }
            if (c->in[2].data) { e = get(bias, j * c->in[2].strides[0]); sum += e; size += fabs(e); }
            e = fabs(get(got, at) - sum) / (unit * (double)(a->cols + EDGE) * (size + 1e-30));
            test_raise(&worst, e);
        }
    return worst;
}

/* Nothing but the matrix itself is written: its gaps keep their bits. */
static bool gaps_kept(const matrix *before, const matrix *got)
{
    matrix m = copy(got);
    for (int64_t i = 0; i < m.rows; i++)
        for (int64_t j = 0; j < m.cols; j++) set(&m, i * m.row + j * m.col, get(before, i * m.row + j * m.col));
    bool same = memcmp(m.p, before->p, size_of(&m)) == 0;
    free(m.p);
    return same;
}

/* One product; alpha, beta and the bias by `kind`, 0 to 23. */
static double product(bench *at, uint64_t *seed, tn_dtype dtype, int64_t m, int64_t n, int64_t k, int la, int lb, int lc, int kind)
{
    static const double alpha[] = {1, -0.5}, beta[] = {0, 1, -0.25};
    matrix  a = make(seed, dtype, m, k, la), b = make(seed, dtype, k, n, lb), before = make(seed, dtype, m, n, lc);
    matrix  bias = make(seed, dtype, 1, 3 * n, 0);
    tn_call c = ZERO;
    c.kernel = TN_KERNEL_GEMM;
    c.n_in = 3;
    c.n_out = 1;
    c.in[0] = view(&a);
    c.in[1] = view(&b);
    c.in[2] = view(&bias);
    c.in[2].rank = 1;
    c.in[2].shape[0] = n;
    c.in[2].strides[0] = kind / 6 == 1 ? 1 : kind / 6 == 2 ? 3 : 0;
    if (kind / 6 == 0) c.in[2].data = NULL;
    c.f[0] = alpha[kind % 2];
    c.f[1] = beta[kind / 2 % 3];
    for (int64_t i = 0; i < m && c.f[1] == 0; i++)                   /* what must not be read */
        for (int64_t j = 0; j < n; j++) set(&before, i * before.row + j * before.col, (double)NAN);
    matrix one = copy(&before), three = copy(&before);
    c.out[0] = view(&one);
    CHECK(tn_cpu_backend()->fn[TN_KERNEL_GEMM](at->one, &c) == TN_OK);
    c.out[0].data = three.p;
    CHECK(tn_cpu_backend()->fn[TN_KERNEL_GEMM](at->three, &c) == TN_OK);
    double error = error_of(&c, &a, &b, &bias, &before, &one);
#ifdef TN_USE_BLAS
    if (m * n * k < 2000000)                                 /* BLAS promises no bits */
#endif
    CHECK(memcmp(one.p, three.p, size_of(&one)) == 0);
    if (!CHECK(error <= 1) || !CHECK(gaps_kept(&before, &one)))
        printf("     [%d,%d][%d,%d], lying %d %d %d, kind %d, dtype %d: error %g\n", (int)m, (int)k, (int)k, (int)n, la, lb, lc, kind, (int)dtype, error);
    free(a.p);
    free(b.p);
    free(bias.p);
    free(before.p);
    free(one.p);
    free(three.p);
    return error;
}

/* Levels this machine does not have run as the best it has. */
#define EACH_LEVEL(level) for (level = TN_SIMD_PLAIN; level <= TN_SIMD_AVX512; level = (tn_simd)(level + 1))

/* Every way to lie, for A, B and C, at each shape; alpha, beta and the bias take turns. */
static double each_layout(const int64_t shape[][3], size_t shapes, int step)
{
    tn_simd level;
    double  worst = 0;
    EACH_LEVEL(level) {
        uint64_t seed = 20 + (uint64_t)level;
        bench    at;
        bench_open(&at, level);
        for (size_t s = 0; s < shapes; s++) {
            int lie = (int)test_random_int(&seed, 0, step - 1);
            for (; lie < LAYOUTS * LAYOUTS * LAYOUTS_OUT; lie += step) {
                const tn_dtype dtype = test_random_int(&seed, 0, 2) == 0 ? TN_F64 : TN_F32;
                const double   e = product(&at, &seed, dtype, shape[s][0], shape[s][1], shape[s][2], lie % LAYOUTS, lie / LAYOUTS % LAYOUTS,
                                           lie / (LAYOUTS * LAYOUTS), (int)test_random_int(&seed, 0, 23));
                test_raise(&worst, e);
            }
        }
        bench_close(&at);
    }
    return worst;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

TEST(tiny_and_empty)
{
    static const int64_t shape[][3] = {
        {0, 5, 5}, {5, 0, 5}, {5, 5, 0}, {1, 1, 0}, {1, 1, 1}, {1, 1, 7}, {2, 1, 3}, {1, 2, 3}, {8, 8, 8}, {15, 17, 3}, {16, 16, 16}, {17, 31, 16},
        {29, 33, 17}, {13, 5, 1}, {6, 16, 2}, {14, 32, 5}, {28, 64, 4}};
    WORST("tiny and empty, of the bound", each_layout(shape, COUNT(shape), 7), 1);
}

/* One to three rows whose B lies by rows go along it in strips, up to 32 whose B lies by columns make inner products; up to
   16 columns are the same turned round. */
TEST(few_rows)
{
    static const int64_t shape[][3] = {
        {1, 1, 100}, {1, 15, 40}, {1, 64, 5}, {1, 131, 70}, {2, 16, 33}, {2, 77, 64}, {3, 5, 300}, {3, 33, 1}, {3, 129, 129}, {4, 40, 65}, {5, 9, 128},
        {7, 6, 63}, {10, 30, 64}, {11, 3, 257}, {16, 21, 100}, {17, 40, 66}, {25, 37, 70}, {32, 19, 129}, {33, 20, 65}, {4, 3, 31}, {1, 50, 0}};
    int64_t turned[COUNT(shape)][3];
    for (size_t s = 0; s < COUNT(shape); s++) {
        turned[s][0] = shape[s][1];
        turned[s][1] = shape[s][0];
        turned[s][2] = shape[s][2];
    }
    WORST("few rows, of the bound", each_layout(shape, COUNT(shape), 7), 1);
    WORST("few columns, of the bound", each_layout((const int64_t (*)[3])turned, COUNT(turned), 7), 1);
}

/* Several slabs and panels, A whose rows push each other out of the cache, groups of panels of a transposed A, C by columns; more rows than
   one task's columns take, so that tasks have rows of their own. */
TEST(blocks)
{
    static const int64_t shape[][3] = {
        {60, 70, 80}, {128, 10, 90}, {10, 128, 90}, {130, 40, 16}, {130, 300, 17}, {20, 40, 1024}, {9, 33, 1601}, {117, 129, 60}, {57, 65, 769},
        {270, 261, 19}, {259, 67, 33}};
    WORST("blocks, of the bound", each_layout(shape, COUNT(shape), 61), 1);
}

/* Enough for many tasks, and for a BLAS where there is one. */
TEST(large)
{
    static const int64_t shape[][3] = {{150, 140, 130}, {300, 9, 900}, {1, 700, 900}, {3, 900, 700}, {700, 1, 900}, {5, 600, 500}};
    WORST("large, of the bound", each_layout(shape, COUNT(shape), 83), 1);
}

/* What a NaN or an infinity of A reaches is its own row. */
TEST(not_a_number)
{
    static const int64_t shape[][3] = {{1, 40, 64}, {3, 40, 64}, {3, 3, 64}, {20, 40, 30}, {16, 16, 16}};
    tn_simd level;
    EACH_LEVEL(level) {
        bench at;
        bench_open(&at, level);
        for (size_t s = 0; s < COUNT(shape); s++)
            for (int lb = 0; lb < 2; lb++) {
                uint64_t seed = s + 1;
                matrix   a = make(&seed, TN_F32, shape[s][0], shape[s][2], 0), b = make(&seed, TN_F32, shape[s][2], shape[s][1], lb);
                matrix   c = make(&seed, TN_F32, shape[s][0], shape[s][1], 0);
                tn_call  call = ZERO;
                set(&a, (a.rows - 1) * a.row + 5, (double)NAN);
                call.kernel = TN_KERNEL_GEMM;
                call.n_in = 3;
                call.n_out = 1;
                call.in[0] = view(&a);
                call.in[1] = view(&b);
                call.out[0] = view(&c);
                call.f[0] = 1;
                CHECK(tn_cpu_backend()->fn[TN_KERNEL_GEMM](at.one, &call) == TN_OK);
                for (int64_t i = 0; i < c.rows; i++)
                    for (int64_t j = 0; j < c.cols; j++) {
                        const double v = get(&c, i * c.row + j * c.col);
                        CHECK((v != v) == (i == c.rows - 1));
                    }
                free(a.p);
                free(b.p);
                free(c.p);
            }
        bench_close(&at);
    }
}

/* Batches of inner products: rows that are contiguous, apart or the same for all, of A and of B, and a result whose numbers
   are apart; against sums in double. A NaN reaches its own number only, and gaps of the result keep theirs. */
TEST(batches_of_dots)
{
    static const int64_t counts[] = {2, 3, 5, 400}, depths[] = {0, 1, 7, 8, 33, 801};
    tn_simd level;
    double  worst = 0;
    EACH_LEVEL(level) {
        uint64_t seed = 30 + (uint64_t)level;
        bench    at;
        bench_open(&at, level);
        for (int t = 0; t < 4 * 6 * 9; t++) {
            const int64_t n = counts[t % 4], depth = depths[t / 4 % 6], lie[2] = {t / 24 % 3, t / 72};
            const int64_t bad = test_random_int(&seed, 0, n - 1);
            matrix        x[2], before = make(&seed, TN_F32, n, 1, t % 5 == 0 ? 4 : 0);
            tn_call       c = ZERO;
            c.kernel = TN_KERNEL_GEMM;
            c.n_in = 3;
            c.n_out = 1;
            c.f[0] = t % 7 == 6 ? -0.5 : 1;
            c.f[1] = t % 11 == 10 ? 1 : 0;
            for (int i = 0; i < 2; i++) {
                x[i] = make(&seed, TN_F32, n, depth, lie[i] == 0 ? 0 : lie[i] == 1 ? 2 : 5);
                c.in[i] = view(&x[i]);
                c.in[i].shape[0] = n;
                c.in[i].shape[1] = i == 0 ? 1 : depth;
                c.in[i].shape[2] = i == 0 ? depth : 1;
                c.in[i].strides[0] = x[i].row;
                c.in[i].strides[1] = i == 0 ? depth : 1;
            }
            if (depth > 0 && lie[0] < 2) set(&x[0], bad * x[0].row + depth / 2, (double)NAN);
            matrix one = copy(&before), three = copy(&before);
            c.out[0] = view(&one);
            c.out[0].shape[0] = n;
            c.out[0].shape[1] = c.out[0].shape[2] = 1;
            c.out[0].strides[0] = one.row;
            CHECK(tn_cpu_backend()->fn[TN_KERNEL_GEMM](at.one, &c) == TN_OK);
            c.out[0].data = three.p;
            CHECK(tn_cpu_backend()->fn[TN_KERNEL_GEMM](at.three, &c) == TN_OK);
            CHECK(memcmp(one.p, three.p, size_of(&one)) == 0);
            CHECK(gaps_kept(&before, &one));
            for (int64_t i = 0; i < n; i++) {
                double sum = c.f[1] * get(&before, i * before.row), size = fabs(sum);
                for (int64_t d = 0; d < depth; d++) {
                    const double term = c.f[0] * get(&x[0], i * x[0].row + d) * get(&x[1], i * x[1].row + d);
                    sum += term;
                    size += fabs(term);
                }
                const double got = get(&one, i * one.row);
                if (sum != sum) CHECK(got != got && i == bad);
                else test_raise(&worst, fabs(got - sum) / (0x1p-24 * (double)(depth + EDGE) * (size + 1e-30)));
            }
            free(x[0].p);
            free(x[1].p);
            free(before.p);
            free(one.p);
            free(three.p);
        }
        bench_close(&at);
    }
    WORST("batches of inner products, of the bound", worst, 1);
}

TEST_MAIN(tiny_and_empty, few_rows, blocks, large, not_a_number, batches_of_dots)
