/* desc.gemm_precision: packing, splitting and both kernels against products in double. The kernel for AMX runs on every processor with
   AVX-512: its tile instructions are made of C here, after Intel's manual, and the real ones run where they are. */

#include "tiles.h"                      /* before the kernels, which use them */
#include "pool.h"
#include "test.h"
#include "core/inner.h"
#include "cpu/inner.h"
#include "kernels/f32_avx512.c"

/* ---- contexts that say what they logged ------------------------------------------------------------------------------------ */
typedef struct diary { int lines; char last[256]; } diary;

static void write_diary(void *user, tn_log_level level, const char *message)
{
    diary *d = (diary *)user;
    (void)level;
    if (!strstr(message, "gemm_precision")) return;
    d->lines++;
    snprintf(d->last, sizeof d->last, "%s", message);
}

static tn_ctx *ctx_logged(tn_gemm_precision precision, tn_dtype dtype, tn_simd simd, diary *log)
{
    tn_ctx *ctx = NULL;
    tn_desc d = ZERO;
    memset(log, 0, sizeof *log);
    d.gemm_precision = precision;
    d.dtype = dtype;
    d.simd = simd;
    d.log = write_diary;
    d.log_user = log;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK);
    return ctx;
}

/* A [m,k] times B [k,n] of some numbers */
static tn_tensor *product_of(tn_ctx *ctx, int64_t m, int64_t n, int64_t k)
{
    int64_t a[2], b[2];
    a[0] = m; a[1] = b[0] = k; b[1] = n;
    tn_ctx_seed(ctx, 5);
    tn_ctx_reset(ctx);
    return tn_matmul(ctx, tn_normal(ctx, 2, a, 0, 1), tn_normal(ctx, 2, b, 0, 1));
}

/* Are the products of both contexts the same bits? */
static bool same_product(tn_ctx *one, tn_ctx *two, int64_t m, int64_t n, int64_t k)
{
    size_t count = (size_t)(m * n);
    double *x = (double *)malloc(2 * sizeof *x * count), *y = x + count;
    CHECK_STATUS(tn_read(product_of(one, m, n, k), TN_F64, x, m * n), TN_OK);
    CHECK_STATUS(tn_read(product_of(two, m, n, k), TN_F64, y, m * n), TN_OK);
    bool same = memcmp(x, y, sizeof *x * count) == 0;
    free(x);
    return same;
}

/* Has this machine a unit for the precision? Asked from outside: what it would log. */
static bool has_unit(tn_gemm_precision precision)
{
    diary log;
    tn_ctx_destroy(ctx_logged(precision, TN_F32, TN_SIMD_AUTO, &log));
    return log.lines == 0;
}

TEST(without_a_unit_it_is_F32)
{
    static const tn_simd level[] = {TN_SIMD_AUTO, TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_NEON};
    for (int p = TN_GEMM_F32; p <= TN_GEMM_TF32; p++)
        for (size_t l = 0; l < sizeof level / sizeof *level; l++) {
            diary   none, log, wide;
            tn_ctx *f32 = ctx_logged(TN_GEMM_F32, TN_F32, level[l], &none), *ctx = ctx_logged((tn_gemm_precision)p, TN_F32, level[l], &log);
            tn_ctx *f64 = ctx_logged(TN_GEMM_F32, TN_F64, level[l], &none), *ignores = ctx_logged((tn_gemm_precision)p, TN_F64, level[l], &wide);
            const bool unit = p != TN_GEMM_F32 && strcmp(tn_ctx_simd_name(ctx), "avx512") == 0 && has_unit((tn_gemm_precision)p);
            CHECK(none.lines == 0 && wide.lines == 0);
            CHECK_INT(log.lines, p != TN_GEMM_F32 && !unit);
            if (log.lines) CHECK(strstr(log.last, "run in F32") != NULL);
            CHECK(same_product(f32, ctx, 130, 140, 150) == !unit);
            CHECK(same_product(f32, ctx, 63, 190, 190));         /* too small for a unit */
            CHECK(same_product(f32, ctx, 190, 63, 190));
            CHECK(same_product(f32, ctx, 190, 190, 63));
            CHECK(same_product(f32, ctx, 127, 128, 128));
            CHECK(same_product(f64, ignores, 130, 140, 150));
            tn_ctx_destroy(f32);
            tn_ctx_destroy(ctx);
            tn_ctx_destroy(f64);
            tn_ctx_destroy(ignores);
        }
}

TEST(an_unknown_precision_is_refused)
{
    tn_ctx *ctx = NULL;
    tn_desc d = ZERO;
    char    why[256];
    d.gemm_precision = (tn_gemm_precision)5;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, why), TN_ERR_ARG);
    CHECK_STR(why, "ctx_create: desc.gemm_precision is 5, expected 0 to 4");
    CHECK(ctx == NULL);
}

#ifdef HAVE_UNITS
/* ---- the units: tiles made of C, the processor's tiles, AVX512_BF16's dot products ------------------------------------------- */
enum { UNIT_C, UNIT_TILES, UNIT_DOTS, UNITS };
static const char *const unit_name[] = {"tiles in C", "AMX", "AVX512_BF16"};

static bool unit_is_here(int unit)
{
    if (unit == UNIT_TILES) return tni_bf16_has_tiles();
    return unit == UNIT_C || tni_bf16_has_dots();
}

/* parts 0: in F32 */
static tni_cpu *open_unit(int unit, int parts, int threads, tn_parallel_for_fn parallel_for)
{
    tn_desc d = ZERO;
    void   *state = NULL;
    char    why[256];
    d.threads = threads;
    d.parallel_for = parallel_for;
    d.allocator.alloc = tni_malloc;
    d.allocator.release = tni_mfree;
    CHECK(tn_cpu_backend()->open(&d, &state, why) == TN_OK);
    tni_cpu *cpu = (tni_cpu *)state;
    cpu->gemm_parts = parts;
    cpu->gemm_products = parts == 0 ? NULL : unit == UNIT_DOTS ? tni_bf16_dots : tni_bf16_tiles;
    tiles_in_c = unit == UNIT_C;
    return cpu;
}

/* What each unit can do, in turn. */
#define NO_UNIT "units for bfloat16 that this processor lacks"
#define EACH(unit, parts) \
    for (unit = 0; unit < UNITS; unit++) \
        for (parts = 1; parts <= 3; parts++) \
            if (!test_leave_out(!unit_is_here(unit), NO_UNIT) && (unit != UNIT_DOTS || parts == 1))

#define NEEDS_AVX512 if (tni_cpu_simd(TN_SIMD_AUTO) != TN_SIMD_AVX512) SKIP("avx512", "bfloat16 products are packed by it")

/* ---- one random product ------------------------------------------------------------------------------------------------------- */
typedef struct bf16_product { tn_call c; float *a, *b, *bias, *out; int64_t out_count; } bf16_product;

static tn_view bf16_matrix(uint64_t *seed, int64_t batch, int64_t m, int64_t n, bool is_out, float **mem, int64_t *count)
{
    int64_t row = n, col = 1, kind = test_random_int(seed, 0, 7), pad = test_random_int(seed, 1, 5);
    tn_view v = ZERO;
    if (kind >= 3 && kind < 6) { row = 1; col = m; }            /* by columns */
    else if (kind == 6) row = n + pad;
    else if (kind == 7) { col = pad + 1; row = n * col; }
    int64_t size = (m - 1) * row + (n - 1) * col + 1;
    v.dtype = TN_F32;
    v.rank = 3;
    v.shape[0] = batch;
    v.shape[1] = m;
    v.shape[2] = n;
    v.strides[0] = !is_out && kind % 2 == 0 ? 0 : kind == 0 || kind == 1 ? m * n : size;
    v.strides[1] = row;
    v.strides[2] = col;
    *count = (batch - 1) * v.strides[0] + size;
    *mem = (float *)malloc(sizeof **mem * (size_t)*count);
    for (int64_t i = 0; i < *count; i++) (*mem)[i] = (float)test_random_real(seed);
    v.data = *mem;
    return v;
}

static bf16_product random_bf16(uint64_t *seed, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    static const double alpha[] = {1, 1, 0.5}, beta[] = {0, 0, 1, -0.25};
    bf16_product p = ZERO;
    int64_t unused;
    p.c.kernel = TN_KERNEL_GEMM;
    p.c.n_in = 3;
    p.c.n_out = 1;
    p.c.in[0] = bf16_matrix(seed, batch, m, k, false, &p.a, &unused);
    p.c.in[1] = bf16_matrix(seed, batch, k, n, false, &p.b, &unused);
    p.c.out[0] = bf16_matrix(seed, batch, m, n, true, &p.out, &p.out_count);
    p.bias = (float *)malloc(sizeof *p.bias * (size_t)(n * 3));
    for (int64_t i = 0; i < 3 * n; i++) p.bias[i] = (float)test_random_real(seed);
    if (test_random_int(seed, 0, 1)) p.c.in[2].data = p.bias;
    p.c.in[2].rank = 1;
    p.c.in[2].shape[0] = n;
    p.c.in[2].strides[0] = test_random_int(seed, 0, 1) ? 3 : 1;
    p.c.f[0] = alpha[test_random_int(seed, 0, 2)];
    p.c.f[1] = beta[test_random_int(seed, 0, 3)];
    return p;
}

static void drop_bf16(bf16_product *p)
{
    free(p->a);
    free(p->b);
    free(p->bias);
    free(p->out);
}

/* A copy of `out` for the call to write. */
static float *redirect(const bf16_product *p, tn_call *c)
{
    float *out = (float *)malloc(sizeof *out * (size_t)p->out_count);
    memcpy(out, p->out, sizeof *out * (size_t)p->out_count);
    *c = p->c;
    c->out[0].data = out;
    return out;
}

static void run_on(tni_cpu *cpu, const tn_call *c) { CHECK(tn_cpu_backend()->fn[c->kernel](cpu, c) == TN_OK); }

static int64_t at(const tn_view *v, int64_t b, int64_t i, int64_t j) { return b * v->strides[0] + i * v->strides[1] + j * v->strides[2]; }

/* |got - C|_F / |alpha A B|_F with C in double; nothing between the elements of C may have changed. */
static double product_error(const bf16_product *p, const float *got)
{
    const tn_view *a = &p->c.in[0], *b = &p->c.in[1], *v = &p->c.out[0];
    const int64_t  batch = v->shape[0], m = v->shape[1], n = v->shape[2], k = a->shape[2];
    double         difference = 0, size = 0, *row = (double *)malloc(sizeof *row * (size_t)n);
    double        *right = (double *)malloc(sizeof *right * (size_t)(k * n));           /* b, close together */
    uint8_t       *mine = (uint8_t *)calloc((size_t)p->out_count, 1);
    for (int64_t s = 0; s < batch; s++) {
        for (int64_t d = 0; d < k; d++)
            for (int64_t j = 0; j < n; j++) right[d * n + j] = (double)p->b[at(b, s, d, j)];
        for (int64_t i = 0; i < m; i++) {
            memset(row, 0, sizeof *row * (size_t)n);
            for (int64_t d = 0; d < k; d++) {
                const double x = p->c.f[0] * (double)p->a[at(a, s, i, d)];
                for (int64_t j = 0; j < n; j++) row[j] += x * right[d * n + j];
            }
            for (int64_t j = 0; j < n; j++) {
                const int64_t to = at(v, s, i, j);
                size += row[j] * row[j];
                row[j] += p->c.f[1] * (double)p->out[to] + (p->c.in[2].data ? (double)p->bias[j * p->c.in[2].strides[0]] : 0);
                row[j] -= (double)got[to];
                difference += row[j] * row[j];
                mine[to] = 1;
            }
        }
    }
    for (int64_t i = 0; i < p->out_count; i++)
        if (!mine[i]) CHECK(memcmp(&got[i], &p->out[i], sizeof *got) == 0);
    free(row);
    free(right);
    free(mine);
    return sqrt(difference / size);
}

/* ---- packing ------------------------------------------------------------------------------------------------------------------- */

/* Three parts add up to the number itself; each is the nearest bfloat16 to what is left; all lies where the tiles want it. */
TEST(strips_hold_every_number)
{
    uint64_t seed = 3;
    NEEDS_AVX512;
    for (int t = 0; t < 200; t++) {
        const int     parts = 1 + t % 3;
        const bool    of_a = t % 2 == 0;
        const int64_t lines = test_random_int(&seed, 1, 16), depth = test_random_int(&seed, 1, 100), blocks = (depth + 31) / 32;
        const int64_t kind = test_random_int(&seed, 0, 3), pad = test_random_int(&seed, 0, 3);
        const int64_t line_step = kind == 0 ? 1 : kind == 1 ? depth + pad : 2, depth_step = kind == 0 ? lines + pad : kind == 1 ? 1 : 2 * lines;
        const int64_t count = (lines - 1) * line_step + (depth - 1) * depth_step + 1;
        float        *src = (float *)malloc(sizeof *src * (size_t)count);
        char         *strip = (char *)malloc((size_t)(blocks * parts * 1024));
        for (int64_t i = 0; i < count; i++) src[i] = (float)ldexp(test_random_real(&seed), (int)test_random_int(&seed, -60, 47));
        CHECK(!tni_bf16_pack(strip, parts, src, line_step, depth_step, lines, depth, of_a));
        for (int64_t l = 0; l < 16; l++)
            for (int64_t d = 0; d < blocks * 32; d++) {
                const float x = l < lines && d < depth ? src[l * line_step + d * depth_step] : 0;
                float       left = x;
                for (int p = 0; p < parts; p++) {
                    const char *tile = strip + (d / 32 * parts + p) * 1024;
                    const float part = tile_widen(of_a ? tile + 64 * l + d % 32 * 2 : tile + d % 32 / 2 * 64 + 4 * l + d % 2 * 2);
                    CHECK(fabs((double)(left - part)) <= fabs((double)left) / 256);
                    left -= part;
                }
                if (parts == 3) CHECK(left == 0);
            }
        src[test_random_int(&seed, 0, lines - 1) * line_step + test_random_int(&seed, 0, depth - 1) * depth_step] =
            t % 4 == 0 ? (float)NAN : t % 4 == 1 ? (float)-INFINITY : -281474976710656.0f;
        CHECK(tni_bf16_pack(strip, parts, src, line_step, depth_step, lines, depth, of_a));
        free(src);
        free(strip);
    }
}

TEST(parts_round_half_to_even)
{
    static const uint32_t from[] = {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f807fffu, 0xbf818000u, 0x00000000u, 0x80000000u, 0x3fffffffu};
    static const uint32_t to[]   = {0x3f800000u, 0x3f820000u, 0x3f810000u, 0x3f800000u, 0xbf820000u, 0x00000000u, 0x80000000u, 0x40000000u};
    char  strip[1024];
    float x[8];
    NEEDS_AVX512;
    memcpy(x, from, sizeof x);
    tni_bf16_pack(strip, 1, x, 8, 1, 1, 8, true);
    for (int i = 0; i < 8; i++) {
        uint16_t half;
        memcpy(&half, strip + 2 * i, 2);
        CHECK_INT(half, to[i] >> 16);
    }
}

/* Strips of numbers that are BF16 already hold the same bits as strips of the same numbers as floats, in each layout. */
TEST(strips_of_halves_are_those_of_floats)
{
    uint64_t seed = 4;
    NEEDS_AVX512;
    for (int t = 0; t < 120; t++) {
        const bool    of_a = t % 2 == 0, large = t % 5 == 4;
        const int64_t lines = test_random_int(&seed, 1, 16), depth = test_random_int(&seed, 1, 100), blocks = (depth + 31) / 32;
        const int64_t kind = test_random_int(&seed, 0, 2), pad = test_random_int(&seed, 0, 3);
        const int64_t line_step = kind == 0 ? 1 : kind == 1 ? depth + pad : 2, depth_step = kind == 0 ? lines + pad : kind == 1 ? 1 : 2 * lines;
        const int64_t count = (lines - 1) * line_step + (depth - 1) * depth_step + 1;
        float        *src = (float *)malloc(sizeof *src * (size_t)count);
        uint16_t     *half = (uint16_t *)malloc(sizeof *half * (size_t)count);      /* of exact size: nothing else is read */
        char         *strip = (char *)malloc((size_t)(2 * blocks * 1024));
        for (int64_t i = 0; i < count; i++) {
            half[i] = tni_bf16_bits((float)ldexp(test_random_real(&seed), (int)test_random_int(&seed, -60, 47)));
            if (large && i == count - 1) half[i] = t % 3 == 0 ? 0x7fc1 : t % 3 == 1 ? 0xff80 : 0xd780;      /* NaN, -inf, -2^48 */
            src[i] = tni_bf16_value(half[i]);
        }
        CHECK(tni_bf16_pack(strip, 1, src, line_step, depth_step, lines, depth, of_a) == large);
        CHECK(tni_bf16_pack_halves(strip + blocks * 1024, half, line_step, depth_step, lines, depth, of_a) == large);
        CHECK(large || memcmp(strip, strip + blocks * 1024, (size_t)blocks * 1024) == 0);
        free(src);
        free(half);
        free(strip);
    }
}

/* ---- products -------------------------------------------------------------------------------------------------------------------- */

/* Random layouts, scalars, batches and odd extents. Frobenius errors, as in the enum's comment. */
TEST(products_have_the_errors_told)
{
    static const double bound[] = {0, 2.2e-3, 4.2e-6, 2e-7};
    double worst[UNITS][4];
    int    unit, parts;
    NEEDS_AVX512;
    memset(worst, 0, sizeof worst);
    EACH(unit, parts) {
        tni_cpu *cpu = open_unit(unit, parts, 3, pool_backwards);
        uint64_t seed = 21;
        for (int t = 0; t < 24; t++) {
            const int64_t m = t == 0 ? 67 : test_random_int(&seed, 64, 140), n = t == 1 ? 65 : test_random_int(&seed, 64, 140);
            const int64_t k = test_random_int(&seed, 2097152 / (m * n) + 1, 2097152 / (m * n) + 70);
            bf16_product p = random_bf16(&seed, test_random_int(&seed, 0, 4) == 0 ? 2 : 1, m, n, k);
            tn_call c;
            float  *got = redirect(&p, &c);
            run_on(cpu, &c);
            double error = product_error(&p, got);
            if (!CHECK(error <= bound[parts])) printf("     %s, %d parts: [%d,%d][%d,%d]\n", unit_name[unit], parts, (int)m, (int)k, (int)k, (int)n);
            CHECK(error > bound[parts] / 100);          /* or it was not by parts at all */
            test_raise(&worst[unit][parts], error);
            free(got);
            drop_bf16(&p);
        }
        tni_cpu_close(cpu);
    }
    EACH(unit, parts) {
        char what[64];
        snprintf(what, sizeof what, "product by %s, parts %d", unit_name[unit], parts);
        WORST(what, worst[unit][parts], bound[parts]);
    }
    CHECK_INT(tile_abuse, 0);
}

/* More than one slab, and more than one block each way. */
TEST(large_products)
{
    int unit, parts;
    NEEDS_AVX512;
    EACH(unit, parts)
        for (int turn = 0; turn < 2; turn++) {
            const int64_t wide = unit == UNIT_C ? 1090 : 4200, k = turn ? 1030 : 515;
            tni_cpu *cpu = open_unit(unit, parts, 2, NULL);
            uint64_t seed = 4;
            bf16_product p = random_bf16(&seed, 1, turn ? 65 : wide, turn ? wide : 65, k);
            tn_call  c;
            float   *got = redirect(&p, &c);
            if (unit != UNIT_C || parts > 1 || turn == 0) {
                run_on(cpu, &c);
                double error = product_error(&p, got);
                if (!CHECK(error <= (parts == 1 ? 2.2e-3 : parts == 2 ? 4.2e-6 : 2.5e-7)))
                    printf("     %s, %d parts, turn %d: error %g\n", unit_name[unit], parts, turn, error);
            }
            free(got);
            drop_bf16(&p);
            tni_cpu_close(cpu);
        }
    CHECK_INT(tile_abuse, 0);
}

/* The errors that the header tells, at depth 1000, beside that of F32. */
TEST(errors_at_depth_1000)
{
    static const double bound[] = {5e-7, 2.2e-3, 4e-6, 2.5e-7};
    NEEDS_AVX512;
    for (int unit = 0; unit < UNITS; unit++)
        for (int parts = 0; parts <= 3; parts++) {
            uint64_t seed = 8;
            tn_call  c;
            char     what[64];
            if (test_leave_out(!unit_is_here(unit), NO_UNIT) || (unit == UNIT_DOTS && parts > 1)) continue;
            tni_cpu *cpu = open_unit(unit, parts, 2, NULL);
            bf16_product p = random_bf16(&seed, 1, 100, 100, 1000);
            p.c.f[0] = 1;
            p.c.f[1] = 0;
            p.c.in[2].data = NULL;
            float *got = redirect(&p, &c);
            run_on(cpu, &c);
            snprintf(what, sizeof what, "%s, parts %d (0: F32)", unit_name[unit], parts);
            WORST(what, product_error(&p, got), bound[parts]);
            free(got);
            drop_bf16(&p);
            tni_cpu_close(cpu);
        }
}

TEST(same_bits_for_any_threads)
{
    static const int64_t shape[][4] = {{1, 300, 170, 130}, {2, 130, 260, 90}, {1, 97, 99, 600}};
    int    unit, parts;
    NEEDS_AVX512;
    EACH(unit, parts)
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
            uint64_t seed = 31 + s;
            bf16_product p = random_bf16(&seed, shape[s][0], shape[s][1], shape[s][2], shape[s][3]);
            tn_call  c;
            tni_cpu *one = open_unit(unit, parts, 1, NULL);
            float   *right = redirect(&p, &c);
            run_on(one, &c);
            tni_cpu_close(one);
            for (int threads = 2; threads <= 4; threads++) {
                tni_cpu *many = open_unit(unit, parts, threads, threads == 2 ? NULL : pool_backwards);
                float   *got = redirect(&p, &c);
                run_on(many, &c);
                CHECK(memcmp(got, right, sizeof *got * (size_t)p.out_count) == 0);
                free(got);
                tni_cpu_close(many);
            }
            free(right);
            drop_bf16(&p);
        }
}

/* Infinities, NaN, the largest floats: each element of C is what it is in F32, finite, infinite of that sign, or NaN. */
TEST(wild_numbers_as_in_F32)
{
    static const float odd[] = {(float)INFINITY, (float)-INFINITY, (float)NAN, 3.4e38f, -3.4e38f, 3.39e38f, 281474976710656.0f, 1e30f, 1e-40f, 0.0f, -0.0f};
    int unit, parts;
    NEEDS_AVX512;
    EACH(unit, parts) {
        uint64_t seed = 77;
        for (int t = 0; t < 8; t++) {
            bf16_product p = random_bf16(&seed, 1, 150, 140, 110);
            tn_call  c;
            tni_cpu *cpu = open_unit(unit, parts, 2, NULL);
            int64_t  kinds[3] = {0, 0, 0};
            if (t == 0) {                               /* what a careless split turns into NaN */
                for (int i = 0; i < 150; i++) for (int64_t e = 0; e < 110; e++)
                    p.a[at(&p.c.in[0], 0, i, e)] = 1.00390625f + (float)i * 1e-5f;
                for (int i = 0; i < 110; i++) for (int64_t e = 0; e < 140; e++) p.b[at(&p.c.in[1], 0, i, e)] = 1;
                p.b[at(&p.c.in[1], 0, 50, 33)] = (float)INFINITY;
                p.a[at(&p.c.in[0], 0, 77, 50)] = -1e-40f;
            } else for (int i = 0; i < t; i++) {
                p.a[at(&p.c.in[0], 0, test_random_int(&seed, 0, 149), test_random_int(&seed, 0, 109))] = odd[test_random_int(&seed, 0, 10)];
                p.b[at(&p.c.in[1], 0, test_random_int(&seed, 0, 109), test_random_int(&seed, 0, 139))] = odd[test_random_int(&seed, 0, 10)];
            }
            float *got = redirect(&p, &c);
            run_on(cpu, &c);
            tni_cpu *f32 = open_unit(unit, 0, 1, NULL);
            float   *right = redirect(&p, &c);
            run_on(f32, &c);
            for (int64_t e = 0; e < p.out_count; e++) {
                const double x = (double)got[e], y = (double)right[e];
                kinds[y != y ? 2 : fabs(y) > 3.5e38]++;
                if (y != y) CHECK(x != x);
                else if (fabs(y) > 3.5e38) CHECK(x == y);
                else CHECK(fabs(x - y) <= 0.05 * (1 + fabs(y)));
            }
            if (t == 0) CHECK(kinds[1] >= 100);
            free(got);
            free(right);
            drop_bf16(&p);
            tni_cpu_close(cpu);
            tni_cpu_close(f32);
        }
    }
    CHECK_INT(tile_abuse, 0);
}

/* Tiny numbers: parts and products below 2^-126 are lost, no more than that. */
TEST(tiny_numbers_underflow_gently)
{
    int unit, parts;
    NEEDS_AVX512;
    EACH(unit, parts) {
        uint64_t seed = 5;
        bf16_product p = random_bf16(&seed, 1, 128, 128, 128);
        tn_call  c;
        tni_cpu *cpu = open_unit(unit, parts, 1, NULL);
        double   worst = 0;
        for (int64_t i = 0; i < 128; i++)
            for (int64_t d = 0; d < 128; d++) {
                p.a[at(&p.c.in[0], 0, i, d)] = (float)ldexp(test_random_real(&seed), -70);
                p.b[at(&p.c.in[1], 0, i, d)] = (float)ldexp(test_random_real(&seed), -57 + (int)d % 8);
            }
        p.c.f[0] = 1;
        p.c.f[1] = 0;
        p.c.in[2].data = NULL;
        float *got = redirect(&p, &c);
        run_on(cpu, &c);
        tni_cpu *f32 = open_unit(unit, 0, 1, NULL);
        float   *right = redirect(&p, &c);
        run_on(f32, &c);
        for (int64_t i = 0; i < 128; i++)
            for (int64_t d = 0; d < 128; d++) {
                const int64_t e = at(&p.c.out[0], 0, i, d);
                const double  error = fabs((double)got[e] - (double)right[e]) / (6 * 128 * ldexp(1, -126) + 5e-3 * fabs((double)right[e]) + 128 * ldexp(1, -129));
                test_raise(&worst, error);
            }
        CHECK(worst <= 1);
        free(got);
        free(right);
        drop_bf16(&p);
        tni_cpu_close(cpu);
        tni_cpu_close(f32);
    }
}

/* The processor's tiles do what those in C do, to the bit. */
TEST(tiles_in_C_are_the_processors)
{
    NEEDS_AVX512;
    if (!tni_bf16_has_tiles()) SKIP("amx", "no tiles in this processor");
    for (int parts = 1; parts <= 3; parts++) {
        uint64_t seed = 13;
        bf16_product p = random_bf16(&seed, 1, 150, 170, 140);
        tn_call  c;
        tni_cpu *cpu = open_unit(UNIT_C, parts, 1, NULL);
        float   *right = redirect(&p, &c);
        run_on(cpu, &c);
        tni_cpu_close(cpu);
        cpu = open_unit(UNIT_TILES, parts, 1, NULL);
        float *got = redirect(&p, &c);
        run_on(cpu, &c);
        tni_cpu_close(cpu);
        CHECK(memcmp(got, right, sizeof *got * (size_t)p.out_count) == 0);
        free(got);
        free(right);
        drop_bf16(&p);
    }
}

/* ---- operands in BF16 ------------------------------------------------------------------------------------------------------------ */

static uint16_t *halves_of(float *x, int64_t n)         /* and rounds x itself */
{
    uint16_t *half = (uint16_t *)malloc(sizeof *half * (size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = tni_bf16_value(half[i] = tni_bf16_bits(x[i]));
    return half;
}

static int64_t elements_of(const tn_view *v)
{
    return (v->shape[0] - 1) * v->strides[0] + (v->shape[1] - 1) * v->strides[1] + (v->shape[2] - 1) * v->strides[2] + 1;
}

/* One product with the operands `which` (bits: A, B, C) in BF16 is that of the same numbers in F32, rounded once if it is in BF16;
   with `slabs` to the last bits of F32 only, since these sums stay apart from C. */
static void compare_halves(tni_cpu *one, tni_cpu *three, bf16_product *p, int which, bool slabs)
{
    tn_call   wide, c;
    uint16_t *a = halves_of(p->a, elements_of(&p->c.in[0])), *b = halves_of(p->b, elements_of(&p->c.in[1]));
    uint16_t *out = which & 4 ? halves_of(p->out, p->out_count) : NULL;
    int64_t   wrong = 0;
    float *want = redirect(p, &wide);
    float *read = redirect(p, &c);
    run_on(one, &wide);
    if (which & 1) { c.in[0].dtype = TN_BF16; c.in[0].data = a; }
    if (which & 2) { c.in[1].dtype = TN_BF16; c.in[1].data = b; }
    if (which & 4) { c.out[0].dtype = TN_BF16; c.out[0].data = out; }
    run_on(three, &c);
    for (int64_t i = 0; i < p->out_count; i++) {
        if (which & 4) read[i] = tni_bf16_value(out[i]);
        if (which & 4 && !slabs) want[i] = tni_bf16_value(tni_bf16_bits(want[i]));
        if (slabs) wrong += !(fabsf(want[i] - read[i]) <= fabsf(want[i]) / 250 + 1e-4f);
        else wrong += memcmp(&want[i], &read[i], 4) != 0;
    }
    if (!CHECK_INT(wrong, 0))
        printf("     %d x %d x %d, BF16: %d\n", (int)p->c.out[0].shape[1], (int)p->c.out[0].shape[2], (int)p->c.in[0].shape[2], which);
    free(want);
    free(read);
    free(a);
    free(b);
    free(out);
}

TEST(products_of_halves_are_those_of_floats)
{
    int unit, parts;
    NEEDS_AVX512;
    EACH(unit, parts) {
        tni_cpu *one = open_unit(unit, parts, 1, NULL), *three = open_unit(unit, parts, 3, pool_backwards);
        uint64_t seed = 27;
        for (int t = 0; t < 14 && parts == 1; t++) {
            const int64_t m = test_random_int(&seed, 64, 140), n = test_random_int(&seed, 64, 140);
            const int64_t k = test_random_int(&seed, 2097152 / (m * n) + 1, 2097152 / (m * n) + 70);
            bf16_product  p = random_bf16(&seed, t % 4 == 0 ? 2 : 1, m, n, k);
            if (t % 5 == 4) {                           /* in two strips: F32 there */
                p.a[0] = t % 2 ? INFINITY : 3e38f;
                p.b[elements_of(&p.c.in[1]) - 1] = t % 2 ? -1e30f : NAN;
            }
            compare_halves(one, three, &p, t % 7 + 1, false);
            drop_bf16(&p);
        }
        if (parts == 1) {
            bf16_product p = random_bf16(&seed, 1, 70, 65, 2100);
            compare_halves(one, three, &p, 7, true);
            drop_bf16(&p);
        }
        if (parts == 1) {                               /* 32 rows would be too few, but four times 32 are one matrix */
            bf16_product p = random_bf16(&seed, 1, 128, 128, 128);
            tn_view     *v[3] = {&p.c.in[0], &p.c.out[0], &p.c.in[1]};
            uint16_t    *a = halves_of(p.a, elements_of(v[0]));
            for (int i = 0; i < 3; i++) {
                v[i]->shape[0] = 4;
                v[i]->strides[0] = i < 2 ? 32 * 128 : 0;
                v[i]->strides[1] = 128;
                v[i]->strides[2] = 1;
                if (i < 2) v[i]->shape[1] = 32;
            }
            p.c.in[0].dtype = TN_BF16;
            p.c.in[0].data = a;
            run_on(one, &p.c);
            free(a);
            drop_bf16(&p);
        }
        if (parts > 1) {                                /* they have no second part: F32 copies are multiplied */
            bf16_product p = random_bf16(&seed, 1, 128, 128, 128);
            p.c.in[0].dtype = TN_BF16;
            CHECK(tn_cpu_backend()->fn[TN_KERNEL_GEMM](one, &p.c) == TN_ERR_DTYPE);
            drop_bf16(&p);
        }
        tn_cpu_backend()->close(one);
        tn_cpu_backend()->close(three);
    }
}

/* ---- attention of operands in BF16 --------------------------------------------------------------------------------------------- */

static const double other_use = 1.0 / 1024;             /* the gradient of another use of q, k and v */

typedef struct attend_case {
    int64_t        queries, keys, d, dv;
    tn_attend_desc desc;
    int            bad_in;              /* q, k, v or the upstream gradient, from 1, has one bad number; 0: none */
    int64_t        bad_at;
    double         bad;
} attend_case;

/* o, dq, dk and dv of random BF16 numbers, one after the other in `to`; gradients are added to those of another use.
   unit < 0: the reference backend in double, of the same numbers. */
static void attend_by(int unit, int threads, const attend_case *one, double *to, int64_t ends[4])
{
    const int64_t heads = 5, sets = one->desc.kind == TN_ATTEND_BILINEAR ? 2 : 1;
    int64_t       shape[4][4] = {{2, one->queries, sets * heads, one->d}, {2, one->keys, sets * heads, one->d},
                                 {2, one->keys, heads, one->dv}, {2, one->queries, heads, one->dv}};
    tn_tensor *x[4], *all[4];
    tn_ctx    *ctx = NULL;
    tn_desc    d = ZERO;
    uint64_t   seed = 9;
    int64_t    n = 0;
    d.threads = threads;
    if (threads > 1) d.parallel_for = pool_backwards;
    if (unit < 0) {
        d.dtype = TN_F64;
        d.backend = tn_reference_backend();
    } else d.activations = TN_BF16;
    REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
    if (unit >= 0) {
        tni_cpu *cpu = (tni_cpu *)ctx->state;
        cpu->gemm_parts = 1;
        cpu->gemm_products = unit == UNIT_DOTS ? tni_bf16_dots : tni_bf16_tiles;
        tiles_in_c = unit == UNIT_C;
    }
    for (int i = 0; i < 4; i++) {
        x[i] = tn_tensor_nd(ctx, unit < 0 ? TN_F64 : TN_BF16, 4, shape[i]);
        int64_t count = tn_tensor_count(x[i]);
        for (int64_t e = 0; e < count; e++) to[e] = (double)tni_bf16_value(tni_bf16_bits((float)test_random_real(&seed)));
        if (one->bad_in == i + 1) to[one->bad_at] = one->bad;
        REQUIRE(tn_write(x[i], TN_F64, to, count) == TN_OK);
        if (i < 3) tn_watch(x[i]);
    }
    const long before = tile_dots;
    tn_record(ctx);
    tn_tensor *y = tn_attend(ctx, x[0], x[1], x[2], &one->desc);
    tn_tensor *loss = tn_sum(ctx, tn_mul(ctx, y, x[3]));
    for (int i = 0; i < 3; i++) loss = tn_add(ctx, loss, tn_sum(ctx, tn_scale(ctx, x[i], other_use)));
    CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
    CHECK_CTX(ctx);
    if (unit == UNIT_C && threads == 1) CHECK(tile_dots > before);          /* or they were not products of BF16 at all */
    all[0] = y;
    for (int i = 0; i < 3; i++) all[i + 1] = x[i]->grad;
    for (int i = 0; i < 4; i++) {
        int64_t count = tn_tensor_count(all[i]);
        CHECK_STATUS(tn_read(all[i], TN_F64, to + n, count), TN_OK);
        ends[i] = n += count;
    }
    tn_ctx_destroy(ctx);
}

static double frobenius_error(const double *x, const double *y, int64_t n, double less)
{
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        off += (x[i] - y[i]) * (x[i] - y[i]);
        all += (y[i] - less) * (y[i] - less);
    }
    return all > 0 ? sqrt(off / all) : sqrt(off);
}

static attend_case attend_of(int64_t queries, int64_t keys, int64_t d, int64_t dv, tn_attend_kind kind, tn_row_scale row,
                             bool bidirectional, int64_t window)
{
    attend_case c = ZERO;
    c.queries = queries;
    c.keys = keys;
    c.d = d;
    c.dv = dv;
    c.desc.kind = kind;
    c.desc.form = TN_ATTEND_FORM_QUADRATIC;
    c.desc.row_scale = row;
    c.desc.row_length = 20;
    c.desc.bidirectional = bidirectional;
    c.desc.window = window;
    c.desc.scale = kind == TN_ATTEND_SOFTMAX ? 1.1 / sqrt((double)d) : 0.3;
    return c;
}

/* P and dS are rounded to BF16, and so is each result: 2e-3 of Frobenius error each. The gradient of the other
   use is left out of what errors are relative to. */
TEST(attention_of_halves)
{
    const attend_case shapes[] = {
        attend_of(37, 37, 17, 33, TN_ATTEND_SOFTMAX, TN_ROW_SCALE_DEFAULT, false, 0),
        attend_of(150, 150, 16, 20, TN_ATTEND_SOFTMAX, TN_ROW_SCALE_LENGTH, false, 0),
        attend_of(70, 300, 40, 70, TN_ATTEND_SOFTMAX, TN_ROW_SCALE_DEFAULT, false, 45),
        attend_of(290, 170, 33, 16, TN_ATTEND_SOFTMAX, TN_ROW_SCALE_MEAN, false, 0),
        attend_of(45, 140, 64, 64, TN_ATTEND_SOFTMAX, TN_ROW_SCALE_DEFAULT, true, 0),
        attend_of(161, 161, 16, 16, TN_ATTEND_BILINEAR, TN_ROW_SCALE_DEFAULT, false, 0),
        attend_of(70, 200, 19, 40, TN_ATTEND_BILINEAR, TN_ROW_SCALE_MEAN, true, 30),
        attend_of(129, 131, 32, 17, TN_ATTEND_SQUARED, TN_ROW_SCALE_LENGTH, false, 0),
        attend_of(66, 33, 24, 32, TN_ATTEND_SQUARED, TN_ROW_SCALE_SUM, true, 0),
        attend_of(200, 200, 16, 33, TN_ATTEND_SQUARED, TN_ROW_SCALE_SUM, false, 60),
        attend_of(64, 17, 16, 1024, TN_ATTEND_SQUARED, TN_ROW_SCALE_DEFAULT, true, 0)};     /* many tiles of dout */
    const int64_t most = 2 * 5 * 300 * (2 * 70 * 3 + 70);
    static const double bound[4] = {4e-3, 4e-3, 4e-3, 4e-3};
    static const char *const name[4] = {"o", "dq", "dk", "dv"};
    double *got = (double *)malloc(sizeof *got * 3 * (size_t)most), *again = got + most, *want = again + most, worst[4] = {0, 0, 0, 0};
    NEEDS_AVX512;
    REQUIRE(got != NULL);
    for (int c = 0; c < (int)(sizeof shapes / sizeof *shapes); c++)
        for (int unit = 0; unit < UNITS; unit++) {
            int64_t ends[4], at = 0;
            if (test_leave_out(!unit_is_here(unit), NO_UNIT)) continue;
            attend_by(-1, 1, &shapes[c], want, ends);
            REQUIRE(ends[3] <= most);
            attend_by(unit, 1, &shapes[c], got, ends);
            attend_by(unit, 3, &shapes[c], again, ends);
            CHECK(memcmp(got, again, sizeof *got * (size_t)ends[3]) == 0);
            for (int i = 0; i < 4; at = ends[i++]) {
                const double error = frobenius_error(got + at, want + at, ends[i] - at, i > 0 ? other_use : 0);
                if (!CHECK(error <= bound[i] && error > 2e-4)) printf("     %s, case %d, %s: %g\n", unit_name[unit], c, name[i], error);
                test_raise(&worst[i], error);
            }
        }
    for (int i = 0; i < 4; i++) {
        char what[64];
        snprintf(what, sizeof what, "attention by bfloat16 products, %s", name[i]);
        WORST(what, worst[i], bound[i]);
    }
    CHECK_INT(tile_abuse, 0);
    free(got);
}

static bool row_is_finite(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) if (!isfinite(x[i])) return false;
    return true;
}

enum { BAD_TOKENS = 150, BAD_TILES = 5, BAD_TOKEN = 70, BAD_HEAD = 2 };

/* Whether queries of a tile see keys of another one */
static bool tile_sees(int64_t query_tile, int64_t key_tile, int64_t window)
{
    for (int64_t i = query_tile * 32; i < tni_min(query_tile * 32 + 32, BAD_TOKENS); i++)
        for (int64_t j = key_tile * 32; j <= tni_min(key_tile * 32 + 31, i); j++) if (window == 0 || i - j < window) return true;
    return false;
}

/* Whether one bad number of token BAD_TOKEN may be in a tile of o or dq, or of dk or dv */
static bool tile_may_be_bad(int which, int64_t tile, int bad_in, int64_t window)
{
    if (which == 0 && bad_in == 4) return false;
    if (which < 2 && bad_in % 3 == 1) return tile == BAD_TOKEN / 32;
    if (which < 2) return tile_sees(tile, BAD_TOKEN / 32, window);
    for (int64_t q = 0; q < BAD_TILES; q++) if (tile_may_be_bad(1, q, bad_in, window) && tile_sees(q, tile, window)) return true;
    return false;
}

/* A bad number in one head of one text. What the reference cannot compute is bad here too; tiles that do not meet it are finite. */
TEST(bad_numbers_in_attention_of_halves)
{
    static const tn_attend_kind kinds[] = {TN_ATTEND_SOFTMAX, TN_ATTEND_SQUARED, TN_ATTEND_BILINEAR};
    static const double values[] = {NAN, INFINITY, -INFINITY};
    const int64_t d = 16, dv = 17, most = 2 * BAD_TOKENS * 5 * (4 * d + 2 * d + 2 * dv);
    double *got = (double *)malloc(sizeof *got * 2 * (size_t)most), *want = got + most;
    int     bad = 0, finite = 0, wrong = 0;
    NEEDS_AVX512;
    REQUIRE(got != NULL);
    for (int k = 0; k < 3; k++)
        for (int v = 0; v < (test_small() ? 1 : 3); v++)
            for (int windowed = 0; windowed < 2; windowed++)
                for (int bad_in = 1; bad_in <= 4; bad_in++) {
                    const int64_t sets = kinds[k] == TN_ATTEND_BILINEAR ? 2 : 1, window = windowed ? 20 : 0;
                    attend_case   one = attend_of(BAD_TOKENS, BAD_TOKENS, d, dv, kinds[k], TN_ROW_SCALE_DEFAULT, false, window);
                    int64_t       ends[4];
                    one.bad_in = bad_in;
                    one.bad = values[v];
                    one.bad_at = (BAD_TOKEN * 5 * (bad_in < 3 ? sets : 1) + BAD_HEAD) * (bad_in < 3 ? d : dv) + 3;
                    attend_by(-1, 1, &one, want, ends);
                    for (int unit = 0; unit < UNITS; unit++) {
                        if (test_leave_out(!unit_is_here(unit), NO_UNIT)) continue;
                        attend_by(unit, 2, &one, got, ends);
                        REQUIRE(ends[3] <= most);
                        for (int which = 0; which < 4; which++) {
                            const int64_t heads = which == 1 || which == 2 ? 5 * sets : 5, width = which % 3 ? d : dv;
                            const int64_t from = which ? ends[which - 1] : 0;
                            for (int64_t row = 0; row < 2 * BAD_TOKENS * heads; row++) {
                                const int64_t token = row / heads % BAD_TOKENS;
                                const bool one_head = row / heads == token && row % heads % 5 == BAD_HEAD;      /* of the first text */
                                const bool may = one_head && tile_may_be_bad(which, token / 32, bad_in, window);
                                const bool must = !row_is_finite(want + from + row * width, width);
                                const bool is = !row_is_finite(got + from + row * width, width);
                                bad += must;
                                finite += !may;
                                if ((is || !must) && (may || !is)) continue;
                                wrong++;
                                printf("     %s, kind %d, %g in %d, window %d: array %d, row %d\n", unit_name[unit], k, values[v],
                                       bad_in, (int)window, which, (int)row);
                            }
                        }
                    }
                }
    printf("%d bad rows, %d finite ones\n", bad, finite);
    CHECK_INT(wrong, 0);
    CHECK(bad > 0 && finite > 0);
    free(got);
}

TEST_MAIN(without_a_unit_it_is_F32, an_unknown_precision_is_refused, strips_hold_every_number, parts_round_half_to_even,
          attention_of_halves, bad_numbers_in_attention_of_halves,
          strips_of_halves_are_those_of_floats, products_of_halves_are_those_of_floats, products_have_the_errors_told, large_products, errors_at_depth_1000, same_bits_for_any_threads, wild_numbers_as_in_F32,
          tiny_numbers_underflow_gently, tiles_in_C_are_the_processors)
#else
TEST_MAIN(without_a_unit_it_is_F32, an_unknown_precision_is_refused)
#endif
