/* The fast host kernels against the reference, on every SIMD level this machine has. */

#include "pool.h"
#include "test.h"
#include "core/inner.h"
#include "tensor/inner.h"
#include "ops/inner.h"
#include "cpu/inner.h"
#include "cpu/state.c"

/* ---- backends, buffers, calls ----------------------------------------------------------- */

static tni_cpu *open_level(tn_simd simd, int threads, tn_parallel_for_fn parallel_for)
{
    tn_desc d = ZERO;
    void   *state = NULL;
    char    why[256];
    d.threads = threads;
    d.parallel_for = parallel_for;
    d.simd = simd;
    d.allocator.alloc = tni_malloc;
    d.allocator.release = tni_mfree;
    CHECK(tn_cpu_backend()->open(&d, &state, why) == TN_OK);
    return (tni_cpu *)state;
}

/* Those that this processor has: what it lacks is clamped to another one. */
#define EACH_LEVEL(level) \
    for (level = TN_SIMD_PLAIN; level <= tni_cpu_simd(TN_SIMD_AUTO); level = (tn_simd)(level + 1)) \
        if (!test_leave_out(tni_cpu_simd(level) != level, "SIMD levels that this processor lacks"))

enum { GUARD = 40 };                    /* elements before and behind that nobody may touch */

/* n elements of a dtype between guards; random, also in the guards. In an allocation of the exact size. */
typedef struct buffer { tn_dtype dtype; int64_t n; size_t bytes; char *all, *p; } buffer;

static double get(const buffer *b, int64_t i)
{
    if (b->dtype == TN_I32) return ((const int32_t *)(const void *)b->p)[i];
    return b->dtype == TN_F64 ? ((const double *)(const void *)b->p)[i] : (double)((const float *)(const void *)b->p)[i];
}

static void set(const buffer *b, int64_t i, double v)
{
    if (b->dtype == TN_I32) ((int32_t *)(void *)b->p)[i] = (int32_t)v;
    else if (b->dtype == TN_F64) ((double *)(void *)b->p)[i] = v;
    else ((float *)(void *)b->p)[i] = (float)v;
}

static buffer make(uint64_t *seed, tn_dtype dtype, int64_t n)
{
    buffer  b;
    int64_t size = (int64_t)tni_dtype_size(dtype);
    b.dtype = dtype;
    b.n = n;
    b.bytes = (size_t)((n + 2 * GUARD) * size);
    b.all = (char *)malloc(b.bytes);
    b.p = b.all + GUARD * size;
    for (int64_t i = -GUARD; i < n + GUARD; i++) set(&b, i, test_random_real(seed));
    return b;
}

static buffer copy(const buffer *from)
{
    buffer b = *from;
    b.all = (char *)malloc(b.bytes);
    memcpy(b.all, from->all, b.bytes);
    b.p = b.all + GUARD * tni_dtype_size(b.dtype);
    return b;
}

static void drop(buffer *b) { free(b->all); }

static bool same_buffer(const buffer *a, const buffer *b) { return memcmp(a->all, b->all, a->bytes) == 0; }

static bool same_guards(const buffer *a, const buffer *b)
{
    size_t edge = GUARD * tni_dtype_size(a->dtype);
    return memcmp(a->all, b->all, edge) == 0 && memcmp(a->all + a->bytes - edge, b->all + b->bytes - edge, edge) == 0;
}

/* The largest error of a[i] against b[i], relative to max(1,|b[i]|) or, if `strictly`, to |b[i]|. NaN meets NaN, infinity its like. */
static double difference(const buffer *a, const buffer *b, bool strictly)
{
    double worst = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double x = get(a, i), y = get(b, i), size = fabs(y);
        if (x == y || (x != x && y != y)) continue;
        if (!strictly && size < 1) size = 1;
        test_raise(&worst, fabs(x - y) / (size + 1e-37));
    }
    return worst;
}

/* A contiguous view; extents that are -1 do not count. */
static tn_view view(const buffer *b, int64_t n0, int64_t n1, int64_t n2)
{
    tn_view v = ZERO;
    v.data = b ? b->p : NULL;
    v.dtype = b ? b->dtype : TN_F32;
    v.shape[0] = n0;
    v.shape[1] = n1;
    v.shape[2] = n2;
    v.rank = n0 < 0 ? 0 : n1 < 0 ? 1 : n2 < 0 ? 2 : 3;
    for (int i = v.rank - 1; i >= 0; i--) v.strides[i] = i == v.rank - 1 ? 1 : v.strides[i + 1] * v.shape[i + 1];
    return v;
}

static tn_call call(tn_kernel k)
{
    tn_call c = ZERO;
    c.kernel = k;
    return c;
}

static void in(tn_call *c, tn_view v)  { c->in[c->n_in++] = v; }
static void out(tn_call *c, tn_view v) { c->out[c->n_out++] = v; }

static void run(tni_cpu *cpu, const tn_call *c) { CHECK(tn_cpu_backend()->fn[c->kernel](cpu, c) == TN_OK); }

/* ---- the state ----------------------------------------------------------------------------- */

TEST(levels_are_clamped)
{
    CHECK(tni_cpu_simd(TN_SIMD_PLAIN) == TN_SIMD_PLAIN);
    CHECK(tni_cpu_simd(TN_SIMD_AVX2) <= TN_SIMD_AVX2);
#ifdef __aarch64__
    CHECK(tni_cpu_simd(TN_SIMD_AVX512) == TN_SIMD_PLAIN && tni_cpu_simd(TN_SIMD_NEON) == tni_cpu_simd(TN_SIMD_AUTO));
#else
    CHECK(tni_cpu_simd(TN_SIMD_AVX512) == tni_cpu_simd(TN_SIMD_AUTO) && tni_cpu_simd(TN_SIMD_NEON) == TN_SIMD_PLAIN);
#endif
    CHECK(tni_cpu_simd(TN_SIMD_AUTO) != TN_SIMD_AUTO);
}

TEST(memory_is_aligned_and_given_back)
{
    test_heap heap = {0, 0, 0, 0, false};
    const tn_backend *backend[2];
    backend[0] = tn_cpu_backend();
    backend[1] = tn_reference_backend();
    for (int which = 0; which < 2; which++) {
        tn_desc d = ZERO;
        void   *state = NULL;
        char    why[256];
        d.threads = 3;
        d.simd = TN_SIMD_PLAIN;
        d.allocator = test_heap_allocator(&heap);
        for (uint64_t fail = 1; ; fail++) {                    /* open survives the failure of each allocation */
            heap.count = 0;
            heap.fail_at = fail;
            why[0] = 0;
            if (backend[which]->open(&d, &state, why) == TN_OK) break;
            CHECK(state == NULL && why[0] != 0 && heap.blocks == 0);
        }
        heap.fail_at = 0;
        void *p = backend[which]->alloc(state, 1), *q = backend[which]->alloc(state, 1000);
        CHECK(p && q && (uintptr_t)p % 64 == 0 && (uintptr_t)q % 64 == 0);
        CHECK(backend[which]->alloc(state, SIZE_MAX - 8) == NULL);
        CHECK(backend[which]->upload(state, q, "text", 5) == TN_OK && backend[which]->download(state, p, q, 0) == TN_OK);
        CHECK_STR((char *)q, "text");
        backend[which]->release(state, p, 1);
        backend[which]->release(state, q, 1000);
        backend[which]->release(state, NULL, 0);
        backend[which]->close(state);
        CHECK_INT(heap.blocks, 0);
        CHECK_INT(heap.live, 0);
    }
}

/* Tensors of many sizes in shared reserves, made and released in any order, against the numbers that each was filled with. Nothing
   is left, nor after a failure of any allocation, when tensors get memory of their own. */
typedef struct held { unsigned char *p; size_t bytes; unsigned char fill; } held;

static bool held_whole(const held *h)
{
    for (size_t i = 0; i < h->bytes; i++) if (h->p[i] != h->fill) return false;
    return true;
}

enum { HEADER = 64 };                                       /* bytes before each tensor in a reserve, and before the first one */

/* How many reserves have a tensor; at most one has none. The blocks of each fill it, and what is noted of the free ones is true. */
static int reserves_used(const tni_cpu *cpu)
{
    size_t left;
    int    used = 0, empty = 0;
    for (tni_reserve *r = cpu->reserves; r; r = r->next) {
        size_t at = HEADER;
        for (left = 0; at < r->bytes; at += tni_block_at(r, at)->bytes) {
            if (!tni_block_at(r, at)->used) left += tni_block_at(r, at)->bytes;
            CHECK(tni_block_at(r, at)->used || at >= r->first);
        }
        CHECK(at == r->bytes && left == r->left);
        tni_reserve_empty(r) ? empty++ : used++;
    }
    CHECK(empty <= 1);
    return used;
}

/* Which place a tensor gets. */
static void reserves_in_order(void)
{
    enum { BYTES = 100000, EACH = (BYTES + HEADER + 63) / 64 * 64 };
    const tn_backend *b = tn_cpu_backend();
    tni_cpu     *cpu = open_level(TN_SIMD_PLAIN, 1, NULL);
    tni_reserve *others = cpu->reserves;                    /* the backend's own memory for products may be in one */
    const bool   large = cpu->large;
    char        *p[5], *q;
    cpu->reserves = NULL;
    cpu->large = true;
    for (int i = 0; i < 5; i++) p[i] = (char *)b->alloc(cpu, BYTES);
    for (int i = 1; i < 5; i++) CHECK(p[i] == p[0] + i * EACH);
    b->release(cpu, p[3], BYTES);
    b->release(cpu, p[1], BYTES);
    CHECK((q = (char *)b->alloc(cpu, BYTES + 64)) == p[0] + 5 * EACH);                   /* fits neither */
    b->release(cpu, q, BYTES + 64);
    CHECK((q = (char *)b->alloc(cpu, BYTES)) == p[1]);      /* the first one that is large enough */
    CHECK((char *)b->alloc(cpu, BYTES) == p[3]);
    b->release(cpu, p[2], BYTES);
    b->release(cpu, p[1], BYTES);
    CHECK((q = (char *)b->alloc(cpu, 2 * EACH - HEADER)) == p[1]);                           /* two neighbours */
    CHECK_INT(reserves_used(cpu), 1);
    b->release(cpu, q, 2 * EACH - HEADER);
    b->release(cpu, p[0], BYTES);
    b->release(cpu, p[4], BYTES);
    b->release(cpu, p[3], BYTES);
    CHECK_INT(reserves_used(cpu), 0);
    q = (char *)b->alloc(cpu, (size_t)4 << 20);             /* an arena's first block fills the first reserve */
    CHECK(cpu->reserves && cpu->reserves->next == NULL && cpu->reserves->left == 0 && cpu->reserves->bytes < (size_t)5 << 20);
    b->release(cpu, q, (size_t)4 << 20);
    tni_reserves_release(cpu);
    cpu->reserves = others;
    cpu->large = large;
    b->close(cpu);
}

static void reserves_once(uint64_t seed, uint64_t fail, bool fail_on)
{
    static const size_t sizes[] = {
        0, 1, TNI_SHARE_LEAST - 1, TNI_SHARE_LEAST, TNI_SHARE_LEAST + 1, 100000, 1 << 20, (1 << 20) - 64, (1 << 20) + 1, 3000001,
        TNI_SHARE_MOST - 1, TNI_SHARE_MOST, TNI_SHARE_MOST + 1 };
    const tn_backend *b = tn_cpu_backend();
    test_heap heap = {0, 0, 0, 0, false};
    held      all[12];
    size_t    used = 0, largest = 0;
    tn_desc   d = ZERO;
    void     *state = NULL;
    char      why[TN_WHY];
    memset(all, 0, sizeof all);
    d.threads = 1;
    d.allocator = test_heap_allocator(&heap);
    CHECK(b->open(&d, &state, why) == TN_OK);
    CHECK(!((tni_cpu *)state)->large);                      /* a program's allocator sees each tensor ... */
    ((tni_cpu *)state)->large = true;                       /* ... but here it is asked for reserves, to count them */
    heap.fail_at = fail > 0 ? heap.count + fail : 0;
    heap.fail_on = fail_on;
    for (int step = 0; step < 60; step++) {
        held *h = &all[test_random_int(&seed, 0, 11)];
        if (h->p) {
            CHECK(held_whole(h));
            b->release(state, h->p, h->bytes);
            used -= h->bytes;
            h->p = NULL;
            continue;
        }
        h->bytes = sizes[test_random_int(&seed, 0, (int64_t)(sizeof sizes / sizeof *sizes) - 1)];
        h->p = (unsigned char *)b->alloc(state, h->bytes);
        CHECK(h->p || (fail > 0 && heap.count >= heap.fail_at));
        if (!h->p) continue;
        CHECK((uintptr_t)h->p % 64 == 0);
        h->fill = (unsigned char)(step + 1);
        memset(h->p, h->fill, h->bytes);
        used += h->bytes;
        if (used > largest) largest = used;
        CHECK(heap.live < 64 * ((size_t)1 << 20) + 4 * largest);
        (void)reserves_used((tni_cpu *)state);
    }
    for (size_t i = 0; i < 12; i++) {
        CHECK(!all[i].p || held_whole(&all[i]));
        b->release(state, all[i].p, all[i].bytes);
    }
    CHECK_INT(reserves_used((tni_cpu *)state), 0);
    tni_reserves_release((tni_cpu *)state);
    ((tni_cpu *)state)->large = false;                      /* as when it was opened */
    b->close(state);
    CHECK_INT(heap.blocks, 0);
    CHECK_INT(heap.live, 0);
}

TEST(reserves)
{
    const tn_backend *b = tn_cpu_backend();
    tni_cpu  *cpu = open_level(TN_SIMD_PLAIN, 1, NULL);
    const int  before = reserves_used(cpu);                 /* the backend's own memory for products may be in one */
    const bool large = cpu->large;
    void     *p[3];
    size_t    most = 0;
    reserves_in_order();
    for (uint64_t seed = 1; seed <= 8; seed++) reserves_once(seed, 0, false);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        reserves_once(seed, seed, false);
        reserves_once(seed, seed, true);
    }
    cpu->large = true;
    p[0] = b->alloc(cpu, 100000);                           /* one stays while others come and leave: memory does not grow */
    for (int i = 0; i < 1000; i++) {
        p[1] = b->alloc(cpu, (size_t)(1 + i % 7) << 19);
        p[2] = b->alloc(cpu, (size_t)(1 + i % 5) << 18);
        size_t now = 0;
        for (const tni_reserve *r = cpu->reserves; r; r = r->next) now += r->bytes;
        if (i < 40 && now > most) most = now;
        CHECK(p[0] && p[1] && p[2] && now <= most);
        b->release(cpu, p[1 + i % 2], (i % 2 == 0 ? (size_t)(1 + i % 7) << 19 : (size_t)(1 + i % 5) << 18));
        b->release(cpu, p[2 - i % 2], (i % 2 == 1 ? (size_t)(1 + i % 7) << 19 : (size_t)(1 + i % 5) << 18));
    }
    CHECK(most > 0 && most < (size_t)17 << 20);            /* 4 + 4 + 8, and headers */
    b->release(cpu, p[0], 100000);
    CHECK_INT(reserves_used(cpu), before);
    cpu->large = large;
    b->close(cpu);
}

/* ---- gemm ------------------------------------------------------------------------------------ */

/* One random product: shapes, strides and scalars from the seed alone. */
typedef struct gemm_call { tn_call c; buffer a, b, bias, out; } gemm_call;

/* [b,m,n] in a buffer, in one of the ways a matrix can lie */
static tn_view matrix_in(uint64_t *seed, tn_dtype dtype, int64_t batch, int64_t m, int64_t n, bool is_out, buffer *mem)
{
    int64_t row = n, col = 1, kind = test_random_int(seed, 0, 9), pad = test_random_int(seed, 1, 5);
    if (kind >= 4 && kind < 7) { row = 1; col = m; }            /* by columns */
    else if (kind == 7) row = n + pad;                          /* a part of longer rows */
    else if (kind == 8) { col = pad + 1; row = n * col; }       /* every so many-th */
    else if (kind == 9) { row = 1; col = m + pad; }
    int64_t size = m > 0 && n > 0 ? (m - 1) * row + (n - 1) * col + 1 : 0;
    tn_view v = view(NULL, batch, m, n);
    v.dtype = dtype;
    v.strides[0] = batch > 1 && !is_out && kind % 2 == 0 ? 0 : size;
    v.strides[1] = row;
    v.strides[2] = col;
    *mem = make(seed, dtype, size > 0 && batch > 0 ? (batch - 1) * v.strides[0] + size : 0);
    v.data = mem->p;
    return v;
}

static int64_t extent(uint64_t *seed)
{
    static const int64_t edges[] = {0, 1, 2, 6, 13, 14, 15, 16, 17, 31, 32, 33, 64, 128, 129};
    switch (test_random_int(seed, 0, 4)) {
    case 0:  return edges[test_random_int(seed, 0, 14)];
    case 1:  return test_random_int(seed, 1, 300);
    default: return test_random_int(seed, 1, 40);
    }
}

static gemm_call random_gemm(uint64_t *seed, tn_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    static const double alpha[] = {1, 1, 0.5}, beta[] = {0, 0, 1, -0.25};
    gemm_call p;
    p.c = call(TN_KERNEL_GEMM);
    in(&p.c, matrix_in(seed, dtype, batch, m, k, false, &p.a));
    in(&p.c, matrix_in(seed, dtype, batch, k, n, false, &p.b));
    p.bias = make(seed, dtype, 3 * n);
    in(&p.c, view(&p.bias, n, -1, -1));
    if (test_random_int(seed, 0, 1)) p.c.in[2].data = NULL;
    if (test_random_int(seed, 0, 3) == 0) p.c.in[2].strides[0] = 3;
    out(&p.c, matrix_in(seed, dtype, batch, m, n, true, &p.out));
    p.c.f[0] = alpha[test_random_int(seed, 0, 2)];
    p.c.f[1] = beta[test_random_int(seed, 0, 3)];
    for (int64_t b = 0; b < batch && p.c.f[1] == 0; b++)               /* what beta = 0 must not read */
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                set(&p.out, b * p.c.out[0].strides[0] + i * p.c.out[0].strides[1] + j * p.c.out[0].strides[2], (double)NAN);
    return p;
}

static void drop_product(gemm_call *p)
{
    drop(&p->a);
    drop(&p->b);
    drop(&p->bias);
    drop(&p->out);
}

/* Random products on every level. The bound grows with the depth as the errors of a sum may. */
static double gemm_error(tn_dtype dtype, int count, double unit)
{
    tn_simd level;
    double  worst = 0;
    EACH_LEVEL(level) {
        tni_cpu *cpu = open_level(level, 3, pool_backwards);
        uint64_t seed = 7;
        for (int t = 0; t < count; t++) {
            int64_t batch = test_random_int(&seed, 0, 5) == 0 ? test_random_int(&seed, 0, 5) : 1;
            int64_t m = extent(&seed), n = extent(&seed), k = extent(&seed) * (t % 50 == 0 ? 9 : 1);
            gemm_call p = random_gemm(&seed, dtype, batch, m, n, k);
            buffer  got = copy(&p.out);
            tni_reference_run(NULL, &p.c);
            p.c.out[0].data = got.p;
            run(cpu, &p.c);
            double error = difference(&got, &p.out, false) / (unit * (double)(k + 8));
            if (!CHECK(error <= 1) || !CHECK(same_guards(&got, &p.out)))
                printf("     level %d dtype %d: %d x [%d,%d][%d,%d]\n", (int)level, (int)dtype, (int)batch, (int)m, (int)k, (int)k, (int)n);
            test_raise(&worst, error);
            drop(&got);
            drop_product(&p);
        }
        tni_cpu_close(cpu);
    }
    return worst;
}

TEST(gemm_float)  { WORST("gemm float, in 2^-24 (k+8)", gemm_error(TN_F32, 500, 1.0 / 16777216), 1); }
TEST(gemm_double) { WORST("gemm double, in 2^-53 (k+8)", gemm_error(TN_F64, 300, 0x1p-53), 1); }

/* The same bits for every number of threads and order of tasks, above and below each threshold. */
TEST(gemm_same_bits)
{
    static const int64_t shape[][4] = {{1, 300, 700, 500}, {1, 1700, 40, 300}, {1, 33, 3200, 90}, {40, 64, 48, 72}, {3, 350, 300, 330}, {1, 500, 10, 600},
                                       {1, 1, 700, 300}, {1, 3, 600, 300}, {1, 32, 400, 300}};
    tn_simd level;
    EACH_LEVEL(level)
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
            for (int threads = 2; threads <= 4; threads++) {
                uint64_t seed = 11 + s;
                gemm_call p = random_gemm(&seed, TN_F32, shape[s][0], shape[s][1], shape[s][2], shape[s][3]);
                buffer   got = copy(&p.out);
                tni_cpu *one = open_level(level, 1, NULL), *many = open_level(level, threads, threads == 2 ? NULL : pool_backwards);
                run(one, &p.c);
                p.c.out[0].data = got.p;
                run(many, &p.c);
                CHECK(same_buffer(&got, &p.out));
                tni_cpu_close(one);
                tni_cpu_close(many);
                drop(&got);
                drop_product(&p);
            }
        }
}

/* ---- passes --------------------------------------------------------------------------------------- */

/* A call whose outputs are buffers, run by the reference, by one thread and by three threads, and compared. The outputs
   from number `summed` on (0: none) are sums over rows, which the cpu backend adds up in float: their errors are measured
   in `unit`, which grows with the number of rows. */
typedef struct trial { tn_call c; buffer out[TN_CALL_OUT]; bool strictly; double bound; int summed; double unit; } trial;

static void replace(tn_call *c, buffer *b, const buffer *from)
{
    for (int i = 0; i < c->n_out; i++) {
        b[i] = copy(&from[i]);
        if (c->out[i].data) c->out[i].data = b[i].p + ((char *)c->out[i].data - from[i].p);
    }
}

/* worst[0]: the largest error; worst[1]: the largest error of sums, in their unit */
static void attempt(const trial *t, double worst[2])
{
    buffer  right[TN_CALL_OUT], one[TN_CALL_OUT], many[TN_CALL_OUT];
    tn_call c = t->c;
    tn_simd level;
    replace(&c, right, t->out);
    tni_reference_run(NULL, &c);
    EACH_LEVEL(level) {
        tni_cpu *alone = open_level(level, 1, NULL), *three = open_level(level, 3, pool_backwards);
        c = t->c;
        replace(&c, one, t->out);
        run(alone, &c);
        c = t->c;
        replace(&c, many, t->out);
        run(three, &c);
        for (int i = 0; i < c.n_out; i++) {
            bool   sum = t->summed > 0 && i >= t->summed;
            double d = difference(&one[i], &right[i], t->strictly) / (sum ? t->unit : 1);
            if (!CHECK(d <= (sum ? 1 : t->bound)) || !CHECK(same_guards(&one[i], &right[i]))
                || !CHECK(same_buffer(&one[i], &many[i])))
                printf("     kernel %s, level %d, output %d: error %g, shape %d %d\n", tn_kernel_name(c.kernel), (int)level, i, d,
                       (int)c.out[0].shape[0], (int)c.out[0].shape[1]);
            test_raise(&worst[sum], d);
            drop(&one[i]);
            drop(&many[i]);
        }
        tni_cpu_close(alone);
        tni_cpu_close(three);
    }
    for (int i = 0; i < c.n_out; i++) drop(&right[i]);
}

static trial begin(tn_kernel k, double bound)
{
    trial t = ZERO;
    t.c = call(k);
    t.bound = bound;
    return t;
}

static void result(trial *t, buffer b, tn_view v)
{
    t->out[t->c.n_out] = b;
    out(&t->c, v);
}

static void finish_sums(trial *t, double worst[2])
{
    attempt(t, worst);
    for (int i = 0; i < t->c.n_out; i++) drop(&t->out[i]);
}

static void finish(trial *t, double *worst)
{
    double both[2] = {*worst, 0};
    finish_sums(t, both);
    *worst = both[0];
}

/* Rows and columns with all kinds of tails; now and then enough for several tasks. */
static int64_t rows_of(int t)    { return t % 7 == 0 ? 700 : 1 + t % 5; }
static int64_t columns_of(int t) { return t < 40 ? 1 + t : t % 3 == 0 ? 2048 : 100 + 13 * t; }

static void spike(buffer *b)            /* values at which formulas break */
{
    static const double odd[] = {0, -0.0, 1e-30, -1e-30, 30, -30, 100, -100, 1e4, -1e4};
    for (int64_t i = 0; i < b->n && i < 10; i++) set(b, i * 7 % b->n, odd[i]);
    if (b->n > 12) { set(b, 3, HUGE_VAL); set(b, 5, -HUGE_VAL); set(b, b->n - 2, (double)NAN); }
}

TEST(activations)
{
    uint64_t seed = 1;
    double   worst = 0;
    for (int t = 0; t < 60; t += 3)
        for (int kind = TN_ACT_NONE; kind <= TN_ACT_LOG; kind++) {
            int64_t n = t % 2 == 0 ? 50000 + t : columns_of(t);
            buffer  x = make(&seed, TN_F32, n), dy = make(&seed, TN_F32, n);
            trial   f = begin(TN_KERNEL_ACT, 4e-7), b = begin(TN_KERNEL_ACT_BACKWARD, 1e-6);
            for (int64_t i = 0; i < n; i++) set(&x, i, 8 * get(&x, i));
            spike(&x);
            f.c.i[0] = b.c.i[0] = kind;
            b.c.accumulate = t % 4 == 0;
            in(&f.c, view(&x, n, -1, -1));
            in(&b.c, view(&x, n, -1, -1));
            in(&b.c, view(&dy, n, -1, -1));
            result(&f, make(&seed, TN_F32, n), view(NULL, n, -1, -1));
            result(&b, make(&seed, TN_F32, n), view(NULL, n, -1, -1));
            f.c.out[0].data = f.out[0].p;
            b.c.out[0].data = b.out[0].p;
            finish(&f, &worst);
            finish(&b, &worst);
            drop(&x);
            drop(&dy);
        }
    WORST("activations", worst, 1e-6);
}

/* Relative to the value itself, far into the tails: what the polynomials are worth. */
TEST(activations_in_ulps)
{
    static const struct { tn_act kind; const char *what; double range, bound; } act[] = {
        {TN_ACT_SWISH, "swish, in 2^-24", 40, 4}, {TN_ACT_SIGMOID, "sigmoid, in 2^-24", 40, 4}, {TN_ACT_GELU, "gelu, in 2^-24", 6, 24},
        {TN_ACT_EXP, "exp, in 2^-24", 80, 4}, {TN_ACT_TANH, "tanh, in 2^-24", 12, 4}
    };
    uint64_t seed = 5;
    int64_t  n = 200000;
    buffer   x = make(&seed, TN_F32, n);
    for (size_t k = 0; k < sizeof act / sizeof *act; k++) {
        trial  t = begin(TN_KERNEL_ACT, 1);
        double worst = 0;
        for (int64_t i = 0; i < n; i++) set(&x, i, act[k].range * (2 * (double)i / (double)n - 1));
        t.c.i[0] = act[k].kind;
        t.strictly = true;
        in(&t.c, view(&x, n, -1, -1));
        result(&t, make(&seed, TN_F32, n), view(NULL, n, -1, -1));
        t.c.out[0].data = t.out[0].p;
        finish(&t, &worst);
        WORST(act[k].what, worst * 16777216, act[k].bound);
    }
    drop(&x);
}

TEST(glu)
{
    uint64_t seed = 2;
    double   worst = 0;
    for (int t = 0; t < 60; t += test_small() ? 9 : 3)
        for (int kind = TN_ACT_NONE; kind <= TN_ACT_LOG; kind++) {
            int64_t R = rows_of(t), h = columns_of(t);
            buffer  x = make(&seed, TN_F32, R * 2 * h), dy = make(&seed, TN_F32, R * h);
            trial   f = begin(TN_KERNEL_GLU, 1e-6), b = begin(TN_KERNEL_GLU_BACKWARD, 1e-6);
            f.c.i[0] = b.c.i[0] = kind;
            b.c.accumulate = t % 2 == 0;
            in(&f.c, view(&x, R, 2 * h, -1));
            in(&b.c, view(&x, R, 2 * h, -1));
            in(&b.c, view(&dy, R, h, -1));
            result(&f, make(&seed, TN_F32, R * h), view(NULL, R, h, -1));
            result(&b, make(&seed, TN_F32, R * 2 * h), view(NULL, R, 2 * h, -1));
            f.c.out[0].data = f.out[0].p;
            b.c.out[0].data = b.out[0].p;
            finish(&f, &worst);
            finish(&b, &worst);
            drop(&x);
            drop(&dy);
        }
    WORST("glu", worst, 1e-6);
}

/* [R,C] with each operand whole, or broadcast along one axis or both, or a part of longer rows. */
TEST(add_and_mul)
{
    uint64_t seed = 3;
    double   worst = 0;
    for (int t = 0; t < 120; t++) {
        int64_t R = rows_of(t), C = columns_of(t % 60), wide = C + t % 3;
        buffer  a = make(&seed, TN_F32, R * wide), b = make(&seed, TN_F32, R * wide);
        trial   f = begin(t % 2 == 0 ? TN_KERNEL_ADD : TN_KERNEL_MUL, 1e-6);
        tn_view v[3];
        for (int k = 0; k < 3; k++) {
            v[k] = view(k == 0 ? &a : &b, R, C, -1);
            v[k].strides[0] = wide;
        }
        if (t % 5 == 1) v[1].strides[0] = 0;
        if (t % 5 == 2) v[1].strides[1] = 0;
        if (t % 5 == 3) v[0].strides[0] = v[0].strides[1] = 0;
        if (t % 5 == 4 && wide >= 2 * C) v[1].strides[1] = 2;
        in(&f.c, v[0]);
        if (f.c.kernel == TN_KERNEL_MUL || t % 3 != 0) in(&f.c, v[1]);
        result(&f, make(&seed, TN_F32, R * wide), v[2]);
        f.c.out[0].data = f.out[0].p;
        f.c.f[0] = 0.75;
        f.c.f[1] = -1.5;
        f.c.accumulate = t % 4 == 0;
        finish(&f, &worst);
        drop(&a);
        drop(&b);
    }
    WORST("add and mul", worst, 1e-6);
}

TEST(sums)
{
    uint64_t seed = 4;
    double   worst = 0;
    for (int t = 0; t < 60; t += 2)
        for (int way = 0; way < 4; way++) {                           /* all, each row, each column, the middle axis of three */
            int64_t R = rows_of(t), C = columns_of(t), D = way == 3 ? 3 : 1;
            buffer  x = make(&seed, TN_F32, D * R * C);
            trial   f = begin(TN_KERNEL_SUM, 2e-7);
            tn_view y = view(NULL, way == 3 ? D : 1, way == 1 ? R : 1, way >= 2 ? C : 1);
            in(&f.c, view(&x, D, R, C));
            result(&f, make(&seed, TN_F32, y.shape[0] * y.shape[1] * y.shape[2]), y);
            f.c.out[0].data = f.out[0].p;
            f.c.f[0] = 0.125;
            f.c.accumulate = t % 4 == 0;
            finish(&f, &worst);
            drop(&x);
        }
    WORST("sums", worst, 2e-7);
}

TEST(rmsnorm)
{
    uint64_t seed = 6;
    double   worst = 0, back[2] = {0, 0};
    for (int t = 0; t < 60; t++) {
        int64_t R = rows_of(t), C = columns_of(t);
        buffer  x = make(&seed, TN_F32, R * C), w = make(&seed, TN_F32, C), dy = make(&seed, TN_F32, R * C), r = make(&seed, TN_F32, R);
        trial   f = begin(TN_KERNEL_RMSNORM, 1e-6), b = begin(TN_KERNEL_RMSNORM_BACKWARD, 1e-6);
        for (int64_t i = 0; i < R; i++) set(&r, i, 1 + 0.1 * get(&r, i));
        in(&f.c, view(&x, R, C, -1));
        in(&f.c, view(t % 3 ? &w : NULL, C, -1, -1));
        f.c.f[0] = 1e-6;
        result(&f, make(&seed, TN_F32, R * C), view(NULL, R, C, -1));
        result(&f, make(&seed, TN_F32, R), view(NULL, R, -1, -1));
        f.c.out[0].data = f.out[0].p;
        f.c.out[1].data = f.out[1].p;
        in(&b.c, view(&x, R, C, -1));
        in(&b.c, view(t % 3 ? &w : NULL, C, -1, -1));
        in(&b.c, view(&r, R, -1, -1));
        in(&b.c, view(&dy, R, C, -1));
        result(&b, make(&seed, TN_F32, R * C), view(NULL, R, C, -1));
        result(&b, make(&seed, TN_F32, C), view(NULL, C, -1, -1));
        if (t % 5 != 4) b.c.out[0].data = b.out[0].p;
        if (t % 5 != 3) b.c.out[1].data = b.out[1].p;
        b.c.accumulate = t % 2 == 0;
        b.summed = 1;
        b.unit = (double)(R + 8) / 16777216;
        finish(&f, &worst);
        finish_sums(&b, back);
        drop(&x);
        drop(&w);
        drop(&dy);
        drop(&r);
    }
    WORST("rmsnorm", worst, 1e-6);
    WORST("rmsnorm backward: dx", back[0], 1e-6);
    WORST("rmsnorm backward: dw, in 2^-24 (rows + 8)", back[1], 1);
}

TEST(layernorm)
{
    uint64_t seed = 7;
    double   worst = 0, back[2] = {0, 0};
    for (int t = 0; t < 60; t++) {
        int64_t R = rows_of(t), C = columns_of(t);
        buffer  x = make(&seed, TN_F32, R * C), w = make(&seed, TN_F32, C), dy = make(&seed, TN_F32, R * C), r = make(&seed, TN_F32, R);
        buffer  bias = make(&seed, TN_F32, C);
        trial   f = begin(TN_KERNEL_LAYERNORM, 1e-6), b = begin(TN_KERNEL_LAYERNORM_BACKWARD, 1e-6);
        for (int64_t i = 0; i < R; i++) set(&r, i, 1 + 0.1 * get(&r, i));
        in(&f.c, view(&x, R, C, -1));
        in(&f.c, view(t % 3 ? &w : NULL, C, -1, -1));
        in(&f.c, view(t % 4 ? &bias : NULL, C, -1, -1));
        f.c.f[0] = 1e-2;
        result(&f, make(&seed, TN_F32, R * C), view(NULL, R, C, -1));
        result(&f, make(&seed, TN_F32, R), view(NULL, R, -1, -1));
        f.c.out[0].data = f.out[0].p;
        f.c.out[1].data = f.out[1].p;
        in(&b.c, view(&x, R, C, -1));
        in(&b.c, view(t % 3 ? &w : NULL, C, -1, -1));
        in(&b.c, view(&r, R, -1, -1));
        in(&b.c, view(&dy, R, C, -1));
        result(&b, make(&seed, TN_F32, R * C), view(NULL, R, C, -1));
        result(&b, make(&seed, TN_F32, C), view(NULL, C, -1, -1));
        result(&b, make(&seed, TN_F32, C), view(NULL, C, -1, -1));
        if (t % 5 != 4) b.c.out[0].data = b.out[0].p;
        if (t % 5 != 3) b.c.out[1].data = b.out[1].p;
        if (t % 5 != 2) b.c.out[2].data = b.out[2].p;
        b.c.accumulate = t % 2 == 0;
        b.summed = 1;
        b.unit = (double)(R + 8) / 16777216;
        finish(&f, &worst);
        finish_sums(&b, back);
        drop(&x);
        drop(&w);
        drop(&dy);
        drop(&r);
        drop(&bias);
    }
    WORST("layernorm", worst, 1e-6);
    WORST("layernorm backward: dx", back[0], 1e-6);
    WORST("layernorm backward: dw and db, in 2^-24 (rows + 8)", back[1], 1);
}

/* In float, too, the reference adds up rows in double, and rounds each sum once: the result is that in double, rounded. */
TEST(reference_adds_rows_in_double)
{
    static const tn_kernel kernel[] = {TN_KERNEL_RMSNORM_BACKWARD, TN_KERNEL_LAYERNORM_BACKWARD};
    static const int64_t   width[] = {1, 5, 1024, 1025, 2100};
    const int64_t R = 300;
    uint64_t seed = 13;
    double   worst = 0;
    for (int t = 0; t < 10; t++) {
        int64_t C = width[t / 2];
        buffer  from[7], to[2][7];                                /* x w r dy, then dx dw db */
        for (int i = 0; i < 7; i++) {
            from[i] = make(&seed, TN_F32, i == 2 ? R : i == 0 || i == 3 || i == 4 ? R * C : C);
            for (int k = 0; k < 2; k++) {
                to[k][i] = make(&seed, k ? TN_F64 : TN_F32, from[i].n);
                for (int64_t e = 0; e < from[i].n; e++) set(&to[k][i], e, i == 2 ? 1 + 0.1 * get(&from[i], e) : get(&from[i], e));
            }
        }
        for (int64_t e = 0; e < R; e++) set(&to[1][2], e, get(&to[0][2], e));
        for (int k = 0; k < 2; k++) {
            tn_call c = call(kernel[t % 2]);
            for (int i = 0; i < 6 + t % 2; i++) {
                buffer *b = &to[k][i];
                tn_view v = b->n == R * C ? view(b, R, C, -1) : view(b, b->n, -1, -1);
                if (i < 4) in(&c, v);
                else       out(&c, v);
            }
            c.accumulate = true;
            tni_reference_run(NULL, &c);
        }
        for (int i = 4; i < 6 + t % 2; i++)
            for (int64_t e = 0; e < to[0][i].n; e++) {
                double exact = get(&to[1][i], e);
                test_raise(&worst, fabs(get(&to[0][i], e) - exact) / (fabs(exact) + 1e-30));
            }
        for (int i = 0; i < 7; i++) { drop(&from[i]); drop(&to[0][i]); drop(&to[1][i]); }
    }
    WORST("norms backward, reference in float against double, in 2^-24", worst * 16777216, 1.001);
}

TEST(prod)
{
    static const int factors[] = {1, 2, 3, 5, 8, 16, 17};
    uint64_t seed = 9;
    double   worst = 0;
    for (int t = 0; t < 60; t += test_small() ? 12 : 4)
        for (int which = 0; which < 7; which++) {
            int64_t R = rows_of(t), h = columns_of(t) / 2 + 1, k = factors[which], i;
            buffer  x = make(&seed, TN_F32, R * k * h), dy = make(&seed, TN_F32, R * h);
            trial   f = begin(TN_KERNEL_PROD, 2e-6), b = begin(TN_KERNEL_PROD_BACKWARD, 2e-6);
            for (i = 0; i < x.n; i++) set(&x, i, i % 7 == 3 ? 0 : 1.5 * get(&x, i));      /* zeros too: nobody may divide by a factor */
            f.c.i[0] = b.c.i[0] = k;
            b.c.accumulate = t % 8 == 0;
            in(&f.c, view(&x, R, k * h, -1));
            in(&b.c, view(&x, R, k * h, -1));
            in(&b.c, view(&dy, R, h, -1));
            result(&f, make(&seed, TN_F32, R * h), view(NULL, R, h, -1));
            result(&b, make(&seed, TN_F32, R * k * h), view(NULL, R, k * h, -1));
            f.c.out[0].data = f.out[0].p;
            b.c.out[0].data = b.out[0].p;
            finish(&f, &worst);
            finish(&b, &worst);
            drop(&x);
            drop(&dy);
        }
    WORST("prod", worst, 2e-6);
}

TEST(cross_entropy)
{
    uint64_t seed = 8;
    double   worst = 0;
    for (int t = 0; t < 60; t++) {
        int64_t R = rows_of(t), C = columns_of(t);
        buffer  z = make(&seed, TN_F32, R * C), label = make(&seed, TN_I32, R);
        trial   f = begin(TN_KERNEL_CROSS_ENTROPY, 1e-6);
        buffer  fault = make(&seed, TN_I32, 4);
        for (int64_t i = 0; i < R * C; i++) set(&z, i, (t % 4 == 0 ? 40 : 3) * get(&z, i));
        for (int64_t i = 0; i < R; i++) set(&label, i, (double)test_random_int(&seed, 0, C - 1));
        for (int64_t i = 0; i < 4; i++) set(&fault, i, 0);
        if (t % 3 == 0 && R > 2) { set(&label, 1, (double)C); set(&label, 2, -1); }
        if (t % 4 == 3) {                                         /* every other label is ignored, or all are */
            f.c.i[0] = 1;
            f.c.i[1] = t % 8 == 3 ? -100 : C - 1;
            for (int64_t i = 0; i < R; i++) if (i % 2 || t % 5 == 0) set(&label, i, (double)f.c.i[1]);
        }
        if (t % 6 == 1) set(&z, C / 2, t % 4 == 1 ? (double)NAN : HUGE_VAL);
        if (t % 6 == 2) for (int64_t i = 0; i < C; i++) set(&z, i, i % 2 == 0 && t != 8 ? 1 : -HUGE_VAL);
        in(&f.c, view(&z, R, C, -1));
        in(&f.c, view(&label, R, -1, -1));
        result(&f, make(&seed, TN_F32, 1), view(NULL, -1, -1, -1));
        result(&f, make(&seed, TN_F32, R), view(NULL, R, -1, -1));
        result(&f, fault, view(&fault, 4, -1, -1));
        if (t % 5 != 0) {                                         /* without its gradient, every fifth time */
            result(&f, make(&seed, TN_F32, R * C), view(NULL, R, C, -1));
            f.c.out[3].data = f.out[3].p;
        }
        f.c.out[0].data = f.out[0].p;
        f.c.out[1].data = f.out[1].p;
        finish(&f, &worst);
        drop(&z);
        drop(&label);
    }
    WORST("cross entropy", worst, 1e-6);
}

TEST(random_numbers)
{
    static const tn_kernel kernel[] = {TN_KERNEL_UNIFORM, TN_KERNEL_NORMAL, TN_KERNEL_DROPOUT};
    uint64_t seed = 9;
    double   worst[3] = {0, 0, 0};
    for (int t = 0; t < 45; t++)
        for (int k = 0; k < 3; k++) {
            int64_t n = t == 0 ? 0 : t < 40 ? t * t : 16384 * (t - 38) + t;
            buffer  x = make(&seed, TN_F32, n), clock = make(&seed, TN_I32, 1);
            trial   f = begin(kernel[k], 1);
            f.strictly = k < 2 || t % 2 != 0;
            if (k == 2) in(&f.c, view(&x, n, -1, -1));
            in(&f.c, view(&clock, 1, -1, -1));
            set(&clock, 0, t - 3);
            f.c.f[0] = k == 0 ? -0.3 : k == 1 ? 0 : 0.1 * (t % 10);
            f.c.f[1] = k == 0 ? 0.7 : 0.02;
            f.c.i[0] = (int64_t)test_random(&seed);
            f.c.i[1] = t * 77;
            f.c.accumulate = k == 2 && t % 2 == 0;
            result(&f, make(&seed, TN_F32, n), view(NULL, n, -1, -1));
            f.c.out[0].data = f.out[0].p;
            finish(&f, &worst[k]);
            drop(&x);
            drop(&clock);
        }
    WORST("uniform: the same bits", worst[0], 0);
    WORST("normal, in 2^-24", worst[1] * 16777216, 2);     /* one unit in the last place, of a rounded reference */
    WORST("dropout, in 2^-24", worst[2] * 16777216, 3);
}

/* ---- random numbers far out ------------------------------------------------------------------------------
   A pool that makes a task compute `count` elements from `first` on, the only ones of their tensor that exist. */

typedef struct far_range { int64_t first, count, calls; bool input; } far_range;    /* input: in[0] is such a tensor, too */

static void *data_from(void *p, int64_t first) { return (void *)((uintptr_t)p - (uintptr_t)first * sizeof(float)); }

static void far_pool(void *user, int64_t tasks, int workers, tn_task_fn fn, void *arg)
{
    far_range *r = (far_range *)user;
    tni_pass   p = *(const tni_pass *)arg;
    tn_call    c = *p.call;
    (void)tasks;
    (void)workers;
    if (r->input) c.in[0].data = data_from(c.in[0].data, r->first);
    c.out[0].data = data_from(c.out[0].data, r->first);
    p.call = &c;
    p.share = r->first;                 /* task 1 begins there */
    p.n = r->first + r->count;
    r->calls++;
    fn(&p, 1, 0);
}

/* From element 2^34 on the number of a block needs a second word. */
TEST(random_numbers_far_out)
{
    static const tn_kernel kernel[] = {TN_KERNEL_UNIFORM, TN_KERNEL_NORMAL, TN_KERNEL_DROPOUT};
    const int64_t n = 1 << 20, count = 256;
    uint64_t  seed = 10;
    double    worst[3] = {0, 0, 0};
    far_range r;
    tn_simd   level;
    if (sizeof(void *) < 8) SKIP("64 bits", "so many elements have no addresses");
    EACH_LEVEL(level) {
        tni_cpu *cpu = open_level(level, 2, far_pool);
        for (int k = 0; k < 3; k++) {
            buffer  x = make(&seed, TN_F32, n), y = make(&seed, TN_F32, n), clock = make(&seed, TN_I32, 1);
            tn_call c = call(kernel[k]);
            r.first = ((int64_t)1 << 34) - count / 2;
            r.count = count;
            r.calls = 0;
            r.input = k == 2;
            cpu->pool.user = &r;
            set(&clock, 0, 5);
            if (k == 2) in(&c, view(&x, n, -1, -1));
            in(&c, view(&clock, 1, -1, -1));
            out(&c, view(&y, n, -1, -1));
            c.f[0] = k == 2 ? 0.25 : 0;
            c.f[1] = 1;
            c.i[0] = (int64_t)test_random(&seed);
            c.i[1] = 3;
            run(cpu, &c);
            CHECK_INT(r.calls, 1);
            for (int64_t i = 0; i < count; i++) {
                const uint64_t e = (uint64_t)(r.first + i);
                uint32_t word[4];
                double   u[2];
                tni_random_words((uint64_t)c.i[0], 3, 5, e / 4, word);
                u[0] = tni_unit(word[e % 4 / 2 * 2]);
                u[1] = tni_unit(word[e % 4 / 2 * 2 + 1]);
                double want = u[e % 2];
                u[1] *= 2 * acos(-1.0);
                if (k == 1) want = sqrt(-2 * log(u[0])) * (e % 2 ? sin(u[1]) : cos(u[1]));
                if (k == 2) want = want >= 0.25 ? get(&x, i) / 0.75 : 0;
                test_raise(&worst[k], fabs(get(&y, i) - want));
            }
            drop(&x);
            drop(&y);
            drop(&clock);
        }
        tn_cpu_backend()->close(cpu);
    }
    WORST("uniform from element 2^34 on", worst[0], 0);
    WORST("normal from element 2^34 on", worst[1], 1e-6);
    WORST("dropout from element 2^34 on", worst[2], 1e-6);
}

TEST(optimisers)
{
    static const tn_kernel kernel[] = {TN_KERNEL_SUMSQ, TN_KERNEL_ADAMW, TN_KERNEL_SGD};
    uint64_t seed = 10;
    double   worst = 0;
    for (int t = 0; t < 48; t++)
        for (int k = 0; k < 3; k++) {
            int64_t n = t < 40 ? t * t : 16384 * (t - 38) + t, i;
            buffer  g = make(&seed, TN_F32, n), s = make(&seed, TN_F32, 8), v = make(&seed, TN_F32, n), fault = make(&seed, TN_I32, 4);
            trial   f = begin(kernel[k], 1e-6);
            for (i = 0; i < n; i++) set(&v, i, fabs(get(&v, i)));
            for (i = 0; i < 4; i++) set(&fault, i, 0);
            if (t % 8 == 3) set(&g, n / 2, t % 16 == 3 ? 1e25 : -3e38);                 /* squares that overflow */
            if (t % 8 == 7) set(&g, n / 2, t % 16 == 7 ? (double)NAN : HUGE_VAL);
            set(&s, TNI_LR, 0.01);
            set(&s, TNI_STEP, 1 + t);
            set(&s, TNI_FACTOR, t % 2 == 0 ? 1 : 0.3);
            set(&s, TNI_SKIP, t % 6 == 5);
            f.c.f[0] = 0.9;
            f.c.f[1] = k == 1 ? 0.999 : t % 2;
            f.c.f[2] = 1e-8;
            f.c.f[3] = 0.1;
            f.c.f[4] = 0.5;
            f.c.i[0] = 17;
            if (k == 0) {
                in(&f.c, view(&g, n, -1, -1));
                result(&f, s, view(&s, 8, -1, -1));
                result(&f, fault, view(&fault, 4, -1, -1));
                finish(&f, &worst);
                drop(&g);
                drop(&v);
                continue;
            }
            in(&f.c, view(&s, 8, -1, -1));
            result(&f, make(&seed, TN_F32, n), view(NULL, n, -1, -1));
            f.c.out[0].data = f.out[0].p;
            result(&f, g, view(&g, n, -1, -1));
            if (k == 1 || t % 3 != 0) {
                result(&f, make(&seed, TN_F32, n), view(NULL, n, -1, -1));
                f.c.out[2].data = f.out[2].p;
            } else f.c.f[0] = f.c.f[1] = 0;
            if (k == 1) result(&f, v, view(&v, n, -1, -1));
            else drop(&v);
            finish(&f, &worst);
            drop(&s);
            drop(&fault);
        }
    WORST("optimisers", worst, 1e-6);
}

/* A series of calls gives the bits of single calls: empty, small and large parameters, more of them than are collected at
   once, after a series that was broken off. */
TEST(series)
{
    enum { CALLS = TNI_CPU_SERIES + 7 };
    static const tn_kernel kernel[] = {TN_KERNEL_SUMSQ, TN_KERNEL_ADAMW, TN_KERNEL_SGD};
    for (int k = 0; k < 3; k++)
        for (int threads = 1; threads <= 2; threads++) {
            uint64_t seed = 12;
#ifdef HAVE_PTHREADS
            const tn_parallel_for_fn pool = pool_for;
#else
            const tn_parallel_for_fn pool = pool_backwards;         /* of workers that take turns */
#endif
            tni_cpu *cpu = open_level(TN_SIMD_AUTO, threads, threads > 1 ? pool : NULL);
            buffer   s[2], fault[2], of[2][CALLS][4];
            tn_call  c;
            s[0] = make(&seed, TN_F32, 8);
            set(&s[0], TNI_LR, 0.01);
            set(&s[0], TNI_STEP, 3);
            set(&s[0], TNI_FACTOR, 0.5);
            set(&s[0], TNI_SKIP, 0);
            set(&s[0], TNI_SIZE, 0);
            fault[0] = make(&seed, TN_I32, 4);
            for (int i = 0; i < 4; i++) set(&fault[0], i, 0);
            s[1] = copy(&s[0]);
            fault[1] = copy(&fault[0]);
            for (int i = 0; i < CALLS; i++)
                for (int j = 0; j < 4; j++) {
                    of[0][i][j] = make(&seed, TN_F32, i == 3 ? 0 : i == 5 ? 70001 : i == 40 ? 16385 : i);
                    for (int64_t e = 0; j == 3 && e < of[0][i][j].n; e++) set(&of[0][i][j], e, fabs(get(&of[0][i][j], e)));
                    of[1][i][j] = copy(&of[0][i][j]);
                }
            if (k == 0) set(&of[0][41][0], 7, HUGE_VAL), set(&of[1][41][0], 7, HUGE_VAL);
            for (int way = 0; way < 2; way++)
                for (int i = way == 0 ? -2 : 0; i < CALLS; i++) {            /* -2: is broken off after two of CALLS calls */
                    buffer *b = of[way][i < 0 ? i + 2 : i];
                    memset(&c, 0, sizeof c);
                    c.kernel = kernel[k];
                    c.i[0] = i;
                    c.i[1] = way == 1 ? 0 : i < 0 ? i + 2 : i;
                    c.i[2] = way == 1 ? 0 : CALLS - 1 - c.i[1];
                    c.f[0] = 0.9;
                    c.f[1] = k == 1 ? 0.99 : 0;
                    c.f[2] = 1e-8;
                    c.f[3] = 0.01 * (i + 2);
                    c.f[4] = 1;
                    if (k == 0) {
                        in(&c, view(&b[0], b->n, -1, -1));
                        out(&c, view(&s[way], 8, -1, -1));
                        out(&c, view(&fault[way], 4, -1, -1));
                    } else {
                        in(&c, view(&s[way], 8, -1, -1));
                        for (int j = 0; j < (k == 1 ? 4 : i % 2 ? 3 : 2); j++) out(&c, view(&b[j], b->n, -1, -1));
                    }
                    CHECK_STATUS(tn_cpu_backend()->fn[c.kernel](cpu, &c), TN_OK);
                }
            CHECK(same_buffer(&s[0], &s[1]) && same_buffer(&fault[0], &fault[1]));
            CHECK(k != 0 || (int)get(&fault[0], 1) == 41);
            for (int i = 0; i < CALLS; i++)
                for (int j = 0; j < 4; j++) {
                    CHECK(same_buffer(&of[0][i][j], &of[1][i][j]));
                    drop(&of[0][i][j]);
                    drop(&of[1][i][j]);
                }
            for (int way = 0; way < 2; way++) {
                drop(&s[way]);
                drop(&fault[way]);
            }
            tn_cpu_backend()->close(cpu);
        }
}

/* Batches of matrices, of which some are zero, small or large, in one task and in several. */
TEST(muon)
{
    uint64_t seed = 11;
    double   worst[2] = {0, 0};
    for (int t = 0; t < 40; t++)
        for (int k = 0; k < 2; k++) {
            int64_t batch = t < 30 ? t % 4 : 1 + t % 2, n = t < 30 ? t * 3 % 40 : 16384 * (t - 29) + t;
            buffer  g = make(&seed, TN_F32, batch * n), s = make(&seed, TN_F32, 8);
            trial   f = begin(k == 0 ? TN_KERNEL_MUON_BEGIN : TN_KERNEL_MUON_END, 1e-6);
            set(&s, TNI_LR, 0.01);
            set(&s, TNI_FACTOR, t % 2 == 0 ? 1 : 0.3);
            set(&s, TNI_SKIP, t % 6 == 5);
            for (int64_t i = 0; i < batch * n; i++)
                set(&g, i, t % 7 == 3 ? 0 : t % 7 == 4 ? 1e-25 * get(&g, i) : t % 7 == 5 ? 1e30 * get(&g, i) : get(&g, i));
            f.c.f[0] = k == 0 ? 0.95 : 1.5;
            f.c.f[1] = t % 2;
            f.c.f[3] = 0.1;
            f.c.f[4] = 0.5;
            in(&f.c, view(&s, 8, -1, -1));
            if (k == 0) {
                result(&f, make(&seed, TN_F32, batch * n), view(NULL, batch, n, -1));
                f.c.out[0].data = f.out[0].p;
                result(&f, g, view(&g, batch, n, -1));
                result(&f, make(&seed, TN_F32, batch * n), view(NULL, batch, n, -1));
                f.c.out[2].data = f.out[2].p;
                if (t % 7 == 3 || t % 7 == 4) for (int64_t i = 0; i < batch * n; i++) set(&f.out[2], i, 0);
            } else {
                in(&f.c, view(&g, batch * n, -1, -1));
                result(&f, make(&seed, TN_F32, batch * n), view(NULL, batch * n, -1, -1));
                f.c.out[0].data = f.out[0].p;
            }
            finish(&f, &worst[k]);
            drop(&s);
            if (k == 1) drop(&g);
        }
    WORST("muon_begin", worst[0], 1e-6);
    WORST("muon_end", worst[1], 1e-6);
}

/* Permuted axes, steps, broadcast; floats and ids. */
TEST(copy_kernels)
{
    static const tn_dtype dtype[] = {TN_F32, TN_F64, TN_I32};
    static const int64_t  apart[3] = {2, 40, 256};     /* transposed to rows of 1024 bytes */
    uint64_t seed = 12;
    double   worst = 0;
    for (int t = 0; t < 60; t++) {
        int64_t n[3], at = 1;
        trial   f = begin(t % 6 == 5 ? TN_KERNEL_FILL : TN_KERNEL_COPY, 0);
        int     order[3] = {0, 1, 2};
        for (int k = 0; k < 3; k++)
            n[k] = t == 51 ? apart[k] : t % 10 == 9 ? 40 : t % 10 == 7 && k > 0 ? 30 + 37 * k : test_random_int(&seed, t % 13 == 0 ? 0 : 1, 9);
        buffer x = make(&seed, dtype[t % 3], n[0] * n[1] * n[2] * 2);
        tn_view v = view(&x, n[0], n[1], n[2]);
        if (t % 2) { order[0] = (int)test_random_int(&seed, 0, 2); order[1] = (order[0] + 1) % 3; order[2] = (order[0] + 2) % 3; }
        if (t == 51) { order[0] = 2; order[1] = 0; order[2] = 1; }
        for (int k = 2; k >= 0; k--) { v.strides[order[k]] = at; at *= n[order[k]]; }
        if (t % 5 == 2) for (int k = 0; k < 3; k++) v.strides[k] *= 2;
        if (t % 5 == 3) v.strides[t % 3] = 0;
        if (f.c.kernel == TN_KERNEL_COPY) in(&f.c, v);
        f.c.f[0] = 1.25;
        result(&f, make(&seed, t % 7 == 6 ? TN_F32 : x.dtype, n[0] * n[1] * n[2]), view(NULL, n[0], n[1], n[2]));
        f.c.out[0].data = f.out[0].p;
        f.c.out[0].dtype = f.out[0].dtype;
        finish(&f, &worst);
        drop(&x);
    }
    WORST("copies: the same bits", worst, 0);
}

/* A view of this shape with its axes in any order in memory, with gaps and reversed axes, if `repeats` broadcast ones too;
   `first` is the place of its element 0, `span` the elements of its memory. */
typedef struct strided { tn_view v; int64_t first, span; } strided;

static strided any_strides(uint64_t *seed, tn_dtype dtype, int rank, const int64_t *shape, bool repeats)
{
    const bool shuffled = test_random_int(seed, 0, 3) > 0;
    int64_t    stride = test_random_int(seed, 0, 5) == 0 ? 2 : 1;
    int        order[TN_MAX_RANK];
    strided    s = ZERO;
    s.v.dtype = dtype;
    s.v.rank = rank;
    for (int i = 0; i < rank; i++) order[i] = i;
    for (int i = rank - 1; i >= 0; i--) {
        const int k = shuffled ? (int)test_random_int(seed, 0, i) : i, axis = order[k];
        order[k] = order[i];
        s.v.shape[axis] = shape[axis];
        if (repeats && test_random_int(seed, 0, 7) == 0) continue;
        s.v.strides[axis] = stride;
        stride = stride * shape[axis] + (test_random_int(seed, 0, 7) == 0 ? 3 : 0);
        if (shape[axis] == 0) stride = 1;
        else if (test_random_int(seed, 0, 5) == 0) {
            s.first += (shape[axis] - 1) * s.v.strides[axis];
            s.v.strides[axis] *= -1;
        }
    }
    s.span = stride + 2;
    return s;
}

/* Different numbers of any dtype that a cast keeps finite. */
static char *numbered(tn_dtype dtype, int64_t n)
{
    char *p = (char *)malloc((size_t)n * tni_dtype_size(dtype));
    for (int64_t i = 0; p && i < n; i++)
        if (dtype == TN_BF16) ((uint16_t *)(void *)p)[i] = (uint16_t)(i * 7919 % 32000);
        else tni_store(p, dtype, i, (double)(i * 7919 % 9999991));
    return p;
}

/* Copies between such views, in blocks and without, on one thread and on three: each byte of the result's memory, gaps
   included, as the reference backend leaves it. */
TEST(copies_of_many_axes)
{
    static const tn_dtype dtype[] = {TN_F32, TN_F64, TN_I32, TN_BF16};
    static const int64_t  extent[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 33, 40, 256};
    uint64_t seed = 15;
    tni_cpu *cpu[2];
    cpu[0] = open_level(TN_SIMD_AUTO, 1, NULL);
    cpu[1] = open_level(TN_SIMD_AUTO, 3, pool_backwards);
    for (int t = 0; t < (test_small() ? 200 : 600); t++) {
        const tn_dtype from = dtype[t % 4], to = t % 12 == 8 ? TN_BF16 : t % 12 == 3 ? TN_F32 : from;
        const int      rank = (int)test_random_int(&seed, t < 40 ? 2 : 1, t < 40 ? 3 : TN_MAX_RANK);
        const size_t   size = tni_dtype_size(to);
        int64_t        shape[TN_MAX_RANK], count = 1;
        tn_call        c = call(TN_KERNEL_COPY);
        for (int k = 0; k < rank; k++) {
            shape[k] = extent[t < 40 ? test_random_int(&seed, 8, 11) : test_random_int(&seed, 0, 10)];
            if (count * shape[k] > 40000) shape[k] = 1;
            count *= shape[k];
        }
        if (t % 29 == 28) shape[rank / 2] = 0;
        strided x = any_strides(&seed, from, rank, shape, true);
        strided y = any_strides(&seed, to, rank, shape, false);
        char *source = numbered(from, x.span);
        char *right = numbered(to, y.span);
        x.v.data = source + x.first * (int64_t)tni_dtype_size(from);
        in(&c, x.v);
        y.v.data = right + y.first * (int64_t)size;
        out(&c, y.v);
        tni_reference_run(NULL, &c);
        for (int k = 0; k < 2; k++) {
            char *ours = numbered(to, y.span);
            c.out[0].data = ours + y.first * (int64_t)size;
            run(cpu[k], &c);
            if (!CHECK(memcmp(ours, right, (size_t)y.span * size) == 0))
                printf("     copy %d, rank %d, %s to %s\n", t, rank, tn_dtype_name(from), tn_dtype_name(to));
            free(ours);
        }
        free(source);
        free(right);
    }
    tni_cpu_close(cpu[0]);
    tni_cpu_close(cpu[1]);
}

TEST_MAIN(levels_are_clamped, memory_is_aligned_and_given_back, reserves, gemm_float, gemm_double, gemm_same_bits, activations,
          activations_in_ulps, glu, add_and_mul, sums, rmsnorm, layernorm, reference_adds_rows_in_double, prod, cross_entropy, random_numbers,
          random_numbers_far_out, optimisers, series, muon, copy_kernels, copies_of_many_axes)
